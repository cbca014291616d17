// SPDX-License-Identifier: MIT
/*  test.h - shared by the tests of the simulator: checks, the driver's functions, kernels, and tests in
    processes of their own */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* >>checks */

static const char *streams = ""; /* how streams run */
static char where[64];           /* what runs, for reports */
static int passed, failed, skipped;

#define CHECK(condition) check(condition, #condition, __FILE__, __LINE__)
#define CODE(expected, call) check_code(expected, call, #call, __FILE__, __LINE__)
#define OK(call) CODE(0, call)

static inline void check(int condition, const char *what, const char *file, int line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (condition)
        passed++;
    else
        failed++, printf("%s:%d: %s%s\n", file, line, where, what);
    pthread_mutex_unlock(&lock);
}

static inline void check_code(int expected, int code, const char *what, const char *file, int line)
{
    char text[512];
    snprintf(text, sizeof text, "%s: %d, expected %d", what, code, expected);
    check(code == expected, text, file, line);
}

/* Returns the result of main. */
static inline int report(void)
{
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed != 0;
}

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline int is_sanitized(void)
{
    return dlsym(RTLD_DEFAULT, "__asan_init") || dlsym(RTLD_DEFAULT, "__tsan_init");
}

/* Runs tests in a process of their own, with a mode of streams, as the simulator reads its settings once. */
static inline void run_apart(const char *way, const char *name, void (*run)(void))
{
    int results[2], counts[3] = {0, 1, 0};
    fflush(stdout);
    if (pipe2(results, O_CLOEXEC))
        exit(2);
    pid_t child = fork();
    if (!child) {
        streams = way;
        snprintf(where, sizeof where, "[%s, %s] ", way, name);
        passed = failed = skipped = 0;
        setenv("IGNIS_SIM_STREAMS", way, 1);
        alarm(60);
        run();
        fflush(stdout);
        counts[0] = passed, counts[1] = failed, counts[2] = skipped;
        _exit(write(results[1], counts, sizeof counts) != sizeof counts);
    }
    close(results[1]);
    if (read(results[0], counts, sizeof counts) != sizeof counts)
        printf("[%s, %s] died\n", way, name);
    close(results[0]);
    waitpid(child, NULL, 0);
    passed += counts[0], failed += counts[1], skipped += counts[2];
}

/* >>the driver */

typedef unsigned long long ptr;
typedef void *handle;

typedef struct ipc_handle {
    char bytes[64];
} ipc_handle;

typedef struct location {
    int type, id;
} location;

typedef struct properties {
    int type, types;
    location where;
    void *metadata;
    unsigned char flags[8];
} properties;

typedef struct access {
    location where;
    int flags;
} access_of;

typedef struct external_memory {
    int type;
    union {
        int fd;
        void *handles[2];
    } os;
    unsigned long long size;
    unsigned flags, reserved[16];
} external_memory;

typedef struct external_part {
    unsigned long long offset, size;
    unsigned flags, reserved[16];
} external_part;

typedef struct external_fence {
    int type;
    union {
        int fd;
        void *handles[2];
    } os;
    unsigned flags, reserved[16];
} external_fence;

typedef struct fence_value {
    unsigned long long value, other[2];
    unsigned unused[12], flags, reserved[16];
} fence_value;

typedef struct launch_attribute {
    int id, padding, value, rest[15];
} launch_attribute;

typedef struct launch_config {
    unsigned grid[3], block[3], shared;
    handle stream;
    launch_attribute *attributes;
    unsigned attribute_count;
} launch_config;

