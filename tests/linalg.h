// SPDX-License-Identifier: MIT
/*  linalg.h - what the tests of linear algebra share: batches of matrices on the host, in double */
#ifndef LINALG_H
#define LINALG_H

#include "tensor.h"

#include <math.h>

#define EPSILON(dtype) ((dtype) == IGNIS_F32 ? 1.2e-7 : 2.3e-16)

static const int sides[] = {0, 1, 2, 3, 5, 8, 17, 32, 33, 64, 65, 100};
static const int batches[] = {0, 1, 7};
static const ignis_dtype wide_dtypes[] = {IGNIS_F32, IGNIS_F64};

/*  Noise, as the dtype rounds it. */
static inline double *matrices(int64_t count, int rows, int columns, ignis_dtype dtype, uint64_t seed)
{
    return rounded_noise(IGNIS_SHAPE(count, rows, columns), dtype, seed, 1);
}

/*  c [m, n] += factor a [m, k] b [k, n]; transposed ones are stored the other way. */
static inline void add_product(double *c, const double *a, const double *b, int m, int n, int k, int transpose_b,
                               double factor)
{
    int i, j, p;
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++)
            for (p = 0; p < k; p++)
                c[i * n + j] += factor * a[i * k + p] * (transpose_b ? b[j * k + p] : b[p * n + j]);
}

/*  Symmetric, with eigenvalues of about n/3: a a^T + I. Rounded to the dtype. */
static inline double *positive_matrices(int64_t count, int n, ignis_dtype dtype, uint64_t seed)
{
    double *a = matrices(count, n, n, IGNIS_F64, seed);
    double *s = (double *)calloc((size_t)(count * n * n) + 1, sizeof *s);
    int64_t b;
    int i;
    for (b = 0; b < count; b++) {
        add_product(s + b * n * n, a + b * n * n, a + b * n * n, n, n, n, 1, 1);
        for (i = 0; i < n; i++)
            s[b * n * n + i * n + i] += 1;
    }
    for (b = 0; b < count * n * n && dtype == IGNIS_F32; b++)
        s[b] = (double)(float)s[b];
    free(a);
    return s;
}

static inline double largest(const double *x, int64_t count)
{
    double most = 0;
    int64_t i;
    for (i = 0; i < count; i++)
        if (!(fabs(x[i]) <= most))
            most = fabs(x[i]);
    return most;
}

/*  q [m, k] has orthonormal columns, up to some rounding errors. */
static inline void check_orthonormal(int line, const double *q, int m, int k, double tolerance)
{
    int i, j, p;
    double most = 0;
    char text[256];
    for (i = 0; i < k; i++)
        for (j = 0; j <= i; j++) {
            double sum = i == j ? -1 : 0;
            for (p = 0; p < m; p++)
                sum += q[p * k + i] * q[p * k + j];
            if (!(fabs(sum) <= most))
                most = fabs(sum);
        }
    snprintf(text, sizeof text, "columns of [%d, %d] are orthonormal up to %g, expected %g", m, k, most, tolerance);
    if (!(most <= tolerance))
        test__fail(__FILE__, line, text);
}

/*  Random tensors for gradients are seen through: sum(y * noise). */
static inline ignis_tensor weighed(ignis_tensor y, uint64_t seed)
{
    ignis_tensor noise;
    if (!y.id)
        return y;
    noise = tensor_noise(shape_of(y), IGNIS_F64, seed, false);
    return ignis_sum(ignis_mul(y, noise));
}

/*  The gradients of a function of f64 leaves are its slopes, up to the rounding of differences with a step of 1e-5. */
#define CHECK_GRADIENTS(fn, inputs, count) check_gradients(__LINE__, fn, inputs, count)
static inline void check_gradients(int line, ignis_tensor_fn fn, const ignis_tensor *inputs, int count)
{
    ignis_gradcheck_desc desc;
    char text[256];
    double error;
    memset(&desc, 0, sizeof desc);
    desc.tolerance = 1e-6;
    error = ignis_gradcheck(fn, NULL, inputs, count, &desc);
    if (error < 1e-6)
        return;
    snprintf(text, sizeof text, "gradients differ from slopes by %g", error);
    test__fail(__FILE__, line, text);
}

/*  The gradients of a function, seen through noise. */
static inline ignis_tensor slopes_of(ignis_tensor_fn fn, const ignis_tensor *inputs, int count, bool create_graph)
{
    ignis_tensor y = fn(inputs, count, NULL), slopes[2], sum = {0};
    ignis_grad_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.create_graph = create_graph;
    CHECK_OK(ignis_grad(&y, 1, inputs, count, slopes, &desc));
    for (i = 0; i < count; i++)
        sum = i ? ignis_add(sum, weighed(slopes[i], 90 + (uint64_t)i)) : weighed(slopes[i], 90);
    return sum;
}

/*  As slopes_of, with one element of an input moved. */
static inline double slopes_beside(ignis_tensor_fn fn, const ignis_tensor *inputs, int count, int input, int64_t k,
                                   double step)
{
    ignis_tensor moved[2];
    ignis_scope scope = ignis_scope_begin();
    double result;
    int i;
    for (i = 0; i < count; i++) {
        double *values = tensor_values(inputs[i]);
        if (i == input)
            values[k] += step;
        moved[i] = tensor_of(values, shape_of(inputs[i]), IGNIS_F64, true);
        free(values);
    }
    result = ignis_item(slopes_of(fn, moved, count, false));
    CHECK_OK(ignis_scope_end(scope));
    return result;
}

/*  Second derivatives are the slopes of first ones, up to the rounding of differences. */
#define CHECK_SECOND(fn, inputs, count) check_second(__LINE__, fn, inputs, count)
static inline void check_second(int line, ignis_tensor_fn fn, const ignis_tensor *inputs, int count)
{
    const double step = 1e-5;
    ignis_tensor sum = slopes_of(fn, inputs, count, true), second[2];
    ignis_grad_desc desc;
    int64_t k;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.allow_unused = true;
    CHECK_OK(ignis_grad(&sum, 1, inputs, count, second, &desc));
    for (i = 0; i < count; i++)
        for (k = 0; k < numel_of(inputs[i]); k += 3)
            check_close(line, "second derivative", second[i].id ? value_at(second[i], k) : 0,
                        (slopes_beside(fn, inputs, count, i, k, step) - slopes_beside(fn, inputs, count, i, k, -step)) /
                            (2 * step),
                        1e-5);
}

#endif /* LINALG_H */
