/* >>comm - communicators and collective operations -------------------------------------------------------------- */

#define IGNIS_COMM_MAX_RANKS 8  /* of Ignis' own kernels; beyond, NCCL does the work */
#define IGNIS_COMM_ID_BYTES 128 /* as many as NCCL's, so that programs can hand it on in the same way */

/*  A communicator: what one rank of a group of GPUs holds. */
typedef struct ignis_comm {
    uint64_t id;
} ignis_comm;

/*  How reducing operations combine elements. */
typedef enum ignis_op {
    IGNIS_OP_SUM,
    IGNIS_OP_PROD,
    IGNIS_OP_MIN,
    IGNIS_OP_MAX,
    IGNIS_OP_AVG,
    IGNIS_OP_COUNT
} ignis_op;

/* --- making, splitting, ending --- */

/*  How the data of a communicator travels. */
typedef enum ignis_comm_transport {
    /* the first of the others that works between all ranks: IGNIS_COMM_PEER, IGNIS_COMM_STAGED; NCCL where
       ranks are on several hosts, or more than IGNIS_COMM_MAX_RANKS */
    IGNIS_COMM_TRANSPORT_DEFAULT = 0,
    IGNIS_COMM_PEER,   /* GPUs read and write each other's memory (NVLink, PCIe) */
    IGNIS_COMM_STAGED, /* through pinned host memory that all ranks map */
    IGNIS_COMM_NCCL,   /* NCCL does the work */
    IGNIS_COMM_TRANSPORT_COUNT
} ignis_comm_transport;

/*  Where ranks meet, and the secret by which they know each other: made by rank 0, and handed on by the
    program. */
typedef struct ignis_comm_id {
    unsigned char bytes[IGNIS_COMM_ID_BYTES];
} ignis_comm_id;

typedef struct ignis_comm_desc {
    int rank; /* with size: this rank, 0 to size - 1 (0) */
    int size; /* how many ranks there are (0: rank, size and device come from the environment) */
    /* where they meet: "dir:/path" of a private folder, or "host:port" (IGNIS_COMM_DIR, MASTER_ADDR) */
    const char *rendezvous;
    /* with "host:port": a secret that all ranks know (IGNIS_COMM_TOKEN; without one, only this host) */
    const char *token;
    int device;       /* the LOCAL_RANK-th device, or the only one; IGNIS_DEVICE_0 for device 0 */
    double timeout_s; /* the deadline of every wait: for ranks that have not come, and inside operations (30) */
    /* one that must be used, or the call fails (IGNIS_COMM_TRANSPORT=peer, staged or nccl; the best) */
    ignis_comm_transport transport;
    /* instead of rendezvous and token: what ignis_comm_unique_id has given rank 0, on all ranks */
    const ignis_comm_id *id;
    /* of a kernel, each on a multiprocessor of its own (as many as is fastest): see ON SEVERAL
       COMMUNICATORS */
    int most_blocks;
} ignis_comm_desc;

typedef struct ignis_comm_info {
    int rank, size;
    int device;                     /* of this rank */
    int local_rank, local_size;     /* among the ranks on this host */
    int hosts;                      /* that the ranks are on */
    ignis_comm_transport transport; /* that is used */
    char reason[256];               /* why this one */
    ignis_status status; /* IGNIS_OK, or what broke the communicator: _PEER, _TIMEOUT, _MISMATCH, of NCCL _CUDA */
    int failed_rank;     /* whom it was about; -1: nobody, or not known */
    double timeout_s;
} ignis_comm_info;

/*  ignis_comm_init - meet the other ranks, and make a communicator of all; desc may be null for all defaults
    Every rank calls it, each for a device of its own. Rank and size come from the desc or else from the
    environment (see ON STARTING in the manual); where nothing is set, it is one rank alone. Ranks are
    processes, or threads of one process that each say their rank.
    Returns: the communicator, or no handle.
    Errors: ARGUMENT (desc, or the environment contradicts itself), DEVICE, PEER (a rank was refused, died or
    uses another's GPU), TIMEOUT (ranks that did not come are named), IO, UNSUPPORTED (the transport that was
    asked for), LIBRARY (NCCL is needed and missing), MEMORY, CUDA.
    Ownership: the caller ends it with ignis_comm_destroy. desc and its strings are copied.
    Threads: any; waits for the other ranks. Memory: one region on each GPU, which every other rank maps. */
