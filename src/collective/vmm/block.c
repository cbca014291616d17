/*  >>vmm.block - a block: physical memory, mapped at an address of its own

    Creates, imports, maps and frees blocks, which arrays and transports are made of.
    Uses: physical memory, driver calls.
    Invariants: a block with an address has memory mapped there.
    Locks: none; one thread works on a block. */

#include "room.h"

/*  Opens a device before it gets access: the driver needs its context. */
IGNIS__PRIVATE bool ignis__vmm_open_device(const char *call, int ordinal)
{
    ignis__device *device = ignis__device_get(call, ordinal);
    ignis__binding binding;
    if (!device || !ignis__device_enter(call, device, &binding))
        return false;
    ignis__device_leave(&binding);
    return true;
}

/*  Unmaps a block and frees its addresses; a failure of the one does not stop the other. */
IGNIS__PRIVATE bool ignis__vmm_block_unmap(const char *call, ignis__vmm_block *block)
{
    ignis__bytes_text size = ignis__bytes_write(block->size);
    bool is_unmapped, is_freed;
    if (!block->address)
        return true;
    is_unmapped = IGNIS__VMM_RELEASED(call, block->device, cuMemUnmap, (block->address, (size_t)block->size),
                                      "unmapping %s at 0x%llx", size.text, block->address);
    is_freed = IGNIS__VMM_RELEASED(call, block->device, cuMemAddressFree, (block->address, (size_t)block->size),
                                   "freeing %s of addresses", size.text);
    block->address = 0;
    return is_unmapped && is_freed;
}

/*  Frees what a block has. After a fault the driver keeps it until the process ends. */
IGNIS__PRIVATE void ignis__vmm_block_destroy(const char *call, ignis__vmm_block *block)
{
    ignis__binding binding;
    bool entered = ignis__device_enter_to_give(call, block->device, &binding);
    ignis__vmm_block_unmap(call, block);
    ignis__physical_drop(call, block->memory);
    if (entered)
        ignis__device_leave(&binding);
    memset(block, 0, sizeof *block);
}

/*  Reserves addresses for a block, maps its memory, and gives devices access. A failure frees the block. The
    block's device is entered. */
static bool ignis__vmm_block_map(const char *call, ignis__vmm_block *block, const int *access_devices, int access_count)
{
    ignis_vmm_access_desc access[IGNIS_MAX_DEVICES + 1];
    ignis__device *device = block->device;
    ignis__address address = 0;
    size_t size = (size_t)block->size;
    int i, count = 1;
    bool ok = true, mapped = false;
    access[0] = ignis_vmm_access_of(device->handle, true);
    for (i = 0; ok && i < access_count; i++) {
        if (access_devices[i] == ignis__device_ordinal(device))
            continue;
        ok = count <= IGNIS_MAX_DEVICES ||
             ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "access_count is %d; expected at most %d devices",
                               access_count, ignis__device_total);
        ok = ok && ignis__vmm_open_device(call, access_devices[i]);
        if (ok)
            access[count++] = ignis_vmm_access_of(ignis__devices[access_devices[i]].handle, true);
    }
    ok = ok && !IGNIS__VMM_FAILED(call, device, cuMemAddressReserve, (&address, size, 0, 0, 0),
                                  "reserving %s of addresses", ignis__bytes_write(block->size).text);
    mapped = ok && !IGNIS__VMM_FAILED(call, device, cuMemMap, (address, size, 0, block->memory->handle, 0),
                                      "mapping %s at 0x%llx", ignis__bytes_write(block->size).text, address);
    ok = mapped && !IGNIS__VMM_FAILED(call, device, cuMemSetAccess, (address, size, access, (size_t)count),
                                      "giving %d device%s access to %s at 0x%llx", count, count == 1 ? "" : "s",
                                      ignis__bytes_write(block->size).text, address);
    if (ok) {
        block->address = address;
        return true;
    }
    if (mapped) /* only the first failure is reported */
        (void)IGNIS__CUDA(cuMemUnmap, (address, size));
    if (address)
        (void)IGNIS__CUDA(cuMemAddressFree, (address, size));
    ignis__vmm_block_destroy(call, block);
    return false;
}

/*  Creates a block on `device`, of whole granules; it and access_devices may read and write it. */
IGNIS__PRIVATE bool ignis__vmm_block_create(const char *call, ignis__device *device, int64_t size,
                                            const int *access_devices, int access_count, bool shareable,
                                            ignis__vmm_block *out)
{
    ignis__binding binding;
    bool ok;
    memset(out, 0, sizeof *out);
    if (!ignis__device_enter(call, device, &binding))
        return false;
    out->memory =
        ignis__physical_create(call, device, size, shareable ? IGNIS_VMM_HANDLE_DEFAULT : IGNIS_VMM_HANDLE_NONE);
    ok = out->memory != NULL;
    if (ok) {
        out->device = device;
        out->size = out->memory->size;
        ok = ignis__vmm_block_map(call, out, access_devices, access_count);
    }
    ignis__device_leave(&binding);
    return ok;
}

/*  Maps memory of another process, of exactly `size` bytes, for `device`. The caller keeps the handle, a
    descriptor or an NT handle; the driver takes either as a pointer. */
IGNIS__PRIVATE bool ignis__vmm_block_import(const char *call, ignis__device *device, const ignis_vmm_handle *handle,
                                            int64_t size, ignis__vmm_block *out)
{
    void *os = handle->type == IGNIS_VMM_HANDLE_WIN32 ? handle->win32 : (void *)(intptr_t)handle->fd;
    unsigned long long memory = 0;
    ignis__binding binding;
    ignis__vmm_facts facts;
    ignis_vmm_prop prop;
    bool ok;
    memset(out, 0, sizeof *out);
    if (!ignis__device_enter(call, device, &binding))
        return false;
    ok = ignis__vmm_read_facts(call, device, &facts) &&
         ignis__vmm_check_multiple(call, "size", size, 1, (int64_t)facts.granularity) &&
         !IGNIS__VMM_FAILED(call, device, cuMemImportFromShareableHandle, (&memory, os, (int)handle->type),
                            "importing handle %lld", (long long)(intptr_t)os);
    if (ok && !(ignis__physical_check_imported(call, device, memory, &prop) &&
                ignis__vmm_open_device(call, prop.location.id))) {
        (void)IGNIS__CUDA(cuMemRelease, (memory));
        ok = false;
    }
    if (ok) {
        out->device = device;
        out->size = size;
        out->memory = ignis__physical_wrap(call, &ignis__devices[prop.location.id], memory, size, prop.handle_types);
        ok = out->memory && ignis__vmm_block_map(call, out, NULL, 0);
    }
    ignis__device_leave(&binding);
    return ok;
}
