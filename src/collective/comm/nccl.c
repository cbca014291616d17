/*  >>nccl - NCCL, opened at run time, without its headers

    A nonblocking communicator with deadlines around NCCL's calls, and tasks handed to it.
    Uses: the loader's table of ignis.h, threads.
    Invariants: no call blocks without a deadline; a communicator that failed is aborted, never reused.
    Locks: nccl->lock, one call of NCCL at a time; held around a whole group of calls. */

#include "room.h"

/*  By ignis_dtype; the first one is the default. */
static const int ignis__nccl_dtypes[IGNIS_DTYPE_COUNT] = {
    IGNIS__NCCL_FLOAT32, IGNIS__NCCL_FLOAT16, IGNIS__NCCL_BFLOAT16, IGNIS__NCCL_FLOAT32,     IGNIS__NCCL_FLOAT64,
    IGNIS__NCCL_INT32,   IGNIS__NCCL_INT64,   IGNIS__NCCL_UINT8,    IGNIS__NCCL_FLOAT8_E4M3, IGNIS__NCCL_FLOAT8_E5M2};
/*  By ignis_op. */
static const int ignis__nccl_ops[IGNIS_OP_COUNT] = {IGNIS__NCCL_SUM, IGNIS__NCCL_PROD, IGNIS__NCCL_MIN, IGNIS__NCCL_MAX,
                                                    IGNIS__NCCL_AVG};

#define IGNIS__NCCL_GOODBYE_NS 5000000000 /* what ends later is no longer waited for */

#define IGNIS__NCCL(name, args) IGNIS_CALL_HOOK(#name, ignis__nccl.name args)

/*  Opens NCCL and checks its version. */
IGNIS__PRIVATE bool ignis__nccl_open(const char *call)
{
    const struct ignis__loaded *loaded = &ignis__libraries[IGNIS_LIBRARY_NCCL];
    int release;
    if (!ignis__library_load(call, IGNIS_LIBRARY_NCCL))
        return false;
    release = (int)loaded->release;
    if (release >= IGNIS__NCCL_VERSION_LEAST)
        return true;
    return ignis__fail_false(IGNIS_DIAG_LIBRARY_SYMBOL, call,
                             "NCCL (%s) has version %d.%d.%d; 2.19.0 or newer is needed", loaded->path, release / 10000,
                             release / 100 % 100, release % 100);
}

/*  Reports an error of NCCL as a failure of `call`. */
IGNIS__COLD static ignis_status ignis__nccl_fail(const char *call, void *comm, const char *function, int error)
{
    const char *text = ignis__nccl.ncclGetErrorString(error), *detail = ignis__nccl.ncclGetLastError(comm);
    return ignis__fail_because(IGNIS_DIAG_NCCL_CALL, call, error, text, NULL, "%s failed with \"%s\" (%d)%s%s",
                               function, text ? text : "unknown error", error, detail && *detail ? ": " : "",
                               detail ? detail : "");
}

/*  Waits until the last call on the communicator is done. Returns NCCL's result, or _ABORTED, or _LATE. */
static int ignis__nccl_wait(ignis__nccl_comm *nccl, int64_t deadline_ns)
{
    for (;;) {
        int state = IGNIS__NCCL_ABORTED, error = IGNIS__NCCL_SUCCESS;
        ignis__mutex_lock(&nccl->lock);
        if (nccl->comm)
            error = IGNIS__NCCL(ncclCommGetAsyncError, (nccl->comm, &state));
        ignis__mutex_unlock(&nccl->lock);
        if (error != IGNIS__NCCL_SUCCESS)
            return error;
        if (state != IGNIS__NCCL_IN_PROGRESS)
            return state;
        if (ignis__monotonic_ns() >= deadline_ns)
            return IGNIS__NCCL_LATE;
        ignis__sleep_us(20);
    }
}

/*  Drops a user; the last one frees it, but not by the user's allocator: that may be long after
    ignis_shutdown. */
static void ignis__nccl_drop(ignis__nccl_comm *nccl)
{
    if (ignis__atomic_add(&nccl->users, (uint64_t)-1) == 0)
        free(nccl);
}

