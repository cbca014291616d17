/* >>parallel.tensor - tensor-parallel training: matrices that ranks divide -----------------------------------------

   The ranks of a communicator have the same rows of a batch, and each has a part of the matrices. Operations on tensors
   exchange what the parts need; their gradients exchange, too. See ON TENSOR-PARALLEL TRAINING.
   All ranks call them, and ignis_backward, in the same order with tensors of equal shape and dtype. Sums over the ranks
   have the order of the ranks: equal inputs give equal bits, on all ranks (NCCL: see ON SPEED).
   Their gradients have no gradients: ignis_grad with create_graph refuses them. */

#ifndef IGNIS_NO_TENSORS

/*  ignis_comm_all_reduce_forward - the sum of a tensor over the ranks; the gradient passes unchanged
    ignis_comm_all_reduce_backward - the tensor itself; its gradient is summed over the ranks
    The second one comes before matrices that are divided by columns, the first one after those divided by
    rows (g and f of Shoeybi et al., Megatron-LM, 2019). Both need the gradient of a result to be equal on all
    ranks, or a part of it on each, as those of divided layers are.
    Shapes: any. f16 and bf16 are summed in f32, and rounded once.
    Returns: the tensor, or no handle.
    Errors: FREED, and those of ignis_comm_all_reduce; in backward those, too.
    Ownership: as ignis_tensor_from_host. comm must live until backward.
    Threads: one operation on a communicator at a time; others wait. Streams: queued on the current stream of the
    communicator's device. */
IGNIS_API ignis_tensor ignis_comm_all_reduce_forward(ignis_comm comm, ignis_tensor x);
IGNIS_API ignis_tensor ignis_comm_all_reduce_backward(ignis_comm comm, ignis_tensor x);

/*  ignis_comm_all_gather_rows - concatenate the tensors of all ranks along the first dimension; its gradient is
    reduce-scattered
    ignis_comm_reduce_scatter_rows - sum a tensor over the ranks and keep this rank's rows; its gradient is
    all-gathered
    ignis_comm_slice_rows - keep this rank's rows of a tensor that all ranks have; its gradient is all-gathered
    ignis_comm_all_gather_columns - concatenate along the last dimension; this rank keeps its columns of the
    gradient
    The first three are for norms, dropout and residuals on rows that are divided, too (sequence parallelism:
    Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022). The gradient of
    gathered rows is summed, as each rank uses them for a part of a matrix; that of gathered columns is not, as
    all ranks use them alike.
    Shapes: [rows, ...] becomes [rows * ranks, ...] or [rows / ranks, ...], [..., n] becomes [..., n * ranks].
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (rows are not a multiple of the ranks), and those of ignis_comm_all_gather and
    ignis_comm_reduce_scatter; in backward those, too.
    Ownership: as ignis_tensor_from_host. comm must live until backward.
    Threads: as ignis_comm_all_reduce_forward. Streams: queued on the current stream of the communicator's
    device. */
IGNIS_API ignis_tensor ignis_comm_all_gather_rows(ignis_comm comm, ignis_tensor x);
IGNIS_API ignis_tensor ignis_comm_reduce_scatter_rows(ignis_comm comm, ignis_tensor x);
IGNIS_API ignis_tensor ignis_comm_slice_rows(ignis_comm comm, ignis_tensor x);
IGNIS_API ignis_tensor ignis_comm_all_gather_columns(ignis_comm comm, ignis_tensor x);

/*  ignis_column_parallel_linear - ignis_linear of a matrix whose outputs the ranks divide
    ignis_row_parallel_linear - of a matrix whose inputs they divide
    Each rank has rows [out / ranks, in] of the weight, and of the bias, or columns [out, in / ranks] and the
    whole bias. So the result of the first one is the input of the second one, with operations of elements or
    heads between them. The first one sums the gradient of x over the ranks in backward, and does not
    communicate before; ignis_comm_all_gather_columns makes its result whole. The second one sums over the ranks
    in forward, adds the bias after that, and does not communicate in backward. Several matrices of one input
    need one sum: ignis_linear on one ignis_comm_all_reduce_backward(comm, x).
    Shapes: x [..., in]; the result [..., out / ranks]; or x [..., in / ranks]; the result [..., out]. bias may
    be no handle.
    Returns: the tensor, or no handle.
    Errors: those of ignis_linear, ignis_add and ignis_comm_all_reduce_forward.
    Ownership: as ignis_tensor_from_host. comm must live until backward.
    Threads: as ignis_comm_all_reduce_forward. Streams: queued on the current stream of the communicator's
    device. */
