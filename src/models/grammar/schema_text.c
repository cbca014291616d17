/*  models/grammar/schema_text.c - the text of a JSON schema: members, strings, counts, references; literals of rules

    The text was checked to be valid JSON before.
    May use: grammar.c, base/json.c, tokenizer/byte_buffer.c. Locks: none. */

#include "room.h"

IGNIS__PRIVATE const char *const ignis__schema_words[IGNIS__SCHEMA_WORDS] = {
    "type",
    "enum",
    "const",
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "properties",
    "required",
    "additionalProperties",
    "prefixItems",
    "items",
    "additionalItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
};

IGNIS__PRIVATE const char *const ignis__schema_types[7] = {"object",  "array",   "string", "number",
                                                           "integer", "boolean", "null"};

/*  Skips parts of valid JSON. Returns the next character after white space; the place after a value; the first element
    of an array or key of an object, and the one after a value (NULL at the end); the value of a key. */
IGNIS__PRIVATE const char *ignis__schema_skip_blank(const char *at) { return at + strspn(at, " \t\r\n"); }

IGNIS__PRIVATE const char *ignis__schema_value_end(const char *at)
{
    int depth = 0;
    do {
        if (*at == '"')
            for (at++; *at != '"'; at++)
                at += *at == '\\';
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        at++;
    } while (depth > 0 || (*at && at[-1] != '"' && at[-1] != '}' && at[-1] != ']' && !strchr(",:]} \t\r\n", *at)));
    return at;
}

IGNIS__PRIVATE const char *ignis__schema_first(const char *at)
{
    at = ignis__schema_skip_blank(at + 1);
    return *at == ']' || *at == '}' ? NULL : at;
}

IGNIS__PRIVATE const char *ignis__schema_value(const char *key)
{
    return ignis__schema_skip_blank(ignis__schema_skip_blank(ignis__schema_value_end(key)) + 1);
}

/*  Writes the place of a byte as a JSON pointer, such as "#/properties/name". */
IGNIS__COLD static void ignis__schema_write_path(const char *at, const char *place, char *to, size_t size)
{
    size_t used = 1;
    snprintf(to, size, "#");
    at = ignis__schema_skip_blank(at);
    while (*at == '{' || *at == '[') {
        const char *key = ignis__schema_first(at), *value = key, *behind = key;
        int number = 0, length = 0;
        bool named = *at == '{';
        for (; key; number++) {
            value = named ? ignis__schema_value(key) : key;
            behind = ignis__schema_skip_blank(ignis__schema_value_end(value));
            if (place < behind)
                break;
            key = *behind == ',' ? ignis__schema_skip_blank(behind + 1) : NULL;
        }
        if (!key || place < key)
            return;
        if (named)
            length = snprintf(
                to + used, size - used, "/%.*s",
                (int)(ignis__schema_value_end(key) - key > 60 ? 60 : ignis__schema_value_end(key) - key - 2), key + 1);
        else
            length = snprintf(to + used, size - used, "/%d", number);
        if (length < 0 || (size_t)length >= size - used)
            return;
        used += (size_t)length;
        at = value;
        if (place <= value)
            return;
    }
}

IGNIS__PRINTF(4, 5)
IGNIS__COLD IGNIS__PRIVATE void ignis__schema_fail(ignis__schema *schema, ignis_diagnostic diagnostic, const char *at,
                                                   const char *format, ...)
{
    char text[200], path[100];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ignis__schema_write_path(schema->text, at, path, sizeof path);
    ignis__grammar_fail(schema->grammar, diagnostic, NULL, "at byte %lld of the schema, %s (%s)",
                        (long long)(at - schema->text), text, path);
}

