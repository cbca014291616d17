/*  base/dry_bind.c - the table of the dry driver, and its device

    Assigns the functions of dry_driver.c to the tables of driver, NVRTC and cuBLASLt, and describes the device. May
    use: dry_driver.c, >>loader. Locks: none, ignis_setup alone calls it. */

#include "room.h"

/*  Fills the tables with what a dry run needs. ignis_collective.h refuses the rest: sharing among devices and
    processes. */
IGNIS__COLD static void ignis__dry_bind(void)
{
    struct ignis__cuda_api *cuda = &ignis__cuda;
    memset(cuda, 0, sizeof *cuda);
    cuda->cuInit = ignis__dry_flags;
    cuda->cuDevicePrimaryCtxRelease_v2 = ignis__dry_number;
    cuda->cuCtxSynchronize = ignis__dry_nothing;
    cuda->cuCtxSetCurrent = cuda->cuCtxPushCurrent_v2 = cuda->cuStreamSynchronize = cuda->cuStreamQuery =
        ignis__dry_handle;
    cuda->cuEventDestroy_v2 = cuda->cuEventQuery = cuda->cuEventSynchronize = cuda->cuModuleUnload = ignis__dry_handle;
    cuda->cuGraphDestroy = cuda->cuGraphExecDestroy = ignis__dry_handle;
    cuda->cuEventRecord = cuda->cuGraphLaunch = ignis__dry_two;
    cuda->cuStreamWaitEvent = ignis__dry_order;
    cuda->cuFuncSetAttribute = ignis__dry_set;
    cuda->cuCtxGetCurrent = cuda->cuCtxPopCurrent_v2 = ignis__dry_none;
    cuda->cuDevicePrimaryCtxRetain = ignis__dry_context;
    cuda->cuStreamGetCtx = ignis__dry_context_of;
    cuda->cuEventCreate = ignis__dry_event;
    cuda->cuModuleLoadData = ignis__dry_module;
    cuda->cuModuleGetFunction = ignis__dry_function;
    cuda->cuGraphInstantiateWithFlags = ignis__dry_exec;
    cuda->cuStreamCreate = ignis__dry_stream;
    cuda->cuStreamCreateWithPriority = ignis__dry_stream_with;
    cuda->cuStreamDestroy_v2 = cuda->cuMemFreeHost = ignis__dry_freed;
    cuda->cuStreamIsCapturing = ignis__dry_capturing;
    cuda->cuStreamBeginCapture_v2 = ignis__dry_capture;
    cuda->cuStreamEndCapture = ignis__dry_capture_end;
    cuda->cuEventElapsedTime = ignis__dry_elapsed;
    cuda->cuLaunchHostFunc = ignis__dry_call;
    cuda->cuDeviceGetCount = ignis__dry_one;
    cuda->cuDriverGetVersion = ignis__dry_version;
    cuda->cuDeviceGet = ignis__dry_device_get;
    cuda->cuDeviceGetName = ignis__dry_name;
    cuda->cuDeviceGetPCIBusId = ignis__dry_bus;
    cuda->cuDeviceGetUuid_v2 = ignis__dry_uuid;
    cuda->cuDeviceTotalMem_v2 = ignis__dry_total;
    cuda->cuDeviceGetAttribute = ignis__dry_attribute;
    cuda->cuFuncGetAttribute = ignis__dry_function_get;
    cuda->cuOccupancyMaxActiveBlocksPerMultiprocessor = ignis__dry_resident;
    cuda->cuTensorMapEncodeTiled = ignis__dry_map;
    cuda->cuTensorMapEncodeIm2col = ignis__dry_pixels;
    cuda->cuMemGetInfo_v2 = ignis__dry_free_bytes;
    cuda->cuMemAlloc_v2 = ignis__dry_alloc;
    cuda->cuMemFree_v2 = ignis__dry_free;
    cuda->cuMemHostAlloc = ignis__dry_pinned;
    cuda->cuPointerGetAttributes = ignis__dry_pointer;
    cuda->cuMemsetD8Async = ignis__dry_fill;
    cuda->cuMemcpyHtoDAsync_v2 = ignis__dry_upload;
    cuda->cuMemcpyDtoHAsync_v2 = ignis__dry_download;
    cuda->cuMemcpyDtoDAsync_v2 = ignis__dry_copy;
    cuda->cuLaunchKernel = ignis__dry_launch;
    cuda->cuLaunchKernelEx = ignis__dry_launch_config;
}

/*  Sets the device of a dry run: an H200, with the facts that the caller overrides. */
IGNIS__COLD IGNIS__PRIVATE void ignis__dry_setup(const ignis_device_info *facts)
{
    ignis_device_info *info = &ignis__dry.device;
    int i;
    ignis__dry.memory = NULL;
    ignis__dry.used = 0;
    ignis__dry.next = (ignis__address)1 << 40;
    memset(info, 0, sizeof *info);
    if (facts)
        *info = *facts;
    info->name[sizeof info->name - 1] = info->pci_bus_id[sizeof info->pci_bus_id - 1] = 0;
    if (!info->name[0])
        snprintf(info->name, sizeof info->name, "dry run");
    if (!info->pci_bus_id[0])
        snprintf(info->pci_bus_id, sizeof info->pci_bus_id, "0000:00:00.0");
    info->compute_major = info->compute_major ? info->compute_major : 9;
    info->multiprocessors = info->multiprocessors ? info->multiprocessors : 132;
    info->warp_size = info->warp_size ? info->warp_size : 32;
    info->max_threads_per_block = info->max_threads_per_block ? info->max_threads_per_block : 1024;
    info->shared_per_block = info->shared_per_block ? info->shared_per_block : 227 << 10;
    info->l2_bytes = info->l2_bytes ? info->l2_bytes : (int64_t)60 << 20;
    info->memory_total = info->memory_total ? info->memory_total : (int64_t)139 << 30;
    info->driver_version = info->driver_version ? info->driver_version : 13000;
    ignis__dry_bind();
#ifndef IGNIS_NO_TENSORS
    ignis__dry_bind_products();
#endif
    for (i = IGNIS_LIBRARY_CUDA; i <= IGNIS_LIBRARY_CUBLASLT; i++) {
        struct ignis__loaded *library = &ignis__libraries[i];
        snprintf(library->path, sizeof library->path, "dry run");
        library->found = ignis__library_specs[i].symbol_count;
        library->version = info->driver_version;
        library->release = (uint64_t)info->driver_version;
        library->loaded = 1;
    }
}
