// SPDX-License-Identifier: MIT
/*  test_saved.c - trainings that ranks save and load together: other numbers of ranks, with each kind of shards */
#include "tensor.h"

#include "ignis_collective.h"

#include "processes.h"

/*  Several ranks have pieces of the first parameter; some have none of the others. */
enum { RANKS_MAX = 4, STEPS = 4, SAVED_AT = 2, ROWS = 210, COLUMNS = 100, PARAMETERS = 4 };
enum { ELEMENTS = ROWS * COLUMNS, STATES = 6 };

static const char *const names[] = {"large", "vector", "matrix", "small"};
static const char *const state_names[] = {"losses"};

/*  A run of some steps by ranks, which are threads with a device each, and what came of it. */
typedef struct work {
    int ranks, first, end; /* steps */
    ignis_shard shard;
    int shard_ranks;       /* not 0: ranks meet by ignis_comm_init */
    char meeting[64];      /* the folder where they meet */
    const char *from, *to; /* folders: loaded before the first step, saved at SAVED_AT; NULL: not */
    bool differs, fails;   /* rank 1 has other names; it writes elsewhere, where it cannot */
    double losses[RANKS_MAX][STEPS];
    double weights[PARAMETERS][ELEMENTS];
    double state[PARAMETERS][STATES][ELEMENTS]; /* of one rank: by part of the optimizer's state */
    int outcomes[RANKS_MAX];
    char messages[RANKS_MAX][512];
} work;

typedef struct member {
    work *job;
    int rank, step;
    ignis_comm comm;
    ignis_parallel parallel;
    ignis_tensor all[PARAMETERS], losses, input;
    ignis_optimizer optimizer;
    ignis_training training;
} member;

static double number(int at) { return (double)(at * 37 % 101 - 50) / 250; }

static ignis_tensor values_of(ignis_shape shape, ignis_dtype dtype, bool is_parameter, int seed)
{
    double *values = (double *)malloc(sizeof *values * ELEMENTS);
    ignis_tensor made;
    int i;
    for (i = 0; i < ELEMENTS; i++)
        values[i] = number(i + i / 7 * seed + seed);
    made = tensor_of(values, shape, dtype, is_parameter);
    free(values);
    return made;
}

static void member_begin(member *r)
{
    static const char *const others[] = {"a", "b", "c", "d"};
    const int seed = 1 + 10 * r->rank + (r->job->from ? 5 : 0);
    ignis_parallel_desc parallel;
    ignis_adamw_desc adamw;
    ignis_training_desc desc;
    int i;
    memset(&parallel, 0, sizeof parallel);
    memset(&adamw, 0, sizeof adamw);
    memset(&desc, 0, sizeof desc);
    r->all[0] = values_of(IGNIS_SHAPE(ROWS, COLUMNS), IGNIS_BF16, true, seed);
    r->all[1] = values_of(IGNIS_SHAPE(130), IGNIS_BF16, true, seed + 1);
    r->all[2] = values_of(IGNIS_SHAPE(7, 13), IGNIS_BF16, true, seed + 2);
    r->all[3] = values_of(IGNIS_SHAPE(1), IGNIS_BF16, true, seed + 3);
    r->losses = values_of(IGNIS_SHAPE(STEPS), IGNIS_F64, false, seed);
    r->input = values_of(IGNIS_SHAPE(1), IGNIS_F32, false, 3 + r->rank);
    CHECK_OK(ignis_seed((uint64_t)seed));
    if (r->comm.id) {
        parallel.shard = r->job->shard;
        parallel.shard_ranks = r->job->shard_ranks;
        if (parallel.shard == IGNIS_SHARD_PARAMETERS)
            parallel.bucket_bytes = parallel.first_bucket_bytes = 1; /* a bucket each */
        r->parallel = ignis_parallel_create(r->comm, r->all, PARAMETERS, &parallel);
        CHECK(r->parallel.id);
        desc.ranks = ignis_comm_ranks(r->comm);
    }
    adamw.lr = 1e-2, adamw.zero_grad = true, adamw.ema_decay = 0.9;
    adamw.loss_scale.initial = 1024, adamw.loss_scale.interval = 2;
    r->optimizer = ignis_adamw(&adamw);
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_optimizer_add(r->optimizer, r->all[i], i % 2 == 0));
    desc.names = r->job->differs && r->rank == 1 ? others : names;
    desc.tensors = r->all, desc.count = PARAMETERS;
    desc.optimizers = &r->optimizer, desc.optimizer_count = 1;
    desc.state_names = state_names, desc.state = &r->losses, desc.state_count = 1;
    r->training = ignis_training_create(&desc);
    CHECK(r->job->differs || r->training.id);
}

static void member_step(member *r)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = r->input, w = ignis_dropout(r->all[0], 0.1), loss;
    int i;
    loss = ignis_map_mean("(w - x)*(w - x)", IGNIS_INPUTS(w, x));
    for (i = 1; i < PARAMETERS; i++) {
        w = r->all[i];
        loss = ignis_add(loss, ignis_map_mean("(w - x)*(w - x)", IGNIS_INPUTS(w, x)));
    }
    r->job->losses[r->rank][r->step] = ignis_item(loss);
    CHECK_OK(ignis_backward(ignis_scale_loss(r->optimizer, loss), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_optimizer_step(r->optimizer));
    CHECK_OK(ignis_scope_end(scope));
}

