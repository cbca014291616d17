// SPDX-License-Identifier: MIT
/*  ranks.h - tests whose processes are ranks of communicators

    Ranks are puppets: the program again, in the role "rank", which obeys one order after the other and says how it
    went. A test may have orders of its own, from OWN on, and gives ranks_main the function that obeys them.

    TEST(x) { process ranks[2]; NEEDS(2); ranks[i] = puppet_new(rank_in_folder(i, 2, i, "")); all(ranks, 2, INIT, 0, 0);
    end(ranks, 2);
              folder_end(); } */
#ifndef RANKS_H
#define RANKS_H

#include "array.h"

#include "ignis_collective.h"

#include "processes.h"

enum { SLOTS = 8, RANKS = 4 };

/* --- the environment ---------------------------------------------------------------------------------------------- */

/*  Every variable that ignis_comm_init looks at. */
static const char *const variables[] = {"IGNIS_RANK",
                                        "IGNIS_WORLD_SIZE",
                                        "IGNIS_LOCAL_RANK",
                                        "IGNIS_COMM_DIR",
                                        "IGNIS_COMM_PORT",
                                        "IGNIS_COMM_TOKEN",
                                        "IGNIS_COMM_LAUNCHER",
                                        "IGNIS_COMM_TRANSPORT",
                                        "IGNIS_COMM_HOST",
                                        "IGNIS_COMM_HEARTBEAT",
                                        "IGNIS_COMM_TUNE",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALRANKID",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_LOCALID",
                                        "TORCHELASTIC_RUN_ID",
                                        "PMIX_NAMESPACE",
                                        "OMPI_MCA_ess_base_jobid",
                                        "PMI_JOBID",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID"};

static void environment_clear(void)
{
    int i;
    for (i = 0; i < (int)(sizeof variables / sizeof variables[0]); i++)
        unsetenv(variables[i]);
}

/*  environment("RANK=1 WORLD_SIZE=2"): these and no others */
static void environment(const char *text)
{
    char copy[512], *at, *end;
    environment_clear();
#ifdef _WIN32 /* under Wine: where hundreds of threads wait, its server hardly gets to run */
    setenv("IGNIS_COMM_TUNE", "ll_blocks=3,ll_threads=64,blocks=3,threads=64,chunk=3K,lanes=2", 1);
#endif
    snprintf(copy, sizeof copy, "%s", text);
    for (at = strtok_r(copy, " ", &end); at; at = strtok_r(NULL, " ", &end)) {
        char *equals = strchr(at, '=');
        *equals = 0;
        setenv(at, equals + 1, 1);
    }
}

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

/*  The environment of a rank that meets the others in the folder; extra: more variables */
static const char *rank_in_folder(int rank, int size, int local, const char *extra)
{
    static char text[512];
    snprintf(text, sizeof text, "IGNIS_RANK=%d IGNIS_WORLD_SIZE=%d IGNIS_LOCAL_RANK=%d IGNIS_COMM_DIR=%s %s", rank,
             size, local, folder, extra);
    return text;
}

/* --- the puppet --------------------------------------------------------------------------------------------------- */

enum {
    ENVIRONMENT, /* these variables and no others; opens the device that they say */
    INIT,
    SPLIT, /* by color and key */
    SHRINK,
    GROW,    /* to `color` ranks; 0: as many as there were */
    WITHOUT, /* shrink, leaving out the ranks whose bits are set in `color` */
    ABORT,
    DESTROY,
    RESET, /* destroys what there is */
    QUERY,
    WAIT,   /* until it is broken */
    REDUCE, /* sums `color` numbers `key` times */
    OWN     /* this one and those that follow are the test's */
};

typedef struct command {
    int what;     /* an order */
    int on, into; /* slots of communicators */
    int color, key;
    double timeout_s;
    char text[512];
} command;

typedef struct outcome {
    ignis_status status;
    ignis_diagnostic diagnostic;
    char message[512];
    bool handle; /* the slot has one */
    ignis_comm_info info;
    double seconds; /* that it took */
    uint64_t hash;  /* for the test's own orders */
    int failures;   /* of checks in the puppet */
} outcome;

/*  Obeys an order of the test's own with the communicator that it is for. */
typedef void own_order(const command *todo, ignis_comm comm, outcome *result);

/*  Sums of small integers, which come out exactly. */
static void reduce(ignis_comm comm, int count, int times)
{
    ignis_comm_info info;
    ignis_array in, out;
    float *data = (float *)malloc(sizeof(float) * (size_t)count);
    int i, wrong = 0;
    ignis_comm_query(comm, &info);
    ignis_device_use(info.device);
    in = make(IGNIS_SHAPE(count), IGNIS_F32);
    out = make(IGNIS_SHAPE(count), IGNIS_F32);
    for (i = 0; i < count; i++)
        data[i] = (float)(i % 1000 + info.rank);
    ignis_array_from_host(in, data, IGNIS_F32, count);
    while (times-- > 0 && ignis_status_last() == IGNIS_OK) {
        ignis_comm_all_reduce(comm, in, out, IGNIS_OP_SUM);
        if (ignis_comm_synchronize(comm) == IGNIS_OK && ignis_array_to_host(out, data, IGNIS_F32, count) == IGNIS_OK)
            for (i = 0; i < count; i++)
                wrong += data[i] != (float)(i % 1000 * info.size + info.size * (info.size - 1) / 2);
    }
    CHECK_INT(wrong, 0);
    ignis_array_free(in);
    ignis_array_free(out);
    free(data);
}

/*  Opens the device of this rank, so that the test need not wait for that. */
static void device_open(void)
{
    const char *local = getenv("IGNIS_LOCAL_RANK") ? getenv("IGNIS_LOCAL_RANK") : getenv("LOCAL_RANK");
    int device = local ? atoi(local) : 0;
    if (device < ignis_device_count() && ignis_device_use(device) == IGNIS_OK)
        ignis_synchronize();
}

static void obey(const command *todo, ignis_comm *slots, outcome *result, own_order *own)
{
    double start = test_seconds();
    ignis_comm_desc desc;
    ignis_status_info info;
    int without[32], count = 0, i;
    memset(result, 0, sizeof *result);
    memset(&desc, 0, sizeof desc);
    desc.timeout_s = todo->timeout_s;
    switch (todo->what) {
    case ENVIRONMENT:
        environment(todo->text);
        device_open();
        break;
    case INIT: slots[todo->into] = ignis_comm_init(&desc); break;
    case SPLIT: slots[todo->into] = ignis_comm_split(slots[todo->on], todo->color, todo->key); break;
    case SHRINK: slots[todo->into] = ignis_comm_shrink(slots[todo->on]); break;
    case GROW:
        desc.size = todo->color;
        slots[todo->into] = ignis_comm_grow(slots[todo->on], &desc);
        break;
    case WITHOUT:
        for (i = 0; i < 32; i++)
            if (todo->color >> i & 1)
                without[count++] = i;
        slots[todo->into] = ignis_comm_shrink_without(slots[todo->on], without, count);
        break;
    case ABORT: ignis_comm_abort(slots[todo->on]); break;
    case REDUCE: reduce(slots[todo->on], todo->color, todo->key); break;
    case DESTROY:
        ignis_comm_destroy(slots[todo->on]);
        slots[todo->on].id = 0;
        break;
    case RESET:
        for (i = 0; i < SLOTS; i++)
            if (slots[i].id)
                CHECK_OK(ignis_comm_destroy(slots[i]));
        memset(slots, 0, sizeof *slots * SLOTS);
        process_counts_write();
        break;
    case QUERY:
    case WAIT:
        while (ignis_comm_query(slots[todo->on], &result->info) == IGNIS_OK && todo->what == WAIT &&
               result->info.status == IGNIS_OK && test_seconds() < start + 5)
            ignis__sleep_us(100);
        break;
    default: own(todo, slots[todo->on], result);
    }
    result->seconds = test_seconds() - start;
    result->handle = slots[todo->into].id != 0;
    ignis_status_query(&info);
    result->status = info.status;
    result->diagnostic = info.diagnostic;
    snprintf(result->message, sizeof result->message, "%s", info.message);
    result->failures = test__state.failures;
    ignis_status_clear();
}

static int puppet(own_order *own)
{
    ignis_desc desc = test_desc(NULL);
    ignis_comm slots[SLOTS];
    command todo;
    outcome result;
    memset(slots, 0, sizeof slots);
    process_patient(PROCESS_SOCKET); /* a test that needs it may be long in coming */
    if (ignis_setup(&desc) != IGNIS_OK)
        return 90;
    while (process_receive(PROCESS_SOCKET, &todo, sizeof todo, NULL)) {
        obey(&todo, slots, &result, own);
        if (!process_send(PROCESS_SOCKET, &result, sizeof result, -1))
            return 91;
    }
    return ignis_shutdown() != IGNIS_OK ? 92 : test__state.failures ? 93 : 0;
}

/*  Seconds: the deadline of operations, and within which what takes milliseconds has to be done on any machine, however
    much else that does. */
enum { PATIENCE = 40, PROMPT = 15 };
static double patience = PATIENCE; /* the deadline of what is told */

#ifdef _WIN32 /* whose io.h has one */
#define tell rank_tell
#endif

static void tell(process *rank, int what, int on, int into, int color, int key)
{
    command todo;
    memset(&todo, 0, sizeof todo);
    todo.what = what, todo.on = on, todo.into = into, todo.color = color, todo.key = key;
    todo.timeout_s = patience;
    CHECK(process_send(rank->socket, &todo, sizeof todo, -1));
}

static inline outcome hear(process *rank)
{
    outcome result;
    memset(&result, 0, sizeof result);
    if (!process_receive(rank->socket, &result, sizeof result, NULL)) {
        result.status = IGNIS_STATUS_COUNT;
        snprintf(result.message, sizeof result.message, "nothing was heard");
    }
    CHECK_INT(result.failures, 0);
    return result;
}

static inline outcome ask(process *rank, int what, int on)
{
    tell(rank, what, on, on, 0, 0);
    return hear(rank);
}

#define CHECK_WENT_WELL(result) CHECK_TEXT((result).message, "")
#define CHECK_WENT(result, its_status, its_diagnostic) \
    (CHECK_INT((result).status, its_status), CHECK_INT((result).diagnostic, its_diagnostic))

/*  A puppet that begins in this environment. */
static inline process puppet_new(const char *text)
{
    static const char *const others[] = {"CUDA_VISIBLE_DEVICES", "IGNIS_SIM_PEER", "IGNIS_SIM_STREAMS",
                                         "IGNIS_SIM_NCCL_FAIL", "IGNIS_NCCL_LIBRARY"};
    enum { OTHERS = sizeof others / sizeof others[0] };
    char before[OTHERS][512];
    process rank;
    int i;
    for (i = 0; i < OTHERS; i++)
        snprintf(before[i], sizeof before[i], "%s", getenv(others[i]) ? getenv(others[i]) : "");
    environment(text);
    rank = process_start("rank");
    CHECK(rank.pid > 0);
    environment_clear();
    for (i = 0; i < OTHERS; i++)
        if (*before[i])
            setenv(others[i], before[i], 1);
        else
            unsetenv(others[i]);
    return rank;
}

static inline void die(process *rank)
{
    process_kill(rank);
    rank->pid = -1;
}

/*  The same order for all that live. */
static void tell_all(process *ranks, int count, int what, int on, int into, int color, int key)
{
    int i;
    for (i = 0; i < count; i++)
        if (ranks[i].pid > 0)
            tell(&ranks[i], what, on, into, color, key);
}

/*  Hears from all that live that what they were told went well. */
static void all_well(process *ranks, int count)
{
    int i;
    for (i = 0; i < count; i++)
        if (ranks[i].pid > 0)
            CHECK_WENT_WELL(hear(&ranks[i]));
}

/*  The same order for all that live, and it goes well. */
static void all_do(process *ranks, int count, int what, int on, int into, int color, int key)
{
    tell_all(ranks, count, what, on, into, color, key);
    all_well(ranks, count);
}

static inline void all(process *ranks, int count, int what, int on, int into)
{
    all_do(ranks, count, what, on, into, 0, 0);
}

/*  All sum `numbers` numbers `times` times. */
static inline void all_reduce(process *ranks, int count, int on, int numbers, int times)
{
    all_do(ranks, count, REDUCE, on, on, numbers, times);
}

/*  They shut Ignis down, and exit. */
static inline void end(process *ranks, int count)
{
    int i;
    for (i = 0; i < count; i++)
        if (ranks[i].pid > 0)
            CHECK_INT(process_end(&ranks[i]), 0);
}

/*  Returns the number of GPUs. A child asks the driver, as this process must not open it before it forks. */
static inline int devices(void)
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

/*  main: of the test, of its puppets, and of who counts devices */
static int ranks_main(int argc, char **argv, own_order *own)
{
    const char *role = process_role(argc, argv), *cuda = getenv("IGNIS_CUDA_LIBRARY");
    char nccl[512];
    setenv("IGNIS_SIM_DEVICES", "4", 0);
    setenv("IGNIS_SIM_STREAMS", "thread",
           0);                          /* what is under way while another rank gives up is under way on a GPU too */
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast is not asked for on machines that others use too */
    if (cuda && strrchr(cuda, '/')) {   /* the simulator's NCCL, unless another is named */
        snprintf(nccl, sizeof nccl, "%.*s/libnccl.so.2", (int)(strrchr(cuda, '/') - cuda), cuda);
        setenv("IGNIS_NCCL_LIBRARY", nccl, 0);
    }
#ifndef _WIN32
    signal(SIGPIPE, SIG_IGN);
#endif
    if (role && strcmp(role, "count") == 0)
        return ignis_setup(NULL) == IGNIS_OK ? ignis_device_count() : 0;
    return role ? puppet(own) : test_run(argc, argv);
}

#endif
