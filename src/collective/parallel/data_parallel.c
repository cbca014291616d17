/*  >>parallel - data-parallel training: gradients averaged over ranks during the backward pass

    Gradients of neighbouring parameters share a bucket. A bucket is all-reduced on its own stream as soon as its
    gradients are complete, while the backward pass goes on.
    Uses: communicators, the tape's groups of gradients.
    Invariants: all ranks reduce buckets in the same order; one backward pass at a time averages.
    Locks: the slot's lock around no_sync and backward_pass; ignis__parallels_starting.lock around claims. */

#include "room.h"

#ifndef IGNIS_NO_TENSORS

static ignis__pool ignis__parallels =
    IGNIS__POOL(ignis__parallel_state, IGNIS__KIND_PARALLEL, "data-parallel", IGNIS_DIAG_PARALLEL_FREED);

/*  Handles under construction, whose parameters are claimed. */
static struct {
    ignis__mutex lock;
    ignis__parallel_state *first;
} ignis__parallels_starting = {IGNIS__MUTEX_INIT, NULL};

IGNIS__PRIVATE ignis__parallel_state *ignis__parallel_hold(const char *call, ignis_parallel handle)
{
    return (ignis__parallel_state *)ignis__handle_hold(call, &ignis__parallels, handle.id);
}

/*  Ends the claim on parameters: they belong to the handle now, or are free. */
static void ignis__parallel_end_claim(const ignis__parallel_state *parallel)
{
    ignis__parallel_state **at;
    ignis__mutex_lock(&ignis__parallels_starting.lock);
    for (at = &ignis__parallels_starting.first; *at && *at != parallel; at = &(*at)->next_starting)
        ;
    if (*at)
        *at = parallel->next_starting;
    ignis__mutex_unlock(&ignis__parallels_starting.lock);
}

/*  Destroys a handle, as far as it was made. */
IGNIS__COLD static bool ignis__parallel_end(const char *call, ignis__parallel_state *parallel)
{
    ignis__binding binding;
    bool ok = true;
    int i;
    ignis__parallel_end_claim(parallel);
    ignis__shard_unstage(call, parallel);
    for (i = 0; i < parallel->bucket_count; i++)
        if (parallel->shard == IGNIS_SHARD_PARAMETERS && parallel->buckets[i].values)
            ignis__gather_end(call, &parallel->buckets[i]);
    for (i = 0; i < parallel->count; i++) {
        ignis__tensor *parameter = parallel->parameters[i];
        if (parallel->is_installed) {
            ignis__mutex_lock(&parameter->slot.lock);
            parameter->group = NULL;
            ignis__mutex_unlock(&parameter->slot.lock);
        } else {
            if (parallel->grads[i])
                ignis__array_unclaim(call, parallel->grads[i]);
            if (parallel->values[i])
                ignis__array_unclaim(call, parallel->values[i]);
        }
        ignis__tensor_drop(call, parameter);
    }
    if (parallel->is_installed)
        ignis__atomic_add(&ignis__grad_groups, (uint64_t)-parallel->bucket_count);
    if (parallel->stream && !ignis__devices_lost()) {
        ok = ignis_stream_forget(parallel->stream) == IGNIS_OK; /* waits for the stream */
        if (ignis__device_enter(call, parallel->device, &binding)) {
            ok = !IGNIS__CUDA_FAILED(call, parallel->device, cuStreamDestroy_v2, (parallel->stream)) && ok;
            ignis__device_leave(&binding);
        }
    }
    ignis__parallel_groups_leave(call, parallel);
    for (i = 0; i < parallel->bucket_count; i++) {
        if (parallel->buckets[i].memory)
            ignis__array_unclaim(call, parallel->buckets[i].memory);
        if (parallel->buckets[i].values)
            ignis__array_unclaim(call, parallel->buckets[i].values);
    }
    if (parallel->window)
        ignis__array_unclaim(call, parallel->window);
    ignis__free(parallel->parameters);
    ignis__free(parallel->grads);
    ignis__free(parallel->values);
    ignis__free(parallel->places);
    ignis__free(parallel->buckets);
    ignis__pool_recycle(&ignis__parallels, parallel);
    return ok;
}

