// SPDX-License-Identifier: MIT
/*  test_comm_nccl.c - communicators of one host that leave large operations to NCCL: when they join it, and what
    happens when one cannot */
#include "ranks.h"

#include "fake_nccl.h"

enum {
    CAPTURE = OWN, /* a sum of `color` numbers */
    LAUNCH,        /* of what was captured, `key` times */
    RELEASE,       /* it */
    REPLAY,        /* once, whatever comes of it */
    STATUS,        /* ignis_comm_status */
    MESSAGES,
    SIMULATED /* hash: whether the GPUs are simulated */
};

/*  A graph of one sum, and what it works on. */
static ignis_graph graph;
static ignis_array graph_in, graph_out;

static void graph_capture(ignis_comm comm, int count)
{
    ignis_comm_info info;
    ignis_comm_query(comm, &info);
    ignis_device_use(info.device);
    graph_in = make(IGNIS_SHAPE(count), IGNIS_F32);
    graph_out = make(IGNIS_SHAPE(count), IGNIS_F32);
    ignis_array_fill(graph_in, info.rank + 1);
    ignis_array_zero(graph_out);
    ignis_graph_begin();
    ignis_comm_all_reduce(comm, graph_in, graph_out, IGNIS_OP_SUM);
    graph = ignis_graph_end();
}

static void graph_launch(ignis_comm comm, int count, int times)
{
    ignis_comm_info info;
    float *data = (float *)malloc(sizeof(float) * (size_t)count);
    ignis_comm_query(comm, &info);
    while (times-- > 0 && ignis_status_last() == IGNIS_OK) {
        ignis_array_zero(graph_out);
        ignis_graph_launch(graph);
        if (ignis_comm_synchronize(comm) == IGNIS_OK &&
            ignis_array_to_host(graph_out, data, IGNIS_F32, count) == IGNIS_OK)
            CHECK(data[0] == (float)(info.size * (info.size + 1) / 2) && data[count - 1] == data[0]);
    }
    free(data);
}

static void graph_free(void)
{
    ignis_graph_free(graph);
    ignis_array_free(graph_in);
    ignis_array_free(graph_out);
}

/*  Every rank gives its number to the next one and gets that of the one before, at the same time and then in pairs. */
static void messages(ignis_comm comm, int count)
{
    ignis_comm_info info;
    ignis_array out, in;
    float *data = (float *)malloc(sizeof(float) * (size_t)count);
    int way, i, wrong, before;
    ignis_comm_query(comm, &info);
    ignis_device_use(info.device);
    out = make(IGNIS_SHAPE(count), IGNIS_F32), in = make(IGNIS_SHAPE(count), IGNIS_F32);
    before = (info.rank + info.size - 1) % info.size;
    for (way = 0; way < 2; way++) {
        ignis_array_fill(out, info.rank + 1);
        ignis_array_fill(in, 99);
        if (way == 0)
            ignis_comm_send_recv(comm, out, (info.rank + 1) % info.size, in, before);
        else if (info.rank % 2 == 0)
            ignis_comm_send(comm, out, info.rank + 1);
        else
            ignis_comm_recv(comm, in, before);
        ignis_comm_synchronize(comm);
        if (way == 0 || info.rank % 2) {
            ignis_array_to_host(in, data, IGNIS_F32, count);
            for (i = wrong = 0; i < count; i++)
                wrong += data[i] != (float)(before + 1);
            CHECK_INT(wrong, 0);
        }
    }
    ignis_array_free(out);
    ignis_array_free(in);
    free(data);
}

static void own(const command *todo, ignis_comm comm, outcome *result)
{
    switch (todo->what) {
    case CAPTURE: graph_capture(comm, todo->color); break;
    case LAUNCH: graph_launch(comm, todo->color, todo->key); break;
    case RELEASE: graph_free(); break;
    case REPLAY:
        ignis_graph_launch(graph);
        ignis_synchronize();
        break;
    case STATUS: ignis_comm_status(comm); break;
    case MESSAGES: messages(comm, todo->color); break;
    case SIMULATED: result->hash = test_is_simulator(); break;
    default: break;
    }
}

/*  Ranks that leave operations from 64 KB on to NCCL; `odd` (-1: none) has another library, or none. */
static void start_with_nccl(process *ranks, int count, int odd, const char *its_library)
{
    char extra[256];
    int i;
    for (i = 0; i < count; i++) {
        snprintf(extra, sizeof extra, "IGNIS_COMM_TUNE=nccl_min=64K IGNIS_SIM_STREAMS=thread %s%s",
                 i == odd ? "IGNIS_NCCL_LIBRARY=" : "", i == odd ? its_library : "");
        ranks[i] = puppet_new(rank_in_folder(i, count, i, extra));
    }
}

