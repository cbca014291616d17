// SPDX-License-Identifier: MIT
/*  test_ops_attention.c - sdpa and decode_sdpa: values and gradients in every dtype against a reference in double,
    gradients in f64 against finite differences, masks, groups of heads, rows that see nothing, errors */
#include "fault.h"
#include "tensor.h"

#include "processes.h"

#include <math.h>

typedef struct attention_case {
    int batch; /* 0: tensors of two dimensions */
    int heads, kv_heads, head_dim, sq, sk;
    ignis_mask mask;
} attention_case;

static ignis_shape rows_shape(const attention_case *c, int rows, int heads)
{
    return c->batch ? IGNIS_SHAPE(c->batch, rows, heads * c->head_dim) : IGNIS_SHAPE(rows, heads * c->head_dim);
}

static ignis_sdpa_desc sdpa_desc_of(const attention_case *c)
{
    ignis_sdpa_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.num_heads = c->heads;
    desc.num_kv_heads = c->kv_heads == c->heads ? 0 : c->kv_heads;
    desc.mask = c->mask;
    return desc;
}

/* the reference ------------------------------------------------------------------------------------------------- */

enum { OUT, GRAD_Q, GRAD_K, GRAD_V, RESULTS };
static const char *const result_names[RESULTS] = {"the value", "the gradient of q", "the gradient of k",
                                                  "the gradient of v"};

OPTIMIZED static void reference_row(const attention_case *c, double *const in[4], double *const results[RESULTS], int b,
                                    int h, int i)
{
    int d, j, dim = c->head_dim, kv_h = h / (c->heads / c->kv_heads);
    int seen = c->mask == IGNIS_MASK_NONE ? c->sk : i + c->sk - c->sq + 1;
    int64_t q_at = ((int64_t)(b * c->sq + i) * c->heads + h) * dim, k_row = (int64_t)c->kv_heads * dim;
    int64_t k_at = (int64_t)b * c->sk * k_row + kv_h * dim;
    double scale = 1 / sqrt((double)dim), top = -HUGE_VAL, sum = 0, delta = 0;
    double *weights, *grads;
    seen = seen < 0 ? 0 : seen;
    weights = (double *)calloc((size_t)seen + 1, sizeof *weights);
    grads = (double *)calloc((size_t)seen + 1, sizeof *grads);
    for (j = 0; j < seen; j++) {
        for (d = 0; d < dim; d++)
            weights[j] += scale * in[0][q_at + d] * in[1][k_at + j * k_row + d];
        top = weights[j] > top ? weights[j] : top;
    }
    for (j = 0; j < seen; j++)
        sum += weights[j] = exp(weights[j] - top);
    for (j = 0; j < seen; j++) {
        weights[j] /= sum;
        for (d = 0; d < dim; d++) {
            results[OUT][q_at + d] += weights[j] * in[2][k_at + j * k_row + d];
            results[GRAD_V][k_at + j * k_row + d] += weights[j] * in[3][q_at + d];
            grads[j] += in[3][q_at + d] * in[2][k_at + j * k_row + d];
        }
        delta += weights[j] * grads[j];
    }
    for (j = 0; j < seen; j++)
        for (d = 0; d < dim; d++) {
            double grad = scale * weights[j] * (grads[j] - delta);
            results[GRAD_Q][q_at + d] += grad * in[1][k_at + j * k_row + d];
            results[GRAD_K][k_at + j * k_row + d] += grad * in[0][q_at + d];
        }
    free(weights);
    free(grads);
}

/*  in is q, k, v and the gradient of the output. */
static void reference(const attention_case *c, double *const in[4], double *const results[RESULTS])
{
    int b, h, i;
    for (b = 0; b < (c->batch ? c->batch : 1); b++)
        for (h = 0; h < c->heads; h++)
            for (i = 0; i < c->sq; i++)
                reference_row(c, in, results, b, h, i);
}

/* values and gradients ------------------------------------------------------------------------------------------ */

/*  Of probabilities and sums of products that were rounded, where tensor cores did it, relative to the largest number.
    */
static double tolerance_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64 ? 1e-12 : dtype == IGNIS_F32 ? 1e-5 : dtype == IGNIS_F16 ? 2e-3 : 1.6e-2;
}

static void check_results(const attention_case *c, ignis_dtype dtype, const char *what, const double *got,
                          const double *expected, int64_t numel)
{
    double largest = 0.1;
    char text[512];
    int64_t i;
    for (i = 0; i < numel; i++)
        largest = fabs(expected[i]) > largest ? fabs(expected[i]) : largest;
    for (i = 0; i < numel; i++) {
        if (fabs(got[i] - expected[i]) <= largest * tolerance_of(dtype))
            continue;
        snprintf(text, sizeof text,
                 "dtype %d, batch %d, heads %d of %d and %d, sq %d, sk %d, mask %d: element %lld of %s is %.9g, "
                 "expected %.9g",
                 (int)dtype, c->batch, c->head_dim, c->heads, c->kv_heads, c->sq, c->sk, (int)c->mask, (long long)i,
                 what, got[i], expected[i]);
        test__fail(__FILE__, __LINE__, text);
        return;
    }
}

static void check_case(const attention_case *c, ignis_dtype dtype)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_sdpa_desc desc = sdpa_desc_of(c);
    ignis_shape shapes[4];
    ignis_tensor inputs[3], output, weights;
    double *in[4], *results[RESULTS], *got;
    int i;
    shapes[0] = shapes[3] = rows_shape(c, c->sq, c->heads);
    shapes[1] = shapes[2] = rows_shape(c, c->sk, c->kv_heads);
    for (i = 0; i < 4; i++) {
        in[i] = rounded_noise(shapes[i], dtype, (uint64_t)(3 + i), 2);
        results[i] = (double *)calloc((size_t)shape_numel(shapes[i == 0 ? 0 : i - 1]) + 1, sizeof *results[i]);
    }
    reference(c, in, results);
    for (i = 0; i < 3; i++)
        inputs[i] = tensor_of(in[i], shapes[i], dtype, true);
    weights = tensor_of(in[3], shapes[3], dtype, false);
    output = ignis_sdpa(inputs[0], inputs[1], inputs[2], &desc);
    CHECK(output.id != 0);
    CHECK_SHAPE_IS(output, shapes[0]);
    CHECK_OK(ignis_backward(output, ignis_tensor_data(weights)));
    got = tensor_values(output);
    check_results(c, dtype, result_names[OUT], got, results[OUT], shape_numel(shapes[0]));
    free(got);
    for (i = 0; i < 3; i++) {
        got = array_values(ignis_tensor_grad(inputs[i]));
        check_results(c, dtype, result_names[GRAD_Q + i], got, results[GRAD_Q + i], shape_numel(shapes[i]));
        free(got);
    }
    for (i = 0; i < 4; i++) {
        free(in[i]);
        free(results[i]);
    }
    CHECK_OK(ignis_scope_end(scope));
}

/*  Lengths around the borders of tiles; groups of heads; fewer keys than queries, where the first queries see nothing.
    All have a size of heads that the same programs serve. */
static const attention_case cases[] = {
    {0, 1, 1, 64, 1, 1, IGNIS_MASK_CAUSAL},   {0, 2, 1, 64, 7, 7, IGNIS_MASK_CAUSAL},
    {2, 2, 2, 40, 63, 63, IGNIS_MASK_CAUSAL}, {0, 4, 2, 64, 65, 65, IGNIS_MASK_CAUSAL},
    {0, 1, 1, 64, 129, 129, IGNIS_MASK_NONE}, {2, 2, 1, 48, 33, 130, IGNIS_MASK_CAUSAL},
    {1, 1, 1, 64, 70, 33, IGNIS_MASK_CAUSAL}, {0, 3, 3, 56, 5, 65, IGNIS_MASK_NONE},
    {2, 1, 1, 40, 1, 67, IGNIS_MASK_CAUSAL},
};

/*  With the kernels that every device has; those of wgmma have tests of their own, below. */
static ignis_desc mma_desc(void)
{
    ignis_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.attention = IGNIS_ATTENTION_MMA;
    return desc;
}

#define SETUP_MMA()                     \
    do {                                \
        ignis_desc by_mma = mma_desc(); \
        SETUP(&by_mma);                 \
    } while (0)

