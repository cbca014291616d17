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
