/* ===============================================================================================================
   >>stream - streams of the caller, events between streams, waiting for a device

   A stream of the caller has an entry with a serial number, because the driver may reuse its address. All waits go
   through here, as a wait would invalidate a capture on the same context.
   May use: >>device, >>capture. Locks: entry->lock is held while a thread waits for the stream; then a device.
   =============================================================================================================== */

#include "room.h"

/*  Adds an entry for a stream of the caller, after checking that it belongs to this device. Returns its serial, 0 on
    failure. */
IGNIS__COLD IGNIS__PRIVATE uint64_t ignis__stream_adopt(const char *call, ignis__device *device, void *stream)
{
    ignis__user_stream *user_stream;
    const ignis__capture *capture;
    uint64_t serial = 0;
    void *context = NULL;
    bool legacy = (uintptr_t)stream == IGNIS__CU_STREAM_LEGACY; /* of the current context */
    if ((uintptr_t)stream == IGNIS__CU_STREAM_PER_THREAD) {
        ignis__fail(IGNIS_DIAG_STREAM_INVALID, call,
                    "CU_STREAM_PER_THREAD (cudaStreamPerThread) names a different stream in each thread, and no thread "
                    "can wait for that "
                    "of another: "
                    "memory could not be reused safely. Make a stream for this thread with cudaStreamCreate");
        return 0;
    }
    ignis__mutex_lock(&ignis__captures.lock);
    for (capture = ignis__captures.first; capture && capture->stream != stream; capture = capture->next)
        ;
    ignis__mutex_unlock(&ignis__captures.lock);
    if (capture) {
        ignis__fail(IGNIS_DIAG_CAPTURE_REFUSED, call,
                    "stream %p belongs to a capture, and ends with ignis_graph_end. Work of the capturing thread is "
                    "put there automatically",
                    stream);
        return 0;
    }
    if (!legacy && IGNIS__CUDA_FAILED(call, device, cuStreamGetCtx, (stream, &context)))
        return 0;
    if (!legacy && context != device->context) {
        ignis__fail(IGNIS_DIAG_STREAM_INVALID, call,
                    "stream %p belongs to another device or context than device %d's primary context", stream,
                    ignis__device_ordinal(device));
        return 0;
    }
    ignis__mutex_lock(&device->lock);
    for (user_stream = device->user_streams; user_stream && user_stream->stream != stream;
         user_stream = user_stream->next)
        ;
    if (!user_stream) {
        user_stream = (ignis__user_stream *)ignis__alloc(sizeof *user_stream);
        if (user_stream) {
            ignis__mutex_init(&user_stream->lock);
            user_stream->stream = stream;
            user_stream->holds = 1;
            user_stream->serial = ignis__atomic_add(&ignis__stream_serials, 1);
            user_stream->next = device->user_streams;
            device->user_streams = user_stream;
        }
    }
    if (user_stream)
        serial = user_stream->serial;
    ignis__mutex_unlock(&device->lock);
    if (!serial)
        ignis__fail_host_memory(call, sizeof *user_stream);
    return serial;
}

/*  Recycles an event of the device. */
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__event_recycle(ignis__device *device, ignis__pooled_event *spare)
{
    ignis__mutex_lock(&device->lock);
    spare->next = device->events;
    device->events = spare;
    ignis__mutex_unlock(&device->lock);
}

/*  Records an event after the work queued on a stream. NULL on failure. ignis__event_recycle takes it back. */
IGNIS__PRIVATE ignis__pooled_event *ignis__event_record(const char *call, ignis__device *device, void *stream)
{
    ignis__pooled_event *spare;
    ignis__binding binding;
    if (!ignis__device_enter(call, device, &binding))
        return NULL;
    ignis__mutex_lock(&device->lock);
    spare = device->events;
    if (spare)
        device->events = spare->next;
    ignis__mutex_unlock(&device->lock);
    if (!spare) {
        spare = (ignis__pooled_event *)ignis__alloc_for(call, sizeof *spare);
        if (spare && IGNIS__CUDA_FAILED(call, device, cuEventCreate, (&spare->event, IGNIS__CU_EVENT_DISABLE_TIMING))) {
            ignis__free(spare);
            spare = NULL;
        }
    }
    if (spare && IGNIS__CUDA_FAILED(call, device, cuEventRecord, (spare->event, stream))) {
        ignis__event_recycle(device, spare);
        spare = NULL;
    }
    ignis__device_leave(&binding);
    return spare;
}

