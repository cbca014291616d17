/*  kernel/occupancy.c - ignis_kernel_query, and ignis_kernel_occupancy: how many blocks run at once

    Asks the driver; the block size is searched in whole warps.
    May use: user_kernel.c. Locks: none. */

#include "room.h"

/*  A question about a kernel's code on the current device. */
typedef struct ignis__kernel_question {
    ignis__kernel *kernel;
    ignis__device *device;
    ignis__kernel_code *code;
    ignis__binding binding;
} ignis__kernel_question;

/*  Holds the kernel, enters the device, and finds the code. False, and reported, on failure. ignis__question_end
    follows in any case. */
IGNIS__COLD static bool ignis__question_begin(const char *call, ignis_kernel handle, const char *out_name,
                                              const void *out, ignis__kernel_question *question)
{
    question->kernel = ignis__kernel_hold(call, handle);
    question->device = NULL;
    if (!question->kernel || !ignis__check_not_null(call, out_name, out))
        return false;
    question->device = ignis__device_current_enter(call, &question->binding);
    question->code = question->device ? ignis__kernel_code_of(call, question->device, question->kernel) : NULL;
    return question->code != NULL;
}

IGNIS__COLD static ignis_status ignis__question_end(const char *call, ignis__kernel_question *question, bool ok)
{
    if (question->device)
        ignis__device_leave(&question->binding);
    if (question->kernel)
        ignis__kernel_drop(call, question->kernel);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_kernel_query(ignis_kernel handle, ignis_kernel_info *info)
{
    static const char call[] = "ignis_kernel_query";
    ignis__kernel_question q;
    bool ok = ignis__question_begin(call, handle, "info", info, &q) &&
              !IGNIS__CUDA_FAILED(call, q.device, cuFuncGetAttribute,
                                  (&info->registers, IGNIS__CU_FUNC_REGISTERS, q.code->function)) &&
              !IGNIS__CUDA_FAILED(call, q.device, cuFuncGetAttribute,
                                  (&info->local_bytes, IGNIS__CU_FUNC_LOCAL, q.code->function));
    if (ok) {
        info->entry = q.code->entry;
        info->parameters = q.code->params;
        info->shared_bytes = q.code->static_shared;
        info->max_threads = q.code->max_threads;
        info->from_cache = ignis__kernel_code_get(call, q.device, ignis__kernel_current(q.kernel))->module.from_cache;
    }
    return ignis__question_end(call, &q, ok);
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
    ignis__kernel_question q;
    bool ok = ignis__question_begin(call, handle, "out", out, &q) &&
              ignis__kernel_occupancy(call, q.device, q.code, block, shared_bytes, out);
    return ignis__question_end(call, &q, ok);
}
