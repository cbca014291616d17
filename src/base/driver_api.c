/* ===============================================================================================================
   >>loader - the driver, NVRTC and cuBLASLt, opened at run time from one table per library

   A row of the table becomes a typedef, a member of the struct of pointers and a name to look up. A required
   function that is missing makes the library unusable; an optional one is NULL.
   May use: >>status. Locks: see loader.c.
   =============================================================================================================== */

/*  X(return type, name, (argument types), first CUDA version that has it, required). The prototypes are written for
    Ignis: enumerations are int, handles void *, device addresses ignis__address. tests/prototypes.cpp compares them
    with the toolkit's headers. */
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

static struct ignis__cuda_api {
    IGNIS__CUDA_API(IGNIS__API_MEMBER)
} ignis__cuda;

static struct ignis__nvrtc_api {
    IGNIS__NVRTC_API(IGNIS__API_MEMBER)
} ignis__nvrtc;

static struct ignis__cublaslt_api {
    IGNIS__CUBLASLT_API(IGNIS__API_MEMBER)
} ignis__cublaslt;

static struct ignis__nccl_api {
    IGNIS__NCCL_API(IGNIS__API_MEMBER)
} ignis__nccl;

/*  Calls a driver function, as IGNIS__CUDA(cuMemFree_v2, (address)). The only way to call one. */
#define IGNIS__CUDA(name, args) IGNIS_CALL_HOOK(#name, ignis__cuda.name args)
#define IGNIS__NVRTC(name, args) IGNIS_CALL_HOOK(#name, ignis__nvrtc.name args)
