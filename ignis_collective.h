/*  ignis_collective.h - GPU arrays shared between processes, and collective operations between GPUs, for C and C++

    Part of Ignis; MIT licence, at the end of ignis.h.

    HOW TO USE

        Copy ignis.h, ignis_kernels.h and ignis_collective.h into your project. In ONE C or C++ file:

            #define IGNIS_IMPLEMENTATION
            #include "ignis_collective.h"

        It includes ignis.h, and is built in the same way. NCCL is needed for nothing on one host of up to 8 GPUs; where it is installed it
        is used for what it does best.
*/
#ifndef IGNIS_COLLECTIVE_INCLUDED
#define IGNIS_COLLECTIVE_INCLUDED

#include "ignis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* >>vmm --------------------------------------------------------------------------------------------------------- */

/* >>channel ----------------------------------------------------------------------------------------------------- */

#define IGNIS_CHANNEL_MAX_BYTES 65536 /* of one message */
#define IGNIS_CHANNEL_MAX_FDS 64      /* with one message */
#define IGNIS_CHANNEL_TOKEN_BYTES 16

/*  A channel: messages, and descriptors with them, between two processes of one machine and one user. */
typedef struct ignis_channel {
    uint64_t id;
} ignis_channel;

typedef enum ignis_channel_method {
    IGNIS_CHANNEL_DEFAULT = 0, /* IGNIS_CHANNEL_SOCKET; on Windows IGNIS_CHANNEL_PIPE */
    IGNIS_CHANNEL_SOCKET,      /* a unix socket: the one that descriptors travel through; not on Windows */
    IGNIS_CHANNEL_PIPE,        /* two FIFOs; on Windows a named pipe */
    IGNIS_CHANNEL_SHM,         /* two rings in a shared file; not on Windows */
    IGNIS_CHANNEL_METHOD_COUNT
} ignis_channel_method;

typedef struct ignis_channel_desc {
    const char *name;            /* required, the same on both sides: letters, digits, '.', '_', '-', at most 63, '.' not first */
    ignis_channel_method method; /* IGNIS_CHANNEL_DEFAULT */
    const char
        *directory; /* a folder of mode 0700, made if need be (IGNIS_COMM_DIR, else $XDG_RUNTIME_DIR/ignis, else <tmp>/ignis-<uid>) */
    const unsigned char *token; /* IGNIS_CHANNEL_TOKEN_BYTES that both sides know (random ones, in a file that the server makes) */
    double timeout_s;           /* what accept, connect, send and receive wait at most, in seconds (30) */
} ignis_channel_desc;

typedef struct ignis_channel_info {
    ignis_channel_method method;
    bool server;      /* it listens: ignis_channel_serve made it */
    bool alive;       /* the other side is there; of a server: it listens */
    int64_t peer_pid; /* process of the other side; of a socket the kernel's word for it, else the peer's own; 0: unknown */
    int64_t peer_uid; /* its user; -1: unknown */
    int64_t refused;  /* connections that a server has turned away */
    char path[512];   /* of the socket, FIFO or file; of the pipe on Windows */
} ignis_channel_info;

/*  ignis_channel_serve - open a channel for others to connect to
    What a dead server of this name has left behind is replaced. Nobody but processes of this user with the token gets in.
    Returns: a listening channel, for ignis_channel_accept, ignis_channel_query and ignis_channel_close; 0 on failure.
    Errors: ARGUMENT (no desc, name or method, a bad timeout), UNSUPPORTED (the method, on this system), IO (a live server has the name;
    the folder is not private; a path too long), MEMORY.
    Ownership: ignis_channel_close gives it back, and removes its files.
    Threads: any. */
IGNIS_API ignis_channel ignis_channel_serve(const ignis_channel_desc *desc);