TEST(sdpa_values_and_gradients)
{
    int i, d;
    SETUP_MMA();
    for (i = 0; i < COUNT_OF(cases); i++)
        for (d = 0; d < 4; d++)
            if (test_takes(float_dtypes[d], i))
                check_case(&cases[i], float_dtypes[d]);
}

/*  A size for each program, some of them not its own, in one dtype each. */
TEST(sdpa_sizes_of_heads)
{
    static const struct {
        int head_dim;
        ignis_dtype dtype;
    } sizes[] = {{32, IGNIS_BF16},  {96, IGNIS_F16},  {128, IGNIS_BF16}, {168, IGNIS_F16}, {192, IGNIS_F16},
                 {256, IGNIS_BF16}, /* on tensor cores */
                 {1, IGNIS_F32},    {31, IGNIS_F64},  {33, IGNIS_F16},   {63, IGNIS_F32},  {65, IGNIS_BF16},
                 {127, IGNIS_BF16}, {129, IGNIS_F32}, {255, IGNIS_F32},  {256, IGNIS_F64}};
    attention_case c = {0, 2, 1, 0, 19, 35, IGNIS_MASK_CAUSAL};
    int i;
    SETUP_MMA();
    for (i = 0; i < COUNT_OF(sizes); i++) {
        c.head_dim = sizes[i].head_dim;
        check_case(&c, sizes[i].dtype);
    }
}

static ignis_tensor checked_sdpa(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count;
    return ignis_sdpa(inputs[0], inputs[1], inputs[2], (const ignis_sdpa_desc *)user_data);
}

TEST(sdpa_gradients_are_those_of_finite_differences)
{
    static const attention_case checked[] = {{0, 2, 1, 4, 5, 5, IGNIS_MASK_CAUSAL},
                                             {2, 1, 1, 3, 3, 6, IGNIS_MASK_CAUSAL},
                                             {0, 2, 2, 5, 4, 3, IGNIS_MASK_NONE},
                                             {0, 1, 1, 4, 5, 3, IGNIS_MASK_CAUSAL}};
    int i, k;
    SETUP_MMA();
    for (i = 0; i < COUNT_OF(checked); i++) {
        ignis_sdpa_desc desc = sdpa_desc_of(&checked[i]);
        ignis_tensor inputs[3];
        for (k = 0; k < 3; k++)
            inputs[k] = tensor_noise(k ? rows_shape(&checked[i], checked[i].sk, checked[i].kv_heads)
                                       : rows_shape(&checked[i], checked[i].sq, checked[i].heads),
                                     IGNIS_F64, (uint64_t)(5 + k), true);
        CHECK(ignis_gradcheck(checked_sdpa, &desc, inputs, 3, NULL) < 1e-6);
        desc.scale = 0.7;
        CHECK(ignis_gradcheck(checked_sdpa, &desc, inputs, 3, NULL) < 1e-6);
        CHECK_OK(ignis_status_last());
        for (k = 0; k < 3; k++)
            let_go(inputs[k]);
    }
}

/*  Only what is needed is computed, and one tensor may be all three. */
TEST(sdpa_of_one_tensor)
{
    ignis_tensor x, k, out;
    ignis_sdpa_desc desc;
    int which;
    memset(&desc, 0, sizeof desc);
    SETUP_MMA();
    x = tensor_noise(IGNIS_SHAPE(6, 8), IGNIS_F64, 1, true);
    desc.num_heads = 2;
    for (which = 0; which < 3; which++) {
        k = tensor_noise(IGNIS_SHAPE(6, 8), IGNIS_F64, 2, false);
        out = ignis_sdpa(which == 0 ? x : k, which == 1 ? x : k, which == 2 ? x : k, &desc);
        CHECK_OK(ignis_backward(out, ignis_tensor_data(k)));
        CHECK(ignis_tensor_grad(x).id != 0 && ignis_tensor_grad(k).id == 0);
        let_go(out);
        let_go(k);
    }
    out = ignis_sdpa(x, x, x, NULL);
    CHECK_OK(ignis_backward(out, ignis_tensor_data(x)));
    CHECK(grad_at(x, 0) == grad_at(x, 0));
    let_go(out);
    let_go(x);
}

/*  Scores far apart: each query picks the key that fits it best, and nothing overflows. */
TEST(sdpa_of_large_scores)
{
    static const double sizes[3] = {1, -1, 3}, factors[2] = {10, 3e4};
    double values[24], *got, *grads;
    int f, i;
    SETUP_MMA();
    for (f = 0; f < 2; f++) {
        ignis_tensor q, k, v, out;
        for (i = 0; i < 24; i++)
            values[i] = sizes[i / 8] * factors[f];
        q = tensor_of(values, IGNIS_SHAPE(3, 8), IGNIS_BF16, true);
        k = tensor_of(values, IGNIS_SHAPE(3, 8), IGNIS_BF16, true);
        v = tensor_counting(IGNIS_SHAPE(3, 8), IGNIS_BF16, 1, true);
        out = ignis_sdpa(q, k, v, NULL);
        CHECK_OK(ignis_backward(out, ignis_tensor_data(v)));
        got = tensor_values(out);
        grads = array_values(ignis_tensor_grad(k));
        for (i = 0; i < 24; i++) {
            CHECK_CLOSE(got[i], i + 1, 1.0 / 128);
            CHECK(grads[i] == grads[i]);
            if (f == 0)
                CHECK_CLOSE(grads[i], 0, 1e-3);
        }
        free(got);
        free(grads);
        let_go(out);
        let_go(q);
        let_go(k);
        let_go(v);
    }
}

TEST(sdpa_of_nothing)
{
    ignis_tensor q, k, out;
    ignis_sdpa_desc desc;
    double *got;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.mask = IGNIS_MASK_NONE;
    SETUP_MMA();
    q = tensor_noise(IGNIS_SHAPE(3, 8), IGNIS_F32, 1, true);
    k = tensor_noise(IGNIS_SHAPE(0, 8), IGNIS_F32, 2, true);
    out = ignis_sdpa(q, k, k, &desc);
    CHECK_OK(ignis_backward(out, ignis_tensor_data(q)));
    got = tensor_values(out);
    for (i = 0; i < 24; i++) {
        CHECK_NUMBER(got[i], 0);
        CHECK_NUMBER(grad_at(q, i), 0);
    }
    free(got);
    let_go(out);
    out = ignis_sdpa(k, q, q, &desc);
    CHECK_INT(numel_of(out), 0);
    CHECK_OK(ignis_backward(out, ignis_tensor_data(k)));
    let_go(out);
    let_go(q);
    let_go(k);
}

/*  f16 and bf16 rows that are not aligned to 16 bytes take the other variant, and give nearly the same. */
TEST(sdpa_of_views)
{
    ignis_tensor whole = {0}, view, aligned, out, other;
    ignis_array array, slice, rows;
    double *a, *b;
    int i;
    SETUP_MMA();
    whole = tensor_noise(IGNIS_SHAPE(20 * 40 + 1), IGNIS_F16, 4, false);
    array = ignis_tensor_data(whole);
    slice = ignis_array_slice(array, 0, 1, 20 * 40);
    rows = ignis_array_reshape(slice, IGNIS_SHAPE(20, 40));
    view = ignis_tensor_from_array(rows, true);
    a = array_values(rows);
    aligned = tensor_of(a, IGNIS_SHAPE(20, 40), IGNIS_F16, true);
    free(a);
    out = ignis_sdpa(view, view, view, NULL);
    other = ignis_sdpa(aligned, aligned, aligned, NULL);
    CHECK_OK(ignis_backward(out, ignis_tensor_data(aligned)));
    CHECK_OK(ignis_backward(other, rows));
    a = tensor_values(out);
    b = tensor_values(other);
    for (i = 0; i < 800; i++) {
        CHECK_CLOSE(a[i], b[i], 2e-3);
    }
    free(a);
    free(b);
    a = array_values(ignis_tensor_grad(view));
    b = array_values(ignis_tensor_grad(aligned));
    for (i = 0; i < 800; i++)
        CHECK_CLOSE(a[i], b[i], 6e-3);
    free(a);
    free(b);
    let_go(other);
    let_go(out);
    let_go(aligned);
    let_go(view);
    CHECK_OK(ignis_array_free(rows));
    CHECK_OK(ignis_array_free(slice));
    let_go(whole);
}

