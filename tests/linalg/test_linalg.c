// SPDX-License-Identifier: MIT
/*  test_linalg.c - Cholesky and LU factors, triangular and other systems, inverses, determinants

    Residuals are computed on the host in double. Their bounds are those of backward stable algorithms: some multiple of
    n, the rounding error, and the sizes of the matrices (Higham 2002). */
#include "linalg.h"

/*  Runs the check for all sides, batches and dtypes. */
static void for_all(void (*check)(int64_t count, int n, ignis_dtype dtype))
{
    int i, k, d;
    for (d = 0; d < 2; d++)
        for (i = 0; i < COUNT_OF(sides); i++)
            for (k = 0; k < COUNT_OF(batches); k++) {
                ignis_scope scope = ignis_scope_begin();
                if (sides[i] < 65 || batches[k] < 7 || wide_dtypes[d] == IGNIS_F64)
                    check(batches[k], sides[i], wide_dtypes[d]);
                CHECK_OK(ignis_scope_end(scope));
            }
}

static void check_cholesky(int64_t count, int n, ignis_dtype dtype)
{
    double *a = positive_matrices(count, n, dtype, 1), *l;
    int64_t b;
    int i, j;
    ignis_tensor info, factor = ignis_cholesky(tensor_of(a, IGNIS_SHAPE(count, n, n), dtype, false), NULL);
    CHECK_SHAPE_IS(factor, IGNIS_SHAPE(count, n, n));
    l = tensor_values(factor);
    for (b = 0; b < count; b++) {
        double *own = l + b * n * n, size = largest(a + b * n * n, n * n);
        for (i = 0; i < n; i++)
            for (j = i + 1; j < n; j++)
                CHECK_NUMBER(own[i * n + j], 0);
        add_product(a + b * n * n, own, own, n, n, n, 1, -1);
        CHECK(largest(a + b * n * n, n * n) <= 2 * (n + 1) * EPSILON(dtype) * size);
    }
    free(l), free(a);
    a = positive_matrices(count, n, dtype, 2);
    factor = ignis_cholesky(tensor_of(a, IGNIS_SHAPE(count, n, n), dtype, false), &info);
    CHECK_SHAPE_IS(info, IGNIS_SHAPE(count));
    l = tensor_values(info);
    CHECK_NUMBER(largest(l, count), 0);
    free(l), free(a);
}

TEST(cholesky_of_all_sizes)
{
    SETUP(NULL);
    for_all(check_cholesky);
}

/*  The upper triangle is not read. */
TEST(cholesky_reads_the_lower_triangle)
{
    const double a[] = {4, NAN, NAN, 2, 5, NAN, 2, 3, 6}, l[] = {2, 0, 0, 1, 2, 0, 1, 1, 2};
    ignis_tensor factor;
    int i;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    factor = ignis_cholesky(tensor_of(a, IGNIS_SHAPE(3, 3), IGNIS_F64, false), NULL);
    for (i = 0; i < 9; i++)
        CHECK_NUMBER(value_at(factor, i), l[i]);
    CHECK_OK(ignis_scope_end(scope));
}

static void fill_b(double *b, int64_t count)
{
    int64_t i;
    for (i = 0; i < count; i++)
        b[i] = noise(77, i);
}

/*  |op(a) x - b| is within 3 n eps |a| |x| of 0. */
static void check_residual(const double *a, const double *x, double *b, int n, int k, double epsilon)
{
    double size = largest(a, n * n) * largest(x, n * k) * n;
    add_product(b, a, x, n, k, n, 0, -1);
    CHECK(largest(b, n * k) <= 3 * (n + 1) * epsilon * (size + 1));
}

/*  The triangle that a system has, and whether it is read transposed. */
static void take_triangle(double *to, const double *a, int n, const ignis_triangular_desc *desc)
{
    int i, j;
    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++) {
            double x = desc->upper ? (j < i ? 0 : a[i * n + j]) : (j > i ? 0 : a[i * n + j]);
            to[desc->transpose ? j * n + i : i * n + j] = i == j && desc->unit ? 1 : x;
        }
}

