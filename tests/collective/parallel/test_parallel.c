// SPDX-License-Identifier: MIT
/*  test_parallel.c - data-parallel training: the same as on one GPU, on every rank, every time */
#include "fault.h"
#include "tensor.h"

#include "ignis_collective.h"

#include "processes.h"

#include <math.h>

enum { RANKS_MAX = 4, STEPS = 4, BATCH = 8, LENGTH = 4, WIDTH = 16, VOCAB = 24, PARAMETERS = 9 };

/* --- a small language model -----------------------------------------------------------------------------------------
   */

typedef struct model {
    ignis_tensor all[PARAMETERS + 1];
    ignis_tensor table, norm_weight, norm_bias, qkv, out, up, up_bias, down, final_weight;
    int count;
} model;

static ignis_tensor parameter(model *m, ignis_shape shape, double deviation)
{
    ignis_tensor_desc desc;
    ignis_tensor tensor;
    memset(&desc, 0, sizeof desc);
    desc.requires_grad = true;
    tensor = deviation > 0   ? ignis_tensor_randn(shape, &desc)
             : deviation < 0 ? ignis_tensor_ones(shape, &desc)
                             : ignis_tensor_zeros(shape, &desc);
    if (deviation > 0)
        CHECK_OK(ignis_array_scale(ignis_tensor_data(tensor), ignis_tensor_data(tensor), deviation));
    m->all[m->count++] = tensor;
    return tensor;
}

static void model_make(model *m, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    CHECK_OK(ignis_seed(seed));
    m->table = parameter(m, IGNIS_SHAPE(VOCAB, WIDTH), 0.3);
    m->norm_weight = parameter(m, IGNIS_SHAPE(WIDTH), -1);
    m->norm_bias = parameter(m, IGNIS_SHAPE(WIDTH), 0);
    m->qkv = parameter(m, IGNIS_SHAPE(3 * WIDTH, WIDTH), 0.3);
    m->out = parameter(m, IGNIS_SHAPE(WIDTH, WIDTH), 0.3);
    m->up = parameter(m, IGNIS_SHAPE(2 * WIDTH, WIDTH), 0.3);
    m->up_bias = parameter(m, IGNIS_SHAPE(2 * WIDTH), 0);
    m->down = parameter(m, IGNIS_SHAPE(WIDTH, 2 * WIDTH), 0.3);
    m->final_weight = parameter(m, IGNIS_SHAPE(WIDTH), -1);
}

static void model_release(model *m)
{
    while (m->count > 0)
        CHECK_OK(ignis_tensor_release(m->all[--m->count]));
}

/*  in: x, then the parameters of the block, so that ignis_checkpoint can run it too. */
static ignis_tensor block(const ignis_tensor *in, int count, void *user_data)
{
    const model *m = (const model *)user_data;
    ignis_sdpa_desc attention;
    ignis_tensor x = in[0], h, qkv[3];
    (void)count;
    memset(&attention, 0, sizeof attention);
    attention.num_heads = 2;
    h = ignis_layer_norm(x, m->norm_weight, m->norm_bias, 1e-5);
    ignis_split(ignis_linear(h, m->qkv, no_tensor()), -1, 3, NULL, qkv);
    x = ignis_add(x, ignis_linear(ignis_sdpa(qkv[0], qkv[1], qkv[2], &attention), m->out, no_tensor()));
    h = ignis_gelu(ignis_linear(x, m->up, m->up_bias));
    return ignis_add(x, ignis_linear(h, m->down, no_tensor()));
}

/* --- a run on some ranks ------------------------------------------------------------------------------------------ */

/*  How to train, and what came of it. Step s of rank r of n sees examples r * BATCH / n to (r + 1) * BATCH / n of batch
    s. */
typedef struct training {
    int ranks, steps;
    bool checkpoint, graph, no_broadcast;
    int pieces;           /* of a rank's part of the batch, whose gradients are added up; 0: one */
    int64_t bucket_bytes; /* 0: the default */
    int extra;            /* 1: a parameter that nobody uses; 2: one that rank 0 alone uses */
    ignis_parallel_info info;
    double losses[RANKS_MAX][STEPS]; /* of each rank's part of the batch */
    float table[RANKS_MAX][VOCAB * WIDTH], down[RANKS_MAX][2 * WIDTH * WIDTH], extra_grad[RANKS_MAX][2];
} training;

