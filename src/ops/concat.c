/*  >>ops.concat - ignis_concat and ignis_stack: tensors joined along a dimension

    Copies rows of each tensor into the result; more tensors than one operation takes are joined in steps.
    Uses: operation, split (the gradient is slices). */

#include "room.h"

IGNIS__PRIVATE ignis__row_slices ignis__row_slices_of(ignis__array *array, int64_t offset, int64_t row)
{
    ignis__row_slices slices;
    slices.array = array;
    slices.offset = offset;
    slices.row = row;
    return slices;
}

/*  Copies `rows` rows of `length` elements between two arrays. */
IGNIS__PRIVATE void ignis__op_copy_rows(ignis__op *op, ignis__row_slices to, ignis__row_slices from, int64_t length,
                                        int64_t rows)
{
    ignis_dtype dtype = from.array->dtype;
    uint64_t size = (uint64_t)ignis__dtypes[dtype].size;
    ignis__address source = ignis__op_read(op, from.array) + (uint64_t)from.offset * size;
    ignis__address target = ignis__op_write(op, to.array) + (uint64_t)to.offset * size;
    void *params[] = {&target, &source, &to.row, &from.row, &length, &rows};
    ignis__op_launch_elementwise(op, IGNIS__BUILTIN(COPY_ROWS), dtype, length * rows, params);
}

typedef struct ignis__concat_params {
    int dim;
    int64_t row; /* elements of the result from one row to the next */
    ignis_shape shapes[IGNIS__OP_INPUTS];
} ignis__concat_params;

static ignis_status ignis__concat_backward(const ignis_backward_args *args)
{
    const ignis__concat_params *p = (const ignis__concat_params *)args->params;
    ignis__array *gradients[IGNIS__OP_INPUTS];
    ignis__op op;
    int64_t offset = 0, rows, length;
    int i;
    if (!ignis__op_begin_backward(&op, "ignis_concat", args))
        return ignis__failed();
    for (i = 0; i < args->input_count; i++) {
        rows = ignis__shape_product(&p->shapes[i], 0, p->dim);
        length = ignis__shape_product(&p->shapes[i], p->dim, p->shapes[i].ndim);
        gradients[i] = args->needed[i] ? ignis__op_new(&op, &p->shapes[i], op.in[0]->dtype) : NULL;
        if (gradients[i])
            ignis__op_copy_rows(&op, ignis__row_slices_of(gradients[i], 0, length),
                                ignis__row_slices_of(op.in[0], offset, p->row), length, rows);
        offset += length;
    }
    return ignis__op_finish_backward(&op, args, args->input_count, gradients);
}

/*  A slice of the gradient for each tensor. */
IGNIS__PRIVATE void ignis__vjp_of_concat(const ignis_vjp_args *args)
{
    const ignis__concat_params *p = (const ignis__concat_params *)args->params;
    int64_t offset = 0, rows = ignis__shape_product(&p->shapes[0], 0, p->dim), length;
    const ignis_tensor g = ignis_reshape(args->grad_output, IGNIS_SHAPE(rows, p->row));
    int i;
    for (i = 0; i < args->input_count; i++, offset += length) {
        length = ignis__shape_product(&p->shapes[i], p->dim, p->shapes[i].ndim);
        if (args->needed[i])
            args->grad_inputs[i] = ignis_slice(g, 1, offset, length);
    }
}

/*  Joins up to IGNIS__OP_INPUTS tensors. Tensors from `joined` on first get a dimension of 1 at dim, for a
    stack. first: the caller's number of the first tensor, for messages. */
