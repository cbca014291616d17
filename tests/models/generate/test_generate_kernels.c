// SPDX-License-Identifier: MIT
/*  test_generate_kernels.c - kernels of generation: products, cache, attention and draw, and whole models, against
    references in double; rows with the same bits alone and among others */
#include "fault.h"
#include "tensor.h"

#include "ignis_models.h"

#include "byte_tokenizer.h"

#include "generate.h"

#include <float.h>
#include <math.h>

static double tolerance_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64 ? 1e-12 : dtype == IGNIS_F32 ? 2e-6 : dtype == IGNIS_F16 ? 1.5e-3 : 1.2e-2;
}

static double sigmoid_of(double x) { return 1 / (1 + exp(-x)); }

/* products ------------------------------------------------------------------------------------------------------- */

/*  Of the device, as products see it; 0: those that there are. With few, clusters are smaller, and have several groups
    of rows of weights. */
static int multiprocessors;

/*  What a product of these sums is: with its bias, and what is done to it. */
static double finished(const double sum[2], const double *b, int n, int c, ignis__gemv_kind kind, bool gated)
{
    double y = sum[0] + (b ? b[c] : 0);
    if (gated)
        y = y * sigmoid_of(y) * (sum[1] + (b ? b[n + c] : 0));
    if (kind == IGNIS__GEMV_GELU)
        y *= sigmoid_of(1.5957691216057308 * (y + 0.044715 * y * y * y));
    return y;
}

/*  type: of blocks, or 0; other: of the second half of the rows. */
OPTIMIZED static void check_product_of(ignis_dtype dtype, int type, int other, int rows, int n, int k,
                                       ignis__gemv_kind kind, bool gated, bool biased)
{
    int before = room_count, parts = gated ? 2 : 1, groups = (k + 31) / 32, r, c, i, own;
    double *x, *w, *b = NULL, *start, *got, *alone, *most;
    ignis_dtype out_dtype = kind == IGNIS__GEMV_ADD      ? ignis__wide_dtype(dtype)
                            : kind == IGNIS__GEMV_LOGITS ? IGNIS_F32
                                                         : dtype;
    /* rows of results end with elements that are not those of the product */
    int width = kind == IGNIS__GEMV_LOGITS ? n + 3 : type ? n : (n + 7) / 8 * 8;
    ignis__array *x_room = room_noise(IGNIS_SHAPE(rows, k), dtype, 1, 1, &x);
    ignis__array *w_room = type ? room_blocks(parts * n, k, type, other == type ? parts * n : n / 2, other, 2, &w)
                                : room_noise(IGNIS_SHAPE(parts * n, k), dtype, 2, 1, &w);
    ignis__array *numbers = type ? room(IGNIS_SHAPE(gated ? 2 * n : 3, k), dtype) : NULL; /* three rows at a time */
    ignis__array *whole = type ? room(IGNIS_SHAPE(ignis__blocks_scratch_elements(k)), dtype) : NULL;
    ignis__array *b_room = biased ? room_noise(IGNIS_SHAPE(parts * n), dtype, 3, 1, &b) : NULL;
    ignis__array *ordered = room(IGNIS_SHAPE(rows, k), dtype);
    ignis__array *out = room_noise(IGNIS_SHAPE(rows, width), out_dtype, 4, 1, &start);
    ignis__array *single = room_noise(IGNIS_SHAPE(rows, width), out_dtype, 4, 1, NULL);
    ignis__op op = step_begin();
    if (type && ignis__gemv_uses_tensor_cores(&op, dtype, w_room))
        numbers = whole;
    own = op.work.device->info.multiprocessors;
    op.work.device->info.multiprocessors = multiprocessors ? multiprocessors : own;
    {
        ignis__gemv_desc desc = {rows, kind, gated, out,  x_room,  w_room, b_room, numbers,
                                 NULL, NULL, NULL,  NULL, ordered, false,  false};
        ignis__gemv_run(&op, &desc);
    }
    op.work.device->info.multiprocessors = own;
    step_end(&op);
    for (r = 0; r < rows; r++) { /* each row alone */
        ignis_array row = ignis_array_slice(handle_of(x_room), 0, r, 1),
                    to = ignis_array_slice(handle_of(single), 0, r, 1);
        ignis__array *row_array = ignis__array_hold("test", row), *to_array = ignis__array_hold("test", to);
        op = step_begin();
        {
            ignis__gemv_desc desc = {1,    kind, gated, to_array, row_array, w_room, b_room, numbers,
                                     NULL, NULL, NULL,  NULL,     NULL,      false,  false};
            ignis__gemv_run(&op, &desc);
        }
        step_end(&op);
        ignis__array_drop("test", row_array), ignis__array_drop("test", to_array);
        drop(row), drop(to);
    }
    got = numbers_of(out);
    alone = numbers_of(single);
    CHECK(k % (int)ignis__pack_elements(dtype) != 0 || memcmp(got, alone, sizeof *got * (size_t)(rows * width)) == 0);
    most = (double *)calloc((size_t)(rows * groups + 1), sizeof *most); /* of each 32 numbers of a row of x */
    for (r = 0; r < rows; r++)
        for (i = 0; i < k; i++)
            most[r * groups + i / 32] = fmax(most[r * groups + i / 32], fabs(x[r * k + i]));
    for (r = 0; r < rows; r++)
        for (c = 0; c < n; c++) {
            double sum[2] = {0, 0}, y;
            double size = 0, rounded = 0, allowed;
            for (i = 0; i < k * parts; i++) {
                double term = x[r * k + i % k] * w[(c + i / k * n) * k + i % k];
                sum[i / k] += term;
                size += fabs(term);
                rounded += fabs(w[(c + i / k * n) * k + i % k]) * most[r * groups + i % k / 32];
            }
            y = finished(sum, b, n, c, kind, gated);
            if (kind == IGNIS__GEMV_ADD)
                y += start[r * width + c];
            allowed = (out_dtype == dtype ? tolerance_of(dtype) : 2e-6) +
                      (dtype == IGNIS_F64 ? 0 : 1e-8 * size); /* sums have 24 bits */
            if (type &&
                dtype !=
                    IGNIS_F64) /* scales differ, and minima are taken off: the error is one of all that was added */
                allowed += 2e-7 * size;
            if (type &&
                (dtype == IGNIS_F16 ||
                 dtype == IGNIS_BF16)) /* x has 15 bits, the greatest of 32 at least 13 before its sign: 2^-14 / 8 */
                allowed += 7.6e-6 * rounded;
            if (!is_close(got[r * width + c], y, allowed * 8)) {
                char text[256];
                snprintf(text, sizeof text,
                         "dtype %d, blocks %d, %d rows, %d by %d, kind %d, gated %d: [%d, %d] is %.9g, expected %.9g",
                         (int)dtype, type, rows, n, k, (int)kind, gated, r, c, got[r * width + c], y);
                test__fail(__FILE__, __LINE__, text);
                r = rows;
                break;
            }
        }
    free(x), free(w), free(b), free(start), free(got), free(alone), free(most);
    rooms_end(before);
}

static void check_product(ignis_dtype dtype, int rows, int n, int k, ignis__gemv_kind kind, bool gated, bool biased)
{
    check_product_of(dtype, 0, 0, rows, n, k, kind, gated, biased);
}

/*  f16 and bf16 on tensor cores, others through numbers of a few rows at a time. */
TEST(products_of_quantised_weights)
{
    static const int types[] = {IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q8_0, IGNIS__GGUF_Q4_K, IGNIS__GGUF_Q6_K},
                     rows[] = {1, 2, 5, 8, 17};
    int d, t, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (t = 0; t < 4; t++) {
            ignis_dtype dtype = float_dtypes[d];
            if (!test_takes(dtype, t))
                continue;
            for (i = 0; i < COUNT_OF(rows); i++)
                check_product_of(dtype, types[t], types[t], rows[i], 13 + 8 * t, 512 + 256 * (i % 2), IGNIS__GEMV_OUT,
                                 false, i % 2);
            check_product_of(dtype, types[t], types[t], 3, 9, 256, IGNIS__GEMV_OUT, true, true);
            check_product_of(dtype, types[t], types[t], 1, 24, 768, IGNIS__GEMV_OUT, true, false);
            check_product_of(dtype, types[t], types[t], 2, 33, 256, IGNIS__GEMV_ADD, false, true);
            check_product_of(dtype, types[t], types[t], 1, 7, 2304, IGNIS__GEMV_GELU, false, true);
            check_product_of(dtype, types[t], types[t], 4, 19, 256, IGNIS__GEMV_LOGITS, false, false);
            check_product_of(dtype, types[t], types[(t + 1) % 4], 1, 32, 256, IGNIS__GEMV_ADD, false,
                             true); /* of two types */
            check_product_of(dtype, types[t], types[(t + 3) % 4], 9, 38, 512, IGNIS__GEMV_OUT, false, true);
            if (t < 2)
                for (i = 32; i < 300; i += 32) /* units that end within 16 bytes of a lane */
                    check_product_of(dtype, types[t], types[t], 1 + i / 32 % 3, 11, i, IGNIS__GEMV_OUT, false, false);
        }
    check_product_of(IGNIS_BF16, IGNIS__GGUF_Q4_K, IGNIS__GGUF_Q4_K, 33, 40, 2560, IGNIS__GEMV_OUT, true, true);
    check_product_of(IGNIS_F16, IGNIS__GGUF_Q6_K, IGNIS__GGUF_Q6_K, 64, 33, 256, IGNIS__GEMV_ADD, false, false);
    check_product_of(IGNIS_BF16, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_0, 64, 33, 352, IGNIS__GEMV_ADD, false, false);
    check_product_of(IGNIS_F16, IGNIS__GGUF_Q8_0, IGNIS__GGUF_Q8_0, 40, 17, 608, IGNIS__GEMV_LOGITS, false, false);
    for (i = 0; i < 2; i++) { /* three groups of rows of weights: for one block; for a cluster of two blocks each */
        multiprocessors = i ? 8 : 1;
        check_product_of(IGNIS_BF16, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_0, 10, 257, 2336, IGNIS__GEMV_OUT, false, true);
        check_product_of(IGNIS_F16, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_0, 32, 300, 512, IGNIS__GEMV_LOGITS, false, false);
        check_product_of(IGNIS_BF16, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_0, 17, 152, 768, IGNIS__GEMV_OUT, true, true);
        check_product_of(IGNIS_BF16, IGNIS__GGUF_Q8_0, IGNIS__GGUF_Q8_0, 17, 260, 288, IGNIS__GEMV_ADD, false, false);
        check_product_of(IGNIS_BF16, IGNIS__GGUF_Q4_K, IGNIS__GGUF_Q4_K, 9, 265, 2304, IGNIS__GEMV_OUT, false, false);
        check_product_of(IGNIS_F16, IGNIS__GGUF_Q4_K, IGNIS__GGUF_Q4_K, 20, 300, 256, IGNIS__GEMV_GELU, false, true);
        check_product_of(IGNIS_BF16, IGNIS__GGUF_Q6_K, IGNIS__GGUF_Q6_K, 12, 259, 2560, IGNIS__GEMV_OUT, false, true);
        check_product_of(IGNIS_BF16, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q6_K, 25, 600, 256, IGNIS__GEMV_OUT, false,
                         true); /* of two types */
    }
    multiprocessors = 0;
}

