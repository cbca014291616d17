// SPDX-License-Identifier: MIT
/*  test_comm_ops.c - collective operations between devices of one process

    Most inputs are small whole numbers, so that results are exact whatever the order; others are arbitrary bits, and
    compared as bits. */
#include "fault.h"

#include "comm_ranks.h"

#include <unistd.h>

/* --- numbers ---------------------------------------------------------------------------------------------------------
   */

/*  Each operation and element type is a program of its own, which takes a second to compile: without IGNIS_SOAK=1 the
    types that are summed in the same way are tried with a few operations only, and all are compiled at once. */
static bool is_tried(int op, int dtype)
{
    if (op == IGNIS_OP_AVG && dtype >= IGNIS_I32)
        return false;
    return op == IGNIS_OP_SUM || dtype == IGNIS_F32 || (op == IGNIS_OP_AVG && dtype == IGNIS_BF16) ||
           (op == IGNIS_OP_PROD && dtype == IGNIS_U8) || (op == IGNIS_OP_MIN && dtype == IGNIS_F16) ||
           (op == IGNIS_OP_MAX && dtype == IGNIS_I64) || test_env("IGNIS_SOAK");
}

static int next_program;
static void *compile_programs(void *context)
{
    ignis__device *device = ignis__device_get("test", 0);
    ignis__comm_program program;
    ignis__binding binding;
    int index;
    (void)context;
    CHECK(ignis__device_enter("test", device, &binding));
    while ((index = __sync_fetch_and_add(&next_program, 1)) < IGNIS_OP_COUNT * IGNIS_DTYPE_COUNT) {
        memset(&program, 0, sizeof program);
        program.ranks = 3;
        program.op = index / IGNIS_DTYPE_COUNT;
        program.dtype = index % IGNIS_DTYPE_COUNT;
        if (program.dtype >= IGNIS_F16 && is_tried(program.op, program.dtype) &&
            ignis__comm_program_load("test", device, &program))
            ignis__module_unload(&program.module); /* it is in the cache now */
    }
    ignis__device_leave(&binding);
    return NULL;
}

TEST(all_reduce_every_type_operation_and_algorithm)
{
    pthread_t threads[16];
    int way, op, dtype, i;
    RANKS_SETUP(3);
    next_program = 0;
    for (i = 0; i < 16 && i < sysconf(_SC_NPROCESSORS_ONLN); i++)
        CHECK_INT(pthread_create(&threads[i], NULL, compile_programs, NULL), 0);
    while (i-- > 0)
        pthread_join(threads[i], NULL);
    for (way = 0; way < WAYS; way++) {
        REQUIRE(begin(3, ways[way]));
        for (op = IGNIS_OP_SUM; op < IGNIS_OP_COUNT; op++)
            for (dtype = IGNIS_F16; dtype < IGNIS_DTYPE_COUNT; dtype++)
                if (is_tried(op, dtype))
                    CHECK(all_reduce_is_right((ignis_dtype)dtype, (ignis_op)op, 1237, 0, 0, ways[way]));
        end();
    }
}

TEST(all_reduce_sizes_and_ranks)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 15, 16, 17, 1023, 4095, 4096, 4097, 30011};
    int way, ranks, i;
    RANKS_SETUP(2);
    for (ranks = 2; ranks <= RANKS && ranks <= ignis_device_count(); ranks++)
        for (way = 0; way < WAYS; way++) {
            REQUIRE(begin(ranks, ways[way]));
            for (i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
                CHECK(all_reduce_is_right(IGNIS_BF16, IGNIS_OP_SUM, sizes[i], 0, 0, ways[way]));
            end();
        }
}

/*  Where the table changes from one algorithm to the next. */
TEST(all_reduce_at_the_crossovers)
{
    int ranks, i, step;
    RANKS_SETUP(2);
    for (ranks = 2; ranks <= RANKS && ranks <= ignis_device_count(); ranks += 2) {
        REQUIRE(begin(ranks, ""));
        for (i = 0; ignis__comm_table[i].kind; i++)
            if (ignis__comm_table[i].kind == IGNIS__COMM_ALL_REDUCE && ignis__comm_table[i].most_ranks >= ranks &&
                ignis__comm_table[i].most_bytes <= (test_is_simulator() ? 64 << 10 : 1 << 30))
                for (step = -1; step <= 1; step++)
                    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, ignis__comm_table[i].most_bytes / 4 + step, 0, 0,
                                              "table"));
        end();
    }
}

TEST(any_alignment)
{
    int way;
    RANKS_SETUP(2);
    for (way = 0; way < WAYS; way++) {
        REQUIRE(begin(2, ways[way]));
        CHECK(all_reduce_is_right(IGNIS_BF16, IGNIS_OP_SUM, 1001, 1, 0, ways[way]));
        CHECK(all_reduce_is_right(IGNIS_BF16, IGNIS_OP_SUM, 1001, 0, 3, ways[way]));
        CHECK(all_reduce_is_right(IGNIS_U8, IGNIS_OP_MAX, 1001, 5, 2, ways[way]));
        CHECK(all_reduce_is_right(IGNIS_F64, IGNIS_OP_SUM, 333, 1, 1, ways[way]));
        end();
    }
}

