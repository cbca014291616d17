// SPDX-License-Identifier: MIT
/*  test_linalg_eigen.c - eigenvalues of symmetric matrices, singular values, and their vectors

    Residuals and orthogonality are computed on the host in double; their bounds are some rounding errors of the largest
    value, times the side. */
#include "linalg.h"

static void check_eigh_of(const double *from, int64_t count, int n, ignis_dtype dtype)
{
    double *a = (double *)calloc((size_t)(count * n * n) + 1, sizeof *a), *w, *v, bound = 10 * (n + 1) * EPSILON(dtype);
    ignis_tensor vectors, values = ignis_eigh(tensor_of(from, IGNIS_SHAPE(count, n, n), dtype, false), &vectors);
    int64_t b;
    int i, j, p;
    CHECK_SHAPE_IS(values, IGNIS_SHAPE(count, n));
    CHECK_SHAPE_IS(vectors, IGNIS_SHAPE(count, n, n));
    w = tensor_values(values);
    v = tensor_values(vectors);
    for (b = 0; b < count; b++) {
        double *own = a + b * n * n, *of = v + b * n * n, size;
        for (i = 0; i < n; i++)
            for (j = 0; j < n; j++) /* the lower triangle counts */
                own[i * n + j] = from[b * n * n + (i > j ? i * n + j : j * n + i)];
        size = largest(own, n * n);
        check_orthonormal(__LINE__, of, n, n, bound);
        for (i = 1; i < n; i++)
            CHECK(w[b * n + i - 1] <= w[b * n + i]);
        for (i = 0; i < n; i++)
            for (j = 0; j < n; j++) {
                double sum = -of[i * n + j] * w[b * n + j];
                for (p = 0; p < n; p++)
                    sum += own[i * n + p] * of[p * n + j];
                CHECK(fabs(sum) <= bound * size);
            }
    }
    free(a), free(w), free(v);
}

static void check_eigh(int64_t count, int n, ignis_dtype dtype)
{
    double *a = matrices(count, n, n, dtype, 41);
    check_eigh_of(a, count, n, dtype);
    free(a);
}

static void for_all(void (*check)(int64_t count, int n, ignis_dtype dtype))
{
    int i, k, d;
    for (d = 0; d < 2; d++)
        for (i = 0; i < COUNT_OF(sides); i++)
            for (k = 0; k < COUNT_OF(batches); k++) {
                ignis_scope scope = ignis_scope_begin();
                int n = sides[i];
                if (n < 17 || (batches[k] == 1 && (d || n == 33))) /* the others take long */
                    check(n == 33 ? 2 : batches[k], n, wide_dtypes[d]);
                CHECK_OK(ignis_scope_end(scope));
            }
}

TEST(eigh_of_all_sizes)
{
    SETUP(NULL);
    for_all(check_eigh);
}

/*  Values that are equal, zero, of both signs, huge and tiny. */
TEST(eigh_of_special_matrices)
{
    const double same[] = {2, 0, 0, 0, 2, 0, 0, 0, 2}, zero[9] = {0}, swap[] = {0, 1, 1, 0};
    double huge[] = {1e300, 0, 0, 1e300, 1e300, 0, 5e299, 0, 1.5e308}, tiny[4] = {3e-290, 0, 1e-290, 1e-290};
    double ones[25], with_nan[8] = {1, 0, 2, 3, 1, 0, NAN, 3};
    ignis_scope scope;
    ignis_tensor values, vectors;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (i = 0; i < 25; i++)
        ones[i] = 1;
    check_eigh_of(same, 1, 3, IGNIS_F64);
    check_eigh_of(zero, 1, 3, IGNIS_F64);
    check_eigh_of(swap, 1, 2, IGNIS_F64);
    check_eigh_of(huge, 1, 3, IGNIS_F64);
    check_eigh_of(ones, 1, 5, IGNIS_F64);
    check_eigh_of(tiny, 1, 2, IGNIS_F64);
    values = ignis_eigh(tensor_of(swap, IGNIS_SHAPE(2, 2), IGNIS_F64, false), NULL);
    CHECK_SHAPE_IS(values, IGNIS_SHAPE(2));
    CHECK_NUMBER(value_at(values, 0), -1);
    CHECK_NUMBER(value_at(values, 1), 1);
    values = ignis_eigh(tensor_of(with_nan, IGNIS_SHAPE(2, 2, 2), IGNIS_F64, false), &vectors);
    CHECK_CLOSE(value_at(values, 0), 2 - sqrt(5), 1e-15); /* of the matrix beside it */
    for (i = 0; i < 2; i++)
        CHECK_NUMBER(value_at(values, 2 + i), NAN);
    for (i = 4; i < 8; i++)
        CHECK_NUMBER(value_at(vectors, i), NAN);
    CHECK_OK(ignis_scope_end(scope));
}

