/*  >>job.poller - the poller: one thread waits for all ranks

    The type; the functions are in system_posix.c and system_windows.c.
    Uses: connections.
    Invariants: one thread waits, any thread may wake it.
    Locks: none. */

/*  Connections that one thread waits for, and a pipe or event by which other threads wake it. */
typedef struct ignis__poller {
    ignis__connection **connection; /* NULL: none */
    bool *is_ready;                 /* a message has come, or the connection has ended */
    int count;
#ifdef _WIN32
    HANDLE bell;
    int pause_ms;
#else
    int bell[2];
    struct pollfd *polls;
#endif
} ignis__poller;
