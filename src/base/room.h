/*  base - threads, clock, files, memory of the host, errors, handles, and the tables of the libraries of CUDA. Knows no
    device. */
#pragma once

#include "compiler.h"

#if !(defined(__GNUC__))
#include <intrin.h>
#endif

#ifdef _WIN32
typedef SRWLOCK ignis__mutex;

#define IGNIS__MUTEX_INIT SRWLOCK_INIT

/*  A condition variable: waiting releases the mutex; waking wakes all waiters. */
typedef CONDITION_VARIABLE ignis__condition;

#define IGNIS__CONDITION_INIT CONDITION_VARIABLE_INIT
typedef SRWLOCK ignis__rwlock;

typedef HANDLE ignis__thread_handle;

#define IGNIS__THREAD_RESULT DWORD WINAPI

/*  Thread-local variables: zeroed memory that the callback at the end of the thread frees. The compilers' own
    variables will not do: MinGW's are gone when the callback runs. The callback also runs when a fiber is deleted, on
    any thread. */
enum { IGNIS__LOCAL_THREAD, IGNIS__LOCAL_ENV, IGNIS__LOCAL_VALUES, IGNIS__LOCAL_TENSORS, IGNIS__LOCAL_COUNT };

struct ignis__local_slots_type {
    ignis__mutex lock;
    uint64_t made;
    DWORD here, at_exit; /* slots of the thread, and of the fiber with a callback */
    bool closing;
};

/*  IGNIS__LOCAL(type, name, which) declares a thread-local variable; a macro makes `name` look like one. */
#define IGNIS__LOCAL(type, name, which) \
    IGNIS__PRIVATE type *name##_get(void) { return (type *)ignis__local(which, sizeof(type)); }

/*  Calls unload when the library with Ignis inside is unloaded. In a program it does nothing: there other threads run
    until the very end. */
#define IGNIS__AT_UNLOAD

/*  Converts a path or variable from UTF-8. The result is empty, which names no file, if the text is not UTF-8 or too
    long. */
enum { IGNIS__WIDE = 1024 };

enum { IGNIS__SHARE_ALL = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE };

#endif

#ifndef _WIN32
typedef pthread_mutex_t ignis__mutex;

#define IGNIS__MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
typedef pthread_cond_t ignis__condition;

#define IGNIS__CONDITION_INIT PTHREAD_COND_INITIALIZER
typedef pthread_rwlock_t ignis__rwlock;

typedef pthread_t ignis__thread_handle;

#define IGNIS__THREAD_RESULT void *

/*  Marks the function that runs when the library with Ignis inside is unloaded, or the program ends. The system then
    forgets the handler of ignis__at_fork by itself. Not atexit: the thread sanitizer delays that to the end of the
    program. */
#define IGNIS__AT_UNLOAD __attribute__((destructor))

/*  Declares a thread-local variable. */
#define IGNIS__LOCAL(type, name, which) IGNIS__PRIVATE __thread type name;
#endif

/*  Writes text into a fixed buffer, always terminated. Text that does not fit is cut. */
typedef struct ignis__string_writer {
    char *data;
    size_t capacity, length; /* length counts the cut text, too, as snprintf does */
} ignis__string_writer;

/*  How to open a file for writing: fail if it exists; append, but not through a link; replace; or fail if it exists,
    readable by this user only. */
typedef enum ignis__file_how {
    IGNIS__FILE_NEW,
    IGNIS__FILE_APPEND,
    IGNIS__FILE_REPLACE,
    IGNIS__FILE_PRIVATE
} ignis__file_how;

/*  Continues a 64-bit FNV-1a hash (Fowler, Noll, Vo). */
#define IGNIS__HASH_START 0xCBF29CE484222325u

/*  Wraps every call of a driver library, so that tests can count calls and make the n-th one fail. */
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
    char *message;   /* from malloc, as it may outlive ignis_shutdown; null: text is enough, or there was no memory */
    const char *log; /* the end of message */
    char text[256];  /* the message, or its beginning */
} ignis__record;

/*  A failure that ignis_status_begin has saved. */
typedef struct ignis__saved_failure {
    int depth; /* of which one */
    ignis__record record;
    char *latest_message;
    struct ignis__saved_failure *outer;
} ignis__saved_failure;

/*  A public call that runs functions of the user. Messages of failures inside name it, too. */
typedef struct ignis__outer_call {
    const char *call;
    const char *rule; /* the rule whose backward function runs, or NULL */
    const struct ignis__outer_call *outer;
} ignis__outer_call;

/*  Where a thread's random numbers continue: see kernel/random.c. */
typedef struct ignis__random_state {
    uint64_t seed, used; /* used: blocks of four numbers drawn since the seed was set */
    bool again;          /* a checkpoint runs its function again, with the numbers of the first run */
    uint64_t launches;   /* handle of the graph's counter of launches in that run; 0: none */
} ignis__random_state;

/*  The state of a thread. The device section uses the last fields. */
typedef struct ignis__thread {
    ignis__record record;            /* the first failure */
    ignis_status latest;             /* of the last one, recorded or not */
    uint64_t failures;               /* failures reported so far */
    char *latest_message;            /* from malloc; null: it is that of the first, or there was no memory for it */
    ignis__saved_failure *aside;     /* from malloc, the innermost one */
    int depth;                       /* ignis_status_begin calls that have not ended */
    int stuck;                       /* from this one on there was no memory to put the failure aside; 0: there was */
    const ignis__outer_call *inside; /* the innermost one */
    bool quiet;                      /* failures are expected, and not reported */
    bool called_back;                /* inside a function given to ignis_stream_call */
    const char *file;                /* the caller's location from ignis_call_site, or NULL */
    int line, number;                /* the thread's number in profiles, from 1; 0 if it is in none */
    double bytes, flops;             /* of the next kernel, while a profile is written down */
    int rate;                        /* an ignis_dtype: which of the device's rates the flops go by */
    bool exact_bytes;   /* bytes are exactly those of that kernel, not those of all arrays of its operation */
    uint64_t operation; /* which one that is, in this thread */

    void *attached[2]; /* arrays of the tensor section, from malloc */
    uint64_t tape;     /* the number of its tape; 0 if it has none */
    void (*tensors_end)(void);
    struct ignis__thread *before, *after; /* in ignis__threads */
    bool listed, ended;                   /* it is there; it ends, and will not be there again */
    struct ignis__capture *capture;       /* the capture that ignis_graph_begin has begun */
    struct ignis__storage *found[16];     /* memory that open work has found elsewhere; held */
    int found_count;

    uint64_t setup; /* the setup that the rest belongs to: an older one is forgotten */
    int device;
    ignis__random_state random;
    uint64_t forgets; /* ignis_stream_forget calls seen */
    void *stream[IGNIS_MAX_DEVICES];
    uint64_t stream_serial[IGNIS_MAX_DEVICES];
} ignis__thread;

#ifdef _WIN32
#define ignis__this_thread (*ignis__this_thread_get())
#endif

