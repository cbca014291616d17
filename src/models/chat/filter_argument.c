/*  models/chat/filter_argument.c - checks of arguments, splitting and stripping of strings

    A wrong kind of argument is a fault that names the function and the kind.
    May use: value.c, string_search.c of the tokenizer. Locks: none. */

#include "room.h"

IGNIS__PRIVATE bool ignis__chat_is_given(ignis__chat_value v)
{
    return v.kind != IGNIS__CHAT_ABSENT && v.kind != IGNIS__CHAT_NONE;
}

/*  Checks that an argument is a string. False, and a fault, if it is not. */
IGNIS__PRIVATE bool ignis__chat_want_text(ignis__chat *chat, ignis__chat_value v)
{
    if (v.kind != IGNIS__CHAT_STRING)
        ignis__chat_fail_kind(chat, "an argument is text", v);
    return !chat->fault;
}

/*  Returns an integer argument, `otherwise` if it is not given. A fault if it is not an integer. */
IGNIS__PRIVATE int64_t ignis__chat_want_int(ignis__chat *chat, ignis__chat_value v, int64_t otherwise)
{
    if (ignis__chat_is_given(v) && !ignis__chat_is_whole(v))
        ignis__chat_fail_kind(chat, "an argument is a whole number", v);
    return ignis__chat_is_given(v) ? v.number : otherwise;
}

/*  Splits a string at a separator, at most `limit` times unless negative. With `right` it splits at the last
    places. An empty separator splits all characters. */
IGNIS__PRIVATE void ignis__chat_split(ignis__chat *chat, ignis__chat_value s, ignis__chat_value by, int64_t limit,
                                      bool right, ignis__chat_items *out)
{
    size_t size = (size_t)s.number, step = (size_t)by.number, at = 0, end = size, place;
    ignis__needle needle = ignis__chat_needle_of(chat, by, right);
    int64_t i, k;
    memset(out, 0, sizeof *out);
    while (out->count != limit && ignis__chat_work(chat, 1)) { /* the rest is from `at` to `end` */
        const char *found = ignis__chat_search(chat, s.u.text + at, end - at, &needle);
        if (step == 0 && out->count)
            found = at == end ? NULL
                    : right   ? s.u.text + ignis__chat_before(s.u.text, end)
                              : found + ignis__chat_character(found);
        if (!found)
            break;
        place = (size_t)(found - s.u.text);
        ignis__chat_add(chat, out, right ? ignis__chat_part(s, place + step, end) : ignis__chat_part(s, at, place));
        *(right ? &end : &at) = right ? place : place + step;
    }
    ignis__chat_add(chat, out, ignis__chat_part(s, at, end));
    for (i = 0, k = out->count - 1; right && i < k; i++, k--) {
        ignis__chat_value swap = out->item[i];
        out->item[i] = out->item[k];
        out->item[k] = swap;
    }
}

/*  Runs strip and trim (3), lstrip (1) and rstrip (2): of white space, or of the characters given. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_strip(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value s = ignis__chat_text(chat, call->self), set = call->value[0];
    bool given = ignis__chat_is_given(set), ascii[128];
    size_t from = 0, to = (size_t)s.number, at, next;
    int side;
    if (given && !ignis__chat_want_text(chat, set))
        return s;
    memset(ascii, 0, sizeof ascii);
    ignis__chat_work(chat, given ? set.number / 16 : 0);
    for (at = 0; given && at < (size_t)set.number; at++)
        if ((unsigned char)set.u.text[at] < 128)
            ascii[(unsigned char)set.u.text[at]] = true;
    for (side = 1; side <= 2; side++) {
        while ((call->how & side) && from < to && ignis__chat_work(chat, 1)) {
            at = side == 1 ? from : ignis__chat_before(s.u.text, to);
            next = at + ignis__chat_character(s.u.text + at);
            if (!given           ? !ignis__chat_is_space(s.u.text + at)
                : next - at == 1 ? !ascii[(unsigned char)s.u.text[at]]
                                 : !ignis__chat_contains(chat, ignis__chat_part(s, at, next), set))
                break;
            *(side == 1 ? &from : &to) = side == 1 ? next : at;
        }
    }
    return ignis__chat_part(s, from, to);
}
