/* >>tape - recording, backward, checkpoints, gradcheck ----------------------------------------------------------

   A tape belongs to the thread that recorded it. A backward pass runs its entries from the last to the first.
   Gradients are added to those that leaves have. */

/*  Arguments of a backward function, and the results that it fills. */
typedef struct ignis_backward_args {
    ignis_array grad_output; /* gradient of the output, in its shape and dtype; not to be written to */
    /* The memory of ignis_rule.saved, in order. The handles are valid until the function returns; not to be
       written to. */
    const ignis_array *saved;
    int saved_count;
    const void *params; /* the copy of ignis_rule.params */
    int input_count;
    const bool *needed; /* for each input, whether its gradient is needed */
    /* To be filled, for each needed input, with an array of its numel and dtype, which the tape takes over.
       It may be grad_output, a saved array, or one array twice. No handle is zero. */
    ignis_array *grad_inputs;
    void *user_data; /* ignis_rule.user_data */
} ignis_backward_args;

/*  Arguments of a function that computes the same gradients by operations on tensors, and its results. */
typedef struct ignis_vjp_args {
    ignis_tensor grad_output; /* gradient of the output, in its shape and dtype */
    /* The inputs on the tape, with their values at the time of recording. */
    const ignis_tensor *inputs;
    int input_count;
    const bool *needed; /* for each input, whether its gradient is needed */
    const void *params; /* the copy of ignis_rule.params */
    /* To be filled, for each needed input, with a tensor of its numel and dtype. It may be grad_output, an input, or
       one tensor twice. No handle is zero. */
    ignis_tensor *grad_inputs;
    void *user_data;                /* ignis_rule.user_data */
    const struct ignis__node *node; /* for operations of Ignis */
} ignis_vjp_args;

/*  The rule that computes the gradient of an operation. */
typedef struct ignis_rule {
    const char *name; /* a constant string: messages and graphs show it */
    ignis_status (*backward_fn)(const ignis_backward_args *args);
    const ignis_array *saved; /* arrays whose memory backward needs; it is kept even if they are freed */
    int saved_count;
    const void *params; /* small values that backward needs, copied (none) */
    size_t params_size;
    void *user_data;
    /* Computes these gradients by operations on tensors, for ignis_grad with create_graph, which refuses the operation
       without it. With it the tape keeps the memory of the inputs. (none) */
    ignis_status (*vjp_fn)(const ignis_vjp_args *args);
} ignis_rule;

/*  A function of tensors, for ignis_checkpoint and ignis_gradcheck. */
typedef ignis_tensor (*ignis_tensor_fn)(const ignis_tensor *inputs, int count, void *user_data);

typedef struct ignis_gradcheck_desc {
    double step;      /* of the finite differences, relative to max(1, |x|) (1e-5) */
    double tolerance; /* relative error that passes (1e-6) */
} ignis_gradcheck_desc;

/*  ignis_backward - compute the gradient of a tensor with regard to every leaf that requires one
    grad_output is the gradient of the tensor itself; IGNIS_NO_ARRAY means 1, for a tensor of one element.
    Gradients are added to those that leaves have; they are written once, at the end. Entries of the tape are
    freed as backward passes them: a second backward through them is an error (see ignis_backward_retain).
    After a failure they are freed too, and no leaf has changed.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (the tensor requires no gradient, has more than one element without grad_output,
    was used by a backward pass already, or was recorded by another thread; an operation on the way saved an
    array that was written to since; a backward function of the caller failed without saying why), SHAPE,
    DTYPE, DEVICE, MEMORY, CUDA, and what backward functions fail with.
    Ownership: grad_output stays the caller's.
    Threads: the one that recorded it. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_backward(ignis_tensor tensor, ignis_array grad_output);

/*  ignis_backward_retain - ignis_backward that keeps the entries of the tape for another pass (retain_graph
    in PyTorch) Each adds its gradients to those that the leaves have. Saved arrays stay in memory until an
    ignis_backward passes it, or the tensors that were computed from it are released. Saved arrays must not
    change in between.
    Returns: IGNIS_OK, or the reason; what was recorded is kept either way.
    Errors: those of ignis_backward.
    Ownership: grad_output stays the caller's.
    Threads: the one that recorded it. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_backward_retain(ignis_tensor tensor, ignis_array grad_output);

/*  ignis_retain_grad - make ignis_backward write the gradient of an operation's result, as it does for leaves
    It is added to the one that the tensor has; ignis_tensor_grad returns it. A leaf that requires a gradient has one
    anyway.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (the tensor requires no gradient).
    Ownership: the gradient ends with the tensor.
    Threads: any. */
IGNIS_API ignis_status ignis_retain_grad(ignis_tensor tensor);

