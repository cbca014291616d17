/* ===============================================================================================================
   >>status - the error record of each thread, the logger, names of statuses and diagnostics

   The first failure of a thread is kept until ignis_status_clear; the latest message is kept beside it. Every call
   of a driver goes through IGNIS_CALL_HOOK.
   May use: >>platform. Invariant: memory of a record comes from malloc, because it outlives ignis_shutdown.
   Locks: ignis__threads.lock guards the list of threads; no lock is taken under it. The logger is called with any
   locks held.
   =============================================================================================================== */

#include "room.h"

IGNIS__LOCAL(ignis__thread, ignis__this_thread, IGNIS__LOCAL_THREAD)

IGNIS__PRIVATE struct ignis__global_type ignis__global;

IGNIS__COLD IGNIS__PRIVATE void ignis__log_write(ignis_log_level level, ignis_diagnostic diagnostic,
                                                 const char *message)
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
IGNIS__COLD IGNIS__PRIVATE void ignis__string_add_message(ignis__string_writer *text, const char *message,
                                                          const char *log)
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
IGNIS__COLD IGNIS__PRIVATE void ignis__log_message(ignis_log_level level, ignis_diagnostic diagnostic, const char *log,
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

/* clang-format off */
IGNIS__PRIVATE const struct ignis__diagnostics_type ignis__diagnostics[] = {
    {"NONE", IGNIS_OK, ""},
#define IGNIS__DIAGNOSTIC_ROW(name, status, rule) {#name, IGNIS_ERROR_##status, rule},
    IGNIS_DIAGNOSTICS(IGNIS__DIAGNOSTIC_ROW)
#undef IGNIS__DIAGNOSTIC_ROW
};
/* clang-format on */

IGNIS__PRIVATE const char *ignis__record_text(const ignis__record *record)
{
    return record->message ? record->message : record->text;
}

IGNIS__PRIVATE void ignis__record_drop(ignis__thread *thread)
{
    free(thread->record.message);
    memset(&thread->record, 0, sizeof thread->record);
}

IGNIS__PRIVATE void ignis__latest_drop(ignis__thread *thread)
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

IGNIS__PRIVATE void ignis__unload(void);

/*  Registers the calling thread, which now owns memory of malloc. */
IGNIS__COLD IGNIS__PRIVATE void ignis__thread_register(ignis__thread *thread)
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
IGNIS__PRIVATE void ignis__messages_cut(ignis__thread *thread)
{
    ignis__latest_drop(thread);
    ignis__saved_failures_free(thread);
    free(thread->record.message);
    thread->record.message = NULL;
    thread->record.log = "";
}

/*  Frees the memory of all threads at ignis_shutdown, except the messages of the calling thread, which may still ask
    for them. */
IGNIS__PRIVATE void ignis__threads_close(void)
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
