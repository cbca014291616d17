// SPDX-License-Identifier: MIT
/*  driver.c - the simulator's libcuda: the CUDA driver API on the CPU

    A program that loads this library in place of NVIDIA's sees a few "GPUs" whose memory is ordinary memory of the process
    and whose kernels executor.cpp runs on the CPU. The driver's rules are kept where a program can notice them: contexts and
    their reference counts, handles that die, copies checked against live allocations, streams, and events. A fault takes all
    devices of the process until it ends, whichever device it was on: so measured on four H200s with driver 580. Things a real
    GPU hides (a missing wait, one byte written past a block) are made visible.

    Knobs, read by cuInit:

        IGNIS_SIM_DEVICES   how many devices (2)
        IGNIS_SIM_CC        compute capability, "90" or "9.0" (90)
        IGNIS_SIM_MEMORY    bytes of each device, with K, M or G (2G)
        IGNIS_SIM_STREAMS   eager   work runs when it is submitted (the default)
                            lazy    work runs only when something waits for it: finds missing waits, the same way every time
                            thread  every stream has a worker thread
        IGNIS_SIM_DELAY     microseconds that such a worker is late with each operation (0): what goes before its time is found
        IGNIS_SIM_PEER      which devices reach each other's memory: all (the default), 0 for none, or pairs, "0-1,2-3"
        CUDA_VISIBLE_DEVICES  numbers or UUIDs ("GPU-...") of the devices that the program sees, in its order, as for real
        IGNIS_SIM_FAIL      kind:n[,kind:n...]: the n-th call (from 1) of a kind fails; n+ also fails all later ones.
                            A kind is a name of SIM_KINDS below, "any", or the exact name of a function.
        IGNIS_SIM_PATIENCE  milliseconds that a stream waits for the value of a timeline before it is called a mistake (10000)
        IGNIS_SIM_LUID      1: devices have a LUID, which real ones have on Windows alone
        IGNIS_SIM_LEAKS     1: say at exit what is still alive
        IGNIS_SIM_STALE     1: a stream or event that is gone ends the program when it is used, as it does with a real driver

    Inside: one lock guards everything, and is given up while work runs. A stream is a queue of operations; an operation
    waits for earlier ones of other streams by pointing at them. The three stream modes differ only in who runs the queue.
*/
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SIM_API __attribute__((visibility("default")))

/* >>types: what the API needs of cuda.h. `make prototypes` compiles this file with the real cuda.h in its place. */

