// SPDX-License-Identifier: MIT
/*  coverage.c - linked into the programs of `make coverage`, with --wrap=_exit: counts of processes that end otherwise
    than by exit

    A file of counts that is cut off would end the counting of its object, so a test's limit on the size of files is
    lifted first. */
#include <sys/resource.h>

void __gcov_dump(void);
void __gcov_reset(void);
void test_counts_write(void);
_Noreturn void __real__exit(int code);
_Noreturn void __wrap__exit(int code);

/* At exit, before gcov's own destructors, which have a priority of 100. */
__attribute__((destructor)) static void lift_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_FSIZE, &limit);
    }
}

/* Adds the counts since the last call to the files. */
void test_counts_write(void)
{
    lift_limit();
    __gcov_dump();
    __gcov_reset();
}

void __wrap__exit(int code)
{
    test_counts_write();
    __real__exit(code);
}
