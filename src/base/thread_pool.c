/*  base/thread_pool.c - a loop on all cores

    For work on the host that takes seconds, such as compiling kernels side by side. Threads live for one loop.
    May use: posix.c or windows.c. Locks: none; an atomic counter hands out the indices. */

#include "room.h"

/*  Runs work(context, 0) to work(context, count - 1) on up to as many threads as there are cores, and waits. */
typedef struct ignis__parallel_job {
    void (*work)(void *context, int index);
    void *context;
    uint64_t next;
    uint64_t count;
} ignis__parallel_job;

static IGNIS__THREAD_RESULT ignis__parallel_run(void *pointer)
{
    ignis__parallel_job *job = (ignis__parallel_job *)pointer;
    for (;;) {
        uint64_t index = ignis__atomic_add(&job->next, 1) - 1;
        if (index >= job->count)
            return 0;
        job->work(job->context, (int)index);
    }
}

IGNIS__PRIVATE void ignis__parallel(int count, void (*work)(void *context, int index), void *context)
{
    ignis__parallel_job job = IGNIS__ZERO;
    ignis__thread_handle threads[32];
    int started = 0, wanted = ignis__core_count();
    job.work = work;
    job.context = context;
    job.count = (uint64_t)count;
    if (wanted > IGNIS__COUNT(threads))
        wanted = IGNIS__COUNT(threads);
    if (wanted > count)
        wanted = count;
    while (started < wanted - 1 && ignis__thread_start(&threads[started], ignis__parallel_run, &job))
        started++;
    ignis__parallel_run(&job);
    while (started > 0)
        ignis__thread_join(threads[--started]);
}