/*  Makes `later` wait for the work queued on `earlier`. The streams may belong to different devices. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__stream_order(const char *call, ignis__device *earlier_device, void *earlier,
                                                      ignis__device *later_device, void *later)
{
    ignis__pooled_event *spare;
    ignis__binding binding;
    bool ok;
    if (earlier_device == later_device && earlier == later)
        return true;
    spare = ignis__event_record(call, earlier_device, earlier);
    ok = spare && ignis__device_enter(call, later_device, &binding);
    if (ok) {
        ok = !IGNIS__CUDA_FAILED(call, later_device, cuStreamWaitEvent, (later, spare->event, 0));
        ignis__device_leave(&binding);
    }
    if (spare)
        ignis__event_recycle(
            earlier_device,
            spare); /* the wait refers to the record, not to the event: it can be recorded again at once */
    return ok;
}

/*  Holds and returns the next stream of the caller after `serial`. NULL if there is none. */
static ignis__user_stream *ignis__user_stream_next(ignis__device *device, uint64_t serial)
{
    ignis__user_stream *user_stream, *next = NULL;
    ignis__mutex_lock(&device->lock);
    for (user_stream = device->user_streams; user_stream; user_stream = user_stream->next)
        if (user_stream->serial > serial && (!next || user_stream->serial < next->serial))
            next = user_stream;
    if (next)
        next->holds++;
    ignis__mutex_unlock(&device->lock);
    return next;
}

/*  Finds and holds the entry of a caller's stream. NULL if there is none. */
static ignis__user_stream *ignis__user_stream_hold(ignis__device *device, const void *stream)
{
    ignis__user_stream *user_stream;
    ignis__mutex_lock(&device->lock);
    for (user_stream = device->user_streams; user_stream && user_stream->stream != stream;
         user_stream = user_stream->next)
        ;
    if (user_stream)
        user_stream->holds++;
    ignis__mutex_unlock(&device->lock);
    return user_stream;
}

IGNIS__PRIVATE void ignis__user_stream_drop(ignis__device *device, ignis__user_stream *user_stream)
{
    bool last;
    ignis__mutex_lock(&device->lock);
    last = --user_stream->holds == 0;
    ignis__mutex_unlock(&device->lock);
    if (last)
        ignis__free(user_stream);
}

/*  Joins a stream of the caller to the thread's capture, after the work queued on `from`. serial is from
    ignis__stream_adopt. First waits for threads that wait for the stream, because their wait would invalidate the
    capture. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__capture_draw(const char *call, ignis__device *device, void *from,
                                                            uint64_t serial)
{
    ignis__user_stream *user_stream = ignis__user_stream_next(device, serial - 1);
    bool ok;
    IGNIS_ASSERT(user_stream && user_stream->serial == serial);
    ignis__mutex_lock(&user_stream->lock);
    ok = ignis__stream_order(call, device, from, device, user_stream->stream);
    ignis__mutex_unlock(&user_stream->lock);
    ignis__user_stream_drop(device, user_stream);
    return ok;
}

/*  Waits for a stream, unless it is part of a capture. Returns the driver's error. */
static int ignis__stream_finish(void *stream)
{
    int captures = 0, error = IGNIS__CUDA(cuStreamIsCapturing, (stream, &captures));
    return error == 0 && !captures ? IGNIS__CUDA(cuStreamSynchronize, (stream)) : error;
}

/*  Waits for the work of an entered device. While another thread captures on its context, which such a wait would
    invalidate, or if the wait has failed, it waits for each known stream outside of captures. Returns the first
    error. The work is done also then, unless the devices are lost. */
IGNIS__COLD IGNIS__PRIVATE int ignis__device_finish(ignis__device *device)
{
    ignis__user_stream *user_stream;
    uint64_t serial = 0;
    int first = IGNIS__CU_CAPTURE_UNSUPPORTED, error;
    ignis__rwlock_read(&device->waiting);
    if (!ignis__atomic_load(&device->captures))
        first = IGNIS__CUDA(cuCtxSynchronize, ());
    ignis__rwlock_read_end(&device->waiting);
    if (first == 0 || ignis__cuda_is_fatal(first))
        return first;
    if (first == IGNIS__CU_CAPTURE_UNSUPPORTED) /* another program part may capture, too */
        first = 0;
    error = ignis__stream_finish(device->stream);
    first = first ? first : error;
    while ((user_stream = ignis__user_stream_next(device, serial)) != NULL) {
        ignis__mutex_lock(&user_stream->lock);
        error = user_stream->forgotten ? 0 : ignis__stream_finish(user_stream->stream);
        ignis__mutex_unlock(&user_stream->lock);
        first = first ? first : error;
        serial = user_stream->serial;
        ignis__user_stream_drop(device, user_stream);
    }
    return first;
}

