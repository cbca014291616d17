// SPDX-License-Identifier: MIT
/*  test_formula_reduce.c - formulas that reduce: values, gradients, errors */
#include "sweep.h"

#include "near.h"

#include "broadcast.h"

/* --- reductions --------------------------------------------------------------------------------------------------- */

static double folded(ignis_reducer reducer, double a, double b)
{
    switch (reducer) {
    case IGNIS_REDUCE_PROD: return a * b;
    case IGNIS_REDUCE_MAX: return a > b || isnan(a) ? a : b;
    case IGNIS_REDUCE_MIN: return a < b || isnan(a) ? a : b;
    case IGNIS_REDUCE_ANY: return a != 0 || b != 0;
    case IGNIS_REDUCE_ALL: return a != 0 && b != 0;
    case IGNIS_REDUCE_LOGSUMEXP: return log(exp(a) + exp(b));
    case IGNIS_REDUCE_NORM: return sqrt(a * a + b * b);
    default: return a + b;
    }
}

/*  The expected result of shape `kept` of values of a shape. */
static void reduce_on_host(ignis_reducer reducer, const double *values, ignis_shape shape, ignis_shape kept,
                           double *out)
{
    int64_t numel = shape_numel(shape), results = shape_numel(kept), i;
    double best[MAX_NUMEL], count[MAX_NUMEL];
    memset(count, 0, sizeof count);
    for (i = 0; i < numel; i++) {
        int64_t at = offset_of(shape, kept, i);
        if (reducer == IGNIS_REDUCE_ARGMAX || reducer == IGNIS_REDUCE_ARGMIN) {
            bool better = count[at] == 0 || (!isnan(best[at]) && isnan(values[i])) ||
                          (reducer == IGNIS_REDUCE_ARGMAX ? values[i] > best[at] : values[i] < best[at]);
            if (better)
                best[at] = values[i], out[at] = count[at];
        } else {
            bool truth = reducer == IGNIS_REDUCE_ANY || reducer == IGNIS_REDUCE_ALL;
            out[at] = count[at] ? folded(reducer, out[at], values[i]) : truth ? values[i] != 0 : values[i];
        }
        count[at]++;
    }
    for (i = 0; i < results && reducer == IGNIS_REDUCE_MEAN; i++)
        out[i] /= count[i];
}

static const struct {
    ignis_shape a, b, result;
    ignis_reduce_desc desc;
} reductions[] = {
    {{1, {1}}, {1, {1}}, {1, {1}}, {{0}, 0, false}},
    {{1, {3}}, {1, {3}}, {1, {3}}, {{0}, 0, false}},
    {{1, {1003}}, {1, {1}}, {1, {1003}}, {{0}, 0, false}},
    {{2, {3, 8}}, {2, {3, 8}}, {2, {3, 8}}, {{1}, 1, false}},
    {{2, {3, 7}}, {1, {7}}, {2, {3, 7}}, {{1}, 1, false}},
    {{2, {40, 16}}, {2, {40, 1}}, {2, {40, 16}}, {{0}, 1, true}},
    {{2, {40, 5}}, {2, {40, 5}}, {2, {40, 5}}, {{-2}, 1, false}},
    {{2, {4, 700}}, {1, {700}}, {2, {4, 700}}, {{1}, 1, false}},
    {{3, {3, 4, 8}}, {3, {1, 4, 1}}, {3, {3, 4, 8}}, {{1}, 1, false}},
    {{3, {3, 4, 8}}, {2, {4, 8}}, {3, {3, 4, 8}}, {{1, 2}, 2, false}},
    {{3, {3, 4, 8}}, {2, {4, 8}}, {3, {3, 4, 8}}, {{0, 1}, 2, true}},
    {{2, {16, 1}}, {2, {1, 16}}, {2, {16, 16}}, {{0}, 0, true}},
    {{3, {5, 1, 6}}, {3, {5, 1, 6}}, {3, {5, 1, 6}}, {{1}, 1, false}},
    {{2, {1, 6}}, {2, {1, 6}}, {2, {1, 6}}, {{0}, 1, false}},
    {{3, {3, 4, 5}},
     {3, {3, 4, 5}},
     {3, {3, 4, 5}},
     {{0, 2}, 2, false}}, /* in two steps; the last ones in this table */
    {{5, {2, 3, 2, 3, 2}}, {3, {2, 3, 1}}, {5, {2, 3, 2, 3, 2}}, {{0, 2, 4}, 3, true}},
};

