/*  models/chat/eval_attribute.c - attributes, items, methods and slices of values

    A missing attribute gives an undefined value, which fails when it is used.
    May use: value.c, filter_table.c, eval_statement.c (loops). Locks: none. */

#include "room.h"

IGNIS__PRIVATE ignis__chat_value ignis__chat_eval(ignis__chat *chat, const ignis__chat_node *node);
IGNIS__PRIVATE ignis__chat_value ignis__chat_apply(ignis__chat *chat, char of, ignis__chat_value name,
                                                   ignis__chat_call *call);
IGNIS__PRIVATE int ignis__chat_row_find(ignis__chat *chat, char of, ignis__chat_value name);
IGNIS__PRIVATE const ignis__chat_row *ignis__chat_row_at(int64_t row);

IGNIS__PRIVATE ignis__chat_value ignis__chat_format(ignis__chat *chat, ignis__chat_value format,
                                                    ignis__chat_value values);

IGNIS__PRIVATE ignis__chat_value ignis__chat_undefined(ignis__chat_value object, ignis__chat_value name)
{
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_UNDEFINED, 0);
    value.of = object.kind;
    if (name.kind == IGNIS__CHAT_STRING) {
        value.u.text = name.u.text;
        value.number = name.number;
    }
    return value;
}

/*  Lists methods of Python that are refused by name: those that change their object, and those that Ignis
    lacks. */
static const struct {
    unsigned char of; /* the kind of value */
    const char *hidden, *lacking;
} ignis__chat_methods[] = {
    {IGNIS__CHAT_STRING, "",
     "casefold center encode expandtabs format format_map isascii isidentifier isprintable istitle ljust maketrans "
     "partition rindex rjust "
     "rpartition swapcase translate zfill isalnum isalpha isdecimal isdigit islower isnumeric isspace isupper"},
    {IGNIS__CHAT_LIST, "append clear extend insert pop remove reverse sort", "copy count index"},
    {IGNIS__CHAT_TUPLE, "", "count index"},
    {IGNIS__CHAT_RANGE_OF, "", "count index start step stop"},
    {IGNIS__CHAT_DICT, "clear pop popitem setdefault update", "copy fromkeys"},
    {IGNIS__CHAT_LOOP, "", "changed cycle"},
};

IGNIS__PRIVATE bool ignis__chat_peek(ignis__chat *chat, ignis__chat_loop *loop);

/*  Counts the items of a loop. Items that are still to come are counted by evaluating the loop's condition. */
IGNIS__PRIVATE int64_t ignis__chat_loop_length(ignis__chat *chat, ignis__chat_loop *loop)
{
    ignis__chat_loop rest = *loop;
    ignis__chat_items kept;
    if (!loop->filtered)
        return loop->end + loop->base;
    memset(&kept, 0, sizeof kept);
    while (ignis__chat_peek(chat, &rest)) {
        ignis__chat_add(chat, &kept, rest.after);
        rest.peeked = false;
    }
    *loop->items = kept;
    loop->next = 0;
    loop->end = kept.count;
    loop->filtered = loop->peeked = false;
    loop->base = loop->index;
    return loop->base + kept.count;
}

/*  Finds an attribute of `loop`. False if `loop` has no such attribute. */
static bool ignis__chat_find_loop_attribute(ignis__chat *chat, ignis__chat_loop *loop, ignis__chat_value name,
                                            ignis__chat_value *out)
{
    static const char *const names[] = {"index", "index0",   "first",  "depth",    "depth0",   "previtem",
                                        "last",  "nextitem", "length", "revindex", "revindex0"};
    ignis__chat_value none = ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
    int64_t i;
    for (i = 0; i < IGNIS__COUNT(names) && !ignis__chat_is(name, names[i]); i++)
        ;
    *out = ignis__chat_make(IGNIS__CHAT_INT, i == 4 ? 0 : i == 3 ? 1 : i == 1 ? loop->index - 1 : loop->index);
    if (i == 2)
        *out = ignis__chat_bool(loop->index == 1);
    else if (i == 5)
        *out = loop->index > 1 ? loop->before : ignis__chat_undefined(none, none);
    else if (i == 6)
        *out = ignis__chat_bool(!ignis__chat_peek(chat, loop));
    else if (i == 7)
        *out = ignis__chat_peek(chat, loop) ? loop->after : ignis__chat_undefined(none, none);
    else if (i >= 8)
        out->number = ignis__chat_loop_length(chat, loop) - (i == 8 ? 0 : i == 9 ? loop->index - 1 : loop->index);
    return i < IGNIS__COUNT(names);
}

