// SPDX-License-Identifier: MIT
/*  test_formula.c - formulas: values, gradients, broadcasting, dtypes, arrays, indices, errors; see
    test_formula_table.c, too */
#include "sweep.h"

#include "near.h"

#include "broadcast.h"

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* --- kinks and special values ---------------------------------------------------------------------------------------
   */

/*  The value and the gradients by a and b of a formula, at one place. */
static void at_point(const char *text, double a_value, double b_value, double *found)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor a = tensor_of(&a_value, IGNIS_SHAPE(1), IGNIS_F64, true),
                 b = tensor_of(&b_value, IGNIS_SHAPE(1), IGNIS_F64, true);
    ignis_tensor y = ignis_map(text, IGNIS_INPUTS(a, b));
    found[0] = ignis_item(y);
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(a), &found[1], IGNIS_F64, 1));
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(b), &found[2], IGNIS_F64, 1));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(kinks)
{
    static const struct {
        const char *text;
        double a, b, expected[3];
    } points[] = {
        {"abs(a) + 0*b", 0, 0, {0, 0, 0}},
        {"relu(a) + b", 0, 0, {0, 0, 1}},
        {"max(a, b)", 2, 2, {2, 0.5, 0.5}},
        {"min(a, b)", 2, 2, {2, 0.5, 0.5}},
        {"max(a, b)", NAN, 2, {NAN, 1, 1}},
        {"max(a, b)", 2, NAN, {NAN, 1, 1}},
        {"min(a, b)", NAN, 2, {NAN, 1, 1}},
        {"min(a, b)", 2, NAN, {NAN, 1, 1}},
        {"clamp(a, 0, 1) + b", 1, 0, {1, 1, 1}},
        {"clamp(a, 0, 1) + b", NAN, 0, {NAN, 1, 1}},
        {"softplus(a) + b", 0, 0, {0.6931471805599453, 0.5, 1}},
        {"softplus(a) + b", 800, 0, {800, 1, 1}},
        {"softplus(a) + b", -800, 0, {0, 0, 1}},
        {"a > 0 ? sqrt(a) : b", 0, 3, {3, 0, 1}}, /* the infinite derivative of the other branch does not show */
        {"a > 0 ? log(a) : b", -1, 3, {3, 0, 1}},
        {"sqrt(a)*b", 0, 3, {0, INFINITY, 0}},
        {"pow(a, b)", 0, 2, {0, 0, 0}},
        {"pow(a, b)", 0, 0, {1, 0, 0}},
        {"pow(a, 2) + b", -3, 0, {9, -6, 1}},
        {"pow(a, 1) + b", 0, 0, {0, 1, 1}},
        {"sigmoid(a)*b", -1000, 1, {0, 0, 0}},
        {"sigmoid(a)*b", 1000, 1, {1, 0, 1}},
        {"isnan(a) ? b : a", NAN, 4, {4, 0, 1}},
        {"isnan(a) + isinf(b) + a*0", 1, -INFINITY, {1, 0, 0}},
        {"sign(a) + b", NAN, 1, {NAN, 0, 1}},
        {"abs(a) + b", NAN, 1, {NAN, NAN, 1}},
        {"isnan(a) ? b : abs(a)", NAN, 1, {1, 0, 1}},
        {"pow(max(a, 0), 0.5) + b", -1, 0, {0, 0, 1}}, /* what a choice has made 0 stays 0 */
        {"pow(relu(a), b)", -1, 0.3, {0, 0, 0}},
        {"pow(b, max(a, 0))", -1, -2, {1, 0, 0}},
        {"gelu(a) + b", 1e200, 0, {1e200, 1, 1}}, /* squares and cubes that overflow */
        {"gelu(a) + b", -1e200, 0, {0, 0, 1}},
        {"atan2(a, b)", 1e200, 1e200, {0.7853981633974483, 5e-201, -5e-201}},
        {"atan2(a, b)", 1e-200, 1e-200, {0.7853981633974483, 5e199, -5e199}},
    };
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(points); i++) {
        double found[3];
        at_point(points[i].text, points[i].a, points[i].b, found);
        check_near(points[i].text, "value and gradients", found, points[i].expected, 3, 1e-15);
    }
}

/*  Gradients by x at 0, 1/4 and 4 of formulas that choose: an infinite derivative below a choice, or above it, stays
    out where the choice has not fallen on it. */
TEST(choices)
{
    static const struct {
        const char *text;
        double expected[3];
    } cases[] = {
        {"max(sqrt(x*x), 0.0001)", {0, 1, 1}},
        {"min(1 - sqrt(x*x), 0.9999)", {0, -1, -1}},
        {"relu(sqrt(x*x) - 0.0001)", {0, 1, 1}},
        {"abs(max(sqrt(x), 1))", {0, 0, 0.25}},
        {"relu(log(x))", {0, 0, 0.25}},
        {"clamp(log(x), -1, 2)", {0, 0, 0.25}},
        {"clamp(1/x, 0, 3)", {0, 0, -0.0625}},
        {"x > 0 ? sqrt(x) : 0", {0, 1, 0.25}},
        {"x == 0 ? 0 : x*log2(x)", {0, -0.5573049591110366, 3.4426950408889634}},
        {"x <= 0.25 ? x < 0.1 ? -x : 1/sqrt(x) : log(x)", {-1, -4, 0.25}},
        {"sqrt(relu(x - 3))", {0, 0, 0.5}},
        {"sqrt(max(x - 3, 0))", {0, 0, 0.5}},
        {"2*log(clamp(x - 3, 0, 9)) + 1", {0, 0, 2}},
        {"log(x > 1 ? x : 0)", {0, 0, 0.25}},
        {"1/relu(x - 3)", {0, 0, -1}},
        {"sqrt(abs(x))", {0, 1, 0.25}},
        {"cbrt(min(0, 3 - x))", {0, 0, -1.0 / 3}},
        {"max(0.1, min(sqrt(x), 1))*x", {0.1, 0.75, 1}},
        {"pow(x, 0)", {0, 0, 0}},
        {"pow(sqrt(x), -0) + x", {1, 1, 1}},
        {"pow(sqrt(x), 0.0)", {0, 0, 0}},
        {"log(1 - pow(x, zero))", {0, 0, 0}},
        {"c = x > 1; c ? sqrt(x - 4 + c*1) : c*x", {0, 0, 0.5}},
    };
    static const ignis_dtype dtypes[] = {IGNIS_F64, IGNIS_F32, IGNIS_BF16};
    static const double tolerances[] = {1e-14, 1e-6, 1.0 / 256}; /* a few roundings; to 8 bits, once */
    double values[3] = {0, 0.25, 4}, got[3];
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_of(values, IGNIS_SHAPE(3), dtypes[i % 3], true);
        CHECK_OK(ignis_backward(ignis_map_sum(cases[i].text, IGNIS_INPUTS(x, IGNIS_VALUE(zero, 0))), IGNIS_NO_ARRAY));
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x), got, IGNIS_F64, 3));
        check_near(cases[i].text, ignis_dtype_name(dtypes[i % 3]), got, cases[i].expected, 3, tolerances[i % 3]);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  An infinite or NaN gradient that comes in does not reach what was not chosen: -1 and 0 here, nor 1 of what is
    reduced. */
