// SPDX-License-Identifier: MIT
/*  engine.h - a small engine of two libraries and a program, as a user of Ignis would split it

    core (core.c)        the engine's heap, log and workers, and the GPU: the one file that has Ignis inside
    game (game.cpp)      things that move, written in C++ against ignis.h alone
    main.cpp             frames, and the tests

    With these, the libraries are static. ../gpu_engine.c has both in one shared library, a plugin (effects.cpp) in
    another, and a renderer. */
#ifndef ENGINE_H
#define ENGINE_H

#include "../../ignis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* core */
ignis_desc *engine_options(void); /* what engine_start sets up with, but for heap and log; at first all zero */
bool engine_start(void);
long engine_stop(void);            /* blocks of the heap that are left */
void engine_heap_limit(long most); /* blocks; beyond, there is no memory */
int engine_log_count(ignis_diagnostic diagnostic);
const char *engine_log_text(ignis_diagnostic diagnostic);
/*  Runs job(first) and so on, `count` in all, on the workers, as long as budget_s lasts; at least one. Returns how
    many. */
int engine_run(void (*job)(int), int first, int count, double budget_s);

/* game */
enum { GAME_ACTORS = 6, GAME_SIZE = 1000 };
bool game_start(const char *path); /* of the kernel */
bool game_stop(void);
void game_step(int actor);
ignis_status game_reload(const char *path); /* waits for it */
int game_steps(int actor);
int game_seen(int actor); /* the newest value that was read back, and of which step */
int game_seen_at(int actor);
bool game_torn(void); /* a readback was not of one step */
ignis_array game_array(int actor);

#ifdef __cplusplus
}
#endif

#endif /* ENGINE_H */
