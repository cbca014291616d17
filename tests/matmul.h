// SPDX-License-Identifier: MIT
/*  matmul.h - what tests of matrix products and linear layers share: references in double, sizes */
#ifndef MATMUL_H
#define MATMUL_H

#include "tensor.h"

#include <math.h>

static const char *const dtype_names[] = {"default", "f16", "bf16", "f32", "f64"};

/*  Where an operand's element [row, column] is: op(x) of a stored matrix. */
typedef struct matrix {
    const double *at;
    int64_t rows, columns; /* of op(x) */
    bool transposed;       /* stored [columns, rows] */
} matrix;

static inline double matrix_at(matrix m, int64_t row, int64_t column)
{
    return m.transposed ? m.at[column * m.rows + row] : m.at[row * m.columns + column];
}

static inline matrix matrix_of(const double *at, int64_t rows, int64_t columns, bool transposed)
{
    matrix m;
    m.at = at, m.rows = rows, m.columns = columns, m.transposed = transposed;
    return m;
}

/*  Unit of rounding of a result, and of the sums behind it. */
static inline double epsilon_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64   ? ldexp(1, -53)
           : dtype == IGNIS_F32 ? ldexp(1, -24)
           : dtype == IGNIS_F16 ? ldexp(1, -11)
                                : ldexp(1, -8);
}

/*  got [a.rows, b.columns] is a b + bias: each sum may be off by its own rounding, and by one rounding of the result.
    cuBLASLt has kernels that round the product to 16 bits before they add the bias, which is a rounding more. */
static inline bool check_product(const char *what, ignis_dtype dtype, const double *got, matrix a, matrix b,
                                 const double *bias)
{
    double sums = dtype == IGNIS_F64 ? ldexp(1, -53) : ldexp(1, -24), tiny = dtype == IGNIS_F16 ? ldexp(1, -24) : 1e-37;
    int64_t i, j, l;
    for (i = 0; i < a.rows; i++) {
        for (j = 0; j < b.columns; j++) {
            double sum = bias ? bias[j] : 0, size = fabs(sum), error;
            for (l = 0; l < a.columns; l++) {
                double term = matrix_at(a, i, l) * matrix_at(b, l, j);
                sum += term, size += fabs(term);
            }
            error = fabs(got[i * b.columns + j] - sum);
            if (!(error <= epsilon_of(dtype) * (fabs(sum) + (bias ? fabs(sum - bias[j]) : 0)) * 1.01 +
                               sums * size * (double)(a.columns + 2) + tiny)) {
                char text[512];
                snprintf(text, sizeof text,
                         "%s: %s [%lld, %lld] x [%lld, %lld], element [%lld, %lld] is %.9g, expected %.9g", what,
                         dtype_names[dtype], (long long)a.rows, (long long)a.columns, (long long)b.rows,
                         (long long)b.columns, (long long)i, (long long)j, got[i * b.columns + j], sum);
                test__fail(__FILE__, __LINE__, text);
                return false;
            }
        }
    }
    return true;
}

typedef struct sizes {
    int64_t m, k, n;
} sizes;

static const sizes all_sizes[] = {{1, 1, 1},   {1, 7, 1},   {1, 1, 5},    {5, 1, 1},   {3, 2, 5},    {7, 11, 13},
                                  {17, 31, 1}, {1, 64, 33}, {16, 16, 16}, {64, 8, 24}, {31, 37, 41}, {128, 65, 3}};

static inline void check_linear(ignis_dtype dtype, sizes s, bool with_bias)
{
    ignis_tensor none = {0}, x = tensor_noise(IGNIS_SHAPE(2, s.m, s.k), dtype, 1, true),
                 w = tensor_noise(IGNIS_SHAPE(s.n, s.k), dtype, 2, true);
    ignis_tensor bias = with_bias ? tensor_noise(IGNIS_SHAPE(s.n), dtype, 3, true) : none,
                 g = tensor_noise(IGNIS_SHAPE(2, s.m, s.n), dtype, 4, false);
    ignis_tensor y = ignis_linear(x, w, bias);
    int64_t rows = 2 * s.m, i;
    double *xv = tensor_values(x), *wv = tensor_values(w), *bv = with_bias ? tensor_values(bias) : NULL,
           *gv = tensor_values(g), *yv = tensor_values(y);
    double *dx, *dw, *db, *ones = (double *)calloc((size_t)rows + 1, sizeof *ones);
    for (i = 0; i < rows; i++)
        ones[i] = 1;
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(2, s.m, s.n));
    CHECK_OK(ignis_backward(y, ignis_tensor_data(g)));
    dx = array_values(ignis_tensor_grad(x)), dw = array_values(ignis_tensor_grad(w)),
    db = with_bias ? array_values(ignis_tensor_grad(bias)) : NULL;
    check_product("linear", dtype, yv, matrix_of(xv, rows, s.k, false), matrix_of(wv, s.k, s.n, true), bv);
    check_product("linear dx", dtype, dx, matrix_of(gv, rows, s.n, false), matrix_of(wv, s.n, s.k, false), NULL);
    check_product("linear dw", dtype, dw, matrix_of(gv, s.n, rows, true), matrix_of(xv, rows, s.k, false), NULL);
    if (with_bias)
        check_product("linear db", dtype, db, matrix_of(ones, 1, rows, false), matrix_of(gv, rows, s.n, false), NULL);
    free(xv), free(wv), free(bv), free(gv), free(yv), free(dx), free(dw), free(db), free(ones);
    let_go(x), let_go(w), let_go(g), let_go(y);
    if (with_bias)
        let_go(bias);
}

#endif
