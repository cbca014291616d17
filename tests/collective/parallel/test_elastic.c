// SPDX-License-Identifier: MIT
/*  test_elastic.c - trainings whose ranks are killed and come back: the losses, to the bit, of a run without deaths

    The test is the launcher: it starts ranks, waits for those that its plan kills, and starts them again. A rank kills
    itself at the n-th call of the driver in a step, in its update, while it grows, or while it regroups. With shards
    two groups of ranks have copies. */
#include "hook.h"
#include "tensor.h"

#include "ranks.h"

#ifdef _WIN32

TEST(three_kills_change_no_bit) { SKIP("the ranks of the test share a mapped file"); }
int main(int argc, char **argv) { return test_run(argc, argv); }

#else

#include <sys/mman.h>

enum { STEPS = 8, ROWS = 210, COLUMNS = 100, PARAMETERS = 4, KILLS = 3, ATTEMPTS = 10 };

typedef enum phase { IN_STEP, IN_UPDATE, AT_LOSS, IN_GROW, IN_REGROUP } phase; /* AT_LOSS: of another rank */

/*  A death: at the call-th call of the driver in a phase, from a number of complete steps on; if there are fewer calls,
    after the last one. */
typedef struct death {
    int rank, step;
    phase where;
    int call;
} death;

typedef struct plan {
    const char *name;
    int ranks;
    bool graphs;       /* forward and backward are a graph; no dropout, whose numbers begin anew with each graph */
    ignis_shard shard; /* in two groups of ranks; a backward pass accumulates before the one that averages */
    death deaths[KILLS];
} plan;

static const plan whole[] = {
    {"two ranks", 2, false, IGNIS_SHARD_NONE, {{1, 1, IN_STEP, 1}, {0, 3, IN_STEP, 40}, {1, 4, IN_STEP, 1 << 20}}},
    {"two with graphs", 2, true, IGNIS_SHARD_NONE, {{0, 0, IN_STEP, 20}, {0, 4, IN_STEP, 2}, {1, 6, IN_STEP, 7}}},
    {"three ranks", 3, false, IGNIS_SHARD_NONE, {{0, 2, IN_STEP, 60}, {2, 1, IN_REGROUP, 12}, {1, 5, IN_STEP, 25}}},
    {"four ranks", 4, false, IGNIS_SHARD_NONE, {{3, 1, IN_STEP, 90}, {0, 1, IN_GROW, 3}, {2, 6, IN_STEP, 75}}}};

/*  The run without deaths is that of the first plan with as many ranks, with or without graphs. */
static const plan sharded[] = {
    {"groups of one", 2, true, IGNIS_SHARD_PARAMETERS, {{1, 1, IN_UPDATE, 7}, {0, 3, IN_STEP, 4}, {1, 5, IN_STEP, 9}}},
    {"eager", 4, false, IGNIS_SHARD_PARAMETERS, {{2, 1, IN_STEP, 45}, {1, 3, IN_UPDATE, 20}, {3, 6, IN_UPDATE, 1}}},
    {"graphs", 4, true, IGNIS_SHARD_PARAMETERS, {{0, 2, IN_UPDATE, 6}, {3, 2, IN_REGROUP, 25}, {2, 5, IN_STEP, 3}}},
    {"optimizer", 4, true, IGNIS_SHARD_OPTIMIZER, {{3, 1, IN_STEP, 5}, {0, 3, IN_UPDATE, 14}, {1, 5, IN_STEP, 1}}},
    {"gradients", 4, true, IGNIS_SHARD_GRADIENTS, {{1, 0, IN_STEP, 20}, {2, 0, IN_GROW, 3}, {0, 4, IN_UPDATE, 999}}}};

/*  Ranks 1 and 3 have copies of one shard; others do not die. */
static const plan lost[] = {
    {"gradients", 4, false, IGNIS_SHARD_GRADIENTS, {{1, 1, IN_STEP, 1}, {3, 0, AT_LOSS, 1}, {-1, 0, IN_STEP, 0}}},
    {"parameters", 4, false, IGNIS_SHARD_PARAMETERS, {{3, 1, IN_STEP, 1}, {1, 0, AT_LOSS, 1}, {-1, 0, IN_STEP, 0}}}};

static const plan *const tables[] = {whole, sharded, lost};
enum { WHOLE, SHARDED, LOST, PLANS_MAX = 100 };

/* --- a rank ------------------------------------------------------------------------------------------------------- */

typedef struct results {
    float losses[RANKS][STEPS];
    uint64_t weights[RANKS]; /* a hash */
    uint64_t died[KILLS];
} results;

