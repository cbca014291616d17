/*  >>linalg.solve - ignis_solve and ignis_inverse: systems of square matrices

    Small systems are eliminated with their right sides by one kernel. Larger ones are factored, and two triangular
    systems are solved.
    Uses: matrix, status, triangular, lu, gradient; kernels/linalg.cu. */

#include "room.h"

/*  Writes x = a^-1 b. a and b stay as they are. */
static void ignis__matrix_solve(ignis__op *op, ignis__matrix x, ignis__array *from, ignis__matrix b,
                                ignis__address info)
{
    ignis__matrix a = ignis__matrix_read(op, from);
    int64_t n = a.rows, elements = n * ((n + b.columns) | 1);
    ignis__lu lu;
    if (!op->ok || n * b.columns * a.count == 0)
        return;
    if (n <= IGNIS__LINALG_SMALL && elements * (int64_t)ignis__dtypes[a.dtype].size <= IGNIS__LINALG_SHARED) {
        int rows = (int)n, columns = (int)b.columns;
        ignis__teams teams = ignis__teams_of(&a, a.count, ignis__linalg_lanes(n, IGNIS__LINALG_SMALL), elements);
        void *params[] = {&x, &a, &b, &info, &rows, &columns, &a.count, &teams.lanes};
        ignis__op_launch(op, IGNIS__BUILTIN(LINALG_SOLVE), a.dtype, NULL,
                         ignis__launch_row(teams.blocks, teams.threads, teams.shared), params);
        return;
    }
    {
        ignis__array *factors = ignis__op_new_like(op, from), *pivots = ignis__lu_pivots(op, &from->shape);
        ignis__op_copy(op, factors, from);
        lu.matrix = ignis__matrix_write(op, factors);
        lu.pivots = ignis__op_write(op, pivots);
        lu.info = info;
        lu.pivot_batch = n;
    }
    ignis__matrix_lu(op, &lu);
    if (op->ok)
        ignis__matrix_copy(op, x, b, INT64_MIN, INT64_MAX);
    ignis__matrix_swap_rows(op, x, &lu, 0, n);
    ignis__matrix_solve_lower(op, lu.matrix, x, true);
    ignis__matrix_solve_upper(op, lu.matrix, x, false);
}

/*  The gradient of b is a^-T g, that of a is minus its product with x^T (Giles 2008, 2.3.1). */
static void ignis__solve_gradient(ignis__gradient_args *args)
{
    ignis_tensor info;
    int ndim = ignis_tensor_shape(args->saved[0]).ndim;
    args->result[1] = ignis_solve(ignis__tensor_transposed(args->saved[0]), args->gradient, &info);
    if (args->needed[0])
        args->result[0] = ignis_scale(
            ignis_matmul_t(ignis__tensor_columns(args->result[1], ndim), ignis__tensor_columns(args->saved[1], ndim)),
            -1);
}

static const ignis__composed_gradient ignis__solve_rule = {
    "ignis_solve", ignis__solve_gradient, {0, IGNIS__SAVED_OUTPUT}, NULL};

IGNIS_API ignis_tensor ignis_solve(ignis_tensor a, ignis_tensor b, ignis_tensor *info)
{
    ignis_tensor inputs[] = {a, b};
    ignis__array *out = NULL, *numbers = NULL;
    ignis__matrix shape, right;
    ignis_rule rule;
    ignis__op op;
    if (info)
        *info = ignis__no_tensor();
    if (!ignis__op_begin(&op, "ignis_solve", 2, inputs))
        return ignis__no_tensor();
    if (ignis__linalg_check(&op, 0, "a", true) &&
        ignis__linalg_check_right(&op, 1, "b", op.in[0]->shape.dim[op.in[0]->shape.ndim - 1])) {
        out = ignis__op_new_like(&op, op.in[1]);
        numbers = ignis__linalg_info(&op, &op.in[0]->shape);
        shape = ignis__matrix_read(&op, op.in[0]);
        right = ignis__matrix_right(&shape, op.in[1], ignis__op_read(&op, op.in[1]));
        ignis__matrix_solve(&op, ignis__matrix_right(&shape, op.in[1], ignis__op_write(&op, out)), op.in[0], right,
                            ignis__op_write(&op, numbers));
    }
    ignis__op_save(&op, op.in[0]);
    ignis__op_save(&op, out);
    rule = ignis__composed_rule(&op, "solve", &ignis__solve_rule, NULL, 0);
    return ignis__linalg_op_end(&op, out, numbers, &rule, "is singular", info);
}

/*  With y = a^-1: -y^T g y^T (Giles 2008, 2.2.3). */
static void ignis__inverse_gradient(ignis__gradient_args *args)
{
    args->result[0] = ignis_scale(
        ignis_matmul(ignis__tensor_transposed(args->saved[0]), ignis_matmul_t(args->gradient, args->saved[0])), -1);
}

static const ignis__composed_gradient ignis__inverse_rule = {
    "ignis_inverse", ignis__inverse_gradient, {IGNIS__SAVED_OUTPUT}, NULL};

IGNIS_API ignis_tensor ignis_inverse(ignis_tensor a, ignis_tensor *info)
{
    ignis__array *out = NULL, *numbers = NULL;
    ignis__matrix x;
    ignis_rule rule;
    ignis__op op;
    if (info)
        *info = ignis__no_tensor();
    if (!ignis__op_begin(&op, "ignis_inverse", 1, &a))
        return ignis__no_tensor();
    if (ignis__linalg_check(&op, 0, "a", true)) {
        out = ignis__op_new_like(&op, op.in[0]);
        numbers = ignis__linalg_info(&op, &op.in[0]->shape);
        x = ignis__matrix_write(&op, out);
        if (op.ok)
            ignis__matrix_identity(&op, x);
        ignis__matrix_solve(&op, x, op.in[0], x, ignis__op_write(&op, numbers));
    }
    ignis__op_save(&op, out);
    rule = ignis__composed_rule(&op, "inverse", &ignis__inverse_rule, NULL, 0);
    return ignis__linalg_op_end(&op, out, numbers, &rule, "is singular", info);
}
