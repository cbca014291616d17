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
    char
        what; /* i init, s split, k shrink, a abort, d destroy, q query, w wait until it is broken, f fork, r all-reduce of `color` numbers `key` times, g capture that, l launch the graph `key` times */
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
    case 'a': ignis_comm_abort(slots[order->on]); break;
    case 'g': graph_capture(slots[order->on], order->color); break;
    case 'l': graph_launch(slots[order->on], order->color, order->key); break;
    case 'x': graph_free(); break;
    case 'r': reduce(slots[order->on], order->color, order->key); break;
    case 'd': ignis_comm_destroy(slots[order->on]); break;
    case 'f':
        if (fork() == 0) {
            ignis__sleep_us(3000000);
            _exit(ignis_comm_query(slots[0], &result->info) != IGNIS_ERROR_NOT_SETUP);
        }
        break;
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

/* --- T20: what goes wrong when ranks meet ------------------------------------------------------------------------------ */

/*  An init of this process as a rank of several, which is to fail. */
static void init_fails(int rank, int size, const char *rendezvous, double timeout_s, ignis_status status, ignis_diagnostic diagnostic)
{
    ignis_comm_desc desc;
    double start = now_s();
    memset(&desc, 0, sizeof desc);
    desc.rank = rank;
    desc.size = size;
    desc.rendezvous = rendezvous;
    desc.timeout_s = timeout_s;
    CHECK_FAILS(ignis_comm_init(&desc), status, diagnostic);
    CHECK(now_s() - start < timeout_s + 3);
}

