// SPDX-License-Identifier: MIT
/*  sweep.h - forward and backward of many operations, with each call that a prefix names failing once: include it
    instead of fault.h and tensor.h */
#ifndef SWEEP_H
#define SWEEP_H

#include "fault.h"
#include "tensor.h"

/*  Until nothing fails any more, everything(at, inputs) and its backward run; what failed is reported, nothing stays
    behind, and the next time all is well. Without a prefix the counter's allocations fail. Called after SETUP with
    test_counting_desc(counter). */
static inline void sweep_walks(const char *prefix, host_counter *counter,
                               ignis_tensor (*everything)(int at, const ignis_tensor *inputs),
                               const ignis_tensor *inputs)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_status status = IGNIS_OK;
    ignis_tensor result;
    int64_t before;
    int at, failures = 0;
    bool reached = true;
    CHECK_OK(ignis_backward(everything(0, inputs), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
    before = memory().live_bytes;
    for (at = 1; at < 2000 && reached; at++) {
        scope = ignis_scope_begin();
        fault_plan(prefix, at, 2, counter, false);
        result = everything(at, inputs);
        status = result.id ? ignis_backward(result, IGNIS_NO_ARRAY) : ignis_status_last();
        reached = fault_over(counter);
        if (status != IGNIS_OK)
            failures++;
        else
            CHECK_OK(ignis_status_last());
        ignis_status_clear();
        CHECK_OK(ignis_scope_end(scope));
        CHECK_OK(ignis_tape_clear());
        CHECK_INT(memory().live_bytes, before);
    }
    CHECK_INT(status, IGNIS_OK);
    CHECK(prefix ? failures == at - 2 : failures > 20); /* the host can do without some of its allocations */
}

#endif /* SWEEP_H */
