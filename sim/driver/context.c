// SPDX-License-Identifier: MIT
/*  context.c - primary contexts, and the current context of a thread

    The first retain of a device opens its context, and the last release closes it with everything made in it.
    A reset closes it, too, but the references remain. A thread has a stack of current contexts.
*/
#include "driver.h"

static int context_open(sim_context *context)
{
    char name[64];
    snprintf(name, sizeof name, "ignis-sim-device-%d", context->device);
    if (!arena_open(&context->arena, name, 2 * sim.memory) || !arena_open(&sim.host_arena, "ignis-sim-pinned", page))
        return ERROR_OUT_OF_MEMORY;
    if (!context->handle)
        context->handle = handle_new(OBJECT_CONTEXT, context, NULL);
    if (!context->handle)
        return ERROR_OUT_OF_MEMORY;
    context->null_stream = stream_new(context, 0, 0);
    context->active = context->null_stream != NULL;
    return context->active ? SUCCESS : ERROR_OUT_OF_MEMORY;
}

static void context_drop_objects(sim_context *context)
{
    for (uint32_t i = 1; i < sim.slot_count; i++) {
        sim_slot *slot = &sim.slots[i];
        if (slot->context != context)
            continue;
        if (slot->kind == OBJECT_STREAM)
            stream_destroy(slot->object);
        else if (slot->kind == OBJECT_EVENT)
            event_delete(slot->object);
        else if (slot->kind == OBJECT_MODULE)
            module_delete(slot->object);
        else if (slot->kind == OBJECT_TIMELINE)
            timeline_delete(slot->object);
        else if (slot->kind == OBJECT_RESOURCE)
            resource_delete(slot->object);
    }
}

/* Destroys everything made in the context, as when its last user releases it. */
static void context_close(sim_context *context)
{
    if (!context->active)
        return;
    context->active = 0;
    context_finish(context);
    context_drop_objects(context);
    for (size_t i = sim.range_count; i-- > 0;) {
        sim_range *range = sim.ranges[i];
        if (range->context != context || range->kind == RANGE_MAPPED)
            continue;
        if (range->arena)
            block_delete(range);
        else if (range->import)
            import_delete(range);
        else if (range->kind == RANGE_EXTERNAL)
            external_unmap(range);
        else
            range_delete(range);
    }
    context_drop_externals(context);
    for (sim_stream *stream = context->streams, *next; stream; stream = next) {
        next = stream->next;
        if (!stream->dead)
            stream_destroy(stream);
    }
    context->null_stream = NULL;
    context->used = 0;
    context->peers = 0;
}

/* >>primary contexts */

SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    BEGIN(cuDevicePrimaryCtxRetain);
    REQUIRE(out, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    REQUIRE(!sim.error, sim.error);
    sim_context *context = &sim.contexts[device];
    int code = context->active ? SUCCESS : context_open(context);
    if (!code)
        context->references++, *out = context->handle;
    return leave(code);
}

SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    BEGIN(cuDevicePrimaryCtxRelease_v2);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    sim_context *context = &sim.contexts[device];
    REQUIRE(context->references, ERROR_INVALID_CONTEXT);
    if (!--context->references)
        context_close(context);
    return leave(SUCCESS);
}

/* The references remain: each caller that retained the context still has to release it. */
SIM_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    BEGIN(cuDevicePrimaryCtxReset_v2);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    context_close(&sim.contexts[device]);
    return leave(SUCCESS);
}

SIM_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    BEGIN(cuDevicePrimaryCtxSetFlags_v2);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    sim.contexts[device].flags = flags;
    return leave(SUCCESS);
}

SIM_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    BEGIN(cuDevicePrimaryCtxGetState);
    REQUIRE(flags && active, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    *flags = sim.contexts[device].flags;
    *active = sim.contexts[device].active;
    return leave(SUCCESS);
}

/* >>current context */

SIM_API CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
    BEGIN(cuCtxPushCurrent_v2);
    sim_context *context = handle_get(OBJECT_CONTEXT, handle);
    REQUIRE(context && thread.depth < MAX_DEPTH, ERROR_INVALID_CONTEXT);
    thread.stack[thread.depth++] = context;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    BEGIN(cuCtxPopCurrent_v2);
    REQUIRE(thread.depth, ERROR_INVALID_CONTEXT);
    if (out)
        *out = current()->handle;
    thread.depth--;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxSetCurrent(CUcontext handle)
{
    BEGIN(cuCtxSetCurrent);
    sim_context *context = handle_get(OBJECT_CONTEXT, handle);
    REQUIRE(context || !handle, ERROR_INVALID_CONTEXT);
    if (thread.depth)
        thread.depth--;
    if (context)
        thread.stack[thread.depth++] = context;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxGetCurrent(CUcontext *out)
{
    BEGIN(cuCtxGetCurrent);
    REQUIRE(out, ERROR_INVALID_VALUE);
    *out = current() ? current()->handle : NULL;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxGetDevice(CUdevice *device)
{
    BEGIN(cuCtxGetDevice);
    REQUIRE(device, ERROR_INVALID_VALUE);
    REQUIRE(current(), ERROR_INVALID_CONTEXT);
    *device = current()->device;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    BEGIN(cuCtxGetStreamPriorityRange);
    if (least)
        *least = PRIORITY_LEAST;
    if (greatest)
        *greatest = PRIORITY_GREATEST;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxSynchronize(void)
{
    BEGIN(cuCtxSynchronize);
    sim_context *context = current();
    for (sim_stream *stream = context->streams; stream; stream = stream->next)
        if (stream->capture)
            return leave(capture_break(stream->capture, ERROR_STREAM_CAPTURE_UNSUPPORTED));
    int code = capture_forbids();
    return leave(code ? code : context_finish(context));
}

SIM_API CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
    BEGIN(cuCtxEnablePeerAccess);
    sim_context *peer = handle_get(OBJECT_CONTEXT, handle);
    REQUIRE(!flags, ERROR_INVALID_VALUE);
    REQUIRE(peer && peer->active, ERROR_INVALID_CONTEXT);
    REQUIRE(peer != current(), ERROR_INVALID_CONTEXT);
    REQUIRE(devices_reach(current()->number, peer->number), ERROR_PEER_ACCESS_UNSUPPORTED);
    REQUIRE(!(current()->peers & 1u << peer->device), ERROR_PEER_ACCESS_ALREADY_ENABLED);
    current()->peers |= 1u << peer->device;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
    BEGIN(cuCtxDisablePeerAccess);
    sim_context *peer = handle_get(OBJECT_CONTEXT, handle);
    REQUIRE(peer, ERROR_INVALID_CONTEXT);
    REQUIRE(current()->peers & 1u << peer->device, ERROR_PEER_ACCESS_NOT_ENABLED);
    current()->peers &= ~(1u << peer->device);
    return leave(SUCCESS);
}
