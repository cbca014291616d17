// SPDX-License-Identifier: MIT
/*  test_sdpa_masks.c - sdpa with a window, lengths of sequences, a bias and a softcap, each alone and together: values
    and gradients against a reference in double and finite differences in f64, by all kernels; q, k and v in one tensor;
    decode; what is nothing; errors */
#include "sweep.h"

#include "attention.h"

#include "processes.h"

#include <math.h>

/*  The shapes that a bias may have. */
typedef enum bias_kind { NO_BIAS, BIAS_WHOLE, BIAS_HEADS, BIAS_KEYS, BIAS_BATCH, BIAS_PLAIN } bias_kind;

typedef struct masked_case {
    int batch; /* 0: tensors of two dimensions */
    int heads, kv_heads, head_dim, sq, sk;
    ignis_mask mask;
    int window;
    bool lengths;
    double softcap;
    bias_kind bias;
    bool wide; /* the bias is in f32 */
} masked_case;

enum { Q, K, V, BIAS, INPUTS, GRAD_OUT = INPUTS, OUT = INPUTS };
static const char *const names[] = {"the gradient of q", "the gradient of k", "the gradient of v",
                                    "the gradient of the bias", "the value"};

static int batches_of(const masked_case *c) { return c->batch ? c->batch : 1; }

static ignis_shape rows_shape(const masked_case *c, int rows, int heads)
{
    return c->batch ? IGNIS_SHAPE(c->batch, rows, heads * c->head_dim) : IGNIS_SHAPE(rows, heads * c->head_dim);
}

static ignis_shape bias_shape(const masked_case *c)
{
    switch (c->bias) {
    case BIAS_WHOLE: return IGNIS_SHAPE(batches_of(c), c->heads, c->sq, c->sk);
    case BIAS_HEADS: return IGNIS_SHAPE(1, c->heads, c->sq, c->sk);
    case BIAS_KEYS: return IGNIS_SHAPE(c->heads, 1, c->sk);
    case BIAS_BATCH: return IGNIS_SHAPE(batches_of(c), 1, 1, c->sk);
    default: return IGNIS_SHAPE(c->sq, c->sk);
    }
}

static ignis_shape shape_in(const masked_case *c, int input)
{
    return input == BIAS              ? bias_shape(c)
           : input == K || input == V ? rows_shape(c, c->sk, c->kv_heads)
                                      : rows_shape(c, c->sq, c->heads);
}

/*  Where the bias of a score is. */
static int64_t bias_at(const masked_case *c, int b, int h, int i, int j)
{
    int64_t row = c->bias == BIAS_KEYS || c->bias == BIAS_BATCH ? 0 : i,
            rows = c->bias == BIAS_KEYS || c->bias == BIAS_BATCH ? 1 : c->sq;
    int64_t head = c->bias == BIAS_BATCH || c->bias == BIAS_PLAIN ? 0 : h,
            heads = c->bias == BIAS_BATCH || c->bias == BIAS_PLAIN ? 1 : c->heads;
    int64_t batch = c->bias == BIAS_WHOLE || c->bias == BIAS_BATCH ? b : 0;
    return ((batch * heads + head) * rows + row) * c->sk + j;
}

/*  Less than all, none, more than all, below 0. */
static int length_of(const masked_case *c, int b)
{
    const int lengths[] = {c->sk * 2 / 3, 0, c->sk + 9, -4};
    return lengths[b % 4];
}

static ignis_tensor lengths_tensor(const masked_case *c)
{
    double values[16];
    int b;
    for (b = 0; b < batches_of(c); b++)
        values[b] = length_of(c, b);
    return tensor_of(values, IGNIS_SHAPE(batches_of(c)), IGNIS_I32, false);
}

/*  The bias and the lengths are not set. */
static ignis_sdpa_desc sdpa_desc_of(const masked_case *c)
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

static bool sees(const masked_case *c, int b, int i, int j, bool decode)
{
    int keys = c->lengths ? length_of(c, b) : c->sk, place = i + c->sk - c->sq;
    keys = keys > c->sk ? c->sk : keys;
    place = decode ? keys - 1 : place;
    return j < keys && (c->mask == IGNIS_MASK_NONE || decode || j <= place) &&
           (c->window == 0 || abs(j - place) < c->window);
}

/*  One query of one head. in: q, k, v, the bias, the gradient of the result; results: their gradients, the result. */
OPTIMIZED static void reference_row(const masked_case *c, double *const in[], double *const results[], int b, int h,
                                    int i, bool decode)
{
    int d, j, dim = c->head_dim, kv_h = h / (c->heads / c->kv_heads);
    int64_t q_at = ((int64_t)(b * c->sq + i) * c->heads + h) * dim, k_row = (int64_t)c->kv_heads * dim;
    int64_t k_at = (int64_t)b * c->sk * k_row + kv_h * dim;
    double scale = 1 / sqrt((double)dim), top = -HUGE_VAL, sum = 0, delta = 0;
    double *weights = (double *)calloc((size_t)c->sk + 1, sizeof *weights),
           *grads = (double *)calloc((size_t)c->sk + 1, sizeof *grads);
    double *slopes = (double *)calloc((size_t)c->sk + 1, sizeof *slopes);
    for (j = 0; j < c->sk; j++) {
        double score = 0;
        for (d = 0; d < dim; d++)
            score += scale * in[Q][q_at + d] * in[K][k_at + j * k_row + d];
        slopes[j] = 1;
        if (c->softcap > 0) {
            double t = tanh(score / c->softcap);
            score = c->softcap * t;
            slopes[j] = 1 - t * t;
        }
        if (c->bias)
            score += in[BIAS][bias_at(c, b, h, i, j)];
        weights[j] = sees(c, b, i, j, decode) ? score : -HUGE_VAL;
        top = weights[j] > top ? weights[j] : top;
    }
    for (j = 0; j < c->sk; j++)
        sum += weights[j] = top == -HUGE_VAL ? 0 : exp(weights[j] - top);
    for (j = 0; j < c->sk && sum > 0; j++) {
        weights[j] /= sum;
        for (d = 0; d < dim && sees(c, b, i, j, decode); d++) {
            results[OUT][q_at + d] += weights[j] * in[V][k_at + j * k_row + d];
            results[V][k_at + j * k_row + d] += weights[j] * in[GRAD_OUT][q_at + d];
            grads[j] += in[GRAD_OUT][q_at + d] * in[V][k_at + j * k_row + d];
        }
        delta += weights[j] * grads[j];
    }
    for (j = 0; j < c->sk; j++) {
        double grad = weights[j] * (grads[j] - delta);
        if (!sees(c, b, i, j, decode))
            continue;
        if (c->bias)
            results[BIAS][bias_at(c, b, h, i, j)] += grad;
        for (d = 0; d < dim; d++) {
            results[Q][q_at + d] += scale * grad * slopes[j] * in[K][k_at + j * k_row + d];
            results[K][k_at + j * k_row + d] += scale * grad * slopes[j] * in[Q][q_at + d];
        }
    }
    free(weights);
    free(grads);
    free(slopes);
}

static void reference(const masked_case *c, double *const in[], double *const results[], bool decode)
{
    int b, h, i;
    for (b = 0; b < batches_of(c); b++)
        for (h = 0; h < c->heads; h++)
            for (i = 0; i < c->sq; i++)
                reference_row(c, in, results, b, h, i, decode);
}

