/*  ignis.h - v0.1.0 - GPU arrays with tracked ownership and CUDA kernels compiled at run time, for C and C++

    MIT licence, at the end of the file. What has changed: CHANGELOG.md.

    HOW TO USE

        Copy ignis.h and ignis_kernels.h into your project. In ONE C or C++ file, above the #include:

            #define IGNIS_IMPLEMENTATION
            #include "ignis.h"

        and build it with one of

            cc hello.c -o hello -lm -ldl -lpthread
            nvcc hello.cu

        Every other file just includes ignis.h. No CUDA toolkit is needed to compile, and nothing is linked but the C library: the driver
        (libcuda) is opened by ignis_setup, the compiler (NVRTC) when the first kernel has to be compiled.

    ---- begin example first
    #define IGNIS_IMPLEMENTATION
    #include "ignis.h"
    #include <stdio.h>

    int main(void)
    {
        const char *source = "extern \"C\" __global__ void twice(float *y, const float *x, int n)"
                             "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; }";
        ignis_array_desc shape = {.shape = IGNIS_SHAPE(4)};
        ignis_kernel_desc desc = {.source = source, .entry = "twice"};
        ignis_launch launch = {.grid = {1}, .block = {32}};
        float numbers[4] = {1, 2, 3, 4};
        ignis_setup(NULL);
        ignis_array x = ignis_array_create(&shape), y = ignis_array_create(&shape);
        ignis_kernel twice = ignis_kernel_compile(&desc);
        ignis_array_from_host(x, numbers, IGNIS_F32, 4);
        ignis_arg args[] = {ignis_arg_array(y), ignis_arg_array(x), ignis_arg_i32(4)};
        ignis_kernel_launch(twice, &launch, args, 3);
        ignis_array_to_host(y, numbers, IGNIS_F32, 4);
        if (ignis_status_last() == IGNIS_OK)
            printf("%g %g %g %g\n", numbers[0], numbers[1], numbers[2], numbers[3]);
        ignis_array_free(x);
        ignis_array_free(y);
        return ignis_shutdown() != IGNIS_OK;
    }
    ---- end example

    WHAT IT DOES NOT DO

        No strided arrays: an array, and every view of one, is contiguous. No managed memory. No 32-bit systems. Nothing but NVIDIA GPUs.
        It does not order your streams for you: as in CUDA, work on two streams runs in any order unless events say otherwise (Ignis orders
        what it does itself: memory is never reused before its last user is done, on whatever stream of Ignis' calls that was).

    STEP BY STEP

        ignis_setup                 once, from one thread; null for defaults
        ignis_array_create          a shape, a dtype; device memory is taken when the array is first used
        ignis_array_from_host       copy and convert from the host; ignis_array_to_host back, waiting for the result
        ignis_kernel_compile        your CUDA source, compiled for the current device, or taken from the cache
        ignis_kernel_launch         grid, block, arguments that are checked against the kernel's parameters
        ignis_array_free            as its owner; a second free is an error, not a crash
        ignis_shutdown              reports what you forgot to free, and frees it

    ON ERRORS (>>status)

        A call that can fail returns ignis_status, or a handle whose id is 0. The first failure of a thread is kept until
        ignis_status_clear: its status, a numbered diagnostic, the call, and a sentence that says what was expected and what came. A call
        that is given handle 0 fails quietly when a failure is recorded already: so a chain of calls is checked once, at its end, and the
        message is that of the first thing that went wrong. Warnings and errors go to ignis_desc.logger, or to stderr: never nowhere.
        Whatever fails leaves everything else as it was: the library keeps working.

            status              who can mend it
            NOT_SETUP ARGUMENT SHAPE DTYPE FREED CONTRACT COMPILE MISMATCH     you: the program is wrong
            MEMORY                                                             you: free something, or ask for less
            LIBRARY DEVICE UNSUPPORTED                                         the machine: driver, NVRTC, GPU
            CUDA                                                               the driver; often a fault in a kernel
            IO FORMAT PEER TIMEOUT                                             files and other processes

        A fault inside a kernel (an access out of bounds, say) shows at a later call, and the driver then refuses everything on that
        device until the process ends. Ignis reports it once as CUDA, then as DEVICE. Host memory and other devices go on.

    ON MEMORY (>>memory)

        Freed device memory stays in a cache, one per device, ordered by streams: the next array on the same stream takes it without a
        driver call or a wait. When the driver has no more, Ignis takes over blocks of other streams behind an event, gives free segments
        back, tries again, and only then says out of memory, with all the numbers. ignis_memory_query shows them, ignis_memory_trim gives
        free segments back, ignis_desc.memory_limit bounds what is reserved. With ignis_desc.memory_bypass (or IGNIS_MEMORY_BYPASS=1) each array has
        an allocation of its own, as compute-sanitizer needs it to see accesses beyond the end; it is slow.

    ON OWNERSHIP (>>contract)

        Every array has an owner: IGNIS_OWNER_IGNIS, or a layer that works on it for a while and acquires it first
        (IGNIS_OWNER_NVCCL, the collective layer; IGNIS_OWNER_WNAIS, the storage layer).

            - only the owner frees; anybody may ask ignis_contract_assert_owner
            - nobody frees while ref_count is above 0; ownership does not move while it is above 1
            - acquiring what one owns already, and releasing what one does not own, are errors
            - views (slice, reshape) are arrays of their own: freeing the parent leaves them valid, and their memory alive
            - wrapped memory (ignis_array_desc.ptr) is never freed by Ignis

        ignis_contract_audit lists tracked arrays by age; what is alive at ignis_shutdown is reported.

    ON KERNELS (>>kernel)

        Kernels are compiled by NVRTC to machine code of the device ("sm_90a" where there is such a form), and kept in memory and on disk
        ($IGNIS_CACHE_DIR, else ~/.cache/ignis; the least recently used go beyond 256 MiB). A cached kernel needs no
        compiler run, but NVRTC must be there: its version is part of the key. Errors name your file and line (ignis_kernel_desc.name). There is no
        include path; #include "ignis.cuh" gives a kernel bf16 and half types, 16-byte packs and reductions.

    ON STREAMS AND CUDART

        Ignis uses each device's primary context, as the CUDA runtime does, so pointers, streams and events mix: wrap cudaMalloc memory
        with ignis_array_desc.ptr, put work into your cudaStream_t with ignis_stream_use, give ignis_array_device_ptr to your own kernels. Call
        ignis_stream_forget before you destroy a stream that Ignis has used.

    ON THREADS

        Every function may be called from any thread, and one handle be used by several: the loser of a race to free gets an error. Each
        thread has its own current device, current stream and first failure. After fork, every call in the child fails: CUDA does not
        survive fork. Compiling a kernel holds nobody up but those who want the same one.

    OPTIONS, for the file with the implementation; each with its price

        #define IGNIS_STATIC       all functions are static: no symbols, one copy per file that includes it
        #define IGNIS_API ...      linkage of your own, such as __declspec(dllexport)
        #define IGNIS_LINK_CUDA    bind to libcuda, NVRTC and cuBLASLt at link time: needs toolkit 12.4 or newer to build,
                                   -lcuda -lnvrtc -lcublasLt to link, and all three where it runs
        #define IGNIS_ASSERT(c)    instead of assert
        ignis_desc.allocator       instead of malloc; handle slots and messages still come from malloc, as they outlive ignis_shutdown

    LIMITS

        Driver for CUDA 11.4 or newer, NVRTC 11.2 or newer, a GPU that this NVRTC compiles for. 8 dimensions, 64 devices, 2^28 live
        handles of a kind, 64 kernel parameters, 2^31 - 1 blocks of 4096 elements in one built-in operation.
        On Windows it is compiled with MinGW in its tests; other compilers are written for and not tested there.
*/
#ifndef IGNIS_INCLUDED
#define IGNIS_INCLUDED

#define IGNIS_VERSION_MAJOR 0
#define IGNIS_VERSION_MINOR 1
#define IGNIS_VERSION_PATCH 0

#if defined(IGNIS_IMPLEMENTATION) && defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE) && \
    !defined(_DEFAULT_SOURCE) && !defined(_XOPEN_SOURCE) && !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L /* -std=c99 hides the system calls that the platform section needs */
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef IGNIS_API
#if defined(IGNIS_STATIC) && defined(__GNUC__)
#define IGNIS_API static __attribute__((unused))
#elif defined(IGNIS_STATIC)
#define IGNIS_API static
#else
#define IGNIS_API extern
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------------
   Types and option structs. Every option struct may be zero-initialised: 0 means the default named beside the field. */

/*  Handles. 0 is no handle. A handle names a slot and its generation, so one that was freed is recognised for ever. */
typedef struct ignis_array {
    uint64_t id;
} ignis_array;

typedef struct ignis_kernel {
    uint64_t id;
} ignis_kernel;

/* >>status ------------------------------------------------------------------------------------------------------ */

/*  IGNIS_STATUSES - every status, as X(enumerator suffix, meaning). */
#define IGNIS_STATUSES(X)                                                                \
    X(NOT_SETUP, "ignis_setup has not been called, or the process was forked after it")  \
    X(ARGUMENT, "an argument is out of its range, null or contradictory")                \
    X(SHAPE, "shapes do not fit together, or a size overflows")                          \
    X(DTYPE, "an element type is not the one that is needed")                            \
    X(FREED, "the handle was freed, or never existed")                                   \
    X(CONTRACT, "a rule of the memory contract was about to be broken")                  \
    X(MEMORY, "host, pinned or device memory has run out")                               \
    X(LIBRARY, "the driver, NVRTC or cuBLASLt is missing, or too old")                   \
    X(DEVICE, "no such device, or the device was lost to an earlier fault")              \
    X(COMPILE, "CUDA source did not compile; the log is in the message")                 \
    X(CUDA, "the driver refused a call")                                                 \
    X(UNSUPPORTED, "the request is meaningful, but this device or version cannot do it") \
    X(IO, "a file could not be read or written")                                         \
    X(FORMAT, "a file is not what it claims to be")                                      \
    X(PEER, "another process died or broke the protocol")                                \
    X(TIMEOUT, "a deadline has passed")                                                  \
    X(MISMATCH, "ranks disagree about a collective operation")

typedef enum ignis_status {
    IGNIS_OK = 0,
#define IGNIS__STATUS_ENUM(name, meaning) IGNIS_ERROR_##name,
    IGNIS_STATUSES(IGNIS__STATUS_ENUM)
#undef IGNIS__STATUS_ENUM
        IGNIS_STATUS_COUNT
} ignis_status;

/*  IGNIS_DIAGNOSTICS - every thing that can go wrong, as X(enumerator suffix, status suffix, the rule).
    A message text may improve from version to version; these ids stay, so tests and tools compare ids. */
#define IGNIS_DIAGNOSTICS(X)                                                                        \
    X(NOT_SETUP, NOT_SETUP, "call ignis_setup first")                                               \
    X(FORKED, NOT_SETUP, "CUDA does not survive fork; call ignis_setup in the child's own program") \
    X(ALREADY_SETUP, ARGUMENT, "call ignis_shutdown before the next ignis_setup")                   \
    X(NULL_ARGUMENT, ARGUMENT, "a pointer that must not be null is null")                           \
    X(BAD_ENUM, ARGUMENT, "an enumerator is outside its enumeration")                               \
    X(BAD_NUMBER, ARGUMENT, "a number is outside its range")                                        \
    X(COUNT_MISMATCH, ARGUMENT, "a count is not the one that is needed")                            \
    X(SHAPE_RANK, SHAPE, "a shape has 1 to IGNIS_MAX_DIMS dimensions")                              \
    X(SHAPE_DIM, SHAPE, "a dimension is not negative")                                              \
    X(SHAPE_OVERFLOW, SHAPE, "the number of elements and bytes fits 63 bits")                       \
    X(SHAPE_DIFFERS, SHAPE, "shapes are equal, or hold equally many elements")                      \
    X(SLICE_RANGE, SHAPE, "a slice lies inside its dimension")                                      \
    X(SLICE_STRIDED, SHAPE, "only contiguous slices can be views")                                  \
    X(ROWS_OVERFLOW, SHAPE, "rows are written inside the destination")                              \
    X(DTYPE_DIFFERS, DTYPE, "arrays have the same element type")                                    \
    X(ARRAY_FREED, FREED, "an array is used only while its handle is live")                         \
    X(KERNEL_FREED, FREED, "a kernel is used only while its handle is live")                        \
    X(ARRAY_UNWRITTEN, ARGUMENT, "an array is written before it is read")                           \
    X(WRONG_KIND, FREED, "a handle is used only as what it is")                                     \
    X(FREE_BY_OTHER, CONTRACT, "only its owner frees an array")                                     \
    X(FREE_REFERENCED, CONTRACT, "an array is not freed while others hold references to it")        \
    X(DOUBLE_ACQUIRE, CONTRACT, "an owner does not acquire what it owns already")                   \
    X(RELEASE_BY_OTHER, CONTRACT, "only its owner releases an array")                               \
    X(TRANSFER_REFERENCED, CONTRACT, "ownership does not move while ref_count is above 1")          \
    X(OWNER_DIFFERS, CONTRACT, "an array is owned by the expected owner")                           \
    X(REF_COUNT_ZERO, CONTRACT, "a reference is given back only after it was taken")                \
    X(REF_COUNT_OVERFLOW, CONTRACT, "a reference count stays below 2^31")                           \
    X(PIN_TWICE, CONTRACT, "pinned host memory is allocated once per array")                        \
    X(PIN_MISSING, CONTRACT, "pinned host memory is freed only after it was allocated")             \
    X(ARRAY_LEAKED, CONTRACT, "every array is freed before shutdown")                               \
    X(HOST_MEMORY, MEMORY, "the host allocator has memory")                                         \
    X(DEVICE_MEMORY, MEMORY, "the device has memory")                                               \
    X(PINNED_MEMORY, MEMORY, "the system has pinned host memory")                                   \
    X(LIBRARY_MISSING, LIBRARY, "the library is installed where it is looked for")                  \
    X(LIBRARY_SYMBOL, LIBRARY, "the library is new enough to have the function")                    \
    X(DEVICE_NONE, DEVICE, "there is a CUDA device")                                                \
    X(DEVICE_RANGE, DEVICE, "a device ordinal is below ignis_device_count")                         \
    X(DEVICE_DIFFERS, DEVICE, "arrays, streams and kernels of one call are on one device")          \
    X(DEVICE_LOST, DEVICE, "a device that has faulted is of no use to the process any more")        \
    X(COMPILE_FAILED, COMPILE, "the CUDA source compiles")                                          \
    X(ENTRY_MISSING, COMPILE, "the source has a __global__ function of the entry's name")           \
    X(ARG_COUNT, ARGUMENT, "a kernel gets as many arguments as it has parameters")                  \
    X(ARG_SIZE, ARGUMENT, "an argument is as large as the kernel's parameter")                      \
    X(LAUNCH_SIZE, ARGUMENT, "a launch stays inside the limits of device and kernel")               \
    X(CUDA_CALL, CUDA, "the driver accepts the call")                                               \
    X(STREAM_INVALID, ARGUMENT, "a stream belongs to the current device")                           \
    X(UNSUPPORTED, UNSUPPORTED, "the device and the libraries can do what is asked")                \
    X(CACHE_IO, IO, "the kernel cache folder can be read and written")

typedef enum ignis_diagnostic {
    IGNIS_DIAG_NONE = 0,
#define IGNIS__DIAGNOSTIC_ENUM(name, status, rule) IGNIS_DIAG_##name,
    IGNIS_DIAGNOSTICS(IGNIS__DIAGNOSTIC_ENUM)
#undef IGNIS__DIAGNOSTIC_ENUM
        IGNIS_DIAG_COUNT
} ignis_diagnostic;

/*  The first failure of a thread since ignis_status_clear. Strings live until the thread's next ignis_status_clear. */
typedef struct ignis_status_info {
    ignis_status status;
    ignis_diagnostic diagnostic;
    const char *call;        /* the public function that failed */
    const char *message;     /* "call: what was expected and what came" */
    int driver_error;        /* CUresult, nvrtcResult or cublasStatus_t; 0: none */
    const char *driver_name; /* its name, "" for none */
    const char *log;         /* the whole compile log, "" for none */
} ignis_status_info;

typedef enum ignis_log_level { IGNIS_LOG_INFO = 1, IGNIS_LOG_WARNING, IGNIS_LOG_ERROR } ignis_log_level;

/*  Gets every warning and error at the moment it happens, and information when ignis_desc.verbose is set.
    It is called on the thread that failed, and must not call Ignis. */
typedef struct ignis_logger {
    void (*log_fn)(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data);
    void *user_data;
} ignis_logger;

/*  Where Ignis' own host memory comes from. Set both functions or none. Called from any thread. */
typedef struct ignis_allocator {
    void *(*alloc_fn)(size_t size, void *user_data);
    void (*free_fn)(void *ptr, void *user_data);
    void *user_data;
} ignis_allocator;

typedef struct ignis_desc {
    int device;                 /* the device that threads start with (0) */
    const char *cuda_library;   /* path of libcuda / nvcuda (searched) */
    const char *nvrtc_library;  /* path of libnvrtc (searched when a kernel has to be compiled) */
    const char *cublas_library; /* path of libcublasLt (searched when a matrix product is asked for) */
    const char *nccl_library;   /* path of libnccl, for ignis_collective.h (searched when asked for) */
    const char *cache_dir;      /* folder of the kernel cache (IGNIS_CACHE_DIR, else the user's cache folder); "off": none */
    int64_t cache_limit;        /* bytes that the kernel cache may hold (256 MiB) */
    int64_t memory_limit;       /* bytes of device memory that Ignis may reserve on each device (no limit) */
    bool memory_bypass;         /* true: no caching of device memory, each block is one driver allocation (IGNIS_MEMORY_BYPASS=1) */
    bool verbose;               /* true: the logger gets information too (IGNIS_VERBOSE=1) */
    ignis_allocator allocator;  /* malloc and free */
    ignis_logger logger;        /* writes warnings and errors to stderr */
} ignis_desc;

/* >>device ------------------------------------------------------------------------------------------------------ */

#define IGNIS_MAX_DEVICES 64

typedef struct ignis_device_info {
    int device; /* Ignis' and the driver's ordinal */
    char name[128];
    unsigned char uuid[16];
    char pci_bus_id[16]; /* "0000:1b:00.0" */
    int compute_major, compute_minor;
    int multiprocessors;
    int warp_size; /* threads */
    int max_threads_per_block;
    int shared_per_block; /* bytes of shared memory that a block may ask for, the opt-in maximum */
    int64_t l2_bytes;
    int64_t memory_total; /* bytes */
    int driver_version;   /* 1000 * major + 10 * minor, such as 13000 */
} ignis_device_info;

typedef enum ignis_library { IGNIS_LIBRARY_CUDA = 1, IGNIS_LIBRARY_NVRTC, IGNIS_LIBRARY_CUBLASLT, IGNIS_LIBRARY_COUNT } ignis_library;

typedef struct ignis_library_info {
    const char *path;    /* the name it was opened by; "linked" with IGNIS_LINK_CUDA */
    int version;         /* 1000 * major + 10 * minor */
    int functions;       /* functions that Ignis knows */
    int functions_found; /* of which this version has so many */
} ignis_library_info;

/* >>memory ------------------------------------------------------------------------------------------------------ */

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
} ignis_memory_info;

/* >>array ------------------------------------------------------------------------------------------------------- */

#define IGNIS_MAX_DIMS 8

typedef struct ignis_shape {
    int ndim;
    int64_t dim[IGNIS_MAX_DIMS];
} ignis_shape;

/*  IGNIS_DTYPES - every element type, as X(enumerator suffix, lower-case name, bytes). */
#define IGNIS_DTYPES(X) \
    X(F16, f16, 2)      \
    X(BF16, bf16, 2)    \
    X(F32, f32, 4)      \
    X(F64, f64, 8)      \
    X(I32, i32, 4)      \
    X(I64, i64, 8)      \
    X(U8, u8, 1)

typedef enum ignis_dtype {
    IGNIS_DTYPE_DEFAULT = 0, /* IGNIS_F32 */
#define IGNIS__DTYPE_ENUM(NAME, name, size) IGNIS_##NAME,
    IGNIS_DTYPES(IGNIS__DTYPE_ENUM)
#undef IGNIS__DTYPE_ENUM
        IGNIS_DTYPE_COUNT
} ignis_dtype;

/*  Who may free an array or move its ownership: Ignis itself, the collective layer, the storage layer. */
typedef enum ignis_owner {
    IGNIS_OWNER_DEFAULT = 0, /* in option structs: IGNIS_OWNER_IGNIS */
    IGNIS_OWNER_IGNIS,
    IGNIS_OWNER_NVCCL,
    IGNIS_OWNER_WNAIS,
    IGNIS_OWNER_COUNT
} ignis_owner;

/*  Names device 0 in an option struct while another device is current. */
#define IGNIS_DEVICE_0 (-1)

typedef struct ignis_array_desc {
    ignis_shape shape; /* required: IGNIS_SHAPE(rows, columns) */
    ignis_dtype dtype; /* IGNIS_F32 */
    int device;        /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    ignis_owner owner; /* IGNIS_OWNER_IGNIS */
    void *stream;      /* stream in whose order its memory is taken and given back (the current stream at its first use) */
    void *ptr;         /* device memory to wrap, never freed by Ignis (its own memory, allocated at the first use) */
    const char *tag;   /* a name for messages and audits; copied, the first 31 bytes count ("") */
} ignis_array_desc;

typedef struct ignis_array_info {
    uint64_t id; /* counts up from 1 within the process, never used twice */
    ignis_shape shape;
    ignis_dtype dtype;
    int device;
    ignis_owner owner;
    int ref_count;
    void *stream;          /* null until memory is allocated, unless the desc named one */
    void *ptr;             /* device memory; null until it is allocated */
    void *pinned_host_ptr; /* null unless ignis_array_pin was called */
    int64_t created_at_ns; /* nanoseconds since 1970-01-01 UTC */
    bool owns_memory;      /* false for views and wrapped memory */
    bool on_device;        /* device memory is allocated */
    uint64_t parent;       /* info.id of the array it is a view of; 0: none */
    char tag[32];
} ignis_array_info;

/* >>contract ---------------------------------------------------------------------------------------------------- */

typedef struct ignis_contract_entry {
    uint64_t array_id; /* ignis_array_info.id */
    ignis_owner owner; /* now, or when it was freed */
    int64_t age_ms;    /* since it was tracked */
    ignis_shape shape;
    ignis_dtype dtype;
    bool freed;
    char tag[32];
    int64_t bytes;
    int ref_count;
    int views; /* other arrays that use the same memory */
} ignis_contract_entry;

/* >>kernel ------------------------------------------------------------------------------------------------------ */

typedef struct ignis_kernel_desc {
    const char *source;         /* required: CUDA C++ text; #include "ignis.cuh" gives it the types and helpers of Ignis' own kernels */
    const char *name;           /* the file name that compile errors show ("kernel.cu") */
    const char *entry;          /* required: the __global__ function; a template instance or namespaced name is fine: "scale<float>" */
    const char *const *options; /* NVRTC options such as "-DN=4" (none) */
    int option_count;
} ignis_kernel_desc;

typedef struct ignis_launch {
    int64_t grid[3];      /* blocks; y and z: 0 means 1. x = 0 runs nothing and succeeds, so empty arrays need no special case */
    int block[3];         /* threads, x required; y and z: 0 means 1 */
    int64_t shared_bytes; /* dynamic shared memory of a block, above 48 KB too (0) */
} ignis_launch;

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

/* ---------------------------------------------------------------------------------------------------------------
   Functions. Each is documented in one form: what it does, then Returns, Errors, Ownership, Threads. "any" after
   Threads: callable from any thread at any time, also on one handle from several. Streams are named only where work
   is put on one: that is always the calling thread's current stream of the array's device, and the call does not wait
   unless it says so. Every function but ignis_setup, ignis_version_string and the status functions fails with
   IGNIS_ERROR_NOT_SETUP before ignis_setup, after ignis_shutdown and in a forked child. */

/* >>setup ------------------------------------------------------------------------------------------------------- */

/*  ignis_setup - load the driver and get ready; desc may be null for all defaults
    Opens no context and uses no device memory yet: a device is opened when it is first used.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (set up already, contradictory desc), LIBRARY (no driver; the message lists every place that was
    tried), DEVICE (no such device), MEMORY.
    Ownership: desc and its strings are copied.
    Threads: one thread, before the others use Ignis. */
IGNIS_API ignis_status ignis_setup(const ignis_desc *desc);

/*  ignis_shutdown - free everything that Ignis holds, after reporting each array that is still alive
    Handles from before stay stale for ever, also after another ignis_setup. Without a setup it does nothing.
    Returns: IGNIS_OK, or the first driver error met on the way; everything is let go all the same.
    Errors: CUDA.
    Ownership: wrapped memory and streams stay the caller's.
    Threads: one thread, when no other is inside an Ignis call. Waits for all devices that were used. */
IGNIS_API ignis_status ignis_shutdown(void);

/*  ignis_version_string - "0.1.0"
    Returns: a constant string.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_version_string(void);

/*  ignis_library_query - load a library if it is not loaded, and say which file it came from
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, LIBRARY (missing; the message lists every place that was tried).
    Ownership: info->path lives until ignis_shutdown.
    Threads: any. */
IGNIS_API ignis_status ignis_library_query(ignis_library library, ignis_library_info *info);

/* >>status ------------------------------------------------------------------------------------------------------ */

/*  ignis_status_last - the first failure of this thread since ignis_status_clear
    Returns: its status, IGNIS_OK for none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; each has its own. */
IGNIS_API ignis_status ignis_status_last(void);

/*  ignis_status_message - the sentence of that failure, such as "ignis_array_slice: dim 3 is outside [2, 3]"
    Returns: the text, "" for no failure.
    Errors: none.
    Ownership: lives until this thread's ignis_status_clear.
    Threads: any; each has its own. */
IGNIS_API const char *ignis_status_message(void);

/*  ignis_status_query - everything that is known of that failure
    Returns: its status.
    Errors: none; a null info is allowed.
    Ownership: the strings live until this thread's ignis_status_clear.
    Threads: any; each has its own. */
IGNIS_API ignis_status ignis_status_query(ignis_status_info *info);

/*  ignis_status_clear - forget the failure, so that the next one is kept
    Returns: nothing.
    Errors: none.
    Ownership: frees the texts of the failure.
    Threads: any; each has its own. */
IGNIS_API void ignis_status_clear(void);

/*  ignis_status_name - "IGNIS_ERROR_SHAPE" for IGNIS_ERROR_SHAPE
    Returns: a constant string, "unknown status" for a number that is none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_status_name(ignis_status status);

/*  ignis_diagnostic_name - "SLICE_STRIDED" for IGNIS_DIAG_SLICE_STRIDED
    Returns: a constant string, "unknown diagnostic" for a number that is none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_diagnostic_name(ignis_diagnostic diagnostic);

/*  ignis_diagnostic_rule - the rule behind a diagnostic: "only contiguous slices can be views"
    Returns: a constant string, "" for a number that is none.
    Errors: none.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API const char *ignis_diagnostic_rule(ignis_diagnostic diagnostic);

/* >>device ------------------------------------------------------------------------------------------------------ */

/*  ignis_device_count - how many CUDA devices this process sees
    Returns: the count, 0 when there is none or on failure.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_device_count(void);

/*  ignis_device_query - facts about one device; opens no context
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, DEVICE (no such device).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_device_query(int device, ignis_device_info *info);

/*  ignis_device_use - make a device the calling thread's current one, and open it if need be
    Afterwards its primary context is current in this thread, so cudart code follows along.
    Returns: IGNIS_OK, or the reason.
    Errors: DEVICE (no such device, or lost), MEMORY, CUDA.
    Ownership: Ignis holds the primary context until ignis_shutdown.
    Threads: any; each has its own current device. */
IGNIS_API ignis_status ignis_device_use(int device);

/*  ignis_device_current - the calling thread's current device
    Returns: its ordinal, -1 before ignis_setup.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any; each has its own. */
IGNIS_API int ignis_device_current(void);

/*  ignis_stream_use - put the calling thread's work on the current device into the caller's cudaStream_t or CUstream
    null goes back to Ignis' own stream. CU_STREAM_LEGACY and CU_STREAM_PER_THREAD ((void *)1 and 2) are accepted.
    Ignis' own stream is a blocking one, so it is ordered with the legacy default stream of cudart code.
    Returns: IGNIS_OK, or the reason.
    Errors: ARGUMENT (the stream is of another device), CUDA.
    Ownership: the stream stays the caller's; call ignis_stream_forget before destroying it.
    Threads: any; each has its own current stream per device. */
IGNIS_API ignis_status ignis_stream_use(void *stream);

/*  ignis_stream_current - the stream that the calling thread's work on the current device goes to
    Returns: a CUstream (also a cudaStream_t), null on failure.
    Errors: NOT_SETUP, DEVICE, CUDA.
    Ownership: stays where it was.
    Threads: any; each has its own. */
IGNIS_API void *ignis_stream_current(void);

/*  ignis_stream_forget - before the caller destroys a stream: wait for it, and let go of it
    Memory of arrays made on it moves to Ignis' own stream; a thread that has it as its current stream goes back to that one
    at its next call.
    Returns: IGNIS_OK; also for a stream that Ignis never saw.
    Errors: ARGUMENT (null), CUDA.
    Ownership: the stream stays the caller's.
    Threads: any. Waits for the stream. */
IGNIS_API ignis_status ignis_stream_forget(void *stream);

/*  ignis_synchronize - wait until all work on the current device is done, and report what failed meanwhile
    Returns: IGNIS_OK, or the failure of an earlier kernel or copy.
    Errors: DEVICE (the device was lost), CUDA.
    Ownership: nothing to free.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_synchronize(void);

/* >>memory ------------------------------------------------------------------------------------------------------ */

/*  ignis_memory_query - what Ignis holds of a device's memory, and what the device has
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, DEVICE, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_memory_query(int device, ignis_memory_info *info);

/*  ignis_memory_trim - give cached memory that no array uses back to the driver
    Returns: the number of bytes given back, -1 on failure.
    Errors: DEVICE, CUDA.
    Ownership: live arrays are not touched.
    Threads: any. May wait for the device. */
IGNIS_API int64_t ignis_memory_trim(int device);

/* >>array ------------------------------------------------------------------------------------------------------- */

/*  ignis_array_create - a new array, or one that wraps memory of the caller
    Shape: 1 to 8 dimensions, each 0 or more; numel and bytes must fit 63 bits. No device memory is taken until the
    array is first used; its content is undefined until it is written.
    Returns: the array, or no handle.
    Errors: ARGUMENT, SHAPE, DEVICE, MEMORY.
    Ownership: the caller frees it with ignis_array_free. Wrapped memory stays the caller's and must outlive the array.
    Threads: any. */
IGNIS_API ignis_array ignis_array_create(const ignis_array_desc *desc);

/*  ignis_array_free - free an array as IGNIS_OWNER_IGNIS; ignis_array_free_as - free it as the owner named
    The memory goes back in stream order once its last view is freed too; pinned host memory goes at once.
    Returns: IGNIS_OK, or why the array was left as it is.
    Errors: FREED (also for a second free), CONTRACT (another owner, or ref_count above 0).
    Ownership: the handle is stale afterwards; views of the array stay valid.
    Threads: any. Streams: work that is queued on the array still finishes first. */
IGNIS_API ignis_status ignis_array_free(ignis_array array);
IGNIS_API ignis_status ignis_array_free_as(ignis_array array, ignis_owner owner);

/*  ignis_array_is_live - whether the handle names an array that was not freed
    Returns: true or false.
    Errors: none.
    Ownership: nothing to free.
    Threads: any; another thread may free it the moment after. */
IGNIS_API bool ignis_array_is_live(ignis_array array);

/*  ignis_array_query - every attribute of an array
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: pointers in info live as long as the array's memory.
    Threads: any. */
IGNIS_API ignis_status ignis_array_query(ignis_array array, ignis_array_info *info);

/*  ignis_array_numel - number of elements; ignis_array_size_bytes - bytes of all elements
    Returns: the number, -1 on failure.
    Errors: FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int64_t ignis_array_numel(ignis_array array);
IGNIS_API int64_t ignis_array_size_bytes(ignis_array array);

/*  ignis_array_to_string - "array #7 [2, 3] f32 on device 0, owner ignis, ref_count 0, 'weights'"
    A stale handle gives "array handle 0x... (freed)".
    Returns: the length of the whole text without its end, as snprintf does; out may be null when capacity is 0.
    Errors: ARGUMENT.
    Ownership: the text is written to out, cut to capacity - 1 bytes and always ended.
    Threads: any. */
IGNIS_API int ignis_array_to_string(ignis_array array, char *out, size_t capacity);

/*  ignis_array_to_device - allocate the array's device memory now, if it is not
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, MEMORY, CUDA.
    Ownership: the memory is the array's.
    Threads: any. */
IGNIS_API ignis_status ignis_array_to_device(ignis_array array);

/*  ignis_array_device_ptr - the address of the array's first element, after ignis_array_to_device
    Returns: a device pointer (CUdeviceptr), null on failure and for an array of no elements.
    Errors: FREED, MEMORY, CUDA.
    Ownership: the array's; valid until the array and its views are freed. Work that the caller queues with the pointer
    on another stream than the array's has to be finished, or ordered before the array's stream, when the array is freed.
    Threads: any. */
IGNIS_API void *ignis_array_device_ptr(ignis_array array);

