/* ===============================================================================================================
   >>capture - a thread's work that becomes a CUDA graph: its stream, the items it keeps, calls it refuses

   May use: >>device, >>pool. Streams, memory and arrays ask ignis__capture_on whether the thread captures; graph.c
   owns the result.
   Invariants: a capture waits for nothing outside of it; what its work uses lives as long as the graph.
   Locks: ignis__captures.lock guards the list of open captures; no lock is taken under it. device->waiting keeps
   threads from waiting for a context while a capture begins.
   =============================================================================================================== */

#include "room.h"

IGNIS__PRIVATE void ignis__replays_drop(ignis__replays *replays)
{
    if (ignis__atomic_add(&replays->users, (uint64_t)-1) == 0)
        ignis__free(replays);
}

IGNIS__PRIVATE struct ignis__captures_type ignis__captures = {IGNIS__MUTEX_INIT, NULL};

IGNIS__INLINE IGNIS__PRIVATE ignis__capture *ignis__capturing(void) { return ignis__thread_state()->capture; }

/*  Returns the capture of the thread's work on this device, or NULL. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__capture *ignis__capture_on(const ignis__device *device)
{
    ignis__capture *capture = ignis__capturing();
    return capture && capture->device == device ? capture : NULL;
}

/*  Returns the stream of the calling thread's work on an open device. */
IGNIS__ONE_COPY IGNIS__PRIVATE void *ignis__stream_current(const ignis__device *device)
{
    const ignis__thread *thread = ignis__thread_state();
    void *stream = thread->stream[device - ignis__devices];
    if (thread->capture && thread->capture->device == device)
        return thread->capture->stream;
    return stream ? stream : device->stream;
}

/*  Fails the call, and returns true, if the thread captures. */
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__capture_refuses(const char *call)
{
    if (!ignis__capturing())
        return false;
    ignis__fail(IGNIS_DIAG_CAPTURE_REFUSED, call,
                "the call cannot be captured: it waits for the device, reads host memory or must run once; call it "
                "before ignis_graph_begin or "
                "after ignis_graph_end");
    return true;
}

IGNIS__PRIVATE ignis__captured_item *ignis__capture_find(const ignis__capture *capture, const void *item)
{
    ignis__captured_item *held = capture->held;
    while (held && held->item != item)
        held = held->next;
    return held;
}

/*  Holds an item for the graph, once: increments *users (NULL: the caller's hold is handed over) and calls `drop`
    when the graph is destroyed. */
IGNIS__PRIVATE bool ignis__capture_hold(const char *call, ignis__capture *capture, void *item, uint64_t *users,
                                        void (*drop)(const char *call, void *item))
{
    ignis__captured_item *held;
    if (ignis__capture_find(capture, item))
        return true;
    held = (ignis__captured_item *)ignis__alloc_for(call, sizeof *held);
    if (!held)
        return false;
    if (users)
        ignis__atomic_add(users, 1);
    held->item = item;
    held->drop = drop;
    held->next = capture->held;
    capture->held = held;
    return true;
}

/*  Between ignis__capture_pause and ignis__capture_resume the thread's work runs on its own stream of an entered
    device. Resume waits for it, because a capture has no order with other work. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__capture *ignis__capture_pause(void)
{
    ignis__capture *capture = ignis__capturing();
    ignis__thread_state()->capture = NULL;
    return capture;
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__capture_resume(const char *call, ignis__capture *capture)
{
    bool ok = !capture ||
              !IGNIS__CUDA_FAILED(call, capture->device, cuStreamSynchronize, (ignis__stream_current(capture->device)));
    ignis__thread_state()->capture = capture;
    return ok;
}

/*  Drops all items of a capture. The device is idle. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__capture_destroy(const char *call, ignis__capture *capture)
{
    while (capture->held) {
        ignis__captured_item *held = capture->held;
        capture->held = held->next;
        held->drop(call, held->item);
        ignis__free(held);
    }
    ignis__replays_drop(capture->replays);
    ignis__free(capture);
}

/*  Begins to capture the thread's work. The device is entered and idle, so all earlier work is done and needs no
    event. */