#ifndef __cuda_cuda_h__
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef uint64_t cuuint64_t;
typedef uint32_t cuuint32_t;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef int CUmemAllocationHandleType, CUmemAllocationGranularity_flags;
typedef int CUdevice_attribute, CUpointer_attribute, CUfunction_attribute, CUjit_option, CUdevice_P2PAttribute;
typedef int CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill;
typedef struct CUtensorMap {
    cuuint64_t opaque[16];
} CUtensorMap;
typedef int CUstreamCaptureStatus, CUstreamCaptureMode, CUdriverProcAddressQueryResult;
typedef void (*CUhostFn)(void *);
typedef struct CUuuid {
    char bytes[16];
} CUuuid;
typedef struct CUDA_MEMCPY2D {
    size_t srcXInBytes, srcY;
    unsigned srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    void *srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    unsigned dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    void *dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;
typedef union CUlaunchAttributeValue {
    char pad[64];
    int programmaticStreamSerializationAllowed;
    int cooperative;
} CUlaunchAttributeValue;
typedef struct CUlaunchAttribute {
    int id;
    char pad[4];
    CUlaunchAttributeValue value;
} CUlaunchAttribute;
typedef struct CUlaunchConfig {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;
typedef struct CUipcMemHandle {
    char reserved[64];
} CUipcMemHandle, CUipcEventHandle;
typedef struct CUmemLocation {
    int type, id;
} CUmemLocation;
typedef struct CUmemAllocationProp {
    int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;
typedef struct CUmemAccessDesc {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUextSemaphore_st *CUexternalSemaphore;
typedef struct CUgraphicsResource_st *CUgraphicsResource;
typedef union sim_os_handle {
    int fd;
    struct {
        void *handle;
        const void *name;
    } win32;
} sim_os_handle;
typedef struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
    int type;
    sim_os_handle handle;
    unsigned long long size;
    unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
    unsigned long long offset, size;
    unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
typedef struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
    int type;
    sim_os_handle handle;
    unsigned flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_SEMAPHORE_PARAMS {
    struct {
        struct {
            unsigned long long value;
        } fence;
        unsigned long long other[2];
        unsigned reserved[12];
    } params;
    unsigned flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
#endif

/* clang-format off */
/* The result codes, their names and sentences. */
#define SIM_CODES(X) \
    X(0, SUCCESS, "no error") \
    X(1, ERROR_INVALID_VALUE, "invalid argument") \
    X(2, ERROR_OUT_OF_MEMORY, "out of memory") \
    X(3, ERROR_NOT_INITIALIZED, "initialization error") \
    X(4, ERROR_DEINITIALIZED, "driver shutting down") \
    X(100, ERROR_NO_DEVICE, "no CUDA-capable device is detected") \
    X(101, ERROR_INVALID_DEVICE, "invalid device ordinal") \
    X(200, ERROR_INVALID_IMAGE, "device kernel image is invalid") \
    X(201, ERROR_INVALID_CONTEXT, "invalid device context") \
    X(205, ERROR_MAP_FAILED, "mapping of buffer object failed") \
    X(208, ERROR_ALREADY_MAPPED, "resource already mapped") \
    X(209, ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device") \
    X(211, ERROR_NOT_MAPPED, "resource not mapped") \
    X(217, ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices") \
    X(219, ERROR_INVALID_GRAPHICS_CONTEXT, "invalid OpenGL or DirectX context") \
    X(304, ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS") \
    X(400, ERROR_INVALID_HANDLE, "invalid resource handle") \
    X(401, ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state") \
    X(500, ERROR_NOT_FOUND, "named symbol not found") \
    X(600, ERROR_NOT_READY, "device not ready") \
    X(700, ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered") \
    X(701, ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch") \
    X(702, ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated") \
    X(704, ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled") \
    X(705, ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled") \
    X(708, ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process") \
    X(709, ERROR_CONTEXT_IS_DESTROYED, "context is destroyed") \
    X(710, ERROR_ASSERT, "device-side assert triggered") \
    X(712, ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped") \
    X(713, ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region") \
    X(715, ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered") \
    X(716, ERROR_MISALIGNED_ADDRESS, "misaligned address") \
    X(718, ERROR_INVALID_PC, "invalid program counter") \
    X(719, ERROR_LAUNCH_FAILED, "unspecified launch failure") \
    X(720, ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch") \
    X(800, ERROR_NOT_PERMITTED, "operation not permitted") \
    X(801, ERROR_NOT_SUPPORTED, "operation not supported") \
    X(900, ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing") \
    X(901, ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture") \
    X(902, ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences") \
    X(903, ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began") \
    X(904, ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work") \
    X(905, ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream") \
    X(906, ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream") \
    X(907, ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream") \
    X(908, ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread") \
    X(999, ERROR_UNKNOWN, "unknown error")

enum {
#define X(number, name, sentence) name = number,
    SIM_CODES(X)
#undef X
    NO_CODE = -1
};

/* What calls are counted as, and the code of a call that is made to fail. "release" calls are spared by "any": a program
   that tidies up after a failure would otherwise leak through no fault of its own. */
#define SIM_KINDS(X) \
    X(init, ERROR_UNKNOWN) X(query, ERROR_UNKNOWN) X(context, ERROR_OUT_OF_MEMORY) \
    X(malloc, ERROR_OUT_OF_MEMORY) X(hostalloc, ERROR_OUT_OF_MEMORY) X(vmm, ERROR_OUT_OF_MEMORY) X(ipc, ERROR_MAP_FAILED) X(external, ERROR_UNKNOWN) X(copy, ERROR_UNKNOWN) X(memset, ERROR_UNKNOWN) \
    X(launch, ERROR_LAUNCH_OUT_OF_RESOURCES) X(module, ERROR_OUT_OF_MEMORY) X(stream, ERROR_OUT_OF_MEMORY) \
    X(event, ERROR_OUT_OF_MEMORY) X(sync, ERROR_UNKNOWN) X(graph, ERROR_OUT_OF_MEMORY) X(release, ERROR_UNKNOWN)

enum {
#define X(name, code) KIND_##name,
    SIM_KINDS(X)
#undef X
    KIND_COUNT, KIND_any = KIND_COUNT
};

/* What has to hold before a function does anything. */
enum {
    NEEDS_NOTHING,
    NEEDS_INIT,     /* cuInit was called, in this process */
    NEEDS_HEALTHY,  /* the thread has a current context that is alive, and nothing in the process has faulted */
    NEEDS_MASK = 15,
    UNSAFE = 16     /* not while a stream captures, see capture_forbids */
};

/* Every exported function that counts: name, kind, needs. The single list behind fault injection, call counts and
   cuGetProcAddress. */
#define SIM_FUNCTIONS(X) \
    X(cuInit, init, NEEDS_NOTHING) \
    X(cuDeviceGet, query, NEEDS_INIT) \
    X(cuDeviceGetCount, query, NEEDS_INIT) \
    X(cuDeviceGetName, query, NEEDS_INIT) \
    X(cuDeviceGetAttribute, query, NEEDS_INIT) \
    X(cuDeviceTotalMem_v2, query, NEEDS_INIT) \
    X(cuDeviceGetUuid, query, NEEDS_INIT) \
    X(cuDeviceGetUuid_v2, query, NEEDS_INIT) \
    X(cuDeviceGetLuid, query, NEEDS_INIT) \
    X(cuDeviceGetPCIBusId, query, NEEDS_INIT) \
    X(cuDeviceGetByPCIBusId, query, NEEDS_INIT) \
    X(cuDeviceCanAccessPeer, query, NEEDS_INIT) \
    X(cuDeviceGetP2PAttribute, query, NEEDS_INIT) \
    X(cuDevicePrimaryCtxRetain, context, NEEDS_INIT) \
    X(cuDevicePrimaryCtxRelease_v2, release, NEEDS_INIT) \
    X(cuDevicePrimaryCtxReset_v2, release, NEEDS_INIT) \
    X(cuDevicePrimaryCtxSetFlags_v2, query, NEEDS_INIT) \
    X(cuDevicePrimaryCtxGetState, query, NEEDS_INIT) \
    X(cuCtxPushCurrent_v2, context, NEEDS_INIT) \
    X(cuCtxPopCurrent_v2, release, NEEDS_INIT) \
    X(cuCtxSetCurrent, context, NEEDS_INIT) \
    X(cuCtxGetCurrent, query, NEEDS_INIT) \
    X(cuCtxGetDevice, query, NEEDS_INIT) \
    X(cuCtxGetStreamPriorityRange, query, NEEDS_HEALTHY) \
    X(cuCtxSynchronize, sync, NEEDS_HEALTHY) \
    X(cuCtxEnablePeerAccess, context, NEEDS_HEALTHY) \
    X(cuCtxDisablePeerAccess, release, NEEDS_HEALTHY) \
    X(cuMemAlloc_v2, malloc, NEEDS_HEALTHY | UNSAFE) \
    X(cuMemFree_v2, release, NEEDS_HEALTHY | UNSAFE) \
    X(cuMemGetInfo_v2, query, NEEDS_HEALTHY) \
    X(cuMemGetAddressRange_v2, query, NEEDS_HEALTHY) \
    X(cuPointerGetAttribute, query, NEEDS_INIT) \
    X(cuPointerGetAttributes, query, NEEDS_INIT) \
    X(cuMemHostAlloc, hostalloc, NEEDS_HEALTHY | UNSAFE) \
    X(cuMemAllocHost_v2, hostalloc, NEEDS_HEALTHY | UNSAFE) \
    X(cuMemFreeHost, release, NEEDS_HEALTHY | UNSAFE) \
    X(cuMemHostRegister_v2, hostalloc, NEEDS_HEALTHY | UNSAFE) \
    X(cuMemHostUnregister, release, NEEDS_HEALTHY | UNSAFE) \
    X(cuMemHostGetDevicePointer_v2, query, NEEDS_HEALTHY) \
    X(cuMemHostGetFlags, query, NEEDS_HEALTHY) \
    X(cuMemGetAllocationGranularity, query, NEEDS_INIT) \
    X(cuMemCreate, vmm, NEEDS_INIT) \
    X(cuMemRelease, release, NEEDS_INIT) \
    X(cuMemRetainAllocationHandle, vmm, NEEDS_INIT) \
    X(cuMemGetAllocationPropertiesFromHandle, query, NEEDS_INIT) \
    X(cuMemExportToShareableHandle, vmm, NEEDS_INIT) \
    X(cuMemImportFromShareableHandle, vmm, NEEDS_INIT) \
    X(cuMemAddressReserve, vmm, NEEDS_INIT) \
    X(cuMemAddressFree, release, NEEDS_INIT) \
    X(cuMemMap, vmm, NEEDS_INIT) \
    X(cuMemUnmap, release, NEEDS_INIT) \
    X(cuMemSetAccess, vmm, NEEDS_INIT) \
    X(cuMemGetAccess, query, NEEDS_INIT) \
    X(cuIpcGetMemHandle, ipc, NEEDS_HEALTHY) \
    X(cuIpcOpenMemHandle_v2, ipc, NEEDS_HEALTHY) \
    X(cuIpcCloseMemHandle, release, NEEDS_HEALTHY) \
    X(cuIpcGetEventHandle, ipc, NEEDS_HEALTHY) \
    X(cuIpcOpenEventHandle, ipc, NEEDS_HEALTHY) \
    X(cuImportExternalMemory, external, NEEDS_HEALTHY) \
    X(cuExternalMemoryGetMappedBuffer, external, NEEDS_HEALTHY) \
    X(cuDestroyExternalMemory, release, NEEDS_HEALTHY) \
    X(cuImportExternalSemaphore, external, NEEDS_HEALTHY) \
    X(cuSignalExternalSemaphoresAsync, external, NEEDS_HEALTHY) \
    X(cuWaitExternalSemaphoresAsync, external, NEEDS_HEALTHY) \
    X(cuDestroyExternalSemaphore, release, NEEDS_HEALTHY) \
    X(cuGraphicsGLRegisterBuffer, external, NEEDS_HEALTHY) \
    X(cuGraphicsUnregisterResource, release, NEEDS_HEALTHY) \
    X(cuGraphicsMapResources, external, NEEDS_HEALTHY) \
    X(cuGraphicsUnmapResources, release, NEEDS_HEALTHY) \
    X(cuGraphicsResourceGetMappedPointer_v2, query, NEEDS_HEALTHY) \
    X(cuMemsetD8Async, memset, NEEDS_HEALTHY) \
    X(cuMemsetD16Async, memset, NEEDS_HEALTHY) \
    X(cuMemsetD32Async, memset, NEEDS_HEALTHY) \
    X(cuMemcpyHtoDAsync_v2, copy, NEEDS_HEALTHY) \
    X(cuMemcpyDtoHAsync_v2, copy, NEEDS_HEALTHY) \
    X(cuMemcpyDtoDAsync_v2, copy, NEEDS_HEALTHY) \
    X(cuMemcpyAsync, copy, NEEDS_HEALTHY) \
    X(cuMemcpyPeerAsync, copy, NEEDS_HEALTHY) \
    X(cuMemcpy2DAsync_v2, copy, NEEDS_HEALTHY) \
    X(cuMemcpyHtoD_v2, copy, NEEDS_HEALTHY) \
    X(cuMemcpyDtoH_v2, copy, NEEDS_HEALTHY) \
    X(cuMemcpyDtoD_v2, copy, NEEDS_HEALTHY) \
    X(cuStreamCreate, stream, NEEDS_HEALTHY) \
    X(cuStreamCreateWithPriority, stream, NEEDS_HEALTHY) \
    X(cuStreamDestroy_v2, release, NEEDS_HEALTHY) \
    X(cuStreamQuery, query, NEEDS_HEALTHY) \
    X(cuStreamSynchronize, sync, NEEDS_HEALTHY) \
    X(cuStreamWaitEvent, sync, NEEDS_HEALTHY) \
    X(cuStreamGetCtx, query, NEEDS_HEALTHY) \
    X(cuStreamGetId, query, NEEDS_HEALTHY) \
    X(cuStreamGetPriority, query, NEEDS_HEALTHY) \
    X(cuStreamGetFlags, query, NEEDS_HEALTHY) \
    X(cuLaunchHostFunc, launch, NEEDS_HEALTHY) \
    X(cuStreamWriteValue32_v2, launch, NEEDS_HEALTHY) \
    X(cuStreamWriteValue64_v2, launch, NEEDS_HEALTHY) \
    X(cuStreamWaitValue32_v2, launch, NEEDS_HEALTHY) \
    X(cuStreamWaitValue64_v2, launch, NEEDS_HEALTHY) \
    X(cuEventCreate, event, NEEDS_HEALTHY) \
    X(cuEventRecord, event, NEEDS_HEALTHY) \
    X(cuEventRecordWithFlags, event, NEEDS_HEALTHY) \
    X(cuEventQuery, query, NEEDS_HEALTHY) \
    X(cuEventSynchronize, sync, NEEDS_HEALTHY) \
    X(cuEventDestroy_v2, release, NEEDS_HEALTHY) \
    X(cuEventElapsedTime, query, NEEDS_HEALTHY) \
    X(cuEventElapsedTime_v2, query, NEEDS_HEALTHY) \
    X(cuModuleLoadData, module, NEEDS_HEALTHY) \
    X(cuModuleLoadDataEx, module, NEEDS_HEALTHY) \
    X(cuModuleUnload, release, NEEDS_HEALTHY) \
    X(cuModuleGetFunction, module, NEEDS_HEALTHY) \
    X(cuModuleGetGlobal_v2, module, NEEDS_HEALTHY) \
    X(cuFuncGetAttribute, query, NEEDS_HEALTHY) \
    X(cuFuncSetAttribute, module, NEEDS_HEALTHY) \
    X(cuFuncGetParamInfo, query, NEEDS_HEALTHY) \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, query, NEEDS_HEALTHY) \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, query, NEEDS_HEALTHY) \
    X(cuStreamBeginCapture_v2, graph, NEEDS_HEALTHY) \
    X(cuStreamEndCapture, graph, NEEDS_HEALTHY) \
    X(cuStreamIsCapturing, query, NEEDS_HEALTHY) \
    X(cuStreamGetCaptureInfo_v2, query, NEEDS_HEALTHY) \
    X(cuThreadExchangeStreamCaptureMode, query, NEEDS_INIT) \
    X(cuGraphCreate, graph, NEEDS_INIT) \
    X(cuGraphGetNodes, query, NEEDS_INIT) \
    X(cuGraphDestroy, release, NEEDS_INIT) \
    X(cuGraphInstantiateWithFlags, graph, NEEDS_HEALTHY | UNSAFE) \
    X(cuGraphUpload, graph, NEEDS_HEALTHY) \
    X(cuGraphLaunch, launch, NEEDS_HEALTHY) \
    X(cuGraphExecDestroy, release, NEEDS_INIT) \
    X(cuTensorMapEncodeTiled, query, NEEDS_NOTHING) \
    X(cuTensorMapEncodeIm2col, query, NEEDS_NOTHING) \
    X(cuLaunchKernel, launch, NEEDS_HEALTHY) \
    X(cuLaunchKernelEx, launch, NEEDS_HEALTHY) \
    X(cuLaunchCooperativeKernel, launch, NEEDS_HEALTHY)

enum {
#define X(name, kind, needs) F_##name,
    SIM_FUNCTIONS(X)
#undef X
    FUNCTION_COUNT
};

static const struct { const char *name; int kind, needs; } functions[FUNCTION_COUNT] = {
#define X(name, kind, needs) {#name, KIND_##kind, needs},
    SIM_FUNCTIONS(X)
#undef X
};

static const struct { const char *name; int code; } kinds[KIND_COUNT + 1] = {
#define X(name, code) {#name, code},
    SIM_KINDS(X)
#undef X
    {"any", ERROR_UNKNOWN}
};
/* clang-format on */

/* >>state */

enum {
    MAX_DEVICES = 16,
    MAX_DEPTH = 64,          /* contexts pushed by one thread */
    MAX_RULES = 32,          /* of one IGNIS_SIM_FAIL */
    REMEMBERED_BLOCKS = 256, /* freed blocks that a message can still name */
    LAZY_POLLS = 8,          /* lazy streams: queries answered "not ready" before one gives in and runs the work */
    CANARY = 0xC5,
    MAX_THREADS = 1024,
    SHARED_DEFAULT = 48 * 1024,
    SHARED_OPTIN = 227 * 1024,
    SHARED_RESERVED = 1024,
    SHARED_PER_SM = 228 * 1024,
    THREADS_PER_SM = 2048,
    BLOCKS_PER_SM = 32,
    SM_COUNT = 132
};

static const size_t page = 4096;
static const size_t granularity = (size_t)2 << 20; /* of physical and reserved memory */
static const size_t fill_limit = (size_t)8 << 20;  /* a larger block is filled only so far, to keep it virtual */

typedef enum { STREAMS_EAGER, STREAMS_LAZY, STREAMS_THREAD, STREAMS_COUNT } sim_streams;
static const char *const stream_modes[STREAMS_COUNT] = {"eager", "lazy", "thread"};

typedef struct sim_context sim_context;
typedef struct sim_stream sim_stream;
typedef struct sim_op sim_op;
typedef struct sim_capture sim_capture;
typedef struct sim_plan sim_plan;

typedef enum {
    OBJECT_FREE,
    OBJECT_CONTEXT,
    OBJECT_STREAM,
    OBJECT_EVENT,
    OBJECT_MODULE,
    OBJECT_FUNCTION,
    OBJECT_GRAPH,
    OBJECT_GRAPH_EXEC,
    OBJECT_PHYSICAL,
    OBJECT_EXTERNAL,
    OBJECT_TIMELINE,
    OBJECT_RESOURCE
} sim_object_kind;

/* Handles are not pointers but a table slot and its generation, so a stale or invented one is always recognised. */
typedef struct sim_slot {
    sim_object_kind kind;
    uint32_t generation;
    uint32_t next_free;
    void *object;
    sim_context *context;
} sim_slot;

/* A stretch of address space that blocks are cut from, never twice the same while it lasts. */
typedef struct sim_arena {
    uintptr_t base;
    size_t size, cursor;
    int file;
    int reused; /* addresses had to be used again */
} sim_arena;

/* Memory of cuMemCreate: a memory file, which lives as long as any process has it open or mapped. */
typedef struct sim_physical {
    int handles;  /* releases that are due */
    int mappings; /* ranges that show it */
    void *handle; /* NULL: released, but mapped */
    int file;
    size_t size;
    int device;           /* here, or -1 for one that this process does not see */
    int types;            /* of handles that were asked for */
    sim_context *charged; /* whose memory it counts as; NULL for an import */
    unsigned long long id;
} sim_physical;

/* Addresses of cuMemAddressReserve. */
typedef struct sim_reservation {
    uintptr_t start;
    size_t size;
    struct sim_reservation *next;
} sim_reservation;

/* What an IPC handle holds, and what stands in the file that it names: there for as long as the thing itself. */
typedef struct sim_ticket {
    char magic[8];
    uint64_t process, id; /* random; the exporter's count */
    uint64_t offset, size;
    int32_t pid, file;
    uint32_t device, reserved; /* the device's number on the machine */
    uint64_t check;
} sim_ticket;

/* A block of another process. */
typedef struct sim_import {
    sim_ticket ticket;
    int opened; /* closes that are due */
    size_t span;
} sim_import;

typedef enum {
    RANGE_DEVICE,
    RANGE_PINNED,
    RANGE_REGISTERED,
    RANGE_MAPPED,
    RANGE_IMPORTED,
    RANGE_EXTERNAL,
    RANGE_GL,
    RANGE_VARIABLE
} sim_range_kind;

/* One live allocation, registered host memory, physical memory mapped to reserved addresses, or a module's variable that was asked for. */
typedef struct sim_range {
    uintptr_t start;
    size_t size; /* bytes asked for */
    size_t span; /* bytes of address space, the gap behind included; 0: not from an arena */
    sim_range_kind kind;
    sim_context *context;
    sim_arena *arena;
    unsigned long long id;
    sim_physical *physical;            /* mapped ranges: what they show, and which device may do what */
    unsigned char access[MAX_DEVICES]; /* ACCESS_... bits */
    unsigned flags;                    /* host memory: what it was asked for with */
    int exported;                      /* its ticket stands in the gap behind it */
    sim_import *import;
    struct sim_external *external; /* of which it is a mapping */
    const void *module;            /* of a variable */
} sim_range;

struct sim_context {
    int device; /* as the program counts them */
    int number; /* as the machine does: the same in every process */
    CUcontext handle;
    unsigned flags;
    int references;
    int active;      /* between the first retain and the last release or a reset */
    unsigned peers;  /* bit set of devices whose access was enabled */
    size_t used;     /* bytes of device memory */
    size_t created;  /* bytes of it by cuMemCreate, which no context owns */
    size_t resident; /* blocks that wait for others, and keep their processor meanwhile */
    sim_arena arena;
    sim_stream *streams; /* all, those destroyed with work left included */
    sim_stream *null_stream;
};

typedef struct sim_function {
    CUfunction handle;
    struct sim_module_object *module;
    const sim_kernel *kernel;
    size_t max_dynamic; /* dynamic shared memory it may ask for */
    struct sim_function *next;
} sim_function;

/* Outlives its handle while a graph has kernels of it, so that launching such a graph is an error and not a crash. */
typedef struct sim_module_object {
    int references, unloaded;
    CUmodule handle;
    sim_context *context;
    sim_module *module;
    sim_function *functions;
} sim_module_object;

typedef enum {
    WORK_NOTHING,
    WORK_COPY,
    WORK_FILL,
    WORK_KERNEL,
    WORK_CALL,
    WORK_GRAPH,
    WORK_SIGNAL,
    WORK_AWAIT,
    WORK_WRITE,
    WORK_WAIT,
    WORK_RAISE,
    WORK_REACH
} sim_work_kind;

/* A page that processes share: how often an event was recorded, and how many of the records are done. */
typedef struct sim_board {
    sim_ticket ticket;
    _Atomic uint32_t recorded, done; /* the second is a futex */
    _Atomic int32_t recorder;        /* process of the last record */
} sim_board;

/* An interprocess event's page. Outlives the event while work refers to it. */
typedef struct sim_signal {
    int references, file;
    sim_board *board;
} sim_signal;

/* Memory of a graphics API: a file, as the exporter has it. */
typedef struct sim_external {
    CUexternalMemory handle;
    int file, mappings;
    size_t size;
    off_t offset; /* in the file */
} sim_external;

/* What stands in the file of a timeline semaphore: whoever has it open maps it, and raises the value by an atomic store. */
typedef struct sim_timeline_page {
    char magic[16];
    _Atomic uint64_t value;
} sim_timeline_page;

/* A timeline that was imported. Work refers to it. */
typedef struct sim_timeline {
    CUexternalSemaphore handle;
    int references, pending; /* operations that refer to it; that are not done */
    int file;
    sim_timeline_page *page;
    sim_context *context;
} sim_timeline;

/* A buffer of the OpenGL that is played here; and its registration. */
typedef struct sim_gl_buffer {
    unsigned name;
    int file;
    size_t size;
    void *data; /* as OpenGL sees it */
    struct sim_resource *resource;
    struct sim_gl_buffer *next;
} sim_gl_buffer;

typedef struct sim_resource {
    CUgraphicsResource handle;
    sim_gl_buffer *buffer; /* NULL: deleted meanwhile */
    sim_range *range;      /* while mapped */
    sim_context *context;
} sim_resource;

typedef enum { SIDE_ANY, SIDE_HOST, SIDE_DEVICE } sim_side;

enum { EVERY_DEVICE = -1 }; /* a copy between devices, each of which sees to its own end */
enum { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_BOTH = 3 };

/* `height` rows of `width` bytes. */
typedef struct sim_copy {
    void *dst;
    const void *src;
    size_t dst_pitch, src_pitch, width, height;
    sim_side dst_side, src_side;
    int device; /* that does it, or EVERY_DEVICE */
} sim_copy;

typedef struct sim_fill {
    void *dst;
    size_t count;
    unsigned value, size; /* `size` low bytes of `value`, `count` times */
    int device;
} sim_fill;

/* A value to write to memory, or to wait for there. */
typedef struct sim_word {
    void *address;
    uint64_t value;
    unsigned size, condition;
    int device;
} sim_word;

/* What an operation does. `storage` is its own copy of arguments or source bytes. */
typedef struct sim_work {
    sim_work_kind kind;
    void *storage;
    sim_copy copy;
    sim_fill fill;
    const sim_kernel *kernel;
    sim_module_object *module; /* of the kernel */
    sim_launch launch;
    CUhostFn call;
    void *call_data;
    sim_plan *plan;
    sim_signal *signal; /* to set, or to wait for, to `sequence` */
    uint32_t sequence;
    sim_word word;
    sim_timeline *timeline; /* to set, or to wait for, to `value` */
    uint64_t value;
} sim_work;

/* Nodes of a graph, by number. */
typedef struct sim_nodes {
    int *numbers, count;
} sim_nodes;

/* To be called when nothing needs a graph's work any more. */
typedef struct sim_goodbye {
    void (*call)(void *);
    void *data;
    struct sim_goodbye *next;
} sim_goodbye;

/* What a graph does: work in the order of its capture, which is one that honours all dependencies. Never changed once the
   capture ended, so graphs, executable graphs and launches in flight share it. */
struct sim_plan {
    int references, count, room;
    struct sim_goodbye *goodbyes;
    struct {
        sim_work work;
        sim_nodes after;
    } * nodes;
};

/* Streams being captured into one graph. Lives as long as a stream or an event points at it. */
struct sim_capture {
    int references;
    unsigned long long id;
    sim_stream *origin; /* where it began and has to end; NULL once it ended */
    int mode, invalid;
    pthread_t thread;
    sim_plan *plan;
};

/* Work in a stream. Alive while queued and while an event or another operation points at it. */
struct sim_op {
    int references, done, polls;
    int spins; /* may wait for other devices or processes while it runs, or they for it: never run by a thread of the program */
    unsigned long long number; /* rises along the queue */
    int64_t time;              /* nanoseconds, when it was done */
    sim_stream *stream;        /* valid until done */
    sim_op *next;
    sim_op **waits; /* of other streams, to be done first */
    int wait_count;
    sim_work work;
};

struct sim_stream {
    CUstream handle;
    sim_context *context;
    sim_stream *next;
    unsigned flags;
    int priority;
    unsigned long long id;
    unsigned long long thread; /* whose per-thread stream this is, 0: nobody's */
    int busy;                  /* some thread is running the head */
    int dead;                  /* destroyed; goes when its queue is empty */
    int worker;                /* has a thread */
    unsigned long long driven; /* the worker is to run operations up to this number */
    sim_op *head, *tail;
    sim_capture *capture; /* being captured into */
    sim_nodes last;       /* nodes that the next one comes after */
};

typedef struct sim_event {
    CUevent handle;
    sim_context *context;
    unsigned flags;
    sim_op *op;           /* the last record, or NULL */
    sim_signal *signal;   /* interprocess events */
    uint32_t sequence;    /* of the last record of this process */
    sim_capture *capture; /* the last record was captured; `last` are the nodes it comes after */
    sim_nodes last;
} sim_event;

typedef struct sim_rule {
    int kind, function;
    long n, seen;
    int onwards;
} sim_rule;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* some operation was submitted or done, or a stream destroyed */
    atomic_int forked;    /* we are the child of a process that may have used the simulator */
    int ready;
    int error; /* of the fault that ended all work of the process, or 0 */
    int device_count, cc, streams, delay, patience;
    sim_gl_buffer *gl_buffers;
    unsigned gl_names;
    size_t memory;
    unsigned long long next_id;
    sim_context contexts[MAX_DEVICES];
    sim_arena host_arena; /* pinned memory */
    sim_range **ranges;   /* sorted by address */
    size_t range_count, range_room;
    sim_reservation *reservations;
    uint64_t process;            /* a random number that names this process in tickets */
    unsigned reach[MAX_DEVICES]; /* by machine numbers: bit set of whose memory it can reach */
    long spinning;               /* operations that spin and are not done */
    long physicals;              /* those with a handle or a mapping */
    long imports;                /* of those, the ones from a file descriptor */
    struct {
        uintptr_t start;
        size_t size;
    } freed[REMEMBERED_BLOCKS];
    unsigned freed_count;
    sim_slot *slots;
    uint32_t slot_count, slot_room, slot_free;
    long calls[FUNCTION_COUNT];
    sim_rule rules[MAX_RULES];
    int rule_count;
    void (*poison)(const volatile void *, size_t), (*unpoison)(const volatile void *, size_t);
} sim = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static _Thread_local struct {
    sim_context *stack[MAX_DEPTH];
    int depth;
    int in_callback;           /* inside a host function, where the driver must not be called */
    int capture_mode;          /* which captures forbid this thread's unsafe calls */
    int gl;                    /* has an OpenGL context, see ignis_sim_gl_current */
    unsigned long long number; /* 0: it has used no per-thread stream */
} thread;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "ignis simulator: %s\n", line);
}

static const char *code_name(int code)
{
    switch (code) {
#define X(number, name, sentence) \
    case number: return "CUDA_" #name;
        SIM_CODES(X)
#undef X
    default: return NULL;
    }
}

static const char *code_sentence(int code)
{
    switch (code) {
#define X(number, name, sentence) \
    case number: return sentence;
        SIM_CODES(X)
#undef X
    default: return NULL;
    }
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

/* >>faults: calls that are made to fail */

static int find_name(const char *name, size_t length, int *kind, int *function)
{
    *kind = *function = -1;
    for (int i = 0; i <= KIND_COUNT; i++)
        if (strlen(kinds[i].name) == length && !memcmp(kinds[i].name, name, length))
            *kind = i;
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (strlen(functions[i].name) == length && !memcmp(functions[i].name, name, length))
            *function = i;
    return *kind >= 0 || *function >= 0;
}

static int read_rule(const char **text, sim_rule *rule)
{
    const char *colon = strchr(*text, ':');
    if (!colon || !find_name(*text, (size_t)(colon - *text), &rule->kind, &rule->function))
        return 0;
    char *end;
    rule->n = strtol(colon + 1, &end, 10);
    rule->seen = 0;
    rule->onwards = *end == '+';
    end += rule->onwards;
    if (rule->n < 1 || (*end && *end != ','))
        return 0;
    *text = *end ? end + 1 : end;
    return 1;
}

static int set_rules(const char *spec)
{
    sim_rule rules[MAX_RULES];
    int count = 0;
    while (spec && *spec)
        if (count == MAX_RULES || !read_rule(&spec, &rules[count++]))
            return 0;
    memcpy(sim.rules, rules, sizeof rules[0] * (size_t)count);
    sim.rule_count = count;
    return 1;
}

static int rule_matches(const sim_rule *rule, int function)
{
    if (rule->function >= 0)
        return rule->function == function;
    return rule->kind == functions[function].kind || (rule->kind == KIND_any && functions[function].kind != KIND_release);
}

/* Count a call; the code it is to fail with, or 0. */
static int count_call(int function)
{
    int code = SUCCESS;
    sim.calls[function]++;
    for (int i = 0; i < sim.rule_count; i++) {
        sim_rule *rule = &sim.rules[i];
        if (!rule_matches(rule, function))
            continue;
        rule->seen++;
        if (rule->seen == rule->n || (rule->onwards && rule->seen > rule->n))
            code = kinds[functions[function].kind].code;
    }
    return code;
}

/* >>entry: what every function does first and last */

static int capture_forbids(void);

static sim_context *current(void) { return thread.depth ? thread.stack[thread.depth - 1] : NULL; }

static int check_needs(int needs)
{
    sim_context *context = current();
    if (needs == NEEDS_NOTHING)
        return SUCCESS;
    if (!sim.ready)
        return ERROR_NOT_INITIALIZED;
    if (thread.in_callback)
        return ERROR_NOT_PERMITTED;
    if (needs == NEEDS_INIT)
        return SUCCESS;
    if (!context)
        return ERROR_INVALID_CONTEXT;
    return context->active ? sim.error : ERROR_CONTEXT_IS_DESTROYED;
}

/* Takes the lock when it succeeds. */
static int begin(int function)
{
    if (atomic_load(&sim.forked))
        return ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&sim.lock);
    int code = count_call(function);
    if (!code)
        code = check_needs(functions[function].needs & NEEDS_MASK);
    if (!code && functions[function].needs & UNSAFE)
        code = capture_forbids();
    if (code)
        pthread_mutex_unlock(&sim.lock);
    return code;
}

static CUresult leave(int code)
{
    pthread_mutex_unlock(&sim.lock);
    return (CUresult)code;
}

#define BEGIN(name)                  \
    do {                             \
        int code_ = begin(F_##name); \
        if (code_)                   \
            return (CUresult)code_;  \
    } while (0)
#define REQUIRE(condition, code) \
    do {                         \
        if (!(condition))        \
            return leave(code);  \
    } while (0)

/* >>handles */

enum { SLOT_BITS = 24 };
static const uint64_t handle_mark = (uint64_t)1 << 62; /* no valid address: a program that looks inside crashes at once */

static uint32_t slot_take(void)
{
    if (sim.slot_free) {
        uint32_t slot = sim.slot_free;
        sim.slot_free = sim.slots[slot].next_free;
        return slot;
    }
    if (sim.slot_count >= sim.slot_room) {
        uint32_t room = sim.slot_room ? sim.slot_room * 2 : 256;
        sim_slot *slots = room < (1u << SLOT_BITS) ? realloc(sim.slots, room * sizeof *slots) : NULL;
        if (!slots)
            return 0;
        sim.slots = slots;
        sim.slot_room = room;
    }
    if (!sim.slot_count)
        memset(&sim.slots[sim.slot_count++], 0, sizeof(sim_slot)); /* slot 0 stays empty */
    memset(&sim.slots[sim.slot_count], 0, sizeof(sim_slot));
    return sim.slot_count++;
}

static void *handle_new(sim_object_kind kind, void *object, sim_context *context)
{
    uint32_t index = slot_take();
    if (!index)
        return NULL;
    sim_slot *slot = &sim.slots[index];
    slot->kind = kind;
    slot->object = object;
    slot->context = context;
    uint64_t value = handle_mark | (((uint64_t)slot->generation << SLOT_BITS | index) << 4);
    return (void *)(uintptr_t)value;
}

static sim_slot *handle_slot(const void *handle)
{
    uint64_t value = (uint64_t)(uintptr_t)handle;
    uint64_t body = (value & ~handle_mark) >> 4;
    uint32_t index = (uint32_t)(body & ((1u << SLOT_BITS) - 1));
    if (!(value & handle_mark) || (value & 15) || !index || index >= sim.slot_count)
        return NULL;
    return sim.slots[index].generation == (uint32_t)(body >> SLOT_BITS) ? &sim.slots[index] : NULL;
}

static void *handle_get(sim_object_kind kind, const void *handle)
{
    sim_slot *slot = handle_slot(handle);
    if (slot && slot->kind == kind)
        return slot->object;
    const char *stale = getenv("IGNIS_SIM_STALE");
    if (handle && stale && !strcmp(stale, "1") && (kind == OBJECT_STREAM || kind == OBJECT_EVENT)) {
        say("%p is no %s, or was destroyed: a driver would crash", handle, kind == OBJECT_STREAM ? "stream" : "event");
        abort();
    }
    return NULL;
}

static void handle_drop(const void *handle)
{
    sim_slot *slot = handle_slot(handle);
    slot->kind = OBJECT_FREE;
    slot->generation++;
    slot->object = NULL;
    slot->next_free = sim.slot_free;
    sim.slot_free = (uint32_t)(slot - sim.slots);
}

static long count_objects(sim_object_kind kind)
{
    long count = 0;
    for (uint32_t i = 1; i < sim.slot_count; i++)
        count += sim.slots[i].kind == kind;
    return count;
}

/* >>ranges: which addresses are whose */

/* Index of the first range that starts behind `address`. */
static size_t range_after(uintptr_t address)
{
    size_t low = 0, high = sim.range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (sim.ranges[middle]->start > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static sim_range *range_at(uintptr_t address)
{
    size_t after = range_after(address);
    sim_range *range = after ? sim.ranges[after - 1] : NULL;
    return range && address - range->start < range->size ? range : NULL;
}

static sim_range *range_starting(CUdeviceptr address, sim_range_kind kind)
{
    sim_range *range = range_at((uintptr_t)address);
    return range && range->start == address && range->kind == kind ? range : NULL;
}

static int range_insert(sim_range *range)
{
    if (sim.range_count == sim.range_room) {
        size_t room = sim.range_room ? sim.range_room * 2 : 256;
        sim_range **ranges = realloc(sim.ranges, room * sizeof *ranges);
        if (!ranges)
            return 0;
        sim.ranges = ranges;
        sim.range_room = room;
    }
    size_t at = range_after(range->start);
    memmove(sim.ranges + at + 1, sim.ranges + at, (sim.range_count - at) * sizeof *sim.ranges);
    sim.ranges[at] = range;
    sim.range_count++;
    return 1;
}

static void range_remove(sim_range *range)
{
    size_t at = range_after(range->start) - 1;
    sim.range_count--;
    memmove(sim.ranges + at, sim.ranges + at + 1, (sim.range_count - at) * sizeof *sim.ranges);
}

static sim_arena *arena_at(uintptr_t address)
{
    if (address - sim.host_arena.base < sim.host_arena.size)
        return &sim.host_arena;
    for (int i = 0; i < sim.device_count; i++)
        if (address - sim.contexts[i].arena.base < sim.contexts[i].arena.size)
            return &sim.contexts[i].arena;
    return NULL;
}

static sim_reservation *reservation_at(uintptr_t address)
{
    sim_reservation *reservation = sim.reservations;
    while (reservation && address - reservation->start >= reservation->size)
        reservation = reservation->next;
    return reservation;
}

static int is_device_memory(const sim_range *range) { return range->kind == RANGE_DEVICE || range->kind >= RANGE_MAPPED; }

/* May the device do that to mapped memory? For EVERY_DEVICE: may any? */
static int range_allows(const sim_range *range, int device, int access)
{
    int allowed = 0;
    if (range->kind != RANGE_MAPPED)
        return 1;
    for (int i = 0; i < MAX_DEVICES; i++)
        allowed |= device == EVERY_DEVICE || device == i ? range->access[i] : 0;
    return (allowed & access) == access;
}

/* Is `bytes` at `pointer` memory that a copy may touch? `out` gets its range, NULL for ordinary host memory. Mapped ranges
   that follow each other may be crossed. */
static int check_span(const void *pointer, size_t bytes, sim_side side, int device, int access, sim_range **out)
{
    uintptr_t address = (uintptr_t)pointer;
    sim_range *range = range_at(address);
    *out = range;
    if (!range) {
        int plain = address && !arena_at(address) && !reservation_at(address);
        return plain && side != SIDE_DEVICE ? SUCCESS : ERROR_INVALID_VALUE;
    }
    if (side == SIDE_HOST && is_device_memory(range))
        return ERROR_INVALID_VALUE;
    for (;;) {
        size_t here = range->size - (address - range->start);
        if (!range_allows(range, device, access))
            return ERROR_INVALID_VALUE;
        if (bytes <= here)
            return SUCCESS;
        if (range->kind != RANGE_MAPPED)
            return ERROR_INVALID_VALUE;
        bytes -= here;
        address += here;
        range = range_at(address);
        if (!range || range->kind != RANGE_MAPPED)
            return ERROR_INVALID_VALUE;
    }
}

/* Seals of a file that others may map. */
enum { FIXED_SIZE = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL };

/* >>blocks: memory with a gap behind each block, so that running over its end shows */

static int arena_open(sim_arena *arena, const char *name, size_t at_least)
{
    if (arena->base)
        return 1;
    /* Much more address space than memory: an address is used again only when all of it was used once. A terabyte for
       all devices together is what ThreadSanitizer leaves room for. */
    size_t size = ((size_t)1 << 40) / (size_t)(sim.device_count + 1 < 4 ? 4 : sim.device_count + 1) & ~(page - 1);
    if (size < at_least)
        size = at_least;
    int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    for (; file >= 0 && size >= page; size = size / 2 & ~(page - 1)) {
        if (ftruncate(file, (off_t)size))
            continue;
        void *base = mmap(NULL, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
        if (base == MAP_FAILED)
            continue;
        fcntl(file, F_ADD_SEALS, FIXED_SIZE); /* so that other processes may rely on what they map of it */
        *arena = (sim_arena){.base = (uintptr_t)base, .size = size, .file = file};
        return 1;
    }
    if (file >= 0)
        close(file);
    return 0;
}

/* First fit between live blocks: only once the arena was used up. */
static uintptr_t arena_gap(const sim_arena *arena, size_t span)
{
    uintptr_t start = arena->base, end = arena->base + arena->size;
    for (size_t i = range_after(start) ? range_after(start) - 1 : 0; i < sim.range_count; i++) {
        const sim_range *range = sim.ranges[i];
        if (range->start < start)
            continue;
        if (range->start >= end || range->start - start >= span)
            break;
        start = range->start + range->span;
    }
    size_t next = range_after(start);
    uintptr_t limit = next < sim.range_count && sim.ranges[next]->start < end ? sim.ranges[next]->start : end;
    return limit - start >= span ? start : 0;
}

static uintptr_t arena_take(sim_arena *arena, size_t span)
{
    if (span > arena->size - arena->cursor)
        return arena->reused = 1, arena_gap(arena, span);
    uintptr_t start = arena->base + arena->cursor;
    arena->cursor += span;
    return start;
}

static void poison(uintptr_t start, size_t bytes)
{
    if (sim.poison && bytes)
        sim.poison((const void *)start, bytes);
}

static void unpoison(uintptr_t start, size_t bytes)
{
    if (sim.unpoison && bytes)
        sim.unpoison((const void *)start, bytes);
}

/* Make the block usable: filled with a pattern that is NaN in every float type, a canary up to the page's end.
   Called without the lock; nobody else knows the block yet. */
static int block_open(const sim_range *range)
{
    void *start = (void *)range->start;
    size_t usable = range->span - page;
    if (mprotect(start, usable, PROT_READ | PROT_WRITE)) {
        say("no memory for a block of %zu bytes: %s (vm.max_map_count limits the number of blocks)", range->size, strerror(errno));
        return 0;
    }
    /* AddressSanitizer's map is touched no more than needed: it takes an eighth of all that it describes, for good. */
    if (range->arena->reused)
        unpoison(range->start, usable);
    memset(start, 0xFF, range->size < fill_limit ? range->size : fill_limit);
    memset((char *)start + range->size, CANARY, usable - range->size);
    poison(range->start + range->size, range->span - range->size);
    return 1;
}

/* Bytes changed between the block's end and its page's end; `first` gets the distance of the first. */
static size_t block_overrun(const sim_range *range, size_t *first)
{
    const unsigned char *end = (const unsigned char *)range->start + range->size;
    size_t slack = range->span - page - range->size, changed = 0;
    for (size_t i = slack; i-- > 0;)
        if (end[i] != CANARY)
            changed++, *first = i;
    return changed;
}

static void block_close(const sim_range *range)
{
    size_t usable = range->span - page;
    if (range->exported)
        fallocate(range->arena->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(range->start - range->arena->base + usable),
                  (off_t)page);
    poison(range->start, usable < 16 * page ? usable : 16 * page);
    madvise((void *)range->start, usable, MADV_REMOVE);
    mprotect((void *)range->start, usable, PROT_NONE);
}

static sim_range *range_new(uintptr_t start, size_t size, sim_range_kind kind, sim_context *context)
{
    sim_range *range = calloc(1, sizeof *range);
    if (!range)
        return NULL;
    range->start = start;
    range->size = size;
    range->kind = kind;
    range->context = context;
    range->id = ++sim.next_id;
    if (range_insert(range))
        return range;
    free(range);
    return NULL;
}

static void range_delete(sim_range *range)
{
    range_remove(range);
    free(range);
}

/* Lock held; given up while the block is filled. */
static sim_range *block_new(sim_arena *arena, size_t size, sim_range_kind kind, sim_context *context)
{
    size_t span = round_up(size, page) + page;
    uintptr_t start = size < arena->size ? arena_take(arena, span) : 0;
    sim_range *range = start ? range_new(start, size, kind, context) : NULL;
    if (!range)
        return NULL;
    range->span = span;
    range->arena = arena;
    pthread_mutex_unlock(&sim.lock);
    int opened = block_open(range);
    pthread_mutex_lock(&sim.lock);
    if (opened)
        return range;
    range_delete(range);
    return NULL;
}

static void context_fail(const sim_context *context, int code, const char *text);

/* Returns the code of a damaged canary. */
static int block_delete(sim_range *range)
{
    size_t first = 0, changed;
    int code = SUCCESS;
    unpoison(range->start + range->size, range->span - page - range->size);
    changed = block_overrun(range, &first);
    if (changed) {
        char text[256];
        snprintf(text, sizeof text, "%zu byte(s) were written behind the end of a block of %zu bytes at %#lx, the first %zu behind its end",
                 changed, range->size, (unsigned long)range->start, first);
        code = ERROR_ILLEGAL_ADDRESS;
        context_fail(range->context, code, text);
    }
    block_close(range);
    unsigned at = sim.freed_count++ % REMEMBERED_BLOCKS;
    sim.freed[at].start = range->start;
    sim.freed[at].size = range->size;
    range_delete(range);
    return code;
}

static size_t charged(size_t size) { return round_up(size, 512); }

static size_t memory_left(const sim_context *context) { return sim.memory - context->used - context->created; }

/* >>streams: queues of operations */

static void plan_release(sim_plan *plan);

static void module_release(sim_module_object *module)
{
    if (!module || --module->references)
        return;
    sim_module_unload(module->module);
    free(module);
}

static void signal_release(sim_signal *signal)
{
    if (!signal || --signal->references)
        return;
    munmap(signal->board, page);
    close(signal->file);
    free(signal);
}

static void timeline_release(sim_timeline *timeline)
{
    if (!timeline || --timeline->references)
        return;
    munmap(timeline->page, page);
    close(timeline->file);
    free(timeline);
}

static void work_release(sim_work *work)
{
    signal_release(work->signal);
    timeline_release(work->timeline);
    free(work->storage);
    module_release(work->module);
    plan_release(work->plan);
}

static void plan_release(sim_plan *plan)
{
    if (!plan || --plan->references)
        return;
    for (int i = 0; i < plan->count; i++) {
        work_release(&plan->nodes[i].work);
        free(plan->nodes[i].after.numbers);
    }
    while (plan->goodbyes) {
        sim_goodbye *goodbye = plan->goodbyes;
        plan->goodbyes = goodbye->next;
        goodbye->call(goodbye->data);
        free(goodbye);
    }
    free(plan->nodes);
    free(plan);
}

static void op_release(sim_op *op)
{
    if (!op || --op->references)
        return;
    for (int i = 0; i < op->wait_count; i++)
        op_release(op->waits[i]);
    free(op->waits);
    work_release(&op->work);
    free(op);
}

static int op_wait_for(sim_op *op, sim_op *earlier)
{
    if (!earlier || earlier->done)
        return SUCCESS;
    sim_op **waits = realloc(op->waits, (size_t)(op->wait_count + 1) * sizeof *waits);
    if (!waits)
        return ERROR_OUT_OF_MEMORY;
    op->waits = waits;
    waits[op->wait_count++] = earlier;
    earlier->references++;
    return SUCCESS;
}

/* The next operation that has to be done before `op`, or NULL. */
static sim_op *op_blocker(sim_op *op)
{
    while (op->wait_count) {
        sim_op *last = op->waits[op->wait_count - 1];
        if (!last->done)
            return last;
        op->wait_count--;
        op_release(last);
    }
    return NULL;
}

/* A fault: nothing runs on any device from now on, and what waits gives up. */
static void context_fail(const sim_context *context, int code, const char *text)
{
    if (sim.error)
        return;
    __atomic_store_n(&sim.error, code, __ATOMIC_RELAXED);
    say("device %d: %s (%d): %s", context->device, code_name(code) ? code_name(code) : "error", code, text);
}

static void do_copy(const sim_copy *copy)
{
    for (size_t i = 0; i < copy->height; i++)
        memmove((char *)copy->dst + i * copy->dst_pitch, (const char *)copy->src + i * copy->src_pitch, copy->width);
}

static void do_fill(const sim_fill *fill)
{
    if (fill->size == 1)
        memset(fill->dst, (int)fill->value, fill->count);
    else if (fill->size == 2)
        for (size_t i = 0; i < fill->count; i++)
            ((uint16_t *)fill->dst)[i] = (uint16_t)fill->value;
    else
        for (size_t i = 0; i < fill->count; i++)
            ((uint32_t *)fill->dst)[i] = fill->value;
}

static size_t extent(size_t pitch, size_t width, size_t height) { return (height - 1) * pitch + width; }

static int copy_is_live(const sim_copy *copy)
{
    sim_range *range;
    size_t dst_bytes = extent(copy->dst_pitch, copy->width, copy->height), src_bytes = extent(copy->src_pitch, copy->width, copy->height);
    return !check_span(copy->dst, dst_bytes, copy->dst_side, copy->device, ACCESS_WRITE, &range) &&
           !check_span(copy->src, src_bytes, copy->src_side, copy->device, ACCESS_READ, &range);
}

/* What work needs may have gone since it was submitted: by way of another device's context, or under a graph. */
static int work_check(const sim_work *work, char *text, size_t text_size)
{
    sim_range *range;
    int copies = work->kind != WORK_COPY || copy_is_live(&work->copy);
    int fills = work->kind != WORK_FILL ||
                !check_span(work->fill.dst, work->fill.count * work->fill.size, SIDE_DEVICE, work->fill.device, ACCESS_WRITE, &range);
    if (!copies || !fills)
        return snprintf(text, text_size, "a %s found its memory freed", copies ? "fill" : "copy"), ERROR_ILLEGAL_ADDRESS;
    int is_word = work->kind == WORK_WRITE || work->kind == WORK_WAIT, access = work->kind == WORK_WRITE ? ACCESS_WRITE : ACCESS_READ;
    if (is_word && check_span(work->word.address, work->word.size, SIDE_ANY, work->word.device, access, &range))
        return snprintf(text, text_size, "a stream memory operation found its memory freed"), ERROR_ILLEGAL_ADDRESS;
    if (!work->module || !work->module->unloaded)
        return SUCCESS;
    return snprintf(text, text_size, "%s was launched after its module was unloaded", work->kernel->name), ERROR_ILLEGAL_ADDRESS;
}

static int plan_run(const sim_plan *plan, char *text, size_t text_size);

enum { WAIT_GREATER_OR_EQUAL, WAIT_EQUAL, WAIT_AND, WAIT_NOR };

static int word_is_there(const sim_word *word)
{
    int narrow = word->size == 4;
    uint64_t mask = narrow ? 0xFFFFFFFFu : UINT64_MAX;
    uint64_t found = narrow ? __atomic_load_n((uint32_t *)word->address, __ATOMIC_ACQUIRE)
                            : __atomic_load_n((uint64_t *)word->address, __ATOMIC_ACQUIRE);
    switch (word->condition) {
    case WAIT_EQUAL: return found == word->value;
    case WAIT_AND: return (found & word->value) != 0;
    case WAIT_NOR: return (~(found | word->value) & mask) != 0;
    default: return narrow ? (int32_t)(uint32_t)(found - word->value) >= 0 : (int64_t)(found - word->value) >= 0;
    }
}

static void word_write(const sim_word *word)
{
    if (word->size == 4)
        __atomic_store_n((uint32_t *)word->address, (uint32_t)word->value, __ATOMIC_SEQ_CST);
    else
        __atomic_store_n((uint64_t *)word->address, word->value, __ATOMIC_SEQ_CST);
}

static int work_check(const sim_work *work, char *text, size_t text_size);

/* Called without the lock. */
static int word_wait(const sim_work *work, char *text, size_t text_size)
{
    for (;;) {
        struct timespec pause = {.tv_nsec = 20000};
        pthread_mutex_lock(&sim.lock);
        int code = sim.error ? sim.error : work_check(work, text, text_size);
        int there = !code && word_is_there(&work->word);
        pthread_mutex_unlock(&sim.lock);
        if (code || there)
            return code;
        nanosleep(&pause, NULL);
    }
}

/* A wait that nothing can end is a mistake of the program, which hangs with a real driver. Called without the lock. */
static int timeline_wait(const sim_work *work, char *text, size_t text_size)
{
    sim_timeline_page *timeline = work->timeline->page;
    uint64_t value = atomic_load(&timeline->value), before = value;
    int64_t since = now();
    while (value < work->value && !sim_fault()) {
        struct timespec pause = {.tv_nsec = 20000};
        if (value != before)
            since = now();
        before = value;
        if (now() - since > (int64_t)sim.patience * 1000000) {
            snprintf(text, text_size,
                     "no progress: a stream waits for value %llu of a timeline, which has been at %llu for %d ms (IGNIS_SIM_PATIENCE)",
                     (unsigned long long)work->value, (unsigned long long)value, sim.patience);
            return ERROR_LAUNCH_TIMEOUT;
        }
        nanosleep(&pause, NULL);
        value = atomic_load(&timeline->value);
    }
    return SUCCESS;
}

/* As Vulkan wants it, a value only rises. */
static int timeline_raise(const sim_work *work, char *text, size_t text_size)
{
    sim_timeline_page *timeline = work->timeline->page;
    uint64_t value = atomic_load(&timeline->value);
    do {
        if (value >= work->value) {
            snprintf(text, text_size, "a stream signals value %llu of a timeline that is at %llu: the value only rises",
                     (unsigned long long)work->value, (unsigned long long)value);
            return ERROR_LAUNCH_FAILED;
        }
    } while (!atomic_compare_exchange_weak(&timeline->value, &value, work->value));
    return SUCCESS;
}

static void signal_set(sim_signal *signal, uint32_t sequence)
{
    uint32_t done = atomic_load(&signal->board->done);
    while ((int32_t)(sequence - done) > 0 && !atomic_compare_exchange_weak(&signal->board->done, &done, sequence))
        ;
    syscall(SYS_futex, &signal->board->done, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* A process that was killed may still be there, for its parent to ask after. */
static int is_running(pid_t pid)
{
    char path[64], text[512], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[size > 0 ? size : 0] = 0;
    const char *end = strrchr(text, ')');
    if (end && end[1])
        state = end[2];
    return state != 'Z' && state != 'X' && state != 'x';
}

/* Is that record done? Never will be what a dead process had queued: that counts as done, so that nobody waits for ever. */
static int signal_is_set(sim_signal *signal, uint32_t sequence)
{
    return (int32_t)(atomic_load(&signal->board->done) - sequence) >= 0 || !is_running(atomic_load(&signal->board->recorder));
}

int sim_fault(void) { return __atomic_load_n(&sim.error, __ATOMIC_RELAXED); }

/* Called without the lock. */
static void signal_wait(sim_signal *signal, uint32_t sequence)
{
    while (!signal_is_set(signal, sequence) && !sim_fault()) {
        uint32_t done = atomic_load(&signal->board->done);
        struct timespec patience = {.tv_nsec = 100000000};
        if ((int32_t)(done - sequence) < 0)
            syscall(SYS_futex, &signal->board->done, FUTEX_WAIT, done, &patience, NULL, 0);
    }
}

/* Called without the lock. */
/* A block of a kernel that waits for others keeps a whole processor until it ends, as real ones do that take most of its registers. A launch for
   which there is no room begins when others have left. */
static int kernel_run(const sim_work *work, char *text, size_t text_size)
{
    sim_context *context = &sim.contexts[work->launch.device];
    const unsigned *grid = work->launch.grid;
    size_t blocks = (size_t)grid[0] * grid[1] * grid[2];
    int code;
    if (!work->kernel->spins)
        return sim_execute(work->kernel, &work->launch, work->storage, text, text_size);
    pthread_mutex_lock(&sim.lock);
    while (context->resident && context->resident + blocks > SM_COUNT && !sim.error)
        pthread_cond_wait(&sim.moved, &sim.lock);
    context->resident += blocks;
    pthread_mutex_unlock(&sim.lock);
    code = sim_execute(work->kernel, &work->launch, work->storage, text, text_size);
    pthread_mutex_lock(&sim.lock);
    context->resident -= blocks;
    pthread_cond_broadcast(&sim.moved);
    pthread_mutex_unlock(&sim.lock);
    return code;
}

static int work_run(const sim_work *work, char *text, size_t text_size)
{
    switch (work->kind) {
    case WORK_NOTHING: break;
    case WORK_COPY: do_copy(&work->copy); break;
    case WORK_FILL: do_fill(&work->fill); break;
    case WORK_WRITE: word_write(&work->word); break;
    case WORK_WAIT: return word_wait(work, text, text_size);
    case WORK_RAISE: return timeline_raise(work, text, text_size);
    case WORK_REACH: return timeline_wait(work, text, text_size);
    case WORK_SIGNAL: signal_set(work->signal, work->sequence); break;
    case WORK_AWAIT: signal_wait(work->signal, work->sequence); break;
    case WORK_GRAPH: return plan_run(work->plan, text, text_size);
    case WORK_KERNEL: return kernel_run(work, text, text_size);
    case WORK_CALL:
        thread.in_callback++;
        work->call(work->call_data);
        thread.in_callback--;
        break;
    }
    return SUCCESS;
}

static int plan_run(const sim_plan *plan, char *text, size_t text_size)
{
    int code = SUCCESS;
    for (int i = 0; i < plan->count && !code; i++) {
        pthread_mutex_lock(&sim.lock);
        code = work_check(&plan->nodes[i].work, text, text_size);
        pthread_mutex_unlock(&sim.lock);
        if (!code)
            code = work_run(&plan->nodes[i].work, text, text_size);
    }
    return code;
}

static void stream_free(sim_stream *stream)
{
    sim_stream **link = &stream->context->streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    free(stream);
}

/* Run the first operation of the queue. The lock is given up meanwhile; the stream may be gone afterwards. */
static void stream_step(sim_stream *stream)
{
    sim_op *op = stream->head;
    sim_context *context = stream->context;
    char text[768] = "";
    stream->busy = 1;
    if (!sim.error) { /* else nothing runs any more */
        int code = work_check(&op->work, text, sizeof text);
        if (!code) {
            pthread_mutex_unlock(&sim.lock);
            code = work_run(&op->work, text, sizeof text);
            pthread_mutex_lock(&sim.lock);
        }
        if (code)
            context_fail(context, code, text);
    }
    stream->busy = 0;
    stream->head = op->next;
    if (!stream->head)
        stream->tail = NULL;
    op->time = now();
    op->done = 1;
    if (op->work.timeline)
        op->work.timeline->pending--;
    sim.spinning -= op->spins;
    op_release(op);
    if (stream->dead && !stream->head && !stream->worker)
        stream_free(stream);
    pthread_cond_broadcast(&sim.moved);
}

/* Will its worker run the head of the queue? */
static int is_driven(const sim_stream *stream)
{
    return stream->worker && stream->head && (sim.streams == STREAMS_THREAD || stream->head->number <= stream->driven);
}

/* A device that has other things to do. The lock is given up meanwhile. */
static void stream_pause(sim_stream *stream)
{
    if (sim.streams != STREAMS_THREAD || !sim.delay)
        return;
    stream->busy = 1;
    pthread_mutex_unlock(&sim.lock);
    usleep((useconds_t)sim.delay);
    pthread_mutex_lock(&sim.lock);
}

static void *stream_worker(void *argument)
{
    sim_stream *stream = argument;
    pthread_mutex_lock(&sim.lock);
    for (;;) {
        if (is_driven(stream) && !stream->busy && !op_blocker(stream->head)) {
            stream_pause(stream);
            stream_step(stream);
        } else if (stream->dead && !stream->head)
            break;
        else
            pthread_cond_wait(&sim.moved, &sim.lock);
    }
    stream_free(stream);
    pthread_mutex_unlock(&sim.lock);
    return NULL;
}

static int stream_start_worker(sim_stream *stream)
{
    pthread_t id;
    pthread_attr_t attributes;
    if (stream->worker)
        return SUCCESS;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    stream->worker = !pthread_create(&id, &attributes, stream_worker, stream);
    pthread_attr_destroy(&attributes);
    return stream->worker ? SUCCESS : ERROR_OPERATING_SYSTEM;
}

/* Let workers run the operation, and all that it needs. */
static int op_drive(sim_op *op)
{
    sim_stream *stream = op->stream;
    if (op->done || (stream->worker && op->number <= stream->driven))
        return SUCCESS;
    int code = stream_start_worker(stream);
    sim_op *before = stream->head;
    stream->driven = op->number;
    for (; before && before->number <= op->number && !code; before = before->next)
        for (int i = 0; i < before->wait_count && !code; i++)
            if (!before->waits[i]->done)
                code = op_drive(before->waits[i]);
    pthread_cond_broadcast(&sim.moved);
    return code;
}

/* Operations that wait for each other have to run at the same time: once anything is waited for, all of them. */
static void drive_spinning(void)
{
    for (int i = 0; i < sim.device_count && sim.spinning; i++)
        for (sim_stream *stream = sim.contexts[i].streams; stream; stream = stream->next) {
            sim_op *last = NULL;
            for (sim_op *op = stream->head; op; op = op->next)
                last = op->spins ? op : last;
            if (last)
                op_drive(last);
        }
}

/* Return once `op` is done; what no worker runs, by running what it needs, in order. */
static void op_finish(sim_op *op)
{
    op->references++;
    drive_spinning();
    while (!op->done) {
        sim_stream *stream = op->stream;
        sim_op *blocker;
        while (!stream->busy && !is_driven(stream) && (blocker = op_blocker(stream->head)))
            stream = blocker->stream;
        if (stream->busy || is_driven(stream))
            pthread_cond_wait(&sim.moved, &sim.lock);
        else
            stream_step(stream);
    }
    op_release(op);
}

/* Eager streams: does work in this stream, or in any that it may have to wait for, come after work of a worker? */
static int is_behind_worker(const sim_op *op)
{
    if (is_driven(op->stream))
        return 1;
    for (int i = 0; i < op->wait_count; i++)
        if (!op->waits[i]->done && is_driven(op->waits[i]->stream))
            return 1;
    return 0;
}

static int any_driven(void)
{
    for (int i = 0; i < sim.device_count; i++)
        for (sim_stream *stream = sim.contexts[i].streams; stream; stream = stream->next)
            if (is_driven(stream))
                return 1;
    return 0;
}

/* Waits for others, or is what others wait for. */
static int work_spins(const sim_work *work)
{
    if (work->kind == WORK_GRAPH) {
        for (int i = 0; i < work->plan->count; i++)
            if (work_spins(&work->plan->nodes[i].work))
                return 1;
        return 0;
    }
    if (work->kind == WORK_KERNEL)
        return work->kernel->spins || work->launch.together;
    return work->kind == WORK_AWAIT || work->kind == WORK_WAIT || work->kind == WORK_WRITE || work->kind == WORK_RAISE ||
           work->kind == WORK_REACH;
}

/* The legacy rule: work in the NULL stream comes after all earlier work of blocking streams, and theirs after its. */
static int op_wait_legacy(sim_op *op, sim_stream *stream)
{
    sim_context *context = stream->context;
    int code = SUCCESS;
    if (stream->flags & 1)
        return SUCCESS;
    if (stream != context->null_stream)
        return op_wait_for(op, context->null_stream->tail);
    for (sim_stream *other = context->streams; other && !code; other = other->next)
        if (other != stream && !(other->flags & 1))
            code = op_wait_for(op, other->tail);
    return code;
}

static int capture_check(sim_stream *stream);
static int capture_add(sim_stream *stream, sim_work *work);
static void stream_leave_capture(sim_stream *stream);

/* Queue work behind the stream's earlier work, and behind `after` of another stream; or add it to the graph that the stream
   is captured into. Takes over what the work holds, also when it fails. `out`, if given, gets a reference; it is for streams
   that are not captured. */
static int submit(sim_stream *stream, sim_work work, sim_op *after, sim_op **out)
{
    int code = capture_check(stream);
    if (!code && stream->capture)
        return capture_add(stream, &work);
    sim_op *op = code ? NULL : calloc(1, sizeof *op);
    if (!op) {
        work_release(&work);
        return code ? code : ERROR_OUT_OF_MEMORY;
    }
    op->references = 1;
    op->stream = stream;
    op->work = work;
    op->spins = work_spins(&work);
    op->number = ++sim.next_id;
    code = op_wait_legacy(op, stream);
    if (!code)
        code = op_wait_for(op, after);
    if (!code && (sim.streams == STREAMS_THREAD || (sim.streams == STREAMS_EAGER && op->spins)))
        code = stream_start_worker(stream);
    if (code) {
        op_release(op);
        return code;
    }
    if (stream->tail)
        stream->tail->next = op;
    else
        stream->head = op;
    stream->tail = op;
    op->references += out != NULL;
    if (out)
        *out = op;
    sim.spinning += op->spins;
    pthread_cond_broadcast(&sim.moved);
    if (sim.streams != STREAMS_EAGER)
        return SUCCESS;
    if (op->spins || is_behind_worker(op))
        return op_drive(op);
    op_finish(op);
    return SUCCESS;
}

static int submit_and_wait(sim_stream *stream, sim_work work)
{
    sim_op *op;
    int code = submit(stream, work, NULL, &op);
    if (code)
        return code;
    op_finish(op);
    op_release(op);
    return sim.error;
}

static int stream_finish(sim_stream *stream)
{
    sim_context *context = stream->context;
    if (stream == context->null_stream)
        return submit_and_wait(stream, (sim_work){.kind = WORK_NOTHING});
    if (stream->tail)
        op_finish(stream->tail);
    return sim.error;
}

/* Wait for everything that was submitted to a context before this call. */
static int context_finish(sim_context *context)
{
    int count = 0, room = 0;
    for (sim_stream *stream = context->streams; stream; stream = stream->next)
        room++;
    sim_op **tails = malloc((size_t)(room + 1) * sizeof *tails);
    if (!tails)
        return ERROR_OUT_OF_MEMORY;
    for (sim_stream *stream = context->streams; stream; stream = stream->next)
        if (stream->tail)
            tails[count++] = stream->tail, stream->tail->references++;
    for (int i = 0; i < count; i++) {
        op_finish(tails[i]);
        op_release(tails[i]);
    }
    free(tails);
    return sim.error;
}

static sim_stream *stream_new(sim_context *context, unsigned flags, int priority)
{
    sim_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++sim.next_id;
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

static void stream_destroy(sim_stream *stream)
{
    if (stream->handle)
        handle_drop(stream->handle);
    stream_leave_capture(stream);
    stream->dead = 1;
    if (stream->worker)
        pthread_cond_broadcast(&sim.moved);
    else if (!stream->head)
        stream_free(stream);
}

/* The per-thread streams of a thread that ends. What they have queued still runs. */
static void thread_end(void *number)
{
    if (atomic_load(&sim.forked))
        return;
    pthread_mutex_lock(&sim.lock);
    for (int i = 0; i < sim.device_count; i++)
        for (sim_stream *stream = sim.contexts[i].streams, *next; stream; stream = next) {
            next = stream->next;
            if (stream->thread == (uintptr_t)number && !stream->dead)
                stream_destroy(stream);
        }
    pthread_mutex_unlock(&sim.lock);
}

static pthread_key_t thread_key;
static void thread_key_make(void) { pthread_key_create(&thread_key, thread_end); }

/* The calling thread's own stream of a context, blocking as the real ones are. NULL: out of memory. */
static sim_stream *stream_of_thread(sim_context *context)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sim_stream *stream = context->streams;
    if (!thread.number) {
        thread.number = ++sim.next_id;
        pthread_once(&once, thread_key_make);
        pthread_setspecific(thread_key, (void *)(uintptr_t)thread.number);
    }
    while (stream && (stream->thread != thread.number || stream->dead))
        stream = stream->next;
    if (!stream && (stream = stream_new(context, 0, 0)))
        stream->thread = thread.number;
    return stream;
}

/* 0 and 1 are the legacy stream, 2 is another stream in each thread. */
static sim_stream *stream_get(CUstream handle)
{
    if ((uintptr_t)handle <= 1)
        return current()->null_stream;
    if ((uintptr_t)handle == 2)
        return stream_of_thread(current());
    return handle_get(OBJECT_STREAM, handle);
}

/* The stream of a handle, or the code to return. */
static int stream_find(CUstream handle, sim_stream **out)
{
    *out = stream_get(handle);
    return *out ? sim.error : ERROR_INVALID_HANDLE;
}

/* Has `op` been done? With lazy streams nothing would ever change for a loop of queries, so in the end one runs the work. */
static int op_query(sim_op *op)
{
    if (!op || op->done)
        return SUCCESS;
    if (sim.streams != STREAMS_LAZY || ++op->polls <= LAZY_POLLS)
        return ERROR_NOT_READY;
    if (sim.spinning) { /* it may wait for what this thread has yet to submit */
        drive_spinning();
        int code = op_drive(op);
        return code ? code : op->done ? sim.error : ERROR_NOT_READY;
    }
    op_finish(op);
    return sim.error;
}

/* >>capture: work goes into a graph instead of the queue */

enum { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED };

static void capture_release(sim_capture *capture)
{
    if (!capture || --capture->references)
        return;
    plan_release(capture->plan);
    free(capture);
}

/* The capture is spoilt, and its end will say so. Returns `code`. */
static int capture_break(sim_capture *capture, int code)
{
    capture->invalid = 1;
    return code;
}

static void stream_leave_capture(sim_stream *stream)
{
    sim_capture *capture = stream->capture;
    if (!capture)
        return;
    if (capture->origin == stream)
        capture->origin = NULL, capture->invalid = 1;
    stream->capture = NULL;
    free(stream->last.numbers);
    stream->last = (sim_nodes){0};
    capture_release(capture);
}

/* Does this thread's mode make it heed the capture? */
static int capture_concerns(const sim_capture *capture)
{
    if (capture->mode == CAPTURE_RELAXED || thread.capture_mode == CAPTURE_RELAXED)
        return 0;
    if (pthread_equal(capture->thread, pthread_self()))
        return 1;
    return capture->mode == CAPTURE_GLOBAL && thread.capture_mode == CAPTURE_GLOBAL;
}

/* An unsafe call breaks the captures that it could disturb. */
static int capture_forbids(void)
{
    int code = SUCCESS;
    for (int i = 0; i < sim.device_count; i++)
        for (sim_stream *stream = sim.contexts[i].streams; stream; stream = stream->next)
            if (stream->capture && stream->capture->origin == stream && capture_concerns(stream->capture))
                code = capture_break(stream->capture, ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return code;
}

/* The legacy stream waits for blocking streams, which a captured one cannot be waited for. */
static int capture_check_legacy(sim_stream *stream)
{
    if (stream != stream->context->null_stream)
        return SUCCESS;
    for (sim_stream *other = stream->context->streams; other; other = other->next)
        if (other->capture && !(other->flags & 1))
            return capture_break(other->capture, ERROR_STREAM_CAPTURE_IMPLICIT);
    return SUCCESS;
}

static int capture_check(sim_stream *stream)
{
    if (stream->capture)
        return stream->capture->invalid ? ERROR_STREAM_CAPTURE_INVALIDATED : SUCCESS;
    return capture_check_legacy(stream);
}

/* For calls that wait for a stream or ask about it. */
static int capture_forbids_wait(sim_stream *stream)
{
    if (stream->capture)
        return capture_break(stream->capture, ERROR_STREAM_CAPTURE_UNSUPPORTED);
    int code = capture_check_legacy(stream);
    return code ? code : capture_forbids();
}

/* The same for events. One recorded in a capture that is over has no meaning. */
static int capture_forbids_event(sim_event *event)
{
    if (!event->capture)
        return capture_forbids();
    if (!event->capture->origin)
        return ERROR_INVALID_VALUE;
    return capture_break(event->capture, ERROR_CAPTURED_EVENT);
}

static int nodes_add(sim_nodes *nodes, int number)
{
    for (int i = 0; i < nodes->count; i++)
        if (nodes->numbers[i] == number)
            return 1;
    int *numbers = realloc(nodes->numbers, (size_t)(nodes->count + 1) * sizeof *numbers);
    if (!numbers)
        return 0;
    nodes->numbers = numbers;
    numbers[nodes->count++] = number;
    return 1;
}

static int nodes_add_all(sim_nodes *nodes, const sim_nodes *more)
{
    for (int i = 0; i < more->count; i++)
        if (!nodes_add(nodes, more->numbers[i]))
            return 0;
    return 1;
}

static int plan_grow(sim_plan *plan)
{
    if (plan->count < plan->room)
        return 1;
    int room = plan->room ? plan->room * 2 : 16;
    void *nodes = realloc(plan->nodes, (size_t)room * sizeof *plan->nodes);
    if (!nodes)
        return 0;
    plan->nodes = nodes;
    plan->room = room;
    return 1;
}

/* Add a node behind the stream's last ones, and make it the last. */
static int capture_add(sim_stream *stream, sim_work *work)
{
    sim_plan *plan = stream->capture->plan;
    sim_nodes last = {0};
    if (!plan_grow(plan) || !nodes_add(&last, plan->count)) {
        work_release(work);
        return capture_break(stream->capture, ERROR_OUT_OF_MEMORY);
    }
    plan->nodes[plan->count].work = *work;
    plan->nodes[plan->count].after = stream->last;
    plan->count++;
    stream->last = last;
    return SUCCESS;
}

static void event_forget(sim_event *event);

static int capture_record(sim_stream *stream, sim_event *event)
{
    sim_nodes last = {0};
    if (stream->capture->invalid)
        return ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!nodes_add_all(&last, &stream->last))
        return free(last.numbers), ERROR_OUT_OF_MEMORY;
    event_forget(event);
    event->capture = stream->capture;
    event->capture->references++;
    event->last = last;
    return SUCCESS;
}

/* Waiting for a captured event draws the stream into its capture. */
static int capture_join(sim_stream *stream, sim_event *event)
{
    sim_capture *capture = event->capture;
    if (!capture->origin)
        return ERROR_INVALID_VALUE;
    if (capture->invalid)
        return ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream == stream->context->null_stream)
        return capture_break(capture, ERROR_STREAM_CAPTURE_IMPLICIT);
    if (stream->capture && stream->capture != capture) {
        capture_break(stream->capture, SUCCESS);
        return capture_break(capture, ERROR_STREAM_CAPTURE_MERGE);
    }
    if (!stream->capture)
        stream->capture = capture, capture->references++;
    return nodes_add_all(&stream->last, &event->last) ? SUCCESS : capture_break(capture, ERROR_OUT_OF_MEMORY);
}

/* Is every node one that `last` come after, or one of them? */
static int plan_joined(const sim_plan *plan, const sim_nodes *last)
{
    char *reached = calloc((size_t)plan->count + 1, 1);
    int joined = reached != NULL;
    for (int i = 0; joined && i < last->count; i++)
        reached[last->numbers[i]] = 1;
    for (int i = plan->count; joined && i-- > 0;) { /* a node comes only after nodes with lower numbers */
        const sim_nodes *after = &plan->nodes[i].after;
        joined = reached[i];
        for (int j = 0; j < after->count; j++)
            reached[after->numbers[j]] = 1;
    }
    free(reached);
    return joined;
}

static sim_capture *capture_new(sim_stream *stream, int mode)
{
    sim_capture *capture = calloc(1, sizeof *capture);
    sim_plan *plan = calloc(1, sizeof *plan);
    if (!capture || !plan)
        return free(capture), free(plan), NULL;
    plan->references = 1;
    *capture = (sim_capture){.references = 1, .id = ++sim.next_id, .origin = stream, .mode = mode, .thread = pthread_self(), .plan = plan};
    return capture;
}

/* All its streams run work again. The caller keeps a reference of its own. */
static void capture_end(sim_capture *capture)
{
    for (int i = 0; i < sim.device_count; i++)
        for (sim_stream *stream = sim.contexts[i].streams; stream; stream = stream->next)
            if (stream->capture == capture)
                stream_leave_capture(stream);
}

/* >>contexts */

static int context_open(sim_context *context)
{
    char name[64];
    snprintf(name, sizeof name, "ignis-sim-device-%d", context->device);
    if (!arena_open(&context->arena, name, 2 * sim.memory) || !arena_open(&sim.host_arena, "ignis-sim-pinned", page))
        return ERROR_OUT_OF_MEMORY;
    if (!context->handle)
        context->handle = handle_new(OBJECT_CONTEXT, context, NULL);
    if (!context->handle)
        return ERROR_OUT_OF_MEMORY;
    context->null_stream = stream_new(context, 0, 0);
    context->active = context->null_stream != NULL;
    return context->active ? SUCCESS : ERROR_OUT_OF_MEMORY;
}

static void event_forget(sim_event *event)
{
    op_release(event->op);
    capture_release(event->capture);
    free(event->last.numbers);
    event->op = NULL;
    event->capture = NULL;
    event->last = (sim_nodes){0};
}

static void event_delete(sim_event *event)
{
    handle_drop(event->handle);
    event_forget(event);
    signal_release(event->signal);
    free(event);
}

static void module_delete(sim_module_object *module)
{
    while (module->functions) {
        sim_function *function = module->functions;
        module->functions = function->next;
        handle_drop(function->handle);
        free(function);
    }
    for (size_t i = sim.range_count; i-- > 0;)
        if (sim.ranges[i]->module == module)
            range_delete(sim.ranges[i]);
    handle_drop(module->handle);
    module->unloaded = 1;
    module_release(module);
}

static void timeline_delete(sim_timeline *timeline);
static void resource_delete(sim_resource *resource);
static void context_drop_externals(sim_context *context);

static void context_drop_objects(sim_context *context)
{
    for (uint32_t i = 1; i < sim.slot_count; i++) {
        sim_slot *slot = &sim.slots[i];
        if (slot->context != context)
            continue;
        if (slot->kind == OBJECT_STREAM)
            stream_destroy(slot->object);
        else if (slot->kind == OBJECT_EVENT)
            event_delete(slot->object);
        else if (slot->kind == OBJECT_MODULE)
            module_delete(slot->object);
        else if (slot->kind == OBJECT_TIMELINE)
            timeline_delete(slot->object);
        else if (slot->kind == OBJECT_RESOURCE)
            resource_delete(slot->object);
    }
}

static void import_delete(sim_range *range);
static void external_unmap(sim_range *range);

/* Everything made in the context goes, as when its last user releases it. */
static void context_close(sim_context *context)
{
    if (!context->active)
        return;
    context->active = 0;
    context_finish(context);
    context_drop_objects(context);
    for (size_t i = sim.range_count; i-- > 0;) {
        sim_range *range = sim.ranges[i];
        if (range->context != context || range->kind == RANGE_MAPPED)
            continue;
        if (range->arena)
            block_delete(range);
        else if (range->import)
            import_delete(range);
        else if (range->kind == RANGE_EXTERNAL)
            external_unmap(range);
        else
            range_delete(range);
    }
    context_drop_externals(context);
    for (sim_stream *stream = context->streams, *next; stream; stream = next) {
        next = stream->next;
        if (!stream->dead)
            stream_destroy(stream);
    }
    context->null_stream = NULL;
    context->used = 0;
    context->peers = 0;
}

/* >>init */

static int is_device(CUdevice device) { return device >= 0 && device < sim.device_count; }

static int device_by_number(int number)
{
    for (int i = 0; i < sim.device_count; i++)
        if (sim.contexts[i].number == number)
            return i;
    return -1;
}

/* Can these two of the machine's devices reach each other's memory? */
static int devices_reach(int a, int b) { return a == b || sim.reach[a] >> b & 1; }

static int read_size(const char *text, size_t *out)
{
    char *end;
    double value = strtod(text, &end);
    if (*end == 'K' || *end == 'k')
        value *= 1024, end++;
    else if (*end == 'M' || *end == 'm')
        value *= 1024 * 1024, end++;
    else if (*end == 'G' || *end == 'g')
        value *= 1024.0 * 1024 * 1024, end++;
    *out = value > 0 ? (size_t)value : 0;
    return !*end && value >= 1;
}

static int read_cc(const char *text, int *out)
{
    int major = 0, minor = 0;
    char rest;
    if (sscanf(text, "%d.%d%c", &major, &minor, &rest) == 2)
        *out = major * 10 + minor;
    else if (sscanf(text, "%d%c", &major, &rest) == 1)
        *out = major;
    else
        return 0;
    return *out >= 50 && *out < 200;
}

static int read_devices(const char *text, int *out)
{
    char rest;
    return sscanf(text, "%d%c", out, &rest) == 1 && *out >= 0 && *out <= MAX_DEVICES;
}

static int read_streams(const char *text, int *out)
{
    for (int i = 0; i < STREAMS_COUNT; i++)
        if (!strcmp(text, stream_modes[i]))
            return *out = i, 1;
    return 0;
}

/* -1: it is none. */
static int read_number(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    return *end || end == text || number < 0 || number > INT_MAX ? -1 : (int)number;
}

static int read_delay(const char *text)
{
    char rest;
    return sscanf(text, "%d%c", &sim.delay, &rest) == 1 && sim.delay >= 0 && sim.delay < 1000000;
}

static int read_peers(const char *text)
{
    int a, b, length = 0;
    int all = !strcmp(text, "all") || !strcmp(text, "1");
    for (int i = 0; i < MAX_DEVICES; i++)
        sim.reach[i] = all ? (1u << MAX_DEVICES) - 1 : 0;
    if (all || !strcmp(text, "0"))
        return 1;
    for (; sscanf(text, "%d-%d%n", &a, &b, &length) == 2; text += length + 1) {
        if (a < 0 || b < 0 || a >= MAX_DEVICES || b >= MAX_DEVICES)
            return 0;
        sim.reach[a] |= 1u << b;
        sim.reach[b] |= 1u << a;
        if (text[length] != ',')
            return !text[length];
    }
    return 0;
}

static void uuid_of(int number, unsigned char *uuid)
{
    memcpy(uuid, "IgnisSimulator", 14);
    uuid[14] = (unsigned char)sim.cc;
    uuid[15] = (unsigned char)number;
}

/* Number of the device whose UUID starts as the text does, -1: none. */
static int device_by_uuid(const char *text, size_t length, int machine_count)
{
    for (int number = 0; number < machine_count; number++) {
        unsigned char uuid[16];
        char name[48];
        size_t used = (size_t)snprintf(name, sizeof name, "GPU-");
        uuid_of(number, uuid);
        for (int i = 0; i < 16; i++)
            used += (size_t)snprintf(name + used, sizeof name - used, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
        if (length > 4 && length <= used && !strncasecmp(name, text, length))
            return number;
    }
    return -1;
}

/* The list ends at the first entry that names no device; a device named twice leaves none. */
static void read_visible(const char *text)
{
    int machine_count = sim.device_count, count = 0;
    unsigned seen = 0;
    for (int i = 0; i < machine_count; i++)
        sim.contexts[i].number = i;
    if (!text)
        return;
    while (count < machine_count) {
        size_t length = strcspn(text, ",");
        char *end;
        long number = strtol(text, &end, 10);
        if (end == text || end != text + length)
            number = device_by_uuid(text, length, machine_count);
        if (number < 0 || number >= machine_count)
            break;
        if (seen >> number & 1) {
            count = 0;
            break;
        }
        seen |= 1u << number;
        sim.contexts[count++].number = (int)number;
        if (!text[length])
            break;
        text += length + 1;
    }
    sim.device_count = count;
}

static const char *knob(const char *name, const char *fallback)
{
    const char *value = getenv(name);
    return value && *value ? value : fallback;
}

/* A misspelt setting must not pass for the default. */
static int setting(const char *name, int understood)
{
    if (!understood)
        say("%s=%s is not understood", name, getenv(name));
    return understood;
}

static int read_settings(void)
{
    return setting("IGNIS_SIM_DEVICES", read_devices(knob("IGNIS_SIM_DEVICES", "2"), &sim.device_count)) &&
           setting("IGNIS_SIM_CC", read_cc(knob("IGNIS_SIM_CC", "90"), &sim.cc)) &&
           setting("IGNIS_SIM_MEMORY", read_size(knob("IGNIS_SIM_MEMORY", "2G"), &sim.memory)) &&
           setting("IGNIS_SIM_STREAMS", read_streams(knob("IGNIS_SIM_STREAMS", "eager"), &sim.streams)) &&
           setting("IGNIS_SIM_DELAY", read_delay(knob("IGNIS_SIM_DELAY", "0"))) &&
           setting("IGNIS_SIM_PATIENCE", (sim.patience = read_number(knob("IGNIS_SIM_PATIENCE", "10000"))) > 0) &&
           setting("IGNIS_SIM_PEER", read_peers(knob("IGNIS_SIM_PEER", "all"))) &&
           (sim.rule_count || setting("IGNIS_SIM_FAIL", set_rules(getenv("IGNIS_SIM_FAIL"))));
}

static void introduce(void)
{
    static const char *const shown[] = {"IGNIS_SIM_STREAMS", "IGNIS_SIM_DELAY", "IGNIS_SIM_FAIL"};
    char lane[256] = "";
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const char *value = knob(shown[i], NULL);
        size_t used = strlen(lane);
        if (value)
            snprintf(lane + used, sizeof lane - used, ", %s=%s", shown[i], value);
    }
    say("%d simulated GPU(s) on the CPU, no real device: sm_%d, %zu MiB each%s", sim.device_count, sim.cc, sim.memory >> 20, lane);
}

static void fork_prepare(void) { pthread_mutex_lock(&sim.lock); }
static void fork_parent(void) { pthread_mutex_unlock(&sim.lock); }

/* Streams' workers and locks held by other threads do not survive a fork; the real driver does not either. */
static void fork_child(void)
{
    atomic_store(&sim.forked, 1);
    pthread_mutex_unlock(&sim.lock);
}

static long live_count(const char *kind);

static void report_leaks(void)
{
    static const char *const watched[] = {"context", "malloc", "bytes",   "hostalloc",   "stream",   "event",    "module",  "graph",
                                          "handle",  "import", "mapping", "reservation", "external", "timeline", "resource"};
    if (atomic_load(&sim.forked))
        return;
    pthread_mutex_lock(&sim.lock);
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
        if (live_count(watched[i]))
            say("at exit, still alive: %ld %s", live_count(watched[i]), watched[i]);
    pthread_mutex_unlock(&sim.lock);
}

SIM_API CUresult cuInit(unsigned int flags)
{
    BEGIN(cuInit);
    REQUIRE(!flags, ERROR_INVALID_VALUE);
    if (sim.ready)
        return leave(sim.device_count ? SUCCESS : ERROR_NO_DEVICE);
    REQUIRE(read_settings(), ERROR_INVALID_VALUE);
    read_visible(getenv("CUDA_VISIBLE_DEVICES"));
    for (int i = 0; i < sim.device_count; i++)
        sim.contexts[i].device = i;
    *(void **)&sim.poison = dlsym(RTLD_DEFAULT, "__asan_poison_memory_region");
    *(void **)&sim.unpoison = dlsym(RTLD_DEFAULT, "__asan_unpoison_memory_region");
    pthread_atfork(fork_prepare, fork_parent, fork_child);
    if (!strcmp(knob("IGNIS_SIM_LEAKS", "0"), "1"))
        atexit(report_leaks);
    introduce();
    if (getrandom(&sim.process, sizeof sim.process, 0) != sizeof sim.process)
        sim.process = (uint64_t)now() << 20 ^ (uint64_t)getpid();
    sim.ready = 1;
    return leave(sim.device_count ? SUCCESS : ERROR_NO_DEVICE);
}

SIM_API CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return (CUresult)ERROR_INVALID_VALUE;
    *version = 13000;
    return (CUresult)SUCCESS;
}

SIM_API CUresult cuGetErrorName(CUresult error, const char **text)
{
    if (!text)
        return (CUresult)ERROR_INVALID_VALUE;
    *text = code_name((int)error);
    return (CUresult)(*text ? SUCCESS : ERROR_INVALID_VALUE);
}

SIM_API CUresult cuGetErrorString(CUresult error, const char **text)
{
    if (!text)
        return (CUresult)ERROR_INVALID_VALUE;
    *text = code_sentence((int)error);
    return (CUresult)(*text ? SUCCESS : ERROR_INVALID_VALUE);
}

/* >>devices */

SIM_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    BEGIN(cuDeviceGet);
    REQUIRE(device, ERROR_INVALID_VALUE);
    REQUIRE(is_device(ordinal), ERROR_INVALID_DEVICE);
    *device = ordinal;
    return leave(SUCCESS);
}

SIM_API CUresult cuDeviceGetCount(int *count)
{
    BEGIN(cuDeviceGetCount);
    REQUIRE(count, ERROR_INVALID_VALUE);
    *count = sim.device_count;
    return leave(SUCCESS);
}

SIM_API CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    BEGIN(cuDeviceGetName);
    REQUIRE(name && length > 0, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)length, "Ignis Simulator (CPU)");
    return leave(SUCCESS);
}

SIM_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    BEGIN(cuDeviceTotalMem_v2);
    REQUIRE(bytes, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    *bytes = sim.memory;
    return leave(SUCCESS);
}

static int device_uuid(CUuuid *uuid, CUdevice device)
{
    if (!uuid)
        return ERROR_INVALID_VALUE;
    if (!is_device(device))
        return ERROR_INVALID_DEVICE;
    uuid_of(sim.contexts[device].number, (unsigned char *)uuid->bytes);
    return SUCCESS;
}

SIM_API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    BEGIN(cuDeviceGetUuid);
    return leave(device_uuid(uuid, device));
}

SIM_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    BEGIN(cuDeviceGetUuid_v2);
    return leave(device_uuid(uuid, device));
}

