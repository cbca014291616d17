// SPDX-License-Identifier: MIT
/*  sequences.h - logits of sequences beside those of a test's own forward pass */
#ifndef SEQUENCES_H
#define SEQUENCES_H

#include "near.h"

/*  Makes tokens of a text. */
static inline void ids_of(int32_t *ids, int count, int vocab)
{
    int i;
    for (i = 0; i < count; i++)
        ids[i] = (int32_t)((i * 31 + i / 7) % vocab);
}

/*  Compares the logits after the last token of a sequence with their row of `wanted` [tokens, vocab]. They are in
    *logits then. */
static inline void check_last_logits(const char *of, const char *what, ignis_sequence sequence, int tokens, int vocab,
                                     const double *wanted, double tolerance, float *logits)
{
    CHECK_OK(ignis_sequence_logits(sequence, logits, vocab));
    check_of_largest(__LINE__, of, what, logits, wanted + (int64_t)(tokens - 1) * vocab, vocab, tolerance, 0.05);
}

/*  Tokens fed as steps, a prompt of `length` tokens that is a chunk, a step after it; a step of two sequences. ids has
    length + 1 tokens, and changes. */
static inline void check_steps_and_chunks(const char *of, ignis_model model, int32_t *ids, int length, int vocab,
                                          const double *wanted, double tolerance)
{
    const size_t bytes = sizeof(float) * (size_t)vocab;
    float *logits = (float *)calloc(2, bytes), *again = logits + vocab;
    int32_t drawn[2];
    ignis_sequence sequence = ignis_sequence_begin(model), other = ignis_sequence_begin(model), both[2];
    CHECK_OK(ignis_sequence_feed(sequence, ids, 9));
    check_last_logits(of, "steps", sequence, 9, vocab, wanted, tolerance, logits);
    CHECK_OK(ignis_sequence_logits(sequence, again, vocab)); /* the last token twice */
    CHECK_INT(memcmp(logits, again, bytes), 0);
    CHECK_OK(ignis_sequence_truncate(sequence, 0));
    CHECK_OK(ignis_sequence_feed(sequence, ids, length));
    check_last_logits(of, "chunk", sequence, length, vocab, wanted, tolerance, logits);
    CHECK_OK(ignis_sequence_feed(sequence, ids + length, 1));
    check_last_logits(of, "step after chunk", sequence, length + 1, vocab, wanted, tolerance, logits);
    CHECK_OK(ignis_sequence_feed(other, ids, 5)); /* a step of both has the bits of a step alone */
    ids[0] = ignis_sequence_next(sequence, NULL);
    CHECK_OK(ignis_sequence_logits(sequence, logits, vocab));
    CHECK_OK(ignis_sequence_truncate(sequence, length + 1));
    both[0] = other, both[1] = sequence;
    CHECK_OK(ignis_sequence_next_all(both, 2, NULL, drawn));
    CHECK_INT(drawn[1], ids[0]);
    CHECK_OK(ignis_sequence_logits(sequence, again, vocab));
    CHECK_INT(memcmp(logits, again, bytes), 0);
    CHECK_OK(ignis_sequence_free(other));
    CHECK_OK(ignis_sequence_free(sequence));
    free(logits);
}

#endif
