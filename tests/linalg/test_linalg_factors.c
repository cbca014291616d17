// SPDX-License-Identifier: MIT
/*  test_linalg_factors.c - QR factors and least squares

    Residuals and orthogonality are computed on the host in double. */
#include "linalg.h"

static void check_qr(int64_t count, int m, int n, ignis_dtype dtype)
{
    int k = m < n ? m : n, i, j;
    double *a = matrices(count, m, n, dtype, 21), *q, *r, bound = 4 * (m + n + 1) * EPSILON(dtype);
    ignis_tensor upper, orthogonal = ignis_qr(tensor_of(a, IGNIS_SHAPE(count, m, n), dtype, false), &upper);
    int64_t b;
    CHECK_SHAPE_IS(orthogonal, IGNIS_SHAPE(count, m, k));
    CHECK_SHAPE_IS(upper, IGNIS_SHAPE(count, k, n));
    q = tensor_values(orthogonal);
    r = tensor_values(upper);
    for (b = 0; b < count; b++) {
        check_orthonormal(__LINE__, q + b * m * k, m, k, bound);
        for (i = 0; i < k; i++)
            for (j = 0; j < i; j++)
                CHECK_NUMBER(r[(b * k + i) * n + j], 0);
        add_product(a + b * m * n, q + b * m * k, r + b * k * n, m, n, k, 0, -1);
        CHECK(largest(a + b * m * n, m * n) <= bound);
    }
    free(a), free(q), free(r);
}

TEST(qr_of_all_sizes)
{
    int i, k, d;
    SETUP(NULL);
    for (d = 0; d < 2; d++)
        for (i = 0; i < COUNT_OF(sides); i++)
            for (k = 0; k < COUNT_OF(batches); k++) {
                ignis_scope scope = ignis_scope_begin();
                int n = sides[i];
                if (n < 65 || batches[k] < 7) {
                    check_qr(batches[k], n, n, wide_dtypes[d]);
                    check_qr(batches[k], n, n / 2 + 1, wide_dtypes[d]);
                    check_qr(batches[k], n / 2 + 1, n, wide_dtypes[d]);
                }
                if (batches[k] == 1 && n < 18)
                    check_qr(1, 700, n, wide_dtypes[d]);
                CHECK_OK(ignis_scope_end(scope));
            }
}

/*  Columns of zeros, a column twice, and numbers whose squares overflow. */
TEST(qr_of_few_columns_that_count)
{
    const double a[] = {0, 1, 1, 0, 2, 2, 0, 3, 3, 0, 4, 4}, large[] = {3e300, 1, 4e300, 1, 0, 1};
    ignis_tensor r, q;
    ignis_scope scope;
    double *values;
    SETUP(NULL);
    scope = ignis_scope_begin();
    q = ignis_qr(tensor_of(a, IGNIS_SHAPE(4, 3), IGNIS_F64, false), &r);
    values = tensor_values(q);
    check_orthonormal(__LINE__, values, 4, 3, 1e-15);
    CHECK_NUMBER(value_at(r, 0), 0);
    CHECK(fabs(value_at(r, 8)) < 1e-15);
    free(values);
    q = ignis_qr(tensor_of(large, IGNIS_SHAPE(3, 2), IGNIS_F64, false), &r);
    CHECK_CLOSE(value_at(r, 0), -5e300, 1e-15);
    values = tensor_values(q);
    check_orthonormal(__LINE__, values, 3, 2, 1e-15);
    free(values);
    CHECK_OK(ignis_scope_end(scope));
}

/*  The residual is orthogonal to the columns; the least solution is a combination of the rows. */
static void check_lstsq(int64_t count, int m, int n, int k, ignis_dtype dtype)
{
    double *a = matrices(count, m, n, dtype, 22), *b = matrices(count, m, k, dtype, 23), *x;
    ignis_tensor solved = ignis_lstsq(tensor_of(a, IGNIS_SHAPE(count, m, n), dtype, false),
                                      tensor_of(b, IGNIS_SHAPE(count, m, k), dtype, false), NULL);
    int64_t c;
    int i, j, p;
    CHECK_SHAPE_IS(solved, IGNIS_SHAPE(count, n, k));
    x = tensor_values(solved);
    for (c = 0; c < count; c++) {
        double *own = a + c * m * n, *rest = b + c * m * k,
               bound = 20 * (m + n) * EPSILON(dtype) * (1 + n * largest(x + c * n * k, n * k));
        add_product(rest, own, x + c * n * k, m, k, n, 0, -1);
        if (m <= n) {
            CHECK(largest(rest, m * k) <= bound);
            continue;
        }
        for (j = 0; j < n; j++)
            for (i = 0; i < k; i++) {
                double sum = 0;
                for (p = 0; p < m; p++)
                    sum += own[p * n + j] * rest[p * k + i];
                CHECK(fabs(sum) <= bound * m);
            }
    }
    free(a), free(b), free(x);
}