typedef struct rank {
    training *run;
    int rank;
    ignis_comm comm;
    model model;
    ignis_tensor tokens, targets, losses; /* losses: of the pieces of one step */
    ignis_optimizer optimizer;
    ignis_parallel parallel;
    int examples;
} rank;

static void tokens_set(rank *r, int step, int piece)
{
    int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    int first = r->rank * BATCH / r->run->ranks + piece * r->examples, count = r->examples * LENGTH, i;
    for (i = 0; i < count; i++) {
        int place = step * BATCH * LENGTH + first * LENGTH + i;
        tokens[i] = place * 7 % VOCAB;
        targets[i] = place * place % VOCAB;
    }
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(r->tokens), tokens, IGNIS_I32, count));
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(r->targets), targets, IGNIS_I32, count));
}

static void forward_and_backward(rank *r)
{
    model *m = &r->model;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = ignis_embedding(m->table, r->tokens), loss;
    x = r->run->checkpoint ? ignis_checkpoint(block, m, &x, 1, NULL) : block(&x, 1, m);
    x = ignis_rms_norm(x, m->final_weight, 1e-5);
    loss = ignis_cross_entropy(ignis_matmul_t(x, m->table), r->targets, NULL);
    if (r->run->extra == 2 && r->rank == 0)
        loss = ignis_add(loss, ignis_scale(ignis_sum(m->all[PARAMETERS]), 8));
    CHECK_OK(ignis_array_copy(ignis_tensor_data(r->losses), ignis_tensor_data(loss)));
    if (r->run->pieces > 1)
        loss = ignis_scale(loss, 1.0 / r->run->pieces);
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
}

static void update(rank *r)
{
    CHECK_OK(ignis_clip_grad_norm(r->optimizer, 1.0));
    CHECK_OK(ignis_optimizer_step(r->optimizer));
}

static void rank_train(rank *r)
{
    training *run = r->run;
    ignis_graph graph = {0};
    int pieces = run->pieces > 1 ? run->pieces : 1, step, piece;
    for (step = 0; step < run->steps; step++) {
        double loss = 0;
        if (run->graph && step == 1) {
            CHECK_OK(ignis_graph_begin());
            forward_and_backward(r);
            update(r);
            graph = ignis_graph_end();
            CHECK(graph.id);
        }
        for (piece = 0; piece < pieces; piece++) {
            tokens_set(r, step, piece);
            if (graph.id) {
                CHECK_OK(ignis_graph_launch(graph));
            } else {
                if (piece + 1 < pieces && run->ranks > 1)
                    CHECK_OK(ignis_parallel_no_sync_begin(r->parallel));
                forward_and_backward(r);
                if (piece + 1 < pieces && run->ranks > 1)
                    CHECK_OK(ignis_parallel_no_sync_end(r->parallel));
            }
            loss += ignis_item(r->losses) / pieces;
        }
        run->losses[r->rank][step] = loss;
        if (run->extra && step + 1 == run->steps && ignis_tensor_grad(r->model.all[PARAMETERS]).id)
            CHECK_OK(ignis_array_to_host(ignis_tensor_grad(r->model.all[PARAMETERS]), run->extra_grad[r->rank],
                                         IGNIS_F32, 2));
        if (!graph.id)
            update(r);
    }
    CHECK_OK(ignis_array_to_host(ignis_tensor_data(r->model.table), run->table[r->rank], IGNIS_F32, VOCAB * WIDTH));
    CHECK_OK(ignis_array_to_host(ignis_tensor_data(r->model.down), run->down[r->rank], IGNIS_F32, 2 * WIDTH * WIDTH));
    if (graph.id)
        CHECK_OK(ignis_graph_free(graph));
}