IGNIS__PRIVATE bool ignis__parallel_drop(const char *call, ignis__parallel_state *parallel)
{
    return !ignis__pool_drop(parallel) || ignis__parallel_end(call, parallel);
}

IGNIS__COLD static void ignis__parallels_close(const char *call)
{
    ignis__parallel_state *parallel;
    uint64_t index = 0;
    while ((parallel = (ignis__parallel_state *)ignis__pool_next(&ignis__parallels, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "data-parallel training of %d parameters on device %d",
                           parallel->count, ignis__device_ordinal(parallel->device));
        ignis__handle_kill(parallel);
        (void)ignis__parallel_drop(call, parallel);
    }
}

static bool ignis__parallels_settle(const char *call, ignis__device *device, const ignis__capture *capture)
{
    ignis__parallel_state *parallel;
    uint64_t index = 0;
    bool ok = true;
    while ((parallel = (ignis__parallel_state *)ignis__pool_next(&ignis__parallels, &index)) != NULL) {
        ok = (parallel->device != device || ignis__gather_close(call, parallel, capture)) && ok;
        ok = ignis__parallel_drop(call, parallel) && ok;
    }
    return ok;
}

/* --- during a backward pass --- */

/*  Averages a bucket on the current stream. */
static bool ignis__bucket_average(const char *call, const ignis__bucket *bucket)
{
    const ignis__parallel_state *parallel = bucket->parallel;
    ignis_array gradients;
    if (parallel->shard >= IGNIS_SHARD_GRADIENTS)
        return ignis__shard_scatter(call, bucket);
    gradients.id = bucket->memory->slot.handle;
    if (parallel->across.id)
        return ignis__shard_average(call, bucket);
    return ignis_comm_all_reduce(parallel->comm, gradients, gradients, IGNIS_OP_AVG) == IGNIS_OK;
}

/*  Makes the second stream the thread's current one, after the work that the thread has queued. */
IGNIS__PRIVATE bool ignis__parallel_enter_second(const char *call, ignis__parallel_state *parallel,
                                                 ignis__second_stream *second)
{
    ignis__device *device = parallel->device;
    ignis__thread *thread = ignis__thread_state();
    const int ordinal = ignis__device_ordinal(device);
    second->capture = ignis__capture_on(device);
    second->main_stream = ignis__stream_current(device);
    second->own = thread->stream[ordinal];
    second->own_serial = thread->stream_serial[ordinal];
    if (!(second->capture ? ignis__capture_draw(call, device, second->main_stream, parallel->stream_serial)
                          : ignis__stream_order(call, device, second->main_stream, device, parallel->stream)))
        return false;
    if (second->capture)
        second->capture->stream = parallel->stream;
    thread->stream[ordinal] = parallel->stream;
    thread->stream_serial[ordinal] = parallel->stream_serial;
    return true;
}

IGNIS__PRIVATE void ignis__parallel_leave_second(const ignis__parallel_state *parallel,
                                                 const ignis__second_stream *second)
{
    ignis__thread *thread = ignis__thread_state();
    const int ordinal = ignis__device_ordinal(parallel->device);
    if (second->capture)
        second->capture->stream = second->main_stream;
    thread->stream[ordinal] = second->own;
    thread->stream_serial[ordinal] = second->own_serial;
}

/*  Launches the average of a bucket on the second stream, after the work that the thread's stream has queued. */
static bool ignis__parallel_launch(const char *call, ignis__parallel_state *parallel, ignis__bucket *bucket)
{
    ignis__second_stream second;
    bool ok = (parallel->shard < IGNIS_SHARD_GRADIENTS || ignis__shard_stage(call, bucket)) &&
              ignis__parallel_enter_second(call, parallel, &second);
    if (!ok)
        return false;
    ok = ignis__bucket_average(call, bucket);
    ignis__parallel_leave_second(parallel, &second);
    return ok;
}

/*  Launches complete buckets in order: an early one waits for those before it. */
static bool ignis__parallel_launch_ready(const char *call, ignis__parallel_state *parallel)
{
    while (parallel->launched < parallel->bucket_count && parallel->buckets[parallel->launched].ready)
        if (!ignis__parallel_launch(call, parallel, &parallel->buckets[parallel->launched++]))
            return false;
    return true;
}

/*  Joins a backward pass that has reached a bucket. Without averages its leaves are ordinary ones. One
    backward pass at a time averages: ranks could not agree on an order of two. */
static bool ignis__bucket_join(ignis__grad_group *group, const char *call, const void *backward_pass, bool *joins)
{
    ignis__parallel_state *parallel = ((ignis__bucket *)group)->parallel;
    bool busy;
    ignis__mutex_lock(&parallel->slot.lock);
    busy = parallel->backward_pass && parallel->backward_pass != backward_pass;
    *joins = parallel->backward_pass == backward_pass || !parallel->no_sync;
    if (!busy && *joins)
        parallel->backward_pass = backward_pass;
    ignis__mutex_unlock(&parallel->slot.lock);
    return !busy || ignis__fail_false(IGNIS_DIAG_PARALLEL_BUSY, call,
                                      "another thread's ignis_backward is averaging the gradients of these parameters");
}

static bool ignis__bucket_ready(ignis__grad_group *group, const char *call)
{
    ignis__bucket *bucket = (ignis__bucket *)group;
    bucket->ready = true;
    return ignis__parallel_launch_ready(call, bucket->parallel);
}

/*  Ends the averaging: launches the remaining buckets, and makes the thread's stream wait for all. */
static bool ignis__parallel_finish(const char *call, ignis__parallel_state *parallel, bool ok)
{
    int i;
    for (i = 0; i < parallel->bucket_count; i++)
        parallel->buckets[i].ready = true;
    ok = ok && ignis__parallel_launch_ready(call, parallel);
    if (parallel->launched > 0 && !ignis__stream_order(call, parallel->device, parallel->stream, parallel->device,
                                                       ignis__stream_current(parallel->device)))
        ok = false;
    ignis__shard_unstage(call, parallel);
    for (i = 0; i < parallel->bucket_count; i++)
        parallel->buckets[i].ready = false;
    parallel->launched = 0;
    ignis__mutex_lock(&parallel->slot.lock);
    parallel->backward_pass = NULL;
    ignis__mutex_unlock(&parallel->slot.lock);
    return ok;
}

/*  Ends a backward pass that has reached the bucket. Called for each such bucket; the first call ends the
    averaging. */
static bool ignis__bucket_end(ignis__grad_group *group, const char *call, const void *backward_pass, bool ok)
{
    ignis__parallel_state *parallel = ((ignis__bucket *)group)->parallel;
    bool averages;
    ignis__mutex_lock(&parallel->slot.lock);
    averages = parallel->backward_pass == backward_pass;
    ignis__mutex_unlock(&parallel->slot.lock);
    if (averages)
        ok = ignis__parallel_finish(call, parallel, ok);
    return ignis__parallel_drop(call, parallel) && ok;
}

/* --- creating --- */

/*  Finds a tensor among the parameters; -1 if it is not one. */
static int ignis__parallel_find(const ignis__parallel_state *parallel, const ignis__tensor *tensor)
{
    int i = parallel->count - 1;
    while (i >= 0 && parallel->parameters[i] != tensor)
        i--;
    return i;
}

/*  Checks that a tensor can be the next parameter. */
static bool ignis__parallel_check(const char *call, const ignis__parallel_state *parallel, ignis__tensor *tensor)
{
    ignis__tape_state standing = ignis__tensor_tape_state(tensor);
    int before = ignis__parallel_find(parallel, tensor);
    if (!standing.leaf || !standing.requires_grad)
        return ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call, "parameter %d, %s, %s", parallel->count,
                                 ignis__shape_write(&tensor->shape).text,
                                 standing.leaf ? "requires no gradient" : "is the result of an operation");
    if (tensor->device != parallel->device)
        return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call,
                                 "parameter %d is on device %d; the communicator is on device %d", parallel->count,
                                 ignis__device_ordinal(tensor->device), ignis__device_ordinal(parallel->device));
    return before < 0 || ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call, "parameter %d, %s, is also parameter %d",
                                           parallel->count, ignis__shape_write(&tensor->shape).text, before);
}

