/*  >>parallel.shard - parameters whose optimizer state, and whose gradients, the ranks share

    The parameters of a bucket are in one memory, in the places of their gradients. Rank r updates slice r of a bucket:
    a piece of each parameter in it. After a step the ranks gather the slices. With IGNIS_SHARD_GRADIENTS a rank keeps
    the gradients of its slices alone: a backward pass makes gradients for the parameters of a bucket, which are copied
    to a staging buffer, reduced and scattered, and freed. With IGNIS_SHARD_PARAMETERS it keeps its slices of the
    parameters alone, too: gather.c.
    Uses: communicators, the tape's groups, the optimizers' size of a block.
    Invariant: a piece starts at a block of the optimizers, so that the sums of squares of blocks, and with them norms,
    have the same bits for every kind of shard. */

#include "room.h"

#ifndef IGNIS_NO_TENSORS

/* Of the part after this one. */
IGNIS__PRIVATE bool ignis__parallel_drop(const char *call, ignis__parallel_state *parallel);

/*  Returns the place of a parameter in a bucket that ends at *end, and moves *end to its end; both in bytes. */
IGNIS__PRIVATE int64_t ignis__shard_place(const ignis__parallel_state *parallel, const ignis__tensor *parameter,
                                          int64_t *end)
{
    const int64_t size = ignis__dtypes[parameter->dtype].size, numel = ignis__tensor_numel(parameter),
                  unit = parallel->shard ? IGNIS__OPTIM_CHUNK(numel) * size : IGNIS__BUCKET_ALIGNMENT,
                  at = ignis__ceil_div(*end, unit) * unit;
    *end = at + ignis__ceil_div(numel * size, IGNIS__BUCKET_ALIGNMENT) * IGNIS__BUCKET_ALIGNMENT;
    return at;
}

/*  Returns the size of a bucket whose parameters end at `end`: with shards all slices have equal sizes. */
IGNIS__PRIVATE int64_t ignis__shard_bucket_bytes(const ignis__parallel_state *parallel, ignis_dtype dtype, int64_t end)
{
    const int64_t unit = (int64_t)parallel->place.ranks * IGNIS__OPTIM_LARGEST_CHUNK * ignis__dtypes[dtype].size;
    return parallel->shard ? ignis__ceil_div(end, unit) * unit : end;
}

/*  Checks that no optimizer has the parameters yet, which would keep the state of all of them. */
IGNIS__PRIVATE bool ignis__shard_check(const char *call, const ignis__parallel_state *parallel)
{
    int i;
    for (i = 0; parallel->shard && i < parallel->count; i++)
        if (ignis__optimizers_have(parallel->parameters[i]))
            return ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call,
                                     "parameter %d, %s, is a parameter of an optimizer; with shards, call "
                                     "ignis_optimizer_add after ignis_parallel_create",
                                     i, ignis__shape_write(&parallel->parameters[i]->shape).text);
    return true;
}

/*  Copies a parameter to its place in its bucket. */
IGNIS__PRIVATE bool ignis__shard_copy(const char *call, ignis__parallel_state *parallel, const ignis__bucket *bucket,
                                      int at)
{
    ignis__tensor *parameter = parallel->parameters[at];
    ignis__array *data = ignis__tensor_array(call, parameter), *to = bucket->whole ? bucket->whole : bucket->values;
    bool ok =
        data && (data->numel == 0 ||
                 ignis__array_copy_bytes(call, to, parallel->places[at] * ignis__dtypes[parameter->dtype].size, data));
    if (data)
        ignis__array_drop(call, data);
    return ok;
}

static ignis_array ignis__shard_handle(const ignis__array *array)
{
    ignis_array handle;
    handle.id = array->slot.handle;
    return handle;
}

