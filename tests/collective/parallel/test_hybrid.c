// SPDX-License-Identifier: MIT
/*  test_hybrid.c - shards inside groups of ranks, copies between them: losses and weights beside one rank's, on one
    host and on two simulated ones; which runs have equal bits; faults; what is refused

    Ranks are processes that run cases of a table, which they know too, and write what came of them to files. */
#include "fault.h"
#include "tensor.h"

#include "shards.h"

#include "processes.h"

/*  Forms of training, with all of graph, accumulation and clipping. */
static const struct form {
    bool graph, pieces, clips;
    method method;
    ignis_dtype dtype;
    bool scales, small, averages;
} forms[] = {{false, false, false, SGD, IGNIS_F32, false, false, false},
             {false, false, true, ADAMW, IGNIS_F32, false, true, true},
             {false, true, false, ADAMW, IGNIS_F32, false, false, false},
             {false, true, true, MUON, IGNIS_F32, false, false, false},
             {true, false, false, SGD, IGNIS_F32, false, true, false},
             {true, false, true, ADAMW, IGNIS_F16, true, false, false},
             {true, true, false, ADAMW, IGNIS_BF16, false, true, false},
             {true, true, true, ADAMW, IGNIS_F16, true, false, false}};

/*  Ranks, their hosts, and which form they run with how many ranks in a group. */
typedef struct run_of {
    int ranks, hosts, form, shard_ranks;
} run_of;

static training *fill(training *run, const run_of *what, int shard)
{
    const struct form *form = &forms[what->form];
    begin(run, what->ranks, form->dtype);
    run->shard = (ignis_shard)shard;
    run->shard_ranks = what->ranks > 1 ? what->shard_ranks : 0;
    run->method = form->method;
    run->graph = form->graph;
    run->pieces = form->pieces ? 2 : 1;
    run->clips = form->clips;
    run->scales = form->scales;
    run->bucket_bytes = form->small ? 2048 : 0;
    run->ema_decay = form->averages ? 0.9 : 0;
    run->swaps = form->averages;
    return run;
}

/* --- ranks in processes --- */

enum { HOST_MESSAGE = 512 };

typedef enum order { TRAIN, FAULT, DIFFER } order;

/*  How a rank fails in a step. */
typedef enum failing { RUNS_OUT_OF_MEMORY, STAYS_AWAY, DIES } failing;

typedef struct command {
    order what;
    char folder[64];
    run_of run;
    int rank, shard;
    failing how;
    int at; /* the driver call that fails, or the last one of the rank that dies */
    double timeout_s;
} command;

typedef struct outcome {
    int status, failures;
    bool hit;
    char message[HOST_MESSAGE];
} outcome;

enum { RANK_AT_FAULT = 2 };

static process children[RANKS_MAX];
static char folder[64];

static void tell_child(int number, const void *data, size_t size)
{
    CHECK(process_send(children[number].socket, data, size, -1));
}

static void children_start(int count)
{
    int i;
    snprintf(folder, sizeof folder, "/tmp/ignis_test_hybrid_XXXXXX");
    if (!mkdtemp(folder))
        folder[0] = 0;
    for (i = 0; i < count; i++) {
        children[i] = process_start("rank");
        process_patient(children[i].socket); /* its operations have deadlines */
    }
}

static void children_end(int count)
{
    int i;
    for (i = 0; i < count; i++)
        if (children[i].pid > 0)
            CHECK_INT(process_end(&children[i]), 0);
    CHECK_INT(rmdir(folder), 0);
}

/*  Starts the ranks of a test, and the test: none, if there are fewer devices. */
#define BEGIN(count)                                    \
    NEEDS_POSIX("communicators between processes");     \
    children_start(count);                              \
    SETUP(NULL);                                        \
    do {                                                \
        if (ignis_device_count() < (count)) {           \
            children_end(count);                        \
            SKIP("there are fewer devices than ranks"); \
        }                                               \
    } while (0)

