/*  array/storage.c - device memory that arrays and their views share

    Memory is taken at the first use, and recycled when the last user is gone, ordered after every stream that used
    it. A version counts writes.
    May use: >>memory, >>stream, >>capture. Invariant: work on a stream is ordered after earlier work on the same
    memory that Ignis has queued.
    Locks: ignis__storages (the list), then storage->lock, then a device. */

#include "room.h"

/*  Counts a write that is about to be queued. Captured work writes at each launch, and counts there. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__storage_written(ignis__storage *storage)
{
    const ignis__capture *capture = ignis__capture_on(storage->device);
    ignis__captured_item *held = capture ? ignis__capture_find(capture, storage) : NULL;
    if (storage->find_fn)
        ignis__atomic_store(&storage->dirty, 1);
    if (held)
        held->written = true;
    else if (!capture) /* else it is memory of the capture itself */
        ignis__atomic_add(&storage->version, 1);
}

/*  As ignis__storage_written, for a kernel of the caller: Ignis does not know whether it writes. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__storage_expose(ignis__storage *storage)
{
    const ignis__capture *capture = ignis__capture_on(storage->device);
    ignis__captured_item *held = capture ? ignis__capture_find(capture, storage) : NULL;
    if (held)
        held->exposed = true;
    else if (!capture)
        ignis__atomic_store(&storage->exposed, 1);
}

/*  Returns how often the memory was written to, as far as Ignis knows. */
IGNIS__INLINE IGNIS__PRIVATE uint64_t ignis__storage_version(const ignis__storage *storage)
{
    const ignis__replays *replays = ignis__atomic_load(&storage->address) ? storage->replays : NULL;
    return ignis__atomic_load(&storage->version) + (replays ? ignis__atomic_load(&replays->count) : 0);
}

/*  Checks that the memory may be read. Memory read by a capture may be written before the launch, if it exists. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__storage_readable(const ignis__storage *storage)
{
    if (storage->wrapped || storage->find_fn || !ignis__atomic_load(&storage->address))
        return storage->wrapped || storage->find_fn;
    return ignis__storage_version(storage) || ignis__atomic_load(&storage->exposed) ||
           ignis__capture_on(storage->device);
}

IGNIS__PRIVATE struct ignis__storages_type ignis__storages = {IGNIS__MUTEX_INIT, NULL};

/*  Adds a storage to that list, if the stream of its next use belongs to the caller. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__storage_enlist(ignis__storage *storage, const ignis__device *device,
                                                        const void *stream)
{
    if (!stream || stream == device->stream || ignis__atomic_load(&storage->listed))
        return;
    ignis__mutex_lock(&ignis__storages.lock);
    if (!ignis__atomic_load(&storage->listed)) {
        storage->next = ignis__storages.first;
        if (storage->next)
            storage->next->before = storage;
        ignis__storages.first = storage;
        ignis__atomic_store(&storage->listed, 1);
    }
    ignis__mutex_unlock(&ignis__storages.lock);
}

/*  Makes a storage without users. NULL on failure. */
IGNIS__INLINE IGNIS__PRIVATE ignis__storage *ignis__storage_make(const char *call, ignis__device *device, int64_t size)
{
    ignis__storage *storage = (ignis__storage *)ignis__alloc_for(call, sizeof *storage);
    if (!storage)
        return NULL;
    ignis__mutex_init(&storage->lock);
    storage->device = device;
    storage->size = size;
    ignis__origin_current(&storage->origin, call);
    return storage;
}

IGNIS__INLINE IGNIS__PRIVATE void ignis__storage_destroy(ignis__storage *storage)
{
    if (ignis__atomic_load(&storage->listed)) {
        ignis__mutex_lock(&ignis__storages.lock);
        if (storage->before)
            storage->before->next = storage->next;
        else
            ignis__storages.first = storage->next;
        if (storage->next)
            storage->next->before = storage->before;
        ignis__mutex_unlock(&ignis__storages.lock);
    }
    if (storage->replays)
        ignis__replays_drop(storage->replays);
    ignis__free(storage);
}

/*  Orders the next work on `stream` after the stream of the memory, where the block's last user may still be
    running. */
static bool ignis__storage_used_on(const char *call, ignis__storage *storage, ignis__device *device, void *stream)
{
    ignis__used_on *slot;
    int i;
    if (stream == storage->stream && device == storage->device)
        return true;
    for (i = 0; i < storage->used_on_count; i++)
        if (storage->used_on[i].stream == stream && storage->used_on[i].device == device)
            return true;
    if (!ignis__stream_order(call, storage->device, storage->stream, device, stream))
        return false;
    if (storage->used_on_count < IGNIS__COUNT(storage->used_on)) {
        slot = &storage->used_on[storage->used_on_count++];
    } else { /* more streams than entries: make the memory's own stream wait for one of them now, and drop that entry */
        slot = &storage->used_on[0];
        if (!ignis__stream_order(call, slot->device, slot->stream, storage->device, storage->stream))
            return false;
    }
    slot->device = device;
    slot->stream = stream;
    return true;
}

