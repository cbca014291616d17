/* >>ops.norm - softmax and norms --------------------------------------------------------------------------------

   Rows are those of the last dimension.
   Statistics are f32, or f64 for f64, in a fixed order. */

/*  ignis_softmax - exp(x) / sum of exp(x) over the last dimension
    ignis_log_softmax - its logarithm, x - log(sum of exp(x)), which keeps its digits where softmax has none
    left One pass over memory each, and one for the gradient. A row of nothing but -infinity becomes zeros,
    and their logarithm stays -infinity, with a gradient of 0; one with NaN or +infinity becomes NaN. What all
    of a row have in common changes nothing, however large.
    Shapes: x [..., n], of a floating dtype, which the result has, too.
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE, MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (a last dimension of 2^30 or more).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_softmax(ignis_tensor x);
IGNIS_API ignis_tensor ignis_log_softmax(ignis_tensor x);
