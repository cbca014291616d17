/*  models/chat/filter_map.c - map, select, reject, sort, dictsort and tojson

    The number `how` of a row of the table selects one of several related functions.
    May use: filter_string.c, eval_expression.c, repr.c. Locks: none. */

#include "room.h"

/*  Runs map (0): applies a filter to each item, or takes an attribute of it. Runs select (1), reject (2),
    selectattr (3) and rejectattr (4): keeps the items that pass a test. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_map(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value out = ignis__chat_new(chat, IGNIS__CHAT_GENERATOR),
                      path = ignis__chat_make(IGNIS__CHAT_ABSENT, 0), otherwise = path;
    int64_t attribute = ignis__chat_find(chat, &call->named, ignis__chat_words("attribute")), i, from = call->how >= 3;
    bool map = call->how == 0, by_name = map && call->given.count == 0 && attribute >= 0;
    ignis__chat_items items;
    if (!ignis__chat_true(call->self) || !ignis__chat_iterate(chat, call->self, &items))
        return out;
    i = ignis__chat_find(chat, &call->named, ignis__chat_words("default"));
    if (by_name ? call->named.count > (i >= 0 ? 4 : 2) : call->given.count < (map || from))
        return ignis__chat_fail(chat, "map, selectattr and rejectattr need the name of an attribute, filter or test");
    if (by_name) {
        path = call->named.item[attribute + 1];
        otherwise = i >= 0 ? call->named.item[i + 1] : otherwise;
    } else if (from) {
        path = call->given.item[0];
    }
    for (i = items.at; i < items.count && ignis__chat_work(chat, 1); i++) {
        ignis__chat_call inner = *call;
        inner.self = ignis__chat_find_path(chat, items.item[i], path, otherwise, false);
        if (call->given.count > from && !chat->fault) {
            inner.given.item += from + 1;
            inner.given.count -= from + 1;
            if (!ignis__chat_enter_node(chat, chat->here))
                break;
            inner.self = ignis__chat_apply(chat, map ? 'f' : 't', call->given.item[from], &inner);
            chat->depth--;
        }
        if (map || ignis__chat_true(inner.self) == (call->how % 2 == 1))
            ignis__chat_add(chat, out.u.items, map ? inner.self : items.item[i]);
    }
    return out;
}

/*  Runs sort (0) and dictsort (1). Letters are compared in lower case unless case_sensitive is set. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_sort(ignis__chat *chat, ignis__chat_call *call)
{
    bool dict = call->how == 1, fold = !ignis__chat_true(call->value[!dict]),
         reverse = ignis__chat_true(call->value[dict ? 2 : 0]);
    ignis__chat_value absent = ignis__chat_make(IGNIS__CHAT_ABSENT, 0), by = call->value[dict ? 1 : 2], key, tuple;
    ignis__chat_items items, keys = IGNIS__ZERO;
    int64_t i;
    if (dict) {
        if (call->self.kind != IGNIS__CHAT_DICT)
            return ignis__chat_fail_kind(chat, "dictsort is of a dict", call->self);
        by = ignis__chat_make(IGNIS__CHAT_INT, by.kind == IGNIS__CHAT_STRING && ignis__chat_is(by, "value"));
        call->how = IGNIS__CHAT_ITEMS;
        call->self = ignis__chat_do_pairs(chat, call);
    }
    if (chat->fault || !ignis__chat_iterate(chat, call->self, &items))
        return absent;
    if (by.kind == IGNIS__CHAT_STRING && by.number && memchr(by.u.text, ',', (size_t)by.number))
        return ignis__chat_fail_unsupported(chat, "sort by several attributes");
    for (i = items.at; i < items.count && ignis__chat_work(chat, 1); i++) {
        key = ignis__chat_find_path(chat, items.item[i], by, absent, fold);
        if (!dict) { /* keys are in tuples: undefined and none have no order, but may be equal */
            tuple = ignis__chat_new(chat, IGNIS__CHAT_TUPLE);
            ignis__chat_add(chat, tuple.u.items, key);
            key = tuple;
        }
        ignis__chat_add(chat, &keys, key);
    }
    return chat->fault ? absent : ignis__chat_sorted(chat, &items, &keys, reverse);
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_do_tojson(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value indent = call->value[1], separators = call->value[2], spaces = ignis__chat_words(" ");
    ignis__chat_json how;
    ignis__chat_writer out = IGNIS__ZERO;
    how.ascii = ignis__chat_true(call->value[0]);
    how.sort = ignis__chat_true(call->value[3]);
    how.pretty = ignis__chat_is_given(indent);
    how.indent = indent.kind == IGNIS__CHAT_STRING
                     ? indent
                     : ignis__chat_repeat(chat, spaces, ignis__chat_want_int(chat, indent, 0));
    how.separators[0] = ignis__chat_words(how.pretty ? "," : ", ");
    how.separators[1] = ignis__chat_words(": ");
    if (ignis__chat_is_given(separators)) {
        if ((separators.kind != IGNIS__CHAT_LIST && separators.kind != IGNIS__CHAT_TUPLE) ||
            separators.u.items->count != 2 || !ignis__chat_want_text(chat, separators.u.items->item[0]) ||
            !ignis__chat_want_text(chat, separators.u.items->item[1]))
            return ignis__chat_fail(chat, "separators are two texts");
        memcpy(how.separators, separators.u.items->item, sizeof how.separators);
    }
    ignis__chat_write_value(chat, &out, call->self, &how, true, 0);
    return ignis__chat_writer_value(&out);
}
