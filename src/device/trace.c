/* ===============================================================================================================
   >>profile - the recording half of profiles: what runs, when, and for how long

   ignis__trace_open and _close surround each kernel, copy and collective operation. report/profile.c makes the
   tables and traces.
   May use: >>device, >>stream. Costs one atomic read while no profile is open.
   Locks: ignis__profile_lock guards the items.
   =============================================================================================================== */

#include "room.h"

#define IGNIS__TRACED_MOST ((size_t)1 << 18) /* later items are only counted */

IGNIS__PRIVATE struct ignis__profile_type ignis__profile;

IGNIS__PRIVATE ignis__mutex ignis__profile_lock = IGNIS__MUTEX_INIT;

IGNIS__INLINE IGNIS__PRIVATE bool ignis__profiling(void) { return ignis__atomic_load(&ignis__profile.on) != 0; }

/*  Returns the name of a function; without memory it has none. */
IGNIS__COLD IGNIS__PRIVATE void ignis__function_name(void *function, const char *name)
{
    ignis__named_function **list = &ignis__profile.named[((uintptr_t)function >> 4) % 64], *named;
    ignis__mutex_lock(&ignis__profile_lock);
    for (named = *list; named && named->function != function; named = named->next)
        ;
    if (!named && (named = (ignis__named_function *)ignis__alloc(sizeof *named)) != NULL) {
        named->function = function;
        named->next = *list;
        *list = named;
    }
    if (named)
        snprintf(named->name, sizeof named->name, "%s", name);
    ignis__mutex_unlock(&ignis__profile_lock);
}

/*  Sets the bytes that the next kernel of this thread reads and writes; below 0: all bytes of its operands. rate: an
    ignis_dtype. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__cost(double bytes, double flops, int rate)
{
    ignis__thread *thread = &ignis__this_thread;
    if (!ignis__profiling())
        return;
    if (bytes >= 0)
        thread->bytes = bytes;
    thread->exact_bytes = bytes >= 0;
    thread->flops = flops;
    thread->rate = rate;
}

/*  Adds an item to the open profile, which then owns its events. */
IGNIS__COLD static bool ignis__trace_add(const ignis__trace_item *traced)
{
    ignis__trace_item *items;
    size_t capacity;
    bool ok = false;
    ignis__mutex_lock(&ignis__profile_lock);
    if (ignis__profiling() && traced->begin_ns >= ignis__profile.begin_ns) {
        capacity = ignis__profile.capacity;
        if (ignis__profile.count == capacity && capacity < IGNIS__TRACED_MOST) {
            capacity = capacity ? 2 * capacity : 1024;
            items = (ignis__trace_item *)ignis__alloc(capacity * sizeof *items);
            if (items) {
                if (ignis__profile.count)
                    memcpy(items, ignis__profile.items, ignis__profile.count * sizeof *items);
                ignis__free(ignis__profile.items);
                ignis__profile.items = items;
                ignis__profile.capacity = capacity;
            }
        }
        ok = ignis__profile.count < ignis__profile.capacity;
        if (ok)
            ignis__profile.items[ignis__profile.count++] = *traced;
        else
            ignis__profile.lost++;
    }
    ignis__mutex_unlock(&ignis__profile_lock);
    return ok;
}

IGNIS__COLD IGNIS__PRIVATE void ignis__trace_events_free(ignis__trace_item *traced)
{
    if (traced->first)
        (void)IGNIS__CUDA(cuEventDestroy_v2, (traced->first));
    if (traced->last)
        (void)IGNIS__CUDA(cuEventDestroy_v2, (traced->last));
    traced->first = traced->last = NULL;
}

/*  Begins an item of this thread. */
IGNIS__COLD static void ignis__trace_begin(ignis__trace_item *traced, ignis__trace_kind kind, const char *call,
                                           const ignis__device *device)
{
    ignis__thread *thread = &ignis__this_thread;
    memset(traced, 0, sizeof *traced);
    if (!thread->number) {
        ignis__mutex_lock(&ignis__profile_lock);
        thread->number = ++ignis__profile.threads;
        ignis__mutex_unlock(&ignis__profile_lock);
    }
    traced->kind = kind;
    traced->device = ignis__device_ordinal(device);
    traced->thread = thread->number;
    traced->call = call;
    traced->file = thread->file;
    traced->line = thread->line;
    traced->begin_ns = ignis__monotonic_ns();
}

