/*  >>tensor.offload - results of products in pinned host memory between the forward and the backward of a checkpoint

    Copies run on a stream of their own, the lane of a tape and a device. At the end of a checkpoint's first run copies
    to the host begin. The device memory is freed when the next first run ends. A backward brings the results of the
    checkpoint before back while its own function runs.
    Uses: the pinned memory and streams of device, arrays.
    Invariants: a pinned piece is used on one lane alone, so its uses are in order; the stream of an array's memory
    waits for the lane before the array is freed; a capture joins its lanes before it ends.
    Locks: ignis__offload_lanes.lock guards the lists of lanes and pieces, an offload's lock its arrays; no driver call
    is made under the first. */

#include "room.h"

typedef struct ignis__lane {
    uint64_t tape; /* its number; 0: none uses the lane */
    ignis__device *device;
    void *stream;
    uint64_t stream_serial;
    uint64_t capture;     /* serial of the capture that the lane has work in */
    ignis__pinned *spare; /* pieces that no offload has */
    ignis__offload *last; /* the latest offload, held; NULL: none */
    struct ignis__lane *next;
} ignis__lane;

static struct {
    ignis__mutex lock;
    ignis__lane *first;
} ignis__offload_lanes = {IGNIS__MUTEX_INIT, NULL};

/*  Results in order: each on the device, in a pinned piece, or in both. */
struct ignis__offload {
    uint64_t users; /* the node, the lane, the offload after it, graphs */
    ignis__mutex lock;
    ignis__lane *lane;
    ignis__offload *before;      /* held; NULL: none */
    ignis__pooled_event *copied; /* after the last copies; NULL: none are queued */
    uint64_t capture;            /* serial of the capture that they are in; 0: none */
    bool is_captured;            /* a graph uses the pieces at each launch */
    bool is_closed;
    int use_count; /* backwards that use the results now */
    bool is_away;  /* results with a piece have no array */
    bool is_back;  /* their arrays were brought back */
    int count;
    ignis__array **arrays;  /* claimed; NULL: away */
    ignis__pinned **pieces; /* NULL: the result stays on the device */
    ignis_shape *shapes;
    ignis_dtype *dtypes;
};

/*  Joins the lanes of a capture that ends. */
static bool ignis__lanes_settle(const char *call, ignis__device *device, const ignis__capture *capture)
{
    ignis__lane *lane, *joined = NULL;
    ignis__mutex_lock(&ignis__offload_lanes.lock);
    for (lane = ignis__offload_lanes.first; lane && !joined; lane = lane->next)
        if (lane->device == device && lane->capture == capture->serial)
            joined = lane;
    ignis__mutex_unlock(&ignis__offload_lanes.lock);
    if (!joined)
        return true;
    joined->capture = 0;
    return ignis__stream_order(call, device, joined->stream, device, capture->stream);
}

/*  Finds or makes the lane of a tape on an entered device. NULL, and reported, on failure. */
static ignis__lane *ignis__lane_find(const char *call, const ignis__tape *tape, ignis__device *device)
{
    ignis__lane *lane, *idle = NULL;
    bool ok;
    ignis__mutex_lock(&ignis__offload_lanes.lock);
    for (lane = ignis__offload_lanes.first; lane; lane = lane->next) {
        if (lane->device == device && lane->tape == tape->number)
            break;
        if (lane->device == device && !lane->tape)
            idle = lane;
    }
    if (!lane && idle)
        (lane = idle)->tape = tape->number;
    ignis__mutex_unlock(&ignis__offload_lanes.lock);
    if (lane)
        return lane;
    lane = (ignis__lane *)ignis__alloc_for(call, sizeof *lane);
    if (!lane)
        return NULL;
    ok = !IGNIS__CUDA_FAILED(call, device, cuStreamCreate, (&lane->stream, IGNIS__CU_STREAM_NON_BLOCKING));
    lane->stream_serial = ok ? ignis__stream_adopt(call, device, lane->stream) : 0;
    if (!lane->stream_serial) {
        if (ok)
            (void)IGNIS__CUDA(cuStreamDestroy_v2, (lane->stream));
        ignis__free(lane);
        return NULL;
    }
    lane->device = device;
    lane->tape = tape->number;
    IGNIS__HOOK_SET(ignis__capture_join, ignis__lanes_settle);
    ignis__mutex_lock(&ignis__offload_lanes.lock);
    lane->next = ignis__offload_lanes.first;
    ignis__offload_lanes.first = lane;
    ignis__mutex_unlock(&ignis__offload_lanes.lock);
    return lane;
}

/*  Takes a piece of at least `size` bytes, of which at most half is not used. NULL, and reported, if there is no pinned
    memory. */
