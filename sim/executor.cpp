// SPDX-License-Identifier: MIT
/*  executor.cpp - loads kernel modules and runs kernels on the CPU

    A block runs on one OS thread. Its CUDA threads are fibers (stackful coroutines) that hand the processor to each
    other where CUDA threads wait: at barriers and at warp-wide operations. Fibers are lazy: one fiber runs thread
    after thread and is kept by a thread only when that thread has to wait, so a kernel that never waits needs one.
    Kernels that cannot wait at all (the NVRTC stand-in finds out) skip even that and run as a plain loop that the
    compiler has seen through. Blocks are spread over OS threads by a counter.

    Kernels that may wait for what other blocks, devices or processes write (they have acquire, relaxed or volatile loads
    in inline PTX) get an OS thread for every block, so that all of them go on. Such a load that finds what it found
    before lets another thread of the block run; when all have polled in vain, the OS thread sleeps a little.

    So do the blocks of clusters (`__cluster_dims__` along x), a cluster after the other; under a sanitizer, which sees one OS thread, there are none.

    What it cannot run: a thread that spins on a plain or volatile load until another thread of its own block, or a
    block that has not begun, writes. Threads are not interrupted; they give way in barriers and warp functions,
    atomicCAS and atomicExch without success, __nanosleep, and those loads.

    Reading order: settings, contexts and fibers, messages, waiting (barriers, warps), faults, blocks, launches,
    modules.

    Environment:
        IGNIS_SIM_ORDER    forward | reverse | random[:seed]     order of blocks and of the threads in a block
        IGNIS_SIM_THREADS  OS threads to spread blocks over (default: one a core, at most 16)
        IGNIS_SIM_STRICT   1: barriers that exited threads miss, and shuffles from missing lanes, are errors
        IGNIS_SIM_ASYNC    late | early: when bulk copies and products of warpgroups happen, see hopper.h
        IGNIS_SIM_PATIENCE seconds (30) that blocks of sm_90a may poll memory in vain while some of their threads wait for others
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

/* -DSIM_UCONTEXT: use the C library's slower context switch, as other processors do. */
#if defined(__x86_64__) && !defined(SIM_UCONTEXT)
#define SIM_ASSEMBLY_SWITCH 1
#else
#define SIM_ASSEMBLY_SWITCH 0
#include <ucontext.h>
#endif

#define MAX_THREADS 1024 /* of a block */
#define MAX_WARPS (MAX_THREADS / SIM_WARP)
#define MAX_BARRIERS 16
#define SHARED_GUARD 64 /* bytes behind dynamic shared memory that nobody may write */
#define MAX_WORKERS 16  /* keeps the number of stack mappings far below the kernel's limit */
#define GUARD_SIZE 4096
#define SIGNAL_STACK_SIZE 65536
#define RECRUIT_AFTER_NS 20000 /* a launch shorter than this is not worth waking another OS thread for */

/* The sanitizers' entry points. They are found in the host program, which is built with the same sanitizer as the
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

/* ------------------------------------------------------------------------------------- contexts and fibers */

typedef struct sim_context {
#if SIM_ASSEMBLY_SWITCH
    void *sp;
#else
    ucontext_t machine;
#endif
    const void *stack; /* lowest address and size, for the address sanitizer */
    size_t stack_size;
    void *fake_stack;
    void *tsan;
} sim_context;

typedef struct sim_fiber {
    sim_context context;
    char *mapping; /* a guard page, then the stack */
    size_t mapping_size;
} sim_fiber;

enum state { UNSTARTED, RUNNING, READY, AT_BARRIER, AT_WARP, AT_MBARRIER, AT_REGISTERS, DONE };

#define REMEMBERED_POLLS 8
#define NEW_POLLS 64 /* that found something new, before a thread gives way all the same: it may poll in more places */

typedef struct sim_thread {
    sim_fiber *fiber;
    enum state state;
    sim_copies copies;
    struct { /* what its last ordered loads found */
        const void *address;
        unsigned long long value;
    } polls[REMEMBERED_POLLS];
    unsigned new_polls;
    struct mbarrier *barrier; /* that it waits at, for the end of a phase of that parity */
    unsigned parity;
    unsigned cluster_phase; /* of the cluster's barrier, counted from 1, that it has arrived at and not waited for; else 0 */
    sim_place at;
} sim_thread;

typedef struct warp_op { /* a warp-wide operation that some lanes have reached */
    unsigned mask, arrived;
    sim_combine combine;
    const char *what;
    sim_place at;
} warp_op;

typedef struct warp {
    unsigned live, exited;
    unsigned op_count;
    warp_op ops[SIM_WARP];
    void *records[SIM_WARP];
    char fence; /* its address names the warp to the thread sanitizer */
} warp;

typedef struct barrier {
    unsigned arrived, expected; /* expected 0: every thread of the block */
    int ones, result;
    sim_place at;
    unsigned waiting_count;
    unsigned short waiting[MAX_THREADS];
} barrier;

struct job;
struct loaded_kernel;

/* One OS thread's place to run blocks. */
typedef struct worker {
    unsigned number;
    struct job *job;
    const struct loaded_kernel *kernel;
    sim_block block;

    sim_context main;
    sim_fiber *running;             /* NULL while the OS thread itself runs */
    sim_fiber *fibers[MAX_THREADS]; /* created when first needed, kept */
    sim_fiber *spare[MAX_THREADS];  /* those that hold no thread */
    unsigned fiber_count, spare_count;
    bool is_crew; /* one of many: its fibers share mappings, of which a process may have only so many */
    char *slab;
    unsigned slab_left;

    sim_thread threads[MAX_THREADS];
    unsigned short order[MAX_THREADS];
    unsigned thread_count, started, live, current;
    unsigned waited;    /* threads that have waited for earlier launches, each as often as it did */
    bool whole_block;   /* loop mode: the fiber runs all threads of the block in one call */
    unsigned box[2][3]; /* the threads it runs */

    unsigned short ready[MAX_THREADS]; /* ring */
    unsigned ready_head, ready_count;
    warp warps[MAX_WARPS];
    barrier barriers[MAX_BARRIERS];
    struct cluster *cluster; /* of a kernel without: NULL */
    unsigned cluster_arrived;
    struct bulk_load *inbox;                  /* what other blocks of the cluster sent, with its lock */
    struct async *async, *async_memory;       /* async: NULL for a kernel that has nothing to do with hopper.h */
    uint64_t progress, last_seen, last_stall; /* events that let threads go on; how many when it was looked at, or nobody could go on */
    unsigned quiet;                           /* what the thread sanitizer is not to see: so many around it */
    unsigned stalls;                          /* how often nobody could since */

    char *dynamic_shared;
    size_t dynamic_size;
    unsigned yields, vain_rounds; /* since the OS thread gave way; how often it did since a poll found something new */
    uint64_t stamp, random;
    char start_fence, end_fence; /* thread sanitizer: order between launches */

    int failure; /* code of the block that was given up */
    bool failure_is_fault;
    char text[768];
    void *signal_stack;
} worker;

static __thread worker *this_worker __attribute__((tls_model("initial-exec")));

#if SIM_ASSEMBLY_SWITCH
/* Saves the callee-saved registers and the stack pointer, loads the other's. It ends in `ret` rather than in an
   indirect jump: all fibers wait in the same call path, so the processor predicts the return. */
extern "C" void sim_switch(void **save, void *load);
__asm__(".text\n.globl sim_switch\n.hidden sim_switch\n.type sim_switch, @function\n"
        "sim_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n.size sim_switch, . - sim_switch\n");

static void context_switch(sim_context *from, sim_context *to) { sim_switch(&from->sp, to->sp); }

/* Brings to the cache what going on with a context reads first of its stack. */
static void context_prefetch(const sim_context *c)
{
    for (int at = 0; at < 192; at += 64)
        __builtin_prefetch((const char *)c->sp + at);
}

static void context_prepare(sim_context *c, void (*entry)(void), size_t colour)
{
    void **top = (void **)((char *)c->stack + c->stack_size - colour);
    *--top = NULL; /* where entry would return to: a debugger stops here */
    *--top = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--top = NULL; /* the six saved registers */
    c->sp = top;
}
#else
static void context_switch(sim_context *from, sim_context *to) { swapcontext(&from->machine, &to->machine); }

static void context_prefetch(const sim_context *) {}

static void context_prepare(sim_context *c, void (*entry)(void), size_t colour)
{
    getcontext(&c->machine);
    c->machine.uc_stack.ss_sp = (void *)c->stack;
    c->machine.uc_stack.ss_size = c->stack_size - colour;
    c->machine.uc_link = NULL;
    makecontext(&c->machine, entry, 0);
}
#endif

static void fiber_main(void);

/* Makes a fiber start afresh. Stacks of one size and alignment compete for the same cache lines, therefore each
   starts at a different offset. */
