/*  >>ops.pad - ignis_pad: a value around a tensor

    A strided copy into the middle of a filled result.
    Uses: strided_copy. */

#include "room.h"

IGNIS_API ignis_tensor ignis_pad(ignis_tensor tensor, const int64_t *before, const int64_t *after, int count,
                                 double value)
{
    ignis__strides s;
    ignis_shape shape;
    ignis__op op;
    int64_t strides[IGNIS_MAX_DIMS];
    int i;
    if (!ignis__strided_begin(&op, "ignis_pad", tensor, &s))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    if (count != shape.ndim)
        ignis__op_fail(&op, IGNIS_DIAG_COUNT_MISMATCH, "count is %d, the tensor is %s", count,
                       ignis__shape_write(&shape).text);
    for (i = 0; op.ok && i < count; i++) {
        int64_t low = before ? before[i] : 0, high = after ? after[i] : 0;
        if (low < 0 || high < 0)
            ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER,
                           "dimension %d is padded by %lld and %lld; ignis_slice makes it shorter", i, (long long)low,
                           (long long)high);
        else if (low > INT64_MAX - shape.dim[i] || high > INT64_MAX - shape.dim[i] - low)
            ignis__op_fail(&op, IGNIS_DIAG_SHAPE_OVERFLOW,
                           "dimension %d of %s, padded by %lld and %lld, is more than 63 bits can count", i,
                           ignis__shape_write(&op.in[0]->shape).text, (long long)low, (long long)high);
        else
            shape.dim[i] += low + high;
    }
    op.ok = op.ok && ignis__shape_check(op.work.call, &shape, op.in[0]->dtype, &strides[0]);
    if (op.ok)
        ignis__shape_strides(&shape, strides);
    for (i = 0; op.ok && before && i < count; i++)
        s.to_offset += before[i] * strides[i];
    return ignis__strided_end(&op, "pad", &shape, &s, &value);
}