IGNIS_API ignis_comm ignis_comm_init(const ignis_comm_desc *desc);

/*  ignis_comm_unique_id - where the ranks of one ignis_comm_init can meet, and the secret by which they know
    each other
    The process that is going to be rank 0 calls it and gives the id to the others, as programs of MPI give
    NCCL's to each other: if (rank == 0) ignis_comm_unique_id(&id); MPI_Bcast(&id, sizeof id, MPI_BYTE, 0,
    MPI_COMM_WORLD); desc.id = &id on all ranks. It listens from here on, at a port that the system chooses,
    on all addresses of this host; on Windows at a pipe, when rank 0 has come. Whoever knows the id takes
    part: hand it on by a way that others do not read.
    Returns: IGNIS_OK, and *id filled.
    Errors: ARGUMENT, MEMORY, PEER (the system gives no port).
    Ownership: an id is used once; those that are not used listen until ignis_shutdown.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_unique_id(ignis_comm_id *id);

/*  ignis_comm_split - make communicators of the ranks that give the same color
    All ranks of comm call it, as they call operations. In the new one ranks are ordered by key, and by their
    rank in comm where keys are equal. A rank with a color below 0 takes part in none. Communicators of
    ignis_comm_init_all are split by ignis_comm_split_all.
    Returns: the new communicator; no handle on failure, and, without a failure, for a color below 0. After a
    TIMEOUT, of some ranks or of all, it is called again, by all.
    Errors: FREED, PEER, TIMEOUT, MISMATCH (a rank is in ignis_comm_shrink), UNSUPPORTED, LIBRARY, MEMORY,
    CUDA.
    Ownership: the caller ends it with ignis_comm_destroy, before or after comm.
    Threads: any; a second split or shrink of comm waits for the first. Waits for the other ranks. */
IGNIS_API ignis_comm ignis_comm_split(ignis_comm comm, int color, int key);

/*  ignis_comm_shrink - make a communicator of the ranks that are still alive
    ignis_comm_shrink_without - the same, and leave out count ranks of comm that may still be alive: stopped,
    or out of reach All of them call it, after comm has failed or before. They agree first on which ranks are
    gone; ranks keep their order. comm itself stays as it is, to be destroyed: late writes of dead ranks go to
    its memory, which nobody uses again. Communicators of ignis_comm_init_all are shrunk by
    ignis_comm_shrink_all. Of ignis_comm_shrink_without, all ranks that go on name the same ranks, in any
    order, as if those had died; who is dead need not be named. One that was left out learns it by MISMATCH
    when it calls ignis_comm_shrink itself, and destroys comm.
    Returns: the new communicator, or no handle. After a TIMEOUT, of some ranks or of all, it is called again,
    by all.
    Errors: FREED, TIMEOUT (a rank that is alive does not call it), MISMATCH (a rank names others to be left
    out), ARGUMENT (ranks holds this rank, or none of comm's; count below 0), and those of ignis_comm_init.
    Ownership: the caller ends it with ignis_comm_destroy, and comm too.
    Threads: any; a second split or shrink of comm waits for the first. Waits for the other ranks. */
IGNIS_API ignis_comm ignis_comm_shrink(ignis_comm comm);
IGNIS_API ignis_comm ignis_comm_shrink_without(ignis_comm comm, const int *ranks, int count);

/*  ignis_comm_abort - break a communicator on all its ranks: what waits in an operation, there or here, ends
    with PEER
    Returns: IGNIS_OK, also when it is broken already.
    Errors: FREED.
    Ownership: it still has to be destroyed.
    Threads: any, also while another one is inside an operation on it. Does not wait. */