typedef struct member {
    const plan *plan;
    results *all; /* mapped, of all ranks */
    int rank;
    ignis_comm comm;
    ignis_parallel parallel;
    ignis_tensor parameters[PARAMETERS], x, loss, losses; /* means over the ranks */
    bool is_refused;                                      /* as all copies of a shard are lost */
    ignis_optimizer optimizer;
    ignis_training training;
    ignis_graph graph;
    int64_t step;
} member;

static struct {
    const death *deaths; /* of the plan */
    uint64_t *died;
    int at; /* the death that comes */
    bool counts;
    int calls;
} fate;
static __thread bool is_main;

static void fate_die(void)
{
    ignis__atomic_store(&fate.died[fate.at], 1);
    raise(SIGKILL);
}

static int fate_at_call(const char *name)
{
    (void)name;
    if (is_main && fate.counts && ++fate.calls >= fate.deaths[fate.at].call)
        fate_die();
    return 0;
}

static void fate_begin(const member *m, phase where)
{
    fate.counts = false;
    fate.calls = 0;
    for (fate.at = 0; fate.at < KILLS; fate.at++) {
        const death *next = &fate.deaths[fate.at];
        if (next->rank == m->rank && next->where == where && next->step <= m->step &&
            !ignis__atomic_load(&fate.died[fate.at])) {
            fate.counts = true;
            return;
        }
    }
}

static void fate_end(void)
{
    if (fate.counts)
        fate_die();
}

static double number(int at) { return (double)(at * 37 % 101 - 50) / 250; }

static void member_begin(member *m)
{
    const ignis_shape shapes[] = {IGNIS_SHAPE(ROWS, COLUMNS), IGNIS_SHAPE(130), IGNIS_SHAPE(7, 13), IGNIS_SHAPE(1)};
    double *values = (double *)malloc(sizeof *values * ROWS * COLUMNS);
    const int own = m->plan->shard == IGNIS_SHARD_PARAMETERS ? 0 : m->rank; /* values of rank 0 are to count */
    int i, k;
    for (i = 0; i < PARAMETERS; i++) {
        for (k = 0; k < ROWS * COLUMNS; k++)
            values[k] = number(k + k / 7 * i + i + own);
        m->parameters[i] = tensor_of(values, shapes[i], IGNIS_BF16, true);
    }
    free(values);
    m->x = tensor_of((const double[]){0}, IGNIS_SHAPE(1), IGNIS_F32, false);
    m->loss = tensor_of((const double[]){0}, IGNIS_SHAPE(1), IGNIS_F32, false);
    m->losses = tensor_of((const double[STEPS]){0}, IGNIS_SHAPE(STEPS), IGNIS_F32, false);
    CHECK_OK(ignis_seed((uint64_t)m->rank + 7));
}

/*  Makes the optimizer and the training, once ranks share the parameters. */
static void member_trains(member *m)
{
    static const char *const names[] = {"large", "vector", "matrix", "small"}, *const state_names[] = {"losses"};
    ignis_training_desc desc;
    ignis_adamw_desc adamw;
    int i;
    memset(&desc, 0, sizeof desc);
    memset(&adamw, 0, sizeof adamw);
    adamw.lr = 1e-2, adamw.zero_grad = true;
    adamw.loss_scale.initial = 1024, adamw.loss_scale.interval = 2;
    adamw.split_master = m->plan->shard && !m->plan->graphs; /* without averages */
    adamw.ema_decay = adamw.split_master ? 0 : 0.9;
    m->optimizer = ignis_adamw(&adamw);
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_optimizer_add(m->optimizer, m->parameters[i], i % 2 == 0));
    desc.names = names, desc.tensors = m->parameters, desc.count = PARAMETERS;
    desc.optimizers = &m->optimizer, desc.optimizer_count = 1;
    desc.state_names = state_names, desc.state = &m->losses, desc.state_count = 1;
    m->training = ignis_training_create(&desc);
    CHECK(m->training.id);
}

static void graph_drop(member *m)
{
    if (m->graph.id)
        CHECK_OK(ignis_graph_free(m->graph));
    m->graph.id = 0;
}