static void *rank_run(void *context)
{
    rank *r = (rank *)context;
    training *run = r->run;
    ignis_tensor_desc ids;
    ignis_adamw_desc adamw;
    ignis_parallel_desc desc;
    int i;
    CHECK_OK(ignis_device_use(r->rank));
    memset(&ids, 0, sizeof ids);
    ids.dtype = IGNIS_I32;
    r->examples = BATCH / run->ranks / (run->pieces > 1 ? run->pieces : 1);
    r->tokens = ignis_tensor_zeros(IGNIS_SHAPE(r->examples, LENGTH), &ids);
    r->targets = ignis_tensor_zeros(IGNIS_SHAPE(r->examples, LENGTH), &ids);
    r->losses = ignis_tensor_zeros(IGNIS_SHAPE(1), NULL);
    model_make(&r->model, (uint64_t)(run->no_broadcast ? 1 : 1 + r->rank)); /* rank 0's parameters go to all */
    if (run->extra)
        parameter(&r->model, IGNIS_SHAPE(2), -1);
    if (run->ranks > 1) {
        memset(&desc, 0, sizeof desc);
        desc.bucket_bytes = run->bucket_bytes;
        desc.first_bucket_bytes = run->bucket_bytes;
        desc.no_broadcast = run->no_broadcast;
        r->parallel = ignis_parallel_create(r->comm, r->model.all, r->model.count, &desc);
        CHECK(r->parallel.id);
        if (r->rank == 0)
            CHECK_OK(ignis_parallel_query(r->parallel, &run->info));
    }
    memset(&adamw, 0, sizeof adamw);
    adamw.lr = 1e-2;
    adamw.zero_grad = true;
    r->optimizer = ignis_adamw(&adamw);
    for (i = 0; i < r->model.count; i++)
        CHECK_OK(ignis_optimizer_add(r->optimizer, r->model.all[i], false));
    rank_train(r);
    if (run->ranks > 1) {
        CHECK_OK(ignis_comm_synchronize(r->comm));
        CHECK_OK(ignis_parallel_free(r->parallel));
    }
    CHECK_OK(ignis_optimizer_free(r->optimizer));
    model_release(&r->model);
    CHECK_OK(ignis_tensor_release(r->tokens));
    CHECK_OK(ignis_tensor_release(r->targets));
    CHECK_OK(ignis_tensor_release(r->losses));
    return NULL;
}

/*  Every rank is a thread with a device of its own. */
static void ranks_start(ignis_comm *comms, int ranks, double timeout_s, void *(*work)(void *), void *contexts,
                        size_t size)
{
    pthread_t threads[RANKS_MAX];
    ignis_comm_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.timeout_s = timeout_s;
    if (ranks > 1)
        CHECK_OK(ignis_comm_init_all(comms, NULL, ranks, &desc));
    for (i = 0; i < ranks; i++) {
        rank *r = (rank *)((char *)contexts + (size_t)i * size);
        r->rank = i;
        r->comm = comms[i];
        pthread_create(&threads[i], NULL, work, r);
    }
    for (i = 0; i < ranks; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; ranks > 1 && i < ranks; i++)
        CHECK_OK(ignis_comm_destroy(comms[i]));
}

static void train(training *run)
{
    ignis_comm comms[RANKS_MAX];
    rank ranks[RANKS_MAX];
    int i;
    memset(ranks, 0, sizeof ranks);
    memset(comms, 0, sizeof comms);
    if (!run->steps)
        run->steps = STEPS;
    for (i = 0; i < run->ranks; i++)
        ranks[i].run = run;
    ranks_start(comms, run->ranks, 60, rank_run, ranks, sizeof ranks[0]);
}

/*  The loss of the whole batch, at each step, as on one GPU, up to rounding; and all ranks have the same parameters, to
    the bit. */
static void compare(const training *many, const training *one)
{
    int step, i;
    for (step = 0; step < many->steps; step++) {
        double loss = 0;
        for (i = 0; i < many->ranks; i++)
            loss += many->losses[i][step] / many->ranks;
        if (!(fabs(loss - one->losses[0][step]) < 2e-6 * loss))
            printf("%d ranks, step %d: loss %.9g, on one GPU %.9g\n", many->ranks, step, loss, one->losses[0][step]);
        CHECK(fabs(loss - one->losses[0][step]) < 2e-6 * loss);
    }
    for (i = 1; i < many->ranks; i++) {
        CHECK(memcmp(many->table[i], many->table[0], sizeof many->table[0]) == 0);
        CHECK(memcmp(many->down[i], many->down[0], sizeof many->down[0]) == 0);
    }
    CHECK(one->losses[0][STEPS - 1] < one->losses[0][0] || many->extra); /* it learns */
}

static bool same_bits(const training *a, const training *b)
{
    return memcmp(a->losses, b->losses, sizeof a->losses) == 0 && memcmp(a->table, b->table, sizeof a->table) == 0 &&
           memcmp(a->down, b->down, sizeof a->down) == 0;
}

static training one, two, other; /* large */

static training *start(training *r, int ranks)
{
    memset(r, 0, sizeof *r);
    r->ranks = ranks;
    return r;
}

