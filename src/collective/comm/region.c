/*  >>comm - communicators and collective operations

    Types of this room: the region of a rank, what kernels read and write, the communicator itself.
    Uses: vmm, peer, job, nccl; arrays, modules and streams of ignis.h.
    Invariants: the layout of a region and the structs equal those of kernels/collective.cuh.
    Locks: a communicator's slot, one operation at a time; then regions->lock; then the job's lock. */

/*  Buffer of one set and phase, compiled into kernels. It fits chunks of 64 KB in two phases with 128
    blocks. */
#ifndef IGNIS__COMM_DATA_MIB
#define IGNIS__COMM_DATA_MIB 24
#endif

/*  The layout of a region, and the structs that kernels use; kernels/collective.cuh has the same and explains
    them. */
enum {
    IGNIS__COMM_BLOCKS = 256,
    IGNIS__COMM_LANES = 64,
    IGNIS__COMM_FLAGS = 4096,
    IGNIS__COMM_PACKETS = 1 << 18,
    IGNIS__COMM_PACKETS_SIZE = 4 << 20,
    IGNIS__COMM_DATA = IGNIS__COMM_PACKETS + 4 * IGNIS__COMM_PACKETS_SIZE,
    IGNIS__COMM_DATA_SIZE = IGNIS__COMM_DATA_MIB << 20,
    IGNIS__COMM_PAIR_DATA = IGNIS__COMM_DATA + 4 * IGNIS__COMM_DATA_SIZE,
    IGNIS__COMM_PAIR_SLOT = 16 << 10,
    IGNIS__COMM_PAIR_SLOTS = 4,
    IGNIS__COMM_ONE_PHASE_SLOTS = 4,
    IGNIS__COMM_TWO_PHASE_SLOTS = 3,
    IGNIS__COMM_PACKET_THREADS = 544, /* of a block, at most; one warp of them moves no data */
    IGNIS__COMM_FLAG_THREADS = 512
};

/*  What broke a communicator. */
enum {
    IGNIS__COMM_FINE,
    IGNIS__COMM_TIMEOUT,
    IGNIS__COMM_MISMATCH,
    IGNIS__COMM_PEER,
    IGNIS__COMM_TWICE,
    IGNIS__COMM_NCCL_FAILED
};

typedef struct ignis__comm_record {
    uint64_t abort; /* the host's request that kernels return: code, and rank << 8 */
    uint64_t code;
    uint32_t peer;
    uint32_t reporter;
    uint32_t op;
    uint64_t mine, theirs;
    uint64_t nccl;
} ignis__comm_record;

typedef struct ignis__comm_state {
    uint32_t op[IGNIS__COMM_BLOCKS];
    uint32_t broken;
    uint32_t running;
    uint32_t rank, size;
    ignis__address record;
    ignis__address region[IGNIS_COMM_MAX_RANKS];
    uint32_t sent[IGNIS_COMM_MAX_RANKS][IGNIS__COMM_LANES], received[IGNIS_COMM_MAX_RANKS][IGNIS__COMM_LANES];
    uint64_t marks;
    uint64_t byte; /* for barriers by NCCL; not read by kernels */
} ignis__comm_state;

typedef struct ignis__comm_call {
    ignis__address region[IGNIS_COMM_MAX_RANKS];
    ignis__address state, in, out;
    int64_t count, in_stride, out_stride, timeout_ns;
    uint64_t fingerprint, fingerprint_in;
    int rank, chunk, steps;
    uint32_t push, take, push_two, take_two;
    int root, none, in_aligned, out_aligned, keep;
} ignis__comm_call;

/*  Parameters for measurements: IGNIS_COMM_TUNE="ll_max=64K,blocks=32,..." is read when a communicator
    starts, and must be equal on all ranks. -1: from the tables. */
typedef struct ignis__comm_tune {
    int64_t ll_max;       /* bytes of the largest operation by packets in one phase */
    int64_t ll_two_max;   /* in two phases */
    int64_t one_shot_max; /* bytes of the largest operation by flags in one phase */
    int64_t nccl_min;     /* bytes of all slices from which NCCL is used, if joined; 0: never */
    /* by flags; chunk: bytes that a block moves in a step, for all ranks together */
    int64_t blocks, threads, chunk;
    int64_t ll_blocks, ll_threads; /* by packets */
    int64_t lanes;                 /* blocks of a send or receive */
    int64_t epoch;                 /* the number before the first operation */
    int64_t delay;                 /* 1: random delays in blocks, for tests */
} ignis__comm_tune;

#define IGNIS__COMM_TUNES(X) \
    X(ll_max, -1)            \
    X(ll_two_max, -1)        \
    X(one_shot_max, -1)      \
    X(nccl_min, -1)          \
    X(blocks, -1)            \
    X(threads, -1) X(chunk, -1) X(ll_blocks, -1) X(ll_threads, -1) X(lanes, IGNIS__COMM_LANES) X(epoch, 15) X(delay, 0)

