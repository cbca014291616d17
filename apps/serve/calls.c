// SPDX-License-Identifier: MIT
/*  calls.c - what a chat model writes: its reasoning, its text, and its calls of tools, each family in its own form

    The forms are the table below. A parser takes text as it grows and passes on pieces. It keeps back what may become
    a marker, and the beginning of a call up to its name. A call of a tool that the request does not have is text.
    Knows nothing of models and connections: tests/fuzz_calls.c includes it without them. */

typedef enum piece_kind { PIECE_TEXT, PIECE_REASONING, PIECE_CALL, PIECE_ARGUMENTS } piece_kind;

/*  A form of calls. Lists of markers are separated by "|||". A call has a name and arguments in one JSON object; or the
    name stands between markers, and JSON, or keys and values between markers, follow it. */
typedef struct call_form {
    const char *name;
    const char *sign;     /* found in what the template makes of a call of the_name with {"the_key": "v1"} */
    const char *open;     /* begins a call; "": a message that begins with { is one */
    const char *skip;     /* markers between calls and behind them */
    const char *name_end; /* markers of which the first one found ends a name; NULL: the name is in the JSON */
    const char *to_value; /* behind the name, up to here, is something else (NULL) */
    const char *key;      /* begins a key, if arguments are keys and values (NULL: they are JSON) */
    const char *key_end, *value_end;
    const char *forced; /* the beginning of a call up to its arguments, with % for its name */

    /* of keys and values, as the family's template writes them */
    const char *pair; /* % for the key, % for the value, and ? for whether the value is a string: true or false */
    const char *end, *next, *finish; /* behind a call's pairs; a further call up to its pairs; behind the last call */
} call_form;

#define JSON_FORM NULL, NULL, NULL, NULL /* no keys and values */
#define HERMES "<tool_call>\n{\"name\": \"%\", \"arguments\": "

#define DEEPSEEK_CALLS "<｜tool▁calls▁begin｜>"
#define DEEPSEEK_CALL "<｜tool▁call▁begin｜>"
#define DEEPSEEK_SEP "<｜tool▁sep｜>"
#define DEEPSEEK_ENDS "<｜tool▁call▁end｜>|||<｜tool▁calls▁end｜>"

#define DSML_CALLS "<｜DSML｜function_calls>|||<｜DSML｜tool_calls>"
#define DSML_ENDS "</｜DSML｜invoke>|||</｜DSML｜function_calls>|||</｜DSML｜tool_calls>"
#define DSML_INVOKE "<｜DSML｜invoke name=\""
#define DSML_PAIR "<｜DSML｜parameter name=\"%\" string=\"?\">%</｜DSML｜parameter>\n"
#define DSML(name, sign, calls)                                                                                   \
    {                                                                                                             \
        name, sign, DSML_CALLS "|||" DSML_INVOKE, DSML_ENDS, "\">", NULL, "<｜DSML｜parameter name=\"",           \
            "\" string=\"true\">|||\" string=\"false\">", "</｜DSML｜parameter>",                                 \
            "<｜DSML｜" calls ">\n" DSML_INVOKE "%\">\n", DSML_PAIR, "</｜DSML｜invoke>\n", DSML_INVOKE "%\">\n", \
            "</｜DSML｜" calls ">"                                                                                \
    }

#define CODER(name, sign, outer, around)                                                                             \
    {                                                                                                                \
        name, sign, "<tool_call>|||<seed:tool_call>|||<function=", "</function>|||</tool_call>|||</seed:tool_call>", \
            ">", NULL, "<parameter=", ">", "</parameter>", "<" outer ">\n<function=%>\n",                            \
            "<parameter=%>" around "%" around "</parameter>\n", "</function>\n</" outer ">",                         \
            "\n<" outer ">\n<function=%>\n", ""                                                                      \
    }

#define GLM(name, sign, line)                                                                                         \
    {                                                                                                                 \
        name, sign, "<tool_call>", "</tool_call>", "<arg_key>|||\n|||</tool_call>", NULL, "<arg_key>",                \
            "</arg_key>\n<arg_value>|||</arg_key><arg_value>", "</arg_value>", "<tool_call>%" line,                   \
            "<arg_key>%</arg_key>" line "<arg_value>%</arg_value>" line, "</tool_call>", line "<tool_call>%" line, "" \
    }

#define HY(name, to)                                                                                                 \
    {                                                                                                                \
        name, "<tool_sep" to, "<tool_calls" to "|||<tool_call" to, "</tool_call" to "|||</tool_calls" to,            \
            "<tool_sep" to, NULL, "<arg_key" to, "</arg_key" to "\n<arg_value" to "|||</arg_key" to "<arg_value" to, \
            "</arg_value" to, "<tool_calls" to "\n<tool_call" to "%<tool_sep" to "\n",                               \
            "<arg_key" to "%</arg_key" to "\n<arg_value" to "%</arg_value" to "\n", "</tool_call" to "\n",           \
            "<tool_call" to "%<tool_sep" to "\n", "</tool_calls" to                                                  \
    }

