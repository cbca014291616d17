/*  >>transport.handle - handles: exporting an array

    Fills, seals and completes handles; the public functions of exporters.
    Uses: exports, records, the memory functions of the kinds.
    Invariants: every handle that is out is listed as an export, counted by its array.
    Locks: the slot of the transport; ignis__shares.lock through exports. */

#include "room.h"

static void ignis__record_fill(const ignis__transport *transport, const ignis__array *array,
                               const ignis__export_facts *facts, uint64_t name, ignis__record_of_array *record)
{
    *record = ignis__own_identity;
    record->name = name;
    record->kind = (uint32_t)transport->kind;
    record->dtype = (int32_t)array->dtype;
    record->ndim = array->shape.ndim;
    memcpy(record->dim, array->shape.dim, sizeof record->dim[0] * (size_t)array->shape.ndim);
    record->block_size = facts->block_size;
    record->offset = facts->offset;
    memcpy(record->uuid, transport->src->info.uuid, sizeof record->uuid);
    record->ipc = facts->ipc;
    memcpy(record->tag, array->tag, sizeof record->tag);
}

IGNIS__PRIVATE void ignis__record_seal(const unsigned char token[IGNIS__SECRET], const ignis__record_of_array *record,
                                       unsigned char seal[32])
{
    ignis__hmac(token, "handle", 6, record, offsetof(ignis__record_of_array, seal), seal);
}

/*  Makes the path of a named file, which is random for each process. */
IGNIS__PRIVATE bool ignis__record_path(const char *call, const ignis__transport *transport,
                                       const ignis__record_of_array *record, uint64_t name, char path[IGNIS__PATH_MAX])
{
    uint64_t maker[2];
    char folder[IGNIS__PATH_MAX];
    memcpy(maker, record->process, sizeof maker);
    memcpy(folder, transport->folder, sizeof folder);
    if (!*folder && !ignis__private_folder(call, folder, sizeof folder))
        return false;
    if (snprintf(path, IGNIS__PATH_MAX, "%s/handle-%016llx%016llx-%llu", folder, (unsigned long long)maker[0],
                 (unsigned long long)maker[1], (unsigned long long)name) < IGNIS__PATH_MAX)
        return true;
    return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "the path of a handle in %s exceeds %d bytes", folder,
                             IGNIS__PATH_MAX - 1);
}

/*  Lists a handle as an export and sets the export's number in its record. The array already counts it; NULL:
    a copy. */
static bool ignis__export_register(const char *call, const ignis__transport *transport, ignis__array *array,
                                   ignis__record_of_array *record, int watch, const char *path)
{
    ignis__export *entry = (ignis__export *)ignis__alloc_for(call, sizeof *entry);
    ignis__export *other;
    ignis__string_writer text;
    if (!entry || (path && (entry->path = ignis__copy_string(path)) == NULL)) {
        if (entry)
            ignis__fail_host_memory(call, strlen(path));
        ignis__free(entry);
        return false;
    }
    entry->transport = transport->serial;
    entry->channel = transport->channel;
    entry->peer_pid = transport->peer_pid;
    entry->array = array;
    entry->watch = watch;
    ignis__string_begin(&text, entry->description, sizeof entry->description);
    ignis__transport_describe(&text, transport);
    if (transport->peer_pid)
        ignis__string_add(&text, " to process %lld", (long long)transport->peer_pid);
    ignis__mutex_lock(&ignis__shares.lock);
    entry->turn = record->serial = ++ignis__shares.serials;
    for (other = ignis__shares.exports; other; other = other->next)
        if (other->array == array && other->transport == transport->serial) {
            record->serial = other->record.serial;
            other->turn = entry->turn;
        }
    entry->record = *record;
    entry->next = ignis__shares.exports;
    ignis__shares.exports = entry;
    ignis__mutex_unlock(&ignis__shares.lock);
    return true;
}

