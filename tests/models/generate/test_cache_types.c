// SPDX-License-Identifier: MIT
/*  test_cache_types.c - keys and values of 8 and 4 bits: what is read beside what was written; attention with the bits
    of a cache of the same numbers, in steps, batches, windows and prompts; texts with the same bits alone, in batches
    and wherever chunks begin; what is refused */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "byte_tokenizer.h"

#include "generate.h"

#include <float.h>

static const char *const type_names[] = {"numbers", "f8", "q8_0", "q4_0"};

/* kernels -------------------------------------------------------------------------------------------------------- */

enum { TOKENS = 150, PAGES = (TOKENS + 15) / 16 };

typedef struct cache_case {
    int heads, kv_heads, head_dim, type;
    ignis_dtype dtype;
    int window;
} cache_case;

/*  A layer's attention over one sequence, whose keys and values are in a cache of a type, and in one of numbers. */
typedef struct cache_test {
    const cache_case *c;
    double *qkv;                                                    /* [TOKENS, width] */
    ignis__array *pages, *rows, *written, *cache[2], *too, *out[2]; /* cache: [keys and values, pages, ...] */
    ignis__array *scratch, *ended, *sinks;
} cache_test;

static int width_of(const cache_case *c) { return (c->heads + 2 * c->kv_heads) * c->head_dim; }

static int cell_elements(const cache_case *c)
{
    return 16 * (IGNIS__CACHE_ROW(c->type, c->head_dim) + IGNIS__CACHE_SCALES(c->type, c->head_dim)) /
           (int)ignis__dtypes[c->dtype].size;
}

static void cache_test_begin(cache_test *t, const cache_case *c)
{
    const int64_t numbers = (int64_t)PAGES * c->kv_heads * 16 * c->head_dim;
    int32_t pages[PAGES];
    int i;
    ignis__op op = step_begin();
    memset(t, 0, sizeof *t);
    t->c = c;
    for (i = 0; i < PAGES; i++)
        pages[i] = (i * 7 + 3) % PAGES;
    t->pages = room(IGNIS_SHAPE(PAGES), IGNIS_I32);
    t->rows = room(IGNIS_SHAPE(TOKENS * (int)sizeof(ignis__generate_row)), IGNIS_U8);
    t->written = room(IGNIS_SHAPE(TOKENS, width_of(c)), c->dtype);
    t->too = room(IGNIS_SHAPE(2, TOKENS, c->kv_heads * c->head_dim), c->dtype);
    t->cache[0] = room(IGNIS_SHAPE(2, PAGES * c->kv_heads * cell_elements(c)), c->dtype);
    t->cache[1] = room(IGNIS_SHAPE(2, numbers), c->dtype);
    t->scratch = room(IGNIS_SHAPE(TOKENS * c->heads * IGNIS__SPLITS * (2 + c->head_dim)), IGNIS_F32);
    t->ended = room(IGNIS_SHAPE(TOKENS * c->heads), IGNIS_I32);
    for (i = 0; i < 2; i++) {
        t->out[i] = room(IGNIS_SHAPE(TOKENS, c->heads * c->head_dim), c->dtype);
        CHECK_OK(ignis_array_fill(handle_of(t->cache[i]), NAN)); /* which nobody may read */
    }
    ignis__upload_i32(&op, c->dtype, t->pages, 0, pages, PAGES);
    step_end(&op);
}

/*  Params of a cache; of: that of the type, or of numbers. */
static void params_of(const cache_test *t, ignis__op *op, int of, ignis__generate_cache *cache, ignis__paged *paged)
{
    const cache_case *c = t->c;
    const ignis__address at = ignis__op_write(op, t->cache[of]);
    memset(cache, 0, sizeof *cache);
    memset(paged, 0, sizeof *paged);
    cache->qkv = paged->q = ignis__op_write(op, t->written);
    cache->k = paged->k = at;
    cache->v = paged->v = at + (ignis__address)(t->cache[of]->numel / 2 * ignis__dtypes[c->dtype].size);
    cache->rows = paged->rows = ignis__op_write(op, t->rows);
    cache->heads = paged->heads = c->heads;
    cache->kv_heads = paged->kv_heads = c->kv_heads;
    cache->head_dim = paged->head_dim = c->head_dim;
    cache->type = paged->type = of ? IGNIS__CACHE_NUMBERS : c->type;
    paged->out = ignis__op_write(op, t->out[of]);
    paged->scratch = ignis__op_write(op, t->scratch);
    paged->ended = ignis__op_write(op, t->ended);
    paged->q_row = width_of(c);
    paged->scale = 1 / sqrt((double)c->head_dim);
    paged->splits = IGNIS__SPLITS;
    paged->window = c->window;
}

