// SPDX-License-Identifier: MIT
/*  test_shards.c - shards of data-parallel training: the bits of unsharded training, in all its forms */
#include "fault.h"
#include "tensor.h"

#include "ignis_collective.h"

#include "processes.h"

#include <math.h>

/*  Places of the parameters in their bucket: last bias, last matrix, bias, first matrix. The first matrix is in the
    slices of ranks 0 and 1, and wide ones are in more. */
enum { RANKS_MAX = 8, STEPS = 3, BATCH = 8, WIDTH = 96, WIDE = 260, HIDDEN = 96, CLASSES = 23, PARAMETERS = 4 };
enum { WEIGHTS = HIDDEN * WIDE + HIDDEN + CLASSES * HIDDEN + CLASSES };

typedef enum method { ADAMW, SGD, LION, RMSPROP, MUON, METHODS } method;

/*  How to train, and what came of it. */
typedef struct training {
    int ranks, steps;
    ignis_shard shard;
    ignis_dtype dtype;
    method method;
    bool graph, clips, scales, zeroes_apart, zeroes_tensors, swaps, sums, drops;
    bool is_wide;
    int pieces;           /* of a rank's part of the batch; 0: one */
    int64_t bucket_bytes; /* 0: the default */
    double ema_decay;
    double losses[RANKS_MAX][STEPS], norms[RANKS_MAX][STEPS];
    float weights[RANKS_MAX][WEIGHTS];
    int64_t state_elements[RANKS_MAX];
    ignis_parallel_info info;
} training;

typedef struct rank {
    training *run;
    int rank;
    ignis_comm comm;
    ignis_parallel parallel;
    ignis_tensor all[PARAMETERS], input, targets, loss;
    ignis_optimizer optimizers[2];
    int optimizer_count;
    ignis_status status;
    char message[512];
} rank;

static double number(int at) { return (double)(at * 37 % 101 - 50) / 50; }

static ignis_tensor values_of(ignis_shape shape, ignis_dtype dtype, bool is_parameter, double scale, int seed)
{
    static const int64_t most = HIDDEN * WIDE;
    ignis_tensor_desc desc;
    ignis_tensor made;
    double *values = (double *)malloc(sizeof *values * (size_t)most);
    int64_t count = shape.ndim == 2 ? shape.dim[0] * shape.dim[1] : shape.dim[0], i;
    memset(&desc, 0, sizeof desc);
    desc.dtype = dtype;
    desc.requires_grad = is_parameter;
    desc.host_dtype = IGNIS_F64;
    for (i = 0; i < count; i++)
        values[i] = scale * number((int)(i + i / 7 * seed + seed));
    made = ignis_tensor_from_host(values, shape, &desc);
    free(values);
    return made;
}

static int width_of(const training *run) { return run->is_wide ? WIDE : WIDTH; }

static void rank_model(rank *r)
{
    const ignis_dtype dtype = r->run->dtype;
    const int seed = 1 + (r->run->ranks > 1 ? r->rank : 0); /* rank 0's parameters go to all */
    ignis_tensor_desc desc;
    const int rows = BATCH / r->run->ranks / r->run->pieces;
    r->all[0] = values_of(IGNIS_SHAPE(HIDDEN, width_of(r->run)), dtype, true, 0.2, seed);
    r->all[1] = values_of(IGNIS_SHAPE(HIDDEN), dtype, true, 0.1, seed + 1);
    r->all[2] = values_of(IGNIS_SHAPE(CLASSES, HIDDEN), dtype, true, 0.2, seed + 2);
    r->all[3] = values_of(IGNIS_SHAPE(CLASSES), dtype, true, 0.1, seed + 3);
    r->input = values_of(IGNIS_SHAPE(rows, width_of(r->run)), dtype, false, 1, 1);
    memset(&desc, 0, sizeof desc);
    desc.dtype = IGNIS_I32;
    r->targets = ignis_tensor_zeros(IGNIS_SHAPE(rows), &desc);
    r->loss = ignis_tensor_zeros(IGNIS_SHAPE(1), NULL);
}