static void fiber_reset(sim_fiber *f, unsigned index)
{
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(f->context.stack, f->context.stack_size);
    context_prepare(&f->context, fiber_main, (index % 37) * 192);
    f->context.fake_stack = NULL;
    if (__tsan_create_fiber) {
        if (f->context.tsan)
            __tsan_destroy_fiber(f->context.tsan);
        f->context.tsan = __tsan_create_fiber(0);
    }
}

/* Room for `stacks` stacks, with a guard page below. */
static char *map_stacks(worker *w, size_t stack, unsigned stacks)
{
    size_t size = stacks * stack + GUARD_SIZE;
    char *mapping = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        fprintf(stderr, "ignis sim: no memory for fiber %u\n", w->fiber_count);
        abort();
    }
    mprotect(mapping, GUARD_SIZE, PROT_NONE);
    return mapping;
}

static sim_fiber *fiber_create(worker *w)
{
    enum { SLAB = 32 };
    size_t stack = settings.sanitized ? 512 * 1024 : 64 * 1024;
    sim_fiber *f = (sim_fiber *)calloc(1, sizeof *f);
    if (!f)
        abort();
    if (!w->is_crew) {
        f->mapping = map_stacks(w, stack, 1);
        f->mapping_size = stack + GUARD_SIZE;
        f->context.stack = f->mapping + GUARD_SIZE;
    } else {
        if (!w->slab_left) {
            w->slab = map_stacks(w, stack, SLAB);
            w->slab_left = SLAB;
        }
        f->context.stack = w->slab + GUARD_SIZE + --w->slab_left * stack;
    }
    f->context.stack_size = stack;
    fiber_reset(f, w->fiber_count);
    w->fibers[w->fiber_count++] = f;
    return f;
}

/* A fiber that holds no thread. The thread sanitizer must see every CUDA thread as its own: no reuse there. */
static sim_fiber *fiber_idle(worker *w, unsigned thread_index)
{
    if (__tsan_create_fiber)
        return w->fibers[thread_index];
    return w->spare_count ? w->spare[--w->spare_count] : fiber_create(w);
}

/* Every context calls this as soon as it runs again. The first fiber learns here where the OS thread's stack is. */
static void after_switch(worker *w, sim_context *self)
{
    const void *bottom;
    size_t size;
    if (!__sanitizer_finish_switch_fiber)
        return;
    __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &size);
    if (!w->main.stack) {
        w->main.stack = bottom;
        w->main.stack_size = size;
    }
}

/* Goes on with `to` (NULL: the OS thread itself). With `forget` the fiber that runs now never comes back. */
static void switch_to(worker *w, sim_fiber *to, bool forget)
{
    sim_context *self = w->running ? &w->running->context : &w->main;
    sim_context *other = to ? &to->context : &w->main;
    w->running = to;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(forget ? NULL : &self->fake_stack, other->stack, other->stack_size);
    if (__tsan_switch_to_fiber)
        __tsan_switch_to_fiber(other->tsan, tsan_no_sync);
    context_switch(self, other);
    after_switch(w, self);
}

/* ------------------------------------------------------------------------------------------------ messages */

typedef struct sim_text {
    char *at;
    size_t left;
} sim_text;