/*  Writes q, k and v of all tokens to a cache; what is read of them is in `too`. */
static void append(const cache_test *t, int of)
{
    ignis__op op = step_begin();
    ignis__generate_cache cache;
    ignis__generate_row row;
    ignis__paged paged;
    CHECK_OK(ignis_array_from_host(handle_of(t->written), t->qkv, IGNIS_F64, TOKENS * width_of(t->c)));
    params_of(t, &op, of, &cache, &paged);
    memset(&row, 0, sizeof row);
    row.pages = ignis__op_read(&op, t->pages);
    ignis__upload_rows_from(&op, t->c->dtype, t->rows, &row, TOKENS);
    if (!of) {
        cache.k_too = ignis__op_write(&op, t->too);
        cache.v_too = cache.k_too + (ignis__address)(t->too->numel / 2 * ignis__dtypes[t->c->dtype].size);
    }
    ignis__kv_cache_append(&op, TOKENS, t->c->dtype, &cache, NULL);
    step_end(&op);
}

/*  Elements that are read, `count` of a row of f8 or of a block, are near those that were written: of f8 within half a
    step of an element, or of the least one; of blocks within half a step, or a whole one where Q4_0 has no number
    beyond. The dtype adds its rounding. */
static void check_block(const cache_case *c, const double *x, const double *y, int count)
{
    const double largest = c->dtype == IGNIS_F16 ? 65504 : 3.3895313892515355e38,
                 round = c->dtype == IGNIS_F16    ? 1.0 / 2048
                         : c->dtype == IGNIS_BF16 ? 1.0 / 256
                                                  : 1e-7,
                 least = c->dtype == IGNIS_F16 ? 6e-8 : 2e-38;
    double most = 0, greatest = 0;
    int i, odd = 0, wrong = 0;
    for (i = 0; i < count; i++) {
        odd += !(fabs(x[i]) <= FLT_MAX);
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
        greatest = fabs(x[i]) >= fabs(greatest) ? x[i] : greatest;
    }
    for (i = 0; i < count; i++) {
        const bool same_sign = (x[i] < 0) == (greatest < 0);
        double bound = c->type == IGNIS__CACHE_F8 ? fabs(x[i]) / 16 + most / (1 << 17)
                       : c->type == IGNIS__CACHE_Q8_0
                           ? most * (most > largest * 0.99 ? 1.0 / 100 : 1.0 / 250)
                           : most * (same_sign && fabs(x[i]) < most * 0.93 ? 1.0 / 15.5 : 1.0 / 7.8);
        if (c->type == IGNIS__CACHE_F8 && most > largest * 0.9)
            bound = fabs(x[i]) / 15 + most / (1 << 17);
        bound += fabs(x[i]) * round + least;
        wrong += odd ? y[i] == y[i] : !(fabs(y[i] - x[i]) <= bound);
    }
    CHECK_INT(wrong, 0);
}

static double *values_of(const ignis__array *array) { return array_values(handle_of(array)); }

/*  Makes q, k and v: noise, with rows of all kinds among keys and values. */
static void write_rows(const cache_test *t, bool hard)
{
    const cache_case *c = t->c;
    const double largest = c->dtype == IGNIS_F16 ? 65504 : 3.3895313892515355e38;
    const int width = width_of(c), first = c->heads * c->head_dim;
    int at, i;
    for (at = 0; at < TOKENS; at++)
        for (i = first; hard && i < width; i++) {
            double *x = &t->qkv[at * width + i];
            const int d = i % c->head_dim;
            const bool is_value = i >= first + c->kv_heads * c->head_dim;
            switch (at % 13) {
            case 1: *x = 0; break;
            case 2: *x = d % 3 ? largest : -largest; break;
            case 3: *x *= d == 5 ? 300 : 1; break; /* an outlier channel */
            case 4: *x *= d % 32 == 7 ? 1e-3 : c->dtype == IGNIS_F16 ? 1e-7 : 1e-37; break;
            case 5: *x = d == 9 && is_value ? NAN : *x; break; /* keys are rotated, by an angle of 0 */
            case 6: *x = d == 3 && is_value ? INFINITY : d == 4 && is_value ? -INFINITY : *x; break;
            case 7: *x = d == 8 ? largest : *x; break;
            case 8: *x = (d % 16 - 8) / 8.0; break; /* Q4_0 has all of them */
            case 9: *x = -0.0; break;
            case 10: *x = d % 2 ? 1.75 : 1.8125; break; /* about the greatest number of e4m3 */
            default: break;
            }
        }
}

