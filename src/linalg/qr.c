/*  >>linalg.qr - ignis_qr: orthogonal and triangular factors

    Small matrices are factored in shared memory. Of larger ones panels of 32 columns are factored, whose
    reflections are applied to the rest as I - V T V^T, by products.
    Uses: matrix, triangular, gradient; kernels/linalg_qr.cu. */

#include "room.h"

/*  c -= V op(T) V^T c */
static void ignis__matrix_reflect(ignis__op *op, ignis__matrix c, ignis__matrix v, ignis__matrix t)
{
    ignis__matrix inner;
    int made = op->made_count;
    if (!op->ok || c.rows * c.columns * c.count == 0)
        return;
    inner = ignis__matrix_product(op, ignis__matrix_transpose(v), c);
    inner = ignis__matrix_product(op, t, inner);
    ignis__matrix_subtract_product(op, c, v, inner);
    ignis__op_free_made(op, made);
}

/*  As ignis__matrix_qr, by panels. a is overwritten. */
static void ignis__matrix_qr_blocks(ignis__op *op, ignis__matrix q, ignis__matrix r, ignis__matrix a)
{
    int64_t m = a.rows, n = a.columns, k = q.columns, panel = IGNIS__LINALG_QR_PANEL, j, width = 0;
    ignis__array *vectors = ignis__op_new_row(op, a.count * m * k, a.dtype),
                 *triangles = ignis__op_new_row(op, a.count * k * panel, a.dtype);
    ignis__address of_v = ignis__op_write(op, vectors), of_t = ignis__op_write(op, triangles);
    ignis__matrix all_v, all_t, v, t, part;
    if (!op->ok)
        return;
    all_v = ignis__matrix_of(vectors, of_v, m, k);
    all_t = ignis__matrix_of(triangles, of_t, k, panel);
    for (j = 0; j < k && op->ok; j += panel) {
        int rows = (int)(m - j), columns;
        void *params[] = {&part, &v, &t, &rows, &columns, &a.count};
        width = k - j < panel ? k - j : panel;
        columns = (int)width;
        part = ignis__matrix_block(a, j, j, m - j, width);
        v = ignis__matrix_block(all_v, j, j, m - j, width);
        t = ignis__matrix_block(all_t, j, 0, width, width);
        ignis__op_launch_row(op, IGNIS__BUILTIN(LINALG_QR_PANEL), a.dtype, a.count, IGNIS__LINALG_THREADS, params);
        ignis__matrix_reflect(op, ignis__matrix_block(a, j, j + width, m - j, n - j - width), v,
                              ignis__matrix_transpose(t));
    }
    ignis__matrix_copy(op, r, a, 0, INT64_MAX);
    ignis__matrix_identity(op, q);
    for (j -= panel; j >= 0 && op->ok; j -= panel, width = panel)
        ignis__matrix_reflect(op, ignis__matrix_block(q, j, j, m - j, k - j),
                              ignis__matrix_block(all_v, j, j, m - j, width),
                              ignis__matrix_block(all_t, j, 0, width, width));
}

/*  Writes q [m, k] and r [k, n] with a = q r, for k the smaller side of a [m, n], which may be overwritten. */
IGNIS__PRIVATE void ignis__matrix_qr(ignis__op *op, ignis__matrix q, ignis__matrix r, ignis__matrix a)
{
    int64_t m = a.rows, n = a.columns, elements = m * (n | 1) + q.columns;
    if (!op->ok || m * n * a.count == 0)
        return;
    if (elements * (int64_t)ignis__dtypes[a.dtype].size <= IGNIS__LINALG_SHARED) {
        int rows = (int)m, columns = (int)n;
        ignis__teams teams = ignis__teams_of(
            &a, a.count, m * n > 1024 ? IGNIS__LINALG_TEAM_THREADS : ignis__linalg_lanes(n, 32), elements);
        void *params[] = {&q, &r, &a, &rows, &columns, &a.count, &teams.lanes};
        ignis__op_launch(op, IGNIS__BUILTIN(LINALG_QR), a.dtype, NULL,
                         ignis__launch_row(teams.blocks, teams.threads, teams.shared), params);
        return;
    }
    ignis__matrix_qr_blocks(op, q, r, a);
}

