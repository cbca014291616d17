// SPDX-License-Identifier: MIT
/*  timing.h - what the benchmarks share: the clock, medians, and the time of a call of Ignis

    Include it after Ignis, if the program has that. */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double now(void) /* seconds */
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/*  For qsort of doubles. */
static inline int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/*  Of none 0. Sorts the values. */
static inline double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count ? values[count / 2] : 0;
}

#ifdef IGNIS_VERSION

/*  Ends the program if a call has failed. */
static inline void require(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench: %s failed: %s\n", what, ignis_status_message());
    exit(1);
}

/*  How often median_seconds runs the work: a round has `most` runs if the first run takes less than `below` seconds,
    else one. The first run does not count. */
typedef struct repetition {
    int rounds, most;
    double below;
} repetition;

struct data;

enum { ROUNDS_AT_MOST = 64 };

/*  Returns the median of the rounds: the time of a run, in a scope of its own. */
static inline double median_seconds(void (*run)(const void *work), const void *work, repetition how)
{
    double times[ROUNDS_AT_MOST], start;
    int round, i, runs = 1;
    for (round = -1; round < how.rounds; round++) {
        ignis_synchronize();
        start = now();
        for (i = 0; i < runs; i++) {
            ignis_scope scope = ignis_scope_begin();
            run(work);
            ignis_scope_end(scope);
        }
        ignis_synchronize();
        if (round >= 0)
            times[round] = (now() - start) / runs;
        else if (now() - start < how.below)
            runs = how.most;
    }
    return median(times, how.rounds);
}

/*  A call of a benchmark, whose inputs are in its own struct data. */
typedef struct timed_call {
    ignis_tensor (*run)(const struct data *d);
    const struct data *d;
} timed_call;

/*  For median_seconds. */
static inline void run_call(const void *work)
{
    const timed_call *c = (const timed_call *)work;
    (void)c->run(c->d);
}

#ifdef IGNIS_COLLECTIVE_VERSION

/*  Waits until all ranks are here, and their work is done. */
static inline void wait_for_ranks(ignis_comm comm)
{
    require(ignis_comm_barrier(comm) == IGNIS_OK && ignis_comm_synchronize(comm) == IGNIS_OK, "waiting for all ranks");
}

/*  Returns the median of the rounds, each of which begins and ends with idle ranks: the time of a step of all ranks.
    before: steps that do not count. */
static inline double median_step_seconds(ignis_comm comm, void (*step)(void *data), void *data, int before, int rounds,
                                         int steps)
{
    double times[ROUNDS_AT_MOST];
    int round, i;
    for (i = 0; i < before; i++)
        step(data);
    for (round = 0; round < rounds; round++) {
        wait_for_ranks(comm);
        times[round] = now();
        for (i = 0; i < steps; i++)
            step(data);
        wait_for_ranks(comm);
        times[round] = (now() - times[round]) / steps;
    }
    return median(times, rounds);
}

#endif

#endif

#endif