/*  ignis_channel_accept - wait for the next one who connects
    Those without the token, of another user or with another protocol are turned away, counted (ignis_channel_info.refused), and the
    first of them is logged as a warning; the wait goes on.
    Returns: a channel to it, 0 on failure.
    Errors: ARGUMENT (the channel does not listen), FREED, TIMEOUT (nobody came), IO, MEMORY.
    Ownership: ignis_channel_close gives it back; it outlives the server's channel.
    Threads: any; those who accept on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_channel ignis_channel_accept(ignis_channel server);

/*  ignis_channel_connect - connect to a server of this name, which may come later, but before the deadline
    Returns: a channel to it, 0 on failure.
    Errors: ARGUMENT, UNSUPPORTED, TIMEOUT (no server came, or it did not accept), PEER (it turned us away), IO, MEMORY.
    Ownership: ignis_channel_close gives it back.
    Threads: any. Waits until the deadline. */
IGNIS_API ignis_channel ignis_channel_connect(const ignis_channel_desc *desc);

/*  ignis_channel_send - send one message of 0 to IGNIS_CHANNEL_MAX_BYTES bytes, and descriptors with it
    It arrives whole, once, in order, or not at all. fds may be null when fd_count is 0.
    Returns: IGNIS_OK once the system has taken it; the other side need not have read it.
    Errors: ARGUMENT (too much; a listening channel), FREED, UNSUPPORTED (IGNIS_DIAG_CHANNEL_DESCRIPTOR: descriptors need
    IGNIS_CHANNEL_SOCKET), PEER (the other side is gone), TIMEOUT (it does not read), IO.
    Ownership: the descriptors stay the caller's, who may close them afterwards.
    Threads: any; those who send on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_status ignis_channel_send(ignis_channel channel, const void *data, int64_t size, const int *fds, int fd_count);

/*  ignis_channel_receive - wait for the next message
    With too little room for it, *size and *fd_count say what is needed, and the message stays for the next call. size and fd_count may
    be null.
    Returns: IGNIS_OK, *size bytes in data, *fd_count descriptors in fds.
    Errors: ARGUMENT (too little room; a listening channel), FREED, TIMEOUT (nothing came; the channel stays usable), PEER (the other
    side is gone, or broke the protocol: the channel is of no use any more), IO.
    Ownership: the descriptors are the caller's to close; they are closed by exec. On failure none is left open.
    Threads: any; those who receive on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_status ignis_channel_receive(ignis_channel channel, void *data, int64_t capacity, int64_t *size, int *fds, int fd_capacity,
                                             int *fd_count);

/*  ignis_channel_query - facts about a channel, and whether the other side is alive
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_channel_query(ignis_channel channel, ignis_channel_info *info);

/*  ignis_channel_close - end a channel; the other side finds it gone, after what was sent to it before
    Calls that wait on it in other threads return.
    Returns: IGNIS_OK.
    Errors: FREED.
    Ownership: its descriptors and files go.
    Threads: any. */
IGNIS_API ignis_status ignis_channel_close(ignis_channel channel);

/* >>transport --------------------------------------------------------------------------------------------------- */

/* >>comm -------------------------------------------------------------------------------------------------------- */

#define IGNIS_COMM_MAX_RANKS 8 /* of Ignis' own kernels; beyond, NCCL does the work */

/*  A communicator: what one rank of a group of GPUs holds. */
typedef struct ignis_comm {
    uint64_t id;
} ignis_comm;

typedef enum ignis_op { IGNIS_OP_SUM, IGNIS_OP_PROD, IGNIS_OP_MIN, IGNIS_OP_MAX, IGNIS_OP_AVG, IGNIS_OP_COUNT } ignis_op;

/* >>parallel ---------------------------------------------------------------------------------------------------- */

#ifdef __cplusplus
} /* extern "C" */

inline ignis_channel ignis_channel_serve(const ignis_channel_desc &desc) { return ignis_channel_serve(&desc); }
inline ignis_channel ignis_channel_connect(const ignis_channel_desc &desc) { return ignis_channel_connect(&desc); }
#endif

#endif /* IGNIS_COLLECTIVE_INCLUDED */

#ifdef IGNIS_IMPLEMENTATION
#ifndef IGNIS_COLLECTIVE_IMPLEMENTED
#define IGNIS_COLLECTIVE_IMPLEMENTED

/* ===============================================================================================================
   >>vmm - physical memory, address ranges, mappings, access; export and import.
   =============================================================================================================== */

/* ===============================================================================================================
   >>channel - how a handle travels: unix socket, named pipe, shared memory.
   =============================================================================================================== */

/* --- what the collective layer needs of the system -------------------------------------------------------------------- */

