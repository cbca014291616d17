// SPDX-License-Identifier: MIT
/*  test_prefix.c - prompts that sequences share: what is found, the same bits as without, boundaries, adapters,
    windows, room in the cache, threads, failures */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "byte_tokenizer.h"

#include "generate.h"

enum { CONTEXT = 544, MOST = 131, SAMPLED = 3 };

static const test_shape tiny = {1, 2, 1, 8, 16, 16, 120, false, false, false, IGNIS_F32};

/*  A text: `common` tokens of all texts, then tokens of its own. */
static void text_of(int number, int common, int length, int32_t *ids)
{
    int i;
    for (i = 0; i < length; i++)
        ids[i] = id_at(i < common ? i : number * 1000 + i, 77);
}

static ignis_prefix_info prefixes(const test_model *t)
{
    ignis_prefix_info info;
    CHECK_OK(ignis_model_prefixes(t->handle, &info));
    return info;
}

static int free_tokens(ignis_sequence s)
{
    ignis_sequence_info info;
    CHECK_OK(ignis_sequence_query(s, &info));
    return info.free_tokens;
}

static ignis_sequence sharing(const test_model *t, uint64_t boundary)
{
    const ignis_prefix_desc desc = {boundary};
    ignis_sequence s = ignis_sequence_begin(t->handle);
    CHECK_OK(ignis_sequence_share_prefix(s, &desc));
    return s;
}

/*  What follows a text: logits, then sampled tokens and the logits after them. */
typedef struct outcome {
    float logits[2][MOST];
    int32_t ids[SAMPLED];
} outcome;

static outcome outcome_of(ignis_sequence s, int vocab)
{
    ignis_sampling_desc how;
    outcome o;
    int i;
    memset(&o, 0, sizeof o);
    memset(&how, 0, sizeof how);
    how.temperature = 1;
    how.seed = 3;
    CHECK_OK(ignis_sequence_logits(s, o.logits[0], vocab));
    for (i = 0; i < SAMPLED; i++)
        o.ids[i] = ignis_sequence_next(s, &how);
    CHECK_OK(ignis_sequence_logits(s, o.logits[1], vocab));
    return o;
}

/*  Feeds a text to `s`, which has the first `before` tokens of it from one call, and to a sequence of its own; both go
    on with the same bits. */
static void check_text(const test_model *t, ignis_sequence s, const int32_t *ids, int before, int count, int line)
{
    ignis_sequence alone = ignis_sequence_begin(t->handle);
    outcome o[2];
    CHECK_INT(ignis_sequence_length(s), before);
    CHECK_OK(ignis_sequence_feed(alone, ids, before));
    ids += before;
    CHECK_OK(ignis_sequence_feed(alone, ids, count));
    o[0] = outcome_of(alone, t->shape.vocab);
    CHECK_OK(ignis_sequence_free(alone));
    CHECK_OK(ignis_sequence_feed(s, ids, count));
    o[1] = outcome_of(s, t->shape.vocab);
    if (memcmp(&o[0], &o[1], sizeof o[0]) != 0)
        test__fail(__FILE__, line, "what follows differs from the same text without kept pages");
}
#define SAME_TEXT(t, s, ids, count) check_text(t, s, ids, 0, count, __LINE__)
#define SAME_TEXT_AFTER(t, s, ids, before, count) check_text(t, s, ids, before, count, __LINE__)

typedef struct found_case {
    int first, common, second, found; /* tokens of two texts, and what the second one takes from the first */
} found_case;

static const found_case cases[] = {
    {70, 70, 70, 64},                   /* of a chunk all but the page of the last token */
    {80, 80, 80, 64},                   /* a full page, but the last token is computed */
    {81, 81, 81, 80}, {64, 64, 64, 48}, /* not a chunk: the last token waits for the next step */
    {65, 40, 90, 32}, {40, 40, 100, 0}, /* not computed in a chunk: the second text would be */
    {100, 90, 40, 0}, {17, 17, 17, 16}, {16, 16, 16, 0},
    {1, 1, 1, 0},     {33, 0, 33, 0},   {530, 525, 530, 512}, /* the chunk of the first, and not the 18 after it */
};

