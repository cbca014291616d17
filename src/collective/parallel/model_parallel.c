/*  >>parallel.model - the interface of communicators for models, and for trainings, that several ranks share

    ignis_model_parallel and ignis_ranks have a group and functions; this part fills them for a communicator.
    Uses: the public functions of comm.
    Invariants: ignis.h does not know communicators; it calls back through this struct. */

#include "room.h"

static ignis_status ignis__comm_group_sum(uint64_t group, ignis_array array)
{
    ignis_comm comm = IGNIS__ZERO;
    comm.id = group;
    return ignis_comm_all_reduce(comm, array, array, IGNIS_OP_SUM);
}

static ignis_status ignis__comm_group_check(uint64_t group)
{
    ignis_comm comm = IGNIS__ZERO;
    comm.id = group;
    return ignis_comm_status(comm);
}

IGNIS_API ignis_model_parallel ignis_comm_parallel(ignis_comm handle)
{
    ignis_model_parallel parallel = IGNIS__ZERO;
    ignis_comm_info info;
    parallel.size = -1;
    if (ignis__comm_query("ignis_comm_parallel", handle, &info) != IGNIS_OK)
        return parallel;
    parallel.rank = info.rank;
    parallel.size = info.size;
    parallel.group = handle.id;
    parallel.sum_fn = ignis__comm_group_sum;
    parallel.check_fn = ignis__comm_group_check;
    return parallel;
}

#ifndef IGNIS_NO_TENSORS
static ignis_status ignis__comm_group_broadcast(uint64_t group, ignis_array array, int from)
{
    ignis_comm comm = IGNIS__ZERO;
    comm.id = group;
    return ignis_comm_broadcast(comm, array, from);
}

IGNIS_API ignis_ranks ignis_comm_ranks(ignis_comm handle)
{
    ignis_ranks ranks = IGNIS__ZERO;
    ignis_comm_info info;
    ranks.size = -1;
    if (ignis__comm_query("ignis_comm_ranks", handle, &info) != IGNIS_OK)
        return ranks;
    ranks.rank = info.rank;
    ranks.size = info.size;
    ranks.group = handle.id;
    ranks.sum_fn = ignis__comm_group_sum;
    ranks.broadcast_fn = ignis__comm_group_broadcast;
    return ranks;
}
#endif
