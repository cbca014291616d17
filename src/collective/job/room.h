/*  collective/job - the processes of one program: how they meet, and which of them died. */
#pragma once

#include "../../base/room.h"
#include "../../device/room.h"
#include "../room.h"
#include "../peer/room.h"
#include "../channel/room.h"
#include "../transport/room.h"

/*  The rank of this process, and where the ranks meet: from the description or the environment. */
enum { IGNIS__JOB_MAX_RANKS = 1024 };

typedef struct ignis__place {
    int rank, size;
    int local_rank;    /* -1: unknown */
    char job[160];     /* the launcher's name of the job; "": none */
    char folder[256];  /* a private folder; "": the default */
    char name[64];     /* of rank 0 in that folder */
    char address[300]; /* "host:port" of rank 0; "": they meet in the folder */
    bool by_id;        /* from ignis_comm_unique_id */
    bool has_secret;   /* known to all ranks; else it is in the folder */
    unsigned char secret[IGNIS__SECRET];
} ignis__place;

/*  Content of an id. */
typedef struct ignis__id {
    char magic[8];
    unsigned char secret[IGNIS__SECRET];
    char address[IGNIS_COMM_ID_BYTES - 8 - IGNIS__SECRET]; /* "host,host:port"; on Windows, of a pipe */
} ignis__id;

/*  The description of a rank that all ranks receive. */
typedef struct ignis__job_rank {
    uint64_t host;    /* hash of the system and its namespaces */
    uint64_t process; /* random, since ranks may be threads of one process */
    unsigned char uuid[16];
    char pci[16];
    int32_t rank, size;
    int32_t pid, uid;
    int32_t driver;
    int32_t transport;    /* requested transport */
    int32_t heartbeat_ms; /* requested limit of silence; 0: none */
    uint64_t origin;      /* of the job that it comes from; 0: it joins now */
    char path[104];       /* of the socket where it waits for ranks of its host */
    char failed[128];     /* why it cannot take part, so that all fail; "": it can */
} ignis__job_rank;

/*  Events that a communicator is told, on the watcher's thread, with the job locked. */
typedef enum ignis__job_event {
    IGNIS__JOB_DIED,
    IGNIS__JOB_LEFT,
    IGNIS__JOB_ABORTED,
    IGNIS__JOB_FAILED, /* an operation, as another rank reports: with what broke it, and the member at fault or -1 */
    IGNIS__JOB_TICK    /* time has passed; no member */
} ignis__job_event;

enum { IGNIS__JOB_TICK_MS = 20 };

typedef struct ignis__job_watch {
    uint64_t key; /* of the communicator, the same on all its ranks */
    const int *member;
    int count;
    unsigned char *gone; /* for each member: it has destroyed its communicator */
    bool ticks;          /* it is told that time passes */
    void (*notify)(void *owner, ignis__job_event event, int member, int code); /* code: of FAILED */
    void *owner;
    struct ignis__job_watch *next;
} ignis__job_watch;

typedef struct ignis__job ignis__job;

typedef enum ignis__job_state { IGNIS__JOB_ALIVE, IGNIS__JOB_GONE, IGNIS__JOB_DEAD } ignis__job_state;

/*  Why an agreement failed. */
typedef enum ignis__agreement_reason {
    IGNIS__AGREEMENT_LATE,   /* a record did not come before the deadline */
    IGNIS__AGREEMENT_LOST,   /* a rank has died or left */
    IGNIS__AGREEMENT_DIFFERS /* a rank has called something else */
} ignis__agreement_reason;

typedef struct ignis__agreement_failure {
    ignis__agreement_reason reason;
    int rank; /* of the job */
    uint32_t theirs;
} ignis__agreement_failure;

/*  What ranks agree on. A later kind counts more: a rank in it has given up the earlier ones. */
typedef enum ignis__agreement_kind {
    IGNIS__AGREEMENT_INIT,
    IGNIS__AGREEMENT_NCCL,
    IGNIS__AGREEMENT_WINDOW,
    IGNIS__AGREEMENT_SPLIT,
    IGNIS__AGREEMENT_SHRINK,
    IGNIS__AGREEMENT_KIND_COUNT
} ignis__agreement_kind;

/*  An agreement: in each step every rank gives a record and receives those of all. A rank that gave up begins
    again, so attempts are counted. Records of earlier attempts are dropped; one of a later attempt makes all
    others join it. */
