// SPDX-License-Identifier: MIT
/*  test_poll.c - texts that are polled: those of ignis_generate, bit for bit; nothing waits for the device */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "byte_tokenizer.h"

#include "each_fails.h"
#include "generate.h"
#include "polls.h"

enum { CONTEXT = 160, MOST = 131, TOKENS = 8, NOT_READY = 600 };

static const test_shape tiny = {1, 2, 1, 8, 16, 16, 120, false, false, false, IGNIS_F32};
static const test_shape bigger = {1, 2, 1, 8, 16, 24, 120, false, true, true, IGNIS_BF16};
static const test_shape windowed = {2, 2, 1, 8, 24, 40, 77, false, false, true, IGNIS_F32};

/*  The tokens of a text, and logits after its last one. */
typedef struct outcome {
    int32_t ids[CONTEXT + 1];
    int length, tokens, stop;
    double log_prob;
    float logits[MOST];
    ignis_ending ending;
} outcome;

static const ignis_logit_bias biases[] = {{3, -1e9f}, {5, 2}};

static ignis_sampling_desc sampling_of(int number)
{
    ignis_sampling_desc d;
    memset(&d, 0, sizeof d);
    d.temperature = number % 3 ? 0.4 * number : 0;
    d.top_k = number % 3 == 2 ? 20 : 0;
    d.repetition_penalty = number % 5 == 3 ? 1.3 : 0;
    d.seed = (uint64_t)number;
    d.biases = number == 4 ? biases : NULL;
    d.bias_count = number == 4 ? 2 : 0;
    return d;
}

static ignis_generate_desc text_of(int number, ignis_generate_info *info)
{
    ignis_generate_desc d;
    memset(&d, 0, sizeof d);
    d.sampling = sampling_of(number);
    d.max_tokens = TOKENS;
    d.end_count = -1;
    d.info = info;
    return d;
}

/*  Frees a sequence, and says what it was. */
static outcome outcome_of(const test_model *t, ignis_sequence s, const ignis_generate_info *info)
{
    ignis_sequence_info of;
    outcome o;
    memset(&o, 0, sizeof o);
    o.ending = info->ending;
    o.tokens = info->tokens;
    o.stop = info->stop;
    CHECK_INT(info->steps, info->tokens);
    o.length = ignis_sequence_ids(s, o.ids, CONTEXT + 1);
    CHECK_OK(ignis_sequence_query(s, &of));
    o.log_prob = of.log_prob;
    CHECK_OK(ignis_sequence_logits(s, o.logits, t->shape.vocab));
    CHECK_OK(ignis_sequence_free(s));
    return o;
}

static outcome generated(const test_model *t, int prompt, int number)
{
    ignis_generate_info info;
    ignis_generate_desc desc = text_of(number, &info);
    ignis_sequence s = prompted(t, prompt);
    CHECK_OK(ignis_generate(s, &desc));
    info.steps = info.tokens;
    return outcome_of(t, s, &info);
}

static void poll_to_the_end(ignis_sequence s, const ignis_generate_info *info, int tokens)
{
    int polls;
    for (polls = 0; polls < PATIENCE && !info->ending; polls++)
        CHECK_OK(poll_and_wait(s, info, tokens));
    CHECK(info->ending != IGNIS_ENDING_NONE);
}

static void check_same(const outcome *a, const outcome *b, int line)
{
    if (memcmp(a, b, sizeof *a) != 0)
        test__fail(__FILE__, line, "the text differs from that of ignis_generate");
}
#define SAME(a, b) check_same(a, b, __LINE__)

TEST(the_text_is_the_same)
{
    static const test_shape *const models[] = {&tiny, &bigger, &windowed};
    static const int prompts[] = {1, 20, 70, 33, 40}, tokens[] = {0, 1, 3, 8, 100};
    int m, i;
    SETUP(NULL);
    for (m = 0; m < COUNT_OF(models); m++) {
        test_model t;
        test_model_begin(&t, models[m], CONTEXT, 3);
        if (models[m] == &windowed)
            t.model->layer[0].window = 9;
        for (i = m; i < (m == 0 ? 5 : m + 1); i++) {
            ignis_generate_info info;
            ignis_generate_desc desc = text_of(i, &info);
            const outcome expected = generated(&t, prompts[i], i);
            outcome polled;
            ignis_sequence s = prompted(&t, prompts[i]);
            CHECK_OK(ignis_generate_begin(s, &desc));
            CHECK_INT(info.ending, IGNIS_ENDING_NONE);
            poll_to_the_end(s, &info, tokens[(i + m) % 5]);
            CHECK_OK(ignis_generate_poll(s, 1)); /* nothing more comes */
            CHECK_INT(info.tokens, TOKENS);
            polled = outcome_of(&t, s, &info);
            SAME(&expected, &polled);
        }
        test_model_end(&t);
    }
    CHECK_INT(memory().live_bytes, 0);
}

