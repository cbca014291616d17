/* ===============================================================================================================
   >>stream - streams of the caller, events between streams, waiting for a device.
   =============================================================================================================== */

/*  Writes a stream of the caller down, after checking that it is one of this device. 0: it is not. */
IGNIS__COLD static uint64_t ignis__stream_adopt(const char *call, ignis__device *device, void *stream)
{
    ignis__user_stream *foreign;
    const ignis__capture *capture;
    uint64_t serial = 0;
    void *context = NULL;
    bool legacy = (uintptr_t)stream == IGNIS__CU_STREAM_LEGACY; /* of the current context */
    if ((uintptr_t)stream == IGNIS__CU_STREAM_PER_THREAD) {
        ignis__fail(
            IGNIS_DIAG_STREAM_INVALID, call,
            "CU_STREAM_PER_THREAD (cudaStreamPerThread) is another stream in each thread, and no thread can wait for that of another: "
            "memory could not be handed on safely. Make a stream for this thread with cudaStreamCreate");
        return 0;
    }
    ignis__mutex_lock(&ignis__captures.lock);
    for (capture = ignis__captures.first; capture && capture->stream != stream; capture = capture->next)
        ;
    ignis__mutex_unlock(&ignis__captures.lock);
    if (capture) {
        ignis__fail(IGNIS_DIAG_CAPTURE_REFUSED, call,
                    "stream %p is that of a capture, and goes with ignis_graph_end. Work of the thread that captures goes there by itself",
                    stream);
        return 0;
    }
    if (!legacy && IGNIS__CUDA_FAILED(call, device, cuStreamGetCtx, (stream, &context)))
        return 0;
    if (!legacy && context != device->context) {
        ignis__fail(IGNIS_DIAG_STREAM_INVALID, call, "stream %p belongs to another device or context than device %d's primary context",
                    stream, ignis__device_ordinal(device));
        return 0;
    }
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign && foreign->stream != stream; foreign = foreign->next)
        ;
    if (!foreign) {
        foreign = (ignis__user_stream *)ignis__alloc(sizeof *foreign);
        if (foreign) {
            ignis__mutex_init(&foreign->lock);
            foreign->stream = stream;
            foreign->holds = 1;
            foreign->serial = ignis__atomic_add(&ignis__stream_serials, 1);
            foreign->next = device->foreign;
            device->foreign = foreign;
        }
    }
    if (foreign)
        serial = foreign->serial;
    ignis__mutex_unlock(&device->lock);
    if (!serial)
        ignis__fail_host_memory(call, sizeof *foreign);
    return serial;
}

/*  Keeps an event of the device for the next one who needs one. */
IGNIS__ONE_COPY static void ignis__event_recycle(ignis__device *device, ignis__pooled_event *spare)
{
    ignis__mutex_lock(&device->lock);
    spare->next = device->events;
    device->events = spare;
    ignis__mutex_unlock(&device->lock);
}

/*  An event behind what is queued on a stream now; null on failure. ignis__event_recycle takes it back. */
static ignis__pooled_event *ignis__event_record(const char *call, ignis__device *device, void *stream)
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

/*  Makes `later` wait for what is queued on `earlier` now. The streams may be of different devices. */
static bool ignis__stream_order(const char *call, ignis__device *earlier_device, void *earlier, ignis__device *later_device, void *later)
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
        ignis__event_recycle(earlier_device, spare); /* the wait refers to the record, not to the event: it can be recorded again at once */
    return ok;
}

/*  The stream of the caller that comes next after `serial`, held; null: there is none. */
static ignis__user_stream *ignis__user_stream_next(ignis__device *device, uint64_t serial)
{
    ignis__user_stream *foreign, *next = NULL;
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign; foreign = foreign->next)
        if (foreign->serial > serial && (!next || foreign->serial < next->serial))
            next = foreign;
    if (next)
        next->holds++;
    ignis__mutex_unlock(&device->lock);
    return next;
}

/*  What is known of a stream of the caller, held; null: it is none. */
static ignis__user_stream *ignis__user_stream_hold(ignis__device *device, const void *stream)
{
    ignis__user_stream *foreign;
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign && foreign->stream != stream; foreign = foreign->next)
        ;
    if (foreign)
        foreign->holds++;
    ignis__mutex_unlock(&device->lock);
    return foreign;
}