/*  Blocks that warpgroups multiply on sm_90a, with each number of columns: by clusters of some sizes, and by blocks
    that take groups of rows one after the other. */
TEST(products_of_blocks_by_warpgroups)
{
    static const int types[] = {IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_K, IGNIS__GGUF_Q5_0, IGNIS__GGUF_Q5_1},
                     rows[] = {7, 13, 27, 61}, processors[] = {1, 6, 12, 24};
    int i, t;
    SETUP(NULL);
    for (i = 0; i < 4; i++)
        for (t = 0; t < 4; t++) {
            const ignis_dtype dtype = (i + t) % 2 ? IGNIS_F16 : IGNIS_BF16;
            multiprocessors = processors[(i + t) % 4];
            check_product_of(dtype, types[t], types[t], rows[i], 129 + t, i == t ? 2304 : 256, IGNIS__GEMV_OUT, false,
                             true);
        }
    multiprocessors = 0;
    check_product_of(IGNIS_BF16, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_K, 35, 134, 512, IGNIS__GEMV_ADD, false, true);
    check_product_of(IGNIS_BF16, IGNIS__GGUF_Q5_K, IGNIS__GGUF_Q5_K, 34, 72, 256, IGNIS__GEMV_OUT, true, true);
}

/*  F8, whose products are sums of rounded ones, has the bits of a row alone in all kernels, too: those of one row, of
    mma.sync, of clusters, and of warpgroups with each number of columns. Rows end in the first or the second half of a
    record. */
TEST(products_of_f8)
{
    static const int rows[] = {1, 2, 8, 9, 17, 33, 64, 65}, processors[] = {0, 1, 6, 24};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(rows); i++) {
        const ignis_dtype dtype = i % 2 ? IGNIS_F16 : IGNIS_BF16;
        multiprocessors = processors[i % 4];
        check_product_of(dtype, IGNIS__GGUF_F8, IGNIS__GGUF_F8, rows[i], 129 + i, i == 3 ? 2432 : 384 + 128 * (i / 4),
                         IGNIS__GEMV_OUT, false, i % 2);
    }
    multiprocessors = 0;
    check_product_of(IGNIS_BF16, IGNIS__GGUF_F8, IGNIS__GGUF_F8, 1, 24, 768, IGNIS__GEMV_OUT, true, false);
    check_product_of(IGNIS_F16, IGNIS__GGUF_F8, IGNIS__GGUF_F8, 3, 9, 128, IGNIS__GEMV_OUT, true, true);
    check_product_of(IGNIS_BF16, IGNIS__GGUF_F8, IGNIS__GGUF_F8, 34, 72, 256, IGNIS__GEMV_OUT, true, true);
    check_product_of(IGNIS_BF16, IGNIS__GGUF_F8, IGNIS__GGUF_F8, 2, 33, 2304, IGNIS__GEMV_ADD, false, true);
    check_product_of(IGNIS_F16, IGNIS__GGUF_F8, IGNIS__GGUF_F8, 1, 7, 384, IGNIS__GEMV_GELU, false, true);
    check_product_of(IGNIS_BF16, IGNIS__GGUF_F8, IGNIS__GGUF_Q4_0, 12, 32, 256, IGNIS__GEMV_ADD, false, true);
    check_product_of(IGNIS_F32, IGNIS__GGUF_F8, IGNIS__GGUF_F8, 4, 19, 384, IGNIS__GEMV_LOGITS, false, false);
    check_product_of(IGNIS_F64, IGNIS__GGUF_F8, IGNIS__GGUF_F8, 2, 9, 256, IGNIS__GEMV_OUT, false, false);
}

/*  The types that have numbers of other bits, tables or other scales; of 32 numbers and of 256. */
TEST(products_of_every_type)
{
    static const int types[] = {IGNIS__GGUF_Q4_1,    IGNIS__GGUF_Q5_0,    IGNIS__GGUF_Q5_1,   IGNIS__GGUF_IQ4_NL,
                                IGNIS__GGUF_MXFP4,   IGNIS__GGUF_Q2_K,    IGNIS__GGUF_Q3_K,   IGNIS__GGUF_Q5_K,
                                IGNIS__GGUF_IQ4_XS,  IGNIS__GGUF_IQ2_XXS, IGNIS__GGUF_IQ2_XS, IGNIS__GGUF_IQ2_S,
                                IGNIS__GGUF_IQ3_XXS, IGNIS__GGUF_IQ3_S};
    int t;
    SETUP(NULL);
    for (t = 0; t < COUNT_OF(types); t++) {
        ignis_dtype dtype = t % 2 ? IGNIS_F16 : IGNIS_BF16;
        int k = t < 5 ? 608 : 768;
        check_product_of(dtype, types[t], types[t], 1, 21, k, IGNIS__GEMV_OUT, false, true);
        check_product_of(dtype, types[t], types[t], 1, 24, 2304, IGNIS__GEMV_OUT, true, false);
        check_product_of(dtype, types[t], types[t], 5, 18, k, IGNIS__GEMV_ADD, false, false);
        check_product_of(dtype, types[t], types[(t + 1) % 5], 19, 34, k, IGNIS__GEMV_OUT, false, true);
        check_product_of(IGNIS_F32, types[t], types[t], 2, 9, k, IGNIS__GEMV_LOGITS, false, false);
        multiprocessors = 1;
        check_product_of(dtype, types[t], types[t], 12, 257, 256, IGNIS__GEMV_OUT, false, true);
        multiprocessors = 0;
    }
}

TEST(products_of_every_kind)
{
    static const int rows[] = {1, 2, 3, 5, 8, 9, 17};
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        for (i = 0; i < COUNT_OF(rows); i++)
            if (test_takes(float_dtypes[d], i))
                check_product(float_dtypes[d], rows[i], 13, 72, IGNIS__GEMV_OUT, false, i % 2);
        if (float_dtypes[d] == IGNIS_F16 ||
            float_dtypes[d] ==
                IGNIS_BF16) { /* tensor cores: more columns, slices of K that end within a block of 32, and with none */
            check_product(float_dtypes[d], 33, 40, 1048, IGNIS__GEMV_OUT, true, true);
            check_product(float_dtypes[d], 64, 33, 352, IGNIS__GEMV_ADD, false, false);
            if (float_dtypes[d] == IGNIS_BF16) { /* so many rows of weights that 4 and 8 tiles share x */
                check_product(float_dtypes[d], 9, 6397, 264, IGNIS__GEMV_LOGITS, false, false);
                check_product(float_dtypes[d], 9, 6400, 136, IGNIS__GEMV_OUT, true, false);
                for (i = 0; i < 2;
                     i++) { /* three groups: for one block; for a cluster each of four blocks, or of two */
                    multiprocessors = i ? 8 : 1;
                    check_product(float_dtypes[d], 10, 300, 1320, IGNIS__GEMV_OUT, false, true);
                    check_product(float_dtypes[d], 17, 257, 520, IGNIS__GEMV_ADD, false, false);
                    check_product(float_dtypes[d], 30, 136, 1032, IGNIS__GEMV_OUT, true, true);
                    check_product(float_dtypes[d], 33, 270, 1544, IGNIS__GEMV_GELU, false, true);
                    check_product(float_dtypes[d], 33, 300, 72, IGNIS__GEMV_LOGITS, false, false);
                }
                multiprocessors = 0;
                /* one row: several pieces of several tiles; a shorter ring; one block on a multiprocessor; more than
                   its shared memory */
                check_product(float_dtypes[d], 2, 1100, 2344, IGNIS__GEMV_OUT, false, true);
                check_product(float_dtypes[d], 2, 24, 8200, IGNIS__GEMV_OUT, true, false);
                check_product(float_dtypes[d], 2, 17, 24008, IGNIS__GEMV_LOGITS, false, false);
                check_product(float_dtypes[d], 2, 9, 83008, IGNIS__GEMV_OUT, false, false);
            }
        }
        check_product(float_dtypes[d], 3, 9, 43, IGNIS__GEMV_OUT, false, true); /* no packs */
        check_product(float_dtypes[d], 3, 5, 600, IGNIS__GEMV_GELU, false, true);
        check_product(float_dtypes[d], 6, 5, 64, IGNIS__GEMV_OUT, true, d % 2);
        check_product(float_dtypes[d], 2, 6, 24, IGNIS__GEMV_ADD, false, true);
        check_product(float_dtypes[d], 4, 7, 24, IGNIS__GEMV_LOGITS, false, false);
    }
}

/*  Products that wgmma takes on sm_90: with one block for all of K and with two, for several groups of rows of weights
    and of rows of x. */
TEST(products_of_many_rows)
{
    static const struct {
        ignis_dtype dtype;
        int rows, n, k, kind;
        bool gated, biased;
        int multiprocessors; /* 0: as many as there are */
    } products[] = {{IGNIS_BF16, 65, 40, 512, IGNIS__GEMV_OUT, true, true, 0},
                    {IGNIS_F16, 70, 24, 512, IGNIS__GEMV_GELU, false, true, 0},
                    {IGNIS_BF16, 33, 150, 512, IGNIS__GEMV_OUT, false, false, 1}, /* 64 columns: one block, then two */
                    {IGNIS_F16, 64, 270, 1024, IGNIS__GEMV_ADD, false, true, 2},
                    {IGNIS_BF16, 66, 270, 1024, IGNIS__GEMV_LOGITS, false, false, 1},
                    {IGNIS_BF16, 130, 24, 512, IGNIS__GEMV_OUT, true, false, 1},
                    {IGNIS_BF16, 130, 136, 1536, IGNIS__GEMV_OUT, true, true, 4},
                    {IGNIS_BF16, 72, 300, 512, IGNIS__GEMV_ADD, false, false, 12},
                    {IGNIS_F16, 128, 261, 1024, IGNIS__GEMV_OUT, false, true, 2}};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(products); i++) {
        multiprocessors = products[i].multiprocessors;
        check_product(products[i].dtype, products[i].rows, products[i].n, products[i].k,
                      (ignis__gemv_kind)products[i].kind, products[i].gated, products[i].biased);
    }
    multiprocessors = 0;
}

