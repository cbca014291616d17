/*  >>training.handle - trainings: created, held and freed, and how their ranks agree

    Ranks agree before they write to tensors, and on the outcome of each save and load.
    Uses: entries. Locks: a training's own lock is held by a call of it, also while that waits; others are taken below
    it. */

#include "room.h"

/* Of the parts after this one. */
IGNIS__PRIVATE bool ignis__training_save_end(const char *call, ignis__training *training);
IGNIS__PRIVATE void ignis__training_keep_close(const char *call, ignis__training *training);

static ignis__pool ignis__trainings =
    IGNIS__POOL(ignis__training, IGNIS__KIND_TRAINING, "training", IGNIS_DIAG_TRAINING_FREED);

/*  Gives up a hold; the last one destroys the training. False, and reported, if its save has failed. */
static bool ignis__training_drop(const char *call, ignis__training *training)
{
    bool ok;
    int i;
    if (!ignis__pool_drop(training))
        return true;
    ok = ignis__training_save_end(call, training);
    ignis__training_keep_close(call, training);
    if (training->pinned)
        ok = ignis__pinned_chunk_recycle(call, training->device, training->pinned) == IGNIS_OK && ok;
    for (i = 0; i < training->count; i++) {
        ignis__free(training->names[i]);
        if (training->tensors[i])
            ignis__tensor_drop(call, training->tensors[i]);
    }
    for (i = 0; i < training->optimizer_count; i++)
        if (training->optimizers[i])
            ignis__optimizer_drop(call, training->optimizers[i]);
    ignis__optimizer_unclaim(call, &training->votes);
    ignis__free(training->names);
    ignis__free(training->tensors);
    ignis__free(training->optimizers);
    ignis__free(training->all);
    ignis__pool_recycle(&ignis__trainings, training);
    return ok;
}

/*  Holds and locks a training for a call that works on the device. NULL, and reported, on failure. */
IGNIS__PRIVATE ignis__training *ignis__training_enter(const char *call, ignis_training handle)
{
    ignis__training *training = (ignis__training *)ignis__handle_hold(call, &ignis__trainings, handle.id);
    if (training && ignis__capture_refuses(call)) {
        (void)ignis__training_drop(call, training);
        return NULL;
    }
    if (training)
        ignis__mutex_lock(&training->calls);
    return training;
}

/*  As ignis__training_enter, for a training that may have been freed: NULL, and not reported. */
IGNIS__PRIVATE ignis__training *ignis__training_seize(uint64_t handle)
{
    ignis__training *training = (ignis__training *)ignis__pool_hold(&ignis__trainings, handle);
    if (training)
        ignis__mutex_lock(&training->calls);
    return training;
}

IGNIS__PRIVATE ignis_status ignis__training_leave(const char *call, ignis__training *training, bool ok)
{
    ignis__mutex_unlock(&training->calls);
    ok = ignis__training_drop(call, training) && ok;
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Exchanges a number of each rank, and one of rank 0: training->all has them. All ranks call it. */
IGNIS__PRIVATE bool ignis__training_exchange(const char *call, ignis__training *training, int64_t mine,
                                             int64_t of_first)
{
    const ignis_ranks *ranks = &training->ranks;
    const int size = ranks->size;
    ignis_array votes;
    int i;
    memset(training->all, 0, sizeof *training->all * ((size_t)size + 1));
    training->all[ranks->rank] = mine;
    if (ranks->rank == 0)
        training->all[size] = of_first;
    if (size == 1)
        return true;
    votes.id = training->votes->slot.handle;
    if (ignis__array_from_host(call, training->votes, training->all, IGNIS_I64) != IGNIS_OK ||
        ranks->sum_fn(ranks->group, votes) != IGNIS_OK ||
        ignis__array_to_host(call, training->votes, training->all, IGNIS_I64) != IGNIS_OK)
        return false;
    for (i = 0; ignis__global.dry_run && i < size; i++) /* which reads zeros */
        training->all[i] = mine;
    return true;
}

/*  Returns whether all ranks are ok. False, and reported, if another one is not. */
IGNIS__PRIVATE bool ignis__training_agree(const char *call, ignis__training *training, bool ok)
{
    int i;
    if (!ignis__training_exchange(call, training, ok, 0) || !ok)
        return false;
    for (i = 0; i < training->ranks.size; i++)
        if (!training->all[i])
            return ignis__fail_false(IGNIS_DIAG_TRAINING_RANK, call, "rank %d has failed; its own message says why", i);
    return true;
}

/* --- creating --- */

IGNIS__PRIVATE bool ignis__training_check_ranks(const char *call, const char *name, const ignis_ranks *ranks)
{
    if (ranks->size == 0 && ranks->rank == 0)
        return true;
    if (ranks->size < 1 || ranks->size > IGNIS__TRAINING_RANKS || ranks->rank < 0 || ranks->rank >= ranks->size)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "%s has rank %d of %d; expected a rank below 1 to %d",
                                 name, ranks->rank, ranks->size, IGNIS__TRAINING_RANKS);
    return ranks->size == 1 || ranks->sum_fn ||
           ignis__fail_false(IGNIS_DIAG_NULL_ARGUMENT, call, "%s.sum_fn is null", name);
}

