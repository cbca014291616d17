// SPDX-License-Identifier: MIT
/*  cuda_types.h - declarations of cuda.h that the driver needs

    `make prototypes` compiles the driver with the real cuda.h in place of this file.
*/
#if !defined(SIM_DRIVER_CUDA_TYPES_H) && !defined(__cuda_cuda_h__)
#define SIM_DRIVER_CUDA_TYPES_H
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
typedef int CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill;
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