static void check_triangular(int64_t count, int n, ignis_dtype dtype)
{
    static const int columns[] = {1, 5, 70};
    double *a = matrices(count, n, n, dtype, 3), *t = (double *)calloc((size_t)(n * n) + 1, sizeof *t), *x, *b;
    ignis_triangular_desc desc;
    int64_t m;
    int i, how, k;
    for (m = 0; m < count * n * n; m++) /* small off the diagonal, so that solutions stay small */
        a[m] = m % (n * n) % (n + 1) == 0 ? 1 + fabs(a[m]) : a[m] / (n > 8 ? 8 : 1);
    for (m = 0; m < count * n * n && dtype == IGNIS_F32; m++)
        a[m] = (double)(float)a[m];
    memset(&desc, 0, sizeof desc);
    for (how = 0; how < 8; how++)
        for (i = 0; i < 3; i++) {
            ignis_tensor solved;
            k = columns[i];
            if ((how + i) % 3 && n > 8) /* a third of the cases */
                continue;
            b = matrices(count, n, k, dtype, 4);
            desc.upper = how & 1, desc.transpose = how >> 1 & 1, desc.unit = how >> 2;
            solved = ignis_solve_triangular(tensor_of(a, IGNIS_SHAPE(count, n, n), dtype, false),
                                            tensor_of(b, IGNIS_SHAPE(count, n, k), dtype, false), &desc);
            CHECK_SHAPE_IS(solved, IGNIS_SHAPE(count, n, k));
            x = tensor_values(solved);
            for (m = 0; m < count; m++) {
                take_triangle(t, a + m * n * n, n, &desc);
                check_residual(t, x + m * n * k, b + m * n * k, n, k, EPSILON(dtype));
            }
            free(x), free(b);
        }
    free(t), free(a);
}

TEST(triangular_of_all_sizes)
{
    SETUP(NULL);
    for_all(check_triangular);
}

static void check_solve(int64_t count, int n, ignis_dtype dtype)
{
    double *a = matrices(count, n, n, dtype, 5), *b, *x;
    int64_t m;
    int i, k;
    for (i = 0; i < 3; i++) {
        ignis_tensor solved, left = tensor_of(a, IGNIS_SHAPE(count, n, n), dtype, false);
        k = i == 2 ? n : 1 + i;
        b = matrices(count, n, k, dtype, 6);
        if (i == 0) /* vectors */
            solved = ignis_solve(left, tensor_of(b, IGNIS_SHAPE(count, n), dtype, false), NULL);
        else if (i == 1)
            solved = ignis_solve(left, tensor_of(b, IGNIS_SHAPE(count, n, k), dtype, false), NULL);
        else
            solved = ignis_inverse(left, NULL);
        if (i == 2) {
            memset(b, 0, sizeof *b * (size_t)(count * n * n));
            for (m = 0; m < count * n; m++)
                b[m * n + m % n] = 1;
        }
        CHECK_INT(numel_of(solved), count * n * k);
        x = tensor_values(solved);
        for (m = 0; m < count; m++)
            check_residual(a + m * n * n, x + m * n * k, b + m * n * k, n, k, EPSILON(dtype));
        free(x), free(b);
    }
    free(a);
}

TEST(solve_and_inverse_of_all_sizes)
{
    SETUP(NULL);
    for_all(check_solve);
}

static void check_lu_of(int64_t count, int rows, int columns, ignis_dtype dtype)
{
    int k = rows < columns ? rows : columns, i, j, p;
    double *a = matrices(count, rows, columns, dtype, 7), *f, *order;
    ignis_tensor permutation,
        lu = ignis_lu(tensor_of(a, IGNIS_SHAPE(count, rows, columns), dtype, false), &permutation);
    int64_t m;
    CHECK_SHAPE_IS(permutation, IGNIS_SHAPE(count, rows));
    f = tensor_values(lu);
    order = tensor_values(permutation);
    for (m = 0; m < count; m++) {
        double *own = f + m * rows * columns, most = 0;
        for (i = 0; i < rows; i++) {
            int from = (int)order[m * rows + i];
            CHECK(from >= 0 && from < rows);
            for (j = 0; j < columns; j++) {
                double sum = 0;
                for (p = 0; p < k && p <= j && p <= i; p++)
                    sum += (p == i ? 1 : own[i * columns + p]) * own[p * columns + j];
                sum = fabs(sum - a[(m * rows + from) * columns + j]);
                most = sum <= most ? most : sum;
                if (j < i && j < k)
                    CHECK(fabs(own[i * columns + j]) <= 1);
            }
        }
        CHECK(most <= 8 * (k + 1) * EPSILON(dtype));
    }
    free(order), free(f), free(a);
}

