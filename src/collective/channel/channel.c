/*  >>channel - channels: messages between two processes

    The public functions of channels: serve, connect, accept, send, receive.
    Uses: connections and listeners of the peer room.
    Invariants: a channel is a connection or a listener, never both; a failure that leaves the peers out of
    step ends the connection.
    Locks: the slot; send_lock and receive_lock of the connection, listener->lock; none is held while another
    one is taken. */

#include "room.h"

IGNIS__PRIVATE const char *const ignis__method_names[] = {"default", "socket", "pipe", "shared memory"};

static int64_t ignis__timeout_ns(double timeout_s)
{
    return timeout_s > 1e9 ? INT64_MAX / 4 : (int64_t)(timeout_s * 1e9);
}

/*  Checks that a name can be part of a path. */
static bool ignis__name_valid(const char *name)
{
    size_t length = strlen(name);
    return length >= 1 && length <= 63 && *name != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

/*  Takes a lock. False, with the error set, if the deadline passes. */
static bool ignis__mutex_lock_until(ignis__peer_error *error, ignis__mutex *mutex, const ignis__deadline *until,
                                    const char *what)
{
    while (!ignis__mutex_try(mutex)) {
        if (ignis__deadline_slice_ms(until, 1) == 0)
            return ignis__peer_error_set_timeout(error, until, what);
        ignis__sleep_us(50);
    }
    return true;
}

/*  Finds the path of the server of a name, and of the file with its secret. */
IGNIS__PRIVATE bool ignis__endpoint_set_paths(const char *call, char folder[IGNIS__PATH_MAX], const char *name,
                                              ignis__endpoint *address)
{
    int length, name_length;
    if (!ignis__private_folder(call, folder, IGNIS__PATH_MAX))
        return false;
    name_length =
        snprintf(address->name_path, sizeof address->name_path, "%s/%s.%s-name", folder, name, address->kind->suffix);
#ifdef _WIN32 /* the path to connect to is in that file */
    length = snprintf(address->path, sizeof address->path, "%s", address->name_path);
#else
    length = snprintf(address->path, sizeof address->path, "%s/%s.%s", folder, name, address->kind->suffix);
#endif
    if (length >= 0 && (size_t)length < sizeof address->path && name_length >= 0 &&
        (size_t)name_length < sizeof address->name_path)
        return true;
    return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "a path in %.80s... exceeds %d bytes", folder,
                             IGNIS__PATH_MAX - 1);
}

static bool ignis__endpoint_read(const char *call, const ignis_channel_desc *desc, ignis__endpoint *address)
{
    char folder[IGNIS__PATH_MAX];
    int length;
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "desc", desc) ||
        !ignis__check_not_null(call, "desc.name", desc->name))
        return false;
    if (!ignis__name_valid(desc->name))
        return ignis__fail_false(
            IGNIS_DIAG_BAD_NUMBER, call,
            "desc.name is '%.80s'; expected 1 to 63 letters, digits, '.', '_' or '-', the first not '.'", desc->name);
    if ((unsigned)desc->method >= IGNIS_CHANNEL_METHOD_COUNT)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call,
                                 "desc.method is %d; expected a value of ignis_channel_method", (int)desc->method);
    if (!(desc->timeout_s >= 0))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc.timeout_s is %g; expected 0 or more",
                                 desc->timeout_s);
    memset(address, 0, sizeof *address);
    address->kind = ignis__connection_kinds[desc->method];
    if (!address->kind)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call, "channels by %s are not supported on this system",
                                 ignis__method_names[desc->method]);
    if (desc->token)
        memcpy(address->secret, desc->token, IGNIS_CHANNEL_TOKEN_BYTES);
    address->timeout_ns = desc->timeout_s == 0 ? 30000000000 : ignis__timeout_ns(desc->timeout_s);
    length = snprintf(folder, sizeof folder, "%s", desc->directory ? desc->directory : "");
    if (length < 0 || (size_t)length >= sizeof folder)
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "desc.directory exceeds %d bytes",
                                 (int)sizeof folder - 1);
    return ignis__endpoint_set_paths(call, folder, desc->name, address);
}

IGNIS__PRIVATE ignis__pool ignis__channels =
    IGNIS__POOL(ignis__channel, IGNIS__KIND_CHANNEL, "channel", IGNIS_DIAG_CHANNEL_FREED);