struct ignis__global_type {
    uint64_t ready;   /* between ignis_setup and ignis_shutdown */
    uint64_t forked;  /* this process is a child of the one that called ignis_setup */
    uint64_t setups;  /* how many there were */
    uint64_t refused; /* calls refused since the last ignis_setup or ignis_shutdown: the first is logged */
    bool verbose;
    bool dry_run;
    ignis_logger logger;
};

#define ignis__log(level, diagnostic, ...) ignis__log_message(level, diagnostic, "", __VA_ARGS__)
struct ignis__diagnostics_type {
    const char *name;
    ignis_status status;
    const char *rule;
};

/*  X(return type, name, (argument types), first CUDA version that has it, required). The prototypes are written for
    Ignis: enumerations are int, handles void *, device addresses ignis__address. tests/base/prototypes.cpp compares
    them with the toolkit's headers. */
typedef unsigned long long ignis__address;

typedef struct ignis__ipc_handle { /* CUipcMemHandle and CUipcEventHandle */
    char bytes[64];
} ignis__ipc_handle;

typedef struct ignis__nccl_id { /* ncclUniqueId */
    char bytes[128];
} ignis__nccl_id;

/*  Numbers of the driver's enumerations. */
enum {
    IGNIS__CU_INVALID_VALUE = 1,
    IGNIS__CU_OUT_OF_MEMORY = 2,
    IGNIS__CU_NO_DEVICE = 100,
    IGNIS__CU_INVALID_IMAGE = 200,
    IGNIS__CU_INVALID_PTX = 218,
    IGNIS__CU_NO_JIT = 221,
    IGNIS__CU_UNSUPPORTED_PTX = 222,
    IGNIS__CU_NO_BINARY = 209,
    IGNIS__CU_ATTRIBUTE_MAX_THREADS = 1,
    IGNIS__CU_ATTRIBUTE_WARP_SIZE = 10,
    IGNIS__CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    IGNIS__CU_ATTRIBUTE_CLOCK = 13,        /* kHz, the highest */
    IGNIS__CU_ATTRIBUTE_MEMORY_CLOCK = 36, /* kHz */
    IGNIS__CU_ATTRIBUTE_MEMORY_BITS = 37,
    IGNIS__CU_ATTRIBUTE_L2_BYTES = 38,
    IGNIS__CU_ATTRIBUTE_MAJOR = 75,
    IGNIS__CU_ATTRIBUTE_MINOR = 76,
    IGNIS__CU_ATTRIBUTE_SHARED_OPTIN = 97,
    IGNIS__CU_ATTRIBUTE_CLUSTERS = 120,
    IGNIS__CU_STREAM_DEFAULT = 0, /* a blocking stream: ordered with the legacy default stream */
    IGNIS__CU_STREAM_NON_BLOCKING = 1,
    IGNIS__CU_STREAM_LEGACY = 1, /* handles of streams, these two */
    IGNIS__CU_STREAM_PER_THREAD = 2,
    IGNIS__CU_EVENT_DEFAULT = 0,
    IGNIS__CU_EVENT_DISABLE_TIMING = 2,
    IGNIS__CU_POINTER_MEMORY_TYPE = 2,
    IGNIS__CU_POINTER_ORDINAL = 9,
    IGNIS__CU_POINTER_RANGE_START = 11,
    IGNIS__CU_POINTER_RANGE_SIZE = 12,
    IGNIS__CU_MEMORY_HOST = 1,
    IGNIS__CU_MEMORY_DEVICE = 2,
    IGNIS__CU_CAPTURE_RELAXED = 2,
    IGNIS__CU_NOT_FOUND = 500,
    IGNIS__CU_NOT_READY = 600,
    IGNIS__CU_CAPTURE_UNSUPPORTED = 900,
    IGNIS__CU_FUNC_MAX_THREADS = 0,
    IGNIS__CU_FUNC_SHARED = 1,
    IGNIS__CU_FUNC_LOCAL = 3,
    IGNIS__CU_FUNC_REGISTERS = 4,
    IGNIS__CU_FUNC_PTX_VERSION = 5, /* the architecture that it was compiled for first: 90 */
    IGNIS__CU_FUNC_MAX_DYNAMIC_SHARED = 8,
    IGNIS__CU_LAUNCH_COOPERATIVE = 2,
    IGNIS__CU_LAUNCH_DEPENDENT = 6 /* programmatic stream serialization */
};

/*  The arguments of cuLaunchKernelEx. */
typedef struct ignis__launch_attribute {
    int id, padding;
    union {
        int allowed;
        char room[64];
    } value;
} ignis__launch_attribute;

typedef struct ignis__launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    ignis__launch_attribute *attributes;
    unsigned attribute_count;
} ignis__launch_config;

