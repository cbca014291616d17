// SPDX-License-Identifier: MIT
/*  launch.c - kernel launches: checks them and copies their arguments

    Sizes of blocks, grids and shared memory are checked against the device and the kernel's attributes before
    the launch is queued.
*/
#include "driver.h"

enum { LAUNCH_COOPERATIVE = 2, LAUNCH_PROGRAMMATIC = 6 }; /* of CUlaunchAttributeID */

static int check_launch(const sim_function *function, const sim_launch *launch)
{
    const unsigned *grid = launch->grid, *block = launch->block;
    unsigned long long threads = (unsigned long long)block[0] * block[1] * block[2];
    if (!grid[0] || !grid[1] || !grid[2] || !threads)
        return ERROR_INVALID_VALUE;
    if (grid[0] > 0x7FFFFFFF || grid[1] > 65535 || grid[2] > 65535)
        return ERROR_INVALID_VALUE;
    if (block[0] > 1024 || block[1] > 1024 || block[2] > 64 || threads > MAX_THREADS)
        return ERROR_INVALID_VALUE;
    if (threads > (unsigned)function->kernel->max_threads)
        return ERROR_INVALID_VALUE;
    return launch->dynamic_shared <= function->max_dynamic ? SUCCESS : ERROR_INVALID_VALUE;
}

/* Finds the packed buffer that `extra` describes: pairs of a tag and a value, ended by 0. */
static const char *packed_arguments(void **extra, size_t *bytes)
{
    const char *buffer = NULL;
    *bytes = 0;
    for (; extra && extra[0]; extra += 2) {
        if ((uintptr_t)extra[0] == 1)
            buffer = extra[1];
        else if ((uintptr_t)extra[0] == 2)
            *bytes = *(const size_t *)extra[1];
        else
            return NULL;
    }
    return buffer;
}

/* Copies the arguments, with a table of pointers to them in front: the caller's may change after the call. */
static int copy_arguments(const sim_kernel *kernel, void **params, void **extra, void **out)
{
    size_t count = (size_t)kernel->param_count, last = count ? count - 1 : 0;
    size_t bytes = count ? kernel->param_offsets[last] + kernel->param_sizes[last] : 0, given = 0;
    const char *packed = params ? NULL : packed_arguments(extra, &given);
    if (count && !params && (!packed || given < bytes))
        return ERROR_INVALID_VALUE;
    size_t front = round_up(count * sizeof(void *), 64); /* parameters may need this alignment */
    char *storage = aligned_alloc(64, round_up(front + bytes + 1, 64));
    if (!storage)
        return ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        char *to = ((char **)storage)[i] = storage + front + kernel->param_offsets[i];
        const void *from = params ? params[i] : packed + kernel->param_offsets[i];
        if (from)
            memcpy(to, from, kernel->param_sizes[i]);
        else
            return free(storage), ERROR_INVALID_VALUE;
    }
    *out = storage;
    return SUCCESS;
}

/* Checks that a launch whose blocks all run at the same time fits the device, and the simulator. */
static int check_together(const sim_function *function, const sim_launch *launch)
{
    unsigned long long blocks = (unsigned long long)launch->grid[0] * launch->grid[1] * launch->grid[2];
    size_t threads = (size_t)launch->block[0] * launch->block[1] * launch->block[2];
    unsigned long long room = (unsigned long long)blocks_at_once(function, threads, launch->dynamic_shared) * SM_COUNT;
    return blocks <= room && blocks <= SIM_MAX_TOGETHER ? SUCCESS : ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

static int launch_kernel(CUfunction handle, sim_launch launch, CUstream stream_handle, void **params, void **extra)
{
    sim_stream *stream;
    sim_function *function = handle_get(OBJECT_FUNCTION, handle);
    if (!function)
        return ERROR_INVALID_HANDLE;
    int code = stream_find(stream_handle, &stream);
    if (code)
        return code;
    if (stream->context != function->module->context)
        return ERROR_INVALID_HANDLE;
    if (params && extra)
        return ERROR_INVALID_VALUE;
    sim_work work = {.kind = WORK_KERNEL, .kernel = function->kernel, .launch = launch};
    work.launch.warp_size = 32;
    work.launch.device = stream->context->device;
    code = check_launch(function, &work.launch);
    if (!code && launch.together)
        code = check_together(function, &work.launch);
    if (!code)
        code = copy_arguments(function->kernel, params, extra, &work.storage);
    if (code)
        return code;
    work.module = function->module;
    work.module->references++;
    return submit(stream, work, NULL, NULL);
}

SIM_API CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                                CUstream stream, void **params, void **extra)
{
    BEGIN(cuLaunchKernel);
    sim_launch launch = {
        .grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z}, .dynamic_shared = shared};
    return leave(launch_kernel(function, launch, stream, params, extra));
}

/* Supports the attributes programmatic stream serialization and cooperative launch. With the first one a
   launch begins after the earlier ones as well; but a launch that never waits for them, which a real device
   requires, is an error. */
SIM_API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    BEGIN(cuLaunchKernelEx);
    REQUIRE(config && (!config->numAttrs || config->attrs), ERROR_INVALID_VALUE);
    sim_launch launch = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                         .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                         .dynamic_shared = config->sharedMemBytes};
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        REQUIRE((int)attribute->id == LAUNCH_PROGRAMMATIC || (int)attribute->id == LAUNCH_COOPERATIVE,
                ERROR_NOT_SUPPORTED);
        if ((int)attribute->id == LAUNCH_PROGRAMMATIC)
            launch.must_wait = attribute->value.programmaticStreamSerializationAllowed != 0;
        else
            launch.together = attribute->value.cooperative != 0;
    }
    return leave(launch_kernel(function, launch, config->hStream, params, extra));
}

SIM_API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                           unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                           unsigned int block_z, unsigned int shared, CUstream stream, void **params)
{
    BEGIN(cuLaunchCooperativeKernel);
    sim_launch launch = {.grid = {grid_x, grid_y, grid_z},
                         .block = {block_x, block_y, block_z},
                         .dynamic_shared = shared,
                         .together = 1};
    return leave(launch_kernel(function, launch, stream, params, NULL));
}
