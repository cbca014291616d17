// SPDX-License-Identifier: MIT
/*  test_comm_job_deaths.c - what ranks notice: deaths, aborts, splits and shrinking, lies, threads, several hosts */
#define IGNIS__JOB_SILENCE_S 3
#include "fault.h"

/*  What the thread that reads what other ranks say asks first: it may be late. */
#ifdef _WIN32
#include <windows.h>
static BOOL WINAPI peek_late(HANDLE pipe, void *data, DWORD size, DWORD *got, DWORD *available, DWORD *left);
#define PeekNamedPipe peek_late
#else
#include <poll.h>
static int poll_late(struct pollfd *polls, nfds_t count, int ms);
#define poll poll_late
#endif

#include "ranks.h"

#include "puppets.h"

#ifndef _WIN32
#include <arpa/inet.h>
#include <sys/ioctl.h>
#endif

/* --- split, shrink, abort, death ---------------------------------------------------------------------------------- */

TEST(split_orders_by_key_and_color)
{
    process ranks[RANKS];
    outcome result;
    int i;
    NEEDS(RANKS);
    start(ranks, RANKS, "");
    all(ranks, RANKS, INIT, 0, 0);
    for (i = 0; i < RANKS; i++)
        tell(&ranks[i], SPLIT, 0, 1, i % 2, -i); /* 2, 0 and 3, 1 */
    all_well(ranks, RANKS);
    for (i = 0; i < RANKS; i++) {
        result = ask(&ranks[i], QUERY, 1);
        CHECK_INT(result.info.size, 2);
        CHECK_INT(result.info.rank, i < 2);
        CHECK_INT(result.info.device, i);
    }
    all(ranks, RANKS, DESTROY, 0, 0); /* the new ones do without the old one */
    for (i = 0; i < RANKS; i++)
        tell(&ranks[i], SPLIT, 1, 2, i < 2 ? 0 : -1, 0);
    for (i = 0; i < RANKS; i++) {
        tell(&ranks[i], QUERY, 2, 2, 0, 0);
        result = hear(&ranks[i]);
        CHECK_WENT_WELL(result);
        CHECK_INT(result.handle, i < 2);
        result = hear(&ranks[i]);
        CHECK_INT(result.info.size, i < 2 ? 1 : 0);
    }
    finish(ranks, RANKS);
    folder_end();
}

TEST(a_death_is_noticed_within_milliseconds_and_survivors_shrink)
{
    process ranks[RANKS];
    outcome result;
    int i, round;
    NEEDS(RANKS);
    start(ranks, RANKS, "");
    all(ranks, RANKS, INIT, 0, 0);
    for (i = 0; i < RANKS; i++)
        tell(&ranks[i], SPLIT, 0, 3, i == 1 ? 0 : 1, 0); /* one that the dead rank has no part in */
    all_well(ranks, RANKS);
    for (round = 0; round < 2; round++) { /* rank 1 dies, and then rank 0, who led the meeting */
        int dead = 1 - round;
        double noticed = 0;
        for (i = 0; i < RANKS; i++)
            if (i != dead && ranks[i].pid > 0)
                tell(&ranks[i], WAIT, round, round, 0, 0);
        ignis__sleep_us(100000);
        die(&ranks[dead]);
        for (i = 0; i < RANKS; i++) {
            if (ranks[i].pid < 0)
                continue;
            result = hear(&ranks[i]);
            CHECK_INT(result.info.status, IGNIS_ERROR_PEER);
            CHECK_INT(result.info.failed_rank, 0 + (round == 0));
            noticed = result.seconds > noticed ? result.seconds : noticed;
        }
        CHECK(noticed < 2); /* 0.1 s of it before the kill */
        all(ranks, RANKS, SHRINK, round, round + 1);
        for (i = 0; i < RANKS; i++) {
            if (ranks[i].pid < 0)
                continue;
            result = ask(&ranks[i], QUERY, round + 1);
            CHECK_INT(result.info.size, RANKS - 1 - round);
            CHECK_INT(result.info.status, IGNIS_OK);
            CHECK_INT(result.info.rank, i > dead ? i - 1 - round : i);
            result = ask(&ranks[i], QUERY, 3);
            CHECK_INT(result.info.status, round ? IGNIS_ERROR_PEER : IGNIS_OK);
        }
    }
    all(ranks, RANKS, DESTROY, 0, 0);
    all(ranks, RANKS, DESTROY, 1, 1);
    all(ranks, RANKS, DESTROY, 2, 2);
    finish(ranks, RANKS);
    folder_end();
}

/*  Asked before there is a device: Linux is told where the simulator is, and Windows programs its folder. */
static bool simulated(void) { return getenv("IGNIS_CUDA_LIBRARY") || getenv("IGNIS_SIM_FOLDER"); }

/*  How operations are done, as a variable of the environment: by one algorithm after the other, or by the table.
    Thousands of threads that wait take the simulator seconds, so that it gets few. */
enum { WAYS = 5 };
static const char *way_of(int way)
{
    static const char *const table[WAYS] = {
        "ll_max=1M,ll_two_max=0,one_shot_max=0", "ll_max=0,ll_two_max=1M,one_shot_max=0",
        "ll_max=0,ll_two_max=0,one_shot_max=1024M", "ll_max=0,ll_two_max=0,one_shot_max=0", ""};
    static char text[256];
    const bool few = simulated();
    snprintf(text, sizeof text, "IGNIS_COMM_TUNE=%s%s%s", table[way], few && *table[way] ? "," : "",
             few ? "ll_blocks=3,ll_threads=64,blocks=3,threads=64,chunk=3K,lanes=2" : "");
    return text;
}

static int random_below(int limit)
{
    static uint32_t state = 2024;
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (uint32_t)limit);
}

