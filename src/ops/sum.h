/* >>ops.sum - sums and means ------------------------------------------------------------------------------------

   Sums are f32, f64 for f64, in a fixed order: equal inputs give equal bits.
   For other reductions see ignis_map_reduce. */

/*  ignis_sum, ignis_mean - the sum or mean of all elements; ignis_sum_dim, ignis_mean_dim - along one
    dimension
    Shapes: [1]; along a dimension the shape without it, [1] for a tensor of one dimension. A negative dim
    counts from the last one on. Summed in f32 (f64 in f64) in a fixed order. The sum of no elements is 0,
    their mean NaN.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension), DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE,
    CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_sum(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_mean(ignis_tensor tensor);
IGNIS_API ignis_tensor ignis_sum_dim(ignis_tensor tensor, int dim);
IGNIS_API ignis_tensor ignis_mean_dim(ignis_tensor tensor, int dim);

/*  ignis_cumsum - the sums of all elements up to each one along a dimension, in the tensor's dtype
    A negative dim counts from the last one on. Floating types are summed in f32 (f64 in f64) in a fixed
    order, and rounded once; i32 and i64 wrap around.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension), DTYPE (u8), ARGUMENT (never written to), MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cumsum(ignis_tensor tensor, int dim);

/*  ignis_cumprod - the products of all elements up to each one along a dimension, in the tensor's dtype
    As ignis_cumsum. Products of neighbours are computed first: where such a product overflows, the result is an
    infinity or NaN, even after a 0. The gradient divides by nothing, so zeros have the exact one.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension), DTYPE (u8), ARGUMENT (never written to), MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cumprod(ignis_tensor tensor, int dim);

/*  ignis_logcumsumexp - the logarithm of the sum of exp of all elements up to each one along a dimension
    Without overflow: exp is taken of differences to the largest element. Minus infinity adds nothing, and has
    gradient 0. The gradient reads the result as it was rounded: its relative error is the rounding of the result.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension), DTYPE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE,
    CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_logcumsumexp(ignis_tensor tensor, int dim);

/*  ignis_cummax, ignis_cummin - the largest or smallest of all elements up to each one along a dimension
    *indices, where indices is not null, becomes a tensor of i64 with the position of that element along dim. Of
    equal elements it is the last one, as in PyTorch. From the first NaN on all results are NaN. The gradient goes
    to the element at the position; gradients are summed in a fixed order.
    Returns: the tensor, or no handle, and none in *indices.
    Errors: FREED, SHAPE (no such dimension), DTYPE (floats of 8 bits), ARGUMENT (never written to), MEMORY,
    LIBRARY, COMPILE, CUDA, UNSUPPORTED (2^31 elements along dim; in backward: in all).
    Ownership: as ignis_tensor_from_host, for both.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_cummax(ignis_tensor tensor, int dim, ignis_tensor *indices);
IGNIS_API ignis_tensor ignis_cummin(ignis_tensor tensor, int dim, ignis_tensor *indices);