/*  Goes on with the ranks that were met, or begins with them. */
static bool member_continues(member *m, ignis_comm met)
{
    const bool renews = m->parallel.id && (m->plan->shard || m->plan->graphs);
    ignis_parallel_desc parallel;
    bool ok;
    memset(&parallel, 0, sizeof parallel);
    parallel.no_broadcast = true;
    parallel.shard = m->plan->shard;
    parallel.shard_ranks = m->plan->shard ? m->plan->ranks / 2 : 0;
    parallel.bucket_bytes = 2048;
    graph_drop(m);
    if (renews) {
        ok = ignis_parallel_regroup(m->parallel, met) == IGNIS_OK;
    } else {
        ignis_parallel_free(m->parallel);
        m->parallel = ignis_parallel_create(met, m->parameters, PARAMETERS, &parallel);
        ok = m->parallel.id != 0;
    }
    ignis_comm_destroy(m->comm);
    m->comm = met;
    if (ok && !m->training.id)
        member_trains(m);
    return ok;
}

/*  Meets the others, as often as it takes. False if that is too often, or all copies of a shard are lost. */
static bool member_join(member *m)
{
    ignis_comm_desc desc;
    int attempt;
    memset(&desc, 0, sizeof desc);
    if (m->training.id) {
        fate_begin(m, AT_LOSS);
        fate_end();
    }
    for (attempt = 0; attempt < ATTEMPTS && !m->is_refused; attempt++) {
        ignis_comm met;
        bool joined;
        ignis_status_clear();
        fate_begin(m, IN_GROW);
        met = m->comm.id ? ignis_comm_grow(m->comm, &desc) : ignis_comm_init(&desc);
        if (!met.id)
            continue;
        fate_end();
        fate_begin(m, IN_REGROUP);
        joined = member_continues(m, met) &&
                 ignis_training_regroup(m->training, ignis_comm_ranks(met), &m->step) == IGNIS_OK;
        fate_end();
        if (joined)
            return true;
        m->is_refused = ignis_status_last() == IGNIS_ERROR_UNSUPPORTED;
    }
    return false;
}

/*  A pass of the training's graph, or of a step. */
static bool backward(const member *m, double factor)
{
    const bool drops = !m->plan->graphs;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = ignis_scale(m->x, factor), w = drops ? ignis_dropout(m->parameters[0], 0.1) : m->parameters[0],
                 loss;
    bool ok;
    int i;
    loss = ignis_map_mean("(w - x)*(w - x)", IGNIS_INPUTS(w, x));
    for (i = 1; i < PARAMETERS; i++) {
        w = m->parameters[i];
        loss = ignis_add(loss, ignis_map_mean("(w - x)*(w - x)", IGNIS_INPUTS(w, x)));
    }
    ignis_array_copy(ignis_tensor_data(m->loss), ignis_tensor_data(loss));
    ok = ignis_backward(ignis_scale_loss(m->optimizer, loss), IGNIS_NO_ARRAY) == IGNIS_OK;
    return ignis_scope_end(scope) == IGNIS_OK && ok;
}

static bool backwards(const member *m)
{
    bool ok = true;
    if (m->plan->shard) {
        CHECK_OK(ignis_parallel_no_sync_begin(m->parallel));
        ok = backward(m, 0.5);
        CHECK_OK(ignis_parallel_no_sync_end(m->parallel));
    }
    return ok && backward(m, 1) &&
           ignis_comm_all_reduce(m->comm, ignis_tensor_data(m->loss), ignis_tensor_data(m->loss), IGNIS_OP_AVG) ==
               IGNIS_OK;
}

/*  False: some rank has not done it. */
static bool member_step(member *m, int64_t since)
{
    const double input = number((int)(m->step * 5) + m->rank);
    bool ok;
    fate_begin(m, IN_STEP);
    ok = ignis_array_from_host(ignis_tensor_data(m->x), &input, IGNIS_F64, 1) == IGNIS_OK;
    if (ok && m->plan->graphs && since > 0 && !m->graph.id) {
        ok = ignis_graph_begin() == IGNIS_OK && backwards(m);
        m->graph = ignis_graph_end();
        ok = ok && m->graph.id;
    }
    ok = ok && (m->graph.id ? ignis_graph_launch(m->graph) == IGNIS_OK : backwards(m)) &&
         ignis_comm_synchronize(m->comm) == IGNIS_OK; /* no rank steps with gradients that are not complete */
    if (!ok)
        return false;
    fate_end();
    fate_begin(m, IN_UPDATE);
    if (m->plan->shard) /* whose step communicates */
        ok = ignis_clip_grad_norm(m->optimizer, 100) == IGNIS_OK && ignis_optimizer_step(m->optimizer) == IGNIS_OK;
    else
        CHECK_OK(ignis_optimizer_step(m->optimizer));
    if (!ok)
        return false;
    CHECK_OK(ignis_array_write_rows(ignis_tensor_data(m->losses), ignis_tensor_data(m->loss), m->step));
    fate_end();
    if (m->plan->shard && ignis_training_mark(m->training, m->step + 1) != IGNIS_OK)
        return false;
    if (!m->plan->shard)
        CHECK_OK(ignis_training_mark(m->training, m->step + 1));
    m->step++;
    return true;
}