/* q, k and v in one tensor ------------------------------------------------------------------------------------------
   */

typedef struct packed_case {
    attention_case attention; /* sk is sq */
    ignis_sdpa_desc sdpa;
    ignis_rope_desc rope; /* num_heads 0: nothing turns */
} packed_case;

static packed_case packed_case_of(const attention_case *c, bool turns)
{
    packed_case packed;
    memset(&packed, 0, sizeof packed);
    packed.attention = *c;
    packed.sdpa = sdpa_desc_of(c);
    packed.rope.num_heads = turns ? c->heads + c->kv_heads : 0;
    packed.rope.pos_offset = 3;
    return packed;
}

static ignis_tensor packed_whole(const ignis_tensor *inputs, int count, void *user_data)
{
    const packed_case *c = (const packed_case *)user_data;
    (void)count;
    return ignis_sdpa_packed(inputs[0], &c->sdpa, c->rope.num_heads ? &c->rope : NULL);
}

/*  The same by operations that copy. */
static ignis_tensor packed_in_parts(const ignis_tensor *inputs, const packed_case *c)
{
    const attention_case *a = &c->attention;
    ignis_rope_desc rope = c->rope;
    int64_t sizes[3];
    ignis_tensor parts[3];
    sizes[0] = (int64_t)a->heads * a->head_dim;
    sizes[1] = sizes[2] = (int64_t)a->kv_heads * a->head_dim;
    CHECK_OK(ignis_split(inputs[0], -1, 3, sizes, parts));
    if (c->rope.num_heads) {
        rope.num_heads = a->heads;
        parts[0] = ignis_rope(parts[0], &rope);
        rope.num_heads = a->kv_heads;
        parts[1] = ignis_rope(parts[1], &rope);
    }
    return ignis_sdpa(parts[0], parts[1], parts[2], &c->sdpa);
}

static void check_same_bits(const attention_case *c, ignis_dtype dtype, const char *what, ignis_array a, ignis_array b)
{
    int64_t size = ignis_array_numel(a) * (int64_t)ignis_dtype_size(dtype);
    unsigned char *x = (unsigned char *)malloc((size_t)size + 1), *y = (unsigned char *)malloc((size_t)size + 1);
    char text[256];
    CHECK_OK(ignis_array_to_host_raw(a, x, size));
    CHECK_OK(ignis_array_to_host_raw(b, y, size));
    if (memcmp(x, y, (size_t)size) != 0) {
        snprintf(text, sizeof text, "%s differs: dtype %d, batch %d, heads %d of %d and %d, %d rows, mask %d", what,
                 (int)dtype, c->batch, c->head_dim, c->heads, c->kv_heads, c->sq, (int)c->mask);
        test__fail(__FILE__, __LINE__, text);
    }
    free(x);
    free(y);
}

static void check_packed(packed_case packed, ignis_dtype dtype)
{
    const attention_case *c = &packed.attention;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x[2], y[2], weights = tensor_noise(rows_shape(c, c->sq, c->heads), dtype, 9, false);
    int i;
    for (i = 0; i < 2; i++) {
        x[i] = tensor_noise(rows_shape(c, c->sq, c->heads + 2 * c->kv_heads), dtype, 8, true);
        y[i] = i ? packed_in_parts(&x[i], &packed) : packed_whole(&x[i], 1, &packed);
        CHECK_SHAPE_IS(y[i], rows_shape(c, c->sq, c->heads));
        CHECK_OK(ignis_backward(y[i], ignis_tensor_data(weights)));
    }
    check_same_bits(c, dtype, "the value", ignis_tensor_data(y[0]), ignis_tensor_data(y[1]));
    check_same_bits(c, dtype, "the gradient", ignis_tensor_grad(x[0]), ignis_tensor_grad(x[1]));
    CHECK_OK(ignis_scope_end(scope));
}

/*  On tensor cores and in plain CUDA C, with rows in packs of 16 bytes and without. */
static const attention_case packed_cases[] = {
    {2, 2, 2, 64, 65, 65, IGNIS_MASK_CAUSAL}, {0, 4, 2, 64, 33, 33, IGNIS_MASK_NONE},
    {2, 3, 1, 40, 17, 17, IGNIS_MASK_CAUSAL}, {0, 1, 1, 64, 1, 1, IGNIS_MASK_CAUSAL},
    {2, 2, 1, 38, 5, 5, IGNIS_MASK_NONE},
};

TEST(sdpa_packed_has_the_bits_of_its_parts)
{
    int i, d, turns;
    SETUP_MMA();
    for (i = 0; i < COUNT_OF(packed_cases); i++)
        for (d = 0; d < 4; d++)
            for (turns = 0; turns < 2; turns++)
                if (test_takes(float_dtypes[d], i + turns))
                    check_packed(packed_case_of(&packed_cases[i], turns != 0), float_dtypes[d]);
}

#define NEEDS_WGMMA()                             \
    do {                                          \
        ignis_device_info device;                 \
        CHECK_OK(ignis_device_query(0, &device)); \
        if (device.compute_major != 9)            \
            SKIP("the device has no wgmma");      \
    } while (0)

/*  By the kernels of compute capability 9.0, whose maps have the strides of the whole. */
TEST(sdpa_packed_has_the_bits_of_its_parts_with_wgmma)
{
    static const attention_case shapes[] = {
        {2, 4, 2, 64, 131, 131, IGNIS_MASK_CAUSAL},
        {1, 2, 1, 80, 70, 70, IGNIS_MASK_NONE}, /* halves of heads are whole packs, but not an even number of them */
        {1, 2, 2, 128, 65, 65, IGNIS_MASK_CAUSAL},
        {1, 1, 1, 72, 40, 40,
         IGNIS_MASK_CAUSAL}, /* halves are no whole packs: gradients turn behind the kernels of attention */
    };
    ignis_desc desc = test_desc(NULL);
    int turns, i;
    desc.attention = IGNIS_ATTENTION_WGMMA;
    SETUP(&desc);
    NEEDS_WGMMA();
    for (i = 0; i < COUNT_OF(shapes); i++)
        for (turns = 0; turns < 2; turns++) {
            fault_reset_counts();
            check_packed(packed_case_of(&shapes[i], turns != 0), IGNIS_BF16);
            CHECK_INT(fault_count("cuTensorMapEncodeTiled"), 2 * (4 + 6)); /* forward and backward took them, twice */
        }
}

/*  The gradient of the projection's bias is the sum of the columns of what the projection gets, which is found with a
    leaf in its place. */
