/*  >>peer.connection - connections: messages over sockets, pipes and shared memory

    Sends and receives messages with a header, whatever carries the bytes. A table of functions
    (ignis__connection_kind) does the transfer.
    Uses: error.c, the system's files.
    Invariants: messages of a direction are counted without gaps; a message that arrives in parts waits in the
    inbox; a message that was sent in part is finished before the next.
    Locks: send_lock around the outbox, receive_lock around the inbox; closing and lost are atomic. */

#include "room.h"

/*  Bytes of the descriptors' numbers after a message. */
static size_t ignis__connection_number_bytes(const ignis__connection *connection, size_t fd_count)
{
    return connection->kind->duplicate ? fd_count * sizeof(uint64_t) : 0;
}

/*  Checks the header of the message that is arriving. */
static bool ignis__message_header_check(ignis__peer_error *error, const ignis__connection *connection)
{
    ignis__message_header header;
    memcpy(&header, connection->inbox, sizeof header);
    if (header.magic != IGNIS__MESSAGE_MAGIC)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                     "a message begins with 0x%08x; expected the magic number of Ignis", header.magic);
    if (header.version != IGNIS__PROTOCOL_VERSION)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                     "the peer has version %d of the protocol, this side version %d", header.version,
                                     IGNIS__PROTOCOL_VERSION);
    if (header.size > connection->capacity ||
        header.fd_count > (connection->kind->descriptors && (connection->kind->packets || connection->is_authenticated)
                               ? IGNIS_CHANNEL_MAX_FDS
                               : 0u))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                     "a message announces %u bytes and %u descriptors, above the limit", header.size,
                                     header.fd_count);
    if (header.sequence != connection->received)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "message %llu came; expected message %llu",
                                     (unsigned long long)header.sequence, (unsigned long long)connection->received);
    return true;
}

IGNIS__PRIVATE ignis__message_header ignis__message_header_read(const ignis__connection *connection)
{
    ignis__message_header header;
    memcpy(&header, connection->inbox, sizeof header);
    return header;
}

IGNIS__PRIVATE void ignis__inbox_clear(ignis__connection *connection)
{
    ignis__fds_close(connection->inbox_fds, connection->inbox_fd_count);
    connection->inbox_fd_count = 0;
    connection->inbox_size = 0;
    connection->inbox_is_complete = false;
}

/*  Reads the descriptors that came as numbers after the complete message in the inbox. */
static bool ignis__inbox_read_descriptors(ignis__peer_error *error, ignis__connection *connection)
{
    ignis__message_header header = ignis__message_header_read(connection);
    uint64_t number;
    uint32_t i;
    for (i = 0; connection->kind->duplicate && i < header.fd_count; i++) {
        memcpy(&number, connection->inbox + sizeof header + header.size + i * sizeof number, sizeof number);
        if (number == 0 || number > INT32_MAX)
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "a message carries an invalid handle");
        connection->inbox_fds[i] = (int)number;
        connection->inbox_fd_count = (int)i + 1;
    }
    return true;
}

/*  Removes the message from the inbox. */
IGNIS__PRIVATE void ignis__inbox_remove(ignis__connection *connection)
{
    ignis__inbox_clear(connection);
    connection->received++;
}

/*  Receives the next message into the inbox, unless it is there already. Bytes that came before a deadline
    stay in the inbox. */
IGNIS__PRIVATE bool ignis__connection_receive(ignis__peer_error *error, ignis__connection *connection,
                                              const ignis__deadline *until)
{
    size_t head_size = sizeof(ignis__message_header);
    while (!connection->inbox_is_complete) {
        size_t wanted = head_size;
        int64_t got;
        bool whole;
        if (connection->kind->packets)
            wanted += connection->capacity;
        else if (connection->inbox_size >= head_size)
            wanted += ignis__message_header_read(connection).size +
                      ignis__connection_number_bytes(connection, ignis__message_header_read(connection).fd_count);
        got = connection->kind->read(error, connection, connection->inbox + connection->inbox_size,
                                     wanted - connection->inbox_size);
        if (got < 0)
            return false;
        if (got == 0) {
            if (!connection->kind->wait(error, connection, false, until, "nothing came from the peer"))
                return false;
            continue;
        }
        if (connection->kind->packets && (size_t)got < head_size)
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                         "a message of %lld bytes is shorter than its header", (long long)got);
        connection->pause_us[0] = 0;
        connection->inbox_size += (size_t)got;
        if (connection->inbox_size < head_size)
            continue;
        if (!ignis__message_header_check(error, connection))
            return false;
        whole = connection->inbox_size ==
                head_size + ignis__message_header_read(connection).size +
                    ignis__connection_number_bytes(connection, ignis__message_header_read(connection).fd_count);
        if (whole && !ignis__inbox_read_descriptors(error, connection))
            return false;
        if (connection->kind->packets &&
            (!whole || (uint32_t)connection->inbox_fd_count != ignis__message_header_read(connection).fd_count))
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                         "a message announces %u bytes and %u descriptors, and has %lld and %d",
                                         ignis__message_header_read(connection).size,
                                         ignis__message_header_read(connection).fd_count,
                                         (long long)(connection->inbox_size - head_size), connection->inbox_fd_count);
        connection->inbox_is_complete = whole;
    }
    return true;
}

/*  Clears the outbox without sending the rest. Descriptors of an incomplete message are taken back. */
static void ignis__outbox_clear(ignis__connection *connection)
{
    ignis__message_header header;
    uint64_t numbers[IGNIS_CHANNEL_MAX_FDS];
    if (connection->outbox_done < connection->outbox_size && connection->kind->close_duplicates) {
        memcpy(&header, connection->outbox, sizeof header);
        memcpy(numbers, connection->outbox + sizeof header + header.size, header.fd_count * sizeof *numbers);
        connection->kind->close_duplicates(connection, numbers, (int)header.fd_count);
    }
    connection->outbox_size = connection->outbox_done = 0;
}

