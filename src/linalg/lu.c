/*  >>linalg.lu - ignis_lu: factors by Gaussian elimination with partial pivoting

    Small matrices are factored in shared memory. Of larger ones the left half of the columns is factored. Its
    exchanges are applied to the right half, which is solved for, updated by a product, and factored in turn
    (Toledo 1997). Panels of 16 columns are factored by a block where they are.
    Uses: matrix, triangular, gradient; kernels/linalg.cu. */

#include "room.h"

/*  Returns the factors of a copy: pivots and info are new arrays that hold nothing yet. */
IGNIS__PRIVATE ignis__lu ignis__lu_begin(ignis__op *op, ignis__array *factors, ignis__array *pivots, ignis__array *info)
{
    ignis__lu lu = IGNIS__ZERO;
    lu.matrix = ignis__matrix_write(op, factors);
    lu.pivots = ignis__op_write(op, pivots);
    lu.info = ignis__op_write(op, info);
    lu.pivot_batch = lu.matrix.rows < lu.matrix.columns ? lu.matrix.rows : lu.matrix.columns;
    return lu;
}

/*  Makes the array of pivots for matrices of this shape. */
IGNIS__PRIVATE ignis__array *ignis__lu_pivots(ignis__op *op, const ignis_shape *shape)
{
    int64_t m = shape->dim[shape->ndim - 2], n = shape->dim[shape->ndim - 1];
    return ignis__op_new_row(op, (m < n ? m : n) * ignis__shape_product(shape, 0, shape->ndim - 2), IGNIS_I32);
}

/*  Exchanges rows of b as `count` pivots from `first` on say; b begins at that row. */
IGNIS__PRIVATE void ignis__matrix_swap_rows(ignis__op *op, ignis__matrix b, const ignis__lu *lu, int64_t first,
                                            int64_t count)
{
    int pivots = (int)count, from = (int)first;
    ignis__address at = lu->pivots;
    int64_t batch = lu->pivot_batch, blocks = ignis__clamp(ignis__ceil_div(b.columns * b.count, 256), 0, 65535);
    void *params[] = {&b, &at, &pivots, &from, &batch, &b.columns, &b.count};
    ignis__op_launch_row(op, IGNIS__BUILTIN(LINALG_SWAP_ROWS), b.dtype, blocks, IGNIS__LINALG_THREADS, params);
}

/*  Factors a, whose first row is row `first` of the matrix, and whose columns are no more than its rows. */
static void ignis__matrix_lu_columns(ignis__op *op, ignis__matrix a, const ignis__lu *lu, int64_t first)
{
    int64_t m = a.rows, n = a.columns, h = ignis__matrix_half(n, IGNIS__LINALG_PANEL);
    ignis__matrix right, below, rest;
    bool is_small = m <= IGNIS__LINALG_SMALL;
    if (!op->ok || n == 0 || a.count == 0)
        return;
    if (is_small || n <= IGNIS__LINALG_PANEL) {
        int rows = (int)m, columns = (int)n, before = (int)first, shared = is_small;
        ignis__address pivots = lu->pivots, info = lu->info;
        int64_t batch = lu->pivot_batch;
        ignis__teams teams =
            ignis__teams_of(&a, a.count, is_small ? ignis__linalg_lanes(m, IGNIS__LINALG_SMALL) : IGNIS__LINALG_THREADS,
                            is_small ? m * (n | 1) : 0);
        void *params[] = {&a, &pivots, &info, &rows, &columns, &batch, &a.count, &before, &teams.lanes, &shared};
        ignis__op_launch(op, IGNIS__BUILTIN(LINALG_LU), a.dtype, NULL,
                         ignis__launch_row(teams.blocks, teams.threads, teams.shared), params);
        return;
    }
    right = ignis__matrix_block(a, 0, h, h, n - h);
    below = ignis__matrix_block(a, h, 0, m - h, h);
    rest = ignis__matrix_block(a, h, h, m - h, n - h);
    ignis__matrix_lu_columns(op, ignis__matrix_block(a, 0, 0, m, h), lu, first);
    ignis__matrix_swap_rows(op, ignis__matrix_block(a, 0, h, m, n - h), lu, first, h);
    ignis__matrix_solve_lower(op, ignis__matrix_block(a, 0, 0, h, h), right, true);
    ignis__matrix_subtract_product(op, rest, below, right);
    ignis__matrix_lu_columns(op, rest, lu, first + h);
    ignis__matrix_swap_rows(op, below, lu, first + h, n - h);
}

/*  Factors lu->matrix in place. */
IGNIS__PRIVATE void ignis__matrix_lu(ignis__op *op, const ignis__lu *lu)
{
    ignis__matrix a = lu->matrix;
    int64_t n = lu->pivot_batch, rest = a.columns - n;
    ignis__matrix_lu_columns(op, ignis__matrix_block(a, 0, 0, a.rows, n), lu, 0);
    if (rest == 0 || n == 0 || a.count == 0)
        return;
    ignis__matrix_swap_rows(op, ignis__matrix_block(a, 0, n, n, rest), lu, 0, n);
    ignis__matrix_solve_lower(op, ignis__matrix_block(a, 0, 0, n, n), ignis__matrix_block(a, 0, n, n, rest), true);
}

