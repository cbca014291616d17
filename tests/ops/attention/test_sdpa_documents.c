// SPDX-License-Identifier: MIT
/*  test_sdpa_documents.c - attention inside the documents of packed rows, by ids and by offsets: values and gradients
    against a dense mask in double, by all kernels; positions of a rotation; rows of other documents are not read;
    offsets that fall; errors */
#include "sweep.h"

#include "attention.h"

#include <math.h>

typedef enum given_by { IDS_32, IDS_64, OFFSETS_32, OFFSETS_64 } given_by;

#define MAX_DOCUMENTS 16

/*  lengths: of documents; negative: rows in no document, which offsets have at the start and at the end. Sequence b of
    a batch has the lengths from the b-th on, and then those from the first on. */
typedef struct packed_case {
    int batch, heads, kv_heads, head_dim; /* batch 0: tensors of two dimensions */
    ignis_mask mask;
    int window;
    double softcap;
    bool bias; /* [heads, rows, rows] */
    given_by by;
    int count, lengths[MAX_DOCUMENTS];
} packed_case;

enum { Q, K, V, BIAS, INPUTS, GRAD_OUT = INPUTS, OUT = INPUTS };
static const char *const names[] = {"the gradient of q", "the gradient of k", "the gradient of v",
                                    "the gradient of the bias", "the value"};

static int batches_of(const packed_case *c) { return c->batch ? c->batch : 1; }

static int rows_of(const packed_case *c)
{
    int i, rows = 0;
    for (i = 0; i < c->count; i++)
        rows += abs(c->lengths[i]);
    return rows;
}

/*  The number of a row's document, or -1. */
static int document_of(const packed_case *c, int b, int row)
{
    int i;
    for (i = 0; i < c->count; i++) {
        int length = c->lengths[(i + b) % c->count];
        if (row < abs(length))
            return length < 0 ? -1 : i;
        row -= abs(length);
    }
    return -1;
}

static ignis_shape rows_shape(const packed_case *c, int heads)
{
    int rows = rows_of(c);
    return c->batch ? IGNIS_SHAPE(c->batch, rows, heads * c->head_dim) : IGNIS_SHAPE(rows, heads * c->head_dim);
}

static ignis_shape shape_in(const packed_case *c, int input)
{
    if (input == BIAS)
        return IGNIS_SHAPE(c->heads, rows_of(c), rows_of(c));
    return rows_shape(c, input == K || input == V ? c->kv_heads : c->heads);
}

/*  Ids fall, repeat after others, and are negative in two ways. */
static ignis_tensor ids_tensor(const packed_case *c)
{
    int b, row, rows = rows_of(c);
    double *ids = (double *)calloc((size_t)(batches_of(c) * rows) + 1, sizeof *ids);
    ignis_tensor tensor;
    for (b = 0; b < batches_of(c); b++)
        for (row = 0; row < rows; row++) {
            int document = document_of(c, b, row);
            ids[b * rows + row] = document < 0 ? -1 - row % 2 : (document % 3 == 2 ? 0 : 7 - document % 3);
        }
    tensor = tensor_of(ids, c->batch ? IGNIS_SHAPE(c->batch, rows) : IGNIS_SHAPE(rows),
                       c->by == IDS_64 ? IGNIS_I64 : IGNIS_I32, false);
    free(ids);
    return tensor;
}

static ignis_tensor offsets_tensor(const packed_case *c)
{
    double offsets[MAX_DOCUMENTS + 1];
    int i, count = 0, row = 0;
    for (i = 0; i < c->count; i++) {
        if (c->lengths[i] >= 0)
            offsets[count++] = row;
        row += abs(c->lengths[i]);
        if (c->lengths[i] >= 0)
            offsets[count] = row;
    }
    return tensor_of(offsets, IGNIS_SHAPE(count + 1), c->by == OFFSETS_64 ? IGNIS_I64 : IGNIS_I32, false);
}

static void set_documents(ignis_sdpa_desc *desc, const packed_case *c)
{
    if (c->by == OFFSETS_32 || c->by == OFFSETS_64)
        desc->offsets = offsets_tensor(c);
    else
        desc->segments = ids_tensor(c);
}

