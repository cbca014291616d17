/*  interop/fence.c - fences: timeline semaphores of Vulkan and fences of Direct3D 12

    Waits and signals are queued on streams; the host waits only in ignis_fence_free.
    May use: external_memory.c, >>stream. Invariant: the driver's semaphore lives until its last queued use is done.
    Locks: a fence's slot, then a device. */

#include "room.h"

/*  The last use of a fence on a stream. */
typedef struct ignis__fence_use {
    void *stream;
    ignis__pooled_event *event; /* recorded after it */
    struct ignis__fence_use *next;
} ignis__fence_use;

typedef struct ignis__fence {
    ignis__slot slot; /* its lock guards the rest */
    ignis__device *device;
    void *semaphore;
    uint64_t signaled; /* the last value that it was to be set to */
    ignis__fence_use *uses;
    bool unmarked; /* an event could not be recorded */
} ignis__fence;

static ignis__pool ignis__fences = IGNIS__POOL(ignis__fence, IGNIS__KIND_FENCE, "fence", IGNIS_DIAG_FENCE_FREED);

IGNIS__COLD IGNIS_API ignis_fence ignis_external_fence(const ignis_external_fence_desc *desc)
{
    static const char call[] = "ignis_external_fence";
    ignis_fence result = IGNIS__ZERO;
    ignis__semaphore_desc semaphore = IGNIS__ZERO;
    ignis__device *device;
    ignis__binding binding;
    ignis__fence *fence;
    int error = -1;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "desc", desc))
        return result;
    if (!ignis__external_check(call, ignis__fence_kinds, IGNIS_FENCE_TYPE_COUNT, (int)desc->type, desc->fd,
                               desc->handle) ||
        !IGNIS__GRAPHICS_CAN(call, cuImportExternalSemaphore) ||
        !IGNIS__GRAPHICS_CAN(call, cuSignalExternalSemaphoresAsync) ||
        !IGNIS__GRAPHICS_CAN(call, cuWaitExternalSemaphoresAsync) ||
        !IGNIS__GRAPHICS_CAN(call, cuDestroyExternalSemaphore))
        return result;
    device = ignis__device_get(call, ignis__desc_device(desc->device));
    if (!device || !ignis__external_copy(call, desc->fd, desc->handle, &semaphore.os))
        return result;
    fence = (ignis__fence *)ignis__pool_take_zeroed(call, &ignis__fences);
    if (fence && ignis__device_enter(call, device, &binding)) {
        semaphore.type = ignis__fence_kinds[desc->type].type;
        error = IGNIS__CUDA(cuImportExternalSemaphore, (&fence->semaphore, &semaphore));
        if (error != 0)
            ignis__external_fail(call, device, "cuImportExternalSemaphore", error, ignis__fence_kinds[desc->type].name,
                                 ", or is of no timeline");
        ignis__device_leave(&binding);
    }
    ignis__external_settle(desc->fd, &semaphore.os, error == 0, error == 0);
    if (fence && error == 0) {
        fence->device = device;
        result.id = ignis__pool_publish(&ignis__fences, fence);
    } else if (fence) {
        ignis__pool_recycle(&ignis__fences, fence);
    }
    return result;
}

/*  Records the present work of a stream as a use of the fence, which is locked; its device is entered. Finished uses
    are removed. */
static bool ignis__fence_mark(const char *call, ignis__fence *fence, void *stream)
{
    ignis__fence_use **link = &fence->uses, *use;
    ignis__pooled_event *event = ignis__event_record(call, fence->device, stream);
    if (!event)
        return false;
    while ((use = *link) != NULL && use->stream != stream) {
        if (IGNIS__CUDA(cuEventQuery, (use->event->event)) == 0) {
            *link = use->next;
            ignis__event_recycle(fence->device, use->event);
            ignis__free(use);
        } else {
            link = &use->next;
        }
    }
    if (use) {
        ignis__event_recycle(fence->device, use->event);
    } else {
        use = (ignis__fence_use *)ignis__alloc_for(call, sizeof *use);
        if (!use) {
            ignis__event_recycle(fence->device, event);
            return false;
        }
        use->stream = stream;
        use->next = fence->uses;
        fence->uses = use;
    }
    use->event = event;
    return true;
}

