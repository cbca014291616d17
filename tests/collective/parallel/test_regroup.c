// SPDX-License-Identifier: MIT
/*  test_regroup.c - ignis_training_regroup and ignis_training_mark: the rank that sends, what it sends, and refusals

    Ranks are threads with a device each. test_elastic.c kills processes. */
#include "tensor.h"

#include "ignis_collective.h"

#include <pthread.h>

enum { RANKS = 3, PARAMETERS = 2, NUMBERS = 300 };

/*  What a rank has before: complete steps, and what is wrong with it. */
typedef struct before {
    int64_t steps[RANKS];
    int ranks;
    ignis_shard shard;
    bool other_names, swapped; /* of rank 1 */
} before;

/*  What it has afterwards. */
typedef struct after {
    ignis_status status;
    char message[512];
    int64_t step;
    uint64_t seed, position;
    double weight, moment, master, average, loss, rate, grad, sum; /* the last element of each */
} after;

typedef struct member {
    const before *has;
    after *gets;
    int rank;
    ignis_comm comm;
} member;

static double last_of(ignis_array array)
{
    double values[NUMBERS] = {0};
    const int64_t count = ignis_array_numel(array);
    CHECK_OK(ignis_array_to_host(array, values, IGNIS_F64, count));
    return values[count - 1];
}

/*  One step with gradients that only this rank has. */
static void step_alone(const ignis_tensor *parameters, ignis_optimizer optimizer)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor w = parameters[0], v = parameters[1];
    CHECK_OK(ignis_backward(ignis_add(ignis_map_mean("w*w", IGNIS_INPUTS(w)), ignis_map_mean("v", IGNIS_INPUTS(v))),
                            IGNIS_NO_ARRAY));
    CHECK_OK(ignis_optimizer_step(optimizer));
    CHECK_OK(ignis_scope_end(scope));
}