static ignis_sdpa_desc sdpa_desc_of(const packed_case *c)
{
    ignis_sdpa_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.num_heads = c->heads;
    desc.num_kv_heads = c->kv_heads;
    desc.mask = c->mask;
    desc.window = c->window;
    desc.softcap = c->softcap;
    return desc;
}

/* the reference ------------------------------------------------------------------------------------------------- */

static bool sees(const packed_case *c, int b, int i, int j)
{
    int document = document_of(c, b, i);
    return document >= 0 && document_of(c, b, j) == document && (c->mask == IGNIS_MASK_NONE || j <= i) &&
           (c->window == 0 || abs(j - i) < c->window);
}

/*  One query of one head. mask: the keys that it sees; w: scratch. in: q, k, v, the bias, the gradient of the result;
    results: their gradients, the result. */
OPTIMIZED static void reference_row(const packed_case *c, double *const in[], double *const results[], const char *mask,
                                    int rows, int b, int h, int i, double *w)
{
    int d, j, dim = c->head_dim, kv_h = h / (c->heads / c->kv_heads);
    int64_t q_at = ((int64_t)(b * rows + i) * c->heads + h) * dim, k_row = (int64_t)c->kv_heads * dim,
            k_at = (int64_t)b * rows * k_row + kv_h * dim, bias_at = ((int64_t)h * rows + i) * rows;
    double scale = 1 / sqrt((double)dim), top = -HUGE_VAL, sum = 0, delta = 0, *g = w + rows, *slopes = g + rows;
    for (j = 0; j < rows; j++) {
        double score = 0;
        w[j] = g[j] = 0;
        if (!mask[j])
            continue;
        for (d = 0; d < dim; d++)
            score += scale * in[Q][q_at + d] * in[K][k_at + j * k_row + d];
        slopes[j] = 1;
        if (c->softcap > 0) {
            double t = tanh(score / c->softcap);
            score = c->softcap * t;
            slopes[j] = 1 - t * t;
        }
        w[j] = c->bias ? score + in[BIAS][bias_at + j] : score;
        top = w[j] > top ? w[j] : top;
    }
    for (j = 0; j < rows; j++)
        sum += w[j] = mask[j] ? exp(w[j] - top) : 0;
    for (j = 0; j < rows; j++) {
        if (!mask[j])
            continue;
        w[j] /= sum;
        for (d = 0; d < dim; d++) {
            results[OUT][q_at + d] += w[j] * in[V][k_at + j * k_row + d];
            results[V][k_at + j * k_row + d] += w[j] * in[GRAD_OUT][q_at + d];
            g[j] += in[GRAD_OUT][q_at + d] * in[V][k_at + j * k_row + d];
        }
        delta += w[j] * g[j];
    }
    for (j = 0; j < rows; j++) {
        double grad = w[j] * (g[j] - delta);
        if (!mask[j])
            continue;
        if (c->bias)
            results[BIAS][bias_at + j] += grad;
        for (d = 0; d < dim; d++) {
            results[Q][q_at + d] += scale * grad * slopes[j] * in[K][k_at + j * k_row + d];
            results[K][k_at + j * k_row + d] += scale * grad * slopes[j] * in[Q][q_at + d];
        }
    }
}

static void reference(const packed_case *c, double *const in[], double *const results[])
{
    int b, h, i, j, rows = rows_of(c);
    double *w = (double *)malloc(sizeof *w * (size_t)(3 * rows + 1));
    char *mask = (char *)malloc((size_t)rows + 1);
    for (b = 0; b < batches_of(c); b++)
        for (i = 0; i < rows; i++) {
            for (j = 0; j < rows; j++)
                mask[j] = sees(c, b, i, j);
            for (h = 0; h < c->heads; h++)
                reference_row(c, in, results, mask, rows, b, h, i, w);
        }
    free(w);
    free(mask);
}

/* values and gradients ------------------------------------------------------------------------------------------ */

/*  Of probabilities and sums of products that were rounded, where tensor cores did it, relative to the largest number.
    */
static double tolerance_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64 ? 1e-12 : dtype == IGNIS_F32 ? 1e-5 : dtype == IGNIS_F16 ? 2e-3 : 1.6e-2;
}

/*  Fills rows in no document with NaN, infinities and the largest numbers. between: those between documents too, which
    kernels with tensor cores read. */
