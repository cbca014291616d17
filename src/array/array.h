/* >>array - shapes, dtypes, owners; arrays and views ------------------------------------------------------------ */

#define IGNIS_MAX_DIMS 8 /* of a shape */

/*  The dimensions of an array: IGNIS_SHAPE(rows, columns). Elements are in row-major order, the last dimension is
    contiguous. */
typedef struct ignis_shape {
    int ndim;
    int64_t dim[IGNIS_MAX_DIMS];
} ignis_shape;

/*  IGNIS_DTYPES - every element type, as X(enumerator suffix, lower-case name, bytes). Types of 8 bits follow the OCP
    8-bit Floating Point Specification (2023): e4m3 has 4 bits of exponent, 3 of fraction and no infinities, e5m2 has
    5 and 2. Arrays, their operations, formulas and copies support them; operations of networks do not. */
#define IGNIS_DTYPES(X)    \
    X(F16, f16, 2)         \
    X(BF16, bf16, 2)       \
    X(F32, f32, 4)         \
    X(F64, f64, 8)         \
    X(I32, i32, 4)         \
    X(I64, i64, 8)         \
    X(U8, u8, 1)           \
    X(F8_E4M3, f8_e4m3, 1) \
    X(F8_E5M2, f8_e5m2, 1)

typedef enum ignis_dtype {
    IGNIS_DTYPE_DEFAULT = 0, /* IGNIS_F32 */
#define IGNIS__DTYPE_ENUM(NAME, name, size) IGNIS_##NAME,
    IGNIS_DTYPES(IGNIS__DTYPE_ENUM)
#undef IGNIS__DTYPE_ENUM
        IGNIS_DTYPE_COUNT
} ignis_dtype;

/*  The layer that may free an array or move its ownership: Ignis itself, the collective layer, the storage layer. */
typedef enum ignis_owner {
    IGNIS_OWNER_DEFAULT = 0, /* in option structs: IGNIS_OWNER_IGNIS */
    IGNIS_OWNER_IGNIS,
    IGNIS_OWNER_NVCCL,
    IGNIS_OWNER_WNAIS,
    IGNIS_OWNER_COUNT
} ignis_owner;

/*  Names device 0 in an option struct while another device is current. */
#define IGNIS_DEVICE_0 (-1)

typedef struct ignis_array_desc {
    ignis_shape shape; /* required: IGNIS_SHAPE(rows, columns) */
    ignis_dtype dtype; /* IGNIS_F32 */
    int device;        /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    ignis_owner owner; /* IGNIS_OWNER_IGNIS */
    void *stream;      /* orders the memory's use (the current stream at the first use) */
    void *ptr;         /* device memory to wrap, never freed by Ignis (none: Ignis allocates memory at the first use) */
    void (*release_fn)(
        void *ptr,
        void *user_data); /* with ptr: called once, when the last array over it is gone and its work is done */
    void *release_data;
    const char *tag; /* a name for messages and audits; copied, the first 31 bytes count ("") */
} ignis_array_desc;

typedef struct ignis_array_info {
    uint64_t id; /* counts up from 1 within the process, never used twice */
    ignis_shape shape;
    ignis_dtype dtype;
    int device;
    ignis_owner owner;
    int ref_count;
    void *stream; /* null until memory is allocated, unless the desc named one */
    void *
        ptr; /* device memory; null until it is allocated. The caller may write there, so the array counts as written */
    void *pinned_host_ptr; /* null unless ignis_array_pin was called */
    int64_t created_at_ns; /* nanoseconds since 1970-01-01 UTC, exact to a few milliseconds */
    bool owns_memory;      /* false for views and wrapped memory */
    bool on_device;        /* device memory is allocated */
    uint64_t parent;       /* info.id of the array it is a view of; 0 if it is no view */
    char tag[32];
    uint64_t version; /* writes to its memory so far (see ignis_array_mark_written) */
} ignis_array_info;