static void *member_run(void *context)
{
    static const char *const names[] = {"w", "v"}, *const others[] = {"w", "u"}, *const state_names[] = {"losses"};
    member *m = (member *)context;
    const before *has = m->has;
    after *gets = m->gets;
    const bool alone = !m->comm.id;
    ignis_tensor parameters[PARAMETERS], losses;
    ignis_optimizer optimizer;
    ignis_optimizer_info info;
    ignis_training training;
    ignis_training_desc desc;
    ignis_parallel_desc shards;
    ignis_parallel parallel;
    ignis_adamw_desc adamw;
    ignis_random_state random;
    ignis_ranks ranks;
    double values[NUMBERS];
    int i;
    CHECK_OK(ignis_device_use(m->rank));
    memset(&desc, 0, sizeof desc);
    memset(&adamw, 0, sizeof adamw);
    memset(&shards, 0, sizeof shards);
    memset(&parallel, 0, sizeof parallel);
    memset(&ranks, 0, sizeof ranks);
    for (i = 0; i < NUMBERS; i++)
        values[i] = (double)(m->rank + 1) + i % 7;
    parameters[0] = tensor_of(values, IGNIS_SHAPE(NUMBERS), IGNIS_BF16, true);
    parameters[1] = tensor_of(values, IGNIS_SHAPE(5), IGNIS_BF16, true);
    losses = tensor_of(values, IGNIS_SHAPE(4), IGNIS_F32, false);
    if (has->shard) {
        shards.shard = has->shard;
        parallel = ignis_parallel_create(m->comm, parameters, PARAMETERS, &shards);
    }
    adamw.lr = 1e-2 * (m->rank + 1), adamw.zero_grad = true, adamw.ema_decay = 0.5;
    optimizer = ignis_adamw(&adamw);
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_optimizer_add(optimizer, parameters[i], true));
    desc.names = has->other_names && m->rank == 1 ? others : names;
    desc.tensors = parameters, desc.count = PARAMETERS;
    desc.optimizers = &optimizer, desc.optimizer_count = 1;
    desc.state_names = state_names, desc.state = &losses, desc.state_count = 1;
    training = ignis_training_create(&desc);
    CHECK_OK(ignis_seed((uint64_t)(100 + m->rank)));
    for (i = 0; !has->shard && i <= m->rank; i++)
        step_alone(parameters, optimizer);
    for (i = 0; i < 5 + m->rank; i++)
        CHECK_OK(ignis_tensor_release(ignis_tensor_randn(IGNIS_SHAPE(8), NULL)));
    if (has->steps[m->rank])
        CHECK_OK(ignis_training_mark(training, has->steps[m->rank]));
    if (!has->shard) { /* what a step that is not complete leaves */
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor w = parameters[0];
        CHECK_OK(ignis_backward(ignis_map_mean("w*w", IGNIS_INPUTS(w)), IGNIS_NO_ARRAY));
        CHECK_OK(ignis_optimizer_accumulate(optimizer));
        CHECK_OK(ignis_backward(ignis_map_mean("w*w*w", IGNIS_INPUTS(w)), IGNIS_NO_ARRAY));
        CHECK_OK(ignis_tensor_release(ignis_tensor_randn(IGNIS_SHAPE(8), NULL)));
        CHECK_OK(ignis_scope_end(scope));
    }
    if (has->swapped && m->rank == 1)
        CHECK_OK(ignis_optimizer_swap_ema(optimizer));
    gets->step = -7;
    gets->status = ignis_training_regroup(training, alone ? ranks : ignis_comm_ranks(m->comm), &gets->step);
    snprintf(gets->message, sizeof gets->message, "%s", ignis_status_message());
    ignis_status_clear();
    random = ignis_random_save();
    gets->seed = random.seed, gets->position = random.position;
    if (has->swapped && m->rank == 1)
        CHECK_OK(ignis_optimizer_swap_ema(optimizer));
    if (!has->shard) {
        gets->weight = last_of(ignis_tensor_data(parameters[0]));
        gets->moment = last_of(ignis_optimizer_state(optimizer, 0, IGNIS_OPTIMIZER_FIRST));
        gets->master = last_of(ignis_optimizer_state(optimizer, 0, IGNIS_OPTIMIZER_MASTER));
        gets->average = last_of(ignis_optimizer_state(optimizer, 0, IGNIS_OPTIMIZER_EMA));
        gets->loss = last_of(ignis_tensor_data(losses));
        gets->grad = last_of(ignis_tensor_grad(parameters[0]));
        CHECK_OK(ignis_optimizer_query(optimizer, &info));
        gets->rate = info.lr;
        /* sums that are left would count in the next step */
        step_alone(parameters, optimizer);
        gets->sum = last_of(ignis_optimizer_state(optimizer, 0, IGNIS_OPTIMIZER_FIRST));
    }
    CHECK_OK(ignis_training_free(training));
    CHECK_OK(ignis_parallel_free(parallel));
    CHECK_OK(ignis_optimizer_free(optimizer));
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_tensor_release(parameters[i]));
    CHECK_OK(ignis_tensor_release(losses));
    return NULL;
}

static void regroup(const before *has, after *gets)
{
    member members[RANKS];
    pthread_t threads[RANKS];
    ignis_comm comms[RANKS];
    int i;
    memset(comms, 0, sizeof comms);
    memset(gets, 0, sizeof *gets * RANKS);
    if (has->ranks > 1)
        CHECK_OK(ignis_comm_init_all(comms, NULL, has->ranks, NULL));
    for (i = 0; i < has->ranks; i++) {
        members[i].has = has, members[i].gets = &gets[i], members[i].rank = i, members[i].comm = comms[i];
        pthread_create(&threads[i], NULL, member_run, &members[i]);
    }
    for (i = 0; i < has->ranks; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < has->ranks; i++)
        CHECK_OK(ignis_comm_destroy(comms[i]));
}

/*  Two ranks have the same training, if one has taken that of the other. */
static void check_same(const after *a, const after *b)
{
    CHECK(a->weight == b->weight && a->moment == b->moment && a->master == b->master && a->average == b->average);
    CHECK(a->loss == b->loss && a->rate == b->rate && a->sum == b->sum);
}

/*  What each rank has if it takes nothing: with one rank in the group. */
static after alone_of(int rank, int64_t steps)
{
    before has = {{0}, 1, IGNIS_SHARD_NONE, false, false};
    after gets[RANKS];
    member m;
    memset(gets, 0, sizeof gets);
    memset(&m, 0, sizeof m);
    has.steps[rank] = steps;
    m.has = &has, m.gets = gets, m.rank = rank;
    member_run(&m);
    CHECK_INT(gets[0].status, IGNIS_OK);
    return gets[0];
}