static IGNIS__THREAD_RESULT ignis__nccl_reap(void *data)
{
    ignis__nccl_comm *nccl = (ignis__nccl_comm *)data;
    ignis__binding binding;
    bool entered = ignis__device_enter_to_give("ignis_comm_destroy", nccl->device, &binding);
    (void)(nccl->aborts ? IGNIS__NCCL(ncclCommAbort, (nccl->ending)) : IGNIS__NCCL(ncclCommDestroy, (nccl->ending)));
    if (entered)
        ignis__device_leave(&binding);
    ignis__nccl_drop(nccl);
    return 0;
}

/*  Starts a reaper thread that ends the communicator, as both calls may wait: ncclCommAbort for the last
    graph that captured an operation, ncclCommDestroy for the other ranks of the host. */
static void ignis__nccl_start_reaper(ignis__nccl_comm *nccl, bool aborts)
{
    bool alone = false;
    ignis__mutex_lock(&nccl->lock);
    if (nccl->comm) {
        nccl->ending = nccl->comm;
        nccl->comm = NULL;
        nccl->aborts = aborts;
        ignis__atomic_add(&nccl->users, 1);
        alone = !ignis__thread_start(&nccl->reaper, ignis__nccl_reap, nccl);
    }
    ignis__mutex_unlock(&nccl->lock);
    if (!alone)
        return;
    (void)ignis__nccl_reap(nccl);
    nccl->ending = NULL;
}

/*  Aborts an NCCL communicator at once, also during operations: they end with undefined results here, and do
    not end on other ranks. Any thread may call it. */
IGNIS__PRIVATE void ignis__nccl_abort(ignis__nccl_comm *nccl) { ignis__nccl_start_reaper(nccl, true); }

/*  Reports a failed call and aborts the communicator. */
IGNIS__COLD static bool ignis__nccl_fail_and_abort(const char *call, ignis__nccl_comm *nccl, const char *function,
                                                   int error)
{
    if (error == IGNIS__NCCL_ABORTED)
        ignis__fail(IGNIS_DIAG_COMM_BROKEN, call, "the communicator was aborted during %s", function);
    else if (error == IGNIS__NCCL_LATE)
        ignis__fail(IGNIS_DIAG_COMM_TIMEOUT, call, "%s did not end within %lld ms: other ranks did not come", function,
                    (long long)(nccl->patience_ns / 1000000));
    else
        ignis__nccl_fail(call, nccl->comm, function, error);
    ignis__nccl_abort(nccl);
    return false;
}

/*  Keeps the library that contains Ignis, if any, from being unloaded: a thread runs in it that cannot be
    waited for. */
IGNIS__COLD static void ignis__library_keep_loaded(void)
{
#ifdef _WIN32
    HMODULE module;
    (void)GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN,
                             (LPCWSTR)(const void *)&ignis__local_slots, &module);
#else
    struct {
        const char *file;
        void *base;
        const char *symbol;
        void *address;
    } found = IGNIS__ZERO; /* a Dl_info */
    int (*find)(const void *address, void *info);
    /* dlfcn.h hides it in strict C */
    void *program = dlopen(NULL, RTLD_LAZY), *symbol = program ? dlsym(program, "dladdr") : NULL;
    memcpy(&find, &symbol, sizeof find);
    if (symbol && find(&ignis__fds, &found) && found.file)
        (void)dlopen(found.file, RTLD_LAZY);
    if (program)
        dlclose(program);
#endif
}

/*  Leaves an NCCL communicator; its operations are done, and no graph has any. NULL is allowed. On one host
    an abort waits for nobody. With other hosts it could cut off their last operation, so it is destroyed; if
    that takes too long, the reaper does it. */