/*  Sends an order to all ranks; rank 0 answers with the place where they meet, which goes to the others. */
static void children_begin(const command *todo)
{
    ignis_comm_id id;
    int i;
    for (i = 0; i < todo->run.ranks; i++) {
        command own = *todo;
        own.rank = i;
        tell_child(i, &own, sizeof own);
    }
    memset(&id, 0, sizeof id);
    CHECK(process_receive(children[0].socket, &id, sizeof id, NULL));
    for (i = 1; i < todo->run.ranks; i++)
        tell_child(i, &id, sizeof id);
}

static outcome child_hear(int number)
{
    outcome result;
    memset(&result, 0, sizeof result);
    if (!process_receive(children[number].socket, &result, sizeof result, NULL))
        result.failures = 1;
    CHECK_INT(result.failures, 0);
    return result;
}

static ignis_comm child_meet(const command *todo)
{
    ignis_comm_desc desc;
    ignis_comm_id id;
    char host[32];
    memset(&desc, 0, sizeof desc);
    memset(&id, 0, sizeof id);
    snprintf(host, sizeof host, "host%d", todo->rank * todo->run.hosts / todo->run.ranks);
    setenv("IGNIS_COMM_HOST", host, 1);
    if (todo->rank == 0) {
        CHECK_OK(ignis_comm_unique_id(&id));
        CHECK(process_send(PROCESS_SOCKET, &id, sizeof id, -1));
    } else {
        CHECK(process_receive(PROCESS_SOCKET, &id, sizeof id, NULL));
    }
    desc.rank = todo->rank;
    desc.size = todo->run.ranks;
    desc.device = todo->rank ? todo->rank : IGNIS_DEVICE_0;
    desc.timeout_s = todo->timeout_s;
    desc.id = &id;
    return ignis_comm_init(&desc);
}

static void rank_file(char *path, size_t size, const char *in, int shard, int number)
{
    snprintf(path, size, "%s/%d.%d", in, shard, number);
}

/*  Trains with each kind of shard, and writes what came of it. */
static void child_trains(const command *todo)
{
    static training run;
    char path[128];
    rank r;
    int shard;
    ignis_comm comm = child_meet(todo);
    CHECK(comm.id);
    for (shard = todo->shard ? todo->shard : IGNIS_SHARD_OPTIMIZER;
         comm.id && shard < (todo->shard ? todo->shard + 1 : IGNIS_SHARD_COUNT); shard++) {
        FILE *file;
        fill(&run, &todo->run, shard);
        training_reset(&run);
        memset(&r, 0, sizeof r);
        r.run = &run;
        r.rank = todo->rank;
        r.comm = comm;
        rank_train(&r);
        CHECK_INT(run.info.shard_ranks, todo->rank                  ? 0
                                        : todo->run.shard_ranks > 0 ? todo->run.shard_ranks
                                                                    : todo->run.ranks / todo->run.hosts);
        rank_file(path, sizeof path, todo->folder, shard, todo->rank);
        file = fopen(path, "wb");
        CHECK(file != NULL);
        if (!file)
            break;
        CHECK(fwrite(run.losses[todo->rank], sizeof run.losses[0], 1, file) == 1);
        CHECK(fwrite(run.norms[todo->rank], sizeof run.norms[0], 1, file) == 1);
        CHECK(fwrite(run.weights[todo->rank], sizeof run.weights[0], 1, file) == 1);
        CHECK(fwrite(&run.state_elements[todo->rank], sizeof run.state_elements[0], 1, file) == 1);
        fclose(file);
    }
    CHECK_OK(ignis_comm_destroy(comm));
}

static void die(void)
{
    fflush(stdout);
    _exit(0);
}

