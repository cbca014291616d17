/*  models/grammar/regular_expression_set.c - the set of strings in which a regular expression has a match

    The tree of the expression becomes an automaton with several next states (Thompson 1968), and that one an automaton
    with a single next state.
    May use: regular_expression.c, string_set.c, tokenizer/room.h (lists). Locks: none. */

#include "room.h"

/*  Makes states of a tree, which lead to the state `next`. Returns the first of them. */
static int32_t ignis__regex_compile(ignis__regex *regex, int32_t tree, int32_t next)
{
    ignis__regex_node node;
    int32_t i, loop;
    if (++regex->work > IGNIS__STRING_SET_WORK)
        ignis__regex_fail(regex, "it is too large");
    if (regex->fault)
        return next;
    node = *IGNIS__REGEX_AT(regex, tree, tree);
    while (node.kind == IGNIS__REGEX_ROW && !regex->fault) { /* rows nest at their first part */
        next = ignis__regex_compile(regex, node.b, next);
        tree = node.a;
        node = *IGNIS__REGEX_AT(regex, tree, tree);
    }
    if (node.kind == IGNIS__REGEX_EMPTY || regex->fault)
        return next;
    if (node.kind == IGNIS__REGEX_EITHER) { /* as do alternatives */
        for (loop = -1; node.kind == IGNIS__REGEX_EITHER && !regex->fault;) {
            i = ignis__regex_compile(regex, node.b, next);
            loop = loop < 0 ? i : ignis__regex_add(regex, &regex->nodes, IGNIS__REGEX_EITHER, i, loop);
            tree = node.a;
            node = *IGNIS__REGEX_AT(regex, tree, tree);
        }
        i = ignis__regex_compile(regex, tree, next);
        return ignis__regex_add(regex, &regex->nodes, IGNIS__REGEX_EITHER, i, loop);
    }
    if (node.kind == IGNIS__REGEX_REPEAT) {
        if (node.most < 0) {
            loop = ignis__regex_add(regex, &regex->nodes, IGNIS__REGEX_EITHER, -1, next);
            i = ignis__regex_compile(regex, node.a, loop);
            if (!regex->fault)
                IGNIS__REGEX_AT(regex, nodes, loop)->a = i;
            i = loop;
        } else {
            for (i = next, loop = node.least; loop < node.most && !regex->fault; loop++)
                i = ignis__regex_add(regex, &regex->nodes, IGNIS__REGEX_EITHER, ignis__regex_compile(regex, node.a, i),
                                     next);
        }
        for (loop = 0; loop < node.least && !regex->fault; loop++)
            i = ignis__regex_compile(regex, node.a, i);
        return i;
    }
    i = ignis__regex_add(regex, &regex->nodes, node.kind, next, -1);
    if (!regex->fault) {
        IGNIS__REGEX_AT(regex, nodes, i)->first = node.first;
        IGNIS__REGEX_AT(regex, nodes, i)->count = node.count;
    }
    return i;
}

/*  Adds a node, and the nodes that it leads to without a character, to the members that are being collected.
    begins: at the begin of a string; ends: at its end. Returns whether one of them is the match. */
static bool ignis__regex_reach(ignis__regex *regex, int32_t node, bool begins, bool ends)
{
    int32_t count = 0, *member, i;
    bool found = false;
    regex->todo[count++] = node;
    while (count > 0 && !regex->fault) {
        const ignis__regex_node *now = IGNIS__REGEX_AT(regex, nodes, node = regex->todo[--count]);
        int32_t next[2] = {-1, -1};
        if (regex->mark[node] == regex->generation)
            continue;
        regex->mark[node] = regex->generation;
        if (++regex->work > IGNIS__STRING_SET_WORK)
            ignis__regex_fail(regex, "it is too large");
        found = found || now->kind == IGNIS__REGEX_MATCH;
        if (now->kind == IGNIS__REGEX_EITHER) {
            next[0] = now->a;
            next[1] = now->b;
        } else if ((now->kind == IGNIS__REGEX_BEGIN && begins) || (now->kind == IGNIS__REGEX_END && ends)) {
            next[0] = now->a;
        }
        for (i = 0; i < 2; i++)
            if (next[i] >= 0 && regex->mark[next[i]] != regex->generation)
                regex->todo[count++] = next[i];
        if (!ends &&
            (now->kind == IGNIS__REGEX_RANGES || now->kind == IGNIS__REGEX_END || now->kind == IGNIS__REGEX_MATCH)) {
            if ((member = (int32_t *)ignis__list_add(&regex->members)) == NULL)
                ignis__regex_fail(regex, ignis__regex_no_memory);
            else
                *member = node;
        }
    }
    return found;
}