/*  Broadcasts the parameters of rank 0, a bucket at a time. */
IGNIS__PRIVATE bool ignis__shard_broadcast(ignis__parallel_state *parallel)
{
    bool ok = true;
    int i;
    for (i = 0; ok && parallel->shard != IGNIS_SHARD_PARAMETERS && i < parallel->bucket_count; i++)
        ok = ignis_comm_broadcast(parallel->comm, ignis__shard_handle(parallel->buckets[i].values), 0) == IGNIS_OK;
    return ok;
}

/*  Finds the piece of a rank of a leaf that is `at` elements from the start of its bucket. */
static void ignis__shard_range(const ignis__bucket *bucket, int rank, int64_t at, int64_t numel, int64_t *start,
                               int64_t *count)
{
    const int64_t slice = bucket->values->numel / bucket->parallel->place.ranks, first = rank * slice - at,
                  end = first + slice < numel ? first + slice : numel;
    *start = first > 0 ? first : 0;
    *count = end > *start ? end - *start : 0;
    if (*count == 0)
        *start = 0;
}

/*  Finds a leaf of the training among its parameters. */
static int ignis__shard_find(const ignis__parallel_state *parallel, const ignis__tensor *leaf)
{
    int i = 0;
    while (parallel->parameters[i] != leaf)
        i++;
    return i;
}

static bool ignis__shard_piece(ignis__grad_group *group, const char *call, const ignis__tensor *leaf,
                               ignis__piece *piece)
{
    const ignis__bucket *bucket = (const ignis__bucket *)group;
    const ignis__parallel_state *parallel = bucket->parallel;
    const int64_t size = ignis__dtypes[leaf->dtype].size;
    const ignis__array *values = bucket->slice ? bucket->slice : bucket->values;
    ignis_shape shape;
    int64_t bytes, before;
    if (bucket->slice && !ignis__gather_settle(call, bucket->parallel, false))
        return false;
    piece->at = parallel->places[ignis__shard_find(parallel, leaf)];
    ignis__shard_range(bucket, parallel->place.rank, piece->at, ignis__tensor_numel(leaf), &piece->start,
                       &piece->count);
    piece->copy = parallel->place.group;
    piece->copies = parallel->place.copies;
    piece->rank = parallel->place.rank;
    shape = IGNIS_SHAPE(piece->count);
    bytes = (piece->at + piece->start) * size;
    before = bucket->slice ? parallel->place.rank * ignis__array_bytes(bucket->slice) : 0;
    piece->data = ignis__array_view(call, values, &shape, piece->count, piece->count ? bytes - before : 0);
    if (parallel->shard < IGNIS_SHARD_GRADIENTS)
        piece->grad = ignis__array_view(call, bucket->memory, &shape, piece->count, piece->count ? bytes : 0);
    return piece->data.id && (piece->grad.id || parallel->shard >= IGNIS_SHARD_GRADIENTS);
}

static bool ignis__shard_sum(ignis__grad_group *group, ignis_array array)
{
    return ignis_comm_all_reduce(((ignis__bucket *)group)->parallel->inside, array, array, IGNIS_OP_SUM) == IGNIS_OK;
}

/*  Broadcasts each piece of a leaf from its rank. */
static bool ignis__shard_fill(ignis__grad_group *group, const char *call, int64_t at, ignis_array leaf)
{
    const ignis__bucket *bucket = (const ignis__bucket *)group;
    const ignis__parallel_state *parallel = bucket->parallel;
    ignis__array *array = ignis__array_hold(call, leaf);
    int64_t start, count;
    bool ok = array != NULL;
    int rank;
    for (rank = 0; ok && rank < parallel->place.ranks; rank++) {
        ignis_shape shape;
        ignis_array view;
        ignis__shard_range(bucket, rank, at, array->numel, &start, &count);
        if (count == 0)
            continue;
        shape = IGNIS_SHAPE(count);
        view = ignis__array_view(call, array, &shape, count, start * ignis__dtypes[array->dtype].size);
        ok = view.id && ignis_comm_broadcast(parallel->inside, view, rank) == IGNIS_OK;
        if (view.id)
            ignis__array_discard(call, &view);
    }
    if (array)
        ignis__array_drop(call, array);
    return ok;
}

