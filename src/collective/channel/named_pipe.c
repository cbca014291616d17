/*  >>channel.named_pipe - channels by a named pipe (Windows)

    Implements IGNIS_CHANNEL_PIPE: one pipe instance a client, without blocking; a waiter polls every
    millisecond. The name is random, since any process can create a pipe of any name. Clients know it or read
    it from the file of the name.
    Uses: connections, listeners, Windows.
    Invariants: only this user can open the pipe.
    Locks: none of its own. */

#include "room.h"

static bool ignis__pipe_error_set(ignis__peer_error *error, const char *what)
{
    DWORD os_error = GetLastError();
    if (os_error == ERROR_BROKEN_PIPE || os_error == ERROR_PIPE_NOT_CONNECTED || os_error == ERROR_NO_DATA)
        return ignis__peer_error_set_lost(error);
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%s: Windows error %lu", what, os_error);
}

static const char ignis__pipe_prefix[] = "\\\\.\\pipe\\ignis-"; /* of this machine */
IGNIS__PRIVATE void ignis__pipe_path(char path[IGNIS__PATH_MAX], uint64_t place)
{
    snprintf(path, IGNIS__PATH_MAX, "%s%016llx", ignis__pipe_prefix, (unsigned long long)place);
}
static bool ignis__pipe_path_valid(const char *path)
{
    return strncmp(path, ignis__pipe_prefix, sizeof ignis__pipe_prefix - 1) != 0;
}

static bool ignis__pipe_listen(ignis__peer_error *error, ignis__listener *listener)
{
    (void)error;
    if (ignis__pipe_path_valid(listener->path))
        ignis__pipe_path(listener->path, listener->place);
    return true;
}

IGNIS__PRIVATE bool ignis__pipe_accept(ignis__peer_error *error, ignis__listener *listener, ignis__connection *fresh)
{
    SECURITY_ATTRIBUTES security;
    if (listener->pending_count > 0 && listener->pending[listener->pending_count - 1].since_ns == 0)
        return false; /* no client has connected to the latest one yet */
    security.nLength = (DWORD)sizeof security;
    security.bInheritHandle = FALSE;
    security.lpSecurityDescriptor = ignis__security_descriptor();
    if (!security.lpSecurityDescriptor)
        return ignis__pipe_error_set(error, "the user's security descriptor");
    fresh->in = fresh->out = CreateNamedPipeA(
        fresh->path, PIPE_ACCESS_DUPLEX | (listener->arrivals == 0 ? FILE_FLAG_FIRST_PIPE_INSTANCE : 0),
        PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_NOWAIT | PIPE_REJECT_REMOTE_CLIENTS, PIPE_UNLIMITED_INSTANCES,
        IGNIS__RING_BYTES, IGNIS__RING_BYTES, 0, &security);
    return fresh->in != IGNIS__NO_FILE || ignis__pipe_error_set(error, fresh->path);
}

IGNIS__PRIVATE bool ignis__pipe_connected(ignis__connection *fresh)
{
    ULONG pid = 0;
    if (ConnectNamedPipe(fresh->in, NULL) ||
        (GetLastError() != ERROR_PIPE_CONNECTED && GetLastError() != ERROR_NO_DATA))
        return false;
    if (GetNamedPipeClientProcessId(fresh->in, &pid))
        fresh->peer_pid = (int64_t)pid;
    return true;
}

IGNIS__PRIVATE bool ignis__pipe_connect(ignis__peer_error *error, ignis__connection *connection, bool *again)
{
    DWORD mode = PIPE_READMODE_BYTE | PIPE_NOWAIT;
    ULONG pid = 0;
    ignis__name_record record;
    if (ignis__pipe_path_valid(connection->path)) {
        *again = !ignis__name_file_read(connection->path, &record, sizeof record);
        if (*again)
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "no server in %s", connection->path);
        ignis__pipe_path(connection->path, record.place);
    }
    connection->in = connection->out =
        CreateFileA(connection->path, GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING,
                    SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION, NULL);
    *again =
        connection->in != IGNIS__NO_FILE || GetLastError() == ERROR_FILE_NOT_FOUND || GetLastError() == ERROR_PIPE_BUSY;
    if (connection->in == IGNIS__NO_FILE || !SetNamedPipeHandleState(connection->in, &mode, NULL, NULL) ||
        !GetNamedPipeServerProcessId(connection->in, &pid))
        return ignis__pipe_error_set(error, connection->path);
    connection->peer_pid = (int64_t)pid;
    return true;
}