/* Real drivers have LUIDs on Windows alone. */
SIM_API CUresult cuDeviceGetLuid(char *luid, unsigned int *mask, CUdevice device)
{
    BEGIN(cuDeviceGetLuid);
    REQUIRE(luid && mask, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    REQUIRE(!strcmp(knob("IGNIS_SIM_LUID", "0"), "1"), ERROR_NOT_SUPPORTED);
    memcpy(luid, "simluid", 8);
    luid[7] = (char)('0' + sim.contexts[device].number);
    *mask = 1;
    return leave(SUCCESS);
}

SIM_API CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    BEGIN(cuDeviceGetPCIBusId);
    REQUIRE(id && length > 0, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    snprintf(id, (size_t)length, "0000:%02X:00.0", (unsigned)sim.contexts[device].number + 1);
    return leave(SUCCESS);
}

SIM_API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
    unsigned domain = 0, bus = 0;
    BEGIN(cuDeviceGetByPCIBusId);
    REQUIRE(device && id, ERROR_INVALID_VALUE);
    REQUIRE(sscanf(id, "%x:%x:", &domain, &bus) == 2, ERROR_INVALID_VALUE);
    int found = domain ? -1 : device_by_number((int)bus - 1);
    REQUIRE(found >= 0, ERROR_INVALID_DEVICE);
    *device = found;
    return leave(SUCCESS);
}