TEST(two_ranks_train_as_one_gpu_and_the_same_every_time)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    train(start(&one, 1));
    train(start(&two, 2));
    compare(&two, &one);
    CHECK_INT(two.info.parameters, PARAMETERS);
    CHECK_INT(two.info.buckets, 1);
    CHECK(two.info.syncs);
    train(start(&other, 2));
    CHECK(same_bits(&two, &other));
}

TEST(four_ranks_train_as_one_gpu)
{
    SETUP(NULL);
    NEEDS_DEVICES(4);
    train(start(&one, 1));
    start(&two, 4)->no_broadcast = true;
    train(&two);
    compare(&two, &one);
}

TEST(buckets_change_no_bit)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    train(start(&two, 2));
    start(&other, 2)->bucket_bytes = 2048;
    train(&other);
    CHECK(other.info.buckets > 3);
    CHECK(same_bits(&two, &other));
}

TEST(gradients_add_up_before_they_are_averaged)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    train(start(&one, 1));
    start(&two, 2)->pieces = 2;
    train(&two);
    compare(&two, &one);
}

TEST(a_step_in_a_graph_changes_no_bit)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    start(&two, 2)->bucket_bytes = 2048;
    train(&two);
    start(&other, 2)->bucket_bytes = 2048;
    other.graph = true;
    train(&other);
    CHECK(same_bits(&two, &other));
}

TEST(parameters_inside_a_checkpoint_are_waited_for)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    start(&two, 2)->bucket_bytes = 2048;
    train(&two);
    start(&other, 2)->bucket_bytes = 2048;
    other.checkpoint = true;
    train(&other);
    CHECK(same_bits(&two, &other));
}

TEST(a_parameter_without_use_has_a_gradient_of_zeros)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    train(start(&one, 1));
    start(&two, 2)->extra = 1;
    train(&two);
    compare(&two, &one);
    CHECK(two.extra_grad[0][0] == 0 && two.extra_grad[1][1] == 0);
}

