/*  base/windows.c - threads, clock, environment, libraries and folders on Windows

    Has the same functions as posix.c, one for one. Paths and variables are UTF-8 inside Ignis and UTF-16 for
    Windows.
    May use: compiler.c, atomic.c. Locks: ignis__local_slots.lock guards the two slots of thread-local storage. */

#include "room.h"

IGNIS__INLINE IGNIS__PRIVATE void ignis__mutex_init(ignis__mutex *mutex) { InitializeSRWLock(mutex); }
IGNIS__PRIVATE void ignis__mutex_lock(ignis__mutex *mutex) { AcquireSRWLockExclusive(mutex); }
IGNIS__PRIVATE bool ignis__mutex_try(ignis__mutex *mutex) { return TryAcquireSRWLockExclusive(mutex) != 0; }
IGNIS__PRIVATE void ignis__mutex_unlock(ignis__mutex *mutex) { ReleaseSRWLockExclusive(mutex); }

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__condition_wait(ignis__condition *condition, ignis__mutex *mutex)
{
    SleepConditionVariableSRW(condition, mutex, INFINITE, 0);
}
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__condition_wake(ignis__condition *condition)
{
    WakeAllConditionVariable(condition);
}

IGNIS__PRIVATE void ignis__rwlock_init(ignis__rwlock *lock) { InitializeSRWLock(lock); }
IGNIS__PRIVATE void ignis__rwlock_read(ignis__rwlock *lock) { AcquireSRWLockShared(lock); }
IGNIS__PRIVATE void ignis__rwlock_read_end(ignis__rwlock *lock) { ReleaseSRWLockShared(lock); }
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__rwlock_write(ignis__rwlock *lock) { AcquireSRWLockExclusive(lock); }
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__rwlock_write_end(ignis__rwlock *lock) { ReleaseSRWLockExclusive(lock); }

IGNIS__PRIVATE bool ignis__thread_start(ignis__thread_handle *thread, DWORD(WINAPI *run)(void *), void *context)
{
    *thread = CreateThread(NULL, 0, run, context, 0, NULL);
    return *thread != NULL;
}
IGNIS__PRIVATE void ignis__thread_join(ignis__thread_handle thread)
{
    WaitForSingleObject(thread, INFINITE);
    CloseHandle(thread);
}
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__thread_detach(ignis__thread_handle thread) { CloseHandle(thread); }
IGNIS__PRIVATE int ignis__core_count(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (int)info.dwNumberOfProcessors;
}

typedef struct ignis__locals {
    DWORD owner;
    void (*release)(void *);
    void *value;
    void *part[IGNIS__LOCAL_COUNT];
} ignis__locals;

IGNIS__PRIVATE struct ignis__local_slots_type ignis__local_slots = {IGNIS__MUTEX_INIT, 0, 0, 0, false};

static void WINAPI ignis__locals_end(void *pointer)
{
    ignis__locals *locals = (ignis__locals *)pointer;
    int i;
    if (!ignis__local_slots.closing) {
        if (locals->owner != GetCurrentThreadId())
            return;
        if (locals->release)
            locals->release(locals->value);
        TlsSetValue(ignis__local_slots.here, NULL);
    }
    for (i = 0; i < IGNIS__LOCAL_COUNT; i++)
        HeapFree(GetProcessHeap(), 0, locals->part[i]);
    HeapFree(GetProcessHeap(), 0, locals);
}

IGNIS__COLD static void *ignis__local_make(int which, size_t size)
{
    static uint64_t nowhere[2048]; /* shared by all threads if out of memory, which is better than a crash */
    ignis__locals *locals;
    void *part = NULL;
    ignis__mutex_lock(&ignis__local_slots.lock);
    if (!ignis__local_slots.made) {
        ignis__local_slots.here = TlsAlloc();
        ignis__local_slots.at_exit = FlsAlloc(ignis__locals_end);
        ignis__atomic_store(&ignis__local_slots.made, 1);
    }
    ignis__mutex_unlock(&ignis__local_slots.lock);
    locals = (ignis__locals *)TlsGetValue(ignis__local_slots.here);
    if (!locals && (locals = (ignis__locals *)HeapAlloc(GetProcessHeap(), HEAP_ZERO_MEMORY, sizeof *locals)) != NULL) {
        locals->owner = GetCurrentThreadId();
        TlsSetValue(ignis__local_slots.here, locals);
        FlsSetValue(ignis__local_slots.at_exit, locals);
    }
    if (locals)
        part = locals->part[which] = HeapAlloc(GetProcessHeap(), HEAP_ZERO_MEMORY, size);
    return part ? part : nowhere;
}

