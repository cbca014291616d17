// SPDX-License-Identifier: MIT
/*  test_formula_table.c - each formula of a table: compared with the same expression in C, in double; its gradients in
    f64 with finite differences, and in f32 and bf16 with those of f64. */
#include "formulas.h"
#include "near.h"

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }
static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

/*  Newton steps on erf. */
static double erfinv_of(double y)
{
    double x = 0;
    int k;
    for (k = 0; k < 60; k++)
        x -= (erf(x) - y) * 0.88622692545275801 * exp(x * x);
    return x;
}

/*  Up to 60 by recurrence, from where on two terms of the series are enough; below 0 likewise, to the other side. */
static double digamma_of(double x)
{
    double sum = 0;
    for (; x < 60; x++)
        sum -= 1 / x;
    return sum + log(x) - 0.5 / x - 1 / (12 * x * x) + 1 / (120 * x * x * x * x) - 1 / (252 * pow(x, 6));
}

#define REFERENCE(number, text, expression) \
    static double reference_##number(double a, double b, double c) { return (void)a, (void)b, (void)c, (expression); }
FORMULAS(REFERENCE)

typedef struct formula_case {
    const char *text;
    double (*reference)(double a, double b, double c);
} formula_case;

#define ROW(number, text, expression) {text, reference_##number},
static const formula_case formulas[] = {FORMULAS(ROW)};

enum { COUNT = 19 };

static ignis_tensor call_formula(const ignis_tensor *x, int count, void *user)
{
    ignis_tensor a = x[0], b = x[1], c = x[2];
    (void)count;
    return ignis_map(*(const char *const *)user, IGNIS_INPUTS(a, b, c));
}

/*  Input k of a case: odd multiples of 1/256, exact in bf16, of which those of two inputs are never equal, nor are
    kinks of the table. */
static void inputs_of(int k, double *values)
{
    int i;
    for (i = 0; i < COUNT; i++)
        values[i] = (8 * (4 + (i * (7 + 4 * k) + 5 * k) % 28) + 2 * k + 1) / 256.0;
}

/*  The value of a formula of a, b, c in a dtype, and its gradients by all three. */
static void run_formula(const char *text, ignis_dtype dtype, double *const *in, double *value, double (*grads)[COUNT])
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x[3], y, one;
    double ones[COUNT];
    int i;
    for (i = 0; i < COUNT; i++)
        ones[i] = 1;
    for (i = 0; i < 3; i++)
        x[i] = tensor_of(in[i], IGNIS_SHAPE(COUNT), dtype, true);
    y = call_formula(x, 3, &text);
    one = tensor_of(ones, IGNIS_SHAPE(COUNT), dtype, false);
    CHECK_OK(ignis_tensor_to_host(y, value, IGNIS_F64, COUNT));
    CHECK_OK(ignis_backward(y, ignis_tensor_data(one)));
    for (i = 0; i < 3; i++)
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x[i]), grads[i], IGNIS_F64, COUNT));
    CHECK_OK(ignis_scope_end(scope));
}

static void check_formulas(int first, int last)
{
    static const ignis_dtype dtypes[] = {IGNIS_F64, IGNIS_F32, IGNIS_BF16};
    /* Rounding of double; of float through a few operations; to bf16, whose last bit is 2^-8, beside its shorter
       functions. */
    static const double tolerances[] = {1e-13, 4e-6, 0.0045};
    double values[3][COUNT], *in[3], expected[COUNT], value[COUNT], exact[3][COUNT], grads[3][COUNT];
    int n, d, i;
    for (i = 0; i < 3; i++)
        inputs_of(i, in[i] = values[i]);
    for (n = first; n < last && n < COUNT_OF(formulas); n++) {
        const char *text = formulas[n].text;
        ignis_tensor x[3];
        for (i = 0; i < COUNT; i++)
            expected[i] = formulas[n].reference(in[0][i], in[1][i], in[2][i]);
        for (d = 0; d < 3; d++) {
            if (test_is_simulator() && d == 1 + n % 2)
                continue; /* where to compile is slow: one of f32 and bf16 */
            run_formula(text, dtypes[d], in, value, d == 0 ? exact : grads);
            check_near(text, ignis_dtype_name(dtypes[d]), value, expected, COUNT, tolerances[d]);
            for (i = 0; i < 3 && d > 0; i++)
                check_near(text, "gradient", grads[i], exact[i], COUNT, 2 * tolerances[d]);
        }
        for (i = 0; i < 3; i++)
            x[i] = tensor_of(in[i], IGNIS_SHAPE(COUNT), IGNIS_F64, true);
        if (n != 54) /* whose sum is so large that differences have no digits left */
            CHECK(ignis_gradcheck(call_formula, &text, x, 3, NULL) < 1e-6);
        if (ignis_status_last() != IGNIS_OK)
            test__fail(__FILE__, __LINE__, text);
        CHECK_OK(ignis_status_last());
        for (i = 0; i < 3; i++)
            CHECK_OK(ignis_tensor_release(x[i]));
    }
}

TEST(formulas_0)
{
    SETUP(NULL);
    check_formulas(0, 15);
}
TEST(formulas_15)
{
    SETUP(NULL);
    check_formulas(15, 30);
}
TEST(formulas_30)
{
    SETUP(NULL);
    check_formulas(30, 45);
}
TEST(formulas_45)
{
    SETUP(NULL);
    check_formulas(45, 60);
}
TEST(formulas_60)
{
    SETUP(NULL);
    check_formulas(60, 80);
}
TEST(formulas_80)
{
    SETUP(NULL);
    check_formulas(80, 100);
}
TEST(formulas_100)
{
    SETUP(NULL);
    check_formulas(100, 106);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
