/*  models/grammar/string_set.c - sets of strings as automata: lengths, all strings but some, intersections

    The first state is that of the begin. The edges of a state are in the order of their characters, and do not
    overlap; characters without an edge end no string of the set.
    May use: tokenizer/room.h (lists, UTF-8). Locks: none. */

#include "room.h"

IGNIS__PRIVATE void ignis__string_set_free(ignis__string_set *set)
{
    ignis__free(set->states.items), ignis__free(set->edges.items);
    memset(set, 0, sizeof *set);
}

/*  Makes a set without states. */
IGNIS__PRIVATE void ignis__string_set_begin(ignis__string_set *set)
{
    memset(set, 0, sizeof *set);
    set->states.size = sizeof(ignis__string_set_state);
    set->edges.size = sizeof(ignis__string_set_edge);
}

/*  Adds an edge to the last state. Joins it to the one before if it continues that. */
IGNIS__PRIVATE bool ignis__string_set_add_edge(ignis__string_set *set, ignis__string_set_state *state, uint32_t low,
                                               uint32_t high, int32_t to)
{
    ignis__string_set_edge *edge =
        state->count > 0 ? (ignis__string_set_edge *)(void *)set->edges.items + set->edges.count - 1 : NULL;
    if (edge && edge->to == to && edge->high + 1 == low) {
        edge->high = high;
        return true;
    }
    if ((edge = (ignis__string_set_edge *)ignis__list_add(&set->edges)) == NULL)
        return false;
    edge->low = low;
    edge->high = high;
    edge->to = to;
    state->count++;
    return true;
}

/*  Adds a state, whose edges come next. NULL without memory, or if there are too many. */
static ignis__string_set_state *ignis__string_set_add_state(ignis__string_set *set, bool ends)
{
    ignis__string_set_state *state =
        set->states.count < IGNIS__STRING_SET_STATES ? (ignis__string_set_state *)ignis__list_add(&set->states) : NULL;
    if (!state)
        return NULL;
    state->first = (int32_t)set->edges.count;
    state->count = 0;
    state->ends = ends;
    return state;
}

/*  Makes the set of strings with `least` to `most` characters; without a limit if most is below 0. False without
    memory, or if it is too large. */
IGNIS__PRIVATE bool ignis__string_set_of_lengths(ignis__string_set *set, int least, int most)
{
    ignis__string_set_state *state;
    int last = most < 0 ? least : most, i;
    ignis__string_set_begin(set);
    for (i = 0; i <= last; i++) {
        if ((state = ignis__string_set_add_state(set, i >= least)) == NULL)
            return false;
        if ((i < last || most < 0) &&
            !ignis__string_set_add_edge(set, state, 0, IGNIS__STRING_SET_CODES - 1, i < last ? i + 1 : i))
            return false;
    }
    return true;
}

/*  The names that a state goes on with: of the list the first and the end, and bytes of them that were read. */
typedef struct ignis__string_set_place {
    int first, end;
    size_t at;
} ignis__string_set_place;

/*  Makes the set of all strings except `count` names, which are sorted by their bytes and different. The states are
    a tree of their beginnings; the last state is that of strings that no name begins with. */