/*  Everything but all_reduce, once. */
static void others_are_right(ignis_dtype dtype, int64_t part, int offset, const char *what)
{
    const ignis_op op = IGNIS_OP_SUM;
    arrays few = make_all(dtype, part, offset), many = make_all(dtype, part * size, offset),
           more = make_all(dtype, part * size, offset);
    int r;
    part_of = part;
    for (r = 0; r < size; r++) {
        fill(few.at[r], op, dtype, r, part);
        CHECK_OK(ignis_comm_all_gather(comms[r], few.at[r], many.at[r]));
    }
    settle();
    holds(&many, op, dtype, part * size, expect_gathered, what);
    for (r = 0; r < size; r++)
        fill(many.at[r], op, dtype, r, part * size);
    for (r = 0; r < size; r++)
        CHECK_OK(ignis_comm_reduce_scatter(comms[r], many.at[r], few.at[r], op));
    settle();
    holds(&few, op, dtype, part, expect_part, what);
    for (r = 0; r < size; r++)
        CHECK_OK(ignis_comm_all_to_all(comms[r], many.at[r], more.at[r]));
    settle();
    holds(&more, op, dtype, part * size, expect_exchanged, what);
    for (r = 0; r < size; r++) /* in place */
        CHECK_OK(ignis_comm_all_to_all(comms[r], many.at[r], many.at[r]));
    settle();
    holds(&many, op, dtype, part * size, expect_exchanged, what);
    for (root_is = 0; root_is < size; root_is++) {
        for (r = 0; r < size; r++) {
            fill(many.at[r], op, dtype, r, part * size);
            CHECK_OK(ignis_array_zero(more.at[r]));
        }
        for (r = 0; r < size; r++)
            CHECK_OK(ignis_comm_reduce(comms[r], many.at[r], more.at[r], op, root_is));
        for (r = 0; r < size; r++)
            CHECK_OK(ignis_comm_broadcast(comms[r], many.at[r], root_is));
        settle();
        holds(&more, op, dtype, part * size, expect_reduced, what);
        holds(&many, op, dtype, part * size, expect_root, what);
    }
    for (r = 0; r < size; r++)
        fill(many.at[r], op, dtype, r, part * size);
    for (r = 0; r < size; r++)
        CHECK_OK(ignis_comm_send_recv(comms[r], many.at[r], (r + 1) % size, more.at[r], (r + size - 1) % size));
    settle();
    holds(&more, op, dtype, part * size, expect_previous, what);
    free_all(&few);
    free_all(&many);
    free_all(&more);
}

TEST(other_operations_with_every_algorithm)
{
    int way, ranks;
    RANKS_SETUP(2);
    for (ranks = 2; ranks <= RANKS && ranks <= ignis_device_count(); ranks++)
        for (way = 0; way < WAYS; way++) {
            REQUIRE(begin(ranks, ways[way]));
            others_are_right(IGNIS_F32, 1001, 0, ways[way]);
            others_are_right(IGNIS_BF16, 15, 0, ways[way]);
            others_are_right(IGNIS_F32, 0, 0, ways[way]);
            if (ranks == 3)
                others_are_right(IGNIS_BF16, 333, 1, ways[way]);
            end();
        }
}