static void rank_inputs(rank *r, int step, int piece)
{
    const int rows = BATCH / r->run->ranks / r->run->pieces, first = r->rank * BATCH / r->run->ranks + piece * rows;
    const int count = rows * width_of(r->run);
    float input[BATCH * WIDE];
    int32_t targets[BATCH];
    int i;
    for (i = 0; i < count; i++)
        input[i] = (float)number(((step * BATCH + first) * width_of(r->run) + i) * 3);
    for (i = 0; i < rows; i++)
        targets[i] = (step * BATCH + first + i) * 31 % CLASSES;
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(r->input), input, IGNIS_F32, count));
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(r->targets), targets, IGNIS_I32, rows));
}

static ignis_optimizer optimizer_of(const training *run, method kind)
{
    ignis_adamw_desc adamw;
    memset(&adamw, 0, sizeof adamw);
    adamw.lr = 1e-2;
    adamw.weight_decay = 0.01;
    adamw.zero_grad = !run->zeroes_apart && !run->zeroes_tensors && !run->sums && !run->drops;
    adamw.drop_grad = run->drops;
    adamw.ema_decay = run->ema_decay;
    adamw.loss_scale.initial = run->scales ? 1024 : 0;
    adamw.loss_scale.interval = 2;
    if (kind == ADAMW) {
        return ignis_adamw(&adamw);
    } else if (kind == SGD) {
        ignis_sgd_desc sgd;
        memset(&sgd, 0, sizeof sgd);
        sgd.lr = 1e-2, sgd.momentum = 0.9, sgd.zero_grad = adamw.zero_grad;
        return ignis_sgd(&sgd);
    } else if (kind == LION) {
        ignis_lion_desc lion;
        memset(&lion, 0, sizeof lion);
        lion.lr = 1e-3, lion.drop_grad = true;
        return ignis_lion(&lion);
    } else if (kind == RMSPROP) {
        ignis_rmsprop_desc rmsprop;
        memset(&rmsprop, 0, sizeof rmsprop);
        rmsprop.lr = 1e-3, rmsprop.momentum = 0.5, rmsprop.zero_grad = true;
        return ignis_rmsprop(&rmsprop);
    } else {
        ignis_muon_desc muon;
        memset(&muon, 0, sizeof muon);
        muon.lr = 1e-2, muon.weight_decay = 0.01, muon.zero_grad = true;
        muon.loss_scale = adamw.loss_scale;
        return ignis_muon(&muon);
    }
}

/*  Matrices to Muon, the rest to AdamW; or all to one. */
static void rank_optimizers(rank *r)
{
    const training *run = r->run;
    int i;
    r->optimizer_count = run->method == MUON ? 2 : 1;
    r->optimizers[0] = optimizer_of(run, run->method);
    if (run->method == MUON)
        r->optimizers[1] = optimizer_of(run, ADAMW);
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_optimizer_add(r->optimizers[run->method == MUON && i % 2], r->all[i], i % 2 == 0));
}

static ignis_status forward_and_backward(rank *r)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor hidden = ignis_gelu(ignis_linear(r->input, r->all[0], r->all[1])), loss;
    ignis_status status;
    loss = ignis_cross_entropy(ignis_linear(hidden, r->all[2], r->all[3]), r->targets, NULL);
    status = ignis_array_copy(ignis_tensor_data(r->loss), ignis_tensor_data(loss));
    if (r->run->pieces > 1)
        loss = ignis_scale(loss, 1.0 / r->run->pieces);
    if (r->run->scales)
        loss = ignis_scale_loss(r->optimizers[0], loss);
    if (status == IGNIS_OK)
        status = ignis_backward(loss, IGNIS_NO_ARRAY);
    (void)ignis_scope_end(scope);
    return status;
}

