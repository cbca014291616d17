/*  models/grammar/automaton.c - states of a grammar, made when a text reaches them

    The first state is `start`. State 0 is the dead end: no byte may follow.
    May use: grammar.c, tokenizer/room.h (lists). Locks: none; callers let one thread at a time use a grammar. */

#include "room.h"

/*  Adds a place to those that are reached. */
static void ignis__grammar_add_position(ignis__grammar *grammar, int32_t part, int32_t stack)
{
    uint32_t mask = 2 * IGNIS__GRAMMAR_POSITIONS - 1,
             slot = ((uint32_t)part * 0x9E3779B1u ^ (uint32_t)stack * 0x85EBCA77u) >> 8;
    for (slot &= mask; grammar->buckets[slot] > 0; slot = (slot + 1) & mask, grammar->steps++) {
        const ignis__grammar_place *place = &grammar->reached[grammar->buckets[slot] - 1].place;
        if (place->part == part && place->stack == stack)
            return;
    }
    if (grammar->reached_count == IGNIS__GRAMMAR_POSITIONS || ++grammar->steps > IGNIS__GRAMMAR_STEPS) {
        ignis__grammar_fail(grammar, IGNIS_DIAG_UNSUPPORTED, NULL,
                            "the grammar is too ambiguous, or too wide: a text is at %d places of it at once, and %lld "
                            "had to be looked at for a token",
                            grammar->reached_count, (long long)grammar->steps);
        return;
    }
    grammar->reached[grammar->reached_count].place.part = part;
    grammar->reached[grammar->reached_count].place.stack = stack;
    grammar->reached[grammar->reached_count].slot = (int32_t)slot;
    grammar->buckets[slot] = ++grammar->reached_count;
}

/*  Pushes the place where a calling rule continues. -1, and a fault, if there are too many, or without
    memory. */
static int32_t ignis__grammar_push_stack(ignis__grammar *grammar, int32_t part, int32_t below)
{
    int32_t *bucket = &grammar->stack_of[((uint32_t)part * 0x9E3779B1u ^ (uint32_t)below * 0x85EBCA77u) >> 8 &
                                         (IGNIS__GRAMMAR_BUCKETS - 1)],
            i;
    int32_t depth = IGNIS__GRAMMAR_AT(grammar, stack, stacks, below)->depth + 1;
    ignis__grammar_stack *stack;
    for (i = *bucket; i >= 0; i = stack->link, grammar->steps++) {
        stack = IGNIS__GRAMMAR_AT(grammar, stack, stacks, i);
        if (stack->place.part == part && stack->place.stack == below)
            return i;
    }
    if (depth > IGNIS__GRAMMAR_DEPTH ||
        (stack = (ignis__grammar_stack *)ignis__grammar_add(grammar, &grammar->stacks)) == NULL)
        return -1;
    stack->place.part = part;
    stack->place.stack = below;
    stack->depth = depth;
    stack->link = *bucket;
    return *bucket = (int32_t)grammar->stacks.count - 1;
}

static int ignis__grammar_order(const void *a, const void *b)
{
    const ignis__grammar_place *one = (const ignis__grammar_place *)a, *other = (const ignis__grammar_place *)b;
    return one->part != other->part    ? (one->part < other->part ? -1 : 1)
           : one->stack < other->stack ? -1
                                       : one->stack > other->stack;
}

/*  Returns the state of all reached places and those reachable from them without a byte. -1 after a fault. */
static int32_t ignis__grammar_find_state(ignis__grammar *grammar)
{
    const ignis__grammar_part *parts = IGNIS__GRAMMAR_AT(grammar, part, parts, 0);
    int64_t first = grammar->places.count, count;
    uint32_t hash = 2166136261u;
    ignis__grammar_place *place;
    ignis__grammar_state *state;
    int32_t i, next, *bucket, *row;
    bool ends = false;
    for (i = 0; i < grammar->reached_count && !grammar->diagnostic; i++) {
        ignis__grammar_place now = grammar->reached[i].place;
        const ignis__grammar_part *part = &parts[now.part];
        if (part->rule == IGNIS__GRAMMAR_BYTE) {
            place = (ignis__grammar_place *)ignis__grammar_add(grammar, &grammar->places);
            if (place)
                *place = now;
        } else if (part->rule == IGNIS__GRAMMAR_END) {
            place = &IGNIS__GRAMMAR_AT(grammar, stack, stacks, now.stack)->place;
            ends = ends || now.stack == 0;
            if (now.stack > 0)
                ignis__grammar_add_position(grammar, place->part, place->stack);
        } else {
            next = part[1].rule == IGNIS__GRAMMAR_END ? now.stack
                                                      : ignis__grammar_push_stack(grammar, now.part + 1, now.stack);
            for (part = NULL, now.part = IGNIS__GRAMMAR_AT(grammar, rule, rules, parts[now.part].rule)->alternatives;
                 now.part >= 0 && next >= 0;
                 now.part = IGNIS__GRAMMAR_AT(grammar, alternative, alternatives, now.part)->next)
                ignis__grammar_add_position(
                    grammar, IGNIS__GRAMMAR_AT(grammar, alternative, alternatives, now.part)->first, next);
        }
    }
    while (grammar->reached_count > 0)
        grammar->buckets[grammar->reached[--grammar->reached_count].slot] = 0;
    place = IGNIS__GRAMMAR_AT(grammar, place, places, first);
    count = grammar->places.count - first;
    if (count > 1)
        qsort(place, (size_t)count, sizeof *place, ignis__grammar_order);
    for (i = 0; i < count; i++)
        hash = ((hash ^ (uint32_t)place[i].part) * 16777619u ^ (uint32_t)place[i].stack) * 16777619u;
    bucket = &grammar->state_of[(hash ^ hash >> 16) % IGNIS__GRAMMAR_BUCKETS];
    for (i = *bucket; i >= 0 && !grammar->diagnostic; i = state->link) {
        state = IGNIS__GRAMMAR_AT(grammar, state, states, i);
        grammar->steps += 1 + (state->count == count ? (int32_t)count / 8 : 0);
        if (state->count == count && state->ends == ends &&
            (count == 0 || memcmp(IGNIS__GRAMMAR_AT(grammar, place, places, state->first), place,
                                  sizeof *place * (size_t)count) == 0)) {
            grammar->places.count = first;
            return i;
        }
    }
    state = grammar->diagnostic ? NULL : (ignis__grammar_state *)ignis__grammar_add(grammar, &grammar->states);
    row = state ? (int32_t *)ignis__grammar_add(grammar, &grammar->rows) : NULL;
    if (!row)
        return -1;
    memset(row, 0xFF, grammar->rows.size);
    grammar->steps += 4 * grammar->classes;
    state->first = (int32_t)first;
    state->count = (int32_t)count;
    state->ends = ends;
    state->link = *bucket;
    return *bucket = (int32_t)grammar->states.count - 1;
}

