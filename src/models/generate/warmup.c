/* --- warming up ------------------------------------------------------------------------------------------------------------- */

#include "room.h"

typedef struct ignis__model_warmup {
    const char *call;
    const ignis_model_warmup_desc *desc;
    ignis__sequence **sequences;
    int32_t *ids; /* of a prompt: token 0, which every model has */
    int count, tokens, done, total;
} ignis__model_warmup;

/*  Begins a part of the work, if it is wanted: from here on the engine is locked. */
static bool ignis__model_warmup_begin(ignis__model_warmup *w)
{
    if (w->desc->progress_fn && !w->desc->progress_fn(w->done, w->total, w->desc->user_data))
        return ignis__fail(IGNIS_DIAG_MODEL_CANCELLED, w->call,
                           "desc.progress_fn has returned false, at %d of %d parts", w->done, w->total) == IGNIS_OK;
    w->done++;
    ignis__engine_lock(w->call, w->sequences[0]->engine);
    return true;
}

/*  Two steps of as many sequences with each way of drawing: the first compiles, the second captures. */
static bool ignis__model_warmup_steps(ignis__model_warmup *w, int count)
{
    ignis_sampling_desc *sampling = (ignis_sampling_desc *)ignis__alloc_for(w->call, sizeof *sampling * (size_t)count);
    bool ok = sampling != NULL;
    int i, turn;
    if (!ok || !ignis__model_warmup_begin(w)) {
        ignis__free(sampling);
        return false;
    }
    memset(sampling, 0, sizeof *sampling * (size_t)count);
    for (turn = 0; ok && turn < 4; turn++) {
        for (i = 0; ok && i < count; i++) {
            ignis__sequence_cut(w->sequences[i], 0);
            ok = ignis__sequence_append(w->call, w->sequences[i], w->ids, 1);
            sampling[i].temperature = 1;
            sampling[i].top_k = turn / 2;
        }
        ok = ok && ignis__engine_run(w->call, w->sequences, count, sampling, true, NULL, NULL);
    }
    for (i = 0; i < count; i++)
        ignis__sequence_cut(w->sequences[i], 0);
    ignis__mutex_unlock(&w->sequences[0]->engine->lock);
    ignis__free(sampling);
    return ok;
}

/*  A prompt of one sequence, in calls of as many tokens, and the token behind it. */
static bool ignis__model_warmup_prompt(ignis__model_warmup *w, int length, int tokens)
{
    ignis__sequence *s = w->sequences[0];
    int some;
    bool ok = true;
    if (!ignis__model_warmup_begin(w))
        return false;
    for (ignis__sequence_cut(s, 0); ok && s->length < length;) {
        some = length - s->length < tokens ? length - s->length : tokens;
        ok = ignis__sequence_append(w->call, s, w->ids, some);
    }
    ok = ok && ignis__engine_run(w->call, &s, 1, NULL, s->length < s->engine->context, NULL, NULL);
    ignis__sequence_cut(s, 0);
    ignis__mutex_unlock(&s->engine->lock);
    return ok;
}

/*  All parts, or, where total is 0, only their number. Kernels for up to 64 rows go by powers of 2; those of more by tiles of 64 rows and more, which
    pieces of 8 rows show all of. */
static bool ignis__model_warmup_parts(ignis__model_warmup *w, int context)
{
    const bool counts = w->total == 0;
    int most = w->count < IGNIS__STEP_ROWS ? w->count : (int)IGNIS__STEP_ROWS, parts = 0, size;
    bool ok = true;
    for (size = 1; ok && context > 1 && size < 2 * most;
         size *= 2, parts++) /* a context of one token has room for none behind it */
        ok = counts || ignis__model_warmup_steps(w, size < most ? size : most);
    for (size = 1; ok && size < w->tokens && size < context && size <= IGNIS__STEP_ROWS;
         size *= 2, parts++) /* the last token waits */
        ok = counts || ignis__model_warmup_prompt(w, size < IGNIS__STEP_ROWS ? size + 1 : size, IGNIS__STEP_ROWS);
    for (size = IGNIS__STEP_ROWS + 8; ok && size <= w->tokens && size <= context; size += 8, parts++)
        ok = counts || ignis__model_warmup_prompt(w, size, size);
    ok = ok && (counts || ignis__model_warmup_prompt(w, context, w->tokens));
    if (counts)
        w->total = parts + 1;
    return ok;
}

IGNIS_API ignis_status ignis_model_warmup(ignis_model model, const ignis_model_warmup_desc *desc)
{
    static const char call[] = "ignis_model_warmup";
    static const ignis_model_warmup_desc defaults = IGNIS__ZERO;
    ignis__model_warmup w;
    ignis__model *m;
    int made = 0, context;
    bool ok;
    memset(&w, 0, sizeof w);
    w.call = call;
    w.desc = desc ? desc : &defaults;
    if (w.desc->sequences < 0 || w.desc->tokens < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.sequences is %d and desc.tokens %d; both are 0 or more",
                           w.desc->sequences, w.desc->tokens);
    m = ignis__model_hold(call, model);
    if (!m)
        return ignis__failed();
    w.count = w.desc->sequences && w.desc->sequences < m->sequences ? w.desc->sequences : m->sequences;
    context = m->room;
    w.tokens = w.desc->tokens && w.desc->tokens < IGNIS__CHUNK ? w.desc->tokens : (int)IGNIS__CHUNK;
    ignis__model_drop(call, m);
    w.sequences = (ignis__sequence **)ignis__alloc_for(call, sizeof *w.sequences * (size_t)w.count);
    w.ids = (int32_t *)ignis__alloc_for(call, sizeof *w.ids * IGNIS__CHUNK);
    ok = w.sequences && w.ids;
    if (ok)
        memset(w.ids, 0, sizeof *w.ids * IGNIS__CHUNK);
    for (; ok && made < w.count; made += ok) {
        ignis_sequence sequence = ignis__sequence_new(call, model);
        w.sequences[made] = sequence.id ? ignis__sequence_hold(call, sequence) : NULL;
        ok = w.sequences[made] != NULL;
    }
    (void)(ok && ignis__model_warmup_parts(&w, context)); /* their number */
    ok = ok && ignis__model_warmup_parts(&w, context);
    if (ok && w.desc->progress_fn)
        (void)w.desc->progress_fn(w.total, w.total, w.desc->user_data);
    while (made-- > 0) {
        ignis__handle_kill(w.sequences[made]);
        ignis__sequence_drop(call, w.sequences[made]);
    }
    ignis__free(w.sequences);
    ignis__free(w.ids);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__PRIVATE void ignis__sequences_close(const char *call)
{
    ignis__sequence *s;
    uint64_t index = 0;
    while ((s = (ignis__sequence *)ignis__pool_next(&ignis__sequences, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "sequence of %d tokens on device %d", s->length,
                           (int)(s->engine->device - ignis__devices));
        ignis__handle_kill(s);
        ignis__sequence_drop(call, s);
    }
}
