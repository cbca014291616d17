// SPDX-License-Identifier: MIT
/*  test_norm_weights.c - norms of f16 and bf16 with f32 weights: bit for bit those with weights of the dtype of x where
    these have the same values, and beside double precision where they do not */
#include "tensor.h"

#include <math.h>

typedef enum norm { LAYER, RMS, ADD_LAYER, ADD_RMS, BATCH, BATCH_EVAL, GROUP, NORMS } norm;

/*  A leaf over memory that begins `at` elements behind a multiple of 16 bytes. */
static ignis_tensor leaf(ignis_shape shape, ignis_dtype dtype, int at, const double *values)
{
    int64_t numel = 1;
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(1), dtype);
    ignis_array whole, part, shaped;
    ignis_tensor made;
    int i;
    for (i = 0; i < shape.ndim; i++)
        numel *= shape.dim[i];
    desc.shape = IGNIS_SHAPE(numel + at);
    whole = ignis_array_create(&desc);
    part = ignis_array_slice(whole, 0, at, numel);
    shaped = ignis_array_reshape(part, shape);
    CHECK_OK(ignis_array_from_host(shaped, values, IGNIS_F64, numel));
    made = ignis_tensor_from_array(shaped, true);
    drop(whole), drop(part), drop(shaped);
    return made;
}

typedef struct results {
    double *y, *dx, *dw, *db;
} results;

static void end_results(results *r) { free(r->y), free(r->dx), free(r->dw), free(r->db); }

static ignis_tensor run_norm(norm kind, ignis_tensor x, ignis_tensor other, ignis_tensor w, ignis_tensor b, int groups,
                             const ignis_batch_norm_desc *eval)
{
    ignis_tensor sum;
    switch (kind) {
    case LAYER: return ignis_layer_norm(x, w, b, 0);
    case RMS: return ignis_rms_norm(x, w, 0);
    case ADD_LAYER: return ignis_add_layer_norm(x, other, w, b, 0, &sum);
    case ADD_RMS: return ignis_add_rms_norm(x, other, w, 0, &sum);
    case BATCH: return ignis_batch_norm(x, w, b, NULL);
    case BATCH_EVAL: return ignis_batch_norm(x, w, b, eval);
    default: return ignis_group_norm(x, groups, w, b, 0);
    }
}

static bool has_bias(norm kind) { return kind != RMS && kind != ADD_RMS; }

/*  Values of a number of elements: x noise of 8 bits, so that f16 and bf16 hold it. */
static double value_of(int64_t i, int seed) { return (double)((i * 7919 + seed * 104729) % 251 - 125) / 64; }

static double *make_values(int64_t count, int seed, double fine)
{
    double *values = (double *)malloc(sizeof *values * (size_t)(count + 1));
    int64_t i;
    for (i = 0; i < count; i++)
        values[i] = value_of(i, seed) + fine;
    return values;
}

static results compute(norm kind, ignis_shape shape, int groups, ignis_dtype dtype, ignis_dtype weight_dtype, int at_x,
                       int at_w, double fine)
{
    ignis_scope scope = ignis_scope_begin();
    const int64_t n = shape.dim[shape.ndim - 1];
    int64_t numel = n;
    ignis_tensor x, other, w, b, y;
    ignis_array dy;
    ignis_batch_norm_desc eval;
    double *values[5];
    results r;
    int i;
    memset(&r, 0, sizeof r), memset(&eval, 0, sizeof eval);
    for (i = 0; i < shape.ndim - 1; i++)
        numel *= shape.dim[i];
    for (i = 0; i < 5; i++)
        values[i] = make_values(i == 2 || i == 3 ? n : numel, i, i == 2 || i == 3 ? fine : 0);
    x = leaf(shape, dtype, at_x, values[0]), other = leaf(shape, dtype, at_x, values[1]);
    w = leaf(IGNIS_SHAPE(n), weight_dtype, at_w, values[2]), b = leaf(IGNIS_SHAPE(n), weight_dtype, at_w, values[3]);
    dy = ignis_tensor_data(leaf(shape, dtype, at_x, values[4]));
    eval.eval = true;
    eval.running_mean = ignis_tensor_data(leaf(IGNIS_SHAPE(n), IGNIS_F32, 0, values[2]));
    eval.running_var = ignis_tensor_data(ignis_map_shape("1.5", IGNIS_SHAPE(n), IGNIS_NO_INPUTS, NULL));
    y = run_norm(kind, x, other, w, b, groups, &eval);
    CHECK_OK(ignis_backward(y, dy));
    CHECK_INT(tensor_info(w).dtype, weight_dtype);
    r.y = tensor_values(y), r.dx = array_values(ignis_tensor_grad(x)), r.dw = array_values(ignis_tensor_grad(w));
    r.db = has_bias(kind) ? array_values(ignis_tensor_grad(b)) : NULL;
    for (i = 0; i < 5; i++)
        free(values[i]);
    CHECK_OK(ignis_scope_end(scope));
    return r;
}

