/*  collective/comm - communicators and collective operations. */
#pragma once

#include "../../base/room.h"
#include "../../device/room.h"
#include "../../array/room.h"
#include "../../kernel/room.h"
#include "../room.h"
#include "../vmm/room.h"
#include "../peer/room.h"
#include "../transport/room.h"
#include "../job/room.h"

/*  Values of NCCL's enumerations; tests/base/prototypes.cpp compares them with nccl.h. */
enum {
    IGNIS__NCCL_SUCCESS = 0,
    IGNIS__NCCL_IN_PROGRESS = 7,
    IGNIS__NCCL_ABORTED = -1, /* not a value of NCCL: ignis__nccl_abort was called */
    IGNIS__NCCL_LATE = -2,    /* not a value of NCCL: the deadline has passed */
    IGNIS__NCCL_VERSION_LEAST = 21900,
    IGNIS__NCCL_UINT8 = 1,
    IGNIS__NCCL_INT32 = 2,
    IGNIS__NCCL_INT64 = 4,
    IGNIS__NCCL_FLOAT16 = 6,
    IGNIS__NCCL_FLOAT32 = 7,
    IGNIS__NCCL_FLOAT64 = 8,
    IGNIS__NCCL_BFLOAT16 = 9,
    IGNIS__NCCL_FLOAT8_E4M3 = 10, /* from NCCL 2.24 on */
    IGNIS__NCCL_FLOAT8_E5M2 = 11,
    IGNIS__NCCL_SUM = 0,
    IGNIS__NCCL_PROD = 1,
    IGNIS__NCCL_MAX = 2,
    IGNIS__NCCL_MIN = 3,
    IGNIS__NCCL_AVG = 4
};

/*  ncclConfig_t of NCCL 2.19; its version tells newer ones which fields are missing. */
typedef struct ignis__nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster_size, least_blocks, most_blocks;
    const char *net_name;
    int split_share;
} ignis__nccl_config;

typedef enum ignis__comm_kind {
    IGNIS__COMM_ALL_REDUCE = 1,
    IGNIS__COMM_REDUCE,
    IGNIS__COMM_BROADCAST,
    IGNIS__COMM_ALL_GATHER,
    IGNIS__COMM_REDUCE_SCATTER,
    IGNIS__COMM_ALL_TO_ALL,
    IGNIS__COMM_SEND,
    IGNIS__COMM_RECV,
    IGNIS__COMM_BARRIER,
    IGNIS__COMM_KIND_COUNT
} ignis__comm_kind;

/*  A checked operation. A slice is what a rank sends to or gets from each other one. */
typedef struct ignis__comm_task {
    ignis__comm_kind kind;
    ignis__address in, out;
    int64_t count; /* elements of a slice */
    ignis_dtype dtype;
    ignis_op op;
    int root; /* for a message, the other rank */
} ignis__comm_task;

/*  An NCCL communicator of one rank. It is nonblocking: each call returns at once, and is waited for with a
    deadline. */
typedef struct ignis__nccl_comm {
    ignis__mutex lock; /* NCCL allows one call at a time; ignis__nccl_abort comes from other threads */
    void *comm;        /* NULL: aborted */
    void *ending;      /* what the reaper ends; NULL: there is no reaper */
    bool aborts;       /* the reaper aborts it, else destroys it */
    ignis__thread_handle reaper;
    uint64_t users; /* the reaper is the second */
    ignis__device *device;
    int64_t patience_ns; /* the longest time of a call */
    bool hosts;          /* some ranks are on other hosts */
} ignis__nccl_comm;

#include "../../shared/collective.h"

enum {
    IGNIS__COMM_PACKET_THREADS = 544, /* of a block, at most; one warp of them moves no data */
    IGNIS__COMM_FLAG_THREADS = 512
};

IGNIS__STATIC_ASSERT(comm_ranks, IGNIS_COMM_MAX_RANKS == 8); /* regions of a launch */

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

/*  The part of a rank in a window. */
typedef struct ignis__window_part {
    uint64_t users; /* ranks of this process that map it */
    ignis__vmm_block block;
} ignis__window_part;

/*  The part that a rank offers to the other threads of its process; NULL: it has failed. */
typedef struct ignis__window_offer {
    ignis__window_part *part;
    uint64_t serial;
} ignis__window_offer;

/*  Memory of this rank that the others read, and theirs. */
typedef struct ignis__window {
    ignis__window_part *part[IGNIS_COMM_MAX_RANKS];
    ignis__counted_memory counted;
} ignis__window;

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
    ignis__window_offer offers[2][IGNIS_COMM_MAX_RANKS]; /* of windows with an even and an odd number */
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
    int most_blocks;  /* 0: all that run at the same time */
    int heartbeat_ms; /* 0: none */
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
    uint64_t windows; /* exchanges of windows between threads of one process so far */
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

    /* Groups: communicators of some of its ranks that fail with it. */
    struct ignis__comm *outer;      /* of a group: the communicator of all; held. NULL: it is no group */
    struct ignis__comm *next_group; /* in the list of outer */
    struct ignis__comm *groups;     /* guarded by groups_lock */
    uint64_t has_groups;            /* or has had some */
    ignis__mutex groups_lock;
} ignis__comm;

