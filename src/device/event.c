/*  device/event.c - events of the caller: created, recorded, queried, timed, freed

    May use: stream.c, capture.c. Invariant: an event of a capture is used only by ignis_stream_wait_event until it
    is recorded again.
    Locks: an event's slot, then a stream of the caller, then a device. */

#include "room.h"

typedef struct ignis__event {
    ignis__slot slot; /* its lock is held while the event is recorded or queried */
    ignis__device *device;
    void *event;
    bool recorded;
    uint64_t capture; /* serial of the capture in which it was last recorded, or 0 */
} ignis__event;

static ignis__pool ignis__events = IGNIS__POOL(ignis__event, IGNIS__KIND_EVENT, "event", IGNIS_DIAG_EVENT_FREED);

IGNIS__COLD IGNIS_API ignis_event ignis_event_create(void)
{
    static const char call[] = "ignis_event_create";
    ignis_event handle = IGNIS__ZERO;
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    ignis__event *event = device ? (ignis__event *)ignis__pool_take_zeroed(call, &ignis__events) : NULL;
    if (event && IGNIS__CUDA_FAILED(call, device, cuEventCreate, (&event->event, IGNIS__CU_EVENT_DEFAULT))) {
        ignis__pool_recycle(&ignis__events, event);
    } else if (event) {
        event->device = device;
        handle.id = ignis__pool_publish(&ignis__events, event);
    }
    if (device)
        ignis__device_leave(&binding);
    return handle;
}

static void ignis__event_drop(ignis__event *event)
{
    if (ignis__pool_drop(event)) {
        (void)IGNIS__CUDA(cuEventDestroy_v2, (event->event)); /* after a fault there is nothing more to say */
        ignis__pool_recycle(&ignis__events, event);
    }
}

/*  Holds the event of a handle and enters its device. NULL, and reported, on failure. */
static ignis__event *ignis__event_enter(const char *call, ignis_event handle, ignis__binding *binding)
{
    ignis__event *event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    if (event && !ignis__device_enter(call, event->device, binding)) {
        ignis__event_drop(event);
        event = NULL;
    }
    return event;
}

static ignis_status ignis__event_leave(ignis__event *event, const ignis__binding *binding, bool ok)
{
    ignis__device_leave(binding);
    ignis__event_drop(event);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Queries a locked event of work outside of captures. *error is the driver's, IGNIS__CU_NOT_READY while work goes
    on. False if reported. */
static bool ignis__event_query(const char *call, ignis__event *event, int *error)
{
    if (event->capture)
        return ignis__fail_captured(
            call, "the event was recorded in a capture: it is a point of the graph, until it is recorded again");
    *error = IGNIS__CUDA(cuEventQuery, (event->event));
    return *error == IGNIS__CU_NOT_READY || ignis__cuda_check(call, event->device, "cuEventQuery", *error) == IGNIS_OK;
}

IGNIS_API ignis_status ignis_event_record(ignis_event handle, void *stream)
{
    static const char call[] = "ignis_event_record";
    ignis__binding binding;
    ignis__event *event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    ignis__device *device = event ? ignis__stream_enter(call, &stream, &binding) : NULL;
    const ignis__capture *capture;
    bool captured, ok = false;
    if (!event)
        return ignis__failed();
    if (!device) {
        ignis__event_drop(event);
        return ignis__failed();
    }
    if (device != event->device) {
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "the event is of device %d, the stream of device %d",
                    ignis__device_ordinal(event->device), ignis__device_ordinal(device));
    } else if (ignis__stream_captured(call, device, stream, &captured)) {
        capture = captured ? ignis__capture_on(device) : NULL;
        ok = captured == (capture != NULL) || ignis__fail_captured(call, "another thread captures the stream");
        ignis__mutex_lock(&event->slot.lock);
        ok = ok && !IGNIS__CUDA_FAILED(call, device, cuEventRecord, (event->event, stream));
        if (ok) {
            event->recorded = true;
            event->capture = capture ? capture->serial : 0;
        }
        ignis__mutex_unlock(&event->slot.lock);
    }
    return ignis__event_leave(event, &binding, ok);
}

IGNIS_API ignis_status ignis_event_query(ignis_event handle, bool *done)
{
    static const char call[] = "ignis_event_query";
    ignis__binding binding;
    ignis__event *event = ignis__event_enter(call, handle, &binding);
    int error = 0;
    bool ok;
    if (!event)
        return ignis__failed();
    ignis__mutex_lock(&event->slot.lock);
    ok = ignis__check_not_null(call, "done", done) && ignis__event_query(call, event, &error);
    ignis__mutex_unlock(&event->slot.lock);
    if (done)
        *done = ok && error == 0;
    return ignis__event_leave(event, &binding, ok);
}