TEST(missing_ranks_are_named)
{
    process rank;
    char text[256];
    outcome result;
    command order = {'i', 0, 0, 0, 0, 0.6};
    NEEDS(2);
    snprintf(text, sizeof text, "IGNIS_RANK=2 IGNIS_WORLD_SIZE=4 IGNIS_LOCAL_RANK=1 IGNIS_COMM_DIR=%s", folder);
    environment(text);
    rank = process_start("rank");
    CHECK(process_send(rank.socket, &order, sizeof order, -1));
    environment_clear();
    SETUP(NULL);
    snprintf(text, sizeof text, "dir:%s", folder);
    init_fails(0, 4, text, 0.5, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK_MESSAGE_HAS("2 of 4 ranks did not come");
    CHECK_MESSAGE_HAS(": 1, 3");
    result = hear(&rank);
    CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK_HAS(result.message, ": 1, 3");
    init_fails(1, 2, text, 0.2, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK_MESSAGE_HAS("did not reach rank 0");
    init_fails(1, 2, "127.0.0.1:1", 0.2, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK_MESSAGE_HAS("refused");
    finish(&rank, 1);
    folder_end();
}

static int listener(int *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(fd, (struct sockaddr *)&address, size);
    listen(fd, 8);
    getsockname(fd, (struct sockaddr *)&address, &size);
    *port = ntohs(address.sin_port);
    return fd;
}

TEST(a_port_in_use_is_told)
{
    char text[64];
    int port, fd = listener(&port);
    environment_clear();
    SETUP(NULL);
    snprintf(text, sizeof text, "127.0.0.1:%d", port);
    init_fails(0, 2, text, 1, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_RENDEZVOUS);
    CHECK_MESSAGE_HAS("IGNIS_COMM_PORT");
    init_fails(1, 2, text, 0.3, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT); /* who listens there says nothing */
    close(fd);
}

static int dial(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), tries;
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (tries = 0; tries < 2000 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0; tries++)
        ignis__sleep_us(2000);
    return fd;
}

static ignis__job_hello hello_of(int rank, int size, const char *token)
{
    ignis__job_hello hello;
    memset(&hello, 0, sizeof hello);
    hello.magic = IGNIS__JOB_MAGIC;
    hello.version = ignis__job_version();
    snprintf(hello.token, sizeof hello.token, "%s", token);
    hello.rank.rank = rank;
    hello.rank.size = size;
    return hello;
}

/*  Says a hello, and hears what rank 0 has against it. */
static void refused(int port, const ignis__job_hello *hello, const char *part)
{
    int fd = dial(port);
    ignis__answer answer;
    memset(&answer, 0, sizeof answer);
    CHECK(ignis__job_write(fd, hello, sizeof *hello, ignis__monotonic_ns() + 1000000000));
    CHECK(ignis__job_read(fd, &answer, sizeof answer, ignis__monotonic_ns() + 2000000000));
    CHECK(answer.refused != 0);
    CHECK_HAS(answer.why, part);
    close(fd);
}

TEST(strangers_are_turned_away_and_nobody_else_notices)
{
    process ranks[2];
    char text[256];
    int i, port = free_port(), silent[3], half;
    ignis__job_hello hello;
    outcome result;
    NEEDS(2);
    for (i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "IGNIS_RANK=%d IGNIS_WORLD_SIZE=2 IGNIS_LOCAL_RANK=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d IGNIS_COMM_TOKEN=sesame", i, i,
                 port);
        environment(text);
        ranks[i] = process_start("rank");
    }
    environment_clear();
    tell(&ranks[0], 'i', 0, 0, 0, 0);
    for (i = 0; i < 3; i++)
        silent[i] = dial(port);
    CHECK(write(silent[0], "GET / HTTP/1.1\r\n\r\n", 18) == 18);
    half = dial(port);
    hello = hello_of(1, 2, "sesame");
    CHECK(write(half, &hello, 100) == 100);
    hello = hello_of(1, 2, "open");
    refused(port, &hello, "token");
    hello = hello_of(1, 3, "sesame");
    refused(port, &hello, "3 ranks, and rank 0 counts 2");
    hello = hello_of(2, 2, "sesame");
    refused(port, &hello, "says it is rank 2");
    hello = hello_of(0, 2, "sesame");
    refused(port, &hello, "says it is rank 0");
    hello = hello_of(-1, 2, "sesame");
    refused(port, &hello, "says it is rank -1");
    hello = hello_of(1, 2, "sesame");
    hello.version++;
    refused(port, &hello, "version");
    tell(&ranks[1], 'i', 0, 0, 0, 0);
    for (i = 0; i < 2; i++) {
        result = hear(&ranks[i]);
        CHECK_WENT_WELL(result);
    }
    all(ranks, 2, 'd', 0, 0);
    finish(ranks, 2);
    for (i = 0; i < 3; i++)
        close(silent[i]);
    close(half);
    folder_end();
}

TEST(a_second_process_of_a_rank_is_turned_away)
{
    process ranks[3], twin;
    outcome result;
    char text[256];
    NEEDS(3);
    start(ranks, 3, "");
    snprintf(text, sizeof text, "IGNIS_RANK=1 IGNIS_WORLD_SIZE=3 IGNIS_LOCAL_RANK=1 IGNIS_COMM_DIR=%s", folder);
    environment(text);
    twin = process_start("rank");
    environment_clear();
    tell(&ranks[0], 'i', 0, 0, 0, 0);
    tell(&ranks[1], 'i', 0, 0, 0, 0);
    ignis__sleep_us(300000);
    tell(&twin, 'i', 0, 0, 0, 0);
    result = hear(&twin);
    CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_RENDEZVOUS);
    CHECK_HAS(result.message, "rank 1 is here already");
    tell(&ranks[2], 'i', 0, 0, 0, 0);
    CHECK_WENT_WELL(hear(&ranks[0]));
    CHECK_WENT_WELL(hear(&ranks[1]));
    CHECK_WENT_WELL(hear(&ranks[2]));
    finish(&twin, 1);
    finish(ranks, 3);
    folder_end();
}

TEST(a_rank_that_dies_while_others_are_waited_for_may_come_again)
{
    process ranks[2], second;
    char text[256];
    NEEDS(2);
    start(ranks, 2, "");
    snprintf(text, sizeof text, "IGNIS_RANK=1 IGNIS_WORLD_SIZE=3 IGNIS_LOCAL_RANK=1 IGNIS_COMM_DIR=%s", folder);
    tell(&ranks[1], 'i', 0, 0, 0, 0);
    ignis__sleep_us(100000);
    process_kill(&ranks[1]); /* before rank 0 is there; its socket stays behind */
    snprintf(text, sizeof text, "IGNIS_RANK=1 IGNIS_WORLD_SIZE=2 IGNIS_LOCAL_RANK=1 IGNIS_COMM_DIR=%s", folder);
    environment(text);
    second = process_start("rank");
    environment_clear();
    tell(&ranks[0], 'i', 0, 0, 0, 0);
    tell(&second, 'i', 0, 0, 0, 0);
    CHECK_WENT_WELL(hear(&ranks[0]));
    CHECK_WENT_WELL(hear(&second));
    finish(&ranks[0], 1);
    finish(&second, 1);
    snprintf(text, sizeof text, "rm -r %s", folder);
    CHECK_INT(system(text), 0);
}