IGNIS__COLD IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__capture_begin(const char *call, ignis__device *device)
{
    ignis__capture *capture = (ignis__capture *)ignis__alloc(sizeof *capture);
    ignis__replays *replays = (ignis__replays *)ignis__alloc(sizeof *replays);
    if (!capture || !replays) {
        ignis__free(capture), ignis__free(replays);
        ignis__fail_host_memory(call, sizeof *capture + sizeof *replays);
        return false;
    }
    replays->users = 1;
    capture->replays = replays;
    capture->serial = ignis__atomic_add(&ignis__stream_serials, 1);
    capture->device = device;
    ignis__atomic_add(&device->captures, 1); /* from here on nobody begins to wait for the context, */
    ignis__rwlock_write(&device->waiting);   /* and this waits for threads that wait now: */
    ignis__rwlock_write_end(
        &device->waiting); /* to wait for a context in which a stream is captured spoils the capture */
    /* Relaxed: the allocator may ask the driver for memory during the capture. */
    if (!IGNIS__CUDA_FAILED(call, device, cuStreamCreate, (&capture->stream, IGNIS__CU_STREAM_NON_BLOCKING)) &&
        !IGNIS__CUDA_FAILED(call, device, cuStreamBeginCapture_v2, (capture->stream, IGNIS__CU_CAPTURE_RELAXED))) {
        ignis__mutex_lock(&ignis__captures.lock);
        capture->next = ignis__captures.first;
        ignis__captures.first = capture;
        ignis__mutex_unlock(&ignis__captures.lock);
        ignis__thread_state()->capture = capture;
        return true;
    }
    ignis__atomic_add(&device->captures, (uint64_t)-1);
    if (capture->stream)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (capture->stream));
    ignis__free(replays), ignis__free(capture);
    return false;
}

/*  A function of a room above that prepares for the end of the thread's capture, or with NULL for the launch of a graph
    on an entered device. NULL: nothing is to be done. */
IGNIS__PRIVATE uint64_t ignis__graph_settle;

/*  As ignis__graph_settle, only before the end of a capture: joins streams of a room above. */
IGNIS__PRIVATE uint64_t ignis__capture_join;

IGNIS__PRIVATE bool ignis__capture_hook_call(const char *call, const uint64_t *hook, ignis__device *device,
                                             const ignis__capture *capture)
{
    ignis__capture_hook *function = IGNIS__HOOK(ignis__capture_hook, *hook);
    return !function || function(call, device, capture);
}

/*  Ends a capture, also on failure, and returns its executable graph. NULL on failure. The graph needs the items that
    the capture holds. */
IGNIS__COLD IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void *ignis__capture_end(const char *call, ignis__capture *capture)
{
    ignis__device *device = capture->device;
    void *captured = NULL, *exec = NULL;
    ignis__capture **link = &ignis__captures.first;
    bool ours = ignis__capturing() == capture,
         joined = !ours || ignis__capture_hook_call(call, &ignis__capture_join, device, capture),
         closed = !ours || ignis__capture_hook_call(call, &ignis__graph_settle, device, capture),
         ok = !IGNIS__CUDA_FAILED(call, device, cuStreamEndCapture, (capture->stream, &captured)) && captured &&
              joined && closed && !IGNIS__CUDA_FAILED(call, device, cuGraphInstantiateWithFlags, (&exec, captured, 0));
    if (ours)
        ignis__thread_state()->capture = NULL;
    ignis__mutex_lock(&ignis__captures.lock);
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    ignis__mutex_unlock(&ignis__captures.lock);
    ignis__atomic_add(&device->captures, (uint64_t)-1);
    if (captured)
        (void)IGNIS__CUDA(cuGraphDestroy, (captured));
    (void)IGNIS__CUDA(cuStreamDestroy_v2, (capture->stream));
    return ok ? exec : NULL;
}
