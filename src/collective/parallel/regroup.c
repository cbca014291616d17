/*  >>parallel.regroup - data-parallel training that goes on with the ranks of another communicator

    Parameters, their slices and the state of optimizers stay where they are, so a rank that lives on brings them along.
    It makes the groups and shares its slices as ignis_parallel_create does on ranks that join, in the same order.
    Uses: data_parallel, groups, gathering. Invariant: after a failure the handle has no groups, or those of the new
    communicator, and can be moved again. */

#include "room.h"

#ifndef IGNIS_NO_TENSORS

/*  Checks that a rank has the same part of what is shared among the ranks of another communicator. */
static bool ignis__parallel_regroup_check(const char *call, const ignis__parallel_state *parallel, ignis_comm comm,
                                          ignis__parallel_place *place)
{
    const ignis__parallel_place *before = &parallel->place;
    ignis_parallel_desc desc = IGNIS__ZERO;
    ignis_comm_info info;
    desc.shard = parallel->shard;
    desc.shard_ranks = parallel->shard_ranks;
    if (ignis__comm_query(call, comm, &info) != IGNIS_OK ||
        !ignis__parallel_place_find(call, comm, parallel->shard ? &desc : NULL, place))
        return false;
    if (&ignis__devices[info.device] != parallel->device)
        return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call,
                                 "the communicator is on device %d; expected device %d, which has the parameters",
                                 info.device, ignis__device_ordinal(parallel->device));
    if ((info.size == 1) != !parallel->stream)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "comm has %d rank(s); expected %s, as for ignis_parallel_create", info.size,
                                 parallel->stream ? "several ranks" : "one");
    return !parallel->shard || memcmp(place, before, sizeof *place) == 0 ||
           ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                             "this rank is rank %d of %d of group %d of %d; expected rank %d of %d of group %d of %d, "
                             "whose shards it has",
                             place->rank, place->ranks, place->group, place->copies, before->rank, before->ranks,
                             before->group, before->copies);
}

/*  Checks that no backward pass averages. */
static bool ignis__parallel_regroup_is_free(const char *call, ignis__parallel_state *parallel)
{
    bool busy;
    ignis__mutex_lock(&parallel->slot.lock);
    busy = parallel->backward_pass != NULL;
    ignis__mutex_unlock(&parallel->slot.lock);
    return !busy || ignis__fail_false(IGNIS_DIAG_PARALLEL_BUSY, call,
                                      "another thread's ignis_backward is averaging the gradients of the parameters");
}

/*  Waits for the work of the ranks before, and frees what a step has left that was not completed. */
static bool ignis__parallel_regroup_stop(const char *call, ignis__parallel_state *parallel)
{
    ignis__binding binding;
    bool ok = ignis__device_enter(call, parallel->device, &binding);
    int i;
    if (!ok)
        return false;
    ok = ignis__device_wait(call, parallel->device) &&
         (parallel->shard != IGNIS_SHARD_PARAMETERS || ignis__gather_stop(call, parallel));
    for (i = 0; ok && parallel->shard >= IGNIS_SHARD_GRADIENTS && i < parallel->bucket_count; i++)
        ok = parallel->buckets[i].group.sharing->forget_fn(&parallel->buckets[i].group, call);
    ignis__device_leave(&binding);
    return ok;
}

IGNIS_API IGNIS__COLD ignis_status ignis_parallel_regroup(ignis_parallel handle, ignis_comm comm)
{
    static const char call[] = "ignis_parallel_regroup";
    ignis__parallel_state *parallel = ignis__parallel_hold(call, handle);
    ignis__parallel_place place;
    bool ok;
    if (!parallel)
        return ignis__failed();
    memset(&place, 0, sizeof place);
    ok = !ignis__capture_refuses(call) && ignis__parallel_regroup_check(call, parallel, comm, &place) &&
         ignis__parallel_regroup_is_free(call, parallel) && ignis__parallel_regroup_stop(call, parallel);
    if (ok) {
        ignis__parallel_groups_leave(call, parallel);
        parallel->comm = comm;
        parallel->place = place;
        ok = ignis__parallel_groups_make(call, parallel) &&
             (parallel->shard != IGNIS_SHARD_PARAMETERS || !parallel->stream || ignis__gather_reopen(call, parallel));
    }
    ok = ignis__parallel_drop(call, parallel) && ok;
    return ok ? IGNIS_OK : ignis__failed();
}

#endif /* IGNIS_NO_TENSORS */
