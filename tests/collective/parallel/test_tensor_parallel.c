// SPDX-License-Identifier: MIT
/*  test_tensor_parallel.c - matrices that ranks divide: losses and gradients beside those of one rank */
#include "fault.h"
#include "tensor.h"

#include "ignis_collective.h"

#include "processes.h"

#include <math.h>

/*  Rows and heads are multiples of 1 to 4 ranks; the vocabulary is of none but 1. */
enum { RANKS_MAX = 4, ROWS = 12, HEADS = 12, HEAD = 4, WIDTH = HEADS * HEAD, HIDDEN = 24, VOCAB = 29, STEPS = 3 };
enum { IGNORED = -100 };

/* --- the model: embedding, one transformer block, head --- */

typedef enum part { WHOLE, BY_ROWS, BY_COLUMNS } part;

enum { TABLE, NORM1, Q, K, V, Q_BIAS, OUT, OUT_BIAS, NORM2, UP, UP_BIAS, DOWN, DOWN_BIAS, HEADS_WEIGHT, PARAMETERS };

/*  Parameters, as one rank has them, and how the ranks divide them. Rows of a vocabulary are padded. */
static const struct {
    int rows, columns; /* columns 0: a row */
    part divided;
} shapes[PARAMETERS] = {
    {VOCAB, WIDTH, BY_ROWS}, {WIDTH, 0, WHOLE},         {WIDTH, WIDTH, BY_ROWS},     {WIDTH, WIDTH, BY_ROWS},
    {WIDTH, WIDTH, BY_ROWS}, {WIDTH, 0, BY_ROWS},       {WIDTH, WIDTH, BY_COLUMNS},  {WIDTH, 0, WHOLE},
    {WIDTH, 0, WHOLE},       {HIDDEN, WIDTH, BY_ROWS},  {HIDDEN, 0, BY_ROWS},        {WIDTH, HIDDEN, BY_COLUMNS},
    {WIDTH, 0, WHOLE},       {VOCAB, WIDTH, BY_ROWS}};

typedef struct run {
    int ranks, steps;
    ignis_dtype dtype;
    bool sequence; /* rows between matrices are divided, too */
    bool graph, replicas;
    double clip; /* 0: no clipping */
    const ignis_cross_entropy_desc *loss;
    double losses[RANKS_MAX][STEPS], norms[RANKS_MAX][STEPS];
    double gradients[PARAMETERS][VOCAB * WIDTH + WIDTH * WIDTH], weights[PARAMETERS][VOCAB * WIDTH + WIDTH * WIDTH];
} run;

typedef struct rank {
    run *run;
    int rank;
    ignis_comm comm;
    ignis_tensor all[PARAMETERS], ids, targets, loss;
    ignis_optimizer divided, equal; /* parameters that ranks divide, and those that all have */
    ignis_status status;
    char message[512];
} rank;

static int rows_of_rank(int parameter, int ranks)
{
    return shapes[parameter].divided == BY_ROWS ? (shapes[parameter].rows + ranks - 1) / ranks
                                                : shapes[parameter].rows;
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
    double *values = (double *)malloc(sizeof *values * (VOCAB * WIDTH + WIDTH * WIDTH));
    const int ranks = r->run->ranks;
    int p, i, k;
    for (p = 0; p < PARAMETERS; p++) {
        const int rows = rows_of_rank(p, ranks), columns = columns_of_rank(p, ranks);
        for (i = 0; i < rows; i++)
            for (k = 0; k < columns; k++)
                values[i * columns + k] = weight_at(p, place_in_whole(p, ranks, r->rank, i, k));
        r->all[p] = tensor_of(values, shapes[p].columns ? IGNIS_SHAPE(rows, columns) : IGNIS_SHAPE(rows), r->run->dtype,
                              true);
    }
    free(values);
    r->ids = ids_of(3, false);
    r->targets = ids_of(4, true);
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

static ignis_tensor logits_of(const rank *r)
{
    const ignis_tensor none = {0}, *w = r->all;
    ignis_tensor x = ignis_vocab_parallel_embedding(r->comm, w[TABLE], r->ids), h;
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
    return ignis_linear(into_columns(r, x), w[HEADS_WEIGHT], none);
}

static ignis_tensor loss_of(const rank *r)
{
    ignis_cross_entropy_desc desc;
    memset(&desc, 0, sizeof desc);
    if (r->run->loss)
        desc = *r->run->loss;
    desc.classes = VOCAB;
    return ignis_vocab_parallel_cross_entropy(r->comm, logits_of(r), r->targets, &desc);
}

static ignis_status forward_and_backward(rank *r)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor loss = loss_of(r);
    ignis_status status = loss.id ? ignis_array_copy(ignis_tensor_data(r->loss), ignis_tensor_data(loss))
                                  : ignis_status_last();
    if (status == IGNIS_OK)
        status = ignis_backward(loss, IGNIS_NO_ARRAY);
    (void)ignis_scope_end(scope);
    return status;
}

/* --- ranks --- */

static rank ranks_of[RANKS_MAX];

/*  Every rank is a thread with a device of its own. */
static void ranks_run(run *all, double timeout_s, void *(*work)(void *))
{
    pthread_t threads[RANKS_MAX];
    ignis_comm comms[RANKS_MAX];
    ignis_comm_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.timeout_s = timeout_s;
    CHECK_OK(ignis_comm_init_all(comms, NULL, all->ranks, &desc));
    memset(ranks_of, 0, sizeof ranks_of);
    for (i = 0; i < all->ranks; i++) {
        ranks_of[i].run = all;
        ranks_of[i].rank = i;
        ranks_of[i].comm = comms[i];
        pthread_create(&threads[i], NULL, work, &ranks_of[i]);
    }
    for (i = 0; i < all->ranks; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < all->ranks; i++)
        CHECK_OK(ignis_comm_destroy(comms[i]));
}

static void rank_release(rank *r)
{
    int i;
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_tensor_release(r->all[i]));
    CHECK_OK(ignis_tensor_release(r->ids));
    CHECK_OK(ignis_tensor_release(r->targets));
    CHECK_OK(ignis_tensor_release(r->loss));
}

/*  Puts this rank's part of an array at its place in the whole one. What all ranks have must be equal. */
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
            if (shapes[parameter].divided == WHOLE && r->rank > 0)
                continue;
            whole[at] = values[i * columns + k];
        }
    free(values);
}

static void *rank_differentiates(void *context)
{
    rank *r = (rank *)context;
    int p;
    CHECK_OK(ignis_device_use(r->rank));
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
                ranks_run(&several, 60, rank_differentiates);
                compare(cases[k].tolerance, sequence ? "sequence" : "tensor");
            }
        }
    }
}

int main(int argc, char **argv)
{
    setenv("IGNIS_SIM_DEVICES", "8", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast is not asked for on machines that others use too */
    return test_run(argc, argv);
}
