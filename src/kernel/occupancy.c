/*  kernel/occupancy.c - ignis_kernel_occupancy: how many blocks run at once

    Asks the driver; the block size is searched in whole warps.
    May use: user_kernel.c. Locks: none. */

#include "room.h"

IGNIS__COLD IGNIS_API ignis_status ignis_kernel_query(ignis_kernel handle, ignis_kernel_info *info)
{
    static const char call[] = "ignis_kernel_query";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis__kernel_code *code;
    ignis__device *device;
    ignis__binding binding;
    bool ok = false;
    if (!kernel)
        return ignis__failed();
    if (ignis__check_not_null(call, "info", info) && (device = ignis__device_current_enter(call, &binding)) != NULL) {
        code = ignis__kernel_code_of(call, device, kernel);
        ok = code &&
             !IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute,
                                 (&info->registers, IGNIS__CU_FUNC_REGISTERS, code->function)) &&
             !IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute,
                                 (&info->local_bytes, IGNIS__CU_FUNC_LOCAL, code->function));
        if (ok) {
            info->entry = code->entry;
            info->parameters = code->params;
            info->shared_bytes = code->static_shared;
            info->max_threads = code->max_threads;
            info->from_cache = ignis__kernel_code_get(call, device, ignis__kernel_current(kernel))->module.from_cache;
        }
        ignis__device_leave(&binding);
    }
    ignis__kernel_drop(call, kernel);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Checks that a block can have that many threads, and that much dynamic shared memory. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__block_check(const char *call, const ignis__device *device,
                                                     const ignis__kernel_code *code, int64_t threads,
                                                     int64_t shared_bytes)
{
    int64_t shared_limit = device->info.shared_per_block - code->static_shared;
    if (threads > code->max_threads)
        return ignis__fail_false(IGNIS_DIAG_LAUNCH_SIZE, call,
                                 "a block of %lld threads is more than the %d that kernel %s can have",
                                 (long long)threads, code->max_threads, code->entry);
    if (shared_bytes < 0 || shared_bytes > shared_limit)
        return ignis__fail_false(
            IGNIS_DIAG_LAUNCH_SIZE, call,
            "shared_bytes is %lld, outside 0 to the %lld that device %d leaves beside %d static bytes",
            (long long)shared_bytes, (long long)shared_limit, device->info.device, code->static_shared);
    return true;
}

/*  Returns how many blocks of a number of threads run at once on an SM. */
IGNIS__PRIVATE bool ignis__kernel_resident(const char *call, ignis__device *device, const ignis__kernel_code *code,
                                           int threads, int64_t shared_bytes, int *blocks)
{
    return !IGNIS__CUDA_FAILED(call, device, cuOccupancyMaxActiveBlocksPerMultiprocessor,
                               (blocks, code->function, threads, (size_t)shared_bytes));
}

IGNIS__COLD static bool ignis__kernel_occupancy(const char *call, ignis__device *device, const ignis__kernel_code *code,
                                                int block, int64_t shared_bytes, ignis_occupancy *out)
{
    int threads = block, warp = device->info.warp_size, blocks;
    if (block < 0)
        return ignis__fail_false(IGNIS_DIAG_LAUNCH_SIZE, call, "block is %d, below 0", block);
    if (!ignis__block_check(call, device, code, block, shared_bytes))
        return false;
    out->block = block;
    out->blocks = 0;
    if (block > 0 && !ignis__kernel_resident(call, device, code, block, shared_bytes, &out->blocks))
        return false;
    for (threads = code->max_threads / warp * warp; block == 0 && threads > 0; threads -= warp) {
        if (!ignis__kernel_resident(call, device, code, threads, shared_bytes, &blocks))
            return false;
        if (out->block == 0 || blocks * threads > out->blocks * out->block) {
            out->block = threads;
            out->blocks = blocks;
        }
    }
    out->grid = out->blocks * device->info.multiprocessors;
    return true;
}

IGNIS__COLD IGNIS_API ignis_status ignis_kernel_occupancy(ignis_kernel handle, int block, int64_t shared_bytes,
                                                          ignis_occupancy *out)
{
    static const char call[] = "ignis_kernel_occupancy";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis__kernel_code *code;
    ignis__device *device;
    ignis__binding binding;
    bool ok = false;
    if (!kernel)
        return ignis__failed();
    if (ignis__check_not_null(call, "out", out) && (device = ignis__device_current_enter(call, &binding)) != NULL) {
        code = ignis__kernel_code_of(call, device, kernel);
        ok = code && ignis__kernel_occupancy(call, device, code, block, shared_bytes, out);
        ignis__device_leave(&binding);
    }
    ignis__kernel_drop(call, kernel);
    return ok ? IGNIS_OK : ignis__failed();
}
