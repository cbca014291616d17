// SPDX-License-Identifier: MIT
/*  empty.h - programs of Ignis without what they do, for tests of all else about them: to compile all kernels takes a
    minute

    empty_begin()       from now on, instead of each program of Ignis one is compiled whose kernels of the same names do
    nothing. The test has a
                        folder for the cache of its own, or none, so that nobody else finds them there.
    empty_end()         no more
    empty_made[i]       how often that of ignis__source_at(i) was compiled since empty_begin() */
#ifndef EMPTY_H
#define EMPTY_H

#include "test.h"

typedef int empty__create(void **, const char *, const char *, int, const char *const *, const char *const *);
static empty__create *empty__real;
enum { EMPTY_MOST = 256 };
static uint64_t empty_made[EMPTY_MOST];

static inline int empty__make(void **program, const char *text, const char *name, int headers,
                              const char *const *header_texts, const char *const *header_names)
{
    char empty[8192] = "";
    const ignis__source *source;
    ignis__builtin builtin;
    size_t length = 0;
    int at = 0, i;
    while ((source = ignis__source_at(at)) != NULL && strcmp(source->name, name) != 0)
        at++;
    if (!source)
        return empty__real(program, text, name, headers, header_texts, header_names);
    for (i = 0; (builtin = ignis__builtin_of_source(source, i)) != NULL; i++)
        length += (size_t)snprintf(empty + length, sizeof empty - length, "extern \"C\" __global__ void %s() {}\n",
                                   builtin->entry);
    CHECK(at < EMPTY_MOST && length < sizeof empty);
    ignis__atomic_add(&empty_made[at], 1);
    return empty__real(program, empty, name, 0, NULL, NULL);
}

static inline void empty_begin(void)
{
    ignis_library_info nvrtc;
    CHECK_OK(ignis_library_query(IGNIS_LIBRARY_NVRTC, &nvrtc)); /* loads it */
    memset(empty_made, 0, sizeof empty_made);
    empty__real = ignis__nvrtc.nvrtcCreateProgram;
    ignis__nvrtc.nvrtcCreateProgram = empty__make;
}

static inline void empty_end(void) { ignis__nvrtc.nvrtcCreateProgram = empty__real; }

#endif
