/* >>tensor - tensors, scopes, random numbers --------------------------------------------------------------------

   A tensor is an array with a gradient and a position on the tape.
   Operations make new tensors, which belong to the innermost scope of the thread. */

/*  An array, its gradient, and its position on the tape. */
typedef struct ignis_tensor {
    uint64_t id;
} ignis_tensor;

/*  The tensors that a thread has made since ignis_scope_begin. */
typedef struct ignis_scope {
    uint64_t id;
} ignis_scope;

typedef struct ignis_tensor_desc {
    ignis_dtype dtype;  /* IGNIS_F32 */
    int device;         /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    bool requires_grad; /* whether ignis_backward computes a gradient for it (false) */
    /* Of the data given to ignis_tensor_from_host (dtype, but f32 for f16 and bf16). */
    ignis_dtype host_dtype;
    const char *tag; /* as in ignis_array_desc */
    /* Number of elements of the data given to ignis_tensor_from_host; must be that of the shape (0: not
       checked). */
    int64_t host_count;
} ignis_tensor_desc;

typedef struct ignis_tensor_info {
    ignis_shape shape;
    ignis_dtype dtype;
    int device;
    bool requires_grad;
    bool is_leaf; /* made by the caller, not by an operation on tensors that require a gradient */
    ignis_array data;
    ignis_array grad;      /* no handle until a gradient was computed */
    const char *operation; /* that recorded it on the tape; "" if none */
} ignis_tensor_info;

/*  ignis_tensor_from_host - a new tensor with the values at data
    Shape: as in ignis_array_create. data holds numel elements of desc->host_dtype; give their count as
    desc->host_count, so that a buffer which is too short for the shape is an error instead of being read
    beyond its end. desc may be null for all defaults.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (null data, host_count is not numel, no such dtype), SHAPE, DTYPE (a gradient of
    integers), DEVICE, MEMORY, CUDA.
    Ownership: the current scope's, else the caller's, to be released with ignis_tensor_release; data may be
    reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tensor_from_host(const void *data, ignis_shape shape, const ignis_tensor_desc *desc);

/*  ignis_tensor_from_array - a tensor over the memory of an array
    Returns: the tensor, or no handle.
    Errors: FREED, DTYPE (a gradient of integers), MEMORY.
    Ownership: as ignis_tensor_from_host. The array stays the caller's; its memory lives until both are gone.
    Threads: any. */
IGNIS_API ignis_tensor ignis_tensor_from_array(ignis_array array, bool requires_grad);

/*  ignis_tensor_zeros, _ones, _rand, _randn - a new tensor of zeros, ones, uniform values in [0, 1),
    standard normal values
    Random values come from Philox 4x32-10 (Salmon et al., SC 2011) keyed by ignis_seed: the same seed and the
    same calls give the same values on every GPU and on the simulator, but for the last bit of a normal
    value's logarithm and cosine.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT, SHAPE, DTYPE (random or differentiable integers), DEVICE, MEMORY, LIBRARY, COMPILE,
    CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any; each thread has its own sequence of random numbers. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tensor_zeros(ignis_shape shape, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_ones(ignis_shape shape, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_rand(ignis_shape shape, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_randn(ignis_shape shape, const ignis_tensor_desc *desc);

/*  ignis_tensor_arange - start, start + step, ... up to before end; ignis_tensor_linspace - count numbers
    at equal distances, start and end
    being the first and the last; ignis_tensor_eye - a matrix with ones on its diagonal. desc may be null for
    all defaults. Numbers are computed in double, and converted by the rules of ignis_array_from_host.
    Returns: the tensor, or no handle.
    Errors: ARGUMENT (a step that does not lead to end, a negative count), SHAPE, DTYPE (a gradient of
    integers), DEVICE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_tensor_arange(double start, double end, double step, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_linspace(double start, double end, int64_t count, const ignis_tensor_desc *desc);
IGNIS_API ignis_tensor ignis_tensor_eye(int64_t rows, int64_t columns, const ignis_tensor_desc *desc);

/*  ignis_seed - start the calling thread's sequence of random numbers anew (0 at ignis_setup)
    Returns: IGNIS_OK.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; each has its own sequence. */
IGNIS_API ignis_status ignis_seed(uint64_t seed);

/*  Where a thread's sequence of random numbers is: the seed, and how far it has been used. */
typedef struct ignis_random_state {
    uint64_t seed, position;
} ignis_random_state;

