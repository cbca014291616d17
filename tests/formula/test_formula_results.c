// SPDX-License-Identifier: MIT
/*  test_formula_results.c - formulas: random numbers, several results, gradients that are given, gradients of products
    */
#include "sweep.h"

#include <math.h>

/* --- random numbers ----------------------------------------------------------------------------------------------- */

enum { MANY = 4099 };

static ignis_shape shapes_of(int n)
{
    static const ignis_shape shapes[] = {{1, {1}}, {1, {7}}, {2, {37, 8}}, {2, {61, 67}}, {1, {MANY}}};
    return shapes[n];
}

/*  rand() is what ignis_tensor_rand gives after the same seed, in f32 and f64; in a 16-bit formula that of f32. */
TEST(rand_of_tensors)
{
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_F64, IGNIS_BF16};
    static double got[MANY], expected[MANY];
    int n, d, i;
    SETUP(NULL);
    for (n = 0; n < 5; n++)
        for (d = 0; d < 3; d++) {
            ignis_shape shape = shapes_of(n);
            int count = (int)shape_numel(shape);
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor_desc desc;
            ignis_tensor x = tensor_counting(shape, dtypes[d], 0, false);
            memset(&desc, 0, sizeof desc);
            desc.dtype = d == 2 ? IGNIS_F32 : dtypes[d];
            CHECK_OK(ignis_seed(5));
            CHECK_OK(ignis_tensor_to_host(ignis_tensor_rand(shape, &desc), expected, IGNIS_F64, count));
            CHECK_OK(ignis_seed(5));
            CHECK_OK(ignis_tensor_to_host(ignis_map("x + rand()", IGNIS_INPUTS(x)), got, IGNIS_F64, count));
            for (i = 0; i < count; i++) /* bf16 has 8 bits */
                CHECK(d == 2 ? fabs(got[i] - expected[i]) <= 1.0 / 512 : got[i] == expected[i]);
            CHECK_OK(ignis_scope_end(scope));
        }
}

/*  A dropout as a formula drops what ignis_dropout does, and its gradient too: where inputs are spread, and unaligned,
    and several in a row. */
TEST(dropout_as_a_formula)
{
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_BF16, IGNIS_F64};
    static double got[MANY], expected[MANY];
    int n, d, i;
    SETUP(NULL);
    for (n = 1; n < 5; n++)
        for (d = 0; d < 3; d++) {
            ignis_shape shape = shapes_of(n);
            int count = (int)shape_numel(shape), round;
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor x[2], row = tensor_counting(IGNIS_SHAPE(shape.dim[shape.ndim - 1]), dtypes[d], 0, false), y[2];
            for (i = 0; i < 2; i++)
                x[i] = tensor_noise(shape, dtypes[d], 3, true);
            CHECK_OK(ignis_seed(11));
            y[0] = ignis_dropout(ignis_dropout(x[0], 0.25), 0.5);
            CHECK_OK(ignis_seed(11));
            y[1] = x[1];
            for (round = 0; round < 2; round++)
                y[1] = ignis_map("rand() < p ? 0 : x/(1 - p) + row",
                                 IGNIS_INPUTS(IGNIS_NAMED(x, y[1]), row, IGNIS_VALUE(p, round ? 0.5 : 0.25)));
            for (i = 0; i < 2; i++)
                CHECK_OK(ignis_backward(ignis_sum(y[i]), IGNIS_NO_ARRAY));
            CHECK_OK(ignis_tensor_to_host(y[0], expected, IGNIS_F64, count));
            CHECK_OK(ignis_tensor_to_host(y[1], got, IGNIS_F64, count));
            for (i = 0; i < count; i++) /* a quotient for a product, both rounded twice to 8 bits or more */
                CHECK((got[i] == 0) == (expected[i] == 0) && fabs(got[i] - expected[i]) <= fabs(expected[i]) / 64);
            CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x[0]), expected, IGNIS_F64, count));
            CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x[1]), got, IGNIS_F64, count));
            for (i = 0; i < count; i++)
                CHECK((got[i] == 0) == (expected[i] == 0) && fabs(got[i] - expected[i]) <= fabs(expected[i]) / 64);
            CHECK_OK(ignis_scope_end(scope));
        }
}

