/*  >>job.system_windows - Windows: the poller, the watcher's thread, pipes of ranks

    The functions of the system for jobs; system_posix.c has the same names. All ranks are on one host.
    Uses: Windows, named pipes of channels.
    Locks: none. */

#include "room.h"

IGNIS__PRIVATE bool ignis__poller_open(const char *call, ignis__poller *poller)
{
    poller->bell = CreateEventW(NULL, FALSE, FALSE, NULL);
    return poller->bell || ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call,
                                             "the system returned no event: Windows error %lu", GetLastError());
}
IGNIS__PRIVATE void ignis__poller_close(ignis__poller *poller)
{
    if (poller->bell)
        CloseHandle(poller->bell);
}
IGNIS__PRIVATE void ignis__poller_wake(const ignis__poller *poller) { SetEvent(poller->bell); }

/*  Polls pipes, which cannot wake a waiter; less often with time. */
IGNIS__PRIVATE void ignis__poller_wait(ignis__poller *poller, int ms)
{
    bool any = false;
    int i;
    if (ms != 0) {
        poller->pause_ms += poller->pause_ms < 5;
        any = WaitForSingleObject(poller->bell, (DWORD)(ms > 0 && ms < poller->pause_ms ? ms : poller->pause_ms)) ==
              WAIT_OBJECT_0;
    }
    for (i = 0; i < poller->count; i++) {
        ignis__connection *connection = poller->connection[i];
        DWORD available = 0;
        poller->is_ready[i] =
            connection && (!PeekNamedPipe(connection->in, NULL, 0, NULL, &available, NULL) || available > 0);
        any |= poller->is_ready[i] || (connection && ignis__atomic_load(&connection->unsent));
    }
    poller->pause_ms = any ? 0 : poller->pause_ms;
}

IGNIS__PRIVATE bool ignis__watcher_start(ignis__thread_handle *thread, DWORD(WINAPI *run)(void *), void *context)
{
    return ignis__thread_start(thread, run, context);
}

IGNIS__PRIVATE uint64_t ignis__host_namespaces(uint64_t hash) { return hash; }

/*  Makes the name of the pipe where a rank waits, from the digits of a place. A false name leads to no other
    place. */
IGNIS__PRIVATE bool ignis__local_name(const char *folder, int rank, uint64_t random, char *out, size_t size)
{
    (void)folder, (void)rank;
    return snprintf(out, size, "%016llx", (unsigned long long)random) < (int)size;
}
IGNIS__PRIVATE void ignis__local_path(const char *name, char path[IGNIS__PATH_MAX])
{
    ignis__pipe_path(path, strtoull(name, NULL, 16));
}

/*  Does nothing: rank 0 opens the pipe of an id when it comes. */
IGNIS__PRIVATE bool ignis__id_listen(ignis__id *id, ignis__file *listener)
{
    uint64_t place = 0;
    *listener = IGNIS__NO_FILE;
    return ignis__random_bytes(&place, sizeof place) &&
           ignis__local_name("", 0, place, id->address, sizeof id->address);
}