TEST(reductions)
{
    static double in[2][MAX_NUMEL], values[MAX_NUMEL], expected[MAX_NUMEL], got[MAX_NUMEL];
    int n, k, r;
    int64_t i;
    SETUP(NULL);
    for (n = 0; n < COUNT_OF(reductions); n++)
        for (r = IGNIS_REDUCE_SUM; r < IGNIS_REDUCE_COUNT; r++) {
            ignis_shape shape = reductions[n].result, kept = shape;
            ignis_reduce_desc desc = reductions[n].desc;
            ignis_dtype dtype = r % 2 ? IGNIS_F32 : IGNIS_F64;
            ignis_scope scope;
            ignis_tensor a, b, y;
            ignis_array dst;
            char what[100];
            if (n >= COUNT_OF(reductions) - 2 && (r == IGNIS_REDUCE_ARGMAX || r == IGNIS_REDUCE_ARGMIN))
                continue;
            if (n % 4 != 2 && r != IGNIS_REDUCE_MEAN &&
                r != IGNIS_REDUCE_ARGMAX) /* the others differ in how two numbers become one, no more */
                continue;
            scope = ignis_scope_begin();
            for (i = 0; i < shape_numel(reductions[n].a); i++)
                in[0][i] = r == IGNIS_REDUCE_PROD ? 1 + (double)(i % 7) / 1024 : (double)((i * 37 + 11) % 64 - 20) / 8;
            for (i = 0; i < shape_numel(reductions[n].b); i++)
                in[1][i] = r == IGNIS_REDUCE_PROD ? 1 : (double)((i * 5) % 16) / 4;
            for (i = 0; i < shape_numel(shape); i++)
                values[i] = in[0][offset_of(shape, reductions[n].a, i)] * in[1][offset_of(shape, reductions[n].b, i)];
            for (k = 0; k < shape.ndim; k++) {
                bool is = desc.dim_count == 0;
                int j;
                for (j = 0; j < desc.dim_count; j++)
                    is = is || desc.dims[j] == k || desc.dims[j] + shape.ndim == k;
                kept.dim[k] = is ? 1 : shape.dim[k];
            }
            reduce_on_host((ignis_reducer)r, values, shape, kept, expected);
            a = tensor_of(in[0], reductions[n].a, dtype, false);
            b = tensor_of(in[1], reductions[n].b, dtype, false);
            y = ignis_map_reduce((ignis_reducer)r, "a*b", IGNIS_INPUTS(a, b), &desc);
            CHECK_INT(numel_of(y), shape_numel(kept));
            if (desc.keepdim)
                CHECK_SHAPE(ignis_tensor_data(y), kept);
            CHECK_INT(tensor_info(y).dtype, r >= IGNIS_REDUCE_LOGSUMEXP ? dtype
                                            : r >= IGNIS_REDUCE_ARGMAX  ? IGNIS_I64
                                            : r >= IGNIS_REDUCE_ANY     ? IGNIS_U8
                                                                        : dtype);
            snprintf(what, sizeof what, "%s %d", reducer_names[r], n);
            CHECK_OK(ignis_tensor_to_host(y, got, IGNIS_F64, shape_numel(kept)));
            check_near(what, "tensor", got, expected, shape_numel(kept), dtype == IGNIS_F64 ? 1e-12 : 1e-5);
            dst = make(kept, r == IGNIS_REDUCE_ARGMAX || r == IGNIS_REDUCE_ARGMIN
                                 ? IGNIS_I32
                                 : IGNIS_F64); /* also wider than what is computed */
            CHECK_OK(ignis_array_reduce(
                dst, (ignis_reducer)r, "x*y",
                IGNIS_ARRAYS(IGNIS_NAMED(x, ignis_tensor_data(a)), IGNIS_NAMED(y, ignis_tensor_data(b)))));
            CHECK_OK(ignis_array_to_host(dst, got, IGNIS_F64, shape_numel(kept)));
            check_near(what, "array", got, expected, shape_numel(kept), 1e-5);
            drop(dst);
            CHECK_OK(ignis_scope_end(scope));
        }
}