static ignis_status update(rank *r)
{
    const training *run = r->run;
    ignis_status status = IGNIS_OK;
    int i;
    if (run->sums)
        status = ignis_optimizer_accumulate(r->optimizers[0]);
    if (status == IGNIS_OK && (run->clips || run->method == MUON))
        status = ignis_clip_grad_norms(r->optimizers, r->optimizer_count, run->clips ? 0.5 : INFINITY);
    for (i = 0; status == IGNIS_OK && i < r->optimizer_count; i++)
        status = ignis_optimizer_step(r->optimizers[i]);
    for (i = 0; status == IGNIS_OK && run->zeroes_apart && i < r->optimizer_count; i++)
        status = ignis_optimizer_zero_grad(r->optimizers[i]);
    for (i = 0; status == IGNIS_OK && run->zeroes_tensors && i < PARAMETERS; i++)
        status = ignis_zero_grad(r->all[i]);
    return status;
}

static void rank_step(rank *r, int step, ignis_graph *graph)
{
    training *run = r->run;
    ignis_optimizer_info info;
    int piece;
    if (run->graph && step == 1) {
        CHECK_OK(ignis_graph_begin());
        CHECK_OK(forward_and_backward(r));
        CHECK_OK(update(r));
        *graph = ignis_graph_end();
        CHECK(graph->id);
    }
    for (piece = 0; piece < run->pieces; piece++) {
        rank_inputs(r, step, piece);
        if (graph->id) {
            CHECK_OK(ignis_graph_launch(*graph));
        } else {
            if (piece + 1 < run->pieces && r->parallel.id)
                CHECK_OK(ignis_parallel_no_sync_begin(r->parallel));
            CHECK_OK(forward_and_backward(r));
            if (piece + 1 < run->pieces && r->parallel.id)
                CHECK_OK(ignis_parallel_no_sync_end(r->parallel));
        }
        run->losses[r->rank][step] += ignis_item(r->loss) / run->pieces;
    }
    if (!graph->id)
        CHECK_OK(update(r));
    CHECK_OK(ignis_optimizer_query(r->optimizers[0], &info));
    run->norms[r->rank][step] = info.grad_norm;
    if (run->shard >= IGNIS_SHARD_GRADIENTS)
        CHECK(!ignis_tensor_grad(r->all[0]).id);
}

static void rank_results(rank *r)
{
    training *run = r->run;
    ignis_optimizer_info info;
    int64_t at = 0, count;
    int i;
    if (run->swaps)
        CHECK_OK(ignis_optimizer_swap_ema(r->optimizers[0]));
    for (i = 0; i < PARAMETERS; i++, at += count) {
        ignis_array state = ignis_optimizer_state(r->optimizers[0], i, IGNIS_OPTIMIZER_FIRST);
        count = ignis_array_numel(ignis_tensor_data(r->all[i]));
        CHECK_OK(ignis_array_to_host(ignis_tensor_data(r->all[i]), run->weights[r->rank] + at, IGNIS_F32, count));
        if (run->method != MUON)
            run->state_elements[r->rank] += ignis_array_numel(state);
    }
    if (run->swaps)
        CHECK_OK(ignis_optimizer_swap_ema(r->optimizers[0]));
    CHECK_OK(ignis_optimizer_query(r->optimizers[0], &info));
    CHECK_INT(info.step + info.skipped, run->steps);
}

static void rank_release(rank *r)
{
    int i;
    for (i = 0; i < r->optimizer_count; i++)
        CHECK_OK(ignis_optimizer_free(r->optimizers[i]));
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_tensor_release(r->all[i]));
    CHECK_OK(ignis_tensor_release(r->input));
    CHECK_OK(ignis_tensor_release(r->targets));
    CHECK_OK(ignis_tensor_release(r->loss));
}

static ignis_parallel parallel_of(rank *r)
{
    ignis_parallel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.bucket_bytes = desc.first_bucket_bytes = r->run->bucket_bytes;
    desc.shard = r->run->shard;
    return ignis_parallel_create(r->comm, r->all, PARAMETERS, &desc);
}

