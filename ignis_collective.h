/*  ignis_collective.h - GPU arrays shared between processes, and collective operations between GPUs, for C and C++

    Part of Ignis; MIT licence, at the end of ignis.h.

    HOW TO USE

        Copy ignis.h, ignis_kernels.h and ignis_collective.h into your project. In ONE C or C++ file:

            #define IGNIS_IMPLEMENTATION
            #include "ignis_collective.h"

        It includes ignis.h, and is built in the same way. NCCL is needed for nothing on one host of up to 8 GPUs; where it is installed it
        is used for what it does best.
*/
#ifndef IGNIS_COLLECTIVE_INCLUDED
#define IGNIS_COLLECTIVE_INCLUDED

#include "ignis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>vmm --------------------------------------------------------------------------------------------------------- */

/* >>channel ----------------------------------------------------------------------------------------------------- */

/* >>transport --------------------------------------------------------------------------------------------------- */

/* >>comm -------------------------------------------------------------------------------------------------------- */

#define IGNIS_COMM_MAX_RANKS 8 /* of Ignis' own kernels; beyond, NCCL does the work */

/*  A communicator: what one rank of a group of GPUs holds. */
typedef struct ignis_comm {
    uint64_t id;
} ignis_comm;

typedef enum ignis_op { IGNIS_OP_SUM, IGNIS_OP_PROD, IGNIS_OP_MIN, IGNIS_OP_MAX, IGNIS_OP_AVG, IGNIS_OP_COUNT } ignis_op;

/* --- making, splitting, ending --- */

/*  How the data of a communicator travels. */
typedef enum ignis_comm_transport {
    IGNIS_COMM_TRANSPORT_DEFAULT = 0, /* the first of the others that works between all ranks: IGNIS_COMM_PEER, IGNIS_COMM_STAGED; NCCL
                                         where ranks are on several hosts, or more than IGNIS_COMM_MAX_RANKS */
    IGNIS_COMM_PEER,                  /* GPUs read and write each other's memory (NVLink, PCIe) */
    IGNIS_COMM_STAGED,                /* through pinned host memory that all ranks map */
    IGNIS_COMM_NCCL,                  /* NCCL does the work */
    IGNIS_COMM_TRANSPORT_COUNT
} ignis_comm_transport;

typedef struct ignis_comm_desc {
    int rank;                       /* with size: this rank, 0 to size - 1 (0) */
    int size;                       /* how many ranks there are (0: rank, size and device come from the environment) */
    const char *rendezvous;         /* where they meet: "dir:/path" of a private folder, or "host:port" (IGNIS_COMM_DIR, MASTER_ADDR) */
    const char *token;              /* with "host:port": a secret that all ranks know, up to 63 bytes (IGNIS_COMM_TOKEN) */
    int device;                     /* the LOCAL_RANK-th device, or the only one; IGNIS_DEVICE_0 for device 0 */
    double timeout_s;               /* the deadline of every wait: for ranks that have not come, and inside operations (30) */
    ignis_comm_transport transport; /* one that must be used, or the call fails (IGNIS_COMM_TRANSPORT=peer, staged or nccl; the best) */
} ignis_comm_desc;

typedef struct ignis_comm_info {
    int rank, size;
    int device;                     /* of this rank */
    int local_rank, local_size;     /* among the ranks on this host */
    int hosts;                      /* that the ranks are on */
    ignis_comm_transport transport; /* that is used */
    char reason[256];               /* why this one */
    ignis_status status;            /* IGNIS_OK, or what broke the communicator: _PEER, _TIMEOUT, _MISMATCH */
    int failed_rank;                /* whom it was about; -1: nobody, or not known */
    double timeout_s;
} ignis_comm_info;

/*  ignis_comm_init - meet the other ranks, and make a communicator of all; desc may be null for all defaults
    Every rank calls it, each for a device of its own. Rank and size come from the desc or else from the environment (see ON STARTING in the
    manual); where nothing is set, it is one rank alone. Ranks are processes, or threads of one process that each say their rank.
    Returns: the communicator, or no handle.
    Errors: ARGUMENT (desc, or the environment contradicts itself), DEVICE, PEER (a rank was refused, died or uses another's GPU), TIMEOUT
    (ranks that did not come are named), IO, UNSUPPORTED (the transport that was asked for), LIBRARY (NCCL is needed and missing), MEMORY, CUDA.
    Ownership: the caller ends it with ignis_comm_destroy. desc and its strings are copied.
    Threads: any; waits for the other ranks. Memory: one region on each GPU, which every other rank maps. */