TEST(what_a_killed_rank_0_left_behind_is_in_nobodys_way)
{
    process ranks[2];
    char text[128];
    int round;
    NEEDS(2);
    for (round = 0; round < 2; round++) {
        start(ranks, 2, "");
        tell(&ranks[0], 'i', 0, 0, 0, 0);
        if (round == 0) {
            ignis__sleep_us(300000);
            process_kill(&ranks[0]);
            finish(&ranks[1], 1);
            continue;
        }
        tell(&ranks[1], 'i', 0, 0, 0, 0);
        CHECK_WENT_WELL(hear(&ranks[0]));
        CHECK_WENT_WELL(hear(&ranks[1]));
        finish(ranks, 2);
    }
    snprintf(text, sizeof text, "rm -r %s", folder);
    CHECK_INT(system(text), 0);
}

TEST(two_ranks_on_one_gpu_are_refused_unless_staged)
{
    process ranks[2];
    char text[256];
    int i, round;
    outcome result;
    NEEDS(1);
    for (round = 0; round < 2; round++) {
        for (i = 0; i < 2; i++) {
            snprintf(text, sizeof text, "IGNIS_RANK=%d IGNIS_WORLD_SIZE=2 IGNIS_LOCAL_RANK=0 IGNIS_COMM_DIR=%s%s", i, folder,
                     round ? " IGNIS_COMM_TRANSPORT=staged" : "");
            environment(text);
            ranks[i] = process_start("rank");
            tell(&ranks[i], 'i', 0, 0, 0, 0);
        }
        environment_clear();
        for (i = 0; i < 2; i++) {
            result = hear(&ranks[i]);
            if (round) {
                CHECK_WENT_WELL(result);
                continue;
            }
            CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_RENDEZVOUS);
            CHECK_HAS(result.message, "ranks 0 and 1 both use GPU");
        }
        finish(ranks, 2);
    }
    folder_end();
}

/* --- transports ------------------------------------------------------------------------------------------------------- */

TEST(through_host_memory_when_asked)
{
    process ranks[3];
    int i;
    NEEDS(3);
    start(ranks, 3, "IGNIS_COMM_TRANSPORT=staged");
    all(ranks, 3, 'i', 0, 0);
    for (i = 0; i < 3; i++) {
        outcome result = ask(&ranks[i], 'q', 0);
        CHECK_INT(result.info.transport, IGNIS_COMM_STAGED);
        CHECK_HAS(result.info.reason, "asked for");
    }
    all(ranks, 3, 'd', 0, 0);
    finish(ranks, 3);
    folder_end();
}

TEST(ranks_that_ask_for_different_transports_are_told)
{
    process ranks[2];
    char text[256];
    int i;
    NEEDS(2);
    for (i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "IGNIS_RANK=%d IGNIS_WORLD_SIZE=2 IGNIS_LOCAL_RANK=%d IGNIS_COMM_DIR=%s IGNIS_COMM_TRANSPORT=%s", i, i,
                 folder, i ? "staged" : "peer");
        environment(text);
        ranks[i] = process_start("rank");
        tell(&ranks[i], 'i', 0, 0, 0, 0);
    }
    environment_clear();
    for (i = 0; i < 2; i++) {
        outcome result = hear(&ranks[i]);
        CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_RENDEZVOUS);
        CHECK_HAS(result.message, "rank 0 asks for peer and rank 1 for staged");
    }
    finish(ranks, 2);
    folder_end();
}

/* --- split, shrink, abort, death -------------------------------------------------------------------------------------- */