/*  ignis_array_zero - set every byte to zero
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, MEMORY, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_zero(ignis_array array);

/*  ignis_array_from_host - copy count elements of type dtype from the host, converting to the array's type
    Conversion: to a floating type rounds to nearest even, keeps NaN, infinities and signed zeros, overflows to infinity. To an
    integer type rounds toward zero and saturates; NaN becomes 0. 0 for dtype means the array's own.
    Returns: IGNIS_OK, or the reason; on failure the array's content is undefined.
    Errors: FREED, ARGUMENT (null data, count is not numel, no such dtype), MEMORY, CUDA.
    Ownership: data may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_from_host(ignis_array array, const void *data, ignis_dtype dtype, int64_t count);

/*  ignis_array_from_host_raw - copy the array's exact bytes from the host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null bytes, size is not size_bytes), MEMORY, CUDA.
    Ownership: bytes may be reused when the call returns.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_from_host_raw(ignis_array array, const void *bytes, int64_t size);

/*  ignis_array_to_host - copy all elements to the host, converting to dtype by the rules of ignis_array_from_host
    Returns: IGNIS_OK, or the reason; on failure the content of out is undefined.
    Errors: FREED, ARGUMENT (null out, count is not numel, no such dtype, the array was never written to), MEMORY, CUDA.
    Ownership: out is the caller's.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_array_to_host(ignis_array array, void *out, ignis_dtype dtype, int64_t count);

/*  ignis_array_to_host_raw - copy the array's exact bytes to the host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (null out, size is not size_bytes, the array was never written to), CUDA.
    Ownership: out is the caller's.
    Threads: any. Streams: queued on the current stream, and waits for it. */
IGNIS_API ignis_status ignis_array_to_host_raw(ignis_array array, void *out, int64_t size);

/*  ignis_array_clone - a copy that shares no memory with the array
    Returns: a new array of the same shape, dtype, device, owner and tag; or no handle.
    Errors: FREED, ARGUMENT (the array was never written to), MEMORY, CUDA.
    Ownership: the caller frees it.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_array ignis_array_clone(ignis_array array);

/*  ignis_array_slice - elements [start, start + len) along dimension dim, as a view of the same memory
    Only contiguous slices can be views: dim 0, or a dim with nothing but 1s before it.
    Returns: the view, with the array's owner and tag; or no handle.
    Errors: FREED, SHAPE (dim or range outside the shape, or a strided slice).
    Ownership: the caller frees it; it keeps the memory alive after the array itself is freed.
    Threads: any. */
IGNIS_API ignis_array ignis_array_slice(ignis_array array, int dim, int64_t start, int64_t len);

/*  ignis_array_reshape - the same elements under another shape, as a view of the same memory
    One dimension of the new shape may be -1: it becomes what is left over.
    Returns: the view, with the array's owner and tag; or no handle.
    Errors: FREED, SHAPE (numel differs, or more than one -1).
    Ownership: the caller frees it; it keeps the memory alive after the array itself is freed.
    Threads: any. */
IGNIS_API ignis_array ignis_array_reshape(ignis_array array, ignis_shape shape);

/*  ignis_array_write_rows - copy all of src into dst from row start_row on
    Shapes: dst [rows, ...], src [r, ...] of the same dtype; src must be whole rows: its bytes divide by those of a row of dst.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, DTYPE, SHAPE (not whole rows, or beyond the last row), DEVICE (different devices), ARGUMENT (src was never written to), CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_write_rows(ignis_array dst, ignis_array src, int64_t start_row);

/*  ignis_array_pin - allocate pinned (page-locked) host memory of the array's size, for staging
    Returns: the host address, null on failure (and for an array of no elements).
    Errors: FREED, CONTRACT (pinned already), MEMORY.
    Ownership: the array's; freed by ignis_array_unpin or with the array.
    Threads: any. */
IGNIS_API void *ignis_array_pin(ignis_array array);

/*  ignis_array_unpin - free the pinned host memory
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, CONTRACT (not pinned), CUDA.
    Ownership: the address of ignis_array_pin is invalid afterwards.
    Threads: any. May wait for copies that still use it. */
IGNIS_API ignis_status ignis_array_unpin(ignis_array array);

/*  ignis_array_increment_ref, ignis_array_decrement_ref - hold an array for shared staging, and let go of it
    While ref_count is above 0 the array cannot be freed; above 1 its ownership cannot move.
    Returns: the new ref_count, -1 on failure.
    Errors: FREED, CONTRACT (decrement at 0).
    Ownership: the caller gives back every reference that it takes.
    Threads: any. */
IGNIS_API int ignis_array_increment_ref(ignis_array array);
IGNIS_API int ignis_array_decrement_ref(ignis_array array);

/*  ignis_array_transfer_ownership - make owner the array's owner, whoever owns it now
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (ref_count above 1).
    Ownership: only owner may free the array afterwards.
    Threads: any. */
IGNIS_API ignis_status ignis_array_transfer_ownership(ignis_array array, ignis_owner owner);

/* >>elementwise ------------------------------------------------------------------------------------------------- */

/*  ignis_array_fill - set every element to value, converted by the rules of ignis_array_from_host
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_fill(ignis_array array, double value);

/*  ignis_array_copy - copy all elements of src into dst, converting by the rules of ignis_array_from_host
    Shapes: equal numel. dst and src may be on different devices when their dtypes are equal. They must not overlap in part.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DEVICE, ARGUMENT (src was never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream of dst's device, after the work queued on that of src's. */
IGNIS_API ignis_status ignis_array_copy(ignis_array dst, ignis_array src);

/*  ignis_array_cast - a new array of another element type with the same elements
    Returns: the new array, with the array's shape, device, owner and tag; or no handle.
    Errors: FREED, ARGUMENT, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: the caller frees it.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_array ignis_array_cast(ignis_array array, ignis_dtype dtype);

/*  ignis_array_add - dst = a + b; ignis_array_mul - dst = a * b, element by element
    Shapes: equal numel; one dtype. f16 and bf16 are computed in f32 and rounded once; integers wrap around. dst may be a or b.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (a or b was never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_add(ignis_array dst, ignis_array a, ignis_array b);
IGNIS_API ignis_status ignis_array_mul(ignis_array dst, ignis_array a, ignis_array b);

/*  ignis_array_scale - dst = src * factor, element by element
    Shapes: equal numel; one dtype. f16, bf16 and f32 are computed in f32 with the factor rounded to f32; integers are computed in f64
    and converted by the rules of ignis_array_from_host. dst may be src.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, SHAPE, DTYPE, DEVICE, ARGUMENT (src was never written to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_status ignis_array_scale(ignis_array dst, ignis_array src, double factor);

/* >>contract ---------------------------------------------------------------------------------------------------- */

/*  ignis_contract_acquire - take the ownership of an array for a layer, before that layer works on it
    The array is tracked from then on.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (already owned by it, or ref_count above 1).
    Ownership: moves to by.
    Threads: any; acquisitions are one at a time. */
IGNIS_API ignis_status ignis_contract_acquire(ignis_array array, ignis_owner by);

/*  ignis_contract_release - give the ownership of an array back to IGNIS_OWNER_IGNIS
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (not owned by it, or ref_count above 1).
    Ownership: moves to IGNIS_OWNER_IGNIS.
    Threads: any; releases are one at a time. */
IGNIS_API ignis_status ignis_contract_release(ignis_array array, ignis_owner by);

/*  ignis_contract_assert_owner - check that an array is owned by the expected owner
    Returns: IGNIS_OK if it is.
    Errors: FREED, ARGUMENT (no such owner), CONTRACT (another owner).
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_contract_assert_owner(ignis_array array, ignis_owner owner);

/*  ignis_contract_track - watch an array in the audit; ignis_contract_untrack - stop, also after it was freed
    Tracking again starts its age anew. An array that was tracked by this call stays in the audit as freed until it is untracked;
    one that was only acquired leaves with its free.
    Returns: IGNIS_OK, or the reason; untracking what is not tracked is fine.
    Errors: FREED (track), MEMORY.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_contract_track(ignis_array array);
IGNIS_API ignis_status ignis_contract_untrack(ignis_array array);

/*  ignis_contract_audit - list the tracked arrays older than min_age_ms milliseconds, oldest first
    0 means 5000, as leaks show only with age; a negative number lists all. entries may be null when capacity is 0.
    Returns: how many there are, also when that is more than capacity; -1 on failure.
    Errors: ARGUMENT.
    Ownership: entries are copies.
    Threads: any. */
IGNIS_API int ignis_contract_audit(ignis_contract_entry *entries, int capacity, int64_t min_age_ms);

/*  ignis_contract_tracked_count - how many arrays are tracked
    Returns: the count, -1 on failure.
    Errors: NOT_SETUP.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_contract_tracked_count(void);

/*  ignis_contract_reset - forget everything that is tracked; owners and arrays stay as they are
    Returns: IGNIS_OK.
    Errors: NOT_SETUP.
    Ownership: unchanged.
    Threads: any. */
IGNIS_API ignis_status ignis_contract_reset(void);

/* >>kernel ------------------------------------------------------------------------------------------------------ */

/*  ignis_kernel_compile - compile CUDA source for the current device, or take it from the cache
    The kernel runs on every device: on one of another architecture it is compiled again at its first launch there.
    Returns: the kernel, or no handle.
    Errors: ARGUMENT, LIBRARY (no NVRTC), COMPILE (the log is part of the message), DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it with ignis_kernel_free. desc and its strings are copied.
    Threads: any. */
IGNIS_API ignis_kernel ignis_kernel_compile(const ignis_kernel_desc *desc);

/*  ignis_kernel_launch - run a kernel on the current device
    args are the kernel's parameters in order; array arguments are checked, allocated if need be, and become pointers.
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

/*  ignis_kernel_free - free a kernel
    Returns: IGNIS_OK, or the reason.
    Errors: FREED.
    Ownership: the handle is stale afterwards; launches that are queued still run.
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
    descs may be null when count is 0.
    Returns: IGNIS_OK, or the first failure; the others are compiled all the same.
    Errors: ARGUMENT, LIBRARY, COMPILE, DEVICE, MEMORY, CUDA.
    Ownership: everything goes to the caches; nothing to free.
    Threads: any. Waits for the compilers. */
IGNIS_API ignis_status ignis_warmup(const ignis_kernel_desc *descs, int count);

#ifdef __cplusplus
} /* extern "C" */

/*  In C++ option structs can be passed by reference: ignis_array_create({...}). */
inline ignis_status ignis_setup(const ignis_desc &desc) { return ignis_setup(&desc); }
inline ignis_array ignis_array_create(const ignis_array_desc &desc) { return ignis_array_create(&desc); }
inline ignis_kernel ignis_kernel_compile(const ignis_kernel_desc &desc) { return ignis_kernel_compile(&desc); }
inline ignis_status ignis_kernel_launch(ignis_kernel kernel, const ignis_launch &launch, const ignis_arg *args, int arg_count)
{
    return ignis_kernel_launch(kernel, &launch, args, arg_count);
}

template <typename... ignis__dims> inline ignis_shape ignis__make_shape(ignis__dims... dims)
{
    static_assert(sizeof...(dims) >= 1 && sizeof...(dims) <= IGNIS_MAX_DIMS, "a shape has 1 to IGNIS_MAX_DIMS dimensions");
    return ignis_shape{int(sizeof...(dims)), {static_cast<int64_t>(dims)...}};
}

#define IGNIS_SHAPE(...) ignis__make_shape(__VA_ARGS__)
#define IGNIS_NO_ARRAY (ignis_array{0})
#else
#define IGNIS_SHAPE(...) ((ignis_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define IGNIS_NO_ARRAY ((ignis_array){0})
#endif

#endif /* IGNIS_INCLUDED */

/* ===============================================================================================================
   Implementation. Layers, bottom first; a section uses only what stands above it.
   =============================================================================================================== */
#ifdef IGNIS_IMPLEMENTATION
#ifndef IGNIS_IMPLEMENTED
#define IGNIS_IMPLEMENTED

/* ===============================================================================================================
   >>platform - threads, atomics, clock, libraries, files, host memory. The only place that knows the system.
   =============================================================================================================== */

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _WIN32
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#if defined(__GLIBC__) && !defined(__USE_XOPEN2K8)
#error "ignis.h: with -std=c99 or c11, put #define _POSIX_C_SOURCE 200809L above the first #include of this file"
#endif
#endif

#if UINTPTR_MAX != 0xFFFFFFFFFFFFFFFF
#error "ignis.h needs a 64-bit system, as CUDA does"
#endif

#ifndef IGNIS_ASSERT
#include <assert.h>
#define IGNIS_ASSERT(condition) assert(condition)
#endif

/* clang-format off */
#ifdef __cplusplus
#define IGNIS__ZERO {}
#else
#define IGNIS__ZERO {0}
#endif
/* clang-format on */

#if defined(__MINGW_PRINTF_FORMAT)
#define IGNIS__PRINTF(at, first) __attribute__((format(__MINGW_PRINTF_FORMAT, at, first)))
#elif defined(__GNUC__)
#define IGNIS__PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define IGNIS__PRINTF(at, first)
#endif

#define IGNIS__COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/*  Atomics: acquire on load, release on store, both on read-modify-write. */
#if defined(__GNUC__)
#define IGNIS__TLS __thread
static uint64_t ignis__atomic_load(const uint64_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static void ignis__atomic_store(uint64_t *at, uint64_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
static uint64_t ignis__atomic_add(uint64_t *at, uint64_t value) { return __atomic_add_fetch(at, value, __ATOMIC_ACQ_REL); }
static bool ignis__atomic_swap_if(uint64_t *at, uint64_t *expected, uint64_t value)
{
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
static int ignis__log2(uint64_t value) { return 63 - __builtin_clzll(value); }
static int ignis__lowest_bit(uint64_t value) { return __builtin_ctzll(value); }
#else
#include <intrin.h>
#define IGNIS__TLS __declspec(thread)
static uint64_t ignis__atomic_load(const uint64_t *at) { return (uint64_t)_InterlockedOr64((volatile __int64 *)at, 0); }
static void ignis__atomic_store(uint64_t *at, uint64_t value) { _InterlockedExchange64((volatile __int64 *)at, (__int64)value); }
static uint64_t ignis__atomic_add(uint64_t *at, uint64_t value)
{
    return (uint64_t)_InterlockedExchangeAdd64((volatile __int64 *)at, (__int64)value) + value;
}
static bool ignis__atomic_swap_if(uint64_t *at, uint64_t *expected, uint64_t value)
{
    uint64_t was = (uint64_t)_InterlockedCompareExchange64((volatile __int64 *)at, (__int64)value, (__int64)*expected);
    bool swapped = was == *expected;
    *expected = was;
    return swapped;
}
static int ignis__log2(uint64_t value)
{
    unsigned long bit;
    _BitScanReverse64(&bit, value);
    return (int)bit;
}
static int ignis__lowest_bit(uint64_t value)
{
    unsigned long bit;
    _BitScanForward64(&bit, value);
    return (int)bit;
}
#endif

#ifdef _WIN32

typedef SRWLOCK ignis__mutex;
#define IGNIS__MUTEX_INIT SRWLOCK_INIT
static void ignis__mutex_init(ignis__mutex *mutex) { InitializeSRWLock(mutex); }
static void ignis__mutex_lock(ignis__mutex *mutex) { AcquireSRWLockExclusive(mutex); }
static void ignis__mutex_unlock(ignis__mutex *mutex) { ReleaseSRWLockExclusive(mutex); }

typedef HANDLE ignis__thread_handle;
#define IGNIS__THREAD_RESULT DWORD WINAPI
static bool ignis__thread_start(ignis__thread_handle *thread, DWORD(WINAPI *run)(void *), void *context)
{
    *thread = CreateThread(NULL, 0, run, context, 0, NULL);
    return *thread != NULL;
}
static void ignis__thread_join(ignis__thread_handle thread)
{
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
}
static int ignis__core_count(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (int)info.dwNumberOfProcessors;
}

/*  Calls release(value) when the calling thread ends. */
static DWORD ignis__thread_exit_slot = FLS_OUT_OF_INDEXES;
static void ignis__at_thread_exit(void(WINAPI *release)(void *), void *value)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    ignis__mutex_lock(&lock);
    if (ignis__thread_exit_slot == FLS_OUT_OF_INDEXES)
        ignis__thread_exit_slot = FlsAlloc(release);
    ignis__mutex_unlock(&lock);
    FlsSetValue(ignis__thread_exit_slot, value);
}
#define IGNIS__THREAD_EXIT_FN void WINAPI

static void ignis__at_fork(void (*in_child)(void)) { (void)in_child; }

static int64_t ignis__wall_ns(void)
{
    FILETIME time; /* 100 ns ticks since 1601 */
    GetSystemTimeAsFileTime(&time);
    return ((int64_t)(((uint64_t)time.dwHighDateTime << 32) | time.dwLowDateTime) - 116444736000000000) * 100;
}
static int64_t ignis__monotonic_ns(void)
{
    LARGE_INTEGER count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    return count.QuadPart / frequency.QuadPart * 1000000000 + count.QuadPart % frequency.QuadPart * 1000000000 / frequency.QuadPart;
}

#ifndef IGNIS_LINK_CUDA
static void *ignis__library_open(const char *path, char *why, size_t why_size)
{
    HMODULE module = LoadLibraryA(path);
    if (!module)
        snprintf(why, why_size, "LoadLibrary error %lu", GetLastError());
    return (void *)module;
}
static void *ignis__library_symbol(void *library, const char *name)
{
    void *symbol = NULL;
    FARPROC function = GetProcAddress((HMODULE)library, name);
    memcpy(&symbol, &function, sizeof symbol);
    return symbol;
}
#endif

/*  Calls visit(context, name) for every entry of a folder; false when it cannot be read. */
static bool ignis__folder_list(const char *path, void (*visit)(void *context, const char *name), void *context)
{
    char pattern[1024];
    WIN32_FIND_DATAA entry;
    HANDLE find;
    snprintf(pattern, sizeof pattern, "%s\\*", path);
    find = FindFirstFileA(pattern, &entry);
    if (find == INVALID_HANDLE_VALUE)
        return false;
    do
        visit(context, entry.cFileName);
    while (FindNextFileA(find, &entry));
    FindClose(find);
    return true;
}
static bool ignis__folder_make(const char *path) { return CreateDirectoryA(path, NULL) || GetLastError() == ERROR_ALREADY_EXISTS; }
static bool ignis__file_rename(const char *from, const char *to) { return MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING) != 0; }
static bool ignis__file_info(const char *path, int64_t *size, int64_t *time)
{
    WIN32_FILE_ATTRIBUTE_DATA data;
    if (!GetFileAttributesExA(path, GetFileExInfoStandard, &data) || (data.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY))
        return false;
    *size = (int64_t)(((uint64_t)data.nFileSizeHigh << 32) | data.nFileSizeLow);
    *time = (int64_t)(((uint64_t)data.ftLastWriteTime.dwHighDateTime << 32) | data.ftLastWriteTime.dwLowDateTime);
    return true;
}
static void ignis__file_touch(const char *path)
{
    HANDLE file =
        CreateFileA(path, FILE_WRITE_ATTRIBUTES, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING, 0, NULL);
    FILETIME now;
    if (file == INVALID_HANDLE_VALUE)
        return;
    GetSystemTimeAsFileTime(&now);
    SetFileTime(file, NULL, NULL, &now);
    CloseHandle(file);
}
static unsigned long ignis__process_id(void) { return GetCurrentProcessId(); }

#else /* POSIX */

typedef pthread_mutex_t ignis__mutex;
#define IGNIS__MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
static void ignis__mutex_init(ignis__mutex *mutex) { pthread_mutex_init(mutex, NULL); }
static void ignis__mutex_lock(ignis__mutex *mutex) { pthread_mutex_lock(mutex); }
static void ignis__mutex_unlock(ignis__mutex *mutex) { pthread_mutex_unlock(mutex); }

typedef pthread_t ignis__thread_handle;
#define IGNIS__THREAD_RESULT void *
static bool ignis__thread_start(ignis__thread_handle *thread, void *(*run)(void *), void *context)
{
    return pthread_create(thread, NULL, run, context) == 0;
}
static void ignis__thread_join(ignis__thread_handle thread) { pthread_join(thread, NULL); }
static int ignis__core_count(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }

/*  Calls release(value) when the calling thread ends. */
static pthread_key_t ignis__thread_exit_key;
static void ignis__at_thread_exit(void (*release)(void *), void *value)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    static bool made;
    ignis__mutex_lock(&lock);
    if (!made)
        made = pthread_key_create(&ignis__thread_exit_key, release) == 0;
    ignis__mutex_unlock(&lock);
    if (made)
        pthread_setspecific(ignis__thread_exit_key, value);
}
#define IGNIS__THREAD_EXIT_FN void

static void ignis__at_fork(void (*in_child)(void)) { pthread_atfork(NULL, NULL, in_child); }

static int64_t ignis__clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
static int64_t ignis__wall_ns(void) { return ignis__clock_ns(CLOCK_REALTIME); }
static int64_t ignis__monotonic_ns(void) { return ignis__clock_ns(CLOCK_MONOTONIC); }

#ifndef IGNIS_LINK_CUDA
static void *ignis__library_open(const char *path, char *why, size_t why_size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(why, why_size, "%s", dlerror());
    return library;
}
static void *ignis__library_symbol(void *library, const char *name) { return dlsym(library, name); }
#endif

/*  Calls visit(context, name) for every entry of a folder; false when it cannot be read. */
static bool ignis__folder_list(const char *path, void (*visit)(void *context, const char *name), void *context)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    if (!folder)
        return false;
    while ((entry = readdir(folder)) != NULL)
        visit(context, entry->d_name);
    closedir(folder);
    return true;
}
static bool ignis__folder_make(const char *path) { return mkdir(path, 0700) == 0 || errno == EEXIST; }
static bool ignis__file_rename(const char *from, const char *to) { return rename(from, to) == 0; }
static bool ignis__file_info(const char *path, int64_t *size, int64_t *time)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return false;
    *size = (int64_t)info.st_size;
    *time = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    return true;
}
static void ignis__file_touch(const char *path) { (void)utimensat(AT_FDCWD, path, NULL, 0); }
static unsigned long ignis__process_id(void) { return (unsigned long)getpid(); }

#endif

/*  Runs work(context, 0) to work(context, count - 1) on up to as many threads as there are cores, and waits. */
typedef struct ignis__parallel_job {
    void (*work)(void *context, int index);
    void *context;
    uint64_t next;
    uint64_t count;
} ignis__parallel_job;

static IGNIS__THREAD_RESULT ignis__parallel_run(void *pointer)
{
    ignis__parallel_job *job = (ignis__parallel_job *)pointer;
    for (;;) {
        uint64_t index = ignis__atomic_add(&job->next, 1) - 1;
        if (index >= job->count)
            return 0;
        job->work(job->context, (int)index);
    }
}

static void ignis__parallel(int count, void (*work)(void *context, int index), void *context)
{
    ignis__parallel_job job = IGNIS__ZERO;
    ignis__thread_handle threads[32];
    int started = 0, wanted = ignis__core_count();
    job.work = work;
    job.context = context;
    job.count = (uint64_t)count;
    if (wanted > IGNIS__COUNT(threads))
        wanted = IGNIS__COUNT(threads);
    if (wanted > count)
        wanted = count;
    while (started < wanted - 1 && ignis__thread_start(&threads[started], ignis__parallel_run, &job))
        started++;
    ignis__parallel_run(&job);
    while (started > 0)
        ignis__thread_join(threads[--started]);
}

/*  Host memory. Zeroed, as every struct of Ignis starts from zero. */
static ignis_allocator ignis__allocator;

static void *ignis__alloc(size_t size)
{
    void *memory = ignis__allocator.alloc_fn ? ignis__allocator.alloc_fn(size, ignis__allocator.user_data) : malloc(size);
    if (memory)
        memset(memory, 0, size);
    return memory;
}

static void ignis__free(void *memory)
{
    if (!memory)
        return;
    if (ignis__allocator.free_fn)
        ignis__allocator.free_fn(memory, ignis__allocator.user_data);
    else
        free(memory);
}

static char *ignis__copy_string(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = (char *)ignis__alloc(size);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

/*  Text that grows at its end inside a fixed buffer; what does not fit is cut, and the text always ended. */
typedef struct ignis__text {
    char *data;
    size_t capacity, length; /* length counts what would have been written, as snprintf does */
} ignis__text;

static void ignis__text_begin(ignis__text *text, char *data, size_t capacity)
{
    text->data = data;
    text->capacity = capacity;
    text->length = 0;
    if (capacity)
        data[0] = 0;
}

static void ignis__text_addv(ignis__text *text, const char *format, va_list args) IGNIS__PRINTF(2, 0);
static void ignis__text_addv(ignis__text *text, const char *format, va_list args)
{
    size_t used = text->length < text->capacity ? text->length : text->capacity;
    int added = vsnprintf(used < text->capacity ? text->data + used : NULL, text->capacity - used, format, args);
    if (added > 0)
        text->length += (size_t)added;
}

static void ignis__text_add(ignis__text *text, const char *format, ...) IGNIS__PRINTF(2, 3);
static void ignis__text_add(ignis__text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ignis__text_addv(text, format, args);
    va_end(args);
}

/*  Reads a whole regular file into memory of ignis__alloc; null when it cannot be read. */
static void *ignis__file_read(const char *path, size_t *size)
{
    int64_t length, time;
    void *data;
    FILE *file;
    if (!ignis__file_info(path, &length, &time) || (file = fopen(path, "rb")) == NULL)
        return NULL;
    *size = (size_t)length;
    data = ignis__alloc(*size + 1);
    if (data && fread(data, 1, *size, file) != *size) {
        ignis__free(data);
        data = NULL;
    }
    fclose(file);
    return data;
}

/*  Makes a folder and those above it. */
static bool ignis__folder_make_all(const char *path)
{
    char part[1024];
    size_t i, length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return false;
    for (i = 1; i < length; i++) {
        if (path[i] != '/' && path[i] != '\\')
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        (void)ignis__folder_make(part); /* may exist, or be a drive; the last one tells */
    }
    return ignis__folder_make(path);
}

/*  A 64-bit FNV-1a hash (Fowler, Noll, Vo), continued from `hash`. */
#define IGNIS__HASH_START 0xCBF29CE484222325u
static uint64_t ignis__hash(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *byte = (const unsigned char *)data;
    while (size--)
        hash = (hash ^ *byte++) * 0x100000001B3u;
    return hash;
}

/* ===============================================================================================================
   >>status - the error record of each thread, the logger, names of statuses and diagnostics.
   =============================================================================================================== */

/*  Every call of a driver library passes through here, so tests can count calls and make the n-th one fail. */
#ifndef IGNIS_CALL_HOOK
#define IGNIS_CALL_HOOK(name, call) (call)
#endif

/*  One failure. */
typedef struct ignis__record {
    ignis_status status;
    ignis_diagnostic diagnostic;
    const char *call;
    int driver_error;
    const char *driver_name;
    char *message;   /* from malloc, as it may outlive ignis_shutdown; or ignis__thread.text */
    const char *log; /* the end of message */
} ignis__record;

/*  What a thread keeps. The device section uses the last part. */
typedef struct ignis__thread {
    ignis__record record; /* the first failure */
    ignis_status latest;  /* of the last one, recorded or not */
    char text[256];       /* the message of a failure for which there was no memory */

    uint64_t setup; /* the setup that the rest belongs to: an older one is forgotten */
    int device;
    uint64_t forgets; /* ignis_stream_forget calls seen */
    void *stream[IGNIS_MAX_DEVICES];
    uint64_t stream_serial[IGNIS_MAX_DEVICES];
} ignis__thread;

static IGNIS__TLS ignis__thread ignis__this_thread;

static struct {
    uint64_t ready;  /* between ignis_setup and ignis_shutdown */
    uint64_t forked; /* this process is a child of the one that called ignis_setup */
    uint64_t setups; /* how many there were */
    bool verbose;
    ignis_logger logger;
} ignis__global;

static void ignis__log(ignis_log_level level, ignis_diagnostic diagnostic, const char *message)
{
    static const char *const names[] = {"", "info", "warning", "error"};
    if (level == IGNIS_LOG_INFO && !ignis__global.verbose)
        return;
    if (ignis__global.logger.log_fn)
        ignis__global.logger.log_fn(level, diagnostic, message, ignis__global.logger.user_data);
    else
        fprintf(stderr, "ignis: %s: %s\n", names[level], message);
}

static void ignis__note(ignis_log_level level, ignis_diagnostic diagnostic, const char *format, ...) IGNIS__PRINTF(3, 4);
static void ignis__note(ignis_log_level level, ignis_diagnostic diagnostic, const char *format, ...)
{
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ignis__log(level, diagnostic, message);
}

/* clang-format off */
static const struct {
    const char *name;
    ignis_status status;
    const char *rule;
} ignis__diagnostics[] = {
    {"NONE", IGNIS_OK, ""},
#define IGNIS__DIAGNOSTIC_ROW(name, status, rule) {#name, IGNIS_ERROR_##status, rule},
    IGNIS_DIAGNOSTICS(IGNIS__DIAGNOSTIC_ROW)
#undef IGNIS__DIAGNOSTIC_ROW
};
/* clang-format on */

static void ignis__record_drop(ignis__thread *thread)
{
    if (thread->record.message != thread->text)
        free(thread->record.message);
    memset(&thread->record, 0, sizeof thread->record);
}

/*  Makes a record that another thread has filled this thread's first failure, if it has none; or frees it. */
static ignis_status ignis__record_adopt(ignis__record *record)
{
    ignis__thread *thread = &ignis__this_thread;
    ignis_status status = record->status;
    thread->latest = status;
    if (thread->record.status == IGNIS_OK)
        thread->record = *record;
    else
        free(record->message);
    return status;
}

static IGNIS__THREAD_EXIT_FN ignis__thread_exit(void *thread) { ignis__record_drop((ignis__thread *)thread); }

static ignis_status ignis__failv(ignis__record cause, const char *format, va_list args) IGNIS__PRINTF(2, 0);
static ignis_status ignis__failv(ignis__record cause, const char *format, va_list args)
{
    ignis__thread *thread = &ignis__this_thread;
    const char *log = cause.log ? cause.log : "";
    ignis__text text;
    char local[256];
    int round;

    cause.status = ignis__diagnostics[cause.diagnostic].status;
    cause.message = local;
    ignis__text_begin(&text, local, sizeof local);
    for (round = 0; round < 2; round++) { /* the first round measures, where the text is long */
        va_list again;
        va_copy(again, args);
        ignis__text_add(&text, "%s: ", cause.call);
        ignis__text_addv(&text, format, again);
        ignis__text_add(&text, "%s%s", *log ? "\n" : "", log);
        va_end(again);
        if (round == 1 || (cause.message = (char *)malloc(text.length + 1)) == NULL)
            break;
        ignis__text_begin(&text, cause.message, text.length + 1);
    }
    if (!cause.message)
        cause.message = local;
    cause.log = cause.message == local ? "" : cause.message + text.length - strlen(log);
    if (!cause.driver_name)
        cause.driver_name = "";

    thread->latest = cause.status;
    ignis__log(IGNIS_LOG_ERROR, cause.diagnostic, cause.message);
    if (thread->record.status != IGNIS_OK) { /* the first failure is the one worth knowing */
        if (cause.message != local)
            free(cause.message);
        return cause.status;
    }
    if (cause.message == local) {
        memcpy(thread->text, local, sizeof local);
        cause.message = thread->text;
    }
    thread->record = cause;
    ignis__at_thread_exit(ignis__thread_exit, thread);
    return cause.status;
}

static ignis_status ignis__fail(ignis_diagnostic diagnostic, const char *call, const char *format, ...) IGNIS__PRINTF(3, 4);
static ignis_status ignis__fail(ignis_diagnostic diagnostic, const char *call, const char *format, ...)
{
    ignis__record cause = IGNIS__ZERO;
    ignis_status status;
    va_list args;
    cause.diagnostic = diagnostic;
    cause.call = call;
    va_start(args, format);
    status = ignis__failv(cause, format, args);
    va_end(args);
    return status;
}

static ignis_status ignis__fail_because(ignis_diagnostic diagnostic, const char *call, int error, const char *name, const char *log,
                                        const char *format, ...) IGNIS__PRINTF(6, 7);
static ignis_status ignis__fail_because(ignis_diagnostic diagnostic, const char *call, int error, const char *name, const char *log,
                                        const char *format, ...)
{
    ignis__record cause = IGNIS__ZERO;
    ignis_status status;
    va_list args;
    cause.diagnostic = diagnostic;
    cause.call = call;
    cause.driver_error = error;
    cause.driver_name = name;
    cause.log = log;
    va_start(args, format);
    status = ignis__failv(cause, format, args);
    va_end(args);
    return status;
}

static ignis_status ignis__fail_host_memory(const char *call, size_t size)
{
    return ignis__fail(IGNIS_DIAG_HOST_MEMORY, call, "out of host memory: %lld bytes were asked for", (long long)size);
}

static ignis_status ignis__fail_null(const char *call, const char *argument)
{
    return ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "%s is null", argument);
}

/*  The status of the failure that was just reported, for the caller of what reported it. */
static ignis_status ignis__failed(void) { return ignis__this_thread.latest; }

/*  The check that stands first in every public function. */
static bool ignis__enter(const char *call)
{
    if (ignis__atomic_load(&ignis__global.ready) && !ignis__atomic_load(&ignis__global.forked))
        return true;
    if (ignis__atomic_load(&ignis__global.forked))
        ignis__fail(IGNIS_DIAG_FORKED, call,
                    "this process was forked after ignis_setup, and CUDA does not work across fork; exec a new program instead");
    else
        ignis__fail(IGNIS_DIAG_NOT_SETUP, call, "ignis_setup has not been called, or ignis_shutdown has");
    return false;
}

IGNIS_API ignis_status ignis_status_last(void) { return ignis__this_thread.record.status; }

IGNIS_API const char *ignis_status_message(void)
{
    const ignis__record *record = &ignis__this_thread.record;
    return record->status == IGNIS_OK ? "" : record->message;
}

