/* >>memory - what Ignis holds of a device's memory -------------------------------------------------------------- */

/*  All sizes in bytes. "reserved" is what Ignis holds of the driver, "live" what arrays use of it. */
typedef struct ignis_memory_info {
    int64_t device_total, device_free; /* as the driver says, all processes together */
    int64_t live_bytes, live_peak;
    int64_t reserved_bytes, reserved_peak;
    int64_t live_blocks;
    int64_t segments;                /* driver allocations held */
    int64_t largest_free;            /* the largest block that the cache could hand out */
    int64_t allocations, cache_hits; /* requests since setup, and how many needed no driver call */
    int64_t driver_allocations, driver_frees;
    int64_t limit;        /* ignis_desc.memory_limit; 0: none */
    int64_t pinned_bytes; /* pinned host memory, of all devices together */
    int64_t vmm_bytes;    /* physical memory of ignis_collective.h, beside what is reserved: see ON VIRTUAL MEMORY there */
} ignis_memory_info;

/*  ignis_memory_query - what Ignis holds of a device's memory, and what the device has
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, DEVICE, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_memory_query(int device, ignis_memory_info *info);

/*  Memory by what it was taken for. */
typedef struct ignis_memory_row {
    char tag[32];       /* of the array; "": it has none, or it is memory that an operation works with */
    const char *call;   /* the function that made it, */
    const char *inside; /* and the one that has run that, such as "ignis_backward"; "" */
    const char *file;   /* where the caller's code called it, if compiled with IGNIS_TRACE_CALLS; "" */
    int line;
    int64_t live_bytes, live_blocks;
    int64_t peak_bytes; /* that it had when live_bytes of the device was at its peak; 0 without ignis_desc.trace_memory */
} ignis_memory_row;

/*  ignis_memory_rows - what a device's memory is used for: by tag, function and place in the caller's code, the most at the peak first
    With ignis_desc.trace_memory, and in a dry run, rows stay when their memory is freed, and say what they had at the peak; else there are those
    alone that live. Bytes are those of blocks, which are rounded up to 512. rows may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT, DEVICE, MEMORY.
    Ownership: rows are copies; their strings are constant.
    Threads: any. */
IGNIS_API int ignis_memory_rows(int device, ignis_memory_row *rows, int capacity);

/*  ignis_memory_trim - give cached memory that no array uses back to the driver, and pinned memory that was kept for the next file that is read
    With several devices in use, what a file is read through is kept: to free pinned memory CUDA waits for all of them.
    Returns: the number of bytes of the device that were given back, -1 on failure.
    Errors: DEVICE, UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: live arrays are not touched.
    Threads: any. May wait for the device, and for all others. */
IGNIS_API int64_t ignis_memory_trim(int device);

/*  ignis_host_alloc - pinned (page-locked) host memory, which every device copies to and from while the program goes on
    Takes the system a while: allocate when a program starts. Its content is undefined.
    Returns: the address, null on failure.
    Errors: ARGUMENT (size below 1), DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_host_free; ignis_shutdown reports and frees what is left.
    Threads: any. */
IGNIS_API void *ignis_host_alloc(int64_t size);

/*  ignis_host_free - free memory of ignis_host_alloc; null does nothing
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (not an address that ignis_host_alloc gave, or freed already), UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: the memory is gone when the call returns.
    Threads: any. Waits for the device, as copies may still use it, and as CUDA does for all others. */
IGNIS_API ignis_status ignis_host_free(void *memory);
