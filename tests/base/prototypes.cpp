// SPDX-License-Identifier: MIT
/*  prototypes.cpp - compares the loader tables of ignis.h, and the driver's structs in ignis_collective.h, with the
    CUDA toolkit's headers, while it compiles

    Ignis declares the functions that it loads itself: ints stand for enums, void * for handles, uint64_t for device
    addresses.
    A prototype fits the toolkit's when it has as many parameters, each of the same size and kind. One that does not
    stops the compiler with the function's name. The same goes for the numbers that Ignis uses.
    tools/check_prototypes.sh compiles this, and also with each planted mistake. */
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"

#include <cublasLt.h>
#include <cuda.h>
extern "C" CUresult CUDAAPI cuGraphicsGLRegisterBuffer(CUgraphicsResource *, unsigned,
                                                       unsigned); // cudaGL.h needs OpenGL's headers
#include <nvrtc.h>
#ifdef __has_include /* NCCL is no part of the toolkit */
#if __has_include(<nccl.h>)
#define HAS_NCCL
#include <nccl.h>
#endif
#endif

#include <type_traits>

enum kind { KIND_POINTER, KIND_NUMBER, KIND_FLOATING, KIND_STRUCT, KIND_VOID };

template <typename T> constexpr kind kind_of()
{
    return std::is_pointer<T>::value                              ? KIND_POINTER
           : std::is_floating_point<T>::value                     ? KIND_FLOATING
           : std::is_integral<T>::value || std::is_enum<T>::value ? KIND_NUMBER
           : std::is_void<T>::value                               ? KIND_VOID
                                                                  : KIND_STRUCT;
}

template <typename A, typename B> struct same_value {
    static constexpr bool value = kind_of<A>() == kind_of<B>() && sizeof(A) == sizeof(B);
};
template <> struct same_value<void, void> {
    static constexpr bool value = true;
};

template <typename A, typename B> struct fits {
    static constexpr bool value = false;
};
template <typename A, typename B> struct fits<A(), B()> {
    static constexpr bool value = same_value<A, B>::value;
};
template <typename A, typename B, typename A1, typename B1, typename... As, typename... Bs>
struct fits<A(A1, As...), B(B1, Bs...)> {
    static constexpr bool value = same_value<A1, B1>::value && fits<A(As...), B(Bs...)>::value;
};