/*  Returns the bytes of all states, without masks. */
IGNIS__PRIVATE int64_t ignis__grammar_state_bytes(const ignis__grammar *grammar)
{
    return grammar->states.count * (int64_t)grammar->states.size + grammar->rows.count * (int64_t)grammar->rows.size +
           grammar->places.count * (int64_t)grammar->places.size +
           grammar->stacks.count * (int64_t)grammar->stacks.size;
}

/*  Discards all states, except the first one and number 0, which allows no byte. Frees lists that are large. */
IGNIS__PRIVATE bool ignis__grammar_reset_states(ignis__grammar *grammar)
{
    ignis__list *const lists[] = {&grammar->states, &grammar->rows, &grammar->places, &grammar->stacks};
    int32_t i;
    for (i = 0; i < grammar->states.count; i++)
        ignis__free(IGNIS__GRAMMAR_AT(grammar, state, states, i)->mask);
    for (i = 0; i < IGNIS__COUNT(lists); i++)
        if (lists[i]->capacity * (int64_t)lists[i]->size > IGNIS__GRAMMAR_UNUSED) {
            ignis__free(lists[i]->items);
            lists[i]->items = NULL;
            lists[i]->capacity = 0;
        }
    grammar->states.count = grammar->rows.count = grammar->places.count = grammar->stacks.count = grammar->steps =
        grammar->masks = 0;
    memset(grammar->state_of, 0xFF, sizeof grammar->state_of);
    memset(grammar->stack_of, 0xFF, sizeof grammar->stack_of);
    grammar->epoch++;
    grammar->start = -1;
    if (!ignis__grammar_add(grammar, &grammar->stacks) || ignis__grammar_find_state(grammar) < 0)
        return false;
    for (i = IGNIS__GRAMMAR_AT(grammar, rule, rules, grammar->root)->alternatives; i >= 0;
         i = IGNIS__GRAMMAR_AT(grammar, alternative, alternatives, i)->next)
        ignis__grammar_add_position(grammar, IGNIS__GRAMMAR_AT(grammar, alternative, alternatives, i)->first, 0);
    return (grammar->start = ignis__grammar_find_state(grammar)) >= 0;
}

/*  Returns the state after a byte; 0 if the byte is not allowed, -1 after a fault. */
IGNIS__PRIVATE int32_t ignis__grammar_step(ignis__grammar *grammar, int32_t from, unsigned char byte)
{
    const ignis__grammar_state *state = IGNIS__GRAMMAR_AT(grammar, state, states, from);
    int32_t *to = (int32_t *)(void *)grammar->rows.items + (int64_t)from * grammar->classes + grammar->class_of[byte],
            i, found;
    if (*to >= 0)
        return *to;
    grammar->steps += state->count / 8;
    for (i = state->first; i < state->first + state->count; i++) {
        const ignis__grammar_place *place = IGNIS__GRAMMAR_AT(grammar, place, places, i);
        const ignis__grammar_part *part = IGNIS__GRAMMAR_AT(grammar, part, parts, place->part);
        if (byte >= part->low && byte <= part->high)
            ignis__grammar_add_position(grammar, place->part + 1, place->stack);
    }
    found = ignis__grammar_find_state(grammar);
    ((int32_t *)(void *)grammar->rows.items)[(int64_t)from * grammar->classes + grammar->class_of[byte]] = found;
    return found;
}

IGNIS__COLD IGNIS__PRIVATE void ignis__grammar_free(ignis__grammar *grammar)
{
    int32_t i;
    for (i = 0; i < grammar->states.count; i++)
        ignis__free(IGNIS__GRAMMAR_AT(grammar, state, states, i)->mask);
    ignis__free(grammar->rules.items), ignis__free(grammar->alternatives.items), ignis__free(grammar->parts.items),
        ignis__free(grammar->states.items);
    ignis__free(grammar->rows.items), ignis__free(grammar->places.items), ignis__free(grammar->stacks.items);
    for (i = 0; i < grammar->schemas.count; i++)
        ignis__free(((char **)(void *)grammar->schemas.items)[i]);
    ignis__free(grammar->schemas.items);
    if (grammar->text != grammar->source)
        ignis__free(grammar->text);
    ignis__free(grammar->source);
    ignis__free(grammar);
}
