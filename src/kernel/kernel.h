/* >>kernel - CUDA source compiled, cached, launched ------------------------------------------------------------- */

/*  A header in memory, for #include "name" in a kernel. */
typedef struct ignis_kernel_header {
    const char *name;
    const char *text;
} ignis_kernel_header;

typedef struct ignis_kernel_desc {
    const char *source; /* CUDA C++ text, unless there is an image; may #include "ignis.cuh" */
    const char *name;   /* the file name that compile errors show; files in its folder can be included ("kernel.cu") */
    /*  Required: the __global__ function; a template instance or namespaced name is fine: "scale<float>". In an
        image as the image has it, mangled unless extern "C". Several of one program: "advance; count<int>"; the
        handle launches the first, and ignis_kernel_entry returns the others. */
    const char *entry;
    const char *const *options; /* NVRTC options such as "-DN=4", "-I/usr/local/cuda/include" (none) */
    int option_count;
    const ignis_kernel_header *headers; /* headers in memory, found before any file (none besides those of Ignis) */
    int header_count;
    const void *image; /* instead of source: a cubin, fatbin or PTX text; no options, no headers (none) */
    size_t image_size; /* bytes of it */
} ignis_kernel_desc;

typedef struct ignis_launch {
    int64_t grid[3];      /* blocks; y, z: 0 means 1. x = 0 runs nothing, and succeeds */
    int block[3];         /* threads, x required; y and z: 0 means 1 */
    int64_t shared_bytes; /* dynamic shared memory of a block, above 48 KB too (0) */
    /*  true: the kernel may begin before earlier work on the stream has ended, because it waits by itself: all of its
        threads call ignis_grid_dependency_wait, of ignis.cuh, before they touch memory that other work touches. For
        compute capability 9.0 and up with a driver of 12.3 and up; elsewhere it begins after earlier work (false) */
    bool dependent;
    /*  true: all blocks run at once, so that they may wait for each other; at most those of ignis_kernel_occupancy.
        Needs a driver of 12.3 and up (false) */
    bool cooperative;
} ignis_launch;

/*  The type of an ignis_arg; set by ignis_arg_array and its siblings. */
typedef enum ignis_arg_type {
    IGNIS_ARG_ARRAY = 1,
    IGNIS_ARG_I32,
    IGNIS_ARG_I64,
    IGNIS_ARG_F32,
    IGNIS_ARG_F64,
    IGNIS_ARG_PTR,
    IGNIS_ARG_BYTES
} ignis_arg_type;

typedef struct ignis_arg {
    ignis_arg_type type;
    size_t size; /* of an IGNIS_ARG_BYTES */
    union {
        ignis_array array;
        int32_t i32;
        int64_t i64;
        float f32;
        double f64;
        void *ptr;
        const void *bytes;
    } value;
} ignis_arg;

typedef struct ignis_kernel_info {
    const char *entry; /* lives as long as the kernel */
    int parameters;    /* -1: the driver is older than 12.4 and does not tell */
    int registers;     /* per thread */
    int local_bytes;   /* per thread, for spilled registers */
    int shared_bytes;  /* static, per block */
    int max_threads;   /* per block */
    bool from_cache;   /* true: no compiler ran for the device that is current */
} ignis_kernel_info;

/*  The number of blocks of a kernel that run at once. */
typedef struct ignis_occupancy {
    int block;  /* threads of a block */
    int blocks; /* of a multiprocessor */
    int grid;   /* of the device: the most that a cooperative launch may have */
} ignis_occupancy;

/*  ignis_kernel_compile - compile CUDA source for the current device, or take it from the cache
    The kernel runs on every device: for another architecture it is compiled at its first launch there. With an image
    (ignis_kernel_desc.image) nothing is compiled: its tables are checked to be inside it, and the driver accepts or
    refuses it.
    Returns: the kernel, or no handle.
    Errors: ARGUMENT, LIBRARY (no NVRTC), COMPILE (the log is part of the message; or IGNIS_COMPILE_NEVER and no such
    program), FORMAT (the image, or the bundle, is damaged), UNSUPPORTED (the image is for other devices), DEVICE,
    MEMORY, CUDA.
    Ownership: the caller frees it with ignis_kernel_free. desc, its strings and the image are copied.
    Threads: any. */
IGNIS_API ignis_kernel ignis_kernel_compile(const ignis_kernel_desc *desc);

