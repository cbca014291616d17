/* >>parallel - data-parallel training --------------------------------------------------------------------------- */

#ifndef IGNIS_NO_TENSORS

/*  Data-parallel training: every rank has the whole model and a part of the batch, and their gradients are
    averaged. */
typedef struct ignis_parallel {
    uint64_t id;
} ignis_parallel;

typedef struct ignis_parallel_desc {
    int64_t bucket_bytes; /* of gradients that travel together (25 MiB) */
    /* of those that are known first, whose way begins the earlier the fewer they are (1 MiB) */
    int64_t first_bucket_bytes;
    /* true: every rank's parameters stay as they are, and must be equal; else they become rank 0's */
    bool no_broadcast;
} ignis_parallel_desc;

typedef struct ignis_parallel_info {
    int parameters;
    int buckets;   /* that their gradients are in, one all-reduce each; 0 where there is one rank */
    int64_t bytes; /* of all buckets */
    bool syncs;    /* the next backward averages: no ignis_parallel_no_sync_begin is open */
} ignis_parallel_info;

/*  ignis_parallel_create - from now on, ignis_backward averages the gradients of these parameters over the
    ranks of comm
    All ranks call it, with as many parameters of the same shapes and types in the same order, which is best
    the one of their use: the gradients of the last are on their way first. From then on a thread's
    ignis_backward that leads to one of them averages the gradients of all, so all ranks call it alike; a
    parameter that it did not lead to takes part with the gradient that it has, zeros at first. On return the
    gradients may still be on their way on a stream of their own, for which the thread's stream waits: what
    comes next sees averages. In a captured graph all of this is part of the graph. desc may be null for all
    defaults. The gradients move into memory that the handle lays out, so call it before a graph is captured;
    and before ignis_optimizer_add where rank 0's parameters are to go to the others, as an optimizer of
    16-bit parameters keeps a copy of them.
    Returns: the handle, or no handle.
    Errors: ARGUMENT (no parameters, not a leaf that requires a gradient, one twice or in use by another,
    sizes), FREED, DEVICE (not the communicator's), UNSUPPORTED (this thread captures), MISMATCH, PEER and
    TIMEOUT (other ranks), MEMORY, CUDA.
    Ownership: the caller frees it, before comm is destroyed. It holds the parameters, whose handles the
    caller may release at any time.
    Threads: any; waits for the other ranks. Afterwards one backward at a time may average: another thread's
    that leads to the parameters meanwhile is an error, PARALLEL_BUSY. In sections without averages there may
    be any number. */
IGNIS_API ignis_parallel ignis_parallel_create(ignis_comm comm, const ignis_tensor *parameters, int count,
                                               const ignis_parallel_desc *desc);

/*  ignis_parallel_no_sync_begin, ignis_parallel_no_sync_end - between them ignis_backward adds gradients up
    on each rank alone
    For large batches in several pieces: all but the last in such a section, the last outside of it, which
    averages the sum. They nest.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (an end without a beginning).
    Ownership: nothing to free.
    Threads: any, not during a backward. */
IGNIS_API ignis_status ignis_parallel_no_sync_begin(ignis_parallel parallel);
IGNIS_API ignis_status ignis_parallel_no_sync_end(ignis_parallel parallel);

/*  ignis_parallel_query - facts about data-parallel training
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_parallel_query(ignis_parallel parallel, ignis_parallel_info *info);

/*  ignis_parallel_free - the parameters' gradients are no longer averaged; they stay where they are
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures), CUDA.
    Ownership: the handle is stale afterwards.
    Threads: any, not during a backward. Waits until gradients on their way have arrived. */
IGNIS_API ignis_status ignis_parallel_free(ignis_parallel parallel);

#endif /* IGNIS_NO_TENSORS */