/*  What went wrong below a public function, which then decides whether it is a failure: a client that is turned away is none. */
typedef struct ignis__trouble {
    ignis_diagnostic diagnostic;
    char why[320];
} ignis__trouble;

/*  Always false, to be returned. */
IGNIS__PRINTF(3, 4)
static bool ignis__trouble_set(ignis__trouble *trouble, ignis_diagnostic diagnostic, const char *format, ...)
{
    va_list args;
    trouble->diagnostic = diagnostic;
    va_start(args, format);
    vsnprintf(trouble->why, sizeof trouble->why, format, args);
    va_end(args);
    return false;
}

static ignis_status ignis__trouble_report(const char *call, const ignis__trouble *trouble)
{
    return ignis__fail(trouble->diagnostic, call, "%s", trouble->why);
}

/*  How long to wait: until the deadline, or until *stop is set. */
typedef struct ignis__until {
    int64_t deadline_ns; /* of ignis__monotonic_ns */
    const uint64_t *stop;
} ignis__until;

static bool ignis__until_stopped(const ignis__until *until) { return until->stop && ignis__atomic_load(until->stop); }

/*  The milliseconds to wait before asking again; 0: no more. */
static int ignis__until_slice(const ignis__until *until, int most_ms)
{
    int64_t left_ns = until->deadline_ns - ignis__monotonic_ns();
    if (left_ns <= 0 || ignis__until_stopped(until))
        return 0;
    return left_ns / 1000000 >= most_ms ? most_ms : (int)(left_ns / 1000000) + 1;
}

static bool ignis__trouble_late(ignis__trouble *trouble, const ignis__until *until, const char *what)
{
    if (ignis__until_stopped(until))
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_FREED, "the channel was closed meanwhile");
    return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_TIMEOUT, "%s before the deadline", what);
}

#define IGNIS__PATH_MAX 512

/*  What names may be part of a path. */
static bool ignis__name_valid(const char *name)
{
    size_t length = strlen(name);
    return length >= 1 && length <= 63 && *name != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

/*  In a time that does not depend on where they differ. */
static bool ignis__bytes_equal(const unsigned char *a, const unsigned char *b, size_t size)
{
    unsigned char difference = 0;
    while (size--)
        difference = (unsigned char)(difference | (*a++ ^ *b++));
    return difference == 0;
}

#ifdef _WIN32

#include <ntsecapi.h>
#include <sddl.h>
#ifdef _MSC_VER
#pragma comment(lib, "advapi32")
#endif

static void ignis__sleep_us(int us) { Sleep((DWORD)((us + 999) / 1000)); }

static bool ignis__random_bytes(void *out, size_t size) { return RtlGenRandom(out, (ULONG)size) != 0; }

/*  path: the wanted folder, or "" for the default; then the folder, which exists. Folders of a user's profile are private to him. */
static bool ignis__private_folder(const char *call, char *path, size_t size)
{
    const char *home = getenv("IGNIS_COMM_DIR");
    int length = (int)strlen(path);
    if (length == 0) {
        bool given = home && *home;
        if (!given)
            home = getenv("LOCALAPPDATA");
        length = snprintf(path, size, "%s%s", home ? home : ".", given ? "" : "\\ignis");
    }
    if (length < 0 || (size_t)length >= size || !ignis__folder_make(path)) {
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the folder %s cannot be made, or its path is longer than %d bytes", path, (int)size - 1);
        return false;
    }
    return true;
}

static bool ignis__socket_missing(const char *call)
{
    ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "descriptors do not travel through sockets on Windows");
    return false;
}
IGNIS__MAYBE_UNUSED static bool ignis__socket_send(const char *call, int fd, const void *data, size_t size, const int *fds, int fd_count,
                                                   int64_t deadline_ns)
{
    (void)fd, (void)data, (void)size, (void)fds, (void)fd_count, (void)deadline_ns;
    return ignis__socket_missing(call);
}
IGNIS__MAYBE_UNUSED static bool ignis__socket_receive(const char *call, int fd, void *data, size_t size, int *fds, int fd_count,
                                                      int64_t deadline_ns)
{
    (void)fd, (void)data, (void)size, (void)fds, (void)fd_count, (void)deadline_ns;
    return ignis__socket_missing(call);
}
IGNIS__MAYBE_UNUSED static int ignis__unix_listen(const char *call, const char *path)
{
    (void)path;
    return ignis__socket_missing(call) - 1;
}
IGNIS__MAYBE_UNUSED static int ignis__unix_connect(const char *call, const char *path, int64_t deadline_ns)
{
    (void)path, (void)deadline_ns;
    return ignis__socket_missing(call) - 1;
}
IGNIS__MAYBE_UNUSED static int ignis__unix_accept(const char *call, int fd, int64_t deadline_ns)
{
    (void)fd, (void)deadline_ns;
    return ignis__socket_missing(call) - 1;
}