static void *rank_train(void *context)
{
    rank *r = (rank *)context;
    training *run = r->run;
    ignis_graph graph = {0};
    int step;
    CHECK_OK(ignis_device_use(r->rank));
    rank_model(r);
    if (r->comm.id) {
        r->parallel = parallel_of(r);
        CHECK(r->parallel.id);
        if (r->rank == 0)
            CHECK_OK(ignis_parallel_query(r->parallel, &run->info));
    }
    rank_optimizers(r);
    for (step = 0; step < run->steps; step++)
        rank_step(r, step, &graph);
    rank_results(r);
    if (graph.id)
        CHECK_OK(ignis_graph_free(graph));
    if (r->comm.id) {
        CHECK_OK(ignis_comm_synchronize(r->comm));
        CHECK_OK(ignis_parallel_free(r->parallel));
    }
    rank_release(r);
    return NULL;
}

/*  Every rank is a thread with a device of its own. */
static void ranks_run(training *run, double timeout_s, void *(*work)(void *), rank *ranks)
{
    pthread_t threads[RANKS_MAX];
    ignis_comm comms[RANKS_MAX];
    ignis_comm_desc desc;
    int i;
    memset(comms, 0, sizeof comms);
    memset(&desc, 0, sizeof desc);
    desc.timeout_s = timeout_s;
    if (run->ranks > 1)
        CHECK_OK(ignis_comm_init_all(comms, NULL, run->ranks, &desc));
    memset(ranks, 0, sizeof *ranks * (size_t)run->ranks);
    for (i = 0; i < run->ranks; i++) {
        ranks[i].run = run;
        ranks[i].rank = i;
        ranks[i].comm = comms[i];
        pthread_create(&threads[i], NULL, work, &ranks[i]);
    }
    for (i = 0; i < run->ranks; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; run->ranks > 1 && i < run->ranks; i++)
        CHECK_OK(ignis_comm_destroy(comms[i]));
}

static rank ranks_of[RANKS_MAX];

static training *trained(training *run)
{
    int i;
    run->pieces = run->pieces ? run->pieces : 1;
    run->steps = run->graph ? STEPS : STEPS - 1; /* a graph is launched twice */
    memset(run->losses, 0, sizeof run->losses);
    memset(run->weights, 0, sizeof run->weights);
    memset(run->norms, 0, sizeof run->norms);
    memset(run->state_elements, 0, sizeof run->state_elements);
    ranks_run(run, 60, rank_train, ranks_of);
    for (i = 1; i < run->ranks; i++)
        CHECK(memcmp(run->weights[i], run->weights[0], sizeof run->weights[0]) == 0);
    return run;
}

static bool same_bits(const training *a, const training *b)
{
    return memcmp(a->losses, b->losses, sizeof a->losses) == 0 &&
           memcmp(a->weights, b->weights, sizeof a->weights) == 0 && memcmp(a->norms, b->norms, sizeof a->norms) == 0;
}

static training plain, sharded, single; /* large */

/*  Trains without shards and with each kind of shards from `first` to `last`: all bits are the same. */
static void compare_range(const training *how, int first, int last, const char *what)
{
    int shard;
    plain = *how;
    trained(&plain);
    for (shard = first; shard <= last; shard++) {
        sharded = *how;
        sharded.shard = (ignis_shard)shard;
        trained(&sharded);
        CHECK_INT(sharded.info.shard, shard);
        if (shard >= IGNIS_SHARD_GRADIENTS)
            CHECK(sharded.info.bytes <= plain.info.bytes / 2 + 4 * 8192 * (int64_t)sizeof(double));
        if (!same_bits(&plain, &sharded))
            printf("%s: %d ranks, shard %d has other bits\n", what, how->ranks, shard);
        CHECK(same_bits(&plain, &sharded));
    }
}

