/*  >>linalg.triangular - ignis_solve_triangular: systems of triangular matrices

    One kernel solves lower triangles of up to 64 rows. Larger ones are halved, with a product between the
    halves. An upper triangle is a lower one by a view from its last row and column on.
    Uses: matrix, gradient; kernels/linalg.cu. */

#include "room.h"

/*  Returns how many threads have a matrix of n rows: a power of 2 from 8 to `most`. */
IGNIS__PRIVATE int ignis__linalg_lanes(int64_t n, int most)
{
    int lanes = 8;
    while (lanes < n && lanes < most)
        lanes *= 2;
    return lanes;
}

static void ignis__matrix_solve_small(ignis__op *op, ignis__matrix l, ignis__matrix b, bool unit)
{
    int n = (int)l.rows, tile = 1, ones = unit;
    int64_t stride = n | 1, parts;
    ignis__teams teams;
    void *params[] = {&l, &b, &n, &b.columns, &parts, &b.count, &tile, &ones, &teams.lanes};
    while (tile < b.columns && tile < IGNIS__LINALG_SMALL &&
           n * (stride + 2 * tile) * (int64_t)ignis__dtypes[l.dtype].size <= IGNIS__LINALG_SHARED)
        tile *= 2;
    parts = ignis__ceil_div(b.columns, tile);
    teams =
        ignis__teams_of(&l, parts * b.count, n * tile > 1024 ? IGNIS__LINALG_TEAM_THREADS : ignis__linalg_lanes(n, 32),
                        n * (stride + tile));
    ignis__op_launch(op, IGNIS__BUILTIN(LINALG_SOLVE_LOWER), l.dtype, NULL,
                     ignis__launch_row(teams.blocks, teams.threads, teams.shared), params);
}

/*  Replaces b by L^-1 b. unit: the diagonal of L counts as ones. */
IGNIS__PRIVATE void ignis__matrix_solve_lower(ignis__op *op, ignis__matrix l, ignis__matrix b, bool unit)
{
    int64_t n = l.rows, h = ignis__matrix_half(n, IGNIS__LINALG_SMALL), k = b.columns;
    ignis__matrix rest;
    if (!op->ok || n * k * b.count == 0)
        return;
    if (n <= IGNIS__LINALG_SMALL) {
        ignis__matrix_solve_small(op, l, b, unit);
        return;
    }
    rest = ignis__matrix_block(b, h, 0, n - h, k);
    b = ignis__matrix_block(b, 0, 0, h, k);
    ignis__matrix_solve_lower(op, ignis__matrix_block(l, 0, 0, h, h), b, unit);
    ignis__matrix_subtract_product(op, rest, ignis__matrix_block(l, h, 0, n - h, h), b);
    ignis__matrix_solve_lower(op, ignis__matrix_block(l, h, h, n - h, n - h), rest, unit);
}

/*  Replaces b by U^-1 b. */
IGNIS__PRIVATE void ignis__matrix_solve_upper(ignis__op *op, ignis__matrix u, ignis__matrix b, bool unit)
{
    ignis__matrix_solve_lower(op, ignis__matrix_reverse(u, true), ignis__matrix_reverse(b, false), unit);
}

/*  a x = b: the gradient of b is a^-T g, that of a is minus its product with x^T (Giles 2008, 2.3.1), inside the
    triangle. */
static void ignis__triangular_gradient(ignis__gradient_args *args)
{
    const ignis_triangular_desc *forward = (const ignis_triangular_desc *)args->params;
    ignis_triangular_desc desc = *forward;
    ignis_tensor of_b, x, product;
    int ndim = ignis_tensor_shape(args->saved[0]).ndim;
    desc.transpose = !desc.transpose;
    args->result[1] = of_b = ignis_solve_triangular(args->saved[0], args->gradient, &desc);
    if (!args->needed[0])
        return;
    of_b = ignis__tensor_columns(of_b, ndim);
    x = ignis__tensor_columns(args->saved[1], ndim);
    product = ignis_scale(forward->transpose ? ignis_matmul_t(x, of_b) : ignis_matmul_t(of_b, x), -1);
    args->result[0] = forward->upper ? ignis_triu(product, forward->unit) : ignis_tril(product, -(int)forward->unit);
}

static const ignis__composed_gradient ignis__triangular_rule = {
    "ignis_solve_triangular", ignis__triangular_gradient, {0, IGNIS__SAVED_OUTPUT}, NULL};

IGNIS_API ignis_tensor ignis_solve_triangular(ignis_tensor a, ignis_tensor b, const ignis_triangular_desc *desc)
{
    ignis_triangular_desc how = IGNIS__ZERO;
    ignis_tensor inputs[] = {a, b};
    ignis__array *out = NULL;
    ignis__matrix triangle, x;
    ignis_rule rule;
    ignis__op op;
    if (!ignis__op_begin(&op, "ignis_solve_triangular", 2, inputs))
        return ignis__no_tensor();
    if (desc) {
        how.upper = desc->upper;
        how.transpose = desc->transpose;
        how.unit = desc->unit;
    }
    if (ignis__linalg_check(&op, 0, "a", true) &&
        ignis__linalg_check_right(&op, 1, "b", op.in[0]->shape.dim[op.in[0]->shape.ndim - 1])) {
        triangle = ignis__matrix_read(&op, op.in[0]);
        out = ignis__op_new_like(&op, op.in[1]);
        ignis__op_copy(&op, out, op.in[1]);
        x = ignis__matrix_right(&triangle, op.in[1], ignis__op_write(&op, out));
        if (how.transpose)
            triangle = ignis__matrix_transpose(triangle);
        if (how.upper != how.transpose)
            ignis__matrix_solve_upper(&op, triangle, x, how.unit);
        else
            ignis__matrix_solve_lower(&op, triangle, x, how.unit);
    }
    ignis__op_save(&op, op.in[0]);
    ignis__op_save(&op, out);
    rule = ignis__composed_rule(&op, "solve_triangular", &ignis__triangular_rule, &how, sizeof how);
    return ignis__op_end(&op, out, &rule);
}
