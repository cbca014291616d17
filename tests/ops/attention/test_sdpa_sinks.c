// SPDX-License-Identifier: MIT
/*  test_sdpa_sinks.c - sdpa with sinks: values and gradients against a reference in double and finite differences in
    f64, by all kernels, with windows, lengths, documents, a bias and a softcap; extreme sinks; q, k and v in one
    tensor; decode; errors */
#include "sweep.h"

#include "attention.h"

#include <math.h>

typedef enum hides { HIDES_NOTHING, HIDES_LENGTHS, HIDES_DOCUMENTS } hides;

typedef struct sink_case {
    int batch, heads, kv_heads, head_dim, sq, sk;
    ignis_mask mask;
    int window;
    hides hidden; /* keys, by lengths or documents */
    double softcap;
    bool bias, wide; /* wide: sinks in f32 */
} sink_case;

enum { Q, K, V, BIAS, SINKS, INPUTS, GRAD_OUT = INPUTS, OUT = INPUTS };
static const char *const names[] = {"the gradient of q",        "the gradient of k",         "the gradient of v",
                                    "the gradient of the bias", "the gradient of the sinks", "the value"};

static ignis_shape shape_in(const sink_case *c, int input)
{
    switch (input) {
    case K:
    case V: return IGNIS_SHAPE(c->batch, c->sk, c->kv_heads * c->head_dim);
    case BIAS: return IGNIS_SHAPE(c->heads, c->sq, c->sk);
    case SINKS: return IGNIS_SHAPE(c->heads);
    default: return IGNIS_SHAPE(c->batch, c->sq, c->heads * c->head_dim);
    }
}

/*  Half of the keys, then none. */
static int length_of(const sink_case *c, int b) { return b % 2 ? 0 : c->sk / 2; }

/*  Documents of 7, 11, 7, 11 ... rows; the first three rows are in none. */
static int document_of(int row) { return row < 3 ? -1 : row / 18 * 2 + (row % 18 >= 7); }

static bool sees(const sink_case *c, int b, int i, int j, bool decode)
{
    const int keys = c->hidden == HIDES_LENGTHS ? length_of(c, b) : c->sk;
    const int place = decode ? keys - 1 : i + c->sk - c->sq;
    if (c->hidden == HIDES_DOCUMENTS && (document_of(i) < 0 || document_of(i) != document_of(j)))
        return false;
    return j < keys && (c->mask == IGNIS_MASK_NONE || j <= place) && (c->window == 0 || abs(j - place) < c->window);
}

/* the reference ------------------------------------------------------------------------------------------------- */

/*  One query of one head. in: q, k, v, the bias, the sinks, the gradient of the result; results: their gradients, the
    result. */
OPTIMIZED static void reference_row(const sink_case *c, double *const in[], double *const results[], const int at[3],
                                    bool decode)
{
    const int b = at[0], h = at[1], i = at[2], dim = c->head_dim, kv_h = h / (c->heads / c->kv_heads);
    const int64_t q_at = ((int64_t)(b * c->sq + i) * c->heads + h) * dim, k_row = (int64_t)c->kv_heads * dim;
    const int64_t k_at = (int64_t)b * c->sk * k_row + kv_h * dim, bias_at = ((int64_t)h * c->sq + i) * c->sk;
    const double sink = in[SINKS] ? in[SINKS][h] : -HUGE_VAL, scale = 1 / sqrt((double)dim);
    double *weights = (double *)calloc(3 * (size_t)c->sk + 1, sizeof *weights), *grads = weights + c->sk,
           *slopes = grads + c->sk;
    double top = sink, sum, delta = 0;
    int d, j, seen = 0;
    for (j = 0; j < c->sk; j++) {
        double score = 0;
        weights[j] = -HUGE_VAL;
        if (!sees(c, b, i, j, decode))
            continue;
        for (d = 0; d < dim; d++)
            score += scale * in[Q][q_at + d] * in[K][k_at + j * k_row + d];
        slopes[j] = 1;
        if (c->softcap > 0) {
            const double t = tanh(score / c->softcap);
            score = c->softcap * t;
            slopes[j] = 1 - t * t;
        }
        weights[j] = score + (c->bias ? in[BIAS][bias_at + j] : 0);
        top = weights[j] > top ? weights[j] : top;
        seen++;
    }
    sum = sink == top ? 1 : exp(sink - top);
    for (j = 0; j < c->sk; j++)
        sum += weights[j] = weights[j] == top ? 1 : exp(weights[j] - top);
    for (j = 0; j < c->sk && seen; j++) {
        weights[j] /= sum;
        for (d = 0; d < dim && sees(c, b, i, j, decode); d++) {
            results[OUT][q_at + d] += weights[j] * in[V][k_at + j * k_row + d];
            results[V][k_at + j * k_row + d] += weights[j] * in[GRAD_OUT][q_at + d];
            grads[j] += in[GRAD_OUT][q_at + d] * in[V][k_at + j * k_row + d];
        }
        delta += weights[j] * grads[j];
    }
    for (j = 0; j < c->sk; j++) {
        const double grad = weights[j] * (grads[j] - delta);
        if (!sees(c, b, i, j, decode))
            continue;
        if (c->bias)
            results[BIAS][bias_at + j] += grad;
        for (d = 0; d < dim; d++) {
            results[Q][q_at + d] += scale * grad * slopes[j] * in[K][k_at + j * k_row + d];
            results[K][k_at + j * k_row + d] += scale * grad * slopes[j] * in[Q][q_at + d];
        }
    }
    if (seen)
        results[SINKS][h] -= (sink == top ? 1 : exp(sink - top)) / sum * delta;
    free(weights);
}

