/* >>ops.pointwise - arithmetic, activations, dropout ------------------------------------------------------------

   Each function is one kernel. Formulas do several operations in one pass: see ON FORMULAS.
   f16 and bf16 are computed in f32 and rounded once. */

/*  ignis_add, ignis_sub, ignis_mul - a + b, a - b and a * b, element by element
    Shapes: a and b broadcast by NumPy's rules: compared from the last dimension on, either may lack leading
    dimensions, or have 1 for a dimension. So b may be a row, a column or a single element of a: that has kernels of its
    own. Any other broadcast is the formula "a + b" of ignis_map. Gradients are summed accordingly, in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (they do not broadcast), DTYPE (they differ, or are integers), DEVICE, ARGUMENT (never
    written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_add(ignis_tensor a, ignis_tensor b);
IGNIS_API ignis_tensor ignis_sub(ignis_tensor a, ignis_tensor b);
IGNIS_API ignis_tensor ignis_mul(ignis_tensor a, ignis_tensor b);

/*  ignis_add_bias - add a bias [cols] to each row of a tensor [..., cols]
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (the bias is not [cols]), DTYPE, DEVICE, ARGUMENT (never written to), MEMORY,
    LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_add_bias(ignis_tensor tensor, ignis_tensor bias);

/*  ignis_scale - every element times factor; f16, bf16 and f32 with the factor rounded to f32
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_scale(ignis_tensor tensor, double factor);

/*  ignis_cast - the same elements as another dtype, by the rules of ignis_array_from_host
    The gradient is cast back. A result of integers has none.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (no such dtype, never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cast(ignis_tensor tensor, ignis_dtype dtype);

/*  ignis_dropout - set each element to zero with the given probability, and divide the others by 1 -
    probability Which ones follows from ignis_seed and the calls since; backward computes the mask again, so
    none is kept. In a graph it also follows from how often that was launched: see ignis_graph_launch. For
    evaluation leave it out.
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, ARGUMENT (probability outside 0 to below 1, never written to), MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any; each thread has its own sequence of random numbers. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_dropout(ignis_tensor tensor, double probability);

/*  ignis_relu - max(x, 0); ignis_silu - x / (1 + exp(-x));
    ignis_gelu - x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); ignis_gelu_exact - x/2 (1 + erf(x / sqrt(2)))
    NaN stays NaN. The gradient of relu at 0 is 0.
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_relu(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_gelu(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_gelu_exact(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_silu(ignis_tensor tensor);

/*  ignis_silu_mul - silu(gate) * up in one pass, for gated MLPs; silu(gate) is not rounded in between
    Shapes: equal.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_silu_mul(ignis_tensor gate, ignis_tensor up);
