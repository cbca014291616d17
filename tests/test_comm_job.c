/*  test_comm_job.c - how ranks find each other, make, split and shrink communicators, and what they notice when one dies

    Ranks are puppets: this program again, in the role "rank", which obeys one command after the other and says how it went. */
#include "fault.h"

#include "test.h"

#include "../ignis_collective.h"

#include "processes.h"

#include <arpa/inet.h>
#include <sys/un.h>

enum { SLOTS = 8, RANKS = 4 };

typedef struct command {
    char what;    /* i init, s split, k shrink, a abort, d destroy, q query, w wait until it is broken, p stop itself */
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

static const char *const variables[] = {"IGNIS_RANK",
                                        "IGNIS_WORLD_SIZE",
                                        "IGNIS_LOCAL_RANK",
                                        "IGNIS_COMM_DIR",
                                        "IGNIS_COMM_PORT",
                                        "IGNIS_COMM_TOKEN",
                                        "IGNIS_COMM_LAUNCHER",
                                        "IGNIS_COMM_TRANSPORT",
                                        "IGNIS_COMM_HOST",
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
                                        "SLURM_LOCALID"};

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
    snprintf(copy, sizeof copy, "%s", text);
    for (at = strtok_r(copy, " ", &end); at; at = strtok_r(NULL, " ", &end)) {
        char *equals = strchr(at, '=');
        *equals = 0;
        setenv(at, equals + 1, 1);
    }
}

static double now_s(void) { return (double)ignis__monotonic_ns() * 1e-9; }

/* --- the puppet ------------------------------------------------------------------------------------------------------- */

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
    case 'a': ignis_comm_abort(slots[order->on]); break;
    case 'd': ignis_comm_destroy(slots[order->on]); break;
    case 'p': kill(getpid(), SIGSTOP); break;
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
    return ignis_shutdown() == IGNIS_OK ? 0 : 92;
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