static void say(sim_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(sim_text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(t->at, t->left, format, arguments);
    va_end(arguments);
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used;
    t->left -= used;
}

static void thread_position(const worker *w, unsigned index, unsigned out[3])
{
    out[0] = index % w->block.block_dim[0];
    out[1] = index / w->block.block_dim[0] % w->block.block_dim[1];
    out[2] = index / w->block.block_dim[0] / w->block.block_dim[1];
}

static const char *kernel_name(const worker *w);

static void say_where(sim_text *t, const worker *w)
{
    const unsigned *b = w->block.index;
    say(t, "kernel %s, block (%u,%u,%u)", kernel_name(w), b[0], b[1], b[2]);
    if (!w->whole_block) {
        unsigned p[3];
        thread_position(w, w->current, p);
        say(t, ", thread (%u,%u,%u)", p[0], p[1], p[2]);
    }
    say(t, ": ");
}

static void say_place(sim_text *t, sim_place at)
{
    if (at.file)
        say(t, " at %s:%d", at.file, at.line);
}

/* Between these the thread sanitizer sees no accesses: they are not the kernel's. No other thread runs meanwhile. */
static void begin_quiet(worker *w)
{
    if (!AnnotateIgnoreWritesBegin)
        return;
    w->quiet++;
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static void end_quiet(worker *w)
{
    if (!AnnotateIgnoreWritesEnd)
        return;
    w->quiet--;
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}

/* Gives the block up; the launch ends with `code`. `sentence` NULL: w->text is already written. */
[[noreturn]] static void give_up(worker *w, int code, const char *sentence, sim_place at)
{
    if (sentence) {
        sim_text t = {w->text, sizeof w->text};
        say_where(&t, w);
        say(&t, "%s", sentence);
        say_place(&t, at);
    }
    w->failure = code;
    while (w->quiet)
        end_quiet(w);
    if (__tsan_release)
        __tsan_release(&w->end_fence);
    switch_to(w, NULL, true);
    abort();
}

static void runtime_fail(int code, const char *sentence, sim_place at) { give_up(this_worker, code, sentence, at); }

static void make_ready(worker *w, unsigned index)
{
    w->threads[index].state = READY;
    w->ready[(w->ready_head + w->ready_count++) % MAX_THREADS] = (unsigned short)index;
}

/* The same for one that runs before those that could before: what another thread has done too early shows. */
static void make_ready_first(worker *w, unsigned index)
{
    w->threads[index].state = READY;
    w->ready_head = (w->ready_head + MAX_THREADS - 1) % MAX_THREADS;
    w->ready[w->ready_head] = (unsigned short)index;
    w->ready_count++;
}

static void count_progress(worker *w); /* something happened that may let a thread go on */

#include "hopper.h"

/* ------------------------------------------------------------------------------------------------- waiting */

/* Nobody can run: say who waits where. */
[[noreturn]] static void deadlock(worker *w, const char *what)
{
    sim_text t = {w->text, sizeof w->text};
    const unsigned *b = w->block.index;
    say(&t, "kernel %s, block (%u,%u,%u): %s:", kernel_name(w), b[0], b[1], b[2], what);
    if (w->async)
        say_async_waiting(&t, w);
    for (int i = 0; i < MAX_BARRIERS; i++)
        if (w->barriers[i].arrived) {
            say(&t, " %u threads wait at barrier %d", w->barriers[i].arrived, i);
            if (w->barriers[i].expected)
                say(&t, ", which wants %u", w->barriers[i].expected);
            say_place(&t, w->barriers[i].at);
            say(&t, ";");
        }
    for (unsigned i = 0; i * SIM_WARP < w->thread_count; i++)
        for (unsigned k = 0; k < w->warps[i].op_count; k++) {
            const warp_op *op = &w->warps[i].ops[k];
            say(&t, " warp %u lanes %08x wait for lanes %08x in %s", i, op->arrived, op->mask & w->warps[i].live & ~op->arrived, op->what);
            say_place(&t, op->at);
            say(&t, ";");
        }
    say(&t, " %u of %u threads have exited", w->thread_count - w->live, w->thread_count);
    give_up(w, SIM_LAUNCH_FAILED, NULL, sim_place{NULL, 0});
}

/* Whom to run next: a thread that may go on, else a fiber that starts more threads. NULL: nobody can. */
static sim_fiber *next_fiber(worker *w)
{
    if (!w->ready_count && w->started == w->thread_count && w->async)
        async_goes_on(w);
    if (w->ready_count) {
        unsigned index = w->ready[w->ready_head];
        w->ready_head = (w->ready_head + 1) % MAX_THREADS;
        if (--w->ready_count) /* the one behind it, whose turn comes next */
            context_prefetch(&w->threads[w->ready[w->ready_head]].fiber->context);
        return w->threads[index].fiber;
    }
    if (w->started < w->thread_count)
        return fiber_idle(w, w->order[w->started]);
    return NULL;
}

/* The current thread waits until make_ready has been called for it and its turn has come. */
static void give_way(worker *w)
{
    unsigned self = w->current;
    sim_fiber *next = next_fiber(w);
    if (!next)
        deadlock(w, "deadlock");
    if (next != w->running)
        switch_to(w, next, false);
    w->current = self;
    w->threads[self].state = RUNNING;
}

/* A kernel that was taken for one that never waits came to a place to wait: refuse, never compute nonsense. */
static void refuse_in_loop(worker *w, const char *what, sim_place at)
{
    if (!w->whole_block)
        return;
    char sentence[160];
    snprintf(sentence, sizeof sentence, "the simulator took this kernel for one without barriers, but it reached %s", what);
    give_up(w, SIM_LAUNCH_FAILED, sentence, at);
}

static bool same_place(sim_place a, sim_place b)
{
    return a.line == b.line && (a.file == b.file || (a.file && b.file && strcmp(a.file, b.file) == 0));
}

static void barrier_release(worker *w, barrier *b, int reduction)
{
    b->result = reduction == SIM_BARRIER_COUNT ? b->ones : reduction == SIM_BARRIER_AND ? b->ones == (int)b->arrived : b->ones > 0;
    for (unsigned i = 0; i < b->waiting_count; i++) {
        if (settings.order == ORDER_RANDOM) {
            unsigned other = i + (unsigned)(random_next(&w->random) % (b->waiting_count - i));
            unsigned short chosen = b->waiting[other];
            b->waiting[other] = b->waiting[i];
            b->waiting[i] = chosen;
        }
        make_ready(w, b->waiting[i]);
    }
    b->arrived = b->waiting_count = 0;
    b->ones = 0;
    count_progress(w);
}

static bool barrier_complete(const worker *w, const barrier *b)
{
    return b->arrived && b->arrived == (b->expected ? b->expected : w->live);
}

/* Counts the current thread in at a barrier; true when it is the last. */
static bool barrier_enter(worker *w, unsigned id, unsigned count, int predicate, sim_place at)
{
    if (id >= MAX_BARRIERS)
        give_up(w, SIM_LAUNCH_FAILED, "a barrier number is above 15", at);
    if (count % SIM_WARP)
        give_up(w, SIM_LAUNCH_FAILED, "a barrier for a number of threads that is not a multiple of 32", at);
    barrier *b = &w->barriers[id];
    if (!b->arrived) {
        b->at = at;
        b->expected = count;
    } else if (b->expected != count || (!count && !same_place(b->at, at))) {
        char sentence[320];
        snprintf(sentence, sizeof sentence,
                 "the threads of the block are at different barriers: %u of %u wait at "
                 "%s:%d, this one came to another",
                 b->arrived, w->live, b->at.file, b->at.line);
        give_up(w, SIM_LAUNCH_FAILED, sentence, at);
    }
    if (!count && settings.strict && w->live < w->thread_count) {
        char sentence[160];
        snprintf(sentence, sizeof sentence, "__syncthreads after %u of %u threads have exited", w->thread_count - w->live, w->thread_count);
        give_up(w, SIM_LAUNCH_FAILED, sentence, at);
    }
    if (__tsan_release)
        __tsan_release(b);
    b->arrived++;
    b->ones += predicate != 0;
    return barrier_complete(w, b);
}

static int runtime_barrier(unsigned id, unsigned count, int reduction, int predicate, sim_place at)
{
    worker *w = this_worker;
    refuse_in_loop(w, "a barrier", at);
    bool last = barrier_enter(w, id, count, predicate, at);
    barrier *b = &w->barriers[id];
    if (last)
        barrier_release(w, b, reduction);
    else {
        b->waiting[b->waiting_count++] = (unsigned short)w->current;
        w->threads[w->current].state = AT_BARRIER;
        give_way(w);
    }
    if (__tsan_acquire)
        __tsan_acquire(b);
    return b->result;
}

static void runtime_arrive(unsigned id, unsigned count, sim_place at)
{
    worker *w = this_worker;
    refuse_in_loop(w, "a barrier", at);
    if (barrier_enter(w, id, count, 0, at))
        barrier_release(w, &w->barriers[id], SIM_BARRIER_SYNC);
}

/* All lanes of an operation are there: do it, and let the others go on. */
static void warp_complete(worker *w, unsigned warp_index, warp_op *op, unsigned except)
{
    warp *p = &w->warps[warp_index];
    unsigned arrived = op->arrived;
    sim_combine combine = op->combine;
    *op = p->ops[--p->op_count];
    if (combine)
        combine(p->records, arrived);
    for (unsigned lanes = arrived & ~except; lanes; lanes &= lanes - 1)
        make_ready(w, warp_index * SIM_WARP + (unsigned)__builtin_ctz(lanes));
}

static warp_op *warp_op_find(worker *w, warp *p, unsigned mask, sim_combine combine, const char *what, sim_place at)
{
    for (unsigned i = 0; i < p->op_count; i++) {
        warp_op *op = &p->ops[i];
        if (op->mask == mask && op->combine == combine && (op->what == what || strcmp(op->what, what) == 0))
            return op;
        if (op->mask == mask) {
            char sentence[320];
            snprintf(sentence, sizeof sentence, "lanes %08x of the warp wait in %s at %s:%d, this one came to %s", op->arrived, op->what,
                     op->at.file, op->at.line, what);
            give_up(w, SIM_LAUNCH_FAILED, sentence, at);
        }
    }
    warp_op *op = &p->ops[p->op_count++];
    *op = warp_op{mask, 0, combine, what, at};
    return op;
}

static void warp_check(worker *w, const warp *p, unsigned mask, unsigned lane, const char *what, sim_place at)
{
    char sentence[160];
    if (!(mask & lane)) {
        snprintf(sentence, sizeof sentence, "%s with mask %08x, which lacks the calling lane", what, mask);
        give_up(w, SIM_LAUNCH_FAILED, sentence, at);
    }
    if (settings.strict && (mask & p->exited)) {
        snprintf(sentence, sizeof sentence, "%s with mask %08x, but lanes %08x have exited", what, mask, mask & p->exited);
        give_up(w, SIM_LAUNCH_FAILED, sentence, at);
    }
}

static void runtime_warp(unsigned mask, sim_combine combine, void *record, int fence, const char *what, sim_place at)
{
    worker *w = this_worker;
    refuse_in_loop(w, what, at);
    warp *p = &w->warps[w->current / SIM_WARP];
    unsigned lane = 1u << (w->current % SIM_WARP);
    warp_check(w, p, mask, lane, what, at);
    warp_op *op = warp_op_find(w, p, mask, combine, what, at);
    op->arrived |= lane;
    p->records[w->current % SIM_WARP] = record;
    if (fence && __tsan_release)
        __tsan_release(&p->fence);
    if (op->arrived == (mask & p->live))
        warp_complete(w, w->current / SIM_WARP, op, lane);
    else {
        w->threads[w->current].state = AT_WARP;
        give_way(w);
    }
    if (fence && __tsan_acquire)
        __tsan_acquire(&p->fence);
}

static unsigned runtime_live_lanes(void)
{
    worker *w = this_worker;
    refuse_in_loop(w, "__activemask", sim_place{NULL, 0});
    return w->warps[w->current / SIM_WARP].live;
}

static int job_failed(const worker *w);
static void watch_progress(worker *w);

static void look_for_failures(worker *w)
{
    int failed = job_failed(w);
    if (failed) /* another block of the launch: this one might wait for it for ever */
        give_up(w, failed, "given up because another block failed", sim_place{NULL, 0});
    failed = sim_fault();
    if (failed) /* what it waits for does not come any more */
        give_up(w, failed, "given up because another kernel or copy failed", sim_place{NULL, 0});
}

/* The longer it has waited, the longer a pause: who is waited for may be a compiler, and there may be a hundred of these. */
static void pause_in_vain(worker *w)
{
    const unsigned times = w->vain_rounds / 32 < 50 ? w->vain_rounds / 32 + 1 : 50;
    const struct timespec pause = {0, 20000 * (long)times};
    if (w->async)
        watch_progress(w);
    nanosleep(&pause, NULL);
}

/* Every thread of the block that can run has come by here: what they wait for comes from elsewhere. At first the processor
   is only offered, then given up for a while: offers alone would let spinning OS threads pass it among themselves. */
static void wait_for_others(worker *w, bool in_vain)
{
    enum { OFFERS = 8 };
    if (in_vain && w->async && async_goes_on(w))
        return;
    if (in_vain)
        look_for_failures(w);
    if (!in_vain || ++w->vain_rounds <= OFFERS)
        sched_yield();
    else
        pause_in_vain(w);
}

static void yield_to_others(worker *w, bool in_vain)
{
    bool others = !w->whole_block && (w->ready_count || w->started < w->thread_count);
    if (++w->yields > w->ready_count && (w->whole_block || w->started == w->thread_count)) {
        w->yields = 0;
        wait_for_others(w, in_vain);
    }
    if (!others)
        return;
    unsigned self = w->current;
    make_ready(w, self);
    /* Threads that have not begun come first: the one that is waited for may be among them. */
    switch_to(w, w->started < w->thread_count ? fiber_idle(w, w->order[w->started]) : next_fiber(w), false);
    w->current = self;
    w->threads[self].state = RUNNING;
}

static void runtime_yield(void) { yield_to_others(this_worker, false); }

static void runtime_poll(const void *address, unsigned long long value)
{
    worker *w = this_worker;
    if (w->whole_block)
        return;
    sim_thread *t = &w->threads[w->current];
    unsigned i = 0;
    while (i < REMEMBERED_POLLS && t->polls[i].address != address)
        i++;
    if (i < REMEMBERED_POLLS && t->polls[i].value == value) {
        yield_to_others(w, true);
        return;
    }
    t->new_polls++;
    if (i == REMEMBERED_POLLS)
        i = t->new_polls % REMEMBERED_POLLS;
    t->polls[i].address = address;
    t->polls[i].value = value;
    w->vain_rounds = 0;
    count_progress(w);
    if (t->new_polls % NEW_POLLS == 0)
        yield_to_others(w, false);
}

static void runtime_waited() { this_worker->waited++; }

static sim_copies *runtime_copies(int grow)
{
    worker *w = this_worker;
    sim_copies *c = &w->threads[w->current].copies;
    if (grow && c->count == c->capacity) {
        c->capacity = c->capacity ? 2 * c->capacity : 16;
        c->items = (sim_copy *)realloc(c->items, c->capacity * sizeof *c->items);
        if (!c->items)
            abort();
    }
    return c;
}

/* Those that this thread has let go on run now. */
static void step_back(worker *w)
{
    if (w->whole_block || !w->ready_count)
        return;
    make_ready(w, w->current);
    give_way(w);
}

static void runtime_mbarrier_arrive(void *p, unsigned bytes, sim_place at)
{
    worker *w = this_worker;
    refuse_in_loop(w, "an mbarrier", at);
    mbarrier *b = mbarrier_at(w, p, at);
    if (bytes >= 1u << 20)
        give_up_at(w, p, "an mbarrier counts less than 2^20 bytes", at);
    if (__tsan_release)
        __tsan_release(b);
    unsigned phase = b->phase;
    mbarrier_arrival(w, b, bytes, at);
    if (b->phase != phase)
        step_back(w);
}

static int runtime_mbarrier_wait(void *p, unsigned parity, int may_wait, sim_place at)
{
    worker *w = this_worker;
    refuse_in_loop(w, "an mbarrier", at);
    mbarrier *b = mbarrier_at(w, p, at);
    sim_thread *self = &w->threads[w->current];
    if ((b->phase & 1) == parity)
        deliver_loads(w, b);
    if ((b->phase & 1) == parity && may_wait) {
        self->barrier = b;
        self->parity = parity;
        self->at = at;
        self->state = AT_MBARRIER;
        w->async->waiting[w->async->waiting_count++] = (unsigned short)w->current;
        give_way(w);
    } else if ((b->phase & 1) == parity)
        yield_to_others(w, true);
    if (__tsan_acquire)
        __tsan_acquire(b);
    return (b->phase & 1) != parity;
}

/* Blocks that run at the same time, each on an OS thread of its own. */
struct cluster {
    pthread_mutex_t lock;
    unsigned blocks, ended, arrived, phase; /* arrived: blocks whose threads all have, in this phase, which is counted from 1 */
    struct worker *members[64];             /* that are running */
};

/* With its lock: a block has arrived, or ended. */
static void cluster_count(struct cluster *c)
{
    if (c->arrived + c->ended < c->blocks)
        return;
    c->arrived = 0;
    __atomic_fetch_add(&c->phase, 1, __ATOMIC_RELEASE);
}

/* A thread has arrived, or exited. */
static void cluster_block_arrives(worker *w)
{
    if (!w->cluster_arrived || w->cluster_arrived < w->live)
        return;
    w->cluster_arrived = 0;
    pthread_mutex_lock(&w->cluster->lock);
    w->cluster->arrived++;
    cluster_count(w->cluster);
    pthread_mutex_unlock(&w->cluster->lock);
}

static struct cluster *cluster_of(worker *w, sim_place at)
{
    if (!w->cluster)
        give_up(w, SIM_ILLEGAL_INSTRUCTION, "an instruction for clusters, in a kernel without __cluster_dims__", at);
    return w->cluster;
}

static void runtime_cluster_arrive(sim_place at)
{
    worker *w = this_worker;
    struct cluster *c = cluster_of(w, at);
    sim_thread *t = &w->threads[w->current];
    if (t->cluster_phase)
        give_up(w, SIM_LAUNCH_FAILED, "arrives twice at the barrier of its cluster, and has not waited", at);
    t->cluster_phase = __atomic_load_n(&c->phase, __ATOMIC_ACQUIRE);
    w->cluster_arrived++;
    count_progress(w);
    cluster_block_arrives(w);
}

static void runtime_cluster_wait(sim_place at)
{
    worker *w = this_worker;
    struct cluster *c = cluster_of(w, at);
    sim_thread *t = &w->threads[w->current];
    if (!t->cluster_phase)
        give_up(w, SIM_LAUNCH_FAILED, "waits at the barrier of its cluster, and has not arrived", at);
    while (__atomic_load_n(&c->phase, __ATOMIC_ACQUIRE) == t->cluster_phase)
        yield_to_others(w, true);
    t->cluster_phase = 0;
    w->vain_rounds = 0;
}

static char *runtime_cluster_memory(unsigned block, unsigned offset, unsigned bytes, sim_place at)
{
    worker *w = this_worker;
    struct cluster *c = cluster_of(w, at);
    char sentence[160], *memory = NULL;
    if (block >= c->blocks || (uint64_t)offset + bytes > w->block.dynamic_size) {
        snprintf(sentence, sizeof sentence, "byte %u of the shared memory of block %u of a cluster: there are %u blocks, with %llu bytes",
                 offset, block, c->blocks, w->block.dynamic_size);
        give_up(w, SIM_ILLEGAL_ADDRESS, sentence, at);
    }
    pthread_mutex_lock(&c->lock);
    memory = c->members[block] ? c->members[block]->dynamic_shared : NULL;
    pthread_mutex_unlock(&c->lock);
    if (!memory) {
        snprintf(sentence, sizeof sentence, "shared memory of block %u of the cluster, which has not begun, or has ended", block);
        give_up(w, SIM_ILLEGAL_ADDRESS, sentence, at);
    }
    return memory + offset;
}

static void runtime_bulk_source(const void *from, unsigned bytes, sim_place at)
{
    worker *w = this_worker;
    quietly no_accesses(w);
    check_place(w, (const char *)from, bytes, 16, at);
    check_readable(w, (const char *)from, bytes, "a bulk copy", at);
}

static unsigned cluster_rank(worker *w, sim_place at)
{
    struct cluster *c = cluster_of(w, at);
    unsigned rank = 0;
    pthread_mutex_lock(&c->lock);
    while (c->members[rank] != w)
        rank++;
    pthread_mutex_unlock(&c->lock);
    return rank;
}

/* from: NULL: an arrival. */
static void send_to_block(worker *w, unsigned block, unsigned offset, const void *from, unsigned bytes, unsigned counted_at, sim_place at)
{
    struct cluster *c = cluster_of(w, at);
    (void)runtime_cluster_memory(block, offset, bytes, at);
    mbarrier *b = (mbarrier *)runtime_cluster_memory(block, counted_at, sizeof *b, at);
    bulk_load *l = (bulk_load *)malloc(sizeof *l + bytes);
    if (!l)
        abort();
    *l = bulk_load{NULL, b, NULL, bytes, {0}};
    if (from)
        memcpy(l->data, from, bytes);
    pthread_mutex_lock(&c->lock);
    worker *to = c->members[block];
    if (to) {
        l->to = from ? to->dynamic_shared + offset : NULL;
        l->next = to->inbox;
        to->inbox = l;
    }
    pthread_mutex_unlock(&c->lock);
    if (!to) {
        free(l);
        give_up(w, SIM_ILLEGAL_ADDRESS, "a store to a block of the cluster that has ended meanwhile", at);
    }
    count_progress(w);
}

static void runtime_cluster_store(unsigned block, unsigned offset, const void *from, unsigned bytes, unsigned counted_at, sim_place at)
{
    send_to_block(this_worker, block, offset, from, bytes, counted_at, at);
}

static void runtime_cluster_signal(unsigned block, unsigned counted_at, sim_place at)
{
    send_to_block(this_worker, block, counted_at, NULL, 0, counted_at, at);
}

/* Loads that have come are under way; arrivals count. */
static void take_inbox(worker *w)
{
    if (!w->cluster)
        return;
    pthread_mutex_lock(&w->cluster->lock);
    bulk_load *l = w->inbox;
    w->inbox = NULL;
    pthread_mutex_unlock(&w->cluster->lock);
    while (l) {
        bulk_load *next = l->next;
        l->next = NULL;
        if (l->to) {
            *w->async->last_load = l;
            w->async->last_load = &l->next;
        } else {
            mbarrier *b = mbarrier_at(w, l->barrier, sim_place{NULL, 0});
            free(l);
            mbarrier_arrival(w, b, 0, sim_place{NULL, 0});
        }
        l = next;
    }
}

/* All threads wait, and other blocks may send them something. */
static void wait_for_inbox(worker *w)
{
    look_for_failures(w);
    pause_in_vain(w);
}

static void runtime_set_registers(unsigned count, int more, sim_place at)
{
    worker *w = this_worker;
    async *a = w->async;
    unsigned t = w->current;
    refuse_in_loop(w, "setmaxnreg", at);
    if (count < 24 || count > 256 || count % 8 || (!more && count > a->registers[t])) {
        char sentence[160];
        snprintf(sentence, sizeof sentence,
                 "setmaxnreg.%s to %u from %u registers: it takes multiples of 8 from 24 to 256, in its direction", more ? "inc" : "dec",
                 count, a->registers[t]);
        give_up(w, SIM_LAUNCH_FAILED, sentence, at);
    }
    while (a->registers_used - a->registers[t] + count > a->registers_all) {
        w->threads[t].state = AT_REGISTERS;
        w->threads[t].at = at;
        a->short_of_registers[a->short_count++] = (unsigned short)t;
        give_way(w);
    }
    a->registers_used += count - a->registers[t];
    a->registers[t] = count;
    count_progress(w);
    while (!more && a->short_count)
        make_ready(w, a->short_of_registers[--a->short_count]);
}

static void runtime_wgmma(sim_wgmma *product) { runtime_warp(~0u, issue_product, product, 0, "wgmma.mma_async", sim_place{NULL, 0}); }

static void runtime_wgmma_wait(unsigned pending)
{
    runtime_warp(~0u, finish_products, &pending, 0, "wgmma.wait_group", sim_place{NULL, 0});
}

static sim_runtime runtime = {0,
                              runtime_barrier,
                              runtime_arrive,
                              runtime_warp,
                              runtime_live_lanes,
                              runtime_yield,
                              runtime_fail,
                              runtime_poll,
                              runtime_waited,
                              runtime_copies,
                              runtime_mbarrier_init,
                              runtime_mbarrier_arrive,
                              runtime_mbarrier_wait,
                              runtime_bulk_load,
                              runtime_bulk_store,
                              runtime_tensor_load,
                              runtime_tensor_store,
                              runtime_bulk_commit,
                              runtime_bulk_wait,
                              runtime_wrote_shared,
                              runtime_fence_async,
                              runtime_set_registers,
                              runtime_wgmma,
                              runtime_wgmma_commit,
                              runtime_wgmma_wait,
                              runtime_cluster_arrive,
                              runtime_cluster_wait,
                              runtime_cluster_memory,
                              runtime_bulk_source,
                              runtime_cluster_store,
                              runtime_cluster_signal,
                              runtime_tensor_multicast};

/* A thread is through. Others may have waited for it only. */
static void thread_exit(worker *w)
{
    unsigned warp_index = w->current / SIM_WARP;
    warp *p = &w->warps[warp_index];
    if (w->async)
        async_thread_exits(w);
    count_progress(w);
    w->threads[w->current].state = DONE;
    w->live--;
    p->live &= ~(1u << (w->current % SIM_WARP));
    p->exited |= 1u << (w->current % SIM_WARP);
    for (unsigned i = 0; i < p->op_count;) {
        warp_op *op = &p->ops[i];
        if (settings.strict && (op->mask & p->exited)) {
            char sentence[200];
            snprintf(sentence, sizeof sentence, "this thread exited while lanes %08x wait for it in %s", op->arrived, op->what);
            give_up(w, SIM_LAUNCH_FAILED, sentence, op->at);
        }
        if (op->arrived == (op->mask & p->live))
            warp_complete(w, warp_index, op, 0);
        else
            i++;
    }
    barrier *b = &w->barriers[0];
    if (b->arrived && !b->expected && settings.strict)
        give_up(w, SIM_LAUNCH_FAILED, "this thread exited while others wait for it in __syncthreads", b->at);
    if (!b->expected && barrier_complete(w, b))
        barrier_release(w, b, SIM_BARRIER_SYNC);
    if (w->cluster)
        cluster_block_arrives(w);
}

/* -------------------------------------------------------------------------------------------------- blocks */

typedef struct loaded_kernel {
    sim_kernel facts; /* first: the driver holds a pointer to it */
    const sim_entry_point *entry;
    const char *mangled; /* NULL where the compiler left none */
    struct sim_module *module;
} loaded_kernel;

struct sim_module {
    void *handle;
    int file;
    const sim_module_info_t *info;
    pthread_mutex_t one_at_a_time; /* sanitizers: static shared memory exists once */
    loaded_kernel *kernels;
    const Elf64_Ehdr *elf; /* the image, mapped */
    size_t elf_size;
};

static const char *kernel_name(const worker *w) { return w->kernel->facts.name; }

typedef struct job {
    const loaded_kernel *kernel;
    const sim_launch *launch;
    void *const *args;
    uint64_t blocks, next;       /* next is taken with an atomic add */
    uint64_t progress_at;        /* when a block was last seen to go on; atomic */
    uint64_t multiplier, offset; /* of the permutation of the blocks, or clusters, in random order */
    struct cluster *clusters;    /* all; of a kernel without: NULL */
    int failed;                  /* code of the first failure */
    char *text;
    size_t text_size;
    pthread_mutex_t lock; /* guards failed and text */
    int helpers;          /* guarded by pool.lock, or crew.lock */
    unsigned wanted;      /* crew threads yet to come, guarded by crew.lock */
    struct job *next_job;
} job;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void note_progress(worker *w)
{
    w->last_seen = w->progress;
    __atomic_store_n(&w->job->progress_at, now_ns(), __ATOMIC_RELAXED);
}

static bool somebody_waits(const worker *w)
{
    bool waits = w->async->waiting_count || w->async->short_count;
    for (int i = 0; i < MAX_BARRIERS; i++)
        waits |= w->barriers[i].arrived != 0;
    return waits;
}

static void count_progress(worker *w)
{
    enum { SELDOM = 64 };
    if (++w->progress % SELDOM == 0 && w->async)
        note_progress(w); /* for blocks that wait for this one, which may take long */
}

/* The block polls in vain. When threads of it wait for others and no block of the launch has gone on for too long, none will. */
static void watch_progress(worker *w)
{
    if (w->progress != w->last_seen)
        note_progress(w);
    else if (somebody_waits(w) && now_ns() > __atomic_load_n(&w->job->progress_at, __ATOMIC_RELAXED) + settings.patience_ns)
        deadlock(w, "no progress, some threads poll memory in vain");
}

static int job_failed(const worker *w) { return __atomic_load_n(&w->job->failed, __ATOMIC_RELAXED); }

static void run_one_thread(worker *w, unsigned index)
{
    unsigned begin[3], end[3];
    sim_thread *t = &w->threads[index];
    thread_position(w, index, begin);
    for (int i = 0; i < 3; i++)
        end[i] = begin[i] + 1;
    w->current = index;
    t->fiber = w->running;
    t->state = RUNNING;
    t->copies.count = t->copies.group = 0;
    memset(t->polls, 0, sizeof t->polls);
    t->new_polls = 0;
    if (__tsan_acquire)
        __tsan_acquire(&w->start_fence);
    w->kernel->entry->run(w->job->args, begin, end);
    if (__tsan_release)
        __tsan_release(&w->end_fence);
    thread_exit(w);
}

/* What every fiber does, for ever: start threads as long as there are any, then hand over. */
static void fiber_main(void)
{
    worker *w = this_worker;
    sim_fiber *self = w->running;
    after_switch(w, &self->context);
    for (;;) {
        if (w->whole_block)
            w->kernel->entry->run(w->job->args, w->box[0], w->box[1]);
        else
            do
                run_one_thread(w, w->order[w->started++]);
            while (w->started < w->thread_count && !__tsan_create_fiber);
        if (!__tsan_create_fiber)
            w->spare[w->spare_count++] = self;
        sim_fiber *next = w->whole_block ? NULL : next_fiber(w);
        if (!next && !w->whole_block && w->live)
            deadlock(w, "deadlock");
        if (next != self)
            switch_to(w, next, false);
    }
}

/* After a block was given up, fibers hang in the middle of kernel code. */
static void reset_fibers(worker *w)
{
    w->spare_count = 0;
    for (unsigned i = 0; i < w->fiber_count; i++) {
        fiber_reset(w->fibers[i], i);
        w->spare[w->spare_count++] = w->fibers[i];
    }
}

static void prepare_threads(worker *w)
{
    unsigned n = w->thread_count;
    for (unsigned i = 0; i < n; i++) {
        w->threads[i].state = UNSTARTED;
        w->threads[i].cluster_phase = 0;
        w->order[i] = (unsigned short)(settings.order == ORDER_REVERSE ? n - 1 - i : i);
    }
    if (settings.order == ORDER_RANDOM)
        for (unsigned i = n - 1; i > 0; i--) {
            unsigned other = (unsigned)(random_next(&w->random) % (i + 1));
            unsigned short chosen = w->order[other];
            w->order[other] = w->order[i];
            w->order[i] = chosen;
        }
    for (unsigned i = 0; i * SIM_WARP < n; i++) {
        unsigned lanes = n - i * SIM_WARP;
        w->warps[i].live = lanes >= SIM_WARP ? ~0u : (1u << lanes) - 1;
        w->warps[i].exited = w->warps[i].op_count = 0;
    }
    for (int i = 0; i < MAX_BARRIERS; i++)
        w->barriers[i].arrived = w->barriers[i].waiting_count = 0;
    w->live = n;
    w->cluster_arrived = 0;
    w->started = w->ready_head = w->ready_count = 0;
    w->yields = w->vain_rounds = w->stalls = 0;
}

/* Runs fibers until the block is done or given up. */
static int run_fibers(worker *w)
{
    w->failure = SIM_OK;
    switch_to(w, fiber_idle(w, w->order[0]), false);
    if (!w->failure)
        return SIM_OK;
    if (__tsan_acquire)
        __tsan_acquire(&w->end_fence);
    reset_fibers(w);
    return w->failure;
}

/* A loop-mode kernel faulted: which thread was it? Runs the block again, thread by thread; the launch has failed
   anyway. Leaves the text that names the thread. */
static void find_faulting_thread(worker *w)
{
    char first_text[sizeof w->text];
    int first = w->failure;
    memcpy(first_text, w->text, sizeof first_text);
    w->whole_block = false;
    prepare_threads(w);
    if (!run_fibers(w))
        memcpy(w->text, first_text, sizeof first_text);
    w->failure = first;
}

/* A kernel that never waits, in forward order: one call for the whole block. */
static int run_loop(worker *w)
{
    w->whole_block = true;
    w->order[0] = 0;
    for (int i = 0; i < 3; i++) {
        w->box[0][i] = 0;
        w->box[1][i] = w->block.block_dim[i];
    }
    if (run_fibers(w) && w->failure_is_fault)
        find_faulting_thread(w);
    w->whole_block = false;
    return w->failure;
}

/* Whether a block that has ended did what its launch promised, and left what lies behind its dynamic shared memory alone. */
static int check_block(worker *w)
{
    size_t size = (size_t)w->block.dynamic_size, guard = size && !settings.sanitized ? SHARED_GUARD : 0;
    for (size_t i = size; i < size + guard; i++)
        if (w->dynamic_shared[i] != (char)0xFF) {
            snprintf(w->text, sizeof w->text, "kernel %s, block (%u,%u,%u): wrote byte %zu of its dynamic shared memory, which has %zu",
                     w->kernel->facts.name, w->block.index[0], w->block.index[1], w->block.index[2], i, size);
            return w->failure = SIM_ILLEGAL_ADDRESS;
        }
    if (!w->job->launch->must_wait || w->waited >= w->thread_count)
        return SIM_OK;
    snprintf(w->text, sizeof w->text,
             "kernel %s was launched to begin before earlier work has ended, and %u of %u threads of a block ran griddepcontrol.wait",
             w->kernel->facts.name, w->waited, w->thread_count);
    return w->failure = SIM_LAUNCH_FAILED;
}

/* A block begins, or ends. */
static void cluster_member(struct cluster *c, unsigned rank, worker *w)
{
    worker *ended = NULL;
    pthread_mutex_lock(&c->lock);
    if (!w) {
        ended = c->members[rank];
        c->ended++;
        cluster_count(c);
    }
    c->members[rank] = w;
    pthread_mutex_unlock(&c->lock);
    while (ended && ended->inbox) { /* of a block that was given up */
        bulk_load *next = ended->inbox->next;
        free(ended->inbox);
        ended->inbox = next;
    }
}

static int run_block(worker *w, uint64_t index)
{
    const job *j = w->job;
    w->waited = 0;
    w->block.index[0] = (unsigned)(index % j->launch->grid[0]);
    w->block.index[1] = (unsigned)(index / j->launch->grid[0] % j->launch->grid[1]);
    w->block.index[2] = (unsigned)(index / j->launch->grid[0] / j->launch->grid[1]);
    w->block.stamp = ((uint64_t)w->number << 48) | ++w->stamp;
    if (w->block.dynamic_size) {
        memset(w->dynamic_shared, 0xFF,
               w->block.dynamic_size + (settings.sanitized ? 0 : SHARED_GUARD)); /* uninitialised floats read as NaN */
        if (__tsan_release)
            __tsan_release(&w->start_fence);
    }
    j->kernel->module->info->enter(&w->block);
    w->failure_is_fault = false;
    w->async = w->block.tracked ? async_begin(w, (unsigned)w->kernel->facts.max_threads) : NULL;
    if (w->async)
        note_progress(w);
    if ((j->kernel->entry->flags & SIM_KERNEL_LOOP) && settings.order == ORDER_FORWARD && !__tsan_create_fiber) {
        int failed = run_loop(w);
        return failed ? failed : check_block(w);
    }
    prepare_threads(w);
    unsigned rank = (unsigned)(index % (uint64_t)w->kernel->facts.cluster);
    w->cluster = j->clusters ? &j->clusters[index / (uint64_t)w->kernel->facts.cluster] : NULL;
    if (w->cluster)
        cluster_member(w->cluster, rank, w);
    int code = run_fibers(w);
    if (w->cluster)
        cluster_member(w->cluster, rank, NULL);
    w->cluster = NULL;
    /* Blocks follow each other in the same shared memory: they must not look like racing with each other. */
    if (__tsan_acquire && (j->kernel->entry->flags & SIM_KERNEL_SHARED || w->block.dynamic_size)) {
        __tsan_acquire(&w->end_fence);
        __tsan_release(&w->start_fence);
    }
    return code ? code : check_block(w);
}

/* ------------------------------------------------------------------------------------------------- launches */

/* Those of a cluster follow each other: there may be more blocks than run at the same time. */
static uint64_t block_in_order(const job *j, uint64_t i)
{
    uint64_t each = (uint64_t)j->kernel->facts.cluster;
    switch (settings.order) {
    case ORDER_REVERSE: return j->blocks - 1 - i;
    case ORDER_RANDOM:
        return (uint64_t)(((unsigned __int128)(i / each) * j->multiplier + j->offset) % (j->blocks / each)) * each + i % each;
    default: return i;
    }
}

static void report_failure(worker *w, job *j)
{
    pthread_mutex_lock(&j->lock);
    if (!j->failed) {
        __atomic_store_n(&j->failed, w->failure, __ATOMIC_RELAXED);
        if (j->text_size)
            snprintf(j->text, j->text_size, "%s", w->text);
    }
    pthread_mutex_unlock(&j->lock);
}

/* Dynamic shared memory of exactly the launch's size, so that the address sanitizer sees its end; without it, bytes behind its end tell. */
static bool prepare_dynamic_shared(worker *w, size_t size)
{
    if (size && (size > w->dynamic_size || settings.sanitized)) {
        void *memory;
        if (posix_memalign(&memory, 1024, size + (settings.sanitized ? 0 : SHARED_GUARD)))
            return false;
        free(w->dynamic_shared);
        w->dynamic_shared = (char *)memory;
        w->dynamic_size = size;
    }
    w->block.dynamic_shared = w->dynamic_shared;
    w->block.dynamic_size = size;
    return true;
}

static bool prepare_worker(worker *w, job *j)
{
    const sim_launch *l = j->launch;
    w->job = j;
    w->kernel = j->kernel;
    w->thread_count = l->block[0] * l->block[1] * l->block[2];
    w->block.processor = w->number;
    w->block.tracked = (j->kernel->entry->flags & SIM_KERNEL_ASYNC) != 0;
    for (int i = 0; i < 3; i++) {
        w->block.block_dim[i] = l->block[i];
        w->block.grid_dim[i] = l->grid[i];
    }
    if (__tsan_get_current_fiber) {
        w->main.tsan = __tsan_get_current_fiber();
        while (w->fiber_count < w->thread_count) /* here, because what creates a fiber happens before it */
            fiber_create(w);
        __tsan_release(&w->start_fence);
    }
    return prepare_dynamic_shared(w, l->dynamic_shared);
}

static void recruit(job *j);

/* Runs blocks of the job until none is left. `may_recruit` for the thread that launched it. */
static void run_blocks(worker *w, job *j, bool may_recruit)
{
    if (!prepare_worker(w, j)) {
        w->failure = SIM_OUT_OF_MEMORY;
        snprintf(w->text, sizeof w->text, "no memory for %zu bytes of shared memory", j->launch->dynamic_shared);
        report_failure(w, j);
        return;
    }
    uint64_t start = may_recruit ? now_ns() : 0;
    for (;;) {
        uint64_t i = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED);
        if (i >= j->blocks || __atomic_load_n(&j->failed, __ATOMIC_RELAXED))
            break;
        if (run_block(w, block_in_order(j, i)))
            report_failure(w, j);
        if (may_recruit && now_ns() - start > RECRUIT_AFTER_NS) {
            recruit(j);
            may_recruit = false;
        }
    }
    if (__tsan_acquire)
        __tsan_acquire(&w->end_fence);
}

/* The other OS threads. They live until the process ends and are never joined; a destructor that waited for them
   could hang exit(). */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    job *jobs;
    int started;
} pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0};

