/*  array/pin.c - pinned host memory of an array; transfer of ownership

    For staging by other layers. Pinned memory belongs to Ignis, whichever layer owns the array.
    May use: array.c, device/memory_pinned.c. Locks: array->slot.lock. */

#include "room.h"

/*  Sets the pinned memory of an array; NULL: checks whether it may have some. */
IGNIS__COLD static bool ignis__array_set_pinned(const char *call, ignis__array *array, void *memory)
{
    bool ok;
    if (!ignis__array_lock(call, array))
        return false;
    ok = !array->pinned || ignis__fail_false(IGNIS_DIAG_PIN_TWICE, call, "%s has pinned host memory already",
                                             ignis__array_label(array).text);
    if (ok)
        array->pinned = memory;
    ignis__array_unlock(array);
    return ok;
}

IGNIS__COLD IGNIS_API void *ignis_array_pin(ignis_array handle)
{
    static const char call[] = "ignis_array_pin";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__device *device;
    ignis__binding binding;
    void *pinned = NULL;
    if (!array)
        return NULL;
    device = array->storage->device;
    if (ignis__array_set_pinned(call, array, NULL) && array->numel > 0 && ignis__device_enter(call, device, &binding)) {
        pinned = ignis__pinned_take(call, device,
                                    ignis__array_bytes(array)); /* which may wait for the device: without the lock */
        if (pinned && !ignis__array_set_pinned(call, array, pinned)) {
            (void)ignis__pinned_recycle(call, device, pinned, ignis__array_bytes(array));
            pinned = NULL;
        }
        ignis__device_leave(&binding);
    }
    ignis__array_drop(call, array);
    return pinned;
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_unpin(ignis_array handle)
{
    static const char call[] = "ignis_array_unpin";
    ignis__array *array = ignis__array_enter(call, handle);
    void *pinned = NULL;
    bool ok = false;
    if (!array)
        return ignis__failed();
    if (ignis__capture_refuses(call))
        return ignis__array_leave(call, array, false);
    if (array->owner != IGNIS_OWNER_IGNIS) {
        ignis__fail(
            IGNIS_DIAG_FREE_BY_OTHER, call,
            "%s is owned by %s, which may be using its pinned host memory; that is freed when ignis owns the array",
            ignis__array_label(array).text, ignis__owner_name(array->owner));
    } else if (!array->pinned && array->numel > 0) {
        ignis__fail(IGNIS_DIAG_PIN_MISSING, call, "%s has no pinned host memory", ignis__array_label(array).text);
    } else {
        ok = true;
        pinned = array->pinned;
        array->pinned = NULL;
    }
    ignis__array_unlock(array);
    if (pinned)
        ok = ignis__pinned_recycle(call, array->storage->device, pinned, ignis__array_bytes(array)) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

IGNIS_API int ignis_array_increment_ref(ignis_array handle)
{
    static const char call[] = "ignis_array_increment_ref";
    ignis__array *array = ignis__array_enter(call, handle);
    int count = -1;
    if (!array)
        return -1;
    if (array->ref_count == INT_MAX)
        ignis__fail(IGNIS_DIAG_REF_COUNT_OVERFLOW, call, "%s has %d references, and no room for another",
                    ignis__array_label(array).text, array->ref_count);
    else
        count = ++array->ref_count;
    ignis__array_leave(call, array, true);
    return count;
}

IGNIS_API int ignis_array_decrement_ref(ignis_array handle)
{
    static const char call[] = "ignis_array_decrement_ref";
    ignis__array *array = ignis__array_enter(call, handle);
    int count = -1;
    if (!array)
        return -1;
    if (array->ref_count == 0)
        ignis__fail(IGNIS_DIAG_REF_COUNT_ZERO, call, "%s, owned by %s, has a ref_count of 0 already",
                    ignis__array_label(array).text, ignis__owner_name(array->owner));
    else
        count = ignis__array_unref(array);
    ignis__array_leave(call, array, true);
    return count;
}

/*  Moves the ownership of a locked array. */
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__array_transfer(const char *call, ignis__array *array, ignis_owner owner)
{
    if (array->exports > 0)
        return ignis__fail_exported(call, array, "given to another owner");
    if (array->ref_count > 1)
        return ignis__fail(IGNIS_DIAG_TRANSFER_REFERENCED, call,
                           "%s cannot move from owner %s to %s while its ref_count is %d, above 1",
                           ignis__array_label(array).text, ignis__owner_name(array->owner), ignis__owner_name(owner),
                           array->ref_count);
    array->owner = owner;
    array->borrower = NULL;
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_array_transfer_ownership(ignis_array handle, ignis_owner owner)
{
    static const char call[] = "ignis_array_transfer_ownership";
    ignis__array *array = ignis__array_enter_reaped(call, handle, true);
    if (!array)
        return ignis__failed();
    return ignis__array_leave(call, array,
                              ignis__owner_valid(call, owner) && ignis__array_transfer(call, array, owner) == IGNIS_OK);
}