static void ignis__user_stream_drop(ignis__device *device, ignis__user_stream *foreign)
{
    bool last;
    ignis__mutex_lock(&device->lock);
    last = --foreign->holds == 0;
    ignis__mutex_unlock(&device->lock);
    if (last)
        ignis__free(foreign);
}

/*  Draws a stream of the caller into the thread's capture, behind what that has queued on `from`; serial: what ignis__stream_adopt gave. A
    thread that waits for the stream is waited for, as its wait would spoil the capture. */
IGNIS__MAYBE_UNUSED static bool ignis__capture_draw(const char *call, ignis__device *device, void *from, uint64_t serial)
{
    ignis__user_stream *foreign = ignis__user_stream_next(device, serial - 1);
    bool ok;
    IGNIS_ASSERT(foreign && foreign->serial == serial);
    ignis__mutex_lock(&foreign->lock);
    ok = ignis__stream_order(call, device, from, device, foreign->stream);
    ignis__mutex_unlock(&foreign->lock);
    ignis__user_stream_drop(device, foreign);
    return ok;
}

/*  Waits for a stream, unless a capture has drawn it in. Returns the driver's error. */
static int ignis__stream_finish(void *stream)
{
    int captures = 0, error = IGNIS__CUDA(cuStreamIsCapturing, (stream, &captures));
    return error == 0 && !captures ? IGNIS__CUDA(cuStreamSynchronize, (stream)) : error;
}

/*  Waits for the work of an entered device. While a thread captures on its context, which a wait would spoil, or when that wait has failed: for
    each known stream that no capture has drawn in. Returns the first error; the work is through also then, unless the devices are lost. */
IGNIS__COLD static int ignis__device_finish(ignis__device *device)
{
    ignis__user_stream *foreign;
    uint64_t serial = 0;
    int first = IGNIS__CU_CAPTURE_UNSUPPORTED, error;
    ignis__rwlock_read(&device->waiting);
    if (!ignis__atomic_load(&device->captures))
        first = IGNIS__CUDA(cuCtxSynchronize, ());
    ignis__rwlock_read_end(&device->waiting);
    if (first == 0 || ignis__cuda_is_fatal(first))
        return first;
    if (first == IGNIS__CU_CAPTURE_UNSUPPORTED) /* others may capture, too */
        first = 0;
    error = ignis__stream_finish(device->stream);
    first = first ? first : error;
    while ((foreign = ignis__user_stream_next(device, serial)) != NULL) {
        ignis__mutex_lock(&foreign->lock);
        error = foreign->forgotten ? 0 : ignis__stream_finish(foreign->stream);
        ignis__mutex_unlock(&foreign->lock);
        first = first ? first : error;
        serial = foreign->serial;
        ignis__user_stream_drop(device, foreign);
    }
    return first;
}

/*  The same, where the failure is to be reported. */
static bool ignis__device_wait(const char *call, ignis__device *device)
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
    return ignis__stream_now(device);
}

/* --- streams that Ignis makes, events of the caller -------------------------------------------------------------------- */

IGNIS__COLD IGNIS_API void *ignis_stream_create(const ignis_stream_desc *desc)
{
    static const char call[] = "ignis_stream_create";
    void *stream = NULL;
    int priority = desc ? desc->priority : 0; /* the driver's are the other way round */
    ignis__user_stream *foreign;
    uint64_t serial;
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    if (!device)
        return NULL;
    if (!IGNIS__CUDA_FAILED(call, device, cuStreamCreateWithPriority,
                            (&stream, IGNIS__CU_STREAM_NON_BLOCKING, priority < -INT_MAX ? INT_MAX : -priority))) {
        serial = ignis__stream_adopt(call, device, stream);
        foreign = serial ? ignis__user_stream_next(device, serial - 1) : NULL;
        if (foreign) {
            foreign->created = true;
            ignis__user_stream_drop(device, foreign);
        } else {
            (void)IGNIS__CUDA(cuStreamDestroy_v2, (stream));
            stream = NULL;
        }
    }
    ignis__device_leave(&binding);
    return stream;
}

/*  Names those that ignis_device_close frees. */
IGNIS__COLD static void ignis__streams_leaked(const char *call)
{
    const ignis__user_stream *foreign;
    int i;
    for (i = 0; i < ignis__device_total; i++)
        for (foreign = ignis__devices[i].foreign; foreign; foreign = foreign->next)
            if (foreign->created)
                ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "stream %p of device %d, of ignis_stream_create", foreign->stream, i);
}

