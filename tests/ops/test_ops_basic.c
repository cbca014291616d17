// SPDX-License-Identifier: MIT
/*  test_ops_basic.c - arithmetic, activations, sums, transposition, concat and split, dropout, cast, random tensors

    Each operation is a case: values in every dtype against a reference in double, gradients in f64 against finite
    differences, and in the other dtypes against those of f64. */
#include "sweep.h"

#include <math.h>

enum { MAX_INPUTS = 3 };

typedef struct op_case {
    const char *name;
    ignis_tensor_fn fn;
    void *user_data;
    int count;
    ignis_shape shapes[MAX_INPUTS];
    double spread; /* inputs are in -spread to spread */
    void (*reference)(const struct op_case *c, double *const *in, double *out);
} op_case;

static const char *const dtype_names[] = {"", "f16", "bf16", "f32", "f64"};

/*  What one rounding to the dtype, or the arithmetic of f32 before it, may lose. */
static double tolerance_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64 ? 1e-12 : dtype == IGNIS_F32 ? 2e-6 : dtype == IGNIS_F16 ? 1.0 / 1024 : 1.0 / 128;
}

static void check_values(const op_case *c, const char *what, ignis_dtype dtype, const double *got,
                         const double *expected, int64_t numel)
{
    char text[512];
    int64_t i;
    for (i = 0; i < numel; i++) {
        if (is_close(got[i], expected[i], tolerance_of(dtype)))
            continue;
        snprintf(text, sizeof text, "%s in %s: %s: element %lld is %.17g, expected %.17g", c->name, dtype_names[dtype],
                 what, (long long)i, got[i], expected[i]);
        test__fail(__FILE__, __LINE__, text);
        return;
    }
}

/*  Runs a case in a dtype from given numbers: its output, and the gradients of its inputs, weighted by weights. The
    caller frees them all. */
static double *run_case(const op_case *c, ignis_dtype dtype, double *const *in, const double *weights,
                        ignis_shape *shape, double **grads)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor inputs[MAX_INPUTS], output, weight;
    double *values;
    int i;
    for (i = 0; i < c->count; i++)
        inputs[i] = tensor_of(in[i], c->shapes[i], dtype, true);
    output = c->fn(inputs, c->count, c->user_data);
    CHECK(output.id != 0);
    *shape = shape_of(output);
    values = tensor_values(output);
    if (weights) {
        weight = tensor_of(weights, *shape, tensor_info(output).dtype, false);
        CHECK_OK(ignis_backward(output, ignis_tensor_data(weight)));
        for (i = 0; i < c->count; i++)
            grads[i] = array_values(ignis_tensor_grad(inputs[i]));
    }
    CHECK_OK(ignis_scope_end(scope));
    return values;
}

static void check_case(const op_case *c)
{
    double *in[MAX_INPUTS], *grads[MAX_INPUTS] = {0}, *expected_grads[MAX_INPUTS] = {0}, *got, *expected, *reference,
                            *weights;
    ignis_tensor checked[MAX_INPUTS];
    ignis_shape shape, same;
    int64_t numel, all = 0;
    int d, i;
    for (i = 0; i < c->count; i++)
        all += shape_numel(c->shapes[i]);
    for (d = 0; d < 4; d++) {
        ignis_dtype dtype = float_dtypes[d];
        for (i = 0; i < c->count; i++)
            in[i] = rounded_noise(c->shapes[i], dtype, (uint64_t)(7 + i), c->spread);
        got = run_case(c, dtype, in, NULL, &shape, NULL);
        numel = shape_numel(shape);
        if (c->reference) {
            reference = (double *)calloc((size_t)numel + 1, sizeof *reference);
            c->reference(c, in, reference);
            check_values(c, "value", dtype, got, reference, numel);
            free(reference);
        }
        free(got);
        weights = rounded_noise(shape, dtype, 99, 1);
        got = run_case(c, dtype, in, weights, &same, grads);
        expected = run_case(c, IGNIS_F64, in, weights, &same, expected_grads);
        check_values(c, "value beside f64", dtype, got, expected, numel);
        for (i = 0; i < c->count; i++) {
            check_values(c, "gradient", dtype, grads[i], expected_grads[i], shape_numel(c->shapes[i]));
            free(grads[i]);
            free(expected_grads[i]);
        }
        if (dtype == IGNIS_F64 && all <= 200) {
            for (i = 0; i < c->count; i++)
                checked[i] = tensor_of(in[i], c->shapes[i], IGNIS_F64, true);
            CHECK(ignis_gradcheck(c->fn, c->user_data, checked, c->count, NULL) < 1e-6);
            if (ignis_status_last() != IGNIS_OK)
                test__fail(__FILE__, __LINE__, c->name);
            CHECK_OK(ignis_status_last());
            for (i = 0; i < c->count; i++)
                let_go(checked[i]);
        }
        free(got);
        free(expected);
        free(weights);
        for (i = 0; i < c->count; i++)
            free(in[i]);
    }
}

/* --- add, sub, mul ---------------------------------------------------------------------------------------------- */

static ignis_tensor call_add(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_add(x[0], x[1]);
}
static ignis_tensor call_sub(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_sub(x[0], x[1]);
}
static ignis_tensor call_mul(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_mul(x[0], x[1]);
}
static ignis_tensor call_bias(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_add_bias(x[0], x[1]);
}

/*  The element of the second operand that belongs to element i of the first, dimension by dimension. */
static int64_t spread_index(const ignis_shape *a, const ignis_shape *b, int64_t i)
{
    int64_t index = 0, step = 1;
    int k;
    for (k = 1; k <= a->ndim; k++) {
        int64_t at = i % a->dim[a->ndim - k], size = k <= b->ndim ? b->dim[b->ndim - k] : 1;
        i /= a->dim[a->ndim - k];
        index += size == 1 ? 0 : at * step;
        step *= size;
    }
    return index;
}

static void binary_reference(const op_case *c, double *const *in, double *out)
{
    int64_t i, numel = shape_numel(c->shapes[0]);
    for (i = 0; i < numel; i++) {
        double a = in[0][i], b = in[1][spread_index(&c->shapes[0], &c->shapes[1], i)];
        out[i] = c->fn == call_sub ? a - b : c->fn == call_mul ? a * b : a + b;
    }
}

static void check_binary(const char *name, ignis_tensor_fn fn, ignis_shape a, ignis_shape b)
{
    op_case c;
    memset(&c, 0, sizeof c);
    c.name = name, c.fn = fn, c.count = 2, c.spread = 2, c.reference = binary_reference;
    c.shapes[0] = a, c.shapes[1] = b;
    check_case(&c);
}

static void check_binary_everywhere(const char *name, ignis_tensor_fn fn)
{
    check_binary(name, fn, IGNIS_SHAPE(7), IGNIS_SHAPE(7));
    check_binary(name, fn, IGNIS_SHAPE(3, 5), IGNIS_SHAPE(5));
    check_binary(name, fn, IGNIS_SHAPE(3, 5), IGNIS_SHAPE(1));
    check_binary(name, fn, IGNIS_SHAPE(3, 5), IGNIS_SHAPE(3, 1));
    check_binary(name, fn, IGNIS_SHAPE(2, 3, 8), IGNIS_SHAPE(3, 8));
    check_binary(name, fn, IGNIS_SHAPE(2, 3, 4, 3), IGNIS_SHAPE(2, 1, 1, 3));
    check_binary(name, fn, IGNIS_SHAPE(2, 1, 4), IGNIS_SHAPE(1, 1, 4));
    check_binary(name, fn, IGNIS_SHAPE(1, 1), IGNIS_SHAPE(1));
    check_binary(name, fn, IGNIS_SHAPE(33, 257), IGNIS_SHAPE(257));
    check_binary(name, fn, IGNIS_SHAPE(100, 64), IGNIS_SHAPE(64));
    check_binary(name, fn, IGNIS_SHAPE(5003), IGNIS_SHAPE(1));
    check_binary(name, fn, IGNIS_SHAPE(9, 600), IGNIS_SHAPE(9, 1));
}