/*  Relates the clocks of host and device on an idle stream that waits for no other. The device is entered. */
IGNIS__COLD IGNIS__PRIVATE void ignis__profile_base(ignis__device *device)
{
    int index = ignis__device_ordinal(device);
    void *event = NULL, *stream = NULL;
    ignis__mutex_lock(&ignis__profile_lock);
    if (!ignis__profile.base[index].event &&
        IGNIS__CUDA(cuStreamCreate, (&stream, IGNIS__CU_STREAM_NON_BLOCKING)) == 0) {
        if (IGNIS__CUDA(cuEventCreate, (&event, IGNIS__CU_EVENT_DEFAULT)) == 0) {
            (void)IGNIS__CUDA(cuEventRecord, (event, stream));
            (void)IGNIS__CUDA(cuEventSynchronize, (event));
            ignis__profile.base[index].event = event;
            ignis__profile.base[index].ns = ignis__monotonic_ns();
        }
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (stream));
    }
    ignis__mutex_unlock(&ignis__profile_lock);
}

/*  Begins an item of the profile: work queued on a stream until ignis__trace_close. Captured work is no item,
    because it has no time yet. False if there is no profile, or no event, which is counted. The device is entered.
    function: of a kernel; name: of anything else. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__trace_open(ignis__trace_item *traced, ignis__trace_kind kind, const char *call,
                                                  ignis__device *device, void *stream, void *function, const char *name)
{
    ignis__thread *thread = &ignis__this_thread;
    const ignis__named_function *named;
    bool ok;
    if (ignis__capture_on(device)) {
        thread->bytes = thread->flops = 0;
        return false;
    }
    ignis__profile_base(device);
    ignis__trace_begin(traced, kind, call, device);
    traced->stream = stream;
    traced->bytes = thread->bytes;
    traced->flops = thread->flops;
    traced->rate = thread->rate;
    traced->exact_bytes = thread->exact_bytes;
    traced->operation = thread->operation;
    traced->ms = -1;
    thread->bytes = thread->flops = 0;
    thread->exact_bytes = false;
    ignis__mutex_lock(&ignis__profile_lock);
    for (named = ignis__profile.named[((uintptr_t)function >> 4) % 64];
         function && named && named->function != function; named = named->next)
        ;
    snprintf(traced->name, sizeof traced->name, "%s", name ? name : named ? named->name : call);
    ignis__mutex_unlock(&ignis__profile_lock);
    ok = IGNIS__CUDA(cuEventCreate, (&traced->first, IGNIS__CU_EVENT_DEFAULT)) == 0 &&
         IGNIS__CUDA(cuEventCreate, (&traced->last, IGNIS__CU_EVENT_DEFAULT)) == 0 &&
         IGNIS__CUDA(cuEventRecord, (traced->first, stream)) == 0;
    if (!ok) {
        ignis__trace_events_free(traced);
        ignis__mutex_lock(&ignis__profile_lock);
        ignis__profile.lost++;
        ignis__mutex_unlock(&ignis__profile_lock);
    }
    return ok;
}

/*  Ends an item. ok: its work was queued. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__trace_close(ignis__trace_item *traced, bool ok)
{
    bool recorded = ok && IGNIS__CUDA(cuEventRecord, (traced->last, traced->stream)) == 0;
    traced->end_ns = ignis__monotonic_ns();
    if (!recorded || !ignis__trace_add(traced))
        ignis__trace_events_free(traced);
    return ok;
}

/*  Ends an item that copies or fills `size` bytes. */
IGNIS__PRIVATE bool ignis__trace_copy(ignis__trace_item *traced, const char *call, ignis__device *device, void *stream,
                                      const char *name, int64_t size)
{
    if (!ignis__profiling())
        return false;
    ignis__cost((double)size, 0, 0);
    return ignis__trace_open(traced, IGNIS__TRACED_COPY, call, device, stream, NULL, name);
}

/*  Records a device's memory in use from now on. */
IGNIS__COLD IGNIS__PRIVATE void ignis__trace_memory(int device, int64_t live, int64_t reserved)
{
    ignis__trace_item traced = IGNIS__ZERO;
    traced.kind = IGNIS__TRACED_MEMORY;
    traced.device = device;
    traced.begin_ns = ignis__monotonic_ns();
    traced.bytes = (double)live;
    traced.flops = (double)reserved;
    (void)ignis__trace_add(&traced);
}

/*  Adds a call on the host that began at begin_ns and ends now. */
IGNIS__COLD IGNIS__PRIVATE void ignis__trace_call(const char *call, const ignis__device *device, int64_t begin_ns)
{
    ignis__trace_item traced;
    ignis__trace_begin(&traced, IGNIS__TRACED_CALL, call, device);
    traced.end_ns = traced.begin_ns;
    traced.begin_ns = begin_ns;
    (void)ignis__trace_add(&traced);
}