/*  T8: at a time that is never the same, one of three is killed; 100 times with IGNIS_SOAK=1. */
TEST(a_rank_that_is_killed_at_any_time_ends_no_other)
{
    enum { BEFORE, INSIDE, AWAITED, AFTER, WHENS };
    process ranks[3];
    outcome result;
    char extra[256];
    int i, round, rounds = test_env("IGNIS_SOAK") ? 100 : 6;
    NEEDS(3);
    for (round = 0; round < rounds && !test__state.failures; round++) {
        const int dead = random_below(3), when = round < WHENS ? round : random_below(WHENS),
                  count = 1 << random_below(18), few = 1 + random_below(5);
        bool lost = false;
        snprintf(extra, sizeof extra, "%s%s", way_of(random_below(WAYS)),
                 round % 3 == 1 ? " IGNIS_COMM_TRANSPORT=staged" : "");
        start(ranks, 3, extra);
        patience = PROMPT;
        all(ranks, 3, INIT, 0, 0);
        all_reduce(ranks, 3, 0, count, 2);
        if (when == BEFORE)
            die(&ranks[dead]);
        for (i = 0; i < 3; i++)
            if (ranks[i].pid > 0 && !(when == AWAITED && i == dead))
                tell(&ranks[i], REDUCE, 0, 0, count, when == AFTER ? few : 1000000);
        if (when == AFTER) /* its last operation may not have ended at the others */
            CHECK_WENT_WELL(hear(&ranks[dead]));
        else if (when != BEFORE)
            ignis__sleep_us(random_below(test_env("IGNIS_SOAK") ? 200000 : 50000));
        if (when != BEFORE)
            die(&ranks[dead]);
        for (i = 0; i < 3; i++) {
            if (ranks[i].pid < 0)
                continue;
            result = hear(&ranks[i]);
            if (when == AFTER && result.status == IGNIS_OK) {
                tell(&ranks[i], REDUCE, 0, 0, count, 1);
                result = hear(&ranks[i]);
            }
            CHECK(result.status == IGNIS_ERROR_PEER || result.status == IGNIS_ERROR_TIMEOUT);
            CHECK(result.seconds < patience + PROMPT);
            lost |= result.status == IGNIS_ERROR_PEER;
            result = ask(&ranks[i], QUERY, 0);
            CHECK(result.info.status == IGNIS_ERROR_PEER || result.info.status == IGNIS_ERROR_TIMEOUT);
        }
        CHECK(lost);
        all(ranks, 3, SHRINK, 0, 1);
        all(ranks, 3, DESTROY, 0, 0);
        all_reduce(ranks, 3, 1, 5000, 3); /* on the same device: nothing has gone wrong there */
        for (i = 0; i < 3; i++)
            if (ranks[i].pid > 0)
                CHECK_INT(ask(&ranks[i], QUERY, 1).info.size, 2);
        if (test__state.failures)
            printf("in round %d: rank %d, time %d, %d numbers, %s\n", round, dead, when, count, extra);
        finish(ranks, 3);
    }
    folder_end();
}

/*  T10 */
TEST(a_rank_that_stands_still)
{
#ifdef _WIN32
    SKIP("a process that NtSuspendProcess has stopped does not always go on under Wine");
#else
    process ranks[3];
    outcome result;
    int i;
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0);
    all_reduce(ranks, 3, 0, 5000, 1); /* compiles what is used */
    all(ranks, 3, DESTROY, 0, 0);
    patience = 4;
    all(ranks, 3, INIT, 0, 0);
    all_reduce(ranks, 3, 0, 5000, 1);
    kill(ranks[2].pid, SIGSTOP); /* for less than the deadline */
    tell_all(ranks, 3, REDUCE, 0, 0, 5000, 2);
    ignis__sleep_us(500000);
    kill(ranks[2].pid, SIGCONT);
    all_well(ranks, 3);
    kill(ranks[2].pid, SIGSTOP); /* for more */
    tell_all(ranks, 3, REDUCE, 0, 0, 5000, 2);
    for (i = 0; i < 2; i++) {
        result = hear(&ranks[i]);
        CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
        CHECK_HAS(result.message, "rank 2");
        CHECK(result.seconds < patience + PROMPT);
    }
    tell(&ranks[0], SHRINK, 0, 1, 0, 0); /* it is alive, and does not come */
    result = hear(&ranks[0]);
    CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    kill(ranks[2].pid, SIGCONT);
    result = hear(&ranks[2]); /* too late: the others have given up */
    CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK(result.seconds < patience + PROMPT);
    tell(&ranks[2], REDUCE, 0, 0, 5000, 1);
    result = hear(&ranks[2]);
    CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_BROKEN);
    all(ranks, 3, SHRINK, 0, 1);
    all_reduce(ranks, 3, 1, 5000, 2);
    finish(ranks, 3);
    folder_end();
#endif
}

/*  T8: it has no device any more, and the others go on. */
TEST(a_fault_of_one_rank_ends_no_other)
{
    process ranks[3];
    outcome result;
    double aborted;
    int i, code;
    if (test_is_bypass() || getenv("IGNIS_SIM_SANITIZE"))
        SKIP("a memory checker takes the fault for a mistake");
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0);
    all_reduce(ranks, 3, 0, 5000, 2);
    CHECK_WENT_WELL(ask(&ranks[2], PREPARE, 0));
    for (i = 0; i < 2; i++)
        tell(&ranks[i], REDUCE, 0, 0, 5000, 1);
    result = ask(&ranks[2], FAULT, 0);
    CHECK_WENT(result, IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    CHECK_HAS(result.message, "CUDA_ERROR_ILLEGAL_ADDRESS");
    tell(&ranks[2], REDUCE, 0, 0, 5000, 1);
    result = hear(&ranks[2]);
    CHECK_WENT(result, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    aborted = test_seconds();
    CHECK_WENT_WELL(ask(&ranks[2], ABORT, 0));
    for (i = 0; i < 2; i++) {
        result = hear(&ranks[i]); /* it was in the operation, or came to it later */
        CHECK_INT(result.status, IGNIS_ERROR_PEER);
        CHECK_HAS(result.message, "rank 2 died or abandoned the communicator");
    }
    CHECK(test_seconds() - aborted < PROMPT);
    code = process_end(&ranks[2]);
    CHECK(code == 0 || code == 92); /* ignis_shutdown may report what the driver says of the device */
    ranks[2].pid = -1;
    all(ranks, 2, SHRINK, 0, 1);
    all_reduce(ranks, 2, 1, 5000, 2);
    CHECK_INT(ask(&ranks[1], QUERY, 1).info.size, 2);
    finish(ranks, 3);
    folder_end();
}

/*  T11: each of them hears of it, and all can go on with a new communicator. */
TEST(processes_that_disagree_all_hear_of_it)
{
    process ranks[3];
    outcome result;
    int i, way;
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0);
    for (way = 0; way < WAYS_TO_DIFFER; way++) {
        tell_all(ranks, 3, DIFFER, way, way, way, 0);
        for (i = 0; i < 3; i++) {
            result = hear(&ranks[i]);
            CHECK_WENT(result, IGNIS_ERROR_MISMATCH, IGNIS_DIAG_COMM_MISMATCH);
            CHECK_HAS(result.message, "calls");
            CHECK(result.seconds < PROMPT);
        }
        all(ranks, 3, SHRINK, way, way + 1);
        all(ranks, 3, DESTROY, way, way);
        all_reduce(ranks, 3, way + 1, 1000, 1);
    }
    finish(ranks, 3);
    folder_end();
}

/*  The bits of sums on all ranks, which are to be the same; 0 when something failed. */
static uint64_t bits_of(process *ranks, int count)
{
    uint64_t hash = 0;
    outcome result;
    int i;
    tell_all(ranks, count, BITS, 0, 0, 0, 0);
    for (i = 0; i < count; i++) {
        result = hear(&ranks[i]);
        CHECK_WENT_WELL(result);
        CHECK(i == 0 || result.hash == hash);
        hash = result.hash;
    }
    return hash;
}

/*  Through each other's memory or the host's, by whatever algorithm: sums of three ranks have the same bits. */
static uint64_t bits_first;
TEST(transports_and_algorithms_give_the_same_bits)
{
    process ranks[3];
    char extra[256];
    int way, staged;
    NEEDS(3);
    for (staged = 0; staged < 2; staged++)
        for (way = 0; way < WAYS; way++) {
            uint64_t hash;
            snprintf(extra, sizeof extra, "%s IGNIS_COMM_TRANSPORT=%s", way_of(way), staged ? "staged" : "peer");
            start(ranks, 3, extra);
            all(ranks, 3, INIT, 0, 0);
            hash = bits_of(ranks, 3);
            if (!bits_first)
                bits_first = hash;
            CHECK(hash == bits_first);
            finish(ranks, 3);
        }
    folder_end();
}

