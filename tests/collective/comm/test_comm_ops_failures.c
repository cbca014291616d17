// SPDX-License-Identifier: MIT
/*  test_comm_ops_failures.c - collective operations that are refused, late or aborted, and communicators that are
    split, shrink or fail */
#include "fault.h"

#include "comm_ranks.h"

#include <unistd.h>

/* --- what is refused -------------------------------------------------------------------------------------------------
   */

TEST(arguments_are_checked_before_anything_is_queued)
{
    ignis_comm stale, twice[2];
    ignis_array ints, shorter, overlapping, odd;
    ignis_array_info before, after;
    int devices[2] = {0, 0};
    ignis_comm_desc desc;
    arrays a;
    memset(&desc, 0, sizeof desc);
    RANKS_SETUP(2);
    CHECK_STATUS(ignis_comm_init_all(NULL, NULL, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_comm_init_all(twice, NULL, 0, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_init_all(twice, devices, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    devices[1] = 1000;
    CHECK_STATUS(ignis_comm_init_all(twice, devices, 2, NULL), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    setenv("IGNIS_COMM_TUNE", "blocks=many", 1);
    CHECK_STATUS(ignis_comm_init_all(twice, NULL, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    setenv("IGNIS_COMM_TUNE", "blocks=4,speed=9", 1);
    CHECK_STATUS(ignis_comm_init_all(twice, NULL, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    unsetenv("IGNIS_COMM_TUNE");
    desc.most_blocks = -1;
    CHECK_STATUS(ignis_comm_init_all(twice, NULL, 2, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.most_blocks = 0, desc.timeout_s = -1;
    CHECK_STATUS(ignis_comm_init_all(twice, NULL, 2, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_INT(twice[0].id, 0);
    REQUIRE(begin(2, SMALL));
    a = make_all(IGNIS_F32, 100, 0);
    ints = make_on(0, IGNIS_I32, 100);
    shorter = ignis_array_slice(a.at[0], 0, 0, 50);
    overlapping = ignis_array_slice(a.at[0], 0, 25, 50);
    CHECK_OK(ignis_array_zero(ints));
    CHECK_STATUS(ignis_comm_all_reduce(comms[0], a.at[0], ints, IGNIS_OP_SUM), IGNIS_ERROR_DTYPE,
                 IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_STATUS(ignis_comm_all_reduce(comms[0], ints, ints, IGNIS_OP_AVG), IGNIS_ERROR_UNSUPPORTED,
                 IGNIS_DIAG_UNSUPPORTED);
    CHECK_STATUS(ignis_comm_all_reduce(comms[0], a.at[0], a.at[0], (ignis_op)9), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_BAD_ENUM);
    CHECK_STATUS(ignis_comm_all_reduce(comms[0], a.at[0], shorter, IGNIS_OP_SUM), IGNIS_ERROR_SHAPE,
                 IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_OK(ignis_array_query(overlapping, &before));
    CHECK_STATUS(ignis_comm_all_reduce(comms[0], shorter, overlapping, IGNIS_OP_SUM), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_COMM_OVERLAP);
    CHECK_OK(ignis_array_query(overlapping, &after));
    CHECK_INT(after.version, before.version); /* a backward may still use it */
    CHECK_STATUS(ignis_comm_all_reduce(comms[0], a.at[1], a.at[1], IGNIS_OP_SUM), IGNIS_ERROR_DEVICE,
                 IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_STATUS(ignis_comm_all_gather(comms[0], overlapping, a.at[0]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COMM_OVERLAP);
    CHECK_STATUS(ignis_comm_all_gather(comms[0], a.at[0], a.at[0]), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    odd = ignis_array_slice(a.at[0], 0, 0, 3);
    CHECK_STATUS(ignis_comm_reduce_scatter(comms[0], odd, ints, IGNIS_OP_SUM), IGNIS_ERROR_DTYPE,
                 IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_STATUS(ignis_comm_all_to_all(comms[0], odd, a.at[0]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_MESSAGE_HAS("in has 3 elements; expected a multiple of the 2 ranks");
    CHECK_OK(ignis_array_free(odd));
    CHECK_FAILS(ignis_comm_shrink_without(comms[0], devices, 1), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("ignis_comm_shrink_all does it for all ranks at once");
    CHECK_FAILS(ignis_comm_split(comms[0], 0, 0), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("ignis_comm_split_all does it for all ranks at once");
    CHECK_STATUS(ignis_comm_query(comms[0], NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_comm_broadcast(comms[0], a.at[0], 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_reduce(comms[0], a.at[0], a.at[0], IGNIS_OP_SUM, -1), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_BAD_NUMBER);
    CHECK_OK(ignis_contract_acquire(a.at[0], IGNIS_OWNER_WNAIS));
    CHECK_STATUS(ignis_comm_broadcast(comms[0], a.at[0], 0), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_OWNER_DIFFERS);
    CHECK_OK(ignis_contract_release(a.at[0], IGNIS_OWNER_WNAIS));
    CHECK_OK(ignis_contract_untrack(a.at[0]));
    CHECK_OK(ignis_contract_assert_owner(a.at[1], IGNIS_OWNER_IGNIS));
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 100, 0, 0, "after what was refused"));
    stale = comms[0];
    CHECK_OK(ignis_array_free(shorter));
    CHECK_OK(ignis_array_free(overlapping));
    CHECK_OK(ignis_array_free(ints));
    free_all(&a);
    end();
    CHECK_STATUS(ignis_comm_barrier(stale), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_STATUS(ignis_comm_status(stale), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
}

TEST(one_rank_alone)
{
    arrays in, out;
    SETUP(NULL);
    REQUIRE(begin(1, ""));
    in = make_all(IGNIS_F32, 100, 0);
    out = make_all(IGNIS_F32, 100, 0);
    fill(in.at[0], IGNIS_OP_SUM, IGNIS_F32, 0, 100);
    root_is = 0;
    CHECK_OK(ignis_comm_all_reduce(comms[0], in.at[0], out.at[0], IGNIS_OP_AVG));
    CHECK_OK(ignis_comm_broadcast(comms[0], out.at[0], 0));
    CHECK_OK(ignis_comm_barrier(comms[0]));
    CHECK_OK(ignis_comm_synchronize(comms[0]));
    holds(&out, IGNIS_OP_SUM, IGNIS_F32, 100, expect_root, "alone");
    free_all(&in);
    free_all(&out);
    end();
}

/* --- what goes wrong -------------------------------------------------------------------------------------------------
   */

typedef ignis_status (*wrong_fn)(int rank, const arrays *a);
static ignis_status wrong_count(int rank, const arrays *a)
{
    ignis_array part = ignis_array_slice(a->at[rank], 0, 0, rank ? 100 : 99);
    ignis_status status = ignis_comm_all_reduce(comms[rank], part, part, IGNIS_OP_SUM);
    ignis_array_free(part);
    return status;
}
/*  Two sizes that a short hash would not tell apart. */
static ignis_status wrong_count_of_one_hash(int rank, const arrays *a)
{
    ignis_array part = ignis_array_slice(a->at[rank], 0, 0, rank ? 42 : 530);
    ignis_status status = ignis_comm_all_reduce(comms[rank], part, part, IGNIS_OP_SUM);
    ignis_array_free(part);
    return status;
}
static ignis_status wrong_dtype(int rank, const arrays *a)
{
    ignis_array_desc desc = {0};
    ignis_status status;
    ignis_array same;
    desc.shape = IGNIS_SHAPE(1000);
    desc.dtype = rank ? IGNIS_I32 : IGNIS_F32; /* as many bytes */
    desc.device = rank ? rank : IGNIS_DEVICE_0;
    desc.ptr = ignis_array_device_ptr(a->at[rank]);
    same = ignis_array_create(&desc);
    status = ignis_comm_all_reduce(comms[rank], same, same, IGNIS_OP_SUM);
    ignis_array_free(same);
    return status;
}
static ignis_status wrong_op(int rank, const arrays *a)
{
    return ignis_comm_all_reduce(comms[rank], a->at[rank], a->at[rank], rank ? IGNIS_OP_SUM : IGNIS_OP_MAX);
}
static ignis_status wrong_root(int rank, const arrays *a)
{
    return ignis_comm_broadcast(comms[rank], a->at[rank], rank);
}
static ignis_status wrong_kind(int rank, const arrays *a)
{
    return rank ? ignis_comm_barrier(comms[rank]) : ignis_comm_broadcast(comms[rank], a->at[rank], 0);
}

TEST(ranks_that_disagree_all_hear_of_it)
{
    static const wrong_fn wrongs[] = {wrong_count, wrong_op,    wrong_root,
                                      wrong_kind,  wrong_dtype, wrong_count_of_one_hash};
    static const char *const says[] = {"all_reduce sum of 99 f32",       "all_reduce max of 1000 f32",
                                       "broadcast of 1000 f32 (root 1)", "barrier",
                                       "all_reduce sum of 1000 i32",     "all_reduce sum of 530 f32"};
    int way, w, r;
    RANKS_SETUP(2);
    for (way = 0; way < WAYS; way++)
        for (w = 0; w < (int)(sizeof wrongs / sizeof wrongs[0]); w++) {
            arrays a;
            if (way && w != way) /* each way with one, and one with each */
                continue;
            REQUIRE(begin_for(2, w == 5 ? "" : ways[way], 20));
            a = make_all(IGNIS_F32, 1000, 0);
            CHECK(all_reduce_is_right(IGNIS_I32, IGNIS_OP_SUM, 10, 0, 0,
                                      "loaded now, as loading may wait for the device"));
            for (r = 0; r < 2; r++)
                CHECK_OK(wrongs[w](r, &a));
            for (r = 0; r < 2; r++) {
                ignis_comm_info info;
                CHECK_STATUS(ignis_comm_synchronize(comms[r]), IGNIS_ERROR_MISMATCH, IGNIS_DIAG_COMM_MISMATCH);
                CHECK_MESSAGE_HAS(says[w]);
                CHECK_STATUS(ignis_comm_status(comms[r]), IGNIS_ERROR_MISMATCH, IGNIS_DIAG_COMM_MISMATCH);
                CHECK_STATUS(ignis_comm_barrier(comms[r]), IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_BROKEN);
                CHECK_OK(ignis_comm_query(comms[r], &info));
                CHECK_INT(info.status, IGNIS_ERROR_MISMATCH);
            }
            free_all(&a);
            end();
        }
}

TEST(a_rank_that_is_late_and_one_that_does_not_come)
{
    int way, r;
    RANKS_SETUP(3);
    for (way = 0; way < WAYS; way++) {
        arrays a;
        REQUIRE(begin_for(3, ways[way], 0.5));
        a = make_all(IGNIS_F32, 1000, 0);
        for (r = 0; r < 3; r++)
            fill(a.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
        for (r = 0; r < 3; r++) {
            if (r == 2)
                test_sleep_ms(100);
            CHECK_OK(ignis_comm_all_reduce(comms[r], a.at[r], a.at[r], IGNIS_OP_SUM));
        }
        settle();
        holds(&a, IGNIS_OP_SUM, IGNIS_F32, 1000, expect_combined, "late");
        for (r = 0; r < 2; r++)
            CHECK_OK(ignis_comm_all_reduce(comms[r], a.at[r], a.at[r], IGNIS_OP_SUM));
        for (r = 0; r < 2; r++) {
            CHECK_STATUS(ignis_comm_synchronize(comms[r]), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
            CHECK_MESSAGE_HAS("rank 2 did not come");
        }
        CHECK_OK(
            ignis_comm_all_reduce(comms[2], a.at[2], a.at[2], IGNIS_OP_SUM)); /* too late: its region is poisoned */
        CHECK_STATUS(ignis_comm_synchronize(comms[2]), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
        CHECK_STATUS(ignis_comm_all_reduce(comms[2], a.at[2], a.at[2], IGNIS_OP_SUM), IGNIS_ERROR_PEER,
                     IGNIS_DIAG_COMM_BROKEN);
        free_all(&a);
        end();
    }
}

/*  T10: by another rank, and by another thread of the one that waits. */
TEST(an_abort_ends_what_waits)
{
    int who;
    RANKS_SETUP(2);
    for (who = 0; who < 2; who++) {
        arrays a;
        pthread_t thread;
        REQUIRE(begin_for(2, SMALL, 60));
        a = make_all(IGNIS_F32, 1000, 0);
        REQUIRE(pthread_create(&thread, NULL, abort_soon, &comms[who]) == 0);
        CHECK_OK(ignis_comm_all_reduce(comms[0], a.at[0], a.at[0], IGNIS_OP_SUM));
        CHECK_STATUS(ignis_comm_synchronize(comms[0]), IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_PEER);
        pthread_join(thread, NULL);
        CHECK(ignis_comm_barrier(comms[1]) != IGNIS_OK || ignis_comm_synchronize(comms[1]) != IGNIS_OK);
        CHECK_INT(ignis_status_last(), IGNIS_ERROR_PEER);
        ignis_status_clear();
        free_all(&a);
        end();
    }
}

/* --- others made of them ---------------------------------------------------------------------------------------------
   */

/*  Whether communicator i of `some`, wherever there is one, is of rank ranks[i] on device i, and sums over those who
    have it. */
static bool sums_over(const ignis_comm *some, const int *ranks, int members, double sum)
{
    ignis_comm_info info;
    ignis_array x[RANKS];
    bool fine = true;
    double got[100];
    int i;
    for (i = 0; i < RANKS; i++) {
        if (!some[i].id)
            continue;
        CHECK_OK(ignis_comm_query(some[i], &info));
        fine &= info.rank == ranks[i] && info.size == members && info.device == i && info.status == IGNIS_OK &&
                info.timeout_s == 20;
        x[i] = make_on(i, IGNIS_F32, 100);
        CHECK_OK(ignis_array_fill(x[i], 1 << i));
        CHECK_OK(ignis_comm_all_reduce(some[i], x[i], x[i], IGNIS_OP_SUM));
    }
    for (i = 0; i < RANKS; i++) {
        if (!some[i].id)
            continue;
        CHECK_OK(ignis_device_use(i));
        CHECK_OK(ignis_comm_synchronize(some[i]));
        CHECK_OK(ignis_array_to_host(x[i], got, IGNIS_F64, 100));
        fine &= got[0] == sum && got[99] == sum;
        CHECK_OK(ignis_array_free(x[i]));
    }
    CHECK_OK(ignis_device_use(0));
    return fine;
}

static void destroy_some(const ignis_comm *some)
{
    int i;
    for (i = 0; i < RANKS; i++)
        if (some[i].id)
            CHECK_OK(ignis_comm_destroy(some[i]));
}

TEST(one_thread_splits_all_ranks_at_once)
{
    static const int colors[] = {7, -1, 7, 7}, keys[] = {1, 0, 5, -2}, ranks[] = {1, -1, 2, 0}, own[] = {0, 1, 2, 3},
                     zero[RANKS] = {0};
    ignis_comm some[RANKS], pair[RANKS], ordered[RANKS], mixed[RANKS];
    int i;
    RANKS_SETUP(4);
    REQUIRE(begin_for(4, SMALL, 20));
    CHECK_OK(ignis_comm_split_all(comms, colors, keys, 4, some));
    CHECK_INT(some[1].id, 0);
    CHECK(sums_over(some, ranks, 3, 13));

    /* what was split is split again, and so is the parent; nobody is in the way of the others */
    for (i = 0; i < 3; i++) /* in another order: those of devices 3, 0, 2 */
        mixed[i] = some[i == 0 ? 3 : i == 1 ? 0 : 2];
    CHECK_OK(ignis_comm_split_all(mixed, zero + 1, NULL, 3, ordered));
    memset(pair, 0, sizeof pair);
    pair[3] = ordered[0], pair[0] = ordered[1], pair[2] = ordered[2];
    CHECK(sums_over(pair, ranks, 3, 13));
    destroy_some(some);
    CHECK(sums_over(pair, ranks, 3, 13));
    CHECK(sums_over(comms, own, 4, 15));
    destroy_some(pair);

    /* two colors, each a group of its own; they outlive their parent */
    for (i = 0; i < 4; i++)
        ordered[i] = comms[i];
    CHECK_OK(ignis_comm_split_all(ordered, (const int[]){0, 1, 1, 0}, NULL, 4, some));
    end();
    memset(pair, 0, sizeof pair);
    pair[0] = some[0], pair[3] = some[3];
    CHECK(sums_over(pair, (const int[]){0, -1, -1, 1}, 2, 9));
    destroy_some(pair);
    memset(pair, 0, sizeof pair);
    pair[1] = some[1], pair[2] = some[2];
    CHECK(sums_over(pair, (const int[]){-1, 0, 1, -1}, 2, 6));
    CHECK_OK(ignis_comm_split_all(&pair[1], (const int[]){1, 2}, NULL, 2, &some[1])); /* each alone */
    some[0].id = some[3].id = 0;
    destroy_some(pair);
    memset(pair, 0, sizeof pair);
    pair[1] = some[1];
    CHECK(sums_over(pair, zero, 1, 2));
    destroy_some(some);
}

TEST(those_who_are_left_go_on)
{
    static const int own[] = {0, 1, 2, 3}, without_1[] = {0, -1, 1, 2}, two[] = {0, -1, -1, 1};
    ignis_comm some[RANKS], fewer[RANKS], given[RANKS];
    int64_t region;
    RANKS_SETUP(4);
    REQUIRE(begin_for(4, SMALL, 20));
    region = memory_of(1).vmm_bytes;
    CHECK(region >= ignis__comm_region_bytes(4));
    CHECK_OK(ignis_comm_shrink_all(comms, 4, some)); /* before anything failed: the same again */
    CHECK_INT(memory_of(1).vmm_bytes, 2 * region);
    CHECK(sums_over(some, own, 4, 15));
    CHECK(sums_over(comms, own, 4, 15));
    destroy_some(some);
    CHECK_INT(memory_of(1).vmm_bytes, region);

    CHECK_OK(ignis_comm_abort(comms[1]));
    CHECK_STATUS(ignis_comm_barrier(comms[2]), IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_BROKEN);
    memcpy(given, comms, sizeof given);
    CHECK_OK(ignis_comm_destroy(comms[1]));
    given[1].id = 0;
    CHECK_OK(ignis_comm_shrink_all(given, 4, some));
    CHECK_INT(some[1].id, 0);
    CHECK(sums_over(some, without_1, 3, 13));
    destroy_some(given);
    memset(given, 0, sizeof given);
    given[0] = some[3], given[1] = some[0]; /* in any order, the others left out */
    CHECK_OK(ignis_comm_shrink_all(given, 2, fewer));
    given[3] = fewer[0], given[0] = fewer[1];
    given[1].id = 0;
    CHECK(sums_over(given, two, 2, 9));
    CHECK(sums_over(some, without_1, 3, 13)); /* who was left out on purpose breaks nothing */
    destroy_some(given);
    destroy_some(some);
    CHECK_INT(memory_of(1).vmm_bytes, 0);
}

TEST(what_cannot_be_split_or_shrunk_is_refused)
{
    static const int colors[RANKS] = {0};
    ignis_comm others[2], out[RANKS], mixed[2], none[2] = {{0}, {0}}, job;
    ignis_comm_desc alone;
    RANKS_SETUP(2);
    REQUIRE(begin(2, SMALL));
    CHECK_OK(ignis_comm_init_all(others, NULL, 2, NULL));
    CHECK_FAILS(ignis_comm_split(comms[0], 0, 0), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("ignis_comm_split_all");
    CHECK_FAILS(ignis_comm_shrink(comms[0]), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("ignis_comm_shrink_all");
    CHECK_STATUS(ignis_comm_split_all(NULL, colors, NULL, 2, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_comm_split_all(comms, NULL, NULL, 2, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_comm_split_all(comms, colors, NULL, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_comm_split_all(comms, colors, NULL, 2, comms), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_shrink_all(comms, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_comm_split_all(comms, colors, NULL, 0, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_shrink_all(comms, IGNIS_COMM_MAX_RANKS + 1, out), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_split_all(comms, colors, NULL, 1, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("all 2 ranks");
    mixed[0] = comms[0], mixed[1] = others[1];
    out[0].id = 1;
    CHECK_STATUS(ignis_comm_split_all(mixed, colors, NULL, 2, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("another group");
    CHECK_INT(out[0].id, 0);
    mixed[1] = comms[0];
    CHECK_STATUS(ignis_comm_shrink_all(mixed, 2, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("second time");
    CHECK_STATUS(ignis_comm_shrink_all(none, 2, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_split_all(none, colors, NULL, 2, out), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    memset(&alone, 0, sizeof alone);
    alone.size = 1;
    job = ignis_comm_init(&alone);
    CHECK_STATUS(ignis_comm_split_all(&job, colors, NULL, 1, out), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("calls ignis_comm_split for itself");
    CHECK_STATUS(ignis_comm_shrink_all(&job, 1, out), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("calls ignis_comm_shrink for itself");
    CHECK_OK(ignis_comm_destroy(job));
    CHECK_OK(ignis_comm_destroy(others[1]));
    CHECK_STATUS(ignis_comm_split_all(others, colors, NULL, 2, out), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_STATUS(ignis_comm_shrink_all(others, 2, out), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_OK(ignis_comm_destroy(others[0]));
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 100, 0, 0, "after what was refused"));
    end();
}

/*  In a process of its own: device 1 faults while device 0 waits for it. That takes all devices, but nothing hangs. */
enum { TOO_FEW = 77 };
static int fault_main(void)
{
    const ignis_launch one = {{1, 1, 1}, {1, 1, 1}, 0, false, false};
    ignis_comm some[RANKS] = {{0}};
    ignis_kernel_desc desc;
    ignis_kernel wild;
    ignis_array waits;
    ignis_status status;
    ignis_arg arg;
    double start;
    int r;
    ignis_desc setup = test_desc(NULL);
    CHECK_OK(ignis_setup(&setup));
    if (ignis_device_count() < 3)
        return TOO_FEW;
    if (!begin_for(3, SMALL, 20))
        return 1;
    waits = make_on(0, IGNIS_F32, 100);
    CHECK_OK(ignis_array_zero(waits));
    memset(&desc, 0, sizeof desc);
    desc.source = "extern \"C\" __global__ void wild(long long at) { *(int *)at = 1; }";
    desc.entry = "wild";
    CHECK_OK(ignis_device_use(1));
    wild = ignis_kernel_compile(&desc);
    arg = ignis_arg_i64(0x1000);
    start = test_seconds();
    CHECK_OK(ignis_comm_all_reduce(comms[0], waits, waits, IGNIS_OP_SUM)); /* device 1 does not come to this */
    CHECK_OK(ignis_kernel_launch(wild, &one, &arg, 1));
    test_sleep_ms(200);
    CHECK_STATUS(ignis_comm_synchronize(comms[0]), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    CHECK_MESSAGE_HAS("CUDA_ERROR_ILLEGAL_ADDRESS");
    for (r = 0; r < 3; r++)
        CHECK_STATUS(ignis_device_use(r), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_STATUS(ignis_comm_synchronize(comms[2]), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_STATUS(ignis_comm_shrink_all(comms, 3, some), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_MESSAGE_HAS("CUDA_ERROR_ILLEGAL_ADDRESS");
    for (r = 0; r < 3; r++) {
        CHECK_INT(some[r].id, 0);
        CHECK_OK(ignis_comm_destroy(comms[r]));
    }
    CHECK_OK(ignis_kernel_free(wild));
    CHECK_OK(ignis_array_free(waits));
    status = ignis_shutdown(); /* may report what the driver says of the devices */
    CHECK(status == IGNIS_OK || status == IGNIS_ERROR_CUDA);
    CHECK(test_seconds() - start < 15); /* less than the deadline of the operation */
    ignis_status_clear();
    return test__state.failures != 0;
}

TEST(a_fault_ends_all_ranks_of_a_process)
{
    process child;
    int code;
    if (test_is_bypass() || getenv("IGNIS_SIM_SANITIZE"))
        SKIP("a memory checker takes the fault for a mistake");
    child = process_start("fault");
    code = process_end(&child);
    if (code == TOO_FEW)
        SKIP("there are fewer devices than the test needs");
    CHECK_INT(code, 0);
}

static int waiting_for;
static uint64_t is_waiting;
static ignis_vmm_range waiting_range;
enum { WAITS = 5 };

static void multiply(int rows)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor product =
        ignis_matmul(ignis_tensor_zeros(IGNIS_SHAPE(rows, 3), NULL), ignis_tensor_zeros(IGNIS_SHAPE(3, 5), NULL));
    CHECK(product.id != 0);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Rank 0 waits for its device behind an operation to which rank 1 has yet to come, which asks about memory and ends a
    capture before. */
static void *waiting_thread(void *context)
{
    int r = (int)(intptr_t)context;
    CHECK_OK(ignis_device_use(r));
    while (r > 0 && !ignis__atomic_load(&is_waiting))
        test_sleep_ms(1);
    if (r > 0) {
        ignis_memory_info info;
        ignis_vmm_range_info range_info;
        ignis_graph graph;
        test_sleep_ms(100);
        CHECK_OK(ignis_memory_query(0, &info));
        CHECK_OK(ignis_vmm_range_query(waiting_range, &range_info));
        multiply(2);
        CHECK_OK(ignis_graph_begin());
        graph = ignis_graph_end();
        CHECK(graph.id != 0);
        CHECK_OK(ignis_graph_free(graph));
    }
    CHECK_OK(ignis_comm_all_reduce(comms[r], shared_arrays.at[r], shared_arrays.at[r], IGNIS_OP_SUM));
    if (r == 0) {
        ignis__atomic_store(&is_waiting, 1);
        if (waiting_for == 0)
            CHECK(ignis_memory_trim(0) >= 0);
        if (waiting_for == 1) {
            ignis_array large = make_on(0, IGNIS_U8, 60 << 20);
            CHECK_OK(ignis_array_zero(large));
            CHECK_OK(ignis_array_free(large));
        }
        if (waiting_for == 2) {
            ignis_transport_desc desc;
            ignis_transport_handle handle;
            ignis_transport transport;
            memset(&desc, 0, sizeof desc);
            desc.kind = IGNIS_TRANSPORT_HOST;
            transport = ignis_transport_create(&desc);
            CHECK_OK(ignis_transport_initialize(transport));
            CHECK_OK(ignis_transport_export_handle(transport, shared_arrays.at[0], &handle));
            CHECK_OK(ignis_transport_handle_close(&handle));
            CHECK_OK(ignis_transport_destroy(transport));
        }
        if (waiting_for == 3)
            CHECK_OK(ignis_vmm_unmap(waiting_range, 0));
        if (waiting_for == 4)
            multiply(4);
    }
    CHECK_OK(ignis_comm_synchronize(comms[r]));
    return NULL;
}

TEST(a_thread_that_waits_holds_up_no_other)
{
    pthread_t threads[2];
    ignis_desc desc;
    ignis_vmm_desc vmm_desc;
    ignis_vmm vmm;
    int64_t granule;
    int r;
    memset(&desc, 0, sizeof desc);
    desc.memory_limit = 80 << 20;
    SETUP(&desc);
    keep_contexts();
    NEEDS_DEVICES(2);
    granule = ignis_vmm_granularity(0, false);
    memset(&vmm_desc, 0, sizeof vmm_desc);
    vmm_desc.size = granule;
    vmm_desc.device = IGNIS_DEVICE_0;
    vmm = ignis_vmm_create(&vmm_desc);
    waiting_range = ignis_vmm_reserve(granule, 0);
    CHECK_OK(ignis_vmm_map(waiting_range, 0, vmm));
    CHECK_OK(ignis_vmm_set_access(waiting_range, 0, granule, 0, IGNIS_VMM_ACCESS_READ_WRITE));
    for (r = 0; r < 2; r++) { /* compiles kernels: ranks wait 3 seconds for each other, in which that may not be done */
        CHECK_OK(ignis_device_use(r));
        multiply(2), multiply(4);
    }
    for (waiting_for = 0; waiting_for < WAITS; waiting_for++) {
        ignis_array large;
        REQUIRE(begin_for(2, SMALL, 3));
        share_one_number();
        large = make_on(0, IGNIS_U8, 40 << 20); /* a segment that can be given back */
        CHECK_OK(ignis_array_zero(large));
        CHECK_OK(ignis_array_free(large));
        is_waiting = 0;
        for (r = 0; r < 2; r++)
            REQUIRE(pthread_create(&threads[r], NULL, waiting_thread, (void *)(intptr_t)r) == 0);
        for (r = 0; r < 2; r++)
            pthread_join(threads[r], NULL);
        free_all(&shared_arrays);
        end();
        if (test__state.failures)
            printf("while rank 0 waited in way %d\n", waiting_for);
    }
    CHECK_OK(ignis_vmm_unreserve(waiting_range));
    CHECK_OK(ignis_vmm_free(vmm));
}

/* --- what is let go --------------------------------------------------------------------------------------------------
   */

TEST(a_start_that_fails_anywhere_leaves_nothing)
{
    ignis_memory_info before, after;
    int at, r;
    RANKS_SETUP(2);
    REQUIRE(begin(2, SMALL)); /* the kernels are compiled */
    end();
    before = memory();
    for (at = 1; at < 400; at++) {
        ignis_status status;
        const char *failed;
        fault_arm("cu", at, 1);
        status = ignis_comm_init_all(comms, NULL, 2, NULL);
        failed = fault.failed;
        fault_disarm();
        ignis_status_clear();
        for (r = 0; r < 2 && status == IGNIS_OK; r++) /* all went well, or the failure of this call does not matter */
            CHECK_OK(ignis_comm_destroy(comms[r]));
        if (!failed)
            break;
        CHECK(status == IGNIS_OK || comms[0].id == 0);
    }
    CHECK(at > 10 && at < 400);
    after = memory();
    CHECK_INT(after.live_bytes, before.live_bytes);
    CHECK_INT(after.pinned_bytes, before.pinned_bytes);
    CHECK_INT(after.vmm_bytes, 0);
    CHECK(!test_is_simulator() || after.device_free >= before.device_free); /* other programs use a GPU, too */
}

TEST(a_split_that_fails_anywhere_leaves_nothing)
{
    static const int colors[] = {0, 1, 0, 1};
    ignis_comm some[RANKS];
    int64_t region;
    int at;
    RANKS_SETUP(4);
    REQUIRE(begin(4, SMALL));
    region = memory_of(1).vmm_bytes;
    CHECK_OK(ignis_comm_split_all(comms, colors, NULL, 4, some));
    destroy_some(some);
    for (at = 1; at < 400; at++) {
        ignis_status status;
        const char *failed;
        fault_reset_counts();
        fault_arm("cu", at, 1);
        status = at % 2 ? ignis_comm_split_all(comms, colors, NULL, 4, some) : ignis_comm_shrink_all(comms, 4, some);
        failed = fault.failed;
        fault_disarm();
        CHECK(status == IGNIS_OK || ignis_status_last() == status);
        CHECK(status == IGNIS_OK || (!some[0].id && !some[1].id && !some[2].id && !some[3].id));
        ignis_status_clear();
        destroy_some(some);
        CHECK(fault_count("cuMemCreate") - fault_count("cuMemRelease") <= fault_failed("cuMemRelease"));
        CHECK(fault_count("cuMemMap") - fault_count("cuMemUnmap") <= fault_failed("cuMemUnmap"));
        CHECK_INT(memory_of(1).vmm_bytes, region);
        if (!failed)
            break;
    }
    CHECK(at > 10 && at < 400);
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 100, 0, 0, "after all that"));
    end();
}

/*  T13: a driver call of an operation fails on one rank. What it could not queue the others wait for in vain, until
    their deadline or a word of that rank. */
TEST(an_operation_that_fails_anywhere)
{
    int at, r;
    RANKS_SETUP(2);
    for (at = 1; at < 20; at++) {
        ignis_status status;
        const char *failed;
        arrays a;
        REQUIRE(begin_for(2, SMALL, 0.6));
        a = make_all(IGNIS_F32, 1000, 0);
        for (r = 0; r < 2; r++)
            fill(a.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
        CHECK_OK(ignis_comm_all_reduce(comms[0], a.at[0], a.at[0], IGNIS_OP_MAX)); /* loads what there is to load */
        CHECK_OK(ignis_comm_all_reduce(comms[1], a.at[1], a.at[1], IGNIS_OP_MAX));
        settle();
        fault_arm("cu", at, 1);
        status = ignis_comm_all_reduce(comms[0], a.at[0], a.at[0], IGNIS_OP_MAX);
        failed = fault.failed;
        fault_disarm();
        CHECK(status == IGNIS_OK || ignis_status_last() == status);
        ignis_status_clear();
        CHECK(ignis_comm_all_reduce(comms[1], a.at[1], a.at[1], IGNIS_OP_MAX) == IGNIS_OK || status != IGNIS_OK);
        if (status == IGNIS_OK) {
            settle();
            holds(&a, IGNIS_OP_MAX, IGNIS_F32, 1000, expect_combined, "although a call failed");
        } else {
            (void)ignis_comm_synchronize(comms[1]);
            CHECK(ignis_status_last() == IGNIS_OK || ignis_status_last() == IGNIS_ERROR_TIMEOUT ||
                  ignis_status_last() == IGNIS_ERROR_PEER);
            (void)ignis_comm_synchronize(comms[0]);
        }
        ignis_status_clear();
        free_all(&a);
        end();
        if (!failed)
            break;
    }
    CHECK(at > 1 && at < 20);
}

/*  T13: shutdown with communicators alive. It goes to its end whatever fails, and the next setup works. */
TEST(a_shutdown_that_fails_anywhere)
{
    const int step = test_env("IGNIS_SOAK") ? 1 : 7;
    int at;
    RANKS_SETUP(2);
    if (test_is_memcheck())
        SKIP("memory that the driver is made to keep would be reported");
    test_leaks_expected = true;
    for (at = 1; at < 400; at += step) {
        const char *failed;
        REQUIRE(begin(2, SMALL));
        CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 100, 0, 0, "before the shutdown"));
        fault_arm("cu", at, 1);
        (void)ignis_shutdown();
        failed = fault.failed;
        fault_disarm();
        ignis_status_clear();
        SETUP(NULL);
        if (!failed)
            break;
    }
    CHECK(at > 7 && at < 400);
    REQUIRE(begin(2, SMALL));
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 100, 0, 0, "after all shutdowns"));
    end();
}

int main(int argc, char **argv)
{
    setenv("IGNIS_SIM_DEVICES", "4", 0);
    if (process_role(argc, argv))
        return fault_main();
    return test_run(argc, argv);
}