/*  A device with so many multiprocessors, from its next step on; 0: as many as it has. */
static void pretend_multiprocessors(int count)
{
    static int own;
    ignis_device_info *info = &ignis__device_get("test", 0)->info;
    own = own ? own : info->multiprocessors;
    info->multiprocessors = count ? count : own;
}

/*  The same by the kernels for prompts; what the first rows are has the same bits without the others, and however many
    multiprocessors there are: on Hopper that chooses tiles of 128 and of 192 columns. */
OPTIMIZED static void check_product_many(ignis_dtype dtype, int rows, int n, int k, ignis__gemv_kind kind, bool gated,
                                         bool biased)
{
    static const int processors[] = {0, 4, 8}; /* with 4, 256 rows and 384 columns, wide tiles pay */
    int before = room_count, parts = gated ? 2 : 1, way, r, c, i;
    double *x, *w, *b = NULL, *got[COUNT_OF(processors) + 1];
    ignis__array *x_room = room_noise(IGNIS_SHAPE(rows, k), dtype, 1, 1, &x);
    ignis__array *w_room = room_noise(IGNIS_SHAPE(parts * n, k), dtype, 2, 1, &w);
    ignis__array *b_room = biased ? room_noise(IGNIS_SHAPE(parts * n), dtype, 3, 1, &b) : NULL;
    ignis__array *between = gated ? room(IGNIS_SHAPE(rows, parts * n), dtype) : NULL;
    for (way = 0; way <= COUNT_OF(processors); way++) {
        bool fewer = way == COUNT_OF(processors);
        ignis__array *out = room_noise(IGNIS_SHAPE(rows, n), dtype, 4, 1, NULL);
        ignis__op op;
        pretend_multiprocessors(fewer ? 0 : processors[way]);
        op = step_begin();
        {
            ignis__gemv_desc desc = {fewer ? (rows + 1) / 2 : rows,
                                     kind,
                                     gated,
                                     out,
                                     x_room,
                                     w_room,
                                     b_room,
                                     NULL,
                                     between,
                                     NULL,
                                     NULL,
                                     NULL,
                                     NULL,
                                     false,
                                     false};
            ignis__chunk_gemm(&op, &desc);
        }
        step_end(&op);
        pretend_multiprocessors(0);
        got[way] = numbers_of(out);
        CHECK(memcmp(got[0], got[way], sizeof(double) * (size_t)((fewer ? (rows + 1) / 2 : rows) * n)) == 0);
    }
    for (r = 0; r < rows; r += r % 64 == 1 ? 61 : 1)
        for (c = 0; c < n; c++) {
            double sum[2] = {0, 0}, y, size = 0;
            for (i = 0; i < k * parts; i++) {
                sum[i / k] += x[r * k + i % k] * w[(c + i / k * n) * k + i % k];
                size += fabs(x[r * k + i % k] * w[(c + i / k * n) * k + i % k]);
            }
            y = finished(sum, b, n, c, kind, gated); /* in between, numbers may be rounded */
            if (!is_close(got[0][r * n + c], y, 8 * tolerance_of(dtype) + (dtype == IGNIS_F64 ? 0 : 1e-7 * size))) {
                char text[256];
                snprintf(text, sizeof text,
                         "dtype %d, %d rows, %d by %d, kind %d, gated %d: [%d, %d] is %.9g, expected %.9g", (int)dtype,
                         rows, n, k, (int)kind, gated, r, c, got[0][r * n + c], y);
                test__fail(__FILE__, __LINE__, text);
                r = rows;
                break;
            }
        }
    for (way = 0; way <= COUNT_OF(processors); way++)
        free(got[way]);
    free(x), free(w), free(b);
    rooms_end(before);
}

TEST(products_of_prompts)
{
    int d;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        ignis_dtype dtype = float_dtypes[d];
        check_product_many(dtype, 65, 72, 104, IGNIS__GEMV_OUT, false, true);
        check_product_many(dtype, 70, 24, 40, IGNIS__GEMV_GELU, false, true);
        check_product_many(dtype, 67, 33, 17, IGNIS__GEMV_OUT, true, true); /* no packs */
        check_product_many(dtype, 66, 128, 72, IGNIS__GEMV_OUT, true, false);
        if (dtype != IGNIS_F16 && dtype != IGNIS_BF16)
            continue;
        check_product_many(dtype, 130, 136, 200, IGNIS__GEMV_OUT, true,
                           true); /* the last tile's columns of both halves are not whole */
        check_product_many(dtype, 193, 328, 72, IGNIS__GEMV_OUT, true, false);
        check_product_many(dtype, 256, 384, 776, IGNIS__GEMV_OUT, false, d % 2);
    }
}

/*  Rows to which results of products are added, or none, and their norms, which may not be wanted. */
static void check_norm(ignis_dtype dtype, int rows, int hidden, bool rms, bool adds, bool wanted)
{
    int before = room_count, r, i;
    ignis_dtype wide = ignis__wide_dtype(dtype);
    double *start, *more, *by, *shift, *sums, *got;
    ignis__array *sum = room_noise(IGNIS_SHAPE(rows, hidden), wide, 1, 3, &start);
    ignis__array *other = room_noise(IGNIS_SHAPE(rows, hidden), dtype, 2, 1, &more);
    ignis__array *weight = room_noise(IGNIS_SHAPE(hidden), dtype, 3, 1, &by),
                 *bias = room_noise(IGNIS_SHAPE(hidden), dtype, 4, 1, &shift);
    ignis__array *out = room(IGNIS_SHAPE(rows, hidden), dtype);
    ignis__pre_norm norm;
    ignis__op op = step_begin();
    memset(&norm, 0, sizeof norm);
    norm.sum = sum, norm.weight = weight, norm.eps = 1e-5, norm.rms = rms;
    norm.other = adds ? other : NULL;
    norm.bias = rms ? NULL : bias;
    ignis__pre_norm_launch(&op, rows, wanted ? out : NULL, &norm);
    step_end(&op);
    sums = numbers_of(sum), got = numbers_of(out);
    for (r = 0; r < rows; r++) {
        double mean = 0, squares = 0;
        for (i = 0; i < hidden; i++) {
            double *x = &start[r * hidden + i];
            *x += adds ? more[r * hidden + i] : 0;
            CHECK_CLOSE(sums[r * hidden + i], *x, wide == IGNIS_F64 ? 1e-15 : 1e-6);
            mean += rms ? 0 : *x / hidden;
        }
        for (i = 0; i < hidden; i++)
            squares += (start[r * hidden + i] - mean) * (start[r * hidden + i] - mean) / hidden;
        for (i = 0; i < hidden; i++)
            CHECK_CLOSE(got[r * hidden + i],
                        wanted ? (start[r * hidden + i] - mean) / sqrt(squares + 1e-5) * by[i] + (rms ? 0 : shift[i])
                               : 0,
                        tolerance_of(dtype) * 4);
    }
    free(start), free(more), free(by), free(shift), free(sums), free(got);
    rooms_end(before);
}

TEST(sums_and_their_norms)
{
    static const int sizes[] = {1,    5,    64,   1027,
                                4096, 4104, 8201, 9000}; /* rows of one round of packs, and of several */
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(sizes); i++) {
            check_norm(float_dtypes[d], 3, sizes[i], true, i % 2, true);
            check_norm(float_dtypes[d], 2, sizes[i], false, i % 2 == 0, true);
            check_norm(float_dtypes[d], 2, sizes[i], i % 2, true, false);
        }
}

/* cache and attention -------------------------------------------------------------------------------------------- */

typedef struct cache_case {
    int heads, kv_heads, head_dim;
    bool turns, normed;
} cache_case;

enum {
    SEQUENCES = 3,
    LONGEST = 2120,
    SPLITS = IGNIS__SPLITS,
    PAGES_EACH = (LONGEST + 15) / 16,
    PAGES = SEQUENCES * PAGES_EACH
};

/*  A model's attention over sequences, with all that is in device memory. */
typedef struct attention_test {
    const cache_case *c;
    ignis_dtype dtype;
    ignis__array *ids[SEQUENCES], *pages[SEQUENCES], *k, *v, *q_weight, *k_weight, *rows, *qkv, *out, *scratch, *ended;
    double *q_norm, *k_norm;
    double frequencies[256];
    int window; /* 0: all keys */
} attention_test;

static int width_of(const cache_case *c) { return (c->heads + 2 * c->kv_heads) * c->head_dim; }

static void attention_test_begin(attention_test *t, const cache_case *c, ignis_dtype dtype, int most_rows)
{
    int s, i, at = 0;
    ignis__op op;
    memset(t, 0, sizeof *t);
    t->c = c;
    t->dtype = dtype;
    for (i = 0; i < c->head_dim / 2; i++) {
        double frequency = pow(10000, -2.0 * i / c->head_dim);
        t->frequencies[i] = dtype == IGNIS_F64 ? frequency : (float)frequency;
    }
    op = step_begin();
    for (s = 0; s < SEQUENCES; s++) { /* pages of one sequence lie scattered */
        int32_t pages[PAGES_EACH];
        for (i = 0; i < PAGES_EACH; i++, at++)
            pages[i] = at * 11 % PAGES;
        t->ids[s] = room(IGNIS_SHAPE(LONGEST + 1), IGNIS_I32);
        t->pages[s] = room(IGNIS_SHAPE(PAGES_EACH), IGNIS_I32);
        ignis__upload_i32(&op, dtype, t->pages[s], 0, pages, PAGES_EACH);
    }
    step_end(&op);
    t->k = room(IGNIS_SHAPE(PAGES, c->kv_heads, 16, c->head_dim), dtype);
    t->v = room(IGNIS_SHAPE(PAGES, c->kv_heads, 16, c->head_dim), dtype);
    CHECK_OK(ignis_array_fill(handle_of(t->k), NAN)); /* what pages have that were another's, and nobody may read */
    CHECK_OK(ignis_array_fill(handle_of(t->v), NAN));
    if (c->normed) {
        t->q_weight = room_noise(IGNIS_SHAPE(c->head_dim), dtype, 11, 1, &t->q_norm);
        t->k_weight = room_noise(IGNIS_SHAPE(c->head_dim), dtype, 12, 1, &t->k_norm);
    }
    t->rows = room(IGNIS_SHAPE(most_rows * (int)sizeof(ignis__generate_row)), IGNIS_U8);
    t->qkv = room(IGNIS_SHAPE(most_rows, width_of(c)), dtype);
    t->out = room(IGNIS_SHAPE(most_rows, c->heads * c->head_dim), dtype);
    t->scratch = room(IGNIS_SHAPE(4 * c->heads * SPLITS * (2 + c->head_dim)), ignis__wide_dtype(dtype));
    t->ended = room(IGNIS_SHAPE(4 * c->heads), IGNIS_I32);
}

