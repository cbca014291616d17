/*  base/file_io.c - files: opened, read at offsets, written, flushed, renamed

    Also answers the question of security: may another user write to a file or folder whose content will run as a
    program?
    May use: posix.c or windows.c, text.c, host_memory.c. Failures are returned, not reported. Locks: none. */

#include "room.h"

/*  Creates a folder and its parents. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__folder_make_all(const char *path)
{
    char part[1024];
    size_t i, length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return false;
    for (i = 1; i < length; i++) {
        if (path[i] != '/' && path[i] != '\\')
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        (void)ignis__folder_make(part); /* may exist, or be a drive; the last one tells */
    }
    return ignis__folder_make(path);
}

/*  Files: read in chunks; flushed and renamed when written. */

#ifdef _WIN32

/*  Opens a regular file for reading and returns its size in *size. -1 if it cannot. Close it with ignis__file_close. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE int ignis__file_open(const char *path, int64_t *size)
{
    HANDLE file = ignis__file_handle(path, GENERIC_READ, IGNIS__SHARE_ALL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL);
    LARGE_INTEGER length;
    int descriptor = -1;
    if (file == INVALID_HANDLE_VALUE)
        return -1;
    if (GetFileType(file) == FILE_TYPE_DISK && GetFileSizeEx(file, &length))
        descriptor = _open_osfhandle((intptr_t)file, _O_RDONLY);
    if (descriptor < 0)
        CloseHandle(file);
    else
        *size = (int64_t)length.QuadPart;
    return descriptor;
}
/*  Reads `size` bytes at an offset. Returns the bytes read, fewer at the end of the file; -1 on failure. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE int64_t ignis__file_read_at(int file, int64_t at, void *out, int64_t size)
{
    int64_t done = 0;
    int got = 1;
    if (_lseeki64(file, at, SEEK_SET) < 0)
        return -1;
    for (; got > 0 && done < size; done += got)
        if ((got = _read(file, (char *)out + done, (unsigned)(size - done < 1 << 30 ? size - done : 1 << 30))) < 0)
            return -1;
    return done;
}
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__file_close(int file) { (void)_close(file); }

/*  Opens a file for writing. NULL on failure. */
IGNIS__PRIVATE FILE *ignis__file_create(const char *path, ignis__file_how how)
{
    static const DWORD dispositions[] = {CREATE_NEW, OPEN_ALWAYS, CREATE_ALWAYS, CREATE_NEW};
    HANDLE handle = ignis__file_handle(path, how == IGNIS__FILE_APPEND ? FILE_APPEND_DATA | SYNCHRONIZE : GENERIC_WRITE,
                                       IGNIS__SHARE_ALL, dispositions[how], FILE_ATTRIBUTE_NORMAL);
    int descriptor = handle == INVALID_HANDLE_VALUE ? -1 : _open_osfhandle((intptr_t)handle, _O_WRONLY | _O_BINARY);
    FILE *file = descriptor < 0 ? NULL : _fdopen(descriptor, "wb");
    if (descriptor >= 0 && !file)
        _close(descriptor);
    else if (handle != INVALID_HANDLE_VALUE && descriptor < 0)
        CloseHandle(handle);
    return file;
}
/*  Flushes a file to the disk. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__file_flush(FILE *file)
{
    return fflush(file) == 0 && _commit(_fileno(file)) == 0;
}
/*  Flushes the folder of a renamed file to the disk, so that the new name survives a crash. Windows cannot. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__folder_flush(const char *path_of_file) { (void)path_of_file; }
/*  Checks that no other user owns a file or may write to it. Folders of a user are private on Windows. */
static bool ignis__file_is_private(int file, char *why, size_t size) { return (void)file, (void)size, *why = 0, true; }
IGNIS__PRIVATE bool ignis__stream_is_private(FILE *file, char *why, size_t size)
{
    return (void)file, (void)size, *why = 0, true;
}
IGNIS__PRIVATE bool ignis__path_is_private(const char *path, char *why, size_t size)
{
    return (void)path, (void)size, *why = 0, true;
}
/*  Returns the file that a path names after following links. NULL if out of memory; NULL and *loop if the links form
    a loop. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE char *ignis__file_target(const char *path, bool *loop)
{
    return *loop = false, ignis__copy_string(path);
}
/*  Gives a new file the mode and owner of the file it will replace. On Windows the folder decides. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__file_inherit(FILE *file, const char *path) { (void)file, (void)path; }
/*  Checks whether a path names something other than a regular file, which must not be replaced. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__path_is_special(const char *path)
{
    WCHAR wide[IGNIS__WIDE];
    DWORD attributes = GetFileAttributesW(ignis__utf16(path, wide));
    return attributes != INVALID_FILE_ATTRIBUTES &&
           (attributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_DEVICE)) != 0;
}

#else /* POSIX */

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__system_error(char *out, size_t size)
{
    snprintf(out, size, "%s", strerror(errno));
}

