/*  models/chat/filter_list.c - filters and methods of lists and dicts

    The number `how` of a row of the table selects one of several related functions.
    May use: filter_argument.c, value.c. Locks: none. */

#include "room.h"

IGNIS__PRIVATE ignis__chat_value ignis__chat_do_length(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value v = call->self;
    int64_t count = 0;
    if (v.kind == IGNIS__CHAT_STRING)
        count = ignis__chat_characters(chat, v);
    else if (v.kind == IGNIS__CHAT_LOOP)
        count = ignis__chat_loop_length(chat, v.u.loop);
    else if (v.kind == IGNIS__CHAT_DICT || (ignis__chat_has_items(v) && v.kind != IGNIS__CHAT_GENERATOR))
        count = v.u.items->count / (v.kind == IGNIS__CHAT_DICT ? 2 : 1);
    else if (v.kind != IGNIS__CHAT_UNDEFINED)
        return ignis__chat_fail(chat, "%s has no length", ignis__chat_kinds[v.kind]);
    return ignis__chat_make(IGNIS__CHAT_INT, count);
}

/*  Returns the first item (0) or the last item (1). */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_end(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value absent = ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
    bool generator = call->self.kind == IGNIS__CHAT_GENERATOR;
    ignis__chat_items items;
    if (call->how && generator)
        return ignis__chat_fail(chat, "what can be walked once has no last item; |list makes a list of it");
    if (!ignis__chat_iterate(chat, call->self, &items) || items.at == items.count)
        return ignis__chat_undefined(absent, absent);
    if (generator)
        call->self.u.items->at = items.at + 1;
    return items.item[call->how ? items.count - 1 : items.at];
}

/*  Returns the least item (0) or the greatest (1). The first one wins if several are equal. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_extreme(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value absent = ignis__chat_make(IGNIS__CHAT_ABSENT, 0), best = ignis__chat_undefined(absent, absent),
                      best_key = best, key;
    bool fold = !ignis__chat_true(call->value[0]);
    ignis__chat_items items;
    int64_t i;
    if (!ignis__chat_iterate(chat, call->self, &items))
        return best;
    for (i = items.at; i < items.count && ignis__chat_work(chat, 1); i++) {
        key = ignis__chat_find_path(chat, items.item[i], call->value[1], absent, fold);
        if (i > items.at &&
            !(call->how ? ignis__chat_less(chat, best_key, key, false) : ignis__chat_less(chat, key, best_key, false)))
            continue;
        best = items.item[i];
        best_key = key;
    }
    return best;
}

/*  Makes a list of items (0), or reverses them (1). */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_list(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value like = call->self;
    bool reverse = call->how == 1, text = like.kind == IGNIS__CHAT_STRING;
    ignis__chat_items items, out = IGNIS__ZERO;
    int64_t i;
    if (!ignis__chat_iterate(chat, like, &items))
        return like;
    for (i = items.at; i < items.count && ignis__chat_work(chat, 1); i++)
        ignis__chat_add(chat, &out, items.item[reverse ? items.count - 1 - (i - items.at) : i]);
    if (!reverse || !text)
        like.kind = !reverse || like.kind == IGNIS__CHAT_GENERATOR ? IGNIS__CHAT_LIST : IGNIS__CHAT_GENERATOR;
    like.of = 0;
    return ignis__chat_join_like(chat, like, &out);
}

/*  Returns keys, values or items of a dict; also runs the filter items. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_do_pairs(ignis__chat *chat, ignis__chat_call *call)
{
    ignis__chat_value out = ignis__chat_new(chat, (ignis__chat_kind)call->how), pair;
    const ignis__chat_items *dict = call->self.u.items;
    int64_t i;
    if (chat->fault || call->self.kind == IGNIS__CHAT_UNDEFINED)
        return out;
    if (call->self.kind != IGNIS__CHAT_DICT)
        return ignis__chat_fail_kind(chat, "items are of a dict", call->self);
    out.mark = call->self.mark;
    for (i = 0; i < dict->count && ignis__chat_work(chat, 1); i += 2) {
        pair = dict->item[i + (call->how == IGNIS__CHAT_VALUES)];
        if (call->how != IGNIS__CHAT_KEYS && call->how != IGNIS__CHAT_VALUES) {
            pair = ignis__chat_new(chat, IGNIS__CHAT_TUPLE);
            pair.mark = out.mark;
            ignis__chat_add(chat, pair.u.items, dict->item[i]);
            ignis__chat_add(chat, pair.u.items, dict->item[i + 1]);
        }
        ignis__chat_add(chat, out.u.items, pair);
    }
    return out;
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_do_get(ignis__chat *chat, ignis__chat_call *call)
{
    int64_t at =
        ignis__chat_hashable(chat, call->value[0]) ? ignis__chat_find(chat, call->self.u.items, call->value[0]) : -1;
    if (at >= 0)
        return call->self.u.items->item[at + 1];
    return call->value[1].kind ? call->value[1] : ignis__chat_make(IGNIS__CHAT_NONE, 0);
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_do_default(ignis__chat *chat, ignis__chat_call *call)
{
    (void)chat;
    if (call->self.kind == IGNIS__CHAT_UNDEFINED || (ignis__chat_true(call->value[1]) && !ignis__chat_true(call->self)))
        return call->value[0].kind ? call->value[0] : ignis__chat_words("");
    return call->self;
}