TEST(a_parameter_that_one_rank_uses_is_averaged_over_all)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    start(&two, 2)->extra = 2;
    two.bucket_bytes = 64;
    train(&two);
    CHECK(two.extra_grad[0][0] == 4 && two.extra_grad[1][0] == 4);
    CHECK(memcmp(two.table[0], two.table[1], sizeof two.table[0]) == 0);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void *rank_refuses(void *context)
{
    rank *r = (rank *)context;
    ignis_parallel_desc desc;
    ignis_parallel parallel, second;
    ignis_parallel_info info;
    ignis_optimizer optimizer;
    ignis_sgd_desc sgd;
    ignis_tensor wrong[2];
    ignis_tensor_desc no_grad;
    CHECK_OK(ignis_device_use(r->rank));
    memset(&desc, 0, sizeof desc);
    memset(&no_grad, 0, sizeof no_grad);
    model_make(&r->model, 1);
    CHECK_FAILS(ignis_parallel_create(r->comm, NULL, 1, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_parallel_create(r->comm, r->model.all, 0, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.bucket_bytes = -1;
    CHECK_FAILS(ignis_parallel_create(r->comm, r->model.all, 1, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    wrong[0] = wrong[1] = r->model.table;
    CHECK_FAILS(ignis_parallel_create(r->comm, wrong, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("is also parameter 0");
    wrong[1] = ignis_tensor_zeros(IGNIS_SHAPE(2), &no_grad);
    CHECK_FAILS(ignis_parallel_create(r->comm, wrong, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("requires no gradient");
    CHECK_OK(ignis_tensor_release(wrong[1]));
    CHECK_FAILS(ignis_parallel_create(r->comm, wrong, 2, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);

    CHECK_OK(ignis_zero_grad(r->model.table)); /* a gradient that is there keeps its values */
    CHECK_OK(ignis_array_fill(ignis_tensor_grad(r->model.table), 3));
    parallel = ignis_parallel_create(r->comm, r->model.all, r->model.count, NULL);
    CHECK(parallel.id);
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(r->model.table), r->run->table[r->rank], IGNIS_F32, VOCAB * WIDTH));
    CHECK(r->run->table[r->rank][0] == 3 && r->run->table[r->rank][VOCAB * WIDTH - 1] == 3);
    CHECK_STATUS(ignis_tensor_set_grad(r->model.table, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_GRADIENT_SHARED);
    CHECK_MESSAGE_HAS("use ignis_zero_grad");
    memset(&sgd, 0, sizeof sgd);
    sgd.lr = 1e-9, sgd.drop_grad = true;
    optimizer = ignis_sgd(&sgd); /* which cannot drop it, and sets it to zero */
    CHECK_OK(ignis_optimizer_add(optimizer, r->model.table, false));
    CHECK_OK(ignis_optimizer_step(optimizer));
    CHECK_OK(ignis_optimizer_free(optimizer));
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(r->model.table), r->run->table[r->rank], IGNIS_F32, VOCAB * WIDTH));
    CHECK(r->run->table[r->rank][0] == 0 && r->run->table[r->rank][VOCAB * WIDTH - 1] == 0);
    second = ignis_parallel_create(r->comm, r->model.all, 1, NULL);
    CHECK(!second.id);
    test__check_failure(__FILE__, __LINE__, "ignis_parallel_create(", IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("is already trained data-parallel");
    CHECK_STATUS(ignis_parallel_no_sync_end(parallel), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER);
    CHECK_OK(ignis_parallel_no_sync_begin(parallel));
    CHECK_OK(ignis_parallel_query(parallel, &info));
    CHECK(!info.syncs);
    CHECK_OK(ignis_parallel_no_sync_end(parallel));
    CHECK_STATUS(ignis_parallel_query(parallel, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_parallel_free(parallel));
    CHECK_STATUS(ignis_parallel_free(parallel), IGNIS_ERROR_FREED, IGNIS_DIAG_PARALLEL_FREED);
    CHECK(ignis_tensor_grad(r->model.table).id);
    CHECK_OK(ignis_tensor_set_grad(r->model.table, IGNIS_NO_ARRAY)); /* now it is its own again */
    CHECK(!ignis_tensor_grad(r->model.table).id);
    model_release(&r->model);
    return NULL;
}

static void run_ranks(void *(*work)(void *), double timeout_s)
{
    ignis_comm comms[RANKS_MAX];
    rank ranks[2];
    memset(ranks, 0, sizeof ranks);
    memset(comms, 0, sizeof comms);
    start(&two, 2);
    ranks[0].run = ranks[1].run = &two;
    ranks_start(comms, 2, timeout_s, work, ranks, sizeof ranks[0]);
}

TEST(what_does_not_fit_is_refused)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    run_ranks(rank_refuses, 60);
}

/*  Two threads that want the same parameters at once. */
typedef struct rival {
    ignis_comm comm;
    const model *of;
    pthread_barrier_t *start;
    ignis_parallel parallel;
    ignis_status status;
    char message[256];
} rival;

/*  Every allocation takes a while, so that none of the two is through before the other begins. */
static void *rival_alloc(size_t size, void *user_data)
{
    static const struct timespec pause = {0, 1000000};
    if (*(const bool *)user_data)
        nanosleep(&pause, NULL);
    return malloc(size);
}

static void rival_free(void *ptr, void *user_data)
{
    (void)user_data;
    free(ptr);
}

static void *rival_run(void *context)
{
    rival *r = (rival *)context;
    ignis_parallel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.no_broadcast = true; /* nothing is asked of the other rank */
    pthread_barrier_wait(r->start);
    r->parallel = ignis_parallel_create(r->comm, r->of->all, r->of->count, &desc);
    r->status = ignis_status_last();
    snprintf(r->message, sizeof r->message, "%s", ignis_status_message());
    return NULL;
}

TEST(parameters_are_taken_by_one_of_two_threads)
{
    pthread_barrier_t barrier;
    pthread_t threads[2];
    ignis_comm comms[2];
    rival rivals[2];
    ignis_desc desc;
    static bool slow; /* the allocator outlives this function */
    model m;
    int round, i;
    memset(&desc, 0, sizeof desc);
    desc.allocator.alloc_fn = rival_alloc;
    desc.allocator.free_fn = rival_free;
    desc.allocator.user_data = &slow;
    SETUP(&desc);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_comm_init_all(comms, NULL, 2, NULL));
    model_make(&m, 1);
    slow = true;
    CHECK_INT(pthread_barrier_init(&barrier, NULL, 2), 0);
    for (round = 0; round < 10; round++) {
        const rival *second;
        memset(rivals, 0, sizeof rivals);
        for (i = 0; i < 2; i++) {
            rivals[i].comm = comms[0];
            rivals[i].of = &m;
            rivals[i].start = &barrier;
            CHECK_INT(pthread_create(&threads[i], NULL, rival_run, &rivals[i]), 0);
        }
        for (i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        CHECK((rivals[0].parallel.id == 0) != (rivals[1].parallel.id == 0));
        second = rivals[0].parallel.id ? &rivals[1] : &rivals[0];
        CHECK_INT(second->status, IGNIS_ERROR_ARGUMENT);
        CHECK(strstr(second->message, "parameter 0, [24, 16], is already trained data-parallel"));
        for (i = 0; i < 2; i++)
            if (rivals[i].parallel.id)
                CHECK_OK(ignis_parallel_free(rivals[i].parallel));
    }
    slow = false;
    pthread_barrier_destroy(&barrier);
    model_release(&m);
    for (i = 0; i < 2; i++)
        CHECK_OK(ignis_comm_destroy(comms[i]));
}

TEST(shutdown_names_what_was_left_open)
{
    ignis_parallel_desc desc;
    ignis_transport_desc through;
    ignis_comm comms[2];
    model m;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    test_leaks_expected = true;
    CHECK_OK(ignis_comm_init_all(comms, NULL, 2, NULL));
    model_make(&m, 1);
    memset(&desc, 0, sizeof desc);
    desc.no_broadcast = true; /* so that it needs nobody else */
    CHECK(ignis_parallel_create(comms[0], m.all, m.count, &desc).id);
    memset(&through, 0, sizeof through);
    through.kind = IGNIS_TRANSPORT_HOST;
    CHECK(ignis_transport_create(&through).id);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED), 4); /* two of them communicators */
    CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "transport by host");
}

/*  Every driver call that ignis_parallel_create makes fails once; what it had made is gone each time. */
TEST(what_fails_halfway_leaves_nothing)
{
    int64_t before;
    ignis_parallel_desc desc;
    ignis_parallel parallel = {0};
    ignis_comm comms[2];
    model m;
    int at, made;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_comm_init_all(comms, NULL, 2, NULL));
    model_make(&m, 1);
    memset(&desc, 0, sizeof desc);
    desc.no_broadcast = true; /* so that it needs nobody else */
    desc.bucket_bytes = desc.first_bucket_bytes = 2048;
    before = memory().live_bytes;
    for (at = 1; !parallel.id && at < 1000; at++) {
        made = fault_count("cuStreamCreate") - fault_count("cuStreamDestroy_v2");
        fault_arm("cu", at, 2 /* CUDA_ERROR_OUT_OF_MEMORY */);
        parallel = ignis_parallel_create(comms[0], m.all, m.count, &desc);
        fault_disarm();
        if (parallel.id)
            break;
        CHECK(ignis_status_last() != IGNIS_OK);
        ignis_status_clear();
        CHECK_INT(memory().live_bytes, before);
        CHECK(!ignis_tensor_grad(m.table).id);
        CHECK_INT(fault_count("cuStreamCreate") - fault_count("cuStreamDestroy_v2"), made);
        CHECK_INT(ignis__grad_groups, 0);
    }
    CHECK(at > 3 && parallel.id);
    CHECK_OK(ignis_parallel_free(parallel));
    CHECK_INT(ignis__grad_groups, 0);
    model_release(&m);
    CHECK_OK(ignis_comm_destroy(comms[0]));
    CHECK_OK(ignis_comm_destroy(comms[1]));
}

/*  The sum of the first weight times the last, on whose way a backward function of the test's runs. */
static ignis_tensor loss_through(const rank *r, ignis_status (*backward_fn)(const ignis_backward_args *args),
                                 void *user_data)
{
    ignis_tensor x = ignis_scale(r->model.norm_weight, 2), made = ignis_tensor_from_array(ignis_tensor_data(x), false);
    ignis_rule rule;
    memset(&rule, 0, sizeof rule);
    rule.name = "of the test";
    rule.backward_fn = backward_fn;
    rule.user_data = user_data;
    CHECK_OK(ignis_tape_record(made, &x, 1, &rule));
    return ignis_sum(ignis_mul(made, r->model.final_weight));
}

/*  A backward function that reaches a parameter by a backward of its own. */
static ignis_status late_backward(const ignis_backward_args *args)
{
    const ignis_tensor *parameter_of = (const ignis_tensor *)args->user_data;
    ignis_tensor sum;
    ignis_status status;
    ignis_scope scope = ignis_scope_begin();
    ignis__tensor_thread_now()->no_grad--;
    sum = ignis_sum(*parameter_of);
    status = ignis_backward(sum, IGNIS_NO_ARRAY);
    ignis__tensor_thread_now()->no_grad++;
    args->grad_inputs[0] = ignis_array_clone(args->grad_output);
    ignis_scope_end(scope);
    return status;
}

static void *rank_is_late(void *context)
{
    rank *r = (rank *)context;
    ignis_parallel parallel;
    ignis_scope scope;
    CHECK_OK(ignis_device_use(r->rank));
    model_make(&r->model, 1);
    parallel = ignis_parallel_create(r->comm, r->model.all, r->model.count, NULL);
    CHECK(parallel.id);
    scope = ignis_scope_begin();
    CHECK_OK(ignis_parallel_no_sync_begin(parallel)); /* the one bucket is whole only at the end, so all is well */
    CHECK_OK(ignis_backward(loss_through(r, late_backward, &r->model.final_weight), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_parallel_no_sync_end(parallel));
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_parallel_free(parallel));

    parallel = ignis_parallel_create(r->comm, &r->model.final_weight, 1, NULL);
    scope = ignis_scope_begin();
    CHECK_STATUS(ignis_backward(loss_through(r, late_backward, &r->model.final_weight), IGNIS_NO_ARRAY),
                 IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_GRADIENT_LATE);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_parallel_free(parallel));
    model_release(&r->model);
    return NULL;
}

TEST(a_gradient_that_comes_too_late_is_told)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    run_ranks(rank_is_late, 60);
}

static void *backward_beside(void *context)
{
    const rank *r = (const rank *)context;
    ignis_tensor sum;
    CHECK_OK(ignis_device_use(r->rank));
    sum = ignis_sum(r->model.final_weight);
    CHECK_STATUS(ignis_backward(sum, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARALLEL_BUSY);
    CHECK_OK(ignis_tensor_release(sum));
    return NULL;
}

/*  Starts another thread's backward through the same parameters in the middle of one. */
static ignis_status beside_backward(const ignis_backward_args *args)
{
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, backward_beside, args->user_data), 0);
    pthread_join(thread, NULL);
    args->grad_inputs[0] = ignis_array_clone(args->grad_output);
    return IGNIS_OK;
}

static void *rank_beside(void *context)
{
    rank *r = (rank *)context;
    ignis_parallel parallel;
    ignis_scope scope;
    CHECK_OK(ignis_device_use(r->rank));
    model_make(&r->model, 1);
    parallel = ignis_parallel_create(r->comm, r->model.all, r->model.count, NULL);
    scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(loss_through(r, beside_backward, r), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_comm_synchronize(r->comm));
    CHECK_OK(ignis_parallel_free(parallel));
    model_release(&r->model);
    return NULL;
}

TEST(one_backward_at_a_time_averages)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    run_ranks(rank_beside, 60);
}

