/*  collective/peer - connections between processes that prove their identity. */
#pragma once

#include "../../base/room.h"
#include "../vmm/room.h"

/*  An error that is not reported yet: the public function decides (a rejected client is not a failure). */
typedef struct ignis__peer_error {
    ignis_diagnostic diagnostic;
    bool expected; /* the caller did not want to wait, or the peer has said goodbye */
    char why[320];
} ignis__peer_error;

/*  How long to wait: until the deadline, or until *stop is set. With deadline 0, not at all. */
typedef struct ignis__deadline {
    int64_t deadline_ns; /* of ignis__monotonic_ns */
    const uint64_t *stop;
} ignis__deadline;

#define IGNIS__PATH_MAX 512

#ifdef _WIN32
#include <ntsecapi.h>
typedef HANDLE ignis__file;

#define IGNIS__NO_FILE INVALID_HANDLE_VALUE
#endif

#ifndef _WIN32
#include <poll.h>
#include <signal.h>
#ifdef __linux__
#include <sys/epoll.h>
#endif
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#ifndef __USE_GNU /* not declared by the C library under a strict standard */
#ifdef __cplusplus
extern "C" {
#endif
extern long syscall(long, ...);
extern int accept4(int, struct sockaddr *, socklen_t *, int);
extern int pipe2(int[2], int);
#ifdef __cplusplus
}
#endif
#endif
#endif

#ifndef _WIN32
#ifdef SO_PEERCRED
#define IGNIS__SO_PEERCRED SO_PEERCRED
#elif defined(__powerpc__)
#define IGNIS__SO_PEERCRED 21
#else
#define IGNIS__SO_PEERCRED 17
#endif

typedef int ignis__file;

#define IGNIS__NO_FILE (-1)

/*  Descriptors to close in forked children: a copy left open there would hide the death of this process. One
    bit each; untouched pages cost nothing. */
enum { IGNIS__FDS = 1 << 20 };

struct ignis__fds_type {
    ignis__mutex lock;
    bool watched;
    uint64_t kept[IGNIS__FDS / 64];
};

#define IGNIS__POLL_ENDED (POLLHUP | POLLERR | POLLNVAL)
#endif

typedef struct ignis__sha {
    uint32_t state[8];
    uint64_t size;
    unsigned char block[64];
} ignis__sha;

enum { IGNIS__SECRET = 32 }; /* bytes; a shorter secret is padded with zeros, which do not change an HMAC */

enum {
    IGNIS__MESSAGE_MAGIC = 0x52494749, /* "IGIR" */
    IGNIS__PROTOCOL_VERSION = 3,
    IGNIS__HANDSHAKE_BYTES = 1024, /* the longest message before authentication */
    IGNIS__NONCE = 16              /* random bytes that are never used twice */
};

/*  The header in front of every message. */
typedef struct ignis__message_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t size; /* of the bytes after the header */
    uint32_t fd_count;
    uint64_t sequence; /* counts the messages of a direction */
} ignis__message_header;

/*  Types of messages. The first four authenticate both sides, in this order. */
enum {
    IGNIS__MESSAGE_HELLO = 1, /* the client's nonce */
    IGNIS__MESSAGE_CHALLENGE, /* the server's nonce and proof */
    IGNIS__MESSAGE_PROOF,     /* the client's proof and its claim, a description of itself */
    IGNIS__MESSAGE_WELCOME,
    IGNIS__MESSAGE_REFUSED, /* and the reason, which only authenticated peers receive */
    IGNIS__MESSAGE_GOODBYE, /* the channel was closed in order */
    IGNIS__MESSAGE_DATA,
    IGNIS__MESSAGE_ARRAY,
    IGNIS__MESSAGE_JOB /* the first of the job's types */
};

