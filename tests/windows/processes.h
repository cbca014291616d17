// SPDX-License-Identifier: MIT
/*  processes.h - tests of several processes, on Windows: see tests/processes.h. The socket is one end of a pipe of messages. */
#ifndef PROCESSES_WINDOWS_H
#define PROCESSES_WINDOWS_H

enum { PROCESS_SOCKET = -7, PROCESS_DEADLINE_S = 60, PROCESS_KILLED = 0x7777 };

typedef struct process {
    int pid;
    int socket; /* a HANDLE, which fits */
    HANDLE handle;
} process;

static inline HANDLE process__pipe(int socket)
{
    return socket == PROCESS_SOCKET ? GetStdHandle(STD_INPUT_HANDLE) : (HANDLE)(intptr_t)socket;
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
    snprintf(name, sizeof name, "\\\\.\\pipe\\ignis-test-%d-%d", (int)GetCurrentProcessId(), serial++);
    ours = CreateNamedPipeA(name, PIPE_ACCESS_DUPLEX | FILE_FLAG_FIRST_PIPE_INSTANCE, PIPE_TYPE_MESSAGE | PIPE_READMODE_MESSAGE | PIPE_WAIT,
                            1, 65536, 65536, 0, NULL);
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
    fflush(stdout);
    if (CreateProcessA(self, line, NULL, NULL, TRUE, 0, NULL, NULL, &start, &info)) {
        child.pid = (int)info.dwProcessId;
        child.handle = info.hProcess;
        CloseHandle(info.hThread);
    }
    CloseHandle(theirs);
    return child;
}

static inline const char *process_role(int argc, char **argv) { return argc == 3 && strcmp(argv[1], "--role") == 0 ? argv[2] : NULL; }

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

static inline bool process_send(int socket, const void *data, size_t size, int fd)
{
    DWORD written = 0;
    return fd < 0 && WriteFile(process__pipe(socket), data, (DWORD)size, &written, NULL) && written == size;
}

static inline bool process_receive(int socket, void *data, size_t size, int *fd)
{
    DWORD got = 0, there = 0;
    int left = 1000 * PROCESS_DEADLINE_S;
    if (fd)
        *fd = -1;
    while (PeekNamedPipe(process__pipe(socket), NULL, 0, NULL, &there, NULL) && there == 0 && --left > 0)
        Sleep(1);
    return left > 0 && ReadFile(process__pipe(socket), data, (DWORD)size, &got, NULL) && got == size;
}

static inline bool process_meet(int socket)
{
    char byte = 1;
    return process_send(socket, &byte, 1, -1) && process_receive(socket, &byte, 1, NULL);
}

/*  Open handles of this process. */
static inline int process_descriptors(void)
{
    DWORD count = 0;
    GetProcessHandleCount(GetCurrentProcess(), &count);
    return (int)count;
}

#endif /* PROCESSES_WINDOWS_H */