/*  Closes a connection or listener that no thread uses, after a goodbye if the system takes it. */
static void ignis__channel_free(ignis__connection *connection, ignis__listener *listener)
{
    ignis__peer_error ignored;
    if (connection && !ignis__atomic_load(&connection->lost))
        (void)ignis__connection_send(&ignored, connection, IGNIS__MESSAGE_GOODBYE, NULL, 0, NULL, 0,
                                     &ignis__deadline_now);
    ignis__connection_destroy(connection);
    ignis__listener_free(listener);
}

IGNIS__PRIVATE void ignis__channel_drop(ignis__channel *channel)
{
    ignis__connection *connection = channel->connection;
    ignis__listener *listener = channel->listener;
    if (!ignis__pool_drop(channel))
        return;
    channel->connection = NULL;
    channel->listener = NULL;
    ignis__pool_recycle(&ignis__channels, channel);
    ignis__channel_free(connection, listener);
}

static bool ignis__channel_kill(ignis__channel *channel)
{
    if (!ignis__handle_kill(channel))
        return false;
    ignis__atomic_store(channel->connection ? &channel->connection->closing : &channel->listener->closing, 1);
    return true;
}

IGNIS__COLD static void ignis__channels_close(const char *call)
{
    ignis__channel *channel;
    uint64_t index = 0;
    while ((channel = (ignis__channel *)ignis__pool_next(&ignis__channels, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "channel of the %s",
                           channel->listener ? "server" : "client");
        ignis__channel_kill(channel);
        ignis__channel_drop(channel);
    }
}

/*  Creates a handle for a connection or a listener; destroys it on failure. */
static ignis_channel ignis__channel_publish(const char *call, ignis__connection *connection, ignis__listener *listener)
{
    ignis_channel handle = IGNIS__ZERO;
    ignis__channel *channel = (ignis__channel *)ignis__pool_take(call, &ignis__channels);
    if (!channel) {
        ignis__channel_free(connection, listener);
        return handle;
    }
    ignis__section_use(IGNIS__SECTION_CHANNEL, ignis__channels_close);
    channel->connection = connection;
    channel->listener = listener;
    handle.id = ignis__pool_publish(&ignis__channels, channel);
    return handle;
}

IGNIS__PRIVATE ignis__channel *ignis__channel_hold(const char *call, ignis_channel handle)
{
    return (ignis__channel *)ignis__handle_hold(call, &ignis__channels, handle.id);
}

/*  Holds a channel that listens, or one that carries messages. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__channel *ignis__channel_hold_as(const char *call, ignis_channel handle,
                                                                      bool server)
{
    ignis__channel *channel = ignis__channel_hold(call, handle);
    if (!channel || (channel->listener != NULL) == server)
        return channel;
    ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                server ? "the channel does not listen; use one of ignis_channel_serve"
                       : "the channel only listens; use one of ignis_channel_accept");
    ignis__channel_drop(channel);
    return NULL;
}

IGNIS_API IGNIS__COLD ignis_channel ignis_channel_serve(const ignis_channel_desc *desc)
{
    static const char call[] = "ignis_channel_serve";
    ignis_channel none = IGNIS__ZERO;
    ignis__endpoint address;
    ignis__peer_error error;
    ignis__listener *listener;
    if (!ignis__endpoint_read(call, desc, &address))
        return none;
    if ((listener = ignis__listener_new(call, address.kind, address.path)) == NULL)
        return none;
    listener->timeout_ns = address.timeout_ns;
    if (ignis__listener_open(call, &error, listener, address.name_path, desc->token ? address.secret : NULL))
        return ignis__channel_publish(call, NULL, listener);
    ignis__channel_free(NULL, listener);
    ignis__peer_error_report(call, &error);
    return none;
}

/*  Returns the deadline of a call: timeout_s from now; if that is below 0, the timeout of the channel. */
static ignis__deadline ignis__channel_deadline(int64_t timeout_ns, const uint64_t *closing, double timeout_s)
{
    ignis__deadline until = ignis__deadline_in(timeout_s < 0 ? timeout_ns : ignis__timeout_ns(timeout_s));
    until.stop = closing;
    if (timeout_s == 0)
        until.deadline_ns = 0;
    return until;
}

static ignis_channel ignis__channel_accept(const char *call, ignis_channel handle, double timeout_s)
{
    ignis_channel accepted = IGNIS__ZERO;
    ignis__channel *channel = ignis__channel_hold_as(call, handle, true);
    ignis__peer_error error;
    ignis__deadline until;
    ignis__connection *connection = NULL;
    ignis__listener *listener;
    uint64_t pid = 0;
    if (!channel)
        return accepted;
    listener = channel->listener;
    until = ignis__channel_deadline(listener->timeout_ns, &listener->closing, timeout_s);
    if (ignis__mutex_lock_until(&error, &listener->lock, &until, "another thread was still accepting")) {
        while ((connection = ignis__listener_next(call, &error, listener, &until)) != NULL) {
            if (ignis__claim_read(&error, connection, &pid, sizeof pid) &&
                ignis__connection_welcome(&error, connection, IGNIS_CHANNEL_MAX_BYTES))
                break;
            ignis__listener_refuse(call, listener, connection, true, error.why);
        }
        ignis__mutex_unlock(&listener->lock);
    }
    if (connection) {
        connection->timeout_ns = listener->timeout_ns;
        if (connection->peer_pid == 0)
            connection->peer_pid = (int64_t)pid;
        accepted = ignis__channel_publish(call, connection, NULL);
    } else {
        ignis__peer_error_report(call, &error);
    }
    ignis__channel_drop(channel);
    return accepted;
}

IGNIS_API ignis_channel ignis_channel_accept(ignis_channel handle)
{
    return ignis__channel_accept("ignis_channel_accept", handle, -1);
}

IGNIS_API ignis_channel ignis_channel_accept_within(ignis_channel handle, double timeout_s)
{
    return ignis__channel_accept("ignis_channel_accept_within", handle, timeout_s);
}

IGNIS_API IGNIS__COLD ignis_channel ignis_channel_connect(const ignis_channel_desc *desc)
{
    static const char call[] = "ignis_channel_connect";
    ignis_channel none = IGNIS__ZERO;
    ignis__endpoint address;
    ignis__peer_error error;
    ignis__client client;
    ignis__deadline until;
    ignis__connection *connection;
    uint64_t pid = ignis__process_id();
    if (!ignis__endpoint_read(call, desc, &address))
        return none;
    until = ignis__deadline_in(address.timeout_ns);
    client.kind = address.kind;
    client.path = address.path;
    client.name_path = address.name_path;
    client.secret = desc->token ? address.secret : NULL;
    client.claim = &pid;
    client.claim_size = sizeof pid;
    client.capacity = IGNIS_CHANNEL_MAX_BYTES;
    connection = ignis__connection_open(&error, &client, &until);
    if (connection) {
        connection->timeout_ns = address.timeout_ns;
        return ignis__channel_publish(call, connection, NULL);
    }
    ignis__peer_error_report(call, &error);
    return none;
}

/*  Checks a message before anything is sent. */
static bool ignis__channel_send_check(const char *call, const ignis__connection *connection, const void *data,
                                      int64_t size, const int *fds, int fd_count)
{
    int i;
    if (size < 0 || size > IGNIS_CHANNEL_MAX_BYTES)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld; expected 0 to %d bytes", (long long)size,
                                 IGNIS_CHANNEL_MAX_BYTES);
    if (fd_count < 0 || fd_count > IGNIS_CHANNEL_MAX_FDS)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "fd_count is %d; expected 0 to %d descriptors", fd_count,
                                 IGNIS_CHANNEL_MAX_FDS);
    if ((size > 0 && !ignis__check_not_null(call, "data", data)) ||
        (fd_count > 0 && !ignis__check_not_null(call, "fds", fds)))
        return false;
    if (fd_count > 0 && !connection->kind->descriptors)
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_DESCRIPTOR, call,
                                 "a channel by %s cannot carry descriptors; use IGNIS_CHANNEL_SOCKET",
                                 ignis__method_names[connection->kind->method]);
    for (i = 0; i < fd_count; i++)
        if (!ignis__fd_is_open(fds[i]))
            return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "fds[%d] is %d; expected an open descriptor", i,
                                     fds[i]);
    return true;
}

