// SPDX-License-Identifier: MIT
/*  test_products_f8.c - products of rows rounded to e4m3 with weights of F8: beside double precision, and with the same
    bits in every number of rows */
#include "tensor.h"

#include "ignis_models.h"

#include "generate.h"

#include <float.h>
#include <math.h>

/*  Of the device, as products see it; 0: those that there are. They decide whether clusters divide K, and how many
    tiles a block has. */
static int multiprocessors;

typedef struct product_case {
    ignis_dtype dtype;
    int rows, n, k;
    ignis__gemv_kind kind;
    bool gated, biased, adapted;
} product_case;

/*  The arrays of a case, and their numbers. */
typedef struct product {
    const product_case *of;
    int parts, width;
    ignis_dtype out_dtype;
    ignis__array *x, *weights, *bias, *start, *scratch, *delta;
    double *x_numbers, *w_numbers, *b_numbers, *start_numbers, *delta_numbers;
} product;

static ignis__array *f8_weights(int rows, int k, uint64_t seed, double factor, double **numbers)
{
    ignis__blocks blocks;
    unsigned char *bytes = blocks_bytes(rows, k, IGNIS__GGUF_F8, rows, IGNIS__GGUF_F8, seed, factor, &blocks, numbers);
    ignis__array *array = room(IGNIS_SHAPE(ignis__blocks_bytes(&blocks, blocks.count)), IGNIS_U8);
    CHECK_OK(ignis_array_from_host(handle_of(array), bytes, IGNIS_U8, array->numel));
    blocks.rounds_rows = true;
    array->blocks = blocks;
    free(bytes);
    return array;
}

static void product_begin(product *t, const product_case *c, double factor)
{
    memset(t, 0, sizeof *t);
    t->of = c;
    t->parts = c->gated ? 2 : 1;
    t->out_dtype = c->kind == IGNIS__GEMV_ADD || c->kind == IGNIS__GEMV_LOGITS ? IGNIS_F32 : c->dtype;
    t->width = c->kind == IGNIS__GEMV_LOGITS ? c->n + 3 : c->n;
    t->x = room_noise(IGNIS_SHAPE(c->rows, c->k), c->dtype, 1, factor, &t->x_numbers);
    t->weights = f8_weights(t->parts * c->n, c->k, 2, 1, &t->w_numbers);
    t->bias = c->biased ? room_noise(IGNIS_SHAPE(t->parts * c->n), c->dtype, 3, 1, &t->b_numbers) : NULL;
    t->start = room_noise(IGNIS_SHAPE(c->rows, t->width), t->out_dtype, 4, 1, &t->start_numbers);
    t->delta =
        c->adapted ? room_noise(IGNIS_SHAPE(c->rows, t->parts * t->width), IGNIS_F32, 5, 1, &t->delta_numbers) : NULL;
    t->scratch = room(IGNIS_SHAPE(ignis__f8_rows_bytes(c->rows, c->k)), IGNIS_U8);
}

static void product_end(product *t)
{
    free(t->x_numbers), free(t->w_numbers), free(t->b_numbers), free(t->start_numbers), free(t->delta_numbers);
}

/*  Multiplies `count` rows from `first` on. out: [rows, width], of which these rows are written. */
static void multiply_rows(const product *t, ignis__array *out, int first, int count)
{
    ignis_array x = ignis_array_slice(handle_of(t->x), 0, first, count),
                to = ignis_array_slice(handle_of(out), 0, first, count), delta = IGNIS_NO_ARRAY;
    ignis__array *x_array = ignis__array_hold("test", x), *to_array = ignis__array_hold("test", to),
                 *delta_array = NULL;
    ignis__op op = step_begin();
    const int own = op.work.device->info.multiprocessors;
    ignis__gemv_desc desc;
    memset(&desc, 0, sizeof desc);
    if (t->delta) {
        delta = ignis_array_slice(handle_of(t->delta), 0, first, count);
        delta_array = ignis__array_hold("test", delta);
    }
    desc.count = count;
    desc.kind = t->of->kind;
    desc.gated = t->of->gated;
    desc.out = to_array;
    desc.x = x_array;
    desc.weights = t->weights;
    desc.bias = t->bias;
    desc.dequantised = t->scratch;
    desc.delta = delta_array;
    op.work.device->info.multiprocessors = multiprocessors ? multiprocessors : own;
    ignis__gemv_run(&op, &desc);
    op.work.device->info.multiprocessors = own;
    step_end(&op);
    ignis__array_drop("test", x_array), ignis__array_drop("test", to_array);
    drop(x), drop(to);
    if (delta_array) {
        ignis__array_drop("test", delta_array);
        drop(delta);
    }
}