/*  Makes the lease of a handle and lists it. A copy has no lease, only a name. */
static bool ignis__export_lease(const char *call, const ignis__transport *transport, ignis__array *array,
                                ignis__record_of_array *record, const char *path, ignis_transport_handle *handle)
{
    bool leased = ignis__transport_ops_of(transport)->zero_copy, counted;
    int ends[2] = {-1, -1};
    if (!leased && !path)
        return true;
    if (leased && !ignis__lease_make(path, ends)) {
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "cannot create a pipe for a lease: %s", strerror(errno));
        if (path)
            (void)ignis__file_remove(path);
        return false;
    }
    handle->has_lease = ends[1] >= 0;
    handle->lease = ends[1];
    counted = leased && ignis__array_add_export(call, array);
    if ((!leased || counted) && ignis__export_register(call, transport, leased ? array : NULL, record, ends[0], path))
        return true;
    if (counted)
        ignis__array_remove_export(call, array);
    ignis__fd_close(&ends[0]);
    if (path)
        (void)ignis__file_remove(path);
    return false;
}

IGNIS__PRIVATE bool ignis__transport_export(const char *call, ignis__transport *transport, ignis__array *array,
                                            bool wait, ignis_transport_handle *handle)
{
    const ignis__transport_ops *ops = ignis__transport_ops_of(transport);
    bool named = ops->named && !ignis__transport_carries_descriptors(transport), ok;
    uint64_t name = named ? ignis__atomic_add(&ignis__shares.names, 1) : 0;
    ignis__record_of_array record;
    char path[IGNIS__PATH_MAX];
    ignis__binding binding;
    ignis__export_facts facts;
    memset(handle, 0, sizeof *handle);
    memset(&facts, 0, sizeof facts);
    (void)ignis__exports_end(call, NULL, transport->serial, true);
    if (array->storage->device != transport->src)
        return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call,
                                 "%s is on device %d; the transport goes from device %d to device %d",
                                 ignis__array_label(array).text, ignis__device_ordinal(array->storage->device),
                                 ignis__device_ordinal(transport->src), ignis__device_ordinal(transport->dst));
    if (named && !ignis__record_path(call, transport, &ignis__own_identity, name, path))
        return false;
    facts.path = named ? path : NULL;
    if ((wait && !ignis__array_wait(call, array)) || !ignis__device_enter(call, transport->src, &binding))
        return false;
    ok = ops->export_memory(call, array, &facts);
    ignis__device_leave(&binding);
    if (!ok)
        return false;
    handle->memory = facts.memory;
    ignis__record_fill(transport, array, &facts, name, &record);
    if (!ignis__export_lease(call, transport, array, &record, facts.path, handle)) {
        ignis__handle_close(handle);
        return false;
    }
    ignis__record_seal(transport->token, &record, record.seal);
    memcpy(handle->record, &record, sizeof record);
    return true;
}

/*  Holds a transport and an array for a call. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__transport_hold_both(const char *call, ignis_transport handle,
                                                                        ignis_array array_handle,
                                                                        ignis__transport **transport)
{
    ignis__array *array;
    *transport = ignis__transport_hold_ready(call, handle);
    if (!*transport)
        return NULL;
    array = ignis__array_hold(call, array_handle);
    if (!array)
        ignis__transport_drop(*transport);
    return array;
}

IGNIS__PRIVATE ignis_status ignis__transport_end_both(const char *call, ignis__transport *transport,
                                                      ignis__array *array, bool ok)
{
    ignis__array_drop(call, array);
    return ignis__transport_end_call(transport, ok);
}

IGNIS_API ignis_status ignis_transport_export_handle(ignis_transport handle, ignis_array array_handle,
                                                     ignis_transport_handle *out)
{
    static const char call[] = "ignis_transport_export_handle";
    ignis__transport *transport;
    ignis__array *array = ignis__transport_hold_both(call, handle, array_handle, &transport);
    if (!array)
        return ignis__failed();
    return ignis__transport_end_both(call, transport, array,
                                     ignis__check_not_null(call, "handle", out) &&
                                         ignis__transport_export(call, transport, array, true, out));
}

IGNIS_API ignis_status ignis_transport_exported_handle(ignis_transport handle, ignis_transport_handle *out)
{
    static const char call[] = "ignis_transport_exported_handle";
    ignis__transport *transport = ignis__transport_hold_ready(call, handle);
    ignis__array *array = NULL;
    const ignis__export *entry;
    uint64_t last = 0;
    if (!transport)
        return ignis__failed();
    if (!ignis__check_not_null(call, "handle", out))
        return ignis__transport_end_call(transport, false);
    (void)ignis__exports_end(call, NULL, transport->serial, true);
    ignis__mutex_lock(&ignis__shares.lock);
    for (entry = ignis__shares.exports; entry; entry = entry->next)
        if (entry->transport == transport->serial && entry->array && entry->turn > last) {
            array = entry->array;
            last = entry->turn;
        }
    if (array)
        ignis__atomic_add(&array->slot.state, 1); /* held by its handles */
    ignis__mutex_unlock(&ignis__shares.lock);
    if (array)
        return ignis__transport_end_both(call, transport, array,
                                         ignis__transport_export(call, transport, array, true, out));
    return ignis__transport_end_call(
        transport, ignis__fail_false(IGNIS_DIAG_TRANSPORT_HANDLE, call,
                                     "no handle of the transport is out: none was exported, or all were closed"));
}