#else /* POSIX */

#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifndef __USE_GNU /* what the C library does not declare under a strict standard */
#ifdef __cplusplus
extern "C" {
#endif
extern int accept4(int, struct sockaddr *, socklen_t *, int);
#ifdef __cplusplus
}
#endif
#endif
#ifdef SO_PEERCRED
#define IGNIS__SO_PEERCRED SO_PEERCRED
#elif defined(__powerpc__)
#define IGNIS__SO_PEERCRED 21
#else
#define IGNIS__SO_PEERCRED 17
#endif

static void ignis__sleep_us(int us)
{
    struct timespec time;
    time.tv_sec = us / 1000000;
    time.tv_nsec = us % 1000000 * 1000L;
    (void)nanosleep(&time, NULL);
}

static bool ignis__random_bytes(void *out, size_t size)
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

/*  Whether a file is ours and nobody else's. */
static bool ignis__private_file(const struct stat *info) { return info->st_uid == geteuid() && (info->st_mode & 077) == 0; }

/*  path: the wanted folder, or "" for the default; then the folder, which exists and is private. */
static bool ignis__private_folder(const char *call, char *path, size_t size)
{
    const char *home = getenv("IGNIS_COMM_DIR");
    struct stat info;
    int length = (int)strlen(path);
    if (length == 0 && home && *home) {
        length = snprintf(path, size, "%s", home);
    } else if (length == 0) {
        home = getenv("XDG_RUNTIME_DIR");
        if (home && *home == '/' && lstat(home, &info) == 0 && S_ISDIR(info.st_mode) && ignis__private_file(&info)) {
            length = snprintf(path, size, "%s/ignis", home);
        } else {
            home = getenv("TMPDIR");
            length = snprintf(path, size, "%s/ignis-%lu", home && *home ? home : "/tmp", (unsigned long)geteuid());
        }
    }
    if (length < 0 || (size_t)length >= size)
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the path of the private folder is longer than %d bytes: %.100s...", (int)size - 1, path);
    else if ((mkdir(path, 0700) != 0 && errno != EEXIST) || lstat(path, &info) != 0)
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the private folder %s cannot be made: %s", path, strerror(errno));
    else if (!S_ISDIR(info.st_mode))
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "%s is no folder (a symbolic link is none)", path);
    else if (info.st_uid != geteuid())
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the folder %s belongs to user %lu, not to us, user %lu", path, (unsigned long)info.st_uid,
                    (unsigned long)geteuid());
    else if ((info.st_mode & 0777) != 0700)
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the folder %s has mode 0%o, not 0700; chmod 700 it", path, (unsigned)info.st_mode & 0777);
    else
        return true;
    return false;
}

/*  Waits for events of a descriptor; a hang-up counts as one. */
static bool ignis__fd_wait(ignis__trouble *trouble, int fd, short events, const ignis__until *until, const char *what)
{
    struct pollfd wanted;
    int slice;
    do {
        int ready;
        slice = ignis__until_slice(until, 50);
        wanted.fd = fd;
        wanted.events = events;
        wanted.revents = 0;
        ready = poll(&wanted, 1, slice);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "poll: %s", strerror(errno));
    } while (slice > 0);
    return ignis__trouble_late(trouble, until, what);
}

static bool ignis__trouble_errno(ignis__trouble *trouble, const char *what)
{
    int error = errno;
    if (error == EPIPE || error == ECONNRESET || error == ENOTCONN)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_LOST, "the other side has closed the connection, or died");
    return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "%s: %s", what, strerror(error));
}

