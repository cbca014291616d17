/*  >>training.regroup - continues a training with other ranks, from the memory of one of them

    Where every rank has all state, the rank with the most complete steps, of these the first, sends it. Ranks that have
    as many steps receive into memory that is freed again, so that they can send if that rank dies meanwhile. Where
    ranks share state, those that have trained together go back to the last step that all of them have completed, and
    each sends its pieces to the ranks at its place in other groups.
    Uses: entries, how ranks agree, pieces and their state before a step. */

#include "room.h"

/*  How ranks that share state continue from one step: equal on all, but for `copy`, `sends` and `is_complete`. */
typedef struct ignis__regroup_plan {
    int64_t step;
    int from;         /* the first complete rank, which sends what is whole */
    int copy;         /* the copy of this rank's pieces that is sent */
    bool sends;       /* a rank with such a copy needs them */
    bool is_complete; /* this rank is */
    bool is_start;    /* none has trained yet */
} ignis__regroup_plan;

/*  Makes a training that of other ranks. */
static bool ignis__regroup_change(const char *call, ignis__training *training, const ignis_ranks *ranks)
{
    int64_t *all = (int64_t *)ignis__alloc_for(call, (2 * (size_t)ranks->size + 1) * sizeof *all); /* and places */
    if (!all)
        return false;
    ignis__free(training->all);
    training->all = all;
    ignis__optimizer_unclaim(call, &training->votes);
    training->ranks = *ranks;
    training->saves = 0;
    return ignis__training_meet(call, training);
}

/*  Sends a parameter whose memory is found at each use, through memory of its own. */
static bool ignis__regroup_gathered(const char *call, const ignis__training *training, ignis__array *array, int from)
{
    const ignis_ranks *ranks = &training->ranks;
    ignis_array handle = ignis__array_create_like(call, array, array->dtype);
    ignis__array *copy = handle.id ? (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id) : NULL;
    const bool ok = copy && ignis__array_copy_bytes(call, copy, 0, array) &&
                    ranks->broadcast_fn(ranks->group, handle, from) == IGNIS_OK &&
                    ignis__array_copy_bytes(call, array, 0, copy);
    if (copy) {
        ignis__array_drop(call, copy);
        ignis__array_discard(call, &handle);
    }
    return ok;
}

/*  Sends an array from a rank to all others; with `shares` from the copy `from` to the others. A rank that keeps its
    own receives into other memory. */
static bool ignis__regroup_array(const char *call, const ignis__training *training, ignis__array *array,
                                 const ignis__training_shares *shares, int from, bool keeps)
{
    const ignis_ranks *ranks = &training->ranks;
    const ignis_shape shape = IGNIS_SHAPE(array->numel);
    ignis_array_desc desc = IGNIS__ZERO;
    ignis_array view;
    bool ok;
    if (array->numel == 0)
        return true;
    if (array->storage->find_fn)
        return ignis__regroup_gathered(call, training, array, from);
    desc.shape = shape;
    desc.dtype = array->dtype;
    desc.device = ignis__device_in_desc(training->device);
    desc.tag = "training";
    view = keeps && (shares ? shares->copy : ranks->rank) != from
               ? ignis__array_create(call, &desc)
               : ignis__array_view(call, array, &shape, array->numel, 0);
    ok = view.id && (shares ? shares->group->sharing->copy_fn(shares->group, view, from)
                            : ranks->broadcast_fn(ranks->group, view, from) == IGNIS_OK);
    if (view.id)
        ignis__array_discard(call, &view);
    return ok;
}

/*  Sends all tensors and the state of all optimizers; with a plan this rank's pieces of what ranks share, and at the
    start not the state of parameters. */