/*  How to make a group. */
typedef struct ignis__comm_group {
    int color;      /* equal on its ranks alone */
    int rank, size; /* of this rank in it */
    int patience;   /* how many times as long as in the outer communicator a rank waits in it */
    int key;        /* the ranks of a group, equal on all ranks of the outer communicator */
} ignis__comm_group;

/*  Kernels of a program. */
enum {
    IGNIS__COMM_KERNEL_PACKETS,
    IGNIS__COMM_KERNEL_PACKETS_TWO,
    IGNIS__COMM_KERNEL_PARTS,
    IGNIS__COMM_KERNEL_SLICES,
    IGNIS__COMM_KERNEL_PAIR,
    IGNIS__COMM_KERNEL_MARK,
    IGNIS__COMM_KERNELS
};

typedef struct ignis__comm_program {
    int ranks, dtype, op; /* dtype and op -1: for operations that move bytes */
    bool delay;
    bool loaded; /* false: a thread is loading it */
    bool waits;  /* its packet kernels wait for earlier kernels, and may be launched early */
    ignis__module module;
    void *function[IGNIS__COMM_KERNELS]; /* NULL: not in this variant */
    struct ignis__comm_program *next;
} ignis__comm_program;

/*  Loaded programs. Loading may wait for the device, whose kernel may wait for a kernel that another thread
    is about to load on another device. So no lock is held, and only threads that want the same program
    wait. */
struct ignis__comm_programs_type {
    ignis__mutex lock;
    ignis__comm_program *first[IGNIS_MAX_DEVICES];
};

/*  The vote of a rank after a step. */
typedef struct ignis__vote {
    int32_t failed; /* a diagnostic; 0: success */
    int32_t driver_error;
    int64_t bytes;       /* of its region */
    int32_t most_blocks; /* of its kernels */
    int32_t release;     /* of NCCL */
    uint64_t tune;       /* hash of IGNIS_COMM_TUNE */
    char why[256];
    ignis__nccl_id nccl;
} ignis__vote;

/*  The state while a communicator is created. */
typedef struct ignis__comm_setup {
    const char *call;
    ignis__comm *comm;
    ignis__agreement agreement;
    ignis__record before; /* what this thread had reported before */
    ignis__vote mine, *all;
    bool lost; /* a rank died or did not come; `agreement` has the failure */
} ignis__comm_setup;

enum { IGNIS__PROBE_BYTES = 64 };

/*  Packets have the lowest latency, and carry as many bytes again as data. With three ranks or more, two
    phases move fewer bytes, and wait twice. */
typedef enum ignis__comm_algorithm {
    IGNIS__COMM_BY_PACKETS,
    IGNIS__COMM_BY_PACKETS_TWO,
    IGNIS__COMM_BY_PARTS,
    IGNIS__COMM_BY_SLICES
} ignis__comm_algorithm;

/*  How an operation is done. */
typedef struct ignis__comm_method {
    ignis__comm_algorithm algorithm;
    int blocks, threads; /* that move data; the GPU that runs the fewest at once sets the limit */
    int chunk;           /* by flags: bytes that a block moves in a step, for all ranks together */
} ignis__comm_method;

/*  The first row that fits is used; bytes are those that a rank sends to or gets from each other one.
    all_reduce was measured on 2 and 4 H200s with NVLink; 3 ranks do as 4. From 5 ranks on, packets are pushed
    more often, so they end at smaller sizes. The other operations were measured on 4 H200s with 64 blocks;
    they use the 128 that proved better for all_reduce. */
struct ignis__comm_table_type {
    ignis__comm_kind kind; /* 0: any */
    int most_ranks;
    int64_t most_bytes;
    ignis__comm_method method;
};

/*  Bytes of all slices together from which NCCL is enough faster to join it; 0, and operations without a row:
    never. Measured on 2 and 4 H200s, with 64 blocks except for all_reduce. Rows for 2 ranks of the other
    operations come from their pushes; 5 ranks and more are as 4. */
struct ignis__comm_nccl_table_type {
    ignis__comm_kind kind;
    int most_ranks;
    int64_t least_bytes;
};

/*  The launch of an operation: kernel, blocks and threads; chunk and steps are in the call. */
typedef struct ignis__comm_plan {
    int kernel;
    unsigned blocks, threads;
} ignis__comm_plan;

