// SPDX-License-Identifier: MIT
/*  test_random.c - distributions beside their laws, and sequences of random numbers that are saved and continued

    Seeds are fixed, so a test gives the same every time. Kolmogorov-Smirnov: n samples of a law are further from it
    than 1.95 / sqrt(n) with a probability of 0.001. Chi-square: df degrees of freedom, above df + 4.5 sqrt(2 df) as
    rarely. */
#include "sweep.h"

#include <math.h>

enum { SAMPLES = 4000 };

/* --- laws --------------------------------------------------------------------------------------------------------- */

/*  The regularised lower incomplete gamma function: a series below a + 1, a continued fraction above. */
static double gamma_law(double x, double a, double unused)
{
    double sum = 1 / a, term = sum, b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    int k;
    (void)unused;
    if (x <= 0)
        return 0;
    if (x < a + 1) {
        for (k = 1; k < 500; k++)
            sum += term *= x / (a + k);
        return sum * exp(a * log(x) - x - lgamma(a));
    }
    for (k = 1; k < 500; k++) {
        double an = -k * (k - a);
        b += 2;
        d = 1 / (an * d + b), c = b + an / c;
        h *= d * c;
    }
    return 1 - h * exp(a * log(x) - x - lgamma(a));
}

/*  The regularised incomplete beta function, by the trapezoidal rule in t = log(x / (1 - x)), where the density falls
    exponentially on both sides. */
static double beta_law(double x, double a, double b)
{
    double end = log(x) - log1p(-x), low = -700 / a, sum = 0, step, t;
    int k, count = 20000;
    if (x <= 0 || x >= 1)
        return x > 0;
    low = low < end - 60 / a - 60 ? end - 60 / a - 60 : low;
    step = (end - low) / count;
    for (k = 0; k <= count; k++) {
        t = low + k * step;
        sum += (k == 0 || k == count ? 0.5 : 1) * exp(-a * (t < 0 ? log1p(exp(t)) - t : log1p(exp(-t))) -
                                                      b * (t > 0 ? t + log1p(exp(-t)) : log1p(exp(t))));
    }
    return sum * step * exp(lgamma(a + b) - lgamma(a) - lgamma(b));
}

static double exponential_law(double x, double rate, double unused) { return (void)unused, 1 - exp(-rate * x); }
static double uniform_law(double x, double low, double high) { return (x - low) / (high - low); }

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/*  The distance of n samples from a law, which are put in order. */
static double distance_from(double *x, int n, double (*law)(double x, double a, double b), double a, double b)
{
    double worst = 0;
    int i;
    qsort(x, (size_t)n, sizeof *x, by_size);
    for (i = 0; i < n; i++) {
        double f = law(x[i], a, b);
        worst = fmax(worst, fmax(f - (double)i / n, (double)(i + 1) / n - f));
    }
    return worst;
}

#define CHECK_LAW(tensor, law, a, b) check_law(__LINE__, tensor, law, a, b)
static void check_law(int line, ignis_tensor tensor, double (*law)(double x, double a, double b), double a, double b)
{
    double *x = tensor_values(tensor), far = distance_from(x, SAMPLES, law, a, b);
    char text[120];
    snprintf(text, sizeof text, "the distance from the law of %g, %g is %g", a, b, far);
    if (!(far < 1.95 / sqrt(SAMPLES)))
        test__fail(__FILE__, line, text);
    free(x);
}

static ignis_tensor constant_of(double value, ignis_dtype dtype)
{
    return ignis_map_shape("value", IGNIS_SHAPE(SAMPLES), IGNIS_INPUTS(IGNIS_VALUE(value, value)),
                           &(ignis_tensor_desc){.dtype = dtype});
}