static uint64_t member_hash(const member *m)
{
    double *values = (double *)calloc(ROWS * COLUMNS, sizeof *values);
    uint64_t hash = 1;
    int i, part;
    for (i = 0; i < PARAMETERS; i++)
        for (part = -1; part <= (int)IGNIS_OPTIMIZER_EMA; part++) {
            const ignis_array array = part < 0 ? ignis_tensor_data(m->parameters[i])
                                      : part == IGNIS_OPTIMIZER_GROUP
                                          ? IGNIS_NO_ARRAY
                                          : ignis_optimizer_state(m->optimizer, i, (ignis_optimizer_part)part);
            if (!array.id)
                continue;
            CHECK_OK(ignis_array_to_host(array, values, IGNIS_F64, ignis_array_numel(array)));
            hash = ignis__hash(hash, values, sizeof *values * (size_t)ignis_array_numel(array));
        }
    free(values);
    return hash;
}

/*  Frees all that a rank has. Returns its exit code. */
static int member_end(member *m)
{
    int i;
    ignis_status_clear();
    graph_drop(m);
    CHECK_OK(ignis_training_free(m->training));
    CHECK_OK(ignis_parallel_free(m->parallel));
    CHECK_OK(ignis_optimizer_free(m->optimizer));
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_tensor_release(m->parameters[i]));
    CHECK_OK(ignis_tensor_release(m->x));
    CHECK_OK(ignis_tensor_release(m->loss));
    CHECK_OK(ignis_tensor_release(m->losses));
    CHECK_OK(ignis_comm_destroy(m->comm));
    munmap(m->all, sizeof *m->all);
    return ignis_shutdown() != IGNIS_OK ? 93 : test__state.failures ? 94 : 0;
}

static int member_run(void)
{
    const char *of_plan = getenv("TEST_PLAN"), *rank = getenv("IGNIS_RANK"), *path = getenv("TEST_RESULTS");
    ignis_desc setup = test_desc(NULL);
    ignis_comm_info info;
    int64_t since = 0;
    bool joined;
    member m;
    int file = open(path, O_RDWR);
    memset(&m, 0, sizeof m);
    m.plan = &tables[atoi(of_plan) / PLANS_MAX][atoi(of_plan) % PLANS_MAX];
    m.rank = atoi(rank);
    m.all = (results *)mmap(NULL, sizeof *m.all, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (m.all == MAP_FAILED || ignis_setup(&setup) != IGNIS_OK)
        return 90;
    close(file);
    fate.deaths = m.plan->deaths;
    fate.died = m.all->died;
    is_main = true;
    call_hook.begin = fate_at_call;
    ignis_device_use(m.rank);
    member_begin(&m);
    joined = member_join(&m);
    while (joined && m.step < STEPS) {
        if (member_step(&m, since++))
            continue;
        since = 0;
        joined = member_join(&m);
    }
    if (atoi(of_plan) / PLANS_MAX == LOST) {
        CHECK(m.is_refused);
        CHECK_HAS(ignis_status_message(), "the shards of ranks 1, 3 are lost, as no living rank has a copy");
        return member_end(&m);
    }
    if (!joined)
        return 91;
    ignis_comm_query(m.comm, &info);
    CHECK_INT(info.size, m.plan->ranks);
    CHECK_INT(info.rank, m.rank);
    m.all->weights[m.rank] = member_hash(&m);
    CHECK_OK(ignis_array_to_host(ignis_tensor_data(m.losses), m.all->losses[m.rank], IGNIS_F32, STEPS));
    ignis_status_clear();
    CHECK_OK(ignis_comm_barrier(m.comm));
    CHECK_OK(ignis_comm_synchronize(m.comm));
    return member_end(&m);
}

/* --- the launcher ------------------------------------------------------------------------------------------------- */

static process member_start(int table, int of_plan, int rank, const char *path)
{
    char extra[256];
    process child;
    snprintf(
        extra, sizeof extra, "TEST_PLAN=%d TEST_RESULTS=%s %s", PLANS_MAX * table + of_plan, path,
        "IGNIS_COMM_TUNE=ll_blocks=3,ll_threads=64,blocks=3,threads=64,chunk=3K,lanes=2"); /* fast when simulated */
    environment(rank_in_folder(rank, tables[table][of_plan].ranks, rank, extra));
    child = process_start("member");
    environment_clear();
    CHECK(child.pid > 0);
    return child;
}

/*  Waits for a rank of a running plan to end. Returns its number. */
static int member_ended(process *ranks, int count, int *status)
{
    const pid_t pid = waitpid(-1, status, 0);
    int i = 0;
    while (i < count && ranks[i].pid != pid)
        i++;
    if (i < count) {
        close(ranks[i].socket);
        ranks[i].pid = -1;
    }
    return i;
}

/*  Runs a plan, with its deaths or without. */
static results launch(int table, int of_plan, bool kills)
{
    const plan *what = &tables[table][of_plan];
    const int count = what->ranks, deaths = !kills ? 0 : table == LOST ? 2 : KILLS;
    char path[128];
    process ranks[RANKS];
    results out;
    int i, file, status = 0, left = count, restarts = 0;
    memset(&out, 0, sizeof out);
    memset(ranks, -1, sizeof ranks);
    for (i = 0; i < KILLS; i++)
        out.died[i] = i >= deaths;
    snprintf(path, sizeof path, "%s.results", folder);
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(write(file, &out, sizeof out) == (ssize_t)sizeof out);
    for (i = 0; i < count; i++)
        ranks[i] = member_start(table, of_plan, i, path);
    while (left > 0 && !test__state.failures) {
        i = member_ended(ranks, count, &status);
        CHECK(i < count);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && restarts++ < deaths) {
            ranks[i] = member_start(table, of_plan, i, path);
        } else {
            CHECK(WIFEXITED(status));
            CHECK_INT(WEXITSTATUS(status), 0);
            left--;
        }
    }
    for (i = 0; i < count; i++)
        if (ranks[i].pid > 0)
            process_kill(&ranks[i]);
    CHECK_INT(restarts, deaths);
    CHECK(pread(file, &out, sizeof out, 0) == (ssize_t)sizeof out);
    close(file);
    unlink(path);
    return out;
}

