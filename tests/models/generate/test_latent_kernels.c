// SPDX-License-Identifier: MIT
/*  test_latent_kernels.c - attention to latents at the sizes of true models, against a reference in double; rows with
    the same bits alone, among others and in any chunk */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "generate.h"

#include <math.h>

enum { SEQUENCES = 3, LONGEST = 200, PAGES_EACH = (LONGEST + 15) / 16, PAGES = SEQUENCES * PAGES_EACH };
enum { SPLITS = 5, MOST = 24 }; /* SPLITS: more than a row has; MOST: rows of a launch */

typedef struct latent_case {
    int latent, rotary, heads;
    ignis_dtype dtype;
} latent_case;

/*  Sequences, whose pages are scattered, and all that attention to them has in device memory. */
typedef struct latent_test {
    const latent_case *c;
    ignis__model model;
    ignis__array *pages[SEQUENCES], *cache, *rows, *q, *out, *scratch, *ended;
    double *keys, *queries; /* [PAGES * 16, width], [MOST, heads, width] */
    size_t bytes;           /* of a row of queries */
    char *raw;
} latent_test;

static int page_of(int sequence, int position) { return (sequence * PAGES_EACH + position / 16) * 11 % PAGES; }

static void latent_test_begin(latent_test *t, const latent_case *c)
{
    const int width = c->latent + c->rotary;
    ignis__op op = step_begin();
    int s, i;
    memset(t, 0, sizeof *t);
    t->c = c;
    t->model.latent = c->latent, t->model.rotary = c->rotary, t->model.heads = c->heads, t->model.dtype = c->dtype;
    for (s = 0; s < SEQUENCES; s++) {
        int32_t pages[PAGES_EACH];
        for (i = 0; i < PAGES_EACH; i++)
            pages[i] = page_of(s, 16 * i);
        t->pages[s] = room(IGNIS_SHAPE(PAGES_EACH), IGNIS_I32);
        ignis__upload_i32(&op, c->dtype, t->pages[s], 0, pages, PAGES_EACH);
    }
    step_end(&op);
    t->cache = room_noise(IGNIS_SHAPE(PAGES * 16, width), c->dtype, 31, 1, &t->keys);
    t->q = room_noise(IGNIS_SHAPE(MOST, c->heads * width), c->dtype, 32, 1, &t->queries);
    t->bytes = (size_t)(c->heads * width) * (size_t)ignis__dtypes[c->dtype].size;
    t->raw = (char *)malloc(MOST * t->bytes);
    CHECK_OK(ignis_array_to_host_raw(handle_of(t->q), t->raw, MOST * (int64_t)t->bytes));
    t->rows = room(IGNIS_SHAPE(MOST * (int)sizeof(ignis__generate_row)), IGNIS_U8);
    t->out = room(IGNIS_SHAPE(MOST, c->heads * c->latent), c->dtype);
    t->scratch = room(IGNIS_SHAPE(4 * c->heads * SPLITS * (2 + c->latent)), ignis__wide_dtype(c->dtype));
    t->ended = room(IGNIS_SHAPE(4 * c->heads), IGNIS_I32);
}

/*  Computes `count` rows, at most 4 unless they are a chunk. query: which query each one has. Returns what is in out,
    which the caller frees. */
static double *latent_test_run(latent_test *t, int count, const int *sequence, const int *position, const int *query,
                               bool is_chunk)
{
    ignis__generate_row rows[MOST];
    char *raw = (char *)calloc(MOST, t->bytes);
    ignis__op op;
    ignis__paged paged;
    int i;
    for (i = 0; i < count; i++)
        memcpy(raw + t->bytes * (size_t)i, t->raw + t->bytes * (size_t)query[i], t->bytes);
    CHECK_OK(ignis_array_from_host_raw(handle_of(t->q), raw, MOST * (int64_t)t->bytes));
    CHECK_OK(ignis_array_fill(handle_of(t->out), NAN));
    free(raw);
    op = step_begin();
    memset(rows, 0, sizeof rows);
    memset(&paged, 0, sizeof paged);
    for (i = 0; i < count; i++) {
        rows[i].pages = ignis__op_read(&op, t->pages[sequence[i]]);
        rows[i].position = position[i];
    }
    ignis__upload_rows(&op, t->c->dtype, t->rows, rows, count);
    paged.q = ignis__op_read(&op, t->q);
    paged.out = ignis__op_write(&op, t->out);
    paged.k = ignis__op_read(&op, t->cache);
    paged.rows = ignis__op_read(&op, t->rows);
    paged.scratch = ignis__op_write(&op, t->scratch);
    paged.ended = ignis__op_write(&op, t->ended);
    paged.q_row = (int64_t)t->c->heads * (t->c->latent + t->c->rotary);
    paged.scale = 0.3 / sqrt((double)(t->c->latent + t->c->rotary));
    paged.heads = t->c->heads;
    paged.kv_heads = 1;
    paged.head_dim = t->c->latent;
    paged.splits = SPLITS;
    paged.count = count;
    ignis__latent_attention(&op, &t->model, &paged, is_chunk);
    step_end(&op);
    return numbers_of(t->out);
}

