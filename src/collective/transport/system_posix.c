/*  >>transport.system_posix - POSIX: leases, named files, exiting processes

    The functions of the system for transports; system_windows.c has the same names.
    Uses: POSIX and /proc.
    Invariants: a named file belongs to this user alone, or is not opened.
    Locks: none. */

#include "room.h"

IGNIS__PRIVATE uint64_t ignis__host_hash(void)
{
    char text[64];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "rb");
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (file)
        fclose(file);
    return ignis__hash(IGNIS__HASH_START, text, size);
}

/*  Process numbers can be compared within one namespace. */
IGNIS__PRIVATE uint32_t ignis__pid_namespace(void)
{
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (uint32_t)info.st_ino : 0;
}

/*  Creates a lease. The array is in use while ends[1] is open in any process; then ends[0] hangs up. With a
    path it is a FIFO, and the importer opens its other end. */
IGNIS__PRIVATE bool ignis__lease_make(const char *path, int ends[2])
{
    ends[1] = -1;
    if (!path ? pipe2(ends, O_CLOEXEC) != 0
              : mkfifo(path, 0600) != 0 || (ends[0] = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)) < 0)
        return false;
    (void)ignis__fd_register(ends[0]);
    return true;
}

/*  Tells if all other ends are closed. A FIFO tells this only after one was open. */
IGNIS__PRIVATE bool ignis__lease_is_over(int end)
{
    int events = ignis__fd_poll(end, 0, 0);
    return events > 0 && (events & IGNIS__POLL_ENDED) != 0;
}

IGNIS__PRIVATE void ignis__thread_count(void *context, const char *name)
{
    ignis__thread_counts *threads = (ignis__thread_counts *)context;
    char path[64], text[512], state = 0;
    unsigned flags = 0;
    const char *at;
    FILE *file;
    size_t size;
    snprintf(path, sizeof path, "/proc/%lld/task/%.10s/stat", (long long)threads->pid, name);
    file = name[0] == '.' ? NULL : fopen(path, "rb");
    size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[size] = 0;
    at = strrchr(text, ')');
    if (at && sscanf(at + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) == 2) {
        threads->count++;
        threads->exiting += (flags & 4) != 0;
        threads->zombies += state == 'Z';
    }
}
IGNIS__PRIVATE bool ignis__process_is_exiting(int64_t pid)
{
    ignis__thread_counts threads = {pid, 0, 0, 0};
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/task", (long long)pid);
    return ignis__folder_list(path, ignis__thread_count, &threads) && threads.exiting == threads.count &&
           threads.zombies < threads.count;
}

IGNIS__PRIVATE int ignis__fd_copy(int fd) { return ignis__fd_register(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

/*  Creates a named file of `size` bytes; -1 with errno on failure. */
IGNIS__PRIVATE int ignis__named_file_create(const char *path, int64_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, (off_t)size) != 0) {
        (void)unlink(path);
        ignis__fd_close(&fd);
    }
    return fd;
}

/*  Opens a named file of this user, of the right kind; -1 if there is none. Whoever removes the name owns it,
    importer or exporter. */
IGNIS__PRIVATE int ignis__named_file_open(const char *path, bool lease)
{
    struct stat info;
    int fd = open(path, (lease ? O_WRONLY : O_RDONLY) | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &info) != 0 || !ignis__stat_is_ours(&info) ||
                    !(lease ? S_ISFIFO(info.st_mode) : S_ISREG(info.st_mode)) || unlink(path) != 0))
        ignis__fd_close(&fd);
    return fd;
}

IGNIS__PRIVATE bool ignis__named_file_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/*  Gives a file its name, unless the name is taken. */
IGNIS__PRIVATE bool ignis__file_publish(const char *part, const char *path)
{
    bool made = chmod(part, 0600) == 0 && link(part, path) == 0;
    (void)ignis__file_remove(part);
    return made;
}

IGNIS__PRIVATE bool ignis__fd_size_is(int fd, int64_t size)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == (off_t)size;
}

/*  Reads or writes a range of a file. A truncated file gives an error here; through a mapping it would kill
    the process. */
IGNIS__PRIVATE bool ignis__fd_transfer(int fd, void *data, int64_t size, int64_t offset, bool to_fd)
{
    char *at = (char *)data;
    while (size > 0) {
        ssize_t moved =
            to_fd ? pwrite(fd, at, (size_t)size, (off_t)offset) : pread(fd, at, (size_t)size, (off_t)offset);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return false;
        at += moved;
        offset += moved;
        size -= moved;
    }
    return true;
}
