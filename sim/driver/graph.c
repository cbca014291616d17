// SPDX-License-Identifier: MIT
/*  graph.c - graphs: begins and ends captures, instantiates and launches

    A graph, an executable graph and each launch share one plan, which does not change after the capture.
*/
#include "driver.h"

typedef struct sim_graph {
    void *handle;
    sim_plan *plan;
} sim_graph;

/* Makes a graph or an executable graph. It takes over the caller's reference to the plan. */
static int graph_new(void *out, sim_object_kind kind, sim_plan *plan)
{
    sim_graph *graph = calloc(1, sizeof *graph);
    if (graph)
        graph->handle = handle_new(kind, graph, NULL);
    if (!graph || !graph->handle) {
        free(graph);
        plan_release(plan);
        return ERROR_OUT_OF_MEMORY;
    }
    graph->plan = plan;
    *(void **)out = graph->handle;
    return SUCCESS;
}

static int graph_delete(sim_object_kind kind, void *handle)
{
    sim_graph *graph = handle_get(kind, handle);
    if (!graph)
        return ERROR_INVALID_VALUE;
    handle_drop(handle);
    plan_release(graph->plan);
    free(graph);
    return SUCCESS;
}

SIM_API CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    sim_stream *stream;
    BEGIN(cuStreamBeginCapture_v2);
    int code = stream_find(handle, &stream);
    REQUIRE(!code, code);
    REQUIRE((int)mode >= CAPTURE_GLOBAL && (int)mode <= CAPTURE_RELAXED, ERROR_INVALID_VALUE);
    REQUIRE(stream != stream->context->null_stream, ERROR_STREAM_CAPTURE_UNSUPPORTED);
    REQUIRE(!stream->capture, ERROR_ILLEGAL_STATE);
    stream->capture = capture_new(stream, (int)mode);
    return leave(stream->capture ? SUCCESS : ERROR_OUT_OF_MEMORY);
}

SIM_API CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
    sim_stream *stream;
    BEGIN(cuStreamEndCapture);
    int code = stream_find(handle, &stream);
    REQUIRE(!code, code);
    sim_capture *capture = stream->capture;
    REQUIRE(out, ERROR_INVALID_VALUE);
    REQUIRE(capture, ERROR_ILLEGAL_STATE);
    REQUIRE(capture->origin == stream, capture_break(capture, ERROR_STREAM_CAPTURE_UNMATCHED));
    REQUIRE(capture->mode == CAPTURE_RELAXED || pthread_equal(capture->thread, pthread_self()),
            ERROR_STREAM_CAPTURE_WRONG_THREAD);
    *out = NULL;
    if (capture->invalid)
        code = ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!plan_joined(capture->plan, &stream->last))
        code = ERROR_STREAM_CAPTURE_UNJOINED;
    capture->references++;
    capture_end(capture);
    if (!code)
        code = graph_new(out, OBJECT_GRAPH, capture->plan);
    else
        plan_release(capture->plan);
    capture->plan = NULL; /* events of the capture live on, and do not keep its graph */
    capture_release(capture);
    return leave(code);
}

static int capture_status(const sim_stream *stream) { return stream->capture ? 1 + stream->capture->invalid : 0; }

SIM_API CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    sim_stream *stream;
    BEGIN(cuStreamIsCapturing);
    int code = stream_find(handle, &stream);
    REQUIRE(!code, code);
    REQUIRE(status, ERROR_INVALID_VALUE);
    code = capture_check_legacy(stream);
    if (!code)
        *status = capture_status(stream);
    return leave(code);
}

/* The graph and its nodes have no handles before the capture ends, so none are returned. */
SIM_API CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id,
                                           CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
    sim_stream *stream;
    BEGIN(cuStreamGetCaptureInfo_v2);
    int code = stream_find(handle, &stream);
    REQUIRE(!code, code);
    REQUIRE(status, ERROR_INVALID_VALUE);
    *status = capture_status(stream);
    if (id)
        *id = stream->capture ? stream->capture->id : 0;
    if (graph)
        *graph = NULL;
    if (nodes)
        *nodes = NULL;
    if (count)
        *count = 0;
    return leave(SUCCESS);
}

SIM_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    BEGIN(cuThreadExchangeStreamCaptureMode);
    REQUIRE(mode && (int)*mode >= CAPTURE_GLOBAL && (int)*mode <= CAPTURE_RELAXED, ERROR_INVALID_VALUE);
    int before = thread.capture_mode;
    thread.capture_mode = (int)*mode;
    *mode = before;
    return leave(SUCCESS);
}

SIM_API CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
    BEGIN(cuGraphCreate);
    REQUIRE(out && !flags, ERROR_INVALID_VALUE);
    sim_plan *plan = calloc(1, sizeof *plan);
    REQUIRE(plan, ERROR_OUT_OF_MEMORY);
    plan->references = 1;
    return leave(graph_new(out, OBJECT_GRAPH, plan));
}

/* Only the number of nodes is supported. */
SIM_API CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    BEGIN(cuGraphGetNodes);
    sim_graph *graph = handle_get(OBJECT_GRAPH, handle);
    REQUIRE(graph && count, ERROR_INVALID_VALUE);
    REQUIRE(!nodes, ERROR_NOT_SUPPORTED);
    *count = (size_t)graph->plan->count;
    return leave(SUCCESS);
}

SIM_API CUresult cuGraphDestroy(CUgraph handle)
{
    BEGIN(cuGraphDestroy);
    return leave(graph_delete(OBJECT_GRAPH, handle));
}

SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    (void)flags;
    BEGIN(cuGraphInstantiateWithFlags);
    sim_graph *graph = handle_get(OBJECT_GRAPH, handle);
    REQUIRE(out && graph, ERROR_INVALID_VALUE);
    graph->plan->references++;
    return leave(graph_new(out, OBJECT_GRAPH_EXEC, graph->plan));
}

SIM_API CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle)
{
    sim_stream *stream;
    BEGIN(cuGraphUpload);
    REQUIRE(handle_get(OBJECT_GRAPH_EXEC, handle), ERROR_INVALID_VALUE);
    return leave(stream_find(stream_handle, &stream));
}

SIM_API CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    sim_stream *stream;
    BEGIN(cuGraphLaunch);
    sim_graph *graph = handle_get(OBJECT_GRAPH_EXEC, handle);
    int code = stream_find(stream_handle, &stream);
    REQUIRE(!code, code);
    REQUIRE(graph, ERROR_INVALID_VALUE);
    code = capture_check(stream);
    REQUIRE(!code, code);
    REQUIRE(!stream->capture, capture_break(stream->capture, ERROR_STREAM_CAPTURE_UNSUPPORTED));
    graph->plan->references++;
    return leave(submit(stream, (sim_work){.kind = WORK_GRAPH, .plan = graph->plan}, NULL, NULL));
}

SIM_API CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    BEGIN(cuGraphExecDestroy);
    return leave(graph_delete(OBJECT_GRAPH_EXEC, handle));
}