/*  Writes the outbox to the system. */
IGNIS__PRIVATE bool ignis__connection_flush(ignis__peer_error *error, ignis__connection *connection,
                                            const ignis__deadline *until)
{
    while (connection->outbox_done < connection->outbox_size) {
        int64_t written = connection->kind->write(error, connection);
        if (written < 0)
            return false;
        connection->outbox_done += (size_t)written;
        if (written > 0)
            connection->pause_us[1] = 0;
        else if (!connection->kind->wait(error, connection, true, until, "the peer does not read"))
            return false;
    }
    ignis__outbox_clear(connection);
    ignis__atomic_store(&connection->unsent, 0);
    return true;
}

/*  Sends one message. The caller holds the send lock, or no other thread has the connection. A message that a
    stream has taken in part counts as sent: its rest stays in the outbox. */
IGNIS__PRIVATE bool ignis__connection_send(ignis__peer_error *error, ignis__connection *connection, int type,
                                           const void *data, size_t size, const int *fds, int fd_count,
                                           const ignis__deadline *until)
{
    ignis__message_header header;
    uint64_t numbers[IGNIS_CHANNEL_MAX_FDS];
    size_t tail = ignis__connection_number_bytes(connection, (size_t)fd_count);
    if (!ignis__connection_flush(error, connection, until) ||
        (tail > 0 && !connection->kind->duplicate(error, connection, fds, fd_count, numbers)))
        return false;
    header.magic = IGNIS__MESSAGE_MAGIC;
    header.version = IGNIS__PROTOCOL_VERSION;
    header.type = (uint16_t)type;
    header.size = (uint32_t)size;
    header.fd_count = (uint32_t)fd_count;
    header.sequence = connection->sent;
    memcpy(connection->outbox, &header, sizeof header);
    if (size > 0)
        memcpy(connection->outbox + sizeof header, data, size);
    if (tail > 0)
        memcpy(connection->outbox + sizeof header + size, numbers, tail);
    connection->outbox_size = sizeof header + size + tail;
    connection->outbox_fds = fds;
    connection->outbox_fd_count = fd_count;
    if (!ignis__connection_flush(error, connection, until) &&
        (connection->outbox_done == 0 || error->diagnostic != IGNIS_DIAG_CHANNEL_TIMEOUT)) {
        ignis__outbox_clear(connection);
        return false;
    }
    ignis__atomic_store(&connection->unsent, connection->outbox_size - connection->outbox_done);
    connection->sent++;
    return true;
}

IGNIS__PRIVATE void ignis__connection_destroy(ignis__connection *connection)
{
    ignis__peer_error ignored;
    int left = 1000;
    if (!connection)
        return;
    /* closes handles that arrived and were not taken; later ones stay open */
    if (connection->kind->duplicate && connection->capacity > 0) {
        while (left-- > 0 && ignis__connection_receive(&ignored, connection, &ignis__deadline_now))
            ignis__inbox_remove(connection);
        ignis__outbox_clear(connection);
    }
    ignis__inbox_clear(connection);
    if (connection->owns_path)
        connection->kind->remove(connection);
#ifndef _WIN32
    if (connection->shared)
        ignis__shared_unmap((void *)connection->shared, connection->shared_bytes);
#endif
    if (connection->out != connection->in)
        ignis__peer_file_close(&connection->out);
    ignis__peer_file_close(&connection->in);
    ignis__peer_file_close(&connection->shared_file);
    ignis__peer_file_close(&connection->process);
    ignis__free(connection->inbox);
    ignis__free(connection->outbox);
    ignis__free(connection);
}

/*  Reserves buffers for messages of `capacity` bytes. No message may be arriving or leaving. */
IGNIS__PRIVATE bool ignis__connection_reserve(ignis__peer_error *error, ignis__connection *connection, size_t capacity)
{
    size_t bytes =
        sizeof(ignis__message_header) + capacity + ignis__connection_number_bytes(connection, IGNIS_CHANNEL_MAX_FDS);
    if (connection->capacity >= capacity)
        return true;
    ignis__free(connection->inbox);
    ignis__free(connection->outbox);
    connection->inbox = (unsigned char *)ignis__alloc(bytes);
    connection->outbox = (unsigned char *)ignis__alloc(bytes);
    connection->capacity = connection->inbox && connection->outbox ? capacity : 0;
    return connection->capacity || ignis__peer_error_set_memory(error, 2 * bytes);
}

IGNIS__PRIVATE ignis__connection *ignis__connection_create(ignis__peer_error *error, const ignis__connection_kind *kind,
                                                           const char *path)
{
    ignis__connection *connection = (ignis__connection *)ignis__alloc(sizeof *connection);
    if (!connection) {
        ignis__peer_error_set_memory(error, sizeof *connection);
        return NULL;
    }
    connection->in = connection->out = connection->shared_file = connection->process = IGNIS__NO_FILE;
    connection->kind = kind;
    connection->peer_uid = -1;
    snprintf(connection->path, sizeof connection->path, "%s", path);
    ignis__mutex_init(&connection->send_lock);
    ignis__mutex_init(&connection->receive_lock);
    return connection;
}

IGNIS__PRIVATE bool ignis__connection_check(ignis__peer_error *error, const ignis__connection *connection)
{
    uint64_t lost = ignis__atomic_load(&connection->lost);
    if (!lost)
        return true;
    ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_LOST,
                          lost == 2 ? "the peer has closed the channel" : "the channel failed earlier");
    error->expected = lost == 2;
    return false;
}