/*  What is read is near what was written, and a row does not depend on others. */
static void check_rows_of(const cache_case *c)
{
    const int width = width_of(c), block = c->type == IGNIS__CACHE_F8 ? c->head_dim : 32;
    double *rounded, *read;
    cache_test t;
    int part, at, head, d;
    cache_test_begin(&t, c);
    t.qkv = rounded_noise(IGNIS_SHAPE(TOKENS, width), c->dtype, 5, 2);
    write_rows(&t, true);
    CHECK_OK(ignis_array_from_host(handle_of(t.written), t.qkv, IGNIS_F64, TOKENS * width));
    rounded = values_of(t.written);
    append(&t, 0);
    read = values_of(t.too);
    for (part = 0; part < 2; part++)
        for (at = 0; at < TOKENS; at++)
            for (head = 0; head < c->kv_heads; head++)
                for (d = 0; d < c->head_dim; d += block)
                    check_block(c, rounded + at * width + (c->heads + part * c->kv_heads + head) * c->head_dim + d,
                                read + ((part * TOKENS + at) * c->kv_heads + head) * c->head_dim + d, block);
    free(rounded), free(read), free(t.qkv);
    rooms_end(0);
}

/*  Attention of `count` rows from `first` on, one after the other as steps, over a cache of each kind. few: as on a
    device of so many multiprocessors. */
static void check_attention(const cache_test *t, int first, int count, int few, int settled)
{
    const size_t bytes = (size_t)(count * t->c->heads * t->c->head_dim) * (size_t)ignis__dtypes[t->c->dtype].size;
    char *out[2];
    int of, i;
    for (of = 0; of < 2; of++) {
        ignis__op op = step_begin();
        const int all = op.work.device->info.multiprocessors;
        ignis__generate_row rows[TOKENS];
        ignis__generate_cache cache;
        ignis__paged paged;
        memset(rows, 0, sizeof rows);
        params_of(t, &op, of, &cache, &paged);
        for (i = 0; i < count; i++) {
            rows[i].pages = ignis__op_read(&op, t->pages);
            rows[i].position = i == 1 ? -1 : first + i; /* one row does not exist */
        }
        ignis__upload_rows(&op, t->c->dtype, t->rows, rows, count);
        paged.q += (ignis__address)(first * width_of(t->c) * (int)ignis__dtypes[t->c->dtype].size);
        paged.settled = settled;
        op.work.device->info.multiprocessors = few;
        ignis__paged_attention(&op, count, TOKENS, t->c->dtype, &paged);
        op.work.device->info.multiprocessors = all;
        step_end(&op);
        out[of] = (char *)malloc((size_t)t->out[of]->numel * (size_t)ignis__dtypes[t->c->dtype].size);
        CHECK_OK(ignis_array_to_host_raw(handle_of(t->out[of]), out[of],
                                         t->out[of]->numel * ignis__dtypes[t->c->dtype].size));
    }
    if (memcmp(out[0], out[1], bytes) != 0) {
        printf("%s, heads of %d, %d rows from %d, settled %d\n", type_names[t->c->type], t->c->head_dim, count, first,
               settled);
        test__fail(__FILE__, __LINE__, "attention differs from that over a cache of the same numbers");
    }
    free(out[0]), free(out[1]);
}

/*  A chunk from `first` on gathers the keys and values before it: those that were written when they were appended. */
static void check_gathered(const cache_test *t, int first)
{
    const int count = TOKENS - first, row = t->c->kv_heads * t->c->head_dim;
    ignis__array *gathered = room(t->too->shape, t->c->dtype);
    ignis__generate_cache cache;
    ignis__generate_row of;
    ignis__paged paged;
    ignis__op op = step_begin();
    double *read, *expected;
    int part;
    memset(&of, 0, sizeof of);
    params_of(t, &op, 0, &cache, &paged);
    of.pages = ignis__op_read(&op, t->pages);
    of.position = first;
    ignis__upload_rows_from(&op, t->c->dtype, t->rows, &of, count);
    paged.window = 0;
    ignis__chunk_attention(&op, count, TOKENS, &paged, gathered);
    step_end(&op);
    read = values_of(gathered);
    expected = values_of(t->too);
    for (part = 0; part < 2; part++)
        CHECK(memcmp(read + part * TOKENS * row, expected + part * TOKENS * row,
                     sizeof *read * (size_t)(first * row)) == 0);
    free(read), free(expected);
}