static const call_form forms[] = {
    {"harmony", "<|channel|>commentary", NULL, "", NULL, NULL, NULL, NULL, NULL,
     "<|channel|>commentary to=functions.% <|constrain|>json<|message|>", JSON_FORM},
    {"mistral", "[TOOL_CALLS]the_name", "[TOOL_CALLS]", "", "[CALL_ID]|||[ARGS]|||{", "[ARGS]", NULL, NULL, NULL,
     "[TOOL_CALLS]%[ARGS]", JSON_FORM},
    {"mistral-list", "[TOOL_CALLS]", "[TOOL_CALLS]", "", NULL, NULL, NULL, NULL, NULL,
     "[TOOL_CALLS][{\"name\": \"%\", \"arguments\": ", JSON_FORM},
    {"deepseek-3.1", DEEPSEEK_CALL "the_name", DEEPSEEK_CALLS "|||" DEEPSEEK_CALL, DEEPSEEK_ENDS, DEEPSEEK_SEP, NULL,
     NULL, NULL, NULL, DEEPSEEK_CALLS DEEPSEEK_CALL "%" DEEPSEEK_SEP, JSON_FORM},
    {"deepseek", DEEPSEEK_CALL "function", DEEPSEEK_CALLS "|||" DEEPSEEK_CALL,
     "function" DEEPSEEK_SEP "|||```|||" DEEPSEEK_ENDS, "\n", "```json", NULL, NULL, NULL,
     DEEPSEEK_CALLS DEEPSEEK_CALL "function" DEEPSEEK_SEP "%\n```json\n", JSON_FORM},
    {"kimi", "<|tool_call_begin|>", "<|tool_calls_section_begin|>|||<|tool_call_begin|>",
     "functions.|||<|tool_call_end|>|||<|tool_calls_section_end|>", ":|||<|tool_call_argument_begin|>",
     "<|tool_call_argument_begin|>", NULL, NULL, NULL,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.%:0<|tool_call_argument_begin|>", JSON_FORM},
    {"command", "<|START_ACTION|>", "<|START_ACTION|>", "<|END_ACTION|>", NULL, NULL, NULL, NULL, NULL,
     "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"%\", \"parameters\": ", JSON_FORM},
    {"command-r", "Action: ```json", "Action: ```json|||Action:```json", "```", NULL, NULL, NULL, NULL, NULL,
     "Action: ```json\n[{\"tool_name\": \"%\", \"parameters\": ", JSON_FORM},
    CODER("seed", "<seed:tool_call>", "seed:tool_call", ""),
    CODER("coder", "<function=the_name>\n<parameter=", "tool_call", "\n"),
    {"functionary", "<function=the_name>{", "<function=", "</function>", ">", NULL, NULL, NULL, NULL, "<function=%>",
     JSON_FORM},
    HY("hy", ":opensource>"),
    HY("hy-plain", ">"),
    GLM("glm-4.7", "</arg_key><arg_value>", ""),
    GLM("glm", "<arg_key>", "\n"),
    {"minimax", "<minimax:tool_call>", "<minimax:tool_call>|||<invoke name=\"", "</invoke>|||</minimax:tool_call>",
     "\">", NULL, "<parameter name=\"", "\">", "</parameter>", "<minimax:tool_call>\n<invoke name=\"%\">\n",
     "<parameter name=\"%\">%</parameter>\n", "</invoke>\n", "<invoke name=\"%\">\n", "</minimax:tool_call>"},
    DSML("dsml-4", "<｜DSML｜tool_calls>", "tool_calls"),
    DSML("dsml", DSML_INVOKE, "function_calls"),
    {"param", "<function name=\"the_name\"", "<function name=\"", "</function>", "\">", NULL, "<param name=\"", "\">",
     "</param>", "<function name=\"%\">", "<param name=\"%\">%</param>", "</function>", "<function name=\"%\">", ""},
    {"granite", "<|tool_call|>", "<|tool_call|>", "<|/tool_call|>", NULL, NULL, NULL, NULL, NULL,
     "<|tool_call|>[{\"name\": \"%\", \"arguments\": ", JSON_FORM},
    {"nemotron", "<TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>", NULL, NULL, NULL, NULL, NULL,
     "<TOOLCALL>[{\"name\": \"%\", \"arguments\": ", JSON_FORM},
    {"tool_calls", "<tool_calls>", "<tool_calls>", "</tool_calls>", NULL, NULL, NULL, NULL, NULL,
     "<tool_calls>[{\"name\": \"%\", \"arguments\": ", JSON_FORM},
    {"function_call", "<|function_call|>", "<|function_call|>", "", NULL, NULL, NULL, NULL, NULL,
     "<|function_call|>{\"name\": \"%\", \"arguments\": ", JSON_FORM},
    {"llama3", "{\"name\": \"the_name\", \"parameters\": ", "|||<|python_tag|>", "", NULL, NULL, NULL, NULL, NULL,
     "{\"name\": \"%\", \"parameters\": ", JSON_FORM},
    {"hermes", "<tool_call>", "<tool_call>", "</tool_call>", NULL, NULL, NULL, NULL, NULL, HERMES, JSON_FORM},
};

/*  Markers around reasoning, at the beginning of a message, and markers that are dropped. */
static const struct {
    const char *begin, *end;
} thoughts[] = {
    {"<think>", "</think>"},           {"<think:opensource>", "</think:opensource>"}, {"[THINK]", "[/THINK]"},
    {"<seed:think>", "</seed:think>"}, {"<|START_THINKING|>", "<|END_THINKING|>"},
};
static const char dropped[] = "<|START_RESPONSE|>|||<|END_RESPONSE|>";
static const char harmony_marks[] =
    "<|start|>|||<|channel|>|||<|message|>|||<|constrain|>|||<|end|>|||<|call|>|||<|return|>";

/*  Returns the first form whose sign a rendered chat has; hermes, if none has. */
static const call_form *find_form(const char *rendered)
{
    const call_form *f = forms;
    while (f < forms + COUNT(forms) - 1 && !strstr(rendered, f->sign))
        f++;
    return f;
}

static const call_form *form_named(const char *name)
{
    size_t i;
    for (i = 0; i < COUNT(forms); i++)
        if (strcmp(forms[i].name, name) == 0)
            return &forms[i];
    return NULL;
}

/*  Returns whether a control token is a part of a marker, so that the parser has to get it. */
static bool is_marker(const call_form *f, const char *token)
{
    size_t i;
    if (!*token)
        return false;
    for (i = 0; i < COUNT(thoughts); i++)
        if (strcmp(token, thoughts[i].begin) == 0 || strcmp(token, thoughts[i].end) == 0)
            return true;
    return strstr(dropped, token) ||
           (f->open ? strstr(f->open, token) != NULL : strstr(harmony_marks, token) != NULL) ||
           strstr(f->skip, token) || (f->name_end && strstr(f->name_end, token)) ||
           (f->to_value && strstr(f->to_value, token)) ||
           (f->key && (strstr(f->key, token) || strstr(f->key_end, token) || strstr(f->value_end, token)));
}

/* --- finding markers --------------------------------------------------------------------------------------------- */

enum { MORE = -1, NONE = 0 }; /* or the number of bytes */

/*  Returns the bytes of the marker of a list that a text begins with; MORE: it may begin with one, if more comes. */
static int at_marker(const char *s, size_t size, const char *list)
{
    int found = NONE;
    while (list && *list) {
        const char *end = strstr(list, "|||");
        size_t length = end ? (size_t)(end - list) : strlen(list), there = length < size ? length : size;
        if (length && memcmp(s, list, there) == 0) {
            if (there == length)
                return (int)length;
            found = MORE;
        }
        list = end ? end + 3 : NULL;
    }
    return found;
}

/*  Finds the first marker of a list from `from` on. Returns where it is, and its bytes in *length; MORE: it may be
    there if more comes. size, if there is none. */
static size_t find_marker(const char *s, size_t size, size_t from, const char *list, int *length)
{
    for (*length = NONE; from < size; from++) {
        *length = at_marker(s + from, size - from, list);
        if (*length != NONE)
            break;
    }
    return from;
}

/* --- schemas of arguments ---------------------------------------------------------------------------------------- */

/*  Kinds of values, as bits of json_kind. */
enum {
    KIND_NULL = 1 << JSON_NULL,
    KIND_BOOLEAN = 1 << JSON_FALSE | 1 << JSON_TRUE,
    KIND_NUMBER = 1 << JSON_NUMBER,
    KIND_STRING = 1 << JSON_STRING,
    KIND_ARRAY = 1 << JSON_ARRAY,
    KIND_OBJECT = 1 << JSON_OBJECT,
    KIND_ANY = 127
};

/*  Returns the value that a fragment with a JSON pointer, as "#/$defs/name", refers to; NULL if it does not exist. */
static const json *find_place(const json *root, const char *at)
{
    if (*at++ != '#')
        return NULL;
    while (root && *at == '/') {
        char name[256];
        size_t size = 0;
        for (at++; *at && *at != '/' && size < sizeof name - 1; at++) {
            unsigned byte;
            if (*at == '%' && sscanf(at + 1, "%2x", &byte) == 1 && at[1] && at[2])
                name[size++] = (char)byte, at += 2;
            else if (*at == '~' && (at[1] == '0' || at[1] == '1'))
                name[size++] = *++at == '0' ? '~' : '/';
            else
                name[size++] = *at;
        }
        name[size] = 0;
        if (root->kind == JSON_ARRAY) {
            long count = strspn(name, "0123456789") == size && size && size < 8 ? atol(name) : -1;
            for (root = count < 0 ? NULL : root->first; root && count > 0; count--)
                root = root->next;
        } else {
            root = member(root, name);
        }
    }
    return *at ? NULL : root;
}

/*  Returns the object of parameters that a schema is, behind references. */
static const json *find_parameters(const json *schema)
{
    const json *root = schema, *ref;
    int i;
    for (i = 0; i < MAX_DEPTH && (ref = member(schema, "$ref")) != NULL && ref->kind == JSON_STRING; i++)
        schema = find_place(root, ref->string);
    return schema;
}

/*  Returns the schema of a property of parameters; NULL: any value. */
static const json *find_property(const json *parameters, const char *key, size_t size)
{
    const json *object = find_parameters(parameters), *properties = member(object, "properties"),
               *one = properties ? properties->first : NULL;
    while (one && (strlen(one->key) != size || memcmp(one->key, key, size) != 0))
        one = one->next;
    return one ? one : member(object, "additionalProperties");
}

/*  As kinds_of, with at most *left schemas: references may lead to each other. */
static unsigned limited_kinds_of(const json *schema, const json *root, int *left)
{
    static const struct {
        const char *name;
        unsigned kinds;
    } types[] = {{"null", KIND_NULL},     {"boolean", KIND_BOOLEAN}, {"number", KIND_NUMBER}, {"integer", KIND_NUMBER},
                 {"string", KIND_STRING}, {"array", KIND_ARRAY},     {"object", KIND_OBJECT}};
    static const char *const words[] = {"anyOf", "oneOf", "allOf"};
    const json *type = member(schema, "type"), *ref = member(schema, "$ref"), *one;
    unsigned kinds = KIND_ANY, some;
    size_t i;
    if (!schema || schema->kind != JSON_OBJECT || --*left < 0)
        return schema && schema->kind == JSON_FALSE ? 0 : KIND_ANY;
    if (type) {
        one = type->kind == JSON_ARRAY ? type->first : type;
        for (kinds = 0; one; one = type->kind == JSON_ARRAY ? one->next : NULL)
            for (i = 0; i < COUNT(types); i++)
                kinds |= is_text(one, types[i].name) ? types[i].kinds : 0;
    }
    if (ref && ref->kind == JSON_STRING)
        kinds &= limited_kinds_of(find_place(root, ref->string), root, left);
    if ((one = member(schema, "const")) != NULL)
        kinds &= 1u << one->kind;
    if ((one = member(schema, "enum")) != NULL) {
        for (one = one->first, some = 0; one; one = one->next)
            some |= 1u << one->kind;
        kinds &= some;
    }
    for (i = 0; i < COUNT(words); i++) {
        if ((one = member(schema, words[i])) == NULL)
            continue;
        for (one = one->first, some = i == 2 ? KIND_ANY : 0; one; one = one->next)
            some = i == 2 ? some & limited_kinds_of(one, root, left) : some | limited_kinds_of(one, root, left);
        kinds &= some;
    }
    return kinds;
}

/*  Returns the kinds of values that a schema allows, or more. root: the schema that it is a part of. */
static unsigned kinds_of(const json *schema, const json *root)
{
    int left = 1000;
    return limited_kinds_of(schema, root, &left);
}

/*  Returns whether a value is a string, whatever its text is, or null. */
static bool is_plain(unsigned kinds) { return kinds & KIND_STRING && !(kinds & (KIND_ANY ^ KIND_STRING ^ KIND_NULL)); }

/* --- the parser -------------------------------------------------------------------------------------------------- */

enum { MAX_NAME = 128 };

typedef enum parser_state {
    IN_TEXT,
    AT_ARGUMENTS, /* nothing of them has come */
    IN_ARGUMENTS, /* JSON that is passed on */
    IN_VALUES,    /* keys and values */
    IN_REST,      /* the rest of a JSON object behind its arguments */
    IN_HEADER,    /* harmony: up to <|message|> */
    IN_BODY       /* harmony: up to the next marker */
} parser_state;

typedef struct parser {
    const call_form *form; /* NULL: all is text but reasoning */
    const json *tools;     /* an array of {"function": {"name": ..., "parameters": ...}}, or NULL: no calls */
    void (*put)(void *to, piece_kind kind, const char *data, size_t size);
    void *to;

    text held;
    parser_state state;
    piece_kind sink;               /* of IN_BODY and IN_TEXT */
    bool begun;                    /* something of this part was passed on */
    bool thoughtful;               /* there was reasoning */
    int thought;                   /* of the table, while reasoning is open */
    bool behind_call;              /* markers between calls are skipped */
    bool in_object;                /* the rest of a JSON object follows the arguments */
    bool quoted, escaped, has_key; /* within a string; behind a backslash; a key has been written */
    int depth;                     /* of the JSON that is passed on */
    const json *parameters;        /* the schema of the arguments of the tool that is called; NULL: unknown */
} parser;

static void parser_put(parser *p, piece_kind kind, const char *data, size_t size)
{
    if (size)
        p->put(p->to, kind, data, size);
}

/*  Passes on the first bytes of the held text. White space at the beginning of a part is left out if parts came before
    it, or reasoning is open. */
static void parser_release(parser *p, size_t size)
{
    size_t blank = 0;
    if (!p->begun && (p->thoughtful || p->state == IN_BODY))
        while (blank < size && p->held.data[blank] && strchr(" \t\r\n", p->held.data[blank]))
            blank++;
    if (blank < size) {
        p->begun = true;
        parser_put(p, p->sink, p->held.data + blank, size - blank);
    }
    text_cut(&p->held, size);
}

static const json *find_tool(const json *tools, const char *name)
{
    const json *one = tools ? tools->first : NULL, *function, *own;
    for (; one; one = one->next) {
        function = member(one, "function");
        own = function ? member(function, "name") : NULL;
        if (is_text(own, name))
            return function;
    }
    return NULL;
}

/*  Returns the size of a JSON value at s; MORE if its end is missing; NONE if no JSON value begins there. The byte
    that follows a number shows its end. */
static int value_length(const char *s, size_t size)
{
    size_t i = 0;
    int depth = 0;
    bool quoted = false;
    if (!size)
        return MORE;
    if (!strchr("{[\"-0123456789tfn", s[0]))
        return NONE;
    for (; i < size; i++) {
        if (quoted) {
            if (s[i] == '\\')
                i++;
            else if (s[i] == '"')
                quoted = false;
        } else if (s[i] == '"') {
            quoted = true;
        } else if (s[i] == '{' || s[i] == '[') {
            depth++;
        } else if (s[i] == '}' || s[i] == ']') {
            if (--depth < 0)
                return (int)i;
        } else if (depth == 0 && strchr(", \t\r\n", s[i])) {
            return (int)i;
        }
        if (depth == 0 && !quoted && strchr("}]\"", s[i]) && i)
            return (int)i + 1;
    }
    return MORE;
}

static size_t skip_blank(const char *s, size_t size, size_t at)
{
    while (at < size && s[at] && strchr(" \t\r\n", s[at]))
        at++;
    return at;
}

/*  A call that begins a text. */
typedef struct call_head {
    char name[MAX_NAME + 1]; /* a copy; empty: none */
    size_t end;              /* end: where its arguments begin; without a call, where markers end */
    bool in_object;          /* the name was in a JSON object, whose rest follows the arguments */
    bool closed;             /* that object has ended without arguments */
} call_head;

/*  Reads {"name": "f", "arguments": up to the arguments. */
static int read_object_head(const char *s, size_t size, size_t at, call_head *h)
{
    size_t arguments = 0;
    for (at++;;) {
        size_t key, value;
        int length, i, role = 0;
        static const char *const known[] = {"\"name\"", "\"tool_name\"", "\"arguments\"", "\"parameters\""};
        at = skip_blank(s, size, at);
        if (at < size && s[at] == ',')
            at = skip_blank(s, size, at + 1);
        if (at == size)
            return MORE;
        if (s[at] == '}' && h->name[0]) {
            h->closed = !arguments;
            h->end = arguments ? arguments : at + 1;
            return 1;
        }
        if (s[at] != '"')
            return NONE;
        key = at;
        length = value_length(s + at, size - at);
        if (length == MORE)
            return size - at > 1000 ? NONE : MORE;
        for (i = 0; i < 4; i++)
            if ((size_t)length == strlen(known[i]) && memcmp(s + key, known[i], (size_t)length) == 0)
                role = i / 2 + 1;
        at = skip_blank(s, size, at + (size_t)length);
        if (at == size)
            return MORE;
        if (s[at] != ':')
            return NONE;
        at = value = skip_blank(s, size, at + 1);
        if (role == 2 && h->name[0]) {
            h->end = at;
            return at == size ? MORE : 1;
        }
        length = value_length(s + at, size - at);
        if (length <= 0)
            return length;
        at += (size_t)length;
        if (role == 1) {
            if (s[value] != '"' || length < 3 || length > MAX_NAME || memchr(s + value, '\\', (size_t)length))
                return NONE;
            snprintf(h->name, sizeof h->name, "%.*s", length - 2, s + value + 1);
        } else if (role == 2) {
            arguments = value;
        }
        if (h->name[0] && arguments) { /* they came first */
            h->end = arguments;
            return 1;
        }
    }
}

/*  Reads a name that ends with a marker, up to the arguments. */
static int read_named_head(const call_form *f, const char *s, size_t size, bool last, call_head *h)
{
    int length;
    size_t at = h->end, stop = find_marker(s, size, at, f->name_end, &length), name_end;
    bool stays, at_value;
    if (length <= 0)
        return length == MORE || (size - at < MAX_NAME && !last) ? MORE : NONE;
    for (name_end = stop; name_end > at && strchr(" \t\r\n", s[name_end - 1]);)
        name_end--;
    if (name_end - at > MAX_NAME)
        return NONE;
    snprintf(h->name, sizeof h->name, "%.*s", (int)(name_end - at), s + at);
    stays =
        s[stop] == '{' || at_marker(s + stop, size - stop, f->key) > 0 || at_marker(s + stop, size - stop, f->skip) > 0;
    at_value = s[stop] == '{' || !f->to_value || at_marker(s + stop, size - stop, f->to_value) > 0;
    h->end = stays ? stop : stop + (size_t)length;
    if (at_value)
        return 1;
    stop = find_marker(s, size, h->end, f->to_value, &length);
    h->end = stop + (size_t)(length > 0 ? length : 0);
    return length > 0 ? 1 : last ? NONE : MORE;
}

/*  Returns 1 if a call begins the held text, behind markers; MORE: it may, if more comes; NONE: it does not. */
static int read_call(const parser *p, bool last, call_head *h)
{
    const call_form *f = p->form;
    const char *s = p->held.data;
    size_t size = p->held.size, at = 0;
    bool armed = *f->open == '|'; /* no marker is needed */
    int length;
    memset(h, 0, sizeof *h);
    for (;;) {
        at = skip_blank(s, size, at);
        h->end = at;
        if (at == size)
            return last ? NONE : MORE;
        length = at_marker(s + at, size - at, f->open);
        if (length > 0)
            armed = true;
        else if (length == NONE)
            length = at_marker(s + at, size - at, f->skip);
        if (length == MORE && !last)
            return MORE;
        if (length <= 0 && !f->name_end && s[at] && strchr("[],;", s[at]) && (armed || p->behind_call))
            length = 1;
        if (length <= 0)
            break;
        at += (size_t)length;
    }
    if (s[at] == '{' && (armed || !f->name_end)) {
        h->in_object = true;
        length = read_object_head(s, size, at, h);
    } else {
        length = armed && f->name_end ? read_named_head(f, s, size, last, h) : NONE;
    }
    length = length == MORE && last ? NONE : length;
    if (length == 1 && !find_tool(p->tools, h->name))
        length = NONE;
    if (length == NONE)
        h->end = at;
    return length;
}

/*  Begins a call, whose arguments begin at h->end of the held text. */
static void begin_call(parser *p, const call_head *h)
{
    p->parameters = member(find_tool(p->tools, h->name), "parameters");
    p->in_object = h->in_object;
    parser_put(p, PIECE_CALL, h->name, strlen(h->name));
    p->behind_call = p->begun = true;
    p->has_key = p->quoted = p->escaped = false;
    p->depth = 0;
    p->state = p->form->key && !h->in_object ? IN_VALUES : AT_ARGUMENTS;
    if (h->closed) {
        parser_put(p, PIECE_ARGUMENTS, "{}", 2);
        p->state = IN_TEXT;
    }
    text_cut(&p->held, h->end);
}

/*  Follows JSON to the bracket that closes `depth`. Returns the bytes up to there and true, or all and false. */
static bool follow_json(parser *p, size_t *end)
{
    size_t i;
    for (i = 0; i < p->held.size; i++) {
        char c = p->held.data[i];
        if (p->escaped)
            p->escaped = false;
        else if (p->quoted && c == '\\')
            p->escaped = true;
        else if (c == '"')
            p->quoted = !p->quoted;
        else if (!p->quoted && (c == '{' || c == '['))
            p->depth++;
        else if (!p->quoted && (c == '}' || c == ']') && --p->depth <= 0) {
            *end = i + 1;
            return true;
        }
    }
    *end = i;
    return false;
}

static void end_arguments(parser *p)
{
    p->state = p->in_object ? IN_REST : IN_TEXT;
    p->depth = 1; /* of the object around */
    p->quoted = p->escaped = false;
}

/*  Finds out by their first byte what arguments are: JSON, or a string that has it, or null. */
static bool parse_start(parser *p, bool last)
{
    json_reader r;
    text copy = {0};
    int length;
    text_cut(&p->held, skip_blank(p->held.data, p->held.size, 0));
    if (!p->held.size)
        return false;
    if (p->held.data[0] == '{' || p->held.data[0] == '[') {
        p->state = IN_ARGUMENTS;
        return true;
    }
    length = value_length(p->held.data, p->held.size);
    if (length == MORE && !last)
        return false;
    if (length == MORE)
        length = (int)p->held.size;
    text_add(&copy, p->held.data, (size_t)length);
    if (json_read(&r, &copy) && r.values->kind == JSON_STRING)
        parser_put(p, PIECE_ARGUMENTS, r.values->string, r.values->size);
    else
        parser_put(p, PIECE_ARGUMENTS, "{}", 2);
    free(r.values);
    text_free(&copy);
    text_cut(&p->held, (size_t)length);
    end_arguments(p);
    return true;
}

/*  Passes on a value as JSON. Templates write strings as they are, and other values as JSON: which one a text is
    follows from the kinds of values that the tool's schema allows. is_string, of a form that says it: true or false;
    else MORE. */
static void put_value(parser *p, const char *key, size_t key_size, const char *value, size_t size, unsigned kinds,
                      int is_string)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}}; /* Python's */
    json_reader r;
    text copy = {0}, out = {0};
    bool is_json;
    size_t i;
    if (strstr(p->form->pair, "\n%\n")) { /* the template has a line for it */
        if (size && *value == '\n')
            value++, size--;
        if (size && value[size - 1] == '\n')
            size--;
    }
    for (i = 0; i < COUNT(words) && !(kinds & KIND_STRING); i++)
        if (strlen(words[i][0]) == size && memcmp(words[i][0], value, size) == 0)
            value = words[i][1], size = strlen(value);
    text_add(&copy, value, size);
    is_json = json_read_with(&r, &copy, true); /* all that a grammar lets a model write */
    if (is_string == MORE && is_plain(kinds))
        is_string = !(is_json && r.values->kind == JSON_NULL && (kinds & KIND_NULL));
    else if (is_string == MORE)
        is_string = is_json && (kinds & KIND_STRING) && !(kinds & 1u << r.values->kind);
    is_string = is_string || !is_json;
    free(r.values);
    text_print(&out, "%s\"", p->has_key ? "," : "{");
    text_escape(&out, key, key_size);
    text_print(&out, is_string ? "\":\"" : "\":");
    if (is_string)
        text_escape(&out, value, size), text_print(&out, "\"");
    else
        text_add(&out, value, size);
    parser_put(p, PIECE_ARGUMENTS, out.data, out.size);
    p->has_key = true;
    text_free(&out), text_free(&copy);
}

