/* --- a JSON schema becomes GBNF ------------------------------------------------------------------------------------------ */

/*  The rules that all have. White space is bounded, and so are numbers: who draws at random would go on with them. */
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

/*  Words of a schema. Those from the description on say nothing about texts. */
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

static const char *const ignis__schema_words[IGNIS__SCHEMA_WORDS] = {
    "type",    "enum",     "const",    "$ref",       "anyOf",     "oneOf",       "properties", "required",   "additionalProperties",
    "items",   "minItems", "maxItems", "minLength",  "maxLength", "description", "title",      "default",    "examples",
    "$schema", "$id",      "$comment", "deprecated", "readOnly",  "writeOnly",   "$defs",      "definitions"};

enum { IGNIS__SCHEMA_OBJECT, IGNIS__SCHEMA_ARRAY, IGNIS__SCHEMA_STRING, IGNIS__SCHEMA_TYPES = 7 };
static const char *const ignis__schema_types[IGNIS__SCHEMA_TYPES] = {"object", "array", "string", "number", "integer", "boolean", "null"};

typedef struct ignis__schema {
    ignis__grammar *g;
    const char *text;        /* sound JSON; what is at byte n becomes the rule vn */
    ignis__bytes out, later; /* later: what belongs behind the line that is being written */
    bool *there;             /* whether the rule of a byte is there, or to come */
    ignis__list coming;      /* bytes */
    ignis__bytes names[2];   /* names whose escapes were read */
    int64_t work;            /* bytes that were looked at */
} ignis__schema;
#define IGNIS__SCHEMA_WORK ((int64_t)1 << 27)

IGNIS__PRINTF(4, 5)
IGNIS__COLD static void ignis__schema_fail(ignis__schema *s, ignis_diagnostic diagnostic, const char *at, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ignis__grammar_fail(s->g, diagnostic, NULL, "at byte %lld of the schema, %s", (long long)(at - s->text), text);
}
#define ignis__schema_lacks(s, ...) ignis__schema_fail(s, IGNIS_DIAG_UNSUPPORTED, __VA_ARGS__)
#define ignis__schema_wrong(s, ...) ignis__schema_fail(s, IGNIS_DIAG_GRAMMAR, __VA_ARGS__)

IGNIS__PRINTF(3, 4)
IGNIS__COLD static void ignis__schema_write(ignis__schema *s, ignis__bytes *to, const char *format, ...)
{
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!ignis__bytes_add(to, text, strlen(text)))
        ignis__grammar_fail(s->g, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
}

/*  Sound JSON: the next thing behind white space; what is behind a value; the first element of an array or key of an object, and the one behind a
    value, null: there is none; the value of a key. */
static const char *ignis__schema_blank(const char *at) { return at + strspn(at, " \t\r\n"); }

static const char *ignis__schema_behind(const char *at)
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
    at = ignis__schema_blank(at + 1);
    return *at == ']' || *at == '}' ? NULL : at;
}

/*  Counts what a search in the schema has looked at; the reading ends where that is too much. */
static void ignis__schema_looked(ignis__schema *s, const char *from, const char *to)
{
    s->work += to - from;
    if (s->work > IGNIS__SCHEMA_WORK)
        ignis__grammar_fail(s->g, IGNIS_DIAG_UNSUPPORTED, NULL, "the schema is too large: its names are looked for in more than %lld bytes",
                            (long long)IGNIS__SCHEMA_WORK);
}

static const char *ignis__schema_next(ignis__schema *s, const char *value)
{
    const char *behind = ignis__schema_blank(ignis__schema_behind(value));
    ignis__schema_looked(s, value, behind);
    return *behind == ',' && !s->g->diagnostic ? ignis__schema_blank(behind + 1) : NULL;
}

static const char *ignis__schema_value(const char *key) { return ignis__schema_blank(ignis__schema_blank(ignis__schema_behind(key)) + 1); }

