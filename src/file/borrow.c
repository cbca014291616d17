/*  file/borrow.c - arrays borrowed by a call: IGNIS_OWNER_WNAIS owns them until it ends

    Saving and loading acquire every array first, so that no other layer changes it meanwhile.
    May use: array/contract.c, >>tensor. Locks: those of the arrays, one at a time. */

#include "room.h"

/*  Borrows every array for a call; an array may come twice. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__borrow_acquire(const char *call, ignis__borrowed_tensor *lent, int count)
{
    int i;
    for (i = 0; i < count; i++)
        if (!ignis__contract_borrow(call, lent[i].array, IGNIS_OWNER_WNAIS, lent))
            return false;
    return true;
}

/*  Returns every array to its owner; tensors that the call has made are released unless it has succeeded. */
IGNIS__COLD IGNIS__PRIVATE void ignis__borrow_release(const char *call, ignis__borrowed_tensor *lent, int count,
                                                      bool succeeded)
{
    int i;
    for (i = 0; i < count; i++) {
        if (lent[i].array) {
            ignis__contract_return(lent[i].array, lent);
            ignis__array_drop(call, lent[i].array);
        }
        if (lent[i].made.id && !succeeded)
            ignis__tensor_discard(call, lent[i].made);
    }
}

/*  Holds and returns the array of a tensor. NULL, and reported, if there is none. */
IGNIS__PRIVATE ignis__array *ignis__borrow_array(const char *call, ignis_tensor handle)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis__array *array;
    if (!tensor)
        return NULL;
    array = ignis__tensor_array(call, tensor);
    ignis__tensor_drop(call, tensor);
    return array;
}

/*  Checks the arguments that saving and loading have in common. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__check_named_tensors(const char *call, const char *path, const char *const *names,
                                                           const ignis_tensor *tensors, int count)
{
    int i;
    if (!ignis__enter(call) || ignis__capture_refuses(call))
        return false;
    if (count < 0)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    if (!ignis__check_not_null(call, "path", path) || (count > 0 && (!ignis__check_not_null(call, "names", names) ||
                                                                     !ignis__check_not_null(call, "tensors", tensors))))
        return false;
    for (i = 0; i < count; i++)
        if (!names[i])
            return ignis__fail_false(IGNIS_DIAG_NULL_ARGUMENT, call, "names[%d] of %d is null", i, count);
    return true;
}
