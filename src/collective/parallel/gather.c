/*  >>parallel.gather - parameters of which each rank keeps a slice, gathered while operations use them

    The parameters of a bucket are views of a storage that is found at each use. The first use gathers the slices of
    all ranks on the second stream, and begins to gather the bucket that is used next. Three buckets at most are
    gathered: the one in use, the one before, for operations that alternate, and the next. Memory that an operation
    has found stays until the operation is queued.
    Slices are in a window of the ranks, if they reach each other's memory. Then a rank copies those of the others,
    which do nothing for it: the ranks meet before slices are written that others may read, and before slices are read
    that others may have written.
    Uses: communicators, windows, storages that are found. Invariant: which buckets are gathered depends on the order of
    uses alone, so all ranks gather alike.
    Locks: that of the storage, then parallel->gathering, then a communicator; device and storages below. */

#include "room.h"

#ifndef IGNIS_NO_TENSORS

/* Of data_parallel.c. */
IGNIS__PRIVATE bool ignis__parallel_enter_second(const char *call, ignis__parallel_state *parallel,
                                                 ignis__second_stream *second);
IGNIS__PRIVATE void ignis__parallel_leave_second(const ignis__parallel_state *parallel,
                                                 const ignis__second_stream *second);

/*  Returns the serial number of the capture on the device, or 0 outside a capture. */
IGNIS__PRIVATE uint64_t ignis__gather_capture(const ignis__parallel_state *parallel)
{
    const ignis__capture *capture = ignis__capture_on(parallel->device);
    return capture ? capture->serial : 0;
}

/*  Meets the other ranks on the current stream, if they may read the slices: writes may follow. */
static bool ignis__gather_meet_readers(const char *call, ignis__parallel_state *parallel)
{
    (void)call;
    if (parallel->is_read && ignis_comm_barrier(parallel->inside) != IGNIS_OK)
        return false;
    parallel->is_read = false;
    return true;
}

/*  Copies this rank's slice of the gathered parameters back: they were written by something else than a step. */
static bool ignis__gather_save(const char *call, const ignis__bucket *bucket)
{
    ignis__array *view;
    bool ok;
    if (!ignis__gather_meet_readers(call, bucket->parallel))
        return false;
    view =
        ignis__array_adopt(call, ignis__array_view(call, bucket->whole, &bucket->slice->shape, bucket->slice->numel,
                                                   bucket->parallel->place.rank * ignis__array_bytes(bucket->slice)));
    ok = view && ignis__array_copy_bytes(call, bucket->slice, 0, view);
    bucket->parallel->is_written = ignis__window_has(bucket->slice);
    if (view)
        ignis__array_unclaim(call, view);
    return ok;
}

/*  Frees the gathered parameters of a bucket. The current stream waits for a bucket that was not used: in a capture the
    memory has no stream that orders its next use, and graphs follow that stream alone. */
static bool ignis__gather_free(const char *call, ignis__bucket *bucket, bool saves)
{
    ignis__device *device = bucket->parallel->device;
    uint64_t *dirty = &bucket->values->storage->dirty;
    bool ok = !saves || !ignis__atomic_load(dirty) || ignis__gather_save(call, bucket);
    ignis__atomic_store(dirty, 0);
    if (saves && bucket->gathered && !bucket->ordered)
        ok = !IGNIS__CUDA_FAILED(call, device, cuStreamWaitEvent,
                                 (ignis__stream_current(device), bucket->gathered->event, 0)) &&
             ok;
    if (bucket->gathered)
        ignis__event_recycle(device, bucket->gathered);
    ignis__array_unclaim(call, bucket->whole);
    bucket->whole = NULL;
    bucket->gathered = NULL;
    bucket->ordered = NULL;
    return ok;
}

