/*  >>comm.launch - launching an operation

    Orders operations of a communicator across streams, and runs one by Ignis' kernels or by NCCL.
    Uses: algorithm.c, kernel.c, NCCL.
    Invariants: operations of a communicator run one after the other; a captured graph never joins NCCL.
    Locks: the caller holds the communicator's slot. */

#include "room.h"

/*  Tells if a stream still exists, as far as Ignis knows. */
IGNIS__PRIVATE bool ignis__comm_stream_exists(ignis__device *device, void *stream)
{
    ignis__user_stream *foreign;
    if (stream == device->stream)
        return true;
    ignis__mutex_lock(&device->lock);
    for (foreign = device->user_streams; foreign && foreign->stream != stream; foreign = foreign->next)
        ;
    ignis__mutex_unlock(&device->lock);
    return foreign != NULL;
}

/*  Makes the stream of an operation wait for the one before of `comm` and of its groups. */
static bool ignis__comm_wait_stream(const ignis__work *work, ignis__comm *comm)
{
    if (comm->stream && comm->stream != work->stream && ignis__comm_stream_exists(work->device, comm->stream) &&
        !ignis__stream_order(work->call, work->device, comm->stream, work->device, work->stream))
        return false;
    comm->stream = work->stream;
    return true;
}

/*  Orders operations of one communicator one after the other, on any streams. */
IGNIS__PRIVATE bool ignis__comm_wait_previous(const ignis__work *work, ignis__comm *comm)
{
    ignis__comm *outer = comm->outer;
    bool ok;
    ignis__capture *capture = ignis__capturing();
    uint64_t *recent = &ignis__comm_last_used[work->device - ignis__devices], before = ignis__atomic_load(recent);
    if (before != comm->slot.handle) {
        ignis__atomic_store(&comm->beside, before);
        ignis__atomic_store(recent, comm->slot.handle);
    }
    ignis__atomic_store(&comm->used_ns, (uint64_t)ignis__monotonic_ns());
    if (capture && capture->device == work->device) /* the device was idle at its beginning */
        return ignis__capture_hold_storage(work->call, capture, comm->storage);
    if (!outer)
        return ignis__comm_wait_stream(work, comm);
    ignis__mutex_lock(&outer->slot.lock);
    ok = ignis__comm_wait_stream(work, outer);
    ignis__mutex_unlock(&outer->slot.lock);
    return ok;
}

static bool ignis__comm_launch(const ignis__work *work, ignis__comm *comm, ignis__comm_program *program,
                               const ignis__comm_plan *plan, ignis__comm_call *to)
{
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
    void *params[1];
    params[0] = to;
    grid[0] = plan->blocks;
    block[0] = plan->threads;
    memcpy(to->region, comm->memory->regions->address, sizeof to->region);
    to->state = comm->memory->state->address;
    to->timeout_ns = comm->options.timeout_ns;
    to->rank = comm->rank;
    to->in_aligned = (to->in | (ignis__address)to->in_stride) % 16 == 0;
    to->out_aligned = (to->out | (ignis__address)to->out_stride) % 16 == 0;
    return ignis__launch_as(work, program->function[plan->kernel], grid, block, 0, params,
                            program->waits && plan->kernel <= IGNIS__COMM_KERNEL_PACKETS_TWO, false);
}

/*  Tells if NCCL does an operation faster, if it is joined. */
static bool ignis__comm_nccl_is_faster(const ignis__comm *comm, const ignis__comm_task *task)
{
    const ignis__comm_tune *tune = &comm->tune;
    int64_t bytes = task->count * ignis__dtypes[task->dtype].size, least = tune->nccl_min;
    int i;
    if (task->kind == IGNIS__COMM_BARRIER)
        return false;
    if (task->kind >= IGNIS__COMM_ALL_GATHER)
        bytes *= comm->size;
    if (least < 0 && (tune->ll_max >= 0 || tune->ll_two_max >= 0 || tune->one_shot_max >= 0))
        return false;
    for (i = 0; least < 0 && i < IGNIS__COUNT(ignis__comm_nccl_table); i++)
        if (ignis__comm_nccl_table[i].kind == task->kind && comm->size <= ignis__comm_nccl_table[i].most_ranks)
            least = ignis__comm_nccl_table[i].least_bytes;
    return least > 0 && bytes >= least;
}

