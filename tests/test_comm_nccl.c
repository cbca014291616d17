/*  test_comm_nccl.c - communicators of one host that leave large operations to NCCL: when they join it, and what happens when one cannot

    Ranks are puppets, as in test_comm_job.c. */
#include "fault.h"

#include "test.h"

#include "../ignis_collective.h"

#include "processes.h"
#include "ranks.h"

enum { SLOTS = 8, RANKS = 4 };

typedef struct command {
    char what;    /* i init, s split, k shrink, d destroy, q query, w wait until it is broken, r all-reduce of `color` numbers `key` times,
                  g capture that, l launch the graph `key` times, x free it */
    int on, into; /* slots of communicators */
    int color, key;
    double timeout_s;
} command;

typedef struct outcome {
    ignis_status status;
    ignis_diagnostic diagnostic;
    char message[512];
    bool handle; /* the slot has one */
    ignis_comm_info info;
    double seconds; /* that it took */
} outcome;

/* --- the puppet ------------------------------------------------------------------------------------------------------- */

/*  Sums of small integers, which come out exactly. */
static void reduce(ignis_comm comm, int count, int times)
{
    ignis_array_desc desc;
    ignis_comm_info info;
    ignis_array in, out;
    float *data = (float *)malloc(sizeof(float) * (size_t)count);
    int i, wrong = 0;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(count);
    ignis_comm_query(comm, &info);
    ignis_device_use(info.device);
    in = ignis_array_create(&desc);
    out = ignis_array_create(&desc);
    for (i = 0; i < count; i++)
        data[i] = (float)(i % 1000 + info.device);
    ignis_array_from_host(in, data, IGNIS_F32, count);
    while (times-- > 0 && ignis_status_last() == IGNIS_OK) {
        ignis_comm_all_reduce(comm, in, out, IGNIS_OP_SUM);
        if (ignis_comm_synchronize(comm) == IGNIS_OK && ignis_array_to_host(out, data, IGNIS_F32, count) == IGNIS_OK)
            for (i = 1; i < count; i++)
                wrong += data[i] - data[0] != (float)(i % 1000 * info.size);
    }
    CHECK_INT(wrong, 0);
    ignis_array_free(in);
    ignis_array_free(out);
    free(data);
}

/*  A graph of one sum, and what it works on. */
static ignis_graph graph;
static ignis_array graph_in, graph_out;

