#include "room.h"

#ifndef _WIN32

/*  >>peer.socket_posix - Unix sockets, and functions that the TCP sockets of jobs share

    Implements the kind ignis__connection_socket: packets, or a stream, over a socket at a path.
    Uses: connections, listeners.
    Invariants: descriptors that arrive are closed on exec; a refused message leaves none open.
    Locks: none of its own. */

/*  Control data for the descriptors of one message. */
typedef union ignis__fd_control {
    struct cmsghdr align;
    char space[CMSG_SPACE(IGNIS_CHANNEL_MAX_FDS * sizeof(int))];
} ignis__fd_control;

IGNIS__PRIVATE int64_t ignis__socket_write(ignis__peer_error *error, ignis__connection *connection)
{
    struct iovec part;
    struct msghdr message;
    ignis__fd_control room;
    size_t bytes = (size_t)connection->outbox_fd_count * sizeof(int);
    ssize_t sent;
    memset(&message, 0, sizeof message);
    memset(&room, 0, sizeof room);
    part.iov_base = connection->outbox + connection->outbox_done;
    part.iov_len = connection->outbox_size - connection->outbox_done;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (bytes > 0) {
        struct cmsghdr *control;
        message.msg_control = room.space;
        message.msg_controllen = CMSG_SPACE(bytes);
        control = CMSG_FIRSTHDR(&message);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(control), connection->outbox_fds, bytes);
    }
    sent = sendmsg(connection->out, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return sent;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return 0;
    ignis__peer_error_set_errno(error, "sendmsg");
    return -1;
}

/*  Reads one packet with up to IGNIS_CHANNEL_MAX_FDS descriptors, or bytes of a stream. On failure no
    descriptor stays open. */
IGNIS__PRIVATE int64_t ignis__socket_read(ignis__peer_error *error, ignis__connection *connection, void *data,
                                          size_t capacity)
{
    struct iovec part;
    struct msghdr message;
    struct cmsghdr *control;
    ignis__fd_control room;
    ssize_t got;
    int count = 0, tries = 0;
    do { /* a peer that closed with unread messages shows an error first; its last messages come after it */
        memset(&message, 0, sizeof message);
        part.iov_base = data;
        part.iov_len = capacity;
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = room.space;
        message.msg_controllen = sizeof room.space;
        got = recvmsg(connection->in, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == ECONNRESET && tries++ == 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    if (got < 0) {
        ignis__peer_error_set_errno(error, "recvmsg");
        return -1;
    }
    for (control = CMSG_FIRSTHDR(&message); control; control = CMSG_NXTHDR(&message, control)) {
        size_t bytes = control->cmsg_len - CMSG_LEN(0);
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
            continue;
        /* all of them fit if the control data fits */
        memcpy(connection->inbox_fds + count, CMSG_DATA(control), bytes);
        count += (int)(bytes / sizeof(int));
    }
    if (got > 0 && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        connection->inbox_fd_count = count;
        return got;
    }
    ignis__fds_close(connection->inbox_fds, count);
    if (message.msg_flags & MSG_CTRUNC)
        ignis__peer_error_set(
            error, IGNIS_DIAG_CHANNEL_MESSAGE,
            "a message lost descriptors: it has more than %d, or this process has reached its limit of open files",
            IGNIS_CHANNEL_MAX_FDS);
    else if (got > 0)
        ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "a message exceeds %lld bytes", (long long)capacity);
    else
        ignis__peer_error_set_lost(error);
    return -1;
}

IGNIS__PRIVATE bool ignis__socket_wait(ignis__peer_error *error, ignis__connection *connection, bool to_write,
                                       const ignis__deadline *until, const char *what)
{
    return ignis__fd_wait(error, to_write ? connection->out : connection->in, to_write ? POLLOUT : POLLIN, until, what);
}

/*  Asks the end that shows a hang-up of the peer: the one that this side writes to. */
IGNIS__PRIVATE bool ignis__socket_alive(ignis__connection *connection)
{
    int events = ignis__fd_poll(connection->out, POLLOUT, 0);
    return events >= 0 && !(events & IGNIS__POLL_ENDED);
}

IGNIS__PRIVATE void ignis__socket_shutdown(ignis__connection *connection) { (void)shutdown(connection->in, SHUT_RDWR); }

/*  Makes the address of a path. A path that is too long is reached through its folder, which stays open in
    *folder (else -1). */
static bool ignis__unix_address(ignis__peer_error *error, const char *path, struct sockaddr_un *address, int *folder)
{
    const char *slash = strrchr(path, '/');
    char parent[IGNIS__PATH_MAX];
    int length;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    *folder = -1;
    if (strlen(path) < sizeof address->sun_path) {
        memcpy(address->sun_path, path, strlen(path));
        return true;
    }
    length = slash ? (int)(slash - path) : 0;
    if (length == 0 || length >= (int)sizeof parent)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "a path of %d bytes exceeds the limit of a socket",
                                     (int)strlen(path));
    memcpy(parent, path, (size_t)length);
    parent[length] = 0;
    *folder = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0)
        return ignis__peer_error_set_errno(error, parent);
    length = snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d", *folder);
    if (access(address->sun_path, F_OK) == 0 && (size_t)length + strlen(slash) < sizeof address->sun_path) {
        memcpy(address->sun_path + length, slash, strlen(slash) + 1);
        return true;
    }
    close(*folder);
    *folder = -1;
    return ignis__peer_error_set(
        error, IGNIS_DIAG_CHANNEL_IO,
        "the path of a socket has %d bytes at most, this one has %d; set IGNIS_COMM_DIR to a shorter folder",
        (int)sizeof address->sun_path - 1, (int)strlen(path));
}

