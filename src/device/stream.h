/* >>stream - streams, events, waiting for a device -------------------------------------------------------------- */

/*  ignis_stream_use - put the calling thread's work on the current device into the caller's cudaStream_t or CUstream
    null selects Ignis' own stream again, which is a blocking one: ordered with the legacy default stream of cudart
    code. cudaStreamLegacy is accepted. cudaStreamPerThread is not: one handle names a different stream in each
    thread. In a program compiled with --default-stream per-thread, cudart calls use it by default; give each thread
    that uses Ignis a stream of cudaStreamCreate.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (the stream is of another device, or the per-thread one), UNSUPPORTED (it is being captured),
    CUDA.
    Ownership: the stream stays the caller's; call ignis_stream_forget before destroying it.
    Threads: any; each has its own current stream per device. */
IGNIS_API ignis_status ignis_stream_use(void *stream);

/*  ignis_stream_current - return the stream of the calling thread's work on the current device
    Returns: a CUstream (also a cudaStream_t), null on failure.
    Errors: NOT_SETUP, DEVICE, CUDA.
    Ownership: unchanged.
    Threads: any; each has its own current stream. */
IGNIS_API void *ignis_stream_current(void);

/*  ignis_stream_forget - wait for a stream and stop using it; call it before you destroy the stream
    Memory of arrays made on it moves to Ignis' own stream. A thread whose current stream it is returns to Ignis' own
    stream at its next call.
    Returns: IGNIS_OK; also for a stream that Ignis never saw.
    Errors: ARGUMENT (null, or a stream of ignis_stream_create, which ignis_stream_free forgets), UNSUPPORTED (this
    thread captures a graph), CUDA.
    Ownership: the stream stays the caller's.
    Threads: any. Waits for the stream. */
IGNIS_API ignis_status ignis_stream_forget(void *stream);

typedef struct ignis_stream_desc {
    int priority; /* above 0: the device prefers its work; higher is stronger (0, as other streams) */
} ignis_stream_desc;

/*  ignis_stream_create - create a stream of the current device, for ignis_stream_use and ignis_array_desc.stream;
    desc may be null
    It is ordered with no other stream (cudaStreamNonBlocking). This is slow: create streams when a program starts.
    Returns: a CUstream (also a cudaStream_t), null on failure.
    Errors: DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_stream_free; ignis_shutdown reports and frees the rest.
    Threads: any. */
IGNIS_API void *ignis_stream_create(const ignis_stream_desc *desc);

/*  ignis_stream_free - forget a stream of ignis_stream_create, as ignis_stream_forget does, and destroy it
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (not a stream of ignis_stream_create, or freed already), UNSUPPORTED (this thread captures a
    graph), CUDA.
    Ownership: the address is invalid afterwards, and may be that of a later stream.
    Threads: any. Waits for the stream. */
IGNIS_API ignis_status ignis_stream_free(void *stream);

/*  ignis_stream_query - tell whether all work in a stream is done; null for the calling thread's current stream
    Returns: IGNIS_OK, and *done; or the failure of the work.
    Errors: ARGUMENT (null done, no stream of this device), UNSUPPORTED (it is being captured), DEVICE, CUDA.
    Ownership: nothing to free.
    Threads: any. Does not wait. */
IGNIS_API ignis_status ignis_stream_query(void *stream, bool *done);

/*  ignis_stream_wait - make later work of a stream wait for all work that another stream has so far
    ignis_stream_wait_event - make it wait for a recorded event; an event that was never recorded does not wait
    null for the calling thread's current stream. The streams may belong to different devices. In a capture, a stream
    that waits for the captured one joins the graph. The captured stream has to wait for it before ignis_graph_end;
    Ignis itself still puts its work into the captured stream alone. Inside a capture, work outside of it cannot be
    waited for.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (no stream of this device), FREED, UNSUPPORTED (one of the two belongs to a capture that the
    other cannot join), DEVICE, CUDA.
    Ownership: unchanged; the event may be recorded again, or freed, at once.
    Threads: any. The calling thread does not wait. */
IGNIS_API ignis_status ignis_stream_wait(void *stream, void *other);
IGNIS_API ignis_status ignis_stream_wait_event(void *stream, ignis_event event);

/*  ignis_stream_call - call a function of the program after all work that a stream has so far
    It runs on a thread of the driver, and later work of the stream begins when it has returned: so it sets a flag or
    wakes a thread. It must not wait for work of the device, nor call CUDA or Ignis: calls of Ignis inside it fail
    with IGNIS_DIAG_INSIDE_CALLBACK. In a capture it becomes part of the graph, and is called at each launch. After a
    fault of the device it is not called. null for the calling thread's current stream.
    Returns: IGNIS_OK, or the reason; then it is not called.
    Errors: ARGUMENT (null fn, no stream of this device), UNSUPPORTED (another thread captures the stream), MEMORY,
    DEVICE, CUDA.
    Ownership: user_data lives until the call; in a capture until the graph is freed.
    Threads: any. Streams: queued on the given stream. */
IGNIS_API ignis_status ignis_stream_call(void *stream, void (*fn)(void *user_data), void *user_data);

/*  ignis_event_create - create an event: a point in the work of the current device's streams that can be waited for
    and timed
    Returns: the event, never recorded; or no handle.
    Errors: DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_event_free.
    Threads: any. */
IGNIS_API ignis_event ignis_event_create(void);

/*  ignis_event_record - record an event after all work that a stream has so far; null for the calling thread's
    current stream
    Recording it again moves it. In a capture it is a point of the graph: until it is recorded again, only
    ignis_stream_wait_event can use it.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no stream of this device), DEVICE (a stream of another device than the event),
    UNSUPPORTED (another thread captures the stream), CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the given stream. */
IGNIS_API ignis_status ignis_event_record(ignis_event event, void *stream);

/*  ignis_event_query - tell whether the work before an event is done; ignis_event_wait - wait until it is
    An event that was never recorded is done.
    Returns: IGNIS_OK, and *done; or the failure of the work.
    Errors: FREED, ARGUMENT (null done), UNSUPPORTED (it was recorded in a capture), DEVICE, CUDA.
    Ownership: unchanged.
    Threads: any. ignis_event_wait waits; no thread may record the event in a capture meanwhile. */
IGNIS_API ignis_status ignis_event_query(ignis_event event, bool *done);
IGNIS_API ignis_status ignis_event_wait(ignis_event event);

/*  ignis_event_elapsed_ms - return the time between two events of one device, in milliseconds, to about half a
    microsecond
    The driver gives it as a float: times above ten seconds are exact to one part in 16 million.
    Returns: IGNIS_OK, and *ms.
    Errors: FREED, ARGUMENT (null ms; an event was never recorded, or is not done), UNSUPPORTED (recorded in a
    capture), DEVICE, CUDA.
    Ownership: unchanged.
    Threads: any. Does not wait. */
IGNIS_API ignis_status ignis_event_elapsed_ms(ignis_event first, ignis_event last, double *ms);

/*  ignis_event_free - free an event
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second free).
    Ownership: the handle is stale afterwards; streams that wait for it go on waiting.
    Threads: any. */
IGNIS_API ignis_status ignis_event_free(ignis_event event);

/*  ignis_synchronize - wait until all work on the current device is done, and report failures of that work
    Returns: IGNIS_OK, or the failure of an earlier kernel or copy.
    Errors: DEVICE (the devices were lost to a fault), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: nothing to free.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_synchronize(void);