/*  count ranks that meet in the folder; extra: more variables */
static void start(process *ranks, int count, const char *extra)
{
    char text[512];
    int i;
    for (i = 0; i < count; i++) {
        snprintf(text, sizeof text, "IGNIS_RANK=%d IGNIS_WORLD_SIZE=%d IGNIS_LOCAL_RANK=%d IGNIS_COMM_DIR=%s %s", i, count, i, folder,
                 extra);
        environment(text);
        ranks[i] = process_start("rank");
    }
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

TEST(nothing_set_is_one_rank_alone)
{
    ignis_comm comm;
    ignis_comm_info info;
    int descriptors;
    environment_clear();
    SETUP(NULL);
    comm = ignis_comm_init(NULL);
    descriptors = process_descriptors();
    CHECK(comm.id);
    CHECK_OK(ignis_comm_query(comm, &info));
    CHECK_INT(info.rank, 0);
    CHECK_INT(info.size, 1);
    CHECK_INT(info.local_size, 1);
    CHECK_INT(info.hosts, 1);
    CHECK_INT(info.failed_rank, -1);
    CHECK_INT(info.status, IGNIS_OK);
    CHECK(info.timeout_s == 30);
    CHECK_OK(ignis_comm_destroy(comm));
    CHECK(process_descriptors() <= descriptors);
    CHECK_STATUS(ignis_comm_destroy(comm), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_STATUS(ignis_comm_abort(comm), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_STATUS(ignis_comm_query(comm, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_FAILS(ignis_comm_split(comm, 0, 0), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_FAILS(ignis_comm_shrink(comm), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
}

TEST(environments_are_read_strictly)
{
    static const struct {
        const char *set, *part;
    } table[] = {
        {"IGNIS_RANK=0", "IGNIS_WORLD_SIZE is not"},
        {"WORLD_SIZE=2", "RANK is not"},
        {"RANK=2 WORLD_SIZE=2", "RANK is 2 and WORLD_SIZE is 2"},
        {"RANK=-1 WORLD_SIZE=2", "RANK is \"-1\""},
        {"RANK=1x WORLD_SIZE=2", "RANK is \"1x\""},
        {"RANK= WORLD_SIZE=2", "RANK is \"\""},
        {"RANK=0 WORLD_SIZE=0", "WORLD_SIZE is \"0\""},
        {"RANK=0 WORLD_SIZE=1025", "WORLD_SIZE is \"1025\""},
        {"RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE is"},
        {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=z", "SLURM_LOCALID is \"z\""},
        {"RANK=0 WORLD_SIZE=1 IGNIS_RANK=1 IGNIS_WORLD_SIZE=2",
         "IGNIS_RANK and IGNIS_WORLD_SIZE say rank 1 of 2, but RANK and WORLD_SIZE say rank 0 of 1"},
        {"PMI_RANK=1 PMI_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK"},
        {"RANK=0 WORLD_SIZE=2", "does not know where the ranks meet"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost", "MASTER_PORT"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=0", "MASTER_PORT is \"0\""},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost IGNIS_COMM_PORT=70000", "IGNIS_COMM_PORT is \"70000\""},
        {"IGNIS_COMM_LAUNCHER=torchrun", "whose variables are not set"},
        {"IGNIS_COMM_LAUNCHER=mpirun", "none of ignis, torchrun"},
        {"IGNIS_COMM_TRANSPORT=fast", "IGNIS_COMM_TRANSPORT is \"fast\""},
    };
    int i;
    SETUP(NULL);
    for (i = 0; i < (int)(sizeof table / sizeof table[0]); i++) {
        environment(table[i].set);
        CHECK_FAILS(ignis_comm_init(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COMM_ENVIRONMENT);
        CHECK_MESSAGE_HAS(table[i].part);
    }
    environment_clear();
}

TEST(every_launcher_is_understood)
{
    static const char *const table[] = {"IGNIS_RANK=0 IGNIS_WORLD_SIZE=1 IGNIS_LOCAL_RANK=1",
                                        "RANK=0 WORLD_SIZE=1 LOCAL_RANK=1",
                                        "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=1",
                                        "PMI_RANK=0 PMI_SIZE=1 MPI_LOCALRANKID=1",
                                        "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=1",
                                        "RANK=0 WORLD_SIZE=1 LOCAL_RANK=1 SLURM_PROCID=0 SLURM_NTASKS=1",
                                        "IGNIS_COMM_LAUNCHER=torchrun RANK=0 WORLD_SIZE=1 LOCAL_RANK=1 SLURM_PROCID=1 SLURM_NTASKS=4"};
    int i;
    SETUP(NULL);
    for (i = 0; i < (int)(sizeof table / sizeof table[0]); i++) {
        ignis_comm_info info;
        ignis_comm comm;
        environment(table[i]);
        comm = ignis_comm_init(NULL);
        CHECK_OK(ignis_comm_query(comm, &info));
        CHECK_INT(info.size, 1);
        CHECK_INT(info.device, ignis_device_count() > 1 ? 1 : 0);
        CHECK_OK(ignis_comm_destroy(comm));
    }
    environment("IGNIS_RANK=0 IGNIS_WORLD_SIZE=1 IGNIS_LOCAL_RANK=1000");
    if (ignis_device_count() > 1)
        CHECK_FAILS(ignis_comm_init(NULL), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    environment_clear();
}

TEST(descs_are_checked)
{
    ignis_comm_desc desc;
    environment_clear();
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.rank = 3;
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.size = 3;
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.rank = 0;
    desc.rendezvous = "somewhere";
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COMM_ENVIRONMENT);
    desc.rendezvous = "host:0";
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COMM_ENVIRONMENT);
    desc.rendezvous = "dir:";
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.rendezvous = "dir:/tmp"; /* not private */
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_IO, IGNIS_DIAG_CHANNEL_IO);
    desc.size = 0;
    desc.timeout_s = -1;
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.timeout_s = 0;
    desc.transport = (ignis_comm_transport)77;
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    desc.transport = IGNIS_COMM_TRANSPORT_DEFAULT;
    desc.device = 99;
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
}

/* --- meeting ---------------------------------------------------------------------------------------------------------- */

TEST(four_ranks_meet_in_a_folder)
{
    process ranks[RANKS];
    int i;
    NEEDS(RANKS);
    start(ranks, RANKS, "");
    all(ranks, RANKS, 'i', 0, 0);
    for (i = 0; i < RANKS; i++) {
        outcome result = ask(&ranks[i], 'q', 0);
        CHECK_INT(result.info.rank, i);
        CHECK_INT(result.info.size, RANKS);
        CHECK_INT(result.info.local_rank, i);
        CHECK_INT(result.info.local_size, RANKS);
        CHECK_INT(result.info.hosts, 1);
        CHECK_INT(result.info.device, i);
        CHECK_INT(result.info.transport, IGNIS_COMM_PEER);
        CHECK_HAS(result.info.reason, "each other's memory");
    }
    all(ranks, RANKS, 'd', 0, 0);
    all(ranks, RANKS, 'i', 0, 1); /* again, in the same place */
    all(ranks, RANKS, 'q', 1, 1);
    finish(ranks, RANKS); /* shutdown ends what was not destroyed */
    folder_end();
}

static int free_port(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(fd, (struct sockaddr *)&address, size);
    getsockname(fd, (struct sockaddr *)&address, &size);
    close(fd);
    return ntohs(address.sin_port);
}

TEST(ranks_of_torchrun_meet_beside_its_store)
{
    process ranks[2];
    char text[256];
    int i, port = free_port();
    NEEDS(2);
    for (i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "RANK=%d WORLD_SIZE=2 LOCAL_RANK=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d TORCHELASTIC_USE_AGENT_STORE=True", i, i,
                 port - 1);
        environment(text);
        ranks[i] = process_start("rank");
    }
    all(ranks, 2, 'i', 0, 0);
    all(ranks, 2, 'd', 0, 0);
    finish(ranks, 2);
    folder_end();
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    setenv("IGNIS_SIM_DEVICES", "4", 0);
    signal(SIGPIPE, SIG_IGN);
    pthread_mutex_init(&test__state.lock, NULL);
    if (role && strcmp(role, "count") == 0)
        return ignis_setup(NULL) == IGNIS_OK ? ignis_device_count() : 0;
    return role ? puppet() : test_run(argc, argv);
}
