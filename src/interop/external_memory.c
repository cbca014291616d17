/* ===============================================================================================================
   >>graphics - memory and fences of Vulkan, Direct3D 12 and OpenGL

   This part: imported memory. The exporter owns it; Ignis maps all of it once per import.
   May use: >>array, >>stream, optional functions of the driver. Invariant: the mapping is freed after the last
   array over it. Locks: those of arrays.
   =============================================================================================================== */

#include "room.h"

static const ignis__external_kind ignis__memory_kinds[IGNIS_EXTERNAL_COUNT] = {
    {"", 0, false},
    {"IGNIS_EXTERNAL_FD", IGNIS__CU_MEMORY_FD, false},
    {"IGNIS_EXTERNAL_WIN32", IGNIS__CU_MEMORY_WIN32, true},
    {"IGNIS_EXTERNAL_D3D12_HEAP", IGNIS__CU_MEMORY_D3D12_HEAP, true},
    {"IGNIS_EXTERNAL_D3D12_RESOURCE", IGNIS__CU_MEMORY_D3D12_RESOURCE, true},
};

IGNIS__PRIVATE const ignis__external_kind ignis__fence_kinds[IGNIS_FENCE_TYPE_COUNT] = {
    {"", 0, false},
    {"IGNIS_FENCE_TIMELINE_FD", IGNIS__CU_SEMAPHORE_TIMELINE_FD, false},
    {"IGNIS_FENCE_TIMELINE_WIN32", IGNIS__CU_SEMAPHORE_TIMELINE_WIN32, true},
    {"IGNIS_FENCE_D3D12", IGNIS__CU_SEMAPHORE_D3D12, true},
};

/*  Checks that the driver has a function, and that the thread may call it now. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__graphics_supports(const char *call, bool there, const char *function)
{
    if (there)
        return !ignis__capture_refuses(call);
    return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call, "%s has no function %s: %s",
                             ignis__libraries[IGNIS_LIBRARY_CUDA].path, function,
                             ignis__global.dry_run ? "a dry run has no graphics API" : "it works with no graphics API");
}

#ifdef _WIN32
#define IGNIS__WINDOWS true
#else
#define IGNIS__WINDOWS false
#endif

/*  Checks the description of a system handle. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__external_check(const char *call, const ignis__external_kind *kinds, int count,
                                                      int type, int fd, const void *handle)
{
    if (type < 1 || type >= count)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "desc.type is %d; %s is 1, %s is %d", type, kinds[1].name,
                                 kinds[count - 1].name, count - 1);
    if (kinds[type].windows != IGNIS__WINDOWS)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call, "desc.type is %s, which %s", kinds[type].name,
                                 IGNIS__WINDOWS ? "Windows does not have" : "only Windows has");
    if (kinds[type].windows ? handle == NULL : fd < 0)
        return ignis__fail_false(IGNIS_DIAG_EXTERNAL_HANDLE, call,
                                 kinds[type].windows ? "desc.handle is null" : "desc.fd is %d", fd);
    return true;
}

/*  Returns the handle for the driver: a copy of a descriptor, so that the caller keeps its own if a later step
    fails. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__external_copy(const char *call, int fd, void *handle, ignis__os_handle *os)
{
    memset(os, 0, sizeof *os);
#ifdef _WIN32
    (void)call, (void)fd;
    os->win32.handle = handle;
    return true;
#else
    (void)handle;
    os->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (os->fd >= 0)
        return true;
    if (errno == EBADF)
        ignis__fail(IGNIS_DIAG_EXTERNAL_HANDLE, call, "desc.fd %d is not an open descriptor", fd);
    else
        ignis__fail(IGNIS_DIAG_HOST_MEMORY, call, "the process has no more descriptors");
    return false;
#endif
}

/*  Ends an import. On success the caller's descriptor is the driver's, and closed here; a copy that the driver has
    not taken is closed. */
IGNIS__COLD IGNIS__PRIVATE void ignis__external_settle(int fd, const ignis__os_handle *os, bool taken, bool ok)
{
#ifdef _WIN32
    (void)fd, (void)os, (void)taken, (void)ok;
#else
    if (!taken)
        close(os->fd);
    if (ok)
        close(fd);
#endif
}

/*  Reports the driver's refusal of an import, usually because of the handle. */
IGNIS__COLD IGNIS__PRIVATE void ignis__external_fail(const char *call, ignis__device *device, const char *function,
                                                     int error, const char *kind, const char *more)
{
    if (ignis__cuda_is_fatal(error) || error == IGNIS__CU_OUT_OF_MEMORY)
        ignis__cuda_fail(call, device, function, error);
    else
        ignis__fail_because(IGNIS_DIAG_CUDA_CALL, call, error, ignis__cuda_name(error), NULL,
                            "%s failed with %s (%d): the handle is not of type %s, is of another GPU than device %d%s",
                            function, ignis__cuda_name(error), error, kind, ignis__device_ordinal(device), more);
}

/*  Imported memory, and the address where all of it is mapped. */
typedef struct ignis__external {
    ignis__device *device;
    void *memory;
    ignis__address mapped;
} ignis__external;