static void check_bias_of_packed(packed_case packed, ignis_dtype dtype, bool one_pass)
{
    const attention_case *c = &packed.attention;
    const int64_t n = (c->heads + 2 * c->kv_heads) * c->head_dim;
    ignis_scope scope = ignis_scope_begin();
    ignis_shape shape = rows_shape(c, c->sq, c->heads + 2 * c->kv_heads), narrow = shape;
    ignis_tensor x, weight = tensor_noise(IGNIS_SHAPE(n, 24), dtype, 2, true),
                    bias = tensor_noise(IGNIS_SHAPE(n), dtype, 3, true), y, leaf;
    double *values, *gradients, *got, *expected = (double *)calloc((size_t)n, sizeof *expected), largest = 0;
    const double rounding = dtype == IGNIS_F16
                                ? 1.0 / 2048
                                : 1.0 / 256; /* of the sum; that of float is a thousandth of it at these sizes */
    int64_t i, rows = (c->batch ? c->batch : 1) * (int64_t)c->sq;
    narrow.dim[narrow.ndim - 1] = 24;
    x = tensor_noise(narrow, dtype, 1, true);
    y = ignis_linear(x, weight, bias);
    values = tensor_values(y);
    leaf = tensor_of(values, shape, dtype, true);
    free(backward_from(packed_whole(&leaf, 1, &packed), dtype, 9, 0));
    gradients = array_values(ignis_tensor_grad(leaf));
    for (i = 0; i < rows * n; i++)
        expected[i % n] += gradients[i];
    for (i = 0; i < n; i++)
        largest = fabs(expected[i]) > largest ? fabs(expected[i]) : largest;
    CHECK_OK(ignis_profile_begin());
    free(backward_from(packed_whole(&y, 1, &packed), dtype, 9, 0));
    CHECK_INT(columns_summed(), one_pass ? 0 : 1);
    got = array_values(ignis_tensor_grad(bias));
    for (i = 0; i < n && fabs(got[i] - expected[i]) <= rounding * (fabs(expected[i]) + largest / 16); i++)
        ;
    if (i < n) {
        printf("dtype %d, %d heads of %d and %d, %d rows, mask %d: %lld of %lld is %g, not %g\n", (int)dtype, c->heads,
               c->head_dim, c->kv_heads, c->sq, (int)c->mask, (long long)i, (long long)n, got[i], expected[i]);
        CHECK(i == n);
    }
    free(values), free(gradients), free(got), free(expected);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(sdpa_packed_sums_the_gradient_of_a_bias_behind_it)
{
    static const attention_case behind[] = {
        {2, 4, 2, 64, 131, 131, IGNIS_MASK_CAUSAL}, {0, 2, 2, 64, 200, 200, IGNIS_MASK_NONE},
        {3, 2, 1, 128, 70, 70, IGNIS_MASK_CAUSAL},  {0, 2, 1, 72, 130, 130, IGNIS_MASK_NONE},
        {2, 1, 1, 256, 65, 65, IGNIS_MASK_CAUSAL},  {0, 2, 2, 136, 64, 64, IGNIS_MASK_CAUSAL},
    };
    ignis_desc desc = test_desc(NULL);
    int i;
    desc.attention = IGNIS_ATTENTION_WGMMA;
    desc.matmul = IGNIS_MATMUL_CUBLASLT; /* which leaves such sums to a kernel of their own */
    SETUP(&desc);
    NEEDS_WGMMA();
    for (i = 0; i < COUNT_OF(behind); i++)
        check_bias_of_packed(packed_case_of(&behind[i], false), i % 2 ? IGNIS_F16 : IGNIS_BF16, true);
    check_bias_of_packed(packed_case_of(&behind[0], true), IGNIS_BF16,
                         false); /* what turns back is not what has been added up */
    CHECK_INT(memory().live_blocks, 0);
}

TEST(sdpa_packed_gradients_are_those_of_finite_differences)
{
    static const attention_case checked[] = {{0, 2, 1, 4, 5, 5, IGNIS_MASK_CAUSAL},
                                             {2, 1, 1, 6, 3, 3, IGNIS_MASK_NONE}};
    int i;
    SETUP_MMA();
    for (i = 0; i < 2 * COUNT_OF(checked); i++) {
        const attention_case *c = &checked[i / 2];
        packed_case packed = packed_case_of(c, i % 2 != 0);
        ignis_tensor x = tensor_noise(rows_shape(c, c->sq, c->heads + 2 * c->kv_heads), IGNIS_F64, 5, true);
        CHECK(ignis_gradcheck(packed_whole, &packed, &x, 1, NULL) < 1e-6);
        CHECK_OK(ignis_status_last());
        let_go(x);
    }
}

/*  Nothing but the result and what it needs for the backward is made, and nothing is copied. */
TEST(sdpa_packed_launches)
{
    static const attention_case c = {2, 2, 1, 64, 33, 33, IGNIS_MASK_CAUSAL};
    packed_case packed = packed_case_of(&c, false);
    ignis_tensor x, y;
    int i;
    SETUP_MMA();
    x = tensor_noise(rows_shape(&c, c.sq, c.heads + 2 * c.kv_heads), IGNIS_BF16, 8, true);
    CHECK_OK(ignis_zero_grad(x));
    for (i = 0; i < 2; i++) { /* compiled, then counted */
        fault_reset_counts();
        y = packed_whole(&x, 1, &packed);
        CHECK_INT(fault_count("cuLaunchKernel") - (i ? 1 : fault_count("cuLaunchKernel")), 0);
        CHECK_OK(ignis_backward(y, ignis_tensor_data(y)));
        let_go(y);
    }
    CHECK_INT(fault_count("cuLaunchKernel"),
              1 + 3 + 1); /* delta, k and v, q; and the sum with the gradient that was there */
    CHECK_INT(fault_count("cuMemcpyDtoDAsync_v2"), 0);
    let_go(x);
}

/*  The caller's own frequencies on the device, which backward reads again, and no rows at all. */
TEST(sdpa_packed_turns_by_frequencies_of_the_caller)
{
    static const attention_case c = {2, 2, 1, 8, 7, 7, IGNIS_MASK_CAUSAL}, none = {2, 2, 1, 8, 0, 0, IGNIS_MASK_CAUSAL};
    static const double frequencies[4] = {1, 0.3, 0.09, 0.027};
    packed_case packed = packed_case_of(&c, true);
    ignis_tensor own;
    SETUP_MMA();
    own = tensor_of(frequencies, IGNIS_SHAPE(4), IGNIS_F32, false);
    packed.rope.inv_freq_array = ignis_tensor_data(own);
    check_packed(packed, IGNIS_F32);
    let_go(own);
    check_packed(packed_case_of(&none, true), IGNIS_F32);
}

TEST(sdpa_packed_errors)
{
    ignis_tensor x, row, odd, wide, ints;
    ignis_sdpa_desc desc;
    ignis_rope_desc rope;
    memset(&desc, 0, sizeof desc);
    memset(&rope, 0, sizeof rope);
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(3, 16), IGNIS_F32, 1, false);
    row = tensor_noise(IGNIS_SHAPE(16), IGNIS_F32, 1, false);
    odd = tensor_noise(IGNIS_SHAPE(3, 12), IGNIS_F32, 1, false);
    wide = tensor_noise(IGNIS_SHAPE(1, 3 * 257), IGNIS_F32, 1, false);
    ints = tensor_counting(IGNIS_SHAPE(3, 16), IGNIS_I32, 1, false);
    desc.num_heads = 2, desc.num_kv_heads = 1;
    CHECK_FAILS(ignis_sdpa_packed(row, &desc, NULL), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_MESSAGE_HAS("qkv is [16]");
    CHECK_FAILS(ignis_sdpa_packed(x, NULL, NULL), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_MESSAGE_HAS("num_heads (1) and 2 * num_kv_heads (1) heads of equal size");
    CHECK_FAILS(ignis_sdpa_packed(ints, &desc, NULL), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_FAILS(ignis_sdpa_packed(wide, NULL, NULL), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("head_dim is 257");
    rope.num_heads = 2;
    CHECK_FAILS(ignis_sdpa_packed(x, &desc, &rope), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("rope->num_heads is 2; q and k have 3 heads");
    rope.num_heads = 0;
    CHECK_FAILS(ignis_sdpa_packed(odd, &desc, &rope), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("heads of 3 elements");
    desc.num_kv_heads = 3;
    CHECK_FAILS(ignis_sdpa_packed(x, &desc, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SDPA_HEADS);
    let_go(x), let_go(row), let_go(odd), let_go(wide), let_go(ints);
}

/* wgmma --------------------------------------------------------------------------------------------------------- */

/*  Asks for the kernels of compute capability 9.0, and for what the logger hears of those that are taken instead. */
static ignis_desc wgmma_desc(void)
{
    ignis_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.attention = IGNIS_ATTENTION_WGMMA;
    desc.verbose = true;
    return desc;
}

static int not_by_wgmma(void) { return test_log_count(IGNIS_DIAG_UNSUPPORTED); }

#define SETUP_WGMMA()                    \
    do {                                 \
        ignis_desc setup = wgmma_desc(); \
        SETUP(&setup);                   \
        NEEDS_WGMMA();                   \
    } while (0)

/*  The values alone, of inputs between -factor and factor. The caller frees them. */
static double *forward_values(const attention_case *c, ignis_dtype dtype, double factor, bool check)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_sdpa_desc desc = sdpa_desc_of(c);
    ignis_shape shapes[4];
    ignis_tensor inputs[3], output;
    double *in[4], *results[RESULTS], *got;
    int i;
    shapes[0] = shapes[3] = rows_shape(c, c->sq, c->heads);
    shapes[1] = shapes[2] = rows_shape(c, c->sk, c->kv_heads);
    for (i = 0; i < 4; i++) {
        in[i] = rounded_noise(shapes[i], dtype, (uint64_t)(3 + i), i < 2 ? factor : 2);
        results[i] = (double *)calloc((size_t)shape_numel(shapes[i == 0 ? 0 : i - 1]) + 1, sizeof *results[i]);
    }
    for (i = 0; i < 3; i++)
        inputs[i] = tensor_of(in[i], shapes[i], dtype, false);
    output = ignis_sdpa(inputs[0], inputs[1], inputs[2], &desc);
    CHECK(output.id != 0);
    got = tensor_values(output);
    if (check) {
        reference(c, in, results);
        check_results(c, dtype, result_names[OUT], got, results[OUT], shape_numel(shapes[0]));
    }
    for (i = 0; i < 4; i++) {
        free(in[i]);
        free(results[i]);
    }
    CHECK_OK(ignis_scope_end(scope));
    return got;
}

/*  Lengths around the borders of tiles, keys that no query sees and queries that see no key, groups of heads, batches.
    The gradients show that the sums for backward are right. */
TEST(sdpa_by_wgmma)
{
    static const attention_case by_wgmma[] = {
        {0, 1, 1, 64, 1, 1, IGNIS_MASK_CAUSAL},    {2, 4, 2, 64, 77, 200, IGNIS_MASK_CAUSAL},
        {0, 2, 1, 64, 193, 129, IGNIS_MASK_NONE},  {0, 1, 1, 64, 257, 257, IGNIS_MASK_CAUSAL},
        {2, 2, 1, 64, 300, 77, IGNIS_MASK_CAUSAL}, {0, 2, 2, 128, 77, 200, IGNIS_MASK_CAUSAL},
        {2, 4, 1, 128, 129, 64, IGNIS_MASK_NONE},  {0, 1, 1, 128, 200, 130, IGNIS_MASK_CAUSAL},
        {0, 32, 8, 64, 3, 5, IGNIS_MASK_CAUSAL},   {0, 1, 1, 128, 1, 129, IGNIS_MASK_NONE},
    };
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(by_wgmma); i++)
        check_case(&by_wgmma[i], i % 3 == 2 ? IGNIS_F16 : IGNIS_BF16);
}

/*  A size of heads for each tile of keys, whole slabs of 64 columns and parts of them. */
TEST(sdpa_by_wgmma_sizes_of_heads)
{
    static const int sizes[] = {72, 120, 192, 256};
    attention_case c = {2, 4, 2, 0, 70, 133, IGNIS_MASK_CAUSAL};
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(sizes); i++) {
        c.head_dim = sizes[i];
        free(forward_values(&c, i % 2 ? IGNIS_BF16 : IGNIS_F16, 2, true));
        CHECK_INT(not_by_wgmma(), 0);
    }
    c.head_dim = 256;
    c.sq = 190;
    c.sk = 129;
    free(forward_values(&c, IGNIS_BF16, 2, true)); /* out waits in the place of q for queries that see nothing */
}

/*  Few queries and many keys: each item is split, and the parts are added up; more items than multiprocessors: blocks
    go on with others. */
TEST(sdpa_by_wgmma_items)
{
    static const attention_case items[] = {
        {0, 2, 1, 64, 40, 1100, IGNIS_MASK_CAUSAL},  {2, 1, 1, 64, 700, 900, IGNIS_MASK_CAUSAL},
        {0, 2, 2, 64, 5, 1025, IGNIS_MASK_NONE},     {0, 1, 1, 64, 800, 600, IGNIS_MASK_CAUSAL},
        {2, 70, 35, 64, 200, 40, IGNIS_MASK_CAUSAL}, {0, 140, 10, 64, 9, 140, IGNIS_MASK_NONE},
    };
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(items); i++)
        free(forward_values(&items[i], IGNIS_BF16, 2, true));
    CHECK_INT(not_by_wgmma(), 0);
}

/*  Heads of 64: three groups where sequences are long, two teams of two where they are short; larger ones: short
    sequences and long ones. */
TEST(sdpa_by_wgmma_shapes_of_items)
{
    static const attention_case others[] = {
        {0, 1, 1, 64, 1030, 70, IGNIS_MASK_NONE}, {0, 1, 1, 64, 2050, 40, IGNIS_MASK_CAUSAL},
        {2, 3, 1, 64, 77, 190, IGNIS_MASK_NONE},  {2, 2, 1, 128, 130, 256, IGNIS_MASK_CAUSAL},
        {2, 2, 1, 80, 300, 257, IGNIS_MASK_NONE},
    };
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(others); i++)
        free(forward_values(&others[i], i % 2 ? IGNIS_BF16 : IGNIS_F16, 2, true));
    CHECK_INT(not_by_wgmma(), 0);
}

/*  Three groups have the items of larger heads where there are many: one sequence, again and again. */
TEST(sdpa_by_wgmma_of_many_items)
{
    attention_case one = {1, 4, 2, 72, 300, 270, IGNIS_MASK_CAUSAL};
    ignis_scope scope;
    ignis_sdpa_desc desc = sdpa_desc_of(&one);
    ignis_device_info *info;
    ignis_tensor inputs[3], output;
    ignis_shape shapes[4];
    double *in[4], *results[RESULTS], *many, *got;
    int i, b, batches, multiprocessors;
    SETUP_WGMMA();
    info = &ignis__device_get("test", 0)->info;
    multiprocessors = info->multiprocessors;
    if (test_is_simulator() || test_is_memcheck()) /* all would take minutes there */
        info->multiprocessors = 2;
    batches = info->multiprocessors; /* eight items of each, for each multiprocessor */
    scope = ignis_scope_begin();
    shapes[0] = shapes[3] = rows_shape(&one, one.sq, one.heads);
    shapes[1] = shapes[2] = rows_shape(&one, one.sk, one.kv_heads);
    for (i = 0; i < 4; i++) {
        ignis_shape all = shapes[i];
        int64_t numel = shape_numel(all);
        in[i] = rounded_noise(shapes[i], IGNIS_BF16, (uint64_t)(3 + i), 2);
        results[i] = (double *)calloc((size_t)shape_numel(shapes[i == 0 ? 0 : i - 1]) + 1, sizeof *results[i]);
        if (i == 3)
            break;
        many = (double *)calloc((size_t)(batches * numel), sizeof *many);
        for (b = 0; b < batches; b++)
            memcpy(many + b * numel, in[i], sizeof *many * (size_t)numel);
        all.dim[0] = batches;
        inputs[i] = tensor_of(many, all, IGNIS_BF16, false);
        free(many);
    }
    reference(&one, in, results);
    output = ignis_sdpa(inputs[0], inputs[1], inputs[2], &desc);
    CHECK(output.id != 0);
    got = tensor_values(output);
    check_results(&one, IGNIS_BF16, result_names[OUT], got, results[OUT], shape_numel(shapes[0]));
    for (b = 1; b < batches; b++)
        CHECK(memcmp(got, got + b * shape_numel(shapes[0]), sizeof *got * (size_t)shape_numel(shapes[0])) == 0);
    free(got);
    for (i = 0; i < 4; i++) {
        free(in[i]);
        free(results[i]);
    }
    CHECK_OK(ignis_scope_end(scope));
    CHECK_INT(not_by_wgmma(), 0);
    info->multiprocessors = multiprocessors;
}

TEST(sdpa_by_wgmma_of_large_scores)
{
    static const attention_case c = {0, 2, 1, 64, 70, 300, IGNIS_MASK_CAUSAL};
    static const double factors[] = {30, 1e4};
    double *got;
    int64_t i;
    int f;
    SETUP_WGMMA();
    for (f = 0; f < COUNT_OF(factors); f++) {
        got = forward_values(&c, IGNIS_BF16, factors[f], f == 0);
        for (i = 0; i < 70 * 128 && fabs(got[i]) <= 2;)
            i++;
        CHECK_INT(i, 70 * 128); /* all of them are numbers */
        free(got);
    }
}

/*  Two tiles of keys and more, whole ones and parts; sections of heads that go up and down; a size of heads for each
    way to share the columns among the groups of warps. */
TEST(sdpa_backward_by_wgmma)
{
    static const struct {
        attention_case c;
        ignis_dtype dtype;
    } backward[] = {
        {{2, 8, 2, 64, 130, 260, IGNIS_MASK_CAUSAL}, IGNIS_BF16},
        {{0, 4, 1, 64, 400, 150, IGNIS_MASK_NONE}, IGNIS_F16},
        {{0, 2, 2, 64, 300, 1, IGNIS_MASK_NONE}, IGNIS_F16},
        {{2, 2, 1, 72, 65, 130, IGNIS_MASK_CAUSAL}, IGNIS_F16},
        {{0, 2, 1, 112, 129, 200, IGNIS_MASK_NONE}, IGNIS_BF16},
        {{2, 2, 1, 128, 200, 300, IGNIS_MASK_CAUSAL}, IGNIS_BF16},
        {{0, 2, 1, 128, 300, 130, IGNIS_MASK_CAUSAL}, IGNIS_F16},
        {{0, 8, 2, 128, 77, 200, IGNIS_MASK_NONE}, IGNIS_BF16},
        {{0, 2, 1, 136, 100, 150, IGNIS_MASK_CAUSAL}, IGNIS_F16},
        {{0, 2, 2, 192, 130, 77, IGNIS_MASK_NONE}, IGNIS_BF16},
        {{2, 4, 2, 256, 70, 133, IGNIS_MASK_CAUSAL}, IGNIS_BF16},
        {{0, 1, 1, 256, 200, 70, IGNIS_MASK_CAUSAL}, IGNIS_BF16},
    };
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(backward); i++)
        check_case(&backward[i].c, backward[i].dtype);
    CHECK_INT(not_by_wgmma(), 0);
}

/*  Few queries on many keys stay in a block; on either side of where that begins: of queries, of keys, of heads that
    share keys. Sizes of heads for each number of stages; parts of the keys of more tiles than stages, of which the last
    has fewer. And of a few more threads add the gradient. */
TEST(sdpa_backward_by_wgmma_of_few_queries)
{
    static const struct {
        attention_case c;
        ignis_dtype dtype;
    } few[] = {
        {{2, 2, 2, 64, 77, 700, IGNIS_MASK_NONE}, IGNIS_BF16},
        {{0, 1, 1, 64, 128, 512, IGNIS_MASK_CAUSAL}, IGNIS_F16},
        {{0, 1, 1, 64, 129, 512, IGNIS_MASK_CAUSAL}, IGNIS_F16},
        {{0, 1, 1, 64, 128, 511, IGNIS_MASK_CAUSAL}, IGNIS_F16},
        {{2, 4, 2, 64, 77, 700, IGNIS_MASK_NONE}, IGNIS_BF16},
        {{0, 1, 1, 72, 33, 513, IGNIS_MASK_CAUSAL}, IGNIS_BF16},
        {{2, 1, 1, 112, 20, 530, IGNIS_MASK_NONE}, IGNIS_F16},
        {{2, 2, 2, 128, 77, 700, IGNIS_MASK_CAUSAL}, IGNIS_BF16},
        {{0, 1, 1, 136, 100, 600, IGNIS_MASK_CAUSAL}, IGNIS_F16},
        {{0, 1, 1, 192, 65, 520, IGNIS_MASK_NONE}, IGNIS_BF16},
        {{2, 1, 1, 256, 77, 600, IGNIS_MASK_CAUSAL}, IGNIS_BF16},
        {{0, 1, 1, 128, 129, 2048, IGNIS_MASK_NONE}, IGNIS_BF16},
        {{2, 2, 1, 128, 200, 2100, IGNIS_MASK_CAUSAL}, IGNIS_F16},
        {{0, 70, 70, 64, 32, 4700, IGNIS_MASK_NONE}, IGNIS_BF16},
        {{0, 128, 128, 72, 16, 1500, IGNIS_MASK_NONE}, IGNIS_F16},
        {{0, 103, 103, 256, 16, 640, IGNIS_MASK_CAUSAL}, IGNIS_BF16},
    };
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(few) - (test_takes_all() ? 0 : 3);
         i++) /* the last ones have more heads than a GPU has multiprocessors for */
        check_case(&few[i].c, few[i].dtype);
    CHECK_INT(not_by_wgmma(), 0);
}

