// SPDX-License-Identifier: MIT
/*  each_fails.h - the same work with each call that a prefix names failing once: include it behind fault.h

    TEST(each_launch_fails_once) { check_each_fails("cuLaunchKernel", 41, work); }
    static void work(attempt *a)
    {
        attempt_arm(a);
        while (call() != IGNIS_OK)
            attempt_failed(a);
        attempt_over(a);
    } */
#ifndef EACH_FAILS_H
#define EACH_FAILS_H

#include "fault.h"
#include "test.h"

/*  One run of the work. */
typedef struct attempt {
    const char *prefix;
    host_counter *counter;
    int at;        /* the call that fails; 0: none, in the first run, whose result is expected of the others */
    bool reached;  /* the call was made */
    int *failures; /* of all runs */
} attempt;

/*  From here on the call fails. */
static inline void attempt_arm(const attempt *a)
{
    if (a->at)
        fault_plan(a->prefix, a->at, 2, a->counter, false);
}

/*  Counts a call of Ignis that has failed, and was reported. */
static inline void attempt_failed(attempt *a)
{
    CHECK(ignis_status_last() != IGNIS_OK);
    ignis_status_clear();
    ++*a->failures;
}

/*  Nothing fails from here on. */
static inline void attempt_over(attempt *a) { a->reached |= fault_over(a->counter); }

/*  Runs the work with every stride-th call failing, until there are no more. Without a prefix allocations of the host
    fail. Called before setup. */
static inline void check_each_fails(const char *prefix, int stride, void (*work)(attempt *a))
{
    enum { MOST_CALLS = 2000 };
    static host_counter counter;
    ignis_desc setup = test_counting_desc(&counter);
    attempt a = {prefix, &counter, 0, true, NULL};
    int failures = 0;
    a.failures = &failures;
    SETUP(&setup);
    for (; a.at < MOST_CALLS && a.reached; a.at += a.at ? stride : 1) {
        a.reached = a.at == 0;
        work(&a);
    }
    CHECK(failures > 0 && a.at < MOST_CALLS);
}

#endif /* EACH_FAILS_H */