static double *product_of_rows(const product *t, int first, int count)
{
    ignis__array *out = room(IGNIS_SHAPE(t->of->rows, t->width), t->out_dtype);
    double *got;
    CHECK_OK(ignis_array_from_host(handle_of(out), t->start_numbers, IGNIS_F64, out->numel));
    multiply_rows(t, out, first, count);
    got = numbers_of(out);
    rooms_end(room_count - 1);
    return got;
}

static bool has_wgmma(void)
{
    ignis_device_info info;
    CHECK_OK(ignis_device_query(0, &info));
    return info.compute_major == 9;
}
#define NEEDS_WGMMA() \
    if (!has_wgmma()) \
    SKIP("the products need sm_90a")

/*  Rounds a row as ignis_gemv_f8_rows does. */
static void round_row(const double *x, double *to, int k)
{
    float most = 0, scale, value;
    uint8_t bits;
    int i;
    for (i = 0; i < k; i++)
        most = fmaxf(most, fabsf((float)x[i]));
    scale = fmaxf(most / 448.0f, FLT_MIN);
    for (i = 0; i < k; i++) {
        value = (float)x[i] * (1.0f / scale);
        value = value > 448 ? 448 : value < -448 ? -448 : value;
        ignis__convert(&bits, IGNIS_F8_E4M3, &value, IGNIS_F32, 1);
        ignis__convert(&value, IGNIS_F32, &bits, IGNIS_F8_E4M3, 1);
        to[i] = (double)value * (double)scale;
    }
}

static double sigmoid_of(double x) { return 1 / (1 + exp(-x)); }
static double gelu_of(double y) { return y * sigmoid_of(1.5957691216057308 * (y + 0.044715 * y * y * y)); }

/*  Returns result [r, c] of the rounded rows in double precision. size: receives the sum of the sizes of all terms. */
static double expected(const product *t, const double *rounded, int r, int c, double *size)
{
    const product_case *of = t->of;
    double sum[2] = {0, 0};
    int part, i;
    *size = 0;
    for (part = 0; part < t->parts; part++) {
        const double *w = t->w_numbers + (int64_t)(c + part * of->n) * of->k, *x = rounded + (int64_t)r * of->k;
        for (i = 0; i < of->k; i++) {
            sum[part] += x[i] * w[i];
            *size += fabs(x[i] * w[i]);
        }
        sum[part] += t->b_numbers ? t->b_numbers[c + part * of->n] : 0;
        sum[part] += t->delta_numbers ? t->delta_numbers[(int64_t)r * t->parts * t->width + part * t->width + c] : 0;
    }
    if (of->gated)
        return (of->kind == IGNIS__GEMV_GELU ? gelu_of(sum[0]) : sum[0] * sigmoid_of(sum[0])) * sum[1];
    return of->kind == IGNIS__GEMV_GELU  ? gelu_of(sum[0])
           : of->kind == IGNIS__GEMV_ADD ? t->start_numbers[(int64_t)r * t->width + c] + sum[0]
                                         : sum[0];
}

/*  Results of all rows, beside double precision. Tensor cores keep 13 bits or more below the greatest of the 32
    products that they add at a time: of 128, whose sizes differ little, a sum is off by 2^-11 of all sizes at most. An
    activation has a slope of at most 1.1, and a gate multiplies it by the other sum. */
OPTIMIZED static void check_numbers(const product *t, const double *got)
{
    const product_case *c = t->of;
    const double step = c->dtype == IGNIS_F16 ? 1.0 / 1024 : 1.0 / 128;
    double *rounded = (double *)calloc((size_t)(c->rows * c->k), sizeof *rounded);
    int r, column, wrong = 0;
    for (r = 0; r < c->rows; r++)
        round_row(t->x_numbers + (int64_t)r * c->k, rounded + (int64_t)r * c->k, c->k);
    for (r = 0; r < c->rows && !wrong; r++)
        for (column = 0; column < c->n && !wrong; column++) {
            double size, y = expected(t, rounded, r, column, &size), allowed;
            allowed =
                size / 2048 * (c->gated ? 4 + fabs(y) : 1.1) + 1e-5 + (t->out_dtype == c->dtype ? step * fabs(y) : 0);
            if (!(fabs(got[(int64_t)r * t->width + column] - y) <= allowed)) {
                char text[256];
                snprintf(text, sizeof text, "%d rows, %d by %d, kind %d, gated %d: [%d, %d] is %.9g, expected %.9g",
                         c->rows, c->n, c->k, (int)c->kind, (int)c->gated, r, column,
                         got[(int64_t)r * t->width + column], y);
                test__fail(__FILE__, __LINE__, text);
                wrong = 1;
            }
        }
    free(rounded);
}

/*  Each number of rows up to those of the case gives rows the same bits; so does each number of multiprocessors. With
    2, 128 rows of K = 2560 are divided by clusters, which take three tiles. */