/*  Of the gradient g of both factors in one matrix: P^T L^-T (the lower triangle of L^T g without its diagonal, and the
    upper triangle of g U^T) U^-T. The first factor has g below the diagonal, the second one has the rest. */
static void ignis__lu_gradient(ignis__gradient_args *args)
{
    ignis_triangular_desc lower = IGNIS__ZERO, upper = IGNIS__ZERO;
    ignis_tensor lu = args->saved[0], index, inside, l = ignis_tril(lu, -1), below = ignis_tril(args->gradient, -1);
    ignis_shape shape = ignis_tensor_shape(lu);
    lower.transpose = lower.unit = upper.upper = true;
    /* L^T g = (l + I)^T g */
    inside = ignis__tensor_formula("a + b", ignis_matmul(ignis__tensor_transposed(l), below), below);
    inside = ignis__tensor_formula("a + b", ignis_tril(inside, -1),
                                   ignis_triu(ignis_matmul_t(ignis_triu(args->gradient, 0), ignis_triu(lu, 0)), 0));
    inside = ignis_solve_triangular(lu, inside, &lower);
    inside = ignis__tensor_transposed(ignis_solve_triangular(lu, ignis__tensor_transposed(inside), &upper));
    (void)ignis_sort(args->saved[1], -1, false,
                     &index); /* the inverse permutation: row i of L U is row args->saved[1][i] of a */
    index = ignis_expand(ignis__tensor_columns(index, shape.ndim), shape);
    args->result[0] = ignis_gather(inside, shape.ndim - 2, index);
}

static const ignis__composed_gradient ignis__lu_rule = {
    "ignis_lu", ignis__lu_gradient, {IGNIS__SAVED_OUTPUT, IGNIS__SAVED_CONSTANT}, NULL};

/*  Makes the permutation of the rows that the pivots are. */
static ignis__array *ignis__lu_permutation(ignis__op *op, const ignis__lu *lu, const ignis_shape *shape)
{
    ignis_shape rows = *shape;
    ignis__array *permutation;
    ignis__address to, pivots = lu->pivots;
    int64_t m = shape->dim[shape->ndim - 2], count = ignis__shape_product(shape, 0, shape->ndim - 2);
    int pivot_count = (int)lu->pivot_batch;
    void *params[] = {&to, &pivots, &m, &pivot_count, &count};
    rows.ndim--;
    permutation = ignis__op_new(op, &rows, IGNIS_I64);
    to = ignis__op_write(op, permutation);
    ignis__op_launch_row(op, IGNIS__BUILTIN(LINALG_PERMUTATION), lu->matrix.dtype,
                         m ? ignis__clamp(ignis__ceil_div(count, IGNIS__LINALG_THREADS), 0, 65535) : 0,
                         IGNIS__LINALG_THREADS, params);
    return permutation;
}

IGNIS_API ignis_tensor ignis_lu(ignis_tensor a, ignis_tensor *permutation)
{
    ignis__array *factors = NULL, *rows = NULL, *pivots;
    ignis_tensor result;
    const ignis_shape *shape;
    ignis__lu lu;
    ignis_rule rule;
    ignis__op op;
    if (permutation)
        *permutation = ignis__no_tensor();
    if (!ignis__op_begin(&op, "ignis_lu", 1, &a))
        return ignis__no_tensor();
    shape = &op.in[0]->shape;
    if (!permutation)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "permutation is null");
    if (op.ok && ignis__linalg_check(&op, 0, "a", false)) {
        if (op.records && shape->dim[shape->ndim - 1] != shape->dim[shape->ndim - 2])
            ignis__op_fail(&op, IGNIS_DIAG_UNSUPPORTED,
                           "a is %s; a gradient of matrices that are not square is not "
                           "supported",
                           ignis__shape_write(shape).text);
        factors = ignis__op_new_like(&op, op.in[0]);
        pivots = ignis__lu_pivots(&op, shape);
        ignis__op_copy(&op, factors, op.in[0]);
        lu = ignis__lu_begin(&op, factors, pivots, ignis__linalg_info(&op, shape));
        ignis__matrix_lu(&op, &lu);
        rows = ignis__lu_permutation(&op, &lu, shape);
    }
    ignis__op_save(&op, factors);
    ignis__op_save(&op, rows);
    rule = ignis__composed_rule(&op, "lu", &ignis__lu_rule, NULL, 0);
    result = ignis__op_result(&op, factors, op.count, op.tensors, op.tape_state, op.records ? &rule : NULL);
    if (permutation)
        *permutation = ignis__op_result(&op, rows, 0, NULL, NULL, NULL);
    if (ignis__op_leave(&op) == IGNIS_OK)
        return result;
    if (result.id)
        (void)ignis_tensor_release(result);
    return ignis__no_tensor();
}