/* clang-format off */
/* Attributes `first` to `last`: sizes as an H200 has them, abilities as the simulator has them. */
static const struct { int first, last, value; } attributes[] = {
    {1, 1, MAX_THREADS}, {2, 3, 1024}, {4, 4, 64},      /* threads of a block: all, x and y, z */
    {5, 5, 0x7FFFFFFF}, {6, 7, 65535},                  /* blocks of a grid: x, y and z */
    {8, 8, SHARED_DEFAULT}, {9, 9, 65536},              /* shared memory of a block, constant memory */
    {10, 10, 32}, {11, 11, 0x7FFFFFFF}, {12, 12, 65536},/* warp size, pitch, registers of a block */
    {13, 13, 1980000}, {14, 14, 512}, {15, 15, 1},      /* clock in kHz, texture alignment, copies overlap */
    {16, 16, SM_COUNT}, {17, 18, 0}, {19, 19, 1}, {20, 20, 0},/* SMs; time limit, integrated; maps host memory; compute mode */
    {21, 29, 0}, {30, 30, 512}, {31, 31, 1}, {32, 32, 0},/* textures; surface alignment; concurrent kernels; ECC */
    {34, 35, 0}, {36, 36, 3201000}, {37, 37, 6016},     /* PCI device, TCC; memory clock in kHz, bus width */
    {38, 38, 60 << 20}, {39, 39, THREADS_PER_SM},       /* L2 bytes, threads of an SM */
    {40, 40, 3}, {41, 41, 1}, {42, 50, 0}, {51, 51, 32},/* copy engines, unified addresses; textures, PCI domain; pitch */
    {52, 74, 0}, {77, 77, 0}, {78, 80, 1},              /* textures and surfaces; priorities, L1 caches */
    {81, 81, SHARED_PER_SM}, {82, 82, 65536},           /* shared memory and registers of an SM */
    {83, 86, 0}, {87, 87, 2}, {88, 89, 0}, {90, 91, 1}, /* managed memory, boards; float to double; pageable; preemption */
    {92, 94, 0}, {95, 95, 1}, {96, 96, 0}, {97, 97, SHARED_OPTIN}, {98, 98, 0},   /* stream memory operations, cooperative launch; shared memory */
    {99, 99, 1}, {100, 101, 0}, {102, 103, 1}, {104, 105, 0}, {106, 106, BLOCKS_PER_SM}, /* host registration; virtual memory; blocks of an SM */
    {107, 110, 0}, {111, 111, SHARED_RESERVED},         /* compression, L2 policy, RDMA; reserved shared memory */
    {112, 119, 0}, {121, 121, 0}, {122, 123, 1}, {124, 124, 0}, {125, 125, 1}, {126, 129, 0}, {130, 131, 0}, {132, 147, 0}         /* pools, clusters, IPC events, tensor maps, multicast */
};
/* clang-format on */

static int attribute_value(int attribute, CUdevice device, int *out)
{
    switch (attribute) {
    case 33: *out = sim.contexts[device].number + 1; return SUCCESS; /* PCI bus */
    case 75: *out = sim.cc / 10; return SUCCESS;
    case 76: *out = sim.cc % 10; return SUCCESS;
    case 120: *out = sim.cc >= 90 && sim_has_clusters(); return SUCCESS;
    default: break;
    }
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attribute >= attributes[i].first && attribute <= attributes[i].last)
            return *out = attributes[i].value, SUCCESS;
    return ERROR_INVALID_VALUE;
}

SIM_API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    BEGIN(cuDeviceGetAttribute);
    REQUIRE(value, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    return leave(attribute_value((int)attribute, device, value));
}

SIM_API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    BEGIN(cuDeviceCanAccessPeer);
    REQUIRE(can, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device) && is_device(peer), ERROR_INVALID_DEVICE);
    *can = device != peer && devices_reach(sim.contexts[device].number, sim.contexts[peer].number);
    return leave(SUCCESS);
}

/* 1: rank of the link's speed, 0 is the best; 2: access, 3: atomics, 4: arrays, of which there are none; 5: only some atomics. */
SIM_API CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer)
{
    BEGIN(cuDeviceGetP2PAttribute);
    REQUIRE(value && (int)attribute >= 1 && (int)attribute <= 5, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device) && is_device(peer) && device != peer, ERROR_INVALID_DEVICE);
    int reach = devices_reach(sim.contexts[device].number, sim.contexts[peer].number);
    *value = ((int)attribute == 2 || (int)attribute == 3) && reach;
    return leave(SUCCESS);
}

/* >>primary contexts */

SIM_API CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    BEGIN(cuDevicePrimaryCtxRetain);
    REQUIRE(out, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    REQUIRE(!sim.error, sim.error);
    sim_context *context = &sim.contexts[device];
    int code = context->active ? SUCCESS : context_open(context);
    if (!code)
        context->references++, *out = context->handle;
    return leave(code);
}

SIM_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    BEGIN(cuDevicePrimaryCtxRelease_v2);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    sim_context *context = &sim.contexts[device];
    REQUIRE(context->references, ERROR_INVALID_CONTEXT);
    if (!--context->references)
        context_close(context);
    return leave(SUCCESS);
}

/* The references stay: whoever retained the context still has to release it. */
SIM_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    BEGIN(cuDevicePrimaryCtxReset_v2);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    context_close(&sim.contexts[device]);
    return leave(SUCCESS);
}

SIM_API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    BEGIN(cuDevicePrimaryCtxSetFlags_v2);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    sim.contexts[device].flags = flags;
    return leave(SUCCESS);
}

SIM_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    BEGIN(cuDevicePrimaryCtxGetState);
    REQUIRE(flags && active, ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), ERROR_INVALID_DEVICE);
    *flags = sim.contexts[device].flags;
    *active = sim.contexts[device].active;
    return leave(SUCCESS);
}

/* >>current context */

SIM_API CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
    BEGIN(cuCtxPushCurrent_v2);
    sim_context *context = handle_get(OBJECT_CONTEXT, handle);
    REQUIRE(context && thread.depth < MAX_DEPTH, ERROR_INVALID_CONTEXT);
    thread.stack[thread.depth++] = context;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    BEGIN(cuCtxPopCurrent_v2);
    REQUIRE(thread.depth, ERROR_INVALID_CONTEXT);
    if (out)
        *out = current()->handle;
    thread.depth--;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxSetCurrent(CUcontext handle)
{
    BEGIN(cuCtxSetCurrent);
    sim_context *context = handle_get(OBJECT_CONTEXT, handle);
    REQUIRE(context || !handle, ERROR_INVALID_CONTEXT);
    if (thread.depth)
        thread.depth--;
    if (context)
        thread.stack[thread.depth++] = context;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxGetCurrent(CUcontext *out)
{
    BEGIN(cuCtxGetCurrent);
    REQUIRE(out, ERROR_INVALID_VALUE);
    *out = current() ? current()->handle : NULL;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxGetDevice(CUdevice *device)
{
    BEGIN(cuCtxGetDevice);
    REQUIRE(device, ERROR_INVALID_VALUE);
    REQUIRE(current(), ERROR_INVALID_CONTEXT);
    *device = current()->device;
    return leave(SUCCESS);
}

enum { PRIORITY_LEAST = 0, PRIORITY_GREATEST = -5 };

SIM_API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    BEGIN(cuCtxGetStreamPriorityRange);
    if (least)
        *least = PRIORITY_LEAST;
    if (greatest)
        *greatest = PRIORITY_GREATEST;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxSynchronize(void)
{
    BEGIN(cuCtxSynchronize);
    sim_context *context = current();
    for (sim_stream *stream = context->streams; stream; stream = stream->next)
        if (stream->capture)
            return leave(capture_break(stream->capture, ERROR_STREAM_CAPTURE_UNSUPPORTED));
    int code = capture_forbids();
    return leave(code ? code : context_finish(context));
}

SIM_API CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags)
{
    BEGIN(cuCtxEnablePeerAccess);
    sim_context *peer = handle_get(OBJECT_CONTEXT, handle);
    REQUIRE(!flags, ERROR_INVALID_VALUE);
    REQUIRE(peer && peer->active, ERROR_INVALID_CONTEXT);
    REQUIRE(peer != current(), ERROR_INVALID_CONTEXT);
    REQUIRE(devices_reach(current()->number, peer->number), ERROR_PEER_ACCESS_UNSUPPORTED);
    REQUIRE(!(current()->peers & 1u << peer->device), ERROR_PEER_ACCESS_ALREADY_ENABLED);
    current()->peers |= 1u << peer->device;
    return leave(SUCCESS);
}

SIM_API CUresult cuCtxDisablePeerAccess(CUcontext handle)
{
    BEGIN(cuCtxDisablePeerAccess);
    sim_context *peer = handle_get(OBJECT_CONTEXT, handle);
    REQUIRE(peer, ERROR_INVALID_CONTEXT);
    REQUIRE(current()->peers & 1u << peer->device, ERROR_PEER_ACCESS_NOT_ENABLED);
    current()->peers &= ~(1u << peer->device);
    return leave(SUCCESS);
}

/* >>memory */

SIM_API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    BEGIN(cuMemAlloc_v2);
    sim_context *context = current();
    REQUIRE(out && bytes, ERROR_INVALID_VALUE);
    REQUIRE(bytes <= sim.memory && charged(bytes) <= memory_left(context), ERROR_OUT_OF_MEMORY);
    context->used += charged(bytes);
    sim_range *range = block_new(&context->arena, bytes, RANGE_DEVICE, context);
    if (range)
        *out = range->start;
    else
        context->used -= charged(bytes);
    return leave(range ? SUCCESS : ERROR_OUT_OF_MEMORY);
}

