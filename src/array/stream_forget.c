/*  array/stream_forget.c - ignis_stream_forget and ignis_stream_free

    Replaces a stream by Ignis' own in storages, caches and threads, so that its owner can destroy it.
    May use: storage.c, >>memory, >>stream. Locks: a cache's trimming, ignis__storages, a storage, a device. */

#include "room.h"

/*  Replaces a stream by Ignis' own in every storage that belongs to it or was used on it. The stream is idle. */
IGNIS__COLD static void ignis__storages_forget_stream(ignis__device *device, void *stream)
{
    ignis__storage *storage;
    ignis__mutex_lock(&ignis__storages.lock);
    for (storage = ignis__storages.first; storage; storage = storage->next) {
        int i;
        ignis__mutex_lock(&storage->lock);
        if (storage->device == device && storage->stream == stream) {
            ignis__atomic_store(&storage->at_hand, 0);
            storage->stream = device->stream;
        }
        if (storage->device == device && storage->summed_on == stream)
            storage->summed_on = NULL;
        for (i = 0; i < storage->used_on_count; i++)
            if (storage->used_on[i].stream == stream && storage->used_on[i].device == device)
                storage->used_on[i--] = storage->used_on[--storage->used_on_count];
        ignis__mutex_unlock(&storage->lock);
    }
    ignis__mutex_unlock(&ignis__storages.lock);
}

/*  Waits for a stream, and removes it from everything that uses it. created: it is a stream of ignis_stream_create,
    which must be known. gone: nothing uses it any more, although its work may have failed. */
IGNIS__COLD static ignis_status ignis__stream_forget(const char *call, void *stream, bool created, bool *gone)
{
    ignis_status status = IGNIS_OK;
    bool found = !created;
    int i;
    if (!stream)
        return IGNIS_OK;
    if (!ignis__enter(call) || ignis__capture_refuses(call))
        return ignis__failed();
    for (i = 0; i < ignis__device_total; i++) {
        ignis__device *device = &ignis__devices[i];
        ignis__user_stream *user_stream, **link;
        ignis__binding binding;
        uint64_t serial;
        bool entered, mine, ok;
        if (!ignis__atomic_load(&device->opened))
            continue;
        ignis__mutex_lock(&device->lock);
        for (user_stream = device->user_streams; user_stream && user_stream->stream != stream;
             user_stream = user_stream->next)
            ;
        found = user_stream ? user_stream->created == created : found;
        serial = user_stream ? user_stream->serial : 0;
        ignis__mutex_unlock(&device->lock);
        if (!user_stream || !found)
            continue;
        entered = ignis__device_enter_to_give(call, device, &binding) ||
                  ignis__device_enter(call, device, &binding); /* the second says why not */
        if (!entered && !ignis__atomic_load(&ignis__devices_fault))
            return ignis__failed(); /* nothing is forgotten, as nothing can be waited for */
        ignis__mutex_lock(&device->lock);
        for (link = &device->user_streams; *link && (*link)->serial != serial; link = &(*link)->next)
            ;
        user_stream = *link;
        mine =
            user_stream != NULL; /* else another thread was faster, and another stream may have its place in memory */
        if (mine)
            *link = user_stream->next;
        found = mine || !created;
        ignis__mutex_unlock(&device->lock);
        if (mine) {
            ignis__atomic_add(&ignis__stream_forgets, 1);
            ok = entered && !IGNIS__CUDA_FAILED(call, device, cuStreamSynchronize, (stream));
            ignis__mutex_lock(
                &user_stream->lock); /* the stream is idle: a thread that waits for it does not for long */
            user_stream->forgotten = true;
            ignis__mutex_unlock(&user_stream->lock);
            ignis__user_stream_drop(device, user_stream);
            if (!ok)
                status = ignis__failed();
            if (entered && !ok)
                (void)ignis__device_finish(device); /* objects of the stream may be used again from here on */
            ignis__storages_forget_stream(device, stream);
            if (entered) {
                (void)IGNIS__CUDA(cuStreamSynchronize,
                                  (stream)); /* arrays freed until then have made it wait for other streams */
                ignis__memory_forget_stream(device, stream);
            }
        }
        if (entered)
            ignis__device_leave(&binding);
    }
    *gone = found;
    if (found)
        return status;
    return ignis__fail(IGNIS_DIAG_STREAM_INVALID, call,
                       created ? "stream %p was not made by ignis_stream_create, or was freed already"
                               : "stream %p was made by ignis_stream_create: free it with ignis_stream_free",
                       stream);
}

IGNIS__COLD IGNIS_API ignis_status ignis_stream_forget(void *stream)
{
    bool gone = false;
    return ignis__stream_forget("ignis_stream_forget", stream, false, &gone);
}

IGNIS__COLD IGNIS_API ignis_status ignis_stream_free(void *stream)
{
    bool gone = false;
    ignis_status status = ignis__stream_forget("ignis_stream_free", stream, true, &gone);
    if (gone)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (stream)); /* it is this thread's alone, whatever its work ended with */
    return status;
}