IGNIS_API ignis_status ignis_status_query(ignis_status_info *info)
{
    const ignis__record *record = &ignis__this_thread.record;
    bool failed = record->status != IGNIS_OK;
    if (info) {
        info->status = record->status;
        info->diagnostic = record->diagnostic;
        info->call = failed ? record->call : "";
        info->message = ignis_status_message();
        info->driver_error = record->driver_error;
        info->driver_name = failed ? record->driver_name : "";
        info->log = failed ? record->log : "";
    }
    return record->status;
}

IGNIS_API void ignis_status_clear(void) { ignis__record_drop(&ignis__this_thread); }

IGNIS_API const char *ignis_status_name(ignis_status status)
{
    /* clang-format off */
    static const char *const names[] = {
        "IGNIS_OK",
#define IGNIS__STATUS_NAME(name, meaning) "IGNIS_ERROR_" #name,
        IGNIS_STATUSES(IGNIS__STATUS_NAME)
#undef IGNIS__STATUS_NAME
    };
    /* clang-format on */
    return (unsigned)status < IGNIS_STATUS_COUNT ? names[status] : "unknown status";
}

IGNIS_API const char *ignis_diagnostic_name(ignis_diagnostic diagnostic)
{
    return (unsigned)diagnostic < IGNIS_DIAG_COUNT ? ignis__diagnostics[diagnostic].name : "unknown diagnostic";
}

IGNIS_API const char *ignis_diagnostic_rule(ignis_diagnostic diagnostic)
{
    return (unsigned)diagnostic < IGNIS_DIAG_COUNT ? ignis__diagnostics[diagnostic].rule : "";
}

IGNIS_API const char *ignis_version_string(void)
{
#define IGNIS__TEXT_OF(x) #x
#define IGNIS__TEXT(x) IGNIS__TEXT_OF(x)
    return IGNIS__TEXT(IGNIS_VERSION_MAJOR) "." IGNIS__TEXT(IGNIS_VERSION_MINOR) "." IGNIS__TEXT(IGNIS_VERSION_PATCH);
}

/* ===============================================================================================================
   >>loader - the driver, NVRTC and cuBLASLt, opened at run time from one table a library.
   =============================================================================================================== */

/*  X(return type, name, (argument types), first CUDA version that has it, required). The prototypes are Ignis' own: enumerations
    are int, handles void *, and device addresses ignis__address. tests/prototypes.cpp holds them against the toolkit's headers. */
typedef unsigned long long ignis__address;

#define IGNIS__CUDA_API(X)                                                                                                                 \
    X(int, cuInit, (unsigned), 2000, 1)                                                                                                    \
    X(int, cuDriverGetVersion, (int *), 2020, 1)                                                                                           \
    X(int, cuGetErrorName, (int, const char **), 6000, 1)                                                                                  \
    X(int, cuGetErrorString, (int, const char **), 6000, 1)                                                                                \
    X(int, cuDeviceGetCount, (int *), 2000, 1)                                                                                             \
    X(int, cuDeviceGet, (int *, int), 2000, 1)                                                                                             \
    X(int, cuDeviceGetName, (char *, int, int), 2000, 1)                                                                                   \
    X(int, cuDeviceGetUuid_v2, (void *, int), 11040, 1)                                                                                    \
    X(int, cuDeviceGetPCIBusId, (char *, int, int), 4010, 1)                                                                               \
    X(int, cuDeviceGetAttribute, (int *, int, int), 2000, 1)                                                                               \
    X(int, cuDeviceTotalMem_v2, (size_t *, int), 3020, 1)                                                                                  \
    X(int, cuDevicePrimaryCtxRetain, (void **, int), 7000, 1)                                                                              \
    X(int, cuDevicePrimaryCtxRelease_v2, (int), 11000, 1)                                                                                  \
    X(int, cuCtxGetCurrent, (void **), 4000, 1)                                                                                            \
    X(int, cuCtxSetCurrent, (void *), 4000, 1)                                                                                             \
    X(int, cuCtxPushCurrent_v2, (void *), 4000, 1)                                                                                         \
    X(int, cuCtxPopCurrent_v2, (void **), 4000, 1)                                                                                         \
    X(int, cuCtxSynchronize, (void), 2000, 1)                                                                                              \
    X(int, cuMemGetInfo_v2, (size_t *, size_t *), 3020, 1)                                                                                 \
    X(int, cuMemAlloc_v2, (ignis__address *, size_t), 3020, 1)                                                                             \
    X(int, cuMemFree_v2, (ignis__address), 3020, 1)                                                                                        \
    X(int, cuMemHostAlloc, (void **, size_t, unsigned), 2020, 1)                                                                           \
    X(int, cuMemFreeHost, (void *), 2000, 1)                                                                                               \
    X(int, cuPointerGetAttributes, (unsigned, int *, void **, ignis__address), 7000, 1)                                                    \
    X(int, cuMemsetD8Async, (ignis__address, unsigned char, size_t, void *), 3020, 1)                                                      \
    X(int, cuMemcpyHtoDAsync_v2, (ignis__address, const void *, size_t, void *), 3020, 1)                                                  \
    X(int, cuMemcpyDtoHAsync_v2, (void *, ignis__address, size_t, void *), 3020, 1)                                                        \
    X(int, cuMemcpyDtoDAsync_v2, (ignis__address, ignis__address, size_t, void *), 3020, 1)                                                \
    X(int, cuMemcpyPeerAsync, (ignis__address, void *, ignis__address, void *, size_t, void *), 4000, 1)                                   \
    X(int, cuStreamCreate, (void **, unsigned), 2000, 1)                                                                                   \
    X(int, cuStreamDestroy_v2, (void *), 4000, 1)                                                                                          \
    X(int, cuStreamSynchronize, (void *), 2000, 1)                                                                                         \
    X(int, cuStreamWaitEvent, (void *, void *, unsigned), 3020, 1)                                                                         \
    X(int, cuStreamGetCtx, (void *, void **), 9020, 1)                                                                                     \
    X(int, cuEventCreate, (void **, unsigned), 2000, 1)                                                                                    \
    X(int, cuEventRecord, (void *, void *), 2000, 1)                                                                                       \
    X(int, cuEventDestroy_v2, (void *), 4000, 1)                                                                                           \
    X(int, cuModuleLoadData, (void **, const void *), 2000, 1)                                                                             \
    X(int, cuModuleUnload, (void *), 2000, 1)                                                                                              \
    X(int, cuModuleGetFunction, (void **, void *, const char *), 2000, 1)                                                                  \
    X(int, cuFuncGetAttribute, (int *, int, void *), 2020, 1)                                                                              \
    X(int, cuFuncSetAttribute, (void *, int, int), 9000, 1)                                                                                \
    X(int, cuFuncGetParamInfo, (void *, size_t, size_t *, size_t *), 12040, 0)                                                             \
    X(int, cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), 4000, \
      1)

#define IGNIS__NVRTC_API(X)                                                                                                   \
    X(int, nvrtcVersion, (int *, int *), 7000, 1)                                                                             \
    X(const char *, nvrtcGetErrorString, (int), 7000, 1)                                                                      \
    X(int, nvrtcCreateProgram, (void **, const char *, const char *, int, const char *const *, const char *const *), 7000, 1) \
    X(int, nvrtcDestroyProgram, (void **), 7000, 1)                                                                           \
    X(int, nvrtcAddNameExpression, (void *, const char *), 8000, 1)                                                           \
    X(int, nvrtcCompileProgram, (void *, int, const char *const *), 7000, 1)                                                  \
    X(int, nvrtcGetProgramLogSize, (void *, size_t *), 7000, 1)                                                               \
    X(int, nvrtcGetProgramLog, (void *, char *), 7000, 1)                                                                     \
    X(int, nvrtcGetLoweredName, (void *, const char *, const char **), 8000, 1)                                               \
    X(int, nvrtcGetCUBINSize, (void *, size_t *), 11010, 1)                                                                   \
    X(int, nvrtcGetCUBIN, (void *, char *), 11010, 1)                                                                         \
    X(int, nvrtcGetPTXSize, (void *, size_t *), 7000, 1)                                                                      \
    X(int, nvrtcGetPTX, (void *, char *), 7000, 1)                                                                            \
    X(int, nvrtcGetNumSupportedArchs, (int *), 11020, 1)                                                                      \
    X(int, nvrtcGetSupportedArchs, (int *), 11020, 1)

#define IGNIS__CUBLASLT_API(X)                      \
    X(size_t, cublasLtGetVersion, (void), 10010, 1) \
    X(int, cublasLtCreate, (void **), 10010, 1)     \
    X(int, cublasLtDestroy, (void *), 10010, 1)

#define IGNIS__API_MEMBER(ret, name, args, version, required) ret(*name) args;

static struct ignis__cuda_api {
    IGNIS__CUDA_API(IGNIS__API_MEMBER)
} ignis__cuda;

static struct ignis__nvrtc_api {
    IGNIS__NVRTC_API(IGNIS__API_MEMBER)
} ignis__nvrtc;

static struct ignis__cublaslt_api {
    IGNIS__CUBLASLT_API(IGNIS__API_MEMBER)
} ignis__cublaslt;

/*  The one way to call them: IGNIS__CUDA(cuMemFree_v2, (address)). */
#define IGNIS__CUDA(name, args) IGNIS_CALL_HOOK(#name, ignis__cuda.name args)
#define IGNIS__NVRTC(name, args) IGNIS_CALL_HOOK(#name, ignis__nvrtc.name args)

typedef struct ignis__symbol {
    const char *name;
    size_t offset; /* of the pointer in its api struct */
    int version;
    bool required;
} ignis__symbol;

typedef struct ignis__library_spec {
    const char *title;
    const char *env;        /* the variable that names the file */
    const char *names[6];   /* for the system's own search, newest first */
    const char *folders[6]; /* below CUDA_PATH, and as they are */
    const char *wheels[3];  /* below each Python's site-packages */
    const char *companion;  /* a library that this one opens by itself, and must find beside it */
    const char *help;
    void *api;
    const ignis__symbol *symbols;
    int symbol_count;
} ignis__library_spec;

#define IGNIS__CUDA_SYMBOL(ret, name, args, version, required) {#name, offsetof(struct ignis__cuda_api, name), version, required},
static const ignis__symbol ignis__cuda_symbols[] = {IGNIS__CUDA_API(IGNIS__CUDA_SYMBOL)};
#define IGNIS__NVRTC_SYMBOL(ret, name, args, version, required) {#name, offsetof(struct ignis__nvrtc_api, name), version, required},
static const ignis__symbol ignis__nvrtc_symbols[] = {IGNIS__NVRTC_API(IGNIS__NVRTC_SYMBOL)};
#define IGNIS__CUBLASLT_SYMBOL(ret, name, args, version, required) {#name, offsetof(struct ignis__cublaslt_api, name), version, required},
static const ignis__symbol ignis__cublaslt_symbols[] = {IGNIS__CUBLASLT_API(IGNIS__CUBLASLT_SYMBOL)};

/* clang-format off */
static const ignis__library_spec ignis__library_specs[IGNIS_LIBRARY_COUNT] = {
    {"", "", {0}, {0}, {0}, NULL, "", NULL, NULL, 0},
#ifdef _WIN32
    {"the CUDA driver", "IGNIS_CUDA_LIBRARY", {"nvcuda.dll"}, {0}, {0}, NULL,
     "install NVIDIA's display driver", &ignis__cuda, ignis__cuda_symbols, IGNIS__COUNT(ignis__cuda_symbols)},
    {"NVRTC", "IGNIS_NVRTC_LIBRARY", {"nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"},
     {"\\bin\\x64\\nvrtc64_130_0.dll", "\\bin\\nvrtc64_130_0.dll", "\\bin\\nvrtc64_120_0.dll", "\\bin\\nvrtc64_112_0.dll"},
     {"\\nvidia\\cu13\\bin\\x86_64\\nvrtc64_130_0.dll", "\\nvidia\\cuda_nvrtc\\bin\\nvrtc64_120_0.dll"}, NULL,
     "install it with the CUDA Toolkit or by: pip install nvidia-cuda-nvrtc", &ignis__nvrtc, ignis__nvrtc_symbols,
     IGNIS__COUNT(ignis__nvrtc_symbols)},
    {"cuBLASLt", "IGNIS_CUBLAS_LIBRARY", {"cublasLt64_13.dll", "cublasLt64_12.dll", "cublasLt64_11.dll"},
     {"\\bin\\x64\\cublasLt64_13.dll", "\\bin\\cublasLt64_13.dll", "\\bin\\cublasLt64_12.dll", "\\bin\\cublasLt64_11.dll"},
     {"\\nvidia\\cu13\\bin\\x86_64\\cublasLt64_13.dll", "\\nvidia\\cublas\\bin\\cublasLt64_12.dll"}, NULL,
     "install it with the CUDA Toolkit or by: pip install nvidia-cublas", &ignis__cublaslt, ignis__cublaslt_symbols,
     IGNIS__COUNT(ignis__cublaslt_symbols)},
#else
    {"the CUDA driver", "IGNIS_CUDA_LIBRARY", {"libcuda.so.1", "libcuda.so"},
     {"/usr/lib/wsl/lib/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"}, {0}, NULL,
     "install NVIDIA's driver", &ignis__cuda, ignis__cuda_symbols, IGNIS__COUNT(ignis__cuda_symbols)},
    {"NVRTC", "IGNIS_NVRTC_LIBRARY", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"},
     {"/lib64/libnvrtc.so", "/lib/libnvrtc.so", "/lib64/libnvrtc.so.13", "/lib64/libnvrtc.so.12"},
     {"/nvidia/cu13/lib/libnvrtc.so.13", "/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"}, "libnvrtc-builtins.so.",
     "install it with the CUDA Toolkit or by: pip install nvidia-cuda-nvrtc", &ignis__nvrtc, ignis__nvrtc_symbols,
     IGNIS__COUNT(ignis__nvrtc_symbols)},
    {"cuBLASLt", "IGNIS_CUBLAS_LIBRARY", {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"},
     {"/lib64/libcublasLt.so", "/lib/libcublasLt.so", "/lib64/libcublasLt.so.13", "/lib64/libcublasLt.so.12"},
     {"/nvidia/cu13/lib/libcublasLt.so.13", "/nvidia/cublas/lib/libcublasLt.so.12"}, NULL,
     "install it with the CUDA Toolkit or by: pip install nvidia-cublas", &ignis__cublaslt, ignis__cublaslt_symbols,
     IGNIS__COUNT(ignis__cublaslt_symbols)},
#endif
};
/* clang-format on */

static struct ignis__loaded {
    uint64_t loaded;   /* the api struct is filled */
    char path[1024];   /* what it was opened by */
    char wanted[1024]; /* ignis_desc's path, "" for a search */
    int version, found;
    uint64_t release; /* the exact version, for cache keys */
} ignis__libraries[IGNIS_LIBRARY_COUNT];

static ignis__mutex ignis__loader_lock = IGNIS__MUTEX_INIT;

#ifdef IGNIS_LINK_CUDA

#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>
#if CUDA_VERSION < 12040
#error "IGNIS_LINK_CUDA needs the headers of CUDA 12.4 or newer; without it Ignis loads older drivers at run time"
#endif

/*  The cast through void(*)(void) is the one that compilers let pass between unlike function types. */
static bool ignis__library_find(const char *call, ignis_library which, struct ignis__loaded *library)
{
    (void)call;
    snprintf(library->path, sizeof library->path, "linked");
    library->found = ignis__library_specs[which].symbol_count;
#define IGNIS__CUDA_LINK(ret, name, args, version, required) ignis__cuda.name = (ret(*) args)(void (*)(void))name;
#define IGNIS__NVRTC_LINK(ret, name, args, version, required) ignis__nvrtc.name = (ret(*) args)(void (*)(void))name;
#define IGNIS__CUBLASLT_LINK(ret, name, args, version, required) ignis__cublaslt.name = (ret(*) args)(void (*)(void))name;
    switch (which) {
    case IGNIS_LIBRARY_CUDA: IGNIS__CUDA_API(IGNIS__CUDA_LINK) break;
    case IGNIS_LIBRARY_NVRTC: IGNIS__NVRTC_API(IGNIS__NVRTC_LINK) break;
    default: IGNIS__CUBLASLT_API(IGNIS__CUBLASLT_LINK) break;
    }
    return true;
}

#else

/*  One search for a library: where it looked, and why each place was not it. */
typedef struct ignis__search {
    const ignis__library_spec *spec;
    const char *below; /* the folder that wheels are looked for in */
    void *library;
    char path[1024];
    ignis__text tried;
} ignis__search;

static void ignis__search_companion(void *context, const char *name)
{
    ignis__search *search = (ignis__search *)context;
    char path[2048], why[512];
    if (strncmp(name, search->spec->companion, strlen(search->spec->companion)) != 0 || strstr(name, ".alt"))
        return;
    snprintf(path, sizeof path, "%s/%s", search->below, name);
    (void)ignis__library_open(path, why, sizeof why); /* without it NVRTC itself says what it misses */
}

static bool ignis__search_try(ignis__search *search, const char *path)
{
    char why[512];
    const char *slash = strrchr(path, '/');
    if (search->library)
        return true;
    if (slash && search->spec->companion) {
        char folder[1024];
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        search->below = folder;
        (void)ignis__folder_list(folder, ignis__search_companion, search);
    }
    search->library = ignis__library_open(path, why, sizeof why);
    if (search->library)
        snprintf(search->path, sizeof search->path, "%s", path);
    else
        ignis__text_add(&search->tried, "\n  %s: %s", path, why);
    return search->library != NULL;
}

/*  Tries a file that is only worth a line in the report when it is there. */
static void ignis__search_try_existing(ignis__search *search, const char *folder, const char *file)
{
    char path[1024];
    int64_t size, time;
    snprintf(path, sizeof path, "%s%s", folder, file);
    if (ignis__file_info(path, &size, &time))
        ignis__search_try(search, path);
}

static void ignis__search_wheels(ignis__search *search, const char *packages)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(search->spec->wheels) && search->spec->wheels[i]; i++)
        ignis__search_try_existing(search, packages, search->spec->wheels[i]);
}

static void ignis__search_python(void *context, const char *name)
{
    ignis__search *search = (ignis__search *)context;
    char packages[1024];
    if (strncmp(name, "python3", 7) != 0)
        return;
    snprintf(packages, sizeof packages, "%s/%s/site-packages", search->below, name);
    ignis__search_wheels(search, packages);
    snprintf(packages, sizeof packages, "%s/%s/dist-packages", search->below, name);
    ignis__search_wheels(search, packages);
}

static void ignis__search_pythons(ignis__search *search, const char *root, const char *below)
{
    char folder[1024];
    if (!root || !*root || search->library)
        return;
#ifdef _WIN32
    (void)below;
    snprintf(folder, sizeof folder, "%s\\Lib\\site-packages", root);
    ignis__search_wheels(search, folder);
    (void)ignis__search_python;
#else
    snprintf(folder, sizeof folder, "%s%s", root, below);
    search->below = folder;
    (void)ignis__folder_list(folder, ignis__search_python, search);
#endif
}

static void ignis__search_everywhere(ignis__search *search)
{
    static const char *const roots[] = {"CUDA_PATH", "CUDA_HOME", NULL};
    const ignis__library_spec *spec = search->spec;
    int i, r;
    for (i = 0; i < IGNIS__COUNT(spec->names) && spec->names[i]; i++)
        if (ignis__search_try(search, spec->names[i]))
            return;
    for (r = 0; r < IGNIS__COUNT(roots); r++) {
        const char *root = roots[r] ? getenv(roots[r]) : "/usr/local/cuda";
        for (i = 0; root && i < IGNIS__COUNT(spec->folders) && spec->folders[i]; i++)
            ignis__search_try_existing(search, spec->wheels[0] ? root : "", spec->folders[i]);
    }
    ignis__search_pythons(search, getenv("VIRTUAL_ENV"), "/lib");
    ignis__search_pythons(search, getenv("CONDA_PREFIX"), "/lib");
    ignis__search_pythons(search, getenv("HOME"), "/.local/lib");
    ignis__search_pythons(search, "/usr/local", "/lib");
    ignis__search_pythons(search, "/usr", "/lib");
}

static bool ignis__library_find(const char *call, ignis_library which, struct ignis__loaded *library)
{
    const ignis__library_spec *spec = &ignis__library_specs[which];
    const char *from_env = getenv(spec->env);
    ignis__search search = IGNIS__ZERO;
    char tried[4096];
    int i;

    search.spec = spec;
    ignis__text_begin(&search.tried, tried, sizeof tried);
    if (library->wanted[0]) /* a path that was asked for is the only one: another library would be a silent surprise */
        ignis__search_try(&search, library->wanted);
    else if (from_env && *from_env)
        ignis__search_try(&search, from_env);
    else
        ignis__search_everywhere(&search);
    if (!search.library) {
        ignis__fail(IGNIS_DIAG_LIBRARY_MISSING, call, "%s was not found: %s, or name its file in %s. Tried:%s", spec->title, spec->help,
                    spec->env, tried);
        return false;
    }
    library->found = 0;
    for (i = 0; i < spec->symbol_count; i++) {
        const ignis__symbol *symbol = &spec->symbols[i];
        void *function = ignis__library_symbol(search.library, symbol->name);
        memcpy((char *)spec->api + symbol->offset, &function, sizeof function);
        library->found += function != NULL;
        if (!function && symbol->required) {
            int needed = symbol->version < 11040 ? 11040 : symbol->version; /* the oldest version that Ignis is made for */
            ignis__fail(IGNIS_DIAG_LIBRARY_SYMBOL, call, "%s (%s) has no function %s; it is not that library, or older than CUDA %d.%d",
                        spec->title, search.path, symbol->name, needed / 1000, needed % 1000 / 10);
            return false;
        }
    }
    snprintf(library->path, sizeof library->path, "%s", search.path);
    return true;
}

#endif /* IGNIS_LINK_CUDA */

/*  Reads the version, as 1000 * major + 10 * minor, and exactly. */
static void ignis__library_read_version(ignis_library which, struct ignis__loaded *library)
{
    int version = 0, minor = 0;
    size_t packed;
    switch (which) {
    case IGNIS_LIBRARY_CUDA:
        IGNIS__CUDA(cuDriverGetVersion, (&version));
        library->version = version;
        library->release = (uint64_t)version;
        break;
    case IGNIS_LIBRARY_NVRTC:
        IGNIS__NVRTC(nvrtcVersion, (&version, &minor));
        library->version = version * 1000 + (minor < 100 ? minor : 99) * 10;
        library->release = (uint64_t)version << 32 | (uint32_t)minor;
        break;
    default:
        packed = ignis__cublaslt.cublasLtGetVersion(); /* 130100 for 13.1.0; 11401 for 11.4.1 */
        library->version =
            (int)(packed >= 100000 ? packed / 10000 * 1000 + packed / 100 % 100 * 10 : packed / 1000 * 1000 + packed / 100 % 10 * 10);
        library->release = packed;
    }
}

/*  Loads a library once. A failure is reported again at the next try, which may succeed: the user may have installed it. */
static bool ignis__library_load(const char *call, ignis_library which)
{
    struct ignis__loaded *library = &ignis__libraries[which];
    bool ok = true;
    if (ignis__atomic_load(&library->loaded))
        return true;
    ignis__mutex_lock(&ignis__loader_lock);
    if (!ignis__atomic_load(&library->loaded)) {
        ok = ignis__library_find(call, which, library);
        if (ok) {
            ignis__library_read_version(which, library);
            ignis__atomic_store(&library->loaded, 1);
            ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: %s is %s, version %d.%d", call, ignis__library_specs[which].title,
                        library->path, library->version / 1000, library->version % 1000 / 10);
        }
    }
    ignis__mutex_unlock(&ignis__loader_lock);
    return ok;
}

IGNIS_API ignis_status ignis_library_query(ignis_library library, ignis_library_info *info)
{
    static const char call[] = "ignis_library_query";
    const struct ignis__loaded *loaded;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (library < IGNIS_LIBRARY_CUDA || library >= IGNIS_LIBRARY_COUNT)
        return ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no library %d; IGNIS_LIBRARY_CUDA to _CUBLASLT are 1 to 3", (int)library);
    if (!info)
        return ignis__fail_null(call, "info");
    if (!ignis__library_load(call, library))
        return IGNIS_ERROR_LIBRARY;
    loaded = &ignis__libraries[library];
    info->path = loaded->path;
    info->version = loaded->version;
    info->functions = ignis__library_specs[library].symbol_count;
    info->functions_found = loaded->found;
    return IGNIS_OK;
}

/* ===============================================================================================================
   >>pool - handles. A slot counts how often it was used; a handle carries the count it was given.
   =============================================================================================================== */

/*  handle: generation (32 bits) | kind (4 bits) | slot (28 bits). A slot's state: generation (32 bits) | holds (32 bits).
    An odd generation is live. The handle itself is one hold; a call that uses the item takes another, so an item is only taken
    apart when nobody is inside it. Slots are never freed and a generation never comes back (a slot that has used up its
    generations is not used again), which is why a stale handle is recognised for ever. */
typedef enum ignis__kind { IGNIS__KIND_ARRAY = 1, IGNIS__KIND_KERNEL = 2 } ignis__kind;

typedef struct ignis__slot {
    uint64_t state;
    uint64_t handle;   /* while live */
    ignis__mutex lock; /* for the item's own fields */
    struct ignis__slot *next_free;
    uint32_t index;
} ignis__slot;

#define IGNIS__POOL_FIRST_PAGE 64u
#define IGNIS__POOL_PAGES 22 /* page k holds 64 << k items: 2^28 in all */

typedef struct ignis__pool {
    size_t item_size; /* items begin with an ignis__slot */
    ignis__kind kind;
    ignis__mutex lock;
    uint64_t count; /* slots ever made */
    char *pages[IGNIS__POOL_PAGES];
    ignis__slot *free;
} ignis__pool;

static ignis__slot *ignis__pool_slot(const ignis__pool *pool, uint64_t index)
{
    uint64_t shifted = index + IGNIS__POOL_FIRST_PAGE;
    int page = ignis__log2(shifted) - 6;
    return (ignis__slot *)(void *)(pool->pages[page] + (shifted - ((uint64_t)IGNIS__POOL_FIRST_PAGE << page)) * pool->item_size);
}

/*  Slots come from malloc and stay: they outlive ignis_shutdown, and with it the user's allocator. */
static ignis__slot *ignis__pool_grow(ignis__pool *pool)
{
    uint64_t index = pool->count, shifted = index + IGNIS__POOL_FIRST_PAGE;
    int page = ignis__log2(shifted) - 6;
    ignis__slot *slot;
    if (page >= IGNIS__POOL_PAGES)
        return NULL;
    if (!pool->pages[page]) {
        pool->pages[page] = (char *)calloc(IGNIS__POOL_FIRST_PAGE << page, pool->item_size);
        if (!pool->pages[page])
            return NULL;
    }
    slot = ignis__pool_slot(pool, index);
    slot->index = (uint32_t)index;
    ignis__mutex_init(&slot->lock);
    ignis__atomic_store(&pool->count, index + 1);
    return slot;
}

/*  A slot that nobody else can see yet; fill the item, then ignis__pool_publish it. Null: out of memory. */
static void *ignis__pool_take(ignis__pool *pool)
{
    ignis__slot *slot;
    ignis__mutex_lock(&pool->lock);
    slot = pool->free;
    if (slot)
        pool->free = slot->next_free;
    else
        slot = ignis__pool_grow(pool);
    ignis__mutex_unlock(&pool->lock);
    return slot;
}

static uint64_t ignis__pool_publish(ignis__pool *pool, void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    uint64_t generation = (ignis__atomic_load(&slot->state) >> 32) + 1;
    slot->handle = generation << 32 | (uint64_t)pool->kind << 28 | slot->index;
    ignis__atomic_store(&slot->state, generation << 32 | 1);
    return slot->handle;
}

/*  Makes the slot free for others; the item is taken apart already. */
static void ignis__pool_give(ignis__pool *pool, void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    if (ignis__atomic_load(&slot->state) >> 32 >= 0xFFFFFFFEu)
        return;
    ignis__mutex_lock(&pool->lock);
    slot->next_free = pool->free;
    pool->free = slot;
    ignis__mutex_unlock(&pool->lock);
}

/*  The item of a slot, held, if it is live and of that generation; any generation will do for 0. */
static void *ignis__pool_hold_slot(ignis__pool *pool, uint64_t index, uint64_t generation)
{
    ignis__slot *slot = ignis__pool_slot(pool, index);
    uint64_t state = ignis__atomic_load(&slot->state);
    do {
        if (!(state >> 32 & 1) || (generation && state >> 32 != generation))
            return NULL;
    } while (!ignis__atomic_swap_if(&slot->state, &state, state + 1));
    return slot;
}

/*  The item of a live handle, held; null when the handle is stale or was never given out. */
static void *ignis__pool_hold(ignis__pool *pool, uint64_t handle)
{
    uint64_t index = handle & 0xFFFFFFFu;
    if ((handle >> 28 & 15) != (uint64_t)pool->kind || index >= ignis__atomic_load(&pool->count) || handle >> 32 == 0)
        return NULL;
    return ignis__pool_hold_slot(pool, index, handle >> 32);
}

/*  Gives a hold back. True: it was the last one of a dead item, which the caller now takes apart. */
static bool ignis__pool_drop(void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    uint64_t state = ignis__atomic_add(&slot->state, (uint64_t)-1);
    return (state & 0xFFFFFFFFu) == 0 && !(state >> 32 & 1);
}

/*  Whether a held item is still live; ask with its lock taken, under which it dies. */
static bool ignis__pool_live(const void *item) { return ignis__atomic_load(&((const ignis__slot *)item)->state) >> 32 & 1; }

/*  Makes the handles of a live, held and locked item stale. The handle's own hold remains to be dropped. */
static void ignis__pool_kill(void *item) { ignis__atomic_add(&((ignis__slot *)item)->state, (uint64_t)1 << 32); }

/* ===============================================================================================================
   >>device - contexts, streams, events, device facts.
   =============================================================================================================== */

/*  Numbers of the driver's enumerations. */
enum {
    IGNIS__CU_INVALID_VALUE = 1,
    IGNIS__CU_OUT_OF_MEMORY = 2,
    IGNIS__CU_DEINITIALIZED = 4,
    IGNIS__CU_NO_DEVICE = 100,
    IGNIS__CU_INVALID_IMAGE = 200,
    IGNIS__CU_NO_BINARY = 209,
    IGNIS__CU_ATTRIBUTE_MAX_THREADS = 1,
    IGNIS__CU_ATTRIBUTE_WARP_SIZE = 10,
    IGNIS__CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    IGNIS__CU_ATTRIBUTE_L2_BYTES = 38,
    IGNIS__CU_ATTRIBUTE_MAJOR = 75,
    IGNIS__CU_ATTRIBUTE_MINOR = 76,
    IGNIS__CU_ATTRIBUTE_SHARED_OPTIN = 97,
    IGNIS__CU_STREAM_DEFAULT = 0, /* a blocking stream: ordered with the legacy default stream */
    IGNIS__CU_EVENT_DISABLE_TIMING = 2,
    IGNIS__CU_POINTER_MEMORY_TYPE = 2,
    IGNIS__CU_POINTER_ORDINAL = 9,
    IGNIS__CU_MEMORY_HOST = 1,
    IGNIS__CU_FUNC_MAX_THREADS = 0,
    IGNIS__CU_FUNC_SHARED = 1,
    IGNIS__CU_FUNC_LOCAL = 3,
    IGNIS__CU_FUNC_REGISTERS = 4,
    IGNIS__CU_FUNC_MAX_DYNAMIC_SHARED = 8
};

/*  A stream that the caller brought. */
typedef struct ignis__foreign_stream {
    void *stream;
    uint64_t serial; /* tells this stream from a later one at the same address */
    struct ignis__foreign_stream *next;
} ignis__foreign_stream;

typedef struct ignis__spare_event {
    void *event;
    struct ignis__spare_event *next;
} ignis__spare_event;

typedef struct ignis__device {
    uint64_t opened;
    uint64_t lost; /* the driver error that ended it, 0: none */
    ignis__mutex lock;
    int handle; /* CUdevice */
    void *context;
    void *stream; /* Ignis' own */
    ignis_device_info info;
    ignis__foreign_stream *foreign;
    ignis__spare_event *events;
} ignis__device;

static ignis__device ignis__devices[IGNIS_MAX_DEVICES];
static int ignis__device_total;
static int ignis__device_first;
static uint64_t ignis__stream_serials; /* given out so far */
static uint64_t ignis__stream_forgets; /* ignis_stream_forget calls so far */

/*  Errors after which the driver answers every call on the context with the same error. */
static bool ignis__cuda_is_fatal(int error)
{
    static const short fatal[] = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721};
    int i;
    for (i = 0; i < IGNIS__COUNT(fatal); i++)
        if (fatal[i] == error)
            return true;
    return false;
}

static const char *ignis__cuda_name(int error)
{
    const char *name = NULL;
    return ignis__cuda.cuGetErrorName && ignis__cuda.cuGetErrorName(error, &name) == 0 && name ? name : "unknown error";
}

