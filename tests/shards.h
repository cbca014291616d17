// SPDX-License-Identifier: MIT
/*  shards.h - a training by ranks that share state: one model in every form, for tests of shards and of groups

    A rank is a thread or a process. What came of it is in struct training, for all ranks, which processes map together.
    Included after fault.h (if the test has faults) and tensor.h. */
#ifndef SHARDS_H
#define SHARDS_H

#include "ignis_collective.h"

#include <math.h>

/*  Places of the parameters in their bucket: last bias, last matrix, bias, first matrix. The first matrix is in the
    slices of ranks 0 and 1, and wide ones are in more. */
enum { RANKS_MAX = 8, STEPS = 3, BATCH = 8, WIDTH = 96, WIDE = 260, HIDDEN = 96, CLASSES = 23, PARAMETERS = 4 };
enum { PIECES_MAX = 2 };
enum { WEIGHTS = HIDDEN * WIDE + HIDDEN + CLASSES * HIDDEN + CLASSES };

typedef enum method { ADAMW, SGD, LION, RMSPROP, MUON, METHODS } method;

/*  How to train, and what came of it. */
typedef struct training {
    int ranks, steps;
    ignis_shard shard;
    int shard_ranks;
    ignis_dtype dtype;
    method method;
    bool graph, clips, scales, zeroes_apart, zeroes_tensors, swaps, sums, drops;
    bool is_wide;
    int pieces;           /* of a rank's part of the batch, up to PIECES_MAX; 0: one */
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
    ignis_tensor all[PARAMETERS], inputs[PIECES_MAX], targets[PIECES_MAX], losses[PIECES_MAX];
    int piece; /* that forward_and_backward works on */
    ignis_optimizer optimizers[2];
    int optimizer_count;
    ignis_status status;
    char message[512];
} rank;

static inline double number(int at) { return (double)(at * 37 % 101 - 50) / 50; }

static inline ignis_tensor values_of(ignis_shape shape, ignis_dtype dtype, bool is_parameter, double scale, int seed)
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

static inline int width_of(const training *run) { return run->is_wide ? WIDE : WIDTH; }

static inline void rank_model(rank *r)
{
    const ignis_dtype dtype = r->run->dtype;
    const int seed = 1 + (r->run->ranks > 1 ? r->rank : 0); /* rank 0's parameters go to all */
    ignis_tensor_desc desc;
    const int rows = BATCH / r->run->ranks / r->run->pieces;
    int i;
    r->all[0] = values_of(IGNIS_SHAPE(HIDDEN, width_of(r->run)), dtype, true, 0.2, seed);
    r->all[1] = values_of(IGNIS_SHAPE(HIDDEN), dtype, true, 0.1, seed + 1);
    r->all[2] = values_of(IGNIS_SHAPE(CLASSES, HIDDEN), dtype, true, 0.2, seed + 2);
    r->all[3] = values_of(IGNIS_SHAPE(CLASSES), dtype, true, 0.1, seed + 3);
    memset(&desc, 0, sizeof desc);
    desc.dtype = IGNIS_I32;
    for (i = 0; i < r->run->pieces; i++) {
        r->inputs[i] = values_of(IGNIS_SHAPE(rows, width_of(r->run)), dtype, false, 1, 1);
        r->targets[i] = ignis_tensor_zeros(IGNIS_SHAPE(rows), &desc);
        r->losses[i] = ignis_tensor_zeros(IGNIS_SHAPE(1), NULL);
    }
}

static inline void rank_inputs(rank *r, int step, int piece)
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
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(r->inputs[piece]), input, IGNIS_F32, count));
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(r->targets[piece]), targets, IGNIS_I32, rows));
}

static inline ignis_optimizer optimizer_of(const training *run, method kind)
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
static inline void rank_optimizers(rank *r)
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

static inline ignis_status forward_and_backward(rank *r)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor hidden = ignis_gelu(ignis_linear(r->inputs[r->piece], r->all[0], r->all[1])), loss;
    ignis_status status;
    loss = ignis_cross_entropy(ignis_linear(hidden, r->all[2], r->all[3]), r->targets[r->piece], NULL);
    status = ignis_array_copy(ignis_tensor_data(r->losses[r->piece]), ignis_tensor_data(loss));
    if (r->run->pieces > 1)
        loss = ignis_scale(loss, 1.0 / r->run->pieces);
    if (r->run->scales)
        loss = ignis_scale_loss(r->optimizers[0], loss);
    if (status == IGNIS_OK)
        status = ignis_backward(loss, IGNIS_NO_ARRAY);
    (void)ignis_scope_end(scope);
    return status;
}