/*  Returns where the marker behind a value is looked for: behind its JSON, whose strings may have one, if a marker
    follows it; else from its begin. size + 1, if more has to come. */
static size_t find_json_end(const call_form *f, const char *s, size_t size, size_t value, bool last)
{
    size_t at = skip_blank(s, size, value);
    int length = at < size && strchr("{[\"", s[at]) && s[at] ? value_length(s + at, size - at)
                 : at < size                                 ? NONE
                                                             : MORE;
    if (length > 0) {
        at = skip_blank(s, size, at + (size_t)length);
        length = at_marker(s + at, size - at, f->value_end);
        if (length > 0)
            return at;
    }
    return length == MORE && !last ? size + 1 : value;
}

/*  Reads one more key with its value, or the end of them. */
static bool parse_value(parser *p, bool last)
{
    const call_form *f = p->form;
    size_t size, key, key_end, value, value_end = 0;
    const char *s;
    unsigned kinds = KIND_ANY;
    int length, is_string = MORE;
    text_cut(&p->held, skip_blank(p->held.data, p->held.size, 0));
    s = p->held.data, size = p->held.size;
    length = size ? at_marker(s, size, f->key) : MORE;
    if (length == MORE && !last)
        return false;
    if (length > 0) {
        key = (size_t)length;
        key_end = find_marker(s, size, key, f->key_end, &length);
        value = key_end + (size_t)(length > 0 ? length : 0);
        if (length > 0) {
            size_t from = value;
            kinds = kinds_of(find_property(p->parameters, s + key, key_end - key), p->parameters);
            is_string = strchr(f->pair, '?') ? strncmp(s + value - 6, "true\">", 6) == 0 : MORE;
            if (!is_string || (is_string == MORE && !is_plain(kinds)))
                from = find_json_end(f, s, size, value, last);
            if (from > size)
                return false;
            value_end = find_marker(s, size, from, f->value_end, &length);
        }
        if (length <= 0 && !last)
            return false;
        if (length > 0) {
            put_value(p, s + key, key_end - key, s + value, value_end - value, kinds, is_string);
            text_cut(&p->held, value_end + (size_t)length);
            return true;
        }
    }
    if (length != NONE)
        text_cut(&p->held, size); /* a value whose end is missing is dropped */
    parser_put(p, PIECE_ARGUMENTS, p->has_key ? "}" : "{}", p->has_key ? 1 : 2);
    p->state = IN_TEXT;
    return true;
}