/*  Ends a connection after a failure that leaves the peers out of step. */
static void ignis__connection_end(ignis__connection *connection, const ignis__peer_error *error)
{
    if (error->diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT || error->diagnostic == IGNIS_DIAG_CHANNEL_FREED)
        return;
    if (!ignis__atomic_load(&connection->lost))
        ignis__atomic_store(&connection->lost, 1);
    if (connection->kind->shutdown)
        connection->kind->shutdown(connection);
}

/*  Sends one message of a type within timeout_s. False, with the error set, on failure. */
IGNIS__PRIVATE bool ignis__channel_send_message(ignis__peer_error *error, ignis__connection *connection, int type,
                                                const void *data, size_t size, const int *fds, int fd_count,
                                                double timeout_s)
{
    ignis__deadline until = ignis__channel_deadline(connection->timeout_ns, &connection->closing, timeout_s);
    bool ok;
    if (!ignis__mutex_lock_until(error, &connection->send_lock, &until, "another thread was still sending"))
        return false;
    ok = ignis__connection_check(error, connection) &&
         ignis__connection_send(error, connection, type, data, size, fds, fd_count, &until);
    /* what the peer sent before it closed can still be received */
    if (!ok && error->diagnostic != IGNIS_DIAG_CHANNEL_LOST)
        ignis__connection_end(connection, error);
    ignis__mutex_unlock(&connection->send_lock);
    return ok;
}

