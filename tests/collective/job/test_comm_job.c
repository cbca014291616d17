// SPDX-License-Identifier: MIT
/*  test_comm_job.c - how ranks find each other and make communicators; see test_comm_job_deaths.c, too

    Ranks are puppets that stay from one test to the next, as a process needs a second to begin with a GPU.

    What can go wrong with memory that is shared, and where it is tried (test_ left out):
    T1   freed, transferred or stale handles        contract, array, vmm; channel, transport and comm_ops each with
    stale handles of theirs
    T2   freed while exported or imported           transport_processes: X_between_processes; share:
    two_processes_use_one_array, a_dead_user_holds_nothing
    T3   handles that are no handles                transport: every_flipped_bit_.., another_token_..; vmm:
    descriptors_that_are_no_memory
    T4   strangers                                  channel_strangers: strangers_.., without_the_token_..; channel:
    the_folder_must_be_private; here: strangers_..
    T5   headers that lie                           channel_strangers: a_message_that_lies_.., bytes_that_lie_..;
    transport: sealed_lies_..; share: records_..;
                                                    comm_job_deaths: a_rank_that_lies_..
    T6   what cannot be exported                    transport: what_cannot_be_shared_..; share: only_what_was_made_..;
    vmm: the_memory_behind_an_array
    T7   one process, fork, exec                    transport: handles_of_this_process_..; channel: a_forked_child_..;
    vmm: a_forked_child_..;
                                                    comm_job_deaths: what_is_forked_holds_nothing
    T8   a rank is killed                           comm_job_deaths: a_rank_that_is_killed_at_any_time_..,
    a_death_is_noticed_..,
                                                    a_rank_that_dies_while_others_shrink_.., a_fault_of_one_rank_..;
                                                    parallel: a_rank_that_dies_in_backward_..
    T9   an exporter is killed                      transport_processes: a_long_kernel_survives_..,
    the_importer_survives_..; vmm; share: memory_outlives_who_made_it
    T10  slow, stopped, aborted                     comm_ops_failures: a_rank_that_is_late_.., an_abort_..;
                                                    comm_job_deaths: a_rank_that_stands_still, abort_reaches_all_ranks
    T11  ranks that disagree                        comm_ops_failures: ranks_that_disagree_..; comm_ops:
    a_receive_of_another_size_..;
                                                    comm_job_deaths: processes_that_disagree_..
    T12  sizes, alignment, aliasing                 comm_ops: all_reduce_sizes_.., _at_the_crossovers, any_alignment,
    parts_of_one_array_.., more_than_4_gib
    T13  each driver call fails                     vmm: every_step_unwinds; transport: every_driver_call_..; share,
    comm_ops_failures: .._fails_anywhere;
                                                    comm_job_deaths: any_driver_call_may_fail; parallel:
                                                    what_fails_halfway_..; out of memory: memory, faults
    T14  cycles, limits, places                     vmm, transport_processes: .._cycles_..; share: many_shares_..;
    channel: descriptors_.., long_and_usual_places,
                                                    what_a_dead_server_left_.., names_and_folders_..; comm_job_deaths:
                                                    threads_are_ranks_.., two_jobs_at_once
    T15  who reaches whom                           comm_job_deaths: hidden_and_permuted_devices, a_device_is_known_..,
    transports_and_algorithms_..;
                                                    here: through_host_memory_..
    T16  addresses that are used again              transport_processes: an_address_that_is_used_again_..
    T17  graphs                                     comm_ops: graphs_and_eager_.., a_capture_on_one_rank_only,
    an_abort_ends_a_replay, replays_on_two_streams
    T18  numbers of operations, delays, protocol    comm_ops: numbers_come_back, blocks_that_are_late_..,
    all_ranks_and_algorithms_..; comm_model
    T19  threads                                    threads; transport: threads_share_..; comm_ops: a_thread_..; the
    lane test-tsan
    T20  ranks that meet                            here, up to two_ranks_on_one_gpu_..; nccl: a library that is
    missing, old, or none */
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

