/*  kernel/launch.c - launches: arguments and limits checked, then queued

    All launches of Ignis and of the caller end in ignis__launch_as.
    May use: function.c, array/work.c, device/trace.c. Invariant: arrays of a launch are held until it is queued,
    and recycled in stream order.
    Locks: none. */

#include "room.h"

#define IGNIS__ARG_SCALAR(suffix, ctype, TYPE)          \
    IGNIS_API ignis_arg ignis_arg_##suffix(ctype value) \
    {                                                   \
        ignis_arg arg;                                  \
        arg.type = IGNIS_ARG_##TYPE;                    \
        arg.size = 0;                                   \
        arg.value.suffix = value;                       \
        return arg;                                     \
    }
IGNIS__ARG_SCALAR(array, ignis_array, ARRAY)
IGNIS__ARG_SCALAR(i32, int32_t, I32)
IGNIS__ARG_SCALAR(i64, int64_t, I64)
IGNIS__ARG_SCALAR(f32, float, F32)
IGNIS__ARG_SCALAR(f64, double, F64)
IGNIS__ARG_SCALAR(ptr, void *, PTR)

IGNIS_API ignis_arg ignis_arg_bytes(const void *bytes, size_t size)
{
    ignis_arg arg;
    arg.type = IGNIS_ARG_BYTES;
    arg.size = size;
    arg.value.bytes = bytes;
    return arg;
}

/*  The arguments of one launch as the driver takes them, and the arrays held until it is queued. */
typedef struct ignis__launch_args {
    void *params[IGNIS__MAX_PARAMS];
    ignis__address addresses[IGNIS__MAX_PARAMS];
    ignis__array *arrays[IGNIS__MAX_PARAMS];
    int array_count;
} ignis__launch_args;

static size_t ignis__arg_size(const ignis_arg *arg)
{
    switch (arg->type) {
    case IGNIS_ARG_I32:
    case IGNIS_ARG_F32: return 4;
    case IGNIS_ARG_BYTES: return arg->size;
    default: return 8;
    }
}

static bool ignis__arg_array(const ignis__work *work, ignis__launch_args *launch, int index, ignis_array handle)
{
    ignis__array *array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (!array) {
        ignis__fail_stale(work->call, &ignis__arrays, handle.id);
        return false;
    }
    launch->arrays[launch->array_count++] = array;
    if (array->storage->device != work->device)
        return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, work->call,
                                 "argument %d, %s, is on device %d, the kernel runs on device %d", index,
                                 ignis__array_label(array).text, ignis__device_ordinal(array->storage->device),
                                 ignis__device_ordinal(work->device));
    launch->params[index] = &launch->addresses[index];
    if (!ignis__work_address(work, array, &launch->addresses[index]))
        return false;
    ignis__storage_expose(array->storage);
    return true;
}

static bool ignis__args_gather(const ignis__work *work, const ignis__kernel_code *code, const ignis_arg *args,
                               int count, ignis__launch_args *launch)
{
    int i;
    launch->array_count = 0;
    if (count < 0 || count > IGNIS__MAX_PARAMS || (code->params >= 0 && count != code->params))
        return ignis__fail_false(IGNIS_DIAG_ARG_COUNT, work->call,
                                 "kernel %s has %d parameters, the call gives %d arguments", code->entry,
                                 code->params >= 0 ? code->params : IGNIS__MAX_PARAMS, count);
    for (i = 0; i < count; i++) {
        if (args[i].type < IGNIS_ARG_ARRAY || args[i].type > IGNIS_ARG_BYTES)
            return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, work->call,
                                     "argument %d has type %d; make it with an ignis_arg_ function", i,
                                     (int)args[i].type);
        if (code->params >= 0 && ignis__arg_size(&args[i]) != code->param_size[i])
            return ignis__fail_false(
                IGNIS_DIAG_ARG_SIZE, work->call, "argument %d of kernel %s is %llu bytes, its parameter %llu", i,
                code->entry, (unsigned long long)ignis__arg_size(&args[i]), (unsigned long long)code->param_size[i]);
        if (args[i].type == IGNIS_ARG_BYTES && !args[i].value.bytes)
            return ignis__fail_false(IGNIS_DIAG_NULL_ARGUMENT, work->call, "argument %d has no bytes", i);
        /* The driver only reads parameters; its prototype has no const. */
        if (args[i].type == IGNIS_ARG_BYTES)
            launch->params[i] = (void *)(uintptr_t)args[i].value.bytes;
        else if (args[i].type != IGNIS_ARG_ARRAY)
            launch->params[i] = (void *)(uintptr_t)&args[i].value;
        else if (!ignis__arg_array(work, launch, i, args[i].value.array))
            return false;
    }
    return true;
}

/*  Checks that all blocks of a launch can run at once, if the kernel is alone on the device. */
IGNIS__COLD static bool ignis__launch_check_together(const ignis__work *work, const ignis__kernel_code *code,
                                                     const ignis_launch *launch, const unsigned grid[3], int threads)
{
    int64_t wanted = (int64_t)grid[0] * grid[1] * grid[2], room;
    int blocks = 0;
    if (!ignis__cuda.cuLaunchKernelEx)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, work->call,
                                 "cooperative launches need a driver of CUDA 12.3 or newer");
    if (!ignis__kernel_resident(work->call, work->device, code, threads, launch->shared_bytes, &blocks))
        return false;
    room = (int64_t)blocks * work->device->info.multiprocessors;
    return wanted <= room || ignis__fail_false(IGNIS_DIAG_LAUNCH_SIZE, work->call,
                                               "a cooperative launch of %lld blocks of %d threads: kernel %s has room "
                                               "for %lld on device %d, %d on each of its "
                                               "%d multiprocessors (ignis_kernel_occupancy)",
                                               (long long)wanted, threads, code->entry, (long long)room,
                                               work->device->info.device, blocks, work->device->info.multiprocessors);
}