TEST(choices_with_any_gradient)
{
    static const char *const texts[] = {"relu(x)",       "max(x, 1)",       "min(3, max(x, 1))", "clamp(x, 1, 3)",
                                        "x > 0 ? x : 7", "-abs(max(x, 1))", "silu(relu(x))*2"};
    double values[4] = {-1, 0, 2, 2}, coming[4] = {NAN, INFINITY, 1, 1}, got[4];
    ignis_reduce_desc rows = {{1}, 1, false};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(texts); i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_of(values, IGNIS_SHAPE(4), i % 2 ? IGNIS_F32 : IGNIS_F64, true);
        ignis_tensor g = tensor_of(coming, IGNIS_SHAPE(4), i % 2 ? IGNIS_F32 : IGNIS_F64, false);
        CHECK_OK(ignis_backward(ignis_map(texts[i], IGNIS_INPUTS(x)), ignis_tensor_data(g)));
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x), got, IGNIS_F64, 4));
        CHECK(got[0] == 0 && got[1] == 0 && got[2] == got[3] && isfinite(got[2]) && got[2] != 0);
        CHECK_OK(ignis_scope_end(scope));
    }
    for (i = IGNIS_REDUCE_MAX; i <= IGNIS_REDUCE_LOGSUMEXP; i++) { /* of rows [0, 4] and [0, 0], or [-inf, ...] */
        static const double squares[4] = {0, 4, 0, 0};
        static const double expected[2][4] = {{0, 0.25, 0, 0}, {0, 0.25, 0, 0}};
        const char *text = i == IGNIS_REDUCE_MAX ? "sqrt(x)" : i == IGNIS_REDUCE_MIN ? "-sqrt(x)" : "log(x)";
        bool lse = i == IGNIS_REDUCE_LOGSUMEXP;
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_of(squares, IGNIS_SHAPE(2, 2), IGNIS_F64, true), y;
        if (i > IGNIS_REDUCE_MIN && !lse) {
            CHECK_OK(ignis_scope_end(scope));
            continue;
        }
        y = ignis_map_reduce((ignis_reducer)i, text, IGNIS_INPUTS(x), &rows);
        y = lse ? ignis_map_sum("exp(y)/4", IGNIS_INPUTS(y)) : ignis_map_sum("index(0) == 0 ? y : 0", IGNIS_INPUTS(y));
        CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x), got, IGNIS_F64, 4));
        if (i == IGNIS_REDUCE_MIN)
            got[1] = -got[1];
        check_near(text, "gradient", got, expected[lse], lse ? 4 : 2, 1e-15);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  Rows of log-probabilities, of which some are nothing but minus infinity: their gradient is 0. */
TEST(logsumexp_of_minus_infinity)
{
    static const double values[3][3] = {
        {-INFINITY, -INFINITY, -INFINITY}, {0, -INFINITY, 0}, {-INFINITY, -1e30, -INFINITY}};
    static const double expected[9] = {0, 0, 0, 1, 0, 1, 0, 0, 0};
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_F64, IGNIS_BF16, IGNIS_F16};
    double got[9];
    int i, columns;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(dtypes); i++)
        for (columns = 0; columns < 2; columns++) {
            ignis_reduce_desc desc = {{1}, 1, false};
            ignis_scope scope = ignis_scope_begin();
            double turned[9], back[9];
            int k;
            ignis_tensor x, y;
            for (k = 0; k < 9; k++)
                turned[columns ? k % 3 * 3 + k / 3 : k] = values[k / 3][k % 3];
            desc.dims[0] = columns ? 0 : 1;
            x = tensor_of(turned, IGNIS_SHAPE(3, 3), dtypes[i], true);
            y = ignis_map_reduce(IGNIS_REDUCE_LOGSUMEXP, "x", IGNIS_INPUTS(x), &desc);
            CHECK_OK(ignis_backward(ignis_map_sum("exp(y)", IGNIS_INPUTS(y)), IGNIS_NO_ARRAY));
            CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x), back, IGNIS_F64, 9));
            for (k = 0; k < 9; k++)
                got[k] = back[columns ? k % 3 * 3 + k / 3 : k];
            check_near("logsumexp", ignis_dtype_name(dtypes[i]), got, expected, 9, 1.0 / 128);
            CHECK_OK(ignis_scope_end(scope));
        }
}

/*  What all elements have in common has no part in the gradient, however large: along rows (0), columns (1), and all of
    them (2), also in parts. */
static void check_logsumexp_offset(ignis_dtype dtype, double offset, int64_t rows, int64_t n, int dims)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_reduce_desc desc = {{1}, 1, false};
    int64_t count = rows * n, groups = dims == 0 ? rows : dims == 1 ? n : 1, k;
    double *x = (double *)calloc((size_t)count, sizeof *x), *most = (double *)calloc((size_t)groups, sizeof *most),
           *sum = (double *)calloc((size_t)groups, sizeof *sum), *xs, *got;
    int64_t *group = (int64_t *)calloc((size_t)count, sizeof *group);
    ignis_tensor in, y;
    for (k = 0; k < count; k++) {
        group[k] = dims == 0 ? k / n : dims == 1 ? k % n : 0;
        x[k] = offset + 2 * noise(3, k);
    }
    in = tensor_of(x, IGNIS_SHAPE(rows, n), dtype, true);
    xs = tensor_values(in);
    for (k = 0; k < groups; k++)
        most[k] = -INFINITY;
    for (k = 0; k < count; k++)
        most[group[k]] = xs[k] > most[group[k]] ? xs[k] : most[group[k]];
    for (k = 0; k < count; k++)
        sum[group[k]] += x[k] = exp(xs[k] - most[group[k]]);
    for (k = 0; k < count; k++)
        x[k] /= sum[group[k]];
    desc.dims[0] = dims == 0;
    y = ignis_map_reduce(IGNIS_REDUCE_LOGSUMEXP, "in", IGNIS_INPUTS(in), dims == 2 ? NULL : &desc);
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    got = array_values(ignis_tensor_grad(in));
    check_each(__LINE__, "gradient of logsumexp", dtype, n, got, x, count,
               dtype == IGNIS_F64   ? 1e-12
               : dtype == IGNIS_F32 ? 2e-5
               : dtype == IGNIS_F16 ? 2e-3
                                    : 1e-2,
               1e-4);
    free(x), free(most), free(sum), free(xs), free(got), free(group);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(logsumexp_of_an_offset)
{
    static const double offsets[] = {100, -1e4, 1e8, -1e20};
    ignis_dtype dtype;
    int o, dims;
    SETUP(NULL);
    for (dtype = IGNIS_F16; dtype <= IGNIS_F64; dtype = (ignis_dtype)(dtype + 1))
        for (o = 0; o < (dtype == IGNIS_F16 ? 2 : 4); o++)
            for (dims = 0; dims < 3; dims++) {
                check_logsumexp_offset(dtype, offsets[o], 3, 4, dims);
                check_logsumexp_offset(dtype, offsets[o], 2, 9001, dims);
            }
}

/*  The short functions of 16-bit results: one rounding to f16, 2^-11, and their own error, below 2^-14. */
TEST(short_functions)
{
    enum { MANY = 3000 };
    static const struct {
        const char *text;
        double (*fn)(double);
    } functions[] = {{"log(x)", log},   {"log1p(x)", log1p}, {"exp(x)", exp},
                     {"tanh(x)", tanh}, {"erf(x)", erf},     {"sigmoid(x)", sigmoid}};
    static double values[MANY], got[MANY];
    ignis_array x, y;
    int f, i;
    SETUP(NULL);
    for (i = 0; i < MANY; i++) /* 0.001 to 9, and closely around 1 */
        values[i] = i < 2000 ? 0.001 * pow(9000, i / 2000.0) : 1 + (i - 2500) / 2048.0;
    x = make(IGNIS_SHAPE(MANY), IGNIS_F16);
    y = make(IGNIS_SHAPE(MANY), IGNIS_F16);
    CHECK_OK(ignis_array_from_host(x, values, IGNIS_F64, MANY));
    CHECK_OK(ignis_array_to_host(x, values, IGNIS_F64, MANY));
    for (f = 0; f < COUNT_OF(functions); f++) {
        CHECK_OK(ignis_array_map(y, functions[f].text, IGNIS_ARRAYS(x)));
        CHECK_OK(ignis_array_to_host(y, got, IGNIS_F64, MANY));
        for (i = 0; i < MANY; i++) {
            double expected = functions[f].fn(values[i]);
            if (fabs(got[i] - expected) <= (1.0 / 2048 + 1.0 / 16384) * fabs(expected))
                continue;
            printf("%s of %.17g is %.17g, expected %.17g\n", functions[f].text, values[i], got[i], expected);
            CHECK(!"exact enough");
            break;
        }
    }
    drop(x), drop(y);
}

/* --- broadcasting ---------------------------------------------------------------------------------------------------
   */

