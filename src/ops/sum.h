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