/*  Gathers slices on the current stream. */
static bool ignis__gather_slices(const char *call, ignis__bucket *bucket)
{
    ignis__parallel_state *parallel = bucket->parallel;
    ignis_array slice, whole;
    if (!ignis__window_has(bucket->slice)) {
        slice.id = bucket->slice->slot.handle;
        whole.id = bucket->whole->slot.handle;
        return ignis_comm_all_gather(parallel->inside, slice, whole) == IGNIS_OK;
    }
    if (parallel->is_written && ignis_comm_barrier(parallel->inside) != IGNIS_OK)
        return false;
    parallel->is_written = false;
    parallel->is_read = true;
    return ignis__window_gather(call, parallel->inside, bucket->slice, bucket->whole);
}

/*  Gathers a bucket on the second stream, after the work that the thread's stream has queued: after the step that
    wrote the slices, and the last use of the memory. */
static bool ignis__gather_start(const char *call, ignis__bucket *bucket)
{
    ignis__parallel_state *parallel = bucket->parallel;
    ignis__second_stream second;
    ignis_array_desc desc = IGNIS__ZERO;
    bool ok;
    desc.shape = bucket->values->shape;
    desc.dtype = bucket->values->dtype;
    desc.device = ignis__device_in_desc(parallel->device);
    desc.tag = "parameters";
    bucket->whole = ignis__array_adopt(call, ignis__array_create(call, &desc));
    if (!bucket->whole)
        return false;
    ignis__atomic_store(&bucket->values->storage->dirty, 0); /* a graph has written what is gathered now */
    ok = ignis__parallel_enter_second(call, parallel, &second);
    if (ok) {
        ok = ignis__gather_slices(call, bucket);
        bucket->gathered = ok ? ignis__event_record(call, parallel->device, parallel->stream) : NULL;
        ignis__parallel_leave_second(parallel, &second);
    }
    if (bucket->gathered)
        return true;
    (void)ignis__gather_free(call, bucket, false);
    return false;
}

/*  Frees all that is gathered. */
static bool ignis__gather_free_all(const char *call, ignis__parallel_state *parallel)
{
    bool ok = true;
    int i;
    for (i = 0; i < parallel->bucket_count; i++)
        if (parallel->buckets[i].whole)
            ok = ignis__gather_free(call, &parallel->buckets[i], true) && ok;
    parallel->current = parallel->before = -1;
    return ok;
}

/*  Notes that others may read and may have written, as at the beginning of a graph, and after a launch. */
static void ignis__gather_forget_meetings(ignis__parallel_state *parallel)
{
    parallel->is_read = parallel->is_written = parallel->window && ignis__window_has(parallel->window);
}

/*  Begins or leaves a capture: what was gathered outside is not gathered for each launch of a graph, and the memory of
    a graph is its own. */
static bool ignis__gather_enter(const char *call, ignis__parallel_state *parallel)
{
    const uint64_t serial = ignis__gather_capture(parallel);
    ignis__capture *capture;
    bool ok;
    if (serial == parallel->gathered_in)
        return true;
    if (parallel->gathered_in)
        return ignis__fail_false(IGNIS_DIAG_PARALLEL_BUSY, call,
                                 "another thread captures a graph with the parameters that ranks share");
    capture = ignis__capture_pause();
    ok = ignis__gather_free_all(call, parallel);
    ok = ignis__capture_resume(call, capture) && ok;
    parallel->gathered_in = serial;
    ignis__gather_forget_meetings(parallel); /* a graph is launched after any other work */
    return ok;
}

/*  Gathers bucket `at`, which is used from now on, if it is not gathered yet, and begins to gather the next one in the
    direction of uses: buckets are in the order of a backward pass, so a forward pass takes them from the last one. */
