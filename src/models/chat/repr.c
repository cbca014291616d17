/*  models/chat/repr.c - reads and writes numbers and values as Python's repr, str and json.dumps do

    Numbers are read and written with a point whatever the locale of the program is.
    May use: value.c. Locks: none. */

#include "room.h"

/*  Reads a number in Python's syntax: digits, at most one point, an exponent. False if it is malformed or
    longer than 300 bytes. */
IGNIS__PRIVATE bool ignis__chat_read_real(const char *text, size_t size, double *real)
{
    static const char *const words[] = {"inf", "infinity", "nan"};
    char copy[340], number[16], *out = copy, *end;
    bool minus = size > 0 && *text == '-', digits = false;
    size_t i, k;
    if (size > 0 && (*text == '-' || *text == '+'))
        text++, size--;
    if (size == 0 || size > 300)
        return false;
    for (k = 0; k < 3; k++) {
        for (i = 0; i < size && words[k][i] && (text[i] | 32) == words[k][i]; i++)
            continue;
        if (i < size || words[k][i])
            continue;
        *real = k == 2 ? HUGE_VAL - HUGE_VAL : minus ? -HUGE_VAL : HUGE_VAL;
        return true;
    }
    snprintf(number, sizeof number, "%.1f", 0.5); /* to find the decimal point of the program's locale, for strtod */
    number[strlen(number) - 1] = 0;
    for (i = 0; i < size; i++) {
        bool between =
            i > 0 && i + 1 < size && ignis__formula_is_digit(text[i - 1]) && ignis__formula_is_digit(text[i + 1]);
        if (out > copy + 320 || (text[i] == '_' && !between) ||
            (!ignis__formula_is_digit(text[i]) && !strchr("._eE+-", text[i])) ||
            (strchr("+-", text[i]) && (i == 0 || (text[i - 1] | 32) != 'e')) || ((text[i] | 32) == 'e' && !digits))
            return false;
        if (text[i] == '.')
            out += snprintf(out, 16, "%s", number + 1);
        else if (text[i] != '_')
            *out++ = text[i];
        digits = digits || ignis__formula_is_digit(text[i]);
    }
    *out = 0;
    *real = strtod(copy, &end);
    *real = minus ? -*real : *real;
    return digits && end == out;
}

/*  Reads an integer in Python's syntax. False if it is malformed; a fault if it does not fit 64 bits. */
IGNIS__PRIVATE bool ignis__chat_read_int(ignis__chat *chat, const char *text, size_t size, int64_t *number)
{
    bool minus = size > 0 && *text == '-';
    size_t i = size > 0 && (*text == '-' || *text == '+'), first = i;
    *number = 0;
    for (; i < size; i++) {
        int digit = text[i] - '0';
        if (text[i] == '_' && i > first && i + 1 < size && text[i - 1] != '_')
            continue;
        if (digit < 0 || digit > 9)
            return false;
        if (*number > (INT64_MAX - digit) / 10) {
            ignis__chat_fail_unsupported(chat, "a whole number of more than 64 bits");
            return false;
        }
        *number = 10 * *number + digit;
    }
    *number = minus ? -*number : *number;
    return size > first;
}

/*  Writes a number as Python's repr does: with the fewest digits that read back as the same number. */
static void ignis__chat_write_real(ignis__chat *chat, double real, char out[40])
{
    char text[40];
    const char *at;
    int precision, exponent;
    ignis__chat_work(chat, 64); /* several precisions are tried */
    if (real != real || real - real != 0) {
        snprintf(out, 40, "%s", real != real ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    for (precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, real);
        if (strtod(text, NULL) == real)
            break;
    }
    exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16)
        snprintf(text, sizeof text, "%.*f", precision > exponent ? precision - exponent : 1, real);
    for (at = text; *at; at++) /* the program's locale may use another decimal point, of several bytes */
        if (strchr("0123456789e+-", *at))
            *out++ = *at;
        else if (out[-1] != '.')
            *out++ = '.';
    *out = 0;
}

/*  Writes a quoted string as Python's repr does, or as json.dumps does. For repr, unassigned characters count
    as printable. */
