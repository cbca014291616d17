/*  models/generate/grammar_mask.c - the masks that keep sampling within a sequence's grammar

    A mask has a bit for each token. The host computes it from the grammar's state, and the device keeps the masks
    used last. A sequence feeds its new tokens to the grammar only when the next token is sampled.
    May use: >>grammar. Locks: the caller holds the engine's lock, which also guards the grammars. */

#include "room.h"

/*  Puts the sequence's grammar state before its first token, if the grammar's states were discarded since. */
static void ignis__sequence_restart_grammar(ignis__sequence *sequence)
{
    const ignis__grammar *grammar = sequence->grammar;
    if (sequence->epoch == grammar->epoch)
        return;
    sequence->epoch = grammar->epoch;
    sequence->matched = sequence->constrained;
    sequence->state = grammar->start;
}

/*  Moves the sequence's grammar state past its tokens. NULL, and reported, if the tokens violate the grammar. */
IGNIS__PRIVATE const ignis__grammar_state *ignis__sequence_match_grammar(const char *call, ignis__sequence *sequence)
{
    ignis__grammar *grammar = sequence->grammar;
    const ignis__vocabulary *vocabulary = sequence->engine->vocabulary;
    int32_t id, next;
    int i;
    bool ok = grammar->start >= 0, resets = !ok || grammar->states.count > IGNIS__GRAMMAR_STATES ||
                                            grammar->masks > IGNIS__GRAMMAR_MASKS ||
                                            ignis__grammar_state_bytes(grammar) > IGNIS__GRAMMAR_BYTES;
    if (resets)
        ok = ignis__grammar_reset_states(grammar);
    if (ok)
        ignis__sequence_restart_grammar(sequence);
    for (; ok && sequence->matched < sequence->length; sequence->matched++, sequence->state = next) {
        id = sequence->ids[sequence->matched];
        next = ignis__grammar_step_token(grammar, vocabulary, sequence->state, id);
        for (i = 0; i < vocabulary->end_count && vocabulary->ends[i] != id;)
            i++;
        ok = next > 0 || (next == 0 && i < vocabulary->end_count &&
                          IGNIS__GRAMMAR_AT(grammar, state, states, sequence->state)->ends);
        if (next == 0 && !ok)
            ignis__grammar_fail(grammar, IGNIS_DIAG_GRAMMAR, NULL,
                                "token %d of the sequence, %d, does not keep to its grammar", sequence->matched,
                                (int)id);
        if (!ok)
            break;
        if (ignis__grammar_state_bytes(grammar) <= IGNIS__GRAMMAR_BYTES)
            continue;
        if (resets) { /* all states are of this text */
            ignis__grammar_fail(grammar, IGNIS_DIAG_UNSUPPORTED, NULL,
                                "the grammar is too ambiguous: after %d tokens of the text its states take %lld bytes, "
                                "and may take %d",
                                sequence->matched + 1 - sequence->constrained,
                                (long long)ignis__grammar_state_bytes(grammar), (int)IGNIS__GRAMMAR_BYTES);
            ok = false;
            break;
        }
        resets = true;
        ok = ignis__grammar_reset_states(grammar);
        if (ok)
            ignis__sequence_restart_grammar(sequence);
        sequence->matched--, next = sequence->state; /* the loop goes on with the first token */
    }
    ok = ok && ignis__grammar_compute_mask(grammar, vocabulary, sequence->state);
    if (!ok)
        ignis__fail(grammar->diagnostic, call, "%s", grammar->fault);
    grammar->diagnostic = IGNIS_DIAG_NONE;
    return ok ? IGNIS__GRAMMAR_AT(grammar, state, states, sequence->state) : NULL;
}

/*  As ignis__sequence_match_grammar, and fails if no token can follow. */
IGNIS__PRIVATE const ignis__grammar_state *ignis__sequence_check_grammar(const char *call, ignis__sequence *sequence)
{
    const ignis__grammar_state *state = ignis__sequence_match_grammar(call, sequence);
    if (!state || state->any || (state->ends && sequence->engine->vocabulary->end_count))
        return state;
    ignis__fail(IGNIS_DIAG_GRAMMAR, call, "by its grammar nothing can follow the %d tokens of the sequence",
                sequence->length);
    return NULL;
}

/*  Returns the number, from 1 on, of the engine's mask with the tokens that may follow. Uploads it if the device does
    not have it, in place of the mask that was used longest ago. No other row of this step uses that one. 0, and
    reported, on failure. */
IGNIS__PRIVATE int ignis__sequence_upload_mask(ignis__op *op, ignis__sequence *sequence)
{
    const ignis__grammar_state *state = op->ok ? ignis__sequence_check_grammar(op->work.call, sequence) : NULL;
    ignis__engine *engine = sequence->engine;
    const ignis__vocabulary *vocabulary = engine->vocabulary;
    ignis__address masks = ignis__op_write(op, engine->masks); /* ordered after uploads on other streams */
    int64_t bytes;
    uint32_t *mask;
    int oldest = 0, i;
    bool ok;
    if (!state)
        return 0;
    for (i = 0; i < engine->mask_count; i++) {
        if (engine->mask[i].grammar == sequence->grammar->number && engine->mask[i].epoch == sequence->epoch &&
            engine->mask[i].state == sequence->state) {
            engine->mask[i].used = ++engine->masks_used;
            return i + 1;
        }
        if (engine->mask[i].used < engine->mask[oldest].used)
            oldest = i;
    }
    bytes = (int64_t)sizeof *mask * vocabulary->words;
    mask = (uint32_t *)ignis__alloc_for(op->work.call, (size_t)bytes);
    if (!mask)
        return 0;
    memcpy(mask, state->mask, (size_t)bytes);
    for (i = 0; state->ends && i < vocabulary->end_count; i++)
        mask[vocabulary->ends[i] / 32] |= (uint32_t)1 << vocabulary->ends[i] % 32;
    engine->mask[oldest].grammar = 0;
    ok = op->ok && ignis__copy_from_host(&op->work, masks + (ignis__address)(oldest * bytes), mask, bytes);
    ignis__free(mask);
    if (!ok)
        return 0;
    engine->mask[oldest].grammar = sequence->grammar->number;
    engine->mask[oldest].epoch = sequence->epoch;
    engine->mask[oldest].state = sequence->state;
    engine->mask[oldest].used = ++engine->masks_used;
    return oldest + 1;
}