static bool ignis__training_check(const char *call, const ignis_training_desc *desc)
{
    if (desc->count < 1 || desc->optimizer_count < 0 || desc->state_count < 0)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.count is %d, optimizer_count %d and state_count %d; expected 1 or more tensors, "
                                 "and 0 or more of the others",
                                 desc->count, desc->optimizer_count, desc->state_count);
    if (!ignis__check_not_null(call, "desc.names", desc->names) ||
        !ignis__check_not_null(call, "desc.tensors", desc->tensors) ||
        (desc->optimizer_count && !ignis__check_not_null(call, "desc.optimizers", desc->optimizers)) ||
        (desc->state_count && (!ignis__check_not_null(call, "desc.state_names", desc->state_names) ||
                               !ignis__check_not_null(call, "desc.state", desc->state))))
        return false;
    return ignis__training_check_ranks(call, "desc.ranks", &desc->ranks);
}

/*  Holds a tensor by its name. */
static bool ignis__training_add(const char *call, ignis__training *training, const char *list, const char *name,
                                ignis_tensor handle)
{
    const int at = training->count;
    ignis__tensor *tensor;
    if (!name || !*name || !ignis__utf8_valid(name) || strcmp(name, "__metadata__") == 0)
        return ignis__fail_false(name ? IGNIS_DIAG_STORAGE_NAME : IGNIS_DIAG_NULL_ARGUMENT, call,
                                 "desc.%s[%d] is %s; expected a name in UTF-8", list,
                                 at < training->model_count ? at : at - training->model_count,
                                 name ? ignis__name_write(name).text : "null");
    training->count++; /* so that it is freed */
    training->names[at] = ignis__copy_string(name);
    if (!training->names[at])
        return ignis__fail_host_memory(call, strlen(name) + 1) == IGNIS_OK;
    training->tensors[at] = tensor = ignis__tensor_hold(call, handle);
    if (!tensor)
        return false;
    if (at == 0)
        training->device = tensor->device;
    return tensor->device == training->device ||
           ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call, "tensor %s is on device %d, and tensor %s on device %d",
                             ignis__name_write(name).text, ignis__device_ordinal(tensor->device),
                             ignis__name_write(training->names[0]).text, ignis__device_ordinal(training->device));
}

static bool ignis__training_hold(const char *call, ignis__training *training, const ignis_training_desc *desc)
{
    const size_t tensors = (size_t)desc->count + (size_t)desc->state_count, size = (size_t)training->ranks.size + 1;
    bool ok;
    int i;
    training->names = (char **)ignis__alloc_for(call, tensors * sizeof *training->names);
    training->tensors = (ignis__tensor **)ignis__alloc_for(call, tensors * sizeof *training->tensors);
    training->optimizers =
        (ignis__optimizer **)ignis__alloc_for(call, ((size_t)desc->optimizer_count + 1) * sizeof *training->optimizers);
    training->all = (int64_t *)ignis__alloc_for(call, size * sizeof *training->all);
    ok = training->names && training->tensors && training->optimizers && training->all;
    training->model_count = desc->count;
    for (i = 0; ok && i < desc->count; i++)
        ok = ignis__training_add(call, training, "names", desc->names[i], desc->tensors[i]);
    for (i = 0; ok && i < desc->state_count; i++)
        ok = ignis__training_add(call, training, "state_names", desc->state_names[i], desc->state[i]);
    for (i = 0; ok && i < desc->optimizer_count; i++) {
        training->optimizers[i] = ignis__optimizer_hold(call, desc->optimizers[i]);
        training->optimizer_count++;
        ok = training->optimizers[i] != NULL;
        if (ok && training->optimizers[i]->lbfgs)
            ok =
                ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call, "desc.optimizers[%d] is L-BFGS, which is not saved", i);
    }
    return ok;
}