TEST(the_second_text_takes_what_the_first_computed)
{
    static const test_shape models[] = {{1, 2, 1, 8, 16, 16, 120, false, false, false, IGNIS_F32},
                                        {1, 1, 1, 8, 16, 24, 120, true, true, false, IGNIS_BF16}};
    int32_t ids[CONTEXT];
    int m, i;
    SETUP(NULL);
    for (m = 0; m < COUNT_OF(models); m++)
        for (i = 0; i < (m == 0 ? COUNT_OF(cases) : 2); i++) {
            const found_case *c = &cases[i];
            ignis_prefix_info info;
            ignis_sequence s;
            test_model t;
            test_model_begin(&t, &models[m], CONTEXT, 3);
            info = prefixes(&t); /* without a sequence */
            CHECK_INT(info.tokens + info.fed + info.found + info.dropped, 0);
            s = sharing(&t, 0);
            text_of(1, c->common, c->first, ids);
            SAME_TEXT(&t, s, ids, c->first);
            CHECK_OK(ignis_sequence_free(s));
            s = sharing(&t, 0);
            CHECK_INT(free_tokens(s), 3 * CONTEXT);
            info = prefixes(&t);
            CHECK_INT(info.found, 0);
            CHECK_INT(info.tokens, (c->first - (c->first % 512 <= 64)) / 16 * 16);
            text_of(2, c->common, c->second, ids);
            SAME_TEXT(&t, s, ids, c->second);
            info = prefixes(&t);
            CHECK_INT(info.fed, c->first + c->second);
            CHECK_INT(info.found, c->found);
            CHECK_OK(ignis_model_drop_prefixes(t.handle));
            CHECK_INT(prefixes(&t).tokens, 0);
            CHECK_OK(ignis_sequence_free(s));
            s = sharing(&t, 0);
            CHECK_INT(free_tokens(s), 3 * CONTEXT);
            CHECK_OK(ignis_sequence_free(s));
            test_model_end(&t);
        }
    CHECK_INT(memory().live_bytes, 0);
}

/*  A talk goes on: the sequence is set to more and more tokens, truncated, forked, fed after sampled tokens. */
TEST(texts_that_grow)
{
    int32_t ids[CONTEXT], kept[CONTEXT];
    ignis_sequence s, fork;
    test_model t;
    int length, count;
    SETUP(NULL);
    test_model_begin(&t, &tiny, 320, 4);
    text_of(1, 0, 300, ids);
    for (length = 75; length <= 300; length += 75) { /* each in one piece, by a sequence of its own */
        s = sharing(&t, 5);
        SAME_TEXT(&t, s, ids, length);
        fork = ignis_sequence_fork(s);
        CHECK_OK(ignis_sequence_free(s));
        CHECK_OK(ignis_sequence_truncate(fork, 70)); /* into a kept page, which it then writes to */
        text_of(2, 0, 100, kept);
        CHECK_OK(ignis_sequence_feed(fork, kept, 100));
        CHECK_OK(ignis_sequence_free(fork));
    }
    CHECK_INT(prefixes(&t).found, 64 + 144 + 224);
    s = sharing(&t, 5); /* after a token that waits to be computed */
    CHECK_OK(ignis_sequence_feed(s, ids, 10));
    SAME_TEXT_AFTER(&t, s, ids, 10, 150);
    CHECK_OK(ignis_sequence_set(s, ids, 280));
    CHECK_OK(ignis_sequence_truncate(s, 0));
    SAME_TEXT(&t, s, ids, 290);
    count = ignis_sequence_ids(s, kept, CONTEXT);
    CHECK(count == 290 + SAMPLED && memcmp(kept, ids, 290 * sizeof *ids) == 0);
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&t);
}

