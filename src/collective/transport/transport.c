/*  >>transport - transports: creating, initializing, ending

    The pool of transports and its public functions.
    Uses: exports, kinds, channels.
    Invariants: ending a transport ends its exports and frees its imported arrays.
    Locks: the slot; ignis__shares.lock. */

#include "room.h"

IGNIS__PRIVATE void ignis__handle_close(ignis_transport_handle *handle)
{
    ignis__vmm_handle_close(&handle->memory);
    if (handle->has_lease)
        ignis__fd_close(&handle->lease);
    memset(handle, 0, sizeof *handle);
}

IGNIS__PRIVATE ignis__transport *ignis__transport_hold(const char *call, ignis_transport handle)
{
    return (ignis__transport *)ignis__handle_hold(call, &ignis__transports, handle.id);
}

/*  Takes the next waiting handle for the caller. */
IGNIS__PRIVATE bool ignis__queued_handle_take(ignis__transport *transport, ignis_transport_handle *handle)
{
    ignis__queued_handle *first;
    ignis__mutex_lock(&transport->slot.lock);
    first = transport->waiting;
    if (first) {
        transport->waiting = first->next;
        if (!first->next)
            transport->waiting_end = &transport->waiting;
        *handle = first->handle;
    }
    ignis__mutex_unlock(&transport->slot.lock);
    ignis__free(first);
    return first != NULL;
}

static void ignis__queued_handles_close(ignis__transport *transport)
{
    ignis_transport_handle handle;
    while (ignis__queued_handle_take(transport, &handle))
        ignis__handle_close(&handle);
}

IGNIS__PRIVATE void ignis__transport_drop(ignis__transport *transport)
{
    if (!ignis__pool_drop(transport))
        return;
    ignis__queued_handles_close(transport);
    ignis__pool_recycle(&ignis__transports, transport);
}

/*  Holds a transport that was initialized. */
IGNIS__PRIVATE ignis__transport *ignis__transport_hold_ready(const char *call, ignis_transport handle)
{
    ignis__transport *transport = ignis__transport_hold(call, handle);
    if (!transport || ignis__atomic_load(&transport->ready))
        return transport;
    ignis__fail(IGNIS_DIAG_TRANSPORT_STATE, call,
                "the transport is not initialized; call ignis_transport_initialize first");
    ignis__transport_drop(transport);
    return NULL;
}

IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__transport_end_call(ignis__transport *transport, bool ok)
{
    ignis__transport_drop(transport);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__PRIVATE const ignis__transport_ops *ignis__transport_ops_of(const ignis__transport *transport)
{
    return &ignis__transport_kinds[transport->kind];
}

/*  Tells if the exchange method carries descriptors; else handles have named files. */
IGNIS__PRIVATE bool ignis__transport_carries_descriptors(const ignis__transport *transport)
{
    return ignis__connection_kinds[transport->exchange]->descriptors;
}

IGNIS__PRIVATE void ignis__transport_describe(ignis__string_writer *text, const ignis__transport *transport)
{
    static const char *const methods[] = {"default", "socket", "named_pipe", "shared_memory"};
    ignis__string_add(text, "%s[%d->%d, %s]", ignis__transport_ops_of(transport)->name,
                      ignis__device_ordinal(transport->src), ignis__device_ordinal(transport->dst),
                      methods[transport->exchange]);
}

static void ignis__import_free(const char *call, ignis__import *mapped)
{
    const ignis__transport_ops *ops = &ignis__transport_kinds[mapped->record.kind];
    if (mapped->own)
        ignis__array_drop(call, mapped->own);
    else if (mapped->made && ops->unmap_memory)
        ops->unmap_memory(call, mapped);
    ignis__fd_close(&mapped->lease);
    ignis__free(mapped);
}

/*  Drops an import. The last one of a mapping unmaps it and tells the exporter. */
IGNIS__PRIVATE void ignis__import_drop(const char *call, ignis__import *mapped)
{
    ignis__import **at;
    bool last;
    ignis__mutex_lock(&ignis__shares.lock);
    last = --mapped->arrays == 0;
    if (last) {
        for (at = &ignis__shares.imports; *at != mapped; at = &(*at)->next)
            ;
        *at = mapped->next;
    }
    ignis__mutex_unlock(&ignis__shares.lock);
    if (last)
        ignis__import_free(call, mapped);
}

IGNIS__PRIVATE void ignis__import_release(void *ptr, void *data)
{
    (void)ptr;
    ignis__import_drop("ignis_array_free", (ignis__import *)data);
}

/*  Tells if a transport has imported this array (not a view). */
IGNIS__PRIVATE bool ignis__array_imported_by(const ignis__array *array, uint64_t transport)
{
    const ignis__storage *storage = array->storage;
    return storage->release_fn == ignis__import_release && !array->view &&
           ((const ignis__import *)storage->release_data)->transport == transport;
}

/*  Frees the arrays that a transport has imported, as their owner; referenced ones stay. */
static void ignis__imports_free(const char *call, uint64_t transport)
{
    ignis__array *array;
    uint64_t index = 0;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        if (ignis__array_imported_by(array, transport)) {
            ignis__mutex_lock(&array->slot.lock);
            if (ignis__pool_live(array) && array->ref_count == 0)
                ignis__array_kill(array);
            ignis__array_unlock(array);
        }
        ignis__array_drop(call, array);
    }
}

