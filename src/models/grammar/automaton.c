/*  models/grammar/automaton.c - states of a grammar, made when a text reaches them

    The first state is `start`. State 0 is the dead end: no byte may follow.
    May use: grammar.c, tokenizer/room.h (lists). Locks: none; callers let one thread at a time use a grammar. */

#include "room.h"

/*  Adds a place to those that are reached. */
static void ignis__grammar_reach(ignis__grammar *g, int32_t part, int32_t stack)
{
    uint32_t mask = 2 * IGNIS__GRAMMAR_REACHED - 1,
             slot = ((uint32_t)part * 0x9E3779B1u ^ (uint32_t)stack * 0x85EBCA77u) >> 8;
    for (slot &= mask; g->buckets[slot] > 0; slot = (slot + 1) & mask, g->steps++) {
        const ignis__grammar_place *place = &g->reached[g->buckets[slot] - 1].place;
        if (place->part == part && place->stack == stack)
            return;
    }
    if (g->reached_count == IGNIS__GRAMMAR_REACHED || ++g->steps > IGNIS__GRAMMAR_STEPS) {
        ignis__grammar_fail(g, IGNIS_DIAG_UNSUPPORTED, NULL,
                            "the grammar is too ambiguous, or too wide: a text is at %d places of it at once, and %lld "
                            "had to be looked at for a token",
                            g->reached_count, (long long)g->steps);
        return;
    }
    g->reached[g->reached_count].place.part = part;
    g->reached[g->reached_count].place.stack = stack;
    g->reached[g->reached_count].slot = (int32_t)slot;
    g->buckets[slot] = ++g->reached_count;
}

/*  Pushes the place where a calling rule continues. -1, and a fault, if there are too many, or without
    memory. */
static int32_t ignis__grammar_stacked(ignis__grammar *g, int32_t part, int32_t below)
{
    int32_t *bucket = &g->stack_of[((uint32_t)part * 0x9E3779B1u ^ (uint32_t)below * 0x85EBCA77u) >> 8 &
                                   (IGNIS__GRAMMAR_BUCKETS - 1)],
            i;
    int32_t depth = IGNIS__GRAMMAR_AT(g, stack, stacks, below)->depth + 1;
    ignis__grammar_stack *stack;
    for (i = *bucket; i >= 0; i = stack->link, g->steps++) {
        stack = IGNIS__GRAMMAR_AT(g, stack, stacks, i);
        if (stack->place.part == part && stack->place.stack == below)
            return i;
    }
    if (depth > IGNIS__GRAMMAR_DEPTH || (stack = (ignis__grammar_stack *)ignis__grammar_add(g, &g->stacks)) == NULL)
        return -1;
    stack->place.part = part;
    stack->place.stack = below;
    stack->depth = depth;
    stack->link = *bucket;
    return *bucket = (int32_t)g->stacks.count - 1;
}

static int ignis__grammar_order(const void *a, const void *b)
{
    const ignis__grammar_place *one = (const ignis__grammar_place *)a, *other = (const ignis__grammar_place *)b;
    return one->part != other->part    ? (one->part < other->part ? -1 : 1)
           : one->stack < other->stack ? -1
                                       : one->stack > other->stack;
}