static void check_case(const cache_case *c)
{
    const int width = width_of(c), first = c->heads * c->head_dim;
    double *read;
    cache_test t;
    int at, i;
    cache_test_begin(&t, c);
    t.qkv = rounded_noise(IGNIS_SHAPE(TOKENS, width), c->dtype, 6, 2);
    for (at = 20; at < TOKENS; at += 50) /* scales that are large, of keys and values */
        for (i = first; i < width; i++)
            t.qkv[at * width + i] *= c->dtype == IGNIS_F16 ? 3e4 : 1e6;
    append(&t, 0);
    read = values_of(t.too);
    for (at = 0; at < TOKENS; at++)
        for (i = first; i < width; i++) {
            const int part = (i - first) / (c->kv_heads * c->head_dim), in = (i - first) % (c->kv_heads * c->head_dim);
            t.qkv[at * width + i] = read[(part * TOKENS + at) * c->kv_heads * c->head_dim + in];
        }
    append(&t, 1);
    check_gathered(&t, 70);
    check_attention(&t, TOKENS - 1, 1, 64, 0);
    check_attention(&t, 30, 3, 64, 0);
    check_attention(&t, 126, 5, 2, 1); /* by the kernel for many rows, if there is one */
    check_attention(&t, 63, 4, 1, 0);
    free(read), free(t.qkv);
    rooms_end(0);
}

TEST(what_is_read_is_near_what_was_written)
{
    static const cache_case cases[] = {
        {1, 2, 32, IGNIS__CACHE_F8, IGNIS_BF16, 0},    {1, 1, 16, IGNIS__CACHE_F8, IGNIS_F16, 0},
        {1, 1, 256, IGNIS__CACHE_F8, IGNIS_F32, 0},    {1, 2, 96, IGNIS__CACHE_Q8_0, IGNIS_BF16, 0},
        {1, 1, 32, IGNIS__CACHE_Q8_0, IGNIS_F16, 0},   {1, 1, 64, IGNIS__CACHE_Q8_0, IGNIS_F32, 0},
        {1, 1, 256, IGNIS__CACHE_Q4_0, IGNIS_BF16, 0}, {1, 2, 64, IGNIS__CACHE_Q4_0, IGNIS_F16, 0},
        {1, 1, 32, IGNIS__CACHE_Q4_0, IGNIS_F32, 0}};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++)
        check_rows_of(&cases[i]);
}

TEST(attention_has_the_bits_of_the_same_numbers)
{
    static const cache_case cases[] = {
        {4, 1, 128, IGNIS__CACHE_F8, IGNIS_BF16, 0},   {2, 1, 128, IGNIS__CACHE_Q8_0, IGNIS_BF16, 0},
        {10, 1, 96, IGNIS__CACHE_Q4_0, IGNIS_BF16, 0}, {2, 2, 48, IGNIS__CACHE_F8, IGNIS_F16, 0},
        {3, 1, 64, IGNIS__CACHE_Q4_0, IGNIS_F16, 0},   {2, 1, 32, IGNIS__CACHE_Q8_0, IGNIS_F16, 20},
        {2, 1, 64, IGNIS__CACHE_F8, IGNIS_F32, 0},     {2, 1, 32, IGNIS__CACHE_Q4_0, IGNIS_F32, 0},
        {2, 1, 256, IGNIS__CACHE_Q8_0, IGNIS_BF16, 0}};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++)
        check_case(&cases[i]);
}

/* texts ---------------------------------------------------------------------------------------------------------- */

enum { CONTEXT = 320, SEQUENCES = 4, MOST = 80 };

static const test_shape shape = {2, 4, 2, 32, 48, 40, 71, false, true, false, IGNIS_BF16};

static void typed_begin(test_model *t, const test_shape *of, int type)
{
    test_model_begin(t, of, CONTEXT, SEQUENCES);
    t->model->cache_type = (ignis_cache_type)type;
}