IGNIS__COLD static bool ignis__transport_end(const char *call, ignis__transport *transport)
{
    if (!ignis__handle_kill(transport))
        return false;
    ignis__queued_handles_close(transport);
    (void)ignis__exports_end(call, NULL, transport->serial, false);
    ignis__imports_free(call, transport->serial);
    return true;
}

IGNIS__COLD static void ignis__transports_close(const char *call)
{
    ignis__transport *transport;
    ignis__export *entry;
    uint64_t index = 0;
    while ((transport = (ignis__transport *)ignis__pool_next(&ignis__transports, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "transport by %s",
                           ignis__transport_kinds[transport->kind].name);
        ignis__transport_end(call, transport);
        ignis__transport_drop(transport);
    }
    (void)ignis__exports_end(call, NULL, 0, false); /* of arrays that were shared without a transport */
    (void)ignis__exports_end(call, NULL, 0, true);
    while ((entry = ignis__shares.exports) != NULL) { /* copies that were not taken yet */
        ignis__shares.exports = entry->next;
        ignis__export_free(entry);
    }
}

/*  Prepares this process for handles. Hooks of arrays are set once, before any export is counted. */
IGNIS__PRIVATE bool ignis__transports_prepare(const char *call)
{
    ignis__record_of_array *self = &ignis__own_identity;
    bool known;
    ignis__mutex_lock(&ignis__own_identity_lock);
    known = self->version != 0 || ignis__random_bytes(self->process, sizeof self->process);
    if (known && !self->version) {
        memcpy(self->magic, IGNIS__RECORD_MAGIC, sizeof self->magic);
        self->pid = (uint32_t)ignis__process_id();
        self->pid_namespace = ignis__pid_namespace();
        self->host = ignis__host_hash();
        self->version = IGNIS__RECORD_VERSION;
        IGNIS__HOOK_SET(ignis__export_holders, ignis__exports_describe);
        IGNIS__HOOK_SET(ignis__exports_reap, ignis__exports_reap_array);
    }
    ignis__mutex_unlock(&ignis__own_identity_lock);
    ignis__section_use(IGNIS__SECTION_TRANSPORT, ignis__transports_close);
    if (!known)
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the system returned no random bytes");
    return known;
}

/*  Reads what a transport needs of its channel. */
static bool ignis__transport_read_channel(const char *call, ignis__transport *transport, ignis_channel handle)
{
    ignis__channel *channel = ignis__channel_hold_as(call, handle, false);
    const char *slash;
    if (!channel)
        return false;
    transport->channel = handle;
    transport->exchange = channel->connection->kind->method;
    transport->peer_pid = channel->connection->peer_pid;
    transport->peer_certain = channel->connection->kind->descriptors && transport->peer_pid != 0;
    slash = strrchr(channel->connection->path, '/');
    if (slash) /* the folder that both sides know */
        snprintf(transport->folder, sizeof transport->folder, "%.*s", (int)(slash - channel->connection->path),
                 channel->connection->path);
    ignis__channel_drop(channel);
    return true;
}

/*  Checks a description and fills a transport from it. */
static bool ignis__transport_read_desc(const char *call, const ignis_transport_desc *desc, ignis__transport *out)
{
    ignis_transport_choice choice;
    ignis__device *devices[2];
    char reason[512];
    ignis__string_writer why;
    memset(out, 0, sizeof *out);
    if (desc->kind != IGNIS_TRANSPORT_AUTO && !ignis__transport_kind_valid(call, desc->kind))
        return false;
    if ((unsigned)desc->exchange >= IGNIS_CHANNEL_METHOD_COUNT)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call,
                                 "desc.exchange is %d; expected IGNIS_CHANNEL_SOCKET to _SHM, 1 to 3",
                                 (int)desc->exchange);
    if (!(desc->timeout_s >= 0) || desc->timeout_s > 1e6)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc.timeout_s is %g; expected 0 to 1e6",
                                 desc->timeout_s);
    if (!ignis__transport_devices(call, ignis__desc_device(desc->src_device), ignis__desc_device(desc->dst_device),
                                  devices))
        return false;
    out->src = devices[0];
    out->dst = devices[1];
    out->timeout_ns = (int64_t)((desc->timeout_s > 0 ? desc->timeout_s : 30) * 1e9);
    out->exchange = desc->exchange ? desc->exchange : IGNIS__EXCHANGE_SYSTEM;
    if (!ignis__connection_kinds[out->exchange])
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call, "channels by %s are not supported on this system",
                                 ignis__method_names[out->exchange]);
    if (desc->channel.id && !ignis__transport_read_channel(call, out, desc->channel))
        return false;
    choice.kind = desc->kind;
    ignis__string_begin(&why, reason, sizeof reason);
    if (desc->kind == IGNIS_TRANSPORT_AUTO) {
        bool alone = desc->channel.id == 0;
        if (!ignis__transport_choose(call, devices, alone, alone || ignis__transport_carries_descriptors(out), &choice))
            return false;
    } else if (!ignis__transport_kinds[desc->kind].available(devices[0], devices[1], &why)) {
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call, "%s is not available: %s",
                                 ignis__transport_kinds[desc->kind].name, reason);
    }
    out->kind = choice.kind;
    if (desc->token)
        memcpy(out->token, desc->token, IGNIS_TRANSPORT_TOKEN_BYTES);
    return desc->token || ignis__transport_secret(call, out->token);
}