static int ignis__regex_order(const void *a, const void *b)
{
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : *(const int32_t *)a > *(const int32_t *)b;
}

/*  Makes a state of the members from `first` on, or finds it. Strings that have matched may go on in any way:
    their state has no member but the match. */
static int32_t ignis__regex_find_set(ignis__regex *regex, ignis__string_set *set, int64_t first, bool matched)
{
    int32_t *member = (int32_t *)(void *)regex->members.items + first, count, i, *bucket;
    uint32_t hash = 2166136261u;
    ignis__regex_members *known;
    ignis__string_set_state *state;
    if (regex->fault)
        return -1;
    if (matched) {
        regex->members.count = first + 1;
        *member = 0;
    }
    count = (int32_t)(regex->members.count - first);
    if (count > 1)
        qsort(member, (size_t)count, sizeof *member, ignis__regex_order);
    for (i = 0; i < count; i++)
        hash = (hash ^ (uint32_t)member[i]) * 16777619u;
    bucket = &regex->bucket[(hash ^ hash >> 16) % IGNIS__REGEX_BUCKETS];
    for (i = *bucket; i >= 0; i = known->link) {
        known = (ignis__regex_members *)(void *)regex->sets.items + i;
        regex->work += 1 + count / 8;
        if (known->count == count && memcmp((int32_t *)(void *)regex->members.items + known->first, member,
                                            sizeof *member * (size_t)count) == 0) {
            regex->members.count = first;
            return i;
        }
    }
    known = (ignis__regex_members *)ignis__list_add(&regex->sets);
    state = known ? (ignis__string_set_state *)ignis__list_add(&set->states) : NULL;
    if (!state || regex->sets.count > IGNIS__STRING_SET_STATES) {
        ignis__regex_fail(regex, state ? "it is too large" : ignis__regex_no_memory);
        return -1;
    }
    memset(state, 0, sizeof *state);
    state->ends = matched;
    known->first = (int32_t)first;
    known->count = count;
    known->link = regex->sets.count > 1 ? *bucket : -1; /* the first is never met again: there ^ holds */
    if (regex->sets.count > 1)
        *bucket = (int32_t)regex->sets.count - 1;
    return (int32_t)regex->sets.count - 1;
}

/*  Makes the edges of a state. Between two borders all characters have the same next state. */
static void ignis__regex_make_edges(ignis__regex *regex, ignis__string_set *set, int32_t number)
{
    ignis__regex_members now = ((ignis__regex_members *)(void *)regex->sets.items)[number];
    ignis__string_set_state *state;
    int64_t first = regex->members.count, i, k, m;
    uint64_t *border;
    int32_t to;
    bool matched;
    regex->borders.count = 0;
    for (i = -1; i < now.count && !regex->fault; i++) {
        const ignis__regex_node *node =
            i < 0 ? NULL : IGNIS__REGEX_AT(regex, nodes, ((int32_t *)(void *)regex->members.items)[now.first + i]);
        for (k = 0; k < (node ? node->kind == IGNIS__REGEX_RANGES ? 2 * node->count : 0 : 2); k++) {
            const ignis__regex_range *range = node ? IGNIS__REGEX_RANGE(regex, node->first + k / 2) : NULL;
            if ((border = (uint64_t *)ignis__list_add(&regex->borders)) == NULL) {
                ignis__regex_fail(regex, ignis__regex_no_memory);
                return;
            }
            *border = range ? (k % 2 ? range->high + 1 : range->low) : k ? (uint64_t)IGNIS__STRING_SET_CODES : 0;
        }
    }
    border = (uint64_t *)(void *)regex->borders.items;
    qsort(border, (size_t)regex->borders.count, sizeof *border, ignis__u64_order);
    ((ignis__string_set_state *)(void *)set->states.items)[number].first = (int32_t)set->edges.count;
    for (k = 0; k + 1 < regex->borders.count && !regex->fault; k++) {
        if (border[k] == border[k + 1])
            continue;
        regex->generation++;
        matched = ignis__regex_reach(regex, regex->start, false, false);
        for (i = 0; i < now.count && !regex->fault; i++) {
            const ignis__regex_node *node =
                IGNIS__REGEX_AT(regex, nodes, ((int32_t *)(void *)regex->members.items)[now.first + i]);
            if (node->kind == IGNIS__REGEX_MATCH) /* it goes on in any way */
                matched = ignis__regex_reach(regex, 0, false, false) || matched;
            for (m = 0, regex->work++; node->kind == IGNIS__REGEX_RANGES && m < node->count; m++, regex->work++) {
                const ignis__regex_range *range = IGNIS__REGEX_RANGE(regex, node->first + m);
                if (border[k] >= range->low && border[k] <= range->high)
                    matched = ignis__regex_reach(regex, node->a, false, false) || matched;
            }
        }
        if (regex->members.count == first) /* no string goes on like this */
            continue;
        to = ignis__regex_find_set(regex, set, first, matched);
        first = regex->members.count;
        state = (ignis__string_set_state *)(void *)set->states.items + number;
        if (to >= 0 && !ignis__string_set_add_edge(set, state, (uint32_t)border[k], (uint32_t)border[k + 1] - 1, to))
            ignis__regex_fail(regex, ignis__regex_no_memory);
    }
}