/*  Holds the parameters. */
static bool ignis__parallel_hold_parameters(const char *call, ignis__parallel_state *parallel,
                                            const ignis_tensor *handles, int count)
{
    for (; parallel->count < count; parallel->count++) {
        ignis__tensor *tensor = ignis__tensor_hold(call, handles[parallel->count]);
        if (!tensor)
            return false;
        if (!ignis__parallel_check(call, parallel, tensor)) {
            ignis__tensor_drop(call, tensor);
            return false;
        }
        parallel->parameters[parallel->count] = tensor;
    }
    return true;
}

/*  Checks that no parameter belongs to another handle. With several ranks, claims them until the handle is
    complete. */
static bool ignis__parallel_claim(const char *call, ignis__parallel_state *parallel, bool alone)
{
    const ignis__parallel_state *other;
    int i, taken = -1;
    ignis__mutex_lock(&ignis__parallels_starting.lock);
    for (i = 0; i < parallel->count && taken < 0; i++) {
        ignis__tensor *tensor = parallel->parameters[i];
        ignis__mutex_lock(&tensor->slot.lock);
        taken = tensor->group ? i : -1;
        ignis__mutex_unlock(&tensor->slot.lock);
        for (other = alone ? NULL : ignis__parallels_starting.first; other && taken < 0; other = other->next_starting)
            taken = ignis__parallel_find(other, tensor) < 0 ? -1 : i;
    }
    if (taken < 0 && !alone) {
        parallel->next_starting = ignis__parallels_starting.first;
        ignis__parallels_starting.first = parallel;
    }
    ignis__mutex_unlock(&ignis__parallels_starting.lock);
    return taken < 0 ||
           ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call, "parameter %d, %s, is already trained data-parallel",
                             taken, ignis__shape_write(&parallel->parameters[taken]->shape).text);
}

