// SPDX-License-Identifier: MIT
/*  test_speculate.c - drafts: the text of ignis_generate is the same bit for bit, whether guesses are right or wrong */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "byte_tokenizer.h"

#include "each_fails.h"
#include "generate.h"

enum { CONTEXT = 160, MOST = 131, TOKENS = 6 };

static const test_shape tiny = {1, 2, 1, 8, 16, 16, 120, false, false, false, IGNIS_F32};
static const test_shape bigger = {1, 2, 1, 8, 16, 24, 120, false, true, true, IGNIS_BF16};
static const test_shape learned = {1, 1, 1, 8, 16, 24, 120, true, true, false, IGNIS_F32};

/*  The tokens of a text, and logits after its last one. */
typedef struct outcome {
    int32_t ids[CONTEXT + 1];
    int length;
    double log_prob;
    float logits[MOST];
    ignis_ending ending;
} outcome;

static ignis_sampling_desc sampling_of(int number)
{
    ignis_sampling_desc d;
    memset(&d, 0, sizeof d);
    d.temperature = number % 3 ? 0.4 * number : 0;
    d.top_k = number % 3 == 2 ? 20 : 0;
    d.repetition_penalty = number % 5 == 3 ? 1.3 : 0;
    d.seed = (uint64_t)number;
    return d;
}

static ignis_generate_info info;

/*  Generates after a prompt of which a part comes again and again. */
static outcome generated(const test_model *t, int prompt, ignis_generate_desc desc)
{
    ignis_sequence s = ignis_sequence_begin(t->handle);
    ignis_sequence_info of;
    int32_t ids[CONTEXT];
    outcome o;
    int i;
    memset(&o, 0, sizeof o);
    for (i = 0; i < prompt; i++)
        ids[i] = id_at(i % 9, 77);
    desc.max_tokens = desc.max_tokens ? desc.max_tokens : TOKENS;
    desc.end_count = -1;
    desc.info = &info;
    CHECK_OK(ignis_sequence_feed(s, ids, prompt));
    CHECK_OK(ignis_generate(s, &desc));
    o.ending = info.ending;
    o.length = ignis_sequence_ids(s, o.ids, CONTEXT + 1);
    CHECK_INT(o.length, prompt + info.tokens);
    CHECK_OK(ignis_sequence_query(s, &of));
    CHECK_INT(of.free_tokens, of.free_tokens / 16 * 16);
    o.log_prob = of.log_prob;
    CHECK_OK(ignis_sequence_logits(s, o.logits, t->shape.vocab));
    CHECK_OK(ignis_sequence_free(s));
    return o;
}

static void check_same(const outcome *a, const outcome *b, int line)
{
    if (memcmp(a, b, sizeof *a) != 0)
        test__fail(__FILE__, line, "the text differs from that without drafts");
}
#define SAME(a, b) check_same(a, b, __LINE__)

TEST(the_text_is_the_same)
{
    static const test_shape *const models[] = {&tiny, &bigger, &learned};
    static const int prompts[] = {1, 20, 33, 70}, drafts[] = {1, 3, 7, 100};
    int m, i, accepted = 0, guessed = 0;
    SETUP(NULL);
    for (m = 0; m < COUNT_OF(models); m++) {
        test_model t, other;
        ignis_sequence by;
        test_model_begin(&t, models[m], CONTEXT, 3);
        test_model_begin(&other, &tiny, CONTEXT, 1);
        by = ignis_sequence_begin(other.handle);
        for (i = m; i < (m == 0 ? 4 : m + 1); i++) {
            ignis_generate_desc desc;
            outcome without, with;
            memset(&desc, 0, sizeof desc);
            desc.sampling = sampling_of(i);
            without = generated(&t, prompts[i], desc);
            CHECK(info.guessed == 0 && info.accepted == 0 && info.steps == info.tokens);
            desc.draft_tokens = drafts[(i + m) % 4];
            with = generated(&t, prompts[i], desc);
            SAME(&without, &with);
            CHECK_INT(info.steps + info.accepted, info.tokens);
            CHECK(info.accepted <= info.guessed);
            desc.draft = by; /* of the same weights if the model is the tiny one: then each guess is right */
            with = generated(&t, prompts[i], desc);
            SAME(&without, &with);
            CHECK_INT(info.steps + info.accepted, info.tokens);
            CHECK(m != 0 || info.accepted == info.guessed);
            accepted += info.accepted;
            guessed += info.guessed;
        }
        CHECK_OK(ignis_sequence_free(by));
        test_model_end(&other);
        test_model_end(&t);
    }
    CHECK(accepted > 0 && guessed > accepted);
    CHECK_INT(memory().live_bytes, 0);
}