typedef struct ignis__connection {
    const struct ignis__connection_kind *kind;
    int64_t timeout_ns;
    uint64_t closing; /* whoever waits gives up */
    uint64_t lost;    /* 1: failed for good; 2: closed by the peer */
    ignis__mutex send_lock, receive_lock;
    char path[IGNIS__PATH_MAX]; /* where clients connect */
    ignis__file in, out;        /* the same file for a socket and a Windows pipe */
    bool owns_path;             /* this side created the file at the path and removes it */
    bool is_authenticated;      /* the peer knows the secret */
    /* Windows: the peer's process, into which handles are duplicated; none if the system does not open it. */
    ignis__file process;
    int attempt; /* of connecting, from 0; with several addresses each attempt takes the next */
    int64_t peer_pid, peer_uid;
    uint64_t sent, received; /* messages */
    unsigned char nonces[2][IGNIS__NONCE];

    size_t capacity;      /* of a message, without its header */
    unsigned char *inbox; /* the message that is arriving: header and bytes */
    size_t inbox_size;
    bool inbox_is_complete;
    int inbox_fds[IGNIS_CHANNEL_MAX_FDS];
    int inbox_fd_count;
    /* The message that is leaving. Bytes that a stream has not taken yet go before the next message. */
    unsigned char *outbox;
    size_t outbox_size, outbox_done;
    uint64_t unsent; /* bytes of the outbox are left */
    const int *outbox_fds;
    int outbox_fd_count;

    int side;        /* index of this side in shared memory */
    bool peer_seen;  /* shared memory: the reader has seen the peer */
    int pause_us[2]; /* of the reader, of the writer */
    ignis__file shared_file;
    struct ignis__shared *shared;
    size_t shared_bytes;
} ignis__connection;

struct ignis__listener;

/*  A kind of connection. Functions return false with the error set, unless noted. */
typedef struct ignis__connection_kind {
    ignis_channel_method method;
    const char *suffix; /* of the path */
    /* messages keep their boundaries, carry descriptors, and come from a user that the system names */
    bool packets;
    bool descriptors; /* messages carry descriptors, and the system names the peer's process */
    /* NULL: nothing to do before accept */
    bool (*listen)(ignis__peer_error *error, struct ignis__listener *listener);
    /* false without a diagnostic: no client has come */
    bool (*accept)(ignis__peer_error *error, struct ignis__listener *listener, ignis__connection *fresh);
    bool (*connected)(ignis__connection *fresh); /* a client is connected; NULL: always */
    bool (*connect)(ignis__peer_error *error, ignis__connection *connection, bool *again);
    /* sends from the outbox: bytes; 0: not now; -1: error */
    int64_t (*write)(ignis__peer_error *error, ignis__connection *connection);
    /* bytes; 0: not yet; -1: error */
    int64_t (*read)(ignis__peer_error *error, ignis__connection *connection, void *data, size_t size);
    bool (*wait)(ignis__peer_error *error, ignis__connection *connection, bool to_write, const ignis__deadline *until,
                 const char *what);
    bool (*alive)(ignis__connection *connection);
    /* tells the peer, while other threads may be inside; NULL: closing tells it */
    void (*shutdown)(ignis__connection *connection);
    void (*remove)(ignis__connection *connection); /* removes the file at the path; NULL: there is no file */
    /* For descriptors that travel as numbers after a message: duplicates them into the peer, or closes those
       duplicates. NULL: not needed. */
    bool (*duplicate)(ignis__peer_error *error, const ignis__connection *connection, const int *fds, int count,
                      uint64_t *numbers);
    void (*close_duplicates)(const ignis__connection *connection, const uint64_t *numbers, int count);
} ignis__connection_kind;

/*  Content of the file of a name. The server keeps the file locked, so the system tells when it has died. */
typedef struct ignis__name_record {
    uint64_t version, pid;
    uint64_t has_secret; /* 0: the caller passed a secret, which is not written to files */
    unsigned char secret[IGNIS__SECRET];
    uint64_t place; /* of the server's pipe (Windows) */
} ignis__name_record;

/*  Places for clients that have not authenticated yet; more clients wait in the system's queue. */
enum { IGNIS__LISTENER_PENDING = 64 };

typedef struct ignis__listener {
    const ignis__connection_kind *kind;
    int64_t timeout_ns;
    uint64_t closing;
    ignis__mutex lock; /* held by the thread that accepts */
    char path[IGNIS__PATH_MAX], name_path[IGNIS__PATH_MAX];
    /* poll: one descriptor that becomes readable when a client or a message comes */
    ignis__file file, name_file, poll;
    bool owns_path; /* this process created the file at the path and removes it */
    unsigned char secret[IGNIS__SECRET];
    uint64_t place; /* random, also in the file of the name */
    uint64_t refused, arrivals;
    struct {
        ignis__connection *connection;
        int64_t since_ns;               /* 0: no client is connected yet */
    } pending[IGNIS__LISTENER_PENDING]; /* oldest first */
    int pending_count;
} ignis__listener;