static bool ignis__gather_move(const char *call, ignis__parallel_state *parallel, int at)
{
    const bool ascends = parallel->current < 0 ? at == 0 : at > parallel->current;
    const int next = ascends ? at + 1 : at - 1, before = parallel->current;
    bool ok = true;
    int i;
    for (i = 0; ok && i < parallel->bucket_count; i++)
        if (parallel->buckets[i].whole && i != at && i != before && i != next)
            ok = ignis__gather_free(call, &parallel->buckets[i], true);
    parallel->before = before;
    parallel->current = at;
    ok = ok && (parallel->buckets[at].whole || ignis__gather_start(call, &parallel->buckets[at]));
    if (ok && next >= 0 && next < parallel->bucket_count && !parallel->buckets[next].whole)
        ok = ignis__gather_start(call, &parallel->buckets[next]);
    return ok;
}

static ignis__storage *ignis__gather_find(const char *call, void *finder, ignis__device *device, void *stream)
{
    ignis__bucket *bucket = (ignis__bucket *)finder;
    ignis__parallel_state *parallel = bucket->parallel;
    const int at = (int)(bucket - parallel->buckets);
    ignis__storage *found = NULL;
    bool ok;
    ignis__mutex_lock(&parallel->gathering);
    ok = ignis__gather_enter(call, parallel) &&
         ((parallel->current == at && bucket->whole) || ignis__gather_move(call, parallel, at));
    if (ok && device == parallel->device && stream != bucket->ordered) {
        ok = ignis__storage_use_after(call, bucket->whole->storage, stream, bucket->gathered->event);
        bucket->ordered = ok ? stream : bucket->ordered;
    }
    if (ok) {
        found = bucket->whole->storage;
        ignis__atomic_add(&found->users, 1);
    }
    ignis__mutex_unlock(&parallel->gathering);
    return found;
}

/*  Frees what is gathered, before pieces are used: slices then have what was written to the parameters. writes: and
    waits until no rank reads this one's. */
IGNIS__PRIVATE bool ignis__gather_settle(const char *call, ignis__parallel_state *parallel, bool writes)
{
    ignis__binding binding;
    bool ok = ignis__device_enter(call, parallel->device, &binding);
    if (!ok)
        return false;
    ignis__mutex_lock(&parallel->gathering);
    ok = ignis__gather_enter(call, parallel) && ignis__gather_free_all(call, parallel) &&
         (!writes || ignis__gather_meet_readers(call, parallel));
    ignis__mutex_unlock(&parallel->gathering);
    ignis__device_leave(&binding);
    return ok;
}

/*  Frees what is gathered in a capture that ends, or with NULL before a graph is launched, which may write the slices
    and whose collective operations follow those of this thread's stream. */
IGNIS__PRIVATE bool ignis__gather_close(const char *call, ignis__parallel_state *parallel,
                                        const ignis__capture *capture)
{
    bool ok = true;
    ignis__mutex_lock(&parallel->gathering);
    if (parallel->gathered_in == (capture ? capture->serial : 0)) {
        ok = ignis__gather_free_all(call, parallel);
        parallel->gathered_in = 0;
        ignis__gather_forget_meetings(parallel);
    }
    ignis__mutex_unlock(&parallel->gathering);
    return ok;
}

/*  Notes that a step has updated the slices of a bucket: its next use gathers them. */
IGNIS__PRIVATE bool ignis__gather_update(const char *call, ignis__bucket *bucket)
{
    ignis__storage *storage = bucket->values->storage;
    ignis__capture *capture = ignis__capture_on(storage->device);
    if (capture && !ignis__capture_hold_storage(call, capture, storage))
        return false;
    ignis__storage_written(storage);
    ignis__atomic_store(&storage->dirty, 0);
    bucket->parallel->is_written = ignis__window_has(bucket->slice);
    return true;
}

/*  Makes memory for the slices of all buckets. */
IGNIS__PRIVATE bool ignis__gather_open(const char *call, ignis__parallel_state *parallel, int64_t bytes)
{
    parallel->window = ignis__window_make(call, parallel->inside, bytes, "parameters");
    if (parallel->window)
        ignis__gather_forget_meetings(parallel);
    return parallel->window != NULL;
}