/*  The bytes of a string, with its escapes read into one of two places where it has any. */
static const char *ignis__schema_string(ignis__schema *s, const char *at, int place, size_t *size)
{
    const char *end = ignis__schema_behind(at);
    ignis__bytes *copy = &s->names[place];
    ignis__json json = IGNIS__ZERO;
    ignis__schema_looked(s, at, end);
    *size = (size_t)(end - at) - 2;
    if (*at != '"' || !memchr(at, '\\', (size_t)(end - at)))
        return at + 1;
    copy->size = 0;
    if (!ignis__bytes_add(copy, at, (size_t)(end - at))) {
        ignis__grammar_fail(s->g, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
        return at + 1;
    }
    json.start = json.at = copy->data;
    json.end = copy->data + copy->size;
    return ignis__json_string(&json, size);
}

/*  Whether a string, such as a key, has these bytes. */
static bool ignis__schema_is(ignis__schema *s, const char *at, const char *name, size_t size)
{
    size_t length;
    const char *text = ignis__schema_string(s, at, 0, &length);
    return *at == '"' && length == size && memcmp(text, name, size) == 0;
}

static bool ignis__schema_same(ignis__schema *s, const char *a, const char *b)
{
    size_t size;
    const char *name = ignis__schema_string(s, b, 1, &size);
    return *b == '"' && ignis__schema_is(s, a, name, size);
}

/*  The value of a key with these bytes; null: there is none. */
static const char *ignis__schema_member(ignis__schema *s, const char *object, const char *name, size_t size)
{
    const char *key = ignis__schema_first(object);
    while (key && !ignis__schema_is(s, key, name, size))
        key = ignis__schema_next(s, ignis__schema_value(key));
    return key ? ignis__schema_value(key) : NULL;
}

/*  The element of an array whose number has these bytes; null: there is none. */
static const char *ignis__schema_element(ignis__schema *s, const char *array, const char *number, size_t size)
{
    const char *value = ignis__schema_first(array);
    int64_t left = 0;
    size_t i;
    for (i = 0; i < size && i < 10 && ignis__map_is_digit(number[i]); i++)
        left = left * 10 + (number[i] - '0');
    if (size == 0 || i < size || (size > 1 && *number == '0'))
        return NULL;
    while (value && left-- > 0)
        value = ignis__schema_next(s, value);
    return value;
}

/*  The name of the rule of a schema, which is to come if it is not there. */
static void ignis__schema_name(ignis__schema *s, ignis__bytes *to, const char *at)
{
    int64_t *coming = s->there[at - s->text] ? NULL : (int64_t *)ignis__grammar_add(s->g, &s->coming);
    if (coming)
        *coming = at - s->text;
    s->there[at - s->text] = true;
    ignis__schema_write(s, to, "v%lld", (long long)(at - s->text));
}

/*  A value as a literal: strings with as few escapes as can be, all without white space. */
static void ignis__schema_literal(ignis__schema *s, ignis__bytes *to, const char *value)
{
    const char *end = ignis__schema_behind(value), *text;
    ignis__bytes copy = IGNIS__ZERO;
    ignis__json json = IGNIS__ZERO;
    size_t size = 0, i;
    ignis__schema_write(s, to, "\"");
    for (; value < end && !s->g->diagnostic; value++) {
        if (*value == '"') { /* a string: read, and written again */
            text = ignis__schema_behind(value);
            copy.size = 0;
            if (!ignis__bytes_add(&copy, value, (size_t)(text - value))) {
                ignis__grammar_fail(s->g, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
                break;
            }
            json.start = json.at = copy.data;
            json.end = copy.data + copy.size;
            value = text - 1;
            text = ignis__json_string(&json, &size);
            ignis__schema_write(s, to, "\\\"");
            for (i = 0; i < size; i++)
                if (text[i] == '"' || text[i] == '\\')
                    ignis__schema_write(s, to, "\\\\\\%c", text[i]);
                else if (text[i] == '\n')
                    ignis__schema_write(s, to, "\\\\n");
                else if ((unsigned char)text[i] < ' ')
                    ignis__schema_write(s, to, "\\\\u%04x", (unsigned)text[i]);
                else
                    ignis__schema_write(s, to, "%c", text[i]);
            ignis__schema_write(s, to, "\\\"");
        } else if (!strchr(" \t\r\n", *value)) {
            ignis__schema_write(s, to, "%c", *value);
        }
    }
    ignis__free(copy.data);
    ignis__schema_write(s, to, "\"");
}

static int ignis__schema_count(ignis__schema *s, const char *at, int otherwise)
{
    ignis__json json = IGNIS__ZERO;
    int64_t count;
    if (!at)
        return otherwise;
    json.start = json.at = (char *)(uintptr_t)at; /* numbers are not written to */
    json.end = json.at + strspn(at, "-+.eE0123456789");
    count = ignis__json_count(&json);
    if (json.fault[0] || count > IGNIS__GRAMMAR_PARTS)
        ignis__schema_wrong(s, at, "this has to be a whole number from 0 to %d", (int)IGNIS__GRAMMAR_PARTS);
    return (int)count;
}

/*  What is at least and at most wanted, of the two words; false: nothing fits. most below 0: any number. */
static bool ignis__schema_counts(ignis__schema *s, const char *schema, const char *const *has, int word, int *least, int *most)
{
    *least = ignis__schema_count(s, has[word], 0);
    *most = ignis__schema_count(s, has[word + 1], -1);
    if (*most >= 0 && *least > *most)
        ignis__schema_wrong(s, schema, "no text fits: %s is %d, and %s %d", ignis__schema_words[word], *least,
                            ignis__schema_words[word + 1], *most);
    return !s->g->diagnostic;
}

/*  {least,most} behind what stands there least to most times. */
static void ignis__schema_times(ignis__schema *s, int least, int most)
{
    if (most >= 0)
        ignis__schema_write(s, &s->out, "{%d,%d}", least, most);
    else
        ignis__schema_write(s, &s->out, "{%d,}", least);
}

/*  The object of a schema. Its properties come in their order; rule vN-i is what may come from number i on, with r: behind another property. */
static void ignis__schema_object(ignis__schema *s, const char *schema, const char *const *has)
{
    const char *key = has[IGNIS__SCHEMA_PROPERTIES] ? ignis__schema_first(has[IGNIS__SCHEMA_PROPERTIES]) : NULL, *name, *other;
    const char *more = has[IGNIS__SCHEMA_ADDITIONAL];
    long long number = schema - s->text;
    int i = 0, behind;
    if ((has[IGNIS__SCHEMA_PROPERTIES] && *has[IGNIS__SCHEMA_PROPERTIES] != '{') ||
        (has[IGNIS__SCHEMA_REQUIRED] && *has[IGNIS__SCHEMA_REQUIRED] != '[')) {
        ignis__schema_wrong(s, schema, "properties has to be an object, and required an array");
        return;
    }
    for (name = has[IGNIS__SCHEMA_REQUIRED] ? ignis__schema_first(has[IGNIS__SCHEMA_REQUIRED]) : NULL; name;
         name = ignis__schema_next(s, name)) {
        for (other = key; other && !ignis__schema_same(s, name, other);)
            other = ignis__schema_next(s, ignis__schema_value(other));
        if (!other)
            ignis__schema_lacks(s, name, "what is required is none of the properties");
    }
    if (key && more && *more != 'f')
        ignis__schema_lacks(s, more, "additionalProperties beside properties is not supported, but for false");
    if (!key && (!more || *more == 't')) {
        ignis__schema_write(s, &s->out, "object");
    } else if (!key && *more == 'f') {
        ignis__schema_write(s, &s->out, "\"{\" ws \"}\"");
    } else if (!key) {
        ignis__schema_write(s, &s->out, "\"{\" ws (string \":\" ws ");
        ignis__schema_name(s, &s->out, more);
        ignis__schema_write(s, &s->out, " (\",\" ws string \":\" ws ");
        ignis__schema_name(s, &s->out, more);
        ignis__schema_write(s, &s->out, ")* ws)? \"}\"");
    } else {
        ignis__schema_write(s, &s->out, "\"{\" ws v%lld-0 \"}\"", number);
        for (; key && !s->g->diagnostic; key = ignis__schema_next(s, ignis__schema_value(key)), i++)
            for (behind = 0; behind < 2; behind++) {
                for (name = has[IGNIS__SCHEMA_REQUIRED] ? ignis__schema_first(has[IGNIS__SCHEMA_REQUIRED]) : NULL;
                     name && !ignis__schema_same(s, name, key);)
                    name = ignis__schema_next(s, name);
                ignis__schema_write(s, &s->later, "v%lld-%d%s ::= %s", number, i, behind ? "r" : "", behind ? "\",\" ws " : "");
                ignis__schema_literal(s, &s->later, key);
                ignis__schema_write(s, &s->later, " \":\" ws ");
                ignis__schema_name(s, &s->later, ignis__schema_value(key));
                ignis__schema_write(s, &s->later, " v%lld-%dr", number, i + 1);
                if (!name)
                    ignis__schema_write(s, &s->later, " | v%lld-%d%s", number, i + 1, behind ? "r" : "");
                ignis__schema_write(s, &s->later, "\n");
            }
        ignis__schema_write(s, &s->later, "v%lld-%d ::= \"\"\nv%lld-%dr ::= ws\n", number, i, number, i);
    }
}

static void ignis__schema_array(ignis__schema *s, const char *schema, const char *const *has)
{
    const char *items = has[IGNIS__SCHEMA_ITEMS];
    int least, most, i;
    if (!ignis__schema_counts(s, schema, has, IGNIS__SCHEMA_MIN_ITEMS, &least, &most))
        return;
    if (items && *items == 'f') { /* a schema that nothing fits */
        if (least > 0)
            ignis__schema_wrong(s, schema, "no text fits: minItems is %d, and items false", least);
        most = 0;
    }
    ignis__schema_write(s, &s->out, "\"[\" ws");
    for (i = 0; i < 2 && most != 0; i++) {
        ignis__schema_write(s, &s->out, i ? " (\",\" ws " : " (");
        if (items)
            ignis__schema_name(s, &s->out, items);
        else
            ignis__schema_write(s, &s->out, "value");
        if (i)
            ignis__schema_write(s, &s->out, ")");
    }
    if (most != 0) {
        ignis__schema_times(s, least > 0 ? least - 1 : 0, most > 0 ? most - 1 : most);
        ignis__schema_write(s, &s->out, least > 0 ? " ws)" : " ws)?");
    }
    ignis__schema_write(s, &s->out, " \"]\"");
}

/*  Values of `enum`, or that of `const`, that are of one of the types. */
static void ignis__schema_values(ignis__schema *s, const char *value, bool many, unsigned types)
{
    const char *bar = "", *at = many && *value == '[' ? ignis__schema_first(value) : value;
    if (many && (*value != '[' || !at))
        ignis__schema_wrong(s, value, "enum has to be an array of at least one value");
    for (; at && !s->g->diagnostic; at = many ? ignis__schema_next(s, at) : NULL, bar = " | ") {
        size_t digits = strspn(at, "-0123456789");
        unsigned type = *at == '{' ? 1u : *at == '[' ? 2u : *at == '"' ? 4u : *at == 't' || *at == 'f' ? 32u : *at == 'n' ? 64u : 8u;
        if (type == 8 && !strchr(".eE", at[digits]))
            type |= 16;
        if (!(types & type))
            ignis__schema_wrong(s, at, "this value is none of the schema's type");
        ignis__schema_write(s, &s->out, "%s", bar);
        ignis__schema_literal(s, &s->out, at);
    }
}

/*  What a JSON pointer in a fragment refers to, such as "#/$defs/name" or "#/anyOf/0" (RFC 6901): %xx is a byte, ~1 a slash, ~0 a tilde. */
static const char *ignis__schema_refer(ignis__schema *s, const char *ref)
{
    const char *at = ignis__schema_blank(s->text), *text, *known;
    static const char digits[] = "0123456789abcdefABCDEF";
    char *name;
    size_t size, from, to = 0, end;
    ignis__bytes copy = IGNIS__ZERO;
    text = ignis__schema_string(s, ref, 1, &size);
    if (*ref != '"' || size == 0 || text[0] != '#' || (size > 1 && text[1] != '/')) {
        ignis__schema_lacks(s, ref, "$ref is supported as \"#\" and \"#/...\", a place in the schema itself");
        return NULL;
    }
    if (!ignis__bytes_add(&copy, text, size)) {
        ignis__grammar_fail(s->g, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
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
    for (size = to, from = 0; at && from < size; from = end) { /* behind a slash */
        for (end = ++from, to = from; end < size && name[end] != '/'; end++) {
            name[to] = name[end];
            if (name[end] == '~' && end + 1 < size && (name[end + 1] == '0' || name[end + 1] == '1'))
                name[to] = name[++end] == '0' ? '~' : '/';
            else if (name[end] == '~')
                at = NULL;
            to++;
        }
        at = !at          ? NULL
             : *at == '{' ? ignis__schema_member(s, at, name + from, to - from)
             : *at == '[' ? ignis__schema_element(s, at, name + from, to - from)
                          : NULL;
    }
    ignis__free(copy.data);
    if (!at)
        ignis__schema_wrong(s, ref, "there is nothing that $ref refers to");
    return s->g->diagnostic ? NULL : at;
}

/*  The rule of a schema. */
static void ignis__schema_rule(ignis__schema *s, const char *at)
{
    const char *has[IGNIS__SCHEMA_WORDS] = {NULL}, *key, *value, *bar = "";
    unsigned types = 0;
    int word, constraints = 0, i;
    ignis__schema_write(s, &s->out, "v%lld ::= ", (long long)(at - s->text));
    if (*at != '{') {
        if (*at != 't')
            ignis__schema_wrong(s, at, *at == 'f' ? "false is a schema that nothing fits" : "a schema is an object, or true");
        ignis__schema_write(s, &s->out, "value\n");
        return;
    }
    for (key = ignis__schema_first(at); key; key = ignis__schema_next(s, ignis__schema_value(key))) {
        size_t size = (size_t)(ignis__schema_behind(key) - key) - 2;
        for (word = 0; word < IGNIS__SCHEMA_WORDS; word++)
            if (strlen(ignis__schema_words[word]) == size && memcmp(key + 1, ignis__schema_words[word], size) == 0)
                break;
        if (word == IGNIS__SCHEMA_WORDS) {
            ignis__schema_lacks(s, key, "the keyword '%.*s' is not supported", size > 60 ? 60 : (int)size, key + 1);
            return;
        }
        constraints += word < IGNIS__SCHEMA_DESCRIPTION;
        has[word] = ignis__schema_value(key);
    }
    if ((value = has[IGNIS__SCHEMA_TYPE]) != NULL)
        for (key = *value == '[' ? ignis__schema_first(value) : value; key; key = *value == '[' ? ignis__schema_next(s, key) : NULL) {
            for (i = 0; i < IGNIS__SCHEMA_TYPES; i++)
                if (strncmp(key + (*key == '"'), ignis__schema_types[i], strlen(ignis__schema_types[i])) == 0 &&
                    (size_t)(ignis__schema_behind(key) - key) == strlen(ignis__schema_types[i]) + 2)
                    break;
            if (i == IGNIS__SCHEMA_TYPES)
                ignis__schema_wrong(s, key, "this is no type");
            types |= 1u << i;
        }
    if (value && !types)
        ignis__schema_wrong(s, value, "this is no type");
    for (word = IGNIS__SCHEMA_ENUM; word <= IGNIS__SCHEMA_ONE_OF; word++) {
        if (!has[word])
            continue;
        if (constraints > 1 + (word <= IGNIS__SCHEMA_CONST && has[IGNIS__SCHEMA_TYPE])) {
            ignis__schema_lacks(s, at, "%s beside other keywords is not supported", ignis__schema_words[word]);
        } else if (word <= IGNIS__SCHEMA_CONST) {
            ignis__schema_values(s, has[word], word == IGNIS__SCHEMA_ENUM, has[IGNIS__SCHEMA_TYPE] ? types : 127u);
        } else if (word == IGNIS__SCHEMA_REF) {
            if ((value = ignis__schema_refer(s, has[word])) != NULL)
                ignis__schema_name(s, &s->out, value);
        } else if (*has[word] != '[' || !ignis__schema_first(has[word])) {
            ignis__schema_wrong(s, has[word], "%s has to be an array of at least one schema", ignis__schema_words[word]);
        } else {
            for (value = ignis__schema_first(has[word]); value; value = ignis__schema_next(s, value), bar = " | ") {
                ignis__schema_write(s, &s->out, "%s", bar);
                ignis__schema_name(s, &s->out, value);
            }
        }
        ignis__schema_write(s, &s->out, "\n");
        return;
    }
    for (word = IGNIS__SCHEMA_PROPERTIES; !has[IGNIS__SCHEMA_TYPE] && word < IGNIS__SCHEMA_DESCRIPTION; word++)
        if (has[word])
            types |= word <= IGNIS__SCHEMA_ADDITIONAL ? 1u : word <= IGNIS__SCHEMA_MAX_ITEMS ? 2u : 4u;
    if (types == 0)
        ignis__schema_write(s, &s->out, "value");
    for (i = 0; i < IGNIS__SCHEMA_TYPES; i++) {
        if (!(types >> i & 1))
            continue;
        ignis__schema_write(s, &s->out, "%s", bar);
        bar = " | ";
        if (i == IGNIS__SCHEMA_OBJECT) {
            ignis__schema_object(s, at, has);
        } else if (i == IGNIS__SCHEMA_ARRAY) {
            ignis__schema_array(s, at, has);
        } else if (i == IGNIS__SCHEMA_STRING && (has[IGNIS__SCHEMA_MIN_LENGTH] || has[IGNIS__SCHEMA_MAX_LENGTH])) {
            int least, most;
            (void)ignis__schema_counts(s, at, has, IGNIS__SCHEMA_MIN_LENGTH, &least, &most);
            ignis__schema_write(s, &s->out, "\"\\\"\" char");
            ignis__schema_times(s, least, most);
            ignis__schema_write(s, &s->out, " \"\\\"\"");
        } else {
            ignis__schema_write(s, &s->out, "%s", ignis__schema_types[i]);
        }
    }
    ignis__schema_write(s, &s->out, "\n");
    if (s->later.size && !ignis__bytes_add(&s->out, s->later.data, s->later.size))
        ignis__grammar_fail(s->g, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
    s->later.size = 0;
}

/*  Makes g->text of the schema in g->source. */
static void ignis__schema_read(ignis__grammar *g)
{
    ignis__schema s = IGNIS__ZERO;
    ignis__json json = IGNIS__ZERO;
    size_t size = strlen(g->source);
    int64_t i;
    char *copy = ignis__copy_string(g->source); /* reading it changes it */
    s.g = g;
    s.text = g->source;
    s.coming.size = sizeof(int64_t);
    s.there = (bool *)ignis__alloc(size + 1);
    if (!copy || !s.there)
        ignis__grammar_fail(g, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
    json.what = "the schema";
    json.start = json.at = copy;
    json.end = copy ? copy + size : NULL;
    if (!g->diagnostic)
        ignis__json_skip(&json);
    if (!g->diagnostic && !json.fault[0] && ignis__json_peek(&json))
        ignis__json_fail(&json, "something follows its end");
    if (json.fault[0])
        ignis__grammar_fail(g, IGNIS_DIAG_GRAMMAR, NULL, "%s", json.fault);
    if (!g->diagnostic) {
        ignis__schema_write(&s, &s.out, "root ::= ");
        ignis__schema_name(&s, &s.out, ignis__schema_blank(s.text));
        ignis__schema_write(&s, &s.out, "\n");
        for (i = 0; i < s.coming.count && !g->diagnostic; i++)
            ignis__schema_rule(&s, s.text + ((const int64_t *)(void *)s.coming.items)[i]);
        for (i = 0; i < IGNIS__COUNT(ignis__schema_rules); i++)
            ignis__schema_write(&s, &s.out, "%s", ignis__schema_rules[i]);
        if (!g->diagnostic && ignis__bytes_add(&s.out, "", 1)) {
            g->text = s.out.data;
            s.out.data = NULL;
        } else {
            ignis__grammar_fail(g, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
        }
    }
    ignis__free(copy), ignis__free(s.there), ignis__free(s.coming.items), ignis__free(s.out.data), ignis__free(s.later.data);
    ignis__free(s.names[0].data), ignis__free(s.names[1].data);
}

/*  A grammar of a text; null, and reported: it is none. */
static ignis__grammar *ignis__grammar_make(const char *call, const char *source)
{
    ignis__grammar *g = (ignis__grammar *)ignis__alloc(sizeof *g);
    if (!g || (g->text = g->source = ignis__copy_string(source)) == NULL) {
        ignis__free(g);
        ignis__fail_host_memory(call, sizeof *g);
        return NULL;
    }
    g->rules.size = sizeof(ignis__grammar_rule);
    g->alternatives.size = sizeof(ignis__grammar_alternative);
    g->parts.size = sizeof(ignis__grammar_part);
    g->states.size = sizeof(ignis__grammar_state);
    g->places.size = sizeof(ignis__grammar_place);
    g->stacks.size = sizeof(ignis__grammar_stack);
    if (source[strspn(source, " \t\r\n")] == '{')
        ignis__schema_read(g);
    if (!g->diagnostic && ignis__grammar_read(g)) {
        g->rows.size = sizeof(int32_t) * (size_t)g->classes;
        if (ignis__grammar_begin(g))
            return g;
    }
    ignis__fail(g->diagnostic, call, "%s", g->fault);
    ignis__grammar_free(g);
    return NULL;
}

IGNIS__COLD IGNIS_API ignis_status ignis_grammar_check(const char *grammar)
{
    static const char call[] = "ignis_grammar_check";
    ignis__grammar *g;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!grammar)
        return ignis__fail_null(call, "grammar");
    g = ignis__grammar_make(call, grammar);
    if (!g)
        return ignis__failed();
    ignis__grammar_free(g);
    return IGNIS_OK;
}

/* ===============================================================================================================
   >>model - checkpoints opened: config.json, shards, GGUF; their weights as tensors.
   =============================================================================================================== */

/*  From files to weights in four steps: the description becomes an ignis__model (sizes, frequencies); the files' headers become a sorted list of
    what tensors there are; one table of rows says which of them become which rows of which weight; their bytes are read, converted and copied in
    pieces. The table also serves who asks for a weight by name, and who writes the model back. */

#define IGNIS__MODEL_HALF 128 /* frequencies: heads of up to 256 elements, as attention has them */
#define IGNIS__RANKS 64       /* that share a model, at most */
#define IGNIS__MODEL_STOPS 16 /* as many as ignis_model_info.ends */

typedef struct ignis__layer {
    ignis_tensor attn_norm, attn_norm_bias;
    ignis_tensor qkv, qkv_bias; /* rows of q, k and v */
    ignis_tensor q_norm, k_norm;
    ignis_tensor o, o_bias;
    ignis_tensor mlp_norm, mlp_norm_bias;
    ignis_tensor up, up_bias; /* where it is gated: rows of the gate, then of up */
    ignis_tensor down, down_bias;
} ignis__layer;

/*  How positions are stretched, as the description says it. */
typedef enum ignis__stretch {
    IGNIS__STRETCH_NONE,
    IGNIS__STRETCH_LINEAR,
    IGNIS__STRETCH_LLAMA3,
    IGNIS__STRETCH_YARN,
    IGNIS__STRETCH_TABLE /* by a GGUF file's own divisors */
} ignis__stretch;

typedef struct ignis__model {
    ignis__slot slot; /* first */
    ignis_model_family family;
    int layers, heads, kv_heads, head_dim, hidden, inner, vocab, context; /* heads, kv_heads, inner: of this rank's share */
    ignis_model_parallel parallel;                                        /* size: 1 at least */
    double attention_scale;
    bool rms, rope, gelu; /* else: layer norms, positions, a gate with silu */
    bool tied;            /* the head is the embedding */
    double frequencies[IGNIS__MODEL_HALF];
    ignis_dtype dtype, cache_dtype;
    ignis_weights weights;
    int room, sequences; /* of the cache: tokens of a sequence, sequences */
    int32_t bos;         /* -1: none */
    int32_t stops[IGNIS__MODEL_STOPS];
    int stop_count; /* tokens that end a text */
    ignis__device *device;
    ignis_tensor embedding, positions, norm, norm_bias, head;
    ignis__layer *layer;
    double eps, theta, attention_factor;
    ignis__stretch stretch;
    double factor, low, high, original; /* of llama3: low_freq_factor and the like; of yarn: beta_fast, beta_slow */
    bool uncut;                         /* yarn's ends of the slope are not rounded to whole numbers */
    int64_t parameters, quantised, weight_bytes, file_bytes;
    char *path;                /* as ignis_model_open was given it */
    ignis_tokenizer tokenizer; /* once somebody has asked for it; under the slot's lock */
    struct ignis__lora *lora;  /* that are set, or null; under the slot's lock. They hold the model, and leave when they are freed */
    void *engine;              /* what sequences share; null: there was none yet */
    void (*engine_destroy)(const char *call, void *engine);
} ignis__model;

static ignis__pool ignis__models = IGNIS__POOL(ignis__model, IGNIS__KIND_MODEL, "model", IGNIS_DIAG_MODEL_FREED);

static const char *const ignis__model_families[IGNIS_MODEL_FAMILY_COUNT] = {"", "gpt2", "llama", "qwen2", "qwen3"};

/* --- config.json: a flat list ------------------------------------------------------------------------------------------ */

/*  A value of a JSON file under its whole name: "rope_scaling.factor", "layer_types[]" for each item of an array. */
typedef struct ignis__config_item {
    char name[64]; /* a longer one is nothing that anybody asks for */
    char kind;     /* 'n' a number, 't' a text, 'b' true or false, '0' null, '{' an object, '[' an array */
    double number; /* true is 1 */
    const char *text;
} ignis__config_item;

typedef struct ignis__config {
    char *file; /* its text; the texts of items are in it */
    ignis__config_item *items;
    int count, capacity;
    bool no_memory;
} ignis__config;

static void ignis__config_close(ignis__config *config)
{
    ignis__free(config->items);
    ignis__free(config->file);
    memset(config, 0, sizeof *config);
}

static ignis__config_item *ignis__config_add(ignis__config *config, const char *name)
{
    if (config->count == config->capacity) {
        int capacity = config->capacity ? config->capacity * 2 : 64;
        ignis__config_item *items = (ignis__config_item *)ignis__alloc((size_t)capacity * sizeof *items);
        config->no_memory = !items;
        if (!items)
            return NULL;
        if (config->count)
            memcpy(items, config->items, (size_t)config->count * sizeof *items);
        ignis__free(config->items);
        config->items = items;
        config->capacity = capacity;
    }
    snprintf(config->items[config->count].name, sizeof config->items->name, "%s", name);
    return &config->items[config->count++];
}

/*  Reads the value at the reader's place, and what is in it, to a small depth; below that values are stepped over. */
static void ignis__config_value(ignis__json *json, ignis__config *config, const char *name, int depth)
{
    char c = ignis__json_peek(json), inner[160];
    ignis__config_item *item = ignis__config_add(config, name);
    bool first = true;
    size_t size;
    if (!item || json->fault[0]) {
        ignis__json_fail(json, "memory has run out");
        return;
    }
    item->kind = c;
    if ((c == '{' || c == '[') && depth == 4) {
        ignis__json_skip(json);
    } else if (c == '{') {
        json->at++;
        while (ignis__json_more(json, '}', &first)) {
            const char *key = ignis__json_string(json, &size);
            snprintf(inner, sizeof inner, "%.60s%s%.60s", name, *name ? "." : "", key);
            ignis__json_expect(json, ':');
            ignis__config_value(json, config, inner, depth + 1);
        }
    } else if (c == '[') {
        json->at++;
        snprintf(inner, sizeof inner, "%.60s[]", name);
        while (ignis__json_more(json, ']', &first))
            ignis__config_value(json, config, inner, depth + 1);
    } else if (c == '"') {
        item->kind = 't';
        item->text = ignis__json_string(json, &size);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        item->kind = 'n';
        item->number = ignis__json_number(json);
    } else {
        item->kind = c == 'n' ? '0' : 'b';
        item->number = c == 't';
        ignis__json_skip_scalar(json);
    }
}

/*  Reads a JSON file. `wanted` is false for one that may be missing: then it is empty. Reports what is wrong. */
IGNIS__COLD static bool ignis__config_open(const char *call, const char *path, bool wanted, ignis__config *config)
{
    ignis__json json;
    int64_t length = 0;
    int file;
    bool ok;
    memset(config, 0, sizeof *config);
    file = ignis__file_open(path, &length);
    if (file < 0)
        return !wanted || ignis__file_fail(call, path, "opened");
    if (length > IGNIS__HEADER_LIMIT) {
        ignis__file_close(file);
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, call, "'%s' has %lld bytes, above %d", path, (long long)length, IGNIS__HEADER_LIMIT);
        return false;
    }
    config->file = (char *)ignis__alloc((size_t)length + 1);
    if (!config->file)
        ignis__fail_host_memory(call, (size_t)length + 1);
    ok = config->file != NULL;
    if (ok && ignis__file_read_at(file, 0, config->file, length) != length)
        ok = ignis__file_fail(call, path, "read");
    ignis__file_close(file);
    if (ok) {
        memset(&json, 0, sizeof json);
        json.what = "the file";
        json.start = json.at = config->file;
        json.end = config->file + length;
        if (ignis__json_peek(&json) != '{')
            ignis__json_fail(&json, "there is no { to begin with");
        else
            ignis__config_value(&json, config, "", 0);
        if (!json.fault[0] && (ignis__json_peek(&json), json.at != json.end))
            ignis__json_fail(&json, "something follows the end of the JSON text");
        if (config->no_memory)
            ignis__fail_host_memory(call, sizeof *config->items);
        else if (json.fault[0])
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, call, "'%s' is no sound JSON file: %s", path, json.fault);
        ok = !json.fault[0] && !config->no_memory;
    }
    if (!ok)
        ignis__config_close(config);
    return ok;
}

/*  The last value of that name, as Python takes it; null where there is none, or it is null. */
static const ignis__config_item *ignis__config_find(const ignis__config *config, const char *name)
{
    int i;
    for (i = config->count - 1; i >= 0; i--)
        if (strcmp(config->items[i].name, name) == 0)
            return config->items[i].kind == '0' ? NULL : &config->items[i];
    return NULL;
}

/* --- what the files hold -------------------------------------------------------------------------------------------------- */

/*  A tensor of one of the files. */
typedef struct ignis__model_source {
    const char *name;
    ignis_shape shape;
    int file;            /* in the list of paths */
    int64_t begin, end;  /* of its bytes in that file */
    const char *type;    /* in messages; null: one that Ignis does not know */
    uint32_t id;         /* a GGUF file's number for it */
    ignis_dtype dtype;   /* 0: none of Ignis' */
    uint32_t quant;      /* an ignis__gguf_type, or 0 */
    bool used;           /* it has become a part of a weight, or was read otherwise */
    int elements, bytes; /* so many elements take so many bytes */
} ignis__model_source;

typedef struct ignis__model_files {
    const char *call, *path;
    bool is_gguf;
    ignis__gguf gguf;
    ignis__config config, index, generation;
    ignis__load *shards;
    char **paths; /* of the shards, or of the GGUF file */
    int path_count;
    ignis__model_source *sources; /* sorted by name */
    int64_t source_count;
    ignis_model_family family;
} ignis__model_files;

static void ignis__model_files_close(ignis__model_files *files)
{
    int i;
    for (i = 0; i < files->path_count; i++) {
        if (files->shards)
            ignis__load_close(&files->shards[i]);
        ignis__free(files->paths[i]);
    }
    ignis__free(files->shards);
    ignis__free(files->paths);
    ignis__free(files->sources);
    ignis__config_close(&files->config);
    ignis__config_close(&files->index);
    ignis__config_close(&files->generation);
    if (files->is_gguf)
        ignis__gguf_close(&files->gguf);
    memset(files, 0, sizeof *files);
}

/*  folder/name, of ignis__alloc; null, and reported: no memory. */
static char *ignis__model_path(const char *call, const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = (char *)ignis__alloc(size);
    if (path)
        snprintf(path, size, "%s%s%s", folder, *folder && folder[strlen(folder) - 1] != '/' ? "/" : "", name);
    else
        ignis__fail_host_memory(call, size);
    return path;
}

static int ignis__model_source_order(const void *a, const void *b)
{
    return strcmp(((const ignis__model_source *)a)->name, ((const ignis__model_source *)b)->name);
}

static ignis__model_source *ignis__model_source_find(const ignis__model_files *files, const char *name)
{
    ignis__model_source key;
    memset(&key, 0, sizeof key);
    key.name = name;
    return files->source_count
               ? (ignis__model_source *)bsearch(&key, files->sources, (size_t)files->source_count, sizeof key, ignis__model_source_order)
               : NULL;
}

/*  The type of a tensor in messages: its name, or the file's number for it. */
typedef struct ignis__model_type {
    char text[24];
} ignis__model_type;

static ignis__model_type ignis__model_type_write(const ignis__model_source *source)
{
    ignis__model_type type;
    if (source->type)
        snprintf(type.text, sizeof type.text, "%s", source->type);
    else
        snprintf(type.text, sizeof type.text, "number %u", (unsigned)source->id);
    return type;
}

/*  Makes room for the list of tensors. */
static bool ignis__model_sources(ignis__model_files *files, int64_t count)
{
    size_t size = (size_t)(count + 1) * sizeof *files->sources;
    files->sources = (ignis__model_source *)ignis__alloc(size);
    if (!files->sources)
        ignis__fail_host_memory(files->call, size);
    return files->sources != NULL;
}

static bool ignis__model_sort(ignis__model_files *files)
{
    int64_t i;
    if (files->source_count > 1)
        qsort(files->sources, (size_t)files->source_count, sizeof *files->sources, ignis__model_source_order);
    for (i = 1; i < files->source_count; i++) {
        if (strcmp(files->sources[i - 1].name, files->sources[i].name) == 0) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "tensor %s is in '%s' and again in '%s'",
                        ignis__name_write(files->sources[i].name).text, files->paths[files->sources[i - 1].file],
                        files->paths[files->sources[i].file]);
            return false;
        }
    }
    return true;
}

/*  Opens the files of tensors whose names are given, each once. */
static bool ignis__model_shards(ignis__model_files *files, const char *const *names, int count)
{
    int64_t total = 0;
    int i, k;
    files->paths = (char **)ignis__alloc(((size_t)count + 1) * sizeof *files->paths);
    files->shards = (ignis__load *)ignis__alloc(((size_t)count + 1) * sizeof *files->shards);
    if (!files->paths || !files->shards) {
        ignis__fail_host_memory(files->call, ((size_t)count + 1) * sizeof *files->shards);
        return false;
    }
    for (i = 0; i < count; i++) {
        char *path = ignis__model_path(files->call, files->path, names[i]);
        if (!path || !ignis__load_open(files->call, path, &files->shards[i])) {
            ignis__free(path);
            return false;
        }
        files->paths[files->path_count++] = path;
        total += files->shards[i].file.count;
    }
    if (!ignis__model_sources(files, total))
        return false;
    for (i = 0; i < count; i++) {
        for (k = 0; k < files->shards[i].file.count; k++) {
            const ignis__stored *item = &files->shards[i].file.items[k];
            ignis__model_source *source = &files->sources[files->source_count++];
            source->name = item->name;
            source->shape = item->shape;
            source->file = i;
            source->begin = files->shards[i].file.data + item->begin;
            source->end = files->shards[i].file.data + item->end;
            source->type = ignis__stored_types[item->type].name;
            source->dtype = ignis__stored_types[item->type].dtype;
            source->elements = 1;
            source->bytes = ignis__stored_types[item->type].bits / 8;
        }
    }
    return ignis__model_sort(files);
}

static int ignis__model_file_order(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/*  The shards that model.safetensors.index.json names. */
static bool ignis__model_index(ignis__model_files *files, const char *path)
{
    static const char prefix[] = "weight_map";
    const char **names;
    int count = 0, own = 0, i;
    bool inside = false, ok = true;
    if (!ignis__config_open(files->call, path, true, &files->index))
        return false;
    names = (const char **)ignis__alloc(((size_t)files->index.count + 1) * sizeof *names);
    if (!names) {
        ignis__fail_host_memory(files->call, ((size_t)files->index.count + 1) * sizeof *names);
        return false;
    }
    for (i = 0; ok && i < files->index.count; i++) {
        const ignis__config_item *item = &files->index.items[i];
        const char *name = item->text;
        inside = strncmp(item->name, prefix, sizeof prefix - 1) == 0 && item->name[sizeof prefix - 1] == '.';
        if (!inside)
            continue;
        if (item->kind != 't' || !*name || strchr(name, '/') || strchr(name, '\\') || strchr(name, ':') || strstr(name, "..")) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "'%s' says that a tensor is in %s, which is not the plain name of a file",
                        path, ignis__name_write(item->kind == 't' ? name : "").text);
            ok = false;
        }
        names[count++] = name;
    }
    if (ok && count == 0) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "'%s' has no weight_map that names a file", path);
        ok = false;
    }
    if (ok)
        qsort(names, (size_t)count, sizeof *names, ignis__model_file_order);
    for (i = 0; ok && i < count; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            names[own++] = names[i];
    ok = ok && ignis__model_shards(files, names, own);
    ignis__free((void *)names);
    return ok;
}