static bool ignis__regroup_send(const char *call, const ignis__training *training, int from, bool keeps,
                                const ignis__training_shares *shares, const ignis__regroup_plan *plan)
{
    ignis__training_entries entries;
    bool ok;
    int i;
    memset(&entries, 0, sizeof entries);
    ok = (plan && !plan->is_start ? ignis__training_pieces_make(call, training, &entries)
                                  : ignis__training_entries_make(call, training, &entries)) &&
         ignis__training_entries_sort(call, &entries);
    for (i = 0; ok && i < entries.count; i++) {
        const ignis__training_entry *entry = &entries.list[i];
        if (!entry->array || (entry->is_shared && (plan->is_start || !plan->sends)))
            continue;
        ok = entry->is_shared ? ignis__regroup_array(call, training, entry->array, shares, plan->copy, keeps)
                              : ignis__regroup_array(call, training, entry->array, NULL, from, keeps);
    }
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

/*  Continues from a step, if all ranks are ok. Ends a regrouping; all ranks call it. */
static bool ignis__regroup_end(const char *call, ignis__training *training, int64_t step, int64_t position, bool ok)
{
    if (!ignis__training_agree(call, training, ok) || !ignis__regroup_random(training, position))
        return false;
    training->step = step;
    training->is_noted = training->has_joined = true;
    return true;
}

static bool ignis__regroup_fail_none(const char *call)
{
    return ignis__fail_false(IGNIS_DIAG_TRAINING_RANK, call,
                             "no rank has a complete training; load a saved one on all ranks");
}

/*  Continues a training of which every rank has all. */
static bool ignis__regroup_whole(const char *call, ignis__training *training, bool ok)
{
    int64_t most = -1, position;
    int i, from = 0;
    bool keeps;
    if (!ignis__training_exchange(call, training, training->step, 0))
        return false;
    for (i = 0; i < training->ranks.size; i++) {
        if (training->all[i] > most) {
            most = training->all[i];
            from = i;
        }
    }
    if (most < 0)
        return ignis__regroup_fail_none(call);
    keeps = training->step == most && most > 0;
    training->step = keeps || training->ranks.rank == from ? training->step : -1; /* until all of it has come */
    ok = ignis__training_exchange(call, training, (int64_t)training->random.position, 0) && ok;
    position = training->all[from];
    ok = ok && (training->ranks.size == 1 || ignis__regroup_send(call, training, from, keeps, NULL, NULL)) &&
         ignis__regroup_zero(call, training);
    return ignis__regroup_end(call, training, most, position, ok);
}

/* --- trainings that ranks share --- */

/*  Returns the first rank from `at` on that is complete, or with incomplete one that is not, at `place` in its group,
    -1: at any. Returns the number of ranks if no rank is so. */
static int ignis__regroup_find(const ignis__training *training, const ignis__training_shares *shares, bool incomplete,
                               int64_t place, int at)
{
    const int64_t *places = training->all + training->ranks.size + 1;
    for (; at < training->ranks.size; at++)
        if ((training->all[at] < 0) == incomplete && (place < 0 || places[at] / 2 / shares->copies == place))
            break;
    return at;
}

/*  Exchanges places and complete steps: training->all becomes -1 for ranks that need the state. Finds the step to
    continue from. */
static bool ignis__regroup_steps(const char *call, ignis__training *training, const ignis__training_shares *shares,
                                 ignis__regroup_plan *plan)
{
    const int size = training->ranks.size;
    int64_t *all = training->all, *places = all + size + 1, most = -1;
    bool have_joined = false;
    int i;
    if (!ignis__training_exchange(
            call, training, ((int64_t)shares->rank * shares->copies + shares->copy) * 2 + training->has_joined, 0))
        return false;
    memcpy(places, all, sizeof *all * (size_t)size);
    if (!ignis__training_exchange(call, training, training->step, 0))
        return false;
    for (i = 0; i < size; i++) {
        have_joined = have_joined || (all[i] >= 0 && places[i] % 2);
        most = all[i] > most ? all[i] : most;
    }
    plan->is_start = !have_joined && most == 0;
    plan->step = most;
    for (i = 0; i < size; i++) {
        if (have_joined ? !(places[i] % 2) : all[i] < most)
            all[i] = -1; /* it has come from outside, or with less of a saved training */
        if (all[i] >= 0 && all[i] < plan->step)
            plan->step = all[i];
    }
    return most >= 0 || ignis__regroup_fail_none(call);
}

/*  Checks that a complete rank has each piece. */
static bool ignis__regroup_check(const char *call, const ignis__training *training,
                                 const ignis__training_shares *shares)
{
    const int size = training->ranks.size;
    const int64_t *places = training->all + size + 1;
    char sentence[400];
    ignis__string_writer text;
    int i, lost = 0;
    ignis__string_begin(&text, sentence, sizeof sentence);
    for (i = 0; i < size; i++)
        if (ignis__regroup_find(training, shares, false, places[i] / 2 / shares->copies, 0) == size)
            ignis__string_add(&text, "%s%d", lost++ ? ", " : "", i);
    return lost == 0 || ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                          "the shards of %s %s are lost, as no living rank has a copy; continue from "
                                          "the saved training, with parameters, optimizers and training made anew",
                                          lost == 1 ? "rank" : "ranks", sentence);
}