/*  Finds a method, or another attribute of the value's type. False if the type does not have it. */
static bool ignis__chat_find_attribute(ignis__chat *chat, ignis__chat_value object, ignis__chat_value name,
                                       ignis__chat_value *out)
{
    char of = object.kind == IGNIS__CHAT_STRING ? 's'
              : object.kind == IGNIS__CHAT_DICT ? 'd'
                                                : ' '; /* as in the table of methods */
    int row, i;
    *out = ignis__chat_undefined(object, name);
    if (object.kind == IGNIS__CHAT_NAMESPACE) {
        int64_t at = ignis__chat_find(chat, object.u.items, name);
        *out = at < 0 ? *out : object.u.items->item[at + 1];
        return at >= 0;
    }
    if (object.kind == IGNIS__CHAT_LOOP && ignis__chat_find_loop_attribute(chat, object.u.loop, name, out))
        return true;
    for (i = 0; i < IGNIS__COUNT(ignis__chat_methods); i++) {
        if (ignis__chat_methods[i].of != object.kind)
            continue;
        if (ignis__chat_in_words(ignis__chat_methods[i].lacking, name.u.text, name.number))
            *out = ignis__chat_fail_unsupported(chat, "the method '%.*s' of %s", (int)name.number, name.u.text,
                                                ignis__chat_kinds[object.kind]);
        if (chat->fault || ignis__chat_in_words(ignis__chat_methods[i].hidden, name.u.text, name.number))
            return true;
    }
    row = of == ' ' ? -1 : ignis__chat_row_find(chat, of, name);
    if (row < 0)
        return false;
    *out = ignis__chat_make(IGNIS__CHAT_FUNCTION, row);
    out->u.object = (ignis__chat_value *)ignis__chat_alloc(chat, sizeof object);
    if (out->u.object)
        *out->u.object = object;
    return true;
}

/*  Returns the byte offset of a character of a string. */
IGNIS__PRIVATE size_t ignis__chat_offset(ignis__chat *chat, ignis__chat_value string, int64_t character)
{
    size_t at = 0;
    ignis__chat_work(chat, character / 4);
    while (character-- > 0 && at < (size_t)string.number)
        at += ignis__chat_character(string.u.text + at);
    return at;
}

/*  Finds object[key]. False if there is no such item. */
IGNIS__PRIVATE bool ignis__chat_find_item(ignis__chat *chat, ignis__chat_value object, ignis__chat_value key,
                                          ignis__chat_value *out)
{
    int64_t i = key.number, count;
    bool string = object.kind == IGNIS__CHAT_STRING;
    *out = ignis__chat_undefined(object, key);
    if (object.kind == IGNIS__CHAT_DICT) {
        if (key.kind == IGNIS__CHAT_LIST || key.kind == IGNIS__CHAT_DICT ||
            (i = ignis__chat_find(chat, object.u.items, key)) < 0)
            return false;
        *out = object.u.items->item[i + 1];
        return true;
    }
    if (!ignis__chat_is_whole(key) ||
        !(string || (object.kind >= IGNIS__CHAT_LIST && object.kind <= IGNIS__CHAT_RANGE_OF)))
        return false;
    count = string ? ignis__chat_characters(chat, object) : object.u.items->count;
    i += i < 0 ? count : 0;
    if (i < 0 || i >= count)
        return false;
    if (string) {
        size_t at = ignis__chat_offset(chat, object, i);
        *out = ignis__chat_part(object, at, at + ignis__chat_character(object.u.text + at));
    } else {
        *out = object.u.items->item[i];
    }
    return true;
}