/*  Reads a header of harmony, up to <|message|>, which says who reads the message. */
static bool parse_header(parser *p, bool last)
{
    static const char mark[] = "<|message|>", call[] = "to=functions.";
    const char *end = strstr(p->held.data, mark), *name;
    call_head h = {0};
    if (!end) {
        if (last && !strstr(p->held.data, "<|")) /* the model does not keep to its form */
            parser_release(p, p->held.size);
        return false;
    }
    p->begun = false;
    name = strstr(p->held.data, call);
    p->sink = strstr(p->held.data, "analysis") && strstr(p->held.data, "analysis") < end ? PIECE_REASONING : PIECE_TEXT;
    h.end = (size_t)(end + strlen(mark) - p->held.data);
    if (name && name < end) {
        name += strlen(call);
        snprintf(h.name, sizeof h.name, "%.*s", (int)strcspn(name, " <"), name);
        if (find_tool(p->tools, h.name)) {
            begin_call(p, &h);
            p->sink = PIECE_ARGUMENTS;
            h.end = 0;
        }
    }
    text_cut(&p->held, h.end);
    p->state = IN_BODY;
    return true;
}

static bool parse_body(parser *p, bool last)
{
    int length;
    size_t end = find_marker(p->held.data, p->held.size, 0, harmony_marks, &length);
    if (length == MORE && last)
        end = p->held.size;
    parser_release(p, end);
    if (length > 0)
        p->state = IN_HEADER;
    return length > 0;
}

