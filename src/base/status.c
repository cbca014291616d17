/*  base/status.c - failures: reported by checks, read by ignis_status functions

    fail returns a status, fail_false returns false, check_ functions return whether all is well, log tells the
    logger alone.
    May use: error_record.c. Locks: none. */

#include "room.h"

/*  Keeps a copy of a failure's message as the latest. */
IGNIS__COLD IGNIS__PRIVATE void ignis__latest_keep(ignis__thread *thread, const char *message)
{
    size_t size = strlen(message) + 1;
    ignis__latest_drop(thread);
    thread->latest_message = (char *)malloc(size);
    if (thread->latest_message)
        memcpy(thread->latest_message, message, size);
}

/*  Makes a record this thread's first failure. If the thread has one already, the record is freed: the first failure
    is the one worth knowing. */
IGNIS__PRIVATE ignis_status ignis__record_adopt(const ignis__record *record)
{
    ignis__thread *thread = &ignis__this_thread;
    ignis_status status = record->status;
    thread->latest = status;
    thread->failures += !thread->quiet;
    ignis__thread_register(thread);
    if (thread->record.status == IGNIS_OK) {
        thread->record = *record;
        if (!thread->quiet)
            ignis__latest_drop(thread);
        return status;
    }
    if (!thread->quiet)
        ignis__latest_keep(thread, ignis__record_text(record));
    free(record->message);
    return status;
}

/*  Copies a failure of another thread, which was reported there, to this thread. */
IGNIS__MAYBE_UNUSED IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__record_repeat(const ignis__record *record)
{
    ignis__record copy = *record;
    size_t size = record->message ? strlen(record->message) + 1 : 0;
    copy.log = "";
    copy.message = size ? (char *)malloc(size) : NULL;
    if (copy.message) {
        memcpy(copy.message, record->message, size);
        copy.log = copy.message + (record->log - record->message);
    }
    return ignis__record_adopt(&copy);
}

/*  Between ignis__quiet_begin and ignis__quiet_end, failures of this thread are not reported. *failure gets the first
    one, `why` its message without the name of the call. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__record ignis__quiet_begin(void)
{
    ignis__thread *thread = &ignis__this_thread;
    ignis__record before = thread->record;
    memset(&thread->record, 0, sizeof thread->record);
    thread->quiet = true;
    return before;
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__quiet_end(const ignis__record *before, ignis__record *failure, char *why,
                                                         size_t why_size)
{
    ignis__thread *thread = &ignis__this_thread;
    const char *colon;
    *failure = thread->record;
    colon = strstr(ignis__record_text(failure), ": ");
    snprintf(why, why_size, "%s", colon ? colon + 2 : ignis__record_text(failure));
    failure->message = NULL;
    failure->log = NULL;
    ignis__record_drop(thread);
    thread->record = *before;
    thread->quiet = false;
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__outer_call_begin(ignis__outer_call *outer, const char *call,
                                                                const char *rule)
{
    outer->call = call;
    outer->rule = rule;
    outer->outer = ignis__this_thread.inside;
    ignis__this_thread.inside = outer;
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__outer_call_end(const ignis__outer_call *outer)
{
    ignis__this_thread.inside = outer->outer;
}

/*  Adds the calls inside which a call has failed, the innermost first. */
static void ignis__string_add_outer_calls(ignis__string_writer *text, const ignis__outer_call *outer, const char *call)
{
    const char *before = " (inside ";
    for (; outer; outer = outer->outer) {
        if (outer->rule)
            ignis__string_add(text, "%sthe backward of '%s', %s", before, outer->rule, outer->call);
        else if (outer->call != call) /* which was named just before */
            ignis__string_add(text, "%s%s", before, outer->call);
        else
            continue;
        before = ", ";
        call = outer->call;
    }
    if (*before == ',')
        ignis__string_add(text, ")");
}

/*  Returns the status of a call that frees something: that of a failure since `failures_before`, although the object
    is gone. */
IGNIS__PRIVATE uint64_t ignis__failures(void) { return ignis__this_thread.failures; }
IGNIS__PRIVATE ignis_status ignis__ended(uint64_t failures_before, bool ok)
{
    const ignis__thread *thread = &ignis__this_thread;
    return ok && thread->failures == failures_before ? IGNIS_OK : thread->latest;
}