/*  Two sequences compute the same page at once; later one page is enough. */
TEST(equal_pages_become_one)
{
    int32_t ids[CONTEXT];
    ignis_sequence s[2];
    test_model t;
    int before;
    SETUP(NULL);
    test_model_begin(&t, &tiny, 160, 2);
    text_of(1, 0, 150, ids);
    s[0] = sharing(&t, 0);
    s[1] = ignis_sequence_begin(t.handle);
    before = free_tokens(s[0]);
    CHECK_OK(ignis_sequence_feed(s[0], ids, 70));
    CHECK_OK(ignis_sequence_free(s[1]));
    s[1] = sharing(&t, 1); /* nothing of it is known there */
    CHECK_OK(ignis_sequence_feed(s[1], ids, 150));
    CHECK_INT(prefixes(&t).found, 0);
    CHECK_INT(free_tokens(s[0]), before - 80 - 160);
    CHECK_OK(ignis_sequence_free(s[1]));
    s[1] = sharing(&t, 0);
    CHECK_OK(ignis_sequence_feed(s[1], ids, 66)); /* is computed from its 65th token on */
    CHECK_INT(free_tokens(s[0]), before - 80 - 16);
    CHECK_OK(ignis_sequence_feed(s[1], ids + 66, 84)); /* with the page of the first one in place of its own */
    CHECK_OK(ignis_sequence_feed(s[0], ids + 70, 80));
    CHECK_INT(free_tokens(s[0]), before - 160 - 16); /* nine of ten pages */
    CHECK_OK(ignis_sequence_free(s[0]));
    CHECK_OK(ignis_sequence_free(s[1]));
    test_model_end(&t);
}

static ignis_lora adapters(ignis_model model)
{
    static const char *const targets[] = {"v_proj"};
    ignis_lora_desc desc;
    ignis_lora lora;
    ignis_tensor tensors[32];
    int count, i;
    memset(&desc, 0, sizeof desc);
    desc.targets = targets;
    desc.target_count = 1;
    lora = ignis_lora_create(model, &desc);
    count = ignis_lora_weights(lora, tensors, 32);
    CHECK(count > 0 && count <= 32);
    for (i = 0; i < count; i++)
        CHECK_OK(ignis_array_fill(ignis_tensor_data(tensors[i]), 0.05));
    return lora;
}

TEST(nothing_crosses_a_boundary)
{
    int32_t ids[100];
    ignis_sequence s;
    ignis_lora lora;
    test_model t;
    int i;
    SETUP(NULL);
    test_model_begin(&t, &tiny, 112, 5);
    t.model->parallel.size = 1;
    text_of(1, 0, 100, ids);
    lora = adapters(t.handle);
    for (i = 0; i < 8; i++) { /* none, boundary 1, adapters, both; then each again */
        s = sharing(&t, (uint64_t)(i % 2));
        if (i % 4 >= 2)
            CHECK_OK(ignis_sequence_set_lora(s, lora));
        CHECK_OK(ignis_sequence_feed(s, ids, 100));
        CHECK_INT(prefixes(&t).found, i < 4 ? 0 : (i - 3) * 96);
        CHECK_OK(ignis_sequence_free(s));
    }
    CHECK_OK(ignis_lora_free(lora));
    s = sharing(&t, 2);
    SAME_TEXT(&t, s, ids, 100);
    CHECK_OK(ignis_sequence_free(s));
    s = ignis_sequence_begin(t.handle); /* shares nothing */
    CHECK_OK(ignis_sequence_feed(s, ids, 100));
    CHECK_INT(prefixes(&t).found, 4 * 96);
    CHECK_INT(prefixes(&t).fed, 9 * 100);
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&t);
}