static unsigned worker_numbers;
static worker *worker_get(void);

static void job_unlink(job *j)
{
    for (job **p = &pool.jobs; *p; p = &(*p)->next_job)
        if (*p == j) {
            *p = j->next_job;
            return;
        }
}

static void *helper_main(void *)
{
    worker *w = worker_get();
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (!pool.jobs)
            pthread_cond_wait(&pool.work, &pool.lock);
        job *j = pool.jobs;
        j->helpers++;
        pthread_mutex_unlock(&pool.lock);
        run_blocks(w, j, false);
        pthread_mutex_lock(&pool.lock);
        job_unlink(j); /* no block is left to take */
        if (--j->helpers == 0)
            pthread_cond_broadcast(&pool.done);
    }
    return NULL;
}

static bool start_thread(void *(*body)(void *))
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all); /* the host's signals are for the host's threads */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool made = pthread_create(&thread, NULL, body, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (made)
        pthread_detach(thread);
    return made;
}

static void recruit(job *j)
{
    pthread_mutex_lock(&pool.lock);
    j->next_job = pool.jobs;
    pool.jobs = j;
    while (pool.started < settings.workers - 1 && start_thread(helper_main))
        pool.started++;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
}

static void dismiss(job *j)
{
    pthread_mutex_lock(&pool.lock);
    job_unlink(j);
    while (j->helpers)
        pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

/* The OS threads of launches that spin: as many as there are blocks at the same time, kept for the next such launch. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    job *jobs;                  /* that want more threads */
    unsigned wanted, available; /* sum of what they want; threads that wait for work, or are about to */
} crew = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0, 0};

