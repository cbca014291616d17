/* >>comm - communicators and collective operations --------------------------------------------------------------

   Ranks meet, get a communicator each, and call the same operations on it in the same order. Every wait has a
   deadline. A failure breaks a communicator on all ranks; the survivors make a new one by ignis_comm_shrink.
   Ownership: the caller frees a communicator with ignis_comm_destroy. */

#define IGNIS_COMM_MAX_RANKS 8  /* of the built-in kernels; NCCL runs larger communicators */
#define IGNIS_COMM_ID_BYTES 128 /* as NCCL's, so that programs distribute it in the same way */

/*  A communicator, as one rank of a group of GPUs holds it. */
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

/* --- creating, splitting, destroying --- */

/*  How the data of a communicator travels. */
typedef enum ignis_comm_transport {
    /* IGNIS_COMM_PEER, or IGNIS_COMM_STAGED if that does not work between all ranks; NCCL for several hosts,
       or more than IGNIS_COMM_MAX_RANKS ranks */
    IGNIS_COMM_TRANSPORT_DEFAULT = 0,
    IGNIS_COMM_PEER,   /* GPUs read and write each other's memory (NVLink, PCIe) */
    IGNIS_COMM_STAGED, /* through pinned host memory that all ranks map */
    IGNIS_COMM_NCCL,   /* through NCCL */
    IGNIS_COMM_TRANSPORT_COUNT
} ignis_comm_transport;

/*  A rendezvous and its secret, created by rank 0 and distributed by the program. */
typedef struct ignis_comm_id {
    unsigned char bytes[IGNIS_COMM_ID_BYTES];
} ignis_comm_id;

typedef struct ignis_comm_desc {
    int rank; /* with size: this rank, 0 to size - 1 (0) */
    int size; /* number of ranks (0: rank, size and device come from the environment) */
    /* the rendezvous: "dir:/path" of a private folder, or "host:port" (IGNIS_COMM_DIR, MASTER_ADDR) */
    const char *rendezvous;
    /* with "host:port": a secret that all ranks know (IGNIS_COMM_TOKEN; without one, only this host) */
    const char *token;
    int device;       /* the LOCAL_RANK-th device, or the only one; IGNIS_DEVICE_0 for device 0 */
    double timeout_s; /* the deadline of every wait, at the rendezvous and inside operations (30) */
    /* a transport that must be used, or the call fails (IGNIS_COMM_TRANSPORT=peer, staged or nccl; the
       best) */
    ignis_comm_transport transport;
    /* instead of rendezvous and token: the id that ignis_comm_unique_id returned on rank 0 */
    const ignis_comm_id *id;
    /* blocks of a kernel, one an SM (the fastest number): see ON SEVERAL COMMUNICATORS */
    int most_blocks;
    /* a rank from which nothing comes for this time counts as dead, from 0.1; equal on all ranks: see WHEN A RANK DIES
       (IGNIS_COMM_HEARTBEAT, none) */
    double heartbeat_s;
} ignis_comm_desc;

typedef struct ignis_comm_info {
    int rank, size;
    int device;                     /* of this rank */
    int local_rank, local_size;     /* among the ranks on this host */
    int hosts;                      /* of the ranks */
    ignis_comm_transport transport; /* the one in use */
    char reason[256];               /* why this transport */
    ignis_status status; /* IGNIS_OK, or what broke the communicator: _PEER, _TIMEOUT, _MISMATCH, of NCCL _CUDA */
    int failed_rank;     /* the rank at fault; -1: none or unknown */
    double timeout_s;
} ignis_comm_info;

/*  ignis_comm_init - meet the other ranks and create a communicator of all; desc may be null for all defaults
    Every rank calls it, each for its own device. Rank and size come from desc, or else from the environment
    (see ON STARTING in the manual); if neither sets them, there is one rank. Ranks are processes, or threads
    of one process that each set desc.rank.
    Returns: the communicator, or no handle.
    Errors: ARGUMENT (desc, or the environment contradicts itself), DEVICE, PEER (a rank was refused, died or
    uses another's GPU), TIMEOUT (the missing ranks are named), IO, UNSUPPORTED (the requested transport),
    LIBRARY (NCCL is needed and missing), MEMORY, CUDA.
    Ownership: the caller frees it with ignis_comm_destroy. desc and its strings are copied.
    Threads: any; waits for the other ranks. Memory: one region on each GPU; every other rank maps it. */
