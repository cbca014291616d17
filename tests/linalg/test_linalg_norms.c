// SPDX-License-Identifier: MIT
/*  test_linalg_norms.c - norms, condition numbers and exponentials of matrices; all of linear algebra with failing
    calls, and in a graph */
#include "sweep.h"

#include "linalg.h"

TEST(norms_and_conditions)
{
    const double a[] = {3, 0, 0, -4, 1, 0}, b[] = {2, 1, 0, 0.5};
    const double norms[] = {5.0990195135927845, 4, 5, 4.1300868, 0};
    ignis_tensor matrix, square;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    matrix = tensor_of(a, IGNIS_SHAPE(3, 2), IGNIS_F64, false);
    square = tensor_of(b, IGNIS_SHAPE(1, 2, 2), IGNIS_F64, false);
    CHECK_CLOSE(ignis_item(ignis_matrix_norm(matrix, IGNIS_NORM_FROBENIUS)), norms[0], 1e-14);
    CHECK_NUMBER(ignis_item(ignis_matrix_norm(matrix, IGNIS_NORM_ONE)), 4);
    CHECK_NUMBER(ignis_item(ignis_matrix_norm(matrix, IGNIS_NORM_INFINITY)), 4);
    /* a^T a = [[10, 0], [0, 16]] */
    CHECK_CLOSE(ignis_item(ignis_matrix_norm(matrix, IGNIS_NORM_SPECTRAL)), 4, 1e-14);
    CHECK_CLOSE(ignis_item(ignis_matrix_norm(matrix, IGNIS_NORM_NUCLEAR)), 4 + sqrt(10), 1e-14);
    CHECK_CLOSE(ignis_item(ignis_cond(matrix, IGNIS_NORM_SPECTRAL)), 4 / sqrt(10), 1e-14);
    /* the inverse is [[0.5, -1], [0, 2]] */
    CHECK_CLOSE(ignis_item(ignis_cond(square, IGNIS_NORM_ONE)), 2.0 * 3, 1e-14);
    CHECK_CLOSE(ignis_item(ignis_cond(square, IGNIS_NORM_INFINITY)), 3.0 * 2, 1e-14);
    CHECK_CLOSE(ignis_item(ignis_cond(square, IGNIS_NORM_FROBENIUS)), 5.25, 1e-14);
    CHECK_SHAPE_IS(ignis_cond(square, IGNIS_NORM_FROBENIUS), IGNIS_SHAPE(1));
    CHECK_REFUSED(0, ignis_matrix_norm(square, (ignis_norm_kind)9).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_REFUSED(0, ignis_cond(matrix, IGNIS_NORM_ONE).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATRIX_SHAPE);
    CHECK_OK(ignis_scope_end(scope));
}

/*  The exponential by its series of 1/1024 of the matrix, in double, squared 10 times. */
static void host_exp(double *result, const double *a, int n)
{
    double *power = (double *)calloc((size_t)(2 * n * n), sizeof *power), *next = power + n * n;
    int i, k;
    for (i = 0; i < n * n; i++)
        result[i] = power[i] = i % (n + 1) == 0;
    for (k = 1; k < 12; k++) {
        memset(next, 0, sizeof *next * (size_t)(n * n));
        add_product(next, power, a, n, n, n, 0, 1.0 / 1024 / k);
        memcpy(power, next, sizeof *next * (size_t)(n * n));
        for (i = 0; i < n * n; i++)
            result[i] += power[i];
    }
    for (k = 0; k < 10; k++) {
        memset(next, 0, sizeof *next * (size_t)(n * n));
        add_product(next, result, result, n, n, n, 0, 1);
        memcpy(result, next, sizeof *next * (size_t)(n * n));
    }
    free(power);
}

TEST(exponentials)
{
    const double turn[] = {0, -1, 1, 0}, nilpotent[] = {0, 1, 0, 0};
    double *a, *found, expected[49];
    ignis_scope scope;
    ignis_tensor y;
    int b, i, d;
    SETUP(NULL);
    scope = ignis_scope_begin();
    y = ignis_matrix_exp(tensor_of(turn, IGNIS_SHAPE(2, 2), IGNIS_F64, false));
    CHECK_CLOSE(value_at(y, 0), cos(1), 1e-15);
    CHECK_CLOSE(value_at(y, 2), sin(1), 1e-15);
    y = ignis_matrix_exp(tensor_of(nilpotent, IGNIS_SHAPE(2, 2), IGNIS_F64, false));
    for (i = 0; i < 4; i++)
        CHECK_CLOSE(value_at(y, i), i != 2, 1e-15);
    for (d = 0; d < 2; d++) {
        a = matrices(3, 7, 7, wide_dtypes[d], 71);
        for (i = 0; i < 49; i++)
            a[i] *= 4; /* the norm of the first one is about 20: it is halved */
        found = tensor_values(ignis_matrix_exp(tensor_of(a, IGNIS_SHAPE(3, 7, 7), wide_dtypes[d], false)));
        for (b = 0; b < 3; b++) {
            host_exp(expected, a + b * 49, 7);
            for (i = 0; i < 49; i++)
                CHECK(fabs(found[b * 49 + i] - expected[i]) <=
                      300 * EPSILON(wide_dtypes[d]) * largest(expected, 49) + 1e-12);
        }
        free(a), free(found);
    }
    CHECK_INT(numel_of(ignis_matrix_exp(ignis_tensor_zeros(IGNIS_SHAPE(2, 0, 0), NULL))), 0);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor of_norms(const ignis_tensor *x, int count, void *user_data)
{
    ignis_tensor sum = weighed(ignis_matrix_norm(x[0], IGNIS_NORM_FROBENIUS), 1);
    sum = ignis_add(sum, weighed(ignis_matrix_norm(x[0], IGNIS_NORM_ONE), 2));
    sum = ignis_add(sum, weighed(ignis_matrix_norm(x[0], IGNIS_NORM_SPECTRAL), 3));
    sum = ignis_add(sum, weighed(ignis_matrix_norm(x[0], IGNIS_NORM_NUCLEAR), 4));
    sum = ignis_add(sum, weighed(ignis_cond(x[0], IGNIS_NORM_SPECTRAL), 5));
    return (void)count, (void)user_data, ignis_add(sum, weighed(ignis_cond(x[0], IGNIS_NORM_INFINITY), 6));
}

static ignis_tensor of_exp(const ignis_tensor *x, int count, void *user_data)
{
    return (void)count, (void)user_data, weighed(ignis_matrix_exp(x[0]), 7);
}

TEST(gradients_are_slopes)
{
    ignis_tensor x;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(2, 3, 3), IGNIS_F64, 72, true);
    CHECK_GRADIENTS(of_norms, &x, 1);
    CHECK_GRADIENTS(of_exp, &x, 1);
    CHECK_SECOND(of_exp, &x, 1);
    CHECK_OK(ignis_scope_end(scope));
}

/*  With info nothing waits, so that a graph can have it. */
TEST(graphs_have_what_does_not_wait)
{
    ignis_tensor a, b, x, info;
    ignis_graph graph;
    double *values;
    SETUP(NULL);
    values = positive_matrices(2, 5, IGNIS_F64, 73);
    a = tensor_of(values, IGNIS_SHAPE(2, 5, 5), IGNIS_F64, false);
    b = tensor_of(values, IGNIS_SHAPE(2, 5, 5), IGNIS_F64, false);
    x = ignis_solve(a, b, &info); /* compiled before the capture */
    let_go(x), let_go(info);
    CHECK_OK(ignis_graph_begin());
    x = ignis_solve(a, b, &info);
    CHECK_REFUSED(0, ignis_solve(a, b, NULL).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    graph = ignis_graph_end();
    if (graph.id) {
        CHECK_OK(ignis_graph_launch(graph));
        CHECK_CLOSE(value_at(x, 0), 1, 1e-12);
        CHECK_CLOSE(value_at(x, 1), 0, 1e-12);
        CHECK_OK(ignis_graph_free(graph));
    }
    let_go(x), let_go(info), let_go(a), let_go(b);
    free(values);
}

/* --- failing calls -------------------------------------------------------------------------------------------------
   */

static ignis_tensor everything(int at, const ignis_tensor *inputs)
{
    ignis_tensor a = inputs[0], b = inputs[1], r, u, vt, info, sum = ignis_sum(ignis_solve(a, b, NULL));
    (void)at;
    sum = ignis_add(sum, ignis_sum(ignis_inverse(a, &info)));
    sum = ignis_add(sum, ignis_sum(ignis_cholesky_solve(ignis_cholesky(a, NULL), b)));
    sum = ignis_add(sum, ignis_sum(ignis_logdet(a, &u)));
    sum = ignis_add(sum, ignis_sum(ignis_lu(a, &info)));
    sum = ignis_add(sum, ignis_sum(ignis_add(ignis_qr(a, &r), r)));
    sum = ignis_add(sum, ignis_sum(ignis_lstsq(a, b, NULL)));
    sum = ignis_add(sum, ignis_sum(ignis_eigh(a, &u)));
    sum = ignis_add(sum, ignis_sum(ignis_mul(u, u)));
    sum = ignis_add(sum, ignis_sum(ignis_svd(a, &u, &vt)));
    return ignis_add(sum, ignis_sum(ignis_matmul(ignis_mul(u, u), ignis_mul(vt, vt))));
}

static void sweep(const char *prefix)
{
    static host_counter counter; /* until the shutdown after the test */
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor inputs[2];
    double *values;
    SETUP(&desc);
    values = positive_matrices(2, 3, IGNIS_F64, 74);
    inputs[0] = tensor_of(values, IGNIS_SHAPE(2, 3, 3), IGNIS_F64, true);
    inputs[1] = tensor_of(values, IGNIS_SHAPE(2, 3, 3), IGNIS_F64, true);
    sweep_walks(prefix, &counter, everything, inputs);
    let_go(inputs[0]), let_go(inputs[1]);
    free(values);
}

TEST(each_launch_fails_once) { sweep("cuLaunchKernel"); }
TEST(each_host_allocation_fails_once) { sweep(NULL); }

int main(int argc, char **argv) { return test_run(argc, argv); }
