// SPDX-License-Identifier: MIT
/*  rows.h - what tests of operations on rows share: roundings, indices, comparisons */
#ifndef ROWS_H
#define ROWS_H

#include "near.h"

#include <math.h>

/* The relative error of one rounding, and what sums add to it. */
static inline double rounding_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64 ? 1e-12 : dtype == IGNIS_F32 ? 4e-6 : dtype == IGNIS_F16 ? 6e-4 : 5e-3;
}

#define EACH_FLOAT(dtype) for (dtype = IGNIS_F16; dtype <= IGNIS_F64; dtype = (ignis_dtype)(dtype + 1))

static inline ignis_tensor indices_of(const int64_t *values, ignis_shape shape, ignis_dtype dtype)
{
    ignis_tensor_desc desc = tensor_desc(dtype, false);
    desc.host_dtype = IGNIS_I64;
    return ignis_tensor_from_host(values, shape, &desc);
}

#define CHECK_ALL(what, dtype, n, got, expected, count, tolerance, floor) \
    check_each(__LINE__, what, dtype, n, got, expected, count, tolerance, floor)

static inline double *numbers(int64_t count) { return (double *)calloc((size_t)count + 1, sizeof(double)); }

static inline double largest(const double *values, int64_t count)
{
    double most = 0;
    int64_t i;
    for (i = 0; i < count; i++)
        most = fabs(values[i]) > most ? fabs(values[i]) : most;
    return most;
}

static inline void softmax_reference(const double *x, double *y, int64_t n)
{
    double max = -INFINITY, sum = 0;
    int64_t i;
    for (i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (i = 0; i < n; i++)
        sum += y[i] = exp(x[i] - (max == -INFINITY ? 0 : max));
    for (i = 0; i < n; i++)
        y[i] = sum == 0 ? 0 : y[i] / sum;
}

#endif
