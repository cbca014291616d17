/*  models/generate/sequence_next.c - new sequences, the next token, logits

    Decode steps of several sequences of one model run as one batch: the weights are read once.
    May use: sequence_step.c, kv_cache.c, engine_create.c. Locks: the model's slot lock to make the engine, then,
    alone, the engine's lock for the rest of a call. */

#include "room.h"

/*  Makes an empty sequence. It takes over the caller's hold of the model. NULL, and reported, if there is no memory.
    */
IGNIS__PRIVATE ignis__sequence *ignis__sequence_make(const char *call, ignis__model *model, ignis__engine *engine)
{
    const int pages = ignis__engine_context_pages(engine);
    int32_t *page;
    ignis__sequence *sequence = (ignis__sequence *)ignis__pool_take(call, &ignis__sequences);
    if (!sequence)
        return NULL;
    ignis__models_close_by(IGNIS__CLOSE_SEQUENCES, ignis__sequences_close);
    memset((char *)sequence + sizeof sequence->slot, 0, sizeof *sequence - sizeof sequence->slot);
    sequence->model = model;
    sequence->engine = engine;
    sequence->ids = (int32_t *)ignis__alloc(sizeof *sequence->ids * ((size_t)engine->context + 1));
    page = (int32_t *)ignis__alloc(sizeof *page * IGNIS__PAGE_GROUPS * (size_t)pages);
    sequence->tables[0].page = page;
    sequence->in_chunk = (bool *)ignis__alloc(sizeof *sequence->in_chunk * ((size_t)engine->context + 1));
    if (page)
        sequence->tables[1].page = page + pages;
    if (!sequence->ids || !page || !sequence->in_chunk)
        ignis__fail_host_memory(call, sizeof *sequence->ids * ((size_t)engine->context + 1));
    else if (ignis__engine_alloc(call, engine, &sequence->ids_on_device, 1, (int64_t)engine->context + 1, IGNIS_I32) &&
             ignis__engine_alloc(call, engine, &sequence->pages_on_device, IGNIS__PAGE_GROUPS, pages, IGNIS_I32) &&
             ignis__sequence_alloc_states(call, sequence))
        return sequence;
    if (sequence->ids_on_device)
        ignis__array_unclaim(call, sequence->ids_on_device);
    if (sequence->pages_on_device)
        ignis__array_unclaim(call, sequence->pages_on_device);
    ignis__free(sequence->ids);
    ignis__free(page);
    ignis__free(sequence->in_chunk);
    ignis__pool_recycle(&ignis__sequences, sequence);
    return NULL;
}

/*  Makes a sequence of a model, and the model's engine if this is the first one. It is computed with the adapters that
    are set on the model. */
IGNIS__PRIVATE ignis_sequence ignis__sequence_new(const char *call, ignis_model handle)
{
    ignis_sequence none = IGNIS__ZERO;
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__sequence *sequence = NULL;
    ignis__engine *engine = NULL;
    ignis__lora *lora;
    bool ok = true;
    if (!model)
        return none;
    if (!ignis__capture_refuses(call)) {
        ignis__mutex_lock(&model->slot.lock);
        if (!model->engine) {
            model->engine = ignis__engine_make(call, model);
            model->engine_destroy = ignis__engine_destroy;
        }
        engine = (ignis__engine *)model->engine;
        ignis__mutex_unlock(&model->slot.lock);
    }
    if (engine)
        sequence = ignis__sequence_make(call, model, engine);
    if (!sequence) {
        ignis__model_drop(call, model);
        return none;
    }
    if ((lora = ignis__model_lora(model)) != NULL) {
        ignis__engine_lock(call, engine);
        ok = ignis__sequence_take_lora(call, sequence, lora);
        ignis__mutex_unlock(&engine->lock);
    }
    if (ok)
        none.id = ignis__pool_publish(&ignis__sequences, sequence);
    else
        ignis__sequence_clear(call, sequence);
    return none;
}

IGNIS_API ignis_sequence ignis_sequence_begin(ignis_model model)
{
    return ignis__sequence_new("ignis_sequence_begin", model);
}

IGNIS_API int32_t ignis_sequence_next(ignis_sequence handle, const ignis_sampling_desc *sampling)
{
    static const char call[] = "ignis_sequence_next";
    ignis__sequence *sequence = ignis__sequence_enter(call, handle);
    int32_t id = -1;
    if (!sequence)
        return -1;
    if (ignis__engine_decode(call, &sequence, 1, sampling, true, NULL, NULL))
        id = sequence->ids[sequence->length - 1];
    ignis__sequence_leave(call, sequence);
    return id;
}

/*  Holds sequences of one model, each of them once, and locks their engine. False, and reported, on failure; then
    nothing is held. */
static bool ignis__sequences_enter(const char *call, const ignis_sequence *handles, int count,
                                   ignis__sequence **sequences)
{
    int i, j;
    bool ok = true;
    for (i = 0; ok && i < count; i++) {
        sequences[i] = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, handles[i].id);
        ok = sequences[i] != NULL;
        if (ok && sequences[i]->engine != sequences[0]->engine)
            ok = ignis__fail(IGNIS_DIAG_WRONG_MODEL, call, "sequences[%d] is of another model than sequences[0]", i) ==
                 IGNIS_OK;
        for (j = 0; ok && j < i; j++)
            if (sequences[j] == sequences[i])
                ok = ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "sequences[%d] is sequences[%d], too", i, j) == IGNIS_OK;
    }
    ok = ok && !ignis__capture_refuses(call);
    if (ok)
        ignis__engine_lock(call, sequences[0]->engine);
    while (!ok && --i >= 0)
        if (sequences[i])
            ignis__sequence_drop(call, sequences[i]);
    return ok;
}

IGNIS_API ignis_status ignis_sequence_next_all(const ignis_sequence *handles, int count,
                                               const ignis_sampling_desc *sampling, int32_t *ids)
{
    static const char call[] = "ignis_sequence_next_all";
    ignis__sequence **sequences;
    int i;
    bool ok = false;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    if (count == 0)
        return IGNIS_OK;
    if (!handles || !ids)
        return ignis__fail_null(call, handles ? "ids" : "sequences");
    for (i = 0; i < count; i++)
        ids[i] = -1;
    sequences = (ignis__sequence **)ignis__alloc(sizeof *sequences * (size_t)count);
    if (!sequences)
        return ignis__fail_host_memory(call, sizeof *sequences * (size_t)count);
    if (ignis__sequences_enter(call, handles, count, sequences)) {
        ok = ignis__engine_decode(call, sequences, count, sampling, true, NULL, ids);
        ignis__mutex_unlock(&sequences[0]->engine->lock);
        for (i = 0; i < count; i++)
            ignis__sequence_drop(call, sequences[i]);
    }
    ignis__free(sequences);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_sequence_logits(ignis_sequence handle, float *logits, int count)
{
    static const char call[] = "ignis_sequence_logits";
    ignis__sequence *sequence = ignis__sequence_enter(call, handle);
    bool ok = false;
    if (!sequence)
        return ignis__failed();
    if (!logits)
        ignis__fail_null(call, "logits");
    else if (count != sequence->model->vocab)
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call, "count is %d; the model has %d tokens", count,
                    sequence->model->vocab);
    else
        ok = ignis__engine_decode(call, &sequence, 1, NULL, false, logits, NULL);
    ignis__sequence_leave(call, sequence);
    return ok ? IGNIS_OK : ignis__failed();
}