static const struct {
    ignis_shape a, b, c, result;
} spreads[] = {
    {{1, {7}}, {1, {7}}, {1, {1}}, {1, {7}}},
    {{1, {1}}, {1, {1}}, {1, {1}}, {1, {1}}},
    {{2, {5, 8}}, {1, {8}}, {2, {5, 1}}, {2, {5, 8}}},
    {{2, {5, 7}}, {1, {7}}, {2, {5, 1}}, {2, {5, 7}}},
    {{2, {5, 1}}, {2, {1, 16}}, {1, {1}}, {2, {5, 16}}},
    {{3, {4, 1, 16}}, {3, {1, 3, 1}}, {2, {3, 16}}, {3, {4, 3, 16}}},
    {{3, {2, 3, 5}}, {3, {2, 1, 5}}, {3, {1, 3, 1}}, {3, {2, 3, 5}}},
    {{4, {2, 1, 3, 1}}, {4, {1, 5, 1, 8}}, {2, {3, 8}}, {4, {2, 5, 3, 8}}},
    {{8, {2, 1, 2, 1, 2, 1, 2, 1}},
     {8, {1, 3, 1, 2, 1, 2, 1, 3}},
     {8, {2, 3, 1, 1, 2, 2, 1, 1}},
     {8, {2, 3, 2, 2, 2, 2, 2, 3}}},
    {{2, {0, 5}}, {1, {5}}, {2, {1, 1}}, {2, {0, 5}}},
    {{2, {3, 1}}, {2, {1, 0}}, {1, {1}}, {2, {3, 0}}},
    {{2, {64, 33}}, {2, {64, 33}}, {1, {33}}, {2, {64, 33}}},
};

TEST(broadcasting)
{
    static double in[3][MAX_NUMEL], expected[MAX_NUMEL], grads[3][MAX_NUMEL], got[MAX_NUMEL], weights[MAX_NUMEL];
    static const ignis_dtype dtypes[] = {IGNIS_F64, IGNIS_F32, IGNIS_BF16};
    int s, t, k;
    int64_t i;
    SETUP(NULL);
    for (s = 0; s < COUNT_OF(spreads); s++)
        for (t = 0; t < COUNT_OF(dtypes); t++) {
            ignis_shape shapes[3];
            ignis_shape result = spreads[s].result;
            int64_t numel = shape_numel(result);
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor a, b, c, y, weight;
            double tolerance = dtypes[t] == IGNIS_F64 ? 1e-13 : dtypes[t] == IGNIS_F32 ? 1e-5 : 1.0 / 128;
            char what[100];
            shapes[0] = spreads[s].a;
            shapes[1] = spreads[s].b;
            shapes[2] = spreads[s].c;
            memset(grads, 0, sizeof grads);
            for (k = 0; k < 3; k++)
                for (i = 0; i < shape_numel(shapes[k]); i++)
                    in[k][i] = (double)(1 + (13 * i + 5 * k) % 31) / 16;
            for (i = 0; i < numel; i++) {
                int64_t at[3];
                for (k = 0; k < 3; k++)
                    at[k] = offset_of(result, shapes[k], i);
                weights[i] = (double)(1 + i % 3);
                expected[i] = in[0][at[0]] * in[1][at[1]] + in[2][at[2]];
                grads[0][at[0]] += in[1][at[1]] * weights[i];
                grads[1][at[1]] += in[0][at[0]] * weights[i];
                grads[2][at[2]] += weights[i];
            }
            a = tensor_of(in[0], shapes[0], dtypes[t], true);
            b = tensor_of(in[1], shapes[1], dtypes[t], true);
            c = tensor_of(in[2], shapes[2], dtypes[t], true);
            y = ignis_map("a*b + c", IGNIS_INPUTS(a, b, c));
            CHECK_SHAPE(ignis_tensor_data(y), result);
            CHECK_OK(ignis_tensor_to_host(y, got, IGNIS_F64, numel));
            snprintf(what, sizeof what, "spread %d in %s", s, ignis_dtype_name(dtypes[t]));
            check_near(what, "value", got, expected, numel, tolerance);
            weight = tensor_of(weights, result, dtypes[t], false);
            CHECK_OK(ignis_backward(y, ignis_tensor_data(weight)));
            for (k = 0; k < 3; k++) {
                CHECK_OK(ignis_array_to_host(ignis_tensor_grad(k == 0   ? a
                                                               : k == 1 ? b
                                                                        : c),
                                             got, IGNIS_F64, shape_numel(shapes[k])));
                check_near(what, "gradient", got, grads[k], shape_numel(shapes[k]), tolerance);
            }
            CHECK_OK(ignis_scope_end(scope));
        }
}

/*  Views that begin anywhere have packs of fewer elements. */
TEST(unaligned)
{
    ignis_array whole, a, b;
    double values[64];
    int start, i;
    SETUP(NULL);
    whole = make_counting(IGNIS_SHAPE(64), 0);
    a = ignis_array_cast(whole, IGNIS_F32);
    b = ignis_array_cast(whole, IGNIS_BF16);
    for (start = 0; start < 9; start++) {
        ignis_array x = ignis_array_slice(a, 0, start, 40), y = ignis_array_slice(b, 0, 9 - start, 40),
                    z = make(IGNIS_SHAPE(40), IGNIS_F64);
        CHECK_OK(ignis_array_map(z, "100*x + y", IGNIS_ARRAYS(x, y)));
        CHECK_OK(ignis_array_to_host(z, values, IGNIS_F64, 40));
        for (i = 0; i < 40; i++)
            CHECK(values[i] == 100 * (start + i) + 9 - start + i);
        drop(x), drop(y), drop(z);
    }
    drop(whole), drop(a), drop(b);
}

/* --- dtypes ------------------------------------------------------------------------------------------------------- */