static void spoil(const packed_case *c, double *const in[], bool between)
{
    static const double garbage[] = {NAN, HUGE_VAL, -HUGE_VAL, 3e38, -6e4};
    static const int spoiled[] = {Q, K, V, GRAD_OUT};
    int b, row, k, d, next = 0, rows = rows_of(c);
    for (b = 0; b < batches_of(c); b++) {
        int first = 0, end = rows;
        while (first < rows && document_of(c, b, first) < 0)
            first++;
        while (end > first && document_of(c, b, end - 1) < 0)
            end--;
        for (row = 0; row < rows; row++)
            for (k = 0; k < COUNT_OF(spoiled) && (between || row < first || row >= end); k++) {
                int width = (spoiled[k] == K || spoiled[k] == V ? c->kv_heads : c->heads) * c->head_dim;
                for (d = 0; d < width && document_of(c, b, row) < 0; d++)
                    in[spoiled[k]][((int64_t)b * rows + row) * width + d] = garbage[next++ % COUNT_OF(garbage)];
            }
    }
}

static void check_result(const packed_case *c, ignis_dtype dtype, const char *what, ignis_array array,
                         const double *expected)
{
    double *got = array_values(array), largest = 1; /* of less, rounding of numbers of about 10 is left */
    int64_t i, numel = ignis_array_numel(array);
    char text[512];
    for (i = 0; i < numel; i++)
        largest = fabs(expected[i]) > largest ? fabs(expected[i]) : largest;
    for (i = 0; i < numel && fabs(got[i] - expected[i]) <= largest * tolerance_of(dtype);)
        i++;
    if (i < numel) {
        snprintf(
            text, sizeof text,
            "dtype %d, batch %d, heads %d of %d and %d, %d rows, first document of %d, mask %d, window %d, softcap "
            "%g, bias %d, given by %d: element %lld of %s is %.9g, expected %.9g",
            (int)dtype, c->batch, c->head_dim, c->heads, c->kv_heads, rows_of(c), c->lengths[0], (int)c->mask,
            c->window, c->softcap, (int)c->bias, (int)c->by, (long long)i, what, got[i], expected[i]);
        test__fail(__FILE__, __LINE__, text);
    }
    free(got);
}

static void check_case(const packed_case *c, ignis_dtype dtype)
{
    ignis_scope scope = ignis_scope_begin();
    double *in[INPUTS + 1] = {NULL}, *results[INPUTS + 1] = {NULL};
    ignis_tensor inputs[INPUTS + 1], output;
    ignis_sdpa_desc desc = sdpa_desc_of(c);
    int i;
    for (i = 0; i <= INPUTS; i++)
        if (i != BIAS || c->bias) {
            in[i] = rounded_noise(shape_in(c, i), dtype, (uint64_t)(3 + i), 2);
            results[i] = (double *)calloc((size_t)shape_numel(shape_in(c, i)) + 1, sizeof *results[i]);
        }
    reference(c, in, results);
    spoil(c, in, dtype == IGNIS_F32 || dtype == IGNIS_F64);
    for (i = 0; i <= INPUTS; i++)
        inputs[i] = in[i] ? tensor_of(in[i], shape_in(c, i), dtype, i != GRAD_OUT) : no_tensor();
    desc.bias = inputs[BIAS];
    set_documents(&desc, c);
    output = ignis_sdpa(inputs[Q], inputs[K], inputs[V], &desc);
    CHECK(output.id != 0);
    CHECK_SHAPE_IS(output, shape_in(c, Q));
    CHECK_OK(ignis_backward(output, ignis_tensor_data(inputs[GRAD_OUT])));
    check_result(c, dtype, names[OUT], ignis_tensor_data(output), results[OUT]);
    for (i = 0; i < INPUTS; i++)
        if (in[i])
            check_result(c, dtype, names[i], ignis_tensor_grad(inputs[i]), results[i]);
    for (i = 0; i <= INPUTS; i++)
        free(in[i]), free(results[i]);
    CHECK_OK(ignis_scope_end(scope));
}

#define SETUP_MMA()                                       \
    do {                                                  \
        ignis_desc by_mma = desc_by(IGNIS_ATTENTION_MMA); \
        SETUP(&by_mma);                                   \
    } while (0)