/*  Returns a hash of what ranks must have in common, never 0. *ok false, and reported, if it cannot be made. */
static int64_t ignis__training_hash(const char *call, ignis__training *training, bool *ok)
{
    ignis__training_entries entries;
    uint64_t hash = IGNIS__HASH_START;
    int i;
    memset(&entries, 0, sizeof entries);
    *ok = *ok && ignis__training_entries_make(call, training, &entries) && ignis__training_entries_sort(call, &entries);
    for (i = 0; *ok && i < entries.count; i++) {
        const ignis__training_entry *entry = &entries.list[i];
        hash = ignis__hash(hash, entry->name, strlen(entry->name) + 1);
        hash = ignis__hash(hash, &entry->dtype, sizeof entry->dtype);
        hash = ignis__hash(hash, &entry->copies, sizeof entry->copies);
        hash = ignis__hash(hash, entry->shape.dim, (size_t)entry->shape.ndim * sizeof entry->shape.dim[0]);
    }
    ignis__training_entries_free(call, &entries);
    return *ok ? (int64_t)(hash >> 1 | 1) : 0;
}

/*  Meets the other ranks: all have the same tensors, and rank 0 draws a number for the names of files. */
IGNIS__PRIVATE bool ignis__training_meet(const char *call, ignis__training *training)
{
    ignis_array_desc desc = IGNIS__ZERO;
    int64_t drawn[2];
    int64_t hash;
    bool ok = true;
    int i;
    desc.shape = IGNIS_SHAPE(training->ranks.size + 1);
    desc.dtype = IGNIS_I64;
    desc.device = ignis__device_in_desc(training->device);
    desc.tag = "training";
    if (training->ranks.size > 1) {
        training->votes = ignis__array_adopt(call, ignis__array_create(call, &desc));
        if (!training->votes)
            return false;
    }
    drawn[0] = ignis__wall_ns();
    drawn[1] = (int64_t)ignis__process_id();
    hash = ignis__training_hash(call, training, &ok);
    if (!ignis__training_exchange(call, training, hash, (int64_t)ignis__hash(IGNIS__HASH_START, drawn, sizeof drawn)) ||
        !ok)
        return false;
    training->id = (uint64_t)training->all[training->ranks.size];
    for (i = 0; i < training->ranks.size; i++) {
        if (!training->all[i])
            return ignis__fail_false(IGNIS_DIAG_TRAINING_RANK, call, "rank %d has failed; its own message says why", i);
        if (training->all[i] != hash)
            return ignis__fail_false(IGNIS_DIAG_COMM_MISMATCH, call,
                                     "rank %d has other names, shapes, dtypes or optimizers than rank %d", i,
                                     training->ranks.rank);
    }
    return true;
}

IGNIS__COLD IGNIS_API ignis_training ignis_training_create(const ignis_training_desc *desc)
{
    static const char call[] = "ignis_training_create";
    ignis_training handle = IGNIS__ZERO;
    ignis__training *training;
    if (!ignis__enter(call) || ignis__capture_refuses(call) || !ignis__check_not_null(call, "desc", desc) ||
        !ignis__training_check(call, desc))
        return handle;
    training = (ignis__training *)ignis__pool_take_zeroed(call, &ignis__trainings);
    if (!training)
        return handle;
    ignis__mutex_init(&training->calls);
    training->ranks = desc->ranks;
    training->ranks.size = desc->ranks.size ? desc->ranks.size : 1;
    handle.id = ignis__pool_publish(&ignis__trainings, training);
    (void)ignis__pool_hold(&ignis__trainings, handle.id);
    if (!ignis__training_hold(call, training, desc) || !ignis__training_meet(call, training)) {
        ignis__handle_kill(training);
        handle.id = 0;
    }
    (void)ignis__training_drop(call, training);
    return handle;
}

IGNIS__COLD IGNIS_API ignis_status ignis_training_free(ignis_training handle)
{
    static const char call[] = "ignis_training_free";
    ignis__training *training;
    bool live, ok;
    if (!handle.id)
        return IGNIS_OK;
    training = ignis__training_enter(call, handle);
    if (!training)
        return ignis__failed();
    live = ignis__handle_kill(training);
    ok = ignis__training_save_end(call, training);
    if (!live)
        ok = ignis__fail_false(IGNIS_DIAG_TRAINING_FREED, call, "another thread has freed the training");
    return ignis__training_leave(call, training, ok);
}

/*  Ends every training; for ignis_shutdown, before optimizers end. */
IGNIS__COLD IGNIS__PRIVATE void ignis__trainings_close(const char *call)
{
    ignis__training *training;
    uint64_t index = 0;
    while ((training = (ignis__training *)ignis__pool_next(&ignis__trainings, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "training of %d tensors on device %d", training->count,
                           ignis__device_ordinal(training->device));
        ignis__handle_kill(training);
        (void)ignis__training_drop(call, training);
    }
}