/*  Marks the beginning and the end of an operation of NCCL for the host. */
static bool ignis__comm_mark(const ignis__work *work, ignis__comm *comm, bool begins)
{
    ignis__comm_program *program = ignis__comm_program_for(work->call, comm, -1, -1);
    ignis__comm_plan plan = {IGNIS__COMM_KERNEL_MARK, 1, 32};
    ignis__comm_call to;
    memset(&to, 0, sizeof to);
    to.steps = begins;
    return program && ignis__comm_launch(work, comm, program, &plan, &to);
}

/*  Runs one or two operations by NCCL. */
static bool ignis__comm_call_nccl(const ignis__work *work, ignis__comm *comm, const ignis__comm_task *tasks, int count)
{
    ignis__trace_item item;
    bool traced, ok, aborted;
    if (!ignis__comm_mark(work, comm, true))
        return false;
    traced = ignis__profiling() &&
             ignis__trace_open(&item, IGNIS__TRACED_COLLECTIVE, work->call, work->device, work->stream, NULL, "NCCL");
    ok = ignis__nccl_run(work->call, comm->memory->nccl, tasks, count, comm->size, work->stream, &aborted);
    if (traced)
        (void)ignis__trace_close(&item, ok);
    if (ok)
        return ignis__comm_mark(work, comm, false);
    if (aborted) /* since the checks of this call */
        ignis__comm_fail(work->call, comm, IGNIS_DIAG_COMM_BROKEN);
    /* NCCL breaks for good if it refuses a call, while the other ranks wait */
    ignis__comm_break_all(comm, IGNIS__COMM_PEER, comm->rank);
    return false;
}

/*  Runs one operation by NCCL. If there are built-in kernels, all ranks meet by them first: they notice ranks
    that do not come or call another operation. */
static bool ignis__comm_run_nccl(const ignis__work *work, ignis__comm *comm, const ignis__comm_task *task)
{
    ignis__comm_task sum = *task;
    if (ignis__comm_has_region(comm)) {
        ignis__comm_program *program = ignis__comm_program_for(work->call, comm, -1, -1);
        ignis__comm_plan plan = {IGNIS__COMM_KERNEL_PACKETS, 1, 64};
        ignis__comm_call to;
        memset(&to, 0, sizeof to);
        to.fingerprint = ignis__comm_fingerprint(task, true);
        if (!program || !ignis__comm_launch(work, comm, program, &plan, &to))
            return false;
    }
    if (task->kind == IGNIS__COMM_BARRIER) { /* a sum of one byte */
        sum.kind = IGNIS__COMM_ALL_REDUCE;
        sum.in = sum.out = comm->memory->state->address + offsetof(ignis__comm_state, byte);
        sum.count = 1;
    }
    return ignis__comm_call_nccl(work, comm, &sum, 1);
}

