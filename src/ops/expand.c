/*  >>ops.expand - ignis_expand: a tensor repeated to a shape that it broadcasts to

    A strided copy with strides of 0; the gradient is a sum.
    Uses: strided_copy, sum. */

#include "room.h"

/*  Sets the strides of a shape that broadcasts to another one, as in NumPy: 0 where it repeats. -1 in `out`
    becomes the shape's own size. */
static bool ignis__expand_strides(ignis__op *op, const ignis_shape *shape, ignis_shape *out, ignis__strides *s)
{
    int64_t strides[IGNIS_MAX_DIMS];
    bool fits = out->ndim >= shape->ndim && out->ndim <= IGNIS_MAX_DIMS;
    int i, lacking = fits ? out->ndim - shape->ndim : 0;
    memset(s, 0, sizeof *s);
    if (out->ndim < 1 || out->ndim > IGNIS_MAX_DIMS)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_RANK, "shape has %d dimensions, not 1 to %d", out->ndim,
                              IGNIS_MAX_DIMS);
    s->rank = out->ndim;
    ignis__shape_strides(shape, strides);
    for (i = 0; fits && i < out->ndim; i++) {
        int64_t of_shape = i < lacking ? 1 : shape->dim[i - lacking];
        if (out->dim[i] == -1 && i >= lacking)
            out->dim[i] = of_shape;
        fits = out->dim[i] == of_shape || (of_shape == 1 && out->dim[i] >= 0);
        s->from[i] = out->dim[i] != of_shape || i < lacking ? 0 : strides[i - lacking];
        s->size[i] = out->dim[i];
    }
    if (!fits)
        return ignis__op_fail(op, IGNIS_DIAG_BROADCAST_SHAPE, "%s does not broadcast to %s",
                              ignis__shape_write(shape).text, ignis__shape_write(out).text);
    return true;
}

static ignis_status ignis__expand_backward(const ignis_backward_args *args)
{
    const ignis_shape *shapes = (const ignis_shape *)args->params; /* before and after */
    ignis__array *gradient, *from, *sorted = NULL;
    ignis__strides strides, moved;
    ignis__axis axis = {1, 1, 1};
    ignis_shape out = shapes[1];
    ignis__op op;
    int i, phase;
    if (!ignis__op_begin_backward(&op, "ignis_expand", args))
        return ignis__failed();
    from = op.in[0];
    gradient = ignis__op_new(&op, &shapes[0], from->dtype);
    if (gradient && !ignis__axis_of_broadcast(&out, &shapes[0], &axis) &&
        ignis__expand_strides(&op, &shapes[0], &out, &strides)) {
        /* the summed elements are in several places: a copy moves them to the front, so that there is one
           sum, rounded once */
        axis.outer = axis.n = axis.inner = 1;
        memset(&moved, 0, sizeof moved);
        for (phase = 0; phase < 2; phase++)
            for (i = 0; i < strides.rank; i++)
                if ((strides.from[i] == 0 && strides.size[i] != 1) == (phase == 0)) {
                    moved.size[moved.rank] = strides.size[i];
                    moved.from[moved.rank++] = ignis__shape_product(&out, i + 1, strides.rank);
                    *(phase ? &axis.inner : &axis.n) *= strides.size[i];
                }
        for (i = 0; i < moved.rank; i++)
            out.dim[i] = moved.size[i];
        ignis__shape_strides(&out, moved.to);
        from = sorted = ignis__op_new(&op, &out, gradient->dtype);
        ignis__op_strided(&op, sorted, op.in[0], &moved);
    }
    if (gradient)
        ignis__op_sum(&op, gradient, from, NULL, 1, &axis);
    return ignis__op_finish_backward(&op, args, 1, &gradient);
}

IGNIS_API ignis_tensor ignis_expand(ignis_tensor tensor, ignis_shape shape)
{
    ignis__strides s;
    ignis__op op;
    ignis__array *out = NULL;
    ignis_shape shapes[2];
    if (!ignis__op_begin(&op, "ignis_expand", 1, &tensor))
        return ignis__no_tensor();
    shapes[0] = op.in[0]->shape;
    if (ignis__expand_strides(&op, &shapes[0], &shape, &s)) {
        out = ignis__op_new(&op, &shape, op.in[0]->dtype);
        if (out)
            ignis__shape_strides(&shape, s.to);
        ignis__op_strided(&op, out, op.in[0], &s);
    }
    shapes[1] = shape;
    return ignis__op_end_recorded(&op, out, "expand", ignis__expand_backward, shapes, sizeof shapes);
}
