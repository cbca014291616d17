/* >>kernel - CUDA source compiled, cached, launched ------------------------------------------------------------- */

/*  A header in memory, for #include "name" in a kernel. */
typedef struct ignis_kernel_header {
    const char *name;
    const char *text;
} ignis_kernel_header;

typedef struct ignis_kernel_desc {
    const char *source; /* CUDA C++ text, unless there is an image; #include "ignis.cuh" gives it types and helpers of Ignis' kernels */
    const char *name;   /* the file name that compile errors show; files in its folder can be included ("kernel.cu") */
    const char *entry;  /* required: the __global__ function; a template instance or namespaced name is fine: "scale<float>";
                                   in an image as the image has it, mangled unless extern "C". Several of one program: "advance; count<int>",
                                   of which the handle launches the first, and ignis_kernel_entry gives the others */
    const char *const *options; /* NVRTC options such as "-DN=4", "-I/usr/local/cuda/include" (none) */
    int option_count;
    const ignis_kernel_header *headers; /* headers in memory, found before any file (none beside those of Ignis) */
    int header_count;
    const void *image; /* instead of source: what a compiler has made, a cubin, fatbin or PTX text; no options, no headers (none) */
    size_t image_size; /* bytes of it */
} ignis_kernel_desc;

typedef struct ignis_launch {
    int64_t grid[3];      /* blocks; y and z: 0 means 1. x = 0 runs nothing and succeeds, so empty arrays need no special case */
    int block[3];         /* threads, x required; y and z: 0 means 1 */
    int64_t shared_bytes; /* dynamic shared memory of a block, above 48 KB too (0) */
    bool dependent; /* the kernel may begin before what is ahead of it on the stream has ended, as it waits for that itself: all of its
                             threads call ignis_grid_dependency_wait, of ignis.cuh, before they touch what any other work touches. For compute
                             capability 9.0 and up with a driver of 12.3 and up; elsewhere it begins behind the others, as without (false) */
    bool
        cooperative; /* all blocks run at once, so that they may wait for each other: no more of them than ignis_kernel_occupancy says. Needs
                             a driver of 12.3 and up (false) */
} ignis_launch;

/*  What kind of argument an ignis_arg is; set by ignis_arg_array and its like. */
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
    int local_bytes;   /* per thread, where registers spill */
    int shared_bytes;  /* static, per block */
    int max_threads;   /* per block */
    bool from_cache;   /* true: no compiler ran for the device that is current */
} ignis_kernel_info;

/*  How many blocks of a kernel run at once. */
typedef struct ignis_occupancy {
    int block;  /* threads of a block */
    int blocks; /* of a multiprocessor */
    int grid;   /* of the device: the most that a cooperative launch may have */
} ignis_occupancy;

/*  ignis_kernel_compile - compile CUDA source for the current device, or take it from the cache
    The kernel runs on every device: on one of another architecture it is compiled again at its first launch there. With an image
    (ignis_kernel_desc.image) nothing is compiled: its tables are checked to lie inside of it, and the driver takes it or refuses it.
    Returns: the kernel, or no handle.
    Errors: ARGUMENT, LIBRARY (no NVRTC), COMPILE (the log is part of the message; or IGNIS_COMPILE_NEVER and no such program), FORMAT
    (the image, or the bundle, is damaged), UNSUPPORTED (the image is for other devices), DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_kernel_free. desc, its strings and the image are copied.
    Threads: any. */
IGNIS_API ignis_kernel ignis_kernel_compile(const ignis_kernel_desc *desc);