typedef struct reduced_call {
    ignis_reducer reducer;
    const ignis_reduce_desc *desc;
} reduced_call;

static ignis_tensor call_reduced(const ignis_tensor *x, int count, void *user)
{
    const reduced_call *c = (const reduced_call *)user;
    ignis_tensor a = x[0], b = x[1];
    (void)count;
    return ignis_map_reduce(c->reducer, "a*a*b + b", IGNIS_INPUTS(a, b), c->desc);
}

TEST(reductions_gradients)
{
    static const ignis_reducer reducers[] = {IGNIS_REDUCE_SUM, IGNIS_REDUCE_MEAN,      IGNIS_REDUCE_MAX,
                                             IGNIS_REDUCE_MIN, IGNIS_REDUCE_LOGSUMEXP, IGNIS_REDUCE_NORM};
    int n, r;
    SETUP(NULL);
    for (n = 0; n < COUNT_OF(reductions); n++)
        for (r = 0; r < COUNT_OF(reducers); r++) {
            ignis_scope scope = ignis_scope_begin();
            reduced_call c;
            ignis_tensor x[2];
            bool is_place = reducers[r] == IGNIS_REDUCE_MAX || reducers[r] == IGNIS_REDUCE_MIN;
            if (shape_numel(reductions[n].result) > 400 || (is_place && n >= COUNT_OF(reductions) - 2) ||
                (r > 0 && n % 4 == 3)) {
                CHECK_OK(ignis_scope_end(scope));
                continue;
            }
            c.reducer = reducers[r];
            c.desc = &reductions[n].desc;
            x[0] = tensor_noise(reductions[n].a, IGNIS_F64, 3, true);
            x[1] = tensor_noise(reductions[n].b, IGNIS_F64, 4, true);
            CHECK(ignis_gradcheck(call_reduced, &c, x, 2, NULL) < 1e-6);
            CHECK_OK(ignis_status_last());
            CHECK_OK(ignis_scope_end(scope));
        }
}

/*  Norms of numbers whose squares are no numbers, of rows, columns, all and what is apart, and their gradients: x /
    norm, and 0 of nothing but 0.
    Integers have one, too. */