/*  T15: what is seen of the devices, and who reaches whom, differs; sums do not. */
TEST(hidden_and_permuted_devices)
{
    static const struct {
        const char *extra[3]; /* of each rank; null: as the one before */
        int local[3];         /* the device that it is to use, of those that it sees */
        ignis_comm_transport transport;
        const char *reason;
        bool simulated; /* of the simulator only */
    } table[] = {
        {{"", NULL, NULL}, {0, 1, 2}, IGNIS_COMM_PEER, "each other's memory", false},
        {{"CUDA_VISIBLE_DEVICES=2,0,1", NULL, NULL}, {0, 1, 2}, IGNIS_COMM_PEER, "each other's memory", false},
        {{"CUDA_VISIBLE_DEVICES=0,1,2", "CUDA_VISIBLE_DEVICES=1,2,0", "CUDA_VISIBLE_DEVICES=2,0,1"},
         {0, 0, 0},
         IGNIS_COMM_PEER,
         "each other's memory",
         false},
        {{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES=2"},
         /* whether memory of a device that is not seen can be mapped is up to the driver */
         {0, 1, 2},
         IGNIS_COMM_TRANSPORT_DEFAULT,
         "",
         false},
        {{"IGNIS_SIM_PEER=0", NULL, NULL}, {0, 1, 2}, IGNIS_COMM_STAGED, "host memory", true},
        {{"IGNIS_SIM_PEER=0-1", NULL, NULL}, {0, 1, 2}, IGNIS_COMM_STAGED, "host memory", true},
        {{"", NULL, "IGNIS_SIM_PEER=0-1"},
         {0, 1, 2},
         IGNIS_COMM_STAGED,
         "host memory",
         true}, /* one rank's veto is enough */
    };
    uint64_t hash = 0;
    char text[128];
    int c, i;
    NEEDS(3);
    if (getenv("CUDA_VISIBLE_DEVICES"))
        SKIP("CUDA_VISIBLE_DEVICES is set already");
    for (c = 0; c < (int)(sizeof table / sizeof table[0]); c++) {
        process ranks[3];
        const char *extra = "";
        if (table[c].simulated && !simulated())
            continue;
        for (i = 0; i < 3; i++) {
            extra = table[c].extra[i] ? table[c].extra[i] : extra;
            snprintf(text, sizeof text, "IGNIS_NCCL_LIBRARY=missing %s", extra);
            ranks[i] = puppet_new(rank_in_folder(i, 3, table[c].local[i], text));
        }
        all(ranks, 3, INIT, 0, 0);
        for (i = 0; i < 3; i++) {
            outcome result = ask(&ranks[i], QUERY, 0);
            if (table[c].transport)
                CHECK_INT(result.info.transport, table[c].transport);
            CHECK_HAS(result.info.reason, table[c].reason);
        }
        if (c == 0)
            hash = bits_of(ranks, 3);
        else
            CHECK(bits_of(ranks, 3) == hash);
        if (test__state.failures)
            printf("case %d\n", c);
        end(ranks, 3);
    }
    folder_end();
}

/*  T15: the first device of one and the second of another may be one. */
TEST(a_device_is_known_by_more_than_its_number)
{
    process ranks[2];
    int i;
    NEEDS(2);
    if (getenv("CUDA_VISIBLE_DEVICES"))
        SKIP("CUDA_VISIBLE_DEVICES is set already");
    for (i = 0; i < 2; i++) {
        ranks[i] = puppet_new(rank_in_folder(i, 2, i, i ? "CUDA_VISIBLE_DEVICES=1,0" : "CUDA_VISIBLE_DEVICES=0,1"));
        tell(&ranks[i], INIT, 0, 0, 0, 0);
    }
    one_gpu_is_refused(ranks);
    end(ranks, 2);
    folder_end();
}

/*  T14: with folders of their own they know nothing of each other. */
TEST(two_jobs_at_once)
{
    process ranks[4];
    char text[512], place[2][100];
    outcome result;
    int i;
    NEEDS(4);
    for (i = 0; i < 2; i++) {
        snprintf(place[i], sizeof place[i], "%s/%d", folder, i);
        CHECK(mkdir(place[i], 0700) == 0);
    }
    for (i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "IGNIS_RANK=%d IGNIS_WORLD_SIZE=2 IGNIS_LOCAL_RANK=%d IGNIS_COMM_DIR=%s", i / 2, i,
                 place[i % 2]);
        ranks[i] = puppet_take(text);
    }
    all_well(ranks, 4);
    all(ranks, 4, INIT, 0, 0);
    all_reduce(ranks, 4, 0, 10000, 20);
    for (i = 0; i < 4; i++) {
        result = ask(&ranks[i], QUERY, 0);
        CHECK_INT(result.info.rank, i / 2);
        CHECK_INT(result.info.size, 2);
        CHECK_INT(result.info.device, i);
    }
    die(&ranks[3]);
    result = ask(&ranks[1], WAIT, 0);
    CHECK_INT(result.info.status, IGNIS_ERROR_PEER);
    tell(&ranks[0], REDUCE, 0, 0, 1000, 5);
    tell(&ranks[2], REDUCE, 0, 0, 1000, 5);
    CHECK_WENT_WELL(hear(&ranks[0]));
    CHECK_WENT_WELL(hear(&ranks[2]));
    finish(ranks, 4);
    for (i = 0; i < 2; i++)
        CHECK_INT(rmdir(place[i]), 0);
    folder_end();
}

TEST(a_rank_that_dies_while_others_shrink_is_left_out_too)
{
    process ranks[RANKS];
    outcome result;
    int i;
    NEEDS(RANKS);
    start(ranks, RANKS, "");
    all(ranks, RANKS, INIT, 0, 0);
    die(&ranks[3]);
    tell(&ranks[0], SHRINK, 0, 1, 0, 0);
    tell(&ranks[1], SHRINK, 0, 1, 0, 0);
    ignis__sleep_us(50000);
    die(&ranks[2]);
    all_well(ranks, 2);
    for (i = 0; i < 2; i++) {
        result = ask(&ranks[i], QUERY, 1);
        CHECK_INT(result.info.size, 2);
    }
    finish(ranks, RANKS);
    folder_end();
}

TEST(shrink_without_deaths_and_after_one_has_left)
{
    process ranks[3];
    outcome result;
    int i;
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0);
    all(ranks, 3, SHRINK, 0, 1);
    for (i = 0; i < 3; i++)
        CHECK_INT(ask(&ranks[i], QUERY, 1).info.size, 3);
    CHECK_WENT_WELL(ask(&ranks[1], DESTROY, 1)); /* a goodbye is no death */
    CHECK_WENT_WELL(ask(&ranks[1], DESTROY, 0));
    ignis__sleep_us(50000);
    for (i = 0; i < 3; i += 2)
        CHECK_INT(ask(&ranks[i], QUERY, 1).info.status, IGNIS_OK);
    tell(&ranks[0], SPLIT, 1, 2, 0, 0); /* it does not come */
    result = hear(&ranks[0]);
    CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_PEER);
    CHECK_HAS(result.message, "rank 1 has died or left");
    tell(&ranks[0], SHRINK, 1, 2, 0, 0);
    tell(&ranks[2], SHRINK, 1, 2, 0, 0);
    CHECK_WENT_WELL(hear(&ranks[0]));
    CHECK_WENT_WELL(hear(&ranks[2]));
    CHECK_INT(ask(&ranks[2], QUERY, 2).info.rank, 1);
    finish(ranks, 3);
    folder_end();
}

