/* >>graphics - memory and fences of Vulkan, D3D12, OpenGL ------------------------------------------------------- */

/*  How another API exports memory. */
typedef enum ignis_external_type {
    IGNIS_EXTERNAL_FD = 1, /* a descriptor of Vulkan's handle type OPAQUE_FD; not on Windows */
    IGNIS_EXTERNAL_WIN32,
    /* an NT handle of Vulkan's handle type OPAQUE_WIN32; this and the next ones on
    Windows alone */
    IGNIS_EXTERNAL_D3D12_HEAP,
    /* an NT handle of ID3D12Device::CreateSharedHandle for an
    ID3D12Heap */
    IGNIS_EXTERNAL_D3D12_RESOURCE,
    /* the same for a committed ID3D12Resource, which is always dedicated
    */
    IGNIS_EXTERNAL_COUNT
} ignis_external_type;

typedef struct ignis_external_desc {
    ignis_external_type type; /* required */
    int fd;                   /* IGNIS_EXTERNAL_FD: the descriptor */
    void *handle;             /* the other types: the NT handle */
    int64_t size;             /* required: bytes of the whole memory object, as it was allocated */
    int64_t offset;
    /* bytes from its beginning to the array (0) */
    bool dedicated; /* true: Vulkan memory with a VkMemoryDedicatedAllocateInfo */
    ignis_shape shape;
    /* required, as in ignis_array_desc */
    ignis_dtype dtype; /* IGNIS_F32 */
    int device;        /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    const char *tag;   /* as in ignis_array_desc ("") */
} ignis_external_desc;

/*  ignis_external_array - make an array over memory that Vulkan or Direct3D 12 has allocated and exported It
    counts as written. Several arrays over one memory object are views of one array, or each has its own exported
    handle.
    Returns: the array, owned by IGNIS_OWNER_IGNIS; or no handle.
    Errors: ARGUMENT (null, no such type, no open handle, a size below 1, an offset that is not a multiple of an
    element, or memory that ends before the array), SHAPE, DTYPE, DEVICE, UNSUPPORTED (a type of another system, a
    driver without the functions, a dry run, this thread captures a graph), MEMORY, CUDA (the driver does not know the
    handle, or the size is not the memory's).
    Ownership: the caller frees it with ignis_array_free, which waits for its work, before the other API frees the
    memory. desc->fd belongs to the driver after success, and is still the caller's after a failure; desc->handle is
    always the caller's.
    Threads: any. */
IGNIS_API ignis_array ignis_external_array(const ignis_external_desc *desc);

/*  How another API exports a fence. */
typedef enum ignis_fence_type {
    IGNIS_FENCE_TIMELINE_FD = 1, /* a timeline semaphore of Vulkan by a descriptor (OPAQUE_FD); not on Windows */
    IGNIS_FENCE_TIMELINE_WIN32,
    /* the same as an NT handle (OPAQUE_WIN32); Windows alone */ IGNIS_FENCE_D3D12,
    /* an NT handle of ID3D12Device::CreateSharedHandle for an ID3D12Fence; Windows alone */ IGNIS_FENCE_TYPE_COUNT
} ignis_fence_type;

typedef struct ignis_external_fence_desc {
    ignis_fence_type type; /* required */
    int fd;                /* IGNIS_FENCE_TIMELINE_FD: the descriptor */
    void *handle;          /* the other types: the NT handle */
    int device;            /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
} ignis_external_fence_desc;

/*  ignis_external_fence - import an exported timeline semaphore of Vulkan, or a fence of Direct3D 12
    Returns: the fence, or no handle.
    Errors: ARGUMENT (null, no such type, no open handle), DEVICE, UNSUPPORTED (a type of another system, a driver
    without the functions, a dry run, this thread captures a graph), MEMORY, CUDA (the driver does not know the
    handle).
    Ownership: the caller frees it with ignis_fence_free; ignis_shutdown reports and frees the rest. desc->fd and
    desc->handle as for ignis_external_array.
    Threads: any. */
IGNIS_API ignis_fence ignis_external_fence(const ignis_external_fence_desc *desc);