TEST(norms_far_from_one)
{
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16, IGNIS_F64};
    static const int powers[][2] = {{0, 0},      {66, 520},   {20, 160},   {45, 300},
                                    {100, 1000}, {120, 1015}, {-70, -520}, {-100, -800}};
    static const ignis_reduce_desc descs[] = {{{0}, 0, true}, {{-1}, 1, true}, {{0}, 1, true}, {{0, 2}, 2, true}};
    static const ignis_shape shapes[] = {{3, {2, 3, 5}}, {3, {3, 2, 700}}, {3, {300, 2, 3}}};
    static const double zeros[4] = {0, 0, 0, 0}, whole[4] = {3, 4, 12, 84};
    ignis_tensor x, y;
    int d, k, n, s;
    int64_t i;
    SETUP(NULL);
    for (d = 0; d < 3; d++)
        for (k = 0; k < COUNT_OF(powers); k++)
            for (n = 0; n < COUNT_OF(descs); n++) {
                ignis_shape shape = shapes[s = (d + k + n) % 3], kept = shape;
                int64_t numel = shape_numel(shape), at;
                int power = powers[k][d == 2], e;
                double *xs = rounded_noise(shape, dtypes[d], 5, 1),
                       *norms = (double *)calloc((size_t)numel, sizeof *norms), *got;
                ignis_scope scope = ignis_scope_begin();
                for (e = 0; e < 3; e++)
                    if (n == 0 || (n == 1 && e == 2) || (n == 2 && e == 0) || (n == 3 && e != 1))
                        kept.dim[e] = 1;
                for (i = 0; i < numel; i++) {
                    norms[offset_of(shape, kept, i)] += xs[i] * xs[i];
                    xs[i] = ldexp(xs[i], power);
                }
                x = tensor_of(xs, shape, dtypes[d], true);
                y = ignis_map_reduce(IGNIS_REDUCE_NORM, "x", IGNIS_INPUTS(x), &descs[n]);
                CHECK_SHAPE(ignis_tensor_data(y), kept);
                got = tensor_values(y);
                for (i = 0; i < shape_numel(kept); i++)
                    CHECK(fabs(ldexp(got[i], -power) / sqrt(norms[i]) - 1) < (d == 0   ? 1e-6
                                                                              : d == 1 ? 1.0 / 256
                                                                                       : 1e-14));
                free(got);
                if (n < 3) { /* else they are neighbours in no order */
                    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
                    got = array_values(ignis_tensor_grad(x));
                    for (i = 0; i < numel; i++) {
                        at = offset_of(shape, kept, i);
                        CHECK(fabs(got[i] - ldexp(xs[i], -power) / sqrt(norms[at])) < (d == 0   ? 1e-6
                                                                                       : d == 1 ? 1.0 / 256
                                                                                                : 1e-14));
                    }
                    free(got);
                }
                CHECK_OK(ignis_status_last());
                free(xs), free(norms);
                CHECK_OK(ignis_scope_end(scope));
            }
    x = tensor_of(zeros, IGNIS_SHAPE(4), IGNIS_F32, true);
    y = ignis_map_reduce(IGNIS_REDUCE_NORM, "x", IGNIS_INPUTS(x), NULL);
    CHECK_NUMBER(value_at(y, 0), 0);
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
    CHECK_NUMBER(grad_at(x, 2), 0);
    let_go(x), let_go(y);
    x = tensor_of(whole, IGNIS_SHAPE(4), IGNIS_I32, false);
    y = ignis_map_reduce(IGNIS_REDUCE_NORM, "x", IGNIS_INPUTS(x), NULL);
    CHECK_NUMBER(value_at(y, 0), 85);
    let_go(x), let_go(y);
}

/*  Of equal elements the first has the gradient of max; logsumexp of 16 bits keeps its sum in f32. */
TEST(reductions_gradients_of_one)
{
    static const double values[12] = {1, 5, 5, 2, 7, 7, -1, 7, 0, 0, 0, 0};
    static const double places[12] = {0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0};
    ignis_reduce_desc rows = {{1}, 1, false};
    double got[12], expected[12];
    ignis_scope scope;
    ignis_tensor a;
    int i, k;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = tensor_of(values, IGNIS_SHAPE(3, 4), IGNIS_BF16, true);
    CHECK_OK(ignis_backward(ignis_map_sum("m", IGNIS_INPUTS(IGNIS_NAMED(m, ignis_map_reduce(IGNIS_REDUCE_MAX, "a",
                                                                                            IGNIS_INPUTS(a), &rows)))),
                            IGNIS_NO_ARRAY));
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(a), got, IGNIS_F64, 12));
    check_near("max", "gradient", got, places, 12, 0);
    CHECK_OK(ignis_zero_grad(a));
    CHECK_OK(ignis_backward(ignis_map_sum("m", IGNIS_INPUTS(IGNIS_NAMED(m, ignis_map_reduce(IGNIS_REDUCE_LOGSUMEXP, "a",
                                                                                            IGNIS_INPUTS(a), &rows)))),
                            IGNIS_NO_ARRAY));
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(a), got, IGNIS_F64, 12));
    for (i = 0; i < 12; i++) {
        double sum = 0;
        for (k = 0; k < 4; k++)
            sum += exp(values[i / 4 * 4 + k]);
        expected[i] = exp(values[i]) / sum;
    }
    check_near("logsumexp", "gradient", got, expected, 12, 1.0 / 512);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Long rows and columns are cut into parts; the sums are the same bits every time. */
