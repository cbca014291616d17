/*  models/chat/eval_operator.c - arithmetic, concatenation, repetition, membership and comparison

    Integers have 64 bits; an overflow is a fault, not a wrong result.
    May use: value.c, repr.c. Locks: none. */

#include "room.h"

/*  Writes a string with the special characters of HTML escaped. */
static void ignis__chat_write_escaped(ignis__chat *chat, ignis__chat_writer *out, ignis__chat_value string)
{
    static const char plain[] = "&<>'\"";
    static const char *const escaped[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    size_t at, from = 0, size = (size_t)string.number;
    ignis__chat_work(chat, string.number / 16);
    for (at = 0; at < size && !chat->fault; at++) {
        const char *known = string.u.text[at] ? strchr(plain, string.u.text[at]) : NULL;
        if (!known)
            continue;
        ignis__chat_write_string(chat, out, ignis__chat_part(string, from, at));
        ignis__chat_write_words(chat, out, escaped[known - plain], string.marks && string.marks[at]);
        from = at + 1;
    }
    ignis__chat_write_string(chat, out, ignis__chat_part(string, from, size));
}

/*  Concatenates two strings. The result of |safe is another type in Python, which escapes what is added to
    it. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_join_two(ignis__chat *chat, ignis__chat_value a, ignis__chat_value b)
{
    ignis__chat_writer out = IGNIS__ZERO;
    ignis__chat_value joined;
    if (a.of == b.of &&
        !ignis__chat_reserve(
            chat, &out,
            (size_t)(a.number +
                     b.number))) /* reserves no more than needed: concatenation in a loop would waste memory */
        return a;
    (b.of && !a.of ? ignis__chat_write_escaped : ignis__chat_write_string)(chat, &out, a);
    (a.of && !b.of ? ignis__chat_write_escaped : ignis__chat_write_string)(chat, &out, b);
    joined = ignis__chat_writer_value(&out);
    joined.of = a.of || b.of;
    return joined;
}

/*  Computes a op b of integers. False if the result does not fit 64 bits. */
static bool ignis__chat_compute_int(char op, int64_t a, int64_t b, int64_t *out)
{
    bool lowest = a == INT64_MIN || b == INT64_MIN;
    switch (op) {
    case '-': return b != INT64_MIN && ignis__chat_compute_int('+', a, -b, out);
    case '+': *out = (int64_t)((uint64_t)a + (uint64_t)b); return ((a ^ *out) & (b ^ *out)) >= 0;
    case '*':
        if (a && b && (lowest || (a < 0 ? -a : a) > INT64_MAX / (b < 0 ? -b : b)))
            return false;
        *out = a * b;
        return true;
    default:
        if (a == INT64_MIN)
            return false;
        *out = op == 'd' ? a / b : a % b;
        if (a % b != 0 && (a < 0) != (b < 0))
            *out += op == 'd' ? -1 : b;
        return true;
    }
}

static double ignis__chat_compute_real(char op, double a, double b)
{
    double rest, quotient, whole;
    switch (op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return a / b;
    default: break;
    }
    rest = fmod(a, b);
    quotient = (a - rest) / b;
    if (rest == 0)
        rest = copysign(0, b);
    else if ((b < 0) != (rest < 0))
        rest += b, quotient -= 1;
    if (op == '%')
        return rest;
    whole = floor(quotient);
    return quotient == 0 ? copysign(0, a / b) : quotient - whole > 0.5 ? whole + 1 : whole;
}