IGNIS_API ignis_tensor ignis_column_parallel_linear(ignis_comm comm, ignis_tensor x, ignis_tensor w, ignis_tensor bias);
IGNIS_API ignis_tensor ignis_row_parallel_linear(ignis_comm comm, ignis_tensor x, ignis_tensor w, ignis_tensor bias);

/*  ignis_vocab_parallel_embedding - ignis_embedding of a table whose rows the ranks divide
    Rank r has rows r * m to (r + 1) * m - 1 of m * ranks rows. A vocabulary that is not a multiple of the ranks
    has padding at its end. All ranks pass the same ids and get the same rows: a sum over the ranks. An id outside of
    the table gives a row of NaN, and no gradient.
    Shapes: table [m, n]; ids, of i32 or i64, any; the result is that of ids with n appended.
    Returns: the tensor, or no handle.
    Errors: those of ignis_embedding and ignis_comm_all_reduce_forward; UNSUPPORTED (2^24 rows or more together).
    Ownership: as ignis_tensor_from_host. comm must live until backward.
    Threads: as ignis_comm_all_reduce_forward. Streams: queued on the current stream of the communicator's
    device. */
IGNIS_API ignis_tensor ignis_vocab_parallel_embedding(ignis_comm comm, ignis_tensor table, ignis_tensor ids);

/*  ignis_vocab_parallel_cross_entropy - ignis_cross_entropy of logits whose columns the ranks divide
    Rank r has columns r * m to (r + 1) * m - 1 of all m * ranks. The ranks exchange three numbers for each row:
    the largest logit, the sum of the exponentials, and the loss of the target; backward does not communicate.
    All ranks pass the same targets, numbers of classes of the whole vocabulary, and get the same loss, up to
    the bit. desc as of ignis_cross_entropy, and may be null; desc->classes counts the classes of all ranks: later
    columns are padding, as of a vocabulary that is not a multiple of the ranks (all columns of all ranks). Logits
    are read twice in forward, once more with label_smoothing, and in backward, which needs them.
    Shapes: logits [..., m]; targets, of i32 or i64, [...]; the result is [1] or [...], of f32, or f64 for
    logits of f64.
    Returns: the tensor, or no handle.
    Errors: those of ignis_cross_entropy and ignis_comm_all_reduce; ARGUMENT (desc->classes outside of 1 to the
    columns of all ranks); UNSUPPORTED (2^24 columns or more together).
    Ownership: as ignis_tensor_from_host.
    Threads: as ignis_comm_all_reduce_forward. Streams: queued on the current stream of the communicator's
    device. */
IGNIS_API ignis_tensor ignis_vocab_parallel_cross_entropy(ignis_comm comm, ignis_tensor logits, ignis_tensor targets,
                                                          const ignis_cross_entropy_desc *desc);

/*  ignis_comm_clip_grad_norms - ignis_clip_grad_norms with the norm of the gradients of all ranks of comm
    Each rank has a part of the parameters of the first `divided` optimizers; parameters of the others are equal
    on all ranks, and count once. The ranks sum the squares, so all clip by the same factor, and with loss
    scales skip the same steps: with a loss scale, call it before each step, as ignis_optimizer_step alone sees
    this rank. Optimizers with shards (ignis_parallel_desc.shard) sum over the ranks of those first.
    Returns: IGNIS_OK, or the reason.
    Errors: those of ignis_clip_grad_norms; ARGUMENT (divided outside of 0 to count), and those of
    ignis_comm_all_reduce.
    Ownership: unchanged.
    Threads: as ignis_comm_all_reduce_forward. Streams: queued on the current stream of the communicator's
    device. */
IGNIS_API ignis_status ignis_comm_clip_grad_norms(ignis_comm comm, const ignis_optimizer *optimizers, int count,
                                                  int divided, double max_norm);

#endif /* IGNIS_NO_TENSORS */
