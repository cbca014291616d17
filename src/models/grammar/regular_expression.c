/*  models/grammar/regular_expression.c - reads a regular expression into a tree

    The syntax is that of ECMA-262 with its flag u. Syntax that no automaton can hold is refused: assertions except ^
    and $, and references to groups.
    May use: tokenizer/room.h (lists, UTF-8). Locks: none. */

#include "room.h"

IGNIS__PRIVATE const char ignis__regex_no_memory[] = "out of host memory";

IGNIS__PRIVATE void ignis__regex_fail(ignis__regex *regex, const char *reason)
{
    if (!regex->fault)
        regex->fault = reason;
}

IGNIS__PRIVATE int32_t ignis__regex_add(ignis__regex *regex, ignis__list *list, int32_t kind, int32_t a, int32_t b)
{
    ignis__regex_node *node = NULL;
    if (list->count >= IGNIS__REGEX_NODES)
        ignis__regex_fail(regex, "it is too large");
    else if (!regex->fault && (node = (ignis__regex_node *)ignis__list_add(list)) == NULL)
        ignis__regex_fail(regex, ignis__regex_no_memory);
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
        ignis__regex_fail(regex, ignis__regex_no_memory);
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
    for (i = first, count = regex->ranges.count; i < count; i++) { /* gaps replace ranges, each after its gap */
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
    char lower = (char)(letter | 32);
    const ignis__regex_range *known = lower == 'd' ? digits : lower == 'w' ? words : spaces;
    int count = lower == 'd' ? 1 : lower == 'w' ? 4 : IGNIS__COUNT(spaces), i;
    uint32_t next = 0;
    for (i = 0; i < count; i++) {
        if (letter == lower)
            ignis__regex_add_range(regex, known[i].low, known[i].high);
        else
            ignis__regex_add_range(regex, next, known[i].low - 1);
        next = known[i].high + 1;
    }
    if (letter != lower)
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

/*  Reads a class after its bracket. */
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

IGNIS__PRIVATE int32_t ignis__regex_read_alternatives(ignis__regex *regex, int nested);

/*  Reads a group after its parenthesis. */
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

/*  Reads the repetition after a node, if there is one. */
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

IGNIS__PRIVATE int32_t ignis__regex_read_alternatives(ignis__regex *regex, int nested)
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
