/*  >>channel.fifo - channels by FIFOs (POSIX)

    Implements IGNIS_CHANNEL_PIPE. path.up carries what the client sends, path.down what the server sends.
    Uses: connections, listeners, POSIX.
    Invariants: a pair of FIFOs serves one client, and its names are removed when that has connected.
    Locks: the client locks the FIFO path.up. */

#include "room.h"

typedef struct ignis__fifo_paths {
    char up[IGNIS__PATH_MAX + 8], down[IGNIS__PATH_MAX + 8];
} ignis__fifo_paths;

static ignis__fifo_paths ignis__fifo_paths_of(const ignis__connection *connection)
{
    ignis__fifo_paths paths;
    snprintf(paths.up, sizeof paths.up, "%s.up", connection->path);
    snprintf(paths.down, sizeof paths.down, "%s.down", connection->path);
    return paths;
}

IGNIS__PRIVATE void ignis__pipe_remove(ignis__connection *connection)
{
    ignis__fifo_paths paths = ignis__fifo_paths_of(connection);
    (void)unlink(paths.up);
    (void)unlink(paths.down);
}

#define IGNIS__SET_PIPE_SIZE 1031 /* F_SETPIPE_SZ, which strict standards hide */

/*  Opens a FIFO that belongs to this user alone; -1 with errno on failure. */
static int ignis__pipe_open(const char *path, int mode)
{
    struct stat info;
    int fd = ignis__fd_register(open(path, mode | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode) || !ignis__stat_is_ours(&info))) {
        ignis__peer_file_close(&fd);
        errno = EACCES;
    }
    if (fd >= 0)
        /* for a whole message, if the system allows it */
        (void)fcntl(fd, IGNIS__SET_PIPE_SIZE, IGNIS__RING_BYTES);
    return fd;
}

IGNIS__PRIVATE bool ignis__pipe_accept(ignis__peer_error *error, ignis__listener *listener, ignis__connection *fresh)
{
    ignis__fifo_paths paths = ignis__fifo_paths_of(fresh);
    if (listener->pending_count > 0)
        return false;
    ignis__pipe_remove(fresh); /* left by a dead server; the lock of the name excludes another one */
    fresh->owns_path = true;
    fresh->peer_uid = (int64_t)geteuid(); /* other users cannot open them */
    return (mkfifo(paths.down, 0600) == 0 && mkfifo(paths.up, 0600) == 0 &&
            (fresh->in = ignis__pipe_open(paths.up, O_RDONLY)) >= 0) ||
           ignis__peer_error_set_errno(error, paths.up);
}

IGNIS__PRIVATE bool ignis__pipe_connected(ignis__connection *fresh)
{
    if (fresh->out < 0)
        /* only succeeds while a reader has it open */
        fresh->out = ignis__pipe_open(ignis__fifo_paths_of(fresh).down, O_WRONLY);
    return fresh->out >= 0;
}

IGNIS__PRIVATE bool ignis__pipe_connect(ignis__peer_error *error, ignis__connection *connection, bool *again)
{
    ignis__fifo_paths paths = ignis__fifo_paths_of(connection);
    struct stat info, now;
    connection->out = ignis__pipe_open(paths.up, O_WRONLY);
    *again = connection->out >= 0 || errno == ENOENT || errno == ENXIO;
    if (connection->out < 0)
        return ignis__peer_error_set_errno(error, paths.up);
    /* one client a pair: it locks path.up; then the pair must still have the name */
    if (flock(connection->out, LOCK_EX | LOCK_NB) != 0)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "another client is being accepted");
    connection->in = ignis__pipe_open(paths.down, O_RDONLY);
    if (connection->in < 0 || fstat(connection->out, &info) != 0 || lstat(paths.up, &now) != 0 ||
        now.st_ino != info.st_ino)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the server is replacing its pipes");
    connection->peer_uid = (int64_t)info.st_uid;
    return true;
}

/*  Writes without SIGPIPE, which a FIFO without a reader raises. */
IGNIS__PRIVATE int64_t ignis__pipe_write(ignis__peer_error *error, ignis__connection *connection)
{
    static const struct timespec no_time = {0, 0};
    sigset_t pipe_signal, before, pending;
    ssize_t written;
    int os_error;
    if (!connection->kind->connected(connection)) {
        ignis__peer_error_set_lost(error);
        return -1;
    }
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigemptyset(&pending);
    (void)sigpending(&pending);
    (void)pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    written = write(connection->out, connection->outbox + connection->outbox_done,
                    connection->outbox_size - connection->outbox_done);
    os_error = errno;
    if (written < 0 && os_error == EPIPE && !sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe_signal, NULL, &no_time) < 0 && errno == EINTR)
            ;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = os_error;
    if (written < 0 && os_error != EAGAIN && os_error != EINTR) {
        ignis__peer_error_set_errno(error, "write");
        return -1;
    }
    return written < 0 ? 0 : written;
}

/*  Polls before reading: read returns 0 for a FIFO that no writer has opened yet, and also for one that was
    closed. */
IGNIS__PRIVATE int64_t ignis__pipe_read(ignis__peer_error *error, ignis__connection *connection, void *data,
                                        size_t size)
{
    ssize_t got;
    if (ignis__fd_poll(connection->in, POLLIN, 0) <= 0)
        return 0;
    got = read(connection->in, data, size);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got < 0)
        ignis__peer_error_set_errno(error, "read");
    else if (got == 0)
        ignis__peer_error_set_lost(error);
    return got > 0 ? got : -1;
}