/*  Runs an operation by Ignis' kernels: which ranks each rank pushes to and takes from. */
IGNIS__PRIVATE bool ignis__comm_run(const ignis__work *work, ignis__comm *comm, const ignis__comm_task *task)
{
    const bool is_root = comm->rank == task->root;
    const bool combines = task->kind == IGNIS__COMM_ALL_REDUCE || task->kind == IGNIS__COMM_REDUCE ||
                          task->kind == IGNIS__COMM_REDUCE_SCATTER;
    ignis__comm_method way;
    int64_t part = task->count * ignis__dtypes[task->dtype].size;
    uint32_t me, root, others;
    ignis__comm_program *program;
    ignis__comm_plan plan;
    ignis__comm_call to;
    if (comm->job && comm->options.transport == IGNIS_COMM_TRANSPORT_DEFAULT &&
        ignis__comm_nccl_is_faster(comm, task)) { /* joining waits, which a capture cannot do on any rank */
        if (comm->nccl_state == IGNIS__COMM_NCCL_UNTRIED && !ignis__capturing() &&
            !ignis__comm_join_late(work->call, comm))
            return false;
        if (comm->nccl_state == IGNIS__COMM_NCCL_JOINED)
            return ignis__comm_run_nccl(work, comm, task);
    }
    if (!ignis__comm_has_region(comm))
        return ignis__comm_run_nccl(work, comm, task);
    way = ignis__comm_choose(comm, task);
    program =
        ignis__comm_program_for(work->call, comm, combines ? (int)task->dtype : -1, combines ? (int)task->op : -1);
    if (!program)
        return false;
    me = 1u << comm->rank; /* NCCL may have more ranks than bits */
    root = 1u << task->root;
    others = ((1u << comm->size) - 1) & ~me;
    memset(&to, 0, sizeof to);
    to.in = task->in;
    to.out = task->out;
    to.count = combines ? task->count : part;
    to.push = to.take = to.push_two = to.take_two = others;
    to.keep = 1;
    to.root = task->root;
    to.none = task->kind == IGNIS__COMM_REDUCE || task->kind == IGNIS__COMM_BROADCAST ? task->root : comm->size;
    switch (task->kind) {
    case IGNIS__COMM_ALL_GATHER: to.out_stride = part; break;
    case IGNIS__COMM_ALL_TO_ALL: to.out_stride = to.in_stride = part; break;
    case IGNIS__COMM_REDUCE_SCATTER: to.in_stride = part; break;
    case IGNIS__COMM_REDUCE:
        to.keep = is_root;
        to.push_two = root & ~me;
        to.take_two = to.take = is_root ? others : 0;
        if (way.algorithm != IGNIS__COMM_BY_SLICES)
            to.push = root & ~me;
        break;
    case IGNIS__COMM_BROADCAST:
        to.keep = way.algorithm == IGNIS__COMM_BY_SLICES && !is_root;
        to.push = is_root ? others : 0;
        to.take = root & ~me;
        to.push_two = others & ~root;
        to.take_two = is_root ? 0 : others;
        break;
    case IGNIS__COMM_BARRIER: to.push = to.take = 0; break;
    default: break;
    }
    plan = ignis__comm_plan_launch(comm, &way, part, &to);
    to.fingerprint = ignis__comm_fingerprint(task, false);
    return ignis__comm_launch(work, comm, program, &plan, &to);
}

/*  Runs a send, a receive or both, the send first. */
IGNIS__PRIVATE bool ignis__comm_run_pair(const ignis__work *work, ignis__comm *comm, const ignis__comm_task *tasks,
                                         int count)
{
    ignis__comm_program *program;
    ignis__comm_plan plan;
    ignis__comm_call to;
    int64_t most = comm->most_blocks / 2 < comm->tune.lanes ? comm->most_blocks / 2 : comm->tune.lanes;
    int i;
    if (!ignis__comm_has_region(comm))
        return ignis__comm_call_nccl(work, comm, tasks, count);
    program = ignis__comm_program_for(work->call, comm, -1, -1);
    if (!program)
        return false;
    memset(&to, 0, sizeof to);
    plan.kernel = IGNIS__COMM_KERNEL_PAIR;
    plan.blocks = 0;
    plan.threads = IGNIS__COMM_FLAG_THREADS;
    if (comm->tune.threads >= 0)
        plan.threads = (unsigned)ignis__clamp(comm->tune.threads / 32 * 32, 32, IGNIS__COMM_FLAG_THREADS);
    for (i = 0; i < count; i++) {
        ignis__comm_task same = tasks[i]; /* equal on both sides */
        int64_t bytes = same.count * ignis__dtypes[same.dtype].size;
        int lanes = (int)ignis__clamp(ignis__ceil_div(bytes, IGNIS__COMM_PAIR_SLOT), 1, most < 1 ? 1 : most);
        same.kind = IGNIS__COMM_SEND;
        same.root = 0;
        plan.blocks += (unsigned)lanes;
        if (tasks[i].kind == IGNIS__COMM_SEND) {
            to.push = 1u << tasks[i].root;
            to.in = tasks[i].in;
            to.in_stride = bytes;
            to.chunk = lanes;
            to.fingerprint = ignis__comm_fingerprint(&same, false);
        } else {
            to.take = 1u << tasks[i].root;
            to.out = tasks[i].out;
            to.out_stride = bytes;
            to.steps = lanes;
            to.fingerprint_in = ignis__comm_fingerprint(&same, false);
        }
    }
    return ignis__comm_launch(work, comm, program, &plan, &to);
}