IGNIS__PRIVATE void *ignis__local(int which, size_t size)
{
    ignis__locals *locals =
        ignis__atomic_load(&ignis__local_slots.made) ? (ignis__locals *)TlsGetValue(ignis__local_slots.here) : NULL;
    return locals && locals->part[which] ? locals->part[which] : ignis__local_make(which, size);
}

/*  Calls release(value) when the calling thread ends, which has variables. False if it cannot. */
IGNIS__PRIVATE bool ignis__at_thread_exit(void (*release)(void *), void *value)
{
    ignis__locals *locals = (ignis__locals *)TlsGetValue(ignis__local_slots.here);
    if (!locals)
        return false;
    locals->release = release;
    locals->value = value;
    return true;
}

/*  Cancels all calls at thread exit. FlsFree calls back once for each thread with variables, to free them. */
IGNIS__PRIVATE void ignis__thread_exits_close(void)
{
    if (!ignis__local_slots.made)
        return;
    ignis__local_slots.closing = true;
    FlsFree(ignis__local_slots.at_exit);
    TlsFree(ignis__local_slots.here);
    ignis__local_slots.closing = false;
    ignis__local_slots.made = 0;
}

IGNIS__PRIVATE void ignis__at_unload(void (*unload)(void))
{
    static uint64_t told;
    HMODULE module = NULL;
    if (ignis__atomic_add(&told, 1) == 1 &&
        GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                           (LPCWSTR)(const void *)&ignis__local_slots, &module) &&
        module != GetModuleHandleW(NULL))
        (void)atexit(unload);
}

IGNIS__PRIVATE void ignis__at_fork(void (*in_child)(void)) { (void)in_child; }

IGNIS__PRIVATE int64_t ignis__wall_ns(void)
{
    FILETIME time; /* 100 ns ticks since 1601 */
    GetSystemTimeAsFileTime(&time);
    return ((int64_t)(((uint64_t)time.dwHighDateTime << 32) | time.dwLowDateTime) - 116444736000000000) * 100;
}
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__stderr_is_terminal(void) { return _isatty(2) != 0; }

IGNIS__PRIVATE int64_t ignis__monotonic_ns(void)
{
    LARGE_INTEGER count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    return count.QuadPart / frequency.QuadPart * 1000000000 +
           count.QuadPart % frequency.QuadPart * 1000000000 / frequency.QuadPart;
}

IGNIS__PRIVATE const WCHAR *ignis__utf16(const char *text, WCHAR out[IGNIS__WIDE])
{
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, out, IGNIS__WIDE) == 0)
        out[0] = 0;
    return out;
}

/*  Writes the reason of the latest failure of Windows. */
IGNIS__COLD IGNIS__PRIVATE void ignis__system_error(char *out, size_t size)
{
    DWORD error = GetLastError();
    WCHAR wide[256];
    char text[3 * 256];
    if (FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS | FORMAT_MESSAGE_MAX_WIDTH_MASK, NULL,
                       error, 0, wide, IGNIS__COUNT(wide), NULL) == 0 ||
        WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, sizeof text, NULL, NULL) == 0)
        text[0] = 0;
    snprintf(out, size, "%sWindows error %lu", text, error);
}

/*  Returns an environment variable, or NULL if it is unset or too long. Valid for the next seven calls on this
    thread. */
typedef struct ignis__env_texts {
    int next;
    char text[8][IGNIS__WIDE];
} ignis__env_texts;

IGNIS__PRIVATE const char *ignis__env(const char *name)
{
    ignis__env_texts *texts = (ignis__env_texts *)ignis__local(IGNIS__LOCAL_ENV, sizeof(ignis__env_texts));
    WCHAR wide[IGNIS__WIDE], value[IGNIS__WIDE];
    char *text = texts->text[texts->next++ & 7];
    DWORD length = GetEnvironmentVariableW(ignis__utf16(name, wide), value, IGNIS__WIDE);
    if (length >= IGNIS__WIDE || (length == 0 && GetLastError() == ERROR_ENVVAR_NOT_FOUND))
        return NULL;
    value[length] = 0;
    return WideCharToMultiByte(CP_UTF8, 0, value, -1, text, IGNIS__WIDE, NULL, NULL) > 0 ? text : NULL;
}

/*  Opens a library. A bare name is searched beside the program, in the system's folder and in those of
    AddDllDirectory; not in PATH or the current folder, where another user may have put one. Libraries that it needs
    are searched beside it, too. */
