// SPDX-License-Identifier: MIT
/*  module.c - modules, their functions and variables, and occupancy

    The executor loads the images. A driver may wait for a device while it loads a module, and so does this
    one.
*/
#include "driver.h"

/* Waits as a driver may do when it loads: for all that runs on the device. Loading between kernels of ranks
   that wait for each other may hang. */
void loading_waits(sim_context *context)
{
    if (sim.streams != STREAMS_LAZY)
        (void)context_finish(context);
}

static int module_load(CUmodule *out, const void *image)
{
    sim_module *loaded;
    sim_context *context = current();
    if (!out || !image)
        return ERROR_INVALID_VALUE;
    loading_waits(context);
    pthread_mutex_unlock(&sim.lock); /* loading takes long */
    int code = sim_module_load(image, &loaded);
    pthread_mutex_lock(&sim.lock);
    if (code)
        return code;
    sim_module_object *module = calloc(1, sizeof *module);
    if (module)
        module->handle = handle_new(OBJECT_MODULE, module, context);
    if (!module || !module->handle) {
        free(module);
        sim_module_unload(loaded);
        return ERROR_OUT_OF_MEMORY;
    }
    module->references = 1;
    module->module = loaded;
    module->context = context;
    *out = module->handle;
    return SUCCESS;
}

void module_delete(sim_module_object *module)
{
    while (module->functions) {
        sim_function *function = module->functions;
        module->functions = function->next;
        handle_drop(function->handle);
        free(function);
    }
    for (size_t i = sim.range_count; i-- > 0;)
        if (sim.ranges[i]->module == module)
            range_delete(sim.ranges[i]);
    handle_drop(module->handle);
    module->unloaded = 1;
    module_release(module);
}

SIM_API CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    BEGIN(cuModuleLoadData);
    return leave(module_load(out, image));
}

/* The options are for the PTX compiler, which is not needed here. */
SIM_API CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count, CUjit_option *options,
                                    void **values)
{
    BEGIN(cuModuleLoadDataEx);
    REQUIRE(!count || (options && values), ERROR_INVALID_VALUE);
    return leave(module_load(out, image));
}

SIM_API CUresult cuModuleUnload(CUmodule handle)
{
    BEGIN(cuModuleUnload);
    sim_module_object *module = handle_get(OBJECT_MODULE, handle);
    REQUIRE(module, ERROR_INVALID_HANDLE);
    int code = context_finish(module->context);
    module = handle_get(OBJECT_MODULE, handle);
    REQUIRE(module, ERROR_INVALID_HANDLE);
    module_delete(module);
    return leave(code);
}

SIM_API CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
    BEGIN(cuModuleGetFunction);
    sim_module_object *module = handle_get(OBJECT_MODULE, handle);
    REQUIRE(out && name, ERROR_INVALID_VALUE);
    REQUIRE(module, ERROR_INVALID_HANDLE);
    const sim_kernel *kernel = sim_module_kernel(module->module, name);
    REQUIRE(kernel, ERROR_NOT_FOUND);
    sim_function *function = module->functions;
    while (function && function->kernel != kernel)
        function = function->next;
    if (!function) {
        function = calloc(1, sizeof *function);
        REQUIRE(function, ERROR_OUT_OF_MEMORY);
        *function = (sim_function){.module = module, .kernel = kernel, .next = module->functions};
        function->max_dynamic = SHARED_DEFAULT > kernel->static_shared ? SHARED_DEFAULT - kernel->static_shared : 0;
        function->handle = handle_new(OBJECT_FUNCTION, function, module->context);
        if (!function->handle)
            return free(function), leave(ERROR_OUT_OF_MEMORY);
        module->functions = function;
    }
    *out = function->handle;
    return leave(SUCCESS);
}

SIM_API CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule handle, const char *name)
{
    void *pointer;
    size_t size;
    BEGIN(cuModuleGetGlobal_v2);
    sim_module_object *module = handle_get(OBJECT_MODULE, handle);
    REQUIRE(module, ERROR_INVALID_HANDLE);
    REQUIRE(name, ERROR_INVALID_VALUE);
    int code = sim_module_global(module->module, name, &pointer, &size);
    if (!code && size && !range_starting((uintptr_t)pointer, RANGE_VARIABLE)) { /* memory that copies may use */
        sim_range *range = range_new((uintptr_t)pointer, size, RANGE_VARIABLE, module->context);
        REQUIRE(range, ERROR_OUT_OF_MEMORY);
        range->module = module;
    }
    if (!code && address)
        *address = (CUdeviceptr)(uintptr_t)pointer;
    if (!code && bytes)
        *bytes = size;
    return leave(code);
}