IGNIS__PRINTF(2, 0)
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__failv(ignis__record cause, const char *format, va_list args)
{
    const char *log = cause.log ? cause.log : "";
    char *said = NULL, beginning[sizeof cause.text];
    ignis__string_writer text;
    int round;

    cause.status = ignis__diagnostics[cause.diagnostic].status;
    ignis__string_begin(&text, beginning, sizeof beginning);
    for (round = 0; round < 2; round++) { /* the first round measures */
        va_list again;
        va_copy(again, args);
        ignis__string_add(&text, "%s: ", cause.call);
        ignis__string_addv(&text, format, again);
        ignis__string_add_outer_calls(&text, ignis__this_thread.inside, cause.call);
        va_end(again);
        if (round == 1 || text.length < sizeof beginning || (said = (char *)malloc(text.length + 1)) == NULL)
            break;
        ignis__string_begin(&text, said, text.length + 1);
    }
    ignis__string_begin(&text, cause.text, sizeof cause.text);
    ignis__string_add_message(&text, said ? said : beginning, log);
    if (text.length >= sizeof cause.text || *log)
        cause.message = (char *)malloc(text.length + 1);
    if (cause.message) {
        ignis__string_begin(&text, cause.message, text.length + 1);
        ignis__string_add_message(&text, said ? said : beginning, log);
    }
    free(said);
    cause.log = cause.message && *log ? strchr(cause.message, '\n') + 1 : "";
    if (!cause.driver_name)
        cause.driver_name = "";
    if (!ignis__this_thread.quiet)
        ignis__log_write(IGNIS_LOG_ERROR, cause.diagnostic, ignis__record_text(&cause));
    return ignis__record_adopt(&cause);
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__fail(ignis_diagnostic diagnostic, const char *call, const char *format,
                                                    ...)
{
    ignis__record cause = IGNIS__ZERO;
    ignis_status status;
    va_list args;
    cause.diagnostic = diagnostic;
    cause.call = call;
    va_start(args, format);
    status = ignis__failv(cause, format, args);
    va_end(args);
    return status;
}

/*  Reports a failure and returns false: for checks. */
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE bool ignis__fail_false(ignis_diagnostic diagnostic, const char *call, const char *format,
                                                  ...)
{
    ignis__record cause = IGNIS__ZERO;
    va_list args;
    cause.diagnostic = diagnostic;
    cause.call = call;
    va_start(args, format);
    (void)ignis__failv(cause, format, args);
    va_end(args);
    return false;
}

IGNIS__PRINTF(6, 7)
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__fail_because(ignis_diagnostic diagnostic, const char *call, int error,
                                                            const char *name, const char *log, const char *format, ...)
{
    ignis__record cause = IGNIS__ZERO;
    ignis_status status;
    va_list args;
    cause.diagnostic = diagnostic;
    cause.call = call;
    cause.driver_error = error;
    cause.driver_name = name;
    cause.log = log;
    va_start(args, format);
    status = ignis__failv(cause, format, args);
    va_end(args);
    return status;
}

IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__fail_host_memory(const char *call, size_t size)
{
    return ignis__fail(IGNIS_DIAG_HOST_MEMORY, call, "out of host memory: %lld bytes were requested", (long long)size);
}

/*  Allocates zeroed memory. NULL, and reported, if out of memory. */
IGNIS__ONE_COPY IGNIS__PRIVATE void *ignis__alloc_for(const char *call, size_t size)
{
    void *memory = ignis__alloc(size);
    if (!memory)
        ignis__fail_host_memory(call, size);
    return memory;
}

IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__fail_null(const char *call, const char *argument)
{
    return ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "%s is null%s", argument,
                       strcmp(argument, "desc") == 0 ? " (in C++ {} is null, too)" : "");
}

/*  Checks that a required pointer is not NULL. False, and reported, if it is. */
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__check_not_null(const char *call, const char *name, const void *argument)
{
    if (!argument)
        ignis__fail_null(call, name);
    return argument != NULL;
}

/*  Checks the buffer of a call that fills an array of `capacity` items, which may be 0. */
IGNIS__PRIVATE bool ignis__check_capacity(const char *call, const char *name, const void *out, int capacity)
{
    if (capacity < 0)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    return capacity == 0 || ignis__check_not_null(call, name, out);
}

/*  Reports what the system has just refused to do with a file. */
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__fail_file(ignis_diagnostic diagnostic, const char *call,
                                                         const char *path, const char *what)
{
    char reason[256];
    ignis__system_error(reason, sizeof reason);
    return ignis__fail(diagnostic, call, "'%s' cannot be %s: %s", path, what, reason);
}

/*  Returns the status of this thread's latest failure. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__failed(void) { return ignis__this_thread.latest; }

/*  Reports a failure that every call has until ignis_setup succeeds: only the first one is logged. */
IGNIS__COLD static void ignis__fail_once(ignis_diagnostic diagnostic, const char *call, const char *why)
{
    ignis__record cause = IGNIS__ZERO;
    if (ignis__atomic_add(&ignis__global.refused, 1) == 1) {
        ignis__fail(diagnostic, call, "%s", why);
        return;
    }
    cause.status = ignis__diagnostics[diagnostic].status;
    cause.diagnostic = diagnostic;
    cause.call = call;
    cause.driver_name = cause.log = "";
    snprintf(cause.text, sizeof cause.text, "%s: %s", call, why);
    (void)ignis__record_adopt(&cause);
}

