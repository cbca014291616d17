/*  >>job.system_posix - POSIX: TCP sockets, the poller, the watcher's thread, hosts

    The functions of the system for jobs; system_windows.c has the same names.
    Uses: POSIX sockets, /proc.
    Invariants: a listener without a token accepts from this host only.
    Locks: none. */

#include "room.h"

#define IGNIS__POLL_HANGUP 0x2000 /* POLLRDHUP, which -std=c99 hides: the peer of a stream will send nothing more */

/*  Seconds after which a silent host counts as dead. A process that is only stopped is not: its system
    answers for it. */

static void ignis__tcp_tune(int fd)
{
    static const int options[][3] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_NODELAY, 1},
#ifdef TCP_USER_TIMEOUT
        {IPPROTO_TCP, TCP_KEEPIDLE, (IGNIS__JOB_SILENCE_S + 2) / 3},
        {IPPROTO_TCP, TCP_KEEPINTVL, (IGNIS__JOB_SILENCE_S + 5) / 6},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, IGNIS__JOB_SILENCE_S * 1000},
#endif
    };
    int i;
    for (i = 0; i < IGNIS__COUNT(options); i++)
        (void)setsockopt(fd, options[i][0], options[i][1], &options[i][2], sizeof options[i][2]);
}

/*  Opens a socket for one address, listening or connected; -1 with errno on failure. */
static int ignis__tcp_try(const struct addrinfo *at, bool to_listen)
{
    const ignis__deadline until = ignis__deadline_in(1000 * IGNIS__MILLISECOND);
    ignis__peer_error late;
    int fd = ignis__fd_register(socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol)),
        one = 1, os_error = 0;
    socklen_t size = sizeof os_error;
    if (fd < 0)
        return -1;
    if (to_listen) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, 4096) != 0)
            os_error = errno;
    } else if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
        os_error = errno;
        if (os_error == EINPROGRESS && !ignis__fd_wait(&late, fd, POLLOUT, &until, ""))
            os_error = ETIMEDOUT;
        else if (os_error == EINPROGRESS && getsockopt(fd, SOL_SOCKET, SO_ERROR, &os_error, &size) != 0)
            os_error = errno;
    }
    ignis__tcp_tune(fd);
    if (!os_error)
        return fd;
    ignis__peer_file_close(&fd);
    errno = os_error;
    return -1;
}

/*  Opens a socket for "host:port", or for the attempt-th host of "host,host:port". */
static int ignis__tcp_open(ignis__peer_error *error, const char *path, int attempt, bool to_listen)
{
    struct addrinfo hints, *all = NULL, *at;
    char text[IGNIS__PATH_MAX], *host = text, *port, *comma;
    int fd = -1, os_error, hosts = 1, anywhere = 0;
    snprintf(text, sizeof text, "%s", path);
    port = strrchr(text, ':');
    if (!port) {
        ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "\"%.200s\" lacks a port", path);
        return -1;
    }
    *port++ = 0;
    for (comma = text; (comma = strchr(comma, ',')) != NULL; comma++)
        hosts++;
    for (attempt %= hosts; attempt > 0; attempt--)
        host = strchr(host, ',') + 1;
    host[strcspn(host, ",")] = 0;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    os_error = getaddrinfo(host, port, &hints, &all);
    if (os_error) {
        ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%.100s: %s", host, gai_strerror(os_error));
        return -1;
    }
    for (at = all; at && fd < 0; at = at->ai_next) {
        fd = ignis__tcp_try(at, to_listen);
        anywhere |= fd < 0 && errno == EADDRNOTAVAIL;
        if (fd < 0)
            ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%s%s", strerror(errno),
                                  errno == EADDRINUSE ? "; choose another port with IGNIS_COMM_PORT, on all ranks"
                                                      : "");
    }
    freeaddrinfo(all);
    if (fd >= 0 || !to_listen || !anywhere)
        return fd;
    /* the name belongs to a router: listen at all addresses of this host */
    snprintf(text, sizeof text, "0.0.0.0:%s", strrchr(path, ':') + 1);
    return ignis__tcp_open(error, text, 0, true);
}

static bool ignis__tcp_listen(ignis__peer_error *error, ignis__listener *listener)
{
    listener->file = ignis__tcp_open(error, listener->path, 0, true);
    return listener->file >= 0;
}

static bool ignis__tcp_accept(ignis__peer_error *error, ignis__listener *listener, ignis__connection *fresh)
{
    if (!ignis__socket_accept(error, listener, fresh))
        return false;
    ignis__tcp_tune(fresh->in);
    return true;
}

static bool ignis__tcp_connect(ignis__peer_error *error, ignis__connection *connection, bool *again)
{
    *again = true;
    connection->in = connection->out = ignis__tcp_open(error, connection->path, connection->attempt, false);
    return connection->in >= 0;
}

IGNIS__PRIVATE const ignis__connection_kind ignis__connection_tcp = {IGNIS_CHANNEL_DEFAULT,
                                                                     "tcp",
                                                                     false,
                                                                     false,
                                                                     ignis__tcp_listen,
                                                                     ignis__tcp_accept,
                                                                     NULL,
                                                                     ignis__tcp_connect,
                                                                     ignis__socket_write,
                                                                     ignis__socket_read,
                                                                     ignis__socket_wait,
                                                                     ignis__socket_alive,
                                                                     ignis__socket_shutdown,
                                                                     NULL,
                                                                     NULL,
                                                                     NULL};