/*  Kept pages make room: those used longest ago first, and none that a sequence has. */
TEST(kept_pages_make_room)
{
    enum { TEXT = 80, PAGES = 12 };
    int32_t ids[5][96], one[2];
    ignis_sequence s, other;
    test_model t;
    int i;
    SETUP(NULL);
    test_model_begin(&t, &tiny, 96, 2);
    for (i = 0; i < 5; i++)
        text_of(i, 16, 96, ids[i]); /* one page of all */
    for (i = 0; i < 4; i++) {       /* 1 + 4 * 4 pages, of which the 12 have room for the latest */
        s = sharing(&t, 9);
        CHECK_OK(ignis_sequence_feed(s, ids[i], TEXT));
        CHECK_OK(ignis_sequence_free(s));
    }
    CHECK(prefixes(&t).dropped >= 5 * 16 && prefixes(&t).tokens <= PAGES * 16);
    for (i = 3; i >= 0; i--) { /* the latest ones are there, the oldest is not */
        const int64_t before = prefixes(&t).found;
        int64_t found;
        if (i == 1)
            continue;
        s = sharing(&t, 9);
        CHECK_OK(ignis_sequence_feed(s, ids[i], TEXT));
        found = prefixes(&t).found - before;
        CHECK_INT(found, i >= 2 ? 64 : 16);
        CHECK_OK(ignis_sequence_free(s));
    }
    /* pages that sequences have stay theirs, and the cache is full when they have all */
    s = sharing(&t, 9);
    CHECK_INT(free_tokens(s), PAGES * 16);
    CHECK_OK(ignis_sequence_feed(s, ids[3], 96));
    other = sharing(&t, 9);
    CHECK_OK(ignis_sequence_feed(other, ids[4], 96));
    CHECK_INT(free_tokens(s), 16); /* they have a page together */
    CHECK_OK(ignis_sequence_truncate(other, 95));
    CHECK_OK(ignis_sequence_truncate(other, 0));
    SAME_TEXT(&t, other, ids[4], 20);
    CHECK_OK(ignis_sequence_free(other));
    other = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_feed(other, ids[4], 90));
    CHECK_INT(free_tokens(s), 0);
    one[0] = 1;
    CHECK_OK(ignis_sequence_truncate(s, 60)); /* into a page that is its own and kept: no copy of it has room */
    CHECK_OK(ignis_sequence_feed(s, one, 1));
    CHECK_OK(ignis_sequence_feed(s, ids[4], 35));
    CHECK_STATUS(ignis_sequence_feed(s, one, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CONTEXT_FULL);
    CHECK_OK(ignis_sequence_free(s));
    s = sharing(&t, 9);
    CHECK_INT(free_tokens(s), (PAGES - 6) * 16);
    CHECK_OK(ignis_sequence_free(other));
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&t);
}

/*  Layers with a window keep pages of their own; a text is found as far as its window is there. */
TEST(windows_are_found_with_their_pages)
{
    static const test_shape shape = {2, 2, 1, 8, 16, 16, 120, false, false, false, IGNIS_F32};
    static const int windows[][2] = {{5, 0}, {20, 70}};
    int32_t ids[CONTEXT];
    int w, i;
    SETUP(NULL);
    for (w = 0; w < COUNT_OF(windows); w++) {
        test_model t;
        test_model_begin(&t, &shape, 304, 3);
        t.model->layer[0].window = windows[w][0];
        t.model->layer[1].window = windows[w][1];
        for (i = 0; i < 3; i++) { /* from the beginning on, then from the midst of the first text */
            static const int common[] = {0, 285, 150};
            ignis_sequence s = sharing(&t, 0);
            const int64_t before = prefixes(&t).found;
            text_of(i, common[i], 290, ids);
            SAME_TEXT(&t, s, ids, 290);
            CHECK_INT(prefixes(&t).found - before, i == 0 ? 0 : i == 1 ? 256 : 128);
            CHECK_OK(ignis_sequence_truncate(s, 0));
            CHECK_OK(ignis_sequence_feed(s, ids, 20)); /* no page is full in the way that the next one needs */
            SAME_TEXT_AFTER(&t, s, ids, 20, 70);
            CHECK_OK(ignis_sequence_free(s));
        }
        test_model_end(&t);
    }
    CHECK_INT(memory().live_bytes, 0);
}