static bool ignis__model_family_find(ignis__model_files *files, const char *key, const char *name)
{
    int i;
    for (i = 1; i < IGNIS_MODEL_FAMILY_COUNT; i++)
        if (name && strcmp(name, ignis__model_families[i]) == 0)
            files->family = (ignis_model_family)i;
    if (files->family)
        return true;
    if (name)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' has %s %s; gpt2, llama, qwen2 and qwen3 are known", files->path, key,
                    ignis__name_write(name).text);
    else
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "'%s' has no text %s", files->path, key);
    return false;
}

static bool ignis__model_open_folder(ignis__model_files *files)
{
    char *config = ignis__model_path(files->call, files->path, "config.json");
    char *index = ignis__model_path(files->call, files->path, "model.safetensors.index.json");
    char *generation = ignis__model_path(files->call, files->path, "generation_config.json");
    const ignis__config_item *type;
    static const char *const whole[] = {"model.safetensors"};
    int64_t size, time;
    bool ok = config && index && generation && ignis__config_open(files->call, config, true, &files->config) &&
              ignis__config_open(files->call, generation, false, &files->generation);
    if (ok) {
        type = ignis__config_find(&files->config, "model_type");
        ok = ignis__model_family_find(files, "model_type", type && type->kind == 't' ? type->text : NULL);
    }
    if (ok)
        ok = ignis__file_info(index, &size, &time) ? ignis__model_index(files, index) : ignis__model_shards(files, whole, 1);
    ignis__free(config);
    ignis__free(index);
    ignis__free(generation);
    return ok;
}

/*  False, and reported: the GGUF file is one of several. */
static bool ignis__model_open_whole(ignis__model_files *files)
{
    int64_t number = 0, count = 1;
    if (ignis__gguf_int(&files->gguf, "split.no", &number) == IGNIS__GGUF_BAD ||
        ignis__gguf_int(&files->gguf, "split.count", &count) == IGNIS__GGUF_BAD)
        return false;
    if (count <= 1)
        return true;
    ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call,
                "'%s' is part %lld of %lld: models in several GGUF files are not supported; llama.cpp's llama-gguf-split --merge makes "
                "one file of them",
                files->path, (long long)number + 1, (long long)count);
    return false;
}

static bool ignis__model_open_gguf(ignis__model_files *files)
{
    const char *architecture = NULL;
    size_t size;
    int64_t i;
    files->is_gguf = true;
    if (!ignis__gguf_open(files->call, files->path, &files->gguf)) {
        files->is_gguf = false;
        return false;
    }
    files->paths = (char **)ignis__alloc(sizeof *files->paths);
    if (files->paths && (files->paths[0] = ignis__copy_string(files->path)) != NULL)
        files->path_count = 1;
    if (!files->path_count) {
        ignis__fail_host_memory(files->call, sizeof *files->paths + strlen(files->path));
        return false;
    }
    if (!ignis__model_open_whole(files) ||
        ignis__gguf_string(&files->gguf, "general.architecture", &architecture, &size) == IGNIS__GGUF_BAD ||
        !ignis__model_family_find(files, "general.architecture", architecture) || !ignis__model_sources(files, files->gguf.tensor_count))
        return false;
    for (i = 0; i < files->gguf.tensor_count; i++) {
        const ignis__gguf_tensor *tensor = &files->gguf.tensors[i];
        ignis__model_source *source = &files->sources[files->source_count++];
        source->name = tensor->name;
        source->shape = tensor->shape;
        source->begin = tensor->begin;
        source->end = tensor->end;
        source->id = tensor->id;
        if (tensor->type < 0)
            continue;
        source->type = ignis__gguf_types[tensor->type].name;
        source->dtype = ignis__gguf_types[tensor->type].dtype;
        source->elements = ignis__gguf_types[tensor->type].elements;
        source->bytes = ignis__gguf_types[tensor->type].bytes;
        if (ignis__gguf_types[tensor->type].readable && !source->dtype)
            source->quant = ignis__gguf_types[tensor->type].id;
    }
    return ignis__model_sort(files);
}

/* --- the description ---------------------------------------------------------------------------------------------------------- */

/*  A number of the description, by its name in config.json, or behind "ARCHITECTURE." in a GGUF file. BAD is reported. */
static ignis__gguf_found ignis__model_number(ignis__model_files *files, const char *json, const char *gguf, double *value)
{
    const ignis__config_item *item;
    char name[96];
    if (files->is_gguf) {
        if (!gguf)
            return IGNIS__GGUF_NONE;
        snprintf(name, sizeof name, "%s.%s", ignis__model_families[files->family], gguf);
        return ignis__gguf_real(&files->gguf, name, value);
    }
    item = json ? ignis__config_find(&files->config, json) : NULL;
    if (!item)
        return IGNIS__GGUF_NONE;
    if (item->kind != 'n') {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "config.json of '%s': %s is no number", files->path, json);
        return IGNIS__GGUF_BAD;
    }
    *value = item->number;
    return IGNIS__GGUF_FOUND;
}

/*  A size: whole, from 1 to `most`. otherwise: what it is where it is not said; 0: it has to be. */
static bool ignis__model_size(ignis__model_files *files, const char *json, const char *gguf, int otherwise, int most, int *size)
{
    double value = otherwise;
    ignis__gguf_found found = ignis__model_number(files, json, gguf, &value);
    const char *name = files->is_gguf ? gguf : json;
    if (found == IGNIS__GGUF_BAD)
        return false;
    if (found == IGNIS__GGUF_NONE && otherwise == 0) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "the description of '%s' has no %s", files->path, name);
        return false;
    }
    if (!(value >= 1 && value <= most) || value != (double)(int)value) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "the description of '%s' has %s %g; a whole number from 1 to %d is needed",
                    files->path, name ? name : json, value, most);
        return false;
    }
    *size = (int)value;
    return true;
}

/*  A positive number. otherwise: what it is where it is not said; 0: it has to be. */
static bool ignis__model_real(ignis__model_files *files, const char *json, const char *gguf, double otherwise, double *real)
{
    double value = otherwise;
    ignis__gguf_found found = ignis__model_number(files, json, gguf, &value);
    if (found == IGNIS__GGUF_BAD)
        return false;
    if (found == IGNIS__GGUF_NONE && otherwise == 0)
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "the description of '%s' has no %s", files->path, files->is_gguf ? gguf : json);
    else if (!(value > 0 && value < 1e12))
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "the description of '%s' has %s %g; a positive number is needed", files->path,
                    files->is_gguf ? gguf : json, value);
    else
        *real = value;
    return value > 0 && value < 1e12;
}

/*  What a description may say that would change what a model computes, and the one thing that Ignis can do. */
static const struct {
    unsigned families; /* 1 << each */
    const char *name;
    char kind; /* of the value that is wanted, as an ignis__config_item has it; '0': there may be none */
    double number;
    const char *texts[3];
} ignis__model_demands[] = {
    {1 << IGNIS_MODEL_GPT2, "activation_function", 't', 0, {"gelu_new", "gelu_pytorch_tanh", NULL}},
    {1 << IGNIS_MODEL_GPT2, "scale_attn_weights", 'b', 1, {NULL, NULL, NULL}},
    {1 << IGNIS_MODEL_GPT2, "scale_attn_by_inverse_layer_idx", 'b', 0, {NULL, NULL, NULL}},
    {1 << IGNIS_MODEL_GPT2, "add_cross_attention", 'b', 0, {NULL, NULL, NULL}},
    {~1u, "is_causal", 'b', 1, {NULL, NULL, NULL}},
    {~1u, "quantization_config", '0', 0, {NULL, NULL, NULL}},
    {~1u, "partial_rotary_factor", 'n', 1, {NULL, NULL, NULL}},
    {~1u, "rope_parameters.partial_rotary_factor", 'n', 1, {NULL, NULL, NULL}},
    {~1u, "num_experts", 'n', 0, {NULL, NULL, NULL}},
    {~1u, "num_local_experts", 'n', 0, {NULL, NULL, NULL}},
    {~(1u << IGNIS_MODEL_GPT2), "hidden_act", 't', 0, {"silu", "swish", NULL}},
    {~(1u << IGNIS_MODEL_GPT2), "use_sliding_window", 'b', 0, {NULL, NULL, NULL}},
    {1 << IGNIS_MODEL_LLAMA, "sliding_window", '0', 0, {NULL, NULL, NULL}},
    {~1u, "rope_interleaved", 'b', 0, {NULL, NULL, NULL}},
    {~1u, "rope_parameters.full_attention", '0', 0, {NULL, NULL, NULL}}, /* of each type of layers its own */
    {~1u, "rope_parameters.sliding_attention", '0', 0, {NULL, NULL, NULL}},
    {~1u, "layer_types[]", 't', 0, {"full_attention", NULL, NULL}},
    {~1u, "rope_scaling", '{', 0, {NULL, NULL, NULL}},
    {~1u, "rope_parameters", '{', 0, {NULL, NULL, NULL}},
    {~1u, "rope_scaling.mscale", '0', 0, {NULL, NULL, NULL}},
    {~1u, "rope_parameters.mscale", '0', 0, {NULL, NULL, NULL}},
    {~1u, "rope_scaling.mscale_all_dim", '0', 0, {NULL, NULL, NULL}},
    {~1u, "rope_parameters.mscale_all_dim", '0', 0, {NULL, NULL, NULL}},
    {~1u, "attn_logit_softcapping", '0', 0, {NULL, NULL, NULL}},
    {~1u, "final_logit_softcapping", '0', 0, {NULL, NULL, NULL}},
};

/*  Refuses what is in config.json and would be ignored. */
static bool ignis__model_demand(const ignis__model_files *files)
{
    char said[80];
    int i, d, k;
    for (i = 0; i < files->config.count; i++) {
        const ignis__config_item *item = &files->config.items[i];
        for (d = 0; d < IGNIS__COUNT(ignis__model_demands); d++) {
            bool fits = item->kind == '0' || item->kind == ignis__model_demands[d].kind;
            if (!(ignis__model_demands[d].families >> files->family & 1) || strcmp(item->name, ignis__model_demands[d].name) != 0)
                continue;
            if (item->kind == 't')
                snprintf(said, sizeof said, "%s", ignis__name_write(item->text).text);
            else if (item->kind == 'n')
                snprintf(said, sizeof said, "%g", item->number);
            else
                snprintf(said, sizeof said, "%s", item->kind == 'b' ? (item->number != 0 ? "true" : "false") : "there");
            if (fits && (item->kind == 'n' || item->kind == 'b'))
                fits = item->number == ignis__model_demands[d].number;
            if (fits && item->kind == 't') {
                for (k = 0; ignis__model_demands[d].texts[k] && strcmp(item->text, ignis__model_demands[d].texts[k]) != 0; k++)
                    continue;
                fits = ignis__model_demands[d].texts[k] != NULL;
            }
            if (fits)
                continue;
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "config.json of '%s' has %s %s, which Ignis cannot do", files->path,
                        item->name, said);
            return false;
        }
    }
    return true;
}

/*  Refuses what is in a GGUF file and would be ignored: numbers that have to be 0, or what they are anyway. */
static bool ignis__model_demand_gguf(ignis__model_files *files, const ignis__model *model)
{
    static const struct {
        const char *name;
        int wanted; /* below 0: as many as heads have numbers */
    } rows[] = {{"expert_count", 0},
                {"attention.sliding_window", 0},
                {"rope.dimension_count", -1},
                {"attention.value_length", -1},
                {"attention.logit_softcapping", 0},
                {"final_logit_softcapping", 0},
                {"attention.clamp_kqv", 0},
                {"attention.max_alibi_bias", 0},
                {"attention.scale", 0},
                {"embedding_scale", 1},
                {"residual_scale", 1},
                {"logit_scale", 1},
                {"rope.scaling.yarn_log_multiplier", 0},
                {"rope.scaling.yarn_attn_factor", 1},
                {"rope.scaling.yarn_ext_factor", 1}};
    double value, wanted;
    bool causal = true;
    char name[64];
    int i;
    for (i = 0; i < IGNIS__COUNT(rows); i++) {
        wanted = rows[i].wanted < 0 ? model->head_dim : rows[i].wanted;
        value = wanted;
        if (ignis__model_number(files, NULL, rows[i].name, &value) == IGNIS__GGUF_BAD)
            return false;
        if (value != wanted) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' has %s.%s %g, not %g, which Ignis cannot do", files->path,
                        ignis__model_families[files->family], rows[i].name, value, wanted);
            return false;
        }
    }
    snprintf(name, sizeof name, "%s.attention.causal", ignis__model_families[files->family]);
    if (ignis__gguf_bool(&files->gguf, name, &causal) == IGNIS__GGUF_BAD)
        return false;
    if (!causal)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' has %s false, which Ignis cannot do", files->path, name);
    return causal;
}

/*  The natural logarithm of a positive number, by the series of atanh: the C library's would have to be linked. */
static double ignis__ln(double x)
{
    const double ln2 = 0.69314718055994530942;
    double power, square, sum = 0;
    int exponent = 0, i;
    for (; x > 1.5; x /= 2)
        exponent++;
    for (; x < 0.75; x *= 2)
        exponent--;
    power = (x - 1) / (x + 1);
    square = power * power;
    for (i = 1; i < 60; i += 2, power *= square)
        sum += power / i;
    return 2 * sum + exponent * ln2;
}

static double ignis__floor(double x)
{
    double whole = x > -1e15 && x < 1e15 ? (double)(int64_t)x : x;
    return whole > x ? whole - 1 : whole;
}

#define IGNIS__TURN 6.28318530717958647692 /* 2 pi */

/*  The frequencies of llama3: long waves are stretched, short ones are not, and between the two limits there is a slope. */
static double ignis__model_llama3(double frequency, double factor, double low, double high, double original)
{
    double wave = IGNIS__TURN / frequency, slope;
    if (wave > original / low)
        return frequency / factor;
    if (wave < original / high)
        return frequency;
    slope = (original / wave - low) / (high - low);
    return (1 - slope) * frequency / factor + slope * frequency;
}

static bool ignis__model_stretch_kind(ignis__model_files *files, ignis__model *model, const char *kind)
{
    static const char *const kinds[] = {"default", "linear", "llama3", "yarn", "none"};
    int i;
    for (i = 0; i < IGNIS__COUNT(kinds) && strcmp(kind, kinds[i]) != 0; i++)
        continue;
    model->stretch = i == 4 ? IGNIS__STRETCH_NONE : (ignis__stretch)i;
    if (i < IGNIS__COUNT(kinds) && !(files->is_gguf && model->stretch == IGNIS__STRETCH_LLAMA3)) /* which has divisors instead */
        return true;
    ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' stretches positions by %s; %s are known", files->path,
                ignis__name_write(kind).text, files->is_gguf ? "none, linear and yarn" : "default, linear, llama3 and yarn");
    return false;
}

/*  The key of a GGUF file that has the factor of a stretching, the newer one of two, and its value; 0: neither says one. */
static bool ignis__model_stretch_factor(ignis__model_files *files, const char **key, double *value)
{
    ignis__gguf_found found;
    *key = "rope.scaling.factor";
    found = ignis__model_number(files, NULL, *key, value);
    if (found == IGNIS__GGUF_NONE && (found = ignis__model_number(files, NULL, "rope.scale_linear", value)) == IGNIS__GGUF_FOUND)
        *key = "rope.scale_linear";
    return found != IGNIS__GGUF_BAD;
}

/*  False, and reported: a GGUF file without yarn has a factor of attention. */
static bool ignis__model_stretch_alone(ignis__model_files *files)
{
    double value = 1;
    if (ignis__model_number(files, NULL, "rope.scaling.attn_factor", &value) == IGNIS__GGUF_BAD)
        return false;
    if (value == 1)
        return true;
    ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' has %s.rope.scaling.attn_factor %g without yarn, which Ignis cannot do",
                files->path, ignis__model_families[files->family], value);
    return false;
}

/*  How positions are stretched, by config.json of old and new: rope_scaling {rope_type or type, ...} and rope_theta, or all in
    rope_parameters; or by keys of a GGUF file. */
