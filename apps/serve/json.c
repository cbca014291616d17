// SPDX-License-Identifier: MIT
/*  json.c - reads JSON into a tree of values, and prints it */

typedef enum json_kind {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
} json_kind;

/*  A value. Its strings are in the place of the text, decoded, with a 0 behind. */
typedef struct json {
    json_kind kind;
    struct json *first, *next; /* the first of those inside, the next one beside */
    int count;                 /* of those inside */
    char *key, *string;
    const char *digits; /* of a number, as they were written, without an end */
    size_t size;        /* of the string, or of the digits */
    double number;
} json;

typedef struct json_reader {
    json *values; /* the first one is the whole */
    size_t count, most;
    int depth;
    char *at, *end;
    const char *error; /* what is wrong at `at` */
    bool lenient;      /* strings may have the character U+0000, which ends them; keys may be equal; depth is 500 */
} json_reader;

static bool json_fail(json_reader *r, const char *what)
{
    r->error = what;
    return false;
}

static bool json_take(json_reader *r, char c)
{
    r->at += strspn(r->at, " \t\n\r");
    if (*r->at != c)
        return false;
    r->at++;
    return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/*  Reads "u" and four hexadecimal digits; -1 if there is something else. */
static int json_unit(json_reader *r)
{
    char digits[5] = "";
    if (*r->at != 'u' || strspn(++r->at, "0123456789abcdefABCDEF") < 4)
        return -1;
    memcpy(digits, r->at, 4);
    r->at += 4;
    return (int)strtol(digits, NULL, 16);
}

/*  Decodes the escape behind a backslash to *to. A decoded character is never longer than its escape. */
static bool json_escape(json_reader *r, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    const char *known = *r->at ? strchr(from, *r->at) : NULL;
    int unit, low, length, i;
    if (known) {
        r->at++;
        *(*to)++ = into[known - from];
        return true;
    }
    unit = json_unit(r);
    if (unit < 0 || (unit == 0 && !r->lenient))
        return json_fail(r, unit ? "an escape that JSON does not have" : "the character U+0000, which no text has");
    if (unit >= 0xD800 && unit < 0xE000) { /* two of them are one character */
        low = unit < 0xDC00 && *r->at == '\\' ? (r->at++, json_unit(r)) : -1;
        if (low < 0xDC00 || low > 0xDFFF)
            return json_fail(r, "half of a surrogate pair");
        unit = 0x10000 + (unit - 0xD800) * 0x400 + low - 0xDC00;
    }
    length = unit < 0x80 ? 1 : unit < 0x800 ? 2 : unit < 0x10000 ? 3 : 4;
    for (i = length - 1; i > 0; i--, unit >>= 6)
        (*to)[i] = (char)(0x80 | (unit & 63));
    (*to)[0] = (char)(length == 1 ? unit : unit | 0xF00 >> length);
    *to += length;
    return true;
}

static bool json_string(json_reader *r, char **string, size_t *size)
{
    char *to;
    if (!json_take(r, '"'))
        return json_fail(r, "something else than a string");
    for (*string = to = r->at; *r->at != '"';) {
        if ((unsigned char)*r->at < 0x20)
            return json_fail(r, r->at == r->end ? "a string without an end" : "a control character in a string");
        if (*r->at != '\\')
            *to++ = *r->at++;
        else if (r->at++, !json_escape(r, &to))
            return false;
    }
    r->at++;
    *to = 0; /* in place of the closing quotation mark, or before it */
    *size = (size_t)(to - *string);
    return true;
}

/*  Reads a number. strtod knows more forms of them than JSON. */
static bool json_number(json_reader *r, json *value)
{
    char *start = r->at, *digits = start + (*start == '-'), *dot;
    size_t size = strspn(start, "+-.0123456789eE");
    dot = (char *)memchr(start, '.', size);
    value->digits = start;
    value->size = size;
    value->number = strtod(start, &r->at);
    if (r->at != start + size || !is_digit(*digits) || (*digits == '0' && is_digit(digits[1])) ||
        (dot && !is_digit(dot[1])))
        return r->at = start, json_fail(r, "a number that JSON does not have");
    return isfinite(value->number) || json_fail(r, "a number that is too large");
}

/*  Reads the next value to values[count]; those inside an array or an object follow it. */
static bool json_value(json_reader *r)
{
    static const char *const words[] = {"null", "false", "true"};
    json *value = &r->values[r->count], **last = &value->first, *other;
    char close;
    int i;
    r->at += strspn(r->at, " \t\n\r");
    if (r->at == r->end || r->count == r->most)
        return json_fail(r, r->at == r->end ? "nothing more" : "too many values");
    memset(value, 0, sizeof *value);
    r->count++;
    for (i = JSON_NULL; i <= JSON_TRUE; i++)
        if (strncmp(r->at, words[i], strlen(words[i])) == 0) {
            value->kind = (json_kind)i;
            r->at += strlen(words[i]);
            return true;
        }
    value->kind = *r->at == '"' ? JSON_STRING : *r->at == '[' ? JSON_ARRAY : *r->at == '{' ? JSON_OBJECT : JSON_NUMBER;
    if (value->kind == JSON_STRING)
        return json_string(r, &value->string, &value->size);
    if (value->kind == JSON_NUMBER)
        return *r->at == '-' || is_digit(*r->at) ? json_number(r, value) : json_fail(r, "something that is no value");
    close = (char)(value->kind == JSON_ARRAY ? ']' : '}');
    r->at++;
    if (json_take(r, close))
        return true;
    if (++r->depth > (r->lenient ? 500 : MAX_DEPTH))
        return json_fail(r, "values nested too deeply");
    do {
        char *key = NULL;
        size_t size;
        if (value->kind == JSON_OBJECT) {
            if (!json_string(r, &key, &size))
                return false;
            for (other = r->lenient ? NULL : value->first; other; other = other->next)
                if (strcmp(other->key, key) == 0)
                    return json_fail(r, "a key that was there before");
            if ((value->count == MAX_MEMBERS && !r->lenient) || !json_take(r, ':'))
                return json_fail(r, value->count == MAX_MEMBERS && !r->lenient ? "too many keys"
                                                                               : "no colon behind a key");
        }
        other = &r->values[r->count];
        if (!json_value(r))
            return false;
        other->key = key;
        *last = other;
        last = &other->next;
        value->count++;
    } while (json_take(r, ','));
    r->depth--;
    return json_take(r, close) || json_fail(r, close == ']' ? "neither a comma nor the end of an array"
                                                            : "neither a comma nor the end of an object");
}

static bool json_read_with(json_reader *r, text *source, bool lenient)
{
    int length;
    memset(r, 0, sizeof *r);
    r->lenient = lenient;
    r->end = source->data + source->size;
    for (r->at = source->data; r->at < r->end; r->at += length) {
        length = utf8_length(r->at, (size_t)(r->end - r->at));
        if (length <= 0)
            return json_fail(r, "text that is not UTF-8");
    }
    r->at = source->data;
    r->most = source->size < MAX_VALUES ? source->size : MAX_VALUES; /* a value has a byte, at least */
    r->values = (json *)resize(NULL, sizeof *r->values * (r->most + 1));
    if (!json_value(r))
        return false;
    r->at += strspn(r->at, " \t\n\r");
    return r->at == r->end || json_fail(r, "more than one value");
}

/*  Reads a whole text, which is overwritten. The caller frees r->values in any case. */
static bool json_read(json_reader *r, text *source) { return json_read_with(r, source, false); }

/*  Returns the value under a key; NULL if it is null or missing, or if this is no object. */
static const json *member(const json *object, const char *key)
{
    const json *m = object && object->kind == JSON_OBJECT ? object->first : NULL;
    while (m && strcmp(m->key, key) != 0)
        m = m->next;
    return m && m->kind != JSON_NULL ? m : NULL;
}

static bool is_text(const json *value, const char *string)
{
    return value && value->kind == JSON_STRING && strcmp(value->string, string) == 0;
}

/*  Prints a value, without its key. */
static void json_print(text *t, const json *value)
{
    static const char *const words[] = {"null", "false", "true"};
    const json *one;
    char number[40];
    if (value->kind < JSON_NUMBER) {
        text_print(t, "%s", words[value->kind]);
    } else if (value->kind == JSON_NUMBER) {
        snprintf(number, sizeof number, "%.15g", value->number);
        text_print(t, strtod(number, NULL) == value->number ? "%.15g" : "%.17g", value->number);
    } else if (value->kind == JSON_STRING) {
        text_print(t, "\""), text_escape(t, value->string, value->size), text_print(t, "\"");
    } else {
        text_print(t, value->kind == JSON_ARRAY ? "[" : "{");
        for (one = value->first; one; one = one->next) {
            text_print(t, one == value->first ? "" : ",");
            if (one->key)
                text_print(t, "\""), text_escape(t, one->key, strlen(one->key)), text_print(t, "\":");
            json_print(t, one);
        }
        text_print(t, value->kind == JSON_ARRAY ? "]" : "}");
    }
}

/*  Prints the schema of a tool's arguments, which may be missing. */
static void print_schema(text *t, const json *schema)
{
    if (schema && schema->kind == JSON_OBJECT && schema->count)
        json_print(t, schema);
    else
        text_print(t, "{\"type\":\"object\",\"additionalProperties\":false}");
}
