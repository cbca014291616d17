/* --- a named pipe: one instance a client. It does not block; whoever waits looks again every millisecond.
   Its name is random, as the names of pipes are anybody's. Those who are to connect know it, or it lies in
   the name's file, which is the path then. */

static bool ignis__pipe_trouble(ignis__trouble *trouble, const char *what)
{
    DWORD error = GetLastError();
    if (error == ERROR_BROKEN_PIPE || error == ERROR_PIPE_NOT_CONNECTED || error == ERROR_NO_DATA)
        return ignis__trouble_lost(trouble);
    return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "%s: Windows error %lu", what, error);
}

static const char ignis__pipe_prefix[] = "\\\\.\\pipe\\ignis-"; /* of this machine */
static void ignis__pipe_path(char path[IGNIS__PATH_MAX], uint64_t place)
{
    snprintf(path, IGNIS__PATH_MAX, "%s%016llx", ignis__pipe_prefix, (unsigned long long)place);
}
static bool ignis__pipe_named(const char *path)
{
    return strncmp(path, ignis__pipe_prefix, sizeof ignis__pipe_prefix - 1) != 0;
}

static bool ignis__pipe_listen(ignis__trouble *trouble, ignis__listener *listener)
{
    (void)trouble;
    if (ignis__pipe_named(listener->path))
        ignis__pipe_path(listener->path, listener->place);
    return true;
}

static bool ignis__pipe_accept(ignis__trouble *trouble, ignis__listener *listener, ignis__wire *fresh)
{
    SECURITY_ATTRIBUTES security;
    if (listener->pending_count > 0 && listener->pending[listener->pending_count - 1].since_ns == 0)
        return false; /* nobody has come to the last one yet */
    security.nLength = (DWORD)sizeof security;
    security.bInheritHandle = FALSE;
    security.lpSecurityDescriptor = ignis__security_descriptor();
    if (!security.lpSecurityDescriptor)
        return ignis__pipe_trouble(trouble, "the user's security descriptor");
    fresh->in = fresh->out = CreateNamedPipeA(
        fresh->path, PIPE_ACCESS_DUPLEX | (listener->arrivals == 0 ? FILE_FLAG_FIRST_PIPE_INSTANCE : 0),
        PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_NOWAIT | PIPE_REJECT_REMOTE_CLIENTS, PIPE_UNLIMITED_INSTANCES,
        IGNIS__WIRE_RING, IGNIS__WIRE_RING, 0, &security);
    return fresh->in != IGNIS__NO_FILE || ignis__pipe_trouble(trouble, fresh->path);
}

static bool ignis__pipe_connected(ignis__wire *fresh)
{
    ULONG pid = 0;
    if (ConnectNamedPipe(fresh->in, NULL) ||
        (GetLastError() != ERROR_PIPE_CONNECTED && GetLastError() != ERROR_NO_DATA))
        return false;
    if (GetNamedPipeClientProcessId(fresh->in, &pid))
        fresh->peer_pid = (int64_t)pid;
    return true;
}

static bool ignis__pipe_connect(ignis__trouble *trouble, ignis__wire *wire, bool *again)
{
    DWORD mode = PIPE_READMODE_BYTE | PIPE_NOWAIT;
    ULONG pid = 0;
    ignis__name_record record;
    if (ignis__pipe_named(wire->path)) {
        *again = !ignis__name_file_read(wire->path, &record, sizeof record);
        if (*again)
            return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "there is no server in %s", wire->path);
        ignis__pipe_path(wire->path, record.place);
    }
    wire->in = wire->out = CreateFileA(wire->path, GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING,
                                       SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION, NULL);
    *again = wire->in != IGNIS__NO_FILE || GetLastError() == ERROR_FILE_NOT_FOUND || GetLastError() == ERROR_PIPE_BUSY;
    if (wire->in == IGNIS__NO_FILE || !SetNamedPipeHandleState(wire->in, &mode, NULL, NULL) ||
        !GetNamedPipeServerProcessId(wire->in, &pid))
        return ignis__pipe_trouble(trouble, wire->path);
    wire->peer_pid = (int64_t)pid;
    return true;
}

