/*  >>transport.memory - memory of the kinds: export, import, access

    The functions of the table in select.c, one group a kind.
    Uses: blocks of vmm, the driver, pinned host memory.
    Invariants: an export waits for queued work on its array; an import has proven the size of its memory.
    Locks: none is held while a device or another thread is waited for. */

#include "room.h"

/*  Waits for all work on an array's memory that Ignis has queued. It waits for events, since streams may end
    meanwhile. The storage is not locked: another thread may need it for the work. */
IGNIS__PRIVATE bool ignis__array_wait(const char *call, ignis__array *array)
{
    ignis__storage *storage = array->storage;
    ignis__pooled_event *event[IGNIS__COUNT(storage->used_on) + 1];
    ignis__device *device[IGNIS__COUNT(storage->used_on) + 1];
    ignis__binding binding;
    bool ok = true;
    int i, count = 0;
    if (ignis__capture_refuses(call))
        return false;
    ignis__mutex_lock(&storage->lock);
    for (i = storage->stream ? -1 : 0; ok && i < storage->used_on_count; i++) {
        device[count] = i < 0 ? storage->device : storage->used_on[i].device;
        event[count] = ignis__event_record(call, device[count], i < 0 ? storage->stream : storage->used_on[i].stream);
        ok = event[count] != NULL;
        count += ok;
    }
    ignis__mutex_unlock(&storage->lock);
    for (i = 0; i < count; i++) {
        if (ok && ignis__device_enter(call, device[i], &binding)) {
            ok = !IGNIS__CUDA_FAILED(call, device[i], cuEventSynchronize, (event[i]->event));
            ignis__device_leave(&binding);
        } else {
            ok = false;
        }
        ignis__event_recycle(device[i], event[i]);
    }
    return ok;
}

/*  Enables access of one device to ordinary memory of another. Both are open. */
IGNIS__PRIVATE bool ignis__peer_enable(const char *call, ignis__device *from, ignis__device *to)
{
    ignis__binding binding;
    int error;
    if (from == to)
        return true;
    if (!ignis__device_enter(call, from, &binding))
        return false;
    error = IGNIS__CUDA(cuCtxEnablePeerAccess, (to->context, 0));
    ignis__device_leave(&binding);
    return error == 0 || error == IGNIS__CU_ALREADY_ENABLED ||
           ignis__vmm_check_call(call, from, "cuCtxEnablePeerAccess", error, "from device %d to device %d",
                                 ignis__device_ordinal(from), ignis__device_ordinal(to));
}

static void ignis__ipc_array_release(void *ptr, void *data)
{
    ignis__device *device = (ignis__device *)data;
    ignis__binding binding;
    if (ignis__devices_lost() || !ignis__device_enter("ignis_array_free", device, &binding))
        return;
    (void)IGNIS__CUDA_FAILED("ignis_array_free", device, cuMemFree_v2, ((ignis__address)(uintptr_t)ptr));
    ignis__device_leave(&binding);
}

IGNIS_API ignis_array ignis_ipc_array(const ignis_array_desc *desc)
{
    static const char call[] = "ignis_ipc_array";
    ignis_array result = IGNIS__ZERO;
    ignis__address address = 0;
    ignis__binding binding;
    ignis__device *device;
    int64_t size;
    int error;
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "desc", desc) ||
        !ignis__vmm_array_check(call, desc, &size) ||
        !ignis__vmm_round_size(call, size ? size : 1, IGNIS__IPC_BLOCK, &size) ||
        (device = ignis__vmm_enter(call, ignis__desc_device(desc->device), &binding)) == NULL)
        return result;
    if (ignis__vmm_adopt_stream(call, device, desc->stream)) {
        error = IGNIS__CUDA(cuMemAlloc_v2, (&address, (size_t)size));
        if (error == IGNIS__CU_OUT_OF_MEMORY && !ignis__capturing()) {
            ignis__cache_trim(call, device, &ignis__caches[ignis__device_ordinal(device)]);
            error = IGNIS__CUDA(cuMemAlloc_v2, (&address, (size_t)size));
        }
        if (ignis__vmm_check_call(call, device, "cuMemAlloc", error, "allocating %s on device %d",
                                  ignis__bytes_write(size).text, ignis__device_ordinal(device)))
            result = ignis__vmm_wrap(call, device, address, desc, ignis__ipc_array_release, device);
        if (address && !result.id)
            (void)IGNIS__CUDA(cuMemFree_v2, (address));
    }
    ignis__device_leave(&binding);
    return result;
}

