/*  models/grammar/regular_expression.c - the set of strings in which a regular expression has a match

    A regular expression becomes a tree, the tree an automaton with several next states (Thompson 1968), and that one
    with a single next state. The syntax is that of ECMA-262 with its flag u. What no automaton can hold is refused:
    assertions except ^ and $, and references to groups.
    May use: string_set.c, tokenizer/room.h (lists, UTF-8). Locks: none. */

#include "room.h"

typedef enum ignis__regex_kind {
    IGNIS__REGEX_EMPTY,
    IGNIS__REGEX_RANGES, /* a character of a class */
    IGNIS__REGEX_BEGIN,  /* ^ */
    IGNIS__REGEX_END,    /* $ */
    IGNIS__REGEX_ROW,    /* a, then b */
    IGNIS__REGEX_EITHER,
    IGNIS__REGEX_REPEAT,
    IGNIS__REGEX_MATCH
} ignis__regex_kind;

enum {
    IGNIS__REGEX_NESTED = 50,
    IGNIS__REGEX_NODES = 1 << 15,
    IGNIS__REGEX_TIMES = 1000, /* of a repetition, at most */
    IGNIS__REGEX_BUCKETS = 1024
};

/*  A node of the tree, or a state with several next states: `a` and `b` are nodes, -1 if there is none. */
typedef struct ignis__regex_node {
    int32_t kind, a, b, least, most; /* most: below 0 without a limit */
    int32_t first, count;            /* ranges */
} ignis__regex_node;

typedef struct ignis__regex_range {
    uint32_t low, high;
} ignis__regex_range;

/*  A state of the result while it is made: a set of nodes. */
typedef struct ignis__regex_members {
    int32_t first, count, link;
} ignis__regex_members;

typedef struct ignis__regex {
    const char *at, *end, *fault; /* fault: NULL if there is none */
    ignis__list tree, nodes, ranges, sets, members, borders;
    int32_t *mark, *todo, generation, start, work;
    int32_t bucket[IGNIS__REGEX_BUCKETS];
} ignis__regex;

#define IGNIS__REGEX_AT(regex, list, number) ((ignis__regex_node *)(void *)(regex)->list.items + (number))
#define IGNIS__REGEX_RANGE(regex, number) ((ignis__regex_range *)(void *)(regex)->ranges.items + (number))

static const char ignis__string_set_no_memory[] = "out of host memory";

static void ignis__regex_fail(ignis__regex *regex, const char *fault)
{
    if (!regex->fault)
        regex->fault = fault;
}

static int32_t ignis__regex_add(ignis__regex *regex, ignis__list *list, int32_t kind, int32_t a, int32_t b)
{
    ignis__regex_node *node = NULL;
    if (list->count >= IGNIS__REGEX_NODES)
        ignis__regex_fail(regex, "it is too large");
    else if (!regex->fault && (node = (ignis__regex_node *)ignis__list_add(list)) == NULL)
        ignis__regex_fail(regex, ignis__string_set_no_memory);
    if (!node)
        return 0;
    memset(node, 0, sizeof *node);
    node->kind = kind;
    node->a = a;
    node->b = b;
    return (int32_t)list->count - 1;
}

static void ignis__regex_add_range(ignis__regex *regex, uint32_t low, uint32_t high)
{
    ignis__regex_range *range = NULL;
    if (!regex->fault && (range = (ignis__regex_range *)ignis__list_add(&regex->ranges)) == NULL)
        ignis__regex_fail(regex, ignis__string_set_no_memory);
    if (!range)
        return;
    range->low = low;
    range->high = high;
}

static int ignis__regex_range_order(const void *a, const void *b)
{
    const ignis__regex_range *one = (const ignis__regex_range *)a, *other = (const ignis__regex_range *)b;
    return one->low != other->low ? (one->low < other->low ? -1 : 1) : one->high < other->high ? -1 : 1;
}