static ignis__generate_row attention_test_row(const attention_test *t, ignis__op *op, int sequence, int position)
{
    ignis__generate_row row;
    memset(&row, 0, sizeof row);
    row.ids = ignis__op_write(op, t->ids[sequence]);
    row.pages = ignis__op_read(op, t->pages[sequence]);
    row.position = position;
    return row;
}

static void attention_test_params(const attention_test *t, ignis__op *op, ignis__generate_cache *cache,
                                  ignis__paged *paged)
{
    memset(cache, 0, sizeof *cache);
    memset(paged, 0, sizeof *paged);
    cache->qkv = paged->q = ignis__op_write(op, t->qkv);
    cache->k = paged->k = ignis__op_write(op, t->k);
    cache->v = paged->v = ignis__op_write(op, t->v);
    cache->q_weight = t->q_weight ? ignis__op_read(op, t->q_weight) : 0;
    cache->k_weight = t->k_weight ? ignis__op_read(op, t->k_weight) : 0;
    cache->rows = paged->rows = ignis__op_write(op, t->rows);
    cache->eps = 1e-6;
    cache->heads = paged->heads = t->c->heads;
    cache->kv_heads = paged->kv_heads = t->c->kv_heads;
    cache->head_dim = paged->head_dim = t->c->head_dim;
    paged->out = ignis__op_write(op, t->out);
    paged->scratch = ignis__op_write(op, t->scratch);
    paged->q_row = width_of(t->c);
    paged->scale = 1 / sqrt((double)t->c->head_dim);
    paged->ended = ignis__op_write(op, t->ended);
    paged->splits = SPLITS;
    paged->window = t->window;
}

/*  Rows [row, row + count) of qkv as tokens of sequences at positions; what they find is in out. few: as on a device of
    so many multiprocessors, where a block has many splits; 0: as it is; -1: their keys are kept alone. */
static void attention_test_run(attention_test *t, int count, const int *sequence, const int *position, int few)
{
    ignis__generate_row rows[64];
    ignis__generate_cache cache;
    ignis__paged paged;
    ignis__op op = step_begin();
    int i, all = op.work.device->info.multiprocessors;
    memset(rows, 0, sizeof rows);
    for (i = 0; i < count; i++)
        rows[i] = attention_test_row(t, &op, sequence[i], position[i]);
    attention_test_params(t, &op, &cache, &paged);
    ignis__upload_rows(&op, t->dtype, t->rows, rows, count);
    ignis__kv_cache_append(&op, count, t->dtype, &cache, t->c->turns ? t->frequencies : NULL);
    if (few > 0)
        op.work.device->info.multiprocessors = few;
    if (few >= 0)
        ignis__paged_attention(&op, count, 4, t->dtype, &paged);
    op.work.device->info.multiprocessors = all;
    step_end(&op);
}

/*  A head as it is when it has turned. */
static void head_turned(const attention_test *t, const double *from, const double *weight, int position, double *to)
{
    int i, half = t->c->head_dim / 2;
    double squares = 0, factor = 1;
    for (i = 0; weight && i < 2 * half; i++)
        squares += from[i] * from[i];
    if (weight)
        factor = 1 / sqrt(squares / (2 * half) + 1e-6);
    for (i = 0; i < half; i++) {
        double a = from[i] * factor * (weight ? weight[i] : 1),
               b = from[i + half] * factor * (weight ? weight[i + half] : 1);
        double angle = t->c->turns ? position * t->frequencies[i] : 0;
        to[i] = a * cos(angle) - b * sin(angle);
        to[i + half] = b * cos(angle) + a * sin(angle);
    }
}

/*  Head h of the token at `position` of a sequence, whose rows of qkv are given. */
static void attention_reference(const attention_test *t, const double *qkv, int position, int h, double *out)
{
    const cache_case *c = t->c;
    int width = width_of(c), dim = c->head_dim, kv_h = h / (c->heads / c->kv_heads), j, d;
    int first = t->window && t->window <= position ? position - t->window + 1 : 0;
    double q[256], k[256], scores[LONGEST], top = -1e300, sum = 0;
    head_turned(t, qkv + (int64_t)position * width + h * dim, t->q_norm, position, q);
    for (j = first; j <= position; j++) {
        head_turned(t, qkv + (int64_t)j * width + (c->heads + kv_h) * dim, t->k_norm, j, k);
        for (d = 0, scores[j] = 0; d < dim; d++)
            scores[j] += q[d] * k[d] / sqrt((double)dim);
        top = scores[j] > top ? scores[j] : top;
    }
    for (d = 0; d < dim; d++)
        out[d] = 0;
    for (j = first; j <= position; j++) {
        const double *v = qkv + (int64_t)j * width + (c->heads + c->kv_heads + kv_h) * dim;
        sum += scores[j] = exp(scores[j] - top);
        for (d = 0; d < dim; d++)
            out[d] += scores[j] * v[d];
    }
    for (d = 0; d < dim; d++)
        out[d] /= sum;
}

/*  Three sequences of different lengths: prompts in chunks, then tokens of all of them together, with an unused row.
    The last ones alone again, by other blocks, and both by a graph's kind of launch, whose rows alone change. */
static void check_attention(const cache_case *c, ignis_dtype dtype, const int lengths[SEQUENCES])
{
    enum { CHUNK = 29 };
    int before = room_count, s, i, h, d, at, count, width = width_of(c), own = c->heads * c->head_dim, sequence[64],
        position[64];
    size_t bytes = (size_t)width * (size_t)ignis__dtypes[dtype].size;
    double *qkv[SEQUENCES], *together = NULL, *got, expected[256];
    char *raw[SEQUENCES];
    attention_test t;
    attention_test_begin(&t, c, dtype, 32);
    for (s = 0; s < SEQUENCES; s++) {
        ignis__array *all = room_noise(IGNIS_SHAPE(lengths[s], width), dtype, (uint64_t)(20 + s), 1, &qkv[s]);
        raw[s] = (char *)malloc(bytes * (size_t)lengths[s]);
        CHECK_OK(ignis_array_to_host_raw(handle_of(all), raw[s], (int64_t)bytes * lengths[s]));
    }
    for (s = 0; s < SEQUENCES; s++)
        for (at = 0; at < lengths[s] - 1; at += count) {
            char *rows = (char *)calloc(32, bytes);
            count = lengths[s] - 1 - at < CHUNK ? lengths[s] - 1 - at : CHUNK;
            memcpy(rows, raw[s] + bytes * (size_t)at, bytes * (size_t)count);
            CHECK_OK(ignis_array_from_host_raw(handle_of(t.qkv), rows, 32 * (int64_t)bytes));
            free(rows);
            for (i = 0; i < count; i++) {
                sequence[i] = s;
                position[i] = at + i;
            }
            if (at > 300 && at + count < lengths[s] - 1 && at / CHUNK % 12) { /* of a long prompt a part is enough */
                attention_test_run(&t, count, sequence, position, -1);
                continue;
            }
            attention_test_run(&t, count, sequence, position, at % 2 ? 1 + at % 3 : 0);
            got = numbers_of(t.out);
            for (i = 0; i < count; i += 13)
                for (h = 0; h < c->heads; h++) {
                    attention_reference(&t, qkv[s], at + i, h, expected);
                    for (d = 0; d < c->head_dim; d++)
                        CHECK_CLOSE(got[i * own + h * c->head_dim + d], expected[d], tolerance_of(dtype) * 4);
                }
            free(got);
        }
    for (i = 0; i < 2; i++) { /* together; then each alone, among rows that are none */
        char *rows = (char *)calloc(32, bytes);
        int alone;
        for (alone = 0; alone < (i ? SEQUENCES : 1); alone++) {
            for (s = 0; s < SEQUENCES; s++) {
                int row = i ? (s == alone ? 0 : -1) : s == 2 ? 3 : s;
                if (row >= 0)
                    memcpy(rows + bytes * (size_t)row, raw[s] + bytes * (size_t)(lengths[s] - 1), bytes);
            }
            sequence[0] = i ? alone : 0, sequence[1] = 1, sequence[2] = 0, sequence[3] = 2;
            position[0] = lengths[sequence[0]] - 1, position[1] = i ? -1 : lengths[1] - 1, position[2] = -1,
            position[3] = lengths[2] - 1;
            CHECK_OK(ignis_array_from_host_raw(handle_of(t.qkv), rows, 32 * (int64_t)bytes));
            attention_test_run(&t, i ? 2 : 4, sequence, position, i ? 0 : 1);
            got = numbers_of(t.out);
            if (!i) {
                together = got;
                for (d = 0; d < own; d++)
                    CHECK_NUMBER(got[2 * own + d], 0);
                CHECK_OK(
                    ignis_array_from_host_raw(handle_of(t.qkv), rows, 32 * (int64_t)bytes)); /* as before they turned */
                attention_test_run(&t, 4, sequence, position, 2); /* rows are shared by blocks */
                got = numbers_of(t.out);
                CHECK(memcmp(got, together, sizeof *got * 4 * (size_t)own) == 0);
                free(got);
                continue;
            }
            CHECK(memcmp(got, together + (alone == 2 ? 3 : alone) * own, sizeof *got * (size_t)own) == 0);
            for (h = 0; h < c->heads; h++) {
                attention_reference(&t, qkv[alone], lengths[alone] - 1, h, expected);
                for (d = 0; d < c->head_dim; d++)
                    CHECK_CLOSE(got[h * c->head_dim + d], expected[d], tolerance_of(dtype) * 4);
            }
            free(got);
        }
        free(rows);
    }
    free(together);
    for (s = 0; s < SEQUENCES; s++)
        free(qkv[s]), free(raw[s]);
    free(t.q_norm), free(t.k_norm);
    rooms_end(before);
}

static const cache_case cache_cases[] = {{4, 4, 64, true, false},  {6, 2, 80, true, true},  {4, 1, 128, true, true},
                                         {7, 1, 64, false, false}, {8, 1, 16, true, false}, {2, 1, 256, true, false},
                                         {20, 2, 40, true, false}, {3, 1, 8, true, false}};

