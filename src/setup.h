/* >>setup - ignis_setup and ignis_shutdown; libraries ----------------------------------------------------------- */

/*  Where Ignis' own host memory comes from. Set both functions or none. Called from any thread. */
typedef struct ignis_allocator {
    void *(*alloc_fn)(size_t size, void *user_data);
    void (*free_fn)(void *ptr, void *user_data);
    void *user_data;
} ignis_allocator;

/*  Who computes matrix products. Own kernels sum in a fixed order; so does cuBLASLt, in another one, so the last bits of the two differ. */
typedef enum ignis_matmul_by {
    IGNIS_MATMUL_AUTO,     /* own kernels for large products of f16, bf16 and tf32 on compute capability 9.0; else cuBLASLt, if found */
    IGNIS_MATMUL_CUBLASLT, /* cuBLASLt alone; without it products fail */
    IGNIS_MATMUL_OWN,      /* own kernels alone; cuBLASLt is not loaded */
    IGNIS_MATMUL_MEASURE,  /* the faster one of each kind of product, measured once a device and kept in the kernel cache's folder */
    IGNIS_MATMUL_COUNT
} ignis_matmul_by;

/*  Which kernels compute ignis_sdpa. */
typedef enum ignis_attention_by {
    IGNIS_ATTENTION_AUTO, /* IGNIS_ATTENTION_WGMMA where it can be had, else IGNIS_ATTENTION_MMA */
    IGNIS_ATTENTION_MMA, /* for tensor cores of every device that has them, in plain CUDA C for the others and for what those do not take */
    IGNIS_ATTENTION_WGMMA, /* for devices of compute capability 9.0, where they can: see ignis_sdpa; the others where they cannot */
    IGNIS_ATTENTION_COUNT
} ignis_attention_by;

/*  Whether programs may be compiled where the program runs: see ON SHIPPING. */
typedef enum ignis_compile_when {
    IGNIS_COMPILE_AUTO,  /* what is in no bundle and no cache is compiled */
    IGNIS_COMPILE_NEVER, /* what is in no bundle and no cache is an error; NVRTC is never opened */
    IGNIS_COMPILE_COUNT
} ignis_compile_when;

typedef struct ignis_desc {
    int device;                   /* the device that threads start with (0) */
    const char *cuda_library;     /* path of libcuda / nvcuda (searched) */
    const char *nvrtc_library;    /* path of libnvrtc (searched when a kernel has to be compiled) */
    const char *cublas_library;   /* path of libcublasLt (searched when a matrix product is asked for; none is needed) */
    const char *nccl_library;     /* path of libnccl, for ignis_collective.h (searched when asked for) */
    const char *cache_dir;        /* folder of the kernel cache (IGNIS_CACHE_DIR, else the user's cache folder); "off": none */
    int64_t cache_limit;          /* bytes that the kernel cache may hold (256 MiB) */
    int64_t memory_limit;         /* bytes of device memory that Ignis may reserve on each device (no limit) */
    bool allow_tf32;              /* true: products of f32 may round their factors to tf32 (10 bits), which is several times faster */
    bool memory_bypass;           /* true: no caching of device memory, each block is one driver allocation (IGNIS_MEMORY_BYPASS=1) */
    bool verbose;                 /* true: the logger gets information too (IGNIS_VERBOSE=1) */
    ignis_allocator allocator;    /* malloc and free */
    ignis_logger logger;          /* writes warnings and errors to stderr */
    ignis_matmul_by matmul;       /* who computes matrix products (IGNIS_MATMUL=cublaslt, own or measure; the faster as a rule) */
    ignis_attention_by attention; /* which kernels compute ignis_sdpa (IGNIS_ATTENTION=mma or wgmma; the fastest) */
    const char *record;           /* file to which each program that is asked for is added, for ignis_embed (IGNIS_RECORD; none) */
    const void *bundle;           /* programs that ignis_embed has compiled, in memory that lives until ignis_shutdown (none) */
    size_t bundle_size;           /* bytes of it */
    const char *bundle_path;      /* the same in a file (IGNIS_BUNDLE; none) */
    ignis_compile_when compile;   /* whether other programs may be compiled (IGNIS_COMPILE=never; yes) */
    bool dry_run;                 /* true: no driver, nothing runs, memory is only counted (IGNIS_DRY_RUN=1): see ON DRY RUNS */
    const struct ignis_device_info *dry_device; /* the device of a dry run: facts that are 0 are those of an H200 (all) */
    bool trace_memory; /* true: ignis_memory_rows knows what the peak was made of (IGNIS_TRACE_MEMORY=1; always in a dry run) */
} ignis_desc;

/*  The libraries that are opened at run time. */
typedef enum ignis_library {
    IGNIS_LIBRARY_CUDA = 1,
    IGNIS_LIBRARY_NVRTC,
    IGNIS_LIBRARY_CUBLASLT,
    IGNIS_LIBRARY_NCCL,
    IGNIS_LIBRARY_COUNT
} ignis_library;

typedef struct ignis_library_info {
    const char *path;    /* the name it was opened by; "linked" with IGNIS_LINK_CUDA, but for NCCL */
    int version;         /* 1000 * major + 10 * minor */
    int functions;       /* functions that Ignis knows */
    int functions_found; /* of which this version has so many */
} ignis_library_info;

/*  ignis_setup - load the driver and get ready; desc may be null for all defaults
    Opens no context and uses no device memory yet: a device is opened when it is first used.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (set up already, contradictory desc), LIBRARY (no driver; the message lists every place that was
    tried), DEVICE (no such device), IO and FORMAT (of the bundle; the record), MEMORY.
    Ownership: desc and its strings are copied, desc->bundle is not.
    Threads: one thread, before the others use Ignis. */
IGNIS_API ignis_status ignis_setup(const ignis_desc *desc);

/*  ignis_shutdown - free everything that Ignis holds, after reporting what is still alive: arrays, tensors, kernels, graphs, optimizers, channels
    It is said to the logger, a line each up to 20; of kernels with the file of their source, or the caller's line (ignis_call_site).
    Handles from before stay stale for ever, also after another ignis_setup. Without a setup it does nothing.
    Returns: IGNIS_OK, or the first driver error met on the way; everything is released all the same.
    Errors: CUDA, ARGUMENT (inside a function that ignis_backward, ignis_checkpoint or ignis_gradcheck runs: nothing is freed then).
    Ownership: wrapped memory and streams stay the caller's.
    Threads: one thread, when no other is inside an Ignis call. Waits for all devices that were used. */
IGNIS_API ignis_status ignis_shutdown(void);

/*  ignis_version_string - IGNIS_VERSION_MAJOR, _MINOR and _PATCH as text
    Returns: a constant string.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_version_string(void);

/*  ignis_call_site - say where in the caller's code the calling thread is, for ignis_memory_rows and what is made of them
    It holds until the next one. With IGNIS_TRACE_CALLS defined before the #include, calls that return a handle or put work on a
    stream say it themselves.
    Returns: nothing.
    Errors: none.
    Ownership: file is a constant string, such as __FILE__.
    Threads: any; each has its own. */
IGNIS_API void ignis_call_site(const char *file, int line);

/*  ignis_library_query - load a library if it is not loaded, and say which file it came from
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, LIBRARY (missing; the message lists every place that was tried).
    Ownership: info->path lives until ignis_shutdown.
    Threads: any. */
IGNIS_API ignis_status ignis_library_query(ignis_library library, ignis_library_info *info);
