/*  >>peer.system_posix - POSIX: descriptors, waits, the private folder, shared memory

    The functions of the system for connections; system_windows.c has the same names.
    Uses: POSIX, memfd and epoll where they exist.
    Invariants: every descriptor of Ignis is closed on exec and in forked children.
    Locks: ignis__fds.lock around the table of descriptors. */

#include "room.h"

#ifdef SYS_memfd_create
#define IGNIS__MEMFD_CREATE SYS_memfd_create /* glibc has the function from 2.27 on */
#else
#define IGNIS__MEMFD_CREATE (-1) /* a system without it returns ENOSYS */
#endif

IGNIS__PRIVATE struct ignis__fds_type ignis__fds = {IGNIS__MUTEX_INIT, false, {0}};

static void ignis__fds_before_fork(void) { ignis__mutex_lock(&ignis__fds.lock); }
static void ignis__fds_after_fork(void) { ignis__mutex_unlock(&ignis__fds.lock); }
static void ignis__fds_in_child(void)
{
    int i;
    for (i = 0; i < IGNIS__FDS / 64; i++)
        for (; ignis__fds.kept[i]; ignis__fds.kept[i] &= ignis__fds.kept[i] - 1)
            close(64 * i + ignis__lowest_bit(ignis__fds.kept[i]));
    ignis__mutex_unlock(&ignis__fds.lock);
}

/*  Registers a new descriptor: ignis__fd_close or a forked child closes it. */
IGNIS__PRIVATE int ignis__fd_register(int fd)
{
    if (fd < 0 || fd >= IGNIS__FDS)
        return fd;
    ignis__mutex_lock(&ignis__fds.lock);
    if (!ignis__fds.watched)
        ignis__fds.watched = pthread_atfork(ignis__fds_before_fork, ignis__fds_after_fork, ignis__fds_in_child) == 0;
    ignis__fds.kept[fd / 64] |= (uint64_t)1 << fd % 64;
    ignis__mutex_unlock(&ignis__fds.lock);
    return fd;
}

/*  Closes a descriptor, if it is open; errno is kept. */
IGNIS__PRIVATE void ignis__fd_close(int *fd)
{
    int os_error = errno;
    if (*fd >= 0) {
        ignis__mutex_lock(&ignis__fds.lock);
        if (*fd < IGNIS__FDS)
            ignis__fds.kept[*fd / 64] &= ~((uint64_t)1 << *fd % 64);
        close(*fd);
        ignis__mutex_unlock(&ignis__fds.lock);
    }
    *fd = -1;
    errno = os_error;
}
IGNIS__PRIVATE void ignis__peer_file_close(ignis__file *file) { ignis__fd_close(file); }

IGNIS__PRIVATE void ignis__fds_close(const int *fds, int count)
{
    while (count > 0)
        close(fds[--count]);
}

IGNIS__PRIVATE bool ignis__fd_is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

/*  A condition variable with deadlines. */
IGNIS__PRIVATE bool ignis__condition_make(ignis__condition *condition)
{
    pthread_condattr_t attributes;
    bool ok = pthread_condattr_init(&attributes) == 0;
    if (ok) {
        ok = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
             pthread_cond_init(condition, &attributes) == 0;
        pthread_condattr_destroy(&attributes);
    }
    return ok;
}
IGNIS__PRIVATE void ignis__condition_end(ignis__condition *condition) { pthread_cond_destroy(condition); }

/*  As ignis__condition_wait, with a deadline; may return early. False if the deadline has passed. */
IGNIS__PRIVATE bool ignis__condition_wait_until(ignis__condition *condition, ignis__mutex *mutex, int64_t deadline_ns)
{
    struct timespec until;
    until.tv_sec = (time_t)(deadline_ns / 1000000000);
    until.tv_nsec = (long)(deadline_ns % 1000000000);
    return pthread_cond_timedwait(condition, mutex, &until) != ETIMEDOUT;
}

IGNIS__PRIVATE void ignis__sleep_us(int us)
{
    struct timespec time;
    time.tv_sec = us / 1000000;
    time.tv_nsec = us % 1000000 * 1000L;
    (void)nanosleep(&time, NULL);
}

IGNIS__PRIVATE bool ignis__random_bytes(void *out, size_t size)
{
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    char *at = (char *)out;
    ssize_t got = 0;
    if (file < 0)
        return false;
    while (size > 0 && ((got = read(file, at, size)) > 0 || (got < 0 && errno == EINTR)))
        if (got > 0) {
            at += got;
            size -= (size_t)got;
        }
    close(file);
    return size == 0;
}

/*  Tells if a file belongs to this user and is closed to others. */
IGNIS__PRIVATE bool ignis__stat_is_ours(const struct stat *info)
{
    return info->st_uid == geteuid() && (info->st_mode & 077) == 0;
}

