// SPDX-License-Identifier: MIT
/*  memory.c - device memory and pinned memory, and queries about pointers

    Blocks come from range.c. Freeing one waits for the work that may use it, as the real driver does.
*/
#include "driver.h"

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    BEGIN(cuMemAlloc_v2);
    sim_context *context = current();
    REQUIRE(out && bytes, ERROR_INVALID_VALUE);
    REQUIRE(bytes <= sim.memory && charged(bytes) <= memory_left(context), ERROR_OUT_OF_MEMORY);
    context->used += charged(bytes);
    sim_range *range = block_new(&context->arena, bytes, RANGE_DEVICE, context);
    if (range)
        *out = range->start;
    else
        context->used -= charged(bytes);
    return leave(range ? SUCCESS : ERROR_OUT_OF_MEMORY);
}

/* Waits for the device first: queued work may use the block. */
SIM_API CUresult cuMemFree_v2(CUdeviceptr address)
{
    BEGIN(cuMemFree_v2);
    REQUIRE(address, SUCCESS);
    sim_range_kind kind = range_starting(address, RANGE_EXTERNAL) ? RANGE_EXTERNAL : RANGE_DEVICE;
    sim_range *range = range_starting(address, kind);
    REQUIRE(range, ERROR_INVALID_VALUE);
    int code = context_finish(range->context);
    REQUIRE(!code, code);
    range = range_starting(address, kind); /* another thread may have freed it */
    REQUIRE(range, ERROR_INVALID_VALUE);
    if (kind == RANGE_EXTERNAL) {
        external_unmap(range);
        return leave(SUCCESS);
    }
    range->context->used -= charged(range->size);
    return leave(block_delete(range));
}

SIM_API CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    BEGIN(cuMemGetInfo_v2);
    REQUIRE(available && total, ERROR_INVALID_VALUE);
    *available = memory_left(current());
    *total = sim.memory;
    return leave(SUCCESS);
}

SIM_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    BEGIN(cuMemGetAddressRange_v2);
    sim_range *range = range_at((uintptr_t)address);
    REQUIRE(range, ERROR_NOT_FOUND);
    if (base)
        *base = range->start;
    if (size)
        *size = range->size;
    return leave(SUCCESS);
}

/* Values of CUpointer_attribute. */
enum {
    POINTER_CONTEXT = 1,
    POINTER_MEMORY_TYPE,
    POINTER_DEVICE_POINTER,
    POINTER_HOST_POINTER,
    POINTER_SYNC_MEMOPS = 6,
    POINTER_BUFFER_ID,
    POINTER_IS_MANAGED,
    POINTER_DEVICE_ORDINAL,
    POINTER_IPC_CAPABLE,
    POINTER_RANGE_START,
    POINTER_RANGE_SIZE,
    POINTER_MAPPED,
    POINTER_HANDLE_TYPES,
    POINTER_RDMA,
    POINTER_ACCESS,
    POINTER_POOL,
    POINTER_MAPPING_SIZE,
    POINTER_MAPPING_BASE,
    POINTER_BLOCK_ID
};

/* Returns the bits of the current device's access. */
static int pointer_access(const sim_range *range)
{
    int device = current() ? current()->device : range->context->device;
    return range->kind == RANGE_MAPPED ? range->access[device] : ACCESS_BOTH;
}

/* Writes an attribute of `range`; if that is NULL, the value for unknown memory. For reserved addresses,
   mapped or not, the range is the reservation. */
static int pointer_attribute(void *data, int attribute, sim_range *range, CUdeviceptr address)
{
    int device = range && is_device_memory(range), mapped = range && range->kind == RANGE_MAPPED;
    sim_reservation *reservation = reservation_at((uintptr_t)address);
    uintptr_t start = range ? range->start : 0;
    size_t size = range ? range->size : 0;
    CUdeviceptr known = range ? address : 0;
    switch (attribute) {
    case POINTER_CONTEXT: *(CUcontext *)data = range && !mapped ? range->context->handle : NULL; break;
    case POINTER_MEMORY_TYPE: *(unsigned *)data = range ? (device ? 2u : 1u) : 0u; break;
    case POINTER_DEVICE_POINTER: *(CUdeviceptr *)data = known; break;
    case POINTER_HOST_POINTER: *(void **)data = device ? NULL : (void *)(uintptr_t)known; break;
    case POINTER_SYNC_MEMOPS:
    case POINTER_RDMA:
    case POINTER_IS_MANAGED: *(unsigned *)data = 0; break;
    case POINTER_BUFFER_ID: *(unsigned long long *)data = range ? range->id : 0; break;
    case POINTER_DEVICE_ORDINAL:
        *(int *)data = !range ? -2 : mapped ? range->physical->device : range->context->device;
        break;
    case POINTER_IPC_CAPABLE: *(int *)data = range && range->kind == RANGE_DEVICE; break;
    case POINTER_RANGE_START: *(CUdeviceptr *)data = reservation ? reservation->start : start; break;
    case POINTER_RANGE_SIZE: *(size_t *)data = reservation ? reservation->size : size; break;
    case POINTER_MAPPED: *(int *)data = range != NULL; break;
    case POINTER_HANDLE_TYPES:
        *(unsigned long long *)data = mapped ? (unsigned long long)range->physical->types : 0;
        break;
    case POINTER_ACCESS: *(int *)data = range ? pointer_access(range) : 0; break;
    case POINTER_POOL: *(void **)data = NULL; break;
    case POINTER_MAPPING_SIZE: *(size_t *)data = size; break;
    case POINTER_MAPPING_BASE: *(CUdeviceptr *)data = start; break;
    case POINTER_BLOCK_ID: *(unsigned long long *)data = mapped ? range->physical->id : range ? range->id : 0; break;
    default: return ERROR_INVALID_VALUE;
    }
    return device || attribute != POINTER_HOST_POINTER || range ? SUCCESS : ERROR_INVALID_VALUE;
}

