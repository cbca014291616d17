/* >>channel - messages between two processes ------------------------------------------------------------------

   A server opens a name, clients connect to it. A message has bytes and, through sockets and Windows pipes,
   descriptors. Both processes run on one machine, for one user, and know a token.
   Threads: every function may be called from any thread; calls of one kind on one channel take turns. */

#define IGNIS_CHANNEL_MAX_BYTES 65536 /* bytes of a message */
#define IGNIS_CHANNEL_MAX_FDS 64      /* descriptors of a message */
#define IGNIS_CHANNEL_TOKEN_BYTES 16  /* bytes of ignis_channel_desc.token */

/*  A channel: messages, and descriptors with them, between two processes of one machine and one user. */
typedef struct ignis_channel {
    uint64_t id;
} ignis_channel;

typedef enum ignis_channel_method {
    IGNIS_CHANNEL_DEFAULT = 0, /* IGNIS_CHANNEL_SOCKET; on Windows IGNIS_CHANNEL_PIPE */
    IGNIS_CHANNEL_SOCKET,      /* a Unix socket, which carries descriptors; not on Windows */
    IGNIS_CHANNEL_PIPE,        /* two FIFOs; on Windows a named pipe, which carries handles */
    IGNIS_CHANNEL_SHM,         /* two rings in a shared file; not on Windows */
    IGNIS_CHANNEL_METHOD_COUNT
} ignis_channel_method;

typedef struct ignis_channel_desc {
    /* required, the same on both sides: letters, digits, '.', '_', '-', at most 63, '.' not first */
    const char *name;
    ignis_channel_method method; /* IGNIS_CHANNEL_DEFAULT */
    /* a folder of mode 0700, created if missing (IGNIS_COMM_DIR, else $XDG_RUNTIME_DIR/ignis, else
       <tmp>/ignis-<uid>) */
    const char *directory;
    /* IGNIS_CHANNEL_TOKEN_BYTES that both sides know (random bytes in a file of the server) */
    const unsigned char *token;
    double timeout_s; /* the longest wait of accept, connect, send and receive, in seconds (30) */
} ignis_channel_desc;

typedef struct ignis_channel_info {
    ignis_channel_method method;
    bool server; /* it listens: from ignis_channel_serve */
    bool alive;  /* the peer is alive; of a server: it listens */
    /* process of the peer, from the system for sockets and on Windows, else from the peer; 0: unknown */
    int64_t peer_pid;
    int64_t peer_uid; /* its user; -1: unknown */
    int64_t refused;  /* refused connections of a server */
    char path[512];   /* of the socket, FIFO or file; of the pipe on Windows */
    /* for poll and epoll: readable when a message came; of a server, when ignis_channel_accept_within should
       be called; -1 for IGNIS_CHANNEL_SHM and on Windows */
    int fd;
    int send_fd; /* for poll and epoll: writable when a message can be sent; -1 as for fd */
    /* bytes of sent messages that the system has not taken yet; later calls on the channel send them */
    int64_t unsent;
} ignis_channel_info;

/*  ignis_channel_serve - open a channel for others to connect to
    Files of a dead server of this name are replaced. Only processes of this user that have the token can
    connect.
    Returns: a listening channel, for ignis_channel_accept, ignis_channel_query and ignis_channel_close; 0 on
    failure.
    Errors: ARGUMENT (no desc, name or method, a bad timeout), UNSUPPORTED (the method, on this system), IO (a
    live server has the name; the folder is not private; a path is too long), MEMORY.
    Ownership: ignis_channel_close frees it and removes its files.
    Threads: any. */
IGNIS_API ignis_channel ignis_channel_serve(const ignis_channel_desc *desc);

