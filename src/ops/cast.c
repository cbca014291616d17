/*  >>ops.cast - ignis_cast: converts elements to another dtype

    The gradient is cast back.
    Uses: operation; the conversions of the room array. */

#include "room.h"

IGNIS__PRIVATE ignis__array *ignis__op_cast(ignis__op *op, ignis__array *from, ignis_dtype dtype)
{
    ignis__array *out = ignis__op_new(op, &from->shape, dtype);
    ignis__address source, target;
    void *params[] = {&target, &source, &from->numel};
    if (out && dtype == from->dtype) {
        ignis__op_copy(op, out, from);
        return out;
    }
    source = ignis__op_read(op, from);
    target = ignis__op_write(op, out);
    ignis__op_launch_elementwise(op, ignis__builtin_cast(dtype), from->dtype, from->numel, params);
    return out;
}

static ignis_status ignis__cast_backward(const ignis_backward_args *args)
{
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_cast", args))
        return ignis__failed();
    return ignis__op_finish_backward_one(&op, args, ignis__op_cast(&op, op.in[0], *(const ignis_dtype *)args->params));
}

IGNIS_API ignis_tensor ignis_cast(ignis_tensor tensor, ignis_dtype dtype)
{
    static const char call[] = "ignis_cast";
    ignis__op op;
    ignis_dtype before;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    before = op.in[0]->dtype;
    op.ok = ignis__dtype_valid(call, dtype);
    if (op.ok)
        out = ignis__op_cast(&op, op.in[0], dtype);
    return ignis__op_end_recorded(&op, out, "cast", ignis__cast_backward, &before, sizeof before);
}
