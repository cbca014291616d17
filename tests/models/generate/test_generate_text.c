// SPDX-License-Identifier: MIT
/*  test_generate_text.c - generation: texts as they grow and end, talks, grammars, nothing to draw */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "byte_tokenizer.h"

#include "generate.h"

#include <float.h>
#include <math.h>

/* nothing to draw ------------------------------------------------------------------------------------------------- */

/*  Ways to draw: each of the kernels and of the cuts. */
static ignis_sampling_desc way_of(int way)
{
    ignis_sampling_desc d;
    memset(&d, 0, sizeof d);
    d.temperature = way == 0 || way == 6 ? 0 : way == 7 ? 0.01 : 1;
    d.top_k = way == 2 || way == 5 ? 5 : 0;
    d.top_p = way == 3 || way == 5 ? 0.9 : 0;
    d.min_p = way == 4 || way == 5 ? 0.1 : 0;
    d.repetition_penalty = way == 6 || way == 5 ? 1.3 : 0;
    d.seed = (uint64_t)way;
    return d;
}
enum { WAYS = 8 };

#define CHECK_NO_TOKEN(call, message)                                       \
    do {                                                                    \
        CHECK_REFUSED(-1, call, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_TOKEN); \
        CHECK_MESSAGE_HAS(message);                                         \
    } while (0)

/*  Where all tokens are forbidden, or no logit is a number, a draw fails, the sequence stays as it was, and others of
    the step go on. */
TEST(nothing_to_draw)
{
    enum { COUNT = 9 }; /* more than a step takes */
    static ignis_logit_bias none[512];
    static const char forbidden[] = "no token can be drawn: sampling->biases",
                      broken[] = "no token can be drawn: no logit of the model";
    ignis_sampling_desc how[COUNT], bare;
    ignis_generate_desc desc;
    ignis_generate_info info;
    ignis_sequence s[COUNT], fork;
    int32_t ids[4], drawn[COUNT], alone[COUNT];
    test_model t;
    int way, i;
    SETUP(NULL);
    test_model_begin(&t, &small, 33, COUNT + 1);
    for (i = 0; i < small.vocab; i++)
        none[i].id = i, none[i].bias = -HUGE_VALF;
    for (way = 0; way < WAYS; way++) {
        ignis_sequence text = ignis_sequence_begin(t.handle);
        bare = how[0] = way_of(way);
        how[0].biases = none, how[0].bias_count = small.vocab;
        prompt_of(way, 4, ids);
        CHECK_OK(ignis_sequence_feed(text, ids, 4));
        fork = ignis_sequence_fork(text);
        alone[0] = ignis_sequence_next(fork, &bare);
        CHECK_NO_TOKEN(ignis_sequence_next(text, &how[0]), forbidden);
        CHECK_INT(ignis_sequence_length(text), 4);
        memset(&desc, 0, sizeof desc);
        desc.sampling = how[0], desc.info = &info;
        CHECK_STATUS(ignis_generate(text, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_TOKEN);
        CHECK_MESSAGE_HAS(forbidden);
        CHECK(info.ending == IGNIS_ENDING_NONE && info.tokens == 0);
        CHECK_INT(ignis_sequence_length(text), 4);
        CHECK_INT(ignis_sequence_next(text, &bare), alone[0]); /* as if there had been nothing */
        none[small.vocab - 1].bias = 0;                        /* one is left */
        CHECK_INT(ignis_sequence_next(text, &how[0]), small.vocab - 1);
        none[small.vocab - 1].bias = -HUGE_VALF;
        CHECK_OK(ignis_sequence_free(text));
        CHECK_OK(ignis_sequence_free(fork));
    }

    for (i = 0; i < COUNT; i++) {
        s[i] = ignis_sequence_begin(t.handle);
        how[i] = way_of(i % WAYS);
        prompt_of(i, 4, ids);
        CHECK_OK(ignis_sequence_feed(s[i], ids, 4));
        fork = ignis_sequence_fork(s[i]);
        alone[i] = ignis_sequence_next(fork, &how[i]);
        CHECK_OK(ignis_sequence_free(fork));
        if (i % 3 == 1)
            how[i].biases = none, how[i].bias_count = small.vocab;
    }
    CHECK_STATUS(ignis_sequence_next_all(s, COUNT, how, drawn), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_TOKEN);
    CHECK_MESSAGE_HAS("sequences[1]: no token can be drawn");
    for (i = 0; i < COUNT; i++) {
        CHECK_INT(drawn[i], i % 3 == 1 ? -1 : alone[i]);
        CHECK_INT(ignis_sequence_length(s[i]), i % 3 == 1 ? 4 : 5);
    }
    drawn[0] = 7; /* any other failure draws none */
    CHECK_STATUS(ignis_sequence_next_all(s, -1, how, drawn), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    how[2].temperature = -1;
    CHECK_STATUS(ignis_sequence_next_all(s, COUNT, how, drawn), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    for (i = 0; i < COUNT; i++) {
        CHECK_INT(drawn[i], -1);
        CHECK_INT(ignis_sequence_length(s[i]), i % 3 == 1 ? 4 : 5);
        how[i] = way_of(i % WAYS);
    }

    for (i = 0; i < small.hidden; i++)
        t.norm[i] = NAN;
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(t.model->norm), t.norm, IGNIS_F64, small.hidden));
    for (way = 0; way < WAYS; way++) {
        bare = way_of(way);
        CHECK_NO_TOKEN(ignis_sequence_next(s[0], &bare), broken);
        memset(&desc, 0, sizeof desc);
        desc.sampling = bare, desc.max_tokens = 5, desc.info = &info; /* one is drawn ahead */
        CHECK_STATUS(ignis_generate(s[1], &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_TOKEN);
        CHECK_MESSAGE_HAS(broken);
        CHECK(info.ending == IGNIS_ENDING_NONE && info.tokens == 0);
        CHECK_INT(ignis_sequence_length(s[1]), 4);
        if (way % 3)
            continue;
        none[0].bias = 3; /* a bias makes no number of what is none */
        bare.biases = none, bare.bias_count = 1;
        CHECK_NO_TOKEN(ignis_sequence_next(s[0], &bare), broken);
        none[0].bias = HUGE_VALF;
        CHECK_NO_TOKEN(ignis_sequence_next(s[0], &bare), broken);
        none[0].bias = -HUGE_VALF;
    }
    CHECK_STATUS(ignis_sequence_next_all(s, COUNT, how, drawn), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_TOKEN);
    CHECK_MESSAGE_HAS("sequences[0]: no token can be drawn: no logit");
    for (i = 0; i < COUNT; i++) {
        CHECK_INT(drawn[i], -1);
        CHECK_OK(ignis_sequence_free(s[i]));
    }
    test_model_end(&t);
}

/*  What is alive at shutdown is reported and freed. */
TEST(leaks_are_reported)
{
    int32_t ids[3] = {1, 2, 3};
    test_model t;
    ignis_sequence s;
    SETUP(NULL);
    test_leaks_expected = true;
    test_model_begin(&t, &small, 32, 1);
    s = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_feed(s, ids, 3));
    CHECK(ignis_sequence_next(s, NULL) >= 0);
    test_model_end(&t); /* the sequence keeps the rest */
    CHECK(ignis_sequence_next(s, NULL) >= 0);
    CHECK_OK(ignis_shutdown());
    CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "sequence of 5 tokens");
}

