/*  >>linalg.status - which matrix of a batch could not be factored

    Kernels write the number of the first failed pivot of each matrix, from 1 on, or 0. Either the caller gets these
    numbers as a tensor, or the call waits for them, and fails.
    Uses: the rooms tensor and ops. */

#include "room.h"

/*  Makes the array of the numbers for a batch of matrices of this shape: all 0. */
IGNIS__PRIVATE ignis__array *ignis__linalg_info(ignis__op *op, const ignis_shape *shape)
{
    ignis_shape leading = ignis__linalg_leading(shape);
    ignis__array *info = ignis__op_new(op, &leading, IGNIS_I32);
    ignis__op_zero(op, info);
    return info;
}

/*  Writes the index of a matrix in its batch: "[2, 0]". */
static void ignis__linalg_write_index(ignis__string_writer *text, const ignis_shape *leading, int64_t index)
{
    int64_t rest = leading->ndim ? ignis__shape_product(leading, 0, leading->ndim) : 1;
    int i;
    for (i = 0; i < leading->ndim; i++) {
        rest /= leading->dim[i];
        ignis__string_add(text, "%s%lld", i ? ", " : "[", (long long)(index / rest));
        index %= rest;
    }
    ignis__string_add(text, "]");
}

/*  Waits for the numbers, and reports the first matrix that failed. True if none did. */
static bool ignis__linalg_wait(const char *call, const char *what, ignis_tensor found)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, found);
    int64_t count = tensor ? ignis__tensor_numel(tensor) : 0, i = 0;
    int32_t *numbers = tensor ? (int32_t *)ignis__alloc_for(call, sizeof *numbers * (size_t)(count + 1)) : NULL;
    bool ok = numbers && ignis__tensor_read(call, tensor, numbers, IGNIS_I32, count) == IGNIS_OK;
    char index[256];
    ignis__string_writer text;
    while (ok && i < count && !numbers[i])
        i++;
    if (ok && i < count) {
        ignis__string_begin(&text, index, sizeof index);
        ignis__linalg_write_index(&text, &tensor->shape, i);
        ok = ignis__fail_false(IGNIS_DIAG_MATRIX_SINGULAR, call, "a%s %s (pivot %d)", count > 1 ? index : "", what,
                               (int)numbers[i]);
    }
    ignis__free(numbers);
    if (tensor)
        ignis__tensor_drop(call, tensor);
    return ok;
}

/*  Ends an operation whose matrices may fail: gives the numbers to the caller, or waits for them if info is NULL. what:
    "is singular". */
IGNIS__PRIVATE ignis_tensor ignis__linalg_end(const char *call, const char *what, ignis_tensor result,
                                              ignis_tensor found, ignis_tensor *info)
{
    bool ok = result.id && found.id;
    if (info)
        *info = ok ? found : ignis__no_tensor();
    if (ok && info)
        return result;
    ok = ok && ignis__linalg_wait(call, what, found);
    if (found.id)
        (void)ignis_tensor_release(found);
    if (!ok && result.id)
        (void)ignis_tensor_release(result);
    return ok ? result : ignis__no_tensor();
}

/*  Ends a running operation so: its result, recorded by the rule, and the numbers. */
IGNIS__PRIVATE ignis_tensor ignis__linalg_op_end(ignis__op *op, ignis__array *output, ignis__array *numbers,
                                                 const ignis_rule *rule, const char *what, ignis_tensor *info)
{
    const char *call = op->work.call;
    ignis_tensor result =
        ignis__op_result(op, output, op->count, op->tensors, op->tape_state, op->records ? rule : NULL);
    ignis_tensor found = ignis__op_result(op, numbers, 0, NULL, NULL, NULL);
    ignis__op_leave(op);
    return ignis__linalg_end(call, what, result, found, info);
}