static void crew_unlink(job *j)
{
    for (job **p = &crew.jobs; *p; p = &(*p)->next_job)
        if (*p == j) {
            *p = j->next_job;
            return;
        }
}

static void *crew_main(void *)
{
    worker *w = worker_get();
    w->is_crew = true;
    pthread_mutex_lock(&crew.lock); /* counted as available by who started it */
    for (;;) {
        while (!crew.jobs)
            pthread_cond_wait(&crew.work, &crew.lock);
        job *j = crew.jobs;
        crew.available--;
        crew.wanted--;
        j->helpers++;
        if (--j->wanted == 0)
            crew_unlink(j);
        pthread_mutex_unlock(&crew.lock);
        run_blocks(w, j, false);
        pthread_mutex_lock(&crew.lock);
        crew.available++;
        if (--j->helpers == 0)
            pthread_cond_broadcast(&crew.done);
    }
    return NULL;
}

static void crew_call(job *j, unsigned count)
{
    pthread_mutex_lock(&crew.lock);
    j->wanted = count;
    j->next_job = crew.jobs;
    crew.jobs = j;
    crew.wanted += count;
    while (crew.available < crew.wanted && start_thread(crew_main))
        crew.available++;
    pthread_cond_broadcast(&crew.work);
    pthread_mutex_unlock(&crew.lock);
}

