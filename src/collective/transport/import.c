/*  >>transport.import - imports: arrays of other processes

    Checks handles, maps their memory, and wraps it in arrays; the public functions of importers.
    Uses: exports, records, the memory functions of the kinds.
    Invariants: a record is checked before any use, against what this process mapped or exported; one mapping
    for all imports of an export.
    Locks: ignis__shares.lock around the list; the import's lock while it is mapped. */

#include "room.h"

/*  Checks that the values of a sealed record are consistent; *bytes: of the array. */
IGNIS__PRIVATE bool ignis__record_is_consistent(const ignis__record_of_array *record, int64_t *bytes)
{
    bool empty = false;
    int i;
    if (record->kind == 0 || record->kind >= IGNIS_TRANSPORT_KIND_COUNT || record->dtype <= IGNIS_DTYPE_DEFAULT ||
        record->dtype >= IGNIS_DTYPE_COUNT || record->ndim < 1 || record->ndim > IGNIS_MAX_DIMS ||
        record->tag[sizeof record->tag - 1] != 0)
        return false;
    *bytes = ignis__dtypes[record->dtype].size;
    for (i = 0; i < record->ndim; i++) {
        if (record->dim[i] < 0 || (record->dim[i] > 0 && !ignis__multiply(*bytes, record->dim[i], bytes)))
            return false;
        empty = empty || record->dim[i] == 0;
    }
    *bytes = empty ? 0 : *bytes;
    return record->block_size > 0 && record->offset >= 0 && record->offset <= record->block_size &&
           record->offset % ignis__dtypes[record->dtype].size == 0 && *bytes <= record->block_size - record->offset;
}

/*  Reads and checks the record of a handle before any use. */
IGNIS__PRIVATE bool ignis__record_read(const char *call, const ignis__transport *transport,
                                       const ignis_transport_handle *handle, ignis__record_of_array *record)
{
    const ignis__record_of_array *self = &ignis__own_identity;
    int64_t bytes;
    unsigned char seal[32];
    bool memory;
    memcpy(record, handle->record, sizeof *record);
    ignis__record_seal(transport->token, record, seal);
    (void)ignis__record_fds(record, &memory);
    if (memcmp(record->magic, self->magic, sizeof record->magic) != 0)
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_RECORD, call, "handle is not a handle of a transport");
    if (record->version != IGNIS__RECORD_VERSION)
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_RECORD, call, "the handle has version %u; expected version %d",
                                 record->version, IGNIS__RECORD_VERSION);
    if (!ignis__bytes_equal(seal, record->seal, sizeof seal))
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_RECORD, call,
                                 "the seal of the handle is wrong: it was changed, or made with another token");
    if (!ignis__record_is_consistent(record, &bytes))
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_MISMATCH, call,
                                 "the handle is inconsistent: kind %u, dtype %d, %d dimensions, at %lld of %lld bytes",
                                 record->kind, record->dtype, record->ndim, (long long)record->offset,
                                 (long long)record->block_size);
    if (record->kind != (uint32_t)transport->kind)
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_STATE, call, "the handle is of kind %s, the transport of kind %s",
                                 ignis__transport_kinds[record->kind].name, ignis__transport_ops_of(transport)->name);
    if (record->host != self->host)
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call,
                                 "the handle is of another machine, or older than the last start of this one");
    if (transport->peer_certain && record->pid_namespace == self->pid_namespace &&
        (int64_t)record->pid != transport->peer_pid)
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_PEER, call,
                                 "the handle is of process %u, but came from process %lld", record->pid,
                                 (long long)transport->peer_pid);
    if (!ignis__transport_ops_of(transport)->across &&
        memcmp(record->process, self->process, sizeof self->process) != 0)
        return ignis__fail_false(
            IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call,
            "the handle is of process %u; peer copies work within one process: use IGNIS_TRANSPORT_VMM or _HOST",
            record->pid);
    if (memory && (!handle->memory.type || handle->memory.type != IGNIS__VMM_HANDLE_SYSTEM))
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_MISMATCH, call, "a descriptor of the handle is missing");
    return true;
}

/*  Opens the named file of a handle, unless it is open. */
IGNIS__PRIVATE bool ignis__handle_open(const char *call, const ignis__transport *transport,
                                       const ignis__record_of_array *record, ignis_transport_handle *handle)
{
    bool lease = ignis__transport_ops_of(transport)->zero_copy;
    char path[IGNIS__PATH_MAX];
    int fd;
    if (!record->name || handle->has_lease || handle->memory.type)
        return true;
    if (!ignis__record_path(call, transport, record, record->name, path))
        return false;
    fd = ignis__named_file_open(path, lease);
    if (fd < 0)
        return ignis__fail_false(
            IGNIS_DIAG_TRANSPORT_MISMATCH, call,
            "%s does not exist: the handle was taken or released before, or IGNIS_COMM_DIR differs", path);
    if (lease) {
        handle->has_lease = true;
        handle->lease = fd;
    } else {
        ignis__vmm_handle_set_fd(&handle->memory, fd);
    }
    return true;
}

