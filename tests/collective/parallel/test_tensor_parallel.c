// SPDX-License-Identifier: MIT
/*  test_tensor_parallel.c - matrices that ranks divide: losses and gradients beside those of one rank */
#include "fault.h"
#include "tensor.h"

#include "ignis_collective.h"

#include "rank_deaths.h"

#include <math.h>

/*  Rows and heads are multiples of 1 to 4 ranks; the vocabulary is of none but 1. */
enum { RANKS_MAX = 4, ROWS = 12, HEADS = 12, HEAD = 4, WIDTH = HEADS * HEAD, HIDDEN = 24, VOCAB = 29, STEPS = 3 };
enum { IGNORED = -100, PIECES = 2, LARGEST = WIDTH * WIDTH };

/* --- the model: embedding, one transformer block, head --- */

typedef enum division { WHOLE, BY_ROWS, BY_COLUMNS } division;

enum { TABLE, NORM1, Q, K, V, Q_BIAS, OUT, OUT_BIAS, NORM2, UP, UP_BIAS, DOWN, DOWN_BIAS, HEADS_WEIGHT, PARAMETERS };

/*  Parameters, as one rank has them, and how the ranks divide them. Rows of a vocabulary are padded. */
static const struct {
    int rows, columns; /* columns 0: a row */
    division divided;
} shapes[PARAMETERS] = {{VOCAB, WIDTH, BY_ROWS},    {WIDTH, 0, WHOLE},       {WIDTH, WIDTH, BY_ROWS},
                        {WIDTH, WIDTH, BY_ROWS},    {WIDTH, WIDTH, BY_ROWS}, {WIDTH, 0, BY_ROWS},
                        {WIDTH, WIDTH, BY_COLUMNS}, {WIDTH, 0, WHOLE},       {WIDTH, 0, WHOLE},
                        {HIDDEN, WIDTH, BY_ROWS},   {HIDDEN, 0, BY_ROWS},    {WIDTH, HIDDEN, BY_COLUMNS},
                        {WIDTH, 0, WHOLE},          {VOCAB, WIDTH, BY_ROWS}};

typedef struct run {
    int ranks;
    ignis_dtype dtype;
    bool sequence; /* rows between matrices are divided, too */
    bool graph, checkpoint;
    ignis_shard shard; /* of what replicas have alike */
    int replicas;      /* that average their gradients, each of `ranks` ranks; 0: one */
    int pieces;        /* batches of a rank in a step: as many as another run has replicas; 0: one */
    double losses[RANKS_MAX][STEPS], norms[RANKS_MAX][STEPS];
    double gradients[PARAMETERS][LARGEST], weights[PARAMETERS][LARGEST];
} run;

typedef struct rank {
    run *run;
    int device, rank, replica;
    ignis_comm comm, across; /* of the ranks that divide matrices, and of those with the same parts */
    ignis_parallel parallel;
    ignis_tensor all[PARAMETERS], ids[PIECES], targets[PIECES], loss;
    ignis_optimizer optimizers[2]; /* of parameters that ranks divide, and of those that all have */
    ignis_status status;
    char message[512];
} rank;

static int rows_of_rank(int parameter, int ranks)
{
    return shapes[parameter].divided == BY_ROWS ? (shapes[parameter].rows + ranks - 1) / ranks : shapes[parameter].rows;
}

static int columns_of_rank(int parameter, int ranks)
{
    const int columns = shapes[parameter].columns ? shapes[parameter].columns : 1;
    return shapes[parameter].divided == BY_COLUMNS ? columns / ranks : columns;
}

/*  The place of element [row, column] of a rank's part in the whole parameter; -1: it is padding. */
static int place_in_whole(int parameter, int ranks, int rank_of, int row, int column)
{
    const int columns = shapes[parameter].columns ? shapes[parameter].columns : 1;
    if (shapes[parameter].divided == BY_ROWS)
        row += rank_of * rows_of_rank(parameter, ranks);
    if (shapes[parameter].divided == BY_COLUMNS)
        column += rank_of * columns_of_rank(parameter, ranks);
    return row < shapes[parameter].rows ? row * columns + column : -1;
}

static double weight_at(int parameter, int place)
{
    const bool is_norm = parameter == NORM1 || parameter == NORM2;
    return place < 0 ? 7 : (is_norm ? 1 : 0) + 0.3 * noise((uint64_t)parameter + 1, place);
}

static ignis_tensor ids_of(uint64_t seed, bool ignores)
{
    int32_t values[ROWS];
    ignis_tensor_desc desc = tensor_desc(IGNIS_I32, false);
    int i;
    for (i = 0; i < ROWS; i++)
        values[i] = ignores && i % 5 == 3 ? IGNORED : (int)((noise(seed, i) + 1) / 2 * VOCAB);
    desc.host_dtype = IGNIS_I32;
    return ignis_tensor_from_host(values, IGNIS_SHAPE(ROWS), &desc);
}

static void rank_model(rank *r)
{
    double *values = (double *)malloc(sizeof *values * LARGEST);
    const int ranks = r->run->ranks;
    int p, i, k;
    for (p = 0; p < PARAMETERS; p++) {
        const int rows = rows_of_rank(p, ranks), columns = columns_of_rank(p, ranks);
        for (i = 0; i < rows; i++)
            for (k = 0; k < columns; k++)
                values[i * columns + k] = weight_at(p, place_in_whole(p, ranks, r->rank, i, k));
        r->all[p] =
            tensor_of(values, shapes[p].columns ? IGNIS_SHAPE(rows, columns) : IGNIS_SHAPE(rows), r->run->dtype, true);
    }
    free(values);
    for (i = 0; i < PIECES; i++) {
        r->ids[i] = ids_of((uint64_t)(3 + 2 * i), false);
        r->targets[i] = ids_of((uint64_t)(4 + 2 * i), true);
    }
    r->loss = ignis_tensor_zeros(IGNIS_SHAPE(1), NULL);
}