/*  As ignis__device_finish, and reports the failure. */
IGNIS__PRIVATE bool ignis__device_wait(const char *call, ignis__device *device)
{
    return ignis__cuda_check(call, device, "cuCtxSynchronize", ignis__device_finish(device)) == IGNIS_OK;
}

IGNIS__COLD IGNIS_API ignis_status ignis_stream_use(void *stream)
{
    static const char call[] = "ignis_stream_use";
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    uint64_t serial = 0;
    bool ok;
    if (!device)
        return ignis__failed();
    if (stream == device->stream)
        stream = NULL;
    ok = !stream || (serial = ignis__stream_adopt(call, device, stream)) != 0;
    ignis__device_leave(&binding);
    if (!ok)
        return ignis__failed();
    ignis__this_thread.stream[device - ignis__devices] = stream;
    ignis__this_thread.stream_serial[device - ignis__devices] = serial;
    return IGNIS_OK;
}

IGNIS_API void *ignis_stream_current(void)
{
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter("ignis_stream_current", &binding);
    if (!device)
        return NULL;
    ignis__device_leave(&binding);
    return ignis__stream_current(device);
}

/* --- streams that Ignis makes, events of the caller ------------------------------------------------------------- */

IGNIS__COLD IGNIS_API void *ignis_stream_create(const ignis_stream_desc *desc)
{
    static const char call[] = "ignis_stream_create";
    void *stream = NULL;
    int priority = desc ? desc->priority : 0; /* the driver's are the other way round */
    ignis__user_stream *user_stream;
    uint64_t serial;
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    if (!device)
        return NULL;
    if (!IGNIS__CUDA_FAILED(call, device, cuStreamCreateWithPriority,
                            (&stream, IGNIS__CU_STREAM_NON_BLOCKING, priority < -INT_MAX ? INT_MAX : -priority))) {
        serial = ignis__stream_adopt(call, device, stream);
        user_stream = serial ? ignis__user_stream_next(device, serial - 1) : NULL;
        if (user_stream) {
            user_stream->created = true;
            ignis__user_stream_drop(device, user_stream);
        } else {
            (void)IGNIS__CUDA(cuStreamDestroy_v2, (stream));
            stream = NULL;
        }
    }
    ignis__device_leave(&binding);
    return stream;
}

/*  Reports streams that ignis__device_close will free. */
IGNIS__COLD IGNIS__PRIVATE void ignis__streams_leaked(const char *call)
{
    const ignis__user_stream *user_stream;
    int i;
    for (i = 0; i < ignis__device_total; i++)
        for (user_stream = ignis__devices[i].user_streams; user_stream; user_stream = user_stream->next)
            if (user_stream->created)
                ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "stream %p of device %d, of ignis_stream_create",
                                   user_stream->stream, i);
}

static bool ignis__stream_known(ignis__device *device, const void *stream)
{
    const ignis__capture *capture = ignis__capture_on(device);
    const ignis__user_stream *user_stream;
    if (!ignis__atomic_load(&device->opened))
        return false;
    if (stream == device->stream || (capture && stream == capture->stream))
        return true;
    ignis__mutex_lock(&device->lock);
    for (user_stream = device->user_streams; user_stream && user_stream->stream != stream;
         user_stream = user_stream->next)
        ;
    ignis__mutex_unlock(&device->lock);
    return user_stream != NULL;
}

/*  Enters the device of a stream argument: the stream's device if Ignis knows the stream, else the current device if
    the stream belongs to it. A stream of NULL becomes the current one. NULL, and reported, on failure. */
IGNIS__PRIVATE ignis__device *ignis__stream_enter(const char *call, void **stream, ignis__binding *binding)
{
    ignis__device *device = ignis__device_current_enter(call, binding);
    int i;
    if (!device)
        return NULL;
    if (!*stream)
        *stream = ignis__stream_current(device);
    if (ignis__stream_known(device, *stream))
        return device;
    for (i = 0; i < ignis__device_total && (uintptr_t)*stream != IGNIS__CU_STREAM_LEGACY;
         i++) { /* each device has one of that name */
        if (ignis__stream_known(&ignis__devices[i], *stream)) {
            ignis__device_leave(binding);
            return ignis__device_enter(call, &ignis__devices[i], binding) ? &ignis__devices[i] : NULL;
        }
    }
    if (ignis__stream_adopt(call, device, *stream))
        return device;
    ignis__device_leave(binding);
    return NULL;
}

