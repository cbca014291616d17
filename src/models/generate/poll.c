/*  models/generate/poll.c - ignis_generate_poll: a text for which nothing waits for the device

    The text is that of ignis_generate: the same steps, queued without waiting for them. It belongs to the sequence;
    forks do not have it.
    May use: generation.c, generate.c, stop_string.c. Locks: the engine's lock, not while text_fn runs; `busy` keeps
    other calls away then. */

#include "room.h"

/*  Checks that no other call works on the text of a sequence. False, and reported, if one does. */
static bool ignis__polled_is_free(const char *call, const ignis__sequence *sequence)
{
    return !sequence->polled || !sequence->polled->busy ||
           ignis__fail_false(IGNIS_DIAG_TEXT_STATE, call, "ignis_generate_poll of the sequence has not returned");
}

/*  Checks what ignis_generate_begin refuses besides what ignis_generate refuses. False, and reported, if so. */
static bool ignis__polled_check(const char *call, const ignis__sequence *sequence, const ignis_generate_desc *desc)
{
    if (sequence->polled && !sequence->polled->info.ending)
        return ignis__fail_false(IGNIS_DIAG_TEXT_STATE, call,
                                 "a text of the sequence has begun and has %d tokens; ignis_generate_end ends it",
                                 sequence->polled->info.tokens);
    if (desc->draft_tokens)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc->draft_tokens is %d; expected 0: polled texts check no drafts",
                                 desc->draft_tokens);
    if (sequence->model->parallel.size > 1)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call, "%d ranks share the model, and wait for each other",
                                 sequence->model->parallel.size);
    return ignis__sampling_check(call, &desc->sampling, sequence->model->vocab);
}

IGNIS_API ignis_status ignis_generate_begin(ignis_sequence handle, const ignis_generate_desc *desc)
{
    static const char call[] = "ignis_generate_begin";
    static const ignis_generate_desc defaults = IGNIS__ZERO;
    ignis__sequence *sequence = ignis__sequence_hold(call, handle);
    ignis__polled *polled;
    bool ok;
    if (!sequence)
        return ignis__failed();
    ignis__mutex_lock(&sequence->engine->lock);
    desc = desc ? desc : &defaults;
    ok = ignis__polled_is_free(call, sequence) && ignis__generate_check(call, desc) &&
         ignis__polled_check(call, sequence, desc);
    polled = ok ? (ignis__polled *)ignis__alloc_for(call, sizeof *polled) : NULL;
    if (polled) {
        memset(polled, 0, sizeof *polled);
        polled->desc = *desc;
        polled->generation.sequence = sequence;
        polled->generation.sampling = &polled->desc.sampling;
        polled->output.call = "ignis_generate_poll";
        polled->output.desc = &polled->desc;
        polled->output.stop = polled->info.stop = -1;
        polled->began = ignis__monotonic_ns();
        ok = ignis__text_output_begin(&polled->output, sequence);
    }
    if (polled && ok) {
        if (sequence->polled)
            ignis__polled_free(call, sequence);
        sequence->polled = polled;
        if (desc->info)
            *desc->info = polled->info;
    } else {
        ignis__free(polled);
    }
    ignis__sequence_leave(call, sequence);
    return polled && ok ? IGNIS_OK : ignis__failed();
}

/*  Passes on a token, or ends the text, without the engine's lock. False, and reported, on failure. */
static bool ignis__polled_put(ignis__sequence *sequence, int32_t id)
{
    ignis__polled *polled = sequence->polled;
    bool ok;
    if (id == IGNIS__TOKEN_FAILED)
        return false;
    polled->info.steps += id >= 0;
    polled->info.seconds = (double)(ignis__monotonic_ns() - polled->began) * 1e-9;
    polled->busy = true;
    ignis__mutex_unlock(&sequence->engine->lock);
    ok = ignis__generate_put(&polled->output, sequence, &polled->info, id);
    ignis__mutex_lock(&sequence->engine->lock);
    polled->busy = false;
    return ok;
}

/*  Passes on up to `most` tokens that the device has sampled, and queues steps for as many. False, and reported, on
    failure. */
static bool ignis__polled_work(const char *call, ignis__sequence *sequence, int most)
{
    ignis__polled *polled = sequence->polled;
    const int max_tokens = polled->desc.max_tokens;
    int32_t id = IGNIS__TOKEN_FAILED;
    bool ok = true;
    int i, left;
    for (i = 0; ok && i < most && id != IGNIS__TOKEN_NOT_YET && !polled->info.ending; i++) {
        id = ignis__generation_take(call, &polled->generation, false);
        if (id != IGNIS__TOKEN_NOT_YET)
            ok = ignis__polled_put(sequence, id);
    }
    if (!ok || polled->info.ending)
        return ok;
    left = max_tokens ? max_tokens - polled->info.tokens : most;
    id = left ? ignis__generation_fill(call, &polled->generation, left < most ? left : most)
              : (int32_t)IGNIS__TOKEN_ENOUGH;
    return id == IGNIS__TOKEN_NOT_YET || ignis__polled_put(sequence, id);
}

IGNIS_API ignis_status ignis_generate_poll(ignis_sequence handle, int tokens)
{
    static const char call[] = "ignis_generate_poll";
    ignis__sequence *sequence = ignis__sequence_hold(call, handle);
    bool ok = true;
    if (!sequence)
        return ignis__failed();
    if (tokens < 0) {
        ok = ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "tokens is %d, below 0", tokens);
    } else if (ignis__mutex_try(
                   &sequence->engine->lock)) { /* else a thread works on the model: the next poll goes on */
        if (!sequence->polled)
            ok = ignis__fail_false(IGNIS_DIAG_TEXT_STATE, call,
                                   "the sequence has no text; ignis_generate_begin begins one");
        else if (ignis__polled_is_free(call, sequence))
            ok = ignis__polled_work(call, sequence,
                                    tokens == 0             ? 1
                                    : tokens < IGNIS__DRAWS ? tokens
                                                            : (int)IGNIS__DRAWS);
        else
            ok = false;
        if (ok && sequence->polled->desc.info)
            *sequence->polled->desc.info = sequence->polled->info;
        ignis__mutex_unlock(&sequence->engine->lock);
    }
    ignis__sequence_drop(call, sequence);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_generate_end(ignis_sequence handle)
{
    static const char call[] = "ignis_generate_end";
    ignis__sequence *sequence = ignis__sequence_hold(call, handle);
    bool ok;
    if (!sequence)
        return ignis__failed();
    ignis__mutex_lock(&sequence->engine->lock);
    ok = ignis__polled_is_free(call, sequence);
    if (ok && sequence->polled)
        ignis__polled_free(call, sequence);
    ignis__sequence_leave(call, sequence);
    return ok ? IGNIS_OK : ignis__failed();
}