static ignis__pinned *ignis__lane_take(const char *call, ignis__lane *lane, int64_t size)
{
    ignis__pinned *piece = NULL, **link, **best = NULL;
    ignis__mutex_lock(&ignis__offload_lanes.lock);
    for (link = &lane->spare; *link; link = &(*link)->next)
        if ((*link)->size >= size && (*link)->size <= 2 * size && (!best || (*link)->size < (*best)->size))
            best = link;
    if (best) {
        piece = *best;
        *best = piece->next;
    }
    ignis__mutex_unlock(&ignis__offload_lanes.lock);
    if (piece || (piece = (ignis__pinned *)ignis__alloc_for(call, sizeof *piece)) == NULL)
        return piece;
    if (!piece->memory) {
        piece->size = size;
        piece->memory = ignis__global.dry_run ? piece : ignis__pinned_take(call, lane->device, size);
    }
    if (piece->memory)
        return piece;
    ignis__free(piece);
    return NULL;
}

static void ignis__offload_give_pieces(ignis__offload *offload)
{
    int i;
    ignis__mutex_lock(&ignis__offload_lanes.lock);
    for (i = 0; i < offload->count; i++) {
        if (offload->pieces[i]) {
            offload->pieces[i]->next = offload->lane->spare;
            offload->lane->spare = offload->pieces[i];
        }
        offload->pieces[i] = NULL;
    }
    ignis__mutex_unlock(&ignis__offload_lanes.lock);
}

/*  Drops a user. The last one frees the offload, and those before it of which it was the last user. */
static void ignis__offload_drop(ignis__offload *offload)
{
    while (offload && ignis__atomic_add(&offload->users, (uint64_t)-1) == 0) {
        ignis__offload *before = offload->before;
        ignis__offload_give_pieces(offload);
        ignis__free(offload);
        offload = before;
    }
}

static void ignis__offload_drop_captured(const char *call, void *item)
{
    (void)call;
    ignis__offload_drop((ignis__offload *)item);
}

static uint64_t ignis__offload_capture(const ignis__device *device)
{
    const ignis__capture *capture = ignis__capture_on(device);
    return capture ? capture->serial : 0;
}

/*  Makes the stream of each result's memory, and the current stream, wait for queued copies. The offload is locked, the
    device entered. Work of a capture that has ended needs no wait. */
static bool ignis__offload_wait(const char *call, ignis__offload *offload)
{
    ignis__device *device = offload->lane->device;
    void *now = ignis__stream_current(device), *stream;
    bool ok = true;
    int i;
    if (!offload->copied)
        return true;
    if (offload->capture == ignis__offload_capture(device)) {
        ok = !IGNIS__CUDA_FAILED(call, device, cuStreamWaitEvent, (now, offload->copied->event, 0));
        for (i = 0; ok && !offload->capture && i < offload->count; i++) {
            ignis__storage *storage = offload->arrays[i] ? offload->arrays[i]->storage : NULL;
            if (!storage || !offload->pieces[i])
                continue;
            ignis__mutex_lock(&storage->lock);
            stream = storage->stream;
            ok = !stream || stream == now ||
                 !IGNIS__CUDA_FAILED(call, device, cuStreamWaitEvent, (stream, offload->copied->event, 0));
            ignis__mutex_unlock(&storage->lock);
        }
    }
    ignis__event_recycle(device, offload->copied);
    offload->copied = NULL;
    return ok;
}

/*  Frees the device memory of results that have a piece, or of all. The offload is locked, the device entered. */
static bool ignis__offload_free_arrays(const char *call, ignis__offload *offload, bool all)
{
    bool ok = ignis__offload_wait(call, offload);
    int i;
    if (!ok)
        (void)ignis__device_finish(offload->lane->device);
    for (i = 0; i < offload->count; i++) {
        if (offload->arrays[i] && (all || offload->pieces[i])) {
            ignis__array_unclaim(call, offload->arrays[i]);
            offload->arrays[i] = NULL;
        }
    }
    offload->is_away = true;
    offload->is_back = false;
    return ok;
}

/*  Queues copies between results and pieces on the lane, after the work that the current stream has queued. The
    offload is locked, or seen by nobody else; work is that of its device. */
