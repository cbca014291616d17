/*  models/grammar/json_schema.c - translates a JSON schema to GBNF; ignis_grammar_check

    Each schema inside the text becomes a rule, named after its byte offset. Unsupported keywords are refused
    by name.
    May use: gbnf.c, tokenizer/byte_buffer.c. Locks: none. */

#include "room.h"

/*  The rules that every schema shares. White space and numbers are bounded: random sampling would not end
    them. */
static const char *const ignis__schema_rules[] = {
    "ws ::= \" \"? | \"\\n\" [ \\t]{0,32}\n",
    "value ::= object | array | string | number | boolean | null\n",
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)* ws)? \"}\"\n",
    "array ::= \"[\" ws (value (\",\" ws value)* ws)? \"]\"\n",
    "string ::= \"\\\"\" char* \"\\\"\"\n",
    "char ::= [^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" ([0-9a-cA-CefEF] hex{3} | [dD] ([0-7] hex{2} | ",
    "[89abAB] hex{2} \"\\\\u\" [dD] [c-fC-F] hex{2})))\n",
    "hex ::= [0-9a-fA-F]\n",
    "number ::= integer (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?\n",
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n",
    "boolean ::= \"true\" | \"false\"\n",
    "null ::= \"null\"\n",
};

/*  Keywords of a schema. From the description on they do not constrain texts. */
typedef enum ignis__schema_word {
    IGNIS__SCHEMA_TYPE,
    IGNIS__SCHEMA_ENUM,
    IGNIS__SCHEMA_CONST,
    IGNIS__SCHEMA_REF,
    IGNIS__SCHEMA_ANY_OF,
    IGNIS__SCHEMA_ONE_OF,
    IGNIS__SCHEMA_PROPERTIES,
    IGNIS__SCHEMA_REQUIRED,
    IGNIS__SCHEMA_ADDITIONAL,
    IGNIS__SCHEMA_ITEMS,
    IGNIS__SCHEMA_MIN_ITEMS,
    IGNIS__SCHEMA_MAX_ITEMS,
    IGNIS__SCHEMA_MIN_LENGTH,
    IGNIS__SCHEMA_MAX_LENGTH,
    IGNIS__SCHEMA_DESCRIPTION,
    IGNIS__SCHEMA_WORDS = IGNIS__SCHEMA_DESCRIPTION + 12
} ignis__schema_word;

static const char *const ignis__schema_words[IGNIS__SCHEMA_WORDS] = {"type",       "enum",       "const",
                                                                     "$ref",       "anyOf",      "oneOf",
                                                                     "properties", "required",   "additionalProperties",
                                                                     "items",      "minItems",   "maxItems",
                                                                     "minLength",  "maxLength",  "description",
                                                                     "title",      "default",    "examples",
                                                                     "$schema",    "$id",        "$comment",
                                                                     "deprecated", "readOnly",   "writeOnly",
                                                                     "$defs",      "definitions"};

enum { IGNIS__SCHEMA_OBJECT, IGNIS__SCHEMA_ARRAY, IGNIS__SCHEMA_STRING, IGNIS__SCHEMA_TYPES = 7 };
static const char *const ignis__schema_types[IGNIS__SCHEMA_TYPES] = {"object",  "array",   "string", "number",
                                                                     "integer", "boolean", "null"};

typedef struct ignis__schema {
    ignis__grammar *grammar;
    const char *text;           /* valid JSON; the schema at byte n becomes the rule vn */
    ignis__bytes out, deferred; /* later: written after the line that is being written */
    bool *has_rule;             /* by byte: its rule is written or pending */
    ignis__list pending;        /* offsets of pending schemas */
    ignis__bytes names[2];      /* names whose escapes were replaced */
    int64_t work;               /* bytes that were read */
} ignis__schema;
#define IGNIS__SCHEMA_WORK ((int64_t)1 << 27)

IGNIS__PRINTF(4, 5)
IGNIS__COLD static void ignis__schema_fail(ignis__schema *schema, ignis_diagnostic diagnostic, const char *at,
                                           const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ignis__grammar_fail(schema->grammar, diagnostic, NULL, "at byte %lld of the schema, %s",
                        (long long)(at - schema->text), text);
}
#define ignis__schema_fail_unsupported(schema, ...) ignis__schema_fail(schema, IGNIS_DIAG_UNSUPPORTED, __VA_ARGS__)
#define ignis__schema_fail_malformed(schema, ...) ignis__schema_fail(schema, IGNIS_DIAG_GRAMMAR, __VA_ARGS__)

IGNIS__PRINTF(3, 4)
IGNIS__COLD static void ignis__schema_write(ignis__schema *schema, ignis__bytes *to, const char *format, ...)
{
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!ignis__bytes_add(to, text, strlen(text)))
        ignis__grammar_fail(schema->grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
}

/*  Skips parts of valid JSON. Returns the next character after white space; the place after a value; the first element
    of an array or key of an object, and the one after a value (NULL at the end); the value of a key. */
static const char *ignis__schema_skip_blank(const char *at) { return at + strspn(at, " \t\r\n"); }

static const char *ignis__schema_value_end(const char *at)
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

static const char *ignis__schema_first(const char *at)
{
    at = ignis__schema_skip_blank(at + 1);
    return *at == ']' || *at == '}' ? NULL : at;
}

/*  Counts the bytes that a search in the schema has read. A fault if there are too many. */
static void ignis__schema_count_work(ignis__schema *schema, const char *from, const char *to)
{
    schema->work += to - from;
    if (schema->work > IGNIS__SCHEMA_WORK)
        ignis__grammar_fail(schema->grammar, IGNIS_DIAG_UNSUPPORTED, NULL,
                            "the schema is too large: its names are looked for in more than %lld bytes",
                            (long long)IGNIS__SCHEMA_WORK);
}

static const char *ignis__schema_next(ignis__schema *schema, const char *value)
{
    const char *behind = ignis__schema_skip_blank(ignis__schema_value_end(value));
    ignis__schema_count_work(schema, value, behind);
    return *behind == ',' && !schema->grammar->diagnostic ? ignis__schema_skip_blank(behind + 1) : NULL;
}

static const char *ignis__schema_value(const char *key)
{
    return ignis__schema_skip_blank(ignis__schema_skip_blank(ignis__schema_value_end(key)) + 1);
}

/*  Returns the bytes of a string. Escapes are replaced in one of two buffers. */
static const char *ignis__schema_read_string(ignis__schema *schema, const char *at, int place, size_t *size)
{
    const char *end = ignis__schema_value_end(at);
    ignis__bytes *copy = &schema->names[place];
    ignis__json json = IGNIS__ZERO;
    ignis__schema_count_work(schema, at, end);
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
static bool ignis__schema_string_is(ignis__schema *schema, const char *at, const char *name, size_t size)
{
    size_t length;
    const char *text = ignis__schema_read_string(schema, at, 0, &length);
    return *at == '"' && length == size && memcmp(text, name, size) == 0;
}

static bool ignis__schema_strings_equal(ignis__schema *schema, const char *a, const char *b)
{
    size_t size;
    const char *name = ignis__schema_read_string(schema, b, 1, &size);
    return *b == '"' && ignis__schema_string_is(schema, a, name, size);
}

/*  Returns the value of a key with these bytes; NULL if it is missing. */
static const char *ignis__schema_find_member(ignis__schema *schema, const char *object, const char *name, size_t size)
{
    const char *key = ignis__schema_first(object);
    while (key && !ignis__schema_string_is(schema, key, name, size))
        key = ignis__schema_next(schema, ignis__schema_value(key));
    return key ? ignis__schema_value(key) : NULL;
}

/*  Returns the element of an array whose number has these bytes; NULL if it is missing. */
static const char *ignis__schema_find_element(ignis__schema *schema, const char *array, const char *number, size_t size)
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

/*  Writes the name of the rule of a schema. The rule is made pending if it is new. */
static void ignis__schema_write_name(ignis__schema *schema, ignis__bytes *to, const char *at)
{
    int64_t *pending =
        schema->has_rule[at - schema->text] ? NULL : (int64_t *)ignis__grammar_add(schema->grammar, &schema->pending);
    if (pending)
        *pending = at - schema->text;
    schema->has_rule[at - schema->text] = true;
    ignis__schema_write(schema, to, "v%lld", (long long)(at - schema->text));
}

/*  Writes a value as a literal: strings with the fewest escapes, without white space. */
static void ignis__schema_write_literal(ignis__schema *schema, ignis__bytes *to, const char *value)
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

static int ignis__schema_count(ignis__schema *schema, const char *at, int otherwise)
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

/*  Reads the least and the most count from the two keywords at `word`. A fault if least is above most. most
    is below 0 if there is no limit. */
static bool ignis__schema_read_counts(ignis__schema *schema, const char *at, const char *const *has, int word,
                                      int *least, int *most)
{
    *least = ignis__schema_count(schema, has[word], 0);
    *most = ignis__schema_count(schema, has[word + 1], -1);
    if (*most >= 0 && *least > *most)
        ignis__schema_fail_malformed(schema, at, "no text fits: %s is %d, and %s %d", ignis__schema_words[word], *least,
                                     ignis__schema_words[word + 1], *most);
    return !schema->grammar->diagnostic;
}

/*  Writes {least,most}, a repetition of the item before it. */
static void ignis__schema_write_times(ignis__schema *schema, int least, int most)
{
    if (most >= 0)
        ignis__schema_write(schema, &schema->out, "{%d,%d}", least, most);
    else
        ignis__schema_write(schema, &schema->out, "{%d,}", least);
}

/*  Writes the rules of an object. Properties keep their order. Rule vN-i is what may follow from property i
    on; its form with r follows another property. */
static void ignis__schema_write_object(ignis__schema *schema, const char *at, const char *const *has)
{
    const char *key = has[IGNIS__SCHEMA_PROPERTIES] ? ignis__schema_first(has[IGNIS__SCHEMA_PROPERTIES]) : NULL, *name,
               *other;
    const char *more = has[IGNIS__SCHEMA_ADDITIONAL];
    long long number = at - schema->text;
    int i = 0, behind;
    if ((has[IGNIS__SCHEMA_PROPERTIES] && *has[IGNIS__SCHEMA_PROPERTIES] != '{') ||
        (has[IGNIS__SCHEMA_REQUIRED] && *has[IGNIS__SCHEMA_REQUIRED] != '[')) {
        ignis__schema_fail_malformed(schema, at, "properties has to be an object, and required an array");
        return;
    }
    for (name = has[IGNIS__SCHEMA_REQUIRED] ? ignis__schema_first(has[IGNIS__SCHEMA_REQUIRED]) : NULL; name;
         name = ignis__schema_next(schema, name)) {
        for (other = key; other && !ignis__schema_strings_equal(schema, name, other);)
            other = ignis__schema_next(schema, ignis__schema_value(other));
        if (!other)
            ignis__schema_fail_unsupported(schema, name, "what is required is none of the properties");
    }
    if (key && more && *more != 'f')
        ignis__schema_fail_unsupported(schema, more,
                                       "additionalProperties beside properties is not supported, but for false");
    if (!key && (!more || *more == 't')) {
        ignis__schema_write(schema, &schema->out, "object");
    } else if (!key && *more == 'f') {
        ignis__schema_write(schema, &schema->out, "\"{\" ws \"}\"");
    } else if (!key) {
        ignis__schema_write(schema, &schema->out, "\"{\" ws (string \":\" ws ");
        ignis__schema_write_name(schema, &schema->out, more);
        ignis__schema_write(schema, &schema->out, " (\",\" ws string \":\" ws ");
        ignis__schema_write_name(schema, &schema->out, more);
        ignis__schema_write(schema, &schema->out, ")* ws)? \"}\"");
    } else {
        ignis__schema_write(schema, &schema->out, "\"{\" ws v%lld-0 \"}\"", number);
        for (; key && !schema->grammar->diagnostic; key = ignis__schema_next(schema, ignis__schema_value(key)), i++)
            for (behind = 0; behind < 2; behind++) {
                for (name = has[IGNIS__SCHEMA_REQUIRED] ? ignis__schema_first(has[IGNIS__SCHEMA_REQUIRED]) : NULL;
                     name && !ignis__schema_strings_equal(schema, name, key);)
                    name = ignis__schema_next(schema, name);
                ignis__schema_write(schema, &schema->deferred, "v%lld-%d%s ::= %s", number, i, behind ? "r" : "",
                                    behind ? "\",\" ws " : "");
                ignis__schema_write_literal(schema, &schema->deferred, key);
                ignis__schema_write(schema, &schema->deferred, " \":\" ws ");
                ignis__schema_write_name(schema, &schema->deferred, ignis__schema_value(key));
                ignis__schema_write(schema, &schema->deferred, " v%lld-%dr", number, i + 1);
                if (!name)
                    ignis__schema_write(schema, &schema->deferred, " | v%lld-%d%s", number, i + 1, behind ? "r" : "");
                ignis__schema_write(schema, &schema->deferred, "\n");
            }
        ignis__schema_write(schema, &schema->deferred, "v%lld-%d ::= \"\"\nv%lld-%dr ::= ws\n", number, i, number, i);
    }
}

static void ignis__schema_write_array(ignis__schema *schema, const char *at, const char *const *has)
{
    const char *items = has[IGNIS__SCHEMA_ITEMS];
    int least, most, i;
    if (!ignis__schema_read_counts(schema, at, has, IGNIS__SCHEMA_MIN_ITEMS, &least, &most))
        return;
    if (items && *items == 'f') { /* a schema that nothing matches */
        if (least > 0)
            ignis__schema_fail_malformed(schema, at, "no text fits: minItems is %d, and items false", least);
        most = 0;
    }
    ignis__schema_write(schema, &schema->out, "\"[\" ws");
    for (i = 0; i < 2 && most != 0; i++) {
        ignis__schema_write(schema, &schema->out, i ? " (\",\" ws " : " (");
        if (items)
            ignis__schema_write_name(schema, &schema->out, items);
        else
            ignis__schema_write(schema, &schema->out, "value");
        if (i)
            ignis__schema_write(schema, &schema->out, ")");
    }
    if (most != 0) {
        ignis__schema_write_times(schema, least > 0 ? least - 1 : 0, most > 0 ? most - 1 : most);
        ignis__schema_write(schema, &schema->out, least > 0 ? " ws)" : " ws)?");
    }
    ignis__schema_write(schema, &schema->out, " \"]\"");
}

/*  Writes the values of `enum`, or the value of `const`, that have one of the types. */
static void ignis__schema_write_values(ignis__schema *schema, const char *value, bool many, unsigned types)
{
    const char *bar = "", *at = many && *value == '[' ? ignis__schema_first(value) : value;
    if (many && (*value != '[' || !at))
        ignis__schema_fail_malformed(schema, value, "enum has to be an array of at least one value");
    for (; at && !schema->grammar->diagnostic; at = many ? ignis__schema_next(schema, at) : NULL, bar = " | ") {
        size_t digits = strspn(at, "-0123456789");
        unsigned type = *at == '{'                 ? 1u
                        : *at == '['               ? 2u
                        : *at == '"'               ? 4u
                        : *at == 't' || *at == 'f' ? 32u
                        : *at == 'n'               ? 64u
                                                   : 8u;
        if (type == 8 && !strchr(".eE", at[digits]))
            type |= 16;
        if (!(types & type))
            ignis__schema_fail_malformed(schema, at, "this value is none of the schema's type");
        ignis__schema_write(schema, &schema->out, "%s", bar);
        ignis__schema_write_literal(schema, &schema->out, at);
    }
}

/*  Resolves a JSON pointer in a fragment, such as "#/$defs/name" or "#/anyOf/0" (RFC 6901): %xx is a byte, ~1
    a slash, ~0 a tilde. */
static const char *ignis__schema_resolve(ignis__schema *schema, const char *ref)
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

/*  Writes the rule of a schema. */
static void ignis__schema_write_rule(ignis__schema *schema, const char *at)
{
    const char *has[IGNIS__SCHEMA_WORDS] = {NULL}, *key, *value, *bar = "";
    unsigned types = 0;
    int word, constraints = 0, i;
    ignis__schema_write(schema, &schema->out, "v%lld ::= ", (long long)(at - schema->text));
    if (*at != '{') {
        if (*at != 't')
            ignis__schema_fail_malformed(
                schema, at, *at == 'f' ? "false is a schema that nothing fits" : "a schema is an object, or true");
        ignis__schema_write(schema, &schema->out, "value\n");
        return;
    }
    for (key = ignis__schema_first(at); key; key = ignis__schema_next(schema, ignis__schema_value(key))) {
        size_t size = (size_t)(ignis__schema_value_end(key) - key) - 2;
        for (word = 0; word < IGNIS__SCHEMA_WORDS; word++)
            if (strlen(ignis__schema_words[word]) == size && memcmp(key + 1, ignis__schema_words[word], size) == 0)
                break;
        if (word == IGNIS__SCHEMA_WORDS) {
            ignis__schema_fail_unsupported(schema, key, "the keyword '%.*s' is not supported",
                                           size > 60 ? 60 : (int)size, key + 1);
            return;
        }
        constraints += word < IGNIS__SCHEMA_DESCRIPTION;
        has[word] = ignis__schema_value(key);
    }
    if ((value = has[IGNIS__SCHEMA_TYPE]) != NULL)
        for (key = *value == '[' ? ignis__schema_first(value) : value; key;
             key = *value == '[' ? ignis__schema_next(schema, key) : NULL) {
            for (i = 0; i < IGNIS__SCHEMA_TYPES; i++)
                if (strncmp(key + (*key == '"'), ignis__schema_types[i], strlen(ignis__schema_types[i])) == 0 &&
                    (size_t)(ignis__schema_value_end(key) - key) == strlen(ignis__schema_types[i]) + 2)
                    break;
            if (i == IGNIS__SCHEMA_TYPES)
                ignis__schema_fail_malformed(schema, key, "this is no type");
            types |= 1u << i;
        }
    if (value && !types)
        ignis__schema_fail_malformed(schema, value, "this is no type");
    for (word = IGNIS__SCHEMA_ENUM; word <= IGNIS__SCHEMA_ONE_OF; word++) {
        if (!has[word])
            continue;
        if (constraints > 1 + (word <= IGNIS__SCHEMA_CONST && has[IGNIS__SCHEMA_TYPE])) {
            ignis__schema_fail_unsupported(schema, at, "%s beside other keywords is not supported",
                                           ignis__schema_words[word]);
        } else if (word <= IGNIS__SCHEMA_CONST) {
            ignis__schema_write_values(schema, has[word], word == IGNIS__SCHEMA_ENUM,
                                       has[IGNIS__SCHEMA_TYPE] ? types : 127u);
        } else if (word == IGNIS__SCHEMA_REF) {
            if ((value = ignis__schema_resolve(schema, has[word])) != NULL)
                ignis__schema_write_name(schema, &schema->out, value);
        } else if (*has[word] != '[' || !ignis__schema_first(has[word])) {
            ignis__schema_fail_malformed(schema, has[word], "%s has to be an array of at least one schema",
                                         ignis__schema_words[word]);
        } else {
            for (value = ignis__schema_first(has[word]); value;
                 value = ignis__schema_next(schema, value), bar = " | ") {
                ignis__schema_write(schema, &schema->out, "%s", bar);
                ignis__schema_write_name(schema, &schema->out, value);
            }
        }
        ignis__schema_write(schema, &schema->out, "\n");
        return;
    }
    for (word = IGNIS__SCHEMA_PROPERTIES; !has[IGNIS__SCHEMA_TYPE] && word < IGNIS__SCHEMA_DESCRIPTION; word++)
        if (has[word])
            types |= word <= IGNIS__SCHEMA_ADDITIONAL ? 1u : word <= IGNIS__SCHEMA_MAX_ITEMS ? 2u : 4u;
    if (types == 0)
        ignis__schema_write(schema, &schema->out, "value");
    for (i = 0; i < IGNIS__SCHEMA_TYPES; i++) {
        if (!(types >> i & 1))
            continue;
        ignis__schema_write(schema, &schema->out, "%s", bar);
        bar = " | ";
        if (i == IGNIS__SCHEMA_OBJECT) {
            ignis__schema_write_object(schema, at, has);
        } else if (i == IGNIS__SCHEMA_ARRAY) {
            ignis__schema_write_array(schema, at, has);
        } else if (i == IGNIS__SCHEMA_STRING && (has[IGNIS__SCHEMA_MIN_LENGTH] || has[IGNIS__SCHEMA_MAX_LENGTH])) {
            int least, most;
            (void)ignis__schema_read_counts(schema, at, has, IGNIS__SCHEMA_MIN_LENGTH, &least, &most);
            ignis__schema_write(schema, &schema->out, "\"\\\"\" char");
            ignis__schema_write_times(schema, least, most);
            ignis__schema_write(schema, &schema->out, " \"\\\"\"");
        } else {
            ignis__schema_write(schema, &schema->out, "%s", ignis__schema_types[i]);
        }
    }
    ignis__schema_write(schema, &schema->out, "\n");
    if (schema->deferred.size && !ignis__bytes_add(&schema->out, schema->deferred.data, schema->deferred.size))
        ignis__grammar_fail(schema->grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
    schema->deferred.size = 0;
}

/*  Translates the schema in g->source to g->text. */
static void ignis__schema_translate(ignis__grammar *grammar)
{
    ignis__schema schema = IGNIS__ZERO;
    ignis__json json = IGNIS__ZERO;
    size_t size = strlen(grammar->source);
    int64_t i;
    char *copy = ignis__copy_string(grammar->source); /* parsing modifies it */
    schema.grammar = grammar;
    schema.text = grammar->source;
    schema.pending.size = sizeof(int64_t);
    schema.has_rule = (bool *)ignis__alloc(size + 1);
    if (!copy || !schema.has_rule)
        ignis__grammar_fail(grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
    json.what = "the schema";
    json.start = json.at = copy;
    json.end = copy ? copy + size : NULL;
    if (!grammar->diagnostic)
        ignis__json_skip(&json);
    if (!grammar->diagnostic && !json.fault[0] && ignis__json_peek(&json))
        ignis__json_fail(&json, "something follows its end");
    if (json.fault[0])
        ignis__grammar_fail(grammar, IGNIS_DIAG_GRAMMAR, NULL, "%s", json.fault);
    if (!grammar->diagnostic) {
        ignis__schema_write(&schema, &schema.out, "root ::= ");
        ignis__schema_write_name(&schema, &schema.out, ignis__schema_skip_blank(schema.text));
        ignis__schema_write(&schema, &schema.out, "\n");
        for (i = 0; i < schema.pending.count && !grammar->diagnostic; i++)
            ignis__schema_write_rule(&schema, schema.text + ((const int64_t *)(void *)schema.pending.items)[i]);
        for (i = 0; i < IGNIS__COUNT(ignis__schema_rules); i++)
            ignis__schema_write(&schema, &schema.out, "%s", ignis__schema_rules[i]);
        if (!grammar->diagnostic && ignis__bytes_add(&schema.out, "", 1)) {
            grammar->text = schema.out.data;
            schema.out.data = NULL;
        } else {
            ignis__grammar_fail(grammar, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
        }
    }
    ignis__free(copy), ignis__free(schema.has_rule), ignis__free(schema.pending.items), ignis__free(schema.out.data),
        ignis__free(schema.deferred.data);
    ignis__free(schema.names[0].data), ignis__free(schema.names[1].data);
}

/*  Makes a grammar from a text. NULL, and reported, if it is malformed. */
IGNIS__PRIVATE ignis__grammar *ignis__grammar_make(const char *call, const char *source)
{
    ignis__grammar *grammar = (ignis__grammar *)ignis__alloc(sizeof *grammar);
    if (!grammar || (grammar->text = grammar->source = ignis__copy_string(source)) == NULL) {
        ignis__free(grammar);
        ignis__fail_host_memory(call, sizeof *grammar);
        return NULL;
    }
    grammar->rules.size = sizeof(ignis__grammar_rule);
    grammar->alternatives.size = sizeof(ignis__grammar_alternative);
    grammar->parts.size = sizeof(ignis__grammar_part);
    grammar->states.size = sizeof(ignis__grammar_state);
    grammar->places.size = sizeof(ignis__grammar_place);
    grammar->stacks.size = sizeof(ignis__grammar_stack);
    if (source[strspn(source, " \t\r\n")] == '{')
        ignis__schema_translate(grammar);
    if (!grammar->diagnostic && ignis__grammar_read_gbnf(grammar)) {
        grammar->rows.size = sizeof(int32_t) * (size_t)grammar->classes;
        if (ignis__grammar_reset_states(grammar))
            return grammar;
    }
    ignis__fail(grammar->diagnostic, call, "%s", grammar->fault);
    ignis__grammar_free(grammar);
    return NULL;
}

IGNIS__COLD IGNIS_API ignis_status ignis_grammar_check(const char *grammar)
{
    static const char call[] = "ignis_grammar_check";
    ignis__grammar *made;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!grammar)
        return ignis__fail_null(call, "grammar");
    made = ignis__grammar_make(call, grammar);
    if (!made)
        return ignis__failed();
    ignis__grammar_free(made);
    return IGNIS_OK;
}