/*  While the device works, a poll returns at once: no call of the driver waits, and no token comes. */
TEST(nothing_waits)
{
    static const char *const waits[] = {"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize",
                                        "cuMemcpyDtoHAsync_v2"};
    ignis_generate_info info;
    ignis_generate_desc desc = text_of(1, &info);
    outcome expected, polled;
    ignis_sequence s;
    test_model t;
    int i, queued, waited[COUNT_OF(waits)];
    SETUP(NULL);
    test_model_begin(&t, &tiny, CONTEXT, 2);
    for (i = 0; i < 3; i++) /* compiles, and captures the step */
        expected = generated(&t, 70, 1);
    s = prompted(&t, 70);
    CHECK_OK(ignis_generate_begin(s, &desc));
    for (i = 0; i < COUNT_OF(waits); i++)
        waited[i] = fault_count(waits[i]);
    fault_arm("cuEventQuery", 1, NOT_READY);
    fault.all = true;
    CHECK_OK(ignis_generate_poll(s, 3));
    queued = fault_count("cuGraphLaunch");
    for (i = 0; i < 5; i++)
        CHECK_OK(ignis_generate_poll(s, 3));
    CHECK_INT(fault_count("cuGraphLaunch"), queued); /* three are enough */
    CHECK_INT(info.tokens, 0);
    CHECK_INT(ignis_sequence_length(s), 70);
    fault_disarm();
    poll_to_the_end(s, &info, 3);
    CHECK_INT(info.ending, IGNIS_ENDING_LENGTH);
    for (i = 0; i < COUNT_OF(waits); i++)
        CHECK_INT(fault_count(waits[i]), waited[i]);
    polled = outcome_of(&t, s, &info);
    SAME(&expected, &polled);
    test_model_end(&t);
}

/*  Texts of several sequences, two of them on a stream of their own, with other work between the polls. */
TEST(several_sequences)
{
    enum { COUNT = 4 };
    outcome expected[COUNT], polled;
    ignis_generate_info info[COUNT];
    ignis_sequence s[COUNT], other;
    void *stream;
    test_model t;
    int i, round, left = COUNT;
    SETUP(NULL);
    test_model_begin(&t, &tiny, CONTEXT, COUNT + 2);
    stream = ignis_stream_create(NULL);
    for (i = 0; i < COUNT; i++) {
        ignis_generate_desc desc = text_of(i, &info[i]);
        expected[i] = generated(&t, 10 + 20 * i, i);
        s[i] = prompted(&t, 10 + 20 * i);
        CHECK_OK(ignis_generate_begin(s[i], &desc));
        memset(&desc, 0xFF, sizeof desc); /* it is not read any more */
    }
    other = prompted(&t, 5);
    for (round = 0; left > 0 && round < PATIENCE; round++) {
        for (i = left = 0; i < COUNT; i++) {
            CHECK_OK(ignis_stream_use(i % 2 ? stream : NULL));
            CHECK_OK(poll_and_wait(s[i], &info[i], i + 1));
            left += !info[i].ending;
        }
        CHECK_OK(ignis_stream_use(round % 2 ? stream : NULL));
        if (round % 3 == 2 && round < 100) /* it discards steps */
            CHECK(ignis_sequence_next(other, NULL) >= 0);
    }
    CHECK_OK(ignis_stream_use(NULL));
    CHECK_INT(left, 0);
    for (i = 0; i < COUNT; i++) {
        polled = outcome_of(&t, s[i], &info[i]);
        SAME(&expected[i], &polled);
    }
    CHECK_OK(ignis_sequence_free(other));
    CHECK_OK(ignis_stream_free(stream));
    test_model_end(&t);
}

typedef struct said {
    char text[64];
    int left; /* calls until it cancels */
    ignis_sequence sequence;
    ignis_status inside;
} said;

static bool say(const char *text, size_t size, void *user_data)
{
    said *of = (said *)user_data;
    strncat(of->text, text, size);
    of->inside = ignis_generate_end(of->sequence);
    ignis_status_clear();
    return --of->left != 0;
}

