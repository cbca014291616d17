/*  fault.h - counts the driver and NVRTC calls that Ignis makes, and makes chosen ones fail without performing them

    Include it before test.h. fault_arm(name, at, code) lets the at-th call of that function (null: of any) fail; with
    fault.all every later one fails too. Counts are kept by function name. */
#ifndef FAULT_H
#define FAULT_H

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { FAULT_NAMES = 256 };

static struct {
    pthread_mutex_t lock;
    const char *name; /* the function that is to fail; null: any */
    int at, code, seen;
    bool all;
    const char *failed;        /* the first function that was made to fail; null: none was */
    struct { const char *name; int done, failed; } table[FAULT_NAMES];
} fault = {PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0, 0, false, NULL, {{NULL, 0, 0}}};

static inline int fault__find(const char *name)
{
    int i = 0;
    while (i < FAULT_NAMES - 1 && fault.table[i].name && strcmp(fault.table[i].name, name) != 0) i++;
    fault.table[i].name = name;
    return i;
}

/*  0 when the call is to be performed, else the result code that it gives instead */
static inline int fault_take(const char *name)
{
    int code = 0;
    pthread_mutex_lock(&fault.lock);
    if (fault.at && (!fault.name || strcmp(fault.name, name) == 0)) {
        fault.seen++;
        if (fault.seen == fault.at || (fault.all && fault.seen > fault.at)) {
            code = strncmp(name, "nvrtc", 5) == 0 ? 11 : fault.code; /* NVRTC_ERROR_INTERNAL_ERROR */
            if (!fault.failed) fault.failed = name;
            fault.table[fault__find(name)].failed++;
        }
    }
    pthread_mutex_unlock(&fault.lock);
    return code;
}

static inline int fault_note(const char *name, int result)
{
    if (result == 0) {
        pthread_mutex_lock(&fault.lock);
        fault.table[fault__find(name)].done++;
        pthread_mutex_unlock(&fault.lock);
    }
    return result;
}

static __thread int fault__code;
#define IGNIS_CALL_HOOK(name, call) ((fault__code = fault_take(name)) != 0 ? fault__code : fault_note(name, (int)(call)))

static inline void fault_arm(const char *name, int at, int code)
{
    pthread_mutex_lock(&fault.lock);
    fault.name = name, fault.at = at, fault.code = code, fault.seen = 0, fault.all = false, fault.failed = NULL;
    pthread_mutex_unlock(&fault.lock);
}

static inline void fault_disarm(void) { fault_arm(NULL, 0, 0); }

/*  How often a function succeeded, and how often it was made to fail, since fault_reset_counts. */
static inline int fault_count(const char *name) { return fault.table[fault__find(name)].done; }
static inline int fault_failed(const char *name) { return fault.table[fault__find(name)].failed; }
static inline void fault_reset_counts(void) { memset(fault.table, 0, sizeof fault.table); }

#endif /* FAULT_H */
