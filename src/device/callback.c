/*  device/callback.c - functions of the program that streams call

    For ignis_stream_call. The driver's thread runs them; a list of pending callbacks frees those that a fault
    prevents.
    May use: stream.c, capture.c. Locks: ignis__callbacks.lock; no other lock is taken under it, and it is not held
    around driver calls. */

#include "room.h"

typedef struct ignis__callback {
    void (*fn)(void *user_data);
    void *user_data;
    bool captured; /* called at each launch of a graph, which frees it */
    struct ignis__callback *next;
} ignis__callback;

/*  Callbacks that wait for their stream, except captured ones. The driver is called without the lock, because its own
    thread takes it. */
static struct {
    ignis__mutex lock;
    ignis__callback *first;
} ignis__callbacks = {IGNIS__MUTEX_INIT, NULL};

static void ignis__callback_free(ignis__callback *callback)
{
    ignis__callback **link = &ignis__callbacks.first;
    ignis__mutex_lock(&ignis__callbacks.lock);
    while (*link != callback)
        link = &(*link)->next;
    *link = callback->next;
    ignis__mutex_unlock(&ignis__callbacks.lock);
    ignis__free(callback);
}

static void ignis__callback_drop(const char *call, void *item)
{
    (void)call;
    ignis__free(item);
}

/*  Runs a callback; calls of Ignis in it fail. The thread may be one that calls Ignis otherwise: its recorded failure
    stays. */
static void ignis__callback_run(void *context)
{
    ignis__callback *callback = (ignis__callback *)context;
    ignis__thread *thread = &ignis__this_thread;
    ignis__record before = thread->record;
    ignis_status latest = thread->latest;
    memset(&thread->record, 0, sizeof thread->record);
    thread->called_back = true;
    callback->fn(callback->user_data);
    thread->called_back = false;
    ignis__record_drop(thread);
    thread->record = before;
    thread->latest = latest;
    if (!callback->captured)
        ignis__callback_free(callback);
}

IGNIS_API ignis_status ignis_stream_call(void *stream, void (*fn)(void *user_data), void *user_data)
{
    static const char call[] = "ignis_stream_call";
    ignis__capture *capture;
    ignis__callback *callback = NULL;
    ignis__device *device;
    ignis__binding binding;
    bool captured, ok = false;
    if (!ignis__enter(call))
        return ignis__failed();
    if (!fn)
        return ignis__fail_null(call, "fn");
    device = ignis__stream_enter(call, &stream, &binding);
    if (!device)
        return ignis__failed();
    capture = ignis__capture_on(device);
    if (!ignis__stream_captured(call, device, stream, &captured) ||
        (captured && !capture && !ignis__fail_captured(call, "another thread captures the stream"))) {
        callback = NULL; /* reported */
    } else if ((callback = (ignis__callback *)ignis__alloc_for(call, sizeof *callback)) != NULL) {
        callback->fn = fn;
        callback->user_data = user_data;
        callback->captured = captured;
        if (!captured) {
            ignis__mutex_lock(&ignis__callbacks.lock);
            callback->next = ignis__callbacks.first;
            ignis__callbacks.first = callback;
            ignis__mutex_unlock(&ignis__callbacks.lock);
        }
        if (captured && !ignis__capture_hold(call, capture, callback, NULL, ignis__callback_drop))
            ignis__free(callback);
        else
            ok = !IGNIS__CUDA_FAILED(call, device, cuLaunchHostFunc, (stream, ignis__callback_run, callback));
        if (!ok && !captured)
            ignis__callback_free(callback);
    }
    ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Frees the callbacks that a fault prevents. The devices are idle. */
IGNIS__COLD IGNIS__PRIVATE void ignis__callbacks_close(void)
{
    while (ignis__callbacks.first)
        ignis__callback_free(ignis__callbacks.first);
}
