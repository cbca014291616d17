/*  >>channel.shared_ring - channels by shared memory (POSIX)

    Implements IGNIS_CHANNEL_SHM: two rings in a sealed file without a name; a link in the folder leads to it
    (/proc/<pid>/fd/<number>).
    Uses: connections, listeners, memfd.
    Invariants: a file serves one client, then the link is removed; a side never trusts the counters of the
    peer.
    Locks: each side locks its byte of the file; the system releases the locks of the dead, which tells the
    peer. */

#include "room.h"

#ifdef F_OFD_SETLK
#define IGNIS__LOCK_GET F_OFD_GETLK
#define IGNIS__LOCK_SET F_OFD_SETLK
#else /* Linux has them; strict standards hide them */
#define IGNIS__LOCK_GET 36
#define IGNIS__LOCK_SET 37
#endif

/*  Locks (F_WRLCK) or unlocks (F_UNLCK) the byte of a side; with `taken`, tells if another process has it. */
static bool ignis__shm_lock(const ignis__connection *connection, int side, short how, bool *taken)
{
    struct flock lock;
    int result;
    memset(&lock, 0, sizeof lock);
    lock.l_type = how;
    lock.l_whence = SEEK_SET;
    lock.l_start = side;
    lock.l_len = 1;
    result = fcntl(connection->shared_file, taken ? IGNIS__LOCK_GET : IGNIS__LOCK_SET, &lock);
    if (taken)
        *taken = result == 0 && lock.l_type != F_UNLCK;
    return result == 0;
}

static bool ignis__shm_alive(ignis__connection *connection)
{
    bool taken = false;
    (void)ignis__shm_lock(connection, 1 - connection->side, F_WRLCK, &taken);
    return taken;
}

static void ignis__shm_remove(ignis__connection *connection) { (void)unlink(connection->path); }

static bool ignis__shm_map(ignis__peer_error *error, ignis__connection *connection, int side)
{
    struct stat info;
    connection->side = side;
    if (fstat(connection->shared_file, &info) == 0 && ignis__stat_is_ours(&info)) {
        connection->peer_uid = (int64_t)info.st_uid;
        connection->shared_bytes = sizeof(ignis__shared);
        connection->shared = (ignis__shared *)ignis__shared_map(connection->shared_file, connection->shared_bytes);
    }
    return connection->shared || ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO,
                                                       "%s must lead to shared memory of this user", connection->path);
}

/*  The link gets its name when its target is complete. */
static bool ignis__shm_accept(ignis__peer_error *error, ignis__listener *listener, ignis__connection *fresh)
{
    char fresh_path[IGNIS__PATH_MAX], target[64];
    if (listener->pending_count > 0)
        return false;
    if (snprintf(fresh_path, sizeof fresh_path, "%s.new", fresh->path) >= (int)sizeof fresh_path)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the path of the link exceeds %d bytes",
                                     IGNIS__PATH_MAX - 1);
    fresh->shared_file = ignis__fd_register(ignis__shared_make(sizeof(ignis__shared)));
    if (fresh->shared_file < 0 || !ignis__shm_lock(fresh, 0, F_WRLCK, NULL))
        return ignis__peer_error_set_errno(error, "shared memory");
    if (!ignis__shm_map(error, fresh, 0))
        return false;
    ignis__atomic_store(&fresh->shared->magic, IGNIS__MESSAGE_MAGIC);
    snprintf(target, sizeof target, "/proc/%lu/fd/%d", ignis__process_id(), fresh->shared_file);
    (void)unlink(fresh_path); /* left by a dead server; the lock of the name excludes another one */
    fresh->owns_path = symlink(target, fresh_path) == 0 && rename(fresh_path, fresh->path) == 0;
    return fresh->owns_path || ignis__peer_error_set_errno(error, fresh->path);
}

static bool ignis__shm_connect(ignis__peer_error *error, ignis__connection *connection, bool *again)
{
    struct stat info, now;
    connection->shared_file = ignis__fd_register(open(connection->path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
    *again = connection->shared_file >= 0 || errno == ENOENT;
    if (connection->shared_file < 0)
        return ignis__peer_error_set_errno(error, connection->path);
    if (!ignis__shm_map(error, connection, 1))
        return false;
    if (!ignis__shm_lock(connection, 1, F_WRLCK, NULL))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "another client is being accepted");
    if (fstat(connection->shared_file, &info) != 0 || stat(connection->path, &now) != 0 || now.st_ino != info.st_ino)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the server is replacing its memory");
    if (ignis__atomic_load(&connection->shared->magic) != IGNIS__MESSAGE_MAGIC || !ignis__shm_alive(connection))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the server of %s has died", connection->path);
    if (ignis__atomic_load(&connection->shared->ring[1].written))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO,
                                     "the server has not yet replaced the memory of a client that has left");
    return true;
}

