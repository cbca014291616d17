/* --- sequences ----------------------------------------------------------------------------------------------------------- */

#include "room.h"

/*  Where the text of a sequence with a grammar is; null, and reported: it does not keep to it. */
IGNIS__PRIVATE const ignis__grammar_state *ignis__sequence_match(const char *call, ignis__sequence *s)
{
    ignis__grammar *g = s->grammar;
    const ignis__vocabulary *v = s->engine->vocabulary;
    int32_t id, next;
    int i;
    bool ok = g->start >= 0;
    if (!ok || g->states.count > IGNIS__GRAMMAR_STATES || g->masks > IGNIS__GRAMMAR_MASKS)
        ok = ignis__grammar_begin(g);
    if (ok && s->epoch != g->epoch) {
        s->epoch = g->epoch;
        s->matched = s->constrained;
        s->state = g->start;
    }
    for (; ok && s->matched < s->length; s->matched++, s->state = next) {
        id = s->ids[s->matched];
        next = ignis__grammar_put(g, v, s->state, id);
        for (i = 0; i < v->end_count && v->ends[i] != id;)
            i++;
        ok = next > 0 || (next == 0 && i < v->end_count && IGNIS__GRAMMAR_AT(g, state, states, s->state)->ends);
        if (next == 0 && !ok)
            ignis__grammar_fail(g, IGNIS_DIAG_GRAMMAR, NULL,
                                "token %d of the sequence, %d, does not keep to its grammar", s->matched, (int)id);
        if (!ok)
            break;
    }
    ok = ok && ignis__grammar_mask(g, v, s->state);
    if (!ok)
        ignis__fail(g->diagnostic, call, "%s", g->fault);
    g->diagnostic = IGNIS_DIAG_NONE;
    return ok ? IGNIS__GRAMMAR_AT(g, state, states, s->state) : NULL;
}

/*  The same, where a token is to be drawn: there has to be one. */
IGNIS__PRIVATE const ignis__grammar_state *ignis__sequence_allows(const char *call, ignis__sequence *s)
{
    const ignis__grammar_state *state = ignis__sequence_match(call, s);
    if (!state || state->any || (state->ends && s->engine->vocabulary->end_count))
        return state;
    ignis__fail(IGNIS_DIAG_GRAMMAR, call, "by its grammar nothing can follow the %d tokens of the sequence", s->length);
    return NULL;
}

/*  Which of the engine's masks, from 1 on, has the tokens that may come to a sequence. It is sent where it is not there, in place of the one that was
    used longest ago, so of none of the step's other rows. 0: a failure. */
IGNIS__PRIVATE int ignis__sequence_mask(ignis__op *op, ignis__sequence *s)
{
    const ignis__grammar_state *state = op->ok ? ignis__sequence_allows(op->work.call, s) : NULL;
    ignis__engine *e = s->engine;
    const ignis__vocabulary *v = e->vocabulary;
    ignis__address masks = ignis__op_write(op, e->masks); /* behind what another stream may be sending */
    int64_t bytes;
    uint32_t *mask;
    int oldest = 0, i;
    bool ok;
    if (!state)
        return 0;
    for (i = 0; i < e->mask_count; i++) {
        if (e->mask[i].grammar == s->grammar->number && e->mask[i].epoch == s->epoch && e->mask[i].state == s->state) {
            e->mask[i].used = ++e->masks_used;
            return i + 1;
        }
        if (e->mask[i].used < e->mask[oldest].used)
            oldest = i;
    }
    bytes = (int64_t)sizeof *mask * v->words;
    mask = (uint32_t *)ignis__alloc_for(op->work.call, (size_t)bytes);
    if (!mask)
        return 0;
    memcpy(mask, state->mask, (size_t)bytes);
    for (i = 0; state->ends && i < v->end_count; i++)
        mask[v->ends[i] / 32] |= (uint32_t)1 << v->ends[i] % 32;
    e->mask[oldest].grammar = 0;
    ok = op->ok && ignis__copy_from_host(&op->work, masks + (ignis__address)(oldest * bytes), mask, bytes);
    ignis__free(mask);
    if (!ok)
        return 0;
    e->mask[oldest].grammar = s->grammar->number;
    e->mask[oldest].epoch = s->epoch;
    e->mask[oldest].state = s->state;
    e->mask[oldest].used = ++e->masks_used;
    return oldest + 1;
}