/*  Orders work on `stream` that adds to a sum after earlier additions on another stream. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__storage_sum_on(const char *call, ignis__storage *storage, void *stream)
{
    bool ok;
    ignis__storage_enlist(storage, storage->device, stream);
    ignis__mutex_lock(&storage->lock);
    ok = !storage->summed_on || ignis__stream_order(call, storage->device, storage->summed_on, storage->device, stream);
    storage->summed_on = stream;
    ignis__mutex_unlock(&storage->lock);
    return ok;
}

/*  Recycles the memory of a storage without users, ordered after all its uses. If the device cannot be entered, the
    memory stays unused. */
static void ignis__storage_recycle(const char *call, ignis__storage *storage)
{
    ignis__device *unordered[IGNIS__COUNT(storage->used_on)];
    ignis__pooled_event *last = NULL;
    ignis__binding binding, other;
    bool entered = ignis__device_enter_to_give(call, storage->device, &binding);
    bool listed = ignis__atomic_load(&storage->listed) != 0; /* no other thread can see it if not */
    int i, count = 0;
    if (listed)
        ignis__mutex_lock(&storage->lock);
    /* A thread that forgets one of these streams waits until it is not needed here, so this loop need not wait. */
    for (i = 0; i < storage->used_on_count; i++) {
        ignis__used_on *used = &storage->used_on[i];
        if (!entered || !ignis__stream_order(call, used->device, used->stream, storage->device, storage->stream))
            unordered[count++] = used->device;
    }
    if (entered && !storage->block && storage->stream)
        last = ignis__event_record(call, storage->device, storage->stream);
    if (listed)
        ignis__mutex_unlock(&storage->lock);
    while (count-- > 0) {
        if (ignis__device_enter_to_give(call, unordered[count], &other)) {
            (void)ignis__device_finish(unordered[count]); /* without an order, wait */
            ignis__device_leave(&other);
        }
    }
    if (entered) {
        if (storage->block) {
            ignis__memory_recycle(call, storage->device, storage->block);
        } else if (storage->stream) { /* the next user of the memory does not know the other streams */
            if (!last || IGNIS__CUDA(cuEventSynchronize, (last->event)) != 0)
                (void)ignis__device_finish(storage->device);
            if (last)
                ignis__event_recycle(storage->device, last);
        }
        ignis__device_leave(&binding);
    }
    if (storage->release_fn)
        storage->release_fn((void *)(uintptr_t)storage->address, storage->release_data);
}

/*  Drops a user of a storage. The last one recycles the memory, unless it is the caller's: then ordering is the
    caller's, too. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__storage_drop(const char *call, ignis__storage *storage)
{
    if (ignis__atomic_add(&storage->users, (uint64_t)-1) != 0)
        return;
    if (storage->block || storage->release_fn)
        ignis__storage_recycle(call, storage);
    ignis__storage_destroy(storage);
}

static void ignis__storage_drop_held(const char *call, void *item)
{
    ignis__storage_drop(call, (ignis__storage *)item);
}

IGNIS__PRIVATE bool ignis__capture_hold_storage(const char *call, ignis__capture *capture, ignis__storage *storage)
{
    return ignis__capture_hold(call, capture, storage, &storage->users, ignis__storage_drop_held);
}

/*  Takes memory if there is none, and orders work on `stream` of `device` after earlier uses. */
IGNIS__ONE_COPY static bool ignis__storage_prepare(const char *call, ignis__storage *storage, ignis__device *device,
                                                   void *stream, uint64_t *address)
{
    ignis__capture *open = ignis__capturing(), *capture = open && open->device == device ? open : NULL;
    ignis__block *block = NULL;
    bool forgotten = false; /* another thread has forgotten the stream, and memory was taken for it after that */
    void *from = NULL;
    bool ok = true;
    if (!capture)
        ignis__storage_enlist(storage, device, stream);
    ignis__mutex_lock(&storage->lock);
    if (!storage->stream) /* that of a capture ends with it */
        storage->stream = device == storage->device && !capture ? stream : storage->device->stream;
    if (!ignis__atomic_load(&storage->address) && storage->size > 0) {
        from = storage->stream;
        ignis__mutex_unlock(
            &storage->lock); /* this may wait for the device, and the device for the thread that waits for the lock */
        block = ignis__memory_take_for(call, &storage->origin, storage->device, from, storage->size);
        ignis__mutex_lock(&storage->lock);
        ok = block != NULL;
        if (ok && !ignis__atomic_load(&storage->address)) {
            storage->block = block;
            if (open && open->device == storage->device) {
                storage->replays = open->replays;
                ignis__atomic_add(&open->replays->users, 1);
            }
            ignis__atomic_store(&storage->address, block->address);
            block = NULL;
        }
        if (storage->replays)
            storage->stream = storage->device->stream; /* the memory goes to this stream when the graph is freed */
        else
            forgotten = storage->stream != from;
    }
    if (ok && capture) /* all streams were idle when it began: no order is missing */
        ok = storage->replays == capture->replays || ignis__capture_hold_storage(call, capture, storage);
    else
        ok = ok && (storage->size == 0 || ignis__storage_used_on(call, storage, device, stream));
    *address = ignis__atomic_load(&storage->address);
    if (*address)
        ignis__atomic_store(&storage->at_hand, (uintptr_t)storage->stream);
    ignis__mutex_unlock(&storage->lock);
    if (block) /* another thread was faster */
        ignis__memory_recycle(call, storage->device, block);
    if (forgotten)
        ignis__memory_forget_stream(storage->device, from);
    return ok;
}