/*  init, by all, with a deadline. */
static void meet_within(process *ranks, int count, double timeout_s)
{
    patience = timeout_s;
    all(ranks, count, INIT, 0, 0);
}

/*  What all say of NCCL: "" nothing yet. */
static void all_say(process *ranks, int count, int on, const char *part)
{
    int i;
    for (i = 0; i < count; i++) {
        outcome result;
        if (ranks[i].pid <= 0)
            continue;
        result = ask(&ranks[i], QUERY, on);
        CHECK_INT(result.info.transport, IGNIS_COMM_PEER);
        CHECK_INT(result.info.status, IGNIS_OK);
        if (*part)
            CHECK_HAS(result.info.reason, part);
        else
            CHECK(strstr(result.info.reason, "NCCL") == NULL);
    }
}

enum { SMALL = 1000, LARGE = 100000 };
static const char helps[] = "NCCL runs large operations";

TEST(large_operations_join_nccl_when_the_first_comes)
{
    process ranks[RANKS];
    int i, count;
    for (count = 2; count <= RANKS; count += 2) {
        NEEDS(count);
        start_with_nccl(ranks, count, -1, "");
        meet_within(ranks, count, 20);
        all_reduce(ranks, count, 0, SMALL, 3);
        all_say(ranks, count, 0, "");
        all_reduce(ranks, count, 0, LARGE, 3);
        if (strstr(ask(&ranks[0], QUERY, 0).info.reason, "is not used")) {
            end(ranks, count);
            folder_end();
            SKIP("NCCL is not installed");
        }
        all_say(ranks, count, 0, helps);
        all_reduce(ranks, count, 0, SMALL, 3);
        all_reduce(ranks, count, 0, LARGE + 1, 3);
        for (i = 0; i < count; i++)
            tell(&ranks[i], SPLIT, 0, 1, i % 2, 0);
        all_well(ranks, count);
        if (count == RANKS) { /* a part has an NCCL of its own */
            all_say(ranks, count, 1, "");
            all_reduce(ranks, count, 1, LARGE, 2);
            all_say(ranks, count, 1, helps);
        }
        all(ranks, count, DESTROY, 0, 0);
        all(ranks, count, DESTROY, 1, 1);
        end(ranks, count);
        folder_end();
    }
}

TEST(messages_go_through_nccl)
{
    process ranks[2];
    int i;
    NEEDS(2);
    patience = 10;
    for (i = 0; i < 2; i++)
        ranks[i] = puppet_new(rank_in_folder(i, 2, i, "IGNIS_COMM_TRANSPORT=nccl IGNIS_SIM_STREAMS=thread"));
    tell_all(ranks, 2, INIT, 0, 0, 0, 0);
    for (i = 0; i < 2; i++) {
        outcome result = hear(&ranks[i]);
        if (result.status == IGNIS_ERROR_LIBRARY && i == 1) {
            end(ranks, 2);
            folder_end();
            SKIP("NCCL is not installed");
        }
        if (result.status != IGNIS_ERROR_LIBRARY)
            CHECK_WENT_WELL(result);
    }
    all_do(ranks, 2, MESSAGES, 0, 0, SMALL, 0);
    all(ranks, 2, DESTROY, 0, 0);
    end(ranks, 2);
    folder_end();
}

TEST(nccl_that_one_rank_lacks_is_used_by_none)
{
    process ranks[3];
    NEEDS(3);
    start_with_nccl(ranks, 3, 1, "missing/libnccl.so.2");
    meet_within(ranks, 3, 20);
    all_reduce(ranks, 3, 0, LARGE, 2);
    all_say(ranks, 3, 0, "NCCL was not found");
    CHECK_HAS(ask(&ranks[0], QUERY, 0).info.reason, "NCCL is not used: rank 1: ");
    all_reduce(ranks, 3, 0, LARGE, 2);
    all(ranks, 3, DESTROY, 0, 0);
    end(ranks, 3);
    folder_end();
}

/*  Joining never gets anywhere. */
static const char never_joins[] = "int ncclCommInitRankConfig(void **comm) { *comm = (void *)8; return 7; }\n"
                                  "int ncclCommGetAsyncError(void *comm, int *error) { *error = 7; return 0; }\n";