/*  All three gradients come from one kernel; who needs one of them gets that one. */
TEST(sdpa_backward_by_wgmma_of_one_tensor)
{
    static const attention_case c = {0, 2, 1, 64, 40, 70, IGNIS_MASK_CAUSAL};
    ignis_sdpa_desc desc = sdpa_desc_of(&c);
    double *all[3], *one;
    int which, i;
    SETUP_WGMMA();
    for (which = -1; which < 3; which++) { /* all first */
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor in[3], out;
        for (i = 0; i < 3; i++)
            in[i] = tensor_noise(rows_shape(&c, i ? c.sk : c.sq, i ? 1 : 2), IGNIS_BF16, (uint64_t)(5 + i),
                                 which < 0 || i == which);
        out = ignis_sdpa(in[0], in[1], in[2], &desc);
        CHECK_OK(ignis_backward(out, ignis_tensor_data(in[0])));
        for (i = 0; i < 3; i++)
            CHECK((ignis_tensor_grad(in[i]).id != 0) == (which < 0 || i == which));
        if (which < 0) {
            for (i = 0; i < 3; i++)
                all[i] = array_values(ignis_tensor_grad(in[i]));
        } else {
            one = array_values(ignis_tensor_grad(in[which]));
            CHECK(memcmp(one, all[which], (size_t)(which ? 70 * 64 : 40 * 128) * sizeof *one) == 0);
            free(one);
        }
        CHECK_OK(ignis_scope_end(scope));
    }
    for (i = 0; i < 3; i++)
        free(all[i]);
    CHECK_INT(not_by_wgmma(), 0);
}