static ignis_tensor heads_first(ignis_tensor x, int heads)
{
    return ignis_transpose(ignis_reshape(x, IGNIS_SHAPE(ROWS, heads, HEAD)), 0, 1);
}

static ignis_tensor attention_of(ignis_tensor q, ignis_tensor k, ignis_tensor v, int heads)
{
    const ignis_tensor scores =
        ignis_softmax(ignis_scale(ignis_matmul_t(heads_first(q, heads), heads_first(k, heads)), 0.5));
    return ignis_reshape(ignis_transpose(ignis_matmul(scores, heads_first(v, heads)), 0, 1),
                         IGNIS_SHAPE(ROWS, heads * HEAD));
}

/*  A parameter that all ranks have. Where it meets a part of the rows, its gradient is a part. */
static ignis_tensor equal_weight(const rank *r, int parameter)
{
    return r->run->sequence ? ignis_comm_all_reduce_backward(r->comm, r->all[parameter]) : r->all[parameter];
}

/*  Rows to all ranks, ahead of matrices that are divided by outputs. */
static ignis_tensor into_columns(const rank *r, ignis_tensor x)
{
    return r->run->sequence ? ignis_comm_all_gather_rows(r->comm, x) : ignis_comm_all_reduce_backward(r->comm, x);
}

static ignis_tensor row_linear(const rank *r, ignis_tensor x, int weight, int bias)
{
    const ignis_tensor none = {0};
    if (!r->run->sequence)
        return ignis_row_parallel_linear(r->comm, x, r->all[weight], r->all[bias]);
    return ignis_add(ignis_comm_reduce_scatter_rows(r->comm, ignis_linear(x, r->all[weight], none)),
                     equal_weight(r, bias));
}

static ignis_tensor logits_of(const ignis_tensor *ids, int count, void *user_data)
{
    const rank *r = (const rank *)user_data;
    const ignis_tensor none = {0}, *w = r->all;
    ignis_tensor x = ignis_vocab_parallel_embedding(r->comm, w[TABLE], *ids), h;
    if (r->run->sequence)
        x = ignis_comm_slice_rows(r->comm, x);
    h = into_columns(r, ignis_rms_norm(x, equal_weight(r, NORM1), 1e-5));
    h = attention_of(ignis_linear(h, w[Q], w[Q_BIAS]), ignis_linear(h, w[K], none), ignis_linear(h, w[V], none),
                     HEADS / r->run->ranks);
    x = ignis_add(x, row_linear(r, h, OUT, OUT_BIAS));
    h = ignis_rms_norm(x, equal_weight(r, NORM2), 1e-5);
    h = r->run->sequence ? ignis_linear(into_columns(r, h), w[UP], w[UP_BIAS])
                         : ignis_column_parallel_linear(r->comm, h, w[UP], w[UP_BIAS]);
    x = ignis_add(x, row_linear(r, ignis_gelu(h), DOWN, DOWN_BIAS));
    (void)count;
    return ignis_linear(into_columns(r, x), w[HEADS_WEIGHT], none);
}

/*  The loss of a piece of the batch. */
static ignis_tensor loss_of(rank *r, int piece)
{
    ignis_cross_entropy_desc desc;
    const ignis_tensor logits =
        r->run->checkpoint ? ignis_checkpoint(logits_of, r, &r->ids[piece], 1, NULL) : logits_of(&r->ids[piece], 1, r);
    memset(&desc, 0, sizeof desc);
    desc.classes = VOCAB;
    return ignis_vocab_parallel_cross_entropy(r->comm, logits, r->targets[piece], &desc);
}

static ignis_status forward_and_backward(rank *r)
{
    ignis_status status = ignis_array_zero(ignis_tensor_data(r->loss));
    int i, first = r->replica, last = r->run->pieces ? r->run->pieces : first + 1;
    for (i = first; i < last && status == IGNIS_OK; i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor loss = ignis_scale(loss_of(r, i), 1.0 / (last - first));
        ignis_array sum = ignis_tensor_data(r->loss), one_of = ignis_tensor_data(loss);
        status = loss.id ? ignis_array_map(sum, "sum + one_of", IGNIS_ARRAYS(sum, one_of)) : ignis_status_last();
        if (status == IGNIS_OK)
            status = ignis_backward(loss, IGNIS_NO_ARRAY);
        (void)ignis_scope_end(scope);
    }
    return status;
}

/* --- ranks --- */

static rank ranks_of[RANKS_MAX];

/*  Every rank is a thread with a device of its own. */
static void ranks_run(run *all, double timeout_s, void *(*work)(void *))
{
    const int replicas = all->replicas ? all->replicas : 1, count = all->ranks * replicas;
    pthread_t threads[RANKS_MAX];
    ignis_comm comms[RANKS_MAX], groups[RANKS_MAX], across[RANKS_MAX];
    ignis_comm_desc desc;
    int group_of[RANKS_MAX], part_of[RANKS_MAX], i;
    memset(&desc, 0, sizeof desc);
    desc.timeout_s = timeout_s;
    desc.most_blocks = 4; /* kernels of both communicators run at the same time */
    CHECK_OK(ignis_comm_init_all(comms, NULL, count, &desc));
    memset(ranks_of, 0, sizeof ranks_of);
    for (i = 0; i < count; i++) {
        group_of[i] = i / all->ranks;
        part_of[i] = i % all->ranks;
    }
    CHECK_OK(ignis_comm_split_all(comms, group_of, NULL, count, groups));
    CHECK_OK(ignis_comm_split_all(comms, part_of, NULL, count, across));
    for (i = 0; i < count; i++) {
        ranks_of[i].run = all;
        ranks_of[i].device = i;
        ranks_of[i].rank = part_of[i];
        ranks_of[i].replica = group_of[i];
        ranks_of[i].comm = groups[i];
        ranks_of[i].across = across[i];
        pthread_create(&threads[i], NULL, work, &ranks_of[i]);
    }
    for (i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < count; i++) {
        CHECK_OK(ignis_comm_destroy(groups[i]));
        CHECK_OK(ignis_comm_destroy(across[i]));
        CHECK_OK(ignis_comm_destroy(comms[i]));
    }
}