/*  Destroys a fence after its last use is done, as the driver requires. After a fault there is nothing to wait for. */
static void ignis__fence_drop(const char *call, ignis__fence *fence)
{
    ignis__binding binding;
    bool entered;
    if (!ignis__pool_drop(fence))
        return;
    entered = ignis__device_enter_to_give(call, fence->device, &binding);
    while (fence->uses) {
        ignis__fence_use *use = fence->uses;
        fence->uses = use->next;
        if (entered && IGNIS__CUDA(cuEventSynchronize, (use->event->event)) != 0)
            fence->unmarked = true;
        ignis__event_recycle(fence->device, use->event);
        ignis__free(use);
    }
    if (entered) {
        if (fence->unmarked)
            (void)ignis__device_finish(fence->device);
        (void)IGNIS__CUDA(cuDestroyExternalSemaphore, (fence->semaphore));
        ignis__device_leave(&binding);
    }
    ignis__pool_recycle(&ignis__fences, fence);
}

/*  Queues a wait for a value, or a signal of it. */
static ignis_status ignis__fence_queue(const char *call, ignis_fence handle, uint64_t value, bool raises)
{
    ignis__fence *fence = (ignis__fence *)ignis__handle_hold(call, &ignis__fences, handle.id);
    ignis__semaphore_value wanted = IGNIS__ZERO;
    ignis__device *device;
    ignis__binding binding;
    void *stream;
    bool captured = false, ok;
    if (!fence)
        return ignis__failed();
    device = fence->device;
    if (!ignis__device_enter(call, device, &binding)) {
        ignis__fence_drop(call, fence);
        return ignis__failed();
    }
    stream = ignis__stream_current(device);
    wanted.value = value;
    ok = ignis__stream_captured(call, device, stream, &captured);
    if (ok && captured)
        ok = ignis__fail_captured(
            call, raises ? "the stream is captured: each launch of the graph would signal the same value. Signal it "
                           "after ignis_graph_launch"
                         : "the stream is captured: each launch of the graph would wait for the same value. Wait for "
                           "it before ignis_graph_launch");
    ignis__mutex_lock(&fence->slot.lock);
    if (ok && raises && value <= fence->signaled)
        ok = ignis__fail_false(IGNIS_DIAG_FENCE_VALUE, call, "the value %llu is not above %llu, which the fence %s",
                               (unsigned long long)value, (unsigned long long)fence->signaled,
                               fence->signaled ? "was to be set to before" : "has at first");
    if (ok && raises)
        ok =
            !IGNIS__CUDA_FAILED(call, device, cuSignalExternalSemaphoresAsync, (&fence->semaphore, &wanted, 1, stream));
    else if (ok)
        ok = !IGNIS__CUDA_FAILED(call, device, cuWaitExternalSemaphoresAsync, (&fence->semaphore, &wanted, 1, stream));
    if (ok && raises)
        fence->signaled = value;
    if (ok && !ignis__fence_mark(call, fence, stream)) {
        fence->unmarked = true; /* it is queued all the same */
        ok = false;
    }
    ignis__mutex_unlock(&fence->slot.lock);
    ignis__device_leave(&binding);
    ignis__fence_drop(call, fence);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_fence_wait(ignis_fence fence, uint64_t value)
{
    return ignis__fence_queue("ignis_fence_wait", fence, value, false);
}

IGNIS_API ignis_status ignis_fence_signal(ignis_fence fence, uint64_t value)
{
    return ignis__fence_queue("ignis_fence_signal", fence, value, true);
}

IGNIS__COLD IGNIS_API ignis_status ignis_fence_free(ignis_fence handle)
{
    static const char call[] = "ignis_fence_free";
    const uint64_t failures = ignis__failures();
    ignis__fence *fence;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    fence = (ignis__fence *)ignis__handle_hold(call, &ignis__fences, handle.id);
    if (!fence)
        return ignis__failed();
    live = ignis__handle_kill(fence);
    if (!live)
        ignis__fail_stale(call, &ignis__fences, handle.id);
    ignis__fence_drop(call, fence);
    return ignis__ended(failures, live);
}

IGNIS__COLD IGNIS__PRIVATE void ignis__fences_close(const char *call)
{
    ignis__fence *fence;
    uint64_t index = 0;
    while ((fence = (ignis__fence *)ignis__pool_next(&ignis__fences, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "fence of device %d", ignis__device_ordinal(fence->device));
        ignis__handle_kill(fence);
        ignis__fence_drop(call, fence);
    }
}