static uint64_t hash_of(uint64_t hash, double *values, int64_t numel) /* and frees them */
{
    int64_t i;
    for (i = 0; i < numel; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        hash = (hash ^ bits) * 0x100000001b3u;
    }
    free(values);
    return hash;
}

static uint64_t hash_of_gradients(uint64_t hash, const attention_case *c)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_sdpa_desc desc = sdpa_desc_of(c);
    ignis_tensor in[3], out;
    int i;
    for (i = 0; i < 3; i++)
        in[i] = tensor_noise(i ? rows_shape(c, c->sk, c->kv_heads) : rows_shape(c, c->sq, c->heads), IGNIS_BF16,
                             (uint64_t)(5 + i), true);
    out = ignis_sdpa(in[0], in[1], in[2], &desc);
    CHECK_OK(ignis_backward(out, ignis_tensor_data(in[0])));
    for (i = 0; i < 3; i++)
        hash = hash_of(hash, array_values(ignis_tensor_grad(in[i])), numel_of(in[i]));
    CHECK_OK(ignis_scope_end(scope));
    return hash;
}

/*  The same bits each time, whatever the order in which blocks and warps run. */
static uint64_t bits_by_wgmma(void)
{
    static const attention_case same[] = {{2, 4, 2, 64, 300, 400, IGNIS_MASK_CAUSAL},
                                          {0, 2, 1, 64, 50, 1100, IGNIS_MASK_CAUSAL},
                                          {0, 2, 2, 64, 50, 1100, IGNIS_MASK_CAUSAL},
                                          {0, 1, 1, 192, 77, 600, IGNIS_MASK_NONE},
                                          {0, 2, 1, 192, 130, 150, IGNIS_MASK_CAUSAL}};
    uint64_t hash = 1;
    int i;
    for (i = 0; i < COUNT_OF(same); i++) {
        const attention_case *c = &same[i];
        hash = hash_of(hash, forward_values(c, IGNIS_BF16, 2, false),
                       (int64_t)(c->batch ? c->batch : 1) * c->sq * c->heads * c->head_dim);
        hash = hash_of_gradients(hash, c);
    }
    return hash;
}