IGNIS_API ignis_comm ignis_comm_init(const ignis_comm_desc *desc);

/*  ignis_comm_split - make communicators of the ranks that give the same color
    All ranks of comm call it, with operations on comm neither before it in some ranks and after it in others. In the new one ranks
    are ordered by key, and by their rank in comm where keys are equal. A rank with a color below 0 takes part in none.
    Returns: the new communicator; no handle on failure, and, without a failure, for a color below 0.
    Errors: FREED, PEER, TIMEOUT, UNSUPPORTED, LIBRARY, MEMORY, CUDA.
    Ownership: the caller ends it with ignis_comm_destroy, before or after comm.
    Threads: one per communicator at a time; waits for the other ranks. */
IGNIS_API ignis_comm ignis_comm_split(ignis_comm comm, int color, int key);

/*  ignis_comm_shrink - make a communicator of the ranks that are still alive
    All of them call it, after comm has failed or before. They agree on who is gone first; ranks keep their order. comm itself stays as it
    is, to be destroyed: late writes of dead ranks go to its memory, which nobody uses again.
    Returns: the new communicator, or no handle.
    Errors: FREED, TIMEOUT (a rank that is alive does not call it), and those of ignis_comm_init.
    Ownership: the caller ends it with ignis_comm_destroy, and comm too.
    Threads: one per communicator at a time; waits for the other ranks. */
IGNIS_API ignis_comm ignis_comm_shrink(ignis_comm comm);

/*  ignis_comm_abort - break a communicator on all its ranks: what waits in an operation, there or here, ends with PEER
    Returns: IGNIS_OK, also when it is broken already.
    Errors: FREED.
    Ownership: it still has to be destroyed.
    Threads: any, also while another one is inside an operation on it. Does not wait. */
IGNIS_API ignis_status ignis_comm_abort(ignis_comm comm);

/*  ignis_comm_destroy - end this rank's part in a communicator, after all work on its device is done
    The others may still be inside their last operation; none of them needs to come. The last communicator of a meeting (of
    ignis_comm_init and what was split and shrunk from it) says goodbye to the other ranks.
    Returns: IGNIS_OK, or the first driver error met on the way; everything is let go all the same.
    Errors: FREED (also for a second destroy), CUDA.
    Ownership: the handle is stale afterwards.
    Threads: any. Waits for the device. */
IGNIS_API ignis_status ignis_comm_destroy(ignis_comm comm);

/*  ignis_comm_query - who takes part, how data travels and why so, and whether the communicator works
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_query(ignis_comm comm, ignis_comm_info *info);

/*  ignis_comm_init_all - make the communicators of several devices of this process: comms[i] is rank i, on devices[i]
    devices may be null: the first count devices. Of desc (null: all defaults), timeout_s counts. One thread may call an operation on
    each of them in turn, as operations do not wait; or each has a thread of its own.
    Returns: IGNIS_OK, and *comms filled; all zero on failure.
    Errors: ARGUMENT (a device twice, count below 1 or above IGNIS_COMM_MAX_RANKS), DEVICE, UNSUPPORTED (two devices do not reach each
    other's memory), MEMORY, CUDA.
    Ownership: the caller ends each with ignis_comm_destroy.
    Threads: any. Waits for the devices. */
IGNIS_API ignis_status ignis_comm_init_all(ignis_comm *comms, const int *devices, int count, const ignis_comm_desc *desc);

/* --- operations --- */

/*  All ranks call the same operations on a communicator in the same order, with arrays of equal size and type, each on its own device.
    An operation is queued on the current stream of the communicator's device and returns; whether it went well says
    ignis_comm_synchronize, ignis_comm_status, or the next operation. The deadline of a wait starts when the kernel runs. After a failure results
    are undefined, and the communicator is broken: it refuses all later operations.

    in == out is allowed, as is a part of one array that lies where the operation would put it (all_gather: in is part `rank` of out;
    reduce_scatter: out is part `rank` of in). While a call queues its work IGNIS_OWNER_NVCCL owns the arrays; they must be owned by IGNIS_OWNER_IGNIS.
    All of them can be captured in graphs. A graph is launched on every rank, in the same order as other operations on the communicator, and
    not at the same time as one on another stream. One communicator used on several streams: a later operation waits for the earlier ones.

    Sums and products of f16 and bf16 are computed in f32 and rounded once; every algorithm combines in the order of the ranks, so all
    ranks get the same bits, on every run and in every transport. min and max give NaN where any rank has NaN. IGNIS_OP_AVG is the sum times 1/size, for floating types. */