static void ignis__chat_write_quoted(ignis__chat *chat, ignis__chat_writer *out, ignis__chat_value string,
                                     const ignis__chat_json *json)
{
    static const char *const plain[] = {"\\\n\r\t", "\"\\\n\r\t\f\b"}, *const escaped[] = {"\\nrt", "\"\\nrtfb"};
    size_t size = (size_t)string.number, at, length, from = 0;
    const char *text = string.u.text, *known,
               *one = json || (memchr(text, '\'', size) && !memchr(text, '"', size)) ? "\"" : "'";
    bool marked = ignis__chat_is_marked(string);
    ignis__chat_work(chat, string.number / 4);
    ignis__chat_write_words(chat, out, one, marked);
    for (at = 0; at < size && !chat->fault; at += length) {
        uint32_t code = ignis__chat_code(text + at);
        char piece[16] = "";
        bool hidden = json ? code < 32 || (code >= 128 && json->ascii)
                           : code < 32 || (code >= 0x7F && code <= 0xA0) || code == 0xAD ||
                                 (code > 0xA0 && ignis__chat_is_space(text + at)) ||
                                 (code >= 0x200B && code <= 0x200F) || (code >= 0x202A && code <= 0x202E) ||
                                 (code >= 0x2060 && code <= 0x206F) || (code >= 0xE000 && code <= 0xF8FF) ||
                                 code == 0xFEFF || (code >= 0xFFF9 && code <= 0xFFFB) || code >= 0xE0000;
        length = ignis__chat_character(text + at);
        known = code && code < 128 ? strchr(plain[json != NULL], (int)code) : NULL;
        if (known)
            snprintf(piece, sizeof piece, "\\%c", escaped[json != NULL][known - plain[json != NULL]]);
        else if (code == (unsigned char)*one)
            snprintf(piece, sizeof piece, "\\%c", *one);
        else if (hidden && json && code >= 65536)
            snprintf(piece, sizeof piece, "\\u%04x\\u%04x", (unsigned)(0xD7C0 + (code >> 10)),
                     (unsigned)(0xDC00 | (code & 1023)));
        else if (hidden)
            snprintf(piece, sizeof piece, json || code >= 256 ? code < 65536 ? "\\u%04x" : "\\U%08x" : "\\x%02x",
                     (unsigned)code);
        if (!*piece)
            continue;
        ignis__chat_write_string(chat, out, ignis__chat_part(string, from, at));
        ignis__chat_write_words(chat, out, piece, string.marks && string.marks[at]);
        from = at + length;
    }
    ignis__chat_write_string(chat, out, ignis__chat_part(string, from, size));
    ignis__chat_write_words(chat, out, one, marked);
}

/*  Writes a separator between the items of a value, marked if the value is. */
static void ignis__chat_write_sign(ignis__chat *chat, ignis__chat_writer *out, ignis__chat_value sign, bool mark)
{
    ignis__chat_write(chat, out, sign.u.text, (size_t)sign.number, mark ? NULL : sign.marks, mark);
}

static void ignis__chat_write_line(ignis__chat *chat, ignis__chat_writer *out, const ignis__chat_json *json, int depth,
                                   bool mark)
{
    int i;
    if (!json || !json->pretty)
        return;
    ignis__chat_write_words(chat, out, "\n", mark);
    for (i = 0; i < depth; i++)
        ignis__chat_write_sign(chat, out, json->indent, mark);
}

/*  Returns the pairs of a dict, sorted by key. */
static ignis__chat_items ignis__chat_by_keys(ignis__chat *chat, const ignis__chat_items *dict)
{
    ignis__chat_items keys = IGNIS__ZERO, pairs = IGNIS__ZERO;
    ignis__chat_value sorted;
    int64_t i;
    for (i = 0; i < dict->count; i += 2)
        ignis__chat_add(chat, &keys, dict->item[i]);
    sorted = ignis__chat_sorted(chat, &keys, &keys, false);
    for (i = 0; i < keys.count && !chat->fault; i++)
        ignis__chat_put(chat, &pairs, sorted.u.items->item[i],
                        dict->item[ignis__chat_find(chat, dict, sorted.u.items->item[i]) + 1]);
    return pairs;
}