IGNIS__PRIVATE bool ignis__vmm_export_memory(const char *call, ignis__array *array, ignis__export_facts *facts)
{
    ignis__physical *memory = ignis__vmm_find_physical(call, array, &facts->offset);
    bool ok = memory && (memory->handle_types & (int)IGNIS__VMM_HANDLE_SYSTEM) != 0;
    if (!memory)
        return false;
    facts->block_size = memory->size;
    if (!ok)
        ignis__fail(IGNIS_DIAG_NOT_SHAREABLE, call, "the memory of array #%llu was created with IGNIS_VMM_HANDLE_NONE",
                    (unsigned long long)array->id);
    ok = ok && ignis__physical_export(call, memory, &facts->memory);
    ignis__physical_drop(call, memory); /* the exported handle keeps it */
    return ok;
}

IGNIS__PRIVATE bool ignis__ipc_export_memory(const char *call, ignis__array *array, ignis__export_facts *facts)
{
    ignis__address base = 0, address = ignis__atomic_load(&array->storage->address) + (uint64_t)array->offset;
    int error;
    if (!ignis__vmm_find_allocation(call, array, "ignis_ipc_array", &base, &facts->block_size))
        return false;
    if (array->storage->release_fn != ignis__ipc_array_release &&
        (base % (uint64_t)IGNIS__IPC_BLOCK != 0 || facts->block_size % IGNIS__IPC_BLOCK != 0))
        return ignis__fail_false(
            IGNIS_DIAG_NOT_SHAREABLE, call,
            "%s is in an allocation of %lld bytes; the driver would expose the other memory of its 2 MiB block; "
            "create it with ignis_ipc_array",
            ignis__array_label(array).text, (long long)facts->block_size);
    error = IGNIS__CUDA(cuIpcGetMemHandle, (&facts->ipc, base));
    if (error != 0)
        ignis__fail_because(IGNIS_DIAG_NOT_SHAREABLE, call, error, ignis__cuda_name(error), NULL,
                            "%s is not in memory of cuMemAlloc: cuIpcGetMemHandle returned %s (%d); create it with "
                            "ignis_ipc_array",
                            ignis__array_label(array).text, ignis__cuda_name(error), error);
    facts->offset = (int64_t)(address - base);
    return error == 0;
}

/*  Exports any memory: peer copies stay within one process. */
IGNIS__PRIVATE bool ignis__peer_export_memory(const char *call, ignis__array *array, ignis__export_facts *facts)
{
    ignis__work work;
    ignis__address address;
    bool ok = !ignis__array_refuses_address(call, array) && ignis__work_begin(call, array->storage->device, &work);
    if (!ok)
        return false;
    ok = ignis__work_read(&work, array, &address);
    ignis__work_end(&work);
    facts->block_size = array->storage->size ? array->storage->size : 1;
    facts->offset = array->offset;
    return ok;
}

/*  Copies between processes go through pinned chunks. A copy has a chunk of its own, since it may wait for
    work that waits for another copy. */
#define IGNIS__STAGING_BYTES ((int64_t)4 << 20)

/*  Copies between an array and a file of its size, in memory or in the private folder. */
IGNIS__PRIVATE bool ignis__host_copy(const char *call, ignis__array *array, int fd, bool to_device)
{
    int64_t size = ignis__array_bytes(array), done, part;
    ignis__pinned *piece = NULL;
    ignis__address address;
    ignis__work work;
    bool ok = ignis__work_begin(call, array->storage->device, &work), moved = true;
    if (!ok)
        return false;
    ok = (to_device ? ignis__work_write(&work, array, &address) : ignis__work_read(&work, array, &address)) &&
         (size == 0 || (piece = ignis__pinned_chunk_take(call, work.device, IGNIS__STAGING_BYTES)) != NULL);
    for (done = 0; ok && done < size; done += part) {
        part = size - done < IGNIS__STAGING_BYTES ? size - done : IGNIS__STAGING_BYTES;
        if (to_device)
            ok = (moved = ignis__fd_transfer(fd, piece->memory, part, done, false)) &&
                 ignis__copy_from_host(&work, address + (uint64_t)done, piece->memory, part);
        else
            ok = ignis__copy_to_host(&work, piece->memory, address + (uint64_t)done, part) &&
                 (moved = ignis__fd_transfer(fd, piece->memory, part, done, true));
    }
    if (!moved)
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "%lld bytes of shared host memory are incomplete or cannot be %s: %s",
                    (long long)size, to_device ? "read" : "written", strerror(errno));
    /* A failed copy may still be running: leak the chunk rather than let it write into the next one. */
    if (piece && (ok || !moved || ignis__device_finish(work.device) == 0))
        ignis__pinned_chunk_keep(work.device, piece);
    else
        ignis__free(piece);
    ignis__work_end(&work);
    return ok;
}