/*  ignis_tensor_set_requires_grad - begin or end that a leaf requires a gradient, for operations from here on
    So a part of a model is frozen, and a tensor of a file becomes a parameter. Operations that are recorded already
    keep what they had: their ignis_backward still gives a frozen leaf its gradient. The gradient that a leaf has is
    kept.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, DTYPE (a gradient of integers), ARGUMENT (the result of an operation: ignis_detach makes a leaf of
    it; a parameter of data-parallel training that would end).
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_tensor_set_requires_grad(ignis_tensor tensor, bool requires_grad);

/*  ignis_tensor_set_grad - copy an array's values into a tensor's gradient, whose memory is kept, or made
    where there is none
    IGNIS_NO_ARRAY drops the gradient: its memory is freed, and optimizers do not update the tensor, until
    another one is computed.
    Shapes: equal numel; the tensor's dtype and device.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (the tensor requires no gradient, as those of integers; grad
    was never written to; a parameter of data-parallel training, whose gradient cannot be dropped), MEMORY,
    CUDA.
    Ownership: grad stays the caller's.
    Threads: any, but a gradient is not dropped while another thread's optimizer makes a step with it.
    Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_tensor_set_grad(ignis_tensor tensor, ignis_array grad);

/*  ignis_zero_grad - set a tensor's gradient to zero; its memory is kept, or made where there is none
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (the tensor requires no gradient), MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_zero_grad(ignis_tensor tensor);

/*  ignis_detach - a tensor over the same memory that is not on the tape and requires no gradient
    Returns: the tensor, or no handle.
    Errors: FREED, MEMORY.
    Ownership: as ignis_tensor_from_host.
    Threads: any. */
IGNIS_API ignis_tensor ignis_detach(ignis_tensor tensor);

/*  ignis_no_grad_begin, ignis_no_grad_end - between them the calling thread records nothing; they nest
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (end without begin).
    Ownership: nothing to free.
    Threads: any; each has its own depth. */
IGNIS_API ignis_status ignis_no_grad_begin(void);
IGNIS_API ignis_status ignis_no_grad_end(void);

/*  ignis_tape_record - make output the result of an operation on inputs, whose gradients rule computes
    Ignis' own operations are recorded in the same way. Nothing is recorded inside ignis_no_grad_begin, or
    when no input requires a gradient. output must be new: a leaf that requires no gradient itself, and that
    no recorded operation has as an input.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (output is not new, null rule, an input recorded by another thread), DTYPE
    (integers), MEMORY.
    Ownership: inputs are kept, params are copied. Saved arrays stay the caller's: the tape keeps their
    memory, and they may be freed at once, used for ever, or saved again.
    Threads: any; the entry belongs to the calling thread's tape. */
IGNIS_API ignis_status ignis_tape_record(ignis_tensor output, const ignis_tensor *inputs, int count,
                                         const ignis_rule *rule);

/*  ignis_tape_clear - free all entries of the calling thread's tape
    Returns: IGNIS_OK, or the reason.
    Errors: NOT_SETUP, ARGUMENT (inside a backward function).
    Ownership: saved memory is freed; tensors stay, and a backward through them is an error.
    Threads: any; each has its own tape. */
IGNIS_API ignis_status ignis_tape_clear(void);

/*  ignis_tape_length - how many operations the calling thread's tape holds
    Returns: the number, -1 on failure.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; each has its own tape. */
IGNIS_API int64_t ignis_tape_length(void);

/*  ignis_tape_dot - the operations that lead to a tensor as a Graphviz graph, with shapes, and the bytes
    that each keeps for backward
    Returns: the length of the whole text without its end, as snprintf does; out may be null when capacity is
    0; -1 on failure.
    Errors: FREED, ARGUMENT, MEMORY.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always ended.
    Threads: the one that recorded it. */
IGNIS_API int64_t ignis_tape_dot(ignis_tensor tensor, char *out, size_t capacity);

/*  Results of operations that a checkpoint computes again in the backward pass. */
typedef enum ignis_recompute {
    IGNIS_RECOMPUTE_ALL, /* all: only the inputs are kept */
    /* All but products: ignis_linear, ignis_matmul and _t, ignis_mlp and its variants, ignis_grouped_linear,
       ignis_einsum, convolutions, ignis_sdpa and _packed. Their results are kept, with what their backward needs. */
    IGNIS_RECOMPUTE_KEEP_PRODUCTS,
    /* All but products, whose results are in pinned host memory until the backward needs them. They are copied on a
       stream of their own: away until the next checkpoint of the thread ends, back while the backward of the one after
       runs. Their device memory is free in between. */
    IGNIS_RECOMPUTE_OFFLOAD_PRODUCTS,
    IGNIS_RECOMPUTE_COUNT
} ignis_recompute;

typedef struct ignis_checkpoint_desc {
    ignis_recompute recompute; /* (IGNIS_RECOMPUTE_ALL) */
    int64_t offload_bytes;     /* results of fewer bytes stay on the device (1 MiB) */
} ignis_checkpoint_desc;

/*  ignis_checkpoint - run a function without keeping what its backward needs, and run it again in backward
    (Chen et al. 2016; with products kept Korthikanti et al. 2022)
    desc may be null.
    The function runs in a scope of its own: what it makes is released when it returns, but for its result.
    The second run sees the same random numbers. Tensors that fn uses beside its inputs, such as weights, get
    their gradients too. Where inputs, or others that were there before and that operations in fn read, were
    written to before the backward, that fails. Where no tensor that fn uses requires a gradient, nothing is
    recorded. Checkpoints nest: products inside of the inner one are kept if the inner desc says so.
    Returns: a new tensor over what fn returns, or no handle.
    Errors: FREED, ARGUMENT (fn has begun and not ended, or ended and not begun, a scope or a no-grad
    section; desc->recompute is not one of ignis_recompute, desc->offload_bytes is below 0), those of fn, MEMORY, also
    if there is no pinned memory. Where fn writes to its inputs, or
    computes other products than in its first run, the backward fails.
    Ownership: as ignis_tensor_from_host. user_data must live until backward.
    Threads: any. */
IGNIS_API ignis_tensor ignis_checkpoint(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count,
                                        const ignis_checkpoint_desc *desc);
