/* ===============================================================================================================
   >>capture - a thread's work that becomes a CUDA graph: where it goes meanwhile, what the graph keeps, what is refused.
   =============================================================================================================== */

/*  Something that a graph needs as long as it lives, and what gives it up. */
typedef struct ignis__captured_item {
    void *item;
    void (*drop)(const char *call, void *item);
    bool written; /* a storage, by the graph */
    bool lent;    /* a storage, to a kernel of the caller in the graph */
    struct ignis__captured_item *next;
} ignis__captured_item;

/*  How often a graph was launched. Outlives the graph, as arrays do that have their memory from it. */
typedef struct ignis__replays {
    uint64_t users; /* the capture or graph, and storages */
    uint64_t count;
} ignis__replays;

static void ignis__replays_drop(ignis__replays *replays)
{
    if (ignis__atomic_add(&replays->users, (uint64_t)-1) == 0)
        ignis__free(replays);
}

/*  A thread has one between ignis_graph_begin and ignis_graph_end; then it is the graph's. What other sections have to do with it:
        ignis__memory_take        memory that is taken meanwhile is of a part of the cache whose key is the capture, and stays with the graph
        ignis__capture_hold       keeps what the work uses and what was there before: storages, kernels of the caller
        ignis__capture_pause      begins work that is to be done once, before any launch, and not by the graph
        ignis__capture_refuses    makes a call fail that would have to wait or to read host memory, or that is to happen once */
typedef struct ignis__capture {
    ignis__device *device;
    ignis__replays *replays;     /* of the graph that it becomes */
    uint64_t serial;             /* tells it from other captures */
    void *stream;                /* made for it alone: other threads go on working on theirs */
    struct ignis__capture *next; /* of those that threads have open */
    ignis__captured_item *held;
    struct ignis__array *launches; /* counted by the graph itself, for random numbers; held, null where there are none */
} ignis__capture;

/*  Those that are open, for ignis_shutdown: a thread may have ended without ending its own. */
static struct {
    ignis__mutex lock;
    ignis__capture *first;
} ignis__captures = {IGNIS__MUTEX_INIT, NULL};

static ignis__capture *ignis__capturing(void) { return ignis__thread_now()->capture; }

/*  The capture that takes up the thread's work on this device, or null. */
IGNIS__ONE_COPY static ignis__capture *ignis__capture_on(const ignis__device *device)
{
    ignis__capture *capture = ignis__capturing();
    return capture && capture->device == device ? capture : NULL;
}

/*  The stream that the calling thread's work goes to on an open device. */
IGNIS__ONE_COPY static void *ignis__stream_now(const ignis__device *device)
{
    const ignis__thread *thread = ignis__thread_now();
    void *stream = thread->stream[device - ignis__devices];
    if (thread->capture && thread->capture->device == device)
        return thread->capture->stream;
    return stream ? stream : device->stream;
}

/*  True: the thread captures, and the call has failed. */
IGNIS__ONE_COPY static bool ignis__capture_refuses(const char *call)
{
    if (!ignis__capturing())
        return false;
    ignis__fail(
        IGNIS_DIAG_CAPTURE_REFUSED, call,
        "this cannot be captured: it waits for the device, reads host memory or is to be done once; call it before ignis_graph_begin or "
        "after ignis_graph_end");
    return true;
}

static ignis__captured_item *ignis__capture_find(const ignis__capture *capture, const void *item)
{
    ignis__captured_item *held = capture->held;
    while (held && held->item != item)
        held = held->next;
    return held;
}

/*  Keeps an item for the graph: its count of users (null: it counts the caller already) goes up, once; `drop` makes it go down. */
static bool ignis__capture_hold(const char *call, ignis__capture *capture, void *item, uint64_t *users,
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

/*  Between the two the thread's work runs on its own stream, of an entered device. Resume waits for it: a capture has no order with others. */
IGNIS__MAYBE_UNUSED static ignis__capture *ignis__capture_pause(void)
{
    ignis__capture *capture = ignis__capturing();
    ignis__thread_now()->capture = NULL;
    return capture;
}

IGNIS__MAYBE_UNUSED static bool ignis__capture_resume(const char *call, ignis__capture *capture)
{
    bool ok = !capture || !IGNIS__CUDA_FAILED(call, capture->device, cuStreamSynchronize, (ignis__stream_now(capture->device)));
    ignis__thread_now()->capture = capture;
    return ok;
}

/*  Gives up what the capture holds. The device is idle. */
IGNIS__MAYBE_UNUSED static void ignis__capture_destroy(const char *call, ignis__capture *capture)
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

/*  The thread's work goes to a capture from here on. The device is entered, and idle, so that no work of before is missing an event. */
IGNIS__COLD IGNIS__MAYBE_UNUSED static bool ignis__capture_begin(const char *call, ignis__device *device)
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
    ignis__atomic_add(&device->captures, 1);   /* from here on nobody begins to wait for the context, */
    ignis__rwlock_write(&device->waiting);     /* and this waits for those who do so now: */
    ignis__rwlock_write_end(&device->waiting); /* to wait for a context in which a stream is captured spoils the capture */
    /* Relaxed: the allocator may ask the driver for memory meanwhile. */
    if (!IGNIS__CUDA_FAILED(call, device, cuStreamCreate, (&capture->stream, IGNIS__CU_STREAM_NON_BLOCKING)) &&
        !IGNIS__CUDA_FAILED(call, device, cuStreamBeginCapture_v2, (capture->stream, IGNIS__CU_CAPTURE_RELAXED))) {
        ignis__mutex_lock(&ignis__captures.lock);
        capture->next = ignis__captures.first;
        ignis__captures.first = capture;
        ignis__mutex_unlock(&ignis__captures.lock);
        ignis__thread_now()->capture = capture;
        return true;
    }
    ignis__atomic_add(&device->captures, (uint64_t)-1);
    if (capture->stream)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (capture->stream));
    ignis__free(replays), ignis__free(capture);
    return false;
}

/*  Ends a capture, in any case, and makes an executable graph of it, which needs what the capture holds. Null on failure. */
IGNIS__COLD IGNIS__MAYBE_UNUSED static void *ignis__capture_end(const char *call, ignis__capture *capture)
{
    ignis__device *device = capture->device;
    void *captured = NULL, *exec = NULL;
    bool ok = !IGNIS__CUDA_FAILED(call, device, cuStreamEndCapture, (capture->stream, &captured)) && captured &&
              !IGNIS__CUDA_FAILED(call, device, cuGraphInstantiateWithFlags, (&exec, captured, 0));
    ignis__capture **link = &ignis__captures.first;
    if (ignis__capturing() == capture)
        ignis__thread_now()->capture = NULL;
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
