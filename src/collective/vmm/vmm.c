/*  >>vmm - handles of physical memory

    Owns the pools of ignis_vmm and ignis_vmm_range, and implements the public functions of physical memory.
    Uses: physical memory, driver calls, the pool of handles.
    Invariants: the public handle and each mapping are holds of one slot; the last one frees the memory.
    Locks: slots of the pools. */

#include "room.h"

static ignis__pool ignis__vmms = IGNIS__POOL(ignis__vmm, IGNIS__KIND_VMM, "VMM", IGNIS_DIAG_VMM_FREED);

IGNIS__PRIVATE ignis__vmm *ignis__vmm_hold(const char *call, ignis_vmm handle)
{
    return (ignis__vmm *)ignis__handle_hold(call, &ignis__vmms, handle.id);
}

IGNIS__PRIVATE void ignis__vmm_drop(const char *call, ignis__vmm *vmm)
{
    if (!ignis__pool_drop(vmm))
        return;
    ignis__physical_drop(call, vmm->memory);
    ignis__pool_recycle(&ignis__vmms, vmm);
}

IGNIS__PRIVATE ignis_status ignis__vmm_end(const char *call, ignis__vmm *vmm, bool ok)
{
    ignis__vmm_drop(call, vmm);
    return ok ? IGNIS_OK : ignis__failed();
}

/* --- ranges of addresses --- */

IGNIS__PRIVATE ignis__pool ignis__ranges = IGNIS__POOL(ignis__range, IGNIS__KIND_RANGE, "range", IGNIS_DIAG_VMM_FREED);

IGNIS__PRIVATE ignis__range *ignis__range_hold(const char *call, ignis_vmm_range handle)
{
    return (ignis__range *)ignis__handle_hold(call, &ignis__ranges, handle.id);
}

/*  Unmaps a mapping that is no longer in a list. */
IGNIS__PRIVATE bool ignis__mapping_end(const char *call, ignis__range *range, ignis__mapping *mapping)
{
    ignis__address at = range->address + (uint64_t)mapping->offset;
    bool ok = IGNIS__VMM_RELEASED(call, range->device, cuMemUnmap, (at, (size_t)mapping->size),
                                  "unmapping %s at 0x%llx", ignis__bytes_write(mapping->size).text, at);
    ignis__atomic_add(&mapping->vmm->mappings, (uint64_t)-1);
    ignis__vmm_drop(call, mapping->vmm);
    ignis__free(mapping);
    return ok;
}

/*  Waits for the devices in a mask; not after a fault. */
IGNIS__PRIVATE bool ignis__devices_wait(const char *call, uint64_t mask)
{
    bool ok = true;
    for (; mask && !ignis__devices_lost(); mask &= mask - 1) {
        ignis__device *device = &ignis__devices[ignis__lowest_bit(mask)];
        ignis__binding binding;
        if (!ignis__device_enter(call, device, &binding)) {
            ok = false;
            continue;
        }
        ok = ignis__device_wait(call, device) && ok;
        ignis__device_leave(&binding);
    }
    return ok;
}

IGNIS__PRIVATE void ignis__range_drop(const char *call, ignis__range *range)
{
    ignis__binding binding;
    bool entered;
    if (!ignis__pool_drop(range))
        return;
    entered = ignis__device_enter_to_give(call, range->device, &binding);
    while (range->mappings) {
        ignis__mapping *mapping = range->mappings;
        range->mappings = mapping->next;
        ignis__devices_wait(call, mapping->devices);
        ignis__mapping_end(call, range, mapping);
    }
    (void)IGNIS__VMM_RELEASED(call, range->device, cuMemAddressFree, (range->address, (size_t)range->size),
                              "freeing %s of addresses", ignis__bytes_write(range->size).text);
    if (entered)
        ignis__device_leave(&binding);
    ignis__pool_recycle(&ignis__ranges, range);
}