/*  ignis_comm_all_reduce - out = op over the ranks of in, elementwise, on every rank
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: FREED, CONTRACT (somebody else owns an array), SHAPE (in and out differ in size), DTYPE (types differ, or the average of
    integers), DEVICE, ARGUMENT (they overlap, or op), PEER, TIMEOUT and MISMATCH (the communicator is broken), MEMORY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_all_reduce(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op);

/*  ignis_comm_reduce - out = op over the ranks of in, on rank root; out of the others is left alone, and may be no handle
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce, and ARGUMENT (root).
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_reduce(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op, int root);

/*  ignis_comm_broadcast - array of every rank = array of rank root
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_reduce.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_broadcast(ignis_comm comm, ignis_array array, int root);

/*  ignis_comm_all_gather - out of every rank = in of rank 0, in of rank 1, ..., one after the other; out has size times as many elements
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_all_gather(ignis_comm comm, ignis_array in, ignis_array out);

/*  ignis_comm_reduce_scatter - out of rank r = op over the ranks of part r of in, which has size times as many elements
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_reduce_scatter(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op);

/*  ignis_comm_all_to_all - part r of out = part `this rank` of in of rank r; both have a multiple of size elements
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_all_to_all(ignis_comm comm, ignis_array in, ignis_array out);

/*  ignis_comm_send, ignis_comm_recv - give array to rank dest, whose next ignis_comm_recv from this rank has an array of the same size
    and type. Pairs of ranks count for themselves, apart from the other operations. A long send ends only when the other side receives, so two
    ranks that both send first wait for each other until the deadline; ignis_comm_send_recv does not.
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce, and ARGUMENT (dest or source is this rank, or none).
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_send(ignis_comm comm, ignis_array array, int dest);
IGNIS_API ignis_status ignis_comm_recv(ignis_comm comm, ignis_array array, int source);

/*  ignis_comm_send_recv - give in to rank dest and get out from rank source at the same time; in and out are apart
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_send.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_send_recv(ignis_comm comm, ignis_array in, int dest, ignis_array out, int source);

/*  ignis_comm_barrier - no rank's stream goes on before all ranks' streams have come here
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: FREED, PEER, TIMEOUT and MISMATCH (the communicator is broken), COMPILE, CUDA.
    Ownership: nothing to free.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device. */
IGNIS_API ignis_status ignis_comm_barrier(ignis_comm comm);

/*  ignis_comm_synchronize - wait until the operations queued on comm are done, and report what went wrong in them
    Operations that were captured count when their graph was launched on the current stream.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures), TIMEOUT (a rank did not come), MISMATCH (ranks asked for different things), PEER
    (a rank died or gave up), CUDA.
    Ownership: nothing to free.
    Threads: any. Waits for the current stream of the device, and for the one that comm was used on last. */
IGNIS_API ignis_status ignis_comm_synchronize(ignis_comm comm);

/*  ignis_comm_status - whether comm works; does not wait
    Returns: IGNIS_OK, or TIMEOUT, MISMATCH or PEER, which have broken it.
    Errors: FREED, TIMEOUT, MISMATCH, PEER.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_status(ignis_comm comm);

/* >>parallel ---------------------------------------------------------------------------------------------------- */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* IGNIS_COLLECTIVE_INCLUDED */

#ifdef IGNIS_IMPLEMENTATION
#ifndef IGNIS_COLLECTIVE_IMPLEMENTED
#define IGNIS_COLLECTIVE_IMPLEMENTED

/* ===============================================================================================================
   >>vmm - physical memory, address ranges, mappings, access; export and import.
   =============================================================================================================== */

/* ===============================================================================================================
   >>channel - how a handle travels: unix socket, named pipe, shared memory.
   =============================================================================================================== */

/* ===============================================================================================================
   >>transport - VMM, legacy IPC, peer copy, host-staged: one table of functions each.
   =============================================================================================================== */

