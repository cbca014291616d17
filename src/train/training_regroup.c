/*  >>training.regroup - continues a training with other ranks, from the memory of one of them

    The rank with the most complete steps, of these the first, sends its tensors and the state of its optimizers. Ranks
    that have as many steps receive into memory that is freed again, so that they can send if that rank dies meanwhile.
    Uses: entries, how ranks agree. */

#include "room.h"

/*  Checks that every rank has the whole state of all optimizers. */
static bool ignis__regroup_check(const char *call, const ignis__training *training)
{
    int i;
    for (i = 0; i < training->optimizer_count; i++)
        if (training->optimizers[i]->sharer)
            return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                     "ranks share the state of optimizers[%d], and what a dead rank had of it is lost; "
                                     "make the training anew and load a saved one",
                                     i);
    return true;
}

/*  Makes a training that of other ranks. */
static bool ignis__regroup_change(const char *call, ignis__training *training, const ignis_ranks *ranks)
{
    int64_t *all = (int64_t *)ignis__alloc_for(call, ((size_t)ranks->size + 1) * sizeof *all);
    if (!all)
        return false;
    ignis__free(training->all);
    training->all = all;
    ignis__optimizer_unclaim(call, &training->votes);
    training->ranks = *ranks;
    training->saves = 0;
    return ignis__training_meet(call, training);
}

/*  Sends an array from a rank to all others. A rank that keeps its own receives into other
    memory. */
static bool ignis__regroup_array(const char *call, const ignis__training *training, ignis__array *array, int from,
                                 bool keeps)
{
    const ignis_ranks *ranks = &training->ranks;
    const ignis_shape shape = IGNIS_SHAPE(array->numel);
    ignis_array_desc desc = IGNIS__ZERO;
    ignis_array view;
    bool ok;
    if (array->numel == 0)
        return true;
    desc.shape = shape;
    desc.dtype = array->dtype;
    desc.device = ignis__device_in_desc(training->device);
    desc.tag = "training";
    view = keeps && ranks->rank != from ? ignis__array_create(call, &desc)
                                        : ignis__array_view(call, array, &shape, array->numel, 0);
    ok = view.id && ranks->broadcast_fn(ranks->group, view, from) == IGNIS_OK;
    if (view.id)
        ignis__array_discard(call, &view);
    return ok;
}

/*  Sends all tensors and the state of all optimizers. */
static bool ignis__regroup_send(const char *call, ignis__training *training, int from, bool keeps)
{
    ignis__training_entries entries;
    bool ok;
    int i;
    memset(&entries, 0, sizeof entries);
    ok = ignis__training_entries_make(call, training, &entries) && ignis__training_entries_sort(call, &entries);
    for (i = 0; ok && i < entries.count; i++)
        ok = !entries.list[i].array || ignis__regroup_array(call, training, entries.list[i].array, from, keeps);
    ignis__training_entries_free(call, &entries);
    return ok;
}

/*  Sets the gradients, and their sums, to zero: a step that was not completed may have left some. */
static bool ignis__regroup_zero(const char *call, const ignis__training *training)
{
    bool ok = true;
    int i, k;
    for (i = 0; ok && i < training->optimizer_count; i++) {
        ignis__optimizer *optimizer = training->optimizers[i];
        ignis_optimizer handle;
        handle.id = optimizer->slot.handle;
        ok = ignis_optimizer_zero_grad(handle) == IGNIS_OK;
        for (k = 0; ok && k < optimizer->count; k++) {
            const ignis__array *sum = optimizer->parameters[k].sum;
            ignis_array array = IGNIS__ZERO;
            array.id = sum ? sum->slot.handle : 0;
            ok = !sum || ignis__array_set_zero(call, array) == IGNIS_OK;
        }
    }
    return ok;
}

/*  Continues the random numbers of this rank at a place. */
static bool ignis__regroup_random(ignis__training *training, int64_t position)
{
    training->random.position = (uint64_t)position;
    return ignis_random_restore(training->random) == IGNIS_OK;
}

static bool ignis__regroup(const char *call, ignis__training *training, const ignis_ranks *ranks)
{
    int64_t most = -1, position;
    int i, from = 0;
    bool keeps, saved, ok;
    if (!ignis__regroup_check(call, training))
        return false;
    if (!training->is_noted)
        training->random = ignis_random_save();
    saved = ignis__training_save_end(call, training);
    if (!ignis__regroup_change(call, training, ranks) || !ignis__training_exchange(call, training, training->step, 0))
        return false;
    for (i = 0; i < training->ranks.size; i++) {
        if (training->all[i] > most) {
            most = training->all[i];
            from = i;
        }
    }
    if (most < 0)
        return ignis__fail_false(IGNIS_DIAG_TRAINING_RANK, call,
                                 "no rank has a complete training; load a saved one on all ranks");
    keeps = training->step == most && most > 0;
    training->step = keeps || training->ranks.rank == from ? training->step : -1; /* until all of it has come */
    ok = ignis__training_exchange(call, training, (int64_t)training->random.position, 0);
    position = training->all[from];
    ok = ok && saved && (training->ranks.size == 1 || ignis__regroup_send(call, training, from, keeps)) &&
         ignis__regroup_zero(call, training);
    if (!ignis__training_agree(call, training, ok) || !ignis__regroup_random(training, position))
        return false;
    training->step = most;
    training->is_noted = true;
    return true;
}

IGNIS__COLD IGNIS_API ignis_status ignis_training_regroup(ignis_training handle, ignis_ranks ranks, int64_t *step)
{
    static const char call[] = "ignis_training_regroup";
    ignis__training *training = ignis__training_enter(call, handle);
    bool ok;
    if (!training)
        return ignis__failed();
    ranks.size = ranks.size || ranks.rank ? ranks.size : 1;
    ok = ignis__check_not_null(call, "step", step) && ignis__training_check_ranks(call, "ranks", &ranks) &&
         (ranks.size == 1 || ranks.broadcast_fn || ignis__check_not_null(call, "ranks.broadcast_fn", NULL)) &&
         ignis__regroup(call, training, &ranks);
    if (ok)
        *step = training->step;
    return ignis__training_leave(call, training, ok);
}

IGNIS_API ignis_status ignis_training_mark(ignis_training handle, int64_t step)
{
    static const char call[] = "ignis_training_mark";
    ignis__training *training = ignis__training_enter(call, handle);
    bool ok;
    if (!training)
        return ignis__failed();
    ok = step >= -1 ||
         ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "step is %lld; expected -1 or more", (long long)step);
    if (ok) {
        training->step = step;
        training->random = ignis_random_save();
        training->is_noted = true;
    }
    return ignis__training_leave(call, training, ok);
}
