// SPDX-License-Identifier: MIT
/*  fuzz.h - random numbers of the fuzzers, the same for a seed; and conditions on an input

    A fuzzer with conditions defines FUZZER, its name, first. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t random_state;

/*  The seed is the program's second argument, 1 without one. */
static inline void random_begin(int argc, char **argv)
{
    random_state = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) * 0x9E3779B97F4A7C15u | 1;
}

static inline uint64_t random_next(void) /* xorshift64*, Vigna 2016 */
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545F4914F6CDD1Du;
}

static inline size_t random_below(size_t limit) { return limit ? (size_t)((random_next() >> 33) % limit) : 0; }

/*  Replaces `old` bytes at a place of a string by others, if its array of `room` bytes has room for them. */
static inline void splice_string(char *text, size_t room, size_t at, size_t old, const char *with, size_t size)
{
    size_t length = strlen(text);
    if (length - old + size >= room)
        return;
    memmove(text + at + size, text + at + old, length - at - old + 1);
    memcpy(text + at, with, size);
}

#ifdef FUZZER

/*  Ends the program if a condition on an input does not hold. The input is in a file then. */
static inline void require(bool condition, const char *what, const void *input, size_t size)
{
    FILE *file;
    if (condition)
        return;
    file = fopen(FUZZER ".failed", "wb");
    if (file) {
        fwrite(input, 1, size, file);
        fclose(file);
    }
    fprintf(stderr, FUZZER ": %s; the input is in " FUZZER ".failed\n", what);
    abort();
}

static inline void require_text(bool condition, const char *what, const char *text)
{
    require(condition, what, text, strlen(text));
}

#endif

#endif