/*  Gathers the slices of all ranks. */
static bool ignis__shard_spread(ignis__grad_group *group, const char *call)
{
    const ignis__bucket *bucket = (const ignis__bucket *)group;
    const ignis__parallel_state *parallel = bucket->parallel;
    const int64_t slice = bucket->values->numel / parallel->place.ranks;
    ignis_array view = ignis_array_slice(ignis__shard_handle(bucket->values), 0, parallel->place.rank * slice, slice);
    bool ok = view.id && ignis_comm_all_gather(parallel->inside, view, ignis__shard_handle(bucket->values)) == IGNIS_OK;
    (void)call;
    if (view.id)
        (void)ignis_array_free(view);
    return ok;
}

/*  As ignis__shard_spread, where the next use gathers. */
static bool ignis__shard_update(ignis__grad_group *group, const char *call)
{
    return ignis__gather_update(call, (ignis__bucket *)group);
}

static bool ignis__shard_begin(ignis__grad_group *group, const char *call, bool writes)
{
    return ignis__gather_settle(call, ((ignis__bucket *)group)->parallel, writes);
}

static bool ignis__shard_drop(ignis__grad_group *group, const char *call)
{
    return ignis__parallel_drop(call, ((ignis__bucket *)group)->parallel);
}

/* --- gradients that the ranks share --- */

/*  Makes memory for the gradients of this rank's slice. */
static bool ignis__shard_take_memory(const char *call, ignis__bucket *bucket, bool zeroed)
{
    ignis__device *device = bucket->parallel->device;
    ignis_array_desc desc = IGNIS__ZERO;
    desc.shape = IGNIS_SHAPE(bucket->numel);
    desc.dtype = bucket->dtype;
    desc.device = ignis__device_in_desc(device);
    desc.tag = "gradients";
    bucket->memory = ignis__array_adopt(
        call, zeroed ? ignis__array_zeroed(call, device, bucket->dtype, bucket->numel, "gradients", false)
                     : ignis__array_create(call, &desc));
    bucket->memory_in = ignis__gather_capture(bucket->parallel);
    return bucket->memory != NULL;
}

static ignis_array ignis__shard_grad(ignis__grad_group *group, const char *call, int64_t at, int64_t start,
                                     int64_t count)
{
    ignis__bucket *bucket = (ignis__bucket *)group;
    const ignis_shape shape = IGNIS_SHAPE(count);
    const int64_t first = count ? at + start - bucket->parallel->place.rank * bucket->numel : 0;
    ignis_array none = IGNIS__ZERO;
    if (!bucket->memory && !ignis__shard_take_memory(call, bucket, true))
        return none;
    return ignis__array_view(call, bucket->memory, &shape, count, first * ignis__dtypes[bucket->dtype].size);
}

/*  Frees the gradients of this rank's slice. Sets them to zero instead if they were made before a capture, or in
    another one: a graph may use their memory. */
static bool ignis__shard_forget(ignis__grad_group *group, const char *call)
{
    ignis__bucket *bucket = (ignis__bucket *)group;
    if (bucket->memory && bucket->memory_in != ignis__gather_capture(bucket->parallel))
        return ignis__array_set_zero(call, ignis__shard_handle(bucket->memory)) == IGNIS_OK;
    if (bucket->memory)
        ignis__array_unclaim(call, bucket->memory);
    bucket->memory = NULL;
    return true;
}

/*  Sets this rank's piece of the gradient of a leaf to zero. */
static bool ignis__shard_zero(ignis__grad_group *group, const char *call, const ignis__tensor *leaf)
{
    const ignis__bucket *bucket = (const ignis__bucket *)group;
    const int64_t at = bucket->parallel->places[ignis__shard_find(bucket->parallel, leaf)];
    int64_t start, count;
    ignis_array grad;
    bool ok;
    ignis__shard_range(bucket, bucket->parallel->place.rank, at, ignis__tensor_numel(leaf), &start, &count);
    if (!bucket->memory || count == 0)
        return true;
    grad = ignis__shard_grad(group, call, at, start, count);
    ok = grad.id && ignis__array_set_zero(call, grad) == IGNIS_OK;
    if (grad.id)
        ignis__array_discard(call, &grad);
    return ok;
}