/*  ignis_dtype_name - return "f32" for IGNIS_F32; ignis_owner_name - return "nvccl" for IGNIS_OWNER_NVCCL
    IGNIS_DTYPE_DEFAULT and IGNIS_OWNER_DEFAULT have the names of their meanings, f32 and ignis.
    Returns: a constant string, "unknown dtype" or "unknown owner" for an unknown number.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_dtype_name(ignis_dtype dtype);
IGNIS_API const char *ignis_owner_name(ignis_owner owner);

/*  ignis_dtype_size - return the bytes of an element of a dtype; IGNIS_DTYPE_DEFAULT is IGNIS_F32
    Returns: 1, 2, 4 or 8; 0 for an unknown number.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_dtype_size(ignis_dtype dtype);

/*  ignis_array_create - create an array, or one that wraps memory of the caller
    Shape: 1 to 8 dimensions, each 0 or more; numel and bytes must fit 63 bits. Device memory is taken at the array's
    first use; reading it is an error until it is written. Wrapped memory counts as written.
    Returns: the array, or no handle.
    Errors: ARGUMENT (also for a desc.ptr that is not device memory, or in an allocation that ends before the array),
    SHAPE, DEVICE, UNSUPPORTED (desc.stream is being captured), MEMORY.
    Ownership: the caller frees it with ignis_array_free. Wrapped memory stays the caller's and must outlive the
    array.
    Threads: any. */
IGNIS_API ignis_array ignis_array_create(const ignis_array_desc *desc);

/*  ignis_array_free - free an array as IGNIS_OWNER_IGNIS; ignis_array_free_as - free it as the named owner
    The memory is recycled in stream order when its last view is freed, too; pinned host memory at once, as by
    ignis_array_unpin.
    Returns: IGNIS_OK, or why the array was not freed.
    Errors: FREED (also for a second free), CONTRACT (another owner, or ref_count above 0; the message names the
    holders of references).
    Ownership: the handle is stale afterwards; views of the array stay valid.
    Threads: any; waits while the system ends a process that had the array by IPC, for 5 s at most. Queued
    work on the array still finishes first. */
IGNIS_API ignis_status ignis_array_free(ignis_array array);
IGNIS_API ignis_status ignis_array_free_as(ignis_array array, ignis_owner owner);

/*  ignis_array_is_live - tell whether the handle names an array that was not freed
    Returns: true or false.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; another thread may free it the moment after. */
IGNIS_API bool ignis_array_is_live(ignis_array array);

/*  ignis_array_query - return every attribute of an array
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: pointers in info live as long as the array's memory.
    Threads: any. */
IGNIS_API ignis_status ignis_array_query(ignis_array array, ignis_array_info *info);

/*  ignis_array_numel - return the number of elements; ignis_array_size_bytes - return the bytes of all elements
    Returns: the number, -1 on failure.
    Errors: FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int64_t ignis_array_numel(ignis_array array);
IGNIS_API int64_t ignis_array_size_bytes(ignis_array array);

/*  ignis_array_to_string - write "array #7 [2, 3] f32 on device 0, owner ignis, ref_count 0, 'weights'"
    A stale handle gives "array #7 'weights', freed", or "array handle 0x... (freed)" once its slot has been used and
    freed again.
    Returns: the length of the whole text without its end, as snprintf does; out may be null if capacity is 0.
    Errors: ARGUMENT.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always terminated.
    Threads: any. */
IGNIS_API int ignis_array_to_string(ignis_array array, char *out, size_t capacity);

/*  ignis_array_to_device - allocate the array's device memory now, if it has none
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, MEMORY, CUDA.
    Ownership: the memory is the array's.
    Threads: any. */
IGNIS_API ignis_status ignis_array_to_device(ignis_array array);

/*  ignis_array_device_ptr - return the address of the array's first element, after ignis_array_to_device
    Returns: a device pointer (CUdeviceptr), null on failure and for an array without elements.
    Errors: FREED, MEMORY, CUDA.
    Ownership: the array's; valid until the array and its views are freed. Before the array is freed, work that the
    caller has queued with the pointer on another stream must be finished, or ordered before the array's stream.
    Threads: any. */