typedef struct ignis__split {
    int32_t color, key;
} ignis__split;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* nccl.c */
IGNIS__PRIVATE bool ignis__nccl_open(const char *call);
IGNIS__PRIVATE void ignis__nccl_abort(ignis__nccl_comm *nccl);
IGNIS__PRIVATE void ignis__nccl_leave(const char *call, ignis__nccl_comm *nccl);
IGNIS__PRIVATE bool ignis__nccl_make_id(const char *call, ignis__nccl_id *id);
IGNIS__PRIVATE ignis__nccl_comm *ignis__nccl_begin(const char *call, ignis__device *device, const ignis__nccl_id *id,
                                                   int rank, int size, int64_t patience_ns);
IGNIS__PRIVATE bool ignis__nccl_wait_joined(const char *call, ignis__nccl_comm *nccl);
IGNIS__PRIVATE bool ignis__nccl_run(const char *call, ignis__nccl_comm *nccl, const ignis__comm_task *tasks, int count,
                                    int size, void *stream, bool *aborted);
IGNIS__PRIVATE int ignis__nccl_error(ignis__nccl_comm *nccl);

/* region.c */
extern uint64_t ignis__comm_last_used[IGNIS_MAX_DEVICES];
extern ignis__pool ignis__comms;
IGNIS__PRIVATE bool ignis__comm_has_region(const ignis__comm *comm);
IGNIS__PRIVATE int64_t ignis__comm_region_bytes(int size);

/* kernel.c */
extern struct ignis__comm_programs_type ignis__comm_programs;
IGNIS__PRIVATE bool ignis__comm_program_load(const char *call, ignis__device *device, ignis__comm_program *program);
IGNIS__COLD IGNIS__PRIVATE ignis__comm_program *ignis__comm_program_get(const char *call, ignis__device *device,
                                                                        int ranks, int dtype, int op, bool delay);
IGNIS__PRIVATE ignis__comm_program *ignis__comm_program_for(const char *call, ignis__comm *comm, int dtype, int op);

/* tuning.c */
IGNIS__PRIVATE bool ignis__comm_tune_read(const char *call, ignis__comm_tune *tune);

/* comm.c */
IGNIS__PRIVATE void ignis__comm_regions_clear(const char *call, ignis__comm_regions *regions);
IGNIS__PRIVATE ignis__comm_regions *ignis__comm_regions_new(const char *call, ignis__device *device, int count);
IGNIS__PRIVATE void ignis__comm_regions_drop(const char *call, ignis__comm_regions *regions);
IGNIS__COLD IGNIS__PRIVATE void ignis__comm_end(const char *call, ignis__comm *comm);
IGNIS__PRIVATE ignis__comm *ignis__comm_hold(const char *call, ignis_comm handle);
IGNIS__PRIVATE void ignis__comm_drop(const char *call, ignis__comm *comm);
IGNIS__PRIVATE bool ignis__comm_options_read(const char *call, const ignis_comm_desc *desc,
                                             ignis__comm_options *options);
IGNIS__PRIVATE ignis__comm *ignis__comm_new(const char *call, ignis__device *device, int rank, int size,
                                            const ignis__comm_options *options, ignis__comm_regions *shared);
IGNIS__PRIVATE bool ignis__comm_start(const char *call, ignis__comm *comm);
IGNIS__PRIVATE void ignis__comm_break(ignis__comm *comm, int code, int peer);
IGNIS__PRIVATE void ignis__comm_break_all(ignis__comm *comm, int code, int peer);
IGNIS__PRIVATE void ignis__comm_nccl_check(ignis__comm *comm);
IGNIS__PRIVATE int ignis__comm_failure_code(const ignis__comm *comm, int *peer);
IGNIS__PRIVATE ignis_diagnostic ignis__comm_failure(const ignis__comm *comm, int *peer);

/* group.c */
IGNIS__PRIVATE int ignis__comm_outer_rank(const ignis__comm *comm, int rank);
IGNIS__PRIVATE void ignis__comm_break_told(ignis__comm *comm, int code, int peer);
IGNIS__PRIVATE void ignis__comm_groups_break(ignis__comm *outer);
IGNIS__PRIVATE void ignis__comm_groups_settle(ignis__comm *comm);
IGNIS__PRIVATE ignis__comm *ignis__comm_group_at_fault(const ignis__comm *outer);
IGNIS__PRIVATE void ignis__comm_group_begin(ignis__comm *outer, ignis__comm *group, int patience);
IGNIS__PRIVATE void ignis__comm_group_unlist(ignis__comm *group);
#ifndef IGNIS_NO_TENSORS
IGNIS__PRIVATE ignis_comm ignis__comm_group_make(const char *call, ignis_comm handle, const ignis__comm_group *what);
#endif /* IGNIS_NO_TENSORS */