typedef struct ignis__agreement {
    ignis__job *job;
    const ignis__job_watch *watch; /* their communicator: ranks that have left it are not waited for; NULL: none */
    const int *member;             /* ranks in the job */
    int count, me;
    const unsigned char *without; /* a bit for each rank that is told but not waited for; NULL: none */
    uint64_t key;                 /* of the communicator */
    uint32_t attempt;
    uint32_t print; /* kind, and 28 bits of a hash that must be equal on all ranks */
    bool failed;    /* in the last step */
    bool overtaken; /* another rank is at a later attempt, which is now `attempt` */
    int64_t deadline;
    unsigned char came[IGNIS__JOB_MAX_RANKS / 8]; /* a bit for each rank whose record of this step has come */
    ignis__agreement_failure failure;
} ignis__agreement;

#define IGNIS__AGREEMENT_GIVEN_UP 0xFFFFFFFFu /* instead of a print: the rank has given up this attempt */
#define IGNIS__AGREEMENT_PRINT(kind, hash) ((uint32_t)(kind) << 28 | ((uint32_t)(hash)&0xFFFFFFFu))

/*  Types of messages. */
typedef enum ignis__job_kind {
    IGNIS__JOB_RECORD = 1, /* for an agreement */
    IGNIS__JOB_LEAVE,      /* the sender has destroyed communicator `key` */
    IGNIS__JOB_ABORT,      /* the sender has aborted it */
    IGNIS__JOB_FAULT,      /* an operation of it has failed; the data is an ignis__job_fault */
    IGNIS__JOB_BYE,        /* the sender has destroyed all, and will close its sockets */
    IGNIS__JOB_LOST,       /* from rank 0: the rank in the data, of another host, has died */
    IGNIS__JOB_ANSWER,     /* of a rendezvous, as the next one */
    IGNIS__JOB_TABLE,
    IGNIS__JOB_BEAT /* the sender lives */
} ignis__job_kind;

enum {
    IGNIS__JOB_DATA = 512, /* bytes of a record */
    IGNIS__JOB_BEATS = 5   /* in the limit of silence */
};

#define IGNIS__MILLISECOND ((int64_t)1000000)

/*  The cause of a broken communicator: a code that its ranks know, and the rank of the job at fault (-1: unknown). */
typedef struct ignis__job_fault {
    int32_t code, rank;
} ignis__job_fault;

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

#ifdef _WIN32
/*  All ranks are on this host. */
#define IGNIS__CONNECTION_FAR (&ignis__connection_pipe)
#define IGNIS__OTHER_HOSTS "on Windows all ranks are on one host"
#endif

#ifndef _WIN32
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#endif

#ifndef _WIN32
#ifndef IGNIS__JOB_SILENCE_S
#define IGNIS__JOB_SILENCE_S 15
#endif
#endif

#ifndef _WIN32
#define IGNIS__CONNECTION_FAR (&ignis__connection_tcp)
#define IGNIS__OTHER_HOSTS "those of other hosts need IGNIS_COMM_TOKEN or desc.id"
#endif

/*  The header of a job's message. */
typedef struct ignis__job_header {
    int32_t from, to;
    uint64_t key;
} ignis__job_header;

typedef struct ignis__job_message {
    struct ignis__job_message *next;
    uint64_t key;
    size_t size;
    int fd;
    unsigned char data[IGNIS__JOB_DATA];
} ignis__job_message;

typedef struct ignis__job_link {
    ignis__connection *connection; /* NULL: this rank, or a rank reached through rank 0 */
    bool ended;                    /* no more messages will come */
    ignis__job_state state;
    ignis__job_message *first;
    int queued;
    uint64_t heard; /* a message has come since the last heartbeat */
    int silent;     /* heartbeats without a message; the watcher alone has it */
} ignis__job_link;

struct ignis__job {
    uint64_t users;     /* communicators that use the job */
    uint64_t key;       /* of the job, chosen by rank 0 */
    uint64_t origin;    /* the key of the first job of a training that has grown since */
    ignis__place place; /* where the ranks met */
    int rank, size;
    int64_t timeout_ns;
    unsigned char secret[IGNIS__SECRET]; /* of the ranks of a host, chosen by rank 0 */
    ignis__job_rank *ranks;
    ignis__job_link *links; /* NULL if there is one rank */
    ignis__poller poller;   /* of the watcher */
    ignis__mutex lock;      /* guards what follows, and the links */
    ignis__condition changed;
    bool has_poller, ready; /* poller and changed exist */
    bool watched, ending;
    ignis__thread_handle watcher;
    ignis__job_watch *watches;
};

/*  A message to send. */
typedef struct ignis__job_outgoing {
    ignis__job_header header;
    ignis__job_kind kind;
    const void *data;
    size_t size;
    int fd; /* -1: none */
} ignis__job_outgoing;

