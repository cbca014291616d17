// SPDX-License-Identifier: MIT
/*  processes.h - tests of several processes, on Windows: see tests/processes.h. The socket is one end of a pipe of
    messages; descriptors are handles, as those of channels are. */
#ifndef PROCESSES_WINDOWS_H
#define PROCESSES_WINDOWS_H

/* --- what tests of channels do with descriptors; those of others are the C library's ------------------------------ */

#ifdef IGNIS_COLLECTIVE_INCLUDED
#undef pipe
#undef dup
#undef close
#undef read
#undef write
#undef fcntl
#define pipe handle_pipe
#define dup handle_dup
#define close handle_close
#define read handle_read
#define write handle_write
#define fcntl handle_fcntl
#endif

static inline HANDLE handle_of(int fd) { return (HANDLE)(intptr_t)fd; }
static inline int handle_pipe(int ends[2])
{
    HANDLE in, out;
    if (!CreatePipe(&in, &out, NULL, 0))
        return -1;
    ends[0] = (int)(intptr_t)in, ends[1] = (int)(intptr_t)out;
    return 0;
}
static inline int handle_dup(int fd)
{
    HANDLE copy;
    if (!DuplicateHandle(GetCurrentProcess(), handle_of(fd), GetCurrentProcess(), &copy, 0, FALSE,
                         DUPLICATE_SAME_ACCESS))
        return -1;
    return (int)(intptr_t)copy;
}
static inline int handle_close(int fd) { return CloseHandle(handle_of(fd)) ? 0 : -1; }
static inline int handle_read(int fd, void *data, size_t size)
{
    DWORD got = 0;
    return ReadFile(handle_of(fd), data, (DWORD)size, &got, NULL) ? (int)got : -1;
}
static inline int handle_write(int fd, const void *data, size_t size)
{
    DWORD written = 0;
    return WriteFile(handle_of(fd), data, (DWORD)size, &written, NULL) ? (int)written : -1;
}
/*  F_GETFD: whether a child inherits it. */
static inline int handle_fcntl(int fd, int what)
{
    DWORD flags;
    if (what != F_GETFD || !GetHandleInformation(handle_of(fd), &flags))
        return -1;
    return flags & HANDLE_FLAG_INHERIT ? 0 : FD_CLOEXEC;
}

enum { SIGKILL = 9, PROCESS_KILLED = 0x7777 };
static inline int kill(int pid, int signal)
{
    HANDLE process = OpenProcess(PROCESS_TERMINATE, FALSE, (DWORD)pid);
    bool ok = process && TerminateProcess(process, PROCESS_KILLED);
    (void)signal;
    if (process)
        CloseHandle(process);
    return ok ? 0 : -1;
}

/* --- processes -----------------------------------------------------------------------------------------------------
   */

enum { PROCESS_SOCKET = -7, PROCESS_DEADLINE_S = 60 };

typedef struct process {
    int pid;
    int socket; /* a HANDLE, which fits */
    HANDLE handle;
} process;

static inline HANDLE process__pipe(int socket)
{
    return socket == PROCESS_SOCKET ? GetStdHandle(STD_INPUT_HANDLE) : handle_of(socket);
}

/*  Who is at the other end: of PROCESS_SOCKET the one who made it, else the child. */
static struct {
    int socket, pid;
} process__children[64];

static inline DWORD process__peer(int socket)
{
    ULONG pid = 0;
    int i;
    if (socket == PROCESS_SOCKET)
        GetNamedPipeServerProcessId(process__pipe(socket), &pid);
    for (i = 0; i < 64; i++)
        if (process__children[i].socket == socket)
            pid = (ULONG)process__children[i].pid;
    return pid;
}

