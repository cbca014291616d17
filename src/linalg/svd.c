/*  >>linalg.svd - ignis_svd: singular values and vectors

    The rows of the matrix with fewer rows, a or its transpose, are made orthogonal: j w = diag(s) u^T, so that the
    transpose of w is u diag(s) j. Householder reflections of the sorted rows give u: it is orthonormal also where
    singular values are 0.
    Uses: matrix, qr, jacobi, eigh (tensor_as_row), gradient. */

#include "room.h"

/*  Writes u [m, k], s and vt [k, n] of a [m, n], m >= n = k. */
static void ignis__matrix_svd(ignis__op *op, ignis__matrix u, ignis__array *s, ignis__matrix vt, ignis__matrix a)
{
    ignis__jacobi run = ignis__jacobi_begin(op, ignis__matrix_transpose(a), false);
    int64_t m = a.rows, k = a.columns, blocks = ignis__clamp(ignis__ceil_div(m * k * a.count, 1024), 0, 65535);
    ignis__array *columns = ignis__op_new_row(op, a.count * m * k, a.dtype),
                 *triangle = ignis__op_new_row(op, a.count * k * k, a.dtype);
    ignis__address of_columns = ignis__op_write(op, columns), of_triangle = ignis__op_write(op, triangle);
    ignis__matrix sorted, r;
    void *params[] = {&u, &r, &m, &run.n, &a.count};
    ignis__jacobi_svd(op, &run);
    ignis__jacobi_values(op, &run, s, (int)m);
    if (!op->ok)
        return;
    sorted = ignis__matrix_of(columns, of_columns, m, k);
    r = ignis__matrix_of(triangle, of_triangle, k, k);
    ignis__jacobi_rows(op, &run, ignis__matrix_transpose(sorted), run.work, (int)m);
    ignis__jacobi_rows(op, &run, vt, run.j, run.n);
    ignis__matrix_qr(op, u, r, sorted);
    ignis__op_launch_row(op, IGNIS__BUILTIN(LINALG_SIGN_COLUMNS), a.dtype, blocks, IGNIS__LINALG_THREADS, params);
}

/*  Returns (x - x^T) / (s_j^2 - s_i^2), without the diagonal. */
static ignis_tensor ignis__svd_skew(ignis_tensor x, ignis_tensor s)
{
    ignis_tensor gaps = ignis__tensor_gaps("b*b - a*a", s, x);
    x = ignis__tensor_formula("a - b", x, ignis__tensor_transposed(x));
    x = ignis__tensor_formula("a/b", x, gaps);
    return ignis__tensor_formula("a + b", ignis_tril(x, -1), ignis_triu(x, 1));
}

/*  Returns whether vectors span the space: what is outside of it is only rounding then. */
static bool ignis__svd_is_square(ignis_tensor vectors)
{
    ignis_shape shape = ignis_tensor_shape(vectors);
    return shape.ndim >= 2 && shape.dim[shape.ndim - 1] == shape.dim[shape.ndim - 2];
}

/*  Of u with gradient g: (u F diag(s) + (g - u u^T g) / s) vt, F the skew part of u^T g (Townsend 2016). */
static void ignis__svd_gradient_u(ignis__gradient_args *args)
{
    ignis_tensor u = args->saved[0], vt = args->saved[2], s = ignis__tensor_as_row(args->saved[1], u, false),
                 inner = ignis_matmul(ignis__tensor_transposed(u), args->gradient), outside, rotation;
    rotation = ignis__tensor_formula("a*b", ignis_matmul(u, ignis__svd_skew(inner, args->saved[1])), s);
    if (!ignis__svd_is_square(u)) {
        outside = ignis__tensor_formula("a - b", args->gradient, ignis_matmul(u, inner));
        rotation = ignis__tensor_formula("a + b", rotation, ignis__tensor_formula("a/b", outside, s));
    }
    args->result[0] = ignis_matmul(rotation, vt);
}

/*  Of s with gradient g: u diag(g) vt. */
static void ignis__svd_gradient_s(ignis__gradient_args *args)
{
    args->result[0] = ignis_matmul(
        ignis__tensor_formula("a*b", args->saved[0], ignis__tensor_as_row(args->gradient, args->saved[0], false)),
        args->saved[2]);
}