/*  Waits until a step that this rank has completed has failed all the same: another rank's failure is on its way. */
static void rank_waits_for_failure(rank *r)
{
    const double end = test_seconds() + 20;
    while (r->status == IGNIS_OK && test_seconds() < end) {
        r->status = ignis_comm_status(r->comm);
        if (r->status != IGNIS_OK)
            snprintf(r->message, sizeof r->message, "%s", ignis_status_message());
        test_sleep_ms(2);
    }
    ignis_status_clear();
}

/*  Does a step, and one more in which a rank fails: tells the test, and frees all. */
static void child_fails(const command *todo)
{
    static training run;
    const bool is_at_fault = todo->rank == RANK_AT_FAULT;
    const int64_t before = memory().live_bytes;
    outcome result;
    rank r;
    int go;
    memset(&r, 0, sizeof r);
    memset(&result, 0, sizeof result);
    fill(&run, &todo->run, todo->shard);
    run.clips = true;
    run.bucket_bytes = 1;
    r.run = &run;
    r.rank = todo->rank;
    r.comm = child_meet(todo);
    CHECK_OK(ignis_device_use(r.rank));
    rank_model(&r);
    r.parallel = parallel_of(&r);
    CHECK(r.parallel.id);
    rank_optimizers(&r);
    rank_inputs(&r, 0, 0);
    rank_tries(&r); /* compiles what a step needs */
    CHECK_TEXT(r.message, "");
    CHECK(process_send(PROCESS_SOCKET, &result, sizeof result, -1));
    CHECK(process_receive(PROCESS_SOCKET, &go, sizeof go, NULL));
    if (is_at_fault && todo->how != STAYS_AWAY) {
        fault.drain = die;
        fault_plan("cu", todo->at, 2 /* CUDA_ERROR_OUT_OF_MEMORY */, NULL, todo->how == DIES);
    }
    if (!is_at_fault || todo->how != STAYS_AWAY)
        rank_tries(&r);
    if (is_at_fault)
        result.hit = fault_over(NULL);
    else if (go)
        rank_waits_for_failure(&r);
    result.status = (int)r.status;
    snprintf(result.message, sizeof result.message, "%s", r.message);
    result.failures = test__state.failures;
    CHECK(process_send(PROCESS_SOCKET, &result, sizeof result, -1));
    CHECK(process_receive(PROCESS_SOCKET, &go, sizeof go, NULL));
    (void)ignis_parallel_free(r.parallel);
    ignis_status_clear();
    rank_release(&r);
    CHECK_OK(ignis_comm_destroy(r.comm));
    CHECK_INT(memory().live_bytes, before);
}

/*  Creates a training with another number of ranks in a group than others have, and tells what came of it. */
static void child_differs(const command *todo, outcome *result)
{
    static training run;
    rank r;
    memset(&r, 0, sizeof r);
    fill(&run, &todo->run, todo->shard);
    run.shard_ranks = todo->rank == RANK_AT_FAULT ? 1 : 2;
    r.run = &run;
    r.rank = todo->rank;
    r.comm = child_meet(todo);
    CHECK_OK(ignis_device_use(r.rank));
    rank_model(&r);
    CHECK_INT(parallel_of(&r).id, 0);
    result->status = (int)ignis_status_last();
    snprintf(result->message, sizeof result->message, "%s", ignis_status_message());
    ignis_status_clear();
    rank_release(&r);
    CHECK_OK(ignis_comm_destroy(r.comm));
}

static int child(void)
{
    ignis_desc setup = test_desc(NULL);
    command todo;
    outcome result;
    process_patient(PROCESS_SOCKET); /* cases of the test may take long */
    if (ignis_setup(&setup) != IGNIS_OK)
        return 90;
    while (process_receive(PROCESS_SOCKET, &todo, sizeof todo, NULL)) {
        memset(&result, 0, sizeof result);
        if (todo.what == TRAIN)
            child_trains(&todo);
        else if (todo.what == FAULT)
            child_fails(&todo);
        else
            child_differs(&todo, &result);
        result.failures = test__state.failures;
        if (!process_send(PROCESS_SOCKET, &result, sizeof result, -1))
            return 91;
    }
    return ignis_shutdown() != IGNIS_OK ? 92 : test__state.failures ? 93 : 0;
}