/* Waits for the device first: the block may be in use by queued work. */
SIM_API CUresult cuMemFree_v2(CUdeviceptr address)
{
    BEGIN(cuMemFree_v2);
    REQUIRE(address, SUCCESS);
    sim_range_kind kind = range_starting(address, RANGE_EXTERNAL) ? RANGE_EXTERNAL : RANGE_DEVICE;
    sim_range *range = range_starting(address, kind);
    REQUIRE(range, ERROR_INVALID_VALUE);
    int code = context_finish(range->context);
    REQUIRE(!code, code);
    range = range_starting(address, kind); /* another thread may have been faster */
    REQUIRE(range, ERROR_INVALID_VALUE);
    if (kind == RANGE_EXTERNAL) {
        external_unmap(range);
        return leave(SUCCESS);
    }
    range->context->used -= charged(range->size);
    return leave(block_delete(range));
}

SIM_API CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    BEGIN(cuMemGetInfo_v2);
    REQUIRE(available && total, ERROR_INVALID_VALUE);
    *available = memory_left(current());
    *total = sim.memory;
    return leave(SUCCESS);
}

SIM_API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    BEGIN(cuMemGetAddressRange_v2);
    sim_range *range = range_at((uintptr_t)address);
    REQUIRE(range, ERROR_NOT_FOUND);
    if (base)
        *base = range->start;
    if (size)
        *size = range->size;
    return leave(SUCCESS);
}

/* Values of CUpointer_attribute. */
enum {
    POINTER_CONTEXT = 1,
    POINTER_MEMORY_TYPE,
    POINTER_DEVICE_POINTER,
    POINTER_HOST_POINTER,
    POINTER_SYNC_MEMOPS = 6,
    POINTER_BUFFER_ID,
    POINTER_IS_MANAGED,
    POINTER_DEVICE_ORDINAL,
    POINTER_IPC_CAPABLE,
    POINTER_RANGE_START,
    POINTER_RANGE_SIZE,
    POINTER_MAPPED,
    POINTER_HANDLE_TYPES,
    POINTER_RDMA,
    POINTER_ACCESS,
    POINTER_POOL,
    POINTER_MAPPING_SIZE,
    POINTER_MAPPING_BASE,
    POINTER_BLOCK_ID
};

/* Bits of what the current device may do with it. */
static int pointer_access(const sim_range *range)
{
    int device = current() ? current()->device : range->context->device;
    return range->kind == RANGE_MAPPED ? range->access[device] : ACCESS_BOTH;
}

/* Write an attribute of `range`; of NULL, the value that says "not ours". Of reserved addresses, mapped or not, the range is
   the reservation. */
static int pointer_attribute(void *data, int attribute, sim_range *range, CUdeviceptr address)
{
    int device = range && is_device_memory(range), mapped = range && range->kind == RANGE_MAPPED;
    sim_reservation *reservation = reservation_at((uintptr_t)address);
    uintptr_t start = range ? range->start : 0;
    size_t size = range ? range->size : 0;
    CUdeviceptr known = range ? address : 0;
    switch (attribute) {
    case POINTER_CONTEXT: *(CUcontext *)data = range && !mapped ? range->context->handle : NULL; break;
    case POINTER_MEMORY_TYPE: *(unsigned *)data = range ? (device ? 2u : 1u) : 0u; break;
    case POINTER_DEVICE_POINTER: *(CUdeviceptr *)data = known; break;
    case POINTER_HOST_POINTER: *(void **)data = device ? NULL : (void *)(uintptr_t)known; break;
    case POINTER_SYNC_MEMOPS:
    case POINTER_RDMA:
    case POINTER_IS_MANAGED: *(unsigned *)data = 0; break;
    case POINTER_BUFFER_ID: *(unsigned long long *)data = range ? range->id : 0; break;
    case POINTER_DEVICE_ORDINAL: *(int *)data = !range ? -2 : mapped ? range->physical->device : range->context->device; break;
    case POINTER_IPC_CAPABLE: *(int *)data = range && range->kind == RANGE_DEVICE; break;
    case POINTER_RANGE_START: *(CUdeviceptr *)data = reservation ? reservation->start : start; break;
    case POINTER_RANGE_SIZE: *(size_t *)data = reservation ? reservation->size : size; break;
    case POINTER_MAPPED: *(int *)data = range != NULL; break;
    case POINTER_HANDLE_TYPES: *(unsigned long long *)data = mapped ? (unsigned long long)range->physical->types : 0; break;
    case POINTER_ACCESS: *(int *)data = range ? pointer_access(range) : 0; break;
    case POINTER_POOL: *(void **)data = NULL; break;
    case POINTER_MAPPING_SIZE: *(size_t *)data = size; break;
    case POINTER_MAPPING_BASE: *(CUdeviceptr *)data = start; break;
    case POINTER_BLOCK_ID: *(unsigned long long *)data = mapped ? range->physical->id : range ? range->id : 0; break;
    default: return ERROR_INVALID_VALUE;
    }
    return device || attribute != POINTER_HOST_POINTER || range ? SUCCESS : ERROR_INVALID_VALUE;
}

/* Reserved addresses without memory behind them have a range, and nothing else. */
static int pointer_is_known(int attribute, CUdeviceptr address)
{
    int of_addresses = attribute == POINTER_RANGE_START || attribute == POINTER_RANGE_SIZE || attribute == POINTER_MAPPED;
    return range_at((uintptr_t)address) || (of_addresses && reservation_at((uintptr_t)address));
}

SIM_API CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    BEGIN(cuPointerGetAttribute);
    sim_range *range = range_at((uintptr_t)address);
    REQUIRE(data && pointer_is_known((int)attribute, address), ERROR_INVALID_VALUE);
    REQUIRE((int)attribute != POINTER_HOST_POINTER || !is_device_memory(range), ERROR_INVALID_VALUE);
    return leave(pointer_attribute(data, (int)attribute, range, address));
}

SIM_API CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *which, void **data, CUdeviceptr address)
{
    int code = SUCCESS;
    BEGIN(cuPointerGetAttributes);
    REQUIRE(which && data, ERROR_INVALID_VALUE);
    sim_range *range = range_at((uintptr_t)address);
    for (unsigned i = 0; i < count && !code; i++) {
        code = pointer_attribute(data[i], (int)which[i], range, address);
        if ((int)which[i] == POINTER_HOST_POINTER)
            code = SUCCESS;
    }
    return leave(code);
}

enum { HOST_MAPPED = 2 }; /* with unified addresses all host memory is */

static int host_alloc(void **out, size_t bytes, unsigned flags)
{
    if (!out)
        return ERROR_INVALID_VALUE;
    *out = NULL;
    if (!bytes)
        return SUCCESS;
    sim_range *range = block_new(&sim.host_arena, bytes, RANGE_PINNED, current());
    if (range)
        *out = (void *)range->start, range->flags = flags | HOST_MAPPED;
    return range ? SUCCESS : ERROR_OUT_OF_MEMORY;
}

SIM_API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
    BEGIN(cuMemHostAlloc);
    REQUIRE(flags < 8, ERROR_INVALID_VALUE);
    return leave(host_alloc(out, bytes, flags));
}

SIM_API CUresult cuMemAllocHost_v2(void **out, size_t bytes)
{
    BEGIN(cuMemAllocHost_v2);
    return leave(host_alloc(out, bytes, 0));
}

/* Pinned memory may be in use by queued work of any device. */
static void finish_everything(void)
{
    for (int i = 0; i < sim.device_count; i++)
        if (sim.contexts[i].active)
            context_finish(&sim.contexts[i]);
}

SIM_API CUresult cuMemFreeHost(void *pointer)
{
    BEGIN(cuMemFreeHost);
    REQUIRE(pointer, SUCCESS);
    REQUIRE(range_starting((uintptr_t)pointer, RANGE_PINNED), ERROR_INVALID_VALUE);
    finish_everything();
    sim_range *range = range_starting((uintptr_t)pointer, RANGE_PINNED);
    REQUIRE(range, ERROR_INVALID_VALUE);
    return leave(block_delete(range));
}

SIM_API CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
    BEGIN(cuMemHostRegister_v2);
    uintptr_t start = (uintptr_t)pointer;
    REQUIRE(pointer && bytes && flags < 16, ERROR_INVALID_VALUE);
    size_t next = range_after(start);
    int overlaps = range_at(start) || (next < sim.range_count && sim.ranges[next]->start - start < bytes);
    REQUIRE(!overlaps, ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    REQUIRE(!arena_at(start) && !reservation_at(start), ERROR_INVALID_VALUE);
    sim_range *range = range_new(start, bytes, RANGE_REGISTERED, current());
    REQUIRE(range, ERROR_OUT_OF_MEMORY);
    range->flags = flags | HOST_MAPPED;
    return leave(SUCCESS);
}

SIM_API CUresult cuMemHostUnregister(void *pointer)
{
    BEGIN(cuMemHostUnregister);
    REQUIRE(range_at((uintptr_t)pointer), ERROR_HOST_MEMORY_NOT_REGISTERED);
    REQUIRE(range_starting((uintptr_t)pointer, RANGE_REGISTERED), ERROR_INVALID_VALUE);
    finish_everything();
    sim_range *range = range_starting((uintptr_t)pointer, RANGE_REGISTERED);
    REQUIRE(range, ERROR_HOST_MEMORY_NOT_REGISTERED);
    range_delete(range);
    return leave(SUCCESS);
}

SIM_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *pointer, unsigned int flags)
{
    BEGIN(cuMemHostGetDevicePointer_v2);
    sim_range *range = range_at((uintptr_t)pointer);
    REQUIRE(out && !flags && range && !is_device_memory(range), ERROR_INVALID_VALUE);
    *out = (CUdeviceptr)(uintptr_t)pointer;
    return leave(SUCCESS);
}

SIM_API CUresult cuMemHostGetFlags(unsigned int *out, void *pointer)
{
    BEGIN(cuMemHostGetFlags);
    sim_range *range = range_at((uintptr_t)pointer);
    REQUIRE(out && range && !is_device_memory(range), ERROR_INVALID_VALUE);
    *out = range->flags;
    return leave(SUCCESS);
}

/* >>virtual memory: physical memory, reserved addresses, and mappings of one at the other */

/* Values of CUmemAllocationType, CUmemLocationType and CUmemAllocationHandleType. */
enum { MEMORY_PINNED = 1, LOCATION_DEVICE = 1, HANDLE_FILE = 1, HANDLE_TYPES = 15 };

/* Stands in the page behind the data of every such file: how an import knows a file for one of ours. */
typedef struct sim_mark {
    char magic[24];
    uint32_t device, types; /* the device's number on the machine */
    uint64_t size;
} sim_mark;

static const char memory_magic[24] = "ignis-sim-memory-1";

static int check_properties(const CUmemAllocationProp *properties)
{
    int types = (int)properties->requestedHandleTypes;
    if ((int)properties->type != MEMORY_PINNED || types & ~HANDLE_TYPES || properties->win32HandleMetaData)
        return ERROR_INVALID_VALUE;
    if ((int)properties->location.type != LOCATION_DEVICE || types & ~HANDLE_FILE || properties->allocFlags.gpuDirectRDMACapable)
        return ERROR_NOT_SUPPORTED;
    return is_device(properties->location.id) ? SUCCESS : ERROR_INVALID_DEVICE;
}

static int is_multiple(unsigned long long value) { return value && !(value % granularity); }

/* A file of `size` bytes and the mark, that can no longer change its size. -1: not possible. */
static int memory_file(size_t size, const sim_mark *mark)
{
    int file = memfd_create("ignis-sim-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return -1;
    size_t filled = size < fill_limit ? size : fill_limit;
    void *data = ftruncate(file, (off_t)(size + page)) ? MAP_FAILED : mmap(NULL, filled, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (data == MAP_FAILED || pwrite(file, mark, sizeof *mark, (off_t)size) != sizeof *mark || fcntl(file, F_ADD_SEALS, FIXED_SIZE)) {
        close(file);
        return -1;
    }
    memset(data, 0xFF, filled);
    munmap(data, filled);
    return file;
}

/* Takes over the file. */
static int physical_new(CUmemGenericAllocationHandle *out, int file, const sim_mark *mark, sim_context *charge_to)
{
    sim_physical *physical = calloc(1, sizeof *physical);
    if (physical)
        physical->handle = handle_new(OBJECT_PHYSICAL, physical, NULL);
    if (!physical || !physical->handle) {
        free(physical);
        close(file);
        return ERROR_OUT_OF_MEMORY;
    }
    physical->handles = 1;
    physical->file = file;
    physical->size = (size_t)mark->size;
    physical->types = (int)mark->types;
    physical->device = device_by_number((int)mark->device);
    physical->charged = charge_to;
    physical->id = ++sim.next_id;
    if (charge_to)
        charge_to->created += physical->size;
    sim.physicals++;
    sim.imports += !charge_to;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)physical->handle;
    return SUCCESS;
}

static void physical_release(sim_physical *physical)
{
    if (physical->handles || physical->mappings)
        return;
    if (physical->charged)
        physical->charged->created -= physical->size;
    sim.physicals--;
    sim.imports -= !physical->charged;
    close(physical->file);
    free(physical);
}

static sim_physical *physical_get(CUmemGenericAllocationHandle handle)
{
    return handle_get(OBJECT_PHYSICAL, (const void *)(uintptr_t)handle);
}

SIM_API CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags option)
{
    BEGIN(cuMemGetAllocationGranularity);
    REQUIRE(out && properties && ((int)option == 0 || (int)option == 1), ERROR_INVALID_VALUE);
    int code = check_properties(properties);
    REQUIRE(!code, code);
    *out = granularity;
    return leave(SUCCESS);
}

SIM_API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *properties,
                             unsigned long long flags)
{
    BEGIN(cuMemCreate);
    REQUIRE(out && properties && !flags && is_multiple(size), ERROR_INVALID_VALUE);
    int code = check_properties(properties);
    REQUIRE(!code, code);
    sim_context *context = &sim.contexts[properties->location.id];
    REQUIRE(size <= memory_left(context), ERROR_OUT_OF_MEMORY);
    sim_mark mark = {.device = (uint32_t)context->number, .types = (uint32_t)properties->requestedHandleTypes, .size = size};
    memcpy(mark.magic, memory_magic, sizeof mark.magic);
    int file = memory_file(size, &mark);
    REQUIRE(file >= 0, ERROR_OUT_OF_MEMORY);
    return leave(physical_new(out, file, &mark, context));
}

SIM_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    BEGIN(cuMemRelease);
    sim_physical *physical = physical_get(handle);
    REQUIRE(physical, ERROR_INVALID_VALUE);
    if (!--physical->handles) {
        handle_drop(physical->handle);
        physical->handle = NULL;
    }
    physical_release(physical);
    return leave(SUCCESS);
}

SIM_API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    BEGIN(cuMemRetainAllocationHandle);
    sim_range *range = range_at((uintptr_t)address);
    REQUIRE(out && range && range->kind == RANGE_MAPPED, ERROR_INVALID_VALUE);
    sim_physical *physical = range->physical;
    if (!physical->handle)
        physical->handle = handle_new(OBJECT_PHYSICAL, physical, NULL);
    REQUIRE(physical->handle, ERROR_OUT_OF_MEMORY);
    physical->handles++;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)physical->handle;
    return leave(SUCCESS);
}

SIM_API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle)
{
    BEGIN(cuMemGetAllocationPropertiesFromHandle);
    sim_physical *physical = physical_get(handle);
    REQUIRE(out && physical, ERROR_INVALID_VALUE);
    memset(out, 0, sizeof *out);
    out->type = MEMORY_PINNED;
    out->requestedHandleTypes = physical->types;
    out->location.type = LOCATION_DEVICE;
    out->location.id = physical->device;
    return leave(SUCCESS);
}

/* The descriptor is the caller's, to pass on and to close. */
SIM_API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                              unsigned long long flags)
{
    BEGIN(cuMemExportToShareableHandle);
    sim_physical *physical = physical_get(handle);
    REQUIRE(out && physical && !flags && (int)type == HANDLE_FILE && physical->types & HANDLE_FILE, ERROR_INVALID_VALUE);
    int file = fcntl(physical->file, F_DUPFD_CLOEXEC, 0);
    REQUIRE(file >= 0, ERROR_OPERATING_SYSTEM);
    *(int *)out = file;
    return leave(SUCCESS);
}

/* Only a file that can no longer change its size may be trusted with a mapping: a shorter one would kill the reader. */
static int read_mark(int file, sim_mark *mark)
{
    struct stat facts;
    int seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || (seals & FIXED_SIZE) != FIXED_SIZE || fstat(file, &facts) || facts.st_size <= (off_t)page)
        return 0;
    off_t size = facts.st_size - (off_t)page;
    return pread(file, mark, sizeof *mark, size) == sizeof *mark && !memcmp(mark->magic, memory_magic, sizeof mark->magic) &&
           mark->size == (uint64_t)size && is_multiple(mark->size) && mark->device < MAX_DEVICES && mark->types & HANDLE_FILE;
}

/* The descriptor stays the caller's. Every import has to be released for itself. */
SIM_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *handle, CUmemAllocationHandleType type)
{
    sim_mark mark;
    BEGIN(cuMemImportFromShareableHandle);
    intptr_t given = (intptr_t)handle;
    REQUIRE(out && (int)type == HANDLE_FILE && given >= 0 && given <= 0x7FFFFFFF, ERROR_INVALID_VALUE);
    int file = fcntl((int)given, F_DUPFD_CLOEXEC, 0);
    REQUIRE(file >= 0, ERROR_INVALID_VALUE);
    if (!read_mark(file, &mark))
        return close(file), leave(ERROR_INVALID_VALUE);
    return leave(physical_new(out, file, &mark, NULL));
}

/* Addresses that nothing else uses, with a gap behind them. */
static uintptr_t reserve(uintptr_t wish, size_t size, size_t alignment)
{
    size_t span = size + page, slack = alignment > page ? alignment : 0;
    enum { FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };
    void *exact = wish ? mmap((void *)wish, span, PROT_NONE, FLAGS | MAP_FIXED_NOREPLACE, -1, 0) : MAP_FAILED;
    if (exact == (void *)wish)
        return wish;
    if (exact != MAP_FAILED)
        munmap(exact, span);
    void *base = mmap(NULL, span + slack, PROT_NONE, FLAGS, -1, 0);
    if (base == MAP_FAILED)
        return 0;
    uintptr_t start = round_up((uintptr_t)base, alignment), end = (uintptr_t)base + span + slack;
    if (start > (uintptr_t)base)
        munmap(base, start - (uintptr_t)base);
    if (end > start + span)
        munmap((void *)(start + span), end - start - span);
    return start;
}

SIM_API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags)
{
    BEGIN(cuMemAddressReserve);
    REQUIRE(out && !flags && is_multiple(size) && !(alignment & (alignment - 1)), ERROR_INVALID_VALUE);
    REQUIRE(size < (size_t)1 << 46 && alignment < (size_t)1 << 46, ERROR_OUT_OF_MEMORY);
    if (alignment < granularity)
        alignment = granularity;
    sim_reservation *reservation = calloc(1, sizeof *reservation);
    REQUIRE(reservation, ERROR_OUT_OF_MEMORY);
    reservation->size = size;
    reservation->start = reserve(wish % alignment ? 0 : (uintptr_t)wish, size, alignment);
    if (!reservation->start)
        return free(reservation), leave(ERROR_OUT_OF_MEMORY);
    reservation->next = sim.reservations;
    sim.reservations = reservation;
    *out = reservation->start;
    return leave(SUCCESS);
}

/* Does any mapped range lie in these addresses? */
static int any_mapped(uintptr_t start, size_t size)
{
    size_t next = range_after(start);
    return range_at(start) || (next < sim.range_count && sim.ranges[next]->start - start < size);
}

SIM_API CUresult cuMemAddressFree(CUdeviceptr start, size_t size)
{
    BEGIN(cuMemAddressFree);
    sim_reservation **link = &sim.reservations, *reservation;
    while (*link && (*link)->start != start)
        link = &(*link)->next;
    reservation = *link;
    REQUIRE(reservation && reservation->size == size && !any_mapped((uintptr_t)start, size), ERROR_INVALID_VALUE);
    *link = reservation->next;
    munmap((void *)reservation->start, size + page);
    free(reservation);
    return leave(SUCCESS);
}

/* Nobody may touch it before cuMemSetAccess. */
SIM_API CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    BEGIN(cuMemMap);
    uintptr_t start = (uintptr_t)address;
    sim_physical *physical = physical_get(handle);
    sim_reservation *reservation = reservation_at(start);
    REQUIRE(physical && reservation && !flags && !offset && size == physical->size && !(start % granularity), ERROR_INVALID_VALUE);
    REQUIRE(size <= reservation->size - (start - reservation->start) && !any_mapped(start, size), ERROR_INVALID_VALUE);
    sim_range *range = range_new(start, size, RANGE_MAPPED, &sim.contexts[physical->device < 0 ? 0 : physical->device]);
    REQUIRE(range, ERROR_OUT_OF_MEMORY);
    if (mmap((void *)start, size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, physical->file, 0) == MAP_FAILED)
        return range_delete(range), leave(ERROR_OUT_OF_MEMORY);
    range->physical = physical;
    physical->mappings++;
    return leave(SUCCESS);
}

/* Are these the addresses of whole mappings, one behind the other? */
static int whole_mappings(uintptr_t start, size_t size)
{
    while (size) {
        sim_range *range = range_starting(start, RANGE_MAPPED);
        if (!range || range->size > size)
            return 0;
        start += range->size;
        size -= range->size;
    }
    return 1;
}

/* Waits for nothing: who unmaps memory in use gets faults, as from the real one. */
SIM_API CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    BEGIN(cuMemUnmap);
    uintptr_t start = (uintptr_t)address, end = start + size;
    REQUIRE(size && whole_mappings(start, size), ERROR_INVALID_VALUE);
    while (start < end) {
        sim_range *range = range_starting(start, RANGE_MAPPED);
        sim_physical *physical = range->physical;
        mmap((void *)start, range->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        start += range->size;
        range_delete(range);
        physical->mappings--;
        physical_release(physical);
    }
    return leave(SUCCESS);
}

/* The devices share the process's mapping: it allows what any of them may do. */
static int range_protect(const sim_range *range)
{
    int can_read = range_allows(range, EVERY_DEVICE, ACCESS_READ), can_write = range_allows(range, EVERY_DEVICE, ACCESS_WRITE);
    return !mprotect((void *)range->start, range->size, (can_read ? PROT_READ : 0) | (can_write ? PROT_WRITE : 0));
}

static int check_access(const CUmemAccessDesc *wanted, uintptr_t start, size_t size)
{
    int flags = (int)wanted->flags, device = wanted->location.id;
    if ((int)wanted->location.type != LOCATION_DEVICE)
        return ERROR_NOT_SUPPORTED;
    if (flags != 0 && flags != ACCESS_READ && flags != ACCESS_BOTH)
        return ERROR_INVALID_VALUE;
    if (!is_device(device))
        return ERROR_INVALID_DEVICE;
    for (uintptr_t at = start; at < start + size; at += range_at(at)->size) {
        int owner = range_at(at)->physical->device;
        if (owner >= 0 && owner != device && !devices_reach(sim.contexts[owner].number, sim.contexts[device].number))
            return ERROR_INVALID_DEVICE;
    }
    return SUCCESS;
}

SIM_API CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *wanted, size_t count)
{
    BEGIN(cuMemSetAccess);
    uintptr_t start = (uintptr_t)address;
    REQUIRE(wanted && count && size && whole_mappings(start, size), ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        int code = check_access(&wanted[i], start, size);
        REQUIRE(!code, code);
    }
    for (uintptr_t at = start; at < start + size;) {
        sim_range *range = range_at(at);
        for (size_t i = 0; i < count; i++)
            range->access[wanted[i].location.id] = (unsigned char)wanted[i].flags;
        REQUIRE(range_protect(range), ERROR_OUT_OF_MEMORY);
        at += range->size;
    }
    return leave(SUCCESS);
}