TEST(the_rank_with_the_most_steps_sends)
{
    static const struct {
        int64_t steps[RANKS];
        int from, keeps; /* the rank that sends; one that keeps what it has, or -1 */
    } table[] = {{{2, 5, 3}, 1, -1}, {{2, 5, 5}, 1, 2}, {{0, 0, 0}, 0, -1}, {{-1, 0, 7}, 2, -1}, {{4, -1, -1}, 0, -1}};
    after gets[RANKS], own[RANKS];
    before has;
    int c, i;
    SETUP(NULL);
    NEEDS_DEVICES(RANKS);
    for (i = 0; i < RANKS; i++)
        own[i] = alone_of(i, 3);
    CHECK(own[0].weight != own[1].weight && own[0].moment != own[1].moment && own[0].rate != own[1].rate);
    for (c = 0; c < (int)(sizeof table / sizeof table[0]); c++) {
        const int from = table[c].from;
        memset(&has, 0, sizeof has);
        has.ranks = RANKS;
        memcpy(has.steps, table[c].steps, sizeof has.steps);
        regroup(&has, gets);
        for (i = 0; i < RANKS; i++) {
            CHECK_TEXT(gets[i].message, "");
            CHECK_INT(gets[i].step, table[c].steps[from]);
            check_same(&gets[i], &own[i == table[c].keeps ? i : from]);
            CHECK(gets[i].grad == 0);
            CHECK_INT(gets[i].seed, 100 + i);
            CHECK_INT(gets[i].position, gets[from].position);
        }
        if (table[c].steps[from])
            CHECK_INT(gets[from].position, own[from].position);
        if (test__state.failures)
            printf("case %d\n", c);
    }
}

TEST(regroupings_that_are_refused)
{
    static const struct {
        before has;
        ignis_status status[2];
        const char *says[2];
    } table[] = {{{{-1, -1}, 2, IGNIS_SHARD_NONE, false, false},
                  {IGNIS_ERROR_PEER, IGNIS_ERROR_PEER},
                  {"no rank has a complete training", "no rank has a complete training"}},
                 {{{1, -1}, 2, IGNIS_SHARD_OPTIMIZER, false, false},
                  {IGNIS_ERROR_UNSUPPORTED, IGNIS_ERROR_UNSUPPORTED},
                  {"the shards of rank 1 are lost, as no living rank has a copy", "continue from the saved training"}},
                 {{{-1, -1}, 2, IGNIS_SHARD_PARAMETERS, false, false},
                  {IGNIS_ERROR_PEER, IGNIS_ERROR_PEER},
                  {"no rank has a complete training", "no rank has a complete training"}},
                 {{{1, 1}, 2, IGNIS_SHARD_NONE, true, false},
                  {IGNIS_ERROR_MISMATCH, IGNIS_ERROR_MISMATCH},
                  {"rank 1 has other names", "rank 0 has other names"}},
                 {{{1, 1}, 2, IGNIS_SHARD_NONE, false, true},
                  {IGNIS_ERROR_PEER, IGNIS_ERROR_ARGUMENT},
                  {"rank 1 has failed", "ignis_optimizer_swap_ema first"}}};
    after gets[RANKS];
    int c, i;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    for (c = 0; c < (int)(sizeof table / sizeof table[0]); c++) {
        regroup(&table[c].has, gets);
        for (i = 0; i < 2; i++) {
            CHECK_INT(gets[i].status, table[c].status[i]);
            CHECK_HAS(gets[i].message, table[c].says[i]);
            CHECK_INT(gets[i].step, -7);
        }
        if (test__state.failures)
            printf("case %d\n", c);
    }
}

#define REFUSES(call, status, part) \
    (CHECK_INT((call), (status)), CHECK_HAS(ignis_status_message(), (part)), (void)ignis_status_clear())

static ignis_status no_sum(uint64_t group, ignis_array array) { return (void)group, (void)array, IGNIS_OK; }