/*  Makes a view of the memory of a bucket for a parameter, `at` bytes from its start; claimed. NULL, and reported, on
    failure. */
static ignis__array *ignis__bucket_view(const char *call, const ignis__array *memory, const ignis__tensor *parameter,
                                        int64_t at)
{
    return ignis__array_adopt(call,
                              ignis__array_view(call, memory, &parameter->shape, ignis__tensor_numel(parameter), at));
}

/*  Creates a zeroed bucket for parameters first to last, with a view for each gradient, and with shards for each
    parameter; existing gradients are copied. */
static bool ignis__bucket_make(const char *call, ignis__parallel_state *parallel, int first, int last, int64_t bytes)
{
    ignis__bucket *bucket = &parallel->buckets[parallel->bucket_count];
    ignis_dtype dtype = parallel->parameters[last]->dtype;
    const bool whole = parallel->shard < IGNIS_SHARD_GRADIENTS;
    int64_t count = bytes / ignis__dtypes[dtype].size, end = 0, at;
    bool ok = true;
    int i;
    bucket->dtype = dtype;
    bucket->numel = whole ? count : count / parallel->place.ranks;
    if (whole)
        bucket->memory = ignis__array_adopt(
            call, ignis__array_zeroed(call, parallel->device, dtype, bucket->numel, "gradients", false));
    if (whole && !bucket->memory)
        return false;
    bucket->parallel = parallel;
    bucket->first = first;
    bucket->last = last;
    bucket->group.owner = &parallel->slot;
    bucket->group.leaf_count = last - first + 1;
    bucket->group.meet_fn = ignis__bucket_join;
    bucket->group.ready_fn = ignis__bucket_ready;
    bucket->group.end_fn = ignis__bucket_end;
    parallel->bucket_count++;
    parallel->bytes += bucket->numel * ignis__dtypes[dtype].size;
    if (parallel->shard == IGNIS_SHARD_PARAMETERS) {
        ok = ignis__gather_make(call, bucket, dtype, count);
    } else if (parallel->shard) {
        bucket->values =
            ignis__array_adopt(call, ignis__array_zeroed(call, parallel->device, dtype, count, "parameters", false));
        ok = bucket->values != NULL;
    }
    bucket->group.sharing = parallel->shard ? &ignis__shard_sharings[parallel->shard] : NULL;
    for (i = last; ok && i >= first; i--) {
        ignis__tensor *parameter = parallel->parameters[i];
        at = ignis__shard_place(parallel, parameter, &end);
        parallel->places[i] = at / ignis__dtypes[dtype].size;
        if (whole) {
            parallel->grads[i] = ignis__bucket_view(call, bucket->memory, parameter, at);
            ok = parallel->grads[i] != NULL;
        }
        if (ok && bucket->values) {
            parallel->values[i] = ignis__bucket_view(call, bucket->values, parameter, at);
            ok = parallel->values[i] && ignis__shard_copy(call, parallel, bucket, i);
        }
        ignis__leaf_enter(parameter);
        if (ok && whole && parameter->grad && ignis__tensor_numel(parameter) > 0)
            ok = ignis__array_copy_bytes(call, parallel->grads[i], 0, parameter->grad);
        ignis__leaf_leave(parameter);
    }
    return ok && (!bucket->whole || ignis__gather_begin(call, bucket, parallel->broadcasts));
}