TEST(what_is_refused)
{
    const ignis_model no_model = {0};
    const ignis_sequence none = {0};
    ignis_prefix_info info;
    int32_t ids[4] = {1, 2, 3, 4};
    ignis_sequence s;
    test_model t;
    SETUP(NULL);
    test_model_begin(&t, &tiny, 32, 1);
    CHECK_STATUS(ignis_sequence_share_prefix(none, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK_STATUS(ignis_model_prefixes(no_model, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_STATUS(ignis_model_drop_prefixes(no_model), IGNIS_ERROR_FREED, IGNIS_DIAG_MODEL_FREED);
    CHECK_STATUS(ignis_model_prefixes(t.handle, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_model_drop_prefixes(t.handle)); /* nothing is kept */
    s = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_feed(s, ids, 4));
    CHECK_STATUS(ignis_sequence_share_prefix(s, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_MESSAGE_HAS("the sequence has 4 tokens");
    CHECK_OK(ignis_sequence_truncate(s, 0));
    CHECK_OK(ignis_sequence_share_prefix(s, NULL));
    CHECK_OK(ignis_graph_begin());
    CHECK_STATUS(ignis_sequence_share_prefix(s, NULL), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_model_prefixes(t.handle, &info));
    CHECK_OK(ignis_graph_free(ignis_graph_end()));
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&t);
}

/*  Threads feed texts that begin alike, with pages for fewer than all of them. */
enum { THREADS = 3, TEXTS = 4, ROUNDS = 6 };

static struct {
    test_model t;
    int32_t ids[TEXTS][90];
    float logits[TEXTS][MOST];
} shared;

static void *feed_texts(void *which)
{
    const int first = *(const int *)which;
    int i;
    for (i = 0; i < ROUNDS; i++) {
        const int text = (first + i) % TEXTS;
        float logits[MOST] = {0};
        ignis_sequence s = sharing(&shared.t, 0);
        CHECK_OK(ignis_sequence_feed(s, shared.ids[text], 90));
        CHECK_OK(ignis_sequence_logits(s, logits, tiny.vocab));
        CHECK(memcmp(logits, shared.logits[text], sizeof logits) == 0);
        CHECK_OK(ignis_sequence_free(s));
        if (i == 2)
            CHECK_OK(ignis_model_drop_prefixes(shared.t.handle));
        (void)prefixes(&shared.t);
    }
    return NULL;
}

TEST(threads_share)
{
    pthread_t threads[THREADS];
    int numbers[THREADS], i;
    SETUP(NULL);
    test_model_begin(&shared.t, &tiny, 96, THREADS);
    for (i = 0; i < TEXTS; i++) {
        ignis_sequence s = ignis_sequence_begin(shared.t.handle);
        text_of(i, 20 * i, 90, shared.ids[i]);
        memset(shared.logits[i], 0, sizeof shared.logits[i]);
        CHECK_OK(ignis_sequence_feed(s, shared.ids[i], 90));
        CHECK_OK(ignis_sequence_logits(s, shared.logits[i], tiny.vocab));
        CHECK_OK(ignis_sequence_free(s));
    }
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK_INT(pthread_create(&threads[i], NULL, feed_texts, &numbers[i]), 0);
    }
    for (i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    test_model_end(&shared.t);
}

/*  One call fails (prefix: its name; NULL: an allocation on the host); done again, everything is as without. */
static void check_faults(const char *prefix, int stride)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    int32_t ids[2][90];
    float expected[MOST], logits[MOST];
    int at, step, failures = 0;
    bool reached = true;
    SETUP(&desc);
    text_of(1, 70, 90, ids[0]);
    text_of(2, 70, 90, ids[1]);
    for (at = 0; at < 2000 && reached; at += at ? stride : 1) {
        ignis_sequence s = {0};
        test_model t;
        test_model_begin(&t, &tiny, 96, 2);
        reached = at == 0;
        if (at)
            fault_plan(prefix, at, 2, &counter, false);
        for (step = 0; step < 8; step++) {
            bool ok;
            memset(logits, 0, sizeof logits);
            switch (step % 4) {
            case 0: ok = s.id || (s = ignis_sequence_begin(t.handle)).id; break;
            case 1: ok = ignis_sequence_share_prefix(s, NULL) == IGNIS_OK; break;
            case 2: ok = ignis_sequence_feed(s, ids[step / 4], 90) == IGNIS_OK; break;
            default: ok = ignis_sequence_logits(s, logits, tiny.vocab) == IGNIS_OK; break;
            }
            if (!ok) {
                CHECK(ignis_status_last() != IGNIS_OK);
                ignis_status_clear();
                failures++;
                CHECK(fault_over(&counter));
                reached = true;
                step--;
                continue;
            }
            if (step == 3)
                CHECK_OK(ignis_sequence_free(s)), s.id = 0;
        }
        reached = fault_over(&counter) || reached;
        if (at == 0)
            memcpy(expected, logits, sizeof logits);
        CHECK(memcmp(expected, logits, sizeof logits) == 0);
        CHECK_OK(ignis_sequence_truncate(s, 0));
        CHECK_INT(free_tokens(s), 2 * 96);
        CHECK_OK(ignis_sequence_free(s));
        test_model_end(&t);
    }
    CHECK(failures > 0 && at < 2000);
}

TEST(each_launch_fails_once) { check_faults("cuLaunchKernel", 17); }
TEST(each_wait_fails_once) { check_faults("cuStreamSynchronize", 1); }
TEST(each_host_allocation_fails_once) { check_faults(NULL, 13); }

int main(int argc, char **argv) { return test_run(argc, argv); }
