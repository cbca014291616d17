// SPDX-License-Identifier: MIT
/*  test_generate_window.c - layers with a window, whose cache has the window only, beside a cache of all tokens: the
    same bits in steps, chunks, batches, forks and after truncations; memory; failures */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "byte_tokenizer.h"

#include "generate.h"

enum { CONTEXT = 608, SEQUENCES = 3, MOST = 131 };

/*  A model with windows of layers (0: none), and its sequences. */
typedef struct windowed {
    test_model t;
    ignis_sequence s[SEQUENCES];
} windowed;

typedef struct window_case {
    test_shape shape;
    int windows[3];
} window_case;

static const window_case cases[] = {
    {{3, 4, 2, 16, 32, 40, 131, false, false, false, IGNIS_F32}, {5, 0, 5}},
    {{2, 2, 1, 8, 24, 40, 77, false, false, true, IGNIS_F32}, {64, 33, 0}}, /* all layers */
    {{2, 2, 1, 16, 32, 40, 77, false, true, false, IGNIS_BF16}, {0, 16, 0}},
    {{2, 2, 1, 8, 24, 40, 77, false, false, false, IGNIS_F64}, {1, 0, 0}},
};

/*  keeps: layers keep the keys of their windows; else those of all tokens. The memory that the sequences take is in
    *bytes, unless that is NULL. */
static void windowed_begin(windowed *w, const window_case *c, bool keeps, int64_t *bytes)
{
    int64_t before;
    int i;
    test_model_begin(&w->t, &c->shape, CONTEXT, SEQUENCES);
    for (i = 0; i < c->shape.layers; i++)
        w->t.model->layer[i].window = c->windows[i];
    before = memory().live_bytes;
    ignis__model_keeps_windows = keeps;
    for (i = 0; i < SEQUENCES; i++)
        w->s[i] = ignis_sequence_begin(w->t.handle);
    ignis__model_keeps_windows = true;
    if (bytes)
        *bytes = memory().live_bytes - before;
}

static void windowed_end(windowed *w)
{
    int i;
    for (i = 0; i < SEQUENCES; i++)
        CHECK_OK(ignis_sequence_free(w->s[i]));
    test_model_end(&w->t);
}

static const ignis__page_group *windows_of(const windowed *w)
{
    return &((const ignis__engine *)w->t.model->engine)->groups[IGNIS__PAGES_OF_WINDOWS];
}

static bool is_stale(ignis_sequence handle)
{
    ignis__sequence *sequence = ignis__sequence_hold("test", handle);
    bool stale = sequence->stale;
    ignis__sequence_drop("test", sequence);
    return stale;
}

/*  No sequence has more pages than those of its window, and of what is kept before it. */
static void check_pages(const windowed *w)
{
    const ignis__page_group *group = windows_of(w);
    int most = (group->window + 2 * 64 + 63) / 64 * 4;
    CHECK(group->layers > 0 && group->pages - group->free_count <= SEQUENCES * most);
}

/*  Both have the same logits, to the bit. */
static void check_logits(windowed *of, int s, int line)
{
    float logits[2][MOST];
    int i;
    for (i = 0; i < 2; i++) {
        int vocab = of[i].t.shape.vocab;
        memset(logits[i], 0, sizeof logits[i]);
        if (ignis_sequence_logits(of[i].s[s], logits[i], vocab) != IGNIS_OK)
            test__fail(__FILE__, line, ignis_status_message());
    }
    if (memcmp(logits[0], logits[1], sizeof logits[0]) != 0)
        test__fail(__FILE__, line, "the logits differ from those with a cache of all tokens");
    check_pages(&of[1]);
}
#define SAME(s) check_logits(of, s, __LINE__)

/*  Feeds tokens [from, to) of a text. */
static void feed(windowed *of, int s, int from, int to)
{
    int32_t ids[CONTEXT];
    int i, m;
    for (m = 0; m < 2; m++) {
        for (i = from; i < to; i++)
            ids[i] = id_at(i, of->t.shape.vocab);
        CHECK_OK(ignis_sequence_feed(of[m].s[s], ids + from, to - from));
    }
}

static void cut(windowed *of, int s, int length)
{
    CHECK_OK(ignis_sequence_truncate(of[0].s[s], length));
    CHECK_OK(ignis_sequence_truncate(of[1].s[s], length));
}

/*  Samples `count` tokens of all sequences in batches; the same ones. */
static void step_all(windowed *of, int count)
{
    ignis_sampling_desc sampling[SEQUENCES];
    int32_t drawn[2][SEQUENCES];
    memset(sampling, 0, sizeof sampling);
    for (sampling[1].temperature = 1; count > 0; count--) {
        CHECK_OK(ignis_sequence_next_all(of[0].s, SEQUENCES, sampling, drawn[0]));
        CHECK_OK(ignis_sequence_next_all(of[1].s, SEQUENCES, sampling, drawn[1]));
        CHECK(memcmp(drawn[0], drawn[1], sizeof drawn[0]) == 0);
        check_pages(&of[1]);
    }
}