/*  Reads text up to the first marker of something else. */
static bool parse_text(parser *p, bool last)
{
    const char *open = p->tools ? p->form->open : NULL, *s = p->held.data;
    size_t size = p->held.size, at, blank = skip_blank(s, size, 0);
    call_head h;
    int length = NONE, thought = 0;
    if (p->behind_call || (open && *open == '|' && !p->begun && blank < size && strchr("{[", s[blank]))) {
        bool behind = p->behind_call;
        length = read_call(p, last, &h);
        if (length == 1)
            begin_call(p, &h);
        p->behind_call = length == 1 || (behind && length == MORE);
        if (length == NONE && behind) {
            p->begun = false;
            text_cut(&p->held, h.end);
            return p->held.size > 0;
        }
        if (length != NONE)
            return length == 1;
    }
    if (p->sink == PIECE_TEXT && !p->begun && blank == size && !last)
        return false; /* it may stand ahead of reasoning or a call */
    for (at = 0; at < size; at++) {
        if (p->sink == PIECE_REASONING) {
            length = at_marker(s + at, size - at, thoughts[p->thought].end);
        } else {
            length = at == blank && !p->begun ? NONE : -2;
            for (thought = 0; length == NONE && thought < (int)COUNT(thoughts); thought++)
                length = at_marker(s + at, size - at, thoughts[thought].begin);
            if (length == NONE || length == -2)
                thought = 0, length = at_marker(s + at, size - at, open);
            if (length == NONE)
                thought = -1, length = at_marker(s + at, size - at, dropped);
        }
        if (length != NONE)
            break;
    }
    if (at == size || (length == MORE && last)) {
        parser_release(p, size);
        return false;
    }
    if (p->sink == PIECE_TEXT && thought == 0 && length > 0) { /* a call, perhaps */
        p->held.data += at, p->held.size -= at;
        length = read_call(p, last, &h);
        p->held.data -= at, p->held.size += at;
        if (length == NONE)
            at += h.end > 0 ? h.end : 1;
    }
    if (length == MORE && !p->begun && at <= blank)
        return false; /* the white space before it may be text */
    if (p->begun || at > blank || length == NONE)
        parser_release(p, at);
    else
        text_cut(&p->held, at); /* white space ahead of something else than text */
    if (length == MORE || length == NONE)
        return length == NONE && p->held.size > 0;
    if (p->sink == PIECE_REASONING) {
        text_cut(&p->held, (size_t)length);
        p->sink = PIECE_TEXT;
        p->begun = false;
        p->thoughtful = true;
    } else if (thought > 0) {
        text_cut(&p->held, (size_t)length);
        p->sink = PIECE_REASONING;
        p->thought = thought - 1;
        p->thoughtful = true;
    } else if (thought < 0) {
        text_cut(&p->held, (size_t)length);
    } else {
        begin_call(p, &h);
    }
    return true;
}