/*  Plans the buckets: from the last parameter to the first, neighbours of one dtype together. Makes them, or with
    `bytes` only adds up their sizes. */
static bool ignis__parallel_plan(const char *call, ignis__parallel_state *parallel, const ignis_parallel_desc *desc,
                                 int64_t *bytes)
{
    int64_t usual = desc && desc->bucket_bytes ? desc->bucket_bytes : (int64_t)25 << 20,
            limit = desc && desc->first_bucket_bytes ? desc->first_bucket_bytes : (int64_t)1 << 20, end = 0, size;
    int last = parallel->count - 1, i;
    for (i = last; i >= 0; i--) {
        const ignis__tensor *parameter = parallel->parameters[i], *next = i ? parallel->parameters[i - 1] : NULL;
        (void)ignis__shard_place(parallel, parameter, &end);
        if (next && next->dtype == parameter->dtype && end < limit)
            continue;
        size = ignis__shard_bucket_bytes(parallel, parameter->dtype, end);
        if (bytes)
            *bytes += size;
        else if (!ignis__bucket_make(call, parallel, i, last, size))
            return false;
        last = i - 1;
        end = 0;
        limit = usual;
    }
    return true;
}

/*  Moves the gradients, and with shards the parameters, into the buckets. Cannot fail. */
static void ignis__parallel_install(const char *call, ignis__parallel_state *parallel)
{
    int i, b = 0;
    for (i = parallel->count - 1; i >= 0; i--) {
        ignis__tensor *parameter = parallel->parameters[i];
        ignis__array *before = NULL, *data = NULL;
        while (i < parallel->buckets[b].first)
            b++;
        ignis__leaf_enter(parameter);
        ignis__mutex_lock(&parameter->slot.lock);
        if (parallel->grads[i]) {
            before = parameter->grad;
            parameter->grad = parallel->grads[i];
        }
        parameter->group = &parallel->buckets[b].group;
        if (parallel->values[i] && parameter->data) {
            data = parameter->data;
            parameter->data = parallel->values[i];
        } else {
            data = parallel->values[i]; /* another thread has released the tensor */
        }
        ignis__mutex_unlock(&parameter->slot.lock);
        ignis__leaf_leave(parameter);
        if (before)
            ignis__array_unclaim(call, before);
        if (data)
            ignis__array_unclaim(call, data);
    }
    ignis__atomic_add(&ignis__grad_groups, (uint64_t)parallel->bucket_count);
    parallel->is_installed = true;
}

static bool ignis__parallel_stream(const char *call, ignis__parallel_state *parallel)
{
    ignis__binding binding;
    bool ok;
    if (!ignis__device_enter(call, parallel->device, &binding))
        return false;
    ok =
        !IGNIS__CUDA_FAILED(call, parallel->device, cuStreamCreate, (&parallel->stream, IGNIS__CU_STREAM_NON_BLOCKING));
    if (ok)
        parallel->stream_serial = ignis__stream_adopt(call, parallel->device, parallel->stream);
    ignis__device_leave(&binding);
    return ok && parallel->stream_serial;
}

