/* --- what the collective layer needs of the system: where ranks listen, and how one thread waits for all of them -------------- */

/*  What one thread waits for: connections, and a bell that other threads ring. */
typedef struct ignis__poller {
    ignis__connection **connection; /* null: none */
    bool *is_ready;                 /* something has come, or it has ended */
    int count;
#ifdef _WIN32
    HANDLE bell;
    int pause_ms;
#else
    int bell[2];
    struct pollfd *polls;
#endif
} ignis__poller;
