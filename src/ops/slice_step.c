/*  >>ops.slice_step - ignis_slice_step: every step-th element of a dimension

    A strided copy; the gradient puts elements back.
    Uses: strided_copy. */

#include "room.h"

/*  Selects every step-th element of the dimension from `start` on, which has to be inside. */
IGNIS__PRIVATE void ignis__strides_step(ignis__strides *s, int dim, int64_t start, int64_t len, int64_t step)
{
    s->from_offset += start * s->from[dim];
    s->from[dim] *= len > 1 ? step : 1;
    s->size[dim] = len;
}

IGNIS_API ignis_tensor ignis_slice_step(ignis_tensor tensor, int dim, int64_t start, int64_t len, int64_t step)
{
    ignis__strides strides;
    ignis_shape shape;
    ignis__op op;
    int64_t room; /* elements from start on */
    if (!ignis__strided_begin(&op, "ignis_slice_step", tensor, &strides))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    if (step == 0)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "step is 0");
    if (ignis__op_dim(&op, &dim, "dim")) {
        room = start < 0 || start >= shape.dim[dim]
                   ? 0
                   : 1 + (step > 0 ? (shape.dim[dim] - 1 - start) / step : -(start / step));
        if (start < 0 || start > shape.dim[dim] || len < 0 || len > room)
            ignis__op_fail(&op, IGNIS_DIAG_SLICE_RANGE,
                           "%lld elements from %lld on in steps of %lld are outside dim %d of shape %s", (long long)len,
                           (long long)start, (long long)step, dim, ignis__shape_write(&shape).text);
    }
    if (op.ok) {
        shape.dim[dim] = len;
        ignis__strides_step(&strides, dim, len ? start : 0, len, step);
    }
    return ignis__strided_end(&op, "slice_step", &shape, &strides, NULL);
}