TEST(parts_of_one_array_where_the_operation_puts_them)
{
    int way, r;
    RANKS_SETUP(2);
    for (way = 0; way < WAYS; way++) {
        arrays whole;
        ignis_array part[2];
        REQUIRE(begin(2, ways[way]));
        part_of = 500;
        whole = make_all(IGNIS_F32, 1000, 0);
        for (r = 0; r < 2; r++) {
            part[r] = ignis_array_slice(whole.at[r], 0, r * 500, 500);
            fill(part[r], IGNIS_OP_SUM, IGNIS_F32, r, 500);
        }
        for (r = 0; r < 2; r++)
            CHECK_OK(ignis_comm_all_gather(comms[r], part[r], whole.at[r]));
        settle();
        holds(&whole, IGNIS_OP_SUM, IGNIS_F32, 1000, expect_gathered, "all_gather in place");
        for (r = 0; r < 2; r++)
            fill(whole.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
        for (r = 0; r < 2; r++)
            CHECK_OK(ignis_comm_reduce_scatter(comms[r], whole.at[r], part[r], IGNIS_OP_SUM));
        settle();
        {
            arrays parts;
            memcpy(parts.at, part, sizeof part);
            holds(&parts, IGNIS_OP_SUM, IGNIS_F32, 500, expect_part, "reduce_scatter in place");
        }
        for (r = 0; r < 2; r++)
            CHECK_OK(ignis_array_free(part[r]));
        free_all(&whole);
        end();
    }
}

TEST(send_and_receive)
{
    static const int64_t sizes[] = {0, 1, 17, 4096, 3 << 20};
    arrays a;
    int i;
    RANKS_SETUP(2);
    REQUIRE(begin(2, SMALL));
    for (i = 0; i < 5; i++) {
        a = make_all(IGNIS_U8, sizes[i], i & 1);
        fill(a.at[0], IGNIS_OP_SUM, IGNIS_U8, 0, sizes[i]);
        CHECK_OK(ignis_comm_send(comms[0], a.at[0], 1));
        CHECK_OK(ignis_comm_recv(comms[1], a.at[1], 0));
        settle();
        root_is = 0;
        holds(&a, IGNIS_OP_SUM, IGNIS_U8, sizes[i], expect_root, "send");
        free_all(&a);
    }
    a = make_all(IGNIS_F32, 100, 0);
    {
        ignis_array copy = make_on(0, IGNIS_F32, 100);
        fill(a.at[0], IGNIS_OP_SUM, IGNIS_F32, 0, 100);
        CHECK_OK(ignis_comm_send_recv(comms[0], a.at[0], 0, copy, 0)); /* to itself */
        CHECK_OK(ignis_array_free(copy));
    }
    CHECK_STATUS(ignis_comm_send(comms[0], a.at[0], 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_recv(comms[0], a.at[0], 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_send_recv(comms[0], a.at[0], 1, a.at[0], 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COMM_OVERLAP);
    free_all(&a);
    end();
}

TEST(a_receive_of_another_size_is_a_mismatch)
{
    arrays a;
    RANKS_SETUP(2);
    REQUIRE(begin_for(2, SMALL, 5));
    a = make_all(IGNIS_F32, 100, 0);
    {
        ignis_array shorter = ignis_array_slice(a.at[1], 0, 0, 99);
        CHECK_OK(ignis_comm_send(comms[0], a.at[0], 1));
        CHECK_OK(ignis_comm_recv(comms[1], shorter, 0));
        CHECK_STATUS(ignis_comm_synchronize(comms[1]), IGNIS_ERROR_MISMATCH, IGNIS_DIAG_COMM_MISMATCH);
        CHECK_OK(ignis_array_free(shorter));
    }
    CHECK_OK(ignis_comm_send(comms[0], a.at[0], 1)); /* finds its region poisoned */
    CHECK_STATUS(ignis_comm_synchronize(comms[0]), IGNIS_ERROR_MISMATCH, IGNIS_DIAG_COMM_MISMATCH);
    free_all(&a);
    end();
}

/* --- bits ------------------------------------------------------------------------------------------------------------
   */

static uint64_t random_state = 12345;
static uint32_t random_word(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

/*  The bits of NaN that the processor's own additions make depend on the order of the operands, which compilers choose;
    on GPUs there is one NaN. */
static void unify_nan(char *data, ignis_dtype dtype, int64_t bytes)
{
    int64_t i;
    for (i = 0; i < bytes / 4 && dtype == IGNIS_F32 && test_is_simulator(); i++) {
        uint32_t word;
        memcpy(&word, data + i * 4, 4);
        if ((word & 0x7FFFFFFF) > 0x7F800000)
            memset(data + i * 4, 0xFF, 4);
    }
}

/*  Arbitrary bits, with many NaN, infinities, zeros of both signs and subnormals among them. */
static void fill_bits(ignis_array array, int64_t bytes)
{
    static const uint32_t special[] = {0x80000000, 0, 0x7f800000, 0xff800000, 0x7fc00001,
                                       0x7f800001, 1, 0x80000001, 0x00007f80, 0xff807f80};
    uint32_t *data = (uint32_t *)malloc((size_t)bytes + 4);
    int64_t i;
    for (i = 0; i < bytes / 4; i++)
        data[i] = random_word() % 3 ? random_word() : special[random_word() % 10];
    CHECK_OK(ignis_array_from_host_raw(array, data, bytes));
    free(data);
}

TEST(all_ranks_and_algorithms_give_the_same_bits)
{
    enum { COUNT = 3000 };
    static const ignis_dtype dtypes[] = {IGNIS_BF16, IGNIS_F32};
    static const ignis_op ops[] = {IGNIS_OP_SUM, IGNIS_OP_MIN, IGNIS_OP_MAX};
    static char first[2][3][COUNT * 4], other[COUNT * 4];
    int way, r, d, o;
    RANKS_SETUP(3);
    for (way = 0; way < WAYS; way++) {
        REQUIRE(begin(3, ways[way]));
        for (d = 0; d < 2; d++)
            for (o = 0; o < 3; o++) {
                const int64_t bytes = COUNT * ignis__dtypes[dtypes[d]].size;
                arrays in = make_all(dtypes[d], COUNT, 0), out = make_all(dtypes[d], COUNT, 0);
                random_state = 99;
                for (r = 0; r < size; r++)
                    fill_bits(in.at[r], bytes);
                for (r = 0; r < size; r++)
                    CHECK_OK(ignis_comm_all_reduce(comms[r], in.at[r], out.at[r], ops[o]));
                settle();
                for (r = 0; r < size; r++) {
                    char *const mine = r == 0 && way == 0 ? first[d][o] : other;
                    CHECK_OK(ignis_array_to_host_raw(out.at[r], mine, bytes));
                    unify_nan(mine, dtypes[d], bytes);
                    CHECK(memcmp(first[d][o], mine, (size_t)bytes) == 0);
                }
                free_all(&in);
                free_all(&out);
            }
        end();
    }
}

TEST(what_is_only_moved_keeps_its_bits)
{
    enum { COUNT = 3000 };
    static char sent[COUNT * 4], came[COUNT * 4];
    int way, r;
    RANKS_SETUP(2);
    for (way = 0; way < WAYS; way++) {
        arrays a;
        REQUIRE(begin(2, ways[way]));
        a = make_all(IGNIS_F32, COUNT, 0);
        fill_bits(a.at[1], sizeof sent);
        CHECK_OK(ignis_array_to_host_raw(a.at[1], sent, sizeof sent));
        for (r = 0; r < 2; r++)
            CHECK_OK(ignis_comm_broadcast(comms[r], a.at[r], 1));
        settle();
        CHECK_OK(ignis_array_to_host_raw(a.at[0], came, sizeof came));
        CHECK(memcmp(sent, came, sizeof sent) == 0);
        free_all(&a);
        end();
    }
}

/* --- graphs ----------------------------------------------------------------------------------------------------------
   */

/*  a = sum of a, then a is exchanged with b by an all-to-all, on every rank, as one graph a rank. */
static void capture(ignis_graph *graphs, const arrays *a, const arrays *b, int steps)
{
    int r, i;
    for (r = 0; r < size; r++) {
        CHECK_OK(ignis_device_use(r));
        CHECK_OK(ignis_graph_begin());
        for (i = 0; i < steps; i++) {
            CHECK_OK(ignis_comm_all_reduce(comms[r], a->at[r], b->at[r], IGNIS_OP_MAX));
            CHECK_OK(ignis_comm_all_to_all(comms[r], b->at[r], a->at[r]));
        }
        graphs[r] = ignis_graph_end();
        CHECK(graphs[r].id);
    }
}

TEST(graphs_and_eager_operations_mixed)
{
    int way, r, round;
    RANKS_SETUP(2);
    for (way = 0; way < WAYS; way++) {
        ignis_graph one[RANKS], two[RANKS];
        arrays a, b;
        REQUIRE(begin(2, ways[way]));
        a = make_all(IGNIS_F32, 1000, 0);
        b = make_all(IGNIS_F32, 1000, 0);
        CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_MAX, 100, 0, 0, "before the capture"));
        capture(one, &a, &b, 1);
        capture(two, &a, &b, 2);
        for (round = 0; round < 5; round++) {
            for (r = 0; r < 2; r++) {
                CHECK_OK(ignis_device_use(r));
                fill(a.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
                CHECK_OK(ignis_graph_launch(one[r]));
            }
            for (r = 0; r < 2; r++) {
                CHECK_OK(ignis_device_use(r));
                CHECK_OK(ignis_graph_launch(round % 2 ? one[r] : two[r]));
                CHECK_OK(ignis_graph_launch(round % 3 ? one[r] : two[r]));
            }
            settle();
            CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_MAX, 777, 0, 0, "between launches"));
            for (r = 0; r < 2;
                 r++) { /* the largest of all ranks, in a; all-to-all of equal arrays gathers one part of them */
                double got[1000];
                int i;
                CHECK_OK(ignis_array_to_host(a.at[r], got, IGNIS_F64, 1000));
                for (i = 0; i < 1000; i++)
                    if (got[i] != combined(IGNIS_OP_MAX, IGNIS_F32, r * 500 + i % 500) &&
                        got[i] != combined(IGNIS_OP_MAX, IGNIS_F32, i % 500) &&
                        got[i] < combined(IGNIS_OP_MAX, IGNIS_F32, r * 500 + i % 500))
                        break;
                CHECK_INT(i, 1000);
            }
        }
        for (r = 0; r < 2; r++) {
            CHECK_OK(ignis_graph_free(one[r]));
            CHECK_OK(ignis_graph_free(two[r]));
        }
        free_all(&a);
        free_all(&b);
        end();
    }
}

/*  T17: one rank replays, the other calls. */
TEST(a_capture_on_one_rank_only)
{
    ignis_graph graph;
    arrays a, b;
    int way, i;
    RANKS_SETUP(2);
    for (way = 0; way < WAYS; way++) {
        REQUIRE(begin(2, ways[way]));
        a = make_all(IGNIS_F32, 1000, 0);
        b = make_all(IGNIS_F32, 1000, 0);
        CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 100, 0, 0, "before the capture"));
        fill(a.at[0], IGNIS_OP_SUM, IGNIS_F32, 0, 1000);
        fill(a.at[1], IGNIS_OP_SUM, IGNIS_F32, 1, 1000);
        CHECK_OK(ignis_device_use(0));
        CHECK_OK(ignis_graph_begin());
        for (i = 0; i < 2; i++)
            CHECK_OK(ignis_comm_all_reduce(comms[0], a.at[0], b.at[0], IGNIS_OP_SUM));
        graph = ignis_graph_end();
        for (i = 0; i < 6; i++) {
            CHECK_OK(ignis_device_use(0));
            if (i % 2 == 0)
                CHECK_OK(ignis_graph_launch(graph));
            CHECK_OK(ignis_device_use(1));
            CHECK_OK(ignis_comm_all_reduce(comms[1], a.at[1], b.at[1], IGNIS_OP_SUM));
            if (i % 2 == 0)
                continue;
            settle();
            CHECK(holds(&b, IGNIS_OP_SUM, IGNIS_F32, 1000, expect_combined, "a replay with calls"));
        }
        CHECK_OK(ignis_graph_free(graph));
        free_all(&a);
        free_all(&b);
        end();
    }
}