/*  A model that repeats a text says it in few steps. */
TEST(repeated_text_takes_few_steps)
{
    ignis_generate_desc desc;
    ignis_sequence s;
    int32_t ids[64];
    test_model t;
    int i;
    SETUP(NULL);
    chain_begin(&t, "abcdefz");
    memset(&desc, 0, sizeof desc);
    desc.max_tokens = 40;
    desc.end_count = -1;
    desc.draft_tokens = 7;
    desc.info = &info;
    s = ignis_sequence_begin(t.handle);
    for (i = 0; i < 10; i++)
        ids[i] = i == 7 ? 256 : "abcdefz"[i % 8];
    ids[8] = 'a', ids[9] = 'b';
    CHECK_OK(ignis_sequence_feed(s, ids, 10));
    CHECK_OK(ignis_generate(s, &desc));
    CHECK_INT(info.tokens, 40);
    CHECK_INT(info.steps, 5); /* of 8 tokens each */
    CHECK_INT(info.accepted, 35);
    CHECK_INT(ignis_sequence_ids(s, ids, 64), 50);
    for (i = 0; i < 50; i++)
        CHECK_INT(ids[i], i % 8 == 7 ? 256 : "abcdefz"[i % 8]);
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&t);
}

static bool count_tokens(const char *text, size_t size, void *user_data)
{
    (void)text;
    return --*(int *)user_data > 0 && size > 0;
}

/*  A text that ends within the tokens of a step has no token after its end. */
TEST(ends_within_a_step)
{
    static const char *const stops[] = {"de"};
    int which;
    SETUP(NULL);
    write_tokenizer(test_folder);
    for (which = 0; which < 4; which++) {
        ignis_generate_desc desc;
        ignis_sequence_info of;
        ignis_sequence s;
        int32_t ids[64];
        int left = 3, i;
        test_model t;
        chain_begin(&t, "abcdefz");
        memset(&desc, 0, sizeof desc);
        desc.draft_tokens = 7;
        desc.info = &info;
        s = ignis_sequence_begin(t.handle);
        for (i = 0; i < 9; i++)
            ids[i] = i == 7 ? 256 : "abcdefza"[i % 8];
        ids[8] = 'a';
        CHECK_OK(ignis_sequence_feed(s, ids, 9));
        CHECK_OK(ignis_sequence_feed(s, ids + 1, 1)); /* ab: what follows is known */
        if (which == 0)
            desc.stops = stops, desc.stop_count = 1;
        if (which == 1)
            desc.text_fn = count_tokens, desc.user_data = &left;
        if (which == 2)
            desc.max_tokens = 3;
        CHECK_OK(ignis_generate(s, &desc));
        CHECK_INT(info.ending, which == 0   ? IGNIS_ENDING_STOP
                               : which == 1 ? IGNIS_ENDING_CALLER
                               : which == 2 ? IGNIS_ENDING_LENGTH
                                            : IGNIS_ENDING_TOKEN);
        CHECK_INT(info.tokens, which == 3 ? 6 : 3);
        CHECK_INT(info.steps, 1);
        CHECK_INT(ignis_sequence_length(s), 10 + info.tokens);
        CHECK_OK(ignis_sequence_query(s, &of));
        CHECK_INT(of.free_tokens, 2 * 64 - 16); /* no page of guesses stays */
        CHECK_INT(ignis_sequence_next(s, NULL), which == 3 ? 'a' : 'f');
        CHECK_OK(ignis_sequence_free(s));
        test_model_end(&t);
    }
}