/* Tells whether an attribute is known. Reserved addresses without memory have a range and no other attribute. */
static int pointer_is_known(int attribute, CUdeviceptr address)
{
    int of_addresses =
        attribute == POINTER_RANGE_START || attribute == POINTER_RANGE_SIZE || attribute == POINTER_MAPPED;
    return range_at((uintptr_t)address) || (of_addresses && reservation_at((uintptr_t)address));
}

SIM_API CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    BEGIN(cuPointerGetAttribute);
    sim_range *range = range_at((uintptr_t)address);
    REQUIRE(data && pointer_is_known((int)attribute, address), ERROR_INVALID_VALUE);
    REQUIRE((int)attribute != POINTER_HOST_POINTER || !is_device_memory(range), ERROR_INVALID_VALUE);
    return leave(pointer_attribute(data, (int)attribute, range, address));
}

SIM_API CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *which, void **data,
                                        CUdeviceptr address)
{
    int code = SUCCESS;
    BEGIN(cuPointerGetAttributes);
    REQUIRE(which && data, ERROR_INVALID_VALUE);
    sim_range *range = range_at((uintptr_t)address);
    for (unsigned i = 0; i < count && !code; i++) {
        code = pointer_attribute(data[i], (int)which[i], range, address);
        if ((int)which[i] == POINTER_HOST_POINTER)
            code = SUCCESS;
    }
    return leave(code);
}

enum { HOST_MAPPED = 2 }; /* with unified addresses all host memory is mapped */

static int host_alloc(void **out, size_t bytes, unsigned flags)
{
    if (!out)
        return ERROR_INVALID_VALUE;
    *out = NULL;
    if (!bytes)
        return SUCCESS;
    sim_range *range = block_new(&sim.host_arena, bytes, RANGE_PINNED, current());
    if (range)
        *out = (void *)range->start, range->flags = flags | HOST_MAPPED;
    return range ? SUCCESS : ERROR_OUT_OF_MEMORY;
}

SIM_API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
    BEGIN(cuMemHostAlloc);
    REQUIRE(flags < 8, ERROR_INVALID_VALUE);
    return leave(host_alloc(out, bytes, flags));
}

SIM_API CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
    BEGIN(cuMemAllocHost_v2);
    return leave(host_alloc(out, bytes, 0));
}

/* Waits for all devices: queued work of any of them may use pinned memory. */
static void finish_everything(void)
{
    for (int i = 0; i < sim.device_count; i++)
        if (sim.contexts[i].active)
            context_finish(&sim.contexts[i]);
}

SIM_API CUresult cuMemFreeHost(void *pointer)
{
    BEGIN(cuMemFreeHost);
    REQUIRE(pointer, SUCCESS);
    REQUIRE(range_starting((uintptr_t)pointer, RANGE_PINNED), ERROR_INVALID_VALUE);
    finish_everything();
    sim_range *range = range_starting((uintptr_t)pointer, RANGE_PINNED);
    REQUIRE(range, ERROR_INVALID_VALUE);
    return leave(block_delete(range));
}

SIM_API CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
    BEGIN(cuMemHostRegister_v2);
    uintptr_t start = (uintptr_t)pointer;
    REQUIRE(pointer && bytes && flags < 16, ERROR_INVALID_VALUE);
    size_t next = range_after(start);
    int overlaps = range_at(start) || (next < sim.range_count && sim.ranges[next]->start - start < bytes);
    REQUIRE(!overlaps, ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    REQUIRE(!arena_at(start) && !reservation_at(start), ERROR_INVALID_VALUE);
    sim_range *range = range_new(start, bytes, RANGE_REGISTERED, current());
    REQUIRE(range, ERROR_OUT_OF_MEMORY);
    range->flags = flags | HOST_MAPPED;
    return leave(SUCCESS);
}

SIM_API CUresult cuMemHostUnregister(void *pointer)
{
    BEGIN(cuMemHostUnregister);
    REQUIRE(range_at((uintptr_t)pointer), ERROR_HOST_MEMORY_NOT_REGISTERED);
    REQUIRE(range_starting((uintptr_t)pointer, RANGE_REGISTERED), ERROR_INVALID_VALUE);
    finish_everything();
    sim_range *range = range_starting((uintptr_t)pointer, RANGE_REGISTERED);
    REQUIRE(range, ERROR_HOST_MEMORY_NOT_REGISTERED);
    range_delete(range);
    return leave(SUCCESS);
}

SIM_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *pointer, unsigned int flags)
{
    BEGIN(cuMemHostGetDevicePointer_v2);
    sim_range *range = range_at((uintptr_t)pointer);
    REQUIRE(out && !flags && range && !is_device_memory(range), ERROR_INVALID_VALUE);
    *out = (CUdeviceptr)(uintptr_t)pointer;
    return leave(SUCCESS);
}

SIM_API CUresult cuMemHostGetFlags(unsigned int *out, void *pointer)
{
    BEGIN(cuMemHostGetFlags);
    sim_range *range = range_at((uintptr_t)pointer);
    REQUIRE(out && range && !is_device_memory(range), ERROR_INVALID_VALUE);
    *out = range->flags;
    return leave(SUCCESS);
}