/*  Documents of 0 and 1 rows, of primes, of full tiles; rows in no document before, after, and between them. */
static const packed_case cases[] = {
    {0, 2, 1, 64, IGNIS_MASK_CAUSAL, 0, 0, false, OFFSETS_32, 6, {1, 0, 37, 64, 2, 53}},
    {0, 2, 2, 64, IGNIS_MASK_NONE, 0, 0, false, OFFSETS_64, 5, {-3, 71, 1, 59, -40}},
    {3, 4, 2, 40, IGNIS_MASK_CAUSAL, 11, 0, false, IDS_32, 5, {31, -7, 1, 29, -2}},
    {2, 2, 1, 64, IGNIS_MASK_NONE, 9, 1.5, true, IDS_64, 4, {17, 64, 1, 3}},
    {0, 1, 1, 64, IGNIS_MASK_CAUSAL, 0, 0, true, IDS_32, 3, {-64, 5, 70}},
    {2, 1, 1, 64, IGNIS_MASK_CAUSAL, 0, 0, false, IDS_32, 1, {-67}},
    {0, 1, 1, 64, IGNIS_MASK_CAUSAL, 0, 0, false, OFFSETS_32, 1, {1}},
    {0, 2, 1, 64, IGNIS_MASK_CAUSAL, 0, 0, false, IDS_64, 1, {67}},
};

TEST(sdpa_of_documents)
{
    int i;
    SETUP_MMA();
    for (i = 0; i < COUNT_OF(cases); i++) {
        check_case(&cases[i], i % 2 ? IGNIS_F32 : IGNIS_F64);
        check_case(&cases[i], i % 3 ? IGNIS_BF16 : IGNIS_F16);
    }
}

/*  A program for each size of heads. */
TEST(sdpa_of_documents_sizes_of_heads)
{
    static const struct {
        int head_dim;
        ignis_dtype dtype;
    } sizes[] = {{24, IGNIS_BF16},  {96, IGNIS_F16}, {128, IGNIS_BF16}, {192, IGNIS_F16},
                 {256, IGNIS_BF16}, {7, IGNIS_F32},  {128, IGNIS_F32}};
    packed_case c = {0, 2, 1, 0, IGNIS_MASK_CAUSAL, 20, 0, false, IDS_32, 4, {23, 1, -2, 40}};
    int i;
    SETUP_MMA();
    for (i = 0; i < COUNT_OF(sizes); i++) {
        c.head_dim = sizes[i].head_dim;
        check_case(&c, sizes[i].dtype);
    }
}

static ignis_tensor checked(const ignis_tensor *inputs, int count, void *user_data)
{
    return (void)count, ignis_sdpa(inputs[Q], inputs[K], inputs[V], (const ignis_sdpa_desc *)user_data);
}

TEST(gradients_of_documents_are_those_of_finite_differences)
{
    packed_case c = {2, 2, 1, 3, IGNIS_MASK_CAUSAL, 3, 0.7, false, IDS_32, 3, {4, -1, 2}};
    ignis_sdpa_desc desc = sdpa_desc_of(&c);
    ignis_tensor inputs[3];
    ignis_scope scope;
    int i;
    SETUP_MMA();
    scope = ignis_scope_begin();
    for (i = 0; i < 3; i++)
        inputs[i] = tensor_noise(shape_in(&c, i), IGNIS_F64, (uint64_t)i + 1, true);
    set_documents(&desc, &c);
    CHECK(ignis_gradcheck(checked, &desc, inputs, 3, NULL) < 1e-6);
    CHECK_OK(ignis_status_last());
    CHECK_OK(ignis_scope_end(scope));
}

/* other documents ----------------------------------------------------------------------------------------------- */

/*  The second of three documents is NaN. What the kernels read of it would reach the others, as 0 times NaN is NaN; so
    work is not proportional to the square of all rows. */
