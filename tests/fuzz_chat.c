// SPDX-License-Identifier: MIT
/*  fuzz_chat.c - damaged and hostile chat templates: each ends, with a text or with a reason and a place

    fuzz_chat [iterations [seed]]      templates made by mutation from good ones; the same seed makes the same templates
    Build it with -fsanitize=address,undefined: each template is in a block of memory of exactly its size. With -DFUZZ_LIBFUZZER and clang's
    -fsanitize=fuzzer the entry of libFuzzer is there instead of main. Neither needs a device. */
#define IGNIS_IMPLEMENTATION
#define IGNIS_MODELS
#define IGNIS__CHAT_STEPS 50000 /* so that many templates get their turn */
#define IGNIS__CHAT_MEMORY 4194304
#include "../ignis.h"

#include "fuzz.h"
#include "chat_cases.h"

static void require(bool condition, const char *what, const char *text)
{
    if (condition)
        return;
    fprintf(stderr, "fuzz_chat: %s; the template is in fuzz_chat.failed\n", what);
    FILE *file = fopen("fuzz_chat.failed", "wb");
    if (file) {
        fputs(text, file);
        fclose(file);
    }
    abort();
}

/*  Renders a template with the variables of a case; true when there is a text. */
static bool try_template(const char *text, const char *variables)
{
    static ignis__chat chat;
    ignis_chat_desc desc;
    ignis__chat_writer out;
    ignis__record before = ignis__quiet_begin(), failure;
    char why[700];
    bool ok;
    size_t i;
    memset(&desc, 0, sizeof desc);
    desc.json = variables;
    desc.now = 1735732800;
    ok = ignis__chat_render(&chat, "ignis_chat_render", text, NULL, 0, &desc, NULL, &out);
    ignis__quiet_end(&before, &failure, why, sizeof why);
    require(ok == (failure.status == IGNIS_OK), "a failure and its status differ", text);
    require(ok || strlen(why) > 5, "a refusal has no reason", text);
    require(ok || (strstr(why, "line ") && strstr(why, ", column ")) || chat.fault_at == SIZE_MAX, "a refusal has no place", text);
    require(ok || chat.fault_at == SIZE_MAX || chat.fault_at <= chat.size || chat.fault, "a refusal's place is outside", text);
    for (i = 0; ok && i < out.size; i += (size_t)ignis__utf8_length(out.text + i, out.size - i)) {
        require(ignis__utf8_length(out.text + i, out.size - i) > 0, "a text is no UTF-8", text);
        require((unsigned char)out.marks[i] < 2, "a mark is neither 0 nor 1", text);
    }
    ignis__chat_close(&chat);
    return ok;
}

#ifdef FUZZ_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = (char *)malloc(size + 1);
    memcpy(text, bytes, size);
    text[size] = 0;
    try_template(text, chat_cases[size % (sizeof chat_cases / sizeof *chat_cases)].variables);
    free(text);
    return 0;
}

#else

enum { TEMPLATE_MAX = 6000 };

/*  What mutations put in. */
static const char *const words[] = {"{{",
                                    "}}",
                                    "{%",
                                    "%}",
                                    "{#",
                                    "#}",
                                    "-",
                                    "+",
                                    "{{ x }}",
                                    "{% if x %}",
                                    "{% endif %}",
                                    "{% for x in messages %}",
                                    "{% for x, y in d.items() %}",
                                    "{% endfor %}",
                                    "{% set x = ",
                                    "{% set x %}",
                                    "{% endset %}",
                                    "{% macro m(x) %}",
                                    "{% endmacro %}",
                                    "{{ m(m) }}",
                                    "{% raw %}",
                                    "{% endraw %}",
                                    "{% else %}",
                                    "{% elif x %}",
                                    "{% break %}",
                                    "{% continue %}",
                                    "{% generation %}",
                                    "{% endgeneration %}",
                                    "{% with a = b %}",
                                    "(",
                                    ")",
                                    "[",
                                    "]",
                                    "{",
                                    "}",
                                    "((((((((",
                                    "[[[[[[[[",
                                    "not ",
                                    "- - - ",
                                    "|",
                                    ".",
                                    ",",
                                    ":",
                                    "=",
                                    "==",
                                    "<=",
                                    "is ",
                                    "in ",
                                    "not in ",
                                    "and ",
                                    "or ",
                                    "if ",
                                    "else ",
                                    "~",
                                    "*",
                                    "//",
                                    "%",
                                    "**",
                                    "'",
                                    "\"",
                                    "'\\",
                                    "'\\u12",
                                    "\\n",
                                    "0",
                                    "1",
                                    "-1",
                                    "9223372036854775807",
                                    "1e308",
                                    "0.1",
                                    "range(100000)",
                                    "namespace(a=1)",
                                    "dict(",
                                    "loop.",
                                    "loop.last",
                                    "loop.length",
                                    "loop.cycle(1)",
                                    "loop.changed(x)",
                                    "messages",
                                    "message",
                                    "tools",
                                    "missing",
                                    "x",
                                    "none",
                                    "true",
                                    "|tojson",
                                    "|tojson(indent=2)",
                                    "|join(',')",
                                    "|map(",
                                    "|map('upper')",
                                    "|selectattr('role')",
                                    "|sort",
                                    "|unique",
                                    "|list",
                                    "|first",
                                    "|last",
                                    "|length",
                                    "|int",
                                    "|float",
                                    "|string",
                                    "|trim",
                                    "|replace('a', 'b')",
                                    "|replace('', 'b')",
                                    "|default(1)",
                                    "|indent",
                                    "|round(3)",
                                    "|reverse",
                                    "|dictsort",
                                    "|sum",
                                    "|min",
                                    "|safe",
                                    "|title",
                                    ".strip()",
                                    ".split(",
                                    ".split()",
                                    ".rsplit('\\n', 1)",
                                    ".get('a')",
                                    ".items()",
                                    ".keys()",
                                    ".append(1)",
                                    ".__class__",
                                    ".splitlines()",
                                    "[0]",
                                    "[-1]",
                                    "[1:]",
                                    "[::-1]",
                                    "[::",
                                    "['role']",
                                    "raise_exception('no')",
                                    "strftime_now('%d %b %Y')",
                                    "strftime_now('%",
                                    "\n",
                                    " ",
                                    "\t",
                                    "\xC3\xA9",
                                    "\xE2\x80\xA8",
                                    "\xFF",
                                    "\x80",
                                    "\x01"};