static ignis_tensor ignis__concat_one_op(const char *call, const ignis_tensor *tensors, int count, int dim, int joined,
                                         int first)
{
    ignis__concat_params concat = IGNIS__ZERO;
    ignis__op op;
    ignis__array *out = NULL;
    ignis_shape shape;
    int64_t offset = 0, rows = 1, length;
    int i, k;
    if (!ignis__op_begin(&op, call, count, tensors))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    if (joined == 0 && shape.ndim == IGNIS_MAX_DIMS)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_RANK, "a stack of %s would have more than %d dimensions",
                       ignis__shape_write(&shape).text, IGNIS_MAX_DIMS);
    if (joined == 0 && dim >= -shape.ndim - 1 && dim <= shape.ndim)
        dim += dim < 0 ? shape.ndim + 1 : 0;
    else
        ignis__op_dim(&op, &dim, "dim");
    for (i = 0; op.ok && i < count; i++) {
        ignis_shape its = op.in[i]->shape;
        bool fits;
        if (i >= joined && (i == 0 || its.ndim == shape.ndim - 1)) {
            memmove(its.dim + dim + 1, its.dim + dim, sizeof its.dim[0] * (size_t)(its.ndim++ - dim));
            its.dim[dim] = 1;
        }
        if (i == 0)
            shape = its;
        fits = its.ndim == shape.ndim;
        for (k = 0; fits && k < shape.ndim; k++)
            fits = k == dim || its.dim[k] == shape.dim[k];
        if (i >= joined && i > 0)
            fits = fits && op.in[i]->shape.ndim < its.ndim;
        if (ignis__op_same_dtype(&op, i, "one of the tensors") && !fits && joined < count) {
            memmove(shape.dim + dim, shape.dim + dim + 1, sizeof shape.dim[0] * (size_t)(--shape.ndim - dim));
            ignis__op_fail(&op, IGNIS_DIAG_PARTS_SHAPE,
                           "tensor %d is %s, tensor 0 is %s; tensors of a stack have one shape", first + i,
                           ignis__shape_write(&op.in[i]->shape).text, ignis__shape_write(&shape).text);
        }
        if (op.ok && !fits)
            ignis__op_fail(&op, IGNIS_DIAG_PARTS_SHAPE,
                           "tensor %d is %s, tensor 0 is %s; they may differ in dimension %d only", first + i,
                           ignis__shape_write(&its).text, ignis__shape_write(&concat.shapes[0]).text, dim);
        concat.shapes[i] = its;
        if (op.ok && i > 0 && shape.dim[dim] > INT64_MAX - its.dim[dim])
            ignis__op_fail(&op, IGNIS_DIAG_SHAPE_OVERFLOW,
                           "dimension %d of the result is above 2^63 with tensor %d, which is %s", dim, first + i,
                           ignis__shape_write(&its).text);
        if (op.ok && i > 0)
            shape.dim[dim] += its.dim[dim];
    }
    out = ignis__op_new(&op, &shape, op.in[0]->dtype);
    if (out) {
        concat.dim = dim;
        concat.row = ignis__shape_product(&shape, dim, shape.ndim);
        rows = ignis__shape_product(&shape, 0, dim);
    }
    for (i = 0; op.ok && i < count; i++) {
        length = ignis__shape_product(&concat.shapes[i], dim, shape.ndim);
        ignis__op_copy_rows(&op, ignis__row_slices_of(out, offset, concat.row),
                            ignis__row_slices_of(op.in[i], 0, length), length, rows);
        offset += length;
    }
    return ignis__op_end_recorded(&op, out, "concat", ignis__concat_backward, &concat, sizeof concat);
}

static ignis_tensor ignis__concat(const char *call, const ignis_tensor *tensors, int count, int dim, bool stack)
{
    ignis_tensor few[IGNIS__OP_INPUTS], result;
    int used = 1, at;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "tensors", tensors))
        return ignis__no_tensor();
    if (count < 1) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 1", count);
        return ignis__no_tensor();
    }
    if (count <= IGNIS__OP_INPUTS)
        return ignis__concat_one_op(call, tensors, count, dim, stack ? 0 : count, 0);
    few[0] = ignis__concat_one_op(call, tensors, IGNIS__OP_INPUTS, dim, stack ? 0 : count, 0);
    for (at = IGNIS__OP_INPUTS; at < count && few[0].id; at += used - 1) {
        for (used = 1; used < IGNIS__OP_INPUTS && at + used - 1 < count; used++)
            few[used] = tensors[at + used - 1];
        result = ignis__concat_one_op(call, few, used, dim, stack ? 1 : count, at - 1);
        (void)ignis_tensor_release(few[0]);
        few[0] = result;
    }
    return few[0];
}

IGNIS_API ignis_tensor ignis_concat(const ignis_tensor *tensors, int count, int dim)
{
    return ignis__concat("ignis_concat", tensors, count, dim, false);
}

IGNIS_API ignis_tensor ignis_stack(const ignis_tensor *tensors, int count, int dim)
{
    return ignis__concat("ignis_stack", tensors, count, dim, true);
}