/*  Each rand() is another one, a name stays the same one, calls go on, and normal numbers are so distributed. */
TEST(random_numbers)
{
    static double got[MANY], more[MANY];
    double mean = 0, square = 0, third = 0, fourth = 0;
    ignis_scope scope;
    ignis_tensor x, row, y;
    int i, equal = 0, outside = 0;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_counting(IGNIS_SHAPE(MANY), IGNIS_F32, 0, true);
    CHECK_OK(ignis_tensor_to_host(ignis_map("x + rand() - rand()", IGNIS_INPUTS(x)), got, IGNIS_F64, MANY));
    for (i = 0; i < MANY; i++)
        equal += got[i] == 0, mean += got[i] / MANY, square += got[i] * got[i] / MANY;
    CHECK(equal < 3 && fabs(mean) < 0.03 && fabs(square - 1.0 / 6) < 0.015); /* 5 standard deviations and more */
    CHECK_OK(ignis_tensor_to_host(ignis_map("r = rand(); x + r - r", IGNIS_INPUTS(x)), got, IGNIS_F64, MANY));
    for (i = 0; i < MANY; i++)
        CHECK(got[i] == 0);
    CHECK_OK(ignis_tensor_to_host(ignis_map("x + randn()", IGNIS_INPUTS(x)), got, IGNIS_F64, MANY));
    CHECK_OK(ignis_tensor_to_host(ignis_map("x + randn()", IGNIS_INPUTS(x)), more, IGNIS_F64, MANY));
    for (mean = square = 0, equal = i = 0; i < MANY; i++) {
        double v = got[i];
        equal += v == more[i];
        outside += fabs(v) > 2;
        mean += v / MANY, square += v * v / MANY, third += v * v * v / MANY, fourth += v * v * v * v / MANY;
    }
    CHECK(equal < 3 && fabs(mean) < 0.08 && fabs(square - 1) < 0.12 && fabs(third) < 0.35 && fabs(fourth - 3) < 1);
    CHECK(outside > 120 && outside < 260); /* 4.6 % of them: 187 */
    /* the gradient of a sum, and sums over spread dimensions in the same pass, take the same numbers */
    row = tensor_counting(IGNIS_SHAPE(1), IGNIS_F32, 0, true);
    CHECK_OK(ignis_seed(8));
    CHECK_OK(ignis_tensor_to_host(ignis_map("x + rand()", IGNIS_INPUTS(x)), got, IGNIS_F64, MANY));
    CHECK_OK(ignis_seed(8));
    y = ignis_map_sum("rand()*(x + row + 1)", IGNIS_INPUTS(x, row));
    for (mean = 0, i = 0; i < MANY; i++)
        mean += got[i];
    CHECK(fabs(ignis_item(y) - mean) < 1e-3 * mean);
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x), more, IGNIS_F64, MANY));
    CHECK(memcmp(got, more, sizeof got) == 0);
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(row), more, IGNIS_F64, 1));
    CHECK(fabs(more[0] - mean) < 1e-3 * mean);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(random_arrays)
{
    ignis_array x;
    double got[40], sum = 0;
    int i;
    SETUP(NULL);
    x = make(IGNIS_SHAPE(5, 8), IGNIS_F32);
    CHECK_OK(ignis_array_fill(x, 3));
    CHECK_OK(ignis_seed(2));
    CHECK_OK(ignis_array_map(x, "x + rand()", IGNIS_ARRAYS(x)));
    CHECK_OK(ignis_array_to_host(x, got, IGNIS_F64, 40));
    for (i = 0; i < 40; i++)
        CHECK(got[i] >= 3 && got[i] < 4 && (i == 0 || got[i] != got[i - 1])), sum += got[i];
    CHECK(sum > 125 && sum < 155);
    CHECK_STATUS(ignis_array_map(x, "x + rand(1)", IGNIS_ARRAYS(x)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("')' is expected before '1'");
    CHECK_STATUS(ignis_array_map(x, "x + randn()*randn()*randn()*randn()*rand()", IGNIS_ARRAYS(x)),
                 IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("column 37");
    CHECK_MESSAGE_HAS("more than 8 random numbers, of which randn() is two");
    CHECK_STATUS(ignis_array_map(x, "x + normal(x, x)", IGNIS_ARRAYS(x)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_STATUS(ignis_array_map(x, "x + randm()", IGNIS_ARRAYS(x)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    drop(x);
}

/*  Each launch of a graph has its own numbers, and forward and backward the same ones. */
TEST(random_in_a_graph)
{
    ignis_tensor x, y = {0};
    ignis_graph graph;
    double got[3][64], grad[64];
    int round, i, equal = 0;
    SETUP(NULL);
    x = tensor_counting(IGNIS_SHAPE(64), IGNIS_F32, 0, true);
    CHECK_OK(ignis_array_fill(ignis_tensor_data(x), 1));
    for (round = 0; round < 2; round++) { /* the first one compiles */
        ignis_scope scope = ignis_scope_begin();
        if (round == 1)
            CHECK_OK(ignis_graph_begin());
        CHECK_OK(ignis_zero_grad(x));
        y = ignis_map("rand()*x", IGNIS_INPUTS(x));
        CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
        y = ignis_scope_return(scope, y);
        if (round == 0)
            CHECK_OK(ignis_tensor_release(y));
    }
    graph = ignis_graph_end();
    REQUIRE(graph.id != 0);
    for (round = 0; round < 3; round++) {
        CHECK_OK(ignis_graph_launch(graph));
        CHECK_OK(ignis_tensor_to_host(y, got[round], IGNIS_F64, 64));
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x), grad, IGNIS_F64, 64));
        CHECK(memcmp(got[round], grad, sizeof grad) == 0);
        for (i = 0; i < 64; i++)
            equal += round > 0 && got[round][i] == got[round - 1][i];
    }
    CHECK(equal < 2);
    CHECK_OK(ignis_graph_free(graph));
    let_go(y), let_go(x);
}

static ignis_tensor noisy(const ignis_tensor *x, int count, void *user)
{
    (void)count, (void)user;
    return ignis_map("h*h*rand()",
                     IGNIS_INPUTS(IGNIS_NAMED(h, ignis_map("x*randn()", IGNIS_INPUTS(IGNIS_NAMED(x, x[0]))))));
}

/*  What a checkpoint computes again has the same numbers. */
TEST(random_in_a_checkpoint)
{
    double grads[2][21];
    ignis_tensor x;
    int i;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(3, 7), IGNIS_F64, 4, true);
    for (i = 0; i < 2; i++) {
        ignis_scope scope = ignis_scope_begin();
        CHECK_OK(ignis_seed(3));
        CHECK_OK(ignis_zero_grad(x));
        CHECK_OK(ignis_backward(ignis_sum(i ? ignis_checkpoint(noisy, NULL, &x, 1, NULL) : noisy(&x, 1, NULL)),
                                IGNIS_NO_ARRAY));
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x), grads[i], IGNIS_F64, 21));
        CHECK_OK(ignis_scope_end(scope));
    }
    CHECK(memcmp(grads[0], grads[1], sizeof grads[0]) == 0 && grads[0][0] != 0);
    let_go(x);
}