/* values and gradients ------------------------------------------------------------------------------------------ */

/*  Of probabilities and sums of products that were rounded, where tensor cores did it, relative to the largest number.
    */
static double tolerance_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64 ? 1e-12 : dtype == IGNIS_F32 ? 1e-5 : dtype == IGNIS_F16 ? 2e-3 : 1.6e-2;
}

/*  What nobody may read as a number: NaN, infinities and the largest numbers, in keys and values that no query sees, in
    queries that see no key, in the gradients of their results, and in the bias of a query and a key that it does not
    see. */
static void spoil(const masked_case *c, double *const in[], bool decode)
{
    static const double garbage[] = {NAN, HUGE_VAL, -HUGE_VAL, 3e38, -6e4};
    int b, h, i, j, d, width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim, next = 0;
    for (b = 0; b < batches_of(c); b++) {
        for (j = 0; j < c->sk; j++) {
            for (i = 0; i < c->sq && !sees(c, b, i, j, decode);)
                i++;
            for (d = 0; d < kv_width && i == c->sq; d++) {
                in[K][((int64_t)b * c->sk + j) * kv_width + d] = garbage[next++ % COUNT_OF(garbage)];
                in[V][((int64_t)b * c->sk + j) * kv_width + d] = garbage[next++ % COUNT_OF(garbage)];
            }
        }
        for (i = 0; i < c->sq; i++) {
            for (j = 0; j < c->sk && !sees(c, b, i, j, decode);)
                j++;
            for (d = 0; d < width && j == c->sk; d++) {
                in[Q][((int64_t)b * c->sq + i) * width + d] = garbage[next++ % COUNT_OF(garbage)];
                in[GRAD_OUT][((int64_t)b * c->sq + i) * width + d] = garbage[next++ % COUNT_OF(garbage)];
            }
        }
        for (h = 0; h < c->heads && c->bias == BIAS_WHOLE; h++)
            for (i = 0; i < c->sq; i++)
                for (j = 0; j < c->sk; j++)
                    if (!sees(c, b, i, j, decode))
                        in[BIAS][bias_at(c, b, h, i, j)] = garbage[next++ % COUNT_OF(garbage)];
    }
}

static void check_result(const masked_case *c, ignis_dtype dtype, const char *what, ignis_array array,
                         const double *expected)
{
    double *got = array_values(array),
           largest = 1; /* of less, what is left of differences of numbers of about 10 has this rounding */
    int64_t i, numel = ignis_array_numel(array);
    char text[512];
    for (i = 0; i < numel; i++)
        largest = fabs(expected[i]) > largest ? fabs(expected[i]) : largest;
    for (i = 0; i < numel && fabs(got[i] - expected[i]) <= largest * tolerance_of(dtype);)
        i++;
    if (i < numel) {
        snprintf(text, sizeof text,
                 "dtype %d, batch %d, heads %d of %d and %d, sq %d, sk %d, mask %d, window %d, lengths %d, softcap %g, "
                 "bias %d: "
                 "element %lld of %s is %.9g, expected %.9g",
                 (int)dtype, c->batch, c->head_dim, c->heads, c->kv_heads, c->sq, c->sk, (int)c->mask, c->window,
                 (int)c->lengths, c->softcap, (int)c->bias, (long long)i, what, got[i], expected[i]);
        test__fail(__FILE__, __LINE__, text);
    }
    free(got);
}

typedef struct prepared {
    double *in[INPUTS + 1], *results[INPUTS + 1];
    ignis_tensor inputs[INPUTS]; /* the bias may be none */
    ignis_sdpa_desc desc;
} prepared;

static prepared prepare_for(const masked_case *c, ignis_dtype dtype, bool requires_grad, bool decode, bool spoiled)
{
    prepared p;
    int i;
    memset(&p, 0, sizeof p);
    p.desc = sdpa_desc_of(c);
    for (i = 0; i <= INPUTS; i++) {
        ignis_dtype its = i == BIAS && c->wide && dtype != IGNIS_F64 ? IGNIS_F32 : dtype;
        if (i == BIAS && !c->bias)
            continue;
        p.in[i] = rounded_noise(shape_in(c, i), its, (uint64_t)(3 + i), 2);
        p.results[i] = (double *)calloc((size_t)shape_numel(shape_in(c, i)) + 1, sizeof *p.results[i]);
    }
    if (spoiled)
        spoil(c, p.in, decode);
    for (i = 0; i < INPUTS; i++)
        if (p.in[i])
            p.inputs[i] = tensor_of(p.in[i], shape_in(c, i),
                                    i == BIAS && c->wide && dtype != IGNIS_F64 ? IGNIS_F32 : dtype, requires_grad);
    p.desc.bias = p.inputs[BIAS];
    if (c->lengths)
        p.desc.lengths = lengths_tensor(c);
    return p;
}

static prepared prepare(const masked_case *c, ignis_dtype dtype, bool requires_grad)
{
    return prepare_for(c, dtype, requires_grad, false, false);
}

static void discard(prepared *p)
{
    int i;
    for (i = 0; i <= INPUTS; i++) {
        free(p->in[i]);
        free(p->results[i]);
    }
}

static void check_case_of(const masked_case *c, ignis_dtype dtype, bool spoiled)
{
    ignis_scope scope = ignis_scope_begin();
    prepared p = prepare_for(c, dtype, true, false, spoiled);
    ignis_tensor output, weights;
    int i;
    reference(c, p.in, p.results, false);
    weights = tensor_of(p.in[GRAD_OUT], shape_in(c, GRAD_OUT), dtype, false);
    output = ignis_sdpa(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc);
    CHECK(output.id != 0);
    CHECK_SHAPE_IS(output, shape_in(c, Q));
    CHECK_OK(ignis_backward(output, ignis_tensor_data(weights)));
    check_result(c, dtype, names[OUT], ignis_tensor_data(output), p.results[OUT]);
    for (i = 0; i < INPUTS; i++)
        if (p.inputs[i].id)
            check_result(c, dtype, names[i], ignis_tensor_grad(p.inputs[i]), p.results[i]);
    discard(&p);
    CHECK_OK(ignis_scope_end(scope));
}

static void check_case(const masked_case *c, ignis_dtype dtype) { check_case_of(c, dtype, false); }
static void check_spoiled(const masked_case *c, ignis_dtype dtype) { check_case_of(c, dtype, true); }

#define SETUP_MMA()                                       \
    do {                                                  \
        ignis_desc by_mma = desc_by(IGNIS_ATTENTION_MMA); \
        SETUP(&by_mma);                                   \
    } while (0)

/*  Every combination, on sizes around the borders of tiles; heads of a size that is not the program's. */
/*  On the simulator each type takes half of the combinations, in which each two options are together. */
TEST(sdpa_masks_in_every_combination)
{
    masked_case c = {3, 4, 2, 40, 67, 81, IGNIS_MASK_CAUSAL, 0, false, 0, NO_BIAS, false};
    int i, is_odd;
    SETUP_MMA();
    for (i = 1; i < 16; i++) {
        c.window = i & 1 ? 11 : 0;
        c.lengths = (i & 2) != 0;
        c.softcap = i & 4 ? 1.5 : 0;
        c.bias = i & 8 ? BIAS_HEADS : NO_BIAS;
        is_odd = (i ^ i >> 1 ^ i >> 2 ^ i >> 3) & 1; /* of the number of options */
        if (is_odd || test_takes_all())
            check_case(&c, IGNIS_F64);
        if (!is_odd || test_takes_all())
            check_case(&c, IGNIS_BF16);
    }
}