TEST(attention_over_pages)
{
    static const int lengths[][SEQUENCES] = {{1, 17, 40}, {16, 5, 33}, {290, 257, 2}, {2113, 70, 1}};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cache_cases); i++)
        check_attention(&cache_cases[i], float_dtypes[i % 4], lengths[i % 2]);
    check_attention(&cache_cases[1], IGNIS_F32, lengths[1]);
    check_attention(&cache_cases[4], IGNIS_F32, lengths[2]); /* more than a split */
    check_attention(&cache_cases[2], IGNIS_BF16, lengths[2]);
    if (test_takes_all())
        check_attention(&cache_cases[2], IGNIS_F64, lengths[2]);
    check_attention(&cache_cases[6], IGNIS_F16, lengths[2]);  /* more heads than a block has */
    check_attention(&cache_cases[7], IGNIS_BF16, lengths[3]); /* splits of several tiles */
}

/*  A prompt at once, and in pieces, each behind keys that are in pages by then: the same bits. size: of the numbers;
    above 2 no sum is close enough for a comparison with the reference. */
static void check_prompt(const cache_case *c, ignis_dtype dtype, int length, int window, int size)
{
    const int pieces[2][4] = {{length}, {length / 2 + 3, 65, length - length / 2 - 68}};
    int before = room_count, way, i, h, d, at, own = c->heads * c->head_dim;
    double *qkv, *got[2];
    attention_test t;
    ignis__array *all, *gathered;
    attention_test_begin(&t, c, dtype, length);
    t.window = window;
    all = room_noise(IGNIS_SHAPE(length, width_of(c)), dtype, 20, size, &qkv); /* so that bounds of scores are raised */
    gathered = room(IGNIS_SHAPE(2, length, c->kv_heads * c->head_dim), dtype);
    for (way = 0; way < 2; way++) {
        got[way] = (double *)calloc((size_t)(length * own), sizeof *got[way]);
        for (at = i = 0; at < length; at += pieces[way][i++]) {
            int count = pieces[way][i];
            ignis_array some = ignis_array_slice(handle_of(all), 0, at, count),
                        to = ignis_array_slice(handle_of(t.qkv), 0, 0, count);
            ignis__generate_cache cache;
            ignis__paged paged;
            ignis__generate_row row;
            ignis__op op;
            double *out;
            CHECK_OK(ignis_array_copy(to, some));
            drop(some), drop(to);
            CHECK_OK(ignis_array_fill(handle_of(gathered), 77)); /* what is not written there again is not read */
            op = step_begin();
            row = attention_test_row(&t, &op, way, at);
            attention_test_params(&t, &op, &cache, &paged);
            cache.k_too = ignis__op_write(&op, gathered);
            cache.v_too = cache.k_too + (ignis__address)(gathered->numel / 2 * ignis__dtypes[dtype].size);
            ignis__upload_rows_from(&op, dtype, t.rows, &row, count);
            ignis__kv_cache_append(&op, count, dtype, &cache, c->turns ? t.frequencies : NULL);
            ignis__chunk_attention(&op, count, at + count, &paged, gathered);
            step_end(&op);
            out = numbers_of(t.out);
            memcpy(got[way] + at * own, out, sizeof *out * (size_t)(count * own));
            free(out);
        }
    }
    CHECK(memcmp(got[0], got[1], sizeof(double) * (size_t)(length * own)) == 0);
    for (i = 0; size <= 2 && i < length; i += i % 64 == 1 ? 31 : 1)
        for (h = 0; h < c->heads; h++) {
            double expected[256];
            attention_reference(&t, qkv, i, h, expected);
            for (d = 0; d < c->head_dim; d++)
                CHECK_CLOSE(got[0][i * own + h * c->head_dim + d], expected[d], tolerance_of(dtype) * 4);
        }
    free(qkv), free(got[0]), free(got[1]), free(t.q_norm), free(t.k_norm);
    rooms_end(before);
}

TEST(attention_of_prompts)
{
    static const cache_case cases[] = {{4, 2, 64, true, false},   {3, 3, 80, true, true},   {2, 1, 128, true, false},
                                       {1, 1, 136, false, false}, {2, 1, 256, true, false}, {2, 1, 192, false, false},
                                       {4, 1, 40, true, true},    {2, 1, 8, true, false}};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        check_prompt(&cases[i], i % 2 ? IGNIS_F16 : IGNIS_BF16, 197 + 64 * (i % 2), 0, 2);
        if (i % 3 == 0)
            check_prompt(&cases[i], i % 2 ? IGNIS_F64 : IGNIS_F32, 150, 0, 2);
    }
    check_prompt(&cases[2], IGNIS_F16, 450, 0, 2);
}

/*  Bounds of scores that are raised again and again, and tiles of keys that windows cut. */
TEST(attention_of_prompts_in_windows)
{
    static const cache_case cases[] = {{2, 1, 64, true, false}, {1, 1, 80, true, false}, {1, 1, 16, false, false}};
    static const int windows[] = {0, 5, 37, 100};
    static const ignis_dtype dtypes[] = {IGNIS_BF16, IGNIS_F16, IGNIS_F32};
    int i, w;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++)
        for (w = 0; w < COUNT_OF(windows); w++) {
            check_prompt(&cases[i], dtypes[(i + w) % 3], 231, windows[w], 2);
            check_prompt(&cases[i], dtypes[(i + w + 1) % 3], 231, windows[w], 7);
        }
}

/*  q, k and v that go where they belong from the product itself: of many rows as of each alone. */
TEST(keys_of_many_rows_as_of_each_alone)
{
    static const cache_case cases[] = {{3, 1, 16, true, false},  {4, 2, 64, true, false},  {2, 2, 80, true, false},
                                       {2, 1, 96, false, false}, {2, 2, 128, true, false}, {2, 1, 256, true, false},
                                       {50, 9, 64, true, false}}; /* the last one's weights are quantised */
    enum { MOST = 66, K = 136, OF_BLOCKS = 256, BY_WGMMA = 512 };
    int i, a, r, way;
    ignis_device_info info;
    SETUP(NULL);
    CHECK_OK(ignis_device_query(0, &info));
    if (info.compute_major < 8)
        SKIP("without tensor cores keys and values go to the cache by a kernel of their own");
    for (i = 0; i < COUNT_OF(cases); i++) {
        const cache_case *c = &cases[i];
        bool quantised = i + 1 == COUNT_OF(cases);
        int before = room_count, width = width_of(c),
            k = quantised    ? OF_BLOCKS
                : i % 3 == 2 ? BY_WGMMA
                             : K,
            count = i % 3 == 0   ? 12
                    : i % 3 == 1 ? 23
                                 : MOST;
        double *found[2][3], *w, *b, *x;
        attention_test t;
        ignis__array *weights, *bias, *rows_of_x, *turning, *numbers = NULL, *ordered;
        ignis__op op;
        attention_test_begin(&t, c, IGNIS_BF16, MOST);
        weights = quantised ? room_blocks(width, k, IGNIS__GGUF_Q4_0, width, IGNIS__GGUF_Q4_0, 1, &w)
                            : room_noise(IGNIS_SHAPE(width, k), IGNIS_BF16, 1, 1, &w);
        if (quantised)
            numbers = room(IGNIS_SHAPE(ignis__blocks_scratch_elements(k)), IGNIS_BF16);
        bias = room_noise(IGNIS_SHAPE(width), IGNIS_BF16, 2, 1, &b);
        rows_of_x = room_noise(IGNIS_SHAPE(MOST, k), IGNIS_BF16, 3, 1, &x);
        turning = room(IGNIS_SHAPE(IGNIS__ROPE_HALF), IGNIS_I32);
        ordered = room(IGNIS_SHAPE(MOST, k), IGNIS_BF16);
        for (way = 0; way < 2; way++) {
            CHECK_OK(ignis_array_zero(handle_of(t.k)));
            CHECK_OK(ignis_array_zero(handle_of(t.v)));
            CHECK_OK(ignis_array_zero(handle_of(t.qkv)));
            for (r = 0; r < (way ? count : 1); r++) {
                ignis__generate_row rows[MOST];
                ignis__gemv_mma direct;
                int32_t words[IGNIS__ROPE_HALF];
                float frequencies[IGNIS__ROPE_HALF];
                ignis_array one = ignis_array_slice(handle_of(rows_of_x), 0, r, way ? 1 : count);
                ignis_array to = ignis_array_slice(handle_of(t.qkv), 0, r, way ? 1 : count);
                ignis__array *one_array = ignis__array_hold("test", one), *to_array = ignis__array_hold("test", to);
                op = step_begin();
                memset(rows, 0, sizeof rows);
                memset(&direct, 0, sizeof direct);
                memcpy(words, ignis__rope_round_frequencies(frequencies, t.frequencies), sizeof words);
                for (a = 0; a < (way ? 1 : count); a++) {
                    rows[a].ids = ignis__op_write(&op, t.ids[0]);
                    rows[a].pages = ignis__op_read(&op, t.pages[0]);
                    rows[a].position = 5 + 3 * (r + a);
                }
                ignis__upload_rows(&op, IGNIS_BF16, t.rows, rows, way ? 1 : count);
                ignis__upload_i32(&op, IGNIS_BF16, turning, 0, words, IGNIS__ROPE_HALF);
                direct.places = ignis__op_write(&op, t.rows);
                direct.keys = ignis__op_write(&op, t.k);
                direct.values = ignis__op_write(&op, t.v);
                direct.frequencies = c->turns ? ignis__op_write(&op, turning) : 0;
                direct.heads = c->heads, direct.kv_heads = c->kv_heads, direct.head_dim = c->head_dim;
                {
                    ignis__gemv_desc desc = {way ? 1 : count,
                                             IGNIS__GEMV_CACHE,
                                             false,
                                             to_array,
                                             one_array,
                                             weights,
                                             bias,
                                             numbers,
                                             NULL,
                                             NULL,
                                             &direct,
                                             NULL,
                                             ordered,
                                             false,
                                             false};
                    if (quantised)
                        ignis__gemv_run_quantised(&op, &desc);
                    else
                        ignis__gemv_run_dense(&op, &desc);
                }
                step_end(&op);
                ignis__array_drop("test", one_array), ignis__array_drop("test", to_array);
                drop(one), drop(to);
            }
            found[way][0] = numbers_of(t.k);
            found[way][1] = numbers_of(t.v);
            found[way][2] = numbers_of(t.qkv);
        }
        for (a = 0; a < 3; a++) {
            const ignis__array *of = a == 0 ? t.k : a == 1 ? t.v : t.qkv;
            double most = 0;
            for (r = 0; r < of->numel; r++)
                most = fmax(most, fabs(found[0][a][r]));
            CHECK(most > 1);
            CHECK(memcmp(found[0][a], found[1][a], sizeof(double) * (size_t)of->numel) == 0);
            free(found[0][a]), free(found[1][a]);
        }
        free(w), free(b), free(x);
        rooms_end(before);
    }
}