IGNIS__PRIVATE bool ignis__string_set_of_others(ignis__string_set *set, const ignis__string_name *names, int count)
{
    ignis__list places = IGNIS__ZERO; /* of each state */
    ignis__string_set_place *place, now;
    ignis__string_set_state *state;
    int64_t i;
    bool ok;
    ignis__string_set_begin(set);
    places.size = sizeof *place;
    ok = (place = (ignis__string_set_place *)ignis__list_add(&places)) != NULL;
    if (ok) {
        place->first = 0;
        place->end = count;
        place->at = 0;
    }
    ok = ok && ignis__string_set_add_state(set, true) != NULL; /* number 0 becomes that of the place 0 */
    for (i = 0; ok && i < places.count; i++) {
        uint32_t next = 0, code;
        int k, length;
        now = ((ignis__string_set_place *)(void *)places.items)[i];
        state = (ignis__string_set_state *)(void *)set->states.items + i;
        state->first = (int32_t)set->edges.count;
        k = now.first;
        if (k < now.end && names[k].size == now.at) {
            state->ends = false;
            k++;
        }
        while (ok && k < now.end) {
            length = (int)(names[k].size - now.at < 4 ? names[k].size - now.at : 4);
            code = ignis__utf8_code(names[k].text + now.at, &length);
            ok = (place = (ignis__string_set_place *)ignis__list_add(&places)) != NULL;
            if (!ok)
                break;
            place->first = k;
            place->at = now.at + (size_t)length;
            while (k < now.end && names[k].size >= place->at &&
                   memcmp(names[k].text, names[place->first].text, place->at) == 0)
                k++;
            place->end = k;
            ok = ignis__string_set_add_state(set, true) != NULL;
            state = (ignis__string_set_state *)(void *)set->states.items + i;
            if (ok && code > next)
                ok = ignis__string_set_add_edge(set, state, next, code - 1, IGNIS__STRING_SET_STATES);
            ok = ok && ignis__string_set_add_edge(set, state, code, code, (int32_t)places.count - 1);
            next = code + 1;
        }
        if (ok && next < IGNIS__STRING_SET_CODES)
            ok = ignis__string_set_add_edge(set, state, next, IGNIS__STRING_SET_CODES - 1, IGNIS__STRING_SET_STATES);
    }
    state = ok ? ignis__string_set_add_state(set, true) : NULL;
    ok = state && ignis__string_set_add_edge(set, state, 0, IGNIS__STRING_SET_CODES - 1, IGNIS__STRING_SET_STATES);
    for (i = 0; ok && i < set->edges.count; i++) {
        ignis__string_set_edge *edge = (ignis__string_set_edge *)(void *)set->edges.items + i;
        edge->to = edge->to == IGNIS__STRING_SET_STATES ? (int32_t)set->states.count - 1 : edge->to;
    }
    ignis__free(places.items);
    return ok;
}

/*  Makes the set of strings in which a marker does not occur, by the automaton of Knuth, Morris and Pratt: a state is
    the number of the marker's characters that a text ends with. No string has the character 0. False without memory, or
    if the marker is empty, or has more than 64 characters. */
IGNIS__PRIVATE bool ignis__string_set_without(ignis__string_set *set, const char *marker, size_t size)
{
    uint32_t codes[64], sorted[64];
    int fallback[65] = {-1}, count = 0, i, k, length;
    ignis__string_set_begin(set);
    for (; size > 0 && count < 64; count++, marker += length, size -= (size_t)length) {
        length = (int)(size < 4 ? size : 4);
        codes[count] = ignis__utf8_code(marker, &length);
        for (i = count; i > 0 && sorted[i - 1] > codes[count]; i--)
            sorted[i] = sorted[i - 1];
        sorted[i] = codes[count];
    }
    if (size > 0 || count == 0)
        return false;
    for (i = 0; i < count; i++) {
        ignis__string_set_state *state = ignis__string_set_add_state(set, true);
        uint32_t next = 1;
        for (k = 0; k < count && state; k++) {
            int to = i;
            if (sorted[k] < next) /* it was there before */
                continue;
            while (to >= 0 && codes[to] != sorted[k])
                to = fallback[to];
            to++;
            if ((sorted[k] > next && !ignis__string_set_add_edge(set, state, next, sorted[k] - 1, 0)) ||
                (to < count && !ignis__string_set_add_edge(set, state, sorted[k], sorted[k], to)))
                return false;
            next = sorted[k] + 1;
        }
        if (!state || (next < IGNIS__STRING_SET_CODES &&
                       !ignis__string_set_add_edge(set, state, next, IGNIS__STRING_SET_CODES - 1, 0)))
            return false;
        for (k = fallback[i]; k >= 0 && codes[k] != codes[i];)
            k = fallback[k];
        fallback[i + 1] = k + 1;
    }
    return true;
}

