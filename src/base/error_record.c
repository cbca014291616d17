/* ===============================================================================================================
   >>status - the error record of each thread, the logger, names of statuses and diagnostics

   The first failure of a thread is kept until ignis_status_clear; the latest message is kept beside it. Every call
   of a driver goes through IGNIS_CALL_HOOK.
   May use: >>platform. Invariant: memory of a record comes from malloc, because it outlives ignis_shutdown.
   Locks: ignis__threads.lock guards the list of threads; no lock is taken under it. The logger is called with any
   locks held.
   =============================================================================================================== */

/*  Wraps every call of a driver library, so that tests can count calls and make the n-th one fail. */
#ifndef IGNIS_CALL_HOOK
#define IGNIS_CALL_HOOK(name, call) (call)
#endif

/*  One failure. */
typedef struct ignis__record {
    ignis_status status;
    ignis_diagnostic diagnostic;
    const char *call;
    int driver_error;
    const char *driver_name;
    char *message;   /* from malloc, as it may outlive ignis_shutdown; null: text is enough, or there was no memory */
    const char *log; /* the end of message */
    char text[256];  /* the message, or its beginning */
} ignis__record;

/*  A failure that ignis_status_begin has saved. */
typedef struct ignis__saved_failure {
    int depth; /* of which one */
    ignis__record record;
    char *latest_message;
    struct ignis__saved_failure *outer;
} ignis__saved_failure;

/*  A public call that runs functions of the user. Messages of failures inside name it, too. */
typedef struct ignis__outer_call {
    const char *call;
    const char *rule; /* the rule whose backward function runs, or NULL */
    const struct ignis__outer_call *outer;
} ignis__outer_call;

/*  Where a thread's random numbers continue: see kernel/random.c. */
typedef struct ignis__random_state {
    uint64_t seed, used; /* used: blocks of four numbers drawn since the seed was set */
    bool again;          /* a checkpoint runs its function again, with the numbers of the first run */
    uint64_t launches;   /* handle of the graph's counter of launches in that run; 0: none */
} ignis__random_state;

/*  The state of a thread. The device section uses the last fields. */
typedef struct ignis__thread {
    ignis__record record;            /* the first failure */
    ignis_status latest;             /* of the last one, recorded or not */
    uint64_t failures;               /* failures reported so far */
    char *latest_message;            /* from malloc; null: it is that of the first, or there was no memory for it */
    ignis__saved_failure *aside;     /* from malloc, the innermost one */
    int depth;                       /* ignis_status_begin calls that have not ended */
    int stuck;                       /* from this one on there was no memory to put the failure aside; 0: there was */
    const ignis__outer_call *inside; /* the innermost one */
    bool quiet;                      /* failures are expected, and not reported */
    bool called_back;                /* inside a function given to ignis_stream_call */
    const char *file;                /* the caller's location from ignis_call_site, or NULL */
    int line, number;                /* the thread's number in profiles, from 1; 0 if it is in none */
    double bytes, flops;             /* of the next kernel, while a profile is written down */
    int rate;                        /* an ignis_dtype: which of the device's rates the flops go by */
    bool exact_bytes;   /* bytes are exactly those of that kernel, not those of all arrays of its operation */
    uint64_t operation; /* which one that is, in this thread */

    void *attached[2]; /* arrays of the tensor section, from malloc */
    uint64_t tape;     /* the number of its tape; 0 if it has none */
    void (*tensors_end)(void);
    struct ignis__thread *before, *after; /* in ignis__threads */
    bool listed, ended;                   /* it is there; it ends, and will not be there again */
    struct ignis__capture *capture;       /* the capture that ignis_graph_begin has begun */

    uint64_t setup; /* the setup that the rest belongs to: an older one is forgotten */
    int device;
    ignis__random_state random;
    uint64_t forgets; /* ignis_stream_forget calls seen */
    void *stream[IGNIS_MAX_DEVICES];
    uint64_t stream_serial[IGNIS_MAX_DEVICES];
} ignis__thread;

IGNIS__LOCAL(ignis__thread, ignis__this_thread, IGNIS__LOCAL_THREAD)
#ifdef _WIN32
#define ignis__this_thread (*ignis__this_thread_get())
#endif

static struct {
    uint64_t ready;   /* between ignis_setup and ignis_shutdown */
    uint64_t forked;  /* this process is a child of the one that called ignis_setup */
    uint64_t setups;  /* how many there were */
    uint64_t refused; /* calls refused since the last ignis_setup or ignis_shutdown: the first is logged */
    bool verbose;
    bool dry_run;
    ignis_logger logger;
} ignis__global;

IGNIS__COLD static void ignis__log_write(ignis_log_level level, ignis_diagnostic diagnostic, const char *message)
{
    static const char *const names[] = {"", "info", "warning", "error"};
    if (level == IGNIS_LOG_INFO && !ignis__global.verbose)
        return;
    if (ignis__global.logger.log_fn)
        ignis__global.logger.log_fn(level, diagnostic, message, ignis__global.logger.user_data);
    else
        fprintf(stderr, "ignis: %s: %s\n", names[level], message);
}

/*  Adds a message, and below it a log of several lines ("" if there is none). Text from outside is escaped. A message
    above this size loses its middle. */