IGNIS_API ignis_comm ignis_comm_init(const ignis_comm_desc *desc);

/*  ignis_comm_unique_id - create a rendezvous and its secret for the ranks of one ignis_comm_init
    Rank 0 calls it, and the program gives the id to the others, as MPI programs do with NCCL's: if (rank ==
    0) ignis_comm_unique_id(&id); MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD); desc.id = &id on all
    ranks. Rank 0 listens from here on, at a port that the system chooses, on all addresses of this host; on
    Windows it listens at a pipe from ignis_comm_init on. Keep the id secret: every process that knows it can
    take part.
    Returns: IGNIS_OK, and *id filled.
    Errors: ARGUMENT, MEMORY, PEER (no port is free).
    Ownership: an id is used once; unused ones listen until ignis_shutdown.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_unique_id(ignis_comm_id *id);

/*  ignis_comm_split - create communicators of the ranks with equal colors
    All ranks of comm call it, in order with its operations. New ranks are ordered by key, then by their rank
    in comm. A rank with a color below 0 gets none. Communicators of ignis_comm_init_all are split by
    ignis_comm_split_all.
    Returns: the new communicator; no handle on failure, and for a color below 0. After a TIMEOUT on any rank,
    all call it again.
    Errors: FREED, PEER, TIMEOUT, MISMATCH (a rank is in ignis_comm_shrink), UNSUPPORTED, LIBRARY, MEMORY,
    CUDA.
    Ownership: the caller ends it with ignis_comm_destroy, before or after comm.
    Threads: any; a second split or shrink of comm waits for the first. Waits for the other ranks. */
IGNIS_API ignis_comm ignis_comm_split(ignis_comm comm, int color, int key);

/*  ignis_comm_shrink - create a communicator of the ranks that are still alive
    ignis_comm_shrink_without - also exclude ranks that may be alive, but are stopped or out of reach All of
    them call it, after comm has failed or before. They first agree on the missing ranks; the others keep
    their order. comm itself does not change; destroy it. Late writes of dead ranks go to its memory, which is
    not used again. Communicators of ignis_comm_init_all are shrunk by ignis_comm_shrink_all. For
    ignis_comm_shrink_without, all remaining ranks name the same ranks, in any order; dead ranks need not be
    named. An excluded rank gets MISMATCH when it calls ignis_comm_shrink, and destroys comm.
    Returns: the new communicator, or no handle. After a TIMEOUT on any rank, all call it again.
    Errors: FREED, TIMEOUT (a live rank does not call it), MISMATCH (a rank excludes other ranks), ARGUMENT
    (ranks contains this rank, or a rank that comm does not have; count below 0), and those of
    ignis_comm_init.
    Ownership: the caller frees it with ignis_comm_destroy, and comm too.
    Threads: any; a second split or shrink of comm waits for the first. Waits for the other ranks. */
IGNIS_API ignis_comm ignis_comm_shrink(ignis_comm comm);
IGNIS_API ignis_comm ignis_comm_shrink_without(ignis_comm comm, const int *ranks, int count);

/*  ignis_comm_grow - create a communicator of the ranks that are alive and of ranks that join them
    All living ranks of comm call it, between two steps: after comm has failed, after ignis_comm_shrink, or without
    deaths. The ranks that join call ignis_comm_init, in new processes, with the meeting place of the others. desc.size
    is the number of ranks from now on (0: as many as met at the ignis_comm_init that comm comes from). Each rank keeps
    the rank that it had there, and device; those that join take the other ranks, rank 0 too. Of desc (null: all
    defaults) rank and device are not used; other fields that are zero are as they were at that ignis_comm_init, except
    an id, which is used once. comm itself does not change; destroy it. See RANKS THAT COME BACK.
    Returns: the new communicator, or no handle; comm then is as before. After a failure on any rank, all call it
    again.
    Errors: FREED, ARGUMENT (desc; a size that has no place for this rank; no id), UNSUPPORTED (communicators of
    ignis_comm_init_all, dry runs, a thread that captures a graph), TIMEOUT (a rank did not come: it is named), PEER (a
    rank comes from another job, has other options or another's GPU, or died meanwhile), and those of ignis_comm_init.
    Ownership: the caller frees it with ignis_comm_destroy, and comm too.
    Threads: any; waits for the other ranks. */
