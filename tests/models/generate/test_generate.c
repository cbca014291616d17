// SPDX-License-Identifier: MIT
/*  test_generate.c - generation: sequences in batches, their cache, forks and limits, leaks, failures */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "byte_tokenizer.h"

#include "generate.h"

#include <float.h>
#include <math.h>

/* sequences ------------------------------------------------------------------------------------------------------ */

static ignis_sampling_desc sampling_of(int number)
{
    ignis_sampling_desc d;
    memset(&d, 0, sizeof d);
    d.temperature = number % 3 ? 0.8 + 0.1 * number : 0;
    d.top_k = number % 2 ? 30 : 0;
    d.top_p = number % 4 == 2 ? 0.9 : 0;
    d.repetition_penalty = number % 5 == 4 ? 1.3 : 0;
    d.seed = (uint64_t)(1000 + number);
    return d;
}

/*  Counts the parts, which come in order; false after `most` of them. */
typedef struct warm_parts {
    int calls, total, most;
} warm_parts;

static bool warm_part(int done, int total, void *user_data)
{
    warm_parts *parts = (warm_parts *)user_data;
    CHECK(done >= 0 && done <= total && (parts->calls == 0 || total == parts->total));
    parts->total = total;
    return parts->calls++ < parts->most;
}

/*  After ignis_model_warmup no program is loaded and no graph captured, whatever the sequences do within its numbers.
    */