/*  Compares a row of `got` with the reference. */
static void check_row(const latent_test *t, const double *got, int sequence, int position, int query)
{
    const latent_case *c = t->c;
    const int width = c->latent + c->rotary;
    /* 8 and 11 bits of weights and results, whose sizes are below 1 beside several keys; sums of f32 and f64 */
    const double tolerance = c->dtype == IGNIS_BF16  ? 3e-3
                             : c->dtype == IGNIS_F16 ? 4e-4
                             : c->dtype == IGNIS_F32 ? 5e-7
                                                     : 1e-13;
    double score[LONGEST], expected[1024], worst = 0;
    int h, j, d;
    for (h = 0; h < c->heads; h++) {
        const double *q = t->queries + ((int64_t)query * c->heads + h) * width;
        double top = -1e300, sum = 0;
        memset(expected, 0, sizeof expected);
        for (j = 0; j <= position; j++) {
            const double *k = t->keys + ((int64_t)page_of(sequence, j) * 16 + j % 16) * width;
            for (score[j] = 0, d = 0; d < width; d++)
                score[j] += q[d] * k[d];
            score[j] *= 0.3 / sqrt(width);
            top = fmax(top, score[j]);
        }
        for (j = 0; j <= position; j++)
            sum += score[j] = exp(score[j] - top);
        for (j = 0; j <= position; j++) {
            const double *k = t->keys + ((int64_t)page_of(sequence, j) * 16 + j % 16) * width;
            for (d = 0; d < c->latent; d++)
                expected[d] += score[j] / sum * k[d];
        }
        for (d = 0; d < c->latent; d++) {
            const double off = fabs(got[h * c->latent + d] - expected[d]);
            worst = !(off <= worst) ? off : worst;
        }
    }
    if (getenv("IGNIS_TEST_SHOW"))
        printf("%d + %d, %d heads, dtype %d, position %d: off by %g\n", c->latent, c->rotary, c->heads, (int)c->dtype,
               position, worst);
    CHECK(worst <= tolerance);
}

/*  Rows of a step: together, with one that does not exist; twice, so that counters are as before; then alone. */
static void check_steps(latent_test *t)
{
    static const int sequence[] = {0, 1, 0, 2}, position[] = {0, 68, -1, 150}, query[] = {0, 1, 2, 3};
    const int own = t->c->heads * t->c->latent;
    double *together = latent_test_run(t, 4, sequence, position, query, false), *again, *alone;
    int i, d;
    again = latent_test_run(t, 4, sequence, position, query, false);
    CHECK(memcmp(together, again, sizeof *again * 4 * (size_t)own) == 0);
    free(again);
    for (d = 0; d < own; d++)
        CHECK_NUMBER(together[2 * own + d], 0);
    for (i = 0; i < 4; i++) {
        if (position[i] < 0)
            continue;
        check_row(t, together + i * own, sequence[i], position[i], query[i]);
        alone = latent_test_run(t, 1, sequence + i, position + i, query + i, false);
        CHECK(memcmp(alone, together + i * own, sizeof *alone * (size_t)own) == 0);
        free(alone);
    }
    free(together);
}

/*  Rows of a prompt in one chunk, and the last ones in chunks that begin elsewhere. */
static void check_chunks(latent_test *t)
{
    enum { ROWS = 11, FIRST = 60 };
    static const int starts[] = {1, 7, 10};
    const int own = t->c->heads * t->c->latent;
    int sequence[ROWS], position[ROWS], query[ROWS], i;
    double *all, *some;
    for (i = 0; i < ROWS; i++)
        sequence[i] = 1, position[i] = FIRST + i, query[i] = i;
    all = latent_test_run(t, ROWS, sequence, position, query, true);
    for (i = 0; i < ROWS; i += 5)
        check_row(t, all + i * own, 1, position[i], query[i]);
    for (i = 0; i < COUNT_OF(starts); i++) {
        const int from = starts[i];
        some = latent_test_run(t, ROWS - from, sequence + from, position + from, query + from, true);
        CHECK(memcmp(some, all + from * own, sizeof *some * (size_t)((ROWS - from) * own)) == 0);
        free(some);
    }
    free(all);
}

/*  multiprocessors, shared: of the device, 0: as it has. plain: the kernel of steps computes chunks, too, 4 rows at a
    time. */
static void check_case(const latent_case *c, int multiprocessors, int shared, bool plain)
{
    const int before = room_count;
    ignis_device_info *info, own;
    latent_test t;
    latent_test_begin(&t, c);
    info = &ignis__device_get("test", 0)->info;
    own = *info;
    info->multiprocessors = multiprocessors ? multiprocessors : info->multiprocessors;
    info->shared_per_block = shared ? shared : info->shared_per_block;
    check_steps(&t);
    if (!plain)
        check_chunks(&t);
    *info = own;
    free(t.keys), free(t.queries), free(t.raw);
    rooms_end(before);
}

/*  The sizes of DeepSeek-V2-Lite, V2 and V3, heads that are no multiple of a block's, and small sizes. */
TEST(attention_to_latents)
{
    static const latent_case cases[] = {
        {512, 64, 16, IGNIS_BF16}, {512, 64, 128, IGNIS_BF16}, {512, 64, 20, IGNIS_F16}, {512, 64, 3, IGNIS_F16},
        {256, 32, 40, IGNIS_BF16}, {24, 8, 5, IGNIS_BF16},     {72, 16, 70, IGNIS_F16},  {8, 8, 1, IGNIS_BF16},
        {512, 64, 18, IGNIS_F32},  {24, 8, 9, IGNIS_F32},      {512, 64, 9, IGNIS_F64},
    };
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++)
        check_case(&cases[i], i % 2 ? 132 : 0, 0, cases[i].dtype == IGNIS_F32 || cases[i].dtype == IGNIS_F64);
    check_case(&cases[0], 1, 0, false); /* one block has all splits */
}

/*  As on sm_80, which has one tile of keys in shared memory; as on sm_86, with 16 heads beside it; and with too little
    for either. */
TEST(attention_to_latents_with_less_shared_memory)
{
    static const int shared[] = {163 << 10, 99 << 10, 48 << 10};
    static const latent_case cases[] = {{512, 64, 24, IGNIS_BF16}, {512, 64, 4, IGNIS_F16}};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(shared); i++)
        check_case(&cases[i % 2], 0, shared[i], i == 2);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