/* --- several results ---------------------------------------------------------------------------------------------- */

static ignis_tensor call_result(const ignis_tensor *x, int count, void *user)
{
    ignis_tensor results[3], a = x[0], b = x[1], c = x[2];
    (void)count;
    if (ignis_map_many("t = tanh(a*b); t*c, a > 0, t + c/2", IGNIS_INPUTS(a, b, c), 3, results) != IGNIS_OK)
        return results[0];
    return user ? ignis_map("y + 3*z", IGNIS_INPUTS(IGNIS_NAMED(y, results[0]), IGNIS_NAMED(z, results[2])))
                : results[2];
}

TEST(results)
{
    static const ignis_dtype dtypes[] = {IGNIS_F32, IGNIS_F64, IGNIS_BF16};
    double in[3][35], got[3][35];
    ignis_tensor_info info;
    int d, i, k, both = 1;
    SETUP(NULL);
    for (d = 0; d < 3; d++) {
        static const double tolerances[] = {4e-6, 1e-13, 0.0045};
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x[3], results[3], a, b, c;
        for (k = 0; k < 3; k++) {
            x[k] = tensor_noise(k == 1 ? IGNIS_SHAPE(7) : IGNIS_SHAPE(5, 7), dtypes[d], (uint64_t)k + 1, true);
            CHECK_OK(ignis_tensor_to_host(x[k], in[k], IGNIS_F64, k == 1 ? 7 : 35));
        }
        a = x[0], b = x[1], c = x[2];
        CHECK_OK(ignis_map_many("t = tanh(a*b); t*c, a > 0, t + c/2", IGNIS_INPUTS(a, b, c), 3, results));
        for (k = 0; k < 3; k++) {
            CHECK_OK(ignis_tensor_query(results[k], &info));
            CHECK_INT(info.dtype, k == 1 ? IGNIS_U8 : dtypes[d]);
            CHECK(info.shape.ndim == 2 && info.shape.dim[0] == 5 && info.requires_grad == (k != 1));
            CHECK_OK(ignis_tensor_to_host(results[k], got[k], IGNIS_F64, 35));
        }
        for (i = 0; i < 35; i++) {
            double t = tanh(in[0][i] * in[1][i % 7]);
            CHECK(fabs(got[0][i] - t * in[2][i]) <= tolerances[d] * 2);
            CHECK(got[1][i] == (in[0][i] > 0));
            CHECK(fabs(got[2][i] - t - in[2][i] / 2) <= tolerances[d] * 2);
        }
        if (dtypes[d] == IGNIS_F64) {
            CHECK(ignis_gradcheck(call_result, &both, x, 3, NULL) < 1e-6);
            CHECK(ignis_gradcheck(call_result, NULL, x, 3, NULL) < 1e-6);
        }
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  Arrays are updated together, each from what all were before. */
TEST(results_in_place)
{
    ignis_array x[4], two[2], part;
    double got[4][13];
    int i, k;
    SETUP(NULL);
    for (k = 0; k < 4; k++) {
        float values[13];
        for (i = 0; i < 13; i++)
            values[i] = (float)(i + 100 * k);
        x[k] = make(IGNIS_SHAPE(13), k == 3 ? IGNIS_F64 : IGNIS_F32);
        CHECK_OK(ignis_array_from_host(x[k], values, IGNIS_F32, 13));
    }
    {
        ignis_array a = x[0], b = x[1], c = x[2], d = x[3];
        CHECK_OK(ignis_array_map_many(4, x, "b, a, a + k*b, d > 305", IGNIS_ARRAYS(a, b, d, IGNIS_ARRAY_VALUE(k, 2))));
        (void)c;
        for (k = 0; k < 4; k++)
            CHECK_OK(ignis_array_to_host(x[k], got[k], IGNIS_F64, 13));
        for (i = 0; i < 13; i++)
            CHECK(got[0][i] == 100 + i && got[1][i] == i && got[2][i] == 200 + 3 * i && got[3][i] == (i > 5));
        two[0] = a, two[1] = a;
        CHECK_STATUS(ignis_array_map_many(2, two, "b, b", IGNIS_ARRAYS(b)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OVERLAP);
        CHECK_MESSAGE_HAS("results 0 and 1 are in the same memory");
        part = ignis_array_slice(c, 0, 0, 12);
        two[1] = part;
        CHECK_STATUS(ignis_array_map_many(2, two, "b, b", IGNIS_ARRAYS(b)), IGNIS_ERROR_SHAPE,
                     IGNIS_DIAG_SHAPE_DIFFERS);
        CHECK_STATUS(ignis_array_map_many(2, two, "b", IGNIS_ARRAYS(b)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
        CHECK_MESSAGE_HAS("'b' has 1 results, not 2");
        CHECK_STATUS(ignis_array_map_many(0, two, "b", IGNIS_ARRAYS(b)), IGNIS_ERROR_ARGUMENT,
                     IGNIS_DIAG_COUNT_MISMATCH);
        CHECK_STATUS(ignis_array_map_many(1, NULL, "b", IGNIS_ARRAYS(b)), IGNIS_ERROR_ARGUMENT,
                     IGNIS_DIAG_NULL_ARGUMENT);
        CHECK_STATUS(ignis_array_map(a, "b, b", IGNIS_ARRAYS(b)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
        CHECK_MESSAGE_HAS("'b, b' has 2 results, not 1");
        drop(part);
    }
    for (k = 0; k < 4; k++)
        drop(x[k]);
}

TEST(results_refused)
{
    ignis_tensor a, results[20];
    SETUP(NULL);
    a = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, true);
    results[0] = a;
    CHECK_STATUS(ignis_map_many("a, a + b", IGNIS_INPUTS(a), 2, results), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("column 8");
    CHECK(results[0].id == 0 && results[1].id == 0);
    CHECK_STATUS(ignis_map_many("a", IGNIS_INPUTS(a), 17, results), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_map_many("a", IGNIS_INPUTS(a), 1, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_map_many("a, a, a", IGNIS_INPUTS(a), 2, results), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_FAILS(ignis_map_sum("a, a", IGNIS_INPUTS(a)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_STATUS(ignis_map_many("a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a", IGNIS_INPUTS(a), 16, results),
                 IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("column 33");
    CHECK_OK(ignis_map_many("a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,2*a", IGNIS_INPUTS(a), 16, results));
    {
        double grad[3];
        ignis_scope scope = ignis_scope_begin();
        CHECK_OK(ignis_backward(ignis_sum(results[15]), IGNIS_NO_ARRAY));
        CHECK_OK(ignis_scope_end(scope));
        int k;
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(a), grad, IGNIS_F64, 3));
        CHECK(grad[0] == 2 && grad[2] == 2);
        for (k = 0; k < 16; k++)
            let_go(results[k]);
    }
    let_go(a);
}

/* --- gradients that are given ------------------------------------------------------------------------------------- */

static void grads_of(const char *text, double *const *in, double (*grads)[6], double *value)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor a = tensor_of(in[0], IGNIS_SHAPE(6), IGNIS_F64, true),
                 b = tensor_of(in[1], IGNIS_SHAPE(6), IGNIS_F64, true);
    ignis_tensor y = ignis_map(text, IGNIS_INPUTS(a, b));
    CHECK_OK(ignis_tensor_to_host(y, value, IGNIS_F64, 6));
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    if (ignis_tensor_grad(a).id)
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(a), grads[0], IGNIS_F64, 6));
    if (ignis_tensor_grad(b).id)
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(b), grads[1], IGNIS_F64, 6));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(given_gradients)
{
    double a[6] = {-2.5, -1, 0, 0.4, 1, 2.6}, b[6] = {1, 2, 3, 4, 5, 6}, value[6], grads[2][6], *in[2];
    int i;
    SETUP(NULL);
    in[0] = a, in[1] = b;
    grads_of("with_grad(round(a), a)*b", in, grads, value); /* straight through */
    for (i = 0; i < 6; i++)
        CHECK(value[i] == rint(a[i]) * b[i] && grads[0][i] == b[i] && grads[1][i] == rint(a[i]));
    grads_of("with_grad(sign(a), clamp(a, -1, 1)) + b", in, grads, value); /* of a hard hyperbolic tangent */
    for (i = 0; i < 6; i++)
        CHECK(grads[0][i] == (fabs(a[i]) <= 1) && grads[1][i] == 1);
    grads_of("detach(a*b)*b + a", in, grads, value);
    for (i = 0; i < 6; i++)
        CHECK(value[i] == a[i] * b[i] * b[i] + a[i] && grads[0][i] == 1 && grads[1][i] == a[i] * b[i]);
    grads_of("with_grad(log(a), a*detach(7*b) + b*detach(a))", in, grads, value); /* two gradients written down */
    for (i = 0; i < 6; i++)
        CHECK((isnan(value[i]) || value[i] == -HUGE_VAL || fabs(value[i] - log(a[i])) < 1e-15) &&
              grads[0][i] == 7 * b[i] && grads[1][i] == a[i]);
    grads_of("with_grad(a, sqrt(a - 10)*0 + b) + 0*b", in, grads,
             value); /* the value of what only gives the gradient is not computed */
    for (i = 0; i < 6; i++)
        CHECK(value[i] == a[i] && grads[1][i] == 1);
}

/* --- quotients of 16 bits ----------------------------------------------------------------------------------------- */

/*  Quotients that are whole numbers are exact, as floor and comparisons may follow; those by zero and infinity are what
    IEEE 754 says. */
TEST(quotients_of_16_bits)
{
    static const double special[6][3] = {{1, 0, HUGE_VAL}, {-1, 0, -HUGE_VAL}, {HUGE_VAL, 2, HUGE_VAL},
                                         {3, HUGE_VAL, 0}, {0, 5, 0},          {-HUGE_VAL, -4, HUGE_VAL}};
    static double a[4096], b[4096], got[4096];
    ignis_tensor x, y;
    ignis_scope scope;
    int i, d;
    SETUP(NULL);
    for (d = 0; d < 2; d++) {
        ignis_dtype dtype = d ? IGNIS_F16 : IGNIS_BF16;
        scope = ignis_scope_begin();
        for (i = 0; i < 4096;
             i++) { /* quotients up to 256 by 1 to 256 have at most 8 bits in what is divided, or index has them all */
            b[i] = 1 + i % 256;
            a[i] = i / 256;
        }
        x = tensor_of(a, IGNIS_SHAPE(4096), dtype, false);
        y = tensor_of(b, IGNIS_SHAPE(4096), dtype, false);
        CHECK_OK(ignis_tensor_to_host(ignis_map("floor(x*y/y) + 0*x", IGNIS_INPUTS(x, y)), got, IGNIS_F64, 4096));
        for (i = 0; i < 4096; i++)
            CHECK(got[i] == a[i]);
        CHECK_OK(ignis_tensor_to_host(
            ignis_map("floor(index(0)/y) == (index(0) - index(0) % y)/y ? x : -1", IGNIS_INPUTS(x, y)), got, IGNIS_F64,
            4096));
        for (i = 0; i < 4096; i++)
            CHECK(got[i] == a[i]);
        for (i = 0; i < 6; i++)
            a[i] = special[i][0], b[i] = special[i][1];
        x = tensor_of(a, IGNIS_SHAPE(6), dtype, false);
        y = tensor_of(b, IGNIS_SHAPE(6), dtype, false);
        CHECK_OK(ignis_tensor_to_host(ignis_map("x/y", IGNIS_INPUTS(x, y)), got, IGNIS_F64, 6));
        for (i = 0; i < 6; i++)
            CHECK(got[i] == special[i][2]);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  pow of 16 bits is what C's is, with all signs and special numbers but for the sign of a zero. */
TEST(powers_of_16_bits)
{
    static const double bases[] = {-HUGE_VAL, -3, -2.5, -1, -0.375, 0, 0.375, 1, 2.5, 300, HUGE_VAL, NAN};
    static const double powers[] = {-3, -2, -1.5, -1, 0, 0.25, 1, 1.5, 2, 3, 4, NAN};
    double got[144], x[144], y[144];
    ignis_scope scope;
    ignis_tensor a, b;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (i = 0; i < 144; i++)
        x[i] = bases[i / 12], y[i] = powers[i % 12];
    a = tensor_of(x, IGNIS_SHAPE(144), IGNIS_BF16, false);
    b = tensor_of(y, IGNIS_SHAPE(144), IGNIS_BF16, false);
    CHECK_OK(ignis_tensor_to_host(a, x, IGNIS_F64, 144));
    CHECK_OK(ignis_tensor_to_host(ignis_map("pow(a, b)", IGNIS_INPUTS(a, b)), got, IGNIS_F64, 144));
    for (i = 0; i < 144; i++) {
        double expected = pow(x[i], y[i]);
        bool is_near = isnan(expected)
                           ? isnan(got[i])
                           : got[i] == expected || fabs(got[i] - expected) <= (1.0 / 256 + 1.0 / 8192) * fabs(expected);
        if (!is_near)
            printf("pow(%g, %g) is %g, expected %g\n", x[i], y[i], got[i], expected);
        CHECK(is_near);
    }
    CHECK_OK(ignis_scope_end(scope));
}

/* --- gradients of products ---------------------------------------------------------------------------------------- */

/*  Rows with no zero, with one, with two, with a zero of either sign, and with numbers whose product is small: prod of
    all others. */
TEST(gradients_of_prod)
{
    static const double rows[6][7] = {{1, 2, -3, 0.5, 1, -1, 4}, {1, 2, 0, 0.5, 1, -1, 4},
                                      {0, 2, 3, 0.5, 0, -1, 4},  {-0.0, 2, 3, 0.5, 1, -1, 4},
                                      {0, 0, 0, 0, 0, 0, 0},     {1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1}};
    static const ignis_dtype dtypes[] = {IGNIS_F64, IGNIS_F32, IGNIS_F16};
    static const double tolerances[] = {1e-14, 1e-6, 1e-3}; /* a few roundings; in f16 that of the result */
    int d, i, k, j, columns;
    SETUP(NULL);
    for (d = 0; d < 3; d++)
        for (columns = 0; columns < 2; columns++) {
            ignis_reduce_desc along = {{0}, 1, false};
            ignis_scope scope = ignis_scope_begin();
            double values[42], got[42], product[6];
            ignis_tensor x, y;
            along.dims[0] = columns ? 0 : -1;
            for (i = 0; i < 42; i++)
                values[columns ? i % 7 * 6 + i / 7 : i] = rows[i / 7][i % 7];
            x = tensor_of(values, columns ? IGNIS_SHAPE(7, 6) : IGNIS_SHAPE(6, 7), dtypes[d], true);
            y = ignis_map_reduce(IGNIS_REDUCE_PROD, "2*x", IGNIS_INPUTS(x), &along);
            CHECK_OK(ignis_tensor_to_host(y, product, IGNIS_F64, 6));
            CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
            CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x), got, IGNIS_F64, 42));
            for (i = 0; i < 6; i++) {
                double all = 128;
                for (k = 0; k < 7; k++) {
                    double others = 128, found = got[columns ? k * 6 + i : i * 7 + k];
                    for (j = 0; j < 7; j++)
                        others *= j == k ? 1 : rows[i][j];
                    all *= rows[i][k];
                    CHECK(fabs(found - others) <= tolerances[d] * (fabs(others) + (d == 2 ? 1e-3 : 0)));
                }
                CHECK(fabs(product[i] - all) <= tolerances[d] * (fabs(all) + (d == 2 ? 1e-3 : 0)));
            }
            CHECK_OK(ignis_scope_end(scope));
        }
}

static ignis_tensor call_prod(const ignis_tensor *x, int count, void *user)
{
    ignis_tensor a = x[0], b = x[1];
    (void)count;
    return ignis_map_reduce(IGNIS_REDUCE_PROD, "a*b + 1", IGNIS_INPUTS(a, b), (const ignis_reduce_desc *)user);
}

/*  Reducers that need one step make dimensions neighbours first. Positions are those in the reduced dimensions. */
TEST(positions_around_a_dimension)
{
    static const double values[] = {1, 2, 0, 7, 5, 5, 3, 9, -1, 7, 5, 4}; /* [2, 3, 2] */
    static const ignis_reduce_desc descs[] = {{{0, 2}, 2, false}, {{2, 0}, 2, true}};
    static const double most[] = {9, 7, 5}, at[] = {3, 1, 0};
    int i, k;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(float_dtypes); k++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_of(values, IGNIS_SHAPE(2, 3, 2), float_dtypes[k], true), y, z;
        y = ignis_map_reduce(IGNIS_REDUCE_MAX, "x", IGNIS_INPUTS(x), &descs[k % 2]);
        z = ignis_map_reduce(IGNIS_REDUCE_ARGMAX, "x", IGNIS_INPUTS(x), &descs[k % 2]);
        CHECK_INT(tensor_info(y).dtype, float_dtypes[k]);
        CHECK_INT(tensor_info(z).dtype, IGNIS_I64);
        CHECK_SHAPE_IS(z, k % 2 ? IGNIS_SHAPE(1, 3, 1) : IGNIS_SHAPE(3));
        CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
        for (i = 0; i < 3; i++) {
            CHECK_NUMBER(value_at(y, i), most[i]);
            CHECK_NUMBER(value_at(z, i), at[i]);
        }
        for (i = 0; i < 12; i++)
            CHECK_NUMBER(grad_at(x, i), i == 7 || i == 3 || i == 4);
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(gradients_of_prod_checked)
{
    static ignis_reduce_desc descs[] = {
        {{0}, 0, false}, {{0}, 1, false}, {{1}, 1, true}, {{1, 2}, 2, false}, {{0, 2}, 2, false}};
    ignis_tensor x[2];
    int n;
    SETUP(NULL);
    x[0] = tensor_noise(IGNIS_SHAPE(3, 5, 2), IGNIS_F64, 3, true);
    x[1] = tensor_noise(IGNIS_SHAPE(5, 1), IGNIS_F64, 4, true);
    for (n = 0; n < COUNT_OF(descs); n++)
        CHECK(ignis_gradcheck(call_prod, &descs[n], x, 2, NULL) < 1e-6);
    {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor long_one = tensor_counting(IGNIS_SHAPE(300001), IGNIS_F32, 0, true),
                     y; /* in parts, of ones and a zero */
        static double got[300001];
        int i;
        for (i = 0; i < 300001; i++)
            got[i] = i == 200000 ? 0 : 1;
        CHECK_OK(ignis_array_from_host(ignis_tensor_data(long_one), got, IGNIS_F64, 300001));
        y = ignis_map_reduce(IGNIS_REDUCE_PROD, "x", IGNIS_INPUTS(IGNIS_NAMED(x, long_one)), NULL);
        CHECK(ignis_item(y) == 0);
        CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(long_one), got, IGNIS_F64, 300001));
        for (i = 0; i < 300001; i++)
            CHECK(got[i] == (i == 200000));
        CHECK_OK(ignis_scope_end(scope));
    }
    let_go(x[0]), let_go(x[1]);
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

/*  Runs formulas with `blanks` blanks before them: each number of blanks is parsed and emitted anew, although the
    images are in the cache. */
static ignis_tensor everything(int blanks, const ignis_tensor *inputs)
{
    const ignis_tensor x = inputs[0];
    static const ignis_reduce_desc last = {{-1}, 1, true};
    char text[2][2100];
    ignis_tensor results[2], a = {0}, b;
    snprintf(text[0], sizeof text[0], "%*sx*rand(), x*x", blanks, "");
    snprintf(text[1], sizeof text[1], "%*sa + b", blanks, "");
    if (ignis_map_many(text[0], IGNIS_INPUTS(x), 2, results) != IGNIS_OK)
        return a;
    a = results[0];
    b = ignis_map_reduce(IGNIS_REDUCE_PROD, "x", IGNIS_INPUTS(IGNIS_NAMED(x, results[1])), &last);
    return ignis_map_sum(text[1], IGNIS_INPUTS(a, b));
}

static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor x;
    SETUP(&desc);
    x = tensor_noise(IGNIS_SHAPE(3, 4), IGNIS_F32, 1, true);
    sweep_walks(prefix, &counter, everything, &x);
    let_go(x);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_device_allocation_fails_once) { sweep("cuMemAlloc"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