TEST(abort_reaches_all_ranks)
{
    process ranks[3];
    int i;
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0);
    all(ranks, 3, SPLIT, 0, 1);
    CHECK_WENT_WELL(ask(&ranks[1], ABORT, 0));
    for (i = 0; i < 3; i++) {
        outcome result = ask(&ranks[i], WAIT, 0);
        CHECK_INT(result.info.status, IGNIS_ERROR_PEER);
        CHECK_INT(result.info.failed_rank, 1);
        CHECK(result.seconds < PROMPT);
        CHECK_INT(ask(&ranks[i], QUERY, 1).info.status, IGNIS_OK);
    }
    all(ranks, 3, SHRINK, 0, 2);
    for (i = 0; i < 3; i++)
        CHECK_INT(ask(&ranks[i], QUERY, 2).info.size, 3);
    tell(&ranks[0], REDUCE, 2, 2, 1000, 1); /* the others do not come: one of them aborts instead */
    ignis__sleep_us(100000);
    CHECK_WENT_WELL(ask(&ranks[1], ABORT, 2));
    {
        outcome result = hear(&ranks[0]);
        CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_PEER);
        CHECK(result.seconds < PROMPT);
    }
    finish(ranks, 3);
    folder_end();
}

TEST(a_rank_that_does_not_come_to_a_split_is_named)
{
    process ranks[2];
    outcome result;
    NEEDS(2);
    start(ranks, 2, "");
    all(ranks, 2, INIT, 0, 0); /* compiles what is used */
    all(ranks, 2, DESTROY, 0, 0);
    patience = 2;
    all(ranks, 2, INIT, 0, 0);
    result = ask(&ranks[0], SPLIT, 0);
    CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK_HAS(result.message, "rank 1 did not answer");
    CHECK(result.seconds < patience + PROMPT);
    finish(ranks, 2);
    folder_end();
}

/*  One rank comes after the others have given up, finds nobody, and gives up too. Then all come. */
static void one_is_late(int what)
{
    process ranks[3];
    outcome result;
    int i, round;
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0); /* compiles what is used */
    all(ranks, 3, DESTROY, 0, 0);
    patience = 2;
    all(ranks, 3, INIT, 0, 0);
    patience = PATIENCE;
    tell_all(ranks, 2, what, 0, 1, 0, 0);
    for (i = 0; i < 3; i++) {
        if (i == 2)
            tell(&ranks[2], what, 0, 1, 1, 0); /* with a color that it will not give again */
        result = hear(&ranks[i]);
        CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
        CHECK(!result.handle);
    }
    for (round = 0; round < 2; round++) {
        all(ranks, 3, what, 0, 1);
        for (i = 0; i < 3; i++)
            CHECK_INT(ask(&ranks[i], QUERY, 1).info.size, 3);
        all_reduce(ranks, 3, 1, 1000, 2);
        all(ranks, 3, DESTROY, 1, 1);
    }
    finish(ranks, 3);
    folder_end();
}

TEST(all_split_after_one_was_late)
{
    NEEDS(3);
    one_is_late(SPLIT);
}

TEST(all_shrink_after_one_was_late)
{
    NEEDS(3);
    one_is_late(SHRINK);
}

TEST(a_rank_that_is_late_meets_those_who_try_again)
{
    process ranks[3];
    outcome result;
    int i;
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0);
    all(ranks, 3, DESTROY, 0, 0);
    patience = 4; /* less passes on a machine that is busy */
    all(ranks, 3, INIT, 0, 0);
    patience = PATIENCE;
    tell_all(ranks, 2, SPLIT, 0, 1, 0, 0);
    ignis__sleep_us(1500000);
    for (i = 0; i < 2; i++) {
        result = hear(&ranks[i]);
        CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    }
    tell(&ranks[2], SPLIT, 0, 1, 0, 0); /* it takes the old messages for new ones, until the others come again */
    ignis__sleep_us(300000);
    tell_all(ranks, 2, SPLIT, 0, 1, 0, 0);
    all_well(ranks, 3);
    all_reduce(ranks, 3, 1, 1000, 1);
    tell_all(ranks, 2, SPLIT, 0, 2, 0, 0); /* and where they come with something else, it is told */
    for (i = 0; i < 2; i++)
        CHECK_INT(hear(&ranks[i]).status, IGNIS_ERROR_TIMEOUT);
    tell_all(ranks, 2, SHRINK, 0, 2, 0, 0);
    ignis__sleep_us(100000);
    tell(&ranks[2], SPLIT, 0, 2, 0, 0);
    result = hear(&ranks[2]);
    CHECK_WENT(result, IGNIS_ERROR_MISMATCH, IGNIS_DIAG_COMM_MISMATCH);
    CHECK_HAS(result.message, "calls ignis_comm_shrink");
    CHECK(result.seconds < PROMPT);
    tell(&ranks[2], SHRINK, 0, 2, 0, 0);
    all_well(ranks, 3);
    all_reduce(ranks, 3, 2, 1000, 1);
    finish(ranks, 3);
    folder_end();
}

TEST(shrink_leaves_out_whom_it_is_told_to)
{
    process ranks[3];
    outcome result;
    int i;
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0);
#ifndef _WIN32
    kill(ranks[1].pid, SIGSTOP); /* neither dead nor there */
#endif
    tell(&ranks[0], WITHOUT, 0, 1, 1 << 1, 0);
    tell(&ranks[2], WITHOUT, 0, 1, 1 << 1, 0);
    for (i = 0; i < 3; i += 2) {
        result = hear(&ranks[i]);
        CHECK_WENT_WELL(result);
        CHECK(result.seconds < PROMPT);
    }
    result = ask(&ranks[2], QUERY, 1);
    CHECK_INT(result.info.size, 2);
    CHECK_INT(result.info.rank, 1);
    tell(&ranks[0], REDUCE, 1, 1, 1000, 2);
    tell(&ranks[2], REDUCE, 1, 1, 1000, 2);
    CHECK_WENT_WELL(hear(&ranks[0]));
    CHECK_WENT_WELL(hear(&ranks[2]));
#ifndef _WIN32
    kill(ranks[1].pid, SIGCONT);
#endif
    /* it learns that the others have gone on */
    tell(&ranks[1], SHRINK, 0, 1, 0, 0);
    result = hear(&ranks[1]);
    CHECK_WENT(result, IGNIS_ERROR_MISMATCH, IGNIS_DIAG_COMM_MISMATCH);
    CHECK(result.seconds < PROMPT);
    for (i = 0; i < 3; i += 2)
        CHECK_INT(ask(&ranks[i], QUERY, 1).info.status, IGNIS_OK);
    all_reduce(ranks, 3, 0, 1000, 1); /* the old one still works: nobody had died */
    finish(ranks, 3);
    folder_end();
}