/*  Reports leaks as for arrays. Memory that arrays still use is freed with the arrays. */
IGNIS__COLD IGNIS__PRIVATE void ignis__vmm_close(const char *call)
{
    ignis__range *range;
    ignis__vmm *vmm;
    uint64_t index = 0;
    while ((range = (ignis__range *)ignis__pool_next(&ignis__ranges, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_ARRAY_LEAKED, "a VMM range of %s", ignis__bytes_write(range->size).text);
        ignis__handle_kill(range);
        ignis__range_drop(call, range);
    }
    index = 0;
    while ((vmm = (ignis__vmm *)ignis__pool_next(&ignis__vmms, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_ARRAY_LEAKED, "%s of VMM memory on device %d",
                           ignis__bytes_write(vmm->memory->size).text, ignis__device_ordinal(vmm->memory->device));
        ignis__handle_kill(vmm);
        ignis__vmm_drop(call, vmm);
    }
}

/*  Creates a public handle for physical memory and takes its hold. Without host memory the hold is
    dropped. */
IGNIS__PRIVATE ignis_vmm ignis__vmm_publish(const char *call, ignis__physical *memory, size_t granularity,
                                            bool imported)
{
    ignis_vmm result = IGNIS__ZERO;
    ignis__vmm *vmm = (ignis__vmm *)ignis__pool_take(call, &ignis__vmms);
    if (!vmm) {
        ignis__physical_drop(call, memory);
        return result;
    }
    vmm->memory = memory;
    vmm->granularity = (int64_t)granularity;
    vmm->imported = imported;
    vmm->mappings = 0;
    ignis__section_use(IGNIS__SECTION_VMM, ignis__vmm_close);
    result.id = ignis__pool_publish(&ignis__vmms, vmm);
    return result;
}

/*  Enters the device of a description; NULL on failure. */
IGNIS__PRIVATE ignis__device *ignis__vmm_enter(const char *call, int ordinal, ignis__binding *binding)
{
    ignis__device *device;
    if (!ignis__collective_enter(call))
        return NULL;
    device = ignis__device_get(call, ordinal);
    return device && ignis__device_enter(call, device, binding) ? device : NULL;
}

IGNIS_API int64_t ignis_vmm_granularity(int ordinal, bool recommended)
{
    static const char call[] = "ignis_vmm_granularity";
    ignis__binding binding;
    ignis__device *device = ignis__vmm_enter(call, ordinal, &binding);
    ignis__vmm_facts facts;
    bool ok;
    if (!device)
        return -1;
    ok = ignis__vmm_read_facts(call, device, &facts);
    ignis__device_leave(&binding);
    return !ok ? -1 : (int64_t)(recommended ? facts.recommended : facts.granularity);
}

IGNIS_API ignis_vmm ignis_vmm_create(const ignis_vmm_desc *desc)
{
    static const char call[] = "ignis_vmm_create";
    ignis_vmm result = IGNIS__ZERO;
    ignis__physical *memory;
    ignis__binding binding;
    ignis__vmm_facts facts;
    ignis__device *device;
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "desc", desc))
        return result;
    device = ignis__vmm_enter(call, ignis__desc_device(desc->device), &binding);
    if (!device)
        return result;
    if (ignis__vmm_read_facts(call, device, &facts) &&
        (memory = ignis__physical_create(call, device, desc->size, desc->handle_type)) != NULL)
        result = ignis__vmm_publish(call, memory, facts.granularity, false);
    ignis__device_leave(&binding);
    return result;
}

IGNIS_API ignis_status ignis_vmm_free(ignis_vmm handle)
{
    static const char call[] = "ignis_vmm_free";
    const uint64_t failures = ignis__failures();
    ignis__vmm *vmm;
    if (!handle.id)
        return IGNIS_OK;
    vmm = ignis__vmm_hold(call, handle);
    if (!vmm)
        return ignis__failed();
    return ignis__ended(
        failures, ignis__vmm_end(call, vmm,
                                 ignis__handle_kill(vmm) || ignis__fail_false(IGNIS_DIAG_VMM_FREED, call,
                                                                              "the VMM memory was freed")) == IGNIS_OK);
}

IGNIS_API ignis_status ignis_vmm_query(ignis_vmm handle, ignis_vmm_info *info)
{
    static const char call[] = "ignis_vmm_query";
    ignis__vmm *vmm = ignis__vmm_hold(call, handle);
    const ignis__physical *memory;
    ignis__binding binding;
    bool ok = false;
    if (!vmm)
        return ignis__failed();
    memory = vmm->memory;
    if (ignis__check_not_null(call, "info", info) && ignis__device_enter(call, memory->device, &binding)) {
        memset(info, 0, sizeof *info);
        info->size = memory->size;
        info->granularity = vmm->granularity;
        info->device = ignis__device_ordinal(memory->device);
        info->handle_type = memory->handle_types ? (ignis_vmm_handle_type)memory->handle_types : IGNIS_VMM_HANDLE_NONE;
        info->imported = vmm->imported;
        info->mappings = (int)ignis__atomic_load(&vmm->mappings);
        ok = ignis__physical_check_imported(call, memory->device, memory->handle, &info->prop);
        ignis__device_leave(&binding);
    }
    return ignis__vmm_end(call, vmm, ok);
}