/*  Looks, in the middle of a backward, how many buckets are on their way. */
static ignis_status looking_backward(const ignis_backward_args *args)
{
    ignis__parallel_state *parallel = (ignis__parallel_state *)args->user_data;
    CHECK_INT(parallel->launched, 1);
    args->grad_inputs[0] = ignis_array_clone(args->grad_output);
    return IGNIS_OK;
}

static void *rank_looks(void *context)
{
    rank *r = (rank *)context;
    ignis_parallel_desc desc;
    ignis_parallel parallel;
    ignis__parallel_state *state;
    ignis_scope scope;
    CHECK_OK(ignis_device_use(r->rank));
    model_make(&r->model, 1);
    memset(&desc, 0, sizeof desc);
    desc.first_bucket_bytes = 1;
    parallel = ignis_parallel_create(r->comm, r->model.all, r->model.count, &desc);
    state = ignis__parallel_hold("test", parallel);
    CHECK(state);
    scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(loss_through(r, looking_backward, state), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_comm_synchronize(r->comm));
    CHECK(ignis__parallel_drop("test", state));
    CHECK_OK(ignis_parallel_free(parallel));
    model_release(&r->model);
    return NULL;
}

TEST(the_first_gradients_travel_while_backward_goes_on)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    run_ranks(rank_looks, 60);
}