/* ===============================================================================================================
   >>nccl - NCCL, opened at run time.
   =============================================================================================================== */

/*  Numbers of NCCL's enumerations; tests/prototypes.cpp compares them with nccl.h. */
enum {
    IGNIS__NCCL_SUCCESS = 0,
    IGNIS__NCCL_IN_PROGRESS = 7,
    IGNIS__NCCL_ABORTED = -1, /* not NCCL's: ignis__nccl_abort was called */
    IGNIS__NCCL_LATE = -2,    /* nor is this: the deadline has passed */
    IGNIS__NCCL_VERSION_LEAST = 21900,
    IGNIS__NCCL_UINT8 = 1,
    IGNIS__NCCL_INT32 = 2,
    IGNIS__NCCL_INT64 = 4,
    IGNIS__NCCL_FLOAT16 = 6,
    IGNIS__NCCL_FLOAT32 = 7,
    IGNIS__NCCL_FLOAT64 = 8,
    IGNIS__NCCL_BFLOAT16 = 9,
    IGNIS__NCCL_SUM = 0,
    IGNIS__NCCL_PROD = 1,
    IGNIS__NCCL_MAX = 2,
    IGNIS__NCCL_MIN = 3,
    IGNIS__NCCL_AVG = 4
};

/*  By ignis_dtype, whose first is the default. */
static const int ignis__nccl_dtypes[IGNIS_DTYPE_COUNT] = {IGNIS__NCCL_FLOAT32, IGNIS__NCCL_FLOAT16, IGNIS__NCCL_BFLOAT16,
                                                          IGNIS__NCCL_FLOAT32, IGNIS__NCCL_FLOAT64, IGNIS__NCCL_INT32,
                                                          IGNIS__NCCL_INT64,   IGNIS__NCCL_UINT8};
/*  By ignis_op. */
static const int ignis__nccl_ops[IGNIS_OP_COUNT] = {IGNIS__NCCL_SUM, IGNIS__NCCL_PROD, IGNIS__NCCL_MIN, IGNIS__NCCL_MAX, IGNIS__NCCL_AVG};

/*  ncclConfig_t as of NCCL 2.19; its version tells newer ones that fields of theirs are missing. */
typedef struct ignis__nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster_size, least_blocks, most_blocks;
    const char *net_name;
    int split_share;
} ignis__nccl_config;

typedef enum ignis__nccl_kind {
    IGNIS__NCCL_ALL_REDUCE,
    IGNIS__NCCL_REDUCE,
    IGNIS__NCCL_BROADCAST,
    IGNIS__NCCL_ALL_GATHER,     /* count: what each rank gives */
    IGNIS__NCCL_REDUCE_SCATTER, /* count: what each rank gets */
    IGNIS__NCCL_ALL_TO_ALL,     /* count: what each rank gives each other */
    IGNIS__NCCL_SEND,
    IGNIS__NCCL_RECV,
    IGNIS__NCCL_SEND_RECV /* to and from the same peer */
} ignis__nccl_kind;

/*  One rank's part in an NCCL communicator. It is nonblocking: each call returns at once, and is waited for with a deadline. */
typedef struct ignis__nccl_comm {
    ignis__mutex lock; /* NCCL wants one call at a time, and ignis__nccl_abort comes from other threads */
    void *comm;        /* null: aborted */
    ignis__device *device;
    int64_t patience_ns; /* how long a call may be in progress */
} ignis__nccl_comm;

#define IGNIS__NCCL(name, args) IGNIS_CALL_HOOK(#name, ignis__nccl.name args)

/*  NCCL, and no older than its interface here. */
static bool ignis__nccl_open(const char *call)
{
    const struct ignis__loaded *loaded = &ignis__libraries[IGNIS_LIBRARY_NCCL];
    int release;
    if (!ignis__library_load(call, IGNIS_LIBRARY_NCCL))
        return false;
    release = (int)loaded->release;
    if (release >= IGNIS__NCCL_VERSION_LEAST)
        return true;
    ignis__fail(IGNIS_DIAG_LIBRARY_SYMBOL, call, "NCCL (%s) says that it is version %d.%d.%d; 2.19.0 or newer is needed", loaded->path,
                release / 10000, release / 100 % 100, release % 100);
    return false;
}