static void check_second_is_not_read(ignis_dtype dtype)
{
    static const packed_case c = {0, 2, 1, 64, IGNIS_MASK_NONE, 0, 0, false, OFFSETS_32, 3, {128, 256, 128}};
    ignis_scope scope = ignis_scope_begin();
    const int64_t q_row = 128, k_row = 64;
    double *in[3], *values;
    ignis_tensor inputs[3], output;
    ignis_sdpa_desc desc = sdpa_desc_of(&c);
    int64_t at, width;
    int i, k;
    for (i = 0; i < 3; i++) {
        width = i == Q ? q_row : k_row;
        in[i] = rounded_noise(shape_in(&c, i), dtype, (uint64_t)(3 + i), 2);
        for (at = 128 * width; at < 384 * width; at++)
            in[i][at] = NAN;
        inputs[i] = tensor_of(in[i], shape_in(&c, i), dtype, true);
        free(in[i]);
    }
    set_documents(&desc, &c);
    output = ignis_sdpa(inputs[Q], inputs[K], inputs[V], &desc);
    CHECK_OK(ignis_backward(output, ignis_tensor_data(tensor_noise(shape_in(&c, Q), dtype, 9, false))));
    for (i = 0; i < 4; i++) {
        values = i == 3 ? tensor_values(output) : array_values(ignis_tensor_grad(inputs[i]));
        width = i == Q || i == 3 ? q_row : k_row;
        for (k = 0; k < 512; k++)
            for (at = 0; at < width; at++)
                if (isnan(values[k * width + at]) != (k >= 128 && k < 384))
                    k = 9999, at = width;
        CHECK_INT(k, 512);
        free(values);
    }
    CHECK_OK(ignis_scope_end(scope));
}

TEST(tiles_of_other_documents_are_not_read)
{
    SETUP_MMA();
    check_second_is_not_read(IGNIS_F32);
    check_second_is_not_read(IGNIS_BF16);
}

/*  Rows of a document alone, by slices. */
static ignis_tensor document_alone(const packed_case *c, ignis_tensor qkv, int first, int length,
                                   const ignis_rope_desc *rope)
{
    ignis_sdpa_desc desc = sdpa_desc_of(c);
    return ignis_sdpa_packed(ignis_slice(qkv, 0, first, length), &desc, rope);
}

/*  Positions begin anew in each document: packed rows are as each document alone. */
static void check_rotated(ignis_dtype dtype, int head_dim)
{
    packed_case c = {0, 2, 1, 0, IGNIS_MASK_CAUSAL, 0, 0, false, OFFSETS_32, 3, {50, 1, 90}};
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x[2], y, parts[3], weights;
    ignis_sdpa_desc desc;
    ignis_rope_desc rope;
    double *a;
    int i, first = 0;
    c.head_dim = head_dim;
    memset(&rope, 0, sizeof rope);
    rope.pos_offset = 2;
    desc = sdpa_desc_of(&c);
    set_documents(&desc, &c);
    weights = tensor_noise(rows_shape(&c, 2), dtype, 9, false);
    for (i = 0; i < 2; i++)
        x[i] = tensor_noise(rows_shape(&c, 4), dtype, 8, true);
    y = ignis_sdpa_packed(x[0], &desc, &rope);
    CHECK_OK(ignis_backward(y, ignis_tensor_data(weights)));
    for (i = 0; i < 3; i++) {
        parts[i] = document_alone(&c, x[1], first, c.lengths[i], &rope);
        first += c.lengths[i];
    }
    parts[0] = ignis_concat(parts, 3, 0);
    a = tensor_values(parts[0]);
    check_result(&c, dtype, "the value", ignis_tensor_data(y), a);
    free(a);
    CHECK_OK(ignis_backward(parts[0], ignis_tensor_data(weights)));
    a = array_values(ignis_tensor_grad(x[1]));
    check_result(&c, dtype, "the gradient of qkv", ignis_tensor_grad(x[0]), a);
    free(a);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(positions_begin_anew_in_each_document)
{
    SETUP(NULL);
    check_rotated(IGNIS_F64, 6);
    check_rotated(IGNIS_BF16, 24);
    check_rotated(IGNIS_BF16, 64); /* by wgmma, where that can be had */
}

/*  Offsets that fall or are out of range, and ids that are all different: everything ends, and is a number. */
static void check_wild(ignis_dtype dtype, bool by_ids)
{
    static const double offsets[] = {-5, 60, 20, 90, 80, 1e9, 130, 300};
    ignis_scope scope = ignis_scope_begin();
    packed_case c = {0, 1, 1, 64, IGNIS_MASK_CAUSAL, 0, 0, false, IDS_32, 1, {260}};
    ignis_sdpa_desc desc = sdpa_desc_of(&c);
    ignis_tensor x = tensor_noise(rows_shape(&c, 1), dtype, 8, true), y;
    double *values;
    int i, mask;
    if (by_ids)
        desc.segments = tensor_counting(IGNIS_SHAPE(260), IGNIS_I64, 1, false);
    else
        desc.offsets = tensor_of(offsets, IGNIS_SHAPE(COUNT_OF(offsets)), IGNIS_I32, false);
    for (mask = 0; mask < 2; mask++) {
        desc.mask = mask ? IGNIS_MASK_NONE : IGNIS_MASK_CAUSAL;
        y = ignis_sdpa(x, x, x, &desc);
        CHECK_OK(ignis_backward(y, ignis_tensor_data(x)));
        values = array_values(ignis_tensor_grad(x));
        for (i = 0; i < 260 * 64 && isfinite(values[i]);)
            i++;
        CHECK_INT(i, 260 * 64);
        free(values);
    }
    CHECK_OK(ignis_scope_end(scope));
}

TEST(sdpa_of_wild_documents_ends)
{
    SETUP(NULL);
    check_wild(IGNIS_F32, false);
    check_wild(IGNIS_BF16, false); /* by wgmma, where that can be had: blocks wait for one another */
    check_wild(IGNIS_BF16, true);
}

TEST(sdpa_of_documents_of_nothing)
{
    static const double none[] = {0};
    ignis_tensor q, y;
    ignis_sdpa_desc desc;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    memset(&desc, 0, sizeof desc);
    q = tensor_noise(IGNIS_SHAPE(0, 8), IGNIS_F32, 1, true);
    desc.segments = tensor_of(none, IGNIS_SHAPE(0), IGNIS_I32, false);
    y = ignis_sdpa(q, q, q, &desc);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(0, 8));
    CHECK_OK(ignis_backward(y, ignis_tensor_data(q)));
    desc.segments = no_tensor();
    desc.offsets = tensor_of(none, IGNIS_SHAPE(1), IGNIS_I32, false); /* no document: zeros */
    q = tensor_noise(IGNIS_SHAPE(3, 8), IGNIS_F32, 1, true);
    y = ignis_sdpa(q, q, q, &desc);
    CHECK(value_at(y, 5) == 0);
    CHECK_OK(ignis_scope_end(scope));
}