#define CHECK(result, name, parameters, version, required)          \
    static_assert(fits<result parameters, decltype(::name)>::value, \
                  "the prototype of " #name " differs from the toolkit's");

IGNIS__CUDA_API(CHECK)
IGNIS__NVRTC_API(CHECK)
IGNIS__CUBLASLT_API(CHECK)
#ifdef HAS_NCCL
IGNIS__NCCL_API(CHECK)
#endif

#define SAME(own, theirs) static_assert(int(own) == int(theirs), #own " is not " #theirs);

SAME(IGNIS__CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE)
SAME(IGNIS__CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)
SAME(IGNIS__CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE)
SAME(IGNIS__CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE)
SAME(IGNIS__CU_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU)
SAME(IGNIS__CU_INVALID_PTX, CUDA_ERROR_INVALID_PTX)
SAME(IGNIS__CU_NO_JIT, CUDA_ERROR_JIT_COMPILER_NOT_FOUND)
SAME(IGNIS__CU_UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
SAME(IGNIS__CU_ATTRIBUTE_MAX_THREADS, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
SAME(IGNIS__CU_ATTRIBUTE_WARP_SIZE, CU_DEVICE_ATTRIBUTE_WARP_SIZE)
SAME(IGNIS__CU_ATTRIBUTE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
SAME(IGNIS__CU_ATTRIBUTE_CLOCK, CU_DEVICE_ATTRIBUTE_CLOCK_RATE)
SAME(IGNIS__CU_ATTRIBUTE_MEMORY_CLOCK, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)
SAME(IGNIS__CU_ATTRIBUTE_MEMORY_BITS, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)
SAME(IGNIS__CU_ATTRIBUTE_L2_BYTES, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
SAME(IGNIS__CU_ATTRIBUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
SAME(IGNIS__CU_ATTRIBUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
SAME(IGNIS__CU_ATTRIBUTE_SHARED_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
SAME(IGNIS__CU_ATTRIBUTE_CLUSTERS, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)
SAME(IGNIS__CU_STREAM_DEFAULT, CU_STREAM_DEFAULT)
SAME(IGNIS__CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING)

/* These handles are numbers made pointers, which are no constants of C++: their text is compared. */
constexpr bool same_text(const char *a, const char *b) { return *a == *b && (!*a || same_text(a + 1, b + 1)); }
#define TEXT_OF(text) #text
#define TEXT(macro) TEXT_OF(macro)
#define STREAM_SAME(own, theirs, number)                                                                  \
    static_assert(int(own) == number && same_text(TEXT(theirs), "((CUstream)0x" #number ")"), #own " is " \
                                                                                                   "not " #theirs);
STREAM_SAME(IGNIS__CU_STREAM_LEGACY, CU_STREAM_LEGACY, 1)
STREAM_SAME(IGNIS__CU_STREAM_PER_THREAD, CU_STREAM_PER_THREAD, 2)

SAME(IGNIS__CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED)
SAME(IGNIS__CU_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
SAME(IGNIS__CU_EVENT_DEFAULT, CU_EVENT_DEFAULT)
SAME(IGNIS__CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING)
SAME(IGNIS__CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
SAME(IGNIS__CU_POINTER_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
SAME(IGNIS__CU_POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
SAME(IGNIS__CU_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE)
SAME(IGNIS__CU_MEMORY_HOST, CU_MEMORYTYPE_HOST)
SAME(IGNIS__CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE)
SAME(IGNIS__CU_FUNC_MAX_THREADS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
SAME(IGNIS__CU_FUNC_SHARED, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
SAME(IGNIS__CU_FUNC_LOCAL, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
SAME(IGNIS__CU_FUNC_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS)
SAME(IGNIS__CU_FUNC_PTX_VERSION, CU_FUNC_ATTRIBUTE_PTX_VERSION)
SAME(IGNIS__CU_LAUNCH_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
SAME(IGNIS__CU_LAUNCH_DEPENDENT, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
SAME(IGNIS__CU_FUNC_MAX_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
SAME(IGNIS__NVRTC_OUT_OF_MEMORY, NVRTC_ERROR_OUT_OF_MEMORY)
SAME(IGNIS__NVRTC_INVALID_OPTION, NVRTC_ERROR_INVALID_OPTION)
SAME(IGNIS__NVRTC_COMPILATION, NVRTC_ERROR_COMPILATION)
SAME(IGNIS__LT_COMPUTE_32F, CUBLAS_COMPUTE_32F)
SAME(IGNIS__LT_COMPUTE_64F, CUBLAS_COMPUTE_64F)
SAME(IGNIS__LT_COMPUTE_32F_TF32, CUBLAS_COMPUTE_32F_FAST_TF32)
SAME(IGNIS__LT_R_32F, CUDA_R_32F)
SAME(IGNIS__LT_R_64F, CUDA_R_64F)
SAME(IGNIS__LT_R_16F, CUDA_R_16F)
SAME(IGNIS__LT_R_16BF, CUDA_R_16BF)
SAME(IGNIS__LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA)
SAME(IGNIS__LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB)
SAME(IGNIS__LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE)
SAME(IGNIS__LT_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER)
SAME(IGNIS__LT_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
SAME(IGNIS__LT_LAYOUT_BATCH_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
SAME(IGNIS__LT_PREFERENCE_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
SAME(IGNIS__LT_PREFERENCE_REDUCTION, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
SAME(IGNIS__LT_REDUCTION_NONE, CUBLASLT_REDUCTION_SCHEME_NONE)
SAME(IGNIS__LT_REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
SAME(IGNIS__LT_PREFERENCE_ALIGNMENT_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
SAME(IGNIS__LT_EPILOGUE_NONE, CUBLASLT_EPILOGUE_DEFAULT)
SAME(IGNIS__LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS)
SAME(IGNIS__LT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_BGRADB)
SAME(IGNIS__LT_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED)
SAME(IGNIS__CU_ATTRIBUTE_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
SAME(IGNIS__CU_ATTRIBUTE_VMM_POSIX_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
SAME(IGNIS__CU_ATTRIBUTE_VMM_WIN32, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED)
SAME(IGNIS__CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM)
SAME(IGNIS__CU_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
SAME(IGNIS__CU_IPC_LAZY_PEER, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
SAME(IGNIS__CU_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE)
SAME(IGNIS__CU_HOST_REGISTER_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP)
SAME(IGNIS__CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND)
SAME(IGNIS__CU_NOT_READY, CUDA_ERROR_NOT_READY)
SAME(IGNIS__CU_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
SAME(IGNIS_VMM_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
SAME(IGNIS_VMM_HANDLE_WIN32, CU_MEM_HANDLE_TYPE_WIN32)
SAME(IGNIS_VMM_HANDLE_WIN32_KMT, CU_MEM_HANDLE_TYPE_WIN32_KMT)
SAME(IGNIS_VMM_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED)
SAME(IGNIS_VMM_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE)
SAME(IGNIS_VMM_LOCATION_HOST, CU_MEM_LOCATION_TYPE_HOST)
SAME(IGNIS_VMM_LOCATION_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA)
SAME(IGNIS_VMM_LOCATION_HOST_NUMA_CURRENT, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
SAME(IGNIS_VMM_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ)
SAME(IGNIS_VMM_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)

/*  The structs that are passed by address. */
static_assert(sizeof(ignis_vmm_location) == sizeof(CUmemLocation), "CUmemLocation");
static_assert(offsetof(ignis_vmm_location, type) == offsetof(CUmemLocation, type), "CUmemLocation.type");
static_assert(offsetof(ignis_vmm_location, id) == offsetof(CUmemLocation, id), "CUmemLocation.id");
static_assert(sizeof(ignis_vmm_prop) == sizeof(CUmemAllocationProp), "CUmemAllocationProp");
static_assert(offsetof(ignis_vmm_prop, type) == offsetof(CUmemAllocationProp, type), "CUmemAllocationProp.type");
static_assert(offsetof(ignis_vmm_prop, handle_types) == offsetof(CUmemAllocationProp, requestedHandleTypes),
              "requestedHandleTypes");
static_assert(offsetof(ignis_vmm_prop, location) == offsetof(CUmemAllocationProp, location),
              "CUmemAllocationProp.location");
static_assert(offsetof(ignis_vmm_prop, win32_security) == offsetof(CUmemAllocationProp, win32HandleMetaData),
              "win32HandleMetaData");
static_assert(offsetof(ignis_vmm_prop, flags) == offsetof(CUmemAllocationProp, allocFlags),
              "CUmemAllocationProp.allocFlags");
static_assert(sizeof(ignis_vmm_prop::flags) == sizeof(CUmemAllocationProp::allocFlags),
              "CUmemAllocationProp.allocFlags");
static_assert(offsetof(ignis_vmm_prop, flags.compression) == offsetof(CUmemAllocationProp, allocFlags.compressionType),
              "compressionType");
static_assert(offsetof(ignis_vmm_prop, flags.gpu_direct_rdma) ==
                  offsetof(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable),
              "gpuDirectRDMACapable");
static_assert(offsetof(ignis_vmm_prop, flags.usage) == offsetof(CUmemAllocationProp, allocFlags.usage),
              "allocFlags.usage");
static_assert(offsetof(ignis_vmm_access_desc, location) == offsetof(CUmemAccessDesc, location),
              "CUmemAccessDesc.location");
static_assert(sizeof(ignis_vmm_access_desc) == sizeof(CUmemAccessDesc), "CUmemAccessDesc");
static_assert(offsetof(ignis_vmm_access_desc, access) == offsetof(CUmemAccessDesc, flags), "CUmemAccessDesc.flags");

SAME(IGNIS__CU_MEMORY_FD, CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
SAME(IGNIS__CU_MEMORY_WIN32, CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32)
SAME(IGNIS__CU_MEMORY_D3D12_HEAP, CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP)
SAME(IGNIS__CU_MEMORY_D3D12_RESOURCE, CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE)
SAME(IGNIS__CU_MEMORY_DEDICATED, CUDA_EXTERNAL_MEMORY_DEDICATED)
SAME(IGNIS__CU_SEMAPHORE_D3D12, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE)
SAME(IGNIS__CU_SEMAPHORE_TIMELINE_FD, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD)
SAME(IGNIS__CU_SEMAPHORE_TIMELINE_WIN32, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32)
SAME(IGNIS__CU_GRAPHICS_NONE, CU_GRAPHICS_REGISTER_FLAGS_NONE)
SAME(IGNIS__CU_GRAPHICS_READ_ONLY, CU_GRAPHICS_REGISTER_FLAGS_READ_ONLY)
SAME(IGNIS__CU_GRAPHICS_WRITE_DISCARD, CU_GRAPHICS_REGISTER_FLAGS_WRITE_DISCARD)

#define SAME_PLACE(own, member, theirs, place) \
    static_assert(offsetof(own, member) == offsetof(theirs, place), #theirs "." #place);
static_assert(sizeof(ignis__launch_attribute) == sizeof(CUlaunchAttribute), "CUlaunchAttribute");
SAME_PLACE(ignis__launch_attribute, value.allowed, CUlaunchAttribute, value.programmaticStreamSerializationAllowed)
static_assert(sizeof(ignis__launch_config) == sizeof(CUlaunchConfig), "CUlaunchConfig");
SAME_PLACE(ignis__launch_config, block, CUlaunchConfig, blockDimX)
SAME_PLACE(ignis__launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes)
SAME_PLACE(ignis__launch_config, stream, CUlaunchConfig, hStream)
SAME_PLACE(ignis__launch_config, attributes, CUlaunchConfig, attrs)
SAME_PLACE(ignis__launch_config, attribute_count, CUlaunchConfig, numAttrs)
static_assert(sizeof(ignis__external_memory_desc) == sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC),
              "CUDA_EXTERNAL_MEMORY_HANDLE_DESC");
SAME_PLACE(ignis__external_memory_desc, type, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, type)
SAME_PLACE(ignis__external_memory_desc, os.fd, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle.fd)
SAME_PLACE(ignis__external_memory_desc, os.win32.handle, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle.win32.handle)
SAME_PLACE(ignis__external_memory_desc, os.win32.name, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle.win32.name)
SAME_PLACE(ignis__external_memory_desc, size, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size)
SAME_PLACE(ignis__external_memory_desc, flags, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, flags)
static_assert(sizeof(ignis__external_part) == sizeof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC),
              "CUDA_EXTERNAL_MEMORY_BUFFER_DESC");
SAME_PLACE(ignis__external_part, offset, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, offset)
SAME_PLACE(ignis__external_part, size, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size)
SAME_PLACE(ignis__external_part, flags, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, flags)
static_assert(sizeof(ignis__semaphore_desc) == sizeof(CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC),
              "CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC");
SAME_PLACE(ignis__semaphore_desc, type, CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, type)
SAME_PLACE(ignis__semaphore_desc, os.fd, CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, handle.fd)
SAME_PLACE(ignis__semaphore_desc, os.win32.handle, CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, handle.win32.handle)
SAME_PLACE(ignis__semaphore_desc, flags, CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, flags)
static_assert(sizeof(ignis__semaphore_value) == sizeof(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS),
              "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS");
static_assert(sizeof(ignis__semaphore_value) == sizeof(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS),
              "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS");
SAME_PLACE(ignis__semaphore_value, value, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, params.fence.value)
SAME_PLACE(ignis__semaphore_value, flags, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, flags)
SAME_PLACE(ignis__semaphore_value, value, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, params.fence.value)
SAME_PLACE(ignis__semaphore_value, flags, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, flags)

static_assert(sizeof(ignis__ipc_handle) == sizeof(CUipcMemHandle), "CUipcMemHandle");
static_assert(sizeof(ignis__ipc_handle) == sizeof(CUipcEventHandle), "CUipcEventHandle");

#ifdef HAS_NCCL
static_assert(sizeof(ignis__nccl_id) == sizeof(ncclUniqueId), "ncclUniqueId");
SAME(IGNIS__NCCL_SUCCESS, ncclSuccess)
SAME(IGNIS__NCCL_IN_PROGRESS, ncclInProgress)
SAME(IGNIS__NCCL_VERSION_LEAST, NCCL_VERSION(2, 19, 0))
SAME(IGNIS__NCCL_UINT8, ncclUint8)
SAME(IGNIS__NCCL_INT32, ncclInt32)
SAME(IGNIS__NCCL_INT64, ncclInt64)
SAME(IGNIS__NCCL_FLOAT16, ncclFloat16)
SAME(IGNIS__NCCL_FLOAT32, ncclFloat32)
SAME(IGNIS__NCCL_FLOAT64, ncclFloat64)
SAME(IGNIS__NCCL_BFLOAT16, ncclBfloat16)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
SAME(IGNIS__NCCL_FLOAT8_E4M3, ncclFloat8e4m3)
SAME(IGNIS__NCCL_FLOAT8_E5M2, ncclFloat8e5m2)
#endif
SAME(IGNIS__NCCL_SUM, ncclSum)
SAME(IGNIS__NCCL_PROD, ncclProd)
SAME(IGNIS__NCCL_MAX, ncclMax)
SAME(IGNIS__NCCL_MIN, ncclMin)
SAME(IGNIS__NCCL_AVG, ncclAvg)
SAME(offsetof(ignis__nccl_config, magic), offsetof(ncclConfig_t, magic))
SAME(offsetof(ignis__nccl_config, blocking), offsetof(ncclConfig_t, blocking))
SAME(offsetof(ignis__nccl_config, most_blocks), offsetof(ncclConfig_t, maxCTAs))
SAME(offsetof(ignis__nccl_config, split_share), offsetof(ncclConfig_t, splitShare))
#endif

#ifdef PLANTED_SIZE
CHECK(int, cuMemFree_v2, (int), 0, 1)
#endif
#ifdef PLANTED_COUNT
CHECK(int, cuMemFree_v2, (uint64_t, int), 0, 1)
#endif
#ifdef PLANTED_NUMBER
SAME(IGNIS__CU_NO_DEVICE, CUDA_ERROR_INVALID_DEVICE)
#endif

int main() { return 0; }