/*  Finds the device of a record. NULL, and reported, if this process does not see it. */
IGNIS__PRIVATE ignis__device *ignis__record_device(const char *call, const ignis__record_of_array *record)
{
    ignis_device_info info;
    int i;
    for (i = 0; i < ignis__device_total; i++)
        if (ignis_device_query(i, &info) == IGNIS_OK && memcmp(info.uuid, record->uuid, sizeof info.uuid) == 0)
            return &ignis__devices[i];
    ignis__fail(IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call,
                "the array is on a device (UUID %02x%02x%02x%02x...) that this process does not see; check "
                "CUDA_VISIBLE_DEVICES, or use "
                "IGNIS_TRANSPORT_HOST",
                record->uuid[0], record->uuid[1], record->uuid[2], record->uuid[3]);
    return NULL;
}

/*  Tells if a record is of an export of this process. *array: that array, held; NULL, and reported, if the
    record does not match it. */
static bool ignis__record_find_own(const char *call, const ignis__record_of_array *record, ignis__array **array)
{
    ignis__export *entry;
    bool found;
    *array = NULL;
    if (memcmp(record->process, ignis__own_identity.process, sizeof record->process) != 0)
        return false;
    ignis__mutex_lock(&ignis__shares.lock);
    for (entry = ignis__shares.exports; entry && (!entry->array || entry->record.serial != record->serial);
         entry = entry->next)
        ;
    found = entry != NULL;
    if (found && ignis__record_equal(&entry->record, record)) {
        *array = entry->array;
        ignis__atomic_add(&(*array)->slot.state, 1); /* held by its handles */
    }
    ignis__mutex_unlock(&ignis__shares.lock);
    if (!*array)
        ignis__fail(IGNIS_DIAG_TRANSPORT_MISMATCH, call,
                    found ? "the handle does not match the export of this process"
                          : "the array of this handle is no longer exported");
    return true;
}

/*  Maps the memory of an import. The import takes the lease of the handle. */
static bool ignis__import_map(const char *call, const ignis__transport *transport, ignis__import *mapped,
                              ignis_transport_handle *handle)
{
    const ignis__transport_ops *ops = ignis__transport_ops_of(transport);
    const ignis__record_of_array *record = &mapped->record;
    ignis__device *home = NULL;
    ignis__binding binding;
    bool ok;
    if (!ignis__handle_open(call, transport, record, handle))
        return false;
    mapped->lease = handle->has_lease ? ignis__fd_copy(handle->lease) : -1;
    ok = mapped->lease >= 0 || !handle->has_lease ||
         ignis__fail_false(IGNIS_DIAG_TRANSPORT_MISMATCH, call,
                           "the lease of the handle is not an open descriptor, or too many are open");
    if (ok && ignis__record_find_own(call, record, &mapped->own))
        ok = mapped->own != NULL;
    else
        ok = ok && (home = ignis__record_device(call, record)) != NULL;
    if (ok && ignis__device_enter(call, mapped->device, &binding)) {
        mapped->made = mapped->own ? ops->grant_access(call, mapped->own, mapped->device)
                                   : ops->import_memory(call, mapped, home, &handle->memory);
        if (mapped->own)
            mapped->address = ignis__atomic_load(&mapped->own->storage->address) + (uint64_t)mapped->own->offset -
                              (uint64_t)record->offset;
        ignis__device_leave(&binding);
    }
    if (mapped->made)
        return true;
    if (mapped->own)
        ignis__array_drop(call, mapped->own);
    mapped->own = NULL;
    ignis__fd_close(&mapped->lease);
    return false;
}

/*  Finds the import of a record, or maps a new one, and counts one more array. */
static ignis__import *ignis__import_find_or_map(const char *call, const ignis__transport *transport,
                                                const ignis__record_of_array *record, ignis_transport_handle *handle)
{
    ignis__import *mapped, *fresh = (ignis__import *)ignis__alloc_for(call, sizeof *fresh);
    bool same = true, ok;
    if (!fresh)
        return NULL;
    fresh->record = *record;
    fresh->transport = transport->serial;
    fresh->device = transport->dst;
    fresh->arrays = 1;
    fresh->lease = -1;
    ignis__mutex_init(&fresh->lock);
    ignis__mutex_lock(&ignis__shares.lock);
    for (mapped = ignis__shares.imports; mapped; mapped = mapped->next)
        if (mapped->transport == transport->serial && mapped->record.serial == record->serial &&
            memcmp(mapped->record.process, record->process, sizeof record->process) == 0)
            break;
    if (!mapped) {
        fresh->next = ignis__shares.imports;
        ignis__shares.imports = fresh;
    } else {
        same = ignis__record_equal(&mapped->record, record);
        mapped->arrays += same;
    }
    ignis__mutex_unlock(&ignis__shares.lock);
    if (mapped)
        ignis__free(fresh);
    else
        mapped = fresh;
    if (!same) {
        ignis__fail(IGNIS_DIAG_TRANSPORT_MISMATCH, call, "the handle contradicts an earlier handle of its array");
        return NULL;
    }
    ignis__mutex_lock(&mapped->lock); /* the first thread maps; if that fails, the next one tries */
    ok = mapped->made || ignis__import_map(call, transport, mapped, handle);
    ignis__mutex_unlock(&mapped->lock);
    if (ok)
        return mapped;
    ignis__import_drop(call, mapped);
    return NULL;
}

