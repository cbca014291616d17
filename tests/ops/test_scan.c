// SPDX-License-Identifier: MIT
/*  test_scan.c - cumprod, cummax, cummin and logcumsumexp beside double references, their gradients beside differences

    ignis_cumsum is in test_ops_shape.c. */
#include "sweep.h"

#include <math.h>

static const ignis_dtype scan_dtypes[7] = {IGNIS_F64, IGNIS_F32, IGNIS_F16, IGNIS_BF16, IGNIS_I64, IGNIS_I32, IGNIS_U8};

typedef enum scan { PRODUCT, LARGEST, SMALLEST, LOG_SUM } scan;

static ignis_tensor run_scan(scan which, ignis_tensor x, int dim, ignis_tensor *indices)
{
    switch (which) {
    case PRODUCT: return ignis_cumprod(x, dim);
    case LARGEST: return ignis_cummax(x, dim, indices);
    case SMALLEST: return ignis_cummin(x, dim, indices);
    default: return ignis_logcumsumexp(x, dim);
    }
}

/*  One element more: value and place become those of the elements up to x, which is at `at`. */
static void step(scan which, double x, int64_t at, double *value, int64_t *place)
{
    bool wins = which == LARGEST ? x >= *value : x <= *value;
    if (which == PRODUCT)
        *value = at ? *value * x : x;
    else if (which == LOG_SUM)
        *value = at ? (*value > x ? *value + log1p(exp(x - *value)) : x + log1p(exp(*value - x))) : x;
    else if (at == 0 || wins || x != x)
        *value = x, *place = at;
}

/*  Products near 1, so that long ones are no 0 and no infinity; of integers 1, -1 and a 0; elements to compare are few
    different ones, so that there are ties. */
static double element_for(scan which, ignis_dtype dtype, int64_t i)
{
    double r = noise(7, i);
    if (which == PRODUCT && dtype >= IGNIS_I32)
        return i % 97 == 96 ? 0 : r > 0 ? 1 : -1;
    if (which == PRODUCT)
        return i % 89 == 88 ? 0 : (r > 0 ? 1 : -1) + r / 16;
    if (which == LOG_SUM)
        return 8 * r;
    return floor(16 * r) + (dtype == IGNIS_U8 ? 16 : 0) + (double)(which == LARGEST ? i % 1000 : -(i % 1000)) / 128;
}

/*  A product of n factors has n roundings in the wide type; so has a sum of n. */
static double tolerance_for(ignis_dtype dtype, int64_t n)
{
    switch (dtype) {
    case IGNIS_F64: return 1e-15 * (double)(n + 8);
    case IGNIS_F32: return 1.2e-7 * (double)(n + 8);
    case IGNIS_F16: return 1.2e-7 * (double)n + 5e-4;
    case IGNIS_BF16: return 1.2e-7 * (double)n + 4e-3;
    default: return 0;
    }
}