static void rank_release(rank *r)
{
    int i;
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_tensor_release(r->all[i]));
    for (i = 0; i < PIECES; i++) {
        CHECK_OK(ignis_tensor_release(r->ids[i]));
        CHECK_OK(ignis_tensor_release(r->targets[i]));
    }
    CHECK_OK(ignis_tensor_release(r->loss));
}

/*  Puts this rank's part of an array at its place in the whole one. */
static void collect(const rank *r, int parameter, ignis_array array, double *whole)
{
    const int ranks = r->run->ranks, rows = rows_of_rank(parameter, ranks), columns = columns_of_rank(parameter, ranks);
    double *values = array_values(array);
    int i, k;
    CHECK(array.id);
    for (i = 0; array.id && i < rows; i++)
        for (k = 0; k < columns; k++) {
            const int at = place_in_whole(parameter, ranks, r->rank, i, k);
            if (at < 0)
                continue;
            if (r->replica == 0 && (shapes[parameter].divided != WHOLE || r->rank == 0))
                whole[at] = values[i * columns + k];
        }
    free(values);
}

static void *rank_differentiates(void *context)
{
    rank *r = (rank *)context;
    int p;
    CHECK_OK(ignis_device_use(r->device));
    rank_model(r);
    CHECK_OK(forward_and_backward(r));
    CHECK_OK(ignis_comm_synchronize(r->comm));
    r->run->losses[r->rank][0] = ignis_item(r->loss);
    for (p = 0; p < PARAMETERS; p++)
        collect(r, p, ignis_tensor_grad(r->all[p]), r->run->gradients[p]);
    rank_release(r);
    return NULL;
}

static run one, several; /* large */

static run *begin(run *all, int ranks, ignis_dtype dtype)
{
    memset(all, 0, sizeof *all);
    all->ranks = ranks;
    all->dtype = dtype;
    return all;
}

static int elements_of(int parameter)
{
    return shapes[parameter].rows * (shapes[parameter].columns ? shapes[parameter].columns : 1);
}

/*  Compares with one rank: losses of all ranks to the bit with each other, and gradients. */
static void compare(double tolerance, const char *what)
{
    double most, size;
    int p, i;
    for (i = 0; i < several.ranks; i++) {
        CHECK(several.losses[i][0] == several.losses[0][0]);
        CHECK_CLOSE(several.losses[i][0], one.losses[0][0], tolerance);
    }
    for (p = 0; p < PARAMETERS; p++) {
        for (i = 0, most = size = 0; i < elements_of(p); i++) {
            const double error = fabs(several.gradients[p][i] - one.gradients[p][i]);
            most = error > most || error != error ? error : most;
            size = fabs(one.gradients[p][i]) > size ? fabs(one.gradients[p][i]) : size;
        }
        if (!(most <= tolerance * size))
            printf("%s: %d ranks, parameter %d: the gradient is off by %g of %g\n", what, several.ranks, p, most, size);
        CHECK(size > 0 && most <= tolerance * size);
    }
}

/*  Sums over ranks have another order than sums of one product: rounding of f64 remains, and that of f32 and bf16,
    where each rank's sum is rounded before all are added. */
TEST(losses_and_gradients_are_those_of_one_rank)
{
    static const struct {
        ignis_dtype dtype;
        double tolerance;
    } cases[] = {{IGNIS_F64, 1e-12}, {IGNIS_F32, 2e-5}, {IGNIS_BF16, 0.06}};
    int k, sequence;
    SETUP(NULL);
    NEEDS_DEVICES(4);
    for (k = 0; k < COUNT_OF(cases); k++) {
        ranks_run(begin(&one, 1, cases[k].dtype), 60, rank_differentiates);
        for (sequence = 0; sequence < 2; sequence++) {
            int ranks;
            for (ranks = k ? 3 : 1; ranks <= RANKS_MAX; ranks++) {
                begin(&several, ranks, cases[k].dtype)->sequence = sequence == 1;
                several.checkpoint = ranks == 3 && !k; /* the exchanges of the block are made once more in backward */
                ranks_run(&several, 60, rank_differentiates);
                compare(cases[k].tolerance, sequence ? "sequence" : "tensor");
            }
        }
    }
}

/* --- training --- */

static void rank_optimizers(rank *r)
{
    ignis_sgd_desc sgd;
    int i;
    memset(&sgd, 0, sizeof sgd);
    sgd.lr = 0.5;
    sgd.momentum = 0.9;
    sgd.zero_grad = true;
    for (i = 0; i < 2; i++)
        r->optimizers[i] = ignis_sgd(&sgd);
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_optimizer_add(r->optimizers[shapes[i].divided == WHOLE], r->all[i], false));
}

static ignis_status step(rank *r)
{
    ignis_status status = forward_and_backward(r);
    int i;
    if (status == IGNIS_OK)
        status = ignis_comm_clip_grad_norms(r->comm, r->optimizers, 2, 1, 0.5);
    for (i = 0; i < 2 && status == IGNIS_OK; i++)
        status = ignis_optimizer_step(r->optimizers[i]);
    return status;
}

static void rank_end(rank *r)
{
    int i;
    if (r->parallel.id)
        CHECK_OK(ignis_parallel_free(r->parallel));
    for (i = 0; i < 2; i++)
        CHECK_OK(ignis_optimizer_free(r->optimizers[i]));
    rank_release(r);
}