/*  Replaces a set by the strings that are also in another one. False without memory, or if it is too large. */
IGNIS__PRIVATE bool ignis__string_set_intersect(ignis__string_set *set, const ignis__string_set *other)
{
    ignis__string_set both;
    const ignis__string_set *from[2];
    int64_t columns = other->states.count, size = set->states.count * columns, i;
    int32_t *number = size > 0 && size <= IGNIS__STRING_SET_WORK
                          ? (int32_t *)ignis__alloc(sizeof *number * (size_t)size)
                          : NULL, /* of a pair of states; 0: none */
        *pair = number ? (int32_t *)ignis__alloc(sizeof *pair * IGNIS__STRING_SET_STATES) : NULL;
    bool ok = pair != NULL;
    ignis__string_set_begin(&both);
    from[0] = set;
    from[1] = other;
    ok = ok && ignis__string_set_add_state(&both, false);
    if (ok)
        number[0] = 1, pair[0] = 0;
    for (i = 0; ok && i < both.states.count; i++) {
        ignis__string_set_state now[2];
        int32_t at[2], k, to;
        for (k = 0; k < 2; k++) {
            now[k] = ((const ignis__string_set_state *)(const void *)from[k]
                          ->states.items)[k ? pair[i] % columns : pair[i] / columns];
            at[k] = now[k].first;
        }
        ((ignis__string_set_state *)(void *)both.states.items)[i].ends = now[0].ends && now[1].ends;
        ((ignis__string_set_state *)(void *)both.states.items)[i].first = (int32_t)both.edges.count;
        while (ok && at[0] < now[0].first + now[0].count && at[1] < now[1].first + now[1].count) {
            const ignis__string_set_edge *a = (const ignis__string_set_edge *)(const void *)set->edges.items + at[0],
                                         *b = (const ignis__string_set_edge *)(const void *)other->edges.items + at[1];
            uint32_t low = a->low > b->low ? a->low : b->low, high = a->high < b->high ? a->high : b->high;
            if (low <= high) {
                to = (int32_t)(a->to * columns + b->to);
                if (!number[to]) {
                    ok = ignis__string_set_add_state(&both, false) != NULL;
                    if (!ok)
                        break;
                    number[to] = (int32_t)both.states.count;
                    pair[both.states.count - 1] = to;
                }
                ok = ignis__string_set_add_edge(&both, (ignis__string_set_state *)(void *)both.states.items + i, low,
                                                high, number[to] - 1);
            }
            at[a->high > b->high]++; /* the edge that ends first */
        }
    }
    ignis__free(number), ignis__free(pair);
    ignis__string_set_free(ok ? set : &both);
    if (ok)
        *set = both;
    return ok;
}

/*  Tells whether a set has a string, which is UTF-8. */
IGNIS__PRIVATE bool ignis__string_set_has(const ignis__string_set *set, const char *text, size_t size)
{
    const ignis__string_set_state *state = (const ignis__string_set_state *)(const void *)set->states.items;
    const ignis__string_set_edge *edge = NULL;
    size_t at;
    int32_t i;
    int length;
    for (at = 0; at < size; at += (size_t)length) {
        length = (int)(size - at < 4 ? size - at : 4);
        uint32_t code = ignis__utf8_code(text + at, &length);
        for (i = 0; i < state->count; i++) {
            edge = (const ignis__string_set_edge *)(const void *)set->edges.items + state->first + i;
            if (code >= edge->low && code <= edge->high)
                break;
        }
        if (i == state->count)
            return false;
        state = (const ignis__string_set_state *)(const void *)set->states.items + edge->to;
    }
    return state->ends;
}

/*  Tells whether a set has no string. All its states can be reached. */
IGNIS__PRIVATE bool ignis__string_set_is_empty(const ignis__string_set *set)
{
    int64_t i;
    for (i = 0; i < set->states.count; i++)
        if (((const ignis__string_set_state *)(const void *)set->states.items)[i].ends)
            return false;
    return true;
}
