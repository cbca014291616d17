/* >>parallel - data-parallel training ---------------------------------------------------------------------------

   Every rank has the whole model and a slice of the batch; ignis_backward averages the gradients over the ranks.
   Buckets of gradients are all-reduced while the backward pass goes on.
   Ownership: the caller frees the handle before its communicator. */

#ifndef IGNIS_NO_TENSORS

/*  Data-parallel training: every rank has the whole model and a slice of the batch, and gradients are
    averaged. */
typedef struct ignis_parallel {
    uint64_t id;
} ignis_parallel;

/*  State of which each rank has a part, instead of all of it (ZeRO: Rajbhandari et al., 2020). */
typedef enum ignis_shard {
    IGNIS_SHARD_NONE,
    IGNIS_SHARD_OPTIMIZER,  /* the state of optimizers: ZeRO-1 */
    IGNIS_SHARD_GRADIENTS,  /* gradients, too, except within ignis_backward and in sections without averages: ZeRO-2 */
    IGNIS_SHARD_PARAMETERS, /* parameters, too, which are gathered while operations use them: ZeRO-3 */
    IGNIS_SHARD_COUNT
} ignis_shard;

#define IGNIS_SHARD_RANKS_HOST (-1) /* ignis_parallel_desc.shard_ranks: those of each host */

typedef struct ignis_parallel_desc {
    int64_t bucket_bytes; /* size of a bucket of gradients, and with shards of parameters (25 MiB) */
    /* size of the first gradient bucket (1 MiB); smaller starts communication earlier */
    int64_t first_bucket_bytes;
    /* true: parameters are not broadcast and must be equal on all ranks; else they become those of rank 0 */
    bool no_broadcast;
    /* of which each rank has a part only: ON SHARDS in the manual. Changes no bit of the weights, unless NCCL computes
       (IGNIS_SHARD_NONE) */
    ignis_shard shard;
    /* the number of ranks that divide a copy of it: the first ones, the next ones, and so on; it divides the number of
       all. Or IGNIS_SHARD_RANKS_HOST (0: all ranks). ON SHARDS has the order of sums */
    int shard_ranks;
} ignis_parallel_desc;

typedef struct ignis_parallel_info {
    int parameters;
    int buckets;   /* of gradients, one all-reduce each; 0 with one rank */
    int64_t bytes; /* of the gradients in all buckets, on this rank */
    ignis_shard shard;
    int shard_ranks; /* ranks that divide a copy of what is shared; 1 without shards */
    bool syncs;      /* the next ignis_backward averages: no section of ignis_parallel_no_sync_begin is open */
} ignis_parallel_info;

/*  ignis_parallel_create - make ignis_backward average the gradients of parameters over the ranks of comm
    All ranks call it with the same parameters in the same order. The order of use is best: gradients of the
    last parameters are reduced first. From then on an ignis_backward that reaches one of them averages the
    gradients of all, so all ranks call it alike. A parameter that it did not reach takes part with its
    present gradient, zero at first. On return all-reduces may still run on another stream, for which the
    thread's stream waits. A captured graph contains all of this. desc may be null for all defaults. The
    gradients move into buckets, and with shards the parameters, too, so call it before a graph is captured. Call
    it before ignis_optimizer_add, too: an optimizer of 16-bit parameters copies them.
    Returns: the handle, or no handle.
    Errors: ARGUMENT (no parameters, not a leaf that requires a gradient, one twice or in use by another, with
    shards one that an optimizer has, sizes, shard, shard_ranks), FREED, DEVICE (not the communicator's),
    UNSUPPORTED (this thread captures; groups of ignis_comm_init_all), MISMATCH, PEER and TIMEOUT (other ranks),
    LIBRARY (NCCL, for groups on several hosts), MEMORY, CUDA. With IGNIS_SHARD_PARAMETERS operations that use a
    parameter have the errors of ignis_comm_all_gather, too, and UNSUPPORTED (parameters of more than 16 buckets).
    Ownership: the caller frees it, before comm is destroyed. It holds the parameters; the caller may release
    their handles at any time.
    Threads: any; waits for the other ranks. One ignis_backward at a time may average; another one meanwhile
    is an error, PARALLEL_BUSY. In sections without averages any number may run. */
IGNIS_API ignis_parallel ignis_parallel_create(ignis_comm comm, const ignis_tensor *parameters, int count,
                                               const ignis_parallel_desc *desc);

/*  ignis_parallel_no_sync_begin, ignis_parallel_no_sync_end - open or close a section without averages
    In it, ignis_backward accumulates gradients on each rank alone. Run all micro-batches but the last one in
    such a section; the last one averages the sum. Sections nest.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no section is open).
    Ownership: nothing to free.
    Threads: any, not during a backward. */
IGNIS_API ignis_status ignis_parallel_no_sync_begin(ignis_parallel parallel);
IGNIS_API ignis_status ignis_parallel_no_sync_end(ignis_parallel parallel);

/*  ignis_parallel_query - read facts about data-parallel training
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_parallel_query(ignis_parallel parallel, ignis_parallel_info *info);

/*  ignis_parallel_regroup - go on with the ranks of another communicator
    For ranks that come back: those that live on call it with the communicator of ignis_comm_grow, while those that join
    call ignis_parallel_create on theirs, with the same parameters and desc, and no_broadcast. Parameters and the state
    of optimizers stay as they are, on this rank; ignis_training_regroup then makes them those of one step on all ranks.
    Gradients that ranks share are dropped. With shards every rank has the place among the ranks that it had. Before,
    free graphs with operations of the training.
    Returns: IGNIS_OK, or the reason. After a failure call it again, with the communicator of another
    ignis_comm_grow; until then a backward pass and a step fail.
    Errors: FREED, ARGUMENT (other ranks than before, an ignis_backward averages), DEVICE (not the parameters'),
    UNSUPPORTED (this thread captures; ranks no longer reach each other's memory, or now do), MISMATCH, PEER and TIMEOUT
    (other ranks), LIBRARY, MEMORY, CUDA.
    Ownership: comm now has to live until ignis_parallel_free; the communicator before may be destroyed.
    Threads: any, not during a backward or a step; waits for the device and for the other ranks. */
IGNIS_API ignis_status ignis_parallel_regroup(ignis_parallel parallel, ignis_comm comm);

/*  ignis_parallel_free - stop averaging gradients; they stay in their memory, but for those that ranks share
    With shards, its optimizers can only be freed afterwards, and with IGNIS_SHARD_PARAMETERS the parameters, too. With
    shard_ranks all ranks free it at about the same time: where NCCL joins hosts, a rank waits up to 5 s for the others.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures), CUDA.
    Ownership: the handle is stale afterwards.
    Threads: any, not during a backward or a step. Waits for running all-reduces. */
IGNIS_API ignis_status ignis_parallel_free(ignis_parallel parallel);

/*  ignis_comm_ranks - return ignis_training_desc.ranks for a training that the ranks of comm save and load together
    Returns: the rank, the size and the function that sums; size -1 on failure, which ignis_training_create refuses.
    Errors: FREED.
    Ownership: nothing to free; free the training before comm is destroyed.
    Threads: any. */
IGNIS_API ignis_ranks ignis_comm_ranks(ignis_comm comm);

#endif /* IGNIS_NO_TENSORS */
