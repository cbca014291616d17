// SPDX-License-Identifier: MIT
/*  sequence_faults.h - sequences of a model in a folder, with each call that a prefix names failing once: include it
    instead of fault.h */
#ifndef SEQUENCE_FAULTS_H
#define SEQUENCE_FAULTS_H

#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

enum { FAULT_PROMPT = 66, FAULT_STEPS = 8 }; /* FAULT_PROMPT: a chunk */

/*  Does a step of two sequences. What failed can be tried again. */
static inline bool sequence_fault_step(int step, ignis_model model, ignis_sequence s[2], const int32_t *ids,
                                       float *logits, int vocab)
{
    int32_t drawn[2];
    switch (step) {
    case 0: return (s[0] = ignis_sequence_begin(model)).id != 0;
    case 1: return ignis_sequence_feed(s[0], ids, FAULT_PROMPT) == IGNIS_OK;
    case 2: return ignis_sequence_next(s[0], NULL) >= 0;
    case 3: return (s[1] = ignis_sequence_fork(s[0])).id != 0;
    case 4: return ignis_sequence_next_all(s, 2, NULL, drawn) == IGNIS_OK;
    case 5: return ignis_sequence_truncate(s[0], 4) == IGNIS_OK;
    case 6: return ignis_sequence_feed(s[0], ids, 2) == IGNIS_OK; /* tokens before are computed again */
    default: return ignis_sequence_logits(s[0], logits, vocab) == IGNIS_OK;
    }
}

/*  Checks that what fails is reported, leaves nothing behind, and succeeds when it is tried again, with the same
    logits. Tries every stride-th call. Called before setup. */
static inline void check_sequence_faults(const char *folder, const char *prefix, int stride, int vocab)
{
    static host_counter counter;
    ignis_desc setup = test_counting_desc(&counter);
    float *expected = (float *)calloc(2 * (size_t)vocab, sizeof *expected), *logits = expected + vocab;
    int32_t ids[FAULT_PROMPT];
    ignis_model_desc desc;
    int at, step, failures = 0;
    bool reached = true;
    setup.memory_bypass = true; /* each array is an allocation of the driver */
    SETUP(&setup);
    memset(&desc, 0, sizeof desc);
    desc.path = folder, desc.dtype = IGNIS_F32, desc.sequences = 2;
    for (step = 0; step < FAULT_PROMPT; step++)
        ids[step] = (step * 31 + step / 7) % vocab;
    for (at = 0; at < 4000 && reached; at += at ? stride : 1) {
        ignis_sequence s[2] = {{0}, {0}};
        ignis_model model = ignis_model_open(&desc);
        CHECK(model.id != 0);
        if (at) /* the first time nothing fails */
            fault_plan(prefix, at, 2, &counter, false);
        for (step = 0, reached = at == 0; step < FAULT_STEPS; step++) {
            if (sequence_fault_step(step, model, s, ids, logits, vocab))
                continue;
            CHECK(ignis_status_last() != IGNIS_OK);
            ignis_status_clear();
            failures++;
            reached = fault_over(&counter);
            CHECK(reached && sequence_fault_step(step, model, s, ids, logits, vocab));
        }
        reached = fault_over(&counter) || reached; /* Ignis can do without some allocations */
        if (at == 0)
            memcpy(expected, logits, sizeof *logits * (size_t)vocab);
        CHECK(memcmp(expected, logits, sizeof *logits * (size_t)vocab) == 0);
        CHECK_OK(ignis_sequence_free(s[0]));
        CHECK_OK(ignis_sequence_free(s[1]));
        CHECK_OK(ignis_model_free(model));
        CHECK_INT(memory().live_bytes, 0);
    }
    if (getenv("IGNIS_TEST_SHOW"))
        printf("%s: %d failures, calls up to %d\n", prefix ? prefix : "host", failures, at);
    CHECK(failures > 0 && at < 4000);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(counter.blocks, 0);
    free(expected);
}

#endif /* SEQUENCE_FAULTS_H */