/* clang-format off */
#define FUNCTIONS(X) \
    X(cuInit, (unsigned)) X(cuDriverGetVersion, (int *)) X(cuDeviceGet, (int *, int)) X(cuDeviceGetCount, (int *)) \
    X(cuDeviceGetName, (char *, int, int)) X(cuDeviceGetAttribute, (int *, int, int)) \
    X(cuDeviceGetUuid_v2, (char *, int)) X(cuDevicePrimaryCtxRetain, (handle *, int)) \
    X(cuDevicePrimaryCtxRelease_v2, (int)) X(cuDevicePrimaryCtxReset_v2, (int)) \
    X(cuDevicePrimaryCtxGetState, (int, unsigned *, int *)) X(cuCtxSetCurrent, (handle)) \
    X(cuCtxGetCurrent, (handle *)) X(cuCtxPushCurrent_v2, (handle)) X(cuCtxPopCurrent_v2, (handle *)) \
    X(cuCtxGetDevice, (int *)) X(cuCtxSynchronize, (void)) X(cuCtxEnablePeerAccess, (handle, unsigned)) \
    X(cuCtxDisablePeerAccess, (handle)) X(cuMemAlloc_v2, (ptr *, size_t)) X(cuMemFree_v2, (ptr)) \
    X(cuMemGetInfo_v2, (size_t *, size_t *)) X(cuMemGetAddressRange_v2, (ptr *, size_t *, ptr)) \
    X(cuPointerGetAttribute, (void *, int, ptr)) X(cuMemHostAlloc, (void **, size_t, unsigned)) \
    X(cuMemFreeHost, (void *)) X(cuMemHostRegister_v2, (void *, size_t, unsigned)) X(cuMemHostUnregister, (void *)) \
    X(cuMemsetD8Async, (ptr, unsigned char, size_t, handle)) X(cuMemsetD32Async, (ptr, unsigned, size_t, handle)) \
    X(cuMemcpyHtoD_v2, (ptr, const void *, size_t)) X(cuMemcpyDtoH_v2, (void *, ptr, size_t)) \
    X(cuMemcpyHtoDAsync_v2, (ptr, const void *, size_t, handle)) \
    X(cuMemcpyDtoHAsync_v2, (void *, ptr, size_t, handle)) X(cuMemcpyDtoDAsync_v2, (ptr, ptr, size_t, handle)) \
    X(cuMemcpyPeerAsync, (ptr, handle, ptr, handle, size_t, handle)) X(cuStreamCreate, (handle *, unsigned)) \
    X(cuStreamDestroy_v2, (handle)) X(cuStreamQuery, (handle)) X(cuStreamSynchronize, (handle)) \
    X(cuStreamWaitEvent, (handle, handle, unsigned)) X(cuLaunchHostFunc, (handle, void (*)(void *), void *)) \
    X(cuEventCreate, (handle *, unsigned)) X(cuEventRecord, (handle, handle)) X(cuEventQuery, (handle)) \
    X(cuEventSynchronize, (handle)) X(cuEventDestroy_v2, (handle)) X(cuEventElapsedTime, (float *, handle, handle)) \
    X(cuModuleLoadData, (handle *, const void *)) X(cuModuleUnload, (handle)) \
    X(cuModuleGetFunction, (handle *, handle, const char *)) \
    X(cuModuleGetGlobal_v2, (ptr *, size_t *, handle, const char *)) X(cuFuncGetAttribute, (int *, int, handle)) \
    X(cuFuncSetAttribute, (handle, int, int)) X(cuFuncGetParamInfo, (handle, size_t, size_t *, size_t *)) \
    X(cuLaunchKernel, (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, \
                       void **)) \
    X(cuLaunchKernelEx, (const launch_config *, handle, void **, void **)) \
    X(cuGetProcAddress_v2, (const char *, void **, int, uint64_t, int *)) X(cuGetErrorName, (int, const char **)) \
    X(cuStreamBeginCapture_v2, (handle, int)) X(cuStreamEndCapture, (handle, handle *)) \
    X(cuStreamIsCapturing, (handle, int *)) X(cuThreadExchangeStreamCaptureMode, (int *)) \
    X(cuGraphInstantiateWithFlags, (handle *, handle, unsigned long long)) \
    X(cuGraphGetNodes, (handle, handle *, size_t *)) X(cuGraphLaunch, (handle, handle)) \
    X(cuGraphExecDestroy, (handle)) X(cuGraphDestroy, (handle)) \
    X(cuMemGetAllocationGranularity, (size_t *, const properties *, int)) \
    X(cuMemCreate, (ptr *, size_t, const properties *, unsigned long long)) X(cuMemRelease, (ptr)) \
    X(cuMemAddressReserve, (ptr *, size_t, size_t, ptr, unsigned long long)) X(cuMemAddressFree, (ptr, size_t)) \
    X(cuMemMap, (ptr, size_t, size_t, ptr, unsigned long long)) X(cuMemUnmap, (ptr, size_t)) \
    X(cuMemSetAccess, (ptr, size_t, const access_of *, size_t)) \
    X(cuMemGetAccess, (unsigned long long *, const location *, ptr)) \
    X(cuMemExportToShareableHandle, (void *, ptr, int, unsigned long long)) \
    X(cuMemImportFromShareableHandle, (ptr *, void *, int)) \
    X(cuMemGetAllocationPropertiesFromHandle, (properties *, ptr)) X(cuMemRetainAllocationHandle, (ptr *, void *)) \
    X(cuDeviceGetPCIBusId, (char *, int, int)) X(cuDeviceGetByPCIBusId, (int *, const char *)) \
    X(cuDeviceCanAccessPeer, (int *, int, int)) X(cuDeviceGetP2PAttribute, (int *, int, int, int)) \
    X(cuStreamWaitValue32_v2, (handle, ptr, unsigned, unsigned)) \
    X(cuStreamWriteValue32_v2, (handle, ptr, unsigned, unsigned)) \
    X(cuStreamWaitValue64_v2, (handle, ptr, unsigned long long, unsigned)) \
    X(cuStreamWriteValue64_v2, (handle, ptr, unsigned long long, unsigned)) \
    X(cuLaunchCooperativeKernel, (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                                  handle, void **)) \
    X(cuIpcGetMemHandle, (ipc_handle *, ptr)) X(cuIpcOpenMemHandle_v2, (ptr *, ipc_handle, unsigned)) \
    X(cuIpcCloseMemHandle, (ptr)) X(cuIpcGetEventHandle, (ipc_handle *, handle)) \
    X(cuIpcOpenEventHandle, (handle *, ipc_handle)) \
    X(cuTensorMapEncodeTiled, (void *, int, unsigned, ptr, const uint64_t *, const uint64_t *, const unsigned *, \
                               const unsigned *, int, int, int, int)) \
    X(cuTensorMapEncodeIm2col, (void *, int, unsigned, ptr, const uint64_t *, const uint64_t *, const int *, \
                                const int *, unsigned, unsigned, const unsigned *, int, int, int, int)) \
    X(cuImportExternalMemory, (handle *, const external_memory *)) \
    X(cuExternalMemoryGetMappedBuffer, (ptr *, handle, const external_part *)) X(cuDestroyExternalMemory, (handle)) \
    X(cuImportExternalSemaphore, (handle *, const external_fence *)) \
    X(cuSignalExternalSemaphoresAsync, (handle *, const fence_value *, unsigned, handle)) \
    X(cuWaitExternalSemaphoresAsync, (handle *, const fence_value *, unsigned, handle)) \
    X(cuDestroyExternalSemaphore, (handle)) X(cuGraphicsGLRegisterBuffer, (handle *, unsigned, unsigned)) \
    X(cuGraphicsUnregisterResource, (handle)) X(cuGraphicsMapResources, (unsigned, handle *, handle)) \
    X(cuGraphicsUnmapResources, (unsigned, handle *, handle)) \
    X(cuGraphicsResourceGetMappedPointer_v2, (ptr *, size_t *, handle)) X(ignis_sim_timeline, (uint64_t)) \
    X(ignis_sim_fail, (const char *))
