/*  >>transport.send_receive - sending and receiving arrays

    A handle goes to the caller, through the channel, or to a receive of this process.
    Uses: handles, imports, channels.
    Invariants: a handle that cannot be delivered is closed.
    Locks: the slot of the transport around waiting handles. */

#include "room.h"

/*  Sends a handle through a channel, as one message. */
IGNIS__PRIVATE bool ignis__handle_send(const char *call, ignis_channel to, const ignis_transport_handle *handle)
{
    ignis__channel *channel = ignis__channel_hold(call, to);
    int fds[2], count = ignis_transport_handle_fds(handle, fds);
    ignis__peer_error error;
    bool ok;
    if (!channel)
        return false;
    ok = ignis__channel_send_message(&error, channel->connection, IGNIS__MESSAGE_ARRAY, handle->record,
                                     sizeof handle->record, fds, count, -1) ||
         ignis__peer_error_report(call, &error) == IGNIS_OK;
    ignis__channel_drop(channel);
    return ok;
}

/*  Takes the handle in the inbox; the next message can follow. */
static bool ignis__inbox_handle(const char *call, ignis__connection *connection, ignis_transport_handle *handle)
{
    uint32_t size = ignis__message_header_read(connection).size;
    int count = connection->inbox_fd_count;
    bool ok = size == sizeof handle->record;
    if (ignis__message_header_read(connection).type != IGNIS__MESSAGE_ARRAY)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "the next item is a message; receive it with ignis_channel_receive");
    if (ok) {
        ok = ignis__handle_add_fds(handle, connection->inbox + sizeof(ignis__message_header), connection->inbox_fds,
                                   count);
        connection->inbox_fd_count = 0; /* the handle owns them now */
    }
    ignis__inbox_remove(connection);
    return ok || ignis__fail_false(IGNIS_DIAG_TRANSPORT_RECORD, call,
                                   "the message is not a handle: %u bytes and %d descriptors", size, count);
}

/*  Waits for the next handle from a channel. */
IGNIS__PRIVATE bool ignis__handle_receive(const char *call, ignis_channel from, ignis_transport_handle *handle)
{
    ignis__channel *channel = ignis__channel_hold(call, from);
    ignis__peer_error error;
    bool ok;
    if (!channel)
        return false;
    ok = ignis__connection_receive_next(&error, channel->connection, -1) ||
         ignis__peer_error_report(call, &error) == IGNIS_OK;
    if (ok) {
        ok = ignis__inbox_handle(call, channel->connection, handle);
        ignis__mutex_unlock(&channel->connection->receive_lock);
    }
    ignis__channel_drop(channel);
    return ok;
}

/*  Queues a handle for the next receive of this process. On failure the handle is closed. */
static bool ignis__transport_queue_handle(const char *call, ignis__transport *transport, ignis_transport_handle *handle)
{
    ignis__queued_handle *waiting =
        transport->channel.id ? NULL : (ignis__queued_handle *)ignis__alloc_for(call, sizeof *waiting);
    bool ok = transport->channel.id && ignis__handle_send(call, transport->channel, handle);
    if (!waiting) {
        ignis__handle_close(handle);
        return ok;
    }
    waiting->handle = *handle;
    ignis__mutex_lock(&transport->slot.lock);
    *transport->waiting_end = waiting;
    transport->waiting_end = &waiting->next;
    ignis__mutex_unlock(&transport->slot.lock);
    return true;
}

/*  Returns the next handle and its checked record. */
static bool ignis__transport_next_handle(const char *call, ignis__transport *transport, ignis_transport_handle *handle,
                                         ignis__record_of_array *record)
{
    int64_t deadline = ignis__monotonic_ns() + transport->timeout_ns;
    bool ok = false;
    memset(handle, 0, sizeof *handle);
    if (transport->channel.id) {
        ok = ignis__handle_receive(call, transport->channel, handle);
    } else {
        while (!(ok = ignis__queued_handle_take(transport, handle)) && ignis__monotonic_ns() < deadline &&
               ignis__pool_live(transport))
            ignis__sleep_us(200);
        if (!ok)
            ignis__fail(IGNIS_DIAG_CHANNEL_TIMEOUT, call, "nothing was sent for %.3g s",
                        (double)transport->timeout_ns * 1e-9);
    }
    if (ok && ignis__record_read(call, transport, handle, record) &&
        ignis__handle_open(call, transport, record, handle))
        return true;
    ignis__handle_close(handle);
    return false;
}