static void *rank_trains(void *context)
{
    rank *r = (rank *)context;
    ignis_graph graph = {0};
    ignis_parallel_desc desc;
    ignis_optimizer_info info;
    int i;
    CHECK_OK(ignis_device_use(r->device));
    rank_model(r);
    memset(&desc, 0, sizeof desc);
    desc.shard = r->run->shard;
    if (r->run->replicas > 1)
        r->parallel = ignis_parallel_create(r->across, r->all, PARAMETERS, &desc);
    rank_optimizers(r);
    for (i = 0; i < STEPS; i++) {
        if (r->run->graph && i == 1) {
            CHECK_OK(ignis_graph_begin());
            CHECK_OK(step(r));
            graph = ignis_graph_end();
            CHECK(graph.id);
        }
        CHECK_OK(graph.id ? ignis_graph_launch(graph) : step(r));
        r->run->losses[r->device][i] = ignis_item(r->loss);
        CHECK_OK(ignis_optimizer_query(r->optimizers[r->device % 2], &info));
        r->run->norms[r->device][i] = info.grad_norm;
    }
    for (i = 0; i < PARAMETERS; i++)
        collect(r, i, ignis_tensor_data(r->all[i]), r->run->weights[i]);
    if (graph.id)
        CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_comm_synchronize(r->comm));
    rank_end(r);
    return NULL;
}

/*  The norm is that of all gradients, so ranks clip alike; in f64 the order of sums alone differs. */
TEST(training_is_that_of_one_rank)
{
    static const struct {
        int ranks, replicas;
        bool sequence, graph;
        ignis_shard shard;
    } forms[] = {{3, 1, false, true, IGNIS_SHARD_NONE},
                 {2, 2, true, false, IGNIS_SHARD_PARAMETERS},
                 {2, 2, false, true, IGNIS_SHARD_NONE}};
    int k, i, p;
    SETUP(NULL);
    NEEDS_DEVICES(4);
    for (k = 0; k < COUNT_OF(forms); k++) {
        begin(&one, 1, IGNIS_F64)->pieces = forms[k].replicas;
        ranks_run(&one, 60, rank_trains);
        CHECK(one.norms[0][0] > 0.5); /* or nothing is clipped */
        begin(&several, forms[k].ranks, IGNIS_F64)->replicas = forms[k].replicas;
        several.sequence = forms[k].sequence;
        several.graph = forms[k].graph;
        several.shard = forms[k].shard;
        ranks_run(&several, 60, rank_trains);
        for (i = 0; i < STEPS; i++) {
            double loss = 0;
            int r;
            for (r = 0; r < forms[k].ranks * forms[k].replicas; r++) {
                loss += several.losses[r][i] / (forms[k].ranks * forms[k].replicas);
                CHECK(several.norms[r][i] == several.norms[0][i]);
            }
            CHECK_CLOSE(loss, one.losses[0][i], 1e-11);
            CHECK_CLOSE(several.norms[0][i], one.norms[0][i], 1e-11);
        }
        CHECK(one.losses[0][STEPS - 1] < one.losses[0][0]);
        for (p = 0; p < PARAMETERS; p++)
            for (i = 0; i < elements_of(p); i++)
                if (!is_close(several.weights[p][i], one.weights[p][i], 1e-11)) {
                    check_close(__LINE__, "a weight", several.weights[p][i], one.weights[p][i], 1e-11);
                    break;
                }
    }
}

/*  Returns the bytes at the peak of a step, without those of communicators. */
static int64_t peak_of_step(rank *r)
{
    ignis_memory_info info, before;
    memset(&info, 0, sizeof info);
    memset(&before, 0, sizeof before);
    CHECK_OK(ignis_device_use(r->device));
    CHECK_OK(ignis_memory_query(r->device, &before));
    rank_model(r);
    rank_optimizers(r);
    CHECK_OK(step(r));
    CHECK_OK(ignis_comm_synchronize(r->comm));
    CHECK_OK(ignis_memory_query(r->device, &info));
    rank_end(r);
    return info.live_peak - before.live_bytes;
}

static int64_t peaks[2];

static void *rank_peaks(void *context)
{
    rank *r = (rank *)context;
    peaks[r->rank] = peak_of_step(r);
    return NULL;
}

/*  A dry run of one rank alone has the memory of a rank among others. */
TEST(a_dry_run_tells_the_memory_of_a_rank)
{
    ignis_device_info facts;
    ignis_comm_desc comm_desc;
    ignis_desc desc;
    rank alone;
    int64_t dry;
    memset(&desc, 0, sizeof desc);
    desc.matmul = IGNIS_MATMUL_OWN; /* those of cuBLASLt ask for memory as they like */
    SETUP(&desc);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_device_query(0, &facts));
    ranks_run(begin(&several, 2, IGNIS_F32), 60, rank_peaks);
    CHECK_OK(ignis_shutdown());
    desc.dry_run = true;
    desc.dry_device = &facts;
    SETUP(&desc);
    memset(&comm_desc, 0, sizeof comm_desc);
    memset(&alone, 0, sizeof alone);
    comm_desc.rank = 1, comm_desc.size = 2;
    alone.run = &several;
    alone.rank = 1;
    alone.comm = ignis_comm_init(&comm_desc);
    CHECK(alone.comm.id);
    dry = peak_of_step(&alone);
    CHECK(dry > 0);
    CHECK_CLOSE((double)dry, (double)peaks[1], 0.02);
    CHECK_OK(ignis_comm_destroy(alone.comm));
}