/*  Of vt with gradient g: u (diag(s) F vt + (g - g v v^T) / s), F the skew part of vt g^T. */
static void ignis__svd_gradient_vt(ignis__gradient_args *args)
{
    ignis_tensor u = args->saved[0], vt = args->saved[2], s = ignis__tensor_as_row(args->saved[1], vt, true),
                 inner = ignis_matmul_t(vt, args->gradient), outside, rotation;
    rotation = ignis__tensor_formula("a*b", ignis_matmul(ignis__svd_skew(inner, args->saved[1]), vt), s);
    if (!ignis__svd_is_square(vt)) {
        outside = ignis__tensor_formula("a - b", args->gradient, ignis_matmul(ignis__tensor_transposed(inner), vt));
        rotation = ignis__tensor_formula("a + b", rotation, ignis__tensor_formula("a/b", outside, s));
    }
    args->result[0] = ignis_matmul(u, rotation);
}

/*  Computes values and vectors again, recorded. */
static void ignis__svd_again(ignis_tensor input, ignis_tensor *saved)
{
    saved[1] = ignis_svd(input, &saved[0], &saved[2]);
}

static const ignis__composed_gradient ignis__svd_rule_u = {
    "ignis_svd",
    ignis__svd_gradient_u,
    {IGNIS__SAVED_AGAIN, IGNIS__SAVED_AGAIN, IGNIS__SAVED_AGAIN, 0},
    ignis__svd_again};

static const ignis__composed_gradient ignis__svd_rule_s = {
    "ignis_svd",
    ignis__svd_gradient_s,
    {IGNIS__SAVED_AGAIN, IGNIS__SAVED_AGAIN, IGNIS__SAVED_AGAIN, 0},
    ignis__svd_again};

static const ignis__composed_gradient ignis__svd_rule_vt = {
    "ignis_svd",
    ignis__svd_gradient_vt,
    {IGNIS__SAVED_AGAIN, IGNIS__SAVED_AGAIN, IGNIS__SAVED_AGAIN, 0},
    ignis__svd_again};

IGNIS_API ignis_tensor ignis_svd(ignis_tensor a, ignis_tensor *u, ignis_tensor *vt)
{
    ignis__array *values = NULL, *left = NULL, *right = NULL;
    ignis_tensor result;
    ignis_rule rule;
    ignis__op op;
    if (u)
        *u = ignis__no_tensor();
    if (vt)
        *vt = ignis__no_tensor();
    if (!ignis__op_begin(&op, "ignis_svd", 1, &a))
        return ignis__no_tensor();
    if (ignis__linalg_check(&op, 0, "a", false)) {
        ignis_shape shape = op.in[0]->shape, of_u, of_vt;
        int64_t m = shape.dim[shape.ndim - 2], n = shape.dim[shape.ndim - 1], k = m < n ? m : n;
        ignis__matrix from = ignis__matrix_read(&op, op.in[0]), to_u, to_vt;
        of_u = ignis__linalg_shape(&shape, m, k);
        of_vt = ignis__linalg_shape(&shape, k, n);
        shape.dim[--shape.ndim - 1] = k;
        values = ignis__op_new(&op, &shape, op.in[0]->dtype);
        left = ignis__op_new(&op, &of_u, op.in[0]->dtype);
        right = ignis__op_new(&op, &of_vt, op.in[0]->dtype);
        to_u = ignis__matrix_write(&op, left);
        to_vt = ignis__matrix_write(&op, right);
        if (op.ok && op.in[0]->numel && m >= n)
            ignis__matrix_svd(&op, to_u, values, to_vt, from);
        else if (op.ok && op.in[0]->numel)
            ignis__matrix_svd(&op, ignis__matrix_transpose(to_vt), values, ignis__matrix_transpose(to_u),
                              ignis__matrix_transpose(from));
    }
    ignis__op_save(&op, left);
    ignis__op_save(&op, values);
    ignis__op_save(&op, right);
    ignis__op_save(&op, op.in[0]);
    rule = ignis__composed_rule(&op, "svd", &ignis__svd_rule_s, NULL, 0);
    result = ignis__op_result(&op, values, op.count, op.tensors, op.tape_state, op.records ? &rule : NULL);
    rule = ignis__composed_rule(&op, "svd", &ignis__svd_rule_u, NULL, 0);
    if (u)
        *u = ignis__op_result(&op, left, op.count, op.tensors, op.tape_state, op.records ? &rule : NULL);
    rule = ignis__composed_rule(&op, "svd", &ignis__svd_rule_vt, NULL, 0);
    if (vt)
        *vt = ignis__op_result(&op, right, op.count, op.tensors, op.tape_state, op.records ? &rule : NULL);
    if (ignis__op_leave(&op) == IGNIS_OK)
        return result;
    if (result.id)
        (void)ignis_tensor_release(result);
    if (u && u->id)
        (void)ignis_tensor_release(*u);
    if (u)
        *u = ignis__no_tensor();
    return ignis__no_tensor();
}