/*  Windows of one key, of whole tiles and more; without a causal mask; more and fewer keys than queries, where queries
    and keys are left over; more and less than all tiles of a block. */
static const masked_case ranges[] = {
    {0, 1, 1, 64, 1, 1, IGNIS_MASK_CAUSAL, 1, true, 0, NO_BIAS, false},
    {0, 2, 1, 64, 129, 129, IGNIS_MASK_CAUSAL, 1, false, 0, NO_BIAS, false},
    {2, 2, 2, 64, 200, 200, IGNIS_MASK_CAUSAL, 64, false, 0, NO_BIAS, false},
    {0, 1, 1, 64, 300, 210, IGNIS_MASK_CAUSAL, 33, false, 0, NO_BIAS, false},
    {0, 2, 1, 64, 70, 333, IGNIS_MASK_CAUSAL, 129, false, 0, NO_BIAS, false},
    {2, 2, 1, 64, 131, 131, IGNIS_MASK_NONE, 20, false, 0, NO_BIAS, false},
    {0, 1, 1, 64, 260, 70, IGNIS_MASK_NONE, 7, false, 0, NO_BIAS, false},
    {4, 2, 1, 64, 65, 193, IGNIS_MASK_NONE, 0, true, 0, NO_BIAS, false},
    {4, 1, 1, 64, 130, 130, IGNIS_MASK_CAUSAL, 40, true, 0, NO_BIAS, false},
    {0, 1, 1, 64, 190, 5, IGNIS_MASK_CAUSAL, 3, false, 0, NO_BIAS, false},
};

TEST(sdpa_windows_and_lengths)
{
    int i;
    SETUP_MMA();
    for (i = 0; i < COUNT_OF(ranges); i++) {
        check_case(&ranges[i], IGNIS_F64);
        check_spoiled(&ranges[i], IGNIS_F32);
        check_spoiled(&ranges[i], i % 2 ? IGNIS_F16 : IGNIS_BF16);
    }
}

/*  Every shape of a bias, of both types, with groups of heads; some tiles are not seen at all. */
TEST(sdpa_biases)
{
    static const masked_case biases[] = {
        {2, 4, 2, 64, 70, 150, IGNIS_MASK_CAUSAL, 0, false, 0, BIAS_WHOLE, false},
        {3, 2, 1, 64, 67, 67, IGNIS_MASK_NONE, 0, false, 0, BIAS_HEADS, true},
        {2, 2, 2, 64, 130, 65, IGNIS_MASK_CAUSAL, 0, false, 0, BIAS_KEYS, true},
        {2, 2, 1, 64, 35, 99, IGNIS_MASK_CAUSAL, 0, false, 0, BIAS_BATCH, false},
        {0, 3, 3, 64, 1, 37, IGNIS_MASK_NONE, 0, false, 0, BIAS_PLAIN, false},
        {2, 2, 1, 64, 140, 140, IGNIS_MASK_CAUSAL, 0, false, 0, BIAS_PLAIN, true},
    };
    int i;
    SETUP_MMA();
    for (i = 0; i < COUNT_OF(biases); i++) {
        check_case(&biases[i], biases[i].wide ? IGNIS_F32 : IGNIS_F64);
        check_case(&biases[i], IGNIS_F16);
    }
}

/*  A program for each size of heads, with all that there is. */
TEST(sdpa_masks_sizes_of_heads)
{
    static const struct {
        int head_dim;
        ignis_dtype dtype;
    } sizes[] = {{24, IGNIS_BF16}, {72, IGNIS_F16}, {128, IGNIS_BF16}, {192, IGNIS_BF16},
                 {256, IGNIS_F16}, {7, IGNIS_F32},  {72, IGNIS_F32},   {128, IGNIS_F64}};
    masked_case c = {2, 2, 1, 0, 45, 70, IGNIS_MASK_CAUSAL, 30, true, 4, BIAS_WHOLE, true};
    int i;
    SETUP_MMA();
    for (i = 0; i < COUNT_OF(sizes); i++) {
        c.head_dim = sizes[i].head_dim;
        check_spoiled(&c, sizes[i].dtype);
    }
}

static ignis_tensor checked(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_sdpa_desc desc = *(const ignis_sdpa_desc *)user_data;
    if (count > 3)
        desc.bias = inputs[BIAS];
    return ignis_sdpa(inputs[Q], inputs[K], inputs[V], &desc);
}