static void *rank_overflows(void *context)
{
    const rank *r = (const rank *)context;
    ignis_adamw_desc adamw;
    ignis_optimizer optimizers[2];
    ignis_optimizer_info info;
    ignis_tensor part, equal;
    double gradient[3] = {1, 2, 3};
    int i, at;
    CHECK_OK(ignis_device_use(r->device));
    memset(&adamw, 0, sizeof adamw);
    adamw.lr = 0.1;
    adamw.loss_scale.initial = 4;
    optimizers[0] = ignis_adamw(&adamw);
    optimizers[1] = ignis_adamw(&adamw);
    part = tensor_noise(IGNIS_SHAPE(3), IGNIS_F32, (uint64_t)r->rank, true);
    equal = tensor_noise(IGNIS_SHAPE(3), IGNIS_F32, 9, true);
    CHECK_OK(ignis_optimizer_add(optimizers[0], part, false));
    CHECK_OK(ignis_optimizer_add(optimizers[1], equal, false));
    for (at = 0; at < 2; at++) {
        ignis_tensor of_equal = tensor_of(gradient, IGNIS_SHAPE(3), IGNIS_F32, false), of_part;
        gradient[0] = r->rank == 1 && at == 0 ? (double)INFINITY : 1.0 + r->rank;
        of_part = tensor_of(gradient, IGNIS_SHAPE(3), IGNIS_F32, false);
        gradient[0] = 1;
        CHECK_OK(ignis_tensor_set_grad(part, ignis_tensor_data(of_part)));
        CHECK_OK(ignis_tensor_set_grad(equal, ignis_tensor_data(of_equal)));
        CHECK_OK(ignis_comm_clip_grad_norms(r->comm, optimizers, 2, 1, INFINITY));
        for (i = 0; i < 2; i++) {
            CHECK_OK(ignis_optimizer_step(optimizers[i]));
            CHECK_OK(ignis_optimizer_query(optimizers[i], &info));
            CHECK_INT(info.skipped, 1);
            CHECK_INT(info.step, at);
            if (at == 1) /* parts of both ranks, and what both have once; the scale has fallen to 2 */
                CHECK_CLOSE(info.grad_norm, sqrt((1. + 4 + 9) + (4. + 4 + 9) + (1. + 4 + 9)) / 2, 1e-6);
        }
        CHECK_OK(ignis_tensor_release(of_part));
        CHECK_OK(ignis_tensor_release(of_equal));
    }
    CHECK_OK(ignis_optimizer_free(optimizers[0]));
    CHECK_OK(ignis_optimizer_free(optimizers[1]));
    CHECK_OK(ignis_tensor_release(part));
    CHECK_OK(ignis_tensor_release(equal));
    return NULL;
}

/*  A gradient of one rank is infinite: no rank makes the step, and all have the same norm of the next one. */
TEST(an_overflow_of_one_rank_skips_the_step_of_all)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    ranks_run(begin(&several, 2, IGNIS_F32), 60, rank_overflows);
}

/* --- exchanges and their gradients, beside finite differences --- */

typedef struct layer {
    ignis_comm comm;
    ignis_tensor up, bias, down, out;
    ignis_tensor targets;
} layer;

/*  A function of an input that all ranks have. */
static ignis_tensor of_equal_input(const ignis_tensor *inputs, int count, void *user_data)
{
    const layer *l = (const layer *)user_data;
    const ignis_tensor none = {0},
                       h = ignis_comm_all_gather_columns(
                           l->comm, ignis_column_parallel_linear(l->comm, inputs[0], l->up, l->bias)),
                       y = ignis_row_parallel_linear(
                           l->comm, ignis_silu(ignis_column_parallel_linear(l->comm, ignis_gelu(h), l->down, none)),
                           l->out, inputs[1]);
    ignis_cross_entropy_desc desc;
    (void)count;
    memset(&desc, 0, sizeof desc);
    desc.label_smoothing = 0.1;
    return ignis_vocab_parallel_cross_entropy(l->comm, ignis_comm_all_reduce_backward(l->comm, y), l->targets, &desc);
}

static void *rank_checks_gradients(void *context)
{
    const rank *r = (const rank *)context;
    const int ranks = r->run->ranks;
    layer l;
    ignis_tensor inputs[2];
    int64_t i;
    ignis_tensor x, y;
    ignis_scope scope;
    CHECK_OK(ignis_device_use(r->device));
    scope = ignis_scope_begin();
    l.comm = r->comm;
    l.up = tensor_noise(IGNIS_SHAPE(4, 3), IGNIS_F64, (uint64_t)(10 + r->rank), true);
    l.bias = tensor_noise(IGNIS_SHAPE(4), IGNIS_F64, (uint64_t)(20 + r->rank), true);
    l.down = tensor_noise(IGNIS_SHAPE(6, 4 * ranks), IGNIS_F64, (uint64_t)(30 + r->rank), true);
    l.out = tensor_noise(IGNIS_SHAPE(5, 6), IGNIS_F64, (uint64_t)(40 + r->rank), true);
    l.targets = ignis_cast(tensor_counting(IGNIS_SHAPE(2, 2), IGNIS_F64, 1, false), IGNIS_I64);
    inputs[0] = tensor_noise(IGNIS_SHAPE(2, 2, 3), IGNIS_F64, 1, true);
    inputs[1] = tensor_noise(IGNIS_SHAPE(5), IGNIS_F64, 2, true);
    CHECK(ignis_gradcheck(of_equal_input, &l, inputs, 2, NULL) < 1e-6);
    /* columns of all ranks, in their order; each keeps its own of the gradient */
    x = tensor_noise(IGNIS_SHAPE(2, 3), IGNIS_F64, (uint64_t)r->rank, true);
    y = ignis_comm_all_gather_columns(r->comm, x);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(2, 3 * ranks));
    for (i = 0; i < 6 * ranks; i++)
        CHECK(value_at(y, i) == noise((uint64_t)(i / 3 % ranks), i / (3 * ranks) * 3 + i % 3));
    CHECK_OK(ignis_backward(y, ignis_tensor_data(tensor_counting(IGNIS_SHAPE(2, 3 * ranks), IGNIS_F64, 1, false))));
    for (i = 0; i < 6; i++)
        CHECK(grad_at(x, i) == (double)(i / 3 * 3 * ranks + r->rank * 3 + i % 3 + 1));
    CHECK_OK(ignis_scope_end(scope));
    return NULL;
}

