/*  >>ops.scale - ignis_scale: every element times a factor

    Its gradient is a scale too.
    Uses: operation; kernels POINTWISE. */

#include "room.h"

/*  Makes factor times an array. */
IGNIS__PRIVATE ignis__array *ignis__op_scaled(ignis__op *op, ignis__array *from, double factor)
{
    ignis__array *out = ignis__op_new_like(op, from);
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, out);
    void *params[] = {&target, &source, &factor, &from->numel};
    ignis__op_launch_elementwise(op, IGNIS__BUILTIN(SCALE), from->dtype, from->numel, params);
    return out;
}

static ignis_status ignis__scale_backward(const ignis_backward_args *args)
{
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_scale", args))
        return ignis__failed();
    return ignis__op_finish_backward_one(&op, args, ignis__op_scaled(&op, op.in[0], *(const double *)args->params));
}

IGNIS_API ignis_tensor ignis_scale(ignis_tensor tensor, double factor)
{
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, "ignis_scale", 1, &tensor))
        return ignis__no_tensor();
    if (ignis__op_is_float(&op, 0, "the tensor"))
        out = ignis__op_scaled(&op, op.in[0], factor);
    return ignis__op_end_recorded(&op, out, "scale", ignis__scale_backward, &factor, sizeof factor);
}
