/* >>training - trainings saved and continued, by any number of ranks ---------------------------------------------

   See ON SAVED TRAININGS. A folder has one saved training, which one run at a time writes. */

/*  A training that is saved and loaded as one: ignis_training_create. */
typedef struct ignis_training {
    uint64_t id;
} ignis_training;

/*  The ranks that save and load a training together. ignis_comm_ranks of ignis_collective.h makes it of a
    communicator. */
typedef struct ignis_ranks {
    int rank, size; /* 0, 0: this process alone */
    uint64_t group; /* passed to the function */
    /* array = its sum over the ranks, queued on the current stream */
    ignis_status (*sum_fn)(uint64_t group, ignis_array array);
    /* array = that of one rank, queued on the current stream; ignis_training_regroup alone uses it */
    ignis_status (*broadcast_fn)(uint64_t group, ignis_array array, int from);
} ignis_ranks;

/*  The tensors and optimizers that make up a training. */
typedef struct ignis_training_desc {
    const char *const *names; /* of the model's tensors, as other programs know them */
    const ignis_tensor *tensors;
    int count;
    const ignis_optimizer *optimizers; /* whose parameters are among tensors (none) */
    int optimizer_count;
    const char *const *state_names; /* of more tensors, which other programs need not know: places in data, losses */
    const ignis_tensor *state;      /* equal on all ranks (none) */
    int state_count;
    ignis_ranks ranks; /* ignis_comm_ranks (this process alone) */
} ignis_training_desc;

/*  ignis_training_create - name the tensors and optimizers that make up a training, to save and load it
    All ranks call it with the same names, shapes, dtypes and optimizers, after ignis_parallel_create and after all
    ignis_optimizer_add. The tensors and the optimizers must live until ignis_training_free.
    Returns: the training, or no handle.
    Errors: ARGUMENT (null, no tensors, a name that is not UTF-8 or comes twice, a parameter of an optimizer that is
    not among tensors, ranks), FREED, DEVICE (tensors of several devices), UNSUPPORTED (L-BFGS, or this thread
    captures a graph), MISMATCH, PEER and TIMEOUT (other ranks), MEMORY, CUDA.
    Ownership: the caller frees it with ignis_training_free. Names may be reused when the call returns.
    Threads: any; waits for the other ranks. */
IGNIS_API ignis_training ignis_training_create(const ignis_training_desc *desc);

/*  ignis_training_save - begin to save a training to a folder, which is made if it is missing
    Each rank copies its part to pinned memory, and a thread writes it while the training goes on:
    tensors, the state of optimizers, and the calling thread's place in its random numbers. The rank that is
    done last writes the index, and removes the files of the save before. Until then the folder has the old training,
    complete, also if all processes are killed. Pinned memory for the part of the rank is kept until
    ignis_training_free.
    Call it between steps: sums of ignis_optimizer_accumulate are not saved. All ranks call it alike. It first ends
    the save before, as ignis_training_wait does.
    Returns: IGNIS_OK, or the reason. Failures of the thread are those of ignis_training_wait.
    Errors: FREED, ARGUMENT (null, a tensor that was never written to, averages in the place of parameters), CONTRACT,
    UNSUPPORTED (this thread captures a graph), IO, MEMORY, CUDA, and those of ignis_training_wait.
    Ownership: unchanged.
    Threads: any. Streams: reads on the current stream, and does not wait for it. */
IGNIS_API ignis_status ignis_training_save(ignis_training training, const char *folder);

/*  ignis_training_wait - wait until all ranks have written what ignis_training_save began
    All ranks call it alike. Without a save that has begun it does nothing.
    Returns: IGNIS_OK: the folder has the training; or the reason, on all ranks: the folder has the training before.
    Errors: FREED, IO, MEMORY, CUDA, UNSUPPORTED (this thread captures a graph), PEER (another rank has failed, or
    died), TIMEOUT.
    Ownership: unchanged.
    Threads: any. Streams: with several ranks works on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_training_wait(ignis_training training);

/*  ignis_training_load - continue a training from a folder that any number of ranks has saved
    Every file is checked before the first tensor is written to: all are of one save, and each element of each
    tensor is in exactly one of them, in the dtype and shape that the training has. All ranks call it alike, and
    continue, or none does. Rank r continues the random numbers of rank r, to the bit; ranks beyond those that saved
    begin with seeds of their own.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null; a tensor is missing in the files, or unknown to the training), FORMAT (files are
    damaged, or of several saves), SHAPE, DTYPE, IO (a file is missing), UNSUPPORTED (this thread captures a graph),
    CONTRACT, MEMORY, CUDA, PEER, TIMEOUT. After IO, CUDA and MEMORY tensors may have been written to.
    Ownership: unchanged.
    Threads: any. Streams: writes on the current stream, and waits for the device. */
IGNIS_API ignis_status ignis_training_load(ignis_training training, const char *folder);

/*  ignis_training_mark - note that a step is complete
    With it, the calling thread's place in its random numbers is noted. A step of -1 says instead that the training of
    this rank is not complete, so that no other rank continues from it. ignis_training_regroup notes the step that it
    continues from. Before both, the training has 0 steps. After ignis_training_regroup of ranks that share state it
    waits for the steps of optimizers since the mark before: one that another rank's death has spoiled is not noted.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (a step below -1), UNSUPPORTED (this thread captures a graph), with shards PEER, TIMEOUT and
    CUDA (the step is not complete; ignis_training_regroup undoes it).
    Ownership: nothing to free.
    Threads: any. Streams: with shards waits for the current stream. */
IGNIS_API ignis_status ignis_training_mark(ignis_training training, int64_t step);

/*  ignis_training_regroup - continue a training with other ranks, from the memory of one of them
    All ranks of `ranks` call it: those that trained so far, with the ranks of a new communicator, and those that join,
    with a training that they have made with the same names, shapes, dtypes and optimizers, alone (desc.ranks zero).
    The rank with the most complete steps (see ignis_training_mark) sends its tensors and the state of its optimizers to
    all. *step is the number of its steps. If ranks share state (ignis_parallel_desc.shard), those that have regrouped
    before go back to the last step that all of them have marked, and send their pieces to ranks that join: some rank
    must have each piece. From then on the first ignis_optimizer_step after a mark keeps a copy of all that it changes.
    Every rank keeps the seed of its random numbers and continues at the place of a rank that sends. Gradients and their
    sums become zero. A save that has begun is ended on this rank alone, so the folder may keep the training before. See
    RANKS THAT COME BACK in the manual of ignis_collective.h.
    Returns: IGNIS_OK, or the reason. After a failure the ranks that were complete still are: call it with the ranks of
    another communicator.
    Errors: FREED, ARGUMENT (null, ranks, averages in the place of parameters), UNSUPPORTED (all copies of a piece are
    lost, or tensors are of several ignis_parallel with shards; this thread captures a graph), MISMATCH (other names,
    shapes, dtypes or optimizers), PEER (a rank has failed or died; no rank is complete), TIMEOUT, IO (the save that had
    begun), CONTRACT, MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: works on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_training_regroup(ignis_training training, ignis_ranks ranks, int64_t *step);

/*  ignis_training_free - forget a training; a save that has begun is written first
    With several ranks, call ignis_training_wait before: this call does not wait for the other ranks.
    Returns: IGNIS_OK, or the reason: that of a failed save, too.
    Errors: FREED, IO, CUDA.
    Ownership: the handle is stale afterwards; tensors and optimizers stay.
    Threads: any. */
IGNIS_API ignis_status ignis_training_free(ignis_training training);
