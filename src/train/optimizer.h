/* >>optim - AdamW, SGD and others, schedules, clipping, loss scaling --------------------------------------------

   An optimizer updates all its parameters of one element type in one launch.
   Its state and schedule are on the device, so a step can be captured in a graph. */

/*  Parameters, and the state that is kept for each of them. */
typedef struct ignis_optimizer {
    uint64_t id;
} ignis_optimizer;

typedef enum ignis_schedule {
    IGNIS_SCHEDULE_CONSTANT,
    IGNIS_SCHEDULE_COSINE, /* half a cosine from lr down to floor * lr */
    IGNIS_SCHEDULE_LINEAR  /* a straight line */
} ignis_schedule;

/*  The learning rate over the steps. It grows linearly to lr in the first `warmup` steps, and reaches its
    last value at step `total`. */
typedef struct ignis_schedule_desc {
    ignis_schedule kind; /* IGNIS_SCHEDULE_CONSTANT */
    int64_t warmup;      /* steps (0) */
    int64_t total;       /* steps, warm-up included; required except for a constant rate */
    double floor;        /* part of lr that is left at the end (0) */
} ignis_schedule_desc;

/*  The scale of the loss, for f16, whose small gradients would be 0: ignis_scale_loss. */
typedef struct ignis_loss_scale_desc {
    double initial;   /* 65536 is usual (0: losses are not scaled) */
    double growth;    /* factor after interval steps without infinite gradients (2) */
    double backoff;   /* factor after a skipped step (0.5) */
    int64_t interval; /* 2000 */
    double lowest;    /* the scale does not fall below this (1; initial, if that is less) */
} ignis_loss_scale_desc;

typedef struct ignis_adamw_desc {
    double lr;           /* 1e-3 */
    double beta1;        /* 0.9 */
    double beta2;        /* 0.999 */
    double eps;          /* 1e-8 */
    double weight_decay; /* 0 */
    ignis_schedule_desc schedule;
    /* f16 and bf16 parameters are updated without an f32 copy. Saves 4 bytes each; small changes are lost
       (false). */
    bool no_master;
    /* The f32 copy of a bf16 parameter is in two parts: the parameter, which is the copy rounded, halves away from
       zero, and 16 low bits. Saves 2 bytes each and loses no bit. Not with ema_decay (false). */
    bool split_master;
    bool zero_grad; /* a step sets the gradients to zero, in the same pass (false) */
    /* A step leaves no gradients, so the next backward does not add to zeros. Saves their memory and two
       passes over it. Gradients of data-parallel training stay where they are, and become zero, except those
       of which a rank has slices (false). */
    bool drop_grad;
    bool coupled; /* Adam: weight decay is part of the gradient (false) */
    ignis_loss_scale_desc loss_scale;
    /* Each step moves a mean of the values, average += (1 - ema_decay) (value - average), which begins with the
       values at ignis_optimizer_add: ignis_optimizer_swap_ema (0: none). */
    double ema_decay;
} ignis_adamw_desc;

typedef struct ignis_sgd_desc {
    double lr;           /* 1e-3 */
    double momentum;     /* 0 */
    double weight_decay; /* 0 */
    ignis_schedule_desc schedule;
    bool no_master; /* these are as in ignis_adamw_desc */
    bool zero_grad;
    bool drop_grad;
    ignis_loss_scale_desc loss_scale;
    double ema_decay;
} ignis_sgd_desc;

typedef struct ignis_rmsprop_desc {
    double lr;           /* 1e-2 */
    double alpha;        /* 0.99 */
    double eps;          /* 1e-8 */
    double momentum;     /* 0 */
    double weight_decay; /* 0 */
    ignis_schedule_desc schedule;
    bool no_master; /* these are as in ignis_adamw_desc */
    bool zero_grad;
    bool drop_grad;
    ignis_loss_scale_desc loss_scale;
    double ema_decay;
} ignis_rmsprop_desc;