/*  The context and the cache have less room than the draft has tokens. */
TEST(little_room)
{
    ignis_generate_desc desc;
    outcome without, with;
    ignis_sequence other;
    int32_t ids[CONTEXT];
    test_model t;
    SETUP(NULL);
    test_model_begin(&t, &tiny, CONTEXT, 1);
    memset(&desc, 0, sizeof desc);
    desc.max_tokens = 1000;
    without = generated(&t, CONTEXT - 20, desc);
    desc.draft_tokens = 7;
    with = generated(&t, CONTEXT - 20, desc);
    SAME(&without, &with);
    CHECK_INT(with.ending, IGNIS_ENDING_CONTEXT);
    other = ignis_sequence_begin(t.handle);
    prompt_of(1, CONTEXT, ids);
    CHECK_OK(ignis_sequence_feed(other, ids, CONTEXT - 40)); /* leaves 40 tokens: a page is full with the prompt */
    desc.max_tokens = 10;
    desc.draft_tokens = 0;
    without = generated(&t, 20, desc);
    desc.draft_tokens = 7;
    with = generated(&t, 20, desc);
    SAME(&without, &with);
    CHECK_OK(ignis_sequence_free(other));
    test_model_end(&t);
}

TEST(what_is_refused)
{
    static const test_shape shape = {1, 1, 1, 8, 16, 16, 99, false, false, false, IGNIS_F32};
    const int32_t id = 1;
    ignis_generate_desc desc;
    ignis_sequence s, other;
    test_model t, u;
    SETUP(NULL);
    test_model_begin(&t, &tiny, 32, 1);
    test_model_begin(&u, &shape, 32, 1);
    s = ignis_sequence_begin(t.handle);
    other = ignis_sequence_begin(u.handle);
    CHECK_OK(ignis_sequence_feed(s, &id, 1));
    memset(&desc, 0, sizeof desc);
    desc.draft_tokens = -1;
    CHECK_STATUS(ignis_generate(s, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("draft_tokens is -1");
    desc.draft_tokens = 4;
    desc.draft = s;
    CHECK_STATUS(ignis_generate(s, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.draft = other;
    CHECK_STATUS(ignis_generate(s, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_WRONG_MODEL);
    CHECK_MESSAGE_HAS("has 99 tokens, that of the sequence has 120");
    CHECK_OK(ignis_sequence_free(other));
    CHECK_STATUS(ignis_generate(s, &desc), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK_INT(ignis_sequence_length(s), 1);
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&t);
    test_model_end(&u);
}

/*  A call fails; generated again from there on, the text is that without drafts. */
static void generate_with_a_failure(attempt *a)
{
    static int32_t expected[64];
    int32_t ids[24], text[64];
    ignis_sequence s, by;
    ignis_sequence_info of;
    ignis_generate_desc desc;
    test_model t;
    int i;
    for (i = 0; i < 24; i++)
        ids[i] = id_at(i % 9, 77);
    test_model_begin(&t, &tiny, 64, 2);
    s = ignis_sequence_begin(t.handle);
    by = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_feed(s, ids, 24));
    memset(&desc, 0, sizeof desc);
    desc.sampling = sampling_of(1);
    desc.end_count = -1;
    desc.draft_tokens = 5;
    desc.draft = by;
    attempt_arm(a);
    for (i = 0; i < 3 && ignis_sequence_length(s) < 34; i++) {
        desc.max_tokens = 34 - ignis_sequence_length(s);
        if (ignis_generate(s, &desc) == IGNIS_OK)
            continue;
        attempt_failed(a);
        attempt_over(a);
    }
    attempt_over(a);
    memset(text, 0, sizeof text);
    CHECK_INT(ignis_sequence_ids(s, text, 64), 34);
    if (a->at == 0)
        memcpy(expected, text, sizeof text);
    CHECK(memcmp(expected, text, sizeof text) == 0);
    CHECK_OK(ignis_sequence_free(by));
    CHECK_OK(ignis_sequence_truncate(s, 0));
    CHECK_OK(ignis_sequence_query(s, &of));
    CHECK_INT(of.free_tokens, 2 * 64);
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&t);
}

TEST(each_launch_fails_once) { check_each_fails("cuLaunchKernel", 97, generate_with_a_failure); }
TEST(each_wait_fails_once) { check_each_fails("cuStreamSynchronize", 13, generate_with_a_failure); }
TEST(each_graph_call_fails_once) { check_each_fails("cuGraph", 5, generate_with_a_failure); }
TEST(each_host_allocation_fails_once) { check_each_fails(NULL, 61, generate_with_a_failure); }

int main(int argc, char **argv) { return test_run(argc, argv); }