IGNIS_API void *ignis_array_device_ptr(ignis_array array);

/*  ignis_array_mark_written - tell Ignis that the caller's code has written, or is about to write, to an array
    It counts as a write in the array's version, so that a backward that needs the old content fails instead of
    computing a wrong gradient. Call it for writes that Ignis cannot see: kernels of the caller that change an array
    in place, and code that has its address. Inside a capture it counts for each launch of the graph.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED; inside a capture MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_array_mark_written(ignis_array array);

/*  ignis_array_zero - set every byte to zero
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_zero(ignis_array array);

/*  ignis_array_from_host - copy count elements of type dtype from the host, converting them to the array's type
    To a floating type, a number is rounded to nearest even; NaN, infinities and signed zeros stay; an overflow
    becomes infinity. Floating types of 8 bits saturate, at 448 (e4m3) and 57344 (e5m2), infinities too. To an integer
    type, a number is rounded toward zero and saturates; NaN becomes 0. dtype 0 means the array's own.
    Returns: IGNIS_OK, or the reason; on failure the array's content is undefined.
    Errors: FREED, ARGUMENT (null data, count is not numel, no such dtype), MEMORY, CUDA.
    Ownership: data may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_from_host(ignis_array array, const void *data, ignis_dtype dtype, int64_t count);

/*  ignis_array_from_host_raw - copy the array's exact bytes from the host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null bytes, size is not size_bytes), MEMORY, CUDA.
    Ownership: bytes may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_from_host_raw(ignis_array array, const void *bytes, int64_t size);

/*  ignis_array_to_host - copy all elements to the host, converting to dtype by the rules of ignis_array_from_host
    Returns: IGNIS_OK, or the reason; on failure the content of out is undefined.
    Errors: FREED, ARGUMENT (null out, count is not numel, no such dtype, the array was never written to), MEMORY, CUDA.
    Ownership: out is the caller's.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_array_to_host(ignis_array array, void *out, ignis_dtype dtype, int64_t count);

/*  ignis_array_to_host_raw - copy the array's exact bytes to the host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null out, size is not size_bytes, the array was never written to), CUDA.
    Ownership: out is the caller's.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_array_to_host_raw(ignis_array array, void *out, int64_t size);

/*  ignis_array_to_host_async, ignis_array_from_host_async - as ignis_array_to_host and _from_host, but the call does
    not wait
    The copy keeps its place in the stream: later writes to the array on that stream do not change it. The array may
    be freed at once. The host memory must live, and stay untouched, until the ticket is done. Pinned memory
    (ignis_host_alloc, ignis_array_pin, cudaMallocHost) of the array's own type is copied directly. Other memory goes
    through pinned chunks of Ignis and a thread of the driver, which copies or converts them: then later work of the
    stream waits for that thread, too.
    Returns: a ticket for ignis_ticket_wait, or no handle.
    Errors: FREED, ARGUMENT (null memory, count is not numel, no such dtype, the array was never written to),
    UNSUPPORTED (this thread captures a graph), MEMORY, CUDA. ignis_ticket_wait reports later failures.
    Ownership: the caller ends the ticket by ignis_ticket_wait; out and data stay the caller's.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_ticket ignis_array_to_host_async(ignis_array array, void *out, ignis_dtype dtype, int64_t count);
IGNIS_API ignis_ticket ignis_array_from_host_async(ignis_array array, const void *data, ignis_dtype dtype,
                                                   int64_t count);

/*  ignis_ticket_query - tell whether the work of a ticket is done or has failed
    Returns: IGNIS_OK, and *done; the ticket stays.
    Errors: FREED, ARGUMENT (null done).
    Ownership: unchanged.
    Threads: any. Does not wait. */
IGNIS_API ignis_status ignis_ticket_query(ignis_ticket ticket, bool *done);