static ignis_status ignis__transport_send(const char *call, ignis_transport transport_handle, ignis_array array_handle,
                                          ignis_transport_handle *out, bool wait)
{
    ignis__transport *transport;
    ignis__array *array = ignis__transport_hold_both(call, transport_handle, array_handle, &transport);
    const ignis__transport_ops *ops;
    ignis_transport_handle handle;
    bool ok = false;
    if (!array)
        return ignis__failed();
    ops = ignis__transport_ops_of(transport);
    if (!out && !transport->channel.id && !ops->copies)
        ignis__fail(IGNIS_DIAG_TRANSPORT_HANDLE, call,
                    "%s sends a handle: pass `handle`, or create the transport with a channel", ops->name);
    else if (!out && transport->channel.id && !ops->named && !ignis__transport_carries_descriptors(transport))
        ignis__fail(
            IGNIS_DIAG_CHANNEL_DESCRIPTOR, call,
            "memory of %s travels as a descriptor, which a channel by %s cannot carry; use IGNIS_CHANNEL_SOCKET, "
            "IGNIS_TRANSPORT_IPC or IGNIS_TRANSPORT_HOST",
            ops->name, ignis__method_names[transport->exchange]);
    else
        ok = ignis__transport_export(call, transport, array, wait, out ? out : &handle) &&
             (out || ignis__transport_queue_handle(call, transport, &handle));
    return ignis__transport_end_both(call, transport, array, ok);
}

IGNIS_API ignis_status ignis_transport_send(ignis_transport transport, ignis_array array,
                                            ignis_transport_handle *handle)
{
    return ignis__transport_send("ignis_transport_send", transport, array, handle, true);
}

IGNIS_API ignis_status ignis_transport_send_async(ignis_transport transport, ignis_array array,
                                                  ignis_transport_handle *handle)
{
    return ignis__transport_send("ignis_transport_send_async", transport, array, handle, false);
}

IGNIS_API ignis_status ignis_transport_receive_handle(ignis_transport transport_handle, ignis_transport_handle *handle)
{
    static const char call[] = "ignis_transport_receive_handle";
    ignis__transport *transport = ignis__transport_hold_ready(call, transport_handle);
    ignis__record_of_array record;
    bool ok;
    if (!transport)
        return ignis__failed();
    ok = ignis__check_not_null(call, "handle", handle) &&
         (transport->channel.id ||
          ignis__fail_false(IGNIS_DIAG_TRANSPORT_STATE, call, "the transport has no channel to receive from")) &&
         ignis__transport_next_handle(call, transport, handle, &record);
    return ignis__transport_end_call(transport, ok);
}

static ignis_status ignis__transport_recv(const char *call, ignis_transport transport_handle, ignis_array array_handle,
                                          bool wait)
{
    ignis__transport *transport;
    ignis__array *array = ignis__transport_hold_both(call, transport_handle, array_handle, &transport);
    ignis_transport_handle handle;
    ignis__record_of_array record;
    int64_t bytes = 0;
    bool ok = false;
    if (!array)
        return ignis__failed();
    if (!ignis__transport_ops_of(transport)->copies) {
        ignis__fail(IGNIS_DIAG_TRANSPORT_HANDLE, call,
                    "%s copies nothing: receive the sender's array with "
                    "ignis_transport_recv_with_handle",
                    ignis__transport_ops_of(transport)->name);
    } else if (array->storage->device != transport->dst) {
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "%s is on device %d; the transport goes to device %d",
                    ignis__array_label(array).text, ignis__device_ordinal(array->storage->device),
                    ignis__device_ordinal(transport->dst));
    } else if (ignis__transport_next_handle(call, transport, &handle, &record)) {
        ignis__record_is_consistent(&record, &bytes);
        if (record.dtype != (int32_t)array->dtype)
            ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "%s is %s; the sent array is %s",
                        ignis__array_label(array).text, ignis__dtypes[array->dtype].name,
                        ignis__dtypes[record.dtype].name);
        else if (bytes != ignis__array_bytes(array))
            ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s %s has %lld bytes; the sent array has %lld",
                        ignis__array_label(array).text, ignis__shape_write(&array->shape).text,
                        (long long)ignis__array_bytes(array), (long long)bytes);
        else
            ok = ignis__handle_copy(call, transport, &record, &handle, array) &&
                 (!wait || ignis__array_wait(call, array));
        ignis__handle_close(&handle);
        (void)ignis__exports_end(call, NULL, transport->serial, true);
    }
    return ignis__transport_end_both(call, transport, array, ok);
}

IGNIS_API ignis_status ignis_transport_recv(ignis_transport transport, ignis_array array)
{
    return ignis__transport_recv("ignis_transport_recv", transport, array, true);
}

IGNIS_API ignis_status ignis_transport_recv_async(ignis_transport transport, ignis_array array)
{
    return ignis__transport_recv("ignis_transport_recv_async", transport, array, false);
}

IGNIS_API ignis_status ignis_transport_synchronize(ignis_transport handle)
{
    static const char call[] = "ignis_transport_synchronize";
    ignis__transport *transport = ignis__transport_hold_ready(call, handle);
    uint64_t mask;
    if (!transport)
        return ignis__failed();
    mask = (uint64_t)1 << (transport->src - ignis__devices) | (uint64_t)1 << (transport->dst - ignis__devices);
    return ignis__transport_end_call(transport, !ignis__capture_refuses(call) && ignis__devices_wait(call, mask));
}
