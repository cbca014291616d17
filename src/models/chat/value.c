/*  models/chat/value.c - values of templates: kinds, text with marks, lists, dicts, comparison, search

    Values are copied by assignment; items and text are in the arena and are never freed one by one.
    May use: template.c, tokenizer/string_search.c, tokenizer/unicode.c. Locks: none. */

#include "room.h"

IGNIS__PRIVATE ignis__chat_value ignis__chat_make(ignis__chat_kind kind, int64_t number)
{
    ignis__chat_value value;
    memset(&value, 0, sizeof value);
    value.kind = (unsigned char)kind;
    value.number = number;
    return value;
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_bool(bool yes) { return ignis__chat_make(IGNIS__CHAT_BOOL, yes); }

IGNIS__PRIVATE ignis__chat_value ignis__chat_real(double real)
{
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_FLOAT, 0);
    value.u.real = real;
    return value;
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_string(const char *text, size_t size, const char *marks)
{
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_STRING, (int64_t)size);
    value.u.text = text;
    value.marks = marks;
    return value;
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_words(const char *text)
{
    return ignis__chat_string(text, strlen(text), NULL);
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_part(ignis__chat_value string, size_t from, size_t to)
{
    ignis__chat_value part = string;
    part.u.text += from;
    part.number = (int64_t)(to - from);
    if (part.marks)
        part.marks += from;
    return part;
}

IGNIS__PRIVATE bool ignis__chat_is(ignis__chat_value value, const char *text)
{
    return (size_t)value.number == strlen(text) && memcmp(value.u.text, text, (size_t)value.number) == 0;
}

/*  Tells whether a text is one of the words of a list, separated by spaces. */
IGNIS__PRIVATE bool ignis__chat_in_words(const char *words, const char *text, int64_t size)
{
    int64_t length;
    for (; *words; words += length + (words[length] == ' ')) {
        length = (int64_t)strcspn(words, " ");
        if (length == size && memcmp(words, text, (size_t)size) == 0)
            return true;
    }
    return false;
}

/*  Makes an empty value with items. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_new(ignis__chat *chat, ignis__chat_kind kind)
{
    ignis__chat_value value = ignis__chat_make(kind, 0);
    value.u.items = (ignis__chat_items *)ignis__chat_alloc(chat, sizeof *value.u.items);
    return value.u.items ? value : ignis__chat_make(IGNIS__CHAT_UNDEFINED, 0);
}

IGNIS__PRIVATE void ignis__chat_add(ignis__chat *chat, ignis__chat_items *items, ignis__chat_value value)
{
    if (chat->fault)
        return;
    if (items->count == items->capacity) {
        int64_t capacity = items->capacity ? 2 * items->capacity : 8;
        ignis__chat_value *larger = (ignis__chat_value *)ignis__chat_alloc(chat, (size_t)capacity * sizeof *larger);
        if (!larger)
            return;
        if (items->count)
            memcpy(larger, items->item, (size_t)items->count * sizeof *larger);
        items->item = larger;
        items->capacity = capacity;
    }
    items->item[items->count++] = value;
}

IGNIS__PRIVATE void ignis__chat_add_all(ignis__chat *chat, ignis__chat_items *items, const ignis__chat_items *more)
{
    int64_t i;
    for (i = 0; !chat->fault && i < more->count && ignis__chat_work(chat, 1); i++)
        ignis__chat_add(chat, items, more->item[i]);
}

/*  Grows an output to a capacity of `capacity` bytes. */
IGNIS__PRIVATE bool ignis__chat_reserve(ignis__chat *chat, ignis__chat_writer *out, size_t capacity)
{
    char *larger = (char *)ignis__chat_alloc(chat, capacity), *marked = (char *)ignis__chat_alloc(chat, capacity);
    if (!larger || !marked)
        return false;
    if (out->size) {
        memcpy(larger, out->text, out->size);
        memcpy(marked, out->marks, out->size);
    }
    out->text = larger;
    out->marks = marked;
    out->capacity = capacity;
    return true;
}

/*  Appends bytes. Their marks are those of `marks`; if that is NULL, all are `mark`. */
IGNIS__PRIVATE void ignis__chat_write(ignis__chat *chat, ignis__chat_writer *out, const char *text, size_t size,
                                      const char *marks, bool mark)
{
    if (!ignis__chat_work(chat, 1 + (int64_t)(size / 64)) || size == 0)
        return;
    if (out->capacity - out->size < size &&
        !ignis__chat_reserve(chat, out, out->size + size < 128 ? 256 : 2 * (out->size + size)))
        return;
    memcpy(out->text + out->size, text, size);
    if (marks)
        memcpy(out->marks + out->size, marks, size);
    else
        memset(out->marks + out->size, mark, size);
    out->size += size;
}

IGNIS__PRIVATE void ignis__chat_write_string(ignis__chat *chat, ignis__chat_writer *out, ignis__chat_value string)
{
    ignis__chat_write(chat, out, string.u.text, (size_t)string.number, string.marks, false);
}

IGNIS__PRIVATE void ignis__chat_write_words(ignis__chat *chat, ignis__chat_writer *out, const char *text, bool mark)
{
    ignis__chat_write(chat, out, text, strlen(text), NULL, mark);
}

IGNIS__PRIVATE ignis__chat_value ignis__chat_writer_value(const ignis__chat_writer *out)
{
    return ignis__chat_string(out->text ? out->text : "", out->size, out->marks);
}

/*  Returns the begin of the character before a place. */
IGNIS__PRIVATE size_t ignis__chat_before(const char *text, size_t at)
{
    do
        at--;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

IGNIS__PRIVATE uint32_t ignis__chat_code(const char *text)
{
    int length;
    return ignis__utf8_code(text, &length);
}

IGNIS__PRIVATE int64_t ignis__chat_characters(ignis__chat *chat, ignis__chat_value string)
{
    int64_t count = 0, i;
    ignis__chat_work(chat, string.number / 16);
    for (i = 0; i < string.number; i++)
        count += ((unsigned char)string.u.text[i] & 0xC0) != 0x80;
    return count;
}

/*  Tells whether a character is white space, as Python's str.isspace does. */
IGNIS__PRIVATE bool ignis__chat_is_space(const char *text)
{
    uint32_t code = ignis__chat_code(text);
    return ignis__char_space(code) || (code >= 28 && code <= 31);
}

/*  Returns the bytes of a line end, as Python's str.splitlines sees it; 0 if there is none. */
IGNIS__PRIVATE size_t ignis__chat_line_end(const char *text, size_t left)
{
    uint32_t code = ignis__chat_code(text);
    if (code == 13)
        return left > 1 && text[1] == 10 ? 2 : 1;
    if ((code >= 10 && code <= 12) || (code >= 28 && code <= 30))
        return 1;
    return code == 0x85 ? 2 : code == 0x2028 || code == 0x2029 ? 3 : 0;
}

/*  Tells whether any byte came from the caller. */
IGNIS__PRIVATE bool ignis__chat_is_marked(ignis__chat_value value)
{
    if (value.kind != IGNIS__CHAT_STRING)
        return value.mark;
    return value.marks && value.number > 0 && memchr(value.marks, 1, (size_t)value.number) != NULL;
}

/*  Fails with the kind of a value, or with the name of an undefined one. */
IGNIS__COLD IGNIS__PRIVATE ignis__chat_value ignis__chat_fail_kind(ignis__chat *chat, const char *what,
                                                                   ignis__chat_value value)
{
    int length = (int)(value.number < 60 ? value.number : 60);
    if (value.kind != IGNIS__CHAT_UNDEFINED)
        return ignis__chat_fail(chat, "%s, not %s", what, ignis__chat_kinds[value.kind]);
    if (!value.u.text)
        return ignis__chat_fail(chat, "a value is undefined");
    if (value.of)
        return ignis__chat_fail(chat, "%s has no '%.*s'", ignis__chat_kinds[value.of], length, value.u.text);
    return ignis__chat_fail(chat, "'%.*s' is undefined", length, value.u.text);
}

/*  Returns the bytes of the character at a place of well-formed text. */
IGNIS__PRIVATE size_t ignis__chat_character(const char *text)
{
    int length;
    (void)ignis__utf8_code(text, &length);
    return (size_t)length;
}

IGNIS__PRIVATE bool ignis__chat_is_number(ignis__chat_value v)
{
    return v.kind >= IGNIS__CHAT_BOOL && v.kind <= IGNIS__CHAT_FLOAT;
}
IGNIS__PRIVATE bool ignis__chat_has_items(ignis__chat_value v)
{
    return v.kind >= IGNIS__CHAT_LIST && v.kind <= IGNIS__CHAT_GENERATOR;
}
IGNIS__PRIVATE bool ignis__chat_is_whole(ignis__chat_value v)
{
    return v.kind == IGNIS__CHAT_BOOL || v.kind == IGNIS__CHAT_INT;
}
IGNIS__PRIVATE double ignis__chat_as_real(ignis__chat_value v)
{
    return v.kind == IGNIS__CHAT_FLOAT ? v.u.real : (double)v.number;
}

IGNIS__PRIVATE bool ignis__chat_true(ignis__chat_value v)
{
    if (v.kind == IGNIS__CHAT_DICT || (v.kind >= IGNIS__CHAT_LIST && v.kind < IGNIS__CHAT_GENERATOR))
        return v.u.items->count != 0;
    if (v.kind == IGNIS__CHAT_FLOAT)
        return v.u.real != 0;
    return v.kind > IGNIS__CHAT_STRING || (v.kind >= IGNIS__CHAT_BOOL && v.number != 0);
}

IGNIS__PRIVATE int64_t ignis__chat_find(ignis__chat *chat, const ignis__chat_items *items, ignis__chat_value key);

/*  Returns -1, 0 or 1 in Python's order of numbers, strings, lists and tuples; 2 if there is no order. With
    `equal` only 0 or not 0 matters. */
static int ignis__chat_compare(ignis__chat *chat, ignis__chat_value a, ignis__chat_value b, bool equal, int depth)
{
    bool numbers = ignis__chat_is_number(a) && ignis__chat_is_number(b);
    int64_t i, k, count;
    int sign = 0;
    if (depth > IGNIS__CHAT_NESTING)
        ignis__chat_fail(chat, "values are nested deeper than %d", IGNIS__CHAT_NESTING);
    if (!ignis__chat_work(chat, 1))
        return 2;
    if (numbers && (a.kind == IGNIS__CHAT_FLOAT || b.kind == IGNIS__CHAT_FLOAT)) {
        double x = ignis__chat_as_real(a), y = ignis__chat_as_real(b);
        return x < y ? -1 : x > y ? 1 : x == y ? 0 : 3; /* NaN */
    }
    if (numbers)
        return (a.number > b.number) - (a.number < b.number);
    if (a.kind != b.kind)
        return 2;
    switch (a.kind) {
    case IGNIS__CHAT_UNDEFINED:
    case IGNIS__CHAT_NONE: return equal ? 0 : 2;
    case IGNIS__CHAT_STRING:
        if (equal && a.number != b.number)
            return 2;
        count = a.number < b.number ? a.number : b.number;
        ignis__chat_work(chat, count / 64);
        sign = memcmp(a.u.text, b.u.text, (size_t)count);
        return sign ? (sign > 0) - (sign < 0) : (a.number > b.number) - (a.number < b.number);
    case IGNIS__CHAT_LIST:
    case IGNIS__CHAT_TUPLE:
    case IGNIS__CHAT_RANGE_OF:
        count = b.u.items->count;
        if (equal ? a.u.items->count != count : a.kind == IGNIS__CHAT_RANGE_OF)
            return 2;
        for (i = 0; i < a.u.items->count && i < count && !sign; i++) {
            sign = ignis__chat_compare(chat, a.u.items->item[i], b.u.items->item[i], true, depth + 1);
            if (sign && !equal)
                sign = ignis__chat_compare(chat, a.u.items->item[i], b.u.items->item[i], false, depth + 1);
        }
        return sign ? sign : (a.u.items->count > count) - (a.u.items->count < count);
    case IGNIS__CHAT_DICT:
        if (!equal || a.u.items->count != b.u.items->count)
            return 2;
        for (i = 0; i < a.u.items->count && !sign; i += 2) {
            k = ignis__chat_find(chat, b.u.items, a.u.items->item[i]);
            sign =
                k < 0 ? 2 : ignis__chat_compare(chat, a.u.items->item[i + 1], b.u.items->item[k + 1], true, depth + 1);
        }
        return sign ? 2 : 0;
    default: return equal && a.u.items == b.u.items && a.number == b.number ? 0 : 2;
    }
}

IGNIS__PRIVATE bool ignis__chat_equal(ignis__chat *chat, ignis__chat_value a, ignis__chat_value b)
{
    return ignis__chat_compare(chat, a, b, true, 0) == 0;
}

/*  Tells whether a < b. A fault if the values have no order. */
IGNIS__PRIVATE bool ignis__chat_less(ignis__chat *chat, ignis__chat_value a, ignis__chat_value b, bool or_equal)
{
    int sign = ignis__chat_compare(chat, a, b, false, 0);
    if (sign == 2 && (a.kind == IGNIS__CHAT_UNDEFINED || b.kind == IGNIS__CHAT_UNDEFINED))
        ignis__chat_fail_kind(chat, "", a.kind == IGNIS__CHAT_UNDEFINED ? a : b);
    else if (sign == 2)
        ignis__chat_fail(chat, "%s and %s have no order", ignis__chat_kinds[a.kind], ignis__chat_kinds[b.kind]);
    return sign == -1 || (or_equal && sign == 0);
}

/*  Sorts a list by its keys. The sort is stable. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_sorted(ignis__chat *chat, const ignis__chat_items *items,
                                                    const ignis__chat_items *keys, bool reverse)
{
    ignis__chat_value out = ignis__chat_new(chat, IGNIS__CHAT_LIST), key, other;
    int64_t i, low, high, middle, *order = (int64_t *)ignis__chat_alloc(chat, (size_t)keys->count * sizeof *order);
    for (i = 0; i < keys->count && !chat->fault; i++) { /* each item is inserted after those that it does not precede */
        for (low = 0, high = i, key = keys->item[i]; low < high && !chat->fault;) {
            middle = (low + high) / 2;
            other = keys->item[order[middle]];
            if (reverse ? ignis__chat_less(chat, other, key, false) : ignis__chat_less(chat, key, other, false))
                high = middle;
            else
                low = middle + 1;
        }
        ignis__chat_work(chat, (i - low) / 8);
        memmove(order + low + 1, order + low, (size_t)(i - low) * sizeof *order);
        order[low] = i;
    }
    for (i = 0; i < keys->count && !chat->fault; i++)
        ignis__chat_add(chat, out.u.items, items->item[order[i] + items->at]);
    return out;
}

/*  Returns the index of a key in a dict, a namespace or names; -1 if it is missing. */
IGNIS__PRIVATE int64_t ignis__chat_find(ignis__chat *chat, const ignis__chat_items *items, ignis__chat_value key)
{
    int64_t i;
    for (i = 0; i < items->count && ignis__chat_work(chat, 1); i += 2) {
        const ignis__chat_value *other = &items->item[i];
        if (key.kind == IGNIS__CHAT_STRING && other->kind == IGNIS__CHAT_STRING
                ? key.number == other->number && ignis__chat_work(chat, key.number / 64) &&
                      memcmp(key.u.text, other->u.text, (size_t)key.number) == 0
                : ignis__chat_equal(chat, key, *other))
            return i;
    }
    return -1;
}

IGNIS__PRIVATE void ignis__chat_put(ignis__chat *chat, ignis__chat_items *items, ignis__chat_value key,
                                    ignis__chat_value value)
{
    int64_t i = ignis__chat_find(chat, items, key);
    if (i >= 0) {
        items->item[i + 1] = value;
        return;
    }
    ignis__chat_add(chat, items, key);
    ignis__chat_add(chat, items, value);
}

IGNIS__PRIVATE void ignis__chat_put_all(ignis__chat *chat, ignis__chat_items *items, const ignis__chat_items *from)
{
    int64_t i;
    for (i = 0; i < from->count && !chat->fault; i += 2)
        ignis__chat_put(chat, items, from->item[i], from->item[i + 1]);
}

/*  Checks that a value can be the key of a dict. A fault if it cannot. */
static bool ignis__chat_hashable_at(ignis__chat *chat, ignis__chat_value key, int depth)
{
    int64_t i;
    if (key.kind == IGNIS__CHAT_LIST || key.kind == IGNIS__CHAT_DICT)
        ignis__chat_fail(chat, "a %s cannot be a key", ignis__chat_kinds[key.kind]);
    if (depth > IGNIS__CHAT_NESTING)
        ignis__chat_fail(chat, "values are nested deeper than %d", IGNIS__CHAT_NESTING);
    for (i = 0; key.kind == IGNIS__CHAT_TUPLE && i < key.u.items->count && ignis__chat_work(chat, 1); i++)
        ignis__chat_hashable_at(chat, key.u.items->item[i], depth + 1);
    return !chat->fault;
}

IGNIS__PRIVATE bool ignis__chat_hashable(ignis__chat *chat, ignis__chat_value key)
{
    return ignis__chat_hashable_at(chat, key, 0);
}

/*  Sets *out to the items of an iterable: from out->at to out->count. A fault if the value is not iterable. */
IGNIS__PRIVATE bool ignis__chat_iterate(ignis__chat *chat, ignis__chat_value v, ignis__chat_items *out)
{
    size_t at, length;
    int64_t i;
    memset(out, 0, sizeof *out);
    if (v.kind == IGNIS__CHAT_STRING) {
        for (v.of = 0, at = 0; at < (size_t)v.number && ignis__chat_work(chat, 1); at += length) {
            length = ignis__chat_character(v.u.text + at);
            ignis__chat_add(chat, out, ignis__chat_part(v, at, at + length));
        }
    } else if (v.kind == IGNIS__CHAT_DICT) {
        for (i = 0; i < v.u.items->count && ignis__chat_work(chat, 1); i += 2)
            ignis__chat_add(chat, out, v.u.items->item[i]);
    } else if (ignis__chat_has_items(v)) {
        *out = *v.u.items;
        out->capacity = out->count; /* appending makes a copy */
        if (v.kind == IGNIS__CHAT_GENERATOR)
            v.u.items->at = v.u.items->count;
    } else if (v.kind == IGNIS__CHAT_LOOP) {
        ignis__chat_fail_unsupported(chat, "'loop' as something to walk over");
    } else if (v.kind != IGNIS__CHAT_UNDEFINED) {
        ignis__chat_fail(chat, "there is nothing to walk over in %s", ignis__chat_kinds[v.kind]);
    }
    return !chat->fault;
}

/*  Prepares a search for `part`. Its length is counted as work. */
IGNIS__PRIVATE ignis__needle ignis__chat_needle_of(ignis__chat *chat, ignis__chat_value part, bool back)
{
    ignis__chat_work(chat, 1 + part.number / 2);
    return ignis__needle_of(part.u.text, (size_t)part.number, back);
}

/*  Searches, and counts the bytes it looked at as work. */
IGNIS__PRIVATE const char *ignis__chat_search(ignis__chat *chat, const char *text, size_t size,
                                              const ignis__needle *needle)
{
    const char *found = ignis__needle_find(needle, text, size);
    size_t before = found ? (size_t)(found - text) : 0;
    ignis__chat_work(chat, (int64_t)((!found ? size : needle->back ? size - before : before + needle->length) / 4));
    return found;
}
