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

/*  The part of a model that has a name, or the first part of the weight that has it: then *whole. Null: none. */
static const ignis__model_part *ignis__model_find(ignis__model *model, const ignis__model_part *parts, int count, const char *name,
                                                  bool *whole)
{
    const char *prefix = ignis__model_prefix(NULL, model->family);
    int i;
    for (i = 0; i < count; i++) {
        const ignis__model_row *row = parts[i].row;
        ignis__model_name full = ignis__model_name_of(NULL, model, row, parts[i].layer);
        *whole = !row->whole;
        if (strcmp(full.text, name) == 0 || (*prefix && strcmp(full.text + strlen(prefix), name) == 0 && !(row->how & IGNIS__MODEL_HEAD)))
            return &parts[i];
        *whole = true;
        if (row->whole && strcmp(ignis__model_name_write("", row->whole, parts[i].layer).text, name) == 0)
            return &parts[i];
        if (model->tied && strcmp(name, "lm_head.weight") == 0 && parts[i].to == &model->embedding)
            return &parts[i];
    }
    return NULL;
}

/*  A tensor over rows of a weight; of a quantised one a copy, of the dtype. */
static ignis_tensor ignis__model_rows_of(const char *call, ignis_tensor weight, int64_t first, int64_t rows, ignis_dtype dtype)
{
    ignis__blocks blocks = ignis__blocks_of(call, weight);
    ignis__array *array = blocks.count ? NULL : ignis__lent_array(call, weight);
    ignis_array view = IGNIS__ZERO;
    if (blocks.count)
        return ignis__model_numbers(call, weight, &blocks, first, rows, dtype);
    if (!array)
        return ignis__no_tensor();
    view = ignis__array_slice(call, array, 0, first, rows);
    ignis__array_drop(call, array);
    return ignis__tensor_adopt(call, view, false);
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_model_tensor(ignis_model handle, const char *name)
{
    static const char call[] = "ignis_model_tensor";
    ignis__model *model = ignis__model_hold(call, handle);
    ignis_tensor tensor = IGNIS__ZERO;
    const ignis__model_part *part = NULL;
    ignis__model_part *parts = NULL;
    bool whole = false;
    int count = 0;
    if (!model)
        return tensor;
    if (!name)
        ignis__fail_null(call, "name");
    else
        parts = ignis__model_parts_make(call, NULL, model, &count);
    if (parts) {
        part = ignis__model_find(model, parts, count, name, &whole);
        if (!part)
            ignis__fail(IGNIS_DIAG_STORAGE_MISSING, call, "the model, %s of %d layers, has no weight %s",
                        ignis__model_families[model->family], model->layers, ignis__name_write(name).text);
        else if (whole && !ignis__blocks_of(call, *part->to).count)
            tensor = *part->to;
        else
            tensor = ignis__model_rows_of(call, *part->to, whole ? 0 : part->first, whole ? part->total : part->rows, model->dtype);
    }
    ignis__free(parts);
    ignis__model_drop(call, model);
    return tensor;
}

/*  The tokenizer of a held model; no handle, and reported: it cannot be opened. */
IGNIS__COLD static ignis_tokenizer ignis__model_tokenizer(ignis__model *model)
{
    ignis_tokenizer tokenizer, late;
    ignis__mutex_lock(&model->slot.lock);
    tokenizer = model->tokenizer;
    ignis__mutex_unlock(&model->slot.lock);
    if (tokenizer.id)
        return tokenizer;
    late = ignis_tokenizer_open(model->path); /* without the lock; of two threads that do so the first one wins */
    ignis__mutex_lock(&model->slot.lock);
    if (late.id && !model->tokenizer.id) {
        model->tokenizer = late;
        late.id = 0;
    }
    tokenizer = model->tokenizer;
    ignis__mutex_unlock(&model->slot.lock);
    ignis__model_tokenizer_end(&late);
    return tokenizer;
}

IGNIS__COLD IGNIS_API ignis_tokenizer ignis_model_tokenizer(ignis_model handle)
{
    ignis__model *model = ignis__model_hold("ignis_model_tokenizer", handle);
    ignis_tokenizer tokenizer = IGNIS__ZERO;
    if (!model)
        return tokenizer;
    tokenizer = ignis__model_tokenizer(model);
    ignis__model_drop("ignis_model_tokenizer", model);
    return tokenizer;
}

IGNIS__COLD IGNIS_API int ignis_model_weights(ignis_model handle, ignis_tensor *tensors, int capacity)
{
    static const char call[] = "ignis_model_weights";
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__model_part *parts = NULL;
    int count = 0, made = 0, i;
    if (!model)
        return -1;
    if (capacity < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    else if (!tensors && capacity > 0)
        ignis__fail_null(call, "tensors");
    else
        parts = ignis__model_parts_make(call, NULL, model, &count);
    for (i = 0; parts && i < count; i++) {
        if (!parts[i].total || ignis__blocks_of(call, *parts[i].to).count)
            continue;
        if (made < capacity)
            tensors[made] = *parts[i].to;
        made++;
    }
    made = parts ? made : -1;
    ignis__free(parts);
    ignis__model_drop(call, model);
    return made;
}

/* --- whole texts, by operations ---------------------------------------------------------------------------------------------- */

/*  Of >>lora, which comes behind. */
struct ignis__lora;
static struct ignis__lora *ignis__model_lora(ignis__model *model);
static void ignis__lora_drop(const char *call, struct ignis__lora *lora);
static bool ignis__lora_has(const struct ignis__lora *lora, const ignis__layer *layer, size_t member);
static ignis_tensor ignis__lora_add(const struct ignis__lora *lora, const ignis__layer *layer, size_t member, ignis_tensor x,
                                    ignis_tensor y);

static ignis_tensor ignis__model_norm(const ignis__model *model, ignis_tensor x, ignis_tensor weight, ignis_tensor bias)
{
    return model->rms ? ignis_rms_norm(x, weight, model->eps) : ignis_layer_norm(x, weight, bias, model->eps);
}

/*  The norm of each head of x [..., heads * head_dim]. */
static ignis_tensor ignis__model_head_norm(const ignis__model *model, ignis_tensor x, ignis_tensor weight, int heads)
{
    ignis_shape shape = ignis_tensor_shape(x), apart = shape;
    if (shape.ndim < 1 || shape.ndim >= IGNIS_MAX_DIMS)
        return x;
    apart.dim[apart.ndim - 1] = heads;
    apart.dim[apart.ndim++] = model->head_dim;
    return ignis_reshape(ignis_rms_norm(ignis_reshape(x, apart), weight, model->eps), shape);
}

/*  x by a weight of a layer, and what adapters add to that. */
#define IGNIS__MODEL_PRODUCT(x, layer, weight) \
    ignis__lora_add(lora, layer, offsetof(ignis__layer, weight), x, ignis__model_linear(model, x, (layer)->weight, (layer)->weight##_bias))

static ignis_tensor ignis__model_attend(const ignis__model *model, const struct ignis__lora *lora, const ignis__layer *layer,
                                        ignis_tensor h)
{
    ignis_tensor qkv = IGNIS__MODEL_PRODUCT(h, layer, qkv), part[3];
    ignis_sdpa_desc attention;
    ignis_rope_desc rope;
    int64_t sizes[3];
    memset(&attention, 0, sizeof attention);
    memset(&rope, 0, sizeof rope);
    attention.num_heads = model->heads;
    attention.num_kv_heads = model->kv_heads;
    attention.scale = model->attention_scale;
    rope.inv_freq_f64 = model->frequencies;
    rope.inv_freq_count = model->head_dim / 2;
    if (!layer->q_norm.id) {
        h = ignis_sdpa_packed(qkv, &attention, model->rope ? &rope : NULL);
        return IGNIS__MODEL_PRODUCT(h, layer, o);
    }
    sizes[0] = (int64_t)model->heads * model->head_dim;
    sizes[1] = sizes[2] = (int64_t)model->kv_heads * model->head_dim;
    if (ignis_split(qkv, -1, 3, sizes, part) != IGNIS_OK)
        return ignis__no_tensor();
    rope.num_heads = model->heads;
    part[0] = ignis_rope(ignis__model_head_norm(model, part[0], layer->q_norm, model->heads), &rope);
    rope.num_heads = model->kv_heads;
    part[1] = ignis_rope(ignis__model_head_norm(model, part[1], layer->k_norm, model->kv_heads), &rope);
    h = ignis_sdpa(part[0], part[1], part[2], &attention);
    return IGNIS__MODEL_PRODUCT(h, layer, o);
}

static ignis_tensor ignis__model_think(const ignis__model *model, const struct ignis__lora *lora, const ignis__layer *layer, ignis_tensor h)
{
    bool plain = !model->quantised && !ignis__lora_has(lora, layer, offsetof(ignis__layer, up)) &&
                 !ignis__lora_has(lora, layer, offsetof(ignis__layer, down));
    ignis_tensor part[2];
    if (plain && model->gelu)
        return ignis_mlp(h, layer->up, layer->up_bias, layer->down, layer->down_bias, IGNIS_ACTIVATION_GELU);
    if (plain && !layer->up_bias.id && !layer->down_bias.id)
        return ignis_split(layer->up, 0, 2, NULL, part) == IGNIS_OK ? ignis_mlp_gated(h, part[0], part[1], layer->down)
                                                                    : ignis__no_tensor();
    h = IGNIS__MODEL_PRODUCT(h, layer, up);
    if (model->gelu)
        h = ignis_gelu(h);
    else if (ignis_split(h, -1, 2, NULL, part) == IGNIS_OK)
        h = ignis_silu_mul(part[0], part[1]);
    else
        return ignis__no_tensor();
    return IGNIS__MODEL_PRODUCT(h, layer, down);
}

/*  Adds y to *x, and gives the norm of that. Both are let go of: the tape keeps what it needs. */
static ignis_tensor ignis__model_add_norm(const ignis__model *model, ignis_tensor *x, ignis_tensor y, ignis_tensor weight,
                                          ignis_tensor bias)
{
    static const char call[] = "ignis_model_forward";
    ignis_tensor before = *x, norm;
    norm = model->rms ? ignis_add_rms_norm(*x, y, weight, model->eps, x) : ignis_add_layer_norm(*x, y, weight, bias, model->eps, x);
    ignis__tensor_discard(call, before);
    ignis__tensor_discard(call, y);
    return norm;
}

/*  The scopes let go of everything but what the tape keeps. */
static ignis_tensor ignis__model_apply(const ignis__model *model, const struct ignis__lora *lora, ignis_tensor ids, int64_t seq)
{
    static const char call[] = "ignis_model_forward";
    ignis_scope all = ignis_scope_begin(), inner;
    ignis_tensor x = ignis__model_embedding(model->embedding, ids, model->dtype), h, y;
    int i;
    if (!model->rope)
        x = ignis_add(x, ignis_slice(model->positions, 0, 0, seq));
    h = ignis__model_norm(model, x, model->layer[0].attn_norm, model->layer[0].attn_norm_bias);
    for (i = 0; i < model->layers; i++) {
        const ignis__layer *layer = &model->layer[i];
        bool last = i == model->layers - 1;
        inner = ignis_scope_begin();
        y = ignis_scope_return(inner, ignis__model_attend(model, lora, layer, h));
        ignis__tensor_discard(call, h);
        h = ignis__model_add_norm(model, &x, y, layer->mlp_norm, layer->mlp_norm_bias);
        inner = ignis_scope_begin();
        y = ignis_scope_return(inner, ignis__model_think(model, lora, layer, h));
        ignis__tensor_discard(call, h);
        h = ignis__model_add_norm(model, &x, y, last ? model->norm : layer[1].attn_norm, last ? model->norm_bias : layer[1].attn_norm_bias);
    }
    return ignis_scope_return(all, ignis__model_linear(model, h, model->head, ignis__no_tensor()));
}

IGNIS_API ignis_tensor ignis_model_forward(ignis_model handle, ignis_tensor ids)
{
    static const char call[] = "ignis_model_forward";
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__tensor *tensor = model ? ignis__tensor_hold(call, ids) : NULL;
    struct ignis__lora *lora;
    ignis_tensor logits = IGNIS__ZERO;
    ignis_shape shape;
    if (tensor) {
        shape = tensor->shape;
        ignis__tensor_drop(call, tensor);
        if (shape.ndim > 2 || shape.dim[shape.ndim - 1] < 1)
            ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "ids is %s; [seq] or [batch, seq] is needed", ignis__shape_write(&shape).text);
        else if (!ignis__model_whole(call, model))
            logits = ignis__no_tensor();
        else if (!model->rope && shape.dim[shape.ndim - 1] > model->context)
            ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "ids is %s; the model has positions for %d tokens", ignis__shape_write(&shape).text,
                        model->context);
        else {
            lora = ignis__model_lora(model);
            logits = ignis__model_apply(model, lora, ids, shape.dim[shape.ndim - 1]);
            if (lora)
                ignis__lora_drop(call, lora);
        }
    }
    if (model)
        ignis__model_drop(call, model);
    return logits;
}

/* --- writing a model ------------------------------------------------------------------------------------------------------------ */

/*  "name": number, with a point whatever the locale says, and as many digits as say it exactly. */
static void ignis__model_write_number(ignis__text *text, const char *name, double value)
{
    char number[40], *comma;
    int digits;
    for (digits = 6; digits <= 17; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, value);
        if ((comma = strchr(number, ',')) != NULL)
            *comma = '.';
        if (ignis__decimal(number, number + strlen(number)) == value)
            break;
    }
    ignis__text_add(text, ",\n  \"%s\": %s", name, number);
}

static void ignis__model_write_config(const ignis__model *model, ignis__text *text)
{
    static const char *const classes[] = {"", "GPT2LMHeadModel", "LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"};
    static const char *const stretches[] = {"", "linear", "llama3", "yarn"};
    static const char *const dtypes[] = {"", "float16", "bfloat16", "float32", "float64"};
    bool old = model->family == IGNIS_MODEL_GPT2;
    struct {
        const char *name;
        int value;
    } sizes[10];
    int count = 0, i;
#define IGNIS__SIZE(name_, value_) (sizes[count].name = (name_), sizes[count++].value = (value_))
    IGNIS__SIZE("vocab_size", model->vocab);
    IGNIS__SIZE(old ? "n_embd" : "hidden_size", model->hidden);
    IGNIS__SIZE(old ? "n_layer" : "num_hidden_layers", model->layers);
    IGNIS__SIZE(old ? "n_head" : "num_attention_heads", model->heads);
    IGNIS__SIZE(old ? "n_inner" : "intermediate_size", model->inner);
    IGNIS__SIZE(old ? "n_positions" : "max_position_embeddings", model->context);
    if (!old) {
        IGNIS__SIZE("num_key_value_heads", model->kv_heads);
        IGNIS__SIZE("head_dim", model->head_dim);
    }
#undef IGNIS__SIZE
    ignis__text_add(text, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n  \"torch_dtype\": \"%s\"", classes[model->family],
                    ignis__model_families[model->family], dtypes[model->dtype]);
    for (i = 0; i < count; i++)
        ignis__text_add(text, ",\n  \"%s\": %d", sizes[i].name, sizes[i].value);
    ignis__text_add(text, ",\n  \"%s\": \"%s\",\n  \"tie_word_embeddings\": %s", old ? "activation_function" : "hidden_act",
                    old ? "gelu_new" : "silu", model->tied ? "true" : "false");
    ignis__model_write_number(text, old ? "layer_norm_epsilon" : "rms_norm_eps", model->eps);
    if (!old) {
        ignis__text_add(text, ",\n  \"attention_bias\": %s,\n  \"mlp_bias\": %s", model->layer[0].qkv_bias.id ? "true" : "false",
                        model->layer[0].up_bias.id ? "true" : "false");
        ignis__model_write_number(text, "rope_theta", model->theta);
    }
    if (model->bos >= 0)
        ignis__text_add(text, ",\n  \"bos_token_id\": %d", (int)model->bos);
    if (model->stop_count)
        ignis__text_add(text, ",\n  \"eos_token_id\": %s%d", model->stop_count > 1 ? "[" : "", (int)model->stops[0]);
    for (i = 1; i < model->stop_count; i++)
        ignis__text_add(text, ", %d", (int)model->stops[i]);
    ignis__text_add(text, "%s", model->stop_count > 1 ? "]" : "");
    if (model->stretch) {
        ignis__text_add(text, ",\n  \"rope_scaling\": {\"rope_type\": \"%s\"", stretches[model->stretch]);
        ignis__model_write_number(text, "factor", model->factor);
        if (model->stretch != IGNIS__STRETCH_LINEAR) {
            bool yarn = model->stretch == IGNIS__STRETCH_YARN;
            ignis__model_write_number(text, yarn ? "beta_slow" : "low_freq_factor", model->low);
            ignis__model_write_number(text, yarn ? "beta_fast" : "high_freq_factor", model->high);
            ignis__text_add(text, ",\n  \"original_max_position_embeddings\": %lld", (long long)model->original);
            if (yarn)
                ignis__model_write_number(text, "attention_factor", model->attention_factor);
            if (yarn && model->uncut)
                ignis__text_add(text, ",\n  \"truncate\": false");
        }
        ignis__text_add(text, "}");
    }
    ignis__text_add(text, "\n}\n");
}

/*  Writes a file: a text, or where that is null `size` bytes of the file `from`, which is closed in any case. */
static bool ignis__model_write(const char *call, const char *path, const char *content, int from, int64_t size)
{
    char *chunk = content ? NULL : (char *)ignis__alloc_for(call, (size_t)IGNIS__CONVERT_CHUNK);
    ignis__replacement to;
    int64_t done, some;
    bool ok = (content || chunk) && ignis__replace_begin(&to, call, path), begun = ok;
    for (done = 0; ok && done < size; done += some) {
        some = content ? size : ignis__clamp(size - done, 0, IGNIS__CONVERT_CHUNK);
        if (!content && ignis__file_read_at(from, done, chunk, some) != some)
            ok = ignis__file_fail(call, path, "copied whole");
        ok = ok && ignis__save_write(call, path, to.file, content ? content : chunk, some);
    }
    if (from >= 0)
        ignis__file_close(from);
    ignis__free(chunk);
    return begun && ignis__replace_end(&to, ok);
}

static bool ignis__model_save_config(const char *call, const ignis__model *model, const char *path)
{
    char config[4096];
    ignis__text text;
    ignis__text_begin(&text, config, sizeof config);
    ignis__model_write_config(model, &text);
    return ignis__model_write(call, path, config, -1, (int64_t)text.length);
}

/*  Copies what the folder of a model has beside its weights. What it lacks is left out. */
static bool ignis__model_save_rest(const char *call, const ignis__model *model, const char *folder)
{
    static const char *const names[] = {"tokenizer.json",      "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                        "chat_template.jinja", "chat_template.json",    "generation_config.json",  "vocab.json",
                                        "merges.txt",          "tokenizer.model"};
    int64_t size, time;
    bool ok = true;
    int i;
    if (!ignis__path_is_special(model->path)) /* a GGUF file, or nothing any more */
        return true;
    for (i = 0; ok && i < IGNIS__COUNT(names); i++) {
        char *from = ignis__model_path(call, model->path, names[i]), *to = from ? ignis__model_path(call, folder, names[i]) : NULL;
        int file = -1;
        ok = to != NULL;
        if (ok && ignis__file_info(from, &size, &time)) {
            file = ignis__file_open(from, &size);
            ok = file >= 0 ? ignis__model_write(call, to, NULL, file, size) : ignis__file_fail(call, from, "opened");
        }
        ignis__free(from);
        ignis__free(to);
    }
    return ok;
}

/*  The weights as a folder has them: rows apart, and GPT-2's the other way round, in the current scope. */
static bool ignis__model_save_weights(const char *call, ignis__model *model, const char *path, const ignis__model_part *parts, int count)
{
    ignis__model_name *names = (ignis__model_name *)ignis__alloc(((size_t)count + 1) * sizeof *names);
    const char **texts = (const char **)ignis__alloc(((size_t)count + 1) * sizeof *texts);
    ignis_tensor *tensors = (ignis_tensor *)ignis__alloc(((size_t)count + 1) * sizeof *tensors);
    bool ok = names && texts && tensors;
    int i;
    if (!ok)
        ignis__fail_host_memory(call, ((size_t)count + 1) * sizeof *names);
    for (i = 0; ok && i < count; i++) {
        names[i] = ignis__model_name_of(NULL, model, parts[i].row, parts[i].layer);
        texts[i] = names[i].text;
        tensors[i] = ignis__model_rows_of(call, *parts[i].to, parts[i].first, parts[i].rows, model->dtype);
        if (parts[i].row->how & IGNIS__MODEL_IN_OUT)
            tensors[i] = ignis_transpose(tensors[i], 0, 1);
        ok = tensors[i].id != 0;
    }
    ok = ok && ignis__save(call, path, texts, tensors, count, "{\"format\":\"pt\"}") == IGNIS_OK;
    ignis__free(names);
    ignis__free((void *)texts);
    ignis__free(tensors);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_model_save(ignis_model handle, const char *folder)
{
    static const char call[] = "ignis_model_save";
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__model_part *parts = NULL;
    char *weights = NULL, *config = NULL;
    ignis_scope scope;
    bool ok = false;
    int count = 0;
    if (!model)
        return ignis__failed();
    if (!folder)
        ignis__fail_null(call, "folder");
    else if (model->stretch == IGNIS__STRETCH_TABLE)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "the frequencies of the model are a GGUF file's own, which config.json has no words for");
    else if (ignis__model_whole(call, model) && !ignis__capture_refuses(call))
        ok = (weights = ignis__model_path(call, folder, "model.safetensors")) != NULL &&
             (config = ignis__model_path(call, folder, "config.json")) != NULL &&
             (parts = ignis__model_parts_make(call, NULL, model, &count)) != NULL;
    if (ok) {
        (void)ignis__folder_make_all(folder); /* what is written to it tells */
        scope = ignis_scope_begin();
        (void)ignis_no_grad_begin();
        ok = ignis__model_save_weights(call, model, weights, parts, count) && ignis__model_save_config(call, model, config) &&
             ignis__model_save_rest(call, model, folder);
        (void)ignis_no_grad_end();
        (void)ignis_scope_end(scope);
    }
    ignis__free(weights);
    ignis__free(config);
    ignis__free(parts);
    ignis__model_drop(call, model);
    return ok ? IGNIS_OK : ignis__failed();
}

/* ===============================================================================================================
   >>lora - adapters of a model: pairs of narrow matrices beside its products.
   =============================================================================================================== */

/*  A row of the model's table says which product an adapter belongs to; where several rows are one weight, it adds to its columns of what that
    gives. Adapters hold their model. The model knows those that are set, and does not hold them: who frees them takes them off. */

enum { IGNIS__LORA_RANK = 65536 };

typedef struct ignis__adapter {
    const ignis__model_row *row;
    int layer;
    int64_t first, rows, columns; /* of the weight */
    ignis_tensor a, b;            /* [rank, columns], [rows, rank] */
} ignis__adapter;

typedef struct ignis__lora {
    ignis__slot slot;
    ignis__model *model; /* held; its slot's lock guards the last two */
    int rank;
    double alpha, dropout, scale;
    bool rslora;
    ignis_dtype dtype;
    ignis__adapter *adapters; /* by layers */
    int *layer_first;         /* of each layer, and the end */
    int count;
    int merged; /* so many of the adapters are part of the weights */
    bool merging;
} ignis__lora;

static ignis__pool ignis__loras = IGNIS__POOL(ignis__lora, IGNIS__KIND_LORA, "LoRA", IGNIS_DIAG_LORA_FREED);

static ignis__lora *ignis__lora_hold(const char *call, ignis_lora handle)
{
    return (ignis__lora *)ignis__handle_hold(call, &ignis__loras, handle.id);
}

/*  Gives up what adapters have; the slot stays. */
static void ignis__lora_clear(const char *call, ignis__lora *lora)
{
    int i;
    for (i = 0; lora->adapters && i < lora->count; i++) {
        ignis__tensor_discard(call, lora->adapters[i].a);
        ignis__tensor_discard(call, lora->adapters[i].b);
    }
    ignis__free(lora->adapters);
    ignis__free(lora->layer_first);
    ignis__model_drop(call, lora->model);
    ignis__pool_give(&ignis__loras, lora);
}

static void ignis__lora_drop(const char *call, ignis__lora *lora)
{
    if (ignis__pool_drop(lora))
        ignis__lora_clear(call, lora);
}

/*  Ends the handle of held adapters, and takes them off their model; false: another thread has. */
static bool ignis__lora_end(ignis__lora *lora)
{
    bool live = ignis__handle_kill(lora);
    ignis__mutex_lock(&lora->model->slot.lock);
    if (lora->model->lora == lora)
        lora->model->lora = NULL;
    ignis__mutex_unlock(&lora->model->slot.lock);
    return live;
}

/*  The adapters that are set, held; or null. */
static ignis__lora *ignis__model_lora(ignis__model *model)
{
    ignis__lora *lora;
    ignis__mutex_lock(&model->slot.lock);
    lora = model->lora;
    if (lora)
        (void)ignis__pool_hold_more(lora); /* who ends them takes them off before the last hold is gone */
    ignis__mutex_unlock(&model->slot.lock);
    return lora;
}

/*  False, and reported: adapters are set, which sequences do not have. */
static bool ignis__model_plain(const char *call, ignis__model *model)
{
    bool plain;
    ignis__mutex_lock(&model->slot.lock);
    plain = !model->lora;
    ignis__mutex_unlock(&model->slot.lock);
    if (!plain)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "the model has adapters, which sequences are not computed with; ignis_lora_merge makes them part of its weights, "
                    "ignis_model_set_lora without a handle takes them off");
    return plain;
}

/*  Reports all that are alive at ignis_shutdown, and ends them before the models. */
static void ignis__loras_close(const char *call)
{
    ignis__lora *lora;
    uint64_t index = 0;
    while ((lora = (ignis__lora *)ignis__pool_next(&ignis__loras, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "LoRA: %d adapters of rank %d on device %d", lora->count, lora->rank,
                           (int)(lora->model->device - ignis__devices));
        (void)ignis__lora_end(lora);
        ignis__lora_drop(call, lora);
    }
}

/* --- what they add ----------------------------------------------------------------------------------------------------------- */

/*  The adapters of a weight of a layer: the first of them, or -1, and how many from there on are of that layer. */
static int ignis__lora_find(const ignis__lora *lora, const ignis__layer *layer, size_t member, int *end)
{
    int number, i;
    if (!lora)
        return -1;
    number = (int)(layer - lora->model->layer);
    *end = lora->layer_first[number + 1];
    for (i = lora->layer_first[number]; i < *end && lora->adapters[i].row->member != member;)
        i++;
    return i < *end ? i : -1;
}

static bool ignis__lora_has(const ignis__lora *lora, const ignis__layer *layer, size_t member)
{
    int end;
    return ignis__lora_find(lora, layer, member, &end) >= 0;
}

/*  scale (x A^T) B^T, as numbers of a dtype. */
static ignis_tensor ignis__lora_delta(const ignis__lora *lora, const ignis__adapter *adapter, ignis_tensor x, ignis_dtype dtype)
{
    if (lora->dropout > 0 && ignis__recording())
        x = ignis_dropout(x, lora->dropout);
    x = ignis_scale(ignis_linear(x, adapter->a, ignis__no_tensor()), lora->scale); /* here, where there are few numbers */
    x = ignis_linear(x, adapter->b, ignis__no_tensor());
    return lora->dtype == dtype ? x : ignis_cast(x, dtype);
}

/*  y = x by a weight, and what the adapters of its parts add to their columns. */
static ignis_tensor ignis__lora_add(const ignis__lora *lora, const ignis__layer *layer, size_t member, ignis_tensor x, ignis_tensor y)
{
    int end, i = ignis__lora_find(lora, layer, member, &end), count = 0;
    ignis_tensor pieces[8];
    ignis_tensor_desc desc;
    ignis_shape shape;
    int64_t columns, at = 0, next;
    if (i < 0 || !y.id)
        return y;
    memset(&desc, 0, sizeof desc);
    shape = ignis_tensor_shape(y);
    columns = shape.dim[shape.ndim - 1];
    desc.dtype = lora->model->dtype;
    desc.device = lora->model->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(lora->model->device - ignis__devices);
    if (lora->dtype != desc.dtype)
        x = ignis_cast(x, lora->dtype);
    while (at < columns) { /* adapters, and zeros between them */
        while (i < end && lora->adapters[i].row->member != member)
            i++;
        next = i < end ? lora->adapters[i].first : columns;
        shape.dim[shape.ndim - 1] = next - at;
        if (next > at)
            pieces[count++] = ignis_tensor_zeros(shape, &desc);
        if (i < end)
            pieces[count++] = ignis__lora_delta(lora, &lora->adapters[i], x, desc.dtype);
        at = i < end ? next + lora->adapters[i++].rows : columns;
    }
    return ignis_add(y, count == 1 ? pieces[0] : ignis_concat(pieces, count, -1));
}

/* --- making them ------------------------------------------------------------------------------------------------------------- */

/*  The name of a product, without ".weight". */
static ignis__model_name ignis__lora_product(const ignis__model *model, const ignis__model_row *row, int layer)
{
    ignis__model_name name = ignis__model_name_of(NULL, model, row, layer);
    *strrchr(name.text, '.') = 0;
    return name;
}

/*  The name of a tensor of an adapter in PEFT's files. */
typedef struct ignis__lora_name {
    char text[128];
} ignis__lora_name;

static ignis__lora_name ignis__lora_name_write(const ignis__model *model, const ignis__model_row *row, int layer, char which)
{
    ignis__lora_name name;
    snprintf(name.text, sizeof name.text, "base_model.model.%s.lora_%c.weight", ignis__lora_product(model, row, layer).text, which);
    return name;
}

/*  Whether a part of a model can have an adapter. */
static bool ignis__lora_can(const ignis__model_part *part) { return part->row->in_layer && part->row->columns; }

/*  Whether a product has a name that ends with these words. */
static bool ignis__lora_named(const char *product, const char *target)
{
    size_t length = strlen(product), end = strlen(target);
    return end && end <= length && strcmp(product + length - end, target) == 0 && (end == length || product[length - end - 1] == '.');
}

/*  Adapters without values for the parts that are wanted; of *read the numbers are taken. The model is held, and that hold is given over. Null, and
    reported: there is no memory. */
IGNIS__COLD static ignis__lora *ignis__lora_make(const char *call, ignis__model *model, const ignis__model_part *parts, int count,
                                                 const char *wanted, const ignis__lora *read)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__lora *lora = (ignis__lora *)ignis__pool_take(call, &ignis__loras);
    int scopes = thread->scope_count, i, layer = 0;
    ignis_array_desc array;
    bool ok;
    if (!lora) {
        ignis__model_drop(call, model);
        return NULL;
    }
    memcpy((char *)lora + sizeof lora->slot, (const char *)read + sizeof read->slot, sizeof *lora - sizeof lora->slot);
    lora->model = model;
    lora->count = lora->merged = 0;
    lora->merging = false;
    lora->adapters = (ignis__adapter *)ignis__alloc(((size_t)count + 1) * sizeof *lora->adapters);
    lora->layer_first = (int *)ignis__alloc(((size_t)model->layers + 1) * sizeof *lora->layer_first);
    ok = lora->adapters && lora->layer_first;
    if (!ok)
        ignis__fail_host_memory(call, ((size_t)count + 1) * sizeof *lora->adapters);
    memset(&array, 0, sizeof array);
    array.shape.ndim = 2;
    array.dtype = read->dtype;
    array.device = model->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(model->device - ignis__devices);
    array.tag = "LoRA";
    thread->scope_count = 0; /* they are no scope's */
    for (i = 0; ok && i < count; i++) {
        ignis__adapter *adapter = &lora->adapters[lora->count];
        if (!wanted[i])
            continue;
        while (layer <= parts[i].layer)
            lora->layer_first[layer++] = lora->count;
        memset(adapter, 0, sizeof *adapter);
        adapter->row = parts[i].row;
        adapter->layer = parts[i].layer;
        adapter->first = parts[i].first;
        adapter->rows = array.shape.dim[0] = parts[i].rows;
        adapter->columns = parts[i].columns;
        array.shape.dim[1] = read->rank;
        adapter->b = ignis__tensor_adopt(call, ignis__array_create(call, &array), true);
        array.shape.dim[0] = read->rank;
        array.shape.dim[1] = parts[i].columns;
        adapter->a = ignis__tensor_adopt(call, ignis__array_create(call, &array), true);
        ok = adapter->a.id && adapter->b.id;
        lora->count++;
    }
    thread->scope_count = scopes;
    while (ok && layer <= model->layers)
        lora->layer_first[layer++] = lora->count;
    if (ok)
        return lora;
    ignis__lora_clear(call, lora);
    return NULL;
}

/*  A uniform within 1 / sqrt(columns), B zero. The thread's own random numbers go on where they were. */
static bool ignis__lora_begin(const char *call, const ignis__lora *lora, uint64_t seed)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    uint64_t seed_before = thread->seed, used_before = thread->random_used;
    ignis_tensor_desc desc;
    ignis_array_inputs inputs;
    bool ok = true;
    int i;
    memset(&desc, 0, sizeof desc);
    memset(&inputs, 0, sizeof inputs);
    desc.dtype = ignis__wide_dtype(lora->dtype);
    desc.device = lora->model->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(lora->model->device - ignis__devices);
    inputs.names = "u, most";
    inputs.count = 2;
    thread->seed = seed;
    thread->random_used = 0;
    for (i = 0; ok && i < lora->count; i++) {
        const ignis__adapter *adapter = &lora->adapters[i];
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor uniform = ignis_tensor_rand(ignis_tensor_shape(adapter->a), &desc);
        inputs.array[0] = ignis_tensor_data(uniform);
        inputs.array[1] = ignis_array_value(1 / ignis__root((double)adapter->columns, 2));
        ok = ignis_array_map(ignis_tensor_data(adapter->a), "most*(2*u - 1)", inputs) == IGNIS_OK &&
             ignis__array_set_zero(call, ignis_tensor_data(adapter->b)) == IGNIS_OK;
        (void)ignis_scope_end(scope);
    }
    thread->seed = seed_before;
    thread->random_used = used_before;
    return ok;
}

static double ignis__lora_scale(const ignis__lora *lora)
{
    return lora->alpha / (lora->rslora ? ignis__root((double)lora->rank, 2) : (double)lora->rank);
}

/*  Takes the numbers of a description. */
static bool ignis__lora_check(const char *call, const ignis_lora_desc *desc, ignis__lora *read)
{
    int i;
    read->rank = desc->rank ? desc->rank : 8;
    read->alpha = desc->alpha != 0 ? desc->alpha : read->rank;
    read->dropout = desc->dropout;
    read->rslora = desc->rslora;
    if (read->rank < 0 || read->rank > IGNIS__LORA_RANK)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->rank is %d; 1 to %d is needed", read->rank, IGNIS__LORA_RANK) == IGNIS_OK;
    if (!(read->alpha > 0 && read->alpha < 1e12))
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->alpha is %g; a positive number is needed", read->alpha) == IGNIS_OK;
    if (!(read->dropout >= 0 && read->dropout < 1))
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->dropout is %g; 0 to below 1 is needed", read->dropout) == IGNIS_OK;
    if (desc->dtype != IGNIS_DTYPE_DEFAULT && !ignis__dtype_is_float(desc->dtype))
        return ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "desc->dtype is %d, not a dtype that can be used there", (int)desc->dtype) ==
               IGNIS_OK;
    if (desc->target_count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->target_count is %d, below 0", desc->target_count) == IGNIS_OK;
    if (desc->target_count && !desc->targets)
        return ignis__fail_null(call, "desc->targets") == IGNIS_OK;
    for (i = 0; i < desc->target_count; i++)
        if (!desc->targets[i])
            return ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "desc->targets[%d] of %d is null", i, desc->target_count) == IGNIS_OK;
    read->scale = ignis__lora_scale(read);
    return true;
}

/*  Marks the parts that targets name. */
static bool ignis__lora_choose(const char *call, const ignis__model *model, const ignis_lora_desc *desc, const ignis__model_part *parts,
                               int count, char *wanted)
{
    static const char *const gpt2[] = {"c_attn"}, *const others[] = {"q_proj", "v_proj"};
    const char *const *targets = desc->target_count ? desc->targets : model->family == IGNIS_MODEL_GPT2 ? gpt2 : others;
    int target_count = desc->target_count ? desc->target_count : model->family == IGNIS_MODEL_GPT2 ? 1 : 2, i, k;
    char known[256];
    ignis__text text;
    bool found;
    for (k = 0; k < target_count; k++) {
        found = false;
        for (i = 0; i < count; i++) {
            if (!ignis__lora_can(&parts[i]) ||
                !(strcmp(targets[k], "all-linear") == 0 ||
                  ignis__lora_named(ignis__lora_product(model, parts[i].row, parts[i].layer).text, targets[k])))
                continue;
            wanted[i] = 1;
            found = true;
        }
        if (found)
            continue;
        ignis__text_begin(&text, known, sizeof known);
        for (i = 0; i < count && parts[i].layer < 1; i++)
            if (ignis__lora_can(&parts[i])) {
                ignis__model_name product = ignis__lora_product(model, parts[i].row, 0);
                ignis__text_add(&text, "%s%s", text.length ? ", " : "", strstr(product.text, ".0.") + 3);
            }
        ignis__fail(IGNIS_DIAG_STORAGE_MISSING, call,
                    "desc->targets[%d] is %s, which is no product of the model, %s of %d layers; they have %s", k,
                    ignis__name_write(targets[k]).text, ignis__model_families[model->family], model->layers, known);
        return false;
    }
    return true;
}

IGNIS__COLD IGNIS_API ignis_lora ignis_lora_create(ignis_model handle, const ignis_lora_desc *desc)
{
    static const char call[] = "ignis_lora_create";
    static const ignis_lora_desc defaults = IGNIS__ZERO;
    ignis_lora none = IGNIS__ZERO;
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__model_part *parts = NULL;
    ignis__lora read, *lora = NULL;
    char *wanted = NULL;
    int count = 0;
    if (!model)
        return none;
    memset(&read, 0, sizeof read);
    desc = desc ? desc : &defaults;
    read.dtype = desc->dtype ? desc->dtype : model->dtype;
    if (ignis__model_whole(call, model) && !ignis__capture_refuses(call) && ignis__lora_check(call, desc, &read))
        parts = ignis__model_parts_make(call, NULL, model, &count);
    if (parts && (wanted = (char *)ignis__alloc((size_t)count + 1)) == NULL)
        ignis__fail_host_memory(call, (size_t)count + 1);
    if (!wanted || !ignis__lora_choose(call, model, desc, parts, count, wanted))
        ignis__model_drop(call, model);
    else
        lora = ignis__lora_make(call, model, parts, count, wanted, &read);
    ignis__free(parts);
    ignis__free(wanted);
    if (lora && !ignis__lora_begin(call, lora, desc->seed)) {
        ignis__lora_clear(call, lora);
        lora = NULL;
    }
    if (lora)
        none.id = ignis__pool_publish(&ignis__loras, lora);
    return none;
}

/* --- PEFT's folders: read ------------------------------------------------------------------------------------------------------ */

/*  Keys of adapter_config.json that are looked at, with the kinds of values that they may have, and those that change nothing of what A and B in the
    other file compute. All others have to be empty. */
static const struct {
    const char *name, *kinds; /* null: any */
} ignis__lora_keys[] = {
    {"peft_type", "t"},
    {"r", "n0"},
    {"lora_alpha", "n0"},
    {"lora_dropout", "n0"},
    {"use_rslora", "b0"},
    {"bias", "t"},
    {"init_lora_weights", "bt0"},
    {"auto_mapping", NULL},
    {"base_model_name_or_path", NULL},
    {"revision", NULL},
    {"task_type", NULL},
    {"inference_mode", NULL},
    {"peft_version", NULL},
    {"target_modules", NULL},
    {"exclude_modules", NULL},
    {"layers_pattern", NULL},
    {"layers_to_transform", NULL},
    {"fan_in_fan_out", NULL},
    {"eva_config", NULL},
    {"megatron_core", NULL},
    {"runtime_config", NULL},
    {"qalora_group_size", NULL},
};

/*  Whether a value is null, false, 0, or has nothing in it. */
static bool ignis__config_is_empty(const ignis__config *config, const ignis__config_item *item)
{
    size_t length = strlen(item->name);
    int i;
    if (item->kind == 't')
        return !*item->text;
    if (item->kind != '{' && item->kind != '[')
        return item->kind == '0' || item->number == 0;
    for (i = (int)(item - config->items) + 1; i < config->count; i++)
        if (strncmp(config->items[i].name, item->name, length) == 0 &&
            (config->items[i].name[length] == '.' || config->items[i].name[length] == '['))
            return false;
    return true;
}

/*  A text that has to be one of some; a whole NULL-ended list. */
static bool ignis__lora_text(const char *call, const char *folder, const ignis__config_item *item, const char *const *texts)
{
    int k;
    for (k = 0; texts[k] && strcmp(item->text, texts[k]) != 0;)
        k++;
    if (!texts[k])
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "adapter_config.json of '%s' has %s %s, which Ignis cannot do", folder, item->name,
                    ignis__name_write(item->text).text);
    return texts[k] != NULL;
}

/*  A number within limits; otherwise: what it is where it is not said, outside of them where it has to be. */
static bool ignis__lora_number(const char *call, const char *folder, const ignis__config *config, const char *name, double otherwise,
                               double low, double high, double *value)
{
    const ignis__config_item *item = ignis__config_find(config, name);
    *value = item ? item->number : otherwise;
    if (*value >= low && *value <= high)
        return true;
    if (item)
        ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "adapter_config.json of '%s' has %s %g; a number from %g to %g is needed", folder, name,
                    *value, low, high);
    else
        ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "adapter_config.json of '%s' has no %s", folder, name);
    return false;
}

/*  Takes the numbers of adapter_config.json, and refuses what would be ignored. */
static bool ignis__lora_config(const char *call, const char *folder, const ignis__config *config, ignis__lora *read)
{
    static const char *const types[] = {"LORA", NULL}, *const biases[] = {"none", NULL},
                             *const inits[] = {"gaussian", "eva", "orthogonal", NULL}; /* others change the base, too */
    const ignis__config_item *type = ignis__config_find(config, "peft_type"), *rslora = ignis__config_find(config, "use_rslora");
    double rank = 0;
    int i, k;
    if (!type)
        return ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "adapter_config.json of '%s' has no peft_type", folder) == IGNIS_OK;
    for (i = 0; i < config->count; i++) {
        const ignis__config_item *item = &config->items[i];
        if (!*item->name || strpbrk(item->name, ".["))
            continue;
        if (item->kind == 't' && ((strcmp(item->name, "peft_type") == 0 && !ignis__lora_text(call, folder, item, types)) ||
                                  (strcmp(item->name, "bias") == 0 && !ignis__lora_text(call, folder, item, biases)) ||
                                  (strcmp(item->name, "init_lora_weights") == 0 && !ignis__lora_text(call, folder, item, inits))))
            return false;
        for (k = 0; k < IGNIS__COUNT(ignis__lora_keys) && strcmp(item->name, ignis__lora_keys[k].name) != 0;)
            k++;
        if (k < IGNIS__COUNT(ignis__lora_keys) && ignis__lora_keys[k].kinds && !strchr(ignis__lora_keys[k].kinds, item->kind))
            return ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "adapter_config.json of '%s': %s is %s", folder, item->name,
                               *ignis__lora_keys[k].kinds == 'n'   ? "no number"
                               : *ignis__lora_keys[k].kinds == 't' ? "no text"
                                                                   : "neither true nor false") == IGNIS_OK;
        if (k < IGNIS__COUNT(ignis__lora_keys) || ignis__config_is_empty(config, item))
            continue;
        return ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "adapter_config.json of '%s' has %s %s, which Ignis cannot do", folder,
                           ignis__name_write(item->name).text,
                           item->kind == 't'   ? ignis__name_write(item->text).text
                           : item->kind == 'b' ? "true"
                                               : "there") == IGNIS_OK;
    }
    if (!ignis__lora_number(call, folder, config, "r", -1, 1, IGNIS__LORA_RANK, &rank) ||
        !ignis__lora_number(call, folder, config, "lora_alpha", -1, 1e-12, 1e12, &read->alpha) ||
        !ignis__lora_number(call, folder, config, "lora_dropout", 0, 0, 0.999999, &read->dropout))
        return false;
    if (rank != (double)(int)rank)
        return ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "adapter_config.json of '%s' has r %g; a whole number is needed", folder, rank) ==
               IGNIS_OK;
    read->rank = (int)rank;
    read->rslora = rslora && rslora->number != 0;
    read->scale = ignis__lora_scale(read);
    return true;
}

/*  One of the two tensors of an adapter: its shape is right, and its dtype that of the others. */
static bool ignis__lora_fits(const char *call, const char *path, const ignis__stored *item, int64_t rows, int64_t columns,
                             ignis__lora *read)
{
    ignis_dtype dtype = ignis__stored_types[item->type].dtype;
    ignis_shape wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.ndim = 2;
    wanted.dim[0] = rows;
    wanted.dim[1] = columns;
    if (!ignis__dtype_is_float(dtype) || (read->dtype && read->dtype != dtype))
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "tensor %s of '%s' is of type %s; all are of one, F16, BF16, F32 or F64",
                    ignis__name_write(item->name).text, path, ignis__stored_types[item->type].name);
    else if (!ignis__shape_same(&item->shape, &wanted))
        ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "tensor %s of '%s' is %s; the model and a rank of %d make it %s",
                    ignis__name_write(item->name).text, path, ignis__shape_write(&item->shape).text, read->rank,
                    ignis__shape_write(&wanted).text);
    else {
        read->dtype = dtype;
        return true;
    }
    return false;
}

/*  Marks the parts that the file has an adapter for. Every tensor of it has to be one of theirs. */
static bool ignis__lora_match(const char *call, const char *path, ignis__safetensors *file, const ignis__model *model,
                              const ignis__model_part *parts, int count, char *wanted, ignis__lora *read)
{
    int i, used = 0;
    ignis__stored_sort(file->items, file->count, ignis__stored_by_name);
    for (i = 0; i < file->count; i++)
        file->items[i].index = 0;
    for (i = 0; i < count; i++) {
        ignis__stored *a, *b;
        if (!ignis__lora_can(&parts[i]))
            continue;
        a = ignis__stored_find(file, ignis__lora_name_write(model, parts[i].row, parts[i].layer, 'A').text);
        b = ignis__stored_find(file, ignis__lora_name_write(model, parts[i].row, parts[i].layer, 'B').text);
        if (!a && !b)
            continue;
        if (!a || !b)
            return ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "'%s' has no tensor %s", path,
                               ignis__lora_name_write(model, parts[i].row, parts[i].layer, a ? 'B' : 'A').text) == IGNIS_OK;
        if (!ignis__lora_fits(call, path, a, read->rank, parts[i].columns, read) ||
            !ignis__lora_fits(call, path, b, parts[i].rows, read->rank, read))
            return false;
        a->index = b->index = 1;
        wanted[i] = 1;
        used++;
    }
    for (i = 0; i < file->count && file->items[i].index;)
        i++;
    if (i < file->count)
        ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "'%s' has a tensor %s, which has no place beside a product of the model, %s of %d layers",
                    path, ignis__name_write(file->items[i].name).text, ignis__model_families[model->family], model->layers);
    else if (!used)
        ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "'%s' has no tensors", path);
    else
        return true;
    return false;
}

/*  Names and tensors of all adapters, and memory for both; null, and reported: there is none. */
typedef struct ignis__lora_list {
    ignis__lora_name *names;
    const char **texts;
    ignis_tensor *tensors;
} ignis__lora_list;

static bool ignis__lora_list_make(const char *call, const ignis__lora *lora, ignis__lora_list *list)
{
    size_t count = 2 * (size_t)lora->count + 1;
    int i;
    list->names = (ignis__lora_name *)ignis__alloc(count * sizeof *list->names);
    list->texts = (const char **)ignis__alloc(count * sizeof *list->texts);
    list->tensors = (ignis_tensor *)ignis__alloc(count * sizeof *list->tensors);
    if (!list->names || !list->texts || !list->tensors)
        return ignis__fail_host_memory(call, count * sizeof *list->names) == IGNIS_OK;
    for (i = 0; i < 2 * lora->count; i++) {
        const ignis__adapter *adapter = &lora->adapters[i / 2];
        list->names[i] = ignis__lora_name_write(lora->model, adapter->row, adapter->layer, i % 2 ? 'B' : 'A');
        list->texts[i] = list->names[i].text;
        list->tensors[i] = i % 2 ? adapter->b : adapter->a;
    }
    return true;
}

static void ignis__lora_list_free(ignis__lora_list *list)
{
    ignis__free(list->names);
    ignis__free((void *)list->texts);
    ignis__free(list->tensors);
}

/*  Reads what a folder has for a held model, whose hold is given over; null, and reported: it has nothing that fits. */
IGNIS__COLD static ignis__lora *ignis__lora_read(const char *call, ignis__model *model, const char *folder, const char *config_path,
                                                 const char *path)
{
    ignis__lora read, *lora = NULL;
    ignis__lora_list list = IGNIS__ZERO;
    ignis__model_part *parts = NULL;
    ignis__config config;
    ignis__load load;
    char *wanted = NULL;
    int count = 0;
    bool ok;
    memset(&read, 0, sizeof read);
    ok = ignis__config_open(call, config_path, true, &config);
    if (ok) {
        ok = ignis__lora_config(call, folder, &config, &read);
        ignis__config_close(&config);
    }
    ok = ok && (parts = ignis__model_parts_make(call, NULL, model, &count)) != NULL;
    if (ok && (wanted = (char *)ignis__alloc((size_t)count + 1)) == NULL)
        ok = ignis__fail_host_memory(call, (size_t)count + 1) == IGNIS_OK;
    if (ok && (ok = ignis__load_open(call, path, &load)) != false) {
        ok = ignis__lora_match(call, path, &load.file, model, parts, count, wanted, &read);
        ignis__load_close(&load);
    }
    if (ok)
        lora = ignis__lora_make(call, model, parts, count, wanted, &read);
    else
        ignis__model_drop(call, model);
    ignis__free(parts);
    ignis__free(wanted);
    if (lora && !(ignis__lora_list_make(call, lora, &list) &&
                  ignis__load_named(call, path, list.texts, list.tensors, 2 * lora->count) == IGNIS_OK)) {
        ignis__lora_clear(call, lora);
        lora = NULL;
    }
    ignis__lora_list_free(&list);
    return lora;
}

IGNIS__COLD IGNIS_API ignis_lora ignis_lora_open(ignis_model handle, const char *folder)
{
    static const char call[] = "ignis_lora_open";
    ignis_lora none = IGNIS__ZERO;
    ignis__model *model = ignis__model_hold(call, handle);
    char *config = NULL, *path = NULL;
    ignis__lora *lora = NULL;
    if (!model)
        return none;
    if (!folder)
        ignis__fail_null(call, "folder");
    else if (ignis__model_whole(call, model) && !ignis__capture_refuses(call) &&
             (config = ignis__model_path(call, folder, "adapter_config.json")) != NULL)
        path = ignis__model_path(call, folder, "adapter_model.safetensors");
    if (path)
        lora = ignis__lora_read(call, model, folder, config, path);
    else
        ignis__model_drop(call, model);
    ignis__free(config);
    ignis__free(path);
    if (lora)
        none.id = ignis__pool_publish(&ignis__loras, lora);
    return none;
}

/* --- PEFT's folders: written ----------------------------------------------------------------------------------------------------- */

/*  Whether every layer has an adapter for a row. */
static bool ignis__lora_everywhere(const ignis__lora *lora, const ignis__model_row *row)
{
    int i, found = 0;
    for (i = 0; i < lora->count; i++)
        found += lora->adapters[i].row == row;
    return found == lora->model->layers;
}

/*  Products that have an adapter, once each, where all layers have it by the last word of their name, or the last two where "c_proj" would be two. */
static void ignis__lora_write_targets(const ignis__lora *lora, ignis__text *text)
{
    bool first = true;
    int i;
    for (i = 0; i < lora->count; i++) {
        const ignis__adapter *adapter = &lora->adapters[i];
        ignis__model_name product = ignis__lora_product(lora->model, adapter->row, adapter->layer);
        bool everywhere = ignis__lora_everywhere(lora, adapter->row);
        char *word = product.text;
        if (everywhere && adapter->layer > 0)
            continue;
        if (everywhere) {
            word = strrchr(product.text, '.');
            while (word > product.text && (strcmp(word, ".c_proj") == 0 || *word != '.'))
                word--;
            word += *word == '.';
        }
        ignis__text_add(text, first ? "" : ", ");
        ignis__json_write_string(text, word);
        first = false;
    }
}

static void ignis__lora_write_config(const ignis__lora *lora, ignis__text *text)
{
    ignis__text_add(text, "{\n  \"alpha_pattern\": {},\n  \"auto_mapping\": null,\n  \"base_model_name_or_path\": ");
    ignis__json_write_string(text, lora->model->path);
    ignis__text_add(text, ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n  \"inference_mode\": true,\n  \"init_lora_weights\": true",
                    lora->model->family == IGNIS_MODEL_GPT2 ? "true" : "false");
    ignis__text_add(text, ",\n  \"layers_pattern\": null,\n  \"layers_to_transform\": null");
    ignis__model_write_number(text, "lora_alpha", lora->alpha);
    ignis__model_write_number(text, "lora_dropout", lora->dropout);
    ignis__text_add(text, ",\n  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n  \"r\": %d,\n  \"rank_pattern\": {}", lora->rank);
    ignis__text_add(text, ",\n  \"revision\": null,\n  \"target_modules\": [");
    ignis__lora_write_targets(lora, text);
    ignis__text_add(text, "],\n  \"task_type\": \"CAUSAL_LM\",\n  \"use_dora\": false,\n  \"use_rslora\": %s\n}\n",
                    lora->rslora ? "true" : "false");
}

static bool ignis__lora_save_config(const char *call, const ignis__lora *lora, const char *path)
{
    ignis__text text;
    size_t size;
    char *config;
    bool ok;
    ignis__text_begin(&text, NULL, 0);
    ignis__lora_write_config(lora, &text);
    size = text.length + 1;
    config = (char *)ignis__alloc(size);
    if (!config)
        return ignis__fail_host_memory(call, size) == IGNIS_OK;
    ignis__text_begin(&text, config, size);
    ignis__lora_write_config(lora, &text);
    ok = ignis__model_write(call, path, config, -1, (int64_t)text.length);
    ignis__free(config);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_lora_save(ignis_lora handle, const char *folder)
{
    static const char call[] = "ignis_lora_save";
    ignis__lora *lora = ignis__lora_hold(call, handle);
    ignis__lora_list list = IGNIS__ZERO;
    char *config = NULL, *path = NULL;
    bool ok = false;
    if (!lora)
        return ignis__failed();
    if (!folder)
        ignis__fail_null(call, "folder");
    else if (!ignis__capture_refuses(call))
        ok = (config = ignis__model_path(call, folder, "adapter_config.json")) != NULL &&
             (path = ignis__model_path(call, folder, "adapter_model.safetensors")) != NULL && ignis__lora_list_make(call, lora, &list);
    if (ok) {
        (void)ignis__folder_make_all(folder); /* what is written to it tells */
        ok = ignis__save(call, path, list.texts, list.tensors, 2 * lora->count, "{\"format\":\"pt\"}") == IGNIS_OK &&
             ignis__lora_save_config(call, lora, config);
    }
    ignis__lora_list_free(&list);
    ignis__free(config);
    ignis__free(path);
    ignis__lora_drop(call, lora);
    return ok ? IGNIS_OK : ignis__failed();
}

/* --- using them ------------------------------------------------------------------------------------------------------------------- */

IGNIS_API ignis_status ignis_model_set_lora(ignis_model handle, ignis_lora lora_handle)
{
    static const char call[] = "ignis_model_set_lora";
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__lora *lora = model && lora_handle.id ? ignis__lora_hold(call, lora_handle) : NULL;
    const char *reason = NULL;
    bool ok = model && (lora || !lora_handle.id);
    if (ok && lora && lora->model != model)
        reason = "the adapters were made for another model";
    if (ok && !reason) {
        ignis__mutex_lock(&model->slot.lock);
        if (lora && (lora->merging || lora->merged))
            reason = "the adapters are part of the model's weights, into which ignis_lora_merge has added them";
        else if (!lora || ignis__pool_live(lora)) /* else another thread frees them */
            model->lora = lora;
        ignis__mutex_unlock(&model->slot.lock);
    }
    if (reason)
        ok = ignis__fail(IGNIS_DIAG_LORA_STATE, call, "%s", reason) == IGNIS_OK;
    if (lora)
        ignis__lora_drop(call, lora);
    if (model)
        ignis__model_drop(call, model);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_lora_query(ignis_lora handle, ignis_lora_info *info)
{
    static const char call[] = "ignis_lora_query";
    ignis__lora *lora = ignis__lora_hold(call, handle);
    int i;
    if (!lora)
        return ignis__failed();
    if (info) {
        memset(info, 0, sizeof *info);
        info->rank = lora->rank, info->adapters = lora->count;
        info->alpha = lora->alpha, info->dropout = lora->dropout, info->scale = lora->scale;
        info->rslora = lora->rslora;
        info->dtype = lora->dtype;
        for (i = 0; i < lora->count; i++)
            info->parameters += lora->rank * (lora->adapters[i].rows + lora->adapters[i].columns);
        ignis__mutex_lock(&lora->model->slot.lock);
        info->set = lora->model->lora == lora;
        info->merged = lora->merged == lora->count;
        ignis__mutex_unlock(&lora->model->slot.lock);
    }
    ignis__lora_drop(call, lora);
    return info ? IGNIS_OK : ignis__fail_null(call, "info");
}

IGNIS__COLD IGNIS_API int ignis_lora_weights(ignis_lora handle, ignis_tensor *tensors, int capacity)
{
    static const char call[] = "ignis_lora_weights";
    ignis__lora *lora = ignis__lora_hold(call, handle);
    int count = -1, i;
    if (!lora)
        return -1;
    if (capacity < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    else if (!tensors && capacity > 0)
        ignis__fail_null(call, "tensors");
    else
        count = 2 * lora->count;
    for (i = 0; i < count && i < capacity; i++)
        tensors[i] = i % 2 ? lora->adapters[i / 2].b : lora->adapters[i / 2].a;
    ignis__lora_drop(call, lora);
    return count;
}

/*  Adds one adapter to its rows of a weight. */
static bool ignis__lora_merge_one(const char *call, const ignis__lora *lora, const ignis__adapter *adapter)
{
    ignis_tensor weight = *ignis__model_member(lora->model, adapter->row, adapter->layer), rows;
    ignis_dtype wide = lora->dtype == IGNIS_F64 || lora->model->dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32;
    ignis_scope scope = ignis_scope_begin();
    ignis_array_inputs inputs;
    bool ok;
    memset(&inputs, 0, sizeof inputs);
    rows = ignis__model_rows_of(call, weight, adapter->first, adapter->rows, lora->model->dtype);
    inputs.names = "w, d, scale";
    inputs.count = 3;
    inputs.array[0] = ignis_tensor_data(rows);
    inputs.array[1] = ignis_tensor_data(ignis_matmul(ignis_cast(adapter->b, wide), ignis_cast(adapter->a, wide)));
    inputs.array[2] = ignis_array_value(lora->scale);
    ok = inputs.array[0].id && inputs.array[1].id && ignis_array_map(inputs.array[0], "w + scale*d", inputs) == IGNIS_OK;
    (void)ignis_scope_end(scope);
    return ok;
}

/*  Adds all that are not added yet, and waits. */
static bool ignis__lora_merge(const char *call, ignis__lora *lora)
{
    ignis__work work;
    bool ok = true;
    (void)ignis_no_grad_begin();
    while (ok && lora->merged < lora->count) {
        ok = ignis__lora_merge_one(call, lora, &lora->adapters[lora->merged]);
        ignis__mutex_lock(&lora->model->slot.lock);
        lora->merged += ok;
        ignis__mutex_unlock(&lora->model->slot.lock);
    }
    (void)ignis_no_grad_end();
    if (!ignis__work_begin(call, lora->model->device, &work))
        return false;
    ok = !IGNIS__CUDA_FAILED(call, work.device, cuStreamSynchronize, (work.stream)) && ok;
    ignis__work_end(&work);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_lora_merge(ignis_lora handle)
{
    static const char call[] = "ignis_lora_merge";
    ignis__lora *lora = ignis__lora_hold(call, handle);
    const char *reason = NULL;
    bool ok;
    if (!lora)
        return ignis__failed();
    ok = !ignis__capture_refuses(call);
    if (ok && lora->model->quantised)
        ok = ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "weights of the model are quantised, and adapters are merged into numbers alone") ==
             IGNIS_OK;
    if (ok) {
        ignis__mutex_lock(&lora->model->slot.lock);
        reason = lora->merging                 ? "another thread merges the adapters now"
                 : lora->merged == lora->count ? "the adapters are merged already"
                                               : NULL;
        if (!reason) {
            lora->merging = true;
            if (lora->model->lora == lora)
                lora->model->lora = NULL;
        }
        ignis__mutex_unlock(&lora->model->slot.lock);
    }
    if (reason) {
        ok = ignis__fail(IGNIS_DIAG_LORA_STATE, call, "%s", reason) == IGNIS_OK;
    } else if (ok) {
        ok = ignis__lora_merge(call, lora);
        ignis__mutex_lock(&lora->model->slot.lock);
        lora->merging = false;
        ignis__mutex_unlock(&lora->model->slot.lock);
    }
    ignis__lora_drop(call, lora);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_lora_free(ignis_lora handle)
{
    static const char call[] = "ignis_lora_free";
    const uint64_t failures = ignis__failures();
    ignis__lora *lora;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    lora = ignis__lora_hold(call, handle);
    if (!lora)
        return ignis__failed();
    live = ignis__lora_end(lora);
    ignis__lora_drop(call, lora);
    return live ? ignis__ended(failures, true) : ignis__fail(IGNIS_DIAG_LORA_FREED, call, "another thread has freed the adapters");
}

/* ===============================================================================================================
   >>generate - sequences over a cache of keys and values, sampling, text out.
   =============================================================================================================== */

/*  What the kernels of kernels/generate.cu, gemv.cu and attention_paged.cu get. All of it is in device memory but for what launches carry. */
enum {
    IGNIS__PAGE = 16,           /* tokens of a page of a cache */
    IGNIS__SPLIT = 64,          /* keys of a block of attention, or a multiple of it so that there are no more than */
    IGNIS__SPLITS = 32,         /* so many blocks */
    IGNIS__WORDS = 960,         /* that a launch carries, */
    IGNIS__ROWS_SENT = 32,      /* and rows */
    IGNIS__BIASES = 512,        /* of a row */
    IGNIS__MASKS_KEPT = 64,     /* beside those of the rows of a step */
    IGNIS__MANY_HEAD_DIM = 128, /* of heads that attention_paged_many.cu takes, at most */
    IGNIS__DRAW_PARTS = 64,     /* of a row's logits, and the bytes of what one has */
    IGNIS__DRAW_PART = 24,
    IGNIS__DRAW_BLOCKS = 32,                                 /* of a row of which something is cut, at most */
    IGNIS__DRAW_BINS = 2048 * 12 + 32 + 16384 * 4 + 64 * 12, /* bytes of what is known of a row */
    IGNIS__DRAW_VOCAB = 1 << 19,
    IGNIS__DRAW_NO_TOKEN = -1, /* in the place of an id: all tokens are forbidden, */
    IGNIS__DRAW_NO_LOGITS = -2 /* or no logit is above minus infinity */
};

typedef struct ignis__generate_row {
    ignis__address ids, pages;
    int32_t position, top_k;
    double temperature, top_p, min_p, penalty;
    uint64_t seed;
    int32_t window, biases, masked;
    ignis__address draws;
} ignis__generate_row;

typedef struct ignis__generate_rows {
    ignis__generate_row at[IGNIS__ROWS_SENT];
} ignis__generate_rows;

typedef struct ignis__generate_words {
    int32_t at[IGNIS__WORDS];
} ignis__generate_words;

typedef struct ignis__generate_bias {
    int32_t id;
    float bias;
} ignis__generate_bias;

typedef struct ignis__generate_draw {
    int32_t id, kept;
    float log_prob;
} ignis__generate_draw;

typedef struct ignis__generate_cache {
    ignis__address qkv, k, v, k_too, v_too, q_weight, k_weight, rows;
    double eps;
    int heads, kv_heads, head_dim, turns;
} ignis__generate_cache;

typedef struct ignis__paged {
    ignis__address q, out, k, v, rows, scratch, ended;
    int64_t q_row;
    double scale;
    int heads, kv_heads, head_dim, splits, settled, count;
} ignis__paged;

typedef struct ignis__draw {
    ignis__address logits, scores, rows, biases, parts, masks, bins;
    int64_t stride;
    int vocab, bias_room, mask_room;
} ignis__draw;

/*  What a step draws: no tokens, one of all for each row, or, for some rows, one of those that top k, top p and min p leave. */
typedef enum ignis__draws { IGNIS__DRAWS_NONE, IGNIS__DRAWS_ALL, IGNIS__DRAWS_CUT } ignis__draws;

typedef enum ignis__gemv_kind {
    IGNIS__GEMV_OUT,
    IGNIS__GEMV_GELU,
    IGNIS__GEMV_ADD,
    IGNIS__GEMV_LOGITS,
    IGNIS__GEMV_CACHE
} ignis__gemv_kind;

typedef struct ignis__gemv {
    ignis__address x, weights, bias, out, sum, logits;
    int64_t n, k, result_row;
    int rows, kind, packed;
} ignis__gemv;

typedef struct ignis__gemv_mma {
    ignis__address x, weights, bias, out, sum, logits, norm_of, norm_weight, norm_bias, places, keys, values, frequencies;
    double eps;
    int64_t n, k, result_row;
    int rows, kind, gated, rms, heads, kv_heads, head_dim, ring, found_at;
} ignis__gemv_mma;

/*  The same for a part of quantised weights, from its first row on: scales in no record; and many rows of x as whole numbers. */
typedef struct ignis__gemv_blocks {
    ignis__gemv_mma product;
    ignis__address scales_of, x, scales;
    int first;
} ignis__gemv_blocks;

/*  What generate_step.cu takes: its products, those of a layer and that of the logits; where each layer has what; and all else. */
typedef struct ignis__step_shape {
    int n, k, kind, gated, head_dim, tiles;
} ignis__step_shape;

/*  Of dense weights, or of quantised ones: parts of one type each. */
typedef union ignis__step_weights {
    ignis__tensor_map map;
    struct {
        ignis__address records;
        int type, first;
    } parts[3];
} ignis__step_weights;

typedef struct ignis__step_layer {
    ignis__step_weights weights[4];
    ignis__address bias[4], norm[2], norm_bias[2], head_norm[2], nothing[6]; /* maps of the next layer begin at 64 bytes */
} ignis__step_layer;

typedef struct ignis__step {
    ignis__address layers, row, frequencies, embedding, positions;
    ignis__quantised table;
    ignis__address cache;
    int64_t slab;
    ignis__address logits, state, sums[2], qkv, attended, inner, found;
    double eps, scale;
    ignis__step_shape shapes[5];
    int count, rms, heads, kv_heads, head_dim, splits, ring, found_at, row_at;
} ignis__step;

/*  A norm ahead of a product. other: what is added to the sum first, of which many rows are; or null. */
typedef struct ignis__step_norms {
    ignis__array *sum, *other, *weight, *bias; /* bias: or null */
    double eps;
    bool rms;
} ignis__step_norms;

/*  An operation without inputs, for launches on the thread's current stream. False, and reported: the device cannot be entered. */
static bool ignis__next_begin(ignis__op *op, const char *call, ignis__device *device)
{
    memset(op, 0, offsetof(ignis__op, standing));
    op->work.call = call;
    op->steady = true;
    return op->ok = ignis__work_begin(call, device, &op->work);
}

/*  Writes numbers to an i32 array, from an element on. */
static void ignis__step_words(ignis__op *op, ignis_dtype dtype, ignis__array *to, int64_t first, const int32_t *from, int64_t count)
{
    ignis__address at = ignis__op_write(op, to) + (ignis__address)(4 * first);
    ignis__generate_words words;
    int some;
    void *params[] = {&at, &words, &some};
    for (; op->ok && count > 0; count -= some, from += some, at += 4 * (ignis__address)some) {
        some = (int)ignis__clamp(count, 0, IGNIS__WORDS);
        memcpy(words.at, from, 4 * (size_t)some);
        ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_WORDS, dtype, 1, 256, params);
    }
}

/*  Writes the rows of a step. */
static void ignis__step_rows(ignis__op *op, ignis_dtype dtype, ignis__array *to, const ignis__generate_row *from, int count)
{
    ignis__address at = ignis__op_write(op, to);
    ignis__generate_rows rows;
    int some;
    void *params[] = {&at, &rows, &some};
    for (; op->ok && count > 0; count -= some, from += some, at += sizeof *from * (ignis__address)some) {
        some = (int)ignis__clamp(count, 0, IGNIS__ROWS_SENT);
        memcpy(rows.at, from, sizeof *from * (size_t)some);
        ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_ROWS, dtype, 1, 32, params);
    }
}

/*  Writes rows of one sequence, from a position on. */
static void ignis__step_chunk(ignis__op *op, ignis_dtype dtype, ignis__array *to, ignis__generate_row *first, int count)
{
    ignis__address at = ignis__op_write(op, to);
    void *params[] = {&at, first, &count};
    ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_CHUNK, dtype, 1, 256, params);
}

static int64_t ignis__weight_rows(const ignis__array *weights)
{
    return weights->blocks.count ? ignis__blocks_rows(&weights->blocks) : weights->shape.dim[0];
}

static int64_t ignis__weight_columns(const ignis__array *weights)
{
    return weights->blocks.count ? weights->blocks.columns : weights->shape.dim[1];
}

static void ignis__step_embed(ignis__op *op, int count, ignis_dtype dtype, ignis__array *sum, ignis__array *embedding,
                              ignis__array *positions, ignis__array *rows)
{
    ignis__address to = ignis__op_write(op, sum), from = ignis__op_read(op, embedding),
                   learned = positions ? ignis__op_read(op, positions) : 0, places = ignis__op_read(op, rows);
    int hidden = (int)ignis__weight_columns(embedding);
    ignis__quantised q;
    void *params[] = {&to, &from, &learned, &places, &hidden}, *of_blocks[] = {&to, &q, &learned, &places};
    if (!embedding->blocks.count) {
        ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_EMBED, dtype, count, 256, params);
        return;
    }
    q = ignis__quantised_part(&embedding->blocks, 0, from);
    ignis__op_launch_row(op, IGNIS__BUILTIN_BLOCKS_EMBED, dtype, count, 256, of_blocks);
}

/*  Whether weights are multiplied by tensor cores: this follows from them alone, so that rows have the same bits in any number. */
static bool ignis__step_takes_mma(ignis__op *op, ignis_dtype dtype, ignis__array *weights)
{
    return (dtype == IGNIS_F16 || dtype == IGNIS_BF16) && op->work.device->info.compute_major >= 8 &&
           ignis__weight_columns(weights) % 8 == 0 && ignis__weight_rows(weights) < INT32_MAX - 16 && ignis__op_read(op, weights) % 16 == 0;
}

/*  out: null, where only the sum is wanted. */
static void ignis__step_norm(ignis__op *op, int count, ignis__array *out, const ignis__step_norms *norm)
{
    ignis__address to = out ? ignis__op_write(op, out) : 0, from = ignis__op_write(op, norm->sum), by = ignis__op_read(op, norm->weight),
                   add = norm->bias ? ignis__op_read(op, norm->bias) : 0, other = norm->other ? ignis__op_write(op, norm->other) : 0;
    int hidden = (int)norm->weight->numel, rms = norm->rms;
    int packed = hidden % ignis__pack_elements(norm->sum->dtype) == 0 && (to | from | by | add | other) % 16 == 0;
    double eps = norm->eps;
    void *params[] = {&to, &from, &other, &by, &add, &hidden, &eps, &rms, &packed};
    ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_NORM, norm->weight->dtype, count, 256, params);
}

static void ignis__step_mma_norm(ignis__op *op, ignis__gemv_mma *p, const ignis__step_norms *norm)
{
    p->norm_of = ignis__op_read(op, norm->sum);
    p->norm_weight = ignis__op_read(op, norm->weight);
    p->norm_bias = norm->bias ? ignis__op_read(op, norm->bias) : 0;
    p->eps = norm->eps;
    p->rms = norm->rms;
}

/*  Variants of gemv_cluster.cuh: rows of x at most, blocks of a cluster, and blocks that a multiprocessor has room for. A product has a cluster for
    each 128 rows of weights, and takes the first variant for so many rows of x with which it has up to `most` blocks for two multiprocessors: those
    that measured best. Clusters of one, the last ones, go on from group to group. found: times 512 bytes for each row of x, of shared memory for what
    is found. */
typedef struct ignis__gemv_cluster {
    int columns, cluster, resident, most, found;
} ignis__gemv_cluster;

enum { IGNIS__GEMV_CLUSTERS = 9 }; /* of numbers; of quantised weights fewer */
static const ignis__gemv_cluster ignis__gemv_clusters[2][IGNIS__GEMV_CLUSTERS] = {
    {{16, 8, 2, 3, 1},
     {16, 4, 2, 4, 1},
     {16, 1, 2, 0, 0},
     {32, 8, 2, 3, 1},
     {32, 4, 2, 4, 1},
     {32, 1, 2, 0, 1},
     {64, 8, 2, 4, 1},
     {64, 2, 1, 2, 2},
     {64, 1, 1, 0, 2}},
    {{16, 2, 1, 2, 3}, {16, 1, 1, 0, 3}, {32, 2, 1, 2, 3}, {32, 1, 1, 0, 3}}};

/*  type: of blocks, or 0. */
static void ignis__gemv_cluster_define(char *define, size_t size, const ignis__gemv_cluster *variant, int type)
{
    snprintf(define, size, type ? "-DIGNIS_COLUMNS=%d -DIGNIS_CLUSTER=%d -DIGNIS_BLOCKS=%d" : "-DIGNIS_COLUMNS=%d -DIGNIS_CLUSTER=%d",
             variant->columns, variant->cluster, type);
}

/*  Records what other devices, or other numbers of rows, take for weights. */
IGNIS__COLD static void ignis__step_request(const ignis__op *op, ignis_dtype dtype, bool gated)
{
    char define[64];
    int groups, i;
    if (!op->ok || !ignis__requests.path[0] || (dtype != IGNIS_F16 && dtype != IGNIS_BF16))
        return;
    ignis__request_builtin(gated ? IGNIS__BUILTIN_GEMV_GATED_1 : IGNIS__BUILTIN_GEMV_1, dtype);
    ignis__request_builtin(IGNIS__BUILTIN_GEMV_MMA_1, dtype);
    for (groups = 2; groups <= 8; groups *= 2) {
        snprintf(define, sizeof define, "-DIGNIS_GROUPS=%d", groups);
        ignis__request_own(IGNIS__BUILTIN_GEMV_MMA_16, dtype, define, 80, IGNIS__EVERY_ARCH);
    }
    for (i = 0; i < IGNIS__GEMV_CLUSTERS; i++) {
        ignis__gemv_cluster_define(define, sizeof define, &ignis__gemv_clusters[0][i], 0);
        ignis__request_own(IGNIS__BUILTIN_GEMV_CLUSTER, dtype, define, 90, IGNIS__EVERY_ARCH);
    }
}

/*  How the weights of a product of one row come to shared memory on sm_90 and up, where a block takes `rest` bytes beside them: three pieces of each
    warp are on their way if a multiprocessor has room for two such blocks, else two. resident: blocks that it has room for. */
static void ignis__step_ring(ignis__op *op, const ignis__array *weights, size_t rest, ignis__gemv_mma *p, ignis__tensor_map *map,
                             int *resident)
{
    enum { PIECES = 8 * (4 * 1024 + 8), OTHER = 2048 }; /* bytes of a piece of each warp; those that a block takes otherwise */
    const size_t all = (size_t)op->work.device->info.shared_per_block + 1024; /* of a multiprocessor */
    const int64_t dims[] = {weights->shape.dim[1], weights->shape.dim[0]}, step = 2 * weights->shape.dim[1];
    const int box[] = {64, 8}; /* gemv_mma.cu has the same */
    p->ring = 2 * (3 * PIECES + rest + OTHER) <= all ? 3 : 2;
    p->found_at = PIECES * p->ring;
    *resident = 2 * ((size_t)p->found_at + rest + OTHER) <= all ? 2 : 1;
    op->ok = op->ok && ignis__tensor_map_make(&op->work, map, weights->dtype, false, p->weights, 2, dims, &step, box, NULL);
}

/*  What a product of 9 rows and more by gemv_cluster.cuh takes: rows of x, of so many 16-bit elements; and bytes of a stage, of weights and for each
    row. */
typedef struct ignis__gemv_cluster_source {
    ignis__builtin builtin;
    ignis__address x;
    int64_t x_columns, groups; /* groups: of 128 rows of weights */
    size_t weights, each;
    int type; /* of blocks, or 0 */
} ignis__gemv_cluster_source;

/*  The variant for it, and its map of x; null: this device has none. */
static const ignis__gemv_cluster *ignis__gemv_cluster_choose(ignis__op *op, ignis_dtype dtype, const ignis__gemv_cluster_source *source,
                                                             ignis__gemv_mma *p, ignis__tensor_map *of_x, char *define, size_t size)
{
    const ignis_device_info *info = &op->work.device->info;
    const ignis__gemv_cluster *variant = ignis__gemv_clusters[source->type ? 1 : 0];
    const int64_t dims[] = {source->x_columns, p->rows}, step = 2 * source->x_columns;
    size_t stage, room, found;
    int box[] = {64, 0};
    if (!op->work.device->clusters || !ignis__cuda.cuTensorMapEncodeTiled)
        return NULL;
    while (variant->columns < p->rows ||
           (variant->cluster > 1 && 2 * source->groups * variant->cluster > (int64_t)info->multiprocessors * variant->most))
        variant++;
    box[1] = variant->columns;
    stage = (source->weights + source->each * (size_t)variant->columns + 1023) / 1024 * 1024;
    found = 512 * (size_t)(variant->columns * variant->found);
    room = ((size_t)info->shared_per_block + 1024) / (size_t)variant->resident - 1024;
    p->ring = room > found ? (int)((room - found - 8) / (stage + 16)) : 0;
    p->found_at = (int)stage * p->ring;
    ignis__gemv_cluster_define(define, size, variant, source->type);
    if (p->ring < 2 || !ignis__variant_exists(op->work.device, source->builtin, dtype, define))
        return NULL;
    op->ok = op->ok && ignis__tensor_map_make(&op->work, of_x, dtype, false, source->x, 2, dims, &step, box, NULL);
    return variant;
}

static void ignis__gemv_cluster_launch(ignis__op *op, ignis_dtype dtype, const ignis__gemv_cluster_source *source, const ignis__gemv_mma *p,
                                       const ignis__gemv_cluster *variant, const char *define, void **params)
{
    const size_t shared = (size_t)p->found_at + 512 * (size_t)(variant->columns * variant->found) + 8 + 16 * (size_t)p->ring;
    const int64_t most = (int64_t)variant->resident * op->work.device->info.multiprocessors;
    ignis__op_launch(op, source->builtin, dtype, define,
                     variant->cluster > 1 ? source->groups * variant->cluster : ignis__clamp(source->groups, 1, most), 1, 1, 288, 1, shared,
                     params);
}

/*  False: not on this device. */
static bool ignis__step_mma_cluster(ignis__op *op, ignis__gemv_mma *p, const ignis__array *weights)
{
    const int half = p->kind == (int)IGNIS__GEMV_CACHE ? p->head_dim / 2 : 64; /* so many rows of the weights are next to each other */
    const int box[] = {64, (half & -half) < 64 ? half & -half : 64};           /* gemv_cluster.cu has the same */
    const int64_t dims[] = {weights->shape.dim[1], weights->shape.dim[0]}, step = 2 * dims[0];
    ignis__gemv_cluster_source source = IGNIS__ZERO;
    const ignis__gemv_cluster *variant;
    char define[64];
    ignis__tensor_map maps[2];
    void *params[] = {p, &maps[0], &maps[1]};
    source.builtin = IGNIS__BUILTIN_GEMV_CLUSTER;
    source.x = p->x;
    source.x_columns = dims[0];
    source.groups = ignis__ceil_div(p->n, p->gated ? 64 : 128);
    source.weights = 16 * 1024;
    source.each = 128;
    variant = ignis__gemv_cluster_choose(op, weights->dtype, &source, p, &maps[1], define, sizeof define);
    if (!variant)
        return false;
    op->ok = op->ok && ignis__tensor_map_make(&op->work, &maps[0], weights->dtype, false, p->weights, 2, dims, &step, box, NULL);
    ignis__gemv_cluster_launch(op, weights->dtype, &source, p, variant, define, params);
    return true;
}

/*  The same of a part of quantised weights. With few rows of weights, or more than 32 of x, gemv_blocks.cu is as fast or faster. */
static bool ignis__step_blocks_cluster(ignis__op *op, ignis_dtype dtype, ignis__gemv_blocks *p, int type, int64_t units)
{
    ignis__gemv_cluster_source source = IGNIS__ZERO;
    const ignis__gemv_cluster *variant;
    char define[64];
    ignis__tensor_map of_x;
    void *params[] = {p, &of_x};
    source.builtin = IGNIS__BUILTIN_GEMV_CLUSTER_BLOCKS;
    source.x = p->x;
    source.x_columns = units * 128;
    source.groups = ignis__ceil_div(p->product.n - p->first, p->product.gated ? 64 : 128);
    source.weights = 128 * (size_t)ignis__blocks_types[ignis__blocks_type(type)].bytes;
    source.each = 512 + (type == IGNIS__GGUF_Q4_K ? 64 : 32); /* eight scales, and sums if there are minima */
    source.type = type;
    if (p->product.rows > 32 || 4 * source.groups <= op->work.device->info.multiprocessors)
        return false;
    variant = ignis__gemv_cluster_choose(op, dtype, &source, &p->product, &of_x, define, sizeof define);
    if (!variant)
        return false;
    ignis__gemv_cluster_launch(op, dtype, &source, &p->product, variant, define, params);
    return true;
}

/*  Rows of x by all rows of the weights: [rows, k] and [n, k], or gated [2 n, k]; out is [rows, n or more]. norm: x is made by it first; null: x is
    there. cache: of the kind IGNIS__GEMV_CACHE, its places, keys, values, frequencies and numbers of heads. */
static void ignis__step_mma(ignis__op *op, int count, ignis__gemv_kind kind, bool gated, ignis__array *out, ignis__array *x,
                            ignis__array *weights, ignis__array *bias, const ignis__step_norms *norm, const ignis__gemv_mma *cache)
{
    enum { FOUND = 2 * 8 * 20 * 4, STAGES = 4 * 8 * 192 }; /* bytes that gemv_mma.cu takes for a column, and of many for 8 of them */
    const ignis_device_info *info = &op->work.device->info;
    int number = count <= 8 ? 1 : count <= 16 ? 2 : count <= 32 ? 3 : 4, groups = 1, resident = count <= 8 ? 2 : 1;
    bool rings = info->compute_major >= 9; /* the kernel of one row has them */
    size_t shared, row = 2 * (size_t)(ignis__ceil_div(weights->shape.dim[1], 32) * 32);
    char define[32] = "";
    int64_t tiles;
    ignis__gemv_mma p;
    ignis__tensor_map map;
    void *params[] = {&p, &map};
    memset(&p, 0, sizeof p);
    memset(&map, 0, sizeof map);
    if (cache)
        p = *cache;
    p.weights = ignis__op_read(op, weights);
    p.bias = bias ? ignis__op_read(op, bias) : 0;
    p.k = weights->shape.dim[1];
    p.n = weights->shape.dim[0] / (gated ? 2 : 1);
    p.rows = count;
    p.kind = (int)kind;
    p.gated = gated;
    tiles = ignis__ceil_div(p.n, gated ? 8 : 16);
    shared = FOUND + row;
    if (count == 1 && rings && ignis__cuda.cuTensorMapEncodeTiled)
        ignis__step_ring(op, weights, shared, &p, &map, &resident);
    shared += (size_t)p.found_at;
    if (count == 1 && (p.ring || !rings) && shared <= (size_t)info->shared_per_block)
        number = 0;
    else if (number == 1)
        shared = (size_t)FOUND * 8, p.found_at = 0, resident = 2;
    if (number > 1) { /* as many tiles share x as leave each multiprocessor some */
        for (groups = 8; groups > 2 && ignis__ceil_div(tiles, groups) < info->multiprocessors * 3 / 4;)
            groups /= 2;
        shared = (size_t)STAGES * (size_t)(8 / groups) * ((size_t)1 << (number - 1));
        snprintf(define, sizeof define, "-DIGNIS_GROUPS=%d", groups);
    }
    if (norm) {
        ignis__step_mma_norm(op, &p, norm);
        if (number > 0) {
            p.out = ignis__op_write(op, x);
            ignis__op_launch_row(op, IGNIS__BUILTIN_GEMV_MMA_NORM, weights->dtype, count, 256, params);
            p.norm_of = 0;
        }
    }
    p.x = p.norm_of ? 0 : ignis__op_read(op, x);
    p.out = p.sum = p.logits = ignis__op_write(op, out);
    p.result_row = out->shape.dim[1];
    ignis__cost(-1, 2.0 * (double)count * (double)weights->numel, (int)weights->dtype);
    if (number > 1 && ignis__step_mma_cluster(op, &p, weights))
        return;
    ignis__op_launch(op, (ignis__builtin)((int)IGNIS__BUILTIN_GEMV_MMA_1 + number), weights->dtype, number > 1 ? define : NULL,
                     ignis__clamp(ignis__ceil_div(tiles, groups), 1, info->multiprocessors * resident), 1, 1, 256, 1, shared, params);
}

/*  The same with quantised weights; one launch for each of their types. numbers: room of the device's. */
static void ignis__step_blocks(ignis__op *op, int count, ignis__gemv_kind kind, bool gated, ignis__array *out, ignis__array *x,
                               ignis__array *weights, ignis__array *bias, ignis__array *numbers, const ignis__step_norms *norm,
                               const ignis__gemv_mma *cache)
{
    enum { FOUND = 2 * 8 * 20 * 4, TILE = (8 * 16 + 8) * 4, TILES = 32 }; /* gemv_blocks.cu: bytes of a column, and of a tile of one row */
    enum { RING = 8 * 2 * (16 * 272 + 8), OTHER = 2048 }; /* bytes of its largest ring; those that a block takes otherwise */
    const ignis_device_info *info = &op->work.device->info;
    const ignis__blocks *blocks = &weights->blocks;
    ignis__address at = ignis__op_read(op, weights);
    int number = count <= 8 ? 2 : count <= 16 ? 3 : count <= 32 ? 4 : 5, part, record;
    int64_t units = ignis__ceil_div(blocks->columns, 256) * 2, tiles, grid; /* a record is two */
    size_t row = norm ? 2 * (size_t)blocks->columns : 0, alone = (size_t)(units * (256 + 2 * 16)) + row, shared;
    bool rings = info->compute_major >= 9, in_step = !gated || ignis__blocks_rows(blocks) % 16 == 0;
    bool single = count == 1 && (!rings || in_step) && (rings ? RING : 0) + alone + TILES * TILE <= (size_t)info->shared_per_block;
    char define[32];
    ignis__quantised q;
    ignis__gemv_blocks p;
    ignis__gemv_mma *product = &p.product;
    void *params[] = {&p};
    memset(&p, 0, sizeof p);
    if (cache)
        *product = *cache;
    product->bias = bias ? ignis__op_read(op, bias) : 0;
    product->k = blocks->columns;
    product->rows = count;
    product->kind = (int)kind;
    product->gated = gated;
    if (norm)
        ignis__step_mma_norm(op, product, norm);
    else
        product->x = ignis__op_read(op, x);
    if (!single) {
        p.x = ignis__op_write(op, numbers);
        p.scales = p.x + (ignis__address)(ignis__ceil_div(count, 8) * 8 * units * 256);
    }
    product->out = product->sum = product->logits = ignis__op_write(op, out);
    product->result_row = out->shape.dim[1];
    ignis__cost(-1, 2.0 * (double)count * (double)(ignis__blocks_rows(blocks) * product->k), (int)x->dtype);
    for (part = 0; op->ok && part < blocks->count; part++, p.first = (int)product->n) { /* gated: there is one part */
        q = ignis__quantised_part(blocks, part, at);
        product->weights = q.records;
        p.scales_of = q.scales;
        product->n = p.first + blocks->part[part].rows / (gated ? 2 : 1);
        tiles = ignis__ceil_div(product->n - p.first, gated ? 8 : 16);
        snprintf(define, sizeof define, "-DIGNIS_BLOCKS=%d", q.type);
        grid = ignis__clamp(tiles, 1, info->multiprocessors * (count <= 8 ? 2 : 1));
        if (single) {
            record = ignis__blocks_types[ignis__blocks_type(q.type)].bytes;
            product->found_at = rings ? 8 * (record > 144 ? 2 : 3) * (16 * record + 8) : 0;
            grid = grid * TILES < tiles ? ignis__ceil_div(tiles, TILES) : grid;
            shared = (size_t)product->found_at + alone + TILE * (size_t)ignis__ceil_div(tiles, grid);
            if (2 * (shared + OTHER) > (size_t)info->shared_per_block + 1024 && grid > info->multiprocessors) { /* one fits on each */
                grid = ignis__clamp(ignis__ceil_div(tiles, TILES), info->multiprocessors, grid);
                shared = (size_t)product->found_at + alone + TILE * (size_t)ignis__ceil_div(tiles, grid);
            }
        } else { /* numbers of x have the factor of the type */
            ignis__op_launch(op, IGNIS__BUILTIN_GEMV_BLOCKS_ROWS, x->dtype, define, count, 1, 1, 256, 1, row, params);
            if (count > 8 && in_step && ignis__step_blocks_cluster(op, x->dtype, &p, q.type, units))
                continue;
            shared = (size_t)FOUND * 2 * ((size_t)1 << number);
        }
        ignis__op_launch(op, (ignis__builtin)((int)IGNIS__BUILTIN_GEMV_BLOCKS_ROWS + (single ? 1 : number)), x->dtype, define, grid, 1, 1,
                         256, 1, shared, params);
    }
}

/*  The same by cores of any device; or on tensor cores, where they take the weights. Where not, quantised ones become numbers in `numbers`, as
    many rows at a time as it has room for. */
static void ignis__step_product(ignis__op *op, int count, ignis__gemv_kind kind, bool gated, ignis__array *out, ignis__array *x,
                                ignis__array *weights, ignis__array *bias, ignis__array *numbers, const ignis__step_norms *norm)
{
    int size = count < 3 ? count - 1 : count < 5 ? 2 : 3, columns = 1 << size;
    ignis__builtin builtin = (ignis__builtin)((int)(gated ? IGNIS__BUILTIN_GEMV_GATED_1 : IGNIS__BUILTIN_GEMV_1) + size);
    ignis__address to = ignis__op_write(op, out);
    int64_t all = ignis__weight_rows(weights), first, some = all;
    ignis__gemv p;
    void *params[] = {&p};
    ignis__step_request(op, x->dtype, gated);
    if (ignis__step_takes_mma(op, x->dtype, weights)) {
        if (weights->blocks.count)
            ignis__step_blocks(op, count, kind, gated, out, x, weights, bias, numbers, norm, NULL);
        else
            ignis__step_mma(op, count, kind, gated, out, x, weights, bias, norm, NULL);
        return;
    }
    if (norm)
        ignis__step_norm(op, count, x, norm);
    memset(&p, 0, sizeof p);
    p.x = ignis__op_read(op, x);
    p.weights = weights->blocks.count ? ignis__op_write(op, numbers) : ignis__op_read(op, weights);
    p.bias = bias ? ignis__op_read(op, bias) : 0;
    p.out = p.sum = p.logits = to;
    p.k = ignis__weight_columns(weights);
    p.result_row = out->shape.dim[1];
    p.rows = count;
    p.kind = (int)kind;
    p.packed = (p.x | p.weights) % 16 == 0 && p.k % ignis__pack_elements(x->dtype) == 0;
    ignis__cost(-1, 2.0 * (double)count * (double)(all * p.k), (int)x->dtype);
    if (weights->blocks.count && !gated)
        some = numbers->numel / p.k;
    for (first = 0; op->ok && first < all; first += some) {
        some = all - first < some ? all - first : some;
        if (weights->blocks.count)
            ignis__op_numbers(op, numbers, 0, weights, &weights->blocks, first, some);
        p.n = some / (gated ? 2 : 1);
        ignis__op_launch(op, builtin, x->dtype, NULL, ignis__ceil_div(p.n, 4), ignis__ceil_div(count, columns), 1, 128, 1, 0, params);
        p.bias += p.bias ? (ignis__address)(some * ignis__dtypes[x->dtype].size) : 0;
        p.out = p.sum = p.logits = p.out + (ignis__address)(some * ignis__dtypes[out->dtype].size);
    }
}

/*  Whether IGNIS__ACTIVATION_PAIRED can be had for a product, whatever rows there are. */
static bool ignis__gemm_pairs(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a, ignis__array *b,
                              const ignis__epilogue *epilogue)
{
    ignis_dtype dtype = (ignis_dtype)product->dtype;
    ignis__epilogue paired = *epilogue;
    char define[IGNIS__DEFINES];
    ignis__gemm p;
    paired.activation = IGNIS__ACTIVATION_PAIRED;
    p = ignis__gemm_params(op, product, out, &paired);
    if (!op->ok || (dtype != IGNIS_F16 && dtype != IGNIS_BF16) || p.n < 256 || !ignis__gemm_direct(&p, 128) ||
        !ignis__gemm_packed(dtype, ignis__op_read(op, a) | ignis__op_read(op, b), p.k, 0))
        return false;
    ignis__gemm_hopper_define(define, sizeof define, &p, 128, true);
    if (ignis__requests.path[0])
        ignis__request_own(IGNIS__BUILTIN_GEMM_HOPPER, dtype, define, 90, 90);
    return ignis__gemm_takes_wgmma(op, &p) && ignis__variant_exists(op->work.device, IGNIS__BUILTIN_GEMM_HOPPER, dtype, define);
}

/*  The same of many rows, by the kernels of ignis_matmul, without a norm; gated: perhaps through `room`, [rows, 2 n]. */
static void ignis__step_product_many(ignis__op *op, int count, ignis__gemv_kind kind, bool gated, ignis__array *out, ignis__array *x,
                                     ignis__array *weights, ignis__array *bias, ignis__array *room, ignis__array *numbers)
{
    ignis__address result, from;
    ignis__epilogue epilogue;
    ignis__product product;
    int half = (int)(ignis__weight_rows(weights) / 2);
    void *gate[] = {&result, &from, &half};
    memset(&product, 0, sizeof product);
    memset(&epilogue, 0, sizeof epilogue);
    product.m = count;
    product.n = ignis__weight_rows(weights);
    product.k = ignis__weight_columns(weights);
    product.batch = 1;
    product.batch_a = product.m * product.k;
    product.batch_b = product.n * product.k;
    product.transpose_b = 1;
    product.dtype = (int)x->dtype;
    if (weights->blocks.count) {
        ignis__op_numbers(op, numbers, 0, weights, &weights->blocks, 0, product.n);
        weights = numbers;
    }
    epilogue.bias = bias;
    epilogue.activation = kind == IGNIS__GEMV_GELU ? (int)IGNIS_ACTIVATION_GELU : 0;
    if (gated && ignis__gemm_pairs(op, &product, out, x, weights, &epilogue)) {
        epilogue.activation = IGNIS__ACTIVATION_PAIRED;
        gated = false;
    }
    if (op->ok)
        (void)ignis__gemm_run(op, &product, gated ? room : out, x, weights, &epilogue);
    ignis__op_unmake(op, 0);
    if (!gated)
        return;
    result = ignis__op_write(op, out);
    from = ignis__op_write(op, room);
    ignis__op_launch(op, IGNIS__BUILTIN_GENERATE_GATE, x->dtype, NULL, ignis__clamp(ignis__ceil_div(half, 2048), 1, 64), product.m, 1, 256,
                     1, 0, gate);
}

/*  Turns q where it is, and writes k and v to the cache. frequencies: [256]; null: nothing turns. */
static void ignis__step_cache(ignis__op *op, int count, ignis_dtype dtype, ignis__generate_cache *p, const double *frequencies)
{
    static const double none[IGNIS__ROPE_HALF] = {0};
    const double *table = frequencies ? frequencies : none;
    float floats[IGNIS__ROPE_HALF];
    /* a block has 8 heads at least, one for each warp; fewer blocks where rows alone fill the device twice */
    int64_t heads = p->heads + 2 * (int64_t)p->kv_heads, blocks = ignis__ceil_div(2 * op->work.device->info.multiprocessors, count);
    int64_t share = ignis__ceil_div(heads, ignis__clamp(blocks, 1, ignis__ceil_div(heads, 8)));
    void *params[2];
    params[0] = p;
    params[1] = dtype == IGNIS_F64 ? (void *)(uintptr_t)table : ignis__rope_floats(floats, table);
    p->turns = frequencies != NULL;
    ignis__op_launch(op, IGNIS__BUILTIN_GENERATE_CACHE, dtype, NULL, count, ignis__ceil_div(heads, share), 1, 256, 1,
                     p->q_weight || p->k_weight ? (size_t)share * (dtype == IGNIS_F64 ? 8 : 4) : 0, params);
}

/*  Bytes of wide numbers that the attention of so many rows takes. */
static int64_t ignis__paged_numbers(const ignis__paged *p, int rows) { return (int64_t)rows * p->heads * p->splits * (2 + p->head_dim); }

/*  Records what other devices, or other numbers of rows, take for attention. */
IGNIS__COLD static void ignis__step_attention_request(const ignis__op *op, ignis_dtype dtype, int group, int head_dim, const char *plain,
                                                      const char *with_clusters)
{
    if (!op->ok || !ignis__requests.path[0] || (dtype != IGNIS_F16 && dtype != IGNIS_BF16))
        return;
    ignis__request_own(group < 2 ? IGNIS__BUILTIN_PAGED_1 : IGNIS__BUILTIN_PAGED_2, dtype, plain, 0, 79);
    ignis__request_own(IGNIS__BUILTIN_PAGED_MMA, dtype, plain, 80, IGNIS__EVERY_ARCH);
    ignis__request_own(IGNIS__BUILTIN_PAGED_MMA, dtype, with_clusters, 90, IGNIS__EVERY_ARCH);
    if (head_dim <= IGNIS__MANY_HEAD_DIM)
        ignis__request_own(IGNIS__BUILTIN_PAGED_MANY, dtype, plain, 80, IGNIS__EVERY_ARCH);
}

/*  The size of heads of the program that does attention over pages for heads of this one. */
static int ignis__paged_head_dim(int head_dim) { return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256; }

/*  Attention of rows, of which the scratch memory has room for so many at a time. */
static void ignis__step_attention(ignis__op *op, int count, int at_a_time, ignis_dtype dtype, const ignis__paged *paged)
{
    /* attention_paged_mma.cu has the same: heads and teams of a block, blocks of a cluster, and of a multiprocessor; and attention_paged_many.cu:
       elements of a row for all warps that multiply, and the other threads */
    enum { HEADS = 8, CLUSTER = 8, TEAMS = 2, ELEMENTS = 512, OTHERS = 64 };
    const ignis__device *device = op->work.device;
    ignis__paged p = *paged;
    int group = p.heads / p.kv_heads, size = (int)ignis__dtypes[dtype].size, some;
    const int head_dim = ignis__paged_head_dim(p.head_dim);
    bool mma = size == 2 && device->info.compute_major >= 8, clusters, clustered, many;
    int heads = mma ? (int)HEADS : group < 2 ? 1 : 2;
    int64_t groups = ignis__ceil_div(group, heads) * p.kv_heads, blocks;
    ignis__builtin builtin = mma ? IGNIS__BUILTIN_PAGED_MMA : (ignis__builtin)((int)IGNIS__BUILTIN_PAGED_1 + heads - 1);
    size_t arrivals, tiles = 2 * ELEMENTS * (2 * IGNIS__SPLIT + HEADS);
    char plain[32], with_clusters[64];
    void *params[] = {&p};
    arrivals = 8 * IGNIS__SPLITS * (size_t)(HEADS + HEADS * head_dim / CLUSTER / 2);
    snprintf(plain, sizeof plain, "-DIGNIS_HEAD_DIM=%d", head_dim);
    snprintf(with_clusters, sizeof with_clusters, "%s -DIGNIS_CLUSTERS=1", plain);
    ignis__step_attention_request(op, dtype, group, head_dim, plain, with_clusters);
    clusters = mma && device->clusters && ignis__variant_exists(device, builtin, dtype, with_clusters);
    many = mma && head_dim <= IGNIS__MANY_HEAD_DIM && tiles + 4096 <= (size_t)device->info.shared_per_block &&
           ignis__variant_exists(device, IGNIS__BUILTIN_PAGED_MANY, dtype, plain);
    for (; op->ok && count > 0; count -= some) {
        some = count < at_a_time ? count : at_a_time;
        clustered = clusters && 2 * groups * some * CLUSTER <= device->info.multiprocessors;                      /* more gain nothing */
        blocks = (head_dim == 64 ? 5 : head_dim == 128 ? 3 : 2) * device->info.multiprocessors / (groups * some); /* that run at once */
        if (!mma || blocks < 3)
            blocks = ignis__ceil_div(8 * device->info.multiprocessors, groups * some);
        blocks = clustered ? (int64_t)CLUSTER : ignis__clamp(blocks, 1, p.splits);
        p.count = some;
        if (many && 2 * groups * some >= 5 * device->info.multiprocessors)
            ignis__op_launch(op, IGNIS__BUILTIN_PAGED_MANY, dtype, plain, device->info.multiprocessors, 1, 1,
                             (unsigned)(32 * ELEMENTS / head_dim + OTHERS), 1, tiles, params);
        else
            ignis__op_launch(op, builtin, dtype, clustered ? with_clusters : plain, blocks, groups, some, clustered ? TEAMS * 128 : 128, 1,
                             clustered ? arrivals : 0, params);
        p.q += (ignis__address)((int64_t)some * p.q_row * size);
        p.out += (ignis__address)((int64_t)some * p.heads * p.head_dim * size);
        p.rows += sizeof(ignis__generate_row) * (ignis__address)some;
    }
}

static void ignis__step_draw(ignis__op *op, int count, ignis__draws draws, ignis__draw *p)
{
    const ignis_dtype only = IGNIS_F16; /* one program is for all */
    int64_t blocks = ignis__clamp(2 * op->work.device->info.multiprocessors / count, 1, IGNIS__DRAW_BLOCKS);
    void *params[] = {p};
    ignis__op_launch(op, IGNIS__BUILTIN_GENERATE_DRAW, only, NULL, IGNIS__DRAW_PARTS, count, 1, 256, 1, 0, params);
    if (draws != IGNIS__DRAWS_CUT)
        return;
    ignis__op_launch(op, IGNIS__BUILTIN_GENERATE_DRAW_BINS, only, NULL, IGNIS__DRAW_PARTS, count, 1, 256, 1, 0, params);
    ignis__op_launch(op, IGNIS__BUILTIN_GENERATE_DRAW_CUT, only, NULL, blocks, count, 1, 512, 1, 0, params);
}

/*  Attention of the rows of a piece of a prompt, which ends behind `end` tokens, by the kernels of ignis_sdpa: over keys and values in `gathered`,
    [2, tokens, kv_heads * head_dim], where those of the piece are by now. */
static void ignis__step_attention_many(ignis__op *op, int count, int end, const ignis__paged *paged, ignis__array *gathered)
{
    const ignis_dtype dtype = gathered->dtype;
    int64_t width = (int64_t)paged->kv_heads * paged->head_dim, size = ignis__dtypes[dtype].size;
    ignis__address k_to = ignis__op_write(op, gathered), v_to = k_to + (ignis__address)(gathered->numel / 2 * size), k = paged->k,
                   v = paged->v, row = paged->rows;
    int kv_heads = paged->kv_heads, head_dim = paged->head_dim, before = end - count;
    void *params[] = {&k_to, &v_to, &k, &v, &row, &before, &kv_heads, &head_dim};
    ignis__attention p;
    if (before > 0)
        ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_GATHER, dtype, ignis__ceil_div(before * width / ignis__pack_elements(dtype), 256),
                             256, params);
    memset(&p, 0, sizeof p);
    p.q.data = paged->q;
    p.q.row = paged->q_row;
    p.k.data = k_to;
    p.v.data = v_to;
    p.k.row = p.v.row = width;
    p.out.data = paged->out;
    p.out.row = (int64_t)paged->heads * head_dim;
    p.q.head = p.k.head = p.v.head = p.out.head = head_dim;
    p.batches = 1;
    p.heads = paged->heads;
    p.kv_heads = kv_heads;
    p.head_dim = head_dim;
    p.sq = count;
    p.sk = p.window = end;
    p.causal = 1;
    p.scale = paged->scale;
    ignis__sdpa_run(op, dtype, &p);
}

/*  What all sequences of a model share: the cache, room for a step, its graphs. Its lock is held while a step runs and is waited for, as there is
    one room. */
enum { IGNIS__CHUNK = 512 }; /* rows of a prompt at a time */

typedef struct ignis__engine_layer {
    ignis__array *attn_norm, *attn_norm_bias, *qkv, *qkv_bias, *q_norm, *k_norm, *o, *o_bias, *mlp_norm, *mlp_norm_bias, *up, *up_bias,
        *down, *down_bias;
} ignis__engine_layer;

typedef struct ignis__sequence ignis__sequence;
/*  What a mask on the device has. */
typedef struct ignis__engine_mask {
    uint64_t grammar, used; /* the number of the grammar, 0: there is none; when it was used last */
    int32_t epoch, state;
} ignis__engine_mask;

typedef struct ignis__engine {
    ignis__mutex lock;
    const ignis__model *model;
    ignis__device *device;
    ignis__engine_layer *layer; /* arrays of the weights, held; null: the family has none */
    ignis__array *embedding, *positions, *norm, *norm_bias, *head;
    /* numbers: of a quantised weight; null: there is none; turning: the frequencies; ended: zeros, see attention_paged.cu; mine: logits from this
       rank's first one on; table, words: where layers have what, and what blocks tell each other, for generate_step.cu, null: it does not do steps;
       step_types: those of its weights as bits, 0: they are numbers; said: to other ranks; all arrays of these are claimed */
    ignis__array *cache, *rows, *sum, *normed, *qkv, *attended, *inner, *room, *scratch, *logits, *scores, *biases, *parts, *masks, *bins,
        *gathered, *numbers, *turning, *ended, *mine, *table, *words, *said;
    int context, step_rows, splits, pages, step_types;
    char step_define[96];
    int *uses, *free_pages; /* sequences that have a page; pages that none has */
    int free_count;
    double frequencies[IGNIS__ROPE_HALF];
    struct {
        ignis__sequence *sequence;           /* whose next token is drawn ahead, while the caller has the last one; null: none */
        ignis__spare_event *drawn;           /* behind it */
        const ignis_sampling_desc *sampling; /* of the call of ignis_generate that has it drawn, which settles it before it returns */
        void *stream;
        int length; /* of the sequence without the token */
    } ahead;
    ignis__generate_draw *draws; /* [step_rows][2]: of tokens behind even and odd positions */
    ignis__pinned *draws_piece;  /* which has them */
    struct {
        int runs;
        ignis__capture *capture;
        void *exec;                /* CUgraphExec; null: not yet */
    } steps[3][8];                 /* by ignis__draws, of 1, 2, 4 ... rows */
    ignis__vocabulary *vocabulary; /* for grammars; null: not yet */
    ignis__grammar *grammars;      /* that sequences have, and have had, the latest first */
    uint64_t grammars_made, masks_used;
    int mask_count; /* that `masks` has room for */
    ignis__engine_mask *mask;
} ignis__engine;

struct ignis__sequence {
    ignis__slot slot;
    ignis__model *model;   /* held */
    ignis__engine *engine; /* its lock guards the rest */
    int32_t *ids, *page;   /* room for the context, and one */
    bool *many;            /* of each token: it is computed as one of more than IGNIS__STEP_ROWS that were fed */
    int length, page_count;
    int cached;           /* tokens that the cache has: all but the last one, or all */
    int sent, pages_sent; /* that are in device memory, too */
    int said_length;      /* tokens that `said` is a number of: for other ranks to compare */
    uint32_t said;
    float log_prob, next_log_prob;   /* of the token drawn last; of one behind it that no one has seen, as the step goes on */
    ignis__grammar *grammar;         /* the engine's; null: none */
    int constrained, matched;        /* tokens ahead of its text; tokens that its state is behind */
    int32_t state, epoch;            /* of the grammar; epoch: 0: there is none yet */
    ignis__array *on_device, *table; /* the same; claimed */
    ignis__array *last;              /* what all layers have found of the last of many tokens; claimed, forks have the same; or null */
    int last_length;                 /* up to that one; 0: of none that is there */
};

static ignis__pool ignis__sequences = IGNIS__POOL(ignis__sequence, IGNIS__KIND_SEQUENCE, "sequence", IGNIS_DIAG_SEQUENCE_FREED);

static int64_t ignis__engine_page_elements(const ignis__engine *e)
{
    return (int64_t)IGNIS__PAGE * e->model->kv_heads * e->model->head_dim;
}

/*  Gives up what an engine has; no step of it runs. */
IGNIS__COLD static void ignis__engine_destroy(const char *call, void *engine)
{
    ignis__engine *e = (ignis__engine *)engine;
    ignis__array **array;
    ignis__grammar *grammar;
    ignis__binding binding;
    bool lost = ignis__devices_lost(), entered = ignis__device_enter_to_give(call, e->device, &binding);
    int i;
    if (entered)
        (void)ignis__device_finish(e->device);
    for (i = 0; (entered || lost) && i < 8 * IGNIS__COUNT(e->steps); i++)
        if (e->steps[i / 8][i % 8].capture)
            ignis__graph_destroy(call, e->steps[i / 8][i % 8].capture, lost ? NULL : e->steps[i / 8][i % 8].exec);
    if (e->draws_piece)
        (void)ignis__piece_give(call, e->device, e->draws_piece);
    if (entered)
        ignis__device_leave(&binding);
    while ((grammar = e->grammars) != NULL) {
        e->grammars = grammar->next;
        ignis__grammar_free(grammar);
    }
    if (e->vocabulary)
        ignis__vocabulary_free(e->vocabulary);
    for (array = &e->cache; array <= &e->said; array++)
        if (*array)
            ignis__array_unclaim(call, *array);
    for (array = &e->embedding; array <= &e->head; array++)
        if (*array)
            ignis__array_drop(call, *array);
    for (array = (ignis__array **)(void *)e->layer; e->layer && array < (ignis__array **)(void *)(e->layer + e->model->layers); array++)
        if (*array)
            ignis__array_drop(call, *array);
    ignis__free(e->layer);
    ignis__free(e->uses);
    ignis__free(e->mask);
    ignis__free(e->free_pages);
    ignis__free(e);
}

/*  A new array of the engine's. False: there is no memory. */
IGNIS__COLD static bool ignis__engine_room(const char *call, const ignis__engine *e, ignis__array **array, int64_t rows, int64_t columns,
                                           ignis_dtype dtype)
{
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape.ndim = 2;
    desc.shape.dim[0] = rows;
    desc.shape.dim[1] = columns;
    desc.dtype = dtype;
    desc.device = e->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(e->device - ignis__devices);
    desc.tag = "generation";
    *array = ignis__array_adopt(call, ignis__array_create(call, &desc));
    return *array != NULL;
}

/*  The array of a weight, held; null where there is none. */
IGNIS__COLD static ignis__array *ignis__engine_weight(const char *call, ignis_tensor tensor, bool *ok)
{
    ignis__array *array = NULL;
    if (*ok && tensor.id)
        *ok = (array = ignis__array_hold(call, ignis_tensor_data(tensor))) != NULL;
    return array;
}

IGNIS__COLD static bool ignis__engine_weights(const char *call, ignis__engine *e)
{
    const ignis__model *m = e->model;
    bool ok = true;
    int i;
    e->embedding = ignis__engine_weight(call, m->embedding, &ok);
    e->positions = ignis__engine_weight(call, m->positions, &ok);
    e->norm = ignis__engine_weight(call, m->norm, &ok);
    e->norm_bias = ignis__engine_weight(call, m->norm_bias, &ok);
    e->head = ignis__engine_weight(call, m->head.id ? m->head : m->embedding, &ok);
    if (ok && m->tied && m->parallel.size > 1) {
        int64_t share = ignis__model_head_rows(m), first = share * m->parallel.rank;
        ignis_array rows = ignis__array_slice(call, e->head, 0, first, ignis__clamp(m->vocab - first, 0, share));
        ignis__array_drop(call, e->head);
        e->head = rows.id ? ignis__array_hold(call, rows) : NULL;
        ok = e->head != NULL;
        ignis__array_discard(call, &rows);
    }
    for (i = 0; ok && i < m->layers; i++) {
        const ignis__layer *from = &m->layer[i];
        ignis__engine_layer *to = &e->layer[i];
        to->attn_norm = ignis__engine_weight(call, from->attn_norm, &ok);
        to->attn_norm_bias = ignis__engine_weight(call, from->attn_norm_bias, &ok);
        to->qkv = ignis__engine_weight(call, from->qkv, &ok);
        to->qkv_bias = ignis__engine_weight(call, from->qkv_bias, &ok);
        to->q_norm = ignis__engine_weight(call, from->q_norm, &ok);
        to->k_norm = ignis__engine_weight(call, from->k_norm, &ok);
        to->o = ignis__engine_weight(call, from->o, &ok);
        to->o_bias = ignis__engine_weight(call, from->o_bias, &ok);
        to->mlp_norm = ignis__engine_weight(call, from->mlp_norm, &ok);
        to->mlp_norm_bias = ignis__engine_weight(call, from->mlp_norm_bias, &ok);
        to->up = ignis__engine_weight(call, from->up, &ok);
        to->up_bias = ignis__engine_weight(call, from->up_bias, &ok);
        to->down = ignis__engine_weight(call, from->down, &ok);
        to->down_bias = ignis__engine_weight(call, from->down_bias, &ok);
    }
    return ok;
}

/*  What ranks need besides: where this one's logits begin, which are added to zeros of others, and what it says. */
IGNIS__COLD static bool ignis__engine_ranks(const char *call, ignis__engine *e)
{
    const ignis_model_parallel *ranks = &e->model->parallel;
    ignis_shape shape = e->logits->shape;
    if (ranks->size <= 1)
        return true;
    shape.dim[0] = e->step_rows;
    e->mine = ignis__array_adopt(call, ignis__array_view(call, e->logits, &shape, shape.dim[0] * shape.dim[1],
                                                         ranks->rank * ignis__model_head_rows(e->model) * (int64_t)sizeof(float)));
    return e->mine && ignis__engine_room(call, e, &e->said, 1, ranks->size, IGNIS_F32);
}

/*  Room for the numbers of any quantised weight of a layer, which prompts are multiplied with; none where there is none. */
IGNIS__COLD static bool ignis__engine_numbers(const char *call, ignis__engine *e)
{
    int64_t most = ignis__model_largest(e->model);
    return most == 0 || ignis__engine_room(call, e, &e->numbers, 1, most, e->model->dtype);
}

/*  What generate_step.cu reads of a layer, in its order, and of the logits behind the last one; null: there is none. */
typedef struct ignis__step_arrays {
    ignis__array *weights[4], *bias[4], *norm[2], *norm_bias[2], *head_norm[2];
} ignis__step_arrays;

static ignis__step_arrays ignis__engine_arrays(const ignis__engine *e, int layer)
{
    const ignis__engine_layer *l = &e->layer[layer];
    ignis__step_arrays a;
    memset(&a, 0, sizeof a);
    if (layer == e->model->layers) {
        a.weights[0] = e->head, a.norm[0] = e->norm, a.norm_bias[0] = e->norm_bias;
        return a;
    }
    a.weights[0] = l->qkv, a.weights[1] = l->o, a.weights[2] = l->up, a.weights[3] = l->down;
    a.bias[0] = l->qkv_bias, a.bias[1] = l->o_bias, a.bias[2] = l->up_bias, a.bias[3] = l->down_bias;
    a.norm[0] = l->attn_norm, a.norm[1] = l->mlp_norm, a.norm_bias[0] = l->attn_norm_bias, a.norm_bias[1] = l->mlp_norm_bias;
    a.head_norm[0] = l->q_norm, a.head_norm[1] = l->k_norm;
    return a;
}

/*  Types of quantised weights as bits, all of which generate_step.cu multiplies with one program; 0: weights are numbers; -1: there are both, or some
    that it does not take. */
IGNIS__COLD static int ignis__engine_whole_types(const ignis__engine *e)
{
    const ignis__model *m = e->model;
    int types = 0, dense = 0, i, j, part;
    for (i = 0; i <= m->layers; i++) {
        ignis__step_arrays a = ignis__engine_arrays(e, i);
        for (j = 0; j < 4 && a.weights[j]; j++) {
            const ignis__blocks *blocks = &a.weights[j]->blocks;
            for (part = 0; part < blocks->count; part++)
                types |= 1 << blocks->part[part].type;
            dense |= !blocks->count;
            if (ignis__weight_columns(a.weights[j]) % 8 != 0 || blocks->columns > 1 << 15) /* there is room for scales of so many */
                return -1;
        }
    }
    return !types ? 0 : dense ? -1 : types;
}

/*  Whether heads of q and k have norms. */
static bool ignis__engine_head_norms(const ignis__engine *e)
{
    bool some = false;
    int i;
    for (i = 0; i < e->model->layers; i++)
        some |= e->layer[i].q_norm || e->layer[i].k_norm;
    return some;
}

/*  Stages of the ring at most. Tests have fewer. */
static int ignis__step_stages = 8;

/*  Bytes of shared memory of its blocks, with as many stages in the ring as there is room for. */
static size_t ignis__engine_whole_shared(const ignis__engine *e, ignis__step *p)
{
    /* generate_step.cu has the same; BARRIERS: of a stage */
    enum { FOUND = 4 * 8 * 20 * 4, TURNS = 4 * 16, PADDING = 768, BARRIERS = 3 * 8 };
    const ignis__model *m = e->model;
    const int head_dim = ignis__paged_head_dim(m->head_dim), grain = e->step_types ? 256 : 32;
    const int64_t attended = m->heads * m->head_dim;
    const int64_t fixed = 4096 + 44 * (head_dim + 8) + (ignis__engine_head_norms(e) ? 8 * head_dim : 0); /* what it declares itself */
    const int64_t hidden = ignis__ceil_div(m->hidden, grain) * grain, longest = m->inner > attended ? m->inner : attended;
    const int64_t normed = 2 * hidden + m->hidden * (e->norm_bias ? 6 : 4), row = 2 * ignis__ceil_div(longest, grain) * grain;
    int64_t stage = 8 * 4 * 1024, scales = 0, rest, room;
    int i, record = 0;
    for (i = 0; i < IGNIS__COUNT(ignis__blocks_types); i++)
        if (e->step_types >> ignis__blocks_types[i].type & 1 && record < ignis__blocks_types[i].bytes)
            record = ignis__blocks_types[i].bytes;
    if (record) {
        stage = 8 * 16 * record * (record > 144 ? 1 : 2) + (e->step_types >> IGNIS__GGUF_Q6_K & 1 ? 4096 : 0) + 16;
        scales =
            (1 + ignis__ceil_div(ignis__ceil_div(longest > hidden ? longest : hidden, grain), 2)) * 128; /* zeros, and scales and sums */
    }
    rest = FOUND + TURNS + PADDING + 128 + scales + (row > normed ? row : normed);
    room = e->device->info.shared_per_block - fixed - rest;
    p->ring = room < 0 ? 0 : (int)ignis__clamp(room / (stage + BARRIERS), 0, ignis__step_stages);
    p->found_at = (int)(ignis__ceil_div((stage + BARRIERS) * p->ring + TURNS, 128) * 128); /* so that banks of shared memory are known */
    p->row_at = (int)(p->found_at + FOUND + scales);
    return (size_t)((stage + BARRIERS) * p->ring + rest);
}

/*  Bytes of a layer's quantised weights with which one launch is faster than one for each product. On an H200 7 to 10 % with 34 MB to 123 MB of four
    bits; with 2 MB, and with 65 MB of Q8_0 and 179 MB of Q6_K, up to 5 % slower. Tests have a smaller least. */
enum { IGNIS__STEP_MOST = 128 << 20, IGNIS__STEP_MOST_Q8_0 = 56 << 20 };
static int64_t ignis__step_least = 16 << 20;

/*  Whether generate_step.cu does steps of such a model. */
IGNIS__COLD static bool ignis__engine_whole_takes(const ignis__engine *e)
{
    const ignis__model *m = e->model;
    bool takes = (m->dtype == IGNIS_F16 || m->dtype == IGNIS_BF16) && m->parallel.size <= 1 && m->head_dim % 16 == 0 && m->inner % 8 == 0 &&
                 e->step_types >= 0 && (e->step_types || !e->embedding->blocks.count);
    ignis__step_arrays first = ignis__engine_arrays(e, 0);
    int64_t bytes = 0, most;
    int i;
    for (i = 0; takes && i < 4 && first.weights[i]; i++)
        bytes += ignis__blocks_bytes(&first.weights[i]->blocks, first.weights[i]->blocks.count);
    takes = takes && (m->head_dim <= 128 || !ignis__engine_head_norms(e)); /* there are no registers for both */
    most = e->step_types >> IGNIS__GGUF_Q8_0 & 1 ? IGNIS__STEP_MOST_Q8_0 : IGNIS__STEP_MOST;
    return takes && (!e->step_types || (bytes >= ignis__step_least && bytes <= most));
}

/*  What it reads of a weight: the map of its tiles, or where parts of one type are. Rows of a tile that are apart are in two planes. */
IGNIS__COLD static bool ignis__engine_whole_weights(ignis__op *op, const ignis__engine *e, ignis__array *array, bool heads, bool gated,
                                                    ignis__step_weights *to)
{
    const ignis__blocks *blocks = &array->blocks;
    const ignis__address at = ignis__op_read(op, array);
    const int64_t n = ignis__weight_rows(array), k = ignis__weight_columns(array);
    const int64_t rows = heads ? e->model->head_dim / 2 : gated ? n / 2 : n;
    const int64_t dims[] = {k, rows, n / rows}, steps[] = {2 * k, 2 * k * rows};
    const int box[] = {64, heads || gated ? 8 : 16, heads || gated ? 2 : 1};
    int i, first = 0;
    if (!blocks->count)
        return ignis__tensor_map_make(&op->work, &to->map, e->model->dtype, false, at, 3, dims, steps, box, NULL);
    for (i = 0; i < IGNIS__COUNT(to->parts); i++) {
        const bool there = i < blocks->count;
        to->parts[i].records = there ? ignis__quantised_part(blocks, i, at).records : 0;
        to->parts[i].type = there ? blocks->part[i].type : 0;
        to->parts[i].first = first;
        first += there ? blocks->part[i].rows : 0;
    }
    return true;
}

/*  Makes steps of one row one launch, where they can be: the tables of generate_step.cu. */
IGNIS__COLD static bool ignis__engine_whole(const char *call, ignis__engine *e)
{
    const ignis__model *m = e->model;
    const int64_t width = (int64_t)(m->heads + 2 * m->kv_heads) * m->head_dim, found = (int64_t)m->heads * e->splits * (2 + m->head_dim);
    const int64_t per_layer = sizeof(ignis__step_layer) / 4;
    ignis__step p;
    ignis__op op;
    int i, j;
    e->step_types = ignis__engine_whole_types(e);
    if (!ignis__engine_whole_takes(e))
        return true;
    snprintf(e->step_define, sizeof e->step_define, "-DIGNIS_HEAD_DIM=%d%s", ignis__paged_head_dim(m->head_dim),
             ignis__engine_head_norms(e) ? " -DIGNIS_HEAD_NORMS=1" : "");
    if (e->step_types)
        snprintf(e->step_define + strlen(e->step_define), sizeof e->step_define - strlen(e->step_define), " -DIGNIS_BLOCKS_TYPES=%d",
                 e->step_types);
    if (ignis__requests.path[0])
        ignis__request_own(IGNIS__BUILTIN_GENERATE_STEP, m->dtype, e->step_define, 90, 90);
    (void)ignis__engine_whole_shared(e, &p);
    if (e->device->info.compute_major != 9 || !e->device->clusters || !ignis__cuda.cuTensorMapEncodeTiled ||
        !ignis__cuda.cuLaunchKernelEx || p.ring < 2 ||
        !ignis__variant_exists(e->device, IGNIS__BUILTIN_GENERATE_STEP, m->dtype, e->step_define))
        return true;
    if (!ignis__engine_room(call, e, &e->table, m->layers + 1, per_layer, IGNIS_I32) ||
        !ignis__engine_room(call, e, &e->words, 1, 2 * m->hidden + (width + m->heads * m->head_dim + m->inner) / 2 + found + 1,
                            IGNIS_I64) ||
        !ignis__next_begin(&op, call, e->device))
        return false;
    ignis__op_zero(&op, e->words);
    for (i = 0; op.ok && i <= m->layers; i++) {
        ignis__step_arrays a = ignis__engine_arrays(e, i);
        ignis__step_layer layer;
        int32_t as_words[sizeof layer / 4];
        memset(&layer, 0, sizeof layer);
        for (j = 0; op.ok && j < 4; j++) {
            if (a.weights[j])
                op.ok = ignis__engine_whole_weights(&op, e, a.weights[j], i < m->layers && j == 0, i < m->layers && j == 2 && !m->gelu,
                                                    &layer.weights[j]);
            layer.bias[j] = a.bias[j] ? ignis__op_read(&op, a.bias[j]) : 0;
        }
        for (j = 0; op.ok && j < 2; j++) {
            layer.norm[j] = a.norm[j] ? ignis__op_read(&op, a.norm[j]) : 0;
            layer.norm_bias[j] = a.norm_bias[j] ? ignis__op_read(&op, a.norm_bias[j]) : 0;
            layer.head_norm[j] = a.head_norm[j] ? ignis__op_read(&op, a.head_norm[j]) : 0;
        }
        memcpy(as_words, &layer, sizeof layer);
        ignis__step_words(&op, m->dtype, e->table, i * per_layer, as_words, per_layer);
    }
    return ignis__op_leave(&op) == IGNIS_OK;
}

/*  All that sequences of a model share. Null, and reported: it cannot be. */
IGNIS__COLD static ignis__engine *ignis__engine_make(const char *call, const ignis__model *m)
{
    ignis__engine *e = (ignis__engine *)ignis__alloc(sizeof *e);
    int64_t chunk = IGNIS__CHUNK, width = (int64_t)(m->heads + 2 * m->kv_heads) * m->head_dim, ranks = m->parallel.size;
    int64_t pages = ignis__ceil_div(m->room, IGNIS__PAGE) * m->sequences, page_bytes;
    int64_t stride = ignis__ceil_div(m->vocab + (ranks > 1 ? ranks : 0), 4) * 4;
    ignis_dtype wide = ignis__wide_dtype(m->dtype);
    int32_t turning[IGNIS__ROPE_HALF];
    float frequencies[IGNIS__ROPE_HALF];
    ignis__paged paged;
    ignis__op op;
    int i;
    bool ok = e != NULL;
    if (!ok) {
        ignis__fail_host_memory(call, sizeof *e);
        return NULL;
    }
    ignis__mutex_init(&e->lock);
    e->model = m;
    e->device = m->device;
    e->context = m->room;
    for (e->step_rows = 8; e->step_rows < m->sequences && e->step_rows < IGNIS__STEP_ROWS;)
        e->step_rows *= 2;
    e->mask_count = e->step_rows + IGNIS__MASKS_KEPT;
    e->splits = (int)ignis__clamp(ignis__ceil_div(e->context, IGNIS__SPLIT), 1, IGNIS__SPLITS);
    page_bytes = 2 * m->layers * ignis__engine_page_elements(e) * ignis__dtypes[m->dtype].size;
    if (m->head_dim % 8 != 0 || m->head_dim > 256 || m->vocab > IGNIS__DRAW_VOCAB) {
        ignis__fail(
            IGNIS_DIAG_UNSUPPORTED, call,
            "heads have %d elements, the vocabulary %d tokens; multiples of 8 up to 256, and up to %d tokens, can be generated with",
            m->head_dim, m->vocab, (int)IGNIS__DRAW_VOCAB);
        ok = false;
    }
    if (ok && m->cache_dtype != m->dtype) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "the cache is to be %s and the model is %s; a cache has the dtype of its model",
                    ignis__dtypes[m->cache_dtype].name, ignis__dtypes[m->dtype].name);
        ok = false;
    }
    if (ok && (pages > INT32_MAX || pages > INT64_MAX / page_bytes)) {
        ignis__fail(IGNIS_DIAG_CACHE_FULL, call,
                    "a cache for %d sequences of %d tokens, %lld pages of %lld bytes, is more than any device has", m->sequences,
                    e->context, (long long)pages, (long long)page_bytes);
        ok = false;
    }
    for (i = 0; ok && m->rope && i < m->head_dim / 2; i++)
        e->frequencies[i] = m->frequencies[i];
    if (ok && (e->layer = (ignis__engine_layer *)ignis__alloc(sizeof *e->layer * (size_t)m->layers)) == NULL)
        ok = ignis__fail_host_memory(call, sizeof *e->layer * (size_t)m->layers) == IGNIS_OK;
    e->pages = (int)ignis__clamp(pages, 1, INT32_MAX);
    memset(&paged, 0, sizeof paged);
    paged.heads = m->heads;
    paged.head_dim = m->head_dim;
    paged.splits = e->splits;
    ok = ok && ignis__engine_weights(call, e) && ignis__engine_numbers(call, e) &&
         ignis__engine_room(call, e, &e->cache, (int64_t)2 * m->layers, e->pages * ignis__engine_page_elements(e), m->dtype) &&
         ignis__engine_room(call, e, &e->rows, chunk, (int64_t)sizeof(ignis__generate_row), IGNIS_U8) &&
         ignis__engine_room(call, e, &e->sum, chunk, m->hidden, wide) &&
         ignis__engine_room(call, e, &e->normed, chunk, m->hidden, m->dtype) &&
         ignis__engine_room(call, e, &e->qkv, chunk, width, m->dtype) &&
         ignis__engine_room(call, e, &e->attended, chunk, (int64_t)m->heads * m->head_dim, m->dtype) &&
         ignis__engine_room(call, e, &e->inner, chunk, m->inner, m->dtype) &&
         ignis__engine_room(call, e, &e->room, chunk, m->hidden > 2 * m->inner ? m->hidden : 2 * m->inner, m->dtype) &&
         ignis__engine_room(call, e, &e->scratch, 1, ignis__paged_numbers(&paged, e->step_rows), wide) &&
         ignis__engine_room(call, e, &e->logits, e->step_rows + (ranks > 1), stride, IGNIS_F32) && ignis__engine_ranks(call, e) &&
         ignis__engine_room(call, e, &e->scores, e->step_rows, stride, IGNIS_F32) &&
         ignis__engine_room(call, e, &e->biases, e->step_rows, IGNIS__BIASES * (int64_t)sizeof(ignis__generate_bias), IGNIS_U8) &&
         ignis__engine_room(call, e, &e->masks, e->mask_count, (m->vocab + 31) / 32, IGNIS_I32) &&
         ignis__engine_room(call, e, &e->gathered, 2, (int64_t)e->context * m->kv_heads * m->head_dim, m->dtype) &&
         ignis__engine_room(call, e, &e->parts, e->step_rows, (int64_t)IGNIS__DRAW_PARTS * IGNIS__DRAW_PART, IGNIS_U8) &&
         ignis__engine_room(call, e, &e->bins, e->step_rows, IGNIS__DRAW_BINS, IGNIS_U8) &&
         ignis__engine_room(call, e, &e->turning, 1, IGNIS__ROPE_HALF, IGNIS_I32) &&
         ignis__engine_room(call, e, &e->ended, e->step_rows, m->heads, IGNIS_I32) && ignis__next_begin(&op, call, e->device);
    if (ok) {
        memcpy(turning, ignis__rope_floats(frequencies, e->frequencies), sizeof turning);
        (void)ignis__op_write(&op, e->cache); /* takes its memory, or there is none */
        ignis__step_words(&op, m->dtype, e->turning, 0, turning, IGNIS__ROPE_HALF);
        ignis__op_zero(&op, e->ended);
        ignis__op_zero(&op, e->bins);
        e->draws_piece = ignis__piece_take(call, e->device, 2 * e->step_rows * (int64_t)sizeof *e->draws);
        e->draws = e->draws_piece ? (ignis__generate_draw *)e->draws_piece->memory : NULL;
        op.ok = op.ok && e->draws;
        ok = ignis__op_leave(&op) == IGNIS_OK && ignis__engine_whole(call, e);
    }
    if (ok) {
        e->uses = (int *)ignis__alloc(sizeof *e->uses * (size_t)e->pages);
        e->free_pages = (int *)ignis__alloc(sizeof *e->free_pages * (size_t)e->pages);
        e->mask = (ignis__engine_mask *)ignis__alloc(sizeof *e->mask * (size_t)e->mask_count);
        ok = (e->uses && e->free_pages && e->mask) || ignis__fail_host_memory(call, sizeof *e->uses * 2 * (size_t)e->pages) == IGNIS_OK;
    }
    for (i = 0; ok && i < e->pages; i++)
        e->free_pages[e->free_count++] = e->pages - 1 - i;
    if (ok)
        return e;
    ignis__engine_destroy(call, e);
    return NULL;
}

/*  A product of rows. many: they are of a piece of these, and have the same bits in any; else they have the same bits alone and together. norm: as
    ignis__step_product has it. */
static void ignis__engine_product(ignis__op *op, ignis__engine *e, int count, bool many, ignis__gemv_kind kind, bool gated,
                                  ignis__array *out, ignis__array *x, ignis__array *weights, ignis__array *bias,
                                  const ignis__step_norms *norm)
{
    if (!many) {
        ignis__step_product(op, count, kind, gated, out, x, weights, bias, e->numbers, norm);
        return;
    }
    if (norm)
        ignis__step_norm(op, count, x, norm);
    ignis__step_product_many(op, count, kind, gated, out, x, weights, bias, e->room, e->numbers);
}

/*  The first rows of an array become their sums over the ranks. */
static void ignis__engine_sum(ignis__op *op, const ignis__engine *e, const ignis__array *array, int64_t rows)
{
    const ignis_model_parallel *ranks = &e->model->parallel;
    ignis_array none = IGNIS__ZERO, some = op->ok ? ignis__array_slice(op->work.call, array, 0, 0, rows) : none;
    op->ok = op->ok && some.id && ranks->sum_fn(ranks->group, some) == IGNIS_OK;
    if (some.id)
        ignis__array_discard(op->work.call, &some);
}

/*  Adds what norm would, now. */
static void ignis__engine_add_rest(ignis__op *op, int count, ignis__step_norms *norm)
{
    if (norm->other)
        ignis__step_norm(op, count, NULL, norm);
    norm->other = NULL;
}

/*  A product that is added to `sum`, of which each rank has a share of the inner elements: rank 0 adds its own, the others put theirs in place of
    what they had, and all become the sum of these. What many rows have found, norm adds, ahead of it, unless there are other ranks. */
static void ignis__engine_add(ignis__op *op, ignis__engine *e, int count, bool many, ignis__array *x, ignis__array *weights,
                              ignis__array *bias, ignis__step_norms *norm)
{
    bool others = e->model->parallel.rank > 0;
    ignis__gemv_kind kind = others && !many && e->sum->dtype == IGNIS_F32 ? IGNIS__GEMV_LOGITS : IGNIS__GEMV_ADD;
    ignis__address sum = ignis__op_write(op, e->sum);
    if (op->ok && others && kind == IGNIS__GEMV_ADD)
        op->ok = ignis__copy_zeros(&op->work, sum, count * e->sum->shape.dim[1] * ignis__dtypes[e->sum->dtype].size);
    ignis__engine_product(op, e, count, many, kind, false, many ? e->room : e->sum, x, weights, others ? NULL : bias, NULL);
    norm->other = many ? e->room : NULL;
    if (e->model->parallel.size > 1) {
        ignis__engine_add_rest(op, count, norm);
        ignis__engine_sum(op, e, e->sum, count);
    }
}

/*  Rows through all layers: what they add up to is in `sum`, keys and values are in the cache. end: 0, they are of different sequences; or of one,
    and behind them it has so many tokens. many: as ignis__engine_product has it. */
static void ignis__engine_layers(ignis__op *op, ignis__engine *e, int count, int end, bool many)
{
    const ignis__model *m = e->model;
    ignis__address slab = (ignis__address)(e->pages * ignis__engine_page_elements(e) * ignis__dtypes[m->dtype].size), at;
    ignis__step_norms norm;
    ignis__generate_cache cache;
    ignis__gemv_mma direct;
    ignis__paged paged;
    int i;
    memset(&cache, 0, sizeof cache);
    memset(&paged, 0, sizeof paged);
    memset(&direct, 0, sizeof direct);
    at = ignis__op_write(op, e->cache);
    if (many) {
        cache.k_too = ignis__op_write(op, e->gathered);
        cache.v_too = cache.k_too + (ignis__address)(e->gathered->numel / 2 * ignis__dtypes[m->dtype].size);
    }
    cache.qkv = paged.q = ignis__op_write(op, e->qkv);
    cache.rows = paged.rows = direct.places = ignis__op_write(op, e->rows);
    cache.eps = m->eps;
    cache.heads = paged.heads = direct.heads = m->heads;
    cache.kv_heads = paged.kv_heads = direct.kv_heads = m->kv_heads;
    cache.head_dim = paged.head_dim = direct.head_dim = m->head_dim;
    direct.frequencies = m->rope ? ignis__op_write(op, e->turning) : 0;
    paged.out = ignis__op_write(op, e->attended);
    paged.scratch = ignis__op_write(op, e->scratch);
    paged.ended = ignis__op_write(op, e->ended);
    paged.q_row = e->qkv->shape.dim[1];
    paged.scale = m->attention_scale;
    paged.splits = e->splits;
    paged.settled = end == 0;
    memset(&norm, 0, sizeof norm);
    norm.sum = e->sum;
    norm.eps = m->eps;
    norm.rms = m->rms;
    ignis__step_embed(op, count, m->dtype, e->sum, e->embedding, e->positions, e->rows);
    for (i = 0; op->ok && i < m->layers; i++, at += 2 * slab) {
        const ignis__engine_layer *l = &e->layer[i];
        norm.weight = l->attn_norm;
        norm.bias = l->attn_norm_bias;
        cache.k = paged.k = direct.keys = at;
        cache.v = paged.v = direct.values = at + slab;
        if (!many && !l->q_norm && !l->k_norm && m->head_dim % 16 == 0 && ignis__step_takes_mma(op, m->dtype, l->qkv)) {
            if (l->qkv->blocks.count)
                ignis__step_blocks(op, count, IGNIS__GEMV_CACHE, false, e->qkv, e->normed, l->qkv, l->qkv_bias, e->numbers, &norm, &direct);
            else
                ignis__step_mma(op, count, IGNIS__GEMV_CACHE, false, e->qkv, e->normed, l->qkv, l->qkv_bias, &norm, &direct);
        } else {
            cache.q_weight = l->q_norm ? ignis__op_read(op, l->q_norm) : 0;
            cache.k_weight = l->k_norm ? ignis__op_read(op, l->k_norm) : 0;
            ignis__engine_product(op, e, count, many, IGNIS__GEMV_OUT, false, e->qkv, e->normed, l->qkv, l->qkv_bias, &norm);
            ignis__step_cache(op, count, m->dtype, &cache, m->rope ? e->frequencies : NULL);
        }
        if (many)
            ignis__step_attention_many(op, count, end, &paged, e->gathered);
        else
            ignis__step_attention(op, count, e->step_rows, m->dtype, &paged);
        ignis__engine_add(op, e, count, many, e->attended, l->o, l->o_bias, &norm);
        norm.weight = l->mlp_norm;
        norm.bias = l->mlp_norm_bias;
        ignis__engine_product(op, e, count, many, m->gelu ? IGNIS__GEMV_GELU : IGNIS__GEMV_OUT, !m->gelu, e->inner, e->normed, l->up,
                              l->up_bias, &norm);
        ignis__engine_add(op, e, count, many, e->inner, l->down, l->down_bias, &norm);
    }
    ignis__engine_add_rest(op, count, &norm);
}

/*  The logits of a step of one row, which is there, by generate_step.cu. */
static void ignis__engine_whole_step(ignis__op *op, ignis__engine *e)
{
    const ignis__model *m = e->model;
    const int width = (m->heads + 2 * m->kv_heads) * m->head_dim, attended = m->heads * m->head_dim;
    const int n[] = {width, m->hidden, m->inner, m->hidden, m->vocab}, k[] = {m->hidden, attended, m->hidden, m->inner, m->hidden};
    int64_t blocks = 1;
    double flops = 0;
    ignis__step p;
    size_t shared;
    void *params[] = {&p};
    int i, j;
    memset(&p, 0, sizeof p);
    shared = ignis__engine_whole_shared(e, &p);
    for (i = 0; i <= m->layers; i++) { /* behind those who write them on other streams */
        ignis__step_arrays a = ignis__engine_arrays(e, i);
        for (j = 0; j < 4; j++) {
            flops += a.weights[j] && ignis__op_read(op, a.weights[j])
                         ? 2.0 * (double)(ignis__weight_rows(a.weights[j]) * ignis__weight_columns(a.weights[j]))
                         : 0.0;
            (void)(a.bias[j] && ignis__op_read(op, a.bias[j]));
        }
        for (j = 0; j < 2; j++) {
            (void)(a.norm[j] && ignis__op_read(op, a.norm[j]));
            (void)(a.norm_bias[j] && ignis__op_read(op, a.norm_bias[j]));
            (void)(a.head_norm[j] && ignis__op_read(op, a.head_norm[j]));
        }
    }
    for (i = 0; i < 5; i++) {
        ignis__step_shape *shape = &p.shapes[i];
        shape->n = n[i];
        shape->k = k[i];
        shape->kind = i == 0 ? IGNIS__GEMV_CACHE : IGNIS__GEMV_OUT;
        shape->gated = i == 2 && !m->gelu;
        shape->head_dim = m->head_dim;
        shape->tiles = (int)ignis__ceil_div(n[i], shape->gated ? 8 : 16);
        blocks = shape->tiles > blocks ? shape->tiles : blocks;
    }
    p.layers = ignis__op_write(op, e->table);
    p.row = ignis__op_write(op, e->rows);
    p.frequencies = m->rope ? ignis__op_write(op, e->turning) : 0;
    p.embedding = ignis__op_read(op, e->embedding);
    if (e->embedding->blocks.count)
        p.table = ignis__quantised_part(&e->embedding->blocks, 0, p.embedding);
    p.positions = e->positions ? ignis__op_read(op, e->positions) : 0;
    p.cache = ignis__op_write(op, e->cache);
    p.slab = e->pages * ignis__engine_page_elements(e);
    p.logits = ignis__op_write(op, e->logits);
    p.sums[0] = ignis__op_write(op, e->words);
    p.sums[1] = p.sums[0] + 8 * (ignis__address)m->hidden;
    p.qkv = p.sums[1] + 8 * (ignis__address)m->hidden;
    p.attended = p.qkv + 4 * (ignis__address)width; /* two elements a word */
    p.inner = p.attended + 4 * (ignis__address)attended;
    p.found = p.inner + 4 * (ignis__address)m->inner;
    p.state = p.found + 8 * (ignis__address)((int64_t)m->heads * e->splits * (2 + m->head_dim));
    p.eps = m->eps;
    p.scale = m->attention_scale;
    p.count = m->layers;
    p.rms = m->rms;
    p.heads = m->heads;
    p.kv_heads = m->kv_heads;
    p.head_dim = m->head_dim;
    p.splits = e->splits;
    ignis__cost(-1, flops, (int)m->dtype);
    ignis__op_launch(op, IGNIS__BUILTIN_GENERATE_STEP, m->dtype, e->step_define,
                     ignis__clamp(blocks, 1, op->work.device->info.multiprocessors), 1, 1, 384, 1, shared, params);
}

/*  A step of so many rows, which lie in device memory: logits, and draws. ready: what all layers have found of them is there. */
static void ignis__engine_launches(ignis__op *op, ignis__engine *e, int count, ignis__draws draws, bool ready)
{
    ignis__address logits, said;
    ignis__step_norms norm;
    ignis__draw p;
    bool whole = !ready && count == 1 && e->table;
    if (whole)
        ignis__engine_whole_step(op, e);
    else if (!ready)
        ignis__engine_layers(op, e, count, 0, false);
    memset(&norm, 0, sizeof norm);
    norm.sum = e->sum;
    norm.weight = e->norm;
    norm.bias = e->norm_bias;
    norm.eps = e->model->eps;
    norm.rms = e->model->rms;
    if (e->model->parallel.size > 1) { /* what this rank says stands behind the first row of logits */
        logits = ignis__op_write(op, e->logits);
        said = ignis__op_write(op, e->said);
        op->ok =
            op->ok && ignis__copy_zeros(&op->work, logits, count * e->logits->shape.dim[1] * (int64_t)sizeof(float)) &&
            ignis__copy_on_device(&op->work, logits + (ignis__address)e->model->vocab * sizeof(float), said, ignis__array_bytes(e->said));
    }
    if (!whole)
        ignis__step_product(op, count, IGNIS__GEMV_LOGITS, false, e->mine ? e->mine : e->logits, e->normed, e->head, NULL, e->numbers,
                            &norm);
    if (e->model->parallel.size > 1)
        ignis__engine_sum(op, e, e->logits, count);
    if (draws == IGNIS__DRAWS_NONE)
        return;
    memset(&p, 0, sizeof p);
    p.logits = ignis__op_write(op, e->logits);
    p.scores = ignis__op_write(op, e->scores);
    p.rows = ignis__op_write(op, e->rows);
    p.biases = ignis__op_write(op, e->biases);
    p.parts = ignis__op_write(op, e->parts);
    p.bins = ignis__op_write(op, e->bins);
    p.stride = e->logits->shape.dim[1];
    p.vocab = e->model->vocab;
    p.bias_room = IGNIS__BIASES;
    p.masks = ignis__op_write(op, e->masks);
    p.mask_room = (int)e->masks->shape.dim[1];
    ignis__step_draw(op, count, draws, &p);
}

/*  The same as a graph, from the second time on. count is a power of 2. */
static void ignis__engine_step(ignis__op *op, ignis__engine *e, int count, ignis__draws draws)
{
    const char *call = op->work.call;
    int number = ignis__log2((uint64_t)count);
    ignis__traced item;
    ignis__op captured;
    bool traced, same;
    if (e->steps[draws][number].runs++ == 0) { /* kernels are compiled now */
        ignis__engine_launches(op, e, count, draws, false);
        return;
    }
    if (op->ok && !e->steps[draws][number].exec) {
        op->ok = ignis__device_wait(call, e->device) && ignis__capture_begin(call, e->device);
        if (!op->ok)
            return;
        e->steps[draws][number].capture = ignis__capturing();
        same = ignis__next_begin(&captured, call, e->device);
        if (same) {
            ignis__engine_launches(&captured, e, count, draws, false);
            same = ignis__op_leave(&captured) == IGNIS_OK;
        }
        e->steps[draws][number].exec = ignis__capture_end(call, e->steps[draws][number].capture);
        op->ok = same && e->steps[draws][number].exec;
        if (!op->ok) {
            ignis__graph_destroy(call, e->steps[draws][number].capture, e->steps[draws][number].exec);
            e->steps[draws][number].capture = NULL;
            e->steps[draws][number].exec = NULL;
        }
    }
    op->ok = op->ok && ignis__graph_launchable(call, e->device, op->work.stream);
    if (!op->ok)
        return;
    traced = ignis__profiling() && ignis__traced_open(&item, IGNIS__TRACED_GRAPH, call, e->device, op->work.stream, NULL, "graph");
    op->ok = !IGNIS__CUDA_FAILED(call, e->device, cuGraphLaunch, (e->steps[draws][number].exec, op->work.stream));
    if (traced)
        (void)ignis__traced_close(&item, op->ok);
}

/* --- sequences ----------------------------------------------------------------------------------------------------------- */

/*  Where the text of a sequence with a grammar is; null, and reported: it does not keep to it. */
static const ignis__grammar_state *ignis__sequence_match(const char *call, ignis__sequence *s)
{
    ignis__grammar *g = s->grammar;
    const ignis__vocabulary *v = s->engine->vocabulary;
    int32_t id, next;
    int i;
    bool ok = g->start >= 0;
    if (!ok || g->states.count > IGNIS__GRAMMAR_STATES || g->masks > IGNIS__GRAMMAR_MASKS)
        ok = ignis__grammar_begin(g);
    if (ok && s->epoch != g->epoch) {
        s->epoch = g->epoch;
        s->matched = s->constrained;
        s->state = g->start;
    }
    for (; ok && s->matched < s->length; s->matched++, s->state = next) {
        id = s->ids[s->matched];
        next = ignis__grammar_put(g, v, s->state, id);
        for (i = 0; i < v->end_count && v->ends[i] != id;)
            i++;
        ok = next > 0 || (next == 0 && i < v->end_count && IGNIS__GRAMMAR_AT(g, state, states, s->state)->ends);
        if (next == 0 && !ok)
            ignis__grammar_fail(g, IGNIS_DIAG_GRAMMAR, NULL, "token %d of the sequence, %d, does not keep to its grammar", s->matched,
                                (int)id);
        if (!ok)
            break;
    }
    ok = ok && ignis__grammar_mask(g, v, s->state);
    if (!ok)
        ignis__fail(g->diagnostic, call, "%s", g->fault);
    g->diagnostic = IGNIS_DIAG_NONE;
    return ok ? IGNIS__GRAMMAR_AT(g, state, states, s->state) : NULL;
}

/*  The same, where a token is to be drawn: there has to be one. */
static const ignis__grammar_state *ignis__sequence_allows(const char *call, ignis__sequence *s)
{
    const ignis__grammar_state *state = ignis__sequence_match(call, s);
    if (!state || state->any || (state->ends && s->engine->vocabulary->end_count))
        return state;
    ignis__fail(IGNIS_DIAG_GRAMMAR, call, "by its grammar nothing can follow the %d tokens of the sequence", s->length);
    return NULL;
}

/*  Which of the engine's masks, from 1 on, has the tokens that may come to a sequence. It is sent where it is not there, in place of the one that was
    used longest ago, so of none of the step's other rows. 0: a failure. */
static int ignis__sequence_mask(ignis__op *op, ignis__sequence *s)
{
    const ignis__grammar_state *state = op->ok ? ignis__sequence_allows(op->work.call, s) : NULL;
    ignis__engine *e = s->engine;
    const ignis__vocabulary *v = e->vocabulary;
    ignis__address masks = ignis__op_write(op, e->masks); /* behind what another stream may be sending */
    int64_t bytes;
    uint32_t *mask;
    int oldest = 0, i;
    bool ok;
    if (!state)
        return 0;
    for (i = 0; i < e->mask_count; i++) {
        if (e->mask[i].grammar == s->grammar->number && e->mask[i].epoch == s->epoch && e->mask[i].state == s->state) {
            e->mask[i].used = ++e->masks_used;
            return i + 1;
        }
        if (e->mask[i].used < e->mask[oldest].used)
            oldest = i;
    }
    bytes = (int64_t)sizeof *mask * v->words;
    mask = (uint32_t *)ignis__alloc_for(op->work.call, (size_t)bytes);
    if (!mask)
        return 0;
    memcpy(mask, state->mask, (size_t)bytes);
    for (i = 0; state->ends && i < v->end_count; i++)
        mask[v->ends[i] / 32] |= (uint32_t)1 << v->ends[i] % 32;
    e->mask[oldest].grammar = 0;
    ok = op->ok && ignis__copy_from_host(&op->work, masks + (ignis__address)(oldest * bytes), mask, bytes);
    ignis__free(mask);
    if (!ok)
        return 0;
    e->mask[oldest].grammar = s->grammar->number;
    e->mask[oldest].epoch = s->epoch;
    e->mask[oldest].state = s->state;
    e->mask[oldest].used = ++e->masks_used;
    return oldest + 1;
}

/*  Takes a sequence apart that nobody uses any more. */
static void ignis__sequence_drop(const char *call, ignis__sequence *s)
{
    int i;
    if (!ignis__pool_drop(s))
        return;
    ignis__mutex_lock(&s->engine->lock);
    if (s->grammar)
        s->grammar->uses--;
    for (i = 0; i < s->page_count; i++)
        if (--s->engine->uses[s->page[i]] == 0)
            s->engine->free_pages[s->engine->free_count++] = s->page[i];
    ignis__mutex_unlock(&s->engine->lock);
    if (s->on_device)
        ignis__array_unclaim(call, s->on_device);
    if (s->table)
        ignis__array_unclaim(call, s->table);
    if (s->last)
        ignis__array_unclaim(call, s->last);
    ignis__free(s->ids);
    ignis__free(s->page);
    ignis__free(s->many);
    ignis__model_drop(call, s->model);
    ignis__pool_give(&ignis__sequences, s);
}

/*  Waits for a token that was drawn ahead, and forgets it. The engine is locked. */
static void ignis__engine_settle(const char *call, ignis__engine *e)
{
    ignis__binding binding;
    if (!e->ahead.sequence)
        return;
    if (ignis__device_enter(call, e->device, &binding)) {
        (void)IGNIS__CUDA_FAILED(call, e->device, cuEventSynchronize, (e->ahead.drawn->event));
        ignis__device_leave(&binding);
    }
    ignis__event_give(e->device, e->ahead.drawn);
    e->ahead.sequence = NULL;
}

/*  Locks an engine for work with it, or with one of its sequences, in which no token is drawn ahead. */
static void ignis__engine_lock(const char *call, ignis__engine *e)
{
    ignis__mutex_lock(&e->lock);
    ignis__engine_settle(call, e);
}

/*  Ends work with an engine, which others use next, in streams of their own: what a failure has left in this one is waited for. */
static bool ignis__engine_leave(ignis__op *op)
{
    if (!op->ok)
        (void)IGNIS__CUDA(cuStreamSynchronize, (op->work.stream));
    return ignis__op_leave(op) == IGNIS_OK;
}

/*  A sequence, held; null, and reported: there is none, or the thread captures. */
static ignis__sequence *ignis__sequence_hold(const char *call, ignis_sequence handle)
{
    ignis__sequence *s = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, handle.id);
    if (!s || !ignis__capture_refuses(call))
        return s;
    ignis__sequence_drop(call, s);
    return NULL;
}

/*  The same for a call that works with it, and its engine locked. */
static ignis__sequence *ignis__sequence_enter(const char *call, ignis_sequence handle)
{
    ignis__sequence *s = ignis__sequence_hold(call, handle);
    if (s)
        ignis__engine_lock(call, s->engine);
    return s;
}

static void ignis__sequence_leave(const char *call, ignis__sequence *s)
{
    ignis__mutex_unlock(&s->engine->lock);
    ignis__sequence_drop(call, s);
}

/*  How many pages a sequence still has to get to write positions [from, to) in pages of its own. */
static int ignis__sequence_pages_needed(const ignis__sequence *s, int from, int to)
{
    int page, needed = 0;
    for (page = from / IGNIS__PAGE; page * IGNIS__PAGE < to; page++)
        needed += page >= s->page_count || s->engine->uses[s->page[page]] > 1;
    return needed;
}

/*  False, and reported: the cache has not that many pages left. */
static bool ignis__engine_has_pages(const char *call, const ignis__engine *e, int needed)
{
    if (needed <= e->free_count)
        return true;
    ignis__fail(
        IGNIS_DIAG_CACHE_FULL, call,
        "the cache has %d pages of %d tokens, %d of them free, and %d are needed; free or truncate sequences, or open the model with a "
        "larger desc.sequences (%d sequences of %d tokens)",
        e->pages, (int)IGNIS__PAGE, e->free_count, needed, e->model->sequences, e->context);
    return false;
}

/*  Makes the pages of positions [from, to) a sequence's own, copies those that others have too, and tells the device. The engine has enough. */
static void ignis__sequence_take_pages(ignis__op *op, ignis__sequence *s, int from, int to)
{
    ignis__engine *e = s->engine;
    ignis__address cache = op->ok ? ignis__op_write(op, e->cache) : 0;
    int64_t size = ignis__engine_page_elements(e), slab = size * e->pages;
    int number, to_page, from_page;
    void *params[] = {&cache, &slab, &size, &to_page, &from_page};
    for (number = from / IGNIS__PAGE; op->ok && number * IGNIS__PAGE < to; number++) {
        bool fresh = number >= s->page_count;
        if (!fresh && e->uses[s->page[number]] == 1)
            continue;
        to_page = e->free_pages[e->free_count - 1];
        if (!fresh) {
            from_page = s->page[number];
            ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_COPY, e->model->dtype, 2 * (int64_t)e->model->layers, 256, params);
            if (!op->ok)
                return;
            e->uses[from_page]--;
        }
        e->free_count--;
        e->uses[to_page] = 1;
        s->page[number] = to_page;
        s->page_count += fresh;
        s->pages_sent = s->pages_sent < number ? s->pages_sent : number;
    }
    ignis__step_words(op, e->model->dtype, s->table, s->pages_sent, s->page + s->pages_sent, s->page_count - s->pages_sent);
    ignis__step_words(op, e->model->dtype, s->on_device, s->sent, s->ids + s->sent, s->length - s->sent);
    if (op->ok) {
        s->pages_sent = s->page_count;
        s->sent = s->length;
    }
}

static void ignis__sequence_row(ignis__op *op, ignis__sequence *s, int position, ignis__generate_row *row)
{
    memset(row, 0, sizeof *row);
    row->ids = ignis__op_write(op, s->on_device);
    row->pages = ignis__op_write(op, s->table);
    row->position = position;
    row->penalty = 1;
}

/*  Tokens of a sequence from `first` on go through all layers, in the way that the first one is marked for. */
static void ignis__sequence_piece(ignis__op *op, ignis__sequence *s, int first, int count)
{
    ignis__engine *e = s->engine;
    ignis__generate_row row;
    ignis__sequence_row(op, s, first, &row);
    ignis__step_chunk(op, e->model->dtype, e->rows, &row, count);
    ignis__engine_layers(op, e, count, first + count, s->many[first]);
}

/*  Keeps what all layers have found of a sequence's last token, which is the last of so many rows. */
static void ignis__sequence_keep(ignis__op *op, ignis__sequence *s, int count)
{
    ignis__engine *e = s->engine;
    const int64_t bytes = e->sum->shape.dim[1] * ignis__dtypes[e->sum->dtype].size;
    ignis__array *last = NULL;
    ignis__address from = ignis__op_write(op, e->sum) + (ignis__address)((count - 1) * bytes);
    op->ok = op->ok && ignis__engine_room(op->work.call, e, &last, 1, e->sum->shape.dim[1], e->sum->dtype) &&
             ignis__copy_on_device(&op->work, ignis__op_write(op, last), from, bytes);
    if (s->last)
        ignis__array_unclaim(op->work.call, s->last);
    s->last = last;
    s->last_length = op->ok ? s->length : 0;
}

/*  Puts tokens into the cache: all of a piece of many, of others all but the last one, which the next step computes. Waits for them. */
static bool ignis__sequence_fill(const char *call, ignis__sequence *s)
{
    ignis__engine *e = s->engine;
    ignis__op op;
    int count = 0;
    if (!ignis__model_plain(call, s->model) || !ignis__engine_has_pages(call, e, ignis__sequence_pages_needed(s, s->cached, s->length)) ||
        !ignis__next_begin(&op, call, e->device))
        return false;
    ignis__sequence_take_pages(&op, s, s->cached, s->length);
    while (op.ok && s->cached < s->length) {
        count = s->length - s->cached < IGNIS__CHUNK ? s->length - s->cached : IGNIS__CHUNK;
        memset(s->many + s->cached, count > IGNIS__STEP_ROWS, sizeof *s->many * (size_t)count);
        if (count <= IGNIS__STEP_ROWS && --count == 0)
            break;
        ignis__sequence_piece(&op, s, s->cached, count);
        if (!op.ok)
            break;
        s->cached += count;
    }
    if (op.ok && s->cached == s->length)
        ignis__sequence_keep(&op, s, count);
    op.ok = op.ok && !IGNIS__CUDA_FAILED(call, e->device, cuStreamSynchronize, (op.work.stream)) &&
            (e->model->parallel.size <= 1 || e->model->parallel.check_fn(e->model->parallel.group) == IGNIS_OK);
    return ignis__engine_leave(&op);
}

/*  Leaves the first tokens, and the pages of those that the cache has. */
static void ignis__sequence_cut(ignis__sequence *s, int length)
{
    int pages;
    s->length = length;
    s->cached = s->cached < length ? s->cached : length;
    s->last_length = s->last_length <= length ? s->last_length : 0;
    pages = (int)ignis__ceil_div(s->cached, IGNIS__PAGE);
    s->sent = s->sent < length ? s->sent : length;
    s->said_length = s->said_length <= length ? s->said_length : 0;
    s->constrained = s->constrained < length ? s->constrained : length;
    s->epoch = s->matched <= length ? s->epoch : 0;
    while (s->page_count > pages) {
        int page = s->page[--s->page_count];
        if (--s->engine->uses[page] == 0)
            s->engine->free_pages[s->engine->free_count++] = page;
    }
    s->pages_sent = s->pages_sent < s->page_count ? s->pages_sent : s->page_count;
}

/*  False, and reported: the model has not all of these tokens. */
static bool ignis__sequence_knows(const char *call, const ignis__sequence *s, const int32_t *ids, int count)
{
    int i = 0;
    while (i < count && ids[i] >= 0 && ids[i] < s->model->vocab)
        i++;
    if (i < count)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "ids[%d] is %d; the model has tokens 0 to %d", i, (int)ids[i], s->model->vocab - 1);
    return i == count;
}

/*  Appends tokens that the model has, and puts what comes before the last one into the cache. After a failure the sequence is as it was. */
static bool ignis__sequence_append(const char *call, ignis__sequence *s, const int32_t *ids, int count)
{
    int before = s->length, cached = s->cached;
    bool many = before > 0 && s->many[before - 1]; /* it may go with the others */
    if (count > s->engine->context - before)
        return ignis__fail(IGNIS_DIAG_CONTEXT_FULL, call, "the sequence has %d tokens, %d more do not fit the context of %d", before, count,
                           s->engine->context) == IGNIS_OK;
    if (count == 0)
        return true;
    memcpy(s->ids + before, ids, sizeof *ids * (size_t)count);
    s->length = before + count;
    if (ignis__sequence_fill(call, s))
        return true;
    s->cached = cached; /* what was computed may be wrong */
    ignis__sequence_cut(s, before);
    if (before > 0)
        s->many[before - 1] = many;
    return false;
}

static bool ignis__sampling_number(const char *call, const char *name, double value, double highest)
{
    if (value >= 0 && value <= highest)
        return true;
    ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "sampling->%s is %g, outside 0 to %g", name, value, highest);
    return false;
}

/*  False, and reported: something of it is out of its range. */
static bool ignis__sampling_check(const char *call, const ignis_sampling_desc *d, int vocab)
{
    int i;
    if (!ignis__sampling_number(call, "temperature", d->temperature, 1e6) || !ignis__sampling_number(call, "top_p", d->top_p, 1) ||
        !ignis__sampling_number(call, "min_p", d->min_p, 1) ||
        !ignis__sampling_number(call, "repetition_penalty", d->repetition_penalty, 1e6) ||
        !ignis__sampling_number(call, "top_k", d->top_k, INT32_MAX) ||
        !ignis__sampling_number(call, "penalty_window", d->penalty_window, INT32_MAX) ||
        !ignis__sampling_number(call, "bias_count", d->bias_count, IGNIS__BIASES))
        return false;
    if (d->bias_count && !d->biases)
        return ignis__fail_null(call, "sampling->biases") == IGNIS_OK;
    for (i = 0; i < d->bias_count; i++)
        if (d->biases[i].id < 0 || d->biases[i].id >= vocab || (i && d->biases[i].id <= d->biases[i - 1].id) ||
            d->biases[i].bias != d->biases[i].bias)
            return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                               "sampling->biases[%d] is %g for token %d; ids rise from 0 to %d at most, each once, and a bias is a number",
                               i, (double)d->biases[i].bias, (int)d->biases[i].id, vocab - 1) == IGNIS_OK;
    return true;
}

/*  Whether tokens are cut off before one is drawn. generate_draw.cu has the same rule. */
static bool ignis__sampling_cuts(const ignis_sampling_desc *d)
{
    return d->temperature != 0 && (d->top_k > 0 || (d->top_p > 0 && d->top_p < 1) || d->min_p > 0);
}

/*  How the token behind a row is drawn, and where it is told. number: of the row in its step. */
static void ignis__sampling_row(const ignis__engine *e, int number, const ignis_sampling_desc *d, ignis__generate_row *row)
{
    row->draws = (ignis__address)(uintptr_t)(e->draws + 2 * number);
    row->temperature = d->temperature;
    row->top_k = d->top_k;
    row->top_p = d->top_p;
    row->min_p = d->min_p;
    row->penalty = d->repetition_penalty == 0 ? 1 : d->repetition_penalty;
    row->window = d->penalty_window;
    row->seed = d->seed;
    row->biases = d->bias_count;
}

static uint32_t ignis__said_mix(uint32_t said, const void *bytes, size_t size)
{
    const unsigned char *at = (const unsigned char *)bytes;
    while (size-- > 0)
        said = (said ^ *at++) * 16777619u; /* FNV-1a */
    return said;
}

/*  A number of what a step's rank works with: its model, the step's sequences, which are numbers `of` those that there are, how they are drawn from.
    Others must have the same. */
static uint32_t ignis__engine_says(const ignis__engine *e, ignis__sequence *const *sequences, const int *of, int count,
                                   const ignis_sampling_desc *sampling, bool draws)
{
    const ignis__model *m = e->model;
    int numbers[12], i;
    double reals[4];
    uint32_t said = 2166136261u;
    numbers[0] = m->layers, numbers[1] = m->hidden, numbers[2] = m->heads, numbers[3] = m->kv_heads, numbers[4] = m->inner;
    numbers[5] = m->vocab, numbers[6] = (int)m->family, numbers[7] = (int)m->dtype, numbers[8] = m->room, numbers[9] = m->sequences;
    numbers[10] = count, numbers[11] = draws;
    said = ignis__said_mix(said, numbers, sizeof numbers);
    for (i = 0; i < count; i++) {
        ignis__sequence *s = sequences[of[i]];
        const ignis_sampling_desc *d = draws && sampling ? &sampling[of[i]] : NULL;
        for (; s->said_length < s->length; s->said_length++)
            s->said = ignis__said_mix(s->said_length ? s->said : 2166136261u, &s->ids[s->said_length], sizeof *s->ids);
        said = ignis__said_mix(said, &s->said, sizeof s->said);
        if (s->grammar) {
            said = ignis__said_mix(said, s->grammar->source, strlen(s->grammar->source));
            said = ignis__said_mix(said, &s->constrained, sizeof s->constrained);
        }
        if (!d)
            continue;
        reals[0] = d->temperature, reals[1] = d->top_p, reals[2] = d->min_p, reals[3] = d->repetition_penalty;
        said = ignis__said_mix(said, reals, sizeof reals);
        said = ignis__said_mix(said, &d->top_k, sizeof d->top_k);
        said = ignis__said_mix(said, &d->penalty_window, sizeof d->penalty_window);
        said = ignis__said_mix(said, &d->seed, sizeof d->seed);
        said = ignis__said_mix(said, d->biases, sizeof *d->biases * (size_t)d->bias_count);
    }
    return (said ^ said >> 24) & 0xFFFFFFu; /* floats add up such numbers and zeros without rounding */
}

/*  Tells the device what this rank says. */
static void ignis__engine_say(ignis__op *op, const ignis__engine *e, uint32_t said)
{
    float numbers[IGNIS__RANKS] = {0};
    int32_t words[IGNIS__RANKS];
    numbers[e->model->parallel.rank] = (float)said;
    memcpy(words, numbers, sizeof words);
    ignis__step_words(op, e->model->dtype, e->said, 0, words, e->model->parallel.size);
}

/*  Whether the sums of a step that is done are right, and all ranks have said the same. */
static bool ignis__engine_agrees(ignis__op *op, const ignis__engine *e, uint32_t said)
{
    const ignis_model_parallel *ranks = &e->model->parallel;
    ignis__address logits = ignis__op_write(op, e->logits);
    float others[IGNIS__RANKS];
    int i;
    if (!op->ok ||
        !ignis__copy_to_host(&op->work, others, logits + (ignis__address)e->model->vocab * sizeof(float),
                             ranks->size * (int64_t)sizeof(float)) ||
        ranks->check_fn(ranks->group) != IGNIS_OK)
        return false;
    for (i = 0; i < ranks->size; i++)
        if (others[i] != (float)said)
            return ignis__fail(
                       IGNIS_DIAG_COMM_MISMATCH, op->work.call,
                       "rank %d works with other tokens, sequences or sampling than rank %d, or with another model: its number of them is "
                       "%06x, here it is %06x; all ranks of a model make the same calls with the same arguments",
                       i, ranks->rank, (unsigned)others[i], (unsigned)said) == IGNIS_OK;
    return true;
}

/*  Whether a sequence's last token is one of many: then what all layers find of it is kept, or found as it was then, and not in a step. */
static bool ignis__sequence_ready(const ignis__sequence *s) { return s->length > 0 && s->many[s->length - 1]; }

/*  Reports that no token can be drawn. number: of the sequence among several; below 0: there is one alone. */
IGNIS__COLD static void ignis__draw_fail(const char *call, int32_t drawn, int number)
{
    char which[32] = "";
    if (number >= 0)
        snprintf(which, sizeof which, "sequences[%d]: ", number);
    if (drawn == IGNIS__DRAW_NO_LOGITS)
        ignis__fail(
            IGNIS_DIAG_NO_TOKEN, call,
            "%sno token can be drawn: no logit of the model is a number above minus infinity. Its weights have values that are none, "
            "or what they compute overflows its dtype",
            which);
    else
        ignis__fail(IGNIS_DIAG_NO_TOKEN, call, "%sno token can be drawn: sampling->biases and the sequence's grammar forbid all of them",
                    which);
}

/*  A step of some of these sequences, of which `of` has the numbers; draws: and a token for each, behind its end. ready: they are, and it goes
    without the layers. logits: where those of the first one go, or null. */
static void ignis__engine_some(ignis__op *op, ignis__sequence *const *sequences, const int *of, int some, bool ready,
                               const ignis_sampling_desc *sampling, bool draws, float *logits)
{
    static const ignis_sampling_desc greedy = IGNIS__ZERO;
    const char *call = op->work.call;
    ignis__engine *e = sequences[0]->engine;
    ignis__generate_row rows[IGNIS__STEP_ROWS];
    const ignis__generate_draw *draw;
    ignis__address biases = ignis__op_write(op, e->biases), sum = ignis__op_write(op, e->sum), address;
    const int64_t row = e->sum->shape.dim[1] * ignis__dtypes[e->sum->dtype].size;
    ignis__draws kind = draws ? IGNIS__DRAWS_ALL : IGNIS__DRAWS_NONE;
    uint32_t said = 0;
    int width = ready ? some : 1, i;
    while (width < some) /* as graphs have it */
        width *= 2;
    memset(rows, 0, sizeof rows);
    for (i = 0; i < width; i++) {
        const ignis_sampling_desc *d = sampling && i < some ? &sampling[of[i]] : &greedy;
        ignis__sequence *s = i < some ? sequences[of[i]] : NULL;
        rows[i].position = -1;
        if (!s)
            continue;
        if (draws && ignis__sampling_cuts(d))
            kind = IGNIS__DRAWS_CUT;
        ignis__sequence_row(op, s, s->length - 1, &rows[i]);
        ignis__sampling_row(e, i, d, &rows[i]);
        if (draws && d->bias_count)
            op->ok = op->ok && ignis__copy_from_host(&op->work, biases + (ignis__address)(i * IGNIS__BIASES) * sizeof *d->biases, d->biases,
                                                     d->bias_count * (int64_t)sizeof *d->biases);
        if (draws && s->grammar) {
            rows[i].masked = ignis__sequence_mask(op, s);
            op->ok = op->ok && rows[i].masked;
        }
        if (ready)
            op->ok = op->ok && ignis__copy_on_device(&op->work, sum + (ignis__address)(i * row), ignis__op_read(op, s->last), row);
    }
    ignis__step_rows(op, e->model->dtype, e->rows, rows, width);
    if (e->model->parallel.size > 1)
        ignis__engine_say(op, e, said = ignis__engine_says(e, sequences, of, some, sampling, draws));
    if (ready)
        ignis__engine_launches(op, e, some, kind, true);
    else
        ignis__engine_step(op, e, width, kind);
    if (e->model->parallel.size > 1)
        op->ok = ignis__engine_agrees(op, e, said);
    if (draws)
        op->ok = op->ok && !IGNIS__CUDA_FAILED(call, e->device, cuStreamSynchronize, (op->work.stream));
    if (logits) {
        address = ignis__op_write(op, e->logits);
        op->ok = op->ok && ignis__copy_to_host(&op->work, logits, address, e->model->vocab * (int64_t)sizeof *logits);
    }
    for (i = 0; op->ok && i < some; i++) {
        ignis__sequence *s = sequences[of[i]];
        s->cached = s->length;
        if (!draws)
            continue;
        draw = &e->draws[2 * i + (s->length - 1) % 2];
        s->ids[s->length] = draw->id;
        s->next_log_prob = draw->log_prob;
    }
}

/*  One step of sequences of one engine, which is locked; draws: and a token for each, appended. logits: where those of the first one go, or null.
    drawn: where the tokens go, or null; those that are not drawn are left out. Everything is checked before anything changes. Sequences that are
    ready come first. */
static bool ignis__engine_run(const char *call, ignis__sequence *const *sequences, int count, const ignis_sampling_desc *sampling,
                              bool draws, float *logits, int32_t *drawn)
{
    ignis__engine *e = sequences[0]->engine;
    ignis__op op;
    int of[IGNIS__STEP_ROWS], turn, next, some, i;
    bool all = true;
    if (!ignis__model_plain(call, sequences[0]->model))
        return false;
    for (i = 0; i < count; i++) {
        ignis__sequence *s = sequences[i];
        if (s->length == 0)
            return ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call, "the sequence has no token yet; ignis_sequence_feed gives it some") ==
                   IGNIS_OK;
        if (draws && s->length == e->context)
            return ignis__fail(IGNIS_DIAG_CONTEXT_FULL, call, "the sequence has %d tokens, as many as the context", s->length) == IGNIS_OK;
        if ((draws && sampling && !ignis__sampling_check(call, &sampling[i], e->model->vocab)) ||
            (draws && s->grammar && !ignis__sequence_allows(call, s)))
            return false;
    }
    if (!ignis__next_begin(&op, call, e->device))
        return false;
    for (i = 0; op.ok && i < count; i++) { /* one after the other: who comes last to a shared page needs no copy */
        ignis__sequence *s = sequences[i];
        op.ok = ignis__engine_has_pages(call, e, ignis__sequence_pages_needed(s, s->length - 1, s->length));
        ignis__sequence_take_pages(&op, s, s->length - 1, s->length);
        if (!op.ok || !ignis__sequence_ready(s) || s->last_length == s->length)
            continue;
        ignis__sequence_piece(&op, s, s->length - 1, 1);
        ignis__sequence_keep(&op, s, 1);
    }
    for (turn = 0; turn < 2; turn++)
        for (next = 0; op.ok && next < count;) {
            for (some = 0; next < count && some < e->step_rows; next++)
                if (ignis__sequence_ready(sequences[next]) == (turn == 0))
                    of[some++] = next;
            if (some > 0)
                ignis__engine_some(&op, sequences, of, some, turn == 0, sampling, draws, logits);
        }
    for (i = 0; op.ok && draws && i < count; i++) {
        ignis__sequence *s = sequences[i];
        int32_t id = s->ids[s->length];
        if (id < 0) { /* the others have theirs */
            ignis__draw_fail(call, id, drawn ? i : -1);
            all = false;
            continue;
        }
        if (drawn)
            drawn[i] = id;
        s->many[s->length] = false;
        s->sent = ++s->length;
        s->log_prob = s->next_log_prob;
    }
    for (i = 0; !op.ok && i < count; i++) /* pages that were taken for nothing */
        ignis__sequence_cut(sequences[i], sequences[i]->length);
    return ignis__engine_leave(&op) && all;
}

/*  A sequence of an engine that has no token yet. The model is held, and stays so. Null, and reported: there is no memory. */
static ignis__sequence *ignis__sequence_make(const char *call, ignis__model *model, ignis__engine *e)
{
    int64_t pages = ignis__ceil_div(e->context, IGNIS__PAGE);
    ignis__sequence *s = (ignis__sequence *)ignis__pool_take(call, &ignis__sequences);
    if (!s)
        return NULL;
    memset((char *)s + sizeof s->slot, 0, sizeof *s - sizeof s->slot);
    s->model = model;
    s->engine = e;
    s->ids = (int32_t *)ignis__alloc(sizeof *s->ids * ((size_t)e->context + 1));
    s->page = (int32_t *)ignis__alloc(sizeof *s->page * (size_t)pages);
    s->many = (bool *)ignis__alloc(sizeof *s->many * ((size_t)e->context + 1));
    if (!s->ids || !s->page || !s->many)
        ignis__fail_host_memory(call, sizeof *s->ids * ((size_t)e->context + 1));
    else if (ignis__engine_room(call, e, &s->on_device, 1, (int64_t)e->context + 1, IGNIS_I32) &&
             ignis__engine_room(call, e, &s->table, 1, pages, IGNIS_I32))
        return s;
    if (s->on_device)
        ignis__array_unclaim(call, s->on_device);
    ignis__free(s->ids);
    ignis__free(s->page);
    ignis__free(s->many);
    ignis__pool_give(&ignis__sequences, s);
    return NULL;
}

/*  A sequence of a model, which gets its engine with the first one. */
static ignis_sequence ignis__sequence_new(const char *call, ignis_model handle)
{
    ignis_sequence none = IGNIS__ZERO;
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__sequence *s = NULL;
    ignis__engine *engine = NULL;
    if (!model)
        return none;
    if (!ignis__capture_refuses(call)) {
        ignis__mutex_lock(&model->slot.lock);
        if (!model->engine) {
            model->engine = ignis__engine_make(call, model);
            model->engine_destroy = ignis__engine_destroy;
        }
        engine = (ignis__engine *)model->engine;
        ignis__mutex_unlock(&model->slot.lock);
    }
    if (engine)
        s = ignis__sequence_make(call, model, engine);
    if (!s)
        ignis__model_drop(call, model);
    else
        none.id = ignis__pool_publish(&ignis__sequences, s);
    return none;
}

IGNIS_API ignis_sequence ignis_sequence_begin(ignis_model model) { return ignis__sequence_new("ignis_sequence_begin", model); }

IGNIS_API ignis_status ignis_sequence_feed(ignis_sequence sequence, const int32_t *ids, int count)
{
    static const char call[] = "ignis_sequence_feed";
    ignis__sequence *s = ignis__sequence_enter(call, sequence);
    bool ok = false;
    if (!s)
        return ignis__failed();
    if (count < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    else if (count && !ids)
        ignis__fail_null(call, "ids");
    else
        ok = ignis__sequence_knows(call, s, ids, count) && ignis__sequence_append(call, s, ids, count);
    ignis__sequence_leave(call, s);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API int32_t ignis_sequence_next(ignis_sequence sequence, const ignis_sampling_desc *sampling)
{
    static const char call[] = "ignis_sequence_next";
    ignis__sequence *s = ignis__sequence_enter(call, sequence);
    int32_t id = -1;
    if (!s)
        return -1;
    if (ignis__engine_run(call, &s, 1, sampling, true, NULL, NULL))
        id = s->ids[s->length - 1];
    ignis__sequence_leave(call, s);
    return id;
}

/*  Holds sequences of one model, each of them once, and locks their engine. False, and reported: then nothing is held. */
static bool ignis__sequences_enter(const char *call, const ignis_sequence *handles, int count, ignis__sequence **sequences)
{
    int i, j;
    bool ok = true;
    for (i = 0; ok && i < count; i++) {
        sequences[i] = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, handles[i].id);
        ok = sequences[i] != NULL;
        if (ok && sequences[i]->engine != sequences[0]->engine)
            ok = ignis__fail(IGNIS_DIAG_WRONG_MODEL, call, "sequences[%d] is of another model than sequences[0]", i) == IGNIS_OK;
        for (j = 0; ok && j < i; j++)
            if (sequences[j] == sequences[i])
                ok = ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "sequences[%d] is sequences[%d], too", i, j) == IGNIS_OK;
    }
    ok = ok && !ignis__capture_refuses(call);
    if (ok)
        ignis__engine_lock(call, sequences[0]->engine);
    while (!ok && --i >= 0)
        if (sequences[i])
            ignis__sequence_drop(call, sequences[i]);
    return ok;
}

IGNIS_API ignis_status ignis_sequence_next_all(const ignis_sequence *handles, int count, const ignis_sampling_desc *sampling, int32_t *ids)
{
    static const char call[] = "ignis_sequence_next_all";
    ignis__sequence **sequences;
    int i;
    bool ok = false;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    if (count == 0)
        return IGNIS_OK;
    if (!handles || !ids)
        return ignis__fail_null(call, handles ? "ids" : "sequences");
    for (i = 0; i < count; i++)
        ids[i] = -1;
    sequences = (ignis__sequence **)ignis__alloc(sizeof *sequences * (size_t)count);
    if (!sequences)
        return ignis__fail_host_memory(call, sizeof *sequences * (size_t)count);
    if (ignis__sequences_enter(call, handles, count, sequences)) {
        ok = ignis__engine_run(call, sequences, count, sampling, true, NULL, ids);
        ignis__mutex_unlock(&sequences[0]->engine->lock);
        for (i = 0; i < count; i++)
            ignis__sequence_drop(call, sequences[i]);
    }
    ignis__free(sequences);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_sequence_logits(ignis_sequence sequence, float *logits, int count)
{
    static const char call[] = "ignis_sequence_logits";
    ignis__sequence *s = ignis__sequence_enter(call, sequence);
    bool ok = false;
    if (!s)
        return ignis__failed();
    if (!logits)
        ignis__fail_null(call, "logits");
    else if (count != s->model->vocab)
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call, "count is %d; the model has %d tokens", count, s->model->vocab);
    else
        ok = ignis__engine_run(call, &s, 1, NULL, false, logits, NULL);
    ignis__sequence_leave(call, s);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_sequence_query(ignis_sequence sequence, ignis_sequence_info *info)
{
    static const char call[] = "ignis_sequence_query";
    ignis__sequence *s = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, sequence.id);
    ignis_status status = IGNIS_OK;
    if (!s)
        return ignis__failed();
    if (info) {
        ignis__mutex_lock(&s->engine->lock);
        memset(info, 0, sizeof *info);
        info->length = s->length;
        info->context = s->engine->context;
        info->free_tokens = (int)ignis__clamp((int64_t)s->engine->free_count * IGNIS__PAGE, 0, INT32_MAX);
        info->log_prob = (double)s->log_prob;
        ignis__mutex_unlock(&s->engine->lock);
    } else {
        status = ignis__fail_null(call, "info");
    }
    ignis__sequence_drop(call, s);
    return status;
}

IGNIS_API int ignis_sequence_length(ignis_sequence sequence)
{
    static const char call[] = "ignis_sequence_length";
    ignis__sequence *s = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, sequence.id);
    int length;
    if (!s)
        return -1;
    ignis__mutex_lock(&s->engine->lock);
    length = s->length;
    ignis__mutex_unlock(&s->engine->lock);
    ignis__sequence_drop(call, s);
    return length;
}

IGNIS_API int ignis_sequence_ids(ignis_sequence sequence, int32_t *ids, int capacity)
{
    static const char call[] = "ignis_sequence_ids";
    ignis__sequence *s = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, sequence.id);
    int length = -1;
    if (!s)
        return -1;
    if (capacity < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    } else if (capacity && !ids) {
        ignis__fail_null(call, "ids");
    } else {
        ignis__mutex_lock(&s->engine->lock);
        length = s->length;
        if (capacity)
            memcpy(ids, s->ids, sizeof *ids * (size_t)(length < capacity ? length : capacity));
        ignis__mutex_unlock(&s->engine->lock);
    }
    ignis__sequence_drop(call, s);
    return length;
}

IGNIS_API ignis_status ignis_sequence_truncate(ignis_sequence sequence, int length)
{
    static const char call[] = "ignis_sequence_truncate";
    ignis__sequence *s = ignis__sequence_enter(call, sequence);
    ignis_status status = IGNIS_OK;
    if (!s)
        return ignis__failed();
    if (length < 0 || length > s->length)
        status = ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "length is %d; the sequence has %d tokens", length, s->length);
    else
        ignis__sequence_cut(s, length);
    ignis__sequence_leave(call, s);
    return status;
}

IGNIS_API ignis_sequence ignis_sequence_fork(ignis_sequence sequence)
{
    static const char call[] = "ignis_sequence_fork";
    ignis_sequence none = IGNIS__ZERO;
    ignis__sequence *s = ignis__sequence_enter(call, sequence), *fork;
    int i;
    if (!s)
        return none;
    fork = ignis__sequence_make(call, s->model, s->engine);
    if (fork) {
        (void)ignis__pool_hold_more(s->model);
        memcpy(fork->ids, s->ids, sizeof *s->ids * (size_t)s->length);
        memcpy(fork->page, s->page, sizeof *s->page * (size_t)s->page_count);
        for (i = 0; i < s->page_count; i++)
            s->engine->uses[s->page[i]]++;
        fork->length = s->length;
        fork->page_count = s->page_count;
        fork->cached = s->cached;
        memcpy(fork->many, s->many, sizeof *s->many * (size_t)s->length);
        fork->last = s->last;
        fork->last_length = s->last_length;
        if (s->last)
            ignis__array_claim(s->last);
        fork->log_prob = s->log_prob;
        fork->grammar = s->grammar;
        fork->constrained = s->constrained, fork->matched = s->matched, fork->state = s->state, fork->epoch = s->epoch;
        if (s->grammar)
            s->grammar->uses++;
        none.id = ignis__pool_publish(&ignis__sequences, fork);
    }
    ignis__sequence_leave(call, s);
    return none;
}

/*  The engine's grammar of a text; null, and reported: it is none. Some that nobody uses any more are kept for those to come. */
static ignis__grammar *ignis__engine_grammar(const char *call, ignis__engine *e, ignis__model *model, const char *text)
{
    enum { KEPT = 8 };
    ignis__grammar **link, *g;
    ignis__tokenizer *tokenizer;
    int number = 0;
    if (!e->vocabulary) {
        ignis_tokenizer handle = ignis__model_tokenizer(model);
        tokenizer = handle.id ? ignis__tokenizer_hold(call, handle) : NULL;
        if (!tokenizer)
            return NULL;
        e->vocabulary = ignis__vocabulary_make(tokenizer, model->vocab, model->stops, model->stop_count);
        ignis__tokenizer_drop(tokenizer);
        if (!e->vocabulary) {
            ignis__fail_host_memory(call, sizeof *e->vocabulary);
            return NULL;
        }
    }
    for (link = &e->grammars; (g = *link) != NULL && strcmp(g->source, text) != 0; number++)
        if (number >= KEPT && g->uses == 0) {
            *link = g->next;
            ignis__grammar_free(g);
        } else {
            link = &g->next;
        }
    if (g)
        *link = g->next;
    else if ((g = ignis__grammar_make(call, text)) != NULL)
        g->number = ++e->grammars_made;
    if (g) {
        g->next = e->grammars;
        e->grammars = g;
    }
    return g;
}

IGNIS_API ignis_status ignis_sequence_grammar(ignis_sequence sequence, const char *grammar)
{
    static const char call[] = "ignis_sequence_grammar";
    ignis__sequence *s = ignis__sequence_enter(call, sequence);
    ignis__grammar *g = NULL;
    bool ok;
    if (!s)
        return ignis__failed();
    if (grammar)
        g = ignis__engine_grammar(call, s->engine, s->model, grammar);
    ok = !grammar || g;
    if (ok && s->grammar)
        s->grammar->uses--;
    if (ok) {
        s->grammar = g;
        s->constrained = s->length;
        s->epoch = 0;
    }
    if (g)
        g->uses++;
    ignis__sequence_leave(call, s);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_sequence_free(ignis_sequence sequence)
{
    static const char call[] = "ignis_sequence_free";
    const uint64_t failures = ignis__failures();
    ignis__sequence *s;
    bool live;
    if (!sequence.id)
        return IGNIS_OK;
    s = ignis__sequence_hold(call, sequence);
    if (!s)
        return ignis__failed();
    live = ignis__handle_kill(s);
    ignis__sequence_drop(call, s);
    return live ? ignis__ended(failures, true) : ignis__fail(IGNIS_DIAG_SEQUENCE_FREED, call, "another thread has freed the sequence");
}

/* --- text out --------------------------------------------------------------------------------------------------------------- */

/*  Text that was not shown yet. */
typedef struct ignis__showing {
    const char *call;
    const ignis_generate_desc *desc;
    ignis_text_stream stream;
    int tokens; /* that the tokenizer has; those behind them are no text */
    char *text;
    size_t size, capacity;
    int stop; /* that has come; -1: none */
    bool cancelled;
} ignis__showing;

/*  Room for so many bytes more. */
static bool ignis__showing_room(ignis__showing *show, size_t more)
{
    size_t capacity = show->capacity ? show->capacity : 256;
    char *text;
    if (show->size + more <= show->capacity)
        return true;
    while (capacity < show->size + more)
        capacity *= 2;
    text = (char *)ignis__alloc(capacity);
    if (!text)
        return ignis__fail_host_memory(show->call, capacity) == IGNIS_OK;
    if (show->size)
        memcpy(text, show->text, show->size);
    ignis__free(show->text);
    show->text = text;
    show->capacity = capacity;
    return true;
}

/*  Whether the text has a stop at a place, or, there being too little of it, may have it yet. */
static bool ignis__showing_may_stop(const ignis__showing *show, size_t at, int stop, bool *whole)
{
    size_t length = strlen(show->desc->stops[stop]), left = show->size - at;
    *whole = left >= length;
    return memcmp(show->text + at, show->desc->stops[stop], *whole ? length : left) == 0;
}

/*  Shows what may be shown: up to a stop, or to where one may begin; ends: all of it. */
static void ignis__showing_go(ignis__showing *show, bool ends)
{
    size_t shown = 0;
    bool whole, held = false;
    int i;
    while (shown < show->size && show->stop < 0 && !held) {
        for (i = 0; i < show->desc->stop_count && show->stop < 0; i++)
            if (ignis__showing_may_stop(show, shown, i, &whole)) {
                show->stop = whole ? i : show->stop;
                held = held || (!whole && !ends);
            }
        shown += show->stop < 0 && !held;
    }
    if (shown > 0 && !show->cancelled && show->desc->text_fn)
        show->cancelled = !show->desc->text_fn(show->text, shown, show->desc->user_data);
    memmove(show->text, show->text + shown, show->size - shown);
    show->size -= shown;
}

/*  Takes one more token; below 0: the text has ended. */
static bool ignis__showing_put(ignis__showing *show, int32_t id)
{
    int room = 64, size;
    if (!show->stream.tokenizer.id || id >= show->tokens)
        return true;
    for (;;) {
        if (!ignis__showing_room(show, (size_t)room))
            return false;
        size = id < 0 ? ignis_text_stream_end(&show->stream, show->text + show->size, room)
                      : ignis_text_stream_put(&show->stream, id, show->text + show->size, room);
        if (size < 0)
            return false;
        if (size <= room)
            break;
        room = size;
    }
    show->size += (size_t)size;
    ignis__showing_go(show, id < 0);
    return true;
}

/*  False, and reported: a number or text of desc is none. */
static bool ignis__generate_check(const char *call, const ignis_generate_desc *desc)
{
    int i;
    if (desc->max_tokens < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->max_tokens is %d, below 0", desc->max_tokens) == IGNIS_OK;
    if (desc->stop_count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->stop_count is %d, below 0", desc->stop_count) == IGNIS_OK;
    if (desc->end_count > 0 && !desc->ends)
        return ignis__fail_null(call, "desc->ends") == IGNIS_OK;
    if (desc->stop_count && !desc->stops)
        return ignis__fail_null(call, "desc->stops") == IGNIS_OK;
    for (i = 0; i < desc->stop_count; i++)
        if (!desc->stops[i] || !*desc->stops[i])
            return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->stops[%d] is %s", i, desc->stops[i] ? "empty" : "null") == IGNIS_OK;
    return true;
}

/*  Queues the step of a token, whose id may still be known to the device alone; what it draws is in `draws` when the event has come. goes_on:
    it is behind the step of the token before, which has left its row as this one needs it. Null: a failure. */
static ignis__spare_event *ignis__generate_queue(const char *call, ignis__sequence *s, int position, const ignis_sampling_desc *sampling,
                                                 bool goes_on)
{
    ignis__engine *e = s->engine;
    ignis__spare_event *drawn = NULL;
    ignis__generate_row row;
    ignis__op op;
    if (!ignis__next_begin(&op, call, e->device))
        return NULL;
    ignis__sequence_take_pages(&op, s, position, position + 1);
    if (!goes_on) {
        ignis__sequence_row(&op, s, position, &row);
        ignis__sampling_row(e, 0, sampling, &row);
        ignis__step_rows(&op, e->model->dtype, e->rows, &row, 1);
    }
    ignis__engine_step(&op, e, 1, ignis__sampling_cuts(sampling) ? IGNIS__DRAWS_CUT : IGNIS__DRAWS_ALL);
    if (op.ok)
        drawn = ignis__event_record(call, e->device, e->ahead.stream = op.work.stream);
    op.ok = op.ok && drawn;
    (void)ignis__engine_leave(&op);
    return drawn;
}

/*  Draws one token; -1: the context is full, -2: a failure, -3: its grammar has come to its end. goes_on: one more is likely to come, and is drawn
    while the caller has this one. */
static int32_t ignis__generate_next(const char *call, ignis__sequence *s, const ignis_sampling_desc *sampling, bool goes_on)
{
    ignis__engine *e = s->engine;
    ignis__spare_event *drawn = NULL, *next = NULL;
    const ignis__grammar_state *state;
    ignis__binding binding;
    const ignis__generate_draw *draw;
    int32_t id = -2;
    bool ok, alone, fails = false;
    if (ignis__capture_refuses(call)) /* which the caller's text_fn has begun */
        return -2;
    ignis__mutex_lock(&e->lock);
    if (e->ahead.sequence == s && e->ahead.length == s->length && e->ahead.sampling == sampling &&
        e->ahead.stream == ignis__stream_now(e->device)) {
        drawn = e->ahead.drawn;
        e->ahead.sequence = NULL;
    }
    ignis__engine_settle(call, e);
    alone = !drawn && (!goes_on || s->length == 0 || ignis__sequence_ready(s) || sampling->bias_count || s->grammar ||
                       e->model->parallel.size > 1); /* ranks compare what they work with, step by step */
    state = s->grammar && s->length ? ignis__sequence_match(call, s) : NULL;
    if (state && state->count == 0)
        id = -3;
    else if (s->length >= e->context)
        id = -1;
    else if (alone && (state || !s->grammar || !s->length) && ignis__engine_run(call, &s, 1, sampling, true, NULL, NULL))
        id = s->ids[s->length - 1];
    fails = id == -2 && !alone && !ignis__model_plain(call, s->model); /* with a token drawn ahead, too */
    ok = id == -2 && !alone && !fails;
    if (ok && !drawn)
        drawn = ignis__sampling_check(call, sampling, e->model->vocab) &&
                        ignis__engine_has_pages(call, e, ignis__sequence_pages_needed(s, s->length - 1, s->length))
                    ? ignis__generate_queue(call, s, s->length - 1, sampling, false)
                    : NULL;
    if (ok && drawn && goes_on && s->length + 1 < e->context && !sampling->bias_count &&
        ignis__sequence_pages_needed(s, s->length, s->length + 1) <= e->free_count) {
        next = ignis__generate_queue(call, s, s->length, sampling, true);
        fails = !next; /* then this token is not there either */
    }
    if (drawn) {
        if (ignis__device_enter(call, e->device, &binding)) {
            if (!IGNIS__CUDA_FAILED(call, e->device, cuEventSynchronize, (drawn->event)) && !fails) {
                draw = &e->draws[(s->length - 1) % 2];
                s->cached = s->length;
                if (draw->id < 0) {
                    ignis__draw_fail(call, draw->id, -1);
                } else {
                    id = draw->id;
                    s->log_prob = draw->log_prob;
                    s->many[s->length] = false;
                    s->ids[s->length++] = id;
                    s->sent = s->length;
                }
            }
            ignis__device_leave(&binding);
        }
        ignis__event_give(e->device, drawn);
    }
    if (next) {
        e->ahead.sequence = s;
        e->ahead.drawn = next;
        e->ahead.sampling = sampling;
        e->ahead.length = s->length;
        if (id < 0) /* then it comes behind a token that is not there */
            ignis__engine_settle(call, e);
    }
    ignis__mutex_unlock(&e->lock);
    return id;
}

static bool ignis__generate_ends(const ignis__sequence *s, const ignis_generate_desc *desc, int32_t id)
{
    const int32_t *ends = desc->end_count > 0 ? desc->ends : s->model->stops;
    int count = desc->end_count > 0 ? desc->end_count : desc->end_count < 0 ? 0 : s->model->stop_count, i;
    for (i = 0; i < count && ends[i] != id;)
        i++;
    return i < count;
}

/*  The loop of ignis_generate, on a held sequence. */
static bool ignis__generate_run(ignis__showing *show, ignis__sequence *s, ignis_generate_info *info)
{
    const ignis_generate_desc *desc = show->desc;
    int64_t begin = ignis__monotonic_ns();
    int32_t id;
    while (!info->ending) {
        if (desc->max_tokens && info->tokens == desc->max_tokens) {
            info->ending = IGNIS_ENDING_LENGTH;
            break;
        }
        id = ignis__generate_next(show->call, s, &desc->sampling, desc->max_tokens == 0 || info->tokens + 1 < desc->max_tokens);
        info->seconds = (double)(ignis__monotonic_ns() - begin) * 1e-9;
        if (id == -2)
            return false;
        if (id < 0) {
            info->ending = id == -1 ? IGNIS_ENDING_CONTEXT : IGNIS_ENDING_GRAMMAR;
            break;
        }
        info->first = info->tokens++ ? info->first : info->seconds;
        if (ignis__generate_ends(s, desc, id))
            info->ending = IGNIS_ENDING_TOKEN;
        else if (!ignis__showing_put(show, id))
            return false;
        else if (show->cancelled)
            info->ending = IGNIS_ENDING_CALLER;
        else if (show->stop >= 0)
            info->ending = IGNIS_ENDING_STOP;
    }
    if (show->cancelled || show->stop >= 0)
        return true;
    if (!ignis__showing_put(show, -1))
        return false;
    info->ending = show->stop >= 0 ? IGNIS_ENDING_STOP : info->ending;
    return true;
}

IGNIS_API ignis_status ignis_generate(ignis_sequence sequence, const ignis_generate_desc *desc)
{
    static const char call[] = "ignis_generate";
    static const ignis_generate_desc defaults = IGNIS__ZERO;
    ignis__sequence *s;
    ignis_generate_info info = IGNIS__ZERO;
    ignis_tokenizer_info tokenizer;
    ignis__showing show;
    bool ok;
    info.stop = -1;
    if (desc && desc->info)
        *desc->info = info;
    s = ignis__sequence_hold(call, sequence);
    if (!s)
        return ignis__failed();
    memset(&show, 0, sizeof show);
    show.call = call;
    show.desc = desc ? desc : &defaults;
    show.stop = -1;
    ok = ignis__generate_check(call, show.desc);
    if (ok && (show.desc->text_fn || show.desc->stop_count)) {
        show.stream.tokenizer = ignis__model_tokenizer(s->model);
        show.stream.inside = true;
        ok = show.stream.tokenizer.id && ignis_tokenizer_query(show.stream.tokenizer, &tokenizer) == IGNIS_OK;
        show.tokens = ok ? tokenizer.tokens : 0;
    }
    if (ok) {
        ok = ignis__generate_run(&show, s, &info);
        ignis__engine_lock(call, s->engine);
        ignis__mutex_unlock(&s->engine->lock);
    }
    info.stop = show.stop;
    info.ending = ok ? info.ending : IGNIS_ENDING_NONE;
    if (desc && desc->info)
        *desc->info = info;
    ignis__free(show.text);
    ignis__sequence_drop(call, s);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  The ids of a text for a sequence, which is locked; null, and reported: there are none. */
static int32_t *ignis__sequence_encode(const char *call, const ignis__sequence *s, ignis_tokenizer tokenizer, const char *text,
                                       int64_t size, int *count)
{
    ignis_encode_desc encode = IGNIS__ZERO;
    int32_t *ids = NULL;
    encode.no_bos = s->length > 0;
    *count = ignis_tokenizer_encode(tokenizer, text, size, &encode, NULL, 0);
    if (*count < 0)
        return NULL;
    ids = (int32_t *)ignis__alloc(sizeof *ids * ((size_t)*count + 1));
    if (!ids)
        ignis__fail_host_memory(call, sizeof *ids * ((size_t)*count + 1));
    else if (ignis_tokenizer_encode(tokenizer, text, size, &encode, ids, *count) == *count)
        return ids;
    ignis__free(ids);
    return NULL;
}

IGNIS_API ignis_status ignis_sequence_text(ignis_sequence sequence, const char *text, int64_t size)
{
    static const char call[] = "ignis_sequence_text";
    ignis__sequence *s = ignis__sequence_enter(call, sequence);
    ignis_tokenizer tokenizer = IGNIS__ZERO;
    int32_t *ids = NULL;
    int count = 0;
    bool ok;
    if (!s)
        return ignis__failed();
    if (!text)
        ignis__fail_null(call, "text");
    else if (size < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld, below 0", (long long)size);
    else
        tokenizer = ignis__model_tokenizer(s->model);
    if (tokenizer.id)
        ids = ignis__sequence_encode(call, s, tokenizer, text, size, &count);
    ok = ids && ignis__sequence_knows(call, s, ids, count) && ignis__sequence_append(call, s, ids, count);
    ignis__free(ids);
    ignis__sequence_leave(call, s);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  What a sequence has in common with tokens stays, the rest is computed. */
static bool ignis__sequence_become(const char *call, ignis__sequence *s, const int32_t *ids, int count)
{
    int common = 0;
    if (count > s->engine->context)
        return ignis__fail(IGNIS_DIAG_CONTEXT_FULL, call, "%d tokens do not fit the context of %d", count, s->engine->context) == IGNIS_OK;
    if (!ignis__sequence_knows(call, s, ids, count))
        return false;
    while (common < count && common < s->length && s->ids[common] == ids[common])
        common++;
    ignis__sequence_cut(s, common);
    return ignis__sequence_append(call, s, ids + common, count - common);
}

IGNIS_API ignis_status ignis_sequence_set(ignis_sequence sequence, const int32_t *ids, int count)
{
    static const char call[] = "ignis_sequence_set";
    ignis__sequence *s = ignis__sequence_enter(call, sequence);
    bool ok = false;
    if (!s)
        return ignis__failed();
    if (count < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    else if (count && !ids)
        ignis__fail_null(call, "ids");
    else
        ok = ignis__sequence_become(call, s, ids, count);
    ignis__sequence_leave(call, s);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_sequence_chat(ignis_sequence sequence, const ignis_message *messages, int count)
{
    static const char call[] = "ignis_sequence_chat";
    ignis__sequence *s = ignis__sequence_hold(call, sequence); /* others' sequences go on while the template runs */
    ignis_chat_desc desc = IGNIS__ZERO;
    ignis_tokenizer tokenizer;
    int32_t *ids = NULL;
    int tokens = -1;
    bool ok;
    if (!s)
        return ignis__failed();
    desc.add_generation_prompt = true;
    desc.now = ignis__wall_ns() / 1000000000; /* the same for both calls */
    tokenizer = ignis__model_tokenizer(s->model);
    if (tokenizer.id)
        tokens = ignis_chat_encode(tokenizer, messages, count, &desc, NULL, 0);
    if (tokens >= 0)
        ids = (int32_t *)ignis__alloc(sizeof *ids * ((size_t)tokens + 1));
    if (tokens >= 0 && !ids)
        ignis__fail_host_memory(call, sizeof *ids * ((size_t)tokens + 1));
    ok = ids && ignis_chat_encode(tokenizer, messages, count, &desc, ids, tokens) == tokens;
    if (ok) {
        ignis__engine_lock(call, s->engine);
        ok = ignis__sequence_become(call, s, ids, tokens);
        ignis__mutex_unlock(&s->engine->lock);
    }
    ignis__free(ids);
    ignis__sequence_drop(call, s);
    return ok ? IGNIS_OK : ignis__failed();
}

/* --- warming up ------------------------------------------------------------------------------------------------------------- */

typedef struct ignis__model_warmup {
    const char *call;
    const ignis_model_warmup_desc *desc;
    ignis__sequence **sequences;
    int32_t *ids; /* of a prompt: token 0, which every model has */
    int count, tokens, done, total;
} ignis__model_warmup;

/*  Begins a part of the work, if it is wanted: from here on the engine is locked. */
static bool ignis__model_warmup_begin(ignis__model_warmup *w)
{
    if (w->desc->progress_fn && !w->desc->progress_fn(w->done, w->total, w->desc->user_data))
        return ignis__fail(IGNIS_DIAG_MODEL_CANCELLED, w->call, "desc.progress_fn has returned false, at %d of %d parts", w->done,
                           w->total) == IGNIS_OK;
    w->done++;
    ignis__engine_lock(w->call, w->sequences[0]->engine);
    return true;
}

/*  Two steps of as many sequences with each way of drawing: the first compiles, the second captures. */
static bool ignis__model_warmup_steps(ignis__model_warmup *w, int count)
{
    ignis_sampling_desc *sampling = (ignis_sampling_desc *)ignis__alloc_for(w->call, sizeof *sampling * (size_t)count);
    bool ok = sampling != NULL;
    int i, turn;
    if (!ok || !ignis__model_warmup_begin(w)) {
        ignis__free(sampling);
        return false;
    }
    memset(sampling, 0, sizeof *sampling * (size_t)count);
    for (turn = 0; ok && turn < 4; turn++) {
        for (i = 0; ok && i < count; i++) {
            ignis__sequence_cut(w->sequences[i], 0);
            ok = ignis__sequence_append(w->call, w->sequences[i], w->ids, 1);
            sampling[i].temperature = 1;
            sampling[i].top_k = turn / 2;
        }
        ok = ok && ignis__engine_run(w->call, w->sequences, count, sampling, true, NULL, NULL);
    }
    for (i = 0; i < count; i++)
        ignis__sequence_cut(w->sequences[i], 0);
    ignis__mutex_unlock(&w->sequences[0]->engine->lock);
    ignis__free(sampling);
    return ok;
}

/*  A prompt of one sequence, in calls of as many tokens, and the token behind it. */
static bool ignis__model_warmup_prompt(ignis__model_warmup *w, int length, int tokens)
{
    ignis__sequence *s = w->sequences[0];
    int some;
    bool ok = true;
    if (!ignis__model_warmup_begin(w))
        return false;
    for (ignis__sequence_cut(s, 0); ok && s->length < length;) {
        some = length - s->length < tokens ? length - s->length : tokens;
        ok = ignis__sequence_append(w->call, s, w->ids, some);
    }
    ok = ok && ignis__engine_run(w->call, &s, 1, NULL, s->length < s->engine->context, NULL, NULL);
    ignis__sequence_cut(s, 0);
    ignis__mutex_unlock(&s->engine->lock);
    return ok;
}

/*  All parts, or, where total is 0, only their number. Kernels for up to 64 rows go by powers of 2; those of more by tiles of 64 rows and more, which
    pieces of 8 rows show all of. */
static bool ignis__model_warmup_parts(ignis__model_warmup *w, int context)
{
    const bool counts = w->total == 0;
    int most = w->count < IGNIS__STEP_ROWS ? w->count : (int)IGNIS__STEP_ROWS, parts = 0, size;
    bool ok = true;
    for (size = 1; ok && context > 1 && size < 2 * most; size *= 2, parts++) /* a context of one token has room for none behind it */
        ok = counts || ignis__model_warmup_steps(w, size < most ? size : most);
    for (size = 1; ok && size < w->tokens && size < context && size <= IGNIS__STEP_ROWS; size *= 2, parts++) /* the last token waits */
        ok = counts || ignis__model_warmup_prompt(w, size < IGNIS__STEP_ROWS ? size + 1 : size, IGNIS__STEP_ROWS);
    for (size = IGNIS__STEP_ROWS + 8; ok && size <= w->tokens && size <= context; size += 8, parts++)
        ok = counts || ignis__model_warmup_prompt(w, size, size);
    ok = ok && (counts || ignis__model_warmup_prompt(w, context, w->tokens));
    if (counts)
        w->total = parts + 1;
    return ok;
}

IGNIS_API ignis_status ignis_model_warmup(ignis_model model, const ignis_model_warmup_desc *desc)
{
    static const char call[] = "ignis_model_warmup";
    static const ignis_model_warmup_desc defaults = IGNIS__ZERO;
    ignis__model_warmup w;
    ignis__model *m;
    int made = 0, context;
    bool ok;
    memset(&w, 0, sizeof w);
    w.call = call;
    w.desc = desc ? desc : &defaults;
    if (w.desc->sequences < 0 || w.desc->tokens < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.sequences is %d and desc.tokens %d; both are 0 or more", w.desc->sequences,
                           w.desc->tokens);
    m = ignis__model_hold(call, model);
    if (!m)
        return ignis__failed();
    w.count = w.desc->sequences && w.desc->sequences < m->sequences ? w.desc->sequences : m->sequences;
    context = m->room;
    w.tokens = w.desc->tokens && w.desc->tokens < IGNIS__CHUNK ? w.desc->tokens : (int)IGNIS__CHUNK;
    ignis__model_drop(call, m);
    w.sequences = (ignis__sequence **)ignis__alloc_for(call, sizeof *w.sequences * (size_t)w.count);
    w.ids = (int32_t *)ignis__alloc_for(call, sizeof *w.ids * IGNIS__CHUNK);
    ok = w.sequences && w.ids;
    if (ok)
        memset(w.ids, 0, sizeof *w.ids * IGNIS__CHUNK);
    for (; ok && made < w.count; made += ok) {
        ignis_sequence sequence = ignis__sequence_new(call, model);
        w.sequences[made] = sequence.id ? ignis__sequence_hold(call, sequence) : NULL;
        ok = w.sequences[made] != NULL;
    }
    (void)(ok && ignis__model_warmup_parts(&w, context)); /* their number */
    ok = ok && ignis__model_warmup_parts(&w, context);
    if (ok && w.desc->progress_fn)
        (void)w.desc->progress_fn(w.total, w.total, w.desc->user_data);
    while (made-- > 0) {
        ignis__handle_kill(w.sequences[made]);
        ignis__sequence_drop(call, w.sequences[made]);
    }
    ignis__free(w.sequences);
    ignis__free(w.ids);
    return ok ? IGNIS_OK : ignis__failed();
}

static void ignis__sequences_close(const char *call)
{
    ignis__sequence *s;
    uint64_t index = 0;
    while ((s = (ignis__sequence *)ignis__pool_next(&ignis__sequences, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "sequence of %d tokens on device %d", s->length,
                           (int)(s->engine->device - ignis__devices));
        ignis__handle_kill(s);
        ignis__sequence_drop(call, s);
    }
}

#endif /* IGNIS_MODELS */

#endif /* IGNIS_NO_TENSORS */

/* ===============================================================================================================
   >>dlpack - arrays from and for other libraries.
   =============================================================================================================== */

enum { IGNIS__DLPACK_CUDA = 2, IGNIS__DLPACK_READ_ONLY = 1 };

static const struct {
    uint8_t code, bits;
    ignis_dtype dtype;
} ignis__dlpack_dtypes[] = {{2, 16, IGNIS_F16}, {4, 16, IGNIS_BF16}, {2, 32, IGNIS_F32}, {2, 64, IGNIS_F64},     {0, 32, IGNIS_I32},
                            {0, 64, IGNIS_I64}, {1, 8, IGNIS_U8},    {6, 8, IGNIS_U8},   {10, 8, IGNIS_F8_E4M3}, {12, 8, IGNIS_F8_E5M2}};

/*  What is lent: the struct that the other side has, and the view that keeps the memory. From malloc, as it may outlive ignis_shutdown. */
typedef struct ignis__lent_out {
    union {
        ignis_dlpack plain;
        ignis_dlpack_versioned versioned;
    } managed;
    int64_t shape[IGNIS_MAX_DIMS], strides[IGNIS_MAX_DIMS];
    ignis_array view;
} ignis__lent_out;

/*  Frees the view, unless ignis_shutdown has. The other side may call this wherever it likes, and it has no way to fail. */
IGNIS__COLD static void ignis__dlpack_give_back(void *context)
{
    ignis__lent_out *lent = (ignis__lent_out *)context;
    bool here = ignis__atomic_load(&ignis__global.ready) && !ignis__atomic_load(&ignis__global.forked);
    ignis__array *array = here ? (ignis__array *)ignis__pool_hold(&ignis__arrays, lent->view.id) : NULL;
    if (array) {
        ignis__mutex_lock(&array->slot.lock);
        (void)ignis__array_kill(array);
        ignis__array_unlock(array);
        ignis__array_drop("the deleter of ignis_array_to_dlpack", array);
    }
    free(lent);
}
static void ignis__dlpack_delete(ignis_dlpack *self) { ignis__dlpack_give_back(self->context); }
static void ignis__dlpack_delete_versioned(ignis_dlpack_versioned *self) { ignis__dlpack_give_back(self->context); }

IGNIS__COLD static bool ignis__dlpack_major(const char *call, int major)
{
    if (major == 0 || major == 1)
        return true;
    return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "major is %d; 0 and 1 are known", major);
}

/*  Lets `later` wait for `earlier` on a device that is entered; null is nobody. */
IGNIS__COLD static bool ignis__dlpack_order(const char *call, ignis__device *device, void *other, void *earlier, void *later)
{
    return !other || ((other == device->stream || ignis__stream_adopt(call, device, other) != 0) &&
                      ignis__stream_order(call, device, earlier, device, later));
}

/*  Describes the memory at an address. */
IGNIS__COLD static void *ignis__dlpack_describe(ignis__lent_out *lent, const ignis__array *array, ignis__address address, int major)
{
    ignis_dlpack_tensor *tensor = major ? &lent->managed.versioned.tensor : &lent->managed.plain.tensor;
    int64_t stride = 1;
    int i;
    tensor->data = (void *)(uintptr_t)address;
    tensor->device_type = IGNIS__DLPACK_CUDA;
    tensor->device_id = (int32_t)(array->storage->device - ignis__devices);
    tensor->ndim = array->shape.ndim;
    for (i = 0; ignis__dlpack_dtypes[i].dtype != array->dtype; i++)
        ;
    tensor->code = ignis__dlpack_dtypes[i].code;
    tensor->bits = ignis__dlpack_dtypes[i].bits;
    tensor->lanes = 1;
    tensor->shape = lent->shape;
    tensor->strides = lent->strides;
    for (i = array->shape.ndim - 1; i >= 0; i--) {
        lent->shape[i] = array->shape.dim[i];
        lent->strides[i] = stride;
        stride *= array->shape.dim[i] > 1 ? array->shape.dim[i] : 1;
    }
    if (!major) {
        lent->managed.plain.context = lent;
        lent->managed.plain.deleter = ignis__dlpack_delete;
        return &lent->managed.plain;
    }
    lent->managed.versioned.major = 1;
    lent->managed.versioned.context = lent;
    lent->managed.versioned.deleter = ignis__dlpack_delete_versioned;
    return &lent->managed.versioned;
}

IGNIS__COLD IGNIS_API void *ignis_array_to_dlpack(ignis_array handle, int major, void *stream)
{
    static const char call[] = "ignis_array_to_dlpack";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__lent_out *lent = NULL;
    ignis__address address = 0;
    ignis__work work;
    uint64_t base;
    void *managed = NULL;
    if (!array)
        return NULL;
    if (ignis__dlpack_major(call, major) && !ignis__capture_refuses(call) && ignis__work_begin(call, array->storage->device, &work)) {
        if (ignis__work_address(&work, array, &address) && ignis__dlpack_order(call, work.device, stream, work.stream, stream) &&
            (!stream || ignis__storage_use(call, array->storage, work.device, stream, &base))) {
            lent = (ignis__lent_out *)calloc(1, sizeof *lent);
            if (!lent)
                ignis__fail_host_memory(call, sizeof *lent);
        }
        if (lent)
            lent->view = ignis__array_view(call, array, &array->shape, array->numel, 0);
        if (lent && lent->view.id) {
            ignis__atomic_store(&array->storage->lent, 1);
            managed = ignis__dlpack_describe(lent, array, address, major);
        } else {
            free(lent);
        }
        ignis__work_end(&work);
    }
    (void)ignis__array_end(call, array, managed != NULL);
    return managed;
}

/*  Gives memory of another library back. */
static void ignis__dlpack_return(void *ptr, void *managed)
{
    ignis_dlpack *plain = (ignis_dlpack *)managed;
    (void)ptr;
    if (plain->deleter)
        plain->deleter(plain);
}

static void ignis__dlpack_return_versioned(void *ptr, void *managed)
{
    ignis_dlpack_versioned *versioned = (ignis_dlpack_versioned *)managed;
    (void)ptr;
    if (versioned->deleter)
        versioned->deleter(versioned);
}

/*  What an array over the memory would be; false, and reported: there can be none. */
IGNIS__COLD static bool ignis__dlpack_read(const char *call, const ignis_dlpack_tensor *tensor, ignis_array_desc *desc, int64_t *numel)
{
    int64_t stride = 1;
    int i, at = IGNIS__COUNT(ignis__dlpack_dtypes);
    memset(desc, 0, sizeof *desc);
    if (tensor->device_type != IGNIS__DLPACK_CUDA)
        return ignis__refuse(IGNIS_DIAG_UNSUPPORTED, call,
                             "the memory is of DLPack's device type %d; 2, of a CUDA device, is what arrays have",
                             (int)tensor->device_type);
    if (!ignis__device_get(call, tensor->device_id))
        return false;
    desc->device = tensor->device_id ? tensor->device_id : IGNIS_DEVICE_0;
    while (--at >= 0 && !(ignis__dlpack_dtypes[at].code == tensor->code && ignis__dlpack_dtypes[at].bits == tensor->bits))
        ;
    if (at < 0 || tensor->lanes != 1)
        return ignis__refuse(IGNIS_DIAG_DTYPE_DIFFERS, call, "elements of code %d, %d bits and %d lanes are none of Ignis' types",
                             tensor->code, tensor->bits, tensor->lanes);
    desc->dtype = ignis__dlpack_dtypes[at].dtype;
    if (tensor->ndim < 0 || tensor->ndim > IGNIS_MAX_DIMS || (tensor->ndim > 0 && !tensor->shape))
        return ignis__refuse(IGNIS_DIAG_SHAPE_RANK, call, "it has %d dimensions; up to %d are possible", (int)tensor->ndim, IGNIS_MAX_DIMS);
    desc->shape.ndim = tensor->ndim > 0 ? tensor->ndim : 1;
    desc->shape.dim[0] = 1;
    for (i = 0; i < tensor->ndim; i++)
        desc->shape.dim[i] = tensor->shape[i];
    if (!ignis__shape_check(call, &desc->shape, desc->dtype, numel))
        return false;
    /* without elements there are no places that strides could tell */
    for (i = tensor->ndim - 1; tensor->strides && *numel > 0 && i >= 0; i--) {
        if (tensor->shape[i] > 1 && tensor->strides[i] != stride)
            return ignis__refuse(IGNIS_DIAG_SLICE_STRIDED, call, "dimension %d has a stride of %lld elements; %lld would be contiguous", i,
                                 (long long)tensor->strides[i], (long long)stride);
        stride *= tensor->shape[i] > 1 ? tensor->shape[i] : 1;
    }
    desc->ptr = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
    desc->tag = "dlpack";
    if (*numel > 0 && (uintptr_t)desc->ptr % (uintptr_t)ignis__dtypes[desc->dtype].size != 0)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "its address %p is no multiple of the %d bytes of an element", desc->ptr,
                             ignis__dtypes[desc->dtype].size);
    return true;
}

/*  An array over it. One of no elements has no memory to give back later. */
IGNIS__COLD static ignis_array ignis__dlpack_wrap(const char *call, void *managed, int major, ignis_array_desc *desc, int64_t numel,
                                                  void *stream)
{
    ignis_array none = IGNIS__ZERO, array;
    ignis__device *device = ignis__device_get(call, desc->device == IGNIS_DEVICE_0 ? 0 : desc->device);
    void (*give_back)(void *ptr, void *managed) = major ? ignis__dlpack_return_versioned : ignis__dlpack_return;
    ignis__work work;
    bool ok;
    if (numel > 0 && !ignis__given(call, "managed.tensor.data", desc->ptr))
        return none;
    if (numel == 0) {
        desc->ptr = NULL;
    } else {
        desc->release_fn = give_back;
        desc->release_data = managed;
    }
    if (!ignis__work_begin(call, device, &work))
        return none;
    ok = ignis__dlpack_order(call, device, stream, stream, work.stream);
    ignis__work_end(&work);
    array = ok ? ignis__array_create(call, desc) : none;
    if (array.id && numel == 0)
        give_back(NULL, managed);
    return array;
}

IGNIS__COLD IGNIS_API ignis_array ignis_array_from_dlpack(void *managed, int major, void *stream)
{
    static const char call[] = "ignis_array_from_dlpack";
    const ignis_dlpack_versioned *versioned = (const ignis_dlpack_versioned *)managed;
    ignis_array none = IGNIS__ZERO;
    ignis_array_desc desc;
    int64_t numel;
    if (!ignis__enter(call) || !ignis__dlpack_major(call, major) || ignis__capture_refuses(call))
        return none;
    if (!ignis__given(call, "managed", managed))
        return none;
    if (major && versioned->major != 1) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the struct is of version %u.%u of DLPack, and not of 1", (unsigned)versioned->major,
                    (unsigned)versioned->minor);
        return none;
    }
    if (major && (versioned->flags & IGNIS__DLPACK_READ_ONLY)) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "the memory is read-only, and arrays can be written");
        return none;
    }
    if (!ignis__dlpack_read(call, major ? &versioned->tensor : &((const ignis_dlpack *)managed)->tensor, &desc, &numel))
        return none;
    return ignis__dlpack_wrap(call, managed, major, &desc, numel, stream);
}

/* ===============================================================================================================
   >>graphics - memory and fences of Vulkan, Direct3D 12 and OpenGL.
   =============================================================================================================== */

/*  The driver's structs and numbers. */
typedef union ignis__os_handle {
    int fd;
    struct {
        void *handle;
        const void *name;
    } win32;
} ignis__os_handle;

typedef struct ignis__external_memory_desc { /* CUDA_EXTERNAL_MEMORY_HANDLE_DESC */
    int type;
    ignis__os_handle os;
    unsigned long long size;
    unsigned flags, reserved[16];
} ignis__external_memory_desc;

typedef struct ignis__external_part { /* CUDA_EXTERNAL_MEMORY_BUFFER_DESC */
    unsigned long long offset, size;
    unsigned flags, reserved[16];
} ignis__external_part;

typedef struct ignis__semaphore_desc { /* CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC */
    int type;
    ignis__os_handle os;
    unsigned flags, reserved[16];
} ignis__semaphore_desc;

typedef struct ignis__semaphore_value { /* CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS and _WAIT_PARAMS */
    unsigned long long value, other[2];
    unsigned unused[12];
    unsigned flags, reserved[16];
} ignis__semaphore_value;

enum {
    IGNIS__CU_MEMORY_FD = 1,
    IGNIS__CU_MEMORY_WIN32 = 2,
    IGNIS__CU_MEMORY_D3D12_HEAP = 4,
    IGNIS__CU_MEMORY_D3D12_RESOURCE = 5,
    IGNIS__CU_MEMORY_DEDICATED = 1,
    IGNIS__CU_SEMAPHORE_D3D12 = 4,
    IGNIS__CU_SEMAPHORE_TIMELINE_FD = 9,
    IGNIS__CU_SEMAPHORE_TIMELINE_WIN32 = 10,
    IGNIS__CU_GRAPHICS_NONE = 0,
    IGNIS__CU_GRAPHICS_READ_ONLY = 1,
    IGNIS__CU_GRAPHICS_WRITE_DISCARD = 2
};

/*  By public type: the driver's, and whether it comes as an NT handle. */
typedef struct ignis__external_kind {
    const char *name;
    int type;
    bool windows;
} ignis__external_kind;

static const ignis__external_kind ignis__memory_kinds[IGNIS_EXTERNAL_COUNT] = {
    {"", 0, false},
    {"IGNIS_EXTERNAL_FD", IGNIS__CU_MEMORY_FD, false},
    {"IGNIS_EXTERNAL_WIN32", IGNIS__CU_MEMORY_WIN32, true},
    {"IGNIS_EXTERNAL_D3D12_HEAP", IGNIS__CU_MEMORY_D3D12_HEAP, true},
    {"IGNIS_EXTERNAL_D3D12_RESOURCE", IGNIS__CU_MEMORY_D3D12_RESOURCE, true},
};

static const ignis__external_kind ignis__fence_kinds[IGNIS_FENCE_TYPE_COUNT] = {
    {"", 0, false},
    {"IGNIS_FENCE_TIMELINE_FD", IGNIS__CU_SEMAPHORE_TIMELINE_FD, false},
    {"IGNIS_FENCE_TIMELINE_WIN32", IGNIS__CU_SEMAPHORE_TIMELINE_WIN32, true},
    {"IGNIS_FENCE_D3D12", IGNIS__CU_SEMAPHORE_D3D12, true},
};

/*  Whether the driver has a function, and the thread may call it now. */
IGNIS__COLD static bool ignis__graphics_can(const char *call, bool there, const char *function)
{
    if (there)
        return !ignis__capture_refuses(call);
    return ignis__refuse(IGNIS_DIAG_UNSUPPORTED, call, "%s has no function %s: %s", ignis__libraries[IGNIS_LIBRARY_CUDA].path, function,
                         ignis__global.dry_run ? "in a dry run there is no graphics API" : "it works with no graphics API");
}
#define IGNIS__GRAPHICS_CAN(call, name) ignis__graphics_can(call, ignis__cuda.name != NULL, #name)

#ifdef _WIN32
#define IGNIS__WINDOWS true
#else
#define IGNIS__WINDOWS false
#endif

/*  Looks at what a handle of the system is said to be. */
IGNIS__COLD static bool ignis__external_check(const char *call, const ignis__external_kind *kinds, int count, int type, int fd,
                                              const void *handle)
{
    if (type < 1 || type >= count)
        return ignis__refuse(IGNIS_DIAG_BAD_ENUM, call, "desc.type is %d; %s is 1, %s is %d", type, kinds[1].name, kinds[count - 1].name,
                             count - 1);
    if (kinds[type].windows != IGNIS__WINDOWS)
        return ignis__refuse(IGNIS_DIAG_UNSUPPORTED, call, "desc.type is %s, which %s", kinds[type].name,
                             IGNIS__WINDOWS ? "Windows does not have" : "only Windows has");
    if (kinds[type].windows ? handle == NULL : fd < 0)
        return ignis__refuse(IGNIS_DIAG_EXTERNAL_HANDLE, call, kinds[type].windows ? "desc.handle is null" : "desc.fd is %d", fd);
    return true;
}

/*  What the driver is given: of a descriptor a copy, so that the caller still has its own when something fails later on. */
IGNIS__COLD static bool ignis__external_copy(const char *call, int fd, void *handle, ignis__os_handle *os)
{
    memset(os, 0, sizeof *os);
#ifdef _WIN32
    (void)call, (void)fd;
    os->win32.handle = handle;
    return true;
#else
    (void)handle;
    os->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (os->fd >= 0)
        return true;
    if (errno == EBADF)
        ignis__fail(IGNIS_DIAG_EXTERNAL_HANDLE, call, "desc.fd %d is no open descriptor", fd);
    else
        ignis__fail(IGNIS_DIAG_HOST_MEMORY, call, "the process has no more descriptors");
    return false;
#endif
}

/*  Ends an import: on success the caller's descriptor is the driver's, and so gone; where the driver has not taken the copy, that goes. */
IGNIS__COLD static void ignis__external_settle(int fd, const ignis__os_handle *os, bool taken, bool ok)
{
#ifdef _WIN32
    (void)fd, (void)os, (void)taken, (void)ok;
#else
    if (!taken)
        close(os->fd);
    if (ok)
        close(fd);
#endif
}

/*  A failure of the driver to import something, which is mostly the handle's fault. */
IGNIS__COLD static void ignis__external_refused(const char *call, ignis__device *device, const char *function, int error, const char *kind,
                                                const char *more)
{
    if (ignis__cuda_is_fatal(error) || error == IGNIS__CU_OUT_OF_MEMORY)
        ignis__cuda_fail(call, device, function, error);
    else
        ignis__fail_because(IGNIS_DIAG_CUDA_CALL, call, error, ignis__cuda_name(error), NULL,
                            "%s failed with %s (%d): the handle is not what %s stands for, is of another GPU than device %d%s", function,
                            ignis__cuda_name(error), error, kind, ignis__device_ordinal(device), more);
}

/*  Memory that was imported, and where all of it is mapped. */
typedef struct ignis__external {
    ignis__device *device;
    void *memory;
    ignis__address mapped;
} ignis__external;

/*  The mapping goes before the memory. The device is entered. */
static void ignis__external_close(ignis__external *external)
{
    if (external->mapped)
        (void)IGNIS__CUDA(cuMemFree_v2, (external->mapped));
    if (external->memory)
        (void)IGNIS__CUDA(cuDestroyExternalMemory, (external->memory));
}

/*  The last array over it is gone, and its work done; after a fault the driver has nothing to give back. */
static void ignis__external_release(void *ptr, void *user_data)
{
    ignis__external *external = (ignis__external *)user_data;
    ignis__binding binding;
    (void)ptr;
    if (ignis__device_enter_to_give("ignis_array_free", external->device, &binding)) {
        ignis__external_close(external);
        ignis__device_leave(&binding);
    }
    ignis__free(external);
}

IGNIS__COLD static bool ignis__external_fits(const char *call, const ignis_external_desc *desc, int64_t *bytes)
{
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    int64_t numel, element;
    if (!ignis__dtype_valid(call, dtype) || !ignis__shape_check(call, &desc->shape, dtype, &numel))
        return false;
    element = ignis__dtypes[dtype].size;
    *bytes = numel * element;
    if (desc->size < 1)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "desc.size is %lld; it is the bytes of the whole memory object",
                             (long long)desc->size);
    if (desc->offset < 0 || desc->offset % element != 0)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "desc.offset is %lld, not a multiple of the %lld bytes of an element",
                             (long long)desc->offset, (long long)element);
    if (desc->offset > desc->size || *bytes > desc->size - desc->offset)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call,
                             "the array has %lld bytes, but from desc.offset %lld on there are %lld of desc.size %lld", (long long)*bytes,
                             (long long)desc->offset, (long long)(desc->offset > desc->size ? 0 : desc->size - desc->offset),
                             (long long)desc->size);
    return true;
}

/*  Imports memory and maps all of it; as CUDA advises, since two mappings of one place need not see each other's writes. */
IGNIS__COLD static bool ignis__external_map(const char *call, ignis__external *external, const ignis__external_memory_desc *memory,
                                            const char *kind, bool *taken)
{
    ignis__external_part whole = IGNIS__ZERO;
    int error = IGNIS__CUDA(cuImportExternalMemory, (&external->memory, memory));
    *taken = error == 0;
    if (error != 0) {
        external->memory = NULL;
        ignis__external_refused(call, external->device, "cuImportExternalMemory", error, kind,
                                ", or desc.size is not that of the memory object");
        return false;
    }
    whole.size = memory->size;
    return !IGNIS__CUDA_FAILED(call, external->device, cuExternalMemoryGetMappedBuffer, (&external->mapped, external->memory, &whole));
}

IGNIS__COLD IGNIS_API ignis_array ignis_external_array(const ignis_external_desc *desc)
{
    static const char call[] = "ignis_external_array";
    ignis_array none = IGNIS__ZERO, result = IGNIS__ZERO;
    const ignis__external_kind *kind;
    ignis__external_memory_desc memory = IGNIS__ZERO;
    ignis__external *external;
    ignis_array_desc array;
    ignis__device *device;
    ignis__binding binding;
    int64_t bytes = 0;
    bool taken = false;
    if (!ignis__enter(call) || !ignis__given(call, "desc", desc))
        return none;
    if (!ignis__external_check(call, ignis__memory_kinds, IGNIS_EXTERNAL_COUNT, (int)desc->type, desc->fd, desc->handle) ||
        !ignis__external_fits(call, desc, &bytes) || !IGNIS__GRAPHICS_CAN(call, cuImportExternalMemory) ||
        !IGNIS__GRAPHICS_CAN(call, cuExternalMemoryGetMappedBuffer) || !IGNIS__GRAPHICS_CAN(call, cuDestroyExternalMemory))
        return none;
    kind = &ignis__memory_kinds[desc->type];
    device = ignis__device_get(call, ignis__desc_device(desc->device));
    if (!device || !ignis__external_copy(call, desc->fd, desc->handle, &memory.os))
        return none;
    external = (ignis__external *)ignis__alloc_for(call, sizeof *external);
    if (external && ignis__device_enter(call, device, &binding)) {
        memory.type = kind->type;
        memory.size = (unsigned long long)desc->size;
        memory.flags = desc->dedicated || kind->type == IGNIS__CU_MEMORY_D3D12_RESOURCE ? IGNIS__CU_MEMORY_DEDICATED : 0;
        external->device = device;
        memset(&array, 0, sizeof array);
        if (ignis__external_map(call, external, &memory, kind->name, &taken)) {
            array.shape = desc->shape;
            array.dtype = desc->dtype;
            array.device = desc->device;
            array.ptr = (void *)(uintptr_t)(external->mapped + (unsigned long long)desc->offset);
            array.release_fn = ignis__external_release;
            array.release_data = external;
            array.tag = desc->tag;
            result = ignis__array_create_over(call, &array, true);
        }
        if (!result.id)
            ignis__external_close(external);
        ignis__device_leave(&binding);
    }
    ignis__external_settle(desc->fd, &memory.os, taken, result.id != 0);
    if (!result.id)
        ignis__free(external);
    return result;
}

/* --- fences -------------------------------------------------------------------------------------------------------------- */

/*  The last use of a fence on a stream. */
typedef struct ignis__fence_use {
    void *stream;
    ignis__spare_event *event; /* behind it */
    struct ignis__fence_use *next;
} ignis__fence_use;

typedef struct ignis__fence {
    ignis__slot slot; /* its lock guards the rest */
    ignis__device *device;
    void *semaphore;
    uint64_t signaled; /* the last value that it was to be set to */
    ignis__fence_use *uses;
    bool unmarked; /* an event could not be recorded */
} ignis__fence;

static ignis__pool ignis__fences = IGNIS__POOL(ignis__fence, IGNIS__KIND_FENCE, "fence", IGNIS_DIAG_FENCE_FREED);

IGNIS__COLD IGNIS_API ignis_fence ignis_external_fence(const ignis_external_fence_desc *desc)
{
    static const char call[] = "ignis_external_fence";
    ignis_fence result = IGNIS__ZERO;
    ignis__semaphore_desc semaphore = IGNIS__ZERO;
    ignis__device *device;
    ignis__binding binding;
    ignis__fence *fence;
    int error = -1;
    if (!ignis__enter(call) || !ignis__given(call, "desc", desc))
        return result;
    if (!ignis__external_check(call, ignis__fence_kinds, IGNIS_FENCE_TYPE_COUNT, (int)desc->type, desc->fd, desc->handle) ||
        !IGNIS__GRAPHICS_CAN(call, cuImportExternalSemaphore) || !IGNIS__GRAPHICS_CAN(call, cuSignalExternalSemaphoresAsync) ||
        !IGNIS__GRAPHICS_CAN(call, cuWaitExternalSemaphoresAsync) || !IGNIS__GRAPHICS_CAN(call, cuDestroyExternalSemaphore))
        return result;
    device = ignis__device_get(call, ignis__desc_device(desc->device));
    if (!device || !ignis__external_copy(call, desc->fd, desc->handle, &semaphore.os))
        return result;
    fence = (ignis__fence *)ignis__pool_take_zeroed(call, &ignis__fences);
    if (fence && ignis__device_enter(call, device, &binding)) {
        semaphore.type = ignis__fence_kinds[desc->type].type;
        error = IGNIS__CUDA(cuImportExternalSemaphore, (&fence->semaphore, &semaphore));
        if (error != 0)
            ignis__external_refused(call, device, "cuImportExternalSemaphore", error, ignis__fence_kinds[desc->type].name,
                                    ", or is of no timeline");
        ignis__device_leave(&binding);
    }
    ignis__external_settle(desc->fd, &semaphore.os, error == 0, error == 0);
    if (fence && error == 0) {
        fence->device = device;
        result.id = ignis__pool_publish(&ignis__fences, fence);
    } else if (fence) {
        ignis__pool_give(&ignis__fences, fence);
    }
    return result;
}

/*  Remembers what a stream has now as a use of the fence, which is locked; its device is entered. Uses that are over go. */
static bool ignis__fence_mark(const char *call, ignis__fence *fence, void *stream)
{
    ignis__fence_use **link = &fence->uses, *use;
    ignis__spare_event *event = ignis__event_record(call, fence->device, stream);
    if (!event)
        return false;
    while ((use = *link) != NULL && use->stream != stream) {
        if (IGNIS__CUDA(cuEventQuery, (use->event->event)) == 0) {
            *link = use->next;
            ignis__event_give(fence->device, use->event);
            ignis__free(use);
        } else {
            link = &use->next;
        }
    }
    if (use) {
        ignis__event_give(fence->device, use->event);
    } else {
        use = (ignis__fence_use *)ignis__alloc_for(call, sizeof *use);
        if (!use) {
            ignis__event_give(fence->device, event);
            return false;
        }
        use->stream = stream;
        use->next = fence->uses;
        fence->uses = use;
    }
    use->event = event;
    return true;
}

/*  Takes a fence apart, once its last use is over: the driver wants that. After a fault there is nothing to wait for. */
static void ignis__fence_drop(const char *call, ignis__fence *fence)
{
    ignis__binding binding;
    bool entered;
    if (!ignis__pool_drop(fence))
        return;
    entered = ignis__device_enter_to_give(call, fence->device, &binding);
    while (fence->uses) {
        ignis__fence_use *use = fence->uses;
        fence->uses = use->next;
        if (entered && IGNIS__CUDA(cuEventSynchronize, (use->event->event)) != 0)
            fence->unmarked = true;
        ignis__event_give(fence->device, use->event);
        ignis__free(use);
    }
    if (entered) {
        if (fence->unmarked)
            (void)ignis__device_finish(fence->device);
        (void)IGNIS__CUDA(cuDestroyExternalSemaphore, (fence->semaphore));
        ignis__device_leave(&binding);
    }
    ignis__pool_give(&ignis__fences, fence);
}

/*  Queues a wait for a value, or that it is set. */
static ignis_status ignis__fence_queue(const char *call, ignis_fence handle, uint64_t value, bool raises)
{
    ignis__fence *fence = (ignis__fence *)ignis__handle_hold(call, &ignis__fences, handle.id);
    ignis__semaphore_value wanted = IGNIS__ZERO;
    ignis__device *device;
    ignis__binding binding;
    void *stream;
    bool captured = false, ok;
    if (!fence)
        return ignis__failed();
    device = fence->device;
    if (!ignis__device_enter(call, device, &binding)) {
        ignis__fence_drop(call, fence);
        return ignis__failed();
    }
    stream = ignis__stream_now(device);
    wanted.value = value;
    ok = ignis__stream_captured(call, device, stream, &captured);
    if (ok && captured)
        ok = ignis__fail_captured(call, raises ? "the stream is captured: each launch of the graph would signal the same value. Signal it "
                                                 "behind ignis_graph_launch"
                                               : "the stream is captured: each launch of the graph would wait for the same value. Wait for "
                                                 "it before ignis_graph_launch");
    ignis__mutex_lock(&fence->slot.lock);
    if (ok && raises && value <= fence->signaled)
        ok = ignis__refuse(IGNIS_DIAG_FENCE_VALUE, call, "the value %llu is not above %llu, which the fence %s", (unsigned long long)value,
                           (unsigned long long)fence->signaled, fence->signaled ? "was to be set to before" : "has at first");
    if (ok && raises)
        ok = !IGNIS__CUDA_FAILED(call, device, cuSignalExternalSemaphoresAsync, (&fence->semaphore, &wanted, 1, stream));
    else if (ok)
        ok = !IGNIS__CUDA_FAILED(call, device, cuWaitExternalSemaphoresAsync, (&fence->semaphore, &wanted, 1, stream));
    if (ok && raises)
        fence->signaled = value;
    if (ok && !ignis__fence_mark(call, fence, stream)) {
        fence->unmarked = true; /* it is queued all the same */
        ok = false;
    }
    ignis__mutex_unlock(&fence->slot.lock);
    ignis__device_leave(&binding);
    ignis__fence_drop(call, fence);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_fence_wait(ignis_fence fence, uint64_t value)
{
    return ignis__fence_queue("ignis_fence_wait", fence, value, false);
}

IGNIS_API ignis_status ignis_fence_signal(ignis_fence fence, uint64_t value)
{
    return ignis__fence_queue("ignis_fence_signal", fence, value, true);
}

IGNIS__COLD IGNIS_API ignis_status ignis_fence_free(ignis_fence handle)
{
    static const char call[] = "ignis_fence_free";
    const uint64_t failures = ignis__failures();
    ignis__fence *fence;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    fence = (ignis__fence *)ignis__handle_hold(call, &ignis__fences, handle.id);
    if (!fence)
        return ignis__failed();
    live = ignis__handle_kill(fence);
    if (!live)
        ignis__fail_stale(call, &ignis__fences, handle.id);
    ignis__fence_drop(call, fence);
    return ignis__ended(failures, live);
}

IGNIS__COLD static void ignis__fences_close(const char *call)
{
    ignis__fence *fence;
    uint64_t index = 0;
    while ((fence = (ignis__fence *)ignis__pool_next(&ignis__fences, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "fence of device %d", ignis__device_ordinal(fence->device));
        ignis__handle_kill(fence);
        ignis__fence_drop(call, fence);
    }
}

/* --- buffers of OpenGL --------------------------------------------------------------------------------------------------- */

typedef struct ignis__gl_buffer {
    ignis__slot slot; /* its lock guards the rest, and is held while the buffer is mapped and unmapped */
    ignis__device *device;
    unsigned name;
    void *resource;
    ignis__storage *storage; /* of the array, while mapped; the buffer is one of its users */
    ignis_array array;       /* over it, which the caller may free */
} ignis__gl_buffer;

static ignis__pool ignis__gl_buffers = IGNIS__POOL(ignis__gl_buffer, IGNIS__KIND_GL_BUFFER, "OpenGL buffer", IGNIS_DIAG_GL_BUFFER_FREED);

IGNIS__COLD IGNIS_API ignis_gl_buffer ignis_gl_register(unsigned name, ignis_gl_access access)
{
    static const char call[] = "ignis_gl_register";
    static const unsigned flags[IGNIS_GL_ACCESS_COUNT] = {IGNIS__CU_GRAPHICS_NONE, IGNIS__CU_GRAPHICS_READ_ONLY,
                                                          IGNIS__CU_GRAPHICS_WRITE_DISCARD};
    ignis_gl_buffer result = IGNIS__ZERO;
    ignis__gl_buffer *buffer;
    ignis__device *device;
    ignis__binding binding;
    int error = -1;
    if (!ignis__enter(call))
        return result;
    if ((int)access < 0 || access >= IGNIS_GL_ACCESS_COUNT) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no access %d; IGNIS_GL_READ_WRITE to IGNIS_GL_WRITE are 0 to 2", (int)access);
        return result;
    }
    if (!IGNIS__GRAPHICS_CAN(call, cuGraphicsGLRegisterBuffer) || !IGNIS__GRAPHICS_CAN(call, cuGraphicsUnregisterResource) ||
        !IGNIS__GRAPHICS_CAN(call, cuGraphicsMapResources) || !IGNIS__GRAPHICS_CAN(call, cuGraphicsUnmapResources) ||
        !IGNIS__GRAPHICS_CAN(call, cuGraphicsResourceGetMappedPointer_v2) ||
        (buffer = (ignis__gl_buffer *)ignis__pool_take_zeroed(call, &ignis__gl_buffers)) == NULL)
        return result;
    device = ignis__device_current_enter(call, &binding);
    if (device) {
        error = IGNIS__CUDA(cuGraphicsGLRegisterBuffer, (&buffer->resource, name, flags[access]));
        if (ignis__cuda_is_fatal(error) || error == IGNIS__CU_OUT_OF_MEMORY)
            ignis__cuda_fail(call, device, "cuGraphicsGLRegisterBuffer", error);
        else if (error != 0)
            ignis__fail_because(
                IGNIS_DIAG_CUDA_CALL, call, error, ignis__cuda_name(error), NULL,
                "cuGraphicsGLRegisterBuffer failed with %s (%d): this thread has no OpenGL context of device %d, or that has no "
                "buffer %u with storage",
                ignis__cuda_name(error), error, ignis__device_ordinal(device), name);
        ignis__device_leave(&binding);
    }
    if (error == 0) {
        buffer->device = device;
        buffer->name = name;
        result.id = ignis__pool_publish(&ignis__gl_buffers, buffer);
    } else {
        ignis__pool_give(&ignis__gl_buffers, buffer);
    }
    return result;
}

static void ignis__gl_buffer_drop(ignis__gl_buffer *buffer)
{
    if (ignis__pool_drop(buffer))
        ignis__pool_give(&ignis__gl_buffers, buffer);
}

/*  The buffer of a handle, held, locked, its device entered; null, and reported: not. ends: gives something up, which goes on after a fault. */
static ignis__gl_buffer *ignis__gl_enter(const char *call, ignis_gl_buffer handle, ignis__binding *binding, bool ends)
{
    ignis__gl_buffer *buffer = (ignis__gl_buffer *)ignis__handle_hold(call, &ignis__gl_buffers, handle.id);
    if (!buffer)
        return NULL;
    binding->pushed = false;
    if (!ignis__capture_refuses(call) && ((ends && ignis__devices_lost()) || ignis__device_enter(call, buffer->device, binding))) {
        ignis__mutex_lock(&buffer->slot.lock);
        if (ignis__pool_live(buffer))
            return buffer;
        ignis__mutex_unlock(&buffer->slot.lock);
        ignis__fail_stale(call, &ignis__gl_buffers, handle.id); /* by another thread, meanwhile */
        ignis__device_leave(binding);
    }
    ignis__gl_buffer_drop(buffer);
    return NULL;
}

static ignis_status ignis__gl_leave(ignis__gl_buffer *buffer, const ignis__binding *binding, bool ok)
{
    ignis__mutex_unlock(&buffer->slot.lock);
    ignis__device_leave(binding);
    ignis__gl_buffer_drop(buffer);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  The array over a buffer that is mapped on a stream. */
static ignis_array ignis__gl_array(const char *call, ignis__gl_buffer *buffer, ignis_dtype dtype, const ignis_shape *shape, void *stream)
{
    ignis_array none = IGNIS__ZERO, result;
    ignis_array_desc desc = IGNIS__ZERO;
    ignis__address address = 0;
    ignis__array *array;
    size_t size = 0;
    int64_t numel = 0, element = ignis__dtypes[dtype].size;
    if (IGNIS__CUDA_FAILED(call, buffer->device, cuGraphicsResourceGetMappedPointer_v2, (&address, &size, buffer->resource)))
        return none;
    desc.shape = shape->ndim ? *shape : IGNIS_SHAPE((int64_t)size / element);
    if (!ignis__shape_check(call, &desc.shape, dtype, &numel))
        return none;
    if ((uint64_t)(numel * element) > size) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the array has %lld bytes, OpenGL's buffer %u has %llu", (long long)(numel * element),
                    buffer->name, (unsigned long long)size);
        return none;
    }
    desc.dtype = dtype;
    desc.device = ignis__device_in_desc(buffer->device);
    desc.stream = stream;
    desc.ptr = (void *)(uintptr_t)address;
    desc.tag = "gl";
    result = ignis__array_create_over(call, &desc, true);
    array = result.id ? (ignis__array *)ignis__pool_hold(&ignis__arrays, result.id) : NULL;
    if (array) {
        buffer->storage = array->storage;
        buffer->array = result;
        ignis__atomic_add(&array->storage->users, 1);
        ignis__array_drop(call, array);
    }
    return result;
}

IGNIS_API ignis_array ignis_gl_map(ignis_gl_buffer handle, ignis_dtype dtype, ignis_shape shape)
{
    static const char call[] = "ignis_gl_map";
    ignis_array result = IGNIS__ZERO;
    ignis__binding binding;
    ignis__gl_buffer *buffer = ignis__gl_enter(call, handle, &binding, false);
    void *stream;
    if (!buffer)
        return result;
    dtype = dtype ? dtype : IGNIS_F32;
    stream = ignis__stream_now(buffer->device);
    if (buffer->storage)
        ignis__fail(IGNIS_DIAG_GL_BUFFER_STATE, call, "OpenGL's buffer %u is mapped already", buffer->name);
    else if (ignis__dtype_valid(call, dtype) &&
             !IGNIS__CUDA_FAILED(call, buffer->device, cuGraphicsMapResources, (1, &buffer->resource, stream))) {
        result = ignis__gl_array(call, buffer, dtype, &shape, stream);
        if (!result.id)
            (void)IGNIS__CUDA(cuGraphicsUnmapResources, (1, &buffer->resource, stream));
    }
    (void)ignis__gl_leave(buffer, &binding, true);
    return result;
}

/*  Gives the memory of a locked buffer, whose arrays are gone, back to OpenGL, behind the work of all streams on it. */
static bool ignis__gl_return(const char *call, ignis__gl_buffer *buffer)
{
    ignis__storage *storage = buffer->storage;
    void *stream;
    bool lost = ignis__devices_lost(), ordered = true, ok;
    int i;
    ignis__mutex_lock(&storage->lock);
    stream = storage->stream;
    for (i = 0; i < storage->used_on_count && !lost; i++)
        ordered = ignis__stream_order(call, storage->used_on[i].device, storage->used_on[i].stream, storage->device, stream) && ordered;
    ok = lost || (ordered && !IGNIS__CUDA_FAILED(call, buffer->device, cuGraphicsUnmapResources, (1, &buffer->resource, stream)));
    ignis__mutex_unlock(&storage->lock);
    if (!ok)
        return false;
    buffer->storage = NULL;
    buffer->array.id = 0;
    ignis__storage_drop(call, storage);
    return true;
}

IGNIS_API ignis_status ignis_gl_unmap(ignis_gl_buffer handle)
{
    static const char call[] = "ignis_gl_unmap";
    ignis__binding binding;
    ignis__gl_buffer *buffer = ignis__gl_enter(call, handle, &binding, true);
    bool live, ok = false;
    uint64_t users;
    if (!buffer)
        return ignis__failed();
    if (!buffer->storage) {
        ignis__fail(IGNIS_DIAG_GL_BUFFER_STATE, call, "OpenGL's buffer %u is not mapped", buffer->name);
        return ignis__gl_leave(buffer, &binding, false);
    }
    live = ignis_array_is_live(buffer->array);
    users = ignis__atomic_load(&buffer->storage->users) - 1 - (uint64_t)live; /* beside the buffer and the array */
    if (users > 0)
        ignis__fail(IGNIS_DIAG_GL_BUFFER_USED, call, "OpenGL's buffer %u is used by %llu view%s or graph%s of the array that was mapped",
                    buffer->name, (unsigned long long)users, users == 1 ? "" : "s", users == 1 ? "" : "s");
    else
        ok = !live || ignis__array_free_as(call, buffer->array, IGNIS_OWNER_IGNIS) == IGNIS_OK;
    ok = ok && ignis__gl_return(call, buffer);
    return ignis__gl_leave(buffer, &binding, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_gl_unregister(ignis_gl_buffer handle)
{
    static const char call[] = "ignis_gl_unregister";
    ignis__binding binding;
    ignis__gl_buffer *buffer;
    bool ok = false;
    if (!handle.id)
        return IGNIS_OK;
    buffer = ignis__gl_enter(call, handle, &binding, true);
    if (!buffer)
        return ignis__failed();
    if (buffer->storage) {
        ignis__fail(IGNIS_DIAG_GL_BUFFER_STATE, call, "OpenGL's buffer %u is mapped; call ignis_gl_unmap before", buffer->name);
    } else if (ignis__devices_lost() || !IGNIS__CUDA_FAILED(call, buffer->device, cuGraphicsUnregisterResource, (buffer->resource))) {
        ignis__pool_kill(buffer);
        ignis__pool_drop(buffer); /* the handle's own hold */
        ok = true;
    }
    return ignis__gl_leave(buffer, &binding, ok);
}

/*  Arrays are closed before. Without an OpenGL context in this thread the driver may refuse, and frees the rest with the device. */
IGNIS__COLD static void ignis__gl_buffers_close(const char *call)
{
    ignis__gl_buffer *buffer;
    ignis__binding binding;
    uint64_t index = 0;
    while ((buffer = (ignis__gl_buffer *)ignis__pool_next(&ignis__gl_buffers, &index)) != NULL) {
        bool entered = ignis__device_enter_to_give(call, buffer->device, &binding);
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "OpenGL buffer %u%s", buffer->name, buffer->storage ? ", which is mapped" : "");
        if (buffer->storage && !ignis__gl_return(call, buffer)) {
            ignis__storage_drop(call, buffer->storage);
            buffer->storage = NULL;
        }
        if (entered) {
            (void)IGNIS__CUDA(cuGraphicsUnregisterResource, (buffer->resource));
            ignis__device_leave(&binding);
        }
        ignis__handle_kill(buffer);
        ignis__gl_buffer_drop(buffer);
    }
}

/* ===============================================================================================================
   >>profile - reports of what was written down.
   =============================================================================================================== */

/*  Text of the caller in JSON: bytes that are no UTF-8, as where a tag was cut, become '?'. */
IGNIS__COLD static void ignis__json_text(FILE *file, const char *text)
{
    size_t left = strlen(text);
    fputc('"', file);
    while (left > 0) {
        int length = ignis__utf8_length(text, left);
        if ((unsigned char)*text < 0x20)
            fprintf(file, "\\u%04x", (unsigned)*text);
        else if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if (length == 0)
            fputc('?', file);
        else
            fwrite(text, 1, (size_t)length, file);
        length = length ? length : 1;
        text += length;
        left -= (size_t)length;
    }
    fputc('"', file);
}

/*  The same in XML. */
IGNIS__COLD static void ignis__xml_text(FILE *file, const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
            fprintf(file, "&#%d;", *text);
        else
            fputc((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x80 ? '?' : *text, file);
}

/*  A number with a decimal: fprintf goes by the program's locale, which may write 1,5. */
typedef struct ignis__point_text {
    char text[32];
} ignis__point_text;

IGNIS__COLD static ignis__point_text ignis__point_write(double value)
{
    ignis__point_text out;
    int64_t thousandths = (int64_t)(value * 1000 + (value < 0 ? -0.5 : 0.5)), whole = thousandths / 1000, rest = thousandths % 1000;
    snprintf(out.text, sizeof out.text, "%s%lld.%03d", thousandths < 0 ? "-" : "", (long long)(whole < 0 ? -whole : whole),
             (int)(rest < 0 ? -rest : rest));
    return out;
}

/*  A report takes the place of one that is there; null, and reported: it cannot be written. */
IGNIS__COLD static FILE *ignis__report_open(const char *call, const char *path)
{
    FILE *file = ignis__file_create(path, IGNIS__FILE_REPLACE);
    if (!file)
        ignis__fail_file(IGNIS_DIAG_REPORT_IO, call, path, "opened to write a report");
    return file;
}

IGNIS__COLD static bool ignis__report_close(const char *call, const char *path, FILE *file)
{
    bool failed = ferror(file) != 0;
    if (fclose(file) == 0 && !failed)
        return true;
    return ignis__refuse(IGNIS_DIAG_REPORT_IO, call, "cannot write to %s: the report is not whole", path);
}

/* --- memory ------------------------------------------------------------------------------------------------------------- */

/*  What ignis_memory_snapshot knows of a device. */
typedef struct ignis__snapshot {
    int device, count;
    ignis_memory_info info;
    ignis_memory_row *rows;
} ignis__snapshot;

/*  What memory was taken for, as a person says it. */
IGNIS__COLD static void ignis__row_name(const ignis_memory_row *row, char *name, size_t size)
{
    const char *slash = strrchr(row->file, '/');
    int used = snprintf(name, size, "%s%s%s", row->tag[0] ? row->tag : row->call, row->inside[0] ? " in " : "", row->inside);
    if (row->file[0] && used >= 0 && (size_t)used < size)
        snprintf(name + used, size - (size_t)used, ", %s:%d", slash ? slash + 1 : row->file, row->line);
}

IGNIS__COLD static void ignis__snapshot_json(FILE *file, const ignis__snapshot *shot, bool first)
{
    const ignis_memory_info *info = &shot->info;
    int i;
    fprintf(file, "%s\n{\"device\": %d, \"name\": ", first ? "" : ",", shot->device);
    ignis__json_text(file, ignis__devices[shot->device].info.name);
    fprintf(
        file,
        ", \"live_bytes\": %lld, \"live_peak\": %lld, \"reserved_bytes\": %lld, \"reserved_peak\": %lld, \"vmm_bytes\": %lld,\n\"rows\": [",
        (long long)info->live_bytes, (long long)info->live_peak, (long long)info->reserved_bytes, (long long)info->reserved_peak,
        (long long)info->vmm_bytes);
    for (i = 0; i < shot->count; i++) {
        const ignis_memory_row *row = &shot->rows[i];
        fprintf(file, "%s\n    {\"tag\": ", i ? "," : "");
        ignis__json_text(file, row->tag);
        fprintf(file, ", \"call\": \"%s\", \"inside\": \"%s\", \"file\": ", row->call, row->inside);
        ignis__json_text(file, row->file);
        fprintf(file, ", \"line\": %d, \"live_bytes\": %lld, \"live_blocks\": %lld, \"peak_bytes\": %lld}", row->line,
                (long long)row->live_bytes, (long long)row->live_blocks, (long long)row->peak_bytes);
    }
    fprintf(file, "]}");
}

/*  All arrays that are alive, of all devices. */
IGNIS__COLD static void ignis__snapshot_arrays(const char *call, FILE *file)
{
    ignis__array *array;
    ignis__storage *storage;
    uint64_t index = 0;
    int64_t now = ignis__wall_ns();
    bool first = true;
    int k;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis__mutex_lock(&array->slot.lock);
        storage = array->storage;
        fprintf(file, "%s\n    {\"id\": %llu, \"parent\": %llu, \"tag\": ", first ? "" : ",", (unsigned long long)array->id,
                (unsigned long long)array->parent);
        ignis__json_text(file, array->tag);
        fprintf(file, ", \"dtype\": \"%s\", \"shape\": [", ignis__dtypes[array->dtype].name);
        for (k = 0; k < array->shape.ndim; k++)
            fprintf(file, "%s%lld", k ? ", " : "", (long long)array->shape.dim[k]);
        fprintf(file,
                "], \"device\": %d, \"bytes\": %lld, \"on_device\": %s, \"wrapped\": %s, \"owner\": \"%s\", \"ref_count\": %d, \"age_ms\": "
                "%lld, \"call\": \"%s\", \"file\": ",
                ignis__device_ordinal(storage->device), (long long)ignis__array_bytes(array),
                ignis__atomic_load(&storage->address) ? "true" : "false", storage->wrapped ? "true" : "false",
                ignis_owner_name(array->owner), array->ref_count, (long long)((now - array->created_at_ns) / 1000000),
                storage->origin.call);
        ignis__json_text(file, storage->origin.file ? storage->origin.file : "");
        fprintf(file, ", \"line\": %d}", storage->origin.line);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
        first = false;
    }
}

/*  Bars of a device, downwards from y: what lives, before what there was at the peak. Returns where they end. */
IGNIS__COLD static int ignis__snapshot_draw(FILE *file, const ignis__snapshot *shot, int y)
{
    const double mib = 1048576;
    const ignis_memory_info *info = &shot->info;
    int64_t most = 1;
    char name[160];
    int i;
    for (i = 0; i < shot->count; i++) {
        most = shot->rows[i].live_bytes > most ? shot->rows[i].live_bytes : most;
        most = shot->rows[i].peak_bytes > most ? shot->rows[i].peak_bytes : most;
    }
    fprintf(file, "<text x=\"10\" y=\"%d\" font-weight=\"bold\">device %d, ", y + 18, shot->device);
    ignis__xml_text(file, ignis__devices[shot->device].info.name);
    fprintf(file, ": in use %.1f MiB, at the peak %.1f MiB; of the driver %.1f MiB, at the peak %.1f MiB</text>\n",
            (double)info->live_bytes / mib, (double)info->live_peak / mib, (double)info->reserved_bytes / mib,
            (double)info->reserved_peak / mib);
    for (i = 0, y += 28; i < shot->count; i++, y += 20) {
        const ignis_memory_row *row = &shot->rows[i];
        ignis__row_name(row, name, sizeof name);
        fprintf(file, "<rect x=\"400\" y=\"%d\" width=\"%s\" height=\"16\" fill=\"#b8cce4\"/>\n", y,
                ignis__point_write(480.0 * (double)row->peak_bytes / (double)most).text);
        fprintf(file,
                "<rect x=\"400\" y=\"%d\" width=\"%s\" height=\"10\" fill=\"#1f5fa8\"/>\n<text x=\"390\" y=\"%d\" text-anchor=\"end\">",
                y + 3, ignis__point_write(480.0 * (double)row->live_bytes / (double)most).text, y + 12);
        ignis__xml_text(file, name);
        fprintf(file, "</text>\n<text x=\"890\" y=\"%d\">%.1f / %.1f MiB, %lld</text>\n", y + 12, (double)row->live_bytes / mib,
                (double)row->peak_bytes / mib, (long long)row->live_blocks);
    }
    return y + 12;
}

IGNIS__COLD static bool ignis__snapshot_write(const char *call, const char *path, const ignis__snapshot *shots, int count)
{
    size_t length = strlen(path);
    bool drawn = length >= 4 && strcmp(path + length - 4, ".svg") == 0;
    FILE *file = ignis__report_open(call, path);
    int i, y = 34;
    if (!file)
        return false;
    if (drawn) {
        for (i = 0; i < count; i++)
            y += 40 + 20 * shots[i].count;
        fprintf(
            file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1100\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"10\" y=\"20\">Dark: in use now; light: at the peak, where "
            "it was traced. MiB now / at the peak, blocks now</text>\n",
            y);
        for (i = 0, y = 30; i < count; i++)
            y = ignis__snapshot_draw(file, &shots[i], y);
        fprintf(file, "</svg>\n");
    } else {
        fprintf(file, "{\"ignis\": \"%s\", \"devices\": [", ignis_version_string());
        for (i = 0; i < count; i++)
            ignis__snapshot_json(file, &shots[i], i == 0);
        fprintf(file, "],\n\"arrays\": [");
        ignis__snapshot_arrays(call, file);
        fprintf(file, "]}\n");
    }
    return ignis__report_close(call, path, file);
}

IGNIS__COLD IGNIS_API ignis_status ignis_memory_snapshot(const char *path)
{
    static const char call[] = "ignis_memory_snapshot";
    ignis__snapshot *shots;
    int i, count = 0;
    bool ok = true;
    if (!ignis__enter(call) || !ignis__given(call, "path", path))
        return ignis__failed();
    shots = (ignis__snapshot *)ignis__alloc_for(call, sizeof *shots * (size_t)(ignis__device_total + 1));
    if (!shots)
        return ignis__failed();
    for (i = 0; ok && i < ignis__device_total; i++) {
        ignis__snapshot *shot = &shots[count];
        if (!ignis__atomic_load(&ignis__devices[i].opened))
            continue;
        shot->device = i;
        shot->rows = ignis__rows_make(call, &ignis__caches[i], &shot->count);
        ignis__mutex_lock(&ignis__caches[i].lock);
        shot->info = ignis__caches[i].info;
        ignis__mutex_unlock(&ignis__caches[i].lock);
        ok = shot->rows != NULL;
        count += ok;
    }
    ok = ok && ignis__snapshot_write(call, path, shots, count);
    while (count > 0)
        ignis__free(shots[--count].rows);
    ignis__free(shots);
    return ok ? IGNIS_OK : ignis__failed();
}

/* --- profiles ----------------------------------------------------------------------------------------------------------- */

/*  Dense FLOPs of a multiprocessor in a clock: of 16-bit products with sums in f32, of f32 and f64, the better of tensor cores and plain ones. From
    NVIDIA's tables of throughput (CUDA C++ Programming Guide) and white papers. The last row that is not newer than the device counts. */
static const struct {
    int capability, half, single, wide;
} ignis__rates[] = {{50, 256, 256, 8},    {60, 128, 128, 64},    {61, 256, 256, 8},   {70, 1024, 128, 64},
                    {75, 1024, 128, 4},   {80, 2048, 128, 128},  {86, 512, 256, 4},   {89, 512, 256, 4},
                    {90, 4096, 256, 256}, {100, 8192, 256, 128}, {103, 8192, 256, 4}, {120, 512, 256, 4}};

/*  What a device can do in a millisecond: bytes, and flops of a dtype. 0: it does not tell. */
IGNIS__COLD static double ignis__rate_memory(const ignis__device *device)
{
    int clock = 0, bits = 0;
    (void)IGNIS__CUDA(cuDeviceGetAttribute, (&clock, IGNIS__CU_ATTRIBUTE_MEMORY_CLOCK, device->handle));
    (void)IGNIS__CUDA(cuDeviceGetAttribute, (&bits, IGNIS__CU_ATTRIBUTE_MEMORY_BITS, device->handle));
    return 2.0 * clock * bits / 8; /* twice a clock */
}

IGNIS__COLD static double ignis__rate_flops(const ignis__device *device, int dtype)
{
    int clock = 0, capability = ignis__capability(&device->info), i = IGNIS__COUNT(ignis__rates) - 1;
    (void)IGNIS__CUDA(cuDeviceGetAttribute, (&clock, IGNIS__CU_ATTRIBUTE_CLOCK, device->handle));
    while (i > 0 && ignis__rates[i].capability > capability)
        i--;
    return (double)clock * device->info.multiprocessors *
           (dtype == IGNIS_F64                          ? ignis__rates[i].wide
            : dtype == IGNIS_F16 || dtype == IGNIS_BF16 ? ignis__rates[i].half
            : ignis__allow_tf32                         ? ignis__rates[i].half / 2
                                                        : ignis__rates[i].single);
}

/*  Lets go of the items and of the clocks. */
IGNIS__COLD static void ignis__profile_drop(ignis__traced *items, size_t count)
{
    size_t k;
    int i;
    for (k = 0; k < count; k++)
        ignis__traced_events_free(&items[k]);
    ignis__free(items);
    ignis__mutex_lock(&ignis__profile_lock);
    for (i = 0; i < IGNIS_MAX_DEVICES; i++) {
        if (ignis__profile.base[i].event)
            (void)IGNIS__CUDA(cuEventDestroy_v2, (ignis__profile.base[i].event));
        ignis__profile.base[i].event = NULL;
    }
    ignis__mutex_unlock(&ignis__profile_lock);
}

/*  Asks when the items of a device were, once it is idle. What was lost to a fault has no time. The driver tells times between two events as
    floats, which are exact for seconds, not for hours: so each is asked from one that was at most a second earlier. */
IGNIS__COLD static void ignis__profile_ask(int device, ignis__traced *items, size_t count)
{
    void *base;
    int64_t base_ns;
    float at, ms;
    size_t k;
    ignis__mutex_lock(&ignis__profile_lock);
    base = ignis__profile.base[device].event;
    base_ns = ignis__profile.base[device].ns;
    ignis__mutex_unlock(&ignis__profile_lock);
    for (k = 0; k < count; k++) {
        ignis__traced *traced = &items[k];
        if (traced->device == device && base && traced->first && IGNIS__CUDA(cuEventElapsedTime, (&at, base, traced->first)) == 0 &&
            IGNIS__CUDA(cuEventElapsedTime, (&ms, traced->first, traced->last)) == 0) {
            traced->at_ns = base_ns + (int64_t)((double)at * 1e6);
            traced->ms = (double)ms;
            if (at > 1000) {
                base = traced->first;
                base_ns = traced->at_ns;
            }
        }
    }
}

/*  An operation's bytes go to the longest of its kernels that was told none; without memory for that to the first. */
IGNIS__COLD static void ignis__profile_share(ignis__traced *items, size_t count, int threads)
{
    ignis__traced **longest = (ignis__traced **)ignis__alloc((size_t)(threads + 1) * sizeof *longest); /* by thread */
    size_t k;
    for (k = 0; longest && k < count; k++) {
        ignis__traced *traced = &items[k], **so_far = &longest[traced->thread];
        if (traced->kind != IGNIS__TRACED_KERNEL || traced->told)
            continue;
        if (*so_far && (*so_far)->operation == traced->operation) {
            double bytes = (*so_far)->bytes + traced->bytes;
            (*so_far)->bytes = traced->bytes = 0;
            *so_far = traced->ms > (*so_far)->ms ? traced : *so_far;
            (*so_far)->bytes = bytes;
        } else {
            *so_far = traced;
        }
    }
    ignis__free(longest);
}

IGNIS__COLD static int ignis__profile_order(const void *a, const void *b)
{
    const ignis_profile_row *x = (const ignis_profile_row *)a, *y = (const ignis_profile_row *)b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

/*  Adds the items up by kernels. Null: out of host memory. */
IGNIS__COLD static ignis_profile_row *ignis__profile_sum(const ignis__traced *items, size_t count, int *row_count)
{
    ignis_profile_row *rows = (ignis_profile_row *)ignis__alloc((count + 1) * sizeof *rows), *row;
    size_t k;
    int i, used = 0;
    for (k = 0; rows && k < count; k++) {
        const ignis__traced *traced = &items[k];
        int dtype = traced->flops > 0 ? traced->rate : 0;
        if (!traced->first || traced->ms < 0)
            continue;
        for (i = 0; i < used; i++)
            if (rows[i].device == traced->device && (int)rows[i].dtype == dtype && strcmp(rows[i].name, traced->name) == 0)
                break;
        row = &rows[i];
        used += i == used;
        row->device = traced->device;
        row->dtype = (ignis_dtype)dtype;
        memcpy(row->name, traced->name, sizeof row->name);
        row->count++;
        row->ms += traced->ms;
        row->bytes += traced->bytes;
        row->flops += traced->flops;
    }
    for (i = 0; i < used; i++) {
        const ignis__device *device = &ignis__devices[rows[i].device];
        double memory = ignis__rate_memory(device) * rows[i].ms, flops = ignis__rate_flops(device, (int)rows[i].dtype) * rows[i].ms;
        rows[i].memory_share = memory > 0 ? rows[i].bytes / memory : 0;
        rows[i].arithmetic_share = flops > 0 ? rows[i].flops / flops : 0;
    }
    if (rows)
        qsort(rows, (size_t)used, sizeof *rows, ignis__profile_order);
    *row_count = used;
    return rows;
}

/*  A number of the table, or that it is not known. */
IGNIS__COLD static void ignis__table_number(FILE *file, double value, const char *unit)
{
    if (value > 0)
        fprintf(file, " %9.3f%s", value, unit);
    else
        fprintf(file, " %9s%*s", "-", (int)strlen(unit), "");
}

IGNIS__COLD static bool ignis__table_write(const char *call, const char *path, const ignis_profile_row *rows, int count, size_t lost)
{
    FILE *file = ignis__report_open(call, path);
    double all = 0;
    int i;
    if (!file)
        return false;
    for (i = 0; i < count; i++)
        all += rows[i].ms;
    for (i = 0; i < ignis__device_total; i++)
        if (ignis__atomic_load(&ignis__devices[i].opened))
            fprintf(file, "device %d: %s; by its clocks and units %.2f TB/s, %.1f TFLOP/s of 16-bit types, %.1f of f32\n", i,
                    ignis__devices[i].info.name, ignis__rate_memory(&ignis__devices[i]) * 1e-9,
                    ignis__rate_flops(&ignis__devices[i], IGNIS_BF16) * 1e-9, ignis__rate_flops(&ignis__devices[i], IGNIS_F32) * 1e-9);
    fprintf(file, "%llu items were too many, or had no events\n%-72s %6s %7s %10s %6s %9s %9s %7s %9s %9s %7s %6s\n",
            (unsigned long long)lost, "kernel", "device", "count", "ms", "share", "GB", "TB/s", "of it", "GFLOP", "TFLOP/s", "of it",
            "bound");
    for (i = 0; i < count; i++) {
        const ignis_profile_row *row = &rows[i];
        double memory = 100 * row->memory_share, flops = 100 * row->arithmetic_share;
        fprintf(file, "%-72s %6d %7lld %10.3f %5.1f%%", row->name, row->device, (long long)row->count, row->ms,
                all > 0 ? 100 * row->ms / all : 0);
        ignis__table_number(file, row->bytes * 1e-9, "");
        ignis__table_number(file, row->ms > 0 ? row->bytes / row->ms * 1e-9 : 0, "");
        fprintf(file, memory > 0 ? " %6.1f%%" : "       -", memory);
        ignis__table_number(file, row->flops * 1e-9, "");
        ignis__table_number(file, row->ms > 0 ? row->flops / row->ms * 1e-9 : 0, "");
        fprintf(file, flops > 0 ? " %6.1f%%" : "       -", flops);
        fprintf(file, " %6s\n", memory <= 0 && flops <= 0 ? "-" : flops > memory ? "flops" : "memory");
    }
    return ignis__report_close(call, path, file);
}

/*  One span: of a thread of the host (process 0), or of a stream of a device (process 1 and up). Times in microseconds. */
IGNIS__COLD static void ignis__trace_span(FILE *file, const ignis__traced *traced, const char *name, const char *kind, int process,
                                          int thread, double at, double took)
{
    fprintf(file, ",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %s, \"dur\": %s, \"cat\": \"%s\", \"name\": ", process, thread,
            ignis__point_write(at).text, ignis__point_write(took).text, kind);
    ignis__json_text(file, name);
    fprintf(file, ", \"args\": {\"call\": \"%s\"", traced->call);
    if (traced->bytes > 0)
        fprintf(file, ", \"bytes\": %.0f", traced->bytes);
    if (traced->flops > 0)
        fprintf(file, ", \"flops\": %.0f", traced->flops);
    if (traced->file) {
        fprintf(file, ", \"line\": %d, \"file\": ", traced->line);
        ignis__json_text(file, traced->file);
    }
    fprintf(file, "}}");
}

IGNIS__COLD static bool ignis__trace_write(const char *call, const char *path, const ignis__traced *items, size_t count, int64_t begin_ns)
{
    FILE *file = ignis__report_open(call, path);
    void *streams[64];
    int i, used = 0, threads = 0;
    size_t k;
    if (!file)
        return false;
    fprintf(
        file,
        "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n{\"ph\": \"M\", \"pid\": 0, \"name\": \"process_name\", \"args\": {\"name\": "
        "\"host\"}}");
    for (i = 0; i < ignis__device_total; i++) {
        if (!ignis__atomic_load(&ignis__devices[i].opened))
            continue;
        fprintf(file, ",\n{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_name\", \"args\": {\"name\": ", i + 1);
        ignis__json_text(file, ignis__devices[i].info.name);
        fprintf(file, "}}");
    }
    for (k = 0; k < count; k++) {
        const ignis__traced *traced = &items[k];
        double at = (double)(traced->begin_ns - begin_ns) * 1e-3, took = (double)(traced->end_ns - traced->begin_ns) * 1e-3;
        threads = traced->thread > threads ? traced->thread : threads;
        if (traced->kind == IGNIS__TRACED_MEMORY) {
            fprintf(file,
                    ",\n{\"ph\": \"C\", \"pid\": %d, \"ts\": %s, \"name\": \"memory\", \"args\": {\"in use\": %.0f, \"reserved\": %.0f}}",
                    traced->device + 1, ignis__point_write(at).text, traced->bytes, traced->flops);
        } else if (traced->kind == IGNIS__TRACED_CALL) {
            ignis__trace_span(file, traced, traced->call, "call", 0, traced->thread, at, took);
        } else if (traced->ms >= 0) {
            static const char *const kinds[] = {"call", "kernel", "copy", "graph", "collective", "memory"};
            double on_device = (double)(traced->at_ns - begin_ns) * 1e-3;
            bool collective = strncmp(traced->call, "ignis_comm", 10) == 0 || strncmp(traced->call, "ignis_parallel", 14) == 0;
            for (i = 0; i < used && streams[i] != traced->stream; i++)
                ;
            if (i == used && used < IGNIS__COUNT(streams))
                streams[used++] = traced->stream;
            ignis__trace_span(file, traced, traced->name, "queue", 0, traced->thread, at, took);
            ignis__trace_span(file, traced, traced->name, collective ? "collective" : kinds[traced->kind], traced->device + 1, i + 1,
                              on_device, traced->ms * 1e3);
            fprintf(file,
                    ",\n{\"ph\": \"s\", \"id\": %llu, \"pid\": 0, \"tid\": %d, \"ts\": %s, \"cat\": \"queue\", \"name\": \"queue\"}"
                    ",\n{\"ph\": \"f\", \"bp\": \"e\", \"id\": %llu, \"pid\": %d, \"tid\": %d, \"ts\": %s, \"cat\": \"queue\", \"name\": "
                    "\"queue\"}",
                    (unsigned long long)k, traced->thread, ignis__point_write(at).text, (unsigned long long)k, traced->device + 1, i + 1,
                    ignis__point_write(on_device).text);
        }
    }
    for (i = 1; i <= threads; i++)
        fprintf(file, ",\n{\"ph\": \"M\", \"pid\": 0, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": \"thread %d\"}}", i, i);
    fprintf(file, "]}\n");
    return ignis__report_close(call, path, file);
}

/*  Waits for the devices that are open, and lets `each` have each of them, entered. */
IGNIS__COLD static bool ignis__profile_devices(const char *call, ignis__traced *items, size_t count, bool begins)
{
    ignis__binding binding;
    bool ok = true;
    int i;
    for (i = 0; i < ignis__device_total; i++) {
        if (!ignis__atomic_load(&ignis__devices[i].opened))
            continue;
        if (!ignis__device_enter(call, &ignis__devices[i], &binding)) {
            ok = false;
            continue;
        }
        ok = ignis__device_wait(call, &ignis__devices[i]) && ok;
        if (begins)
            ignis__profile_base(&ignis__devices[i]);
        else
            ignis__profile_ask(i, items, count);
        ignis__device_leave(&binding);
    }
    return ok;
}

static ignis__mutex ignis__profile_ends = IGNIS__MUTEX_INIT; /* held by who begins or ends one */

IGNIS__COLD IGNIS_API ignis_status ignis_profile_begin(void)
{
    static const char call[] = "ignis_profile_begin";
    bool ok = false;
    if (!ignis__enter(call) || ignis__capture_refuses(call))
        return ignis__failed();
    if (ignis__global.dry_run)
        return ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "this is a dry run: nothing runs, and nothing takes time");
    ignis__mutex_lock(&ignis__profile_ends);
    if (ignis__profiling()) {
        ignis__fail(IGNIS_DIAG_PROFILE_STATE, call, "a profile is begun already; call ignis_profile_end first");
    } else {
        ignis__profile_drop(NULL, 0);
        ok = ignis__profile_devices(call, NULL, 0, true);
        ignis__mutex_lock(&ignis__profile_lock);
        ignis__profile.begin_ns = ignis__monotonic_ns();
        ignis__mutex_unlock(&ignis__profile_lock);
        ignis__atomic_store(&ignis__profile.on, ok);
    }
    ignis__mutex_unlock(&ignis__profile_ends);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_profile_end(const char *trace, const char *table)
{
    static const char call[] = "ignis_profile_end";
    ignis_profile_row *rows;
    ignis__traced *items;
    size_t count, lost;
    int64_t begin_ns;
    int row_count = 0, threads;
    bool ok;
    if (!ignis__enter(call) || ignis__capture_refuses(call))
        return ignis__failed();
    ignis__mutex_lock(&ignis__profile_ends);
    if (!ignis__profiling()) {
        ignis__mutex_unlock(&ignis__profile_ends);
        return ignis__fail(IGNIS_DIAG_PROFILE_STATE, call, "no profile is begun; call ignis_profile_begin first");
    }
    ignis__mutex_lock(&ignis__profile_lock);
    ignis__atomic_store(&ignis__profile.on, 0);
    items = ignis__profile.items;
    count = ignis__profile.count;
    lost = ignis__profile.lost;
    begin_ns = ignis__profile.begin_ns;
    threads = ignis__profile.threads;
    ignis__profile.items = NULL;
    ignis__profile.count = ignis__profile.capacity = ignis__profile.lost = 0;
    ignis__mutex_unlock(&ignis__profile_lock);
    ok = ignis__profile_devices(call, items, count, false);
    ignis__profile_share(items, count, threads);
    rows = ignis__profile_sum(items, count, &row_count);
    if (!rows) {
        ignis__fail_host_memory(call, (count + 1) * sizeof *rows);
        ok = false;
    }
    if (trace)
        ok = ignis__trace_write(call, trace, items, count, begin_ns) && ok;
    if (table && rows)
        ok = ignis__table_write(call, table, rows, row_count, lost) && ok;
    ignis__profile_drop(items, count);
    if (rows) {
        ignis__free(ignis__profile.rows);
        ignis__profile.rows = rows;
        ignis__profile.row_count = row_count;
    }
    ignis__mutex_unlock(&ignis__profile_ends);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API int ignis_profile_rows(ignis_profile_row *rows, int capacity)
{
    static const char call[] = "ignis_profile_rows";
    int count;
    if (!ignis__enter(call) || !ignis__room_given(call, "rows", rows, capacity))
        return -1;
    ignis__mutex_lock(&ignis__profile_ends);
    count = ignis__profile.row_count;
    if (count > 0 && capacity > 0)
        memcpy(rows, ignis__profile.rows, (size_t)(count < capacity ? count : capacity) * sizeof *rows);
    ignis__mutex_unlock(&ignis__profile_ends);
    return count;
}

/*  Drops a profile that nobody has ended, and what was kept of others. */
IGNIS__COLD static void ignis__profile_close(void)
{
    int i, threads = ignis__profile.threads;
    ignis__atomic_store(&ignis__profile.on, 0);
    ignis__profile_drop(ignis__profile.items, ignis__profile.count);
    ignis__free(ignis__profile.rows);
    for (i = 0; i < IGNIS__COUNT(ignis__profile.named); i++) {
        while (ignis__profile.named[i]) {
            ignis__named *next = ignis__profile.named[i]->next;
            ignis__free(ignis__profile.named[i]);
            ignis__profile.named[i] = next;
        }
    }
    memset(&ignis__profile, 0, sizeof ignis__profile);
    ignis__profile.threads = threads; /* which have their numbers */
}

/* ===============================================================================================================
   >>dry - dry runs: a driver that does nothing.
   =============================================================================================================== */

/*  ignis_desc.dry_run fills the tables of the libraries with these: they give out addresses, count them, and do nothing else. All that stands above
    runs as on a device, the cache of device memory with its rounding too. What reads the device finds zeros. One device, one context; a stream
    knows whether it is captured; of everything else that has a handle one is as good as another. */
typedef struct ignis__dry_memory {
    ignis__address start;
    size_t size;
    struct ignis__dry_memory *next;
} ignis__dry_memory;

static struct {
    ignis_device_info device;
    ignis__mutex lock;
    ignis__dry_memory *memory;
    size_t used;
    ignis__address next;
} ignis__dry = {IGNIS__ZERO, IGNIS__MUTEX_INIT, NULL, 0, 0};

/*  Calls that have nothing to do, by what they are given. */
static int ignis__dry_number(int number) { return (void)number, 0; }
static int ignis__dry_flags(unsigned flags) { return (void)flags, 0; }
static int ignis__dry_nothing(void) { return 0; }
static int ignis__dry_handle(void *handle) { return (void)handle, 0; }
static int ignis__dry_two(void *a, void *b) { return (void)a, (void)b, 0; }
static int ignis__dry_order(void *stream, void *event, unsigned flags) { return (void)stream, (void)event, (void)flags, 0; }
static int ignis__dry_set(void *function, int attribute, int value) { return (void)function, (void)attribute, (void)value, 0; }

/*  Calls that give a handle. */
static int ignis__dry_give(void **handle) { return *handle = &ignis__dry, 0; }
static int ignis__dry_none(void **context) { return *context = NULL, 0; }
static int ignis__dry_context(void **context, int device) { return (void)device, ignis__dry_give(context); }
static int ignis__dry_context_of(void *stream, void **context) { return (void)stream, ignis__dry_give(context); }
static int ignis__dry_event(void **event, unsigned flags) { return (void)flags, ignis__dry_give(event); }
static int ignis__dry_module(void **module, const void *image) { return (void)image, ignis__dry_give(module); }
static int ignis__dry_function(void **function, void *module, const char *name)
{
    return (void)module, (void)name, ignis__dry_give(function);
}
static int ignis__dry_exec(void **exec, void *graph, unsigned long long flags) { return (void)graph, (void)flags, ignis__dry_give(exec); }

/*  Streams. */
static int ignis__dry_stream_with(void **stream, unsigned flags, int priority)
{
    (void)flags, (void)priority;
    *stream = ignis__alloc(sizeof(uint64_t)); /* 1 while it is captured */
    return *stream ? 0 : IGNIS__CU_OUT_OF_MEMORY;
}
static int ignis__dry_stream(void **stream, unsigned flags) { return ignis__dry_stream_with(stream, flags, 0); }
static int ignis__dry_freed(void *memory) { return ignis__free(memory), 0; }
static bool ignis__dry_captured(void *stream)
{
    return (uintptr_t)stream > IGNIS__CU_STREAM_PER_THREAD && ignis__atomic_load((uint64_t *)stream) != 0;
}
static int ignis__dry_capturing(void *stream, int *captured) { return *captured = ignis__dry_captured(stream), 0; }
static int ignis__dry_capture(void *stream, int mode) { return (void)mode, ignis__atomic_store((uint64_t *)stream, 1), 0; }
static int ignis__dry_capture_end(void *stream, void **graph)
{
    ignis__atomic_store((uint64_t *)stream, 0);
    return ignis__dry_give(graph);
}
static int ignis__dry_elapsed(float *ms, void *first, void *last) { return (void)first, (void)last, *ms = 0, 0; }
static int ignis__dry_call(void *stream, void (*fn)(void *), void *user_data)
{
    if (!ignis__dry_captured(stream))
        fn(user_data);
    return 0;
}

/*  Facts. */
static int ignis__dry_one(int *count) { return *count = 1, 0; }
static int ignis__dry_version(int *version) { return *version = ignis__dry.device.driver_version, 0; }
static int ignis__dry_device_get(int *device, int ordinal) { return *device = ordinal, 0; }
static int ignis__dry_name(char *name, int size, int device)
{
    (void)device;
    snprintf(name, (size_t)size, "%s", ignis__dry.device.name);
    return 0;
}
static int ignis__dry_bus(char *name, int size, int device)
{
    (void)device;
    snprintf(name, (size_t)size, "%s", ignis__dry.device.pci_bus_id);
    return 0;
}
static int ignis__dry_uuid(void *uuid, int device)
{
    (void)device;
    memcpy(uuid, ignis__dry.device.uuid, sizeof ignis__dry.device.uuid);
    return 0;
}
static int ignis__dry_total(size_t *bytes, int device) { return (void)device, *bytes = (size_t)ignis__dry.device.memory_total, 0; }
static int ignis__dry_attribute(int *value, int attribute, int device)
{
    const ignis_device_info *info = &ignis__dry.device;
    (void)device;
    switch (attribute) {
    case IGNIS__CU_ATTRIBUTE_MAX_THREADS: *value = info->max_threads_per_block; break;
    case IGNIS__CU_ATTRIBUTE_WARP_SIZE: *value = info->warp_size; break;
    case IGNIS__CU_ATTRIBUTE_MULTIPROCESSORS: *value = info->multiprocessors; break;
    case IGNIS__CU_ATTRIBUTE_L2_BYTES: *value = (int)info->l2_bytes; break;
    case IGNIS__CU_ATTRIBUTE_MAJOR: *value = info->compute_major; break;
    case IGNIS__CU_ATTRIBUTE_MINOR: *value = info->compute_minor; break;
    case IGNIS__CU_ATTRIBUTE_SHARED_OPTIN: *value = info->shared_per_block; break;
    case IGNIS__CU_ATTRIBUTE_CLUSTERS: *value = info->compute_major >= 9; break;
    default: *value = 0;
    }
    return 0;
}
static int ignis__dry_function_get(int *value, int attribute, void *function)
{
    (void)function;
    *value = attribute == IGNIS__CU_FUNC_MAX_THREADS ? ignis__dry.device.max_threads_per_block
                                                     : 0; /* else registers, and memory that a kernel has of itself */
    return 0;
}
/*  As far as threads and dynamic shared memory go; registers are not known. */
static int ignis__dry_resident(int *blocks, void *function, int threads, size_t shared)
{
    size_t most = (size_t)(threads > 0 ? 2048 / threads : 0), fit = shared ? (size_t)ignis__dry.device.shared_per_block / shared : most;
    (void)function;
    *blocks = (int)(fit < most ? fit : most);
    return 0;
}
static int ignis__dry_map(void *map, int type, unsigned rank, void *data, const unsigned long long *sizes,
                          const unsigned long long *strides, const unsigned *box, const unsigned *steps, int interleave, int swizzle,
                          int promotion, int fill)
{
    (void)map, (void)type, (void)rank, (void)data, (void)sizes, (void)strides, (void)box, (void)steps;
    (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    return 0;
}

static int ignis__dry_pixels(void *map, int type, unsigned rank, void *data, const unsigned long long *sizes,
                             const unsigned long long *strides, const int *lower, const int *upper, unsigned channels, unsigned pixels,
                             const unsigned *steps, int interleave, int swizzle, int promotion, int outside)
{
    return (void)lower, (void)upper, (void)channels, (void)pixels,
           ignis__dry_map(map, type, rank, data, sizes, strides, steps, steps, interleave, swizzle, promotion, outside);
}

/*  Memory. Addresses are given out once, in steps of what a driver maps at a time. */
static int ignis__dry_free_bytes(size_t *available, size_t *total)
{
    *total = (size_t)ignis__dry.device.memory_total;
    ignis__mutex_lock(&ignis__dry.lock);
    *available = *total - ignis__dry.used;
    ignis__mutex_unlock(&ignis__dry.lock);
    return 0;
}
static int ignis__dry_alloc(ignis__address *address, size_t size)
{
    ignis__dry_memory *memory = (ignis__dry_memory *)ignis__alloc(sizeof *memory);
    bool fits;
    ignis__mutex_lock(&ignis__dry.lock);
    fits = memory && size <= (size_t)ignis__dry.device.memory_total - ignis__dry.used;
    if (fits) {
        memory->start = *address = ignis__dry.next;
        memory->size = size;
        memory->next = ignis__dry.memory;
        ignis__dry.memory = memory;
        ignis__dry.used += size;
        ignis__dry.next += (size / ((size_t)2 << 20) + 1) * ((size_t)2 << 20);
    }
    ignis__mutex_unlock(&ignis__dry.lock);
    if (!fits)
        ignis__free(memory);
    return fits ? 0 : IGNIS__CU_OUT_OF_MEMORY;
}
static int ignis__dry_free(ignis__address address)
{
    ignis__dry_memory **link = &ignis__dry.memory, *memory;
    ignis__mutex_lock(&ignis__dry.lock);
    while (*link && (*link)->start != address)
        link = &(*link)->next;
    memory = *link;
    if (memory) {
        *link = memory->next;
        ignis__dry.used -= memory->size;
    }
    ignis__mutex_unlock(&ignis__dry.lock);
    ignis__free(memory);
    return memory ? 0 : IGNIS__CU_INVALID_VALUE;
}
static int ignis__dry_pinned(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    *memory = ignis__alloc(size);
    return *memory ? 0 : IGNIS__CU_OUT_OF_MEMORY;
}
/*  Host memory is none that it knows. */
static int ignis__dry_pointer(unsigned count, int *attributes, void **values, ignis__address address)
{
    const ignis__dry_memory *memory;
    unsigned i;
    ignis__mutex_lock(&ignis__dry.lock);
    for (memory = ignis__dry.memory; memory && address - memory->start >= memory->size; memory = memory->next)
        ;
    for (i = 0; i < count; i++) {
        switch (attributes[i]) {
        case IGNIS__CU_POINTER_MEMORY_TYPE: *(int *)values[i] = memory ? IGNIS__CU_MEMORY_DEVICE : 0; break;
        case IGNIS__CU_POINTER_ORDINAL: *(int *)values[i] = 0; break;
        case IGNIS__CU_POINTER_RANGE_START: *(ignis__address *)values[i] = memory ? memory->start : 0; break;
        case IGNIS__CU_POINTER_RANGE_SIZE: *(size_t *)values[i] = memory ? memory->size : 0; break;
        default: break;
        }
    }
    ignis__mutex_unlock(&ignis__dry.lock);
    return 0;
}
static int ignis__dry_fill(ignis__address to, unsigned char value, size_t size, void *stream)
{
    return (void)to, (void)value, (void)size, (void)stream, 0;
}
static int ignis__dry_upload(ignis__address to, const void *from, size_t size, void *stream)
{
    return (void)to, (void)from, (void)size, (void)stream, 0;
}
static int ignis__dry_download(void *to, ignis__address from, size_t size, void *stream)
{
    (void)from, (void)stream;
    memset(to, 0, size);
    return 0;
}
static int ignis__dry_copy(ignis__address to, ignis__address from, size_t size, void *stream)
{
    return (void)to, (void)from, (void)size, (void)stream, 0;
}
static int ignis__dry_launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                             unsigned block_z, unsigned shared, void *stream, void **params, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    return (void)shared, (void)stream, (void)params, (void)extra, 0;
}
static int ignis__dry_launch_config(const void *config, void *function, void **params, void **extra)
{
    return (void)config, (void)function, (void)params, (void)extra, 0;
}

#ifndef IGNIS_NO_TENSORS
/*  cuBLASLt takes each product, with the most workspace that Ignis lets it have. */
static int ignis__dry_lt_desc(void **desc, int compute, int scale) { return (void)compute, (void)scale, ignis__dry_give(desc); }
static int ignis__dry_lt_layout(void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride)
{
    return (void)type, (void)rows, (void)columns, (void)stride, ignis__dry_give(layout);
}
static int ignis__dry_lt_set(void *desc, int attribute, const void *value, size_t size)
{
    return (void)desc, (void)attribute, (void)value, (void)size, 0;
}
static int ignis__dry_lt_choose(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted, void *choice,
                                int *found)
{
    (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)wanted;
    ((ignis__lt_choice *)choice)->workspace = IGNIS__LT_WORKSPACE;
    *found = 1;
    return 0;
}
static int ignis__dry_lt_run(void *handle, void *desc, const void *alpha, const void *a, void *layout_a, const void *b, void *layout_b,
                             const void *beta, const void *c, void *layout_c, void *d, void *layout_d, const void *algo, void *workspace,
                             size_t size, void *stream)
{
    (void)handle, (void)desc, (void)alpha, (void)a, (void)layout_a, (void)b, (void)layout_b, (void)beta, (void)c, (void)layout_c, (void)d;
    return (void)layout_d, (void)algo, (void)workspace, (void)size, (void)stream, 0;
}

IGNIS__COLD static void ignis__dry_bind_products(void)
{
    struct ignis__cublaslt_api *lt = &ignis__cublaslt;
    lt->cublasLtCreate = lt->cublasLtMatmulPreferenceCreate = ignis__dry_give;
    lt->cublasLtDestroy = lt->cublasLtMatmulDescDestroy = lt->cublasLtMatrixLayoutDestroy = ignis__dry_handle;
    lt->cublasLtMatmulPreferenceDestroy = ignis__dry_handle;
    lt->cublasLtMatmulDescCreate = ignis__dry_lt_desc;
    lt->cublasLtMatrixLayoutCreate = ignis__dry_lt_layout;
    lt->cublasLtMatmulDescSetAttribute = lt->cublasLtMatrixLayoutSetAttribute = ignis__dry_lt_set;
    lt->cublasLtMatmulPreferenceSetAttribute = ignis__dry_lt_set;
    lt->cublasLtMatmulAlgoGetHeuristic = ignis__dry_lt_choose;
    lt->cublasLtMatmul = ignis__dry_lt_run;
}
#endif

/*  What a dry run needs of the driver; the rest, sharing among devices and processes, is refused by ignis_collective.h. */
IGNIS__COLD static void ignis__dry_bind(void)
{
    struct ignis__cuda_api *cuda = &ignis__cuda;
    memset(cuda, 0, sizeof *cuda);
    cuda->cuInit = ignis__dry_flags;
    cuda->cuDevicePrimaryCtxRelease_v2 = ignis__dry_number;
    cuda->cuCtxSynchronize = ignis__dry_nothing;
    cuda->cuCtxSetCurrent = cuda->cuCtxPushCurrent_v2 = cuda->cuStreamSynchronize = cuda->cuStreamQuery = ignis__dry_handle;
    cuda->cuEventDestroy_v2 = cuda->cuEventQuery = cuda->cuEventSynchronize = cuda->cuModuleUnload = ignis__dry_handle;
    cuda->cuGraphDestroy = cuda->cuGraphExecDestroy = ignis__dry_handle;
    cuda->cuEventRecord = cuda->cuGraphLaunch = ignis__dry_two;
    cuda->cuStreamWaitEvent = ignis__dry_order;
    cuda->cuFuncSetAttribute = ignis__dry_set;
    cuda->cuCtxGetCurrent = cuda->cuCtxPopCurrent_v2 = ignis__dry_none;
    cuda->cuDevicePrimaryCtxRetain = ignis__dry_context;
    cuda->cuStreamGetCtx = ignis__dry_context_of;
    cuda->cuEventCreate = ignis__dry_event;
    cuda->cuModuleLoadData = ignis__dry_module;
    cuda->cuModuleGetFunction = ignis__dry_function;
    cuda->cuGraphInstantiateWithFlags = ignis__dry_exec;
    cuda->cuStreamCreate = ignis__dry_stream;
    cuda->cuStreamCreateWithPriority = ignis__dry_stream_with;
    cuda->cuStreamDestroy_v2 = cuda->cuMemFreeHost = ignis__dry_freed;
    cuda->cuStreamIsCapturing = ignis__dry_capturing;
    cuda->cuStreamBeginCapture_v2 = ignis__dry_capture;
    cuda->cuStreamEndCapture = ignis__dry_capture_end;
    cuda->cuEventElapsedTime = ignis__dry_elapsed;
    cuda->cuLaunchHostFunc = ignis__dry_call;
    cuda->cuDeviceGetCount = ignis__dry_one;
    cuda->cuDriverGetVersion = ignis__dry_version;
    cuda->cuDeviceGet = ignis__dry_device_get;
    cuda->cuDeviceGetName = ignis__dry_name;
    cuda->cuDeviceGetPCIBusId = ignis__dry_bus;
    cuda->cuDeviceGetUuid_v2 = ignis__dry_uuid;
    cuda->cuDeviceTotalMem_v2 = ignis__dry_total;
    cuda->cuDeviceGetAttribute = ignis__dry_attribute;
    cuda->cuFuncGetAttribute = ignis__dry_function_get;
    cuda->cuOccupancyMaxActiveBlocksPerMultiprocessor = ignis__dry_resident;
    cuda->cuTensorMapEncodeTiled = ignis__dry_map;
    cuda->cuTensorMapEncodeIm2col = ignis__dry_pixels;
    cuda->cuMemGetInfo_v2 = ignis__dry_free_bytes;
    cuda->cuMemAlloc_v2 = ignis__dry_alloc;
    cuda->cuMemFree_v2 = ignis__dry_free;
    cuda->cuMemHostAlloc = ignis__dry_pinned;
    cuda->cuPointerGetAttributes = ignis__dry_pointer;
    cuda->cuMemsetD8Async = ignis__dry_fill;
    cuda->cuMemcpyHtoDAsync_v2 = ignis__dry_upload;
    cuda->cuMemcpyDtoHAsync_v2 = ignis__dry_download;
    cuda->cuMemcpyDtoDAsync_v2 = ignis__dry_copy;
    cuda->cuLaunchKernel = ignis__dry_launch;
    cuda->cuLaunchKernelEx = ignis__dry_launch_config;
}

/*  The device of a dry run: an H200, but for what the caller knows better. */
IGNIS__COLD static void ignis__dry_setup(const ignis_device_info *facts)
{
    ignis_device_info *info = &ignis__dry.device;
    int i;
    ignis__dry.memory = NULL;
    ignis__dry.used = 0;
    ignis__dry.next = (ignis__address)1 << 40;
    memset(info, 0, sizeof *info);
    if (facts)
        *info = *facts;
    info->name[sizeof info->name - 1] = info->pci_bus_id[sizeof info->pci_bus_id - 1] = 0;
    if (!info->name[0])
        snprintf(info->name, sizeof info->name, "dry run");
    if (!info->pci_bus_id[0])
        snprintf(info->pci_bus_id, sizeof info->pci_bus_id, "0000:00:00.0");
    info->compute_major = info->compute_major ? info->compute_major : 9;
    info->multiprocessors = info->multiprocessors ? info->multiprocessors : 132;
    info->warp_size = info->warp_size ? info->warp_size : 32;
    info->max_threads_per_block = info->max_threads_per_block ? info->max_threads_per_block : 1024;
    info->shared_per_block = info->shared_per_block ? info->shared_per_block : 227 << 10;
    info->l2_bytes = info->l2_bytes ? info->l2_bytes : (int64_t)60 << 20;
    info->memory_total = info->memory_total ? info->memory_total : (int64_t)139 << 30;
    info->driver_version = info->driver_version ? info->driver_version : 13000;
    ignis__dry_bind();
#ifndef IGNIS_NO_TENSORS
    ignis__dry_bind_products();
#endif
    for (i = IGNIS_LIBRARY_CUDA; i <= IGNIS_LIBRARY_CUBLASLT; i++) {
        struct ignis__loaded *library = &ignis__libraries[i];
        snprintf(library->path, sizeof library->path, "dry run");
        library->found = ignis__library_specs[i].symbol_count;
        library->version = info->driver_version;
        library->release = (uint64_t)info->driver_version;
        library->loaded = 1;
    }
}

/* ===============================================================================================================
   >>setup - bringing all layers up, and down.
   =============================================================================================================== */

static void ignis__forked(void)
{
    ignis__atomic_store(&ignis__global.forked, 1);
    ignis__atomic_store(&ignis__global.refused, 0);
}

/*  What a caller says of the device of a dry run: no fact is below 0. */
IGNIS__COLD static bool ignis__dry_device_check(const char *call, const ignis_device_info *info)
{
    const struct {
        const char *name;
        int64_t value;
    } facts[] = {{"compute_major", info->compute_major},
                 {"compute_minor", info->compute_minor},
                 {"multiprocessors", info->multiprocessors},
                 {"warp_size", info->warp_size},
                 {"max_threads_per_block", info->max_threads_per_block},
                 {"shared_per_block", info->shared_per_block},
                 {"l2_bytes", info->l2_bytes},
                 {"memory_total", info->memory_total},
                 {"driver_version", info->driver_version}};
    int i;
    for (i = 0; i < IGNIS__COUNT(facts) && facts[i].value >= 0; i++)
        ;
    return i == IGNIS__COUNT(facts) || ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.dry_device->%s is %lld, below 0", facts[i].name,
                                                   (long long)facts[i].value) == IGNIS_OK;
}

static bool ignis__desc_check(const char *call, const ignis_desc *desc)
{
    if (!desc->allocator.alloc_fn != !desc->allocator.free_fn)
        ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.allocator has only one of alloc_fn and free_fn; set both or none");
    else if (desc->memory_limit < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.memory_limit is %lld, below 0", (long long)desc->memory_limit);
    else if (desc->cache_limit < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.cache_limit is %lld, below 0", (long long)desc->cache_limit);
    else
        return true;
    return false;
}

static bool ignis__env_flag(const char *name)
{
    const char *value = ignis__env(name);
    return value && *value && strcmp(value, "0") != 0;
}

/*  One of several ways to do a thing: *choice is what the program says, and becomes what the user's environment says if that is "auto". */
IGNIS__COLD static bool ignis__choose(const char *call, const char *field, const char *variable, const char *const *names, int count,
                                      int *choice)
{
    const char *value = ignis__env(variable);
    char list[64];
    ignis__text text;
    int i;
    if (*choice < 0 || *choice >= count)
        return ignis__refuse(IGNIS_DIAG_BAD_ENUM, call, "desc.%s is %d; 0 to %d are known", field, *choice, count - 1);
    if (*choice != 0 || !value || !*value)
        return true;
    ignis__text_begin(&text, list, sizeof list);
    for (i = 0; i < count && strcmp(value, names[i]) != 0; i++)
        ignis__text_add(&text, "%s%s", i == 0 ? "" : i == count - 1 ? " or " : ", ", names[i]);
    *choice = i;
    if (i == count)
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "%s is \"%s\"; it is %s", variable, value, list);
    return i < count;
}

IGNIS__COLD static bool ignis__library_want(const char *call, ignis_library library, const char *path)
{
    struct ignis__loaded *loaded = &ignis__libraries[library];
    memset(loaded, 0, sizeof *loaded);
    if (path && strlen(path) >= sizeof loaded->wanted)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "the path of %s is longer than %d bytes", ignis__library_specs[library].title,
                             (int)sizeof loaded->wanted - 1);
    snprintf(loaded->wanted, sizeof loaded->wanted, "%s", path ? path : "");
    return true;
}

/*  What ignis_collective.h holds is let go first; it puts itself here when it is first used. */
static void (*ignis__collective_close)(const char *call);

#ifndef IGNIS_NO_TENSORS
/*  Who claims an array, for the message of one that cannot be freed. */
IGNIS__COLD static int ignis__claims_name(ignis__text *text, const ignis__array *array)
{
    return ignis__tensors_claiming(text, array) + ignis__tape_claiming(text, array) + ignis__optimizers_claiming(text, array);
}
#endif

static ignis_status ignis__setup(const char *call, const ignis_desc *desc)
{
    static const char *const products[] = {"auto", "cublaslt", "own", "measure"}, *const attention[] = {"auto", "mma", "wgmma"},
                             *const compile[] = {"auto", "never"};
    int compile_when = (int)desc->compile;
    static bool fork_watched;
    ignis__global.logger = desc->logger;
    ignis__global.verbose = desc->verbose || ignis__env_flag("IGNIS_VERBOSE");
    ignis__matmul_by = (int)desc->matmul, ignis__attention_by = (int)desc->attention;
    if (!ignis__desc_check(call, desc) || (desc->dry_device && !ignis__dry_device_check(call, desc->dry_device)) ||
        !ignis__choose(call, "matmul", "IGNIS_MATMUL", products, IGNIS_MATMUL_COUNT, &ignis__matmul_by) ||
        !ignis__choose(call, "attention", "IGNIS_ATTENTION", attention, IGNIS_ATTENTION_COUNT, &ignis__attention_by) ||
        !ignis__choose(call, "compile", "IGNIS_COMPILE", compile, IGNIS_COMPILE_COUNT, &compile_when))
        return ignis__failed();
    ignis__allocator = desc->allocator;
    if (!ignis__library_want(call, IGNIS_LIBRARY_CUDA, desc->cuda_library) ||
        !ignis__library_want(call, IGNIS_LIBRARY_NVRTC, desc->nvrtc_library) ||
        !ignis__library_want(call, IGNIS_LIBRARY_CUBLASLT, desc->cublas_library) ||
        !ignis__library_want(call, IGNIS_LIBRARY_NCCL, desc->nccl_library))
        return ignis__failed();
    ignis__global.dry_run = desc->dry_run || ignis__env_flag("IGNIS_DRY_RUN");
    if (ignis__global.dry_run)
        ignis__dry_setup(desc->dry_device);
    if (ignis__global.dry_run && ignis__matmul_by == IGNIS_MATMUL_MEASURE) /* there is no time to measure */
        ignis__matmul_by = IGNIS_MATMUL_AUTO;
    if (!ignis__library_load(call, IGNIS_LIBRARY_CUDA) ||
        ignis__devices_setup(call, desc->device == IGNIS_DEVICE_0 ? 0 : desc->device) != IGNIS_OK)
        return ignis__failed();
    ignis__allow_tf32 = desc->allow_tf32;
    ignis__memory_setup(desc->memory_limit, desc->memory_bypass || ignis__env_flag("IGNIS_MEMORY_BYPASS"),
                        desc->trace_memory || ignis__global.dry_run || ignis__env_flag("IGNIS_TRACE_MEMORY"));
    ignis__kernels_setup(call, desc);
    ignis__compile_never = compile_when == IGNIS_COMPILE_NEVER;
    if (!ignis__requests_setup(call, desc) || !ignis__bundle_setup(call, desc)) {
        ignis__bundle_close();
        return ignis__failed();
    }
    if ((ignis__compile_never || ignis__requests.path[0]) && ignis__matmul_by == IGNIS_MATMUL_AUTO)
        ignis__matmul_by = IGNIS_MATMUL_OWN; /* so that what is recorded is what is asked for, with cuBLASLt or without */
#ifndef IGNIS_NO_TENSORS
    ignis__claim_holders = ignis__claims_name;
#endif
    if (!fork_watched)
        ignis__at_fork(ignis__forked);
    fork_watched = true;
    ignis__at_unload(ignis__unload);
    ignis__global.setups++;
    return IGNIS_OK;
}

static ignis__mutex ignis__setup_lock = IGNIS__MUTEX_INIT;

/*  The caller's functions are lent from ignis_setup to ignis_shutdown. */
static void ignis__give_back_lent(void)
{
    memset(&ignis__allocator, 0, sizeof ignis__allocator);
    memset(&ignis__global.logger, 0, sizeof ignis__global.logger);
}

IGNIS__COLD IGNIS_API ignis_status ignis_setup(const ignis_desc *desc)
{
    static const char call[] = "ignis_setup";
    ignis_desc defaults = IGNIS__ZERO;
    ignis_status status;
    if (ignis__atomic_load(&ignis__global.forked) || ignis__this_thread.called_back) {
        (void)ignis__enter(call);
        return ignis__failed();
    }
    ignis__mutex_lock(&ignis__setup_lock);
    if (ignis__atomic_load(&ignis__global.ready)) {
        status = ignis__fail(IGNIS_DIAG_ALREADY_SETUP, call, "Ignis is set up already; call ignis_shutdown first");
    } else {
        status = ignis__setup(call, desc ? desc : &defaults);
        ignis__atomic_store(&ignis__global.refused, 0);
        if (status == IGNIS_OK)
            ignis__atomic_store(&ignis__global.ready, 1);
        else
            ignis__give_back_lent();
    }
    ignis__mutex_unlock(&ignis__setup_lock);
    return status;
}

/*  A library with Ignis inside is unloaded, or the program ends, and other threads live on: nothing of Ignis is called by them any more. What
    stays is what they have kept since ignis_shutdown. Without one, as in a program that just ends, they may still be at work. */
IGNIS__AT_UNLOAD static void ignis__unload(void)
{
    if (ignis__atomic_load(&ignis__global.forked)) {
        ignis__thread_exits_close();
        return;
    }
    if (ignis__mutex_try(&ignis__setup_lock)) {
        if (!ignis__atomic_load(&ignis__global.ready)) {
            ignis__messages_cut(&ignis__this_thread);
            ignis__pools_free();
        }
        ignis__mutex_unlock(&ignis__setup_lock);
    }
    ignis__thread_exits_close();
}

/*  Reports every array that is alive, and frees it. Views count too: they are handles that nobody has freed. */
static void ignis__arrays_close(const char *call)
{
    ignis__array *array;
    uint64_t index = 0;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis__array_leaked(call, array, "");
        ignis__mutex_lock(&array->slot.lock);
        ignis__array_kill(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    }
}

static void ignis__kernels_close(const char *call)
{
    ignis__kernel *kernel;
    uint64_t index = 0;
    while ((kernel = (ignis__kernel *)ignis__pool_next(&ignis__kernels, &index)) != NULL) {
        if (kernel->file)
            ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "%s, made at %s:%d", ignis__label_write("kernel", 0, kernel->entry).text,
                               kernel->file, kernel->line);
        else
            ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "%s of '%s'", ignis__label_write("kernel", 0, kernel->entry).text,
                               (kernel->shares ? kernel->shares : kernel)->program.name);
        ignis__kernel_kill(kernel);
        ignis__kernel_drop(call, kernel);
    }
}

IGNIS__COLD IGNIS_API ignis_status ignis_shutdown(void)
{
    static const char call[] = "ignis_shutdown";
    ignis__record before = ignis__this_thread.record;
    const char *dry = ignis__env("IGNIS_DRY_RUN") ? ignis__env("IGNIS_DRY_RUN") : "";
    ignis_status status;
    int i;
    if (ignis__atomic_load(&ignis__global.forked) || ignis__this_thread.called_back) {
        (void)ignis__enter(call);
        return ignis__failed();
    }
#ifndef IGNIS_NO_TENSORS
    if (ignis__atomic_load(&ignis__global.ready) && (ignis__tensor_thread_now()->walk || ignis__this_thread.inside))
        return ignis__fail(IGNIS_DIAG_TAPE_WALKED, call, "this is inside of another call, whose tensors are needed still");
#endif
    ignis__mutex_lock(&ignis__setup_lock);
    if (!ignis__atomic_load(&ignis__global.ready)) {
        ignis__mutex_unlock(&ignis__setup_lock);
        return IGNIS_OK;
    }
    memset(&ignis__this_thread.record, 0, sizeof before); /* to see the first failure of this call */
    if (ignis__global.dry_run && strpbrk(dry, "./\\"))    /* a path, and not 1 or yes */
        (void)ignis_memory_snapshot(dry);
#ifndef IGNIS_NO_TENSORS
#ifdef IGNIS_MODELS
    ignis__sequences_close(call);
#endif
    ignis__graphs_close(call);
#endif
#ifdef IGNIS_MODELS
    ignis__loras_close(call);
    ignis__models_close(call);
    ignis__tokenizers_close(call);
#endif
    if (ignis__collective_close)
        ignis__collective_close(call);
#ifndef IGNIS_NO_TENSORS
    ignis__optimizers_close(call);
    ignis__tensors_close(call);
#endif
    ignis__tracking_reset(call);
    ignis__arrays_close(call);
    ignis__tickets_close(call);
    ignis__kernels_close(call);
    ignis__fences_close(call);
    ignis__gl_buffers_close(call);
    ignis__events_close(call);
    ignis__streams_leaked(call);
    ignis__pinned_leaked(call);
    if (ignis__leaks > IGNIS__LEAKS_SHOWN)
        ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_ARRAY_LEAKED, "%s: and %d more", call, ignis__leaks - IGNIS__LEAKS_SHOWN);
    ignis__leaks = 0;
    ignis__profile_close();
    for (i = 0; i < ignis__device_total; i++) {
        ignis__device *device = &ignis__devices[i];
        if (!ignis__atomic_load(&device->opened))
            continue;
        if (!IGNIS__CUDA_FAILED(call, device, cuCtxSetCurrent, (device->context)) && !ignis__devices_lost())
            (void)ignis__device_wait(call, device);
        ignis__builtins_close(device);
#ifndef IGNIS_NO_TENSORS
        ignis__formulas_close(device);
        ignis__matmul_close(device);
#endif
        ignis__memory_close(call, device);
        ignis__device_close(call, device);
    }
#ifndef IGNIS_NO_TENSORS
    ignis__formulas_close(NULL);
#endif
    ignis__images_close();
    ignis__bundle_close();
    ignis__callbacks_close();
#ifndef IGNIS_NO_TENSORS
    ignis__measured_close();
#endif
    ignis__threads_close();
    ignis__atomic_store(&ignis__global.ready, 0);
    ignis__atomic_store(&ignis__global.refused, 0);
    ignis__give_back_lent();
    status = ignis__this_thread.record.status;
    if (before.status != IGNIS_OK) { /* an earlier failure of the thread stays the first */
        if (status != IGNIS_OK && !ignis__this_thread.latest_message)
            ignis__latest_keep(&ignis__this_thread, ignis_status_message());
        ignis__record_drop(&ignis__this_thread);
        ignis__this_thread.record = before;
    }
    ignis__mutex_unlock(&ignis__setup_lock);
    return status;
}