/* --- training --- */

/*  Reads what the ranks have written, and checks that all have the same weights, and each group all of the state. */
static void results_read(training *run, const run_of *what, int shard)
{
    char path[128];
    int64_t count = 0;
    int i;
    training_reset(fill(run, what, shard));
    for (i = 0; i < what->ranks; i++) {
        FILE *file;
        rank_file(path, sizeof path, folder, shard, i);
        file = fopen(path, "rb");
        CHECK(file != NULL);
        if (!file)
            continue;
        CHECK(fread(run->losses[i], sizeof run->losses[0], 1, file) == 1);
        CHECK(fread(run->norms[i], sizeof run->norms[0], 1, file) == 1);
        CHECK(fread(run->weights[i], sizeof run->weights[0], 1, file) == 1);
        CHECK(fread(&run->state_elements[i], sizeof run->state_elements[0], 1, file) == 1);
        fclose(file);
        remove(path);
        CHECK(memcmp(run->weights[i], run->weights[0], sizeof run->weights[0]) == 0);
        count += run->state_elements[i];
    }
    if (run->method != MUON && what->shard_ranks > 0)
        CHECK_INT(count, (HIDDEN * WIDTH + HIDDEN + CLASSES * HIDDEN + CLASSES) * what->ranks / what->shard_ranks);
}

/*  Runs a form by the children with a kind of shard; 0: with each. */
static void children_train(const run_of *what, int shard)
{
    command todo;
    int i;
    memset(&todo, 0, sizeof todo);
    todo.what = TRAIN;
    todo.run = *what;
    todo.shard = shard;
    todo.timeout_s = 60;
    snprintf(todo.folder, sizeof todo.folder, "%s", folder);
    children_begin(&todo);
    for (i = 0; i < what->ranks; i++)
        (void)child_hear(i);
}

static double mean_difference(const training *a, const training *b)
{
    double sum = 0;
    int i;
    for (i = 0; i < WEIGHTS; i++)
        sum += fabs((double)a->weights[0][i] - (double)b->weights[0][i]);
    return sum / WEIGHTS;
}

/*  Compares with a run whose sums have another order: losses, and weights, of which few have a gradient that is all
    rounding, so that an optimizer moves them either way. */
static void check_near(const training *run, const training *other, const char *what)
{
    const double tolerance = run->dtype == IGNIS_F32 ? 2e-5 : 2e-2, difference = mean_difference(run, other);
    int step;
    for (step = 0; step < run->steps; step++)
        CHECK_CLOSE(loss_of(run, step), loss_of(other, step), tolerance);
    if (difference > (run->dtype == IGNIS_F32 ? 2e-5 : 2e-3))
        printf("%s: shard %d of %d, weights differ by %g\n", what, (int)run->shard, run->shard_ranks, difference);
    CHECK(difference <= (run->dtype == IGNIS_F32 ? 2e-5 : 2e-3));
}

static training single, first, second; /* large */

/*  Each kind of shard has the same bits, and what one rank computes up to rounding. */
static void compare(const run_of *what)
{
    run_of alone = *what;
    char name[40];
    int shard;
    snprintf(name, sizeof name, "form %d", what->form);
    children_train(what, 0);
    alone.ranks = 1;
    trained(fill(&single, &alone, IGNIS_SHARD_NONE));
    results_read(&first, what, IGNIS_SHARD_OPTIMIZER);
    check_near(&first, &single, name);
    for (shard = IGNIS_SHARD_GRADIENTS; shard < IGNIS_SHARD_COUNT; shard++) {
        results_read(&second, what, shard);
        if (!same_bits(&first, &second))
            printf("%s: shard %d has other bits\n", name, shard);
        CHECK(same_bits(&first, &second));
    }
}