static int64_t ignis__pipe_write(ignis__trouble *trouble, ignis__wire *wire)
{
    DWORD written = 0;
    if (WriteFile(wire->out, wire->outbox + wire->outbox_done, (DWORD)(wire->outbox_size - wire->outbox_done), &written,
                  NULL))
        return (int64_t)written;
    ignis__pipe_trouble(trouble, "WriteFile");
    return -1;
}

static int64_t ignis__pipe_read(ignis__trouble *trouble, ignis__wire *wire, void *data, size_t size)
{
    DWORD got = 0, available = 0;
    if (PeekNamedPipe(wire->in, NULL, 0, NULL, &available, NULL) ? available == 0 : GetLastError() != ERROR_BROKEN_PIPE)
        return 0; /* nothing, or nobody is there yet */
    if (ReadFile(wire->in, data, (DWORD)size, &got, NULL) || GetLastError() == ERROR_NO_DATA)
        return (int64_t)got;
    ignis__pipe_trouble(trouble, "ReadFile");
    return -1;
}

static bool ignis__pipe_wait(ignis__trouble *trouble, ignis__wire *wire, bool to_write, const ignis__until *until,
                             const char *what)
{
    (void)wire, (void)to_write;
    if (ignis__until_slice(until, 1) == 0)
        return ignis__trouble_late(trouble, until, what);
    ignis__sleep_us(1000);
    return true;
}

static bool ignis__pipe_alive(ignis__wire *wire)
{
    bool ended = wire->process != IGNIS__NO_FILE && WaitForSingleObject(wire->process, 0) == WAIT_OBJECT_0;
    return !ended && PeekNamedPipe(wire->in, NULL, 0, NULL, NULL, NULL) != 0;
}

static void ignis__pipe_take_back(const ignis__wire *wire, const uint64_t *numbers, int count)
{
    while (count > 0)
        DuplicateHandle(wire->process, (HANDLE)(uintptr_t)numbers[--count], NULL, NULL, 0, FALSE,
                        DUPLICATE_CLOSE_SOURCE);
}

static bool ignis__pipe_give(ignis__trouble *trouble, const ignis__wire *wire, const int *fds, int count,
                             uint64_t *numbers)
{
    HANDLE made;
    int i;
    if (wire->process == IGNIS__NO_FILE) /* a number that stands for this process itself */
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "process %lld lets us put no handles into it",
                                  (long long)wire->peer_pid);
    for (i = 0; i < count; i++) {
        if (!DuplicateHandle(GetCurrentProcess(), ignis__fd_handle(fds[i]), wire->process, &made, 0, FALSE,
                             DUPLICATE_SAME_ACCESS)) {
            DWORD error = GetLastError();
            ignis__pipe_take_back(wire, numbers, i);
            if (WaitForSingleObject(wire->process, 0) == WAIT_OBJECT_0)
                return ignis__trouble_lost(trouble);
            return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO,
                                      "a handle cannot be given to process %lld: Windows error %lu",
                                      (long long)wire->peer_pid, error);
        }
        numbers[i] = (uint64_t)(uintptr_t)made;
    }
    return true;
}

/* clang-format off */
static const ignis__wire_kind ignis__wire_pipe = {
    IGNIS_CHANNEL_PIPE, "pipe", false, true, ignis__pipe_listen, ignis__pipe_accept, ignis__pipe_connected, ignis__pipe_connect,
    ignis__pipe_write, ignis__pipe_read, ignis__pipe_wait, ignis__pipe_alive, NULL, NULL, ignis__pipe_give, ignis__pipe_take_back};
/* clang-format on */
static const ignis__wire_kind *const ignis__wire_kinds[] = {&ignis__wire_pipe, NULL, &ignis__wire_pipe, NULL};