SIM_API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    BEGIN(cuMemGetAccess);
    sim_range *range = range_at((uintptr_t)address);
    REQUIRE(flags && location && range && range->kind == RANGE_MAPPED, ERROR_INVALID_VALUE);
    REQUIRE((int)location->type == LOCATION_DEVICE, ERROR_NOT_SUPPORTED);
    REQUIRE(is_device(location->id), ERROR_INVALID_DEVICE);
    *flags = range->access[location->id];
    return leave(SUCCESS);
}

/* >>handles for other processes: the open file that holds a thing, and the ticket that has to stand there */

static uint64_t ticket_check(const sim_ticket *ticket)
{
    uint64_t sum = 0xCBF29CE484222325u;
    const unsigned char *bytes = (const unsigned char *)ticket;
    for (size_t i = 0; i < offsetof(sim_ticket, check); i++)
        sum = (sum ^ bytes[i]) * 0x100000001B3u;
    return sum;
}

static const char ticket_magic[8] = "ignisim1";

static sim_ticket ticket_new(int file, size_t offset, size_t size, int device)
{
    sim_ticket ticket = {.process = sim.process,
                         .id = ++sim.next_id,
                         .offset = offset,
                         .size = size,
                         .pid = (int32_t)getpid(),
                         .file = file,
                         .device = (uint32_t)device};
    memcpy(ticket.magic, ticket_magic, sizeof ticket.magic);
    ticket.check = ticket_check(&ticket);
    return ticket;
}

/* Open the file that a handle names, if it is one, and of another process. What it holds is still to be looked at. */
static int ticket_open(const void *handle, sim_ticket *ticket, const char *name, int *file)
{
    char path[64], target[128], wanted[64];
    struct stat facts;
    memcpy(ticket, handle, sizeof *ticket);
    if (memcmp(ticket->magic, ticket_magic, sizeof ticket->magic) || ticket->check != ticket_check(ticket))
        return ERROR_INVALID_VALUE;
    if (ticket->process == sim.process)
        return ERROR_INVALID_CONTEXT;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)ticket->pid, (int)ticket->file);
    snprintf(wanted, sizeof wanted, "/memfd:%s", name);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0 || (size_t)length < strlen(wanted) || memcmp(target, wanted, strlen(wanted)))
        return ERROR_MAP_FAILED;
    *file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (*file < 0)
        return ERROR_MAP_FAILED;
    int seals = fcntl(*file, F_GET_SEALS);
    int fixed = seals >= 0 && (seals & FIXED_SIZE) == FIXED_SIZE && !fstat(*file, &facts);
    if (fixed && ticket->offset <= (uint64_t)facts.st_size && ticket->size <= (uint64_t)facts.st_size - ticket->offset)
        return SUCCESS;
    close(*file);
    return ERROR_MAP_FAILED;
}

static int ticket_stands(const sim_ticket *ticket, int file, size_t offset)
{
    sim_ticket found;
    return pread(file, &found, sizeof found, (off_t)offset) == sizeof found && !memcmp(&found, ticket, sizeof found);
}

/* Always of the whole block. The ticket stands in the gap behind it, in the file only, and goes with the block. */
SIM_API CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
    BEGIN(cuIpcGetMemHandle);
    sim_range *range = range_at((uintptr_t)address);
    REQUIRE(out && range && range->kind == RANGE_DEVICE, ERROR_INVALID_VALUE);
    size_t offset = range->start - range->arena->base, gap = offset + range->span - page;
    sim_ticket ticket;
    if (!range->exported) {
        ticket = ticket_new(range->arena->file, offset, range->size, range->context->number);
        REQUIRE(pwrite(range->arena->file, &ticket, sizeof ticket, (off_t)gap) == sizeof ticket, ERROR_OUT_OF_MEMORY);
        range->exported = 1;
    }
    REQUIRE(pread(range->arena->file, &ticket, sizeof ticket, (off_t)gap) == sizeof ticket, ERROR_MAP_FAILED);
    memcpy(out, &ticket, sizeof *out);
    return leave(SUCCESS);
}

static sim_range *import_find(const sim_ticket *ticket)
{
    for (size_t i = 0; i < sim.range_count; i++)
        if (sim.ranges[i]->import && sim.ranges[i]->context == current() && !memcmp(&sim.ranges[i]->import->ticket, ticket, sizeof *ticket))
            return sim.ranges[i];
    return NULL;
}

/* Map the block, with a gap behind it. */
static sim_range *import_map(const sim_ticket *ticket, int file)
{
    size_t size = (size_t)ticket->size, usable = round_up(size, page);
    sim_import *import = calloc(1, sizeof *import);
    uintptr_t start = import ? reserve(0, usable, page) : 0;
    sim_range *range = start ? range_new(start, size, RANGE_IMPORTED, current()) : NULL;
    if (range && mmap((void *)start, usable, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, (off_t)ticket->offset) !=
                     MAP_FAILED) {
        *import = (sim_import){.ticket = *ticket, .span = usable + page};
        range->import = import;
        return range;
    }
    if (range)
        range_delete(range);
    if (start)
        munmap((void *)start, usable + page);
    free(import);
    return NULL;
}

SIM_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    BEGIN(cuIpcOpenMemHandle_v2);
    sim_ticket ticket;
    int file = -1;
    REQUIRE(out && flags == 1, ERROR_INVALID_VALUE); /* 1: enable peer access as needed */
    int code = ticket_open(&handle, &ticket, "ignis-sim-device", &file);
    REQUIRE(!code, code);
    sim_range *range = NULL;
    if (ticket.offset % page || !ticket_stands(&ticket, file, (size_t)(ticket.offset + round_up((size_t)ticket.size, page))))
        code = ERROR_MAP_FAILED; /* freed meanwhile */
    else if (!devices_reach(current()->number, (int)ticket.device))
        code = ERROR_PEER_ACCESS_UNSUPPORTED;
    else if (!(range = import_find(&ticket)) && !(range = import_map(&ticket, file)))
        code = ERROR_OUT_OF_MEMORY;
    close(file);
    REQUIRE(!code, code);
    range->import->opened++;
    *out = range->start;
    return leave(SUCCESS);
}

static void import_delete(sim_range *range)
{
    munmap((void *)range->start, range->import->span);
    free(range->import);
    range_delete(range);
}

/* Waits for nothing, like cuMemUnmap. */
SIM_API CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    BEGIN(cuIpcCloseMemHandle);
    sim_range *range = range_starting(address, RANGE_IMPORTED);
    REQUIRE(range, ERROR_INVALID_VALUE);
    if (!--range->import->opened)
        import_delete(range);
    return leave(SUCCESS);
}

/* >>graphics: memory and timelines that another API has exported, and OpenGL. The exporter is played by a file each, which a test makes by the
   functions at the end of this file, or itself by memfd_create. */

/* Values of CUexternalMemoryHandleType, CUexternalSemaphoreHandleType and CUgraphicsRegisterFlags. */
enum { EXTERNAL_FD = 1, EXTERNAL_DEDICATED = 1, SEMAPHORE_TIMELINE_FD = 9, REGISTER_WRITE_DISCARD = 2 };

static const char timeline_magic[16] = "ignis-timeline-1";

/* Where memory begins in a file of memfd_create, and how large it is. Mesa's Vulkan for CPUs has a header ahead of it, which says how long the
   whole file is and where the memory begins, and whose length follows at the end. */
static off_t external_size(int file, off_t whole, off_t *offset)
{
    enum { MESA_HEADER = 40 };
    char path[64], target[128];
    uint64_t header[2];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    *offset = 0;
    if (strncmp(target, "/memfd:llvmpipe memory", 22) || pread(file, header, sizeof header, 0) != sizeof header ||
        header[0] != (uint64_t)whole || header[1] % page || header[1] + MESA_HEADER > header[0])
        return whole;
    *offset = (off_t)header[1];
    return whole - *offset - MESA_HEADER;
}

/* Takes over the descriptor when it succeeds, as a driver does. The size is the file's, and no other. */
SIM_API CUresult cuImportExternalMemory(CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    BEGIN(cuImportExternalMemory);
    struct stat facts;
    REQUIRE(out && desc && !(desc->flags & ~(unsigned)EXTERNAL_DEDICATED), ERROR_INVALID_VALUE);
    REQUIRE((int)desc->type == EXTERNAL_FD, ERROR_NOT_SUPPORTED);
    REQUIRE(!fstat(desc->handle.fd, &facts) && S_ISREG(facts.st_mode), ERROR_INVALID_HANDLE);
    off_t offset, size = external_size(desc->handle.fd, facts.st_size, &offset);
    if ((off_t)desc->size != size)
        say("memory of %lld bytes is imported as one of %llu", (long long)size, desc->size);
    REQUIRE(desc->size && (off_t)desc->size == size, ERROR_INVALID_VALUE);
    sim_external *external = calloc(1, sizeof *external);
    if (external)
        external->handle = handle_new(OBJECT_EXTERNAL, external, current());
    if (!external || !external->handle) {
        free(external);
        return leave(ERROR_OUT_OF_MEMORY);
    }
    external->file = desc->handle.fd;
    external->size = (size_t)desc->size;
    external->offset = offset;
    *out = external->handle;
    return leave(SUCCESS);
}

/* Maps a file, with a gap behind it, at an address that was never used. */
static sim_range *file_map(int file, off_t offset, size_t size, sim_range_kind kind)
{
    size_t usable = round_up(size, page);
    uintptr_t start = reserve(0, usable, page);
    sim_range *range = start ? range_new(start, size, kind, current()) : NULL;
    if (range && mmap((void *)start, usable, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, offset) != MAP_FAILED)
        return range;
    if (range)
        range_delete(range);
    if (start)
        munmap((void *)start, usable + page);
    return NULL;
}

/* The addresses stay taken, so that a late access is seen; they are remembered as those of a freed block. */
static void file_unmap(sim_range *range)
{
    size_t usable = round_up(range->size, page);
    unsigned at = sim.freed_count++ % REMEMBERED_BLOCKS;
    mmap((void *)range->start, usable, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    sim.freed[at].start = range->start;
    sim.freed[at].size = range->size;
    range_delete(range);
}

SIM_API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, CUexternalMemory handle, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
    BEGIN(cuExternalMemoryGetMappedBuffer);
    sim_external *external = handle_get(OBJECT_EXTERNAL, handle);
    REQUIRE(external, ERROR_INVALID_HANDLE);
    REQUIRE(out && desc && !desc->flags && desc->size && !desc->offset && desc->size <= external->size, ERROR_INVALID_VALUE);
    sim_range *range = file_map(external->file, external->offset, (size_t)desc->size, RANGE_EXTERNAL);
    REQUIRE(range, ERROR_OUT_OF_MEMORY);
    range->external = external;
    external->mappings++;
    *out = range->start;
    return leave(SUCCESS);
}

static void external_unmap(sim_range *range)
{
    range->external->mappings--;
    file_unmap(range);
}

static void external_delete(sim_external *external)
{
    close(external->file);
    handle_drop(external->handle);
    free(external);
}

/* A driver leaves the mapping behind for ever. */
SIM_API CUresult cuDestroyExternalMemory(CUexternalMemory handle)
{
    BEGIN(cuDestroyExternalMemory);
    sim_external *external = handle_get(OBJECT_EXTERNAL, handle);
    REQUIRE(external, ERROR_INVALID_HANDLE);
    if (external->mappings)
        say("external memory is destroyed while it is mapped: cuMemFree comes first");
    REQUIRE(!external->mappings, ERROR_ILLEGAL_STATE);
    external_delete(external);
    return leave(SUCCESS);
}

/* After its mappings are gone. */
static void context_drop_externals(sim_context *context)
{
    for (uint32_t i = 1; i < sim.slot_count; i++)
        if (sim.slots[i].context == context && sim.slots[i].kind == OBJECT_EXTERNAL)
            external_delete(sim.slots[i].object);
}

SIM_API CUresult cuImportExternalSemaphore(CUexternalSemaphore *out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc)
{
    BEGIN(cuImportExternalSemaphore);
    struct stat facts;
    REQUIRE(out && desc && !desc->flags, ERROR_INVALID_VALUE);
    REQUIRE((int)desc->type == SEMAPHORE_TIMELINE_FD, ERROR_NOT_SUPPORTED);
    REQUIRE(!fstat(desc->handle.fd, &facts) && S_ISREG(facts.st_mode) && facts.st_size == (off_t)page, ERROR_INVALID_HANDLE);
    sim_timeline *timeline = calloc(1, sizeof *timeline);
    void *shown = timeline ? mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, desc->handle.fd, 0) : MAP_FAILED;
    int code = shown == MAP_FAILED ? ERROR_OUT_OF_MEMORY : SUCCESS;
    if (!code && memcmp(((sim_timeline_page *)shown)->magic, timeline_magic, sizeof timeline_magic))
        code = ERROR_INVALID_HANDLE;
    if (!code)
        timeline->handle = handle_new(OBJECT_TIMELINE, timeline, current());
    if (code || !timeline->handle) {
        if (shown != MAP_FAILED)
            munmap(shown, page);
        free(timeline);
        return leave(code ? code : ERROR_OUT_OF_MEMORY);
    }
    timeline->references = 1;
    timeline->file = desc->handle.fd;
    timeline->page = shown;
    timeline->context = current();
    *out = timeline->handle;
    return leave(SUCCESS);
}

static int timeline_queue(const CUexternalSemaphore *handles, const uint64_t *values, unsigned count, CUstream stream_handle,
                          sim_work_kind kind)
{
    sim_stream *stream;
    int code = stream_find(stream_handle, &stream);
    if (!code && stream->capture)
        return ERROR_NOT_SUPPORTED; /* a driver makes a node of it, with the same value at each launch */
    for (unsigned i = 0; i < count && !code; i++) {
        sim_timeline *timeline = handle_get(OBJECT_TIMELINE, handles[i]);
        if (!timeline || timeline->context != stream->context)
            return ERROR_INVALID_HANDLE;
        timeline->references++;
        timeline->pending++;
        code = submit(stream, (sim_work){.kind = kind, .timeline = timeline, .value = values[i]}, NULL, NULL);
        timeline->pending -= code != SUCCESS;
    }
    return code;
}

enum { MAX_TIMELINES = 16 }; /* of one call */

SIM_API CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *handles, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
                                                 unsigned int count, CUstream stream)
{
    uint64_t values[MAX_TIMELINES];
    BEGIN(cuSignalExternalSemaphoresAsync);
    REQUIRE(handles && params && count <= MAX_TIMELINES, ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++)
        values[i] = params[i].params.fence.value;
    return leave(timeline_queue(handles, values, count, stream, WORK_RAISE));
}

SIM_API CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *handles, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
                                               unsigned int count, CUstream stream)
{
    uint64_t values[MAX_TIMELINES];
    BEGIN(cuWaitExternalSemaphoresAsync);
    REQUIRE(handles && params && count <= MAX_TIMELINES, ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < count; i++)
        values[i] = params[i].params.fence.value;
    return leave(timeline_queue(handles, values, count, stream, WORK_REACH));
}

static void timeline_delete(sim_timeline *timeline)
{
    handle_drop(timeline->handle);
    timeline_release(timeline);
}

/* A driver's behaviour is undefined then. */
SIM_API CUresult cuDestroyExternalSemaphore(CUexternalSemaphore handle)
{
    BEGIN(cuDestroyExternalSemaphore);
    sim_timeline *timeline = handle_get(OBJECT_TIMELINE, handle);
    REQUIRE(timeline, ERROR_INVALID_HANDLE);
    if (timeline->pending)
        say("a timeline is destroyed while %d wait(s) or signal(s) of it are queued", timeline->pending);
    REQUIRE(!timeline->pending, ERROR_ILLEGAL_STATE);
    timeline_delete(timeline);
    return leave(SUCCESS);
}

static sim_gl_buffer *gl_find(unsigned name)
{
    sim_gl_buffer *buffer = sim.gl_buffers;
    while (buffer && buffer->name != name)
        buffer = buffer->next;
    return buffer;
}

SIM_API CUresult cuGraphicsGLRegisterBuffer(CUgraphicsResource *out, unsigned int name, unsigned int flags)
{
    BEGIN(cuGraphicsGLRegisterBuffer);
    REQUIRE(out && flags <= REGISTER_WRITE_DISCARD, ERROR_INVALID_VALUE);
    REQUIRE(thread.gl, ERROR_INVALID_GRAPHICS_CONTEXT);
    sim_gl_buffer *buffer = gl_find(name);
    REQUIRE(buffer && !buffer->resource, buffer ? ERROR_UNKNOWN : ERROR_INVALID_VALUE);
    sim_resource *resource = calloc(1, sizeof *resource);
    if (resource)
        resource->handle = handle_new(OBJECT_RESOURCE, resource, current());
    if (!resource || !resource->handle) {
        free(resource);
        return leave(ERROR_OUT_OF_MEMORY);
    }
    resource->buffer = buffer;
    resource->context = current();
    buffer->resource = resource;
    *out = resource->handle;
    return leave(SUCCESS);
}

static void resource_unmap(sim_resource *resource)
{
    file_unmap(resource->range);
    resource->range = NULL;
}

static void resource_delete(sim_resource *resource)
{
    if (resource->range)
        resource_unmap(resource);
    if (resource->buffer)
        resource->buffer->resource = NULL;
    handle_drop(resource->handle);
    free(resource);
}

SIM_API CUresult cuGraphicsUnregisterResource(CUgraphicsResource handle)
{
    BEGIN(cuGraphicsUnregisterResource);
    sim_resource *resource = handle_get(OBJECT_RESOURCE, handle);
    REQUIRE(resource, ERROR_INVALID_HANDLE);
    if (resource->range)
        say("an OpenGL buffer is unregistered while it is mapped");
    REQUIRE(!resource->range, ERROR_ILLEGAL_STATE);
    resource_delete(resource);
    return leave(SUCCESS);
}

/* Each mapping is at an address of its own, as a driver may have it. */
SIM_API CUresult cuGraphicsMapResources(unsigned int count, CUgraphicsResource *handles, CUstream stream_handle)
{
    sim_stream *stream;
    BEGIN(cuGraphicsMapResources);
    REQUIRE(count == 1 && handles, ERROR_INVALID_VALUE);
    sim_resource *resource = handle_get(OBJECT_RESOURCE, handles[0]);
    REQUIRE(resource && resource->buffer, ERROR_INVALID_HANDLE);
    REQUIRE(thread.gl, ERROR_INVALID_GRAPHICS_CONTEXT);
    REQUIRE(!resource->range, ERROR_ALREADY_MAPPED);
    int code = stream_find(stream_handle, &stream);
    REQUIRE(!code, code);
    resource->range = file_map(resource->buffer->file, 0, resource->buffer->size, RANGE_GL);
    REQUIRE(resource->range, ERROR_MAP_FAILED);
    return leave(SUCCESS);
}

/* Work that other streams have queued on the memory finds it freed: the program has to order that before this stream. */
SIM_API CUresult cuGraphicsUnmapResources(unsigned int count, CUgraphicsResource *handles, CUstream stream_handle)
{
    sim_stream *stream;
    BEGIN(cuGraphicsUnmapResources);
    REQUIRE(count == 1 && handles, ERROR_INVALID_VALUE);
    sim_resource *resource = handle_get(OBJECT_RESOURCE, handles[0]);
    REQUIRE(resource, ERROR_INVALID_HANDLE);
    REQUIRE(thread.gl, ERROR_INVALID_GRAPHICS_CONTEXT);
    REQUIRE(resource->range, ERROR_NOT_MAPPED);
    int code = stream_find(stream_handle, &stream);
    code = code ? code : stream_finish(stream);
    REQUIRE(!code, code);
    REQUIRE(resource->range, ERROR_NOT_MAPPED); /* another thread may have been faster */
    resource_unmap(resource);
    return leave(SUCCESS);
}

SIM_API CUresult cuGraphicsResourceGetMappedPointer_v2(CUdeviceptr *out, size_t *size, CUgraphicsResource handle)
{
    BEGIN(cuGraphicsResourceGetMappedPointer_v2);
    sim_resource *resource = handle_get(OBJECT_RESOURCE, handle);
    REQUIRE(resource, ERROR_INVALID_HANDLE);
    REQUIRE(resource->range, ERROR_NOT_MAPPED);
    REQUIRE(out && size, ERROR_INVALID_VALUE);
    *out = resource->range->start;
    *size = resource->range->size;
    return leave(SUCCESS);
}

/* >>copies and fills */

static int submit_fill(CUdeviceptr dst, unsigned value, unsigned size, size_t count, CUstream handle)
{
    sim_stream *stream;
    sim_range *range;
    int code = stream_find(handle, &stream);
    if (code || !count)
        return code;
    if (dst % size || count > SIZE_MAX / size)
        return ERROR_INVALID_VALUE;
    int device = stream->context->device;
    code = check_span((void *)(uintptr_t)dst, count * size, SIDE_DEVICE, device, ACCESS_WRITE, &range);
    if (code)
        return code;
    sim_work work = {.kind = WORK_FILL};
    work.fill = (sim_fill){.dst = (void *)(uintptr_t)dst, .count = count, .value = value, .size = size, .device = device};
    return submit(stream, work, NULL, NULL);
}

SIM_API CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
    BEGIN(cuMemsetD8Async);
    return leave(submit_fill(dst, value, 1, count, stream));
}

SIM_API CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t count, CUstream stream)
{
    BEGIN(cuMemsetD16Async);
    return leave(submit_fill(dst, value, 2, count, stream));
}

SIM_API CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t count, CUstream stream)
{
    BEGIN(cuMemsetD32Async);
    return leave(submit_fill(dst, value, 4, count, stream));
}

/* Take the source bytes now: what the real driver promises for pageable memory. */
static int stage(sim_work *work)
{
    sim_copy *copy = &work->copy;
    char *bytes = work->storage = malloc(copy->width * copy->height);
    if (!bytes)
        return ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < copy->height; i++)
        memcpy(bytes + i * copy->width, (const char *)copy->src + i * copy->src_pitch, copy->width);
    copy->src = bytes;
    copy->src_pitch = copy->width;
    return SUCCESS;
}

/* Pinned memory is read and written when the copy runs. A pageable source is read during the call, and a copy to a pageable
   destination is finished when the call returns. */
static int submit_copy(sim_copy copy, CUstream handle, int synchronous)
{
    sim_stream *stream;
    sim_range *to = NULL, *from = NULL;
    int code = stream_find(handle, &stream);
    if (code || !copy.width || !copy.height)
        return code;
    if (copy.device != EVERY_DEVICE)
        copy.device = stream->context->device;
    code = check_span(copy.dst, extent(copy.dst_pitch, copy.width, copy.height), copy.dst_side, copy.device, ACCESS_WRITE, &to);
    if (!code)
        code = check_span(copy.src, extent(copy.src_pitch, copy.width, copy.height), copy.src_side, copy.device, ACCESS_READ, &from);
    if (code)
        return code;
    sim_work work = {.kind = WORK_COPY, .copy = copy};
    if (stream->capture)
        return submit(stream, work, NULL, NULL); /* a graph reads and writes when it runs */
    if (synchronous || !to)
        return submit_and_wait(stream, work);
    if (!from && (sim.streams != STREAMS_EAGER || any_driven()))
        code = stage(&work);
    return code ? code : submit(stream, work, NULL, NULL);
}

static sim_copy plain_copy(CUdeviceptr dst, sim_side dst_side, CUdeviceptr src, sim_side src_side, size_t bytes)
{
    return (sim_copy){.dst = (void *)(uintptr_t)dst,
                      .src = (const void *)(uintptr_t)src,
                      .width = bytes,
                      .height = 1,
                      .dst_side = dst_side,
                      .src_side = src_side};
}

SIM_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyHtoDAsync_v2);
    return leave(submit_copy(plain_copy(dst, SIDE_DEVICE, (uintptr_t)src, SIDE_HOST, bytes), stream, 0));
}

SIM_API CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyDtoHAsync_v2);
    return leave(submit_copy(plain_copy((uintptr_t)dst, SIDE_HOST, src, SIDE_DEVICE, bytes), stream, 0));
}

SIM_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyDtoDAsync_v2);
    return leave(submit_copy(plain_copy(dst, SIDE_DEVICE, src, SIDE_DEVICE, bytes), stream, 0));
}

SIM_API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    BEGIN(cuMemcpyAsync);
    return leave(submit_copy(plain_copy(dst, SIDE_ANY, src, SIDE_ANY, bytes), stream, 0));
}

/* Does the address lie in a block of that context? */
static int owned_by(CUdeviceptr address, CUcontext handle)
{
    sim_range *range = range_at((uintptr_t)address);
    return range && range->context == handle_get(OBJECT_CONTEXT, handle);
}

SIM_API CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
                                   CUstream stream)
{
    BEGIN(cuMemcpyPeerAsync);
    REQUIRE(handle_get(OBJECT_CONTEXT, dst_context) && handle_get(OBJECT_CONTEXT, src_context), ERROR_INVALID_CONTEXT);
    REQUIRE(!bytes || (owned_by(dst, dst_context) && owned_by(src, src_context)), ERROR_INVALID_VALUE);
    sim_copy copy = plain_copy(dst, SIDE_DEVICE, src, SIDE_DEVICE, bytes);
    copy.device = EVERY_DEVICE;
    return leave(submit_copy(copy, stream, 0));
}

SIM_API CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)
{
    BEGIN(cuMemcpyHtoD_v2);
    return leave(submit_copy(plain_copy(dst, SIDE_DEVICE, (uintptr_t)src, SIDE_HOST, bytes), NULL, 1));
}

SIM_API CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
    BEGIN(cuMemcpyDtoH_v2);
    return leave(submit_copy(plain_copy((uintptr_t)dst, SIDE_HOST, src, SIDE_DEVICE, bytes), NULL, 1));
}

/* Asynchronous to the host even in its plain form. */
SIM_API CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
    BEGIN(cuMemcpyDtoD_v2);
    return leave(submit_copy(plain_copy(dst, SIDE_DEVICE, src, SIDE_DEVICE, bytes), NULL, 0));
}

