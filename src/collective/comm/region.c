/* ===============================================================================================================
   >>comm - communicators and collective operations.
   =============================================================================================================== */

/* --- the communicator, its region, its kernels ------------------------------------------------------------------------ */

/*  Of one set and phase; kernels are compiled for it. Blocks come with chunks of 64 KB in two phases when
    there are 128. */
#ifndef IGNIS__COMM_DATA_MIB
#define IGNIS__COMM_DATA_MIB 24
#endif

/*  The layout of a region, and what kernels get and keep; kernels/collective.cuh has the same numbers and
    structs, and says what they mean. */
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
    IGNIS__COMM_PACKET_THREADS = 544, /* of a block, at most; a warp of them does not move data */
    IGNIS__COMM_FLAG_THREADS = 512
};

/*  What has broken a communicator. */
enum {
    IGNIS__COMM_FINE,
    IGNIS__COMM_TIMEOUT,
    IGNIS__COMM_MISMATCH,
    IGNIS__COMM_PEER,
    IGNIS__COMM_TWICE,
    IGNIS__COMM_NCCL_FAILED
};

typedef struct ignis__comm_record {
    uint64_t abort; /* what the host asks kernels to leave for: code, and rank << 8 */
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
    uint64_t byte; /* for barriers through NCCL; kernels do not know it */
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

/*  What may be varied for measuring: IGNIS_COMM_TUNE="ll_max=64K,blocks=32,..." is read when a communicator
    starts, and has to be the same on all ranks. -1: as the table of algorithms says. */
typedef struct ignis__comm_tune {
    int64_t ll_max;       /* bytes of the largest operation by packets in one phase */
    int64_t ll_two_max;   /* and in two */
    int64_t one_shot_max; /* bytes of the largest one by flags in one phase */
    int64_t nccl_min;     /* bytes from which on NCCL does it, where it is there, all parts together; 0: never */
    /* by flags; chunk: bytes that a block moves at a step, all ranks' parts together */
    int64_t blocks, threads, chunk;
    int64_t ll_blocks, ll_threads; /* by packets */
    int64_t lanes;                 /* blocks of a send or receive */
    int64_t epoch;                 /* the number of the operation before the first */
    int64_t delay;                 /* 1: blocks are late at random, for tests */
} ignis__comm_tune;

#define IGNIS__COMM_TUNES(X) \
    X(ll_max, -1)            \
    X(ll_two_max, -1)        \
    X(one_shot_max, -1)      \
    X(nccl_min, -1)          \
    X(blocks, -1)            \
    X(threads, -1) X(chunk, -1) X(ll_blocks, -1) X(ll_threads, -1) X(lanes, IGNIS__COMM_LANES) X(epoch, 15) X(delay, 0)

/*  The regions of all ranks as this process sees them. Those of ignis_comm_init_all share one of these, and
    regions that all devices see at the same address: each one's kernels write to the others' regions, so
    these go with the last of them. */
typedef struct ignis__comm_regions {
    uint64_t users;
    int count;                                    /* of regions; 0: there is one rank, or NCCL alone */
    ignis__address address[IGNIS_COMM_MAX_RANKS]; /* 0: not there */
    ignis__vmm_block block[IGNIS_COMM_MAX_RANKS]; /* device memory that is made or imported for that; */
    void *host[IGNIS_COMM_MAX_RANKS];             /* or host memory, */
    bool pinned[IGNIS_COMM_MAX_RANKS];            /* for this device: */
    ignis__device *device;
    int64_t bytes; /* of each in host memory */
    bool late;     /* a copy to or from them has not ended: they stay for ever */
    ignis__mutex lock;
    struct ignis__comm *comms[IGNIS_COMM_MAX_RANKS]; /* of ignis_comm_init_all: who shares them; null: ended */
} ignis__comm_regions;

/*  What kernels of a communicator use: it stays until no graph can run them any more. */
typedef struct ignis__comm_memory {
    ignis__device *device;
    ignis__block *state;
    ignis__comm_record *record;
    ignis__pinned *record_piece; /* which has it */
    ignis__comm_regions *regions;
    ignis__nccl_comm *nccl; /* null, or set before nccl_there; it stays until the end, also when it is of no use */
} ignis__comm_memory;

/*  Whether NCCL helps a communicator: all its ranks find that out together, when they come to the first
    operation that NCCL does faster. */
typedef enum ignis__comm_nccl_state {
    IGNIS__COMM_NCCL_UNTRIED,
    IGNIS__COMM_NCCL_JOINED,
    IGNIS__COMM_NCCL_REFUSED
} ignis__comm_nccl_state;

/*  What a desc asks for, which communicators that are made from others have from those. */
typedef struct ignis__comm_options {
    int64_t timeout_ns;
    ignis_comm_transport transport;
    int most_blocks; /* 0: as many as run at the same time */
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
    void *stream;     /* that it was used on last, null: none that is known */
    uint64_t used_ns; /* when that was */
    uint64_t beside;  /* handle of the one that was used on the device before */
    /* that it has used; [0][0] moves bytes */
    struct ignis__comm_program *programs[IGNIS_DTYPE_COUNT][IGNIS_OP_COUNT];
    ignis__storage *storage; /* over memory; graphs hold it */
    ignis__comm_memory *memory;

    /* of ignis_comm_init, and of those that are made from them */
    ignis__job *job;        /* null: of ignis_comm_init_all */
    ignis__job_watch watch; /* with the key under which its ranks talk, and their ranks in the job */
    int member[IGNIS__JOB_MAX_RANKS];
    unsigned char gone[IGNIS__JOB_MAX_RANKS];
    ignis__mutex agreement; /* one thing that all ranks do together at a time */
    uint32_t attempts;      /* at that */
    ignis_comm_transport transport;
    ignis__comm_nccl_state nccl_state; /* where there are own kernels, too */
    uint64_t nccl_there;               /* other threads may use memory->nccl */
    uint64_t nccl_seen;                /* by the watcher: the operation of NCCL that ran when it looked last, */
    int64_t nccl_since;                /* and since when it does */
    uint64_t nccl_told;                /* nccl_reason is there */
    char nccl_reason[192];
} ignis__comm;

/*  On each device, the handle of the communicator that was used last. */
static uint64_t ignis__comm_recent[IGNIS_MAX_DEVICES];

static ignis__pool ignis__comms = IGNIS__POOL(ignis__comm, IGNIS__KIND_COMM, "communicator", IGNIS_DIAG_COMM_FREED);

/*  Whether it has kernels of its own, and not only NCCL. */
static bool ignis__comm_has_region(const ignis__comm *comm) { return comm->memory->regions->address[0] != 0; }

/*  Bytes of the region of each rank. */
static int64_t ignis__comm_region_bytes(int size)
{
    return IGNIS__COMM_PAIR_DATA + (int64_t)size * IGNIS__COMM_LANES * IGNIS__COMM_PAIR_SLOTS * IGNIS__COMM_PAIR_SLOT;
}