/* --- the environment ---------------------------------------------------------------------------------------------- */

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
#ifndef _WIN32 /* where a variable that is empty is none */
        {"RANK= WORLD_SIZE=2", "RANK is \"\""},
#endif
        {"RANK=0 WORLD_SIZE=0", "WORLD_SIZE is \"0\""},
        {"RANK=0 WORLD_SIZE=1025", "WORLD_SIZE is \"1025\""},
        {"RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE is"},
        {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=z", "SLURM_LOCALID is \"z\""},
        {"RANK=0 WORLD_SIZE=1 IGNIS_RANK=1 IGNIS_WORLD_SIZE=2",
         "IGNIS_RANK and IGNIS_WORLD_SIZE say rank 1 of 2, but RANK and WORLD_SIZE say rank 0 of 1"},
        {"PMI_RANK=1 PMI_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK"},
        {"RANK=0 WORLD_SIZE=2", "has no rendezvous"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost", "MASTER_PORT"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=0", "MASTER_PORT is \"0\""},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost IGNIS_COMM_PORT=70000", "IGNIS_COMM_PORT is \"70000\""},
        {"IGNIS_COMM_LAUNCHER=torchrun", "whose variables are not set"},
        {"IGNIS_COMM_LAUNCHER=mpirun", "expected ignis, torchrun"},
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
    static const char *const table[] = {
        "IGNIS_RANK=0 IGNIS_WORLD_SIZE=1 IGNIS_LOCAL_RANK=1",
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
    char place[200];
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
#ifndef _WIN32                    /* where a folder is taken as it is, and pipes do not lie in it */
    desc.rendezvous = "dir:/tmp"; /* not private */
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_IO, IGNIS_DIAG_CHANNEL_IO);
    snprintf(place, sizeof place, "dir:/tmp/%0120d", 0);
    CHECK(mkdir(place + 4, 0700) == 0);
    desc.rendezvous = place;
    CHECK_FAILS(ignis_comm_init(&desc), IGNIS_ERROR_IO, IGNIS_DIAG_CHANNEL_IO);
    CHECK_MESSAGE_HAS("too long for sockets");
    CHECK_INT(rmdir(place + 4), 0);
#else
    (void)place;
#endif
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

/* --- meeting ------------------------------------------------------------------------------------------------------ */

TEST(four_ranks_meet_in_a_folder)
{
    process ranks[RANKS];
    int i;
    NEEDS(RANKS);
    start(ranks, RANKS, "");
    all(ranks, RANKS, INIT, 0, 0);
    for (i = 0; i < RANKS; i++) {
        outcome result = ask(&ranks[i], QUERY, 0);
        CHECK_INT(result.info.rank, i);
        CHECK_INT(result.info.size, RANKS);
        CHECK_INT(result.info.local_rank, i);
        CHECK_INT(result.info.local_size, RANKS);
        CHECK_INT(result.info.hosts, 1);
        CHECK_INT(result.info.device, i);
        CHECK_INT(result.info.transport, IGNIS_COMM_PEER);
        CHECK_HAS(result.info.reason, "each other's memory");
    }
    all(ranks, RANKS, DESTROY, 0, 0);
    all(ranks, RANKS, INIT, 0, 1); /* again, in the same place */
    all(ranks, RANKS, QUERY, 1, 1);
    end(ranks, RANKS); /* shutdown ends what was not destroyed */
    folder_end();
}

TEST(ranks_of_torchrun_meet_beside_its_store)
{
    process ranks[2];
    char text[256];
    int i, port = free_port();
    NEEDS(2);
    for (i = 0; i < 2; i++) {
        snprintf(
            text, sizeof text,
            "RANK=%d WORLD_SIZE=2 LOCAL_RANK=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d TORCHELASTIC_USE_AGENT_STORE=True",
            i, i, port - 1);
        ranks[i] = puppet_take(text);
    }
    all_well(ranks, 2);
    all(ranks, 2, INIT, 0, 0);
    all(ranks, 2, DESTROY, 0, 0);
    finish(ranks, 2);
    folder_end();
}