/* Values of CUfunction_attribute. */
enum {
    FUNC_MAX_THREADS,
    FUNC_STATIC_SHARED,
    FUNC_CONST,
    FUNC_LOCAL,
    FUNC_REGISTERS,
    FUNC_PTX_VERSION,
    FUNC_BINARY_VERSION,
    FUNC_CACHE_MODE,
    FUNC_MAX_DYNAMIC,
    FUNC_CARVEOUT,
    FUNC_ATTRIBUTE_COUNT = 16
};

SIM_API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    BEGIN(cuFuncGetAttribute);
    sim_function *function = handle_get(OBJECT_FUNCTION, handle);
    REQUIRE(value && (int)attribute >= 0 && (int)attribute < FUNC_ATTRIBUTE_COUNT, ERROR_INVALID_VALUE);
    REQUIRE(function, ERROR_INVALID_HANDLE);
    switch ((int)attribute) {
    case FUNC_MAX_THREADS: *value = function->kernel->max_threads; break;
    case FUNC_STATIC_SHARED: *value = (int)function->kernel->static_shared; break;
    case FUNC_REGISTERS: *value = 32; break;
    case FUNC_PTX_VERSION:
    case FUNC_BINARY_VERSION: *value = sim.cc; break;
    case FUNC_MAX_DYNAMIC: *value = (int)function->max_dynamic; break;
    case FUNC_CARVEOUT: *value = -1; break;
    default: *value = 0; break;
    }
    return leave(SUCCESS);
}

SIM_API CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    BEGIN(cuFuncSetAttribute);
    sim_function *function = handle_get(OBJECT_FUNCTION, handle);
    REQUIRE(function, ERROR_INVALID_HANDLE);
    if ((int)attribute == FUNC_CARVEOUT)
        return leave(SUCCESS); /* a hint for a cache that is not simulated */
    REQUIRE((int)attribute == FUNC_MAX_DYNAMIC, ERROR_INVALID_VALUE);
    REQUIRE(value >= 0 && (size_t)value + function->kernel->static_shared <= SHARED_OPTIN, ERROR_INVALID_VALUE);
    function->max_dynamic = (size_t)value;
    return leave(SUCCESS);
}

SIM_API CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size)
{
    BEGIN(cuFuncGetParamInfo);
    sim_function *function = handle_get(OBJECT_FUNCTION, handle);
    REQUIRE(function, ERROR_INVALID_HANDLE);
    REQUIRE(offset && index < (size_t)function->kernel->param_count, ERROR_INVALID_VALUE);
    *offset = function->kernel->param_offsets[index];
    if (size)
        *size = function->kernel->param_sizes[index];
    return leave(SUCCESS);
}

int blocks_at_once(const sim_function *function, size_t threads, size_t dynamic)
{
    size_t by_threads = THREADS_PER_SM / round_up(threads, 32);
    size_t by_shared = SHARED_PER_SM / (function->kernel->static_shared + dynamic + SHARED_RESERVED);
    size_t fit = by_threads < by_shared ? by_threads : by_shared;
    if (threads > (size_t)function->kernel->max_threads || dynamic > function->max_dynamic)
        fit = 0;
    return (int)(fit < BLOCKS_PER_SM ? fit : BLOCKS_PER_SM);
}

static int occupancy(int *blocks, CUfunction handle, int block_size, size_t dynamic)
{
    sim_function *function = handle_get(OBJECT_FUNCTION, handle);
    if (!function)
        return ERROR_INVALID_HANDLE;
    if (!blocks || block_size <= 0)
        return ERROR_INVALID_VALUE;
    *blocks = blocks_at_once(function, (size_t)block_size, dynamic);
    return SUCCESS;
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
                                                             size_t dynamic)
{
    BEGIN(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    return leave(occupancy(blocks, function, block_size, dynamic));
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int block_size,
                                                                      size_t dynamic, unsigned int flags)
{
    BEGIN(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    REQUIRE(flags < 2, ERROR_INVALID_VALUE);
    return leave(occupancy(blocks, function, block_size, dynamic));
}