IGNIS_API IGNIS__COLD ignis_transport ignis_transport_create(const ignis_transport_desc *desc)
{
    static const char call[] = "ignis_transport_create";
    ignis_transport result = IGNIS__ZERO;
    ignis__transport *transport, fresh;
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "desc", desc) ||
        !ignis__transport_read_desc(call, desc, &fresh) || !ignis__transports_prepare(call) ||
        (transport = (ignis__transport *)ignis__pool_take(call, &ignis__transports)) == NULL)
        return result;
    memcpy((char *)transport + sizeof fresh.slot, (const char *)&fresh + sizeof fresh.slot,
           sizeof fresh - sizeof fresh.slot);
    transport->serial = ignis__atomic_add(&ignis__shares.transports, 1);
    transport->waiting_end = &transport->waiting;
    result.id = ignis__pool_publish(&ignis__transports, transport);
    return result;
}

IGNIS_API ignis_status ignis_transport_destroy(ignis_transport handle)
{
    static const char call[] = "ignis_transport_destroy";
    const uint64_t failures = ignis__failures();
    ignis__transport *transport;
    if (!handle.id)
        return IGNIS_OK;
    transport = ignis__transport_hold(call, handle);
    bool live;
    if (!transport)
        return ignis__failed();
    live = ignis__transport_end(call, transport) ||
           ignis__fail_false(IGNIS_DIAG_TRANSPORT_FREED, call, "the transport was destroyed");
    return ignis__ended(failures, ignis__transport_end_call(transport, live) == IGNIS_OK);
}