static bool ignis__model_stretch(ignis__model_files *files, ignis__model *model)
{
    const char *group = ignis__config_find(&files->config, "rope_parameters") ? "rope_parameters" : "rope_scaling", *text = NULL;
    const char *factor = NULL; /* its key in a GGUF file */
    const ignis__config_item *kind;
    char name[80];
    size_t size;
    double context = model->context, usual, said = 0;
    bool yarn;
#define IGNIS__IN_GROUP(field) (snprintf(name, sizeof name, "%s.%s", group, field), name)
    model->attention_factor = 1;
    if (files->is_gguf) {
        snprintf(name, sizeof name, "%s.rope.scaling.type", ignis__model_families[files->family]);
        if (ignis__gguf_string(&files->gguf, name, &text, &size) == IGNIS__GGUF_BAD ||
            !ignis__model_real(files, NULL, "rope.freq_base", 10000, &model->theta) || !ignis__model_stretch_factor(files, &factor, &said))
            return false;
        text = !text && said != 0 ? "linear" : text;
    } else {
        kind = ignis__config_find(&files->config, IGNIS__IN_GROUP("rope_type"));
        kind = kind ? kind : ignis__config_find(&files->config, IGNIS__IN_GROUP("type"));
        text = kind ? (kind->kind == 't' ? kind->text : "?") : NULL;
        if (!ignis__config_find(&files->config, IGNIS__IN_GROUP("rope_theta")))
            snprintf(name, sizeof name, "rope_theta");
        if (!ignis__model_real(files, name, NULL, 10000, &model->theta))
            return false;
    }
    if (!files->is_gguf && !text && ignis__config_find(&files->config, IGNIS__IN_GROUP("factor"))) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "config.json of '%s' has %s, and does not say of which rope_type", files->path,
                    name);
        return false;
    }
    if (text && !ignis__model_stretch_kind(files, model, text))
        return false;
    yarn = model->stretch == IGNIS__STRETCH_YARN;
    if (files->is_gguf && !yarn && !ignis__model_stretch_alone(files))
        return false;
    if (model->stretch == IGNIS__STRETCH_NONE)
        return true;
    if (!ignis__model_real(files, IGNIS__IN_GROUP("factor"), factor, 0, &model->factor))
        return false;
    if (model->stretch == IGNIS__STRETCH_LINEAR)
        return true;
    if (!ignis__model_real(files, IGNIS__IN_GROUP("original_max_position_embeddings"), "rope.scaling.original_context_length",
                           yarn ? context : 0, &model->original) ||
        !ignis__model_real(files, IGNIS__IN_GROUP(yarn ? "beta_slow" : "low_freq_factor"), yarn ? "rope.scaling.yarn_beta_slow" : NULL,
                           yarn, &model->low) ||
        !ignis__model_real(files, IGNIS__IN_GROUP(yarn ? "beta_fast" : "high_freq_factor"), yarn ? "rope.scaling.yarn_beta_fast" : NULL,
                           yarn ? 32 : 0, &model->high))
        return false;
    if (model->high <= model->low) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "the description of '%s' stretches positions from %g to %g, the wrong way round",
                    files->path, model->low, model->high);
        return false;
    }
    if (!yarn)
        return true;
    if (!(model->theta > 1)) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "the description of '%s' has rope_theta %g; yarn needs one above 1", files->path,
                    model->theta);
        return false;
    }
    usual = model->factor > 1 ? 0.1 * ignis__ln(model->factor) + 1 : 1;
    if (!ignis__model_real(files, IGNIS__IN_GROUP("attention_factor"), "rope.scaling.attn_factor", files->is_gguf ? 1 : usual,
                           &model->attention_factor))
        return false;
    if (files->is_gguf) { /* there it multiplies the usual one, in config.json it takes its place */
        model->attention_factor *= usual;
        return true;
    }
    kind = ignis__config_find(&files->config, IGNIS__IN_GROUP("truncate"));
    model->uncut = kind && kind->kind == 'b' && kind->number == 0;
    if (kind && kind->kind != 'b') {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "config.json of '%s': %s is neither true nor false", files->path, name);
        return false;
    }
    return true;
#undef IGNIS__IN_GROUP
}

/*  Of yarn: the frequency that turns so often within the original context, as a number of the list. */
static double ignis__model_yarn_at(const ignis__model *model, double turns)
{
    return model->head_dim * ignis__ln(model->original / (IGNIS__TURN * turns)) / (2 * ignis__ln(model->theta));
}

/*  f_i = theta^(-2 i / head_dim), stretched. */
static void ignis__model_frequencies(ignis__model *model)
{
    double ratio = ignis__root(1 / model->theta, model->head_dim / 2), f = 1, low = 0, high = 0, t;
    int i;
    if (model->stretch == IGNIS__STRETCH_YARN) {
        low = ignis__model_yarn_at(model, model->high);
        high = ignis__model_yarn_at(model, model->low);
        low = model->uncut ? low : ignis__floor(low);
        high = model->uncut ? high : -ignis__floor(-high);
        low = low < 0 ? 0 : low;
        high = high > model->head_dim - 1 ? model->head_dim - 1 : high;
        high = high == low ? high + 0.001 : high;
    }
    for (i = 0; i < model->head_dim / 2; i++, f *= ratio) {
        t = (i - low) / (high - low == 0 ? 1 : high - low);
        t = t < 0 ? 0 : t > 1 ? 1 : t;
        model->frequencies[i] = model->stretch == IGNIS__STRETCH_LINEAR ? f / model->factor
                                : model->stretch == IGNIS__STRETCH_LLAMA3
                                    ? ignis__model_llama3(f, model->factor, model->low, model->high, model->original)
                                : model->stretch == IGNIS__STRETCH_YARN ? f * (1 - t) + f / model->factor * t
                                                                        : f;
    }
}

/*  A GGUF file's own divisors of the frequencies, as converters of Llama 3 write them. */
static bool ignis__model_divisors(ignis__model_files *files, ignis__model *model)
{
    ignis__model_source *source = files->is_gguf ? ignis__model_source_find(files, "rope_freqs.weight") : NULL;
    float divisor[IGNIS__MODEL_HALF];
    int i, half = model->head_dim / 2, guess;
    bool like, alone;
    if (!source)
        return true;
    source->used = true;
    if (source->dtype != IGNIS_F32 || source->shape.ndim != 1 || source->shape.dim[0] != half) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "tensor rope_freqs.weight of '%s' is %s %s; F32 [%d] is needed", files->path,
                    ignis__model_type_write(source).text, ignis__shape_write(&source->shape).text, half);
        return false;
    }
    if (ignis__file_read_at(files->gguf.descriptor, source->begin, divisor, half * 4) != half * 4)
        return ignis__file_fail(files->call, files->path, "read");
    for (i = 0; i < half; i++) {
        if (!(divisor[i] > 0 && (double)divisor[i] < 1e12)) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "tensor rope_freqs.weight of '%s' has %g at %d; positive numbers are needed",
                        files->path, (double)divisor[i], i);
            return false;
        }
    }
    alone = model->stretch == IGNIS__STRETCH_NONE;
    model->stretch = IGNIS__STRETCH_TABLE;
    for (guess = 8; guess <= 32 && model->stretch == IGNIS__STRETCH_TABLE;
         guess *= 4) { /* Llama 3.1, 3.2: config.json has words for these */
        for (like = alone, i = 0; i < half; i++) {
            double f = model->frequencies[i], d = f / ignis__model_llama3(f, guess, 1, 4, 8192) / (double)divisor[i];
            like = like && d > 1 - 1e-5 && d < 1 + 1e-5;
        }
        if (!like)
            continue;
        model->stretch = IGNIS__STRETCH_LLAMA3;
        model->factor = guess, model->low = 1, model->high = 4, model->original = 8192;
    }
    for (i = 0; i < half; i++)
        model->frequencies[i] /= (double)divisor[i];
    return true;
}

/*  Adds a token that ends a text. One that the model does not have is none. */
static void ignis__model_end_add(ignis__model *model, double id)
{
    int i;
    if (!(id >= 0 && id < model->vocab))
        return;
    for (i = 0; i < model->stop_count && model->stops[i] != (int32_t)id;)
        i++;
    if (i == model->stop_count && i < IGNIS__MODEL_STOPS)
        model->stops[model->stop_count++] = (int32_t)id;
}

/*  Adds those of a GGUF file: tokens that keys name, and tokens that are known by their texts, as llama.cpp takes them. Writers of such files name
    one token, and models end their turns by others. */
static bool ignis__model_ends_gguf(ignis__model_files *files, ignis__model *model)
{
    static const char *const names[] = {"bos", "eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"};
    ignis__gguf_items texts = IGNIS__ZERO, types = IGNIS__ZERO;
    unsigned found = 0, bits[2];
    int32_t end = -1;
    char name[64];
    size_t size;
    int i;
    for (i = 0; i < IGNIS__COUNT(names); i++) {
        int64_t id = -1;
        snprintf(name, sizeof name, "tokenizer.ggml.%s_token_id", names[i]);
        if (ignis__gguf_int(&files->gguf, name, &id) == IGNIS__GGUF_BAD)
            return false;
        if (i > 0)
            ignis__model_end_add(model, (double)id);
        else if (id >= 0 && id < model->vocab)
            model->bos = (int32_t)id;
    }
    if (ignis__gguf_array(&files->gguf, "tokenizer.ggml.tokens", IGNIS__GGUF_STRING, &texts) == IGNIS__GGUF_BAD ||
        ignis__gguf_array(&files->gguf, "tokenizer.ggml.token_type", IGNIS__GGUF_I64, &types) == IGNIS__GGUF_BAD)
        return false;
    for (i = 0; texts.left > 0 && i < model->vocab; i++) {
        int64_t type = types.left > 0 ? ignis__gguf_next_int(&types) : (int64_t)IGNIS__TYPE_NORMAL;
        int which = ignis__text_ends(ignis__gguf_next_text(&texts, &size), (int)type);
        if (which < 0)
            continue;
        found |= which < IGNIS__END_OTHERS ? 1u << which : 0;
        end = which == IGNIS__END_END ? i : end;
        ignis__model_end_add(model, i);
    }
    /* where messages end by other tokens, <|end|> is inside of an answer */
    bits[0] = 1u << IGNIS__END_RETURN | 1u << IGNIS__END_FLUSH;
    bits[1] = 1u << IGNIS__END_CALL | 1u << IGNIS__END_CALLS;
    for (i = 0; found & bits[0] && found & bits[1] && i < model->stop_count; i++)
        if (model->stops[i] == end)
            model->stops[i--] = model->stops[--model->stop_count];
    return true;
}

/*  Tokens that begin and end a text. What is not there, or is no token, is none. */
static bool ignis__model_ends(ignis__model_files *files, ignis__model *model)
{
    static const char *const names[] = {"eos_token_id", "eos_token_id[]"};
    const ignis__config_item *item;
    int i, k;
    model->bos = -1;
    if (files->is_gguf)
        return ignis__model_ends_gguf(files, model);
    item = ignis__config_find(&files->config, "bos_token_id");
    if (item && item->kind == 'n' && item->number >= 0 && item->number < model->vocab)
        model->bos = (int32_t)item->number;
    for (k = 0; k < 2 && !model->stop_count; k++) { /* generation_config.json knows best */
        const ignis__config *config = k == 0 ? &files->generation : &files->config;
        for (i = 0; i < config->count; i++) {
            item = &config->items[i];
            if ((strcmp(item->name, names[0]) == 0 || strcmp(item->name, names[1]) == 0) && item->kind == 'n')
                ignis__model_end_add(model, item->number);
        }
    }
    return true;
}

/*  Fills in what the description says. */
IGNIS__COLD static bool ignis__model_describe(ignis__model_files *files, ignis__model *model)
{
    bool old = files->family == IGNIS_MODEL_GPT2;
    const ignis__model_source *table;
    const ignis__config_item *tied;
    const int limit = 1 << 24;
    int i;
    model->family = files->family;
    model->rms = model->rope = !old;
    model->gelu = old;
    if (!files->is_gguf && !ignis__model_demand(files))
        return false;
    if (!ignis__model_size(files, old ? "n_layer" : "num_hidden_layers", "block_count", 0, 65536, &model->layers) ||
        !ignis__model_size(files, old ? "n_embd" : "hidden_size", "embedding_length", 0, limit, &model->hidden) ||
        !ignis__model_size(files, old ? "n_head" : "num_attention_heads", "attention.head_count", 0, 65536, &model->heads) ||
        !ignis__model_size(files, old ? NULL : "num_key_value_heads", old ? NULL : "attention.head_count_kv", model->heads, 65536,
                           &model->kv_heads) ||
        !ignis__model_size(files, old ? "n_inner" : "intermediate_size", "feed_forward_length", old ? 4 * model->hidden : 0, 4 * limit,
                           &model->inner) ||
        !ignis__model_size(files, old ? "n_positions" : "max_position_embeddings", "context_length", 0, 1 << 30, &model->context) ||
        !ignis__model_real(files, old ? "layer_norm_epsilon" : "rms_norm_eps",
                           old ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", old ? 1e-5 : 1e-6, &model->eps))
        return false;
    if (model->layers > files->source_count) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "the description of '%s' has %d layers, but there are %lld tensors", files->path,
                    model->layers, (long long)files->source_count);
        return false;
    }
    if (model->hidden % model->heads == 0)
        i = model->hidden / model->heads;
    else
        i = 0;
    if (i == 0 && (old || (!ignis__config_find(&files->config, "head_dim") && !files->is_gguf))) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' contradicts itself: %d heads do not divide %d numbers a token", files->path, model->heads,
                    model->hidden);
        return false;
    }
    if (!ignis__model_size(files, old ? NULL : "head_dim", old ? NULL : "attention.key_length", i, 65536, &model->head_dim))
        return false;
    if (model->heads % model->kv_heads != 0) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' contradicts itself: %d heads are no multiple of %d of keys", files->path, model->heads,
                    model->kv_heads);
        return false;
    }
    if (model->head_dim > 2 * IGNIS__MODEL_HALF || (model->rope && model->head_dim % 2 != 0)) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "heads of '%s' have %d numbers; an even number up to %d is needed", files->path,
                    model->head_dim, 2 * IGNIS__MODEL_HALF);
        return false;
    }
    if (files->is_gguf) { /* the table says how many tokens there are */
        table = ignis__model_source_find(files, "token_embd.weight");
        model->vocab =
            table && table->shape.ndim == 2 && table->shape.dim[0] > 0 && table->shape.dim[0] < INT32_MAX ? (int)table->shape.dim[0] : 1;
        model->tied = !ignis__model_source_find(files, "output.weight");
        if (!ignis__model_demand_gguf(files, model))
            return false;
    } else {
        if (!ignis__model_size(files, "vocab_size", NULL, 0, INT32_MAX - 1, &model->vocab))
            return false;
        tied = ignis__config_find(&files->config, "tie_word_embeddings");
        model->tied = tied && tied->kind == 'b' ? tied->number != 0 : !ignis__model_source_find(files, "lm_head.weight");
    }
    if (model->rope && !ignis__model_stretch(files, model))
        return false;
    model->attention_factor = model->rope ? model->attention_factor : 1;
    if (model->rope)
        ignis__model_frequencies(model);
    if (model->rope && !ignis__model_divisors(files, model))
        return false;
    model->attention_scale = model->attention_factor * model->attention_factor / ignis__root(model->head_dim, 2);
    return ignis__model_ends(files, model);
}

/* --- which tensors become which weights -------------------------------------------------------------------------------- */

#define IGNIS__MODEL_ROTARY (1u << IGNIS_MODEL_LLAMA | 1u << IGNIS_MODEL_QWEN2 | 1u << IGNIS_MODEL_QWEN3)
#define IGNIS__MODEL_BIASES (1u << IGNIS_MODEL_LLAMA | 1u << IGNIS_MODEL_QWEN3)

/*  How a tensor lies in the file, where it lies differently. */
enum {
    IGNIS__MODEL_IN_OUT = 1, /* a safetensors file has it [in, out] */
    IGNIS__MODEL_PAIRS = 2,  /* a GGUF file of llama has rows i and i + head_dim / 2 of each head beside each other */
    IGNIS__MODEL_HEAD = 4    /* only where the head is no other's */
};

/*  One tensor of a file, which becomes rows of a weight: behind those of the row before it that becomes the same. # is the layer. Letters of
    sizes: V vocabulary, P positions, H hidden, Q and K heads of queries and keys, D a head, I inner, 3 three times hidden. */
typedef struct ignis__model_row {
    unsigned families, optional; /* 1 << each */
    bool in_layer;
    size_t member;      /* of ignis__layer or ignis__model */
    char rows, columns; /* columns 0: one dimension */
    int how;
    const char *hf, *gguf;
    const char *whole; /* the name of the weight, if there are other rows in it */
} ignis__model_row;

#define IGNIS__ROW_MODEL(member) false, offsetof(ignis__model, member)
#define IGNIS__ROW_LAYER(member) true, offsetof(ignis__layer, member)
#define IGNIS__ROW_G (1u << IGNIS_MODEL_GPT2), 0
#define IGNIS__ROW_L IGNIS__MODEL_ROTARY, 0
#define IGNIS__ROW_B IGNIS__MODEL_ROTARY, IGNIS__MODEL_BIASES
#define IGNIS__ROW_O IGNIS__MODEL_ROTARY, IGNIS__MODEL_ROTARY
#define IGNIS__ROW_3 (1u << IGNIS_MODEL_QWEN3), 0
#define IGNIS__QKV "model.layers.#.self_attn.qkv_proj."
#define IGNIS__GATE_UP "model.layers.#.mlp.gate_up_proj."

