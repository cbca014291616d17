/* >>ops.embedding - rows of a table -----------------------------------------------------------------------------

   Ids are i32 or i64.
   The gradient sums rows by id in a fixed order: equal inputs give equal bits. */

/*  ignis_embedding - rows of a table: out[..., :] = table[ids[...], :]
    Shapes: table [vocab, n]; ids, of i32 or i64, any; the result is that of ids with n appended. An id
    outside of the table gives a row of NaN, and no gradient. The gradient of the table is summed in a fixed
    order.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (n of 2^30, or 2^31 ids
    or rows, or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_embedding(ignis_tensor table, ignis_tensor ids);