/*  ignis_kernel_launch - run a kernel on the current device
    args are the kernel's parameters in order; array arguments are checked, allocated if need be, and become pointers. Of parameters the driver
    tells sizes alone: an f64 array for a `float *`, or an i32 for a `float`, cannot be seen. Nor can whether a parameter is const, so a launch
    does not count as writing to an array that was written before: where it does, call ignis_array_mark_written.
    Returns: IGNIS_OK, or the reason. A fault inside the kernel shows at a later call.
    Errors: FREED, ARGUMENT (count, sizes, limits of the launch), DEVICE (an array of another device), MEMORY, CUDA.
    Ownership: unchanged; args may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_kernel_launch(ignis_kernel kernel, const ignis_launch *launch, const ignis_arg *args, int arg_count);

/*  ignis_kernel_query - registers, memory and limits of a kernel on the current device
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT, LIBRARY, COMPILE, CUDA.
    Ownership: info->entry lives as long as the kernel.
    Threads: any. */
IGNIS_API ignis_status ignis_kernel_query(ignis_kernel kernel, ignis_kernel_info *info);

/*  ignis_kernel_entry - another __global__ function of a kernel's program, as a handle of its own
    It shares the program: one compilation, and one set of variables on each device. entry is one of those that ignis_kernel_desc.entry names, or
    one that the program has under just this name, as it is extern "C". ignis_kernel_reload of any handle replaces the program of all.
    Returns: the kernel, or no handle.
    Errors: FREED, ARGUMENT, COMPILE (the program has no such entry), LIBRARY, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_kernel_free. The program lives as long as one of its handles does.
    Threads: any. */
IGNIS_API ignis_kernel ignis_kernel_entry(ignis_kernel kernel, const char *entry);

/*  ignis_kernel_occupancy - how many blocks of a kernel run at once on the current device; with a block of 0 threads, of which size
    block: threads of a block; 0: the size of which most threads run at once, and of several such the largest. shared_bytes: as in ignis_launch.
    Returns: IGNIS_OK, and *out filled. Its blocks are 0 where not even one fits.
    Errors: FREED, ARGUMENT (null, a block or shared_bytes outside the limits of device and kernel), LIBRARY, COMPILE, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_kernel_occupancy(ignis_kernel kernel, int block, int64_t shared_bytes, ignis_occupancy *out);

/*  ignis_kernel_set_symbol - write to a __constant__ or __device__ variable of a kernel's program, on the current device
    name: as in the source for a variable outside of namespaces, else its mangled name. size: all of its bytes. Each program that was compiled has
    variables of its own, on each device, with the values of the source at first; handles of ignis_kernel_entry share them.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null, no such variable, another size), LIBRARY, COMPILE, UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: data may be reused when the call returns.
    Threads: any. Streams: queued on the current stream: what other streams launch is not ordered with it. */
IGNIS_API ignis_status ignis_kernel_set_symbol(ignis_kernel kernel, const char *name, const void *data, int64_t size);

/*  ignis_kernel_get_symbol - read a __constant__ or __device__ variable of a kernel's program on the current device; see ignis_kernel_set_symbol
    Returns: IGNIS_OK, and data filled; zeros in a dry run.
    Errors: FREED, ARGUMENT (null, no such variable, another size), LIBRARY, COMPILE, UNSUPPORTED (this thread captures a graph), CUDA.
    Ownership: nothing to free.
    Threads: any. Streams: waits for the current one: what other streams write is not waited for. */
IGNIS_API ignis_status ignis_kernel_get_symbol(ignis_kernel kernel, const char *name, void *data, int64_t size);

/*  ignis_kernel_reload - compile another program in the background, and let a kernel be that one when it is ready
    Handles of ignis_kernel_entry for the same program take it, too: it has to have their entries, and names in desc those that are not extern "C".
    Launches go on with the old program meanwhile, and for ever if the new one does not compile: then the logger gets the compiler's log,
    and ignis_ticket_wait the failure. Threads may launch the kernel all the time; each launch, and each capture, takes what is the newest
    then. Variables of the new program (ignis_kernel_set_symbol) have the values of its source. Of several reloads the one that was asked for
    last wins.
    What was replaced stays loaded until the kernel is freed.
    Returns: a ticket for ignis_ticket_wait, or no handle.
    Errors: FREED, ARGUMENT, DEVICE, MEMORY. By ignis_ticket_wait: LIBRARY (no NVRTC), COMPILE, MEMORY, CUDA.
    Ownership: desc and its strings are copied. The caller ends the ticket by ignis_ticket_wait.
    Threads: any. Compiles on a thread of its own, for each device that the kernel was used on. */