IGNIS_API ignis_status ignis_event_wait(ignis_event handle)
{
    static const char call[] = "ignis_event_wait";
    ignis__binding binding;
    ignis__event *event = ignis__event_enter(call, handle, &binding);
    int error = 0;
    bool ok;
    if (!event)
        return ignis__failed();
    ignis__mutex_lock(&event->slot.lock);
    ok = ignis__event_query(call, event, &error);
    ignis__mutex_unlock(&event->slot.lock);
    if (ok && error != 0)
        ok = !IGNIS__CUDA_FAILED(call, event->device, cuEventSynchronize, (event->event));
    return ignis__event_leave(event, &binding, ok);
}

IGNIS_API ignis_status ignis_event_elapsed_ms(ignis_event first, ignis_event last, double *ms)
{
    static const char call[] = "ignis_event_elapsed_ms";
    ignis_event handles[] = {first, last};
    ignis__event *events[2] = {NULL, NULL};
    ignis__binding bindings[2];
    float elapsed = 0;
    int i, error = 0;
    bool ok = true;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "ms", ms))
        return ignis__failed();
    for (i = 0; ok && i < 2; i++) {
        events[i] = ignis__event_enter(call, handles[i], &bindings[i]);
        ok = events[i] != NULL;
        if (!ok)
            break;
        ignis__mutex_lock(&events[i]->slot.lock);
        ok = ignis__event_query(call, events[i], &error);
        if (ok && (error != 0 || !events[i]->recorded))
            ok = ignis__fail_false(IGNIS_DIAG_EVENT_STATE, call, "the %s event %s", i ? "last" : "first",
                                   error ? "is not done: wait for it, or query it with ignis_event_query"
                                         : "was never recorded");
        ignis__mutex_unlock(&events[i]->slot.lock);
    }
    if (ok && events[0]->device != events[1]->device)
        ok = ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call, "the events are of device %d and device %d",
                               ignis__device_ordinal(events[0]->device), ignis__device_ordinal(events[1]->device));
    ok = ok && !IGNIS__CUDA_FAILED(call, events[0]->device, cuEventElapsedTime,
                                   (&elapsed, events[0]->event, events[1]->event));
    for (i = 1; i >= 0; i--)
        if (events[i])
            (void)ignis__event_leave(events[i], &bindings[i], true);
    if (ok)
        *ms = (double)elapsed;
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_event_free(ignis_event handle)
{
    static const char call[] = "ignis_event_free";
    const uint64_t failures = ignis__failures();
    ignis__event *event;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    if (!event)
        return ignis__failed();
    live = ignis__handle_kill(event);
    if (!live)
        ignis__fail_stale(call, &ignis__events, handle.id);
    ignis__event_drop(event);
    return ignis__ended(failures, live);
}

IGNIS__COLD IGNIS__PRIVATE void ignis__events_close(const char *call)
{
    ignis__event *event;
    uint64_t index = 0;
    while ((event = (ignis__event *)ignis__pool_next(&ignis__events, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "event of device %d", ignis__device_ordinal(event->device));
        ignis__handle_kill(event);
        ignis__event_drop(event);
    }
}

IGNIS_API ignis_status ignis_stream_wait_event(void *stream, ignis_event handle)
{
    static const char call[] = "ignis_stream_wait_event";
    ignis__binding binding;
    ignis__event *event = (ignis__event *)ignis__handle_hold(call, &ignis__events, handle.id);
    ignis__device *device = event ? ignis__stream_enter(call, &stream, &binding) : NULL;
    const ignis__capture *capture = ignis__capturing();
    bool ok;
    if (!event)
        return ignis__failed();
    if (!device) {
        ignis__event_drop(event);
        return ignis__failed();
    }
    ignis__mutex_lock(&event->slot.lock);
    if (event->capture && !(capture && capture->serial == event->capture))
        ok = ignis__fail_captured(call, "the event was recorded in a capture that is over, or another thread's");
    else
        ok = !event->recorded || ignis__stream_await(call, device, stream, event->event, event->capture != 0);
    ignis__mutex_unlock(&event->slot.lock);
    return ignis__event_leave(event, &binding, ok);
}
