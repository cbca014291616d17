/* >>graphics - memory and fences of Vulkan, D3D12, OpenGL ------------------------------------------------------- */

/*  What memory of another API comes as. */
typedef enum ignis_external_type {
    IGNIS_EXTERNAL_FD = 1,         /* a descriptor of Vulkan's handle type OPAQUE_FD; not on Windows */
    IGNIS_EXTERNAL_WIN32,          /* an NT handle of Vulkan's handle type OPAQUE_WIN32; Windows alone, as those that follow */
    IGNIS_EXTERNAL_D3D12_HEAP,     /* an NT handle of ID3D12Device::CreateSharedHandle for an ID3D12Heap */
    IGNIS_EXTERNAL_D3D12_RESOURCE, /* the same for a committed ID3D12Resource; that is always dedicated */
    IGNIS_EXTERNAL_COUNT
} ignis_external_type;

typedef struct ignis_external_desc {
    ignis_external_type type; /* required */
    int fd;                   /* IGNIS_EXTERNAL_FD: the descriptor */
    void *handle;             /* the others: the NT handle */
    int64_t size;             /* required: bytes of the whole memory object, as it was allocated */
    int64_t offset;           /* bytes from its beginning to the array (0) */
    bool dedicated;           /* true: Vulkan memory with a VkMemoryDedicatedAllocateInfo */
    ignis_shape shape;        /* required, as in ignis_array_desc */
    ignis_dtype dtype;        /* IGNIS_F32 */
    int device;               /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    const char *tag;          /* as in ignis_array_desc ("") */
} ignis_external_desc;

/*  ignis_external_array - an array over memory that Vulkan or Direct3D 12 has allocated and exported
    It counts as written. Several arrays over one memory object are views of one, or each come from a handle that was exported for it.
    Returns: the array, owned by IGNIS_OWNER_IGNIS; or no handle.
    Errors: ARGUMENT (null, no such type, no open handle, a size below 1, an offset that is no multiple of an element or from which on the memory
    ends before the array), SHAPE, DTYPE, DEVICE, UNSUPPORTED (a type of another system, a driver without the functions, a dry run, this
    thread captures a graph), MEMORY, CUDA (the driver does not know the handle, or the size is not the memory's).
    Ownership: the caller frees it with ignis_array_free, which waits for its work, before the other API frees the memory. desc->fd belongs to the
    driver after success, and is still the caller's after a failure; desc->handle is always the caller's.
    Threads: any. */
IGNIS_API ignis_array ignis_external_array(const ignis_external_desc *desc);

/*  What a fence of another API comes as. */
typedef enum ignis_fence_type {
    IGNIS_FENCE_TIMELINE_FD = 1, /* a timeline semaphore of Vulkan by a descriptor (OPAQUE_FD); not on Windows */
    IGNIS_FENCE_TIMELINE_WIN32,  /* the same by an NT handle (OPAQUE_WIN32); Windows alone */
    IGNIS_FENCE_D3D12,           /* an NT handle of ID3D12Device::CreateSharedHandle for an ID3D12Fence; Windows alone */
    IGNIS_FENCE_TYPE_COUNT
} ignis_fence_type;

typedef struct ignis_external_fence_desc {
    ignis_fence_type type; /* required */
    int fd;                /* IGNIS_FENCE_TIMELINE_FD: the descriptor */
    void *handle;          /* the others: the NT handle */
    int device;            /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
} ignis_external_fence_desc;

/*  ignis_external_fence - a timeline semaphore of Vulkan, or a fence of Direct3D 12, that was exported
    Returns: the fence, or no handle.
    Errors: ARGUMENT (null, no such type, no open handle), DEVICE, UNSUPPORTED (a type of another system, a driver without the functions, a dry
    run, this thread captures a graph), MEMORY, CUDA (the driver does not know the handle).
    Ownership: the caller frees it with ignis_fence_free; ignis_shutdown reports and frees what is left. desc->fd and desc->handle as
    those of ignis_external_array.
    Threads: any. */
IGNIS_API ignis_fence ignis_external_fence(const ignis_external_fence_desc *desc);

/*  ignis_fence_wait - let what is put into the current stream from now on begin when the fence has reached a value
    A value that it has already, or has passed, is not waited for. Nobody notices a value that never comes: what comes later in the stream never
    runs.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (the stream is captured: each launch of the graph would wait for the same value), DEVICE, MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the fence's device; the calling thread does not wait. */
