/*  models/generate/generate.c - ignis_generate: the loop that samples tokens and writes text

    While the caller handles one token, the device may compute the next one (generation.c). That hides the latency of
    the host.
    May use: generation.c, speculate.c, stop_string.c. Locks: the engine's lock for each token, not while text_fn
    runs. */

#include "room.h"

/*  Samples one token, or returns why there is none. continues: one more token is likely to follow, and may be sampled
    while the caller has this one. */
static int32_t ignis__generate_next(const char *call, ignis__generation *g, bool continues)
{
    ignis__sequence *sequence = g->sequence;
    ignis__engine *engine = sequence->engine;
    int32_t id;
    if (ignis__capture_refuses(call)) /* text_fn of the caller may have begun a capture */
        return IGNIS__TOKEN_FAILED;
    ignis__mutex_lock(&engine->lock);
    if (engine->model->parallel.size > 1) { /* ranks compare their arguments in every step */
        ignis__engine_settle(call, engine);
        id = ignis__generation_check(call, g);
        if (id == IGNIS__TOKEN_NOT_YET)
            id = ignis__engine_decode(call, &sequence, 1, g->sampling, true, NULL, NULL)
                     ? sequence->ids[sequence->length - 1]
                     : (int32_t)IGNIS__TOKEN_FAILED;
    } else {
        id = ignis__generation_fill(call, g, continues ? 2 : 1);
        if (id == IGNIS__TOKEN_NOT_YET && g->queued == 0) { /* others have steps ahead in all places */
            ignis__engine_settle(call, engine);
            id = ignis__generation_fill(call, g, continues ? 2 : 1);
        }
        if (id == IGNIS__TOKEN_NOT_YET)
            id = ignis__generation_take(call, g, true);
    }
    ignis__mutex_unlock(&engine->lock);
    return id;
}

/*  The drafts of an ignis_generate. */
typedef struct ignis__generate_drafts {
    ignis__sequence *by; /* guesses, held; NULL: the sequence's own tokens do */
    int32_t *ids;        /* of the sequence, for `by`; or NULL */
    int32_t guesses[IGNIS__STEP_ROWS];
} ignis__generate_drafts;

/*  Guesses up to `most` tokens. Returns how many; -1, and reported, on failure. */
static int ignis__generate_guess(const char *call, ignis__sequence *sequence, ignis__generate_drafts *drafts,
                                 const ignis_sampling_desc *sampling, int most)
{
    int count = 0, length;
    ignis__engine_lock(call, sequence->engine);
    length = sequence->length;
    if (drafts->by)
        memcpy(drafts->ids, sequence->ids, sizeof *drafts->ids * (size_t)length);
    else
        count = ignis__sequence_guess(sequence, drafts->guesses, most);
    ignis__mutex_unlock(&sequence->engine->lock);
    return drafts->by ? ignis__sequence_guess_by(call, drafts->by, drafts->ids, length, sampling, drafts->guesses, most)
                      : count;
}

/*  As ignis__generate_next, with drafts of up to `most` tokens. */
static int32_t ignis__generate_next_by_draft(const char *call, ignis__generation *g, ignis__generate_drafts *drafts,
                                             int most, ignis_generate_info *info)
{
    ignis__sequence *sequence = g->sequence;
    int32_t id = IGNIS__TOKEN_FAILED;
    int count = 0, checked = 0;
    bool ok = true;
    if (ignis__capture_refuses(call))
        return IGNIS__TOKEN_FAILED;
    ignis__engine_lock(call, sequence->engine);
    if (sequence->waiting)
        id = ignis__sequence_take_waiting(sequence);
    ignis__mutex_unlock(&sequence->engine->lock);
    if (id >= 0) {
        info->accepted++;
        return id;
    }
    count = ignis__generate_guess(call, sequence, drafts, g->sampling,
                                  most < sequence->engine->step_rows ? most : sequence->engine->step_rows - 1);
    if (count < 0)
        return IGNIS__TOKEN_FAILED;
    ignis__engine_lock(call, sequence->engine);
    ok = count == 0 || ignis__sequence_check(call, sequence, drafts->guesses, count, g->sampling, &checked);
    if (ok && checked)
        id = ignis__sequence_take_waiting(sequence);
    ignis__mutex_unlock(&sequence->engine->lock);
    info->steps++;
    info->guessed += checked;
    return !ok ? (int32_t)IGNIS__TOKEN_FAILED : checked ? id : ignis__generate_next(call, g, false);
}

static bool ignis__generate_is_end(const ignis__sequence *sequence, const ignis_generate_desc *desc, int32_t id)
{
    const int32_t *ends = desc->end_count > 0 ? desc->ends : sequence->model->stops;
    int count = desc->end_count > 0 ? desc->end_count : desc->end_count < 0 ? 0 : sequence->model->stop_count, i;
    for (i = 0; i < count && ends[i] != id;)
        i++;
    return i < count;
}