/*  Frees what is gathered, while no rank reads the slices any more: their communicator has failed. */
IGNIS__PRIVATE bool ignis__gather_stop(const char *call, ignis__parallel_state *parallel)
{
    ignis__mutex_lock(&parallel->gathering);
    parallel->is_read = false;
    ignis__mutex_unlock(&parallel->gathering);
    return ignis__gather_settle(call, parallel, false);
}

/*  Shares the memory for the slices with the ranks of a new group, and meets them as ranks do that make theirs: as
    ignis__gather_begin of the first bucket. */
IGNIS__PRIVATE bool ignis__gather_reopen(const char *call, ignis__parallel_state *parallel)
{
    bool ok;
    if (!ignis__window_renew(call, parallel->inside, parallel->window))
        return false;
    ignis__mutex_lock(&parallel->gathering);
    ignis__gather_forget_meetings(parallel);
    ok = ignis__gather_meet_readers(call, parallel);
    ignis__mutex_unlock(&parallel->gathering);
    return ok;
}

/*  Makes a view of the next `count` elements of that memory; claimed. */
static ignis__array *ignis__gather_slice(const char *call, ignis__parallel_state *parallel, ignis_dtype dtype,
                                         int64_t count)
{
    const ignis_shape shape = IGNIS_SHAPE(count);
    ignis__array *view = ignis__array_view_make(call, parallel->window, &shape, count, parallel->window_end);
    if (!view)
        return NULL;
    view->dtype = dtype;
    parallel->window_end += count * ignis__dtypes[dtype].size;
    return ignis__array_adopt(call, ignis__array_publish(view));
}

/*  Makes the slice and the storage of a bucket of `count` elements, and memory for the values that it begins with. */
IGNIS__PRIVATE bool ignis__gather_make(const char *call, ignis__bucket *bucket, ignis_dtype dtype, int64_t count)
{
    ignis__device *device = bucket->parallel->device;
    const ignis_shape shape = IGNIS_SHAPE(count);
    ignis__storage *storage = ignis__storage_make(call, device, count * ignis__dtypes[dtype].size);
    ignis__array *values = storage ? ignis__array_make(call, storage, &shape, dtype, count) : NULL;
    if (!values) {
        if (storage)
            ignis__storage_destroy(storage);
        return false;
    }
    storage->find_fn = ignis__gather_find;
    storage->finder = bucket;
    memcpy(values->tag, "parameters", sizeof "parameters");
    bucket->values = ignis__array_adopt(call, ignis__array_publish(values));
    bucket->slice = ignis__gather_slice(call, bucket->parallel, dtype, count / bucket->parallel->place.ranks);
    bucket->whole = ignis__array_adopt(call, ignis__array_zeroed(call, device, dtype, count, "parameters", false));
    return bucket->slice && bucket->whole;
}

/*  Makes rank 0's first values those of all ranks, and keeps this rank's slice of them. */
IGNIS__PRIVATE bool ignis__gather_begin(const char *call, ignis__bucket *bucket, bool broadcasts)
{
    ignis_array whole;
    whole.id = bucket->whole->slot.handle;
    ignis__atomic_store(&bucket->values->storage->dirty, 1);
    return (!broadcasts || ignis_comm_broadcast(bucket->parallel->comm, whole, 0) == IGNIS_OK) &&
           ignis__gather_free(call, bucket, true);
}

/*  Frees the parameters of a bucket; arrays of them that are left have no memory any more. */
IGNIS__PRIVATE void ignis__gather_end(const char *call, ignis__bucket *bucket)
{
    ignis__storage *storage = bucket->values->storage;
    ignis__mutex_lock(&storage->lock);
    storage->finder = NULL;
    ignis__mutex_unlock(&storage->lock);
    if (bucket->whole)
        (void)ignis__gather_free(call, bucket, false);
    if (bucket->slice)
        ignis__array_unclaim(call, bucket->slice);
}

#endif /* IGNIS_NO_TENSORS */
