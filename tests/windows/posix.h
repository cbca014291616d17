// SPDX-License-Identifier: MIT
/*  posix.h - what the tests use of POSIX, on Windows

    Comes before everything else in a test that is compiled for Windows. What Windows has nothing of fails; tests that
    need it are skipped there by NEEDS_POSIX. */
#ifndef POSIX_H
#define POSIX_H

#include <direct.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <process.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/utime.h>
#include <time.h>

#ifndef __MINGW32__ /* the headers of Wine have none */
struct timespec {
    time_t tv_sec;
    long tv_nsec;
};
#endif

#define O_CLOEXEC 0
#define F_OK 0
#define AT_FDCWD (-100)
#define getpid _getpid
#define access _access
#define rmdir _rmdir
#define unlink _unlink
#define strtok_r strtok_s
#define mkdir(path, mode) ((void)(mode), _mkdir(path))

static inline int setenv(const char *name, const char *value, int overwrite)
{
    return !overwrite && getenv(name) ? 0 : _putenv_s(name, value);
}
static inline int unsetenv(const char *name) { return _putenv_s(name, ""); }

static inline char *mkdtemp(char *path)
{
    static int serial;
    char *end = path + strlen(path) - 6;
    int tries;
    (void)_mkdir("/tmp");
    for (tries = 0; tries < 64; tries++) { /* folders of programs that were stopped may be there */
        snprintf(end, 7, "%06x", (unsigned)(_getpid() * 64 + serial++) & 0xffffff);
        if (_mkdir(path) == 0)
            return path;
    }
    return NULL;
}

static inline int utimensat(int folder, const char *path, const struct timespec *times, int flags)
{
    struct __utimbuf64 seconds = {times[0].tv_sec, times[1].tv_sec};
    (void)folder, (void)flags;
    return _utime64(path, &seconds);
}

#ifndef __MINGW32__ /* which has these */
typedef int pid_t;
#define CLOCK_MONOTONIC 1
union _LARGE_INTEGER;
__declspec(dllimport) int __stdcall QueryPerformanceCounter(union _LARGE_INTEGER *);
__declspec(dllimport) int __stdcall QueryPerformanceFrequency(union _LARGE_INTEGER *);
__declspec(dllimport) void __stdcall Sleep(unsigned long);
static inline int clock_gettime(int clock, struct timespec *time)
{
    long long now = 0, second = 1;
    (void)clock;
    QueryPerformanceCounter((union _LARGE_INTEGER *)&now);
    QueryPerformanceFrequency((union _LARGE_INTEGER *)&second);
    time->tv_sec = (time_t)(now / second);
    time->tv_nsec = (long)(now % second * 1000000000 / second);
    return 0;
}
static inline int nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    return Sleep((unsigned long)(time->tv_sec * 1000 + (time->tv_nsec + 999999) / 1000000)), 0;
}
static inline int truncate(const char *path, long long size)
{
    int file = _open(path, _O_RDWR | _O_BINARY), code = file < 0 ? -1 : _chsize_s(file, size);
    if (file >= 0)
        _close(file);
    return code == 0 ? 0 : -1;
}
#endif

enum { F_GETFD = 1, FD_CLOEXEC = 1 };
static inline int fcntl(int file, int what) { return (void)file, (void)what, -1; }
static inline int pipe(int ends[2]) { return ends[0] = ends[1] = -1; }

static inline int pause(void)
{
    const struct timespec second = {1, 0};
    for (;;)
        nanosleep(&second, NULL);
}

enum { RLIMIT_FSIZE, SIGXFSZ = 1 };
struct rlimit {
    long long rlim_cur, rlim_max;
};
static inline int getrlimit(int what, struct rlimit *limit) { return (void)what, memset(limit, 0, sizeof *limit), -1; }
static inline int setrlimit(int what, const struct rlimit *limit) { return (void)what, (void)limit, -1; }
static inline int mkfifo(const char *path, int mode) { return (void)path, (void)mode, -1; }
static inline int symlink(const char *to, const char *path) { return (void)to, (void)path, -1; }
static inline int fork(void) { return -1; }
static inline int waitpid(int child, int *status, int options) { return (void)child, (void)status, (void)options, -1; }
static inline int geteuid(void) { return 1; }
enum { _SC_NPROCESSORS_ONLN };
static inline long sysconf(int what)
{
    const char *count = getenv("NUMBER_OF_PROCESSORS");
    (void)what;
    return count ? atol(count) : 1;
}
#define WIFEXITED(status) ((status) == 0)
#define WEXITSTATUS(status) (status)
#ifndef S_ISREG
#define S_ISREG(mode) (((mode)&S_IFMT) == S_IFREG)
#endif

#endif /* POSIX_H */