/*  Orders work on `stream` after an event that follows the last write of the storage, instead of after all work of the
    storage's stream. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__storage_use_after(const char *call, ignis__storage *storage,
                                                                 void *stream, void *event)
{
    bool ok = !IGNIS__CUDA_FAILED(call, storage->device, cuStreamWaitEvent, (stream, event, 0));
    int i = 0;
    if (!ok || ignis__capture_on(storage->device))
        return ok;
    ignis__mutex_lock(&storage->lock);
    while (i < storage->used_on_count && storage->used_on[i].stream != stream)
        i++;
    if (i == storage->used_on_count && i < IGNIS__COUNT(storage->used_on)) { /* else ignis__storage_prepare waits */
        storage->used_on[storage->used_on_count].device = storage->device;
        storage->used_on[storage->used_on_count++].stream = stream;
    }
    ignis__mutex_unlock(&storage->lock);
    return true;
}

/*  Drops storages that work has found, the last ones first, until the thread has `count`. */
IGNIS__COLD IGNIS__PRIVATE void ignis__storages_drop_found(const char *call, int count)
{
    while (ignis__this_thread.found_count > count)
        ignis__storage_drop(call, ignis__this_thread.found[--ignis__this_thread.found_count]);
}

/*  Finds the storage that has the memory now, and holds it until the thread's innermost work ends: the address stays
    valid meanwhile. NULL, and reported, on failure. */
IGNIS__COLD static ignis__storage *ignis__storage_find(const char *call, ignis__storage *storage, ignis__device *device,
                                                       void *stream)
{
    ignis__storage *found = NULL;
    ignis__thread *thread = &ignis__this_thread;
    ignis__capture *capture = ignis__capture_on(device);
    if (capture && !ignis__capture_hold_storage(call, capture, storage))
        return NULL; /* the graph counts its writes */
    ignis__mutex_lock(&storage->lock);
    if (thread->found_count == IGNIS__COUNT(thread->found))
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "an operation uses parameters of more than %d buckets of ignis_parallel_desc.shard; larger "
                    "bucket_bytes make fewer of them",
                    IGNIS__COUNT(thread->found));
    else if (!storage->finder)
        ignis__fail(IGNIS_DIAG_PARALLEL_FREED, call,
                    "the ignis_parallel whose ranks share the parameter was freed, and with it the parameter");
    else
        found = storage->find_fn(call, storage->finder, device, stream);
    ignis__mutex_unlock(&storage->lock);
    if (found)
        thread->found[thread->found_count++] = found;
    return found;
}

/*  Returns the address for work on `stream` of `device`, and allocates if necessary. 0 on failure, or for an empty
    storage. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__storage_use(const char *call, ignis__storage *storage, ignis__device *device,
                                                     void *stream, uint64_t *address)
{
    const ignis__capture *capture = ignis__capturing();
    if (device != storage->device || ignis__atomic_load(&storage->at_hand) != (uintptr_t)stream ||
        (capture && capture->device == device)) {
        if (storage->find_fn)
            storage = ignis__storage_find(call, storage, device, stream);
        return storage && ignis__storage_prepare(call, storage, device, stream, address);
    }
    *address = ignis__atomic_load(&storage->address);
    return true;
}