static void ignis__fds_close(const int *fds, int count)
{
    while (count > 0)
        close(fds[--count]);
}

/*  Room for the descriptors of one message. */
typedef union ignis__fd_room {
    struct cmsghdr align;
    char space[CMSG_SPACE(IGNIS_CHANNEL_MAX_FDS * sizeof(int))];
} ignis__fd_room;

/*  One packet, in two parts. */
static bool ignis__packet_send(ignis__trouble *trouble, int fd, const void *head, size_t head_size, const void *data, size_t size,
                               const int *fds, int fd_count, const ignis__until *until)
{
    struct iovec parts[2];
    struct msghdr message;
    ignis__fd_room room;
    memset(&message, 0, sizeof message);
    memset(&room, 0, sizeof room);
    parts[0].iov_base = (void *)(uintptr_t)head;
    parts[0].iov_len = head_size;
    parts[1].iov_base = (void *)(uintptr_t)data;
    parts[1].iov_len = size;
    message.msg_iov = parts;
    message.msg_iovlen = size ? 2 : 1;
    if (fd_count > 0) {
        struct cmsghdr *control;
        message.msg_control = room.space;
        message.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
        control = CMSG_FIRSTHDR(&message);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
        memcpy(CMSG_DATA(control), fds, (size_t)fd_count * sizeof(int));
    }
    for (;;) {
        if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return true;
        if (errno == EAGAIN) {
            if (!ignis__fd_wait(trouble, fd, POLLOUT, until, "the other side does not read"))
                return false;
        } else if (errno != EINTR) {
            return ignis__trouble_errno(trouble, "sendmsg");
        }
    }
}

/*  One packet of at most `capacity` bytes and IGNIS_CHANNEL_MAX_FDS descriptors; on failure none is left open. */
static bool ignis__packet_receive(ignis__trouble *trouble, int fd, void *data, size_t capacity, size_t *size, int *fds, int *fd_count,
                                  const ignis__until *until)
{
    struct iovec part;
    struct msghdr message;
    struct cmsghdr *control;
    ignis__fd_room room;
    ssize_t got;
    int count = 0;
    for (;;) {
        memset(&message, 0, sizeof message);
        part.iov_base = data;
        part.iov_len = capacity;
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = room.space;
        message.msg_controllen = sizeof room.space;
        got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got >= 0)
            break;
        if (errno == EAGAIN) {
            if (!ignis__fd_wait(trouble, fd, POLLIN, until, "nothing came from the other side"))
                return false;
        } else if (errno != EINTR) {
            return ignis__trouble_errno(trouble, "recvmsg");
        }
    }
    for (control = CMSG_FIRSTHDR(&message); control; control = CMSG_NXTHDR(&message, control)) {
        size_t bytes = control->cmsg_len - CMSG_LEN(0);
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
            continue;
        memcpy(fds + count, CMSG_DATA(control), bytes); /* all of them fit where the room for the control data fits */
        count += (int)(bytes / sizeof(int));
    }
    if (got > 0 && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        *size = (size_t)got;
        *fd_count = count;
        return true;
    }
    ignis__fds_close(fds, count);
    if (message.msg_flags & MSG_CTRUNC)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE,
                                  "a message came without all of its descriptors: more than %d, or this process may not open so many",
                                  IGNIS_CHANNEL_MAX_FDS);
    if (got > 0)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "a message is longer than %lld bytes", (long long)capacity);
    return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_LOST, "the other side has closed the connection, or died");
}

/*  One packet with descriptors, through a socket of ignis__unix_connect or _accept. */
IGNIS__MAYBE_UNUSED static bool ignis__socket_send(const char *call, int fd, const void *data, size_t size, const int *fds, int fd_count,
                                                   int64_t deadline_ns)
{
    ignis__trouble trouble;
    ignis__until until = {0, NULL};
    until.deadline_ns = deadline_ns;
    IGNIS_ASSERT(fd_count <= IGNIS_CHANNEL_MAX_FDS && size > 0);
    if (ignis__packet_send(&trouble, fd, data, size, NULL, 0, fds, fd_count, &until))
        return true;
    ignis__trouble_report(call, &trouble);
    return false;
}

