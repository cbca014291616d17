/*  >>linalg.cholesky - ignis_cholesky and ignis_cholesky_solve

    Large matrices are halved: the first half is factored, the rows below it are solved for, and their product is
    subtracted from the second half.
    Uses: matrix, status, triangular, gradient; kernels/linalg.cu. */

#include "room.h"

/*  Writes L of small matrices; `first` rows are before them. */
static void ignis__matrix_cholesky_small(ignis__op *op, ignis__matrix to, ignis__matrix a, ignis__address info,
                                         int64_t first, bool zeros)
{
    int n = (int)a.rows, before = (int)first, has_zeros = zeros;
    ignis__teams teams =
        ignis__teams_of(&a, a.count, ignis__linalg_lanes(n, IGNIS__LINALG_SMALL), (int64_t)n * (n | 1) + 1);
    void *params[] = {&to, &a, &info, &n, &a.count, &before, &has_zeros, &teams.lanes};
    ignis__op_launch(op, IGNIS__BUILTIN(LINALG_CHOLESKY), a.dtype, NULL,
                     ignis__launch_row(teams.blocks, teams.threads, teams.shared), params);
}

/*  Replaces the lower triangle of a by that of L; `first` rows are before it. */
static void ignis__matrix_cholesky(ignis__op *op, ignis__matrix a, ignis__address info, int64_t first)
{
    int64_t n = a.rows, h = ignis__matrix_half(n, IGNIS__LINALG_SMALL);
    ignis__matrix below, rest;
    if (!op->ok || n * a.count == 0)
        return;
    if (n <= IGNIS__LINALG_SMALL) {
        ignis__matrix_cholesky_small(op, a, a, info, first, false);
        return;
    }
    below = ignis__matrix_block(a, h, 0, n - h, h);
    rest = ignis__matrix_block(a, h, h, n - h, n - h);
    a = ignis__matrix_block(a, 0, 0, h, h);
    ignis__matrix_cholesky(op, a, info, first);
    ignis__matrix_solve_lower(op, a, ignis__matrix_transpose(below), false);
    ignis__matrix_subtract_product(op, rest, below, ignis__matrix_transpose(below));
    ignis__matrix_cholesky(op, rest, info, first + h);
}

/*  With S the symmetric part of the lower triangle of L^T g, whose diagonal counts half: L^-T S L^-1 (Murray 2016,
    equation 10). */
static void ignis__cholesky_gradient(ignis__gradient_args *args)
{
    ignis_triangular_desc transposed = IGNIS__ZERO;
    ignis_tensor l = args->saved[0], product = ignis_matmul(ignis__tensor_transposed(l), ignis_tril(args->gradient, 0)),
                 mean;
    transposed.transpose = true;
    mean = ignis__tensor_formula("(a + b)/2", ignis_tril(product, 0), ignis_tril(product, -1));
    mean = ignis__tensor_formula("(a + b)/2", mean, ignis__tensor_transposed(mean));
    mean = ignis_solve_triangular(l, mean, &transposed);
    args->result[0] = ignis_solve_triangular(l, ignis__tensor_transposed(mean), &transposed);
}

static const ignis__composed_gradient ignis__cholesky_rule = {
    "ignis_cholesky", ignis__cholesky_gradient, {IGNIS__SAVED_OUTPUT}, NULL};

IGNIS_API ignis_tensor ignis_cholesky(ignis_tensor a, ignis_tensor *info)
{
    ignis__array *l = NULL, *numbers = NULL;
    ignis__matrix out, from;
    ignis__address to_info;
    ignis_rule rule;
    ignis__op op;
    if (info)
        *info = ignis__no_tensor();
    if (!ignis__op_begin(&op, "ignis_cholesky", 1, &a))
        return ignis__no_tensor();
    if (ignis__linalg_check(&op, 0, "a", true)) {
        l = ignis__op_new_like(&op, op.in[0]);
        numbers = ignis__linalg_info(&op, &op.in[0]->shape);
        out = ignis__matrix_write(&op, l);
        from = ignis__matrix_read(&op, op.in[0]);
        to_info = ignis__op_write(&op, numbers);
        if (op.ok && out.rows <= IGNIS__LINALG_SMALL && op.in[0]->numel) {
            ignis__matrix_cholesky_small(&op, out, from, to_info, 0, true);
        } else {
            ignis__matrix_copy(&op, out, from, INT64_MIN, 0);
            ignis__matrix_cholesky(&op, out, to_info, 0);
            ignis__matrix_copy(&op, out, out, INT64_MIN, 0); /* blocks have written above the diagonal */
        }
    }
    ignis__op_save(&op, l);
    rule = ignis__composed_rule(&op, "cholesky", &ignis__cholesky_rule, NULL, 0);
    return ignis__linalg_op_end(&op, l, numbers, &rule, "is not positive definite", info);
}

IGNIS_API ignis_tensor ignis_cholesky_solve(ignis_tensor l, ignis_tensor b)
{
    ignis_triangular_desc transposed = IGNIS__ZERO;
    ignis_tensor solved, result = IGNIS__ZERO;
    transposed.transpose = true;
    solved = ignis_solve_triangular(l, b, NULL);
    if (solved.id) {
        result = ignis_solve_triangular(l, solved, &transposed);
        (void)ignis_tensor_release(solved);
    }
    return result;
}
