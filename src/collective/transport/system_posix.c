static uint64_t ignis__host_hash(void)
{
    char text[64];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "rb");
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (file)
        fclose(file);
    return ignis__hash(IGNIS__HASH_START, text, size);
}

/*  Process numbers can be compared within one. */
static uint32_t ignis__pid_namespace(void)
{
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (uint32_t)info.st_ino : 0;
}

/*  A lease: whoever has ends[1] open keeps the array in use, and ends[0] hangs up when nobody has. With a
    path it is a FIFO, whose other end is opened by that. */
static bool ignis__lease_make(const char *path, int ends[2])
{
    ends[1] = -1;
    if (!path ? pipe2(ends, O_CLOEXEC) != 0
              : mkfifo(path, 0600) != 0 || (ends[0] = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)) < 0)
        return false;
    (void)ignis__fd_register(ends[0]);
    return true;
}

/*  Nobody has the other end open any more. A FIFO says so only after somebody had. */
static bool ignis__lease_ended(int end)
{
    int events = ignis__fd_poll(end, 0, 0);
    return events > 0 && (events & IGNIS__POLL_ENDED) != 0;
}

/*  A process that dies closes its descriptors one after the other, and its leases perhaps before those of the
    driver, whose work goes on until then. The kernel tells of each of its threads whether it is exiting:
    state and flags (4) are words 3 and 9 of a file, behind a name of any characters. The first thread stays,
    as a zombie, when all else is gone. */
typedef struct ignis__threads_of {
    int64_t pid;
    int count, exiting, zombies;
} ignis__threads_of;
static void ignis__thread_look(void *context, const char *name)
{
    ignis__threads_of *threads = (ignis__threads_of *)context;
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
static bool ignis__process_ending(int64_t pid)
{
    ignis__threads_of threads = {pid, 0, 0, 0};
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/task", (long long)pid);
    return ignis__folder_list(path, ignis__thread_look, &threads) && threads.exiting == threads.count &&
           threads.zombies < threads.count;
}

static int ignis__fd_copy(int fd) { return ignis__fd_register(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

/*  A file of so many bytes under a name; -1: errno tells. */
static int ignis__name_make(const char *path, int64_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, (off_t)size) != 0) {
        (void)unlink(path);
        ignis__fd_close(&fd);
    }
    return fd;
}

/*  Opens what lies under a name, if it is ours alone and of the right kind; -1: there is nothing. Who removes
    the name has it, be that one who takes it or the exporter. */
static int ignis__name_take(const char *path, bool lease)
{
    struct stat info;
    int fd = open(path, (lease ? O_WRONLY : O_RDONLY) | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &info) != 0 || !ignis__stat_is_ours(&info) ||
                    !(lease ? S_ISFIFO(info.st_mode) : S_ISREG(info.st_mode)) || unlink(path) != 0))
        ignis__fd_close(&fd);
    return fd;
}

static bool ignis__name_there(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/*  Gives a file its name, unless another one has it already. */
static bool ignis__file_publish(const char *part, const char *path)
{
    bool made = chmod(part, 0600) == 0 && link(part, path) == 0;
    (void)ignis__file_remove(part);
    return made;
}

static bool ignis__fd_has(int fd, int64_t size)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == (off_t)size;
}

/*  Reads or writes all of a part. A file that somebody cuts off gives an error here, where a mapping would be
    the end of the process. */
static bool ignis__fd_move(int fd, void *data, int64_t size, int64_t offset, bool to_fd)
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