/*  Returns the state of all reached places and those reachable from them without a byte. -1 after a fault. */
static int32_t ignis__grammar_state_of(ignis__grammar *g)
{
    const ignis__grammar_part *parts = IGNIS__GRAMMAR_AT(g, part, parts, 0);
    int64_t first = g->places.count, count;
    uint32_t hash = 2166136261u;
    ignis__grammar_place *place;
    ignis__grammar_state *state;
    int32_t i, next, *bucket, *row;
    bool ends = false;
    for (i = 0; i < g->reached_count && !g->diagnostic; i++) {
        ignis__grammar_place now = g->reached[i].place;
        const ignis__grammar_part *part = &parts[now.part];
        if (part->rule == IGNIS__GRAMMAR_BYTE) {
            place = (ignis__grammar_place *)ignis__grammar_add(g, &g->places);
            if (place)
                *place = now;
        } else if (part->rule == IGNIS__GRAMMAR_END) {
            place = &IGNIS__GRAMMAR_AT(g, stack, stacks, now.stack)->place;
            ends = ends || now.stack == 0;
            if (now.stack > 0)
                ignis__grammar_reach(g, place->part, place->stack);
        } else {
            next = part[1].rule == IGNIS__GRAMMAR_END ? now.stack : ignis__grammar_stacked(g, now.part + 1, now.stack);
            for (part = NULL, now.part = IGNIS__GRAMMAR_AT(g, rule, rules, parts[now.part].rule)->alternatives;
                 now.part >= 0 && next >= 0; now.part = IGNIS__GRAMMAR_AT(g, alternative, alternatives, now.part)->next)
                ignis__grammar_reach(g, IGNIS__GRAMMAR_AT(g, alternative, alternatives, now.part)->first, next);
        }
    }
    while (g->reached_count > 0)
        g->buckets[g->reached[--g->reached_count].slot] = 0;
    place = IGNIS__GRAMMAR_AT(g, place, places, first);
    count = g->places.count - first;
    if (count > 1)
        qsort(place, (size_t)count, sizeof *place, ignis__grammar_order);
    for (i = 0; i < count; i++)
        hash = ((hash ^ (uint32_t)place[i].part) * 16777619u ^ (uint32_t)place[i].stack) * 16777619u;
    bucket = &g->state_of[(hash ^ hash >> 16) % IGNIS__GRAMMAR_BUCKETS];
    for (i = *bucket; i >= 0 && !g->diagnostic; i = state->link) {
        state = IGNIS__GRAMMAR_AT(g, state, states, i);
        g->steps += 1 + (state->count == count ? (int32_t)count / 8 : 0);
        if (state->count == count && state->ends == ends &&
            (count == 0 ||
             memcmp(IGNIS__GRAMMAR_AT(g, place, places, state->first), place, sizeof *place * (size_t)count) == 0)) {
            g->places.count = first;
            return i;
        }
    }
    state = g->diagnostic ? NULL : (ignis__grammar_state *)ignis__grammar_add(g, &g->states);
    row = state ? (int32_t *)ignis__grammar_add(g, &g->rows) : NULL;
    if (!row)
        return -1;
    memset(row, 0xFF, g->rows.size);
    g->steps += 4 * g->classes;
    state->first = (int32_t)first;
    state->count = (int32_t)count;
    state->ends = ends;
    state->link = *bucket;
    return *bucket = (int32_t)g->states.count - 1;
}

/*  Discards all states, except the first one and number 0, which allows no byte. */
IGNIS__PRIVATE bool ignis__grammar_begin(ignis__grammar *g)
{
    int32_t i;
    for (i = 0; i < g->states.count; i++)
        ignis__free(IGNIS__GRAMMAR_AT(g, state, states, i)->mask);
    g->states.count = g->rows.count = g->places.count = g->stacks.count = g->steps = g->masks = 0;
    memset(g->state_of, 0xFF, sizeof g->state_of);
    memset(g->stack_of, 0xFF, sizeof g->stack_of);
    g->epoch++;
    g->start = -1;
    if (!ignis__grammar_add(g, &g->stacks) || ignis__grammar_state_of(g) < 0)
        return false;
    for (i = IGNIS__GRAMMAR_AT(g, rule, rules, g->root)->alternatives; i >= 0;
         i = IGNIS__GRAMMAR_AT(g, alternative, alternatives, i)->next)
        ignis__grammar_reach(g, IGNIS__GRAMMAR_AT(g, alternative, alternatives, i)->first, 0);
    return (g->start = ignis__grammar_state_of(g)) >= 0;
}

/*  Returns the state after a byte; 0 if the byte is not allowed, -1 after a fault. */
IGNIS__PRIVATE int32_t ignis__grammar_step(ignis__grammar *g, int32_t from, unsigned char byte)
{
    const ignis__grammar_state *state = IGNIS__GRAMMAR_AT(g, state, states, from);
    int32_t *to = (int32_t *)(void *)g->rows.items + (int64_t)from * g->classes + g->class_of[byte], i, found;
    if (*to >= 0)
        return *to;
    g->steps += state->count / 8;
    for (i = state->first; i < state->first + state->count; i++) {
        const ignis__grammar_place *place = IGNIS__GRAMMAR_AT(g, place, places, i);
        const ignis__grammar_part *part = IGNIS__GRAMMAR_AT(g, part, parts, place->part);
        if (byte >= part->low && byte <= part->high)
            ignis__grammar_reach(g, place->part + 1, place->stack);
    }
    found = ignis__grammar_state_of(g);
    ((int32_t *)(void *)g->rows.items)[(int64_t)from * g->classes + g->class_of[byte]] = found;
    return found;
}

IGNIS__COLD IGNIS__PRIVATE void ignis__grammar_free(ignis__grammar *g)
{
    int32_t i;
    for (i = 0; i < g->states.count; i++)
        ignis__free(IGNIS__GRAMMAR_AT(g, state, states, i)->mask);
    ignis__free(g->rules.items), ignis__free(g->alternatives.items), ignis__free(g->parts.items),
        ignis__free(g->states.items);
    ignis__free(g->rows.items), ignis__free(g->places.items), ignis__free(g->stacks.items);
    if (g->text != g->source)
        ignis__free(g->text);
    ignis__free(g->source);
    ignis__free(g);
}