/*  Passes on one more token, or ends the text: id says why. False, and reported, on failure. */
IGNIS__PRIVATE bool ignis__generate_put(ignis__text_output *output, const ignis__sequence *sequence,
                                        ignis_generate_info *info, int32_t id)
{
    if (id < 0) {
        info->ending = id == IGNIS__TOKEN_ENOUGH    ? IGNIS_ENDING_LENGTH
                       : id == IGNIS__TOKEN_NO_ROOM ? IGNIS_ENDING_CONTEXT
                                                    : IGNIS_ENDING_GRAMMAR;
    } else {
        info->first = info->tokens++ ? info->first : info->seconds;
        if (ignis__generate_is_end(sequence, output->desc, id))
            info->ending = IGNIS_ENDING_TOKEN;
        else if (!ignis__text_output_put(output, id))
            return false;
        else if (output->cancelled)
            info->ending = IGNIS_ENDING_CALLER;
        else if (output->stop >= 0)
            info->ending = IGNIS_ENDING_STOP;
    }
    if (info->ending && !output->cancelled && output->stop < 0) {
        if (!ignis__text_output_put(output, -1))
            return false;
        info->ending = output->stop >= 0 ? IGNIS_ENDING_STOP : info->ending;
    }
    info->stop = output->stop;
    return true;
}

/*  Generates tokens on a held sequence until there is a finish reason. drafts: or NULL. False, and reported, on
    failure. */
static bool ignis__generate_run(ignis__text_output *output, ignis__generation *g, ignis__generate_drafts *drafts,
                                ignis_generate_info *info)
{
    const ignis_generate_desc *desc = output->desc;
    const int64_t begin = ignis__monotonic_ns();
    while (!info->ending) {
        int32_t id = IGNIS__TOKEN_ENOUGH;
        int more = desc->max_tokens ? desc->max_tokens - info->tokens - 1 : INT32_MAX; /* after this one */
        if (more >= 0 && drafts) {
            id = ignis__generate_next_by_draft(output->call, g, drafts,
                                               desc->draft_tokens < more ? desc->draft_tokens : more, info);
        } else if (more >= 0) {
            info->steps++;
            id = ignis__generate_next(output->call, g, more > 0);
        }
        info->seconds = (double)(ignis__monotonic_ns() - begin) * 1e-9;
        if (id == IGNIS__TOKEN_FAILED || !ignis__generate_put(output, g->sequence, info, id))
            return false;
    }
    return true;
}

/*  Begins drafts for a held sequence. False, and reported, on failure. */
static bool ignis__generate_begin_drafts(const char *call, ignis__sequence *sequence, const ignis_generate_desc *desc,
                                         ignis__generate_drafts *drafts)
{
    memset(drafts, 0, sizeof *drafts);
    if (!desc->draft.id)
        return true;
    drafts->by = ignis__sequence_hold(call, desc->draft);
    if (!drafts->by)
        return false;
    if (drafts->by == sequence)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc->draft is the sequence itself");
    if (drafts->by->model->vocab != sequence->model->vocab)
        return ignis__fail_false(IGNIS_DIAG_WRONG_MODEL, call,
                                 "the model of desc->draft has %d tokens, that of the sequence has %d; both have the "
                                 "same vocabulary",
                                 drafts->by->model->vocab, sequence->model->vocab);
    drafts->ids = (int32_t *)ignis__alloc_for(call, sizeof *drafts->ids * ((size_t)sequence->engine->context + 1));
    return drafts->ids != NULL;
}

IGNIS_API ignis_status ignis_generate(ignis_sequence handle, const ignis_generate_desc *desc)
{
    static const char call[] = "ignis_generate";
    static const ignis_generate_desc defaults = IGNIS__ZERO;
    ignis__sequence *sequence;
    ignis_generate_info info = IGNIS__ZERO;
    ignis__text_output output;
    ignis__generation generation;
    ignis__generate_drafts drafts;
    bool ok;
    info.stop = -1;
    if (desc && desc->info)
        *desc->info = info;
    sequence = ignis__sequence_hold(call, handle);
    if (!sequence)
        return ignis__failed();
    memset(&output, 0, sizeof output);
    output.call = call;
    output.desc = desc ? desc : &defaults;
    output.stop = -1;
    memset(&drafts, 0, sizeof drafts);
    memset(&generation, 0, sizeof generation);
    generation.sequence = sequence;
    generation.sampling = &output.desc->sampling;
    ok = ignis__generate_check(call, output.desc) &&
         ignis__generate_begin_drafts(call, sequence, output.desc, &drafts) &&
         ignis__text_output_begin(&output, sequence);
    if (ok) {
        ignis__engine_lock(call, sequence->engine);
        sequence->waiting = 0; /* of another call, which text_fn belongs to */
        ignis__mutex_unlock(&sequence->engine->lock);
        ok = ignis__generate_run(&output, &generation, output.desc->draft_tokens ? &drafts : NULL, &info);
        ignis__mutex_lock(&sequence->engine->lock);
        ignis__generation_settle(call, &generation);
        if (output.desc->draft_tokens) /* returns the pages of guesses */
            ignis__sequence_truncate(sequence, sequence->length);
        ignis__mutex_unlock(&sequence->engine->lock);
    }
    info.ending = ok ? info.ending : IGNIS_ENDING_NONE;
    if (desc && desc->info)
        *desc->info = info;
    ignis__free(output.text);
    ignis__free(drafts.ids);
    if (drafts.by)
        ignis__sequence_drop(call, drafts.by);
    ignis__sequence_drop(call, sequence);
    return ok ? IGNIS_OK : ignis__failed();
}