typedef struct ignis_lion_desc {
    double lr;           /* 1e-4 */
    double beta1;        /* 0.9 */
    double beta2;        /* 0.99 */
    double weight_decay; /* 0 */
    ignis_schedule_desc schedule;
    bool no_master; /* these are as in ignis_adamw_desc */
    bool zero_grad;
    bool drop_grad;
    ignis_loss_scale_desc loss_scale;
    double ema_decay;
} ignis_lion_desc;

typedef struct ignis_muon_desc {
    double lr;           /* 1e-3 */
    double momentum;     /* 0.95 */
    double weight_decay; /* 0 */
    ignis_schedule_desc schedule;
    /* Steps have the size of AdamW's, so that its lr and weight_decay fit (false: PyTorch's "original"). */
    bool like_adamw;
    bool no_master; /* these are as in ignis_adamw_desc */
    bool zero_grad;
    bool drop_grad;
    ignis_loss_scale_desc loss_scale;
    double ema_decay;
} ignis_muon_desc;

typedef struct ignis_optimizer_info {
    int64_t step; /* steps so far */
    double lr;    /* of the last step */
    /* Before clipping, of the last clipped step; with a loss scale also of the last step, without the scale. */
    double grad_norm;
    int parameters;
    double loss_scale; /* 1 if losses are not scaled */
    int64_t skipped;   /* skipped steps, which step does not count */
} ignis_optimizer_info;

typedef enum ignis_optimizer_part {
    IGNIS_OPTIMIZER_SELF,   /* f64 [16]: learning rate, clipping, count of steps, scale of the loss */
    IGNIS_OPTIMIZER_FIRST,  /* of a parameter: momentum */
    IGNIS_OPTIMIZER_SECOND, /* mean of the squared gradients; of Muon the last step, which need not be saved */
    IGNIS_OPTIMIZER_MASTER, /* f32 copy of an f16 or bf16 parameter; with split_master 16 low bits, as if bf16 */
    IGNIS_OPTIMIZER_MISSED, /* f64 [1], of AdamW and Adam: steps without a gradient for the parameter */
    IGNIS_OPTIMIZER_GROUP,  /* f64 [2], of a group: its learning rate and its weight decay */
    IGNIS_OPTIMIZER_EMA     /* of a parameter: the mean of its values, f32 or f64; without ema_decay none */
} ignis_optimizer_part;

/*  ignis_adamw - an optimizer by AdamW (Loshchilov and Hutter 2019): weight decay apart from the gradient;
    or Adam (Kingma and Ba 2015)
    ignis_sgd - by stochastic gradient descent with momentum; weight decay is part of the gradient, as in
    PyTorch
    ignis_rmsprop - by RMSprop (Tieleman and Hinton 2012), as in PyTorch, not centered: momentum is of the
    divided gradient, eps outside of the root
    ignis_lion - by Lion (Chen et al. 2023): steps of equal size along the sign of a mean; decay as AdamW's
    ignis_muon - by Muon (Jordan et al. 2024), as in PyTorch: the momentum of a matrix, with Nesterov's lead,
    made orthogonal by five rounds of a Newton-Schulz iteration in bf16 (f64 of f64). Its parameters have two
    dimensions; embeddings, heads and the rest take AdamW beside it. A step is some 25 launches and 15
    products for each matrix; it is scaled by sqrt(max(1, rows / columns)), or with like_adamw by 0.2
    sqrt(max(rows, columns)) (Liu et al., Muon is Scalable for LLM Training, 2025).
    Bias is corrected by the steps that a parameter has had a gradient for: one that is added, or gets its
    first gradient, at step 1000 begins as those of step 1 did. Schedules count the optimizer's steps.
    It lives on the current device. desc may be null for all defaults.
    Returns: the optimizer, or no handle.
    Errors: ARGUMENT (a number outside its range, which none allows NaN or infinity, schedule.total), DEVICE,
    MEMORY, CUDA.
    Ownership: the caller frees it with ignis_optimizer_free.
    Threads: any. */