static ignis_status ignis__channel_send(const char *call, ignis_channel handle, const void *data, int64_t size,
                                        const int *fds, int fd_count, double timeout_s)
{
    ignis__channel *channel = ignis__channel_hold_as(call, handle, false);
    ignis_status status = IGNIS_OK;
    ignis__peer_error error;
    if (!channel)
        return ignis__failed();
    if (!ignis__channel_send_check(call, channel->connection, data, size, fds, fd_count))
        status = ignis__failed();
    else if (!ignis__channel_send_message(&error, channel->connection, IGNIS__MESSAGE_DATA, data, (size_t)size, fds,
                                          fd_count, timeout_s))
        status = ignis__peer_error_report(call, &error);
    ignis__channel_drop(channel);
    return status;
}

IGNIS_API ignis_status ignis_channel_send(ignis_channel handle, const void *data, int64_t size, const int *fds,
                                          int fd_count)
{
    return ignis__channel_send("ignis_channel_send", handle, data, size, fds, fd_count, -1);
}

IGNIS_API ignis_status ignis_channel_send_within(ignis_channel handle, const void *data, int64_t size, const int *fds,
                                                 int fd_count, double timeout_s)
{
    return ignis__channel_send("ignis_channel_send_within", handle, data, size, fds, fd_count, timeout_s);
}

/*  The caller's buffers for a message. */
typedef struct ignis__receive_buffer {
    void *data;
    int64_t capacity;
    int64_t *size; /* may be NULL, as fd_count */
    int *fds;
    int fd_capacity;
    int *fd_count;
} ignis__receive_buffer;

/*  Copies the message in the inbox to the caller, if his buffers are large enough. */
static ignis_status ignis__inbox_copy(const char *call, ignis__connection *connection,
                                      const ignis__receive_buffer *buffer)
{
    int64_t bytes = (int64_t)ignis__message_header_read(connection).size;
    int count = connection->inbox_fd_count;
    if (buffer->size)
        *buffer->size = bytes;
    if (buffer->fd_count)
        *buffer->fd_count = count;
    if (bytes > buffer->capacity || count > buffer->fd_capacity)
        return ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call,
                           "the message has %lld bytes and %d descriptors; the buffers take %lld and %d",
                           (long long)bytes, count, (long long)buffer->capacity, buffer->fd_capacity);
    if (bytes > 0)
        memcpy(buffer->data, connection->inbox + sizeof(ignis__message_header), (size_t)bytes);
    if (count > 0)
        memcpy(buffer->fds, connection->inbox_fds, (size_t)count * sizeof(int));
    connection->inbox_fd_count = 0; /* the caller owns them now */
    ignis__inbox_remove(connection);
    return IGNIS_OK;
}

/*  Sends bytes that a stream had not taken, unless another thread is sending. */
IGNIS__PRIVATE void ignis__connection_send_rest(ignis__connection *connection)
{
    ignis__peer_error ignored;
    if (!ignis__atomic_load(&connection->unsent) || !ignis__mutex_try(&connection->send_lock))
        return;
    (void)ignis__connection_flush(&ignored, connection, &ignis__deadline_now);
    ignis__mutex_unlock(&connection->send_lock);
}

/*  Receives the next message or array into the inbox. True: the caller holds the receive lock. */
IGNIS__PRIVATE bool ignis__connection_receive_next(ignis__peer_error *error, ignis__connection *connection,
                                                   double timeout_s)
{
    ignis__deadline until = ignis__channel_deadline(connection->timeout_ns, &connection->closing, timeout_s);
    int type;
    ignis__connection_send_rest(connection);
    if (!ignis__mutex_lock_until(error, &connection->receive_lock, &until, "another thread was still receiving"))
        return false;
    if (connection->inbox_is_complete)
        return true;
    if (ignis__connection_check(error, connection) && ignis__connection_receive(error, connection, &until)) {
        type = ignis__message_header_read(connection).type;
        if (type == IGNIS__MESSAGE_DATA || type == IGNIS__MESSAGE_ARRAY)
            return true;
        ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "a message of type %d came; expected data or an array",
                              type);
        if (type == IGNIS__MESSAGE_GOODBYE) {
            ignis__atomic_store(&connection->lost, 2);
            (void)ignis__connection_check(error, connection);
        }
    }
    if (error->diagnostic != IGNIS_DIAG_CHANNEL_TIMEOUT)
        ignis__inbox_clear(connection);
    ignis__connection_end(connection, error);
    ignis__mutex_unlock(&connection->receive_lock);
    return false;
}