TEST(arguments)
{
    static const char *const names[] = {"w"};
    ignis_training_desc desc;
    ignis_training training;
    ignis_ranks ranks;
    ignis_tensor w;
    ignis_comm comms[2], none;
    int64_t step = -7;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    memset(&ranks, 0, sizeof ranks);
    w = tensor_of((const double[]){1}, IGNIS_SHAPE(1), IGNIS_F32, true);
    desc.names = names, desc.tensors = &w, desc.count = 1;
    training = ignis_training_create(&desc);
    REFUSES(ignis_training_mark(training, -2), IGNIS_ERROR_ARGUMENT, "step is -2; expected -1 or more");
    REFUSES(ignis_training_regroup(training, ranks, NULL), IGNIS_ERROR_ARGUMENT, "step");
    ranks.rank = 2, ranks.size = 2;
    REFUSES(ignis_training_regroup(training, ranks, &step), IGNIS_ERROR_ARGUMENT, "ranks has rank 2 of 2");
    ranks.rank = 0;
    REFUSES(ignis_training_regroup(training, ranks, &step), IGNIS_ERROR_ARGUMENT, "ranks.sum_fn is null");
    ranks.sum_fn = no_sum;
    REFUSES(ignis_training_regroup(training, ranks, &step), IGNIS_ERROR_ARGUMENT, "ranks.broadcast_fn");
    CHECK_OK(ignis_training_mark(training, 9));
    memset(&ranks, 0, sizeof ranks);
    CHECK_OK(ignis_training_regroup(training, ranks, &step));
    CHECK_INT(step, 9);
    CHECK_OK(ignis_training_free(training));
    REFUSES(ignis_training_mark(training, 1), IGNIS_ERROR_FREED, "ignis_training_mark");
    REFUSES(ignis_training_regroup(training, ranks, &step), IGNIS_ERROR_FREED, "ignis_training_regroup");
    CHECK_OK(ignis_tensor_release(w));
    if (ignis_device_count() < 2)
        return;
    CHECK_OK(ignis_comm_init_all(comms, NULL, 2, NULL));
    none = ignis_comm_grow(comms[0], NULL);
    CHECK(!none.id);
    CHECK_HAS(ignis_status_message(), "of ignis_comm_init_all, whose ranks are one process; none can join it");
    ignis_status_clear();
    CHECK_OK(ignis_comm_destroy(comms[0]));
    none = ignis_comm_grow(comms[0], NULL);
    CHECK(!none.id);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_FREED);
    ignis_status_clear();
    CHECK_OK(ignis_comm_destroy(comms[1]));
}

/* --- moving to another communicator --- */

enum { MOVERS = 2 };

typedef struct mover {
    int rank;
    bool moves; /* after a step that is not complete, which is undone */
    ignis_shard shard;
    ignis_comm comms[MOVERS], others[MOVERS], alone; /* the first communicators of all ranks, and the second ones */
    double weights[NUMBERS], first[NUMBERS];
} mover;

static void mover_steps(const mover *m, ignis_tensor w, ignis_optimizer optimizer)
{
    ignis_scope scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(ignis_scale(ignis_map_mean("w*w", IGNIS_INPUTS(w)), m->rank + 1), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_optimizer_step(optimizer));
    CHECK_OK(ignis_scope_end(scope));
}

/*  Calls that rank 0 makes alone, and that are refused before it waits for the other. */
static void mover_is_refused(const mover *m, ignis_parallel parallel)
{
    REFUSES(ignis_parallel_regroup(parallel, m->others[1]), IGNIS_ERROR_DEVICE,
            "the communicator is on device 1; expected device 0");
    REFUSES(ignis_parallel_regroup(parallel, m->alone), IGNIS_ERROR_ARGUMENT, "comm has 1 rank(s); expected several");
    REFUSES(ignis_parallel_regroup(parallel, (ignis_comm){0}), IGNIS_ERROR_FREED, "ignis_parallel_regroup");
}