static void feed(ignis_sequence s, int from, int to)
{
    int32_t ids[CONTEXT];
    int i;
    for (i = from; i < to; i++)
        ids[i] = id_at(i, shape.vocab);
    CHECK_OK(ignis_sequence_feed(s, ids + from, to - from));
}

static void logits_of(ignis_sequence s, float *logits)
{
    memset(logits, 0, sizeof *logits * MOST);
    CHECK_OK(ignis_sequence_logits(s, logits, shape.vocab));
}

/*  A prompt at once and in chunks that begin elsewhere; its fork; a text of single tokens; all of them in batches, and
    alone. windowed: layer 0 sees 20 keys. numbers: the logits with a cache of numbers, to fill in or to compare. */
static void check_texts(const test_shape *of, int type, bool windowed, float *numbers)
{
    enum { LENGTH = 150, STEPS = 3 };
    ignis_sampling_desc sampling[SEQUENCES];
    ignis_sequence s[SEQUENCES];
    float logits[SEQUENCES][MOST], alone[MOST], far = 0;
    int32_t drawn[STEPS][SEQUENCES];
    test_model t;
    int i, step;
    typed_begin(&t, of, type);
    t.model->layer[0].window = windowed ? 20 : 0;
    memset(sampling, 0, sizeof sampling);
    for (i = 0; i < 3; i++)
        s[i] = ignis_sequence_begin(t.handle);
    feed(s[0], 0, LENGTH);
    feed(s[1], 0, 66);
    feed(s[1], 66, LENGTH);
    for (i = 0; i < 20; i++)
        feed(s[2], i, i + 1);
    for (i = 0; i < 2; i++)
        logits_of(s[i], logits[i]);
    CHECK(memcmp(logits[0], logits[1], sizeof logits[0]) == 0);
    for (i = 0; i < shape.vocab; i++)
        far = fabsf(logits[0][i] - numbers[i]) > far ? fabsf(logits[0][i] - numbers[i]) : far;
    if (type == IGNIS__CACHE_NUMBERS)
        memcpy(numbers, logits[0], sizeof logits[0]);
    else /* logits are up to 5 or so */
        CHECK(far > 0 && far < (type == IGNIS__CACHE_F8 ? 0.4 : type == IGNIS__CACHE_Q8_0 ? 0.15 : 1.5));
    s[3] = ignis_sequence_fork(s[0]);
    sampling[1].temperature = sampling[3].temperature = 1;
    sampling[3].seed = 9;
    for (step = 0; step < STEPS; step++)
        CHECK_OK(ignis_sequence_next_all(s, SEQUENCES, sampling, drawn[step]));
    for (i = 0; i < SEQUENCES; i++)
        logits_of(s[i], logits[i]);
    for (i = 0; i < SEQUENCES; i++) {
        CHECK_OK(ignis_sequence_truncate(s[i], ignis_sequence_length(s[i]) - STEPS));
        for (step = 0; step < STEPS; step++)
            CHECK_INT(ignis_sequence_next(s[i], &sampling[i]), drawn[step][i]);
        logits_of(s[i], alone);
        CHECK(memcmp(alone, logits[i], sizeof alone) == 0);
        CHECK_OK(ignis_sequence_free(s[i]));
    }
    test_model_end(&t);
}

TEST(texts_are_the_same_alone_and_in_batches)
{
    static const test_shape f16 = {2, 2, 1, 64, 48, 40, 71, false, false, true, IGNIS_F16},
                            f32 = {1, 2, 2, 32, 40, 40, 71, false, true, false, IGNIS_F32};
    float numbers[MOST];
    int type;
    SETUP(NULL);
    memset(numbers, 0, sizeof numbers);
    for (type = 0; type < IGNIS_CACHE_COUNT; type++)
        check_texts(&shape, type, false, numbers);
    check_texts(&f16, IGNIS__CACHE_NUMBERS, true, numbers);
    check_texts(&f16, IGNIS__CACHE_Q8_0, true, numbers);
    check_texts(&f32, IGNIS__CACHE_NUMBERS, false, numbers);
    check_texts(&f32, IGNIS__CACHE_F8, false, numbers);
}