static void check_bits(const product *t, const double *all)
{
    static const int counts[] = {1, 2, 7, 8, 9, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 257, 511, 512},
                     processors[] = {1, 2, 24, 0};
    const int rows = t->of->rows;
    int i;
    for (i = 0; i < COUNT_OF(counts) && counts[i] <= rows; i++) {
        const int count = counts[i], first = count == rows ? 0 : (i * 37) % (rows - count + 1);
        const size_t at = (size_t)first * (size_t)t->width, size = (size_t)count * (size_t)t->width;
        double *got;
        multiprocessors = processors[i % 4];
        got = product_of_rows(t, first, count);
        multiprocessors = 0;
        if (memcmp(got + at, all + at, sizeof *got * size) != 0) {
            char text[128];
            snprintf(text, sizeof text, "%d rows from %d on have other bits than those of %d", count, first, rows);
            test__fail(__FILE__, __LINE__, text);
        }
        free(got);
    }
}

static void check_product(const product_case *c)
{
    const int before = room_count;
    product t;
    double *got;
    product_begin(&t, c, 1);
    got = product_of_rows(&t, 0, c->rows);
    check_numbers(&t, got);
    check_bits(&t, got);
    free(got);
    product_end(&t);
    rooms_end(before);
}

TEST(rows_have_the_same_bits_in_every_batch)
{
    static const product_case cases[] = {
        {IGNIS_BF16, 512, 136, 384, IGNIS__GEMV_OUT, false, true, false},
        {IGNIS_F16, 130, 264, 2560, IGNIS__GEMV_ADD, false, false, false},
    };
    int i;
    SETUP(NULL);
    NEEDS_WGMMA();
    for (i = 0; i < COUNT_OF(cases); i++)
        check_product(&cases[i]);
}

/*  K of one unit, of an odd number of them, of fewer records than slices; n that ends within a tile. */
TEST(products_of_every_kind)
{
    static const product_case cases[] = {
        {IGNIS_BF16, 9, 24, 128, IGNIS__GEMV_OUT, false, false, false},
        {IGNIS_F16, 17, 13, 640, IGNIS__GEMV_OUT, false, true, true},
        {IGNIS_BF16, 33, 130, 256, IGNIS__GEMV_GELU, false, true, false},
        {IGNIS_F16, 3, 257, 512, IGNIS__GEMV_LOGITS, false, false, false},
        {IGNIS_BF16, 129, 72, 896, IGNIS__GEMV_OUT, true, true, false},
        {IGNIS_F16, 12, 24, 768, IGNIS__GEMV_GELU, true, false, true},
        {IGNIS_BF16, 70, 33, 2432, IGNIS__GEMV_ADD, false, true, false},
    };
    int i;
    SETUP(NULL);
    NEEDS_WGMMA();
    for (i = 0; i < COUNT_OF(cases); i++)
        check_product(&cases[i]);
}

/*  Rows of zeros and of the greatest and the least numbers are as in double precision; NaN and infinities make all
    results of their rows NaN, and change no other row. */
TEST(rows_of_special_numbers)
{
    enum { ROWS = 7, K = 384 };
    static const product_case c = {IGNIS_BF16, ROWS, 40, K, IGNIS__GEMV_OUT, false, false, false};
    const int before = room_count;
    const double largest = 3.3895313892515355e38;
    product t;
    double *got, *alone;
    int r, i;
    SETUP(NULL);
    NEEDS_WGMMA();
    product_begin(&t, &c, 1);
    for (i = 0; i < K; i++) {
        t.x_numbers[1 * K + i] = 0;
        t.x_numbers[2 * K + i] = i == 200 ? largest : 0;
        t.x_numbers[3 * K + i] = i % 128 == 5 ? -largest / 1024 : 1;
        t.x_numbers[4 * K + i] = i % 2 ? 1.1754943508222875e-38 : -2.938735877055719e-39;
    }
    t.x_numbers[5 * K + 300] = NAN;
    t.x_numbers[6 * K + 7] = -INFINITY;
    CHECK_OK(ignis_array_from_host(handle_of(t.x), t.x_numbers, IGNIS_F64, ROWS * K));
    got = product_of_rows(&t, 0, ROWS);
    for (r = 5; r < ROWS; r++)
        for (i = 0; i < c.n; i++)
            CHECK(got[r * c.n + i] != got[r * c.n + i]);
    for (i = 0; i < c.n; i++)
        CHECK(got[c.n + i] == 0);
    for (r = 0; r < 5; r++) {
        alone = product_of_rows(&t, r, 1);
        CHECK(memcmp(got + r * c.n, alone + r * c.n, sizeof *got * (size_t)c.n) == 0);
        free(alone);
    }
    {
        product_case finite = c;
        finite.rows = 5;
        t.of = &finite;
        check_numbers(&t, got);
    }
    free(got);
    product_end(&t);
    rooms_end(before);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
