// SPDX-License-Identifier: MIT
/*  pthread.h - what the tests use of it, for compilers of Microsoft's kind. It does not include windows.h, so that the
    tests see what Ignis includes. */
#ifndef PTHREAD_H
#define PTHREAD_H

#include <process.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct _RTL_SRWLOCK;
struct _RTL_CONDITION_VARIABLE;
__declspec(dllimport) void __stdcall AcquireSRWLockExclusive(struct _RTL_SRWLOCK *);
__declspec(dllimport) void __stdcall ReleaseSRWLockExclusive(struct _RTL_SRWLOCK *);
__declspec(dllimport) void __stdcall WakeAllConditionVariable(struct _RTL_CONDITION_VARIABLE *);
__declspec(dllimport) int __stdcall SleepConditionVariableSRW(struct _RTL_CONDITION_VARIABLE *, struct _RTL_SRWLOCK *,
                                                              unsigned long, unsigned long);
__declspec(dllimport) unsigned long __stdcall WaitForSingleObject(void *, unsigned long);
__declspec(dllimport) int __stdcall CloseHandle(void *);

typedef struct pthread_mutex_t {
    void *word;
} pthread_mutex_t, pthread_cond_t;
#define PTHREAD_MUTEX_INITIALIZER \
    {                             \
        0                         \
    }
#define PTHREAD_COND_INITIALIZER \
    {                            \
        0                        \
    }

static inline int pthread_mutex_init(pthread_mutex_t *mutex, const void *attributes)
{
    return (void)attributes, mutex->word = NULL, 0;
}
static inline int pthread_mutex_destroy(pthread_mutex_t *mutex) { return (void)mutex, 0; }
static inline int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    return AcquireSRWLockExclusive((struct _RTL_SRWLOCK *)mutex), 0;
}
static inline int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    return ReleaseSRWLockExclusive((struct _RTL_SRWLOCK *)mutex), 0;
}
static inline int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    return SleepConditionVariableSRW((struct _RTL_CONDITION_VARIABLE *)condition, (struct _RTL_SRWLOCK *)mutex,
                                     0xFFFFFFFF, 0)
               ? 0
               : 1;
}
static inline int pthread_cond_broadcast(pthread_cond_t *condition)
{
    return WakeAllConditionVariable((struct _RTL_CONDITION_VARIABLE *)condition), 0;
}

typedef struct pthread_barrier_t {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    unsigned count, waiting, round;
} pthread_barrier_t;

static inline int pthread_barrier_init(pthread_barrier_t *barrier, const void *attributes, unsigned count)
{
    (void)attributes;
    memset(barrier, 0, sizeof *barrier);
    barrier->count = count;
    return 0;
}
static inline int pthread_barrier_destroy(pthread_barrier_t *barrier) { return (void)barrier, 0; }
static inline int pthread_barrier_wait(pthread_barrier_t *barrier)
{
    unsigned round;
    pthread_mutex_lock(&barrier->mutex);
    round = barrier->round;
    if (++barrier->waiting == barrier->count) {
        barrier->waiting = 0;
        barrier->round++;
        pthread_cond_broadcast(&barrier->condition);
    } else {
        while (barrier->round == round)
            pthread_cond_wait(&barrier->condition, &barrier->mutex);
    }
    pthread_mutex_unlock(&barrier->mutex);
    return 0;
}

typedef struct pthread__start {
    void *(*run)(void *);
    void *context, *handle;
} * pthread_t;

static unsigned __stdcall pthread__run(void *pointer)
{
    pthread_t thread = (pthread_t)pointer;
    thread->context = thread->run(thread->context);
    return 0;
}
static inline int pthread_create(pthread_t *thread, const void *attributes, void *(*run)(void *), void *context)
{
    (void)attributes;
    *thread = (pthread_t)calloc(1, sizeof **thread);
    if (!*thread)
        return 1;
    (*thread)->run = run;
    (*thread)->context = context;
    (*thread)->handle = (void *)_beginthreadex(NULL, 0, pthread__run, *thread, 0, NULL);
    return (*thread)->handle ? 0 : 1;
}
static inline int pthread_join(pthread_t thread, void **result)
{
    WaitForSingleObject(thread->handle, 0xFFFFFFFF);
    CloseHandle(thread->handle);
    if (result)
        *result = thread->context;
    free(thread);
    return 0;
}

#endif /* PTHREAD_H */
