/*  models/chat/filter_string.c - split, replace, find, join and other functions of strings

    Results keep the marks of the bytes that they copy.
    May use: filter_argument.c, value.c. Locks: none. */

#include "room.h"

/*  Runs split (0) and rsplit (1): at a separator, or at white space. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_split(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value s = call->self, by = call->value[0], out = ignis__chat_new(chat, IGNIS__CHAT_LIST);
    int64_t limit = ignis__chat_want_int(chat, call->value[1], -1), i;
    size_t at = 0, size = (size_t)s.number, from;
    ignis__chat_items *parts = out.u.items;
    if (chat->fault || (ignis__chat_is_given(by) && !ignis__chat_want_text(chat, by)))
        return out;
    if (ignis__chat_is_given(by) && by.number == 0)
        return ignis__chat_fail(chat, "split at a text without characters");
    if (ignis__chat_is_given(by)) {
        ignis__chat_split(chat, s, by, limit, call->how == 1, parts);
        return out;
    }
    ignis__chat_work(chat, s.number / 4);
    while (at < size && ignis__chat_work(chat, 1)) {
        for (; at < size && ignis__chat_is_space(s.u.text + at); at += ignis__chat_character(s.u.text + at))
            continue;
        for (from = at; at < size && !ignis__chat_is_space(s.u.text + at); at += ignis__chat_character(s.u.text + at))
            continue;
        if (at > from)
            ignis__chat_add(chat, parts, ignis__chat_part(s, from, at));
    }
    if (limit >= 0 && parts->count > limit && !chat->fault) { /* the rest is one piece */
        ignis__chat_value *part = &parts->item[i = call->how ? parts->count - limit - 1 : limit];
        at = (size_t)(part->u.text - s.u.text);
        *part = call->how ? ignis__chat_part(s, 0, at + (size_t)part->number) : ignis__chat_part(s, at, size);
        parts->item += call->how ? i : 0;
        parts->count = parts->capacity = limit + 1;
    }
    return out;
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_do_lines(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value s = call->self, out = ignis__chat_new(chat, IGNIS__CHAT_LIST);
    size_t at = 0, from = 0, size = (size_t)s.number, end;
    ignis__chat_work(chat, s.number / 4);
    while (at < size && !chat->fault) {
        end = ignis__chat_line_end(s.u.text + at, size - at);
        if (end) {
            ignis__chat_add(chat, out.u.items,
                            ignis__chat_part(s, from, ignis__chat_true(call->value[0]) ? at + end : at));
            from = at + end;
        }
        at += end ? end : ignis__chat_character(s.u.text + at);
    }
    if (from < size && !chat->fault)
        ignis__chat_add(chat, out.u.items, ignis__chat_part(s, from, size));
    return out;
}

/*  Runs startswith (1), endswith (2), removeprefix (3) and removesuffix (4). */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_affix(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value s = call->self, with = call->value[0], part;
    bool tuple = with.kind == IGNIS__CHAT_TUPLE && call->how < 3, front = call->how % 2 == 1, yes = false;
    int64_t i;
    for (i = 0; i < (tuple ? with.u.items->count : 1) && !yes && !chat->fault; i++) {
        part = tuple ? with.u.items->item[i] : with;
        if (!ignis__chat_want_text(chat, part) || !ignis__chat_work(chat, 1 + part.number / 64))
            return part;
        yes = part.number <= s.number &&
              memcmp(s.u.text + (front ? 0 : s.number - part.number), part.u.text, (size_t)part.number) == 0;
    }
    if (call->how < 3)
        return ignis__chat_bool(yes);
    return yes ? ignis__chat_part(s, (size_t)(front ? with.number : 0),
                                  (size_t)(front ? s.number : s.number - with.number))
               : s;
}