TEST(an_abort_ends_a_replay)
{
    ignis_graph graphs[RANKS];
    pthread_t thread;
    arrays a, b;
    int r;
    RANKS_SETUP(2);
    REQUIRE(begin_for(2, SMALL, 60));
    a = make_all(IGNIS_F32, 1000, 0);
    b = make_all(IGNIS_F32, 1000, 0);
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_MAX, 10, 0, 0, "before the capture"));
    capture(graphs, &a, &b, 2);
    CHECK_OK(ignis_device_use(0));
    REQUIRE(pthread_create(&thread, NULL, abort_soon, &comms[1]) == 0);
    CHECK_OK(ignis_graph_launch(graphs[0])); /* the other rank does not come */
    CHECK_STATUS(ignis_comm_synchronize(comms[0]), IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_PEER);
    pthread_join(thread, NULL);
    CHECK_OK(ignis_graph_launch(graphs[0])); /* leaves at once */
    CHECK_OK(ignis_synchronize());
    for (r = 0; r < 2; r++)
        CHECK_OK(ignis_graph_free(graphs[r]));
    free_all(&a);
    free_all(&b);
    end();
}

/*  Two streams of the caller's on the current device. */
static void streams_make(void *streams[2])
{
    int s;
    for (s = 0; s < 2; s++)
        CHECK_INT(ignis__cuda.cuStreamCreate(&streams[s], IGNIS__CU_STREAM_NON_BLOCKING), 0);
}
static void streams_end(void *streams[2])
{
    int s;
    for (s = 0; s < 2; s++) {
        CHECK_OK(ignis_stream_forget(streams[s]));
        CHECK_INT(ignis__cuda.cuStreamDestroy_v2(streams[s]), 0);
    }
}