/* text ----------------------------------------------------------------------------------------------------------- */

/*  What text_fn was given, with a | behind each piece; it says false at piece number `last`. */
typedef struct shown {
    char text[512];
    int pieces, last;
    /* the sequence is forked, its fork goes on, and its last token is taken off and fed again, which changes
       nothing */
    bool meddles;
    ignis_sequence sequence;
} shown;

static bool show_text(const char *text, size_t size, void *user_data)
{
    shown *s = (shown *)user_data;
    size_t at = strlen(s->text);
    CHECK(size > 0 && at + size + 2 < sizeof s->text);
    memcpy(s->text + at, text, size);
    s->text[at + size] = '|';
    s->text[at + size + 1] = 0;
    if (s->meddles) {
        ignis_sequence fork = ignis_sequence_fork(s->sequence);
        int32_t ids[64];
        int length = ignis_sequence_ids(s->sequence, ids, 64);
        CHECK(ignis_sequence_next(fork, NULL) >= 0);
        CHECK_OK(ignis_sequence_free(fork));
        CHECK_OK(ignis_sequence_truncate(s->sequence, length - 1));
        CHECK_OK(ignis_sequence_feed(s->sequence, ids + length - 1, 1));
    }
    return ++s->pieces != s->last;
}

/*  One text from "H" on. */
static ignis_generate_info generated(const test_model *t, ignis_generate_desc *desc, shown *s)
{
    ignis_sequence sequence = ignis_sequence_begin(t->handle);
    ignis_generate_info info;
    memset(&info, 0, sizeof info);
    s->text[0] = 0;
    s->pieces = 0;
    desc->text_fn = show_text;
    desc->user_data = s;
    desc->info = &info;
    s->sequence = sequence;
    CHECK_OK(ignis_sequence_text(sequence, "H", 1));
    CHECK_OK(ignis_generate(sequence, desc));
    desc->info = NULL;
    CHECK_INT(ignis_sequence_length(sequence), 1 + info.tokens);
    CHECK_OK(ignis_sequence_free(sequence));
    return info;
}