TEST(result_dtypes)
{
    static const struct {
        ignis_dtype a, b;
        const char *text;
        ignis_dtype result;
    } cases[] = {
        {IGNIS_F16, IGNIS_F16, "a + b", IGNIS_F16},         {IGNIS_F16, IGNIS_BF16, "a + b", IGNIS_F32},
        {IGNIS_BF16, IGNIS_F32, "a + b", IGNIS_F32},        {IGNIS_F32, IGNIS_F64, "a + b", IGNIS_F64},
        {IGNIS_BF16, IGNIS_U8, "a + b", IGNIS_BF16},        {IGNIS_I64, IGNIS_F16, "a + b", IGNIS_F16},
        {IGNIS_I32, IGNIS_I32, "a + b", IGNIS_I64},         {IGNIS_U8, IGNIS_I64, "a * b", IGNIS_I64},
        {IGNIS_I32, IGNIS_I32, "a / b", IGNIS_F32},         {IGNIS_I32, IGNIS_U8, "floor(a / b)", IGNIS_I64},
        {IGNIS_I32, IGNIS_F32, "floor(a / b)", IGNIS_F32},  {IGNIS_I32, IGNIS_I32, "round(a)", IGNIS_I64},
        {IGNIS_I32, IGNIS_I32, "pow(a, 2)", IGNIS_I64},     {IGNIS_I32, IGNIS_I32, "pow(a, -2)", IGNIS_F32},
        {IGNIS_I32, IGNIS_I32, "pow(10, 20)*a", IGNIS_F32}, {IGNIS_U8, IGNIS_I32, "a & b", IGNIS_I64},
        {IGNIS_F32, IGNIS_F32, "a > b", IGNIS_U8},          {IGNIS_I32, IGNIS_I32, "a == b", IGNIS_U8},
        {IGNIS_U8, IGNIS_U8, "!a && b", IGNIS_U8},          {IGNIS_F32, IGNIS_F32, "(a > b)*2", IGNIS_I64},
        {IGNIS_F16, IGNIS_F16, "a > b ? a : 0", IGNIS_F16},
    };
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(cases); i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor a = tensor_counting(IGNIS_SHAPE(5), cases[i].a, 1, false),
                     b = tensor_counting(IGNIS_SHAPE(5), cases[i].b, 1, false);
        CHECK_INT(tensor_info(ignis_map(cases[i].text, IGNIS_INPUTS(a, b))).dtype, cases[i].result);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  Every dtype as input and as result, through a formula that keeps values; with 21 elements there are whole packs and
    a rest in each. */
TEST(all_dtypes)
{
    static const double values[21] = {0,  1,  2,  3,  4,  5,  6,  7,   8,  10, 12,
                                      14, 16, 20, 24, 28, 32, 96, 112, 80, 128}; /* e5m2 has them */
    double got[21];
    ignis_dtype from, to;
    int i;
    SETUP(NULL);
    for (from = IGNIS_F16; from <= IGNIS_F8_E5M2; from = (ignis_dtype)(from + 1))
        for (to = IGNIS_F16; to <= IGNIS_F8_E5M2; to = (ignis_dtype)(to + 1)) {
            ignis_array x = make(IGNIS_SHAPE(21), from), y = make(IGNIS_SHAPE(3, 7), to);
            CHECK_OK(ignis_array_from_host(x, values, IGNIS_F64, 21));
            CHECK_OK(ignis_array_map(y, "x + zero", IGNIS_ARRAYS(x, IGNIS_ARRAY_VALUE(zero, 0))));
            CHECK_OK(ignis_array_to_host(y, got, IGNIS_F64, 21));
            for (i = 0; i < 21; i++)
                CHECK(got[i] == values[i]);
            drop(x), drop(y);
        }
}

/*  A result of few bits is rounded once, not by way of f32. */
TEST(rounded_once)
{
    static const ignis_dtype from[] = {IGNIS_F64, IGNIS_I64},
                             to[] = {IGNIS_BF16, IGNIS_F16, IGNIS_F8_E4M3, IGNIS_F8_E5M2};
    static const int bits[] = {8, 11, 4, 3};
    int d, t, i;
    SETUP(NULL);
    for (d = 0; d < 2; d++)
        for (t = 0; t < COUNT_OF(to); t++) {
            double values[3], got[3], cast[3];
            ignis_array x = make(IGNIS_SHAPE(3), from[d]), y = make(IGNIS_SHAPE(3), to[t]), z;
            for (i = 0; i < 3; i++) /* a tie, and next to it, at a distance that f32 does not see */
                values[i] =
                    d == 0 ? ldexp(ldexp(1, bits[t]) + 1, -bits[t]) + (i - 1) * ldexp(1, -40) : ldexp(1, 30) + 0 * i;
            if (d == 1 && t == 0) /* an f16 ends before f32 has lost a bit of an integer */
                for (i = 0; i < 3; i++)
                    values[i] = ldexp(257, 22) + i - 1;
            CHECK_OK(ignis_array_from_host(x, values, IGNIS_F64, 3));
            CHECK_OK(ignis_array_map(y, "x", IGNIS_ARRAYS(x)));
            z = ignis_array_cast(x, to[t]);
            CHECK_OK(ignis_array_to_host(y, got, IGNIS_F64, 3));
            CHECK_OK(ignis_array_to_host(z, cast, IGNIS_F64, 3));
            CHECK(memcmp(got, cast, sizeof got) == 0);
            CHECK((d == 1 && t > 0) || (got[0] == got[1] && got[1] < got[2]));
            drop(x), drop(y), drop(z);
        }
}

/*  Some formulas as one, of which each gives a result. */
static void map_texts(int count, const char *const *texts, const ignis_array *results, ignis_array_inputs inputs)
{
    char text[2000];
    int i, length = 0;
    for (i = 0; i < count; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "%s%s", i ? ", " : "", texts[i]);
    CHECK_OK(ignis_array_map_many(count, results, text, inputs));
}

TEST(integers)
{
    static const struct {
        const char *text;
        int64_t expected;
    } cases[] = {
        {"a + b", 12},
        {"a - b", 2},
        {"a * b", 35},
        {"a % b", 2},
        {"a % 0", 0},
        {"a % -1", 0},
        {"-a % b", -2},
        {"-a", -7},
        {"abs(-a)", 7},
        {"sign(-a)", -1},
        {"max(a, b)", 7},
        {"min(a, b)", 5},
        {"clamp(a, 1, 3)", 3},
        {"a > b ? a : b", 7},
        {"relu(-a)", 0},
        {"a / b * b", 7},
        {"(a > b) + (a == 7)", 2},
        {"a*1000000007*1000000007", 7000000098000000343},
        {"9223372036854775807 + a - a", INT64_MAX},
        {"pow(a, 2)", 49},
        {"square(b)", 25},
        {"!a", 0},
        {"7.9*(a > 0)", 7},
        {"1e30*a", INT64_MAX},
        {"-1e30*a", INT64_MIN},
        {"nan*a", 0},
        {"a & b", 5},
        {"a & ~b", 2},
        {"a ^ b", 2},
        {"8 | a", 15},
        {"~a", -8},
        {"~(a > b)", -2},
        {"a << b", 224},
        {"-a >> 1", -4},
        {"a << 64", 0},
        {"a << -1", 0},
        {"-a >> 99", -1},
        {"a >> -1", 0},
        {"a << 63", INT64_MIN},
        {"1 | 6 ^ 3 & 2", 5}, /* as in C: & before ^ before |, == before all, and + before shifts */
        {"a & b == 5", 1},
        {"1 << a - b + 1", 8},
        {"a >> 1 < b << 1", 1},
        {"0x7F", 127},
        {"0XfF + 0x0", 255},
        {"0xFFFFFFFFFFFFFFFF", -1},
        {"0x8000000000000000 - 1", INT64_MAX},
        {"-0x8000000000000000", INT64_MIN},
        {"(a*0x9E3779B97F4A7C15) >> 60 & 15", 5},
        {"1.5f*a", 10},
        {"2.F + 1e1F + .5f + a", 19},
    };
    ignis_array a, b, y[IGNIS_MAX_INPUTS];
    int64_t sevens[3] = {7, 7, 7}, fives[3] = {5, 5, 5}, got[3];
    int i, k, count;
    SETUP(NULL);
    a = make(IGNIS_SHAPE(3), IGNIS_I64);
    b = make(IGNIS_SHAPE(3), IGNIS_I32);
    CHECK_OK(ignis_array_from_host(a, sevens, IGNIS_I64, 3));
    CHECK_OK(ignis_array_from_host(b, fives, IGNIS_I64, 3));
    for (k = 0; k < IGNIS_MAX_INPUTS; k++)
        y[k] = make(IGNIS_SHAPE(3), IGNIS_I64);
    for (i = 0; i < COUNT_OF(cases); i += IGNIS_MAX_INPUTS) {
        const char *texts[IGNIS_MAX_INPUTS];
        for (count = 0; count < IGNIS_MAX_INPUTS && i + count < COUNT_OF(cases); count++)
            texts[count] = cases[i + count].text;
        map_texts(count, texts, y, IGNIS_ARRAYS(a, b));
        for (k = 0; k < count; k++) {
            CHECK_OK(ignis_array_to_host(y[k], got, IGNIS_I64, 3));
            test__check_int(__FILE__, __LINE__, texts[k], got[2], cases[i + k].expected);
        }
    }
    for (k = 0; k < IGNIS_MAX_INPUTS; k++)
        drop(y[k]);
    drop(a), drop(b);
}

/*  Integers beyond 2^24, which f32 rounds: quotients that are made whole, powers, and what floor and its like make of
    integers. */
TEST(integers_stay_whole)
{
    static const struct {
        const char *text;
        int64_t a, b, expected;
    } cases[] = {
        {"floor(a/b)", 16777217, 1, 16777217},
        {"floor(a/b)", 100000007, 3, 33333335},
        {"floor(a/b)", -100000007, 3, -33333336},
        {"floor(a/b)", 100000007, -3, -33333336},
        {"floor(a/b)", -100000007, -3, 33333335},
        {"floor(a/b)", 9007199254740993, 1, 9007199254740993},
        {"floor(a/b)", INT64_MAX, 2, INT64_MAX / 2},
        {"floor(a/b)", INT64_MIN, -1, INT64_MAX},
        {"floor(a/b)", -6, 3, -2},
        {"floor(a/b)", 5, 0, INT64_MAX},
        {"floor(a/b)", -5, 0, INT64_MIN},
        {"floor(a/b)", 0, 0, 0},
        {"ceil(a/b)", 100000007, 3, 33333336},
        {"ceil(a/b)", -100000007, 3, -33333335},
        {"ceil(a/b)", 6, -3, -2},
        {"ceil(a/b)", 5, 0, INT64_MAX},
        {"trunc(a/b)", -100000007, 3, -33333335},
        {"trunc(a/b)", INT64_MIN, 1, INT64_MIN},
        {"round(a/b)", 50000001, 2, 25000000}, /* to the even neighbour */
        {"round(a/b)", 50000003, 2, 25000002},
        {"round(a/b)", -50000001, 2, -25000000},
        {"round(a/b)", -50000003, 2, -25000002},
        {"round(a/b)", 100000007, 3, 33333336},
        {"round(a/b)", -100000007, -3, 33333336},
        {"round(a/b)", INT64_MAX, INT64_MIN, -1},
        {"round(a/b)", 5, 0, INT64_MAX},
        {"a - b*floor(a/b)", 100000007, 3, 2},
        {"mod(a, b)", 9007199254740993, 10, 3},
        {"mod(a, b)", -9007199254740993, 10, 7},
        {"mod(a, b)", 9007199254740993, -10, -7},
        {"mod(a, b)", -9007199254740993, -10, -3},
        {"mod(a, b)", -20, 10, 0},
        {"mod(a, b)", INT64_MIN, -1, 0},
        {"mod(a, b)", INT64_MIN, INT64_MAX, INT64_MAX - 1},
        {"mod(a, b)", 7, 0, 0},
        {"a % b", -9007199254740993, 10, -3},
        {"a % b", 9007199254740993, -10, 3},
        {"a % b", 7, 0, 0},
        {"floor(a/7)*7 + a % 7", 1000000000000000003, 1, 1000000000000000003},
        {"floor(a) + ceil(a) + round(a) + trunc(a)", 16777217, 1, 67108868},
        {"pow(a, 2)", 16777217, 1, 281475010265089},
        {"pow(a, 3) + pow(a, 1) + pow(b, 0)", -1000003, 1, -1000009000028000029},
        {"pow(a, 0)", 16777217, 1, 1},
        {"index(0) - 16777217 + a == index(0)", 16777217, 1, 1},
    };
    enum { COUNT = COUNT_OF(cases) };
    ignis_array a, b, y[IGNIS_MAX_INPUTS];
    int64_t values[2][COUNT], got[COUNT];
    int i, k, count;
    SETUP(NULL);
    a = make(IGNIS_SHAPE(COUNT), IGNIS_I64);
    b = make(IGNIS_SHAPE(COUNT), IGNIS_I64);
    for (i = 0; i < COUNT; i++) {
        values[0][i] = cases[i].a;
        values[1][i] = cases[i].b;
    }
    CHECK_OK(ignis_array_from_host(a, values[0], IGNIS_I64, COUNT));
    CHECK_OK(ignis_array_from_host(b, values[1], IGNIS_I64, COUNT));
    for (k = 0; k < IGNIS_MAX_INPUTS; k++)
        y[k] = make(IGNIS_SHAPE(COUNT), IGNIS_I64);
    for (i = 0; i < COUNT; i += IGNIS_MAX_INPUTS) { /* each formula is of all numbers; its own are checked */
        const char *texts[IGNIS_MAX_INPUTS];
        for (count = 0; count < IGNIS_MAX_INPUTS && i + count < COUNT; count++)
            texts[count] = cases[i + count].text;
        map_texts(count, texts, y, IGNIS_ARRAYS(a, b));
        for (k = 0; k < count; k++) {
            CHECK_OK(ignis_array_to_host(y[k], got, IGNIS_I64, COUNT));
            test__check_int(__FILE__, __LINE__, texts[k], got[i + k], cases[i + k].expected);
        }
    }
    for (k = 0; k < IGNIS_MAX_INPUTS; k++)
        drop(y[k]);
    drop(a), drop(b);
}

/*  Integers are compared exactly with values and arrays of numbers. */
TEST(comparisons_of_integers)
{
    static const struct {
        const char *text;
        int expected; /* bits of the elements */
    } cases[] = {
        {"a < n", 1},
        {"n == a", 2},
        {"n != a", 13},
        {"a >= n && a <= n", 2},
        {"index(0) + 16777216 > n", 12},
        {"(a == n ? x : 0) > 0", 2},
        {"a == x", 13},
        {"a < n ? n > 5 : x > n*2", 1},
    };
    enum { COUNT = COUNT_OF(cases) };
    int64_t values[4] = {16777216, 16777217, 16777218, 16777220};
    const char *texts[COUNT];
    ignis_array a, x, y[COUNT];
    double got[4];
    int i, k;
    SETUP(NULL);
    a = make(IGNIS_SHAPE(4), IGNIS_I64);
    x = make(IGNIS_SHAPE(4), IGNIS_F32);
    CHECK_OK(ignis_array_from_host(a, values, IGNIS_I64, 4));
    CHECK_OK(ignis_array_from_host(x, values, IGNIS_I64, 4));
    for (i = 0; i < COUNT; i++) {
        texts[i] = cases[i].text;
        y[i] = make(IGNIS_SHAPE(4), IGNIS_F32);
    }
    map_texts(COUNT, texts, y, IGNIS_ARRAYS(a, x, IGNIS_ARRAY_VALUE(n, 16777217)));
    for (i = 0; i < COUNT; i++) {
        CHECK_OK(ignis_array_to_host(y[i], got, IGNIS_F64, 4));
        for (k = 0; k < 4; k++)
            if (got[k] != (cases[i].expected >> k & 1))
                test__fail(__FILE__, __LINE__, texts[i]);
        drop(y[i]);
    }
    drop(a), drop(x);
    { /* in gradients, too */
        double ones[3] = {1, 2, 3}, grad[3];
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor t = tensor_of(ones, IGNIS_SHAPE(3), IGNIS_F32, true);
        CHECK_OK(ignis_backward(ignis_map_sum("index(0) < n ? t*t : 0", IGNIS_INPUTS(t, IGNIS_VALUE(n, 2))),
                                IGNIS_NO_ARRAY));
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(t), grad, IGNIS_F64, 3));
        CHECK(grad[0] == 2 && grad[1] == 4 && grad[2] == 0);
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(mixed_gradients)
{
    double a_values[6] = {1, 2, 3, 4, 5, 6}, grads[6];
    ignis_scope scope;
    ignis_tensor a, b, m, y;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = tensor_of(a_values, IGNIS_SHAPE(2, 3), IGNIS_BF16, true);
    b = tensor_of(a_values, IGNIS_SHAPE(3), IGNIS_F32, true);
    m = tensor_counting(IGNIS_SHAPE(2, 1), IGNIS_U8, 1, false);
    y = ignis_map("m == 1 ? a*b : k*a", IGNIS_INPUTS(a, b, m, IGNIS_VALUE(k, 10)));
    CHECK_INT(tensor_info(y).dtype, IGNIS_F32);
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    CHECK_INT(info_of(ignis_tensor_grad(a)).dtype, IGNIS_BF16);
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(a), grads, IGNIS_F64, 6));
    for (i = 0; i < 6; i++)
        CHECK(grads[i] == (i < 3 ? i + 1 : 10));
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(b), grads, IGNIS_F64, 3));
    for (i = 0; i < 3; i++)
        CHECK(grads[i] == i + 1);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- inputs ------------------------------------------------------------------------------------------------------- */

