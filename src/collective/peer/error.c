/*  >>peer - other processes: connections, authentication, messages

    Errors below public functions, deadlines, and comparisons in constant time. Channels and jobs are built on this
    room. It uses the system and the floors of ignis.h below collective, never a channel or a device.
    Invariants: no function waits beyond its deadline; closing an object wakes whoever waits in it.
    Locks: none in this part. */

#include "room.h"

/*  Sets the error. Always returns false. */
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set(ignis__peer_error *error, ignis_diagnostic diagnostic,
                                                      const char *format, ...)
{
    va_list args;
    error->diagnostic = diagnostic;
    error->expected = false;
    va_start(args, format);
    vsnprintf(error->why, sizeof error->why, format, args);
    va_end(args);
    return false;
}

/*  Reports an error. An expected one is not logged, and a call that did not want to wait leaves no failure
    either. */
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__peer_error_report(const char *call, const ignis__peer_error *error)
{
    ignis__record before = ignis__this_thread.record;
    bool quiet = ignis__this_thread.quiet,
         forgotten = error->expected && error->diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT;
    ignis_status status;
    if (forgotten)
        memset(&ignis__this_thread.record, 0, sizeof before);
    ignis__this_thread.quiet = quiet || error->expected;
    status = ignis__fail(error->diagnostic, call, "%s", error->why);
    ignis__this_thread.quiet = quiet;
    if (forgotten) {
        ignis__record_drop(&ignis__this_thread);
        ignis__this_thread.record = before;
    }
    return status;
}

IGNIS__PRIVATE const ignis__deadline ignis__deadline_now = {0, NULL};

IGNIS__PRIVATE ignis__deadline ignis__deadline_at(int64_t deadline_ns)
{
    ignis__deadline until = {0, NULL};
    until.deadline_ns = deadline_ns;
    return until;
}

IGNIS__PRIVATE ignis__deadline ignis__deadline_in(int64_t ns) { return ignis__deadline_at(ignis__monotonic_ns() + ns); }

static bool ignis__deadline_is_stopped(const ignis__deadline *until)
{
    return until->stop && ignis__atomic_load(until->stop);
}

/*  Returns the milliseconds to wait before the next try; 0 if the deadline has passed. */
IGNIS__PRIVATE int ignis__deadline_slice_ms(const ignis__deadline *until, int most_ms)
{
    int64_t left_ns = until->deadline_ns ? until->deadline_ns - ignis__monotonic_ns() : 0;
    if (left_ns <= 0 || ignis__deadline_is_stopped(until))
        return 0;
    return left_ns / 1000000 >= most_ms ? most_ms : (int)(left_ns / 1000000) + 1;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set_timeout(ignis__peer_error *error, const ignis__deadline *until,
                                                              const char *what)
{
    if (ignis__deadline_is_stopped(until))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_FREED, "the channel was closed during the call");
    ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_TIMEOUT, until->deadline_ns ? "%s before the deadline" : "%s yet",
                          what);
    error->expected = until->deadline_ns == 0;
    return false;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set_lost(ignis__peer_error *error)
{
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_LOST, "the peer has closed the connection or died");
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set_memory(ignis__peer_error *error, size_t size)
{
    return ignis__peer_error_set(error, IGNIS_DIAG_HOST_MEMORY, "out of host memory: %lld bytes requested",
                                 (long long)size);
}

/*  Compares in a time that does not depend on the content. */
IGNIS__PRIVATE bool ignis__bytes_equal(const unsigned char *a, const unsigned char *b, size_t size)
{
    unsigned char difference = 0;
    while (size--)
        difference = (unsigned char)(difference | (*a++ ^ *b++));
    return difference == 0;
}
