/*  >>ops.permute - ignis_permute: dimensions in another order

    A strided copy.
    Uses: strided_copy, transpose. */

#include "room.h"

/*  Checks that dimension i of `count` is one of the tensor's, and is not among the dims before it. */
IGNIS__PRIVATE bool ignis__op_dim_once(ignis__op *op, const int *dims, int i, int *dim, unsigned *seen)
{
    *dim = dims[i];
    if (!ignis__op_dim(op, dim, "a dimension"))
        return false;
    if (*seen >> *dim & 1)
        return ignis__op_fail(op, IGNIS_DIAG_DIM_RANGE, "dimension %d of %s is given twice", *dim,
                              ignis__shape_write(&op->in[0]->shape).text);
    *seen |= 1u << *dim;
    return true;
}

IGNIS_API ignis_tensor ignis_permute(ignis_tensor tensor, const int *dims, int count)
{
    ignis__strides strides, given;
    ignis_shape shape;
    ignis__op op;
    unsigned seen = 0;
    int i, dim;
    if (!ignis__strided_begin(&op, "ignis_permute", tensor, &strides))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    given = strides;
    if (!dims)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "dims is null");
    else if (count != shape.ndim)
        ignis__op_fail(&op, IGNIS_DIAG_COUNT_MISMATCH, "dims has %d dimensions, the tensor is %s", count,
                       ignis__shape_write(&shape).text);
    for (i = 0; op.ok && i < count && ignis__op_dim_once(&op, dims, i, &dim, &seen); i++) {
        shape.dim[i] = strides.size[i] = given.size[dim];
        strides.from[i] = given.from[dim];
    }
    return ignis__strided_end(&op, "permute", &shape, &strides, NULL);
}
