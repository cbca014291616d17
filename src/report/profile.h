/* >>profile - traces, rooflines, pictures of memory ------------------------------------------------------------- */

/*  What a kernel has taken in a profile, all launches together. */
typedef struct ignis_profile_row {
    char name[72]; /* the kernel, its formula, "copy to the device" and its like, or "graph" */
    int device;
    ignis_dtype dtype; /* of a product; IGNIS_DTYPE_DEFAULT: flops are not known */
    int64_t count;
    double ms;               /* on the device */
    double bytes, flops;     /* 0: not known */
    double memory_share;     /* of the rate that the device's memory has by its clock and width; 0: not known */
    double arithmetic_share; /* of the rate that its multiprocessors have at their highest clock; 0: not known */
} ignis_profile_row;

/*  ignis_profile_begin - write down what runs from here on, in all threads
    Of 262144 items at most; what comes later is counted, and ignis_profile_end says so.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (a profile is begun already), UNSUPPORTED (this thread captures a graph; a dry run), CUDA.
    Ownership: nothing to free; end it with ignis_profile_end. ignis_shutdown drops one that is not ended.
    Threads: any. Waits for the devices that are open. */
IGNIS_API ignis_status ignis_profile_begin(void);

/*  ignis_profile_end - end the profile, and write what was written down
    trace: a file of Chrome's trace events (JSON) for ui.perfetto.dev and chrome://tracing; null: none. table: a file of text, a line a kernel,
    the longest first; null: none.
    Returns: IGNIS_OK, or the first failure; the profile is over either way.
    Errors: ARGUMENT (none is begun), UNSUPPORTED (this thread captures a graph), MEMORY, IO, CUDA.
    Ownership: ignis_profile_rows has the rows until the next profile ends.
    Threads: any; what other threads queue meanwhile is written down, or not. Waits for the devices that are open: so where several ranks are
    threads of a process, when none of them waits for a collective operation of this one. */
IGNIS_API ignis_status ignis_profile_end(const char *trace, const char *table);

/*  ignis_profile_rows - what the last profile that was ended says of each kernel, the longest first
    rows may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT.
    Ownership: rows are copies.
    Threads: any. */
IGNIS_API int ignis_profile_rows(ignis_profile_row *rows, int capacity);

/*  ignis_memory_snapshot - write down what has the memory of all devices: a path that ends in ".svg" is drawn, another one is JSON
    The rows of ignis_memory_rows, and in JSON all arrays that are alive, with what ignis_array_query says of them. ignis_desc.trace_memory
    adds what the peak was made of, IGNIS_TRACE_CALLS the caller's lines. With a path as IGNIS_DRY_RUN in the environment, which has a point or a
    slash, ignis_shutdown writes one.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null path), MEMORY, IO.
    Ownership: nothing to free.
    Threads: any; what other threads make meanwhile is in it, or not. */
IGNIS_API ignis_status ignis_memory_snapshot(const char *path);