/*  ignis_fence_wait - make later work of the current stream wait until the fence has reached a value A value that
    was reached already does not wait. A value that never comes is not detected: later work of the stream never runs.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (the stream is captured: each launch of the graph would wait for the same value),
    DEVICE, MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the fence's device; the calling thread does not wait. */
IGNIS_API ignis_status ignis_fence_wait(ignis_fence fence, uint64_t value);

/*  ignis_fence_signal - set the fence to a value after all present work of the current stream
    A waiter for the value sees that work's writes to memory of the other API. The value must be above all earlier
    values of the fence; Ignis knows those of this handle.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (a value that is not above the last one), UNSUPPORTED (the stream is captured: each launch
    of the graph would signal the same value), DEVICE, MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the fence's device. */
IGNIS_API ignis_status ignis_fence_signal(ignis_fence fence, uint64_t value);

/*  ignis_fence_free - free a fence; the semaphore itself stays the other API's
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second free).
    Ownership: the handle is stale afterwards.
    Threads: any. Waits for queued waits and signals. */
IGNIS_API ignis_status ignis_fence_free(ignis_fence fence);

/*  How kernels use an OpenGL buffer. */
typedef enum ignis_gl_access {
    IGNIS_GL_READ_WRITE,
    IGNIS_GL_READ, /* they only read it */
    IGNIS_GL_WRITE,
    /* they write all of it: each ignis_gl_map discards its content */ IGNIS_GL_ACCESS_COUNT
} ignis_gl_access;

/*  ignis_gl_register - register a buffer of OpenGL with CUDA, on the current device, which must be the one that
    OpenGL draws with
    buffer: its name, of glGenBuffers, with storage of glBufferData. This is slow: call it when the buffer is made,
    and again after a glBufferData that has changed its size.
    Returns: the registered buffer, or no handle.
    Errors: ARGUMENT (no such access), DEVICE, UNSUPPORTED (a driver without the functions, a dry run, this thread
    captures a graph), MEMORY, CUDA (no OpenGL context is current in this thread, or it has no such buffer).
    Ownership: the caller frees it with ignis_gl_unregister, before glDeleteBuffers; ignis_shutdown reports and frees
    the rest.
    Threads: one in which OpenGL's context is current. */
IGNIS_API ignis_gl_buffer ignis_gl_register(unsigned buffer, ignis_gl_access access);

/*  ignis_gl_map - return the memory of a registered buffer, as an array, until ignis_gl_unmap Earlier commands of
    OpenGL are done before work that is queued from now on. OpenGL must not use the buffer meanwhile. The array counts
    as written.
    dtype: IGNIS_DTYPE_DEFAULT is IGNIS_F32. shape: ndim 0 means as many elements as fit, in one dimension.
    Returns: the array, owned by IGNIS_OWNER_IGNIS, with the tag "gl"; or no handle.
    Errors: FREED, ARGUMENT (mapped already, a buffer of fewer bytes than the array), SHAPE, DTYPE, UNSUPPORTED (this
    thread captures a graph), DEVICE, MEMORY, CUDA.
    Ownership: ignis_gl_unmap ends it; the caller may free the array before, which does not unmap the buffer.
    Threads: one in which OpenGL's context is current. Streams: mapped in the order of the current stream. */
IGNIS_API ignis_array ignis_gl_map(ignis_gl_buffer buffer, ignis_dtype dtype, ignis_shape shape);

/*  ignis_gl_unmap - return the memory to OpenGL, and free the array
    Later commands of OpenGL run after the queued work on the array, on any stream.
    Returns: IGNIS_OK, or why the buffer is still mapped.
    Errors: FREED, ARGUMENT (not mapped), CONTRACT (the array has references or another owner; views of it, or a
    graph, use the memory), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the array's handle is stale afterwards.
    Threads: one in which OpenGL's context is current; no other thread may be inside a call with the array. Does not
    wait. */
IGNIS_API ignis_status ignis_gl_unmap(ignis_gl_buffer buffer);

/*  ignis_gl_unregister - free a registered buffer; the buffer itself stays OpenGL's
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second time), ARGUMENT (it is mapped), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the handle is stale afterwards.
    Threads: one in which OpenGL's context is current. */
IGNIS_API ignis_status ignis_gl_unregister(ignis_gl_buffer buffer);
