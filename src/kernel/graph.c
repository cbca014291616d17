/* ===============================================================================================================
   >>graph - CUDA graphs: capture and replay

   Turns the result of >>capture into a handle that is launched on the current stream.
   May use: >>capture, >>memory. Invariant: a graph keeps everything that its work uses. Locks: a graph's slot, then
   a device.
   =============================================================================================================== */

#include "room.h"

typedef struct ignis__graph {
    ignis__slot slot;
    void *exec;              /* CUgraphExec */
    ignis__capture *capture; /* the capture it was made from */
    uint64_t launches;       /* as the device counts them for random numbers */
} ignis__graph;

static ignis__pool ignis__graphs = IGNIS__POOL(ignis__graph, IGNIS__KIND_GRAPH, "graph", IGNIS_DIAG_GRAPH_FREED);

/*  Destroys the result of a capture; exec may be NULL. The device is idle, and the memory of the capture goes to
    Ignis' own stream. */
IGNIS__COLD IGNIS__PRIVATE void ignis__graph_destroy(const char *call, ignis__capture *capture, void *exec)
{
    if (exec)
        (void)IGNIS__CUDA(cuGraphExecDestroy, (exec));
    ignis__memory_forget_stream(capture->device, capture);
    ignis__capture_destroy(call, capture);
}

static ignis__graph *ignis__graph_hold(const char *call, ignis_graph handle)
{
    return (ignis__graph *)ignis__handle_hold(call, &ignis__graphs, handle.id);
}

static void ignis__graph_drop(const char *call, ignis__graph *graph)
{
    ignis__device *device = graph->capture->device;
    ignis__binding binding;
    bool lost = ignis__devices_lost(), entered;
    if (!ignis__pool_drop(graph))
        return;
    entered = ignis__device_enter_to_give(call, device, &binding);
    if (entered)
        (void)ignis__device_finish(device);
    ignis__graph_destroy(call, graph->capture, lost ? NULL : graph->exec); /* also if the device cannot be entered */
    if (entered)
        ignis__device_leave(&binding);
    ignis__pool_recycle(&ignis__graphs, graph);
}

