/*  kernel/symbol.c - variables of programs: ignis_kernel_set_symbol and _get_symbol

    Copies in stream order, through a pinned chunk where the host memory is not pinned.
    May use: user_kernel.c, device/memory_pinned.c. Locks: none. */

#include "room.h"

/*  Copies data to a variable of a program, or the variable to out; the other pointer is NULL. */
IGNIS__COLD static bool ignis__symbol_copy(const ignis__work *work, ignis__kernel *program, const char *name,
                                           const void *data, void *out, int64_t size)
{
    ignis__kernel_code *code = ignis__kernel_code_get(work->call, work->device, program);
    ignis__address address = 0;
    size_t bytes = 0;
    int error = code && !ignis__global.dry_run
                    ? IGNIS__CUDA(cuModuleGetGlobal_v2, (&address, &bytes, code->module.module, name))
                    : 0;
    if (code && ignis__global.dry_run && out && size > 0) /* which knows no variables */
        memset(out, 0, (size_t)size);
    if (!code || ignis__global.dry_run)
        return code != NULL;
    if (error == IGNIS__CU_NOT_FOUND)
        ignis__fail(IGNIS_DIAG_SYMBOL_MISSING, work->call,
                    "the program of kernel %s has no __constant__ or __device__ variable '%s'", program->entry, name);
    else if (ignis__cuda_check(work->call, work->device, "cuModuleGetGlobal_v2", error) == IGNIS_OK &&
             (int64_t)bytes != size)
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, work->call, "'%s' has %lld bytes, the call says %lld", name,
                    (long long)bytes, (long long)size);
    else if (error == 0)
        return out ? ignis__copy_to_host(work, out, address, size) : ignis__copy_from_host(work, address, data, size);
    return false;
}

IGNIS__COLD static ignis_status ignis__kernel_symbol(const char *call, ignis_kernel handle, const char *name,
                                                     const void *data, void *out, int64_t size)
{
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis__device *device;
    ignis__work work;
    bool ok = false;
    if (!kernel)
        return ignis__failed();
    if (ignis__check_not_null(call, "name", name) && ignis__check_not_null(call, "data", data ? data : out) &&
        !ignis__capture_refuses(call) && (device = ignis__device_get(call, ignis__thread_state()->device)) != NULL &&
        ignis__work_begin(call, device, &work)) {
        ok = ignis__symbol_copy(&work, ignis__kernel_current(kernel), name, data, out, size);
        ignis__work_end(&work);
    }
    ignis__kernel_drop(call, kernel);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_kernel_set_symbol(ignis_kernel kernel, const char *name, const void *data, int64_t size)
{
    return ignis__kernel_symbol("ignis_kernel_set_symbol", kernel, name, data, NULL, size);
}

IGNIS_API ignis_status ignis_kernel_get_symbol(ignis_kernel kernel, const char *name, void *data, int64_t size)
{
    return ignis__kernel_symbol("ignis_kernel_get_symbol", kernel, name, NULL, data, size);
}