IGNIS_API ignis_optimizer ignis_adamw(const ignis_adamw_desc *desc);
IGNIS_API ignis_optimizer ignis_sgd(const ignis_sgd_desc *desc);
IGNIS_API ignis_optimizer ignis_rmsprop(const ignis_rmsprop_desc *desc);
IGNIS_API ignis_optimizer ignis_lion(const ignis_lion_desc *desc);
IGNIS_API ignis_optimizer ignis_muon(const ignis_muon_desc *desc);

/*  ignis_optimizer_add - make a tensor a parameter of an optimizer: a leaf that requires a gradient; decay:
    whether weight decay applies to it
    It belongs to the group that ignis_optimizer_add_group began last, if there is one. Master copies are made of the
    values that the tensor has now.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no leaf, no gradient required, added already, never written to, shared by ranks where
    parameters before it are not), UNSUPPORTED (this thread captures a graph; L-BFGS of shared parameters), SHAPE
    (Muon, and not two dimensions), DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: the optimizer keeps the tensor's memory until it is freed.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_optimizer_add(ignis_optimizer optimizer, ignis_tensor tensor, bool decay);

/*  ignis_optimizer_add_group - begin a group of parameters with a learning rate and a weight decay of their own:
    those that ignis_optimizer_add adds from here on
    lr takes the place of the optimizer's, and the schedule scales it; 0 keeps the group as it is. weight_decay
    applies to the parameters that are added with decay. The optimizer's own are those of group 0, the parameters that
    were added before any group.
    Returns: the group's number, 1 or above; -1 on failure.
    Errors: FREED, ARGUMENT (lr or weight_decay is below 0, NaN or infinite), UNSUPPORTED (this thread captures a
    graph, or L-BFGS), MEMORY, CUDA.
    Ownership: the group is part of the optimizer.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API int ignis_optimizer_add_group(ignis_optimizer optimizer, double lr, double weight_decay);

/*  ignis_optimizer_set_group - set the learning rate and the weight decay of a group from the next step on
    Both are on the device: launches of a graph that was captured before use them, too.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such group, or group 0, which ignis_optimizer_set_lr serves; a number that
    ignis_optimizer_add_group refuses), MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_optimizer_set_group(ignis_optimizer optimizer, int group, double lr, double weight_decay);

/*  ignis_optimizer_step - update all parameters that have a gradient
    One launch for each element type. Step count, learning rate and clipping are kept and updated on the
    device, so a CUDA graph of a step can be replayed. Without any gradient nothing happens, and no step is
    counted. With a loss scale the gradients are looked through first, which ignis_clip_grad_norm does, too,
    and a step with an infinity or NaN among them is skipped: parameters, state, step count and schedule stay.
    So does one whose squares add up to infinity. After ignis_training_regroup of ranks that share state, it first
    copies what the training has.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no parameters; ignis_optimizer_swap_ema has put the averages into the parameters),
    UNSUPPORTED (this thread captures a graph, after such an ignis_training_regroup), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_optimizer_step(ignis_optimizer optimizer);

/*  ignis_optimizer_zero_grad - set the gradients of all parameters, and their sums, to zero; their memory is kept
    Returns: IGNIS_OK, or the reason.
    Errors: as ignis_optimizer_step.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_optimizer_zero_grad(ignis_optimizer optimizer);

/*  ignis_optimizer_accumulate - add all gradients to sums in f32 (f64 of f64), and set them to zero
    For several passes of backward before a step, where sums in bf16 or f16 would lose small gradients: call it after
    each backward, or after each but the last. The next step and clipping take the sums with the gradients that are
    there, and the step sets the sums to zero. The first call makes the sums, 4 bytes for each element; they are no
    part of the state: save it after a step. Their mean is that of a loss that is divided by the number of passes.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no parameters), UNSUPPORTED (a first call while this thread captures a graph), MEMORY,
    LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_optimizer_accumulate(ignis_optimizer optimizer);

/*  ignis_optimizer_swap_ema - exchange the parameters and their averages, for evaluating with these; a second call
    exchanges them again
    The parameters come back bit for bit. Steps are refused in between. f16 and bf16 parameters without an f32 copy
    (no_master) leave their averages rounded.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no ema_decay, or no parameters), UNSUPPORTED (this thread captures a graph), MEMORY,
    LIBRARY, COMPILE, CUDA; after another failure than the first ones some parameters may be exchanged.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_optimizer_swap_ema(ignis_optimizer optimizer);

/*  ignis_clip_grad_norm - if the norm of all gradients together is above max_norm, let the next step scale
    them down to it
    The gradients themselves stay as they are: ignis_optimizer_step multiplies them as it reads them. Nothing
    is copied to the host; ignis_optimizer_query returns the norm; an infinite max_norm changes nothing else.
    The sum is computed in a fixed order.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (max_norm is not above 0, no parameters), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_clip_grad_norm(ignis_optimizer optimizer, double max_norm);

/*  ignis_clip_grad_norms - as ignis_clip_grad_norm, with one norm of the gradients of `count` optimizers together
    The steps of all are scaled down by the same factor. With loss scales, all have the scale of optimizers[0], with
    which ignis_scale_loss began backward: the others take it over, and all skip a step together. So the call comes
    before each step; an infinite max_norm clips nothing. Gradients of optimizers[0] are in every step.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (max_norm is not above 0, count is below 1, no parameters, the same optimizer twice, loss
    scales with other factors or intervals), DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizers' device. */
