// SPDX-License-Identifier: MIT
/*  fuzz_chat.c - damaged and hostile chat templates: each ends, with a text or with a reason and a place

        fuzz_chat [iterations [seed]]

    It makes templates by mutation from good ones; the same seed makes the same templates.
    Build it with -fsanitize=address,undefined: each template is in a block of memory of exactly its size. With
    -fsanitize-coverage=trace-pc too, the work behind each template is counted, and more than its steps account for is a
    failure. With -DFUZZ_LIBFUZZER and clang's -fsanitize=fuzzer the entry of libFuzzer is there instead of main.
    Neither needs a device. */
#define _XOPEN_SOURCE 700
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*  Work: straight pieces of code that are run, and what functions of the C library do, whose code is not counted. */
static unsigned long long work_done;

#ifdef __clang__
#define UNCOUNTED __attribute__((no_sanitize("coverage")))
#else
#define UNCOUNTED __attribute__((no_sanitize_coverage))
#endif
UNCOUNTED void __sanitizer_cov_trace_pc(void);
UNCOUNTED void __sanitizer_cov_trace_pc(void) { work_done++; }

UNCOUNTED static size_t count_bytes(size_t size)
{
    work_done += 1 + size / 16;
    return size;
}

UNCOUNTED static int count_compare(const void *a, const void *b, size_t size)
{
    size_t same = 0;
    while (same < size && ((const char *)a)[same] == ((const char *)b)[same])
        same++;
    count_bytes(same);
    return same == size ? 0 : ((const unsigned char *)a)[same] - ((const unsigned char *)b)[same];
}

UNCOUNTED static void *count_find(const void *bytes, int byte, size_t size)
{
    const char *found = (const char *)memchr(bytes, byte, size);
    count_bytes(found ? (size_t)(found - (const char *)bytes) : size);
    return (void *)(size_t)found;
}

UNCOUNTED static size_t count_length(const char *text) { return count_bytes(strlen(text)); }

#define memcpy(to, from, size) memcpy(to, from, count_bytes(size))
#define memmove(to, from, size) memmove(to, from, count_bytes(size))
#define memset(to, byte, size) memset(to, byte, count_bytes(size))
#define memcmp(a, b, size) count_compare(a, b, size)
#define memchr(bytes, byte, size) count_find(bytes, byte, size)
#define strlen(text) count_length(text)
#define snprintf(...) (work_done += 64, snprintf(__VA_ARGS__))
#define strtod(text, end) (work_done += 64, strtod(text, end))
#define strftime(out, size, format, time) (work_done += 128, strftime(out, size, format, time))
#define fmod(a, b) (work_done += 512, fmod(a, b))

#define IGNIS_IMPLEMENTATION
#define IGNIS__CHAT_STEPS 50000 /* so that many templates get their turn */
#define IGNIS__CHAT_MEMORY 4194304
#include "ignis_models.h"

#undef memcpy
#undef memmove
#undef memset
#undef memcmp
#undef memchr
#undef strlen
#undef snprintf
#undef strtod
#undef strftime
#undef fmod

#define FUZZER "fuzz_chat"
#include "fuzz.h"
#include "chat_cases.h"

/*  What a step and a byte that is read may cost at most. */
enum { WORK_OF_A_STEP = 160, WORK_OF_A_BYTE = 400 };