/*  Texts end as those of ignis_generate do: by a stop, the caller, a token, a grammar. */
TEST(endings)
{
    static const char *const stops[] = {"cde"}, *const texts[] = {"b", "bc", "bcdefz", "bc"};
    static const ignis_ending endings[] = {IGNIS_ENDING_STOP, IGNIS_ENDING_CALLER, IGNIS_ENDING_TOKEN,
                                           IGNIS_ENDING_GRAMMAR};
    int which;
    SETUP(NULL);
    write_tokenizer(test_folder);
    for (which = 0; which < 4; which++) {
        const int32_t a = 'a';
        ignis_generate_info info;
        ignis_generate_desc desc;
        said of;
        test_model t;
        ignis_sequence s;
        memset(&of, 0, sizeof of);
        memset(&desc, 0, sizeof desc);
        chain_begin(&t, "abcdefz");
        s = of.sequence = ignis_sequence_begin(t.handle);
        CHECK_OK(ignis_sequence_feed(s, &a, 1));
        if (which == 0)
            desc.stops = stops, desc.stop_count = 1;
        if (which == 1)
            of.left = 2;
        if (which == 3)
            CHECK_OK(ignis_sequence_grammar(s, "root ::= \"bc\""));
        desc.text_fn = say;
        desc.user_data = &of;
        desc.info = &info;
        CHECK_OK(ignis_generate_begin(s, &desc));
        poll_to_the_end(s, &info, 4);
        CHECK_INT(info.ending, endings[which]);
        CHECK_INT(info.stop, which == 0 ? 0 : -1);
        CHECK(strcmp(of.text, texts[which]) == 0);
        CHECK_INT(of.inside, IGNIS_ERROR_ARGUMENT); /* text_fn returns false to end it */
        CHECK_INT(ignis_sequence_length(s), 1 + info.tokens);
        CHECK_OK(ignis_sequence_grammar(s, NULL));
        CHECK_INT(ignis_sequence_next(s, NULL), which == 0 ? 'f' : which == 2 ? 'a' : 'd');
        CHECK_OK(ignis_sequence_free(s)); /* with the text */
        test_model_end(&t);
    }
}

/*  A text that is ended in the middle leaves its tokens; the sequence goes on as ever. */
TEST(ends_in_the_middle)
{
    ignis_generate_info info, rest;
    ignis_generate_desc desc = text_of(2, &info);
    outcome expected, polled;
    ignis_sequence_info of;
    ignis_sequence s;
    test_model t;
    int how;
    SETUP(NULL);
    test_model_begin(&t, &tiny, CONTEXT, 2);
    expected = generated(&t, 20, 2);
    for (how = 0; how < 3; how++) {
        s = prompted(&t, 20);
        CHECK_OK(ignis_generate_begin(s, &desc));
        while (info.tokens < 3)
            CHECK_OK(ignis_generate_poll(s, 1));
        CHECK_OK(ignis_generate_poll(s, 5)); /* the device has work */
        if (how == 2)
            break;
        CHECK_OK(how == 0 ? ignis_generate_end(s) : ignis_sequence_truncate(s, 22));
        CHECK_OK(ignis_generate_end(s));
        desc.info = &rest;
        desc.max_tokens = TOKENS - (ignis_sequence_length(s) - 20);
        CHECK_OK(ignis_generate(s, &desc));
        rest.tokens = rest.steps = TOKENS;
        polled = outcome_of(&t, s, &rest);
        SAME(&expected, &polled);
        desc = text_of(2, &info);
    }
    CHECK_OK(ignis_sequence_free(s)); /* while the steps are on the device */
    s = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_query(s, &of));
    CHECK_INT(of.free_tokens, 2 * CONTEXT);
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&t);
    CHECK_INT(memory().live_bytes, 0);
}

typedef struct second_text {
    ignis_sequence sequence;
    int calls;
} second_text;

static bool poll_too(const char *text, size_t size, void *user_data)
{
    second_text *of = (second_text *)user_data;
    of->calls += text != NULL && size > 0;
    CHECK_OK(ignis_generate_poll(of->sequence, 2));
    return true;
}

/*  Two texts of one sequence, of which one goes on inside the other: each token follows the one before it. */
TEST(two_texts_of_one_sequence)
{
    static const char text[] = "abcdefz";
    const int32_t a = 'a';
    ignis_generate_info info;
    ignis_generate_desc polled, desc;
    int32_t ids[64];
    second_text of;
    test_model t;
    int i, count;
    SETUP(NULL);
    write_tokenizer(test_folder);
    chain_begin(&t, text);
    of.sequence = ignis_sequence_begin(t.handle);
    of.calls = 0;
    CHECK_OK(ignis_sequence_feed(of.sequence, &a, 1));
    memset(&polled, 0, sizeof polled);
    polled.max_tokens = 20;
    polled.end_count = -1;
    polled.info = &info;
    CHECK_OK(ignis_generate_begin(of.sequence, &polled));
    CHECK_OK(ignis_generate_poll(of.sequence, 3));
    desc = polled;
    desc.info = NULL;
    desc.max_tokens = 9;
    desc.text_fn = poll_too;
    desc.user_data = &of;
    CHECK_OK(ignis_generate(of.sequence, &desc));
    CHECK(of.calls > 4);
    poll_to_the_end(of.sequence, &info, 3);
    count = ignis_sequence_ids(of.sequence, ids, 64);
    CHECK_INT(count, 1 + 9 + 20);
    for (i = 0; i < count; i++)
        CHECK_INT(ids[i], i % 8 == 7 ? 256 : text[i % 8]);
    CHECK_OK(ignis_sequence_free(of.sequence));
    test_model_end(&t);
}