/*  Writes a value as Python's str does; `quoted`, inside others, as repr does; or as json.dumps does. */
IGNIS__PRIVATE void ignis__chat_write_value(ignis__chat *chat, ignis__chat_writer *out, ignis__chat_value v,
                                            const ignis__chat_json *json, bool quoted, int depth)
{
    static const char *const brackets[][2] = {{"[", "]"}, {"(", ")"}, {"{", "}"}, {"<Namespace {", "}>"}};
    static const char *const words[][3] = {{"None", "False", "True"}, {"null", "false", "true"}};
    bool dict = v.kind == IGNIS__CHAT_DICT || v.kind == IGNIS__CHAT_NAMESPACE;
    const char *text = NULL, *const * around;
    ignis__chat_items items;
    char number[80];
    int64_t i;
    if (depth > IGNIS__CHAT_NESTING)
        ignis__chat_fail(chat, "values are nested deeper than %d", IGNIS__CHAT_NESTING);
    else if (json && v.kind > IGNIS__CHAT_TUPLE && v.kind != IGNIS__CHAT_DICT)
        ignis__chat_fail_kind(chat, "JSON is made of text, numbers, lists and dicts", v);
    else if (v.kind > IGNIS__CHAT_TUPLE && !dict)
        ignis__chat_fail_unsupported(chat, "a %s made text%s", ignis__chat_kinds[v.kind],
                                     ignis__chat_has_items(v) ? "; |list makes a list of it" : "");
    if (!ignis__chat_work(chat, 1))
        return;
    switch (v.kind) {
    case IGNIS__CHAT_UNDEFINED:
        if (json)
            ignis__chat_fail_kind(chat, "", v);
        text = quoted ? "Undefined" : "";
        break;
    case IGNIS__CHAT_NONE:
    case IGNIS__CHAT_BOOL: text = words[json != NULL][v.kind == IGNIS__CHAT_NONE ? 0 : 1 + (v.number != 0)]; break;
    case IGNIS__CHAT_INT:
        snprintf(number, sizeof number, "%lld", (long long)v.number);
        text = number;
        break;
    case IGNIS__CHAT_FLOAT:
        ignis__chat_write_real(chat, v.u.real, number);
        text = !json || v.u.real - v.u.real == 0 ? number
               : v.u.real != v.u.real            ? "NaN"
               : v.u.real > 0                    ? "Infinity"
                                                 : "-Infinity";
        break;
    case IGNIS__CHAT_STRING:
        ignis__chat_write_words(chat, out, quoted && v.of && !json ? "Markup(" : "", ignis__chat_is_marked(v));
        if (quoted)
            ignis__chat_write_quoted(chat, out, v, json);
        else
            ignis__chat_write_string(chat, out, v);
        ignis__chat_write_words(chat, out, quoted && v.of && !json ? ")" : "", ignis__chat_is_marked(v));
        return;
    default: break;
    }
    if (text) {
        ignis__chat_write_words(chat, out, text, v.mark);
        return;
    }
    around = brackets[dict ? v.kind - IGNIS__CHAT_DICT + 2 : json ? 0 : v.kind - IGNIS__CHAT_LIST];
    items = json && json->sort && dict ? ignis__chat_by_keys(chat, v.u.items) : *v.u.items;
    ignis__chat_write_words(chat, out, around[0], v.mark);
    for (i = 0; i < items.count && !chat->fault; i++) {
        ignis__chat_value item = items.item[i];
        bool value = dict && i % 2,
             key = json && dict && !value && item.kind != IGNIS__CHAT_STRING; /* keys in JSON are strings */
        if (key && !ignis__chat_is_number(item) && item.kind != IGNIS__CHAT_NONE)
            ignis__chat_fail_kind(chat, "keys in JSON are text, numbers or none", item);
        if (i)
            ignis__chat_write_sign(chat, out, json ? json->separators[value] : ignis__chat_words(value ? ": " : ", "),
                                   v.mark);
        if (!value)
            ignis__chat_write_line(chat, out, json, depth + 1, v.mark);
        ignis__chat_write_words(chat, out, key ? "\"" : "", item.mark);
        ignis__chat_write_value(chat, out, item, json, true, depth + 1);
        ignis__chat_write_words(chat, out, key ? "\"" : "", item.mark);
    }
    if (items.count)
        ignis__chat_write_line(chat, out, json, depth, v.mark);
    ignis__chat_write_words(chat, out, !json && v.kind == IGNIS__CHAT_TUPLE && i == 1 ? "," : "", v.mark);
    ignis__chat_write_words(chat, out, around[1], v.mark);
}

/*  Returns a value as a string, which keeps its marks. */
IGNIS__PRIVATE ignis__chat_value ignis__chat_text(ignis__chat *chat, ignis__chat_value v)
{
    ignis__chat_writer out = IGNIS__ZERO;
    if (v.kind == IGNIS__CHAT_STRING)
        return v;
    ignis__chat_write_value(chat, &out, v, NULL, false, 0);
    return ignis__chat_writer_value(&out);
}
