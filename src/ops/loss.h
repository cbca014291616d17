/* >>ops.loss - losses -------------------------------------------------------------------------------------------

   Losses, their mean and their sum are f32, or f64 if an input is.
   Sums have a fixed order: equal inputs give equal bits. */

/*  How losses are reduced. Each element of the first input has a loss, or each row, as the function says.
    Losses, their mean and their sum are of f32, or f64 where an input is: a scaled loss (ignis_scale_loss)
    does not overflow, and its gradient is rounded once. */
typedef enum ignis_reduction {
    IGNIS_REDUCTION_MEAN = 0, /* of the losses that count, [1]; NaN if there are no such losses, and the gradient 0 */
    IGNIS_REDUCTION_SUM,      /* [1] */
    IGNIS_REDUCTION_NONE,     /* all of them, in the shape of the elements or rows */
    IGNIS_REDUCTION_COUNT
} ignis_reduction;

/*  ignis_mse_loss - (x - target)^2 of each element; ignis_l1_loss - |x - target|; ignis_huber_loss
    ignis_huber_loss is d^2 / 2 of d = |x - target| if d is below delta, else delta (d - delta / 2) (Huber,
    Robust Estimation of a Location Parameter, 1964). One pass over memory, and one for the gradients of x and
    targets. PyTorch's smooth_l1_loss with beta is ignis_huber_loss with delta = beta, divided by beta. Other
    losses are formulas of one line: see ON FORMULAS.
    Shapes: equal; targets of any dtype, x of a floating one.
    Returns: the tensor, or no handle.
    Errors: those of ignis_map; ARGUMENT (no such reduction, delta not above 0), SHAPE, DTYPE.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_mse_loss(ignis_tensor x, ignis_tensor targets, ignis_reduction reduction);
IGNIS_API ignis_tensor ignis_l1_loss(ignis_tensor x, ignis_tensor targets, ignis_reduction reduction);
IGNIS_API ignis_tensor ignis_huber_loss(ignis_tensor x, ignis_tensor targets, double delta, ignis_reduction reduction);

typedef struct ignis_bce_desc {
    ignis_tensor weight; /* of each element's loss, broadcast to the logits; the mean is still over all elements (1) */
    ignis_tensor pos_weight;   /* of the part of target 1, broadcast to the logits (1) */
    ignis_reduction reduction; /* IGNIS_REDUCTION_MEAN */
} ignis_bce_desc;

/*  ignis_bce_with_logits - binary cross-entropy of each element: -weight (pos_weight t log(p) + (1 - t)
    log(1 - p)), with p = sigmoid(logit)
    From the logits themselves, so that nothing overflows and small losses keep their digits. One pass, and
    one for the gradients.
    Shapes: targets that of logits, of any dtype, from 0 to 1; weights broadcast to it. desc may be null for
    all defaults.
    Returns: the tensor, or no handle.
    Errors: those of ignis_map; ARGUMENT (no such reduction), SHAPE, DTYPE.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_bce_with_logits(ignis_tensor logits, ignis_tensor targets, const ignis_bce_desc *desc);

/*  ignis_kl_div - the Kullback-Leibler divergence of each row: the sum over the last dimension of t (log(t)
    - x), 0 where t is 0
    As in PyTorch, x are log-probabilities, and targets probabilities, or with log_targets log-probabilities,
    too. The mean is over rows (PyTorch's "batchmean"). One pass, one over the rows' losses, and one for the
    gradients.
    Shapes: equal, [..., classes]; without reduction the result is [...], or [1].
    Returns: the tensor, or no handle.
    Errors: those of ignis_map; ARGUMENT (no such reduction), SHAPE, DTYPE.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_kl_div(ignis_tensor x, ignis_tensor targets, bool log_targets, ignis_reduction reduction);

/*  ignis_cosine_similarity - the cosine of the angle between rows: a b / (|a| |b|), sums over the last
    dimension Each length counts as 1e-8 at least. Two norms, a sum and a formula. The loss for y = 1 (alike)
    or -1 is a line: ignis_map_mean("y > 0 ? 1 - c : max(c - margin, 0)", IGNIS_INPUTS(c, y,
    IGNIS_VALUE(margin, 0.5))).
    Shapes: equal, [..., n]; the result is [...], or [1], of f32, or f64 where an input is.
    Returns: the tensor, or no handle.
    Errors: those of ignis_map; SHAPE, DTYPE.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cosine_similarity(ignis_tensor a, ignis_tensor b);

typedef struct ignis_cross_entropy_desc {
    int64_t ignore_index;      /* rows with this target have neither loss nor gradient (-100) */
    bool ignore_zero;          /* with ignore_index 0: it is not the default */
    ignis_reduction reduction; /* of the rows that are not ignored (IGNIS_REDUCTION_MEAN) */
    double label_smoothing;    /* what part of the target is spread evenly over all classes, from 0 to 1 (0) */
    int64_t
        classes;   /* later columns are padding: they are ignored, and their gradient is 0 (all columns are classes) */
    int64_t chunk; /* of ignis_linear_cross_entropy: rows whose logits exist at a time (4096, or as many as have
                                  2^27 logits; all, where that takes less memory) */
} ignis_cross_entropy_desc;

