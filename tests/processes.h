// SPDX-License-Identifier: MIT
/*  processes.h - tests of several processes: each is this program again, in a role, at one end of a socket

    TEST(x) { process child = process_start("role"); SETUP(NULL); ... CHECK_INT(process_end(&child), 0); }
    int main(argc, argv) { if (process_role(argc, argv)) return role(...); return test_run(argc, argv); }

    Start children before SETUP: CUDA does not survive fork. */
#ifndef PROCESSES_H
#define PROCESSES_H

#ifdef _WIN32
#include "windows/processes.h"
#else

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESS_SOCKET = 7, PROCESS_DEADLINE_S = 60 };

typedef struct process {
    pid_t pid;
    int socket;
} process;

/*  Runs this program as "program --role role"; its socket is PROCESS_SOCKET. */
static inline process process_start(const char *role)
{
    process child = {-1, -1};
    struct timeval deadline = {PROCESS_DEADLINE_S, 0};
    int sockets[2], i;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        return child;
    for (i = 0; i < 2; i++)
        setsockopt(sockets[i], SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
    fflush(stdout);
    child.pid = fork();
    if (child.pid == 0) {
        if (sockets[1] == PROCESS_SOCKET)
            fcntl(PROCESS_SOCKET, F_SETFD, 0);
        else
            dup2(sockets[1], PROCESS_SOCKET);
        execl("/proc/self/exe", "/proc/self/exe", "--role", role, (char *)NULL);
        _exit(99);
    }
    close(sockets[1]);
    child.socket = sockets[0];
    return child;
}

/*  The role of this process; null in the test itself. */
static inline const char *process_role(int argc, char **argv)
{
    return argc == 3 && strcmp(argv[1], "--role") == 0 ? argv[2] : NULL;
}

/*  Waits for a child: its exit code, -1 when it was killed. */
static inline int process_end(process *child)
{
    int status = 0;
    if (child->socket >= 0)
        close(child->socket);
    if (child->pid <= 0 || waitpid(child->pid, &status, 0) != child->pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static inline void process_kill(process *child)
{
    kill(child->pid, SIGKILL);
    process_end(child);
}

/*  One message with up to one descriptor (-1: none). */
static inline bool process_send(int socket, const void *data, size_t size, int fd)
{
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr message;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&message, 0, sizeof message);
    memset(&control, 0, sizeof control);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd >= 0) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

static inline bool process_receive(int socket, void *data, size_t size, int *fd)
{
    struct iovec part = {data, size};
    struct msghdr message;
    ssize_t received;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&message, 0, sizeof message);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.room;
    message.msg_controllen = sizeof control.room;
    if (fd)
        *fd = -1;
    do /* a process that was stopped and goes on is interrupted */
        received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    if (received != (ssize_t)size)
        return false;
    if (fd && message.msg_controllen >= CMSG_LEN(sizeof *fd) && control.header.cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(&control.header), sizeof *fd);
    return true;
}

/*  From here on process_receive waits for as long as it takes. */
static inline void process_patient(int socket)
{
    const struct timeval forever = {0, 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
}

/*  Whether a message has come. */
static inline bool process_heard(int socket)
{
    char byte;
    return recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/*  Two processes at the same point: each sends a byte, and waits for the other's. */
static inline bool process_meet(int socket)
{
    char byte = 1;
    return process_send(socket, &byte, 1, -1) && process_receive(socket, &byte, 1, NULL);
}

/*  Open descriptors of this process. */
static inline int process_descriptors(void)
{
    int fd, count = 0;
    for (fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

#endif

/*  For `make coverage`: a process that is killed later does not write what it has counted. */
static inline void process_counts_write(void)
{
#ifndef _WIN32
    extern void test_counts_write(void) __attribute__((weak)); /* of coverage.c */
    if (test_counts_write)
        test_counts_write();
#endif
}

/*  Fails the test when each run of a piece of work leaves descriptors open. The driver keeps some of its own when it
    does a thing for the first time, and MinGW's threads an event for each of their locks that two threads once wanted,
    so one run that leaves nothing is enough. */
static inline void process_leaves_no_descriptor(void (*work)(void))
{
    int run, before, after = process_descriptors();
    for (run = 0; run < 5; run++) {
        before = after;
        work();
        after = process_descriptors();
        if (after <= before)
            return;
    }
    CHECK_INT(after, before);
}

#endif /* PROCESSES_H */