/* vote.c */
IGNIS__PRIVATE void ignis__agreement_begin_new(ignis__agreement *agreement, ignis__comm *comm);
IGNIS__PRIVATE void ignis__agreement_begin(ignis__agreement *agreement, ignis__comm *comm, ignis__agreement_kind kind,
                                           uint64_t hash);
IGNIS__PRIVATE void ignis__agreement_end(const ignis__agreement *agreement, ignis__comm *comm);
IGNIS__PRIVATE bool ignis__agreement_retry(const ignis__agreement *agreement);
IGNIS__PRIVATE void ignis__step_begin(ignis__comm_setup *setup);
IGNIS__PRIVATE bool ignis__step_end(ignis__comm_setup *setup, int fd, int *fds);
IGNIS__COLD IGNIS__PRIVATE void ignis__comm_setup_report(ignis__comm_setup *setup);

/* region_setup.c */
IGNIS__PRIVATE bool ignis__regions_setup(ignis__comm_setup *setup, bool staged);

/* create.c */
IGNIS__PRIVATE ignis__comm *ignis__comm_prepare(const char *call, ignis__job *job, ignis__device *device,
                                                const int *member, int count, int me, uint64_t key,
                                                const ignis__comm_options *options);
IGNIS__PRIVATE int ignis__comm_hosts(const ignis__comm *comm, int *local_rank, int *local_size);
IGNIS__PRIVATE bool ignis__comm_setup_begin(const char *call, ignis__comm *comm, ignis__comm_setup *setup);
IGNIS__COLD IGNIS__PRIVATE bool ignis__comm_join_late(const char *call, ignis__comm *comm);
IGNIS__COLD IGNIS__PRIVATE ignis_comm ignis__comm_make(const char *call, ignis__comm *comm,
                                                       ignis__agreement *agreement);

/* algorithm.c */
extern const char *const ignis__comm_kinds[IGNIS__COMM_KIND_COUNT];
extern const char *const ignis__comm_ops[IGNIS_OP_COUNT];
extern const struct ignis__comm_table_type ignis__comm_table[];
extern const struct ignis__comm_nccl_table_type ignis__comm_nccl_table[9];
IGNIS__PRIVATE ignis__comm_method ignis__comm_choose(const ignis__comm *comm, const ignis__comm_task *task);
IGNIS__PRIVATE ignis__comm_plan ignis__comm_plan_launch(const ignis__comm *comm, const ignis__comm_method *method,
                                                        int64_t bytes, ignis__comm_call *to);

/* failure.c */
IGNIS__PRIVATE uint64_t ignis__comm_fingerprint(const ignis__comm_task *task, bool by_nccl);
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__comm_fail(const char *call, const ignis__comm *comm,
                                                         ignis_diagnostic diagnostic);
IGNIS__PRIVATE bool ignis__comm_check_works(const char *call, const ignis__comm *comm);

/* launch.c */
IGNIS__PRIVATE bool ignis__comm_stream_exists(ignis__device *device, void *stream);
IGNIS__PRIVATE bool ignis__comm_wait_previous(const ignis__work *work, ignis__comm *comm);
IGNIS__PRIVATE bool ignis__comm_run(const ignis__work *work, ignis__comm *comm, const ignis__comm_task *task);
IGNIS__PRIVATE bool ignis__comm_run_pair(const ignis__work *work, ignis__comm *comm, const ignis__comm_task *tasks,
                                         int count);

/* init_rank.c */
IGNIS__PRIVATE ignis_comm ignis__comm_make_dry(const char *call, int rank, int size,
                                               const ignis__comm_options *options);
IGNIS__PRIVATE ignis_comm ignis__comm_split(const char *call, ignis_comm handle, int color, int key,
                                            const ignis__comm_group *group);
#ifndef IGNIS_NO_TENSORS
IGNIS__PRIVATE void ignis__comm_leave(const char *call, ignis_comm handle);
#endif /* IGNIS_NO_TENSORS */
IGNIS__PRIVATE ignis_status ignis__comm_query(const char *call, ignis_comm handle, ignis_comm_info *info);

/* window.c */
#ifndef IGNIS_NO_TENSORS
IGNIS__PRIVATE ignis__array *ignis__window_make(const char *call, ignis_comm handle, int64_t bytes, const char *tag);
IGNIS__PRIVATE bool ignis__window_renew(const char *call, ignis_comm handle, const ignis__array *array);
IGNIS__PRIVATE bool ignis__window_has(const ignis__array *array);
IGNIS__PRIVATE bool ignis__window_gather(const char *call, ignis_comm handle, ignis__array *slice, ignis__array *whole);
#endif /* IGNIS_NO_TENSORS */

/* operation.c */
IGNIS__PRIVATE ignis_status ignis__comm_end_call(const char *call, ignis__comm *comm, bool ok);

/* init_all.c */
IGNIS__PRIVATE int ignis__split_order(const ignis__split *all, int size, int color, int *place);
