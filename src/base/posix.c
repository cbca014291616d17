/*  base/posix.c - threads, clock, environment, libraries and folders on POSIX systems

    Has the same functions as windows.c, one for one. May use: compiler.c, atomic.c.
    Locks: ignis__thread_exits.lock guards the key of the thread-exit handler alone. */

#include "room.h"

IGNIS__INLINE IGNIS__PRIVATE void ignis__mutex_init(ignis__mutex *mutex)
{
    static const ignis__mutex unlocked = IGNIS__MUTEX_INIT;
    memcpy(
        mutex, &unlocked,
        sizeof *mutex); /* as a variable of this type begins: each array's memory has one, and the call takes longer */
}
IGNIS__PRIVATE void ignis__mutex_lock(ignis__mutex *mutex) { pthread_mutex_lock(mutex); }
IGNIS__PRIVATE bool ignis__mutex_try(ignis__mutex *mutex) { return pthread_mutex_trylock(mutex) == 0; }
IGNIS__PRIVATE void ignis__mutex_unlock(ignis__mutex *mutex) { pthread_mutex_unlock(mutex); }

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__condition_wait(ignis__condition *condition, ignis__mutex *mutex)
{
    pthread_cond_wait(condition, mutex);
}
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__condition_wake(ignis__condition *condition)
{
    pthread_cond_broadcast(condition);
}

IGNIS__PRIVATE void ignis__rwlock_init(ignis__rwlock *lock) { pthread_rwlock_init(lock, NULL); }
IGNIS__PRIVATE void ignis__rwlock_read(ignis__rwlock *lock) { pthread_rwlock_rdlock(lock); }
IGNIS__PRIVATE void ignis__rwlock_read_end(ignis__rwlock *lock) { pthread_rwlock_unlock(lock); }
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__rwlock_write(ignis__rwlock *lock) { pthread_rwlock_wrlock(lock); }
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__rwlock_write_end(ignis__rwlock *lock) { pthread_rwlock_unlock(lock); }

IGNIS__PRIVATE bool ignis__thread_start(ignis__thread_handle *thread, void *(*run)(void *), void *context)
{
    return pthread_create(thread, NULL, run, context) == 0;
}
IGNIS__PRIVATE void ignis__thread_join(ignis__thread_handle thread) { pthread_join(thread, NULL); }
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__thread_detach(ignis__thread_handle thread) { pthread_detach(thread); }
IGNIS__PRIVATE int ignis__core_count(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }

static struct {
    ignis__mutex lock;
    bool made;
    pthread_key_t key;
} ignis__thread_exits = {IGNIS__MUTEX_INIT, false, 0};

/*  Calls release(value) when the calling thread ends. False if it cannot. */
IGNIS__PRIVATE bool ignis__at_thread_exit(void (*release)(void *), void *value)
{
    bool made;
    ignis__mutex_lock(&ignis__thread_exits.lock);
    if (!ignis__thread_exits.made)
        ignis__thread_exits.made = pthread_key_create(&ignis__thread_exits.key, release) == 0;
    made = ignis__thread_exits.made;
    ignis__mutex_unlock(&ignis__thread_exits.lock);
    return made && pthread_setspecific(ignis__thread_exits.key, value) == 0;
}

/*  Cancels all calls at thread exit. In a forked child the lock may never be released, so it is only tried. */
IGNIS__PRIVATE void ignis__thread_exits_close(void)
{
    if (!ignis__mutex_try(&ignis__thread_exits.lock))
        return;
    if (ignis__thread_exits.made)
        pthread_key_delete(ignis__thread_exits.key);
    ignis__thread_exits.made = false;
    ignis__mutex_unlock(&ignis__thread_exits.lock);
}

IGNIS__PRIVATE void ignis__at_unload(void (*unload)(void)) { (void)unload; }

IGNIS__PRIVATE void ignis__at_fork(void (*in_child)(void)) { pthread_atfork(NULL, NULL, in_child); }

IGNIS__INLINE static int64_t ignis__clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
#ifdef CLOCK_REALTIME_COARSE /* precise enough for ages of arrays, four times as fast */
IGNIS__PRIVATE int64_t ignis__wall_ns(void) { return ignis__clock_ns(CLOCK_REALTIME_COARSE); }
#else
IGNIS__PRIVATE int64_t ignis__wall_ns(void) { return ignis__clock_ns(CLOCK_REALTIME); }
#endif
IGNIS__PRIVATE int64_t ignis__monotonic_ns(void) { return ignis__clock_ns(CLOCK_MONOTONIC); }

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__stderr_is_terminal(void) { return isatty(2) != 0; }

/*  Returns an environment variable, NULL if it is unset. The only reader of the environment. A program with more
    rights than its user (setuid, setgid, file capabilities) reads none: the user must not choose its libraries, files
    or folders. */
IGNIS__PRIVATE const char *ignis__env(const char *name)
{
#if defined(__linux__)
    bool secure = getauxval(AT_SECURE) != 0;
#elif defined(__APPLE__) || defined(__FreeBSD__) || defined(__NetBSD__) || defined(__OpenBSD__) || \
    defined(__DragonFly__)
    bool secure = issetugid() != 0;
#else
    bool secure = getuid() != geteuid() || getgid() != getegid();
#endif
    return secure ? NULL : getenv(name);
}

IGNIS__PRIVATE void *ignis__library_open(const char *path, char *why, size_t why_size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(why, why_size, "%s", dlerror());
    return library;
}
IGNIS__PRIVATE void *ignis__library_symbol(void *library, const char *name) { return dlsym(library, name); }

/*  Calls visit(context, name) for every entry of a folder. False if the folder cannot be read. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__folder_list(const char *path, void (*visit)(void *context, const char *name),
                                                   void *context)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    if (!folder)
        return false;
    while ((entry = readdir(folder)) != NULL)
        visit(context, entry->d_name);
    closedir(folder);
    return true;
}
IGNIS__PRIVATE bool ignis__folder_make(const char *path) { return mkdir(path, 0700) == 0 || errno == EEXIST; }
IGNIS__PRIVATE bool ignis__file_rename(const char *from, const char *to) { return rename(from, to) == 0; }
IGNIS__PRIVATE bool ignis__file_remove(const char *path) { return remove(path) == 0; }
IGNIS__PRIVATE bool ignis__file_info(const char *path, int64_t *size, int64_t *time)
{
    struct stat info;
    struct timespec changed;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return false;
    *size = (int64_t)info.st_size;
#ifdef __APPLE__
    changed = info.st_mtimespec;
#else
    changed = info.st_mtim;
#endif
    *time = (int64_t)changed.tv_sec * 1000000000 + changed.tv_nsec;
    return true;
}
IGNIS__PRIVATE void ignis__file_touch(const char *path) { (void)utimensat(AT_FDCWD, path, NULL, 0); }
IGNIS__PRIVATE unsigned long ignis__process_id(void) { return (unsigned long)getpid(); }
