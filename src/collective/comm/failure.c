/*  >>comm.failure - what broke a communicator, in words

    Fingerprints of operations, and the sentence that ignis_status_message returns.
    Uses: communicators.
    Invariants: a fingerprint has the same layout in kernels/collective.cuh.
    Locks: none. */

#include "room.h"

/*  Returns the fingerprint that ranks must agree on: kind (4 bits) | op (4) | dtype (4) | by NCCL (1) | root
    (3) | elements of a slice (40) | 8 bits for kernels. The launch follows from it and from what the ranks
    agreed on at the start. */
IGNIS__PRIVATE uint64_t ignis__comm_fingerprint(const ignis__comm_task *task, bool by_nccl)
{
    return (uint64_t)task->kind << 60 | (uint64_t)task->op << 56 | (uint64_t)task->dtype << 52 |
           (uint64_t)by_nccl << 51 | (uint64_t)(task->root & 7) << 48 |
           (uint64_t)(task->count & (((int64_t)1 << 40) - 1)) << 8;
}

static void ignis__comm_fingerprint_write(ignis__string_writer *text, uint64_t print)
{
    uint64_t kind = print >> 60, op = print >> 56 & 15, dtype = print >> 52 & 15;
    ignis__string_add(text, "%s", kind < IGNIS__COMM_KIND_COUNT ? ignis__comm_kinds[kind] : "something else");
    if (kind == IGNIS__COMM_ALL_REDUCE || kind == IGNIS__COMM_REDUCE || kind == IGNIS__COMM_REDUCE_SCATTER)
        ignis__string_add(text, " %s", op < IGNIS_OP_COUNT ? ignis__comm_ops[op] : "?");
    if (kind != IGNIS__COMM_BARRIER && dtype < IGNIS_DTYPE_COUNT)
        ignis__string_add(text, " of %llu %s", (unsigned long long)(print >> 8 & (((uint64_t)1 << 40) - 1)),
                          ignis__dtypes[dtype].name);
    if (kind == IGNIS__COMM_REDUCE || kind == IGNIS__COMM_BROADCAST)
        ignis__string_add(text, " (root %u)", (unsigned)(print >> 48 & 7));
    if (print >> 51 & 1)
        ignis__string_add(text, " by NCCL");
}

/*  Tells if one of two communicators is a group of the other, or both are groups of a third. */
static bool ignis__comm_are_related(const ignis__comm *a, const ignis__comm *b)
{
    return (a->outer ? a->outer : a) == (b->outer ? b->outer : b);
}

/*  Names another communicator that was used on the device at about the same time: each may have waited for
    blocks that the other one held. */
static void ignis__comm_other_write(ignis__string_writer *text, const ignis__comm *comm)
{
    uint64_t recent = ignis__atomic_load(&ignis__comm_last_used[comm->device - ignis__devices]);
    ignis__comm *other = (ignis__comm *)ignis__pool_hold(
        &ignis__comms, recent == comm->slot.handle ? ignis__atomic_load(&comm->beside) : recent);
    int64_t apart = other ? (int64_t)(ignis__atomic_load(&other->used_ns) - ignis__atomic_load(&comm->used_ns)) : 0;
    if (other && other != comm && !ignis__comm_are_related(comm, other) && apart < comm->options.timeout_ns &&
        apart > -comm->options.timeout_ns)
        ignis__string_add(
            text,
            "; communicator #%llu was used on device %d beside this one, #%llu: begin the operations of both in one "
            "order "
            "on all ranks, or give both fewer blocks (desc.most_blocks), so that they fit on the device together",
            (unsigned long long)other->slot.handle, ignis__device_ordinal(comm->device),
            (unsigned long long)comm->slot.handle);
    if (other)
        ignis__comm_drop("ignis_comm_status", other);
}