/* clang-format on */

#define DECLARE(name, arguments) static int(*name) arguments;
#define LOAD(name, arguments) *(void **)&name = function_in(library, #name);
FUNCTIONS(DECLARE)
static long (*ignis_sim_live)(const char *), (*ignis_sim_calls)(const char *);
static void (*ignis_sim_gl_current)(int), *(*ignis_sim_gl_data)(unsigned), (*ignis_sim_gl_delete)(unsigned);
static unsigned (*ignis_sim_gl_buffer)(size_t);

static const char *folder = "../build/sim"; /* of the libraries */

/* Opens a library. NULL if there is none. */
static inline void *open_library(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static inline void *need_library(const char *name)
{
    void *library = open_library(name);
    if (!library)
        fprintf(stderr, "%s\n", dlerror()), exit(2);
    return library;
}

static inline void *function_in(void *library, const char *name)
{
    void *function = dlsym(library, name);
    if (!function)
        fprintf(stderr, "no %s\n", name), exit(2);
    return function;
}

static inline void load_driver(void)
{
    void *library = need_library("libcuda.so.1");
    FUNCTIONS(LOAD)
    LOAD(ignis_sim_live, )
    LOAD(ignis_sim_calls, )
    LOAD(ignis_sim_gl_current, )
    LOAD(ignis_sim_gl_data, )
    LOAD(ignis_sim_gl_delete, )
    LOAD(ignis_sim_gl_buffer, )
}

static inline handle context_of(int device)
{
    handle context = NULL;
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    return context;
}

static inline ptr new_block(size_t bytes)
{
    ptr block = 0;
    OK(cuMemAlloc_v2(&block, bytes));
    return block;
}

static inline handle new_stream(void)
{
    handle stream = NULL;
    OK(cuStreamCreate(&stream, 1));
    return stream;
}

/* Compiles kernels. Returns a module in memory that the caller frees, or NULL without NVRTC. */
static inline char *compile_kernels(const char *text)
{
    int (*create)(handle *, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(handle, int, const char *const *), (*get_size)(handle, size_t *), (*get)(handle, char *),
        (*get_log)(handle, char *);
    const char *options[] = {"--gpu-architecture=sm_90"};
    void *library = open_library("libnvrtc.so");
    handle program;
    size_t size = 0;
    if (!library)
        return NULL;
    *(void **)&create = function_in(library, "nvrtcCreateProgram");
    *(void **)&compile = function_in(library, "nvrtcCompileProgram");
    *(void **)&get_size = function_in(library, "nvrtcGetCUBINSize");
    *(void **)&get = function_in(library, "nvrtcGetCUBIN");
    *(void **)&get_log = function_in(library, "nvrtcGetProgramLog");
    OK(create(&program, text, "kernels.cu", 0, NULL, NULL));
    if (compile(program, 1, options)) {
        char log[65536] = "";
        get_log(program, log);
        printf("%.4000s\n", log);
        fflush(stdout);
        _exit(1);
    }
    OK(get_size(program, &size));
    char *image = malloc(size);
    OK(get(program, image));
    return image;
}

static inline handle function_of(handle module, const char *name)
{
    handle function = NULL;
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

#endif /* SIM_TEST_H */