TEST(reductions_in_parts)
{
    static const ignis_shape shapes[] = {{1, {300001}}, {2, {2, 90001}}, {2, {40000, 8}}, {2, {30001, 3}}};
    ignis_array x, sum, index;
    int n, k;
    int64_t i;
    SETUP(NULL);
    for (n = 0; n < COUNT_OF(shapes); n++) {
        int64_t numel = shape_numel(shapes[n]), results = shapes[n].ndim == 1 ? 1 : n == 1 ? 2 : shapes[n].dim[1];
        float *values = (float *)malloc(sizeof *values * (size_t)numel);
        double expected[8] = {0}, best[8] = {0}, places[8] = {0}, got[8], again[8];
        for (i = 0; i < numel; i++) {
            int64_t at = n == 0 ? 0 : n == 1 ? i / shapes[n].dim[1] : i % shapes[n].dim[1];
            int64_t place = n == 0 ? i : n == 1 ? i % shapes[n].dim[1] : i / shapes[n].dim[1];
            values[i] = (float)(noise(5, i) + 2);
            expected[at] += values[i];
            if (values[i] > best[at])
                best[at] = values[i], places[at] = (double)place;
        }
        x = make(shapes[n], IGNIS_F32);
        sum = make(n == 0 ? IGNIS_SHAPE(1) : n == 1 ? IGNIS_SHAPE(2, 1) : IGNIS_SHAPE(results), IGNIS_F32);
        index = make(n == 0 ? IGNIS_SHAPE(1) : n == 1 ? IGNIS_SHAPE(2, 1) : IGNIS_SHAPE(results), IGNIS_I64);
        CHECK_OK(ignis_array_from_host(x, values, IGNIS_F32, numel));
        for (k = 0; k < 2; k++) {
            CHECK_OK(ignis_array_reduce(sum, IGNIS_REDUCE_SUM, "x", IGNIS_ARRAYS(x)));
            CHECK_OK(ignis_array_to_host(sum, k ? again : got, IGNIS_F64, results));
        }
        CHECK(memcmp(got, again, sizeof got[0] * (size_t)results) == 0);
        check_near("parts", "sum", got, expected, results,
                   1e-5); /* f32 sums of 300001 numbers, each thread's up to a few hundred */
        CHECK_OK(ignis_array_reduce(index, IGNIS_REDUCE_ARGMAX, "x", IGNIS_ARRAYS(x)));
        CHECK_OK(ignis_array_to_host(index, got, IGNIS_F64, results));
        check_near("parts", "argmax", got, places, results, 0);
        drop(x), drop(sum), drop(index);
        free(values);
    }
}

/*  Along dimensions with another one between them, in two steps: what is f64, or becomes f64, is f64 in between, and
    integers stay integers. */
TEST(reductions_apart)
{
    enum { A = 17, B = 3, C = 19 };
    static const struct {
        ignis_reducer reducer;
        ignis_dtype from, to;
        double scale;
        double tolerance;
    } cases[] = {
        {IGNIS_REDUCE_SUM, IGNIS_F32, IGNIS_F64, 1e6, 1e-15},
        {IGNIS_REDUCE_MEAN, IGNIS_F32, IGNIS_F64, 1e6, 1e-15},
        {IGNIS_REDUCE_LOGSUMEXP, IGNIS_F32, IGNIS_F64, 20, 1e-14},
        {IGNIS_REDUCE_MAX, IGNIS_I32, IGNIS_F64, 2e9, 0},
        {IGNIS_REDUCE_LOGSUMEXP, IGNIS_I32, IGNIS_F64, 20, 1e-14},
        {IGNIS_REDUCE_SUM, IGNIS_I64, IGNIS_F64, 2e12, 0},
        {IGNIS_REDUCE_SUM, IGNIS_I32, IGNIS_F64, 2e9, 0},
        {IGNIS_REDUCE_MEAN, IGNIS_I32, IGNIS_F64, 2e9, 1e-15},
        {IGNIS_REDUCE_MEAN, IGNIS_F64, IGNIS_F64, 1, 1e-15},
        {IGNIS_REDUCE_MEAN, IGNIS_I64, IGNIS_I64, 2e12, 0},
        {IGNIS_REDUCE_MEAN, IGNIS_I64, IGNIS_F32, 2e12, 1.0 / 1e7},
        {IGNIS_REDUCE_MEAN, IGNIS_U8, IGNIS_F64, 255, 1e-15},
    };
    static double values[A * B * C];
    double got[B];
    int n, i, b;
    SETUP(NULL);
    for (n = 0; n < COUNT_OF(cases); n++) {
        ignis_array x = make(IGNIS_SHAPE(A, B, C), cases[n].from), y = make(IGNIS_SHAPE(1, B, 1), cases[n].to);
        for (i = 0; i < A * B * C; i++)
            values[i] = cases[n].scale * (0.5 + 0.5 * sin(i));
        CHECK_OK(ignis_array_from_host(x, values, IGNIS_F64, A * B * C));
        CHECK_OK(ignis_array_to_host(x, values, IGNIS_F64, A * B * C));
        CHECK_OK(ignis_array_reduce(y, cases[n].reducer, "x", IGNIS_ARRAYS(x)));
        CHECK_OK(ignis_array_to_host(y, got, IGNIS_F64, B));
        for (b = 0; b < B; b++) {
            double expected[1] = {0}, sum = 0, largest = 0, exps = 0;
            for (i = 0; i < A * B * C; i++)
                if (i / C % B == b)
                    sum += values[i], largest = values[i] > largest ? values[i] : largest, exps += exp(values[i]);
            expected[0] = cases[n].reducer == IGNIS_REDUCE_MAX         ? largest
                          : cases[n].reducer == IGNIS_REDUCE_LOGSUMEXP ? log(exps)
                          : cases[n].reducer == IGNIS_REDUCE_MEAN      ? sum / (A * C)
                                                                       : sum;
            if (cases[n].to == IGNIS_I64)
                expected[0] = trunc(expected[0]);
            check_near(reducer_names[cases[n].reducer], ignis_dtype_name(cases[n].from), &got[b], expected, 1,
                       cases[n].tolerance);
        }
        drop(x), drop(y);
    }
}