/*  Ranks 0 and 2 have named different ranks, and learn it at once. */
static void both_differ(process *ranks)
{
    int i;
    for (i = 0; i < 3; i += 2) {
        outcome result = hear(&ranks[i]);
        CHECK_WENT(result, IGNIS_ERROR_MISMATCH, IGNIS_DIAG_COMM_MISMATCH);
        CHECK_HAS(result.message, "excludes other ranks");
        CHECK(result.seconds < PROMPT);
    }
}

TEST(survivors_have_to_name_the_same_ranks)
{
    process ranks[3];
    outcome result;
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0);
    tell(&ranks[0], WITHOUT, 0, 1, 1 << 1, 0);
    tell(&ranks[2], SHRINK, 0, 1, 0, 0);
    both_differ(ranks);
    tell(&ranks[0], WITHOUT, 0, 1, 1 << 0, 0);
    result = hear(&ranks[0]);
    CHECK_WENT(result, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_HAS(result.message, "ranks[0] is 0, which is this rank");
    tell(&ranks[0], WITHOUT, 0, 1, 1 << 2 | 1 << 5, 0);
    result = hear(&ranks[0]);
    CHECK_WENT(result, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_HAS(result.message, "ranks[1] is 5");
    all(ranks, 3, SHRINK, 0, 1);
    all_reduce(ranks, 3, 1, 1000, 1);
    all_do(ranks, 3, WITHOUT, 1, 2, 0, 0); /* nobody is named */
    all_reduce(ranks, 3, 2, 1000, 1);
    finish(ranks, 3);
    folder_end();
}

/*  What a rank had said, and has given up since, is known to a call that begins afterwards, though nobody has read it
    yet. */
TEST(what_was_given_up_before_a_call_does_not_count_in_it)
{
    process ranks[3];
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0);
    tell(&ranks[0], WITHOUT, 0, 1, 1 << 1, 0);
    ignis__sleep_us(300000); /* rank 1 reads it */
    tell(&ranks[1], DOZE, 0, 0, 0, 0);
    CHECK_WENT_WELL(hear(&ranks[1]));
    tell(&ranks[2], SHRINK, 0, 1, 0, 0);
    both_differ(ranks);
    all(ranks, 3, SHRINK, 0, 1);
    all_reduce(ranks, 3, 1, 1000, 1);
    finish(ranks, 3);
    folder_end();
}

/* --- in this process: threads, descriptors, failures -------------------------------------------------------------- */

/*  Descriptors that are nobody's fault: drivers open some of their own, and MinGW's threads keep some events for those
    to come. */
static int spare_descriptors(void)
{
#ifdef _WIN32
    const int of_threads = 4;
#else
    const int of_threads = 0;
#endif
    return test_is_simulator() ? of_threads : 8;
}

typedef struct member {
    ignis_comm_desc desc;
    int rounds;
    char place[96];
    ignis_status status; /* the first that was not IGNIS_OK */
    char message[512];
} member;

/*  Captures an operation, and launches it when the communicator is gone: it ends at once. */
static void *member_outlives(void *pointer)
{
    member *m = (member *)pointer;
    ignis_comm comm = ignis_comm_init(&m->desc);
    ignis_comm_info info = {0};
    ignis_graph graph;
    ignis_array x;
    int i;
    CHECK_OK(ignis_comm_query(comm, &info));
    CHECK_OK(ignis_device_use(info.device));
    x = make(IGNIS_SHAPE(100000), IGNIS_F32);
    CHECK_OK(ignis_array_fill(x, 1));
    for (i = 0; i < 2; i++) {
        if (i)
            CHECK_OK(ignis_graph_begin());
        CHECK_OK(ignis_comm_all_reduce(comm, x, x, IGNIS_OP_SUM));
        CHECK_OK(ignis_comm_barrier(comm));
        if (!i)
            CHECK_OK(ignis_comm_synchronize(comm));
    }
    graph = ignis_graph_end();
    CHECK_OK(ignis_comm_destroy(comm));
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_array_free(x));
    m->status = ignis_status_last();
    return NULL;
}

static void *member_run(void *pointer)
{
    member *m = (member *)pointer;
    int i;
    for (i = 0; i < m->rounds && m->status == IGNIS_OK; i++) {
        ignis_comm comm = ignis_comm_init(&m->desc);
        CHECK((comm.id == 0) == (ignis_status_last() != IGNIS_OK));
        if (comm.id)
            ignis_comm_destroy(comm);
        m->status = ignis_status_last();
        snprintf(m->message, sizeof m->message, "%s", ignis_status_message());
        ignis_status_clear();
    }
    return NULL;
}

