/*  models/tokenizer/string_search.c - linear search for a text in another, forwards and backwards

    The algorithm is that of Crochemore and Perrin, Two-Way String Matching, 1991.
    May use: nothing. Locks: none. */

#include "room.h"

/*  Returns a byte of a text, counted from its front or from its back. */
static char ignis__byte_at(const char *text, size_t size, bool back, size_t at)
{
    return text[back ? size - 1 - at : at];
}

static char ignis__needle_at(const ignis__needle *needle, size_t at)
{
    return ignis__byte_at(needle->text, needle->length, needle->back, at);
}

/*  Returns where the greatest suffix of the text begins, in the order of bytes or in the reversed order. Sets
    its period. */
static size_t ignis__needle_ending(const ignis__needle *needle, bool other, size_t *period)
{
    size_t begin = 0, at = 1, same = 0; /* begin of a suffix; of the suffix compared with it; equal bytes of both */
    *period = 1;
    while (at + same < needle->length) {
        char x = ignis__needle_at(needle, at + same), y = ignis__needle_at(needle, begin + same);
        if (x == y) {
            same++;
            if (same == *period)
                at += *period, same = 0;
        } else if ((x < y) != other) {
            at += same + 1;
            same = 0;
            *period = at - begin;
        } else {
            begin = at++;
            same = 0;
            *period = 1;
        }
    }
    return begin;
}

IGNIS__PRIVATE ignis__needle ignis__needle_of(const char *text, size_t length, bool back)
{
    ignis__needle needle;
    size_t period, begin, i;
    needle.text = text;
    needle.length = length;
    needle.back = back;
    needle.border = ignis__needle_ending(&needle, false, &needle.period);
    begin = ignis__needle_ending(&needle, true, &period);
    if (begin > needle.border)
        needle.border = begin, needle.period = period;
    for (i = 0; i < needle.border && needle.border + needle.period <= needle.length; i++)
        if (ignis__needle_at(&needle, i) != ignis__needle_at(&needle, i + needle.period))
            break;
    needle.periodic = i == needle.border;
    if (!needle.periodic)
        needle.period =
            (needle.border > needle.length - needle.border ? needle.border : needle.length - needle.border) + 1;
    return needle;
}

/*  Finds the first match from the front or from the back. NULL if there is none. */
IGNIS__PRIVATE const char *ignis__needle_find(const ignis__needle *needle, const char *text, size_t size)
{
    size_t length = needle->length, at = 0, known = 0, i;
    while (at + length <= size) {
        i = needle->border > known ? needle->border : known;
        while (i < length && ignis__needle_at(needle, i) == ignis__byte_at(text, size, needle->back, at + i))
            i++;
        if (i < length) {
            at += i - needle->border + 1;
            known = 0;
            continue;
        }
        i = needle->border;
        while (i > known && ignis__needle_at(needle, i - 1) == ignis__byte_at(text, size, needle->back, at + i - 1))
            i--;
        if (i <= known)
            break;
        at += needle->period;
        known = needle->periodic ? length - needle->period : 0;
    }
    return at + length <= size ? needle->back ? text + size - at - length : text + at : NULL;
}
