/*  >>vmm.range - ranges: reserving addresses, mapping memory into them, access

    Implements the public functions of ignis_vmm_range. A call holds the range, locks its slot, and enters a
    device.
    Uses: physical memory, vmm.c.
    Invariants: mappings are sorted by offset and do not overlap; a mapping with arrays cannot be unmapped.
    Locks: the range's slot; it is given up while a device is waited for. */

#include "room.h"

IGNIS_API ignis_vmm_range ignis_vmm_reserve(int64_t size, int64_t alignment)
{
    static const char call[] = "ignis_vmm_reserve";
    ignis_vmm_range result = IGNIS__ZERO;
    ignis__address address = 0;
    ignis__binding binding;
    ignis__vmm_facts facts;
    ignis__range *range;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    if (!device)
        return result;
    if (alignment < 0 || (alignment & (alignment - 1)) != 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "alignment is %lld; expected 0 or a power of two",
                    (long long)alignment);
    } else if (ignis__vmm_read_facts(call, device, &facts) &&
               ignis__vmm_round_size(call, size, (int64_t)facts.granularity, &size) &&
               !IGNIS__VMM_FAILED(call, device, cuMemAddressReserve, (&address, (size_t)size, (size_t)alignment, 0, 0),
                                  "reserving %s of addresses", ignis__bytes_write(size).text)) {
        range = (ignis__range *)ignis__pool_take(call, &ignis__ranges);
        if (range) {
            range->device = device;
            range->address = address;
            range->size = size;
            range->granularity = (int64_t)facts.granularity;
            range->mappings = NULL;
            range->arrays = 0;
            ignis__section_use(IGNIS__SECTION_VMM, ignis__vmm_close);
            result.id = ignis__pool_publish(&ignis__ranges, range);
        } else {
            (void)IGNIS__CUDA(cuMemAddressFree, (address, (size_t)size));
        }
    }
    ignis__device_leave(&binding);
    return result;
}

/*  Locks a held range. False, and reported, if another thread has freed it. */
static bool ignis__range_lock(const char *call, ignis__range *range)
{
    ignis__mutex_lock(&range->slot.lock);
    if (ignis__pool_live(range))
        return true;
    ignis__mutex_unlock(&range->slot.lock);
    return ignis__fail_false(IGNIS_DIAG_VMM_FREED, call, "the range was freed");
}

/*  Holds and locks a range and enters a device. NULL, with nothing held, on failure. */
IGNIS__PRIVATE ignis__range *ignis__range_begin(const char *call, ignis_vmm_range handle, int ordinal,
                                                ignis__range_use *use)
{
    ignis__range *range = use->range = ignis__range_hold(call, handle);
    if (!range)
        return NULL;
    use->device = ignis__vmm_enter(
        call, ordinal == IGNIS__RANGE_DEVICE ? ignis__device_ordinal(range->device) : ordinal, &use->binding);
    if (use->device && ignis__range_lock(call, range))
        return range;
    if (use->device)
        ignis__device_leave(&use->binding);
    ignis__range_drop(call, range);
    return NULL;
}