/*  Without a secret nobody listens at the port, where anybody could come. */
TEST(without_a_secret_no_port_is_open)
{
#ifdef _WIN32
    SKIP("on Windows no port is ever open");
#else
    process rank;
    char text[256];
    int port = free_port(), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address;
    outcome result;
    NEEDS(1);
    snprintf(text, sizeof text,
             "IGNIS_RANK=0 IGNIS_WORLD_SIZE=2 IGNIS_LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d", port);
    rank = puppet_take(text);
    all_well(&rank, 1);
    patience = 1;
    tell(&rank, INIT, 0, 0, 0, 0);
    ignis__sleep_us(400000);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) != 0);
    close(fd);
    result = hear(&rank);
    CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    finish(&rank, 1);
    folder_end();
#endif
}

/*  mpirun and srun give the job a name, which is all that ranks of one host need; those of other jobs do not meet them.
    */
TEST(the_name_of_a_job_is_place_enough)
{
    static const char *const table[] = {
        "PMIX_NAMESPACE=prterun-1 OMPI_COMM_WORLD_RANK=%d OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=%d",
        "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=%d SLURM_NTASKS=2 SLURM_LOCALID=%d",
        "TORCHELASTIC_RUN_ID=5f3 RANK=%d WORLD_SIZE=2 LOCAL_RANK=%d"};
    process ranks[2];
    outcome result;
    char text[256];
    int i, k;
    NEEDS(2);
    for (k = 0; k < COUNT_OF(table); k++) {
        for (i = 0; i < 2; i++) {
            snprintf(text, sizeof text, table[k], i, i);
            ranks[i] = puppet_take(text);
        }
        all_well(ranks, 2);
        all(ranks, 2, INIT, 0, 0);
        finish(ranks, 2);
    }
    for (i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "SLURM_JOB_ID=7 SLURM_STEP_ID=%d SLURM_PROCID=%d SLURM_NTASKS=2 SLURM_LOCALID=%d",
                 i, i, i);
        ranks[i] = puppet_take(text);
    }
    all_well(ranks, 2);
    patience = 1;
    tell_all(ranks, 2, INIT, 0, 0, 0, 0);
    for (i = 0; i < 2; i++) {
        result = hear(&ranks[i]);
        CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    }
    finish(ranks, 2);
    folder_end();
}

/*  --- many ranks: processes without a device, which only meet --- */

/*  One of them; true when it has met the others, and has heard from each. */
static bool light_rank(int rank, int size, const char *where)
{
    ignis__agreement agreement;
    ignis__job *job = light_meet(rank, size, where, "");
    int32_t *every = (int32_t *)malloc(sizeof *every * (size_t)size), mine = rank;
    int *member = (int *)malloc(sizeof *member * (size_t)size), i;
    bool ok;
    if (!job)
        return false;
    for (i = 0; i < size; i++)
        member[i] = i;
    memset(&agreement, 0, sizeof agreement);
    agreement.job = job;
    agreement.member = member;
    agreement.count = size;
    agreement.me = rank;
    agreement.key = job->key;
    agreement.deadline = ignis__monotonic_ns() + 60000000000;
    ok = ignis__agreement_step(&agreement, &mine, sizeof mine, every, -1, NULL);
    for (i = 0; ok && i < size; i++)
        ok = every[i] == i;
    ignis__job_drop(job);
    free(every);
    free(member);
    return ok;
}