TEST(a_join_that_takes_too_long_leaves_all_without_nccl)
{
    process ranks[2];
    char path[64];
    int versions[] = {22809, 22810}, i;
    snprintf(path, sizeof path, "/tmp/ignis_test_job_nccl_%d.so", (int)getpid());
    for (i = 0; i < 2; i++) {
        NEEDS(2);
        if (!fake_nccl(path, versions[i], "", never_joins)) {
            folder_end();
            SKIP("there is no compiler");
        }
        start_with_nccl(ranks, 2, 1, path);
        meet_within(ranks, 2, 2);
        all_reduce(ranks, 2, 0, LARGE, 2);
        all_say(ranks, 2, 0, "NCCL is not used: ");
        if (i > 0)
            all_say(ranks, 2, 0, "version 22810 on rank 1");
        all_reduce(ranks, 2, 0, LARGE, 2);
        all(ranks, 2, DESTROY, 0, 0);
        end(ranks, 2);
        unlink(path);
        folder_end();
    }
}

TEST(a_rank_that_does_not_come_to_join_is_named)
{
    process ranks[2];
    outcome result;
    NEEDS(2);
    start_with_nccl(ranks, 2, -1, "");
    meet_within(ranks, 2, 2);
    tell(&ranks[0], REDUCE, 0, 0, LARGE, 1);
    result = hear(&ranks[0]);
    CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK_HAS(result.message, "rank 1 did not answer");
    CHECK(result.seconds < 2 + PROMPT);
    CHECK_INT(ask(&ranks[0], QUERY, 0).info.status, IGNIS_ERROR_TIMEOUT);
    CHECK_INT(ask(&ranks[1], WAIT, 0).info.status, IGNIS_ERROR_PEER);
    all(ranks, 2, DESTROY, 0, 0);
    end(ranks, 2);
    folder_end();
}

TEST(graphs_use_nccl_when_it_was_joined_before)
{
    process ranks[2];
    int joined;
    for (joined = 0; joined < 2; joined++) {
        NEEDS(2);
        start_with_nccl(ranks, 2, -1, "");
        meet_within(ranks, 2, 20);
        if (joined)
            all_reduce(ranks, 2, 0, LARGE, 1);
        all_do(ranks, 2, CAPTURE, 0, 0, LARGE, 0);
        all_say(ranks, 2, 0, joined ? "NCCL" : "");
        all_do(ranks, 2, LAUNCH, 0, 0, LARGE, 5);
        all_reduce(ranks, 2, 0, LARGE, 1);
        all_do(ranks, 2, LAUNCH, 0, 0, LARGE, 5);
        if (joined) { /* it may outlive the communicator, and does nothing then */
            all(ranks, 2, DESTROY, 0, 0);
            CHECK_WENT_WELL(ask(&ranks[0], REPLAY, 0));
            all(ranks, 2, INIT, 0, 0);
            all_reduce(ranks, 2, 0, LARGE, 1);
        }
        all(ranks, 2, RELEASE, 0, 0);
        end(ranks, 2); /* one after the other: a rank that leaves does not wait for one that stays */
        folder_end();
    }
}

/*  ncclCommAbort would wait for the graph; nobody else does. */
TEST(a_rank_that_dies_is_noticed_by_those_with_a_graph_of_nccl)
{
    process ranks[3];
    outcome result;
    int i, early;
    for (early = 0; early < 2; early++) {
        NEEDS(3);
        start_with_nccl(ranks, 3, -1, "");
        meet_within(ranks, 3, 20);
        all_do(ranks, 3, SPLIT, 0, 1, 0, 0);
        all_reduce(ranks, 3, 0, LARGE, 1);
        all_reduce(ranks, 3, 1, LARGE, 1);
        all_do(ranks, 3, CAPTURE, 0, 0, LARGE, 0);
        all_do(ranks, 3, LAUNCH, 0, 0, LARGE, 3);
        die(&ranks[1]);
        for (i = 0; i < 3; i += 2) { /* both communicators: the watcher is not held up by the first */
            CHECK_INT(ask(&ranks[i], WAIT, 0).info.status, IGNIS_ERROR_PEER);
            CHECK_INT(ask(&ranks[i], WAIT, 1).info.status, IGNIS_ERROR_PEER);
            result = ask(&ranks[i], REPLAY, 0);
            CHECK_WENT_WELL(result);
            CHECK(result.seconds < PROMPT);
        }
        if (early)
            all(ranks, 3, RELEASE, 0, 0);
        all(ranks, 3, SHRINK, 0, 2);
        all(ranks, 3, DESTROY, 1, 1);
        all(ranks, 3, DESTROY, 0, 0);
        all_reduce(ranks, 3, 2, LARGE, 2);
        if (!early)
            all(ranks, 3, RELEASE, 0, 0);
        end(ranks, 3);
        folder_end();
    }
}