/*  Writes what a kernel of a communicator has found. False: it has found nothing. */
static bool ignis__comm_record_write(ignis__string_writer *text, const ignis__comm *comm)
{
    const ignis__comm_record *record = comm->memory->record;
    const uint64_t code = record ? ignis__atomic_load(&record->code) : 0;
    const int peer = code ? ignis__comm_outer_rank(comm, (int)record->peer) : -1;
    if (code == IGNIS__COMM_TIMEOUT)
        ignis__string_add(text, "rank %d did not come to operation %u within %.3g s, as rank %d reports", peer,
                          record->op, (double)comm->options.timeout_ns * 1e-9,
                          ignis__comm_outer_rank(comm, (int)record->reporter));
    else if (code == IGNIS__COMM_MISMATCH) {
        ignis__string_add(text, "ranks disagree about operation %u: rank %d calls ", record->op, peer);
        ignis__comm_fingerprint_write(text, record->theirs);
        ignis__string_add(text, ", rank %d calls ", ignis__comm_outer_rank(comm, comm->rank));
        ignis__comm_fingerprint_write(text, record->mine);
    } else if (code == IGNIS__COMM_TWICE)
        ignis__string_add(text, "rank %d ran two operations of one communicator at the same time, on two streams",
                          peer);
    else
        return false;
    return true;
}

/*  Fails with what broke a communicator, as `diagnostic`; with NONE, as the original one. A group's failure is that of
    its outer communicator. */
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__comm_fail(const char *call, const ignis__comm *comm,
                                                         ignis_diagnostic diagnostic)
{
    ignis__comm *group;
    char sentence[896];
    ignis__string_writer text;
    ignis_diagnostic what;
    bool is_found;
    int peer;
    ignis__comm_groups_settle((ignis__comm *)comm);
    comm = comm->outer ? comm->outer : comm;
    what = ignis__comm_failure(comm, &peer);
    group = ignis__comm_group_at_fault(comm);
    ignis__string_begin(&text, sentence, sizeof sentence);
    is_found = ignis__comm_record_write(&text, comm) || (group && ignis__comm_record_write(&text, group));
    if (group)
        ignis__comm_drop(call, group);
    if (is_found)
        ;
    else if (what == IGNIS_DIAG_NCCL_CALL) {
        int error = (int)(ignis__atomic_load(&comm->broken) >> 8 & 0xFFFFFF);
        const char *name = ignis__nccl.ncclGetErrorString(error);
        ignis__string_add(&text, "NCCL reports \"%s\" (%d) in a running operation", name ? name : "unknown error",
                          error);
    } else if (what == IGNIS_DIAG_COMM_TIMEOUT && peer >= 0)
        ignis__string_add(&text, "rank %d did not come to an operation within %.3g s", peer,
                          (double)comm->options.timeout_ns * 1e-9);
    else if (what == IGNIS_DIAG_COMM_TIMEOUT)
        ignis__string_add(&text, "an operation of NCCL did not end within %.3g s",
                          (double)comm->options.timeout_ns * 1e-9);
    else if (what == IGNIS_DIAG_COMM_MISMATCH && peer >= 0)
        ignis__string_add(&text, "rank %d has called another operation", peer);
    else if (peer >= 0)
        ignis__string_add(&text, "rank %d died or abandoned the communicator", peer);
    else
        ignis__string_add(&text, "the communicator was aborted");
    if (what == IGNIS_DIAG_COMM_TIMEOUT)
        ignis__comm_other_write(&text, comm);
    if (diagnostic == IGNIS_DIAG_NONE)
        return ignis__fail(what, call, "%s", sentence);
    return ignis__fail(diagnostic, call, "the communicator is broken: %s", sentence);
}

IGNIS__PRIVATE bool ignis__comm_check_works(const char *call, const ignis__comm *comm)
{
    int peer;
    if (ignis__comm_failure(comm, &peer) == IGNIS_DIAG_NONE)
        return true;
    ignis__comm_fail(call, comm, IGNIS_DIAG_COMM_BROKEN);
    return false;
}
