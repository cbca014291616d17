/*  >>comm.group - groups: communicators of some ranks of one, that fail with it and take turns with it

    A library makes them for work that its caller begins on one communicator, so their failures are failures of that
    one: of any group, on all ranks of the outer communicator, with the numbers that ranks have there.
    Uses: comm.c, messages of the job.
    Invariants: operations of a communicator and of its groups run one after the other on a device; a group ends before
    its outer communicator.
    Locks: outer->groups_lock around the list of groups; it is taken after the job's lock and that of a slot. */

#include "room.h"

/* Of init_rank.c. */
IGNIS__PRIVATE ignis_comm ignis__comm_make_dry(const char *call, int rank, int size,
                                               const ignis__comm_options *options);
IGNIS__PRIVATE ignis_comm ignis__comm_split(const char *call, ignis_comm handle, int color, int key,
                                            const ignis__comm_group *group);

/*  Returns the rank in the outer communicator of a rank of a group; without an outer one the rank itself; -1 for -1. */
IGNIS__PRIVATE int ignis__comm_outer_rank(const ignis__comm *comm, int rank)
{
    int i;
    if (!comm->outer || rank < 0)
        return rank;
    if (rank >= comm->size)
        return -1;
    for (i = comm->outer->size - 1; i >= 0 && comm->outer->member[i] != comm->member[rank]; i--)
        ;
    return i;
}

/*  Breaks a communicator on all ranks, which are told the code and the rank at fault (-1: unknown). */
IGNIS__PRIVATE void ignis__comm_break_told(ignis__comm *comm, int code, int peer)
{
    ignis__job_fault cause;
    if (code == IGNIS__COMM_NCCL_FAILED || code == IGNIS__COMM_PEER) { /* the others take this rank for the cause */
        cause.rank = code == IGNIS__COMM_PEER && peer >= 0 ? comm->member[peer] : comm->job->rank;
        cause.code = IGNIS__COMM_PEER;
    } else {
        cause.rank = peer >= 0 ? comm->member[peer] : -1;
        cause.code = code;
    }
    ignis__comm_break(comm, code, peer);
    ignis__job_send_fault(comm->job, comm->member, comm->size, comm->watch.key, &cause);
}

/*  Finds a group that is broken. Returns what broke it, 0: none is; *peer: the outer rank at fault. */
static int ignis__comm_groups_broken(ignis__comm *outer, int *peer)
{
    const ignis__comm *group;
    int code = 0;
    ignis__mutex_lock(&outer->groups_lock);
    for (group = outer->groups; group && !code; group = group->next_group) {
        code = ignis__comm_failure_code(group, peer);
        if (code == IGNIS__COMM_NCCL_FAILED)
            *peer = (int)(ignis__atomic_load(&group->broken) >> 8 & 0xFFFFFF); /* NCCL's error */
        else if (code)
            *peer = ignis__comm_outer_rank(group, *peer);
    }
    ignis__mutex_unlock(&outer->groups_lock);
    return code;
}

/*  Breaks the groups of a communicator from the host. Any thread may call it. */
IGNIS__PRIVATE void ignis__comm_groups_break(ignis__comm *outer)
{
    ignis__comm *group;
    int peer;
    ignis__mutex_lock(&outer->groups_lock);
    for (group = outer->groups; group; group = group->next_group)
        if (!ignis__comm_failure_code(group, &peer))
            ignis__comm_break(group, IGNIS__COMM_PEER, -1);
    ignis__mutex_unlock(&outer->groups_lock);
}

/*  Makes a failure of a communicator one of its groups, and a failure of one of them its own on all ranks. Any thread
    may call it. */
IGNIS__PRIVATE void ignis__comm_groups_settle(ignis__comm *comm)
{
    ignis__comm *outer = comm->outer ? comm->outer : comm;
    int code, peer, own;
    if (!ignis__atomic_load(&outer->has_groups))
        return;
    own = ignis__comm_failure_code(outer, &peer);
    code = own ? 0 : ignis__comm_groups_broken(outer, &peer);
    if (code)
        ignis__comm_break_told(outer, code, peer);
    else if (own)
        ignis__comm_groups_break(outer);
}

/*  Finds and holds the group whose kernels have found what broke a communicator; NULL if no group has. */
IGNIS__PRIVATE ignis__comm *ignis__comm_group_at_fault(const ignis__comm *outer)
{
    ignis__comm *comm = (ignis__comm *)outer, *group; /* its lock alone is written */
    int peer, code = ignis__comm_failure_code(outer, &peer);
    ignis__mutex_lock(&comm->groups_lock);
    for (group = comm->groups; group; group = group->next_group)
        if (group->memory->record && (int)ignis__atomic_load(&group->memory->record->code) == code &&
            ignis__comm_outer_rank(group, (int)group->memory->record->peer) == peer)
            break;
    if (group)
        group = (ignis__comm *)ignis__pool_hold(&ignis__comms, group->slot.handle);
    ignis__mutex_unlock(&comm->groups_lock);
    return group;
}

/*  Makes a communicator that is being created a group of `outer`. In it a rank waits `patience` times as long. */
IGNIS__PRIVATE void ignis__comm_group_begin(ignis__comm *outer, ignis__comm *group, int patience)
{
    (void)ignis__pool_hold_more(&outer->slot);
    group->outer = outer;
    group->options.timeout_ns *= patience;
}

/*  Removes a group that ends from the list. */
IGNIS__PRIVATE void ignis__comm_group_unlist(ignis__comm *group)
{
    ignis__comm **at;
    ignis__mutex_lock(&group->outer->groups_lock);
    for (at = &group->outer->groups; *at && *at != group; at = &(*at)->next_group)
        ;
    if (*at)
        *at = group->next_group;
    ignis__mutex_unlock(&group->outer->groups_lock);
}

#ifndef IGNIS_NO_TENSORS
/*  Lists a group that is complete: from here on it and the others fail together. */
static void ignis__comm_group_list(ignis__comm *outer, ignis__comm *group)
{
    ignis__mutex_lock(&outer->groups_lock);
    group->next_group = outer->groups;
    outer->groups = group;
    ignis__mutex_unlock(&outer->groups_lock);
    ignis__atomic_store(&outer->has_groups, 1);
    if (outer->job)
        ignis__job_watch_tick(outer->job, &outer->watch);
}

/*  Makes a group of the ranks of `outer` with one color, in their order; in a dry run it is `rank` of `size`. All ranks
    call it with one key. No handle on failure. */
IGNIS__PRIVATE ignis_comm ignis__comm_group_make(const char *call, ignis_comm handle, const ignis__comm_group *what)
{
    ignis__comm *outer = ignis__comm_hold(call, handle), *group = NULL;
    ignis_comm made = IGNIS__ZERO;
    if (outer && ignis__global.dry_run)
        made = ignis__comm_make_dry(call, what->rank, what->size, &outer->options);
    else if (outer)
        made = ignis__comm_split(call, handle, what->color, what->key, what);
    if (made.id)
        group = ignis__comm_hold(call, made);
    if (group && group->outer)
        ignis__comm_group_list(outer, group);
    if (group)
        ignis__comm_drop(call, group);
    if (outer)
        ignis__comm_drop(call, outer);
    return made;
}
#endif /* IGNIS_NO_TENSORS */
