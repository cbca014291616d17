// SPDX-License-Identifier: MIT
/*  fuzz_grammar.c - damaged and hostile grammars and schemas: each is refused with a reason, or has texts that a walk
    can go on with

        fuzz_grammar [iterations [seed]]

    It makes grammars by mutation from good ones; the same seed makes the same grammars.
    Build it with -fsanitize=address,undefined: each grammar is in a block of memory of exactly its size. With
    -DFUZZ_LIBFUZZER and clang's -fsanitize=fuzzer the entry of libFuzzer is there instead of main. Neither needs a
    device. */
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

#define FUZZER "fuzz_grammar"
#include "fuzz.h"

static ignis__vocabulary *vocabulary; /* of single bytes and pairs of some of them */

static void vocabulary_make(void)
{
    static ignis__tokenizer tokenizer;
    static char bytes[3 * 256];
    static uint32_t begin[514];
    static unsigned char flags[512];
    int i;
    for (i = 0; i < 512; i++) {
        begin[i + 1] = begin[i] + (i < 256 ? 1 : 2);
        bytes[begin[i]] = (char)i;
        bytes[begin[i] + (i >= 256)] = i < 256 ? (char)i : "\"{}[],: a1\\e.-\x80"[i % 16];
        flags[i] = IGNIS__TOKEN_THERE;
    }
    tokenizer.bytes = bytes;
    tokenizer.begin = begin;
    tokenizer.flags = flags;
    tokenizer.byte_level = true;
    tokenizer.info.tokens = 512;
    tokenizer.info.eos = -1;
    vocabulary = ignis__vocabulary_make(&tokenizer, 512, NULL, 0);
}

/*  True when a grammar is taken. A walk through its texts then never comes to an end that is none. */
static bool try_grammar(const char *text)
{
    ignis__record before = ignis__quiet_begin(), failure;
    ignis__grammar *g = ignis__grammar_make("ignis_grammar_check", text);
    char why[700];
    int32_t state, next;
    const uint32_t *mask;
    int steps, id, i;
    ignis__quiet_end(&before, &failure, why, sizeof why);
    require_text(!g == (failure.status != IGNIS_OK), "a failure and its status differ", text);
    require_text(g || strlen(why) > 30, "a refusal has no reason", text);
    require_text(g || failure.status == IGNIS_ERROR_ARGUMENT || failure.status == IGNIS_ERROR_UNSUPPORTED,
                 "a refusal has another status", text);
    if (!g)
        return false;
    for (state = g->start, steps = 0; steps < 40; steps++, state = next) {
        mask = ignis__grammar_compute_mask(g, vocabulary, state);
        if (!mask) {
            require_text(g->diagnostic == IGNIS_DIAG_UNSUPPORTED, "no mask, and no reason", text);
            break;
        }
        require_text(IGNIS__GRAMMAR_AT(g, state, states, state)->any ||
                         IGNIS__GRAMMAR_AT(g, state, states, state)->ends ||
                         strstr(text, "<["), /* a control token that the vocabulary does not have */
                     "a text cannot go on", text);
        for (i = 0, id = (int)random_below(512); i < 512 && !(mask[id / 32] >> id % 32 & 1); i++)
            id = (id + 1) % 512;
        if (i == 512)
            break;
        next = ignis__grammar_step_token(g, vocabulary, state, id);
        require_text(next > 0, "a mask and the matcher differ", text);
        if (steps == 20)
            require_text((state = next = ignis__grammar_reset_states(g) ? g->start : -1) >= 0, "there is no beginning",
                         text);
    }
    ignis__grammar_free(g);
    return true;
}

#ifdef FUZZ_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = (char *)malloc(size + 1);
    if (!vocabulary)
        vocabulary_make();
    memcpy(text, bytes, size);
    text[size] = 0;
    try_grammar(text);
    free(text);
    return 0;
}

#else

enum { GRAMMAR_MAX = 4000 };