static void reference(const sink_case *c, double *const in[], double *const results[], bool decode)
{
    int at[3];
    for (at[0] = 0; at[0] < c->batch; at[0]++)
        for (at[1] = 0; at[1] < c->heads; at[1]++)
            for (at[2] = 0; at[2] < c->sq; at[2]++)
                reference_row(c, in, results, at, decode);
}

/* values and gradients ------------------------------------------------------------------------------------------ */

/*  As in test_sdpa_masks: of probabilities and sums of products that were rounded, where tensor cores did it, relative
    to the largest number. */
static double tolerance_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64 ? 1e-12 : dtype == IGNIS_F32 ? 1e-5 : dtype == IGNIS_F16 ? 2e-3 : 1.6e-2;
}

/*  Puts NaN and infinities into keys and values that no query sees, and into queries that see no key and the gradients
    of their results. */
static void spoil(const sink_case *c, double *const in[], bool decode)
{
    static const double garbage[] = {NAN, HUGE_VAL, -HUGE_VAL};
    const int width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim;
    int b, i, j, d, next = 0;
    for (b = 0; b < c->batch; b++) {
        for (j = 0; j < c->sk; j++) {
            for (i = 0; i < c->sq && !sees(c, b, i, j, decode);)
                i++;
            for (d = 0; d < kv_width && i == c->sq; d++)
                in[K][((int64_t)b * c->sk + j) * kv_width + d] = in[V][((int64_t)b * c->sk + j) * kv_width + d] =
                    garbage[next++ % COUNT_OF(garbage)];
        }
        for (i = 0; i < c->sq; i++) {
            for (j = 0; j < c->sk && !sees(c, b, i, j, decode);)
                j++;
            for (d = 0; d < width && j == c->sk; d++)
                in[Q][((int64_t)b * c->sq + i) * width + d] = in[GRAD_OUT][((int64_t)b * c->sq + i) * width + d] =
                    garbage[next++ % COUNT_OF(garbage)];
        }
    }
}

typedef struct prepared {
    double *in[INPUTS + 1], *results[INPUTS + 1];
    ignis_tensor inputs[INPUTS]; /* the bias may be none */
    ignis_sdpa_desc desc;
} prepared;

static ignis_dtype dtype_in(const sink_case *c, ignis_dtype dtype, int input)
{
    return input == SINKS && c->wide && dtype != IGNIS_F64 ? IGNIS_F32 : dtype;
}