/*  Sorts the ranges from `first` on and joins those that overlap. Replaces them by the others if `negated`. */
static void ignis__regex_normalize(ignis__regex *regex, int64_t first, bool negated)
{
    int64_t count = regex->ranges.count - first, i;
    ignis__regex_range *range = IGNIS__REGEX_RANGE(regex, first), last = {0, 0};
    uint32_t next = 0;
    if (regex->fault)
        return;
    if (count > 1)
        qsort(range, (size_t)count, sizeof *range, ignis__regex_range_order);
    for (i = 0, regex->ranges.count = first; i < count; i++) {
        range = IGNIS__REGEX_RANGE(regex, first + i);
        if (i > 0 && range->low <= last.high + 1) {
            last.high = range->high > last.high ? range->high : last.high;
        } else {
            if (i > 0)
                *IGNIS__REGEX_RANGE(regex, regex->ranges.count++) = last;
            last = *range;
        }
    }
    if (count > 0)
        *IGNIS__REGEX_RANGE(regex, regex->ranges.count++) = last;
    if (!negated)
        return;
    for (i = first, count = regex->ranges.count; i < count; i++) { /* gaps replace ranges, each behind its gap */
        last = *IGNIS__REGEX_RANGE(regex, i);
        if (last.low > next)
            ignis__regex_add_range(regex, next, last.low - 1);
        next = last.high + 1;
    }
    if (next < IGNIS__STRING_SET_CODES)
        ignis__regex_add_range(regex, next, IGNIS__STRING_SET_CODES - 1);
    if (regex->fault)
        return;
    memmove(IGNIS__REGEX_RANGE(regex, first), IGNIS__REGEX_RANGE(regex, count),
            sizeof *range * (size_t)(regex->ranges.count - count));
    regex->ranges.count -= count - first;
}

static bool ignis__regex_accept(ignis__regex *regex, char c)
{
    bool is = !regex->fault && regex->at < regex->end && *regex->at == c;
    regex->at += is;
    return is;
}

