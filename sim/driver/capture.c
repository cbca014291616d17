// SPDX-License-Identifier: MIT
/*  capture.c - stream capture: work goes into a graph instead of the queue

    A capture begins in one stream. Other streams join it when they wait for an event of it. An unsafe call
    invalidates every capture that its thread's mode concerns. The end of an invalid capture returns the code.
*/
#include "driver.h"

void capture_release(sim_capture *capture)
{
    if (!capture || --capture->references)
        return;
    if (capture->plan)
        plan_release(capture->plan);
    free(capture);
}

/* Invalidates the capture, so that its end fails. Returns `code`. */
int capture_break(sim_capture *capture, int code)
{
    capture->invalid = 1;
    return code;
}

void stream_leave_capture(sim_stream *stream)
{
    sim_capture *capture = stream->capture;
    if (!capture)
        return;
    if (capture->origin == stream)
        capture->origin = NULL, capture->invalid = 1;
    stream->capture = NULL;
    free(stream->last.numbers);
    stream->last = (sim_nodes){0};
    capture_release(capture);
}

/* Tells whether the mode of this thread lets its calls invalidate the capture. */
static int capture_concerns(const sim_capture *capture)
{
    if (capture->mode == CAPTURE_RELAXED || thread.capture_mode == CAPTURE_RELAXED)
        return 0;
    if (pthread_equal(capture->thread, pthread_self()))
        return 1;
    return capture->mode == CAPTURE_GLOBAL && thread.capture_mode == CAPTURE_GLOBAL;
}

/* Invalidates the captures that an unsafe call could disturb. */
int capture_forbids(void)
{
    int code = SUCCESS;
    for (int i = 0; i < sim.device_count; i++)
        for (sim_stream *stream = sim.contexts[i].streams; stream; stream = stream->next)
            if (stream->capture && stream->capture->origin == stream && capture_concerns(stream->capture))
                code = capture_break(stream->capture, ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return code;
}

/* Fails if a blocking stream is captured: the legacy stream waits for blocking streams, and a captured one
   cannot be waited for. */
int capture_check_legacy(sim_stream *stream)
{
    if (stream != stream->context->null_stream)
        return SUCCESS;
    for (sim_stream *other = stream->context->streams; other; other = other->next)
        if (other->capture && !(other->flags & 1))
            return capture_break(other->capture, ERROR_STREAM_CAPTURE_IMPLICIT);
    return SUCCESS;
}

int capture_check(sim_stream *stream)
{
    if (stream->capture)
        return stream->capture->invalid ? ERROR_STREAM_CAPTURE_INVALIDATED : SUCCESS;
    return capture_check_legacy(stream);
}

/* Fails for calls that wait for a captured stream or query it. */
int capture_forbids_wait(sim_stream *stream)
{
    if (stream->capture)
        return capture_break(stream->capture, ERROR_STREAM_CAPTURE_UNSUPPORTED);
    int code = capture_check_legacy(stream);
    return code ? code : capture_forbids();
}

/* As capture_forbids_wait, for events. An event recorded in an ended capture has no meaning. */
int capture_forbids_event(sim_event *event)
{
    if (!event->capture)
        return capture_forbids();
    if (!event->capture->origin)
        return ERROR_INVALID_VALUE;
    return capture_break(event->capture, ERROR_CAPTURED_EVENT);
}

static int nodes_add(sim_nodes *nodes, int number)
{
    for (int i = 0; i < nodes->count; i++)
        if (nodes->numbers[i] == number)
            return 1;
    int *numbers = realloc(nodes->numbers, (size_t)(nodes->count + 1) * sizeof *numbers);
    if (!numbers)
        return 0;
    nodes->numbers = numbers;
    numbers[nodes->count++] = number;
    return 1;
}

static int nodes_add_all(sim_nodes *nodes, const sim_nodes *more)
{
    for (int i = 0; i < more->count; i++)
        if (!nodes_add(nodes, more->numbers[i]))
            return 0;
    return 1;
}

static int plan_grow(sim_plan *plan)
{
    if (plan->count < plan->room)
        return 1;
    int room = plan->room ? plan->room * 2 : 16;
    void *nodes = realloc(plan->nodes, (size_t)room * sizeof *plan->nodes);
    if (!nodes)
        return 0;
    plan->nodes = nodes;
    plan->room = room;
    return 1;
}

/* Adds a node after the last ones of the stream, and makes it the last. */
int capture_add(sim_stream *stream, sim_work *work)
{
    sim_plan *plan = stream->capture->plan;
    sim_nodes last = {0};
    if (!plan_grow(plan) || !nodes_add(&last, plan->count)) {
        work_release(work);
        return capture_break(stream->capture, ERROR_OUT_OF_MEMORY);
    }
    plan->nodes[plan->count].work = *work;
    plan->nodes[plan->count].after = stream->last;
    plan->count++;
    stream->last = last;
    return SUCCESS;
}

int capture_record(sim_stream *stream, sim_event *event)
{
    sim_nodes last = {0};
    if (stream->capture->invalid)
        return ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!nodes_add_all(&last, &stream->last))
        return free(last.numbers), ERROR_OUT_OF_MEMORY;
    event_forget(event);
    event->capture = stream->capture;
    event->capture->references++;
    event->last = last;
    return SUCCESS;
}

/* Makes a stream that waits for a captured event join the capture. */
int capture_join(sim_stream *stream, sim_event *event)
{
    sim_capture *capture = event->capture;
    if (!capture->origin)
        return ERROR_INVALID_VALUE;
    if (capture->invalid)
        return ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream == stream->context->null_stream)
        return capture_break(capture, ERROR_STREAM_CAPTURE_IMPLICIT);
    if (stream->capture && stream->capture != capture) {
        capture_break(stream->capture, SUCCESS);
        return capture_break(capture, ERROR_STREAM_CAPTURE_MERGE);
    }
    if (!stream->capture)
        stream->capture = capture, capture->references++;
    return nodes_add_all(&stream->last, &event->last) ? SUCCESS : capture_break(capture, ERROR_OUT_OF_MEMORY);
}

/* Tells whether every node is one of `last`, or before one of them. */
int plan_joined(const sim_plan *plan, const sim_nodes *last)
{
    char *reached = calloc((size_t)plan->count + 1, 1);
    int joined = reached != NULL;
    for (int i = 0; joined && i < last->count; i++)
        reached[last->numbers[i]] = 1;
    for (int i = plan->count; joined && i-- > 0;) { /* a node depends only on nodes with lower numbers */
        const sim_nodes *after = &plan->nodes[i].after;
        joined = reached[i];
        for (int j = 0; j < after->count; j++)
            reached[after->numbers[j]] = 1;
    }
    free(reached);
    return joined;
}

sim_capture *capture_new(sim_stream *stream, int mode)
{
    sim_capture *capture = calloc(1, sizeof *capture);
    sim_plan *plan = calloc(1, sizeof *plan);
    if (!capture || !plan)
        return free(capture), free(plan), NULL;
    plan->references = 1;
    *capture = (sim_capture){
        .references = 1, .id = ++sim.next_id, .origin = stream, .mode = mode, .thread = pthread_self(), .plan = plan};
    return capture;
}

/* Ends a capture: its streams run work again. The caller keeps a reference of its own. */
void capture_end(sim_capture *capture)
{
    for (int i = 0; i < sim.device_count; i++)
        for (sim_stream *stream = sim.contexts[i].streams; stream; stream = stream->next)
            if (stream->capture == capture)
                stream_leave_capture(stream);
}