static void check_svd_of(const double *a, int64_t count, int m, int n, ignis_dtype dtype)
{
    int k = m < n ? m : n, i, j, p;
    double *s, *u, *vt, *columns = (double *)malloc(sizeof *columns * (size_t)(k * n + 1));
    double bound = 20 * (m + n + 1) * EPSILON(dtype);
    ignis_tensor left, right, values = ignis_svd(tensor_of(a, IGNIS_SHAPE(count, m, n), dtype, false), &left, &right);
    int64_t b;
    CHECK_SHAPE_IS(values, IGNIS_SHAPE(count, k));
    CHECK_SHAPE_IS(left, IGNIS_SHAPE(count, m, k));
    CHECK_SHAPE_IS(right, IGNIS_SHAPE(count, k, n));
    s = tensor_values(values);
    u = tensor_values(left);
    vt = tensor_values(right);
    for (b = 0; b < count; b++) {
        double *own = u + b * m * k, *rows = vt + b * k * n, size = largest(a + b * m * n, m * n);
        check_orthonormal(__LINE__, own, m, k, bound);
        for (i = 0; i < k; i++)
            for (j = 0; j < n; j++)
                columns[j * k + i] = rows[i * n + j];
        check_orthonormal(__LINE__, columns, n, k, bound);
        for (i = 0; i < k; i++)
            CHECK(s[b * k + i] >= 0 && (i == 0 || s[b * k + i] <= s[b * k + i - 1]));
        for (i = 0; i < m; i++)
            for (j = 0; j < n; j++) {
                double sum = -a[(b * m + i) * n + j];
                for (p = 0; p < k; p++)
                    sum += own[i * k + p] * s[b * k + p] * rows[p * n + j];
                CHECK(fabs(sum) <= bound * size);
            }
    }
    free(columns), free(s), free(u), free(vt);
}

static void check_svd(int64_t count, int n, ignis_dtype dtype)
{
    double *a = matrices(count, n, n + 9, dtype, 42);
    if (n < 34 || n == 100)
        check_svd_of(a, count, n, n, dtype);
    if (n < 34 || n == 65)
        check_svd_of(a, count, n, n + 9, dtype);
    if (n < 65)
        check_svd_of(a, count, n + 9, n, dtype);
    free(a);
}

TEST(svd_of_all_sizes)
{
    SETUP(NULL);
    for_all(check_svd);
}

/*  Matrices without full rank have orthonormal vectors, too. */
TEST(svd_of_special_matrices)
{
    const double zero[6] = {0}, one[] = {1, 2, 2, 4, 3, 6}, huge[] = {3e300, 4e300, 0, 0}, tiny[] = {3e-300, 4e-300};
    double twice[20 * 12], with_nan[] = {1, NAN, 2, 3};
    ignis_scope scope;
    ignis_tensor u, vt, s;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (i = 0; i < 20 * 12; i++)
        twice[i] = noise(50, i / 12 * 5 + i % 12 % 5); /* of rank 5 */
    check_svd_of(zero, 1, 3, 2, IGNIS_F64);
    check_svd_of(zero, 1, 2, 3, IGNIS_F64);
    check_svd_of(one, 1, 3, 2, IGNIS_F64);
    check_svd_of(one, 1, 2, 3, IGNIS_F64);
    check_svd_of(huge, 1, 2, 2, IGNIS_F64);
    check_svd_of(tiny, 1, 1, 2, IGNIS_F64);
    check_svd_of(twice, 1, 20, 12, IGNIS_F64);
    CHECK_CLOSE(value_at(ignis_svd(tensor_of(tiny, IGNIS_SHAPE(2, 1), IGNIS_F64, false), NULL, NULL), 0) / 5e-300, 1,
                1e-15);
    s = ignis_svd(tensor_of(with_nan, IGNIS_SHAPE(2, 2), IGNIS_F64, false), &u, &vt);
    for (i = 0; i < 2; i++)
        CHECK_NUMBER(value_at(s, i), NAN);
    CHECK_NUMBER(value_at(u, 0), NAN);
    CHECK_NUMBER(value_at(vt, 3), NAN);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- gradients -----------------------------------------------------------------------------------------------------
   */

static ignis_tensor square_of(ignis_tensor x) { return ignis_mul(x, x); }

/*  Of vectors their squares are seen, as signs are free. */
static ignis_tensor of_eigh(const ignis_tensor *x, int count, void *user_data)
{
    ignis_tensor symmetric = ignis_add(x[0], ignis_transpose(x[0], -1, -2)), vectors;
    ignis_tensor values = ignis_eigh(symmetric, &vectors);
    return (void)count, (void)user_data, ignis_add(weighed(values, 1), weighed(square_of(vectors), 2));
}

static ignis_tensor of_svd(const ignis_tensor *x, int count, void *user_data)
{
    ignis_tensor u, vt, s = ignis_svd(x[0], &u, &vt);
    s = ignis_add(weighed(s, 3), weighed(square_of(vt), 5));
    return (void)count, (void)user_data, ignis_add(s, weighed(square_of(u), 4));
}

TEST(gradients_are_slopes)
{
    ignis_tensor x;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(2, 4, 4), IGNIS_F64, 61, true);
    CHECK_GRADIENTS(of_eigh, &x, 1);
    CHECK_GRADIENTS(of_svd, &x, 1);
    CHECK_SECOND(of_eigh, &x, 1);
    x = tensor_noise(IGNIS_SHAPE(2, 5, 3), IGNIS_F64, 62, true);
    CHECK_GRADIENTS(of_svd, &x, 1);
    CHECK_SECOND(of_svd, &x, 1);
    x = tensor_noise(IGNIS_SHAPE(3, 5), IGNIS_F64, 63, true);
    CHECK_GRADIENTS(of_svd, &x, 1);
    CHECK_REFUSED(0, ignis_eigh(x, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATRIX_SHAPE);
    CHECK_REFUSED(0, ignis_svd(ignis_tensor_ones(IGNIS_SHAPE(3), NULL), NULL, NULL).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_MATRIX_SHAPE);
    CHECK_OK(ignis_scope_end(scope));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
