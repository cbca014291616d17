/* >>ops.select - nonzero, masked_select, unique, searchsorted, counts --------------------------------------------

   A mask is a tensor of any dtype, and true where it is not 0: u8, as comparisons in formulas give it.
   Where the size of a result is a number that the device computes, the call waits for the device and reads it.
   Such a call is refused in a graph; in a dry run, which computes nothing, the number is the smallest one. */

/*  ignis_nonzero - the positions of all elements that are not 0, in their order. Any dtype; NaN is not 0.
    Shapes: [count, the tensor's dimensions], of i64. Waits for the device: see above.
    Returns: the tensor (without a gradient), or no handle.
    Errors: FREED, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (in a graph).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_nonzero(ignis_tensor tensor);

/*  ignis_masked_select - the elements where a mask is not 0, in their order. Any dtypes.
    Shapes: the mask has the tensor's shape; the result is [count]. Waits for the device: see above. In a graph, and
    wherever the shape may stay, a formula does without: ignis_map("mask ? x : 0", ...).
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DEVICE, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (in a
    graph).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_masked_select(ignis_tensor tensor, ignis_tensor mask);

/*  ignis_unique - the different elements in ascending order. Any dtype.
    Shapes: [count]. *inverse, where inverse is not null, becomes a tensor of i64 of the tensor's shape, with the
    position in the result of each element; *counts, where counts is not null, one of i64 of the result's, with how
    often each occurs. Both zeros are one element, and so are all NaN, the last one. Waits for the device: see above.
    Returns: the tensor (without a gradient), or no handle, and none in *inverse and *counts.
    Errors: FREED, ARGUMENT (never written to), MEMORY, LIBRARY, COMPILE, CUDA, UNSUPPORTED (2^31 elements; in a
    graph).
    Ownership: as ignis_tensor_from_host, for all three.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_unique(ignis_tensor tensor, ignis_tensor *inverse, ignis_tensor *counts);

/*  ignis_searchsorted - how many elements of a sorted row are less than each value, or, if `right`, not greater
    Any dtype. NaN is larger than all numbers.
    Shapes: sorted is [n], for values of any shape, or [..., n] with the leading dimensions of values [..., m]; rows
    ascend. The result has the shape of values, and is of i64.
    Returns: the tensor (without a gradient), or no handle.
    Errors: FREED, SHAPE, DTYPE (values is not of the dtype of sorted), DEVICE, ARGUMENT (never written to), MEMORY,
    LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_searchsorted(ignis_tensor sorted, ignis_tensor values, bool right);

/*  ignis_bincount - how often each number from 0 to bins - 1 is among ids: [bins], of i64; with weights their sums
    ids are i32 or i64 of any shape; others than these numbers are not counted. bins 0: as many as the largest id
    needs, which waits for the device: see above. weights (no handle: none) are floating, of the shape of ids; sums
    are of their dtype, in f32 (f64 in f64) and in a fixed order, with a gradient for the weights.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (bins below 0, never written to), MEMORY, LIBRARY, COMPILE, CUDA,
    UNSUPPORTED (bins 0 in a graph; 2^31 weights).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_bincount(ignis_tensor ids, ignis_tensor weights, int64_t bins);

/*  ignis_histogram - how many elements are in each of `bins` bins of one width from low to high: [bins], of i64
    Any dtype. Edge k is low + k*((high - low)/bins), computed in f64. A bin has its lower edge, and the last one has
    its upper edge, too. Elements outside, and NaN, are not counted.
    Returns: the tensor (without a gradient), or no handle.
    Errors: FREED, ARGUMENT (bins below 1; low not below high, or not finite; never written to), MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_histogram(ignis_tensor tensor, int64_t bins, double low, double high);

/*  ignis_histogram_edges - as ignis_histogram, between the elements of edges, which ascend: [bins + 1]
    edges has the tensor's dtype.
    Returns: the tensor (without a gradient), or no handle.
    Errors: FREED, SHAPE (edges is not a row of 2 or more), DTYPE, DEVICE, ARGUMENT (never written to), MEMORY,
    LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_histogram_edges(ignis_tensor tensor, ignis_tensor edges);