#define IGNIS__CUDA_API(X)                                                                                            \
    X(int, cuInit, (unsigned), 2000, 1)                                                                               \
    X(int, cuDriverGetVersion, (int *), 2020, 1)                                                                      \
    X(int, cuGetErrorName, (int, const char **), 6000, 1)                                                             \
    X(int, cuGetErrorString, (int, const char **), 6000, 1)                                                           \
    X(int, cuDeviceGetCount, (int *), 2000, 1)                                                                        \
    X(int, cuDeviceGet, (int *, int), 2000, 1)                                                                        \
    X(int, cuDeviceGetName, (char *, int, int), 2000, 1)                                                              \
    X(int, cuDeviceGetUuid_v2, (void *, int), 11040, 1)                                                               \
    X(int, cuDeviceGetLuid, (char *, unsigned *, int), 10000, 0) /* Windows alone has it */                           \
    X(int, cuDeviceGetPCIBusId, (char *, int, int), 4010, 1)                                                          \
    X(int, cuDeviceGetAttribute, (int *, int, int), 2000, 1)                                                          \
    X(int, cuDeviceTotalMem_v2, (size_t *, int), 3020, 1)                                                             \
    X(int, cuDevicePrimaryCtxRetain, (void **, int), 7000, 1)                                                         \
    X(int, cuDevicePrimaryCtxRelease_v2, (int), 11000, 1)                                                             \
    X(int, cuCtxGetCurrent, (void **), 4000, 1)                                                                       \
    X(int, cuCtxSetCurrent, (void *), 4000, 1)                                                                        \
    X(int, cuCtxPushCurrent_v2, (void *), 4000, 1)                                                                    \
    X(int, cuCtxPopCurrent_v2, (void **), 4000, 1)                                                                    \
    X(int, cuCtxSynchronize, (void), 2000, 1)                                                                         \
    X(int, cuMemGetInfo_v2, (size_t *, size_t *), 3020, 1)                                                            \
    X(int, cuMemAlloc_v2, (ignis__address *, size_t), 3020, 1)                                                        \
    X(int, cuMemFree_v2, (ignis__address), 3020, 1)                                                                   \
    X(int, cuMemHostAlloc, (void **, size_t, unsigned), 2020, 1)                                                      \
    X(int, cuMemFreeHost, (void *), 2000, 1)                                                                          \
    X(int, cuPointerGetAttributes, (unsigned, int *, void **, ignis__address), 7000, 1)                               \
    X(int, cuMemsetD8Async, (ignis__address, unsigned char, size_t, void *), 3020, 1)                                 \
    X(int, cuMemcpyHtoDAsync_v2, (ignis__address, const void *, size_t, void *), 3020, 1)                             \
    X(int, cuMemcpyDtoHAsync_v2, (void *, ignis__address, size_t, void *), 3020, 1)                                   \
    X(int, cuMemcpyDtoDAsync_v2, (ignis__address, ignis__address, size_t, void *), 3020, 1)                           \
    X(int, cuMemcpyPeerAsync, (ignis__address, void *, ignis__address, void *, size_t, void *), 4000, 1)              \
    X(int, cuStreamCreate, (void **, unsigned), 2000, 1)                                                              \
    X(int, cuStreamCreateWithPriority, (void **, unsigned, int), 5050, 1)                                             \
    X(int, cuStreamDestroy_v2, (void *), 4000, 1)                                                                     \
    X(int, cuStreamSynchronize, (void *), 2000, 1)                                                                    \
    X(int, cuStreamWaitEvent, (void *, void *, unsigned), 3020, 1)                                                    \
    X(int, cuStreamGetCtx, (void *, void **), 9020, 1)                                                                \
    X(int, cuEventCreate, (void **, unsigned), 2000, 1)                                                               \
    X(int, cuEventRecord, (void *, void *), 2000, 1)                                                                  \
    X(int, cuEventDestroy_v2, (void *), 4000, 1)                                                                      \
    X(int, cuModuleLoadData, (void **, const void *), 2000, 1)                                                        \
    X(int, cuModuleUnload, (void *), 2000, 1)                                                                         \
    X(int, cuModuleGetFunction, (void **, void *, const char *), 2000, 1)                                             \
    X(int, cuModuleGetGlobal_v2, (ignis__address *, size_t *, void *, const char *), 3020, 1)                         \
    X(int, cuFuncGetAttribute, (int *, int, void *), 2020, 1)                                                         \
    X(int, cuFuncSetAttribute, (void *, int, int), 9000, 1)                                                           \
    X(int, cuFuncGetParamInfo, (void *, size_t, size_t *, size_t *), 12040, 0)                                        \
    X(int, cuStreamBeginCapture_v2, (void *, int), 10010, 1)                                                          \
    X(int, cuStreamIsCapturing, (void *, int *), 10000, 1)                                                            \
    X(int, cuStreamEndCapture, (void *, void **), 10000, 1)                                                           \
    X(int, cuGraphInstantiateWithFlags, (void **, void *, unsigned long long), 11040, 1)                              \
    X(int, cuGraphLaunch, (void *, void *), 10000, 1)                                                                 \
    X(int, cuGraphExecDestroy, (void *), 10000, 1)                                                                    \
    X(int, cuGraphDestroy, (void *), 10000, 1)                                                                        \
    X(int, cuMemGetAddressRange_v2, (ignis__address *, size_t *, ignis__address), 3020, 1)                            \
    X(int, cuDeviceCanAccessPeer, (int *, int, int), 4000, 1)                                                         \
    X(int, cuCtxEnablePeerAccess, (void *, unsigned), 4000, 1)                                                        \
    X(int, cuDeviceGetP2PAttribute, (int *, int, int, int), 8000, 1)                                                  \
    X(int, cuMemHostRegister_v2, (void *, size_t, unsigned), 6050, 1)                                                 \
    X(int, cuMemHostUnregister, (void *), 4000, 1)                                                                    \
    X(int, cuMemHostGetDevicePointer_v2, (ignis__address *, void *, unsigned), 3020, 1)                               \
    X(int, cuStreamQuery, (void *), 2000, 1)                                                                          \
    X(int, cuEventQuery, (void *), 2000, 1)                                                                           \
    X(int, cuEventElapsedTime, (float *, void *, void *), 2000, 1)                                                    \
    X(int, cuEventSynchronize, (void *), 2000, 1)                                                                     \
    X(int, cuLaunchHostFunc, (void *, void (*)(void *), void *), 10000, 1)                                            \
    X(int, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, void *, int, size_t), 6050, 1)                        \
    X(int, cuMemGetAllocationGranularity, (size_t *, const void *, int), 10020, 1)                                    \
    X(int, cuMemCreate, (unsigned long long *, size_t, const void *, unsigned long long), 10020, 1)                   \
    X(int, cuMemRelease, (unsigned long long), 10020, 1)                                                              \
    X(int, cuMemAddressReserve, (ignis__address *, size_t, size_t, ignis__address, unsigned long long), 10020, 1)     \
    X(int, cuMemAddressFree, (ignis__address, size_t), 10020, 1)                                                      \
    X(int, cuMemMap, (ignis__address, size_t, size_t, unsigned long long, unsigned long long), 10020, 1)              \
    X(int, cuMemUnmap, (ignis__address, size_t), 10020, 1)                                                            \
    X(int, cuMemSetAccess, (ignis__address, size_t, const void *, size_t), 10020, 1)                                  \
    X(int, cuMemGetAccess, (unsigned long long *, const void *, ignis__address), 10020, 1)                            \
    X(int, cuMemExportToShareableHandle, (void *, unsigned long long, int, unsigned long long), 10020, 1)             \
    X(int, cuMemImportFromShareableHandle, (unsigned long long *, void *, int), 10020, 1)                             \
    X(int, cuMemGetAllocationPropertiesFromHandle, (void *, unsigned long long), 10020, 1)                            \
    X(int, cuMemRetainAllocationHandle, (unsigned long long *, void *), 11000, 1)                                     \
    X(int, cuIpcGetMemHandle, (void *, ignis__address), 4010, 1)                                                      \
    X(int, cuIpcOpenMemHandle_v2, (ignis__address *, ignis__ipc_handle, unsigned), 11000, 1)                          \
    X(int, cuIpcCloseMemHandle, (ignis__address), 4010, 1)                                                            \
    X(int, cuIpcGetEventHandle, (void *, void *), 4010, 1)                                                            \
    X(int, cuIpcOpenEventHandle, (void **, ignis__ipc_handle), 4010, 1)                                               \
    X(int, cuImportExternalMemory, (void **, const void *), 10000, 0)                                                 \
    X(int, cuExternalMemoryGetMappedBuffer, (ignis__address *, void *, const void *), 10000, 0)                       \
    X(int, cuDestroyExternalMemory, (void *), 10000, 0)                                                               \
    X(int, cuImportExternalSemaphore, (void **, const void *), 10000, 0)                                              \
    X(int, cuSignalExternalSemaphoresAsync, (void *const *, const void *, unsigned, void *), 10000, 0)                \
    X(int, cuWaitExternalSemaphoresAsync, (void *const *, const void *, unsigned, void *), 10000, 0)                  \
    X(int, cuDestroyExternalSemaphore, (void *), 10000, 0)                                                            \
    X(int, cuGraphicsGLRegisterBuffer, (void **, unsigned, unsigned), 3000, 0)                                        \
    X(int, cuGraphicsUnregisterResource, (void *), 3000, 0)                                                           \
    X(int, cuGraphicsMapResources, (unsigned, void **, void *), 3000, 0)                                              \
    X(int, cuGraphicsUnmapResources, (unsigned, void **, void *), 3000, 0)                                            \
    X(int, cuGraphicsResourceGetMappedPointer_v2, (ignis__address *, size_t *, void *), 3020, 0)                      \
    X(int, cuTensorMapEncodeTiled,                                                                                    \
      (void *, int, unsigned, void *, const unsigned long long *, const unsigned long long *, const unsigned *,       \
       const unsigned *, int, int, int, int),                                                                         \
      12000, 0)                                                                                                       \
    X(int, cuTensorMapEncodeIm2col,                                                                                   \
      (void *, int, unsigned, void *, const unsigned long long *, const unsigned long long *, const int *,            \
       const int *, unsigned, unsigned, const unsigned *, int, int, int, int),                                        \
      12000, 0)                                                                                                       \
    X(int, cuLaunchKernelEx, (const void *, void *, void **, void **), 12030 /* such launches in graphs, too */, 0)   \
    X(int, cuLaunchKernel,                                                                                            \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), 4000, \
      1)

