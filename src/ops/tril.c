/*  >>ops.tril - ignis_tril and ignis_triu: triangles of matrices

    Keeps a band of diagonals, and zeroes the rest; so does the gradient.
    Uses: operation; kernels PATTERN. */

#include "room.h"

typedef struct ignis__band {
    int64_t low, high; /* the kept range of column - row */
} ignis__band;

static ignis__array *ignis__op_band(ignis__op *op, ignis__array *from, const ignis__band *given)
{
    ignis__band band = *given;
    ignis__array *out = ignis__op_new_like(op, from);
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, out);
    const int64_t *dims = from->shape.dim + from->shape.ndim - 2;
    int64_t rows = dims[0], columns = dims[1];
    void *params[] = {&target, &source, &rows, &columns, &band.low, &band.high, &from->numel};
    ignis__op_launch_elementwise(op, IGNIS__BUILTIN(BAND), from->dtype, from->numel, params);
    return out;
}

static ignis_status ignis__band_backward(const ignis_backward_args *args)
{
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_tril", args))
        return ignis__failed();
    return ignis__op_finish_backward_one(&op, args, ignis__op_band(&op, op.in[0], (const ignis__band *)args->params));
}

static ignis_tensor ignis__band_op(const char *call, const char *name, ignis_tensor tensor, int64_t low, int64_t high)
{
    ignis__band band = {low, high};
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    if (op.in[0]->shape.ndim < 2)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_RANK, "the tensor is %s; two dimensions or more are needed",
                       ignis__shape_write(&op.in[0]->shape).text);
    if (op.ok)
        out = ignis__op_band(&op, op.in[0], &band);
    return ignis__op_end_recorded(&op, out, name, ignis__band_backward, &band, sizeof band);
}

IGNIS__PRIVATE void ignis__vjp_of_band(const ignis_vjp_args *args)
{
    const ignis__band *band = (const ignis__band *)args->params;
    args->grad_inputs[0] = ignis__band_op("ignis_tril", args->node->name, args->grad_output, band->low, band->high);
}

IGNIS_API ignis_tensor ignis_tril(ignis_tensor tensor, int64_t diagonal)
{
    return ignis__band_op("ignis_tril", "tril", tensor, INT64_MIN, diagonal);
}

IGNIS_API ignis_tensor ignis_triu(ignis_tensor tensor, int64_t diagonal)
{
    return ignis__band_op("ignis_triu", "triu", tensor, diagonal, INT64_MAX);
}
