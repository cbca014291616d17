/*  >>comm.operations - collective operations and messages

    All ranks call the same operations on a communicator in the same order, with arrays of equal size and dtype, each
    on its own device. An operation is queued on the current stream of the communicator's device and returns. Its
    success is reported by ignis_comm_synchronize, ignis_comm_status, or the next operation. The deadline of a wait
    starts when the kernel runs. After a failure results are undefined, and the communicator is broken: it refuses all
    later operations.

    in == out is allowed, and so is the slice of one array at which the operation puts its data (all_gather: in is
    slice `rank` of out; reduce_scatter: out is slice `rank` of in). The arrays must be owned by IGNIS_OWNER_IGNIS;
    while a call queues its work, IGNIS_OWNER_NVCCL owns them. All operations can be captured in graphs. A graph is
    launched on every rank, in order with other operations on the communicator, and not during one on another stream.
    On several streams, a later operation of a communicator waits for the earlier ones.

    Sums and products of f16 and bf16 are computed in f32 and rounded once. Every algorithm of Ignis combines in the
    order of the ranks, so all ranks get equal bits, on every run and transport. Results of NCCL (see ON SPEED in the
    manual) are equal on all ranks, and on every run with the same NCCL and GPUs; another size or machine may give
    other bits. min and max give NaN if any rank has NaN. IGNIS_OP_AVG is the sum times 1/size, for floating types.

    For measurements only: IGNIS_COMM_TUNE="blocks=32,chunk=128K,...", equal on all ranks, overrides how operations
    are launched; see ignis__comm_tune. */

/*  ignis_comm_all_reduce - reduce in over the ranks, elementwise, to out on every rank
    ignis_comm_reduce - reduce in over the ranks to out on rank root; on other ranks out is unused
    ignis_comm_broadcast - copy array of rank root to array of every rank
    ignis_comm_all_gather - concatenate in of all ranks to out on every rank; out has size times as many
    elements
    ignis_comm_reduce_scatter - reduce slice r of in over the ranks to out on rank r; in has size times as
    many elements
    ignis_comm_all_to_all - send slice r of in to rank r, and receive slice r of out from it; both have a
    multiple of size elements
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: FREED, CONTRACT (an array has another owner), SHAPE (in and out do not fit), DTYPE (dtypes
    differ), UNSUPPORTED (the average of integers), DEVICE, ARGUMENT (overlap, op or root), PEER (the
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

/*  ignis_comm_send, ignis_comm_recv - send array to rank dest, or receive it from rank source
    ignis_comm_send_recv - send in to rank dest and receive out from rank source at the same time, without
    overlap The receiver's next ignis_comm_recv from this rank has an array of equal size and dtype. Each pair
    of ranks has its own order, independent of other operations. A long send ends only when the peer receives,
    so two ranks that both send first wait until the deadline; ignis_comm_send_recv does not.
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce, and ARGUMENT (dest or source is this rank, or out of range).
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device.
    Streams: queued on the current stream of the communicator's device. */
IGNIS_API ignis_status ignis_comm_send(ignis_comm comm, ignis_array array, int dest);
IGNIS_API ignis_status ignis_comm_recv(ignis_comm comm, ignis_array array, int source);
IGNIS_API ignis_status ignis_comm_send_recv(ignis_comm comm, ignis_array in, int dest, ignis_array out, int source);

/*  ignis_comm_barrier - make the streams of all ranks wait for each other
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: FREED, PEER (the communicator is broken), COMPILE, CUDA.
    Ownership: nothing to free.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device.
    Streams: queued on the current stream of the communicator's device. */
IGNIS_API ignis_status ignis_comm_barrier(ignis_comm comm);

/*  ignis_comm_synchronize - wait until the queued operations of comm are done, and report their failure
    Captured operations count if their graph was launched on the current stream.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures), TIMEOUT (a rank did not come), MISMATCH (ranks called
    different operations), PEER (a rank died or aborted, or its NCCL failed), CUDA (also if NCCL reports an
    error here).
    Ownership: nothing to free.
    Threads: any. Waits for the current stream of the device, and for the last stream of comm. */
IGNIS_API ignis_status ignis_comm_synchronize(ignis_comm comm);

/*  ignis_comm_status - tell if comm works; does not wait
    Returns: IGNIS_OK, or TIMEOUT, MISMATCH, PEER or CUDA, which broke it.
    Errors: FREED, TIMEOUT, MISMATCH, PEER, CUDA (NCCL has failed).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_status(ignis_comm comm);
