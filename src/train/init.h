/* >>init - initial values of weights ------------------------------------------------------------------------- */

/*  The values that ignis_initialize draws. */
typedef enum ignis_init {
    IGNIS_INIT_KAIMING_UNIFORM,
    IGNIS_INIT_KAIMING_NORMAL,
    IGNIS_INIT_XAVIER_UNIFORM,
    IGNIS_INIT_XAVIER_NORMAL,
    IGNIS_INIT_ORTHOGONAL,
    IGNIS_INIT_TRUNCATED_NORMAL
} ignis_init;

/*  The number of elements that the variance is divided by. */
typedef enum ignis_fan {
    IGNIS_FAN_IN, /* inputs of an output: the variance of results stays in the forward pass */
    IGNIS_FAN_OUT /* outputs of an input: that of gradients stays in the backward pass */
} ignis_fan;

/*  Gains of functions that follow the weights, as torch.nn.init.calculate_gain has them. */
#define IGNIS_GAIN_LINEAR 1.0 /* and sigmoid */
#define IGNIS_GAIN_TANH (5.0 / 3)
#define IGNIS_GAIN_RELU 1.41421356237309504880
#define IGNIS_GAIN_SELU 0.75

typedef struct ignis_init_desc {
    ignis_init kind; /* IGNIS_INIT_KAIMING_UNIFORM */
    ignis_fan fan;   /* of the Kaiming kinds (IGNIS_FAN_IN) */
    double gain;     /* (Kaiming: that of slope; Xavier and orthogonal: 1) */
    double slope;    /* of the leaky ReLU that follows, for Kaiming: the gain is sqrt(2 / (1 + slope^2)) (0: ReLU) */
    double mean;     /* of the normal distribution before it is truncated (0) */
    double std;      /* its standard deviation (1) */
    double low;      /* the least value (-2, if high is 0 too) */
    double high;     /* the largest value (2, if low is 0 too) */
} ignis_init_desc;

/*  ignis_initialize - fill a weight with random initial values, as torch.nn.init does
    Kaiming (He et al., Delving Deep into Rectifiers, 2015): variance gain^2 / fan, uniform between -sqrt(3 variance)
    and its opposite, or normal. Xavier (Glorot and Bengio 2010): variance 2 gain^2 / (fan in + fan out). Orthogonal
    (Saxe et al. 2014): the tensor as a matrix of its first dimension by all others has orthonormal rows or columns,
    whichever are fewer, times gain, uniformly distributed. Truncated normal: by the inverse of the distribution. Of a
    weight of ignis_linear or of a convolution, [outs, ..., ins], the fan in is the number of elements of an output,
    and the fan out that of an input. Of w [ins, outs] of ignis_matmul the two change places. A slope of
    sqrt(5) gives the default of PyTorch's Linear and Conv layers. The numbers follow from ignis_seed and the calls
    since. desc may be null for all defaults.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, DTYPE (not floating), SHAPE (fewer than 2 dimensions, but for the truncated normal), ARGUMENT (an
    unknown kind or fan; a gain, slope or std below 0, NaN or infinite; low that is not below high), MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_initialize(ignis_tensor tensor, const ignis_init_desc *desc);

/*  ignis_parameter - make a tensor of f32 that an optimizer trains, on the thread's current device
    One of two dimensions or more is a weight: ignis_initialize fills it, and weight decay applies to it. Others are
    zeros, and have none; a desc fills these too. desc may be null for all defaults. For other dtypes see
    ignis_optimizer_add.
    Returns: the tensor, or no handle.
    Errors: those of ignis_tensor_zeros, ignis_initialize and ignis_optimizer_add.
    Ownership: as ignis_tensor_from_host; the optimizer keeps its memory until it is freed.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_parameter(ignis_optimizer optimizer, ignis_shape shape, const ignis_init_desc *desc);
