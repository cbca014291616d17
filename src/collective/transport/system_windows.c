/*  >>transport.system_windows - Windows: leases, exiting processes, shared memory

    The functions of the system for transports; system_posix.c has the same names.
    Uses: Windows.
    Invariants: named files do not exist: pipes carry handles.
    Locks: none. */

#include "room.h"

IGNIS__PRIVATE uint64_t ignis__host_hash(void)
{
    char name[MAX_COMPUTERNAME_LENGTH + 1];
    DWORD size = sizeof name;
    return GetComputerNameA(name, &size) ? ignis__hash(IGNIS__HASH_START, name, size) : 0;
}
IGNIS__PRIVATE uint32_t ignis__pid_namespace(void) { return 0; }

/*  Creates a lease. The array is in use while ends[1] is open in any process; then ends[0] is broken. */
IGNIS__PRIVATE bool ignis__lease_make(const char *path, int ends[2])
{
    HANDLE in = NULL, out = NULL;
    (void)path; /* a pipe carries all handles, and every channel is a pipe */
    if (!CreatePipe(&in, &out, NULL, 0))
        return ignis__errno_set();
    ends[0] = ignis__fd_of(in);
    ends[1] = ignis__fd_of(out);
    return true;
}
IGNIS__PRIVATE bool ignis__lease_is_over(int end)
{
    return !PeekNamedPipe(ignis__fd_handle(end), NULL, 0, NULL, NULL, NULL);
}

/*  A process has its exit code at once, but counts as ended when all its handles are closed. */
IGNIS__PRIVATE bool ignis__process_is_exiting(int64_t pid)
{
    HANDLE process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, FALSE, (DWORD)pid);
    DWORD code = STILL_ACTIVE;
    bool ending = process && GetExitCodeProcess(process, &code) && code != STILL_ACTIVE &&
                  WaitForSingleObject(process, 0) == WAIT_TIMEOUT;
    if (process)
        CloseHandle(process);
    return ending;
}

IGNIS__PRIVATE int ignis__fd_copy(int fd)
{
    HANDLE copy = NULL, self = GetCurrentProcess();
    if (fd > 0 && DuplicateHandle(self, ignis__fd_handle(fd), self, &copy, 0, FALSE, DUPLICATE_SAME_ACCESS))
        return ignis__fd_of(copy);
    return -1;
}
IGNIS__PRIVATE bool ignis__file_publish(const char *part, const char *path)
{
    WCHAR wide[2][IGNIS__WIDE];
    ignis__utf16(part, wide[0]), ignis__utf16(path, wide[1]);
    if (MoveFileExW(wide[0], wide[1], 0))
        return true;
    (void)ignis__file_remove(part);
    return false;
}

/*  Named files are not supported. */
IGNIS__PRIVATE int ignis__named_file_create(const char *path, int64_t size)
{
    return (void)path, (void)size, errno = ENOSYS, -1;
}
IGNIS__PRIVATE int ignis__named_file_open(const char *path, bool lease)
{
    return (void)path, (void)lease, errno = ENOSYS, -1;
}
IGNIS__PRIVATE bool ignis__named_file_exists(const char *path) { return (void)path, false; }

/*  Host memory that processes share; the system keeps its size. */
IGNIS__PRIVATE int ignis__shared_make(size_t size)
{
    HANDLE made = CreateFileMappingW(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE, (DWORD)((uint64_t)size >> 32),
                                     (DWORD)size, NULL);
    return made ? ignis__fd_of(made) : (ignis__errno_set(), -1);
}

IGNIS__PRIVATE void *ignis__shared_map(int fd, size_t size)
{
    void *data = MapViewOfFile(ignis__fd_handle(fd), FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, size);
    return data ? data : (ignis__errno_set(), (void *)NULL);
}
IGNIS__PRIVATE void ignis__shared_unmap(void *data, size_t size) { (void)size, UnmapViewOfFile(data); }

IGNIS__PRIVATE bool ignis__fd_transfer(int fd, void *data, int64_t size, int64_t offset, bool to_fd)
{
    const int64_t grain = 65536; /* granularity of offsets */
    int64_t first = offset % grain;
    char *mapped = (char *)MapViewOfFile(ignis__fd_handle(fd), to_fd ? FILE_MAP_WRITE : FILE_MAP_READ,
                                         (DWORD)((uint64_t)(offset - first) >> 32), (DWORD)(offset - first),
                                         (SIZE_T)(first + size));
    if (!mapped)
        return ignis__errno_set();
    if (to_fd)
        memcpy(mapped + first, data, (size_t)size);
    else
        memcpy(data, mapped + first, (size_t)size);
    UnmapViewOfFile(mapped);
    return true;
}

/*  Tells if memory has at least `size` bytes: without a file Windows rounds up to pages. */
IGNIS__PRIVATE bool ignis__fd_size_is(int fd, int64_t size)
{
    char last;
    return ignis__fd_transfer(fd, &last, 1, size - 1, false);
}