TEST(what_is_refused)
{
    ignis_generate_info info;
    ignis_generate_desc desc = text_of(0, &info);
    ignis_sequence s, empty;
    int polls;
    test_model t;
    SETUP(NULL);
    test_model_begin(&t, &tiny, CONTEXT, 2);
    s = prompted(&t, 3);
    empty = ignis_sequence_begin(t.handle);
    CHECK_STATUS(ignis_generate_poll(s, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TEXT_STATE);
    CHECK_MESSAGE_HAS("ignis_generate_begin begins one");
    CHECK_OK(ignis_generate_end(s)); /* nothing to end */
    desc.draft_tokens = 2;
    CHECK_STATUS(ignis_generate_begin(s, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("draft_tokens is 2; expected 0");
    desc.draft_tokens = 0;
    desc.max_tokens = -1;
    CHECK_STATUS(ignis_generate_begin(s, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.max_tokens = 4;
    desc.sampling.top_p = 2;
    CHECK_STATUS(ignis_generate_begin(s, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.sampling.top_p = 0;
    CHECK_OK(ignis_generate_begin(s, &desc));
    for (polls = 0; polls < PATIENCE && info.tokens < 1; polls++)
        CHECK_OK(poll_and_wait(s, &info, 1));
    CHECK_STATUS(ignis_generate_begin(s, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TEXT_STATE);
    CHECK_MESSAGE_HAS("has 1 tokens; ignis_generate_end ends it");
    CHECK_STATUS(ignis_generate_poll(s, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    poll_to_the_end(s, &info, 2);
    CHECK_OK(ignis_generate_begin(s, NULL)); /* the text before has ended */
    CHECK_OK(ignis_generate_begin(empty, NULL));
    CHECK_STATUS(ignis_generate_poll(empty, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_OK(ignis_sequence_free(empty));
    CHECK_STATUS(ignis_generate_begin(empty, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK_STATUS(ignis_generate_poll(empty, 1), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK_STATUS(ignis_generate_end(empty), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&t);
}

/*  A call fails; polled on from there, the text is the same. */
static void poll_with_a_failure(attempt *a)
{
    static outcome expected;
    ignis_generate_info info;
    ignis_generate_desc desc = text_of(1, &info);
    ignis_sequence_info of;
    ignis_sequence s;
    outcome polled;
    int polls;
    test_model t;
    test_model_begin(&t, &tiny, CONTEXT, 2);
    s = prompted(&t, 20);
    memset(&info, 0, sizeof info);
    attempt_arm(a);
    for (polls = 0; polls < PATIENCE && ignis_generate_begin(s, &desc) != IGNIS_OK; polls++)
        attempt_failed(a);
    for (polls = 0; polls < PATIENCE && !info.ending; polls++)
        if (poll_and_wait(s, &info, 3) != IGNIS_OK)
            attempt_failed(a);
    attempt_over(a);
    CHECK_OK(ignis_generate_end(s));
    CHECK_OK(ignis_sequence_truncate(s, ignis_sequence_length(s)));
    CHECK_OK(ignis_sequence_query(s, &of));
    CHECK_INT(of.free_tokens, 2 * CONTEXT - 32);
    polled = outcome_of(&t, s, &info);
    if (a->at == 0)
        expected = polled;
    SAME(&expected, &polled);
    test_model_end(&t);
}

TEST(each_launch_fails_once) { check_each_fails("cuLaunchKernel", 41, poll_with_a_failure); }
TEST(each_query_fails_once) { check_each_fails("cuEvent", 7, poll_with_a_failure); }
TEST(each_graph_call_fails_once) { check_each_fails("cuGraph", 5, poll_with_a_failure); }
TEST(each_host_allocation_fails_once) { check_each_fails(NULL, 17, poll_with_a_failure); }

int main(int argc, char **argv) { return test_run(argc, argv); }