static inline ignis_status update(rank *r)
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

/*  All pieces, of which the last one averages, and the update. */
static inline void rank_work(rank *r)
{
    const int last = r->run->pieces - 1;
    for (r->piece = 0; r->piece <= last; r->piece++) {
        if (r->piece < last && r->parallel.id)
            CHECK_OK(ignis_parallel_no_sync_begin(r->parallel));
        CHECK_OK(forward_and_backward(r));
        if (r->piece < last && r->parallel.id)
            CHECK_OK(ignis_parallel_no_sync_end(r->parallel));
    }
    r->piece = 0;
    CHECK_OK(update(r));
}

static inline void rank_step(rank *r, int step, ignis_graph *graph)
{
    training *run = r->run;
    ignis_optimizer_info info;
    int i;
    if (run->graph && step == 1) {
        CHECK_OK(ignis_graph_begin());
        rank_work(r);
        *graph = ignis_graph_end();
        CHECK(graph->id);
    }
    for (i = 0; i < run->pieces; i++)
        rank_inputs(r, step, i);
    if (graph->id)
        CHECK_OK(ignis_graph_launch(*graph));
    else
        rank_work(r);
    for (i = 0; i < run->pieces; i++)
        run->losses[r->rank][step] += ignis_item(r->losses[i]) / run->pieces;
    CHECK_OK(ignis_optimizer_query(r->optimizers[0], &info));
    run->norms[r->rank][step] = info.grad_norm;
    if (run->shard >= IGNIS_SHARD_GRADIENTS)
        CHECK(!ignis_tensor_grad(r->all[0]).id);
}

static inline void rank_results(rank *r)
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

static inline void rank_release(rank *r)
{
    int i;
    for (i = 0; i < r->optimizer_count; i++)
        CHECK_OK(ignis_optimizer_free(r->optimizers[i]));
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_tensor_release(r->all[i]));
    for (i = 0; i < r->run->pieces; i++) {
        CHECK_OK(ignis_tensor_release(r->inputs[i]));
        CHECK_OK(ignis_tensor_release(r->targets[i]));
        CHECK_OK(ignis_tensor_release(r->losses[i]));
    }
}

static inline ignis_parallel parallel_of(rank *r)
{
    ignis_parallel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.bucket_bytes = desc.first_bucket_bytes = r->run->bucket_bytes;
    desc.shard = r->run->shard;
    desc.shard_ranks = r->run->shard_ranks;
    return ignis_parallel_create(r->comm, r->all, PARAMETERS, &desc);
}

static inline void *rank_train(void *context)
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

/*  Fills the defaults of a run, and clears what came of it. */
static inline void training_reset(training *run)
{
    run->pieces = run->pieces ? run->pieces : 1;
    run->steps = run->graph ? STEPS : STEPS - 1; /* a graph is launched twice */
    memset(run->losses, 0, sizeof run->losses);
    memset(run->weights, 0, sizeof run->weights);
    memset(run->norms, 0, sizeof run->norms);
    memset(run->state_elements, 0, sizeof run->state_elements);
}

/*  Every rank is a thread with a device of its own. */
static inline void ranks_run(training *run, double timeout_s, void *(*work)(void *), rank *ranks)
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

static inline training *trained(training *run)
{
    int i;
    training_reset(run);
    ranks_run(run, 60, rank_train, ranks_of);
    for (i = 1; i < run->ranks; i++)
        CHECK(memcmp(run->weights[i], run->weights[0], sizeof run->weights[0]) == 0);
    return run;
}

/*  Returns the loss of a step: the average over the ranks. */
static inline double loss_of(const training *run, int step)
{
    double loss = 0;
    int r;
    for (r = 0; r < run->ranks; r++)
        loss += run->losses[r][step] / run->ranks;
    return loss;
}

static inline bool same_bits(const training *a, const training *b)
{
    return memcmp(a->losses, b->losses, sizeof a->losses) == 0 &&
           memcmp(a->weights, b->weights, sizeof a->weights) == 0 && memcmp(a->norms, b->norms, sizeof a->norms) == 0;
}

static inline training *begin(training *how, int ranks, ignis_dtype dtype)
{
    memset(how, 0, sizeof *how);
    how->ranks = ranks;
    how->dtype = dtype;
    return how;
}

/*  One step; `status` and `message` become those of its first failure. A rank that fails says so to the others. */
static inline void rank_tries(rank *r)
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

#endif /* SHARDS_H */
