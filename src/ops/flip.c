/*  >>ops.flip - ignis_flip: reverses dimensions

    A strided copy with negative strides, which is its own gradient.
    Uses: strided_copy. */

#include "room.h"

IGNIS_API ignis_tensor ignis_flip(ignis_tensor tensor, const int *dims, int count)
{
    ignis__strides s;
    ignis_shape shape;
    ignis__op op;
    unsigned seen = 0;
    int i, dim;
    if (!ignis__strided_begin(&op, "ignis_flip", tensor, &s))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    if (!dims)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "dims is null");
    else if (count < 0)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "count is %d, below 0", count);
    for (i = 0; op.ok && i < count && ignis__op_dim_once(&op, dims, i, &dim, &seen); i++)
        if (s.size[dim] > 0)
            ignis__strides_step(&s, dim, s.size[dim] - 1, s.size[dim], -1);
    return ignis__strided_end(&op, "flip", &shape, &s, NULL);
}
