/*  >>ops.check - checks that many operations share: dtypes, shapes, dimensions, eps

    Each reports the operation's first failure and returns whether the operation is still ok.
    Uses: operation. Messages name the argument as the public function does. */

#include "room.h"

IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__op_same_dtype(ignis__op *op, int input, const char *name)
{
    if (op->in[input]->dtype != op->in[0]->dtype)
        ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "%s is %s, the first input is %s; ignis_cast converts", name,
                       ignis__dtypes[op->in[input]->dtype].name, ignis__dtypes[op->in[0]->dtype].name);
    return op->ok;
}

/*  Checks that input i, from 1 on, is a weight of the first input: of its dtype, or of f32 beside 16 bits; all weights
    have the dtype of input 1. */
IGNIS__PRIVATE bool ignis__op_is_weight(ignis__op *op, int input, const char *name)
{
    const ignis_dtype dtype = op->in[input]->dtype, first = op->in[0]->dtype;
    if (dtype != first && (dtype != IGNIS_F32 || ignis__dtypes[first].size != 2))
        return ignis__op_same_dtype(op, input, name);
    if (input > 1 && op->ok && dtype != op->in[1]->dtype)
        ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "%s is %s, the weight before it is %s", name,
                       ignis__dtypes[dtype].name, ignis__dtypes[op->in[1]->dtype].name);
    return op->ok;
}

IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__op_is_float(ignis__op *op, int input, const char *name)
{
    if (!ignis__dtype_is_float(op->in[input]->dtype))
        ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "%s is %s; f16, bf16, f32 or f64 is needed: ignis_cast converts",
                       name, ignis__dtypes[op->in[input]->dtype].name);
    return op->ok;
}

IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__op_is_index(ignis__op *op, int input, const char *name)
{
    ignis_dtype dtype = op->in[input]->dtype;
    if (dtype != IGNIS_I32 && dtype != IGNIS_I64)
        ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "%s is %s; i32 or i64 is needed: ignis_cast converts", name,
                       ignis__dtypes[dtype].name);
    return op->ok;
}

IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__op_same_shape(ignis__op *op, int input, const char *name)
{
    const ignis_shape *a = &op->in[0]->shape, *b = &op->in[input]->shape;
    if (!ignis__shape_same(a, b))
        ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "%s is %s, the first input is %s", name,
                       ignis__shape_write(b).text, ignis__shape_write(a).text);
    return op->ok;
}

/*  Checks that an input is a row of n elements, one for each element of the first input's last dimension. */
IGNIS__PRIVATE bool ignis__op_is_row(ignis__op *op, int input, const char *name, int64_t n)
{
    const ignis_shape *shape = &op->in[input]->shape;
    if (shape->ndim != 1 || shape->dim[0] != n)
        ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "%s is %s; x is %s, and needs [%lld]", name,
                       ignis__shape_write(shape).text, ignis__shape_write(&op->in[0]->shape).text, (long long)n);
    return op->ok;
}

/*  Checks the eps that is added to a variance; 0 becomes 1e-5. As f32 it is a normal number: otherwise rows
    of zeros would be divided by 0. */
IGNIS__PRIVATE bool ignis__op_eps(ignis__op *op, double *eps)
{
    static const double smallest = 1.1754943508222875e-38; /* 2^-126 */
    if (!ignis__is_finite(*eps) || *eps < 0)
        ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "eps is %g, not 0 or more", *eps);
    if (*eps == 0)
        *eps = 1e-5;
    else if (op->ok && *eps < smallest && op->in[0]->dtype != IGNIS_F64)
        *eps = smallest;
    return op->ok;
}

/*  Checks that an array that a desc names is on the operation's device. */
IGNIS__PRIVATE bool ignis__op_same_device(ignis__op *op, const ignis__array *array, const char *name)
{
    if (array->storage->device != op->work.device)
        ignis__op_fail(op, IGNIS_DIAG_DEVICE_DIFFERS, "desc->%s is on device %d, x is on device %d", name,
                       ignis__device_ordinal(array->storage->device), ignis__device_ordinal(op->work.device));
    return op->ok;
}

/*  Checks the number of a dimension; a negative one counts from the last dimension. */
IGNIS__PRIVATE bool ignis__op_dim(ignis__op *op, int *dim, const char *name)
{
    int ndim = op->in[0]->shape.ndim;
    if (*dim < -ndim || *dim >= ndim)
        return ignis__op_fail(op, IGNIS_DIAG_DIM_RANGE, "%s is %d, outside -%d to %d of %s", name, *dim, ndim, ndim - 1,
                              ignis__shape_write(&op->in[0]->shape).text);
    if (*dim < 0)
        *dim += ndim;
    return op->ok;
}

/*  Returns the dtype of sums and statistics. */
IGNIS__PRIVATE ignis_dtype ignis__wide_dtype(ignis_dtype dtype) { return dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32; }

/*  Returns the dtype of an array of ignis_wide, which kernels sum in. */
IGNIS__PRIVATE ignis_dtype ignis__sum_dtype(ignis_dtype dtype)
{
    return ignis__dtype_is_int(dtype) ? IGNIS_I64 : ignis__wide_dtype(dtype);
}

/*  Returns how many elements 16 bytes hold, which a thread reads at a time. */
IGNIS__PRIVATE int64_t ignis__pack_elements(ignis_dtype dtype) { return 16 / ignis__dtypes[dtype].size; }
