/*  >>comm.operation - operations: checking arrays, public functions

    Borrows the arrays of a call, checks shapes, dtypes and overlap, and launches.
    Uses: launch.c, contracts of arrays.
    Invariants: arrays belong to IGNIS_OWNER_NVCCL while a call queues its work.
    Locks: the communicator's slot during a call. */

#include "room.h"

/*  Holds an array and borrows it for a call; the address of a local variable is the borrower. False, and
    reported, if that fails; ignis__comm_return undoes it in any case. */
static bool ignis__comm_borrow(const char *call, const ignis__comm *comm, ignis_array handle, const void *borrower,
                               ignis__array **held)
{
    ignis__array *array = *held = ignis__array_hold(call, handle);
    if (!array || ignis__array_refuses_address(call, array) ||
        !ignis__contract_borrow(call, array, IGNIS_OWNER_NVCCL, borrower))
        return false;
    if (array->storage->device == comm->device)
        return true;
    return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call,
                             "%s is on device %d; rank %d of the communicator is on device %d",
                             ignis__array_label(array).text, ignis__device_ordinal(array->storage->device), comm->rank,
                             ignis__device_ordinal(comm->device));
}

static void ignis__comm_return(const char *call, const void *borrower, ignis__array *held)
{
    if (!held)
        return;
    ignis__contract_return(held, borrower);
    ignis__array_drop(call, held);
}

/*  Checks the memory of input and output: the same, or one at its slice of the other, or without overlap. */
static bool ignis__comm_check_overlap(const char *call, const ignis__comm *comm, ignis__comm_kind kind,
                                      ignis__address in, int64_t in_bytes, ignis__address out, int64_t out_bytes)
{
    int64_t part = in_bytes < out_bytes ? in_bytes : out_bytes;
    if (in_bytes == 0 || out_bytes == 0 || in + (ignis__address)in_bytes <= out ||
        out + (ignis__address)out_bytes <= in)
        return true;
    if (in_bytes == out_bytes && in == out && kind != IGNIS__COMM_SEND)
        return true;
    if (kind == IGNIS__COMM_ALL_GATHER && in == out + (ignis__address)(part * comm->rank))
        return true;
    if (kind == IGNIS__COMM_REDUCE_SCATTER && out == in + (ignis__address)(part * comm->rank))
        return true;
    return ignis__fail_false(IGNIS_DIAG_COMM_OVERLAP, call,
                             "input 0x%llx (%lld bytes) and output 0x%llx (%lld bytes) overlap", in,
                             (long long)in_bytes, out, (long long)out_bytes);
}

static bool ignis__comm_rank_check(const char *call, const ignis__comm *comm, const char *name, int rank, bool not_self)
{
    if (rank >= 0 && rank < comm->size && !(not_self && rank == comm->rank))
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "%s is %d; expected another of the %d ranks, from 0%s", name,
                             rank, comm->size, not_self ? ", than this one" : "");
}

static bool ignis__comm_op_check(const char *call, ignis_op op, ignis_dtype dtype)
{
    if ((unsigned)op >= IGNIS_OP_COUNT)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "op is %d; expected IGNIS_OP_SUM to _AVG, 0 to %d", (int)op,
                                 IGNIS_OP_COUNT - 1);
    if (op == IGNIS_OP_AVG && ignis__dtype_is_int(dtype))
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "IGNIS_OP_AVG needs floating types, the arrays are %s; sum and divide them",
                                 ignis__dtypes[dtype].name);
    return true;
}

/*  Checks that in and out have the sizes of the operation; task->count becomes the elements of a slice. */
static bool ignis__comm_check_shapes(const char *call, const ignis__comm *comm, const ignis__array *in,
                                     const ignis__array *out, ignis__comm_task *task)
{
    const int64_t size = comm->size;
    const ignis__array *whole = in ? in : out;
    int64_t wanted = whole->numel;
    task->dtype = whole->dtype;
    task->count = whole->numel;
    if (in && out && in->dtype != out->dtype)
        return ignis__fail_false(IGNIS_DIAG_DTYPE_DIFFERS, call, "in is %s; out is %s", ignis__dtypes[in->dtype].name,
                                 ignis__dtypes[out->dtype].name);
    if (task->kind == IGNIS__COMM_ALL_GATHER)
        wanted = in->numel * size;
    if (task->kind == IGNIS__COMM_REDUCE_SCATTER || task->kind == IGNIS__COMM_ALL_TO_ALL) {
        if (in->numel % size != 0)
            return ignis__fail_false(IGNIS_DIAG_COUNT_MISMATCH, call,
                                     "in has %lld elements; expected a multiple of the %d ranks", (long long)in->numel,
                                     comm->size);
        task->count = in->numel / size;
        if (task->kind == IGNIS__COMM_REDUCE_SCATTER)
            wanted = task->count;
    }
    if (in && out && out->numel != wanted)
        return ignis__fail_false(IGNIS_DIAG_SHAPE_DIFFERS, call,
                                 "in has %lld elements, so out needs %lld on %d ranks; it has %lld",
                                 (long long)in->numel, (long long)wanted, comm->size, (long long)out->numel);
    return true;
}