/*  Adds the characters of \d, \w or \s; the others if the letter is a capital. */
static void ignis__regex_add_class(ignis__regex *regex, char letter)
{
    static const ignis__regex_range digits[] = {{'0', '9'}}, words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                    spaces[] = {{9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680},
                                                {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                                {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    char small = (char)(letter | 32);
    const ignis__regex_range *known = small == 'd' ? digits : small == 'w' ? words : spaces;
    int count = small == 'd' ? 1 : small == 'w' ? 4 : IGNIS__COUNT(spaces), i;
    uint32_t next = 0;
    for (i = 0; i < count; i++) {
        if (letter == small)
            ignis__regex_add_range(regex, known[i].low, known[i].high);
        else
            ignis__regex_add_range(regex, next, known[i].low - 1);
        next = known[i].high + 1;
    }
    if (letter != small)
        ignis__regex_add_range(regex, next, IGNIS__STRING_SET_CODES - 1);
}

/*  Reads up to `most` hexadecimal digits. -1 if there are fewer than `least`. */
static int64_t ignis__regex_read_hex(ignis__regex *regex, int least, int most)
{
    int64_t code = 0;
    int i;
    for (i = 0; i < most && regex->at < regex->end && *regex->at && strchr("0123456789abcdefABCDEF", *regex->at);
         i++, regex->at++)
        code = code * 16 + (*regex->at <= '9' ? *regex->at - '0' : (*regex->at | 32) - 'a' + 10);
    if (i >= least && code < IGNIS__STRING_SET_CODES)
        return code;
    ignis__regex_fail(regex, "a backslash is followed by no number of a character");
    return -1;
}

/*  Reads what follows a backslash. Returns a character, or -1 after a class, whose ranges it has added. */
static int64_t ignis__regex_read_escape(ignis__regex *regex)
{
    static const char names[] = "tnrvf", values[] = "\t\n\r\v\f";
    const char *known;
    int64_t code, low;
    char c = regex->at < regex->end ? *regex->at++ : 0;
    if (c && strchr("dDwWsS", c)) {
        ignis__regex_add_class(regex, c);
        return -1;
    }
    if (c && (known = strchr(names, c)) != NULL)
        return values[known - names];
    if (c == 'x')
        return ignis__regex_read_hex(regex, 2, 2);
    if (c == 'u' && ignis__regex_accept(regex, '{')) {
        code = ignis__regex_read_hex(regex, 1, 6);
        if (!ignis__regex_accept(regex, '}'))
            ignis__regex_fail(regex, "a } is missing");
        return code;
    }
    if (c == 'u') {
        code = ignis__regex_read_hex(regex, 4, 4);
        if (code >= 0xD800 && code < 0xDC00 && ignis__regex_accept(regex, '\\') && ignis__regex_accept(regex, 'u')) {
            low = ignis__regex_read_hex(regex, 4, 4);
            if (low >= 0xDC00 && low < 0xE000)
                return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
        if (code >= 0xD800 && code < 0xE000)
            ignis__regex_fail(regex, "it has half a surrogate pair");
        return code;
    }
    if (c > ' ' && c < 127 && !ignis__formula_is_digit(c) && !((c | 32) >= 'a' && (c | 32) <= 'z') && c != '_')
        return c;
    ignis__regex_fail(regex, c == 'b' || c == 'B'                 ? "the assertions \\b and \\B are not supported"
                             : c == 'p' || c == 'P'               ? "classes \\p are not supported"
                             : c == 'k' || (c >= '1' && c <= '9') ? "references to groups are not supported"
                                                                  : "a backslash is followed by an unknown escape");
    return -1;
}

/*  Reads one character or escape. -1 after a class or a fault. */
static int64_t ignis__regex_read_character(ignis__regex *regex)
{
    int length = ignis__utf8_length(regex->at, (size_t)(regex->end - regex->at));
    int64_t code;
    if (length == 0) {
        ignis__regex_fail(regex, "it ends too early");
        return -1;
    }
    code = ignis__utf8_code(regex->at, &length);
    regex->at += length;
    return code == '\\' ? ignis__regex_read_escape(regex) : code;
}

/*  Makes a node of the ranges from `first` on. */
static int32_t ignis__regex_end_ranges(ignis__regex *regex, int64_t first, bool negated)
{
    int32_t node;
    ignis__regex_normalize(regex, first, negated);
    node = ignis__regex_add(regex, &regex->tree, IGNIS__REGEX_RANGES, -1, -1);
    if (regex->fault)
        return 0;
    IGNIS__REGEX_AT(regex, tree, node)->first = (int32_t)first;
    IGNIS__REGEX_AT(regex, tree, node)->count = (int32_t)(regex->ranges.count - first);
    return node;
}

/*  Reads a class behind its bracket. */
static int32_t ignis__regex_read_class(ignis__regex *regex)
{
    int64_t first = regex->ranges.count, low, high;
    bool negated = ignis__regex_accept(regex, '^');
    while (!regex->fault && !ignis__regex_accept(regex, ']')) {
        low = high = ignis__regex_read_character(regex);
        if (regex->end - regex->at > 1 && regex->at[0] == '-' && regex->at[1] != ']') {
            regex->at++;
            high = ignis__regex_read_character(regex);
            if (low < 0 || high < low)
                ignis__regex_fail(regex, "a range of a class ends before it begins");
        }
        if (low >= 0)
            ignis__regex_add_range(regex, (uint32_t)low, (uint32_t)high);
    }
    return ignis__regex_end_ranges(regex, first, negated);
}

static int32_t ignis__regex_read_alternatives(ignis__regex *regex, int nested);

/*  Reads a group behind its parenthesis. */
static int32_t ignis__regex_read_group(ignis__regex *regex, int nested)
{
    int32_t node;
    if (ignis__regex_accept(regex, '?')) {
        if (ignis__regex_accept(regex, '<') && regex->at < regex->end && *regex->at != '=' && *regex->at != '!') {
            while (regex->at < regex->end && *regex->at != '>' && *regex->at != ')')
                regex->at++;
            if (!ignis__regex_accept(regex, '>'))
                ignis__regex_fail(regex, "the name of a group has no end");
        } else if (!ignis__regex_accept(regex, ':')) {
            ignis__regex_fail(regex, "assertions (?= (?! (?<= (?<! and flags are not supported");
        }
    }
    node = ignis__regex_read_alternatives(regex, nested + 1);
    if (!ignis__regex_accept(regex, ')'))
        ignis__regex_fail(regex, "a ) is missing");
    return node;
}

static int ignis__regex_read_number(ignis__regex *regex)
{
    const char *begin = regex->at;
    int number = 0;
    for (; regex->at < regex->end && ignis__formula_is_digit(*regex->at); regex->at++)
        number = number <= IGNIS__REGEX_TIMES ? number * 10 + (*regex->at - '0') : number;
    if (regex->at == begin || number > IGNIS__REGEX_TIMES)
        ignis__regex_fail(regex, "a { is followed by no number up to 1000");
    return number;
}

/*  Reads the repetition behind a node, if there is one. */
static int32_t ignis__regex_read_times(ignis__regex *regex, int32_t node)
{
    int least = 0, most = -1;
    if (ignis__regex_accept(regex, '+')) {
        least = 1;
    } else if (ignis__regex_accept(regex, '?')) {
        most = 1;
    } else if (ignis__regex_accept(regex, '{')) {
        least = most = ignis__regex_read_number(regex);
        if (ignis__regex_accept(regex, ','))
            most = regex->at < regex->end && *regex->at == '}' ? -1 : ignis__regex_read_number(regex);
        if (!ignis__regex_accept(regex, '}') || (most >= 0 && most < least))
            ignis__regex_fail(regex, "a repetition {n,m} is malformed");
    } else if (!ignis__regex_accept(regex, '*')) {
        return node;
    }
    (void)ignis__regex_accept(regex, '?'); /* prefers fewer: the same strings */
    node = ignis__regex_add(regex, &regex->tree, IGNIS__REGEX_REPEAT, node, -1);
    if (regex->fault)
        return 0;
    IGNIS__REGEX_AT(regex, tree, node)->least = least;
    IGNIS__REGEX_AT(regex, tree, node)->most = most;
    return node;
}

static int32_t ignis__regex_read_alternatives(ignis__regex *regex, int nested)
{
    int32_t whole = -1, row = -1, node;
    int64_t first, code;
    if (nested > IGNIS__REGEX_NESTED)
        ignis__regex_fail(regex, "its groups are nested too deep");
    while (!regex->fault) {
        bool bar = ignis__regex_accept(regex, '|');
        if (bar || regex->at == regex->end || *regex->at == ')') {
            row = row < 0 ? ignis__regex_add(regex, &regex->tree, IGNIS__REGEX_EMPTY, -1, -1) : row;
            whole = whole < 0 ? row : ignis__regex_add(regex, &regex->tree, IGNIS__REGEX_EITHER, whole, row);
            row = -1;
            if (bar)
                continue;
            return whole;
        }
        if (strchr("*+?{", *regex->at))
            ignis__regex_fail(regex, "there is nothing to repeat");
        first = regex->ranges.count;
        if (ignis__regex_accept(regex, '^')) {
            node = ignis__regex_add(regex, &regex->tree, IGNIS__REGEX_BEGIN, -1, -1);
        } else if (ignis__regex_accept(regex, '$')) {
            node = ignis__regex_add(regex, &regex->tree, IGNIS__REGEX_END, -1, -1);
        } else if (ignis__regex_accept(regex, '(')) {
            node = ignis__regex_read_times(regex, ignis__regex_read_group(regex, nested));
        } else if (ignis__regex_accept(regex, '[')) {
            node = ignis__regex_read_times(regex, ignis__regex_read_class(regex));
        } else if (ignis__regex_accept(regex, '.')) {
            ignis__regex_add_range(regex, '\n', '\n');
            ignis__regex_add_range(regex, '\r', '\r');
            ignis__regex_add_range(regex, 0x2028, 0x2029);
            node = ignis__regex_read_times(regex, ignis__regex_end_ranges(regex, first, true));
        } else {
            code = ignis__regex_read_character(regex);
            if (code >= 0)
                ignis__regex_add_range(regex, (uint32_t)code, (uint32_t)code);
            node = ignis__regex_read_times(regex, ignis__regex_end_ranges(regex, first, false));
        }
        row = row < 0 ? node : ignis__regex_add(regex, &regex->tree, IGNIS__REGEX_ROW, row, node);
    }
    return 0;
}

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
                ignis__regex_fail(regex, ignis__string_set_no_memory);
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
        ignis__regex_fail(regex, state ? "it is too large" : ignis__string_set_no_memory);
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
                ignis__regex_fail(regex, ignis__string_set_no_memory);
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
            ignis__regex_fail(regex, ignis__string_set_no_memory);
    }
}

/*  Makes the set of strings that contain a match of a regular expression. Returns NULL, or the reason why not. */
IGNIS__PRIVATE const char *ignis__string_set_of_pattern(ignis__string_set *set, const char *text, size_t size)
{
    ignis__regex *regex = (ignis__regex *)ignis__alloc(sizeof *regex);
    const ignis__regex_members *now;
    const char *fault;
    int32_t tree, match, i;
    int64_t k;
    bool matched;
    ignis__string_set_begin(set);
    if (!regex)
        return ignis__string_set_no_memory;
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
        ignis__regex_fail(regex, ignis__string_set_no_memory);
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
    fault = regex->fault;
    ignis__free(regex->tree.items), ignis__free(regex->nodes.items), ignis__free(regex->ranges.items);
    ignis__free(regex->sets.items), ignis__free(regex->members.items), ignis__free(regex->borders.items);
    ignis__free(regex->mark), ignis__free(regex->todo), ignis__free(regex);
    if (fault)
        ignis__string_set_free(set);
    return fault;
}