/*  Broadcasts the parameters of rank 0, through views of their arrays, which have other owners. */
static bool ignis__parallel_broadcast(const char *call, ignis__parallel_state *parallel)
{
    bool ok = true;
    int i;
    for (i = 0; ok && !parallel->shard && i < parallel->count; i++) {
        ignis__array *data = ignis__tensor_array(call, parallel->parameters[i]);
        ignis_array view;
        if (!data)
            return false;
        view = ignis__array_view(call, data, &data->shape, data->numel, 0);
        ok = view.id && (data->numel == 0 || ignis_comm_broadcast(parallel->comm, view, 0) == IGNIS_OK);
        ignis__array_drop(call, data);
        if (view.id)
            ignis__array_discard(call, &view);
    }
    ok = ok && (!parallel->shard || ignis__shard_broadcast(parallel));
    return ignis_comm_synchronize(parallel->comm) == IGNIS_OK && ok;
}

/*  Makes the buckets. */
static bool ignis__parallel_make(const char *call, ignis__parallel_state *parallel, const ignis_parallel_desc *desc)
{
    int64_t bytes = 0;
    if (parallel->shard == IGNIS_SHARD_PARAMETERS &&
        !(ignis__parallel_plan(call, parallel, desc, &bytes) &&
          ignis__gather_open(call, parallel, bytes / parallel->place.ranks)))
        return false;
    return ignis__parallel_plan(call, parallel, desc, NULL);
}

/*  Does all that can fail when a handle is created. */
static bool ignis__parallel_start(const char *call, ignis__parallel_state *parallel, const ignis_tensor *parameters,
                                  int count, bool alone, const ignis_parallel_desc *desc)
{
    size_t number = (size_t)count;
    parallel->parameters = (ignis__tensor **)ignis__alloc_for(call, sizeof(ignis__tensor *) * number);
    parallel->grads = (ignis__array **)ignis__alloc_for(call, sizeof(ignis__array *) * number);
    parallel->values = (ignis__array **)ignis__alloc_for(call, sizeof(ignis__array *) * number);
    parallel->places = (int64_t *)ignis__alloc_for(call, sizeof(int64_t) * number);
    parallel->buckets = (ignis__bucket *)ignis__alloc_for(call, sizeof(ignis__bucket) * number);
    return parallel->parameters && parallel->grads && parallel->values && parallel->places && parallel->buckets &&
           ignis__parallel_hold_parameters(call, parallel, parameters, count) &&
           ignis__parallel_claim(call, parallel, alone) && ignis__shard_check(call, parallel) &&
           (alone || (ignis__parallel_groups_make(call, parallel) && ignis__parallel_stream(call, parallel) &&
                      ignis__parallel_make(call, parallel, desc) &&
                      (!parallel->broadcasts || ignis__parallel_broadcast(call, parallel))));
}

IGNIS_API IGNIS__COLD ignis_parallel ignis_parallel_create(ignis_comm comm, const ignis_tensor *parameters, int count,
                                                           const ignis_parallel_desc *desc)
{
    static const char call[] = "ignis_parallel_create";
    ignis_parallel handle = IGNIS__ZERO;
    ignis__parallel_state *parallel;
    ignis__parallel_place place;
    ignis_comm_info info;
    if (!ignis__enter(call) || ignis__capture_refuses(call) || !ignis__check_not_null(call, "parameters", parameters))
        return handle;
    if (count < 1 || (desc && (desc->bucket_bytes < 0 || desc->first_bucket_bytes < 0))) {
        ignis__fail(
            IGNIS_DIAG_BAD_NUMBER, call,
            "count is %d, bucket bytes are %lld and %lld; expected a count of 1 or more, and bytes of 0 or more", count,
            (long long)(desc ? desc->bucket_bytes : 0), (long long)(desc ? desc->first_bucket_bytes : 0));
        return handle;
    }
    if (desc && (unsigned)desc->shard >= IGNIS_SHARD_COUNT) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "shard is %d; expected IGNIS_SHARD_NONE to _PARAMETERS, 0 to %d",
                    (int)desc->shard, IGNIS_SHARD_COUNT - 1);
        return handle;
    }
    if (ignis__comm_query(call, comm, &info) != IGNIS_OK || !ignis__parallel_place_find(call, comm, desc, &place))
        return handle;
    parallel = (ignis__parallel_state *)ignis__pool_take(call, &ignis__parallels);
    if (!parallel)
        return handle;
    memset((char *)parallel + sizeof parallel->slot, 0, sizeof *parallel - sizeof parallel->slot);
    parallel->comm = comm;
    parallel->device = &ignis__devices[info.device];
    parallel->inside = comm; /* until there are groups */
    parallel->place = place;
    parallel->shard = desc ? desc->shard : IGNIS_SHARD_NONE;
    parallel->shard_ranks = desc ? desc->shard_ranks : 0;
    parallel->broadcasts = !desc || !desc->no_broadcast;
    parallel->current = parallel->before = -1;
    ignis__mutex_init(&parallel->gathering);
    if (parallel->shard == IGNIS_SHARD_PARAMETERS)
        IGNIS__HOOK_SET(ignis__graph_settle, ignis__parallels_settle);
    ignis__section_use(IGNIS__SECTION_PARALLEL, ignis__parallels_close);
    if (!ignis__parallel_start(call, parallel, parameters, count, info.size == 1, desc)) {
        (void)ignis__parallel_end(call, parallel);
        return handle;
    }
    if (parallel->bucket_count)
        ignis__parallel_install(call, parallel);
    ignis__parallel_end_claim(parallel);
    handle.id = ignis__pool_publish(&ignis__parallels, parallel);
    return handle;
}