static const ignis__model_row ignis__model_rows[] = {
    {IGNIS__ROW_G, IGNIS__ROW_MODEL(embedding), 'V', 'H', 0, "wte.weight", "token_embd.weight", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_MODEL(positions), 'P', 'H', 0, "wpe.weight", "position_embd.weight", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_MODEL(norm), 'H', 0, 0, "ln_f.weight", "output_norm.weight", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_MODEL(norm_bias), 'H', 0, 0, "ln_f.bias", "output_norm.bias", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_MODEL(head), 'V', 'H', IGNIS__MODEL_HEAD, "lm_head.weight", "output.weight", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_LAYER(attn_norm), 'H', 0, 0, "h.#.ln_1.weight", "blk.#.attn_norm.weight", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_LAYER(attn_norm_bias), 'H', 0, 0, "h.#.ln_1.bias", "blk.#.attn_norm.bias", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_LAYER(qkv), '3', 'H', IGNIS__MODEL_IN_OUT, "h.#.attn.c_attn.weight", "blk.#.attn_qkv.weight", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_LAYER(qkv_bias), '3', 0, 0, "h.#.attn.c_attn.bias", "blk.#.attn_qkv.bias", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_LAYER(o), 'H', 'Q', IGNIS__MODEL_IN_OUT, "h.#.attn.c_proj.weight", "blk.#.attn_output.weight", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_LAYER(o_bias), 'H', 0, 0, "h.#.attn.c_proj.bias", "blk.#.attn_output.bias", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_LAYER(mlp_norm), 'H', 0, 0, "h.#.ln_2.weight", "blk.#.ffn_norm.weight", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_LAYER(mlp_norm_bias), 'H', 0, 0, "h.#.ln_2.bias", "blk.#.ffn_norm.bias", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_LAYER(up), 'I', 'H', IGNIS__MODEL_IN_OUT, "h.#.mlp.c_fc.weight", "blk.#.ffn_up.weight", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_LAYER(up_bias), 'I', 0, 0, "h.#.mlp.c_fc.bias", "blk.#.ffn_up.bias", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_LAYER(down), 'H', 'I', IGNIS__MODEL_IN_OUT, "h.#.mlp.c_proj.weight", "blk.#.ffn_down.weight", NULL},
    {IGNIS__ROW_G, IGNIS__ROW_LAYER(down_bias), 'H', 0, 0, "h.#.mlp.c_proj.bias", "blk.#.ffn_down.bias", NULL},

    {IGNIS__ROW_L, IGNIS__ROW_MODEL(embedding), 'V', 'H', 0, "model.embed_tokens.weight", "token_embd.weight", NULL},
    {IGNIS__ROW_L, IGNIS__ROW_MODEL(norm), 'H', 0, 0, "model.norm.weight", "output_norm.weight", NULL},
    {IGNIS__ROW_L, IGNIS__ROW_MODEL(head), 'V', 'H', IGNIS__MODEL_HEAD, "lm_head.weight", "output.weight", NULL},
    {IGNIS__ROW_L, IGNIS__ROW_LAYER(attn_norm), 'H', 0, 0, "model.layers.#.input_layernorm.weight", "blk.#.attn_norm.weight", NULL},
    {IGNIS__ROW_L, IGNIS__ROW_LAYER(qkv), 'Q', 'H', IGNIS__MODEL_PAIRS, "model.layers.#.self_attn.q_proj.weight", "blk.#.attn_q.weight",
     IGNIS__QKV "weight"},
    {IGNIS__ROW_L, IGNIS__ROW_LAYER(qkv), 'K', 'H', IGNIS__MODEL_PAIRS, "model.layers.#.self_attn.k_proj.weight", "blk.#.attn_k.weight",
     IGNIS__QKV "weight"},
    {IGNIS__ROW_L, IGNIS__ROW_LAYER(qkv), 'K', 'H', 0, "model.layers.#.self_attn.v_proj.weight", "blk.#.attn_v.weight",
     IGNIS__QKV "weight"},
    {IGNIS__ROW_B, IGNIS__ROW_LAYER(qkv_bias), 'Q', 0, IGNIS__MODEL_PAIRS, "model.layers.#.self_attn.q_proj.bias", "blk.#.attn_q.bias",
     IGNIS__QKV "bias"},
    {IGNIS__ROW_B, IGNIS__ROW_LAYER(qkv_bias), 'K', 0, IGNIS__MODEL_PAIRS, "model.layers.#.self_attn.k_proj.bias", "blk.#.attn_k.bias",
     IGNIS__QKV "bias"},
    {IGNIS__ROW_B, IGNIS__ROW_LAYER(qkv_bias), 'K', 0, 0, "model.layers.#.self_attn.v_proj.bias", "blk.#.attn_v.bias", IGNIS__QKV "bias"},
    {IGNIS__ROW_3, IGNIS__ROW_LAYER(q_norm), 'D', 0, 0, "model.layers.#.self_attn.q_norm.weight", "blk.#.attn_q_norm.weight", NULL},
    {IGNIS__ROW_3, IGNIS__ROW_LAYER(k_norm), 'D', 0, 0, "model.layers.#.self_attn.k_norm.weight", "blk.#.attn_k_norm.weight", NULL},
    {IGNIS__ROW_L, IGNIS__ROW_LAYER(o), 'H', 'Q', 0, "model.layers.#.self_attn.o_proj.weight", "blk.#.attn_output.weight", NULL},
    {IGNIS__ROW_O, IGNIS__ROW_LAYER(o_bias), 'H', 0, 0, "model.layers.#.self_attn.o_proj.bias", "blk.#.attn_output.bias", NULL},
    {IGNIS__ROW_L, IGNIS__ROW_LAYER(mlp_norm), 'H', 0, 0, "model.layers.#.post_attention_layernorm.weight", "blk.#.ffn_norm.weight", NULL},
    {IGNIS__ROW_L, IGNIS__ROW_LAYER(up), 'I', 'H', 0, "model.layers.#.mlp.gate_proj.weight", "blk.#.ffn_gate.weight",
     IGNIS__GATE_UP "weight"},
    {IGNIS__ROW_L, IGNIS__ROW_LAYER(up), 'I', 'H', 0, "model.layers.#.mlp.up_proj.weight", "blk.#.ffn_up.weight", IGNIS__GATE_UP "weight"},
    {IGNIS__ROW_O, IGNIS__ROW_LAYER(up_bias), 'I', 0, 0, "model.layers.#.mlp.gate_proj.bias", "blk.#.ffn_gate.bias", IGNIS__GATE_UP "bias"},
    {IGNIS__ROW_O, IGNIS__ROW_LAYER(up_bias), 'I', 0, 0, "model.layers.#.mlp.up_proj.bias", "blk.#.ffn_up.bias", IGNIS__GATE_UP "bias"},
    {IGNIS__ROW_L, IGNIS__ROW_LAYER(down), 'H', 'I', 0, "model.layers.#.mlp.down_proj.weight", "blk.#.ffn_down.weight", NULL},
    {IGNIS__ROW_O, IGNIS__ROW_LAYER(down_bias), 'H', 0, 0, "model.layers.#.mlp.down_proj.bias", "blk.#.ffn_down.bias", NULL},
};

/*  A name of the table with its layer. */
typedef struct ignis__model_name {
    char text[96];
} ignis__model_name;

static ignis__model_name ignis__model_name_write(const char *prefix, const char *pattern, int layer)
{
    ignis__model_name name;
    const char *place = strchr(pattern, '#');
    if (place)
        snprintf(name.text, sizeof name.text, "%s%.*s%d%s", prefix, (int)(place - pattern), pattern, layer, place + 1);
    else
        snprintf(name.text, sizeof name.text, "%s%s", prefix, pattern);
    return name;
}

/*  Sizes of a rank's share; those that the ranks share are so many times as large in the files. */
static int64_t ignis__model_letter(const ignis__model *model, char letter)
{
    switch (letter) {
    case 'V': return model->vocab;
    case 'P': return model->context;
    case 'H': return model->hidden;
    case '3': return (int64_t)3 * model->heads * model->head_dim;
    case 'Q': return (int64_t)model->heads * model->head_dim;
    case 'K': return (int64_t)model->kv_heads * model->head_dim;
    case 'D': return model->head_dim;
    case 'I': return model->inner;
    default: return 1;
    }
}

/*  A row of the table for one layer. */
typedef struct ignis__model_part {
    const ignis__model_row *row;
    int layer;
    int64_t first, rows, columns; /* of the weight */
    int64_t total;                /* rows of the weight, at its first part; 0 at others */
    int64_t file_rows, file_columns, stretch,
        stride;                      /* each `stretch` of the rows begins a `stride` behind the one before it in the file */
    int64_t skip_rows, skip_columns; /* those of other ranks, ahead */
    int blocks;                      /* an ignis__gguf_type, which it has on the device; 0: numbers */
    const ignis__model_source *from;
    ignis_tensor *to;
} ignis__model_part;

/*  The rows of the vocabulary that a rank multiplies with: how many each has, but for the last ones. */
static int64_t ignis__model_head_rows(const ignis__model *model) { return ignis__ceil_div(model->vocab, model->parallel.size); }

/*  Which rows and columns of the file's tensor a part is: heads of queries, keys and values, elements of the MLP, and rows of a head of its own are
    shared by the ranks; the rest is everybody's. */
static void ignis__model_share(const ignis__model *model, ignis__model_part *part)
{
    const ignis__model_row *row = part->row;
    int64_t ranks = model->parallel.size, rank = model->parallel.rank;
    part->rows = part->file_rows = part->stretch = ignis__model_letter(model, row->rows);
    part->columns = part->file_columns = ignis__model_letter(model, row->columns);
    if (row->how & IGNIS__MODEL_HEAD) {
        part->skip_rows = rank * ignis__model_head_rows(model);
        part->rows = part->stretch = ignis__clamp(model->vocab - part->skip_rows, 0, ignis__model_head_rows(model));
    } else if (strchr("QKI3", row->rows)) {
        part->stretch = row->rows == '3' ? part->rows / 3 : part->rows;
        part->file_rows = part->rows * ranks;
        part->skip_rows = part->stretch * rank;
    }
    part->stride = part->stretch * ranks;
    if (row->columns == 'Q' || row->columns == 'I') {
        part->file_columns = part->columns * ranks;
        part->skip_columns = part->columns * rank;
    }
}

/*  The row of the file in which a row of a part is. */
static int64_t ignis__model_file_row(const ignis__model_part *part, int64_t row)
{
    return part->skip_rows + row / part->stretch * part->stride + row % part->stretch;
}

/*  The prefix of the names of a family that has one: GPT-2's first files have none. */
static const char *ignis__model_prefix(const ignis__model_files *files, ignis_model_family family)
{
    return family == IGNIS_MODEL_GPT2 && (!files || ignis__model_source_find(files, "transformer.wte.weight")) ? "transformer." : "";
}

static ignis__model_name ignis__model_name_of(const ignis__model_files *files, const ignis__model *model, const ignis__model_row *row,
                                              int layer)
{
    bool plain = row->how & IGNIS__MODEL_HEAD; /* which stands beside the model in GPT-2 */
    if (files && files->is_gguf)
        return ignis__model_name_write("", row->gguf, layer);
    return ignis__model_name_write(plain ? "" : ignis__model_prefix(files, model->family), row->hf, layer);
}

static ignis_tensor *ignis__model_member(ignis__model *model, const ignis__model_row *row, int layer)
{
    char *base = row->in_layer ? (char *)&model->layer[layer] : (char *)model;
    return (ignis_tensor *)(void *)(base + row->member);
}

/*  Whether the weight of a row is there: in the files, or in the model where those are null. */
static bool ignis__model_has(const ignis__model_files *files, ignis__model *model, const ignis__model_row *row, int layer)
{
    int i;
    if (row->how & IGNIS__MODEL_HEAD)
        return !model->tied;
    if (!(row->optional >> model->family & 1))
        return true;
    if (!files)
        return ignis__model_member(model, row, layer)->id != 0;
    for (i = 0; i < IGNIS__COUNT(ignis__model_rows); i++) {
        const ignis__model_row *other = &ignis__model_rows[i];
        if (other->families >> model->family & 1 && other->in_layer == row->in_layer && other->member == row->member &&
            ignis__model_source_find(files, ignis__model_name_of(files, model, other, layer).text))
            return true;
    }
    return false;
}

/*  Every part that there is, those of one weight behind each other. files: null for those of an open model. Returns how many; parts may be null. */
static int ignis__model_parts(const ignis__model_files *files, ignis__model *model, ignis__model_part *parts)
{
    int count = 0, first = 0, i, layer;
    for (layer = -1; layer < model->layers; layer++) {
        const ignis__model_row *before = NULL;
        for (i = 0; i < IGNIS__COUNT(ignis__model_rows); i++) {
            const ignis__model_row *row = &ignis__model_rows[i];
            if (!(row->families >> model->family & 1) || row->in_layer != (layer >= 0) || !ignis__model_has(files, model, row, layer))
                continue;
            if (parts) {
                ignis__model_part *part = &parts[count];
                memset(part, 0, sizeof *part);
                part->row = row;
                part->layer = layer;
                ignis__model_share(model, part);
                part->to = ignis__model_member(model, row, layer);
                if (before && before->member == row->member)
                    part->first = parts[count - 1].first + parts[count - 1].rows;
                else
                    first = count;
                parts[first].total += part->rows;
            }
            before = row;
            count++;
        }
    }
    return count;
}

static ignis__model_part *ignis__model_parts_make(const char *call, const ignis__model_files *files, ignis__model *model, int *count)
{
    ignis__model_part *parts;
    size_t size;
    *count = ignis__model_parts(files, model, NULL);
    size = ((size_t)*count + 1) * sizeof *parts;
    parts = (ignis__model_part *)ignis__alloc(size);
    if (parts)
        (void)ignis__model_parts(files, model, parts);
    else
        ignis__fail_host_memory(call, size);
    return parts;
}

/* --- quantised weights on the device -------------------------------------------------------------------------------------------- */

/*  What lies there of each type: rows of records of 256 elements, of so many bytes; Q6_K has a scale of each behind them. kernels/blocks.cuh says
    what is in them. */
static const struct {
    int type, bytes, scale;
} ignis__blocks_types[] = {
    {IGNIS__GGUF_Q4_0, 144, 0},
    {IGNIS__GGUF_Q8_0, 272, 0},
    {IGNIS__GGUF_Q4_K, 144, 0},
    {IGNIS__GGUF_Q6_K, 208, 2},
};

/*  Which of them a type is; -1: none. */
static int ignis__blocks_type(int type)
{
    int i;
    for (i = IGNIS__COUNT(ignis__blocks_types) - 1; i >= 0 && ignis__blocks_types[i].type != type; i--)
        continue;
    return i;
}

/*  Bytes of so many rows, which lie together eight at a time, a multiple of 16; scales: and of what is behind them. */
static int64_t ignis__blocks_bytes_of(int type, int64_t rows, int64_t columns, bool scales)
{
    int number = ignis__blocks_type(type);
    int64_t records = ignis__ceil_div(rows, 8) * 8 * ignis__ceil_div(columns, 256);
    return records * ignis__blocks_types[number].bytes + (scales ? records * ignis__blocks_types[number].scale : 0);
}

/*  Where a row begins. */
static int64_t ignis__blocks_row(int type, int64_t row, int64_t columns)
{
    return ignis__blocks_bytes_of(type, row / 8 * 8, columns, false) + row % 8 * ignis__blocks_types[ignis__blocks_type(type)].bytes;
}

/*  The bytes of the first `parts` parts of a weight. */
static int64_t ignis__blocks_bytes(const ignis__blocks *blocks, int parts)
{
    int64_t bytes = 0;
    int i;
    for (i = 0; i < parts; i++)
        bytes += ignis__blocks_bytes_of(blocks->part[i].type, blocks->part[i].rows, blocks->columns, true);
    return bytes;
}

/*  The type that the description asks for; 0: numbers. */
static int ignis__model_wanted(const ignis__model *model, const ignis__model_part *part)
{
    if (!part->row->columns || part->row->rows == 'P' || model->weights == IGNIS_WEIGHTS_NUMBERS)
        return 0;
    if (model->weights == IGNIS_WEIGHTS_DEFAULT)
        return ignis__blocks_type((int)part->from->quant) < 0 ? 0 : (int)part->from->quant;
    if (part->columns % 32 != 0)
        return 0;
    return model->weights == IGNIS_WEIGHTS_Q4_0                               ? IGNIS__GGUF_Q4_0
           : model->weights == IGNIS_WEIGHTS_Q4_K && part->columns % 256 == 0 ? IGNIS__GGUF_Q4_K
                                                                              : IGNIS__GGUF_Q8_0;
}

/*  What the parts of a weight, of which this is the first, are on the device. */
static ignis__blocks ignis__model_blocks(const ignis__model_part *parts, int count)
{
    ignis__blocks blocks;
    int i;
    memset(&blocks, 0, sizeof blocks);
    blocks.columns = (int)parts[0].columns;
    for (i = 0; parts[0].blocks && i < count && (i == 0 || !parts[i].total); i++) {
        if (!i || blocks.part[blocks.count - 1].type != parts[i].blocks)
            blocks.part[blocks.count++].type = parts[i].blocks;
        blocks.part[blocks.count - 1].rows += (int)parts[i].rows;
    }
    return blocks;
}

/*  Chooses what every weight is on the device, and counts bytes. The parts of one are all quantised, or none is; a gate and what it lets pass
    are of one type, as one product reads both. */
static void ignis__model_choose(ignis__model *model, ignis__model_part *parts, int count)
{
    ignis__blocks blocks;
    int first, end, i;
    for (first = 0; first < count; first = end) {
        bool all = true, aligned = true; /* eight rows lie together */
        for (end = first; end == first || (end < count && !parts[end].total); end++) {
            parts[end].blocks = ignis__model_wanted(model, &parts[end]);
            all = all && parts[end].blocks && (parts[end].row->rows != 'I' || parts[end].blocks == parts[first].blocks);
            aligned = aligned && parts[end].rows % 8 == 0 && parts[end].stretch % 8 == 0;
        }
        all = all && (aligned || (end == first + 1 && parts[first].stretch >= parts[first].rows));
        for (i = first; i < end; i++) {
            parts[i].blocks = all ? parts[i].blocks : 0;
            model->quantised += all ? parts[i].rows * parts[i].columns : 0;
        }
        blocks = ignis__model_blocks(&parts[first], count - first);
        model->weight_bytes +=
            all ? ignis__blocks_bytes(&blocks, blocks.count) : parts[first].total * parts[first].columns * ignis__dtypes[model->dtype].size;
    }
}

/*  Whether a tensor that no weight is made of changes nothing: tables that follow from the description, as older versions of transformers have
    written them, and a head beside a table that serves as one. ignis_model_open's manual has the list. */
static bool ignis__model_harmless(const ignis__model_files *files, const ignis__model *model, const ignis__model_source *source)
{
    static const struct {
        const char *end; /* of the name */
        unsigned families;
        int ndim; /* -1: any */
    } rows[] = {{"rotary_emb.inv_freq", IGNIS__MODEL_ROTARY, 1},
                {".attn.bias", 1u << IGNIS_MODEL_GPT2, 4},
                {".attn.masked_bias", 1u << IGNIS_MODEL_GPT2, -1}};
    size_t size = strlen(source->name), end;
    int i;
    if (files->is_gguf)
        return false;
    for (i = 0; i < IGNIS__COUNT(rows); i++) {
        end = strlen(rows[i].end);
        if (rows[i].families >> model->family & 1 && size >= end && strcmp(source->name + size - end, rows[i].end) == 0 &&
            (rows[i].ndim < 0 || rows[i].ndim == source->shape.ndim))
            return true;
    }
    return model->tied && strcmp(source->name, "lm_head.weight") == 0;
}

/*  False, and reported: the files have a tensor that the model has no use for. Without it the model would be another one than the files'. */
static bool ignis__model_uses_all(const ignis__model_files *files, const ignis__model *model)
{
    int64_t i;
    for (i = 0; i < files->source_count; i++) {
        const ignis__model_source *source = &files->sources[i];
        if (source->used || ignis__model_harmless(files, model, source))
            continue;
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' has a tensor %s, %s, for which a %s model of layers 0 to %d has no use",
                    files->path, ignis__name_write(source->name).text, ignis__shape_write(&source->shape).text,
                    ignis__model_families[model->family], model->layers - 1);
        return false;
    }
    return true;
}

/*  Finds the tensor of every part, and checks that it can become it. */
IGNIS__COLD static bool ignis__model_match(ignis__model_files *files, ignis__model *model, ignis__model_part *parts, int count)
{
    int64_t elements[IGNIS_DTYPE_COUNT] = {0}, numel; /* [0]: of quantised ones */
    int i, k;
    for (i = 0; i < count; i++) {
        ignis__model_part *part = &parts[i];
        ignis__model_name name = ignis__model_name_of(files, model, part->row, part->layer);
        ignis__model_source *source = ignis__model_source_find(files, name.text);
        ignis_shape wanted;
        memset(&wanted, 0, sizeof wanted);
        wanted.ndim = part->row->columns ? 2 : 1;
        wanted.dim[0] = part->file_rows;
        if (wanted.ndim == 2)
            wanted.dim[1] = part->file_columns;
        if (!files->is_gguf && part->row->how & IGNIS__MODEL_IN_OUT) {
            wanted.dim[0] = part->file_columns;
            wanted.dim[1] = part->file_rows;
        }
        if (!source) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "'%s' has no tensor %s, %s, which its description asks for", files->path,
                        ignis__name_write(name.text).text, ignis__shape_write(&wanted).text);
            return false;
        }
        if (!source->quant && !ignis__dtype_is_float(source->dtype)) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "tensor %s of '%s' is of type %s, which Ignis cannot read as a weight",
                        ignis__name_write(name.text).text, files->path, ignis__model_type_write(source).text);
            return false;
        }
        if (!ignis__shape_same(&source->shape, &wanted)) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "tensor %s of '%s' is %s; its description makes it %s",
                        ignis__name_write(name.text).text, files->path, ignis__shape_write(&source->shape).text,
                        ignis__shape_write(&wanted).text);
            return false;
        }
        if (source->quant && wanted.ndim == 1) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "tensor %s of '%s' is %s, though it has one dimension",
                        ignis__name_write(name.text).text, files->path, source->type);
            return false;
        }
        if (part->columns % source->elements != 0) {
            ignis__fail(
                IGNIS_DIAG_UNSUPPORTED, files->call,
                "tensor %s of '%s' is %s, in blocks of %d elements of a row; shares of %d ranks have %lld of its %lld, which cuts a block",
                ignis__name_write(name.text).text, files->path, source->type, source->elements, model->parallel.size,
                (long long)part->columns, (long long)part->file_columns);
            return false;
        }
        part->from = source;
        source->used = true;
        numel = part->rows * part->columns;                                                  /* of the file's own shape: it fits */
        elements[source->quant ? 0 : source->dtype] += part->file_rows * part->file_columns; /* the same on all ranks */
        model->parameters += numel;
        model->file_bytes += numel / source->elements * source->bytes;
    }
    if (!ignis__model_uses_all(files, model))
        return false;
    if (!model->dtype) {
        for (k = 0, i = 0; i < IGNIS_DTYPE_COUNT; i++)
            k = elements[i] > elements[k] ? i : k;
        model->dtype = k ? (ignis_dtype)k : IGNIS_BF16;
    }
    if (!model->cache_dtype)
        model->cache_dtype = model->dtype;
    ignis__model_choose(model, parts, count);
    return true;
}

