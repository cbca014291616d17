/*  >>comm.algorithm - choosing how an operation runs: by packets or by flags, blocks, threads, chunks

    Two tables by operation, ranks and bytes; IGNIS_COMM_TUNE overrides them.
    Uses: communicators and tasks.
    Invariants: all ranks choose the same, as the choice follows from facts that they agreed on.
    Locks: none. */

#include "room.h"

IGNIS__PRIVATE const char *const ignis__comm_kinds[IGNIS__COMM_KIND_COUNT] = {
    "nothing",        "all_reduce", "reduce", "broadcast", "all_gather",
    "reduce_scatter", "all_to_all", "send",   "receive",   "barrier"};
IGNIS__PRIVATE const char *const ignis__comm_ops[IGNIS_OP_COUNT] = {"sum", "prod", "min", "max", "avg"};

#define IGNIS__COMM_ANY INT64_MAX

IGNIS__PRIVATE const struct ignis__comm_table_type ignis__comm_table[] = {
    {IGNIS__COMM_ALL_REDUCE, 2, 64 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_ALL_REDUCE, 2, 256 << 10, {IGNIS__COMM_BY_PACKETS, 64, 512, 0}},
    {IGNIS__COMM_ALL_REDUCE, 2, 2 << 20, {IGNIS__COMM_BY_PARTS, 128, 480, 64 << 10}},
    {IGNIS__COMM_ALL_REDUCE, 4, 64 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_ALL_REDUCE, 8, 32 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_ALL_REDUCE, 8, 512 << 10, {IGNIS__COMM_BY_PACKETS_TWO, 64, 256, 0}},
    {IGNIS__COMM_ALL_REDUCE, 8, 2 << 20, {IGNIS__COMM_BY_SLICES, 64, 256, 64 << 10}},
    {IGNIS__COMM_ALL_REDUCE, 8, 64 << 20, {IGNIS__COMM_BY_SLICES, 128, 480, 32 << 10}},
    {IGNIS__COMM_ALL_REDUCE, 8, IGNIS__COMM_ANY, {IGNIS__COMM_BY_SLICES, 128, 480, 64 << 10}},
    {IGNIS__COMM_REDUCE, 4, 64 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_REDUCE, 8, 32 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_REDUCE, 2, IGNIS__COMM_ANY, {IGNIS__COMM_BY_PARTS, 128, 480, 64 << 10}},
    {IGNIS__COMM_REDUCE, 8, 256 << 10, {IGNIS__COMM_BY_PARTS, 128, 480, 64 << 10}},
    {IGNIS__COMM_REDUCE, 8, 64 << 20, {IGNIS__COMM_BY_SLICES, 128, 480, 32 << 10}},
    {IGNIS__COMM_REDUCE, 8, IGNIS__COMM_ANY, {IGNIS__COMM_BY_SLICES, 128, 480, 64 << 10}},
    {IGNIS__COMM_BROADCAST, 4, 64 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_BROADCAST, 8, 32 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_BROADCAST, 2, IGNIS__COMM_ANY, {IGNIS__COMM_BY_PARTS, 128, 480, 64 << 10}},
    {IGNIS__COMM_BROADCAST, 8, 256 << 10, {IGNIS__COMM_BY_PARTS, 128, 480, 64 << 10}},
    {IGNIS__COMM_BROADCAST, 8, 64 << 20, {IGNIS__COMM_BY_SLICES, 128, 480, 32 << 10}},
    {IGNIS__COMM_BROADCAST, 8, IGNIS__COMM_ANY, {IGNIS__COMM_BY_SLICES, 128, 480, 64 << 10}},
    {(ignis__comm_kind)0, 4, 64 << 10, {IGNIS__COMM_BY_PACKETS, 64, 256, 0}},
    {(ignis__comm_kind)0, 8, 32 << 10, {IGNIS__COMM_BY_PACKETS, 64, 256, 0}},
    {(ignis__comm_kind)0, 8, IGNIS__COMM_ANY, {IGNIS__COMM_BY_PARTS, 128, 480, 64 << 10}},
};

IGNIS__PRIVATE const struct ignis__comm_nccl_table_type ignis__comm_nccl_table[] = {
    {IGNIS__COMM_ALL_REDUCE, 2, 0},
    {IGNIS__COMM_ALL_REDUCE, 8, 64 << 20},
    {IGNIS__COMM_BROADCAST, 8, 64 << 20},
    {IGNIS__COMM_ALL_GATHER, 2, 512 << 20},
    {IGNIS__COMM_ALL_GATHER, 8, 64 << 20},
    {IGNIS__COMM_REDUCE_SCATTER, 2, 512 << 20},
    {IGNIS__COMM_REDUCE_SCATTER, 8, 64 << 20},
    {IGNIS__COMM_ALL_TO_ALL, 2, 128 << 20},
    {IGNIS__COMM_ALL_TO_ALL, 8, 64 << 20},
};

/*  Returns the bytes of a slice up to which one phase of packets is used. */
static int64_t ignis__comm_packets_limit(int ranks)
{
    return IGNIS__COMM_PACKETS_SIZE / 2 / (ranks > 4 ? 8 : ranks > 2 ? 4 : 2);
}