#define IGNIS__NVRTC_API(X)                                                                                          \
    X(int, nvrtcVersion, (int *, int *), 7000, 1)                                                                    \
    X(const char *, nvrtcGetErrorString, (int), 7000, 1)                                                             \
    X(int, nvrtcCreateProgram, (void **, const char *, const char *, int, const char *const *, const char *const *), \
      7000, 1)                                                                                                       \
    X(int, nvrtcDestroyProgram, (void **), 7000, 1)                                                                  \
    X(int, nvrtcAddNameExpression, (void *, const char *), 8000, 1)                                                  \
    X(int, nvrtcCompileProgram, (void *, int, const char *const *), 7000, 1)                                         \
    X(int, nvrtcGetProgramLogSize, (void *, size_t *), 7000, 1)                                                      \
    X(int, nvrtcGetProgramLog, (void *, char *), 7000, 1)                                                            \
    X(int, nvrtcGetLoweredName, (void *, const char *, const char **), 8000, 1)                                      \
    X(int, nvrtcGetCUBINSize, (void *, size_t *), 11010, 1)                                                          \
    X(int, nvrtcGetCUBIN, (void *, char *), 11010, 1)                                                                \
    X(int, nvrtcGetPTXSize, (void *, size_t *), 7000, 1)                                                             \
    X(int, nvrtcGetPTX, (void *, char *), 7000, 1)                                                                   \
    X(int, nvrtcGetNumSupportedArchs, (int *), 11020, 1)                                                             \
    X(int, nvrtcGetSupportedArchs, (int *), 11020, 1)

enum { /* numbers of cuBLASLt's enumerations */
       IGNIS__LT_COMPUTE_32F = 68,
       IGNIS__LT_COMPUTE_64F = 70,
       IGNIS__LT_COMPUTE_32F_TF32 = 77,
       IGNIS__LT_R_32F = 0,
       IGNIS__LT_R_64F = 1,
       IGNIS__LT_R_16F = 2,
       IGNIS__LT_R_16BF = 14,
       IGNIS__LT_DESC_TRANSA = 3,
       IGNIS__LT_DESC_TRANSB = 4,
       IGNIS__LT_DESC_EPILOGUE = 7,
       IGNIS__LT_DESC_BIAS_POINTER = 8,
       IGNIS__LT_LAYOUT_BATCH_COUNT = 5,
       IGNIS__LT_LAYOUT_BATCH_STRIDE = 6,
       IGNIS__LT_PREFERENCE_WORKSPACE = 1,
       IGNIS__LT_PREFERENCE_REDUCTION = 3,
       IGNIS__LT_REDUCTION_NONE = 0,
       IGNIS__LT_REDUCTION_COMPUTE_TYPE = 2,
       IGNIS__LT_PREFERENCE_ALIGNMENT_A = 5, /* B, C and D follow */
       IGNIS__LT_EPILOGUE_NONE = 1,
       IGNIS__LT_EPILOGUE_BIAS = 4,
       IGNIS__LT_EPILOGUE_BGRADB = 512,
       IGNIS__LT_NOT_SUPPORTED = 15,
       IGNIS__LT_WORKSPACE = 32 << 20 /* bytes: what NVIDIA advises for Hopper */
};

typedef struct ignis__lt_algo {
    uint64_t data[8];
} ignis__lt_algo;

typedef struct ignis__lt_choice {
    ignis__lt_algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} ignis__lt_choice;

#define IGNIS__CUBLASLT_API(X)                                                                                       \
    X(size_t, cublasLtGetVersion, (void), 10010, 1)                                                                  \
    X(int, cublasLtCreate, (void **), 10010, 1)                                                                      \
    X(int, cublasLtDestroy, (void *), 10010, 1)                                                                      \
    X(int, cublasLtMatmulDescCreate, (void **, int, int), 11000, 1)                                                  \
    X(int, cublasLtMatmulDescDestroy, (void *), 10010, 1)                                                            \
    X(int, cublasLtMatmulDescSetAttribute, (void *, int, const void *, size_t), 10010, 1)                            \
    X(int, cublasLtMatrixLayoutCreate, (void **, int, uint64_t, uint64_t, int64_t), 10010, 1)                        \
    X(int, cublasLtMatrixLayoutDestroy, (void *), 10010, 1)                                                          \
    X(int, cublasLtMatrixLayoutSetAttribute, (void *, int, const void *, size_t), 10010, 1)                          \
    X(int, cublasLtMatmulPreferenceCreate, (void **), 10010, 1)                                                      \
    X(int, cublasLtMatmulPreferenceDestroy, (void *), 10010, 1)                                                      \
    X(int, cublasLtMatmulPreferenceSetAttribute, (void *, int, const void *, size_t), 10010, 1)                      \
    X(int, cublasLtMatmulAlgoGetHeuristic,                                                                           \
      (void *, void *, void *, void *, void *, void *, void *, int, void *, int *), 10010, 1)                        \
    X(int, cublasLtMatmul,                                                                                           \
      (void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, \
       void *, void *, const void *, void *, size_t, void *),                                                        \
      10010, 1)