/*  ignis_cross_entropy - mean or sum over rows of log(sum of exp(logits)) - logits[target]
    Shapes: logits [..., classes]; targets, of i32 or i64, [...]; the result is [1], of f32, or f64 for logits
    of f64. desc may be null for all defaults.
    A target that is not a class and not ignored makes the loss and the gradient of its row NaN, and so does a
    row of nothing but -infinity. Where all rows are ignored the mean is NaN, and the gradient 0. A constant
    added to all logits of a row costs neither loss nor gradient any digits. With label_smoothing e the target
    is 1 - e at its class, and e / classes is added to every class (Szegedy et al., Rethinking the Inception
    Architecture for Computer Vision, 2016). That, and IGNIS_REDUCTION_NONE (a loss for each row, [...]), are
    computed by formulas: two walks over the logits, and one in backward, which needs them; fewer than 2^24
    classes.
    The gradient of f32, f64 and bf16 is computed with the loss, and backward only passes it on; it is scaled,
    and rounded once more, where the gradient of the loss is not 1.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (desc->classes outside of 1 to the columns, reduction, label_smoothing), SHAPE,
    DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (2^30 columns or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cross_entropy(ignis_tensor logits, ignis_tensor targets,
                                           const ignis_cross_entropy_desc *desc);

/*  ignis_nll_loss - -x[target] of each row, for log-probabilities x: ignis_cross_entropy without its
    logarithm A pass over all of x, one over the rows' losses, and one that writes the gradient. Ignored rows
    and targets that are not a class as in ignis_cross_entropy; label_smoothing has to be 0. desc may be null
    for all defaults. ignis_log_softmax gives such x.
    Shapes: x [..., classes]; targets, of i32 or i64, [...]; without reduction the result is [...], or [1].
    Returns: the tensor, or no handle.
    Errors: those of ignis_cross_entropy; UNSUPPORTED (label_smoothing).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_nll_loss(ignis_tensor x, ignis_tensor targets, const ignis_cross_entropy_desc *desc);

/*  ignis_linear_cross_entropy - the cross-entropy of the logits hidden weight^T, which never exist as a whole
    As ignis_cross_entropy(ignis_matmul_t(hidden, weight), targets, desc), for vocabularies whose
    logits are larger than all else: they are made in chunks of desc->chunk rows, and so is their gradient.
    The gradients of hidden and weight are computed with the loss; backward passes them on, or scales them,
    and rounds them once more, where the gradient of the loss is not 1. For f16, whose range is small,
    backward computes them from the logits, which it makes once more: a fourth product. Sums over chunks have
    a fixed order, in f32 at least. Rows of hidden that are ignored, and rows of weight after desc->classes,
    have to be finite: the gradients multiply them by 0. Its price is memory for a chunk of logits, both
    gradients from forward on, besides which hidden and weight stay until backward, and for 16-bit types with
    more than one chunk 6 bytes for each element of weight meanwhile; and a pass over weight and its sum for
    each chunk: small chunks are slow. For second derivatives all logits are made at once.
    Shapes: hidden [..., n], weight [classes, n], of one dtype; targets, of i32 or i64, [...]; the result is
    [1], of f32, or f64 for f64.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (desc->classes outside of 1 to the rows of weight, reduction, chunk below 0),
    SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (n or classes of 2^30 or more;
    label_smoothing, IGNIS_REDUCTION_NONE).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_linear_cross_entropy(ignis_tensor hidden, ignis_tensor weight, ignis_tensor targets,
                                                  const ignis_cross_entropy_desc *desc);