/*  Joins items to a value of the kind of `other`: a string, a list or a tuple. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_join_like(ignis__chat *chat, ignis__chat_value other,
                                                       const ignis__chat_items *items)
{
    ignis__chat_value out = other;
    ignis__chat_writer text = IGNIS__ZERO;
    int64_t i;
    if (other.kind != IGNIS__CHAT_STRING) {
        out = ignis__chat_new(chat, (ignis__chat_kind)other.kind);
        out.mark = other.mark;
        if (!chat->fault)
            *out.u.items = *items;
        return out;
    }
    for (i = 0; i < items->count && ignis__chat_work(chat, 1); i++)
        ignis__chat_write_string(chat, &text, items->item[i]);
    out = ignis__chat_writer_value(&text);
    out.of = other.of;
    return out;
}

/*  Evaluates object.name, or object[name] with `item`. If the first form finds nothing, the other is tried. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_eval_member(ignis__chat *chat, ignis__chat_value object,
                                                         ignis__chat_value key, bool item)
{
    ignis__chat_value out = ignis__chat_make(IGNIS__CHAT_UNDEFINED, 0);
    if (chat->fault || object.kind == IGNIS__CHAT_UNDEFINED)
        return ignis__chat_fail_kind(chat, "", object);
    if (item && ignis__chat_find_item(chat, object, key, &out))
        return out;
    if (key.kind == IGNIS__CHAT_STRING && !chat->fault && ignis__chat_find_attribute(chat, object, key, &out))
        return out;
    if (!item && !chat->fault && ignis__chat_find_item(chat, object, key, &out))
        return out;
    return ignis__chat_undefined(object, key);
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_slice(ignis__chat *chat, ignis__chat_value object,
                                                   const ignis__chat_value *bound)
{
    bool string = object.kind == IGNIS__CHAT_STRING;
    int64_t count, step = bound[2].kind == IGNIS__CHAT_NONE ? 1 : bound[2].number, limits[2], i;
    ignis__chat_items items, kept = IGNIS__ZERO;
    if (!string && (object.kind < IGNIS__CHAT_LIST || object.kind > IGNIS__CHAT_RANGE_OF))
        return ignis__chat_fail_kind(chat, "slices are of texts and lists", object);
    for (i = 0; i < 3; i++)
        if (bound[i].kind != IGNIS__CHAT_NONE && !ignis__chat_is_whole(bound[i]))
            return ignis__chat_fail_kind(chat, "the bounds of a slice are whole numbers", bound[i]);
    if (step == 0)
        return ignis__chat_fail(chat, "the step of a slice is 0");
    if (object.kind == IGNIS__CHAT_RANGE_OF)
        return ignis__chat_fail_unsupported(chat, "a slice of a range; |list makes a list of it");
    count = string ? ignis__chat_characters(chat, object) : object.u.items->count;
    for (i = 0; i < 2; i++) { /* bounds are clipped to the length, as in Python */
        int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count, at = bound[i].number;
        if (bound[i].kind == IGNIS__CHAT_NONE)
            at = (i == 0) == (step > 0) ? low : high;
        else if (at < 0)
            at = at < -count ? low : at + count < low ? low : at + count;
        limits[i] = at > high ? high : at;
    }
    if (string && step == 1) {
        limits[1] = limits[1] < limits[0] ? limits[0] : limits[1];
        return ignis__chat_part(object, ignis__chat_offset(chat, object, limits[0]),
                                ignis__chat_offset(chat, object, limits[1]));
    }
    ignis__chat_iterate(chat, object, &items);
    for (i = limits[0]; (step > 0 ? i < limits[1] : i > limits[1]) && ignis__chat_work(chat, 1); i += step) {
        ignis__chat_add(chat, &kept, items.item[i]);
        if (step > 0 ? step >= limits[1] - i : step <= limits[1] - i)
            break;
    }
    return ignis__chat_join_like(chat, object, &kept);
}
