// SPDX-License-Identifier: MIT
/*  coverage_exit.c - linked into the programs of `make coverage` with --wrap=_exit: a process that ends by _exit writes its counts first */
void __gcov_dump(void);
_Noreturn void __real__exit(int code);
_Noreturn void __wrap__exit(int code);

void __wrap__exit(int code)
{
    __gcov_dump();
    __real__exit(code);
}