IGNIS__PRIVATE void *ignis__library_open(const char *path, char *why, size_t why_size)
{
    WCHAR wide[IGNIS__WIDE], whole[IGNIS__WIDE];
    bool is_path = strpbrk(path, "/\\") != NULL;
    HMODULE module = NULL;
    ignis__utf16(path, wide);
    if (!is_path)
        module = LoadLibraryExW(wide, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
    else if (GetFullPathNameW(wide, IGNIS__WIDE, whole, NULL) - 1 < IGNIS__WIDE - 1)
        module = LoadLibraryExW(whole, NULL, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
    if (!module)
        ignis__system_error(why, why_size);
    return (void *)module;
}
IGNIS__PRIVATE void *ignis__library_symbol(void *library, const char *name)
{
    void *symbol = NULL;
    FARPROC function = GetProcAddress((HMODULE)library, name);
    memcpy(&symbol, &function, sizeof symbol);
    return symbol;
}

/*  Calls visit(context, name) for every entry of a folder. False if the folder cannot be read. */
IGNIS__PRIVATE bool ignis__folder_list(const char *path, void (*visit)(void *context, const char *name), void *context)
{
    WCHAR pattern[IGNIS__WIDE + 2];
    WIN32_FIND_DATAW entry;
    char name[3 * MAX_PATH + 1];
    HANDLE find;
    int length = lstrlenW(ignis__utf16(path, pattern));
    if (length == 0)
        return false;
    pattern[length] = '\\';
    pattern[length + 1] = '*';
    pattern[length + 2] = 0;
    find = FindFirstFileW(pattern, &entry);
    if (find == INVALID_HANDLE_VALUE)
        return false;
    do
        if (WideCharToMultiByte(CP_UTF8, 0, entry.cFileName, -1, name, sizeof name, NULL, NULL) > 0)
            visit(context, name);
    while (FindNextFileW(find, &entry));
    FindClose(find);
    return true;
}
IGNIS__PRIVATE bool ignis__folder_make(const char *path)
{
    WCHAR wide[IGNIS__WIDE];
    return CreateDirectoryW(ignis__utf16(path, wide), NULL) || GetLastError() == ERROR_ALREADY_EXISTS;
}
/*  Renames a file. Windows cannot replace a file that somebody reads, so it tries for a second. */
IGNIS__PRIVATE bool ignis__file_rename(const char *from, const char *to)
{
    WCHAR wide[2][IGNIS__WIDE];
    int left = 200;
    ignis__utf16(from, wide[0]), ignis__utf16(to, wide[1]);
    while (!MoveFileExW(wide[0], wide[1], MOVEFILE_REPLACE_EXISTING)) {
        DWORD error = GetLastError();
        if ((error != ERROR_ACCESS_DENIED && error != ERROR_SHARING_VIOLATION) || --left == 0)
            return false;
        Sleep(5);
    }
    return true;
}
IGNIS__PRIVATE bool ignis__file_remove(const char *path)
{
    WCHAR wide[IGNIS__WIDE];
    return DeleteFileW(ignis__utf16(path, wide)) != 0;
}
IGNIS__PRIVATE HANDLE ignis__file_handle(const char *path, DWORD access, DWORD share, DWORD how, DWORD flags)
{
    WCHAR wide[IGNIS__WIDE];
    return CreateFileW(ignis__utf16(path, wide), access, share, NULL, how, flags, NULL);
}
IGNIS__PRIVATE bool ignis__file_info(const char *path, int64_t *size, int64_t *time)
{
    WCHAR wide[IGNIS__WIDE];
    WIN32_FILE_ATTRIBUTE_DATA data;
    if (!GetFileAttributesExW(ignis__utf16(path, wide), GetFileExInfoStandard, &data) ||
        (data.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY))
        return false;
    *size = (int64_t)(((uint64_t)data.nFileSizeHigh << 32) | data.nFileSizeLow);
    *time = (int64_t)(((uint64_t)data.ftLastWriteTime.dwHighDateTime << 32) | data.ftLastWriteTime.dwLowDateTime);
    return true;
}
IGNIS__PRIVATE void ignis__file_touch(const char *path)
{
    HANDLE file = ignis__file_handle(path, FILE_WRITE_ATTRIBUTES, IGNIS__SHARE_ALL, OPEN_EXISTING, 0);
    FILETIME now;
    if (file == INVALID_HANDLE_VALUE)
        return;
    GetSystemTimeAsFileTime(&now);
    SetFileTime(file, NULL, NULL, &now);
    CloseHandle(file);
}
IGNIS__PRIVATE unsigned long ignis__process_id(void) { return GetCurrentProcessId(); }