/* Pointer and side of one end of a 2-D copy; 0 for arrays, which the simulator has not. */
static int end_of_2d(unsigned type, const void *host, CUdeviceptr device, uintptr_t *address, sim_side *side)
{
    static const sim_side sides[] = {SIDE_ANY, SIDE_HOST, SIDE_DEVICE, SIDE_ANY, SIDE_ANY};
    if (type < 1 || type > 4 || type == 3)
        return 0;
    *address = type == 1 ? (uintptr_t)host : (uintptr_t)device;
    *side = sides[type];
    return 1;
}

SIM_API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    BEGIN(cuMemcpy2DAsync_v2);
    uintptr_t dst, src;
    sim_side dst_side, src_side;
    REQUIRE(copy && end_of_2d((unsigned)copy->dstMemoryType, copy->dstHost, copy->dstDevice, &dst, &dst_side) &&
                end_of_2d((unsigned)copy->srcMemoryType, copy->srcHost, copy->srcDevice, &src, &src_side),
            ERROR_INVALID_VALUE);
    size_t dst_pitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes + copy->dstXInBytes;
    size_t src_pitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes + copy->srcXInBytes;
    REQUIRE(dst_pitch >= copy->WidthInBytes + copy->dstXInBytes && src_pitch >= copy->WidthInBytes + copy->srcXInBytes,
            ERROR_INVALID_VALUE);
    sim_copy rows = {.dst = (void *)(dst + copy->dstY * dst_pitch + copy->dstXInBytes),
                     .dst_pitch = dst_pitch,
                     .dst_side = dst_side,
                     .src = (void *)(src + copy->srcY * src_pitch + copy->srcXInBytes),
                     .src_pitch = src_pitch,
                     .src_side = src_side,
                     .width = copy->WidthInBytes,
                     .height = copy->Height};
    return leave(submit_copy(rows, stream, 0));
}

/* >>stream functions */

static int stream_create(CUstream *out, unsigned flags, int priority)
{
    if (!out || flags > 1)
        return ERROR_INVALID_VALUE;
    if (priority > PRIORITY_LEAST)
        priority = PRIORITY_LEAST;
    if (priority < PRIORITY_GREATEST)
        priority = PRIORITY_GREATEST;
    sim_stream *stream = stream_new(current(), flags, priority);
    if (!stream)
        return ERROR_OUT_OF_MEMORY;
    stream->handle = handle_new(OBJECT_STREAM, stream, stream->context);
    if (!stream->handle)
        return stream_free(stream), ERROR_OUT_OF_MEMORY;
    *out = stream->handle;
    return SUCCESS;
}

SIM_API CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
    BEGIN(cuStreamCreate);
    return leave(stream_create(out, flags, 0));
}

SIM_API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    BEGIN(cuStreamCreateWithPriority);
    return leave(stream_create(out, flags, priority));
}

/* Returns at once; queued work still runs. */
SIM_API CUresult cuStreamDestroy_v2(CUstream handle)
{
    BEGIN(cuStreamDestroy_v2);
    sim_stream *stream = handle_get(OBJECT_STREAM, handle);
    REQUIRE(stream, ERROR_INVALID_HANDLE);
    stream_destroy(stream);
    return leave(SUCCESS);
}

SIM_API CUresult cuStreamQuery(CUstream handle)
{
    sim_stream *stream;
    BEGIN(cuStreamQuery);
    int code = stream_find(handle, &stream);
    if (!code)
        code = capture_forbids_wait(stream);
    return leave(code ? code : op_query(stream->tail));
}

SIM_API CUresult cuStreamSynchronize(CUstream handle)
{
    sim_stream *stream;
    BEGIN(cuStreamSynchronize);
    int code = stream_find(handle, &stream);
    if (!code)
        code = capture_forbids_wait(stream);
    return leave(code ? code : stream_finish(stream));
}

SIM_API CUresult cuStreamGetCtx(CUstream handle, CUcontext *out)
{
    BEGIN(cuStreamGetCtx);
    sim_stream *stream = stream_get(handle);
    REQUIRE(out, ERROR_INVALID_VALUE);
    REQUIRE(stream, ERROR_INVALID_HANDLE);
    *out = stream->context->handle;
    return leave(SUCCESS);
}

SIM_API CUresult cuStreamGetId(CUstream handle, unsigned long long *out)
{
    BEGIN(cuStreamGetId);
    sim_stream *stream = stream_get(handle);
    REQUIRE(out, ERROR_INVALID_VALUE);
    REQUIRE(stream, ERROR_INVALID_HANDLE);
    *out = stream->id;
    return leave(SUCCESS);
}

SIM_API CUresult cuStreamGetPriority(CUstream handle, int *out)
{
    BEGIN(cuStreamGetPriority);
    sim_stream *stream = stream_get(handle);
    REQUIRE(out, ERROR_INVALID_VALUE);
    REQUIRE(stream, ERROR_INVALID_HANDLE);
    *out = stream->priority;
    return leave(SUCCESS);
}

SIM_API CUresult cuStreamGetFlags(CUstream handle, unsigned int *out)
{
    BEGIN(cuStreamGetFlags);
    sim_stream *stream = stream_get(handle);
    REQUIRE(out, ERROR_INVALID_VALUE);
    REQUIRE(stream, ERROR_INVALID_HANDLE);
    *out = stream->flags;
    return leave(SUCCESS);
}

SIM_API CUresult cuLaunchHostFunc(CUstream handle, CUhostFn call, void *data)
{
    sim_stream *stream;
    BEGIN(cuLaunchHostFunc);
    REQUIRE(call, ERROR_INVALID_VALUE);
    int code = stream_find(handle, &stream);
    return leave(code ? code : submit(stream, (sim_work){.kind = WORK_CALL, .call = call, .call_data = data}, NULL, NULL));
}

/* Writes and waits of a stream, on memory that its device can reach. */
static int submit_word(CUstream handle, sim_work_kind kind, CUdeviceptr address, uint64_t value, unsigned size, unsigned flags)
{
    sim_stream *stream;
    sim_range *range;
    sim_work work = {.kind = kind};
    int code = stream_find(handle, &stream);
    if (code)
        return code;
    work.word = (sim_word){(void *)(uintptr_t)address, value, size, flags, stream->context->device};
    if (address % size || flags > (kind == WORK_WAIT ? WAIT_NOR : 0))
        return ERROR_INVALID_VALUE;
    code = check_span(work.word.address, size, SIDE_ANY, work.word.device, kind == WORK_WAIT ? ACCESS_READ : ACCESS_WRITE, &range);
    if (!code && !range)
        code = ERROR_INVALID_VALUE; /* ordinary host memory */
    return code ? code : submit(stream, work, NULL, NULL);
}

SIM_API CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
    BEGIN(cuStreamWriteValue32_v2);
    return leave(submit_word(stream, WORK_WRITE, address, value, 4, flags));
}

SIM_API CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
    BEGIN(cuStreamWriteValue64_v2);
    return leave(submit_word(stream, WORK_WRITE, address, value, 8, flags));
}

SIM_API CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)
{
    BEGIN(cuStreamWaitValue32_v2);
    return leave(submit_word(stream, WORK_WAIT, address, value, 4, flags));
}

SIM_API CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)
{
    BEGIN(cuStreamWaitValue64_v2);
    return leave(submit_word(stream, WORK_WAIT, address, value, 8, flags));
}

/* >>events */

enum { EVENT_DISABLE_TIMING = 2, EVENT_INTERPROCESS = 4 };

static int event_new(CUevent *out, unsigned flags, sim_signal *signal)
{
    sim_event *event = calloc(1, sizeof *event);
    if (!event)
        return ERROR_OUT_OF_MEMORY;
    event->context = current();
    event->flags = flags;
    event->handle = handle_new(OBJECT_EVENT, event, event->context);
    if (!event->handle)
        return free(event), ERROR_OUT_OF_MEMORY;
    event->signal = signal;
    *out = event->handle;
    return SUCCESS;
}

/* Takes over the file. */
static sim_signal *signal_new(int file)
{
    sim_signal *signal = calloc(1, sizeof *signal);
    void *board = signal ? mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (board == MAP_FAILED)
        return free(signal), close(file), NULL;
    *signal = (sim_signal){.references = 1, .file = file, .board = board};
    return signal;
}

static sim_signal *signal_create(void)
{
    int file = memfd_create("ignis-sim-event", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return NULL;
    if (ftruncate(file, (off_t)page) || fcntl(file, F_ADD_SEALS, FIXED_SIZE))
        return close(file), NULL;
    sim_signal *signal = signal_new(file);
    if (signal)
        signal->board->ticket = ticket_new(file, 0, page, current()->number);
    return signal;
}

SIM_API CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    BEGIN(cuEventCreate);
    REQUIRE(out && flags < 8, ERROR_INVALID_VALUE);
    REQUIRE(!(flags & EVENT_INTERPROCESS) || flags & EVENT_DISABLE_TIMING, ERROR_INVALID_VALUE);
    sim_signal *signal = flags & EVENT_INTERPROCESS ? signal_create() : NULL;
    REQUIRE(signal || !(flags & EVENT_INTERPROCESS), ERROR_OUT_OF_MEMORY);
    int code = event_new(out, flags, signal);
    if (code)
        signal_release(signal);
    return leave(code);
}

SIM_API CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent handle)
{
    BEGIN(cuIpcGetEventHandle);
    sim_event *event = handle_get(OBJECT_EVENT, handle);
    REQUIRE(event, ERROR_INVALID_HANDLE);
    REQUIRE(out && event->signal && event->signal->board->ticket.process == sim.process, ERROR_INVALID_VALUE);
    memcpy(out, &event->signal->board->ticket, sizeof *out);
    return leave(SUCCESS);
}

SIM_API CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    BEGIN(cuIpcOpenEventHandle);
    sim_ticket ticket;
    int file = -1;
    int code = out ? ticket_open(&handle, &ticket, "ignis-sim-event", &file) : ERROR_INVALID_VALUE;
    REQUIRE(!code, code);
    sim_signal *signal = ticket_stands(&ticket, file, 0) ? signal_new(file) : (close(file), NULL);
    REQUIRE(signal, ERROR_MAP_FAILED);
    code = event_new(out, EVENT_INTERPROCESS | EVENT_DISABLE_TIMING, signal);
    if (code)
        signal_release(signal);
    return leave(code);
}

/* Was the event last recorded by another process? */
static int is_remote(const sim_event *event)
{
    return event->signal && (!event->op || atomic_load(&event->signal->board->recorded) != event->sequence);
}

SIM_API CUresult cuEventDestroy_v2(CUevent handle)
{
    BEGIN(cuEventDestroy_v2);
    sim_event *event = handle_get(OBJECT_EVENT, handle);
    REQUIRE(event, ERROR_INVALID_HANDLE);
    event_delete(event);
    return leave(SUCCESS);
}

static int event_record(CUevent handle, CUstream stream_handle)
{
    sim_stream *stream;
    sim_op *op;
    sim_event *event = handle_get(OBJECT_EVENT, handle);
    int code = stream_find(stream_handle, &stream);
    if (code)
        return code;
    if (!event || event->context != stream->context)
        return ERROR_INVALID_HANDLE;
    if (stream->capture)
        return capture_record(stream, event);
    sim_work work = {.kind = event->signal ? WORK_SIGNAL : WORK_NOTHING, .signal = event->signal};
    if (work.signal) {
        work.signal->references++;
        work.sequence = atomic_fetch_add(&work.signal->board->recorded, 1) + 1;
        atomic_store(&work.signal->board->recorder, (int32_t)getpid());
    }
    code = submit(stream, work, NULL, &op);
    if (code)
        return code;
    if (work.signal && sim.streams == STREAMS_LAZY)
        code = op_drive(op);                  /* the other process waits for it in a way that is not seen here */
    event = handle_get(OBJECT_EVENT, handle); /* the lock may have been given up */
    if (!event)
        return op_release(op), code;
    event_forget(event);
    event->op = op;
    event->sequence = work.sequence;
    return code;
}

SIM_API CUresult cuEventRecord(CUevent event, CUstream stream)
{
    BEGIN(cuEventRecord);
    return leave(event_record(event, stream));
}

SIM_API CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    BEGIN(cuEventRecordWithFlags);
    REQUIRE(flags < 2, ERROR_INVALID_VALUE);
    return leave(event_record(event, stream));
}

SIM_API CUresult cuEventQuery(CUevent handle)
{
    BEGIN(cuEventQuery);
    sim_event *event = handle_get(OBJECT_EVENT, handle);
    REQUIRE(event, ERROR_INVALID_HANDLE);
    int code = capture_forbids_event(event);
    if (!code && is_remote(event))
        code = signal_is_set(event->signal, atomic_load(&event->signal->board->recorded)) ? SUCCESS : ERROR_NOT_READY;
    else if (!code)
        code = op_query(event->op);
    return leave(code);
}

SIM_API CUresult cuEventSynchronize(CUevent handle)
{
    BEGIN(cuEventSynchronize);
    sim_event *event = handle_get(OBJECT_EVENT, handle);
    REQUIRE(event, ERROR_INVALID_HANDLE);
    int code = capture_forbids_event(event);
    REQUIRE(!code, code);
    if (is_remote(event)) {
        sim_signal *signal = event->signal;
        uint32_t sequence = atomic_load(&signal->board->recorded);
        drive_spinning(); /* the other process may be waiting for these */
        signal->references++;
        pthread_mutex_unlock(&sim.lock);
        signal_wait(signal, sequence);
        pthread_mutex_lock(&sim.lock);
        signal_release(signal);
    } else if (event->op) {
        op_finish(event->op);
    }
    return leave(sim.error);
}

SIM_API CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags)
{
    sim_stream *stream;
    BEGIN(cuStreamWaitEvent);
    sim_event *event = handle_get(OBJECT_EVENT, handle);
    int code = stream_find(stream_handle, &stream);
    REQUIRE(!code, code);
    REQUIRE(event, ERROR_INVALID_HANDLE);
    REQUIRE(flags < 2, ERROR_INVALID_VALUE);
    if (event->capture)
        return leave(capture_join(stream, event));
    if (stream->capture && (event->op || event->signal))
        return leave(capture_break(stream->capture, ERROR_STREAM_CAPTURE_ISOLATION));
    if (is_remote(event)) {
        sim_work await = {.kind = WORK_AWAIT, .signal = event->signal, .sequence = atomic_load(&event->signal->board->recorded)};
        if (signal_is_set(await.signal, await.sequence))
            return leave(SUCCESS);
        await.signal->references++;
        return leave(submit(stream, await, NULL, NULL));
    }
    if (!event->op || event->op->done)
        return leave(SUCCESS);
    return leave(submit(stream, (sim_work){.kind = WORK_NOTHING}, event->op, NULL));
}

static int elapsed(float *milliseconds, CUevent first, CUevent last)
{
    sim_event *from = handle_get(OBJECT_EVENT, first), *to = handle_get(OBJECT_EVENT, last);
    if (!milliseconds)
        return ERROR_INVALID_VALUE;
    if (!from || !to || (from->flags | to->flags) & EVENT_DISABLE_TIMING || !from->op || !to->op)
        return ERROR_INVALID_HANDLE;
    if (!from->op->done || !to->op->done)
        return ERROR_NOT_READY;
    *milliseconds = (float)((double)(to->op->time - from->op->time) * 1e-6);
    return SUCCESS;
}

SIM_API CUresult cuEventElapsedTime(float *milliseconds, CUevent first, CUevent last)
{
    BEGIN(cuEventElapsedTime);
    return leave(elapsed(milliseconds, first, last));
}

SIM_API CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent first, CUevent last)
{
    BEGIN(cuEventElapsedTime_v2);
    return leave(elapsed(milliseconds, first, last));
}

/* >>modules and functions */

/* A driver may wait here for all that runs on the device: who loads between the kernels of ranks that wait for each other may hang. */
static void loading_waits(sim_context *context)
{
    if (sim.streams != STREAMS_LAZY)
        (void)context_finish(context);
}

static int module_load(CUmodule *out, const void *image)
{
    sim_module *loaded;
    sim_context *context = current();
    if (!out || !image)
        return ERROR_INVALID_VALUE;
    loading_waits(context);
    pthread_mutex_unlock(&sim.lock); /* loading takes a while */
    int code = sim_module_load(image, &loaded);
    pthread_mutex_lock(&sim.lock);
    if (code)
        return code;
    sim_module_object *module = calloc(1, sizeof *module);
    if (module)
        module->handle = handle_new(OBJECT_MODULE, module, context);
    if (!module || !module->handle) {
        free(module);
        sim_module_unload(loaded);
        return ERROR_OUT_OF_MEMORY;
    }
    module->references = 1;
    module->module = loaded;
    module->context = context;
    *out = module->handle;
    return SUCCESS;
}

SIM_API CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    BEGIN(cuModuleLoadData);
    return leave(module_load(out, image));
}

/* The options steer the PTX compiler, which is not needed here. */
SIM_API CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count, CUjit_option *options, void **values)
{
    BEGIN(cuModuleLoadDataEx);
    REQUIRE(!count || (options && values), ERROR_INVALID_VALUE);
    return leave(module_load(out, image));
}

SIM_API CUresult cuModuleUnload(CUmodule handle)
{
    BEGIN(cuModuleUnload);
    sim_module_object *module = handle_get(OBJECT_MODULE, handle);
    REQUIRE(module, ERROR_INVALID_HANDLE);
    int code = context_finish(module->context);
    module = handle_get(OBJECT_MODULE, handle);
    REQUIRE(module, ERROR_INVALID_HANDLE);
    module_delete(module);
    return leave(code);
}

SIM_API CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
    BEGIN(cuModuleGetFunction);
    sim_module_object *module = handle_get(OBJECT_MODULE, handle);
    REQUIRE(out && name, ERROR_INVALID_VALUE);
    REQUIRE(module, ERROR_INVALID_HANDLE);
    const sim_kernel *kernel = sim_module_kernel(module->module, name);
    REQUIRE(kernel, ERROR_NOT_FOUND);
    sim_function *function = module->functions;
    while (function && function->kernel != kernel)
        function = function->next;
    if (!function) {
        function = calloc(1, sizeof *function);
        REQUIRE(function, ERROR_OUT_OF_MEMORY);
        *function = (sim_function){.module = module, .kernel = kernel, .next = module->functions};
        function->max_dynamic = SHARED_DEFAULT > kernel->static_shared ? SHARED_DEFAULT - kernel->static_shared : 0;
        function->handle = handle_new(OBJECT_FUNCTION, function, module->context);
        if (!function->handle)
            return free(function), leave(ERROR_OUT_OF_MEMORY);
        module->functions = function;
    }
    *out = function->handle;
    return leave(SUCCESS);
}

SIM_API CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule handle, const char *name)
{
    void *pointer;
    size_t size;
    BEGIN(cuModuleGetGlobal_v2);
    sim_module_object *module = handle_get(OBJECT_MODULE, handle);
    REQUIRE(module, ERROR_INVALID_HANDLE);
    REQUIRE(name, ERROR_INVALID_VALUE);
    int code = sim_module_global(module->module, name, &pointer, &size);
    if (!code && size && !range_starting((uintptr_t)pointer, RANGE_VARIABLE)) { /* memory that copies may touch */
        sim_range *range = range_new((uintptr_t)pointer, size, RANGE_VARIABLE, module->context);
        REQUIRE(range, ERROR_OUT_OF_MEMORY);
        range->module = module;
    }
    if (!code && address)
        *address = (CUdeviceptr)(uintptr_t)pointer;
    if (!code && bytes)
        *bytes = size;
    return leave(code);
}

/* Values of CUfunction_attribute. */
enum {
    FUNC_MAX_THREADS,
    FUNC_STATIC_SHARED,
    FUNC_CONST,
    FUNC_LOCAL,
    FUNC_REGISTERS,
    FUNC_PTX_VERSION,
    FUNC_BINARY_VERSION,
    FUNC_CACHE_MODE,
    FUNC_MAX_DYNAMIC,
    FUNC_CARVEOUT,
    FUNC_ATTRIBUTE_COUNT = 16
};

enum { LAUNCH_COOPERATIVE = 2, LAUNCH_PROGRAMMATIC = 6 }; /* of CUlaunchAttributeID */

SIM_API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    BEGIN(cuFuncGetAttribute);
    sim_function *function = handle_get(OBJECT_FUNCTION, handle);
    REQUIRE(value && (int)attribute >= 0 && (int)attribute < FUNC_ATTRIBUTE_COUNT, ERROR_INVALID_VALUE);
    REQUIRE(function, ERROR_INVALID_HANDLE);
    switch ((int)attribute) {
    case FUNC_MAX_THREADS: *value = function->kernel->max_threads; break;
    case FUNC_STATIC_SHARED: *value = (int)function->kernel->static_shared; break;
    case FUNC_REGISTERS: *value = 32; break;
    case FUNC_PTX_VERSION:
    case FUNC_BINARY_VERSION: *value = sim.cc; break;
    case FUNC_MAX_DYNAMIC: *value = (int)function->max_dynamic; break;
    case FUNC_CARVEOUT: *value = -1; break;
    default: *value = 0; break;
    }
    return leave(SUCCESS);
}

SIM_API CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    BEGIN(cuFuncSetAttribute);
    sim_function *function = handle_get(OBJECT_FUNCTION, handle);
    REQUIRE(function, ERROR_INVALID_HANDLE);
    if ((int)attribute == FUNC_CARVEOUT)
        return leave(SUCCESS); /* a hint about a cache that is not there */
    REQUIRE((int)attribute == FUNC_MAX_DYNAMIC, ERROR_INVALID_VALUE);
    REQUIRE(value >= 0 && (size_t)value + function->kernel->static_shared <= SHARED_OPTIN, ERROR_INVALID_VALUE);
    function->max_dynamic = (size_t)value;
    return leave(SUCCESS);
}

SIM_API CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *offset, size_t *size)
{
    BEGIN(cuFuncGetParamInfo);
    sim_function *function = handle_get(OBJECT_FUNCTION, handle);
    REQUIRE(function, ERROR_INVALID_HANDLE);
    REQUIRE(offset && index < (size_t)function->kernel->param_count, ERROR_INVALID_VALUE);
    *offset = function->kernel->param_offsets[index];
    if (size)
        *size = function->kernel->param_sizes[index];
    return leave(SUCCESS);
}

static int blocks_at_once(const sim_function *function, size_t threads, size_t dynamic)
{
    size_t by_threads = THREADS_PER_SM / round_up(threads, 32);
    size_t by_shared = SHARED_PER_SM / (function->kernel->static_shared + dynamic + SHARED_RESERVED);
    size_t fit = by_threads < by_shared ? by_threads : by_shared;
    if (threads > (size_t)function->kernel->max_threads || dynamic > function->max_dynamic)
        fit = 0;
    return (int)(fit < BLOCKS_PER_SM ? fit : BLOCKS_PER_SM);
}

static int occupancy(int *blocks, CUfunction handle, int block_size, size_t dynamic)
{
    sim_function *function = handle_get(OBJECT_FUNCTION, handle);
    if (!function)
        return ERROR_INVALID_HANDLE;
    if (!blocks || block_size <= 0)
        return ERROR_INVALID_VALUE;
    *blocks = blocks_at_once(function, (size_t)block_size, dynamic);
    return SUCCESS;
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size, size_t dynamic)
{
    BEGIN(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    return leave(occupancy(blocks, function, block_size, dynamic));
}

SIM_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int block_size, size_t dynamic,
                                                                      unsigned int flags)
{
    BEGIN(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    REQUIRE(flags < 2, ERROR_INVALID_VALUE);
    return leave(occupancy(blocks, function, block_size, dynamic));
}

/* >>tensor maps */

/* What is wrong with the arguments of cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col; NULL: nothing. */
static const char *tensor_map_fault(const sim_tensor_map *m, const CUtensorMap *to, const cuuint32_t *steps, int interleave, int l2)
{
    static const unsigned inner_limit[] = {0xFFFFFFFF, 32, 64, 128};
    if ((uintptr_t)to % 64)
        return "the map is not aligned to 64 bytes";
    if (!m->base || m->base % 16)
        return "the address is not a multiple of 16";
    if (interleave)
        return "the simulator knows no interleaved layout";
    if (m->swizzle > 3)
        return "the swizzle is not one of 0 (none) to 3 (128 bytes)";
    if ((unsigned)l2 > 3)
        return "the promotion to L2 is not one of 0 to 3";
    if (m->fill > 1 || (m->fill == 1 && (m->type < 6 || m->type > 12)))
        return "the fill outside is not 0 (zeros), or for floating types 1 (NaN)";
    for (int i = 0; i < m->rank; i++) {
        if (!m->dims[i] || m->dims[i] > (uint64_t)1 << 32)
            return "a dimension is not 1 to 2^32";
        if (!m->im2col && (!m->box[i] || m->box[i] > 256))
            return "a side of the box is not 1 to 256";
        if (!m->im2col && steps[i] != 1)
            return "the simulator knows no element strides but 1";
        if (!steps[i] || steps[i] > 8)
            return "an element stride is not 1 to 8";
        if (i && (m->strides[i] % 16 || m->strides[i] >= (uint64_t)1 << 40))
            return "a stride is not a multiple of 16 below 2^40";
    }
    if ((unsigned)m->box[0] * m->element % 16)
        return "the box's first side is not a multiple of 16 bytes";
    if ((unsigned)m->box[0] * m->element > inner_limit[m->swizzle])
        return "the box's first side is longer than the swizzle";
    return NULL;
}

/* Checks a map whose box is there already, and writes it. */
static CUresult write_tensor_map(CUtensorMap *map, sim_tensor_map *m, CUtensorMapDataType type, cuuint32_t rank, void *base,
                                 const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *steps, int interleave, int swizzle,
                                 int l2, int fill)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    _Static_assert(sizeof *m == sizeof *map, "a tensor map has 128 bytes");
    REQUIRE((unsigned)type < sizeof bytes, ERROR_INVALID_VALUE);
    memcpy(m->magic, SIM_TENSOR_MAGIC, sizeof m->magic);
    m->base = (uint64_t)(uintptr_t)base;
    m->rank = (uint8_t)rank;
    m->type = (uint8_t)type;
    m->element = bytes[type];
    m->swizzle = (unsigned)swizzle > 3 ? 4 : (uint8_t)swizzle;
    m->fill = (unsigned)fill > 1 ? 2 : (uint8_t)fill;
    m->strides[0] = m->element;
    for (cuuint32_t i = 0; i < rank; i++) {
        m->dims[i] = dims[i];
        if (i)
            m->strides[i] = strides[i - 1];
    }
    const char *fault = tensor_map_fault(m, map, steps, interleave, l2);
    if (fault)
        say("%s: %s", m->im2col ? "cuTensorMapEncodeIm2col" : "cuTensorMapEncodeTiled", fault);
    REQUIRE(!fault, ERROR_INVALID_VALUE);
    memcpy(map, m, sizeof *m);
    return leave(SUCCESS);
}