/* --- values: what is quantised becomes numbers ------------------------------------------------------------------------------ */

/*  A half as a float. */
static float ignis__half_at(const unsigned char *at) { return (float)ignis__widen_float((uint16_t)(at[0] | at[1] << 8), 10, 5); }

/*  The scale and minimum of one of the eight sub-blocks of Q4_K and Q5_K, six bits each. */
static void ignis__k_scale(const unsigned char *s, int j, int *scale, int *least)
{
    *scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    *least = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

/*  The numbers of one block. In f32, one rounding each product and sum, as llama.cpp has them. */
static void ignis__dequantise(uint32_t type, const unsigned char *block, float *out)
{
    float d = ignis__half_at(type == IGNIS__GGUF_Q6_K ? block + 208 : block), m = 0;
    int i, j, k, scale = 0, least = 0, q;
    switch (type) {
    case IGNIS__GGUF_Q8_0:
        for (i = 0; i < 32; i++)
            out[i] = d * (float)(signed char)block[2 + i];
        break;
    case IGNIS__GGUF_Q4_0:
        for (i = 0; i < 16; i++) {
            out[i] = d * (float)((block[2 + i] & 15) - 8);
            out[i + 16] = d * (float)((block[2 + i] >> 4) - 8);
        }
        break;
    case IGNIS__GGUF_Q4_1:
        m = ignis__half_at(block + 2);
        for (i = 0; i < 16; i++) {
            float low = d * (float)(block[4 + i] & 15), high = d * (float)(block[4 + i] >> 4);
            out[i] = low + m;
            out[i + 16] = high + m;
        }
        break;
    case IGNIS__GGUF_Q6_K:
        for (i = 0; i < 256; i++) {
            int h = i / 128, g = i % 128 / 32, l = i % 32;
            q = (block[64 * h + 32 * (g & 1) + l] >> 4 * (g >> 1) & 15) | (block[128 + 32 * h + l] >> 2 * g & 3) << 4;
            m = d * (float)(signed char)block[192 + i / 16];
            out[i] = m * (float)(q - 32);
        }
        break;
    default: /* Q4_K, Q5_K */
        m = ignis__half_at(block + 2);
        for (j = 0; j < 8; j++) {
            const unsigned char *nibbles = block + (type == IGNIS__GGUF_Q5_K ? 48 : 16) + 32 * (j / 2);
            float step, base;
            ignis__k_scale(block + 4, j, &scale, &least);
            step = d * (float)scale;
            base = m * (float)least;
            for (k = 0; k < 32; k++) {
                float value;
                q = nibbles[k] >> 4 * (j & 1) & 15;
                if (type == IGNIS__GGUF_Q5_K)
                    q |= (block[16 + k] >> j & 1) << 4;
                value = step * (float)q;
                out[32 * j + k] = value - base;
            }
        }
    }
}

/*  A row of a GGUF file becomes one of records, every eighth one from its first on; of Q6_K, with scales. */
static void ignis__blocks_pack(uint32_t type, const unsigned char *from, int64_t columns, unsigned char *record, unsigned char *scales)
{
    const uint64_t fours = 0x0F0F0F0F0F0F0F0Fu, twos = 0x0303030303030303u;
    int64_t blocks = columns / 32, block;
    int size = ignis__blocks_types[ignis__blocks_type((int)type)].bytes, i, j;
    if (blocks % 8)
        memset(record + blocks / 8 * 8 * size, 0, (size_t)size);
    for (block = 0; block < blocks; block++) {
        uint32_t word, more[2] = {0, 0};
        j = (int)(block % 8);
        if (type == IGNIS__GGUF_Q8_0) {
            memcpy(record + j * 16, from + 2, 16);
            memcpy(record + 128 + j * 16, from + 18, 16);
            memcpy(record + 256 + j * 2, from, 2);
            from += 34;
        }
        for (i = 0; i < 4 && type != IGNIS__GGUF_Q8_0; i++) { /* elements 8 i to 8 i + 7 */
            uint64_t bytes, two;
            if (type == IGNIS__GGUF_Q4_0) {
                memcpy(&bytes, from + 2 + i % 2 * 8, 8);
                bytes = (bytes >> i / 2 * 4 & fours) ^ 0x0808080808080808u;
            } else if (type == IGNIS__GGUF_Q4_K) {
                memcpy(&bytes, from + 16 + 32 * (j / 2) + 8 * i, 8);
                bytes = bytes >> j % 2 * 4 & fours;
            } else { /* Q6_K */
                memcpy(&bytes, from + 64 * (j / 4) + 32 * (j % 2) + 8 * i, 8);
                memcpy(&two, from + 128 + 32 * (j / 4) + 8 * i, 8);
                bytes = bytes >> j % 4 / 2 * 4 & fours;
                two = (two >> j % 4 * 2 & twos) ^ 0x0202020202020202u;
                more[0] |= (uint32_t)two << 2 * i;
                more[1] |= (uint32_t)(two >> 32) << 2 * i;
            }
            word = (uint32_t)bytes | (uint32_t)(bytes >> 32) << 4;
            memcpy(record + j * 16 + 4 * i, &word, 4);
        }
        if (type == IGNIS__GGUF_Q4_0) {
            memcpy(record + 128 + j * 2, from, 2);
            from += 18;
        }
        if (type == IGNIS__GGUF_Q6_K)
            memcpy(record + 128 + j * 8, more, 8);
        if (j < 7)
            continue;
        if (type == IGNIS__GGUF_Q4_K) {
            memcpy(record + 128, from, 16);
            from += 144;
        } else if (type == IGNIS__GGUF_Q6_K) {
            memcpy(record + 192, from + 192, 16);
            memcpy(scales + block / 8 * 2, from + 208, 2);
            from += 210;
        }
        record += 8 * size;
    }
}

static void ignis__half_write(unsigned char *to, float value) { ignis__convert(to, IGNIS_F16, &value, IGNIS_F32, 1); }

/*  The number of the greatest magnitude, the first one of equals. False: one of them is infinite, or none. */
static bool ignis__quantise_most(const float *x, int count, float *most)
{
    int i;
    *most = 0;
    for (i = 0; i < count; i++) {
        if (!(x[i] - x[i] == 0))
            return false;
        if ((x[i] < 0 ? -x[i] : x[i]) > (*most < 0 ? -*most : *most))
            *most = x[i];
    }
    return true;
}

/*  Scale and minimum of 32 numbers that become 0 to 15, and those: of some scales near the range's, each fitted by least squares, the one with
    the least squares of errors. */
static void ignis__quantise_32(const float *x, float *scale, float *least, unsigned char *q)
{
    float low = 0, high = 0, best = -1;
    unsigned char some[32];
    int i, trial;
    for (i = 0; i < 32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    *scale = 0;
    *least = -low;
    memset(q, 0, 32);
    for (trial = -3; high > low && trial <= 3; trial++) {
        float inverse = (15 + 0.3f * (float)trial) / (high - low), sum_q = 0, sum_qq = 0, sum_x = 0, sum_qx = 0, error = 0, step, base,
              whole;
        for (i = 0; i < 32; i++) {
            int level = (int)((x[i] - low) * inverse + 0.5f);
            some[i] = (unsigned char)(level > 15 ? 15 : level);
            sum_q += (float)some[i];
            sum_qq += (float)some[i] * (float)some[i];
            sum_x += x[i];
            sum_qx += (float)some[i] * x[i];
        }
        whole = 32 * sum_qq - sum_q * sum_q;
        if (!(whole > 0))
            continue;
        step = (32 * sum_qx - sum_q * sum_x) / whole;
        base = (sum_qq * sum_x - sum_q * sum_qx) / whole;
        if (base > 0) { /* a minimum is at most 0 */
            base = 0;
            step = sum_qx / sum_qq;
        }
        for (i = 0; i < 32; i++) {
            float off = step * (float)some[i] + base - x[i];
            error += off * off;
        }
        if (best < 0 || error < best) {
            best = error;
            *scale = step;
            *least = -base;
            memcpy(q, some, 32);
        }
    }
}

/*  256 numbers as a block of Q4_K. */
static void ignis__quantise_k(const float *x, unsigned char *to)
{
    float scale[8], least[8], most_scale = 0, most_least = 0, d, e;
    unsigned char q[256];
    int S[8], M[8], i, j;
    for (j = 0; j < 8; j++) {
        ignis__quantise_32(x + 32 * j, &scale[j], &least[j], q + 32 * j);
        most_scale = scale[j] > most_scale ? scale[j] : most_scale;
        most_least = least[j] > most_least ? least[j] : most_least;
    }
    memset(to, 0, 144);
    ignis__half_write(to, most_scale / 63);
    ignis__half_write(to + 2, most_least / 63);
    d = ignis__half_at(to);
    e = ignis__half_at(to + 2);
    for (j = 0; j < 8; j++) {
        float step, base;
        S[j] = d > 0 ? (int)(scale[j] / d + 0.5f) : 0;
        M[j] = e > 0 ? (int)(least[j] / e + 0.5f) : 0;
        S[j] = S[j] > 63 ? 63 : S[j] < 0 ? 0 : S[j];
        M[j] = M[j] > 63 ? 63 : M[j];
        step = d * (float)S[j];
        base = e * (float)M[j];
        for (i = 32 * j; step > 0 && i < 32 * j + 32; i++) { /* again, by what the scales have become */
            float level = (x[i] + base) / step + 0.5f;
            q[i] = (unsigned char)(level < 0 ? 0 : level > 15 ? 15 : (int)level);
        }
        to[4 + j % 4 + (j < 4 ? 0 : 8)] |= (unsigned char)(j < 4 ? S[j] : S[j] & 15);
        if (j < 4) {
            to[8 + j] |= (unsigned char)M[j];
        } else {
            to[j] |= (unsigned char)(S[j] >> 4 << 6);
            to[4 + j] |= (unsigned char)(M[j] >> 4 << 6);
            to[8 + j] |= (unsigned char)((M[j] & 15) << 4);
        }
    }
    for (j = 0; j < 8; j++)
        for (i = 0; i < 32; i++)
            to[16 + 32 * (j / 2) + i] |= (unsigned char)(q[32 * j + i] << 4 * (j % 2));
}

/*  A row of numbers as GGUF's blocks: those of Q8_0 and Q4_0 as ggml makes them. Where a number is not finite its whole block is no number. */
static void ignis__quantise(int type, const float *x, int64_t columns, unsigned char *to)
{
    int elements = type == IGNIS__GGUF_Q4_K ? 256 : 32, bytes = type == IGNIS__GGUF_Q4_K ? 144 : type == IGNIS__GGUF_Q4_0 ? 18 : 34, i;
    for (; columns > 0; columns -= elements, x += elements, to += bytes) {
        float most, d, inverse;
        if (!ignis__quantise_most(x, elements, &most)) {
            memset(to, 0, (size_t)bytes);
            to[1] = 0x7E; /* d is no number */
            continue;
        }
        if (type == IGNIS__GGUF_Q4_K) {
            ignis__quantise_k(x, to);
            continue;
        }
        d = type == IGNIS__GGUF_Q4_0 ? most / -8 : (most < 0 ? -most : most) / 127;
        inverse = d != 0 && 1 / d - 1 / d == 0 ? 1 / d : 0;
        ignis__half_write(to, d);
        for (i = 0; i < (type == IGNIS__GGUF_Q4_0 ? 16 : 32); i++) {
            if (type == IGNIS__GGUF_Q8_0) {
                float level = x[i] * inverse;
                to[2 + i] = (unsigned char)(signed char)(int)(level < 0 ? level - 0.5f : level + 0.5f);
            } else {
                int low = (int)((double)x[i] * (double)inverse + 8.5), high = (int)((double)x[i + 16] * (double)inverse + 8.5);
                to[2 + i] = (unsigned char)((low > 15 ? 15 : low) | (high > 15 ? 15 : high) << 4);
            }
        }
    }
}

/*  What ignis__convert does, for the one conversion that most quantised models are opened with, in a sixth of the time. */
static void ignis__model_to_bf16(char *to, const float *from, int count)
{
    int i;
    for (i = 0; i < count; i++) {
        uint32_t bits;
        uint16_t half;
        memcpy(&bits, &from[i], sizeof bits);
        if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
            half = (uint16_t)(bits >> 16 | 0x40); /* stays no number */
        else
            half = (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16); /* to the nearest, of two to the even one */
        memcpy(to + 2 * i, &half, sizeof half);
    }
}

/*  Converts a row of the file. */
static void ignis__model_source_row(const ignis__model_source *source, const unsigned char *from, int64_t columns, char *to,
                                    ignis_dtype dtype)
{
    float block[256];
    int64_t i;
    if (!source->quant && source->dtype == dtype) {
        memcpy(to, from, (size_t)(columns * ignis__dtypes[dtype].size));
    } else if (!source->quant) {
        ignis__convert(to, dtype, from, source->dtype, columns);
    } else {
        for (i = 0; i < columns; i += source->elements, from += source->bytes) {
            ignis__dequantise(source->quant, from, block);
            if (dtype == IGNIS_F32)
                memcpy(to + i * 4, block, (size_t)source->elements * 4);
            else if (dtype == IGNIS_BF16)
                ignis__model_to_bf16(to + i * 2, block, source->elements);
            else
                ignis__convert(to + i * ignis__dtypes[dtype].size, dtype, block, IGNIS_F32, source->elements);
        }
    }
}

/* --- quantised weights in operations ------------------------------------------------------------------------------------------ */

/*  As kernels/blocks.cuh has it. */
typedef struct ignis__quantised {
    ignis__address records, scales;
    int64_t k;
    int type;
} ignis__quantised;

/*  A part of a weight whose bytes begin at an address. */
static ignis__quantised ignis__quantised_part(const ignis__blocks *blocks, int part, ignis__address at)
{
    ignis__quantised q;
    int type = blocks->part[part].type;
    memset(&q, 0, sizeof q);
    q.k = blocks->columns;
    q.type = type;
    q.records = at + (ignis__address)ignis__blocks_bytes(blocks, part);
    q.scales = q.records + (ignis__address)ignis__blocks_bytes_of(type, blocks->part[part].rows, blocks->columns, false);
    return q;
}

static int64_t ignis__blocks_rows(const ignis__blocks *blocks)
{
    int64_t rows = 0;
    int i;
    for (i = 0; i < blocks->count; i++)
        rows += blocks->part[i].rows;
    return rows;
}

/*  Rows of a quantised weight as numbers, from row `to` of `out` on, [.., columns]. */
static void ignis__op_numbers(ignis__op *op, ignis__array *out, int64_t to, ignis__array *weights, const ignis__blocks *blocks,
                              int64_t first, int64_t rows)
{
    ignis__address at = ignis__op_read(op, weights), address = ignis__op_write(op, out), here;
    int64_t begin = 0, from, end, row = blocks->columns * ignis__dtypes[out->dtype].size;
    ignis__quantised q;
    int part;
    void *params[] = {&here, &q, &from};
    for (part = 0; op->ok && part < blocks->count; begin += blocks->part[part++].rows) {
        from = first > begin ? first - begin : 0;
        end = first + rows - begin < blocks->part[part].rows ? first + rows - begin : blocks->part[part].rows;
        if (from >= end)
            continue;
        q = ignis__quantised_part(blocks, part, at);
        here = address + (ignis__address)((to + begin + from - first) * row);
        ignis__op_launch_row(op, IGNIS__BUILTIN_BLOCKS_ROWS, out->dtype, end - from, 256, params);
    }
}

static ignis__blocks ignis__blocks_of(const char *call, ignis_tensor weight)
{
    ignis__array *array = weight.id ? ignis__lent_array(call, weight) : NULL;
    ignis__blocks blocks;
    memset(&blocks, 0, sizeof blocks);
    if (array) {
        blocks = array->blocks;
        ignis__array_drop(call, array);
    }
    return blocks;
}

/*  A new tensor with rows of a quantised weight as numbers. */
static ignis_tensor ignis__model_numbers(const char *call, ignis_tensor weight, const ignis__blocks *blocks, int64_t first, int64_t rows,
                                         ignis_dtype dtype)
{
    ignis_shape shape;
    ignis__array *out;
    ignis__op op;
    if (!ignis__op_begin(&op, call, 1, &weight))
        return ignis__no_tensor();
    memset(&shape, 0, sizeof shape);
    shape.ndim = 2;
    shape.dim[0] = rows;
    shape.dim[1] = blocks->columns;
    out = ignis__op_new(&op, &shape, dtype);
    ignis__op_numbers(&op, out, 0, op.in[0], blocks, first, rows);
    return ignis__op_end(&op, out, NULL);
}

/*  dx = dy W, with the numbers of W made once more. */
static ignis_status ignis__model_linear_backward(const ignis_backward_args *args)
{
    const ignis__blocks *blocks = (const ignis__blocks *)args->params;
    ignis__array *numbers, *gradient = NULL;
    ignis__product product;
    ignis_shape shape;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_backward", args))
        return ignis__failed();
    memset(&product, 0, sizeof product);
    product.k = ignis__blocks_rows(blocks);
    product.m = op.in[0]->numel / product.k;
    product.n = blocks->columns;
    product.batch = 1;
    product.batch_a = product.m * product.k;
    product.batch_b = product.n * product.k;
    product.dtype = (int)op.in[0]->dtype;
    memset(&shape, 0, sizeof shape);
    shape.ndim = 2;
    shape.dim[0] = product.m;
    shape.dim[1] = product.n;
    gradient = ignis__op_new(&op, &shape, op.in[0]->dtype);
    shape.dim[0] = product.k;
    numbers = ignis__op_new(&op, &shape, op.in[0]->dtype);
    ignis__op_numbers(&op, numbers, 0, op.in[1], blocks, 0, product.k);
    if (op.ok)
        ignis__matmul_run(&op, &product, gradient, op.in[0], numbers, NULL);
    return ignis__op_give(&op, args, 1, &gradient);
}

/*  ignis_linear with a weight of a model. Of a quantised one the tape keeps the blocks alone. */
static ignis_tensor ignis__model_linear(const ignis__model *model, ignis_tensor x, ignis_tensor weight, ignis_tensor bias)
{
    static const char call[] = "ignis_model_forward";
    ignis__blocks blocks = ignis__blocks_of(call, weight);
    ignis_array saved;
    ignis_tensor y;
    ignis_scope scope;
    ignis_rule rule;
    if (!blocks.count)
        return ignis_linear(x, weight, bias);
    scope = ignis_scope_begin();
    (void)ignis_no_grad_begin();
    y = ignis_linear(x, ignis__model_numbers(call, weight, &blocks, 0, ignis__blocks_rows(&blocks), model->dtype), bias);
    (void)ignis_no_grad_end();
    y = ignis_scope_return(scope, y);
    saved = ignis_tensor_data(weight);
    memset(&rule, 0, sizeof rule);
    rule.name = "linear";
    rule.backward_fn = ignis__model_linear_backward;
    rule.saved = &saved;
    rule.saved_count = 1;
    rule.params = &blocks;
    rule.params_size = sizeof blocks;
    if (!y.id || ignis_tape_record(y, &x, 1, &rule) == IGNIS_OK)
        return y;
    ignis__tensor_discard(call, y);
    return ignis__no_tensor();
}

/*  ignis_embedding with the table of a model. */
static ignis_tensor ignis__model_embedding(ignis_tensor table, ignis_tensor ids, ignis_dtype dtype)
{
    static const char call[] = "ignis_model_forward";
    ignis__blocks blocks = ignis__blocks_of(call, table);
    ignis_tensor inputs[2];
    ignis__array *out = NULL;
    ignis__address to, from;
    ignis__quantised q;
    ignis_shape shape;
    ignis__op op;
    int64_t count, vocab;
    int id_bytes;
    void *params[] = {&to, &q, &from, &id_bytes, &count, &vocab};
    if (!blocks.count)
        return ignis_embedding(table, ids);
    inputs[0] = table;
    inputs[1] = ids;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    if (ignis__op_is_index(&op, 1, "ids")) {
        shape = op.in[1]->shape;
        shape.dim[shape.ndim++] = blocks.columns;
        out = ignis__op_new(&op, &shape, dtype);
        q = ignis__quantised_part(&blocks, 0, ignis__op_read(&op, op.in[0]));
        from = ignis__op_read(&op, op.in[1]);
        to = ignis__op_write(&op, out);
        id_bytes = (int)ignis__dtypes[op.in[1]->dtype].size;
        count = op.in[1]->numel;
        vocab = ignis__blocks_rows(&blocks);
        ignis__op_launch_row(&op, IGNIS__BUILTIN_BLOCKS_EMBEDDING, dtype, ignis__clamp(count, 0, 65535), 256, params);
    }
    return ignis__op_end(&op, out, NULL);
}

/* --- loading: some threads read and convert, the caller's copies to the device ------------------------------------------------ */

#define IGNIS__MODEL_SLOTS 8
#define IGNIS__MODEL_THREADS 4 /* below the slots: a piece whose turn has come finds its slot free */
#define IGNIS__MODEL_TURNED 64 /* columns of a file that become rows at a time: a cache line or more of each */

typedef struct ignis__model_piece {
    int part;
    int64_t first, rows; /* of the part */
} ignis__model_piece;

typedef struct ignis__model_loading {
    const char *call;
    const ignis__model_files *files;
    const ignis__model *model;
    ignis__model_part *parts;
    ignis__model_piece *pieces;
    int64_t count;
    int64_t staging_bytes, source_bytes, number_bytes, turned_bytes; /* of the largest piece, on the device, in the file, as numbers to be
                                                                        quantised; and of columns, some at a time */
    char *staging;                                                   /* pinned: a slot each */
    ignis__mutex lock;
    ignis__condition changed;
    int64_t next;                     /* piece that nobody reads yet */
    int64_t turn[IGNIS__MODEL_SLOTS]; /* the piece that a slot is for */
    bool full[IGNIS__MODEL_SLOTS];
    bool stop;
    ignis_diagnostic fault;
    char why[400];
} ignis__model_loading;

/*  What one who reads has: a file of his own, as two must not share a place in one. */
typedef struct ignis__model_reader {
    int file, descriptor; /* -1: none */
    unsigned char *bytes, *row;
    char *turned;   /* columns on their way to rows */
    float *numbers; /* a piece's, on their way into blocks */
} ignis__model_reader;

static bool ignis__model_read_fail(ignis__model_loading *loading, ignis_diagnostic diagnostic, int file, const char *what,
                                   const char *reason)
{
    ignis__mutex_lock(&loading->lock);
    if (!loading->fault)
        snprintf(loading->why, sizeof loading->why, "'%.150s' cannot be %s: %s", loading->files->paths[file], what, reason);
    if (!loading->fault)
        loading->fault = diagnostic;
    ignis__mutex_unlock(&loading->lock);
    return false;
}

static bool ignis__model_read_at(ignis__model_loading *loading, ignis__model_reader *reader, int file, int64_t at, void *out, int64_t size)
{
    int64_t length, got;
    char reason[160] = "";
    if (reader->file != file) {
        if (reader->descriptor >= 0)
            ignis__file_close(reader->descriptor);
        reader->file = file;
        reader->descriptor = ignis__file_open(loading->files->paths[file], &length);
        if (reader->descriptor < 0)
            ignis__system_error(reason, sizeof reason);
    }
    if (reader->descriptor < 0)
        return ignis__model_read_fail(loading, IGNIS_DIAG_STORAGE_IO, file, "opened", reason);
    got = ignis__file_read_at(reader->descriptor, at, out, size);
    if (got == size)
        return true;
    if (got < 0)
        ignis__system_error(reason, sizeof reason);
    return ignis__model_read_fail(loading, IGNIS_DIAG_STORAGE_IO, file, "read", got < 0 ? reason : "it has become shorter");
}

/*  The row of a GGUF file of llama in which row `row` of a part is. */
static int64_t ignis__model_pair_row(const ignis__model *model, int64_t row)
{
    int64_t half = model->head_dim / 2, inside = row % model->head_dim;
    return row - inside + 2 * (inside % half) + inside / half;
}

/*  Packs rows as blocks: those of the file, or numbers. */
static void ignis__model_pack(const ignis__model_part *part, const unsigned char *bytes, const float *numbers, ignis__model_reader *reader,
                              int64_t row, int64_t rows, char *out)
{
    unsigned char *records = (unsigned char *)out, *scales = records + ignis__blocks_bytes_of(part->blocks, rows, part->columns, false);
    if (numbers)
        ignis__quantise(part->blocks, numbers, part->columns, reader->row);
    ignis__blocks_pack((uint32_t)part->blocks, numbers ? reader->row : bytes, part->columns,
                       records + ignis__blocks_row(part->blocks, row, part->columns), scales + 2 * row * (part->columns / 256));
}

/*  Elements of so many bytes, [columns, rows], to [rows, columns] of a matrix whose rows are `stride` elements apart. */
static void ignis__model_turn(char *to, int64_t stride, const char *from, int64_t rows, int64_t columns, int64_t size)
{
#define IGNIS__TURN_AS(type)          \
    for (row = 0; row < rows; row++)  \
        for (k = 0; k < columns; k++) \
    ((type *)(void *)to)[row * stride + k] = ((const type *)(const void *)from)[k * rows + row]
    int64_t row, k;
    if (size == 2)
        IGNIS__TURN_AS(uint16_t);
    else if (size == 4)
        IGNIS__TURN_AS(uint32_t);
    else
        IGNIS__TURN_AS(uint64_t);
#undef IGNIS__TURN_AS
}

/*  Reads and converts a piece whose rows are columns of the file. */
static bool ignis__model_fill_turned(ignis__model_loading *loading, ignis__model_reader *reader, const ignis__model_piece *piece, char *to,
                                     ignis_dtype dtype)
{
    const ignis__model_part *part = &loading->parts[piece->part];
    const ignis__model_source *source = part->from;
    int64_t size = ignis__dtypes[dtype].size, first = ignis__model_file_row(part, piece->first), k, i, some;
    for (k = 0; k < part->columns; k += some) {
        some = ignis__clamp(part->columns - k, 0, IGNIS__MODEL_TURNED);
        for (i = 0; i < some; i++) {
            if (!ignis__model_read_at(loading, reader, source->file,
                                      source->begin + ((part->skip_columns + k + i) * part->file_rows + first) * source->bytes,
                                      reader->bytes, piece->rows * source->bytes))
                return false;
            ignis__model_source_row(source, reader->bytes, piece->rows, reader->turned + i * piece->rows * size, dtype);
        }
        ignis__model_turn(to + k * size, part->columns, reader->turned, piece->rows, some, size);
    }
    return true;
}

/*  Reads and converts a piece. */
static bool ignis__model_fill(ignis__model_loading *loading, ignis__model_reader *reader, const ignis__model_piece *piece, char *out)
{
    const ignis__model_part *part = &loading->parts[piece->part];
    const ignis__model_source *source = part->from;
    ignis_dtype dtype = part->blocks ? IGNIS_F32 : loading->model->dtype;
    char *to = part->blocks ? (char *)reader->numbers : out;
    int64_t size = ignis__dtypes[dtype].size, row, row_bytes = part->columns / source->elements * source->bytes;
    int64_t file_row = part->file_columns / source->elements * source->bytes, first = ignis__model_file_row(part, piece->first);
    int64_t begin = source->begin + first * file_row + part->skip_columns / source->elements * source->bytes;
    unsigned char *read;
    bool direct;
    bool pairs = loading->files->is_gguf && loading->model->family == IGNIS_MODEL_LLAMA && part->row->how & IGNIS__MODEL_PAIRS;
    if (!loading->files->is_gguf && part->row->how & IGNIS__MODEL_IN_OUT) {
        if (!ignis__model_fill_turned(loading, reader, piece, to, dtype))
            return false;
        for (row = 0; part->blocks && row < piece->rows; row++)
            ignis__model_pack(part, NULL, reader->numbers + row * part->columns, reader, row, piece->rows, out);
        return true;
    }
    direct = !part->blocks && !source->quant && source->dtype == dtype && !pairs;
    read = direct ? (unsigned char *)out : reader->bytes;
    if (file_row == row_bytes) {
        if (!ignis__model_read_at(loading, reader, source->file, begin, read, piece->rows * row_bytes))
            return false;
    } else {
        for (row = 0; row < piece->rows; row++)
            if (!ignis__model_read_at(loading, reader, source->file, begin + row * file_row, read + row * row_bytes, row_bytes))
                return false;
    }
    if (direct)
        return true;
    if (!part->blocks && !pairs && !source->quant) {
        ignis__convert(out, dtype, reader->bytes, source->dtype, piece->rows * part->columns);
        return true;
    }
    for (row = 0; row < piece->rows; row++) {
        const unsigned char *from = reader->bytes + (pairs ? ignis__model_pair_row(loading->model, row) : row) * row_bytes;
        bool kept = part->blocks && source->quant == (uint32_t)part->blocks;
        if (!kept)
            ignis__model_source_row(source, from, part->columns, part->blocks ? to : to + row * part->columns * size, dtype);
        if (part->blocks)
            ignis__model_pack(part, from, kept ? NULL : reader->numbers, reader, row, piece->rows, out);
    }
    return true;
}

static bool ignis__model_reader_open(ignis__model_loading *loading, ignis__model_reader *reader)
{
    reader->file = reader->descriptor = -1;
    reader->bytes = (unsigned char *)ignis__alloc((size_t)loading->source_bytes);
    reader->numbers = (float *)ignis__alloc((size_t)loading->number_bytes + 4);
    reader->row = (unsigned char *)ignis__alloc((size_t)loading->number_bytes + 4); /* blocks of a row have fewer */
    reader->turned = (char *)ignis__alloc((size_t)loading->turned_bytes + 8);
    return (reader->bytes && reader->numbers && reader->row && reader->turned) ||
           ignis__model_read_fail(loading, IGNIS_DIAG_HOST_MEMORY, 0, "read", "out of host memory");
}

static void ignis__model_reader_close(ignis__model_reader *reader)
{
    if (reader->descriptor >= 0)
        ignis__file_close(reader->descriptor);
    ignis__free(reader->bytes);
    ignis__free(reader->numbers);
    ignis__free(reader->row);
    ignis__free(reader->turned);
}

/*  A thread: takes the next piece, waits for its slot, fills it. */
static IGNIS__THREAD_RESULT ignis__model_run(void *pointer)
{
    ignis__model_loading *loading = (ignis__model_loading *)pointer;
    ignis__model_reader reader;
    bool ok = ignis__model_reader_open(loading, &reader), stop = !ok;
    while (!stop) {
        int64_t piece, slot;
        ignis__mutex_lock(&loading->lock);
        piece = loading->next++;
        slot = piece % IGNIS__MODEL_SLOTS;
        while (!loading->stop && piece < loading->count && loading->turn[slot] != piece)
            ignis__condition_wait(&loading->changed, &loading->lock);
        stop = loading->stop || piece >= loading->count;
        ignis__mutex_unlock(&loading->lock);
        if (stop)
            break;
        ok = ignis__model_fill(loading, &reader, &loading->pieces[piece], loading->staging + slot * loading->staging_bytes);
        ignis__mutex_lock(&loading->lock);
        loading->full[slot] = ok;
        loading->stop = stop = loading->stop || !ok;
        ignis__condition_wake(&loading->changed);
        ignis__mutex_unlock(&loading->lock);
    }
    if (!ok) {
        ignis__mutex_lock(&loading->lock);
        loading->stop = true;
        ignis__condition_wake(&loading->changed);
        ignis__mutex_unlock(&loading->lock);
    }
    ignis__model_reader_close(&reader);
    return 0;
}

/*  The list of pieces, or how many they are where it is null: whole rows, or whole heads where rows change their order. */
static int64_t ignis__model_cut(ignis__model_loading *loading, int count, ignis__model_piece *pieces)
{
    int64_t made = 0, size = ignis__dtypes[loading->model->dtype].size;
    int i;
    for (i = 0; i < count; i++) {
        const ignis__model_part *part = &loading->parts[i];
        bool turned = !loading->files->is_gguf && part->row->how & IGNIS__MODEL_IN_OUT;
        int64_t row = part->columns * size, rows = IGNIS__CONVERT_CHUNK / row,
                unit = part->row->how & IGNIS__MODEL_PAIRS ? loading->model->head_dim : 1;
        int64_t first, bytes, packed, numbers, columns, here;
        unit *= part->blocks ? 8 : 1; /* rows that lie together */
        rows = rows < unit ? unit : rows / unit * unit;
        for (first = 0; first < part->rows; first += here, made++) {
            int64_t left = part->stretch - first % part->stretch;
            here = left < rows ? left : rows;
            bytes = turned ? here * part->from->bytes : here * (part->columns / part->from->elements) * part->from->bytes;
            packed = part->blocks ? ignis__blocks_bytes_of(part->blocks, here, part->columns, true) : here * row;
            numbers = part->blocks ? (turned ? here : 1) * part->columns * 4 : 0;
            loading->source_bytes = bytes > loading->source_bytes ? bytes : loading->source_bytes;
            loading->staging_bytes = packed > loading->staging_bytes ? packed : loading->staging_bytes;
            loading->number_bytes = numbers > loading->number_bytes ? numbers : loading->number_bytes;
            columns = turned ? IGNIS__MODEL_TURNED * here * (part->blocks ? 4 : size) : 0;
            loading->turned_bytes = columns > loading->turned_bytes ? columns : loading->turned_bytes;
            if (!pieces)
                continue;
            pieces[made].part = i;
            pieces[made].first = first;
            pieces[made].rows = here;
        }
    }
    return made;
}

/*  Copies records of a piece to those of its part, and scales behind them. */
static bool ignis__model_copy_blocks(ignis__work *work, const ignis__array *array, ignis__address address, const ignis__model_part *part,
                                     const ignis__model_piece *piece, const char *from)
{
    int64_t first = part->first + piece->first, records, columns = part->columns;
    int in = 0, type = part->blocks, scale = ignis__blocks_types[ignis__blocks_type(type)].scale * (int)(columns / 256);
    for (; first >= array->blocks.part[in].rows; in++)
        first -= array->blocks.part[in].rows;
    address += (ignis__address)ignis__blocks_bytes(&array->blocks, in);
    records = ignis__blocks_bytes_of(type, piece->rows, columns, false);
    if (!ignis__copy_up(work, address + (ignis__address)ignis__blocks_bytes_of(type, first, columns, false), from, records))
        return false;
    address += (ignis__address)(ignis__blocks_bytes_of(type, array->blocks.part[in].rows, columns, false) + first * scale);
    return scale == 0 || ignis__copy_up(work, address, from + records, piece->rows * scale);
}

/*  Queues the copy of a filled piece; the event behind it. */
static ignis__spare_event *ignis__model_copy(ignis__model_loading *loading, const ignis__model_piece *piece, const char *from)
{
    const ignis__model_part *part = &loading->parts[piece->part];
    ignis__array *array = ignis__lent_array(loading->call, *part->to);
    int64_t row = part->columns * ignis__dtypes[loading->model->dtype].size;
    ignis__spare_event *event = NULL;
    ignis__address address;
    ignis__work work;
    if (!array)
        return NULL;
    if (ignis__work_begin(loading->call, array->storage->device, &work)) {
        if (ignis__work_write(&work, array, &address) &&
            (part->blocks ? ignis__model_copy_blocks(&work, array, address, part, piece, from)
                          : ignis__copy_up(&work, address + (uint64_t)((part->first + piece->first) * row), from, piece->rows * row)))
            event = ignis__event_record(loading->call, work.device, work.stream);
        ignis__work_end(&work);
    }
    ignis__array_drop(loading->call, array);
    return event;
}

/*  Waits for a copy, and gives its slot to the next piece. */
static bool ignis__model_release(ignis__model_loading *loading, ignis__device *device, int64_t piece, ignis__spare_event **copied)
{
    int64_t slot = piece % IGNIS__MODEL_SLOTS;
    bool ok = true;
    if (piece < 0 || !copied[slot])
        return true;
    ok = !IGNIS__CUDA_FAILED(loading->call, device, cuEventSynchronize, (copied[slot]->event));
    ignis__event_give(device, copied[slot]);
    copied[slot] = NULL;
    ignis__mutex_lock(&loading->lock);
    loading->full[slot] = false;
    loading->turn[slot] = piece + IGNIS__MODEL_SLOTS;
    ignis__condition_wake(&loading->changed);
    ignis__mutex_unlock(&loading->lock);
    return ok;
}

/*  Copies piece after piece as they become ready. The device is entered. */
static bool ignis__model_pump(ignis__model_loading *loading, ignis__device *device, const ignis_model_desc *desc)
{
    ignis__thread_handle threads[IGNIS__MODEL_THREADS];
    ignis__spare_event *copied[IGNIS__MODEL_SLOTS] = {NULL};
    ignis__model_reader reader = {-1, -1, NULL, NULL, NULL, NULL};
    int started = 0, wanted = ignis__core_count();
    int64_t piece, done = 0;
    bool ok = true, alone;
    wanted = wanted > IGNIS__MODEL_THREADS ? IGNIS__MODEL_THREADS : wanted;
    while (started < wanted && started < loading->count && ignis__thread_start(&threads[started], ignis__model_run, loading))
        started++;
    alone = started == 0;
    if (alone)
        ok = ignis__model_reader_open(loading, &reader);
    for (piece = 0; ok && piece < loading->count; piece++) {
        int64_t slot = piece % IGNIS__MODEL_SLOTS;
        const ignis__model_piece *now = &loading->pieces[piece];
        char *staging = loading->staging + slot * loading->staging_bytes;
        ok = ignis__model_release(loading, device, piece - IGNIS__MODEL_SLOTS / 2, copied);
        if (ok && alone) {
            ok = ignis__model_fill(loading, &reader, now, staging);
        } else if (ok) {
            ignis__mutex_lock(&loading->lock);
            while (!loading->stop && !loading->full[slot])
                ignis__condition_wait(&loading->changed, &loading->lock);
            ok = loading->full[slot] && !loading->fault;
            ignis__mutex_unlock(&loading->lock);
        }
        ok = ok && (copied[slot] = ignis__model_copy(loading, now, staging)) != NULL;
        if (ok) {
            const ignis__model_source *source = loading->parts[now->part].from;
            done += now->rows * (loading->parts[now->part].columns / source->elements * source->bytes);
        }
        if (ok && desc->progress_fn && !desc->progress_fn(done, loading->model->file_bytes, desc->user_data)) {
            ignis__fail(IGNIS_DIAG_MODEL_CANCELLED, loading->call, "desc.progress_fn has returned false, at %lld of %lld bytes",
                        (long long)done, (long long)loading->model->file_bytes);
            ok = false;
        }
    }
    ignis__mutex_lock(&loading->lock);
    loading->stop = true;
    ignis__condition_wake(&loading->changed);
    ignis__mutex_unlock(&loading->lock);
    while (started > 0)
        ignis__thread_join(threads[--started]);
    if (alone)
        ignis__model_reader_close(&reader);
    for (piece = 0; piece < IGNIS__MODEL_SLOTS; piece++)
        ok = ignis__model_release(loading, device, piece, copied) && ok;
    if (loading->fault)
        ignis__fail(loading->fault, loading->call, "%s", loading->why);
    return ok && !loading->fault;
}

/*  Reads all weights into the tensors that were made for them. */
IGNIS__COLD static bool ignis__model_load(const ignis__model_files *files, const ignis__model *model, ignis__model_part *parts, int count,
                                          const ignis_model_desc *desc)
{
    ignis__model_loading loading;
    ignis__binding binding;
    ignis__pinned *piece = NULL;
    bool ok = true;
    int i;
    if (ignis__global.dry_run) { /* nothing goes anywhere */
        for (i = 0; ok && i < count; i++)
            ok = !parts[i].total || ignis__array_set_zero(files->call, ignis_tensor_data(*parts[i].to)) == IGNIS_OK;
        return ok;
    }
    memset(&loading, 0, sizeof loading);
    loading.call = files->call;
    loading.files = files;
    loading.model = model;
    loading.parts = parts;
    loading.count = ignis__model_cut(&loading, count, NULL);
    loading.pieces = (ignis__model_piece *)ignis__alloc((size_t)(loading.count + 1) * sizeof *loading.pieces);
    if (!loading.pieces) {
        ignis__fail_host_memory(files->call, (size_t)(loading.count + 1) * sizeof *loading.pieces);
        return false;
    }
    (void)ignis__model_cut(&loading, count, loading.pieces);
    ignis__mutex_init(&loading.lock);
    {
        static const ignis__condition none = IGNIS__CONDITION_INIT;
        memcpy(&loading.changed, &none, sizeof none);
    }
    for (i = 0; i < IGNIS__MODEL_SLOTS; i++)
        loading.turn[i] = i;
    ok = ignis__device_enter(files->call, model->device, &binding);
    if (ok) {
        piece = ignis__piece_take(files->call, model->device, IGNIS__MODEL_SLOTS * loading.staging_bytes);
        loading.staging = piece ? (char *)piece->memory : NULL;
        ok = piece && ignis__model_pump(&loading, model->device, desc);
        ignis__device_leave(&binding);
    }
    if (piece && ignis__piece_give(files->call, model->device, piece) != IGNIS_OK)
        ok = false;
    ignis__free(loading.pieces);
    return ok;
}

/* --- a model's life -------------------------------------------------------------------------------------------------------------- */

static void ignis__model_tokenizer_end(ignis_tokenizer *handle)
{
    ignis__tokenizer *tokenizer = (ignis__tokenizer *)ignis__pool_hold(&ignis__tokenizers, handle->id);
    if (tokenizer) {
        (void)ignis__handle_kill(tokenizer);
        ignis__tokenizer_drop(tokenizer);
    }
    handle->id = 0;
}

/*  Releases the weights. The head of a tied model is its embedding. */
static void ignis__model_clear(const char *call, ignis__model *model)
{
    int i, layer;
    if (model->tied)
        model->head = ignis__no_tensor();
    for (layer = -1; layer < model->layers && (model->layer || layer < 0); layer++) {
        for (i = 0; i < IGNIS__COUNT(ignis__model_rows); i++) {
            const ignis__model_row *row = &ignis__model_rows[i];
            ignis_tensor *tensor;
            if (!(row->families >> model->family & 1) || row->in_layer != (layer >= 0))
                continue;
            tensor = ignis__model_member(model, row, layer);
            if (tensor->id)
                ignis__tensor_discard(call, *tensor);
            *tensor = ignis__no_tensor();
        }
    }
    ignis__free(model->layer);
    ignis__free(model->path);
    model->layer = NULL;
    model->path = NULL;
    ignis__model_tokenizer_end(&model->tokenizer);
}

static void ignis__model_drop(const char *call, ignis__model *model)
{
    if (!ignis__pool_drop(model))
        return;
    if (model->engine)
        model->engine_destroy(call, model->engine);
    ignis__model_clear(call, model);
    ignis__pool_give(&ignis__models, model);
}

static ignis__model *ignis__model_hold(const char *call, ignis_model handle)
{
    return (ignis__model *)ignis__handle_hold(call, &ignis__models, handle.id);
}

/*  Reports every model that is alive at ignis_shutdown, and ends it before the tensors. */
static void ignis__models_close(const char *call)
{
    ignis__model *model;
    uint64_t index = 0;
    while ((model = (ignis__model *)ignis__pool_next(&ignis__models, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "model: %s of %d layers, %lld bytes on device %d",
                           ignis__model_families[model->family], model->layers, (long long)model->weight_bytes,
                           (int)(model->device - ignis__devices));
        ignis__handle_kill(model);
        ignis__model_drop(call, model);
    }
}

/*  The tensors for all weights, outside of the caller's scope. */
static bool ignis__model_allocate(const char *call, ignis__model *model, ignis__model_part *parts, int count, const ignis_model_desc *desc)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    int scopes = thread->scope_count, i;
    ignis_array_desc array;
    bool ok = true;
    memset(&array, 0, sizeof array);
    array.device = desc->device;
    array.tag = "model";
    thread->scope_count = 0;
    for (i = 0; ok && i < count; i++) {
        ignis__blocks blocks = ignis__model_blocks(&parts[i], count - i);
        ignis__array *made;
        if (!parts[i].total)
            continue;
        array.dtype = blocks.count ? IGNIS_U8 : model->dtype;
        array.shape.ndim = parts[i].row->columns && !blocks.count ? 2 : 1;
        array.shape.dim[0] = blocks.count ? ignis__blocks_bytes(&blocks, blocks.count) : parts[i].total;
        array.shape.dim[1] = array.shape.ndim == 2 ? parts[i].columns : 0;
        *parts[i].to = ignis__tensor_adopt(call, ignis__array_create(call, &array), desc->requires_grad);
        made = parts[i].to->id ? ignis__lent_array(call, *parts[i].to) : NULL;
        ok = made != NULL;
        if (ok) {
            made->blocks = blocks;
            ignis__array_drop(call, made);
        }
    }
    thread->scope_count = scopes;
    if (ok && model->tied)
        model->head = model->embedding;
    return ok;
}

static bool ignis__model_check(const char *call, const ignis_model_desc *desc)
{
    const char *field = desc && !(desc->dtype == IGNIS_DTYPE_DEFAULT || ignis__dtype_is_float(desc->dtype)) ? "dtype"
                        : desc && (!(desc->cache_dtype == IGNIS_DTYPE_DEFAULT || ignis__dtype_is_float(desc->cache_dtype)) ||
                                   desc->cache_dtype == IGNIS_F64)
                            ? "cache_dtype"
                            : NULL;
    if (!desc || !desc->path)
        ignis__fail_null(call, desc ? "desc->path" : "desc");
    else if (field)
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "desc->%s is %d, not a dtype that can be used there", field,
                    (int)(*field == 'd' ? desc->dtype : desc->cache_dtype));
    else if ((unsigned)desc->weights >= IGNIS_WEIGHTS_COUNT)
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "desc->weights is %d, no value of ignis_weights", (int)desc->weights);
    else if (desc->requires_grad && desc->weights > IGNIS_WEIGHTS_NUMBERS)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->requires_grad is set with quantised weights, which have no gradients");
    else if (desc->context < 0 || desc->sequences < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->%s is %d, below 0", desc->context < 0 ? "context" : "sequences",
                    desc->context < 0 ? desc->context : desc->sequences);
    else if (desc->parallel.size < 0 || desc->parallel.size > IGNIS__RANKS || desc->parallel.rank < 0 ||
             desc->parallel.rank >= desc->parallel.size + (desc->parallel.size == 0))
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->parallel is rank %d of %d; there are up to %d ranks", desc->parallel.rank,
                    desc->parallel.size, IGNIS__RANKS);
    else if (desc->parallel.size > 1 && desc->requires_grad)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "desc->requires_grad is set, and %d ranks share the model: no gradients are computed through shares",
                    desc->parallel.size);
    else if (desc->parallel.size > 1 && desc->weights > IGNIS_WEIGHTS_NUMBERS)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "desc->weights is quantised, and %d ranks share the model: shares are numbers",
                    desc->parallel.size);
    else
        return true;
    return false;
}

