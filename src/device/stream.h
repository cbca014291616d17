/* >>stream - streams, events, waiting for a device -------------------------------------------------------------- */

/*  ignis_stream_use - put the calling thread's work on the current device into the caller's cudaStream_t or CUstream
    null goes back to Ignis' own stream, which is a blocking one: ordered with the legacy default stream of cudart code. cudaStreamLegacy is
    accepted. cudaStreamPerThread is not, as it is one handle of as many streams as there are threads; in a program compiled with
    --default-stream per-thread, which makes that the default one of cudart calls, give each thread that uses Ignis a stream of cudaStreamCreate.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (the stream is of another device, or the per-thread one), UNSUPPORTED (it is that of a capture), CUDA.
    Ownership: the stream stays the caller's; call ignis_stream_forget before destroying it.
    Threads: any; each has its own current stream per device. */
IGNIS_API ignis_status ignis_stream_use(void *stream);

/*  ignis_stream_current - the stream that the calling thread's work on the current device goes to
    Returns: a CUstream (also a cudaStream_t), null on failure.
    Errors: NOT_SETUP, DEVICE, CUDA.
    Ownership: stays where it was.
    Threads: any; each has its own. */
IGNIS_API void *ignis_stream_current(void);

/*  ignis_stream_forget - before the caller destroys a stream: wait for its work, and stop using it
    Memory of arrays made on it moves to Ignis' own stream; a thread that has it as its current stream goes back to that one
    at its next call.
    Returns: IGNIS_OK; also for a stream that Ignis never saw.
    Errors: ARGUMENT (null, or one of ignis_stream_create, which ignis_stream_free forgets), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the stream stays the caller's.
    Threads: any. Waits for the stream. */
IGNIS_API ignis_status ignis_stream_forget(void *stream);

typedef struct ignis_stream_desc {
    int priority; /* above 0: the device prefers its work, the more the higher, as far as it tells priorities apart (0, as other streams) */
} ignis_stream_desc;

/*  ignis_stream_create - a new stream of the current device, for ignis_stream_use and ignis_array_desc.stream; desc may be null
    It is ordered with no other stream (cudaStreamNonBlocking). Making one takes the driver some time: make streams when a program starts.
    Returns: a CUstream (also a cudaStream_t), null on failure.
    Errors: DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_stream_free; ignis_shutdown reports and frees those that are left.
    Threads: any. */
IGNIS_API void *ignis_stream_create(const ignis_stream_desc *desc);

/*  ignis_stream_free - forget a stream of ignis_stream_create, as by ignis_stream_forget, and destroy it
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (not one of ignis_stream_create, or freed already), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the address means nothing afterwards, and may be that of a later stream.
    Threads: any. Waits for the stream. */
IGNIS_API ignis_status ignis_stream_free(void *stream);

/*  ignis_stream_query - whether all work that was put into a stream is done; null for the calling thread's current one
    Returns: IGNIS_OK, and *done; or what the work failed with.
    Errors: ARGUMENT (null done, no stream of this device), UNSUPPORTED (it is captured), DEVICE, CUDA.
    Ownership: nothing to free.
    Threads: any. Does not wait. */
IGNIS_API ignis_status ignis_stream_query(void *stream, bool *done);

/*  ignis_stream_wait - let what is put into a stream from now on begin when all is done that another one has so far
    ignis_stream_wait_event - the same for what the other one had when the event was recorded; at once for one that never was
    null for the calling thread's current stream. The streams may be of different devices. In a capture a stream that waits for the one that
    is captured becomes part of the graph, too, and the captured one has to wait for it before ignis_graph_end; Ignis itself still puts
    its work into the captured one alone. What is outside of the capture cannot be waited for in it.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (no stream of this device), FREED, UNSUPPORTED (one of the two belongs to a capture that the other cannot join),
    DEVICE, CUDA.
    Ownership: unchanged; the event may be recorded again, or freed, at once.
    Threads: any. The calling thread does not wait. */
IGNIS_API ignis_status ignis_stream_wait(void *stream, void *other);
IGNIS_API ignis_status ignis_stream_wait_event(void *stream, ignis_event event);

/*  ignis_stream_call - call a function of the program once all is done that a stream has so far
    It runs on a thread of the driver, and what is put into the stream later begins when it has returned: so it sets a flag or wakes a
    thread. It must not wait for work of the device, nor call CUDA or Ignis: calls of Ignis inside it fail with IGNIS_DIAG_INSIDE_CALLBACK.
    In a capture it becomes part of the graph, and is called at each launch. After a fault of the device it is not called any more.
    null for the calling thread's current stream.
    Returns: IGNIS_OK, or the reason; then it is not called.
    Errors: ARGUMENT (null fn, no stream of this device), UNSUPPORTED (another thread captures the stream), MEMORY, DEVICE, CUDA.
    Ownership: user_data lives until the call; in a capture until the graph is freed.
    Threads: any. Streams: queued on the one given. */
IGNIS_API ignis_status ignis_stream_call(void *stream, void (*fn)(void *user_data), void *user_data);

/*  ignis_event_create - a point in the work of the current device's streams, that can be waited for and timed
    Returns: the event, never recorded; or no handle.
    Errors: DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_event_free.
    Threads: any. */
IGNIS_API ignis_event ignis_event_create(void);

/*  ignis_event_record - put an event behind all that a stream has so far; null for the calling thread's current stream
    Recording it again moves it. In a capture it is a point of the graph: ignis_stream_wait_event alone can use it then, until it is
    recorded anew.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no stream of this device), DEVICE (a stream of another device than the event), UNSUPPORTED (another thread captures
    the stream), CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the one given. */
IGNIS_API ignis_status ignis_event_record(ignis_event event, void *stream);

/*  ignis_event_query - whether the work before an event is done; ignis_event_wait - wait until it is
    An event that was never recorded is done.
    Returns: IGNIS_OK, and *done; or what the work failed with.
    Errors: FREED, ARGUMENT (null done), UNSUPPORTED (it was recorded in a capture), DEVICE, CUDA.
    Ownership: unchanged.
    Threads: any. ignis_event_wait waits; nobody may record the event in a capture meanwhile. */
IGNIS_API ignis_status ignis_event_query(ignis_event event, bool *done);
IGNIS_API ignis_status ignis_event_wait(ignis_event event);

/*  ignis_event_elapsed_ms - the time between two events of one device, in milliseconds, to about half a microsecond
    The driver gives it as a float: of more than ten seconds it is one part in 16 million that it is exact to.
    Returns: IGNIS_OK, and *ms.
    Errors: FREED, ARGUMENT (null ms; an event was never recorded, or is not done), UNSUPPORTED (recorded in a capture), DEVICE, CUDA.
    Ownership: unchanged.
    Threads: any. Does not wait. */
IGNIS_API ignis_status ignis_event_elapsed_ms(ignis_event first, ignis_event last, double *ms);

/*  ignis_event_free - free an event
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second free).
    Ownership: the handle is stale afterwards; streams that wait for it go on waiting.
    Threads: any. */
IGNIS_API ignis_status ignis_event_free(ignis_event event);

/*  ignis_synchronize - wait until all work on the current device is done, and report what failed meanwhile
    Returns: IGNIS_OK, or the failure of an earlier kernel or copy.
    Errors: DEVICE (the devices were lost to a fault), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: nothing to free.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_synchronize(void);
