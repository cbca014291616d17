/*  >>vmm.physical_memory - physical memory: one handle of the driver, counted holds

    Creates, holds and releases handles of cuMemCreate.
    Uses: driver calls, the counters of the device's cache.
    Invariants: the last hold releases the handle; memory created here counts in ignis_memory_info.vmm_bytes
    until then.
    Locks: the cache's lock, around its counters. */

#include "room.h"

/*  Releases a hold; the last one releases the memory. */
IGNIS__PRIVATE void ignis__physical_drop(const char *call, ignis__physical *memory)
{
    ignis__binding binding;
    bool entered;
    if (!memory || ignis__atomic_add(&memory->holds, (uint64_t)-1) != 0)
        return;
    entered = ignis__device_enter_to_give(call, memory->device, &binding);
    (void)IGNIS__VMM_RELEASED(call, memory->device, cuMemRelease, (memory->handle), "releasing %s",
                              ignis__bytes_write(memory->size).text);
    if (entered)
        ignis__device_leave(&binding);
    if (memory->made) {
        ignis__cache *cache = &ignis__caches[ignis__device_ordinal(memory->device)];
        ignis__mutex_lock(&cache->lock);
        cache->info.vmm_bytes -= memory->size;
        ignis__mutex_unlock(&cache->lock);
    }
    ignis__free(memory);
}

/*  Wraps a handle of the driver, which it then owns. Without host memory the handle is released. */
IGNIS__PRIVATE ignis__physical *ignis__physical_wrap(const char *call, ignis__device *device, unsigned long long handle,
                                                     int64_t size, int handle_types)
{
    ignis__physical *memory = (ignis__physical *)ignis__alloc_for(call, sizeof *memory);
    if (!memory) {
        (void)IGNIS__CUDA(cuMemRelease, (handle));
        return NULL;
    }
    memory->holds = 1;
    memory->device = device;
    memory->handle = handle;
    memory->size = size;
    memory->handle_types = handle_types;
    return memory;
}

/*  Creates physical memory of whole granules. If the device is out of memory, the cache is trimmed before a
    second try. The device is entered. */
IGNIS__PRIVATE ignis__physical *ignis__physical_create(const char *call, ignis__device *device, int64_t size,
                                                       ignis_vmm_handle_type type)
{
    ignis__cache *cache = &ignis__caches[ignis__device_ordinal(device)];
    ignis_vmm_prop prop = ignis_vmm_prop_of(device->handle, false);
    unsigned long long handle = 0;
    ignis__physical *memory = NULL;
    ignis__vmm_facts facts;
    int error;
    prop.handle_types = ignis__vmm_handle_type(call, type);
    if (prop.handle_types < 0 || !ignis__vmm_read_facts(call, device, &facts) ||
        !ignis__vmm_round_size(call, size, (int64_t)facts.granularity, &size))
        return NULL;
    if (prop.handle_types && !facts.shareable) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "device %d cannot create memory that other processes can map",
                    ignis__device_ordinal(device));
        return NULL;
    }
    prop.win32_security = prop.handle_types ? ignis__vmm_security_attributes() : NULL;
    error = IGNIS__CUDA(cuMemCreate, (&handle, (size_t)size, &prop, 0));
    if (error == IGNIS__CU_OUT_OF_MEMORY && !ignis__capturing()) {
        ignis__cache_trim(call, device, cache);
        error = IGNIS__CUDA(cuMemCreate, (&handle, (size_t)size, &prop, 0));
    }
    if (!ignis__vmm_check_call(call, device, "cuMemCreate", error, "creating %s of physical memory on device %d",
                               ignis__bytes_write(size).text, ignis__device_ordinal(device)) ||
        (memory = ignis__physical_wrap(call, device, handle, size, prop.handle_types)) == NULL)
        return NULL;
    memory->made = true;
    ignis__mutex_lock(&cache->lock);
    cache->info.vmm_bytes += size;
    ignis__mutex_unlock(&cache->lock);
    return memory;
}

/*  Checks imported memory: the driver must call it pinned memory on a device of this process. */
IGNIS__PRIVATE bool ignis__physical_check_imported(const char *call, ignis__device *device, unsigned long long handle,
                                                   ignis_vmm_prop *prop)
{
    memset(prop, 0, sizeof *prop);
    if (IGNIS__VMM_FAILED(call, device, cuMemGetAllocationPropertiesFromHandle, (prop, handle),
                          "reading the properties of the memory"))
        return false;
    if (prop->type == IGNIS_VMM_ALLOCATION_PINNED && prop->location.type == IGNIS_VMM_LOCATION_DEVICE &&
        prop->location.id >= 0 && prop->location.id < ignis__device_total)
        return true;
    return ignis__fail_false(
        IGNIS_DIAG_NOT_SHAREABLE, call,
        "the memory has type %d, location type %d, location %d; expected pinned memory of a device", prop->type,
        prop->location.type, prop->location.id);
}

/*  Exports a handle of the system for another process; a descriptor is closed on exec. */
IGNIS__PRIVATE bool ignis__physical_export(const char *call, const ignis__physical *memory, ignis_vmm_handle *out)
{
    ignis__binding binding;
    bool ok;
    memset(out, 0, sizeof *out);
    if (!ignis__device_enter(call, memory->device, &binding))
        return false;
    out->type = IGNIS__VMM_HANDLE_SYSTEM;
    out->fd = -1;
    ok = !IGNIS__VMM_FAILED(call, memory->device, cuMemExportToShareableHandle,
                            (out->type == IGNIS_VMM_HANDLE_WIN32 ? (void *)&out->win32 : (void *)&out->fd,
                             memory->handle, (int)out->type, 0),
                            "exporting physical memory");
    if (ok && !ignis__vmm_handle_set_cloexec(out)) {
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the driver's handle cannot be used");
        ignis__vmm_handle_close(out);
        ok = false;
    }
    if (!ok)
        memset(out, 0, sizeof *out);
    ignis__device_leave(&binding);
    return ok;
}