/*  Makes the sizes of a description those of a rank's share. False, and reported: they cannot be shared. */
static bool ignis__model_divide(const char *call, ignis__model *model)
{
    const struct {
        const char *name;
        int *size;
    } shared[] = {{"heads", &model->heads}, {"heads of keys and values", &model->kv_heads}, {"elements of the MLP", &model->inner}};
    int ranks = model->parallel.size, i;
    for (i = 0; i < IGNIS__COUNT(shared); i++) {
        if (*shared[i].size % ranks != 0) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "%d %s cannot be shared by %d ranks: a multiple of their number is needed",
                        *shared[i].size, shared[i].name, ranks);
            return false;
        }
    }
    if (ignis__model_head_rows(model) * (ranks - 1) >= model->vocab) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "a vocabulary of %d tokens cannot be shared by %d ranks", model->vocab, ranks);
        return false;
    }
    for (i = 0; i < IGNIS__COUNT(shared); i++)
        *shared[i].size /= ranks;
    return true;
}

/*  False, and reported: a call needs the whole model, and this is a rank's share. */
static bool ignis__model_whole(const char *call, const ignis__model *model)
{
    if (model->parallel.size <= 1)
        return true;
    ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "the model is the share of rank %d of %d: sequences work with it, %s needs a whole one",
                model->parallel.rank, model->parallel.size, call);
    return false;
}