/*  Checks whether any thread captures a stream. */
IGNIS__PRIVATE bool ignis__stream_captured(const char *call, ignis__device *device, void *stream, bool *captured)
{
    int status = 0;
    bool ok = !ignis__atomic_load(&device->captures) ||
              !IGNIS__CUDA_FAILED(call, device, cuStreamIsCapturing, (stream, &status));
    *captured = status != 0;
    return ok;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__fail_captured(const char *call, const char *what)
{
    return ignis__fail_false(IGNIS_DIAG_CAPTURE_REFUSED, call, "%s", what);
}

/*  Makes a stream of an entered device wait for an event. captured: the event was recorded in a capture, which the
    stream then joins. First waits for threads that wait for the stream, because their wait would invalidate the
    capture. */
IGNIS__PRIVATE bool ignis__stream_await(const char *call, ignis__device *device, void *stream, void *event,
                                        bool captured)
{
    ignis__user_stream *user_stream;
    uint64_t serial;
    bool joined, ok;
    if (!ignis__stream_captured(call, device, stream, &joined))
        return false;
    if (captured == joined)
        return !IGNIS__CUDA_FAILED(call, device, cuStreamWaitEvent, (stream, event, 0));
    if (joined)
        return ignis__fail_captured(call, "the stream is captured, and cannot wait for work outside of the capture");
    if (!ignis__capture_on(device) || stream == device->stream || (uintptr_t)stream == IGNIS__CU_STREAM_LEGACY)
        return ignis__fail_captured(
            call, "the other stream or event is captured: only streams of the caller, on the capture's device and "
                  "used by its thread, can join a capture");
    serial = ignis__stream_adopt(call, device, stream);
    user_stream = serial ? ignis__user_stream_next(device, serial - 1) : NULL;
    if (!user_stream)
        return false;
    ignis__mutex_lock(&user_stream->lock);
    ok = !IGNIS__CUDA_FAILED(call, device, cuStreamWaitEvent, (stream, event, 0));
    ignis__mutex_unlock(&user_stream->lock);
    ignis__user_stream_drop(device, user_stream);
    return ok;
}

IGNIS_API ignis_status ignis_stream_query(void *stream, bool *done)
{
    static const char call[] = "ignis_stream_query";
    ignis__user_stream *user_stream;
    ignis__device *device;
    ignis__binding binding;
    bool captured, ok = false;
    int error;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "done", done))
        return ignis__failed();
    device = ignis__stream_enter(call, &stream, &binding);
    if (!device)
        return ignis__failed();
    user_stream = ignis__user_stream_hold(device, stream);
    if (user_stream &&
        !ignis__mutex_try(
            &user_stream->lock)) { /* a thread waits for it, or draws it into a capture, which a question would spoil */
        *done = false;
        ok = true;
    } else {
        if (ignis__stream_captured(call, device, stream, &captured)) {
            error = captured ? IGNIS__CU_CAPTURE_UNSUPPORTED : IGNIS__CUDA(cuStreamQuery, (stream));
            *done = error == 0;
            ok = captured
                     ? ignis__fail_captured(call, "the stream is captured: its work runs at each launch of the graph")
                     : error == IGNIS__CU_NOT_READY ||
                           ignis__cuda_check(call, device, "cuStreamQuery", error) == IGNIS_OK;
        }
        if (user_stream)
            ignis__mutex_unlock(&user_stream->lock);
    }
    if (user_stream)
        ignis__user_stream_drop(device, user_stream);
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_stream_wait(void *stream, void *other)
{
    static const char call[] = "ignis_stream_wait";
    ignis__device *earlier = NULL, *later;
    ignis__pooled_event *spare = NULL;
    ignis__binding binding;
    bool captured = false, ok;
    later = ignis__stream_enter(call, &stream, &binding);
    if (!later)
        return ignis__failed();
    ignis__device_leave(&binding);
    earlier = ignis__stream_enter(call, &other, &binding);
    if (!earlier)
        return ignis__failed();
    ok = ignis__stream_captured(call, earlier, other, &captured);
    if (ok && (earlier != later || stream != other))
        ok = (spare = ignis__event_record(call, earlier, other)) != NULL;
    ignis__device_leave(&binding);
    if (!spare || !ignis__device_enter(call, later, &binding)) {
        if (spare)
            ignis__event_recycle(earlier, spare);
        return ok && !spare ? IGNIS_OK : ignis__failed();
    }
    ok = ignis__stream_await(call, later, stream, spare->event, captured);
    ignis__device_leave(&binding);
    ignis__event_recycle(earlier, spare);
    return ok ? IGNIS_OK : ignis__failed();
}