/*  Turns a driver error into a failure of `call`. device may be null where none is concerned. */
static ignis_status ignis__cuda_fail(const char *call, ignis__device *device, const char *function, int error)
{
    const char *name = ignis__cuda_name(error), *text = NULL;
    int ordinal = device ? (int)(device - ignis__devices) : -1;
    if (device && ignis__cuda_is_fatal(error)) {
        uint64_t none = 0;
        ignis__atomic_swap_if(&device->lost, &none, (uint64_t)error);
        return ignis__fail_because(
            IGNIS_DIAG_CUDA_CALL, call, error, name, NULL,
            "an earlier kernel or copy on device %d has faulted: %s (%d), seen by %s. Its arrays are lost, and CUDA keeps the device "
            "from this process until it ends",
            ordinal, name, error, function);
    }
    if (ignis__cuda.cuGetErrorString && ignis__cuda.cuGetErrorString(error, &text) != 0)
        text = NULL;
    return ignis__fail_because(error == IGNIS__CU_OUT_OF_MEMORY ? IGNIS_DIAG_DEVICE_MEMORY : IGNIS_DIAG_CUDA_CALL, call, error, name, NULL,
                               "%s failed with %s (%d)%s%s", function, name, error, text ? ": " : "", text ? text : "");
}

/*  if (IGNIS__CUDA_FAILED(call, device, cuMemFree_v2, (address))) return ...; the failure is recorded. */
#define IGNIS__CUDA_FAILED(call, device, name, args) (ignis__cuda_check(call, device, #name, IGNIS__CUDA(name, args)) != IGNIS_OK)
static ignis_status ignis__cuda_check(const char *call, ignis__device *device, const char *function, int error)
{
    return error == 0 ? IGNIS_OK : ignis__cuda_fail(call, device, function, error);
}

static ignis__device *ignis__device_get(const char *call, int ordinal)
{
    if (ordinal >= 0 && ordinal < ignis__device_total)
        return &ignis__devices[ordinal];
    if (ignis__device_total == 0)
        ignis__fail(IGNIS_DIAG_DEVICE_NONE, call, "there is no CUDA device");
    else
        ignis__fail(IGNIS_DIAG_DEVICE_RANGE, call, "there is no device %d; there are %d, from 0", ordinal, ignis__device_total);
    return NULL;
}

static bool ignis__device_read(const char *call, ignis__device *device)
{
    ignis_device_info *info = &device->info;
    const struct {
        int attribute;
        int *into;
    } facts[] = {
        {IGNIS__CU_ATTRIBUTE_MAJOR, &info->compute_major},
        {IGNIS__CU_ATTRIBUTE_MINOR, &info->compute_minor},
        {IGNIS__CU_ATTRIBUTE_MULTIPROCESSORS, &info->multiprocessors},
        {IGNIS__CU_ATTRIBUTE_WARP_SIZE, &info->warp_size},
        {IGNIS__CU_ATTRIBUTE_MAX_THREADS, &info->max_threads_per_block},
        {IGNIS__CU_ATTRIBUTE_SHARED_OPTIN, &info->shared_per_block},
    };
    int i, l2 = 0;
    size_t total = 0;

    info->device = (int)(device - ignis__devices);
    info->driver_version = ignis__libraries[IGNIS_LIBRARY_CUDA].version;
    if (IGNIS__CUDA_FAILED(call, NULL, cuDeviceGet, (&device->handle, info->device)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetName, (info->name, (int)sizeof info->name, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetUuid_v2, (info->uuid, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetPCIBusId, (info->pci_bus_id, (int)sizeof info->pci_bus_id, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceTotalMem_v2, (&total, device->handle)) ||
        IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetAttribute, (&l2, IGNIS__CU_ATTRIBUTE_L2_BYTES, device->handle)))
        return false;
    for (i = 0; i < IGNIS__COUNT(facts); i++)
        if (IGNIS__CUDA_FAILED(call, NULL, cuDeviceGetAttribute, (facts[i].into, facts[i].attribute, device->handle)))
            return false;
    info->l2_bytes = l2;
    info->memory_total = (int64_t)total;
    return true;
}

/*  A context that is made current for one call. */
typedef struct ignis__binding {
    bool pushed;
} ignis__binding;

/*  A thread without a context gets this one and keeps it, as with cudart; one that has another gets that back. */
static bool ignis__context_enter(const char *call, ignis__device *device, ignis__binding *binding)
{
    void *current = NULL;
    binding->pushed = false;
    if (IGNIS__CUDA_FAILED(call, device, cuCtxGetCurrent, (&current)))
        return false;
    if (current == device->context)
        return true;
    if (!current)
        return !IGNIS__CUDA_FAILED(call, device, cuCtxSetCurrent, (device->context));
    binding->pushed = !IGNIS__CUDA_FAILED(call, device, cuCtxPushCurrent_v2, (device->context));
    return binding->pushed;
}

static void ignis__context_leave(const ignis__binding *binding)
{
    void *context;
    if (binding->pushed)
        (void)IGNIS__CUDA(cuCtxPopCurrent_v2, (&context)); /* what was pushed can be popped */
}

static bool ignis__device_open_locked(const char *call, ignis__device *device)
{
    ignis__binding binding;
    bool made;
    if (!ignis__device_read(call, device) || IGNIS__CUDA_FAILED(call, device, cuDevicePrimaryCtxRetain, (&device->context, device->handle)))
        return false;
    if (ignis__context_enter(call, device, &binding)) {
        made = !IGNIS__CUDA_FAILED(call, device, cuStreamCreate, (&device->stream, IGNIS__CU_STREAM_DEFAULT));
        ignis__context_leave(&binding);
        if (made)
            return true;
    }
    (void)IGNIS__CUDA(cuDevicePrimaryCtxRelease_v2, (device->handle)); /* the first failure is the one reported */
    device->context = NULL;
    return false;
}

/*  Opens the device if it is not, and makes its context current. Every path that succeeds here ends in ignis__device_leave. */
static bool ignis__device_enter(const char *call, ignis__device *device, ignis__binding *binding)
{
    uint64_t lost = ignis__atomic_load(&device->lost);
    if (lost) {
        ignis__fail_because(IGNIS_DIAG_DEVICE_LOST, call, (int)lost, ignis__cuda_name((int)lost), NULL,
                            "device %d was lost to %s (%d) in an earlier kernel or copy; CUDA keeps it from this process until it ends",
                            (int)(device - ignis__devices), ignis__cuda_name((int)lost), (int)lost);
        return false;
    }
    if (!ignis__atomic_load(&device->opened)) {
        ignis__mutex_lock(&device->lock);
        if (!ignis__atomic_load(&device->opened) && ignis__device_open_locked(call, device))
            ignis__atomic_store(&device->opened, 1);
        ignis__mutex_unlock(&device->lock);
        if (!ignis__atomic_load(&device->opened))
            return false;
    }
    return ignis__context_enter(call, device, binding);
}

static void ignis__device_leave(const ignis__binding *binding) { ignis__context_leave(binding); }

/*  The calling thread's state, fresh after an ignis_setup and after an ignis_stream_forget that concerns it. */
static ignis__thread *ignis__thread_now(void)
{
    ignis__thread *thread = &ignis__this_thread;
    uint64_t forgets = ignis__atomic_load(&ignis__stream_forgets);
    int i;
    if (thread->setup != ignis__global.setups) {
        thread->setup = ignis__global.setups;
        thread->device = ignis__device_first;
        thread->forgets = forgets;
        memset(thread->stream, 0, sizeof thread->stream);
    }
    if (thread->forgets != forgets) {
        thread->forgets = forgets;
        for (i = 0; i < ignis__device_total; i++) {
            ignis__foreign_stream *foreign;
            if (!thread->stream[i])
                continue;
            ignis__mutex_lock(&ignis__devices[i].lock);
            for (foreign = ignis__devices[i].foreign; foreign && foreign->serial != thread->stream_serial[i]; foreign = foreign->next)
                ;
            ignis__mutex_unlock(&ignis__devices[i].lock);
            if (!foreign)
                thread->stream[i] = NULL;
        }
    }
    return thread;
}

/*  The stream that the calling thread's work goes to on an open device. */
static void *ignis__stream_now(const ignis__device *device)
{
    void *stream = ignis__thread_now()->stream[device - ignis__devices];
    return stream ? stream : device->stream;
}

/*  Writes a stream of the caller down, after checking that it is one of this device. 0: it is not. */
static uint64_t ignis__stream_adopt(const char *call, ignis__device *device, void *stream)
{
    ignis__foreign_stream *foreign;
    uint64_t serial = 0;
    void *context = NULL;
    bool special = (uintptr_t)stream <= 2; /* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are of the current context */
    if (!special && IGNIS__CUDA_FAILED(call, device, cuStreamGetCtx, (stream, &context)))
        return 0;
    if (!special && context != device->context) {
        ignis__fail(IGNIS_DIAG_STREAM_INVALID, call, "stream %p belongs to another device or context than device %d's primary context",
                    stream, (int)(device - ignis__devices));
        return 0;
    }
    ignis__mutex_lock(&device->lock);
    for (foreign = device->foreign; foreign && foreign->stream != stream; foreign = foreign->next)
        ;
    if (!foreign) {
        foreign = (ignis__foreign_stream *)ignis__alloc(sizeof *foreign);
        if (foreign) {
            foreign->stream = stream;
            foreign->serial = ignis__atomic_add(&ignis__stream_serials, 1);
            foreign->next = device->foreign;
            device->foreign = foreign;
        }
    }
    if (foreign)
        serial = foreign->serial;
    ignis__mutex_unlock(&device->lock);
    if (!serial)
        ignis__fail_host_memory(call, sizeof *foreign);
    return serial;
}

/*  Makes `later` wait for what is queued on `earlier` now. The streams may be of different devices. */
static bool ignis__stream_order(const char *call, ignis__device *earlier_device, void *earlier, ignis__device *later_device, void *later)
{
    ignis__spare_event *spare;
    ignis__binding binding;
    bool ok;
    if (earlier_device == later_device && earlier == later)
        return true;
    if (!ignis__device_enter(call, earlier_device, &binding))
        return false;
    ignis__mutex_lock(&earlier_device->lock);
    spare = earlier_device->events;
    if (spare)
        earlier_device->events = spare->next;
    ignis__mutex_unlock(&earlier_device->lock);
    if (!spare) {
        spare = (ignis__spare_event *)ignis__alloc(sizeof *spare);
        if (!spare)
            ignis__fail_host_memory(call, sizeof *spare);
        if (spare && IGNIS__CUDA_FAILED(call, earlier_device, cuEventCreate, (&spare->event, IGNIS__CU_EVENT_DISABLE_TIMING))) {
            ignis__free(spare);
            spare = NULL;
        }
    }
    ok = spare && !IGNIS__CUDA_FAILED(call, earlier_device, cuEventRecord, (spare->event, earlier));
    ignis__device_leave(&binding);
    if (ok && ignis__device_enter(call, later_device, &binding)) {
        ok = !IGNIS__CUDA_FAILED(call, later_device, cuStreamWaitEvent, (later, spare->event, 0));
        ignis__device_leave(&binding);
    } else {
        ok = false;
    }
    if (spare) { /* the wait refers to the record, not to the event: it can be recorded again at once */
        ignis__mutex_lock(&earlier_device->lock);
        spare->next = earlier_device->events;
        earlier_device->events = spare;
        ignis__mutex_unlock(&earlier_device->lock);
    }
    return ok;
}

static ignis_status ignis__devices_setup(const char *call, int first)
{
    int error, i;
    error = IGNIS__CUDA(cuInit, (0));
    if (error == IGNIS__CU_NO_DEVICE)
        return ignis__fail_because(IGNIS_DIAG_DEVICE_NONE, call, error, ignis__cuda_name(error), NULL, "the driver finds no CUDA device");
    if (error != 0)
        return ignis__cuda_fail(call, NULL, "cuInit", error);
    error = IGNIS__CUDA(cuDeviceGetCount, (&ignis__device_total));
    if (error != 0)
        return ignis__cuda_fail(call, NULL, "cuDeviceGetCount", error);
    if (ignis__device_total > IGNIS_MAX_DEVICES)
        ignis__device_total = IGNIS_MAX_DEVICES;
    for (i = 0; i < ignis__device_total; i++) {
        memset(&ignis__devices[i], 0, sizeof ignis__devices[i]);
        ignis__mutex_init(&ignis__devices[i].lock);
    }
    ignis__device_first = first;
    return ignis__device_get(call, first) ? IGNIS_OK : IGNIS_ERROR_DEVICE;
}

/*  Waits for the device and lets go of it. Goes on after an error, and reports the first. */
static void ignis__device_close(const char *call, ignis__device *device)
{
    void *current = NULL;
    bool lost = ignis__atomic_load(&device->lost) != 0;
    ignis__device *report = lost ? NULL : device;
    (void)IGNIS__CUDA(cuCtxSetCurrent, (device->context));
    while (device->events) {
        ignis__spare_event *spare = device->events;
        device->events = spare->next;
        (void)IGNIS__CUDA(cuEventDestroy_v2, (spare->event));
        ignis__free(spare);
    }
    while (device->foreign) {
        ignis__foreign_stream *foreign = device->foreign;
        device->foreign = foreign->next;
        ignis__free(foreign);
    }
    if (lost)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (device->stream));
    else
        (void)IGNIS__CUDA_FAILED(call, report, cuStreamDestroy_v2, (device->stream));
    if (IGNIS__CUDA(cuCtxGetCurrent, (&current)) == 0 && current == device->context)
        (void)IGNIS__CUDA(cuCtxSetCurrent, (NULL)); /* the context ends with its last user */
    (void)IGNIS__CUDA_FAILED(call, NULL, cuDevicePrimaryCtxRelease_v2, (device->handle));
    ignis__atomic_store(&device->opened, 0);
}

IGNIS_API int ignis_device_count(void) { return ignis__enter("ignis_device_count") ? ignis__device_total : 0; }

IGNIS_API ignis_status ignis_device_query(int ordinal, ignis_device_info *info)
{
    static const char call[] = "ignis_device_query";
    ignis__device *device;
    bool ok = true;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!info)
        return ignis__fail_null(call, "info");
    device = ignis__device_get(call, ordinal);
    if (!device)
        return IGNIS_ERROR_DEVICE;
    ignis__mutex_lock(&device->lock);
    if (!device->info.warp_size)
        ok = ignis__device_read(call, device);
    *info = device->info;
    ignis__mutex_unlock(&device->lock);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_device_use(int ordinal)
{
    static const char call[] = "ignis_device_use";
    ignis__device *device;
    ignis__binding binding;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__device_enter(call, device, &binding))
        return ignis__failed();
    ignis__device_leave(&binding);
    if (IGNIS__CUDA_FAILED(call, device, cuCtxSetCurrent, (device->context)))
        return ignis__failed();
    ignis__thread_now()->device = ordinal;
    return IGNIS_OK;
}

IGNIS_API int ignis_device_current(void) { return ignis__enter("ignis_device_current") ? ignis__thread_now()->device : -1; }

/*  The calling thread's current device, opened and entered; null on failure. */
static ignis__device *ignis__device_current_enter(const char *call, ignis__binding *binding)
{
    ignis__device *device;
    if (!ignis__enter(call))
        return NULL;
    device = ignis__device_get(call, ignis__thread_now()->device);
    return device && ignis__device_enter(call, device, binding) ? device : NULL;
}

IGNIS_API ignis_status ignis_stream_use(void *stream)
{
    static const char call[] = "ignis_stream_use";
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    uint64_t serial = 0;
    bool ok;
    if (!device)
        return ignis__failed();
    if (stream == device->stream)
        stream = NULL;
    ok = !stream || (serial = ignis__stream_adopt(call, device, stream)) != 0;
    ignis__device_leave(&binding);
    if (!ok)
        return ignis__failed();
    ignis__this_thread.stream[device - ignis__devices] = stream;
    ignis__this_thread.stream_serial[device - ignis__devices] = serial;
    return IGNIS_OK;
}

IGNIS_API void *ignis_stream_current(void)
{
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter("ignis_stream_current", &binding);
    if (!device)
        return NULL;
    ignis__device_leave(&binding);
    return ignis__stream_now(device);
}

IGNIS_API ignis_status ignis_synchronize(void)
{
    static const char call[] = "ignis_synchronize";
    ignis__binding binding;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    bool ok;
    if (!device)
        return ignis__failed();
    ok = !IGNIS__CUDA_FAILED(call, device, cuCtxSynchronize, ());
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

/* ===============================================================================================================
   >>memory - a caching allocator per device, ordered by streams; pinned host memory.
   =============================================================================================================== */

/*  Driver allocations ("segments") are cut into blocks. A free block belongs to the stream it was freed on: work queued on that
    stream is ordered before its next use there, so it can be handed out again at once. Another stream may take it only after
    waiting for an event of that stream. Blocks are kept in bins by size, each bin sorted, so the first that fits fits best.
    Small requests live in segments of their own, so that they do not nail large ones down. */
#define IGNIS__BLOCK_UNIT 512
#define IGNIS__SMALL_LIMIT ((int64_t)1 << 20)
#define IGNIS__SMALL_SEGMENT ((int64_t)2 << 20)
#define IGNIS__MEDIUM_LIMIT ((int64_t)10 << 20)
#define IGNIS__MEDIUM_SEGMENT ((int64_t)20 << 20)
#define IGNIS__BINS 512
#define IGNIS__NO_HOST_MEMORY (-1) /* beside the driver's error numbers */

typedef struct ignis__block {
    ignis__address address;
    int64_t size;
    struct ignis__cache_part *part; /* stream and size class it belongs to */
    bool used;
    struct ignis__block *below, *above;    /* neighbours in the segment */
    struct ignis__block *smaller, *larger; /* neighbours in the bin */
    struct ignis__block *next_segment;     /* of a segment's first block, which lives as long as the segment */
} ignis__block;

typedef struct ignis__cache_part {
    void *stream;
    bool small;
    struct ignis__cache_part *next;
    uint64_t filled[IGNIS__BINS / 64]; /* a bit for each bin that is not empty */
    ignis__block *bins[IGNIS__BINS];
} ignis__cache_part;

typedef struct ignis__cache {
    ignis__mutex lock;
    ignis__cache_part *parts;
    ignis__block *segments;     /* their first blocks */
    ignis__block *spare_blocks; /* block structs for reuse, linked by `above` */
    ignis_memory_info info;
} ignis__cache;

static ignis__cache ignis__caches[IGNIS_MAX_DEVICES];
static bool ignis__memory_bypass;
static uint64_t ignis__pinned_bytes;

/*  Up to 63 units each size has its bin; above, a power of two has eight. */
static int ignis__bin_of(int64_t size)
{
    uint64_t units = (uint64_t)size / IGNIS__BLOCK_UNIT;
    int log;
    if (units < 64)
        return (int)units;
    log = ignis__log2(units);
    return 64 + (log - 6) * 8 + (int)(units >> (log - 3) & 7);
}

static void ignis__bin_insert(ignis__block *block)
{
    int bin = ignis__bin_of(block->size);
    ignis__block **head = &block->part->bins[bin], *after = *head, *before = NULL;
    while (after && after->size < block->size) {
        before = after;
        after = after->larger;
    }
    block->smaller = before;
    block->larger = after;
    if (before)
        before->larger = block;
    else
        *head = block;
    if (after)
        after->smaller = block;
    block->part->filled[bin / 64] |= (uint64_t)1 << bin % 64;
}

static void ignis__bin_remove(ignis__block *block)
{
    int bin = ignis__bin_of(block->size);
    ignis__cache_part *part = block->part;
    if (block->smaller)
        block->smaller->larger = block->larger;
    else
        part->bins[bin] = block->larger;
    if (block->larger)
        block->larger->smaller = block->smaller;
    if (!part->bins[bin])
        part->filled[bin / 64] &= ~((uint64_t)1 << bin % 64);
    block->smaller = block->larger = NULL;
}

static ignis__block *ignis__bin_best(const ignis__cache_part *part, int64_t size)
{
    int bin = ignis__bin_of(size), word = (bin + 1) / 64;
    ignis__block *block = part->bins[bin];
    uint64_t bits;
    while (block && block->size < size)
        block = block->larger;
    if (block)
        return block;
    bits = word < IGNIS__BINS / 64 ? part->filled[word] & ~(uint64_t)0 << (bin + 1) % 64 : 0;
    while (!bits && ++word < IGNIS__BINS / 64)
        bits = part->filled[word];
    return bits ? part->bins[word * 64 + ignis__lowest_bit(bits)] : NULL;
}

/*  The stream's part for a size class, made when it is new; null: out of host memory. */
static ignis__cache_part *ignis__cache_part_of(ignis__cache *cache, void *stream, bool small)
{
    ignis__cache_part *part = cache->parts;
    while (part && !(part->stream == stream && part->small == small))
        part = part->next;
    if (!part && (part = (ignis__cache_part *)ignis__alloc(sizeof *part)) != NULL) {
        part->stream = stream;
        part->small = small;
        part->next = cache->parts;
        cache->parts = part;
    }
    return part;
}

static ignis__block *ignis__block_make(ignis__cache *cache, ignis__cache_part *part, ignis__address address, int64_t size)
{
    ignis__block *block = cache->spare_blocks;
    if (block) {
        cache->spare_blocks = block->above;
        memset(block, 0, sizeof *block);
    } else {
        block = (ignis__block *)ignis__alloc(sizeof *block);
        if (!block)
            return NULL;
    }
    block->part = part;
    block->address = address;
    block->size = size;
    return block;
}

static void ignis__block_drop(ignis__cache *cache, ignis__block *block)
{
    block->above = cache->spare_blocks;
    cache->spare_blocks = block;
}

/*  Joins `block` with the one above it, which goes. Both are free and in no bin. */
static void ignis__block_join(ignis__cache *cache, ignis__block *block)
{
    ignis__block *above = block->above;
    block->size += above->size;
    block->above = above->above;
    if (block->above)
        block->above->below = block;
    ignis__block_drop(cache, above);
}

/*  Puts a block that became free into its bin, joined with free neighbours of the same stream. */
static void ignis__block_settle(ignis__cache *cache, ignis__block *block)
{
    block->used = false;
    if (block->above && !block->above->used && block->above->part == block->part) {
        ignis__bin_remove(block->above);
        ignis__block_join(cache, block);
    }
    if (block->below && !block->below->used && block->below->part == block->part) {
        block = block->below;
        ignis__bin_remove(block);
        ignis__block_join(cache, block);
    }
    ignis__bin_insert(block);
}

/*  Takes a free block out of its bin for `size` bytes, and gives the rest back. Without host memory for the rest it keeps all. */
static void ignis__block_use(ignis__cache *cache, ignis__block *block, int64_t size)
{
    ignis__bin_remove(block);
    block->used = true;
    if (block->size > size) {
        ignis__block *rest = ignis__block_make(cache, block->part, block->address + (uint64_t)size, block->size - size);
        if (rest) {
            rest->below = block;
            rest->above = block->above;
            if (rest->above)
                rest->above->below = rest;
            block->above = rest;
            block->size = size;
            ignis__bin_insert(rest);
        }
    }
}

static void ignis__memory_count(ignis__cache *cache, int64_t live, int64_t reserved)
{
    ignis_memory_info *info = &cache->info;
    info->live_bytes += live;
    info->live_blocks += (live > 0) - (live < 0);
    info->reserved_bytes += reserved;
    info->segments += (reserved > 0) - (reserved < 0);
    if (info->live_bytes > info->live_peak)
        info->live_peak = info->live_bytes;
    if (info->reserved_bytes > info->reserved_peak)
        info->reserved_peak = info->reserved_bytes;
}

/*  A new segment as one free block in its bin, at least `size` bytes; null: no memory. */
static ignis__block *ignis__segment_make(ignis__cache *cache, ignis__cache_part *part, int64_t size, int64_t wanted, int *error)
{
    ignis__address address = 0;
    ignis__block *block;
    int64_t limit = cache->info.limit;
    if (limit && wanted > limit - cache->info.reserved_bytes) {
        wanted = (limit - cache->info.reserved_bytes) / IGNIS__BLOCK_UNIT * IGNIS__BLOCK_UNIT;
        if (wanted < size)
            return NULL;
    }
    block = ignis__block_make(cache, part, 0, wanted);
    if (!block) {
        *error = IGNIS__NO_HOST_MEMORY;
        return NULL;
    }
    *error = IGNIS__CUDA(cuMemAlloc_v2, (&address, (size_t)wanted));
    if (*error != 0) {
        ignis__block_drop(cache, block);
        return NULL;
    }
    block->address = address;
    block->next_segment = cache->segments;
    cache->segments = block;
    cache->info.driver_allocations++;
    ignis__memory_count(cache, 0, wanted);
    ignis__bin_insert(block);
    return block;
}

static int64_t ignis__segment_size(int64_t size)
{
    int64_t step = IGNIS__SMALL_SEGMENT;
    if (size <= IGNIS__SMALL_LIMIT)
        return IGNIS__SMALL_SEGMENT;
    if (size < IGNIS__MEDIUM_LIMIT)
        return IGNIS__MEDIUM_SEGMENT;
    return size > INT64_MAX - step ? size : (size + step - 1) / step * step;
}

/*  Gives back every segment that is free from end to end. Waits for the device, so the streams of blocks do not matter any more.
    Returns the bytes, -1 after a failure. */
static int64_t ignis__cache_trim(const char *call, ignis__device *device, ignis__cache *cache)
{
    ignis__block **link = &cache->segments, *block;
    int64_t freed = 0;
    if (!*link)
        return 0;
    if (IGNIS__CUDA_FAILED(call, device, cuCtxSynchronize, ()))
        return -1;
    while (*link) {
        ignis__block *first = *link;
        for (block = first; block && !block->used; block = block->above)
            ;
        if (block) {
            link = &first->next_segment;
            continue;
        }
        for (block = first; block; block = block->above)
            ignis__bin_remove(block);
        while (first->above)
            ignis__block_join(cache, first);
        if (IGNIS__CUDA_FAILED(call, device, cuMemFree_v2, (first->address))) {
            ignis__bin_insert(first);
            return -1;
        }
        *link = first->next_segment;
        cache->info.driver_frees++;
        freed += first->size;
        ignis__memory_count(cache, 0, -first->size);
        ignis__block_drop(cache, first);
    }
    return freed;
}

/*  The best free block of another stream, after making `part`'s stream wait for what that stream still does with it. */
static ignis__block *ignis__block_steal(const char *call, ignis__device *device, ignis__cache *cache, ignis__cache_part *part, int64_t size)
{
    ignis__cache_part *other;
    ignis__block *best = NULL;
    for (other = cache->parts; other; other = other->next) {
        ignis__block *block = other == part ? NULL : ignis__bin_best(other, size);
        if (block && (!best || block->size < best->size))
            best = block;
    }
    if (!best || !ignis__stream_order(call, device, best->part->stream, device, part->stream))
        return NULL;
    ignis__block_use(cache, best, size); /* cut first, so that the rest stays with its stream */
    best->part = part;
    best->used = false;
    ignis__bin_insert(best);
    return best;
}

static ignis__block *ignis__memory_find(const char *call, ignis__device *device, ignis__cache *cache, ignis__cache_part *part, int64_t size,
                                        int *error)
{
    ignis__block *block = ignis__bin_best(part, size);
    if (block) {
        cache->info.cache_hits++;
        return block;
    }
    block = ignis__segment_make(cache, part, size, ignis__segment_size(size), error);
    if (!block)
        block = ignis__segment_make(cache, part, size, size, error);
    if (!block)
        block = ignis__block_steal(call, device, cache, part, size);
    if (!block && ignis__cache_trim(call, device, cache) > 0)
        block = ignis__segment_make(cache, part, size, size, error);
    return block;
}

static int64_t ignis__cache_largest_free(const ignis__cache *cache)
{
    const ignis__cache_part *part;
    int64_t largest = 0;
    int word;
    for (part = cache->parts; part; part = part->next) {
        for (word = IGNIS__BINS / 64 - 1; word >= 0; word--) {
            const ignis__block *block;
            if (!part->filled[word])
                continue;
            for (block = part->bins[word * 64 + ignis__log2(part->filled[word])]; block; block = block->larger)
                if (block->size > largest)
                    largest = block->size;
            break;
        }
    }
    return largest;
}

static ignis_status ignis__fail_device_memory(const char *call, ignis__device *device, const ignis__cache *cache, int64_t size, int error)
{
    size_t available = 0, total = 0;
    const ignis_memory_info *info = &cache->info;
    char limit[64] = "no limit is set";
    if (error != 0 && error != IGNIS__CU_OUT_OF_MEMORY)
        return ignis__cuda_fail(call, device, "cuMemAlloc_v2", error);
    (void)IGNIS__CUDA(cuMemGetInfo_v2, (&available, &total)); /* for the sentence only */
    if (info->limit)
        snprintf(limit, sizeof limit, "the limit is %lld", (long long)info->limit);
    return ignis__fail_because(
        IGNIS_DIAG_DEVICE_MEMORY, call, error, error ? ignis__cuda_name(error) : NULL, NULL,
        "out of memory on device %d: %lld bytes were asked for; arrays use %lld of %lld reserved bytes (largest free block %lld), %s, "
        "and the device has %lld of %lld bytes free",
        (int)(device - ignis__devices), (long long)size, (long long)info->live_bytes, (long long)info->reserved_bytes,
        (long long)ignis__cache_largest_free(cache), limit, (long long)available, (long long)total);
}

/*  Memory of at least `size` bytes for work on `stream`; null on failure. The device is entered. */
static ignis__block *ignis__memory_take(const char *call, ignis__device *device, void *stream, int64_t size)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__cache_part *part;
    ignis__block *block = NULL;
    int64_t rounded = size > INT64_MAX - IGNIS__BLOCK_UNIT ? size : (size + IGNIS__BLOCK_UNIT - 1) / IGNIS__BLOCK_UNIT * IGNIS__BLOCK_UNIT;
    int error = 0;

    ignis__mutex_lock(&cache->lock);
    cache->info.allocations++;
    part = ignis__cache_part_of(cache, stream, rounded <= IGNIS__SMALL_LIMIT);
    if (!part)
        error = IGNIS__NO_HOST_MEMORY;
    if (part && ignis__memory_bypass) /* exact sizes, so that a memory checker sees every byte beyond them */
        block = ignis__segment_make(cache, part, size, size, &error);
    else if (part)
        block = ignis__memory_find(call, device, cache, part, rounded, &error);
    if (block) {
        ignis__block_use(cache, block, ignis__memory_bypass ? block->size : rounded);
        ignis__memory_count(cache, block->size, 0);
    } else if (error == IGNIS__NO_HOST_MEMORY) {
        ignis__fail_host_memory(call, part ? sizeof *block : sizeof *part);
    } else if (!ignis__atomic_load(&device->lost)) {
        ignis__fail_device_memory(call, device, cache, size, error);
    }
    ignis__mutex_unlock(&cache->lock);
    return block;
}

/*  Gives memory back in the order of its stream. The device is entered. */
static void ignis__memory_give(const char *call, ignis__device *device, ignis__block *block)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__mutex_lock(&cache->lock);
    ignis__memory_count(cache, -block->size, 0);
    ignis__block_settle(cache, block);
    if (ignis__memory_bypass)
        (void)ignis__cache_trim(call, device, cache);
    ignis__mutex_unlock(&cache->lock);
}

static void ignis__cache_part_merge(ignis__cache *cache, ignis__cache_part *from, ignis__cache_part *into)
{
    ignis__block *first, *block;
    for (first = cache->segments; first; first = first->next_segment) {
        for (block = first; block; block = block->above) {
            if (block->part != from)
                continue;
            if (!block->used)
                ignis__bin_remove(block);
            block->part = into;
            if (!block->used)
                ignis__bin_insert(block);
        }
    }
}

/*  Hands a stream's blocks, free and used, to Ignis' own stream. The stream is idle. */
static void ignis__memory_forget_stream(ignis__device *device, void *stream)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__cache_part **link = &cache->parts;
    ignis__mutex_lock(&cache->lock);
    while (*link) {
        ignis__cache_part *part = *link, *own = cache->parts;
        while (own && !(own->stream == device->stream && own->small == part->small))
            own = own->next;
        if (part->stream == stream && own) {
            ignis__cache_part_merge(cache, part, own);
            *link = part->next;
            ignis__free(part);
            continue;
        }
        if (part->stream == stream)
            part->stream = device->stream;
        link = &part->next;
    }
    ignis__mutex_unlock(&cache->lock);
}

static void ignis__memory_setup(int64_t limit, bool bypass)
{
    int i;
    ignis__memory_bypass = bypass;
    ignis__pinned_bytes = 0;
    for (i = 0; i < ignis__device_total; i++) {
        memset(&ignis__caches[i], 0, sizeof ignis__caches[i]);
        ignis__mutex_init(&ignis__caches[i].lock);
        ignis__caches[i].info.limit = limit;
    }
}

/*  Frees every segment and all host memory of a device's cache. Its context is current. */
static void ignis__memory_close(const char *call, ignis__device *device)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    bool lost = ignis__atomic_load(&device->lost) != 0; /* then each call would fail with the error that is known already */
    while (cache->segments) {
        ignis__block *first = cache->segments, *block = first;
        cache->segments = first->next_segment;
        if (lost)
            (void)IGNIS__CUDA(cuMemFree_v2, (first->address));
        else
            (void)IGNIS__CUDA_FAILED(call, device, cuMemFree_v2, (first->address));
        while (block) {
            ignis__block *above = block->above;
            ignis__block_drop(cache, block);
            block = above;
        }
    }
    while (cache->spare_blocks) {
        ignis__block *block = cache->spare_blocks;
        cache->spare_blocks = block->above;
        ignis__free(block);
    }
    while (cache->parts) {
        ignis__cache_part *part = cache->parts;
        cache->parts = part->next;
        ignis__free(part);
    }
}

/*  What the driver knows of an address: the type of memory, 0 where it knows none (pageable host memory), and its device. */
static bool ignis__address_query(const char *call, ignis__device *device, const void *ptr, int *type, int *ordinal)
{
    int attributes[2] = {IGNIS__CU_POINTER_MEMORY_TYPE, IGNIS__CU_POINTER_ORDINAL};
    void *values[2];
    *type = *ordinal = 0;
    values[0] = type;
    values[1] = ordinal;
    return !IGNIS__CUDA_FAILED(call, device, cuPointerGetAttributes, (2, attributes, values, (ignis__address)(uintptr_t)ptr));
}

