/*  >>ops.reshape - ignis_reshape: the smallest operation, and the pattern for others

    A view of the input; the gradient passes through.
    Uses: operation. */

#include "room.h"

static ignis_status ignis__reshape_backward(const ignis_backward_args *args)
{
    args->grad_inputs[0] =
        args->grad_output; /* the same elements in the same order; the tape gives leaves their own shape */
    return IGNIS_OK;
}

IGNIS_API ignis_tensor ignis_reshape(ignis_tensor tensor, ignis_shape shape)
{
    static const char call[] = "ignis_reshape";
    ignis__op op;
    ignis__array *view;
    int64_t numel = 0;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    op.ok =
        ignis__shape_infer(call, &shape, op.in[0]->numel) && ignis__shape_check(call, &shape, op.in[0]->dtype, &numel);
    if (op.ok && numel != op.in[0]->numel)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "%s cannot become %s: %lld elements are not %lld",
                       ignis__shape_write(&op.in[0]->shape).text, ignis__shape_write(&shape).text,
                       (long long)op.in[0]->numel, (long long)numel);
    view = ignis__op_view(&op, op.in[0], &shape, numel, 0);
    return ignis__op_end_recorded(&op, view, "reshape", ignis__reshape_backward, NULL, 0);
}