IGNIS__PRIVATE void ignis__shard_unstage(const char *call, ignis__parallel_state *parallel)
{
    if (parallel->staging)
        ignis__array_unclaim(call, parallel->staging);
    parallel->staging = NULL;
}

/*  Sets bytes of the staging buffer to zero. */
static bool ignis__shard_clear(const char *call, const ignis__parallel_state *parallel, int64_t from, int64_t to)
{
    ignis__address address;
    ignis__work work;
    bool ok;
    if (from >= to)
        return true;
    ok = ignis__work_begin(call, parallel->device, &work);
    if (ok) {
        ok = ignis__work_write(&work, parallel->staging, &address) &&
             ignis__copy_zeros(&work, address + (ignis__address)from, to - from);
        ignis__work_end(&work);
    }
    return ok;
}

/*  Moves the gradient of a held leaf to its place in the staging buffer, or zeros if it has none. Zeros are there from
    *end on, which is the end of the leaf before and becomes that of this one. */
static bool ignis__shard_stage_leaf(const char *call, const ignis__parallel_state *parallel, int at, int64_t *end)
{
    ignis__tensor *leaf = parallel->parameters[at];
    const int64_t size = ignis__dtypes[leaf->dtype].size, first = parallel->places[at] * size;
    ignis__array *grad;
    bool ok;
    ignis__leaf_enter(leaf);
    grad = leaf->grad;
    ok = ignis__shard_clear(call, parallel, *end, grad ? first : first + ignis__tensor_numel(leaf) * size) &&
         (!grad || grad->numel == 0 ||
          (ignis__gradient_wait(call, grad) && ignis__array_copy_bytes(call, parallel->staging, first, grad)));
    *end = first + ignis__tensor_numel(leaf) * size;
    if (ok && grad) {
        ignis__mutex_lock(&leaf->slot.lock);
        leaf->grad = NULL;
        ignis__mutex_unlock(&leaf->slot.lock);
    }
    ignis__leaf_leave(leaf);
    if (ok && grad)
        ignis__array_unclaim(call, grad);
    return ok;
}

/*  Moves the gradients of a bucket to the staging buffer, and takes memory for the average. The buffer of the bucket
    before is taken again, once that is reduced. */
IGNIS__PRIVATE bool ignis__shard_stage(const char *call, ignis__bucket *bucket)
{
    ignis__parallel_state *parallel = bucket->parallel;
    ignis_array_desc desc = IGNIS__ZERO;
    int64_t end = 0;
    bool ok;
    int i;
    if (parallel->staging && ignis__capture_on(parallel->device) && /* whose memory has no stream that orders it */
        !ignis__stream_order(call, parallel->device, parallel->stream, parallel->device,
                             ignis__stream_current(parallel->device)))
        return false;
    ignis__shard_unstage(call, parallel);
    desc.shape = IGNIS_SHAPE(bucket->values->numel);
    desc.dtype = bucket->dtype;
    desc.device = ignis__device_in_desc(parallel->device);
    desc.tag = "gradients";
    parallel->staging = ignis__array_adopt(call, ignis__array_create(call, &desc));
    ok = parallel->staging != NULL;
    for (i = bucket->last; ok && i >= bucket->first; i--) /* in the order of their places */
        ok = ignis__shard_stage_leaf(call, parallel, i, &end);
    ok = ok && ignis__shard_clear(call, parallel, end, ignis__array_bytes(parallel->staging));
    bucket->is_fresh = !bucket->memory;
    return ok && (!bucket->is_fresh || ignis__shard_take_memory(call, bucket, false));
}