static int bits_role(void)
{
    ignis_desc setup = wgmma_desc();
    uint64_t hash;
    if (ignis_setup(&setup) != IGNIS_OK)
        return 1;
    hash = bits_by_wgmma();
    return process_send(PROCESS_SOCKET, &hash, sizeof hash, -1) && ignis_shutdown() == IGNIS_OK ? 0 : 1;
}

TEST(sdpa_by_wgmma_has_the_same_bits_in_any_order)
{
    static const char *const orders[] = {"reverse", "random:3"};
    process children[COUNT_OF(orders)];
    uint64_t expected, got;
    int i;
    for (i = 0; i < COUNT_OF(orders); i++) {
        setenv("IGNIS_SIM_ORDER", orders[i], 1);
        children[i] = process_start("bits");
    }
    unsetenv("IGNIS_SIM_ORDER");
    SETUP_WGMMA();
    expected = bits_by_wgmma();
    CHECK(bits_by_wgmma() == expected);
    for (i = 0; i < COUNT_OF(orders); i++) {
        CHECK(process_receive(children[i].socket, &got, sizeof got, NULL) && got == expected);
        CHECK_INT(process_end(&children[i]), 0);
    }
}

/*  They are what a program gets that asks for none. */
TEST(sdpa_is_by_wgmma_where_that_can_be_had)
{
    static const attention_case c = {0, 2, 1, 64, 200, 300, IGNIS_MASK_CAUSAL};
    uint64_t hashes[3];
    ignis_desc desc;
    int by;
    for (by = IGNIS_ATTENTION_AUTO; by < IGNIS_ATTENTION_COUNT; by++) {
        desc = wgmma_desc();
        desc.attention = (ignis_attention_backend)by;
        SETUP(&desc);
        hashes[by] = hash_of_gradients(hash_of(1, forward_values(&c, IGNIS_BF16, 2, false), 200 * 2 * 64), &c);
        CHECK(by != IGNIS_ATTENTION_AUTO || not_by_wgmma() == 0);
        CHECK_OK(ignis_shutdown());
    }
    SETUP_WGMMA();
    CHECK(hashes[IGNIS_ATTENTION_AUTO] == hashes[IGNIS_ATTENTION_WGMMA]);
    CHECK(hashes[IGNIS_ATTENTION_AUTO] != hashes[IGNIS_ATTENTION_MMA]);
}

/*  Many turns at the same tiles, many times. */
TEST(sdpa_backward_by_wgmma_repeats)
{
    static const attention_case c = {0, 2, 2, 128, 200, 900, IGNIS_MASK_CAUSAL};
    uint64_t first;
    int run;
    SETUP_WGMMA();
    first = hash_of_gradients(1, &c);
    for (run = 0; run < (test_is_simulator() || test_is_memcheck() ? 2 : 100); run++)
        CHECK(hash_of_gradients(1, &c) == first);
}

/*  A graph has the tensor maps and the counter of items that it was captured with. */
TEST(sdpa_by_wgmma_in_a_graph)
{
    ignis_tensor x, out;
    ignis_graph graph;
    double *first, *again;
    int64_t i;
    int run;
    SETUP_WGMMA();
    x = tensor_noise(IGNIS_SHAPE(150, 64), IGNIS_BF16, 1, false);
    out = ignis_sdpa(x, x, x, NULL);
    first = tensor_values(out);
    let_go(out);
    CHECK_OK(ignis_graph_begin());
    out = ignis_sdpa(x, x, x, NULL);
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    for (run = 0; run < 2; run++) {
        CHECK_OK(ignis_graph_launch(graph));
        again = tensor_values(out);
        for (i = 0; i < 150 * 64; i++)
            CHECK(again[i] == first[i]);
        free(again);
    }
    free(first);
    CHECK_OK(ignis_graph_free(graph));
    let_go(out);
    let_go(x);
}

TEST(sdpa_backward_by_wgmma_in_a_graph)
{
    ignis_tensor x, g;
    ignis_graph graph;
    ignis_scope scope;
    double *first, *again;
    int64_t i;
    int run;
    SETUP_WGMMA();
    x = tensor_noise(IGNIS_SHAPE(150, 64), IGNIS_BF16, 1, true);
    g = tensor_noise(IGNIS_SHAPE(150, 64), IGNIS_BF16, 2, false);
    scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(ignis_sdpa(x, x, x, NULL), ignis_tensor_data(g)));
    CHECK_OK(ignis_scope_end(scope));
    first = array_values(ignis_tensor_grad(x));
    CHECK_OK(ignis_graph_begin());
    scope = ignis_scope_begin();
    CHECK_OK(ignis_zero_grad(x));
    CHECK_OK(ignis_backward(ignis_sdpa(x, x, x, NULL), ignis_tensor_data(g)));
    CHECK_OK(ignis_scope_end(scope));
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    for (run = 0; run < 2; run++) {
        CHECK_OK(ignis_graph_launch(graph));
        again = array_values(ignis_tensor_grad(x));
        for (i = 0; i < 150 * 64; i++)
            CHECK(again[i] == first[i]);
        free(again);
    }
    free(first);
    CHECK_OK(ignis_graph_free(graph));
    let_go(x);
    let_go(g);
}