/*  Returns x r^-T. */
static ignis_tensor ignis__qr_divide(ignis_tensor x, ignis_tensor r)
{
    ignis_triangular_desc upper = IGNIS__ZERO;
    upper.upper = true;
    return ignis__tensor_transposed(ignis_solve_triangular(r, ignis__tensor_transposed(x), &upper));
}

/*  Returns the symmetric matrix whose lower triangle is that of x. */
static ignis_tensor ignis__qr_symmetric(ignis_tensor x)
{
    return ignis__tensor_formula("a + b", ignis_tril(x, 0), ignis__tensor_transposed(ignis_tril(x, -1)));
}

/*  With g the gradient of q: (g - q S) r^-T, S the symmetric matrix with the lower triangle of g^T q (Walter and
    Lehmann 2012). */
static void ignis__qr_gradient_q(ignis__gradient_args *args)
{
    ignis_tensor s = ignis__qr_symmetric(ignis_matmul(ignis__tensor_transposed(args->gradient), args->saved[0]));
    args->result[0] = ignis__qr_divide(ignis__tensor_formula("a - b", args->gradient, ignis_matmul(args->saved[0], s)),
                                       args->saved[1]);
}

/*  With g the gradient of r: q S r^-T, S the symmetric matrix with the lower triangle of r g^T. */
static void ignis__qr_gradient_r(ignis__gradient_args *args)
{
    ignis_tensor s = ignis__qr_symmetric(ignis_matmul_t(args->saved[1], ignis_triu(args->gradient, 0)));
    args->result[0] = ignis__qr_divide(ignis_matmul(args->saved[0], s), args->saved[1]);
}

/*  Factors the input again, recorded. */
static void ignis__qr_again(ignis_tensor input, ignis_tensor *saved) { saved[0] = ignis_qr(input, &saved[1]); }

static const ignis__composed_gradient ignis__qr_rule_q = {
    "ignis_qr", ignis__qr_gradient_q, {IGNIS__SAVED_AGAIN, IGNIS__SAVED_AGAIN, 0}, ignis__qr_again};

static const ignis__composed_gradient ignis__qr_rule_r = {
    "ignis_qr", ignis__qr_gradient_r, {IGNIS__SAVED_AGAIN, IGNIS__SAVED_AGAIN, 0}, ignis__qr_again};

IGNIS_API ignis_tensor ignis_qr(ignis_tensor a, ignis_tensor *r)
{
    ignis__array *q = NULL, *upper = NULL, *copy;
    ignis_tensor result;
    ignis_shape shape, of_q, of_r;
    ignis_rule rule;
    ignis__op op;
    if (r)
        *r = ignis__no_tensor();
    if (!ignis__op_begin(&op, "ignis_qr", 1, &a))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    if (!r)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "r is null");
    if (op.ok && ignis__linalg_check(&op, 0, "a", false)) {
        int64_t m = shape.dim[shape.ndim - 2], n = shape.dim[shape.ndim - 1], k = m < n ? m : n;
        if (op.records && m < n)
            ignis__op_fail(&op, IGNIS_DIAG_UNSUPPORTED,
                           "a is %s; a gradient of more columns than rows is not supported",
                           ignis__shape_write(&shape).text);
        of_q = ignis__linalg_shape(&shape, m, k);
        of_r = ignis__linalg_shape(&shape, k, n);
        q = ignis__op_new(&op, &of_q, op.in[0]->dtype);
        upper = ignis__op_new(&op, &of_r, op.in[0]->dtype);
        copy = ignis__op_new_like(&op, op.in[0]);
        ignis__op_copy(&op, copy, op.in[0]);
        ignis__matrix_qr(&op, ignis__matrix_write(&op, q), ignis__matrix_write(&op, upper),
                         ignis__matrix_write(&op, copy));
    }
    ignis__op_save(&op, q);
    ignis__op_save(&op, upper);
    ignis__op_save(&op, op.in[0]);
    rule = ignis__composed_rule(&op, "qr", &ignis__qr_rule_q, NULL, 0);
    result = ignis__op_result(&op, q, op.count, op.tensors, op.tape_state, op.records ? &rule : NULL);
    rule = ignis__composed_rule(&op, "qr", &ignis__qr_rule_r, NULL, 0);
    if (r)
        *r = ignis__op_result(&op, upper, op.count, op.tensors, op.tape_state, op.records ? &rule : NULL);
    if (ignis__op_leave(&op) == IGNIS_OK)
        return result;
    if (result.id)
        (void)ignis_tensor_release(result);
    return ignis__no_tensor();
}