/*  Takes text; last: no more will come. */
static void parser_add(parser *p, const char *data, size_t size, bool last)
{
    bool more = true;
    size_t end;
    text_add(&p->held, data, size);
    while (more && (p->held.size || last)) {
        switch (p->state) {
        case IN_TEXT: more = p->held.size && parse_text(p, last); break;
        case AT_ARGUMENTS: more = parse_start(p, last); break;
        case IN_VALUES: more = parse_value(p, last); break;
        case IN_HEADER: more = p->held.size && parse_header(p, last); break;
        case IN_BODY: more = p->held.size && parse_body(p, last); break;
        case IN_ARGUMENTS:
        case IN_REST:
            more = follow_json(p, &end);
            if (p->state == IN_ARGUMENTS)
                parser_put(p, PIECE_ARGUMENTS, p->held.data, end);
            text_cut(&p->held, end);
            if (more && p->state == IN_ARGUMENTS)
                end_arguments(p);
            else if (more)
                p->state = IN_TEXT;
            more = more && p->held.size;
            break;
        }
    }
}

/*  Begins a parser. open: which of `thoughts` the prompt has opened, from 1 on; 0: none. */
static void parser_begin(parser *p, int open)
{
    p->state = p->form && !p->form->open ? IN_HEADER : IN_TEXT;
    if (open) {
        p->thought = open - 1;
        p->sink = PIECE_REASONING;
        p->thoughtful = true;
    }
    text_add(&p->held, "", 0);
}

