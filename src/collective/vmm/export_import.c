/*  >>vmm.export_import - export and import of physical memory

    Turns physical memory into a handle of the system, and back in another process.
    Uses: physical memory, blocks.
    Invariants: an import trusts the driver, never the sender: kind, device and size are checked.
    Locks: none of its own. */

#include "room.h"

IGNIS_API ignis_status ignis_vmm_export(ignis_vmm handle, ignis_vmm_handle *out)
{
    static const char call[] = "ignis_vmm_export";
    ignis__vmm *vmm = ignis__vmm_hold(call, handle);
    bool ok;
    if (!vmm)
        return ignis__failed();
    ok = ignis__check_not_null(call, "handle", out) &&
         ((vmm->memory->handle_types & (int)IGNIS__VMM_HANDLE_SYSTEM) ||
          ignis__fail_false(IGNIS_DIAG_NOT_SHAREABLE, call,
                            "the memory was created with IGNIS_VMM_HANDLE_NONE; to share it, create it with "
                            "IGNIS_VMM_HANDLE_DEFAULT")) &&
         ignis__physical_export(call, vmm->memory, out);
    return ignis__vmm_end(call, vmm, ok);
}

static bool ignis__vmm_handle_check(const char *call, const ignis_vmm_handle *handle)
{
    if (handle->type != IGNIS__VMM_HANDLE_SYSTEM)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "handle.type is %d; this system shares memory by type %d", (int)handle->type,
                                 (int)IGNIS__VMM_HANDLE_SYSTEM);
    return (handle->type == IGNIS_VMM_HANDLE_WIN32 ? handle->win32 != NULL : handle->fd >= 0) ||
           ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "the handle is empty");
}

IGNIS_API ignis_vmm ignis_vmm_import(const ignis_vmm_handle *handle, int64_t size, int ordinal)
{
    static const char call[] = "ignis_vmm_import";
    ignis_vmm result = IGNIS__ZERO;
    ignis__binding binding;
    ignis__vmm_facts facts;
    ignis__vmm_block block;
    ignis__device *device = ignis__vmm_enter(call, ordinal, &binding);
    if (!device)
        return result;
    if (ignis__check_not_null(call, "handle", handle) && ignis__vmm_read_facts(call, device, &facts) &&
        ignis__vmm_handle_check(call, handle) && ignis__vmm_block_import(call, device, handle, size, &block)) {
        /* mapping has proven its size */
        if (block.memory->device != device)
            ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "the memory is on device %d; expected device %d",
                        ignis__device_ordinal(block.memory->device), ordinal);
        else if (ignis__vmm_block_unmap(call, &block)) {
            result = ignis__vmm_publish(call, block.memory, facts.granularity, true);
            block.memory = NULL;
        }
        ignis__vmm_block_destroy(call, &block);
    }
    ignis__device_leave(&binding);
    return result;
}

IGNIS_API ignis_status ignis_vmm_handle_duplicate(const ignis_vmm_handle *handle, int64_t process_id,
                                                  ignis_vmm_handle *out)
{
    static const char call[] = "ignis_vmm_handle_duplicate";
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "handle", handle) ||
        !ignis__check_not_null(call, "out", out))
        return ignis__failed();
    memset(out, 0, sizeof *out);
    if (!ignis__vmm_handle_check(call, handle) || !ignis__vmm_handle_duplicate(call, handle, process_id, out))
        return ignis__failed();
    out->type = handle->type;
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_vmm_handle_close(ignis_vmm_handle *handle)
{
    if (!handle)
        return IGNIS_OK;
    ignis__vmm_handle_close(handle);
    memset(handle, 0, sizeof *handle);
    return IGNIS_OK;
}
