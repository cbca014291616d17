/*  models/generate/warmup.c - ignis_model_warmup: compiles, measures and captures everything before the first request

    It computes on sequences of its own: decode steps of each width with each kind of sampling, and prompts of
    each length class. Each piece of work locks the engine for itself, so other sequences continue between them.
    May use: sequence_step.c, kv_cache.c. Locks: the engine's lock, for one piece of work. */

#include "room.h"

typedef struct ignis__model_warmup {
    const char *call;
    const ignis_model_warmup_desc *desc;
    ignis__sequence **sequences;
    int32_t *ids; /* of a prompt: token 0, which every model has */
    int count, tokens, done, total;
} ignis__model_warmup;

/*  Begins one piece of work: reports progress, and locks the engine. False, and reported, if the callback cancels. */
static bool ignis__model_warmup_begin(ignis__model_warmup *warmup)
{
    if (warmup->desc->progress_fn && !warmup->desc->progress_fn(warmup->done, warmup->total, warmup->desc->user_data))
        return ignis__fail(IGNIS_DIAG_MODEL_CANCELLED, warmup->call,
                           "desc.progress_fn has returned false, at %d of %d parts", warmup->done,
                           warmup->total) == IGNIS_OK;
    warmup->done++;
    ignis__engine_lock(warmup->call, warmup->sequences[0]->engine);
    return true;
}

/*  Runs two decode steps of `count` sequences with each kind of sampling: the first compiles, the second captures. */
static bool ignis__model_warmup_steps(ignis__model_warmup *warmup, int count)
{
    ignis_sampling_desc *sampling =
        (ignis_sampling_desc *)ignis__alloc_for(warmup->call, sizeof *sampling * (size_t)count);
    bool ok = sampling != NULL;
    int i, pass;
    if (!ok || !ignis__model_warmup_begin(warmup)) {
        ignis__free(sampling);
        return false;
    }
    memset(sampling, 0, sizeof *sampling * (size_t)count);
    for (pass = 0; ok && pass < 4; pass++) {
        for (i = 0; ok && i < count; i++) {
            ignis__sequence_truncate(warmup->sequences[i], 0);
            ok = ignis__sequence_append(warmup->call, warmup->sequences[i], warmup->ids, 1);
            sampling[i].temperature = 1;
            sampling[i].top_k = pass / 2;
        }
        ok = ok && ignis__engine_decode(warmup->call, warmup->sequences, count, sampling, true, NULL, NULL);
    }
    for (i = 0; i < count; i++)
        ignis__sequence_truncate(warmup->sequences[i], 0);
    ignis__mutex_unlock(&warmup->sequences[0]->engine->lock);
    ignis__free(sampling);
    return ok;
}

/*  Runs a prompt of one sequence, in calls of `tokens` tokens, and the decode step after it. */
static bool ignis__model_warmup_prompt(ignis__model_warmup *warmup, int length, int tokens)
{
    ignis__sequence *sequence = warmup->sequences[0];
    int batch;
    bool ok = true;
    if (!ignis__model_warmup_begin(warmup))
        return false;
    for (ignis__sequence_truncate(sequence, 0); ok && sequence->length < length;) {
        batch = length - sequence->length < tokens ? length - sequence->length : tokens;
        ok = ignis__sequence_append(warmup->call, sequence, warmup->ids, batch);
    }
    ok = ok && ignis__engine_decode(warmup->call, &sequence, 1, NULL, sequence->length < sequence->engine->context,
                                    NULL, NULL);
    ignis__sequence_truncate(sequence, 0);
    ignis__mutex_unlock(&sequence->engine->lock);
    return ok;
}

/*  Runs all pieces of work, or only counts them if total is 0. Kernels for up to 64 rows come in powers of 2. Kernels
    for more rows have tiles of 64 rows or more, so steps of 8 rows reach all of them. */
static bool ignis__model_warmup_parts(ignis__model_warmup *warmup, int context)
{
    const bool counts = warmup->total == 0;
    int max_rows = warmup->count < IGNIS__STEP_ROWS ? warmup->count : (int)IGNIS__STEP_ROWS, parts = 0, size, rows;
    bool ok = true;
    /* a context of one token has no space for another one */
    for (size = 1, rows = 0; ok && context > 1 && rows < max_rows; size = ignis__step_width(size + 1), parts++) {
        rows = size < max_rows ? size : max_rows;
        ok = counts || ignis__model_warmup_steps(warmup, rows);
    }
    /* the last token waits for the next decode step */
    for (size = 1; ok && size < warmup->tokens && size < context && size <= IGNIS__PROMPT_ROWS; size *= 2, parts++)
        ok = counts ||
             ignis__model_warmup_prompt(warmup, size < IGNIS__PROMPT_ROWS ? size + 1 : size, IGNIS__PROMPT_ROWS);
    for (size = IGNIS__PROMPT_ROWS + 8; ok && size <= warmup->tokens && size <= context; size += 8, parts++)
        ok = counts || ignis__model_warmup_prompt(warmup, size, size);
    ok = ok && (counts || ignis__model_warmup_prompt(warmup, context, warmup->tokens));
    if (counts)
        warmup->total = parts + 1;
    return ok;
}

IGNIS_API ignis_status ignis_model_warmup(ignis_model handle, const ignis_model_warmup_desc *desc)
{
    static const char call[] = "ignis_model_warmup";
    static const ignis_model_warmup_desc defaults = IGNIS__ZERO;
    ignis__model_warmup warmup;
    ignis__model *model;
    int made = 0, context;
    bool ok;
    memset(&warmup, 0, sizeof warmup);
    warmup.call = call;
    warmup.desc = desc ? desc : &defaults;
    if (warmup.desc->sequences < 0 || warmup.desc->tokens < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.sequences is %d and desc.tokens %d; both are 0 or more",
                           warmup.desc->sequences, warmup.desc->tokens);
    model = ignis__model_hold(call, handle);
    if (!model)
        return ignis__failed();
    warmup.count =
        warmup.desc->sequences && warmup.desc->sequences < model->sequences ? warmup.desc->sequences : model->sequences;
    context = model->max_tokens;
    warmup.tokens = warmup.desc->tokens && warmup.desc->tokens < IGNIS__CHUNK ? warmup.desc->tokens : (int)IGNIS__CHUNK;
    ignis__model_drop(call, model);
    warmup.sequences = (ignis__sequence **)ignis__alloc_for(call, sizeof *warmup.sequences * (size_t)warmup.count);
    warmup.ids = (int32_t *)ignis__alloc_for(call, sizeof *warmup.ids * IGNIS__CHUNK);
    ok = warmup.sequences && warmup.ids;
    if (ok)
        memset(warmup.ids, 0, sizeof *warmup.ids * IGNIS__CHUNK);
    for (; ok && made < warmup.count; made += ok) {
        ignis_sequence sequence = ignis__sequence_new(call, handle);
        warmup.sequences[made] = sequence.id ? ignis__sequence_hold(call, sequence) : NULL;
        ok = warmup.sequences[made] != NULL;
    }
    (void)(ok && ignis__model_warmup_parts(&warmup, context)); /* counts them */
    ok = ok && ignis__model_warmup_parts(&warmup, context);
    if (ok && warmup.desc->progress_fn)
        (void)warmup.desc->progress_fn(warmup.total, warmup.total, warmup.desc->user_data);
    while (made-- > 0) {
        ignis__handle_kill(warmup.sequences[made]);
        ignis__sequence_drop(call, warmup.sequences[made]);
    }
    ignis__free(warmup.sequences);
    ignis__free(warmup.ids);
    return ok ? IGNIS_OK : ignis__failed();
}
