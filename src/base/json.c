/*  base/json.c - a reader of JSON

    A pull reader without a tree: the caller asks for the next string, number or element. One fault ends it.
    May use: text.c, utf8.c. Locks: none. Bounds: nesting up to 64, and the text is writable, because strings are
    decoded in place. */

#include "room.h"

IGNIS__PRINTF(2, 3)
IGNIS__COLD IGNIS__PRIVATE bool ignis__json_fail(ignis__json *json, const char *format, ...)
{
    ignis__string_writer text;
    va_list args;
    if (json->fault[0])
        return false;
    ignis__string_begin(&text, json->fault, sizeof json->fault);
    ignis__string_add(&text, "at byte %lld of %s, ", (long long)(json->at - json->start),
                      json->what ? json->what : "the header");
    va_start(args, format);
    ignis__string_addv(&text, format, args);
    va_end(args);
    return false;
}

/*  Skips white space and returns the next character; 0 at the end. */
IGNIS__COLD IGNIS__PRIVATE char ignis__json_peek(ignis__json *json)
{
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
        json->at++;
    return json->at < json->end ? *json->at : 0;
}

IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__json_take(ignis__json *json, char wanted)
{
    if (json->fault[0] || ignis__json_peek(json) != wanted)
        return false;
    json->at++;
    return true;
}

IGNIS__PRIVATE bool ignis__json_expect(ignis__json *json, char wanted)
{
    return ignis__json_take(json, wanted) || ignis__json_fail(json, "a %c is missing", wanted);
}