TEST(split_orders_by_key_and_color)
{
    process ranks[RANKS];
    outcome result;
    int i;
    NEEDS(RANKS);
    start(ranks, RANKS, "");
    all(ranks, RANKS, 'i', 0, 0);
    for (i = 0; i < RANKS; i++)
        tell(&ranks[i], 's', 0, 1, i % 2, -i); /* 2, 0 and 3, 1 */
    for (i = 0; i < RANKS; i++)
        CHECK_WENT_WELL(hear(&ranks[i]));
    for (i = 0; i < RANKS; i++) {
        result = ask(&ranks[i], 'q', 1);
        CHECK_INT(result.info.size, 2);
        CHECK_INT(result.info.rank, i < 2);
        CHECK_INT(result.info.device, i);
    }
    all(ranks, RANKS, 'd', 0, 0); /* the new ones do without the old one */
    for (i = 0; i < RANKS; i++)
        tell(&ranks[i], 's', 1, 2, i < 2 ? 0 : -1, 0);
    for (i = 0; i < RANKS; i++) {
        tell(&ranks[i], 'q', 2, 2, 0, 0);
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
    all(ranks, RANKS, 'i', 0, 0);
    for (i = 0; i < RANKS; i++)
        tell(&ranks[i], 's', 0, 3, i == 1 ? 0 : 1, 0); /* one that the dead rank has no part in */
    for (i = 0; i < RANKS; i++)
        CHECK_WENT_WELL(hear(&ranks[i]));
    for (round = 0; round < 2; round++) { /* rank 1 dies, and then rank 0, who led the meeting */
        int dead = 1 - round;
        double noticed = 0;
        for (i = 0; i < RANKS; i++)
            if (i != dead && ranks[i].pid > 0)
                tell(&ranks[i], 'w', round, round, 0, 0);
        ignis__sleep_us(100000);
        process_kill(&ranks[dead]);
        ranks[dead].pid = -1;
        for (i = 0; i < RANKS; i++) {
            if (ranks[i].pid < 0)
                continue;
            result = hear(&ranks[i]);
            CHECK_INT(result.info.status, IGNIS_ERROR_PEER);
            CHECK_INT(result.info.failed_rank, 0 + (round == 0));
            noticed = result.seconds > noticed ? result.seconds : noticed;
        }
        CHECK(noticed < 2); /* 0.1 s of it before the kill */
        all(ranks, RANKS, 'k', round, round + 1);
        for (i = 0; i < RANKS; i++) {
            if (ranks[i].pid < 0)
                continue;
            result = ask(&ranks[i], 'q', round + 1);
            CHECK_INT(result.info.size, RANKS - 1 - round);
            CHECK_INT(result.info.status, IGNIS_OK);
            CHECK_INT(result.info.rank, i > dead ? i - 1 - round : i);
            result = ask(&ranks[i], 'q', 3);
            CHECK_INT(result.info.status, round ? IGNIS_ERROR_PEER : IGNIS_OK);
        }
    }
    all(ranks, RANKS, 'd', 0, 0);
    all(ranks, RANKS, 'd', 1, 1);
    all(ranks, RANKS, 'd', 2, 2);
    finish(ranks, RANKS);
    folder_end();
}

TEST(a_rank_dies_inside_operations_and_the_survivors_go_on)
{
    static const char *const transports[] = {"", "IGNIS_COMM_TRANSPORT=staged"};
    process ranks[3];
    outcome result;
    int i, t;
    NEEDS(3);
    for (t = 0; t < 2; t++) {
        start(ranks, 3, transports[t]);
        all(ranks, 3, 'i', 0, 0);
        for (i = 0; i < 3; i++)
            tell(&ranks[i], 'r', 0, 0, 1000, 2);
        for (i = 0; i < 3; i++)
            CHECK_WENT_WELL(hear(&ranks[i]));
        for (i = 0; i < 3; i++)
            tell(&ranks[i], 'r', 0, 0, 10000, 1000000);
        ignis__sleep_us(500000);
        process_kill(&ranks[1]);
        ranks[1].pid = -1;
        for (i = 0; i < 3; i += 2) {
            result = hear(&ranks[i]);
            CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_PEER);
            CHECK(result.seconds < 10);
        }
        all(ranks, 3, 'k', 0, 1);
        all(ranks, 3, 'd', 0, 0);
        for (i = 0; i < 3; i += 2)
            tell(&ranks[i], 'r', 1, 1, 5000, 3);
        for (i = 0; i < 3; i += 2)
            CHECK_WENT_WELL(hear(&ranks[i]));
        finish(ranks, 3);
    }
    folder_end();
}

