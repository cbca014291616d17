#ifndef _WIN32

/* --- sockets: the kind that jobs use too ------------------------------------------------------------------------------------ */

/*  Room for the descriptors of one message. */
typedef union ignis__fd_room {
    struct cmsghdr align;
    char space[CMSG_SPACE(IGNIS_CHANNEL_MAX_FDS * sizeof(int))];
} ignis__fd_room;

static int64_t ignis__socket_write(ignis__trouble *trouble, ignis__wire *wire)
{
    struct iovec part;
    struct msghdr message;
    ignis__fd_room room;
    size_t bytes = (size_t)wire->outbox_fd_count * sizeof(int);
    ssize_t sent;
    memset(&message, 0, sizeof message);
    memset(&room, 0, sizeof room);
    part.iov_base = wire->outbox + wire->outbox_done;
    part.iov_len = wire->outbox_size - wire->outbox_done;
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
        memcpy(CMSG_DATA(control), wire->outbox_fds, bytes);
    }
    sent = sendmsg(wire->out, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return sent;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return 0;
    ignis__trouble_errno(trouble, "sendmsg");
    return -1;
}

/*  One packet with up to IGNIS_CHANNEL_MAX_FDS descriptors, or what a stream has; on failure no descriptor is
    left open. */
static int64_t ignis__socket_read(ignis__trouble *trouble, ignis__wire *wire, void *data, size_t capacity)
{
    struct iovec part;
    struct msghdr message;
    struct cmsghdr *control;
    ignis__fd_room room;
    ssize_t got;
    int count = 0, tries = 0;
    do { /* who closed with messages unread shows as an error first, and its last words come after it */
        memset(&message, 0, sizeof message);
        part.iov_base = data;
        part.iov_len = capacity;
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = room.space;
        message.msg_controllen = sizeof room.space;
        got = recvmsg(wire->in, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == ECONNRESET && tries++ == 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    if (got < 0) {
        ignis__trouble_errno(trouble, "recvmsg");
        return -1;
    }
    for (control = CMSG_FIRSTHDR(&message); control; control = CMSG_NXTHDR(&message, control)) {
        size_t bytes = control->cmsg_len - CMSG_LEN(0);
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
            continue;
        /* all of them fit where the room for the control data fits */
        memcpy(wire->inbox_fds + count, CMSG_DATA(control), bytes);
        count += (int)(bytes / sizeof(int));
    }
    if (got > 0 && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        wire->inbox_fd_count = count;
        return got;
    }
    ignis__fds_close(wire->inbox_fds, count);
    if (message.msg_flags & MSG_CTRUNC)
        ignis__trouble_set(
            trouble, IGNIS_DIAG_CHANNEL_MESSAGE,
            "a message came without all of its descriptors: more than %d, or this process may not open so many",
            IGNIS_CHANNEL_MAX_FDS);
    else if (got > 0)
        ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "a message is longer than %lld bytes",
                           (long long)capacity);
    else
        ignis__trouble_lost(trouble);
    return -1;
}

static bool ignis__socket_wait(ignis__trouble *trouble, ignis__wire *wire, bool to_write, const ignis__until *until,
                               const char *what)
{
    return ignis__fd_wait(trouble, to_write ? wire->out : wire->in, to_write ? POLLOUT : POLLIN, until, what);
}

/*  Asks the end that a hang-up of the other side shows at: the one that is written to. */
static bool ignis__socket_alive(ignis__wire *wire)
{
    int events = ignis__fd_poll(wire->out, POLLOUT, 0);
    return events >= 0 && !(events & IGNIS__POLL_ENDED);
}

static void ignis__socket_shutdown(ignis__wire *wire) { (void)shutdown(wire->in, SHUT_RDWR); }

/*  The address of a path. One that is too long for an address is reached through its folder, which stays open
    in *folder (else -1). */
static bool ignis__unix_address(ignis__trouble *trouble, const char *path, struct sockaddr_un *address, int *folder)
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
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "a path of %d bytes is too long for a socket",
                                  (int)strlen(path));
    memcpy(parent, path, (size_t)length);
    parent[length] = 0;
    *folder = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0)
        return ignis__trouble_errno(trouble, parent);
    length = snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d", *folder);
    if (access(address->sun_path, F_OK) == 0 && (size_t)length + strlen(slash) < sizeof address->sun_path) {
        memcpy(address->sun_path + length, slash, strlen(slash) + 1);
        return true;
    }
    close(*folder);
    *folder = -1;
    return ignis__trouble_set(
        trouble, IGNIS_DIAG_CHANNEL_IO,
        "the path of a socket has at most %d bytes, and this one %d; set IGNIS_COMM_DIR to a shorter folder",
        (int)sizeof address->sun_path - 1, (int)strlen(path));
}