static void check_lu(int64_t count, int n, ignis_dtype dtype)
{
    check_lu_of(count, n, n, dtype);
    check_lu_of(count, n, n / 2 + 3, dtype);
    check_lu_of(count, n / 2 + 3, n, dtype);
}

TEST(lu_of_all_sizes)
{
    SETUP(NULL);
    for_all(check_lu);
}

/*  The determinant by elimination on the host; its logarithm, and its sign. */
static double host_logdet(const double *from, int n, double *sign)
{
    double *a = (double *)malloc(sizeof *a * (size_t)(n * n + 1)), sum = 0, x;
    int i, j, k, best;
    memcpy(a, from, sizeof *a * (size_t)(n * n));
    *sign = 1;
    for (k = 0; k < n; k++) {
        for (best = i = k; i < n; i++)
            best = fabs(a[i * n + k]) > fabs(a[best * n + k]) ? i : best;
        if (best != k)
            *sign = -*sign;
        for (j = 0; j < n; j++)
            x = a[k * n + j], a[k * n + j] = a[best * n + j], a[best * n + j] = x;
        for (i = k + 1; i < n; i++)
            for (x = a[i * n + k] / a[k * n + k], j = k; j < n; j++)
                a[i * n + j] -= x * a[k * n + j];
        sum += log(fabs(a[k * n + k]));
        *sign *= a[k * n + k] < 0 ? -1 : 1;
    }
    free(a);
    return sum;
}

static void check_det(int64_t count, int n, ignis_dtype dtype)
{
    double *a = matrices(count, n, n, dtype, 8), sign, tolerance = 100 * (n + 1) * EPSILON(dtype);
    ignis_tensor signs, matrix = tensor_of(a, IGNIS_SHAPE(count, n, n), dtype, false), det = ignis_det(matrix),
                        logarithm = ignis_logdet(matrix, &signs);
    double *values = tensor_values(det), *logarithms = tensor_values(logarithm), *all_signs = tensor_values(signs);
    int64_t m;
    CHECK_SHAPE_IS(det, IGNIS_SHAPE(count));
    for (m = 0; m < (n ? count : 0); m++) {
        double expected = host_logdet(a + m * n * n, n, &sign);
        CHECK_CLOSE(logarithms[m], expected, tolerance);
        CHECK_NUMBER(all_signs[m], sign);
        if (fabs(expected) < 50)
            CHECK_CLOSE(values[m] / exp(expected), sign, 2 * tolerance);
    }
    free(values), free(logarithms), free(all_signs), free(a);
}