static void check_scan(scan which, ignis_shape shape, int dim, ignis_dtype dtype)
{
    int64_t numel = shape_numel(shape), n = shape.dim[dim], inner = 1, row, i, wrong = 0, misplaced = 0, place = 0;
    double *in, *got, *places, value = 0, *values = (double *)malloc(sizeof *values * (size_t)(numel + 1));
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x, y, indices = no_tensor();
    int d;
    for (d = dim + 1; d < shape.ndim; d++)
        inner *= shape.dim[d];
    for (i = 0; i < numel; i++)
        values[i] = element_for(which, dtype, i);
    x = tensor_of(values, shape, dtype, false);
    in = tensor_values(x);
    y = run_scan(which, x, dim, &indices);
    CHECK_OK(ignis_status_last());
    CHECK_SHAPE_IS(y, shape);
    CHECK_INT(tensor_info(y).dtype, dtype);
    got = tensor_values(y);
    places = indices.id ? tensor_values(indices) : NULL;
    CHECK_INT(indices.id != 0, which == LARGEST || which == SMALLEST);
    for (row = 0; n && row < numel / n; row++)
        for (i = 0; i < n; i++) {
            int64_t at = (row / inner * n + i) * inner + row % inner;
            step(which, in[at], i, &value, &place);
            wrong += !is_close(got[at], value, which == LARGEST || which == SMALLEST ? 0 : tolerance_for(dtype, n));
            misplaced += places && places[at] != (double)place;
        }
    CHECK_INT(wrong, 0);
    CHECK_INT(misplaced, 0);
    if (wrong || misplaced)
        printf("scan %d of %d elements along %d in dtype %d\n", (int)which, (int)numel, dim, (int)dtype);
    free(values);
    free(in);
    free(got);
    free(places);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(values)
{
    static const ignis_shape shapes[] = {
        {1, {1}},       {1, {0}},       {1, {37}},      {2, {5, 3}},      {2, {3, 0}},
        {2, {9, 64}},   {2, {2, 1000}}, {2, {1, 1031}}, {3, {2, 700, 3}}, {8, {1, 2, 1, 3, 2, 1, 5, 1}},
        {2, {3, 6016}}, {1, {9001}}};
    int s, dim, which, d;
    SETUP(NULL);
    for (which = PRODUCT; which <= LOG_SUM; which++)
        for (d = 0; d < (which == PRODUCT ? 6 : which == LOG_SUM ? 4 : 7); d++)
            for (s = 0; s < COUNT_OF(shapes); s++)
                for (dim = 0; dim < shapes[s].ndim; dim++)
                    check_scan((scan)which, shapes[s], dim, scan_dtypes[d]);
}

/*  Many tiles, of whole packs and not; in f64 more than a group has. */
TEST(long_rows)
{
    int which;
    SETUP(NULL);
    for (which = PRODUCT; which <= LOG_SUM; which++) {
        check_scan((scan)which, IGNIS_SHAPE(40000), 0, IGNIS_F32);
        check_scan((scan)which, IGNIS_SHAPE(2, 40961), 1, IGNIS_F16);
    }
    check_scan(LARGEST, IGNIS_SHAPE(1024 * 257 + 6), 0, IGNIS_F64);
    check_scan(SMALLEST, IGNIS_SHAPE(20001), 0, IGNIS_U8);
    check_scan(LARGEST, IGNIS_SHAPE(20001), 0, IGNIS_I64);
}

TEST(products_of_integers_wrap)
{
    static const int64_t values[] = {INT64_MAX, 3, -1, 0, 5};
    ignis_tensor_desc desc = tensor_desc(IGNIS_I64, false);
    ignis_scope scope;
    int64_t got[5];
    SETUP(NULL);
    scope = ignis_scope_begin();
    desc.host_dtype = IGNIS_I64;
    CHECK_OK(ignis_tensor_to_host(ignis_cumprod(ignis_tensor_from_host(values, IGNIS_SHAPE(5), &desc), 0), got,
                                  IGNIS_I64, 5));
    CHECK(got[0] == INT64_MAX && got[1] == INT64_MAX - 2 && got[2] == 2 - INT64_MAX && got[3] == 0 && got[4] == 0);
    CHECK_OK(ignis_scope_end(scope));
}

/*  NaN goes on; infinities are elements like others. */
TEST(nan_and_infinities)
{
    const double inf = HUGE_VAL, values[] = {-inf, -inf, 2, NAN, 7, inf};
    static const double places[] = {0, 1, 2, 3, 3, 3};
    ignis_scope scope;
    int d, which, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (which = LARGEST; which <= LOG_SUM; which++) {
            ignis_tensor x, y, indices = no_tensor(), grad;
            scope = ignis_scope_begin();
            x = tensor_of(values, IGNIS_SHAPE(6), scan_dtypes[d], true);
            y = run_scan((scan)which, x, 0, &indices);
            CHECK(which == SMALLEST || (value_at(y, 0) == -inf && value_at(y, 1) == -inf));
            CHECK_NUMBER(value_at(y, 2), which == SMALLEST ? -inf : 2);
            for (i = 3; i < 6; i++)
                CHECK(value_at(y, i) != value_at(y, i));
            for (i = 0; i < 6 && which == LARGEST; i++)
                CHECK_NUMBER(value_at(indices, i), places[i]);
            if (which == LOG_SUM) { /* the first three only */
                x = ignis_tensor_from_array(ignis_tensor_data(ignis_slice(x, 0, 0, 3)), true);
                grad = tensor_counting(IGNIS_SHAPE(3), scan_dtypes[d], 1, false);
                CHECK_OK(ignis_backward(ignis_logcumsumexp(x, 0), ignis_tensor_data(grad)));
                CHECK_NUMBER(grad_at(x, 0), 0);
                CHECK_NUMBER(grad_at(x, 1), 0);
                CHECK_NUMBER(grad_at(x, 2), 3);
            }
            CHECK_OK(ignis_tape_clear());
            CHECK_OK(ignis_scope_end(scope));
        }
}

/*  Sums of exp that overflow alone, and vanish beside the largest one. */
TEST(logcumsumexp_does_not_overflow)
{
    static const double values[] = {1000, -1000, 1000, 30000, -30000};
    ignis_scope scope;
    ignis_tensor x, y;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_of(values, IGNIS_SHAPE(5), IGNIS_F32, true);
    y = ignis_logcumsumexp(x, 0);
    CHECK_CLOSE(value_at(y, 1), 1000, 1e-7);
    CHECK_CLOSE(value_at(y, 2), 1000 + log(2.0), 1e-7);
    CHECK_CLOSE(value_at(y, 4), 30000, 1e-7);
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    /* 1 + 1 + 1/2, and so on; the result, 1000.69 in f32, has a rounding of 3e-5, which exp makes a relative one */
    CHECK_CLOSE(grad_at(x, 0), 2.5, 3e-5);
    CHECK_CLOSE(grad_at(x, 1), 0, 3e-5);
    CHECK_CLOSE(grad_at(x, 2), 0.5, 3e-5);
    CHECK_CLOSE(grad_at(x, 3), 2, 3e-5);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

typedef struct differentiated {
    scan which;
    int dim;
    double zero; /* 0: one element becomes 0; 2: two of them */
} differentiated;

static ignis_tensor call_scan(const ignis_tensor *x, int count, void *user_data)
{
    const differentiated *d = (const differentiated *)user_data;
    (void)count;
    return run_scan(d->which, x[0], d->dim, NULL);
}

TEST(gradients_agree_with_differences)
{
    static const ignis_shape shapes[] = {{1, {1}}, {1, {7}}, {2, {6, 5}}, {3, {2, 3, 2}}};
    differentiated d;
    int which, s, zeros, i;
    SETUP(NULL);
    for (which = PRODUCT; which <= LOG_SUM; which++)
        for (s = 0; s < COUNT_OF(shapes); s++)
            for (d.dim = 0; d.dim < shapes[s].ndim; d.dim++)
                for (zeros = 0; zeros <= (which == PRODUCT ? 2 : 0); zeros++) {
                    double values[30];
                    ignis_tensor x;
                    d.which = (scan)which;
                    for (i = 0; i < 30; i++)
                        values[i] = noise(11, i);
                    for (i = 0; i < zeros; i++)
                        values[3 * i] = 0;
                    x = tensor_of(values, shapes[s], IGNIS_F64, true);
                    CHECK(ignis_gradcheck(call_scan, &d, &x, 1, NULL) < 1e-6);
                    CHECK_OK(ignis_status_last());
                    let_go(x);
                }
}

/*  Gradients of long rows, by tiles and by columns in parts, beside the rule in double. */
static void check_long_gradient(scan which, ignis_shape shape, int dim, ignis_dtype dtype, double tolerance)
{
    int64_t numel = shape_numel(shape), n = shape.dim[dim], inner = dim == 0 && shape.ndim == 2 ? shape.dim[1] : 1, row,
            i, wrong = 0;
    double *values = (double *)malloc(sizeof *values * (size_t)numel), *in, *y, *g, *got;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x, result;
    for (i = 0; i < numel; i++)
        values[i] = which == PRODUCT ? element_for(which, dtype, i) : noise(3, i);
    x = tensor_of(values, shape, dtype, true);
    in = tensor_values(x);
    result = run_scan(which, x, dim, NULL);
    y = tensor_values(result);
    g = backward_from(result, dtype, 9, 0);
    got = array_values(ignis_tensor_grad(x));
    for (row = 0; row < numel / n; row++) {
        double sum = 0, before;
        for (i = n - 1; i >= 0; i--) {
            int64_t at = (row / inner * n + i) * inner + row % inner;
            if (which == PRODUCT) {
                sum = g[at] + (i + 1 < n ? in[at + inner] * sum : 0);
                before = i ? y[at - inner] : 1;
                wrong += !is_close(got[at], before * sum, tolerance);
            } else { /* sum is that of g exp(-y) times exp(y[i]) */
                sum = g[at] + (i + 1 < n ? sum * exp(y[at] - y[at + inner]) : 0);
                wrong += !is_close(got[at], exp(in[at] - y[at]) * sum, tolerance);
            }
        }
    }
    CHECK_INT(wrong, 0);
    free(values);
    free(in);
    free(y);
    free(g);
    free(got);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(gradients_of_long_rows)
{
    SETUP(NULL);
    check_long_gradient(PRODUCT, IGNIS_SHAPE(20000), 0, IGNIS_F64, 1e-9);
    check_long_gradient(PRODUCT, IGNIS_SHAPE(2, 9001), 1, IGNIS_F32, 1e-4);
    check_long_gradient(PRODUCT, IGNIS_SHAPE(3001, 3), 0, IGNIS_F32, 1e-4);
    check_long_gradient(LOG_SUM, IGNIS_SHAPE(20000), 0, IGNIS_F64, 1e-10);
    check_long_gradient(LOG_SUM, IGNIS_SHAPE(3001, 3), 0, IGNIS_F32, 1e-4);
}

/* --- refusals, memory --------------------------------------------------------------------------------------------- */

TEST(refusals)
{
    ignis_scope scope;
    ignis_tensor x, bytes, ints, eighths, indices;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, false);
    ints = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_I32, 1, false);
    bytes = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_U8, 1, false);
    eighths = ignis_cast(x, IGNIS_F8_E4M3);
    CHECK_REFUSED(0, ignis_cumprod(x, 2).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_REFUSED(0, ignis_cummax(x, -3, &indices).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_DIM_RANGE);
    CHECK_INT(indices.id, 0);
    CHECK_REFUSED(0, ignis_cumprod(bytes, 0).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("ignis_cumprod: the tensor is u8, whose products would not fit; ignis_cast makes it i64");
    CHECK_REFUSED(0, ignis_logcumsumexp(ints, 0).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_cummin(eighths, 0, NULL).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    ignis_tensor indices = no_tensor(), y = ignis_cumprod(ignis_cummax(inputs[0], 0, &indices), 1);
    (void)at;
    y = ignis_logcumsumexp(ignis_cummin(y, 1, NULL), 0);
    if (indices.id)
        ignis_tensor_release(indices);
    return ignis_sum(y);
}

static void sweep(const char *prefix)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor input;
    SETUP(&desc);
    input = tensor_noise(IGNIS_SHAPE(6, 5), IGNIS_F32, 1, true);
    sweep_walks(prefix, &counter, everything, &input);
    let_go(input);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