/*  Threads, each a rank, and what each does. */
static void members_run_as(void *(*run)(void *), member *members, int count, int rounds, ignis_comm_transport transport,
                           double timeout_s)
{
    pthread_t threads[RANKS];
    int i;
    for (i = 0; i < count; i++) {
        memset(&members[i], 0, sizeof members[i]);
        members[i].desc.rank = i, members[i].desc.size = count, members[i].desc.transport = transport;
        members[i].desc.timeout_s = timeout_s;
        members[i].desc.rendezvous = members[i].place;
        members[i].rounds = rounds;
        snprintf(members[i].place, sizeof members[i].place, "dir:%s", folder);
        pthread_create(&threads[i], NULL, run, &members[i]);
    }
    for (i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/*  rounds of init and destroy. */
static void members_run(member *members, int count, int rounds, ignis_comm_transport transport, double timeout_s)
{
    members_run_as(member_run, members, count, rounds, transport, timeout_s);
}

#ifdef _WIN32 /* which has no NCCL */
enum { TRANSPORTS = 2 };
#else
enum { TRANSPORTS = 3 };
#endif
TEST(graphs_outlive_communicators_of_every_transport)
{
    static const ignis_comm_transport transports[] = {IGNIS_COMM_PEER, IGNIS_COMM_STAGED, IGNIS_COMM_NCCL};
    member members[2];
    int i, r;
    NEEDS(2);
    SETUP(NULL);
    for (i = 0; i < TRANSPORTS; i++) {
        members_run_as(member_outlives, members, 2, 1, transports[i], 5);
        for (r = 0; r < 2; r++)
            CHECK_INT(members[r].status, IGNIS_OK);
    }
    folder_end();
}

/* --- many threads of each rank ------------------------------------------------------------------------------------ */

/*  What befalls the communicator while others use it. */
typedef enum mishap { NO_MISHAP, ABORTED, ENDED, SPLIT_UP, SHRUNK, MISHAPS } mishap;

/*  A rank that several threads use at once. */
typedef struct crowd {
    ignis_comm comm;
    int rank;
    mishap what;
    uint64_t wrong; /* failures that do not belong there */
} crowd;

enum { CROWD_NUMBERS = 5000, CROWD_ROUNDS = 12 };

/*  A failure of a communicator that others break or end is one of these. */
static void crowd_check(crowd *c, ignis_status status)
{
    bool expected =
        status == IGNIS_OK || (c->what != NO_MISHAP && (status == IGNIS_ERROR_PEER || status == IGNIS_ERROR_FREED));
    expected = expected || (c->what == ENDED &&
                            status == IGNIS_ERROR_TIMEOUT); /* one rank may end before the other's last operation */
    if (!expected) {
        ignis__atomic_add(&c->wrong, 1);
        fprintf(stderr, "rank %d, mishap %d: %s\n", c->rank, (int)c->what, ignis_status_message());
    }
    ignis_status_clear();
}

static void *crowd_operates(void *pointer)
{
    crowd *c = (crowd *)pointer;
    ignis_array x, y;
    int i;
    ignis_device_use(c->rank);
    x = make(IGNIS_SHAPE(CROWD_NUMBERS), IGNIS_F32), y = make(IGNIS_SHAPE(CROWD_NUMBERS), IGNIS_F32);
    CHECK_OK(ignis_array_fill(x, 1));
    for (i = 0; i < CROWD_ROUNDS; i++) {
        crowd_check(c, ignis_comm_all_reduce(c->comm, x, y, IGNIS_OP_SUM));
        if (i % 3 == 0)
            crowd_check(c, ignis_comm_synchronize(c->comm));
    }
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_array_free(x));
    CHECK_OK(ignis_array_free(y));
    return NULL;
}

static void *crowd_looks(void *pointer)
{
    crowd *c = (crowd *)pointer;
    ignis_comm_info info;
    int i;
    for (i = 0; i < 200; i++) {
        crowd_check(c, ignis_comm_query(c->comm, &info));
        crowd_check(c, ignis_comm_status(c->comm));
        ignis__sleep_us(100);
    }
    return NULL;
}

/*  Captures the same operation, and launches it as often as crowd_operates does its own. */
static void *crowd_captures(void *pointer)
{
    crowd *c = (crowd *)pointer;
    ignis_graph graph;
    ignis_array x, y;
    int i;
    ignis_device_use(c->rank);
    x = make(IGNIS_SHAPE(CROWD_NUMBERS), IGNIS_F32), y = make(IGNIS_SHAPE(CROWD_NUMBERS), IGNIS_F32);
    CHECK_OK(ignis_array_fill(x, 1));
    CHECK_OK(ignis_array_fill(y, 1));
    CHECK_OK(ignis_graph_begin());
    crowd_check(c, ignis_comm_all_reduce(c->comm, x, y, IGNIS_OP_SUM));
    graph = ignis_graph_end();
    for (i = 0; i < CROWD_ROUNDS && graph.id; i++)
        crowd_check(c, ignis_graph_launch(graph));
    CHECK_OK(ignis_synchronize());
    if (graph.id)
        CHECK_OK(ignis_graph_free(graph));
    ignis_status_clear();
    CHECK_OK(ignis_array_free(x));
    CHECK_OK(ignis_array_free(y));
    return NULL;
}

static void *crowd_befalls(void *pointer)
{
    crowd *c = (crowd *)pointer;
    ignis_comm other = {0};
    ignis__sleep_us(3000);
    switch (c->what) {
    case ABORTED:
        if (c->rank == 0)
            crowd_check(c, ignis_comm_abort(c->comm));
        break;
    case ENDED: crowd_check(c, ignis_comm_destroy(c->comm)); break;
    case SPLIT_UP: other = ignis_comm_split(c->comm, 0, 0); break;
    case SHRUNK: other = ignis_comm_shrink(c->comm); break;
    default: break;
    }
    if (other.id) { /* on a stream of its own, as the operations of the first come in another order on the other rank */
        ignis__device *device = &ignis__devices[c->rank];
        ignis__binding binding;
        void *stream = NULL;
        CHECK(ignis__device_enter("crowd_befalls", device, &binding));
        CHECK_INT(ignis__cuda.cuStreamCreate(&stream, IGNIS__CU_STREAM_NON_BLOCKING), 0);
        CHECK_OK(ignis_device_use(c->rank));
        CHECK_OK(ignis_stream_use(stream));
        crowd_check(c, ignis_comm_barrier(other));
        crowd_check(c, ignis_comm_synchronize(other));
        crowd_check(c, ignis_comm_destroy(other));
        CHECK_OK(ignis_stream_use(NULL));
        CHECK_OK(ignis_stream_forget(stream));
        CHECK_INT(ignis__cuda.cuStreamDestroy_v2(stream), 0);
        ignis__device_leave(&binding);
    }
    crowd_check(c, ignis_status_last());
    return NULL;
}

static void *crowd_run(void *pointer)
{
    static void *(*const does[])(void *) = {crowd_operates, crowd_operates, crowd_captures, crowd_looks, crowd_befalls};
    enum { THREADS = sizeof does / sizeof does[0] };
    member *m = (member *)pointer;
    pthread_t threads[THREADS];
    crowd c;
    int i;
    memset(&c, 0, sizeof c);
    c.comm = ignis_comm_init(&m->desc);
    c.rank = m->desc.rank;
    c.what = (mishap)m->rounds;
    ignis_device_use(c.rank);
    crowd_check(&c, ignis_comm_barrier(c.comm));
    for (i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, does[i], &c);
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (c.what != ENDED)
        CHECK_OK(ignis_comm_destroy(c.comm));
    CHECK_INT(c.wrong, 0);
    m->status = ignis_status_last();
    snprintf(m->message, sizeof m->message, "%s", ignis_status_message());
    return NULL;
}

TEST(many_threads_use_one_communicator)
{
    static const ignis_comm_transport transports[] = {IGNIS_COMM_PEER, IGNIS_COMM_STAGED};
    member members[2];
    int what, t, r;
    NEEDS(2);
    SETUP(NULL);
    for (t = 0; t < 2; t++)
        for (what = 0; what < MISHAPS; what++) {
            members_run_as(crowd_run, members, 2, what, transports[t], what == ENDED ? 2 : 20);
            for (r = 0; r < 2; r++)
                CHECK_TEXT(members[r].message, "");
        }
    folder_end();
}

/*  As programs of MPI do: rank 0 makes an id, and all get it. It is used once. */
TEST(an_id_brings_ranks_together)
{
    member members[2];
    pthread_t threads[2];
    ignis_comm_desc desc;
    ignis_comm_id id;
    int i, descriptors;
    NEEDS(2);
    environment_clear();
    SETUP(NULL);
    CHECK_STATUS(ignis_comm_unique_id(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    memset(&id, 0, sizeof id);
    members_run(members, 2, 1, IGNIS_COMM_TRANSPORT_DEFAULT, 20); /* devices are open */
    descriptors = process_descriptors();
    CHECK_OK(ignis_comm_unique_id(&id));
    for (i = 0; i < 2; i++) {
        memset(&members[i], 0, sizeof members[i]);
        members[i].desc.rank = i, members[i].desc.size = 2, members[i].desc.timeout_s = 20;
        members[i].desc.id = &id;
        members[i].rounds = 1;
        pthread_create(&threads[i], NULL, member_run, &members[i]);
    }
    for (i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        CHECK_TEXT(members[i].message, "");
    }
    CHECK(process_descriptors() <= descriptors + spare_descriptors());
    desc = members[0].desc;
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("already used");
    desc.token = "sesame";
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.token = NULL;
    id.bytes[0] ^= 1;
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("not made by ignis_comm_unique_id");
    CHECK_OK(ignis_comm_unique_id(&id)); /* one that nobody uses ends with the shutdown */
    folder_end();
}

/*  T14. On the simulator a cycle of IGNIS_COMM_PEER takes 50 ms, as clearing 16 MiB of each region is as many page
    faults there. */
TEST(threads_are_ranks_and_leave_nothing_behind)
{
    static const ignis_comm_transport transports[] = {IGNIS_COMM_PEER, IGNIS_COMM_STAGED};
    member members[RANKS];
    int i, t, descriptors;
    long long live, blocks;
    static host_counter counter; /* the shutdown comes after the test */
    ignis_desc desc;
    NEEDS(2);
    environment_clear();
    desc = test_counting_desc(&counter);
    SETUP(&desc);
    for (t = 0; t < 2; t++) {
        members_run(members, 2, 2, transports[t], 20);
        descriptors = process_descriptors();
        live = memory().live_bytes;
        blocks = counter.blocks;
        members_run(members, 2, test_env("IGNIS_SOAK") ? 5000 : 25, transports[t], 20);
        for (i = 0; i < 2; i++)
            CHECK_TEXT(members[i].message, "");
        CHECK(process_descriptors() <= descriptors + spare_descriptors());
        CHECK_INT(memory().live_bytes, live);
        CHECK_INT(memory().vmm_bytes, 0);
        CHECK_INT(counter.blocks, blocks);
    }
    folder_end();
}

static uint64_t has_begun;

/*  Rank 0 comes with one operation and loads what the next one needs; the other has yet to load what it needs for the
    first. */
static void *loading_member_run(void *pointer)
{
    member *m = (member *)pointer;
    static const ignis_dtype dtypes[] = {IGNIS_F64, IGNIS_I64};
    ignis_array arrays[2];
    ignis_comm comm = ignis_comm_init(&m->desc);
    int i;
    CHECK(comm.id != 0);
    CHECK_OK(ignis_device_use(m->desc.rank));
    for (i = 0; i < 2; i++) {
        arrays[i] = make(IGNIS_SHAPE(100), dtypes[i]);
        CHECK_OK(ignis_array_zero(arrays[i]));
    }
    while (m->desc.rank > 0 && !ignis__atomic_load(&has_begun))
        test_sleep_ms(1);
    if (m->desc.rank > 0)
        test_sleep_ms(200);
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_comm_all_reduce(comm, arrays[i], arrays[i], IGNIS_OP_SUM));
        ignis__atomic_store(&has_begun, 1);
    }
    CHECK_OK(ignis_comm_synchronize(comm));
    for (i = 0; i < 2; i++)
        CHECK_OK(ignis_array_free(arrays[i]));
    CHECK_OK(ignis_comm_destroy(comm));
    return NULL;
}

TEST(threads_that_load_hold_up_no_other)
{
    member members[2];
    NEEDS(2);
    environment_clear();
    SETUP(NULL);
    members_run_as(loading_member_run, members, 2, 1, IGNIS_COMM_PEER, 5);
    folder_end();
}

/*  Rank 0 of two without a device, in a thread; true: it has noticed that the other one is gone. */
static void *light_leader(void *pointer)
{
    ignis__job *job = light_meet(0, 2, folder, "");
    double begin = test_seconds();
    bool gone = false;
    while (job && !gone && test_seconds() < begin + 10) {
        gone = ignis__job_rank_is_absent(job, NULL, 1);
        ignis__sleep_us(1000);
    }
    ignis__job_drop(job);
    *(bool *)pointer = job && gone;
    return NULL;
}

/*  T5: a rank that has proven itself and says what no rank says counts as dead, and nothing else comes of it. */
TEST(a_rank_that_lies_is_dead_to_the_others)
{
    static const struct {
        int32_t from, to;
        int type, size; /* of all; -1: of the header and 4 bytes */
        int fds;
    } lies[] = {{0, 0, IGNIS__JOB_ABORT, -1, 0},
                {-1, 0, IGNIS__JOB_ABORT, -1, 0},
                {2, 0, IGNIS__JOB_ABORT, -1, 0},
                {INT32_MAX, 0, IGNIS__JOB_BYE, -1, 0},
                {1, -1, IGNIS__JOB_RECORD, -1, 0},
                {1, 2, IGNIS__JOB_RECORD, -1, 0},

                {1, INT32_MIN, IGNIS__JOB_RECORD, -1, 0},
                {1, 0, IGNIS__JOB_LOST, -1, 0},
                {1, 0, IGNIS__JOB_ANSWER, -1, 0},
                {1, 0, IGNIS__JOB_TABLE, -1, 0},
                {1, 0, 99, -1, 0},
                {1, 0, -1, -1, 0},
                {1, 0, IGNIS__JOB_RECORD, 0, 0},
                {1, 0, IGNIS__JOB_RECORD, 15, 0},
                {1, 0, IGNIS__JOB_RECORD, 1000, 0},
                {1, 0, IGNIS__JOB_RECORD, -1, 2}};
    int i, ends[2], descriptors = 0;
    REQUIRE(folder_make());
    environment_clear();
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(lies); i++) {
        unsigned char bytes[1024] = {0};
        const ignis__deadline until = ignis__deadline_in(5000000000);
        ignis__job_header header = {0, 0, 0};
        ignis__peer_error error;
        pthread_t thread;
        bool noticed = false;
        ignis__job *job;
        if (i == 1) /* what is kept from the first time on is there */
            descriptors = process_descriptors();
        CHECK(pthread_create(&thread, NULL, light_leader, &noticed) == 0);
        job = light_meet(1, 2, folder, "");
        CHECK(job != NULL && pipe(ends) == 0);
        if (job) {
            header.from = lies[i].from, header.to = lies[i].to;
            memcpy(bytes, &header, sizeof header);
            ignis__mutex_lock(&job->links[0].connection->send_lock);
            CHECK(ignis__connection_send(&error, job->links[0].connection, (int)IGNIS__MESSAGE_JOB + lies[i].type,
                                         bytes, lies[i].size < 0 ? sizeof header + 4 : (size_t)lies[i].size, ends,
                                         lies[i].fds, &until));
            ignis__mutex_unlock(&job->links[0].connection->send_lock);
        }
        pthread_join(thread, NULL);
        CHECK(noticed);
        ignis__job_drop(job);
        close(ends[0]), close(ends[1]);
        if (test__state.failures) {
            printf("lie %d\n", i);
            break;
        }
    }
    CHECK(process_descriptors() <= descriptors + spare_descriptors());
    folder_end();
}