/* --- what templates write around calls ---------------------------------------------------------------------------- */

/*  White space ahead of the marker that ends reasoning, and between it and what follows. */
typedef struct gaps {
    char before[16], behind[16];
} gaps;
static const gaps usual_gaps = {"", "\n\n"};

/*  Finds them in a message that a template has rendered with the reasoning "the_thought". next: what follows; NULL:
    anything. Returns false, and changes nothing, if the message does not have them. */
static bool find_gaps(const char *rendered, const char *next, gaps *to)
{
    const char *at = rendered;
    while (at && (at = strstr(at, "the_thought")) != NULL) {
        size_t size, before, behind, i;
        at += strlen("the_thought");
        size = strlen(at);
        before = skip_blank(at, size, 0);
        for (i = 0; i < COUNT(thoughts); i++) {
            size_t length = strlen(thoughts[i].end);
            if (strncmp(at + before, thoughts[i].end, length) != 0)
                continue;
            behind = skip_blank(at, size, before + length);
            if (before >= sizeof to->before || behind - before - length >= sizeof to->behind ||
                (next && strncmp(at + behind, next, strlen(next)) != 0))
                continue;
            snprintf(to->before, sizeof to->before, "%.*s", (int)before, at);
            snprintf(to->behind, sizeof to->behind, "%.*s", (int)(behind - before - length), at + before + length);
            return true;
        }
    }
    return false;
}

