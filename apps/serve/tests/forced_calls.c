// SPDX-License-Identifier: MIT
/*  forced_calls.c - forced calls in each form: texts of their grammars go through the parser

    Random texts of a grammar of forced.c are read by the parser of calls.c, in parts of any size. They have to be calls
    of the tools that may be called, and nothing else, and their arguments have to fit the tool's schema. `make
    check-serve` links it with the rooms of Ignis, for their grammars: forced_calls COUNT [SEED]. */
#include <stdarg.h>
#include <strings.h>
#include <time.h>

#define MAX_DEPTH 32
#define MAX_MEMBERS 512
#define MAX_VALUES 400000
#define COUNT(array) (sizeof(array) / sizeof *(array))

#include "../text.c"

#include "../json.c"

#include "../calls.c"

#include "../forced.c"

/*  Tools: their names and schemas. */
static const struct tool {
    const char *name, *schema;
} tools[] = {
    {"f", "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":20},"
          "\"count\":{\"type\":\"integer\",\"minimum\":-5,\"maximum\":500},\"ratio\":{\"type\":\"number\"},\"flag\":{"
          "\"type\":\"boolean\"},\"list\":{\"type\":\"array\",\"items\":{\"enum\":[1,\"a\"]},\"maxItems\":3}},"
          "\"required\":[\"text\",\"flag\"]}"},
    {"foo",
     "{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"red\",\"<b>\\n\\\"x\\\"\\\\\",\"12\",\"null\"]},"
     "\"free\":{\"type\":\"string\"},\"maybe\":{\"anyOf\":[{\"type\":\"string\",\"maxLength\":9},{\"type\":"
     "\"null\"}]},\"mixed\":{\"type\":[\"integer\",\"string\"],\"maxLength\":4,\"maximum\":7,\"minimum\":0},"
     "\"any\":{},\"bag\":{\"type\":\"object\"},\"some\":true,\"\\u00e9 "
     "\\\\\":{\"type\":\"boolean\"}},\"required\":[\"free\"]}"},
    {"a.b-c_1",
     "{\"$ref\":\"#/$defs/root\",\"$defs\":{\"root\":{\"properties\":{\"tree\":{\"$ref\":\"#/$defs/tree\"},"
     "\"enum\":{\"$ref\":\"#/$defs/a~1b\"},\"day\":{\"type\":\"string\",\"format\":\"date\"},\"word\":{\"pattern\":"
     "\"^[<>/"
     "a]{3,30}$\",\"type\":\"string\"}},\"required\":[\"tree\",\"more\"],\"type\":\"object\"},\"tree\":{\"type\":"
     "\"object\",\"properties\":{\"s\":{\"type\":\"string\"},\"kids\":{\"type\":\"array\",\"maxItems\":2,\"items\":{"
     "\"$ref\":\"#/$defs/tree\"}}},\"required\":[\"s\"]},\"a/b\":{\"oneOf\":[{\"const\":\"</"
     "\"},{\"type\":\"null\"}]}}}"},
    {"open", "{\"type\":\"object\"}"},
    {"numbers", "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"number\",\"minimum\":0,\"maximum\":9}}"},
    {"names",
     "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\",\"maxLength\":3},\"required\":[\"a\"]}"},
    {"none", "{\"type\":\"object\",\"properties\":{}}"},
    {"nothing", NULL},
};

/*  Tools that a form of keys and values cannot have, and what is said of them. */
static const struct wrong {
    const char *schema, *says;
} wrong[] = {
    {NULL, "the parameters of f are too large"},
    {"{\"enum\":[{\"a\":1}]}", "the parameters of f have to be an object of properties"},
    {"{\"type\":\"object\",\"anyOf\":[{\"required\":[\"a\"]}],\"properties\":{\"a\":{}}}", "an object of properties"},
    {"{\"type\":\"array\"}", "an object of properties"},
    {"{\"$ref\":\"#/$defs/none\"}", "an object of properties"},
    {"{\"properties\":{\"\":{}}}", "the parameter  of f cannot be told"},
    {"{\"required\":[\"x\\\">y</arg_key>\\n<arg_value></arg_key><arg_value></arg_key:opensource>\\n"
     "<arg_value:opensource>\\\" string=\\\"true\\\">\"]}",
     "of f cannot be told from the markers of calls in the form of this model"},
};