TEST(gradients_are_the_slopes)
{
    int ranks;
    SETUP(NULL);
    NEEDS_DEVICES(3);
    for (ranks = 1; ranks <= 3; ranks += 2)
        ranks_run(begin(&several, ranks, IGNIS_F64), 60, rank_checks_gradients);
}

/* --- cross-entropy beside that of one rank --- */

enum { EDGES = 12, CLASSES = 7, COLUMNS_MOST = 8 };

/*  Rows of logits: masks of all kinds, in a part of some rank and in all of them. */
static double edge_at(int row, int column, double lowest)
{
    const double x = 3 * noise(77, row * CLASSES + column);
    switch (row) {
    case 1: return column < 4 ? -INFINITY : x;
    case 2: return column >= 2 ? lowest : x;
    case 3: return lowest;
    case 4: return -INFINITY;
    case 5: return column == 6 ? INFINITY : x;
    case 6: return column == 5 ? NAN : x;
    case 7: return x + 4096;
    case 8: return column == 1 ? lowest : x;
    default: return x;
    }
}

static const int32_t edge_targets[EDGES] = {2, 5, 1, 6, 0, 1, 0, 3, 1, IGNORED, CLASSES, -1};

static const ignis_cross_entropy_desc *edge_desc;

/*  The lowest finite number of a dtype. */
static double lowest_of(ignis_dtype dtype)
{
    return dtype == IGNIS_F64    ? -1.7976931348623157e308
           : dtype == IGNIS_F32  ? -3.4028234663852886e38
           : dtype == IGNIS_BF16 ? -3.3895313892515355e38
                                 : -65504;
}

static bool near(double got, double expected, double tolerance)
{
    return got == expected || (got != got && expected != expected) ||
           fabs(got - expected) <= tolerance * (1 + fabs(expected));
}

static void *rank_edges(void *context)
{
    const rank *r = (const rank *)context;
    const int ranks = r->run->ranks, columns = (CLASSES + ranks - 1) / ranks;
    const ignis_dtype dtype = r->run->dtype;
    const double tolerance = dtype == IGNIS_F64 ? 1e-13 : dtype == IGNIS_F32 ? 1e-6 : dtype == IGNIS_F16 ? 6e-4 : 4e-3;
    double values[EDGES * COLUMNS_MOST], all[EDGES * CLASSES], weights[EDGES];
    ignis_tensor_desc integers = tensor_desc(IGNIS_I32, false);
    ignis_cross_entropy_desc desc = *edge_desc;
    ignis_tensor mine, whole, targets, loss, expected, scale;
    ignis_scope scope;
    int i, k;
    CHECK_OK(ignis_device_use(r->device));
    scope = ignis_scope_begin();
    for (i = 0; i < EDGES; i++) {
        weights[i] = 1 + 0.25 * i;
        for (k = 0; k < CLASSES; k++)
            all[i * CLASSES + k] = edge_at(i, k, lowest_of(dtype));
        for (k = 0; k < columns; k++)
            values[i * columns + k] =
                r->rank * columns + k < CLASSES ? all[i * CLASSES + r->rank * columns + k] : 99; /* or padding */
    }
    integers.host_dtype = IGNIS_I32;
    targets = ignis_tensor_from_host(edge_targets, IGNIS_SHAPE(EDGES), &integers);
    mine = tensor_of(values, IGNIS_SHAPE(EDGES, columns), dtype, true);
    whole = ignis_cast(tensor_of(all, IGNIS_SHAPE(EDGES, CLASSES), dtype, false), IGNIS_F64);
    whole = ignis_tensor_from_array(ignis_tensor_data(whole), true);
    scale = tensor_of(weights, IGNIS_SHAPE(EDGES), IGNIS_F64, false);
    expected = ignis_cross_entropy(whole, targets, &desc);
    desc.classes = CLASSES;
    loss = ignis_vocab_parallel_cross_entropy(r->comm, mine, targets, &desc);
    CHECK_INT(tensor_info(loss).dtype, dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32);
    CHECK_INT(numel_of(loss), numel_of(expected));
    for (i = 0; i < numel_of(loss); i++)
        if (!near(value_at(loss, i), value_at(expected, i), tolerance))
            check_number(__LINE__, "a loss", value_at(loss, i), value_at(expected, i));
    if (desc.reduction == IGNIS_REDUCTION_NONE) {
        CHECK_OK(ignis_backward(ignis_sum(ignis_mul(ignis_cast(loss, IGNIS_F64), scale)), IGNIS_NO_ARRAY));
        CHECK_OK(ignis_backward(ignis_sum(ignis_mul(expected, scale)), IGNIS_NO_ARRAY));
        for (i = 0; i < EDGES; i++)
            for (k = 0; k < columns; k++) {
                const int column = r->rank * columns + k;
                const double got = grad_at(mine, i * columns + k),
                             want = column < CLASSES ? grad_at(whole, i * CLASSES + column)
                                    : edge_targets[i] == CLASSES || edge_targets[i] == -1 ? got
                                                                                          : 0;
                if (!near(got, want, 4 * tolerance))
                    check_number(__LINE__, "a gradient", got, want);
            }
    }
    CHECK_OK(ignis_scope_end(scope));
    return NULL;
}

