/* >>ops.shape - shapes, slices, copies --------------------------------------------------------------------------

   A result is a view if its elements are contiguous, else a copy.
   The gradient is a copy in the other direction. */

/*  ignis_reshape - the same elements under another shape, over the same memory; one dimension may be -1:
    what is left over
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (numel differs, more than one -1), MEMORY.
    Ownership: as ignis_tensor_from_host.
    Threads: any. */
IGNIS_API ignis_tensor ignis_reshape(ignis_tensor tensor, ignis_shape shape);

/*  ignis_transpose - swap two dimensions, in new memory; negative ones count from the last one on. Any dtype.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension), ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_transpose(ignis_tensor tensor, int dim0, int dim1);

/*  ignis_concat - concatenate count tensors along a dimension, in new memory. Any dtype.
    Shapes: equal but for that dimension. More than eight are concatenated in several passes.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension, another one differs), DTYPE, DEVICE, ARGUMENT (null, count, never
    written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_concat(const ignis_tensor *tensors, int count, int dim);

/*  ignis_split - cut a tensor along a dimension into count parts of the given sizes, or into equal ones
    where sizes is null. Any dtype.
    Parts along the first dimension share the tensor's memory. Backward puts all parts' gradients into one
    array.
    Returns: IGNIS_OK, and parts[0] to parts[count - 1] filled; on failure they are 0.
    Errors: FREED, SHAPE (no such dimension, sizes do not add up, no equal parts), ARGUMENT (null, count,
    never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host, for each part.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_split(ignis_tensor tensor, int dim, int count, const int64_t *sizes, ignis_tensor *parts);

/*  ignis_slice - elements [start, start + len) along a dimension; a negative dim counts from the last one
    on. Any dtype.
    Along the first dimension, and where only dimensions of 1 are before it, the slice shares the tensor's
    memory; else it is a copy. Backward puts the gradient into zeros of the tensor's shape: for many slices of
    one tensor ignis_split takes less.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension, range outside of it), ARGUMENT (never written to), MEMORY,
    LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_slice(ignis_tensor tensor, int dim, int64_t start, int64_t len);

/*  ignis_slice_step - elements start, start + step, ... along a dimension, len of them; a negative step
    goes backwards. Any dtype.
    A copy, as arrays have no strides; backward puts the gradient into zeros of the tensor's shape.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension, range outside of it), ARGUMENT (step 0, never written to),
    MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_slice_step(ignis_tensor tensor, int dim, int64_t start, int64_t len, int64_t step);

/*  ignis_permute - dimensions in another order: dimension i of the result is dims[i] of the tensor, which
    count are; ignis_flip - count
    dimensions backwards. Both in new memory, in one pass. Any dtype. A negative dimension counts from the
    last one on.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension, one given twice), ARGUMENT (null, count, never written to),
    MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_permute(ignis_tensor tensor, const int *dims, int count);
IGNIS_API ignis_tensor ignis_flip(ignis_tensor tensor, const int *dims, int count);

/*  ignis_expand - repeat the elements of dimensions of 1 until a shape is filled, in new memory. Any dtype.
    Shapes: compared from the last dimension on, the tensor may lack leading ones; -1 in shape keeps a
    dimension. The gradient is summed over what was repeated, in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (does not broadcast to shape), ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE,
    CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_expand(ignis_tensor tensor, ignis_shape shape);

/*  ignis_stack - put count tensors of one shape side by side along a new dimension, in new memory:
    dimension dim of the result. Any dtype.
    Returns: the tensor, or no handle.
    Errors: as ignis_concat; SHAPE, too, where shapes differ, or have IGNIS_MAX_DIMS dimensions.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_stack(const ignis_tensor *tensors, int count, int dim);

/*  ignis_pad - put before[i] elements of a value in front of dimension i, and after[i] after it, in new
    memory. Any dtype.
    count is the number of dimensions; null for before or after means 0. The value is converted as by
    ignis_array_fill.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (larger than 63 bits can count), ARGUMENT (count, a negative width, never written
    to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_pad(ignis_tensor tensor, const int64_t *before, const int64_t *after, int count,
                                 double value);

/*  ignis_pad_reflect - put elements of the tensor itself in front of each dimension and after it, in new memory:
    those of the other side of the first or last one, which is not repeated; ignis_pad_replicate - the first or last
    one; ignis_pad_circular - those of the other end. Any dtype.
    Arguments are those of ignis_pad. As "reflect", "replicate" and "circular" of PyTorch's pad, for any dimensions: a
    dimension of size n takes n - 1, any number of and n elements on each side. The gradient of an element is the sum of
    its copies', in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (larger than 63 bits can count), ARGUMENT (count, a negative width, more elements than the
    dimension has for it, never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_pad_reflect(ignis_tensor tensor, const int64_t *before, const int64_t *after, int count);
IGNIS_API ignis_tensor ignis_pad_replicate(ignis_tensor tensor, const int64_t *before, const int64_t *after, int count);
IGNIS_API ignis_tensor ignis_pad_circular(ignis_tensor tensor, const int64_t *before, const int64_t *after, int count);

/*  ignis_tril, ignis_triu - the lower or upper triangle of matrices [..., rows, columns], zeros elsewhere,
    in new memory. Any dtype.
    diagonal is the last one that is kept below, or the first one above: 0 the main diagonal, 1 the one to the
    right of it, -1 that to the left.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (fewer than two dimensions), ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE,
    CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tril(ignis_tensor tensor, int64_t diagonal);
IGNIS_API ignis_tensor ignis_triu(ignis_tensor tensor, int64_t diagonal);
