// SPDX-License-Identifier: MIT
/*  control.c - control functions for tests, found with dlsym

    Tests set calls that fail, count calls and live objects, and simulate what libraries do with the driver.
    Fault injection does not apply to these functions.
*/
#include "driver.h"

/* Replaces the rules of calls that fail, and restarts the counts. NULL or "": no rules. -1, and nothing
   changed, if malformed. */
SIM_API int ignis_sim_fail(const char *spec)
{
    pthread_mutex_lock(&sim.lock);
    int understood = set_rules(spec);
    pthread_mutex_unlock(&sim.lock);
    return understood ? 0 : -1;
}

static long live_ranges(sim_range_kind kind, int bytes)
{
    long sum = 0;
    for (size_t i = 0; i < sim.range_count; i++)
        if (sim.ranges[i]->kind == kind)
            sum += bytes ? (long)sim.ranges[i]->size : 1;
    return sum;
}

static long live_reservations(void)
{
    long count = 0;
    for (const sim_reservation *reservation = sim.reservations; reservation; reservation = reservation->next)
        count++;
    return count;
}

long live_count(const char *kind)
{
    long references = 0;
    for (int i = 0; i < sim.device_count; i++)
        references += sim.contexts[i].references;
    if (!strcmp(kind, "context"))
        return references;
    if (!strcmp(kind, "malloc"))
        return live_ranges(RANGE_DEVICE, 0);
    if (!strcmp(kind, "bytes"))
        return live_ranges(RANGE_DEVICE, 1);
    if (!strcmp(kind, "hostalloc"))
        return live_ranges(RANGE_PINNED, 0) + live_ranges(RANGE_REGISTERED, 0);
    if (!strcmp(kind, "stream"))
        return count_objects(OBJECT_STREAM);
    if (!strcmp(kind, "event"))
        return count_objects(OBJECT_EVENT);
    if (!strcmp(kind, "module"))
        return count_objects(OBJECT_MODULE);
    if (!strcmp(kind, "graph"))
        return count_objects(OBJECT_GRAPH) + count_objects(OBJECT_GRAPH_EXEC);
    if (!strcmp(kind, "handle"))
        return sim.physicals;
    if (!strcmp(kind, "import"))
        return sim.imports + live_ranges(RANGE_IMPORTED, 0);
    if (!strcmp(kind, "mapping"))
        return live_ranges(RANGE_MAPPED, 0);
    if (!strcmp(kind, "reservation"))
        return live_reservations();
    if (!strcmp(kind, "external"))
        return count_objects(OBJECT_EXTERNAL) + live_ranges(RANGE_EXTERNAL, 0);
    if (!strcmp(kind, "timeline"))
        return count_objects(OBJECT_TIMELINE);
    if (!strcmp(kind, "resource"))
        return count_objects(OBJECT_RESOURCE) + live_ranges(RANGE_GL, 0);
    return -1;
}

/* Returns how many of a kind are alive: context (references), malloc, bytes, hostalloc, stream, event,
   module, graph; handle (physical memory), import (of it, or of a block), mapping, reservation; external
   (memory of a graphics API, and mappings of it), timeline, resource (of OpenGL, and mappings). -1 if there
   is no such kind. */
SIM_API long ignis_sim_live(const char *kind)
{
    pthread_mutex_lock(&sim.lock);
    long count = live_count(kind);
    pthread_mutex_unlock(&sim.lock);
    return count;
}

/* Tells the driver that a library loads kernels; the library calls it. */
SIM_API void ignis_sim_loads(void)
{
    pthread_mutex_lock(&sim.lock);
    if (current() && current()->active)
        loading_waits(current());
    pthread_mutex_unlock(&sim.lock);
}

/* Sets a call for the end of a graph whose capture has work of the caller's library. `call` comes when
   nothing can run the work any more, and must not call the driver. */
SIM_API int ignis_sim_at_graph_end(CUstream handle, void (*call)(void *), void *data)
{
    sim_goodbye *goodbye = calloc(1, sizeof *goodbye);
    sim_stream *stream;
    int code;
    pthread_mutex_lock(&sim.lock);
    code = !goodbye ? ERROR_OUT_OF_MEMORY : stream_find(handle, &stream);
    if (!code && !stream->capture)
        code = ERROR_INVALID_VALUE;
    if (!code) {
        *goodbye = (sim_goodbye){call, data, stream->capture->plan->goodbyes};
        stream->capture->plan->goodbyes = goodbye;
    }
    pthread_mutex_unlock(&sim.lock);
    if (code)
        free(goodbye);
    return code;
}

/* Returns how many calls of a kind or of a function there were, including failed ones. -1 if there is no such
   name. */
SIM_API long ignis_sim_calls(const char *name)
{
    sim_rule rule = {0};
    long sum = 0;
    if (!find_name(name, strlen(name), &rule.kind, &rule.function))
        return -1;
    pthread_mutex_lock(&sim.lock);
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (rule_matches(&rule, i))
            sum += sim.calls[i];
    pthread_mutex_unlock(&sim.lock);
    return sum;
}