IGNIS_API ignis_status ignis_transport_initialize(ignis_transport handle)
{
    static const char call[] = "ignis_transport_initialize";
    ignis__transport *transport = ignis__transport_hold(call, handle);
    const ignis__transport_ops *ops;
    bool ok;
    if (!transport)
        return ignis__failed();
    ops = ignis__transport_ops_of(transport);
    ok = !ops->start || ignis__atomic_load(&transport->ready) != 0 || ops->start(call, transport->src, transport->dst);
    if (ok)
        ignis__atomic_store(&transport->ready, 1);
    return ignis__transport_end_call(transport, ok);
}

IGNIS_API bool ignis_transport_ready(ignis_transport handle)
{
    ignis__transport *transport = ignis__transport_hold("ignis_transport_ready", handle);
    bool ready;
    if (!transport)
        return false;
    ready = ignis__atomic_load(&transport->ready) != 0;
    ignis__transport_drop(transport);
    return ready;
}

IGNIS_API ignis_status ignis_transport_query(ignis_transport handle, ignis_transport_info *info)
{
    static const char call[] = "ignis_transport_query";
    ignis__transport *transport = ignis__transport_hold(call, handle);
    const ignis__transport_ops *ops;
    const ignis__import *mapped;
    const ignis__export *entry;
    if (!transport)
        return ignis__failed();
    if (!ignis__check_not_null(call, "info", info))
        return ignis__transport_end_call(transport, false);
    (void)ignis__exports_end(call, NULL, transport->serial, true);
    ops = ignis__transport_ops_of(transport);
    memset(info, 0, sizeof *info);
    info->kind = transport->kind;
    info->name = ops->name;
    info->src_device = ignis__device_ordinal(transport->src);
    info->dst_device = ignis__device_ordinal(transport->dst);
    info->exchange = transport->exchange;
    info->ready = ignis__atomic_load(&transport->ready) != 0;
    info->zero_copy = ops->zero_copy;
    info->estimated_bandwidth_gbs = ops->bandwidth_gbs;
    info->estimated_latency_us = ops->latency_us;
    ignis__mutex_lock(&transport->slot.lock);
    info->measured_bandwidth_gbs = transport->bandwidth_gbs;
    info->measured_latency_us = transport->latency_us;
    ignis__mutex_unlock(&transport->slot.lock);
    ignis__mutex_lock(&ignis__shares.lock);
    for (entry = ignis__shares.exports; entry; entry = entry->next)
        info->exported += entry->transport == transport->serial;
    for (mapped = ignis__shares.imports; mapped; mapped = mapped->next) {
        info->imported += mapped->transport == transport->serial ? mapped->arrays : 0;
        info->mappings += mapped->transport == transport->serial;
    }
    ignis__mutex_unlock(&ignis__shares.lock);
    return ignis__transport_end_call(transport, true);
}

IGNIS_API int ignis_transport_to_string(ignis_transport handle, char *out, size_t capacity)
{
    static const char call[] = "ignis_transport_to_string";
    ignis__transport *transport = ignis__transport_hold(call, handle);
    ignis__string_writer text;
    char none[1];
    if (!transport)
        return -1;
    ignis__string_begin(&text, out ? out : none, out ? capacity : sizeof none);
    ignis__transport_describe(&text, transport);
    ignis__transport_drop(transport);
    return (int)text.length;
}
