// SPDX-License-Identifier: MIT
/*  entry.c - what every function does first and last: messages, injected failures, the lock, handles

    begin() counts the call, applies fault injection, checks what the function needs, and takes the lock.
    leave() releases it. A handle is a slot of a table and its generation.
*/
#include "driver.h"

#include <stdarg.h>

struct sim_state sim = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
_Thread_local struct sim_thread thread;

/* clang-format off */
static const struct { const char *name; int kind, needs; } functions[FUNCTION_COUNT] = {
#define X(name, kind, needs) {#name, KIND_##kind, needs},
    SIM_FUNCTIONS(X)
#undef X
};

static const struct { const char *name; int code; } kinds[KIND_COUNT + 1] = {
#define X(name, code) {#name, code},
    SIM_KINDS(X)
#undef X
    {"any", ERROR_UNKNOWN}
};
/* clang-format on */

void say(const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "ignis simulator: %s\n", line);
}

const char *code_name(int code)
{
    switch (code) {
#define X(number, name, sentence) \
    case number: return "CUDA_" #name;
        SIM_CODES(X)
#undef X
    default: return NULL;
    }
}

const char *code_sentence(int code)
{
    switch (code) {
#define X(number, name, sentence) \
    case number: return sentence;
        SIM_CODES(X)
#undef X
    default: return NULL;
    }
}

int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

/* >>faults: injected failures */

int find_name(const char *name, size_t length, int *kind, int *function)
{
    *kind = *function = -1;
    for (int i = 0; i <= KIND_COUNT; i++)
        if (strlen(kinds[i].name) == length && !memcmp(kinds[i].name, name, length))
            *kind = i;
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (strlen(functions[i].name) == length && !memcmp(functions[i].name, name, length))
            *function = i;
    return *kind >= 0 || *function >= 0;
}

static int read_rule(const char **text, sim_rule *rule)
{
    const char *colon = strchr(*text, ':');
    if (!colon || !find_name(*text, (size_t)(colon - *text), &rule->kind, &rule->function))
        return 0;
    char *end;
    rule->n = strtol(colon + 1, &end, 10);
    rule->seen = 0;
    rule->onwards = *end == '+';
    end += rule->onwards;
    if (rule->n < 1 || (*end && *end != ','))
        return 0;
    *text = *end ? end + 1 : end;
    return 1;
}

int set_rules(const char *spec)
{
    sim_rule rules[MAX_RULES];
    int count = 0;
    while (spec && *spec)
        if (count == MAX_RULES || !read_rule(&spec, &rules[count++]))
            return 0;
    memcpy(sim.rules, rules, sizeof rules[0] * (size_t)count);
    sim.rule_count = count;
    return 1;
}

int rule_matches(const sim_rule *rule, int function)
{
    if (rule->function >= 0)
        return rule->function == function;
    return rule->kind == functions[function].kind ||
           (rule->kind == KIND_any && functions[function].kind != KIND_release);
}

/* Counts a call. Returns the code that it has to fail with, or 0. */
static int count_call(int function)
{
    int code = SUCCESS;
    sim.calls[function]++;
    for (int i = 0; i < sim.rule_count; i++) {
        sim_rule *rule = &sim.rules[i];
        if (!rule_matches(rule, function))
            continue;
        rule->seen++;
        if (rule->seen == rule->n || (rule->onwards && rule->seen > rule->n))
            code = kinds[functions[function].kind].code;
    }
    return code;
}

/* >>entry: what every function does first and last */

sim_context *current(void) { return thread.depth ? thread.stack[thread.depth - 1] : NULL; }

static int check_needs(int needs)
{
    sim_context *context = current();
    if (needs == NEEDS_NOTHING)
        return SUCCESS;
    if (!sim.ready)
        return ERROR_NOT_INITIALIZED;
    if (thread.in_callback)
        return ERROR_NOT_PERMITTED;
    if (needs == NEEDS_INIT)
        return SUCCESS;
    if (!context)
        return ERROR_INVALID_CONTEXT;
    return context->active ? sim.error : ERROR_CONTEXT_IS_DESTROYED;
}

/* Begins a function. On success it holds the lock. */
int begin(int function)
{
    if (atomic_load(&sim.forked))
        return ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&sim.lock);
    int code = count_call(function);
    if (!code)
        code = check_needs(functions[function].needs & NEEDS_MASK);
    if (!code && functions[function].needs & UNSAFE)
        code = capture_forbids();
    if (code)
        pthread_mutex_unlock(&sim.lock);
    return code;
}

CUresult leave(int code)
{
    pthread_mutex_unlock(&sim.lock);
    return (CUresult)code;
}

/* >>handles */

enum { SLOT_BITS = 24 };
static const uint64_t handle_mark =
    (uint64_t)1 << 62; /* not a valid address: a program that dereferences a handle crashes at once */

static uint32_t slot_take(void)
{
    if (sim.slot_free) {
        uint32_t slot = sim.slot_free;
        sim.slot_free = sim.slots[slot].next_free;
        return slot;
    }
    if (sim.slot_count >= sim.slot_room) {
        uint32_t room = sim.slot_room ? sim.slot_room * 2 : 256;
        sim_slot *slots = room < (1u << SLOT_BITS) ? realloc(sim.slots, room * sizeof *slots) : NULL;
        if (!slots)
            return 0;
        sim.slots = slots;
        sim.slot_room = room;
    }
    if (!sim.slot_count)
        memset(&sim.slots[sim.slot_count++], 0, sizeof(sim_slot)); /* slot 0 is never used */
    memset(&sim.slots[sim.slot_count], 0, sizeof(sim_slot));
    return sim.slot_count++;
}

void *handle_new(sim_object_kind kind, void *object, sim_context *context)
{
    uint32_t index = slot_take();
    if (!index)
        return NULL;
    sim_slot *slot = &sim.slots[index];
    slot->kind = kind;
    slot->object = object;
    slot->context = context;
    uint64_t value = handle_mark | (((uint64_t)slot->generation << SLOT_BITS | index) << 4);
    return (void *)(uintptr_t)value;
}

static sim_slot *handle_slot(const void *handle)
{
    uint64_t value = (uint64_t)(uintptr_t)handle;
    uint64_t body = (value & ~handle_mark) >> 4;
    uint32_t index = (uint32_t)(body & ((1u << SLOT_BITS) - 1));
    if (!(value & handle_mark) || (value & 15) || !index || index >= sim.slot_count)
        return NULL;
    return sim.slots[index].generation == (uint32_t)(body >> SLOT_BITS) ? &sim.slots[index] : NULL;
}

void *handle_get(sim_object_kind kind, const void *handle)
{
    sim_slot *slot = handle_slot(handle);
    if (slot && slot->kind == kind)
        return slot->object;
    const char *stale = getenv("IGNIS_SIM_STALE");
    if (handle && stale && !strcmp(stale, "1") && (kind == OBJECT_STREAM || kind == OBJECT_EVENT)) {
        say("%p is no %s, or was destroyed: a driver would crash", handle, kind == OBJECT_STREAM ? "stream" : "event");
        abort();
    }
    return NULL;
}

void handle_drop(const void *handle)
{
    sim_slot *slot = handle_slot(handle);
    slot->kind = OBJECT_FREE;
    slot->generation++;
    slot->object = NULL;
    slot->next_free = sim.slot_free;
    sim.slot_free = (uint32_t)(slot - sim.slots);
}

long count_objects(sim_object_kind kind)
{
    long count = 0;
    for (uint32_t i = 1; i < sim.slot_count; i++)
        count += sim.slots[i].kind == kind;
    return count;
}