TEST(a_rank_that_dies_while_others_shrink_is_left_out_too)
{
    process ranks[RANKS];
    outcome result;
    int i;
    NEEDS(RANKS);
    start(ranks, RANKS, "");
    all(ranks, RANKS, 'i', 0, 0);
    process_kill(&ranks[3]);
    ranks[3].pid = -1;
    tell(&ranks[0], 'k', 0, 1, 0, 0);
    tell(&ranks[1], 'k', 0, 1, 0, 0);
    ignis__sleep_us(50000);
    process_kill(&ranks[2]);
    ranks[2].pid = -1;
    for (i = 0; i < 2; i++)
        CHECK_WENT_WELL(hear(&ranks[i]));
    for (i = 0; i < 2; i++) {
        result = ask(&ranks[i], 'q', 1);
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
    all(ranks, 3, 'i', 0, 0);
    all(ranks, 3, 'k', 0, 1);
    for (i = 0; i < 3; i++)
        CHECK_INT(ask(&ranks[i], 'q', 1).info.size, 3);
    CHECK_WENT_WELL(ask(&ranks[1], 'd', 1)); /* a goodbye is no death */
    CHECK_WENT_WELL(ask(&ranks[1], 'd', 0));
    ignis__sleep_us(50000);
    for (i = 0; i < 3; i += 2)
        CHECK_INT(ask(&ranks[i], 'q', 1).info.status, IGNIS_OK);
    tell(&ranks[0], 's', 1, 2, 0, 0); /* it does not come */
    result = hear(&ranks[0]);
    CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_PEER);
    CHECK_HAS(result.message, "rank 1 has died, or left");
    tell(&ranks[0], 'k', 1, 2, 0, 0);
    tell(&ranks[2], 'k', 1, 2, 0, 0);
    CHECK_WENT_WELL(hear(&ranks[0]));
    CHECK_WENT_WELL(hear(&ranks[2]));
    CHECK_INT(ask(&ranks[2], 'q', 2).info.rank, 1);
    finish(ranks, 3);
    folder_end();
}

TEST(abort_reaches_all_ranks)
{
    process ranks[3];
    int i;
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, 'i', 0, 0);
    for (i = 0; i < 3; i++)
        tell(&ranks[i], 's', 0, 1, 0, 0);
    for (i = 0; i < 3; i++)
        CHECK_WENT_WELL(hear(&ranks[i]));
    CHECK_WENT_WELL(ask(&ranks[1], 'a', 0));
    for (i = 0; i < 3; i++) {
        outcome result = ask(&ranks[i], 'w', 0);
        CHECK_INT(result.info.status, IGNIS_ERROR_PEER);
        CHECK_INT(result.info.failed_rank, 1);
        CHECK(result.seconds < 1);
        CHECK_INT(ask(&ranks[i], 'q', 1).info.status, IGNIS_OK);
    }
    all(ranks, 3, 'k', 0, 2);
    for (i = 0; i < 3; i++)
        CHECK_INT(ask(&ranks[i], 'q', 2).info.size, 3);
    finish(ranks, 3);
    folder_end();
}

TEST(a_rank_that_does_not_come_to_a_split_is_named)
{
    process ranks[2];
    outcome result;
    command order = {'i', 0, 0, 0, 0, 3};
    int i;
    NEEDS(2);
    start(ranks, 2, "");
    for (i = 0; i < 2; i++)
        CHECK(process_send(ranks[i].socket, &order, sizeof order, -1));
    for (i = 0; i < 2; i++)
        CHECK_WENT_WELL(hear(&ranks[i]));
    result = ask(&ranks[0], 's', 0);
    CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK_HAS(result.message, "rank 1 did not answer");
    CHECK(result.seconds < 5);
    finish(ranks, 2);
    folder_end();
}

/* --- in this process: threads, descriptors, failures ------------------------------------------------------------------- */

typedef struct member {
    int rank, size, rounds;
    double timeout_s;
    ignis_comm_transport transport;
    char place[96];
    ignis_status status; /* the first that was not IGNIS_OK */
    char message[512];
} member;