/*  Makes the set of strings that contain a match of a regular expression. Returns NULL, or the reason why not. */
IGNIS__PRIVATE const char *ignis__string_set_of_pattern(ignis__string_set *set, const char *text, size_t size)
{
    ignis__regex *regex = (ignis__regex *)ignis__alloc(sizeof *regex);
    const ignis__regex_members *now;
    const char *reason;
    int32_t tree, match, i;
    int64_t k;
    bool matched;
    ignis__string_set_begin(set);
    if (!regex)
        return ignis__regex_no_memory;
    regex->at = text;
    regex->end = text + size;
    regex->tree.size = regex->nodes.size = sizeof(ignis__regex_node);
    regex->ranges.size = sizeof(ignis__regex_range);
    regex->sets.size = sizeof(ignis__regex_members);
    regex->members.size = sizeof(int32_t);
    regex->borders.size = sizeof(uint64_t);
    memset(regex->bucket, 0xFF, sizeof regex->bucket);
    tree = ignis__regex_read_alternatives(regex, 0);
    if (!regex->fault && regex->at < regex->end)
        ignis__regex_fail(regex, "a ) has no (");
    match = ignis__regex_add(regex, &regex->nodes, IGNIS__REGEX_MATCH, -1, -1); /* number 0 */
    regex->start = ignis__regex_compile(regex, tree, match);
    regex->mark = (int32_t *)ignis__alloc(sizeof *regex->mark * ((size_t)regex->nodes.count + 1));
    regex->todo = (int32_t *)ignis__alloc(sizeof *regex->todo * (2 * (size_t)regex->nodes.count + 2));
    if (!regex->mark || !regex->todo)
        ignis__regex_fail(regex, ignis__regex_no_memory);
    if (!regex->fault) {
        regex->generation = 1;
        matched = ignis__regex_reach(regex, regex->start, true, false);
        if (regex->members.count == 0 && ignis__list_add(&regex->members)) /* a state without members has room */
            regex->members.count = 0;
        (void)ignis__regex_find_set(regex, set, 0, matched);
    }
    for (i = 0; i < set->states.count && !regex->fault; i++) {
        ignis__regex_make_edges(regex, set, i);
        now = (ignis__regex_members *)(void *)regex->sets.items + i;
        for (k = 0, regex->generation++, matched = false; k < now->count; k++)
            if (ignis__regex_reach(regex, ((int32_t *)(void *)regex->members.items)[now->first + k], i == 0, true))
                matched = true;
        ((ignis__string_set_state *)(void *)set->states.items)[i].ends = matched;
    }
    reason = regex->fault;
    ignis__free(regex->tree.items), ignis__free(regex->nodes.items), ignis__free(regex->ranges.items);
    ignis__free(regex->sets.items), ignis__free(regex->members.items), ignis__free(regex->borders.items);
    ignis__free(regex->mark), ignis__free(regex->todo), ignis__free(regex);
    if (reason)
        ignis__string_set_free(set);
    return reason;
}
