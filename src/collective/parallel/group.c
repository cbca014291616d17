/*  >>parallel.group - shards inside groups of ranks, copies between them (HSDP)

    A group of ranks divides a copy of the model; the ranks at one position of the groups have copies of one slice.
    Gradients are averaged inside the group, where each rank keeps a slice, and then slices are averaged across groups.
    Weights are gathered inside the group alone.
    Uses: groups of communicators, the job's hosts. Invariant: all ranks have the same number of ranks in a group. */

#include "room.h"

#ifndef IGNIS_NO_TENSORS

/*  Finds the place of this rank if the ranks of each host are a group. False, and reported, if hosts have different
    numbers of ranks. */
static bool ignis__parallel_place_on_host(const char *call, const ignis__comm *comm, ignis__parallel_place *place)
{
    const ignis__job_rank *ranks = comm->job->ranks;
    bool is_after = false; /* ranks of this host have come */
    int i, k, size, before;
    (void)ignis__comm_hosts(comm, &place->rank, &place->ranks);
    for (i = 0; i < comm->size; i++) {
        const uint64_t host = ranks[comm->member[i]].host;
        for (k = size = before = 0; k < comm->size; k++) {
            size += ranks[comm->member[k]].host == host;
            before += k < i && ranks[comm->member[k]].host == host;
        }
        is_after = is_after || host == ranks[comm->job->rank].host;
        place->group += before == 0 && !is_after; /* a host whose first rank is before that of this one */
        if (size != place->ranks)
            return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                     "shard_ranks is IGNIS_SHARD_RANKS_HOST, and the hosts of ranks %d and %d have %d "
                                     "and %d ranks; expected hosts with equal numbers of ranks",
                                     comm->rank, i, place->ranks, size);
    }
    return true;
}

static bool ignis__parallel_place_check(const char *call, const ignis__comm *comm, const ignis_parallel_desc *desc)
{
    const int ranks = desc->shard_ranks;
    if (ranks && !desc->shard)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "shard_ranks is %d with IGNIS_SHARD_NONE; expected 0, or another shard", ranks);
    if (ranks == IGNIS_SHARD_RANKS_HOST && ignis__global.dry_run)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "shard_ranks is IGNIS_SHARD_RANKS_HOST in a dry run, which knows no hosts; expected "
                                 "the number of ranks");
    if (ranks != IGNIS_SHARD_RANKS_HOST && (ranks < 0 || (ranks && comm->size % ranks)))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "shard_ranks is %d; expected 0, IGNIS_SHARD_RANKS_HOST, or a divisor of the %d ranks",
                                 ranks, comm->size);
    if (ranks > 0 && ranks < comm->size && !comm->job && !ignis__global.dry_run)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "shard_ranks is %d of %d ranks of ignis_comm_init_all; expected a communicator of "
                                 "ignis_comm_init",
                                 ranks, comm->size);
    return true;
}

/*  Finds the place of this rank among the groups. False, and reported, if desc does not fit the ranks. */
IGNIS__PRIVATE bool ignis__parallel_place_find(const char *call, ignis_comm handle, const ignis_parallel_desc *desc,
                                               ignis__parallel_place *place)
{
    ignis__comm *comm = ignis__comm_hold(call, handle);
    const int ranks = desc ? desc->shard_ranks : 0;
    bool ok;
    if (!comm)
        return false;
    memset(place, 0, sizeof *place);
    place->ranks = ranks > 0 ? ranks : comm->size;
    place->rank = comm->rank;
    ok = !desc || ignis__parallel_place_check(call, comm, desc);
    if (ok && ranks == IGNIS_SHARD_RANKS_HOST && comm->job) {
        ok = ignis__parallel_place_on_host(call, comm, place);
    } else if (ok) {
        place->rank = comm->rank % place->ranks;
        place->group = comm->rank / place->ranks;
    }
    if (ok)
        place->copies = comm->size / place->ranks;
    ignis__comm_drop(call, comm);
    return ok;
}

/*  Makes the communicators of this rank's group, and of its position across groups. All ranks call it. An operation
    across groups may wait for a rank that waits inside its own: it has twice the deadline, so that the operation inside
    finds the rank that is missing. */
IGNIS__PRIVATE bool ignis__parallel_groups_make(const char *call, ignis__parallel_state *parallel)
{
    const ignis__parallel_place *place = &parallel->place;
    ignis__comm_group inside = IGNIS__ZERO, across = IGNIS__ZERO;
    if (place->copies == 1) {
        parallel->inside = parallel->comm;
        return true;
    }
    inside.color = place->group;
    inside.rank = place->rank;
    inside.size = place->ranks;
    inside.patience = 1;
    across.color = place->rank;
    across.rank = place->group;
    across.size = place->copies;
    across.patience = 2;
    inside.key = across.key = place->ranks;
    parallel->across = ignis__comm_group_make(call, parallel->comm, &across);
    if (!parallel->across.id)
        return false;
    parallel->inside = ignis__comm_group_make(call, parallel->comm, &inside);
    return parallel->inside.id != 0;
}

/*  Leaves the groups, as far as they were made. */
IGNIS__PRIVATE void ignis__parallel_groups_leave(const char *call, ignis__parallel_state *parallel)
{
    if (parallel->inside.id != parallel->comm.id)
        ignis__comm_leave(call, parallel->inside);
    ignis__comm_leave(call, parallel->across);
    parallel->inside.id = parallel->across.id = 0;
}

/*  Averages `whole` on the current stream: over the group into this rank's slice of it, which is then averaged across
    the groups. */
IGNIS__PRIVATE bool ignis__parallel_groups_average(const ignis__parallel_state *parallel, ignis_array whole,
                                                   ignis_array slice)
{
    return ignis_comm_reduce_scatter(parallel->inside, whole, slice, IGNIS_OP_AVG) == IGNIS_OK &&
           (!parallel->across.id || ignis_comm_all_reduce(parallel->across, slice, slice, IGNIS_OP_AVG) == IGNIS_OK);
}

#endif /* IGNIS_NO_TENSORS */