/*  Runs the method replace (0), whose arguments are strings, and the filter (1), which converts them. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_replace(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value s = ignis__chat_text(chat, call->self), old = call->value[0], with = call->value[1];
    int64_t count = ignis__chat_want_int(chat, call->value[2], -1), i;
    ignis__chat_writer out = IGNIS__ZERO;
    ignis__chat_items pieces;
    if (call->how == 1)
        old = ignis__chat_text(chat, old), with = ignis__chat_text(chat, with);
    else if (s.of)
        return ignis__chat_fail_unsupported(chat, "the method replace of a text behind |safe");
    if (!ignis__chat_want_text(chat, old) || !ignis__chat_want_text(chat, with))
        return s;
    ignis__chat_split(chat, s, old, count, false, &pieces);
    for (i = 0; i < pieces.count && !chat->fault; i++) {
        if (i)
            ignis__chat_write_string(chat, &out, with);
        ignis__chat_write_string(chat, &out, pieces.item[i]);
    }
    return ignis__chat_writer_value(&out);
}

/*  Runs find (1), rfind (2), index (3) and count (4) of a string in another. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_find(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_items pieces;
    if (!ignis__chat_want_text(chat, call->value[0]))
        return call->self;
    ignis__chat_split(chat, call->self, call->value[0], call->how == 4 ? -1 : 1, call->how == 2, &pieces);
    if (chat->fault || call->how == 4)
        return ignis__chat_make(IGNIS__CHAT_INT, pieces.count - 1);
    if (call->how == 3 && pieces.count == 1)
        return ignis__chat_fail(chat, "index: the text is not there");
    return ignis__chat_make(IGNIS__CHAT_INT, pieces.count == 1 ? -1 : ignis__chat_characters(chat, pieces.item[0]));
}

/*  Finds item.a.b.0, an attribute of an attribute. With `fold` the result is in lower case, as for sorting. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_find_path(ignis__chat *chat, ignis__chat_value item,
                                                       ignis__chat_value path, ignis__chat_value otherwise, bool fold)
{
    ignis__chat_call call = IGNIS__ZERO;
    ignis__chat_items keys;
    int64_t i, k;
    if (path.kind == IGNIS__CHAT_STRING) {
        ignis__chat_split(chat, path, ignis__chat_words("."), -1, false, &keys);
        for (i = 0; i < keys.count && !chat->fault; i++) {
            ignis__chat_value key = keys.item[i];
            for (k = 0; k < key.number && ignis__formula_is_digit(key.u.text[k]); k++)
                continue;
            if (k && k == key.number) {
                ignis__chat_read_int(chat, key.u.text, (size_t)k, &k);
                key = ignis__chat_make(IGNIS__CHAT_INT, k);
            }
            item = ignis__chat_eval_member(chat, item, key, true);
            if (item.kind == IGNIS__CHAT_UNDEFINED && ignis__chat_is_given(otherwise))
                item = otherwise;
        }
    } else if (ignis__chat_is_given(path)) {
        item = ignis__chat_eval_member(chat, item, path, true);
    }
    call.self = item;
    return fold && item.kind == IGNIS__CHAT_STRING && !chat->fault ? ignis__chat_do_case(chat, &call) : item;
}

/*  Runs the filter join (0), which converts items to strings, and the method join (1), where self is the
    separator. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_join(ignis__chat *chat, ignis__chat_call *call)
{
    bool method = call->how == 1;
    ignis__chat_value between = method || call->value[0].kind
                                    ? ignis__chat_text(chat, method ? call->self : call->value[0])
                                    : ignis__chat_words(""),
                      item;
    ignis__chat_items items;
    ignis__chat_writer out = IGNIS__ZERO;
    int64_t i;
    if (method && between.of)
        return ignis__chat_fail_unsupported(chat, "the method join of a text behind |safe");
    if (!ignis__chat_iterate(chat, method ? call->value[0] : call->self, &items))
        return between;
    for (i = items.at; i < items.count && ignis__chat_work(chat, 1); i++) {
        item =
            method ? items.item[i] : ignis__chat_find_path(chat, items.item[i], call->value[1], call->value[5], false);
        if (method && !ignis__chat_want_text(chat, item))
            break;
        if (i > items.at)
            ignis__chat_write_string(chat, &out, between);
        ignis__chat_write_value(chat, &out, item, NULL, false, 0);
    }
    return ignis__chat_writer_value(&out);
}
