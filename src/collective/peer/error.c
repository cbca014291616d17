/* ===============================================================================================================
   >>peer - other processes: how they prove who they are, and the messages between them. Channels and jobs are built on it.
   =============================================================================================================== */

/* --- what the collective layer needs of the system -------------------------------------------------------------------- */

/*  What went wrong below a public function, which then decides whether it is a failure: a client that is
    turned away is none. */
typedef struct ignis__trouble {
    ignis_diagnostic diagnostic;
    bool expected; /* the caller did not want to wait, or the other side has said goodbye */
    char why[320];
} ignis__trouble;

/*  Always false, to be returned. */
IGNIS__PRINTF(3, 4)
IGNIS__COLD static bool ignis__trouble_set(ignis__trouble *trouble, ignis_diagnostic diagnostic, const char *format,
                                           ...)
{
    va_list args;
    trouble->diagnostic = diagnostic;
    trouble->expected = false;
    va_start(args, format);
    vsnprintf(trouble->why, sizeof trouble->why, format, args);
    va_end(args);
    return false;
}

/*  What was expected is no error to be logged, and a call that did not want to wait leaves no failure behind
    either. */
IGNIS__COLD static ignis_status ignis__trouble_report(const char *call, const ignis__trouble *trouble)
{
    ignis__record before = ignis__this_thread.record;
    bool quiet = ignis__this_thread.quiet,
         forgotten = trouble->expected && trouble->diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT;
    ignis_status status;
    if (forgotten)
        memset(&ignis__this_thread.record, 0, sizeof before);
    ignis__this_thread.quiet = quiet || trouble->expected;
    status = ignis__fail(trouble->diagnostic, call, "%s", trouble->why);
    ignis__this_thread.quiet = quiet;
    if (forgotten) {
        ignis__record_drop(&ignis__this_thread);
        ignis__this_thread.record = before;
    }
    return status;
}

/*  How long to wait: until the deadline, or until *stop is set. A deadline of 0: not at all. */
typedef struct ignis__until {
    int64_t deadline_ns; /* of ignis__monotonic_ns */
    const uint64_t *stop;
} ignis__until;

static const ignis__until ignis__until_now = {0, NULL};

static ignis__until ignis__until_at(int64_t deadline_ns)
{
    ignis__until until = {0, NULL};
    until.deadline_ns = deadline_ns;
    return until;
}

static ignis__until ignis__until_in(int64_t ns) { return ignis__until_at(ignis__monotonic_ns() + ns); }

static bool ignis__until_stopped(const ignis__until *until) { return until->stop && ignis__atomic_load(until->stop); }

/*  The milliseconds to wait before asking again; 0: no more. */
static int ignis__until_slice(const ignis__until *until, int most_ms)
{
    int64_t left_ns = until->deadline_ns ? until->deadline_ns - ignis__monotonic_ns() : 0;
    if (left_ns <= 0 || ignis__until_stopped(until))
        return 0;
    return left_ns / 1000000 >= most_ms ? most_ms : (int)(left_ns / 1000000) + 1;
}

IGNIS__COLD static bool ignis__trouble_late(ignis__trouble *trouble, const ignis__until *until, const char *what)
{
    if (ignis__until_stopped(until))
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_FREED, "the channel was closed meanwhile");
    ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_TIMEOUT, until->deadline_ns ? "%s before the deadline" : "%s yet",
                       what);
    trouble->expected = until->deadline_ns == 0;
    return false;
}

IGNIS__COLD static bool ignis__trouble_lost(ignis__trouble *trouble)
{
    return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_LOST, "the other side has closed the connection, or died");
}

IGNIS__COLD static bool ignis__trouble_memory(ignis__trouble *trouble, size_t size)
{
    return ignis__trouble_set(trouble, IGNIS_DIAG_HOST_MEMORY, "out of host memory: %lld bytes were requested",
                              (long long)size);
}

#define IGNIS__PATH_MAX 512

/*  What names may be part of a path. */
static bool ignis__name_valid(const char *name)
{
    size_t length = strlen(name);
    return length >= 1 && length <= 63 && *name != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

/*  In a time that does not depend on where they differ. */
static bool ignis__bytes_equal(const unsigned char *a, const unsigned char *b, size_t size)
{
    unsigned char difference = 0;
    while (size--)
        difference = (unsigned char)(difference | (*a++ ^ *b++));
    return difference == 0;
}