TEST(least_squares)
{
    const double a[] = {1, 1, 1, 2, 1, 3, 1, 4}, b[] = {6, 5, 7, 10}, flat[] = {1, 2}, twice[] = {1, 1, 2, 2, 3, 3};
    ignis_tensor x, info, matrix;
    ignis_scope scope;
    int d;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (d = 0; d < 2; d++) {
        check_lstsq(3, 9, 4, 2, wide_dtypes[d]);
        check_lstsq(3, 4, 9, 2, wide_dtypes[d]);
        check_lstsq(1, 90, 70, 3, wide_dtypes[d]);
        check_lstsq(2, 5, 5, 1, wide_dtypes[d]);
    }
    x = ignis_lstsq(tensor_of(a, IGNIS_SHAPE(4, 2), IGNIS_F64, false), tensor_of(b, IGNIS_SHAPE(4), IGNIS_F64, false),
                    NULL);
    CHECK_SHAPE_IS(x, IGNIS_SHAPE(2));
    CHECK_CLOSE(value_at(x, 0), 3.5, 1e-14);
    CHECK_CLOSE(value_at(x, 1), 1.4, 1e-14);
    x = ignis_lstsq(tensor_of(flat, IGNIS_SHAPE(1, 2), IGNIS_F64, false),
                    tensor_of(b, IGNIS_SHAPE(1), IGNIS_F64, false), &info);
    CHECK_CLOSE(value_at(x, 0), 1.2, 1e-15); /* the least of the solutions of x + 2 y = 6 */
    CHECK_CLOSE(value_at(x, 1), 2.4, 1e-15);
    CHECK_INT(ignis_item_i64(info), 0);
    matrix = tensor_of(twice, IGNIS_SHAPE(3, 2), IGNIS_F64, false);
    CHECK_REFUSED(0, ignis_lstsq(matrix, tensor_of(b, IGNIS_SHAPE(3), IGNIS_F64, false), NULL).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_MATRIX_SINGULAR);
    (void)ignis_lstsq(matrix, tensor_of(b, IGNIS_SHAPE(3), IGNIS_F64, false), &info);
    CHECK_INT(ignis_item_i64(info), 2);
    CHECK_REFUSED(0, ignis_lstsq(matrix, tensor_of(b, IGNIS_SHAPE(4), IGNIS_F64, false), NULL).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_MATRIX_SHAPE);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor of_qr(const ignis_tensor *x, int count, void *user_data)
{
    ignis_tensor r, q = ignis_qr(x[0], &r);
    return (void)count, (void)user_data, ignis_add(weighed(q, 1), weighed(r, 2));
}

static ignis_tensor of_lstsq(const ignis_tensor *x, int count, void *user_data)
{
    return (void)count, (void)user_data, weighed(ignis_lstsq(x[0], x[1], NULL), 3);
}

TEST(gradients_are_slopes)
{
    ignis_tensor x[2], r;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x[0] = tensor_noise(IGNIS_SHAPE(2, 5, 3), IGNIS_F64, 31, true);
    x[1] = tensor_noise(IGNIS_SHAPE(2, 5), IGNIS_F64, 32, true);
    CHECK_GRADIENTS(of_qr, x, 1);
    CHECK_GRADIENTS(of_lstsq, x, 2);
    CHECK_SECOND(of_qr, x, 1);
    CHECK_SECOND(of_lstsq, x, 2);
    x[0] = tensor_noise(IGNIS_SHAPE(2, 3, 5), IGNIS_F64, 33, true);
    x[1] = tensor_noise(IGNIS_SHAPE(2, 3, 2), IGNIS_F64, 34, true);
    CHECK_GRADIENTS(of_lstsq, x, 2);
    CHECK_REFUSED(0, ignis_qr(x[0], &r).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_REFUSED(0, ignis_qr(x[0], NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_scope_end(scope));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