static bool ignis__offload_copy(const ignis__work *work, ignis__offload *offload, bool to_host)
{
    ignis__lane *lane = offload->lane;
    ignis__capture *capture = ignis__capture_on(work->device);
    ignis__work copies = *work;
    ignis__address address;
    bool ok = true;
    int i, pass;
    copies.stream = lane->stream;
    if (capture) {
        if (!ignis__capture_hold(work->call, capture, offload, &offload->users, ignis__offload_drop_captured))
            return false;
        offload->is_captured = true;
    }
    if (offload->copied)
        ignis__event_recycle(work->device, offload->copied);
    offload->copied = NULL;
    for (pass = 0; pass < 2; pass++) { /* memory is taken for the current stream first */
        if (pass)
            ok = ok &&
                 (capture ? ignis__capture_draw(work->call, work->device, work->stream, lane->stream_serial)
                          : ignis__stream_order(work->call, work->device, work->stream, work->device, lane->stream));
        for (i = 0; ok && i < offload->count; i++) {
            ignis__array *array = offload->arrays[i];
            if (!offload->pieces[i] || !array)
                continue;
            ok =
                to_host || pass ? ignis__work_address(work, array, &address) : ignis__work_write(work, array, &address);
            if (ok && pass && !ignis__global.dry_run)
                ok = to_host ? ignis__copy_down(&copies, offload->pieces[i]->memory, address, ignis__array_bytes(array))
                             : ignis__copy_up(&copies, address, offload->pieces[i]->memory, ignis__array_bytes(array));
        }
    }
    offload->capture = lane->capture = capture ? capture->serial : 0;
    offload->copied = ignis__event_record(work->call, work->device, lane->stream);
    return ok && offload->copied;
}

/*  Makes an offload for results, of which the first `count` are claimed from now on. NULL, and reported, if out of
    memory. */
static ignis__offload *ignis__offload_make(const char *call, ignis__lane *lane, ignis__products *products,
                                           int64_t least)
{
    const size_t count = (size_t)products->count;
    ignis__offload *offload = (ignis__offload *)ignis__alloc_for(
        call, sizeof *offload + count * (sizeof *offload->arrays + sizeof *offload->pieces + sizeof *offload->shapes +
                                         sizeof *offload->dtypes));
    int i;
    if (!offload)
        return NULL;
    ignis__mutex_init(&offload->lock);
    offload->users = 1;
    offload->lane = lane;
    offload->shapes = (ignis_shape *)(void *)(offload + 1);
    offload->arrays = (ignis__array **)(void *)(offload->shapes + count);
    offload->pieces = (ignis__pinned **)(void *)(offload->arrays + count);
    offload->dtypes = (ignis_dtype *)(void *)(offload->pieces + count);
    for (i = 0; i < products->count; i++) {
        ignis__array *array = products->arrays[i];
        int64_t bytes = ignis__array_bytes(array);
        ignis__shape_copy(&offload->shapes[i], &array->shape);
        offload->dtypes[i] = array->dtype;
        offload->count = i + 1;
        if (bytes >= least && bytes > 0 && array->storage->device == lane->device &&
            (offload->pieces[i] = ignis__lane_take(call, lane, bytes)) == NULL) {
            ignis__offload_drop(offload);
            return NULL;
        }
    }
    memcpy(offload->arrays, products->arrays, count * sizeof *offload->arrays);
    products->count = 0;
    return offload;
}

/*  Moves the results of products to pinned memory: copies begin now. Their claims are taken over on success. Results
    of fewer than `least` bytes stay. NULL, and reported, on failure; then nothing has moved. */
IGNIS__COLD IGNIS__PRIVATE ignis__offload *ignis__offload_begin(const char *call, ignis__products *products,
                                                                int64_t least)
{
    ignis__device *device = products->arrays[0]->storage->device;
    const int count = products->count;
    ignis__offload *offload = NULL, *last;
    ignis__lane *lane;
    ignis__work work;
    bool ok, closed = true;
    if (!ignis__work_begin(call, device, &work))
        return NULL;
    lane = ignis__lane_find(call, ignis__tape_now(call), device);
    last = lane ? lane->last : NULL;
    ok = lane != NULL;
    if (last) {
        ignis__mutex_lock(&last->lock);
        if (!last->is_closed && !last->is_away && !last->use_count)
            ok = ignis__offload_free_arrays(call, last, false);
        closed = last->is_closed;
        ignis__mutex_unlock(&last->lock);
    }
    offload = ok ? ignis__offload_make(call, lane, products, least) : NULL;
    ok = offload && ignis__offload_copy(&work, offload, true);
    if (ok) {
        if (!closed) {
            ignis__atomic_add(&last->users, 1);
            offload->before = last;
        }
        ignis__atomic_add(&offload->users, 1);
        lane->last = offload;
        ignis__offload_drop(last);
    } else if (offload) { /* the products have their results back */
        (void)ignis__offload_wait(call, offload);
        memcpy(products->arrays, offload->arrays, sizeof *offload->arrays * (size_t)count);
        products->count = count;
        ignis__offload_drop(offload);
        offload = NULL;
    }
    ignis__work_end(&work);
    return offload;
}