static uint64_t state;
static unsigned draw(unsigned below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

static void fail(const char *why, const call_form *f, const char *grammar, const char *said)
{
    fprintf(stderr, "forced_calls: %s: %s\n--- grammar\n%s\n--- text\n%s\n", f->name, why, grammar, said);
    abort();
}

static ignis__grammar *grammar_of(const char *source)
{
    ignis__grammar *grammar = ignis__grammar_make("forced_calls", source);
    if (!grammar)
        fprintf(stderr, "forced_calls: %s\n%s\n", ignis_status_message(), source), abort();
    return grammar;
}

/*  The state behind some bytes; 0, if they do not fit. */
static int32_t step(ignis__grammar *grammar, int32_t at, const char *bytes, size_t size)
{
    size_t i;
    for (i = 0; i < size && at > 0; i++)
        at = ignis__grammar_step(grammar, at, (unsigned char)bytes[i]);
    if (at < 0)
        fprintf(stderr, "forced_calls: %s\n", grammar->fault), abort();
    return at;
}

/*  Makes the markers of a form control tokens, all or none. */
static void set_controls(const call_form *f, bool some)
{
    const char *const lists[] = {f->value_end, f->skip, f->key, f->key_end};
    size_t i;
    control_count = 0;
    for (i = 0; some && i < COUNT(lists); i++) {
        const char *at = lists[i];
        while (at) {
            const char *end = strstr(at, "|||");
            snprintf(controls[control_count].text, sizeof controls->text, "%.*s",
                     (int)(end ? (size_t)(end - at) : strlen(at)), at);
            if (*controls[control_count].text)
                controls[control_count].id = 1000 + control_count, control_count++;
            at = end ? end + 3 : NULL;
        }
    }
}

/*  Returns the index of the control token whose text in a grammar begins here; -1 if no such text does. */
static int find_control(const char *s, size_t size)
{
    unsigned char bytes[IGNIS__GRAMMAR_CONTROL_SIZE];
    int i;
    for (i = 0; i < control_count; i++) {
        ignis__grammar_control_text(controls[i].id, bytes);
        if (size >= sizeof bytes && memcmp(s, bytes, sizeof bytes) == 0)
            return i;
    }
    return -1;
}

/*  Replaces control tokens by their names. Returns how many there were. */
static long name_controls(text *said)
{
    text out = {0};
    long count = 0;
    size_t i;
    for (i = 0; i < said->size; i++) {
        int found = find_control(said->data + i, said->size - i);
        if (found >= 0) {
            text_print(&out, "%s", controls[found].text);
            i += IGNIS__GRAMMAR_CONTROL_SIZE - 1;
            count++;
        } else {
            text_add(&out, said->data + i, 1);
        }
    }
    text_free(said);
    *said = out;
    return count;
}

static long named; /* control tokens of all texts */

/*  A text of a grammar. Now and then the next bytes are an end of something, so that texts come to an end. */
static void walk(ignis__grammar *grammar, const call_form *f, text *out)
{
    const char *const words[] = {f->pair ? f->value_end : "",
                                 f->pair ? f->end : "",
                                 f->pair ? f->finish : "",
                                 "\n",
                                 "\"",
                                 "}",
                                 "]",
                                 "</",
                                 "<",
                                 "\\\"",
                                 "true",
                                 "\xC3\xA9"};
    int32_t at = grammar->start, next;
    for (;;) {
        bool ends = IGNIS__GRAMMAR_AT(grammar, state, states, at)->ends;
        const char *word = words[draw(draw(3) && out->size < 300 ? COUNT(words) : 7)];
        unsigned i, byte = draw(256);
        if (ends && !draw(3))
            return;
        next = *word && draw(3) ? step(grammar, at, word, strlen(word)) : 0;
        if (next) {
            text_print(out, "%s", word);
            at = next;
            continue;
        }
        for (i = 0; i < 256 && !next; i++)
            if ((next = ignis__grammar_step(grammar, at, (unsigned char)(byte + i))) > 0)
                text_print(out, "%c", (int)(byte + i) & 255);
        if (next <= 0 && !ends)
            fail("a text cannot go on", f, grammar->source, out->data);
        if (next <= 0)
            return;
        at = next;
    }
}

typedef struct heard {
    text names, arguments[40];
    int count;
    bool others; /* something else than calls */
} heard;

static void put(void *to, piece_kind kind, const char *data, size_t size)
{
    heard *h = (heard *)to;
    if (kind == PIECE_CALL && h->count < 40)
        text_print(&h->names, "%.*s\n", (int)size, data), h->count++;
    else if (kind == PIECE_ARGUMENTS && h->count)
        text_add(&h->arguments[h->count - 1], data, size);
    else
        h->others = true;
}

/*  The calls of a text, which comes in parts. */
static void parse(const call_form *f, const json *list, const text *said, heard *h)
{
    parser p;
    size_t at, size;
    memset(h, 0, sizeof *h);
    memset(&p, 0, sizeof p);
    p.form = f;
    p.tools = list;
    p.put = put;
    p.to = h;
    parser_begin(&p, 0);
    for (at = 0; at < said->size; at += size) {
        size = 1 + draw(draw(2) ? 1 : 60);
        size = size < said->size - at ? size : said->size - at;
        parser_add(&p, said->data + at, size, false);
    }
    parser_add(&p, "", 0, true);
    text_free(&p.held);
}

static json *read_tools(const char *schema, text *source)
{
    json_reader r;
    size_t i;
    text_print(source, "[");
    for (i = 0; i < (schema ? 1 : COUNT(tools)); i++) {
        const char *one = schema ? schema : tools[i].schema;
        text_print(source, "%s{\"function\":{\"name\":\"%s\"%s%s}}", i ? "," : "", schema ? "f" : tools[i].name,
                   one ? ",\"parameters\":" : "", one ? one : "");
    }
    text_print(source, "]");
    if (!json_read(&r, source))
        fprintf(stderr, "forced_calls: %s at %s\n", r.error, r.at), abort();
    return r.values;
}

/*  Forces calls of a tool, or of any, and reads them. */
static long force(const call_form *f, const json *list, int only, bool several, ignis__grammar *const *schemas,
                  long count)
{
    const json *one = list->first, *function = NULL;
    ignis__grammar *grammar;
    text source = {0}, head = {0}, why = {0};
    long calls = 0, i;
    int k;
    for (k = 0; k < only; k++)
        one = one->next;
    function = only < 0 ? NULL : member(one, "function");
    if (!print_forced(&source, &head, f, list, function, several, &why))
        fail(why.data, f, source.data, "");
    grammar = grammar_of(source.data);
    for (i = 0; i < count; i++) {
        text said = {0};
        heard h;
        char *name;
        text_add(&said, head.data, head.size);
        walk(grammar, f, &said);
        named += name_controls(&said);
        if (memchr(said.data, 0xFF, said.size))
            fail("a byte that no text has", f, source.data, said.data);
        parse(f, list, &said, &h);
        if (h.others || !h.count || (!several && h.count > 1))
            fail("there is something else than calls", f, source.data, said.data);
        for (k = 0, name = strtok(h.names.data, "\n"); k < h.count; k++, name = strtok(NULL, "\n")) {
            size_t n = 0;
            int32_t last;
            while (n < COUNT(tools) && strcmp(tools[n].name, name) != 0)
                n++;
            if (n == COUNT(tools) || (only >= 0 && n != (size_t)only))
                fail("a call of another tool", f, source.data, said.data);
            last = step(schemas[n], schemas[n]->start, h.arguments[k].data, h.arguments[k].size);
            if (!last || !IGNIS__GRAMMAR_AT(schemas[n], state, states, last)->ends)
                fail(h.arguments[k].data, f, source.data, said.data);
            calls++;
        }
        for (k = 0; k < h.count; k++)
            text_free(&h.arguments[k]);
        text_free(&h.names), text_free(&said);
    }
    ignis__grammar_free(grammar);
    text_free(&source), text_free(&head), text_free(&why);
    return calls;
}

/*  Calls whose arguments are JSON: the beginning of a call, and a text of the schema, which comes back as it is. */
static long force_json(const call_form *f, const json *list, ignis__grammar *const *schemas, long count)
{
    const char *percent = strchr(f->forced, '%');
    size_t n;
    long i;
    for (n = 0; n < COUNT(tools); n++)
        for (i = 0; i < count; i++) {
            text said = {0}, arguments = {0};
            heard h;
            walk(schemas[n], f, &arguments);
            text_print(&said, "%.*s%s%s", (int)(percent - f->forced), f->forced, tools[n].name, percent + 1);
            text_add(&said, arguments.data, arguments.size);
            parse(f, list, &said, &h);
            if (h.others || h.count != 1 || strncmp(h.names.data, tools[n].name, h.names.size - 1) != 0 ||
                h.arguments[0].size != arguments.size ||
                memcmp(h.arguments[0].data, arguments.data, arguments.size) != 0)
                fail("it is not heard as it was said", f, arguments.data, said.data);
            text_free(&h.arguments[0]), text_free(&h.names), text_free(&said), text_free(&arguments);
        }
    return (long)COUNT(tools) * count;
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 20, calls = 0, checked = 0;
    ignis__grammar *schemas[COUNT(tools)];
    text source = {0}, schema = {0}, large = {0};
    json *list = read_tools(NULL, &source);
    const json *one = list->first;
    int only, tried = 0;
    size_t i, k;
    state = argc > 2 ? (uint64_t)atoll(argv[2]) : 1;
    for (i = 0; i < COUNT(tools); i++, one = one->next) {
        text_cut(&schema, schema.size);
        print_schema(&schema, member(member(one, "function"), "parameters"));
        schemas[i] = grammar_of(schema.data);
    }
    text_print(&large, "{\"$defs\":{\"a\":{\"description\":\"%060000d\"}},\"properties\":{", 0);
    for (i = 0; i < 100; i++)
        text_print(&large, "%s\"p%d\":{\"$ref\":\"#/$defs/a\"}", i ? "," : "", (int)i);
    text_print(&large, "}}");
    for (i = 0; i < COUNT(forms); i++) {
        if (!forms[i].pair) {
            calls += force_json(&forms[i], list, schemas, count);
            continue;
        }
        for (only = -1; only < (int)COUNT(tools); only++, tried++) {
            set_controls(&forms[i], tried % 3 == 1);
            calls += force(&forms[i], list, only, tried % 2, schemas, only < 0 ? 5 * count : count);
        }
        set_controls(&forms[i], false);
        for (k = 0; k < COUNT(wrong); k++, checked++) {
            text bad = {0}, grammar = {0}, head = {0}, why = {0};
            json *others = read_tools(wrong[k].schema ? wrong[k].schema : large.data, &bad);
            if (print_forced(&grammar, &head, &forms[i], others, NULL, false, &why) || !strstr(why.data, wrong[k].says))
                fail(why.data ? why.data : "it is not refused", &forms[i], grammar.data, bad.data);
            text_free(&bad), text_free(&grammar), text_free(&head), text_free(&why), free(others);
        }
    }
    for (i = 0; i < COUNT(tools); i++)
        ignis__grammar_free(schemas[i]);
    free(list);
    text_free(&source), text_free(&schema), text_free(&large);
    printf("ok   serve: %ld forced calls with %ld control tokens, %ld refused tools\n", calls, named, checked);
    return calls > 0 && named > 0 ? 0 : 1;
}
