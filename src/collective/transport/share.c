/*  >>share - arrays that two processes use through a channel

    Sends and receives an array and its lease as one message, by a transport of the kind VMM that lasts for the call.
    Uses: transports, channels.
    Invariants: the token is 0, since the channel has authenticated the peer.
    Locks: those of channels and exports. */

#include "room.h"

/*  Holds a channel that carries descriptors, and fills a transport of the kind VMM for it. */
static ignis__channel *ignis__share_begin(const char *call, ignis_channel handle, ignis__transport *transport)
{
    ignis__channel *channel = ignis__channel_hold_as(call, handle, false);
    memset(transport, 0, sizeof *transport);
    if (!channel)
        return NULL;
    transport->kind = IGNIS_TRANSPORT_VMM;
    transport->exchange = channel->connection->kind->method;
    transport->peer_pid = channel->connection->peer_pid;
    transport->peer_certain = channel->connection->peer_pid != 0; /* from a socket or a Windows pipe */
    transport->serial = ignis__atomic_add(&ignis__shares.transports, 1);
    if (!channel->connection->kind->descriptors)
        ignis__fail(IGNIS_DIAG_CHANNEL_DESCRIPTOR, call,
                    "a channel by %s cannot carry descriptors, which shared arrays need; use IGNIS_CHANNEL_SOCKET",
                    ignis__method_names[channel->connection->kind->method]);
    else if (ignis__transports_prepare(call))
        return channel;
    ignis__channel_drop(channel);
    return NULL;
}

IGNIS_API ignis_status ignis_share_send(ignis_channel handle, ignis_array array_handle)
{
    static const char call[] = "ignis_share_send";
    ignis__transport transport;
    ignis_transport_handle sent;
    ignis__channel *channel = ignis__share_begin(call, handle, &transport);
    ignis__array *array = channel ? ignis__array_hold(call, array_handle) : NULL;
    bool ok = false;
    if (array) {
        transport.src = transport.dst = array->storage->device;
        if (ignis__transport_export(call, &transport, array, true, &sent)) {
            ok = ignis__handle_send(call, handle, &sent);
            ignis__handle_close(&sent);
            if (!ok)
                (void)ignis__exports_end(call, NULL, transport.serial, false);
        }
        ignis__array_drop(call, array);
    }
    if (channel)
        ignis__channel_drop(channel);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_array ignis_share_receive(ignis_channel handle)
{
    static const char call[] = "ignis_share_receive";
    ignis_array result = IGNIS__ZERO;
    ignis__transport transport;
    ignis__record_of_array record;
    ignis_transport_handle came;
    ignis__channel *channel = ignis__share_begin(call, handle, &transport);
    if (!channel)
        return result;
    if (ignis__handle_receive(call, handle, &came)) {
        if (ignis__record_read(call, &transport, &came, &record)) {
            transport.dst = ignis__record_device(call, &record);
            if (transport.dst)
                result = ignis__import_array(call, &transport, &record, &came);
        }
        ignis__handle_close(&came);
    }
    ignis__channel_drop(channel);
    return result;
}