TEST(kept_prefixes_have_the_bits_of_computed_ones)
{
    ignis_sequence s[2];
    float logits[2][MOST];
    ignis_prefix_info info;
    test_model t;
    int i;
    SETUP(NULL);
    typed_begin(&t, &shape, IGNIS__CACHE_Q4_0);
    for (i = 0; i < 2; i++) {
        s[i] = ignis_sequence_begin(t.handle);
        CHECK_OK(ignis_sequence_share_prefix(s[i], NULL));
        feed(s[i], 0, 170);
        logits_of(s[i], logits[i]);
    }
    CHECK_OK(ignis_model_prefixes(t.handle, &info));
    CHECK(info.found > 0);
    CHECK(memcmp(logits[0], logits[1], sizeof logits[0]) == 0);
    for (i = 0; i < 2; i++)
        CHECK_OK(ignis_sequence_free(s[i]));
    test_model_end(&t);
}

/*  A saved sequence continues with the same bits, also behind a page that is full in part; in a model whose cache has
    another type it is refused. */
TEST(saved_sequences_continue_with_the_same_bits)
{
    int type;
    SETUP(NULL);
    for (type = IGNIS__CACHE_F8; type < IGNIS_CACHE_COUNT; type++) {
        float logits[2][MOST];
        ignis_sequence s[2];
        test_model t;
        typed_begin(&t, &shape, type);
        s[0] = ignis_sequence_begin(t.handle);
        feed(s[0], 0, 21);
        logits_of(s[0], logits[0]);
        CHECK_OK(ignis_sequence_save(s[0], test_path("s")));
        s[1] = ignis_sequence_load(t.handle, test_path("s"));
        feed(s[0], 21, 23);
        feed(s[1], 21, 23);
        logits_of(s[0], logits[0]);
        logits_of(s[1], logits[1]);
        CHECK(memcmp(logits[0], logits[1], sizeof logits[0]) == 0);
        CHECK_OK(ignis_sequence_free(s[0]));
        CHECK_OK(ignis_sequence_free(s[1]));
        test_model_end(&t);
        typed_begin(&t, &shape, type % 3 + 1);
        CHECK_FAILS(ignis_sequence_load(t.handle, test_path("s")), IGNIS_ERROR_MISMATCH, IGNIS_DIAG_SEQUENCE_MODEL);
        test_model_end(&t);
    }
}

TEST(memory_of_cache_types)
{
    static const int expected[] = {64, 33, 34, 18}; /* bytes of a key of 32 elements */
    int type;
    SETUP(NULL);
    for (type = 0; type < IGNIS_CACHE_COUNT; type++) {
        const ignis__engine *engine;
        ignis_sequence s;
        test_model t;
        typed_begin(&t, &shape, type);
        s = ignis_sequence_begin(t.handle);
        engine = (const ignis__engine *)t.model->engine;
        CHECK_INT(ignis__array_bytes(engine->caches[IGNIS__PAGES_OF_ALL]),
                  (int64_t)CONTEXT * SEQUENCES * shape.layers * 2 * shape.kv_heads * expected[type]);
        CHECK_OK(ignis_sequence_free(s));
        test_model_end(&t);
    }
}

/*  A model that a type of cache does not suit is refused, by what it has. */
static void check_refused(int head_dim, ignis_dtype dtype, int latent, int type, const char *message)
{
    test_shape of = shape;
    test_model t;
    int64_t before;
    of.head_dim = head_dim;
    of.dtype = dtype;
    typed_begin(&t, &of, type);
    t.model->latent = t.model->rotary = latent;
    before = memory().live_bytes;
    CHECK_FAILS(ignis_sequence_begin(t.handle), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS(message);
    CHECK_INT(memory().live_bytes, before);
    t.model->latent = 0;
    test_model_end(&t);
}

TEST(models_that_a_type_does_not_suit)
{
    SETUP(NULL);
    check_refused(24, IGNIS_BF16, 0, IGNIS__CACHE_F8,
                  "to be f8, and heads have 24 elements; such a cache has multiples of 16");
    check_refused(48, IGNIS_BF16, 0, IGNIS__CACHE_Q8_0,
                  "to be q8_0, and heads have 48 elements; such a cache has multiples of 32");
    check_refused(80, IGNIS_F16, 0, IGNIS__CACHE_Q4_0, "to be q4_0, and heads have 80 elements");
    check_refused(32, IGNIS_F64, 0, IGNIS__CACHE_F8, "the model has dtype f64");
    check_refused(32, IGNIS_BF16, 16, IGNIS__CACHE_Q8_0, "the model has latents");
}

int main(int argc, char **argv) { return test_run(argc, argv); }