IGNIS_API ignis_status ignis_fence_wait(ignis_fence fence, uint64_t value);

/*  ignis_fence_signal - set the fence to a value when all is done that the current stream has so far
    What that work wrote to memory of the other API can be seen by who waits for the value. The value must be above all that the fence has had;
    Ignis knows those that it was given by this handle.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (a value that is not above the last one), UNSUPPORTED (the stream is captured: each launch of the graph would signal
    the same value), DEVICE, MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of the fence's device. */
IGNIS_API ignis_status ignis_fence_signal(ignis_fence fence, uint64_t value);

/*  ignis_fence_free - free a fence; the semaphore itself stays the other API's
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second free).
    Ownership: the handle is stale afterwards.
    Threads: any. Waits for the waits and signals that are queued. */
IGNIS_API ignis_status ignis_fence_free(ignis_fence fence);

/*  What kernels do with an OpenGL buffer. */
typedef enum ignis_gl_access {
    IGNIS_GL_READ_WRITE,
    IGNIS_GL_READ,  /* they only read it */
    IGNIS_GL_WRITE, /* they write all of it: what it held is lost at each ignis_gl_map */
    IGNIS_GL_ACCESS_COUNT
} ignis_gl_access;

/*  ignis_gl_register - make a buffer of OpenGL known to CUDA, on the current device, which must be the one that OpenGL draws with
    buffer: its name, of glGenBuffers, with storage of glBufferData. It takes the driver some time: do it when the buffer is made, and again
    after a glBufferData that has changed its size.
    Returns: the registered buffer, or no handle.
    Errors: ARGUMENT (no such access), DEVICE, UNSUPPORTED (a driver without the functions, a dry run, this thread captures a graph), MEMORY,
    CUDA (no OpenGL context is current in this thread, or it has no such buffer).
    Ownership: the caller frees it with ignis_gl_unregister, before glDeleteBuffers; ignis_shutdown reports and frees what is left.
    Threads: one in which OpenGL's context is current. */
IGNIS_API ignis_gl_buffer ignis_gl_register(unsigned buffer, ignis_gl_access access);

/*  ignis_gl_map - the memory of a registered buffer, as an array, until ignis_gl_unmap
    What OpenGL was told before is done before work that is queued from now on. OpenGL must not use the buffer meanwhile. It counts as written.
    dtype: IGNIS_DTYPE_DEFAULT is IGNIS_F32. shape: of ndim 0 is as many elements as fit, in one dimension.
    Returns: the array, owned by IGNIS_OWNER_IGNIS, with the tag "gl"; or no handle.
    Errors: FREED, ARGUMENT (mapped already, a buffer of fewer bytes than the array), SHAPE, DTYPE, UNSUPPORTED (this thread captures a graph),
    DEVICE, MEMORY, CUDA.
    Ownership: ignis_gl_unmap ends it; the caller may free the array before, which does not unmap the buffer.
    Threads: one in which OpenGL's context is current. Streams: mapped in the order of the current stream. */
IGNIS_API ignis_array ignis_gl_map(ignis_gl_buffer buffer, ignis_dtype dtype, ignis_shape shape);

/*  ignis_gl_unmap - give the memory back to OpenGL, and free the array
    What OpenGL is told from now on comes after the work that is queued on the array, on whatever stream.
    Returns: IGNIS_OK, or why the buffer is still mapped.
    Errors: FREED, ARGUMENT (not mapped), CONTRACT (the array has references or another owner; views of it, or a graph, use the memory), UNSUPPORTED
    (this thread captures a graph), CUDA.
    Ownership: the array's handle is stale afterwards.
    Threads: one in which OpenGL's context is current; no other one may be inside a call with the array. Does not wait. */
IGNIS_API ignis_status ignis_gl_unmap(ignis_gl_buffer buffer);

/*  ignis_gl_unregister - free a registered buffer; the buffer itself stays OpenGL's
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second time), ARGUMENT (it is mapped), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the handle is stale afterwards.
    Threads: one in which OpenGL's context is current. */
IGNIS_API ignis_status ignis_gl_unregister(ignis_gl_buffer buffer);
