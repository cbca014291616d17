/*  >>ops.group_norm - ignis_group_norm: statistics of groups of channels of each image

    Checks the sizes; channel_norm runs it and its gradient.
    Uses: channel_norm. */

#include "room.h"

IGNIS_API ignis_tensor ignis_group_norm(ignis_tensor x, int groups, ignis_tensor w, ignis_tensor b, double eps)
{
    static const char call[] = "ignis_group_norm";
    ignis_tensor inputs[] = {x, w, b};
    const ignis_shape *shape;
    ignis__channel_norm norm = IGNIS__ZERO;
    ignis__op op;
    if (!ignis__op_begin(&op, call, 3, inputs))
        return ignis__no_tensor();
    shape = &op.in[0]->shape;
    norm.call = call;
    norm.sizes.outer = shape->dim[0];
    norm.sizes.channels = shape->dim[shape->ndim - 1];
    norm.sizes.groups = groups;
    norm.sizes.rows = shape->ndim > 1 ? ignis__shape_product(shape, 1, shape->ndim - 1) : 1;
    ignis__op_is_float(&op, 0, "x");
    if (op.ok && shape->ndim < 2)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s; [n, ..., channels] is needed",
                       ignis__shape_write(shape).text);
    else if (op.ok && groups < 1)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "groups is %d, below 1", groups);
    else if (op.ok && norm.sizes.channels % groups != 0)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s, whose channels are not a multiple of %d groups",
                       ignis__shape_write(shape).text, groups);
    return ignis__channel_norm_end(&op, "group_norm", &norm, 0, eps, NULL);
}
