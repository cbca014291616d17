/* --- operations --- */

/*  All ranks call the same operations on a communicator in the same order, with arrays of equal size and
    type, each on its own device. An operation is queued on the current stream of the communicator's device
    and returns; whether it succeeded is reported by ignis_comm_synchronize, ignis_comm_status, or the next
    operation. The deadline of a wait starts when the kernel runs. After a failure results are undefined, and
    the communicator is broken: it refuses all later operations.

    in == out is allowed, as is a part of one array that lies where the operation would put it (all_gather: in
    is part `rank` of out; reduce_scatter: out is part `rank` of in). While a call queues its work
    IGNIS_OWNER_NVCCL owns the arrays; they must be owned by IGNIS_OWNER_IGNIS. All operations can be captured
    in graphs. A graph is launched on every rank, in the same order as other operations on the communicator,
    and not at the same time as one on another stream. One communicator used on several streams: a later
    operation waits for the earlier ones.

    Sums and products of f16 and bf16 are computed in f32 and rounded once; every algorithm of Ignis combines
    in the order of the ranks, so all ranks get the same bits, on every run and in every transport. What NCCL
    combines (see ON SPEED in the manual) has NCCL's order: the same bits on all ranks, and on every run with
    the same NCCL and the same GPUs, but not those of another size or machine. min and max give NaN where any
    rank has NaN. IGNIS_OP_AVG is the sum times 1/size, for floating types.

    For measuring only: IGNIS_COMM_TUNE="blocks=32,chunk=128K,...", equal on all ranks, changes how operations
    are cut up; see ignis__comm_tune. */

/*  ignis_comm_all_reduce - out = op over the ranks of in, elementwise, on every rank
    ignis_comm_reduce - out = op over the ranks of in, on rank root; out of the others is left alone, and may
    be no handle
    ignis_comm_broadcast - array of every rank = array of rank root
    ignis_comm_all_gather - out of every rank = in of rank 0, in of rank 1, ..., one after the other; out has
    size times as many elements
    ignis_comm_reduce_scatter - out of rank r = op over the ranks of part r of in, which has size times as
    many elements
    ignis_comm_all_to_all - part r of out = part `this rank` of in of rank r; both have a multiple of size
    elements
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: FREED, CONTRACT (somebody else owns an array), SHAPE (in and out do not fit), DTYPE (types
    differ), UNSUPPORTED (the average of integers), DEVICE, ARGUMENT (they overlap, or op, or root), PEER (the
    communicator is broken), MEMORY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device.
    Streams: queued on the current stream of the communicator's device. */
IGNIS_API ignis_status ignis_comm_all_reduce(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op);
IGNIS_API ignis_status ignis_comm_reduce(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op, int root);
IGNIS_API ignis_status ignis_comm_broadcast(ignis_comm comm, ignis_array array, int root);
IGNIS_API ignis_status ignis_comm_all_gather(ignis_comm comm, ignis_array in, ignis_array out);
IGNIS_API ignis_status ignis_comm_reduce_scatter(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op);
IGNIS_API ignis_status ignis_comm_all_to_all(ignis_comm comm, ignis_array in, ignis_array out);

/*  ignis_comm_send, ignis_comm_recv - give array to rank dest, whose next ignis_comm_recv from this rank has
    an array of the same size
    and type
    ignis_comm_send_recv - give in to rank dest and get out from rank source at the same time; in and out are
    apart Pairs of ranks count for themselves, apart from the other operations. A long send ends only when the
    other side receives, so two ranks that both send first wait for each other until the deadline;
    ignis_comm_send_recv does not.
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce, and ARGUMENT (dest or source is this rank, or none).
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device.
    Streams: queued on the current stream of the communicator's device. */
IGNIS_API ignis_status ignis_comm_send(ignis_comm comm, ignis_array array, int dest);
IGNIS_API ignis_status ignis_comm_recv(ignis_comm comm, ignis_array array, int source);
IGNIS_API ignis_status ignis_comm_send_recv(ignis_comm comm, ignis_array in, int dest, ignis_array out, int source);

/*  ignis_comm_barrier - no rank's stream goes on before all ranks' streams have come here
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: FREED, PEER (the communicator is broken), COMPILE, CUDA.
    Ownership: nothing to free.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device.
    Streams: queued on the current stream of the communicator's device. */
IGNIS_API ignis_status ignis_comm_barrier(ignis_comm comm);

/*  ignis_comm_synchronize - wait until the operations queued on comm are done, and report what went wrong in
    them
    Operations that were captured count when their graph was launched on the current stream.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures), TIMEOUT (a rank did not come), MISMATCH (ranks asked
    for different things), PEER (a rank died or gave up, or NCCL failed there), CUDA (also when NCCL reports
    an error here).
    Ownership: nothing to free.
    Threads: any. Waits for the current stream of the device, and for the one that comm was used on last. */
IGNIS_API ignis_status ignis_comm_synchronize(ignis_comm comm);

/*  ignis_comm_status - whether comm works; does not wait
    Returns: IGNIS_OK, or TIMEOUT, MISMATCH, PEER or CUDA, which have broken it.
    Errors: FREED, TIMEOUT, MISMATCH, PEER, CUDA (NCCL has failed).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_status(ignis_comm comm);