/* wgmma --------------------------------------------------------------------------------------------------------- */

static int not_by_wgmma(void) { return test_log_count(IGNIS_DIAG_UNSUPPORTED); }

#define SETUP_WGMMA()                                      \
    do {                                                   \
        ignis_device_info device;                          \
        ignis_desc setup = desc_by(IGNIS_ATTENTION_WGMMA); \
        SETUP(&setup);                                     \
        CHECK_OK(ignis_device_query(0, &device));          \
        if (device.compute_major != 9)                     \
            SKIP("the device has no wgmma");               \
    } while (0)

/*  Documents that end inside of tiles, at their ends, and several in one; some leave whole tiles out, for some groups
    of warps and not for others; items that are split. */
TEST(sdpa_of_documents_by_wgmma)
{
    static const packed_case by_wgmma[] = {
        {0, 2, 1, 64, IGNIS_MASK_CAUSAL, 0, 0, false, OFFSETS_32, 7, {-3, 61, 0, 1, 128, 130, -9}},
        {2, 2, 2, 64, IGNIS_MASK_NONE, 0, 0, false, IDS_32, 5, {67, -70, 2, 131, -130}},
        {0, 1, 1, 64, IGNIS_MASK_CAUSAL, 40, 0, false, IDS_64, 4, {3, 200, 1, 90}},
        {0, 1, 1, 64, IGNIS_MASK_NONE, 30, 2, false, OFFSETS_64, 3, {128, 128, 77}},
        {0, 1, 1, 64, IGNIS_MASK_CAUSAL, 0, 0, false, IDS_32, 2, {-200, -100}},
        {0, 1, 1, 64, IGNIS_MASK_CAUSAL, 0, 0, false, IDS_32, 3, {-150, 40, -170}},
        {0, 1, 1, 64, IGNIS_MASK_NONE, 0, 0, false, OFFSETS_32, 2, {520, 60}},
    };
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(by_wgmma); i++)
        check_case(&by_wgmma[i], i % 3 == 2 ? IGNIS_F16 : IGNIS_BF16);
    check_second_is_not_read(IGNIS_BF16);
    CHECK_INT(not_by_wgmma(), 0);
}