/*  Turns what NCCL answered into a failure of `call`. */
static ignis_status ignis__nccl_fail(const char *call, void *comm, const char *function, int error)
{
    const char *text = ignis__nccl.ncclGetErrorString(error), *detail = ignis__nccl.ncclGetLastError(comm);
    return ignis__fail_because(IGNIS_DIAG_NCCL_CALL, call, error, text, NULL, "%s failed with \"%s\" (%d)%s%s", function,
                               text ? text : "unknown error", error, detail && *detail ? ": " : "", detail ? detail : "");
}

static void ignis__nccl_pause(void)
{
#ifdef _WIN32
    Sleep(1);
#else
    struct timespec time = IGNIS__ZERO;
    time.tv_nsec = 20000;
    (void)nanosleep(&time, NULL);
#endif
}

/*  Waits until the last call on the communicator is through. Returns NCCL's number, or _ABORTED, or _LATE. */
static int ignis__nccl_settle(ignis__nccl_comm *nccl, int64_t deadline_ns)
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
        ignis__nccl_pause();
    }
}

/*  Ends an NCCL communicator at once, also under operations that are under way: they end, with results that mean nothing, here and not
    for the other ranks. Any thread may call it. */
static void ignis__nccl_abort(ignis__nccl_comm *nccl)
{
    ignis__binding binding;
    void *comm;
    bool entered;
    ignis__mutex_lock(&nccl->lock);
    comm = nccl->comm;
    nccl->comm = NULL;
    if (comm) {
        entered = !ignis__atomic_load(&nccl->device->lost) && ignis__device_enter("ignis_comm_abort", nccl->device, &binding);
        (void)IGNIS__NCCL(ncclCommAbort, (comm));
        if (entered)
            ignis__device_leave(&binding);
    }
    ignis__mutex_unlock(&nccl->lock);
}

/*  The failure of a call that did not end well; the communicator is of no use any more. */
static bool ignis__nccl_give_up(const char *call, ignis__nccl_comm *nccl, const char *function, int error)
{
    if (error == IGNIS__NCCL_ABORTED)
        ignis__fail(IGNIS_DIAG_COMM_BROKEN, call, "the communicator was aborted while %s was under way", function);
    else if (error == IGNIS__NCCL_LATE)
        ignis__fail(IGNIS_DIAG_COMM_TIMEOUT, call, "%s was not through after %lld ms: other ranks did not come", function,
                    (long long)(nccl->patience_ns / 1000000));
    else
        ignis__nccl_fail(call, nccl->comm, function, error);
    ignis__nccl_abort(nccl);
    return false;
}

/*  What one rank makes and all give to ignis__nccl_join. */
IGNIS__MAYBE_UNUSED static bool ignis__nccl_make_id(const char *call, ignis__nccl_id *id)
{
    int error;
    memset(id, 0, sizeof *id);
    if (!ignis__nccl_open(call))
        return false;
    error = IGNIS__NCCL(ncclGetUniqueId, (id));
    return error == IGNIS__NCCL_SUCCESS || ignis__nccl_fail(call, NULL, "ncclGetUniqueId", error) == IGNIS_OK;
}

/*  Begins to join the other ranks; ignis__nccl_joined waits for them. A thread that drives several ranks begins with all, then waits.
    patience_ns is for this and for every later call. Null on failure. */
IGNIS__MAYBE_UNUSED static ignis__nccl_comm *ignis__nccl_begin(const char *call, ignis__device *device, const ignis__nccl_id *id, int rank,
                                                               int size, int64_t patience_ns)
{
    ignis__nccl_config config;
    ignis__nccl_comm *nccl;
    ignis__binding binding;
    int error;
    if (!ignis__nccl_open(call))
        return NULL;
    nccl = (ignis__nccl_comm *)ignis__alloc(sizeof *nccl);
    if (!nccl) {
        ignis__fail_host_memory(call, sizeof *nccl);
        return NULL;
    }
    if (!ignis__device_enter(call, device, &binding)) {
        ignis__free(nccl);
        return NULL;
    }
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.magic = 0xCAFEBEEFu;
    config.version = IGNIS__NCCL_VERSION_LEAST;
    config.cluster_size = config.least_blocks = config.most_blocks = config.split_share = INT_MIN; /* NCCL decides */
    ignis__mutex_init(&nccl->lock);
    nccl->device = device;
    nccl->patience_ns = patience_ns;
    error = IGNIS__NCCL(ncclCommInitRankConfig, (&nccl->comm, size, *id, rank, &config));
    ignis__device_leave(&binding);
    if (error == IGNIS__NCCL_SUCCESS || error == IGNIS__NCCL_IN_PROGRESS)
        return nccl;
    (void)ignis__nccl_give_up(call, nccl, "ncclCommInitRankConfig", error);
    ignis__free(nccl);
    return NULL;
}