static void crew_dismiss(job *j)
{
    pthread_mutex_lock(&crew.lock);
    if (j->wanted)
        crew_unlink(j);
    crew.wanted -= j->wanted;
    j->wanted = 0;
    while (j->helpers)
        pthread_cond_wait(&crew.done, &crew.lock);
    pthread_mutex_unlock(&crew.lock);
}

static uint64_t gcd(uint64_t a, uint64_t b) { return b ? gcd(b, a % b) : a; }

static void choose_block_order(job *j)
{
    static uint64_t state;
    if (settings.order != ORDER_RANDOM)
        return;
    if (settings.sanitized && j->kernel->facts.spins) { /* one block at a time: in an order that all peers have */
        j->multiplier = 1;
        return;
    }
    uint64_t launch = settings.seed + __atomic_fetch_add(&state, 1, __ATOMIC_RELAXED),
             count = j->blocks / (uint64_t)j->kernel->facts.cluster;
    j->offset = random_next(&launch) % count;
    do
        j->multiplier = random_next(&launch) % count | 1;
    while (gcd(j->multiplier, count) != 1);
}

/* ---------------------------------------------------------------------------------------------------- faults */

static struct sigaction previous_action[64];

#if defined(__x86_64__)
/* A general protection fault carries no address. Either the address was not canonical, then some register holds it,
   or an instruction that needs alignment got none. */