/*  The mean of integers is that of their exact sum, also where that has more than 64 bits: in rows, columns and parts.
    */
TEST(means_of_integers)
{
    static const struct {
        int64_t first, step;
        int count;
        int64_t expected;
    } cases[] = {
        {16777217, 0, 3, 16777217},
        {9007199254740993, 0, 7, 9007199254740993},
        {7, 0, 49, 7},
        {-8, 1, 2, -7}, /* -7.5, toward zero */
        {INT64_MAX, 0, 3, INT64_MAX},
        {INT64_MIN, 0, 5, INT64_MIN},
        {INT64_MAX, -1, 4, INT64_MAX - 2},
        {1700000000000000001, 2, 70001, 1700000000000070001}, /* nanoseconds */
        {-1700000000000000001, -2, 9001, -1700000000000009001},
    };
    static int64_t values[70001 * 2];
    int n, i, columns;
    SETUP(NULL);
    for (n = 0; n < COUNT_OF(cases); n++)
        for (columns = 0; columns < 2; columns++) {
            int count = cases[n].count;
            ignis_array x = make(columns ? IGNIS_SHAPE(count, 2) : IGNIS_SHAPE(2, count), IGNIS_I64);
            ignis_array y = make(columns ? IGNIS_SHAPE(1, 2) : IGNIS_SHAPE(2, 1), IGNIS_I64);
            ignis_array z = make(columns ? IGNIS_SHAPE(1, 2) : IGNIS_SHAPE(2, 1), IGNIS_F64);
            int64_t got[2];
            double real[2];
            for (i = 0; i < 2 * count; i++)
                values[i] = cases[n].first + cases[n].step * (columns ? i / 2 : i % count);
            CHECK_OK(ignis_array_from_host(x, values, IGNIS_I64, 2 * count));
            CHECK_OK(ignis_array_reduce(y, IGNIS_REDUCE_MEAN, "x", IGNIS_ARRAYS(x)));
            CHECK_OK(ignis_array_reduce(z, IGNIS_REDUCE_MEAN, "x", IGNIS_ARRAYS(x)));
            CHECK_OK(ignis_array_to_host(y, got, IGNIS_I64, 2));
            CHECK_OK(ignis_array_to_host(z, real, IGNIS_F64, 2));
            for (i = 0; i < 2; i++) {
                test__check_int(__FILE__, __LINE__, "the mean", got[i], cases[n].expected);
                CHECK(fabs(real[i] - (n == 3 ? -7.5 : (double)cases[n].expected)) <=
                      4e-16 * fabs((double)cases[n].expected));
            }
            drop(x), drop(y), drop(z);
        }
    {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor ones = ignis_tensor_ones(IGNIS_SHAPE(49), NULL);
        CHECK(ignis_item(ignis_map_mean("ones", IGNIS_INPUTS(ones))) == 1); /* divided, not multiplied by 1/49 */
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(reductions_of_special_values)
{
    ignis_scope scope;
    ignis_tensor x, none, m, ints;
    double special[6] = {1, INFINITY, NAN, 3, NAN, -INFINITY}, numbers[5] = {2, 7, 7, -3, -3}, got[5];
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_of(special, IGNIS_SHAPE(6), IGNIS_F32, false);
    m = tensor_of(numbers, IGNIS_SHAPE(5), IGNIS_F32, false);
    none = tensor_of(numbers, IGNIS_SHAPE(3, 0), IGNIS_F32, false);
    ints = tensor_of(numbers, IGNIS_SHAPE(5), IGNIS_I32, false);
    CHECK(isnan(ignis_item(ignis_map_reduce(IGNIS_REDUCE_MAX, "x", IGNIS_INPUTS(x), NULL))));
    CHECK(isnan(ignis_item(ignis_map_reduce(IGNIS_REDUCE_MIN, "x", IGNIS_INPUTS(x), NULL))));
    CHECK_INT(ignis_item_i64(ignis_map_reduce(IGNIS_REDUCE_ARGMAX, "x", IGNIS_INPUTS(x), NULL)), 2);
    CHECK_INT(ignis_item_i64(ignis_map_reduce(IGNIS_REDUCE_ARGMIN, "x", IGNIS_INPUTS(x), NULL)), 2);
    CHECK_INT(ignis_item_i64(ignis_map_reduce(IGNIS_REDUCE_ARGMAX, "m", IGNIS_INPUTS(m), NULL)), 1);
    CHECK_INT(ignis_item_i64(ignis_map_reduce(IGNIS_REDUCE_ARGMIN, "m", IGNIS_INPUTS(m), NULL)), 3);
    CHECK_INT(ignis_item_i64(ignis_map_reduce(IGNIS_REDUCE_ARGMIN, "-inf*(m > -10)", IGNIS_INPUTS(m), NULL)), 0);
    CHECK_INT(ignis_item_i64(ignis_map_reduce(IGNIS_REDUCE_SUM, "m > 0", IGNIS_INPUTS(m), NULL)), 3);
    CHECK_INT(ignis_item_i64(ignis_map_reduce(IGNIS_REDUCE_PROD, "ints", IGNIS_INPUTS(ints), NULL)), 882);
    CHECK_INT(ignis_item_i64(ignis_map_reduce(IGNIS_REDUCE_MAX, "ints", IGNIS_INPUTS(ints), NULL)), 7);
    CHECK(ignis_item(ignis_map_mean("ints", IGNIS_INPUTS(ints))) == 2);
    CHECK(ignis_item(ignis_map_mean("m == 7", IGNIS_INPUTS(m))) == 0.4f);
    CHECK(ignis_item(ignis_map_sum("none", IGNIS_INPUTS(none))) == 0);
    CHECK(isnan(ignis_item(ignis_map_mean("none", IGNIS_INPUTS(none)))));
    CHECK(ignis_item(ignis_map_reduce(IGNIS_REDUCE_LOGSUMEXP, "none", IGNIS_INPUTS(none), NULL)) == -INFINITY);
    CHECK(ignis_item(ignis_map_reduce(IGNIS_REDUCE_LOGSUMEXP, "-inf*(m > -10)", IGNIS_INPUTS(m), NULL)) == -INFINITY);
    CHECK(ignis_item(ignis_map_reduce(IGNIS_REDUCE_LOGSUMEXP, "m > 5 ? inf : m", IGNIS_INPUTS(m), NULL)) == INFINITY);
    CHECK(fabs(ignis_item(ignis_map_reduce(IGNIS_REDUCE_LOGSUMEXP, "1000 + 0*m", IGNIS_INPUTS(m), NULL)) - 1000 -
               log(5)) < 1e-4);
    CHECK(isnan(ignis_item(ignis_map_reduce(IGNIS_REDUCE_LOGSUMEXP, "x", IGNIS_INPUTS(x), NULL))));
    CHECK(ignis_item(ignis_map_reduce(IGNIS_REDUCE_ALL, "none", IGNIS_INPUTS(none), NULL)) == 1);
    CHECK_FAILS(ignis_map_reduce(IGNIS_REDUCE_MAX, "none", IGNIS_INPUTS(none), NULL), IGNIS_ERROR_SHAPE,
                IGNIS_DIAG_SHAPE_DIFFERS);
    {
        ignis_reduce_desc desc = {{1}, 1, false};
        CHECK_OK(ignis_tensor_to_host(ignis_map_reduce(IGNIS_REDUCE_PROD, "none", IGNIS_INPUTS(none), &desc), got,
                                      IGNIS_F64, 3));
        CHECK(got[0] == 1 && got[2] == 1);
    }
    CHECK_OK(ignis_scope_end(scope));
}

TEST(reductions_refused)
{
    ignis_reduce_desc twice = {{0, -2}, 2, false}, outside = {{3}, 1, false};
    ignis_reduce_desc fewer = {{0}, -1, false}, more = {{0}, IGNIS_MAX_DIMS + 1, false};
    ignis_tensor a, cube;
    ignis_array x, dst, part;
    SETUP(NULL);
    a = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, true);
    cube = tensor_counting(IGNIS_SHAPE(2, 3, 4), IGNIS_F32, 1, false);
    CHECK_FAILS(ignis_map_reduce(IGNIS_REDUCE_SUM, "a", IGNIS_INPUTS(a), &twice), IGNIS_ERROR_SHAPE,
                IGNIS_DIAG_DIM_RANGE);
    CHECK_FAILS(ignis_map_reduce(IGNIS_REDUCE_SUM, "a", IGNIS_INPUTS(a), &outside), IGNIS_ERROR_SHAPE,
                IGNIS_DIAG_DIM_RANGE);
    CHECK_FAILS(ignis_map_reduce(IGNIS_REDUCE_SUM, "a", IGNIS_INPUTS(a), &fewer), IGNIS_ERROR_SHAPE,
                IGNIS_DIAG_DIM_RANGE);
    CHECK_FAILS(ignis_map_reduce(IGNIS_REDUCE_SUM, "a", IGNIS_INPUTS(a), &more), IGNIS_ERROR_SHAPE,
                IGNIS_DIAG_DIM_RANGE);
    CHECK_FAILS(ignis_map_reduce(IGNIS_REDUCE_COUNT, "a", IGNIS_INPUTS(a), NULL), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_BAD_ENUM);
    CHECK_FAILS(ignis_map_sum("a + q", IGNIS_INPUTS(a)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    x = ignis_tensor_data(cube);
    dst = make(IGNIS_SHAPE(2, 1), IGNIS_F32);
    CHECK_STATUS(ignis_array_reduce(dst, IGNIS_REDUCE_SUM, "x", IGNIS_ARRAYS(x)), IGNIS_ERROR_SHAPE,
                 IGNIS_DIAG_BROADCAST_SHAPE);
    drop(dst);
    dst = make(IGNIS_SHAPE(1, 3, 1), IGNIS_I64); /* of arrays, whose dimensions stay where they are */
    CHECK_STATUS(ignis_array_reduce(dst, IGNIS_REDUCE_ARGMAX, "x", IGNIS_ARRAYS(x)), IGNIS_ERROR_SHAPE,
                 IGNIS_DIAG_DIM_RANGE);
    drop(dst);
    dst = make(IGNIS_SHAPE(8), IGNIS_F32);
    CHECK_OK(ignis_array_fill(dst, 1));
    part = ignis_array_slice(dst, 0, 0, 1);
    CHECK_STATUS(ignis_array_reduce(part, IGNIS_REDUCE_SUM, "dst", IGNIS_ARRAYS(dst)), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_OVERLAP);
    drop(dst), drop(part);
    CHECK_OK(ignis_tensor_release(a));
    CHECK_OK(ignis_tensor_release(cube));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
