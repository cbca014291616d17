// SPDX-License-Identifier: MIT
/*  execute.cpp - the worker of an OS thread, and sim_execute

    A worker is made at the first launch of an OS thread, and destroyed when that thread exits.
*/

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

/* Installs a stack for signals. A fault on a fiber may be a stack overflow, so the handler needs another
   stack. */
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

extern "C" int sim_execute(const sim_kernel *kernel, const sim_launch *launch, void *const *args, char *text,
                           size_t text_size)
{
    const loaded_kernel *k = (const loaded_kernel *)kernel;
    job j;
    setup();
    memset(&j, 0, sizeof j);
    if (!dimensions_valid(launch, k, &j.blocks)) {
        snprintf(text, text_size,
                 "kernel %s: a grid of (%u,%u,%u) blocks of (%u,%u,%u) threads is not possible, "
                 "a block may have %d",
                 kernel->name, launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0], launch->block[1],
                 launch->block[2], kernel->max_threads);
        return SIM_INVALID_VALUE;
    }
    if (launch->together && settings.sanitized && j.blocks > 1) {
        snprintf(text, text_size,
                 "kernel %s: under a sanitizer the simulator runs blocks one after the other, and never a cooperative "
                 "launch",
                 kernel->name);
        return SIM_LAUNCH_FAILED;
    }
    if (kernel->cluster > 1 && (settings.sanitized || launch->grid[0] % (unsigned)kernel->cluster != 0)) {
        snprintf(text, text_size,
                 "kernel %s: %u blocks along x, in clusters of %d; these have to be whole, and under a sanitizer the "
                 "simulator has no clusters",
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