/*  T17: graphs of one communicator on two streams. Without an order between them two may run at once, which is refused
    or goes well. */
TEST(replays_on_two_streams)
{
    void *streams[2][2];
    ignis_graph graphs[RANKS];
    ignis_status status = IGNIS_OK;
    arrays a, b;
    int r, s, i;
    RANKS_SETUP(2);
    REQUIRE(begin_for(2, SMALL, 5));
    a = make_all(IGNIS_F32, 1000, 0);
    b = make_all(IGNIS_F32, 1000, 0);
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_MAX, 10, 0, 0, "before the capture"));
    for (r = 0; r < 2; r++) {
        CHECK_OK(ignis_device_use(r));
        fill(a.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
        CHECK_OK(ignis_graph_begin());
        CHECK_OK(ignis_comm_all_reduce(comms[r], a.at[r], b.at[r], IGNIS_OP_SUM));
        graphs[r] = ignis_graph_end();
        streams_make(streams[r]);
    }
    for (i = 0; i < 6; i++)
        for (r = 0; r < 2; r++) {
            CHECK_OK(ignis_device_use(r));
            CHECK_OK(ignis_stream_use(streams[r][i % 2]));
            CHECK_OK(ignis_graph_launch(graphs[r]));
        }
    for (r = 0; r < 2; r++) {
        CHECK_OK(ignis_device_use(r));
        for (s = 0; s < 2; s++) {
            CHECK_OK(ignis_stream_use(streams[r][s]));
            CHECK_OK(ignis_synchronize());
        }
        status = status == IGNIS_OK ? ignis_comm_status(comms[r]) : status;
        ignis_status_clear();
    }
    if (status == IGNIS_OK)
        CHECK(holds(&b, IGNIS_OP_SUM, IGNIS_F32, 1000, expect_combined, "replays on two streams"));
    for (r = 0; r < 2; r++) {
        CHECK_OK(ignis_device_use(r));
        CHECK_OK(ignis_graph_free(graphs[r]));
        streams_end(streams[r]);
    }
    free_all(&a);
    free_all(&b);
    end();
}