/*  sinks: their values; NULL: noise. */
static prepared prepare(const sink_case *c, ignis_dtype dtype, const double *sinks, bool decode)
{
    prepared p;
    double values[512];
    int i;
    memset(&p, 0, sizeof p);
    p.desc.num_heads = c->heads;
    p.desc.num_kv_heads = c->kv_heads;
    p.desc.mask = c->mask;
    p.desc.window = c->window;
    p.desc.softcap = c->softcap;
    for (i = 0; i <= INPUTS; i++) {
        if (i == BIAS && !c->bias)
            continue;
        p.in[i] = rounded_noise(shape_in(c, i), dtype_in(c, dtype, i), (uint64_t)(3 + i), 2);
        p.results[i] = (double *)calloc((size_t)shape_numel(shape_in(c, i)) + 1, sizeof *p.results[i]);
    }
    for (i = 0; i < c->heads && sinks; i++)
        p.in[SINKS][i] = sinks[i];
    spoil(c, p.in, decode);
    for (i = 0; i < INPUTS; i++)
        if (p.in[i])
            p.inputs[i] = tensor_of(p.in[i], shape_in(c, i), dtype_in(c, dtype, i), true);
    p.desc.bias = p.inputs[BIAS];
    p.desc.sinks = p.inputs[SINKS];
    for (i = 0; i < c->batch * c->sq && c->hidden == HIDES_DOCUMENTS; i++)
        values[i] = document_of(i % c->sq);
    if (c->hidden == HIDES_DOCUMENTS)
        p.desc.segments = tensor_of(values, IGNIS_SHAPE(c->batch, c->sq), IGNIS_I32, false);
    for (i = 0; i < c->batch && c->hidden == HIDES_LENGTHS; i++)
        values[i] = length_of(c, i);
    if (c->hidden == HIDES_LENGTHS)
        p.desc.lengths = tensor_of(values, IGNIS_SHAPE(c->batch), IGNIS_I32, false);
    return p;
}

static void discard(prepared *p)
{
    int i;
    for (i = 0; i <= INPUTS; i++) {
        free(p->in[i]);
        free(p->results[i]);
    }
}

static void check_result(const sink_case *c, ignis_dtype dtype, int of, ignis_array array, const double *expected)
{
    double *got = array_values(array), largest = 1;
    int64_t i, numel = ignis_array_numel(array);
    char text[512];
    for (i = 0; i < numel; i++)
        largest = fabs(expected[i]) > largest ? fabs(expected[i]) : largest;
    for (i = 0; i < numel && fabs(got[i] - expected[i]) <= largest * tolerance_of(dtype);)
        i++;
    if (i < numel) {
        snprintf(text, sizeof text,
                 "dtype %d, batch %d, heads %d of %d and %d, sq %d, sk %d, mask %d, window %d, hides %d, softcap %g, "
                 "bias %d, wide %d: element %lld of %s is %.9g, expected %.9g",
                 (int)dtype, c->batch, c->head_dim, c->heads, c->kv_heads, c->sq, c->sk, (int)c->mask, c->window,
                 (int)c->hidden, c->softcap, c->bias, c->wide, (long long)i, names[of], got[i], expected[i]);
        test__fail(__FILE__, __LINE__, text);
    }
    free(got);
}