/*  In the middle of NCCL's operations a rank dies, or stops. */
TEST(a_rank_that_dies_or_stops_in_nccl_is_noticed_and_the_others_go_on)
{
    process ranks[3];
    outcome result;
    int i, stops;
    for (stops = 0; stops < 2; stops++) {
        NEEDS(3);
        start_with_nccl(ranks, 3, -1, "");
        meet_within(ranks, 3, stops ? 3 : 20);
        all_reduce(ranks, 3, 0, LARGE, 2);
        tell_all(ranks, 3, REDUCE, 0, 0, 20 * LARGE, 1000000);
        ignis__sleep_us(700000);
        if (stops)
            kill(ranks[1].pid, SIGSTOP);
        else
            die(&ranks[1]);
        for (i = 0; i < 3; i += 2) {
            result = hear(&ranks[i]);
            CHECK_INT(result.status, stops ? IGNIS_ERROR_TIMEOUT : IGNIS_ERROR_PEER);
            CHECK(result.seconds < PROMPT);
        }
        if (stops)
            die(&ranks[1]);
        all(ranks, 3, SHRINK, 0, 1);
        all(ranks, 3, DESTROY, 0, 0);
        all_reduce(ranks, 3, 1, LARGE, 3);
        all(ranks, 3, DESTROY, 1, 1);
        end(ranks, 3);
        folder_end();
    }
}

/*  An operation that NCCL has accepted fails on one rank, and hangs or ends; with NCCL alone, as between hosts, and
    with NCCL for large ones. */
TEST(an_error_that_nccl_reports_later_breaks_the_communicator_on_all_ranks)
{
    enum { FAILS_AT = 3, FAILING = 1 };
    static const char *const ways[] = {"IGNIS_COMM_TRANSPORT=nccl", "IGNIS_COMM_TUNE=nccl_min=64K"}, *const fails[] = {
                                                                                                         "3", "3,ends"};
    process ranks[3];
    outcome result;
    char extra[128];
    int way, how, i;
    for (way = 0; way < 2; way++)
        for (how = 0; how < 2; how++) {
            NEEDS(3);
            for (i = 0; i < 3; i++) {
                snprintf(extra, sizeof extra, "%s%s%s", ways[way], i == FAILING ? " IGNIS_SIM_NCCL_FAIL=" : "",
                         i == FAILING ? fails[how] : "");
                ranks[i] = puppet_new(rank_in_folder(i, 3, i, extra));
            }
            if (!ask(&ranks[0], SIMULATED, 0).hash) {
                end(ranks, 3);
                folder_end();
                SKIP("only the simulator's NCCL can be made to fail");
            }
            all(ranks, 3, INIT, 0, 0);
            all_reduce(ranks, 3, 0, LARGE, FAILS_AT - 1);
            tell_all(ranks, 3, REDUCE, 0, 0, LARGE, 1);
            for (i = 0; i < 3; i++) {
                result = hear(&ranks[i]);
                CHECK_INT(result.status, i == FAILING ? IGNIS_ERROR_CUDA : IGNIS_ERROR_PEER);
                CHECK_HAS(result.message, i == FAILING ? "NCCL reports \"unhandled system error\" (2)" : "rank 1");
                CHECK(result.seconds < PROMPT); /* no deadline has ended it */
            }
            for (i = 0; i < 3; i++) {
                result = ask(&ranks[i], QUERY, 0);
                CHECK_INT(result.info.status, i == FAILING ? IGNIS_ERROR_CUDA : IGNIS_ERROR_PEER);
                CHECK_INT(result.info.failed_rank, i == FAILING ? -1 : FAILING);
                result = ask(&ranks[i], STATUS, 0);
                CHECK_WENT(result, i == FAILING ? IGNIS_ERROR_CUDA : IGNIS_ERROR_PEER,
                           i == FAILING ? IGNIS_DIAG_NCCL_CALL : IGNIS_DIAG_COMM_PEER);
                tell(&ranks[i], REDUCE, 0, 0, LARGE, 1);
                result = hear(&ranks[i]);
                CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_BROKEN);
            }
            all(ranks, 3, SHRINK, 0, 1); /* all are there */
            all(ranks, 3, DESTROY, 0, 0);
            all_reduce(ranks, 3, 1, LARGE, 2);
            CHECK_INT(ask(&ranks[0], QUERY, 1).info.size, 3);
            all(ranks, 3, DESTROY, 1, 1);
            end(ranks, 3);
            folder_end();
        }
}

int main(int argc, char **argv) { return ranks_main(argc, argv, own); }
