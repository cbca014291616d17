/*  >>peer.system_windows - Windows: handles, waits, the private folder

    The functions of the system for connections; system_posix.c has the same names.
    Uses: Windows.
    Invariants: an int descriptor is a handle (vmm.system_windows).
    Locks: none. */

#include "room.h"

IGNIS__PRIVATE void ignis__peer_file_close(ignis__file *file)
{
    if (*file != IGNIS__NO_FILE)
        CloseHandle(*file);
    *file = IGNIS__NO_FILE;
}
IGNIS__PRIVATE void ignis__fd_close(int *fd)
{
    if (*fd > 0)
        CloseHandle(ignis__fd_handle(*fd));
    *fd = -1;
}
IGNIS__PRIVATE void ignis__fds_close(const int *fds, int count)
{
    while (count > 0)
        CloseHandle(ignis__fd_handle(fds[--count]));
}
IGNIS__PRIVATE bool ignis__fd_is_open(int fd)
{
    DWORD flags;
    return fd > 0 && GetHandleInformation(ignis__fd_handle(fd), &flags);
}

/*  Sets errno from the last call's error, as POSIX does. */
IGNIS__PRIVATE bool ignis__errno_set(void)
{
    DWORD error = GetLastError();
    errno = error == ERROR_NOT_ENOUGH_MEMORY || error == ERROR_COMMITMENT_LIMIT ? ENOMEM
            : error == ERROR_ACCESS_DENIED                                      ? EACCES
            : error == ERROR_INVALID_HANDLE                                     ? EBADF
                                                                                : EIO;
    return false;
}

/*  A condition variable with deadlines. */
IGNIS__PRIVATE bool ignis__condition_make(ignis__condition *condition)
{
    return InitializeConditionVariable(condition), true;
}
IGNIS__PRIVATE void ignis__condition_end(ignis__condition *condition) { (void)condition; }

/*  As ignis__condition_wait, with a deadline; may return early. False if the deadline has passed. */
IGNIS__PRIVATE bool ignis__condition_wait_until(ignis__condition *condition, ignis__mutex *mutex, int64_t deadline_ns)
{
    const ignis__deadline until = ignis__deadline_at(deadline_ns);
    int ms = ignis__deadline_slice_ms(&until, 1000);
    if (ms > 0)
        SleepConditionVariableSRW(condition, mutex, (DWORD)ms, 0);
    return ms > 0;
}

IGNIS__PRIVATE void ignis__sleep_us(int us) { Sleep((DWORD)((us + 999) / 1000)); }

IGNIS__PRIVATE bool ignis__random_bytes(void *out, size_t size) { return RtlGenRandom(out, (ULONG)size) != 0; }

/*  Creates the private folder. path: the wanted folder, or "" for the default; on return its path. A new
    folder is open to its user alone, as those in a user's profile are. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__private_folder(const char *call, char *path, size_t size)
{
    const char *home = ignis__env("IGNIS_COMM_DIR");
    WCHAR wide[IGNIS__WIDE];
    SECURITY_ATTRIBUTES security;
    int length = (int)strlen(path);
    security.nLength = (DWORD)sizeof security;
    security.bInheritHandle = FALSE;
    security.lpSecurityDescriptor = ignis__security_descriptor();
    if (length == 0) {
        bool given = home && *home;
        if (!given)
            home = ignis__env("LOCALAPPDATA");
        length = snprintf(path, size, "%s%s", home ? home : ".", given ? "" : "\\ignis");
    }
    if (length < 0 || (size_t)length >= size ||
        (!CreateDirectoryW(ignis__utf16(path, wide), &security) && GetLastError() != ERROR_ALREADY_EXISTS))
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call,
                                 "cannot create the folder %s, or its path exceeds %d bytes", path, (int)size - 1);
    return true;
}