/*  Rounds to bf16 or f16: 8 or 11 bits, of numbers that are normal there. */
static double rounded(double x, ignis_dtype dtype)
{
    int exponent;
    const int bits = dtype == IGNIS_BF16 ? 8 : 11;
    double m = frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(m, bits)), exponent - bits);
}

static void check_bits(norm kind, ignis_shape shape, int groups, ignis_dtype dtype, int at_x, int at_w)
{
    const int64_t n = shape.dim[shape.ndim - 1];
    int64_t numel = n, i, bad = 0;
    results narrow = compute(kind, shape, groups, dtype, dtype, at_x, at_w, 0),
            wide = compute(kind, shape, groups, dtype, IGNIS_F32, at_x, at_w, 0);
    for (i = 0; i < shape.ndim - 1; i++)
        numel *= shape.dim[i];
    for (i = 0; i < numel; i++)
        bad += narrow.y[i] != wide.y[i] || narrow.dx[i] != wide.dx[i];
    for (i = 0; i < n; i++) {
        bad += narrow.dw[i] != rounded(wide.dw[i], dtype) && fabs(wide.dw[i]) > 1e-3;
        bad += has_bias(kind) && narrow.db[i] != rounded(wide.db[i], dtype) && fabs(wide.db[i]) > 1e-3;
    }
    if (bad)
        printf("norm %d of %lld elements in rows of %lld, %s, from %d and %d: %lld differ\n", (int)kind,
               (long long)numel, (long long)n, ignis_dtype_name(dtype), at_x, at_w, (long long)bad);
    CHECK_INT(bad, 0);
    end_results(&narrow), end_results(&wide);
}

TEST(rows_have_the_bits_of_narrow_weights)
{
    static const int widths[] = {1, 7, 8, 40, 64, 136, 257, 520, 1024, 1544, 4104};
    static const int from[][2] = {{0, 0}, {1, 0}, {0, 1}, {3, 3}};
    int kind, i, k;
    SETUP(NULL);
    for (kind = LAYER; kind <= ADD_RMS; kind++)
        for (i = 0; i < COUNT_OF(widths); i++)
            for (k = 0; k < 4; k++)
                check_bits((norm)kind, IGNIS_SHAPE(5, widths[i]), 1, k % 2 ? IGNIS_F16 : IGNIS_BF16, from[k][0],
                           from[k][1]);
}

TEST(long_rows_have_the_bits_of_narrow_weights)
{
    static const int widths[] = {16448, 32784, 32785};
    int kind, i;
    SETUP(NULL);
    for (kind = LAYER; kind <= ADD_RMS; kind += 1)
        for (i = 0; i < COUNT_OF(widths); i++)
            check_bits((norm)kind, IGNIS_SHAPE(2, widths[i]), 1, IGNIS_BF16, 0, i % 2);
}

TEST(channels_have_the_bits_of_narrow_weights)
{
    static const int widths[] = {1, 6, 8, 48, 130};
    int kind, i, k;
    SETUP(NULL);
    for (kind = BATCH; kind <= GROUP; kind++)
        for (i = 0; i < COUNT_OF(widths); i++)
            for (k = 0; k < 2; k++)
                check_bits((norm)kind, IGNIS_SHAPE(3, 4, 5, widths[i]), widths[i] % 2 ? 1 : 2,
                           k ? IGNIS_F16 : IGNIS_BF16, k, 0);
}

/*  Weights that bf16 does not hold, beside double precision: y is rounded once, dw and db are sums in f32. */
TEST(weights_keep_their_digits)
{
    const double fine = 1.0 / 4096;
    const int64_t rows = 6, n = 24;
    int kind;
    SETUP(NULL);
    for (kind = LAYER; kind <= RMS; kind++) {
        results r = compute((norm)kind, IGNIS_SHAPE(rows, n), 1, IGNIS_BF16, IGNIS_F32, 0, 0, fine);
        double dw[24] = {0}, db[24] = {0}, *x = make_values(rows * n, 0, 0), *w = make_values(n, 2, fine),
               *b = make_values(n, 3, fine), *dy = make_values(rows * n, 4, 0);
        int64_t i, k;
        for (i = 0; i < rows; i++) {
            double mean = 0, variance = 0, g = 0, gh = 0, rstd;
            for (k = 0; k < n && kind == LAYER; k++)
                mean += x[i * n + k] / (double)n;
            for (k = 0; k < n; k++)
                variance += (x[i * n + k] - mean) * (x[i * n + k] - mean) / (double)n;
            rstd = 1 / sqrt(variance + 1e-5);
            for (k = 0; k < n; k++) {
                double h = (x[i * n + k] - mean) * rstd;
                CHECK_CLOSE(r.y[i * n + k], h * w[k] + (kind == LAYER ? b[k] : 0), 1.0 / 256);
                dw[k] += dy[i * n + k] * h, db[k] += dy[i * n + k];
                g += dy[i * n + k] * w[k] / (double)n, gh += dy[i * n + k] * w[k] * h / (double)n;
            }
            for (k = 0; k < n; k++) {
                double h = (x[i * n + k] - mean) * rstd;
                CHECK_CLOSE(r.dx[i * n + k], rstd * (dy[i * n + k] * w[k] - (kind == LAYER ? g : 0) - h * gh),
                            1.0 / 64);
            }
        }
        for (k = 0; k < n; k++) {
            CHECK_CLOSE(r.dw[k], dw[k], 1e-5);
            if (kind == LAYER)
                CHECK_CLOSE(r.db[k], db[k], 1e-5);
        }
        free(x), free(w), free(b), free(dy);
        end_results(&r);
    }
}