static void compare_shards(const training *how, ignis_shard first, const char *what)
{
    compare_range(how, (int)first, IGNIS_SHARD_COUNT - 1, what);
}

static training *begin(training *how, int ranks, ignis_dtype dtype)
{
    memset(how, 0, sizeof *how);
    how->ranks = ranks;
    how->dtype = dtype;
    return how;
}

static training how;

/*  Each form with each other one somewhere; small buckets are used in turns. */
TEST(every_form_of_training_has_the_bits_of_none)
{
    static const struct {
        bool graph, pieces, clips, scales, small, drops;
    } forms[] = {{false, true, true, true, true, true},
                 {true, false, true, false, true, true},
                 {true, false, false, true, false, false},
                 {false, true, false, false, false, false}};
    int i;
    char what[40];
    SETUP(NULL);
    NEEDS_DEVICES(2);
    for (i = 0; i < COUNT_OF(forms); i++) {
        begin(&how, 2, forms[i].scales ? IGNIS_F16 : IGNIS_F32);
        how.graph = forms[i].graph;
        how.pieces = forms[i].pieces ? 2 : 1;
        how.clips = forms[i].clips;
        how.scales = forms[i].scales;
        how.bucket_bytes = forms[i].small ? 2048 : 0;
        how.drops = forms[i].drops;
        snprintf(what, sizeof what, "form %d", i);
        compare_shards(&how, IGNIS_SHARD_OPTIMIZER, what);
    }
}

/*  A rank's piece is updated alike whatever else is shared, so simple optimizers have one kind of shard each. */
TEST(every_optimizer_has_the_bits_of_none)
{
    static const int first[METHODS] = {0, IGNIS_SHARD_PARAMETERS, IGNIS_SHARD_OPTIMIZER, IGNIS_SHARD_OPTIMIZER,
                                       IGNIS_SHARD_OPTIMIZER},
                     last[METHODS] = {0, IGNIS_SHARD_PARAMETERS, IGNIS_SHARD_OPTIMIZER, IGNIS_SHARD_GRADIENTS,
                                      IGNIS_SHARD_PARAMETERS};
    int kind;
    char what[40];
    SETUP(NULL);
    NEEDS_DEVICES(2);
    for (kind = SGD; kind < METHODS; kind++) {
        begin(&how, 2, kind == LION ? IGNIS_BF16 : kind == RMSPROP ? IGNIS_F64 : IGNIS_F32);
        how.method = (method)kind;
        how.clips = kind != SGD;
        how.scales = kind == MUON;
        how.is_wide = how.graph = kind == RMSPROP; /* in f64 another order of the norm's many addends shows */
        snprintf(what, sizeof what, "optimizer %d", kind);
        compare_range(&how, first[kind], last[kind], what);
    }
}

/*  Each rank has the state of its pieces: together all of it, and a rank at most that of a slice of each bucket. */
TEST(more_ranks_and_buckets_have_the_bits_of_none)
{
    int64_t all;
    int ranks, i;
    SETUP(NULL);
    NEEDS_DEVICES(8);
    for (ranks = 4; ranks <= 8; ranks *= 2) {
        begin(&how, ranks, IGNIS_BF16);
        how.clips = true;
        how.is_wide = true;
        how.bucket_bytes = ranks == 4 ? 2048 : 0;
        compare_shards(&how, ranks == 4 ? IGNIS_SHARD_GRADIENTS : IGNIS_SHARD_PARAMETERS, "ranks");
        for (i = 0, all = 0; i < ranks; i++) {
            CHECK(ranks == 4 || sharded.state_elements[i] <= 8192);
            CHECK_INT(plain.state_elements[i], WEIGHTS);
            all += sharded.state_elements[i];
        }
        CHECK_INT(all, WEIGHTS);
    }
}