#define IGNIS__NCCL_API(X)                                                                       \
    X(int, ncclGetVersion, (int *), 2190, 1)                                                     \
    X(int, ncclGetUniqueId, (ignis__nccl_id *), 2190, 1)                                         \
    X(int, ncclCommInitRank, (void **, int, ignis__nccl_id, int), 2190, 1)                       \
    X(int, ncclCommInitRankConfig, (void **, int, ignis__nccl_id, int, void *), 2190, 1)         \
    X(int, ncclCommFinalize, (void *), 2190, 1)                                                  \
    X(int, ncclCommDestroy, (void *), 2190, 1)                                                   \
    X(int, ncclCommAbort, (void *), 2190, 1)                                                     \
    X(int, ncclCommGetAsyncError, (void *, int *), 2190, 1)                                      \
    X(const char *, ncclGetErrorString, (int), 2190, 1)                                          \
    X(const char *, ncclGetLastError, (void *), 2190, 1)                                         \
    X(int, ncclAllReduce, (const void *, void *, size_t, int, int, void *, void *), 2190, 1)     \
    X(int, ncclReduce, (const void *, void *, size_t, int, int, int, void *, void *), 2190, 1)   \
    X(int, ncclBroadcast, (const void *, void *, size_t, int, int, void *, void *), 2190, 1)     \
    X(int, ncclAllGather, (const void *, void *, size_t, int, void *, void *), 2190, 1)          \
    X(int, ncclReduceScatter, (const void *, void *, size_t, int, int, void *, void *), 2190, 1) \
    X(int, ncclSend, (const void *, size_t, int, int, void *, void *), 2190, 1)                  \
    X(int, ncclRecv, (void *, size_t, int, int, void *, void *), 2190, 1)                        \
    X(int, ncclGroupStart, (void), 2190, 1)                                                      \
    X(int, ncclGroupEnd, (void), 2190, 1)

#define IGNIS__API_MEMBER(ret, name, args, version, required) ret(*name) args;
struct ignis__cuda_api {
    IGNIS__CUDA_API(IGNIS__API_MEMBER)
};

struct ignis__nvrtc_api {
    IGNIS__NVRTC_API(IGNIS__API_MEMBER)
};

struct ignis__cublaslt_api {
    IGNIS__CUBLASLT_API(IGNIS__API_MEMBER)
};

struct ignis__nccl_api {
    IGNIS__NCCL_API(IGNIS__API_MEMBER)
};

/*  Calls a driver function, as IGNIS__CUDA(cuMemFree_v2, (address)). The only way to call one. */
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
    const char *names[6];   /* names for the system's search, newest first */
    const char *folders[6]; /* below CUDA_PATH, and as they are */
    const char *wheels[3];  /* below each Python's site-packages */
    const char *companion;  /* a library that this one opens by itself, and must find beside it */
    const char *help;
    void *api;
    const ignis__symbol *symbols;
    int symbol_count;
} ignis__library_spec;

struct ignis__loaded {
    uint64_t loaded;   /* the api struct is filled */
    uint64_t missing;  /* ignis__library_available has not found it */
    char path[1024];   /* the name it was opened by */
    char wanted[1024]; /* ignis_desc's path, "" for a search */
    int version, found;
    uint64_t release; /* the exact version, for cache keys */
};

/*  One search for a library: the places tried, and why each failed. */
typedef struct ignis__search {
    const ignis__library_spec *spec;
    const char *below; /* the folder of Pythons that is being listed */
    void *library;
    char path[1024];
    ignis__string_writer tried;
} ignis__search;

/*  A handle: generation (32 bits) | kind (5 bits) | slot (27 bits). The state of a slot: generation (32 bits) | holds
    (32 bits).
    An odd generation is live. The handle itself is one hold, and a call that uses the item takes another: an item is
    destroyed only when no call uses it.
    Slots are never freed while handles may exist, and a generation never repeats (a slot without generations left is
    retired). So a stale handle is recognised for ever. */
typedef enum ignis__kind {
    IGNIS__KIND_ARRAY = 1,
    IGNIS__KIND_KERNEL,
    IGNIS__KIND_TENSOR,
    IGNIS__KIND_OPTIMIZER,
    IGNIS__KIND_GRAPH,
    IGNIS__KIND_EVENT,
    IGNIS__KIND_TICKET,
    IGNIS__KIND_FENCE,
    IGNIS__KIND_GL_BUFFER,
    IGNIS__KIND_TRAINING,
    IGNIS__KIND_VMM, /* from here on: kinds of ignis_collective.h */
    IGNIS__KIND_RANGE,
    IGNIS__KIND_CHANNEL,
    IGNIS__KIND_TRANSPORT,
    IGNIS__KIND_COMM,
    IGNIS__KIND_PARALLEL,
    IGNIS__KIND_TOKENIZER, /* from here on: kinds of ignis_models.h */
    IGNIS__KIND_MODEL,
    IGNIS__KIND_SEQUENCE,
    IGNIS__KIND_LORA,
    IGNIS__KIND_COUNT,
    IGNIS__KIND_VALUE = 31 /* no handle of a pool: a number among the inputs of a formula */
} ignis__kind;

#define IGNIS__SLOT_BITS 27
#define IGNIS__SLOT_MASK (((uint64_t)1 << IGNIS__SLOT_BITS) - 1)
typedef struct ignis__slot {
    uint64_t state;
    uint64_t handle;   /* while live */
    ignis__mutex lock; /* for the item's own fields */
    struct ignis__slot *next_free;
    uint32_t index;
} ignis__slot;

/*  Names an item that has been freed, for messages about its stale handle. Valid until the slot's next item is
    freed. */
typedef struct ignis__tombstone {
    uint64_t handle, id;
    char name[32];
} ignis__tombstone;

#define IGNIS__POOL_PAGES 21 /* page k holds 64 << k items: 2^27 - 64 in all */
typedef struct ignis__pool {
    size_t item_size; /* items begin with an ignis__slot */
    ignis__kind kind;
    const char *what;       /* an item is, in messages */
    ignis_diagnostic freed; /* of a stale handle */
    size_t tombstone;       /* offset of an item's ignis__tombstone; 0 if it has none */
    ignis__mutex lock;
    uint64_t count; /* slots ever made */
    char *pages[IGNIS__POOL_PAGES];
    ignis__slot *free;
    struct ignis__pool *next;
} ignis__pool;

#define IGNIS__POOL(item, kind, what, freed) IGNIS__POOL_NAMED(item, kind, what, freed, 0)
#define IGNIS__POOL_NAMED(item, kind, what, freed, tombstone)                             \
    {                                                                                     \
        sizeof(item), kind, what, freed, tombstone, IGNIS__MUTEX_INIT, 0, {0}, NULL, NULL \
    }

/*  The name of an item in messages: "array #7 'weights'". Id 0 and name "" are left out. */
typedef struct ignis__label {
    char text[80];
} ignis__label;

/*  Objects alive at ignis_shutdown are reported one per line up to this many, and counted beyond. */
#define IGNIS__LEAKS_SHOWN 20

/*  Functions of the headers above, which ignis_shutdown calls in this order and before all else. Each room registers
    its function at its first object. */
enum {
    IGNIS__CLOSE_SEQUENCES, /* before graphs are closed, as sequences hold some */
    IGNIS__CLOSE_LORAS,
    IGNIS__CLOSE_MODELS,
    IGNIS__CLOSE_TOKENIZERS,
    IGNIS__CLOSE_COLLECTIVE,
    IGNIS__CLOSE_COUNT
};

#ifndef IGNIS_NO_TENSORS
/*  A name in quotes, cut, for a message. A struct, so that one message can have several. */
typedef struct ignis__name_text {
    char text[80];
} ignis__name_text;