TEST(a_graph_outlives_its_communicator)
{
    ignis_graph graphs[RANKS];
    arrays a, b;
    int r;
    RANKS_SETUP(2);
    REQUIRE(begin(2, SMALL));
    a = make_all(IGNIS_F32, 1000, 0);
    b = make_all(IGNIS_F32, 1000, 0);
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_MAX, 10, 0, 0, "before the capture"));
    capture(graphs, &a, &b, 1);
    end();
    for (r = 0; r < 2; r++) { /* it leaves at once */
        CHECK_OK(ignis_device_use(r));
        CHECK_OK(ignis_graph_launch(graphs[r]));
        CHECK_OK(ignis_synchronize());
        CHECK_OK(ignis_graph_free(graphs[r]));
    }
    free_all(&a);
    free_all(&b);
}

/* --- numbers of operations, delays, streams, threads -------------------------------------------------------------- */

TEST(numbers_come_back)
{
    static const char *const starts[] = {"epoch=0xFFFFFFF0,", "epoch=0x7FFFFFF0,", "epoch=0,"};
    char tune[256];
    int way, s, i;
    RANKS_SETUP(2);
    for (s = 0; s < 3; s++)
        for (way = 0; way < WAYS; way++) {
            snprintf(tune, sizeof tune, "%s%s", starts[s], ways[way]);
            REQUIRE(begin(2, tune));
            for (i = 0; i < 12; i++)
                CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 1 + (i * 389) % 2000, 0, 0, tune));
            end();
        }
}

TEST(blocks_that_are_late_at_random)
{
    arrays a, b;
    int i, r, iterations;
    RANKS_SETUP(3);
    iterations = test_is_simulator() ? (test_env("IGNIS_SOAK") ? 3000 : 60) : test_env("IGNIS_SOAK") ? 1000000 : 3000;
    REQUIRE(begin(3, "delay=1,ll_max=2K,ll_two_max=6K,one_shot_max=12K,ll_blocks=3,ll_threads=64,blocks=3,threads=64,"
                     "chunk=3K,epoch=0xFFFFFFC0"));
    a = make_all(IGNIS_I32, 6000, 0);
    b = make_all(IGNIS_I32, 6000, 0);
    for (r = 0; r < 3; r++)
        fill(a.at[r], IGNIS_OP_SUM, IGNIS_I32, r, 6000);
    for (i = 0; i < (iterations); i++) {
        int64_t count = 1 + random_word() % 2000 * 3;
        int kind = (int)(random_word() % 4);
        for (r = 0; r < 3; r++) {
            ignis_array in = ignis_array_slice(a.at[r], 0, 0, count * 3 <= 6000 ? count * 3 : count),
                        out = ignis_array_slice(b.at[r], 0, 0, count * 3 <= 6000 ? count * 3 : count);
            if (kind == 0)
                CHECK_OK(ignis_comm_broadcast(comms[r], out, i % 3));
            else if (kind == 1)
                CHECK_OK(ignis_comm_reduce(comms[r], in, out, IGNIS_OP_SUM, i % 3));
            else
                CHECK_OK(ignis_comm_all_reduce(comms[r], in, out, IGNIS_OP_SUM));
            CHECK_OK(ignis_array_free(in));
            CHECK_OK(ignis_array_free(out));
        }
        if (i % 5 == 0) {
            for (r = 0; r < 3; r++)
                CHECK_OK(ignis_comm_all_reduce(comms[r], a.at[r], b.at[r], IGNIS_OP_SUM));
            settle();
            if (!holds(&b, IGNIS_OP_SUM, IGNIS_I32, 6000, expect_combined, "delays"))
                break;
        }
    }
    settle();
    free_all(&a);
    free_all(&b);
    end();
}