/*  Lists which descriptors belong to a record, in order. */
IGNIS__PRIVATE int ignis__record_fds(const ignis__record_of_array *record, bool *memory)
{
    const ignis__transport_ops *ops =
        &ignis__transport_kinds[record->kind < IGNIS_TRANSPORT_KIND_COUNT ? record->kind : 0];
    *memory = !record->name && ops->descriptor;
    return *memory + (!record->name && ops->zero_copy);
}

IGNIS_API int ignis_transport_handle_fds(const ignis_transport_handle *handle, int fds[2])
{
    int count = 0;
    if (!handle || !fds)
        return 0;
    if (handle->memory.type)
        fds[count++] = ignis__vmm_handle_fd(&handle->memory);
    if (handle->has_lease)
        fds[count++] = handle->lease;
    return count;
}

/*  Completes a handle with its descriptors. False, and they are closed, if they do not match the record. */
IGNIS__PRIVATE bool ignis__handle_add_fds(ignis_transport_handle *handle, const void *bytes, const int *fds,
                                          int fd_count)
{
    ignis__record_of_array record;
    bool memory;
    int wanted;
    memset(handle, 0, sizeof *handle);
    memcpy(&record, bytes, sizeof record);
    wanted = ignis__record_fds(&record, &memory);
    if (fd_count != wanted) {
        ignis__fds_close(fds, fd_count);
        return false;
    }
    memcpy(handle->record, bytes, sizeof handle->record);
    if (memory)
        ignis__vmm_handle_set_fd(&handle->memory, fds[0]);
    handle->has_lease = wanted > memory;
    if (handle->has_lease)
        handle->lease = fds[memory];
    return true;
}

IGNIS_API ignis_status ignis_transport_handle_from_fds(ignis_transport_handle *handle, const void *record,
                                                       const int *fds, int fd_count)
{
    static const char call[] = "ignis_transport_handle_from_fds";
    if (!ignis__check_not_null(call, "handle", handle) || !ignis__check_not_null(call, "record", record) ||
        (fd_count > 0 && !ignis__check_not_null(call, "fds", fds)))
        return ignis__failed();
    if (ignis__handle_add_fds(handle, record, fds, fd_count))
        return IGNIS_OK;
    return ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call,
                       "fd_count is %d; the record needs another number of descriptors", fd_count);
}

IGNIS_API ignis_status ignis_transport_handle_close(ignis_transport_handle *handle)
{
    if (!handle)
        return IGNIS_OK;
    ignis__handle_close(handle);
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_transport_release_handle(ignis_transport handle, ignis_array array_handle)
{
    static const char call[] = "ignis_transport_release_handle";
    ignis__transport *transport;
    ignis__array *array;
    if (!array_handle.id || !handle.id)
        return IGNIS_OK;
    transport = ignis__transport_hold(call, handle);
    if (!transport)
        return ignis__failed();
    array = ignis__array_hold(call, array_handle);
    if (!array)
        return ignis__transport_end_call(transport, false);
    (void)ignis__exports_end(call, array, transport->serial, false);
    return ignis__transport_end_both(call, transport, array, true);
}