/*  A packet of exactly so many bytes and descriptors; else failure, and no descriptor is left open. */
IGNIS__MAYBE_UNUSED static bool ignis__socket_receive(const char *call, int fd, void *data, size_t size, int *fds, int fd_count,
                                                      int64_t deadline_ns)
{
    ignis__trouble trouble;
    ignis__until until = {0, NULL};
    int came[IGNIS_CHANNEL_MAX_FDS], count = 0;
    size_t got = 0;
    until.deadline_ns = deadline_ns;
    if (!ignis__packet_receive(&trouble, fd, data, size, &got, came, &count, &until)) {
        ignis__trouble_report(call, &trouble);
        return false;
    }
    if (got != size || count != fd_count) {
        ignis__fds_close(came, count);
        ignis__fail(IGNIS_DIAG_CHANNEL_MESSAGE, call, "a message of %lld bytes and %d descriptors was expected, one of %lld and %d came",
                    (long long)size, fd_count, (long long)got, count);
        return false;
    }
    if (count > 0)
        memcpy(fds, came, (size_t)count * sizeof(int));
    return true;
}

/*  The address of a path. One that is too long for an address is reached through its folder, which stays open in *folder (else -1). */
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
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "a path of %d bytes is too long for a socket", (int)strlen(path));
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
    return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO,
                              "the path of a socket has at most %d bytes, and this one %d; set IGNIS_COMM_DIR to a shorter folder",
                              (int)sizeof address->sun_path - 1, (int)strlen(path));
}

/*  bind or connect, by the path. */
static int ignis__unix_reach(ignis__trouble *trouble, const char *path, bool to_listen, int *error)
{
    struct sockaddr_un address;
    int folder, fd;
    bool ok;
    *error = 0;
    if (!ignis__unix_address(trouble, path, &address, &folder))
        return -1;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        ignis__trouble_errno(trouble, "socket");
    } else {
        const struct sockaddr *to = (const struct sockaddr *)(const void *)&address;
        do
            ok = (to_listen ? bind(fd, to, sizeof address) : connect(fd, to, sizeof address)) == 0;
        while (!ok && errno == EINTR);
        if (!ok) {
            *error = errno;
            ignis__trouble_errno(trouble, path);
            close(fd);
            fd = -1;
        }
    }
    if (folder >= 0)
        close(folder);
    return fd;
}

/*  The kernel's word for who is at the other end of a socket: struct ucred, which strict standards hide. */
typedef struct ignis__peer {
    int pid;
    unsigned uid, gid;
} ignis__peer;

static bool ignis__peer_query(int fd, ignis__peer *peer)
{
    socklen_t size = sizeof *peer;
    return getsockopt(fd, SOL_SOCKET, IGNIS__SO_PEERCRED, peer, &size) == 0 && size == sizeof *peer;
}

/*  Waits for a lock of a file or folder; its descriptor is to be closed. -1 when there is none. */
static int ignis__path_lock(const char *path, int64_t deadline_ns)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (ignis__monotonic_ns() >= deadline_ns) {
            close(fd);
            return -1;
        }
        ignis__sleep_us(1000);
    }
    return fd;
}

/*  A socket that listens at a path, where only a socket that nobody listens at any more is replaced. */
static int ignis__unix_listen_quietly(ignis__trouble *trouble, const char *path)
{
    char folder[IGNIS__PATH_MAX];
    const char *slash = strrchr(path, '/');
    struct stat info;
    int fd, error, probe, lock;
    if (!slash || slash == path || (size_t)(slash - path) >= sizeof folder) {
        ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "a path of %d bytes is no place for a socket", (int)strlen(path));
        return -1;
    }
    memcpy(folder, path, (size_t)(slash - path));
    folder[slash - path] = 0;
    lock = ignis__path_lock(folder, ignis__monotonic_ns() + 5000000000); /* who else looks at the same remains waits */
    fd = ignis__unix_reach(trouble, path, true, &error);
    if (fd < 0 && error == EADDRINUSE && lstat(path, &info) == 0 && S_ISSOCK(info.st_mode)) {
        probe = ignis__unix_reach(trouble, path, false, &error);
        if (probe < 0 && error == ECONNREFUSED && unlink(path) == 0) {
            fd = ignis__unix_reach(trouble, path, true, &error);
        } else {
            ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "somebody listens at %s already", path);
            if (probe >= 0)
                close(probe);
        }
    }
    if (fd >= 0 && (chmod(path, 0600) != 0 || listen(fd, 64) != 0)) {
        ignis__trouble_errno(trouble, "listen");
        close(fd);
        (void)unlink(path);
        fd = -1;
    }
    if (lock >= 0)
        close(lock);
    return fd;
}