/*  What they do not take goes to the other kernels, and the logger hears why. */
TEST(sdpa_not_by_wgmma)
{
    static const struct {
        attention_case c;
        ignis_dtype dtype;
        const char *why;
    } others[] = {
        {{0, 1, 1, 64, 3, 5, IGNIS_MASK_CAUSAL}, IGNIS_F32, "the dtype is not f16 or bf16"},
        {{0, 1, 1, 48, 3, 5, IGNIS_MASK_CAUSAL}, IGNIS_F16, "head_dim is not a multiple of 8 from 64 to 256"},
        {{0, 1, 1, 63, 3, 5, IGNIS_MASK_CAUSAL}, IGNIS_BF16, "head_dim is not a multiple of 8 from 64 to 256"}};
    ignis_desc desc = wgmma_desc();
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(others); i++) {
        free(forward_values(&others[i].c, others[i].dtype, 2, true));
        CHECK_INT(not_by_wgmma(), i + 1);
        CHECK(strstr(test_log_text(IGNIS_DIAG_UNSUPPORTED), others[i].why) != NULL);
    }
    CHECK_OK(ignis_shutdown());
    desc.attention = IGNIS_ATTENTION_COUNT;
    CHECK_FAILS(ignis_setup(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_MESSAGE_HAS("desc.attention is 3; 0 to 2 are known");
    CHECK_INT(setenv("IGNIS_ATTENTION", "fast", 1), 0);
    CHECK_FAILS(ignis_setup(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_MESSAGE_HAS("IGNIS_ATTENTION is \"fast\"; it is auto, mma or wgmma");
    CHECK_INT(setenv("IGNIS_ATTENTION", "wgmma", 1), 0);
    SETUP(NULL);
    CHECK_INT(ignis__attention_backend, IGNIS_ATTENTION_WGMMA);
    CHECK_INT(unsetenv("IGNIS_ATTENTION"), 0);
}

/* decode -------------------------------------------------------------------------------------------------------- */

static void check_decode(const attention_case *c, ignis_dtype dtype)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_shape shapes[3];
    ignis_tensor inputs[3], output;
    double *in[4], *results[RESULTS], *got;
    int i;
    shapes[0] = rows_shape(c, 1, c->heads);
    shapes[1] = shapes[2] = rows_shape(c, c->sk, c->kv_heads);
    for (i = 0; i < 4; i++) {
        in[i] = rounded_noise(shapes[i % 3], dtype, (uint64_t)(3 + i), 2);
        results[i] = (double *)calloc((size_t)shape_numel(shapes[i == 0 ? 0 : i - 1]) + 1, sizeof *results[i]);
    }
    reference(c, in, results);
    for (i = 0; i < 3; i++)
        inputs[i] = tensor_of(in[i], shapes[i], dtype, i == 1);
    output = ignis_decode_sdpa(inputs[0], inputs[1], inputs[2], c->heads);
    CHECK(output.id != 0);
    CHECK_SHAPE_IS(output, shapes[0]);
    CHECK(!tensor_info(output).requires_grad);
    got = tensor_values(output);
    check_results(c, dtype, result_names[OUT], got, results[OUT], shape_numel(shapes[0]));
    free(got);
    for (i = 0; i < 4; i++) {
        free(in[i]);
        free(results[i]);
    }
    CHECK_OK(ignis_scope_end(scope));
}

TEST(decode_sdpa_values)
{
    static const attention_case decoded[] = {
        {0, 1, 1, 64, 1, 1, IGNIS_MASK_NONE},    {0, 4, 4, 64, 1, 7, IGNIS_MASK_NONE},
        {0, 4, 2, 32, 1, 65, IGNIS_MASK_NONE},   {2, 8, 2, 40, 1, 129, IGNIS_MASK_NONE},
        {0, 6, 2, 64, 1, 1000, IGNIS_MASK_NONE}, {0, 20, 1, 24, 1, 300, IGNIS_MASK_NONE},
    };
    static const attention_case larger[] = {
        {2, 8, 2, 128, 1, 129, IGNIS_MASK_NONE}, {3, 2, 1, 256, 1, 70, IGNIS_MASK_NONE},
        {0, 5, 1, 33, 1, 63, IGNIS_MASK_NONE},   {2, 8, 2, 512, 1, 131, IGNIS_MASK_NONE},
        {0, 3, 3, 257, 1, 67, IGNIS_MASK_NONE},  {0, 2, 1, 384, 1, 1, IGNIS_MASK_NONE}};
    int i, d;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(decoded); i++)
        for (d = 0; d < 4; d++)
            if (test_takes(float_dtypes[d], i))
                check_decode(&decoded[i], float_dtypes[d]);
    check_decode(&larger[0], IGNIS_BF16);
    check_decode(&larger[1], IGNIS_F16);
    check_decode(&larger[1], IGNIS_F64);
    check_decode(&larger[2], IGNIS_F16);
    for (i = 3; i < COUNT_OF(larger); i++)
        for (d = 0; d < 4; d++)
            if (test_takes(float_dtypes[d], i))
                check_decode(&larger[i], float_dtypes[d]);
}

/* failures of the driver ---------------------------------------------------------------------------------------- */

/*  Each driver call of a name fails once: a clean failure each time, nothing stays behind, and the next time all is
    well. */
static void fail_everywhere(const char *prefix, ignis_attention_backend attention, int rows, int width)
{
    ignis_desc setup;
    ignis_sdpa_desc desc;
    ignis_rope_desc rope;
    ignis_tensor x, query, qkv, out;
    ignis_scope scope;
    ignis_status status;
    int64_t before;
    int at, failures = 0;
    bool reached = true;
    memset(&setup, 0, sizeof setup);
    setup.memory_bypass = true; /* every array is an allocation */
    setup.attention = attention;
    SETUP(&setup);
    memset(&desc, 0, sizeof desc);
    desc.num_heads = 2;
    x = tensor_noise(IGNIS_SHAPE(rows, width), IGNIS_BF16, 1, true);
    query = tensor_noise(IGNIS_SHAPE(1, width), IGNIS_BF16, 2, false);
    qkv = tensor_noise(IGNIS_SHAPE(rows, 3 * width), IGNIS_BF16, 3, true);
    memset(&rope, 0, sizeof rope);
    CHECK_OK(ignis_zero_grad(x)), CHECK_OK(ignis_zero_grad(qkv));
    before = memory().live_bytes;
    for (at = 1; at < 200 && reached; at++) {
        scope = ignis_scope_begin();
        fault_arm(prefix, at, 2);
        out = ignis_sdpa(x, x, x, &desc);
        status = out.id ? ignis_backward(out, ignis_tensor_data(x)) : ignis_status_last();
        if (status == IGNIS_OK) {
            out = ignis_sdpa_packed(qkv, &desc, &rope);
            status = out.id ? ignis_backward(out, ignis_tensor_data(x)) : ignis_status_last();
        }
        if (status == IGNIS_OK && !ignis_decode_sdpa(query, x, x, 2).id)
            status = ignis_status_last();
        reached = fault.failed != NULL;
        fault_disarm();
        failures += status != IGNIS_OK;
        CHECK(reached || status == IGNIS_OK);
        ignis_status_clear();
        CHECK_OK(ignis_scope_end(scope));
        CHECK_OK(ignis_tape_clear());
        CHECK_INT(memory().live_bytes, before);
    }
    CHECK(!reached && failures > 0);
    let_go(x);
    let_go(query);
    let_go(qkv);
}

TEST(sdpa_unwinds_when_memory_is_out) { fail_everywhere("cuMemAlloc", IGNIS_ATTENTION_MMA, 5, 16); }
TEST(sdpa_unwinds_when_launches_fail) { fail_everywhere("cuLaunchKernel", IGNIS_ATTENTION_MMA, 5, 16); }

/*  So many rows that their keys are split. */
TEST(sdpa_by_wgmma_unwinds_when_memory_is_out) { fail_everywhere("cuMemAlloc", IGNIS_ATTENTION_WGMMA, 400, 128); }
TEST(sdpa_by_wgmma_unwinds_when_launches_fail) { fail_everywhere("cuLaunchKernel", IGNIS_ATTENTION_WGMMA, 400, 128); }
TEST(sdpa_by_wgmma_unwinds_when_maps_fail)
{
    SETUP_WGMMA();
    CHECK_OK(ignis_shutdown());
    fail_everywhere("cuTensorMapEncodeTiled", IGNIS_ATTENTION_WGMMA, 40, 128);
}

/* errors -------------------------------------------------------------------------------------------------------- */

TEST(sdpa_errors)
{
    ignis_tensor q, k, half, row, batch, wide, wider;
    ignis_sdpa_desc desc;
    memset(&desc, 0, sizeof desc);
    SETUP(NULL);
    q = tensor_noise(IGNIS_SHAPE(3, 12), IGNIS_F32, 1, false);
    k = tensor_noise(IGNIS_SHAPE(3, 6), IGNIS_F32, 1, false);
    half = tensor_noise(IGNIS_SHAPE(3, 12), IGNIS_F16, 1, false);
    row = tensor_noise(IGNIS_SHAPE(12), IGNIS_F32, 1, false);
    batch = tensor_noise(IGNIS_SHAPE(2, 3, 12), IGNIS_F32, 1, false);
    wide = tensor_noise(IGNIS_SHAPE(1, 257), IGNIS_F32, 1, false);
    wider = tensor_noise(IGNIS_SHAPE(1, 513), IGNIS_F32, 1, false);

    desc.num_heads = 6;
    desc.num_kv_heads = 4;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SDPA_HEADS);
    CHECK_MESSAGE_HAS("num_heads (6) must be a multiple of num_kv_heads (4)");
    desc.num_heads = -1;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.num_heads = 2;
    desc.num_kv_heads = -2;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.num_kv_heads = 1;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    desc.num_kv_heads = 0;
    desc.mask = IGNIS_MASK_COUNT;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    desc.mask = IGNIS_MASK_NONE;
    desc.scale = -1;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.scale = 0;
    desc.num_heads = 5;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_MESSAGE_HAS("q is [3, 12]");
    desc.num_heads = 2;
    CHECK_FAILS(ignis_sdpa(row, q, q, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_FAILS(ignis_sdpa(q, row, row, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_FAILS(ignis_sdpa(q, batch, batch, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_FAILS(ignis_sdpa(q, q, k, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_FAILS(ignis_sdpa(q, k, k, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_FAILS(ignis_sdpa(q, half, q, &desc), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_FAILS(ignis_sdpa(q, q, half, &desc), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_FAILS(ignis_sdpa(wide, wide, wide, NULL), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("head_dim is 257");

    CHECK_FAILS(ignis_decode_sdpa(q, q, q, 2), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_FAILS(ignis_decode_sdpa(wide, wide, wide, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_decode_sdpa(wider, wider, wider, 1), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("head_dim is 513; 512 is the most");
    CHECK_FAILS(ignis_decode_sdpa(wide, q, q, 257), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SDPA_HEADS);
    CHECK_FAILS(ignis_decode_sdpa(wide, half, half, 257), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);

    let_go(q);
    let_go(k);
    let_go(half);
    let_go(row);
    let_go(batch);
    let_go(wide);
    let_go(wider);
}

int main(int argc, char **argv) { return process_role(argc, argv) ? bits_role() : test_run(argc, argv); }