IGNIS__PRIVATE void ignis__nccl_leave(const char *call, ignis__nccl_comm *nccl)
{
    ignis__binding binding;
    int64_t deadline;
    bool finalized = false;
    int error;
    if (!nccl)
        return;
    if (nccl->comm && ignis__device_enter_to_give(call, nccl->device, &binding)) {
        error = IGNIS__NCCL(ncclCommFinalize, (nccl->comm));
        if (error == IGNIS__NCCL_IN_PROGRESS)
            error = ignis__nccl_wait(nccl, ignis__monotonic_ns() + nccl->patience_ns);
        finalized = error == IGNIS__NCCL_SUCCESS;
        ignis__device_leave(&binding);
    }
    ignis__nccl_start_reaper(nccl, !(finalized && nccl->hosts));
    deadline = ignis__monotonic_ns() + IGNIS__NCCL_GOODBYE_NS;
    while (ignis__atomic_load(&nccl->users) > 1 && ignis__monotonic_ns() < deadline)
        ignis__sleep_us(20);
    if (nccl->ending && ignis__atomic_load(&nccl->users) > 1) {
        ignis__library_keep_loaded();
        ignis__thread_detach(nccl->reaper);
    } else if (nccl->ending) {
        ignis__thread_join(nccl->reaper);
    }
    ignis__nccl_drop(nccl);
}

/*  Creates the id that one rank makes and all pass to ignis__nccl_begin. */
IGNIS__PRIVATE bool ignis__nccl_make_id(const char *call, ignis__nccl_id *id)
{
    int error;
    memset(id, 0, sizeof *id);
    if (!ignis__nccl_open(call))
        return false;
    error = IGNIS__NCCL(ncclGetUniqueId, (id));
    return error == IGNIS__NCCL_SUCCESS || ignis__nccl_fail(call, NULL, "ncclGetUniqueId", error) == IGNIS_OK;
}

/*  Begins to join the other ranks; ignis__nccl_wait_joined waits for them. A thread that drives several ranks
    begins with all, then waits. patience_ns is for this and every later call. NULL on failure. */
IGNIS__PRIVATE ignis__nccl_comm *ignis__nccl_begin(const char *call, ignis__device *device, const ignis__nccl_id *id,
                                                   int rank, int size, int64_t patience_ns)
{
    ignis__nccl_config config;
    ignis__nccl_comm *nccl;
    ignis__binding binding;
    int error;
    if (!ignis__nccl_open(call))
        return NULL;
    nccl = (ignis__nccl_comm *)calloc(1, sizeof *nccl);
    if (!nccl) {
        ignis__fail_host_memory(call, sizeof *nccl);
        return NULL;
    }
    if (!ignis__device_enter(call, device, &binding)) {
        free(nccl);
        return NULL;
    }
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.magic = 0xCAFEBEEFu;
    config.version = IGNIS__NCCL_VERSION_LEAST;
    /* NCCL decides */
    config.cluster_size = config.least_blocks = config.most_blocks = config.split_share = INT_MIN;
    ignis__mutex_init(&nccl->lock);
    nccl->users = 1;
    nccl->device = device;
    nccl->patience_ns = patience_ns;
    error = IGNIS__NCCL(ncclCommInitRankConfig, (&nccl->comm, size, *id, rank, &config));
    ignis__device_leave(&binding);
    if (error == IGNIS__NCCL_SUCCESS || error == IGNIS__NCCL_IN_PROGRESS)
        return nccl;
    (void)ignis__nccl_fail_and_abort(call, nccl, "ncclCommInitRankConfig", error);
    ignis__nccl_leave(call, nccl);
    return NULL;
}

/*  Waits until all ranks have joined. On failure the communicator is aborted; the caller still leaves it. */
IGNIS__PRIVATE bool ignis__nccl_wait_joined(const char *call, ignis__nccl_comm *nccl)
{
    int error = ignis__nccl_wait(nccl, ignis__monotonic_ns() + nccl->patience_ns);
    return error == IGNIS__NCCL_SUCCESS || ignis__nccl_fail_and_abort(call, nccl, "ncclCommInitRankConfig", error);
}

/*  Keeps the first failure; without one, whether a call is in progress. */
static void ignis__nccl_keep_error(int *first, int error)
{
    if (*first == IGNIS__NCCL_SUCCESS || (*first == IGNIS__NCCL_IN_PROGRESS && error != IGNIS__NCCL_SUCCESS))
        *first = error;
}

