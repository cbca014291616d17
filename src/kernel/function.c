/*  kernel/function.c - functions of modules

    Sets the shared memory a function may use, once, and finds out whether it can begin before earlier work ends
    (programmatic dependent launch).
    May use: module.c. Locks: none. */

#include "room.h"

/*  Returns a function of a module, with all shared memory of a block allowed: another thread could lower a launch's
    setting. A driver that loads lazily loads it now, because at the first launch it might wait for work on the
    device. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__function_get(const char *call, ignis__device *device, const ignis__module *unit,
                                                    const char *name, void **function)
{
    int fixed; /* bytes that it declares */
    if (IGNIS__CUDA_FAILED(call, device, cuModuleGetFunction, (function, unit->module, name)) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&fixed, IGNIS__CU_FUNC_SHARED, *function)) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncSetAttribute,
                           (*function, IGNIS__CU_FUNC_MAX_DYNAMIC_SHARED, device->info.shared_per_block - fixed)))
        return false;
    ignis__function_name(*function, name);
    return true;
}

/*  Checks whether a function can wait for earlier work: not if it was translated from PTX for older devices, which
    has no such instruction. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__function_waits(const char *call, ignis__device *device, void *function,
                                                      bool *waits)
{
    int version = 0;
    *waits = device->info.compute_major >= 9;
    if (*waits &&
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&version, IGNIS__CU_FUNC_PTX_VERSION, function)))
        return false;
    *waits = *waits && version >= 90;
    return true;
}