/*  Where and how a client connects. */
typedef struct ignis__client {
    const ignis__connection_kind *kind;
    const char *path, *name_path;
    const unsigned char *secret; /* NULL: the one in the file at name_path */
    const void *claim;           /* what the client says of itself */
    size_t claim_size;
    size_t capacity; /* bytes of a message after the handshake */
} ignis__client;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* error.c */
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set(ignis__peer_error *error, ignis_diagnostic diagnostic,
                                                      const char *format, ...);
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__peer_error_report(const char *call, const ignis__peer_error *error);
extern const ignis__deadline ignis__deadline_now;
IGNIS__PRIVATE ignis__deadline ignis__deadline_at(int64_t deadline_ns);
IGNIS__PRIVATE ignis__deadline ignis__deadline_in(int64_t ns);
IGNIS__PRIVATE int ignis__deadline_slice_ms(const ignis__deadline *until, int most_ms);
IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set_timeout(ignis__peer_error *error, const ignis__deadline *until,
                                                              const char *what);
IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set_lost(ignis__peer_error *error);
IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set_memory(ignis__peer_error *error, size_t size);
IGNIS__PRIVATE bool ignis__bytes_equal(const unsigned char *a, const unsigned char *b, size_t size);

/* system_windows.c */
IGNIS__PRIVATE void ignis__peer_file_close(ignis__file *file);
IGNIS__PRIVATE void ignis__fd_close(int *fd);
IGNIS__PRIVATE void ignis__fds_close(const int *fds, int count);
IGNIS__PRIVATE bool ignis__fd_is_open(int fd);
IGNIS__PRIVATE bool ignis__condition_make(ignis__condition *condition);
IGNIS__PRIVATE void ignis__condition_end(ignis__condition *condition);
IGNIS__PRIVATE bool ignis__condition_wait_until(ignis__condition *condition, ignis__mutex *mutex, int64_t deadline_ns);
IGNIS__PRIVATE void ignis__sleep_us(int us);
IGNIS__PRIVATE bool ignis__random_bytes(void *out, size_t size);
IGNIS__COLD IGNIS__PRIVATE bool ignis__private_folder(const char *call, char *path, size_t size);

#ifdef _WIN32
IGNIS__PRIVATE bool ignis__errno_set(void);
#endif

/* system_posix.c */
#ifndef _WIN32
extern struct ignis__fds_type ignis__fds;
IGNIS__PRIVATE int ignis__fd_register(int fd);
IGNIS__PRIVATE bool ignis__stat_is_ours(const struct stat *info);
IGNIS__PRIVATE int ignis__shared_make(size_t size);
IGNIS__PRIVATE void *ignis__shared_map(int fd, size_t size);
IGNIS__PRIVATE void ignis__shared_unmap(void *data, size_t size);
IGNIS__PRIVATE int ignis__fd_poll(int fd, short events, int ms);
IGNIS__PRIVATE bool ignis__fd_wait(ignis__peer_error *error, int fd, short events, const ignis__deadline *until,
                                   const char *what);
IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set_errno(ignis__peer_error *error, const char *what);
#endif

/* sha256.c */
IGNIS__PRIVATE void ignis__sha_begin(ignis__sha *sha);
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__sha_add(ignis__sha *sha, const void *data, size_t size);
IGNIS__PRIVATE void ignis__sha_end(ignis__sha *sha, unsigned char out[32]);
IGNIS__PRIVATE void ignis__hmac(const unsigned char secret[IGNIS__SECRET], const void *a, size_t a_size, const void *b,
                                size_t b_size, unsigned char out[32]);