/*  Reads JSON. The first fault is kept, and every later call fails without advancing. Strings are decoded in place. */
typedef struct ignis__json {
    char *start, *at, *end;
    const char *what; /* it reads, in messages; null: the header */
    char fault[256];  /* "" if there was none */
} ignis__json;

#define IGNIS__JSON_DEPTH 64
#endif

/*  The functions that ignis_desc.dry_run puts into the tables of the libraries. They hand out addresses, count them,
    and do nothing else. All code above runs as on a device, including the cache of device memory and its rounding.
    Reads from the device give zeros. There is one device and one context; a stream knows whether it is captured; all
    other handles are interchangeable. */
typedef struct ignis__dry_memory {
    ignis__address start;
    size_t size;
    struct ignis__dry_memory *next;
} ignis__dry_memory;

struct ignis__dry_type {
    ignis_device_info device;
    ignis__mutex lock;
    ignis__dry_memory *memory;
    size_t used;
    ignis__address next;
};

/*  A function of a room above that a room below calls: one thread sets it while others read it. Not set: NULL. */
#define IGNIS__HOOK_SET(hook, function) ignis__atomic_store(&(hook), (uint64_t)(uintptr_t)(function))
#define IGNIS__HOOK(type, hook) ((type *)(uintptr_t)ignis__atomic_load(&(hook)))

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* atomic.c */
IGNIS__PRIVATE uint64_t ignis__atomic_load(const uint64_t *at);
IGNIS__PRIVATE void ignis__atomic_store(uint64_t *at, uint64_t value);
IGNIS__PRIVATE uint64_t ignis__atomic_add(uint64_t *at, uint64_t value);
IGNIS__PRIVATE bool ignis__atomic_swap_if(uint64_t *at, uint64_t *expected, uint64_t value);
IGNIS__PRIVATE int ignis__log2(uint64_t value);
IGNIS__PRIVATE int ignis__lowest_bit(uint64_t value);

/* windows.c */
IGNIS__PRIVATE void ignis__mutex_init(ignis__mutex *mutex);
IGNIS__PRIVATE void ignis__mutex_lock(ignis__mutex *mutex);
IGNIS__PRIVATE bool ignis__mutex_try(ignis__mutex *mutex);
IGNIS__PRIVATE void ignis__mutex_unlock(ignis__mutex *mutex);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__condition_wait(ignis__condition *condition, ignis__mutex *mutex);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__condition_wake(ignis__condition *condition);
IGNIS__PRIVATE void ignis__rwlock_init(ignis__rwlock *lock);
IGNIS__PRIVATE void ignis__rwlock_read(ignis__rwlock *lock);
IGNIS__PRIVATE void ignis__rwlock_read_end(ignis__rwlock *lock);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__rwlock_write(ignis__rwlock *lock);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__rwlock_write_end(ignis__rwlock *lock);
IGNIS__PRIVATE void ignis__thread_join(ignis__thread_handle thread);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__thread_detach(ignis__thread_handle thread);
IGNIS__PRIVATE int ignis__core_count(void);
IGNIS__PRIVATE bool ignis__at_thread_exit(void (*release)(void *), void *value);
IGNIS__PRIVATE void ignis__thread_exits_close(void);
IGNIS__PRIVATE void ignis__at_unload(void (*unload)(void));
IGNIS__PRIVATE void ignis__at_fork(void (*in_child)(void));
IGNIS__PRIVATE int64_t ignis__wall_ns(void);
IGNIS__PRIVATE int64_t ignis__monotonic_ns(void);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__stderr_is_terminal(void);
IGNIS__PRIVATE const char *ignis__env(const char *name);
IGNIS__PRIVATE void *ignis__library_open(const char *path, char *why, size_t why_size);
IGNIS__PRIVATE void *ignis__library_symbol(void *library, const char *name);
IGNIS__PRIVATE bool ignis__folder_make(const char *path);
IGNIS__PRIVATE bool ignis__file_rename(const char *from, const char *to);
IGNIS__PRIVATE bool ignis__file_remove(const char *path);
IGNIS__PRIVATE bool ignis__file_info(const char *path, int64_t *size, int64_t *time);
IGNIS__PRIVATE void ignis__file_touch(const char *path);
IGNIS__PRIVATE unsigned long ignis__process_id(void);

#ifdef _WIN32
IGNIS__PRIVATE bool ignis__thread_start(ignis__thread_handle *thread, DWORD(WINAPI *run)(void *), void *context);
extern struct ignis__local_slots_type ignis__local_slots;
IGNIS__PRIVATE void *ignis__local(int which, size_t size);
IGNIS__PRIVATE const WCHAR *ignis__utf16(const char *text, WCHAR out[IGNIS__WIDE]);
IGNIS__COLD IGNIS__PRIVATE void ignis__system_error(char *out, size_t size);
IGNIS__PRIVATE bool ignis__folder_list(const char *path, void (*visit)(void *context, const char *name), void *context);
IGNIS__PRIVATE HANDLE ignis__file_handle(const char *path, DWORD access, DWORD share, DWORD how, DWORD flags);
#endif

/* posix.c */
#ifndef _WIN32
IGNIS__PRIVATE bool ignis__thread_start(ignis__thread_handle *thread, void *(*run)(void *), void *context);
IGNIS__COLD IGNIS__PRIVATE bool ignis__folder_list(const char *path, void (*visit)(void *context, const char *name),
                                                   void *context);
#endif

/* thread_pool.c */
IGNIS__PRIVATE void ignis__parallel(int count, void (*work)(void *context, int index), void *context);

/* host_memory.c */
extern ignis_allocator ignis__allocator;
IGNIS__PRIVATE void *ignis__alloc(size_t size);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__free(void *memory);
IGNIS__PRIVATE char *ignis__copy_string(const char *text);

/* text.c */
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__string_begin(ignis__string_writer *text, char *data, size_t capacity);
IGNIS__PRINTF(2, 0)
IGNIS__COLD IGNIS__PRIVATE void ignis__string_addv(ignis__string_writer *text, const char *format, va_list args);
IGNIS__PRINTF(2, 3)
IGNIS__COLD IGNIS__PRIVATE void ignis__string_add(ignis__string_writer *text, const char *format, ...);
IGNIS__COLD IGNIS__PRIVATE int ignis__utf8_length(const char *text, size_t size);
IGNIS__PRIVATE size_t ignis__utf8_cut(const char *text, size_t limit);
IGNIS__COLD IGNIS__PRIVATE void ignis__string_add_escaped(ignis__string_writer *text, const char *from, size_t size,
                                                          bool lines);

/* file_io.c */
IGNIS__COLD IGNIS__PRIVATE bool ignis__folder_make_all(const char *path);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE int ignis__file_open(const char *path, int64_t *size);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE int64_t ignis__file_read_at(int file, int64_t at, void *out, int64_t size);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__file_close(int file);
IGNIS__PRIVATE FILE *ignis__file_create(const char *path, ignis__file_how how);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__file_flush(FILE *file);
IGNIS__PRIVATE bool ignis__stream_is_private(FILE *file, char *why, size_t size);
IGNIS__PRIVATE bool ignis__path_is_private(const char *path, char *why, size_t size);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__path_is_special(const char *path);
IGNIS__COLD IGNIS__PRIVATE void *ignis__file_read_as(const char *path, size_t *size, char *why, size_t why_size);
IGNIS__COLD IGNIS__PRIVATE void *ignis__file_read(const char *path, size_t *size);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE char *ignis__file_part_path(const char *path);