/*  Pinned host memory; the device is entered. Null on failure. */
static void *ignis__pinned_take(const char *call, ignis__device *device, int64_t size)
{
    void *memory = NULL;
    int error = IGNIS__CUDA(cuMemHostAlloc, (&memory, (size_t)size, 0));
    if (error == 0) {
        ignis__atomic_add(&ignis__pinned_bytes, (uint64_t)size);
        return memory;
    }
    if (error == IGNIS__CU_OUT_OF_MEMORY)
        ignis__fail_because(IGNIS_DIAG_PINNED_MEMORY, call, error, ignis__cuda_name(error), NULL,
                            "out of pinned host memory: %lld bytes were asked for, %lld are pinned already", (long long)size,
                            (long long)ignis__atomic_load(&ignis__pinned_bytes));
    else
        ignis__cuda_fail(call, device, "cuMemHostAlloc", error);
    return NULL;
}

/*  Waits for the device first, as copies may still use the memory. It is freed also when the device cannot be entered; with a lost
    device there is nothing to wait for, and the memory ends with the context. */
static ignis_status ignis__pinned_give(const char *call, ignis__device *device, void *memory, int64_t size)
{
    ignis__binding binding;
    bool entered, ok;
    ignis__atomic_add(&ignis__pinned_bytes, (uint64_t)-size);
    if (ignis__atomic_load(&device->lost))
        return IGNIS_OK;
    entered = ignis__device_enter(call, device, &binding);
    ok = entered && !IGNIS__CUDA_FAILED(call, device, cuCtxSynchronize, ());
    if (IGNIS__CUDA_FAILED(call, device, cuMemFreeHost, (memory)))
        ok = false;
    if (entered)
        ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_memory_query(int ordinal, ignis_memory_info *info)
{
    static const char call[] = "ignis_memory_query";
    ignis__device *device;
    ignis__cache *cache;
    ignis__binding binding;
    size_t available = 0, total = 0;
    bool ok;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!info)
        return ignis__fail_null(call, "info");
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__device_enter(call, device, &binding))
        return ignis__failed();
    ok = !IGNIS__CUDA_FAILED(call, device, cuMemGetInfo_v2, (&available, &total));
    ignis__device_leave(&binding);
    cache = &ignis__caches[ordinal];
    ignis__mutex_lock(&cache->lock);
    *info = cache->info;
    info->largest_free = ignis__cache_largest_free(cache);
    ignis__mutex_unlock(&cache->lock);
    info->device_free = (int64_t)available;
    info->device_total = (int64_t)total;
    info->pinned_bytes = (int64_t)ignis__atomic_load(&ignis__pinned_bytes);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API int64_t ignis_memory_trim(int ordinal)
{
    static const char call[] = "ignis_memory_trim";
    ignis__device *device;
    ignis__cache *cache;
    ignis__binding binding;
    int64_t freed;
    if (!ignis__enter(call))
        return -1;
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__device_enter(call, device, &binding))
        return -1;
    cache = &ignis__caches[ordinal];
    ignis__mutex_lock(&cache->lock);
    freed = ignis__cache_trim(call, device, cache);
    ignis__mutex_unlock(&cache->lock);
    ignis__device_leave(&binding);
    return freed;
}

/* ===============================================================================================================
   >>array - shapes, element types, conversion, storage, arrays, views, copies, pins.
   =============================================================================================================== */

/* clang-format off */
static const struct {
    const char *name;
    int size;
} ignis__dtypes[] = {
    {"default", 0},
#define IGNIS__DTYPE_ROW(NAME, name, size) {#name, size},
    IGNIS_DTYPES(IGNIS__DTYPE_ROW)
#undef IGNIS__DTYPE_ROW
};
/* clang-format on */

static const char *const ignis__owners[] = {"none", "ignis", "nvccl", "wnais"};

static const char *ignis__owner_name(ignis_owner owner) { return (unsigned)owner < IGNIS_OWNER_COUNT ? ignis__owners[owner] : "unknown"; }

static bool ignis__owner_valid(const char *call, ignis_owner owner)
{
    if (owner > IGNIS_OWNER_DEFAULT && owner < IGNIS_OWNER_COUNT)
        return true;
    ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no owner %d; IGNIS_OWNER_IGNIS, _NVCCL and _WNAIS are 1 to 3", (int)owner);
    return false;
}

static bool ignis__dtype_valid(const char *call, ignis_dtype dtype)
{
    if (dtype > IGNIS_DTYPE_DEFAULT && dtype < IGNIS_DTYPE_COUNT)
        return true;
    ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no dtype %d; IGNIS_F16 to IGNIS_U8 are %d to %d", (int)dtype, (int)IGNIS_F16,
                (int)IGNIS_U8);
    return false;
}

/*  "[2, 3]" in a struct, so that a message can hold several. */
typedef struct ignis__shape_text {
    char text[IGNIS_MAX_DIMS * 22 + 4];
} ignis__shape_text;

static ignis__shape_text ignis__shape_write(const ignis_shape *shape)
{
    ignis__shape_text out;
    ignis__text text;
    int i;
    ignis__text_begin(&text, out.text, sizeof out.text);
    ignis__text_add(&text, "[");
    for (i = 0; i < shape->ndim && i < IGNIS_MAX_DIMS; i++)
        ignis__text_add(&text, "%s%lld", i ? ", " : "", (long long)shape->dim[i]);
    ignis__text_add(&text, "]");
    return out;
}

/*  a * b of numbers that are not negative; false when it does not fit. */
static bool ignis__multiply(int64_t a, int64_t b, int64_t *product)
{
    if (a != 0 && b > INT64_MAX / a)
        return false;
    *product = a * b;
    return true;
}

/*  Checks a shape and counts its elements. The product without its zeros must fit too, so a stride can always be computed. */
static bool ignis__shape_check(const char *call, const ignis_shape *shape, ignis_dtype dtype, int64_t *numel)
{
    int64_t product = ignis__dtypes[dtype].size;
    bool empty = false, fits = true;
    int i;
    if (shape->ndim < 1 || shape->ndim > IGNIS_MAX_DIMS) {
        ignis__fail(IGNIS_DIAG_SHAPE_RANK, call, "a shape has 1 to %d dimensions, this one has %d; IGNIS_SHAPE(1) is a single element",
                    IGNIS_MAX_DIMS, shape->ndim);
        return false;
    }
    for (i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] < 0) {
            ignis__fail(IGNIS_DIAG_SHAPE_DIM, call, "dimension %d of shape %s is negative", i, ignis__shape_write(shape).text);
            return false;
        }
        if (shape->dim[i] == 0)
            empty = true;
        else
            fits = fits && ignis__multiply(product, shape->dim[i], &product);
    }
    if (!fits) {
        ignis__fail(IGNIS_DIAG_SHAPE_OVERFLOW, call, "shape %s of %s has more bytes than 63 bits can count", ignis__shape_write(shape).text,
                    ignis__dtypes[dtype].name);
        return false;
    }
    *numel = empty ? 0 : product / ignis__dtypes[dtype].size;
    return true;
}

/* --- conversion on the host ------------------------------------------------------------------------------------ */

/*  Elements travel as int64_t (integers) or double (floats), both of which hold every value of their types, and are rounded
    once, at the end. kernels/ignis.cuh does the same on the device, bit for bit. */

/*  Rounds to a binary float of `fraction` bits and `exponent` bits, to nearest even (IEEE 754-2008, 4.3.1). */
static uint32_t ignis__round_double(double value, int fraction, int exponent)
{
    uint64_t bits, significand, rounded, remainder, middle;
    uint32_t sign, infinity = ((1u << exponent) - 1) << fraction;
    int power, shift;
    memcpy(&bits, &value, sizeof bits);
    sign = (uint32_t)(bits >> 63) << (fraction + exponent);
    power = (int)(bits >> 52 & 0x7FF);
    significand = bits & 0xFFFFFFFFFFFFFu;
    if (power == 0x7FF)
        return sign | infinity | (significand ? 1u << (fraction - 1) : 0);
    if (power == 0)
        return sign; /* far below every subnormal of a smaller type */
    significand |= (uint64_t)1 << 52;
    power += ((1 << (exponent - 1)) - 1) - 1023; /* the exponent field in the small type */
    shift = 52 - fraction;
    if (power < 1) { /* a subnormal: its exponent is that of field 1, with fewer bits */
        shift += 1 - power;
        power = 1;
        if (shift > 63)
            return sign;
    }
    rounded = significand >> shift;
    remainder = significand & (((uint64_t)1 << shift) - 1);
    middle = (uint64_t)1 << (shift - 1);
    if (remainder > middle || (remainder == middle && (rounded & 1)))
        rounded++;
    /* The hidden bit adds 1 to the field where it is set, and a carry of the rounding goes on into it. */
    rounded += (uint64_t)(power - 1) << fraction;
    return sign | (rounded >= infinity ? infinity : (uint32_t)rounded);
}

static double ignis__widen_float(uint32_t bits, int fraction, int exponent)
{
    uint64_t sign = (uint64_t)(bits >> (fraction + exponent)) << 63, wide;
    int power = (int)(bits >> fraction) & ((1 << exponent) - 1);
    uint64_t low = bits & ((1u << fraction) - 1);
    double value;
    if (power == (1 << exponent) - 1) {
        wide = (uint64_t)0x7FF << 52 | low << (52 - fraction);
    } else if (power == 0 && low == 0) {
        wide = 0;
    } else {
        if (power == 0) { /* a subnormal: shift its highest bit into the hidden place */
            int up = fraction - ignis__log2(low);
            low = low << up & ((1u << fraction) - 1);
            power = 1 - up;
        }
        wide = (uint64_t)(power + 1023 - ((1 << (exponent - 1)) - 1)) << 52 | low << (52 - fraction);
    }
    wide |= sign;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/*  A double that rounds to every shorter type as the integer itself would: what a double cannot hold goes into its last bit. */
static double ignis__widen_int(int64_t value)
{
    const int64_t low = 0x7FF;
    if (value > -((int64_t)1 << 53) && value < (int64_t)1 << 53)
        return (double)value;
    return (double)((value & ~low) | (value & low ? low + 1 : 0));
}

static int64_t ignis__double_to_int(double value, int64_t lowest, int64_t highest)
{
    if (value != value)
        return 0;
    if (value >= (double)highest) /* for 2^63 - 1 that is 2^63, which is as well the first that does not fit */
        return highest;
    return value <= (double)lowest ? lowest : (int64_t)value;
}

static int64_t ignis__clamp(int64_t value, int64_t lowest, int64_t highest)
{
    return value < lowest ? lowest : value > highest ? highest : value;
}

static bool ignis__dtype_is_int(ignis_dtype dtype) { return dtype >= IGNIS_I32; }

/*  What elements travel in. */
typedef union ignis__wide {
    double f;
    int64_t i;
} ignis__wide;

#define IGNIS__FOR_EACH(type, statement)                    \
    for (i = 0; i < count; i++) {                           \
        type x;                                             \
        memcpy(&x, from + i * (int64_t)sizeof x, sizeof x); \
        statement;                                          \
    }                                                       \
    break;

static void ignis__load_wide(ignis__wide *to, const char *from, ignis_dtype dtype, int64_t count)
{
    int64_t i;
    switch (dtype) {
    case IGNIS_F16: IGNIS__FOR_EACH(uint16_t, to[i].f = ignis__widen_float(x, 10, 5))
    case IGNIS_BF16: IGNIS__FOR_EACH(uint16_t, to[i].f = ignis__widen_float(x, 7, 8))
    case IGNIS_F32: IGNIS__FOR_EACH(float, to[i].f = (double)x)
    case IGNIS_F64: IGNIS__FOR_EACH(double, to[i].f = x)
    case IGNIS_I32: IGNIS__FOR_EACH(int32_t, to[i].i = x)
    case IGNIS_I64: IGNIS__FOR_EACH(int64_t, to[i].i = x)
    default: IGNIS__FOR_EACH(uint8_t, to[i].i = x)
    }
}
#undef IGNIS__FOR_EACH

#define IGNIS__FOR_EACH(type, expression)                 \
    for (i = 0; i < count; i++) {                         \
        type x = (type)(expression);                      \
        memcpy(to + i * (int64_t)sizeof x, &x, sizeof x); \
    }                                                     \
    break;

static void ignis__store_wide(char *to, const ignis__wide *from, ignis_dtype dtype, int64_t count)
{
    int64_t i;
    switch (dtype) {
    case IGNIS_F16: IGNIS__FOR_EACH(uint16_t, ignis__round_double(from[i].f, 10, 5))
    case IGNIS_BF16: IGNIS__FOR_EACH(uint16_t, ignis__round_double(from[i].f, 7, 8))
    case IGNIS_F32: IGNIS__FOR_EACH(float, from[i].f)
    case IGNIS_F64: IGNIS__FOR_EACH(double, from[i].f)
    case IGNIS_I32: IGNIS__FOR_EACH(int32_t, ignis__clamp(from[i].i, INT32_MIN, INT32_MAX))
    case IGNIS_I64: IGNIS__FOR_EACH(int64_t, from[i].i)
    default: IGNIS__FOR_EACH(uint8_t, ignis__clamp(from[i].i, 0, UINT8_MAX))
    }
}
#undef IGNIS__FOR_EACH

static void ignis__convert(void *to, ignis_dtype to_dtype, const void *from, ignis_dtype from_dtype, int64_t count)
{
    ignis__wide wide[256];
    int64_t done, part, i;
    bool from_int = ignis__dtype_is_int(from_dtype), to_int = ignis__dtype_is_int(to_dtype);
    for (done = 0; done < count; done += part) {
        part = count - done < IGNIS__COUNT(wide) ? count - done : IGNIS__COUNT(wide);
        ignis__load_wide(wide, (const char *)from + done * ignis__dtypes[from_dtype].size, from_dtype, part);
        if (from_int && to_dtype == IGNIS_F64)
            for (i = 0; i < part; i++)
                wide[i].f = (double)wide[i].i;
        else if (from_int && !to_int)
            for (i = 0; i < part; i++)
                wide[i].f = ignis__widen_int(wide[i].i);
        else if (!from_int && to_int)
            for (i = 0; i < part; i++)
                wide[i].i = ignis__double_to_int(wide[i].f, INT64_MIN, INT64_MAX);
        ignis__store_wide((char *)to + done * ignis__dtypes[to_dtype].size, wide, to_dtype, part);
    }
}

static void ignis__shape_copy(ignis_shape *to, const ignis_shape *from)
{
    memset(to, 0, sizeof *to); /* dimensions that do not count are 0, whatever the caller left there */
    to->ndim = from->ndim;
    memcpy(to->dim, from->dim, sizeof from->dim[0] * (size_t)from->ndim);
}

/* --- storage: device memory that arrays and their views share ---------------------------------------------------- */

/*  Memory is taken at the first use. Other streams than its own that have used it are remembered, so that its next user can be
    ordered behind them without asking the caller. */
typedef struct ignis__used_on {
    ignis__device *device;
    void *stream;
} ignis__used_on;

typedef struct ignis__storage {
    uint64_t users; /* arrays */
    ignis__mutex lock;
    ignis__device *device;
    ignis__block *block; /* null: not allocated, or wrapped */
    uint64_t address;    /* 0: not allocated */
    int64_t size;        /* bytes */
    bool wrapped;
    void *stream; /* in whose order the memory is taken and given; null: not decided */
    ignis__used_on used_on[4];
    int used_on_count;
} ignis__storage;

/*  Notes that work on `stream` is about to use the memory, and orders it behind the stream that the memory came from: that one
    may not be done with the block's last user. */
static bool ignis__storage_used_on(const char *call, ignis__storage *storage, ignis__device *device, void *stream)
{
    ignis__used_on *slot;
    int i;
    if (stream == storage->stream && device == storage->device)
        return true;
    for (i = 0; i < storage->used_on_count; i++)
        if (storage->used_on[i].stream == stream && storage->used_on[i].device == device)
            return true;
    if (!ignis__stream_order(call, storage->device, storage->stream, device, stream))
        return false;
    if (storage->used_on_count < IGNIS__COUNT(storage->used_on)) {
        slot = &storage->used_on[storage->used_on_count++];
    } else { /* more streams than places: make the memory's own stream wait for one of them now, and forget that one */
        slot = &storage->used_on[0];
        if (!ignis__stream_order(call, slot->device, slot->stream, storage->device, storage->stream))
            return false;
    }
    slot->device = device;
    slot->stream = stream;
    return true;
}

/*  The address for work on `stream` of `device`, allocating if need be. 0: failure, or nothing to store. */
static bool ignis__storage_use(const char *call, ignis__storage *storage, ignis__device *device, void *stream, uint64_t *address)
{
    bool ok = true;
    ignis__mutex_lock(&storage->lock);
    if (!storage->stream)
        storage->stream = device == storage->device ? stream : storage->device->stream;
    if (!ignis__atomic_load(&storage->address) && storage->size > 0) {
        storage->block = ignis__memory_take(call, storage->device, storage->stream, storage->size);
        ok = storage->block != NULL;
        if (ok)
            ignis__atomic_store(&storage->address, storage->block->address);
    }
    ok = ok && (storage->size == 0 || ignis__storage_used_on(call, storage, device, stream));
    *address = ignis__atomic_load(&storage->address);
    ignis__mutex_unlock(&storage->lock);
    return ok;
}

/*  One user less; the last gives the memory back behind all work that used it. Where the device cannot be entered the block stays
    out of use until ignis_shutdown frees its segment. */
static void ignis__storage_drop(const char *call, ignis__storage *storage)
{
    ignis__binding binding;
    int i;
    if (ignis__atomic_add(&storage->users, (uint64_t)-1) != 0)
        return;
    if (storage->block && !ignis__atomic_load(&storage->device->lost) && ignis__device_enter(call, storage->device, &binding)) {
        for (i = 0; i < storage->used_on_count; i++)
            if (!ignis__stream_order(call, storage->used_on[i].device, storage->used_on[i].stream, storage->device, storage->stream))
                (void)IGNIS__CUDA(cuCtxSynchronize, ()); /* without an event, waiting is what is left */
        ignis__memory_give(call, storage->device, storage->block);
        ignis__device_leave(&binding);
    }
    ignis__free(storage);
}

/* --- arrays ------------------------------------------------------------------------------------------------------ */

typedef struct ignis__array {
    ignis__slot slot; /* first; its lock guards what may change: owner, ref_count, pinned, tracking */
    ignis__storage *storage;
    int64_t offset; /* bytes into the storage */
    int64_t numel;
    ignis_shape shape;
    ignis_dtype dtype;
    ignis_owner owner;
    int ref_count;
    bool view;
    bool tracked_by_user;
    uint64_t id;
    uint64_t parent;
    int64_t created_at_ns;
    int64_t tracked_at_ns; /* monotonic; 0: not tracked */
    void *pinned;
    char tag[32];
} ignis__array;

static ignis__pool ignis__arrays = {sizeof(ignis__array), IGNIS__KIND_ARRAY, IGNIS__MUTEX_INIT, 0, {0}, NULL};
static uint64_t ignis__array_ids; /* given out so far, in this process */

static int64_t ignis__array_bytes(const ignis__array *array) { return array->numel * ignis__dtypes[array->dtype].size; }

static void ignis__fail_stale(const char *call, const char *what, ignis_diagnostic diagnostic, ignis__kind kind, uint64_t handle)
{
    uint64_t its_kind = handle >> 28 & 15;
    if (its_kind != (uint64_t)kind && (its_kind == IGNIS__KIND_ARRAY || its_kind == IGNIS__KIND_KERNEL))
        ignis__fail(IGNIS_DIAG_WRONG_KIND, call, "%s handle 0x%llx is the handle of something else", what, (unsigned long long)handle);
    else if (handle)
        ignis__fail(diagnostic, call, "%s handle 0x%llx was freed, or never existed", what, (unsigned long long)handle);
    /* 0 is what a failed call returned: the first error says why */
    else if (ignis__this_thread.record.status == IGNIS_OK)
        ignis__fail(diagnostic, call, "%s handle is 0: no %s was created", what, what);
    else
        ignis__this_thread.latest = ignis__diagnostics[diagnostic].status;
}

/*  The array of a handle, held; null, and reported, when there is none. */
static ignis__array *ignis__array_hold(const char *call, ignis_array handle)
{
    ignis__array *array;
    if (!ignis__enter(call))
        return NULL;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (!array)
        ignis__fail_stale(call, "array", IGNIS_DIAG_ARRAY_FREED, IGNIS__KIND_ARRAY, handle.id);
    return array;
}

/*  Takes a dead array apart. */
static void ignis__array_destroy(const char *call, ignis__array *array)
{
    if (array->pinned)
        ignis__pinned_give(call, array->storage->device, array->pinned, ignis__array_bytes(array));
    ignis__storage_drop(call, array->storage);
    array->pinned = NULL;
    array->storage = NULL;
    ignis__pool_give(&ignis__arrays, array);
}

static void ignis__array_drop(const char *call, ignis__array *array)
{
    if (ignis__pool_drop(array))
        ignis__array_destroy(call, array);
}

/*  Locks a held array for a change of its own fields; false, and reported, when another thread has freed it meanwhile. */
static bool ignis__array_lock(const char *call, ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    if (ignis__pool_live(array))
        return true;
    ignis__mutex_unlock(&array->slot.lock);
    ignis__fail(IGNIS_DIAG_ARRAY_FREED, call, "array #%llu was freed", (unsigned long long)array->id);
    return false;
}

static void ignis__array_unlock(ignis__array *array) { ignis__mutex_unlock(&array->slot.lock); }

/*  A new array over a storage, of which it becomes a user. Only its maker sees it until ignis__array_publish. Null: no memory. */
static ignis__array *ignis__array_make(const char *call, ignis__storage *storage, const ignis_shape *shape, ignis_dtype dtype,
                                       int64_t numel)
{
    ignis__array *array = (ignis__array *)ignis__pool_take(&ignis__arrays);
    if (!array) {
        ignis__fail_host_memory(call, sizeof *array);
        return NULL;
    }
    ignis__atomic_add(&storage->users, 1);
    array->storage = storage;
    array->offset = 0;
    array->numel = numel;
    ignis__shape_copy(&array->shape, shape);
    array->dtype = dtype;
    array->owner = IGNIS_OWNER_IGNIS;
    array->ref_count = 0;
    array->view = array->tracked_by_user = false;
    array->id = ignis__atomic_add(&ignis__array_ids, 1);
    array->parent = 0;
    array->created_at_ns = ignis__wall_ns();
    array->tracked_at_ns = 0;
    array->pinned = NULL;
    memset(array->tag, 0, sizeof array->tag);
    return array;
}

static ignis_array ignis__array_publish(ignis__array *array)
{
    ignis_array handle;
    handle.id = ignis__pool_publish(&ignis__arrays, array);
    return handle;
}

/*  What a wrapped pointer must be: memory that the device can use, and of that device. */
static bool ignis__array_wrappable(const char *call, ignis__device *device, void *ptr)
{
    int type, ordinal, wanted = (int)(device - ignis__devices);
    if (!ignis__address_query(call, device, ptr, &type, &ordinal))
        return false;
    if (type == 0 || type == IGNIS__CU_MEMORY_HOST) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.ptr %p is not device memory; copy host memory with ignis_array_from_host", ptr);
        return false;
    }
    if (ordinal != wanted) {
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "desc.ptr %p is memory of device %d, the array is to be on device %d", ptr, ordinal,
                    wanted);
        return false;
    }
    return true;
}

/*  A storage with no users yet; null on failure. */
static ignis__storage *ignis__storage_make(const char *call, ignis__device *device, int64_t size)
{
    ignis__storage *storage = (ignis__storage *)ignis__alloc(sizeof *storage);
    if (!storage) {
        ignis__fail_host_memory(call, sizeof *storage);
        return NULL;
    }
    ignis__mutex_init(&storage->lock);
    storage->device = device;
    storage->size = size;
    return storage;
}

/*  The part of ignis_array_create that needs the device: a pointer to check, a stream to write down. */
static bool ignis__array_attach(const char *call, ignis__device *device, ignis__storage *storage, const ignis_array_desc *desc)
{
    ignis__binding binding;
    bool ok;
    if (!desc->ptr && !desc->stream)
        return true;
    if (!ignis__device_enter(call, device, &binding))
        return false;
    ok = (!desc->ptr || storage->size == 0 || ignis__array_wrappable(call, device, desc->ptr)) &&
         (!desc->stream || desc->stream == device->stream || ignis__stream_adopt(call, device, desc->stream) != 0);
    ignis__device_leave(&binding);
    storage->wrapped = desc->ptr != NULL;
    storage->address = (uint64_t)(uintptr_t)desc->ptr;
    storage->stream = desc->stream;
    return ok;
}

static ignis_array ignis__array_create(const char *call, const ignis_array_desc *desc)
{
    ignis_array handle = IGNIS__ZERO;
    ignis__device *device;
    ignis__storage *storage;
    ignis__array *array;
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    ignis_owner owner = desc->owner ? desc->owner : IGNIS_OWNER_IGNIS;
    int ordinal = desc->device == 0 ? ignis__thread_now()->device : desc->device == IGNIS_DEVICE_0 ? 0 : desc->device;
    int64_t numel;
    size_t length;

    if (!ignis__dtype_valid(call, dtype) || !ignis__owner_valid(call, owner) || !ignis__shape_check(call, &desc->shape, dtype, &numel) ||
        (device = ignis__device_get(call, ordinal)) == NULL ||
        (storage = ignis__storage_make(call, device, numel * ignis__dtypes[dtype].size)) == NULL)
        return handle;
    array = ignis__array_attach(call, device, storage, desc) ? ignis__array_make(call, storage, &desc->shape, dtype, numel) : NULL;
    if (!array) {
        ignis__free(storage);
        return handle;
    }
    array->owner = owner;
    if (desc->tag) {
        length = strlen(desc->tag);
        memcpy(array->tag, desc->tag, length < sizeof array->tag ? length : sizeof array->tag - 1);
    }
    return ignis__array_publish(array);
}

IGNIS_API ignis_array ignis_array_create(const ignis_array_desc *desc)
{
    static const char call[] = "ignis_array_create";
    ignis_array none = IGNIS__ZERO;
    if (!ignis__enter(call))
        return none;
    if (!desc) {
        ignis__fail_null(call, "desc");
        return none;
    }
    return ignis__array_create(call, desc);
}

/*  An array like another one, of another dtype perhaps, with memory of its own. */
static ignis_array ignis__array_create_like(const char *call, const ignis__array *like, ignis_dtype dtype)
{
    ignis_array_desc desc;
    int ordinal = (int)(like->storage->device - ignis__devices);
    memset(&desc, 0, sizeof desc);
    desc.shape = like->shape;
    desc.dtype = dtype;
    desc.device = ordinal ? ordinal : IGNIS_DEVICE_0;
    desc.owner = like->owner;
    desc.tag = like->tag;
    return ignis__array_create(call, &desc);
}

/*  Views of an array share its storage, owner and tag. */
static ignis_array ignis__array_view(const char *call, const ignis__array *of, const ignis_shape *shape, int64_t numel, int64_t offset)
{
    ignis_array none = IGNIS__ZERO;
    ignis__array *view = ignis__array_make(call, of->storage, shape, of->dtype, numel);
    if (!view)
        return none;
    view->offset = of->offset + offset;
    view->owner = of->owner;
    view->view = true;
    view->parent = of->id;
    memcpy(view->tag, of->tag, sizeof view->tag);
    return ignis__array_publish(view);
}

/*  Arrays that were freed while ignis_contract_track watched them: the audit shows them until they are untracked. */
typedef struct ignis__tracked_freed {
    uint64_t handle;
    int64_t tracked_at_ns;
    ignis_contract_entry entry;
    struct ignis__tracked_freed *next;
} ignis__tracked_freed;

static struct {
    ignis__mutex lock;
    int live; /* tracked arrays that are not freed */
    int freed_count;
    ignis__tracked_freed *freed;
} ignis__tracking = {IGNIS__MUTEX_INIT, 0, 0, NULL};

static void ignis__track_entry(const ignis__array *array, ignis_contract_entry *entry)
{
    memset(entry, 0, sizeof *entry);
    entry->array_id = array->id;
    entry->owner = array->owner;
    entry->shape = array->shape;
    entry->dtype = array->dtype;
    entry->bytes = ignis__array_bytes(array);
    entry->ref_count = array->ref_count;
    entry->views = (int)ignis__atomic_load(&array->storage->users) - 1;
    memcpy(entry->tag, array->tag, sizeof entry->tag);
}

/*  A tracked array has died. One that was only acquired leaves the audit; one that the user watches stays, as freed. */
static void ignis__track_freed(const ignis__array *array)
{
    ignis__tracked_freed *freed = array->tracked_by_user ? (ignis__tracked_freed *)ignis__alloc(sizeof *freed) : NULL;
    ignis__mutex_lock(&ignis__tracking.lock);
    ignis__tracking.live--;
    if (freed) {
        ignis__track_entry(array, &freed->entry);
        freed->entry.freed = true;
        freed->handle = array->slot.handle;
        freed->tracked_at_ns = array->tracked_at_ns;
        freed->next = ignis__tracking.freed;
        ignis__tracking.freed = freed;
        ignis__tracking.freed_count++;
    }
    ignis__mutex_unlock(&ignis__tracking.lock);
}

static ignis_status ignis__array_free_as(const char *call, ignis_array handle, ignis_owner as)
{
    ignis__array *array = ignis__array_hold(call, handle);
    ignis_status status = IGNIS_OK;
    if (!array)
        return ignis__failed();
    if (!ignis__owner_valid(call, as)) {
        status = ignis__failed();
    } else if (!ignis__array_lock(call, array)) {
        status = ignis__failed();
    } else {
        if (array->owner != as)
            status = ignis__fail(IGNIS_DIAG_FREE_BY_OTHER, call, "array #%llu%s%s%s is owned by %s and may only be freed by it, not by %s",
                                 (unsigned long long)array->id, *array->tag ? " '" : "", array->tag, *array->tag ? "'" : "",
                                 ignis__owner_name(array->owner), ignis__owner_name(as));
        else if (array->ref_count > 0)
            status = ignis__fail(IGNIS_DIAG_FREE_REFERENCED, call,
                                 "array #%llu%s%s%s, owned by %s, cannot be freed while its ref_count is %d, not 0",
                                 (unsigned long long)array->id, *array->tag ? " '" : "", array->tag, *array->tag ? "'" : "",
                                 ignis__owner_name(array->owner), array->ref_count);
        else
            ignis__pool_kill(array);
        ignis__array_unlock(array);
        if (status == IGNIS_OK) {
            if (array->tracked_at_ns)
                ignis__track_freed(array);
            ignis__pool_drop(array); /* the handle's own hold; this call still has one */
        }
    }
    ignis__array_drop(call, array);
    return status;
}

IGNIS_API ignis_status ignis_array_free(ignis_array array) { return ignis__array_free_as("ignis_array_free", array, IGNIS_OWNER_IGNIS); }

IGNIS_API ignis_status ignis_array_free_as(ignis_array array, ignis_owner owner)
{
    return ignis__array_free_as("ignis_array_free_as", array, owner);
}

IGNIS_API bool ignis_array_is_live(ignis_array handle)
{
    bool usable = ignis__atomic_load(&ignis__global.ready) && !ignis__atomic_load(&ignis__global.forked);
    void *array = usable ? ignis__pool_hold(&ignis__arrays, handle.id) : NULL;
    if (!array)
        return false;
    ignis__array_drop("ignis_array_is_live", (ignis__array *)array);
    return true;
}

IGNIS_API ignis_status ignis_array_query(ignis_array handle, ignis_array_info *info)
{
    static const char call[] = "ignis_array_query";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis_status status = IGNIS_OK;
    uint64_t address;
    if (!array)
        return ignis__failed();
    if (!info) {
        status = ignis__fail_null(call, "info");
    } else if (!ignis__array_lock(call, array)) {
        status = ignis__failed();
    } else {
        address = ignis__atomic_load(&array->storage->address);
        info->id = array->id;
        info->shape = array->shape;
        info->dtype = array->dtype;
        info->device = (int)(array->storage->device - ignis__devices);
        info->owner = array->owner;
        info->ref_count = array->ref_count;
        info->ptr = address ? (void *)(uintptr_t)(address + (uint64_t)array->offset) : NULL;
        info->pinned_host_ptr = array->pinned;
        info->created_at_ns = array->created_at_ns;
        info->owns_memory = !array->view && !array->storage->wrapped;
        info->on_device = address != 0;
        info->parent = array->parent;
        memcpy(info->tag, array->tag, sizeof info->tag);
        ignis__array_unlock(array);
        ignis__mutex_lock(&array->storage->lock);
        info->stream = array->storage->stream;
        ignis__mutex_unlock(&array->storage->lock);
    }
    ignis__array_drop(call, array);
    return status;
}

IGNIS_API int64_t ignis_array_numel(ignis_array handle)
{
    static const char call[] = "ignis_array_numel";
    ignis__array *array = ignis__array_hold(call, handle);
    int64_t numel;
    if (!array)
        return -1;
    numel = array->numel;
    ignis__array_drop(call, array);
    return numel;
}

IGNIS_API int64_t ignis_array_size_bytes(ignis_array handle)
{
    static const char call[] = "ignis_array_size_bytes";
    ignis__array *array = ignis__array_hold(call, handle);
    int64_t size;
    if (!array)
        return -1;
    size = ignis__array_bytes(array);
    ignis__array_drop(call, array);
    return size;
}

