/* >>elementwise - fill, copy, cast, add, mul, scale of arrays --------------------------------------------------- */

/*  ignis_array_fill - set every element to value, converted by the rules of ignis_array_from_host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_fill(ignis_array array, double value);

/*  ignis_array_copy - copy all elements of src into dst, converting by the rules of ignis_array_from_host
    Shapes: equal numel. dst and src may be on different devices if their dtypes are equal. They must be the same
    memory or disjoint.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DEVICE, ARGUMENT (src was never written to, or overlaps dst in part), MEMORY, LIBRARY,
    COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of dst's device, after the work queued on that of src's. */
IGNIS_API ignis_status ignis_array_copy(ignis_array dst, ignis_array src);

/*  ignis_array_cast - make a new array of another element type with the same elements
    Returns: the new array, with the array's shape, device, owner and tag; or no handle.
    Errors: FREED, ARGUMENT, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: the caller frees it.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_array ignis_array_cast(ignis_array array, ignis_dtype dtype);

/*  ignis_array_add - compute dst = a + b; ignis_array_mul - compute dst = a * b, element by element
    Shapes: equal numel; one dtype. f16 and bf16 are computed in f32 and rounded once; integers wrap around. dst may
    be a or b, but not overlap them in part.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (a or b was never written to, or overlaps dst in part), MEMORY,
    LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_add(ignis_array dst, ignis_array a, ignis_array b);
IGNIS_API ignis_status ignis_array_mul(ignis_array dst, ignis_array a, ignis_array b);

/*  ignis_array_scale - compute dst = src * factor, element by element
    Shapes: equal numel; one dtype. f16, bf16 and f32 are computed in f32 with the factor rounded to f32; integers are
    computed in f64 and converted by the rules of ignis_array_from_host. dst may be src, but not overlap it in part.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (src was never written to, or overlaps dst in part), MEMORY,
    LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_scale(ignis_array dst, ignis_array src, double factor);