IGNIS_API ignis_ticket ignis_kernel_reload(ignis_kernel kernel, const ignis_kernel_desc *desc);

/*  ignis_kernel_free - free a kernel
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures a graph).
    Ownership: the handle is stale afterwards; launches that are queued still run, and graphs that captured one keep the kernel.
    Threads: any. */
IGNIS_API ignis_status ignis_kernel_free(ignis_kernel kernel);

/*  ignis_arg_array, _i32, _i64, _f32, _f64, _ptr - one kernel argument; ignis_arg_bytes - a struct passed by value
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

/*  ignis_warmup - compile Ignis' own kernels, and count kernels of the caller, ahead of their first use, on parallel threads
    descs may be null when count is 0. With IGNIS_COMPILE_NEVER, of Ignis' own those that the bundle has are loaded.
    Returns: IGNIS_OK, or the first failure; the others are compiled all the same.
    Errors: ARGUMENT, LIBRARY, COMPILE, DEVICE, MEMORY, CUDA.
    Ownership: everything goes to the caches; nothing to free.
    Threads: any. Waits for the compilers. */
IGNIS_API ignis_status ignis_warmup(const ignis_kernel_desc *descs, int count);

/*  ignis_warmup_record - compile all that an earlier run has asked for, in the background, ahead of its first use
    path: a record (ignis_desc.record, IGNIS_RECORD): of formulas and kernels in variants, of which ignis_warmup knows nothing, it is what
    tells dtypes, ranks and options. The programs in it that are for the current device are compiled on parallel threads, but for those that a
    bundle or a cache has, and go to the caches. What is used meanwhile is not compiled twice: its first use waits. A line that does not
    compile fails with its number in the message; the others are compiled all the same.
    Returns: a ticket for ignis_ticket_wait, or no handle.
    Errors: ARGUMENT, IO (no such file), FORMAT (a line is no line of a record, or of another version of Ignis), DEVICE, MEMORY. By
    ignis_ticket_wait: LIBRARY, COMPILE, MEMORY, CUDA, the first failure.
    Ownership: the file is read before the call returns. The caller ends the ticket by ignis_ticket_wait.
    Threads: any. Compiles on threads of its own. */
IGNIS_API ignis_ticket ignis_warmup_record(const char *path);

/*  What is in a bundle, and what of it the current device can use. */
typedef struct ignis_bundle_info {
    int version;            /* IGNIS_VERSION of the ignis_embed that made it */
    int64_t bytes;          /* of the bundle */
    int programs, images;   /* programs, and what they were compiled to: one for each architecture */
    int usable, missing;    /* programs that have an image for the device; that have none, and that it may ask for */
    char architectures[64]; /* "75 80 90a ptx75": a number with ptx before it stands for PTX */
} ignis_bundle_info;

/*  ignis_bundle_check - whether the bundle of ignis_setup is whole, of this version, and serves the current device; info may be null
    Unpacks each image and looks at it, which takes 15 ms for each megabyte that comes out; the driver is not asked. One failure names all that
    was found: another version of Ignis, other kernels than those of this program, images that are damaged, programs without an image for the
    device. What the program will ask for and nobody recorded it cannot know.
    Returns: IGNIS_OK, or the reason; *info is filled in both cases, unless there is no bundle.
    Errors: ARGUMENT (there is no bundle), FORMAT, MISMATCH, COMPILE (programs are missing), DEVICE, MEMORY.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_bundle_check(ignis_bundle_info *info);