static void graph_capture(ignis_comm comm, int count)
{
    ignis_array_desc desc;
    ignis_comm_info info;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(count);
    ignis_comm_query(comm, &info);
    ignis_device_use(info.device);
    graph_in = ignis_array_create(&desc);
    graph_out = ignis_array_create(&desc);
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
        if (ignis_comm_synchronize(comm) == IGNIS_OK && ignis_array_to_host(graph_out, data, IGNIS_F32, count) == IGNIS_OK)
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

static void obey(const command *order, ignis_comm *slots, outcome *result)
{
    double start = now_s();
    ignis_comm_desc desc;
    ignis_status_info info;
    memset(result, 0, sizeof *result);
    memset(&desc, 0, sizeof desc);
    desc.timeout_s = order->timeout_s;
    switch (order->what) {
    case 'i': slots[order->into] = ignis_comm_init(&desc); break;
    case 's': slots[order->into] = ignis_comm_split(slots[order->on], order->color, order->key); break;
    case 'k': slots[order->into] = ignis_comm_shrink(slots[order->on]); break;
    case 'g': graph_capture(slots[order->on], order->color); break;
    case 'l': graph_launch(slots[order->on], order->color, order->key); break;
    case 'x': graph_free(); break;
    case 'r': reduce(slots[order->on], order->color, order->key); break;
    case 'd': ignis_comm_destroy(slots[order->on]); break;
    default: break;
    }
    do
        if ((order->what == 'q' || order->what == 'w') && ignis_comm_query(slots[order->on], &result->info) != IGNIS_OK)
            break;
    while (order->what == 'w' && result->info.status == IGNIS_OK && now_s() < start + 5 && (ignis__sleep_us(100), true));
    result->seconds = now_s() - start;
    result->handle = slots[order->into].id != 0;
    ignis_status_query(&info);
    result->status = info.status;
    result->diagnostic = info.diagnostic;
    snprintf(result->message, sizeof result->message, "%s", info.message);
    ignis_status_clear();
}

static int puppet(void)
{
    ignis_desc desc = test_desc(NULL);
    ignis_comm slots[SLOTS];
    command order;
    outcome result;
    memset(slots, 0, sizeof slots);
    if (ignis_setup(&desc) != IGNIS_OK)
        return 90;
    while (process_receive(PROCESS_SOCKET, &order, sizeof order, NULL)) {
        obey(&order, slots, &result);
        if (!process_send(PROCESS_SOCKET, &result, sizeof result, -1))
            return 91;
    }
    return ignis_shutdown() != IGNIS_OK ? 92 : test__state.failures ? 93 : 0;
}

static void tell(process *rank, char what, int on, int into, int color, int key)
{
    command order;
    memset(&order, 0, sizeof order);
    order.what = what, order.on = on, order.into = into, order.color = color, order.key = key;
    order.timeout_s = 20;
    CHECK(process_send(rank->socket, &order, sizeof order, -1));
}

static outcome hear(process *rank)
{
    outcome result;
    memset(&result, 0, sizeof result);
    if (!process_receive(rank->socket, &result, sizeof result, NULL)) {
        result.status = IGNIS_STATUS_COUNT;
        snprintf(result.message, sizeof result.message, "nothing was heard");
    }
    return result;
}

static outcome ask(process *rank, char what, int on)
{
    tell(rank, what, on, on, 0, 0);
    return hear(rank);
}

#define CHECK_WENT_WELL(result) CHECK_TEXT((result).message, "")
#define CHECK_WENT(result, its_status, its_diagnostic) \
    (CHECK_INT((result).status, its_status), CHECK_INT((result).diagnostic, its_diagnostic))

/*  A folder for a test; it must be empty at the end. */
static char folder[64];
static bool folder_make(void)
{
    snprintf(folder, sizeof folder, "/tmp/ignis_test_job_XXXXXX");
    return mkdtemp(folder) != NULL;
}
static void folder_end(void)
{
    CHECK_INT(rmdir(folder), 0);
    environment_clear();
}

static void all(process *ranks, int count, char what, int on, int into)
{
    int i;
    for (i = 0; i < count; i++)
        if (ranks[i].pid > 0)
            tell(&ranks[i], what, on, into, 0, 0);
    for (i = 0; i < count; i++)
        if (ranks[i].pid > 0) {
            outcome result = hear(&ranks[i]);
            CHECK_WENT_WELL(result);
        }
}

static void finish(process *ranks, int count)
{
    int i;
    for (i = 0; i < count; i++)
        if (ranks[i].pid > 0)
            CHECK_INT(process_end(&ranks[i]), 0);
}

/*  Whether there is a GPU for each of so many ranks; asked in a child, as this process must not open the driver before it forks. */
static int devices(void)
{
    static int count = -1;
    if (count < 0) {
        process child = process_start("count");
        count = process_end(&child);
    }
    return count;
}

#define NEEDS(count)                                             \
    do {                                                         \
        if (devices() < (count))                                 \
            SKIP("there are fewer devices than the test needs"); \
        REQUIRE(folder_make());                                  \
    } while (0)

/* --- the environment -------------------------------------------------------------------------------------------------- */

/* --- meeting ---------------------------------------------------------------------------------------------------------- */

/* --- T20: what goes wrong when ranks meet ------------------------------------------------------------------------------ */

/* --- transports ------------------------------------------------------------------------------------------------------- */

/* --- split, shrink, abort, death -------------------------------------------------------------------------------------- */

/* --- in this process: threads, descriptors, failures ------------------------------------------------------------------- */

typedef struct member {
    int rank, size, rounds;
    double timeout_s;
    ignis_comm_transport transport;
    char place[96];
    ignis_status status; /* the first that was not IGNIS_OK */
    char message[512];
} member;

/* --- several hosts ----------------------------------------------------------------------------------------------------- */

/*  Two "hosts" of two ranks: those of different ones speak through rank 0, and their data goes through NCCL. */
/* --- NCCL for large operations ------------------------------------------------------------------------------------------ */

/*  The simulator's NCCL, unless another is named. */
static char nccl_library[256];

static void nccl_find(void)
{
    const char *named = getenv("IGNIS_NCCL_LIBRARY"), *cuda = getenv("IGNIS_CUDA_LIBRARY");
    if (named)
        snprintf(nccl_library, sizeof nccl_library, "%s", named);
    else if (cuda && strrchr(cuda, '/'))
        snprintf(nccl_library, sizeof nccl_library, "%.*s/libnccl.so.2", (int)(strrchr(cuda, '/') - cuda), cuda);
}

/*  Ranks that leave operations from 64 KB on to NCCL; `odd` (-1: none) has another library, or none. */
static void start_with_nccl(process *ranks, int count, int odd, const char *its_library)
{
    const char *before = getenv("IGNIS_NCCL_LIBRARY");
    char saved[256], text[512];
    int i;
    nccl_find();
    snprintf(saved, sizeof saved, "%s", before ? before : "");
    setenv("IGNIS_SIM_STREAMS", "thread", 1);
    for (i = 0; i < count; i++) {
        snprintf(text, sizeof text, "IGNIS_RANK=%d IGNIS_WORLD_SIZE=%d IGNIS_LOCAL_RANK=%d IGNIS_COMM_DIR=%s IGNIS_COMM_TUNE=nccl_min=64K",
                 i, count, i, folder);
        environment(text);
        if (i == odd)
            setenv("IGNIS_NCCL_LIBRARY", its_library, 1);
        else if (*nccl_library)
            setenv("IGNIS_NCCL_LIBRARY", nccl_library, 1);
        ranks[i] = process_start("rank");
    }
    environment_clear();
    unsetenv("IGNIS_SIM_STREAMS");
    unsetenv("IGNIS_NCCL_LIBRARY");
    if (before)
        setenv("IGNIS_NCCL_LIBRARY", saved, 1);
}

/*  init, by all, with a deadline. */
static void meet_within(process *ranks, int count, double timeout_s)
{
    command order = {'i', 0, 0, 0, 0, 0};
    int i;
    order.timeout_s = timeout_s;
    for (i = 0; i < count; i++)
        CHECK(process_send(ranks[i].socket, &order, sizeof order, -1));
    for (i = 0; i < count; i++)
        CHECK_WENT_WELL(hear(&ranks[i]));
}

/*  The same order for all that live. */
static void all_do(process *ranks, int count, char what, int on, int color, int key)
{
    int i;
    for (i = 0; i < count; i++)
        if (ranks[i].pid > 0)
            tell(&ranks[i], what, on, on, color, key);
    for (i = 0; i < count; i++)
        if (ranks[i].pid > 0)
            CHECK_WENT_WELL(hear(&ranks[i]));
}

/*  What all say of NCCL: "" nothing yet. */
static void all_say(process *ranks, int count, int on, const char *part)
{
    int i;
    for (i = 0; i < count; i++) {
        outcome result;
        if (ranks[i].pid <= 0)
            continue;
        result = ask(&ranks[i], 'q', on);
        CHECK_INT(result.info.transport, IGNIS_COMM_PEER);
        CHECK_INT(result.info.status, IGNIS_OK);
        if (*part)
            CHECK_HAS(result.info.reason, part);
        else
            CHECK(strstr(result.info.reason, "NCCL") == NULL);
    }
}

enum { SMALL = 1000, LARGE = 100000 };
static const char helps[] = "NCCL does large operations";

TEST(large_operations_join_nccl_when_the_first_comes)
{
    process ranks[RANKS];
    int i, count;
    for (count = 2; count <= RANKS; count += 2) {
        NEEDS(count);
        start_with_nccl(ranks, count, -1, "");
        meet_within(ranks, count, 20);
        all_do(ranks, count, 'r', 0, SMALL, 3);
        all_say(ranks, count, 0, "");
        all_do(ranks, count, 'r', 0, LARGE, 3);
        if (strstr(ask(&ranks[0], 'q', 0).info.reason, "does not help")) {
            finish(ranks, count);
            folder_end();
            SKIP("NCCL is not installed");
        }
        all_say(ranks, count, 0, helps);
        all_do(ranks, count, 'r', 0, SMALL, 3);
        all_do(ranks, count, 'r', 0, LARGE + 1, 3);
        for (i = 0; i < count; i++)
            tell(&ranks[i], 's', 0, 1, i % 2, 0);
        for (i = 0; i < count; i++)
            CHECK_WENT_WELL(hear(&ranks[i]));
        if (count == RANKS) { /* a part has an NCCL of its own */
            all_say(ranks, count, 1, "");
            all_do(ranks, count, 'r', 1, LARGE, 2);
            all_say(ranks, count, 1, helps);
        }
        all(ranks, count, 'd', 0, 0);
        all(ranks, count, 'd', 1, 1);
        finish(ranks, count);
        folder_end();
    }
}

TEST(nccl_that_one_rank_lacks_is_used_by_none)
{
    process ranks[3];
    NEEDS(3);
    start_with_nccl(ranks, 3, 1, "missing/libnccl.so.2");
    meet_within(ranks, 3, 20);
    all_do(ranks, 3, 'r', 0, LARGE, 2);
    all_say(ranks, 3, 0, "NCCL was not found");
    CHECK_HAS(ask(&ranks[0], 'q', 0).info.reason, "NCCL does not help: rank 1: ");
    all_do(ranks, 3, 'r', 0, LARGE, 2);
    all(ranks, 3, 'd', 0, 0);
    finish(ranks, 3);
    folder_end();
}

/*  A library that has all functions, says that it is of this version, and never gets anywhere. */
static bool nccl_that_never_joins(const char *path, int version)
{
    static const char *const rest[] = {"GetUniqueId", "CommInitRank", "CommFinalize",   "CommDestroy",   "CommAbort", "AllReduce",
                                       "Reduce",      "Broadcast",    "AllGather",      "ReduceScatter", "Send",      "Recv",
                                       "GroupStart",  "GroupEnd",     "GetErrorString", "GetLastError",  "CommSplit"};
    char source[96], line[512];
    FILE *file;
    int i;
    bool ok;
    snprintf(source, sizeof source, "%.80s.c", path);
    file = fopen(source, "w");
    if (!file)
        return false;
    fprintf(file,
            "int ncclGetVersion(int *version) { *version = %d; return 0; }\n"
            "int ncclCommInitRankConfig(void **comm) { *comm = (void *)8; return 7; }\n"
            "int ncclCommGetAsyncError(void *comm, int *error) { *error = 7; return 0; }\n",
            version);
    for (i = 0; i < (int)(sizeof rest / sizeof rest[0]); i++)
        fprintf(file, "long nccl%s(void) { return 0; }\n", rest[i]);
    fclose(file);
    snprintf(line, sizeof line, "cc -shared -fPIC -w -o %s %s", path, source);
    ok = system(line) == 0;
    unlink(source);
    return ok;
}

TEST(a_join_that_takes_too_long_leaves_all_without_nccl)
{
    process ranks[2];
    char path[64];
    int versions[] = {22809, 22810}, i;
    snprintf(path, sizeof path, "/tmp/ignis_test_job_nccl_%d.so", (int)getpid());
    for (i = 0; i < 2; i++) {
        NEEDS(2);
        if (!nccl_that_never_joins(path, versions[i])) {
            folder_end();
            SKIP("there is no compiler");
        }
        start_with_nccl(ranks, 2, 1, path);
        meet_within(ranks, 2, 2);
        all_do(ranks, 2, 'r', 0, LARGE, 2);
        all_say(ranks, 2, 0, "NCCL does not help: ");
        if (i > 0)
            all_say(ranks, 2, 0, "version 22810 on rank 1");
        all_do(ranks, 2, 'r', 0, LARGE, 2);
        all(ranks, 2, 'd', 0, 0);
        finish(ranks, 2);
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
    tell(&ranks[0], 'r', 0, 0, LARGE, 1);
    result = hear(&ranks[0]);
    CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK_HAS(result.message, "rank 1 did not answer");
    CHECK(result.seconds < 10);
    CHECK_INT(ask(&ranks[0], 'q', 0).info.status, IGNIS_ERROR_TIMEOUT);
    CHECK_INT(ask(&ranks[1], 'w', 0).info.status, IGNIS_ERROR_PEER);
    all(ranks, 2, 'd', 0, 0);
    finish(ranks, 2);
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
            all_do(ranks, 2, 'r', 0, LARGE, 1);
        all_do(ranks, 2, 'g', 0, LARGE, 0);
        all_say(ranks, 2, 0, joined ? "NCCL" : "");
        all_do(ranks, 2, 'l', 0, LARGE, 5);
        all_do(ranks, 2, 'r', 0, LARGE, 1);
        all_do(ranks, 2, 'l', 0, LARGE, 5);
        if (joined) /* it may outlive the communicator */
            all(ranks, 2, 'd', 0, 0);
        all_do(ranks, 2, 'x', 0, 0, 0);
        finish(ranks, 2);
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
        all_do(ranks, 3, 'r', 0, LARGE, 2);
        for (i = 0; i < 3; i++)
            tell(&ranks[i], 'r', 0, 0, 20 * LARGE, 1000000);
        ignis__sleep_us(700000);
        if (stops)
            kill(ranks[1].pid, SIGSTOP);
        else
            process_kill(&ranks[1]);
        for (i = 0; i < 3; i += 2) {
            result = hear(&ranks[i]);
            CHECK_INT(result.status, stops ? IGNIS_ERROR_TIMEOUT : IGNIS_ERROR_PEER);
            CHECK(result.seconds < 15);
        }
        if (stops)
            process_kill(&ranks[1]);
        ranks[1].pid = -1;
        all(ranks, 3, 'k', 0, 1);
        all(ranks, 3, 'd', 0, 0);
        all_do(ranks, 3, 'r', 1, LARGE, 3);
        all(ranks, 3, 'd', 1, 1);
        finish(ranks, 3);
        folder_end();
    }
}

/* --- errors that NCCL reports later ------------------------------------------------------------------------------------ */

enum { FAILS_AT = 3, FAILING_RANK = 1 };

/*  A rank whose third operation of NCCL fails after it was accepted, or one of the others. */
static int rank_of_failure(void)
{
    const int rank = getenv("IGNIS_RANK")[0] - '0';
    ignis_desc desc = test_desc(NULL);
    ignis_comm comm, smaller;
    ignis_comm_desc meet;
    ignis_comm_info info;
    double start = 0;
    int round;
    CHECK_OK(ignis_setup(&desc));
    if (!test_is_simulator())
        return 77;
    memset(&meet, 0, sizeof meet);
    meet.timeout_s = 30;
    comm = ignis_comm_init(&meet);
    for (round = 0; round < FAILS_AT && ignis_status_last() == IGNIS_OK; round++) {
        start = now_s();
        reduce(comm, LARGE, 1);
    }
    CHECK(round == FAILS_AT || (round == FAILS_AT - 1 && rank != FAILING_RANK)); /* one that is behind hears of it while it waits */
    CHECK(now_s() - start < 10);                                                 /* no deadline has ended it */
    CHECK_INT(ignis_comm_query(comm, &info), IGNIS_OK);
    CHECK_INT(info.status, rank == FAILING_RANK ? IGNIS_ERROR_CUDA : IGNIS_ERROR_PEER);
    CHECK_INT(info.failed_rank, rank == FAILING_RANK ? -1 : FAILING_RANK);
    CHECK_INT(ignis_status_last(), info.status);
    CHECK_HAS(ignis_status_message(), rank == FAILING_RANK ? "NCCL reports \"unhandled system error\" (2)" : "rank 1");
    ignis_status_clear();
    CHECK_STATUS(ignis_comm_barrier(comm), IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_BROKEN);
    CHECK_STATUS(ignis_comm_status(comm), info.status, rank == FAILING_RANK ? IGNIS_DIAG_NCCL_CALL : IGNIS_DIAG_COMM_PEER);
    smaller = ignis_comm_shrink(comm); /* all are there */
    CHECK_OK(ignis_comm_destroy(comm));
    reduce(smaller, LARGE, 2);
    CHECK_INT(ignis_comm_query(smaller, &info), IGNIS_OK);
    CHECK_INT(info.size, 3);
    CHECK_INT(info.status, IGNIS_OK);
    CHECK_OK(ignis_status_last());
    CHECK_OK(ignis_comm_destroy(smaller));
    CHECK_OK(ignis_shutdown());
    return test__state.failures != 0;
}

/*  With NCCL alone, as between hosts, and with NCCL for large operations. */
TEST(an_error_that_nccl_reports_later_breaks_the_communicator_on_all_ranks)
{
    static const char *const ways[] = {"IGNIS_COMM_TRANSPORT=nccl", "IGNIS_COMM_TUNE=nccl_min=64K"}, *const fails[] = {"3", "3,ends"};
    process ranks[3];
    char text[512];
    int way, how, i, code, skipped = 0;
    nccl_find();
    for (way = 0; way < 2; way++)
        for (how = 0; how < 2 && !skipped; how++) {
            NEEDS(3);
            for (i = 0; i < 3; i++) {
                snprintf(text, sizeof text, "IGNIS_RANK=%d IGNIS_WORLD_SIZE=3 IGNIS_LOCAL_RANK=%d IGNIS_COMM_DIR=%s %s", i, i, folder,
                         ways[way]);
                environment(text);
                setenv("IGNIS_SIM_STREAMS", "thread", 1);
                if (i == FAILING_RANK)
                    setenv("IGNIS_SIM_NCCL_FAIL", fails[how], 1);
                ranks[i] = process_start("failure");
                unsetenv("IGNIS_SIM_NCCL_FAIL");
                unsetenv("IGNIS_SIM_STREAMS");
            }
            for (i = 0; i < 3; i++) {
                code = process_end(&ranks[i]);
                skipped |= code == 77;
                CHECK_INT(code == 77 ? 0 : code, 0);
            }
            folder_end();
        }
    if (skipped)
        SKIP("only the simulator's NCCL can be made to fail");
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    setenv("IGNIS_SIM_DEVICES", "4", 0);
    signal(SIGPIPE, SIG_IGN);
    pthread_mutex_init(&test__state.lock, NULL);
    if (role && strcmp(role, "count") == 0)
        return ignis_setup(NULL) == IGNIS_OK ? ignis_device_count() : 0;
    if (role && strcmp(role, "failure") == 0)
        return rank_of_failure();
    return role ? puppet() : test_run(argc, argv);
}