SIM_API CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *dims,
                                        const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps,
                                        CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
                                        CUtensorMapFloatOOBfill fill)
{
    BEGIN(cuTensorMapEncodeTiled);
    sim_tensor_map m = {0};
    REQUIRE(map && dims && box && steps && rank >= 1 && rank <= 5 && (rank == 1 || strides), ERROR_INVALID_VALUE);
    for (cuuint32_t i = 0; i < rank; i++)
        m.box[i] = box[i] > 256 ? 257 : (uint16_t)box[i];
    return write_tensor_map(map, &m, type, rank, base, dims, strides, steps, (int)interleave, (int)swizzle, (int)l2, (int)fill);
}

SIM_API CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *dims,
                                         const cuuint64_t *strides, const int *lower, const int *upper, cuuint32_t channels,
                                         cuuint32_t pixels, const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill)
{
    static const int limits[] = {32768, 128, 16}; /* of corners, by how many dimensions are pixels */
    BEGIN(cuTensorMapEncodeIm2col);
    sim_tensor_map m = {.im2col = 1};
    REQUIRE(map && dims && steps && strides && lower && upper && rank >= 3 && rank <= 5, ERROR_INVALID_VALUE);
    REQUIRE(channels && channels <= 256 && pixels && pixels <= 1024, ERROR_INVALID_VALUE);
    m.box[0] = (uint16_t)channels;
    m.box[1] = (uint16_t)pixels;
    for (cuuint32_t i = 0; i < rank - 2; i++) {
        int limit = limits[rank - 3];
        int fits = lower[i] >= -limit && lower[i] < limit && upper[i] >= -limit && upper[i] < limit;
        if (!fits || lower[i] > (int64_t)dims[i + 1] - 1 + upper[i])
            say("cuTensorMapEncodeIm2col: the box of pixels from %d to %d of dimension %u %s", lower[i], upper[i], i + 1,
                fits ? "is empty" : "is outside of what the map can hold");
        REQUIRE(fits && lower[i] <= (int64_t)dims[i + 1] - 1 + upper[i], ERROR_INVALID_VALUE);
        m.lower[i] = (int16_t)lower[i];
        m.upper[i] = (int16_t)upper[i];
        m.steps[i] = (uint8_t)steps[i + 1];
    }
    return write_tensor_map(map, &m, type, rank, base, dims, strides, steps, (int)interleave, (int)swizzle, (int)l2, (int)fill);
}

/* >>launch */

static int check_launch(const sim_function *function, const sim_launch *launch)
{
    const unsigned *grid = launch->grid, *block = launch->block;
    unsigned long long threads = (unsigned long long)block[0] * block[1] * block[2];
    if (!grid[0] || !grid[1] || !grid[2] || !threads)
        return ERROR_INVALID_VALUE;
    if (grid[0] > 0x7FFFFFFF || grid[1] > 65535 || grid[2] > 65535)
        return ERROR_INVALID_VALUE;
    if (block[0] > 1024 || block[1] > 1024 || block[2] > 64 || threads > MAX_THREADS)
        return ERROR_INVALID_VALUE;
    if (threads > (unsigned)function->kernel->max_threads)
        return ERROR_INVALID_VALUE;
    return launch->dynamic_shared <= function->max_dynamic ? SUCCESS : ERROR_INVALID_VALUE;
}

/* The packed buffer that `extra` describes: pairs of a tag and a value, ended by 0. */
static const char *packed_arguments(void **extra, size_t *bytes)
{
    const char *buffer = NULL;
    *bytes = 0;
    for (; extra && extra[0]; extra += 2) {
        if ((uintptr_t)extra[0] == 1)
            buffer = extra[1];
        else if ((uintptr_t)extra[0] == 2)
            *bytes = *(const size_t *)extra[1];
        else
            return NULL;
    }
    return buffer;
}

/* A copy of the arguments, with a table of pointers to them in front: the caller's may change once the call returns. */
static int copy_arguments(const sim_kernel *kernel, void **params, void **extra, void **out)
{
    size_t count = (size_t)kernel->param_count, last = count ? count - 1 : 0;
    size_t bytes = count ? kernel->param_offsets[last] + kernel->param_sizes[last] : 0, given = 0;
    const char *packed = params ? NULL : packed_arguments(extra, &given);
    if (count && !params && (!packed || given < bytes))
        return ERROR_INVALID_VALUE;
    size_t front = round_up(count * sizeof(void *), 64); /* parameters may be aligned up to that */
    char *storage = aligned_alloc(64, round_up(front + bytes + 1, 64));
    if (!storage)
        return ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        char *to = ((char **)storage)[i] = storage + front + kernel->param_offsets[i];
        const void *from = params ? params[i] : packed + kernel->param_offsets[i];
        if (from)
            memcpy(to, from, kernel->param_sizes[i]);
        else
            return free(storage), ERROR_INVALID_VALUE;
    }
    *out = storage;
    return SUCCESS;
}

/* A launch whose blocks all run at the same time must fit the device, and the simulator. */
static int check_together(const sim_function *function, const sim_launch *launch)
{
    unsigned long long blocks = (unsigned long long)launch->grid[0] * launch->grid[1] * launch->grid[2];
    size_t threads = (size_t)launch->block[0] * launch->block[1] * launch->block[2];
    unsigned long long room = (unsigned long long)blocks_at_once(function, threads, launch->dynamic_shared) * SM_COUNT;
    return blocks <= room && blocks <= SIM_MAX_TOGETHER ? SUCCESS : ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
}

static int launch_kernel(CUfunction handle, sim_launch launch, CUstream stream_handle, void **params, void **extra)
{
    sim_stream *stream;
    sim_function *function = handle_get(OBJECT_FUNCTION, handle);
    if (!function)
        return ERROR_INVALID_HANDLE;
    int code = stream_find(stream_handle, &stream);
    if (code)
        return code;
    if (stream->context != function->module->context)
        return ERROR_INVALID_HANDLE;
    if (params && extra)
        return ERROR_INVALID_VALUE;
    sim_work work = {.kind = WORK_KERNEL, .kernel = function->kernel, .launch = launch};
    work.launch.warp_size = 32;
    work.launch.device = stream->context->device;
    code = check_launch(function, &work.launch);
    if (!code && launch.together)
        code = check_together(function, &work.launch);
    if (!code)
        code = copy_arguments(function->kernel, params, extra, &work.storage);
    if (code)
        return code;
    work.module = function->module;
    work.module->references++;
    return submit(stream, work, NULL, NULL);
}

SIM_API CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                                unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream, void **params,
                                void **extra)
{
    BEGIN(cuLaunchKernel);
    sim_launch launch = {.grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z}, .dynamic_shared = shared};
    return leave(launch_kernel(function, launch, stream, params, extra));
}

/* Of attributes it knows programmatic stream serialization and cooperative launches. With the first one a launch begins behind the others all the same, but one that never waits
   for them, as it has to on a real device, is an error. */
SIM_API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    BEGIN(cuLaunchKernelEx);
    REQUIRE(config && (!config->numAttrs || config->attrs), ERROR_INVALID_VALUE);
    sim_launch launch = {.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                         .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                         .dynamic_shared = config->sharedMemBytes};
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        REQUIRE((int)attribute->id == LAUNCH_PROGRAMMATIC || (int)attribute->id == LAUNCH_COOPERATIVE, ERROR_NOT_SUPPORTED);
        if ((int)attribute->id == LAUNCH_PROGRAMMATIC)
            launch.must_wait = attribute->value.programmaticStreamSerializationAllowed != 0;
        else
            launch.together = attribute->value.cooperative != 0;
    }
    return leave(launch_kernel(function, launch, config->hStream, params, extra));
}

SIM_API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                           unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                                           CUstream stream, void **params)
{
    BEGIN(cuLaunchCooperativeKernel);
    sim_launch launch = {.grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z}, .dynamic_shared = shared, .together = 1};
    return leave(launch_kernel(function, launch, stream, params, NULL));
}

/* >>graphs */

typedef struct sim_graph {
    void *handle;
    sim_plan *plan;
} sim_graph;

/* Takes over the caller's reference to the plan. */
static int graph_new(void *out, sim_object_kind kind, sim_plan *plan)
{
    sim_graph *graph = calloc(1, sizeof *graph);
    if (graph)
        graph->handle = handle_new(kind, graph, NULL);
    if (!graph || !graph->handle) {
        free(graph);
        plan_release(plan);
        return ERROR_OUT_OF_MEMORY;
    }
    graph->plan = plan;
    *(void **)out = graph->handle;
    return SUCCESS;
}

static int graph_delete(sim_object_kind kind, void *handle)
{
    sim_graph *graph = handle_get(kind, handle);
    if (!graph)
        return ERROR_INVALID_VALUE;
    handle_drop(handle);
    plan_release(graph->plan);
    free(graph);
    return SUCCESS;
}

SIM_API CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    sim_stream *stream;
    BEGIN(cuStreamBeginCapture_v2);
    int code = stream_find(handle, &stream);
    REQUIRE(!code, code);
    REQUIRE((int)mode >= CAPTURE_GLOBAL && (int)mode <= CAPTURE_RELAXED, ERROR_INVALID_VALUE);
    REQUIRE(stream != stream->context->null_stream, ERROR_STREAM_CAPTURE_UNSUPPORTED);
    REQUIRE(!stream->capture, ERROR_ILLEGAL_STATE);
    stream->capture = capture_new(stream, (int)mode);
    return leave(stream->capture ? SUCCESS : ERROR_OUT_OF_MEMORY);
}

SIM_API CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
    sim_stream *stream;
    BEGIN(cuStreamEndCapture);
    int code = stream_find(handle, &stream);
    REQUIRE(!code, code);
    sim_capture *capture = stream->capture;
    REQUIRE(out, ERROR_INVALID_VALUE);
    REQUIRE(capture, ERROR_ILLEGAL_STATE);
    REQUIRE(capture->origin == stream, capture_break(capture, ERROR_STREAM_CAPTURE_UNMATCHED));
    REQUIRE(capture->mode == CAPTURE_RELAXED || pthread_equal(capture->thread, pthread_self()), ERROR_STREAM_CAPTURE_WRONG_THREAD);
    *out = NULL;
    if (capture->invalid)
        code = ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!plan_joined(capture->plan, &stream->last))
        code = ERROR_STREAM_CAPTURE_UNJOINED;
    capture->references++;
    capture_end(capture);
    if (!code)
        capture->plan->references++, code = graph_new(out, OBJECT_GRAPH, capture->plan);
    capture_release(capture);
    return leave(code);
}

static int capture_status(const sim_stream *stream) { return stream->capture ? 1 + stream->capture->invalid : 0; }

SIM_API CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    sim_stream *stream;
    BEGIN(cuStreamIsCapturing);
    int code = stream_find(handle, &stream);
    REQUIRE(!code, code);
    REQUIRE(status, ERROR_INVALID_VALUE);
    code = capture_check_legacy(stream);
    if (!code)
        *status = capture_status(stream);
    return leave(code);
}

/* The graph and its nodes have no handles before the capture ends: none are given. */
SIM_API CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                           const CUgraphNode **nodes, size_t *count)
{
    sim_stream *stream;
    BEGIN(cuStreamGetCaptureInfo_v2);
    int code = stream_find(handle, &stream);
    REQUIRE(!code, code);
    REQUIRE(status, ERROR_INVALID_VALUE);
    *status = capture_status(stream);
    if (id)
        *id = stream->capture ? stream->capture->id : 0;
    if (graph)
        *graph = NULL;
    if (nodes)
        *nodes = NULL;
    if (count)
        *count = 0;
    return leave(SUCCESS);
}

SIM_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    BEGIN(cuThreadExchangeStreamCaptureMode);
    REQUIRE(mode && (int)*mode >= CAPTURE_GLOBAL && (int)*mode <= CAPTURE_RELAXED, ERROR_INVALID_VALUE);
    int before = thread.capture_mode;
    thread.capture_mode = (int)*mode;
    *mode = before;
    return leave(SUCCESS);
}

SIM_API CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
    BEGIN(cuGraphCreate);
    REQUIRE(out && !flags, ERROR_INVALID_VALUE);
    sim_plan *plan = calloc(1, sizeof *plan);
    REQUIRE(plan, ERROR_OUT_OF_MEMORY);
    plan->references = 1;
    return leave(graph_new(out, OBJECT_GRAPH, plan));
}

/* Only their number can be asked for. */
SIM_API CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    BEGIN(cuGraphGetNodes);
    sim_graph *graph = handle_get(OBJECT_GRAPH, handle);
    REQUIRE(graph && count, ERROR_INVALID_VALUE);
    REQUIRE(!nodes, ERROR_NOT_SUPPORTED);
    *count = (size_t)graph->plan->count;
    return leave(SUCCESS);
}

SIM_API CUresult cuGraphDestroy(CUgraph handle)
{
    BEGIN(cuGraphDestroy);
    return leave(graph_delete(OBJECT_GRAPH, handle));
}

SIM_API CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    (void)flags;
    BEGIN(cuGraphInstantiateWithFlags);
    sim_graph *graph = handle_get(OBJECT_GRAPH, handle);
    REQUIRE(out && graph, ERROR_INVALID_VALUE);
    graph->plan->references++;
    return leave(graph_new(out, OBJECT_GRAPH_EXEC, graph->plan));
}

SIM_API CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle)
{
    sim_stream *stream;
    BEGIN(cuGraphUpload);
    REQUIRE(handle_get(OBJECT_GRAPH_EXEC, handle), ERROR_INVALID_VALUE);
    return leave(stream_find(stream_handle, &stream));
}

SIM_API CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    sim_stream *stream;
    BEGIN(cuGraphLaunch);
    sim_graph *graph = handle_get(OBJECT_GRAPH_EXEC, handle);
    int code = stream_find(stream_handle, &stream);
    REQUIRE(!code, code);
    REQUIRE(graph, ERROR_INVALID_VALUE);
    code = capture_check(stream);
    REQUIRE(!code, code);
    REQUIRE(!stream->capture, capture_break(stream->capture, ERROR_STREAM_CAPTURE_UNSUPPORTED));
    graph->plan->references++;
    return leave(submit(stream, (sim_work){.kind = WORK_GRAPH, .plan = graph->plan}, NULL, NULL));
}

SIM_API CUresult cuGraphExecDestroy(CUgraphExec handle)
{
    BEGIN(cuGraphExecDestroy);
    return leave(graph_delete(OBJECT_GRAPH_EXEC, handle));
}

/* >>symbols */

static void *function_address(const char *name, size_t length, const char *suffix)
{
    static const struct {
        const char *name;
        void *address;
    } table[] = {
#define X(name, kind, needs) {#name, (void *)name},
        SIM_FUNCTIONS(X)
#undef X
            {"cuDriverGetVersion", (void *)cuDriverGetVersion},
        {"cuGetErrorName", (void *)cuGetErrorName},
        {"cuGetErrorString", (void *)cuGetErrorString}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strncmp(table[i].name, name, length) && !strcmp(table[i].name + length, suffix))
            return table[i].address;
    return NULL;
}

/* Asked for base names, as the real one; the newest version is given. */
SIM_API CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    static const char *const suffixes[] = {"_v3", "_v2", ""};
    (void)version, (void)flags;
    if (!symbol || !out)
        return (CUresult)ERROR_INVALID_VALUE;
    *out = !strcmp(symbol, "cuGetProcAddress") ? (void *)cuGetProcAddress_v2 : NULL;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && !*out; i++)
        *out = function_address(symbol, strlen(symbol), suffixes[i]);
    if (status)
        *status = *out ? 0 : 1;
    return (CUresult)(*out || status ? SUCCESS : ERROR_NOT_FOUND);
}

/* >>for the executor */

static void describe_freed(uintptr_t address, char *what, size_t size)
{
    unsigned count = sim.freed_count < REMEMBERED_BLOCKS ? sim.freed_count : REMEMBERED_BLOCKS;
    for (unsigned i = 0; i < count; i++)
        if (address - sim.freed[i].start < sim.freed[i].size) {
            snprintf(what, size, "%zu bytes into a block of %zu bytes that was freed", (size_t)(address - sim.freed[i].start),
                     sim.freed[i].size);
            return;
        }
}

static void describe(uintptr_t address, char *what, size_t size)
{
    size_t after = range_after(address);
    sim_range *range = after ? sim.ranges[after - 1] : NULL;
    if (reservation_at(address)) {
        range = range_at(address);
        snprintf(what, size,
                 range ? "%zu bytes into a mapping without the access that was tried"
                       : "%zu bytes into reserved addresses, where nothing is mapped",
                 (size_t)(address - (range ? range->start : reservation_at(address)->start)));
        return;
    }
    snprintf(what, size, "device memory that belongs to no block");
    describe_freed(address, what, size);
    if (!range || !range->arena || address - range->start >= range->span)
        return;
    size_t offset = address - range->start;
    if (offset < range->size)
        snprintf(what, size, "%zu bytes into a block of %zu bytes", offset, range->size);
    else
        snprintf(what, size, "%zu bytes behind the end of a block of %zu bytes", offset - range->size, range->size);
}

/* Called from a signal handler too, where the lock may be held by the thread that crashed: so not waited for for ever. */
int sim_address_describe(const void *address, char *what, size_t what_size)
{
    int locked = 0;
    for (int i = 0; i < 1000 && !locked; i++) {
        locked = !pthread_mutex_trylock(&sim.lock);
        if (!locked)
            usleep(100);
    }
    int inside = arena_at((uintptr_t)address) || (locked && reservation_at((uintptr_t)address));
    if (locked) {
        if (inside)
            describe((uintptr_t)address, what, what_size);
        pthread_mutex_unlock(&sim.lock);
    } else if (inside) {
        snprintf(what, what_size, "device memory");
    }
    return inside;
}

/* >>control functions for tests, found with dlsym */

/* Replace the calls that are made to fail and start counting anew. NULL or "": none. -1: not understood, nothing changed. */
SIM_API int ignis_sim_fail(const char *spec)
{
    pthread_mutex_lock(&sim.lock);
    int understood = set_rules(spec);
    pthread_mutex_unlock(&sim.lock);
    return understood ? 0 : -1;
}

static long live_ranges(sim_range_kind kind, int bytes)
{
    long sum = 0;
    for (size_t i = 0; i < sim.range_count; i++)
        if (sim.ranges[i]->kind == kind)
            sum += bytes ? (long)sim.ranges[i]->size : 1;
    return sum;
}

static long live_reservations(void)
{
    long count = 0;
    for (const sim_reservation *reservation = sim.reservations; reservation; reservation = reservation->next)
        count++;
    return count;
}

static long live_count(const char *kind)
{
    long references = 0;
    for (int i = 0; i < sim.device_count; i++)
        references += sim.contexts[i].references;
    if (!strcmp(kind, "context"))
        return references;
    if (!strcmp(kind, "malloc"))
        return live_ranges(RANGE_DEVICE, 0);
    if (!strcmp(kind, "bytes"))
        return live_ranges(RANGE_DEVICE, 1);
    if (!strcmp(kind, "hostalloc"))
        return live_ranges(RANGE_PINNED, 0) + live_ranges(RANGE_REGISTERED, 0);
    if (!strcmp(kind, "stream"))
        return count_objects(OBJECT_STREAM);
    if (!strcmp(kind, "event"))
        return count_objects(OBJECT_EVENT);
    if (!strcmp(kind, "module"))
        return count_objects(OBJECT_MODULE);
    if (!strcmp(kind, "graph"))
        return count_objects(OBJECT_GRAPH) + count_objects(OBJECT_GRAPH_EXEC);
    if (!strcmp(kind, "handle"))
        return sim.physicals;
    if (!strcmp(kind, "import"))
        return sim.imports + live_ranges(RANGE_IMPORTED, 0);
    if (!strcmp(kind, "mapping"))
        return live_ranges(RANGE_MAPPED, 0);
    if (!strcmp(kind, "reservation"))
        return live_reservations();
    if (!strcmp(kind, "external"))
        return count_objects(OBJECT_EXTERNAL) + live_ranges(RANGE_EXTERNAL, 0);
    if (!strcmp(kind, "timeline"))
        return count_objects(OBJECT_TIMELINE);
    if (!strcmp(kind, "resource"))
        return count_objects(OBJECT_RESOURCE) + live_ranges(RANGE_GL, 0);
    return -1;
}

/* How many of a kind are alive: context (references), malloc, bytes, hostalloc, stream, event, module, graph; handle (physical
   memory), import (of it, or of a block), mapping, reservation; external (memory of a graphics API, and mappings of it), timeline, resource (of
   OpenGL, and mappings). -1: no such kind. */
SIM_API long ignis_sim_live(const char *kind)
{
    pthread_mutex_lock(&sim.lock);
    long count = live_count(kind);
    pthread_mutex_unlock(&sim.lock);
    return count;
}

/* A timeline semaphore with a value, exported: a file of one page, which begins with a sim_timeline_page. -1: not possible. Memory needs no
   function: it is any file of memfd_create. */
SIM_API int ignis_sim_timeline(uint64_t value)
{
    sim_timeline_page shown = {.value = value};
    int file = memfd_create("ignis-sim-timeline", MFD_CLOEXEC);
    memcpy(shown.magic, timeline_magic, sizeof timeline_magic);
    if (file < 0 || (!ftruncate(file, (off_t)page) && pwrite(file, &shown, sizeof shown, 0) == sizeof shown))
        return file;
    close(file);
    return -1;
}

/* Whether the calling thread has an OpenGL context. */
SIM_API void ignis_sim_gl_current(int current_here) { thread.gl = current_here; }

/* A new buffer of that OpenGL, filled with zeros; 0: not possible. */
SIM_API unsigned ignis_sim_gl_buffer(size_t size)
{
    sim_gl_buffer *buffer = calloc(1, sizeof *buffer);
    int file = memfd_create("ignis-sim-gl", MFD_CLOEXEC);
    void *data = file < 0 || ftruncate(file, (off_t)size) ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (!buffer || data == MAP_FAILED) {
        if (file >= 0)
            close(file);
        free(buffer);
        return 0;
    }
    pthread_mutex_lock(&sim.lock);
    *buffer = (sim_gl_buffer){.name = ++sim.gl_names, .file = file, .size = size, .data = data, .next = sim.gl_buffers};
    sim.gl_buffers = buffer;
    pthread_mutex_unlock(&sim.lock);
    return buffer->name;
}

/* Its content, as OpenGL sees it. NULL while it is mapped: to use it then is a mistake. */
SIM_API void *ignis_sim_gl_data(unsigned name)
{
    pthread_mutex_lock(&sim.lock);
    sim_gl_buffer *buffer = gl_find(name);
    int mapped = buffer && buffer->resource && buffer->resource->range;
    if (mapped)
        say("OpenGL uses buffer %u while it is mapped", name);
    void *data = buffer && !mapped ? buffer->data : NULL;
    pthread_mutex_unlock(&sim.lock);
    return data;
}

SIM_API void ignis_sim_gl_delete(unsigned name)
{
    pthread_mutex_lock(&sim.lock);
    sim_gl_buffer **link = &sim.gl_buffers, *buffer = gl_find(name);
    if (buffer) {
        while (*link != buffer)
            link = &(*link)->next;
        *link = buffer->next;
        if (buffer->resource) {
            say("OpenGL buffer %u is deleted while it is registered", name);
            buffer->resource->buffer = NULL;
        }
        munmap(buffer->data, buffer->size);
        close(buffer->file);
        free(buffer);
    }
    pthread_mutex_unlock(&sim.lock);
}

/* What a library calls that loads kernels, as if by the driver. */
SIM_API void ignis_sim_loads(void)
{
    pthread_mutex_lock(&sim.lock);
    if (current() && current()->active)
        loading_waits(current());
    pthread_mutex_unlock(&sim.lock);
}

/* What a library calls that has work captured by `stream`: `call` comes when nothing can run it any more, and calls no driver. */
SIM_API int ignis_sim_at_graph_end(CUstream handle, void (*call)(void *), void *data)
{
    sim_goodbye *goodbye = calloc(1, sizeof *goodbye);
    sim_stream *stream;
    int code;
    pthread_mutex_lock(&sim.lock);
    code = !goodbye ? ERROR_OUT_OF_MEMORY : stream_find(handle, &stream);
    if (!code && !stream->capture)
        code = ERROR_INVALID_VALUE;
    if (!code) {
        *goodbye = (sim_goodbye){call, data, stream->capture->plan->goodbyes};
        stream->capture->plan->goodbyes = goodbye;
    }
    pthread_mutex_unlock(&sim.lock);
    if (code)
        free(goodbye);
    return code;
}

/* How many calls of a kind or of a function there were, failed ones included. -1: no such name. */
SIM_API long ignis_sim_calls(const char *name)
{
    sim_rule rule = {0};
    long sum = 0;
    if (!find_name(name, strlen(name), &rule.kind, &rule.function))
        return -1;
    pthread_mutex_lock(&sim.lock);
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (rule_matches(&rule, i))
            sum += sim.calls[i];
    pthread_mutex_unlock(&sim.lock);
    return sum;
}
