/*  >>ops.sum - ignis_sum and ignis_mean, of all elements or along a dimension

    Rows and columns have kernels of their own; large sums have partial sums, added in a fixed order.
    Uses: operation, the axis of formula/broadcast; kernels/reduce.cu. */

#include "room.h"

/*  Returns the geometry of kernels that sum columns: threads side by side along a row of packs; the rest of
    the block shares the rows. */
static void ignis__column_threads(int64_t packs, int64_t rows, unsigned *x, unsigned *y)
{
    *x = (unsigned)ignis__power_of_2_up(ignis__clamp(packs, 1, 32));
    *y = (unsigned)ignis__clamp(ignis__power_of_2_up(ignis__ceil_div(rows, 4)), 1, IGNIS__SUM_THREADS / (int64_t)*x);
}

/*  Computes out [outer, inner] = factor * the sum over n of a, or of the products of a and b if b is not
    NULL. */
IGNIS__PRIVATE void ignis__op_sum(ignis__op *op, ignis__array *out, ignis__array *a, ignis__array *b, double factor,
                                  const ignis__axis *axis)
{
    ignis_dtype dtype = out->dtype, wide = ignis__wide_dtype(dtype);
    int64_t blocks = 2 * (int64_t)op->work.device->info.multiprocessors, per_pack = ignis__pack_elements(dtype);
    int64_t outer = axis->outer, n = axis->n, inner = axis->inner, count = outer * inner, part_length, parts, packs,
            grid;
    ignis__sum_sizes sizes;
    unsigned x, y;
    bool rows = inner == 1;
    ignis__builtin builtin = rows ? b ? IGNIS__BUILTIN(DOT_ROWS) : IGNIS__BUILTIN(SUM_ROWS)
                             : b ? IGNIS__BUILTIN(DOT_COLUMNS)
                                  : IGNIS__BUILTIN(SUM_COLUMNS);
    ignis__address to, to_partial = 0, from_a, from_b = 0;
    void *sums[] = {&to, &to_partial, &from_a, &sizes}, *dots[] = {&to, &to_partial, &from_a, &from_b, &sizes},
         *finish[] = {&to, &to_partial, &sizes};
    if (!op->ok || count == 0)
        return;
    if (n == 0) {
        ignis__op_zero(op, out);
        return;
    }
    if (rows && (n <= 4096 && outer >= 8)) { /* a warp sums a row */
        x = 32;
        y = 8;
        parts = 1;
        grid = ignis__ceil_div(outer, 8);
    } else if (rows) { /* a block sums a chunk of a row */
        x = (unsigned)ignis__power_of_2_up(ignis__clamp(n / per_pack, 32, IGNIS__SUM_THREADS));
        y = 1;
        parts = ignis__clamp(blocks / outer, 1, ignis__ceil_div(n, 8192));
        grid = outer * parts;
    } else {
        packs = inner % per_pack == 0 ? inner / per_pack : inner;
        ignis__column_threads(packs, n, &x, &y);
        grid = outer * ignis__ceil_div(packs, (int64_t)x);
        parts = ignis__clamp(blocks / grid, 1, ignis__ceil_div(n, 4 * (int64_t)y));
        grid *= parts;
    }
    part_length = ignis__ceil_div(n, parts);
    if (rows && parts > 1)
        part_length = ignis__ceil_div(part_length, 64) * 64; /* chunks begin with packs if rows do */
    parts = ignis__ceil_div(n, part_length);
    from_a = ignis__op_read(op, a);
    if (b)
        from_b = ignis__op_read(op, b);
    if (parts > 1)
        to_partial = ignis__op_write(op, ignis__op_new_row(op, parts * count, wide));
    to = ignis__op_write(op, out);
    sizes.factor = factor;
    sizes.outer = outer;
    sizes.n = n;
    sizes.inner = inner;
    sizes.part_length = part_length;
    sizes.parts = parts;
    ignis__op_launch(op, builtin, dtype, NULL, ignis__launch_grid(ignis__clamp(grid, 1, INT32_MAX), 1, 1, x, y, 0),
                     b ? dots : sums);
    if (parts == 1)
        return;
    per_pack = ignis__pack_elements(wide);
    packs = count % per_pack == 0 ? count / per_pack : count;
    ignis__column_threads(packs, parts, &x, &y);
    grid = ignis__clamp(ignis__ceil_div(packs, (int64_t)x), 1, INT32_MAX);
    sizes.outer = sizes.parts = 1;
    sizes.n = sizes.part_length = parts;
    sizes.inner = count;
    ignis__op_launch(op, IGNIS__BUILTIN(SUM_FINISH), dtype, NULL, ignis__launch_grid(grid, 1, 1, x, y, 0), finish);
}