TEST(add)
{
    SETUP(NULL);
    check_binary_everywhere("add", call_add);
}
TEST(sub)
{
    SETUP(NULL);
    check_binary_everywhere("sub", call_sub);
}
TEST(mul)
{
    SETUP(NULL);
    check_binary_everywhere("mul", call_mul);
}
TEST(add_bias)
{
    SETUP(NULL);
    check_binary("add_bias", call_bias, IGNIS_SHAPE(4, 6), IGNIS_SHAPE(6));
    check_binary("add_bias", call_bias, IGNIS_SHAPE(2, 3, 5), IGNIS_SHAPE(5));
    check_binary("add_bias", call_bias, IGNIS_SHAPE(700, 48), IGNIS_SHAPE(48));
}

static ignis_tensor call_square(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_mul(x[0], x[0]);
}

TEST(one_tensor_as_both_operands)
{
    op_case c;
    memset(&c, 0, sizeof c);
    c.name = "x * x", c.fn = call_square, c.count = 1, c.spread = 2, c.shapes[0] = IGNIS_SHAPE(3, 7);
    SETUP(NULL);
    check_case(&c);
}

TEST(only_the_gradients_that_are_wanted)
{
    int which;
    SETUP(NULL);
    for (which = 0; which < 2; which++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor a = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, which == 0);
        ignis_tensor b = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, which == 1);
        CHECK_OK(ignis_backward(ignis_sum(ignis_mul(a, b)), IGNIS_NO_ARRAY));
        CHECK_INT(ignis_tensor_grad(a).id != 0, which == 0);
        CHECK_INT(ignis_tensor_grad(b).id != 0, which == 1);
        CHECK_NUMBER(which == 0 ? grad_at(a, 5) : grad_at(b, 2), which == 0 ? 3 : 3 + 6);
        CHECK_OK(ignis_scope_end(scope));
    }
}

TEST(empty_tensors)
{
    ignis_scope scope;
    ignis_tensor a, b, sum;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = tensor_of(NULL, IGNIS_SHAPE(0, 3), IGNIS_F32, true);
    b = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, true);
    sum = ignis_sum(ignis_gelu(ignis_mul(ignis_add(a, b), b)));
    CHECK_NUMBER(value_at(sum, 0), 0);
    CHECK_OK(ignis_backward(sum, IGNIS_NO_ARRAY));
    CHECK_NUMBER(grad_at(b, 0), 0);
    CHECK_SHAPE_IS(ignis_transpose(a, 0, 1), IGNIS_SHAPE(3, 0));
    CHECK_SHAPE_IS(ignis_mean_dim(a, 0), IGNIS_SHAPE(3));
    CHECK_OK(ignis_scope_end(scope));
}

/*  Computes an element of a broadcast operand by its place in the result. */
static double operand_at(const double *values, const ignis_shape *shape, const ignis_shape *result, int64_t at,
                         int64_t *place)
{
    int64_t step = 1;
    int d;
    *place = 0;
    for (d = result->ndim - 1; d >= 0; at /= result->dim[d--]) {
        int own = d - (result->ndim - shape->ndim);
        if (own < 0)
            continue;
        *place += shape->dim[own] == 1 ? 0 : at % result->dim[d] * step;
        step *= shape->dim[own];
    }
    return values[*place];
}

/*  Either operand may broadcast, along any dimensions; the values are those of NumPy's rules, and gradients are the
    sums of the result's over what was repeated. Values are whole numbers of at most 9 bits, so all sums are exact. */
TEST(broadcast_both_ways)
{
    static const struct {
        ignis_shape a, b, result;
    } cases[] = {
        {{1, {3}}, {2, {2, 3}}, {2, {2, 3}}},
        {{2, {3, 1}}, {2, {1, 4}}, {2, {3, 4}}},
        {{3, {2, 1, 3}}, {2, {4, 1}}, {3, {2, 4, 3}}},
        {{3, {2, 3, 2}}, {3, {1, 3, 1}}, {3, {2, 3, 2}}},
        {{8, {1, 2, 1, 1, 1, 2, 1, 1}}, {7, {1, 3, 1, 1, 1, 1, 2}}, {8, {1, 2, 3, 1, 1, 2, 1, 2}}},
        {{2, {0, 1}}, {1, {3}}, {2, {0, 3}}},
    };
    static ignis_tensor (*const functions[])(ignis_tensor, ignis_tensor) = {ignis_add, ignis_sub, ignis_mul};
    double va[16], vb[16], ga[16], gb[16];
    int64_t i, at_a, at_b;
    int k, f, h;
    SETUP(NULL);
    for (i = 0; i < 16; i++)
        va[i] = (double)(i - 5), vb[i] = (double)(3 * i % 7 - 2);
    for (h = 0; h < 2; h++)
        for (k = 0; k < COUNT_OF(cases); k++)
            for (f = 0; f < 3; f++) {
                const ignis_shape *shape = &cases[k].result;
                ignis_dtype dtype = h ? IGNIS_F16 : IGNIS_F64;
                ignis_scope scope = ignis_scope_begin();
                ignis_tensor a = tensor_of(va, cases[k].a, dtype, true), b = tensor_of(vb, cases[k].b, dtype, true);
                ignis_tensor y = functions[f](a, b);
                CHECK_SHAPE_IS(y, *shape);
                CHECK_INT(tensor_info(y).dtype, dtype);
                CHECK_OK(ignis_backward(ignis_sum(ignis_mul(y, y)), IGNIS_NO_ARRAY));
                memset(ga, 0, sizeof ga);
                memset(gb, 0, sizeof gb);
                for (i = 0; i < shape_numel(*shape); i++) {
                    double p = operand_at(va, &cases[k].a, shape, i, &at_a);
                    double q = operand_at(vb, &cases[k].b, shape, i, &at_b);
                    double r = f == 0 ? p + q : f == 1 ? p - q : p * q;
                    CHECK_NUMBER(value_at(y, i), r);
                    ga[at_a] += 2 * r * (f == 2 ? q : 1);
                    gb[at_b] += 2 * r * (f == 2 ? p : f == 1 ? -1 : 1);
                }
                for (i = 0; i < shape_numel(cases[k].a); i++)
                    CHECK_NUMBER(grad_at(a, i), ga[i]);
                for (i = 0; i < shape_numel(cases[k].b); i++)
                    CHECK_NUMBER(grad_at(b, i), gb[i]);
                CHECK_OK(ignis_scope_end(scope));
            }
}

