/* >>channel - messages and descriptors between processes -------------------------------------------------------- */

#define IGNIS_CHANNEL_MAX_BYTES 65536 /* of one message */
#define IGNIS_CHANNEL_MAX_FDS 64      /* with one message */
#define IGNIS_CHANNEL_TOKEN_BYTES 16  /* of ignis_channel_desc.token */

/*  A channel: messages, and descriptors with them, between two processes of one machine and one user. */
typedef struct ignis_channel {
    uint64_t id;
} ignis_channel;

typedef enum ignis_channel_method {
    IGNIS_CHANNEL_DEFAULT = 0, /* IGNIS_CHANNEL_SOCKET; on Windows IGNIS_CHANNEL_PIPE */
    IGNIS_CHANNEL_SOCKET,      /* a unix socket: the one that descriptors travel through; not on Windows */
    IGNIS_CHANNEL_PIPE,        /* two FIFOs; on Windows a named pipe, which handles travel through */
    IGNIS_CHANNEL_SHM,         /* two rings in a shared file; not on Windows */
    IGNIS_CHANNEL_METHOD_COUNT
} ignis_channel_method;

typedef struct ignis_channel_desc {
    /* required, the same on both sides: letters, digits, '.', '_', '-', at most 63, '.' not first */
    const char *name;
    ignis_channel_method method; /* IGNIS_CHANNEL_DEFAULT */
    const char
        /* a folder of mode 0700, made if need be (IGNIS_COMM_DIR, else $XDG_RUNTIME_DIR/ignis, else
           <tmp>/ignis-<uid>) */
        *directory;
    /* IGNIS_CHANNEL_TOKEN_BYTES that both sides know (random ones, in a file that the server makes) */
    const unsigned char *token;
    double timeout_s; /* what accept, connect, send and receive wait at most, in seconds (30) */
} ignis_channel_desc;

typedef struct ignis_channel_info {
    ignis_channel_method method;
    bool server; /* it listens: ignis_channel_serve made it */
    bool alive;  /* the other side is there; of a server: it listens */
    /* process of the other side; for a socket and on Windows as the system says, else as the peer says; 0:
       unknown */
    int64_t peer_pid;
    int64_t peer_uid; /* its user; -1: unknown */
    int64_t refused;  /* connections that a server has refused */
    char path[512];   /* of the socket, FIFO or file; of the pipe on Windows */
    /* for poll and epoll: it is readable when there is something to receive, or, of a server, when it is time
       to call ignis_channel_accept_within; -1: there is none, as by IGNIS_CHANNEL_SHM and on Windows */
    int fd;
    int send_fd; /* it is writable when there is room for more; -1: there is none */
    int64_t
        /* bytes of a message that was sent and that the system has not taken yet: every later call on the
           channel tries again */
        unsent;
} ignis_channel_info;

/*  ignis_channel_serve - open a channel for others to connect to
    Files that a dead server of this name has left are replaced. Only processes of this user that have the
    token can connect.
    Returns: a listening channel, for ignis_channel_accept, ignis_channel_query and ignis_channel_close; 0 on
    failure.
    Errors: ARGUMENT (no desc, name or method, a bad timeout), UNSUPPORTED (the method, on this system), IO (a
    live server has the name; the folder is not private; a path too long), MEMORY.
    Ownership: ignis_channel_close gives it back, and removes its files.
    Threads: any. */
IGNIS_API ignis_channel ignis_channel_serve(const ignis_channel_desc *desc);

/*  ignis_channel_accept - wait for the next one who connects
    Those without the token, of another user or with another protocol are refused, counted
    (ignis_channel_info.refused), and the first of them is logged as a warning; the wait goes on.
    Returns: a channel to it, 0 on failure.
    Errors: ARGUMENT (the channel does not listen), FREED, TIMEOUT (nobody came), IO, MEMORY.
    Ownership: ignis_channel_close gives it back; it outlives the server's channel.
    Threads: any; those who accept on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_channel ignis_channel_accept(ignis_channel server);

/*  ignis_channel_accept_within, ignis_channel_send_within, ignis_channel_receive_within - the same calls,
    with a deadline of their own
    timeout_s is in seconds; 0: do not wait; below 0: as long as the channel's desc says. When 0 was too
    short, that is no failure to be logged or kept for ignis_status_last: ignis_channel_accept_within returns
    0, the others IGNIS_ERROR_TIMEOUT.
    Returns: as ignis_channel_accept, ignis_channel_send and ignis_channel_receive.
    Errors: as theirs.
    Ownership: as theirs.
    Threads: any. Waits for at most timeout_s. */
IGNIS_API ignis_channel ignis_channel_accept_within(ignis_channel server, double timeout_s);
IGNIS_API ignis_status ignis_channel_send_within(ignis_channel channel, const void *data, int64_t size, const int *fds,
                                                 int fd_count, double timeout_s);
IGNIS_API ignis_status ignis_channel_receive_within(ignis_channel channel, void *data, int64_t capacity, int64_t *size,
                                                    int *fds, int fd_capacity, int *fd_count, double timeout_s);

/*  ignis_channel_connect - connect to a server of this name, which may come later, but before the deadline
    Returns: a channel to it, 0 on failure.
    Errors: ARGUMENT, UNSUPPORTED, TIMEOUT (no server came, or it did not accept), PEER (it refused us), IO,
    MEMORY.
    Ownership: ignis_channel_close gives it back.
    Threads: any. Waits until the deadline. */
IGNIS_API ignis_channel ignis_channel_connect(const ignis_channel_desc *desc);

/*  ignis_channel_send - send one message of 0 to IGNIS_CHANNEL_MAX_BYTES bytes, and descriptors with it
    It arrives whole, once, in order, or not at all. fds may be null when fd_count is 0. On Windows they are
    handles, as int.
    Returns: IGNIS_OK once the system has taken it; the other side need not have read it.
    Errors: ARGUMENT (too much; a listening channel), FREED, UNSUPPORTED (IGNIS_DIAG_CHANNEL_DESCRIPTOR:
    descriptors need IGNIS_CHANNEL_SOCKET), PEER (the other side is gone), TIMEOUT (it does not read), IO
    (also, on Windows: it may be given no handles).
    Ownership: the descriptors stay the caller's, who may close them afterwards.
    Threads: any; those who send on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_status ignis_channel_send(ignis_channel channel, const void *data, int64_t size, const int *fds,
                                          int fd_count);

/*  ignis_channel_receive - wait for the next message
    With too little room for it, *size and *fd_count say what is needed, and the message stays for the next
    call. size and fd_count may be null.
    Returns: IGNIS_OK, *size bytes in data, *fd_count descriptors in fds.
    Errors: ARGUMENT (too little room; a listening channel), FREED, TIMEOUT (nothing came; the channel stays
    usable), PEER (the other side is gone, or broke the protocol: the channel is of no use any more), IO.
    Ownership: the descriptors are the caller's to close; they are closed by exec. On failure none is left
    open.
    Threads: any; those who receive on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_status ignis_channel_receive(ignis_channel channel, void *data, int64_t capacity, int64_t *size,
                                             int *fds, int fd_capacity, int *fd_count);

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
    Ownership: its descriptors are closed and its files removed.
    Threads: any. */
IGNIS_API ignis_status ignis_channel_close(ignis_channel channel);
