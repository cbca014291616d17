// SPDX-License-Identifier: MIT
/*  fiber.cpp - contexts and fibers: stacks, and switching between them

    A fiber has a stack with a guard page. Sanitizers are told of every switch.
*/

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
#define NEW_POLLS 64 /* new values that a thread may see before it lets others run: it may poll in more places */

typedef struct sim_thread {
    sim_fiber *fiber;
    enum state state;
    sim_copies copies;
    struct { /* the values of its last ordered loads */
        const void *address;
        unsigned long long value;
    } polls[REMEMBERED_POLLS];
    unsigned new_polls;
    struct mbarrier *barrier; /* the barrier that it waits at, for the end of a phase of that parity */
    unsigned parity;
    /* the phase of the cluster's barrier, counted from 1, that it has arrived at and not waited for; 0 if none */
    unsigned cluster_phase;
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
    char fence; /* its address identifies the warp for the thread sanitizer */
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

/* The state of an OS thread that runs blocks. */
typedef struct worker {
    unsigned number;
    struct job *job;
    const struct loaded_kernel *kernel;
    sim_block block;

    sim_context main;
    sim_fiber *running;             /* NULL while the OS thread itself runs */
    sim_fiber *fibers[MAX_THREADS]; /* created when first needed, and kept */
    sim_fiber *spare[MAX_THREADS];  /* fibers without a thread */
    unsigned fiber_count, spare_count;
    bool is_crew; /* one of many: its fibers share mappings, whose number per process is limited */
    char *slab;
    unsigned slab_left;

    sim_thread threads[MAX_THREADS];
    unsigned short order[MAX_THREADS];
    unsigned thread_count, started, live, current;
    unsigned waited;    /* threads that have waited for earlier launches, counted for each wait */
    bool whole_block;   /* loop mode: the fiber runs all threads of the block in one call */
    unsigned box[2][3]; /* the threads of this box run */

    unsigned short ready[MAX_THREADS]; /* ring */
    unsigned ready_head, ready_count;
    warp warps[MAX_WARPS];
    barrier barriers[MAX_BARRIERS];
    struct cluster *cluster; /* NULL for a kernel without clusters */
    unsigned cluster_arrived;
    struct bulk_load *inbox;            /* sent by other blocks of the cluster, under its lock */
    struct async *async, *async_memory; /* async: NULL for a kernel without the features of hopper.cpp */
    uint64_t progress, last_seen,
        last_stall;  /* events that let threads run; their number at the last look, and at the last stall */
    unsigned quiet;  /* depth of regions hidden from the thread sanitizer */
    unsigned stalls; /* how often no thread could run since */

    char *dynamic_shared;
    size_t dynamic_size;
    unsigned yields, vain_rounds; /* yields since the OS thread paused; pauses since a poll found something new */
    uint64_t stamp, random;
    char start_fence, end_fence; /* thread sanitizer: order between launches */

    int failure; /* code of the block that was given up */
    bool failure_is_fault;
    char text[768];
    void *signal_stack;
} worker;

static __thread worker *this_worker __attribute__((tls_model("initial-exec")));

#if SIM_ASSEMBLY_SWITCH
/* Saves the callee-saved registers and the stack pointer, and loads the other's. It ends in `ret` instead of
   an indirect jump: all fibers wait in the same call path, so the processor predicts the return. */
extern "C" void sim_switch(void **save, void *load);
__asm__(".text\n.globl sim_switch\n.hidden sim_switch\n.type sim_switch, @function\n"
        "sim_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n.size sim_switch, . - sim_switch\n");

static void context_switch(sim_context *from, sim_context *to) { sim_switch(&from->sp, to->sp); }

/* Prefetches the first lines of a context's stack. */
static void context_prefetch(const sim_context *c)
{
    for (int at = 0; at < 192; at += 64)
        __builtin_prefetch((const char *)c->sp + at);
}

static void context_prepare(sim_context *c, void (*entry)(void), size_t colour)
{
    void **top = (void **)((char *)c->stack + c->stack_size - colour);
    *--top = NULL; /* the return address of entry: a debugger stops here */
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

/* Makes a fiber start afresh. Stacks of one size and alignment compete for the same cache lines, so each
   starts at another offset. */
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

/* Maps `stacks` stacks, with a guard page below each. */
static char *map_stacks(worker *w, size_t stack, unsigned stacks)
{
    size_t size = stacks * stack + GUARD_SIZE;
    char *mapping =
        (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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

/* Returns a fiber without a thread. The thread sanitizer must see every CUDA thread as its own, so it gets no
   reused fibers. */
static sim_fiber *fiber_idle(worker *w, unsigned thread_index)
{
    if (__tsan_create_fiber)
        return w->fibers[thread_index];
    return w->spare_count ? w->spare[--w->spare_count] : fiber_create(w);
}

/* Finishes a switch. Every context calls this as soon as it runs again. The first fiber learns here where the
   OS thread's stack is. */
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

/* Switches to `to` (NULL: the OS thread itself). With `forget` the running fiber never comes back. */
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