/*  A size of heads for each way to share columns and keys among the groups of warps. */
TEST(sdpa_of_documents_by_wgmma_sizes_of_heads)
{
    static const int sizes[] = {72, 128, 192, 256};
    packed_case c = {2, 2, 1, 0, IGNIS_MASK_CAUSAL, 0, 0, false, IDS_32, 4, {70, -5, 131, 1}};
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(sizes); i++) {
        c.head_dim = sizes[i];
        c.mask = i == 2 ? IGNIS_MASK_NONE : IGNIS_MASK_CAUSAL;
        c.softcap = i == 3 ? 1.5 : 0;
        check_case(&c, i % 2 ? IGNIS_BF16 : IGNIS_F16);
    }
    CHECK_INT(not_by_wgmma(), 0);
}

/* errors -------------------------------------------------------------------------------------------------------- */

TEST(sdpa_of_documents_errors)
{
    ignis_sdpa_desc desc;
    ignis_tensor q, k, one, ids, offsets, floats;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    q = tensor_noise(IGNIS_SHAPE(2, 3, 8), IGNIS_F32, 1, false);
    k = tensor_noise(IGNIS_SHAPE(2, 4, 8), IGNIS_F32, 1, false);
    one = tensor_noise(IGNIS_SHAPE(2, 1, 8), IGNIS_F32, 1, false);
    ids = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_I32, 1, false);
    offsets = tensor_counting(IGNIS_SHAPE(3), IGNIS_I32, 1, false);
    floats = tensor_noise(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, false);
    desc.segments = ids;
    CHECK_FAILS(ignis_sdpa(q, k, k, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_MESSAGE_HAS("q has 3 rows, k has 4; with desc->segments expected as many");
    CHECK_FAILS(ignis_sdpa(k, k, k, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_MESSAGE_HAS("desc->segments is [2, 3]; expected an id for each of 2 x 4 rows");
    CHECK_FAILS(ignis_decode_sdpa_with(one, q, q, &desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("desc->segments is not supported");
    desc.offsets = offsets;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("more than one of desc->lengths, desc->segments and desc->offsets is given; expected one");
    desc.segments = no_tensor();
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_MESSAGE_HAS("there are 2 sequences; with desc->offsets expected one");
    desc.offsets = ids;
    CHECK_FAILS(ignis_sdpa_packed(q, &desc, NULL), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    desc.offsets = no_tensor();
    desc.segments = floats;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("desc->segments is f32; expected i32 or i64");
    let_go(q), let_go(k), let_go(one), let_go(ids), let_go(offsets), let_go(floats);
}

/*  Both ways to give documents, forward and backward. inputs: qkv, ids, offsets. */
static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    ignis_sdpa_desc desc;
    ignis_rope_desc rope;
    ignis_tensor y;
    (void)at;
    memset(&desc, 0, sizeof desc);
    memset(&rope, 0, sizeof rope);
    desc.segments = inputs[1];
    y = ignis_sdpa(inputs[0], inputs[0], inputs[0], &desc);
    if (!y.id)
        return y;
    desc.segments = no_tensor();
    desc.offsets = inputs[2];
    y = ignis_sdpa_packed(y, &desc, &rope);
    return y.id ? ignis_sum(y) : y;
}

static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc setup = test_counting_desc(&counter);
    const double offsets[] = {0, 2, 4};
    ignis_tensor inputs[3];
    setup.memory_bypass = true;
    SETUP(&setup);
    inputs[0] = tensor_noise(IGNIS_SHAPE(5, 12), IGNIS_F32, 1, true);
    inputs[1] = tensor_counting(IGNIS_SHAPE(5), IGNIS_I32, 1, false);
    inputs[2] = tensor_of(offsets, IGNIS_SHAPE(3), IGNIS_I32, false);
    CHECK_OK(ignis_zero_grad(inputs[0]));
    sweep_walks(prefix, &counter, everything, inputs);
    let_go(inputs[0]), let_go(inputs[1]), let_go(inputs[2]);
}

TEST(sdpa_of_documents_unwinds_when_memory_is_out) { sweep("cuMemAlloc"); }
TEST(sdpa_of_documents_unwinds_when_launches_fail) { sweep("cuLaunchKernel"); }

int main(int argc, char **argv) { return test_run(argc, argv); }