static void check_sinks(const sink_case *c, ignis_dtype dtype, const double *sinks)
{
    ignis_scope scope = ignis_scope_begin();
    prepared p = prepare(c, dtype, sinks, false);
    ignis_tensor weights = tensor_of(p.in[GRAD_OUT], shape_in(c, GRAD_OUT), dtype, false),
                 output = ignis_sdpa(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc);
    int i;
    reference(c, p.in, p.results, false);
    CHECK(output.id != 0);
    CHECK_OK(ignis_backward(output, ignis_tensor_data(weights)));
    check_result(c, dtype, OUT, ignis_tensor_data(output), p.results[OUT]);
    for (i = 0; i < INPUTS; i++)
        if (p.inputs[i].id)
            check_result(c, dtype, i, ignis_tensor_grad(p.inputs[i]), p.results[i]);
    discard(&p);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Plain, and on tensor cores where the dtype has them: without options and with all of them, more and fewer keys than
    queries, queries ahead of all keys, groups of heads. */
static const sink_case cases[] = {
    {1, 2, 1, 64, 70, 70, IGNIS_MASK_CAUSAL, 0, HIDES_NOTHING, 0, false, false},
    {2, 4, 2, 40, 33, 81, IGNIS_MASK_CAUSAL, 11, HIDES_LENGTHS, 0, false, true},
    {2, 2, 1, 64, 67, 67, IGNIS_MASK_CAUSAL, 9, HIDES_DOCUMENTS, 0, false, false},
    {2, 2, 2, 24, 35, 20, IGNIS_MASK_CAUSAL, 0, HIDES_NOTHING, 1.5, true, true},
    {2, 3, 3, 64, 20, 45, IGNIS_MASK_NONE, 30, HIDES_LENGTHS, 3, true, false},
    {1, 2, 1, 128, 1, 37, IGNIS_MASK_CAUSAL, 0, HIDES_NOTHING, 0, false, false},
};

TEST(values_and_gradients)
{
    int i, d;
    ignis_desc by_mma = desc_by(IGNIS_ATTENTION_MMA);
    SETUP(&by_mma);
    for (i = 0; i < COUNT_OF(cases); i++)
        for (d = 0; d < 4; d++)
            if (i < 2 || float_dtypes[d] == (i % 2 ? IGNIS_F64 : IGNIS_F32) ||
                float_dtypes[d] == (i % 2 ? IGNIS_F16 : IGNIS_BF16))
                check_sinks(&cases[i], float_dtypes[d], NULL);
}

/*  By wgmma: three forms of backward, and forward with split keys. */
static const sink_case by_wgmma[] = {
    {2, 2, 1, 64, 140, 140, IGNIS_MASK_CAUSAL, 0, HIDES_NOTHING, 0, false, false},
    {2, 2, 1, 64, 133, 133, IGNIS_MASK_CAUSAL, 40, HIDES_DOCUMENTS, 0, false, true},
    {2, 2, 1, 64, 70, 260, IGNIS_MASK_CAUSAL, 100, HIDES_LENGTHS, 0, false, false},
    {1, 1, 1, 64, 40, 1500, IGNIS_MASK_CAUSAL, 0, HIDES_NOTHING, 0, false, true},
    {1, 1, 1, 128, 130, 70, IGNIS_MASK_NONE, 0, HIDES_NOTHING, 2, false, false},
    {1, 2, 1, 192, 130, 130, IGNIS_MASK_CAUSAL, 0, HIDES_NOTHING, 0, false, false},
};

TEST(values_and_gradients_by_wgmma)
{
    ignis_device_info device;
    ignis_desc desc = desc_by(IGNIS_ATTENTION_WGMMA);
    int i;
    SETUP(&desc);
    CHECK_OK(ignis_device_query(0, &device));
    if (device.compute_major != 9)
        SKIP("the device has no wgmma");
    for (i = 0; i < COUNT_OF(by_wgmma); i++)
        check_sinks(&by_wgmma[i], i % 2 ? IGNIS_F16 : IGNIS_BF16, NULL);
    CHECK_INT(test_log_count(IGNIS_DIAG_UNSUPPORTED), 0);
}

static ignis_tensor checked(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_sdpa_desc desc = *(const ignis_sdpa_desc *)user_data;
    desc.bias = count > 4 ? inputs[3] : no_tensor();
    desc.sinks = inputs[count - 1];
    return ignis_sdpa(inputs[Q], inputs[K], inputs[V], &desc);
}

TEST(gradients_are_those_of_finite_differences)
{
    static const sink_case small[] = {{2, 2, 1, 4, 5, 6, IGNIS_MASK_CAUSAL, 3, HIDES_NOTHING, 0.7, true, false},
                                      {2, 2, 1, 3, 9, 9, IGNIS_MASK_NONE, 0, HIDES_DOCUMENTS, 0, false, false}};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(small); i++) {
        ignis_scope scope = ignis_scope_begin();
        prepared p = prepare(&small[i], IGNIS_F64, NULL, false);
        ignis_tensor x[5];
        int row, d, kept = 0, count = small[i].bias ? 5 : 4;
        /* A finite difference reads every element, so the rows that prepare spoils are numbers here. */
        for (row = 0; row < COUNT_OF(x) - 2; row++) {
            const int64_t numel = shape_numel(shape_in(&small[i], row));
            for (d = 0; d < numel; d++)
                p.in[row][d] = isfinite(p.in[row][d]) ? p.in[row][d] : 0.5;
            x[kept++] = tensor_of(p.in[row], shape_in(&small[i], row), IGNIS_F64, true);
        }
        if (small[i].bias)
            x[kept++] = p.inputs[BIAS];
        x[kept] = p.inputs[SINKS];
        CHECK(ignis_gradcheck(checked, &p.desc, x, count, NULL) < 1e-6);
        CHECK_OK(ignis_status_last());
        discard(&p);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/* extreme sinks ------------------------------------------------------------------------------------------------- */

/*  A sink far below all scores, far above them, and the ends of the dtype. With the largest one a result is 0. */
TEST(extreme_sinks)
{
    static const double largest[] = {65504, 3.3895313892515355e38, 3.40282346638528859e38, 1.79769313486231570e308};
    static const sink_case c = {1, 6, 2, 64, 33, 40, IGNIS_MASK_CAUSAL, 9, HIDES_NOTHING, 0, false, false};
    static const ignis_dtype dtypes[] = {IGNIS_F16, IGNIS_BF16, IGNIS_F32, IGNIS_F64};
    static const ignis_attention_backend backends[] = {IGNIS_ATTENTION_MMA, IGNIS_ATTENTION_AUTO};
    int d, by;
    for (by = 0; by < COUNT_OF(backends); by++) {
        ignis_desc desc = desc_by(backends[by]);
        SETUP(&desc);
        for (d = 0; d < (by ? 2 : 4); d++) {
            double sinks[6] = {0, -60, 60, -HUGE_VAL, 0, 0};
            sinks[4] = -largest[d], sinks[5] = largest[d];
            check_sinks(&c, dtypes[d], sinks);
        }
        CHECK_OK(ignis_shutdown());
    }
}

/*  Writes the values of the result and of the gradients of q, k and v behind one another. Returns their number. */
static int64_t all_values(const sink_case *c, ignis_dtype dtype, double sink, bool has_sinks, double *to)
{
    ignis_scope scope = ignis_scope_begin();
    double sinks[8];
    prepared p;
    ignis_tensor out;
    int64_t count = 0, numel;
    int i;
    for (i = 0; i < c->heads; i++)
        sinks[i] = sink;
    p = prepare(c, dtype, sinks, false);
    if (!has_sinks)
        p.desc.sinks = no_tensor();
    out = ignis_sdpa(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc);
    CHECK_OK(ignis_backward(out, ignis_tensor_data(p.inputs[Q])));
    for (i = 0; i < 4; i++) {
        const ignis_array array = i == 3 ? ignis_tensor_data(out) : ignis_tensor_grad(p.inputs[i]);
        double *values = array_values(array);
        numel = ignis_array_numel(array);
        memcpy(to + count, values, (size_t)numel * sizeof *to);
        count += numel;
        free(values);
    }
    discard(&p);
    CHECK_OK(ignis_scope_end(scope));
    return count;
}

/*  -infinity gives the bits of no sinks. infinity gives zeros, and NaN gives NaN. */
TEST(infinite_sinks)
{
    static const sink_case c = {1, 2, 1, 64, 40, 40, IGNIS_MASK_CAUSAL, 0, HIDES_NOTHING, 0, false, false};
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16};
    double *const with = (double *)malloc(8 * 40 * 128 * sizeof *with), *const without = with + 4 * 40 * 128;
    int64_t i, count;
    int d, by;
    for (by = 0; by < 2; by++) {
        ignis_desc desc = desc_by(by ? IGNIS_ATTENTION_AUTO : IGNIS_ATTENTION_MMA);
        SETUP(&desc);
        for (d = 0; d < COUNT_OF(dtypes); d++) {
            count = all_values(&c, dtypes[d], 0, false, without);
            CHECK_INT(all_values(&c, dtypes[d], -HUGE_VAL, true, with), count);
            CHECK(memcmp(with, without, (size_t)count * sizeof *with) == 0);
            count = all_values(&c, dtypes[d], HUGE_VAL, true, with);
            for (i = 0; i < count && with[i] == 0;)
                i++;
            CHECK_INT(i, count);
            all_values(&c, dtypes[d], NAN, true, with);
            CHECK(isnan(with[count - 1]));
        }
        CHECK_OK(ignis_shutdown());
    }
    free(with);
}

/*  The sinks alone are trained. */
TEST(gradient_of_the_sinks_alone)
{
    static const sink_case c = {2, 2, 1, 64, 40, 40, IGNIS_MASK_CAUSAL, 0, HIDES_NOTHING, 0, false, false};
    static const ignis_dtype dtypes[] = {IGNIS_F64, IGNIS_BF16};
    int d, i;
    SETUP(NULL);
    for (d = 0; d < COUNT_OF(dtypes); d++) {
        ignis_scope scope = ignis_scope_begin();
        prepared p = prepare(&c, dtypes[d], NULL, false);
        ignis_tensor x[3], out;
        for (i = 0; i < 3; i++)
            x[i] = ignis_detach(p.inputs[i]);
        reference(&c, p.in, p.results, false);
        out = ignis_sdpa(x[0], x[1], x[2], &p.desc);
        CHECK_OK(ignis_backward(out, ignis_tensor_data(tensor_of(p.in[GRAD_OUT], shape_in(&c, Q), dtypes[d], false))));
        check_result(&c, dtypes[d], SINKS, ignis_tensor_grad(p.inputs[SINKS]), p.results[SINKS]);
        discard(&p);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  No queries, no keys: zeros. */
TEST(sinks_of_nothing)
{
    static const sink_case empty[] = {{2, 2, 1, 8, 0, 5, IGNIS_MASK_NONE, 0, HIDES_NOTHING, 0, false, false},
                                      {2, 2, 1, 8, 5, 0, IGNIS_MASK_NONE, 0, HIDES_NOTHING, 0, false, true}};
    int i;
    SETUP(NULL);
    for (i = 0; i < 2 * COUNT_OF(empty); i++)
        check_sinks(&empty[i / 2], i % 2 ? IGNIS_BF16 : IGNIS_F64, NULL);
}

/* q, k and v in one tensor; decode ------------------------------------------------------------------------------ */

static void check_packed(ignis_dtype dtype, bool has_bias)
{
    enum { HEADS = 4, KV_HEADS = 2, DIM = 64, ROWS = 67 };
    static const int64_t sizes[] = {HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM};
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x[2], bias[2], sinks[2], y[2], parts[3],
        weights = tensor_noise(IGNIS_SHAPE(2, ROWS, HEADS * DIM), dtype, 9, false);
    ignis_sdpa_desc desc;
    int i, k;
    memset(&desc, 0, sizeof desc);
    desc.num_heads = HEADS;
    desc.num_kv_heads = KV_HEADS;
    for (i = 0; i < 2; i++) {
        x[i] = tensor_noise(IGNIS_SHAPE(2, ROWS, (HEADS + 2 * KV_HEADS) * DIM), dtype, 8, true);
        sinks[i] = desc.sinks = tensor_noise(IGNIS_SHAPE(HEADS), dtype, 6, true);
        bias[i] = desc.bias = has_bias ? tensor_noise(IGNIS_SHAPE(ROWS, ROWS), dtype, 7, true) : no_tensor();
        if (i == 0) {
            y[i] = ignis_sdpa_packed(x[i], &desc, NULL);
        } else {
            CHECK_OK(ignis_split(x[i], -1, 3, sizes, parts));
            y[i] = ignis_sdpa(parts[0], parts[1], parts[2], &desc);
        }
        CHECK_OK(ignis_backward(y[i], ignis_tensor_data(weights)));
    }
    for (k = 0; k < (has_bias ? 4 : 3); k++) {
        const ignis_tensor *t = k == 0 ? y : k == 1 ? x : k == 2 ? sinks : bias;
        double *a = k ? array_values(ignis_tensor_grad(t[0])) : tensor_values(t[0]),
               *b = k ? array_values(ignis_tensor_grad(t[1])) : tensor_values(t[1]);
        CHECK(memcmp(a, b, (size_t)numel_of(t[0]) * sizeof *a) == 0);
        free(a);
        free(b);
    }
    CHECK_OK(ignis_scope_end(scope));
}

TEST(packed_has_the_bits_of_its_parts)
{
    SETUP(NULL);
    check_packed(IGNIS_F64, false);
    check_packed(IGNIS_BF16, false);
    check_packed(IGNIS_BF16, true);
}

TEST(decode)
{
    static const sink_case decoded[] = {
        {1, 4, 2, 64, 1, 700, IGNIS_MASK_CAUSAL, 100, HIDES_NOTHING, 0, false, false},
        {2, 4, 1, 64, 1, 300, IGNIS_MASK_CAUSAL, 0, HIDES_LENGTHS, 0, false, true},
        {1, 2, 2, 40, 1, 65, IGNIS_MASK_CAUSAL, 0, HIDES_NOTHING, 1.5, true, true},
        {1, 2, 2, 200, 1, 1, IGNIS_MASK_CAUSAL, 0, HIDES_NOTHING, 0, false, false},
    };
    int i, d;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(decoded); i++)
        for (d = i % 2; d < 4; d += 2) {
            ignis_scope scope = ignis_scope_begin();
            prepared p = prepare(&decoded[i], float_dtypes[d], NULL, true);
            reference(&decoded[i], p.in, p.results, true);
            check_result(&decoded[i], float_dtypes[d], OUT,
                         ignis_tensor_data(ignis_decode_sdpa_with(p.inputs[Q], p.inputs[K], p.inputs[V], &p.desc)),
                         p.results[OUT]);
            discard(&p);
            CHECK_OK(ignis_scope_end(scope));
        }
}

/* failures and errors ------------------------------------------------------------------------------------------- */

static ignis_tensor swept(int at, const ignis_tensor *inputs)
{
    ignis_sdpa_desc desc;
    ignis_tensor out;
    (void)at;
    memset(&desc, 0, sizeof desc);
    desc.num_heads = 2;
    desc.bias = inputs[1];
    desc.sinks = inputs[2];
    out = ignis_sdpa(inputs[0], inputs[0], inputs[0], &desc);
    return out.id ? ignis_mean(out) : no_tensor();
}

static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc setup = test_counting_desc(&counter);
    ignis_tensor inputs[3];
    int i;
    setup.attention = IGNIS_ATTENTION_MMA;
    setup.memory_bypass = true;
    SETUP(&setup);
    inputs[0] = tensor_noise(IGNIS_SHAPE(2, 5, 16), IGNIS_BF16, 1, true);
    inputs[1] = tensor_noise(IGNIS_SHAPE(5, 5), IGNIS_BF16, 2, true);
    inputs[2] = tensor_noise(IGNIS_SHAPE(2), IGNIS_F32, 3, true);
    for (i = 0; i < 3; i++)
        CHECK_OK(ignis_zero_grad(inputs[i]));
    sweep_walks(prefix, &counter, swept, inputs);
    for (i = 0; i < 3; i++)
        let_go(inputs[i]);
}

TEST(sinks_unwind_when_memory_is_out) { sweep("cuMemAlloc"); }
TEST(sinks_unwind_when_launches_fail) { sweep("cuLaunchKernel"); }

TEST(errors)
{
    ignis_tensor q, one, wrong;
    ignis_sdpa_desc desc;
    memset(&desc, 0, sizeof desc);
    SETUP(NULL);
    desc.num_heads = 2;
    q = tensor_noise(IGNIS_SHAPE(3, 4, 16), IGNIS_F16, 1, false);
    one = tensor_noise(IGNIS_SHAPE(3, 1, 16), IGNIS_F16, 1, false);
    desc.sinks = wrong = tensor_noise(IGNIS_SHAPE(3), IGNIS_F16, 1, false);
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    CHECK_MESSAGE_HAS("desc->sinks is [3]; expected [2], one of each head");
    CHECK_FAILS(ignis_decode_sdpa_with(one, q, q, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    let_go(wrong);
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    desc.sinks = wrong = tensor_noise(IGNIS_SHAPE(1, 2), IGNIS_F16, 1, false);
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SDPA_SHAPE);
    let_go(wrong);
    desc.sinks = wrong = tensor_noise(IGNIS_SHAPE(2), IGNIS_BF16, 1, false);
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("desc->sinks is bf16, the first input is f16");
    let_go(wrong);
    desc.sinks = wrong = tensor_noise(IGNIS_SHAPE(2), IGNIS_F64, 1, false);
    CHECK_FAILS(ignis_sdpa(q, q, q, &desc), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    let_go(wrong), let_go(q), let_go(one);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