/*  Explains why Ignis cannot be called here. */
IGNIS__COLD static void ignis__enter_fail(const char *call)
{
    if (ignis__this_thread.called_back)
        ignis__fail(IGNIS_DIAG_INSIDE_CALLBACK, call,
                    "called inside a function given to ignis_stream_call, on a thread of the driver, where neither "
                    "Ignis nor CUDA can be "
                    "called");
    else if (ignis__atomic_load(&ignis__global.forked))
        ignis__fail_once(IGNIS_DIAG_FORKED, call,
                         "this process was forked after ignis_setup, and CUDA does not work across fork; exec a new "
                         "program instead");
    else if (ignis__this_thread.record.status == IGNIS_OK)
        ignis__fail_once(IGNIS_DIAG_NOT_SETUP, call, "ignis_setup has not been called, or ignis_shutdown has");
    else /* usually ignis_setup has failed and said why: one message is enough for all later calls */
        ignis__this_thread.latest = IGNIS_ERROR_NOT_SETUP;
}

/*  Checks that Ignis may be called. The first check of every public function. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__enter(const char *call)
{
    if (ignis__atomic_load(&ignis__global.ready) && !ignis__atomic_load(&ignis__global.forked) &&
        !ignis__this_thread.called_back)
        return true;
    ignis__enter_fail(call);
    return false;
}

IGNIS_API void ignis_call_site(const char *file, int line)
{
    ignis__this_thread.file = file;
    ignis__this_thread.line = line;
}

IGNIS_API ignis_status ignis_status_last(void) { return ignis__this_thread.record.status; }

IGNIS_API const char *ignis_status_message(void) { return ignis__record_text(&ignis__this_thread.record); }

IGNIS_API const char *ignis_status_latest_message(void)
{
    const ignis__thread *thread = &ignis__this_thread;
    return thread->latest_message ? thread->latest_message : ignis_status_message();
}

IGNIS__COLD IGNIS_API ignis_status ignis_status_query(ignis_status_info *info)
{
    const ignis__record *record = &ignis__this_thread.record;
    bool failed = record->status != IGNIS_OK;
    if (info) {
        info->status = record->status;
        info->diagnostic = record->diagnostic;
        info->call = failed ? record->call : "";
        info->message = ignis_status_message();
        info->driver_error = record->driver_error;
        info->driver_name = failed ? record->driver_name : "";
        info->log = failed ? record->log : "";
    }
    return record->status;
}

IGNIS__COLD IGNIS_API void ignis_status_clear(void)
{
    ignis__record_drop(&ignis__this_thread);
    ignis__latest_drop(&ignis__this_thread);
}

IGNIS__COLD IGNIS_API void ignis_status_begin(void)
{
    ignis__thread *thread = &ignis__this_thread;
    ignis__saved_failure *aside;
    thread->depth++;
    if (thread->record.status == IGNIS_OK)
        return;
    aside = (ignis__saved_failure *)malloc(sizeof *aside);
    if (!aside) {
        thread->stuck = thread->stuck ? thread->stuck : thread->depth;
        return;
    }
    aside->depth = thread->depth;
    aside->record = thread->record;
    aside->latest_message = thread->latest_message;
    aside->outer = thread->aside;
    thread->aside = aside;
    memset(&thread->record, 0, sizeof thread->record);
    thread->latest_message = NULL;
}

IGNIS__COLD IGNIS_API ignis_status ignis_status_end(void)
{
    ignis__thread *thread = &ignis__this_thread;
    ignis__saved_failure *aside = thread->aside && thread->aside->depth == thread->depth ? thread->aside : NULL;
    ignis_status status = thread->record.status;
    if (thread->depth == 0)
        return ignis__fail(IGNIS_DIAG_SCOPE_ORDER, "ignis_status_end", "no ignis_status_begin is open in this thread");
    if (aside) {
        ignis_status_clear();
        thread->record = aside->record;
        thread->latest_message = aside->latest_message;
        thread->aside = aside->outer;
        free(aside);
    } else if (!thread->stuck || thread->depth < thread->stuck) {
        ignis_status_clear();
    }
    if (--thread->depth < thread->stuck)
        thread->stuck = 0;
    return status;
}

IGNIS_API const char *ignis_status_name(ignis_status status)
{
    /* clang-format off */
    static const char *const names[] = {
        "IGNIS_OK",
#define IGNIS__STATUS_NAME(name, meaning) "IGNIS_ERROR_" #name,
        IGNIS_STATUSES(IGNIS__STATUS_NAME)
#undef IGNIS__STATUS_NAME
    };
    /* clang-format on */
    return (unsigned)status < IGNIS_STATUS_COUNT ? names[status] : "unknown status";
}

IGNIS_API const char *ignis_diagnostic_name(ignis_diagnostic diagnostic)
{
    return (unsigned)diagnostic < IGNIS_DIAG_COUNT ? ignis__diagnostics[diagnostic].name : "unknown diagnostic";
}

IGNIS_API const char *ignis_diagnostic_rule(ignis_diagnostic diagnostic)
{
    return (unsigned)diagnostic < IGNIS_DIAG_COUNT ? ignis__diagnostics[diagnostic].rule : "";
}

IGNIS_API const char *ignis_version_string(void)
{
#define IGNIS__TEXT_OF(x) #x
#define IGNIS__TEXT(x) IGNIS__TEXT_OF(x)
    return IGNIS__TEXT(IGNIS_VERSION_MAJOR) "." IGNIS__TEXT(IGNIS_VERSION_MINOR) "." IGNIS__TEXT(IGNIS_VERSION_PATCH);
}