/* --- ranks that fail ---------------------------------------------------------------------------------------------- */

/*  Rank 1 has made its part, and never comes to a backward. */
static void *rank_stays_away(void *context)
{
    rank *r = (rank *)context;
    ignis_parallel parallel;
    ignis_scope scope;
    ignis_status status;
    CHECK_OK(ignis_device_use(r->rank));
    model_make(&r->model, 1);
    parallel = ignis_parallel_create(r->comm, r->model.all, r->model.count, NULL);
    CHECK(parallel.id);
    if (r->rank == 0) {
        scope = ignis_scope_begin();
        status = ignis_backward(ignis_sum(r->model.table), IGNIS_NO_ARRAY);
        if (status == IGNIS_OK)
            status = ignis_comm_synchronize(r->comm);
        CHECK_INT(status, IGNIS_ERROR_TIMEOUT);
        ignis_status_clear();
        CHECK_OK(ignis_scope_end(scope));
    }
    (void)ignis_parallel_free(parallel);
    ignis_status_clear();
    model_release(&r->model);
    return NULL;
}

TEST(a_rank_that_stays_away_is_a_timeout)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    run_ranks(rank_stays_away, 2);
}

/*  In processes: rank 1 dies in the middle of its backward, once rank 0 is in its own. */
static ignis_status deadly_backward(const ignis_backward_args *args)
{
    int moments = 0;
    while (access((const char *)args->user_data, F_OK) != 0 && moments++ < 60000)
        test_sleep_ms(1);
    fflush(stdout);
    _exit(0);
}