/*  Opens the files, reads the description, and finds every weight. On failure all is closed. */
IGNIS__COLD static ignis__model_part *ignis__model_read(const char *call, const ignis_model_desc *desc, ignis__model_files *files,
                                                        ignis__model *model, int *count)
{
    ignis__model_part *parts = NULL;
    memset(files, 0, sizeof *files);
    files->call = call;
    files->path = desc->path;
    files->gguf.descriptor = -1;
    model->dtype = desc->dtype;
    model->cache_dtype = desc->cache_dtype;
    model->parallel = desc->parallel;
    model->parallel.size += model->parallel.size == 0;
    model->weights = desc->requires_grad || model->parallel.size > 1 ? IGNIS_WEIGHTS_NUMBERS : desc->weights;
    if ((ignis__path_is_special(desc->path) ? ignis__model_open_folder(files) : ignis__model_open_gguf(files)) &&
        ignis__model_describe(files, model) && ignis__model_divide(call, model)) {
        if (desc->context > model->context)
            ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->context is %d, above the model's %d", desc->context, model->context);
        else if ((model->layer = (ignis__layer *)ignis__alloc((size_t)model->layers * sizeof *model->layer)) == NULL)
            ignis__fail_host_memory(call, (size_t)model->layers * sizeof *model->layer);
        else
            parts = ignis__model_parts_make(call, files, model, count);
    }
    if (parts && !ignis__model_match(files, model, parts, *count)) {
        ignis__free(parts);
        parts = NULL;
    }
    model->room = desc->context ? desc->context : model->context < 4096 ? model->context : 4096;
    model->sequences = desc->sequences ? desc->sequences : 1;
    if (!parts) {
        ignis__free(model->layer);
        ignis__model_files_close(files);
    }
    return parts;
}

enum { IGNIS__STEP_ROWS = 64 }; /* sequences of a step, at most */

/*  Elements of 16 bits that hold the rows of a step as whole numbers, with a scale and a sum of each block of 32: see kernels/gemv_blocks.cu. */
static int64_t ignis__blocks_room(int64_t columns) { return IGNIS__STEP_ROWS * ignis__ceil_div(columns, 256) * (256 + 8 * 2 * 2); }

/*  Elements that products with quantised weights need besides: for the numbers of any one of them, or for the rows of a step; 0: there are none. */
static int64_t ignis__model_largest(const ignis__model *model)
{
    int64_t heads = (int64_t)model->heads * model->head_dim, qkv = heads + (int64_t)2 * model->kv_heads * model->head_dim;
    int64_t up = (int64_t)(model->gelu ? 1 : 2) * model->inner, rows = qkv > up ? qkv : up,
            k = heads > model->hidden ? heads : model->hidden;
    int64_t room = ignis__blocks_room(model->inner > k ? model->inner : k);
    return !model->quantised ? 0 : rows * k > room ? rows * k : room;
}

static void ignis__model_info_write(const ignis__model *model, ignis_model_info *info)
{
    int64_t rows = model->room < 512 ? model->room : 512, qkv = (int64_t)(model->heads + 2 * model->kv_heads) * model->head_dim;
    memset(info, 0, sizeof *info);
    info->family = model->family;
    info->layers = model->layers, info->hidden = model->hidden, info->heads = model->heads * model->parallel.size;
    info->kv_heads = model->kv_heads * model->parallel.size;
    info->rank = model->parallel.rank, info->ranks = model->parallel.size;
    info->head_dim = model->head_dim, info->inner = model->inner * model->parallel.size, info->vocab = model->vocab;
    info->model_context = model->context;
    info->context = model->room, info->sequences = model->sequences;
    info->dtype = model->dtype, info->cache_dtype = model->cache_dtype;
    info->tied = model->tied;
    memcpy(info->ends, model->stops, sizeof info->ends);
    info->end_count = model->stop_count;
    info->parameters = model->parameters, info->quantised = model->quantised, info->file_bytes = model->file_bytes,
    info->weight_bytes = model->weight_bytes;
    info->cache_bytes_of_token = (int64_t)2 * model->layers * model->kv_heads * model->head_dim * ignis__dtypes[model->cache_dtype].size;
    info->cache_bytes = (int64_t)model->room * model->sequences; /* tokens, that is, which may be too many for memory of 64 bits */
    info->cache_bytes =
        info->cache_bytes > INT64_MAX / info->cache_bytes_of_token ? INT64_MAX : info->cache_bytes * info->cache_bytes_of_token;
    /* a residual, its norm, q k v and what they become (with norms of heads once more), gate and up in one and apart; the last row's scores */
    info->workspace_bytes = (rows * (3 * (int64_t)model->hidden + (model->family == IGNIS_MODEL_QWEN3 ? 5 : 2) * qkv +
                                     (model->gelu ? 1 : 4) * (int64_t)model->inner) +
                             model->vocab + ignis__model_largest(model)) *
                            ignis__dtypes[model->dtype].size;
}

IGNIS__COLD IGNIS_API ignis_status ignis_model_inspect(const ignis_model_desc *desc, ignis_model_info *info)
{
    static const char call[] = "ignis_model_inspect";
    ignis__model_files files;
    ignis__model model;
    ignis__model_part *parts;
    int count = 0;
    memset(&model, 0, sizeof model);
    if (!ignis__model_check(call, desc))
        return ignis__failed();
    if (!info)
        return ignis__fail_null(call, "info");
    parts = ignis__model_read(call, desc, &files, &model, &count);
    if (!parts)
        return ignis__failed();
    ignis__model_info_write(&model, info);
    ignis__free(parts);
    ignis__free(model.layer);
    ignis__model_files_close(&files);
    return IGNIS_OK;
}

/*  Takes over what was read into a slot of the pool, so that it can be seen. */
static bool ignis__model_publish(const char *call, ignis__model *read, ignis_model *handle)
{
    ignis__model *model = (ignis__model *)ignis__pool_take(call, &ignis__models);
    if (!model)
        return false;
    ignis__pool_fill(&ignis__models, model, read);
    handle->id = ignis__pool_publish(&ignis__models, model);
    return true;
}

IGNIS__COLD IGNIS_API ignis_model ignis_model_open(const ignis_model_desc *desc)
{
    static const char call[] = "ignis_model_open";
    ignis_model handle = IGNIS__ZERO;
    ignis__model_files files;
    ignis__model_part *parts = NULL;
    ignis__model model;
    ignis__array *first;
    int count = 0;
    bool ok;
    memset(&model, 0, sizeof model);
    if (!ignis__enter(call) || ignis__capture_refuses(call) || !ignis__model_check(call, desc))
        return handle;
    if (desc->parallel.size > 1 && (!desc->parallel.sum_fn || !desc->parallel.check_fn)) {
        ignis__fail_null(call, desc->parallel.sum_fn ? "desc->parallel.check_fn" : "desc->parallel.sum_fn");
        return handle;
    }
    parts = ignis__model_read(call, desc, &files, &model, &count);
    if (!parts)
        return handle;
    model.path = ignis__copy_string(desc->path);
    ok = model.path != NULL;
    if (!ok)
        ignis__fail_host_memory(call, strlen(desc->path) + 1);
    ok = ok && ignis__model_allocate(call, &model, parts, count, desc);
    first = ok ? ignis__lent_array(call, model.embedding) : NULL;
    if (first) {
        model.device = first->storage->device;
        ignis__array_drop(call, first);
        ok = ignis__model_load(&files, &model, parts, count, desc) && ignis__model_publish(call, &model, &handle);
    } else {
        ok = false;
    }
    if (!ok)
        ignis__model_clear(call, &model);
    ignis__free(parts);
    ignis__model_files_close(&files);
    return handle;
}

IGNIS__COLD IGNIS_API ignis_status ignis_model_free(ignis_model handle)
{
    static const char call[] = "ignis_model_free";
    const uint64_t failures = ignis__failures();
    ignis__model *model;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    model = ignis__model_hold(call, handle);
    if (!model)
        return ignis__failed();
    live = ignis__handle_kill(model);
    ignis__model_drop(call, model);
    return live ? ignis__ended(failures, true) : ignis__fail(IGNIS_DIAG_MODEL_FREED, call, "another thread has freed the model");
}

IGNIS__COLD IGNIS_API ignis_status ignis_model_query(ignis_model handle, ignis_model_info *info)
{
    static const char call[] = "ignis_model_query";
    ignis__model *model = ignis__model_hold(call, handle);
    if (!model)
        return ignis__failed();
    if (info)
        ignis__model_info_write(model, info);
    ignis__model_drop(call, model);
    return info ? IGNIS_OK : ignis__fail_null(call, "info");
}

