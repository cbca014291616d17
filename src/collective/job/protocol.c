/*  >>job.protocol - types that ranks exchange, and the interface of jobs

    Structs travel as they are in memory: all ranks run the same version of Ignis, which the version number checks.
    Invariants: no pointers in structs that are sent.
    Locks: watches are called with the job locked. */

/*  The description of a rank that all ranks receive. */
typedef struct ignis__job_rank {
    uint64_t host;    /* hash of the system and its namespaces */
    uint64_t process; /* random, since ranks may be threads of one process */
    unsigned char uuid[16];
    char pci[16];
    int32_t rank, size;
    int32_t pid, uid;
    int32_t driver;
    int32_t transport; /* requested transport */
    char path[104];    /* of the socket where it waits for ranks of its host */
    char failed[128];  /* why it cannot take part, so that all fail; "": it can */
} ignis__job_rank;

/*  Events that a communicator is told, on the watcher's thread, with the job locked. */
typedef enum ignis__job_event {
    IGNIS__JOB_DIED,
    IGNIS__JOB_LEFT,
    IGNIS__JOB_ABORTED,
    IGNIS__JOB_TICK /* time has passed; no member */
} ignis__job_event;

enum { IGNIS__JOB_TICK_MS = 20 };

typedef struct ignis__job_watch {
    uint64_t key; /* of the communicator, the same on all its ranks */
    const int *member;
    int count;
    unsigned char *gone; /* for each member: it has destroyed its communicator */
    bool ticks;          /* it is told that time passes */
    void (*notify)(void *owner, ignis__job_event event, int member);
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
    IGNIS__AGREEMENT_SPLIT,
    IGNIS__AGREEMENT_SHRINK
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

static bool ignis__bit(const unsigned char *bits, int i) { return bits[i / 8] >> i % 8 & 1; }
static void ignis__bit_set(unsigned char *bits, int i) { bits[i / 8] = (unsigned char)(bits[i / 8] | 1u << i % 8); }

#define IGNIS__AGREEMENT_GIVEN_UP 0xFFFFFFFFu /* instead of a print: the rank has given up this attempt */
#define IGNIS__AGREEMENT_PRINT(kind, hash) ((uint32_t)(kind) << 28 | ((uint32_t)(hash)&0xFFFFFFFu))

/*  Types of messages. */
typedef enum ignis__job_kind {
    IGNIS__JOB_RECORD = 1, /* for an agreement */
    IGNIS__JOB_LEAVE,      /* the sender has destroyed communicator `key` */
    IGNIS__JOB_ABORT,      /* the sender has aborted it */
    IGNIS__JOB_BYE,        /* the sender has destroyed all, and will close its sockets */
    IGNIS__JOB_LOST,       /* from rank 0: the rank in the data, of another host, has died */
    IGNIS__JOB_ANSWER,     /* of a rendezvous, as the next one */
    IGNIS__JOB_TABLE
} ignis__job_kind;

enum { IGNIS__JOB_DATA = 512 }; /* bytes of a record */

#define IGNIS__MILLISECOND ((int64_t)1000000)