/* connection.c */
IGNIS__PRIVATE ignis__message_header ignis__message_header_read(const ignis__connection *connection);
IGNIS__PRIVATE void ignis__inbox_clear(ignis__connection *connection);
IGNIS__PRIVATE void ignis__inbox_remove(ignis__connection *connection);
IGNIS__PRIVATE bool ignis__connection_receive(ignis__peer_error *error, ignis__connection *connection,
                                              const ignis__deadline *until);
IGNIS__PRIVATE bool ignis__connection_flush(ignis__peer_error *error, ignis__connection *connection,
                                            const ignis__deadline *until);
IGNIS__PRIVATE bool ignis__connection_send(ignis__peer_error *error, ignis__connection *connection, int type,
                                           const void *data, size_t size, const int *fds, int fd_count,
                                           const ignis__deadline *until);
IGNIS__PRIVATE void ignis__connection_destroy(ignis__connection *connection);
IGNIS__PRIVATE bool ignis__connection_reserve(ignis__peer_error *error, ignis__connection *connection, size_t capacity);
IGNIS__PRIVATE ignis__connection *ignis__connection_create(ignis__peer_error *error, const ignis__connection_kind *kind,
                                                           const char *path);
IGNIS__PRIVATE bool ignis__connection_check(ignis__peer_error *error, const ignis__connection *connection);

/* secret_file.c */
IGNIS__PRIVATE bool ignis__name_file_lock(ignis__peer_error *error, const char *path, ignis__file *file);
IGNIS__PRIVATE bool ignis__name_file_write(ignis__file file, const void *data, size_t size);
IGNIS__PRIVATE bool ignis__name_file_read(const char *path, void *data, size_t size);
IGNIS__PRIVATE void ignis__name_file_delete(const char *path);

/* listener.c */
IGNIS__PRIVATE void ignis__connection_proof(const ignis__connection *connection, const unsigned char *secret,
                                            bool of_server, const void *claim, size_t size, unsigned char proof[32]);
IGNIS__PRIVATE void ignis__listener_refuse(const char *call, ignis__listener *listener, ignis__connection *connection,
                                           bool is_authenticated, const char *why);
IGNIS__COLD IGNIS__PRIVATE ignis__connection *ignis__listener_next(const char *call, ignis__peer_error *error,
                                                                   ignis__listener *listener,
                                                                   const ignis__deadline *until);
IGNIS__PRIVATE bool ignis__claim_read(ignis__peer_error *error, const ignis__connection *connection, void *claim,
                                      size_t size);
IGNIS__PRIVATE void ignis__connection_set_authenticated(ignis__connection *connection);
IGNIS__PRIVATE bool ignis__connection_welcome(ignis__peer_error *error, ignis__connection *connection, size_t capacity);
IGNIS__PRIVATE void ignis__listener_close(ignis__listener *listener);
IGNIS__PRIVATE ignis__listener *ignis__listener_new(const char *call, const ignis__connection_kind *kind,
                                                    const char *path);
IGNIS__PRIVATE void ignis__listener_free(ignis__listener *listener);
IGNIS__COLD IGNIS__PRIVATE bool ignis__listener_open(const char *call, ignis__peer_error *error,
                                                     ignis__listener *listener, const char *name_path,
                                                     const unsigned char *secret);

/* connect.c */
IGNIS__COLD IGNIS__PRIVATE ignis__connection *ignis__connection_open(ignis__peer_error *error,
                                                                     const ignis__client *client,
                                                                     const ignis__deadline *until);

/* socket_posix.c */
#ifndef _WIN32
IGNIS__PRIVATE int64_t ignis__socket_write(ignis__peer_error *error, ignis__connection *connection);
IGNIS__PRIVATE int64_t ignis__socket_read(ignis__peer_error *error, ignis__connection *connection, void *data,
                                          size_t capacity);
IGNIS__PRIVATE bool ignis__socket_wait(ignis__peer_error *error, ignis__connection *connection, bool to_write,
                                       const ignis__deadline *until, const char *what);
IGNIS__PRIVATE bool ignis__socket_alive(ignis__connection *connection);
IGNIS__PRIVATE void ignis__socket_shutdown(ignis__connection *connection);
IGNIS__PRIVATE bool ignis__socket_accept(ignis__peer_error *error, ignis__listener *listener, ignis__connection *fresh);
extern const ignis__connection_kind ignis__connection_socket;
#endif
