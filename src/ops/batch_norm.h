typedef struct ignis_batch_norm_desc {
    /* [channels] of f32, or f64 for x of f64: averages that training moves and evaluation uses (none). */
    ignis_array running_mean;
    ignis_array running_var; /* as running_mean, for the variance; given together with it, or not at all */
    double momentum;         /* how far the averages move towards those of x, above 0 to 1 (0.1) */
    double eps;              /* (1e-5) */
    bool eval;               /* normalize by the running averages, which stay (false: by those of x) */
} ignis_batch_norm_desc;

/*  ignis_batch_norm - (x - mean) / sqrt(variance + eps) * w + b, with mean and variance of each channel over
    all else Training also moves running_mean and running_var, in place, on the current stream: running +=
    momentum * (that of x - running), where the variance of x is without bias, its sum divided by n - 1. So
    does each launch of a graph. A checkpoint that runs its function again moves them once. Begin with zeros
    and ones.
    Shapes: x [..., channels]; w and b [channels], of f32 also beside f16 and bf16. desc may be null for all defaults.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (eps below 0, momentum outside of 0 to 1, one running array alone, or none to
    evaluate with), SHAPE (also: fewer than 2 elements a channel to train with), DTYPE, DEVICE, MEMORY,
    LIBRARY, COMPILE, CUDA, UNSUPPORTED (channels of 2^28 or more).
    Ownership: as ignis_tensor_from_host; the running arrays stay the caller's.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_batch_norm(ignis_tensor x, ignis_tensor w, ignis_tensor b,
                                        const ignis_batch_norm_desc *desc);

/*  ignis_group_norm - the same with mean and variance of each image, and in it of each of `groups` groups
    of neighbouring channels
    Shapes: x [n, ..., channels], the channels a multiple of groups; w and b [channels], as there. eps 0 means 1e-5, as
    in ignis_layer_norm.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (groups below 1, eps below 0, or NaN), SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY,
    COMPILE, CUDA, UNSUPPORTED (channels of 2^28 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_group_norm(ignis_tensor x, int groups, ignis_tensor w, ignis_tensor b, double eps);
