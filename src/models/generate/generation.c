/*  models/generate/generation.c - a text that is being generated: its steps on the device, and their tokens

    A generation queues decode steps, with an event after each, and takes their tokens in order. A step ahead is queued
    before the host has the token that it begins with: the device has it. Steps that need the host between them, with
    biases or a grammar, are queued one at a time. A generation with steps on the device has an entry of engine->ahead,
    and the draws of the row with that number.
    Other work on the engine first waits for all these steps, and discards them (ignis__engine_settle). Their tokens are
    sampled again, with the same bits.
    May use: sequence_step.c, kv_cache.c, sampling.c, grammar_mask.c. Locks: the caller holds the engine's. */

#include "room.h"

/*  Queues one more step, after those of other streams. False, and reported, on failure. */
static bool ignis__generation_queue(const char *call, ignis__generation *g)
{
    ignis__sequence *sequence = g->sequence;
    ignis__engine *engine = sequence->engine;
    const int position = sequence->length - 1 + g->queued, number = 0;
    ignis__pooled_event *drawn = NULL;
    ignis__batch batch;
    ignis__op op;
    int i;
    if (!ignis__op_begin_on_device(&op, call, engine->device))
        return false;
    for (i = 0; i < engine->step_rows; i++)
        if (engine->ahead[i] && engine->ahead[i]->stream != op.work.stream)
            op.ok = op.ok && !IGNIS__CUDA_FAILED(call, engine->device, cuStreamWaitEvent,
                                                 (op.work.stream, ignis__generation_last(engine->ahead[i]), 0));
    if (g->queued == 0)
        ignis__sequence_prepare_step(&op, sequence);
    else
        ignis__sequence_take_pages(&op, sequence, position, position + 1);
    memset(&batch, 0, sizeof batch);
    batch.sequences = &sequence;
    batch.of = &number;
    batch.count = 1;
    batch.place = g->place;
    batch.ahead = g->queued;
    batch.ready = g->queued == 0 && ignis__sequence_ends_in_chunk(sequence);
    batch.samples = true;
    batch.sampling = g->sampling;
    batch.keeps_row = engine->row_of == g; /* the step before has left the row as this one needs it */
    (void)ignis__engine_queue_batch(&op, &batch);
    engine->row_of = NULL;
    if (op.ok)
        drawn = ignis__event_record(call, engine->device, op.work.stream);
    op.ok = op.ok && drawn;
    if (drawn) {
        g->drawn[position % IGNIS__DRAWS] = drawn;
        g->stream = op.work.stream;
        g->first = g->queued++ ? g->first : position;
        engine->ahead[g->place] = g;
        if (!batch.ready && !g->sampling->bias_count && !sequence->grammar)
            engine->row_of = g;
    }
    return ignis__engine_leave(&op);
}

/*  Returns whether a step can be queued whose token the host does not have. */
static bool ignis__generation_goes_ahead(const ignis__generation *g)
{
    ignis__sequence *sequence = g->sequence;
    const int position = sequence->length - 1 + g->queued;
    return position + 1 < sequence->engine->context && !g->sampling->bias_count && !sequence->grammar &&
           (!sequence->states || g->queued < 2) && /* with one step discarded, there is a state before it */
           ignis__sequence_has_pages(NULL, sequence, position, position + 1);
}

/*  Returns IGNIS__TOKEN_NOT_YET if one more token can be sampled, which may be queued; else why none can. */
IGNIS__PRIVATE int32_t ignis__generation_check(const char *call, const ignis__generation *g)
{
    ignis__sequence *sequence = g->sequence;
    const ignis__grammar_state *state =
        sequence->grammar && sequence->length ? ignis__sequence_match_grammar(call, sequence) : NULL;
    if (state && state->count == 0)
        return IGNIS__TOKEN_NO_OTHER;
    if (sequence->length >= sequence->engine->context)
        return IGNIS__TOKEN_NO_ROOM;
    return ignis__sequence_check_step(call, sequence, g->sampling, true) ? IGNIS__TOKEN_NOT_YET : IGNIS__TOKEN_FAILED;
}

