// SPDX-License-Identifier: MIT
/*  fault.h - counts the driver and NVRTC calls that Ignis makes, and makes chosen ones fail without performing them

    Include it before test.h. fault_arm(prefix, at, code) lets the at-th call of the functions whose names start so
    fail; with fault.all every later one fails too, or with fault.until all up to the first success of that function.
    Counts are kept by function name.
    host_alloc and host_free are a host allocator that counts what is out and can fail, too: ignis_allocator =
    {host_alloc, host_free, &counter}. */
#ifndef FAULT_H
#define FAULT_H

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "hook.h"

enum { FAULT_NAMES = 256 };

static struct {
    pthread_mutex_t lock;
    const char *prefix; /* of the functions that are to fail */
    int at, code, seen;
    bool all;
    const char *until; /* null: for ever */
    /* called ahead of the first failure, where all later calls fail: a device that is lost runs nothing more */
    void (*drain)(void);
    const char *failed; /* the first function that was made to fail; null: none was */
    struct {
        const char *name;
        int done, failed;
    } table[FAULT_NAMES];
} fault = {PTHREAD_MUTEX_INITIALIZER, "", 0, 0, 0, false, NULL, NULL, NULL, {{NULL, 0, 0}}};

static inline int fault__find(const char *name)
{
    int i = 0;
    while (i < FAULT_NAMES - 1 && fault.table[i].name && strcmp(fault.table[i].name, name) != 0)
        i++;
    fault.table[i].name = name;
    return i;
}

/*  0 when the call is to be performed, else the result code that it gives instead */
static inline int fault_take(const char *name)
{
    int code = 0;
    bool drains = false;
    pthread_mutex_lock(&fault.lock);
    if (fault.at && strncmp(name, fault.prefix, strlen(fault.prefix)) == 0) {
        fault.seen++;
        if (fault.seen == fault.at || (fault.all && fault.seen > fault.at)) {
            code = strncmp(name, "nvrtc", 5) == 0 ? 11 : fault.code; /* NVRTC_ERROR_INTERNAL_ERROR */
            drains = !fault.failed && fault.all && fault.drain;
            if (!fault.failed)
                fault.failed = name;
            fault.table[fault__find(name)].failed++;
        }
    }
    pthread_mutex_unlock(&fault.lock);
    if (drains)
        fault.drain();
    return code;
}

static inline int fault_note(const char *name, int result)
{
    pthread_mutex_lock(&fault.lock);
    if (result == 0) {
        fault.table[fault__find(name)].done++;
        if (fault.until && strcmp(fault.until, name) == 0)
            fault.at = 0;
    } else {
        fault.table[fault__find(name)].failed++;
    }
    pthread_mutex_unlock(&fault.lock);
    return result;
}

__attribute__((constructor)) static void fault__begin(void)
{
    call_hook.begin = fault_take;
    call_hook.end = fault_note;
}

static inline void fault_arm(const char *prefix, int at, int code)
{
    pthread_mutex_lock(&fault.lock);
    fault.prefix = prefix, fault.at = at, fault.code = code, fault.seen = 0, fault.all = false,
    fault.until = fault.failed = NULL;
    pthread_mutex_unlock(&fault.lock);
}

static inline void fault_disarm(void) { fault_arm("", 0, 0); }

/*  How often a function succeeded, and how often it failed or was made to, since fault_reset_counts. Of cuLaunchKernel
    also cuLaunchKernelEx:
    a launch is one, whichever way it went. */
static inline int fault_count(const char *name)
{
    int ex = strcmp(name, "cuLaunchKernel") == 0 ? fault.table[fault__find("cuLaunchKernelEx")].done : 0;
    return fault.table[fault__find(name)].done + ex;
}
static inline int fault_failed(const char *name)
{
    int ex = strcmp(name, "cuLaunchKernel") == 0 ? fault.table[fault__find("cuLaunchKernelEx")].failed : 0;
    return fault.table[fault__find(name)].failed + ex;
}
static inline void fault_reset_counts(void) { memset(fault.table, 0, sizeof fault.table); }

typedef struct host_counter {
    pthread_mutex_t lock;
    long long blocks, bytes, calls; /* out now, out now, allocations so far */
    long long fail_at;              /* the allocation that fails; 0: none */
    bool all, failed;               /* every later one fails, too; one failed */
} host_counter;

typedef union host__header {
    size_t size;
    double aligned_double;
    void *aligned_pointer;
    char room[16];
} host__header;

static inline void *host_alloc(size_t size, void *user_data)
{
    host_counter *c = (host_counter *)user_data;
    host__header *block = NULL;
    pthread_mutex_lock(&c->lock);
    c->calls++;
    if (c->fail_at && (c->calls == c->fail_at || (c->all && c->calls > c->fail_at)))
        c->failed = true;
    else
        block = (host__header *)malloc(sizeof *block + size);
    if (block)
        c->blocks++, c->bytes += (long long)size;
    pthread_mutex_unlock(&c->lock);
    if (!block)
        return NULL;
    block->size = size;
    memset(block + 1, 0xA5, size); /* nothing may rely on zeros */
    return block + 1;
}

static inline void host_free(void *ptr, void *user_data)
{
    host_counter *c = (host_counter *)user_data;
    host__header *block = (host__header *)ptr - 1;
    if (!ptr)
        return;
    pthread_mutex_lock(&c->lock);
    c->blocks--, c->bytes -= (long long)block->size;
    pthread_mutex_unlock(&c->lock);
    free(block);
}

static inline void host_counter_init(host_counter *c)
{
    memset(c, 0, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
}

/*  Lets the at-th call from now on fail of the functions whose names start so, or without a prefix the counter's at-th
    allocation; all: and every later one. */
static inline void fault_plan(const char *prefix, int at, int code, host_counter *counter, bool all)
{
    if (prefix) {
        fault_arm(prefix, at, code);
        fault.all = all;
    } else {
        counter->fail_at = counter->calls + at;
        counter->all = all;
    }
}

/*  Nothing fails any more; returns whether something did. counter may be null. */
static inline bool fault_over(host_counter *counter)
{
    bool hit = fault.failed != NULL;
    fault_disarm();
    if (counter) {
        hit |= counter->failed;
        counter->fail_at = 0;
        counter->failed = false;
    }
    return hit;
}

#endif /* FAULT_H */