/*  Waits until all ranks are there. On failure the communicator is aborted, and still to be left. */
IGNIS__MAYBE_UNUSED static bool ignis__nccl_joined(const char *call, ignis__nccl_comm *nccl)
{
    int error = ignis__nccl_settle(nccl, ignis__monotonic_ns() + nccl->patience_ns);
    return error == IGNIS__NCCL_SUCCESS || ignis__nccl_give_up(call, nccl, "ncclCommInitRankConfig", error);
}

/*  Gives up a rank's part; its operations are done. Null is fine. */
IGNIS__MAYBE_UNUSED static void ignis__nccl_leave(const char *call, ignis__nccl_comm *nccl)
{
    ignis__binding binding;
    int error;
    if (!nccl)
        return;
    if (nccl->comm && !ignis__atomic_load(&nccl->device->lost) && ignis__device_enter(call, nccl->device, &binding)) {
        error = IGNIS__NCCL(ncclCommFinalize, (nccl->comm));
        if (error == IGNIS__NCCL_IN_PROGRESS)
            error = ignis__nccl_settle(nccl, ignis__monotonic_ns() + nccl->patience_ns);
        if (error == IGNIS__NCCL_SUCCESS && IGNIS__NCCL(ncclCommDestroy, (nccl->comm)) == IGNIS__NCCL_SUCCESS)
            nccl->comm = NULL;
        ignis__device_leave(&binding);
    }
    ignis__nccl_abort(nccl); /* whatever did not end well */
    ignis__free(nccl);
}

/*  Joins, and waits for the others until the deadline, by ignis__monotonic_ns. Null on failure. */
IGNIS__MAYBE_UNUSED static ignis__nccl_comm *ignis__nccl_join(const char *call, ignis__device *device, const ignis__nccl_id *id, int rank,
                                                              int size, int64_t deadline_ns)
{
    ignis__nccl_comm *nccl = ignis__nccl_begin(call, device, id, rank, size, deadline_ns - ignis__monotonic_ns());
    if (nccl && !ignis__nccl_joined(call, nccl)) {
        ignis__nccl_leave(call, nccl);
        nccl = NULL;
    }
    return nccl;
}

/*  One operation of several messages: between each two of ncclGroupStart and ncclGroupEnd. */
typedef struct ignis__nccl_group {
    ignis__nccl_comm *nccl;
    const char *function; /* the first that failed */
    int error;
} ignis__nccl_group;

static void ignis__nccl_send(ignis__nccl_group *group, ignis__address from, int64_t count, int dtype, int peer, void *stream)
{
    int error = IGNIS__NCCL(ncclSend, ((const void *)(uintptr_t)from, (size_t)count, dtype, peer, group->nccl->comm, stream));
    if (error != IGNIS__NCCL_SUCCESS && error != IGNIS__NCCL_IN_PROGRESS && group->error == IGNIS__NCCL_SUCCESS) {
        group->error = error;
        group->function = "ncclSend";
    }
}

static void ignis__nccl_recv(ignis__nccl_group *group, ignis__address to, int64_t count, int dtype, int peer, void *stream)
{
    int error = IGNIS__NCCL(ncclRecv, ((void *)(uintptr_t)to, (size_t)count, dtype, peer, group->nccl->comm, stream));
    if (error != IGNIS__NCCL_SUCCESS && error != IGNIS__NCCL_IN_PROGRESS && group->error == IGNIS__NCCL_SUCCESS) {
        group->error = error;
        group->function = "ncclRecv";
    }
}

/*  An operation, queued on the stream when this returns. root_or_peer is the root of reduce and broadcast, and the other rank of messages; in
    and out are of this rank. The device is entered. Failure breaks the communicator. */
