/*  >>ops.one_hot - ignis_one_hot: rows of zeros with a 1 at each id

    A formula of ids; it has no gradient.
    Uses: map. */

#include "room.h"

IGNIS_API ignis_tensor ignis_one_hot(ignis_tensor ids, int64_t classes, ignis_dtype dtype)
{
    static const char call[] = "ignis_one_hot";
    ignis__op op;
    ignis__array *out = NULL;
    ignis__address indices, to;
    ignis_shape shape;
    int id_bytes;
    void *params[] = {&to, &indices, &id_bytes, &classes, NULL};
    if (!ignis__op_begin(&op, call, 1, &ids))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    op.ok = ignis__dtype_valid(call, dtype);
    if (op.ok && classes < 0)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "classes is %lld, below 0", (long long)classes);
    if (op.ok && shape.ndim == IGNIS_MAX_DIMS)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_RANK, "ids is %s; the result would have more than %d dimensions",
                       ignis__shape_write(&shape).text, IGNIS_MAX_DIMS);
    if (op.ok && ignis__op_is_index(&op, 0, "ids")) {
        shape.dim[shape.ndim++] = classes;
        out = ignis__op_new(&op, &shape, dtype);
    }
    if (out) {
        indices = ignis__op_read(&op, op.in[0]);
        to = ignis__op_write(&op, out);
        id_bytes = (int)ignis__dtypes[op.in[0]->dtype].size;
        params[4] = &out->numel;
        ignis__op_launch_elementwise(&op, IGNIS__BUILTIN(ONE_HOT), dtype, out->numel, params);
    }
    return ignis__op_end(&op, out, NULL);
}