/*  Adds the namespaces of this process to a hash: processes in the same ones can share memory. */
IGNIS__PRIVATE uint64_t ignis__host_namespaces(uint64_t hash)
{
    static const char *const spaces[] = {"/proc/self/ns/pid", "/proc/self/ns/ipc", "/proc/self/ns/net"};
    char text[256];
    ssize_t got;
    int i;
    for (i = 0; i < IGNIS__COUNT(spaces); i++) {
        got = readlink(spaces[i], text, sizeof text);
        if (got > 0)
            hash = ignis__hash(hash, text, (size_t)got);
    }
    return hash;
}

IGNIS__PRIVATE bool ignis__poller_open(const char *call, ignis__poller *poller)
{
    int i;
    bool ok;
    poller->bell[0] = poller->bell[1] = -1;
    poller->polls = (struct pollfd *)ignis__alloc_for(call, sizeof *poller->polls * ((size_t)poller->count + 1));
    if (!poller->polls)
        return false;
    ok = pipe(poller->bell) == 0;
    for (i = 0; ok && i < 2; i++)
        ok = fcntl(ignis__fd_register(poller->bell[i]), F_SETFD, FD_CLOEXEC) == 0 &&
             fcntl(poller->bell[i], F_SETFL, O_NONBLOCK) == 0;
    return ok || ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "the system returned no pipe: %s", strerror(errno));
}
IGNIS__PRIVATE void ignis__poller_close(ignis__poller *poller)
{
    int i;
    for (i = 0; i < 2; i++)
        ignis__fd_close(&poller->bell[i]);
    ignis__free(poller->polls);
}
IGNIS__PRIVATE void ignis__poller_wake(const ignis__poller *poller) { (void)!write(poller->bell[1], "", 1); }

/*  Waits until a message came, a connection ended, unsent bytes can go on, or a thread wakes it; at most
    `ms`, or without limit below 0. */
IGNIS__PRIVATE void ignis__poller_wait(ignis__poller *poller, int ms)
{
    struct pollfd *polls = poller->polls;
    char bytes[16];
    int i, ready;
    for (i = 0; i <= poller->count; i++) {
        const ignis__connection *connection = i < poller->count ? poller->connection[i] : NULL;
        polls[i].fd = i == poller->count ? poller->bell[0] : connection ? connection->in : -1;
        polls[i].events = POLLIN | IGNIS__POLL_HANGUP;
        if (connection && ignis__atomic_load(&connection->unsent))
            polls[i].events |= POLLOUT;
        polls[i].revents = 0;
    }
    ready = poll(polls, (nfds_t)poller->count + 1, ms);
    for (i = 0; i < poller->count; i++)
        poller->is_ready[i] = ready > 0 && (polls[i].revents & ~POLLOUT) != 0;
    if (ready > 0 && polls[poller->count].revents)
        (void)!read(poller->bell[0], bytes, sizeof bytes);
}

/*  Starts a thread that runs no signal handlers of the program. */
IGNIS__PRIVATE bool ignis__watcher_start(ignis__thread_handle *thread, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    bool ok;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ok = ignis__thread_start(thread, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

/*  Makes the name where a rank waits for those of its host; the random part keeps two jobs apart. */
IGNIS__PRIVATE bool ignis__local_name(const char *folder, int rank, uint64_t random, char *out, size_t size)
{
    return snprintf(out, size, "%s/rank%d-%08lx", folder, rank, (unsigned long)(random & 0xFFFFFFFFu)) < (int)size;
}
IGNIS__PRIVATE void ignis__local_path(const char *name, char path[IGNIS__PATH_MAX])
{
    snprintf(path, IGNIS__PATH_MAX, "%s", name);
}

/*  Writes the addresses of this host of a family as "a,b,", as far as they fit. */
static void ignis__id_addresses(ignis__id *id, int family)
{
    struct ifaddrs *all = NULL, *at;
    if (getifaddrs(&all) != 0)
        return;
    for (at = all; at; at = at->ifa_next) {
        char text[80];
        size_t length = strlen(id->address);
        if (at->ifa_addr && at->ifa_addr->sa_family == family &&
            getnameinfo(at->ifa_addr, family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6),
                        text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0 &&
            strncmp(text, "127.", 4) != 0 && strcmp(text, "::1") != 0 && strncmp(text, "fe80:", 5) != 0 &&
            length + strlen(text) + 17 < sizeof id->address)
            snprintf(id->address + length, sizeof id->address - length, "%s,", text);
    }
    freeifaddrs(all);
}

/*  Opens the socket where rank 0 will listen, at a port that the system chooses, and writes the addresses of
    this host. */
IGNIS__PRIVATE bool ignis__id_listen(ignis__id *id, ignis__file *listener)
{
    struct sockaddr_storage bound;
    struct addrinfo any;
    socklen_t size = sizeof bound;
    memset(&bound, 0, sizeof bound); /* any address, any port: all zero */
    memset(&any, 0, sizeof any);
    ignis__id_addresses(id, AF_INET);
    if (!*id->address)
        ignis__id_addresses(id, AF_INET6);
    any.ai_family = strchr(id->address, ':') ? AF_INET6 : AF_INET;
    any.ai_socktype = SOCK_STREAM;
    any.ai_addr = (struct sockaddr *)(void *)&bound;
    any.ai_addrlen = any.ai_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    bound.ss_family = (sa_family_t)any.ai_family;
    *listener = ignis__tcp_try(&any, true);
    if (*listener < 0 || getsockname(*listener, any.ai_addr, &size) != 0)
        return false;
    snprintf(id->address + strlen(id->address), sizeof id->address - strlen(id->address),
             "%s:%d", /* the port is at the same place in both structs */
             any.ai_family == AF_INET ? "127.0.0.1" : "::1",
             ntohs(((const struct sockaddr_in *)(const void *)&bound)->sin_port));
    return true;
}