#ifdef _WIN32
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__folder_flush(const char *path_of_file);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE char *ignis__file_target(const char *path, bool *loop);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__file_inherit(FILE *file, const char *path);
#endif

#ifndef _WIN32
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__system_error(char *out, size_t size);
IGNIS__COLD IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__folder_flush(const char *path_of_file);
IGNIS__COLD IGNIS__MAYBE_UNUSED IGNIS__PRIVATE char *ignis__file_target(const char *path, bool *loop);
IGNIS__COLD IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__file_inherit(FILE *file, const char *path);
#endif

/* hash.c */
IGNIS__PRIVATE uint64_t ignis__hash(uint64_t hash, const void *data, size_t size);

/* error_record.c */
#ifdef _WIN32
IGNIS__PRIVATE ignis__thread *ignis__this_thread_get(void);
#else
extern __thread ignis__thread ignis__this_thread;
#endif
extern struct ignis__global_type ignis__global;
IGNIS__COLD IGNIS__PRIVATE void ignis__log_write(ignis_log_level level, ignis_diagnostic diagnostic,
                                                 const char *message);
IGNIS__COLD IGNIS__PRIVATE void ignis__string_add_message(ignis__string_writer *text, const char *message,
                                                          const char *log);
IGNIS__PRINTF(4, 5)
IGNIS__COLD IGNIS__PRIVATE void ignis__log_message(ignis_log_level level, ignis_diagnostic diagnostic, const char *log,
                                                   const char *format, ...);
extern const struct ignis__diagnostics_type ignis__diagnostics[];
IGNIS__PRIVATE const char *ignis__record_text(const ignis__record *record);
IGNIS__PRIVATE void ignis__record_drop(ignis__thread *thread);
IGNIS__PRIVATE void ignis__latest_drop(ignis__thread *thread);
IGNIS__COLD IGNIS__PRIVATE void ignis__thread_register(ignis__thread *thread);
IGNIS__PRIVATE void ignis__messages_cut(ignis__thread *thread);
IGNIS__PRIVATE void ignis__threads_close(void);

/* status.c */
IGNIS__COLD IGNIS__PRIVATE void ignis__latest_keep(ignis__thread *thread, const char *message);
IGNIS__PRIVATE ignis_status ignis__record_adopt(const ignis__record *record);
IGNIS__MAYBE_UNUSED IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__record_repeat(const ignis__record *record);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__record ignis__quiet_begin(void);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__quiet_end(const ignis__record *before, ignis__record *failure, char *why,
                                                         size_t why_size);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__outer_call_begin(ignis__outer_call *outer, const char *call,
                                                                const char *rule);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__outer_call_end(const ignis__outer_call *outer);
IGNIS__PRIVATE uint64_t ignis__failures(void);
IGNIS__PRIVATE ignis_status ignis__ended(uint64_t failures_before, bool ok);
IGNIS__PRINTF(2, 0)
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__failv(ignis__record cause, const char *format, va_list args);
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__fail(ignis_diagnostic diagnostic, const char *call, const char *format,
                                                    ...);
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE bool ignis__fail_false(ignis_diagnostic diagnostic, const char *call, const char *format,
                                                  ...);
IGNIS__PRINTF(6, 7)
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__fail_because(ignis_diagnostic diagnostic, const char *call, int error,
                                                            const char *name, const char *log, const char *format, ...);
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__fail_host_memory(const char *call, size_t size);
IGNIS__ONE_COPY IGNIS__PRIVATE void *ignis__alloc_for(const char *call, size_t size);
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__fail_null(const char *call, const char *argument);
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__check_not_null(const char *call, const char *name, const void *argument);
IGNIS__PRIVATE bool ignis__check_capacity(const char *call, const char *name, const void *out, int capacity);
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__fail_file(ignis_diagnostic diagnostic, const char *call,
                                                         const char *path, const char *what);
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__failed(void);
IGNIS__PRIVATE bool ignis__enter(const char *call);

/* driver_api.c */
extern struct ignis__cuda_api ignis__cuda;
extern struct ignis__nvrtc_api ignis__nvrtc;
extern struct ignis__cublaslt_api ignis__cublaslt;
extern struct ignis__nccl_api ignis__nccl;

/* loader.c */
extern const ignis__symbol ignis__cuda_symbols[];
extern const ignis__symbol ignis__nccl_symbols[];
extern const ignis__library_spec ignis__library_specs[IGNIS_LIBRARY_COUNT];
extern struct ignis__loaded ignis__libraries[IGNIS_LIBRARY_COUNT];
IGNIS__COLD IGNIS__PRIVATE bool ignis__search_try(ignis__search *search, const char *path);
IGNIS__COLD IGNIS__PRIVATE void ignis__search_pythons(ignis__search *search, const char *root, const char *below);
IGNIS__PRIVATE bool ignis__library_load(const char *call, ignis_library which);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__library_available(const char *call, ignis_library which,
                                                                 const char *then);

/* pool.c */
IGNIS__PRIVATE uint64_t ignis__handle_kind(uint64_t handle);
IGNIS__COLD IGNIS__PRIVATE void ignis__pools_free(void);
IGNIS__PRIVATE void *ignis__pool_take(const char *call, ignis__pool *pool);
IGNIS__PRIVATE void *ignis__pool_take_zeroed(const char *call, ignis__pool *pool);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__pool_fill(const ignis__pool *pool, void *item, const void *from);
IGNIS__PRIVATE uint64_t ignis__pool_publish_held(ignis__pool *pool, void *item, int holds);
IGNIS__PRIVATE uint64_t ignis__pool_publish(ignis__pool *pool, void *item);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__pool_recycle(ignis__pool *pool, void *item);
IGNIS__PRIVATE void *ignis__pool_hold(ignis__pool *pool, uint64_t handle);
IGNIS__PRIVATE void *ignis__pool_next(ignis__pool *pool, uint64_t *index);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__pool_hold_more(void *item);
IGNIS__PRIVATE bool ignis__pool_drop(void *item);
IGNIS__PRIVATE bool ignis__pool_live(const void *item);
IGNIS__PRIVATE void ignis__pool_kill(void *item);
IGNIS__COLD IGNIS__PRIVATE ignis__label ignis__label_write(const char *what, uint64_t id, const char *name);
IGNIS__PRIVATE void ignis__tombstone_write(ignis__tombstone *tombstone, const ignis__slot *slot, uint64_t id,
                                           const char *name);