/*  Binds or connects a socket to a path: the socket, or -1 with *os_error. */
static int ignis__unix_open(ignis__peer_error *error, const char *path, bool to_listen, int *os_error)
{
    struct sockaddr_un address;
    const struct sockaddr *to = (const struct sockaddr *)(const void *)&address;
    int folder, fd;
    bool ok;
    *os_error = 0;
    if (!ignis__unix_address(error, path, &address, &folder))
        return -1;
    fd = ignis__fd_register(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    do
        ok = fd >= 0 && (to_listen ? bind(fd, to, sizeof address) : connect(fd, to, sizeof address)) == 0;
    while (!ok && fd >= 0 && errno == EINTR);
    if (!ok) {
        *os_error = errno;
        ignis__peer_error_set_errno(error, path);
        ignis__peer_file_close(&fd);
    }
    if (folder >= 0)
        close(folder);
    return fd;
}

/*  Listens at a path. The owner of the name replaces the socket of a dead process. */
static bool ignis__socket_listen(ignis__peer_error *error, ignis__listener *listener)
{
    int os_error;
    (void)unlink(listener->path);
    listener->file = ignis__unix_open(error, listener->path, true, &os_error);
    listener->owns_path = listener->file >= 0;
    return listener->owns_path && ((chmod(listener->path, 0600) == 0 && listen(listener->file, 4096) == 0) ||
                                   ignis__peer_error_set_errno(error, "listen"));
}

/*  Reads the peer's process and user from the kernel: struct ucred, which strict standards hide. */
static bool ignis__connection_read_peer(ignis__connection *connection)
{
    struct {
        int pid;
        unsigned uid, gid;
    } peer;
    socklen_t size = sizeof peer;
    if (getsockopt(connection->in, SOL_SOCKET, IGNIS__SO_PEERCRED, &peer, &size) != 0 || size != sizeof peer)
        return false;
    connection->peer_pid = peer.pid;
    connection->peer_uid = (int64_t)peer.uid;
    return true;
}

IGNIS__PRIVATE bool ignis__socket_accept(ignis__peer_error *error, ignis__listener *listener, ignis__connection *fresh)
{
    do
        fresh->in = fresh->out = ignis__fd_register(accept4(listener->file, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    while (fresh->in < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fresh->in < 0)
        return errno != EAGAIN && errno != EWOULDBLOCK && ignis__peer_error_set_errno(error, "accept");
    (void)ignis__connection_read_peer(fresh); /* unknown for a stream between hosts */
    return true;
}

static bool ignis__socket_connect(ignis__peer_error *error, ignis__connection *connection, bool *again)
{
    int os_error;
    connection->in = connection->out = ignis__unix_open(error, connection->path, false, &os_error);
    /* the server does not listen yet, or its queue is full */
    *again = connection->in < 0 && (os_error == ENOENT || os_error == ECONNREFUSED || os_error == EAGAIN);
    if (connection->in < 0)
        return false;
    if (ignis__connection_read_peer(connection) && connection->peer_uid == (int64_t)geteuid())
        return true;
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "the server at %s belongs to another user",
                                 connection->path);
}

IGNIS__PRIVATE const ignis__connection_kind ignis__connection_socket = {IGNIS_CHANNEL_SOCKET,
                                                                        "sock",
                                                                        true,
                                                                        true,
                                                                        ignis__socket_listen,
                                                                        ignis__socket_accept,
                                                                        NULL,
                                                                        ignis__socket_connect,
                                                                        ignis__socket_write,
                                                                        ignis__socket_read,
                                                                        ignis__socket_wait,
                                                                        ignis__socket_alive,
                                                                        ignis__socket_shutdown,
                                                                        NULL,
                                                                        NULL,
                                                                        NULL};

#endif