/*  Reduces the staging buffer to the gradients, or adds this rank's slice of it to those that there are. */
IGNIS__PRIVATE bool ignis__shard_scatter(const char *call, const ignis__bucket *bucket)
{
    const ignis__parallel_state *parallel = bucket->parallel;
    const ignis_array staging = ignis__shard_handle(parallel->staging);
    ignis_array memory, slice;
    bool ok;
    memory = ignis__shard_handle(bucket->memory);
    if (bucket->is_fresh)
        return ignis__parallel_groups_average(parallel, staging, memory);
    slice = ignis__array_view(call, parallel->staging, &bucket->memory->shape, bucket->memory->numel,
                              parallel->place.rank * ignis__array_bytes(bucket->memory));
    ok = slice.id && ignis__parallel_groups_average(parallel, staging, slice) &&
         ignis__array_binary(call, IGNIS__BUILTIN(ADD), memory, memory, slice) == IGNIS_OK;
    if (slice.id)
        ignis__array_discard(call, &slice);
    return ok;
}

/*  Averages the gradients of a bucket, which each rank keeps, over groups and across them. */
IGNIS__PRIVATE bool ignis__shard_average(const char *call, const ignis__bucket *bucket)
{
    const ignis__parallel_state *parallel = bucket->parallel;
    const int64_t count = bucket->memory->numel / parallel->place.ranks;
    const ignis_array memory = ignis__shard_handle(bucket->memory);
    const ignis_shape shape = IGNIS_SHAPE(count);
    ignis_array slice = ignis__array_view(call, bucket->memory, &shape, count,
                                          parallel->place.rank * count * ignis__dtypes[bucket->dtype].size);
    bool ok = slice.id && ignis__parallel_groups_average(parallel, memory, slice) &&
              ignis_comm_all_gather(parallel->inside, slice, memory) == IGNIS_OK;
    if (slice.id)
        ignis__array_discard(call, &slice);
    return ok;
}

/* --- ranks that come back --- */

static bool ignis__shard_send_copy(ignis__grad_group *group, ignis_array array, int from)
{
    const ignis__parallel_state *parallel = ((ignis__bucket *)group)->parallel;
    return parallel->place.copies == 1 || ignis_comm_broadcast(parallel->across, array, from) == IGNIS_OK;
}

static bool ignis__shard_renew(ignis__grad_group *group, const char *call)
{
    ignis__parallel_state *parallel = ((ignis__bucket *)group)->parallel;
    bool ok = true;
    int i;
    for (i = 0; ok && i < parallel->bucket_count; i++) {
        ignis__grad_group *other = &parallel->buckets[i].group;
        ok = other->sharing->spread_fn(other, call) &&
             (!other->sharing->forget_fn || other->sharing->forget_fn(other, call));
    }
    return ok;
}

static bool ignis__shard_wait(ignis__grad_group *group)
{
    return ignis_comm_synchronize(((ignis__bucket *)group)->parallel->comm) == IGNIS_OK;
}

/*  By ignis_shard. */
IGNIS__PRIVATE const ignis__sharing ignis__shard_sharings[IGNIS_SHARD_COUNT] = {
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
    {ignis__shard_piece, ignis__shard_sum, ignis__shard_fill, ignis__shard_spread, ignis__shard_drop, NULL, NULL, NULL,
     NULL, ignis__shard_send_copy, ignis__shard_renew, ignis__shard_wait},
    {ignis__shard_piece, ignis__shard_sum, ignis__shard_fill, ignis__shard_spread, ignis__shard_drop, NULL,
     ignis__shard_zero, ignis__shard_grad, ignis__shard_forget, ignis__shard_send_copy, ignis__shard_renew,
     ignis__shard_wait},
    {ignis__shard_piece, ignis__shard_sum, ignis__shard_fill, ignis__shard_update, ignis__shard_drop,
     ignis__shard_begin, ignis__shard_zero, ignis__shard_grad, ignis__shard_forget, ignis__shard_send_copy,
     ignis__shard_renew, ignis__shard_wait}};

#endif /* IGNIS_NO_TENSORS */