static void compare_all(const run_of *table, int count, int ranks)
{
    int i;
    for (i = 0; i < count; i++)
        compare(&table[i]);
    children_end(ranks);
}

/*  Half of the forms, in which each two of graph, accumulation and clipping are together once; in `make soak` all. */
TEST(two_groups_of_two_train_as_one_rank)
{
    static const run_of table[] = {{4, 1, 1, 2}, {4, 1, 2, 2}, {4, 1, 4, 2}, {4, 1, 7, 2},
                                   {4, 1, 0, 2}, {4, 1, 3, 2}, {4, 1, 5, 2}, {4, 1, 6, 2}};
    BEGIN(4);
    compare_all(table, test_env("IGNIS_SOAK") ? 8 : 4, 4);
}

/*  The other half. */
TEST(two_hosts_of_two_train_as_one_rank)
{
    static const run_of table[] = {
        {4, 2, 0, IGNIS_SHARD_RANKS_HOST}, {4, 2, 3, 2}, {4, 2, 5, IGNIS_SHARD_RANKS_HOST}, {4, 2, 6, 2}};
    BEGIN(4);
    compare_all(table, COUNT_OF(table), 4);
}

TEST(two_groups_of_four_train_as_one_rank)
{
    static const run_of table[] = {{8, 2, 5, IGNIS_SHARD_RANKS_HOST}, {8, 1, 1, 4}};
    BEGIN(8);
    compare_all(table, test_env("IGNIS_SOAK") ? 2 : 1, 8);
}

/*  Where the order of sums is that of all ranks, so are the bits; and each run has those of the one before. */
TEST(one_order_of_sums_has_one_result)
{
    static const run_of whole[] = {{4, 1, 1, 1}, {4, 1, 1, 4}}, hosts[] = {{4, 1, 4, 2}, {4, 2, 4, 2}, {4, 1, 4, 2}};
    static training plain;
    int i;
    BEGIN(4);
    fill(&plain, &whole[0], IGNIS_SHARD_NONE)->shard_ranks = 0;
    trained(&plain);
    for (i = 0; i < COUNT_OF(whole); i++) {
        const int shard = i ? IGNIS_SHARD_PARAMETERS : IGNIS_SHARD_GRADIENTS;
        children_train(&whole[i], shard);
        results_read(&first, &whole[i], shard);
        CHECK(same_bits(&plain, &first));
    }
    for (i = 0; i < COUNT_OF(hosts); i++) {
        children_train(&hosts[i], IGNIS_SHARD_PARAMETERS);
        results_read(i ? &second : &first, &hosts[i], IGNIS_SHARD_PARAMETERS);
        if (i == 1 && !test_is_simulator()) /* NVIDIA's NCCL may round an average otherwise */
            check_near(&first, &second, "hosts");
        else if (i)
            CHECK(same_bits(&first, &second));
    }
    children_end(4);
}

/* --- faults --- */

/*  Runs a step in which a rank fails. All others get an error that names it. Returns false if the step has no such
    call. */
