/* >>setup - ignis_setup and ignis_shutdown; libraries ----------------------------------------------------------- */

/*  The source of Ignis' host memory. Set both functions or none. Called from any thread. */
typedef struct ignis_allocator {
    void *(*alloc_fn)(size_t size, void *user_data);
    void (*free_fn)(void *ptr, void *user_data);
    void *user_data;
} ignis_allocator;

/*  The kernels that compute matrix products. Built-in kernels and cuBLASLt each sum in a fixed order. The orders
    differ, and so do the last bits. */
typedef enum ignis_matmul_backend {
    IGNIS_MATMUL_AUTO,
    /* built-in kernels for large products of f16, bf16 and tf32 on compute capability 9.0; else
    cuBLASLt, if found */
    IGNIS_MATMUL_CUBLASLT, /* cuBLASLt alone; without it products fail */
    IGNIS_MATMUL_OWN,      /* built-in kernels alone; cuBLASLt is not loaded */
    IGNIS_MATMUL_MEASURE,
    /* the faster one of each kind of product, measured once a device and kept in the kernel
    cache's folder */
    IGNIS_MATMUL_COUNT
} ignis_matmul_backend;
#define ignis_matmul_by ignis_matmul_backend /* the name up to 0.4; gone in 0.6 */

/*  Which kernels compute ignis_sdpa. */
typedef enum ignis_attention_backend {
    IGNIS_ATTENTION_AUTO, /* IGNIS_ATTENTION_WGMMA where it is possible, else IGNIS_ATTENTION_MMA */
    IGNIS_ATTENTION_MMA,  /* tensor cores of every device that has them; plain CUDA C for other devices and shapes */
    IGNIS_ATTENTION_WGMMA,
    /* kernels for compute capability 9.0 where ignis_sdpa allows them; else
    IGNIS_ATTENTION_MMA */
    IGNIS_ATTENTION_COUNT
} ignis_attention_backend;
#define ignis_attention_by ignis_attention_backend /* the name up to 0.4; gone in 0.6 */

/*  Whether the program may compile kernels where it runs: see ON SHIPPING. */
typedef enum ignis_compile_policy {
    IGNIS_COMPILE_AUTO,  /* compile kernels that are in no bundle and no cache */
    IGNIS_COMPILE_NEVER, /* a kernel that is in no bundle and no cache is an error; NVRTC is never opened */
    IGNIS_COMPILE_COUNT
} ignis_compile_policy;
#define ignis_compile_when ignis_compile_policy /* the name up to 0.4; gone in 0.6 */

typedef struct ignis_desc {
    int device;                 /* the device that threads start with (0) */
    const char *cuda_library;   /* path of libcuda / nvcuda (searched) */
    const char *nvrtc_library;  /* path of libnvrtc (searched when the first kernel is compiled) */
    const char *cublas_library; /* path of libcublasLt (searched at the first matrix product; optional) */
    const char *nccl_library;   /* path of libnccl, for ignis_collective.h (searched when needed) */
    const char *cache_dir;      /* folder of the kernel cache (IGNIS_CACHE_DIR, else the user's cache folder); "off" for
    no cache */
    int64_t cache_limit;        /* bytes that the kernel cache may hold (256 MiB) */
    int64_t memory_limit;       /* bytes of device memory that Ignis may reserve on each device (no limit) */
    bool allow_tf32;            /* true: products of f32 may round their factors to tf32 (10 bits), which is
    several times faster */
    bool memory_bypass;         /* true: no caching of device memory, each block is one
    driver allocation (IGNIS_MEMORY_BYPASS=1) */
    bool verbose;               /* true: the logger receives
    information, too (IGNIS_VERBOSE=1) */
    ignis_allocator allocator;  /* malloc and free */
    ignis_logger logger;        /* writes warnings and errors to stderr */
    ignis_matmul_backend matmul;       /* kernels for matrix products (IGNIS_MATMUL=cublaslt, own or measure; usually
    the faster ones) */
    ignis_attention_backend attention; /* which kernels compute ignis_sdpa (IGNIS_ATTENTION=mma or
    wgmma; the fastest) */
    const char *record;                /* file that each requested program is added to, for
    ignis_embed (IGNIS_RECORD; none) */
    const void *bundle;                /* programs compiled by ignis_embed, in
    memory that lives until ignis_shutdown (none) */
    size_t bundle_size;                /* bytes of it */
    const char *bundle_path;           /* a bundle in a file (IGNIS_BUNDLE; none) */
    ignis_compile_policy compile;
    /* whether other programs may be compiled (IGNIS_COMPILE=never; yes) */ bool dry_run; /*
    true: no driver, nothing runs, memory is only counted (IGNIS_DRY_RUN=1): see ON DRY RUNS */
    const struct ignis_device_info
        *dry_device; /* the device of a dry run; facts that are 0 are those of an H200 (all) */
    bool
        trace_memory; /* true: ignis_memory_rows knows the parts of the peak (IGNIS_TRACE_MEMORY=1; always in a dry run)
    */
} ignis_desc;