/*  Makes arrays for results that are away, and queues their copies. The offload is locked. */
static bool ignis__offload_fetch(const ignis__work *work, ignis__offload *offload)
{
    bool ok = true;
    int i;
    for (i = 0; ok && i < offload->count; i++) {
        ignis_array_desc desc = IGNIS__ZERO;
        if (offload->arrays[i])
            continue;
        desc.shape = offload->shapes[i];
        desc.dtype = offload->dtypes[i];
        desc.device = ignis__device_in_desc(work->device);
        offload->arrays[i] = ignis__array_adopt(work->call, ignis__array_create(work->call, &desc));
        ok = offload->arrays[i] != NULL;
    }
    ok = ok && ignis__offload_copy(work, offload, false);
    offload->is_away = !ok;
    offload->is_back = ok;
    if (!ok)
        (void)ignis__offload_free_arrays(work->call, offload, false);
    return ok;
}

/*  Brings the results back for a backward, and begins to bring those of the checkpoint before. The list has them until
    ignis__offload_end_use. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__offload_use(const char *call, ignis__offload *offload, ignis__products *products)
{
    ignis__offload *before = offload->before;
    ignis__work work;
    bool ok;
    if (!ignis__work_begin(call, offload->lane->device, &work))
        return false;
    ignis__mutex_lock(&offload->lock);
    ok = !offload->is_away || ignis__offload_fetch(&work, offload);
    ok = ok && (!offload->is_back || ignis__offload_wait(call, offload));
    offload->use_count += ok;
    products->arrays = offload->arrays;
    products->count = offload->count;
    ignis__mutex_unlock(&offload->lock);
    if (ok && before) {
        ignis__mutex_lock(&before->lock);
        if (!before->is_closed && before->is_away)
            ok = ignis__offload_fetch(&work, before);
        ignis__mutex_unlock(&before->lock);
    }
    ignis__work_end(&work);
    return ok;
}

/*  Gives up results that were brought back: what the second run has recorded keeps their memory. Another pass brings
    them back again. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__offload_end_use(const char *call, ignis__offload *offload)
{
    ignis__binding binding;
    const bool entered = ignis__device_enter_to_give(call, offload->lane->device, &binding);
    bool ok = true;
    ignis__mutex_lock(&offload->lock);
    if (--offload->use_count == 0 && entered && offload->is_back)
        ok = ignis__offload_free_arrays(call, offload, false);
    ignis__mutex_unlock(&offload->lock);
    if (entered)
        ignis__device_leave(&binding);
    return ok && entered;
}

/*  Ends the offload of a node that is destroyed. */
IGNIS__COLD IGNIS__PRIVATE void ignis__offload_close(const char *call, ignis__offload *offload)
{
    ignis__binding binding;
    const bool entered = ignis__device_enter_to_give(call, offload->lane->device, &binding);
    ignis__mutex_lock(&offload->lock);
    (void)ignis__offload_free_arrays(call, offload, true);
    offload->is_closed = true;
    if (!offload->is_captured)
        ignis__offload_give_pieces(offload);
    ignis__mutex_unlock(&offload->lock);
    if (entered)
        ignis__device_leave(&binding);
    ignis__offload_drop(offload);
}

/*  Lets another tape have the lanes of one that has ended. */
IGNIS__PRIVATE void ignis__lanes_leave(const ignis__tape *tape)
{
    ignis__lane *lane;
    ignis__mutex_lock(&ignis__offload_lanes.lock);
    for (lane = ignis__offload_lanes.first; lane; lane = lane->next)
        if (lane->tape == tape->number)
            lane->tape = 0;
    ignis__mutex_unlock(&ignis__offload_lanes.lock);
}

/*  Frees all lanes at ignis_shutdown, with their pieces. */
IGNIS__COLD IGNIS__PRIVATE void ignis__lanes_close(const char *call)
{
    ignis__lane *lane;
    ignis__pinned *piece;
    ignis__binding binding;
    while ((lane = ignis__offload_lanes.first) != NULL) {
        ignis__offload_lanes.first = lane->next;
        ignis__offload_drop(lane->last);
        if (!ignis__devices_lost()) {
            (void)ignis_stream_forget(lane->stream); /* waits for the stream */
            if (ignis__device_enter(call, lane->device, &binding)) {
                (void)IGNIS__CUDA_FAILED(call, lane->device, cuStreamDestroy_v2, (lane->stream));
                ignis__device_leave(&binding);
            }
        }
        while ((piece = lane->spare) != NULL) {
            lane->spare = piece->next;
            if (!ignis__global.dry_run)
                (void)ignis__pinned_recycle(call, lane->device, piece->memory, piece->size);
            ignis__free(piece);
        }
        ignis__free(lane);
    }
}