/*  Values that a sum's gradient needs. */
typedef struct ignis__sum_params {
    ignis__axis axis;
    double factor;
    ignis_shape shape; /* of the input */
} ignis__sum_params;

static ignis_status ignis__sum_backward(const ignis_backward_args *args)
{
    ignis__sum_params p = *(const ignis__sum_params *)args->params;
    int64_t span = p.axis.n * p.axis.inner, numel = p.axis.outer * span;
    ignis__address from, to;
    void *params[] = {&to, &from, &p.factor, &span, &p.axis.inner, &numel};
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, "ignis_sum", args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &p.shape, op.in[0]->dtype);
    from = ignis__op_read(&op, op.in[0]);
    to = ignis__op_write(&op, gradient);
    ignis__op_launch_elementwise(&op, IGNIS__BUILTIN(BROADCAST_SCALED), op.in[0]->dtype, numel, params);
    return ignis__op_finish_backward(&op, args, 1, &gradient);
}

/*  The gradient of the result, times the factor, for each element of the axis. */
IGNIS__PRIVATE void ignis__vjp_of_sum(const ignis_vjp_args *args)
{
    const ignis__sum_params *p = (const ignis__sum_params *)args->params;
    ignis_tensor g = ignis_reshape(args->grad_output, IGNIS_SHAPE(p->axis.outer, 1, p->axis.inner));
    if (p->factor != 1)
        g = ignis_scale(g, p->factor);
    args->grad_inputs[0] = ignis_expand(g, IGNIS_SHAPE(p->axis.outer, p->axis.n, p->axis.inner));
}

/*  Sums along a dimension, or all elements if whole; divides by their number if mean. */
static ignis_tensor ignis__sum(const char *call, ignis_tensor tensor, bool whole, int dim, bool mean)
{
    ignis__sum_params sum = IGNIS__ZERO;
    ignis__axis all = {1, 1, 1};
    ignis__op op;
    ignis__array *out;
    ignis_shape shape;
    int i;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    all.n = op.in[0]->numel;
    ignis__op_is_float(&op, 0, "the tensor");
    if (!whole)
        ignis__op_dim(&op, &dim, "dim");
    if (op.ok) {
        sum.shape = op.in[0]->shape;
        sum.axis = whole ? all : ignis__axis_of_dim(&sum.shape, dim);
        sum.factor = mean && sum.axis.n ? 1.0 / (double)sum.axis.n : 1.0;
    }
    shape = op.in[0]->shape;
    if (whole || shape.ndim == 1) {
        shape = IGNIS_SHAPE(1);
    } else if (op.ok) {
        shape.ndim--;
        for (i = dim; i < shape.ndim; i++)
            shape.dim[i] = shape.dim[i + 1];
    }
    out = ignis__op_new(&op, &shape, op.in[0]->dtype);
    if (out && mean && sum.axis.n == 0)
        ignis__op_fill(&op, out, ignis__nan());
    else if (out)
        ignis__op_sum(&op, out, op.in[0], NULL, sum.factor, &sum.axis);
    return ignis__op_end_recorded(&op, out, mean ? "mean" : "sum", ignis__sum_backward, &sum, sizeof sum);
}

IGNIS_API ignis_tensor ignis_sum(ignis_tensor tensor) { return ignis__sum("ignis_sum", tensor, true, 0, false); }
IGNIS_API ignis_tensor ignis_mean(ignis_tensor tensor) { return ignis__sum("ignis_mean", tensor, true, 0, true); }
IGNIS_API ignis_tensor ignis_sum_dim(ignis_tensor tensor, int dim)
{
    return ignis__sum("ignis_sum_dim", tensor, false, dim, false);
}
IGNIS_API ignis_tensor ignis_mean_dim(ignis_tensor tensor, int dim)
{
    return ignis__sum("ignis_mean_dim", tensor, false, dim, true);
}