IGNIS__PRIVATE ignis_status ignis__range_end(const char *call, ignis__range_use *use, bool ok)
{
    ignis__mutex_unlock(&use->range->slot.lock);
    ignis__device_leave(&use->binding);
    ignis__range_drop(call, use->range);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_vmm_unreserve(ignis_vmm_range handle)
{
    static const char call[] = "ignis_vmm_unreserve";
    ignis__range *range;
    bool ok;
    if (!handle.id)
        return IGNIS_OK;
    range = ignis__range_hold(call, handle);
    if (!range)
        return ignis__failed();
    ok = ignis__range_lock(call, range);
    if (ok) {
        ok = !range->mappings ||
             ignis__fail_false(IGNIS_DIAG_VMM_STATE, call,
                               "memory is mapped in the range, the first at offset %lld; unmap it first",
                               (long long)range->mappings->offset);
        if (ok)
            ignis__pool_kill(range);
        ignis__mutex_unlock(&range->slot.lock);
    }
    if (ok)
        ignis__pool_drop(range); /* held by the handle */
    ignis__range_drop(call, range);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_vmm_range_query(ignis_vmm_range handle, ignis_vmm_range_info *info)
{
    static const char call[] = "ignis_vmm_range_query";
    const ignis__mapping *mapping;
    ignis__range_use use;
    ignis__range *range = ignis__range_begin(call, handle, IGNIS__RANGE_DEVICE, &use);
    if (!range)
        return ignis__failed();
    if (!ignis__check_not_null(call, "info", info))
        return ignis__range_end(call, &use, false);
    memset(info, 0, sizeof *info);
    info->ptr = (void *)(uintptr_t)range->address;
    info->size = range->size;
    info->arrays = range->arrays;
    for (mapping = range->mappings; mapping; mapping = mapping->next) {
        info->mapped_bytes += mapping->size;
        info->mappings++;
    }
    return ignis__range_end(call, &use, true);
}

/*  Finds where a new mapping is inserted in a locked range. NULL, and reported, if it does not fit. */
static ignis__mapping **ignis__mapping_place(const char *call, ignis__range *range, int64_t offset, int64_t size)
{
    ignis__mapping **at = &range->mappings;
    if (offset > range->size - size) {
        ignis__fail(IGNIS_DIAG_VMM_SIZE, call, "%s at offset %lld exceed the range of %s",
                    ignis__bytes_write(size).text, (long long)offset, ignis__bytes_write(range->size).text);
        return NULL;
    }
    while (*at && (*at)->offset + (*at)->size <= offset)
        at = &(*at)->next;
    if (!*at || (*at)->offset >= offset + size)
        return at;
    ignis__fail(IGNIS_DIAG_VMM_STATE, call, "%s are already mapped at offset %lld",
                ignis__bytes_write((*at)->size).text, (long long)(*at)->offset);
    return NULL;
}

IGNIS_API ignis_status ignis_vmm_map(ignis_vmm_range handle, int64_t offset, ignis_vmm memory)
{
    static const char call[] = "ignis_vmm_map";
    ignis__mapping *mapping = NULL, **at;
    ignis__range_use use;
    ignis__range *range = ignis__range_begin(call, handle, IGNIS__RANGE_DEVICE, &use);
    ignis__vmm *vmm = range ? ignis__vmm_hold(call, memory) : NULL;
    ignis_status status;
    int64_t size = vmm ? vmm->memory->size : 0;
    if (!range)
        return ignis__failed();
    if (vmm && ignis__vmm_check_multiple(call, "offset", offset, 0, vmm->granularity) &&
        (at = ignis__mapping_place(call, range, offset, size)) != NULL) {
        ignis__address address = range->address + (uint64_t)offset;
        mapping = (ignis__mapping *)ignis__alloc_for(call, sizeof *mapping);
        if (mapping &&
            IGNIS__VMM_FAILED(call, range->device, cuMemMap, (address, (size_t)size, 0, vmm->memory->handle, 0),
                              "mapping %s at 0x%llx", ignis__bytes_write(size).text, address)) {
            ignis__free(mapping);
            mapping = NULL;
        } else if (mapping) {
            mapping->offset = offset;
            mapping->size = size;
            mapping->vmm = vmm;
            mapping->next = *at;
            *at = mapping;
            ignis__atomic_add(&vmm->mappings, 1);
        }
    }
    status = ignis__range_end(call, &use, mapping != NULL);
    if (vmm && status != IGNIS_OK)
        ignis__vmm_drop(call, vmm);
    return status;
}

/*  Finds the mapping that begins at an offset of a locked range. NULL, and reported, if there is none or
    arrays use it. */
static ignis__mapping **ignis__mapping_find_unused(const char *call, ignis__range *range, int64_t offset)
{
    ignis__mapping **at = &range->mappings;
    while (*at && (*at)->offset != offset)
        at = &(*at)->next;
    if (*at && (*at)->arrays == 0)
        return at;
    if (*at)
        ignis__fail(IGNIS_DIAG_VMM_STATE, call, "%d array%s the mapping at offset %lld; free %s first", (*at)->arrays,
                    (*at)->arrays == 1 ? " uses" : "s use", (long long)offset, (*at)->arrays == 1 ? "it" : "them");
    else
        ignis__fail(IGNIS_DIAG_VMM_STATE, call, "no mapping begins at offset %lld of the range", (long long)offset);
    return NULL;
}

IGNIS_API ignis_status ignis_vmm_unmap(ignis_vmm_range handle, int64_t offset)
{
    static const char call[] = "ignis_vmm_unmap";
    const uint64_t failures = ignis__failures();
    ignis__range *range = ignis__range_hold(call, handle);
    ignis__mapping *mapping, **at;
    ignis__binding binding;
    uint64_t waited = 0, devices = 0;
    bool ok = false, lost = ignis__devices_lost();
    if (!range)
        return ignis__failed();
    if (!ignis__capture_refuses(call) && (lost || ignis__device_enter_to_give(call, range->device, &binding))) {
        bool again = true;
        while (again && ignis__range_lock(call, range)) {
            at = ignis__mapping_find_unused(call, range, offset);
            devices = at ? (*at)->devices & ~waited : 0;
            if (at && !devices) {
                mapping = *at;
                *at = mapping->next;
                ok = ignis__mapping_end(call, range, mapping);
            }
            ignis__mutex_unlock(&range->slot.lock); /* a device may be waiting for a thread that needs this lock */
            again = devices && ignis__devices_wait(call, devices);
            waited |= devices;
        }
        if (!lost)
            ignis__device_leave(&binding);
    }
    ignis__range_drop(call, range);
    return ignis__ended(failures, ok);
}

/*  Checks that a slice of a locked range is mapped throughout. Then adds devices and arrays to the mappings
    of the slice. */
IGNIS__PRIVATE bool ignis__range_check_mapped(const char *call, const ignis__range *range, int64_t offset, int64_t size,
                                              uint64_t devices, int arrays)
{
    ignis__mapping *mapping;
    int64_t at = offset;
    bool inside = offset >= 0 && size > 0 && size <= range->size && offset <= range->size - size;
    for (mapping = inside ? range->mappings : NULL; mapping && at < offset + size; mapping = mapping->next)
        if (mapping->offset <= at && mapping->offset + mapping->size > at)
            at = mapping->offset + mapping->size;
    if (!inside || at < offset + size)
        return ignis__fail_false(IGNIS_DIAG_VMM_STATE, call,
                                 "%lld bytes at offset %lld are not all mapped; the range has %lld bytes",
                                 (long long)size, (long long)offset, (long long)range->size);
    for (mapping = range->mappings; mapping; mapping = mapping->next)
        if (mapping->offset < offset + size && mapping->offset + mapping->size > offset) {
            mapping->devices |= devices;
            mapping->arrays += arrays;
        }
    return true;
}

IGNIS_API ignis_status ignis_vmm_set_access(ignis_vmm_range handle, int64_t offset, int64_t size, int ordinal,
                                            ignis_vmm_access access)
{
    static const char call[] = "ignis_vmm_set_access";
    ignis__range_use use;
    ignis__range *range = ignis__range_begin(call, handle, ordinal, &use);
    ignis_vmm_access_desc desc;
    ignis__address address;
    bool ok = false;
    if (!range)
        return ignis__failed();
    address = range->address + (uint64_t)offset;
    desc = ignis_vmm_access_of(use.device->handle, false);
    desc.access = (int)access;
    if (access != IGNIS_VMM_ACCESS_NONE && access != IGNIS_VMM_ACCESS_READ && access != IGNIS_VMM_ACCESS_READ_WRITE)
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call,
                    "access is %d; expected IGNIS_VMM_ACCESS_NONE, _READ or _READ_WRITE (0, 1, 3)", (int)access);
    else
        ok = ignis__vmm_check_multiple(call, "offset", offset, 0, range->granularity) &&
             ignis__vmm_check_multiple(call, "size", size, 0, range->granularity) &&
             ignis__range_check_mapped(call, range, offset, size, access ? (uint64_t)1 << ordinal : 0, 0) &&
             !IGNIS__VMM_FAILED(call, use.device, cuMemSetAccess, (address, (size_t)size, &desc, 1),
                                "setting access %d of device %d to %s at 0x%llx", (int)access, ordinal,
                                ignis__bytes_write(size).text, address);
    return ignis__range_end(call, &use, ok);
}

IGNIS__PRIVATE bool ignis__vmm_read_access(const char *call, ignis__device *device, ignis__address address,
                                           unsigned long long *flags)
{
    ignis_vmm_location location = ignis_vmm_access_of(device->handle, false).location;
    *flags = 0;
    return !IGNIS__VMM_FAILED(call, device, cuMemGetAccess, (flags, &location, address),
                              "reading the access of device %d at 0x%llx", ignis__device_ordinal(device), address);
}

IGNIS_API ignis_status ignis_vmm_get_access(ignis_vmm_range handle, int64_t offset, int ordinal,
                                            ignis_vmm_access *access)
{
    static const char call[] = "ignis_vmm_get_access";
    ignis__range_use use;
    ignis__range *range = ignis__range_begin(call, handle, ordinal, &use);
    unsigned long long flags = 0;
    bool ok;
    if (!range)
        return ignis__failed();
    ok = ignis__check_not_null(call, "access", access) && ignis__range_check_mapped(call, range, offset, 1, 0, 0) &&
         ignis__vmm_read_access(call, use.device, range->address + (uint64_t)offset, &flags);
    if (ok)
        *access = (ignis_vmm_access)flags;
    return ignis__range_end(call, &use, ok);
}