TEST(text_as_it_grows)
{
    static const char text[] = "H\xC3\xA9 wor\xE2\x82\xACld!"; /* 14 bytes: Hé wor€ld! */
    const char *stops[] = {"rx", "\xE2\x82\xAClx", "or\xE2\x82\xACl"}, *late[] = {"d!?"}, *nothing[] = {"xyz", ""};
    int32_t ends[] = {'l', 'o'};
    ignis_generate_desc desc;
    ignis_generate_info info;
    ignis_sequence sequence;
    test_model t;
    shown s;
    SETUP(NULL);
    write_tokenizer(test_folder);
    chain_begin(&t, text);
    memset(&desc, 0, sizeof desc);
    memset(&s, 0, sizeof s);
    info = generated(&t, &desc, &s);
    CHECK_TEXT(s.text, "\xC3\xA9| |w|o|r|\xE2\x82\xAC|l|d|!|");
    CHECK_INT(info.ending, IGNIS_ENDING_TOKEN);
    CHECK_INT(info.tokens, 13);
    CHECK_INT(info.stop, -1);
    CHECK(info.seconds >= info.first && info.first > 0);
    s.meddles = true; /* and what was drawn ahead is drawn again */
    info = generated(&t, &desc, &s);
    CHECK_TEXT(s.text, "\xC3\xA9| |w|o|r|\xE2\x82\xAC|l|d|!|");
    CHECK_INT(info.tokens, 13);
    s.meddles = false;

    desc.stops = stops;
    desc.stop_count = 3;
    info = generated(&t, &desc, &s); /* what could become a stop is held back */
    CHECK_TEXT(s.text, "\xC3\xA9| |w|");
    CHECK_INT(info.ending, IGNIS_ENDING_STOP);
    CHECK_INT(info.stop, 2);
    desc.stop_count = 2;
    info = generated(&t, &desc, &s);
    CHECK_TEXT(s.text, "\xC3\xA9| |w|o|r|\xE2\x82\xACl"
                       "d|!|");
    CHECK_INT(info.ending, IGNIS_ENDING_TOKEN);
    desc.stops = late;
    desc.stop_count = 1;
    info = generated(&t, &desc, &s); /* and shown when the text ends */
    CHECK_TEXT(s.text, "\xC3\xA9| |w|o|r|\xE2\x82\xAC|l|d!|");
    desc.stop_count = 0;

    desc.max_tokens = 1; /* half of a character */
    info = generated(&t, &desc, &s);
    CHECK_TEXT(s.text, "\xEF\xBF\xBD|");
    CHECK_INT(info.ending, IGNIS_ENDING_LENGTH);
    CHECK_INT(info.tokens, 1);
    desc.max_tokens = 0;
    s.last = 3;
    info = generated(&t, &desc, &s);
    CHECK_TEXT(s.text, "\xC3\xA9| |w|");
    CHECK_INT(info.ending, IGNIS_ENDING_CALLER);
    s.last = 0;
    desc.ends = ends;
    desc.end_count = 2;
    info = generated(&t, &desc, &s);
    CHECK_TEXT(s.text, "\xC3\xA9| |w|");
    CHECK_INT(info.ending, IGNIS_ENDING_TOKEN);
    desc.end_count = -1; /* nothing ends it but the context */
    info = generated(&t, &desc, &s);
    CHECK_INT(info.ending, IGNIS_ENDING_CONTEXT);
    CHECK_INT(info.tokens, 63);
    desc.end_count = 0;

    sequence = ignis_sequence_begin(t.handle);
    CHECK_STATUS(ignis_generate(sequence, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_INT(info.ending, IGNIS_ENDING_CONTEXT);
    CHECK_OK(ignis_sequence_text(sequence, "H<end>", 6));
    CHECK_INT(ignis_sequence_length(sequence), 2);
    CHECK_OK(ignis_generate(sequence, NULL)); /* nobody looks */
    CHECK_INT(ignis_sequence_length(sequence), 2 + 14);
    CHECK_STATUS(ignis_sequence_text(sequence, NULL, 4), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.max_tokens = -1;
    CHECK_STATUS(ignis_generate(sequence, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.max_tokens = 0;
    desc.stops = nothing;
    desc.stop_count = 2;
    CHECK_STATUS(ignis_generate(sequence, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc->stops[1] is empty");
    desc.stops = NULL;
    CHECK_STATUS(ignis_generate(sequence, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.stop_count = -1;
    CHECK_STATUS(ignis_generate(sequence, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_OK(ignis_sequence_free(sequence));
    CHECK_STATUS(ignis_generate(sequence, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK_STATUS(ignis_sequence_text(sequence, "H", 1), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    test_model_end(&t);
}

/*  Draws one token of its own, by a bias, while ignis_generate has drawn the next one ahead. */
static bool draw_between(const char *text, size_t size, void *user_data)
{
    const ignis_sequence *sequence = (const ignis_sequence *)user_data;
    ignis_logit_bias only = {'z', 1e4f};
    ignis_generate_desc desc;
    (void)text, (void)size;
    memset(&desc, 0, sizeof desc);
    desc.max_tokens = 1;
    desc.sampling.biases = &only;
    desc.sampling.bias_count = 1;
    CHECK_OK(ignis_generate(*sequence, &desc));
    return false;
}

/*  A text whose model breaks down ends there, and keeps what came before. */
TEST(a_text_ends_where_no_logit_is_a_number)
{
    enum { N = 260 };
    static double nothing[N];
    ignis_generate_desc desc;
    ignis_generate_info info;
    ignis_sampling_desc how;
    ignis_sequence s;
    shown text;
    test_model t;
    ignis_array row;
    int way, i;
    SETUP(NULL);
    write_tokenizer(test_folder);
    chain_begin(&t, "Halo wr");
    for (i = 0; i < N; i++)
        nothing[i] = NAN;
    row = ignis_array_slice(ignis_tensor_data(t.model->embedding), 0, 'w', 1);
    CHECK_OK(ignis_array_from_host(row, nothing, IGNIS_F64, N));
    drop(row);
    for (way = 0; way < 4; way++) { /* alone, and drawn ahead */
        memset(&desc, 0, sizeof desc);
        memset(&text, 0, sizeof text);
        desc.sampling.temperature = way % 2 ? 0.001 : 0;
        desc.sampling.top_k = way % 2 ? 3 : 0;
        desc.max_tokens = way < 2 ? 20 : 7;
        desc.text_fn = show_text, desc.user_data = &text, desc.info = &info;
        s = ignis_sequence_begin(t.handle);
        CHECK_OK(ignis_sequence_text(s, "H", 1));
        CHECK_STATUS(ignis_generate(s, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_TOKEN);
        CHECK_MESSAGE_HAS("no token can be drawn: no logit of the model is a number");
        CHECK_TEXT(text.text, "a|l|o| |w|");
        CHECK_INT(info.ending, IGNIS_ENDING_NONE);
        CHECK_INT(ignis_sequence_length(s), 6);
        CHECK_OK(ignis_sequence_truncate(s, 4)); /* ahead of it all is as it was */
        CHECK_INT(ignis_sequence_next(s, NULL), ' ');
        CHECK_OK(ignis_sequence_free(s));
    }
    /* a grammar is no way round: what it allows has to have a logit */
    s = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_text(s, "Hw", 2));
    CHECK_OK(ignis_sequence_grammar(s, "root ::= [a-z]+"));
    for (way = 0; way < WAYS; way++) {
        how = way_of(way);
        CHECK_NO_TOKEN(ignis_sequence_next(s, &how), "no logit of the model is a number");
    }
    CHECK_OK(ignis_sequence_free(s));
    for (i = 0; i < N; i++)
        nothing[i] = i == 'e' ? -HUGE_VAL : 0;
    for (i = 'a'; i <= 'z'; i++) { /* of letters behind e none has one, of others each */
        row = ignis_array_slice(ignis_tensor_data(t.model->head), 0, i, 1);
        CHECK_OK(ignis_array_from_host(row, nothing, IGNIS_F64, N));
        drop(row);
    }
    s = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_text(s, "e", 1));
    CHECK(ignis_sequence_next(s, NULL) >= 0);
    CHECK_OK(ignis_sequence_truncate(s, 1));
    CHECK_OK(ignis_sequence_grammar(s, "root ::= [a-z]+"));
    for (way = 0; way < WAYS; way++) {
        how = way_of(way);
        CHECK_NO_TOKEN(ignis_sequence_next(s, &how), "sampling->biases and the sequence's grammar forbid all of them");
    }
    CHECK_OK(ignis_sequence_free(s));
    test_model_end(&t);
}

TEST(a_token_drawn_ahead_is_nobody_elses)
{
    int32_t ids[8];
    ignis_generate_desc desc;
    ignis_sequence sequence;
    test_model t;
    SETUP(NULL);
    write_tokenizer(test_folder);
    chain_begin(&t, "abcdefz");
    sequence = ignis_sequence_begin(t.handle);
    CHECK_OK(ignis_sequence_text(sequence, "a", 1));
    memset(&desc, 0, sizeof desc);
    desc.text_fn = draw_between;
    desc.user_data = &sequence;
    CHECK_OK(ignis_generate(sequence, &desc));
    CHECK_INT(ignis_sequence_ids(sequence, ids, 8), 3);
    CHECK_INT(ids[1], 'b');
    CHECK_INT(ids[2], 'z');
    CHECK_OK(ignis_sequence_free(sequence));
    test_model_end(&t);
}

/*  A token of a text is one graph, and nothing else but the number of a new page: the draw tells the host and goes on
    to the next row by itself. */
TEST(a_token_is_one_launch)
{
    static const char *const counted[] = {"cuGraphLaunch", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2",
                                          "cuMemcpyHtoDAsync_v2"};
    ignis_generate_desc desc;
    ignis_sequence sequence;
    test_model t;
    int most, i, counts[2][COUNT_OF(counted)];
    SETUP(NULL);
    write_tokenizer(test_folder);
    chain_begin(&t, "abcdefz");
    for (most = 8; most <= 40; most += 32) {
        int pass;
        for (pass = 0; pass < 2; pass++) { /* compiled and captured, then counted */
            sequence = ignis_sequence_begin(t.handle);
            CHECK_OK(ignis_sequence_text(sequence, "a", 1));
            memset(&desc, 0, sizeof desc);
            desc.max_tokens = most;
            desc.end_count = -1;
            fault_reset_counts();
            CHECK_OK(ignis_generate(sequence, &desc));
            CHECK_INT(ignis_sequence_length(sequence), 1 + most);
            for (i = 0; i < COUNT_OF(counted); i++)
                counts[most > 8][i] = fault_count(counted[i]);
            CHECK_OK(ignis_sequence_free(sequence));
        }
    }
    CHECK_INT(counts[1][0] - counts[0][0], 32);
    CHECK_INT(counts[1][1] - counts[0][1], 2); /* pages of 16 tokens */
    CHECK_INT(counts[1][2] - counts[0][2], 0);
    CHECK_INT(counts[1][3] - counts[0][3], 0);
    test_model_end(&t);
}

/*  Begins a capture that it does not end. */
static bool capture_between(const char *text, size_t size, void *user_data)
{
    (void)text, (void)size, (void)user_data;
    CHECK_OK(ignis_graph_begin());
    return true;
}

TEST(a_text_does_not_go_on_in_a_capture)
{
    ignis_generate_info info;
    ignis_generate_desc desc;
    ignis_logit_bias none = {0, 0};
    ignis_sequence sequence;
    test_model t;
    int i;
    SETUP(NULL);
    write_tokenizer(test_folder);
    chain_begin(&t, "abcdefz");
    for (i = 0; i < 2; i++) { /* with a bias no token is drawn ahead, and the next step is to become a graph */
        sequence = ignis_sequence_begin(t.handle);
        CHECK_OK(ignis_sequence_text(sequence, "a", 1));
        memset(&desc, 0, sizeof desc);
        desc.text_fn = capture_between;
        desc.info = &info;
        desc.sampling.biases = &none;
        desc.sampling.bias_count = 1 - i;
        CHECK_STATUS(ignis_generate(sequence, &desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
        CHECK(info.ending == IGNIS_ENDING_NONE && info.tokens == 1);
        CHECK_OK(ignis_graph_free(ignis_graph_end()));
        CHECK_INT(ignis_sequence_length(sequence), 2);
        CHECK_INT(ignis_sequence_next(sequence, NULL), 'c');
        CHECK_OK(ignis_sequence_free(sequence));
    }
    memset(&info, 0x55, sizeof info);
    CHECK_STATUS(ignis_generate(sequence, &desc), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK(info.ending == IGNIS_ENDING_NONE && info.tokens == 0 && info.stop == -1);
    test_model_end(&t);
}

/*  Talks are rendered anew; what a sequence has of them stays. */
TEST(talks)
{
    ignis_message talk[] = {{"user", "Hi<end>"}, {"assistant", "yes"}, {"user", "wo"}};
    ignis_chat_desc chat;
    ignis_generate_desc desc;
    ignis_sequence sequence;
    ignis_sequence_info info;
    int32_t ids[64], has[64], other[4] = {'a', 'b', 'c', 'd'};
    float logits[260], again[260];
    int count, turn;
    shown s;
    test_model t;
    SETUP(NULL);
    write_tokenizer(test_folder);
    chain_begin(&t, "H\xC3\xA9 wor\xE2\x82\xACld!");
    sequence = ignis_sequence_begin(t.handle);
    memset(&chat, 0, sizeof chat);
    chat.add_generation_prompt = true;
    for (turn = 1; turn <= 3; turn += 2) {
        CHECK_OK(ignis_sequence_chat(sequence, talk, turn));
        count = ignis_chat_encode(ignis_model_tokenizer(t.handle), talk, turn, &chat, ids, 64);
        CHECK_INT(ignis_sequence_ids(sequence, has, 64), count);
        CHECK(count > 0 && memcmp(ids, has, sizeof *ids * (size_t)count) == 0);
        CHECK_OK(ignis_sequence_logits(sequence, turn == 1 ? logits : again, 260));
        memset(&desc, 0, sizeof desc);
        memset(&s, 0, sizeof s);
        desc.text_fn = show_text;
        desc.user_data = &s;
        CHECK_OK(ignis_generate(sequence, &desc));
        CHECK_TEXT(s.text, "\xC3\xA9| |w|o|r|\xE2\x82\xAC|l|d|!|");
    }
    CHECK(memcmp(logits, again, sizeof logits) == 0); /* both end in H, which is all that this model looks at */
    CHECK_OK(ignis_sequence_set(sequence, has, 20));
    CHECK_INT(ignis_sequence_length(sequence), 20);
    CHECK_OK(ignis_sequence_query(sequence, &info));
    CHECK_INT(info.free_tokens, (8 - 2) * 16);
    CHECK_OK(ignis_sequence_set(sequence, other, 4));
    CHECK_INT(ignis_sequence_ids(sequence, has, 64), 4);
    CHECK_INT(has[3], 'd');
    CHECK_OK(ignis_sequence_set(sequence, other, 4));
    has[0] = 'a', has[1] = 'b', has[2] = -7;
    CHECK_STATUS(ignis_sequence_set(sequence, has, 3), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("ids[2] is -7");
    CHECK_INT(ignis_sequence_length(sequence), 4);
    CHECK_OK(ignis_sequence_set(sequence, NULL, 0));
    CHECK_INT(ignis_sequence_length(sequence), 0);
    CHECK_STATUS(ignis_sequence_set(sequence, NULL, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_sequence_set(sequence, ids, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_sequence_set(sequence, ids, 65), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CONTEXT_FULL);
    CHECK_OK(ignis_sequence_free(sequence));
    CHECK_STATUS(ignis_sequence_set(sequence, ids, 1), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    CHECK_STATUS(ignis_sequence_chat(sequence, talk, 1), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    test_model_end(&t);
}

/* grammars ------------------------------------------------------------------------------------------------------- */

static const char *blank_behind(const char *c) { return c + strspn(c, " \t\n"); }

/*  Whether a text is {"n":integer} or {"n":integer,"s":[strings]}, read by hand. */
static bool has_form(const char *c)
{
    int strings = 0, length;
    if (*c++ != '{' || strncmp(c = blank_behind(c), "\"n\":", 4) != 0)
        return false;
    c = blank_behind(c + 4);
    c += *c == '-';
    length = (int)strspn(c, "0123456789");
    if (length == 0 || length > 16 || (*c == '0' && length > 1))
        return false;
    c = c + length;
    if (*c == ',') {
        if (strncmp(c = blank_behind(c + 1), "\"s\":", 4) != 0 || *(c = blank_behind(c + 4)) != '[')
            return false;
        c = blank_behind(c + 1);
        while (*c != ']') {
            if (strings++ && (*c++ != ',' || *(c = blank_behind(c)) == ']'))
                return false;
            if (*c++ != '"')
                return false;
            for (length = 0; *c != '"'; length++) {
                int size = ignis__utf8_length(c, strlen(c));
                if (size == 0 || (unsigned char)*c < ' ' || (*c == '\\' && !strchr("\"\\/bfnrtu", c[1])))
                    return false;
                if (*c == '\\' && c[1] == 'u') {
                    if (strspn(c + 2, "0123456789abcdefABCDEF") < 4)
                        return false;
                    size = (c[2] | 32) == 'd' && c[3] > '7' ? 12 : 6; /* two surrogates */
                } else if (*c == '\\') {
                    size = 2;
                }
                c += size;
            }
            c++;
            c = *c == ',' ? c : blank_behind(c);
            if (length > 3)
                return false;
        }
        c++;
        if (strings > 2)
            return false;
    }
    c = blank_behind(c);
    return *c == '}' && c[1] == 0;
}

static void text_behind(ignis_sequence s, int from, char *text)
{
    int32_t ids[512];
    int count = ignis_sequence_ids(s, ids, 512), i;
    for (i = from; i < count && ids[i] < 256; i++)
        *text++ = (char)ids[i];
    *text = 0;
}

/*  A random model over bytes, whose texts have a form: alone, in batches beside others that have none, in forks, cut
    and drawn again. */
TEST(texts_of_a_grammar)
{
    static const test_shape shape = {1, 2, 1, 8, 16, 16, 260, false, false, false, IGNIS_F32};
    enum { TEXTS = 6, LONGEST_TEXT = 300 };
    static char alone[TEXTS][512], text[512];
    ignis_sampling_desc how[TEXTS], some[TEXTS];
    ignis_sequence s[TEXTS], fork, ready[TEXTS];
    ignis_sequence_info info;
    ignis_logit_bias forbidden[2] = {{'{', -HUGE_VALF}, {256, 1e4f}};
    int32_t ids[TEXTS], id;
    int i, k, count, differ = 0;
    test_model t;
    SETUP(NULL);
    write_tokenizer(test_folder);
    test_model_begin(&t, &shape, LONGEST_TEXT + 4, TEXTS + 2);
    t.model->path = ignis__copy_string(test_folder);
    t.model->stops[0] = 256;
    t.model->stop_count = 1;
    memset(how, 0, sizeof how);
    for (i = 0; i < TEXTS; i++) {
        how[i].temperature = i ? 0.5 + i : 0;
        how[i].top_k = i == 2 ? 20 : 0;
        how[i].top_p = i == 3 ? 0.7 : 0;
        how[i].repetition_penalty = i == 4 ? 1.5 : 0;
        how[i].seed = (uint64_t)i;
        s[i] = ignis_sequence_begin(t.handle);
        ((ignis__engine *)t.model->engine)->mask_count =
            8; /* fewer than the grammar has, as many as the rows of a step */
        CHECK_OK(ignis_sequence_text(s[i], "H{", 2));
        CHECK_OK(ignis_sequence_grammar(s[i], form));
        for (id = 0, k = 0; id != 256 && k < LONGEST_TEXT; k++)
            CHECK((id = ignis_sequence_next(s[i], &how[i])) >= 0);
        CHECK_INT(id, 256);
        CHECK_INT(ignis_sequence_length(s[i]), 2 + k);
        text_behind(s[i], 2, alone[i]);
        CHECK_INT(strlen(alone[i]), k - 1);
        if (!has_form(alone[i]))
            test__fail(__FILE__, __LINE__, alone[i]);
        CHECK_REFUSED(-1, ignis_sequence_next(s[i], &how[i]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_GRAMMAR);
        CHECK_MESSAGE_HAS("by its grammar nothing can follow");
        CHECK_OK(ignis_sequence_query(s[i], &info));
        CHECK(info.log_prob < 0);
        CHECK_OK(ignis_sequence_truncate(s[i], 2 + (int)strlen(alone[i]) / 2)); /* goes on as it did */
    }
    CHECK_OK(ignis_sequence_grammar(s[5], NULL)); /* which goes its own way, beside the others */
    for (k = 0, count = TEXTS; count > 1 && k < LONGEST_TEXT; k++) {
        for (i = 0, count = 0; i < TEXTS; i++) {
            text_behind(s[i], 2, text);
            if (i < 5 && strcmp(text, alone[i]) == 0)
                continue;
            some[count] = how[i], ready[count++] = s[i];
        }
        CHECK_OK(ignis_sequence_next_all(ready, count, some, ids));
    }
    CHECK(k > 5 && k < LONGEST_TEXT);
    CHECK_OK(ignis_sequence_truncate(s[1], 3));
    fork = ignis_sequence_fork(s[1]);
    CHECK_OK(ignis_sequence_free(s[1]));
    s[1] = fork;
    for (id = 0, k = 0; id != 256 && k < LONGEST_TEXT; k++)
        CHECK((id = ignis_sequence_next(s[1], &how[1])) >= 0);
    text_behind(s[1], 2, text);
    CHECK_TEXT(text, alone[1]);

    CHECK_OK(ignis_sequence_truncate(s[0], 2));
    how[0].biases = forbidden, how[0].bias_count = 2;
    CHECK_INT(ignis_sequence_next(s[0], &how[0]), '{'); /* all that may come, whatever the biases */
    CHECK_OK(ignis_sequence_text(s[0], "\"n\":1", 5));
    for (i = 0; i < 2; i++) { /* as many digits as it likes, or the end */
        id = ignis_sequence_next(s[0], NULL);
        CHECK(id == '}' || id == ',' || id == ' ' || id == '\n' || (id >= '0' && id <= '9'));
        CHECK_OK(ignis_sequence_truncate(s[0], 8));
    }
    CHECK_OK(ignis_sequence_text(s[0], "x", 1));
    CHECK_REFUSED(-1, ignis_sequence_next(s[0], NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_GRAMMAR);
    CHECK_MESSAGE_HAS("token 8 of the sequence, 120, does not keep to its grammar");
    CHECK_OK(ignis_sequence_truncate(s[0], 8));
    CHECK(ignis_sequence_next(s[0], NULL) >= 0);
    CHECK_OK(ignis_sequence_grammar(s[0], "root ::= \"\\xE9\" | \"\\u20AC\" \"z\"*"));
    id = ignis_sequence_next(s[0], NULL);
    CHECK(id == 0xC3 || id == 0xE2);
    CHECK_INT(ignis_sequence_next(s[0], NULL), id == 0xC3 ? 0xA9 : 0x82);
    CHECK_STATUS(ignis_sequence_grammar(s[0], "root ::= a"), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_GRAMMAR);
    CHECK_STATUS(ignis_sequence_grammar(s[0], "{\"not\": {}}"), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("at byte 1 of the schema, the keyword 'not' is not supported");
    CHECK_OK(ignis_sequence_grammar(s[0], "root ::= x\nx ::= \"a\" x \"b\" | \"a\" x \"c\" | \"d\""));
    for (i = 0; i < 40; i++)
        CHECK_OK(ignis_sequence_text(s[0], "a", 1));
    CHECK_REFUSED(-1, ignis_sequence_next(s[0], NULL), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("too ambiguous");
    CHECK_OK(ignis_sequence_grammar(s[0], NULL));
    CHECK(ignis_sequence_next(s[0], NULL) >= 0);
    for (i = 0; i < 40; i++) { /* grammars that nobody uses any more are forgotten */
        snprintf(text, sizeof text, "root ::= \"%c%d\"", 'a' + i % 26, i);
        CHECK_OK(ignis_sequence_grammar(s[0], text));
        differ += ignis_sequence_next(s[0], NULL) != 'a' + i % 26;
    }
    CHECK_INT(differ, 0);
    for (i = 0; i < TEXTS; i++)
        CHECK_OK(ignis_sequence_free(s[i]));
    CHECK_STATUS(ignis_sequence_grammar(s[0], form), IGNIS_ERROR_FREED, IGNIS_DIAG_SEQUENCE_FREED);
    test_model_end(&t);
}

/*  ignis_generate ends where the grammar does, knows stops in its texts, and draws the same as calls one by one. */
TEST(generated_texts_of_a_grammar)
{
    ignis_generate_desc desc;
    ignis_generate_info info;
    ignis_sequence sequence;
    const char *stops[] = {"or"};
    test_model t;
    shown s;
    int turn;
    SETUP(NULL);
    write_tokenizer(test_folder);
    chain_begin(&t, "H\xC3\xA9 wor\xE2\x82\xACld!");
    for (turn = 0; turn < 4; turn++) {
        static const char *const grammars[] = {"root ::= \"\xC3\xA9 wor\"", "root ::= .*",
                                               "root ::= \"\xC3\xA9 wor\" .*", "root ::= \"q\" | \"\xC3\xA9\""};
        static const char *const texts[] = {"\xC3\xA9| |w|o|r|", "\xC3\xA9| |w|o|r|\xE2\x82\xAC|l|d|!|",
                                            "\xC3\xA9| |w|", "\xC3\xA9|"};
        static const ignis_ending endings[] = {IGNIS_ENDING_GRAMMAR, IGNIS_ENDING_TOKEN, IGNIS_ENDING_STOP,
                                               IGNIS_ENDING_GRAMMAR};
        sequence = ignis_sequence_begin(t.handle);
        memset(&s, 0, sizeof s);
        memset(&desc, 0, sizeof desc);
        desc.text_fn = show_text;
        desc.user_data = &s;
        desc.info = &info;
        desc.stops = stops;
        desc.stop_count = turn == 2;
        CHECK_OK(ignis_sequence_text(sequence, "H", 1));
        CHECK_OK(ignis_sequence_grammar(sequence, grammars[turn]));
        fault_reset_counts();
        CHECK_OK(ignis_generate(sequence, &desc));
        CHECK_TEXT(s.text, texts[turn]);
        CHECK_INT(info.ending, endings[turn]);
        CHECK(fault_count("cuMemcpyHtoDAsync_v2") > 0);
        CHECK_OK(ignis_sequence_truncate(sequence, 1)); /* the masks are there by now */
        memset(&s, 0, sizeof s);
        fault_reset_counts();
        CHECK_OK(ignis_generate(sequence, &desc));
        CHECK_TEXT(s.text, texts[turn]);
        CHECK_INT(fault_count("cuMemcpyHtoDAsync_v2"), 0);
        CHECK_OK(ignis_sequence_free(sequence));
    }
    test_model_end(&t);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