#ifdef _WIN32 /* a process takes longer to begin there, and is this program again */
enum { MANY = 24 };
TEST(two_dozen_ranks_meet)
{
    process ranks[MANY];
    char role[128];
    int i;
    REQUIRE(folder_make());
    environment_clear();
    for (i = 0; i < MANY; i++) {
        snprintf(role, sizeof role, "light %d %s", i, folder);
        ranks[i] = process_start(role);
    }
    for (i = 0; i < MANY; i++)
        CHECK_INT(process_end(&ranks[i]), 0);
    folder_end();
}
static int light_role(const char *role)
{
    char where[64] = "";
    int rank = 0;
    return sscanf(role, "light %d %63s", &rank, where) == 2 && light_rank(rank, MANY, where) ? 0 : 1;
}
TEST(a_host_that_vanishes_is_noticed) { SKIP("on Windows all ranks are on one host"); }
#else
static int light_role(const char *role) { return (void)role, 1; }

TEST(two_hundred_ranks_meet)
{
    enum { MANY = 200 };
    const int rounds = test_env("IGNIS_SOAK") ? 6 : 1;
    pid_t ranks[MANY];
    int i, round, well;
    REQUIRE(folder_make());
    environment_clear();
    for (round = 0; round < rounds; round++) {
        fflush(stdout);
        for (i = 0; i < MANY; i++) {
            ranks[i] = fork();
            if (ranks[i] == 0)
                _exit(light_rank(i, MANY, folder) ? 0 : 1);
        }
        for (i = well = 0; i < MANY; i++) {
            int status = 0;
            well += waitpid(ranks[i], &status, 0) == ranks[i] && status == 0;
        }
        CHECK_INT(well, MANY);
    }
    folder_end();
}

extern int unshare(int); /* which strict standards hide */

/*  Takes the only network that this process and its children have up or down. */
static bool network(bool up)
{
    struct {
        char name[16];
        short flags;
        char unused[22];
    } request;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok;
    memset(&request, 0, sizeof request);
    memcpy(request.name, "lo", 3);
    ok = ioctl(fd, 0x8913, &request) == 0; /* SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP */
    request.flags = (short)(up ? request.flags | 1 : request.flags & ~1);
    ok = ok && ioctl(fd, 0x8914, &request) == 0;
    close(fd);
    return ok;
}

/*  Two ranks, each alone on its host, whose network fails: exit code 0 when each noticed in time that the other is
    gone. */
static int network_fails(void)
{
    pid_t ranks[2];
    int i, met[2], status = 0, well = 0;
    char byte;
    if ((unshare(0x40000000) != 0 && unshare(0x50000000) != 0) || !network(true) ||
        pipe(met) != 0) /* CLONE_NEWNET, and CLONE_NEWUSER */
        return 77;
    for (i = 0; i < 2; i++) {
        ranks[i] = fork();
        if (ranks[i] == 0) {
            ignis__job *job = light_meet(i, 2, folder, "127.0.0.1:29511");
            double begin;
            if (!job || write(met[1], "", 1) != 1)
                _exit(1);
            for (begin = test_seconds(); !ignis__job_rank_is_absent(job, NULL, 1 - i) && test_seconds() < begin + 30;)
                ignis__sleep_us(10000);
            _exit(test_seconds() - begin < IGNIS__JOB_SILENCE_S + 3 ? 0 : 2);
        }
    }
    for (i = 0; i < 2; i++)
        if (read(met[0], &byte, 1) != 1)
            return 3;
    if (!network(false))
        return 4;
    for (i = 0; i < 2; i++)
        well += waitpid(ranks[i], &status, 0) == ranks[i] && status == 0;
    return well == 2 ? 0 : 5;
}

/*  Without a word, as when a host loses its power: its ranks are lost within IGNIS__JOB_SILENCE_S. */
TEST(a_host_that_vanishes_is_noticed)
{
    pid_t child;
    int status = 0;
    REQUIRE(folder_make());
    environment_clear();
    fflush(stdout);
    child = fork();
    if (child == 0)
        _exit(network_fails());
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    folder_end();
    if (WEXITSTATUS(status) == 77)
        SKIP("this system gives no network of one's own");
    CHECK_INT(WEXITSTATUS(status), 0);
}
#endif