static int role_dies(int number)
{
    char folder[64];
    ignis_desc setup = test_desc(NULL);
    ignis_comm_desc desc;
    ignis_comm comm;
    ignis_parallel parallel;
    ignis_tensor x, made;
    ignis_rule rule;
    ignis_status status;
    char rendezvous[128], begun[128];
    FILE *file;
    model m;
    if (!process_receive(PROCESS_SOCKET, folder, sizeof folder, NULL) || ignis_setup(&setup) != IGNIS_OK)
        return 1;
    memset(&desc, 0, sizeof desc);
    snprintf(rendezvous, sizeof rendezvous, "dir:%s", folder);
    desc.rank = number;
    desc.size = 2;
    desc.rendezvous = rendezvous;
    desc.device = number ? number : IGNIS_DEVICE_0;
    desc.timeout_s = 10;
    comm = ignis_comm_init(&desc);
    CHECK_OK(ignis_device_use(number));
    model_make(&m, 1);
    parallel = ignis_parallel_create(comm, m.all, m.count, NULL);
    CHECK(parallel.id);
    x = ignis_scale(m.norm_weight, 2);
    made = ignis_tensor_from_array(ignis_tensor_data(x), false);
    memset(&rule, 0, sizeof rule);
    rule.name = "deadly";
    rule.backward_fn = deadly_backward;
    rule.user_data = begun;
    snprintf(begun, sizeof begun, "%s.begun", folder);
    if (number == 1) {
        CHECK_OK(ignis_tape_record(made, &x, 1, &rule));
    } else {
        made = x;
        file = fopen(begun, "w");
        CHECK(file);
        if (file)
            fclose(file);
    }
    status = ignis_backward(ignis_sum(ignis_mul(made, m.final_weight)), IGNIS_NO_ARRAY);
    if (status == IGNIS_OK)
        status = ignis_comm_synchronize(comm);
    CHECK(status == IGNIS_ERROR_PEER || status == IGNIS_ERROR_TIMEOUT);
    printf("%s\n", ignis_status_message());
    ignis_status_clear();
    unlink(begun);
    return test__state.failures != 0;
}

TEST(a_rank_that_dies_in_backward_is_an_error)
{
    char folder[64] = "/tmp/ignis_test_parallel_XXXXXX";
    process children[2];
    int i;
    NEEDS_POSIX("communicators between processes");
    SETUP(NULL);
    NEEDS_DEVICES(2);
    REQUIRE(mkdtemp(folder));
    for (i = 0; i < 2; i++) {
        children[i] = process_start(i ? "1" : "0");
        CHECK(process_send(children[i].socket, folder, sizeof folder, -1));
    }
    for (i = 0; i < 2; i++)
        CHECK_INT(process_end(&children[i]), 0);
    rmdir(folder);
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    setenv("IGNIS_SIM_DEVICES", "4", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast is not asked for on machines that others use too */
    return role ? role_dies(atoi(role)) : test_run(argc, argv);
}