static bool looks_misaligned(const siginfo_t *info, const void *machine)
{
    const ucontext_t *u = (const ucontext_t *)machine;
    if (info->si_code != SI_KERNEL)
        return false;
    for (int i = 0; i <= REG_RCX; i++) {
        int64_t v = u->uc_mcontext.gregs[i];
        if (v >> 47 != 0 && v >> 47 != -1)
            return false;
    }
    return true;
}
#else
static bool looks_misaligned(const siginfo_t *info, const void *) { return info->si_signo == SIGBUS && info->si_code == BUS_ADRALN; }
#endif

static int say_fault(sim_text *t, const worker *w, const siginfo_t *info, const void *machine)
{
    const char *address = (const char *)info->si_addr;
    const char *guard = w->running->mapping;
    if (info->si_signo == SIGFPE) {
        say(t, "integer division by zero (or of the smallest integer by -1)");
        return SIM_LAUNCH_FAILED;
    }
    if (info->si_signo == SIGILL) {
        say(t, "illegal instruction");
        return SIM_LAUNCH_FAILED;
    }
    if (guard && address >= guard && address < guard + GUARD_SIZE) {
        say(t, "stack overflow: local arrays or recursion need more than %zu bytes", w->running->context.stack_size);
        return SIM_LAUNCH_FAILED;
    }
    if (looks_misaligned(info, machine)) {
        say(t, "misaligned address: a vector access must be aligned to its size");
        return SIM_MISALIGNED_ADDRESS;
    }
    if (info->si_signo == SIGSEGV && info->si_code == SI_KERNEL) {
        say(t, "illegal address: not a possible pointer at all (uninitialised?)");
        return SIM_ILLEGAL_ADDRESS;
    }
    char nearest[256] = "";
    sim_address_describe(address, nearest, sizeof nearest);
    say(t, "illegal address %p%s%s", (const void *)address, nearest[0] ? ": " : "", nearest);
    return SIM_ILLEGAL_ADDRESS;
}

/* Runs on the signal stack. A fault of kernel code ends the launch: leave for the OS thread's own context and never
   return here. Any other fault is the host program's own. */
static void on_fault(int number, siginfo_t *info, void *machine)
{
    worker *w = this_worker;
    if (w && w->running) {
        sigset_t faults;
        sigemptyset(&faults);
        sigaddset(&faults, number);
        pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
        sim_text t = {w->text, sizeof w->text};
        say_where(&t, w);
        w->failure_is_fault = true;
        give_up(w, say_fault(&t, w, info, machine), NULL, sim_place{NULL, 0});
    }
    const struct sigaction *previous = &previous_action[number];
    if (previous->sa_flags & SA_SIGINFO)
        previous->sa_sigaction(number, info, machine);
    else if (previous->sa_handler != SIG_DFL && previous->sa_handler != SIG_IGN)
        previous->sa_handler(number);
    else
        sigaction(number, previous, NULL); /* the instruction runs again and meets the default action */
}

static void install_fault_handlers(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction action;
    if (settings.sanitized)
        return; /* the sanitizer reports better */
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaction(numbers[i], &action, &previous_action[numbers[i]]);
}

/* --------------------------------------------------------------------------------------- workers, sim_execute */

static pthread_key_t worker_key;

static void worker_destroy(void *pointer)
{
    worker *w = (worker *)pointer;
    this_worker = NULL;
    for (unsigned i = 0; i < w->fiber_count; i++) {
        if (w->fibers[i]->context.tsan)
            __tsan_destroy_fiber(w->fibers[i]->context.tsan);
        if (w->fibers[i]->mapping)
            munmap(w->fibers[i]->mapping, w->fibers[i]->mapping_size);
        free(w->fibers[i]);
    }
    for (int i = 0; i < MAX_THREADS; i++)
        free(w->threads[i].copies.items);
    free(w->dynamic_shared);
    async_destroy(w->async_memory);
    if (w->signal_stack) {
        stack_t off;
        memset(&off, 0, sizeof off);
        off.ss_flags = SS_DISABLE;
        sigaltstack(&off, NULL);
        free(w->signal_stack);
    }
    free(w);
}

static void setup_once(void)
{
    read_settings();
    runtime.strict = settings.strict;
    pthread_key_create(&worker_key, worker_destroy);
    install_fault_handlers();
}

static void setup(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, setup_once);
}

/* A fault on a fiber may be the overflow of its stack: the handler needs another one. */
static void provide_signal_stack(worker *w)
{
    stack_t now;
    if (settings.sanitized || sigaltstack(NULL, &now) || !(now.ss_flags & SS_DISABLE))
        return;
    memset(&now, 0, sizeof now);
    now.ss_sp = w->signal_stack = malloc(SIGNAL_STACK_SIZE);
    now.ss_size = SIGNAL_STACK_SIZE;
    if (now.ss_sp)
        sigaltstack(&now, NULL);
}

static worker *worker_get(void)
{
    if (this_worker)
        return this_worker;
    worker *w = (worker *)calloc(1, sizeof *w);
    if (!w)
        abort();
    w->number = __atomic_fetch_add(&worker_numbers, 1, __ATOMIC_RELAXED);
    w->random = settings.seed * 0x2545f4914f6cdd1du + w->number;
    provide_signal_stack(w);
    pthread_setspecific(worker_key, w);
    return this_worker = w;
}