TEST(a_warm_model_compiles_nothing)
{
    static const ignis_dtype dtypes[] = {IGNIS_BF16, IGNIS_F32};
    int which, count, length, i;
    SETUP(NULL);
    for (which = 0; which < (test_takes_all() ? COUNT_OF(dtypes) : 1); which++) {
        test_shape shape = small;
        ignis_model_warmup_desc desc;
        warm_parts parts = {0, 0, 1000};
        ignis_sequence s[3];
        ignis_sequence_info info;
        ignis_sampling_desc sampling[3];
        int32_t ids[120], drawn[3];
        test_model t;
        shape.layers = 1;
        shape.dtype = dtypes[which];
        test_model_begin(&t, &shape, 120, 3);
        memset(&desc, 0, sizeof desc);
        desc.tokens = 100;
        desc.progress_fn = warm_part;
        desc.user_data = &parts;
        CHECK_OK(ignis_model_warmup(t.handle, &desc));
        CHECK_INT(parts.calls, parts.total + 1);
        fault_reset_counts();
        for (i = 0; i < 3; i++)
            s[i] = ignis_sequence_begin(t.handle);
        CHECK_OK(ignis_sequence_query(s[0], &info)); /* its own sequences are gone */
        CHECK_INT(info.free_tokens, 3 * 128);
        for (length = 1; length <= 100; length += length < 4 ? 1 : 12) {
            prompt_of(length, length, ids);
            CHECK_OK(ignis_sequence_set(s[0], ids, length));
            sampling[0] = sampling_of(length);
            CHECK(ignis_sequence_next(s[0], &sampling[0]) >= 0);
        }
        for (count = 1; count <= 3; count++) {
            for (i = 0; i < count; i++) {
                prompt_of(i, count + i, ids);
                CHECK_OK(ignis_sequence_set(s[i], ids, count + i));
                sampling[i] = sampling_of(count + i);
            }
            CHECK_OK(ignis_sequence_next_all(s, count, sampling, drawn));
            CHECK_OK(ignis_sequence_next_all(s, count, NULL, drawn));
        }
        prompt_of(3, 120, ids);
        CHECK_OK(ignis_sequence_set(s[0], ids, 20));
        CHECK_OK(ignis_sequence_feed(s[0], ids + 20, 99));
        CHECK(ignis_sequence_next(s[0], NULL) >= 0);
        CHECK_INT(fault_count("cuModuleLoadData"), 0);
        CHECK_INT(fault_count("cuStreamBeginCapture_v2"), 0);
        /* what is refused, and what stops it */
        for (i = 1; i < 3; i++)
            CHECK_OK(ignis_sequence_set(s[i], ids, 120));
        CHECK_FAILS(ignis_model_warmup(t.handle, NULL), IGNIS_ERROR_MEMORY, IGNIS_DIAG_CACHE_FULL);
        for (i = 0; i < 3; i++)
            CHECK_OK(ignis_sequence_free(s[i]));
        for (i = 0; i < 3; i++) {
            parts.calls = 0;
            parts.most = i;
            CHECK_FAILS(ignis_model_warmup(t.handle, &desc), IGNIS_ERROR_IO, IGNIS_DIAG_MODEL_CANCELLED);
            CHECK_INT(parts.calls, i + 1);
        }
        desc.tokens = -1;
        CHECK_FAILS(ignis_model_warmup(t.handle, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
        desc.tokens = 2;
        desc.sequences = -1;
        CHECK_FAILS(ignis_model_warmup(t.handle, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
        desc.sequences = 1000; /* more than there can be: as many as there can be */
        desc.progress_fn = NULL;
        CHECK_OK(ignis_model_warmup(t.handle, &desc));
        test_model_end(&t);
        CHECK_FAILS(ignis_model_warmup(t.handle, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
        for (length = 1; length <= 3; length++) { /* contexts with room for no token behind the prompt, and for few */
            test_model_begin(&t, &shape, length, 2);
            CHECK_OK(ignis_model_warmup(t.handle, NULL));
            test_model_end(&t);
        }
    }
}

/*  So many texts of a model, each drawn alone, then in batches of all, some with odd ones: the same tokens, and the
    same bits of the last logits. */
TEST(texts_are_the_same_in_any_batch)
{
    enum { TEXTS = 7, DRAWN = 3 };
    static const int lengths[TEXTS] = {1, 15, 16, 17, 40, 3, 33};
    int32_t alone[TEXTS][DRAWN], drawn[TEXTS], ids[64];
    float logits[TEXTS][128], again[128];
    ignis_sampling_desc sampling[TEXTS];
    ignis_sequence sequence[TEXTS], some[TEXTS];
    ignis_sequence_info info, other;
    test_model t;
    int i, k, n, count;
    SETUP(NULL);
    test_model_begin(&t, &small, 100, TEXTS);
    for (i = 0; i < TEXTS; i++) {
        sampling[i] = sampling_of(i);
        prompt_of(i, lengths[i], ids);
        sequence[i] = ignis_sequence_begin(t.handle);
        CHECK_OK(ignis_sequence_feed(sequence[i], ids, lengths[i]));
        for (k = 0; k < DRAWN; k++)
            alone[i][k] = ignis_sequence_next(sequence[i], &sampling[i]);
        CHECK_OK(ignis_sequence_query(sequence[i], &info));
        CHECK_INT(info.length, lengths[i] + DRAWN);
        CHECK_OK(ignis_sequence_logits(sequence[i], logits[i], small.vocab));
        other = info;
        CHECK(other.log_prob < 0 && other.log_prob > -30);
        CHECK_OK(ignis_sequence_truncate(sequence[i], lengths[i])); /* and again from there */
    }
    for (k = 0; k < DRAWN; k++) {
        CHECK_OK(ignis_sequence_next_all(sequence, TEXTS, sampling, drawn));
        for (i = 0; i < TEXTS; i++)
            CHECK_INT(drawn[i], alone[i][k]);
    }
    for (i = 0; i < TEXTS; i++) {
        CHECK_OK(ignis_sequence_logits(sequence[i], again, small.vocab));
        CHECK(memcmp(again, logits[i], sizeof *again * (size_t)small.vocab) == 0);
        CHECK_OK(
            ignis_sequence_truncate(sequence[i], lengths[i] > 3 ? lengths[i] - 3 : 0)); /* fed again, in two pieces */
        prompt_of(i, lengths[i], ids);
        n = ignis_sequence_length(sequence[i]);
        CHECK_OK(ignis_sequence_feed(sequence[i], ids + n, (lengths[i] - n) / 2));
        n = ignis_sequence_length(sequence[i]);
        CHECK_OK(ignis_sequence_feed(sequence[i], ids + n, lengths[i] - n));
    }
    for (k = 0; k < DRAWN; k++) /* some of them at a time */
        for (n = 0; n < TEXTS; n += count) {
            ignis_sampling_desc how[TEXTS];
            count = 1 + (n + k) % 4 < TEXTS - n ? 1 + (n + k) % 4 : TEXTS - n;
            for (i = 0; i < count; i++) {
                some[i] = sequence[n + count - 1 - i];
                how[i] = sampling[n + count - 1 - i];
            }
            CHECK_OK(ignis_sequence_next_all(some, count, how, drawn));
            for (i = 0; i < count; i++)
                CHECK_INT(drawn[i], alone[n + count - 1 - i][k]);
        }
    for (i = 0; i < TEXTS; i++) {
        CHECK_OK(ignis_sequence_logits(sequence[i], again, small.vocab));
        CHECK(memcmp(again, logits[i], sizeof *again * (size_t)small.vocab) == 0);
        CHECK_OK(ignis_sequence_free(sequence[i]));
    }
    test_model_end(&t);
}

/*  Forks share pages and go their own ways; what they write is their own. */
TEST(forks_share_and_part)
{
    enum { DRAWN = 10 };
    int32_t ids[64], texts[3][DRAWN], drawn[3], kept[128];
    ignis_sequence s[3], fork;
    ignis_sampling_desc sampling[3];
    ignis_sequence_info before, info;
    float logits[128], again[128];
    test_model t;
    int i, k;
    SETUP(NULL);
    test_model_begin(&t, &small, 96, 3);
    prompt_of(5, 40, ids);
    for (i = 0; i < 3; i++) { /* each for itself */
        sampling[i] = sampling_of(4);
        sampling[i].seed = (uint64_t)i;
        s[i] = ignis_sequence_begin(t.handle);
        CHECK_OK(ignis_sequence_feed(s[i], ids, 40));
        for (k = 0; k < DRAWN; k++)
            texts[i][k] = ignis_sequence_next(s[i], &sampling[i]);
        CHECK_OK(ignis_sequence_free(s[i]));
    }
    CHECK(memcmp(texts[0], texts[1], sizeof texts[0]) != 0);
    s[0] = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_query(s[0], &before));
    CHECK_INT(before.free_tokens, 3 * 96);
    CHECK_OK(ignis_sequence_feed(s[0], ids, 40));
    s[1] = ignis_sequence_fork(s[0]);
    s[2] = ignis_sequence_fork(s[1]);
    CHECK_OK(ignis_sequence_query(s[2], &info));
    CHECK_INT(info.length, 40);
    CHECK_INT(info.free_tokens, 3 * 96 - 48);
    for (k = 0; k < DRAWN; k++) {
        CHECK_OK(ignis_sequence_next_all(s, 3, sampling, drawn));
        for (i = 0; i < 3; i++)
            CHECK_INT(drawn[i], texts[i][k]);
    }
    CHECK_OK(ignis_sequence_query(s[2], &info)); /* two pages are all theirs, each has two more */
    CHECK_INT(info.free_tokens, 3 * 96 - 32 - 3 * 32);
    CHECK_OK(ignis_sequence_logits(s[1], logits, small.vocab));
    fork = ignis_sequence_fork(s[1]);
    CHECK_OK(ignis_sequence_free(s[1]));
    CHECK_OK(ignis_sequence_truncate(fork, 10));
    CHECK_INT(ignis_sequence_next(fork, &sampling[0]) >= 0, 1);
    CHECK_OK(ignis_sequence_truncate(fork, 10));
    CHECK_OK(ignis_sequence_feed(fork, ids + 10, 30));
    CHECK_OK(ignis_sequence_feed(fork, texts[1], DRAWN));
    CHECK_INT(ignis_sequence_ids(fork, kept, 128), 40 + DRAWN);
    CHECK(memcmp(kept, ids, 40 * sizeof *ids) == 0 && memcmp(kept + 40, texts[1], sizeof texts[1]) == 0);
    CHECK_OK(ignis_sequence_logits(fork, again, small.vocab));
    CHECK(memcmp(logits, again, sizeof *again * (size_t)small.vocab) == 0);
    CHECK_OK(ignis_sequence_free(fork));
    CHECK_OK(ignis_sequence_free(s[0]));
    CHECK_OK(ignis_sequence_free(s[2]));
    s[0] = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_query(s[0], &info)); /* all is back */
    CHECK_INT(info.free_tokens, before.free_tokens);
    CHECK_OK(ignis_sequence_free(s[0]));
    test_model_end(&t);
}

/*  What does not go, says why, and leaves everything as it was. */
TEST(limits_and_errors)
{
    int32_t ids[200], drawn[4];
    float logits[128];
    ignis_sequence s[3], none = {0}, foreign;
    ignis_sampling_desc sampling[2];
    ignis_logit_bias biases[3] = {{4, 1}, {9, -HUGE_VALF}, {9, 0}};
    ignis_sequence_info info;
    ignis_model no_model = {0};
    test_model t, u;
    int i;
    SETUP(NULL);
    memset(sampling, 0, sizeof sampling);
    test_model_begin(&t, &small, 40, 2);
    test_model_begin(&u, &shapes[0], 32, 1);
    prompt_of(1, 200, ids);
    for (i = 0; i < 3; i++)
        s[i] = ignis_sequence_begin(t.handle);
    CHECK_REFUSED(0, ignis_sequence_begin(no_model).id, IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    foreign = ignis_sequence_begin(u.handle);

    CHECK_REFUSED(-1, ignis_sequence_next(s[0], NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_sequence_feed(s[0], NULL, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_sequence_feed(s[0], ids, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_OK(ignis_sequence_feed(s[0], NULL, 0));
    drawn[0] = 3, drawn[1] = small.vocab;
    CHECK_STATUS(ignis_sequence_feed(s[0], drawn, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("ids[1] is 120; the model has tokens 0 to 119");
    CHECK_INT(ignis_sequence_length(s[0]), 0);

    CHECK_STATUS(ignis_sequence_feed(s[0], ids, 41), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CONTEXT_FULL);
    CHECK_MESSAGE_HAS("0 tokens, 41 more do not fit the context of 40");
    CHECK_OK(ignis_sequence_feed(s[0], ids, 39));
    CHECK(ignis_sequence_next(s[0], NULL) >= 0);
    CHECK_REFUSED(-1, ignis_sequence_next(s[0], NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CONTEXT_FULL);
    CHECK_OK(ignis_sequence_logits(s[0], logits, small.vocab));
    CHECK_STATUS(ignis_sequence_logits(s[0], logits, 5), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_sequence_logits(s[0], NULL, small.vocab), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);

    CHECK_OK(ignis_sequence_feed(s[1], ids, 32)); /* the cache has 6 pages, and 5 are taken */
    CHECK_STATUS(ignis_sequence_feed(s[2], ids, 17), IGNIS_ERROR_MEMORY, IGNIS_DIAG_CACHE_FULL);
    CHECK_MESSAGE_HAS("6 pages of 16 tokens, 1 of them free, and 2 are needed");
    CHECK_INT(ignis_sequence_length(s[2]), 0);
    CHECK_OK(ignis_sequence_feed(s[2], ids, 16));
    CHECK_OK(ignis_sequence_next_all(s + 1, 1, NULL, drawn));
    CHECK_REFUSED(-1, ignis_sequence_next(s[1], NULL), IGNIS_ERROR_MEMORY, IGNIS_DIAG_CACHE_FULL);
    CHECK_OK(ignis_sequence_free(s[2]));
    CHECK(ignis_sequence_next(s[1], NULL) >= 0); /* goes on where it was */
    CHECK_INT(ignis_sequence_length(s[1]), 34);
    CHECK_REFUSED(-1, ignis_sequence_next(s[2], NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK_REFUSED(0, ignis_sequence_fork(s[2]).id, IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK_STATUS(ignis_sequence_free(s[2]), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);

    s[2] = s[1];
    CHECK_STATUS(ignis_sequence_next_all(s, 3, NULL, drawn), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("sequences[2] is sequences[1]");
    s[2] = foreign;
    CHECK_STATUS(ignis_sequence_next_all(s, 3, NULL, drawn), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_WRONG_MODEL);
    CHECK_STATUS(ignis_sequence_next_all(s, -1, NULL, drawn), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_sequence_next_all(NULL, 2, NULL, drawn), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_sequence_next_all(s, 2, NULL, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_sequence_next_all(s, 0, NULL, drawn));
    s[2] = none;
    CHECK_STATUS(ignis_sequence_next_all(s, 3, NULL, drawn), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK_STATUS(ignis_sequence_next_all(s, 2, NULL, drawn), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CONTEXT_FULL);
    CHECK_INT(ignis_sequence_length(s[1]), 34);
    CHECK_STATUS(ignis_sequence_truncate(s[1], 35), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_sequence_truncate(s[1], -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_sequence_query(s[1], NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(-1, ignis_sequence_length(none), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK_REFUSED(-1, ignis_sequence_ids(s[1], NULL, 4), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(-1, ignis_sequence_ids(s[1], drawn, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);

#define CHECK_BAD_SAMPLING(field, value, back)                                                            \
    (sampling[0].field = (value),                                                                         \
     CHECK_REFUSED(-1, ignis_sequence_next(s[1], sampling), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER), \
     sampling[0].field = (back))
    CHECK_BAD_SAMPLING(temperature, -1, 0);
    CHECK_BAD_SAMPLING(temperature, NAN, 0);
    CHECK_BAD_SAMPLING(top_k, -1, 0);
    CHECK_BAD_SAMPLING(top_p, 1.01, 0);
    CHECK_BAD_SAMPLING(min_p, -0.1, 0);
    CHECK_BAD_SAMPLING(repetition_penalty, HUGE_VAL, 0);
    CHECK_BAD_SAMPLING(penalty_window, -2, 0);
    CHECK_BAD_SAMPLING(bias_count, 513, 0);
    sampling[0].bias_count = 3;
    CHECK_REFUSED(-1, ignis_sequence_next(s[1], sampling), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    sampling[0].biases = biases;
    CHECK_REFUSED(-1, ignis_sequence_next(s[1], sampling), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("sampling->biases[2] is 0 for token 9");
    CHECK_INT(ignis_sequence_length(s[1]), 34);
    biases[0].bias = 1e4f; /* which is all there is to draw, then */
    sampling[0].bias_count = 2;
    CHECK_INT(ignis_sequence_next(s[1], sampling), 4);

    CHECK_OK(ignis_graph_begin());
    CHECK_REFUSED(-1, ignis_sequence_next(s[1], NULL), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_REFUSED(0, ignis_sequence_begin(t.handle).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_sequence_next_all(s, 2, NULL, drawn), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_graph_free(ignis_graph_end()));

    CHECK_OK(ignis_sequence_free(foreign));
    CHECK_OK(ignis_sequence_free(s[0]));
    CHECK_OK(ignis_sequence_query(s[1], &info));
    CHECK_INT(info.free_tokens, 3 * 16);
    CHECK_INT(info.context, 40);
    test_model_end(&u);
    CHECK_OK(ignis_sequence_free(s[1]));
    test_model_end(&t);
}

/*  A capture of the caller goes on while a model ends, whose steps are graphs, too. */
TEST(a_model_ends_in_a_capture)
{
    ignis_sequence s;
    ignis_graph graph;
    ignis_tensor x;
    test_model t;
    int32_t ids[4];
    int i;
    SETUP(NULL);
    prompt_of(1, 4, ids);
    x = tensor_counting(IGNIS_SHAPE(4), IGNIS_F32, 1, false);
    test_model_begin(&t, &small, 40, 2);
    s = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_feed(s, ids, 4));
    for (i = 0; i < 3; i++)
        CHECK(ignis_sequence_next(s, NULL) >= 0);
    CHECK_OK(ignis_graph_begin());
    CHECK_STATUS(ignis_sequence_free(s), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_graph_free(ignis_graph_end()));
    CHECK_OK(ignis_sequence_free(s));
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_array_scale(ignis_tensor_data(x), ignis_tensor_data(x), 2));
    test_model_end(&t);
    graph = ignis_graph_end();
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_NUMBER(value_at(x, 3), 8);
    CHECK_OK(ignis_graph_free(graph));
    let_go(x);
    CHECK_INT(memory().live_bytes, 0);
}

/*  A step that the cache has too few pages for leaves all of them to others. */
TEST(a_full_cache_keeps_its_pages)
{
    int32_t ids[33], drawn[2];
    ignis_sequence s[3];
    ignis_sequence_info info;
    test_model t;
    int i;
    SETUP(NULL);
    test_model_begin(&t, &small, 33, 1); /* 3 pages */
    prompt_of(1, 33, ids);
    for (i = 0; i < 2; i++) {
        s[i] = ignis_sequence_begin(t.handle);
        CHECK_OK(ignis_sequence_feed(s[i], ids, 16));
        CHECK(ignis_sequence_next(s[i], NULL) >= 0);
    }
    CHECK_STATUS(ignis_sequence_next_all(s, 2, NULL, drawn), IGNIS_ERROR_MEMORY, IGNIS_DIAG_CACHE_FULL);
    CHECK_OK(ignis_sequence_query(s[0], &info));
    CHECK_INT(info.length, 17);
    CHECK_INT(info.free_tokens, 16);
    CHECK(ignis_sequence_next(s[1], NULL) >= 0);
    for (i = 0; i < 2; i++)
        CHECK_OK(ignis_sequence_free(s[i]));
    test_model_end(&t);
}

/*  A cache that no device has room for is refused at once, by the call that is to make it. */
TEST(a_cache_beyond_the_device)
{
    static const int sequences[] = {1 << 28, INT32_MAX};
    int i;
    SETUP(NULL);
    for (i = 0; i < 2; i++) {
        int64_t before = memory().live_bytes;
        test_model t;
        test_model_begin(&t, &small, 64, sequences[i]);
        CHECK_FAILS(ignis_sequence_begin(t.handle), IGNIS_ERROR_MEMORY,
                    i ? IGNIS_DIAG_CACHE_FULL : IGNIS_DIAG_DEVICE_MEMORY);
        if (i)
            CHECK_MESSAGE_HAS("2147483647 sequences of 64 tokens");
        test_model_end(&t);
        CHECK_INT(memory().live_bytes, before);
    }
}

/*  Of more sequences than one step takes, all go on or none. */
TEST(a_step_in_parts_is_done_whole_or_not_at_all)
{
    enum { COUNT = 9 };
    ignis_sequence s[COUNT];
    int32_t ids[4], drawn[2][COUNT];
    ignis_sampling_desc sampling[COUNT];
    ignis_status status = IGNIS_OK;
    int i, at;
    test_model t;
    SETUP(NULL);
    test_model_begin(&t, &small, 33, 8);
    for (i = 0; i < COUNT; i++) {
        s[i] = ignis_sequence_begin(t.handle);
        sampling[i] = sampling_of(i);
        prompt_of(i, 4, ids);
        CHECK_OK(ignis_sequence_feed(s[i], ids, 4));
    }
    CHECK_OK(ignis_sequence_next_all(s, COUNT, sampling, drawn[0]));
    for (i = 0; i < COUNT; i++)
        CHECK_OK(ignis_sequence_truncate(s[i], 4));
    for (at = 1; at < 20 && (at == 1 || status != IGNIS_OK); at++) {
        fault_arm("cuStreamSynchronize", at, 2);
        status = ignis_sequence_next_all(s, COUNT, sampling, drawn[1]);
        fault_disarm();
        ignis_status_clear();
        for (i = 0; i < COUNT; i++)
            CHECK_INT(ignis_sequence_length(s[i]), status == IGNIS_OK ? 5 : 4);
    }
    CHECK(at > 3 && at < 20);
    CHECK(memcmp(drawn[0], drawn[1], sizeof drawn[0]) == 0);
    for (i = 0; i < COUNT; i++)
        CHECK_OK(ignis_sequence_free(s[i]));
    test_model_end(&t);
}

/*  A thread for each sequence of one model, and two threads at one of them. */
enum { THREAD_DRAWN = 6 };

typedef struct text_thread {
    ignis_model model;
    ignis_sequence shared;
    int number;
    int32_t drawn[THREAD_DRAWN];
} text_thread;

static void *text_run(void *context)
{
    text_thread *t = (text_thread *)context;
    ignis_sequence s = ignis_sequence_begin(t->model), fork;
    ignis_sampling_desc sampling = sampling_of(t->number);
    int32_t ids[64];
    int k;
    prompt_of(t->number, 20 + t->number, ids);
    CHECK_OK(ignis_sequence_feed(s, ids, 20 + t->number));
    for (k = 0; k < THREAD_DRAWN; k++) {
        t->drawn[k] = ignis_sequence_next(s, &sampling);
        if (t->shared.id)
            CHECK(ignis_sequence_next(t->shared, NULL) >= 0);
    }
    fork = ignis_sequence_fork(s);
    CHECK_OK(ignis_sequence_free(s));
    CHECK_OK(ignis_sequence_free(fork));
    return NULL;
}

TEST(threads_draw_side_by_side)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    text_thread of[THREADS], alone;
    int32_t ids[4], all[64], one[64];
    ignis_sequence shared, other;
    test_model t;
    int i;
    SETUP(NULL);
    test_model_begin(&t, &small, 64, 2 * THREADS + 2);
    shared = ignis_sequence_begin(t.handle);
    prompt_of(9, 4, ids);
    CHECK_OK(ignis_sequence_feed(shared, ids, 4));
    memset(of, 0, sizeof of);
    for (i = 0; i < THREADS; i++) {
        of[i].model = t.handle;
        of[i].shared = shared;
        of[i].number = i;
        CHECK_INT(pthread_create(&threads[i], NULL, text_run, &of[i]), 0);
    }
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < THREADS; i++) {
        memset(&alone, 0, sizeof alone);
        alone.model = t.handle;
        alone.number = i;
        text_run(&alone);
        CHECK(memcmp(alone.drawn, of[i].drawn, sizeof alone.drawn) == 0);
    }
    other = ignis_sequence_begin(t.handle); /* what two threads have drawn in turns is what one draws */
    CHECK_OK(ignis_sequence_feed(other, ids, 4));
    for (i = 0; i < THREAD_DRAWN * THREADS; i++)
        CHECK(ignis_sequence_next(other, NULL) >= 0);
    CHECK_INT(ignis_sequence_ids(shared, all, 64), 4 + THREAD_DRAWN * THREADS);
    CHECK_INT(ignis_sequence_ids(other, one, 64), 4 + THREAD_DRAWN * THREADS);
    CHECK(memcmp(all, one, sizeof *all * (4 + THREAD_DRAWN * THREADS)) == 0);
    CHECK_OK(ignis_sequence_free(shared));
    CHECK_OK(ignis_sequence_free(other));
    test_model_end(&t);
}

/*  A prompt at once, in pieces of more than 64 tokens, and in smaller ones: the same bits where it is promised, the
    same numbers everywhere. */
static void check_long_prompt(const test_shape *shape, int ways, double tolerance)
{
    enum { LENGTH = 540, WAYS = 3 }; /* two chunks */
    static const int pieces[WAYS][9] = {{540}, {410, 130}, {60, 60, 60, 60, 60, 60, 60, 60, 60}};
    int32_t ids[LENGTH];
    float logits[WAYS][128], again[128];
    ignis_sequence s;
    test_model t;
    int i, k, at, far = 0;
    test_model_begin(&t, shape, LENGTH, WAYS);
    prompt_of(3, LENGTH, ids);
    for (i = 0; i < ways; i++) {
        s = ignis_sequence_begin(t.handle);
        for (at = k = 0; at < LENGTH; at += pieces[i][k++])
            CHECK_OK(ignis_sequence_feed(s, ids + at, pieces[i][k]));
        CHECK_OK(ignis_sequence_logits(s, logits[i], shape->vocab));
        CHECK_OK(ignis_sequence_free(s));
    }
    for (k = 0; k < shape->vocab; k++)
        for (i = 1; i < ways; i++)
            far += fabs((double)logits[i][k] - (double)logits[0][k]) > tolerance;
    CHECK_INT(far, 0);
    if (ways == WAYS) {
        /* the last 43 tokens in three ways: a piece's last token is computed with the next one */
        for (i = 0; i < 3; i++) {
            s = ignis_sequence_begin(t.handle);
            CHECK_OK(ignis_sequence_feed(s, ids, 257));
            CHECK_OK(ignis_sequence_feed(s, ids + 257, i == 0 ? 43 : 20));
            if (i == 2)
                CHECK_OK(ignis_sequence_truncate(s, 257));
            if (i > 0)
                CHECK_OK(ignis_sequence_feed(s, ids + ignis_sequence_length(s), 300 - ignis_sequence_length(s)));
            CHECK_OK(ignis_sequence_logits(s, i ? again : logits[1], shape->vocab));
            CHECK(i == 0 || memcmp(logits[1], again, sizeof again[0] * (size_t)shape->vocab) == 0);
            if (i < 2)
                CHECK_OK(ignis_sequence_free(s));
        }
        CHECK_OK(ignis_sequence_free(s));
    }
    if (shape->dtype == IGNIS_F32)
        check_forward(&t, ids, LENGTH, logits[0], tolerance);
    test_model_end(&t);
}

TEST(long_prompts)
{
    static const test_shape gated = {2, 1, 1, 8, 16, 16, 120, false, false, true, IGNIS_F32};
    static const test_shape gpt2 = {1, 1, 1, 8, 16, 24, 120, true, true, false, IGNIS_F32};
    static const test_shape half = {1, 1, 1, 8, 16, 16, 120, false, true, false, IGNIS_BF16};
    SETUP(NULL);
    check_long_prompt(&gated, 3, 2e-5);
    check_long_prompt(&gpt2, 1, 2e-5);
    check_long_prompt(&half, 2, 8e-2);
}

/*  Logits behind a sequence's tokens. */
static void logits_of(ignis_sequence s, float *logits, int vocab)
{
    memset(logits, 0, sizeof *logits * (size_t)vocab);
    CHECK_OK(ignis_sequence_logits(s, logits, vocab));
}

/*  What comes behind many tokens has the same bits whenever it is asked for: at once, in a fork, behind a truncation to
    their end or into the midst of them, in a step with other sequences. */
static void check_behind_many(const test_shape *shape)
{
    enum { PROMPT = 97, MORE = 70, CUT = 80, ALL = 5, DRAWN = 4, VOCAB = 128 };
    const ignis_sampling_desc greedy = {0};
    ignis_sampling_desc sampling[ALL];
    int32_t ids[PROMPT + DRAWN + MORE], drawn[ALL], alone[ALL][DRAWN];
    float first[VOCAB], again[VOCAB], cut[VOCAB];
    ignis_sequence s, fork, all[ALL];
    test_model t;
    int i, k, round;
    test_model_begin(&t, shape, 256, 2 * ALL);
    prompt_of(7, PROMPT + DRAWN + MORE, ids);

    s = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_feed(s, ids, CUT));
    logits_of(s, cut, shape->vocab);
    CHECK_OK(ignis_sequence_free(s));

    s = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_feed(s, ids, PROMPT));
    fork = ignis_sequence_fork(s);
    logits_of(s, first, shape->vocab);
    if (shape->dtype == IGNIS_F32)
        check_forward(&t, ids, PROMPT, first, 2e-5);
    for (i = 0; i < DRAWN; i++)
        CHECK(ignis_sequence_next(s, NULL) >= 0);
    CHECK_OK(ignis_sequence_truncate(s, PROMPT));
    logits_of(s, again, shape->vocab);
    CHECK(memcmp(first, again, sizeof first[0] * (size_t)shape->vocab) == 0);
    for (i = 0; i < DRAWN; i++)
        CHECK(ignis_sequence_next(s, NULL) >= 0);
    CHECK_OK(ignis_sequence_feed(s, ids + PROMPT + DRAWN, MORE)); /* what was kept is of these then */
    logits_of(s, again, shape->vocab);
    CHECK(memcmp(first, again, sizeof first[0] * (size_t)shape->vocab) != 0);
    CHECK_OK(ignis_sequence_truncate(s, PROMPT));
    logits_of(s, again, shape->vocab);
    CHECK(memcmp(first, again, sizeof first[0] * (size_t)shape->vocab) == 0);
    CHECK_OK(ignis_sequence_truncate(s, CUT));
    logits_of(s, again, shape->vocab);
    CHECK(memcmp(cut, again, sizeof cut[0] * (size_t)shape->vocab) == 0);
    CHECK_OK(ignis_sequence_free(s));
    logits_of(fork, again, shape->vocab);
    CHECK(memcmp(first, again, sizeof first[0] * (size_t)shape->vocab) == 0);
    CHECK_OK(ignis_sequence_free(fork));

    /* sequences behind many tokens and behind few in one step, drawn from in ways of their own, in pages that two have
       */
    for (round = 0; round < 2; round++) {
        for (i = 0; i < ALL; i++) {
            sampling[i] = greedy;
            sampling[i].temperature = i % 2 ? 0.9 : 0;
            sampling[i].seed = 5 + (uint64_t)i;
            all[i] = i == 4 ? ignis_sequence_fork(all[1]) : ignis_sequence_begin(t.handle);
            if (i < 4)
                CHECK_OK(ignis_sequence_feed(all[i], ids + i, i % 2 ? PROMPT : 9 + i));
        }
        if (round == 0) {
            for (i = 0; i < ALL; i++)
                for (k = 0; k < DRAWN; k++)
                    alone[i][k] = ignis_sequence_next(all[i], &sampling[i]);
        } else {
            for (k = 0; k < DRAWN; k++) {
                CHECK_OK(ignis_sequence_next_all(all, ALL, sampling, drawn));
                for (i = 0; i < ALL; i++)
                    CHECK_INT(drawn[i], alone[i][k]);
            }
        }
        for (i = 0; i < ALL; i++)
            CHECK_OK(ignis_sequence_free(all[i]));
    }
    test_model_end(&t);
}

TEST(what_comes_behind_many_tokens)
{
    static const test_shape gated = {2, 2, 1, 8, 16, 16, 120, false, false, true, IGNIS_F32};
    static const test_shape uneven = {2,   1,     1,     8,     18,       18,
                                      120, false, false, false, IGNIS_F32}; /* rows of no whole packs */
    static const test_shape half = {1, 1, 1, 8, 16, 16, 120, false, true, false, IGNIS_BF16};
    SETUP(NULL);
    check_behind_many(&gated);
    check_behind_many(&uneven);
    check_behind_many(&half);
}

/* failures ------------------------------------------------------------------------------------------------------- */

/*  A text in steps, of which one fails while calls of a name do (null: allocations on the host). What failed is done
    again, and the text is the same.
    It begins with more than 64 tokens, and has few more at once later. */
enum { FAULT_FED = 70, FAULT_DRAWN = 6 };

static bool fault_step(int step, const test_model *t, ignis_sequence *s, const ignis_sampling_desc *sampling,
                       int32_t *drawn)
{
    int32_t ids[FAULT_FED];
    if (step == 0)
        return (s[0] = ignis_sequence_begin(t->handle)).id != 0;
    if (step == 1) {
        prompt_of(2, FAULT_FED, ids);
        return ignis_sequence_feed(s[0], ids, FAULT_FED) == IGNIS_OK;
    }
    if (step < 5)
        return (drawn[step - 2] = ignis_sequence_next(s[0], sampling)) >= 0;
    if (step == 5)
        return (s[1] = ignis_sequence_fork(s[0])).id != 0;
    if (step < 8) {
        int32_t both[2];
        ignis_sampling_desc how[2];
        how[0] = how[1] = *sampling;
        if (ignis_sequence_next_all(s, 2, how, both) != IGNIS_OK)
            return false;
        CHECK_INT(both[0], both[1]);
        drawn[step - 3] = both[0];
        return true;
    }
    if (step == 8) {
        float logits[260];
        return ignis_sequence_logits(s[0], logits, COUNT_OF(logits)) == IGNIS_OK;
    }
    return step == 9 ? ignis_sequence_text(s[0], "Hallo", 5) == IGNIS_OK : ignis_generate(s[0], NULL) == IGNIS_OK;
}

static void check_faults(const char *prefix, int stride)
{
    static host_counter counter;
    static const test_shape shape = {1, 2, 1, 8, 16, 16, 260, false, false, false, IGNIS_F32};
    ignis_desc desc = test_counting_desc(&counter);
    int32_t expected[FAULT_DRAWN], drawn[FAULT_DRAWN];
    int at, step, failures = 0;
    bool reached = true;
    SETUP(&desc);
    write_tokenizer(test_folder);
    memset(drawn, 0, sizeof drawn);
    for (at = 0; at < 3000 && reached; at += at ? stride : 1) {
        ignis_sampling_desc sampling = sampling_of(2);
        ignis_sequence s[2] = {{0}, {0}};
        ignis_sequence_info info;
        test_model t;
        test_model_begin(&t, &shape, 84, 2);
        t.model->path = ignis__copy_string(test_folder);
        reached = at == 0; /* the first time nothing fails */
        if (at)
            fault_plan(prefix, at, 2, &counter, false);
        for (step = 0; step < 11; step++) {
            if (fault_step(step, &t, s, &sampling, drawn))
                continue;
            CHECK(ignis_status_last() != IGNIS_OK);
            ignis_status_clear();
            failures++;
            reached = fault_over(&counter);
            CHECK(reached && fault_step(step, &t, s, &sampling, drawn));
        }
        reached = fault_over(&counter) || reached; /* Ignis can do without some allocations */
        if (!at)
            memcpy(expected, drawn, sizeof drawn);
        CHECK(memcmp(expected, drawn, sizeof drawn) == 0);
        CHECK_OK(ignis_sequence_query(s[1], &info));
        CHECK_INT(info.length, FAULT_FED + 5);
        CHECK_OK(ignis_sequence_free(s[0]));
        CHECK_OK(ignis_sequence_free(s[1]));
        s[0] = ignis_sequence_begin(t.handle);
        CHECK_OK(ignis_sequence_query(s[0], &info)); /* no page is lost */
        CHECK_INT(info.free_tokens, 2 * 6 * 16);
        CHECK_OK(ignis_sequence_free(s[0]));
        test_model_end(&t);
    }
    CHECK(failures > 0 && at < 3000);
}

/*  A text is fed as it is, or not at all. */
TEST(a_text_for_which_memory_runs_out)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    bool reached = true;
    int at, failures = 0;
    int32_t ids[8];
    test_model t;
    SETUP(&desc);
    write_tokenizer(test_folder);
    chain_begin(&t, "abcdefz");
    for (at = 1; at < 200 && reached; at++) {
        ignis_sequence s = ignis_sequence_begin(t.handle);
        ignis_status status;
        CHECK(ignis_model_tokenizer(t.handle).id != 0);
        fault_plan(NULL, at, 2, &counter, false);
        status = ignis_sequence_text(s, "abc", 3);
        reached = fault_over(&counter);
        failures += status != IGNIS_OK;
        ignis_status_clear();
        CHECK_INT(ignis_sequence_ids(s, ids, 8), status == IGNIS_OK ? 3 : 0);
        CHECK(status != IGNIS_OK || (ids[0] == 'a' && ids[1] == 'b' && ids[2] == 'c'));
        CHECK_OK(ignis_sequence_free(s));
    }
    CHECK(failures > 1 && at < 200);
    test_model_end(&t);
}

/*  A grammar is taken, and a token drawn by it, or nothing has changed. */
TEST(a_grammar_for_which_memory_runs_out)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    bool reached = true;
    int at, failures = 0, step;
    SETUP(&desc);
    write_tokenizer(test_folder);
    for (at = 1; at < 600 && reached; at += 1 + at / 20) {
        ignis_sequence s;
        test_model t;
        chain_begin(&t, "abcdefz");
        s = ignis_sequence_begin(t.handle);
        CHECK_OK(ignis_sequence_text(s, "a", 1));
        fault_plan(NULL, at, 2, &counter, false);
        for (step = 0, reached = false; step < 3 && failures < 2000; step++) {
            bool ok = step == 0   ? ignis_sequence_grammar(s, form) == IGNIS_OK
                      : step == 1 ? ignis_sequence_grammar(s, "root ::= [a-c]* \"d\" | \"e\" root") == IGNIS_OK
                                  : ignis_sequence_next(s, NULL) == 'b';
            if (ok)
                continue;
            CHECK_INT(ignis_status_last(), IGNIS_ERROR_MEMORY);
            ignis_status_clear();
            failures++;
            reached = fault_over(&counter);
            step--;
        }
        reached = fault_over(&counter) || reached;
        CHECK_INT(ignis_sequence_length(s), 2);
        CHECK_OK(ignis_sequence_free(s));
        test_model_end(&t);
    }
    CHECK(failures > 20 && at < 600);
}

TEST(each_launch_fails_once) { check_faults("cuLaunchKernel", 31); }
TEST(each_graph_call_fails_once) { check_faults("cuGraphInst", 1); }
TEST(each_wait_fails_once) { check_faults("cuStreamSynchronize", 5); }
TEST(each_capture_fails_once) { check_faults("cuStreamBegin", 1); }
TEST(each_copy_fails_once) { check_faults("cuMemcpy", 1); }
TEST(each_host_allocation_fails_once) { check_faults(NULL, 37); }

int main(int argc, char **argv) { return test_run(argc, argv); }