/*  Checks whether another element follows before `close`, and skips its comma. *first is true after the opening
    bracket. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__json_more(ignis__json *json, char close, bool *first)
{
    bool behind_element = !*first;
    *first = false;
    if (json->fault[0] || ignis__json_take(json, close))
        return false;
    if (behind_element && !ignis__json_take(json, ','))
        return ignis__json_fail(json, "a comma or %c is missing", close);
    return true;
}

/*  Returns the number of four hexadecimal digits; -1 if they are not. */
IGNIS__COLD static int ignis__json_hex(ignis__json *json)
{
    int value = 0, i;
    if (json->end - json->at < 4)
        return -1;
    for (i = 0; i < 4; i++) {
        char c = *json->at++;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/*  Decodes the escape after a backslash, and returns the position after it. */
static char *ignis__json_escape(ignis__json *json, char *out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *known = json->at < json->end && *json->at ? strchr(names, *json->at) : NULL;
    int code, low;
    if (known) {
        json->at++;
        *out++ = values[known - names];
        return out;
    }
    if (json->at == json->end || *json->at != 'u') {
        ignis__json_fail(json, "a backslash is followed by an unknown escape");
        return out;
    }
    json->at++;
    code = ignis__json_hex(json);
    if (code >= 0xD800 && code < 0xDC00) { /* the first half of a pair */
        low = json->end - json->at >= 2 && json->at[0] == '\\' && json->at[1] == 'u'
                  ? (json->at += 2, ignis__json_hex(json))
                  : -1;
        code = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : -1;
    } else if (code >= 0xDC00 && code < 0xE000) {
        code = -1;
    }
    if (code < 0) {
        ignis__json_fail(json,
                         "\\u is not followed by the four digits of a character, or of two surrogates in their order");
        return out;
    }
    return out + ignis__utf8_write(out, (uint32_t)code);
}

/*  Reads a string, decoded and zero-terminated. *size is its length, because it may contain zeros. "" after a fault. */
IGNIS__COLD IGNIS__PRIVATE const char *ignis__json_string(ignis__json *json, size_t *size)
{
    char *text, *out;
    int length;
    *size = 0;
    if (!ignis__json_take(json, '"')) {
        ignis__json_fail(json, "a string is missing");
        return "";
    }
    text = out = json->at;
    while (!json->fault[0] && json->at < json->end && *json->at != '"') {
        if (*json->at == '\\') {
            json->at++;
            out = ignis__json_escape(json, out);
        } else if ((unsigned char)*json->at < ' ') {
            ignis__json_fail(json, "a string holds the control character 0x%02x, which must be escaped",
                             (unsigned)(unsigned char)*json->at);
        } else if ((length = ignis__utf8_length(json->at, (size_t)(json->end - json->at))) == 0) {
            ignis__json_fail(json, "a string is not well-formed UTF-8");
        } else {
            memmove(out, json->at, (size_t)length);
            json->at += length;
            out += length;
        }
    }
    if (json->at == json->end)
        ignis__json_fail(json, "%s ends inside a string", json->what ? json->what : "the header");
    if (json->fault[0])
        return "";
    json->at++;
    *out = 0; /* at the closing quote, or before it */
    *size = (size_t)(out - text);
    return text;
}

/*  Reads an integer from 0 to 2^63 - 1. 0 after a fault. */
IGNIS__COLD IGNIS__PRIVATE int64_t ignis__json_count(ignis__json *json)
{
    int64_t value = 0;
    const char *digits;
    char c = ignis__json_peek(json);
    if (c < '0' || c > '9') {
        ignis__json_fail(json, "a whole number of 0 or more is missing");
        return 0;
    }
    for (digits = json->at; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++) {
        if (value > (INT64_MAX - (*json->at - '0')) / 10) {
            ignis__json_fail(json, "a number does not fit 63 bits");
            return 0;
        }
        value = value * 10 + (*json->at - '0');
    }
    if (json->at < json->end && (*json->at == '.' || *json->at == 'e' || *json->at == 'E'))
        ignis__json_fail(json, "a number is not whole");
    else if (*digits == '0' && json->at - digits > 1)
        ignis__json_fail(json, "a number begins with 0");
    return json->fault[0] ? 0 : value;
}

/*  Skips the digits of a number. False if there are none. */
static bool ignis__json_digits(ignis__json *json)
{
    const char *digits = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
        json->at++;
    return json->at > digits;
}

/*  Skips true, false, null, a number or a string. */
IGNIS__PRIVATE void ignis__json_skip_scalar(ignis__json *json)
{
    static const char *const words[] = {"true", "false", "null"};
    char c = ignis__json_peek(json);
    size_t size;
    bool ok;
    int i;
    if (c == '"') {
        ignis__json_string(json, &size);
        return;
    }
    for (i = 0; i < IGNIS__COUNT(words); i++) {
        size = strlen(words[i]);
        if ((size_t)(json->end - json->at) >= size && memcmp(json->at, words[i], size) == 0) {
            json->at += size;
            return;
        }
    }
    if (c == '-')
        json->at++;
    if (json->at < json->end && *json->at == '0')
        ok = (json->at++, true);
    else
        ok = ignis__json_digits(json);
    if (ok && json->at < json->end && *json->at == '.')
        ok = (json->at++, ignis__json_digits(json));
    if (ok && json->at < json->end && (*json->at == 'e' || *json->at == 'E')) {
        json->at++;
        if (json->at < json->end && (*json->at == '+' || *json->at == '-'))
            json->at++;
        ok = ignis__json_digits(json);
    }
    if (!ok)
        ignis__json_fail(json, "a value is missing");
}

/*  Returns the value of validated digits: exact up to 2^53 and 22 decimals, else nearly. Not strtod, which depends on
    the program's locale. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE double ignis__decimal(const char *text, const char *end)
{
    double value = 0, power = 1, factor = 10;
    bool negative = text < end && *text == '-', fraction = false, shrinks;
    int exponent = 0, shift = 0;
    uint64_t digits = 0;
    for (text += negative; text < end && *text != 'e' && *text != 'E'; text++) {
        if (*text == '.') {
            fraction = true;
        } else if (digits < UINT64_C(1000000000000000000)) {
            digits = digits * 10 + (uint64_t)(*text - '0');
            shift -= fraction;
        } else {
            shift += !fraction;
        }
    }
    if (text < end) {
        shrinks = text + 1 < end && text[1] == '-';
        for (text += text + 1 < end && (shrinks || text[1] == '+') ? 2 : 1; text < end && exponent < 100000; text++)
            exponent = exponent * 10 + (*text - '0');
        shift += shrinks ? -exponent : exponent;
    }
    value = (double)digits;
    for (exponent = shift < 0 ? -shift : shift; exponent && digits; exponent >>= 1, factor *= factor)
        power *= exponent & 1 ? factor : 1;
    value = digits == 0 ? 0 : shift < 0 ? value / power : value * power;
    return negative ? -value : value;
}

/*  Reads any number. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE double ignis__json_number(ignis__json *json)
{
    const char *begin;
    char c = ignis__json_peek(json);
    begin = json->at;
    if (c != '-' && (c < '0' || c > '9')) {
        ignis__json_fail(json, "a number is missing");
        return 0;
    }
    ignis__json_skip_scalar(json);
    return json->fault[0] ? 0 : ignis__decimal(begin, json->at);
}

/*  Skips a value of any kind. */
IGNIS__PRIVATE void ignis__json_skip(ignis__json *json)
{
    uint64_t objects = 0; /* the open brackets, the innermost in the lowest bit: 1 for an object, 0 for an array */
    int depth = 0;
    size_t size;
    while (!json->fault[0]) {
        char c = ignis__json_peek(json);
        bool first = c == '{' || c == '[';
        if (first && depth == IGNIS__JSON_DEPTH) {
            ignis__json_fail(json, "values are nested deeper than %d", IGNIS__JSON_DEPTH);
        } else if (first) {
            json->at++;
            objects = objects << 1 | (uint64_t)(c == '{');
            depth++;
        } else {
            ignis__json_skip_scalar(json);
        }
        while (depth > 0 && !ignis__json_more(json, objects & 1 ? '}' : ']', &first)) {
            objects >>= 1;
            depth--;
        }
        if (depth == 0)
            return;
        if (objects & 1) {
            ignis__json_string(json, &size);
            ignis__json_expect(json, ':');
        }
    }
}