/* --- sections without averages, queries, freeing --- */

/*  Opens or closes a section without averages. */
static ignis_status ignis__parallel_change_nesting(const char *call, ignis_parallel handle, int by)
{
    ignis__parallel_state *parallel = ignis__parallel_hold(call, handle);
    bool ok;
    if (!parallel)
        return ignis__failed();
    ignis__mutex_lock(&parallel->slot.lock);
    ok = parallel->no_sync + by >= 0;
    if (ok)
        parallel->no_sync += by;
    ignis__mutex_unlock(&parallel->slot.lock);
    (void)ignis__parallel_drop(call, parallel);
    return ok ? IGNIS_OK
              : ignis__fail(IGNIS_DIAG_SCOPE_ORDER, call, "no section of ignis_parallel_no_sync_begin is open");
}

IGNIS_API ignis_status ignis_parallel_no_sync_begin(ignis_parallel parallel)
{
    return ignis__parallel_change_nesting("ignis_parallel_no_sync_begin", parallel, 1);
}

IGNIS_API ignis_status ignis_parallel_no_sync_end(ignis_parallel parallel)
{
    return ignis__parallel_change_nesting("ignis_parallel_no_sync_end", parallel, -1);
}

IGNIS_API ignis_status ignis_parallel_query(ignis_parallel handle, ignis_parallel_info *info)
{
    static const char call[] = "ignis_parallel_query";
    ignis__parallel_state *parallel =
        ignis__check_not_null(call, "info", info) ? ignis__parallel_hold(call, handle) : NULL;
    if (!parallel)
        return ignis__failed();
    memset(info, 0, sizeof *info);
    ignis__mutex_lock(&parallel->slot.lock);
    info->parameters = parallel->count;
    info->buckets = parallel->bucket_count;
    info->bytes = parallel->bytes;
    info->shard = parallel->shard;
    info->shard_ranks = parallel->shard ? parallel->place.ranks : 1;
    info->syncs = parallel->no_sync == 0;
    ignis__mutex_unlock(&parallel->slot.lock);
    (void)ignis__parallel_drop(call, parallel);
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_parallel_free(ignis_parallel handle)
{
    static const char call[] = "ignis_parallel_free";
    const uint64_t failures = ignis__failures();
    ignis__parallel_state *parallel;
    bool live, ok;
    if (!handle.id)
        return IGNIS_OK;
    parallel = ignis__parallel_hold(call, handle);
    if (!parallel)
        return ignis__failed();
    if (ignis__capture_refuses(call)) {
        (void)ignis__parallel_drop(call, parallel);
        return ignis__failed();
    }
    live = ignis__handle_kill(parallel);
    ok = ignis__parallel_drop(call, parallel);
    if (!live)
        return ignis__fail(IGNIS_DIAG_PARALLEL_FREED, call, "another thread has freed the handle");
    return ignis__ended(failures, ok);
}

#endif /* IGNIS_NO_TENSORS */
