static bool ignis__lookout_open(const char *call, ignis__lookout *lookout)
{
    lookout->bell = CreateEventW(NULL, FALSE, FALSE, NULL);
    return lookout->bell || ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call,
                                              "the system gives no event: Windows error %lu", GetLastError());
}
static void ignis__lookout_close(ignis__lookout *lookout)
{
    if (lookout->bell)
        CloseHandle(lookout->bell);
}
static void ignis__lookout_ring(const ignis__lookout *lookout) { SetEvent(lookout->bell); }

/*  Nothing of a pipe wakes who waits: it looks again, and less often with time. */
static void ignis__lookout_wait(ignis__lookout *lookout, int ms)
{
    bool any = false;
    int i;
    if (ms != 0) {
        lookout->pause_ms += lookout->pause_ms < 5;
        any = WaitForSingleObject(lookout->bell, (DWORD)(ms > 0 && ms < lookout->pause_ms ? ms : lookout->pause_ms)) ==
              WAIT_OBJECT_0;
    }
    for (i = 0; i < lookout->count; i++) {
        ignis__wire *wire = lookout->wire[i];
        DWORD available = 0;
        lookout->stirs[i] = wire && (!PeekNamedPipe(wire->in, NULL, 0, NULL, &available, NULL) || available > 0);
        any |= lookout->stirs[i] || (wire && ignis__atomic_load(&wire->unsent));
    }
    lookout->pause_ms = any ? 0 : lookout->pause_ms;
}

static bool ignis__watcher_start(ignis__thread_handle *thread, DWORD(WINAPI *run)(void *), void *context)
{
    return ignis__thread_start(thread, run, context);
}

/*  All ranks are on this host. */
#define IGNIS__WIRE_FAR (&ignis__wire_pipe)
#define IGNIS__OTHER_HOSTS "on Windows all ranks are on one host"

static uint64_t ignis__host_namespaces(uint64_t hash) { return hash; }

/*  A rank of this host waits at a pipe, and an id is of one, by the digits that its name ends with: whoever
    says so leads to no other place. */
static bool ignis__local_name(const char *folder, int rank, uint64_t random, char *out, size_t size)
{
    (void)folder, (void)rank;
    return snprintf(out, size, "%016llx", (unsigned long long)random) < (int)size;
}
static void ignis__local_path(const char *name, char path[IGNIS__PATH_MAX])
{
    ignis__pipe_path(path, strtoull(name, NULL, 16));
}

/*  Nobody listens before rank 0 comes. */
static bool ignis__id_listen(ignis__id *id, ignis__file *listener)
{
    uint64_t place = 0;
    *listener = IGNIS__NO_FILE;
    return ignis__random_bytes(&place, sizeof place) &&
           ignis__local_name("", 0, place, id->address, sizeof id->address);
}