/*  A rank that was killed while ranks met leaves its socket. */
static void folder_clean(void)
{
    char remove[128];
    snprintf(remove, sizeof remove, "rm -f %s/rank*", folder);
    CHECK_INT(system(remove), 0);
    folder_end();
}

/*  Runs a plan with its deaths, and compares with a run without. */
static void compare(int table, int p, const results *unbroken)
{
    const plan *what = &tables[table][p];
    const results broken = launch(table, p, true);
    int i;
    for (i = 0; i < what->ranks; i++) {
        CHECK(broken.weights[i] == unbroken->weights[i]);
        CHECK(what->shard || unbroken->weights[i] == unbroken->weights[0]);
        CHECK(unbroken->losses[i][0] != 0 && unbroken->losses[i][STEPS - 1] != unbroken->losses[i][0]);
        CHECK(memcmp(broken.losses[i], unbroken->losses[0], sizeof broken.losses[i]) == 0);
    }
    if (test__state.failures)
        printf("plan: %s\n", what->name);
    folder_clean();
}

TEST(three_kills_change_no_bit)
{
    results unbroken;
    int p;
    for (p = 0; p < (int)(sizeof whole / sizeof whole[0]) && !test__state.failures; p++) {
        NEEDS(whole[p].ranks);
        unbroken = launch(WHOLE, p, false);
        compare(WHOLE, p, &unbroken);
    }
}

TEST(shards_with_copies_survive_kills)
{
    results unbroken;
    int p;
    for (p = 0; p < (int)(sizeof sharded / sizeof sharded[0]) && !test__state.failures; p++) {
        NEEDS(sharded[p].ranks);
        if (p == 0 || sharded[p].graphs != sharded[p - 1].graphs || sharded[p].ranks != sharded[p - 1].ranks)
            unbroken = launch(SHARDED, p, false);
        compare(SHARDED, p, &unbroken);
    }
}

TEST(shards_without_a_living_copy_are_named)
{
    int p;
    for (p = 0; p < (int)(sizeof lost / sizeof lost[0]) && !test__state.failures; p++) {
        NEEDS(lost[p].ranks);
        (void)launch(LOST, p, true);
        folder_clean();
    }
}

static void no_orders(const command *todo, ignis_comm comm, outcome *result) { (void)todo, (void)comm, (void)result; }

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    if (role && strcmp(role, "member") == 0)
        return member_run();
    return ranks_main(argc, argv, no_orders);
}

#endif
