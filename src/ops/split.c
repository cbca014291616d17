/*  >>ops.split - ignis_split and ignis_slice: slices of a tensor along a dimension

    A slice is a view if it is contiguous, else a copy. Uses: operation, concat (copies rows), the backward
    pass. */

#include "room.h"

/*  The parts of a split are slices of a tensor that nobody else sees. The first of their backwards makes its
    gradient, zero except for that slice; the others add theirs. So it is complete when the split's own
    backward runs. */
static ignis_status ignis__split_backward(const ignis_backward_args *args)
{
    args->grad_inputs[0] = args->grad_output;
    return IGNIS_OK;
}

typedef struct ignis__slice_params {
    int64_t offset, row, length, rows;
    ignis_shape whole;
} ignis__slice_params;

/*  Adds the gradient of a slice to that of the tensor, which is made first if `sum` is NULL. */
static ignis_status ignis__slice_add_gradient(const char *call, const ignis_backward_args *args, ignis__array *sum)
{
    const ignis__slice_params *p = (const ignis__slice_params *)args->params;
    ignis__array *made = NULL;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, call, args))
        return ignis__failed();
    if (!sum) {
        sum = made = ignis__op_new(&op, &p->whole, op.in[0]->dtype);
        if (made)
            ignis__op_zero(&op, made);
    }
    if (sum)
        ignis__op_copy_rows(&op, ignis__row_slices_of(sum, p->offset, p->row),
                            ignis__row_slices_of(op.in[0], 0, p->length), p->length, p->rows);
    return ignis__op_finish_backward(&op, args, 1, &made);
}

static ignis_status ignis__split_part_backward(const ignis_backward_args *args)
{
    return ignis__slice_add_gradient("ignis_split", args, ignis__backward_pass_input_sum(0));
}

/*  Returns the slice of an input of `size` from `start` on along dim: a view if it is contiguous, else a
    copy. */
static ignis__array *ignis__op_slice(ignis__op *op, int dim, int64_t start, int64_t size, ignis__slice_params *p)
{
    ignis_shape shape = op->in[0]->shape;
    int64_t inner = ignis__shape_product(&shape, dim + 1, shape.ndim);
    ignis__array *out;
    p->whole = shape;
    p->rows = ignis__shape_product(&shape, 0, dim);
    p->row = shape.dim[dim] * inner;
    p->offset = start * inner;
    p->length = size * inner;
    shape.dim[dim] = size;
    if (p->rows == 1)
        return ignis__op_view(op, op->in[0], &shape, p->length, p->offset);
    out = ignis__op_new(op, &shape, op->in[0]->dtype);
    if (out)
        ignis__op_copy_rows(op, ignis__row_slices_of(out, 0, p->length),
                            ignis__row_slices_of(op->in[0], p->offset, p->row), p->length, p->rows);
    return out;
}

/*  Makes one part of a split. */
static ignis_tensor ignis__split_part(const char *call, ignis_tensor whole, int dim, int64_t start, int64_t size)
{
    ignis__slice_params p;
    ignis__op op;
    ignis__array *out;
    if (!ignis__op_begin(&op, call, 1, &whole))
        return ignis__no_tensor();
    out = ignis__op_slice(&op, dim, start, size, &p);
    return ignis__op_end_recorded(&op, out, "part", ignis__split_part_backward, &p, sizeof p);
}

/*  Checks a split, sets the sizes of equal parts, and returns the tensor that the parts are slices of. */
static ignis_tensor ignis__split_begin(const char *call, ignis_tensor tensor, int *dim, int count, const int64_t *sizes)
{
    ignis__op op;
    ignis__array *view;
    const ignis_shape *shape;
    int64_t left; /* of the dimension */
    int i;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    shape = &op.in[0]->shape;
    left = ignis__op_dim(&op, dim, "dim") ? shape->dim[*dim] : 0;
    for (i = 0; sizes && i < count; i++)
        left = sizes[i] < 0 || sizes[i] > left ? -1 : left - sizes[i];
    if (op.ok && sizes && left != 0)
        ignis__op_fail(&op, IGNIS_DIAG_PARTS_SHAPE, "the sizes do not add up to dimension %d of %s, or one is negative",
                       *dim, ignis__shape_write(shape).text);
    else if (op.ok && !sizes && shape->dim[*dim] % count != 0)
        ignis__op_fail(&op, IGNIS_DIAG_PARTS_SHAPE, "dimension %d of %s cannot be cut into %d equal parts", *dim,
                       ignis__shape_write(shape).text, count);
    view = ignis__op_view(&op, op.in[0], shape, op.in[0]->numel, 0);
    return ignis__op_end_recorded(&op, view, "split", ignis__split_backward, NULL, 0);
}

IGNIS_API ignis_status ignis_split(ignis_tensor tensor, int dim, int count, const int64_t *sizes, ignis_tensor *parts)
{
    static const char call[] = "ignis_split";
    ignis_tensor whole;
    ignis_tensor_info info;
    int64_t start = 0, size;
    int i;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "parts", parts))
        return ignis__failed();
    if (count < 1)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 1", count);
    memset(parts, 0, sizeof *parts * (size_t)count);
    whole = ignis__split_begin(call, tensor, &dim, count, sizes);
    if (!whole.id || ignis_tensor_query(whole, &info) != IGNIS_OK)
        return ignis__failed();
    for (i = 0; i < count; i++) {
        size = sizes ? sizes[i] : info.shape.dim[dim] / count;
        parts[i] = ignis__split_part(call, whole, dim, start, size);
        if (!parts[i].id)
            break;
        start += size;
    }
    (void)ignis_tensor_release(whole);
    if (i == count)
        return IGNIS_OK;
    while (i-- > 0) {
        (void)ignis_tensor_release(parts[i]);
        parts[i].id = 0;
    }
    return ignis__failed();
}

static ignis_status ignis__slice_backward(const ignis_backward_args *args)
{
    return ignis__slice_add_gradient("ignis_slice", args, NULL);
}

/*  The gradient of a slice, with zeros around it. */
IGNIS__PRIVATE void ignis__vjp_of_slice(const ignis_vjp_args *args)
{
    const ignis__slice_params *p = (const ignis__slice_params *)args->params;
    const int64_t before[2] = {0, p->offset}, after[2] = {0, p->row - p->offset - p->length};
    args->grad_inputs[0] =
        ignis_pad(ignis_reshape(args->grad_output, IGNIS_SHAPE(p->rows, p->length)), before, after, 2, 0);
}

IGNIS_API ignis_tensor ignis_slice(ignis_tensor tensor, int dim, int64_t start, int64_t len)
{
    const ignis_shape *shape;
    ignis__slice_params p = IGNIS__ZERO;
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, "ignis_slice", 1, &tensor))
        return ignis__no_tensor();
    shape = &op.in[0]->shape;
    if (ignis__op_dim(&op, &dim, "dim") &&
        (start < 0 || len < 0 || start > shape->dim[dim] || len > shape->dim[dim] - start))
        ignis__op_fail(&op, IGNIS_DIAG_SLICE_RANGE, "elements %lld to %lld + %lld are outside dim %d of shape %s",
                       (long long)start, (long long)start, (long long)len, dim, ignis__shape_write(shape).text);
    if (op.ok)
        out = ignis__op_slice(&op, dim, start, len, &p);
    return ignis__op_end_recorded(&op, out, "slice", ignis__slice_backward, &p, sizeof p);
}