TEST(two_streams_are_put_in_order)
{
    void *streams[2][2];
    arrays a;
    int r, i;
    RANKS_SETUP(2);
    REQUIRE(begin(2, SMALL));
    a = make_all(IGNIS_F32, 1000, 0);
    for (r = 0; r < 2; r++) {
        CHECK_OK(ignis_device_use(r));
        fill(a.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
        streams_make(streams[r]);
    }
    for (i = 0; i < 6; i++)
        for (r = 0; r < 2; r++) {
            CHECK_OK(ignis_device_use(r));
            CHECK_OK(ignis_stream_use(streams[r][i % 2]));
            CHECK_OK(ignis_comm_all_reduce(comms[r], a.at[r], a.at[r], i ? IGNIS_OP_MAX : IGNIS_OP_SUM));
        }
    settle();
    holds(&a, IGNIS_OP_SUM, IGNIS_F32, 1000, expect_combined, "two streams");
    for (r = 0; r < 2; r++) {
        CHECK_OK(ignis_device_use(r));
        streams_end(streams[r]);
        CHECK_OK(ignis_comm_barrier(comms[r])); /* the stream that it was used on last is gone */
    }
    settle();
    free_all(&a);
    end();
}

static void *rank_thread(void *context)
{
    int r = (int)(intptr_t)context, i;
    CHECK_OK(ignis_device_use(r));
    for (i = 0; i < 50; i++)
        CHECK_OK(
            ignis_comm_all_reduce(comms[r], shared_arrays.at[r], shared_arrays.at[r], i ? IGNIS_OP_MIN : IGNIS_OP_SUM));
    CHECK_OK(ignis_comm_synchronize(comms[r]));
    return NULL;
}

/*  Rank 0 begins operations of several communicators in one order, rank 1 in the other, each on a stream of its own.
    With as many blocks as there may be, one or two kernels fit on a GPU at a time, and each waits for one that cannot
    begin on the other GPU: the message names both communicators. With few blocks all fit. */
TEST(operations_in_different_orders_fit_beside_each_other_or_are_told)
{
    enum { ORDERS = 4, NUMBERS = 1 << 20 };
    ignis_comm group[ORDERS][RANKS];
    ignis_comm_desc desc;
    void *streams[2][ORDERS];
    arrays a[ORDERS];
    float *seen;
    bool whole[2][ORDERS];
    int few, r, k, i, late;
    if (getenv("IGNIS_SIM_SANITIZE"))
        SKIP("under a sanitizer the simulator runs one kernel of a module at a time");
    RANKS_SETUP(2);
    size = 2;
    memset(&desc, 0, sizeof desc);
    seen = (float *)malloc(NUMBERS * sizeof *seen);
    REQUIRE(seen != NULL);
    for (k = 0; k < ORDERS; k++)
        a[k] = make_all(IGNIS_F32, NUMBERS, 0);
    for (few = 0; few < 2; few++) {
        desc.timeout_s = few ? 20 : 2;
        desc.most_blocks = few ? 16 : 0;
        setenv("IGNIS_COMM_TUNE", "blocks=256,nccl_min=0", 1);
        for (k = 0; k < ORDERS; k++) {
            CHECK_OK(ignis_comm_init_all(group[k], NULL, 2, &desc));
            for (r = 0; r < 2; r++)
                CHECK_OK(ignis_array_fill(a[k].at[r], 1));
        }
        unsetenv("IGNIS_COMM_TUNE");
        for (r = 0; r < 2; r++) { /* loads what is used */
            CHECK_OK(ignis_device_use(r));
            CHECK_OK(ignis_comm_all_reduce(group[0][r], a[0].at[r], a[0].at[r], IGNIS_OP_SUM));
            for (k = 0; k < ORDERS; k++)
                CHECK_INT(ignis__cuda.cuStreamCreate(&streams[r][k], IGNIS__CU_STREAM_NON_BLOCKING), 0);
        }
        for (r = 0; r < 2; r++)
            CHECK_OK(ignis_comm_synchronize(group[0][r]));
        for (k = 0; k < ORDERS; k++) {
            for (r = 0; r < 2; r++) {
                int at = r ? ORDERS - 1 - k : k;
                CHECK_OK(ignis_device_use(r));
                CHECK_OK(ignis_stream_use(streams[r][at]));
                CHECK_OK(ignis_comm_all_reduce(group[at][r], a[at].at[r], a[at].at[r], IGNIS_OP_SUM));
            }
            ignis__sleep_us(20000); /* now each GPU has a kernel that the other one's is to wait for */
        }
        for (r = late = 0; r < 2; r++) {
            CHECK_OK(ignis_device_use(r));
            for (k = 0; k < ORDERS; k++) {
                ignis_status status = ignis_comm_synchronize(group[k][r]);
                if ((whole[r][k] = status == IGNIS_OK))
                    continue;
                late++;
                CHECK_INT(status, IGNIS_ERROR_TIMEOUT);
                CHECK_HAS(ignis_status_message(), "beside this one");
                CHECK_HAS(ignis_status_message(), "in one order");
                ignis_status_clear();
            }
            CHECK_OK(ignis_stream_use(NULL));
        }
        CHECK(few ? late == 0 : late > 0 || !test_is_simulator()); /* there may be GPUs with room for all of them */
        for (r = 0; r < 2; r++)
            for (k = 0; k < ORDERS; k++) {
                CHECK_OK(ignis_device_use(r));
                if (whole[r][k]) {
                    CHECK_OK(ignis_array_to_host(a[k].at[r], seen, IGNIS_F32, NUMBERS));
                    for (i = 0; i < NUMBERS && seen[i] == (k ? 2 : 4); i++)
                        ;
                    CHECK_INT(i, NUMBERS);
                }
                CHECK_OK(ignis_comm_destroy(group[k][r]));
                CHECK_OK(ignis_stream_forget(streams[r][k]));
                CHECK_INT(ignis__cuda.cuStreamDestroy_v2(streams[r][k]), 0);
            }
    }
    for (k = 0; k < ORDERS; k++)
        free_all(&a[k]);
    free(seen);
}

TEST(a_thread_for_each_rank)
{
    pthread_t threads[RANKS];
    int r;
    RANKS_SETUP(3);
    REQUIRE(begin(3, SMALL));
    shared_arrays = make_all(IGNIS_F32, 1000, 0);
    for (r = 0; r < 3; r++)
        fill(shared_arrays.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
    for (r = 0; r < 3; r++)
        REQUIRE(pthread_create(&threads[r], NULL, rank_thread, (void *)(intptr_t)r) == 0);
    for (r = 0; r < 3; r++)
        pthread_join(threads[r], NULL);
    holds(&shared_arrays, IGNIS_OP_SUM, IGNIS_F32, 1000, expect_combined, "threads");
    free_all(&shared_arrays);
    end();
}

static ignis_kernel loading_kernel;

/*  Rank 0 loads a kernel behind an operation; the others load it before, and rank 0 then waits for them. */
static void *loading_thread(void *context)
{
    int r = (int)(intptr_t)context;
    ignis_launch launch = test_launch(1, 1);
    ignis_arg arg = ignis_arg_array(shared_arrays.at[r]);
    CHECK_OK(ignis_device_use(r));
    if (r > 0)
        test_sleep_ms(300);
    if (r > 0)
        CHECK_OK(ignis_kernel_launch(loading_kernel, &launch, &arg, 1));
    CHECK_OK(ignis_comm_all_reduce(comms[r], shared_arrays.at[r], shared_arrays.at[r], IGNIS_OP_SUM));
    if (r == 0)
        CHECK_OK(ignis_kernel_launch(loading_kernel, &launch, &arg, 1));
    CHECK_OK(ignis_comm_synchronize(comms[r]));
    return NULL;
}

/*  Loading waits for a device, and that for an operation to which another thread has yet to come, with the same kernel.
    */
TEST(a_thread_that_loads_holds_up_no_other)
{
    pthread_t threads[2];
    int r;
    RANKS_SETUP(3);
    REQUIRE(begin_for(2, SMALL, 5));
    CHECK_OK(ignis_device_use(2)); /* where it is loaded now */
    loading_kernel = test_compile("extern \"C\" __global__ void tenfold(float *x) { x[0] *= 10.f; }", "tenfold", NULL);
    share_one_number();
    for (r = 0; r < 2; r++)
        REQUIRE(pthread_create(&threads[r], NULL, loading_thread, (void *)(intptr_t)r) == 0);
    for (r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    free_all(&shared_arrays);
    CHECK_OK(ignis_kernel_free(loading_kernel));
    end();
}

/* --- what is let go --------------------------------------------------------------------------------------------------
   */

TEST(more_than_4_gib)
{
    const int64_t count = ((int64_t)4 << 30) + 17;
    ignis_array in[2], out[2];
    uint8_t ends[2][64];
    int r, i;
    RANKS_SETUP(2);
    if (test_is_simulator())
        SKIP("the simulator is too slow for 4 GiB");
    REQUIRE(begin(2, ""));
    for (r = 0; r < 2; r++) {
        in[r] = make_on(r, IGNIS_U8, count);
        out[r] = make_on(r, IGNIS_U8, count);
        CHECK_OK(ignis_array_fill(in[r], r + 1));
    }
    for (r = 0; r < 2; r++)
        CHECK_OK(ignis_comm_all_reduce(comms[r], in[r], out[r], IGNIS_OP_SUM));
    settle();
    for (r = 0; r < 2; r++) {
        ignis_array head = ignis_array_slice(out[r], 0, 0, 64), tail = ignis_array_slice(out[r], 0, count - 64, 64);
        CHECK_OK(ignis_array_to_host_raw(head, ends[0], 64));
        CHECK_OK(ignis_array_to_host_raw(tail, ends[1], 64));
        for (i = 0; i < 64; i++)
            CHECK(ends[0][i] == 3 && ends[1][i] == 3);
        CHECK_OK(ignis_array_free(head));
        CHECK_OK(ignis_array_free(tail));
        CHECK_OK(ignis_array_free(in[r]));
        CHECK_OK(ignis_array_free(out[r]));
    }
    end();
}

int main(int argc, char **argv)
{
    setenv("IGNIS_SIM_DEVICES", "4", 0);
    return test_run(argc, argv);
}