/*  Creates the private folder and checks it. path: the wanted folder, or "" for the default; on return its
    path. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__private_folder(const char *call, char *path, size_t size)
{
    const char *home = ignis__env("IGNIS_COMM_DIR");
    struct stat info;
    int length = (int)strlen(path);
    if (length == 0 && home && *home) {
        length = snprintf(path, size, "%s", home);
    } else if (length == 0) {
        home = ignis__env("XDG_RUNTIME_DIR");
        if (home && *home == '/' && lstat(home, &info) == 0 && S_ISDIR(info.st_mode) && ignis__stat_is_ours(&info)) {
            length = snprintf(path, size, "%s/ignis", home);
        } else {
            home = ignis__env("TMPDIR");
            length = snprintf(path, size, "%s/ignis-%lu", home && *home ? home : "/tmp", (unsigned long)geteuid());
        }
    }
    if (length < 0 || (size_t)length >= size)
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call,
                                 "the path of the private folder is longer than %d bytes: %.100s...", (int)size - 1,
                                 path);
    if ((mkdir(path, 0700) != 0 && errno != EEXIST) || lstat(path, &info) != 0)
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "cannot create the private folder %s: %s", path,
                                 strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "%s is not a folder (symbolic links are refused)", path);
    if (info.st_uid != geteuid())
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call,
                                 "the folder %s belongs to user %lu, this process to user %lu", path,
                                 (unsigned long)info.st_uid, (unsigned long)geteuid());
    return (info.st_mode & 0777) == 0700 ||
           ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "the folder %s has mode 0%o; expected 0700 (chmod 700)", path,
                             (unsigned)info.st_mode & 0777);
}

/*  Host memory that processes share: a file without a name. Seals prevent that it shrinks, since access
    beyond its end would kill the process. */
enum {
    IGNIS__MEMFD_FLAGS = 1 | 2, /* MFD_CLOEXEC | MFD_ALLOW_SEALING */
    IGNIS__ADD_SEALS = 1033,    /* F_ADD_SEALS, F_GET_SEALS */
    IGNIS__GET_SEALS = 1034,
    IGNIS__SEALS = 1 | 2 | 4 /* F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW */
};

/*  Creates zeroed shared memory of `size` bytes; returns its descriptor, -1 with errno on failure. */
IGNIS__PRIVATE int ignis__shared_make(size_t size)
{
    int fd = (int)syscall(IGNIS__MEMFD_CREATE, "ignis", (unsigned)IGNIS__MEMFD_FLAGS), os_error;
    if (fd < 0)
        return -1;
    if (fchmod(fd, 0600) == 0 && ftruncate(fd, (off_t)size) == 0 && fcntl(fd, IGNIS__ADD_SEALS, IGNIS__SEALS) == 0)
        return fd;
    os_error = errno;
    close(fd);
    errno = os_error;
    return -1;
}

/*  Maps shared memory of exactly `size` bytes that cannot shrink. */
IGNIS__PRIVATE void *ignis__shared_map(int fd, size_t size)
{
    struct stat info;
    void *data;
    int seals = fcntl(fd, IGNIS__GET_SEALS);
    if (seals < 0 || (seals & IGNIS__SEALS) != IGNIS__SEALS || fstat(fd, &info) != 0 || (size_t)info.st_size != size) {
        errno = EINVAL;
        return NULL;
    }
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return data == MAP_FAILED ? NULL : data;
}

IGNIS__PRIVATE void ignis__shared_unmap(void *data, size_t size) { munmap(data, size); }

/*  Returns the events of a descriptor that came within `ms`, hang-ups among them; -1 with errno on
    failure. */
IGNIS__PRIVATE int ignis__fd_poll(int fd, short events, int ms)
{
    struct pollfd wanted;
    int ready;
    wanted.fd = fd;
    wanted.events = events;
    wanted.revents = 0;
    ready = poll(&wanted, 1, ms);
    return ready < 0 ? -1 : wanted.revents;
}

/*  Waits for events of a descriptor; a hang-up is one. */
IGNIS__PRIVATE bool ignis__fd_wait(ignis__peer_error *error, int fd, short events, const ignis__deadline *until,
                                   const char *what)
{
    int slice;
    do {
        int ready;
        slice = ignis__deadline_slice_ms(until, 50);
        ready = ignis__fd_poll(fd, events, slice);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "poll: %s", strerror(errno));
    } while (slice > 0);
    return ignis__peer_error_set_timeout(error, until, what);
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set_errno(ignis__peer_error *error, const char *what)
{
    int os_error = errno;
    if (os_error == EPIPE || os_error == ECONNRESET || os_error == ENOTCONN)
        return ignis__peer_error_set_lost(error);
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%s: %s", what, strerror(os_error));
}