TEST(determinants_of_all_sizes)
{
    const double singular[] = {1, 2, 2, 4}, turned[] = {0, 1, 1, 0};
    ignis_tensor a, sign, empty;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for_all(check_det);
    a = tensor_of(singular, IGNIS_SHAPE(2, 2), IGNIS_F64, false);
    CHECK_NUMBER(ignis_item(ignis_det(a)), 0);
    CHECK_NUMBER(ignis_item(ignis_logdet(a, &sign)), -INFINITY);
    CHECK_NUMBER(ignis_item(sign), 0);
    CHECK_NUMBER(ignis_item(ignis_det(tensor_of(turned, IGNIS_SHAPE(2, 2), IGNIS_F64, false))), -1);
    empty = ignis_tensor_zeros(IGNIS_SHAPE(0, 0), NULL);
    CHECK_NUMBER(ignis_item(ignis_det(empty)), 1);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(leading_dimensions)
{
    double *a, *x;
    ignis_tensor b, solved, info;
    int64_t i;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = positive_matrices(6, 4, IGNIS_F64, 9);
    b = ignis_tensor_ones(IGNIS_SHAPE(2, 3, 4), NULL);
    b = ignis_cast(b, IGNIS_F64);
    solved = ignis_solve(tensor_of(a, IGNIS_SHAPE(2, 3, 4, 4), IGNIS_F64, false), b, &info);
    CHECK_SHAPE_IS(solved, IGNIS_SHAPE(2, 3, 4));
    CHECK_SHAPE_IS(info, IGNIS_SHAPE(2, 3));
    x = tensor_values(
        ignis_cholesky_solve(ignis_cholesky(tensor_of(a, IGNIS_SHAPE(2, 3, 4, 4), IGNIS_F64, false), NULL), b));
    for (i = 0; i < 24; i++)
        CHECK_CLOSE(value_at(solved, i), x[i], 1e-13);
    free(x), free(a);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- what cannot be ------------------------------------------------------------------------------------------------
   */

TEST(singular_matrices_are_named)
{
    const double a[] = {1, 0, 0, 1, 1, 2, 2, 4, 1, 2, 3, 4}, b[] = {1, 1, 1, 1, 1, 1};
    ignis_tensor matrix, right, info, solved;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    matrix = tensor_of(a, IGNIS_SHAPE(1, 3, 2, 2), IGNIS_F64, false);
    right = tensor_of(b, IGNIS_SHAPE(1, 3, 2), IGNIS_F64, false);
    CHECK_REFUSED(0, ignis_solve(matrix, right, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_MATRIX_SINGULAR);
    CHECK_REFUSED(0, ignis_inverse(matrix, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_MATRIX_SINGULAR);
    CHECK(!ignis_cholesky(matrix, NULL).id);
    CHECK_HAS(ignis_status_message(), "ignis_cholesky: a[0, 1] is not positive definite (pivot 2)");
    ignis_status_clear();
    solved = ignis_solve(matrix, right, &info);
    CHECK_INT((int)value_at(info, 0), 0);
    CHECK_INT((int)value_at(info, 1), 2);
    CHECK_INT((int)value_at(info, 2), 0);
    CHECK_NUMBER(value_at(solved, 0), 1);
    CHECK(!(fabs(value_at(solved, 2)) < 1e300));
    (void)ignis_cholesky(matrix, &info);
    CHECK_INT((int)value_at(info, 1), 2);
    matrix = tensor_of(a + 4, IGNIS_SHAPE(2, 2), IGNIS_F32, false);
    CHECK(!ignis_inverse(matrix, NULL).id);
    CHECK_HAS(ignis_status_message(), "ignis_inverse: a is singular (pivot 2)");
    ignis_status_clear();
    CHECK_OK(ignis_scope_end(scope));
}

/*  A pivot of a later block has its number in the whole matrix. */
TEST(pivots_of_blocks_are_counted_from_the_first)
{
    double *a;
    ignis_tensor info;
    int n = 100, i;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = positive_matrices(2, n, IGNIS_F64, 10);
    a[n * n + 80 * n + 80] = -1;
    (void)ignis_cholesky(tensor_of(a, IGNIS_SHAPE(2, n, n), IGNIS_F64, false), &info);
    CHECK_INT((int)value_at(info, 0), 0);
    CHECK_INT((int)value_at(info, 1), 81);
    for (i = 0; i < n; i++)
        a[n * n + i * n + 70] = 0;
    (void)ignis_inverse(tensor_of(a, IGNIS_SHAPE(2, n, n), IGNIS_F64, false), &info);
    CHECK_INT((int)value_at(info, 0), 0);
    CHECK_INT((int)value_at(info, 1), 71);
    free(a);
    CHECK_OK(ignis_scope_end(scope));
}

/*  NaN in: Cholesky fails, other results are NaN. */
TEST(nan_and_large_numbers)
{
    double a[9] = {4, 1, 1, 1, 5, 1, 1, 1, 6}, b[3] = {1, 2, 3};
    ignis_tensor matrix, right, info, sign;
    int i;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a[4] = NAN;
    matrix = tensor_of(a, IGNIS_SHAPE(3, 3), IGNIS_F64, false);
    right = tensor_of(b, IGNIS_SHAPE(3), IGNIS_F64, false);
    (void)ignis_cholesky(matrix, &info);
    CHECK_INT((int)ignis_item(info), 2);
    for (i = 0; i < 3; i++)
        CHECK_NUMBER(value_at(ignis_solve(matrix, right, NULL), i), NAN);
    CHECK_NUMBER(ignis_item(ignis_det(matrix)), NAN);
    CHECK_NUMBER(ignis_item(ignis_logdet(matrix, &sign)), NAN);
    CHECK_NUMBER(ignis_item(sign), NAN);
    a[0] = a[4] = a[8] = 1.7e308, a[1] = a[2] = a[3] = a[5] = a[6] = a[7] = 0;
    matrix = tensor_of(a, IGNIS_SHAPE(3, 3), IGNIS_F64, false);
    CHECK_CLOSE(value_at(ignis_cholesky(matrix, NULL), 4), sqrt(1.7e308), 1e-15);
    CHECK_NUMBER(value_at(ignis_solve(matrix, right, NULL), 2), 3 / 1.7e308);
    CHECK_CLOSE(ignis_item(ignis_logdet(matrix, NULL)), 3 * log(1.7e308), 1e-15);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Hilbert matrices: the residual is small beside |a| |x|, whatever the condition. */
TEST(badly_conditioned_systems_have_small_residuals)
{
    double a[12 * 12], b[12], x[12];
    ignis_tensor solved;
    int i, j, n = 12;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++)
            a[i * n + j] = 1.0 / (i + j + 1);
    fill_b(b, n);
    solved = ignis_solve(tensor_of(a, IGNIS_SHAPE(n, n), IGNIS_F64, false),
                         tensor_of(b, IGNIS_SHAPE(n), IGNIS_F64, false), NULL);
    CHECK_OK(ignis_tensor_to_host(solved, x, IGNIS_F64, n));
    CHECK(largest(x, n) > 1e6);
    check_residual(a, x, b, n, 1, EPSILON(IGNIS_F64));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(arguments_are_checked)
{
    ignis_tensor_desc half;
    ignis_tensor square, wide, b, other;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    half = tensor_desc(IGNIS_F16, false);
    square = ignis_tensor_ones(IGNIS_SHAPE(2, 3, 3), NULL);
    wide = ignis_tensor_ones(IGNIS_SHAPE(2, 3, 4), NULL);
    b = ignis_tensor_ones(IGNIS_SHAPE(3, 3), NULL);
    other = tensor_counting(IGNIS_SHAPE(2, 3, 3), IGNIS_F64, 1, false);
    CHECK_REFUSED(0, ignis_cholesky(wide, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATRIX_SHAPE);
    CHECK_REFUSED(0, ignis_det(wide).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATRIX_SHAPE);
    CHECK_REFUSED(0, ignis_solve(square, b, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATRIX_SHAPE);
    CHECK_REFUSED(0, ignis_solve(square, other, NULL).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_solve_triangular(wide, b, NULL).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATRIX_SHAPE);
    CHECK_REFUSED(0, ignis_inverse(ignis_tensor_ones(IGNIS_SHAPE(3), NULL), NULL).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_MATRIX_SHAPE);
    CHECK_REFUSED(0, ignis_logdet(ignis_tensor_ones(IGNIS_SHAPE(3, 3), &half), NULL).id, IGNIS_ERROR_DTYPE,
                  IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_REFUSED(0, ignis_lu(square, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_tensor_release(square));
    CHECK_REFUSED(0, ignis_cholesky(square, NULL).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_REFUSED(0, ignis_cholesky(no_tensor(), NULL).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_OK(ignis_scope_end(scope));
}

/* --- gradients -----------------------------------------------------------------------------------------------------
   */

/*  Cholesky reads a lower triangle, and its gradient is symmetric: a symmetric input makes both the same. */
static ignis_tensor of_cholesky(const ignis_tensor *x, int count, void *user_data)
{
    ignis_tensor symmetric = ignis_add(x[0], ignis_transpose(x[0], -1, -2));
    return (void)count, (void)user_data, weighed(ignis_cholesky(symmetric, NULL), 1);
}

static ignis_tensor of_cholesky_solve(const ignis_tensor *x, int count, void *user_data)
{
    ignis_tensor symmetric = ignis_add(x[0], ignis_transpose(x[0], -1, -2));
    return (void)count, (void)user_data, weighed(ignis_cholesky_solve(ignis_cholesky(symmetric, NULL), x[1]), 2);
}

static ignis_tensor of_triangular(const ignis_tensor *x, int count, void *user_data)
{
    ignis_tensor sum = {0};
    int how;
    for (how = 0; how < 8; how++) {
        ignis_triangular_desc desc;
        ignis_tensor part;
        desc.upper = how & 1, desc.transpose = how >> 1 & 1, desc.unit = how >> 2;
        part = weighed(ignis_solve_triangular(x[0], x[1], &desc), (uint64_t)how);
        sum = how ? ignis_add(sum, part) : part;
    }
    return (void)count, (void)user_data, sum;
}

static ignis_tensor of_solve(const ignis_tensor *x, int count, void *user_data)
{
    return (void)count, (void)user_data, weighed(ignis_solve(x[0], x[1], NULL), 3);
}

static ignis_tensor of_inverse(const ignis_tensor *x, int count, void *user_data)
{
    return (void)count, (void)user_data, weighed(ignis_inverse(x[0], NULL), 4);
}

static ignis_tensor of_det(const ignis_tensor *x, int count, void *user_data)
{
    return (void)count, (void)user_data, weighed(ignis_det(x[0]), 5);
}

static ignis_tensor of_logdet(const ignis_tensor *x, int count, void *user_data)
{
    return (void)count, (void)user_data, weighed(ignis_logdet(x[0], NULL), 6);
}

static ignis_tensor of_lu(const ignis_tensor *x, int count, void *user_data)
{
    ignis_tensor permutation;
    return (void)count, (void)user_data, weighed(ignis_lu(x[0], &permutation), 7);
}

TEST(gradients_are_slopes)
{
    double *a, *p;
    ignis_tensor x[2], vectors[2];
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = positive_matrices(2, 4, IGNIS_F64, 11);
    p = matrices(2, 4, 4, IGNIS_F64, 12);
    x[0] = tensor_of(a, IGNIS_SHAPE(2, 4, 4), IGNIS_F64, true);
    x[1] = tensor_of(p, IGNIS_SHAPE(2, 4, 4), IGNIS_F64, true);
    vectors[0] = x[0];
    vectors[1] = tensor_of(p, IGNIS_SHAPE(2, 4), IGNIS_F64, true);
    CHECK_GRADIENTS(of_cholesky, x, 1);
    CHECK_GRADIENTS(of_cholesky_solve, x, 2);
    CHECK_GRADIENTS(of_triangular, x, 2);
    CHECK_GRADIENTS(of_triangular, vectors, 2);
    CHECK_GRADIENTS(of_solve, x, 2);
    CHECK_GRADIENTS(of_solve, vectors, 2);
    CHECK_GRADIENTS(of_inverse, x, 1);
    CHECK_GRADIENTS(of_inverse, x + 1, 1);
    CHECK_GRADIENTS(of_det, x, 1);
    CHECK_GRADIENTS(of_det, x + 1, 1);
    CHECK_GRADIENTS(of_logdet, x + 1, 1);
    CHECK_GRADIENTS(of_lu, x, 1);
    CHECK_GRADIENTS(of_lu, x + 1, 1);
    CHECK_SECOND(of_cholesky, x, 1);
    CHECK_SECOND(of_triangular, x, 2);
    CHECK_SECOND(of_solve, vectors, 2);
    CHECK_SECOND(of_inverse, x, 1);
    CHECK_SECOND(of_det, x + 1, 1);
    CHECK_SECOND(of_logdet, x, 1);
    CHECK_SECOND(of_lu, x, 1);
    free(a), free(p);
    CHECK_REFUSED(0, ignis_lu(ignis_slice(x[0], 2, 0, 3), vectors).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_OK(ignis_scope_end(scope));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