static bool fault_runs(const command *todo)
{
    outcome results[RANKS_MAX];
    const bool dies = todo->how == DIES;
    bool hit, all_well = true;
    int i, go;
    children_begin(todo);
    for (i = 0; i < todo->run.ranks; i++)
        (void)child_hear(i);
    go = todo->how != RUNS_OUT_OF_MEMORY; /* which the library may survive */
    for (i = 0; i < todo->run.ranks; i++)
        tell_child(i, &go, sizeof go);
    if (!dies)
        results[RANK_AT_FAULT] = child_hear(RANK_AT_FAULT);
    hit = todo->how != RUNS_OUT_OF_MEMORY || results[RANK_AT_FAULT].hit;
    for (i = 0; i < todo->run.ranks; i++) {
        if (i == RANK_AT_FAULT)
            continue;
        results[i] = child_hear(i);
        all_well = all_well && results[i].status == IGNIS_OK;
    }
    for (i = 0; i < todo->run.ranks; i++) {
        if (i == RANK_AT_FAULT)
            continue;
        if (go && todo->how == STAYS_AWAY) {
            /* PEER: in a slow step a later call says that the communicator is broken */
            CHECK(results[i].status == IGNIS_ERROR_TIMEOUT || results[i].status == IGNIS_ERROR_PEER);
            CHECK_HAS(results[i].message, "did not come");
        } else if (go) {
            CHECK_INT(results[i].status, IGNIS_ERROR_PEER);
        }
        if (go || !all_well)
            CHECK_HAS(results[i].message, "rank 2");
    }
    for (i = 0; i < todo->run.ranks; i++)
        if (!dies || i != RANK_AT_FAULT)
            tell_child(i, &go, sizeof go);
    for (i = 0; i < todo->run.ranks; i++)
        if (!dies || i != RANK_AT_FAULT)
            (void)child_hear(i);
    return hit;
}

static void fault_make(command *todo, const run_of *run, int shard, failing how)
{
    memset(todo, 0, sizeof *todo);
    todo->what = FAULT;
    todo->run = *run;
    todo->shard = shard;
    todo->how = how;
    todo->timeout_s = how == STAYS_AWAY ? 3 : 30;
}

static const run_of places[] = {{4, 1, 1, 2}, {4, 2, 1, 2}};

/*  The calls that fail come first: by then the kernels are compiled, however slowly, and few seconds are a step's. */
TEST(a_call_that_fails_or_a_rank_that_does_not_step_fails_on_all_ranks)
{
    command todo;
    int place, shard, hits = 0;
    BEGIN(4);
    for (place = 0; place < COUNT_OF(places); place++)
        for (shard = place ? IGNIS_SHARD_PARAMETERS : IGNIS_SHARD_OPTIMIZER; shard < IGNIS_SHARD_COUNT; shard++) {
            fault_make(&todo, &places[place], shard, RUNS_OUT_OF_MEMORY);
            for (todo.at = 1 + shard; fault_runs(&todo); todo.at += 3 + todo.at, hits++)
                ;
        }
    CHECK(hits > 10);
    for (place = 0; place < COUNT_OF(places); place++)
        for (shard = place ? IGNIS_SHARD_GRADIENTS : IGNIS_SHARD_OPTIMIZER;
             shard < (place ? IGNIS_SHARD_PARAMETERS : IGNIS_SHARD_COUNT); shard++) {
            fault_make(&todo, &places[place], shard, STAYS_AWAY);
            (void)fault_runs(&todo);
        }
    children_end(4);
}

TEST(a_rank_that_dies_in_a_step_is_an_error)
{
    static const struct {
        int place, shard, at;
    } table[] = {{0, IGNIS_SHARD_OPTIMIZER, 20},  {0, IGNIS_SHARD_GRADIENTS, 45}, {0, IGNIS_SHARD_PARAMETERS, 1},
                 {0, IGNIS_SHARD_PARAMETERS, 90}, {1, IGNIS_SHARD_GRADIENTS, 20}, {1, IGNIS_SHARD_PARAMETERS, 60}};
    command todo;
    int i;
    BEGIN(4);
    for (i = 0; i < COUNT_OF(table); i++) {
        fault_make(&todo, &places[table[i].place], table[i].shard, DIES);
        todo.at = table[i].at;
        (void)fault_runs(&todo);
        CHECK_INT(process_end(&children[RANK_AT_FAULT]), 0);
        children[RANK_AT_FAULT] = process_start("rank");
    }
    children_end(4);
}

/* --- what is refused --- */