TEST(any_driver_call_may_fail)
{
    enum { PAIRS = 4 };
    static const char *const counted[PAIRS][2] = {{"cuMemMap", "cuMemUnmap"},
                                                  {"cuMemAddressReserve", "cuMemAddressFree"},
                                                  {"cuMemHostRegister_v2", "cuMemHostUnregister"},
                                                  {"cuStreamCreate", "cuStreamDestroy_v2"}};
    static const char *const freeing[] = {"cuMemUnmap",          "cuMemAddressFree",   "cuMemRelease",
                                          "cuMemHostUnregister", "cuStreamDestroy_v2", "cuMemFreeHost",
                                          "cuMemFree_v2",        "cuModuleUnload"};
    member members[2];
    int k, i, c, failures = 0, descriptors, step, spare;
    NEEDS(2);
    environment_clear();
    SETUP(NULL);
    members_run(members, 2, 1, IGNIS_COMM_TRANSPORT_DEFAULT, 20); /* devices are open, kernels loaded */
    descriptors = process_descriptors();
    step = test_is_simulator() || test_env("IGNIS_SOAK") ? 1 : 3;
    spare = spare_descriptors();
    for (k = 1; k < 400; k += step) {
        const char *failed;
        bool frees = false;
        int before[PAIRS];
        for (c = 0; c < PAIRS; c++)
            before[c] = fault_count(counted[c][0]) - fault_count(counted[c][1]);
        fault_arm("cu", k, 999);
        members_run(members, 2, 1, IGNIS_COMM_TRANSPORT_DEFAULT, 20);
        failed = fault.failed;
        fault_disarm();
        if (!failed)
            break;
        failures += members[0].status != IGNIS_OK;
        for (c = 0; c < (int)(sizeof freeing / sizeof freeing[0]); c++) /* what the driver is made to keep is kept */
            frees |= strcmp(failed, freeing[c]) == 0;
        if (frees)
            descriptors = process_descriptors();
        CHECK(process_descriptors() <= descriptors + spare);
        for (c = 0; c < PAIRS && !frees; c++)
            CHECK_INT(fault_count(counted[c][0]) - fault_count(counted[c][1]), before[c]);
        for (i = 0; i < 2; i++)
            if (members[i].status == IGNIS_ERROR_TIMEOUT)
                CHECK_TEXT(members[i].message, "no timeout");
        if (test__state.failures) {
            printf("at call %d, %s: %s | %s\n", k, failed, members[0].message, members[1].message);
            break;
        }
    }
    CHECK(k > 20 && k < 400);
    CHECK(failures > 0);
    members_run(members, 2, 1, IGNIS_COMM_TRANSPORT_DEFAULT, 20);
    CHECK_TEXT(members[0].message, "");
    folder_end();
}