IGNIS__COLD IGNIS_API ignis_status ignis_graph_begin(void)
{
    static const char call[] = "ignis_graph_begin";
    ignis__binding binding;
    ignis__device *device;
    bool ok;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (ignis__capturing())
        return ignis__fail(IGNIS_DIAG_CAPTURE_STATE, call, "this thread captures already; call ignis_graph_end first");
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return ignis__failed();
    /* trimmed, so that memory of earlier graphs can be used by this one */
    ok = ignis__device_wait(call, device) &&
         ignis__cache_trim(call, device, &ignis__caches[device - ignis__devices]) >= 0 &&
         ignis__capture_begin(call, device);
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_graph ignis_graph_end(void)
{
    static const char call[] = "ignis_graph_end";
    ignis_graph handle = IGNIS__ZERO;
    ignis__capture *capture;
    ignis__graph *graph = NULL;
    ignis__binding binding;
    void *exec;
    bool entered;
    if (!ignis__enter(call))
        return handle;
    capture = ignis__capturing();
    if (!capture) {
        ignis__fail(IGNIS_DIAG_CAPTURE_STATE, call, "this thread captures nothing; call ignis_graph_begin first");
        return handle;
    }
    entered = ignis__device_enter(call, capture->device, &binding);
    exec = ignis__capture_end(call,
                              capture); /* without the device too, as the capture has to end; then it gives no graph */
    if (exec && entered)
        graph = (ignis__graph *)ignis__pool_take(call, &ignis__graphs);
    if (graph) {
        graph->exec = exec;
        graph->launches = 0;
        graph->capture = capture;
        handle.id = ignis__pool_publish(&ignis__graphs, graph);
    } else {
        ignis__graph_destroy(call, capture, exec);
    }
    if (entered)
        ignis__device_leave(&binding);
    return handle;
}

/*  Checks that the stream is not captured by any thread. False, and reported: the driver would refuse the launch, and
    invalidate the capture. */
IGNIS__PRIVATE bool ignis__graph_launchable(const char *call, ignis__device *device, void *stream)
{
    int captures = 0;
    if (IGNIS__CUDA_FAILED(call, device, cuStreamIsCapturing, (stream, &captures)))
        return false;
    if (captures)
        ignis__fail(IGNIS_DIAG_CAPTURE_REFUSED, call,
                    "the current stream is being captured, and CUDA puts no graph into another one: launch it before "
                    "the capture begins or after "
                    "it ends, or capture the same work again");
    return !captures;
}

IGNIS_API ignis_status ignis_graph_launch(ignis_graph handle)
{
    static const char call[] = "ignis_graph_launch";
    ignis__graph *graph = ignis__graph_hold(call, handle);
    const ignis__captured_item *held;
    ignis__work work;
    ignis__device *device;
    ignis__trace_item item;
    bool traced, ok = false;
    if (!graph)
        return ignis__failed();
    device = graph->capture->device;
    if (ignis__thread_state()->device != ignis__device_ordinal(device))
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "the graph is for device %d, device %d is current",
                    ignis__device_ordinal(device), ignis__thread_state()->device);
    else if (ignis__work_begin(call, device, &work)) {
        ok = ignis__graph_launchable(call, device, work.stream) &&
             ignis__capture_hook_call(call, &ignis__graph_settle, device, NULL);
        traced = ok && ignis__profiling() &&
                 ignis__trace_open(&item, IGNIS__TRACED_GRAPH, call, device, work.stream, NULL, "graph");
        ok = ok && !IGNIS__CUDA_FAILED(call, device, cuGraphLaunch, (graph->exec, work.stream));
        if (traced)
            (void)ignis__trace_close(&item, ok);
        if (ok) {
            ignis__atomic_add(&graph->capture->replays->count, 1);
            ignis__atomic_add(&graph->launches, 1);
        }
        for (held = ok ? graph->capture->held : NULL; held; held = held->next) {
            if (held->written)
                ignis__storage_written((ignis__storage *)held->item);
            if (held->exposed)
                ignis__storage_expose((ignis__storage *)held->item);
        }
        ignis__work_end(&work);
    }
    ignis__graph_drop(call, graph);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API int64_t ignis_graph_launches(ignis_graph handle)
{
    static const char call[] = "ignis_graph_launches";
    ignis__graph *graph = ignis__graph_hold(call, handle);
    int64_t count = -1;
    if (!graph)
        return count;
    count = (int64_t)ignis__atomic_load(&graph->launches);
    ignis__graph_drop(call, graph);
    return count;
}

IGNIS__COLD IGNIS_API ignis_status ignis_graph_set_launches(ignis_graph handle, int64_t count)
{
    static const char call[] = "ignis_graph_set_launches";
    ignis__graph *graph = ignis__graph_hold(call, handle);
    ignis__array *launches;
    ignis__work work;
    ignis__address address;
    bool ok = false;
    if (!graph)
        return ignis__failed();
    launches = graph->capture->launches;
    if (count < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %lld; expected 0 or more", (long long)count);
    } else if (!ignis__capture_refuses(call) && ignis__work_begin(call, graph->capture->device, &work)) {
        ok = !launches || (ignis__work_write(&work, launches, &address) &&
                           ignis__copy_from_host(&work, address, &count, (int64_t)sizeof count));
        ignis__work_end(&work);
    }
    if (ok)
        ignis__atomic_store(&graph->launches, (uint64_t)count);
    ignis__graph_drop(call, graph);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_graph_free(ignis_graph handle)
{
    static const char call[] = "ignis_graph_free";
    const uint64_t failures = ignis__failures();
    ignis__graph *graph;
    ignis_status status = IGNIS_OK;
    if (!handle.id)
        return IGNIS_OK;
    graph = ignis__graph_hold(call, handle);
    if (!graph)
        return ignis__failed();
    if (ignis__capture_refuses(call))
        status = ignis__failed();
    else if (!ignis__handle_kill(graph))
        status = ignis__fail(IGNIS_DIAG_GRAPH_FREED, call, "another thread has freed the graph");
    ignis__graph_drop(call, graph);
    return status == IGNIS_OK ? ignis__ended(failures, true) : status;
}

IGNIS__PRIVATE void ignis__graphs_close(const char *call)
{
    ignis__graph *graph;
    ignis__binding binding;
    uint64_t index = 0;
    while (ignis__captures.first) {
        ignis__capture *open = ignis__captures.first;
        bool entered = ignis__device_enter(call, open->device, &binding);
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "a capture on device %d that ignis_graph_end has not ended",
                           ignis__device_ordinal(open->device));
        ignis__graph_destroy(call, open, ignis__capture_end(call, open));
        if (entered)
            ignis__device_leave(&binding);
    }
    while ((graph = (ignis__graph *)ignis__pool_next(&ignis__graphs, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "graph on device %d",
                           ignis__device_ordinal(graph->capture->device));
        ignis__handle_kill(graph);
        ignis__graph_drop(call, graph);
    }
}