/*  Discards steps that do not follow the last token of the sequence any more: another text of it has gone on. */
static void ignis__generation_catch_up(const char *call, ignis__generation *g)
{
    if (g->queued && g->first != g->sequence->length - 1)
        ignis__generation_settle(call, g);
}

/*  Queues steps until there are `most`, or no more can be ahead. Returns IGNIS__TOKEN_NOT_YET; or, if there is none,
    why. */
IGNIS__PRIVATE int32_t ignis__generation_fill(const char *call, ignis__generation *g, int most)
{
    ignis__sequence *sequence = g->sequence;
    ignis__engine *engine = sequence->engine;
    int32_t result = IGNIS__TOKEN_NOT_YET;
    bool ok = true;
    ignis__generation_catch_up(call, g);
    if (g->queued == 0)
        result = ignis__generation_check(call, g);
    if (result != IGNIS__TOKEN_NOT_YET)
        return result;
    if (g->queued == 0) {
        for (g->place = 0; g->place < engine->step_rows && engine->ahead[g->place];)
            g->place++;
        if (g->place == engine->step_rows) /* the steps of others come first */
            return result;
        if (!ignis__generation_queue(call, g)) {
            ignis__generation_settle(call, g);
            ignis__sequence_truncate(sequence, sequence->length); /* returns pages that were taken in vain */
            return IGNIS__TOKEN_FAILED;
        }
    }
    while (ok && g->queued < most && g->queued < IGNIS__DRAWS && ignis__generation_goes_ahead(g))
        ok = ignis__generation_queue(call, g);
    if (!ok)
        ignis__generation_settle(call, g);
    return ok ? result : (int32_t)IGNIS__TOKEN_FAILED;
}

/*  Appends the token of the oldest step. Returns it; IGNIS__TOKEN_NOT_YET if the device has not sampled it, or no step
    is queued; IGNIS__TOKEN_FAILED, and reported. */
IGNIS__PRIVATE int32_t ignis__generation_take(const char *call, ignis__generation *g, bool waits)
{
    ignis__sequence *sequence = g->sequence;
    ignis__engine *engine = sequence->engine;
    const ignis__generate_draw *draw;
    ignis__binding binding;
    int at, error = 0;
    bool ok;
    ignis__generation_catch_up(call, g);
    if (g->queued == 0)
        return IGNIS__TOKEN_NOT_YET;
    at = g->first % IGNIS__DRAWS;
    draw = ignis__sampling_draw(engine, g->place, g->first);
    ok = ignis__device_enter(call, engine->device, &binding);
    if (ok) {
        error = waits ? IGNIS__CUDA(cuEventSynchronize, (g->drawn[at]->event))
                      : IGNIS__CUDA(cuEventQuery, (g->drawn[at]->event));
        ok = error == IGNIS__CU_NOT_READY ||
             ignis__cuda_check(call, engine->device, waits ? "cuEventSynchronize" : "cuEventQuery", error) == IGNIS_OK;
        ignis__device_leave(&binding);
    }
    if (ok && error == IGNIS__CU_NOT_READY)
        return IGNIS__TOKEN_NOT_YET;
    if (ok && draw->id < 0)
        ignis__sampling_fail(call, draw->id, -1);
    if (!ok || draw->id < 0) { /* the steps after it follow a token that does not exist */
        ignis__generation_settle(call, g);
        return IGNIS__TOKEN_FAILED;
    }
    ignis__event_recycle(engine->device, g->drawn[at]);
    g->drawn[at] = NULL;
    sequence->cached = sequence->length;
    sequence->log_prob = draw->log_prob;
    sequence->in_chunk[sequence->length] = false;
    sequence->ids[sequence->length++] = draw->id;
    sequence->uploaded = sequence->length;
    g->first++;
    if (--g->queued == 0) {
        engine->ahead[g->place] = NULL;
        engine->row_of = engine->row_of == g ? NULL : engine->row_of;
    }
    return draw->id;
}