/*  Creates an array over the import of a checked record. */
IGNIS__PRIVATE ignis_array ignis__import_array(const char *call, const ignis__transport *transport,
                                               const ignis__record_of_array *record, ignis_transport_handle *handle)
{
    ignis_array result = IGNIS__ZERO;
    ignis__import *mapped;
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape.ndim = record->ndim;
    memcpy(desc.shape.dim, record->dim, sizeof record->dim[0] * (size_t)record->ndim);
    desc.dtype = (ignis_dtype)record->dtype;
    desc.device = ignis__device_in_desc(transport->dst);
    desc.tag = record->tag;
    if (!ignis__transport_ops_of(transport)->zero_copy)
        return ignis__array_create(call, &desc);
    mapped = ignis__import_find_or_map(call, transport, record, handle);
    if (!mapped)
        return result;
    result = ignis__vmm_wrap(call, transport->dst, mapped->address + (uint64_t)record->offset, &desc,
                             ignis__import_release, mapped);
    if (!result.id)
        ignis__import_drop(call, mapped);
    return result;
}

/*  Copies the content of a handle into an array of its size: from host memory, or from the sender's array. */
IGNIS__PRIVATE bool ignis__handle_copy(const char *call, const ignis__transport *transport,
                                       const ignis__record_of_array *record, ignis_transport_handle *handle,
                                       ignis__array *array)
{
    ignis__array *own;
    bool ok;
    if (!ignis__handle_open(call, transport, record, handle))
        return false;
    if (transport->kind == IGNIS_TRANSPORT_HOST) {
        int fd = ignis__vmm_handle_fd(&handle->memory);
        if (ignis__fd_size_is(fd, record->block_size))
            return ignis__host_copy(call, array, fd, true);
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_MISMATCH, call,
                                 "the descriptor is not shared host memory of %lld bytes",
                                 (long long)record->block_size);
    }
    if (!ignis__record_find_own(call, record, &own) || !own) /* handles of other processes were refused before */
        return false;
    ok = own->storage->device == array->storage->device ? ignis__array_convert(call, array, own)
                                                        : ignis__array_copy_peer(call, array, own);
    ignis__array_drop(call, own);
    return ok;
}

static ignis_array ignis__transport_import(const char *call, ignis_transport transport_handle,
                                           const ignis_transport_handle *handle)
{
    ignis__transport *transport = ignis__transport_hold_ready(call, transport_handle);
    ignis_array result = IGNIS__ZERO;
    ignis_transport_handle opened;
    ignis__record_of_array record;
    ignis__array *array;
    if (!transport)
        return result;
    if (ignis__check_not_null(call, "handle", handle) && ignis__record_read(call, transport, handle, &record)) {
        opened = *handle;
        result = ignis__import_array(call, transport, &record, &opened);
        if (result.id && !ignis__transport_ops_of(transport)->zero_copy) {
            array = ignis__array_hold(call, result);
            if (array && !ignis__handle_copy(call, transport, &record, &opened, array)) {
                ignis__array_free_as(call, result, IGNIS_OWNER_IGNIS);
                result.id = 0;
            }
            if (array)
                ignis__array_drop(call, array);
        }
        if (!handle->has_lease && !handle->memory.type)
            ignis__handle_close(&opened); /* opened by its name above */
    }
    ignis__transport_drop(transport);
    return result;
}

IGNIS_API ignis_array ignis_transport_import_handle(ignis_transport transport, const ignis_transport_handle *handle)
{
    return ignis__transport_import("ignis_transport_import_handle", transport, handle);
}

IGNIS_API ignis_array ignis_transport_recv_with_handle(ignis_transport transport, const ignis_transport_handle *handle)
{
    return ignis__transport_import("ignis_transport_recv_with_handle", transport, handle);
}

IGNIS_API ignis_status ignis_transport_close_imported_handle(ignis_transport transport_handle, ignis_array handle)
{
    static const char call[] = "ignis_transport_close_imported_handle";
    ignis__transport *transport;
    ignis__array *array = ignis__transport_hold_both(call, transport_handle, handle, &transport);
    bool ours;
    if (!array)
        return ignis__failed();
    ours = ignis__transport_ops_of(transport)->zero_copy ? ignis__array_imported_by(array, transport->serial)
                                                         : array->storage->device == transport->dst;
    if (!ours)
        ignis__fail(IGNIS_DIAG_TRANSPORT_STATE, call, "%s was not imported by this transport",
                    ignis__array_label(array).text);
    return ignis__transport_end_both(call, transport, array,
                                     ours && ignis__array_free_as(call, handle, ignis__array_owner(array)) == IGNIS_OK);
}
