/* >>ops.random - random numbers of distributions ------------------------------------------------------------------

   All follow from ignis_seed and the calls since, as those of ignis_tensor_rand do, in graphs too.
   None has a gradient. Algorithms are named below; all are computed in f64, and rounded once. */

/*  ignis_tensor_randint - integers from low to high - 1, each as likely: to 2^-32 for ranges up to 2^32
    A number of 64 bits of Philox 4x32-10, times the range, without the lower 64 bits. Equal on all devices. desc may
    be null; its dtype is i64 by default, or i32 or u8.
    Returns: the tensor, or no handle.
    Errors: SHAPE, DTYPE (a floating dtype, a gradient), ARGUMENT (low is not below high, or either is not of the
    dtype), DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tensor_randint(int64_t low, int64_t high, ignis_shape shape,
                                            const ignis_tensor_desc *desc);

/*  ignis_tensor_exponential - exponential numbers of a rate above 0: -log(u)/rate
    desc may be null for all defaults.
    Returns: the tensor, or no handle.
    Errors: SHAPE, DTYPE (integers), ARGUMENT (rate), DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tensor_exponential(double rate, ignis_shape shape, const ignis_tensor_desc *desc);

/*  ignis_tensor_permutation - the numbers from 0 to n - 1 in random order: [n], of i64
    The order of n random numbers of 64 bits. desc may be null; its dtype is i64 or 0.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (n below 0), DTYPE (another one, a gradient), DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED
    (2^31 numbers).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tensor_permutation(int64_t n, const ignis_tensor_desc *desc);

/*  ignis_poisson - for each rate a Poisson number, in the tensor's dtype
    Rates below 10: products of uniform numbers (Knuth 1969); from 10 on PTRS (Hoermann 1993). The rate 0 gives 0, one
    below 0 and NaN give NaN.
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_poisson(ignis_tensor rates);

/*  ignis_gamma - for each shape parameter a gamma number of scale 1; ignis_beta - for each a and b a beta number
    Marsaglia and Tsang (2000). Parameters that are not above 0 give NaN. Of parameters near 0 a number may be rounded
    to 0, and a beta number to 0 or 1. b has the shape and dtype of a.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_gamma(ignis_tensor shapes);
IGNIS_API ignis_tensor ignis_beta(ignis_tensor a, ignis_tensor b);

/*  ignis_categorical - draw categories of rows of weights [..., categories], which need not add up to 1: [..., draws]
    of i64
    With `replace` each draw is alone: its uniform number is searched in the sums of the row. Without it the draws of a
    row differ: they are the largest of log(weight) - log(-log(u)) (Gumbel), and there are at most as many as
    categories; if fewer have a weight, others follow. A category of weight 0 is not drawn else. With `replace`, a row
    without a sum above 0 gives -1.
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, ARGUMENT (draws below 0, or too many; never written to), SHAPE (no categories), MEMORY,
    LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_categorical(ignis_tensor weights, int64_t draws, bool replace);
