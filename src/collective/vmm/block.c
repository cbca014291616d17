/* --- a block: physical memory, mapped at an address of its own ---------------------------------------------------------- */

typedef struct ignis__vmm_block {
    ignis__address address;
    int64_t size;
    ignis__device *device; /* that uses it; imported memory may lie on another one */
    ignis__physical *memory;
} ignis__vmm_block;

/*  Opens a device that is to have access: the driver wants its context. */
static bool ignis__vmm_open(const char *call, int ordinal)
{
    ignis__device *device = ignis__device_get(call, ordinal);
    ignis__binding binding;
    if (!device || !ignis__device_enter(call, device, &binding))
        return false;
    ignis__device_leave(&binding);
    return true;
}

/*  Ends a block's mapping and gives its addresses back, both also when one fails. */
static bool ignis__vmm_unplace(const char *call, ignis__vmm_block *block)
{
    ignis__bytes_text size = ignis__bytes_write(block->size);
    bool unmapped, given;
    if (!block->address)
        return true;
    unmapped = IGNIS__VMM_UNDONE(call, block->device, cuMemUnmap, (block->address, (size_t)block->size),
                                 "unmapping %s at 0x%llx", size.text, block->address);
    given = IGNIS__VMM_UNDONE(call, block->device, cuMemAddressFree, (block->address, (size_t)block->size),
                              "giving %s of addresses back", size.text);
    block->address = 0;
    return unmapped && given;
}

/*  Gives back whatever of the block there is; what the driver keeps after a fault ends with the process. */
static void ignis__vmm_drop(const char *call, ignis__vmm_block *block)
{
    ignis__binding binding;
    bool entered = ignis__device_enter_to_give(call, block->device, &binding);
    ignis__vmm_unplace(call, block);
    ignis__physical_drop(call, block->memory);
    if (entered)
        ignis__device_leave(&binding);
    memset(block, 0, sizeof *block);
}

/*  Reserves addresses for a block that has physical memory, maps it, and lets devices in; a failure gives
    back what the block has. The block's device is entered. */
static bool ignis__vmm_place(const char *call, ignis__vmm_block *block, const int *access_devices, int access_count)
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
             ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "access is asked for %d devices, there are %d",
                               access_count, ignis__device_total);
        ok = ok && ignis__vmm_open(call, access_devices[i]);
        if (ok)
            access[count++] = ignis_vmm_access_of(ignis__devices[access_devices[i]].handle, true);
    }
    ok = ok && !IGNIS__VMM_FAILED(call, device, cuMemAddressReserve, (&address, size, 0, 0, 0),
                                  "reserving %s of addresses", ignis__bytes_write(block->size).text);
    mapped = ok && !IGNIS__VMM_FAILED(call, device, cuMemMap, (address, size, 0, block->memory->handle, 0),
                                      "mapping %s at 0x%llx", ignis__bytes_write(block->size).text, address);
    ok = mapped && !IGNIS__VMM_FAILED(call, device, cuMemSetAccess, (address, size, access, (size_t)count),
                                      "letting %d device%s into %s at 0x%llx", count, count == 1 ? "" : "s",
                                      ignis__bytes_write(block->size).text, address);
    if (ok) {
        block->address = address;
        return true;
    }
    if (mapped) /* the first failure is the one reported */
        (void)IGNIS__CUDA(cuMemUnmap, (address, size));
    if (address)
        (void)IGNIS__CUDA(cuMemAddressFree, (address, size));
    ignis__vmm_drop(call, block);
    return false;
}

/*  New memory on `device`, rounded up to whole granules, that it and the others named may read and write. */
static bool ignis__vmm_make(const char *call, ignis__device *device, int64_t size, const int *access_devices,
                            int access_count, bool shareable, ignis__vmm_block *out)
{
    ignis__binding binding;
    bool ok;
    memset(out, 0, sizeof *out);
    if (!ignis__device_enter(call, device, &binding))
        return false;
    out->memory =
        ignis__physical_make(call, device, size, shareable ? IGNIS_VMM_HANDLE_DEFAULT : IGNIS_VMM_HANDLE_NONE);
    ok = out->memory != NULL;
    if (ok) {
        out->device = device;
        out->size = out->memory->size;
        ok = ignis__vmm_place(call, out, access_devices, access_count);
    }
    ignis__device_leave(&binding);
    return ok;
}

/*  Memory of another process, of exactly `size` bytes, mapped for `device`. The handle stays the caller's: a
    descriptor or NT handle, which the driver takes in a pointer. */
static bool ignis__vmm_adopt(const char *call, ignis__device *device, const ignis_vmm_handle *handle, int64_t size,
                             ignis__vmm_block *out)
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
    ok = ignis__vmm_device(call, device, &facts) &&
         ignis__vmm_multiple(call, "size", size, 1, (int64_t)facts.granularity) &&
         !IGNIS__VMM_FAILED(call, device, cuMemImportFromShareableHandle, (&memory, os, (int)handle->type),
                            "importing handle %lld", (long long)(intptr_t)os);
    if (ok && !(ignis__vmm_inspect(call, device, memory, &prop) && ignis__vmm_open(call, prop.location.id))) {
        (void)IGNIS__CUDA(cuMemRelease, (memory));
        ok = false;
    }
    if (ok) {
        out->device = device;
        out->size = size;
        out->memory = ignis__physical_of(call, &ignis__devices[prop.location.id], memory, size, prop.handle_types);
        ok = out->memory && ignis__vmm_place(call, out, NULL, 0);
    }
    ignis__device_leave(&binding);
    return ok;
}