/* --- T20: what goes wrong when ranks meet ------------------------------------------------------------------------- */

/*  An init of this process as a rank of several, which is to fail. */
static void init_fails(int rank, int size, const char *rendezvous, double timeout_s, ignis_status status,
                       ignis_diagnostic diagnostic)
{
    ignis_comm_desc desc;
    double start = test_seconds();
    memset(&desc, 0, sizeof desc);
    desc.rank = rank;
    desc.size = size;
    desc.rendezvous = rendezvous;
    desc.timeout_s = timeout_s;
    CHECK_FAILS(ignis_comm_init(&desc), status, diagnostic);
    CHECK(test_seconds() - start < timeout_s + PROMPT);
}

TEST(missing_ranks_are_named)
{
    process rank;
    char text[256];
    outcome result;
    NEEDS(2);
    rank = puppet_take(rank_in_folder(2, 4, 1, ""));
    all_well(&rank, 1);
    SETUP(NULL);
    device_open();
    patience = 2;
    tell(&rank, INIT, 0, 0, 0, 0);
    snprintf(text, sizeof text, "dir:%s", folder);
    init_fails(0, 4, text, 1, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK_MESSAGE_HAS("2 of 4 ranks did not connect");
    CHECK_MESSAGE_HAS(": 1, 3");
    result = hear(&rank);
    CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK_HAS(result.message, ": 1, 3");
    init_fails(1, 2, text, 0.2, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK_MESSAGE_HAS("did not reach rank 0");
    setenv("IGNIS_COMM_TOKEN", "sesame", 1);
    init_fails(1, 2, "127.0.0.1:1", 0.2, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
#ifdef _WIN32
    CHECK_MESSAGE_HAS("no server in");
#else
    CHECK_MESSAGE_HAS("refused");
#endif
    finish(&rank, 1);
    folder_end();
}

TEST(a_port_in_use_is_told)
{
#ifdef _WIN32
    SKIP("on Windows no port is ever open");
#else
    char text[64];
    int port, fd = listener(&port);
    environment("IGNIS_COMM_TOKEN=sesame");
    SETUP(NULL);
    snprintf(text, sizeof text, "127.0.0.1:%d", port);
    init_fails(0, 2, text, 1, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_RENDEZVOUS);
    CHECK_MESSAGE_HAS("IGNIS_COMM_PORT");
    init_fails(1, 2, text, 0.3, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT); /* who listens there says nothing */
    close(fd);
    environment_clear();
#endif
}

/*  Where the ranks of an environment meet, which has a token. */
static ignis__endpoint meeting(const char *text)
{
    char where[IGNIS__PATH_MAX] = "";
    ignis__endpoint address;
    ignis__place place;
    ignis_comm_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(&address, 0, sizeof address);
    environment(text);
    CHECK(ignis__place_read("meeting", &desc, &place) && place.has_secret);
    address.kind = *place.address ? IGNIS__CONNECTION_FAR : ignis__connection_kinds[IGNIS_CHANNEL_DEFAULT];
    CHECK(ignis__endpoint_set_paths("meeting", where, place.name, &address));
    if (*place.address)
        ignis__local_path(place.address, address.path);
    memcpy(address.secret, place.secret, sizeof address.secret);
    environment_clear();
    return address;
}

/*  Somebody who connects to rank 0, as soon as that is there. */
static ignis__connection *dial(const ignis__endpoint *address)
{
    ignis__peer_error error;
    int tries;
    for (tries = 0; tries < 2000; tries++) {
        ignis__connection *connection = ignis__connection_create(&error, address->kind, address->path);
        bool again;
        if (address->kind->connect(&error, connection, &again))
            return connection;
        ignis__connection_destroy(connection);
        ignis__sleep_us(2000);
    }
    CHECK(!"nobody is there");
    return NULL;
}

/*  Bytes that need not be a message. */
static void say(ignis__connection *connection, const void *bytes, size_t size)
{
    ignis__peer_error error;
    if (!connection)
        return;
    CHECK(ignis__connection_reserve(&error, connection, IGNIS__HANDSHAKE_BYTES));
    memcpy(connection->outbox, bytes, size);
    connection->outbox_size = size;
    CHECK(ignis__connection_flush(&error, connection, &ignis__deadline_now));
}

/*  One who comes with the ranks' token or another one, says that it is a rank, and hears what there is against it. */
static void refused(const ignis__endpoint *address, int rank, int size, bool other, const char *part)
{
    const ignis__deadline until =
        ignis__deadline_in(other ? 300000000 : 5000000000); /* another token is tried until then */
    unsigned char secret[32];
    ignis__job_rank claim;
    ignis__peer_error error;
    ignis__connection *connection;
    const ignis__client client = {address->kind, address->path,         NULL, secret, &claim,
                                  sizeof claim,  IGNIS__HANDSHAKE_BYTES};
    memset(&claim, 0, sizeof claim);
    claim.rank = rank, claim.size = size;
    memcpy(secret, address->secret, sizeof secret);
    secret[31] ^= other;
    connection = ignis__connection_open(&error, &client, &until);
    CHECK(!connection);
    CHECK_HAS(error.why, part);
    ignis__connection_destroy(connection);
}

TEST(strangers_are_turned_away_and_nobody_else_notices)
{
    process ranks[2];
    char text[256] = "";
    int i, port = free_port();
    ignis__connection *silent[3], *half;
    ignis__endpoint address;
    ignis__message_header head;
    NEEDS(2);
    for (i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "IGNIS_RANK=%d IGNIS_WORLD_SIZE=2 IGNIS_LOCAL_RANK=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                 "IGNIS_COMM_TOKEN=sesame",
                 i, i, port);
        ranks[i] = puppet_take(text);
    }
    all_well(ranks, 2);
    tell(&ranks[0], INIT, 0, 0, 0, 0);
    address = meeting(text);
    for (i = 0; i < 3; i++)
        silent[i] = dial(&address);
    say(silent[0], "GET / HTTP/1.1\r\n\r\n", 18);
    half = dial(&address);
    memset(&head, 0, sizeof head);
    head.magic = IGNIS__MESSAGE_MAGIC;
    head.version = IGNIS__PROTOCOL_VERSION;
    head.type = IGNIS__MESSAGE_HELLO;
    head.size = 16;
    say(half, &head, 20);
    refused(&address, 1, 2, true, "another token");
    refused(&address, 1, 3, false, "its size is 3; rank 0 has size 2");
    refused(&address, 2, 2, false, "claims rank 2");
    refused(&address, 0, 2, false, "claims rank 0");
    refused(&address, -1, 2, false, "claims rank -1");
    tell(&ranks[1], INIT, 0, 0, 0, 0);
    all_well(ranks, 2);
    all(ranks, 2, DESTROY, 0, 0);
    finish(ranks, 2);
    for (i = 0; i < 3; i++)
        ignis__connection_destroy(silent[i]);
    ignis__connection_destroy(half);
    folder_end();
}

#ifndef _WIN32
/*  Somebody who listens where rank 0 should, and answers every connection with the same. */
typedef struct impostor {
    pthread_t thread;
    int fd;
    int type;         /* of a head that comes first; -1: none */
    const char *says; /* what comes then */
    int came;
} impostor;

static void *impostor_serve(void *context)
{
    impostor *self = (impostor *)context;
    for (;;) {
        unsigned char hello[256], answer[512];
        ignis__message_header head;
        size_t size = strlen(self->says), at = 0;
        int fd = accept(self->fd, NULL, NULL);
        if (fd < 0)
            return NULL;
        self->came++;
        memset(&head, 0, sizeof head);
        head.magic = IGNIS__MESSAGE_MAGIC;
        head.version = IGNIS__PROTOCOL_VERSION;
        head.type = (uint16_t)self->type;
        head.size = (uint32_t)size;
        if (self->type >= 0)
            memcpy(answer, &head, at = sizeof head);
        memcpy(answer + at, self->says, size);
        (void)!recv(fd, hello, sizeof hello, 0);
        (void)!send(fd, answer, at + size, MSG_NOSIGNAL);
        ignis__sleep_us(20000);
        close(fd);
    }
}

/*  Whatever a stranger says at rank 0's port, it ends nothing, and reaches no log as it is. */
TEST(a_strangers_word_ends_nothing)
{
    static const struct {
        int type;
        const char *says;
    } words[] = {{IGNIS__MESSAGE_REFUSED, "\x1b[2J\x1b]0;owned\x07 go\naway\r\xff"},
                 {IGNIS__MESSAGE_REFUSED, ""},
                 {IGNIS__MESSAGE_WELCOME, ""},
                 {IGNIS__MESSAGE_WELCOME, "come in"},
                 {IGNIS__MESSAGE_CHALLENGE, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
                 {IGNIS__MESSAGE_CHALLENGE, "short"},
                 {-1, "HTTP/1.1 400 Bad Request\r\n\r\n\x1b[31m"}};
    char text[64], shown[2048];
    int i, k, port;
    environment("IGNIS_COMM_TOKEN=sesame");
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(words); i++) {
        impostor self;
        memset(&self, 0, sizeof self);
        self.fd = listener(&port);
        self.type = words[i].type;
        self.says = words[i].says;
        pthread_create(&self.thread, NULL, impostor_serve, &self);
        snprintf(text, sizeof text, "127.0.0.1:%d", port);
        init_fails(1, 2, text, 0.4, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
        snprintf(shown, sizeof shown, "%.1000s%.1000s", test__message, test_log_text(IGNIS_DIAG_CHANNEL_MESSAGE));
        for (k = 0; shown[k]; k++)
            CHECK((unsigned char)shown[k] >= 0x20 && (unsigned char)shown[k] < 0x7f);
        shutdown(self.fd, SHUT_RDWR);
        close(self.fd);
        pthread_join(self.thread, NULL);
        CHECK(self.came > 1); /* it was tried again */
    }
    environment_clear();
}
#endif

TEST(a_second_process_of_a_rank_is_turned_away)
{
    process ranks[4]; /* the last is rank 1 once more */
    outcome result;
    int late, tries;
    NEEDS(3);
    start(ranks, 3, "");
    ranks[3] = puppet_take(rank_in_folder(1, 3, 1, ""));
    all_well(&ranks[3], 1);
    tell(&ranks[0], INIT, 0, 0, 0, 0);
    tell(&ranks[1], INIT, 0, 0, 0, 0);
    tell(&ranks[3], INIT, 0, 0, 0, 0);
    for (tries = 0; tries < 15000 && !process_heard(ranks[1].socket) && !process_heard(ranks[3].socket); tries++)
        ignis__sleep_us(1000);
    CHECK(process_heard(ranks[1].socket) != process_heard(ranks[3].socket));
    late = process_heard(ranks[1].socket) ? 1 : 3; /* who came first waits for rank 2 */
    result = hear(&ranks[late]);
    CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_RENDEZVOUS);
    CHECK_HAS(result.message, "rank 1 has already come");
    tell(&ranks[2], INIT, 0, 0, 0, 0);
    CHECK_WENT_WELL(hear(&ranks[0]));
    CHECK_WENT_WELL(hear(&ranks[4 - late]));
    CHECK_WENT_WELL(hear(&ranks[2]));
    finish(ranks, 4);
    folder_end();
}

TEST(a_rank_that_dies_while_others_are_waited_for_may_come_again)
{
    process ranks[2];
    NEEDS(2);
    start(ranks, 2, "");
    tell(&ranks[1], INIT, 0, 0, 0, 0);
    ignis__sleep_us(100000);
    process_kill(&ranks[1]); /* before rank 0 is there; its socket stays behind */
    ranks[1] = puppet_take(rank_in_folder(1, 2, 1, ""));
    all_well(&ranks[1], 1);
    all(ranks, 2, INIT, 0, 0);
    finish(ranks, 2);
    test_remove_folder(folder); /* processes that were killed have left something there */
}

TEST(what_a_killed_rank_0_left_behind_is_in_nobodys_way)
{
    process ranks[2];
    NEEDS(2);
    start(ranks, 2, "");
    tell(&ranks[0], INIT, 0, 0, 0, 0);
    ignis__sleep_us(300000);
    die(&ranks[0]);
    finish(ranks, 2);
    start(ranks, 2, "");
    all(ranks, 2, INIT, 0, 0);
    finish(ranks, 2);
    test_remove_folder(folder); /* processes that were killed have left something there */
}

TEST(two_ranks_on_one_gpu_are_refused_unless_staged)
{
    process ranks[2];
    int i, round;
    NEEDS(1);
    for (round = 0; round < 2; round++) {
        for (i = 0; i < 2; i++)
            ranks[i] = puppet_take(rank_in_folder(i, 2, 0, round ? "IGNIS_COMM_TRANSPORT=staged" : ""));
        all_well(ranks, 2);
        tell_all(ranks, 2, INIT, 0, 0, 0, 0);
        if (round)
            all_well(ranks, 2);
        else
            one_gpu_is_refused(ranks);
        finish(ranks, 2);
    }
    folder_end();
}

/* --- transports --------------------------------------------------------------------------------------------------- */

TEST(through_host_memory_when_asked)
{
    process ranks[3];
    int i;
    NEEDS(3);
    start(ranks, 3, "IGNIS_COMM_TRANSPORT=staged");
    all(ranks, 3, INIT, 0, 0);
    for (i = 0; i < 3; i++) {
        outcome result = ask(&ranks[i], QUERY, 0);
        CHECK_INT(result.info.transport, IGNIS_COMM_STAGED);
        CHECK_HAS(result.info.reason, "requested");
    }
    all(ranks, 3, DESTROY, 0, 0);
    finish(ranks, 3);
    folder_end();
}

/*  Two ranks with a variable each, which do not go together: both are told so. */
static void ranks_that_differ(const char *first, const char *second, ignis_status status, ignis_diagnostic diagnostic,
                              const char *told)
{
    process ranks[2];
    int i;
    for (i = 0; i < 2; i++)
        ranks[i] = puppet_take(rank_in_folder(i, 2, i, i ? second : first));
    all_well(ranks, 2);
    tell_all(ranks, 2, INIT, 0, 0, 0, 0);
    for (i = 0; i < 2; i++) {
        outcome result = hear(&ranks[i]);
        CHECK_WENT(result, status, diagnostic);
        CHECK_HAS(result.message, told);
    }
    finish(ranks, 2);
    folder_end();
}

TEST(ranks_that_ask_for_different_transports_are_told)
{
    NEEDS(2);
    ranks_that_differ("IGNIS_COMM_TRANSPORT=peer", "IGNIS_COMM_TRANSPORT=staged", IGNIS_ERROR_PEER,
                      IGNIS_DIAG_COMM_RENDEZVOUS, "rank 0 requests peer and rank 1 staged");
}

TEST(ranks_that_are_tuned_in_different_ways_are_told)
{
    NEEDS(2);
    ranks_that_differ("IGNIS_COMM_TUNE=blocks=8", "IGNIS_COMM_TUNE=blocks=4", IGNIS_ERROR_ARGUMENT,
                      IGNIS_DIAG_COMM_ENVIRONMENT, "IGNIS_COMM_TUNE differs between rank 0 and rank 1");
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    const bool light = role && strncmp(role, "light ", 6) == 0;
    const int code = light ? light_role(role) : ranks_main(argc, argv, own);
    int i;
    for (i = 0; i < RANKS; i++)
        if (idle[i].pid > 0)
            process_end(&idle[i]);
    return code;
}
