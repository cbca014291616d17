/*  What each rank tells the others of itself. It travels as it is: the same program, so the same layout,
    which the version holds. */
typedef struct ignis__job_rank {
    uint64_t host;    /* which system, and which namespaces of it */
    uint64_t process; /* a random number: ranks may be threads of one process */
    unsigned char uuid[16];
    char pci[16];
    int32_t rank, size;
    int32_t pid, uid;
    int32_t driver;
    int32_t transport; /* that it insists on */
    char path[104];    /* of the socket at which it waits for the ranks of its host */
    char failed[128];  /* why it cannot take part, and so nobody can; "": it can */
} ignis__job_rank;

/*  A communicator, as a job sees it: whom to tell when a member is gone. Called with the job locked, on its
    watcher's thread. */
typedef enum ignis__job_event {
    IGNIS__JOB_DIED,
    IGNIS__JOB_LEFT,
    IGNIS__JOB_ABORTED,
    IGNIS__JOB_TICK /* time has passed; of no member */
} ignis__job_event;

enum { IGNIS__JOB_TICK_MS = 20 };

typedef struct ignis__job_watch {
    uint64_t key; /* of the communicator: the same on all its ranks */
    const int *member;
    int count;
    unsigned char *gone; /* for each member: it has destroyed its part */
    bool ticks;          /* it is told that time passes */
    void (*notify)(void *owner, ignis__job_event event, int member);
    void *owner;
    struct ignis__job_watch *next;
} ignis__job_watch;

typedef struct ignis__job ignis__job;

typedef enum ignis__job_state { IGNIS__JOB_ALIVE, IGNIS__JOB_GONE, IGNIS__JOB_DEAD } ignis__job_state;

/*  Why ranks did not tell each other what they had to, and whom that was about. */
typedef enum ignis__agreement_reason {
    IGNIS__AGREEMENT_LATE,   /* it did not come before the deadline */
    IGNIS__AGREEMENT_LOST,   /* it has died, or left */
    IGNIS__AGREEMENT_DIFFERS /* it has called something else */
} ignis__agreement_reason;

typedef struct ignis__agreement_failure {
    ignis__agreement_reason reason;
    int rank; /* of the job */
    uint32_t theirs;
} ignis__agreement_failure;

/*  What the ranks of a communicator do together by telling each other. A later one counts more: who comes
    with that has given the earlier up. */
typedef enum ignis__agreement_kind {
    IGNIS__AGREEMENT_INIT,
    IGNIS__AGREEMENT_NCCL,
    IGNIS__AGREEMENT_SPLIT,
    IGNIS__AGREEMENT_SHRINK
} ignis__agreement_kind;

/*  Ranks that do something together, in steps: at each, every one gives a record and gets those of all. Some
    may have begun before, and have given up: so each counts its attempts. Records of earlier ones are
    dropped, and one of a later one takes all who see it there. */
typedef struct ignis__agreement {
    ignis__job *job;
    const ignis__job_watch *watch; /* their communicator: who has left it is not waited for; null: none */
    const int *member;             /* their ranks in the job */
    int count, me;
    const unsigned char *without; /* a bit for each that is told, and not waited for; null: none */
    uint64_t key;                 /* of the communicator in whose name they talk */
    uint32_t attempt;
    uint32_t print; /* kind, and 28 bits of what has to be the same on all ranks */
    bool failed;    /* the last step */
    bool overtaken; /* by another rank, which is at a later attempt: `attempt` is that now */
    int64_t deadline;
    unsigned char came[IGNIS__JOB_MAX_RANKS / 8]; /* a bit for each whose record of this step is there */
    ignis__agreement_failure failure;
} ignis__agreement;

static bool ignis__bit(const unsigned char *bits, int i) { return bits[i / 8] >> i % 8 & 1; }
static void ignis__bit_set(unsigned char *bits, int i) { bits[i / 8] = (unsigned char)(bits[i / 8] | 1u << i % 8); }

#define IGNIS__AGREEMENT_GIVEN_UP \
    0xFFFFFFFFu /* instead of a print: the rank's attempt is over, and what it has said is void */
#define IGNIS__AGREEMENT_PRINT(kind, hash) ((uint32_t)(kind) << 28 | ((uint32_t)(hash)&0xFFFFFFFu))

/*  What a message is. */
typedef enum ignis__job_kind {
    IGNIS__JOB_RECORD = 1, /* for an exchange */
    IGNIS__JOB_LEAVE,      /* the sender has destroyed the communicator `key` */
    IGNIS__JOB_ABORT,      /* or aborted it */
    IGNIS__JOB_BYE,        /* the sender has destroyed all, and will close its sockets */
    IGNIS__JOB_LOST,       /* from rank 0: a rank of another host has died; its number is the data */
    IGNIS__JOB_ANSWER,     /* of a rendezvous, as what follows */
    IGNIS__JOB_TABLE
} ignis__job_kind;

enum { IGNIS__JOB_DATA = 512 }; /* bytes of a record that ranks exchange */

#define IGNIS__MILLISECOND ((int64_t)1000000)