/*  One rank computes the loss of the whole batch: another order of sums, in f32. */
TEST(shards_train_as_one_gpu)
{
    int step, i;
    SETUP(NULL);
    NEEDS_DEVICES(4);
    for (i = 2; i <= 4; i *= 2) {
        trained(begin(&single, 1, IGNIS_F32));
        begin(&sharded, i, IGNIS_F32)->shard = i == 2 ? IGNIS_SHARD_OPTIMIZER : IGNIS_SHARD_PARAMETERS;
        trained(&sharded);
        for (step = 0; step < sharded.steps; step++) {
            double loss = 0;
            int r;
            for (r = 0; r < i; r++)
                loss += sharded.losses[r][step] / i;
            CHECK(fabs(loss - single.losses[0][step]) < 1e-5 * loss);
        }
    }
}

TEST(averages_and_sums_have_the_bits_of_none)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    begin(&how, 2, IGNIS_BF16)->ema_decay = 0.9;
    how.swaps = true;
    compare_shards(&how, IGNIS_SHARD_OPTIMIZER, "averages");
    begin(&how, 2, IGNIS_BF16)->sums = true;
    how.clips = true;
    compare_shards(&how, IGNIS_SHARD_OPTIMIZER, "sums");
    begin(&how, 2, IGNIS_F32)->zeroes_apart = true;
    how.pieces = 2;
    compare_shards(&how, IGNIS_SHARD_GRADIENTS, "zeroed apart");
    begin(&how, 2, IGNIS_F32)->zeroes_tensors = true;
    compare_shards(&how, IGNIS_SHARD_GRADIENTS, "zeroed one by one");
}

/* --- what is refused, and what fails --- */