/*  The regions of all ranks in this process. Communicators of ignis_comm_init_all share them, at the same
    address on all devices. Kernels of each write to the regions of the others, so they are freed with the
    last one. */
typedef struct ignis__comm_regions {
    uint64_t users;
    int count;                                    /* of regions; 0 with one rank, or NCCL alone */
    ignis__address address[IGNIS_COMM_MAX_RANKS]; /* 0: missing */
    ignis__vmm_block block[IGNIS_COMM_MAX_RANKS]; /* own or imported device memory, */
    void *host[IGNIS_COMM_MAX_RANKS];             /* or host memory, */
    bool pinned[IGNIS_COMM_MAX_RANKS];            /* pinned for this device */
    ignis__device *device;
    int64_t bytes; /* of each region in host memory */
    bool late;     /* a copy to or from them has not ended: they are never freed */
    ignis__mutex lock;
    /* of ignis_comm_init_all: the communicators that share them; NULL: ended */
    struct ignis__comm *comms[IGNIS_COMM_MAX_RANKS];
} ignis__comm_regions;

/*  Memory that kernels of a communicator use; it stays until no graph can run them. */
typedef struct ignis__comm_memory {
    ignis__device *device;
    ignis__block *state;
    ignis__comm_record *record;
    ignis__pinned *record_piece; /* the memory of record */
    ignis__comm_regions *regions;
    ignis__nccl_comm *nccl; /* set before nccl_there; NULL: none. Stays until the end, also after a failure */
} ignis__comm_memory;

/*  Whether NCCL is used. All ranks find out together, at the first operation that NCCL does faster. */
typedef enum ignis__comm_nccl_state {
    IGNIS__COMM_NCCL_UNTRIED,
    IGNIS__COMM_NCCL_JOINED,
    IGNIS__COMM_NCCL_REFUSED
} ignis__comm_nccl_state;

/*  Options of a description; derived communicators inherit them. */
typedef struct ignis__comm_options {
    int64_t timeout_ns;
    ignis_comm_transport transport;
    int most_blocks; /* 0: all that run at the same time */
} ignis__comm_options;

typedef struct ignis__comm {
    ignis__slot slot; /* its lock: one operation at a time */
    int rank, size;
    ignis__device *device;
    ignis__comm_options options;
    char reason[256];
    ignis__comm_tune tune;
    int most_blocks;  /* of a kernel, so that all run at the same time */
    uint64_t broken;  /* by the host: code, and rank << 8 */
    void *stream;     /* of its last operation; NULL: unknown */
    uint64_t used_ns; /* of its last operation */
    uint64_t beside;  /* handle of the communicator that used the device before */
    /* Programs that it has used; [0][0] moves bytes. */
    struct ignis__comm_program *programs[IGNIS_DTYPE_COUNT][IGNIS_OP_COUNT];
    ignis__storage *storage; /* over memory; held by graphs */
    ignis__comm_memory *memory;

    /* For communicators of ignis_comm_init, and those derived from them. */
    ignis__job *job;        /* NULL: of ignis_comm_init_all */
    ignis__job_watch watch; /* with the key of its messages, and its ranks in the job */
    int member[IGNIS__JOB_MAX_RANKS];
    unsigned char gone[IGNIS__JOB_MAX_RANKS];
    ignis__mutex agreement; /* one agreement at a time */
    uint32_t attempts;      /* of agreements */
    ignis_comm_transport transport;
    ignis__comm_nccl_state nccl_state; /* if there are built-in kernels, too */
    uint64_t nccl_there;               /* other threads may use memory->nccl */
    uint64_t nccl_seen;                /* by the watcher: the operation of NCCL that ran at its last look, */
    int64_t nccl_since;                /* and since when */
    uint64_t nccl_told;                /* nccl_reason is set */
    char nccl_reason[192];
} ignis__comm;

/*  The handle of the communicator that was used last, by device. */
static uint64_t ignis__comm_last_used[IGNIS_MAX_DEVICES];

static ignis__pool ignis__comms = IGNIS__POOL(ignis__comm, IGNIS__KIND_COMM, "communicator", IGNIS_DIAG_COMM_FREED);

/*  Tells if it has Ignis' kernels, not only NCCL. */
static bool ignis__comm_has_region(const ignis__comm *comm) { return comm->memory->regions->address[0] != 0; }

/*  Returns the bytes of a rank's region. */
static int64_t ignis__comm_region_bytes(int size)
{
    return IGNIS__COMM_PAIR_DATA + (int64_t)size * IGNIS__COMM_LANES * IGNIS__COMM_PAIR_SLOTS * IGNIS__COMM_PAIR_SLOT;
}