/*  Copies: with one rank every operation is a copy. */
static bool ignis__comm_run_single_rank(const ignis__work *work, const ignis__comm_task *task)
{
    return ignis__copy_on_device(work, task->out, task->in,
                                 task->in && task->out ? task->count * ignis__dtypes[task->dtype].size : 0);
}

/*  Checks that the arrays fit an operation, and takes counts and types from them. */
static bool ignis__comm_check_arrays(const char *call, const ignis__comm *comm, const ignis__array *in,
                                     const ignis__array *out, ignis__comm_task *task, ignis__comm_task *receive)
{
    if (task->kind != IGNIS__COMM_SEND)
        return (!in && !out) || (ignis__comm_check_shapes(call, comm, in, out, task) &&
                                 ignis__comm_op_check(call, task->op, task->dtype));
    return (!in || ignis__comm_check_shapes(call, comm, in, task->root == comm->rank ? out : NULL, task)) &&
           (!out || ignis__comm_check_shapes(call, comm, NULL, out, receive));
}

/*  Runs one operation, from the handles on. in or out may be NULL where the operation has none on this rank.
    The root of a message is the rank that receives it. */
static ignis_status ignis__comm_operate(const char *call, ignis_comm handle, ignis__comm_kind kind,
                                        const ignis_array *in, const ignis_array *out, ignis_op op, int root,
                                        int source)
{
    const bool message = kind == IGNIS__COMM_SEND;
    ignis__comm *comm = ignis__comm_hold(call, handle);
    ignis__array *from = NULL, *to = NULL;
    ignis__comm_task task[2]; /* the operation or the send; the receive */
    ignis__work work;
    bool ok, self;
    if (!comm)
        return ignis__failed();
    self = message && in && out && root == comm->rank && source == comm->rank;
    memset(task, 0, sizeof task);
    task[0].kind = kind;
    task[0].op = op;
    task[0].root = root;
    task[1].kind = IGNIS__COMM_RECV;
    task[1].root = source;
    task[0].dtype = task[1].dtype = IGNIS_U8;
    ignis__mutex_lock(&comm->slot.lock);
    ok = ignis__comm_check_works(call, comm) &&
         ((message && !in) || ignis__comm_rank_check(call, comm, message ? "dest" : "root", root, message && !self)) &&
         (!message || !out || ignis__comm_rank_check(call, comm, "source", source, !self));
    if ((kind == IGNIS__COMM_REDUCE && comm->rank != root) || (kind == IGNIS__COMM_BROADCAST && comm->rank == root))
        out = NULL;
    else if (kind == IGNIS__COMM_BROADCAST)
        in = NULL;
    ok = ok && (!in || ignis__comm_borrow(call, comm, *in, &work, &from)) &&
         (!out || ignis__comm_borrow(call, comm, *out, &work, &to)) &&
         ignis__comm_check_arrays(call, comm, from, to, &task[0], &task[1]);
    if (ok && ignis__work_begin(call, comm->device, &work)) {
        ok = (!in || ignis__work_read(&work, from, &task[0].in)) &&
             (!out || ignis__work_address(&work, to, &task[0].out)) &&
             (!in || !out ||
              ignis__comm_check_overlap(call, comm, kind, task[0].in, ignis__array_bytes(from), task[0].out,
                                        ignis__array_bytes(to))) &&
             ignis__comm_wait_previous(&work, comm);
        if (ok && out)
            ignis__array_written(to);
        task[1].out = task[0].out;
        if (kind == IGNIS__COMM_BROADCAST)
            task[0].in = task[0].out = in ? task[0].in : task[0].out;
        if (ok && (comm->size == 1 || self))
            ok = ignis__comm_run_single_rank(&work, &task[0]);
        else if (ok && !ignis__global.dry_run)
            ok = message ? ignis__comm_run_pair(&work, comm, in ? task : task + 1, in && out ? 2 : 1)
                         : ignis__comm_run(&work, comm, task);
        ignis__work_end(&work);
    } else {
        ok = false;
    }
    ignis__mutex_unlock(&comm->slot.lock);
    ignis__comm_return(call, &work, to);
    ignis__comm_return(call, &work, from);
    ignis__comm_drop(call, comm);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_comm_all_reduce(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op)
{
    return ignis__comm_operate("ignis_comm_all_reduce", comm, IGNIS__COMM_ALL_REDUCE, &in, &out, op, 0, 0);
}

IGNIS_API ignis_status ignis_comm_reduce(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op, int root)
{
    return ignis__comm_operate("ignis_comm_reduce", comm, IGNIS__COMM_REDUCE, &in, &out, op, root, 0);
}

IGNIS_API ignis_status ignis_comm_broadcast(ignis_comm comm, ignis_array array, int root)
{
    return ignis__comm_operate("ignis_comm_broadcast", comm, IGNIS__COMM_BROADCAST, &array, &array, IGNIS_OP_SUM, root,
                               0);
}

IGNIS_API ignis_status ignis_comm_all_gather(ignis_comm comm, ignis_array in, ignis_array out)
{
    return ignis__comm_operate("ignis_comm_all_gather", comm, IGNIS__COMM_ALL_GATHER, &in, &out, IGNIS_OP_SUM, 0, 0);
}

IGNIS_API ignis_status ignis_comm_reduce_scatter(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op)
{
    return ignis__comm_operate("ignis_comm_reduce_scatter", comm, IGNIS__COMM_REDUCE_SCATTER, &in, &out, op, 0, 0);
}

IGNIS_API ignis_status ignis_comm_all_to_all(ignis_comm comm, ignis_array in, ignis_array out)
{
    return ignis__comm_operate("ignis_comm_all_to_all", comm, IGNIS__COMM_ALL_TO_ALL, &in, &out, IGNIS_OP_SUM, 0, 0);
}

IGNIS_API ignis_status ignis_comm_barrier(ignis_comm comm)
{
    return ignis__comm_operate("ignis_comm_barrier", comm, IGNIS__COMM_BARRIER, NULL, NULL, IGNIS_OP_SUM, 0, 0);
}

IGNIS_API ignis_status ignis_comm_send(ignis_comm comm, ignis_array array, int dest)
{
    return ignis__comm_operate("ignis_comm_send", comm, IGNIS__COMM_SEND, &array, NULL, IGNIS_OP_SUM, dest, 0);
}

IGNIS_API ignis_status ignis_comm_recv(ignis_comm comm, ignis_array array, int source)
{
    return ignis__comm_operate("ignis_comm_recv", comm, IGNIS__COMM_SEND, NULL, &array, IGNIS_OP_SUM, 0, source);
}

IGNIS_API ignis_status ignis_comm_send_recv(ignis_comm comm, ignis_array in, int dest, ignis_array out, int source)
{
    return ignis__comm_operate("ignis_comm_send_recv", comm, IGNIS__COMM_SEND, &in, &out, IGNIS_OP_SUM, dest, source);
}

/*  Returns the status of a communicator for a call that only asks for it, and drops it. */
IGNIS__PRIVATE ignis_status ignis__comm_end_call(const char *call, ignis__comm *comm, bool ok)
{
    int peer;
    ignis_status status = IGNIS_OK;
    ignis__comm_groups_settle(comm);
    if (!ok)
        status = ignis__failed();
    else if (ignis__comm_failure(comm, &peer) != IGNIS_DIAG_NONE)
        status = ignis__comm_fail(call, comm, IGNIS_DIAG_NONE);
    ignis__comm_drop(call, comm);
    return status;
}

IGNIS_API ignis_status ignis_comm_status(ignis_comm handle)
{
    static const char call[] = "ignis_comm_status";
    ignis__comm *comm = ignis__comm_hold(call, handle);
    return comm ? ignis__comm_end_call(call, comm, true) : ignis__failed();
}
