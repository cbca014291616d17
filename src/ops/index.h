/* >>ops.index - gather, index_select, scatter, index_put, one_hot -------------------------------------------------

   Indices are i32 or i64, along one dimension. An index outside of the tensor has a defined result.
   Sums have a fixed order: equal inputs give equal bits. */

/*  ignis_gather - elements by index along a dimension: for dim 0, out[i, j, ...] = tensor[index[i, j, ...],
    j, ...]. Any dtype.
    Shapes: index, of i32 or i64, has the tensor's dimensions, is of any size along dim and of the tensor's at
    most along the others; the result has its shape. An index outside gives NaN, of an integer dtype 0, and no
    gradient. The gradient is summed in a fixed order.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (no such dimension, index too large), DTYPE, DEVICE, ARGUMENT (never written to),
    MEMORY, LIBRARY, COMPILE, CUDA; in backward UNSUPPORTED (2^31 elements).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_gather(ignis_tensor tensor, int dim, ignis_tensor index);

/*  ignis_index_select - slices along a dimension by index: for dim 0, out[i, ...] = tensor[index[i], ...].
    Any dtype.
    Shapes: index, of i32 or i64, is [n]; the result is the tensor's with n along dim. Indices outside, and
    the gradient, as for ignis_gather.
    Returns: the tensor, or no handle.
    Errors: as ignis_gather.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_index_select(ignis_tensor tensor, int dim, ignis_tensor index);

/*  ignis_scatter_add - the tensor, with the elements of src added by index: for dim 0, out[index[i, j,
    ...], j, ...] += src[i, j, ...]
    Any dtype.
    Shapes: src that of index, index as for ignis_gather. An element with an index outside is dropped. Sums
    are in f32 (f64 in f64), rounded once, in a fixed order: equal inputs give equal bits.
    Returns: the tensor, or no handle.
    Errors: as ignis_gather; UNSUPPORTED (2^31 elements).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_scatter_add(ignis_tensor tensor, int dim, ignis_tensor index, ignis_tensor src);

/*  ignis_scatter - the tensor, with elements of src put in place of others by index: for dim 0,
    out[index[i, j, ...], j, ...] = src[i, j, ...]. Any dtype.
    Shapes: as ignis_scatter_add. An element with an index outside is dropped. Of several elements for one place the
    last one in the order of src is written, and has the gradient.
    Returns: the tensor, or no handle.
    Errors: as ignis_gather; UNSUPPORTED (2^31 elements).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_scatter(ignis_tensor tensor, int dim, ignis_tensor index, ignis_tensor src);

/*  ignis_index_put - the tensor, with slices put or added at indices of its first `count` dimensions: for two,
    out[indices[0][i], indices[1][i], ...] = values[i, ...], or += if `accumulate` is set. Any dtype.
    Shapes: indices, of i32 or i64, have one shape; values has that shape, then the tensor's dimensions from `count`
    on. A slice with an index outside is dropped. Of several slices for one place the last one is written; sums are as
    those of ignis_scatter_add.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (null, count outside 1 to the tensor's dimensions, never written to),
    MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (2^31 elements).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_index_put(ignis_tensor tensor, const ignis_tensor *indices, int count, ignis_tensor values,
                                       bool accumulate);

/*  ignis_one_hot - rows of zeros with a 1 at each id: out[..., c] = ids[...] == c, of any dtype
    Shapes: ids, of i32 or i64, any; the result is that of ids with classes appended. An id that is not a
    class gives zeros.
    Returns: the tensor (without a gradient), or no handle.
    Errors: FREED, SHAPE, DTYPE, ARGUMENT (classes below 0, no such dtype, never written to), MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_one_hot(ignis_tensor ids, int64_t classes, ignis_dtype dtype);
