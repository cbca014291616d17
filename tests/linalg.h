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
    char text[128];
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
    char text[128];
    double error;
    memset(&desc, 0, sizeof desc);
    desc.tolerance = 1e-6;
    error = ignis_gradcheck(fn, NULL, inputs, count, &desc);
    if (error < 1e-6)
        return;
    snprintf(text, sizeof text, "gradients differ from slopes by %g", error);
    test__fail(__FILE__, line, text);
}

#endif /* LINALG_H */