/*  ignis_channel_accept - wait for the next client
    Clients without the token, of another user or with another protocol are refused and counted in
    ignis_channel_info.refused. The first one is logged as a warning. The wait goes on.
    Returns: a channel to the client, 0 on failure.
    Errors: ARGUMENT (the channel does not listen), FREED, TIMEOUT (no client came), IO, MEMORY.
    Ownership: ignis_channel_close frees it; it outlives the server's channel.
    Threads: any; calls on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_channel ignis_channel_accept(ignis_channel server);

/*  ignis_channel_accept_within, ignis_channel_send_within, ignis_channel_receive_within - accept, send or
    receive with a timeout of the call
    timeout_s is in seconds; 0: do not wait; below 0: the timeout of the channel. A timeout of 0 that passes
    is neither logged nor kept for ignis_status_last: ignis_channel_accept_within returns 0, the others
    IGNIS_ERROR_TIMEOUT.
    Returns: as ignis_channel_accept, ignis_channel_send and ignis_channel_receive.
    Errors: as theirs.
    Ownership: as theirs.
    Threads: any. Waits for at most timeout_s. */
IGNIS_API ignis_channel ignis_channel_accept_within(ignis_channel server, double timeout_s);
IGNIS_API ignis_status ignis_channel_send_within(ignis_channel channel, const void *data, int64_t size, const int *fds,
                                                 int fd_count, double timeout_s);
IGNIS_API ignis_status ignis_channel_receive_within(ignis_channel channel, void *data, int64_t capacity, int64_t *size,
                                                    int *fds, int fd_capacity, int *fd_count, double timeout_s);

/*  ignis_channel_connect - connect to the server of a name, or wait for it until the deadline
    Returns: a channel to the server, 0 on failure.
    Errors: ARGUMENT, UNSUPPORTED, TIMEOUT (no server came, or it did not accept), PEER (it refused), IO,
    MEMORY.
    Ownership: ignis_channel_close frees it.
    Threads: any. Waits until the deadline. */
IGNIS_API ignis_channel ignis_channel_connect(const ignis_channel_desc *desc);

/*  ignis_channel_send - send one message of 0 to IGNIS_CHANNEL_MAX_BYTES bytes, with descriptors
    It arrives completely, once, in order, or not at all. fds may be null when fd_count is 0. On Windows they
    are handles, as int.
    Returns: IGNIS_OK once the system has taken it; the peer may read it later.
    Errors: ARGUMENT (too much; a listening channel), FREED, UNSUPPORTED (IGNIS_DIAG_CHANNEL_DESCRIPTOR:
    descriptors need IGNIS_CHANNEL_SOCKET), PEER (the peer is gone), TIMEOUT (it does not read), IO (on
    Windows also: no handle can be duplicated into it).
    Ownership: the caller keeps the descriptors and may close them afterwards.
    Threads: any; calls on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_status ignis_channel_send(ignis_channel channel, const void *data, int64_t size, const int *fds,
                                          int fd_count);

/*  ignis_channel_receive - wait for the next message
    If the buffers are too small, *size and *fd_count tell what is needed, and the message stays for the next
    call. size and fd_count may be null.
    Returns: IGNIS_OK, *size bytes in data, *fd_count descriptors in fds.
    Errors: ARGUMENT (buffers too small; a listening channel), FREED, TIMEOUT (nothing came; the channel stays
    usable), PEER (the peer is gone, or broke the protocol: close the channel), IO.
    Ownership: the caller closes the descriptors; exec closes them, too. On failure none stays open.
    Threads: any; calls on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_status ignis_channel_receive(ignis_channel channel, void *data, int64_t capacity, int64_t *size,
                                             int *fds, int fd_capacity, int *fd_count);

/*  ignis_channel_query - read facts about a channel, and whether the peer is alive
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_channel_query(ignis_channel channel, ignis_channel_info *info);

/*  ignis_channel_close - close a channel
    The peer still receives what was sent before. Calls that wait on the channel in other threads return.
    Returns: IGNIS_OK.
    Errors: FREED.
    Ownership: its descriptors are closed and its files removed.
    Threads: any. */
IGNIS_API ignis_status ignis_channel_close(ignis_channel channel);