IGNIS__PRIVATE bool ignis__host_export_memory(const char *call, ignis__array *array, ignis__export_facts *facts)
{
    int64_t size = ignis__array_bytes(array);
    int fd;
    bool ok;
    facts->block_size = size ? size : 1;
    fd = facts->path ? ignis__named_file_create(facts->path, facts->block_size)
                     : ignis__shared_make((size_t)facts->block_size);
    if (fd < 0)
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "cannot share %lld bytes of host memory: %s",
                                 (long long)size, strerror(errno));
    ok = ignis__host_copy(call, array, fd, false);
    if (ok && !facts->path) {
        ignis__vmm_handle_set_fd(&facts->memory, fd);
        return true;
    }
    ignis__fd_close(&fd);
    if (!ok && facts->path)
        (void)ignis__file_remove(facts->path);
    return ok;
}

/*  Maps memory of another process from device `home`; its size is proven, its address kept. The device is
    entered. */
IGNIS__PRIVATE bool ignis__vmm_import_memory(const char *call, ignis__import *mapped, const ignis__device *home,
                                             const ignis_vmm_handle *memory)
{
    const ignis__device *lies;
    if (!ignis__vmm_block_import(call, mapped->device, memory, mapped->record.block_size, &mapped->block))
        return false;
    lies = mapped->block.memory->device;
    if (lies == home) {
        mapped->address = mapped->block.address;
        return true;
    }
    ignis__fail(IGNIS_DIAG_TRANSPORT_MISMATCH, call, "the memory is on device %d, the handle says device %d",
                ignis__device_ordinal(lies), ignis__device_ordinal(home));
    ignis__vmm_block_destroy(call, &mapped->block);
    return false;
}

IGNIS__PRIVATE bool ignis__ipc_import_memory(const char *call, ignis__import *mapped, const ignis__device *home,
                                             const ignis_vmm_handle *memory)
{
    const ignis__record_of_array *record = &mapped->record;
    ignis__address address = 0, base = 0;
    size_t size = 0;
    (void)home, (void)memory;
    if (IGNIS__VMM_FAILED(call, mapped->device, cuIpcOpenMemHandle_v2, (&address, record->ipc, IGNIS__CU_IPC_LAZY_PEER),
                          "opening %s of process %u", ignis__bytes_write(record->block_size).text, record->pid))
        return false;
    if (!IGNIS__VMM_FAILED(call, mapped->device, cuMemGetAddressRange_v2, (&base, &size, address),
                           "reading its size")) {
        if (base == address && (int64_t)size >= record->block_size) {
            mapped->address = address;
            return true;
        }
        ignis__fail(IGNIS_DIAG_TRANSPORT_MISMATCH, call, "the handle says %lld bytes, the memory has %lld",
                    (long long)record->block_size, (long long)size);
    }
    (void)IGNIS__CUDA(cuIpcCloseMemHandle, (address));
    return false;
}

IGNIS__PRIVATE void ignis__vmm_unmap_memory(const char *call, ignis__import *mapped)
{
    ignis__vmm_block_destroy(call, &mapped->block);
}

IGNIS__PRIVATE void ignis__ipc_unmap_memory(const char *call, ignis__import *mapped)
{
    ignis__binding binding;
    if (ignis__devices_lost() || !ignis__device_enter(call, mapped->device, &binding))
        return;
    (void)IGNIS__CUDA_FAILED(call, mapped->device, cuIpcCloseMemHandle, (mapped->address));
    ignis__device_leave(&binding);
}

/*  Gives an entered device access to memory of this process. */
IGNIS__PRIVATE bool ignis__vmm_grant_access(const char *call, ignis__array *array, ignis__device *device)
{
    ignis_vmm_access_desc access = ignis_vmm_access_of(device->handle, true);
    ignis__address at = ignis__atomic_load(&array->storage->address) + (uint64_t)array->offset;
    ignis__physical *memory;
    int64_t offset;
    bool ok;
    if (device == array->storage->device)
        return true;
    memory = ignis__vmm_find_physical(call, array, &offset);
    if (!memory)
        return false;
    ok = !IGNIS__VMM_FAILED(call, device, cuMemSetAccess, (at - (uint64_t)offset, (size_t)memory->size, &access, 1),
                            "giving device %d access to %s", ignis__device_ordinal(device),
                            ignis__bytes_write(memory->size).text);
    ignis__physical_drop(call, memory);
    return ok;
}

IGNIS__PRIVATE bool ignis__peer_grant_access(const char *call, ignis__array *array, ignis__device *device)
{
    return ignis__peer_enable(call, device, array->storage->device);
}