/*  Libraries that are opened at run time. */
typedef enum ignis_library {
    IGNIS_LIBRARY_CUDA = 1,
    IGNIS_LIBRARY_NVRTC,
    IGNIS_LIBRARY_CUBLASLT,
    IGNIS_LIBRARY_NCCL,
    IGNIS_LIBRARY_COUNT
} ignis_library;

typedef struct ignis_library_info {
    const char *path; /* the name it was opened by; "linked" with IGNIS_LINK_CUDA, except NCCL */
    int version;
    /* 1000 * major + 10 * minor */
    int functions;       /* functions that Ignis knows */
    int functions_found; /* functions that this version of the library has */
} ignis_library_info;

/*  ignis_setup - load the driver and get ready; desc may be null for all defaults
    Opens no context and uses no device memory: a device is opened at its first use.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (set up already, contradictory desc), LIBRARY (no driver; the message lists every place that was
    tried), DEVICE (no such device), IO and FORMAT (of the bundle; the record), MEMORY.
    Ownership: desc and its strings are copied, desc->bundle is not.
    Threads: one thread, before the others use Ignis. */
IGNIS_API ignis_status ignis_setup(const ignis_desc *desc);

/*  ignis_shutdown - report what is still alive and free everything: arrays, tensors, kernels, graphs, optimizers,
    channels
    The report goes to the logger, one line for each of the first 20 objects. Kernels are named by their source file,
    or the caller's line (ignis_call_site). Handles stay stale for ever, also after another ignis_setup. Without a
    setup the call does nothing.
    Returns: IGNIS_OK, or the first driver error met on the way; everything is released all the same.
    Errors: CUDA, ARGUMENT (inside a function that ignis_backward, ignis_checkpoint or ignis_gradcheck runs: nothing
    is freed then).
    Ownership: wrapped memory and streams stay the caller's.
    Threads: one thread, when no other is inside an Ignis call. Waits for all devices that were used. */
IGNIS_API ignis_status ignis_shutdown(void);

/*  ignis_version_string - return IGNIS_VERSION_MAJOR, _MINOR and _PATCH as text
    Returns: a constant string.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_version_string(void);

/*  ignis_call_site - set the source line of the calling thread, for ignis_memory_rows and profiles It is valid
    until the next call. With IGNIS_TRACE_CALLS defined before the #include, calls that return a handle or put work on
    a stream set it themselves.
    Returns: nothing.
    Errors: none.
    Ownership: file is a constant string, such as __FILE__.
    Threads: any; each has its own. */
IGNIS_API void ignis_call_site(const char *file, int line);

/*  ignis_library_query - load a library unless it is loaded, and return where it came from
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, LIBRARY (missing; the message lists every place that was tried).
    Ownership: info->path lives until ignis_shutdown.
    Threads: any. */
IGNIS_API ignis_status ignis_library_query(ignis_library library, ignis_library_info *info);