/*  whole: also forks and batches, whose pages no kernel knows. */
static void check_case(const window_case *c, bool whole)
{
    windowed of[2];
    ignis_generate_desc how;
    int m;
    windowed_begin(&of[0], c, false, NULL);
    windowed_begin(&of[1], c, true, NULL);
    CHECK_INT(windows_of(&of[0])->layers, 0);
    feed(of, 0, 0, 9); /* steps, a chunk that is longer than the window, steps */
    SAME(0);
    feed(of, 0, 9, 110);
    SAME(0);
    feed(of, 0, 110, 150);
    feed(of, 0, 150, 230);
    SAME(0);
    if (!whole) {
        cut(of, 0, 120);
        SAME(0);
        windowed_end(&of[0]);
        windowed_end(&of[1]);
        return;
    }
    feed(of, 1, 0, 70);
    feed(of, 2, 0, 3);
    step_all(of, 5);
    SAME(1);
    SAME(2);
    cut(of, 0, 200); /* little enough */
    CHECK(!is_stale(of[1].s[0]));
    SAME(0);
    cut(of, 0, 120); /* to where the window is gone: computed again, in chunks and steps as before */
    CHECK(is_stale(of[1].s[0]));
    for (m = 0; m < 2; m++) { /* a fork of a stale sequence */
        CHECK_OK(ignis_sequence_free(of[m].s[2]));
        of[m].s[2] = ignis_sequence_fork(of[m].s[0]);
    }
    step_all(of, 2);
    SAME(2);
    feed(of, 2, 122, 190);
    cut(of, 2, 40);
    feed(of, 2, 40, 41); /* both a stale sequence and a token behind it */
    SAME(2);
    for (m = 0; m < 2; m++) { /* forks that share a page, and part in it */
        CHECK_OK(ignis_sequence_free(of[m].s[2]));
        of[m].s[2] = ignis_sequence_fork(of[m].s[0]);
        memset(&how, 0, sizeof how);
        how.max_tokens = 30;
        how.end_count = -1;
        CHECK_OK(ignis_generate(of[m].s[2], &how)); /* with tokens ahead */
    }
    feed(of, 0, 122, 123);
    step_all(of, 3);
    SAME(0);
    SAME(2);
    for (m = 0; m < 2; m++)
        CHECK_INT(ignis_sequence_length(of[m].s[2]), 122 + 30 + 3);
    windowed_end(&of[0]);
    windowed_end(&of[1]);
}

TEST(windows_have_the_bits_of_all_tokens)
{
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++)
        check_case(&cases[i], i == 0);
    CHECK_INT(memory().live_bytes, 0);
}

/*  A prompt at once and in pieces of more than 64 tokens; and a piece again, before which the tokens of the window are
    computed again, too: the same bits. */
TEST(chunks_have_the_same_bits_wherever_they_begin)
{
    static const int at_once[] = {0, 205}, in_pieces[] = {0, 70, 137, 205}, behind[] = {0, 20, 90};
    const int *const ends[SEQUENCES] = {at_once, in_pieces, behind}, counts[SEQUENCES] = {1, 3, 2};
    float logits[SEQUENCES + 1][MOST];
    int32_t ids[CONTEXT];
    int c, i, s;
    SETUP(NULL);
    for (c = 0; c < COUNT_OF(cases); c++) {
        windowed w;
        windowed_begin(&w, &cases[c], true, NULL);
        for (i = 0; i < CONTEXT; i++)
            ids[i] = id_at(i, w.t.shape.vocab);
        for (s = 0; s < SEQUENCES; s++) {
            for (i = 0; i < counts[s]; i++)
                CHECK_OK(ignis_sequence_feed(w.s[s], ids + ends[s][i], ends[s][i + 1] - ends[s][i]));
            CHECK_OK(ignis_sequence_logits(w.s[s], logits[s], w.t.shape.vocab));
        }
        CHECK_OK(ignis_sequence_truncate(w.s[2], 20));
        CHECK_OK(ignis_sequence_feed(w.s[2], ids + 20, 70));
        CHECK_OK(ignis_sequence_logits(w.s[2], logits[3], w.t.shape.vocab));
        CHECK(memcmp(logits[0], logits[1], sizeof(float) * (size_t)w.t.shape.vocab) == 0);
        CHECK(memcmp(logits[2], logits[3], sizeof(float) * (size_t)w.t.shape.vocab) == 0);
        windowed_end(&w);
    }
}

/*  A prompt of several chunks, in a cache that has room for one of them besides the windows; all sequences at their
    full context. */
TEST(windows_hold_any_number_of_tokens)
{
    windowed of[2];
    int i;
    SETUP(NULL);
    windowed_begin(&of[0], &cases[1], false, NULL);
    windowed_begin(&of[1], &cases[1], true, NULL);
    for (i = 0; i < SEQUENCES; i++)
        feed(of, i, 0, CONTEXT - 1 - i);
    for (i = 0; i < SEQUENCES; i++)
        SAME(i);
    step_all(of, 1);
    cut(of, 0, CONTEXT - 100); /* two chunks again */
    SAME(0);
    windowed_end(&of[0]);
    windowed_end(&of[1]);
}