static inline process process_start(const char *role)
{
    static int serial;
    process child = {-1, -1, NULL};
    char name[128], self[1024], line[1400];
    SECURITY_ATTRIBUTES inherit = {sizeof inherit, NULL, TRUE};
    STARTUPINFOA start;
    PROCESS_INFORMATION info;
    DWORD mode = PIPE_READMODE_MESSAGE;
    HANDLE ours, theirs;
    BOOL started = FALSE;
    int tries;
    snprintf(name, sizeof name, "\\\\.\\pipe\\ignis-test-%d-%d", (int)GetCurrentProcessId(), serial++);
    ours = CreateNamedPipeA(name, PIPE_ACCESS_DUPLEX | FILE_FLAG_FIRST_PIPE_INSTANCE,
                            PIPE_TYPE_MESSAGE | PIPE_READMODE_MESSAGE | PIPE_WAIT, 1, 65536, 65536, 0, NULL);
    if (ours == INVALID_HANDLE_VALUE)
        return child;
    theirs = CreateFileA(name, GENERIC_READ | GENERIC_WRITE, 0, &inherit, OPEN_EXISTING, 0, NULL);
    child.socket = (int)(intptr_t)ours;
    if (theirs == INVALID_HANDLE_VALUE)
        return child;
    SetNamedPipeHandleState(theirs, &mode, NULL, NULL);
    memset(&start, 0, sizeof start);
    start.cb = sizeof start;
    start.dwFlags = STARTF_USESTDHANDLES;
    start.hStdInput = theirs;
    start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
    start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
    GetModuleFileNameA(NULL, self, sizeof self);
    snprintf(line, sizeof line, "\"%s\" --role \"%s\"", self, role);
    for (tries = 0; tries < 3 && !started; tries++) { /* Wine on a busy machine may not start one of many */
        fflush(stdout);
        started = CreateProcessA(self, line, NULL, NULL, TRUE, 0, NULL, NULL, &start, &info);
        if (!started) {
            printf("CreateProcessA failed with error %lu: %s\n", (unsigned long)GetLastError(), line);
            Sleep(1000);
        }
    }
    if (started) {
        child.pid = (int)info.dwProcessId;
        child.handle = info.hProcess;
        process__children[serial % 64].socket = child.socket;
        process__children[serial % 64].pid = child.pid;
        CloseHandle(info.hThread);
    }
    CloseHandle(theirs);
    return child;
}

static inline const char *process_role(int argc, char **argv)
{
    return argc == 3 && strcmp(argv[1], "--role") == 0 ? argv[2] : NULL;
}

static inline int process_end(process *child)
{
    DWORD code = PROCESS_KILLED;
    if (child->socket >= 0)
        CloseHandle(process__pipe(child->socket));
    if (!child->handle)
        return -1;
    WaitForSingleObject(child->handle, INFINITE);
    GetExitCodeProcess(child->handle, &code);
    CloseHandle(child->handle);
    return code == PROCESS_KILLED ? -1 : (int)code;
}

static inline void process_kill(process *child)
{
    TerminateProcess(child->handle, PROCESS_KILLED);
    process_end(child);
}

/*  A message, behind the number that the handle with it has in the other process (0: there is none). */
static inline bool process_send(int socket, const void *data, size_t size, int fd)
{
    char message[4096];
    HANDLE peer, there = NULL;
    DWORD written = 0;
    if (sizeof there + size > sizeof message)
        return false;
    if (fd >= 0) {
        peer = OpenProcess(PROCESS_DUP_HANDLE, FALSE, process__peer(socket));
        if (!peer ||
            !DuplicateHandle(GetCurrentProcess(), handle_of(fd), peer, &there, 0, FALSE, DUPLICATE_SAME_ACCESS))
            return false;
        CloseHandle(peer);
    }
    memcpy(message, &there, sizeof there);
    memcpy(message + sizeof there, data, size);
    return WriteFile(process__pipe(socket), message, (DWORD)(sizeof there + size), &written, NULL) &&
           written == sizeof there + size;
}

/*  From here on process_receive waits for as long as it takes. */
static bool process__patient;
static inline void process_patient(int socket) { (void)socket, process__patient = true; }

/*  Whether a message has come. */
static inline bool process_heard(int socket)
{
    DWORD there = 0;
    return PeekNamedPipe(process__pipe(socket), NULL, 0, NULL, &there, NULL) && there > 0;
}

static inline bool process_receive(int socket, void *data, size_t size, int *fd)
{
    char message[4096];
    HANDLE here = NULL;
    DWORD got = 0, there = 0;
    int left = 1000 * PROCESS_DEADLINE_S;
    if (fd)
        *fd = -1;
    while (PeekNamedPipe(process__pipe(socket), NULL, 0, NULL, &there, NULL) && there == 0 &&
           (process__patient || --left > 0))
        Sleep(1);
    if (left == 0 || !ReadFile(process__pipe(socket), message, sizeof message, &got, NULL) || got != sizeof here + size)
        return false;
    memcpy(&here, message, sizeof here);
    memcpy(data, message + sizeof here, size);
    if (here && fd)
        *fd = (int)(intptr_t)here;
    else if (here)
        CloseHandle(here);
    return true;
}

static inline bool process_meet(int socket)
{
    char byte = 1;
    return process_send(socket, &byte, 1, -1) && process_receive(socket, &byte, 1, NULL);
}

/*  Open handles of this process; Wine's GetProcessHandleCount counts none. */
static inline int process_descriptors(void)
{
    DWORD flags;
    int fd, count = 0;
    for (fd = 4; fd < 4096; fd += 4)
        count += GetHandleInformation(handle_of(fd), &flags) != 0;
    return count;
}

#endif /* PROCESSES_WINDOWS_H */