/*  ignis_kernel_launch - run a kernel on the current device
    args are the kernel's parameters in order. Array arguments are checked, allocated if necessary, and become
    pointers. The driver knows only the sizes of parameters: an f64 array for a `float *`, or an i32 for a `float`, is
    not detected. It does not know const either, so a launch does not count as a write to an array that was written
    before: if it writes, call ignis_array_mark_written.
    Returns: IGNIS_OK, or the reason. A fault inside the kernel is reported by a later call.
    Errors: FREED, ARGUMENT (count, sizes, limits of the launch), DEVICE (an array of another device), MEMORY, CUDA.
    Ownership: unchanged; args may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_kernel_launch(ignis_kernel kernel, const ignis_launch *launch, const ignis_arg *args,
                                           int arg_count);

/*  ignis_kernel_query - return registers, memory and limits of a kernel on the current device
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT, LIBRARY, COMPILE, CUDA.
    Ownership: info->entry lives as long as the kernel.
    Threads: any. */
IGNIS_API ignis_status ignis_kernel_query(ignis_kernel kernel, ignis_kernel_info *info);

/*  ignis_kernel_entry - return another __global__ function of a kernel's program, as a handle of its own
    It shares the program: one compilation, and one set of variables on each device. entry is a name in
    ignis_kernel_desc.entry, or that of an extern "C" function of the program. ignis_kernel_reload of any handle
    replaces the program of all.
    Returns: the kernel, or no handle.
    Errors: FREED, ARGUMENT, COMPILE (the program has no such entry), LIBRARY, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_kernel_free. The program lives as long as one of its handles.
    Threads: any. */
IGNIS_API ignis_kernel ignis_kernel_entry(ignis_kernel kernel, const char *entry);

/*  ignis_kernel_occupancy - return how many blocks of a kernel run at once on the current device; for block 0, of the
    best size
    block: threads of a block; 0: the size with the most threads at once, the largest of several. shared_bytes: as in
    ignis_launch.
    Returns: IGNIS_OK, and *out filled. Its blocks are 0 if not even one fits.
    Errors: FREED, ARGUMENT (null, a block or shared_bytes outside the limits of device and kernel), LIBRARY, COMPILE,
    CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_kernel_occupancy(ignis_kernel kernel, int block, int64_t shared_bytes,
                                              ignis_occupancy *out);

/*  ignis_kernel_set_symbol - write to a __constant__ or __device__ variable of a kernel's program, on the current
    device
    name: as in the source for a variable outside of namespaces, else its mangled name. size: all of its bytes. Each
    compiled program has its own variables on each device, with the initial values of the source; handles of
    ignis_kernel_entry share them.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null, no such variable, another size), LIBRARY, COMPILE, UNSUPPORTED (this thread
    captures a graph), CUDA.
    Ownership: data may be reused when the call returns.
    Threads: any. Streams: queued on the current stream; launches on other streams are not ordered with it. */
IGNIS_API ignis_status ignis_kernel_set_symbol(ignis_kernel kernel, const char *name, const void *data, int64_t size);

/*  ignis_kernel_get_symbol - read a __constant__ or __device__ variable of a kernel's program on the current device;
    see ignis_kernel_set_symbol
    Returns: IGNIS_OK, and data filled; zeros in a dry run.
    Errors: FREED, ARGUMENT (null, no such variable, another size), LIBRARY, COMPILE, UNSUPPORTED (this thread
    captures a graph), CUDA.
    Ownership: nothing to free.
    Threads: any. Streams: waits for the current stream, not for writes on other streams. */
IGNIS_API ignis_status ignis_kernel_get_symbol(ignis_kernel kernel, const char *name, void *data, int64_t size);

/*  ignis_kernel_reload - compile another program in the background, and replace the kernel's program when it is ready
    Handles of ignis_kernel_entry for the same program get the new one, too: it must have their entries, and desc must
    name those that are not extern "C". Until then launches use the old program, and for ever if the new one does not
    compile: then the logger gets the compiler's log, and ignis_ticket_wait the failure. Threads may launch the kernel
    all the time; each launch, and each capture, uses the newest program at that moment. Variables of the new program
    (ignis_kernel_set_symbol) have the values of its source. The last of several reloads wins. Replaced programs stay
    loaded until the kernel is freed.
    Returns: a ticket for ignis_ticket_wait, or no handle.
    Errors: FREED, ARGUMENT, DEVICE, MEMORY. By ignis_ticket_wait: LIBRARY (no NVRTC), COMPILE, MEMORY, CUDA.
    Ownership: desc and its strings are copied. The caller ends the ticket by ignis_ticket_wait.
    Threads: any. Compiles on a thread of its own, for each device that the kernel was used on. */