static bool ignis__regroup_make_plan(const char *call, ignis__training *training, const ignis__training_shares *shares,
                                     ignis__regroup_plan *plan)
{
    const int64_t *places = training->all + training->ranks.size + 1;
    int first;
    memset(plan, 0, sizeof *plan);
    if (!ignis__regroup_steps(call, training, shares, plan))
        return false;
    plan->from = ignis__regroup_find(training, shares, false, -1, 0);
    plan->is_complete = training->all[training->ranks.rank] >= 0;
    if (plan->is_start)
        return true;
    if (!ignis__regroup_check(call, training, shares))
        return false;
    first = ignis__regroup_find(training, shares, false, shares->rank, 0);
    plan->copy = (int)(places[first] / 2 % shares->copies);
    plan->sends = ignis__regroup_find(training, shares, true, shares->rank, 0) < training->ranks.size;
    return true;
}

/*  Lets the optimizers begin with the parameters as they are. */
static bool ignis__regroup_begin_states(const char *call, const ignis__training *training)
{
    bool ok = true;
    int i, k;
    for (i = 0; i < training->optimizer_count; i++) {
        ignis__optimizer *optimizer = training->optimizers[i];
        ignis__mutex_lock(&optimizer->slot.lock);
        for (k = 0; ok && k < optimizer->count; k++)
            ok = ignis__parameter_follow(call, optimizer, &optimizer->parameters[k]);
        ignis__mutex_unlock(&optimizer->slot.lock);
    }
    return ok;
}

/*  Frees what is gathered before pieces are written to. All ranks call it. */
static bool ignis__regroup_settle(const char *call, const ignis__training_shares *shares)
{
    const ignis__sharing *sharing = shares->group->sharing;
    return !sharing->begin_fn || sharing->begin_fn(shares->group, call, true);
}

/*  Continues a training of which each rank has pieces. */
static bool ignis__regroup_shared(const char *call, ignis__training *training, const ignis__training_shares *shares,
                                  bool ok)
{
    ignis__regroup_plan plan;
    int64_t position;
    bool keeps;
    if (!ignis__regroup_make_plan(call, training, shares, &plan))
        return false;
    keeps = plan.is_complete && !plan.is_start;
    ok = ignis__regroup_settle(call, shares) && ok && ignis__training_keep_open(call, training) &&
         (!keeps || ignis__training_undo(call, training, plan.step));
    if (!ignis__training_agree(call, training, ok))
        return false;
    if (!plan.is_complete)
        training->step = -1; /* until all of it has come */
    ok = ignis__training_exchange(call, training, (int64_t)training->random.position, 0);
    position = training->all[plan.from];
    ok = ok && ignis__regroup_send(call, training, plan.from, keeps, shares, &plan) &&
         ignis__regroup_settle(call, shares) && (!plan.is_start || ignis__regroup_begin_states(call, training)) &&
         ignis__regroup_zero(call, training) && shares->group->sharing->renew_fn(shares->group, call);
    if (!ignis__regroup_end(call, training, plan.step, position, ok))
        return false;
    training->kept.has_begun = false;
    if (!plan.is_complete)
        training->kept.step = -1;
    return true;
}

static bool ignis__regroup(const char *call, ignis__training *training, const ignis_ranks *ranks)
{
    ignis__training_shares shares;
    bool ok;
    if (!training->is_noted)
        training->random = ignis_random_save();
    ok = ignis__training_save_end(call, training);
    if (!ignis__regroup_change(call, training, ranks))
        return false;
    if (!ignis__training_shares_find(call, training, &shares)) {
        ignis__training_shares_drop(call, &shares);
        return false;
    }
    if (shares.group)
        ok = ignis__regroup_shared(call, training, &shares, ok);
    else
        ok = ignis__regroup_whole(call, training, ok);
    ignis__training_shares_drop(call, &shares);
    return ok;
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

/*  Waits for a step in which ranks communicate. False, and reported, if it has failed: it does not count. */
static bool ignis__mark_wait(const char *call, const ignis__training *training)
{
    ignis__training_shares shares;
    const bool ok = ignis__training_shares_find(call, training, &shares) &&
                    (!shares.group || shares.group->sharing->wait_fn(shares.group));
    ignis__training_shares_drop(call, &shares);
    return ok;
}

IGNIS_API ignis_status ignis_training_mark(ignis_training handle, int64_t step)
{
    static const char call[] = "ignis_training_mark";
    ignis__training *training = ignis__training_enter(call, handle);
    bool ok;
    if (!training)
        return ignis__failed();
    ok = (step >= -1 ||
          ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "step is %lld; expected -1 or more", (long long)step)) &&
         (step < 0 || !training->kept.has_begun || ignis__mark_wait(call, training));
    if (ok) {
        training->step = step;
        training->random = ignis_random_save();
        training->is_noted = true;
        training->kept.has_begun = false;
    }
    return ignis__training_leave(call, training, ok);
}