IGNIS_API ignis_comm ignis_comm_grow(ignis_comm comm, const ignis_comm_desc *desc);

/*  ignis_comm_abort - break a communicator on all ranks: waiting operations end with PEER everywhere
    Returns: IGNIS_OK, also if it is already broken.
    Errors: FREED.
    Ownership: it still has to be destroyed.
    Threads: any, also during an operation of another thread. Does not wait. */
IGNIS_API ignis_status ignis_comm_abort(ignis_comm comm);

/*  ignis_comm_destroy - leave a communicator, after all work on its device is done
    The other ranks may still be in their last operation, and may call it later. The last communicator of one
    ignis_comm_init, and of those derived from it, tells the other ranks that this one leaves. With several
    hosts, the ranks of this host then have up to 5 s to do the same, so that NCCL completes their last
    operation. Graphs with captured operations may outlive the communicator; they then end at once, with
    undefined results.
    Returns: IGNIS_OK, or the first driver error; everything is released in any case.
    Errors: FREED (also for a second destroy), CUDA.
    Ownership: the handle is stale afterwards.
    Threads: any. Waits for the device. */
IGNIS_API ignis_status ignis_comm_destroy(ignis_comm comm);

/*  ignis_comm_query - read rank, size, transport and its reason, and whether the communicator works
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_query(ignis_comm comm, ignis_comm_info *info);

/*  ignis_comm_init_all - create the communicators of several devices of this process
    comms[i] is rank i, on devices[i]. devices may be null: the first count devices. Of desc (null: all
    defaults) only timeout_s and most_blocks are used. One thread may call an operation on each in turn, since
    operations do not wait; or each has its own thread.
    Returns: IGNIS_OK, and *comms filled; all zero on failure.
    Errors: ARGUMENT (desc, a device twice, count below 1 or above IGNIS_COMM_MAX_RANKS), DEVICE, UNSUPPORTED
    (two devices cannot reach each other's memory), MEMORY, CUDA.
    Ownership: the caller frees each with ignis_comm_destroy.
    Threads: any. Waits for the devices. */
IGNIS_API ignis_status ignis_comm_init_all(ignis_comm *comms, const int *devices, int count,
                                           const ignis_comm_desc *desc);

/*  ignis_comm_split_all - split all communicators of a group of ignis_comm_init_all in one call
    comms are all ranks of one group, in any order: of one ignis_comm_init_all, of one ignis_comm_shrink_all,
    or of one color of an ignis_comm_split_all. comms[i] has colors[i] and keys[i]; without keys (null) the
    order of the group stays. out[i] is the new communicator on the device of comms[i]; no handle for a color
    below 0. comms do not change.
    Returns: IGNIS_OK, and *out filled; all zero on failure.
    Errors: FREED, ARGUMENT (not all ranks of one group), UNSUPPORTED (communicators of ignis_comm_init),
    DEVICE, MEMORY, CUDA.
    Ownership: the caller frees each with ignis_comm_destroy, before or after comms.
    Threads: any. Waits for the devices: first begin on all ranks what one has begun. */
IGNIS_API ignis_status ignis_comm_split_all(const ignis_comm *comms, const int *colors, const int *keys, int count,
                                            ignis_comm *out);

/*  ignis_comm_shrink_all - shrink all communicators of a group of ignis_comm_init_all in one call
    comms are of one group, in any order, after they have failed or before. Ranks without a handle in comms
    are excluded; the others keep their order. out[i] is the new communicator on the device of comms[i]; no
    handle where comms has none. comms do not change; destroy them. After a device fault it fails, as a fault
    ends all GPU work of a process. To survive the fault of another rank, ranks are separate processes with
    ignis_comm_init and ignis_comm_shrink.
    Returns: IGNIS_OK, and *out filled; all zero on failure.
    Errors: FREED, ARGUMENT (not ranks of one group), UNSUPPORTED (communicators of ignis_comm_init), DEVICE
    (lost to a fault), MEMORY, CUDA.
    Ownership: the caller frees each with ignis_comm_destroy, and comms too.
    Threads: any. Waits for the devices, as ignis_comm_split_all. */
IGNIS_API ignis_status ignis_comm_shrink_all(const ignis_comm *comms, int count, ignis_comm *out);