/*  Applies IGNIS_COMM_TUNE to a choice of the table. */
static void ignis__comm_tune_method(const ignis__comm_tune *tune, ignis__comm_method *method)
{
    bool packets = method->algorithm == IGNIS__COMM_BY_PACKETS || method->algorithm == IGNIS__COMM_BY_PACKETS_TWO;
    int64_t blocks = packets ? tune->ll_blocks : tune->blocks, threads = packets ? tune->ll_threads : tune->threads;
    if (blocks >= 0)
        method->blocks = (int)ignis__clamp(blocks, 1, IGNIS__COMM_BLOCKS);
    if (threads >= 0)
        method->threads = (int)ignis__clamp(threads / 32 * 32, 32,
                                            (packets ? IGNIS__COMM_PACKET_THREADS : IGNIS__COMM_FLAG_THREADS) - 32);
    if (tune->chunk >= 0)
        method->chunk = (int)ignis__clamp(tune->chunk, 0, IGNIS__COMM_DATA_SIZE);
}

IGNIS__PRIVATE ignis__comm_method ignis__comm_choose(const ignis__comm *comm, const ignis__comm_task *task)
{
    const ignis__comm_tune *tune = &comm->tune;
    int64_t bytes = task->count * ignis__dtypes[task->dtype].size;
    ignis__comm_method method;
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__comm_table) - 1; i++)
        if ((!ignis__comm_table[i].kind || ignis__comm_table[i].kind == task->kind) &&
            comm->size <= ignis__comm_table[i].most_ranks && bytes <= ignis__comm_table[i].most_bytes)
            break;
    method = ignis__comm_table[i].method;
    if (tune->ll_max >= 0 || tune->ll_two_max >= 0 || tune->one_shot_max >= 0) {
        bool fits = bytes <= ignis__comm_packets_limit(comm->size), packets;
        method.algorithm = bytes <= tune->one_shot_max || task->kind > IGNIS__COMM_BROADCAST ? IGNIS__COMM_BY_PARTS
                                                                                             : IGNIS__COMM_BY_SLICES;
        if (fits && bytes <= tune->ll_max)
            method.algorithm = IGNIS__COMM_BY_PACKETS;
        else if (fits && bytes <= tune->ll_two_max && task->kind == IGNIS__COMM_ALL_REDUCE)
            method.algorithm = IGNIS__COMM_BY_PACKETS_TWO;
        packets = method.algorithm <= IGNIS__COMM_BY_PACKETS_TWO;
        method.blocks = packets ? 64 : 128;
        method.threads = packets ? 256 : 480;
        method.chunk = 64 << 10;
    }
    ignis__comm_tune_method(tune, &method);
    return method;
}

IGNIS__PRIVATE ignis__comm_plan ignis__comm_plan_launch(const ignis__comm *comm, const ignis__comm_method *method,
                                                        int64_t bytes, ignis__comm_call *to)
{
    int most = method->blocks < comm->most_blocks ? method->blocks : comm->most_blocks;
    bool two = method->algorithm == IGNIS__COMM_BY_PACKETS_TWO || method->algorithm == IGNIS__COMM_BY_SLICES;
    ignis__comm_plan plan;
    int64_t units, blocks, chunk;
    plan.threads = (unsigned)method->threads + 32;
    if (method->algorithm == IGNIS__COMM_BY_PACKETS || method->algorithm == IGNIS__COMM_BY_PACKETS_TWO) {
        units = ignis__ceil_div(bytes, two ? 8 * comm->size : 8);
        blocks = ignis__clamp(ignis__ceil_div(units, method->threads), 1, most);
        plan.kernel = two ? IGNIS__COMM_KERNEL_PACKETS_TWO : IGNIS__COMM_KERNEL_PACKETS;
        to->chunk = (int)units;
        to->steps = 1;
    } else {
        units = ignis__ceil_div(bytes, two ? 16 * (to->none < comm->size ? comm->size - 1 : comm->size) : 16);
        blocks = ignis__clamp(ignis__ceil_div(units, method->threads), 1, most);
        chunk = (two ? IGNIS__COMM_DATA_SIZE / IGNIS__COMM_TWO_PHASE_SLOTS
                     : (int64_t)2 * IGNIS__COMM_DATA_SIZE / IGNIS__COMM_ONE_PHASE_SLOTS) /
                ((int64_t)blocks * comm->size * 16);
        if (chunk > method->chunk / 16 / comm->size)
            chunk = method->chunk / 16 / comm->size;
        chunk = chunk < 32 ? 32 : chunk < method->threads ? chunk / 32 * 32 : chunk / method->threads * method->threads;
        to->steps = (int)ignis__clamp(ignis__ceil_div(units, blocks * chunk), 1, INT32_MAX);
        to->chunk = (int)ignis__clamp(ignis__ceil_div(ignis__ceil_div(units, blocks * to->steps), 32) * 32, 32, chunk);
        plan.kernel = two ? IGNIS__COMM_KERNEL_SLICES : IGNIS__COMM_KERNEL_PARTS;
    }
    plan.blocks = (unsigned)blocks;
    return plan;
}
