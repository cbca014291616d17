/* >>dlpack - arrays from and for PyTorch, CuPy, JAX ------------------------------------------------------------- */

/*  The structs of DLPack (github.com/dmlc/dlpack), under names of Ignis. They have the layouts of DLTensor,
    DLManagedTensor and DLManagedTensorVersioned, and a pointer to one may be cast to the other. */
typedef struct ignis_dlpack_tensor {
    void *data;
    int32_t device_type, device_id; /* 2: memory of a CUDA device */
    int32_t ndim;
    uint8_t code, bits; /* 0: integers, 1: unsigned ones, 2: floating-point numbers, 4: bf16, 6: bool */
    uint16_t lanes;
    int64_t *shape, *strides; /* in elements; strides may be null: row by row */
    uint64_t byte_offset;     /* of the first element, from data on */
} ignis_dlpack_tensor;

typedef struct ignis_dlpack { /* major 0 */
    ignis_dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct ignis_dlpack *self); /* gives it back; null: nobody has to */
} ignis_dlpack;

typedef struct ignis_dlpack_versioned { /* major 1 */
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct ignis_dlpack_versioned *self);
    uint64_t flags; /* 1: read only; 2: a copy */
    ignis_dlpack_tensor tensor;
} ignis_dlpack_versioned;

/*  ignis_array_to_dlpack - share an array's memory with another library
    major: 0 for an ignis_dlpack, 1 for an ignis_dlpack_versioned. stream: the other library's stream (a
    cudaStream_t). It waits for the present work of the calling thread's current stream, and the memory is reused only
    after the stream's work at the end. Null: the other library uses the current stream; or cudart's default stream if
    the current one is Ignis' own, which is ordered with that. Memory is allocated if necessary. The array counts as
    written from then on.
    Returns: the struct, null on failure.
    Errors: FREED, ARGUMENT (no such major, no stream of this device), UNSUPPORTED (this thread captures a graph),
    MEMORY, CUDA.
    Ownership: the other library calls the struct's deleter, once, on any thread, and must not use the memory
    afterwards. Until then the array has one more view, with its owner. ignis_shutdown reports and ends that view:
    then the memory is gone, and the deleter only frees the struct.
    Threads: any. Streams: see stream. */
IGNIS_API void *ignis_array_to_dlpack(ignis_array array, int major, void *stream);

/*  ignis_array_from_dlpack - make an array over memory of another library
    major: the version of managed, as above. stream: the other library's stream; the current stream waits for it.
    Null: there is nothing to wait for, or it is cudart's default stream and the current one is Ignis' own, which is
    ordered with that.
    Shapes: contiguous, row by row; strides of dimensions of size 1, and of tensors without elements, do not matter. A
    tensor without dimensions becomes [1], bool becomes IGNIS_U8. int8 is copied to a new array of IGNIS_I32: the call
    waits for that, and calls the deleter.
    Returns: the array, owned by IGNIS_OWNER_IGNIS, with the tag "dlpack"; or no handle.
    Errors: ARGUMENT (null, no such major, another version than its struct says, an address that is not aligned or not
    memory of the device), UNSUPPORTED (memory of another kind of device, read-only memory, this thread captures a
    graph), DEVICE, DTYPE, SHAPE (strided, more than 8 dimensions), MEMORY, CUDA.
    Ownership: managed is the array's, and its deleter is called when the last array over the memory is gone and its
    work done. After a failure it is still the caller's.
    Threads: any. Streams: see stream. */
IGNIS_API ignis_array ignis_array_from_dlpack(void *managed, int major, void *stream);