#define IGNIS__MESSAGE 4000
IGNIS__COLD static void ignis__string_add_message(ignis__string_writer *text, const char *message, const char *log)
{
    size_t size = strlen(message), first = size, last = size;
    if (size > IGNIS__MESSAGE) {
        first = ignis__utf8_cut(message, IGNIS__MESSAGE * 3 / 4);
        last = size - IGNIS__MESSAGE / 4;
        while (((unsigned char)message[last] & 0xC0) == 0x80)
            last++;
    }
    ignis__string_add_escaped(text, message, first, false);
    if (last > first)
        ignis__string_add(text, " ... %lld bytes ... ", (long long)(last - first));
    ignis__string_add_escaped(text, message + last, size - last, false);
    ignis__string_add(text, "%s", *log ? "\n" : "");
    ignis__string_add_escaped(text, log, strlen(log), true);
}

IGNIS__PRINTF(4, 5)
IGNIS__COLD static void ignis__log_message(ignis_log_level level, ignis_diagnostic diagnostic, const char *log,
                                           const char *format, ...)
{
    char message[1024], shown[2048];
    ignis__string_writer text;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    ignis__string_begin(&text, shown, sizeof shown);
    ignis__string_add_message(&text, message, log);
    ignis__log_write(level, diagnostic, shown);
}
#define ignis__log(level, diagnostic, ...) ignis__log_message(level, diagnostic, "", __VA_ARGS__)

/* clang-format off */
static const struct {
    const char *name;
    ignis_status status;
    const char *rule;
} ignis__diagnostics[] = {
    {"NONE", IGNIS_OK, ""},
#define IGNIS__DIAGNOSTIC_ROW(name, status, rule) {#name, IGNIS_ERROR_##status, rule},
    IGNIS_DIAGNOSTICS(IGNIS__DIAGNOSTIC_ROW)
#undef IGNIS__DIAGNOSTIC_ROW
};
/* clang-format on */

static const char *ignis__record_text(const ignis__record *record)
{
    return record->message ? record->message : record->text;
}

static void ignis__record_drop(ignis__thread *thread)
{
    free(thread->record.message);
    memset(&thread->record, 0, sizeof thread->record);
}

static void ignis__latest_drop(ignis__thread *thread)
{
    free(thread->latest_message);
    thread->latest_message = NULL;
}

/*  Threads that own memory of malloc. It is freed when they end and at ignis_shutdown: a library with Ignis inside
    may be unloaded before they end. */
static struct {
    ignis__mutex lock;
    ignis__thread *first;
} ignis__threads = {IGNIS__MUTEX_INIT, NULL};

static void ignis__thread_unregister(ignis__thread *thread)
{
    ignis__mutex_lock(&ignis__threads.lock);
    if (thread->before)
        thread->before->after = thread->after;
    else
        ignis__threads.first = thread->after;
    if (thread->after)
        thread->after->before = thread->before;
    thread->listed = false;
    ignis__mutex_unlock(&ignis__threads.lock);
}

static void ignis__saved_failures_free(ignis__thread *thread)
{
    while (thread->aside) {
        ignis__saved_failure *aside = thread->aside;
        thread->aside = aside->outer;
        free(aside->record.message);
        free(aside->latest_message);
        free(aside);
    }
}

static void ignis__attached_free(ignis__thread *thread)
{
    free(thread->attached[0]);
    free(thread->attached[1]);
    thread->attached[0] = thread->attached[1] = NULL;
}

/*  Frees the state of a thread that ends. It may run again, because other destructors of the thread may still use
    Ignis. */
IGNIS__COLD static void ignis__thread_exit(void *pointer)
{
    ignis__thread *thread = (ignis__thread *)pointer;
    bool forked = ignis__atomic_load(&ignis__global.forked) != 0;
    if (thread->listed && !forked)
        ignis__thread_unregister(thread);
    thread->ended = true;
    ignis__record_drop(thread);
    ignis__latest_drop(thread);
    ignis__saved_failures_free(thread);
    ignis__attached_free(thread);
    if (thread->tensors_end && !forked)
        thread->tensors_end();
}

static void ignis__unload(void);

/*  Registers the calling thread, which now owns memory of malloc. */
IGNIS__COLD static void ignis__thread_register(ignis__thread *thread)
{
    if (thread->listed || ignis__atomic_load(&ignis__global.forked))
        return;
    ignis__at_unload(ignis__unload);
    if (!ignis__at_thread_exit(ignis__thread_exit, thread) || thread->ended)
        return;
    ignis__mutex_lock(&ignis__threads.lock);
    thread->before = NULL;
    thread->after = ignis__threads.first;
    if (thread->after)
        thread->after->before = thread;
    ignis__threads.first = thread;
    thread->listed = true;
    ignis__mutex_unlock(&ignis__threads.lock);
}

/*  Frees a thread's messages and saved failures. The first 255 bytes of its first failure stay. */
static void ignis__messages_cut(ignis__thread *thread)
{
    ignis__latest_drop(thread);
    ignis__saved_failures_free(thread);
    free(thread->record.message);
    thread->record.message = NULL;
    thread->record.log = "";
}

/*  Frees the memory of all threads at ignis_shutdown, except the messages of the calling thread, which may still ask
    for them. */
static void ignis__threads_close(void)
{
    ignis__thread *thread;
    ignis__mutex_lock(&ignis__threads.lock);
    for (thread = ignis__threads.first; thread; thread = thread->after) {
        ignis__attached_free(thread);
        if (thread != &ignis__this_thread)
            ignis__messages_cut(thread);
    }
    ignis__mutex_unlock(&ignis__threads.lock);
}
