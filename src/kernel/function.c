/*  A function of a module, allowed all shared memory of a block: another thread could lower what a launch asked for. A driver that loads lazily
    loads it now: at its first launch that might wait for what runs on the device. */
IGNIS__COLD static bool ignis__function_get(const char *call, ignis__device *device, const ignis__module *unit, const char *name,
                                            void **function)
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

/*  Whether a function can wait for what is ahead of it: not where it was made from PTX for older devices, which has no instruction for that. */
IGNIS__COLD static bool ignis__function_waits(const char *call, ignis__device *device, void *function, bool *waits)
{
    int version = 0;
    *waits = device->info.compute_major >= 9;
    if (*waits && IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&version, IGNIS__CU_FUNC_PTX_VERSION, function)))
        return false;
    *waits = *waits && version >= 90;
    return true;
}