/*  The cache is as small as the numbers say, and the memory that is taken differs by as much. */
static void check_memory(void)
{
    const int64_t all = CONTEXT * SEQUENCES, kept = SEQUENCES * 192 + 512; /* windows of up to 64 tokens */
    int i, k;
    for (i = 0; i < COUNT_OF(cases); i++) {
        const test_shape *shape = &cases[i].shape;
        const int64_t bytes = 2 * shape->kv_heads * shape->head_dim * ignis__dtypes[shape->dtype].size;
        int64_t taken[2], layers = 0;
        windowed of;
        ignis_model_info info;
        for (k = 0; k < shape->layers; k++)
            layers += cases[i].windows[k] > 0;
        for (k = 0; k < 2; k++) {
            windowed_begin(&of, &cases[i], k, &taken[k]);
            CHECK_OK(ignis_model_query(of.t.handle, &info));
            CHECK_INT(info.cache_bytes, bytes * ((shape->layers - layers) * all + layers * kept));
            CHECK_INT(info.cache_bytes_of_token, bytes * shape->layers);
            windowed_end(&of);
        }
        CHECK_INT(taken[0] - taken[1], bytes * layers * (all - kept));
    }
}

TEST(memory_of_windows)
{
    SETUP(NULL);
    check_memory();
}

TEST(memory_of_windows_in_a_dry_run)
{
    ignis_desc setup;
    memset(&setup, 0, sizeof setup);
    setup.dry_run = true;
    SETUP(&setup);
    check_memory();
}

/*  Launches and allocations fail anywhere in a prompt and where tokens are computed again. The sequence is as it was,
    and goes on with the same bits. */
TEST(failures_lose_no_token_of_a_window)
{
    static const char *const prefixes[] = {"cuLaunchKernel", "cuStreamSynchronize"};
    windowed of[2];
    int32_t ids[CONTEXT];
    int i, at, step;
    SETUP(NULL);
    windowed_begin(&of[0], &cases[3], false, NULL);
    windowed_begin(&of[1], &cases[3], true, NULL);
    for (i = 0; i < CONTEXT; i++)
        ids[i] = id_at(i, of->t.shape.vocab);
    feed(of, 0, 0, 90);
    feed(of, 0, 90, 190);
    SAME(0);
    for (i = 0; i < COUNT_OF(prefixes); i++)
        for (step = 0; step < 2; step++) {
            ignis_status status = IGNIS_ERROR_CUDA;
            for (at = 1; status != IGNIS_OK && at < 2000; at += 1 + at / 3) {
                if (step == 1)
                    cut(of, 0, 100); /* stale */
                fault_arm(prefixes[i], at, 2);
                status = step ? ignis_sequence_logits(of[1].s[0], (float[MOST]){0}, of[1].t.shape.vocab)
                              : ignis_sequence_feed(of[1].s[0], ids + 190, 200);
                fault_disarm();
                ignis_status_clear();
                if (status != IGNIS_OK)
                    CHECK_INT(ignis_sequence_length(of[1].s[0]), step ? 100 : 190);
            }
            CHECK(status == IGNIS_OK && (i || at > 10));
            if (step == 0)
                cut(of, 0, 190);
            SAME(0);
            cut(of, 0, step ? 100 : 190);
            feed(of, 0, 190 - 90 * step, 190);
        }
    windowed_end(&of[0]);
    windowed_end(&of[1]);
}

/*  More sequences than the model was opened for have room while their windows do; then the error says whose. */
TEST(a_full_cache_of_windows)
{
    windowed w;
    ignis_sequence more[16];
    ignis_sequence_info info;
    int32_t ids[CONTEXT];
    int i, count = 0;
    SETUP(NULL);
    windowed_begin(&w, &cases[1], true, NULL);
    for (i = 0; i < CONTEXT; i++)
        ids[i] = id_at(i, w.t.shape.vocab);
    CHECK_OK(ignis_sequence_query(w.s[0], &info));
    CHECK_INT(info.free_tokens, 3 * 192 + 512); /* no layer has all tokens */
    for (count = 0; count < 16; count++) {
        more[count] = ignis_sequence_begin(w.t.handle);
        if (ignis_sequence_feed(more[count], ids, 250) != IGNIS_OK)
            break;
    }
    CHECK(count >= 5 && count < 16);
    CHECK_STATUS(ignis_sequence_feed(more[count], ids, 250), IGNIS_ERROR_MEMORY, IGNIS_DIAG_CACHE_FULL);
    CHECK_INT(ignis_sequence_length(more[count]), 0);
    CHECK_FAILS(ignis_sequence_feed(more[count], ids, 250), IGNIS_ERROR_MEMORY, IGNIS_DIAG_CACHE_FULL);
    CHECK_MESSAGE_HAS("the cache of layers with a window has 68 pages of 16 tokens");
    CHECK(ignis_sequence_next(more[0], NULL) >= 0); /* the others go on */
    for (i = 0; i <= count; i++)
        CHECK_OK(ignis_sequence_free(more[i]));
    CHECK_OK(ignis_sequence_query(w.s[0], &info));
    CHECK_INT(info.free_tokens, 3 * 192 + 512);
    windowed_end(&w);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