static void *member_run(void *pointer)
{
    member *m = (member *)pointer;
    ignis_comm_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.rank = m->rank;
    desc.size = m->size;
    desc.rendezvous = m->place;
    desc.timeout_s = m->timeout_s;
    desc.transport = m->transport;
    for (i = 0; i < m->rounds && m->status == IGNIS_OK; i++) {
        ignis_comm comm = ignis_comm_init(&desc);
        CHECK((comm.id == 0) == (ignis_status_last() != IGNIS_OK));
        if (comm.id)
            ignis_comm_destroy(comm);
        m->status = ignis_status_last();
        snprintf(m->message, sizeof m->message, "%s", ignis_status_message());
        ignis_status_clear();
    }
    return NULL;
}

/*  rounds of init and destroy by threads, each a rank. */
static void members_run(member *members, int count, int rounds, ignis_comm_transport transport, double timeout_s)
{
    pthread_t threads[RANKS];
    int i;
    for (i = 0; i < count; i++) {
        memset(&members[i], 0, sizeof members[i]);
        members[i].rank = i, members[i].size = count, members[i].rounds = rounds, members[i].transport = transport;
        members[i].timeout_s = timeout_s;
        snprintf(members[i].place, sizeof members[i].place, "dir:%s", folder);
        pthread_create(&threads[i], NULL, member_run, &members[i]);
    }
    for (i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

TEST(threads_are_ranks_and_leave_nothing_behind)
{
    static const ignis_comm_transport transports[] = {IGNIS_COMM_PEER, IGNIS_COMM_STAGED};
    member members[RANKS];
    int i, t, descriptors;
    long long live;
    ignis_memory_info memory;
    NEEDS(2);
    environment_clear();
    SETUP(NULL);
    for (t = 0; t < 2; t++) {
        members_run(members, 2, 2, transports[t], 20);
        descriptors = process_descriptors();
        CHECK_OK(ignis_memory_query(0, &memory));
        live = memory.live_bytes;
        members_run(members, 2, 100, transports[t], 20);
        for (i = 0; i < 2; i++)
            CHECK_TEXT(members[i].message, "");
        CHECK_INT(process_descriptors(), descriptors);
        CHECK_OK(ignis_memory_query(0, &memory));
        CHECK_INT(memory.live_bytes, live);
    }
    folder_end();
}

TEST(any_driver_call_may_fail)
{
    enum { PAIRS = 4 };
    static const char *const counted[PAIRS][2] = {{"cuMemMap", "cuMemUnmap"},
                                                  {"cuMemAddressReserve", "cuMemAddressFree"},
                                                  {"cuMemHostRegister_v2", "cuMemHostUnregister"},
                                                  {"cuStreamCreate", "cuStreamDestroy_v2"}};
    static const char *const freeing[] = {"cuMemUnmap",         "cuMemAddressFree", "cuMemRelease", "cuMemHostUnregister",
                                          "cuStreamDestroy_v2", "cuMemFreeHost",    "cuMemFree_v2", "cuModuleUnload"};
    member members[2];
    int k, i, c, failures = 0, descriptors;
    NEEDS(2);
    environment_clear();
    SETUP(NULL);
    members_run(members, 2, 1, IGNIS_COMM_TRANSPORT_DEFAULT, 20); /* devices are open, kernels loaded */
    descriptors = process_descriptors();
    for (k = 1; k < 400; k++) {
        const char *failed;
        bool frees = false;
        int before[PAIRS];
        for (c = 0; c < PAIRS; c++)
            before[c] = fault_count(counted[c][0]) - fault_count(counted[c][1]);
        fault_arm("cu", k, 999);
        members_run(members, 2, 1, IGNIS_COMM_TRANSPORT_DEFAULT, 4);
        failed = fault.failed;
        fault_disarm();
        if (!failed)
            break;
        failures += members[0].status != IGNIS_OK;
        for (c = 0; c < (int)(sizeof freeing / sizeof freeing[0]); c++) /* what the driver is made to keep is kept */
            frees |= strcmp(failed, freeing[c]) == 0;
        if (frees)
            descriptors = process_descriptors();
        CHECK_INT(process_descriptors(), descriptors);
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

TEST(what_is_forked_holds_nothing)
{
    process ranks[2];
    outcome result;
    NEEDS(2);
    start(ranks, 2, "");
    all(ranks, 2, 'i', 0, 0);
    CHECK_WENT_WELL(ask(&ranks[1], 'f', 0)); /* its child lives on, and fails every call */
    process_kill(&ranks[1]);
    result = ask(&ranks[0], 'w', 0);
    CHECK_INT(result.info.status, IGNIS_ERROR_PEER);
    CHECK(result.seconds < 2);
    finish(&ranks[0], 1);
    folder_end();
}

/* --- several hosts ----------------------------------------------------------------------------------------------------- */

/*  Two "hosts" of two ranks: those of different ones speak through rank 0, and their data goes through NCCL. */
TEST(ranks_of_several_hosts_use_nccl)
{
    process ranks[RANKS];
    outcome result;
    char text[512];
    int i, port = free_port(), round;
    NEEDS(RANKS);
    if (!getenv("IGNIS_NCCL_LIBRARY") && getenv("IGNIS_CUDA_LIBRARY")) {
        snprintf(text, sizeof text, "%.*s/libnccl.so.2", (int)(strrchr(getenv("IGNIS_CUDA_LIBRARY"), '/') - getenv("IGNIS_CUDA_LIBRARY")),
                 getenv("IGNIS_CUDA_LIBRARY"));
        setenv("IGNIS_NCCL_LIBRARY", text, 1);
    }
    for (i = 0; i < RANKS; i++) {
        snprintf(text, sizeof text,
                 "IGNIS_RANK=%d IGNIS_WORLD_SIZE=%d IGNIS_LOCAL_RANK=%d IGNIS_COMM_HOST=host%d MASTER_ADDR=localhost MASTER_PORT=%d "
                 "IGNIS_SIM_STREAMS=thread",
                 i, RANKS, i, i / 2, port);
        environment(text);
        ranks[i] = process_start("rank");
        tell(&ranks[i], 'i', 0, 0, 0, 0);
    }
    environment_clear();
    unsetenv("IGNIS_SIM_STREAMS");
    for (i = 0; i < RANKS; i++) {
        result = hear(&ranks[i]);
        if (result.status == IGNIS_ERROR_LIBRARY) {
            finish(ranks, 0);
            for (i = 0; i < RANKS; i++)
                process_kill(&ranks[i]);
            folder_end();
            SKIP("NCCL is not installed");
        }
        CHECK_WENT_WELL(result);
    }
    for (i = 0; i < RANKS; i++) {
        result = ask(&ranks[i], 'q', 0);
        CHECK_INT(result.info.transport, IGNIS_COMM_NCCL);
        CHECK_INT(result.info.hosts, 2);
        CHECK_INT(result.info.local_size, 2);
        CHECK_INT(result.info.local_rank, i % 2);
        CHECK_HAS(result.info.reason, "2 hosts");
        tell(&ranks[i], 's', 0, 1, i / 2, 0); /* a host's own do without NCCL */
    }
    for (i = 0; i < RANKS; i++)
        CHECK_WENT_WELL(hear(&ranks[i]));
    for (i = 0; i < RANKS; i++)
        CHECK_INT(ask(&ranks[i], 'q', 1).info.transport, IGNIS_COMM_PEER);
    for (round = 0; round < 2; round++) {
        for (i = 0; i < RANKS; i++)
            tell(&ranks[i], 'r', round, round, 1000, 2);
        for (i = 0; i < RANKS; i++)
            CHECK_WENT_WELL(hear(&ranks[i]));
    }
    for (i = 0; i < RANKS - 1; i++)
        tell(&ranks[i], 'w', 0, 0, 0, 0);
    ignis__sleep_us(50000);
    process_kill(&ranks[RANKS - 1]);
    ranks[RANKS - 1].pid = -1;
    for (i = 0; i < RANKS - 1; i++) {
        result = hear(&ranks[i]);
        CHECK_INT(result.info.status, IGNIS_ERROR_PEER);
        CHECK_INT(result.info.failed_rank, RANKS - 1);
    }
    all(ranks, RANKS, 'k', 0, 2);
    for (i = 0; i < RANKS - 1; i++)
        CHECK_INT(ask(&ranks[i], 'q', 2).info.size, 3);
    finish(ranks, RANKS);
    folder_end();
}

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