IGNIS_API ignis_status ignis_comm_abort(ignis_comm comm);

/*  ignis_comm_destroy - end this rank's part in a communicator, after all work on its device is done
    The others may still be inside their last operation, and need not call it at the same time. The last
    communicator of one ignis_comm_init, of those split and shrunk from it too, tells the other ranks that
    this one leaves. Between hosts the other ranks of this host then have up to 5 s to do the same, so that
    NCCL does not cut off their last operation. Graphs that have captured operations may outlive the
    communicator; launched then, they end at once, with undefined results.
    Returns: IGNIS_OK, or the first driver error met on the way; everything is released all the same.
    Errors: FREED (also for a second destroy), CUDA.
    Ownership: the handle is stale afterwards.
    Threads: any. Waits for the device. */
IGNIS_API ignis_status ignis_comm_destroy(ignis_comm comm);

/*  ignis_comm_query - rank and size, the transport and why it was chosen, and whether the communicator works
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_query(ignis_comm comm, ignis_comm_info *info);

/*  ignis_comm_init_all - make the communicators of several devices of this process: comms[i] is rank i, on
    devices[i]
    devices may be null: the first count devices. Of desc (null: all defaults), timeout_s and most_blocks
    count. One thread may call an operation on each of them in turn, as operations do not wait; or each has a
    thread of its own.
    Returns: IGNIS_OK, and *comms filled; all zero on failure.
    Errors: ARGUMENT (desc, a device twice, count below 1 or above IGNIS_COMM_MAX_RANKS), DEVICE, UNSUPPORTED
    (two devices do not reach each other's memory), MEMORY, CUDA.
    Ownership: the caller ends each with ignis_comm_destroy.
    Threads: any. Waits for the devices. */
IGNIS_API ignis_status ignis_comm_init_all(ignis_comm *comms, const int *devices, int count,
                                           const ignis_comm_desc *desc);

/*  ignis_comm_split_all - ignis_comm_split for the communicators of ignis_comm_init_all, all ranks at once
    comms are all ranks of one group, in any order: of one ignis_comm_init_all, of one ignis_comm_shrink_all,
    or of one color of an ignis_comm_split_all. comms[i] gives colors[i] and keys[i]; without keys (null)
    ranks are ordered as in comms' group. out[i] is the new communicator on the device of comms[i]; no handle
    for a color below 0. comms stay as they are, and in use.
    Returns: IGNIS_OK, and *out filled; all zero on failure.
    Errors: FREED, ARGUMENT (not all ranks of one group), UNSUPPORTED (communicators of ignis_comm_init),
    DEVICE, MEMORY, CUDA.
    Ownership: the caller ends each with ignis_comm_destroy, before or after comms.
    Threads: any. Waits for the devices: operations that some rank has begun are to be begun on all. */
IGNIS_API ignis_status ignis_comm_split_all(const ignis_comm *comms, const int *colors, const int *keys, int count,
                                            ignis_comm *out);

/*  ignis_comm_shrink_all - ignis_comm_shrink for the communicators of ignis_comm_init_all, all ranks at once
    comms are of one group, in any order, after they have failed or before. Left out are ranks for which comms
    has no handle, and those that are not in comms; the others keep their order. out[i] is the new
    communicator on the device of comms[i]; no handle where comms has none. comms stay as they are, to be
    destroyed. After a fault it fails, as all does: that ends all GPU work of the process. Ranks that are to
    survive the fault of another are processes of their own, with ignis_comm_init and ignis_comm_shrink.
    Returns: IGNIS_OK, and *out filled; all zero on failure.
    Errors: FREED, ARGUMENT (not ranks of one group), UNSUPPORTED (communicators of ignis_comm_init), DEVICE
    (lost to a fault), MEMORY, CUDA.
    Ownership: the caller ends each with ignis_comm_destroy, and comms too.
    Threads: any. Waits for the devices, as ignis_comm_split_all. */
IGNIS_API ignis_status ignis_comm_shrink_all(const ignis_comm *comms, int count, ignis_comm *out);