IGNIS__COLD IGNIS__PRIVATE void ignis__schema_fail_memory(ignis__schema *schema)
{
    ignis__grammar_fail(schema->grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE void ignis__schema_write(ignis__schema *schema, ignis__bytes *to, const char *format, ...)
{
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!ignis__bytes_add(to, text, strlen(text)))
        ignis__schema_fail_memory(schema);
}

/*  Counts the bytes that a search in the schema has read. A fault if there are too many. */
IGNIS__PRIVATE void ignis__schema_count_work(ignis__schema *schema, int64_t bytes)
{
    schema->work += bytes;
    if (schema->work > IGNIS__SCHEMA_WORK)
        ignis__grammar_fail(schema->grammar, IGNIS_DIAG_UNSUPPORTED, NULL,
                            "the schema is too large: its names are looked for in more than %lld bytes",
                            (long long)IGNIS__SCHEMA_WORK);
}

IGNIS__PRIVATE const char *ignis__schema_next(ignis__schema *schema, const char *value)
{
    const char *behind = ignis__schema_skip_blank(ignis__schema_value_end(value));
    ignis__schema_count_work(schema, behind - value);
    return *behind == ',' && !schema->grammar->diagnostic ? ignis__schema_skip_blank(behind + 1) : NULL;
}

/*  Returns the bytes of a string. Escapes are replaced in one of two buffers. */
IGNIS__PRIVATE const char *ignis__schema_read_string(ignis__schema *schema, const char *at, int place, size_t *size)
{
    const char *end = ignis__schema_value_end(at);
    ignis__bytes *copy = &schema->names[place];
    ignis__json json = IGNIS__ZERO;
    ignis__schema_count_work(schema, end - at);
    *size = (size_t)(end - at) - 2;
    if (*at != '"' || !memchr(at, '\\', (size_t)(end - at)))
        return at + 1;
    copy->size = 0;
    if (!ignis__bytes_add(copy, at, (size_t)(end - at))) {
        ignis__grammar_fail(schema->grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
        return at + 1;
    }
    json.start = json.at = copy->data;
    json.end = copy->data + copy->size;
    return ignis__json_string(&json, size);
}

/*  Tells whether a string, such as a key, has these bytes. */
IGNIS__PRIVATE bool ignis__schema_string_is(ignis__schema *schema, const char *at, const char *name, size_t size)
{
    size_t length;
    const char *text = ignis__schema_read_string(schema, at, 0, &length);
    return *at == '"' && length == size && memcmp(text, name, size) == 0;
}

IGNIS__PRIVATE bool ignis__schema_strings_equal(ignis__schema *schema, const char *a, const char *b)
{
    size_t size;
    const char *name = ignis__schema_read_string(schema, b, 1, &size);
    return *b == '"' && ignis__schema_string_is(schema, a, name, size);
}

/*  Returns the value of a key with these bytes; NULL if it is missing. */
IGNIS__PRIVATE const char *ignis__schema_find_member(ignis__schema *schema, const char *object, const char *name,
                                                     size_t size)
{
    const char *key = ignis__schema_first(object);
    while (key && !ignis__schema_string_is(schema, key, name, size))
        key = ignis__schema_next(schema, ignis__schema_value(key));
    return key ? ignis__schema_value(key) : NULL;
}

/*  Returns the element of an array whose number has these bytes; NULL if it is missing. */
IGNIS__PRIVATE const char *ignis__schema_find_element(ignis__schema *schema, const char *array, const char *number,
                                                      size_t size)
{
    const char *value = ignis__schema_first(array);
    int64_t left = 0;
    size_t i;
    for (i = 0; i < size && i < 10 && ignis__formula_is_digit(number[i]); i++)
        left = left * 10 + (number[i] - '0');
    if (size == 0 || i < size || (size > 1 && *number == '0'))
        return NULL;
    while (value && left-- > 0)
        value = ignis__schema_next(schema, value);
    return value;
}

IGNIS__PRIVATE int ignis__schema_count(ignis__schema *schema, const char *at, int otherwise)
{
    ignis__json json = IGNIS__ZERO;
    int64_t count;
    if (!at)
        return otherwise;
    json.start = json.at = (char *)(uintptr_t)at; /* numbers are not modified */
    json.end = json.at + strspn(at, "-+.eE0123456789");
    count = ignis__json_count(&json);
    if (json.fault[0] || count > IGNIS__GRAMMAR_PARTS)
        ignis__schema_fail_malformed(schema, at, "this has to be a whole number from 0 to %d",
                                     (int)IGNIS__GRAMMAR_PARTS);
    return (int)count;
}

/*  Reads the least and the most count from the two keywords at `word`. most is below 0 if there is no limit. Fails if
    one schema has a least above its most; the callers treat contradictions between schemas. */
IGNIS__PRIVATE void ignis__schema_read_counts(ignis__schema *schema, const ignis__schema_merged *merged, int word,
                                              int *least, int *most)
{
    int i;
    *least = 0;
    *most = -1;
    for (i = 0; i < merged->count && !schema->grammar->diagnostic; i++) {
        const char *const *has = merged->node[i].has;
        int low = ignis__schema_count(schema, has[word], 0), high = ignis__schema_count(schema, has[word + 1], -1);
        if (high >= 0 && low > high)
            ignis__schema_fail_malformed(schema, merged->node[i].at, "no text fits: %s is %d, and %s %d",
                                         ignis__schema_words[word], low, ignis__schema_words[word + 1], high);
        *least = low > *least ? low : *least;
        *most = high >= 0 && (*most < 0 || high < *most) ? high : *most;
    }
}

/*  Resolves a JSON pointer in a fragment, such as "#/$defs/name" or "#/anyOf/0" (RFC 6901): %xx is a byte, ~1
    a slash, ~0 a tilde. */
IGNIS__PRIVATE const char *ignis__schema_resolve(ignis__schema *schema, const char *ref)
{
    const char *at = ignis__schema_skip_blank(schema->text), *text, *known;
    static const char digits[] = "0123456789abcdefABCDEF";
    char *name;
    size_t size, from, to = 0, end;
    ignis__bytes copy = IGNIS__ZERO;
    text = ignis__schema_read_string(schema, ref, 1, &size);
    if (*ref != '"' || size == 0 || text[0] != '#' || (size > 1 && text[1] != '/')) {
        ignis__schema_fail_unsupported(schema, ref,
                                       "$ref is supported as \"#\" and \"#/...\", a place in the schema itself");
        return NULL;
    }
    if (!ignis__bytes_add(&copy, text, size)) {
        ignis__grammar_fail(schema->grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
        return NULL;
    }
    for (name = copy.data, from = 1; from < size && at; from++) {
        unsigned byte[2] = {0, 0};
        int k;
        for (k = 0; name[from] == '%' && k < 2; k++) {
            known = from + 2 < size && name[from + 1 + (size_t)k] ? strchr(digits, name[from + 1 + (size_t)k]) : NULL;
            at = known ? at : NULL;
            byte[k] = known ? (unsigned)(known - digits > 15 ? known - digits - 6 : known - digits) : 0;
        }
        name[to++] = k ? (char)(byte[0] * 16 + byte[1]) : name[from];
        from += k ? 2 : 0;
    }
    for (size = to, from = 0; at && from < size; from = end) { /* after a slash */
        for (end = ++from, to = from; end < size && name[end] != '/'; end++) {
            name[to] = name[end];
            if (name[end] == '~' && end + 1 < size && (name[end + 1] == '0' || name[end + 1] == '1'))
                name[to] = name[++end] == '0' ? '~' : '/';
            else if (name[end] == '~')
                at = NULL;
            to++;
        }
        at = !at          ? NULL
             : *at == '{' ? ignis__schema_find_member(schema, at, name + from, to - from)
             : *at == '[' ? ignis__schema_find_element(schema, at, name + from, to - from)
                          : NULL;
    }
    ignis__free(copy.data);
    if (!at)
        ignis__schema_fail_malformed(schema, ref, "there is nothing that $ref refers to");
    return schema->grammar->diagnostic ? NULL : at;
}

/*  Writes a value as a literal: strings with the fewest escapes, without white space. */
IGNIS__PRIVATE void ignis__schema_write_literal(ignis__schema *schema, ignis__bytes *to, const char *value)
{
    const char *end = ignis__schema_value_end(value), *text;
    ignis__bytes copy = IGNIS__ZERO;
    ignis__json json = IGNIS__ZERO;
    size_t size = 0, i;
    ignis__schema_write(schema, to, "\"");
    for (; value < end && !schema->grammar->diagnostic; value++) {
        if (*value == '"') { /* a string: its escapes are replaced and written again */
            text = ignis__schema_value_end(value);
            copy.size = 0;
            if (!ignis__bytes_add(&copy, value, (size_t)(text - value))) {
                ignis__grammar_fail(schema->grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
                break;
            }
            json.start = json.at = copy.data;
            json.end = copy.data + copy.size;
            value = text - 1;
            text = ignis__json_string(&json, &size);
            ignis__schema_write(schema, to, "\\\"");
            for (i = 0; i < size; i++)
                if (text[i] == '"' || text[i] == '\\')
                    ignis__schema_write(schema, to, "\\\\\\%c", text[i]);
                else if (text[i] == '\n')
                    ignis__schema_write(schema, to, "\\\\n");
                else if ((unsigned char)text[i] < ' ')
                    ignis__schema_write(schema, to, "\\\\u%04x", (unsigned)text[i]);
                else
                    ignis__schema_write(schema, to, "%c", text[i]);
            ignis__schema_write(schema, to, "\\\"");
        } else if (!strchr(" \t\r\n", *value)) {
            ignis__schema_write(schema, to, "%c", *value);
        }
    }
    ignis__free(copy.data);
    ignis__schema_write(schema, to, "\"");
}

/*  Writes a string as a literal of plain text; nothing, if the marker occurs in it, or if it is another value. */
IGNIS__PRIVATE void ignis__schema_write_plain(ignis__schema *schema, ignis__bytes *to, const char *value)
{
    size_t size = 0, i, marker = strlen(schema->marker);
    const char *text = *value == '"' ? ignis__schema_read_string(schema, value, 0, &size) : NULL;
    for (i = 0; i + marker <= size && memcmp(text + i, schema->marker, marker) != 0;)
        i++;
    if (!text || i + marker <= size) {
        ignis__schema_write(schema, to, "nothing");
        return;
    }
    ignis__schema_write(schema, to, "\"");
    for (i = 0; i < size; i++)
        if (text[i] == '"' || text[i] == '\\')
            ignis__schema_write(schema, to, "\\%c", text[i]);
        else if ((unsigned char)text[i] < ' ')
            ignis__schema_write(schema, to, "\\x%02x", (unsigned)text[i]);
        else
            ignis__schema_write(schema, to, "%c", text[i]);
    ignis__schema_write(schema, to, "\"");
}

/*  Writes the name of the rule of a set of schemas that hold together. The rule is written later if it is new. */
IGNIS__PRIVATE void ignis__schema_write_name(ignis__schema *schema, ignis__bytes *to,
                                             const ignis__schema_element *elements, int count)
{
    const ignis__schema_set *sets = (const ignis__schema_set *)(const void *)schema->sets.items;
    ignis__schema_set *set;
    ignis__schema_element *element;
    bool alone = count == 1 && elements[0] % 8 == 0;
    int64_t number = alone ? schema->set_of[elements[0] / 8] - 1 : 0;
    int i;
    if (count == 0) {
        ignis__schema_write(schema, to, "value");
        return;
    }
    if (!alone) {
        for (; number < schema->sets.count; number++)
            if (sets[number].count == count &&
                memcmp((const ignis__schema_element *)(const void *)schema->elements.items + sets[number].first,
                       elements, sizeof *elements * (size_t)count) == 0)
                break;
        ignis__schema_count_work(schema, number);
    }
    if (number < 0 || number == schema->sets.count) {
        number = schema->sets.count;
        if ((set = (ignis__schema_set *)ignis__grammar_add(schema->grammar, &schema->sets)) == NULL)
            return;
        set->first = schema->elements.count;
        set->count = count;
        for (i = 0; i < count; i++) {
            if ((element = (ignis__schema_element *)ignis__grammar_add(schema->grammar, &schema->elements)) == NULL)
                return;
            *element = elements[i];
        }
        if (alone)
            schema->set_of[elements[0] / 8] = (int32_t)number + 1;
    }
    ignis__schema_write(schema, to, "v%lld", (long long)(schema->first_set + number));
}

/*  Writes {least,most}, a repetition of the item before it. */
IGNIS__PRIVATE void ignis__schema_write_times(ignis__schema *schema, ignis__bytes *to, int least, int most)
{
    if (most >= 0)
        ignis__schema_write(schema, to, "{%d,%d}", least, most);
    else
        ignis__schema_write(schema, to, "{%d,}", least);
}
