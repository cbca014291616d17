// SPDX-License-Identifier: MIT
/*  launch.cpp - launches: the order of blocks, and the OS threads that run them

    Plain launches share a pool of at most 16 OS threads. Launches that spin, and clusters, use a crew with an
    OS thread for each block.
*/

/* Returns the i-th block. Blocks of a cluster follow each other, as there may be more blocks than run at the
   same time. */
static uint64_t block_in_order(const job *j, uint64_t i)
{
    uint64_t each = (uint64_t)j->kernel->facts.cluster;
    switch (settings.order) {
    case ORDER_REVERSE: return j->blocks - 1 - i;
    case ORDER_RANDOM:
        return (uint64_t)(((unsigned __int128)(i / each) * j->multiplier + j->offset) % (j->blocks / each)) * each +
               i % each;
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

/* Allocates dynamic shared memory of exactly the launch's size, so that the address sanitizer sees its end;
   without the sanitizer a guard after it is checked. */
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
        while (w->fiber_count < w->thread_count) /* here, because the creation of a fiber happens before its use */
            fiber_create(w);
        __tsan_release(&w->start_fence);
    }
    return prepare_dynamic_shared(w, l->dynamic_shared);
}

static void recruit(job *j);

/* Runs blocks of the job until none is left. `may_recruit` is for the thread that launched it. */
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

/* The other OS threads. They live until the process ends and are never joined; a destructor that waited for
   them could hang exit(). */
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
        job_unlink(j); /* no block is left */
        if (--j->helpers == 0)
            pthread_cond_broadcast(&pool.done);
    }
    return NULL;
}

static bool start_thread(void *(*body)(void *))
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all); /* signals of the host are for the host's threads */
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

/* The OS threads of launches that spin: one for each block that runs at the same time, kept for the next such
   launch. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    job *jobs; /* jobs that need more threads */
    unsigned wanted,
        available; /* wanted: the sum over the jobs; available: threads that wait for work, or are about to */
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
    pthread_mutex_lock(&crew.lock); /* its creator has counted it as available */
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
    if (settings.sanitized && j->kernel->facts.spins) { /* one block at a time, in the same order for all peers */
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