/* --- defined in the parts ----------------------------------------------------------------------------------------- */

/* launcher.c */
IGNIS__PRIVATE bool ignis__place_read(const char *call, const ignis_comm_desc *desc, ignis__place *place);
IGNIS__PRIVATE int ignis__place_device(const char *call, const ignis__place *place);

/* protocol.c */
IGNIS__PRIVATE bool ignis__bit(const unsigned char *bits, int i);
IGNIS__PRIVATE void ignis__bit_set(unsigned char *bits, int i);

/* system_windows.c */
IGNIS__PRIVATE bool ignis__poller_open(const char *call, ignis__poller *poller);
IGNIS__PRIVATE void ignis__poller_close(ignis__poller *poller);
IGNIS__PRIVATE void ignis__poller_wake(const ignis__poller *poller);
IGNIS__PRIVATE void ignis__poller_wait(ignis__poller *poller, int ms);
IGNIS__PRIVATE uint64_t ignis__host_namespaces(uint64_t hash);
IGNIS__PRIVATE bool ignis__local_name(const char *folder, int rank, uint64_t random, char *out, size_t size);
IGNIS__PRIVATE void ignis__local_path(const char *name, char path[IGNIS__PATH_MAX]);
IGNIS__PRIVATE bool ignis__id_listen(ignis__id *id, ignis__file *listener);

#ifdef _WIN32
IGNIS__PRIVATE bool ignis__watcher_start(ignis__thread_handle *thread, DWORD(WINAPI *run)(void *), void *context);
#endif

/* system_posix.c */
#ifndef _WIN32
extern const ignis__connection_kind ignis__connection_tcp;
IGNIS__PRIVATE bool ignis__watcher_start(ignis__thread_handle *thread, void *(*run)(void *), void *context);
#endif

/* host.c */
IGNIS__PRIVATE uint64_t ignis__job_host(void);

/* unique_id.c */
IGNIS__PRIVATE bool ignis__id_take(const unsigned char *secret, ignis__file *listener);

/* message.c */
IGNIS__PRIVATE ignis__job_outgoing ignis__job_outgoing_make(int from, int to, ignis__job_kind kind, uint64_t key,
                                                            const void *data, size_t size);
IGNIS__PRIVATE bool ignis__job_send_message(ignis__job *job, const ignis__job_outgoing *message, int64_t deadline,
                                            bool *late);
IGNIS__PRIVATE bool ignis__job_send(ignis__job *job, int to, ignis__job_kind kind, uint64_t key, const void *data,
                                    size_t size);
IGNIS__PRIVATE void ignis__job_send_all(ignis__job *job, const int *member, int count, ignis__job_kind kind,
                                        uint64_t key);
IGNIS__PRIVATE void ignis__job_send_fault(ignis__job *job, const int *member, int count, uint64_t key,
                                          const ignis__job_fault *cause);
IGNIS__PRIVATE void ignis__job_catch_up(ignis__job *job);
IGNIS__PRIVATE IGNIS__THREAD_RESULT ignis__job_watcher(void *pointer);
IGNIS__COLD IGNIS__PRIVATE void ignis__job_end(ignis__job *job);
IGNIS__PRIVATE void ignis__job_watch_begin(ignis__job *job, ignis__job_watch *watch);
IGNIS__PRIVATE void ignis__job_watch_tick(ignis__job *job, ignis__job_watch *watch);
IGNIS__PRIVATE void ignis__job_watch_end(ignis__job *job, ignis__job_watch *watch);
IGNIS__PRIVATE ignis__job_state ignis__job_state_in(const ignis__job *job, const ignis__job_watch *watch, int rank);
IGNIS__PRIVATE bool ignis__job_rank_is_absent(ignis__job *job, const ignis__job_watch *watch, int rank);

/* agreement.c */
IGNIS__PRIVATE bool ignis__agreement_step(ignis__agreement *agreement, const void *mine, size_t size, void *all, int fd,
                                          int *fds);
IGNIS__PRIVATE void ignis__agreement_give_up(const ignis__agreement *agreement);

/* rendezvous.c */
IGNIS__COLD IGNIS__PRIVATE ignis__job *ignis__job_meet(const char *call, const ignis__place *place,
                                                       const ignis__job_rank *self, int64_t timeout_ns);
IGNIS__PRIVATE void ignis__job_hold(ignis__job *job);
IGNIS__PRIVATE void ignis__job_drop(ignis__job *job);
IGNIS__COLD IGNIS__PRIVATE bool ignis__agreement_failed(const char *call, const ignis__agreement *agreement);