IGNIS__MAYBE_UNUSED static bool ignis__nccl_run(const char *call, ignis__nccl_comm *nccl, ignis__nccl_kind kind, ignis__address in,
                                                ignis__address out, int64_t count, ignis_dtype dtype, ignis_op op, int root_or_peer,
                                                int size, void *stream)
{
    static const char *const names[] = {"ncclAllReduce",         "ncclReduce", "ncclBroadcast", "ncclAllGather",        "ncclReduceScatter",
                                        "ncclSend and ncclRecv", "ncclSend",   "ncclRecv",      "ncclSend and ncclRecv"};
    const void *from = (const void *)(uintptr_t)in;
    void *to = (void *)(uintptr_t)out, *comm;
    size_t number = (size_t)count;
    int type = ignis__nccl_dtypes[dtype], reduction = ignis__nccl_ops[op], error, peer;
    int64_t bytes = count * ignis__dtypes[dtype].size;
    ignis__nccl_group group;
    group.nccl = nccl;
    group.function = names[kind];
    group.error = IGNIS__NCCL_SUCCESS;
    ignis__mutex_lock(&nccl->lock);
    comm = nccl->comm;
    if (!comm) {
        ignis__mutex_unlock(&nccl->lock);
        ignis__fail(IGNIS_DIAG_COMM_BROKEN, call, "the NCCL communicator has failed before, or was aborted");
        return false;
    }
    switch (kind) {
    case IGNIS__NCCL_ALL_REDUCE: error = IGNIS__NCCL(ncclAllReduce, (from, to, number, type, reduction, comm, stream)); break;
    case IGNIS__NCCL_REDUCE: error = IGNIS__NCCL(ncclReduce, (from, to, number, type, reduction, root_or_peer, comm, stream)); break;
    case IGNIS__NCCL_BROADCAST: error = IGNIS__NCCL(ncclBroadcast, (from, to, number, type, root_or_peer, comm, stream)); break;
    case IGNIS__NCCL_ALL_GATHER: error = IGNIS__NCCL(ncclAllGather, (from, to, number, type, comm, stream)); break;
    case IGNIS__NCCL_REDUCE_SCATTER: error = IGNIS__NCCL(ncclReduceScatter, (from, to, number, type, reduction, comm, stream)); break;
    default:
        (void)IGNIS__NCCL(ncclGroupStart, ());
        for (peer = kind == IGNIS__NCCL_ALL_TO_ALL ? 0 : root_or_peer; peer < size; peer++) {
            int64_t at = kind == IGNIS__NCCL_ALL_TO_ALL ? peer * bytes : 0;
            if (kind != IGNIS__NCCL_RECV)
                ignis__nccl_send(&group, in + (ignis__address)at, count, type, peer, stream);
            if (kind != IGNIS__NCCL_SEND)
                ignis__nccl_recv(&group, out + (ignis__address)at, count, type, peer, stream);
            if (kind != IGNIS__NCCL_ALL_TO_ALL)
                break;
        }
        error = IGNIS__NCCL(ncclGroupEnd, ());
        error = group.error != IGNIS__NCCL_SUCCESS ? group.error : error;
    }
    ignis__mutex_unlock(&nccl->lock);
    if (error == IGNIS__NCCL_IN_PROGRESS)
        error = ignis__nccl_settle(nccl, ignis__monotonic_ns() + nccl->patience_ns);
    return error == IGNIS__NCCL_SUCCESS || ignis__nccl_give_up(call, nccl, group.function, error);
}

/*  What has gone wrong since with operations that are on their way, such as another host that is gone. True: nothing. */
IGNIS__MAYBE_UNUSED static bool ignis__nccl_check(const char *call, ignis__nccl_comm *nccl)
{
    int error = ignis__nccl_settle(nccl, 0);
    return error == IGNIS__NCCL_SUCCESS || error == IGNIS__NCCL_LATE || ignis__nccl_give_up(call, nccl, "an operation of NCCL", error);
}

/* ===============================================================================================================
   >>job - the processes of one program: how they meet, what they tell each other, who died.
   =============================================================================================================== */

/* ===============================================================================================================
   >>comm - communicators and collective operations.
   =============================================================================================================== */

/* --- the communicator, its region, its kernels ------------------------------------------------------------------------ */

/* --- operations ------------------------------------------------------------------------------------------------------- */

/* --- making, splitting, ending ---------------------------------------------------------------------------------------- */

/* ===============================================================================================================
   >>parallel - data-parallel training.
   =============================================================================================================== */

#endif /* IGNIS_COLLECTIVE_IMPLEMENTED */
#endif /* IGNIS_IMPLEMENTATION */
