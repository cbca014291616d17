// SPDX-License-Identifier: MIT
/*  functions.h - tables: result codes, kinds of calls, and every exported function

    The tables are X macros, so that names, checks and counters come from one place.
*/
#ifndef SIM_DRIVER_FUNCTIONS_H
#define SIM_DRIVER_FUNCTIONS_H

/* clang-format off */
/* The result codes, their names and messages. */
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
    X(906, ERROR_STREAM_CAPTURE_IMPLICIT, \
      "operation would make the legacy stream depend on a capturing blocking stream") \
    X(907, ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream") \
    X(908, ERROR_STREAM_CAPTURE_WRONG_THREAD, \
      "attempt to terminate a thread-local capture sequence from another thread") \
    X(999, ERROR_UNKNOWN, "unknown error")

enum {
#define X(number, name, sentence) name = number,
    SIM_CODES(X)
#undef X
    NO_CODE = -1
};

/* Kinds of calls for counting, and the code of an injected failure. "any" spares calls of kind "release": a
   program that cleans up after a failure would leak otherwise. */
#define SIM_KINDS(X) \
    X(init, ERROR_UNKNOWN) X(query, ERROR_UNKNOWN) X(context, ERROR_OUT_OF_MEMORY) X(malloc, ERROR_OUT_OF_MEMORY) \
    X(hostalloc, ERROR_OUT_OF_MEMORY) X(vmm, ERROR_OUT_OF_MEMORY) X(ipc, ERROR_MAP_FAILED) X(external, ERROR_UNKNOWN) \
    X(copy, ERROR_UNKNOWN) X(memset, ERROR_UNKNOWN) X(launch, ERROR_LAUNCH_OUT_OF_RESOURCES) \
    X(module, ERROR_OUT_OF_MEMORY) X(stream, ERROR_OUT_OF_MEMORY) X(event, ERROR_OUT_OF_MEMORY) X(sync, ERROR_UNKNOWN) \
    X(graph, ERROR_OUT_OF_MEMORY) X(release, ERROR_UNKNOWN)

enum {
#define X(name, code) KIND_##name,
    SIM_KINDS(X)
#undef X
    KIND_COUNT, KIND_any = KIND_COUNT
};

/* Conditions that begin() checks. */
enum {
    NEEDS_NOTHING,
    NEEDS_INIT,     /* cuInit was called, in this process */
    NEEDS_HEALTHY,  /* the thread has a live current context, and nothing in the process has faulted */
    NEEDS_MASK = 15,
    UNSAFE = 16     /* not while a stream captures, see capture_forbids */
};

/* Every exported function that counts: name, kind, needs. Fault injection, call counts and cuGetProcAddress
   use this list. */
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
/* clang-format on */

#endif
