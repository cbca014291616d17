/* --- FIFOs: path.up brings what clients say, path.down what the server says. A pair serves one client and
   loses its name then. */

typedef struct ignis__pipe_paths {
    char up[IGNIS__PATH_MAX + 8], down[IGNIS__PATH_MAX + 8];
} ignis__pipe_paths;

static ignis__pipe_paths ignis__pipe_paths_of(const ignis__wire *wire)
{
    ignis__pipe_paths paths;
    snprintf(paths.up, sizeof paths.up, "%s.up", wire->path);
    snprintf(paths.down, sizeof paths.down, "%s.down", wire->path);
    return paths;
}

static void ignis__pipe_remove(ignis__wire *wire)
{
    ignis__pipe_paths paths = ignis__pipe_paths_of(wire);
    (void)unlink(paths.up);
    (void)unlink(paths.down);
}

#define IGNIS__SET_PIPE_SIZE 1031 /* F_SETPIPE_SZ, which strict standards hide */

/*  Opens a FIFO that is ours alone; -1 with errno. */
static int ignis__pipe_open(const char *path, int mode)
{
    struct stat info;
    int fd = ignis__fd_keep(open(path, mode | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode) || !ignis__private_file(&info))) {
        ignis__file_drop(&fd);
        errno = EACCES;
    }
    if (fd >= 0)
        /* room for a whole message, if the system grants it */
        (void)fcntl(fd, IGNIS__SET_PIPE_SIZE, IGNIS__WIRE_RING);
    return fd;
}

static bool ignis__pipe_accept(ignis__trouble *trouble, ignis__listener *listener, ignis__wire *fresh)
{
    ignis__pipe_paths paths = ignis__pipe_paths_of(fresh);
    if (listener->pending_count > 0)
        return false;
    ignis__pipe_remove(fresh); /* remains; nobody else has the name while we have it */
    fresh->named = true;
    fresh->peer_uid = (int64_t)geteuid(); /* nobody else can open them */
    return (mkfifo(paths.down, 0600) == 0 && mkfifo(paths.up, 0600) == 0 &&
            (fresh->in = ignis__pipe_open(paths.up, O_RDONLY)) >= 0) ||
           ignis__trouble_errno(trouble, paths.up);
}

static bool ignis__pipe_connected(ignis__wire *fresh)
{
    if (fresh->out < 0)
        /* only works while somebody reads there */
        fresh->out = ignis__pipe_open(ignis__pipe_paths_of(fresh).down, O_WRONLY);
    return fresh->out >= 0;
}

static bool ignis__pipe_connect(ignis__trouble *trouble, ignis__wire *wire, bool *again)
{
    ignis__pipe_paths paths = ignis__pipe_paths_of(wire);
    struct stat info, now;
    wire->out = ignis__pipe_open(paths.up, O_WRONLY);
    *again = wire->out >= 0 || errno == ENOENT || errno == ENXIO;
    if (wire->out < 0)
        return ignis__trouble_errno(trouble, paths.up);
    /* one client a pair: it locks the way up, and then the pair must still be the one that has the name */
    if (flock(wire->out, LOCK_EX | LOCK_NB) != 0)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "another client is being accepted");
    wire->in = ignis__pipe_open(paths.down, O_RDONLY);
    if (wire->in < 0 || fstat(wire->out, &info) != 0 || lstat(paths.up, &now) != 0 || now.st_ino != info.st_ino)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "the server is changing its pipes");
    wire->peer_uid = (int64_t)info.st_uid;
    return true;
}

/*  write without SIGPIPE, which a FIFO without a reader raises. */
static int64_t ignis__pipe_write(ignis__trouble *trouble, ignis__wire *wire)
{
    static const struct timespec no_time = {0, 0};
    sigset_t pipe_signal, before, pending;
    ssize_t written;
    int error;
    if (!wire->kind->connected(wire)) {
        ignis__trouble_lost(trouble);
        return -1;
    }
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigemptyset(&pending);
    (void)sigpending(&pending);
    (void)pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    written = write(wire->out, wire->outbox + wire->outbox_done, wire->outbox_size - wire->outbox_done);
    error = errno;
    if (written < 0 && error == EPIPE && !sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe_signal, NULL, &no_time) < 0 && errno == EINTR)
            ;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    if (written < 0 && error != EAGAIN && error != EINTR) {
        ignis__trouble_errno(trouble, "write");
        return -1;
    }
    return written < 0 ? 0 : written;
}

/*  Looks first: nothing is read from a FIFO that nobody has opened yet as well as from one that was
    closed. */
static int64_t ignis__pipe_read(ignis__trouble *trouble, ignis__wire *wire, void *data, size_t size)
{
    ssize_t got;
    if (ignis__fd_poll(wire->in, POLLIN, 0) <= 0)
        return 0;
    got = read(wire->in, data, size);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got < 0)
        ignis__trouble_errno(trouble, "read");
    else if (got == 0)
        ignis__trouble_lost(trouble);
    return got > 0 ? got : -1;
}