/*  Checks a launch against the limits of device and kernel; 0 becomes 1 where that is allowed. */
static bool ignis__launch_check(const ignis__work *work, const ignis__kernel_code *code, const ignis_launch *launch,
                                unsigned grid[3], unsigned block[3])
{
    static const int64_t grid_limit[3] = {INT32_MAX, 65535, 65535};
    static const int block_limit[3] = {1024, 1024, 64};
    int64_t threads = 1;
    int i;
    for (i = 0; i < 3; i++) {
        int64_t blocks = launch->grid[i] == 0 && i > 0 ? 1 : launch->grid[i];
        int size = launch->block[i] == 0 && i > 0 ? 1 : launch->block[i];
        if (blocks < 0 || blocks > grid_limit[i])
            return ignis__fail_false(IGNIS_DIAG_LAUNCH_SIZE, work->call, "grid[%d] is %lld, outside 0 to %lld", i,
                                     (long long)launch->grid[i], (long long)grid_limit[i]);
        if (size < 1 || size > block_limit[i])
            return ignis__fail_false(IGNIS_DIAG_LAUNCH_SIZE, work->call, "block[%d] is %d, outside 1 to %d", i,
                                     launch->block[i], block_limit[i]);
        grid[i] = (unsigned)blocks;
        block[i] = (unsigned)size;
        threads *= size;
    }
    return ignis__block_check(work->call, work->device, code, threads, launch->shared_bytes) &&
           (!launch->cooperative || ignis__launch_check_together(work, code, launch, grid, (int)threads));
}

/*  Launches a kernel. dependent: the kernel itself waits for earlier work on the stream, and may begin before it ends
    (programmatic dependent launch). together: the blocks wait for each other, so all run at once; the driver has
    cuLaunchKernelEx. */
IGNIS__PRIVATE bool ignis__launch_as(const ignis__work *work, void *function, const unsigned grid[3],
                                     const unsigned block[3], unsigned shared, void **params, bool dependent,
                                     bool together)
{
    ignis__trace_item item;
    unsigned count = 0;
    bool traced, ok;
    if ((int64_t)shared > work->device->info.shared_per_block)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, work->call,
                                 "the kernel needs %u bytes of shared memory in a block, device %d has %d", shared,
                                 work->device->info.device, work->device->info.shared_per_block);
    traced = ignis__profiling() &&
             ignis__trace_open(&item, IGNIS__TRACED_KERNEL, work->call, work->device, work->stream, function, NULL);
    dependent = dependent && ignis__cuda.cuLaunchKernelEx && work->device->info.compute_major >= 9;
    if (dependent || together) {
        ignis__launch_attribute attributes[2];
        ignis__launch_config config = IGNIS__ZERO;
        memset(attributes, 0, sizeof attributes);
        attributes[0].value.allowed = attributes[1].value.allowed = 1;
        if (dependent)
            attributes[count++].id = IGNIS__CU_LAUNCH_DEPENDENT;
        if (together)
            attributes[count++].id = IGNIS__CU_LAUNCH_COOPERATIVE;
        memcpy(config.grid, grid, sizeof config.grid);
        memcpy(config.block, block, sizeof config.block);
        config.shared_bytes = shared;
        config.stream = work->stream;
        config.attributes = attributes;
        config.attribute_count = count;
        ok = !IGNIS__CUDA_FAILED(work->call, work->device, cuLaunchKernelEx, (&config, function, params, NULL));
    } else {
        ok = !IGNIS__CUDA_FAILED(
            work->call, work->device, cuLaunchKernel,
            (function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, work->stream, params, NULL));
    }
    return traced ? ignis__trace_close(&item, ok) : ok;
}

static ignis_status ignis__kernel_launch(const char *call, ignis__kernel *kernel, const ignis_launch *launch,
                                         const ignis_arg *args, int count)
{
    ignis__launch_args gathered;
    ignis__kernel_code *code;
    ignis__work work;
    ignis__capture *capture;
    unsigned grid[3], block[3];
    bool ok;
    ignis__device *device = ignis__device_get(call, ignis__thread_state()->device);
    if (!device || !ignis__work_begin(call, device, &work))
        return ignis__failed();
    capture = ignis__capture_on(device);
    code = ignis__kernel_code_of(call, work.device, kernel);
    ok = code != NULL;
    if (ok) {
        ok = ignis__args_gather(&work, code, args, count, &gathered) &&
             ignis__launch_check(&work, code, launch, grid, block) &&
             (!capture || ignis__capture_hold(call, capture, kernel, &kernel->slot.state, ignis__kernel_drop_held)) &&
             (grid[0] == 0 || ignis__launch_as(&work, code->function, grid, block, (unsigned)launch->shared_bytes,
                                               gathered.params, launch->dependent && code->waits, launch->cooperative));
        ignis__array_drop_all(call, gathered.array_count, gathered.arrays);
    }
    ignis__work_end(&work);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_kernel_launch(ignis_kernel handle, const ignis_launch *launch, const ignis_arg *args,
                                           int arg_count)
{
    static const char call[] = "ignis_kernel_launch";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis_status status;
    if (!kernel)
        return ignis__failed();
    if (!launch)
        status = ignis__fail_null(call, "launch");
    else if (!args && arg_count > 0)
        status = ignis__fail_null(call, "args");
    else
        status = ignis__kernel_launch(call, kernel, launch, args, arg_count);
    ignis__kernel_drop(call, kernel);
    return status;
}