static void *rank_refuses(void *context)
{
    rank *r = (rank *)context;
    ignis_parallel_desc desc;
    ignis_optimizer other, lbfgs;
    ignis_tensor apart;
    ignis_tensor_desc leaf;
    CHECK_OK(ignis_device_use(r->rank));
    rank_model(r);
    memset(&desc, 0, sizeof desc);
    desc.shard = IGNIS_SHARD_COUNT;
    CHECK_FAILS(ignis_parallel_create(r->comm, r->all, PARAMETERS, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    rank_optimizers(r);
    desc.shard = IGNIS_SHARD_OPTIMIZER;
    CHECK_FAILS(ignis_parallel_create(r->comm, r->all, PARAMETERS, &desc), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("call ignis_optimizer_add after ignis_parallel_create");
    CHECK_OK(ignis_optimizer_free(r->optimizers[0]));
    r->parallel = parallel_of(r);
    CHECK(r->parallel.id);
    rank_optimizers(r);
    memset(&leaf, 0, sizeof leaf);
    leaf.requires_grad = true;
    apart = ignis_tensor_zeros(IGNIS_SHAPE(3), &leaf);
    CHECK_STATUS(ignis_optimizer_add(r->optimizers[0], apart, false), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("is not shared by ranks, but parameters before it are");
    other = optimizer_of(r->run, ADAMW);
    CHECK_OK(ignis_optimizer_add(other, apart, false));
    CHECK_STATUS(ignis_optimizer_add(other, r->all[0], false), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("is shared by ranks, but parameters before it are not");
    CHECK_OK(ignis_zero_grad(apart));
    r->optimizers[1] = other;
    CHECK_STATUS(ignis_clip_grad_norms(r->optimizers, 2, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("are not shared by the same ranks");
    lbfgs = ignis_lbfgs(NULL);
    CHECK_STATUS(ignis_optimizer_add(lbfgs, r->all[0], false), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_OK(ignis_optimizer_free(lbfgs));
    CHECK_OK(ignis_parallel_free(r->parallel));
    CHECK_STATUS(ignis_optimizer_step(r->optimizers[0]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OPTIMIZER_STATE);
    CHECK_MESSAGE_HAS("was freed");
    CHECK_OK(ignis_optimizer_free(other));
    CHECK_OK(ignis_tensor_release(apart));
    rank_release(r);
    return NULL;
}

TEST(what_does_not_fit_is_refused)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    begin(&how, 2, IGNIS_F32)->shard = IGNIS_SHARD_OPTIMIZER;
    how.pieces = 1;
    ranks_run(&how, 60, rank_refuses, ranks_of);
}

/*  One step; `status` and `message` become those of its first failure. A rank that fails says so to the others. */
static void rank_tries(rank *r)
{
    r->status = forward_and_backward(r);
    if (r->status == IGNIS_OK)
        r->status = update(r);
    if (r->status == IGNIS_OK)
        r->status = ignis_comm_synchronize(r->comm);
    if (r->status != IGNIS_OK) {
        r->status = ignis_status_last(); /* later calls fail with other reasons */
        snprintf(r->message, sizeof r->message, "%s", ignis_status_message());
        ignis_status_clear();
        (void)ignis_comm_abort(r->comm);
    }
}

static pthread_barrier_t together;
static int fault_at;
static bool fault_hit;

static void *rank_fails(void *context)
{
    rank *r = (rank *)context;
    CHECK_OK(ignis_device_use(r->rank));
    rank_model(r);
    r->parallel = parallel_of(r);
    rank_optimizers(r);
    rank_inputs(r, 0, 0);
    rank_tries(r); /* compiles what a step needs */
    CHECK_INT(r->status, IGNIS_OK);
    pthread_barrier_wait(&together);
    if (r->rank == 0)
        fault_arm("cu", fault_at, 2 /* CUDA_ERROR_OUT_OF_MEMORY */);
    pthread_barrier_wait(&together);
    rank_tries(r);
    pthread_barrier_wait(&together);
    if (r->rank == 0)
        fault_hit = fault_over(NULL); /* what comes now is no part of the step */
    pthread_barrier_wait(&together);
    (void)ignis_parallel_free(r->parallel);
    ignis_status_clear();
    rank_release(r);
    return NULL;
}

/*  A driver call of a step fails, of one rank or the other: both learn of it, and nothing is left. */
TEST(a_call_that_fails_in_a_step_fails_on_all_ranks)
{
    static const char *const from_peer[] = {"rank 1", "rank 0"};
    int64_t before;
    int shard, i, hits = 0, misses = 0;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    pthread_barrier_init(&together, NULL, 2);
    for (shard = IGNIS_SHARD_OPTIMIZER; shard < IGNIS_SHARD_COUNT; shard++) {
        for (fault_at = 1, misses = 0; misses == 0; fault_at += 2 + fault_at) {
            begin(&how, 2, IGNIS_F16)->shard = (ignis_shard)shard;
            how.bucket_bytes = shard == IGNIS_SHARD_PARAMETERS ? 1 : 0; /* more are gathered ahead */
            how.pieces = 1;
            how.clips = how.scales = true;
            before = memory().live_bytes;
            ranks_run(&how, 20, rank_fails, ranks_of);
            if (!fault_hit) {
                misses++;
                continue;
            }
            hits++;
            CHECK_INT(memory().live_bytes, before);
            for (i = 0; i < 2; i++) {
                if (ranks_of[i].status == IGNIS_ERROR_PEER)
                    CHECK(strstr(ranks_of[i].message, from_peer[i]));
            }
            CHECK((ranks_of[0].status == IGNIS_OK) == (ranks_of[1].status == IGNIS_OK));
        }
    }
    CHECK(hits > 5);
    pthread_barrier_destroy(&together);
}

/*  Rank 1 does not come to the step. */
static void *rank_stays_away(void *context)
{
    rank *r = (rank *)context;
    CHECK_OK(ignis_device_use(r->rank));
    rank_model(r);
    r->parallel = parallel_of(r);
    rank_optimizers(r);
    rank_inputs(r, 0, 0);
    CHECK_OK(forward_and_backward(r));
    if (r->rank == 0) {
        r->status = update(r);
        if (r->status == IGNIS_OK)
            r->status = ignis_comm_synchronize(r->comm);
        CHECK_INT(r->status, IGNIS_ERROR_TIMEOUT);
        CHECK_HAS(ignis_status_message(), "rank 1");
        ignis_status_clear();
    }
    (void)ignis_parallel_free(r->parallel);
    ignis_status_clear();
    rank_release(r);
    return NULL;
}

TEST(a_rank_that_does_not_step_is_a_timeout)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    begin(&how, 2, IGNIS_F32)->shard = IGNIS_SHARD_OPTIMIZER;
    how.pieces = 1;
    ranks_run(&how, 2, rank_stays_away, ranks_of);
}

/* --- ranks that die: processes --- */

static void die(void)
{
    fflush(stdout);
    _exit(0);
}

/*  Rank 1 dies at the at-th driver call of its second step. */
static int role_dies(int number_of, const char *folder, int at, ignis_shard shard)
{
    static training run;
    ignis_desc setup = test_desc(NULL);
    ignis_comm_desc desc;
    char rendezvous[128];
    rank r;
    if (ignis_setup(&setup) != IGNIS_OK)
        return 1;
    memset(&r, 0, sizeof r);
    memset(&desc, 0, sizeof desc);
    snprintf(rendezvous, sizeof rendezvous, "dir:%s", folder);
    desc.rank = number_of;
    desc.size = 2;
    desc.rendezvous = rendezvous;
    desc.device = number_of ? number_of : IGNIS_DEVICE_0;
    desc.timeout_s = 20;
    begin(&run, 2, IGNIS_F32)->shard = shard;
    run.pieces = 1;
    run.bucket_bytes = 1;
    run.clips = true;
    r.run = &run;
    r.rank = number_of;
    r.comm = ignis_comm_init(&desc);
    CHECK_OK(ignis_device_use(number_of));
    rank_model(&r);
    r.parallel = parallel_of(&r);
    CHECK(r.parallel.id);
    rank_optimizers(&r);
    rank_inputs(&r, 0, 0);
    rank_tries(&r);
    CHECK_INT(r.status, IGNIS_OK);
    if (number_of == 1) {
        fault.drain = die;
        fault_plan("cu", at, 2, NULL, true);
    }
    rank_tries(&r);
    CHECK(r.status == IGNIS_ERROR_PEER || r.status == IGNIS_ERROR_TIMEOUT);
    CHECK(strstr(r.message, "rank 1"));
    return test__state.failures != 0;
}

typedef struct death {
    char folder[64];
    int at, shard;
} death;

static int role_run(const char *role)
{
    death how_to;
    return process_receive(PROCESS_SOCKET, &how_to, sizeof how_to, NULL)
               ? role_dies(atoi(role), how_to.folder, how_to.at, (ignis_shard)how_to.shard)
               : 1;
}

TEST(a_rank_that_dies_in_a_step_is_an_error)
{
    static const int calls[] = {1, 20, 60};
    process children[2];
    death how_to;
    int i, k;
    NEEDS_POSIX("communicators between processes");
    SETUP(NULL);
    NEEDS_DEVICES(2);
    for (k = 0; k < COUNT_OF(calls); k++) {
        memset(&how_to, 0, sizeof how_to);
        snprintf(how_to.folder, sizeof how_to.folder, "/tmp/ignis_test_shards_XXXXXX");
        REQUIRE(mkdtemp(how_to.folder));
        how_to.at = calls[k];
        how_to.shard = IGNIS_SHARD_COUNT - 1;
        for (i = 0; i < 2; i++) {
            children[i] = process_start(i ? "1" : "0");
            CHECK(process_send(children[i].socket, &how_to, sizeof how_to, -1));
        }
        for (i = 0; i < 2; i++)
            CHECK_INT(process_end(&children[i]), 0);
        rmdir(how_to.folder);
    }
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    setenv("IGNIS_SIM_DEVICES", "8", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast is not asked for on machines that others use too */
    return role ? role_run(role) : test_run(argc, argv);
}