static void ignis__array_describe(ignis__text *text, const ignis__array *array)
{
    ignis__text_add(text, "array #%llu %s %s on device %d, owner %s, ref_count %d", (unsigned long long)array->id,
                    ignis__shape_write(&array->shape).text, ignis__dtypes[array->dtype].name,
                    (int)(array->storage->device - ignis__devices), ignis__owner_name(array->owner), array->ref_count);
    if (*array->tag)
        ignis__text_add(text, ", '%s'", array->tag);
}

IGNIS_API int ignis_array_to_string(ignis_array handle, char *out, size_t capacity)
{
    static const char call[] = "ignis_array_to_string";
    ignis__array *array;
    ignis__text text;
    char none[1];
    if (!ignis__enter(call))
        return -1;
    if (!out && capacity) {
        ignis__fail_null(call, "out");
        return -1;
    }
    ignis__text_begin(&text, out ? out : none, capacity);
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (array) {
        ignis__mutex_lock(&array->slot.lock);
        ignis__array_describe(&text, array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    } else {
        ignis__text_add(&text, "array handle 0x%llx (freed)", (unsigned long long)handle.id);
    }
    return (int)text.length;
}

/* --- work on arrays: an operation enters the device, gets addresses on the current stream, and leaves ------------------- */

typedef struct ignis__work {
    const char *call;
    ignis__device *device;
    ignis__binding binding;
    void *stream;
} ignis__work;

static bool ignis__work_begin(const char *call, ignis__device *device, ignis__work *work)
{
    work->call = call;
    work->device = device;
    if (!ignis__device_enter(call, device, &work->binding))
        return false;
    work->stream = ignis__stream_now(device);
    return true;
}

static void ignis__work_end(const ignis__work *work) { ignis__device_leave(&work->binding); }

/*  The address of an array's first element for writing; its memory is allocated if need be. */
static bool ignis__work_write(const ignis__work *work, ignis__array *array, ignis__address *address)
{
    uint64_t base;
    if (!ignis__storage_use(work->call, array->storage, work->device, work->stream, &base))
        return false;
    *address = base && array->numel ? base + (uint64_t)array->offset : 0;
    return true;
}

/*  The same for reading, where memory that nobody has written is a mistake. */
static bool ignis__work_read(const ignis__work *work, ignis__array *array, ignis__address *address)
{
    if (array->numel > 0 && !ignis__atomic_load(&array->storage->address)) {
        ignis__fail(IGNIS_DIAG_ARRAY_UNWRITTEN, work->call, "array #%llu has no device memory yet: nothing was ever written to it",
                    (unsigned long long)array->id);
        return false;
    }
    return ignis__work_write(work, array, address);
}

IGNIS_API ignis_status ignis_array_to_device(ignis_array handle)
{
    static const char call[] = "ignis_array_to_device";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__work work;
    ignis__address address;
    bool ok;
    if (!array)
        return ignis__failed();
    ok = ignis__work_begin(call, array->storage->device, &work);
    if (ok) {
        ok = ignis__work_write(&work, array, &address);
        ignis__work_end(&work);
    }
    ignis__array_drop(call, array);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API void *ignis_array_device_ptr(ignis_array handle)
{
    static const char call[] = "ignis_array_device_ptr";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__work work;
    ignis__address address = 0;
    if (!array)
        return NULL;
    if (ignis__work_begin(call, array->storage->device, &work)) {
        if (!ignis__work_write(&work, array, &address))
            address = 0;
        ignis__work_end(&work);
    }
    ignis__array_drop(call, array);
    return (void *)(uintptr_t)address;
}

IGNIS_API ignis_status ignis_array_zero(ignis_array handle)
{
    static const char call[] = "ignis_array_zero";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__work work;
    ignis__address address;
    bool ok;
    if (!array)
        return ignis__failed();
    ok = ignis__work_begin(call, array->storage->device, &work);
    if (ok) {
        ok = ignis__work_write(&work, array, &address) &&
             (array->numel == 0 ||
              !IGNIS__CUDA_FAILED(call, work.device, cuMemsetD8Async, (address, 0, (size_t)ignis__array_bytes(array), work.stream)));
        ignis__work_end(&work);
    }
    ignis__array_drop(call, array);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  The driver has read pageable memory when the copy call returns; pinned memory it reads later, so there Ignis waits. */
static bool ignis__copy_from_host(const ignis__work *work, ignis__address to, const void *from, int64_t size)
{
    int type, ordinal;
    if (size == 0)
        return true;
    if (IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyHtoDAsync_v2, (to, from, (size_t)size, work->stream)) ||
        !ignis__address_query(work->call, work->device, from, &type, &ordinal))
        return false;
    return type == 0 || !IGNIS__CUDA_FAILED(work->call, work->device, cuStreamSynchronize, (work->stream));
}

static bool ignis__copy_to_host(const ignis__work *work, void *to, ignis__address from, int64_t size)
{
    if (size > 0 && IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyDtoHAsync_v2, (to, from, (size_t)size, work->stream)))
        return false;
    return !IGNIS__CUDA_FAILED(work->call, work->device, cuStreamSynchronize, (work->stream));
}

static bool ignis__copy_on_device(const ignis__work *work, ignis__address to, ignis__address from, int64_t size)
{
    return size == 0 || to == from ||
           !IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyDtoDAsync_v2, (to, from, (size_t)size, work->stream));
}

/*  Converting copies go through this many bytes of host memory. */
#define IGNIS__CONVERT_CHUNK ((int64_t)4 << 20)

static bool ignis__convert_from_host(const ignis__work *work, ignis__address to, ignis_dtype to_dtype, const void *from,
                                     ignis_dtype from_dtype, int64_t count)
{
    int64_t size = ignis__dtypes[to_dtype].size, step = IGNIS__CONVERT_CHUNK / size, done, part;
    void *chunk = ignis__alloc((size_t)((count < step ? count : step) * size + 1));
    bool ok = chunk != NULL;
    if (!ok)
        ignis__fail_host_memory(work->call, (size_t)IGNIS__CONVERT_CHUNK);
    for (done = 0; ok && done < count; done += part) {
        part = count - done < step ? count - done : step;
        ignis__convert(chunk, to_dtype, (const char *)from + done * ignis__dtypes[from_dtype].size, from_dtype, part);
        ok = ignis__copy_from_host(work, to + (uint64_t)(done * size), chunk, part * size);
    }
    ignis__free(chunk);
    return ok;
}

static bool ignis__convert_to_host(const ignis__work *work, void *to, ignis_dtype to_dtype, ignis__address from, ignis_dtype from_dtype,
                                   int64_t count)
{
    int64_t size = ignis__dtypes[from_dtype].size, step = IGNIS__CONVERT_CHUNK / size, done, part;
    void *chunk = ignis__alloc((size_t)((count < step ? count : step) * size + 1));
    bool ok = chunk != NULL;
    if (!ok)
        ignis__fail_host_memory(work->call, (size_t)IGNIS__CONVERT_CHUNK);
    for (done = 0; ok && done < count; done += part) {
        part = count - done < step ? count - done : step;
        ok = ignis__copy_to_host(work, chunk, from + (uint64_t)(done * size), part * size);
        if (ok)
            ignis__convert((char *)to + done * ignis__dtypes[to_dtype].size, to_dtype, chunk, from_dtype, part);
    }
    ignis__free(chunk);
    return ok;
}

/*  What the four transfers check: a host pointer, and as many elements or bytes as the array has. */
static bool ignis__transfer_check(const char *call, const ignis__array *array, const void *host, const char *host_name, int64_t count,
                                  int64_t needed, const char *unit)
{
    if (count != needed) {
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call, "array #%llu %s %s has %lld %s, the call says %lld", (unsigned long long)array->id,
                    ignis__shape_write(&array->shape).text, ignis__dtypes[array->dtype].name, (long long)needed, unit, (long long)count);
        return false;
    }
    if (!host && needed > 0) {
        ignis__fail_null(call, host_name);
        return false;
    }
    return true;
}

static ignis_status ignis__array_from_host(const char *call, ignis__array *array, const void *data, ignis_dtype dtype)
{
    ignis__work work;
    ignis__address address;
    bool ok = ignis__work_begin(call, array->storage->device, &work);
    if (ok) {
        ok = ignis__work_write(&work, array, &address) &&
             (dtype == array->dtype ? ignis__copy_from_host(&work, address, data, ignis__array_bytes(array))
                                    : ignis__convert_from_host(&work, address, array->dtype, data, dtype, array->numel));
        ignis__work_end(&work);
    }
    return ok ? IGNIS_OK : ignis__failed();
}

static ignis_status ignis__array_to_host(const char *call, ignis__array *array, void *out, ignis_dtype dtype)
{
    ignis__work work;
    ignis__address address;
    bool ok = ignis__work_begin(call, array->storage->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, array, &address) &&
             (dtype == array->dtype ? ignis__copy_to_host(&work, out, address, ignis__array_bytes(array))
                                    : ignis__convert_to_host(&work, out, dtype, address, array->dtype, array->numel));
        ignis__work_end(&work);
    }
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_array_from_host(ignis_array handle, const void *data, ignis_dtype dtype, int64_t count)
{
    static const char call[] = "ignis_array_from_host";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis_status status = IGNIS_OK;
    if (!array)
        return ignis__failed();
    if (dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    if (ignis__dtype_valid(call, dtype) && ignis__transfer_check(call, array, data, "data", count, array->numel, "elements"))
        status = ignis__array_from_host(call, array, data, dtype);
    else
        status = ignis__failed();
    ignis__array_drop(call, array);
    return status;
}

IGNIS_API ignis_status ignis_array_from_host_raw(ignis_array handle, const void *bytes, int64_t size)
{
    static const char call[] = "ignis_array_from_host_raw";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis_status status;
    if (!array)
        return ignis__failed();
    if (ignis__transfer_check(call, array, bytes, "bytes", size, ignis__array_bytes(array), "bytes"))
        status = ignis__array_from_host(call, array, bytes, array->dtype);
    else
        status = ignis__failed();
    ignis__array_drop(call, array);
    return status;
}

IGNIS_API ignis_status ignis_array_to_host(ignis_array handle, void *out, ignis_dtype dtype, int64_t count)
{
    static const char call[] = "ignis_array_to_host";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis_status status;
    if (!array)
        return ignis__failed();
    if (dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    if (ignis__dtype_valid(call, dtype) && ignis__transfer_check(call, array, out, "out", count, array->numel, "elements"))
        status = ignis__array_to_host(call, array, out, dtype);
    else
        status = ignis__failed();
    ignis__array_drop(call, array);
    return status;
}

IGNIS_API ignis_status ignis_array_to_host_raw(ignis_array handle, void *out, int64_t size)
{
    static const char call[] = "ignis_array_to_host_raw";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis_status status;
    if (!array)
        return ignis__failed();
    if (ignis__transfer_check(call, array, out, "out", size, ignis__array_bytes(array), "bytes"))
        status = ignis__array_to_host(call, array, out, array->dtype);
    else
        status = ignis__failed();
    ignis__array_drop(call, array);
    return status;
}

/*  Copies the bytes of src over those of dst from an offset on; both on one device. */
static bool ignis__array_copy_bytes(const char *call, ignis__array *dst, int64_t offset, ignis__array *src)
{
    ignis__work work;
    ignis__address to, from;
    bool ok = ignis__work_begin(call, dst->storage->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, src, &from) && ignis__work_write(&work, dst, &to) &&
             ignis__copy_on_device(&work, to + (uint64_t)offset, from, ignis__array_bytes(src));
        ignis__work_end(&work);
    }
    return ok;
}

/*  Frees an array that a failed call has made and not yet returned. */
static void ignis__array_discard(const char *call, ignis_array *handle)
{
    ignis__array *array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle->id);
    ignis__pool_kill(array);
    ignis__pool_drop(array);
    ignis__array_drop(call, array);
    handle->id = 0;
}

IGNIS_API ignis_array ignis_array_clone(ignis_array handle)
{
    static const char call[] = "ignis_array_clone";
    ignis_array copy = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle), *made;
    if (!array)
        return copy;
    copy = ignis__array_create_like(call, array, array->dtype);
    if (copy.id) {
        made = (ignis__array *)ignis__pool_hold(&ignis__arrays, copy.id);
        if (!ignis__array_copy_bytes(call, made, 0, array))
            ignis__array_discard(call, &copy);
        ignis__array_drop(call, made);
    }
    ignis__array_drop(call, array);
    return copy;
}

static ignis_array ignis__array_slice(const char *call, const ignis__array *array, int dim, int64_t start, int64_t len)
{
    ignis_array none = IGNIS__ZERO;
    ignis_shape shape = array->shape;
    int64_t leading = 1, trailing = 1, numel;
    int i;
    if (dim < 0 || dim >= shape.ndim) {
        ignis__fail(IGNIS_DIAG_SLICE_RANGE, call, "dim %d is outside shape %s", dim, ignis__shape_write(&shape).text);
        return none;
    }
    if (start < 0 || len < 0 || len > shape.dim[dim] || start > shape.dim[dim] - len) {
        ignis__fail(IGNIS_DIAG_SLICE_RANGE, call, "elements %lld to %lld + %lld are outside dim %d of shape %s", (long long)start,
                    (long long)start, (long long)len, dim, ignis__shape_write(&shape).text);
        return none;
    }
    for (i = 0; i < dim; i++)
        leading = shape.dim[i] > 1 ? 2 : leading; /* more than one is all that counts */
    if (leading > 1) {
        ignis__fail(IGNIS_DIAG_SLICE_STRIDED, call,
                    "a slice of dim %d of shape %s is strided: its elements are not next to each other. A view can hold dim 0, or a dim "
                    "with only 1s "
                    "before it; copy strided slices with a kernel",
                    dim, ignis__shape_write(&shape).text);
        return none;
    }
    for (i = dim + 1; i < shape.ndim; i++)
        trailing *= shape.dim[i];
    shape.dim[dim] = len;
    if (!ignis__shape_check(call, &shape, array->dtype, &numel))
        return none;
    return ignis__array_view(call, array, &shape, numel, array->numel ? start * trailing * ignis__dtypes[array->dtype].size : 0);
}

IGNIS_API ignis_array ignis_array_slice(ignis_array handle, int dim, int64_t start, int64_t len)
{
    static const char call[] = "ignis_array_slice";
    ignis_array view = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array)
        return view;
    view = ignis__array_slice(call, array, dim, start, len);
    ignis__array_drop(call, array);
    return view;
}

/*  Replaces the one -1 of a shape by what is left of numel; a shape without it stays. */
static bool ignis__shape_infer(const char *call, ignis_shape *shape, int64_t numel)
{
    int64_t known = 1;
    int i, open = -1;
    for (i = 0; i < shape->ndim && i < IGNIS_MAX_DIMS; i++) {
        if (shape->dim[i] == -1 && open >= 0) {
            ignis__fail(IGNIS_DIAG_SHAPE_DIM, call, "shape %s leaves more than one dimension open", ignis__shape_write(shape).text);
            return false;
        }
        if (shape->dim[i] == -1)
            open = i;
        else if (shape->dim[i] < 0 || !ignis__multiply(known, shape->dim[i], &known))
            return true; /* the check that follows says what is wrong */
    }
    if (open >= 0 && (known == 0 || numel % known != 0)) {
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "%lld elements cannot be laid out as %s", (long long)numel,
                    ignis__shape_write(shape).text);
        return false;
    }
    if (open >= 0)
        shape->dim[open] = numel / known;
    return true;
}

IGNIS_API ignis_array ignis_array_reshape(ignis_array handle, ignis_shape shape)
{
    static const char call[] = "ignis_array_reshape";
    ignis_array view = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle);
    int64_t numel;
    if (!array)
        return view;
    if (ignis__shape_infer(call, &shape, array->numel) && ignis__shape_check(call, &shape, array->dtype, &numel)) {
        if (numel != array->numel)
            ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "array #%llu %s has %lld elements, the new shape %s has %lld",
                        (unsigned long long)array->id, ignis__shape_write(&array->shape).text, (long long)array->numel,
                        ignis__shape_write(&shape).text, (long long)numel);
        else
            view = ignis__array_view(call, array, &shape, numel, 0);
    }
    ignis__array_drop(call, array);
    return view;
}

static bool ignis__write_rows_check(const char *call, const ignis__array *dst, const ignis__array *src, int64_t start_row,
                                    int64_t *row_bytes)
{
    int64_t rows = dst->shape.dim[0];
    *row_bytes = rows && dst->numel ? ignis__array_bytes(dst) / rows : 0;
    if (dst->dtype != src->dtype) {
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "dst is %s, src is %s", ignis__dtypes[dst->dtype].name, ignis__dtypes[src->dtype].name);
        return false;
    }
    if (dst->storage->device != src->storage->device) {
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "dst is on device %d, src is on device %d",
                    (int)(dst->storage->device - ignis__devices), (int)(src->storage->device - ignis__devices));
        return false;
    }
    if (start_row < 0 || start_row > rows) {
        ignis__fail(IGNIS_DIAG_ROWS_OVERFLOW, call, "row %lld is outside dst %s", (long long)start_row,
                    ignis__shape_write(&dst->shape).text);
        return false;
    }
    if (src->numel && (*row_bytes == 0 || ignis__array_bytes(src) % *row_bytes != 0)) {
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "src %s is not a whole number of rows of dst %s", ignis__shape_write(&src->shape).text,
                    ignis__shape_write(&dst->shape).text);
        return false;
    }
    if (src->numel && ignis__array_bytes(src) / *row_bytes > rows - start_row) {
        ignis__fail(IGNIS_DIAG_ROWS_OVERFLOW, call, "writing %lld bytes at row %lld (offset %lld) goes beyond the %lld bytes of dst %s",
                    (long long)ignis__array_bytes(src), (long long)start_row, (long long)(start_row * *row_bytes),
                    (long long)ignis__array_bytes(dst), ignis__shape_write(&dst->shape).text);
        return false;
    }
    return true;
}

/*  Holds two or three arrays of one call; false when one is stale, with none held. A null handle pointer is skipped. */
static bool ignis__array_hold_all(const char *call, int count, const ignis_array *handles, ignis__array **arrays)
{
    int i;
    for (i = 0; i < count; i++) {
        arrays[i] = ignis__array_hold(call, handles[i]);
        if (!arrays[i]) {
            while (i > 0)
                ignis__array_drop(call, arrays[--i]);
            return false;
        }
    }
    return true;
}

static void ignis__array_drop_all(const char *call, int count, ignis__array **arrays)
{
    while (count > 0)
        ignis__array_drop(call, arrays[--count]);
}