/* the draw ------------------------------------------------------------------------------------------------------- */

typedef struct draw_case {
    double temperature, top_p, min_p, penalty;
    int top_k, window, biases,
        masked; /* masked: tokens that differ from 0 modulo it can be drawn; 0: all; 1: none, but the last */
    int levels; /* whole numbers that logits may be, from 0 on; 0: any numbers, some of them whole */
} draw_case;

static bool draw_allows(const draw_case *c, int id, int vocab)
{
    return c->masked == 0 || id % c->masked != 0 || id == vocab - 1;
}

static void philox(uint32_t counter[4], uint32_t key0, uint32_t key1)
{
    int round;
    for (round = 0; round < 10; round++) {
        uint64_t x = (uint64_t)0xD2511F53u * counter[0], z = (uint64_t)0xCD9E8D57u * counter[2];
        uint32_t next[4];
        next[0] = (uint32_t)(z >> 32) ^ counter[1] ^ key0;
        next[1] = (uint32_t)z;
        next[2] = (uint32_t)(x >> 32) ^ counter[3] ^ key1;
        next[3] = (uint32_t)x;
        memcpy(counter, next, sizeof next);
        key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
}

/*  Of a token behind so many, for a row whose key is seed << 32 | row: of Gumbel's distribution. */
static double draw_noise(uint64_t seed, int row, int behind, int id)
{
    uint32_t counter[4] = {0, 0, 0, 0};
    counter[0] = (uint32_t)behind, counter[1] = (uint32_t)id / 4;
    philox(counter, (uint32_t)row, (uint32_t)seed);
    return -log(-log1p(-(counter[id % 4] + 0.5) / 4294967296.0));
}

static int compare_scores(const void *a, const void *b) /* falling, then ids */
{
    const double *x = (const double *)a, *y = (const double *)b;
    return x[0] != y[0] ? (x[0] < y[0] ? 1 : -1) : x[1] < y[1] ? -1 : 1;
}

static bool draw_cuts(const draw_case *c)
{
    return c->temperature != 0 && (c->top_k > 0 || (c->top_p > 0 && c->top_p < 1) || c->min_p > 0);
}

/*  What is left of a row, as probabilities by ids; 0: cut. distance: how far a token is from the greatest one. ids: of
    the sequence so far. */
static int draw_reference(const draw_case *c, const double *logits, int vocab, const int32_t *ids, int count,
                          const ignis__generate_bias *biases, double *probability, double *distance)
{
    double *sorted = (double *)malloc(sizeof(double) * 2 * (size_t)vocab), sum = 0, running = 0, top;
    int i, j, kept = 0;
    for (i = 0; i < vocab; i++) {
        double x = logits[i] != logits[i] ? -HUGE_VAL : logits[i];
        bool there = false;
        for (j = 0; j < c->biases; j++)
            x = biases[j].id == i ? (double)(float)(x + (double)biases[j].bias) : x;
        for (j = c->window > 0 && c->window < count ? count - c->window : 0; j < count; j++)
            there = there || ids[j] == i;
        if (there)
            x = (double)(x < 0 ? (float)x * (float)c->penalty : (float)x / (float)c->penalty);
        x = draw_allows(c, i, vocab) ? (x < -FLT_MAX ? -FLT_MAX : x) : -HUGE_VAL;
        sorted[2 * i] = x;
        sorted[2 * i + 1] = i;
        probability[i] = 0;
    }
    qsort(sorted, (size_t)vocab, 2 * sizeof *sorted, compare_scores);
    top = sorted[0];
    if (c->temperature == 0) {
        probability[(int)sorted[1]] = 1;
        free(sorted);
        return 0;
    }
    for (i = 0; i < vocab && (c->top_k == 0 || i < c->top_k || sorted[2 * i] == sorted[2 * c->top_k - 2]); i++)
        sum += sorted[2 * i] == top ? 1 : exp((sorted[2 * i] - top) / c->temperature);
    kept = i;
    for (i = 0; i < kept && c->top_p > 0 && c->top_p < 1; i++) {
        running += exp((sorted[2 * i] - top) / c->temperature);
        if (running >= c->top_p * sum)
            kept = i + 1;
    }
    for (i = 0, sum = 0; i < kept; i++)
        if (exp((sorted[2 * i] - top) / c->temperature) >= (c->min_p > 5.7e-14 ? c->min_p : 5.7e-14) ||
            sorted[2 * i] == top)
            sum += probability[(int)sorted[2 * i + 1]] =
                sorted[2 * i] == top ? 1 : exp((sorted[2 * i] - top) / c->temperature);
    for (i = 0, kept = 0; i < vocab; i++) {
        int id = (int)sorted[2 * i + 1];
        kept += probability[id] > 0;
        probability[id] /= sum;
        distance[id] = sorted[2 * i] == top ? 0 : (top - sorted[2 * i]) / c->temperature;
    }
    free(sorted);
    return draw_cuts(c) ? kept : 0;
}

/*  How surprising the tokens were that have been drawn, beyond what was to be expected of their probabilities, and how
    far that strays by chance. */
static double draw_surprise, draw_variance;

/*  Rows of random logits, some of them equal, drawn and compared: what is left, the token whose noise brings it ahead
    of the others, what it says. */
static void check_draws(const draw_case *c, int vocab, int rows, uint64_t seed)
{
    enum { HISTORY = 20 };
    int before = room_count, stride = vocab + 3, r, i, differ = 0;
    double *probability = (double *)malloc(sizeof(double) * (size_t)vocab),
           *distance = (double *)malloc(sizeof(double) * (size_t)vocab),
           *logits = (double *)calloc((size_t)(rows * stride), sizeof(double));
    ignis__array *logit_room = room(IGNIS_SHAPE(rows, stride), IGNIS_F32),
                 *scores = room(IGNIS_SHAPE(rows, stride), IGNIS_F32);
    ignis__array *row_room = room(IGNIS_SHAPE(rows * (int)sizeof(ignis__generate_row)), IGNIS_U8);
    ignis__array *draw_room = room(IGNIS_SHAPE(IGNIS__DRAWS * rows * (int)sizeof(ignis__generate_draw)), IGNIS_U8);
    ignis__array *parts = room(IGNIS_SHAPE(rows * IGNIS__DRAW_PARTS * IGNIS__DRAW_PART), IGNIS_U8);
    ignis__array *mask_room = room(IGNIS_SHAPE(rows, vocab / 32 + 1), IGNIS_I32);
    ignis__array *bins = room(IGNIS_SHAPE(rows, IGNIS__DRAW_BINS), IGNIS_U8);
    uint32_t *masks = (uint32_t *)calloc((size_t)(rows * (vocab / 32 + 1)), sizeof *masks);
    ignis__array *bias_room = room(IGNIS_SHAPE(rows * 8 * 8), IGNIS_U8),
                 *ids = room(IGNIS_SHAPE(rows * (HISTORY + 1)), IGNIS_I32);
    ignis__generate_row *row = (ignis__generate_row *)calloc((size_t)rows, sizeof *row);
    ignis__generate_draw *draws = (ignis__generate_draw *)calloc((size_t)(IGNIS__DRAWS * rows), sizeof *draws);
    ignis__generate_bias *biases = (ignis__generate_bias *)calloc((size_t)rows * 8, sizeof *biases);
    int32_t *history = (int32_t *)calloc((size_t)rows * (HISTORY + 1), sizeof *history), *after;
    ignis__draw p;
    ignis__op op;
    for (i = 0; i < rows * stride; i++) {
        logits[i] = (double)(float)(6 * noise(seed, i));
        if (c->levels)
            logits[i] = floor((noise(seed, i) + 1) / 2 * c->levels);
        else if (i % 7 == 0)
            logits[i] = floor(logits[i]); /* ties */
    }
    logits[1] = NAN, logits[2] = -HUGE_VAL;
    CHECK_OK(ignis_array_from_host(handle_of(logit_room), logits, IGNIS_F64, rows * stride));
    for (i = 0; i < rows * (HISTORY + 1); i++)
        history[i] = (int32_t)((noise(seed + 1, i) + 1) / 2 * vocab) % vocab;
    for (i = 0; i < rows * 8; i++) {
        biases[i].id = (i % 8 * vocab + i / 8 % vocab) / 8;
        biases[i].bias = (float)(4 * noise(seed + 2, i));
    }
    CHECK_OK(ignis_array_from_host_raw(handle_of(bias_room), biases, (int64_t)sizeof *biases * rows * 8));
    for (r = 0; r < rows; r++)
        for (i = 0; i < vocab; i++)
            masks[r * (vocab / 32 + 1) + i / 32] |= (uint32_t)draw_allows(c, i, vocab) << i % 32;
    CHECK_OK(ignis_array_from_host_raw(handle_of(mask_room), masks, (int64_t)sizeof *masks * rows * (vocab / 32 + 1)));
    free(masks);
    CHECK_OK(ignis_array_from_host_raw(handle_of(ids), history, (int64_t)sizeof *history * rows * (HISTORY + 1)));
    op = step_begin();
    for (r = 0; r < rows; r++) {
        row[r].ids = ignis__op_write(&op, ids) + (ignis__address)(4 * (HISTORY + 1) * r);
        row[r].position = HISTORY - 1;
        row[r].temperature = c->temperature, row[r].top_p = c->top_p, row[r].min_p = c->min_p,
        row[r].penalty = c->penalty;
        row[r].top_k = c->top_k, row[r].window = c->window, row[r].biases = c->biases;
        row[r].masked = c->masked ? r + 1 : 0;
        row[r].seed = seed << 32 | (uint64_t)r;
        row[r].draws = ignis__op_write(&op, draw_room) + (ignis__address)(IGNIS__DRAWS * r) * sizeof *draws;
    }
    ignis__upload_rows(&op, IGNIS_F32, row_room, row, rows);
    memset(&p, 0, sizeof p);
    p.logits = ignis__op_read(&op, logit_room), p.scores = ignis__op_write(&op, scores);
    p.rows = ignis__op_read(&op, row_room), p.biases = ignis__op_read(&op, bias_room);
    p.parts = ignis__op_write(&op, parts);
    ignis__op_zero(&op, bins);
    p.bins = ignis__op_write(&op, bins);
    p.stride = stride, p.vocab = vocab, p.bias_room = 8;
    p.masks = ignis__op_read(&op, mask_room), p.mask_room = vocab / 32 + 1;
    ignis__sampling_launch(&op, rows, draw_cuts(c) ? IGNIS__SAMPLING_FILTERED : IGNIS__SAMPLING_UNFILTERED, &p);
    step_end(&op);
    CHECK_OK(ignis_array_to_host_raw(handle_of(draw_room), draws, (int64_t)sizeof *draws * IGNIS__DRAWS * rows));
    after = (int32_t *)calloc((size_t)rows * (HISTORY + 1), sizeof *after);
    CHECK_OK(ignis_array_to_host_raw(handle_of(ids), after, (int64_t)sizeof *after * rows * (HISTORY + 1)));
    for (r = 0; r < rows; r++) {
        const double *own = logits + r * stride;
        double most = -HUGE_VAL, sum = 0, best = -HUGE_VAL, mean, square;
        const ignis__generate_draw *draw = &draws[IGNIS__DRAWS * r + (HISTORY - 1) % IGNIS__DRAWS];
        int id = draw->id, kept = draw_reference(c, own, vocab, history + r * (HISTORY + 1), HISTORY, biases + r * 8,
                                                 probability, distance);
        if (id < 0 || id >= vocab) {
            test__fail(__FILE__, __LINE__, "no token");
            break;
        }
        differ += kept != draw->kept;
        if (c->temperature == 0)
            CHECK(probability[id] == 1);
        else {
            for (i = 0; i < vocab; i++)
                best = probability[i] > 0 ? fmax(best, draw_noise(seed, r, HISTORY, i) - distance[i]) : best;
            for (i = 0, mean = square = 0; i < vocab; i++)
                if (probability[i] > 0) {
                    mean -= probability[i] * log(probability[i]);
                    square += probability[i] * log(probability[i]) * log(probability[i]);
                }
            draw_surprise += -log(probability[id]) - mean;
            draw_variance += square - mean * mean;
            /* what a float keeps of a distance of 40 and of a noise of 22, which is all that comes ahead */
            CHECK(probability[id] > 0 && draw_noise(seed, r, HISTORY, id) - distance[id] > best - 1e-5);
        }
        for (i = 0; i < vocab; i++)
            most = own[i] > most ? own[i] : most;
        for (i = 0; i < vocab; i++)
            sum += own[i] == own[i] ? exp(own[i] - most) : 0;
        CHECK_CLOSE((double)draw->log_prob, own[id] - most - log(sum), 1e-5);
        CHECK_INT(after[r * (HISTORY + 1) + HISTORY], id);
    }
    CHECK_INT(differ, 0);
    free(after), free(history), free(biases), free(draws), free(row), free(logits), free(probability), free(distance);
    rooms_end(before);
}

static const draw_case draw_cases[] = {
    {0, 0, 0, 1, 0, 0, 0, 0, 0},           {1, 0, 0, 1, 0, 0, 0, 0, 0},          {0.7, 0, 0, 1, 40, 0, 0, 0, 0},
    {1, 0.9, 0, 1, 0, 0, 0, 0, 0},         {1.3, 0.5, 0, 1, 12, 0, 0, 0, 0},     {1, 0, 0.05, 1, 0, 0, 0, 0, 0},
    {0.9, 0.95, 0.1, 1.2, 30, 0, 5, 0, 0}, {0, 0, 0, 1.5, 0, 7, 8, 0, 0},        {2, 0.8, 0.01, 0.8, 50, 5, 3, 0, 0},
    {1, 0.001, 0, 1, 0, 0, 0, 0, 0},       {1, 0, 0, 1, 1, 0, 0, 0, 0},          {0.01, 0.99, 0, 1, 5, 0, 0, 0, 0},
    {0, 0, 0, 1, 0, 0, 0, 2, 0},           {1, 0, 0, 1, 0, 0, 0, 3, 0},          {0.9, 0.95, 0.1, 1.2, 30, 0, 5, 2, 0},
    {0, 0, 0, 1.5, 0, 7, 8, 1, 0},         {1.2, 0.5, 0, 1.3, 3, 0, 8, 4, 0},    {1, 0, 0, 1, 0, 0, 0, 1, 0},
    {0.4, 0, 1e-11, 1, 0, 0, 0, 0, 0},     {0.2, 0.9, 2e-11, 1, 90, 0, 0, 0, 0}, {100, 0.6, 0, 1, 70, 0, 0, 0, 0},
    {1, 0.7, 0.2, 1, 0, 0, 0, 0, 3},       {1, 0.37, 0, 1, 0, 0, 0, 0, 1},       {3, 0.5, 0.9, 1, 50, 0, 3, 2, 2},
};

TEST(draws_are_those_of_the_reference)
{
    int i;
    SETUP(NULL);
    draw_surprise = draw_variance = 0;
    for (i = 0; i < COUNT_OF(draw_cases); i++) {
        check_draws(&draw_cases[i], 101, 12, (uint64_t)(100 + i));
        if (i % 2 == 0)
            check_draws(&draw_cases[i], 1000, 2, (uint64_t)(200 + i));
        else
            check_draws(&draw_cases[i], 9001, 1, (uint64_t)(300 + i));
        if (draw_cases[i].levels) /* more equal ones than are looked at one by one */
            check_draws(&draw_cases[i], 40009, 1, (uint64_t)(500 + i));
    }
    CHECK(fabs(draw_surprise) <
          3 * sqrt(draw_variance)); /* the noise has the form that gives tokens their probabilities */
}

/*  With settings at random; more of them with IGNIS_SOAK=1. */
TEST(draws_with_any_settings)
{
    static const double temperatures[] = {0.01, 0.3, 0.7, 1, 1.5, 4, 50},
                        shares[] = {0, 0.001, 0.1, 0.5, 0.9, 0.95, 0.999}, least[] = {0, 0, 1e-11, 1e-9, 0.01, 0.3, 1};
    static const int counts[] = {0, 0, 1, 2, 7, 40, 300, 2000}, sizes[] = {33, 101, 513, 1000, 3000},
                     levels[] = {0, 0, 0, 2, 5, 40};
    const int rounds = test_env("IGNIS_SOAK") ? 400 : 12;
    int i, k, of[9];
    SETUP(NULL);
    for (i = 0; i < rounds; i++) {
        draw_case c;
        for (k = 0; k < COUNT_OF(of); k++)
            of[k] = (int)((noise(9000 + (uint64_t)k, i) + 1) * 1000);
        memset(&c, 0, sizeof c);
        c.temperature = temperatures[of[0] % COUNT_OF(temperatures)];
        c.top_p = shares[of[1] % COUNT_OF(shares)];
        c.min_p = least[of[2] % COUNT_OF(least)];
        c.penalty = of[3] % 3 ? 1 : 1.3;
        c.top_k = counts[of[4] % COUNT_OF(counts)];
        c.biases = of[5] % 2 ? 0 : 5;
        c.masked = of[6] % 3 ? 0 : 1 + of[6] % 4;
        c.levels = levels[of[7] % COUNT_OF(levels)];
        check_draws(&c, sizes[of[8] % COUNT_OF(sizes)], 4, (uint64_t)(10000 + i));
    }
}

/*  A single block of a row does it all; of more than there is work for some find nothing. */
TEST(draws_need_no_number_of_blocks)
{
    int processors, i;
    SETUP(NULL);
    processors = ignis__devices[0].info.multiprocessors;
    for (i = 2; i < COUNT_OF(draw_cases); i += 3) {
        ignis__devices[0].info.multiprocessors = i % 2 ? 1 : 3; /* 2 or 6 blocks in all */
        check_draws(&draw_cases[i], 8200, i % 2 ? 1 : 2, (uint64_t)(400 + i));
        ignis__devices[0].info.multiprocessors = processors;
    }
}

/* models --------------------------------------------------------------------------------------------------------- */

static void norm_reference(const test_model *t, const double *x, const double *by, const double *add, double *y)
{
    int i, n = t->shape.hidden;
    double mean = 0, squares = 0;
    for (i = 0; t->shape.gpt2 && i < n; i++)
        mean += x[i] / n;
    for (i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean) / n;
    for (i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(squares + t->model->eps) * by[i] + (add ? add[i] : 0);
}

static void product_reference(const double *w, const double *b, const double *x, int n, int k, double *y)
{
    int i, j;
    for (i = 0; i < n; i++) {
        y[i] = b ? b[i] : 0;
        for (j = 0; j < k; j++)
            y[i] += w[(int64_t)i * k + j] * x[j];
    }
}

/*  Logits behind every token, in double; the caller frees them. */
static double *forward_reference(const test_model *t, const int32_t *ids, int count)
{
    const test_shape *s = &t->shape;
    int width = (s->heads + 2 * s->kv_heads) * s->head_dim, n = s->hidden, i, j, l, h, d, own = s->heads * s->head_dim;
    double *x = (double *)calloc((size_t)(count * n), 8), *qkv = (double *)calloc((size_t)(count * width), 8), y[1024],
           z[1024], up[1024];
    double *logits = (double *)calloc((size_t)(count * s->vocab), 8);
    cache_case c = {0, 0, 0, false, false};
    attention_test a;
    c.heads = s->heads, c.kv_heads = s->kv_heads, c.head_dim = s->head_dim, c.turns = !s->gpt2;
    memset(&a, 0, sizeof a);
    a.c = &c;
    for (i = 0; i < s->head_dim / 2; i++)
        a.frequencies[i] = t->model->frequencies[i];
    for (i = 0; i < count; i++)
        for (j = 0; j < n; j++)
            x[i * n + j] = t->embedding[ids[i] * n + j] + (t->positions ? t->positions[i * n + j] : 0);
    for (l = 0; l < s->layers; l++) {
        double *const *part = t->part[l];
        a.q_norm = part[Q_NORM], a.k_norm = part[K_NORM];
        for (i = 0; i < count; i++) {
            norm_reference(t, x + i * n, part[ATTN_NORM], part[ATTN_NORM_BIAS], y);
            product_reference(part[QKV], part[QKV_BIAS], y, width, n, qkv + i * width);
        }
        for (i = 0; i < count; i++) {
            for (h = 0; h < s->heads; h++)
                attention_reference(&a, qkv, i, h, z + h * s->head_dim);
            product_reference(part[OUT], part[OUT_BIAS], z, n, own, y);
            for (d = 0; d < n; d++)
                x[i * n + d] += y[d];
            norm_reference(t, x + i * n, part[MLP_NORM], part[MLP_NORM_BIAS], y);
            product_reference(part[UP], part[UP_BIAS], y, s->gpt2 ? s->inner : 2 * s->inner, n, up);
            for (d = 0; d < s->inner; d++)
                up[d] = s->gpt2 ? up[d] * sigmoid_of(1.5957691216057308 * (up[d] + 0.044715 * up[d] * up[d] * up[d]))
                                : up[d] * sigmoid_of(up[d]) * up[s->inner + d];
            product_reference(part[DOWN], part[DOWN_BIAS], up, n, s->inner, y);
            for (d = 0; d < n; d++)
                x[i * n + d] += y[d];
        }
    }
    for (i = 0; i < count; i++) {
        norm_reference(t, x + i * n, t->norm, t->norm_bias, y);
        product_reference(t->head ? t->head : t->embedding, NULL, y, s->vocab, n, logits + i * s->vocab);
    }
    free(x), free(qkv);
    return logits;
}

/*  Logits behind some of the tokens that are fed one by one, and in pieces, against the reference. */
TEST(logits_are_those_of_the_whole_text)
{
    enum { COUNT = 41 };
    int k, i, j, at;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(shapes); k++) {
        const test_shape *s = &shapes[k];
        double *expected, largest = 1, tolerance = s->dtype == IGNIS_BF16 ? 4e-2 : s->dtype == IGNIS_F16 ? 6e-3 : 2e-5;
        float logits[256], again[256];
        int32_t ids[COUNT];
        test_model t;
        ignis_sequence sequence, other;
        test_model_begin(&t, s, 64, 2);
        for (i = 0; i < COUNT; i++)
            ids[i] = id_at(i, s->vocab);
        expected = forward_reference(&t, ids, COUNT);
        for (i = 0; i < COUNT * s->vocab; i++)
            largest = fabs(expected[i]) > largest ? fabs(expected[i]) : largest;
        sequence = ignis_sequence_begin(t.handle);
        other = ignis_sequence_begin(t.handle);
        CHECK(sequence.id && other.id);
        CHECK_OK(ignis_sequence_feed(other, ids, COUNT));
        for (at = 0; at < COUNT; at += i) {
            i = at < 8 ? 1 + at % 3 : at < 40 ? 17 : 1;
            i = i < COUNT - at ? i : COUNT - at;
            CHECK_OK(ignis_sequence_feed(sequence, ids + at, i));
            CHECK_INT(ignis_sequence_length(sequence), at + i);
            CHECK_OK(ignis_sequence_logits(sequence, logits, s->vocab));
            for (j = 0; j < s->vocab && is_close((double)logits[j] / largest,
                                                 expected[(at + i - 1) * s->vocab + j] / largest, tolerance);)
                j++;
            if (j < s->vocab) {
                char text[256];
                snprintf(text, sizeof text, "model %d, behind %d tokens: logit %d is %.9g, expected %.9g", k, at + i, j,
                         (double)logits[j], expected[(at + i - 1) * s->vocab + j]);
                test__fail(__FILE__, __LINE__, text);
            }
        }
        CHECK_OK(ignis_sequence_logits(other, again, s->vocab));
        CHECK(memcmp(logits, again, sizeof *logits * (size_t)s->vocab) == 0);
        if (s->dtype == IGNIS_F32) /* the others are in other tests */
            check_forward(&t, ids, COUNT, logits, tolerance * largest);
        CHECK_OK(ignis_sequence_free(sequence));
        CHECK_OK(ignis_sequence_free(other));
        free(expected);
        test_model_end(&t);
    }
}

/* steps of one row ----------------------------------------------------------------------------------------------- */

/*  Models for the kernel that does a step of one row: sizes of K that its warps share out unevenly or not at all, every
    family, every size of heads, more query heads of a key head than a team has at a time, fewer rows of weights than
    blocks, and more. */
enum { RARE = 3 }; /* the last ones of a table, where all are taken */
static const test_shape whole_shapes[] = {
    {2, 4, 2, 16, 40, 48, 120, false, true, false, IGNIS_BF16},
    {2, 4, 4, 16, 48, 64, 97, true, true, false, IGNIS_BF16},
    {2, 3, 3, 64, 520, 136, 131, true, true, false, IGNIS_F16},
    {1, 2, 1, 128, 136, 512, 77, false, false, false, IGNIS_F16},
    {1, 3, 1, 256, 72, 200, 33, false, false, false, IGNIS_BF16},
    {2, 4, 2, 128, 136, 120, 70, false, false, true, IGNIS_BF16},
    {2, 20, 1, 80, 264, 64, 45, false, true, true, IGNIS_F16},
    {1, 12, 1, 32, 264, 328, 300, false, false, false, IGNIS_BF16},
    {1, 4, 2, 80, 1032, 72, 50, false, true, false, IGNIS_BF16},
    {2, 8, 4, 48, 72, 2056, 64, false, false, false, IGNIS_F16},
};

/*  Draws tokens of both models by steps of one row: by that kernel, and by one for each product. */
static void check_whole(const test_shape *shape, int context, int prompt, int drawn, int blocks)
{
    ignis__device *device = ignis__device_get("test", 0);
    int clusters = device->clusters, i, k;
    float logits[2][300];
    int32_t *ids = (int32_t *)malloc(sizeof *ids * (size_t)prompt), next[2];
    ignis_sequence sequence[2];
    test_model t[2];
    for (i = 0; i < prompt; i++)
        ids[i] = id_at(i, shape->vocab);
    for (k = 0; k < 2; k++) {
        test_model_begin(&t[k], shape, context, 1);
        device->clusters = k ? 0 : clusters;
        sequence[k] = ignis_sequence_begin(t[k].handle);
        device->clusters = clusters;
        CHECK(sequence[k].id);
        CHECK((((ignis__engine *)t[k].model->engine)->layer_table != NULL) == (k == 0));
        CHECK_OK(ignis_sequence_feed(sequence[k], ids, prompt));
    }
    pretend_multiprocessors(blocks);
    for (i = 0; i < drawn; i++) {
        for (k = 0; k < 2; k++) {
            next[k] = ignis_sequence_next(sequence[k], NULL);
            CHECK_OK(ignis_sequence_logits(sequence[k], logits[k], shape->vocab));
        }
        CHECK(next[0] >= 0);
        CHECK_INT(next[0], next[1]);
        CHECK(memcmp(logits[0], logits[1], sizeof(float) * (size_t)shape->vocab) == 0);
    }
    pretend_multiprocessors(0);
    for (k = 0; k < 2; k++) {
        CHECK_OK(ignis_sequence_free(sequence[k]));
        test_model_end(&t[k]);
    }
    free(ids);
}

/*  The same with quantised weights: of one type, and of two; rows of one record, of several that warps share out, and
    of more than a piece; tiles without second eight rows. */
static const struct {
    test_shape shape;
    int type, other;
} quantised_shapes[] = {
    {{2, 4, 2, 16, 64, 96, 120, false, true, false, IGNIS_BF16}, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_0},
    {{2, 4, 2, 64, 256, 512, 131, false, false, false, IGNIS_F16}, IGNIS__GGUF_Q4_K, IGNIS__GGUF_Q6_K},
    {{1, 4, 2, 64, 256, 512, 67, false, true, false, IGNIS_BF16}, IGNIS__GGUF_IQ4_XS, IGNIS__GGUF_MXFP4},
    {{1, 4, 2, 16, 256, 96, 40, false, true, false, IGNIS_BF16}, IGNIS__GGUF_IQ4_NL, IGNIS__GGUF_MXFP4},
    {{2, 4, 2, 64, 256, 512, 61, false, true, true, IGNIS_BF16}, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q6_K},
    {{1, 2, 1, 128, 256, 4352, 72, false, true, false, IGNIS_BF16}, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_0},
    {{2, 1, 1, 256, 256, 2304, 50, false, false, false, IGNIS_BF16}, IGNIS__GGUF_Q6_K, IGNIS__GGUF_Q8_0},
    {{2, 2, 2, 80, 2112, 96, 40, true, true, false, IGNIS_BF16}, IGNIS__GGUF_Q4_0, IGNIS__GGUF_Q4_0},
};

TEST(steps_of_one_row_have_the_bits_of_others)
{
    static const int blocks[] = {1, 2, 3, 7, 13}, prompts[] = {1, 62, 15, 93};
    const int64_t least = ignis__single_launch_min_bytes;
    const int ring = ignis__single_launch_stages;
    ignis_device_info info;
    int drawn, rare, i;
    SETUP(NULL);
    drawn = test_is_simulator() ? 2 : 60; /* what is rounded differently is rarely seen */
    CHECK_OK(ignis_device_query(0, &info));
    if (!ignis__device_get("test", 0)->clusters || info.compute_major != 9)
        SKIP("steps of one row are one launch on sm_90 alone, with clusters of blocks");
    rare = test_takes_all() ? RARE : 0;
    for (i = 0; i < COUNT_OF(whole_shapes) - RARE + rare; i++) {
        check_whole(&whole_shapes[i], 160, prompts[i % COUNT_OF(prompts)], drawn, blocks[i % COUNT_OF(blocks)]);
        if (i < 2)
            check_whole(&whole_shapes[i], 100, 30, drawn / 2, 0);
    }
    ignis__single_launch_min_bytes = 0; /* of models as small as these */
    for (i = 0; i < COUNT_OF(quantised_shapes) - RARE + rare; i++) {
        weights_type = quantised_shapes[i].type, other_type = quantised_shapes[i].other;
        check_whole(&quantised_shapes[i].shape, 160, prompts[i % COUNT_OF(prompts)], drawn,
                    blocks[i % COUNT_OF(blocks)]);
    }
    ignis__single_launch_stages = 2; /* more could be on its way than there is room for */
    weights_type = quantised_shapes[0].type, other_type = quantised_shapes[0].other;
    check_whole(&quantised_shapes[0].shape, 160, 15, 2, 3);
    weights_type = 0;
    check_whole(&whole_shapes[0], 160, 15, 2, 3);
    ignis__single_launch_stages = ring;
    ignis__single_launch_min_bytes = least;
    check_whole(&whole_shapes[1], 700, 640, 2, 2); /* more units than teams */
    if (rare)
        check_whole(&whole_shapes[0], 2300, 2110, 2, 5); /* splits of more than one tile */
}

/*  What has no program without further choices is left out. */
TEST(kernels_of_generation_are_warmed_up)
{
    SETUP(NULL);
    if (!test_takes_all())
        SKIP("compiling them all takes a minute; test_threads warms up with empty programs");
    CHECK_OK(ignis_warmup(NULL, 0));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