TEST(sdpa_masks_gradients_are_those_of_finite_differences)
{
    static const masked_case cases[] = {{3, 2, 1, 4, 5, 6, IGNIS_MASK_CAUSAL, 3, true, 0.7, BIAS_WHOLE, false},
                                        {2, 2, 2, 3, 4, 4, IGNIS_MASK_NONE, 2, false, 0, BIAS_HEADS, false},
                                        {2, 2, 1, 5, 6, 5, IGNIS_MASK_CAUSAL, 0, true, 0, BIAS_KEYS, false},
                                        {0, 2, 1, 3, 3, 4, IGNIS_MASK_CAUSAL, 0, false, 2, BIAS_PLAIN, false},
                                        {2, 1, 1, 3, 3, 4, IGNIS_MASK_NONE, 0, false, 0, BIAS_BATCH, false},
                                        {2, 2, 1, 4, 4, 7, IGNIS_MASK_CAUSAL, 4, true, 0.5, NO_BIAS, false}};
    int i;
    SETUP_MMA();
    for (i = 0; i < COUNT_OF(cases); i++) {
        ignis_scope scope = ignis_scope_begin();
        prepared p = prepare(&cases[i], IGNIS_F64, true);
        CHECK(ignis_gradcheck(checked, &p.desc, p.inputs, cases[i].bias ? 4 : 3, NULL) < 1e-6);
        CHECK_OK(ignis_status_last());
        discard(&p);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/* what is nothing, and what is plain ---------------------------------------------------------------------------- */

/*  The bits of the value and of all gradients, in one number. */
static uint64_t hash_of(const masked_case *c, ignis_dtype dtype)
{
    ignis_scope scope = ignis_scope_begin();
    prepared p = prepare(c, dtype, true);
    ignis_tensor output = ignis_sdpa(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc);
    uint64_t hash = 1, bits;
    int64_t at;
    int i;
    CHECK_OK(ignis_backward(output, ignis_tensor_data(p.inputs[Q])));
    for (i = 0; i <= INPUTS; i++) {
        ignis_array array = i == OUT         ? ignis_tensor_data(output)
                            : p.inputs[i].id ? ignis_tensor_grad(p.inputs[i])
                                             : IGNIS_NO_ARRAY;
        double *values = array.id ? array_values(array) : NULL;
        for (at = 0; array.id && at < ignis_array_numel(array); at++) {
            memcpy(&bits, &values[at], sizeof bits);
            hash = (hash ^ bits) * 0x100000001b3u;
        }
        free(values);
    }
    discard(&p);
    CHECK_OK(ignis_scope_end(scope));
    return hash;
}

static void check_large_windows(const masked_case *given, ignis_dtype dtype)
{
    masked_case c = *given;
    int all = c.mask == IGNIS_MASK_CAUSAL || c.sk > c.sq ? c.sk : c.sq;
    uint64_t plain;
    c.window = 0;
    plain = hash_of(&c, dtype);
    c.window = all;
    CHECK(hash_of(&c, dtype) == plain);
    c.window = 2000000000;
    CHECK(hash_of(&c, dtype) == plain);
    c.window = all - 1;
    CHECK(hash_of(&c, dtype) != plain);
}

TEST(sdpa_with_a_window_of_all_is_sdpa_without)
{
    static const masked_case cases[] = {{0, 2, 1, 64, 70, 70, IGNIS_MASK_CAUSAL, 0, false, 0, NO_BIAS, false},
                                        {0, 2, 1, 64, 90, 70, IGNIS_MASK_CAUSAL, 0, false, 0, NO_BIAS, false},
                                        {0, 1, 1, 64, 40, 70, IGNIS_MASK_NONE, 0, false, 0, NO_BIAS, false},
                                        {0, 1, 1, 64, 70, 40, IGNIS_MASK_NONE, 0, false, 0, NO_BIAS, false}};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        check_large_windows(&cases[i], IGNIS_F32);
        check_large_windows(&cases[i], IGNIS_BF16);
    }
}

/* what nobody sees ---------------------------------------------------------------------------------------------- */

/*  Lengths and windows that end within a tile of keys, at its border, one behind and one ahead; queries ahead of all
    keys; sequences without one. */
static const masked_case unseen[] = {
    {4, 2, 1, 64, 40, 80, IGNIS_MASK_NONE, 0, true, 0, NO_BIAS, false},
    {4, 2, 2, 64, 97, 96, IGNIS_MASK_CAUSAL, 0, true, 0, NO_BIAS, false},
    {4, 1, 1, 64, 97, 97, IGNIS_MASK_CAUSAL, 9, true, 2, NO_BIAS, false},
    {0, 1, 1, 64, 130, 50, IGNIS_MASK_CAUSAL, 0, false, 0, NO_BIAS, false},
    {0, 2, 1, 64, 35, 150, IGNIS_MASK_CAUSAL, 30, false, 0, NO_BIAS, false},
    {2, 1, 1, 64, 33, 210, IGNIS_MASK_NONE, 65, true, 0, NO_BIAS, false},
    {4, 2, 1, 64, 50, 77, IGNIS_MASK_CAUSAL, 20, true, 1.5, BIAS_WHOLE, true},
    {3, 1, 1, 64, 70, 70, IGNIS_MASK_NONE, 0, true, 0, BIAS_HEADS, false},
};

TEST(sdpa_reads_nothing_that_is_not_seen)
{
    int i;
    SETUP_MMA();
    for (i = 0; i < COUNT_OF(unseen); i++) {
        check_spoiled(&unseen[i], i % 2 ? IGNIS_F64 : IGNIS_F32);
        check_spoiled(&unseen[i], i % 2 ? IGNIS_F16 : IGNIS_BF16);
    }
}

/*  In f32 and f64 a query reads nothing but what it sees itself. Key and value BAD are NaN: queries that do not see
    them have numbers. The gradient of query BAD's result is NaN: only its own gradient is, and those of the keys that
    it sees. */
static void check_reach(ignis_dtype dtype, int window)
{
    enum { ROWS = 70, BAD = 20, DIM = 16 };
    ignis_scope scope = ignis_scope_begin();
    masked_case c = {0, 1, 1, DIM, ROWS, ROWS, IGNIS_MASK_CAUSAL, 0, false, 0, NO_BIAS, false};
    prepared p;
    ignis_tensor output, weights;
    double *out, *grads[3];
    int i, k;
    c.window = window;
    p = prepare(&c, dtype, true);
    for (i = 0; i < DIM; i++)
        p.in[GRAD_OUT][BAD * DIM + i] = NAN;
    weights = tensor_of(p.in[GRAD_OUT], shape_in(&c, GRAD_OUT), dtype, false);
    CHECK_OK(ignis_backward(ignis_sdpa(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc), ignis_tensor_data(weights)));
    for (k = 0; k < 3; k++)
        grads[k] = array_values(ignis_tensor_grad(p.inputs[k]));
    for (i = 0; i < ROWS; i++) {
        bool seen = i <= BAD && (!window || i > BAD - window);
        CHECK(isfinite(grads[Q][i * DIM]) == (i != BAD));
        CHECK(isfinite(grads[K][i * DIM]) == !seen);
        CHECK(isfinite(grads[V][i * DIM]) == !seen);
    }
    for (i = 0; i < DIM; i++)
        p.in[K][BAD * DIM + i] = p.in[V][BAD * DIM + i] = NAN;
    p.inputs[K] = tensor_of(p.in[K], shape_in(&c, K), dtype, false);
    p.inputs[V] = tensor_of(p.in[V], shape_in(&c, V), dtype, false);
    output = ignis_sdpa(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc);
    out = tensor_values(output);
    for (i = 0; i < ROWS; i++)
        CHECK(isfinite(out[i * DIM]) == (i < BAD || (window && i >= BAD + window)));
    free(out);
    for (k = 0; k < 3; k++)
        free(grads[k]);
    discard(&p);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(sdpa_queries_read_what_they_see)
{
    SETUP(NULL);
    check_reach(IGNIS_F32, 0);
    check_reach(IGNIS_F32, 5);
    check_reach(IGNIS_F64, 0);
    check_reach(IGNIS_F64, 5);
}

/*  Whether all elements of a row are 0, and none of them is NaN. */
static bool is_zero(const double *values, int64_t row, int width)
{
    int i;
    for (i = 0; i < width; i++)
        if (values[row * width + i] != 0)
            return false;
    return true;
}

/*  Exactly 0: a sequence without keys, and queries that a window leaves behind the length. */
static void check_nothing(ignis_dtype dtype)
{
    static const masked_case c = {2,  2,    1, 64,      150,  150, IGNIS_MASK_CAUSAL,
                                  20, true, 3, NO_BIAS, false}; /* lengths 100 and 0 */
    ignis_scope scope = ignis_scope_begin();
    prepared p = prepare(&c, dtype, true);
    ignis_tensor output = ignis_sdpa(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc);
    double *out, *grads[3];
    int64_t i, row;
    CHECK_OK(ignis_backward(output, ignis_tensor_data(p.inputs[Q])));
    out = tensor_values(output);
    for (i = 0; i < 3; i++)
        grads[i] = array_values(ignis_tensor_grad(p.inputs[i]));
    for (row = 0; row < 300; row++) {
        CHECK(is_zero(out, row, 128) == (row >= 119));
        CHECK(is_zero(grads[V], row, 64) == (row >= 100));
        CHECK(row < 119 || is_zero(grads[Q], row, 128));
        CHECK(row < 100 || is_zero(grads[K], row, 64));
    }
    CHECK(!is_zero(grads[Q], 117, 128) && !is_zero(grads[K], 99, 64));
    free(out);
    for (i = 0; i < 3; i++)
        free(grads[i]);
    discard(&p);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(sdpa_of_sequences_without_keys)
{
    SETUP_MMA();
    check_nothing(IGNIS_F64);
    check_nothing(IGNIS_BF16);
}

/*  A bias of -infinity is a mask, and may leave nothing to see. */
TEST(sdpa_with_a_bias_of_infinity)
{
    static const masked_case c = {0, 2, 1, 64, 70, 70, IGNIS_MASK_NONE, 0, false, 0, BIAS_PLAIN, true};
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16};
    int i, j, d, k;
    SETUP_MMA();
    for (d = 0; d < COUNT_OF(dtypes); d++) {
        ignis_scope scope = ignis_scope_begin();
        prepared p = prepare(&c, dtypes[d], true);
        ignis_tensor output, weights = tensor_of(p.in[GRAD_OUT], shape_in(&c, GRAD_OUT), dtypes[d], false);
        for (i = 0; i < 70; i++)
            for (j = 0; j < 70; j++)
                if (j > i || i == 33)
                    p.in[BIAS][i * 70 + j] = -HUGE_VAL;
        reference(&c, p.in, p.results, false);
        p.inputs[BIAS] = p.desc.bias = tensor_of(p.in[BIAS], bias_shape(&c), IGNIS_F32, true);
        output = ignis_sdpa(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc);
        CHECK_OK(ignis_backward(output, ignis_tensor_data(weights)));
        check_result(&c, dtypes[d], names[OUT], ignis_tensor_data(output), p.results[OUT]);
        for (k = 0; k < INPUTS; k++)
            check_result(&c, dtypes[d], names[k], ignis_tensor_grad(p.inputs[k]), p.results[k]);
        discard(&p);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  A large negative bias is a mask, too: every third key of each query but the first one, which has it for all keys,
    and is 0. There all keys count alike; else those that are masked do not. */
static void check_low_bias(const masked_case *c, ignis_dtype dtype, double value, bool decode)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_dtype its = c->wide && dtype != IGNIS_F64 ? IGNIS_F32 : dtype;
    prepared p = prepare(c, dtype, true);
    ignis_tensor output, weights;
    int64_t i, k, numel = shape_numel(bias_shape(c));
    for (i = 0; i < numel; i++)
        if (i < c->sk || i % c->sk % 3 == 1)
            p.in[BIAS][i] = value;
    for (i = 0; i < c->heads * c->head_dim; i++)
        p.in[Q][i] = 0;
    p.inputs[Q] = tensor_of(p.in[Q], shape_in(c, Q), dtype, true);
    p.inputs[BIAS] = p.desc.bias = tensor_of(p.in[BIAS], bias_shape(c), its, true);
    reference(c, p.in, p.results, decode);
    output = decode ? ignis_decode_sdpa_with(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc)
                    : ignis_sdpa(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc);
    check_result(c, dtype, names[OUT], ignis_tensor_data(output), p.results[OUT]);
    if (!decode) {
        weights = tensor_of(p.in[GRAD_OUT], shape_in(c, GRAD_OUT), dtype, false);
        CHECK_OK(ignis_backward(output, ignis_tensor_data(weights)));
        for (k = 0; k < INPUTS; k++)
            check_result(c, dtype, names[k], ignis_tensor_grad(p.inputs[k]), p.results[k]);
    }
    discard(&p);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(sdpa_masks_by_a_low_bias)
{
    static const struct {
        masked_case c;
        bool decode;
    } cases[] = {{{0, 2, 1, 64, 33, 70, IGNIS_MASK_NONE, 0, false, 0, BIAS_PLAIN, false}, false},
                 {{0, 2, 1, 64, 33, 70, IGNIS_MASK_NONE, 0, false, 0, BIAS_PLAIN, true}, false},
                 {{2, 1, 1, 64, 20, 90, IGNIS_MASK_NONE, 0, true, 2, BIAS_PLAIN, true}, false},
                 {{0, 4, 2, 64, 1, 150, IGNIS_MASK_NONE, 0, false, 0, BIAS_PLAIN, true}, true},
                 {{0, 2, 2, 40, 1, 100, IGNIS_MASK_NONE, 0, false, 2, BIAS_PLAIN, false}, true}};
    int i, d, v;
    SETUP_MMA();
    for (i = 0; i < COUNT_OF(cases); i++)
        for (d = 0; d < 4; d++) {
            ignis_dtype its = cases[i].c.wide && float_dtypes[d] != IGNIS_F64 ? IGNIS_F32 : float_dtypes[d];
            double values[3] = {-1e9, -1e20, 0};
            values[2] = its == IGNIS_F32    ? -3.40282346638528859e38
                        : its == IGNIS_BF16 ? -3.38e38
                                            : -1.79769313486231570e308;
            for (v = 0; v < (its == IGNIS_F16 ? 1 : 3); v++)
                check_low_bias(&cases[i].c, float_dtypes[d], its == IGNIS_F16 ? -65504 : values[v], cases[i].decode);
        }
}

/*  The bias alone is trained, or is not. */
TEST(sdpa_gradient_of_the_bias_alone)
{
    static const masked_case c = {2, 2, 1, 8, 5, 7, IGNIS_MASK_CAUSAL, 0, true, 0, BIAS_HEADS, false};
    ignis_tensor out, x[4], again[4];
    prepared p, q;
    int i;
    SETUP_MMA();
    p = prepare(&c, IGNIS_F32, false);
    q = prepare(&c, IGNIS_F32, true);
    for (i = 0; i < 4; i++)
        x[i] = i == BIAS ? q.inputs[i] : p.inputs[i], again[i] = i == BIAS ? p.inputs[i] : q.inputs[i];
    p.desc.bias = x[BIAS];
    out = ignis_sdpa(x[Q], x[K], x[V], &p.desc);
    CHECK_OK(ignis_backward(out, ignis_tensor_data(out)));
    CHECK(ignis_tensor_grad(x[BIAS]).id != 0 && ignis_tensor_grad(x[Q]).id == 0 && ignis_tensor_grad(x[V]).id == 0);
    let_go(out);
    q.desc.bias = again[BIAS];
    out = ignis_sdpa(again[Q], again[K], again[V], &q.desc);
    CHECK_OK(ignis_backward(out, ignis_tensor_data(out)));
    CHECK(ignis_tensor_grad(again[BIAS]).id == 0 && ignis_tensor_grad(again[Q]).id != 0 &&
          ignis_tensor_grad(again[K]).id != 0);
    let_go(out);
    for (i = 0; i < 4; i++)
        let_go(p.inputs[i]), let_go(q.inputs[i]);
    let_go(p.desc.lengths), let_go(q.desc.lengths);
    discard(&p), discard(&q);
}

/*  No rows, no keys, no sequences: empty results, and a gradient of the bias that is 0. */
TEST(sdpa_masks_of_nothing)
{
    static const masked_case cases[] = {{2, 2, 1, 8, 0, 5, IGNIS_MASK_NONE, 2, true, 1, BIAS_KEYS, false},
                                        {2, 2, 1, 8, 5, 0, IGNIS_MASK_NONE, 2, true, 1, BIAS_HEADS, false}};
    int i, k;
    SETUP_MMA();
    for (i = 0; i < 2 * COUNT_OF(cases); i++) {
        masked_case c = cases[i / 2];
        ignis_scope scope = ignis_scope_begin();
        prepared p = prepare(&c, i % 2 ? IGNIS_BF16 : IGNIS_F64, true);
        ignis_tensor out = ignis_sdpa(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc);
        CHECK_OK(ignis_backward(out, ignis_tensor_data(p.inputs[Q])));
        for (k = 0; k < INPUTS; k++)
            check_result(&c, IGNIS_F64, names[k], ignis_tensor_grad(p.inputs[k]), p.results[k]);
        check_result(&c, IGNIS_F64, names[OUT], ignis_tensor_data(out), p.results[OUT]);
        discard(&p);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/* q, k and v in one tensor -------------------------------------------------------------------------------------- */

/*  The same bits as of the three parts, with rope and without, of the bias's gradient too. */
static void check_packed(const masked_case *c, ignis_dtype dtype, bool turns)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x[2], bias[2], y[2], parts[3], weights = tensor_noise(rows_shape(c, c->sq, c->heads), dtype, 9, false);
    ignis_sdpa_desc desc = sdpa_desc_of(c);
    ignis_rope_desc rope;
    int64_t sizes[3];
    double *a, *b;
    int i, k;
    memset(&rope, 0, sizeof rope);
    sizes[0] = (int64_t)c->heads * c->head_dim;
    sizes[1] = sizes[2] = (int64_t)c->kv_heads * c->head_dim;
    if (c->lengths)
        desc.lengths = lengths_tensor(c);
    for (i = 0; i < 2; i++) {
        x[i] = tensor_noise(rows_shape(c, c->sq, c->heads + 2 * c->kv_heads), dtype, 8, true);
        bias[i] = c->bias ? tensor_noise(bias_shape(c), dtype, 7, true) : no_tensor();
        desc.bias = bias[i];
        if (i == 0) {
            y[i] = ignis_sdpa_packed(x[i], &desc, turns ? &rope : NULL);
        } else {
            CHECK_OK(ignis_split(x[i], -1, 3, sizes, parts));
            for (k = 0; k < 2 && turns; k++) {
                rope.num_heads = k ? c->kv_heads : c->heads;
                parts[k] = ignis_rope(parts[k], &rope);
            }
            y[i] = ignis_sdpa(parts[0], parts[1], parts[2], &desc);
        }
        CHECK_OK(ignis_backward(y[i], ignis_tensor_data(weights)));
    }
    for (k = 0; k < (c->bias ? 3 : 2); k++) {
        const ignis_tensor *t = k == 0 ? y : k == 1 ? x : bias;
        a = k ? array_values(ignis_tensor_grad(t[0])) : tensor_values(t[0]);
        b = k ? array_values(ignis_tensor_grad(t[1])) : tensor_values(t[1]);
        CHECK(memcmp(a, b, (size_t)numel_of(t[0]) * sizeof *a) == 0);
        free(a);
        free(b);
    }
    CHECK_OK(ignis_scope_end(scope));
}

TEST(sdpa_masks_packed_have_the_bits_of_their_parts)
{
    static const masked_case all = {3, 4, 2, 40, 67, 67, IGNIS_MASK_CAUSAL, 11, true, 1.5, BIAS_HEADS, false},
                             ranged = {2, 2, 1, 64, 65, 65, IGNIS_MASK_CAUSAL, 20, true, 0, NO_BIAS, false};
    int turns;
    SETUP(NULL);
    for (turns = 0; turns < 2; turns++) {
        check_packed(&all, IGNIS_F64, turns != 0);
        check_packed(&all, IGNIS_BF16, turns != 0);
        check_packed(&ranged, IGNIS_BF16, turns != 0); /* by wgmma, where that can be had */
    }
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

/*  Windows that leave whole tiles out, at both ends, for some groups of warps and not for others; lengths; items that
    are split; a softcap. */
static const masked_case by_wgmma[] = {
    {0, 2, 1, 64, 400, 400, IGNIS_MASK_CAUSAL, 70, false, 0, NO_BIAS, false},
    {4, 2, 1, 64, 300, 300, IGNIS_MASK_CAUSAL, 100, true, 0, NO_BIAS, false},
    {2, 2, 2, 64, 140, 520, IGNIS_MASK_CAUSAL, 1, false, 0, NO_BIAS, false},
    {4, 2, 1, 64, 130, 260, IGNIS_MASK_NONE, 0, true, 0, NO_BIAS, false},
    {0, 1, 1, 64, 500, 200, IGNIS_MASK_CAUSAL, 37, false, 0, NO_BIAS, false},
    {0, 1, 1, 64, 300, 450, IGNIS_MASK_NONE, 90, false, 0, NO_BIAS, false},
    {0, 1, 1, 64, 40, 1500, IGNIS_MASK_CAUSAL, 900, false, 0, NO_BIAS, false},
    {0, 2, 2, 64, 250, 250, IGNIS_MASK_CAUSAL, 0, false, 2, NO_BIAS, false},
    {0, 1, 1, 64, 600, 64, IGNIS_MASK_NONE, 5, false, 0, NO_BIAS, false},
};

TEST(sdpa_masks_by_wgmma)
{
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(by_wgmma); i++)
        check_spoiled(&by_wgmma[i], i % 3 == 2 ? IGNIS_F16 : IGNIS_BF16);
    CHECK_INT(not_by_wgmma(), 0);
}

/*  A size of heads for each way to share columns and keys among the groups of warps, with all that these kernels have.
    */
TEST(sdpa_masks_by_wgmma_sizes_of_heads)
{
    static const int sizes[] = {72, 128, 192, 256};
    masked_case c = {3, 4, 2, 0, 200, 280, IGNIS_MASK_CAUSAL, 60, true, 1.5, NO_BIAS, false};
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(sizes); i++) {
        c.head_dim = sizes[i];
        c.softcap = i == 1 ? 0 : 1.5;
        check_spoiled(&c, i % 2 ? IGNIS_BF16 : IGNIS_F16);
    }
    CHECK_INT(not_by_wgmma(), 0);
}

/*  Few queries on many keys: tiles of keys that no query sees, at the beginning and the end, whole sequences among
    them; sizes of heads as above. */
TEST(sdpa_masks_by_wgmma_of_few_queries)
{
    static const masked_case few[] = {
        {0, 1, 1, 64, 100, 900, IGNIS_MASK_CAUSAL, 70, false, 0, NO_BIAS, false},
        {5, 1, 1, 64, 77, 600, IGNIS_MASK_NONE, 0, true, 0, NO_BIAS, false},
        {0, 2, 2, 64, 50, 520, IGNIS_MASK_CAUSAL, 0, false, 2, NO_BIAS, false},
        {4, 1, 1, 72, 128, 700, IGNIS_MASK_CAUSAL, 140, true, 1.5, NO_BIAS, false},
        {4, 1, 1, 128, 77, 700, IGNIS_MASK_NONE, 200, true, 0, NO_BIAS, false},
        {0, 1, 1, 128, 128, 640, IGNIS_MASK_CAUSAL, 300, false, 1.5, NO_BIAS, false},
        {4, 1, 1, 192, 40, 530, IGNIS_MASK_CAUSAL, 90, true, 0, NO_BIAS, false},
        {4, 1, 1, 256, 100, 520, IGNIS_MASK_CAUSAL, 60, true, 1.5, NO_BIAS, false},
        {0, 103, 103, 128, 16, 1500, IGNIS_MASK_CAUSAL, 700, false, 0, NO_BIAS, false},
    };
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(few) - (test_takes_all() ? 0 : 1);
         i++) /* the last one has more heads than a GPU has multiprocessors for */
        check_spoiled(&few[i], i % 2 ? IGNIS_BF16 : IGNIS_F16);
    CHECK_INT(not_by_wgmma(), 0);
}

/*  Queries ahead of all keys, which need no window. */
TEST(sdpa_by_wgmma_reads_nothing_that_is_not_seen)
{
    static const masked_case ahead[] = {
        {4, 2, 1, 64, 300, 299, IGNIS_MASK_CAUSAL, 0, true, 0, NO_BIAS, false},
        {0, 1, 1, 64, 300, 100, IGNIS_MASK_CAUSAL, 0, false, 0, NO_BIAS, false},
        {0, 2, 1, 128, 300, 100, IGNIS_MASK_CAUSAL, 0, false, 0, NO_BIAS, false},
        {0, 1, 1, 192, 200, 90, IGNIS_MASK_CAUSAL, 0, false, 0, NO_BIAS, false},
    };
    int i;
    SETUP_WGMMA();
    for (i = 0; i < COUNT_OF(ahead); i++)
        check_spoiled(&ahead[i], IGNIS_BF16);
    CHECK_INT(not_by_wgmma(), 0);
}

TEST(sdpa_by_wgmma_of_sequences_without_keys)
{
    SETUP_WGMMA();
    check_nothing(IGNIS_BF16);
    CHECK_INT(not_by_wgmma(), 0);
}

TEST(sdpa_with_a_bias_is_not_by_wgmma)
{
    static const masked_case c = {0, 2, 1, 64, 40, 40, IGNIS_MASK_CAUSAL, 9, false, 0, BIAS_PLAIN, false};
    SETUP_WGMMA();
    check_case(&c, IGNIS_BF16);
    CHECK_INT(not_by_wgmma(), 2);
    CHECK(strstr(test_log_text(IGNIS_DIAG_UNSUPPORTED), "there is a bias") != NULL);
}

/*  The same bits each time, whatever the order in which blocks and warps run. */
static uint64_t hash_of_wgmma(void)
{
    return hash_of(&by_wgmma[1], IGNIS_BF16) ^ (hash_of(&by_wgmma[5], IGNIS_BF16) << 1) ^
           (hash_of(&by_wgmma[6], IGNIS_BF16) << 2);
}

static int bits_role(void)
{
    ignis_desc setup = desc_by(IGNIS_ATTENTION_WGMMA);
    uint64_t hash;
    if (ignis_setup(&setup) != IGNIS_OK)
        return 1;
    hash = hash_of_wgmma();
    return process_send(PROCESS_SOCKET, &hash, sizeof hash, -1) && ignis_shutdown() == IGNIS_OK ? 0 : 1;
}

TEST(sdpa_masks_by_wgmma_have_the_same_bits_in_any_order)
{
    static const char *const orders[] = {"reverse", "random:5"};
    const char *given = getenv("IGNIS_SIM_ORDER");
    char before[64];
    process children[COUNT_OF(orders)];
    uint64_t expected, got;
    int i;
    snprintf(before, sizeof before, "%s", given ? given : "");
    for (i = 0; i < COUNT_OF(orders); i++) {
        setenv("IGNIS_SIM_ORDER", orders[i], 1);
        children[i] = process_start("bits");
    }
    if (given)
        setenv("IGNIS_SIM_ORDER", before, 1);
    else
        unsetenv("IGNIS_SIM_ORDER");
    SETUP_WGMMA();
    expected = hash_of_wgmma();
    CHECK(hash_of_wgmma() == expected);
    for (i = 0; i < COUNT_OF(orders); i++) {
        CHECK(process_receive(children[i].socket, &got, sizeof got, NULL) && got == expected);
        CHECK_INT(process_end(&children[i]), 0);
    }
}

/* decode -------------------------------------------------------------------------------------------------------- */

static void check_decode(const masked_case *c, ignis_dtype dtype, bool spoiled)
{
    ignis_scope scope = ignis_scope_begin();
    prepared p = prepare_for(c, dtype, true, true, spoiled);
    ignis_tensor output;
    reference(c, p.in, p.results, true);
    output = ignis_decode_sdpa_with(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc);
    CHECK(output.id != 0);
    CHECK_SHAPE_IS(output, shape_in(c, Q));
    CHECK(!tensor_info(output).requires_grad);
    check_result(c, dtype, names[OUT], ignis_tensor_data(output), p.results[OUT]);
    discard(&p);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Each option alone, then together; splits that shorter sequences leave empty; groups of heads for each program. */
TEST(decode_sdpa_masks)
{
    static const masked_case decoded[] = {
        {0, 4, 2, 64, 1, 700, IGNIS_MASK_CAUSAL, 100, false, 0, NO_BIAS, false},
        {4, 4, 1, 64, 1, 700, IGNIS_MASK_CAUSAL, 0, true, 0, NO_BIAS, false},
        {0, 2, 2, 64, 1, 65, IGNIS_MASK_NONE, 0, false, 1.5, NO_BIAS, false},
        {2, 20, 1, 64, 1, 129, IGNIS_MASK_CAUSAL, 0, false, 0, BIAS_KEYS, true},
        {4, 6, 2, 40, 1, 333, IGNIS_MASK_CAUSAL, 50, true, 3, BIAS_WHOLE, false},
        {2, 4, 2, 200, 1, 100, IGNIS_MASK_CAUSAL, 60, true, 3, BIAS_WHOLE, true},
        {3, 3, 3, 31, 1, 67, IGNIS_MASK_CAUSAL, 1, true, 3, BIAS_BATCH, true},
    };
    int i, d;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(decoded); i++)
        for (d = 0; d < 4; d++)
            if (d == 3 || i == 4 || i == 5)
                check_decode(&decoded[i], float_dtypes[d], i > 2);
}

/*  Without options it is ignis_decode_sdpa, bit for bit; with a scale it is not. */
TEST(decode_sdpa_with_nothing)
{
    ignis_tensor q, k, a, b;
    ignis_sdpa_desc desc;
    double *x, *y;
    int scaled;
    memset(&desc, 0, sizeof desc);
    desc.num_heads = 4;
    SETUP(NULL);
    q = tensor_noise(IGNIS_SHAPE(1, 128), IGNIS_BF16, 1, false);
    k = tensor_noise(IGNIS_SHAPE(70, 64), IGNIS_BF16, 2, false);
    for (scaled = 0; scaled < 2; scaled++) {
        desc.scale = scaled ? 3 : 0;
        a = ignis_decode_sdpa(q, k, k, 4);
        b = ignis_decode_sdpa_with(q, k, k, &desc);
        x = tensor_values(a);
        y = tensor_values(b);
        CHECK((memcmp(x, y, 128 * sizeof *x) == 0) == !scaled);
        free(x);
        free(y);
        let_go(a), let_go(b);
    }
    let_go(q), let_go(k);
}

/*  A captured step goes on with a cache that grows: the length is in device memory. */
TEST(decode_sdpa_in_a_graph_of_growing_length)
{
    ignis_tensor q, k, out, expected, part;
    ignis_sdpa_desc desc;
    ignis_graph graph;
    int32_t length = 0;
    double *x, *y;
    memset(&desc, 0, sizeof desc);
    desc.num_heads = 2;
    desc.window = 30;
    SETUP(NULL);
    q = tensor_noise(IGNIS_SHAPE(1, 128), IGNIS_BF16, 1, false);
    k = tensor_noise(IGNIS_SHAPE(90, 64), IGNIS_BF16, 2, false);
    desc.lengths = tensor_of((const double[]){1}, IGNIS_SHAPE(1), IGNIS_I32, false);
    let_go(ignis_decode_sdpa_with(q, k, k, &desc)); /* compiled */
    CHECK_OK(ignis_graph_begin());
    out = ignis_decode_sdpa_with(q, k, k, &desc);
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    for (length = 1; length < 90; length += 37) {
        ignis_tensor keys = ignis_slice(k, 0, 0, length);
        CHECK_OK(ignis_array_from_host_raw(ignis_tensor_data(desc.lengths), &length, sizeof length));
        CHECK_OK(ignis_graph_launch(graph));
        part = desc.lengths;
        desc.lengths = no_tensor();
        expected = ignis_decode_sdpa_with(q, keys, keys, &desc);
        desc.lengths = part;
        x = tensor_values(out);
        y = tensor_values(expected);
        CHECK_CLOSE(x[5], y[5], 1e-2);
        CHECK_CLOSE(x[100], y[100], 1e-2);
        free(x);
        free(y);
        let_go(expected), let_go(keys);
    }
    CHECK_OK(ignis_graph_free(graph));
    let_go(out), let_go(q), let_go(k), let_go(desc.lengths);
}

/* failures and errors ------------------------------------------------------------------------------------------- */

static ignis_tensor swept(int at, const ignis_tensor *inputs)
{
    ignis_sdpa_desc desc;
    ignis_rope_desc rope;
    ignis_tensor parts[4];
    (void)at;
    memset(&desc, 0, sizeof desc);
    memset(&rope, 0, sizeof rope);
    desc.num_heads = 2;
    desc.window = 3;
    desc.softcap = 2;
    desc.bias = inputs[1];
    desc.lengths = inputs[2];
    parts[0] = ignis_sdpa(inputs[0], inputs[0], inputs[0], &desc);
    parts[1] = parts[0].id
                   ? ignis_sdpa_packed(ignis_concat((const ignis_tensor[]){inputs[0], inputs[0], inputs[0]}, 3, -1),
                                       &desc, &rope)
                   : no_tensor();
    parts[2] = parts[1].id ? ignis_add(parts[0], parts[1]) : no_tensor();
    return parts[2].id ? ignis_mean(parts[2]) : no_tensor();
}

static void sweep(const char *prefix, ignis_attention_backend by)
{
    static host_counter counter;
    ignis_desc setup = test_counting_desc(&counter);
    ignis_tensor inputs[3];
    setup.attention = by;
    setup.memory_bypass = true;
    SETUP(&setup);
    inputs[0] = tensor_noise(IGNIS_SHAPE(2, 5, 16), IGNIS_BF16, 1, true);
    inputs[1] = tensor_noise(IGNIS_SHAPE(2, 5, 5), IGNIS_BF16, 2, true);
    inputs[2] = tensor_of((const double[]){4, 2}, IGNIS_SHAPE(2), IGNIS_I32, false);
    CHECK_OK(ignis_zero_grad(inputs[0])), CHECK_OK(ignis_zero_grad(inputs[1]));
    sweep_walks(prefix, &counter, swept, inputs);
    let_go(inputs[0]), let_go(inputs[1]), let_go(inputs[2]);
}

TEST(sdpa_masks_unwind_when_memory_is_out) { sweep("cuMemAlloc", IGNIS_ATTENTION_MMA); }
TEST(sdpa_masks_unwind_when_launches_fail) { sweep("cuLaunchKernel", IGNIS_ATTENTION_MMA); }

TEST(sdpa_masks_errors)
{
    ignis_tensor q, x, ints, wrong[5], one;
    ignis_sdpa_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    SETUP(NULL);
    desc.num_heads = 2;
    q = tensor_noise(IGNIS_SHAPE(3, 4, 16), IGNIS_F16, 1, false);
    one = tensor_noise(IGNIS_SHAPE(3, 1, 16), IGNIS_F16, 1, false);
    desc.window = -1;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc->window is -1, below 0");
    CHECK_FAILS(ignis_decode_sdpa_with(one, q, q, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.window = 0;
    desc.softcap = -2;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc->softcap is -2, not a positive number");
    desc.softcap = HUGE_VAL;
    CHECK_FAILS(ignis_sdpa_packed(q, &desc, NULL), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE); /* 16 is not 6 heads */
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.softcap = 0;

    wrong[0] = tensor_noise(IGNIS_SHAPE(3, 2, 4, 5), IGNIS_F16, 1, false);
    wrong[1] = tensor_noise(IGNIS_SHAPE(2, 2, 4, 4), IGNIS_F16, 1, false);
    wrong[2] = tensor_noise(IGNIS_SHAPE(1, 3, 2, 4, 4), IGNIS_F16, 1, false);
    wrong[3] = tensor_noise(IGNIS_SHAPE(3, 4, 4), IGNIS_F16, 1, false);
    wrong[4] = tensor_noise(IGNIS_SHAPE(4, 1), IGNIS_F16, 1, false);
    for (i = 0; i < 5; i++) {
        desc.bias = wrong[i];
        CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
        CHECK_MESSAGE_HAS("it has to be [3 or 1, 2 or 1, 4 or 1, 4], or the last of these");
        let_go(wrong[i]);
    }
    x = tensor_noise(IGNIS_SHAPE(4, 4), IGNIS_BF16, 1, false);
    desc.bias = x;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("desc->bias is bf16, the first input is f16");
    CHECK_FAILS(ignis_decode_sdpa_with(one, q, q, &desc), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    desc.bias = no_tensor();

    ints = tensor_counting(IGNIS_SHAPE(2), IGNIS_I32, 1, false);
    desc.lengths = ints;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_MESSAGE_HAS("desc->lengths is [2]; there are 3 sequences");
    desc.lengths = x;
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("desc->lengths is bf16; i32 is needed");
    let_go(x);
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    desc.lengths = no_tensor();
    desc.num_kv_heads = -1;
    CHECK_FAILS(ignis_decode_sdpa_with(one, q, q, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.num_kv_heads = 1;
    CHECK_FAILS(ignis_decode_sdpa_with(one, q, q, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    desc.num_kv_heads = 0;
    CHECK_FAILS(ignis_decode_sdpa_with(q, q, q, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_MESSAGE_HAS("one query and at least one key are needed");
    let_go(q), let_go(one), let_go(ints);
}

int main(int argc, char **argv) { return process_role(argc, argv) ? bits_role() : test_run(argc, argv); }