/*  Repeats a list, tuple or string. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_repeat(ignis__chat *chat, ignis__chat_value a, int64_t times)
{
    bool string = a.kind == IGNIS__CHAT_STRING;
    ignis__chat_value out = a;
    ignis__chat_writer writer = IGNIS__ZERO;
    if (!string) {
        out = ignis__chat_new(chat, (ignis__chat_kind)a.kind);
        out.mark = a.mark;
    }
    for (; times > 0 && (string ? a.number : a.u.items->count) > 0 && ignis__chat_work(chat, 1); times--) {
        if (string)
            ignis__chat_write_string(chat, &writer, a);
        else
            ignis__chat_add_all(chat, out.u.items, a.u.items);
    }
    if (string) {
        out = ignis__chat_writer_value(&writer);
        out.of = a.of;
    }
    return out;
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_binary_of(ignis__chat *chat, char op, ignis__chat_value a,
                                                       ignis__chat_value b)
{
    ignis__chat_value out = ignis__chat_make(IGNIS__CHAT_INT, 0);
    bool sequence = a.kind >= IGNIS__CHAT_STRING && a.kind <= IGNIS__CHAT_TUPLE;
    int i;
    if (chat->fault)
        return a;
    if (op == '~') {
        a = ignis__chat_text(chat, a);
        b = ignis__chat_text(chat, b);
        a.of = b.of = 0;
        return ignis__chat_join_two(chat, a, b);
    }
    if (op == '%' && a.kind == IGNIS__CHAT_STRING)
        return ignis__chat_format(chat, a, b);
    if (a.kind == IGNIS__CHAT_UNDEFINED || b.kind == IGNIS__CHAT_UNDEFINED)
        return ignis__chat_fail_kind(chat, "", a.kind == IGNIS__CHAT_UNDEFINED ? a : b);
    if (op == '^')
        return ignis__chat_fail_unsupported(chat, "the operator **");
    if (ignis__chat_is_number(a) && ignis__chat_is_number(b)) {
        if (strchr("/d%", op) && ignis__chat_as_real(b) == 0)
            return ignis__chat_fail(chat, "a division by 0");
        ignis__chat_work(chat, strchr("d%", op) ? 16 : 0); /* fmod of values far apart runs bit by bit */
        if (op == '/' || a.kind == IGNIS__CHAT_FLOAT || b.kind == IGNIS__CHAT_FLOAT)
            out = ignis__chat_real(ignis__chat_compute_real(op, ignis__chat_as_real(a), ignis__chat_as_real(b)));
        else if (!ignis__chat_compute_int(op, a.number, b.number, &out.number))
            return ignis__chat_fail_unsupported(chat, "a whole number of more than 64 bits");
        out.mark = a.mark || b.mark;
        return out;
    }
    if (op == '+' && sequence && a.kind == b.kind) {
        if (a.kind == IGNIS__CHAT_STRING)
            return ignis__chat_join_two(chat, a, b);
        out = ignis__chat_new(chat, (ignis__chat_kind)a.kind);
        out.mark = a.mark || b.mark;
        ignis__chat_add_all(chat, out.u.items, a.u.items);
        ignis__chat_add_all(chat, out.u.items, b.u.items);
        return out;
    }
    if (op == '*' && ignis__chat_is_whole(a) && !ignis__chat_is_number(b))
        return ignis__chat_binary_of(chat, op, b, a);
    if (op == '*' && ignis__chat_is_whole(b) && sequence)
        return ignis__chat_repeat(chat, a, b.number);
    for (i = 0; ignis__chat_operators[i].sign != op; i++)
        continue;
    return ignis__chat_fail(chat, "%s %s %s", ignis__chat_kinds[a.kind], ignis__chat_operators[i].text,
                            ignis__chat_kinds[b.kind]);
}

IGNIS__PRIVATE bool ignis__chat_contains(ignis__chat *chat, ignis__chat_value a, ignis__chat_value b)
{
    ignis__chat_items items;
    ignis__needle needle;
    int64_t i;
    if (chat->fault)
        return false;
    if (b.kind == IGNIS__CHAT_STRING) {
        if (a.kind != IGNIS__CHAT_STRING) {
            ignis__chat_fail_kind(chat, "what a text may contain is text", a);
            return false;
        }
        needle = ignis__chat_needle_of(chat, a, false);
        return !chat->fault && ignis__chat_search(chat, b.u.text, (size_t)b.number, &needle) != NULL;
    }
    if (b.kind == IGNIS__CHAT_DICT)
        return ignis__chat_hashable(chat, a) && ignis__chat_find(chat, b.u.items, a) >= 0;
    ignis__chat_iterate(chat, b, &items);
    for (i = items.at; i < items.count && !chat->fault && !ignis__chat_equal(chat, a, items.item[i]); i++)
        continue;
    if (b.kind == IGNIS__CHAT_GENERATOR && i < items.count)
        b.u.items->at = i + 1;
    return !chat->fault && i < items.count;
}

IGNIS__PRIVATE bool ignis__chat_compares(ignis__chat *chat, char sign, ignis__chat_value a, ignis__chat_value b)
{
    switch (sign) {
    case '=': return ignis__chat_equal(chat, a, b);
    case '!': return !ignis__chat_equal(chat, a, b);
    case '<': return ignis__chat_less(chat, a, b, false);
    case 'l': return ignis__chat_less(chat, a, b, true);
    case '>': return ignis__chat_less(chat, b, a, false);
    case 'g': return ignis__chat_less(chat, b, a, true);
    case 'i': return ignis__chat_contains(chat, a, b);
    default: return !ignis__chat_contains(chat, a, b);
    }
}