/*  Frees the mapping, then the memory. The device is entered. */
static void ignis__external_close(ignis__external *external)
{
    if (external->mapped)
        (void)IGNIS__CUDA(cuMemFree_v2, (external->mapped));
    if (external->memory)
        (void)IGNIS__CUDA(cuDestroyExternalMemory, (external->memory));
}

/*  Releases the memory when the last array over it is gone and its work done; after a fault there is nothing to
    release. */
static void ignis__external_release(void *ptr, void *user_data)
{
    ignis__external *external = (ignis__external *)user_data;
    ignis__binding binding;
    (void)ptr;
    if (ignis__device_enter_to_give("ignis_array_free", external->device, &binding)) {
        ignis__external_close(external);
        ignis__device_leave(&binding);
    }
    ignis__free(external);
}

IGNIS__COLD static bool ignis__external_check_size(const char *call, const ignis_external_desc *desc, int64_t *bytes)
{
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    int64_t numel, element;
    if (!ignis__dtype_valid(call, dtype) || !ignis__shape_check(call, &desc->shape, dtype, &numel))
        return false;
    element = ignis__dtypes[dtype].size;
    *bytes = numel * element;
    if (desc->size < 1)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.size is %lld; it is the bytes of the whole memory object",
                                 (long long)desc->size);
    if (desc->offset < 0 || desc->offset % element != 0)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.offset is %lld, not a multiple of the %lld bytes of an element",
                                 (long long)desc->offset, (long long)element);
    if (desc->offset > desc->size || *bytes > desc->size - desc->offset)
        return ignis__fail_false(
            IGNIS_DIAG_BAD_NUMBER, call,
            "the array has %lld bytes, but from desc.offset %lld on there are %lld of desc.size %lld",
            (long long)*bytes, (long long)desc->offset,
            (long long)(desc->offset > desc->size ? 0 : desc->size - desc->offset), (long long)desc->size);
    return true;
}

/*  Imports memory and maps all of it once. CUDA advises this, because two mappings of one place need not see each
    other's writes. */
IGNIS__COLD static bool ignis__external_map(const char *call, ignis__external *external,
                                            const ignis__external_memory_desc *memory, const char *kind, bool *taken)
{
    ignis__external_part whole = IGNIS__ZERO;
    int error = IGNIS__CUDA(cuImportExternalMemory, (&external->memory, memory));
    *taken = error == 0;
    if (error != 0) {
        external->memory = NULL;
        ignis__external_fail(call, external->device, "cuImportExternalMemory", error, kind,
                             ", or desc.size is not that of the memory object");
        return false;
    }
    whole.size = memory->size;
    return !IGNIS__CUDA_FAILED(call, external->device, cuExternalMemoryGetMappedBuffer,
                               (&external->mapped, external->memory, &whole));
}

IGNIS__COLD IGNIS_API ignis_array ignis_external_array(const ignis_external_desc *desc)
{
    static const char call[] = "ignis_external_array";
    ignis_array none = IGNIS__ZERO, result = IGNIS__ZERO;
    const ignis__external_kind *kind;
    ignis__external_memory_desc memory = IGNIS__ZERO;
    ignis__external *external;
    ignis_array_desc array;
    ignis__device *device;
    ignis__binding binding;
    int64_t bytes = 0;
    bool taken = false;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "desc", desc))
        return none;
    if (!ignis__external_check(call, ignis__memory_kinds, IGNIS_EXTERNAL_COUNT, (int)desc->type, desc->fd,
                               desc->handle) ||
        !ignis__external_check_size(call, desc, &bytes) || !IGNIS__GRAPHICS_CAN(call, cuImportExternalMemory) ||
        !IGNIS__GRAPHICS_CAN(call, cuExternalMemoryGetMappedBuffer) ||
        !IGNIS__GRAPHICS_CAN(call, cuDestroyExternalMemory))
        return none;
    kind = &ignis__memory_kinds[desc->type];
    device = ignis__device_get(call, ignis__desc_device(desc->device));
    if (!device || !ignis__external_copy(call, desc->fd, desc->handle, &memory.os))
        return none;
    external = (ignis__external *)ignis__alloc_for(call, sizeof *external);
    if (external && ignis__device_enter(call, device, &binding)) {
        memory.type = kind->type;
        memory.size = (unsigned long long)desc->size;
        memory.flags =
            desc->dedicated || kind->type == IGNIS__CU_MEMORY_D3D12_RESOURCE ? IGNIS__CU_MEMORY_DEDICATED : 0;
        external->device = device;
        memset(&array, 0, sizeof array);
        if (ignis__external_map(call, external, &memory, kind->name, &taken)) {
            array.shape = desc->shape;
            array.dtype = desc->dtype;
            array.device = desc->device;
            array.ptr = (void *)(uintptr_t)(external->mapped + (unsigned long long)desc->offset);
            array.release_fn = ignis__external_release;
            array.release_data = external;
            array.tag = desc->tag;
            result = ignis__array_create_over(call, &array, true);
        }
        if (!result.id)
            ignis__external_close(external);
        ignis__device_leave(&binding);
    }
    ignis__external_settle(desc->fd, &memory.os, taken, result.id != 0);
    if (!result.id)
        ignis__free(external);
    return result;
}