/*  ignis_ticket_wait - wait for the work of a ticket, and end the ticket
    ignis_shutdown waits for the remaining tickets, and reports them.
    Returns: IGNIS_OK, or the failure of the work.
    Errors: FREED, DEVICE (the devices were lost to a fault), CUDA, and those of the work itself.
    Ownership: the handle is stale afterwards, also after a failure; the host memory is the caller's alone again.
    Threads: any; several that wait at the same time all get the result. Waits. */
IGNIS_API ignis_status ignis_ticket_wait(ignis_ticket ticket);

/*  ignis_array_clone - make a copy that shares no memory with the array
    Returns: a new array of the same shape, dtype, device, owner and tag; or no handle.
    Errors: FREED, ARGUMENT (the array was never written to), MEMORY, CUDA.
    Ownership: the caller frees it.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_array ignis_array_clone(ignis_array array);

/*  ignis_array_slice - return elements [start, start + len) along dimension dim, as a view of the same memory
    Only contiguous slices can be views: dim 0, or a dim after dimensions of size 1 alone.
    Returns: the view, with the array's owner and tag; or no handle.
    Errors: FREED, SHAPE (dim or range outside the shape, or a strided slice).
    Ownership: the caller frees it; it keeps the memory alive after the array itself is freed.
    Threads: any. */
IGNIS_API ignis_array ignis_array_slice(ignis_array array, int dim, int64_t start, int64_t len);

/*  ignis_array_reshape - return the same elements under another shape, as a view of the same memory
    One dimension of the new shape may be -1: it is computed from the others.
    Returns: the view, with the array's owner and tag; or no handle.
    Errors: FREED, SHAPE (numel differs, or more than one -1).
    Ownership: the caller frees it; it keeps the memory alive after the array itself is freed.
    Threads: any. */
IGNIS_API ignis_array ignis_array_reshape(ignis_array array, ignis_shape shape);

/*  ignis_array_write_rows - copy all of src into dst from row start_row on
    Shapes: dst [rows, ...], src [r, ...] of the same dtype; src must be whole rows: its bytes divide by those of a
    row of dst.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, DTYPE, SHAPE (not whole rows, or beyond the last row), DEVICE (different devices), ARGUMENT (src
    was never written to, or overlaps those rows in part), CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_write_rows(ignis_array dst, ignis_array src, int64_t start_row);

/*  ignis_array_pin - allocate pinned (page-locked) host memory of the array's size, for staging
    Returns: the host address, null on failure (and for an array of no elements).
    Errors: FREED, CONTRACT (pinned already), MEMORY.
    Ownership: the array's; freed by ignis_array_unpin or with the array.
    Threads: any. */
IGNIS_API void *ignis_array_pin(ignis_array array);

/*  ignis_array_unpin - free the pinned host memory, as IGNIS_OWNER_IGNIS
    Pinned memory belongs to Ignis, whichever layer owns the array. A layer that owns the array may be copying through
    it, so it is not freed then.
    Returns: IGNIS_OK, or why it was not freed.
    Errors: FREED, CONTRACT (not pinned, or another layer owns the array), UNSUPPORTED (this thread captures a graph),
    CUDA.
    Ownership: the address of ignis_array_pin is invalid afterwards.
    Threads: any. Waits for the device, because copies may still use it, and as CUDA does for all others. */
IGNIS_API ignis_status ignis_array_unpin(ignis_array array);

/*  ignis_array_increment_ref, ignis_array_decrement_ref - take a reference to an array, and release it
    While ref_count is above 0 the array cannot be freed; above 1 its ownership cannot move.
    Returns: the new ref_count, -1 on failure.
    Errors: FREED, CONTRACT (decrement at 0).
    Ownership: the caller releases every reference that it takes.
    Threads: any. */
IGNIS_API int ignis_array_increment_ref(ignis_array array);
IGNIS_API int ignis_array_decrement_ref(ignis_array array);

/*  ignis_array_transfer_ownership - make owner the array's owner, whichever layer owns it now
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (ref_count above 1).
    Ownership: only owner may free the array afterwards.
    Threads: any; waits as ignis_array_free does. */
IGNIS_API ignis_status ignis_array_transfer_ownership(ignis_array array, ignis_owner owner);