/*  Returns the bytes ahead of a call that a template begins an answer with: white space and markers of reasoning; 0 if
    something else is there. */
static size_t lead_length(const char *s, const call_form *f)
{
    size_t size = strlen(s), at = 0, i;
    int length = NONE;
    while (at < size) {
        at = skip_blank(s, size, at);
        if (at_marker(s + at, size - at, f->open) > 0)
            return at;
        for (i = 0, length = NONE; i < COUNT(thoughts) && length <= 0; i++) {
            length = at_marker(s + at, size - at, thoughts[i].begin);
            length = length > 0 ? length : at_marker(s + at, size - at, thoughts[i].end);
        }
        if (length <= 0)
            break;
        at += (size_t)length;
    }
    return 0;
}

/*  Returns the white space behind the end of reasoning that a prompt ends with; NULL if it ends with something else. */
static const char *closed_thought(const char *prompt, size_t size)
{
    size_t end = size, i;
    while (end && strchr(" \t\r\n", prompt[end - 1]) && prompt[end - 1])
        end--;
    for (i = 0; i < COUNT(thoughts); i++) {
        size_t length = strlen(thoughts[i].end);
        if (end >= length && memcmp(prompt + end - length, thoughts[i].end, length) == 0)
            return prompt + end;
    }
    return NULL;
}

/*  Returns which of `thoughts` a prompt has opened at its end, from 1 on; 0: none. */
static int open_thought(const char *prompt, size_t size)
{
    size_t i, length;
    while (size && strchr(" \t\r\n", prompt[size - 1]) && prompt[size - 1])
        size--;
    for (i = 0; i < COUNT(thoughts); i++) {
        length = strlen(thoughts[i].begin);
        if (size >= length && memcmp(prompt + size - length, thoughts[i].begin, length) == 0)
            return (int)i + 1;
    }
    return 0;
}
