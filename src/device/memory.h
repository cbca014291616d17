/* >>memory - what Ignis holds of a device's memory -------------------------------------------------------------- */

/*  All sizes are in bytes. "reserved" is allocated from the driver; "live" is the part that arrays use. */
typedef struct ignis_memory_info {
    int64_t device_total, device_free; /* as the driver says, all processes together */
    int64_t live_bytes, live_peak;
    int64_t reserved_bytes, reserved_peak;
    int64_t live_blocks;
    int64_t segments;                /* allocations of the driver */
    int64_t largest_free;            /* the largest block that the cache could hand out */
    int64_t allocations, cache_hits; /* requests since setup, and how many needed no driver call */
    int64_t driver_allocations, driver_frees;
    int64_t limit;        /* ignis_desc.memory_limit; 0 for no limit */
    int64_t pinned_bytes; /* pinned host memory, of all devices together */
    int64_t vmm_bytes;    /* physical memory of ignis_collective.h, not in reserved: see ON VIRTUAL MEMORY there */
} ignis_memory_info;

/*  ignis_memory_query - return how much of a device's memory Ignis uses, and how much the device has
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, DEVICE, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_memory_query(int device, ignis_memory_info *info);

/*  Memory with the same tag, function and line of the caller. */
typedef struct ignis_memory_row {
    char tag[32];       /* of the array; "" for arrays without a tag and for scratch memory of operations */
    const char *call;   /* the function that made it, */
    const char *inside; /* and the one that has run that, such as "ignis_backward"; "" */
    const char *file;   /* the caller's file, if compiled with IGNIS_TRACE_CALLS; else "" */
    int line;
    int64_t live_bytes, live_blocks;
    int64_t peak_bytes; /* that it had when live_bytes of the device was at its peak; 0 without
    ignis_desc.trace_memory */
} ignis_memory_row;

/*  ignis_memory_rows - list the uses of a device's memory by tag, function and line of the caller, the largest at
    the peak first
    With ignis_desc.trace_memory, and in a dry run, a row stays after its memory is freed, and has its bytes at the
    peak. Without, only live memory has rows. Bytes are those of blocks, rounded up to 512. rows may be null if
    capacity is 0.
    Returns: the number of rows, also if that is more than capacity; -1 on failure.
    Errors: ARGUMENT, DEVICE, MEMORY.
    Ownership: rows are copies; their strings are constant.
    Threads: any. */
IGNIS_API int ignis_memory_rows(int device, ignis_memory_row *rows, int capacity);

/*  ignis_memory_trim - return cached device memory that no array uses to the driver, and free pinned memory kept
    for reading files
    With several devices in use, that pinned memory is kept: to free it, CUDA waits for all devices.
    Returns: the number of bytes of the device that were freed, -1 on failure.
    Errors: DEVICE, UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: live arrays are not touched.
    Threads: any. May wait for the device, and for all others. */
IGNIS_API int64_t ignis_memory_trim(int device);

/*  ignis_host_alloc - allocate pinned (page-locked) host memory, which every device copies to and from while the
    program goes on
    This is slow: allocate when a program starts. The content is undefined.
    Returns: the address, null on failure.
    Errors: ARGUMENT (size below 1), DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_host_free; ignis_shutdown reports and frees the rest.
    Threads: any. */
IGNIS_API void *ignis_host_alloc(int64_t size);

/*  ignis_host_free - free memory of ignis_host_alloc; null does nothing
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (not an address of ignis_host_alloc, or freed already), UNSUPPORTED (this thread captures a
    graph), CUDA.
    Ownership: the memory is gone when the call returns.
    Threads: any. Waits for the device, because copies may still use it, and as CUDA does for all others. */
IGNIS_API ignis_status ignis_host_free(void *memory);