static void read_values(ignis_array array, double *out)
{
    if (array.id)
        CHECK_OK(ignis_array_to_host(array, out, IGNIS_F64, ignis_array_numel(array)));
}

static void member_end(member *r)
{
    double aside[ELEMENTS];
    int i, part;
    for (i = 0; i < PARAMETERS; i++) { /* on all ranks, which may have parts of them */
        read_values(ignis_tensor_data(r->all[i]), r->rank == 0 ? r->job->weights[i] : aside);
        for (part = 0; part < STATES && r->job->ranks == 1; part++)
            read_values(ignis_optimizer_state(r->optimizer, i, (ignis_optimizer_part)(part < 5 ? part : 6)),
                        r->job->state[i][part]);
    }
    CHECK_OK(ignis_training_free(r->training));
    if (r->comm.id)
        CHECK_OK(ignis_parallel_free(r->parallel));
    CHECK_OK(ignis_optimizer_free(r->optimizer));
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_tensor_release(r->all[i]));
    CHECK_OK(ignis_tensor_release(r->losses));
    CHECK_OK(ignis_tensor_release(r->input));
}

/*  Keeps what a call on a rank has come to. */
static void keep_outcome(member *r)
{
    r->job->outcomes[r->rank] = (int)ignis_status_last();
    snprintf(r->job->messages[r->rank], sizeof r->job->messages[0], "%s", ignis_status_message());
    ignis_status_clear();
}

static void *member_run(void *context)
{
    member *r = (member *)context;
    const work *job = r->job;
    ignis_comm_desc desc;
    char rendezvous[128];
    CHECK_OK(ignis_device_use(r->rank));
    if (job->shard_ranks) {
        memset(&desc, 0, sizeof desc);
        snprintf(rendezvous, sizeof rendezvous, "dir:%s", job->meeting);
        desc.rank = r->rank, desc.size = job->ranks, desc.rendezvous = rendezvous;
        desc.device = r->rank ? r->rank : IGNIS_DEVICE_0;
        r->comm = ignis_comm_init(&desc);
        CHECK(r->comm.id);
    }
    member_begin(r);
    if (job->from)
        CHECK_OK(ignis_training_load(r->training, job->from));
    for (r->step = job->first; r->training.id && r->step < job->end; r->step++) {
        if (r->step == SAVED_AT && job->to)
            CHECK_OK(ignis_training_save(r->training, job->fails && r->rank == 1 ? test_path("file") : job->to));
        member_step(r);
    }
    if (job->to && job->end == SAVED_AT)
        CHECK_OK(ignis_training_save(r->training, job->to));
    if (r->training.id)
        (void)ignis_training_wait(r->training);
    keep_outcome(r);
    member_end(r);
    if (job->shard_ranks)
        CHECK_OK(ignis_comm_destroy(r->comm));
    return NULL;
}