static void refuse(ignis_comm comm, ignis_tensor parameter, ignis_shard shard, int ranks, ignis_diagnostic diagnostic,
                   const char *message)
{
    ignis_parallel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shard = shard;
    desc.shard_ranks = ranks;
    CHECK_FAILS(ignis_parallel_create(comm, &parameter, 1, &desc),
                diagnostic == IGNIS_DIAG_UNSUPPORTED ? IGNIS_ERROR_UNSUPPORTED : IGNIS_ERROR_ARGUMENT, diagnostic);
    CHECK_MESSAGE_HAS(message);
}

TEST(ranks_that_do_not_divide_are_refused)
{
    ignis_comm comms[4];
    ignis_tensor_desc leaf;
    ignis_tensor parameter;
    int i;
    SETUP(NULL);
    NEEDS_DEVICES(4);
    memset(&leaf, 0, sizeof leaf);
    leaf.requires_grad = true;
    parameter = ignis_tensor_zeros(IGNIS_SHAPE(4), &leaf);
    CHECK_OK(ignis_comm_init_all(comms, NULL, 4, NULL));
    refuse(comms[0], parameter, IGNIS_SHARD_GRADIENTS, 3, IGNIS_DIAG_BAD_NUMBER,
           "shard_ranks is 3; expected 0, IGNIS_SHARD_RANKS_HOST, or a divisor of the 4 ranks");
    refuse(comms[0], parameter, IGNIS_SHARD_GRADIENTS, 8, IGNIS_DIAG_BAD_NUMBER, "shard_ranks is 8; expected");
    refuse(comms[0], parameter, IGNIS_SHARD_GRADIENTS, -2, IGNIS_DIAG_BAD_NUMBER, "shard_ranks is -2; expected");
    refuse(comms[0], parameter, IGNIS_SHARD_NONE, 2, IGNIS_DIAG_BAD_NUMBER, "shard_ranks is 2 with IGNIS_SHARD_NONE");
    refuse(comms[0], parameter, IGNIS_SHARD_OPTIMIZER, 2, IGNIS_DIAG_UNSUPPORTED, "ranks of ignis_comm_init_all");
    for (i = 0; i < 4; i++)
        CHECK_OK(ignis_comm_destroy(comms[i]));
    CHECK_OK(ignis_tensor_release(parameter));
}

TEST(ranks_that_divide_otherwise_are_refused)
{
    static const run_of place = {4, 1, 0, 2};
    command todo;
    outcome result;
    int i;
    BEGIN(4);
    fault_make(&todo, &place, IGNIS_SHARD_GRADIENTS, STAYS_AWAY);
    todo.what = DIFFER;
    todo.timeout_s = 30;
    children_begin(&todo);
    for (i = 0; i < 4; i++) {
        result = child_hear(i);
        CHECK_INT(result.status, IGNIS_ERROR_MISMATCH);
        CHECK_HAS(result.message,
                  i == RANK_AT_FAULT
                      ? "ignis_parallel_create: groups of ranks have 1 ranks on this rank and 2 on rank 0"
                      : "groups of ranks have 2 ranks on this rank and 1 on rank 2");
    }
    children_end(4);
}

int main(int argc, char **argv)
{
    const char *cuda = getenv("IGNIS_CUDA_LIBRARY");
    char nccl[512];
    setenv("IGNIS_SIM_DEVICES", "8", 0);
    setenv("IGNIS_SIM_STREAMS", "thread", 0); /* what is under way while another rank fails is so on a GPU, too */
    /* kernels with many threads cost most of a simulated step, and a sanitizer's memory */
    setenv("IGNIS_COMM_TUNE", "ll_blocks=3,ll_threads=64,blocks=3,threads=64", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast is not asked for on machines that others use too */
    if (cuda && strrchr(cuda, '/')) {   /* the simulator's NCCL, unless another is named */
        snprintf(nccl, sizeof nccl, "%.*s/libnccl.so.2", (int)(strrchr(cuda, '/') - cuda), cuda);
        setenv("IGNIS_NCCL_LIBRARY", nccl, 0);
    }
    return process_role(argc, argv) ? child() : test_run(argc, argv);
}