static ignis_status ignis__channel_receive(const char *call, ignis_channel handle, const ignis__receive_buffer *buffer,
                                           double timeout_s)
{
    ignis__channel *channel = ignis__channel_hold_as(call, handle, false);
    ignis_status status;
    ignis__peer_error error;
    ignis__connection *connection;
    if (!channel)
        return ignis__failed();
    connection = channel->connection;
    if (buffer->capacity < 0 || buffer->fd_capacity < 0) {
        status = ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %lld and fd_capacity %d; expected 0 or more",
                             (long long)buffer->capacity, buffer->fd_capacity);
    } else if ((buffer->capacity > 0 && !ignis__check_not_null(call, "data", buffer->data)) ||
               (buffer->fd_capacity > 0 && !ignis__check_not_null(call, "fds", buffer->fds))) {
        status = ignis__failed();
    } else if (!ignis__connection_receive_next(&error, connection, timeout_s)) {
        status = ignis__peer_error_report(call, &error);
    } else {
        if (ignis__message_header_read(connection).type != IGNIS__MESSAGE_DATA)
            status = ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                                 "the next item is an array; receive it with ignis_share_receive");
        else
            status = ignis__inbox_copy(call, connection, buffer);
        ignis__mutex_unlock(&connection->receive_lock);
    }
    ignis__channel_drop(channel);
    return status;
}

IGNIS_API ignis_status ignis_channel_receive(ignis_channel handle, void *data, int64_t capacity, int64_t *size,
                                             int *fds, int fd_capacity, int *fd_count)
{
    const ignis__receive_buffer buffer = {data, capacity, size, fds, fd_capacity, fd_count};
    return ignis__channel_receive("ignis_channel_receive", handle, &buffer, -1);
}

IGNIS_API ignis_status ignis_channel_receive_within(ignis_channel handle, void *data, int64_t capacity, int64_t *size,
                                                    int *fds, int fd_capacity, int *fd_count, double timeout_s)
{
    const ignis__receive_buffer buffer = {data, capacity, size, fds, fd_capacity, fd_count};
    return ignis__channel_receive("ignis_channel_receive_within", handle, &buffer, timeout_s);
}

IGNIS_API ignis_status ignis_channel_query(ignis_channel handle, ignis_channel_info *info)
{
    static const char call[] = "ignis_channel_query";
    ignis__channel *channel = ignis__check_not_null(call, "info", info) ? ignis__channel_hold(call, handle) : NULL;
    ignis__connection *connection;
    ignis__listener *listener;
    if (!channel)
        return ignis__failed();
    connection = channel->connection;
    listener = channel->listener;
    memset(info, 0, sizeof *info);
    info->method = (connection ? connection->kind : listener->kind)->method;
    info->server = listener != NULL;
    info->alive = !connection || (!ignis__atomic_load(&connection->lost) && connection->kind->alive(connection));
    info->peer_pid = connection ? connection->peer_pid : 0;
    info->peer_uid = connection ? connection->peer_uid : -1;
    info->refused = listener ? (int64_t)ignis__atomic_load(&listener->refused) : 0;
    snprintf(info->path, sizeof info->path, "%s", connection ? connection->path : listener->path);
    if (connection)
        ignis__connection_send_rest(connection);
    info->unsent = connection ? (int64_t)ignis__atomic_load(&connection->unsent) : 0;
    info->fd = info->send_fd = -1;
#ifndef _WIN32
    info->fd = connection ? connection->in : listener->kind == &ignis__connection_memory ? -1 : listener->poll;
    info->send_fd = connection ? connection->out : -1;
#endif
    ignis__channel_drop(channel);
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_channel_close(ignis_channel handle)
{
    static const char call[] = "ignis_channel_close";
    ignis__channel *channel;
    ignis_status status = IGNIS_OK;
    if (!handle.id)
        return IGNIS_OK;
    channel = ignis__channel_hold(call, handle);
    if (!channel)
        return ignis__failed();
    if (!ignis__channel_kill(channel))
        status = ignis__fail(IGNIS_DIAG_CHANNEL_FREED, call, "another thread has closed the channel");
    ignis__channel_drop(channel);
    return status;
}
