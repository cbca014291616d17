/* >>profile - traces, rooflines, pictures of memory ------------------------------------------------------------- */

/*  The cost of a kernel in a profile, all launches together. */
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

/*  ignis_profile_begin - record what runs from here on, in all threads
    At most 262144 items are kept; later ones are counted, and ignis_profile_end reports their number.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (a profile is begun already), UNSUPPORTED (this thread captures a graph; a dry run), CUDA.
    Ownership: nothing to free; end it with ignis_profile_end. ignis_shutdown drops one that is not ended.
    Threads: any. Waits for the open devices. */
IGNIS_API ignis_status ignis_profile_begin(void);

/*  ignis_profile_end - end the profile, and write its trace and table
    trace: a file of Chrome's trace events (JSON) for ui.perfetto.dev and chrome://tracing; null for none. table: a
    text file with one line per kernel, the longest first; null for none.
    Returns: IGNIS_OK, or the first failure; the profile is over either way.
    Errors: ARGUMENT (none is begun), UNSUPPORTED (this thread captures a graph), MEMORY, IO, CUDA.
    Ownership: ignis_profile_rows has the rows until the next profile ends.
    Threads: any; work that other threads queue meanwhile may be recorded or not. Waits for the open devices: if
    several ranks are threads of one process, none of them may be waiting for a collective operation of this one. */
IGNIS_API ignis_status ignis_profile_end(const char *trace, const char *table);

/*  ignis_profile_rows - return the totals of each kernel in the last ended profile, the longest first
    rows may be null if capacity is 0.
    Returns: the number of rows, also if that is more than capacity; -1 on failure.
    Errors: ARGUMENT.
    Ownership: rows are copies.
    Threads: any. */
IGNIS_API int ignis_profile_rows(ignis_profile_row *rows, int capacity);

/*  ignis_memory_snapshot - write the uses of all devices' memory to a file: a drawing if the path ends in ".svg",
    else JSON
    It has the rows of ignis_memory_rows, and in JSON all live arrays with their facts of ignis_array_query.
    ignis_desc.trace_memory adds the parts of the peak, IGNIS_TRACE_CALLS the caller's lines. If IGNIS_DRY_RUN in the
    environment is a path (with a point or a slash), ignis_shutdown writes a snapshot there.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (null path), MEMORY, IO.
    Ownership: nothing to free.
    Threads: any; objects that other threads make meanwhile may be in it or not. */
IGNIS_API ignis_status ignis_memory_snapshot(const char *path);