IGNIS_API ignis_status ignis_array_write_rows(ignis_array dst, ignis_array src, int64_t start_row)
{
    static const char call[] = "ignis_array_write_rows";
    ignis_array handles[2];
    ignis__array *arrays[2];
    int64_t row_bytes;
    bool ok;
    handles[0] = dst;
    handles[1] = src;
    if (!ignis__array_hold_all(call, 2, handles, arrays))
        return ignis__failed();
    ok = ignis__write_rows_check(call, arrays[0], arrays[1], start_row, &row_bytes) &&
         ignis__array_copy_bytes(call, arrays[0], start_row * row_bytes, arrays[1]);
    ignis__array_drop_all(call, 2, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API void *ignis_array_pin(ignis_array handle)
{
    static const char call[] = "ignis_array_pin";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__binding binding;
    void *pinned = NULL;
    if (!array)
        return NULL;
    if (ignis__array_lock(call, array)) {
        if (array->pinned) {
            ignis__fail(IGNIS_DIAG_PIN_TWICE, call, "array #%llu has pinned host memory already", (unsigned long long)array->id);
        } else if (array->numel > 0 && ignis__device_enter(call, array->storage->device, &binding)) {
            pinned = array->pinned = ignis__pinned_take(call, array->storage->device, ignis__array_bytes(array));
            ignis__device_leave(&binding);
        }
        ignis__array_unlock(array);
    }
    ignis__array_drop(call, array);
    return pinned;
}

IGNIS_API ignis_status ignis_array_unpin(ignis_array handle)
{
    static const char call[] = "ignis_array_unpin";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis_status status = IGNIS_OK;
    void *pinned = NULL;
    if (!array)
        return ignis__failed();
    if (!ignis__array_lock(call, array)) {
        status = ignis__failed();
    } else {
        pinned = array->pinned;
        array->pinned = NULL;
        ignis__array_unlock(array);
        if (pinned)
            status = ignis__pinned_give(call, array->storage->device, pinned, ignis__array_bytes(array));
        else if (array->numel > 0)
            status = ignis__fail(IGNIS_DIAG_PIN_MISSING, call, "array #%llu has no pinned host memory", (unsigned long long)array->id);
    }
    ignis__array_drop(call, array);
    return status;
}

IGNIS_API int ignis_array_increment_ref(ignis_array handle)
{
    static const char call[] = "ignis_array_increment_ref";
    ignis__array *array = ignis__array_hold(call, handle);
    int count = -1;
    if (!array)
        return -1;
    if (ignis__array_lock(call, array)) {
        if (array->ref_count == INT_MAX)
            ignis__fail(IGNIS_DIAG_REF_COUNT_OVERFLOW, call, "array #%llu has %d references, and no room for another",
                        (unsigned long long)array->id, array->ref_count);
        else
            count = ++array->ref_count;
        ignis__array_unlock(array);
    }
    ignis__array_drop(call, array);
    return count;
}

IGNIS_API int ignis_array_decrement_ref(ignis_array handle)
{
    static const char call[] = "ignis_array_decrement_ref";
    ignis__array *array = ignis__array_hold(call, handle);
    int count = -1;
    if (!array)
        return -1;
    if (ignis__array_lock(call, array)) {
        if (array->ref_count == 0)
            ignis__fail(IGNIS_DIAG_REF_COUNT_ZERO, call, "array #%llu, owned by %s, has a ref_count of 0 already",
                        (unsigned long long)array->id, ignis__owner_name(array->owner));
        else
            count = --array->ref_count;
        ignis__array_unlock(array);
    }
    ignis__array_drop(call, array);
    return count;
}

/*  Moves ownership of a locked array. */
static ignis_status ignis__array_transfer(const char *call, ignis__array *array, ignis_owner owner)
{
    if (array->ref_count > 1)
        return ignis__fail(IGNIS_DIAG_TRANSFER_REFERENCED, call,
                           "array #%llu cannot move from owner %s to %s while its ref_count is %d, above 1", (unsigned long long)array->id,
                           ignis__owner_name(array->owner), ignis__owner_name(owner), array->ref_count);
    array->owner = owner;
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_array_transfer_ownership(ignis_array handle, ignis_owner owner)
{
    static const char call[] = "ignis_array_transfer_ownership";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis_status status;
    if (!array)
        return ignis__failed();
    if (!ignis__owner_valid(call, owner) || !ignis__array_lock(call, array)) {
        status = ignis__failed();
    } else {
        status = ignis__array_transfer(call, array, owner);
        ignis__array_unlock(array);
    }
    ignis__array_drop(call, array);
    return status;
}

/*  Every array that has the stream as its own, or was used on it, takes Ignis' own stream instead. The stream is idle. */
static void ignis__arrays_forget_stream(ignis__device *device, void *stream)
{
    uint64_t index, count = ignis__atomic_load(&ignis__arrays.count);
    for (index = 0; index < count; index++) {
        ignis__array *array = (ignis__array *)ignis__pool_hold_slot(&ignis__arrays, index, 0);
        ignis__storage *storage;
        int i;
        if (!array)
            continue;
        storage = array->storage;
        ignis__mutex_lock(&storage->lock);
        if (storage->device == device && storage->stream == stream)
            storage->stream = device->stream;
        for (i = 0; i < storage->used_on_count; i++)
            if (storage->used_on[i].stream == stream && storage->used_on[i].device == device)
                storage->used_on[i--] = storage->used_on[--storage->used_on_count];
        ignis__mutex_unlock(&storage->lock);
        ignis__array_drop("ignis_stream_forget", array);
    }
}

IGNIS_API ignis_status ignis_stream_forget(void *stream)
{
    static const char call[] = "ignis_stream_forget";
    ignis_status status = IGNIS_OK;
    int i;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!stream)
        return ignis__fail_null(call, "stream");
    for (i = 0; i < ignis__device_total; i++) {
        ignis__device *device = &ignis__devices[i];
        ignis__foreign_stream *foreign, **link;
        ignis__binding binding;
        if (!ignis__atomic_load(&device->opened))
            continue;
        ignis__mutex_lock(&device->lock);
        for (link = &device->foreign; *link && (*link)->stream != stream; link = &(*link)->next)
            ;
        foreign = *link;
        if (foreign)
            *link = foreign->next;
        ignis__mutex_unlock(&device->lock);
        if (!foreign)
            continue;
        ignis__free(foreign);
        ignis__atomic_add(&ignis__stream_forgets, 1);
        if (!ignis__device_enter(call, device, &binding)) {
            status = ignis__failed();
            continue;
        }
        if (IGNIS__CUDA_FAILED(call, device, cuStreamSynchronize, (stream)))
            status = ignis__failed();
        ignis__arrays_forget_stream(device, stream);
        ignis__memory_forget_stream(device, stream);
        ignis__device_leave(&binding);
    }
    return status;
}

/* ===============================================================================================================
   >>contract - acquire, release, assert, track, audit.
   =============================================================================================================== */

/*  What is tracked is kept in the array itself, under its lock; the tracking lock guards the counts and the freed ones. */
static void ignis__track(ignis__array *array, bool by_user)
{
    bool fresh = array->tracked_at_ns == 0;
    if (fresh || by_user)
        array->tracked_at_ns = ignis__monotonic_ns();
    array->tracked_by_user = array->tracked_by_user || by_user;
    if (fresh) {
        ignis__mutex_lock(&ignis__tracking.lock);
        ignis__tracking.live++;
        ignis__mutex_unlock(&ignis__tracking.lock);
    }
}

static void ignis__untrack(ignis__array *array)
{
    if (array->tracked_at_ns) {
        ignis__mutex_lock(&ignis__tracking.lock);
        ignis__tracking.live--;
        ignis__mutex_unlock(&ignis__tracking.lock);
    }
    array->tracked_at_ns = 0;
    array->tracked_by_user = false;
}

/*  A held and locked array for a change of owner; null, and reported, when that cannot be. ignis__contract_end gives it back. */
static ignis__array *ignis__contract_begin(const char *call, ignis_array handle, ignis_owner owner)
{
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array)
        return NULL;
    if (ignis__owner_valid(call, owner) && ignis__array_lock(call, array))
        return array;
    ignis__array_drop(call, array);
    return NULL;
}

static void ignis__contract_end(const char *call, ignis__array *array)
{
    ignis__array_unlock(array);
    ignis__array_drop(call, array);
}

IGNIS_API ignis_status ignis_contract_acquire(ignis_array handle, ignis_owner by)
{
    static const char call[] = "ignis_contract_acquire";
    ignis__array *array = ignis__contract_begin(call, handle, by);
    ignis_status status;
    if (!array)
        return ignis__failed();
    if (array->owner == by)
        status = ignis__fail(IGNIS_DIAG_DOUBLE_ACQUIRE, call, "array #%llu is already owned by %s: a double acquire",
                             (unsigned long long)array->id, ignis__owner_name(by));
    else
        status = ignis__array_transfer(call, array, by);
    if (status == IGNIS_OK)
        ignis__track(array, false);
    ignis__contract_end(call, array);
    return status;
}

IGNIS_API ignis_status ignis_contract_release(ignis_array handle, ignis_owner by)
{
    static const char call[] = "ignis_contract_release";
    ignis__array *array = ignis__contract_begin(call, handle, by);
    ignis_status status;
    if (!array)
        return ignis__failed();
    if (array->owner != by)
        status = ignis__fail(IGNIS_DIAG_RELEASE_BY_OTHER, call, "array #%llu is owned by %s, not by %s, which therefore cannot release it",
                             (unsigned long long)array->id, ignis__owner_name(array->owner), ignis__owner_name(by));
    else
        status = ignis__array_transfer(call, array, IGNIS_OWNER_IGNIS);
    ignis__contract_end(call, array);
    return status;
}

IGNIS_API ignis_status ignis_contract_assert_owner(ignis_array handle, ignis_owner owner)
{
    static const char call[] = "ignis_contract_assert_owner";
    ignis__array *array = ignis__contract_begin(call, handle, owner);
    ignis_status status = IGNIS_OK;
    if (!array)
        return ignis__failed();
    if (array->owner != owner)
        status = ignis__fail(IGNIS_DIAG_OWNER_DIFFERS, call, "array #%llu was expected to be owned by %s, but is owned by %s",
                             (unsigned long long)array->id, ignis__owner_name(owner), ignis__owner_name(array->owner));
    ignis__contract_end(call, array);
    return status;
}

IGNIS_API ignis_status ignis_contract_track(ignis_array handle)
{
    static const char call[] = "ignis_contract_track";
    ignis__array *array = ignis__contract_begin(call, handle, IGNIS_OWNER_IGNIS);
    if (!array)
        return ignis__failed();
    ignis__track(array, true);
    ignis__contract_end(call, array);
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_contract_untrack(ignis_array handle)
{
    static const char call[] = "ignis_contract_untrack";
    ignis__tracked_freed **link;
    ignis__array *array;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (array) {
        ignis__mutex_lock(&array->slot.lock);
        if (ignis__pool_live(array))
            ignis__untrack(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
        return IGNIS_OK;
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    for (link = &ignis__tracking.freed; *link && (*link)->handle != handle.id; link = &(*link)->next)
        ;
    if (*link) {
        ignis__tracked_freed *freed = *link;
        *link = freed->next;
        ignis__tracking.freed_count--;
        ignis__free(freed);
    }
    ignis__mutex_unlock(&ignis__tracking.lock);
    return IGNIS_OK;
}

static int ignis__audit_older(const void *a, const void *b)
{
    int64_t age_a = ((const ignis_contract_entry *)a)->age_ms, age_b = ((const ignis_contract_entry *)b)->age_ms;
    uint64_t id_a = ((const ignis_contract_entry *)a)->array_id, id_b = ((const ignis_contract_entry *)b)->array_id;
    return age_a != age_b ? (age_a < age_b) - (age_a > age_b) : (id_a > id_b) - (id_a < id_b);
}

/*  Collects the oldest `capacity` entries in the order of their age; returns how many there are in all. */
typedef struct ignis__audit {
    ignis_contract_entry *entries;
    int capacity, kept, found;
    int64_t now_ns, min_age_ms;
} ignis__audit;

static void ignis__audit_add(ignis__audit *audit, ignis_contract_entry *entry, int64_t tracked_at_ns)
{
    int place;
    entry->age_ms = (audit->now_ns - tracked_at_ns) / 1000000;
    if (entry->age_ms <= audit->min_age_ms)
        return;
    audit->found++;
    for (place = audit->kept; place > 0 && ignis__audit_older(entry, &audit->entries[place - 1]) < 0; place--)
        if (place < audit->capacity)
            audit->entries[place] = audit->entries[place - 1];
    if (place < audit->capacity)
        audit->entries[place] = *entry;
    if (audit->kept < audit->capacity)
        audit->kept++;
}

IGNIS_API int ignis_contract_audit(ignis_contract_entry *entries, int capacity, int64_t min_age_ms)
{
    static const char call[] = "ignis_contract_audit";
    ignis__audit audit = IGNIS__ZERO;
    ignis__tracked_freed *freed;
    uint64_t index, count;
    if (!ignis__enter(call))
        return -1;
    if (capacity < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
        return -1;
    }
    if (!entries && capacity > 0) {
        ignis__fail_null(call, "entries");
        return -1;
    }
    audit.entries = entries;
    audit.capacity = capacity;
    audit.now_ns = ignis__monotonic_ns();
    audit.min_age_ms = min_age_ms == 0 ? 5000 : min_age_ms;
    count = ignis__atomic_load(&ignis__arrays.count);
    for (index = 0; index < count; index++) {
        ignis__array *array = (ignis__array *)ignis__pool_hold_slot(&ignis__arrays, index, 0);
        ignis_contract_entry entry;
        if (!array)
            continue;
        ignis__mutex_lock(&array->slot.lock);
        if (array->tracked_at_ns && ignis__pool_live(array)) {
            ignis__track_entry(array, &entry);
            ignis__audit_add(&audit, &entry, array->tracked_at_ns);
        }
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    for (freed = ignis__tracking.freed; freed; freed = freed->next)
        ignis__audit_add(&audit, &freed->entry, freed->tracked_at_ns);
    ignis__mutex_unlock(&ignis__tracking.lock);
    return audit.found;
}

IGNIS_API int ignis_contract_tracked_count(void)
{
    int count;
    if (!ignis__enter("ignis_contract_tracked_count"))
        return -1;
    ignis__mutex_lock(&ignis__tracking.lock);
    count = ignis__tracking.live + ignis__tracking.freed_count;
    ignis__mutex_unlock(&ignis__tracking.lock);
    return count;
}

static void ignis__tracking_reset(const char *call)
{
    uint64_t index, count = ignis__atomic_load(&ignis__arrays.count);
    for (index = 0; index < count; index++) {
        ignis__array *array = (ignis__array *)ignis__pool_hold_slot(&ignis__arrays, index, 0);
        if (!array)
            continue;
        ignis__mutex_lock(&array->slot.lock);
        if (ignis__pool_live(array))
            ignis__untrack(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    while (ignis__tracking.freed) {
        ignis__tracked_freed *freed = ignis__tracking.freed;
        ignis__tracking.freed = freed->next;
        ignis__tracking.freed_count--;
        ignis__free(freed);
    }
    ignis__mutex_unlock(&ignis__tracking.lock);
}

IGNIS_API ignis_status ignis_contract_reset(void)
{
    static const char call[] = "ignis_contract_reset";
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    ignis__tracking_reset(call);
    return IGNIS_OK;
}

/* ===============================================================================================================
   >>kernel - NVRTC, the kernel cache in memory and on disk, launches, Ignis' own kernels.
   =============================================================================================================== */

#include "ignis_kernels.h"

enum { IGNIS__NVRTC_OUT_OF_MEMORY = 1, IGNIS__NVRTC_INVALID_OPTION = 5, IGNIS__NVRTC_COMPILATION = 6 };

/*  What is compiled: text, options, and the name that is looked up in the result. */
typedef struct ignis__program {
    const char *source;
    const char *name;  /* for compile errors */
    const char *entry; /* a name expression; null: entries are extern "C" and looked up as they are */
    const char *const *options;
    int option_count;
} ignis__program;

/*  What comes out: an image for one architecture, and the entry's name in it, in one block of memory. */
typedef struct ignis__image {
    uint64_t key[2];
    char *memory;
    char *lowered;
    void *data;
    size_t size;
    struct ignis__image *next; /* in the memory cache */
} ignis__image;

/*  Every kernel has a module of its own, loaded from an image, so that its __device__ variables are its own too. */
typedef struct ignis__module {
    void *module; /* CUmodule */
    char *lowered;
    bool from_cache;
} ignis__module;

#define IGNIS__MAX_OPTIONS 64
#define IGNIS__IMAGE_BYTES ((size_t)64 << 20) /* that the memory cache may hold */

static struct {
    ignis__mutex lock;
    ignis__image *images;       /* the memory cache, last used first */
    ignis__mutex compiling[16]; /* by key: who asks for a program that is being compiled waits for it */
    char cache_dir[900];        /* "": no disk cache */
    int64_t cache_limit;
    bool cache_broken; /* a warning was given */
} ignis__kernels_state;

static char *ignis__source_join(const ignis__source *source)
{
    size_t size = 1, used = 0, length;
    char *text;
    int i;
    for (i = 0; i < source->line_count; i++)
        size += strlen(source->lines[i]) + 1;
    text = (char *)ignis__alloc(size);
    for (i = 0; text && i < source->line_count; i++) {
        length = strlen(source->lines[i]);
        memcpy(text + used, source->lines[i], length);
        used += length;
        text[used++] = '\n';
    }
    return text;
}

/*  Sources that others include. NVRTC gets them from memory, by their names. */
static bool ignis__source_is_header(int source) { return strstr(ignis__sources[source].name, ".cuh") != NULL; }

/* --- the disk cache ----------------------------------------------------------------------------------------------- */

/*  One file an image, named by its key: a header, the lowered name, the image. A file is written under another name and then
    renamed, so a reader meets a whole file or none; whatever is not whole is compiled again. */
typedef struct ignis__cache_header {
    char magic[8];
    uint64_t key[2];
    uint64_t lowered_size, image_size;
    uint64_t checksum; /* of what follows */
} ignis__cache_header;

static const char ignis__cache_magic[8] = {'I', 'G', 'N', 'I', 'S', 'B', 'I', '1'};

static void ignis__cache_path(char *path, size_t size, const uint64_t key[2])
{
    snprintf(path, size, "%s/%016llx%016llx.ignis", ignis__kernels_state.cache_dir, (unsigned long long)key[0], (unsigned long long)key[1]);
}

static void ignis__cache_warn(const char *what, const char *path)
{
    bool warned;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    warned = ignis__kernels_state.cache_broken;
    ignis__kernels_state.cache_broken = true;
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    if (!warned)
        ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_CACHE_IO,
                    "ignis_kernel_compile: cannot %s %s; kernels are compiled again in every process. ignis_desc.cache_dir or "
                    "IGNIS_CACHE_DIR names "
                    "another folder, \"off\" none",
                    what, path);
}

static bool ignis__image_from_disk(ignis__image *image)
{
    char path[1024];
    ignis__cache_header header;
    size_t size = 0, body;
    char *file;
    if (!ignis__kernels_state.cache_dir[0])
        return false;
    ignis__cache_path(path, sizeof path, image->key);
    file = (char *)ignis__file_read(path, &size);
    if (!file)
        return false;
    if (size < sizeof header)
        goto damaged;
    memcpy(&header, file, sizeof header);
    body = size - sizeof header;
    if (memcmp(header.magic, ignis__cache_magic, sizeof header.magic) != 0 || header.key[0] != image->key[0] ||
        header.key[1] != image->key[1] || header.lowered_size < 1 || header.lowered_size > body ||
        header.image_size != body - header.lowered_size || header.checksum != ignis__hash(IGNIS__HASH_START, file + sizeof header, body) ||
        file[sizeof header + header.lowered_size - 1] != 0)
        goto damaged;
    image->memory = file;
    image->lowered = file + sizeof header;
    image->data = file + sizeof header + header.lowered_size;
    image->size = (size_t)header.image_size;
    ignis__file_touch(path); /* the least recently used file is the first to go */
    return true;
damaged:
    ignis__note(IGNIS_LOG_INFO, IGNIS_DIAG_CACHE_IO, "ignis_kernel_compile: %s is damaged, and is made again", path);
    ignis__free(file);
    return false;
}

/*  Finds the oldest file of the cache, and the bytes of all. */
typedef struct ignis__cache_scan {
    int64_t total, oldest_time, oldest_size;
    char oldest[1024];
} ignis__cache_scan;

static void ignis__cache_scan_file(void *context, const char *name)
{
    ignis__cache_scan *scan = (ignis__cache_scan *)context;
    char path[1024];
    int64_t size, time;
    const char *dot = strrchr(name, '.');
    bool ours = dot && (strcmp(dot, ".ignis") == 0 || strcmp(dot, ".ignis-part") == 0);
    snprintf(path, sizeof path, "%s/%s", ignis__kernels_state.cache_dir, name);
    if (!ours || !ignis__file_info(path, &size, &time))
        return;
    scan->total += size;
    if (!scan->oldest[0] || time < scan->oldest_time) {
        scan->oldest_time = time;
        scan->oldest_size = size;
        snprintf(scan->oldest, sizeof scan->oldest, "%s", path);
    }
}

static void ignis__cache_evict(void)
{
    ignis__cache_scan scan;
    do {
        memset(&scan, 0, sizeof scan);
        if (!ignis__folder_list(ignis__kernels_state.cache_dir, ignis__cache_scan_file, &scan) ||
            scan.total <= ignis__kernels_state.cache_limit)
            return;
    } while (remove(scan.oldest) == 0);
}

static void ignis__image_to_disk(const ignis__image *image)
{
    static uint64_t serial; /* two threads may write one file */
    char path[1024], part[1100];
    ignis__cache_header header;
    size_t lowered_size = strlen(image->lowered) + 1;
    FILE *file;
    bool ok;
    if (!ignis__kernels_state.cache_dir[0])
        return;
    if (!ignis__folder_make_all(ignis__kernels_state.cache_dir)) {
        ignis__cache_warn("make the folder", ignis__kernels_state.cache_dir);
        return;
    }
    memcpy(header.magic, ignis__cache_magic, sizeof header.magic);
    memcpy(header.key, image->key, sizeof header.key);
    header.lowered_size = lowered_size;
    header.image_size = image->size;
    header.checksum = ignis__hash(ignis__hash(IGNIS__HASH_START, image->lowered, lowered_size), image->data, image->size);
    ignis__cache_path(path, sizeof path, image->key);
    snprintf(part, sizeof part, "%s.%lu-%llu.ignis-part", path, ignis__process_id(), (unsigned long long)ignis__atomic_add(&serial, 1));
    file = fopen(part, "wb");
    if (!file) {
        ignis__cache_warn("write", part);
        return;
    }
    ok = fwrite(&header, sizeof header, 1, file) == 1 && fwrite(image->lowered, lowered_size, 1, file) == 1 &&
         fwrite(image->data, image->size, 1, file) == 1;
    ok = fclose(file) == 0 && ok;
    ok = ok && ignis__file_rename(part, path);
    if (!ok) {
        remove(part);
        ignis__cache_warn("write", path);
    }
    ignis__cache_evict();
}

/* --- compiling ------------------------------------------------------------------------------------------------------ */

static ignis_status ignis__nvrtc_fail(const char *call, const char *function, int error)
{
    const char *name = ignis__nvrtc.nvrtcGetErrorString(error);
    return ignis__fail_because(error == IGNIS__NVRTC_OUT_OF_MEMORY ? IGNIS_DIAG_HOST_MEMORY : IGNIS_DIAG_COMPILE_FAILED, call, error, name,
                               NULL, "%s failed with %s (%d)", function, name, error);
}

/*  -arch for a device: its own machine code where this NVRTC knows it, with the architecture-specific instructions that come with 9.0
    ("sm_90a"); else the newest older virtual architecture, which the driver translates. */
static bool ignis__arch_choose(const char *call, const ignis__device *device, char *arch, size_t size, bool *is_ptx)
{
    int known[64], count = 0, best = 0, i, wanted = device->info.compute_major * 10 + device->info.compute_minor;
    int error = IGNIS__NVRTC(nvrtcGetNumSupportedArchs, (&count));
    if (error != 0) {
        ignis__nvrtc_fail(call, "nvrtcGetNumSupportedArchs", error);
        return false;
    }
    count = count > IGNIS__COUNT(known) ? 0 : count;
    if ((error = IGNIS__NVRTC(nvrtcGetSupportedArchs, (known))) != 0) {
        ignis__nvrtc_fail(call, "nvrtcGetSupportedArchs", error);
        return false;
    }
    for (i = 0; i < count; i++)
        if (known[i] <= wanted && known[i] > best)
            best = known[i];
    if (!best) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "device %d has compute capability %d.%d; NVRTC %d.%d compiles for %d.%d and newer",
                    device->info.device, device->info.compute_major, device->info.compute_minor,
                    ignis__libraries[IGNIS_LIBRARY_NVRTC].version / 1000, ignis__libraries[IGNIS_LIBRARY_NVRTC].version % 1000 / 10,
                    known[0] / 10, known[0] % 10);
        return false;
    }
    *is_ptx = best != wanted;
    snprintf(arch, size, "-arch=%s_%d%s", *is_ptx ? "compute" : "sm", best, !*is_ptx && best >= 90 ? "a" : "");
    return true;
}

static void ignis__key_add(uint64_t key[2], const char *text)
{
    size_t size = strlen(text) + 1;
    key[0] = ignis__hash(key[0], text, size);
    key[1] = ignis__hash(key[1] * 3, text, size);
}

/*  Everything that the image depends on. */
static void ignis__image_key(const ignis__program *program, const ignis__device *device, uint64_t key[2])
{
    char facts[256];
    int i;
    key[0] = IGNIS__HASH_START;
    key[1] = ~IGNIS__HASH_START;
    snprintf(facts, sizeof facts, "nvrtc %llx sm %d.%d", (unsigned long long)ignis__libraries[IGNIS_LIBRARY_NVRTC].release,
             device->info.compute_major, device->info.compute_minor);
    ignis__key_add(key, facts);
    for (i = 0; i < IGNIS__SOURCE_COUNT; i++) {
        if (!ignis__source_is_header(i))
            continue;
        snprintf(facts, sizeof facts, "%016llx", (unsigned long long)ignis__sources[i].hash);
        ignis__key_add(key, facts);
    }
    ignis__key_add(key, program->source);
    ignis__key_add(key, program->name);
    ignis__key_add(key, program->entry ? program->entry : "");
    for (i = 0; i < program->option_count; i++)
        ignis__key_add(key, program->options[i]);
}

/*  The options that Ignis adds, unless the program has its own, and the program's. Returns how many. */
static int ignis__options_gather(const ignis__program *program, const char *arch, const char **options)
{
    static const char *const defaults[] = {"-arch", "-std=c++17", "-default-device"};
    static const char *const long_names[] = {"--gpu-architecture", "--std", "--device-as-default-execution-space"};
    int count = 0, i, own;
    for (i = 0; i < IGNIS__COUNT(defaults); i++) {
        size_t stem = strcspn(defaults[i], "=");
        for (own = 0; own < program->option_count; own++)
            if (strncmp(program->options[own], defaults[i], stem) == 0 ||
                strncmp(program->options[own] + (program->options[own][0] == '-'), defaults[i], stem) == 0 ||
                strncmp(program->options[own], long_names[i], strlen(long_names[i])) == 0)
                break;
        if (own == program->option_count)
            options[count++] = i == 0 ? arch : defaults[i];
    }
    for (i = 0; i < program->option_count; i++)
        options[count++] = program->options[i];
    return count;
}

/*  Reports what a compile had to say: remarks as a warning, errors as the failure. */
static ignis_status ignis__compile_log(const char *call, const ignis__program *program, const char *arch, void *handle, int error)
{
    size_t size = 0;
    char *log;
    bool entry_missing;
    ignis_status status;
    if (error != 0 && error != IGNIS__NVRTC_COMPILATION && error != IGNIS__NVRTC_INVALID_OPTION)
        return ignis__nvrtc_fail(call, "nvrtcCompileProgram", error);
    if (IGNIS__NVRTC(nvrtcGetProgramLogSize, (handle, &size)) != 0)
        size = 0;
    log = (char *)ignis__alloc(size + 1);
    if (log && size && IGNIS__NVRTC(nvrtcGetProgramLog, (handle, log)) != 0)
        log[0] = 0;
    while (log && *log && log[strlen(log) - 1] == '\n')
        log[strlen(log) - 1] = 0;
    if (error == 0) {
        if (log && *log)
            ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_COMPILE_FAILED, "%s: the compiler has remarks on %s:\n%s", call, program->name, log);
        ignis__free(log);
        return IGNIS_OK;
    }
    entry_missing = log && program->entry && strncmp(log, "__nv_name_map", 13) == 0;
    if (entry_missing)
        status =
            ignis__fail_because(IGNIS_DIAG_ENTRY_MISSING, call, error, ignis__nvrtc.nvrtcGetErrorString(error), log,
                                "%s has no __global__ function (or not exactly one) that is called '%s'", program->name, program->entry);
    else
        status = ignis__fail_because(IGNIS_DIAG_COMPILE_FAILED, call, error, ignis__nvrtc.nvrtcGetErrorString(error), log,
                                     "%s does not compile with %s", program->name, arch);
    ignis__free(log);
    return status;
}

/*  Copies the lowered name and the image of a compiled program out of NVRTC. */
static bool ignis__image_fetch(const char *call, const ignis__program *program, void *handle, bool is_ptx, ignis__image *image)
{
    const char *lowered = "";
    size_t lowered_size;
    int error = program->entry ? IGNIS__NVRTC(nvrtcGetLoweredName, (handle, program->entry, &lowered)) : 0;
    if (error != 0) {
        ignis__nvrtc_fail(call, "nvrtcGetLoweredName", error);
        return false;
    }
    error = is_ptx ? IGNIS__NVRTC(nvrtcGetPTXSize, (handle, &image->size)) : IGNIS__NVRTC(nvrtcGetCUBINSize, (handle, &image->size));
    if (error != 0) {
        ignis__nvrtc_fail(call, is_ptx ? "nvrtcGetPTXSize" : "nvrtcGetCUBINSize", error);
        return false;
    }
    lowered_size = strlen(lowered) + 1;
    image->memory = (char *)ignis__alloc(lowered_size + image->size);
    if (!image->memory) {
        ignis__fail_host_memory(call, lowered_size + image->size);
        return false;
    }
    image->lowered = image->memory;
    memcpy(image->lowered, lowered, lowered_size);
    image->data = image->lowered + lowered_size;
    error = is_ptx ? IGNIS__NVRTC(nvrtcGetPTX, (handle, (char *)image->data)) : IGNIS__NVRTC(nvrtcGetCUBIN, (handle, (char *)image->data));
    if (error != 0)
        ignis__nvrtc_fail(call, is_ptx ? "nvrtcGetPTX" : "nvrtcGetCUBIN", error);
    return error == 0;
}

static bool ignis__image_compile(const char *call, const ignis__program *program, const ignis__device *device, ignis__image *image)
{
    const char *options[IGNIS__MAX_OPTIONS + 3];
    const char *names[IGNIS__SOURCE_COUNT];
    char *headers[IGNIS__SOURCE_COUNT];
    char arch[32];
    void *handle = NULL;
    int error, count, i, header_count = 0;
    bool is_ptx, ok;
    if (!ignis__arch_choose(call, device, arch, sizeof arch, &is_ptx))
        return false;
    for (i = 0; i < IGNIS__SOURCE_COUNT; i++) {
        if (!ignis__source_is_header(i))
            continue;
        names[header_count] = ignis__sources[i].name;
        headers[header_count] = ignis__source_join(&ignis__sources[i]);
        if (!headers[header_count++])
            ignis__fail_host_memory(call, 1);
    }
    for (i = 0; i < header_count && headers[i]; i++)
        ;
    if (i < header_count) {
        while (header_count > 0)
            ignis__free(headers[--header_count]);
        return false;
    }
    count = ignis__options_gather(program, arch, options);
    error = IGNIS__NVRTC(nvrtcCreateProgram,
                         (&handle, program->source, program->name, header_count, (const char *const *)(void *)headers, names));
    ok = error == 0;
    if (!ok)
        ignis__nvrtc_fail(call, "nvrtcCreateProgram", error);
    if (ok && program->entry && (error = IGNIS__NVRTC(nvrtcAddNameExpression, (handle, program->entry))) != 0) {
        ignis__nvrtc_fail(call, "nvrtcAddNameExpression", error);
        ok = false;
    }
    if (ok) {
        error = IGNIS__NVRTC(nvrtcCompileProgram, (handle, count, options));
        ok = ignis__compile_log(call, program, options[0], handle, error) == IGNIS_OK &&
             ignis__image_fetch(call, program, handle, is_ptx, image);
    }
    if (handle)
        (void)IGNIS__NVRTC(nvrtcDestroyProgram, (&handle));
    while (header_count > 0)
        ignis__free(headers[--header_count]);
    return ok;
}

/* --- images and modules --------------------------------------------------------------------------------------------- */

static void ignis__image_free(ignis__image *image)
{
    if (image)
        ignis__free(image->memory);
    ignis__free(image);
}

/*  Takes an image out of the memory cache; null when it is not there. */
static ignis__image *ignis__image_take(const uint64_t key[2])
{
    ignis__image **link, *image;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    for (link = &ignis__kernels_state.images; *link; link = &(*link)->next)
        if ((*link)->key[0] == key[0] && (*link)->key[1] == key[1])
            break;
    image = *link;
    if (image)
        *link = image->next;
    ignis__mutex_unlock(&ignis__kernels_state.lock);
    return image;
}

/*  Puts an image into the memory cache, where the ones that were used least recently make room. */
static void ignis__image_keep(ignis__image *image)
{
    ignis__image **link = &ignis__kernels_state.images;
    size_t bytes = 0;
    ignis__mutex_lock(&ignis__kernels_state.lock);
    image->next = *link;
    *link = image;
    while (*link && bytes + (*link)->size <= IGNIS__IMAGE_BYTES) {
        bytes += (*link)->size;
        link = &(*link)->next;
    }
    while (*link) {
        ignis__image *old = *link;
        *link = old->next;
        ignis__image_free(old);
    }
    ignis__mutex_unlock(&ignis__kernels_state.lock);
}

/*  *error is the driver's, for the caller to judge. */
static bool ignis__module_load(const char *call, const ignis__image *image, ignis__module *unit, int *error)
{
    unit->lowered = ignis__copy_string(image->lowered);
    if (!unit->lowered) {
        *error = 0;
        ignis__fail_host_memory(call, strlen(image->lowered) + 1);
        return false;
    }
    *error = IGNIS__CUDA(cuModuleLoadData, (&unit->module, image->data));
    if (*error == 0)
        return true;
    ignis__free(unit->lowered);
    unit->lowered = NULL;
    return false;
}

static void ignis__module_unload(ignis__module *unit)
{
    if (unit->module)
        (void)IGNIS__CUDA(cuModuleUnload, (unit->module));
    ignis__free(unit->lowered);
    memset(unit, 0, sizeof *unit);
}

/*  Unloads a module whose launches may still be queued. It is unloaded also when the device cannot be entered; the module of a
    lost device ends with the context. */
static void ignis__module_retire(const char *call, ignis__device *device, ignis__module *unit)
{
    ignis__binding binding;
    bool lost = ignis__atomic_load(&device->lost) != 0, entered = !lost && ignis__device_enter(call, device, &binding);
    if (entered)
        (void)IGNIS__CUDA(cuCtxSynchronize, ());
    if (lost)
        unit->module = NULL;
    ignis__module_unload(unit);
    if (entered)
        ignis__device_leave(&binding);
}

/*  Loads a program on a device that is entered: from the memory cache, from disk, or compiled. Under the lock of its key. */
static bool ignis__module_make_locked(const char *call, ignis__device *device, const ignis__program *program, const uint64_t key[2],
                                      ignis__module *unit)
{
    ignis__image *image = ignis__image_take(key);
    int error = 0;
    bool loaded = false;
    if (!image) {
        image = (ignis__image *)ignis__alloc(sizeof *image);
        if (!image) {
            ignis__fail_host_memory(call, sizeof *image);
            return false;
        }
        memcpy(image->key, key, sizeof image->key);
        (void)ignis__image_from_disk(image);
    }
    if (image->memory) {
        unit->from_cache = true;
        loaded = ignis__module_load(call, image, unit, &error);
    }
    if (!loaded && (error == IGNIS__CU_INVALID_IMAGE || error == IGNIS__CU_NO_BINARY || !image->memory)) {
        /* Not in a cache, or there but not for this driver: that is like a damaged file. */
        ignis__free(image->memory);
        image->memory = NULL;
        unit->from_cache = false;
        error = 0;
        if (ignis__image_compile(call, program, device, image)) {
            ignis__image_to_disk(image);
            loaded = ignis__module_load(call, image, unit, &error);
        }
    }
    if (error != 0)
        ignis__cuda_fail(call, device, "cuModuleLoadData", error);
    if (loaded)
        ignis__image_keep(image);
    else
        ignis__image_free(image);
    return loaded;
}

static bool ignis__module_make(const char *call, ignis__device *device, const ignis__program *program, ignis__module *unit)
{
    uint64_t key[2];
    ignis__mutex *compiling;
    bool ok;
    memset(unit, 0, sizeof *unit);
    if (!ignis__library_load(call, IGNIS_LIBRARY_NVRTC)) /* its version is part of the key */
        return false;
    ignis__image_key(program, device, key);
    compiling = &ignis__kernels_state.compiling[key[0] % (uint64_t)IGNIS__COUNT(ignis__kernels_state.compiling)];
    ignis__mutex_lock(compiling);
    ok = ignis__module_make_locked(call, device, program, key, unit);
    ignis__mutex_unlock(compiling);
    return ok;
}

/* --- kernels of the caller ------------------------------------------------------------------------------------------ */

#define IGNIS__MAX_PARAMS 64

/*  A kernel on one device. */
typedef struct ignis__kernel_code {
    ignis__module module;
    void *function;
    int params; /* -1: the driver does not tell */
    size_t param_size[IGNIS__MAX_PARAMS];
    int max_threads, static_shared;
    uint64_t dynamic_shared; /* allowed so far without asking the driver again */
} ignis__kernel_code;

typedef struct ignis__kernel {
    ignis__slot slot;
    char *memory; /* of all strings of the program */
    ignis__program program;
    uint64_t code[IGNIS_MAX_DEVICES]; /* ignis__kernel_code *, made at the first use on a device */
} ignis__kernel;

static ignis__pool ignis__kernels = {sizeof(ignis__kernel), IGNIS__KIND_KERNEL, IGNIS__MUTEX_INIT, 0, {0}, NULL};

static ignis__kernel *ignis__kernel_hold(const char *call, ignis_kernel handle)
{
    ignis__kernel *kernel;
    if (!ignis__enter(call))
        return NULL;
    kernel = (ignis__kernel *)ignis__pool_hold(&ignis__kernels, handle.id);
    if (!kernel)
        ignis__fail_stale(call, "kernel", IGNIS_DIAG_KERNEL_FREED, IGNIS__KIND_KERNEL, handle.id);
    return kernel;
}

static void ignis__kernel_destroy(const char *call, ignis__kernel *kernel)
{
    int i;
    for (i = 0; i < ignis__device_total; i++) {
        ignis__kernel_code *code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(&kernel->code[i]);
        if (code)
            ignis__module_retire(call, &ignis__devices[i], &code->module);
        ignis__free(code);
    }
    ignis__free((void *)kernel->program.options);
    ignis__free(kernel->memory);
    ignis__pool_give(&ignis__kernels, kernel);
}

static void ignis__kernel_drop(const char *call, ignis__kernel *kernel)
{
    if (ignis__pool_drop(kernel))
        ignis__kernel_destroy(call, kernel);
}

static bool ignis__kernel_read(const char *call, ignis__device *device, ignis__kernel_code *code)
{
    size_t offset;
    int error = 0;
    if (IGNIS__CUDA_FAILED(call, device, cuModuleGetFunction, (&code->function, code->module.module, code->module.lowered)) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&code->max_threads, IGNIS__CU_FUNC_MAX_THREADS, code->function)) ||
        IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&code->static_shared, IGNIS__CU_FUNC_SHARED, code->function)))
        return false;
    code->dynamic_shared = (uint64_t)(code->static_shared < 48 * 1024 ? 48 * 1024 - code->static_shared : 0);
    code->params = -1;
    if (ignis__cuda.cuFuncGetParamInfo) {
        code->params = 0;
        while (code->params < IGNIS__MAX_PARAMS && (error = IGNIS__CUDA(cuFuncGetParamInfo, (code->function, (size_t)code->params, &offset,
                                                                                             &code->param_size[code->params]))) == 0)
            code->params++;
    }
    return error == IGNIS__CU_INVALID_VALUE /* the number after the last parameter */ ||
           ignis__cuda_check(call, device, "cuFuncGetParamInfo", error) == IGNIS_OK;
}

/*  The kernel's code on a device that is entered, loaded at the first use there. Null on failure. */
static ignis__kernel_code *ignis__kernel_code_get(const char *call, ignis__device *device, ignis__kernel *kernel)
{
    uint64_t *place = &kernel->code[device - ignis__devices];
    ignis__kernel_code *code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(place);
    if (code)
        return code;
    ignis__mutex_lock(&kernel->slot.lock);
    code = (ignis__kernel_code *)(uintptr_t)ignis__atomic_load(place);
    if (!code && (code = (ignis__kernel_code *)ignis__alloc(sizeof *code)) == NULL)
        ignis__fail_host_memory(call, sizeof *code);
    else if (code && !code->function) {
        if (ignis__module_make(call, device, &kernel->program, &code->module) && ignis__kernel_read(call, device, code)) {
            ignis__atomic_store(place, (uint64_t)(uintptr_t)code);
        } else {
            ignis__module_unload(&code->module);
            ignis__free(code);
            code = NULL;
        }
    }
    ignis__mutex_unlock(&kernel->slot.lock);
    return code;
}

static bool ignis__kernel_desc_check(const char *call, const ignis_kernel_desc *desc)
{
    int i;
    if (!desc)
        ignis__fail_null(call, "desc");
    else if (!desc->source)
        ignis__fail_null(call, "desc.source");
    else if (!desc->entry)
        ignis__fail_null(call, "desc.entry");
    else if (desc->option_count < 0 || desc->option_count > IGNIS__MAX_OPTIONS)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.option_count is %d, outside 0 to %d", desc->option_count, IGNIS__MAX_OPTIONS);
    else if (desc->option_count > 0 && !desc->options)
        ignis__fail_null(call, "desc.options");
    else {
        for (i = 0; i < desc->option_count && desc->options[i]; i++)
            ;
        if (i == desc->option_count)
            return true;
        ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.options[%d] is null", i);
    }
    return false;
}

static ignis__program ignis__program_from(const ignis_kernel_desc *desc)
{
    ignis__program program;
    memset(&program, 0, sizeof program);
    program.source = desc->source;
    program.name = desc->name ? desc->name : "kernel.cu";
    program.entry = desc->entry;
    program.options = desc->options;
    program.option_count = desc->option_count;
    return program;
}

static char *ignis__program_keep(char *at, const char **text)
{
    size_t size = strlen(*text) + 1;
    memcpy(at, *text, size);
    *text = at;
    return at + size;
}

/*  Copies every string of a program into memory of the kernel. */
static bool ignis__kernel_keep(const char *call, ignis__kernel *kernel, ignis__program program)
{
    size_t size = strlen(program.source) + strlen(program.name) + strlen(program.entry) + 3;
    const char **options;
    char *at;
    int i;
    for (i = 0; i < program.option_count; i++)
        size += strlen(program.options[i]) + 1;
    kernel->memory = at = (char *)ignis__alloc(size);
    options = (const char **)ignis__alloc(sizeof *options * (size_t)(program.option_count + 1));
    if (!at || !options) {
        ignis__free(at);
        ignis__free((void *)options);
        ignis__fail_host_memory(call, size);
        return false;
    }
    at = ignis__program_keep(at, &program.source);
    at = ignis__program_keep(at, &program.name);
    at = ignis__program_keep(at, &program.entry);
    for (i = 0; i < program.option_count; i++) {
        options[i] = program.options[i];
        at = ignis__program_keep(at, &options[i]);
    }
    program.options = options;
    kernel->program = program;
    return true;
}

IGNIS_API ignis_kernel ignis_kernel_compile(const ignis_kernel_desc *desc)
{
    static const char call[] = "ignis_kernel_compile";
    ignis_kernel handle = IGNIS__ZERO;
    ignis__kernel *kernel;
    ignis__binding binding;
    ignis__device *device;
    if (!ignis__enter(call) || !ignis__kernel_desc_check(call, desc) || (device = ignis__device_current_enter(call, &binding)) == NULL)
        return handle;
    kernel = (ignis__kernel *)ignis__pool_take(&ignis__kernels);
    if (!kernel) {
        ignis__fail_host_memory(call, sizeof *kernel);
    } else if (!ignis__kernel_keep(call, kernel, ignis__program_from(desc))) {
        ignis__pool_give(&ignis__kernels, kernel);
    } else {
        memset(kernel->code, 0, sizeof kernel->code);
        if (ignis__kernel_code_get(call, device, kernel))
            handle.id = ignis__pool_publish(&ignis__kernels, kernel);
        else
            ignis__kernel_destroy(call, kernel);
    }
    ignis__device_leave(&binding);
    return handle;
}

IGNIS_API ignis_status ignis_kernel_free(ignis_kernel handle)
{
    static const char call[] = "ignis_kernel_free";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    bool live;
    if (!kernel)
        return ignis__failed();
    ignis__mutex_lock(&kernel->slot.lock);
    live = ignis__pool_live(kernel);
    if (live)
        ignis__pool_kill(kernel);
    ignis__mutex_unlock(&kernel->slot.lock);
    if (live)
        ignis__pool_drop(kernel); /* the handle's own hold; this call still has one */
    else
        ignis__fail_stale(call, "kernel", IGNIS_DIAG_KERNEL_FREED, IGNIS__KIND_KERNEL, handle.id);
    ignis__kernel_drop(call, kernel);
    return live ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_kernel_query(ignis_kernel handle, ignis_kernel_info *info)
{
    static const char call[] = "ignis_kernel_query";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis__kernel_code *code;
    ignis__device *device;
    ignis__binding binding;
    bool ok = false;
    if (!kernel)
        return ignis__failed();
    if (!info) {
        ignis__fail_null(call, "info");
    } else if ((device = ignis__device_current_enter(call, &binding)) != NULL) {
        code = ignis__kernel_code_get(call, device, kernel);
        ok = code && !IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&info->registers, IGNIS__CU_FUNC_REGISTERS, code->function)) &&
             !IGNIS__CUDA_FAILED(call, device, cuFuncGetAttribute, (&info->local_bytes, IGNIS__CU_FUNC_LOCAL, code->function));
        if (ok) {
            info->entry = kernel->program.entry;
            info->parameters = code->params;
            info->shared_bytes = code->static_shared;
            info->max_threads = code->max_threads;
            info->from_cache = code->module.from_cache;
        }
        ignis__device_leave(&binding);
    }
    ignis__kernel_drop(call, kernel);
    return ok ? IGNIS_OK : ignis__failed();
}

/* --- launches ------------------------------------------------------------------------------------------------------- */

#define IGNIS__ARG_SCALAR(suffix, ctype, TYPE)          \
    IGNIS_API ignis_arg ignis_arg_##suffix(ctype value) \
    {                                                   \
        ignis_arg arg;                                  \
        arg.type = IGNIS_ARG_##TYPE;                    \
        arg.size = 0;                                   \
        arg.value.suffix = value;                       \
        return arg;                                     \
    }
IGNIS__ARG_SCALAR(array, ignis_array, ARRAY)
IGNIS__ARG_SCALAR(i32, int32_t, I32)
IGNIS__ARG_SCALAR(i64, int64_t, I64)
IGNIS__ARG_SCALAR(f32, float, F32)
IGNIS__ARG_SCALAR(f64, double, F64)
IGNIS__ARG_SCALAR(ptr, void *, PTR)

IGNIS_API ignis_arg ignis_arg_bytes(const void *bytes, size_t size)
{
    ignis_arg arg;
    arg.type = IGNIS_ARG_BYTES;
    arg.size = size;
    arg.value.bytes = bytes;
    return arg;
}

/*  The arguments of one launch as the driver takes them, and the arrays that are held meanwhile. */
typedef struct ignis__launch_args {
    void *params[IGNIS__MAX_PARAMS];
    ignis__address addresses[IGNIS__MAX_PARAMS];
    ignis__array *arrays[IGNIS__MAX_PARAMS];
    int array_count;
} ignis__launch_args;

static size_t ignis__arg_size(const ignis_arg *arg)
{
    switch (arg->type) {
    case IGNIS_ARG_I32:
    case IGNIS_ARG_F32: return 4;
    case IGNIS_ARG_BYTES: return arg->size;
    default: return 8;
    }
}