IGNIS_API ignis_ticket ignis_kernel_reload(ignis_kernel kernel, const ignis_kernel_desc *desc);

/*  ignis_kernel_free - free a kernel
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures a graph).
    Ownership: the handle is stale afterwards; queued launches still run, and graphs that captured one keep the
    kernel.
    Threads: any. */
IGNIS_API ignis_status ignis_kernel_free(ignis_kernel kernel);

/*  ignis_arg_array, _i32, _i64, _f32, _f64, _ptr - make one kernel argument; ignis_arg_bytes - make one of a struct
    passed by value
    Returns: the argument.
    Errors: none here; ignis_kernel_launch checks.
    Ownership: borrows; bytes must live until ignis_kernel_launch returns.
    Threads: any. */
IGNIS_API ignis_arg ignis_arg_array(ignis_array array);
IGNIS_API ignis_arg ignis_arg_i32(int32_t value);
IGNIS_API ignis_arg ignis_arg_i64(int64_t value);
IGNIS_API ignis_arg ignis_arg_f32(float value);
IGNIS_API ignis_arg ignis_arg_f64(double value);
IGNIS_API ignis_arg ignis_arg_ptr(void *value);
IGNIS_API ignis_arg ignis_arg_bytes(const void *bytes, size_t size);

/*  ignis_warmup - compile the built-in kernels, and `count` kernels of the caller, before their first use, on
    parallel threads
    descs may be null if count is 0. With IGNIS_COMPILE_NEVER, the built-in kernels in the bundle are loaded.
    Returns: IGNIS_OK, or the first failure; the others are compiled all the same.
    Errors: ARGUMENT, LIBRARY, COMPILE, DEVICE, MEMORY, CUDA.
    Ownership: the caches get the kernels; nothing to free.
    Threads: any. Waits for the compilers. */
IGNIS_API ignis_status ignis_warmup(const ignis_kernel_desc *descs, int count);

/*  ignis_warmup_record - compile all programs that an earlier run has requested, in the background, before their
    first use
    path: a record (ignis_desc.record, IGNIS_RECORD). It names dtypes, ranks and options of formulas and kernels in
    variants, which ignis_warmup does not know. Its programs for the current device are compiled on parallel threads,
    except those in a bundle or cache, and go to the caches. A program used meanwhile is not compiled twice: its first
    use waits. A line that does not compile fails with its number in the message; the others are compiled all the
    same.
    Returns: a ticket for ignis_ticket_wait, or no handle.
    Errors: ARGUMENT, IO (no such file), FORMAT (a line is not a record line, or is of another version of Ignis),
    DEVICE, MEMORY. By ignis_ticket_wait: LIBRARY, COMPILE, MEMORY, CUDA, the first failure.
    Ownership: the file is read before the call returns. The caller ends the ticket by ignis_ticket_wait.
    Threads: any. Compiles on threads of its own. */
IGNIS_API ignis_ticket ignis_warmup_record(const char *path);

/*  The contents of a bundle, and the part that the current device can use. */
typedef struct ignis_bundle_info {
    int version;            /* IGNIS_VERSION of the ignis_embed that made it */
    int64_t bytes;          /* of the bundle */
    int programs, images;   /* programs, and their images: one for each architecture */
    int usable, missing;    /* programs with an image for the device; programs without one that the device may need */
    char architectures[64]; /* "75 80 90a ptx75": ptx before a number means PTX */
} ignis_bundle_info;

/*  ignis_bundle_check - check that the bundle of ignis_setup is whole, of this version, and serves the current
    device; info may be null
    Unpacks and checks each image, in 15 ms for each unpacked megabyte; the driver is not asked. One failure names
    everything that was found: another version of Ignis, built-in kernels of another program, damaged images, programs
    without an image for the device. Programs that were not recorded are not found.
    Returns: IGNIS_OK, or the reason; *info is filled in both cases, unless there is no bundle.
    Errors: ARGUMENT (there is no bundle), FORMAT, MISMATCH, COMPILE (programs are missing), DEVICE, MEMORY.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_bundle_check(ignis_bundle_info *info);
