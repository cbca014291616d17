// SPDX-License-Identifier: MIT
/*  start.c - what a compiler of Microsoft's kind expects of Microsoft's start-up library: enough to run the tests
    without it */
#include <windows.h>

int _fltused = 0x9875;
ULONG _tls_index;
#pragma section(".tls", read, write)
#pragma section(".tls$ZZZ", read, write)
#pragma section(".CRT$XCA", read)
#pragma section(".CRT$XCZ", read)
__declspec(allocate(".tls")) char _tls_start = 0;
__declspec(allocate(".tls$ZZZ")) char _tls_end = 0;
const IMAGE_TLS_DIRECTORY64 _tls_used = {
    (ULONGLONG)&_tls_start, (ULONGLONG)&_tls_end, (ULONGLONG)&_tls_index, 0, 0, {0}};

typedef void (*initializer)(void);
__declspec(allocate(".CRT$XCA")) initializer first_initializer[1] = {0};
__declspec(allocate(".CRT$XCZ")) initializer last_initializer[1] = {0};

extern int main(int, char **, char **);
extern __declspec(noreturn) void exit(int);
extern int *__p___argc(void);
extern char ***__p___argv(void);
extern int _configure_narrow_argv(int);
extern int _initialize_narrow_environment(void);

/*  The headers take atexit for a function of the C library; Microsoft's start-up library has it. */
extern int _crt_atexit(void (*)(void));
static int register_exit(void (*function)(void)) { return _crt_atexit(function); }
int (*__imp_atexit)(void (*)(void)) = register_exit;

/*  Touches the pages of a large frame one after the other, as the system gives the stack page by page. */
__attribute__((naked)) void __chkstk(void)
{
    __asm__("push %rcx\n push %rax\n cmp $0x1000, %rax\n lea 24(%rsp), %rcx\n jb 2f\n"
            "1: sub $0x1000, %rcx\n test %rcx, (%rcx)\n sub $0x1000, %rax\n cmp $0x1000, %rax\n ja 1b\n"
            "2: sub %rax, %rcx\n test %rcx, (%rcx)\n pop %rax\n pop %rcx\n ret");
}

void mainCRTStartup(void)
{
    initializer *next;
    _configure_narrow_argv(1);
    _initialize_narrow_environment();
    for (next = first_initializer; next < last_initializer; next++)
        if (*next)
            (*next)();
    exit(main(*__p___argc(), *__p___argv(), NULL));
}