/*  Renders a template with the variables of a case; true when there is a text. */
static bool try_template(const char *text, const char *variables)
{
    static ignis__chat chat;
    ignis_chat_desc desc;
    ignis__chat_writer out;
    ignis__record before = ignis__quiet_begin(), failure;
    unsigned long long allowed;
    char why[700];
    bool ok;
    size_t i;
    memset(&desc, 0, sizeof desc);
    desc.json = variables;
    desc.now = 1735732800;
    work_done = 0;
    ok = ignis__chat_render(&chat, "ignis_chat_render", text, NULL, 0, &desc, NULL, &out);
    ignis__quiet_end(&before, &failure, why, sizeof why);
    allowed = WORK_OF_A_STEP * (unsigned long long)chat.steps +
              WORK_OF_A_BYTE * (strlen(text) + (variables ? strlen(variables) : 0) + 100);
    require_text(work_done <= allowed, "it has taken more work than its steps account for", text);
    require_text(ok == (failure.status == IGNIS_OK), "a failure and its status differ", text);
    require_text(ok || strlen(why) > 5, "a refusal has no reason", text);
    require_text(ok || (strstr(why, "line ") && strstr(why, ", column ")) || chat.fault_at == SIZE_MAX,
                 "a refusal has no place", text);
    require_text(ok || chat.fault_at == SIZE_MAX || chat.fault_at <= chat.size || chat.fault,
                 "a refusal's place is outside", text);
    for (i = 0; ok && i < out.size; i += (size_t)ignis__utf8_length(out.text + i, out.size - i)) {
        require_text(ignis__utf8_length(out.text + i, out.size - i) > 0, "a text is no UTF-8", text);
        require_text((unsigned char)out.marks[i] < 2, "a mark is neither 0 nor 1", text);
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
                                    "{% filter upper|trim %}",
                                    "{% endfilter %}",
                                    "{% call(x) m(1) %}",
                                    "{% endcall %}",
                                    "{{ caller(x) }}",
                                    "'%5.2f%-7s%#x' % ",
                                    "|format(1, 'a')",
                                    "|max",
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

static const char *any_template(void)
{
    return chat_cases[random_below(sizeof chat_cases / sizeof *chat_cases)].source;
}

static void mutate(char *text)
{
    size_t length = strlen(text), at = random_below(length + 1), left = length - at,
           some = random_below((left < 60 ? left : 60) + 1);
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

/*  Long texts and lists, and what is done with them again and again: the limit of steps has to end it. In an operation
    a @ is one of the values. */
static void stretch(char *text)
{
    static const char *const operations[] = {"@ in @",
                                             "@ not in @",
                                             "@.count(@)",
                                             "@.find(@)",
                                             "@.rfind(@)",
                                             "@.index(@)",
                                             "@.replace(@, 'x')",
                                             "@|replace(@, @)",
                                             "@.split(@)",
                                             "@.rsplit(@, 3)",
                                             "@.split()",
                                             "@.splitlines()",
                                             "@.strip(@)",
                                             "@.lstrip(@)",
                                             "@.rstrip()",
                                             "@|trim",
                                             "@.startswith(@)",
                                             "@.endswith((@, @))",
                                             "@.removeprefix(@)",
                                             "@ == @",
                                             "@ < @",
                                             "@ + @",
                                             "@ ~ @",
                                             "@[5:]",
                                             "@[::-1]",
                                             "@[-9]",
                                             "@[::7]",
                                             "{@: 1}[@]",
                                             "{@: @}",
                                             "(@, (@, @))",
                                             "[@, @]|sort",
                                             "@|sort",
                                             "@|list",
                                             "@|reverse|list",
                                             "@|join(@)",
                                             "@|map('upper')|join",
                                             "@|select('in', @)|list",
                                             "@|map('replace', @, @)|join",
                                             "@|tojson",
                                             "[@]|string",
                                             "@|upper",
                                             "@.title()",
                                             "@|length",
                                             "@|first",
                                             "@|last",
                                             "@|int",
                                             "@|float",
                                             "@|indent(3, true)",
                                             "@|safe + @",
                                             "@|string",
                                             "@ * 7",
                                             "dict(a=@)|dictsort",
                                             "[1.5, @]|tojson(indent=9)",
                                             "1e308 % 3e-300",
                                             "@|unique|list",
                                             "strftime_now('%A %c')",
                                             "m(@)",
                                             "namespace(a=@).a",
                                             "range(1000)|select('odd')|list",
                                             "loop.revindex",
                                             "@|min",
                                             "@|max",
                                             "'%s' % @",
                                             "@|format(@)",
                                             "'%9999s'|format(@)",
                                             "@|items",
                                             "d[@]",
                                             "d.get(@)",
                                             "@ is in @",
                                             "@ is sameas @",
                                             "@|groupby(0)",
                                             "@|batch(3)|list"};
    static const char *const values[] = {"s", "s",   "(s + 'b')", "('b' + s)", "(s + s)", "t", "u",
                                         "l", "'a'", "'ab'",      "''",        "u[3:]",   "i", "d"};
    const char *operation = operations[random_below(sizeof operations / sizeof *operations)];
    char *out =
        text +
        sprintf(
            text,
            "{%% macro m(x) %%}{{ x }}{%% endmacro %%}{%% set n = namespace(s='a', t='ab', u='\xC3\xA9\n', l=['a']) %%}"
            "{%% for i in range(%d) %%}{%% set n.s = n.s + n.s %%}{%% set n.t = n.t + n.t %%}{%% set n.u = n.u + n.u "
            "%%}"
            "{%% set n.l = n.l + n.l %%}{%% endfor %%}{%% set s = n.s %%}{%% set t = n.t %%}{%% set u = n.u %%}{%% set "
            "l = n.l %%}"
            "{%% set d = {'a': 1, s: 2, t: 3, u: 4} %%}{%% for i in range(300) %%}{%% if ",
            (int)(5 + random_below(8)));
    for (; *operation; operation++)
        out += *operation == '@' ? sprintf(out, "%s", values[random_below(sizeof values / sizeof *values)])
                                 : (*out = *operation, 1);
    strcpy(out, " %}{% endif %}{% endfor %}");
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
        else if (!whole && random_below(16) == 0)
            stretch(template_text);
        else
            for (k = whole ? 0 : 1 + random_below(2) * random_below(12); k > 0; k--)
                mutate(template_text);
        text = strdup(template_text);
        if (!text)
            return 1;
        ok = try_template(text, chat_cases[one].variables);
        require_text(ok == (chat_cases[one].text != NULL) || !whole, "a good template is refused", text);
        rendered += ok;
        free(text);
    }
    printf("fuzz_chat: %llu templates, %llu rendered, %llu refused\n", iterations, rendered, iterations - rendered);
    return 0;
}

#endif