/*  Queues one operation in NCCL. Returns the first failure. */
static int ignis__nccl_queue(void *comm, const ignis__comm_task *task, int size, void *stream)
{
    const char *from = (const char *)(uintptr_t)task->in;
    char *to = (char *)(uintptr_t)task->out;
    size_t number = (size_t)task->count, bytes = number * (size_t)ignis__dtypes[task->dtype].size;
    int type = ignis__nccl_dtypes[task->dtype], reduction = ignis__nccl_ops[task->op], root = task->root,
        error = IGNIS__NCCL_SUCCESS, peer;
    switch (task->kind) {
    case IGNIS__COMM_ALL_REDUCE: return IGNIS__NCCL(ncclAllReduce, (from, to, number, type, reduction, comm, stream));
    case IGNIS__COMM_REDUCE: return IGNIS__NCCL(ncclReduce, (from, to, number, type, reduction, root, comm, stream));
    case IGNIS__COMM_BROADCAST: return IGNIS__NCCL(ncclBroadcast, (from, to, number, type, root, comm, stream));
    case IGNIS__COMM_ALL_GATHER: return IGNIS__NCCL(ncclAllGather, (from, to, number, type, comm, stream));
    case IGNIS__COMM_REDUCE_SCATTER:
        return IGNIS__NCCL(ncclReduceScatter, (from, to, number, type, reduction, comm, stream));
    case IGNIS__COMM_SEND: return IGNIS__NCCL(ncclSend, (from, number, type, root, comm, stream));
    case IGNIS__COMM_RECV: return IGNIS__NCCL(ncclRecv, (to, number, type, root, comm, stream));
    default:
        for (peer = 0; peer < size; peer++) {
            ignis__nccl_keep_error(
                &error, IGNIS__NCCL(ncclSend, (from + (size_t)peer * bytes, number, type, peer, comm, stream)));
            ignis__nccl_keep_error(
                &error, IGNIS__NCCL(ncclRecv, (to + (size_t)peer * bytes, number, type, peer, comm, stream)));
        }
        return error;
    }
}

/*  Queues operations on the stream. Messages of one call travel at the same time, as one alone could wait for
    the other for ever. The device is entered. A failure breaks the communicator. *aborted: another thread has aborted
    it, which is not reported here, as the caller knows the reason. */
IGNIS__PRIVATE bool ignis__nccl_run(const char *call, ignis__nccl_comm *nccl, const ignis__comm_task *tasks, int count,
                                    int size, void *stream, bool *aborted)
{
    static const char *const names[IGNIS__COMM_BARRIER] = {"",
                                                           "ncclAllReduce",
                                                           "ncclReduce",
                                                           "ncclBroadcast",
                                                           "ncclAllGather",
                                                           "ncclReduceScatter",
                                                           "ncclSend and ncclRecv",
                                                           "ncclSend",
                                                           "ncclRecv"};
    const bool grouped = count > 1 || tasks[0].kind == IGNIS__COMM_ALL_TO_ALL;
    int error = IGNIS__NCCL_SUCCESS, i;
    void *comm;
    ignis__mutex_lock(&nccl->lock); /* over the whole group: no thread may abort the communicator meanwhile */
    comm = nccl->comm;
    *aborted = !comm;
    if (!comm) {
        ignis__mutex_unlock(&nccl->lock);
        return false;
    }
    if (grouped)
        (void)IGNIS__NCCL(ncclGroupStart, ());
    for (i = 0; i < count; i++)
        ignis__nccl_keep_error(&error, ignis__nccl_queue(comm, &tasks[i], size, stream));
    if (grouped)
        ignis__nccl_keep_error(&error, IGNIS__NCCL(ncclGroupEnd, ()));
    ignis__mutex_unlock(&nccl->lock);
    if (error == IGNIS__NCCL_IN_PROGRESS)
        error = ignis__nccl_wait(nccl, ignis__monotonic_ns() + nccl->patience_ns);
    *aborted = error == IGNIS__NCCL_ABORTED;
    return error == IGNIS__NCCL_SUCCESS ||
           (!*aborted &&
            ignis__nccl_fail_and_abort(call, nccl, names[grouped ? IGNIS__COMM_ALL_TO_ALL : tasks[0].kind], error));
}

/*  Returns the error of operations that are running, such as a lost host: NCCL's result, 0 if there is
    none. */
IGNIS__PRIVATE int ignis__nccl_error(ignis__nccl_comm *nccl)
{
    int error = ignis__nccl_wait(nccl, 0);
    return error == IGNIS__NCCL_LATE || error == IGNIS__NCCL_ABORTED ? IGNIS__NCCL_SUCCESS : error;
}