/*  bind or connect, by the path: a socket, or -1 with *error. */
static int ignis__unix_reach(ignis__trouble *trouble, const char *path, bool to_listen, int *error)
{
    struct sockaddr_un address;
    const struct sockaddr *to = (const struct sockaddr *)(const void *)&address;
    int folder, fd;
    bool ok;
    *error = 0;
    if (!ignis__unix_address(trouble, path, &address, &folder))
        return -1;
    fd = ignis__fd_keep(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    do
        ok = fd >= 0 && (to_listen ? bind(fd, to, sizeof address) : connect(fd, to, sizeof address)) == 0;
    while (!ok && fd >= 0 && errno == EINTR);
    if (!ok) {
        *error = errno;
        ignis__trouble_errno(trouble, path);
        ignis__file_drop(&fd);
    }
    if (folder >= 0)
        close(folder);
    return fd;
}

/*  Whose name it is may replace what somebody dead has left there. */
static bool ignis__socket_listen(ignis__trouble *trouble, ignis__listener *listener)
{
    int error;
    (void)unlink(listener->path);
    listener->file = ignis__unix_reach(trouble, listener->path, true, &error);
    listener->named = listener->file >= 0;
    return listener->named && ((chmod(listener->path, 0600) == 0 && listen(listener->file, 4096) == 0) ||
                               ignis__trouble_errno(trouble, "listen"));
}

/*  The kernel's word for who is at the other end of a socket: struct ucred, which strict standards hide. */
static bool ignis__peer_query(ignis__wire *wire)
{
    struct {
        int pid;
        unsigned uid, gid;
    } peer;
    socklen_t size = sizeof peer;
    if (getsockopt(wire->in, SOL_SOCKET, IGNIS__SO_PEERCRED, &peer, &size) != 0 || size != sizeof peer)
        return false;
    wire->peer_pid = peer.pid;
    wire->peer_uid = (int64_t)peer.uid;
    return true;
}

static bool ignis__socket_accept(ignis__trouble *trouble, ignis__listener *listener, ignis__wire *fresh)
{
    do
        fresh->in = fresh->out = ignis__fd_keep(accept4(listener->file, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    while (fresh->in < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fresh->in < 0)
        return errno != EAGAIN && errno != EWOULDBLOCK && ignis__trouble_errno(trouble, "accept");
    (void)ignis__peer_query(fresh); /* of a stream between hosts nothing is known */
    return true;
}

static bool ignis__socket_connect(ignis__trouble *trouble, ignis__wire *wire, bool *again)
{
    int error;
    wire->in = wire->out = ignis__unix_reach(trouble, wire->path, false, &error);
    /* not there yet, or too many wait */
    *again = wire->in < 0 && (error == ENOENT || error == ECONNREFUSED || error == EAGAIN);
    if (wire->in < 0)
        return false;
    if (ignis__peer_query(wire) && wire->peer_uid == (int64_t)geteuid())
        return true;
    return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "who listens at %s is another user", wire->path);
}

/* clang-format off */
static const ignis__wire_kind ignis__wire_socket = {
    IGNIS_CHANNEL_SOCKET, "sock", true, true, ignis__socket_listen, ignis__socket_accept, NULL, ignis__socket_connect, ignis__socket_write,
    ignis__socket_read, ignis__socket_wait, ignis__socket_alive, ignis__socket_shutdown, NULL, NULL, NULL};
/* clang-format on */

#endif