/*  Of x of 1 and -1, where y = h w + b with h near 1 and b = -1 is what w has beyond 1: bf16 would lose it. */
TEST(weights_are_not_rounded)
{
    static const int widths[] = {8, 24, 28, 1024, 2056};
    const double fine = 1.0 / 4096, h = 1 / sqrt(1 + 1e-5);
    int kind, i;
    SETUP(NULL);
    for (kind = LAYER; kind < NORMS; kind++)
        for (i = 0; i < COUNT_OF(widths); i++) {
            ignis_scope scope = ignis_scope_begin();
            const int64_t n = widths[i];
            ignis_tensor x = ignis_cast(
                ignis_map_shape("1 - 2*((index(0) + index(1)) % 2)", IGNIS_SHAPE(6, n), IGNIS_NO_INPUTS, NULL),
                IGNIS_BF16);
            ignis_tensor none = ignis_scale(x, 0), y,
                         w = ignis_map_shape("1 + 1.0/4096", IGNIS_SHAPE(n), IGNIS_NO_INPUTS, NULL),
                         b = ignis_map_shape("-1.0", IGNIS_SHAPE(n), IGNIS_NO_INPUTS, NULL);
            double *values;
            if (kind == BATCH_EVAL || !has_bias((norm)kind)) {
                CHECK_OK(ignis_scope_end(scope));
                continue;
            }
            y = run_norm((norm)kind, x, none, w, b, 2, NULL);
            values = tensor_values(y);
            CHECK(fabs(values[0] - (h * (1 + fine) - 1)) < 1e-6);
            CHECK(fabs(values[n - 2] - (h * (1 + fine) - 1)) < 1e-6);
            free(values);
            CHECK_OK(ignis_scope_end(scope));
        }
}

/*  Gradients by ignis_grad, which differentiates by other operations: as those of backward, and of the same dtypes. */
TEST(second_derivatives_have_f32_gradients_of_weights)
{
    ignis_grad_desc desc;
    ignis_tensor x, w, b, y, grads[3], inputs[3];
    ignis_scope scope;
    int kind, i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.create_graph = true;
    for (kind = 0; kind < NORMS; kind++) {
        if (kind == ADD_LAYER || kind == ADD_RMS || kind == BATCH_EVAL)
            continue;
        scope = ignis_scope_begin();
        x = tensor_noise(IGNIS_SHAPE(4, 3, 8), IGNIS_BF16, 1, true);
        w = tensor_noise(IGNIS_SHAPE(8), IGNIS_F32, 2, true), b = tensor_noise(IGNIS_SHAPE(8), IGNIS_F32, 3, true);
        inputs[0] = x, inputs[1] = w, inputs[2] = b;
        y = run_norm((norm)kind, x, x, w, b, 2, NULL);
        y = ignis_map_sum("y*y", IGNIS_INPUTS(y));
        CHECK_OK(ignis_grad(&y, 1, inputs, has_bias((norm)kind) ? 3 : 2, grads, &desc));
        CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
        for (i = 0; i < (has_bias((norm)kind) ? 3 : 2); i++) {
            double *a = tensor_values(grads[i]), *c = array_values(ignis_tensor_grad(inputs[i]));
            int k;
            CHECK_INT(tensor_info(grads[i]).dtype, i ? IGNIS_F32 : IGNIS_BF16);
            for (k = 0; k < 8; k++)
                CHECK(fabs(a[k] - c[k]) <= 1.0 / 32 * (1 + fabs(c[k])));
            free(a), free(c);
        }
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(refusals)
{
    ignis_tensor x, x32, w16, w32, w64, b16, b32;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(2, 8), IGNIS_BF16, 1, false),
    x32 = tensor_noise(IGNIS_SHAPE(2, 8), IGNIS_F32, 1, false);
    w16 = tensor_noise(IGNIS_SHAPE(8), IGNIS_BF16, 1, false), w32 = tensor_noise(IGNIS_SHAPE(8), IGNIS_F32, 1, false);
    w64 = tensor_noise(IGNIS_SHAPE(8), IGNIS_F64, 1, false);
    b16 = w16, b32 = w32;
    CHECK_REFUSED(0, ignis_layer_norm(x, w64, b32, 0).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("w is f64, the first input is bf16");
    CHECK_REFUSED(0, ignis_layer_norm(x, w32, b16, 0).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("b is bf16, the weight before it is f32");
    CHECK_REFUSED(0, ignis_layer_norm(x, w16, b32, 0).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_rms_norm(x32, w16, 0).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_batch_norm(x, w32, b16, NULL).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_group_norm(x32, 2, w64, w64, 0).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_OK(ignis_scope_end(scope));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
