/* >>ops.sort - sort, argsort, topk ------------------------------------------------------------------------------

   Equal elements keep their order, and NaN is the largest number.
   Positions are i64. */

/*  ignis_sort - elements along a dimension in order, stable; ignis_topk - the k largest or smallest ones,
    in order. Any dtype.
    A negative dim counts from the last one on. NaN counts as larger than all numbers, both zeros as equal; of
    equal elements the first comes first. *indices, where indices is not null, becomes a tensor of i64 with
    where each element comes from along dim; the result has a gradient, the positions have none.
    Returns: the tensor, or no handle, and none in *indices.
    Errors: FREED, SHAPE (no such dimension), ARGUMENT (k outside of the dimension, never written to), MEMORY,
    LIBRARY, COMPILE, CUDA, UNSUPPORTED (2^31 elements along dim).
    Ownership: as ignis_tensor_from_host, for both.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_sort(ignis_tensor tensor, int dim, bool descending, ignis_tensor *indices);
IGNIS_API ignis_tensor ignis_topk(ignis_tensor tensor, int64_t k, int dim, bool largest, ignis_tensor *indices);
