// SPDX-License-Identifier: MIT
/*  block.cpp - blocks: runs the threads of one, and checks it at its end

    A block without waits runs as one loop. Any other block runs on fibers until all of its threads have
    exited, or until it is given up with an error.
*/

typedef struct loaded_kernel {
    sim_kernel facts; /* first: the driver has a pointer to it */
    const sim_entry_point *entry;
    const char *mangled; /* NULL if the compiler left none */
    struct sim_module *module;
} loaded_kernel;

struct sim_module {
    void *handle;
    int file;
    const sim_module_info_t *info;
    pthread_mutex_t one_at_a_time; /* sanitizers: static shared memory exists only once */
    loaded_kernel *kernels;
    const Elf64_Ehdr *elf; /* the image, mapped */
    size_t elf_size;
};

static const char *kernel_name(const worker *w) { return w->kernel->facts.name; }

typedef struct job {
    const loaded_kernel *kernel;
    const sim_launch *launch;
    void *const *args;
    uint64_t blocks, next;       /* next is incremented atomically */
    uint64_t progress_at;        /* the time of the last progress of a block; atomic */
    uint64_t multiplier, offset; /* of the permutation of the blocks, or clusters, in random order */
    struct cluster *clusters;    /* all of them; NULL for a kernel without clusters */
    int failed;                  /* code of the first failure */
    char *text;
    size_t text_size;
    pthread_mutex_t lock; /* guards failed and text */
    int helpers;          /* guarded by pool.lock, or crew.lock */
    unsigned wanted;      /* crew threads still needed, guarded by crew.lock */
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
        note_progress(w); /* for blocks that wait for this one, which may run long */
}

/* Watches a block that polls in vain. If threads of it wait for others and no block of the launch progresses
   for too long, none will. */
static void watch_progress(worker *w)
{
    if (w->progress != w->last_seen)
        note_progress(w);
    else if (somebody_waits(w) &&
             now_ns() > __atomic_load_n(&w->job->progress_at, __ATOMIC_RELAXED) + settings.patience_ns)
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

/* Runs a fiber for ever: starts threads while there are any, then switches to another fiber. */
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

/* Resets all fibers. After a block was given up they are suspended in kernel code. */
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

/* Finds the thread of a fault in a loop-mode kernel. Runs the block again, thread by thread, as the launch
   has failed anyway. Leaves the text that names the thread. */
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

/* Runs a block of a kernel that never waits, in forward order: one call for all threads. */
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

/* Checks an ended block: that it did what its launch promised, and did not write after its dynamic shared
   memory. */
static int check_block(worker *w)
{
    size_t size = (size_t)w->block.dynamic_size, guard = size && !settings.sanitized ? SHARED_GUARD : 0;
    for (size_t i = size; i < size + guard; i++)
        if (w->dynamic_shared[i] != (char)0xFF) {
            snprintf(w->text, sizeof w->text,
                     "kernel %s, block (%u,%u,%u): wrote byte %zu of its dynamic shared memory, which has %zu",
                     w->kernel->facts.name, w->block.index[0], w->block.index[1], w->block.index[2], i, size);
            return w->failure = SIM_ILLEGAL_ADDRESS;
        }
    if (!w->job->launch->must_wait || w->waited >= w->thread_count)
        return SIM_OK;
    snprintf(w->text, sizeof w->text,
             "kernel %s was launched to begin before earlier work has ended, and %u of %u threads of a block ran "
             "griddepcontrol.wait",
             w->kernel->facts.name, w->waited, w->thread_count);
    return w->failure = SIM_LAUNCH_FAILED;
}

/* Registers a block of a cluster when it begins, and when it ends. */
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
    /* Orders the blocks that follow each other in the same shared memory: they must not look like racing with
       each other. */
    if (__tsan_acquire && (j->kernel->entry->flags & SIM_KERNEL_SHARED || w->block.dynamic_size)) {
        __tsan_acquire(&w->end_fence);
        __tsan_release(&w->start_fence);
    }
    return code ? code : check_block(w);
}
