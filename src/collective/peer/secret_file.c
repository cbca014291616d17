/*  >>peer.secret_file - files of names, which hold secrets

    Gives a name to one live server of this user, and its secret to clients of this user.
    Uses: the private folder, the system's file locks.
    Invariants: the server keeps the file locked, so a name is free when its server has died.
    Locks: the lock of the file. */

#include "room.h"

#ifdef _WIN32

IGNIS__PRIVATE bool ignis__name_file_lock(ignis__peer_error *error, const char *path, ignis__file *file)
{
    int tries;
    for (tries = 0; tries < 100; tries++) {
        *file = ignis__file_handle(path, GENERIC_READ | GENERIC_WRITE | DELETE, FILE_SHARE_READ, CREATE_ALWAYS,
                                   FILE_ATTRIBUTE_NORMAL | FILE_FLAG_DELETE_ON_CLOSE);
        if (*file != IGNIS__NO_FILE)
            return true;
        if (GetLastError() != ERROR_ACCESS_DENIED)
            break;
        ignis__sleep_us(1000); /* another process reads the file of a dead server */
    }
    if (GetLastError() == ERROR_SHARING_VIOLATION)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "a live server already has the name: %s", path);
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%s: Windows error %lu", path, GetLastError());
}
IGNIS__PRIVATE bool ignis__name_file_write(ignis__file file, const void *data, size_t size)
{
    DWORD written = 0;
    return WriteFile(file, data, (DWORD)size, &written, NULL) && written == size;
}
IGNIS__PRIVATE bool ignis__name_file_read(const char *path, void *data, size_t size)
{
    DWORD got = 0;
    HANDLE file = ignis__file_handle(path, GENERIC_READ, IGNIS__SHARE_ALL, OPEN_EXISTING, 0);
    bool ok = file != INVALID_HANDLE_VALUE && ReadFile(file, data, (DWORD)size, &got, NULL) && got == size;
    if (file != INVALID_HANDLE_VALUE)
        CloseHandle(file);
    return ok;
}
IGNIS__PRIVATE void ignis__name_file_delete(const char *path) { (void)path; } /* deleted with its handle */

#else /* POSIX */

IGNIS__PRIVATE bool ignis__name_file_lock(ignis__peer_error *error, const char *path, ignis__file *file)
{
    struct stat info, now;
    int tries;
    for (tries = 0; tries < 100; tries++) {
        int fd = ignis__fd_register(open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
        bool ours;
        if (fd < 0 || fstat(fd, &info) != 0) {
            ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%s: %s", path, strerror(errno));
            ignis__peer_file_close(&fd);
            return false;
        }
        ours = S_ISREG(info.st_mode) && ignis__stat_is_ours(&info);
        if (ours && flock(fd, LOCK_EX | LOCK_NB) == 0 && lstat(path, &now) == 0 && now.st_ino == info.st_ino &&
            now.st_dev == info.st_dev) {
            *file = fd;
            return true;
        }
        ignis__peer_file_close(&fd);
        if (!ours)
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO,
                                         "%s must be a regular file of this user with mode 0600", path);
        ignis__sleep_us(1000); /* the previous server may be closing */
    }
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "a live server already has the name: %s is locked",
                                 path);
}
IGNIS__PRIVATE bool ignis__name_file_write(ignis__file file, const void *data, size_t size)
{
    return ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size;
}
IGNIS__PRIVATE bool ignis__name_file_read(const char *path, void *data, size_t size)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info;
    bool ok = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && ignis__stat_is_ours(&info) &&
              read(fd, data, size) == (ssize_t)size;
    if (fd >= 0)
        close(fd);
    return ok;
}
IGNIS__PRIVATE void ignis__name_file_delete(const char *path) { (void)unlink(path); }

#endif