IGNIS_API ignis_status ignis_clip_grad_norms(const ignis_optimizer *optimizers, int count, double max_norm);

/*  ignis_scale_loss - a loss times the optimizer's loss scale, to begin backward with
    The next step divides the gradients by it, and clipping measures them without it. The scale is on the
    device, where the steps change it as ignis_loss_scale_desc says (Micikevicius et al., Mixed Precision
    Training, 2018; PyTorch's GradScaler): nothing waits, also in a graph. backward comes before the next
    step; a loss has the scale of one optimizer, which ignis_clip_grad_norms shares with others.
    Returns: the tensor, of f64; a loss times 1 where the optimizer has no loss scale; or no handle.
    Errors: FREED, DTYPE (a loss of f16, whose gradient the scale would be), DEVICE, and those of ignis_map.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_tensor ignis_scale_loss(ignis_optimizer optimizer, ignis_tensor loss);

/*  ignis_optimizer_set_lr - set the learning rate from the next step on, which the schedule scales
    Groups keep theirs: ignis_optimizer_set_group.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (negative), MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the optimizer's device. */
IGNIS_API ignis_status ignis_optimizer_set_lr(ignis_optimizer optimizer, double lr);

/*  ignis_optimizer_query - step count, learning rate and gradient norm of an optimizer
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT, CUDA.
    Ownership: *info is a copy.
    Threads: any. Streams: queued on the current stream of the optimizer's device, and waits for it. */
IGNIS_API ignis_status ignis_optimizer_query(ignis_optimizer optimizer, ignis_optimizer_info *info);

/*  ignis_optimizer_state - the array of a part of an optimizer's state, for saving it and, by
    ignis_array_copy, for restoring it
    parameter counts in the order of ignis_optimizer_add; IGNIS_OPTIMIZER_SELF ignores it, and for
    IGNIS_OPTIMIZER_GROUP it is the number of a group, whose numbers a restored state may leave out. Training continues
    bit for bit as without the interruption when all parts and parameters are restored, after all parameters
    have been added. IGNIS_OPTIMIZER_MISSED is 0 where every step had a gradient of the parameter: a state
    that was saved without it, as before 0.5.0, needs it only where that was not so. With shards of data-parallel
    training the arrays have the elements of this rank's piece of the parameter.
    Returns: the array, or no handle; a part that this optimizer or parameter does without is no failure.
    Errors: FREED, ARGUMENT (no such part or parameter).
    Ownership: the optimizer's.
    Threads: any. */
IGNIS_API ignis_array ignis_optimizer_state(ignis_optimizer optimizer, int parameter, ignis_optimizer_part part);

/*  ignis_optimizer_free - free an optimizer
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: the handle is stale afterwards; the parameters stay.
    Threads: any. */
IGNIS_API ignis_status ignis_optimizer_free(ignis_optimizer optimizer);