static bool dimensions_valid(const sim_launch *l, const loaded_kernel *k, uint64_t *blocks)
{
    uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    *blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    return *blocks && threads && threads <= (uint64_t)k->facts.max_threads;
}

static bool clusters_begin(job *j)
{
    uint64_t each = (uint64_t)j->kernel->facts.cluster, count = j->blocks / each;
    j->clusters = (struct cluster *)calloc(count, sizeof *j->clusters);
    for (uint64_t i = 0; j->clusters && i < count; i++) {
        pthread_mutex_init(&j->clusters[i].lock, NULL);
        j->clusters[i].blocks = (unsigned)each;
        j->clusters[i].phase = 1;
    }
    return j->clusters != NULL;
}

static void clusters_end(job *j)
{
    for (uint64_t i = 0; j->clusters && i < j->blocks / (uint64_t)j->kernel->facts.cluster; i++)
        pthread_mutex_destroy(&j->clusters[i].lock);
    free(j->clusters);
}

extern "C" int sim_has_clusters(void)
{
    setup();
    return !settings.sanitized;
}

extern "C" int sim_execute(const sim_kernel *kernel, const sim_launch *launch, void *const *args, char *text, size_t text_size)
{
    const loaded_kernel *k = (const loaded_kernel *)kernel;
    job j;
    setup();
    memset(&j, 0, sizeof j);
    if (!dimensions_valid(launch, k, &j.blocks)) {
        snprintf(text, text_size,
                 "kernel %s: a grid of (%u,%u,%u) blocks of (%u,%u,%u) threads is not possible, "
                 "a block may have %d",
                 kernel->name, launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0], launch->block[1], launch->block[2],
                 kernel->max_threads);
        return SIM_INVALID_VALUE;
    }
    if (launch->together && settings.sanitized && j.blocks > 1) {
        snprintf(text, text_size,
                 "kernel %s: under a sanitizer the simulator runs blocks one after the other, and never a cooperative launch",
                 kernel->name);
        return SIM_LAUNCH_FAILED;
    }
    if (kernel->cluster > 1 && (settings.sanitized || launch->grid[0] % (unsigned)kernel->cluster != 0)) {
        snprintf(
            text, text_size,
            "kernel %s: %u blocks along x, in clusters of %d; these have to be whole, and under a sanitizer the simulator has no clusters",
            kernel->name, launch->grid[0], kernel->cluster);
        return SIM_INVALID_CLUSTER;
    }
    j.kernel = k;
    j.launch = launch;
    j.args = args;
    j.text = text;
    j.text_size = text_size;
    pthread_mutex_init(&j.lock, NULL);
    choose_block_order(&j);
    if (kernel->cluster > 1 && !clusters_begin(&j)) {
        snprintf(text, text_size, "kernel %s: no memory for its clusters", kernel->name);
        return SIM_OUT_OF_MEMORY;
    }
    if (settings.sanitized)
        pthread_mutex_lock(&k->module->one_at_a_time);
    bool spins = (k->facts.spins || launch->together || j.clusters) && !settings.sanitized;
    if (spins && j.blocks > 1)
        crew_call(&j, (unsigned)(j.blocks < SIM_MAX_TOGETHER ? j.blocks : SIM_MAX_TOGETHER) - 1);
    run_blocks(worker_get(), &j, !spins && settings.workers > 1 && j.blocks > 1);
    if (spins)
        crew_dismiss(&j);
    else
        dismiss(&j);
    if (settings.sanitized)
        pthread_mutex_unlock(&k->module->one_at_a_time);
    clusters_end(&j);
    pthread_mutex_destroy(&j.lock);
    return j.failed;
}

/* --------------------------------------------------------------------------------------------------- modules */

/* The image says itself how long it is: its section headers are its end. */
static size_t image_size(const void *image)
{
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)image;
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_type != ET_DYN)
        return 0;
    return h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;
}

static bool write_all(int file, const void *data, size_t size)
{
    const char *p = (const char *)data;
    while (size) {
        ssize_t n = write(file, p, size);
        if (n <= 0)
            return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

/* Opens the image through a memory file. It stays open as long as the module: its number makes the path unique (the
   loader would hand out the same module for the same path or file), debuggers and sanitizers read the lines from it,
   and nothing is left behind on disk. */
/* ThreadSanitizer does not see the lock inside the C library that orders loading and unloading; this one it sees. */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static bool module_open(sim_module *m, const void *image, size_t size)
{
    char path[64];
    m->file = memfd_create("ignis_sim_kernels", MFD_CLOEXEC);
    if (m->file < 0 || !write_all(m->file, image, size))
        return false;
    void *mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE, m->file, 0);
    if (mapped == MAP_FAILED)
        return false;
    m->elf = (const Elf64_Ehdr *)mapped;
    m->elf_size = size;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), m->file);
    pthread_mutex_lock(&loading);
    m->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    pthread_mutex_unlock(&loading);
    if (!m->handle) {
        fprintf(stderr, "ignis sim: cannot load a kernel image: %s\n", dlerror());
        return false;
    }
    m->info = (const sim_module_info_t *)dlsym(m->handle, "sim_module_info");
    if (!m->info || m->info->abi != SIM_ABI_VERSION) {
        fprintf(stderr, "ignis sim: this image was made by another version of the simulator\n");
        return false;
    }
    return true;
}

static bool module_list_kernels(sim_module *m)
{
    m->kernels = (loaded_kernel *)calloc((size_t)m->info->entry_count + 1, sizeof *m->kernels);
    if (!m->kernels)
        return false;
    for (int i = 0; i < m->info->entry_count; i++) {
        const sim_entry_point *e = &m->info->entries[i];
        loaded_kernel *k = &m->kernels[i];
        Dl_info symbol;
        k->entry = e;
        k->module = m;
        k->facts.name = e->name;
        k->facts.param_count = e->param_count;
        k->facts.param_sizes = e->sizes;
        k->facts.param_offsets = e->offsets;
        k->facts.spins = (e->flags & SIM_KERNEL_SPINS) != 0;
        k->facts.cluster = e->cluster;
        k->facts.max_threads = e->max_threads < MAX_THREADS ? e->max_threads : MAX_THREADS;
        if (e->address && dladdr(e->address, &symbol) && symbol.dli_saddr == e->address)
            k->mangled = symbol.dli_sname;
    }
    return true;
}

extern "C" int sim_module_load(const void *image, sim_module **out)
{
    setup();
    size_t size = image ? image_size(image) : 0;
    if (!size)
        return SIM_INVALID_IMAGE;
    sim_module *m = (sim_module *)calloc(1, sizeof *m);
    if (!m)
        return SIM_OUT_OF_MEMORY;
    m->file = -1;
    pthread_mutex_init(&m->one_at_a_time, NULL);
    if (!module_open(m, image, size) || !module_list_kernels(m)) {
        sim_module_unload(m);
        return SIM_INVALID_IMAGE;
    }
    *m->info->runtime = &runtime;
    *out = m;
    return SIM_OK;
}

extern "C" void sim_module_unload(sim_module *m)
{
    pthread_mutex_lock(&loading);
    if (m->handle)
        dlclose(m->handle);
    pthread_mutex_unlock(&loading);
    if (m->elf)
        munmap((void *)m->elf, m->elf_size);
    if (m->file >= 0)
        close(m->file);
    free(m->kernels);
    free(m);
}

extern "C" const sim_kernel *sim_module_kernel(sim_module *m, const char *name)
{
    for (int i = 0; i < m->info->entry_count; i++) {
        const loaded_kernel *k = &m->kernels[i];
        if (strcmp(k->facts.name, name) == 0 || (k->mangled && strcmp(k->mangled, name) == 0))
            return &k->facts;
    }
    return NULL;
}

static const Elf64_Sym *find_variable(const sim_module *m, const char *name)
{
    const char *base = (const char *)m->elf;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(base + m->elf->e_shoff);
    for (int i = 0; i < m->elf->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM)
            continue;
        const char *strings = base + sections[sections[i].sh_link].sh_offset;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(base + sections[i].sh_offset);
        for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++)
            if (ELF64_ST_TYPE(symbols[k].st_info) == STT_OBJECT && symbols[k].st_shndx != SHN_UNDEF &&
                strcmp(strings + symbols[k].st_name, name) == 0)
                return &symbols[k];
    }
    return NULL;
}

extern "C" int sim_module_global(sim_module *m, const char *name, void **ptr, size_t *bytes)
{
    struct link_map *map;
    const Elf64_Sym *symbol = find_variable(m, name);
    if (!symbol || dlinfo(m->handle, RTLD_DI_LINKMAP, &map))
        return SIM_NOT_FOUND;
    if (ptr)
        *ptr = (char *)map->l_addr + symbol->st_value;
    if (bytes)
        *bytes = symbol->st_size;
    return SIM_OK;
}