typedef struct layer {
    ignis_tensor weight;
} layer;

TEST(names_and_values)
{
    layer l;
    ignis_scope scope;
    ignis_tensor x, first, second;
    SETUP(NULL);
    scope = ignis_scope_begin();
    l.weight = tensor_counting(IGNIS_SHAPE(1), IGNIS_F32, 3, false);
    x = tensor_counting(IGNIS_SHAPE(1), IGNIS_F32, 2, false);
    first = ignis_map("x*w + half", IGNIS_INPUTS(x, IGNIS_NAMED(w, l.weight), IGNIS_VALUE(half, 1.0 / 2)));
    second = ignis_map(
        "a*b", IGNIS_INPUTS(IGNIS_NAMED(a, ignis_map("x + 1", IGNIS_INPUTS(x))), IGNIS_VALUE(b, ignis_item(x))));
    CHECK(ignis_item(first) == 6.5);
    CHECK(ignis_item(second) == 6);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Values change without another kernel; equal formulas share one. */
TEST(values_are_parameters)
{
    ignis_tensor x, y;
    ignis_scope scope;
    double got[3];
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    for (i = 0; i < 200; i++) {
        y = ignis_map("x*k", IGNIS_INPUTS(x, IGNIS_VALUE(k, i)));
        CHECK_OK(ignis_tensor_to_host(y, got, IGNIS_F64, 3));
        CHECK(got[2] == 3 * i);
    }
    CHECK_OK(ignis_scope_end(scope));
}

/* --- plain arrays ------------------------------------------------------------------------------------------------- */

TEST(arrays)
{
    ignis_array x, y, row, mask;
    double got[40];
    uint8_t bits[40];
    int i;
    SETUP(NULL);
    x = make(IGNIS_SHAPE(5, 8), IGNIS_F64);
    y = make(IGNIS_SHAPE(5, 8), IGNIS_F64);
    row = make(IGNIS_SHAPE(8), IGNIS_F32);
    mask = make(IGNIS_SHAPE(5, 8), IGNIS_U8);
    CHECK_OK(ignis_array_fill(x, 3));
    CHECK_OK(ignis_array_fill(y, 4));
    CHECK_OK(ignis_array_fill(row, 0.5));
    CHECK_OK(ignis_array_map(y, "a*x + y", IGNIS_ARRAYS(x, y, IGNIS_ARRAY_VALUE(a, 2)))); /* in place */
    CHECK_OK(ignis_array_map(x, "x + row", IGNIS_ARRAYS(x, row)));
    CHECK_OK(ignis_array_map(mask, "x < y && row", IGNIS_ARRAYS(x, y, row)));
    CHECK_OK(ignis_array_to_host(y, got, IGNIS_F64, 40));
    CHECK_OK(ignis_array_to_host(mask, bits, IGNIS_U8, 40));
    for (i = 0; i < 40; i++)
        CHECK(got[i] == 10 && bits[i] == 1);
    CHECK_OK(ignis_array_to_host(x, got, IGNIS_F64, 40));
    CHECK(got[0] == 3.5 && got[39] == 3.5);
    CHECK_STATUS(ignis_array_map(row, "x + row", IGNIS_ARRAYS(x, row)), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    drop(x), drop(y), drop(row), drop(mask);
}

TEST(arrays_overlap)
{
    ignis_array whole, part, other, one, wide, narrow;
    ignis_array_desc desc;
    SETUP(NULL);
    whole = make(IGNIS_SHAPE(16), IGNIS_F32);
    CHECK_OK(ignis_array_fill(whole, 1));
    part = ignis_array_slice(whole, 0, 0, 8);
    other = ignis_array_slice(whole, 0, 4, 8);
    CHECK_STATUS(ignis_array_map(part, "x", IGNIS_ARRAYS(IGNIS_NAMED(x, other))), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_OVERLAP);
    one = ignis_array_slice(whole, 0, 0, 1);
    CHECK_STATUS(ignis_array_map(part, "x + one", IGNIS_ARRAYS(IGNIS_NAMED(x, part), one)), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_OVERLAP);
    wide = make(IGNIS_SHAPE(8), IGNIS_F32);
    CHECK_STATUS(ignis_array_map(part, "x + wide", IGNIS_ARRAYS(IGNIS_NAMED(x, part), wide)), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_OK(ignis_array_map(part, "x + 1", IGNIS_ARRAYS(IGNIS_NAMED(x, part))));
    CHECK_STATUS(ignis_array_reduce(part, IGNIS_REDUCE_SUM, "x", IGNIS_ARRAYS(IGNIS_NAMED(x, part))),
                 IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OVERLAP);
    CHECK_MESSAGE_HAS("which is read");
    CHECK_STATUS(ignis_array_reduce(part, IGNIS_REDUCE_COUNT, "x", IGNIS_ARRAYS(IGNIS_NAMED(x, whole))),
                 IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    drop(part), drop(other), drop(one), drop(whole), drop(wide);
    narrow = make(IGNIS_SHAPE(4, 4), IGNIS_F16);
    CHECK_OK(ignis_array_fill(narrow, 0));
    desc = desc_of(IGNIS_SHAPE(4, 1), IGNIS_F64); /* the same 32 bytes, in wider elements */
    desc.ptr = ignis_array_device_ptr(narrow);
    wide = ignis_array_create(&desc);
    CHECK_STATUS(ignis_array_map(narrow, "x + wide", IGNIS_ARRAYS(IGNIS_NAMED(x, narrow), wide)), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_OVERLAP);
    CHECK_MESSAGE_HAS("is broadcast to the shape of the result, which uses the same memory");
    drop(wide), drop(narrow);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

TEST(refused_formulas)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a ^ b", "column 3 of 'a ^ b': '^' takes integers, and one here is a floating number; pow(a, b) is a power"},
        {"a + a ** 2", "column 7 of 'a + a ** 2': '**' is no part of a formula; use pow(a, b)"},
        {"1 << a", "column 3 of '1 << a': '<<' takes integers"},
        {"a >> 1", "column 3 of 'a >> 1': '>>' takes integers"},
        {"1 | a", "column 3 of '1 | a': '|' takes integers"},
        {"3 + ~a", "column 5 of '3 + ~a': '~' takes integers"},
        {"5/2 & 1", "column 5 of '5/2 & 1': '&' takes integers"},
        {"1 <<= 2", "column 5"},
        {"a &", "column 4"},
        {"~", "column 2"},
        {"0x + a", "column 2 of '0x + a': 'x' does not belong to a number"},
        {"0xfg", "column 4 of '0xfg': 'g' does not belong to a number"},
        {"0x12345678123456780", "column 19 of '0x12345678123456780': '0' does not belong to a number"},
        {"1f + a", "column 2 of '1f + a': 'f' does not belong to a number"},
        {"1.5ff + a", "column 5 of '1.5ff + a': 'f' does not belong to a number"},
        {"@a", "column 1 of '@a': '@' is no part of a formula"},
        {"a + q", "column 5 of 'a + q': 'q' is not known; the names are a, b"},
        {"foo(a)", "column 1 of 'foo(a)': there is no function 'foo'"},
        {"a +", "column 4 of 'a +': the end where a value is expected"},
        {"(a", "column 3 of '(a': ')' is expected before the end"},
        {"while (1) a", "column 1"},
        {"pow(a)", "column 1 of 'pow(a)': pow takes 2 values, not 1"},
        {"exp(a, b)", "exp takes 1 value, not 2"},
        {"exp()", "exp takes 1 value, not 0"},
        {"clamp(a, b, a, b)", "clamp takes 3 values, not 4"},
        {"a[3]", "column 2"},
        {"a = ", "column 5"},
        {"a = b", "column 6 of 'a = b': ';' is expected before the end"},
        {"p->x", "column 1 of 'p->x': 'p' is not known"},
        {"#include <x>", "column 1"},
        {"a; b", "column 4 of 'a; b': 'b' is not expected here"},
        {"1 2", "column 3"},
        {"a ? b", "column 6 of 'a ? b': ':' is expected before the end"},
        {"a & b", "column 3 of 'a & b': '&' takes integers, and one here is a floating number; && and || are those of "
                  "truth values"},
        {"a, b", "'a, b' has 2 results, not 1"},
        {"", "column 1 of '': the end where a value is expected"},
        {"2a", "column 2 of '2a': 'a' does not belong to a number"},
        {"1.2.3", "column 4"},
        {"a \xC3\xA9", "column 3"},
        {"\"a\"", "column 1"},
        {"a + 'x'", "column 5"},
        {"n12 + a", "'n12' is not known"},
        {"neg(a)", "there is no function 'neg'"},
        {"b + sum(a)", "column 5 of 'b + sum(a)': there is no function 'sum'; ignis_map_sum and ignis_map_reduce"},
        {"where(a > 0, a, b)", "there is no function 'where'; write condition ? a : b"},
        {"maximum(a, b)", "there is no function 'maximum'; it is max(a, b)"},
        {"if (a) b", "there is no function 'if'; write condition ? a : b"},
        {"expf(a)", "there is no function 'expf'; it is exp"},
        {"softmax(a)", "there is no function 'softmax'; the function is ignis_softmax"},
        {"a*M_PI", "'M_PI' is not known; it is pi; the names are a, b"},
        {"a and b", "column 3 of 'a and b': 'and' is not expected here; write a && b"},
        {"gelu(a", "')' is expected before the end"},
        {"index(a", "')' is expected before the end"},
        {"index(0.5) + a", "index takes the number of a dimension"},
        {"x = a*b; y + x", "column 10 of 'x = a*b; y + x': 'y' is not known; the names are a, b, x"},
    };
    ignis_tensor a, b;
    int i;
    SETUP(NULL);
    a = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    b = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    for (i = 0; i < COUNT_OF(cases); i++) {
        CHECK_FAILS(ignis_map(cases[i].text, IGNIS_INPUTS(a, b)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
        CHECK_MESSAGE_HAS(cases[i].message);
    }
    let_go(a), let_go(b);
}

/*  Depth, words and operations are bounded; what is just inside the bounds is read. */
TEST(bounds)
{
    static char text[40000];
    ignis_scope scope;
    ignis_tensor a;
    int i, n;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    for (n = 58; n < 70; n += 10) {
        memset(text, '(', (size_t)n);
        text[n] = 'a';
        memset(text + n + 1, ')', (size_t)n);
        text[2 * n + 1] = 0;
        if (n == 58) {
            CHECK(ignis_map(text, IGNIS_INPUTS(a)).id != 0);
        } else {
            CHECK_FAILS(ignis_map(text, IGNIS_INPUTS(a)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
            CHECK_MESSAGE_HAS("nested deeper than 60");
        }
    }
    memset(text, '-', 1000);
    strcpy(text + 1000, "a");
    CHECK_FAILS(ignis_map(text, IGNIS_INPUTS(a)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    for (i = 0; i < 600; i++)
        strcpy(text + 2 * i, "a+");
    strcpy(text + 1200, "a");
    CHECK_FAILS(ignis_map(text, IGNIS_INPUTS(a)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("more than 1000 words and signs");
    for (i = n = 0; i < 140; i++) /* fewer words, and functions of several operations */
        n += sprintf(text + n, "gelu(a+%d)+", i);
    strcpy(text + n, "a");
    CHECK_FAILS(ignis_map(text, IGNIS_INPUTS(a)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("more than 1000 operations");
    memset(text, ' ', 20000);
    strcpy(text + 20000, "a");
    CHECK_FAILS(ignis_map(text, IGNIS_INPUTS(a)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("longer than");
    CHECK_OK(ignis_scope_end(scope));
}

TEST(refused_inputs)
{
    ignis_tensor a, b, late, none = {0};
    ignis_inputs inputs;
    layer l;
    int i;
    SETUP(NULL);
    a = l.weight = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, false);
    b = tensor_counting(IGNIS_SHAPE(4), IGNIS_F32, 1, false);
    CHECK_FAILS(ignis_map("a + b", IGNIS_INPUTS(a, b)), IGNIS_ERROR_SHAPE, IGNIS_DIAG_BROADCAST_SHAPE);
    CHECK_MESSAGE_HAS("b is [4], which does not broadcast with 3 in dimension 1");
    CHECK_FAILS(ignis_map("a + a", IGNIS_INPUTS(a, a)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("two inputs have the name 'a'");
    CHECK_FAILS(ignis_map("a", IGNIS_INPUTS(l.weight)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("input 0, 'l.weight', is no name; IGNIS_NAMED gives it one");
    CHECK_FAILS(ignis_map("k", IGNIS_INPUTS(IGNIS_VALUE(k, 1))), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("all inputs are values");
    CHECK_FAILS(ignis_map(NULL, IGNIS_INPUTS(a)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    inputs = IGNIS_INPUTS(a, b);
    inputs.count = 1;
    CHECK_FAILS(ignis_map("a", inputs), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("there are 1 inputs, and 2 names: a, b");
    inputs.names = "a, NAMED(x)"; /* what a macro makes of an argument is a name, a comma, and more */
    CHECK_FAILS(ignis_map("a", inputs), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("input 1, 'NAMED(x)', is no name");
    inputs.names = "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r";
    CHECK_FAILS(ignis_map("a", inputs), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    inputs.names = "a";
    inputs.count = 17;
    CHECK_FAILS(ignis_map("a", inputs), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    inputs = IGNIS_INPUTS(a);
    inputs.names = NULL;
    CHECK_FAILS(ignis_map("a", inputs), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    late = ignis_value(1);
    for (i = 0; i < 64; i++)
        ignis_value(i);
    CHECK_FAILS(ignis_map("a + late", IGNIS_INPUTS(a, late)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("is too old");
    CHECK(ignis_add(ignis_value(1), a).id == 0); /* a value is no tensor */
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_FREED);
    ignis_status_clear();
    CHECK_FAILS(ignis_map("a + none", IGNIS_INPUTS(a, none)), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_OK(ignis_tensor_release(a));
    CHECK_OK(ignis_tensor_release(b));
}

/* --- what the tape keeps ------------------------------------------------------------------------------------------ */

/*  a + b needs nothing of its inputs, and gives its gradient on as it is. */
TEST(saves_what_it_needs)
{
    ignis_scope scope;
    ignis_tensor a, b, y;
    double grad[4];
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = tensor_counting(IGNIS_SHAPE(4), IGNIS_F32, 1, true);
    b = tensor_counting(IGNIS_SHAPE(4), IGNIS_F32, 1, true);
    y = ignis_map("a*2 + b", IGNIS_INPUTS(a, b));
    CHECK_OK(ignis_array_fill(ignis_tensor_data(a), 0)); /* nobody needs it */
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(a), grad, IGNIS_F64, 4));
    CHECK(grad[0] == 2 && grad[3] == 2);
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(b), grad, IGNIS_F64, 4));
    CHECK(grad[0] == 1 && grad[3] == 1);
    y = ignis_map("a*b", IGNIS_INPUTS(a, b));
    CHECK_OK(ignis_array_fill(ignis_tensor_data(b), 0));
    CHECK_STATUS(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- memory and failures ------------------------------------------------------------------------------------------ */

/*  Runs formulas with `blanks` blanks before them: each number of blanks is parsed and emitted anew, although the
    images are in the cache. */
static ignis_tensor everything(int blanks, const ignis_tensor *inputs)
{
    const ignis_tensor x = inputs[0], row = inputs[1];
    static const ignis_reduce_desc apart = {{0, 2}, 2, true}, last = {{-1}, 1, true};
    char text[3][2100];
    ignis_tensor y, z;
    snprintf(text[0], sizeof text[0], "%*ssilu(x)*row + row", blanks, "");
    snprintf(text[1], sizeof text[1], "%*sy*y", blanks, "");
    snprintf(text[2], sizeof text[2], "%*sx*z", blanks, "");
    y = ignis_map(text[0], IGNIS_INPUTS(x, row));
    y = ignis_map_reduce(IGNIS_REDUCE_SUM, text[1], IGNIS_INPUTS(y), &apart);
    z = ignis_map_reduce(IGNIS_REDUCE_LOGSUMEXP, text[2], IGNIS_INPUTS(x, IGNIS_NAMED(z, y)), &last);
    z = ignis_map_reduce(IGNIS_REDUCE_MAX, text[1], IGNIS_INPUTS(IGNIS_NAMED(y, z)), &last);
    return ignis_map_mean(text[2], IGNIS_INPUTS(x, z));
}

/*  Each call of driver functions of a name, or each allocation on the host where that is null, fails once: a clean
    failure each time, nothing stays behind, and the next time all is well. */
static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor inputs[2];
    SETUP(&desc);
    inputs[0] = tensor_noise(IGNIS_SHAPE(3, 4, 8), IGNIS_F32, 1, true);
    inputs[1] = tensor_noise(IGNIS_SHAPE(8), IGNIS_F32, 2, true);
    sweep_walks(prefix, &counter, everything, inputs);
    let_go(inputs[0]), let_go(inputs[1]);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_device_allocation_fails_once) { sweep("cuMemAlloc"); }
TEST(each_load_fails_once) { sweep("cuModule"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

/* --- index -------------------------------------------------------------------------------------------------------- */

TEST(index_of_elements)
{
    static const ignis_shape shapes[] = {{3, {3, 5, 8}}, {3, {3, 5, 7}}, {3, {1, 4, 1}}, {1, {37}}};
    double got[120], ones[120];
    int n;
    int64_t i;
    SETUP(NULL);
    for (n = 0; n < COUNT_OF(shapes); n++) {
        ignis_shape shape = shapes[n];
        int64_t numel = shape_numel(shape), last = shape.dim[shape.ndim - 1], rows = shape.ndim > 1 ? shape.dim[1] : 1;
        const char *text = shape.ndim == 1 ? "index(0)*10 + index(-1) + 0*x*row"
                                           : "index(0)*10000 + index(1)*100 + index(-1) + 0*x*row";
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_counting(shape, IGNIS_F32, 0, true),
                     row = tensor_counting(IGNIS_SHAPE(last), IGNIS_F32, 0, true), y;
        y = ignis_map(text, IGNIS_INPUTS(x, row));
        CHECK_OK(ignis_tensor_to_host(y, got, IGNIS_F64, numel));
        for (i = 0; i < numel; i++)
            CHECK(got[i] ==
                  (double)(shape.ndim == 1 ? 11 * i : i / last / rows * 10000 + i / last % rows * 100 + i % last));
        /* in a sum over rows, in its gradients, and in their sums: the weights are the columns */
        y = ignis_map_sum("(index(-1) + 1)*(x + 1)*(row + 1)", IGNIS_INPUTS(x, row));
        CHECK(ignis_item(y) == (double)(numel * (last + 1) / 2));
        CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x), got, IGNIS_F64, numel));
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(row), ones, IGNIS_F64, last));
        for (i = 0; i < numel; i++)
            CHECK(got[i] == (double)(i % last + 1) && ones[i % last] == (double)((i % last + 1) * (numel / last)));
        CHECK_OK(ignis_scope_end(scope));
    }
    {
        ignis_array square = make(IGNIS_SHAPE(9, 9), IGNIS_U8), other = make(IGNIS_SHAPE(9, 9), IGNIS_F64);
        CHECK_OK(ignis_array_fill(other, 1));
        CHECK_OK(ignis_array_map(square, "index(0) >= index(1) && other", IGNIS_ARRAYS(other))); /* a triangle */
        CHECK_OK(ignis_array_to_host(square, got, IGNIS_F64, 81));
        for (i = 0; i < 81; i++)
            CHECK(got[i] == (i / 9 >= i % 9));
        CHECK_STATUS(ignis_array_map(square, "index(2)*other", IGNIS_ARRAYS(other)), IGNIS_ERROR_SHAPE,
                     IGNIS_DIAG_DIM_RANGE);
        CHECK_STATUS(ignis_array_map(square, "index(other)", IGNIS_ARRAYS(other)), IGNIS_ERROR_ARGUMENT,
                     IGNIS_DIAG_FORMULA);
        CHECK_MESSAGE_HAS("column 1 of 'index(other)': index takes the number of a dimension, -8 to 7");
        CHECK_STATUS(ignis_array_map(square, "index(8)", IGNIS_ARRAYS(other)), IGNIS_ERROR_ARGUMENT,
                     IGNIS_DIAG_FORMULA);
        drop(square), drop(other);
    }
}

/*  Whatever an input is called, and whether index() is in it, every reduction compiles, in packs, rows and columns, and
    so do gradients. */
TEST(names_of_inputs)
{
    static const char *const names[] = {
        "x",          "int",       "float",    "const",      "return",   "while",    "struct", "class",  "template",
        "asm",        "threadIdx", "blockIdx", "min",        "max",      "W",        "P",      "S",      "p",
        "q",          "k",         "f",        "x0",         "y0",       "n1",       "d2_0",   "i3",     "at",
        "e",          "g",         "u",        "a0",         "b",        "c",        "place",  "factor", "parts",
        "part",       "row",       "lane",     "finish",     "map_f",    "map_most", "S0",     "exp",    "pow",
        "index",      "rand",      "pi",       "inf",        "INFINITY", "M_PI",     "NAN",    "NULL",   "IGNIS_T",
        "IGNIS_WIDE", "infinity",  "chosen",   "__global__", "_",        "this",     "true"};
    static const ignis_shape shapes[] = {{2, {3, 16}}, {2, {16, 3}}};
    static double values[48], got[3], first[3];
    char text[100];
    int i, r, n;
    SETUP(NULL);
    for (i = 0; i < 48; i++)
        values[i] = (i * 29 + 5) % 48 / 8.0 - 2;
    for (i = 0; i < COUNT_OF(names); i++) {
        ignis_reduce_desc last = {{-1}, 1, false};
        ignis_scope scope = ignis_scope_begin();
        ignis_inputs inputs;
        ignis_tensor x = tensor_of(values, IGNIS_SHAPE(3, 16), IGNIS_F32, true);
        double grads[48], sum = 0;
        memset(&inputs, 0, sizeof inputs);
        inputs.names = names[i];
        inputs.count = 1;
        inputs.tensor[0] = x;
        snprintf(text, sizeof text, "index(1) < 3 ? %s*2 : -1/0", names[i]);
        CHECK_OK(ignis_tensor_to_host(ignis_map_reduce(IGNIS_REDUCE_ARGMAX, text, inputs, &last), got, IGNIS_F64, 3));
        if (i == 0)
            memcpy(first, got, sizeof got);
        if (memcmp(first, got, sizeof got) != 0 || ignis_status_last() != IGNIS_OK)
            test__fail(__FILE__, __LINE__, names[i]);
        CHECK_OK(ignis_backward(ignis_sum(ignis_map_reduce(IGNIS_REDUCE_MAX, text, inputs, &last)), IGNIS_NO_ARRAY));
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x), grads, IGNIS_F64, 48));
        for (r = 0; r < 48; r++) /* one of each row has it */
            sum += grads[r];
        CHECK(sum == 6);
        CHECK_OK(ignis_scope_end(scope));
    }
    for (n = 0; n < COUNT_OF(shapes); n++)
        for (r = IGNIS_REDUCE_SUM; r < IGNIS_REDUCE_COUNT; r++) {
            bool differs = (r >= IGNIS_REDUCE_PROD && r <= IGNIS_REDUCE_MIN) || r >= IGNIS_REDUCE_LOGSUMEXP ||
                           r == IGNIS_REDUCE_SUM;
            ignis_reduce_desc desc = {{1}, 1, false};
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor x = tensor_of(values, shapes[n], IGNIS_F32, differs), y;
            desc.dims[0] = n != 1;
            y = ignis_map_reduce((ignis_reducer)r, "(index(0) + index(1))*x + 0*rand()", IGNIS_INPUTS(x), &desc);
            CHECK_OK(ignis_tensor_to_host(y, got, IGNIS_F64, 3));
            if (differs)
                CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
            if (ignis_status_last() != IGNIS_OK)
                test__fail(__FILE__, __LINE__, reducer_names[r]);
            CHECK_OK(ignis_scope_end(scope));
        }
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

/*  A captured formula with its sum in parts, its gradient and a value; what follows the capture takes other memory than
    the graph's. */
TEST(in_a_graph)
{
    ignis_tensor x, row, loss = {0}, other;
    ignis_graph graph;
    double got[64];
    int round;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(4000, 64), IGNIS_F32, 3, false);
    row = tensor_noise(IGNIS_SHAPE(64), IGNIS_F32, 4, true);
    for (round = 0; round < 2; round++) { /* the first one compiles */
        ignis_scope scope = ignis_scope_begin();
        if (round == 1)
            CHECK_OK(ignis_graph_begin());
        CHECK_OK(ignis_zero_grad(row));
        loss = ignis_map_sum("k*x*row", IGNIS_INPUTS(x, row, IGNIS_VALUE(k, 0.5)));
        CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
        loss = ignis_scope_return(scope, loss);
        if (round == 0)
            CHECK_OK(ignis_tensor_release(loss));
    }
    graph = ignis_graph_end();
    REQUIRE(graph.id != 0);
    for (round = 0; round < 3; round++) {
        CHECK_OK(ignis_array_fill(ignis_tensor_data(x), round + 1));
        CHECK_OK(ignis_array_fill(ignis_tensor_data(row), 2));
        other = ignis_map_sum("x + 7", IGNIS_INPUTS(x));
        CHECK_OK(ignis_graph_launch(graph));
        CHECK(is_near(ignis_item(loss), 0.5 * (round + 1) * 2 * 4000 * 64, 1e-6));
        CHECK(is_near(ignis_item(other), (round + 8) * 4000.0 * 64, 1e-6));
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(row), got, IGNIS_F64, 64));
        CHECK(got[0] == 0.5 * (round + 1) * 4000 && got[63] == got[0]);
        let_go(other);
    }
    CHECK_OK(ignis_graph_free(graph));
    let_go(loss), let_go(x), let_go(row);
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

static void *map_in_thread(void *index)
{
    static const char *const texts[] = {"a*b + 1", "a*b + 2", "a*b + 3", "silu(a)*b"};
    int i, id = (int)(intptr_t)index;
    for (i = 0; i < 12; i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor a = tensor_counting(IGNIS_SHAPE(5), IGNIS_F32, 1, true),
                     b = tensor_counting(IGNIS_SHAPE(5), IGNIS_F32, 1, false);
        int which = (i + id) % 4;
        ignis_tensor y = ignis_map(texts[which], IGNIS_INPUTS(a, b));
        double got[5];
        CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
        CHECK_OK(ignis_tensor_to_host(y, got, IGNIS_F64, 5));
        CHECK(which == 3 || got[4] == 26 + which);
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(a), got, IGNIS_F64, 5));
        CHECK(which == 3 || got[4] == 5);
        CHECK_OK(ignis_scope_end(scope));
    }
    return NULL;
}

TEST(threads)
{
    pthread_t threads[8];
    intptr_t i;
    SETUP(NULL);
    for (i = 0; i < 8; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, map_in_thread, (void *)i), 0);
    for (i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