/*  Opens a regular file for reading and returns its size in *size. -1 if it cannot. Close it with ignis__file_close. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE int ignis__file_open(const char *path, int64_t *size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not block */
    struct stat info;
    int error = 0;
    if (file < 0)
        return -1;
    if (fstat(file, &info) != 0)
        error = errno;
    else if (!S_ISREG(info.st_mode))
        error = EINVAL;
    else
        *size = (int64_t)info.st_size;
    if (error)
        close(file), file = -1;
    errno = error;
    return file;
}
/*  Reads `size` bytes at an offset. Returns the bytes read, fewer at the end of the file; -1 on failure. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE int64_t ignis__file_read_at(int file, int64_t at, void *out, int64_t size)
{
    int64_t done = 0;
    ssize_t got = 1;
    while (got > 0 && done < size) {
        got = pread(file, (char *)out + done, (size_t)(size - done), (off_t)(at + done));
        if (got < 0 && errno != EINTR)
            return -1;
        done += got > 0 ? got : 0;
        got = got < 0 ? 1 : got; /* interrupted: once more */
    }
    return done;
}
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__file_close(int file) { close(file); }

/*  Opens a file for writing. NULL on failure. */
IGNIS__PRIVATE FILE *ignis__file_create(const char *path, ignis__file_how how)
{
    static const int flags[] = {O_EXCL, O_APPEND | O_NOFOLLOW | O_NONBLOCK, O_TRUNC, O_EXCL},
                     modes[] = {0666, 0644, 0666, 0600};
    int descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags[how], modes[how]);
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
    if (descriptor >= 0 && !file)
        close(descriptor);
    return file;
}
/*  Flushes a file to the disk. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__file_flush(FILE *file)
{
    return fflush(file) == 0 && fsync(fileno(file)) == 0;
}
/*  Flushes the folder of a renamed file to the disk, so that the new name survives a crash. */
IGNIS__COLD IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__folder_flush(const char *path_of_file)
{
    const char *slash = strrchr(path_of_file, '/');
    size_t length = slash == path_of_file ? 1 : slash ? (size_t)(slash - path_of_file) : 1;
    char folder[1024];
    int descriptor;
    if (length >= sizeof folder)
        return;
    memcpy(folder, slash ? path_of_file : ".", length);
    folder[length] = 0;
    descriptor = open(folder, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return;
    (void)fsync(descriptor);
    close(descriptor);
}
/*  Checks that this user or root owns a file or folder, and that no other user may write to it. If not, `why` has the
    reason. */
IGNIS__COLD static bool ignis__stat_is_private(const struct stat *info, char *why, size_t size)
{
    *why = 0;
    if (info->st_uid != geteuid() && info->st_uid != 0)
        snprintf(why, size, "its owner is user %lu, and this process runs as user %lu", (unsigned long)info->st_uid,
                 (unsigned long)geteuid());
    else if (info->st_mode & 022)
        snprintf(why, size, "others may write to it (mode 0%o); chmod go-w it", (unsigned)info->st_mode & 07777);
    return *why == 0;
}
static bool ignis__file_is_private(int file, char *why, size_t size)
{
    struct stat info;
    *why = 0;
    if (fstat(file, &info) != 0)
        snprintf(why, size, "%s", strerror(errno));
    else if (!S_ISREG(info.st_mode))
        snprintf(why, size, "it is not a regular file");
    return *why == 0 && ignis__stat_is_private(&info, why, size);
}
IGNIS__PRIVATE bool ignis__stream_is_private(FILE *file, char *why, size_t size)
{
    return ignis__file_is_private(fileno(file), why, size);
}
/*  As ignis__stat_is_private, for a path. True if nothing is there. */
IGNIS__PRIVATE bool ignis__path_is_private(const char *path, char *why, size_t size)
{
    struct stat info;
    *why = 0;
    return stat(path, &info) != 0 || ignis__stat_is_private(&info, why, size);
}
/*  Returns the file that a path names after following links; it need not exist yet. NULL if out of memory; NULL and
    *loop if the links form a loop. */
IGNIS__COLD IGNIS__MAYBE_UNUSED IGNIS__PRIVATE char *ignis__file_target(const char *path, bool *loop)
{
    char link[4096], *at = ignis__copy_string(path);
    int round;
    *loop = false;
    for (round = 0; at; round++) {
        ssize_t length = readlink(at, link, sizeof link);
        const char *slash = strrchr(at, '/');
        size_t folder = length > 0 && link[0] != '/' && slash ? (size_t)(slash - at) + 1 : 0;
        char *next;
        if (length < 0)
            return at;
        *loop = round == 40 || length == (ssize_t)sizeof link;
        next = *loop ? NULL : (char *)ignis__alloc(folder + (size_t)length + 1);
        if (next) {
            memcpy(next, at, folder);
            memcpy(next + folder, link, (size_t)length);
        }
        ignis__free(at);
        at = next;
    }
    errno = *loop ? ELOOP : ENOMEM;
    return NULL;
}
/*  Gives a new file the mode and owner of the file it will replace, if there is one. If the group cannot be set, the
    group gets only the rights of others. */
IGNIS__COLD IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__file_inherit(FILE *file, const char *path)
{
    struct stat info;
    mode_t mode;
    if (stat(path, &info) != 0)
        return;
    mode = info.st_mode & 0777;
    if (fchown(fileno(file), info.st_uid, info.st_gid) != 0 && fchown(fileno(file), (uid_t)-1, info.st_gid) != 0)
        mode = (mode_t)((mode & 0707u) | (mode & (mode << 3) & 070u));
    (void)fchmod(fileno(file), mode);
}
/*  Checks whether a path names something other than a regular file, which must not be replaced. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__path_is_special(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

#endif

/*  Reads a whole regular file into memory of ignis__alloc. NULL if it cannot be read. With `why`, also NULL if other
    users own it or may write to it; *why has that reason, and is "" otherwise. */
IGNIS__COLD IGNIS__PRIVATE void *ignis__file_read_as(const char *path, size_t *size, char *why, size_t why_size)
{
    int64_t length = 0;
    int file = ignis__file_open(path, &length);
    bool taken = file >= 0 && (!why || ignis__file_is_private(file, why, why_size));
    void *data = taken ? ignis__alloc((size_t)length + 1) : NULL;
    if (why && file < 0)
        *why = 0;
    *size = (size_t)length;
    if (data && ignis__file_read_at(file, 0, data, length) != length) {
        ignis__free(data);
        data = NULL;
    }
    if (file >= 0)
        ignis__file_close(file);
    return data;
}

IGNIS__COLD IGNIS__PRIVATE void *ignis__file_read(const char *path, size_t *size)
{
    return ignis__file_read_as(path, size, NULL, 0);
}

/*  Returns a name for a file that will be renamed to `path`: in the same folder, and unique among threads and
    processes. The time distinguishes processes with the same id: in two containers, or after a restart. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE char *ignis__file_part_path(const char *path)
{
    static uint64_t serial;
    size_t size = strlen(path) + 80, name = strlen(path);
    char *part = (char *)ignis__alloc(size);
    while (name > 0 && path[name - 1] != '/' && path[name - 1] != '\\')
        name--;
    name += ignis__utf8_cut(path + name, 160); /* systems have names of up to 255 bytes */
    if (part)
        snprintf(part, size, "%.*s.%lu-%llu-%llx.ignis-part", (int)name, path, ignis__process_id(),
                 (unsigned long long)ignis__atomic_add(&serial, 1), (unsigned long long)ignis__wall_ns());
    return part;
}
