// SPDX-License-Identifier: MIT
/*  executor.cpp - loads kernel modules and runs kernels on the CPU

    A block runs on one OS thread. Its CUDA threads are fibers (stackful coroutines) that pass the processor to each
    other where CUDA threads wait: at barriers and at warp-wide operations. Fibers are lazy: one fiber runs thread after
    thread, and a thread keeps its fiber only when it has to wait, so a kernel that never waits needs one. Kernels that
    cannot wait at all (the NVRTC stand-in finds them) run as a plain loop that the compiler optimises. Blocks are
    distributed over OS threads by a counter.

    Kernels that may wait for what other blocks, devices or processes write (they have acquire, relaxed or volatile
    loads in inline PTX) get an OS thread for every block, so that all blocks progress. A load that finds the same value
    as before lets another thread of the block run. When all threads have polled in vain, the OS thread sleeps a little.
    Blocks of clusters (`__cluster_dims__` along x) also have an OS thread each, one cluster after the other. Under a
    sanitizer, which sees one OS thread, there are no clusters.

    Not supported: a thread that spins on a plain or volatile load until another thread of its own block, or a block
    that has not begun, writes. Threads are not interrupted. They let others run in barriers and warp functions, in
    atomicCAS and atomicExch without success, in __nanosleep, and in the loads above.

    The parts in executor/ are included at the end, in reading order: each uses those before it. All of it is one
    translation unit, and all names are private but those in sim.h.

    Environment:
        IGNIS_SIM_ORDER    forward | reverse | random[:seed]     order of blocks and of the threads in a block
        IGNIS_SIM_THREADS  number of OS threads for blocks (default: one a core, at most 16)
        IGNIS_SIM_STRICT   1: barriers that exited threads miss, and shuffles from missing lanes, are errors
        IGNIS_SIM_ASYNC    late | early: when bulk copies and products of warpgroups happen, see executor/hopper.cpp
        IGNIS_SIM_PATIENCE seconds (30) that blocks of sm_90a may poll memory in vain while some of their threads wait
*/
#include "sim.h"
#include "shim_abi.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* -DSIM_UCONTEXT: use the slower context switch of the C library, as for other processors. */
#if defined(__x86_64__) && !defined(SIM_UCONTEXT)
#define SIM_ASSEMBLY_SWITCH 1
#else
#define SIM_ASSEMBLY_SWITCH 0
#include <ucontext.h>
#endif

#define MAX_THREADS 1024 /* of a block */
#define MAX_WARPS (MAX_THREADS / SIM_WARP)
#define MAX_BARRIERS 16
#define SHARED_GUARD 64 /* bytes after dynamic shared memory that a kernel must not write */
#define MAX_WORKERS 16  /* keeps the number of stack mappings far below the kernel's limit */
#define GUARD_SIZE 4096
#define SIGNAL_STACK_SIZE 65536
#define RECRUIT_AFTER_NS 20000 /* a shorter launch does not pay for waking another OS thread */

/* The sanitizers' entry points. They are in the host program, which is built with the same sanitizer as the
   kernels; in a plain program they are null. */
extern "C" {
__attribute__((weak)) void *__tsan_get_current_fiber(void);
__attribute__((weak)) void *__tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void *fiber);
__attribute__((weak)) void __tsan_switch_to_fiber(void *fiber, unsigned flags);
__attribute__((weak)) void __tsan_acquire(void *address);
__attribute__((weak)) void __tsan_release(void *address);
__attribute__((weak)) void AnnotateIgnoreWritesBegin(const char *file, int line); /* and reads */
__attribute__((weak)) void AnnotateIgnoreWritesEnd(const char *file, int line);
__attribute__((weak)) void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom, size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom, size_t *size);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void *address, size_t size);
}
static const unsigned tsan_no_sync = 1; /* a fiber switch must not count as synchronisation of CUDA threads */

/* ------------------------------------------------------------------------------------------------ settings */

enum order { ORDER_FORWARD, ORDER_REVERSE, ORDER_RANDOM };

static struct {
    enum order order;
    uint64_t seed;
    int workers;
    int strict;
    bool sanitized, async_early;
    uint64_t patience_ns;
} settings;

static void read_settings(void)
{
    const char *order = getenv("IGNIS_SIM_ORDER");
    if (order && strcmp(order, "reverse") == 0)
        settings.order = ORDER_REVERSE;
    else if (order && strncmp(order, "random", 6) == 0) {
        settings.order = ORDER_RANDOM;
        settings.seed = order[6] == ':' ? strtoull(order + 7, NULL, 0) : 1;
    } else if (order && *order && strcmp(order, "forward") != 0)
        fprintf(stderr, "ignis sim: IGNIS_SIM_ORDER is forward, reverse or random:SEED, not \"%s\"\n", order);

    /* Sanitizers see one OS thread: static shared memory is then an ordinary variable, which they can check. */
    settings.sanitized = __tsan_create_fiber || __sanitizer_start_switch_fiber;
    const char *threads = getenv("IGNIS_SIM_THREADS");
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    long workers = threads && *threads ? strtol(threads, NULL, 10) : cores;
    settings.workers = settings.sanitized || workers < 1 ? 1 : workers > MAX_WORKERS ? MAX_WORKERS : (int)workers;

    const char *strict = getenv("IGNIS_SIM_STRICT");
    settings.strict = strict && *strict && strcmp(strict, "0") != 0;

    const char *when = getenv("IGNIS_SIM_ASYNC"), *patience = getenv("IGNIS_SIM_PATIENCE");
    settings.async_early = when && strcmp(when, "early") == 0;
    if (when && *when && !settings.async_early && strcmp(when, "late") != 0)
        fprintf(stderr, "ignis sim: IGNIS_SIM_ASYNC is late or early, not \"%s\"\n", when);
    settings.patience_ns = (patience && *patience ? strtoull(patience, NULL, 10) : 30) * 1000000000u;
}

/* splitmix64 */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#include "executor/fiber.cpp"
#include "executor/message.cpp"
#include "executor/hopper.cpp"
#include "executor/product.cpp"
#include "executor/bulk.cpp"
#include "executor/wait.cpp"
#include "executor/cluster.cpp"
#include "executor/runtime.cpp"
#include "executor/block.cpp"
#include "executor/launch.cpp"
#include "executor/fault.cpp"
#include "executor/execute.cpp"
#include "executor/module.cpp"