IGNIS__PRIVATE int64_t ignis__pipe_write(ignis__peer_error *error, ignis__connection *connection)
{
    DWORD written = 0;
    if (WriteFile(connection->out, connection->outbox + connection->outbox_done,
                  (DWORD)(connection->outbox_size - connection->outbox_done), &written, NULL))
        return (int64_t)written;
    ignis__pipe_error_set(error, "WriteFile");
    return -1;
}

IGNIS__PRIVATE int64_t ignis__pipe_read(ignis__peer_error *error, ignis__connection *connection, void *data,
                                        size_t size)
{
    DWORD got = 0, available = 0;
    if (PeekNamedPipe(connection->in, NULL, 0, NULL, &available, NULL) ? available == 0
                                                                       : GetLastError() != ERROR_BROKEN_PIPE)
        return 0; /* no bytes, or no client yet */
    if (ReadFile(connection->in, data, (DWORD)size, &got, NULL) || GetLastError() == ERROR_NO_DATA)
        return (int64_t)got;
    ignis__pipe_error_set(error, "ReadFile");
    return -1;
}

static bool ignis__pipe_wait(ignis__peer_error *error, ignis__connection *connection, bool to_write,
                             const ignis__deadline *until, const char *what)
{
    (void)connection, (void)to_write;
    if (ignis__deadline_slice_ms(until, 1) == 0)
        return ignis__peer_error_set_timeout(error, until, what);
    ignis__sleep_us(1000);
    return true;
}

static bool ignis__pipe_alive(ignis__connection *connection)
{
    bool ended = connection->process != IGNIS__NO_FILE && WaitForSingleObject(connection->process, 0) == WAIT_OBJECT_0;
    return !ended && PeekNamedPipe(connection->in, NULL, 0, NULL, NULL, NULL) != 0;
}

static void ignis__pipe_close_duplicates(const ignis__connection *connection, const uint64_t *numbers, int count)
{
    while (count > 0)
        DuplicateHandle(connection->process, (HANDLE)(uintptr_t)numbers[--count], NULL, NULL, 0, FALSE,
                        DUPLICATE_CLOSE_SOURCE);
}

static bool ignis__pipe_duplicate_handles(ignis__peer_error *error, const ignis__connection *connection, const int *fds,
                                          int count, uint64_t *numbers)
{
    HANDLE made;
    int i;
    if (connection->process == IGNIS__NO_FILE) /* the invalid handle is also the pseudo handle of this process */
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO,
                                     "process %lld does not allow handles to be duplicated into it",
                                     (long long)connection->peer_pid);
    for (i = 0; i < count; i++) {
        if (!DuplicateHandle(GetCurrentProcess(), ignis__fd_handle(fds[i]), connection->process, &made, 0, FALSE,
                             DUPLICATE_SAME_ACCESS)) {
            DWORD os_error = GetLastError();
            ignis__pipe_close_duplicates(connection, numbers, i);
            if (WaitForSingleObject(connection->process, 0) == WAIT_OBJECT_0)
                return ignis__peer_error_set_lost(error);
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO,
                                         "a handle cannot be duplicated into process %lld: Windows error %lu",
                                         (long long)connection->peer_pid, os_error);
        }
        numbers[i] = (uint64_t)(uintptr_t)made;
    }
    return true;
}

IGNIS__PRIVATE const ignis__connection_kind ignis__connection_pipe = {IGNIS_CHANNEL_PIPE,
                                                                      "pipe",
                                                                      false,
                                                                      true,
                                                                      ignis__pipe_listen,
                                                                      ignis__pipe_accept,
                                                                      ignis__pipe_connected,
                                                                      ignis__pipe_connect,
                                                                      ignis__pipe_write,
                                                                      ignis__pipe_read,
                                                                      ignis__pipe_wait,
                                                                      ignis__pipe_alive,
                                                                      NULL,
                                                                      NULL,
                                                                      ignis__pipe_duplicate_handles,
                                                                      ignis__pipe_close_duplicates};
IGNIS__PRIVATE const ignis__connection_kind *const ignis__connection_kinds[] = {&ignis__connection_pipe, NULL,
                                                                                &ignis__connection_pipe, NULL};