TEST(binary_refusals)
{
    ignis_scope scope;
    ignis_tensor a, row, wrong, half, none = {0}, integers;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, false);
    row = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    wrong = tensor_counting(IGNIS_SHAPE(2), IGNIS_F32, 1, false);
    half = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F16, 1, false);
    integers = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_I32, 1, false);
    CHECK_REFUSED(0, ignis_add(a, wrong).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_BROADCAST_SHAPE);
    CHECK_MESSAGE_HAS("[2]");
    CHECK_MESSAGE_HAS("ignis_add: b is [2], which does not broadcast with 3 in dimension 1; a is [2, 3]");
    CHECK_REFUSED(0, ignis_mul(a, half).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("b is f16, the first input is f32; ignis_cast converts");
    CHECK_REFUSED(0, ignis_add(integers, integers).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("a is i32; f16, bf16, f32 or f64 is needed: ignis_cast converts");
    CHECK_REFUSED(0, ignis_add_bias(a, wrong).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_BROADCAST_SHAPE);
    CHECK_REFUSED(0, ignis_add_bias(a, a).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_BROADCAST_SHAPE);
    CHECK_REFUSED(0, ignis_add_bias(a, tensor_counting(IGNIS_SHAPE(3), IGNIS_F64, 1, false)).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_silu_mul(a, row).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_REFUSED(0, ignis_silu_mul(a, half).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_scale(integers, 2).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_relu(integers).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_gelu(integers).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_gelu_exact(integers).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_silu(integers).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    /* what failed passes through, and the first failure is the one that is kept */
    CHECK_FAILS(ignis_add(a, wrong), IGNIS_ERROR_SHAPE, IGNIS_DIAG_BROADCAST_SHAPE);
    CHECK_INT(ignis_relu(ignis_mul(ignis_add(a, wrong), a)).id, 0);
    CHECK_HAS(ignis_status_message(), "ignis_add");
    ignis_status_clear();
    CHECK_REFUSED(0, ignis_add(none, a).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    if (ignis_device_count() > 1) {
        ignis_tensor_desc desc = tensor_desc(IGNIS_F32, false);
        ignis_tensor far;
        desc.device = 1;
        far = ignis_tensor_zeros(IGNIS_SHAPE(2, 3), &desc);
        CHECK_REFUSED(0, ignis_add(a, far).id, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    }
    CHECK_OK(ignis_scope_end(scope));
    CHECK_REFUSED(0, ignis_mul(a, a).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
}

/* --- functions of one element ----------------------------------------------------------------------------------- */

static ignis_tensor call_relu(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_relu(x[0]);
}
static ignis_tensor call_gelu(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_gelu(x[0]);
}
static ignis_tensor call_gelu_exact(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_gelu_exact(x[0]);
}
static ignis_tensor call_silu(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_silu(x[0]);
}
static ignis_tensor call_silu_mul(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_silu_mul(x[0], x[1]);
}
static ignis_tensor call_scale(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_scale(x[0], -0.75);
}

static double silu(double x) { return x / (1 + exp(-x)); }

static void element_reference(const op_case *c, double *const *in, double *out)
{
    int64_t i, numel = shape_numel(c->shapes[0]);
    for (i = 0; i < numel; i++) {
        double x = in[0][i];
        if (c->fn == call_relu)
            out[i] = x > 0 ? x : 0;
        else if (c->fn == call_gelu)
            out[i] = 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
        else if (c->fn == call_gelu_exact)
            out[i] = 0.5 * x * erfc(-x / sqrt(2));
        else if (c->fn == call_scale)
            out[i] = -0.75 * x;
        else
            out[i] = silu(x) * (c->count == 2 ? in[1][i] : 1);
    }
}

static void check_element(const char *name, ignis_tensor_fn fn, int count)
{
    static const int64_t sizes[] = {1, 31, 4096, 4103};
    op_case c;
    int i;
    memset(&c, 0, sizeof c);
    c.name = name, c.fn = fn, c.count = count, c.spread = 6, c.reference = element_reference;
    for (i = 0; i < COUNT_OF(sizes); i++) {
        c.shapes[0] = c.shapes[1] = IGNIS_SHAPE(sizes[i]);
        check_case(&c);
    }
}

TEST(activations)
{
    SETUP(NULL);
    check_element("relu", call_relu, 1);
    check_element("gelu", call_gelu, 1);
    check_element("gelu_exact", call_gelu_exact, 1);
    check_element("silu", call_silu, 1);
    check_element("silu_mul", call_silu_mul, 2);
    check_element("scale", call_scale, 1);
}

TEST(activations_of_extreme_values)
{
    const double zero = 0.0, values[] = {-1e30, -60, -0.0, 60, 1e30, zero / zero};
    ignis_tensor (*const functions[])(ignis_tensor) = {ignis_relu, ignis_gelu, ignis_gelu_exact, ignis_silu};
    ignis_tensor x, y, ones;
    int f, i;
    SETUP(NULL);
    for (f = 0; f < 4; f++) {
        ignis_scope scope = ignis_scope_begin();
        x = tensor_of(values, IGNIS_SHAPE(6), IGNIS_F32, true);
        y = functions[f](x);
        ones = ignis_tensor_ones(IGNIS_SHAPE(6), NULL);
        CHECK_OK(ignis_backward(y, ignis_tensor_data(ones)));
        for (i = 0; i < 5; i++) {
            CHECK_CLOSE(value_at(y, i), values[i] > 0 ? values[i] : 0, 1e-6);
            if (i != 2)
                CHECK_CLOSE(grad_at(x, i), values[i] > 0, 1e-6);
        }
        CHECK(isnan(value_at(y, 5)));
        CHECK_OK(ignis_scope_end(scope));
    }
}

/* --- sums ------------------------------------------------------------------------------------------------------- */

static ignis_tensor call_sum(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_sum(x[0]);
}
static ignis_tensor call_mean(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_mean(x[0]);
}
static ignis_tensor call_sum_dim(const ignis_tensor *x, int count, void *user)
{
    return (void)count, ignis_sum_dim(x[0], *(const int *)user);
}
static ignis_tensor call_mean_dim(const ignis_tensor *x, int count, void *user)
{
    return (void)count, ignis_mean_dim(x[0], *(const int *)user);
}

static void sum_reference(const op_case *c, double *const *in, double *out)
{
    const ignis_shape *shape = &c->shapes[0];
    int64_t outer = 1, n = 1, inner = 1, o, k, i;
    bool whole = c->fn == call_sum || c->fn == call_mean, mean = c->fn == call_mean || c->fn == call_mean_dim;
    int dim = whole ? 0 : *(const int *)c->user_data, d;
    if (dim < 0)
        dim += shape->ndim;
    for (d = 0; d < shape->ndim; d++)
        *(whole || d == dim ? &n : d < dim ? &outer : &inner) *= shape->dim[d];
    for (o = 0; o < outer; o++)
        for (i = 0; i < inner; i++) {
            out[o * inner + i] = 0;
            for (k = 0; k < n; k++)
                out[o * inner + i] += in[0][(o * n + k) * inner + i];
            out[o * inner + i] /= mean ? (double)n : 1;
        }
}

TEST(sums)
{
    static const ignis_shape shapes[] = {{1, {1}},        {1, {13}},         {2, {4, 5}},     {3, {2, 3, 4}},
                                         {2, {40, 3}},    {2, {3, 40}},      {1, {9000}},     {2, {300, 136}},
                                         {2, {5000, 10}}, {3, {3, 700, 16}}, {2, {20, 1500}}, {2, {2, 9000}}};
    op_case c;
    int s, dim;
    SETUP(NULL);
    memset(&c, 0, sizeof c);
    c.count = 1, c.spread = 0.5, c.reference = sum_reference, c.user_data = &dim;
    for (s = 0; s < COUNT_OF(shapes); s++) {
        c.shapes[0] = shapes[s];
        c.name = "sum", c.fn = call_sum;
        check_case(&c);
        c.name = "mean", c.fn = call_mean;
        check_case(&c);
        for (dim = -shapes[s].ndim; dim < (s < 4 ? shapes[s].ndim : 0); dim++) {
            c.name = "sum_dim", c.fn = call_sum_dim;
            check_case(&c);
            c.name = "mean_dim", c.fn = call_mean_dim;
            check_case(&c);
        }
    }
}

TEST(sums_and_means_of_nothing)
{
    ignis_scope scope;
    int d;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (d = 0; d < 4; d++) {
        ignis_tensor none = tensor_noise(IGNIS_SHAPE(0), float_dtypes[d], 1, true), loss, sums;
        ignis_tensor hollow = tensor_noise(IGNIS_SHAPE(2, 0, 3), float_dtypes[d], 1, true);
        CHECK_NUMBER(ignis_item(ignis_sum(none)), 0);
        CHECK_NUMBER(ignis_item(ignis_sum_dim(none, 0)), 0);
        loss = ignis_mean(none);
        CHECK_NUMBER(ignis_item(loss), NAN);
        CHECK_NUMBER(ignis_item(ignis_mean_dim(none, 0)), NAN);
        CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
        CHECK_INT(ignis_array_numel(ignis_tensor_grad(none)), 0);
        sums = ignis_sum_dim(hollow, 1);
        CHECK_SHAPE_IS(sums, IGNIS_SHAPE(2, 3));
        CHECK_NUMBER(value_at(sums, 5), 0);
        sums = ignis_mean_dim(hollow, 1);
        CHECK_SHAPE_IS(sums, IGNIS_SHAPE(2, 3));
        CHECK_NUMBER(value_at(sums, 0), NAN);
        CHECK_NUMBER(value_at(sums, 5), NAN);
        CHECK_OK(ignis_backward(ignis_sum(sums), IGNIS_NO_ARRAY));
        CHECK_INT(ignis_array_numel(ignis_tensor_grad(hollow)), 0);
        CHECK_INT(ignis_tensor_numel(ignis_mean_dim(hollow, 0)), 0); /* of two, but there are none of them */
    }
    CHECK_OK(ignis_scope_end(scope));
}

TEST(sum_shapes_and_refusals)
{
    ignis_scope scope;
    ignis_tensor a;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = tensor_counting(IGNIS_SHAPE(2, 3, 4), IGNIS_F32, 1, false);
    CHECK_SHAPE_IS(ignis_sum(a), IGNIS_SHAPE(1));
    CHECK_SHAPE_IS(ignis_sum_dim(a, 0), IGNIS_SHAPE(3, 4));
    CHECK_SHAPE_IS(ignis_sum_dim(a, 1), IGNIS_SHAPE(2, 4));
    CHECK_SHAPE_IS(ignis_mean_dim(a, -1), IGNIS_SHAPE(2, 3));
    CHECK_SHAPE_IS(ignis_sum_dim(ignis_sum(a), 0), IGNIS_SHAPE(1));
    CHECK_NUMBER(ignis_item(ignis_sum(a)), 300);
    CHECK_NUMBER(ignis_item(ignis_mean(a)), 12.5);
    CHECK_REFUSED(0, ignis_sum_dim(a, 3).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_mean_dim(a, -4).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_sum(tensor_counting(IGNIS_SHAPE(2), IGNIS_I64, 1, false)).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_mean(tensor_counting(IGNIS_SHAPE(2), IGNIS_U8, 1, false)).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(sums_are_the_same_every_time)
{
    ignis_scope scope;
    ignis_tensor a;
    double first = 0, first_column = 0;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = tensor_noise(IGNIS_SHAPE(3000, 40), IGNIS_F32, 1, false);
    for (i = 0; i < 3; i++) {
        double sum = ignis_item(ignis_sum(a)), column = value_at(ignis_sum_dim(a, 0), 17);
        if (i == 0)
            first = sum, first_column = column;
        CHECK_NUMBER(sum, first);
        CHECK_NUMBER(column, first_column);
    }
    CHECK_OK(ignis_scope_end(scope));
}

/* --- transpose -------------------------------------------------------------------------------------------------- */

typedef struct dims {
    int first, second;
} dims;

static ignis_tensor call_transpose(const ignis_tensor *x, int count, void *user)
{
    const dims *d = (const dims *)user;
    return (void)count, ignis_transpose(x[0], d->first, d->second);
}

static void transpose_reference(const op_case *c, double *const *in, double *out)
{
    const dims *d = (const dims *)c->user_data;
    ignis_shape to = c->shapes[0];
    int64_t numel = shape_numel(to), i, from_step[IGNIS_MAX_DIMS] = {0}, step = 1;
    int k;
    for (k = to.ndim - 1; k >= 0; k--)
        from_step[k] = step, step *= to.dim[k];
    to.dim[d->first] = c->shapes[0].dim[d->second], to.dim[d->second] = c->shapes[0].dim[d->first];
    step = from_step[d->first], from_step[d->first] = from_step[d->second], from_step[d->second] = step;
    for (i = 0; i < numel; i++) {
        int64_t rest = i, from = 0;
        for (k = to.ndim - 1; k >= 0; k--)
            from += rest % to.dim[k] * from_step[k], rest /= to.dim[k];
        out[i] = in[0][from];
    }
}

TEST(transpose)
{
    static const ignis_shape shapes[] = {{2, {3, 5}},         {2, {1, 6}},      {3, {2, 3, 4}},
                                         {4, {2, 3, 2, 4}},   {2, {70, 130}},   {2, {64, 128}},
                                         {4, {2, 20, 3, 16}}, {3, {17, 2, 33}}, {1, {4}}};
    op_case c;
    dims d;
    int s;
    SETUP(NULL);
    memset(&c, 0, sizeof c);
    c.name = "transpose", c.fn = call_transpose, c.user_data = &d, c.count = 1, c.spread = 1,
    c.reference = transpose_reference;
    for (s = 0; s < COUNT_OF(shapes); s++) {
        c.shapes[0] = shapes[s];
        for (d.first = 0; d.first < shapes[s].ndim; d.first++)
            for (d.second = d.first; d.second < shapes[s].ndim; d.second++)
                check_case(&c);
    }
}

TEST(transpose_of_any_dtype_and_refusals)
{
    ignis_scope scope;
    ignis_tensor a, t;
    ignis_dtype dtype;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (dtype = IGNIS_F16; dtype <= IGNIS_U8; dtype = (ignis_dtype)(dtype + 1)) {
        a = tensor_counting(IGNIS_SHAPE(20, 5), dtype, 1, false);
        t = ignis_transpose(a, -1, 0);
        CHECK_SHAPE_IS(t, IGNIS_SHAPE(5, 20));
        CHECK_NUMBER(value_at(t, 20 * 3 + 7), 7 * 5 + 3 + 1);
    }
    CHECK_REFUSED(0, ignis_transpose(a, 0, 2).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_transpose(a, -3, 0).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- concat and split ------------------------------------------------------------------------------------------- */

static ignis_tensor call_concat(const ignis_tensor *x, int count, void *user)
{
    return ignis_concat(x, count, *(const int *)user);
}

static void concat_reference(const op_case *c, double *const *in, double *out)
{
    int dim = *(const int *)c->user_data, i, d;
    int64_t rows = 1, offset = 0, row = 0, length[MAX_INPUTS], r;
    for (d = 0; d < dim; d++)
        rows *= c->shapes[0].dim[d];
    for (i = 0; i < c->count; i++)
        row += length[i] = shape_numel(c->shapes[i]) / rows;
    for (i = 0; i < c->count; offset += length[i++])
        for (r = 0; r < rows; r++)
            memcpy(out + r * row + offset, in[i] + r * length[i], sizeof *out * (size_t)length[i]);
}

/*  Puts the parts of one tensor together in another order, the last one twice, one not at all. */
static ignis_tensor call_split(const ignis_tensor *x, int count, void *user)
{
    static const int64_t sizes[] = {2, 1, 3, 2};
    ignis_tensor parts[4], chosen[4];
    int dim = *(const int *)user;
    (void)count;
    chosen[0].id = 0;
    if (ignis_split(x[0], dim, 4, sizes, parts) != IGNIS_OK)
        return chosen[0];
    chosen[0] = parts[3], chosen[1] = parts[0], chosen[2] = ignis_scale(parts[3], 2), chosen[3] = parts[2];
    return ignis_add(ignis_concat(chosen, 4, dim), ignis_scale(ignis_concat(chosen, 4, dim), 0.5));
}

TEST(concat_and_split)
{
    op_case c;
    int dim;
    SETUP(NULL);
    memset(&c, 0, sizeof c);
    c.name = "concat", c.fn = call_concat, c.count = 3, c.user_data = &dim, c.spread = 1,
    c.reference = concat_reference;
    for (dim = 0; dim < 3; dim++) {
        int i;
        for (i = 0; i < 3; i++)
            c.shapes[i] = IGNIS_SHAPE(2, 3, 4);
        c.shapes[1].dim[dim] = 1, c.shapes[2].dim[dim] = 5;
        check_case(&c);
        for (i = 0; i < 3; i++)
            c.shapes[i] = IGNIS_SHAPE(16, 24, 32);
        c.shapes[2].dim[dim] = 7;
        check_case(&c);
    }
    c.name = "split", c.fn = call_split, c.count = 1, c.reference = NULL;
    for (dim = 0; dim < 3; dim++) {
        c.shapes[0] = IGNIS_SHAPE(3, 2, 2);
        c.shapes[0].dim[dim] = 8;
        check_case(&c);
    }
}

TEST(split_values_and_one_gradient_array)
{
    ignis_scope scope;
    ignis_tensor x, parts[3], mine;
    int64_t i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_counting(IGNIS_SHAPE(4, 6), IGNIS_F32, 1, true);
    CHECK_OK(ignis_split(x, -1, 3, NULL, parts));
    for (i = 0; i < 3; i++) {
        CHECK_SHAPE_IS(parts[i], IGNIS_SHAPE(4, 2));
        CHECK_NUMBER(value_at(parts[i], 3), 6 + 2 * (double)i + 1 + 1);
    }
    CHECK_OK(ignis_backward(ignis_add(ignis_sum(parts[0]), ignis_sum(ignis_scale(parts[2], 3))), IGNIS_NO_ARRAY));
    for (i = 0; i < 24; i++)
        CHECK_NUMBER(grad_at(x, i), i % 6 < 2 ? 1 : i % 6 < 4 ? 0 : 3);
    /* the tensor has other uses, too */
    CHECK_OK(ignis_zero_grad(x));
    CHECK_OK(ignis_split(x, 0, 2, NULL, parts));
    mine = ignis_add(ignis_sum(ignis_mul(x, x)), ignis_sum(ignis_mul(parts[1], parts[1])));
    CHECK_OK(ignis_backward(mine, IGNIS_NO_ARRAY));
    for (i = 0; i < 24; i++)
        CHECK_NUMBER(grad_at(x, i), 2 * (double)(i + 1) * (i < 12 ? 1 : 2));
    CHECK_OK(ignis_scope_end(scope));
}

/*  More than one launch joins. */
TEST(concat_of_many)
{
    ignis_scope scope;
    ignis_tensor few[50], all;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (i = 0; i < 50; i++)
        few[i] = tensor_counting(IGNIS_SHAPE(2, 1 + i % 3), IGNIS_F32, 1 + i, true);
    all = ignis_concat(few, 50, 1);
    CHECK_SHAPE_IS(all, IGNIS_SHAPE(2, 99));
    CHECK_NUMBER(value_at(all, 98), 2 * 50);
    CHECK_NUMBER(value_at(all, 197), 4 * 50);
    CHECK_OK(ignis_backward(ignis_sum(ignis_mul(all, all)), IGNIS_NO_ARRAY));
    for (i = 0; i < 50; i++)
        CHECK_NUMBER(grad_at(few[i], 0), 2 * (1.0 + i));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(concat_and_split_refusals)
{
    static const int64_t wrong[] = {1, 1}, negative[] = {4, -2}, huge[] = {INT64_MAX, INT64_MAX, 4};
    ignis_scope scope;
    ignis_tensor x[2], parts[3];
    SETUP(NULL);
    scope = ignis_scope_begin();
    x[0] = tensor_counting(IGNIS_SHAPE(3, 2), IGNIS_F32, 1, false);
    x[1] = tensor_counting(IGNIS_SHAPE(4, 2), IGNIS_F32, 1, false);
    CHECK_REFUSED(0, ignis_concat(x, 2, 1).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_PARTS_SHAPE);
    CHECK_REFUSED(0, ignis_concat(x, 2, 2).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_concat(NULL, 2, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_concat(x, 0, 0).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    x[1] = tensor_counting(IGNIS_SHAPE(3, 2), IGNIS_F64, 1, false);
    CHECK_REFUSED(0, ignis_concat(x, 2, 0).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_STATUS(ignis_split(x[0], 0, 2, NULL, parts), IGNIS_ERROR_SHAPE, IGNIS_DIAG_PARTS_SHAPE);
    CHECK_INT(parts[0].id, 0);
    CHECK_STATUS(ignis_split(x[0], 0, 2, wrong, parts), IGNIS_ERROR_SHAPE, IGNIS_DIAG_PARTS_SHAPE);
    CHECK_STATUS(ignis_split(x[0], 1, 2, negative, parts), IGNIS_ERROR_SHAPE, IGNIS_DIAG_PARTS_SHAPE);
    CHECK_STATUS(ignis_split(x[0], 1, 3, huge, parts), IGNIS_ERROR_SHAPE,
                 IGNIS_DIAG_PARTS_SHAPE); /* their sum wraps to 2 */
    CHECK_STATUS(ignis_split(x[0], 2, 2, NULL, parts), IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_STATUS(ignis_split(x[0], 0, 0, NULL, parts), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_split(x[0], 0, 2, NULL, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- slice ------------------------------------------------------------------------------------------------------ */

typedef struct slice_of {
    int dim;
    int64_t start, len;
} slice_of;

static ignis_tensor call_slice(const ignis_tensor *x, int count, void *user)
{
    const slice_of *s = (const slice_of *)user;
    return (void)count, ignis_slice(x[0], s->dim, s->start, s->len);
}

/*  A slice, and twice another one that overlaps it: gradients that add up. */
static ignis_tensor call_slices(const ignis_tensor *x, int count, void *user)
{
    const slice_of *s = (const slice_of *)user;
    ignis_tensor parts[2];
    (void)count;
    parts[0] = ignis_slice(x[0], s->dim, s->start, s->len);
    parts[1] = ignis_scale(ignis_slice(x[0], s->dim, s->start + 1, s->len), 2);
    return ignis_concat(parts, 2, s->dim);
}

static void slice_reference(const op_case *c, double *const *in, double *out)
{
    const slice_of *s = (const slice_of *)c->user_data;
    const ignis_shape *shape = &c->shapes[0];
    int dim = s->dim < 0 ? s->dim + shape->ndim : s->dim, d;
    int64_t outer = 1, inner = 1, o, i;
    for (d = 0; d < shape->ndim; d++)
        *(d < dim ? &outer : &inner) *= d == dim ? 1 : shape->dim[d];
    for (o = 0; o < outer; o++)
        for (i = 0; i < s->len * inner; i++)
            out[o * s->len * inner + i] = in[0][(o * shape->dim[dim] + s->start) * inner + i];
}

TEST(slices)
{
    static const ignis_shape shapes[] = {{1, {7}},       {2, {5, 3}},        {3, {3, 7, 2}},
                                         {3, {1, 5, 4}}, {4, {2, 3, 5, 11}}, {3, {17, 13, 64}}};
    slice_of at;
    op_case c;
    int s;
    SETUP(NULL);
    memset(&c, 0, sizeof c);
    c.count = 1, c.spread = 1, c.user_data = &at;
    for (s = 0; s < COUNT_OF(shapes); s++) {
        const ignis_shape *shape = c.shapes;
        c.shapes[0] = shapes[s];
        for (at.dim = -shape->ndim; at.dim < (s < 3 ? shape->ndim : 0); at.dim++) {
            int64_t size = shape->dim[at.dim < 0 ? at.dim + shape->ndim : at.dim];
            c.name = "slice", c.fn = call_slice, c.reference = slice_reference;
            for (at.start = 0; at.start <= size; at.start += at.start + 1)
                for (at.len = size - at.start; at.len >= 0; at.len = at.len > 1 ? at.len / 2 : at.len - 1)
                    check_case(&c);
            if (size < 3)
                continue;
            c.name = "slices", c.fn = call_slices, c.reference = NULL;
            at.start = 1, at.len = size - 2;
            check_case(&c);
        }
    }
}

TEST(slices_of_any_dtype_and_refusals)
{
    ignis_scope scope;
    ignis_tensor a = no_tensor(), rows, columns;
    ignis_dtype dtype;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (dtype = IGNIS_F16; dtype <= IGNIS_U8; dtype = (ignis_dtype)(dtype + 1)) {
        a = tensor_counting(IGNIS_SHAPE(5, 7), dtype, 1, false);
        rows = ignis_slice(a, 0, 2, 3);
        columns = ignis_slice(a, 1, 2, 3);
        CHECK_SHAPE_IS(rows, IGNIS_SHAPE(3, 7));
        CHECK_SHAPE_IS(columns, IGNIS_SHAPE(5, 3));
        CHECK_NUMBER(value_at(rows, 8), 3 * 7 + 1 + 1);
        CHECK_NUMBER(value_at(columns, 8), 2 * 7 + 4 + 1);
    }
    CHECK_OK(ignis_array_fill(ignis_tensor_data(a), 9)); /* rows are a view, columns a copy */
    CHECK_NUMBER(value_at(rows, 8), 9);
    CHECK_NUMBER(value_at(columns, 8), 2 * 7 + 4 + 1);
    CHECK_REFUSED(0, ignis_slice(a, 2, 0, 1).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_slice(a, -3, 0, 1).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_slice(a, 0, -1, 1).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
    CHECK_REFUSED(0, ignis_slice(a, 0, 0, -1).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
    CHECK_REFUSED(0, ignis_slice(a, 0, 4, 2).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
    CHECK_MESSAGE_HAS("elements 4 to 4 + 2 are outside dim 0 of shape [5, 7]");
    CHECK_REFUSED(0, ignis_slice(a, 1, INT64_MAX, INT64_MAX).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
    CHECK_REFUSED(0, ignis_slice(a, 1, 1, INT64_MAX).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SLICE_RANGE);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- cast ------------------------------------------------------------------------------------------------------- */

static ignis_tensor call_cast(const ignis_tensor *x, int count, void *user)
{
    return (void)count, ignis_scale(ignis_cast(ignis_mul(x[0], x[0]), *(const ignis_dtype *)user), 2);
}

TEST(cast)
{
    ignis_scope scope;
    ignis_tensor x, y;
    ignis_dtype dtype = IGNIS_F64;
    op_case c;
    SETUP(NULL);
    memset(&c, 0, sizeof c);
    c.name = "cast to f64", c.fn = call_cast, c.count = 1, c.spread = 1, c.shapes[0] = IGNIS_SHAPE(3, 11),
    c.user_data = &dtype;
    check_case(&c);
    scope = ignis_scope_begin();
    x = tensor_counting(IGNIS_SHAPE(5), IGNIS_F32, 0.6, true);
    y = ignis_cast(x, IGNIS_BF16);
    CHECK_INT(tensor_info(y).dtype, IGNIS_BF16);
    CHECK(tensor_info(y).requires_grad);
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    CHECK_NUMBER(grad_at(x, 4), 1);
    y = ignis_cast(x, IGNIS_I32);
    CHECK(!tensor_info(y).requires_grad);
    CHECK_NUMBER(value_at(y, 4), 3);
    CHECK_REFUSED(0, ignis_cast(x, (ignis_dtype)42).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- random numbers --------------------------------------------------------------------------------------------- */

TEST(rand_has_known_values)
{
    /* the first block of Philox4x32-10 with key and counter 0, as the paper's authors publish it */
    static const uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const int digits[] = {53, 24, 11, 8}; /* in the order of float_dtypes */
    int d, i;
    SETUP(NULL);
    for (d = 1; d < 4; d++) {
        ignis_tensor_desc desc = tensor_desc(float_dtypes[d], false);
        ignis_tensor x;
        CHECK_OK(ignis_seed(0));
        x = ignis_tensor_rand(IGNIS_SHAPE(4), &desc);
        for (i = 0; i < 4; i++)
            CHECK_NUMBER(value_at(x, i), ldexp((double)(words[i] >> (32 - digits[d])), -digits[d]));
        let_go(x);
    }
}

TEST(random_numbers_are_those_of_their_seed)
{
    ignis_tensor_desc desc = tensor_desc(IGNIS_F64, false);
    int kind, d, i;
    SETUP(NULL);
    for (kind = 0; kind < 2; kind++) {
        ignis_tensor (*make_random)(ignis_shape, const ignis_tensor_desc *) =
            kind ? ignis_tensor_randn : ignis_tensor_rand;
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor exact, again, other;
        double *values, *rounded, sum = 0, squares = 0;
        desc = tensor_desc(IGNIS_F64, false);
        CHECK_OK(ignis_seed(5));
        exact = make_random(IGNIS_SHAPE(5001), &desc);
        other = make_random(IGNIS_SHAPE(5001), &desc);
        values = tensor_values(exact);
        for (i = 0; i < 5001; i++)
            sum += values[i], squares += values[i] * values[i];
        CHECK_CLOSE(sum / 5001, kind ? 0 : 0.5, 0.05);
        CHECK_CLOSE(squares / 5001, kind ? 1 : 1.0 / 3, 0.05);
        if (kind) /* to the last bit, on every GPU and on the simulator */
            CHECK_NUMBER(values[0], 0.66127641241058566);
        rounded = tensor_values(other);
        CHECK(rounded[0] != values[0]);
        free(rounded);
        for (d = 0; d < 4; d++) { /* one sequence for all dtypes, but for the rounding */
            desc = tensor_desc(float_dtypes[d], false);
            CHECK_OK(ignis_seed(5));
            again = make_random(IGNIS_SHAPE(5001), &desc);
            rounded = tensor_values(again);
            for (i = 0;
                 i < 5001 && is_close(rounded[i], values[i], tolerance_of(float_dtypes[d])) && (kind || rounded[i] < 1);
                 i++)
                ;
            CHECK_INT(i, 5001);
            free(rounded);
        }
        free(values);
        CHECK_OK(ignis_scope_end(scope));
    }
    desc = tensor_desc(IGNIS_I32, false);
    CHECK_REFUSED(0, ignis_tensor_rand(IGNIS_SHAPE(3), &desc).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_tensor_randn(IGNIS_SHAPE(3), &desc).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_tensor_rand(IGNIS_SHAPE(-3), NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIM);
}

static ignis_tensor call_dropout(const ignis_tensor *x, int count, void *user)
{
    return (void)count, (void)user, ignis_mul(ignis_dropout(x[0], 0.25), x[0]);
}

TEST(dropout)
{
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_dtype dtype = float_dtypes[d];
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(9001), dtype, 3, true), y, z, ones;
        double *before = tensor_values(x), *after, *again, *grad, *another;
        int dropped = 0;
        CHECK_OK(ignis_seed(11));
        y = ignis_dropout(x, 0.25);
        z = ignis_dropout(x, 0.25);
        after = tensor_values(y);
        another = tensor_values(z);
        ones = ignis_tensor_from_array(
            ignis_tensor_data(
                ignis_add(ignis_mul(x, ignis_scale(x, 0)), ignis_cast(ignis_tensor_ones(IGNIS_SHAPE(1), NULL), dtype))),
            false);
        CHECK_OK(ignis_backward(y, ignis_tensor_data(ones)));
        grad = array_values(ignis_tensor_grad(x));
        for (i = 0; i < 9001; i++) {
            double kept = before[i] / 0.75;
            dropped += after[i] == 0;
            if (after[i] != 0 ? !is_close(after[i], kept, tolerance_of(dtype)) : grad[i] != 0)
                break;
            if (after[i] != 0 && !is_close(grad[i], 1 / 0.75, tolerance_of(dtype)))
                break;
        }
        CHECK_INT(i, 9001);
        CHECK_CLOSE(dropped / 9001.0, 0.25, 0.02);
        CHECK(memcmp(after, another, sizeof *after * 9001) != 0);
        CHECK_OK(ignis_seed(11));
        again = tensor_values(ignis_dropout(x, 0.25));
        CHECK(memcmp(after, again, sizeof *after * 9001) == 0);
        free(again);
        again = tensor_values(ignis_dropout(x, 0));
        CHECK(memcmp(before, again, sizeof *after * 9001) == 0);
        free(before), free(after), free(again), free(grad), free(another);
        CHECK_OK(ignis_scope_end(scope));
    }
    {
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(50), IGNIS_F64, 3, true);
        CHECK(ignis_gradcheck(call_dropout, NULL, &x, 1, NULL) < 1e-6);
        CHECK_REFUSED(0, ignis_dropout(x, 1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
        CHECK_REFUSED(0, ignis_dropout(x, -0.1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
        let_go(x);
    }
    {
        ignis_tensor x = tensor_counting(IGNIS_SHAPE(3), IGNIS_I32, 1, false);
        CHECK_REFUSED(0, ignis_dropout(x, 0.5).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
        let_go(x);
    }
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    const ignis_tensor x = inputs[0], row = inputs[1];
    ignis_tensor parts[2], y = ignis_add_bias(ignis_gelu(ignis_mul(x, row)), row);
    (void)at;
    if (ignis_split(y, 1, 2, NULL, parts) != IGNIS_OK)
        return parts[0];
    y = ignis_slice(ignis_silu_mul(parts[0], ignis_relu(parts[1])), 1, 1, 3);
    parts[0] = ignis_dropout(ignis_transpose(y, 0, 1), 0.5);
    parts[1] = ignis_sub(parts[0], ignis_scale(ignis_transpose(y, 0, 1), 0.5));
    return ignis_mean(ignis_cast(ignis_sum_dim(ignis_concat(parts, 2, 0), 1), IGNIS_F64));
}

/*  Each call of driver functions of a name, or each allocation on the host where that is null, fails once: a clean
    failure each time, nothing stays behind, and the next time all is well. */
static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor inputs[2];
    SETUP(&desc);
    inputs[0] = tensor_noise(IGNIS_SHAPE(6, 8), IGNIS_F32, 1, true);
    inputs[1] = tensor_noise(IGNIS_SHAPE(8), IGNIS_F32, 2, true);
    sweep_walks(prefix, &counter, everything, inputs);
    let_go(inputs[0]), let_go(inputs[1]);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_device_allocation_fails_once) { sweep("cuMemAlloc"); }
TEST(each_copy_fails_once) { sweep("cuMemcpy"); }
TEST(each_set_fails_once) { sweep("cuMemset"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

/* --- a second backward ------------------------------------------------------------------------------------------- */

/*  Two tensors that come out of one operation on h [4, 8]: different parts where it has parts, else its result twice.
    */
typedef void (*two_fn)(ignis_tensor h, ignis_tensor out[2]);

static void twice(ignis_tensor y, ignis_tensor out[2])
{
    out[0] = ignis_scale(y, 1);
    out[1] = ignis_scale(y, 3);
}

static ignis_tensor constant_of(ignis_shape shape) { return tensor_noise(shape, IGNIS_F32, 7, false); }
static ignis_tensor wanted_of(ignis_shape shape) { return tensor_noise(shape, IGNIS_F32, 8, true); }

static ignis_tensor ids_of(int64_t count, int32_t first)
{
    ignis_array ids = make_counting(IGNIS_SHAPE(count), first);
    ignis_tensor tensor = ignis_tensor_from_array(ids, false);
    drop(ids);
    return tensor;
}

static ignis_tensor squared(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count, (void)user_data;
    return ignis_mul(inputs[0], inputs[0]);
}

#define TWO(name, result) \
    static void two_##name(ignis_tensor h, ignis_tensor out[2]) { twice(result, out); }
TWO(reshape, ignis_reshape(h, IGNIS_SHAPE(8, 4)))
TWO(matmul, ignis_matmul(h, wanted_of(IGNIS_SHAPE(8, 3))))
TWO(matmul_t, ignis_matmul_t(h, wanted_of(IGNIS_SHAPE(3, 8))))
TWO(linear, ignis_linear(h, wanted_of(IGNIS_SHAPE(3, 8)), wanted_of(IGNIS_SHAPE(3))))
TWO(add, ignis_add(h, h))
TWO(add_broadcast, ignis_add(constant_of(IGNIS_SHAPE(2, 4, 8)), h))
TWO(sub, ignis_sub(h, wanted_of(IGNIS_SHAPE(8))))
TWO(mul, ignis_mul(h, h))
TWO(add_bias, ignis_add_bias(h, wanted_of(IGNIS_SHAPE(8))))
TWO(scale, ignis_scale(h, 2))
TWO(cast, ignis_cast(h, IGNIS_F64))
TWO(dropout, ignis_dropout(h, 0.5))
TWO(relu, ignis_relu(h))
TWO(gelu, ignis_gelu(h))
TWO(gelu_exact, ignis_gelu_exact(h))
TWO(silu, ignis_silu(h))
TWO(silu_mul, ignis_silu_mul(h, h))
TWO(sum, ignis_sum(h))
TWO(mean, ignis_mean(h))
TWO(sum_dim, ignis_sum_dim(h, 0))
TWO(mean_dim, ignis_mean_dim(h, 1))
TWO(transpose, ignis_transpose(h, 0, 1))
TWO(slice, ignis_slice(h, 1, 2, 5))
TWO(slice_step, ignis_slice_step(h, 1, 7, 3, -2))
TWO(expand, ignis_expand(h, IGNIS_SHAPE(3, 4, 8)))
TWO(stack, ignis_stack(&h, 1, 1))
TWO(index_select, ignis_index_select(h, 0, ids_of(3, 1)))
TWO(scatter_add, ignis_scatter_add(ignis_reshape(h, IGNIS_SHAPE(32)), 0, ids_of(4, 2), wanted_of(IGNIS_SHAPE(4))))
TWO(cumsum, ignis_cumsum(h, 1))
TWO(tril, ignis_tril(h, 1))
TWO(topk, ignis_topk(h, 3, 1, true, NULL))
TWO(matmul_broadcast, ignis_matmul(h, wanted_of(IGNIS_SHAPE(2, 8, 3))))
TWO(softmax, ignis_softmax(h))
TWO(log_softmax, ignis_log_softmax(h))
TWO(layer_norm, ignis_layer_norm(h, wanted_of(IGNIS_SHAPE(8)), wanted_of(IGNIS_SHAPE(8)), 1e-5))
TWO(rms_norm, ignis_rms_norm(h, wanted_of(IGNIS_SHAPE(8)), 1e-5))
TWO(embedding, ignis_embedding(h, ids_of(3, 1)))
TWO(cross_entropy, ignis_cross_entropy(h, ids_of(4, 2), NULL))
TWO(checkpoint, ignis_checkpoint(squared, NULL, &h, 1, NULL))

static void two_rope(ignis_tensor h, ignis_tensor out[2])
{
    ignis_rope_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.num_heads = 2;
    twice(ignis_rope(h, &desc), out);
}

static void two_sdpa(ignis_tensor h, ignis_tensor out[2])
{
    ignis_sdpa_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.num_heads = 1;
    twice(ignis_sdpa(h, h, h, &desc), out);
}

static void two_concat(ignis_tensor h, ignis_tensor out[2])
{
    ignis_tensor both[2];
    both[0] = h, both[1] = h;
    twice(ignis_concat(both, 2, 0), out);
}

static void two_permute(ignis_tensor h, ignis_tensor out[2])
{
    static const int order[] = {1, 0};
    static const int64_t widths[] = {1, 2};
    out[0] = ignis_pad(ignis_permute(h, order, 2), widths, NULL, 2, 0);
    out[1] = ignis_flip(ignis_permute(h, order, 2), order, 1);
}

static void two_sort(ignis_tensor h, ignis_tensor out[2])
{
    ignis_tensor indices;
    twice(ignis_gather(ignis_sort(h, 1, true, &indices), 1, indices), out);
}

static void two_split(ignis_tensor h, ignis_tensor out[2]) { CHECK_OK(ignis_split(h, 0, 2, NULL, out)); }
static void two_split_columns(ignis_tensor h, ignis_tensor out[2]) { CHECK_OK(ignis_split(h, 1, 2, NULL, out)); }

static const struct {
    const char *name;
    two_fn fn;
} two_table[] = {{"reshape", two_reshape},
                 {"matmul", two_matmul},
                 {"matmul_t", two_matmul_t},
                 {"linear", two_linear},
                 {"add", two_add},
                 {"add, broadcast", two_add_broadcast},
                 {"sub", two_sub},
                 {"mul", two_mul},
                 {"add_bias", two_add_bias},
                 {"scale", two_scale},
                 {"cast", two_cast},
                 {"dropout", two_dropout},
                 {"relu", two_relu},
                 {"gelu", two_gelu},
                 {"gelu_exact", two_gelu_exact},
                 {"silu", two_silu},
                 {"silu_mul", two_silu_mul},
                 {"sum", two_sum},
                 {"mean", two_mean},
                 {"sum_dim", two_sum_dim},
                 {"mean_dim", two_mean_dim},
                 {"transpose", two_transpose},
                 {"slice", two_slice},
                 {"concat", two_concat},
                 {"split", two_split},
                 {"split of columns", two_split_columns},
                 {"slice_step", two_slice_step},
                 {"permute, pad, flip", two_permute},
                 {"expand", two_expand},
                 {"stack", two_stack},
                 {"sort, gather", two_sort},
                 {"index_select", two_index_select},
                 {"scatter_add", two_scatter_add},
                 {"cumsum", two_cumsum},
                 {"tril", two_tril},
                 {"topk", two_topk},
                 {"matmul, broadcast", two_matmul_broadcast},
                 {"softmax", two_softmax},
                 {"log_softmax", two_log_softmax},
                 {"layer_norm", two_layer_norm},
                 {"rms_norm", two_rms_norm},
                 {"rope", two_rope},
                 {"embedding", two_embedding},
                 {"cross_entropy", two_cross_entropy},
                 {"sdpa", two_sdpa},
                 {"checkpoint", two_checkpoint}};

/*  Runs the operation on a fresh leaf, and walks back from the outputs that the mask has, one after the other: the
    leaf's gradient (of 32 numbers; zeros when there is none), and the status of the last walk. */
static ignis_status walk_two(two_fn fn, int mask, double *grad)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = tensor_noise(IGNIS_SHAPE(4, 8), IGNIS_F32, 3, true), out[2];
    ignis_status status = IGNIS_OK;
    double *values;
    int k;
    CHECK_OK(ignis_seed(1));
    fn(ignis_scale(x, 2), out);
    for (k = 0; k < 2; k++) {
        ignis_tensor ones;
        if (!(mask >> k & 1))
            continue;
        ones = tensor_counting(shape_of(out[k]), tensor_info(out[k]).dtype, 1, false);
        status = ignis_backward(out[k], ignis_tensor_data(ones));
    }
    values = array_values(ignis_tensor_grad(x));
    memset(grad, 0, 32 * sizeof *grad);
    if (ignis_tensor_grad(x).id)
        memcpy(grad, values, 32 * sizeof *grad);
    free(values);
    CHECK_OK(ignis_scope_end(scope));
    return status;
}

/*  What an earlier backward has walked is gone: another one through it is an error, or right; never a gradient that is
    lost. */
TEST(a_second_backward_through_any_operation)
{
    int i, k;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(two_table); i++) {
        double first[32], second[32], both[32];
        ignis_status_info info;
        ignis_status status;
        char text[256];
        int wrong = 0;
        CHECK_OK(walk_two(two_table[i].fn, 1, first));
        CHECK_OK(walk_two(two_table[i].fn, 2, second));
        status = walk_two(two_table[i].fn, 3, both);
        ignis_status_query(&info);
        ignis_status_clear();
        for (k = 0; k < 32; k++)
            wrong += !is_close(both[k], first[k] + (status == IGNIS_OK ? second[k] : 0), 1e-5);
        if (!wrong && (status == IGNIS_OK || info.diagnostic == IGNIS_DIAG_BACKWARD_TWICE))
            continue;
        snprintf(text, sizeof text, "%s: status %s, %d numbers of the gradient are wrong", two_table[i].name,
                 ignis_status_name(status), wrong);
        test__fail(__FILE__, __LINE__, text);
    }
    CHECK_INT(memory().live_blocks, 0);
}

/*  Three walks through the same record add up to three times the gradient of one, to the last bit; a fourth is an
    error. */
static void check_retained(const char *name, ignis_tensor x, ignis_tensor y, ignis_array g)
{
    double *one, *three;
    char text[256];
    int k, wrong = 0;
    CHECK_OK(ignis_backward_retain(y, g));
    one = array_values(ignis_tensor_grad(x));
    CHECK_OK(ignis_backward_retain(y, g));
    CHECK_OK(ignis_backward(y, g));
    three = array_values(ignis_tensor_grad(x));
    CHECK_STATUS(ignis_backward_retain(y, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_TWICE);
    CHECK_MESSAGE_HAS("keep them with ignis_backward_retain");
    for (k = 0; k < 32; k++)
        wrong += three[k] != (double)(float)(3 * one[k]) || one[k] != one[k];
    snprintf(text, sizeof text, "%s: %d numbers of the gradient are wrong after three walks", name, wrong);
    if (wrong)
        test__fail(__FILE__, __LINE__, text);
    free(one), free(three);
}

TEST(a_retained_record_of_any_operation)
{
    ignis_tensor x, out[2], ones;
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(two_table); i++) {
        ignis_scope scope = ignis_scope_begin();
        x = tensor_noise(IGNIS_SHAPE(4, 8), IGNIS_F32, 3, true);
        two_table[i].fn(ignis_scale(x, 2), out);
        ones = tensor_counting(shape_of(out[1]), tensor_info(out[1]).dtype, 1, false);
        check_retained(two_table[i].name, x, out[1], ignis_tensor_data(ones));
        x = tensor_noise(IGNIS_SHAPE(4, 8), IGNIS_F32, 3, true);
        two_table[i].fn(x, out);
        check_retained(two_table[i].name, x, ignis_sum(out[0]), IGNIS_NO_ARRAY);
        CHECK_OK(ignis_scope_end(scope));
    }
    {
        ignis_scope scope = ignis_scope_begin(); /* from the loss itself, whose gradient is known to be 1 */
        x = tensor_noise(IGNIS_SHAPE(4, 8), IGNIS_F32, 3, true);
        check_retained("loss", x, ignis_cross_entropy(x, ids_of(4, 2), NULL), IGNIS_NO_ARRAY);
        CHECK_OK(ignis_scope_end(scope));
    }
    CHECK_INT(ignis_tape_length(), 0);
    CHECK_INT(memory().live_blocks, 0);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
