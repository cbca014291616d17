/*  >>ops.einsum - ignis_einsum and ignis_tensordot: checks, then products of terms

    Inputs are checked in an operation of their own, so messages name the call. The operations after it are
    recorded as any others.
    Uses: equation, contract. */

#include "room.h"

/*  Begins the checks. False, and reported, on failure. */
static bool ignis__einsum_begin(ignis__einsum *e, ignis__op *op, const char *call, const ignis_tensor *operands,
                                int count)
{
    int i;
    memset(e, 0, sizeof *e);
    if (!ignis__op_begin(op, call, count, operands))
        return false;
    e->op = op;
    e->count = count;
    for (i = 0; i < IGNIS__LABELS; i++)
        e->size[i] = -1;
    ignis__op_is_float(op, 0, "operand 0");
    for (i = 0; i < count; i++) {
        e->terms[i].tensor = operands[i];
        if (op->in[i]->dtype != op->in[0]->dtype)
            ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "operand %d is %s, operand 0 is %s", i,
                           ignis__dtypes[op->in[i]->dtype].name, ignis__dtypes[op->in[0]->dtype].name);
    }
    return true;
}

/*  Ends the checks, and computes the result. */
static ignis_tensor ignis__einsum_end(ignis__einsum *e)
{
    return ignis__op_leave(e->op) == IGNIS_OK ? ignis__einsum_run(e) : ignis__no_tensor();
}

IGNIS_API ignis_tensor ignis_einsum(const char *equation, const ignis_tensor *operands, int count)
{
    static const char call[] = "ignis_einsum";
    ignis__einsum e;
    ignis__op op;
    if (!equation || !operands) {
        ignis__fail_null(call, equation ? "operands" : "equation");
        return ignis__no_tensor();
    }
    if (count < 1 || count > IGNIS_MAX_OPERANDS) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d; expected 1 to %d", count, IGNIS_MAX_OPERANDS);
        return ignis__no_tensor();
    }
    if (!ignis__einsum_begin(&e, &op, call, operands, count))
        return ignis__no_tensor();
    e.equation = equation;
    if (op.ok)
        ignis__equation_read(&e);
    return ignis__einsum_end(&e);
}

/*  Checks a pair of dimensions that are summed. */
static bool ignis__tensordot_pair(ignis__op *op, const int *dims[2], int pair, int *at, uint64_t *seen)
{
    int i;
    for (i = 0; i < 2; i++) {
        const int dim = dims[i][pair], ndim = op->in[i]->shape.ndim;
        if (dim < -ndim || dim >= ndim)
            return ignis__op_fail(op, IGNIS_DIAG_DIM_RANGE, "dims_%c[%d] is %d; expected -%d to %d, as %c is %s",
                                  "ab"[i], pair, dim, ndim, ndim - 1, "ab"[i],
                                  ignis__shape_write(&op->in[i]->shape).text);
        at[i] = dim < 0 ? dim + ndim : dim;
        if (seen[i] >> at[i] & 1)
            return ignis__op_fail(op, IGNIS_DIAG_DIM_RANGE, "dims_%c[%d] is %d, which is given twice", "ab"[i], pair,
                                  dim);
        seen[i] |= (uint64_t)1 << at[i];
    }
    if (op->in[0]->shape.dim[at[0]] != op->in[1]->shape.dim[at[1]])
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "dimension %d of a, %s, and %d of b, %s, differ", at[0],
                              ignis__shape_write(&op->in[0]->shape).text, at[1],
                              ignis__shape_write(&op->in[1]->shape).text);
    return true;
}

IGNIS_API ignis_tensor ignis_tensordot(ignis_tensor a, ignis_tensor b, const int *dims_a, const int *dims_b, int count)
{
    static const char call[] = "ignis_tensordot";
    ignis_tensor operands[2];
    const int *dims[2];
    uint64_t seen[2] = {0, 0};
    ignis__einsum e;
    ignis__op op;
    int i, k, at[2], label = 0;
    operands[0] = a;
    operands[1] = b;
    dims[0] = dims_a;
    dims[1] = dims_b;
    if (!ignis__einsum_begin(&e, &op, call, operands, 2))
        return ignis__no_tensor();
    if (count < 0 || count > IGNIS_MAX_DIMS)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "count is %d; expected 0 to %d", count, IGNIS_MAX_DIMS);
    else if (count && (!dims_a || !dims_b))
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "%s is null", dims_a ? "dims_b" : "dims_a");
    for (i = 0; op.ok && i < count; i++)
        if (ignis__tensordot_pair(&op, dims, i, at, seen)) {
            e.terms[0].label[at[0]] = e.terms[1].label[at[1]] = (uint8_t)label;
            e.size[label++] = op.in[0]->shape.dim[at[0]];
        }
    for (k = 0; op.ok && k < 2; k++) {
        const ignis_shape *shape = &op.in[k]->shape;
        e.terms[k].count = shape->ndim;
        for (i = 0; op.ok && i < shape->ndim; i++) {
            e.terms[k].size[i] = shape->dim[i];
            if (seen[k] >> i & 1)
                continue;
            if (e.result.count == IGNIS_MAX_DIMS) {
                ignis__op_fail(&op, IGNIS_DIAG_SHAPE_RANK,
                               "a is %s, b is %s; the result would have more than %d dimensions",
                               ignis__shape_write(&op.in[0]->shape).text, ignis__shape_write(&op.in[1]->shape).text,
                               IGNIS_MAX_DIMS);
                continue;
            }
            e.size[label] = shape->dim[i];
            e.terms[k].label[i] = e.result.label[e.result.count++] = (uint8_t)label++;
        }
    }
    return ignis__einsum_end(&e);
}