static bool ignis__stream_known(ignis__device *device, const void *stream)
{
    const ignis__capture *capture = ignis__capture_on(device);
    const ignis__user_stream *foreign;
    if (!ignis__atomic_load(&device->opened))
        return false;
    if (stream == device->stream || (capture && stream == capture->stream))
        return true;
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign && foreign->stream != stream; foreign = foreign->next)
        ;
    ignis__mutex_unlock(&device->lock);
    return foreign != NULL;
}

/*  The device of a stream that a call names, entered: of one that Ignis knows, or else the current one if it is of that. null, and
    reported, when there is none. A stream of null becomes the current one. */
static ignis__device *ignis__stream_enter(const char *call, void **stream, ignis__binding *binding)
{
    ignis__device *device = ignis__device_current_enter(call, binding);
    int i;
    if (!device)
        return NULL;
    if (!*stream)
        *stream = ignis__stream_now(device);
    if (ignis__stream_known(device, *stream))
        return device;
    for (i = 0; i < ignis__device_total && (uintptr_t)*stream != IGNIS__CU_STREAM_LEGACY; i++) { /* each device has one of that name */
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

/*  Whether a stream is captured, by whatever thread. */
static bool ignis__stream_captured(const char *call, ignis__device *device, void *stream, bool *captured)
{
    int status = 0;
    bool ok = !ignis__atomic_load(&device->captures) || !IGNIS__CUDA_FAILED(call, device, cuStreamIsCapturing, (stream, &status));
    *captured = status != 0;
    return ok;
}

IGNIS__COLD static bool ignis__fail_captured(const char *call, const char *what)
{
    return ignis__fail_false(IGNIS_DIAG_CAPTURE_REFUSED, call, "%s", what);
}

/*  Makes a stream of an entered device wait for an event; captured: one recorded in a capture, which the stream then joins. A thread that
    waits for the stream is waited for, as its wait would spoil the capture. */
static bool ignis__stream_await(const char *call, ignis__device *device, void *stream, void *event, bool captured)
{
    ignis__user_stream *foreign;
    uint64_t serial;
    bool joined, ok;
    if (!ignis__stream_captured(call, device, stream, &joined))
        return false;
    if (captured == joined)
        return !IGNIS__CUDA_FAILED(call, device, cuStreamWaitEvent, (stream, event, 0));
    if (joined)
        return ignis__fail_captured(call, "the stream is captured, and cannot wait for what is outside of the capture");
    if (!ignis__capture_on(device) || stream == device->stream || (uintptr_t)stream == IGNIS__CU_STREAM_LEGACY)
        return ignis__fail_captured(call,
                                    "what is to be waited for is captured: only other streams of the caller, on the capture's device and "
                                    "at the hand of its thread, join a capture");
    serial = ignis__stream_adopt(call, device, stream);
    foreign = serial ? ignis__user_stream_next(device, serial - 1) : NULL;
    if (!foreign)
        return false;
    ignis__mutex_lock(&foreign->lock);
    ok = !IGNIS__CUDA_FAILED(call, device, cuStreamWaitEvent, (stream, event, 0));
    ignis__mutex_unlock(&foreign->lock);
    ignis__user_stream_drop(device, foreign);
    return ok;
}

IGNIS_API ignis_status ignis_stream_query(void *stream, bool *done)
{
    static const char call[] = "ignis_stream_query";
    ignis__user_stream *foreign;
    ignis__device *device;
    ignis__binding binding;
    bool captured, ok = false;
    int error;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "done", done))
        return ignis__failed();
    device = ignis__stream_enter(call, &stream, &binding);
    if (!device)
        return ignis__failed();
    foreign = ignis__user_stream_hold(device, stream);
    if (foreign &&
        !ignis__mutex_try(&foreign->lock)) { /* a thread waits for it, or draws it into a capture, which a question would spoil */
        *done = false;
        ok = true;
    } else {
        if (ignis__stream_captured(call, device, stream, &captured)) {
            error = captured ? IGNIS__CU_CAPTURE_UNSUPPORTED : IGNIS__CUDA(cuStreamQuery, (stream));
            *done = error == 0;
            ok = captured ? ignis__fail_captured(call, "the stream is captured: its work runs at each launch of the graph")
                          : error == IGNIS__CU_NOT_READY || ignis__cuda_check(call, device, "cuStreamQuery", error) == IGNIS_OK;
        }
        if (foreign)
            ignis__mutex_unlock(&foreign->lock);
    }
    if (foreign)
        ignis__user_stream_drop(device, foreign);
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