static bool ignis__arg_array(const ignis__work *work, ignis__launch_args *launch, int index, ignis_array handle)
{
    ignis__array *array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (!array) {
        ignis__fail_stale(work->call, "array", IGNIS_DIAG_ARRAY_FREED, IGNIS__KIND_ARRAY, handle.id);
        return false;
    }
    launch->arrays[launch->array_count++] = array;
    if (array->storage->device != work->device) {
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, work->call, "argument %d, array #%llu, is on device %d, the kernel runs on device %d", index,
                    (unsigned long long)array->id, (int)(array->storage->device - ignis__devices), (int)(work->device - ignis__devices));
        return false;
    }
    launch->params[index] = &launch->addresses[index];
    return ignis__work_write(work, array, &launch->addresses[index]);
}

static bool ignis__args_gather(const ignis__work *work, const ignis__kernel *kernel, const ignis__kernel_code *code, const ignis_arg *args,
                               int count, ignis__launch_args *launch)
{
    int i;
    launch->array_count = 0;
    if (count < 0 || count > IGNIS__MAX_PARAMS || (code->params >= 0 && count != code->params)) {
        ignis__fail(IGNIS_DIAG_ARG_COUNT, work->call, "kernel %s has %d parameters, the call gives %d arguments", kernel->program.entry,
                    code->params >= 0 ? code->params : IGNIS__MAX_PARAMS, count);
        return false;
    }
    for (i = 0; i < count; i++) {
        if (args[i].type < IGNIS_ARG_ARRAY || args[i].type > IGNIS_ARG_BYTES) {
            ignis__fail(IGNIS_DIAG_BAD_ENUM, work->call, "argument %d has type %d; make it with an ignis_arg_ function", i,
                        (int)args[i].type);
            return false;
        }
        if (code->params >= 0 && ignis__arg_size(&args[i]) != code->param_size[i]) {
            ignis__fail(IGNIS_DIAG_ARG_SIZE, work->call, "argument %d of kernel %s is %llu bytes, its parameter %llu", i,
                        kernel->program.entry, (unsigned long long)ignis__arg_size(&args[i]), (unsigned long long)code->param_size[i]);
            return false;
        }
        if (args[i].type == IGNIS_ARG_BYTES && !args[i].value.bytes) {
            ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, work->call, "argument %d has no bytes", i);
            return false;
        }
        /* The driver only reads parameters; its prototype has no const. */
        if (args[i].type == IGNIS_ARG_BYTES)
            launch->params[i] = (void *)(uintptr_t)args[i].value.bytes;
        else if (args[i].type != IGNIS_ARG_ARRAY)
            launch->params[i] = (void *)(uintptr_t)&args[i].value;
        else if (!ignis__arg_array(work, launch, i, args[i].value.array))
            return false;
    }
    return true;
}

/*  Checks a launch against the limits of device and kernel, with 0 as 1 where that is allowed, and raises the kernel's shared memory. */
static bool ignis__launch_check(const ignis__work *work, ignis__kernel *kernel, ignis__kernel_code *code, const ignis_launch *launch,
                                unsigned grid[3], unsigned block[3])
{
    static const int64_t grid_limit[3] = {INT32_MAX, 65535, 65535};
    static const int block_limit[3] = {1024, 1024, 64};
    const ignis_device_info *info = &work->device->info;
    int64_t threads = 1, shared_limit = info->shared_per_block - code->static_shared;
    int i;
    for (i = 0; i < 3; i++) {
        int64_t blocks = launch->grid[i] == 0 && i > 0 ? 1 : launch->grid[i];
        int size = launch->block[i] == 0 && i > 0 ? 1 : launch->block[i];
        if (blocks < 0 || blocks > grid_limit[i]) {
            ignis__fail(IGNIS_DIAG_LAUNCH_SIZE, work->call, "grid[%d] is %lld, outside 0 to %lld", i, (long long)launch->grid[i],
                        (long long)grid_limit[i]);
            return false;
        }
        if (size < 1 || size > block_limit[i]) {
            ignis__fail(IGNIS_DIAG_LAUNCH_SIZE, work->call, "block[%d] is %d, outside 1 to %d", i, launch->block[i], block_limit[i]);
            return false;
        }
        grid[i] = (unsigned)blocks;
        block[i] = (unsigned)size;
        threads *= size;
    }
    if (threads > code->max_threads) {
        ignis__fail(IGNIS_DIAG_LAUNCH_SIZE, work->call, "a block of %lld threads is more than the %d that kernel %s can have",
                    (long long)threads, code->max_threads, kernel->program.entry);
        return false;
    }
    if (launch->shared_bytes < 0 || launch->shared_bytes > shared_limit) {
        ignis__fail(IGNIS_DIAG_LAUNCH_SIZE, work->call,
                    "shared_bytes is %lld, outside 0 to the %lld that device %d leaves beside %d static bytes",
                    (long long)launch->shared_bytes, (long long)shared_limit, info->device, code->static_shared);
        return false;
    }
    if ((uint64_t)launch->shared_bytes > ignis__atomic_load(&code->dynamic_shared)) {
        if (IGNIS__CUDA_FAILED(work->call, work->device, cuFuncSetAttribute,
                               (code->function, IGNIS__CU_FUNC_MAX_DYNAMIC_SHARED, (int)shared_limit)))
            return false;
        ignis__atomic_store(&code->dynamic_shared, (uint64_t)shared_limit);
    }
    return true;
}

static bool ignis__launch(const ignis__work *work, void *function, const unsigned grid[3], const unsigned block[3], unsigned shared,
                          void **params)
{
    return !IGNIS__CUDA_FAILED(work->call, work->device, cuLaunchKernel,
                               (function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, work->stream, params, NULL));
}

static ignis_status ignis__kernel_launch(const char *call, ignis__kernel *kernel, const ignis_launch *launch, const ignis_arg *args,
                                         int count)
{
    ignis__launch_args gathered;
    ignis__kernel_code *code;
    ignis__work work;
    unsigned grid[3], block[3];
    bool ok;
    ignis__device *device = ignis__device_get(call, ignis__thread_now()->device);
    if (!device || !ignis__work_begin(call, device, &work))
        return ignis__failed();
    code = ignis__kernel_code_get(call, work.device, kernel);
    ok = code != NULL;
    if (ok) {
        ok = ignis__args_gather(&work, kernel, code, args, count, &gathered) &&
             ignis__launch_check(&work, kernel, code, launch, grid, block) &&
             (grid[0] == 0 || ignis__launch(&work, code->function, grid, block, (unsigned)launch->shared_bytes, gathered.params));
        ignis__array_drop_all(call, gathered.array_count, gathered.arrays);
    }
    ignis__work_end(&work);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_kernel_launch(ignis_kernel handle, const ignis_launch *launch, const ignis_arg *args, int arg_count)
{
    static const char call[] = "ignis_kernel_launch";
    ignis__kernel *kernel = ignis__kernel_hold(call, handle);
    ignis_status status;
    if (!kernel)
        return ignis__failed();
    if (!launch)
        status = ignis__fail_null(call, "launch");
    else if (!args && arg_count > 0)
        status = ignis__fail_null(call, "args");
    else
        status = ignis__kernel_launch(call, kernel, launch, args, arg_count);
    ignis__kernel_drop(call, kernel);
    return status;
}

/* --- Ignis' own kernels ----------------------------------------------------------------------------------------------- */

/*  X(enumerator, source, entry). Each source is one program a dtype, compiled with -DIGNIS_T=<dtype> when one of its kernels is first used. */
#define IGNIS__BUILTINS(X)                          \
    X(FILL, ELEMENTWISE_CU, "ignis_fill")           \
    X(ADD, ELEMENTWISE_CU, "ignis_add")             \
    X(MUL, ELEMENTWISE_CU, "ignis_mul")             \
    X(SCALE, ELEMENTWISE_CU, "ignis_scale")         \
    X(CAST_F16, ELEMENTWISE_CU, "ignis_cast_f16")   \
    X(CAST_BF16, ELEMENTWISE_CU, "ignis_cast_bf16") \
    X(CAST_F32, ELEMENTWISE_CU, "ignis_cast_f32")   \
    X(CAST_F64, ELEMENTWISE_CU, "ignis_cast_f64")   \
    X(CAST_I32, ELEMENTWISE_CU, "ignis_cast_i32")   \
    X(CAST_I64, ELEMENTWISE_CU, "ignis_cast_i64")   \
    X(CAST_U8, ELEMENTWISE_CU, "ignis_cast_u8")

typedef enum ignis__builtin {
#define IGNIS__BUILTIN_ENUM(name, source, entry) IGNIS__BUILTIN_##name,
    IGNIS__BUILTINS(IGNIS__BUILTIN_ENUM)
#undef IGNIS__BUILTIN_ENUM
        IGNIS__BUILTIN_COUNT
} ignis__builtin;

static const struct {
    int source;
    const char *entry;
} ignis__builtins[] = {
#define IGNIS__BUILTIN_ROW(name, source, entry) {IGNIS__SOURCE_##source, entry},
    IGNIS__BUILTINS(IGNIS__BUILTIN_ROW)
#undef IGNIS__BUILTIN_ROW
};

/*  What is loaded of them on each device: modules by source and dtype, functions (0 until their first use) by kernel and dtype. */
static struct ignis__builtin_code {
    ignis__module modules[IGNIS__SOURCE_COUNT][IGNIS_DTYPE_COUNT];
    uint64_t functions[IGNIS__BUILTIN_COUNT][IGNIS_DTYPE_COUNT];
} ignis__builtin_codes[IGNIS_MAX_DEVICES];

/*  Loads the module of a source for a dtype on a device that is entered. Null on failure. */
static ignis__module *ignis__builtin_module(const char *call, ignis__device *device, int source, ignis_dtype dtype)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    ignis__module *place = &ignis__builtin_codes[device - ignis__devices].modules[source][dtype];
    ignis__module made;
    ignis__program program;
    char define[32];
    const char *options[1];
    char *text;
    bool loaded;
    ignis__mutex_lock(&lock);
    loaded = place->module != NULL;
    ignis__mutex_unlock(&lock);
    if (loaded)
        return place;
    text = ignis__source_join(&ignis__sources[source]);
    if (!text) {
        ignis__fail_host_memory(call, 1);
        return NULL;
    }
    memset(&program, 0, sizeof program);
    snprintf(define, sizeof define, "-DIGNIS_T=%d", (int)dtype);
    options[0] = define;
    program.source = text;
    program.name = ignis__sources[source].name;
    program.options = options;
    program.option_count = 1;
    loaded = ignis__module_make(call, device, &program, &made);
    ignis__free(text);
    if (!loaded)
        return NULL;
    ignis__mutex_lock(&lock); /* another thread may have been as fast, and its functions be in use */
    loaded = place->module != NULL;
    if (!loaded)
        *place = made;
    ignis__mutex_unlock(&lock);
    if (loaded)
        ignis__module_unload(&made);
    return place;
}

/*  The function of one of Ignis' own kernels on a device that is entered; null on failure. */
static void *ignis__builtin_get(const char *call, ignis__device *device, ignis__builtin builtin, ignis_dtype dtype)
{
    uint64_t *place = &ignis__builtin_codes[device - ignis__devices].functions[builtin][dtype];
    void *function = (void *)(uintptr_t)ignis__atomic_load(place);
    ignis__module *unit;
    if (function)
        return function;
    unit = ignis__builtin_module(call, device, ignis__builtins[builtin].source, dtype);
    if (!unit || IGNIS__CUDA_FAILED(call, device, cuModuleGetFunction, (&function, unit->module, ignis__builtins[builtin].entry)))
        return NULL;
    ignis__atomic_store(place, (uint64_t)(uintptr_t)function);
    return function;
}

/* --- warming up --------------------------------------------------------------------------------------------------------- */

/*  Jobs are Ignis' own programs, every source in every dtype, then the caller's. Each keeps the failure of its worker for the caller. */
typedef struct ignis__warmup {
    const char *call;
    int device;
    const ignis_kernel_desc *descs;
    ignis__record *records;
} ignis__warmup;

/*  For how many dtypes a source is one program without further choices: headers for none, and sources whose kernels come in variants. */
static int ignis__source_dtypes(int source)
{
    const char *name = ignis__sources[source].name;
    if (ignis__source_is_header(source) || strncmp(name, "attention", 9) == 0)
        return 0;
    return source == IGNIS__SOURCE_ELEMENTWISE_CU ? IGNIS_DTYPE_COUNT - 1 : 4 /* the floating types come first */;
}

#define IGNIS__WARMUP_OWN (IGNIS__SOURCE_COUNT * (IGNIS_DTYPE_COUNT - 1))

static void ignis__warmup_job(void *context, int index)
{
    ignis__warmup *warmup = (ignis__warmup *)context;
    ignis__thread *thread = &ignis__this_thread;
    ignis__record before = thread->record;
    ignis__device *device = &ignis__devices[warmup->device];
    ignis__module module;
    ignis__binding binding;
    memset(&thread->record, 0, sizeof thread->record);
    if (ignis__device_enter(warmup->call, device, &binding)) {
        if (index < IGNIS__WARMUP_OWN) {
            int source = index / (IGNIS_DTYPE_COUNT - 1), dtype = index % (IGNIS_DTYPE_COUNT - 1) + 1;
            if (dtype <= ignis__source_dtypes(source))
                ignis__builtin_module(warmup->call, device, source, (ignis_dtype)dtype);
        } else {
            ignis__program program = ignis__program_from(&warmup->descs[index - IGNIS__WARMUP_OWN]);
            if (ignis__module_make(warmup->call, device, &program, &module))
                ignis__module_unload(&module); /* its image stays in the caches */
        }
        ignis__device_leave(&binding);
    }
    warmup->records[index] = thread->record;
    thread->record = before;
}

IGNIS_API ignis_status ignis_warmup(const ignis_kernel_desc *descs, int count)
{
    static const char call[] = "ignis_warmup";
    ignis__warmup warmup;
    ignis__binding binding;
    ignis__device *device;
    ignis_status status = IGNIS_OK;
    int i;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    if (count > 0 && !descs)
        return ignis__fail_null(call, "descs");
    for (i = 0; i < count; i++)
        if (!ignis__kernel_desc_check(call, &descs[i]))
            return ignis__failed();
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return ignis__failed();
    ignis__device_leave(&binding);
    warmup.call = call;
    warmup.device = device->info.device;
    warmup.descs = descs;
    warmup.records = (ignis__record *)ignis__alloc(sizeof(ignis__record) * (size_t)(IGNIS__WARMUP_OWN + count));
    if (!warmup.records)
        return ignis__fail_host_memory(call, sizeof(ignis__record) * (size_t)(IGNIS__WARMUP_OWN + count));
    ignis__parallel(IGNIS__WARMUP_OWN + count, ignis__warmup_job, &warmup);
    for (i = 0; i < IGNIS__WARMUP_OWN + count; i++) {
        ignis__record *record = &warmup.records[i];
        if (record->status != IGNIS_OK && status == IGNIS_OK)
            status = record->status;
        if (record->status != IGNIS_OK)
            ignis__record_adopt(record);
    }
    ignis__free(warmup.records);
    return status;
}

static void ignis__kernels_setup(const ignis_desc *desc)
{
    const char *env = getenv("IGNIS_CACHE_DIR"), *chosen = desc->cache_dir && *desc->cache_dir ? desc->cache_dir : env && *env ? env : NULL;
    char *dir = ignis__kernels_state.cache_dir;
    size_t size = sizeof ignis__kernels_state.cache_dir;
    static bool locks_made;
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__kernels_state.compiling) && !locks_made; i++)
        ignis__mutex_init(&ignis__kernels_state.compiling[i]);
    if (!locks_made)
        ignis__mutex_init(&ignis__kernels_state.lock);
    locks_made = true;
    ignis__kernels_state.cache_limit = desc->cache_limit ? desc->cache_limit : (int64_t)256 << 20;
    ignis__kernels_state.cache_broken = false;
    dir[0] = 0;
    if (chosen && strcmp(chosen, "off") == 0)
        return;
    if (chosen && strlen(chosen) < size) {
        snprintf(dir, size, "%s", chosen);
        return;
    }
    if (chosen) {
        ignis__cache_warn("use the folder (its name is too long)", chosen);
        return;
    }
#ifdef _WIN32
    if (getenv("LOCALAPPDATA") && strlen(getenv("LOCALAPPDATA")) + 16 < size)
        snprintf(dir, size, "%s\\ignis\\kernels", getenv("LOCALAPPDATA"));
#else
    if (getenv("XDG_CACHE_HOME") && *getenv("XDG_CACHE_HOME") && strlen(getenv("XDG_CACHE_HOME")) + 16 < size)
        snprintf(dir, size, "%s/ignis", getenv("XDG_CACHE_HOME"));
    else if (getenv("HOME") && *getenv("HOME") && strlen(getenv("HOME")) + 16 < size)
        snprintf(dir, size, "%s/.cache/ignis", getenv("HOME"));
#endif
}

/*  Unloads Ignis' own kernels from a device; its context is current. */
static void ignis__builtins_close(ignis__device *device)
{
    struct ignis__builtin_code *code = &ignis__builtin_codes[device - ignis__devices];
    int source, dtype;
    for (source = 0; source < IGNIS__SOURCE_COUNT; source++)
        for (dtype = 0; dtype < IGNIS_DTYPE_COUNT; dtype++)
            ignis__module_unload(&code->modules[source][dtype]);
    memset(code, 0, sizeof *code);
}

static void ignis__images_close(void)
{
    while (ignis__kernels_state.images) {
        ignis__image *image = ignis__kernels_state.images;
        ignis__kernels_state.images = image->next;
        ignis__image_free(image);
    }
}

/* ===============================================================================================================
   >>elementwise - fill, copy, cast, add, mul, scale.
   =============================================================================================================== */

/*  Geometry of kernels/elementwise.cu: 256 threads do 4096 elements. */
static bool ignis__elementwise(const ignis__work *work, ignis__builtin builtin, ignis_dtype dtype, int64_t numel, void **params)
{
    unsigned grid[3] = {0, 1, 1}, block[3] = {256, 1, 1};
    int64_t blocks = (numel + 4095) / 4096;
    void *function;
    if (numel == 0)
        return true;
    if (blocks > INT32_MAX) {
        ignis__fail(IGNIS_DIAG_SHAPE_OVERFLOW, work->call, "%lld elements are more than one launch can cover", (long long)numel);
        return false;
    }
    grid[0] = (unsigned)blocks;
    function = ignis__builtin_get(work->call, work->device, builtin, dtype);
    return function && ignis__launch(work, function, grid, block, 0, params);
}

IGNIS_API ignis_status ignis_array_fill(ignis_array handle, double value)
{
    static const char call[] = "ignis_array_fill";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__work work;
    ignis__address to;
    char element[8];
    bool ok;
    void *params[3];
    if (!array)
        return ignis__failed();
    ignis__convert(element, array->dtype, &value, IGNIS_F64, 1);
    params[0] = &to;
    params[1] = element;
    params[2] = &array->numel;
    ok = ignis__work_begin(call, array->storage->device, &work);
    if (ok) {
        ok = ignis__work_write(&work, array, &to) && ignis__elementwise(&work, IGNIS__BUILTIN_FILL, array->dtype, array->numel, params);
        ignis__work_end(&work);
    }
    ignis__array_drop(call, array);
    return ok ? IGNIS_OK : ignis__failed();
}

static bool ignis__same_numel(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->numel == src->numel)
        return true;
    ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "dst %s has %lld elements, %s %s has %lld", ignis__shape_write(&dst->shape).text,
                (long long)dst->numel, name, ignis__shape_write(&src->shape).text, (long long)src->numel);
    return false;
}

static bool ignis__same_dtype(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->dtype == src->dtype)
        return true;
    ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "dst is %s, %s is %s", ignis__dtypes[dst->dtype].name, name,
                ignis__dtypes[src->dtype].name);
    return false;
}

static bool ignis__same_device(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->storage->device == src->storage->device)
        return true;
    ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "dst is on device %d, %s is on device %d", (int)(dst->storage->device - ignis__devices),
                name, (int)(src->storage->device - ignis__devices));
    return false;
}

/*  Converts on one device. */
static bool ignis__array_convert(const char *call, ignis__array *dst, ignis__array *src)
{
    ignis__work work;
    ignis__address to, from;
    ignis__builtin cast = (ignis__builtin)((int)IGNIS__BUILTIN_CAST_F16 + (int)dst->dtype - (int)IGNIS_F16);
    void *params[3];
    bool ok = ignis__work_begin(call, dst->storage->device, &work);
    params[0] = &to;
    params[1] = &from;
    params[2] = &src->numel;
    if (ok) {
        ok = ignis__work_read(&work, src, &from) && ignis__work_write(&work, dst, &to) &&
             (dst->dtype == src->dtype ? ignis__copy_on_device(&work, to, from, ignis__array_bytes(src))
                                       : ignis__elementwise(&work, cast, src->dtype, src->numel, params));
        ignis__work_end(&work);
    }
    return ok;
}

/*  Copies between devices, on the current stream of dst's device, behind the work on that of src's. */
static bool ignis__array_copy_peer(const char *call, ignis__array *dst, ignis__array *src)
{
    ignis__device *from_device = src->storage->device;
    ignis__work work, from_work;
    ignis__address to, from;
    uint64_t base;
    bool ok = ignis__work_begin(call, from_device, &from_work);
    if (!ok)
        return false;
    ok = ignis__work_read(&from_work, src, &from);
    ignis__work_end(&from_work);
    if (!ok || !ignis__work_begin(call, dst->storage->device, &work))
        return false;
    ok = ignis__work_write(&work, dst, &to) && ignis__stream_order(call, from_device, from_work.stream, work.device, work.stream) &&
         ignis__storage_use(call, src->storage, work.device, work.stream, &base) &&
         (src->numel == 0 ||
          !IGNIS__CUDA_FAILED(call, work.device, cuMemcpyPeerAsync,
                              (to, work.device->context, from, from_device->context, (size_t)ignis__array_bytes(src), work.stream)));
    ignis__work_end(&work);
    return ok;
}

IGNIS_API ignis_status ignis_array_copy(ignis_array dst, ignis_array src)
{
    static const char call[] = "ignis_array_copy";
    ignis_array handles[2];
    ignis__array *arrays[2];
    bool ok;
    handles[0] = dst;
    handles[1] = src;
    if (!ignis__array_hold_all(call, 2, handles, arrays))
        return ignis__failed();
    ok = ignis__same_numel(call, arrays[0], arrays[1], "src");
    if (ok && arrays[0]->storage->device == arrays[1]->storage->device)
        ok = ignis__array_convert(call, arrays[0], arrays[1]);
    else if (ok && arrays[0]->dtype != arrays[1]->dtype) /* the kernel would have to reach across; cast on one side first */
        ok = ignis__same_device(call, arrays[0], arrays[1], "src");
    else if (ok)
        ok = ignis__array_copy_peer(call, arrays[0], arrays[1]);
    ignis__array_drop_all(call, 2, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_array ignis_array_cast(ignis_array handle, ignis_dtype dtype)
{
    static const char call[] = "ignis_array_cast";
    ignis_array made = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle), *target;
    if (!array)
        return made;
    if (ignis__dtype_valid(call, dtype))
        made = ignis__array_create_like(call, array, dtype);
    if (made.id) {
        target = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
        if (!ignis__array_convert(call, target, array))
            ignis__array_discard(call, &made);
        ignis__array_drop(call, target);
    }
    ignis__array_drop(call, array);
    return made;
}

/*  dst = f(sources), all of one dtype and numel on one device. params are the kernel's, with addresses[0] for dst. */
static ignis_status ignis__array_map(const char *call, ignis__builtin builtin, int count, const ignis_array *handles,
                                     const char *const *names, ignis__address *addresses, void **params, int64_t *numel)
{
    ignis__array *arrays[3];
    ignis__work work;
    bool ok = true;
    int i;
    if (!ignis__array_hold_all(call, count, handles, arrays))
        return ignis__failed();
    for (i = 1; ok && i < count; i++)
        ok = ignis__same_numel(call, arrays[0], arrays[i], names[i]) && ignis__same_dtype(call, arrays[0], arrays[i], names[i]) &&
             ignis__same_device(call, arrays[0], arrays[i], names[i]);
    ok = ok && ignis__work_begin(call, arrays[0]->storage->device, &work);
    if (ok) {
        *numel = arrays[0]->numel;
        for (i = 1; ok && i < count; i++)
            ok = ignis__work_read(&work, arrays[i], &addresses[i]);
        ok = ok && ignis__work_write(&work, arrays[0], &addresses[0]) &&
             ignis__elementwise(&work, builtin, arrays[0]->dtype, *numel, params);
        ignis__work_end(&work);
    }
    ignis__array_drop_all(call, count, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

static ignis_status ignis__array_binary(const char *call, ignis__builtin builtin, ignis_array dst, ignis_array a, ignis_array b)
{
    static const char *const names[] = {"dst", "a", "b"};
    ignis_array handles[3];
    ignis__address addresses[3];
    int64_t numel;
    void *params[4];
    handles[0] = dst;
    handles[1] = a;
    handles[2] = b;
    params[0] = &addresses[0];
    params[1] = &addresses[1];
    params[2] = &addresses[2];
    params[3] = &numel;
    return ignis__array_map(call, builtin, 3, handles, names, addresses, params, &numel);
}

IGNIS_API ignis_status ignis_array_add(ignis_array dst, ignis_array a, ignis_array b)
{
    return ignis__array_binary("ignis_array_add", IGNIS__BUILTIN_ADD, dst, a, b);
}

IGNIS_API ignis_status ignis_array_mul(ignis_array dst, ignis_array a, ignis_array b)
{
    return ignis__array_binary("ignis_array_mul", IGNIS__BUILTIN_MUL, dst, a, b);
}

IGNIS_API ignis_status ignis_array_scale(ignis_array dst, ignis_array src, double factor)
{
    static const char *const names[] = {"dst", "src"};
    ignis_array handles[2];
    ignis__address addresses[2];
    int64_t numel;
    void *params[4];
    handles[0] = dst;
    handles[1] = src;
    params[0] = &addresses[0];
    params[1] = &addresses[1];
    params[2] = &factor;
    params[3] = &numel;
    return ignis__array_map("ignis_array_scale", IGNIS__BUILTIN_SCALE, 2, handles, names, addresses, params, &numel);
}

/* ===============================================================================================================
   >>setup - bringing all layers up, and down.
   =============================================================================================================== */

static void ignis__forked(void) { ignis__atomic_store(&ignis__global.forked, 1); }

static bool ignis__desc_check(const char *call, const ignis_desc *desc)
{
    if (!desc->allocator.alloc_fn != !desc->allocator.free_fn)
        ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.allocator has only one of alloc_fn and free_fn; set both or none");
    else if (desc->memory_limit < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.memory_limit is %lld, below 0", (long long)desc->memory_limit);
    else if (desc->cache_limit < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc.cache_limit is %lld, below 0", (long long)desc->cache_limit);
    else
        return true;
    return false;
}

static bool ignis__env_flag(const char *name)
{
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}

static bool ignis__library_want(const char *call, ignis_library library, const char *path)
{
    struct ignis__loaded *loaded = &ignis__libraries[library];
    memset(loaded, 0, sizeof *loaded);
    if (path && strlen(path) >= sizeof loaded->wanted) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the path of %s is longer than %d bytes", ignis__library_specs[library].title,
                    (int)sizeof loaded->wanted - 1);
        return false;
    }
    snprintf(loaded->wanted, sizeof loaded->wanted, "%s", path ? path : "");
    return true;
}

static ignis_status ignis__setup(const char *call, const ignis_desc *desc)
{
    static bool fork_watched;
    ignis__global.logger = desc->logger;
    ignis__global.verbose = desc->verbose || ignis__env_flag("IGNIS_VERBOSE");
    if (!ignis__desc_check(call, desc))
        return ignis__failed();
    ignis__allocator = desc->allocator;
    if (!ignis__library_want(call, IGNIS_LIBRARY_CUDA, desc->cuda_library) ||
        !ignis__library_want(call, IGNIS_LIBRARY_NVRTC, desc->nvrtc_library) ||
        !ignis__library_want(call, IGNIS_LIBRARY_CUBLASLT, desc->cublas_library) || !ignis__library_load(call, IGNIS_LIBRARY_CUDA) ||
        ignis__devices_setup(call, desc->device == IGNIS_DEVICE_0 ? 0 : desc->device) != IGNIS_OK)
        return ignis__failed();
    ignis__memory_setup(desc->memory_limit, desc->memory_bypass || ignis__env_flag("IGNIS_MEMORY_BYPASS"));
    ignis__kernels_setup(desc);
    if (!fork_watched)
        ignis__at_fork(ignis__forked);
    fork_watched = true;
    ignis__global.setups++;
    return IGNIS_OK;
}

static ignis__mutex ignis__setup_lock = IGNIS__MUTEX_INIT;

/*  The caller's functions are lent from ignis_setup to ignis_shutdown. */
static void ignis__give_back_lent(void)
{
    memset(&ignis__allocator, 0, sizeof ignis__allocator);
    memset(&ignis__global.logger, 0, sizeof ignis__global.logger);
}

IGNIS_API ignis_status ignis_setup(const ignis_desc *desc)
{
    static const char call[] = "ignis_setup";
    ignis_desc defaults;
    ignis_status status;
    memset(&defaults, 0, sizeof defaults);
    if (ignis__atomic_load(&ignis__global.forked)) {
        (void)ignis__enter(call);
        return IGNIS_ERROR_NOT_SETUP;
    }
    ignis__mutex_lock(&ignis__setup_lock);
    if (ignis__atomic_load(&ignis__global.ready)) {
        status = ignis__fail(IGNIS_DIAG_ALREADY_SETUP, call, "Ignis is set up already; call ignis_shutdown first");
    } else {
        status = ignis__setup(call, desc ? desc : &defaults);
        if (status == IGNIS_OK)
            ignis__atomic_store(&ignis__global.ready, 1);
        else
            ignis__give_back_lent();
    }
    ignis__mutex_unlock(&ignis__setup_lock);
    return status;
}

#define IGNIS__LEAKS_SHOWN 20

/*  Reports every array that is alive, and frees it. Views count too: they are handles that nobody has freed. */
static void ignis__arrays_close(const char *call)
{
    uint64_t index, count = ignis__atomic_load(&ignis__arrays.count);
    int alive = 0;
    for (index = 0; index < count; index++) {
        ignis__array *array = (ignis__array *)ignis__pool_hold_slot(&ignis__arrays, index, 0);
        char line[512];
        ignis__text text;
        if (!array)
            continue;
        if (alive++ < IGNIS__LEAKS_SHOWN) {
            ignis__text_begin(&text, line, sizeof line);
            ignis__array_describe(&text, array);
            ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_ARRAY_LEAKED, "%s: still alive: %s, %lld bytes, %lld ms old", call, line,
                        (long long)ignis__array_bytes(array), (long long)((ignis__wall_ns() - array->created_at_ns) / 1000000));
        }
        ignis__mutex_lock(&array->slot.lock);
        ignis__pool_kill(array);
        ignis__array_unlock(array);
        ignis__pool_drop(array);
        ignis__array_drop(call, array);
    }
    if (alive > IGNIS__LEAKS_SHOWN)
        ignis__note(IGNIS_LOG_WARNING, IGNIS_DIAG_ARRAY_LEAKED, "%s: and %d more arrays", call, alive - IGNIS__LEAKS_SHOWN);
}

static void ignis__kernels_close_handles(const char *call)
{
    uint64_t index, count = ignis__atomic_load(&ignis__kernels.count);
    for (index = 0; index < count; index++) {
        ignis__kernel *kernel = (ignis__kernel *)ignis__pool_hold_slot(&ignis__kernels, index, 0);
        if (!kernel)
            continue;
        ignis__pool_kill(kernel);
        ignis__pool_drop(kernel);
        ignis__kernel_drop(call, kernel);
    }
}

IGNIS_API ignis_status ignis_shutdown(void)
{
    static const char call[] = "ignis_shutdown";
    ignis__record before = ignis__this_thread.record;
    ignis_status status;
    int i;
    if (ignis__atomic_load(&ignis__global.forked)) {
        (void)ignis__enter(call);
        return IGNIS_ERROR_NOT_SETUP;
    }
    ignis__mutex_lock(&ignis__setup_lock);
    if (!ignis__atomic_load(&ignis__global.ready)) {
        ignis__mutex_unlock(&ignis__setup_lock);
        return IGNIS_OK;
    }
    memset(&ignis__this_thread.record, 0, sizeof before); /* to see the first failure of this call */
    ignis__tracking_reset(call);
    ignis__arrays_close(call);
    ignis__kernels_close_handles(call);
    for (i = 0; i < ignis__device_total; i++) {
        ignis__device *device = &ignis__devices[i];
        if (!ignis__atomic_load(&device->opened))
            continue;
        if (!IGNIS__CUDA_FAILED(call, device, cuCtxSetCurrent, (device->context)) && !ignis__atomic_load(&device->lost))
            (void)IGNIS__CUDA_FAILED(call, device, cuCtxSynchronize, ());
        ignis__builtins_close(device);
        ignis__memory_close(call, device);
        ignis__device_close(call, device);
    }
    ignis__images_close();
    ignis__atomic_store(&ignis__global.ready, 0);
    ignis__give_back_lent();
    status = ignis__this_thread.record.status;
    if (before.status != IGNIS_OK) { /* an earlier failure of the thread stays the first */
        ignis__record_drop(&ignis__this_thread);
        ignis__this_thread.record = before;
    }
    ignis__mutex_unlock(&ignis__setup_lock);
    return status;
}

#endif /* IGNIS_IMPLEMENTED */
#endif /* IGNIS_IMPLEMENTATION */

/*  LICENCE

    MIT License

    Copyright (c) 2026 Ignis authors

    Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the
    "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish,
    distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to
    the following conditions:

    The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

    THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
    MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR
    ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH
    THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
*/