TEST(exponential_gamma_and_beta)
{
    static const double shapes[] = {0.05, 0.5, 1, 1.5, 4, 30, 1000};
    static const double betas[][2] = {{0.5, 0.5}, {1, 3}, {0.2, 5}, {2, 2}, {40, 7}};
    ignis_scope scope;
    int i, d;
    SETUP(NULL);
    for (d = 0; d < 2; d++) {
        CHECK_OK(ignis_seed(4));
        scope = ignis_scope_begin();
        CHECK_LAW(ignis_tensor_exponential(0.5, IGNIS_SHAPE(SAMPLES), &(ignis_tensor_desc){.dtype = float_dtypes[d]}),
                  exponential_law, 0.5, 0);
        for (i = 0; i < COUNT_OF(shapes); i++)
            CHECK_LAW(ignis_gamma(constant_of(shapes[i], float_dtypes[d])), gamma_law, shapes[i], 0);
        for (i = 0; i < COUNT_OF(betas); i++)
            CHECK_LAW(ignis_beta(constant_of(betas[i][0], float_dtypes[d]), constant_of(betas[i][1], float_dtypes[d])),
                      beta_law, betas[i][0], betas[i][1]);
        CHECK_OK(ignis_scope_end(scope));
    }
    for (d = 0; d < 4;
         d++) { /* moments, in all dtypes: a mean has an error of 4 deviations / sqrt(n), and a rounding */
        double mean = 0, *x;
        scope = ignis_scope_begin();
        x = tensor_values(ignis_gamma(constant_of(4, float_dtypes[d])));
        for (i = 0; i < SAMPLES; i++)
            mean += x[i] / SAMPLES;
        CHECK(fabs(mean - 4) < 4 * 2 / sqrt(SAMPLES) + 0.02);
        free(x);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  counts beside expected numbers; those below 5 are put together. */
static void check_counts(int line, const double *counts, const double *expected, int n)
{
    double sum = 0, rest = 0, rest_expected = 0;
    int k, df = -1;
    char text[120];
    for (k = 0; k < n; k++) {
        if (expected[k] < 5) {
            rest += counts[k], rest_expected += expected[k];
            continue;
        }
        sum += (counts[k] - expected[k]) * (counts[k] - expected[k]) / expected[k];
        df++;
    }
    if (rest_expected > 0.5)
        sum += (rest - rest_expected) * (rest - rest_expected) / rest_expected, df++;
    snprintf(text, sizeof text, "chi-square is %g of %d degrees of freedom", sum, df);
    if (sum > df + 4.5 * sqrt(2.0 * df))
        test__fail(__FILE__, line, text);
}

TEST(poisson)
{
    enum { MOST = 400 };
    static const double rates[] = {0.3, 4, 9.9, 10, 25, 180};
    static const double odd[] = {0, -1, NAN};
    ignis_scope scope;
    ignis_tensor y;
    int r, i;
    SETUP(NULL);
    CHECK_OK(ignis_seed(1));
    for (r = 0; r < COUNT_OF(rates); r++) {
        double counts[MOST] = {0}, expected[MOST], *x;
        scope = ignis_scope_begin();
        x = tensor_values(ignis_poisson(constant_of(rates[r], r % 2 ? IGNIS_F32 : IGNIS_F64)));
        for (i = 0; i < SAMPLES; i++) {
            CHECK(x[i] >= 0 && x[i] < MOST && x[i] == floor(x[i]));
            counts[(int)x[i]]++;
        }
        for (i = 0; i < MOST; i++)
            expected[i] = SAMPLES * exp(i * log(rates[r]) - rates[r] - lgamma(i + 1.0));
        check_counts(__LINE__, counts, expected, MOST);
        free(x);
        CHECK_OK(ignis_scope_end(scope));
    }
    scope = ignis_scope_begin();
    y = ignis_poisson(tensor_of(odd, IGNIS_SHAPE(3), IGNIS_F32, false));
    CHECK_NUMBER(value_at(y, 0), 0);
    CHECK_NUMBER(value_at(y, 1), NAN);
    CHECK_NUMBER(value_at(y, 2), NAN);
    CHECK_SHAPE_IS(ignis_poisson(ignis_tensor_zeros(IGNIS_SHAPE(0, 3), NULL)), IGNIS_SHAPE(0, 3));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(randint_and_permutation)
{
    static const ignis_dtype dtypes[] = {IGNIS_I64, IGNIS_I32, IGNIS_U8};
    static const int64_t sizes[] = {0, 1, 2, 300, 5000};
    ignis_scope scope;
    int d, i;
    SETUP(NULL);
    CHECK_OK(ignis_seed(8));
    for (d = 0; d < 3; d++) {
        double counts[10] = {0}, expected[10], *x;
        scope = ignis_scope_begin();
        x = tensor_values(ignis_tensor_randint(d == 2 ? 3 : -5, d == 2 ? 13 : 5, IGNIS_SHAPE(40, 100),
                                               &(ignis_tensor_desc){.dtype = dtypes[d]}));
        for (i = 0; i < SAMPLES; i++)
            counts[(int)x[i] - (d == 2 ? 3 : -5)]++;
        for (i = 0; i < 10; i++)
            expected[i] = SAMPLES / 10.0;
        check_counts(__LINE__, counts, expected, 10);
        free(x);
        CHECK_OK(ignis_scope_end(scope));
    }
    scope = ignis_scope_begin();
    CHECK_LAW(ignis_tensor_randint(INT64_MIN, INT64_MAX, IGNIS_SHAPE(SAMPLES), NULL), uniform_law,
              -9223372036854775808.0, 9223372036854775808.0);
    CHECK_NUMBER(value_at(ignis_tensor_randint(7, 8, IGNIS_SHAPE(1), NULL), 0), 7);
    for (d = 0; d < COUNT_OF(sizes); d++) {
        ignis_tensor y = ignis_tensor_permutation(sizes[d], NULL);
        double *x = tensor_values(y), moved = 0;
        CHECK_INT(tensor_info(y).dtype, IGNIS_I64);
        for (i = 0; i < sizes[d]; i++)
            moved += x[i] != i;
        CHECK(sizes[d] < 300 || moved > 0.9 * (double)sizes[d]);
        qsort(x, (size_t)sizes[d], sizeof *x, by_size);
        for (i = 0; i < sizes[d]; i++)
            CHECK_NUMBER(x[i], i);
        free(x);
    }
    CHECK_OK(ignis_scope_end(scope));
}

TEST(categorical)
{
    static const double weights[] = {0, 1, 2, 0, 0.5, 0, 1.5, 0};
    int d, i, k;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        double counts[8] = {0}, expected[8], *x;
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor w = tensor_of(weights, IGNIS_SHAPE(8), float_dtypes[d], false), y, rows;
        CHECK_OK(ignis_seed(2));
        y = ignis_categorical(w, SAMPLES, true);
        CHECK_SHAPE_IS(y, IGNIS_SHAPE(SAMPLES));
        x = tensor_values(y);
        for (i = 0; i < SAMPLES; i++)
            counts[(int)x[i]]++;
        for (k = 0; k < 8; k++) {
            expected[k] = weights[k] / 5 * SAMPLES;
            CHECK(weights[k] > 0 || counts[k] == 0);
        }
        check_counts(__LINE__, counts, expected, 8);
        free(x);
        /* without replacement: the first draw has the same law, the others differ from it and from each other */
        memset(counts, 0, sizeof counts);
        rows = ignis_expand(ignis_reshape(w, IGNIS_SHAPE(1, 8)), IGNIS_SHAPE(1000, 8));
        y = ignis_categorical(rows, 4, false);
        CHECK_SHAPE_IS(y, IGNIS_SHAPE(1000, 4));
        x = tensor_values(y);
        for (i = 0; i < 1000; i++) {
            unsigned seen = 0;
            counts[(int)x[4 * i]]++;
            for (k = 0; k < 4; k++)
                seen |= 1u << (int)x[4 * i + k];
            CHECK_INT(seen, 1 << 1 | 1 << 2 | 1 << 4 | 1 << 6);
        }
        for (k = 0; k < 8; k++)
            expected[k] = weights[k] / 5 * 1000;
        check_counts(__LINE__, counts, expected, 8);
        free(x);
        CHECK_NUMBER(value_at(ignis_categorical(ignis_scale(w, 0), 1, true), 0), -1);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/* --- states ------------------------------------------------------------------------------------------------------- */

/*  One of each kind of random numbers, and a mask. */
static ignis_tensor some_numbers(ignis_tensor x)
{
    ignis_tensor a = ignis_dropout(x, 0.3), b = ignis_map("x*rand()", IGNIS_INPUTS(x));
    ignis_tensor c = ignis_gamma(ignis_map("abs(x) + 0.1", IGNIS_INPUTS(x)));
    ignis_tensor d = ignis_tensor_randn(IGNIS_SHAPE(64), NULL), e = ignis_tensor_randint(0, 9, IGNIS_SHAPE(64), NULL);
    return ignis_map("a + 2*b + 4*c + 8*d + 16*e", IGNIS_INPUTS(a, b, c, d, e));
}

TEST(a_state_is_continued)
{
    float unbroken[64], again[64];
    ignis_random_state state;
    ignis_scope scope;
    ignis_tensor x;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(64), IGNIS_F32, 3, false);
    CHECK_OK(ignis_seed(77));
    (void)some_numbers(x);
    state = ignis_random_save();
    CHECK(state.seed == 77 && state.position > 0);
    CHECK_OK(ignis_tensor_to_host(some_numbers(x), unbroken, IGNIS_F32, 64));
    CHECK_OK(ignis_seed(5));
    (void)some_numbers(x);
    CHECK_OK(ignis_random_restore(state));
    CHECK_OK(ignis_tensor_to_host(some_numbers(x), again, IGNIS_F32, 64));
    CHECK(memcmp(unbroken, again, sizeof again) == 0);
    CHECK_OK(ignis_tensor_to_host(some_numbers(x), again, IGNIS_F32, 64));
    CHECK(memcmp(unbroken, again, sizeof again) != 0);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_graph captured_numbers(ignis_tensor x, ignis_tensor *y)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_graph graph;
    CHECK_OK(ignis_graph_begin());
    *y = some_numbers(x);
    graph = ignis_graph_end();
    *y = ignis_scope_return(scope, *y);
    return graph;
}

/*  A second capture, as a resumed program makes it, goes on with the fourth launch. */
TEST(a_graph_is_continued)
{
    float unbroken[5][64], again[64];
    ignis_random_state before;
    ignis_graph first, second;
    ignis_scope scope;
    ignis_tensor x, y, z;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(64), IGNIS_F32, 3, false);
    (void)some_numbers(x);
    before = ignis_random_save();
    first = captured_numbers(x, &y);
    CHECK_INT(ignis_graph_launches(first), 0);
    for (i = 0; i < 5; i++) {
        CHECK_OK(ignis_graph_launch(first));
        CHECK_OK(ignis_tensor_to_host(y, unbroken[i], IGNIS_F32, 64));
        CHECK(i == 0 || memcmp(unbroken[i], unbroken[i - 1], sizeof again) != 0);
    }
    CHECK_INT(ignis_graph_launches(first), 5);
    CHECK_OK(ignis_random_restore(before));
    second = captured_numbers(x, &z);
    CHECK_OK(ignis_graph_set_launches(second, 3));
    CHECK_INT(ignis_graph_launches(second), 3);
    for (i = 3; i < 5; i++) {
        CHECK_OK(ignis_graph_launch(second));
        CHECK_OK(ignis_tensor_to_host(z, again, IGNIS_F32, 64));
        CHECK(memcmp(unbroken[i], again, sizeof again) == 0);
    }
    CHECK_REFUSED(1, ignis_graph_set_launches(second, -1) != IGNIS_OK, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_OK(ignis_graph_free(first));
    CHECK_OK(ignis_graph_free(second));
    CHECK_REFUSED(-1, ignis_graph_launches(first), IGNIS_ERROR_FREED, IGNIS_DIAG_GRAPH_FREED);
    CHECK_REFUSED(1, ignis_graph_set_launches(first, 1) != IGNIS_OK, IGNIS_ERROR_FREED, IGNIS_DIAG_GRAPH_FREED);
    let_go(y);
    let_go(z);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- formulas without tensors ------------------------------------------------------------------------------------- */

TEST(map_shape)
{
    ignis_tensor_desc bytes;
    ignis_scope scope;
    ignis_tensor y, x;
    double *got;
    int i, above = 0;
    SETUP(NULL);
    scope = ignis_scope_begin();
    memset(&bytes, 0, sizeof bytes);
    bytes.dtype = IGNIS_U8;
    y = ignis_map_shape("index(0)*10 + index(-1) + a", IGNIS_SHAPE(3, 1, 4), IGNIS_INPUTS(IGNIS_VALUE(a, 0.5)), NULL);
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(3, 1, 4));
    CHECK_INT(tensor_info(y).dtype, IGNIS_F32);
    for (i = 0; i < 12; i++)
        CHECK_NUMBER(value_at(y, i), i / 4 * 10 + i % 4 + 0.5);
    y = ignis_map_shape("index(0) == index(1)", IGNIS_SHAPE(3, 3), IGNIS_NO_INPUTS, &bytes);
    for (i = 0; i < 9; i++)
        CHECK_NUMBER(value_at(y, i), i % 4 == 0);
    CHECK_LAW(ignis_map_shape("rand()", IGNIS_SHAPE(SAMPLES), IGNIS_NO_INPUTS, NULL), uniform_law, 0, 1);
    y = ignis_map_shape("rand() < 0.25", IGNIS_SHAPE(1, 1, 1, 1, 1, 1, SAMPLES, 1), IGNIS_NO_INPUTS, &bytes);
    got = tensor_values(y);
    for (i = 0; i < SAMPLES; i++)
        above += got[i] != 0;
    CHECK(abs(above - SAMPLES / 4) < 4 * sqrt(SAMPLES * 0.1875));
    free(got);
    CHECK_SHAPE_IS(ignis_map_shape("1", IGNIS_SHAPE(0, 2), IGNIS_NO_INPUTS, NULL), IGNIS_SHAPE(0, 2));
    CHECK_NUMBER(value_at(ignis_map_shape("(0xff ^ 0x0f) << 1 | 1.5f > 1", IGNIS_SHAPE(1), IGNIS_NO_INPUTS, NULL), 0),
                 481);
    x = tensor_counting(IGNIS_SHAPE(2), IGNIS_F32, 1, false);
    CHECK_REFUSED(0, ignis_map_shape("x", IGNIS_SHAPE(2), IGNIS_INPUTS(x), NULL).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_FORMULA);
    CHECK_REFUSED(0, ignis_map_shape("x", IGNIS_SHAPE(2), IGNIS_NO_INPUTS, NULL).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_FORMULA);
    CHECK_REFUSED(0, ignis_map("a", IGNIS_INPUTS(IGNIS_VALUE(a, 1))).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_FORMULA);
    CHECK_MESSAGE_HAS("ignis_map_shape");
    CHECK_OK(ignis_scope_end(scope));
}

/* --- refusals, memory --------------------------------------------------------------------------------------------- */

TEST(refusals)
{
    ignis_scope scope;
    ignis_tensor x, ints;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, false);
    ints = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_I32, 1, false);
    CHECK_REFUSED(0, ignis_poisson(ints).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_gamma(ints).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_beta(x, ints).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_beta(x, ignis_slice(x, 0, 0, 1)).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_categorical(ints, 1, true).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_categorical(x, -1, true).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_categorical(x, 4, false).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_categorical(ignis_tensor_zeros(IGNIS_SHAPE(2, 0), NULL), 1, true).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_tensor_randint(3, 3, IGNIS_SHAPE(2), NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_tensor_randint(0, 257, IGNIS_SHAPE(2), &(ignis_tensor_desc){.dtype = IGNIS_U8}).id,
                  IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("low is 0, high is 257; expected low below high, within u8");
    CHECK_REFUSED(0, ignis_tensor_randint(0, 5, IGNIS_SHAPE(2), &(ignis_tensor_desc){.dtype = IGNIS_F32}).id,
                  IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_tensor_exponential(0, IGNIS_SHAPE(2), NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_tensor_exponential(1, IGNIS_SHAPE(2), &(ignis_tensor_desc){.dtype = IGNIS_I32}).id,
                  IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_tensor_permutation(-1, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_tensor_permutation(3, &(ignis_tensor_desc){.dtype = IGNIS_F32}).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    ignis_tensor made[9];
    int i;
    (void)at;
    memset(made, 0, sizeof made);
    made[0] = ignis_beta(inputs[0], inputs[0]);
    made[1] = made[0].id ? ignis_categorical(inputs[0], 2, true) : made[0];
    made[2] = made[1].id ? ignis_categorical(inputs[0], 2, false) : made[1];
    made[3] = made[2].id ? ignis_tensor_permutation(5, NULL) : made[2];
    made[4] = made[3].id ? ignis_map_shape("rand()", IGNIS_SHAPE(5), IGNIS_NO_INPUTS, NULL) : made[3];
    made[5] = made[4].id ? ignis_gamma(inputs[0]) : made[4];
    made[6] = made[5].id ? ignis_poisson(inputs[0]) : made[5];
    made[7] = made[6].id ? ignis_tensor_randint(0, 4, IGNIS_SHAPE(3), NULL) : made[6];
    made[8] = made[7].id ? ignis_tensor_exponential(1, IGNIS_SHAPE(3), NULL) : made[7];
    for (i = 0; i < 9; i++)
        if (!made[i].id)
            return made[i];
    return ignis_sum(ignis_mul(inputs[0], made[0]));
}

static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor input;
    SETUP(&desc);
    input = tensor_counting(IGNIS_SHAPE(4), IGNIS_F32, 1, true);
    sweep_walks(prefix, &counter, everything, &input);
    let_go(input);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