IGNIS__MAYBE_UNUSED static int ignis__unix_listen(const char *call, const char *path)
{
    ignis__trouble trouble;
    int fd = ignis__unix_listen_quietly(&trouble, path);
    if (fd < 0)
        ignis__trouble_report(call, &trouble);
    return fd;
}

/*  One attempt. *again: nobody listens there yet, or too many wait. */
static int ignis__unix_connect_once(ignis__trouble *trouble, const char *path, bool *again)
{
    ignis__peer peer;
    int error, fd = ignis__unix_reach(trouble, path, false, &error);
    *again = fd < 0 && (error == ENOENT || error == ECONNREFUSED || error == EAGAIN);
    if (fd >= 0 && (!ignis__peer_query(fd, &peer) || peer.uid != geteuid())) {
        ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "who listens at %s is another user", path);
        close(fd);
        fd = -1;
    }
    return fd;
}

/*  Connects to a path at which somebody of our user listens, or will before the deadline. */
IGNIS__MAYBE_UNUSED static int ignis__unix_connect(const char *call, const char *path, int64_t deadline_ns)
{
    ignis__trouble trouble;
    bool again;
    int fd;
    while ((fd = ignis__unix_connect_once(&trouble, path, &again)) < 0 && again && ignis__monotonic_ns() < deadline_ns)
        ignis__sleep_us(5000);
    if (fd < 0 && again)
        ignis__fail(IGNIS_DIAG_CHANNEL_TIMEOUT, call, "nobody listened at %s before the deadline", path);
    else if (fd < 0)
        ignis__trouble_report(call, &trouble);
    return fd;
}

/*  A connection that waits at a listening socket, if there is one; -1: none. */
static int ignis__unix_accept_once(int fd)
{
    int accepted;
    do
        accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (accepted < 0 && (errno == EINTR || errno == ECONNABORTED));
    return accepted;
}

/*  The next connection of our user; others are closed. */
IGNIS__MAYBE_UNUSED static int ignis__unix_accept(const char *call, int fd, int64_t deadline_ns)
{
    ignis__trouble trouble;
    ignis__until until = {0, NULL};
    ignis__peer peer;
    until.deadline_ns = deadline_ns;
    while (ignis__fd_wait(&trouble, fd, POLLIN, &until, "nobody connected")) {
        int accepted = ignis__unix_accept_once(fd);
        if (accepted >= 0 && ignis__peer_query(accepted, &peer) && peer.uid == geteuid())
            return accepted;
        if (accepted >= 0) {
            close(accepted);
        } else if (errno != EAGAIN) {
            ignis__trouble_errno(&trouble, "accept");
            break;
        }
    }
    ignis__trouble_report(call, &trouble);
    return -1;
}

#endif

/* ===============================================================================================================
   >>transport - VMM, legacy IPC, peer copy, host-staged: one table of functions each.
   =============================================================================================================== */

/* ===============================================================================================================
   >>nccl - NCCL, opened at run time.
   =============================================================================================================== */

/* ===============================================================================================================
   >>job - the processes of one program: how they meet, what they tell each other, who died.
   =============================================================================================================== */

/* ===============================================================================================================
   >>comm - communicators and collective operations.
   =============================================================================================================== */

/* --- the communicator, its region, its kernels ------------------------------------------------------------------------ */

/* --- operations ------------------------------------------------------------------------------------------------------- */

/* --- making, splitting, ending ---------------------------------------------------------------------------------------- */

/* ===============================================================================================================
   >>parallel - data-parallel training.
   =============================================================================================================== */

#endif /* IGNIS_COLLECTIVE_IMPLEMENTED */
#endif /* IGNIS_IMPLEMENTATION */