static void *mover_run(void *context)
{
    static const char *const names[] = {"w"};
    mover *m = (mover *)context;
    ignis_training_desc desc;
    ignis_parallel_desc shards;
    ignis_adamw_desc adamw;
    ignis_parallel parallel;
    ignis_optimizer optimizer;
    ignis_training training;
    ignis_array state;
    ignis_tensor w;
    double values[NUMBERS];
    int64_t step = -7;
    int i;
    CHECK_OK(ignis_device_use(m->rank));
    memset(&desc, 0, sizeof desc);
    memset(&adamw, 0, sizeof adamw);
    memset(&shards, 0, sizeof shards);
    for (i = 0; i < NUMBERS; i++)
        values[i] = i % 7 - 2.5;
    w = tensor_of(values, IGNIS_SHAPE(NUMBERS), IGNIS_BF16, true);
    shards.shard = m->shard, shards.no_broadcast = true;
    parallel = ignis_parallel_create(m->comms[m->rank], &w, 1, &shards);
    adamw.lr = 1e-2, adamw.zero_grad = true;
    optimizer = ignis_adamw(&adamw);
    CHECK_OK(ignis_optimizer_add(optimizer, w, true));
    desc.names = names, desc.tensors = &w, desc.count = 1, desc.optimizers = &optimizer, desc.optimizer_count = 1;
    training = ignis_training_create(&desc);
    CHECK_OK(ignis_training_regroup(training, ignis_comm_ranks(m->comms[m->rank]), &step));
    CHECK_INT(step, 0);
    mover_steps(m, w, optimizer);
    CHECK_OK(ignis_training_mark(training, 1));
    if (m->moves) {
        mover_steps(m, w, optimizer);
        if (m->rank == 0)
            mover_is_refused(m, parallel);
        CHECK_OK(ignis_parallel_regroup(parallel, m->others[m->rank]));
        CHECK_OK(ignis_comm_destroy(m->comms[m->rank]));
        CHECK_OK(ignis_training_regroup(training, ignis_comm_ranks(m->others[m->rank]), &step));
        CHECK_INT(step, 1);
    }
    mover_steps(m, w, optimizer);
    CHECK_OK(ignis_training_mark(training, 2));
    CHECK_OK(ignis_tensor_to_host(w, m->weights, IGNIS_F64, NUMBERS));
    CHECK(last_of(ignis_optimizer_state(optimizer, 0, IGNIS_OPTIMIZER_MISSED)) == 0); /* nor an empty piece */
    state = ignis_optimizer_state(optimizer, 0, IGNIS_OPTIMIZER_FIRST);
    CHECK_OK(ignis_array_to_host(state, m->first, IGNIS_F64, ignis_array_numel(state)));
    CHECK_OK(ignis_training_free(training));
    CHECK_OK(ignis_parallel_free(parallel));
    if (m->rank == 0 && m->moves)
        REFUSES(ignis_parallel_regroup(parallel, m->others[0]), IGNIS_ERROR_FREED, "ignis_parallel_regroup");
    CHECK_OK(ignis_optimizer_free(optimizer));
    CHECK_OK(ignis_tensor_release(w));
    return NULL;
}

/*  Trains with a kind of shards on two ranks, which change their communicator or not. */
static void movers_run(ignis_shard shard, bool moves, mover *movers)
{
    pthread_t threads[MOVERS];
    ignis_comm comms[MOVERS], others[MOVERS], alone;
    int i;
    CHECK_OK(ignis_comm_init_all(comms, NULL, MOVERS, NULL));
    CHECK_OK(ignis_comm_init_all(others, NULL, MOVERS, NULL));
    CHECK_OK(ignis_comm_init_all(&alone, NULL, 1, NULL));
    for (i = 0; i < MOVERS; i++) {
        memset(&movers[i], 0, sizeof movers[i]);
        movers[i].rank = i, movers[i].shard = shard, movers[i].moves = moves, movers[i].alone = alone;
        memcpy(movers[i].comms, comms, sizeof comms);
        memcpy(movers[i].others, others, sizeof others);
        pthread_create(&threads[i], NULL, mover_run, &movers[i]);
    }
    for (i = 0; i < MOVERS; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < MOVERS; i++) {
        if (!moves)
            CHECK_OK(ignis_comm_destroy(comms[i]));
        CHECK_OK(ignis_comm_destroy(others[i]));
    }
    CHECK_OK(ignis_comm_destroy(alone));
}

TEST(shards_move_and_undo_a_step)
{
    mover still[MOVERS], moved[MOVERS];
    int shard, i;
    SETUP(NULL);
    NEEDS_DEVICES(MOVERS);
    for (shard = IGNIS_SHARD_OPTIMIZER; shard < IGNIS_SHARD_COUNT; shard++) {
        movers_run((ignis_shard)shard, false, still);
        movers_run((ignis_shard)shard, true, moved);
        for (i = 0; i < MOVERS; i++) {
            CHECK(moved[i].weights[0] != -2.5 &&
                  memcmp(moved[i].weights, still[0].weights, sizeof still[0].weights) == 0);
            CHECK(memcmp(moved[i].first, still[i].first, sizeof still[i].first) == 0);
        }
        if (test__state.failures)
            printf("shard %d\n", shard);
    }
}

int main(int argc, char **argv)
{
    setenv("IGNIS_SIM_DEVICES", "4", 1);
    return test_run(argc, argv);
}
