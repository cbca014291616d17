// SPDX-License-Identifier: MIT
/*  core.c - the engine's heap, log and workers, and Ignis */
#if !defined(_POSIX_C_SOURCE) && !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L
#endif
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IGNIS_IMPLEMENTATION
#include "engine.h"

enum { WORKERS = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* --- heap and log --------------------------------------------------------------------------------------------------
   */

static struct {
    long blocks, most;
} heap;

static void *heap_alloc(size_t size, void *user_data)
{
    void *memory = NULL;
    (void)user_data;
    pthread_mutex_lock(&lock);
    if (!heap.most || heap.blocks < heap.most)
        memory = malloc(size);
    heap.blocks += memory != NULL;
    pthread_mutex_unlock(&lock);
    return memory;
}

static void heap_free(void *memory, void *user_data)
{
    (void)user_data;
    pthread_mutex_lock(&lock);
    heap.blocks--;
    pthread_mutex_unlock(&lock);
    free(memory);
}

void engine_heap_limit(long most)
{
    pthread_mutex_lock(&lock);
    heap.most = most ? most + heap.blocks : 0;
    pthread_mutex_unlock(&lock);
}

static struct {
    int count[IGNIS_DIAG_COUNT];
    char text[IGNIS_DIAG_COUNT][512];
} messages;

static void write_log(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)level, (void)user_data;
    pthread_mutex_lock(&lock);
    messages.count[diagnostic]++;
    snprintf(messages.text[diagnostic], sizeof messages.text[diagnostic], "%s", message);
    pthread_mutex_unlock(&lock);
}

int engine_log_count(ignis_diagnostic diagnostic) { return messages.count[diagnostic]; }
const char *engine_log_text(ignis_diagnostic diagnostic) { return messages.text[diagnostic]; }

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- workers ---------------------------------------------------------------------------------------------------------
   */

static struct {
    pthread_t thread[WORKERS];
    void (*job)(int);
    int next, end, busy; /* jobs; workers that are in one */
    double until;        /* no job begins later */
    bool ends;
} work;

static void *run_worker(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!work.ends) {
        if (work.next == work.end) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        work.busy++;
        {
            int job = work.next++;
            pthread_mutex_unlock(&lock);
            work.job(job);
            pthread_mutex_lock(&lock);
        }
        work.busy--;
        if (work.next < work.end && seconds() > work.until)
            work.end = work.next; /* the rest is for the next frame */
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

int engine_run(void (*job)(int), int first, int count, double budget_s)
{
    int done;
    pthread_mutex_lock(&lock);
    work.job = job;
    work.until = seconds() + budget_s;
    work.next = first;
    work.end = first + count;
    pthread_cond_broadcast(&changed);
    while (work.next < work.end || work.busy)
        pthread_cond_wait(&changed, &lock);
    done = work.end - first;
    pthread_mutex_unlock(&lock);
    return done;
}

/* --- start and end ------------------------------------------------------------------------------------------------ */

static ignis_desc options;

ignis_desc *engine_options(void) { return &options; }

bool engine_start(void)
{
    ignis_desc desc = options;
    int i;
    memset(&messages, 0, sizeof messages);
    memset(&work, 0, sizeof work);
    desc.allocator.alloc_fn = heap_alloc;
    desc.allocator.free_fn = heap_free;
    desc.logger.log_fn = write_log;
    if (ignis_setup(&desc) != IGNIS_OK)
        return false;
    for (i = 0; i < WORKERS; i++)
        if (pthread_create(&work.thread[i], NULL, run_worker, NULL) != 0)
            return false;
    return true;
}

long engine_stop(void)
{
    int i;
    pthread_mutex_lock(&lock);
    work.ends = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (i = 0; i < WORKERS; i++)
        pthread_join(work.thread[i], NULL);
    return ignis_shutdown() == IGNIS_OK ? heap.blocks : -1;
}