/*  Losses are computed in f32 of 16 bits, and gradients are rounded to the dtype of the logits. */
TEST(rows_at_the_edges_have_the_losses_of_one_rank)
{
    static ignis_cross_entropy_desc descs[2];
    int k, d, ranks;
    SETUP(NULL);
    NEEDS_DEVICES(4);
    descs[0].reduction = descs[1].reduction = IGNIS_REDUCTION_NONE;
    descs[1].label_smoothing = 0.2;
    for (k = 0; k < COUNT_OF(float_dtypes); k++)
        for (d = 0; d < COUNT_OF(descs); d++)
            for (ranks = k ? 3 : 1; ranks <= 4; ranks += 1 + d) {
                edge_desc = &descs[d];
                ranks_run(begin(&several, ranks, float_dtypes[k]), 60, rank_edges);
            }
}

/* --- what is refused, and what fails --- */

/*  As CHECK_FAILS, for a call whose operation `inner` has failed. */
#define CHECK_FAILS_IN(call, inner, status, diagnostic) \
    (CHECK(!(call).id), test__check_failure(__FILE__, __LINE__, inner, (status), (diagnostic)))

static void *rank_refuses(void *context)
{
    const rank *r = (const rank *)context;
    const ignis_tensor none = {0};
    const ignis_comm gone = {0};
    ignis_cross_entropy_desc desc;
    ignis_optimizer optimizer;
    ignis_tensor_desc integers = tensor_desc(IGNIS_I64, false);
    ignis_tensor x, ids, column, huge;
    ignis_scope scope;
    CHECK_OK(ignis_device_use(r->device));
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(3, 4), IGNIS_F32, 1, true);
    column = tensor_noise(IGNIS_SHAPE(4), IGNIS_F32, 1, false);
    ids = ignis_tensor_zeros(IGNIS_SHAPE(3), &integers);
    CHECK_FAILS(ignis_comm_reduce_scatter_rows(r->comm, x), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("ignis_comm_reduce_scatter_rows: x is [3, 4]; expected rows that are a multiple of the 2 ranks");
    CHECK_FAILS(ignis_comm_slice_rows(r->comm, x), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_FAILS(ignis_comm_all_reduce_forward(gone, x), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_FAILS(ignis_comm_all_gather_columns(gone, x), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_FAILS(ignis_comm_all_reduce_backward(r->comm, none), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_FAILS(ignis_comm_all_gather_columns(r->comm, none), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_FAILS(ignis_vocab_parallel_embedding(r->comm, none, ids), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_FAILS(ignis_vocab_parallel_embedding(r->comm, x, none), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_FAILS(ignis_vocab_parallel_cross_entropy(r->comm, none, ids, NULL), IGNIS_ERROR_FREED,
                IGNIS_DIAG_TENSOR_FREED);
    CHECK_FAILS_IN(ignis_column_parallel_linear(r->comm, x, column, none), "ignis_linear", IGNIS_ERROR_SHAPE,
                   IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("inside ignis_column_parallel_linear");
    CHECK_FAILS_IN(ignis_row_parallel_linear(r->comm, x, column, none), "ignis_linear", IGNIS_ERROR_SHAPE,
                   IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("inside ignis_row_parallel_linear");
    CHECK_FAILS_IN(ignis_vocab_parallel_embedding(r->comm, column, ids), "ignis_embedding", IGNIS_ERROR_SHAPE,
                   IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_FAILS(ignis_vocab_parallel_embedding(r->comm, x, x), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_FAILS(ignis_vocab_parallel_embedding(gone, x, ids), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_FAILS(ignis_vocab_parallel_cross_entropy(r->comm, x, x, NULL), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_FAILS(ignis_vocab_parallel_cross_entropy(r->comm, ids, ids, NULL), IGNIS_ERROR_DTYPE,
                IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_FAILS(ignis_vocab_parallel_cross_entropy(r->comm, x, column, NULL), IGNIS_ERROR_DTYPE,
                IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_FAILS(ignis_vocab_parallel_cross_entropy(gone, x, ids, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    memset(&desc, 0, sizeof desc);
    desc.classes = 9;
    CHECK_FAILS(ignis_vocab_parallel_cross_entropy(r->comm, x, ids, &desc), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc->classes is 9; 2 ranks have 4 columns of logits each");
    desc.classes = 0;
    desc.label_smoothing = 2;
    CHECK_FAILS(ignis_vocab_parallel_cross_entropy(r->comm, x, ids, &desc), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_BAD_NUMBER);
    huge = ignis_tensor_zeros(IGNIS_SHAPE(0, (int64_t)1 << 23), NULL);
    CHECK_FAILS(ignis_vocab_parallel_cross_entropy(r->comm, huge, ids, NULL), IGNIS_ERROR_UNSUPPORTED,
                IGNIS_DIAG_UNSUPPORTED);
    /* no rows: nothing to lose */
    desc.label_smoothing = 0;
    desc.reduction = IGNIS_REDUCTION_SUM;
    huge = ignis_tensor_zeros(IGNIS_SHAPE(0, 3), NULL);
    CHECK_NUMBER(
        value_at(
            ignis_vocab_parallel_cross_entropy(r->comm, huge, ignis_tensor_zeros(IGNIS_SHAPE(0), &integers), &desc), 0),
        0);
    optimizer = ignis_sgd(NULL);
    CHECK_OK(ignis_optimizer_add(optimizer, x, false));
    CHECK_STATUS(ignis_comm_clip_grad_norms(r->comm, &optimizer, 1, 2, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("divided is 2; expected 0 to count, which is 1");
    CHECK_STATUS(ignis_comm_clip_grad_norms(r->comm, &optimizer, 1, 1, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_clip_grad_norms(r->comm, NULL, 1, 1, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_comm_clip_grad_norms(gone, &optimizer, 1, 1, 1), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_OK(ignis_optimizer_free(optimizer));
    CHECK_OK(ignis_comm_synchronize(r->comm));
    CHECK_OK(ignis_scope_end(scope));
    return NULL;
}

TEST(what_does_not_fit_is_refused)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    ranks_run(begin(&several, 2, IGNIS_F32), 60, rank_refuses);
}

static int differs; /* what rank 1 does otherwise */

/*  Tensors that do not have the shape that other ranks have. */
static void *rank_differs(void *context)
{
    rank *r = (rank *)context;
    const int more = r->rank == 1;
    const ignis_tensor none = {0};
    ignis_tensor_desc integers = tensor_desc(IGNIS_I64, false);
    ignis_tensor x, result;
    ignis_scope scope;
    CHECK_OK(ignis_device_use(r->device));
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(2, 3 + (differs == 0 ? more : 0)), IGNIS_F32, 1, true);
    if (differs == 0) /* columns of logits */
        result = ignis_vocab_parallel_cross_entropy(r->comm, x, ignis_tensor_zeros(IGNIS_SHAPE(2), &integers), NULL);
    else if (differs == 1) /* outputs */
        result =
            ignis_row_parallel_linear(r->comm, x, tensor_noise(IGNIS_SHAPE(4 + more, 3), IGNIS_F32, 1, true), none);
    else /* rows, in backward */
        result = ignis_comm_all_reduce_backward(r->comm, tensor_noise(IGNIS_SHAPE(2 + more, 3), IGNIS_F32, 1, true));
    r->status = result.id ? ignis_backward(ignis_sum(result), IGNIS_NO_ARRAY) : ignis_status_last();
    if (r->status == IGNIS_OK)
        r->status = ignis_comm_synchronize(r->comm);
    snprintf(r->message, sizeof r->message, "%s", ignis_status_message());
    ignis_status_clear();
    (void)ignis_comm_abort(r->comm);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_tape_clear());
    return NULL;
}

TEST(shapes_that_differ_between_ranks_are_a_mismatch)
{
    int i, mismatches;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    for (differs = 0; differs < 3; differs++) {
        ranks_run(begin(&several, 2, IGNIS_F32), 20, rank_differs);
        for (i = mismatches = 0; i < 2; i++) {
            CHECK(ranks_of[i].status == IGNIS_ERROR_MISMATCH || ranks_of[i].status == IGNIS_ERROR_PEER);
            mismatches += strstr(ranks_of[i].message, "ranks disagree about operation") &&
                          strstr(ranks_of[i].message, i ? "rank 0 calls" : "rank 1 calls");
        }
        CHECK(mismatches > 0);
    }
}

/*  One step. A rank that fails says so to the others. */
static void rank_tries(rank *r)
{
    r->status = step(r);
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
    CHECK_OK(ignis_device_use(r->device));
    rank_model(r);
    rank_optimizers(r);
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
    rank_end(r);
    CHECK_OK(ignis_tape_clear());
    ignis_status_clear();
    return NULL;
}

/*  A driver call of a step fails, of one rank or the other: both learn of it, and nothing is left. */
TEST(a_call_that_fails_in_a_step_fails_on_all_ranks)
{
    static const char *const from_peer[] = {"rank 1", "rank 0"};
    int64_t before;
    int sequence, i, hits = 0;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    pthread_barrier_init(&together, NULL, 2);
    for (sequence = 0; sequence < 2; sequence++) {
        for (fault_at = 1, fault_hit = true; fault_hit; fault_at += 5 + fault_at / 6) {
            begin(&several, 2, IGNIS_F32)->sequence = sequence == 1;
            before = memory().live_bytes;
            ranks_run(&several, 20, rank_fails);
            hits += fault_hit;
            CHECK_INT(memory().live_bytes, before);
            for (i = 0; i < 2; i++)
                if (ranks_of[i].status == IGNIS_ERROR_PEER)
                    CHECK(strstr(ranks_of[i].message, from_peer[i]));
            CHECK((ranks_of[0].status == IGNIS_OK) == (ranks_of[1].status == IGNIS_OK));
        }
    }
    CHECK(hits > 20);
    pthread_barrier_destroy(&together);
}

/*  Rank 1 does not come to backward. */
static void *rank_stays_away(void *context)
{
    rank *r = (rank *)context;
    ignis_scope scope;
    ignis_tensor loss;
    CHECK_OK(ignis_device_use(r->device));
    rank_model(r);
    scope = ignis_scope_begin();
    loss = loss_of(r, 0);
    CHECK(loss.id);
    if (r->rank == 0) {
        r->status = ignis_backward(loss, IGNIS_NO_ARRAY);
        if (r->status == IGNIS_OK)
            r->status = ignis_comm_synchronize(r->comm);
        CHECK(r->status == IGNIS_ERROR_TIMEOUT || r->status == IGNIS_ERROR_PEER); /* PEER: of the next operation */
        CHECK_HAS(ignis_status_message(), "rank 1 did not come to operation");
        ignis_status_clear();
    }
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_tape_clear());
    rank_release(r);
    return NULL;
}

TEST(a_rank_that_does_not_come_to_backward_is_a_timeout)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    ranks_run(begin(&several, 2, IGNIS_F32), 2, rank_stays_away);
}

/* --- ranks that die: processes --- */

static rank dying;

static void dying_begin(int number, ignis_comm comm)
{
    dying.run = begin(&several, 2, IGNIS_F32);
    dying.device = dying.rank = number;
    dying.comm = comm;
    rank_model(&dying);
    rank_optimizers(&dying);
}

static ignis_status dying_step(const char **message)
{
    rank_tries(&dying);
    *message = dying.message;
    return dying.status;
}

TEST(a_rank_that_dies_in_a_step_is_an_error)
{
    static const int calls[] = {1, 40, 110};
    NEEDS_POSIX("communicators between processes");
    SETUP(NULL);
    NEEDS_DEVICES(2);
    check_rank_deaths(calls, COUNT_OF(calls));
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    setenv("IGNIS_SIM_DEVICES", "4", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast is not asked for on machines that others use too */
    return role ? rank_dies(role, dying_begin, dying_step) : test_run(argc, argv);
}