static work *done(work *job)
{
    static member members[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    ignis_comm comms[RANKS_MAX];
    int i;
    memset(comms, 0, sizeof comms);
    memset(members, 0, sizeof members);
    if (job->shard_ranks) {
        snprintf(job->meeting, sizeof job->meeting, "/tmp/ignis_test_saved_XXXXXX");
        CHECK(mkdtemp(job->meeting) != NULL);
    } else if (job->ranks > 1)
        CHECK_OK(ignis_comm_init_all(comms, NULL, job->ranks, NULL));
    for (i = 0; i < job->ranks; i++) {
        members[i].job = job, members[i].rank = i, members[i].comm = comms[i];
        pthread_create(&threads[i], NULL, member_run, &members[i]);
    }
    for (i = 0; i < job->ranks; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < job->ranks && job->ranks > 1; i++)
        CHECK_OK(ignis_comm_destroy(comms[i]));
    if (job->shard_ranks)
        CHECK_INT(rmdir(job->meeting), 0);
    return job;
}

static work *begin(work *job, int ranks, ignis_shard shard, int first, int end)
{
    memset(job, 0, sizeof *job);
    job->ranks = ranks, job->shard = shard, job->first = first, job->end = end;
    return job;
}

static work one, other;

/*  Saved while the training goes on, and continued by as many ranks: losses and weights have the same bits. */
TEST(as_many_ranks_continue_with_the_bits_of_an_unbroken_run)
{
    int shard, ranks, i;
    SETUP(NULL);
    NEEDS_DEVICES(4);
    for (shard = 0; shard < IGNIS_SHARD_COUNT; shard++) {
        ranks = shard == IGNIS_SHARD_OPTIMIZER ? 4 : 2;
        begin(&one, ranks, (ignis_shard)shard, 0, STEPS)->to = test_path("as_many");
        done(&one);
        begin(&other, ranks, (ignis_shard)shard, SAVED_AT, STEPS)->from = test_path("as_many");
        done(&other);
        for (i = 0; i < ranks; i++) {
            CHECK_INT(one.outcomes[i], IGNIS_OK);
            CHECK(memcmp(one.losses[i] + SAVED_AT, other.losses[i] + SAVED_AT, sizeof(double) * (STEPS - SAVED_AT)) ==
                  0);
        }
        CHECK(memcmp(one.weights, other.weights, sizeof one.weights) == 0);
    }
}

/*  n ranks save, m ranks load that and save it again, and one rank finds the same in both folders. */
TEST(any_number_of_ranks_continues)
{
    static const int counts[] = {1, 2, 4};
    int n, m, shard = 0;
    SETUP(NULL);
    NEEDS_DEVICES(4);
    for (n = 0; n < 3; n++)
        for (m = 0; m < 3; m++, shard = (shard + 1) % IGNIS_SHARD_COUNT) {
            begin(&one, counts[n], (ignis_shard)shard, 0, SAVED_AT)->to = test_path("n");
            done(&one);
            begin(&one, counts[m], (ignis_shard)((shard + 1) % IGNIS_SHARD_COUNT), SAVED_AT, SAVED_AT)->to =
                test_path("m");
            one.from = test_path("n");
            done(&one);
            begin(&one, 1, IGNIS_SHARD_NONE, SAVED_AT, SAVED_AT)->from = test_path("n");
            done(&one);
            begin(&other, 1, IGNIS_SHARD_NONE, SAVED_AT, SAVED_AT)->from = test_path("m");
            done(&other);
            CHECK(one.state[0][0][3] == SAVED_AT && one.state[0][2][7] > 0); /* steps, and a second moment */
            CHECK(memcmp(one.weights, other.weights, sizeof one.weights) == 0);
            CHECK(memcmp(one.state, other.state, sizeof one.state) == 0);
        }
}

/*  Copies of the state are written once, and the unbroken run goes on; with another number of ranks in a group, too. */
TEST(groups_of_ranks_save_and_continue)
{
    int shard, i;
    NEEDS_POSIX("folders to meet in");
    SETUP(NULL);
    NEEDS_DEVICES(4);
    for (shard = IGNIS_SHARD_OPTIMIZER; shard < IGNIS_SHARD_COUNT; shard++) {
        begin(&one, 4, (ignis_shard)shard, 0, STEPS)->to = test_path("groups");
        one.shard_ranks = 2;
        done(&one);
        begin(&other, 4, (ignis_shard)shard, SAVED_AT, STEPS)->from = test_path("groups");
        other.shard_ranks = 2;
        done(&other);
        for (i = 0; i < 4; i++) {
            CHECK_INT(one.outcomes[i], IGNIS_OK);
            CHECK(memcmp(one.losses[i] + SAVED_AT, other.losses[i] + SAVED_AT, sizeof(double) * (STEPS - SAVED_AT)) ==
                  0);
        }
        CHECK(memcmp(one.weights, other.weights, sizeof one.weights) == 0);
        begin(&other, shard == IGNIS_SHARD_OPTIMIZER ? 2 : 4, (ignis_shard)shard, SAVED_AT, SAVED_AT)->from =
            test_path("groups");
        other.shard_ranks = shard == IGNIS_SHARD_GRADIENTS ? 4 : 1;
        other.to = test_path("others");
        done(&other);
        begin(&one, 1, IGNIS_SHARD_NONE, SAVED_AT, SAVED_AT)->from = test_path("groups");
        done(&one);
        begin(&other, 1, IGNIS_SHARD_NONE, SAVED_AT, SAVED_AT)->from = test_path("others");
        done(&other);
        CHECK(one.state[0][0][3] == SAVED_AT && one.state[0][2][7] > 0); /* steps, and a second moment */
        CHECK(memcmp(one.weights, other.weights, sizeof one.weights) == 0);
        CHECK(memcmp(one.state, other.state, sizeof one.state) == 0);
    }
}

TEST(a_rank_that_fails_is_named_by_the_others)
{
    int i;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    test_write_file(test_path("file"), "x", 1);
    begin(&one, 2, IGNIS_SHARD_OPTIMIZER, 0, STEPS)->to = test_path("failed");
    one.fails = true;
    done(&one);
    CHECK_INT(one.outcomes[0], IGNIS_ERROR_PEER);
    CHECK_HAS(one.messages[0], "ignis_training_wait: rank 1 has failed");
    CHECK_INT(one.outcomes[1], IGNIS_ERROR_IO);
    CHECK_HAS(one.messages[1], "file/");
    CHECK_INT(test_files_in(test_path("failed")), 2); /* the files of rank 0; no index */
    begin(&one, 2, IGNIS_SHARD_NONE, 0, 1)->differs = true;
    done(&one);
    for (i = 0; i < 2; i++) {
        CHECK_INT(one.outcomes[i], IGNIS_ERROR_MISMATCH);
        CHECK_HAS(one.messages[i], "has other names, shapes, dtypes or optimizers");
    }
}

int main(int argc, char **argv)
{
    setenv("IGNIS_SIM_DEVICES", "4", 1);
    return test_run(argc, argv);
}
