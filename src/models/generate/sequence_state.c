/*  models/generate/sequence_state.c - the states of recurrent layers that a sequence has

    A sequence has two states of all layers, in the wide type, instead of keys. Tokens are computed from one to the
    other: so the state before the last token is there, too, a token can be computed twice, and a sequence can be
    truncated by one token. Which one is which follows from the position and from `turn` of the row, because the device
    counts positions in a captured step. Before position 0 the state is zeros, whatever the memory has. A sequence whose
    next token has no state before it becomes stale: kv_cache.c computes its tokens again, each in a chunk or not as
    before.
    May use: engine.c, sequence.c. Locks: the caller holds the engine's lock. */

#include "room.h"

/*  Allocates the states of a sequence; nothing if its model has no recurrent layers. */
IGNIS__PRIVATE bool ignis__sequence_alloc_states(const char *call, ignis__sequence *sequence)
{
    const ignis__model *model = sequence->model;
    return !model->recurrent_layers ||
           ignis__engine_alloc(call, sequence->engine, &sequence->states, 2,
                               model->recurrent_layers * ignis__delta_state(model), ignis__wide_dtype(model->dtype));
}

/*  Returns which state, 0 or 1, is that before `position`; -1 if none is. */
IGNIS__PRIVATE int ignis__sequence_find_state(const ignis__sequence *sequence, int position)
{
    const int *tokens = sequence->state_tokens;
    return !sequence->states || position == 0 || tokens[0] == position ? 0 : tokens[1] == position ? 1 : -1;
}

/*  Notes that `count` tokens from `first` on are computed. Until then they are not in the cache. */
IGNIS__PRIVATE void ignis__sequence_advance_state(ignis__sequence *sequence, int first, int count)
{
    const int from = ignis__sequence_find_state(sequence, first);
    if (!sequence->states || from < 0)
        return;
    sequence->state_tokens[1 - from] = first + count;
    sequence->cached = sequence->cached < first ? sequence->cached : first;
}

/*  Forgets states after tokens that are not in the cache. */
IGNIS__PRIVATE void ignis__sequence_forget_states(ignis__sequence *sequence)
{
    int i;
    for (i = 0; i < 2; i++)
        if (sequence->state_tokens[i] > sequence->cached)
            sequence->state_tokens[i] = 0;
}

/*  Copies the states of a sequence to its fork. False, and reported, on failure. */
IGNIS__PRIVATE bool ignis__sequence_copy_states(const char *call, const ignis__sequence *sequence,
                                                ignis__sequence *fork)
{
    ignis__op op;
    memcpy(fork->state_tokens, sequence->state_tokens, sizeof fork->state_tokens);
    if (!sequence->states || sequence->cached == 0)
        return true;
    if (!ignis__op_begin_on_device(&op, call, sequence->engine->device))
        return false;
    op.ok = ignis__copy_on_device(&op.work, ignis__op_write(&op, fork->states), ignis__op_write(&op, sequence->states),
                                  ignis__array_bytes(sequence->states));
    return ignis__engine_leave(&op);
}