static const char *any_template(void) { return chat_cases[random_below(sizeof chat_cases / sizeof *chat_cases)].source; }

static void mutate(char *text)
{
    size_t length = strlen(text), at = random_below(length + 1), left = length - at, some = random_below((left < 60 ? left : 60) + 1);
    const char *word = words[random_below(sizeof words / sizeof *words)], *other;
    char piece[64], byte;
    switch (random_below(7)) {
    case 0: /* one byte */
        byte = (char)(1 + random_below(255));
        splice_string(text, TEMPLATE_MAX, at, left > 0, &byte, 1);
        break;
    case 1: splice_string(text, TEMPLATE_MAX, at, some, "", 0); break;
    case 2: /* a piece twice */
        memcpy(piece, text + at, some);
        splice_string(text, TEMPLATE_MAX, at, 0, piece, some);
        break;
    case 3: /* a piece elsewhere */
        memcpy(piece, text + at, some);
        splice_string(text, TEMPLATE_MAX, random_below(length + 1), 0, piece, some);
        break;
    case 4: /* a piece of another template */
        other = any_template();
        length = strlen(other);
        left = random_below(length);
        some = random_below((length - left < 200 ? length - left : 200) + 1);
        splice_string(text, TEMPLATE_MAX, at, 0, other + left, some);
        break;
    case 5: splice_string(text, TEMPLATE_MAX, at, some < 4 ? some : 1, word, strlen(word)); break;
    default: splice_string(text, TEMPLATE_MAX, at, 0, word, strlen(word)); break;
    }
}

/*  A template of words alone. */
static void invent(char *text)
{
    size_t count = 1 + random_below(40);
    *text = 0;
    while (count-- > 0) {
        const char *word = words[random_below(sizeof words / sizeof *words)];
        if (random_below(4) == 0)
            strcat(text, random_below(2) ? "{{ " : "{% ");
        strcat(text, word);
        if (random_below(6) == 0)
            strcat(text, random_below(2) ? " }}" : " %}");
    }
}

int main(int argc, char **argv)
{
    unsigned long long iterations = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000, rendered = 0, done;
    size_t cases = sizeof chat_cases / sizeof *chat_cases;
    static char template_text[TEMPLATE_MAX];
    random_begin(argc, argv);
    for (done = 0; done < iterations; done++) {
        bool whole = done < cases, ok; /* each once as it is */
        size_t k, one = whole ? (size_t)done : random_below(cases);
        char *text;
        snprintf(template_text, sizeof template_text, "%s", chat_cases[one].source);
        if (!whole && random_below(3) == 0)
            invent(template_text);
        else
            for (k = whole ? 0 : 1 + random_below(2) * random_below(12); k > 0; k--)
                mutate(template_text);
        text = strdup(template_text);
        if (!text)
            return 1;
        ok = try_template(text, chat_cases[one].variables);
        require(ok == (chat_cases[one].text != NULL) || !whole, "a good template is refused", text);
        rendered += ok;
        free(text);
    }
    printf("fuzz_chat: %llu templates, %llu rendered, %llu refused\n", iterations, rendered, iterations - rendered);
    return 0;
}

#endif