/*  ignis_random_save - the place in the calling thread's sequence of random numbers, for ignis_random_restore
    A run that is resumed from it has the numbers of an unbroken one, bit for bit. Graphs have numbers of their own:
    capture them where the first run did, in the state that it had there, and then call ignis_graph_set_launches.
    Returns: the state; zeros before ignis_setup.
    Errors: NOT_SETUP.
    Ownership: nothing to free; the two numbers may be written to a file.
    Threads: any; each has its own sequence. */
IGNIS_API ignis_random_state ignis_random_save(void);

/*  ignis_random_restore - continue the calling thread's sequence of random numbers at a place
    Returns: IGNIS_OK.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; each has its own sequence. */
IGNIS_API ignis_status ignis_random_restore(ignis_random_state state);

/*  ignis_tensor_data - the array of a tensor's values; ignis_tensor_grad - the array of its gradient
    Returns: the array, or no handle (no gradient was computed yet: this is not a failure).
    Errors: FREED.
    Ownership: the tensor's: it holds a reference, so ignis_array_free refuses. The gradient is accumulated by
    each ignis_backward until ignis_zero_grad, or a step of an optimizer with zero_grad or drop_grad.
    Threads: any. */
IGNIS_API ignis_array ignis_tensor_data(ignis_tensor tensor);
IGNIS_API ignis_array ignis_tensor_grad(ignis_tensor tensor);

/*  ignis_tensor_query - every attribute of a tensor
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: arrays in info are the tensor's.
    Threads: any. */
IGNIS_API ignis_status ignis_tensor_query(ignis_tensor tensor, ignis_tensor_info *info);

/*  ignis_tensor_shape, ignis_tensor_numel - the shape of a tensor, and how many elements it has
    Returns: the shape (ndim 0 on failure), the number (-1 on failure).
    Errors: FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_shape ignis_tensor_shape(ignis_tensor tensor);
IGNIS_API int64_t ignis_tensor_numel(ignis_tensor tensor);

/*  ignis_tensor_to_string - "tensor [2, 3] f32 on device 0, leaf, requires a gradient, 'weights'", or "...,
    result of matmul"
    A stale handle gives "tensor handle 0x... (freed)".
    Returns: the length of the whole text without its end, as snprintf does; out may be null when capacity is
    0; -1 on failure.
    Errors: ARGUMENT.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always ended.
    Threads: any. */
IGNIS_API int ignis_tensor_to_string(ignis_tensor tensor, char *out, size_t capacity);

/*  ignis_tensor_to_host - copy all elements to the host, converting to dtype, as ignis_array_to_host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null out, count is not numel, no such dtype), MEMORY, CUDA.
    Ownership: out is the caller's.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_tensor_to_host(ignis_tensor tensor, void *out, ignis_dtype dtype, int64_t count);

/*  ignis_item - the value of a tensor of one element; ignis_item_i64 - the value of one of integers, without
    rounding
    Returns: the value; on failure NaN, for ignis_item_i64 INT64_MIN.
    Errors: FREED, SHAPE (more or fewer elements), DTYPE (ignis_item_i64 of a tensor that is not of integers),
    ARGUMENT (never written to; ignis_item of an i64 that no double is equal to, which happens beyond 2^53),
    CUDA.
    Ownership: nothing to free.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API double ignis_item(ignis_tensor tensor);
IGNIS_API int64_t ignis_item_i64(ignis_tensor tensor);

/*  ignis_tensor_release - release a tensor's handle
    Memory that the tape needs for a gradient stays until ignis_backward or ignis_tape_clear.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: the handle is stale afterwards.
    Threads: any. */
IGNIS_API ignis_status ignis_tensor_release(ignis_tensor tensor);

/*  ignis_scope_begin - from here on, tensors that the calling thread makes belong to a new scope inside the
    current one
    Returns: the scope, or no handle.
    Errors: MEMORY.
    Ownership: end it with ignis_scope_end or ignis_scope_return.
    Threads: any; each has its own scopes. */
IGNIS_API ignis_scope ignis_scope_begin(void);

/*  ignis_scope_end - release every tensor of the scope that was not released yet
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (not the innermost open scope of this thread).
    Ownership: the tensors' handles are stale afterwards.
    Threads: the one that began the scope. */
IGNIS_API ignis_status ignis_scope_end(ignis_scope scope);

/*  ignis_scope_return - end the scope, and pass one of its tensors on to the enclosing scope, or to the
    caller where there is none
    Returns: the tensor, also when the scope could not be ended.
    Errors: ARGUMENT (not the innermost open scope of this thread).
    Ownership: as for a tensor made outside of the scope.
    Threads: the one that began the scope. */
IGNIS_API ignis_tensor ignis_scope_return(ignis_scope scope, ignis_tensor tensor);