static const char *const seeds[] = {
    "root ::= \"a\" root \"b\" | \"\"",
    "root ::= (x \",\")* x # list\nx ::= [a-z0-9]+ | \"\\\"\" [^\"\\\\]{0,20} \"\\\"\"\n",
    "root ::= .{2,5} (\"\\u20AC\" | [^\\x00-\\x7F] | y)?\ny ::=\n (\"t\" |\n \"u\"{3} y)",
    "root ::= e\ne ::= t (\"+\" t)*\nt ::= \"(\" e \")\" | [0-9]",
    "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"enum\": [\"x\", 1, null, "
    "{\"k\": []}]}}, "
    "\"required\": [\"b\"], "
    "\"additionalProperties\": false}",
    "{\"$ref\": \"#/$defs/n\", \"$defs\": {\"n\": {\"anyOf\": [{\"type\": \"null\"}, {\"type\": \"array\", \"items\": "
    "{\"$ref\": "
    "\"#/$defs/n\"}, \"minItems\": 1, "
    "\"maxItems\": 3}]}}}",
    "{\"type\": [\"string\", \"boolean\"], \"minLength\": 2, \"maxLength\": 4, \"description\": \"\\u00e9\"}",
    "{\"type\": \"object\", \"additionalProperties\": {\"oneOf\": [{\"const\": \"a\\\"\\\\\"}, {\"type\": \"null\"}]}}",
    "{\"pattern\": \"^(a|b[^c-e]){1,3}\\\\d?$|x.*\\\\u{41}\", \"maxLength\": 9, \"minLength\": 1}",
    "{\"allOf\": [{\"minimum\": -3.5}, {\"exclusiveMaximum\": 1e2, \"multipleOf\": 0.25}], \"type\": \"number\"}",
    "{\"prefixItems\": [{\"format\": \"ipv4\"}, {\"multipleOf\": 7}], \"items\": {\"const\": 1}, \"minItems\": 1}",
    "{\"properties\": {\"a\": true, \"ab\": {\"$ref\": \"#\"}}, \"additionalProperties\": {\"type\": \"integer\"}, "
    "\"required\": [\"c\"]}",
    "{\"items\": {\"enum\": [1, 2, \"x\"]}, \"uniqueItems\": true, \"maxItems\": 2}",
    "{\"oneOf\": [{\"type\": \"object\", \"properties\": {\"k\": {\"const\": 1}}, \"required\": [\"k\"]}, {\"type\": "
    "\"string\", \"pattern\": \"^a\"}]}",
    "root ::= (\"a\" %json {\"type\": \"object\", \"properties\": {\"b\": {\"maximum\": 7}}})* %text \"</a>\" "
    "{\"maxLength\": "
    "5} \"</a>\"",
    "root ::= %text \"aab\" {\"anyOf\": [{\"enum\": [\"x\", \"aab\", 3, null]}, {\"pattern\": \"^a*b$\"}]} | %json "
    "{\"$ref\": "
    "\"#/a\", "
    "\"a\": {\"type\": \"null\"}}",
    "root ::= (<[3]> | \"a\" <[70000]>)* [^<]",
};

static const char *const words[] = {
    "root",
    "x",
    " ::= ",
    "\n",
    "|",
    "(",
    ")",
    "*",
    "+",
    "?",
    "{2}",
    "{0,3}",
    "{1,}",
    "{",
    "{0,9999}",
    "[",
    "]",
    "[^",
    "-",
    "\"",
    "\\",
    "\\x41",
    "\\uD800",
    "#",
    ".",
    "((((((((",
    "}",
    ",",
    ":",
    "\"type\"",
    "\"object\"",
    "\"array\"",
    "\"items\"",
    "\"enum\"",
    "\"properties\"",
    "\"$ref\": \"#\"",
    "true",
    "false",
    "[]",
    "{}",
    "1e9",
    "\"minItems\": 7",
    "\"allOf\": [",
    "\"pattern\": \"",
    "\"format\": \"uri\"",
    "\"maximum\": ",
    "\"multipleOf\": ",
    "\"prefixItems\"",
    "\"uniqueItems\": true",
    "\"maxLength\": 40",
    "\"additionalProperties\": ",
    "(?:",
    "{3,}",
    "\\\\w",
    "\xC3",
    "\xF0\x9F\x98\x80",
    "<",
    "\"\" ",
    " %json {",
    " %text \"a\" {",
    " <[9]> ",
};

int main(int argc, char **argv)
{
    unsigned long long iterations = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000, accepted = 0, done;
    const size_t count = sizeof seeds / sizeof *seeds;
    static char text[GRAMMAR_MAX];
    random_begin(argc, argv);
    vocabulary_make();
    for (done = 0; done < iterations; done++) {
        bool whole = done < count, ok; /* each seed once as it is */
        size_t k, at, some;
        char *exact, byte;
        strcpy(text, seeds[whole ? (size_t)done : random_below(count)]);
        for (k = whole ? 0 : 1 + random_below(2) * random_below(8); k > 0; k--) {
            const char *word = words[random_below(sizeof words / sizeof *words)], *other = seeds[random_below(count)];
            at = random_below(strlen(text) + 1);
            some = random_below((strlen(text) - at < 20 ? strlen(text) - at : 20) + 1);
            byte = (char)(1 + random_below(255));
            switch (random_below(5)) {
            case 0: splice_string(text, sizeof text, at, strlen(text) > at, &byte, 1); break;
            case 1: splice_string(text, sizeof text, at, some, "", 0); break;
            case 2: splice_string(text, sizeof text, at, random_below(2) ? some : 0, word, strlen(word)); break;
            case 3: splice_string(text, sizeof text, at, 0, other, random_below(strlen(other))); break;
            default: text[random_below(8) ? strlen(text) : at] = 0; break;
            }
        }
        exact = (char *)malloc(strlen(text) + 1);
        if (!exact)
            return 1;
        strcpy(exact, text);
        ok = try_grammar(exact);
        require_text(ok || !whole, "a good grammar is refused", exact);
        accepted += ok;
        free(exact);
    }
    ignis__vocabulary_free(vocabulary);
    printf("fuzz_grammar: %llu grammars, %llu accepted, %llu refused\n", iterations, accepted, iterations - accepted);
    return 0;
}

#endif