/*  What a copy uses that does not end before the deadline stays. */
TEST(a_trial_that_is_late)
{
    member members[2];
    int mapped;
    NEEDS(2);
    environment_clear();
    SETUP(NULL);
    members_run(members, 2, 1, IGNIS_COMM_PEER, 20); /* devices are open, kernels loaded */
    CHECK_TEXT(members[0].message, "");
    mapped = fault_count("cuMemMap") - fault_count("cuMemUnmap");
    fault_arm("cuStreamQuery", 1, IGNIS__CU_NOT_READY);
    fault.all = true;
    members_run(members, 2, 1, IGNIS_COMM_PEER, 1);
    fault_disarm();
    CHECK_INT(members[0].status, IGNIS_ERROR_TIMEOUT);
    CHECK_INT(members[1].status, IGNIS_ERROR_TIMEOUT);
    CHECK_INT(fault_count("cuMemMap") - fault_count("cuMemUnmap"), mapped + 4);
    members_run(members, 2, 1, IGNIS_COMM_PEER, 20);
    CHECK_TEXT(members[0].message, "");
    folder_end();
}

TEST(what_is_forked_holds_nothing)
{
    process ranks[2];
    outcome result;
    NEEDS_POSIX("fork");
    NEEDS(2);
    start(ranks, 2, "");
    all(ranks, 2, INIT, 0, 0);
    CHECK_WENT_WELL(ask(&ranks[1], FORK, 0)); /* its child lives on, and fails every call */
    die(&ranks[1]);
    result = ask(&ranks[0], WAIT, 0);
    CHECK_INT(result.info.status, IGNIS_ERROR_PEER);
    CHECK(result.seconds < PROMPT);
    finish(ranks, 2);
    folder_end();
}

/* --- several hosts ------------------------------------------------------------------------------------------------ */

/*  Two "hosts" of two ranks: those of different ones speak through rank 0, and their data goes through NCCL. */
TEST(ranks_of_several_hosts_use_nccl)
{
    process ranks[RANKS];
    outcome result;
    char text[512];
    int i, port = free_port(), round;
    NEEDS(RANKS);
    for (i = 0; i < RANKS; i++) {
        snprintf(text, sizeof text,
                 "IGNIS_RANK=%d IGNIS_WORLD_SIZE=%d IGNIS_LOCAL_RANK=%d IGNIS_COMM_HOST=host%d MASTER_ADDR=localhost "
                 "MASTER_PORT=%d "
                 "IGNIS_SIM_STREAMS=thread",
                 i, RANKS, i, i / 2, port);
        ranks[i] = puppet_new(text);
        tell(&ranks[i], INIT, 0, 0, 0, 0);
    }
    for (i = 0; i < RANKS; i++) {
        result = hear(&ranks[i]);
        if (result.status == IGNIS_ERROR_LIBRARY) {
            for (i = 0; i < RANKS; i++)
                process_kill(&ranks[i]);
            folder_end();
            SKIP("NCCL is not installed");
        }
        CHECK_WENT_WELL(result);
    }
    for (i = 0; i < RANKS; i++) {
        result = ask(&ranks[i], QUERY, 0);
        CHECK_INT(result.info.transport, IGNIS_COMM_NCCL);
        CHECK_INT(result.info.hosts, 2);
        CHECK_INT(result.info.local_size, 2);
        CHECK_INT(result.info.local_rank, i % 2);
        CHECK_HAS(result.info.reason, "2 hosts");
        tell(&ranks[i], SPLIT, 0, 1, i / 2, 0); /* a host's own do without NCCL */
    }
    all_well(ranks, RANKS);
    for (i = 0; i < RANKS; i++)
        CHECK_INT(ask(&ranks[i], QUERY, 1).info.transport, IGNIS_COMM_PEER);
    for (round = 0; round < 2; round++)
        all_reduce(ranks, RANKS, round, 1000, 2);
    for (i = 0; i < RANKS - 1; i++)
        tell(&ranks[i], WAIT, 0, 0, 0, 0);
    ignis__sleep_us(50000);
    die(&ranks[RANKS - 1]);
    for (i = 0; i < RANKS - 1; i++) {
        result = hear(&ranks[i]);
        CHECK_INT(result.info.status, IGNIS_ERROR_PEER);
        CHECK_INT(result.info.failed_rank, RANKS - 1);
    }
    all(ranks, RANKS, SHRINK, 0, 2);
    for (i = 0; i < RANKS - 1; i++)
        CHECK_INT(ask(&ranks[i], QUERY, 2).info.size, 3);
    result = ask(&ranks[0], DESTROY, 2); /* waits for the others, but not for long */
    CHECK_WENT_WELL(result);
    CHECK(result.seconds < PROMPT);
    for (i = 0; i < 3; i++)
        all(ranks + 1, RANKS - 1, DESTROY, i, i);
    end(ranks, RANKS);
    folder_end();
}

/*  Those that no test has any more shut down well, too. */
TEST(puppets_end_well)
{
    if (devices() < 1)
        SKIP("there is no device");
    end(idle, RANKS);
    memset(idle, 0, sizeof idle);
}

int main(int argc, char **argv)
{
    const int code = ranks_main(argc, argv, own);
    int i;
    for (i = 0; i < RANKS; i++)
        if (idle[i].pid > 0)
            process_end(&idle[i]);
    return code;
}