/*  Returns the bytes that can be read or written now; -1, with the error set, if the counters are invalid. */
static int64_t ignis__shm_available(ignis__peer_error *error, const ignis__connection *connection, bool to_write)
{
    int ring = to_write ? connection->side : 1 - connection->side;
    uint64_t used = ignis__atomic_load(&connection->shared->ring[ring].written) -
                    ignis__atomic_load(&connection->shared->ring[ring].read);
    if (used <= (uint64_t)IGNIS__RING_BYTES)
        return to_write ? IGNIS__RING_BYTES - (int64_t)used : (int64_t)used;
    ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "the counters of the shared memory are invalid");
    return -1;
}

/*  Copies into or out of a ring, across its end. */
static void ignis__shm_copy(unsigned char *ring, uint64_t at, void *data, size_t size, bool into)
{
    size_t begin = (size_t)(at % (uint64_t)IGNIS__RING_BYTES), first = (size_t)IGNIS__RING_BYTES - begin;
    unsigned char *bytes = (unsigned char *)data;
    first = first < size ? first : size;
    if (into) {
        memcpy(ring + begin, bytes, first);
        memcpy(ring, bytes + first, size - first);
    } else {
        memcpy(bytes, ring + begin, first);
        memcpy(bytes + first, ring, size - first);
    }
}

/*  Writes the whole outbox or nothing. */
static int64_t ignis__shm_write(ignis__peer_error *error, ignis__connection *connection)
{
    uint64_t *written = &connection->shared->ring[connection->side].written, at = ignis__atomic_load(written);
    int64_t room = ignis__shm_available(error, connection, true);
    if (!ignis__shm_alive(connection)) {
        ignis__peer_error_set_lost(error);
        return -1;
    }
    if (room < (int64_t)connection->outbox_size)
        return room < 0 ? -1 : 0;
    ignis__shm_copy(connection->shared->bytes[connection->side], at, connection->outbox, connection->outbox_size, true);
    ignis__atomic_store(written, at + connection->outbox_size);
    return (int64_t)connection->outbox_size;
}

static int64_t ignis__shm_read(ignis__peer_error *error, ignis__connection *connection, void *data, size_t size)
{
    uint64_t *read_so_far = &connection->shared->ring[1 - connection->side].read, at = ignis__atomic_load(read_so_far);
    int64_t room = ignis__shm_available(error, connection, false);
    if (room == 0) { /* it may write before it leaves, and may not have come yet */
        bool lives = ignis__shm_alive(connection);
        connection->peer_seen |= lives;
        room = ignis__shm_available(error, connection, false);
        if (room == 0 && !lives && connection->peer_seen) {
            ignis__peer_error_set_lost(error);
            return -1;
        }
    }
    if (room <= 0)
        return room;
    connection->peer_seen = true;
    if ((int64_t)size > room)
        size = (size_t)room;
    ignis__shm_copy(connection->shared->bytes[1 - connection->side], at, data, size, false);
    ignis__atomic_store(read_so_far, at + size);
    return (int64_t)size;
}

/*  Polls shared memory, which cannot wake a waiter; less often with time. */
static bool ignis__shm_wait(ignis__peer_error *error, ignis__connection *connection, bool to_write,
                            const ignis__deadline *until, const char *what)
{
    int *pause_us = &connection->pause_us[to_write];
    if (ignis__deadline_slice_ms(until, 1) == 0)
        return ignis__peer_error_set_timeout(error, until, what);
    if (*pause_us > 0)
        ignis__sleep_us(*pause_us);
    *pause_us = *pause_us < 1000 ? *pause_us + 20 : 1000;
    return true;
}

static void ignis__shm_shutdown(ignis__connection *connection)
{
    (void)ignis__shm_lock(connection, connection->side, F_UNLCK, NULL);
}

IGNIS__PRIVATE const ignis__connection_kind ignis__connection_pipe = {IGNIS_CHANNEL_PIPE,
                                                                      "pipe",
                                                                      false,
                                                                      false,
                                                                      NULL,
                                                                      ignis__pipe_accept,
                                                                      ignis__pipe_connected,
                                                                      ignis__pipe_connect,
                                                                      ignis__pipe_write,
                                                                      ignis__pipe_read,
                                                                      ignis__socket_wait,
                                                                      ignis__socket_alive,
                                                                      NULL,
                                                                      ignis__pipe_remove,
                                                                      NULL,
                                                                      NULL};
IGNIS__PRIVATE const ignis__connection_kind ignis__connection_memory = {IGNIS_CHANNEL_SHM,
                                                                        "shm",
                                                                        false,
                                                                        false,
                                                                        NULL,
                                                                        ignis__shm_accept,
                                                                        ignis__shm_alive,
                                                                        ignis__shm_connect,
                                                                        ignis__shm_write,
                                                                        ignis__shm_read,
                                                                        ignis__shm_wait,
                                                                        ignis__shm_alive,
                                                                        ignis__shm_shutdown,
                                                                        ignis__shm_remove,
                                                                        NULL,
                                                                        NULL};
/*  Kinds of connections, by ignis_channel_method. */
IGNIS__PRIVATE const ignis__connection_kind *const ignis__connection_kinds[] = {
    &ignis__connection_socket, &ignis__connection_socket, &ignis__connection_pipe, &ignis__connection_memory};