IGNIS__COLD IGNIS__PRIVATE ignis__label ignis__label_stale(ignis__pool *pool, uint64_t handle);
IGNIS__COLD IGNIS__PRIVATE void ignis__fail_stale(const char *call, ignis__pool *pool, uint64_t handle);
IGNIS__ONE_COPY IGNIS__PRIVATE void *ignis__handle_hold(const char *call, ignis__pool *pool, uint64_t handle);
IGNIS__PRIVATE bool ignis__handle_kill(void *item);
extern int ignis__leaks;
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE void ignis__leak_report(const char *call, ignis_diagnostic diagnostic, const char *format,
                                                   ...);

/* unload.c */
extern void (*ignis__closers[IGNIS__CLOSE_COUNT])(const char *call);
extern ignis__mutex ignis__setup_lock;
IGNIS__AT_UNLOAD IGNIS__PRIVATE void ignis__unload(void);

/* utf8.c */
#ifndef IGNIS_NO_TENSORS
IGNIS__PRIVATE bool ignis__utf8_valid(const char *text);
IGNIS__PRIVATE int ignis__utf8_write(char *out, uint32_t code);
IGNIS__COLD IGNIS__PRIVATE ignis__name_text ignis__name_write(const char *name);
#endif

/* json.c */
#ifndef IGNIS_NO_TENSORS
IGNIS__PRINTF(2, 3)
IGNIS__COLD IGNIS__PRIVATE bool ignis__json_fail(ignis__json *json, const char *format, ...);
IGNIS__COLD IGNIS__PRIVATE char ignis__json_peek(ignis__json *json);
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__json_take(ignis__json *json, char wanted);
IGNIS__PRIVATE bool ignis__json_expect(ignis__json *json, char wanted);
IGNIS__COLD IGNIS__PRIVATE bool ignis__json_more(ignis__json *json, char close, bool *first);
IGNIS__COLD IGNIS__PRIVATE const char *ignis__json_string(ignis__json *json, size_t *size);
IGNIS__COLD IGNIS__PRIVATE int64_t ignis__json_count(ignis__json *json);
IGNIS__PRIVATE void ignis__json_skip_scalar(ignis__json *json);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE double ignis__decimal(const char *text, const char *end);
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE double ignis__json_number(ignis__json *json);
IGNIS__PRIVATE void ignis__json_skip(ignis__json *json);
#endif

/* dry_driver.c */
extern struct ignis__dry_type ignis__dry;
IGNIS__PRIVATE int ignis__dry_number(int number);
IGNIS__PRIVATE int ignis__dry_flags(unsigned flags);
IGNIS__PRIVATE int ignis__dry_nothing(void);
IGNIS__PRIVATE int ignis__dry_handle(void *handle);
IGNIS__PRIVATE int ignis__dry_two(void *a, void *b);
IGNIS__PRIVATE int ignis__dry_order(void *stream, void *event, unsigned flags);
IGNIS__PRIVATE int ignis__dry_set(void *function, int attribute, int value);
IGNIS__PRIVATE int ignis__dry_recycle(void **handle);
IGNIS__PRIVATE int ignis__dry_none(void **context);
IGNIS__PRIVATE int ignis__dry_context(void **context, int device);
IGNIS__PRIVATE int ignis__dry_context_of(void *stream, void **context);
IGNIS__PRIVATE int ignis__dry_event(void **event, unsigned flags);
IGNIS__PRIVATE int ignis__dry_module(void **module, const void *image);
IGNIS__PRIVATE int ignis__dry_function(void **function, void *module, const char *name);
IGNIS__PRIVATE int ignis__dry_exec(void **exec, void *graph, unsigned long long flags);
IGNIS__PRIVATE int ignis__dry_stream_with(void **stream, unsigned flags, int priority);
IGNIS__PRIVATE int ignis__dry_stream(void **stream, unsigned flags);
IGNIS__PRIVATE int ignis__dry_freed(void *memory);
IGNIS__PRIVATE int ignis__dry_capturing(void *stream, int *captured);
IGNIS__PRIVATE int ignis__dry_capture(void *stream, int mode);
IGNIS__PRIVATE int ignis__dry_capture_end(void *stream, void **graph);
IGNIS__PRIVATE int ignis__dry_elapsed(float *ms, void *first, void *last);
IGNIS__PRIVATE int ignis__dry_call(void *stream, void (*fn)(void *), void *user_data);
IGNIS__PRIVATE int ignis__dry_one(int *count);
IGNIS__PRIVATE int ignis__dry_version(int *version);
IGNIS__PRIVATE int ignis__dry_device_get(int *device, int ordinal);
IGNIS__PRIVATE int ignis__dry_name(char *name, int size, int device);
IGNIS__PRIVATE int ignis__dry_bus(char *name, int size, int device);
IGNIS__PRIVATE int ignis__dry_uuid(void *uuid, int device);
IGNIS__PRIVATE int ignis__dry_total(size_t *bytes, int device);
IGNIS__PRIVATE int ignis__dry_attribute(int *value, int attribute, int device);
IGNIS__PRIVATE int ignis__dry_function_get(int *value, int attribute, void *function);
IGNIS__PRIVATE int ignis__dry_resident(int *blocks, void *function, int threads, size_t shared);
IGNIS__PRIVATE int ignis__dry_map(void *map, int type, unsigned rank, void *data, const unsigned long long *sizes,
                                  const unsigned long long *strides, const unsigned *box, const unsigned *steps,
                                  int interleave, int swizzle, int promotion, int fill);
IGNIS__PRIVATE int ignis__dry_pixels(void *map, int type, unsigned rank, void *data, const unsigned long long *sizes,
                                     const unsigned long long *strides, const int *lower, const int *upper,
                                     unsigned channels, unsigned pixels, const unsigned *steps, int interleave,
                                     int swizzle, int promotion, int outside);
IGNIS__PRIVATE int ignis__dry_free_bytes(size_t *available, size_t *total);
IGNIS__PRIVATE int ignis__dry_alloc(ignis__address *address, size_t size);
IGNIS__PRIVATE int ignis__dry_free(ignis__address address);
IGNIS__PRIVATE int ignis__dry_pinned(void **memory, size_t size, unsigned flags);
IGNIS__PRIVATE int ignis__dry_pointer(unsigned count, int *attributes, void **values, ignis__address address);
IGNIS__PRIVATE int ignis__dry_fill(ignis__address to, unsigned char value, size_t size, void *stream);
IGNIS__PRIVATE int ignis__dry_upload(ignis__address to, const void *from, size_t size, void *stream);
IGNIS__PRIVATE int ignis__dry_download(void *to, ignis__address from, size_t size, void *stream);
IGNIS__PRIVATE int ignis__dry_copy(ignis__address to, ignis__address from, size_t size, void *stream);
IGNIS__PRIVATE int ignis__dry_launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                     void *stream, void **params, void **extra);
IGNIS__PRIVATE int ignis__dry_launch_config(const void *config, void *function, void **params, void **extra);

/* dry_cublaslt.c */
#ifndef IGNIS_NO_TENSORS
IGNIS__COLD IGNIS__PRIVATE void ignis__dry_bind_products(void);
#endif

/* dry_bind.c */
IGNIS__COLD IGNIS__PRIVATE void ignis__dry_setup(const ignis_device_info *facts);
