// SPDX-License-Identifier: MIT
/*  schema_fits.c - the grammar of a JSON schema for schema_compare.py: which texts fit, and random texts of it

    Reads requests from standard input, each a letter, a count of bytes, a line end and these bytes:
        S  a schema: answers "ok", or "no" and the reason
        F  a text: answers 1 if it is a text of the last schema, 0 if not
        W  a number: answers a random text of the last schema, of this seed, as a count, a line end and its bytes;
           -1 if none of up to 600 bytes was found
    Needs no device. */
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

enum { LONGEST = 600 };

static uint64_t seed;

static uint32_t random_below(uint32_t limit)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % limit);
}

static bool fits(ignis__grammar *grammar, const char *text, size_t size)
{
    int32_t state = grammar->start;
    size_t i;
    if (grammar->states.count > 20000 && ignis__grammar_reset_states(grammar))
        state = grammar->start;
    for (i = 0; i < size && state > 0; i++)
        state = ignis__grammar_step(grammar, state, (unsigned char)text[i]);
    return state > 0 && IGNIS__GRAMMAR_AT(grammar, state, states, state)->ends;
}

/*  Walks at random, more often to bytes that end something the longer the text is. */
static int walk(ignis__grammar *grammar, char *text)
{
    static const char closers[] = "\"]},:0";
    int32_t state = grammar->start, next;
    int size, tries;
    for (size = 0; size < LONGEST; size++) {
        bool ends = IGNIS__GRAMMAR_AT(grammar, state, states, state)->ends;
        if (ends && random_below(4) == 0)
            return size;
        for (tries = 0, next = 0; tries < 3000 && next <= 0; tries++) {
            unsigned char byte = (unsigned char)random_below(256);
            if (tries > 300)
                byte = (unsigned char)tries;
            else if (random_below(LONGEST) < (uint32_t)(60 + size))
                byte = (unsigned char)closers[random_below(6)];
            else if (random_below(3))
                byte = (unsigned char)(32 + random_below(95));
            next = ignis__grammar_step(grammar, state, byte);
            text[size] = (char)byte;
        }
        if (next <= 0)
            return ends ? size : -1;
        state = next;
    }
    return -1;
}

int main(void)
{
    ignis__grammar *grammar = NULL;
    char letter, why[700], text[LONGEST + 1];
    size_t size;
    while (scanf(" %c%zu", &letter, &size) == 2 && getchar() == '\n') {
        char *bytes = (char *)calloc(size + 1, 1);
        if (!bytes || fread(bytes, 1, size, stdin) != size)
            return 1;
        if (letter == 'S') {
            ignis__record before = ignis__quiet_begin(), failure;
            if (grammar)
                ignis__grammar_free(grammar);
            grammar = ignis__grammar_make("ignis_grammar_check", bytes);
            ignis__quiet_end(&before, &failure, why, sizeof why);
            printf(grammar ? "ok\n" : "no %s\n", why);
        } else if (letter == 'F') {
            printf("%d\n", grammar && fits(grammar, bytes, size));
        } else {
            int length;
            seed = strtoull(bytes, NULL, 10) * 0x9E3779B97F4A7C15u + 1;
            if (grammar && grammar->states.count > 20000)
                (void)ignis__grammar_reset_states(grammar);
            length = grammar ? walk(grammar, text) : -1;
            printf("%d\n", length);
            if (length > 0)
                fwrite(text, 1, (size_t)length, stdout);
        }
        free(bytes);
        fflush(stdout);
    }
    if (grammar)
        ignis__grammar_free(grammar);
    return 0;
}
