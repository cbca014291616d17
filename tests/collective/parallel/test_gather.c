// SPDX-License-Identifier: MIT
/*  test_gather.c - parameters that ranks share: their memory, writes to them, graphs, what is refused */
#include "fault.h"
#include "tensor.h"

#include "ignis_collective.h"

#include <math.h>

enum { RANKS_MAX = 4, LAYERS = 8, ROWS = 128, WIDTH = 256, BATCH = 2, COUNT = ROWS * WIDTH };

typedef struct rank {
    int rank, ranks;
    ignis_shard shard;
    bool drops; /* gradients after a step, instead of setting them to zero */
    ignis_comm comm;
    ignis_parallel parallel;
    ignis_tensor all[LAYERS], input;
    ignis_optimizer optimizer;
    int64_t peak;
    float values[COUNT];
    void (*work)(struct rank *r);
} rank;

static rank ranks_of[RANKS_MAX]; /* large */

static ignis_status forward_and_backward(rank *r)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x = r->input;
    ignis_status status;
    int i;
    for (i = 0; i < LAYERS; i++)
        x = ignis_gelu(i % 2 ? ignis_matmul(x, r->all[i]) : ignis_matmul_t(x, r->all[i]));
    status = ignis_backward(ignis_sum(x), IGNIS_NO_ARRAY);
    (void)ignis_scope_end(scope);
    return status;
}

static void rank_begin(rank *r)
{
    ignis_tensor_desc desc;
    ignis_parallel_desc parallel;
    ignis_adamw_desc adamw;
    int i, k;
    CHECK_OK(ignis_device_use(r->rank));
    memset(&desc, 0, sizeof desc);
    memset(&parallel, 0, sizeof parallel);
    memset(&adamw, 0, sizeof adamw);
    desc.requires_grad = true;
    for (i = 0; i < LAYERS; i++) {
        for (k = 0; k < COUNT; k++)
            r->values[k] = (float)((k * 37 + i * 11) % 101 - 50) / 400;
        r->all[i] = ignis_tensor_from_host(r->values, IGNIS_SHAPE(ROWS, WIDTH), &desc);
    }
    desc.requires_grad = false;
    r->input = ignis_tensor_from_host(r->values, IGNIS_SHAPE(BATCH, WIDTH), &desc);
    parallel.shard = r->shard;
    parallel.bucket_bytes = parallel.first_bucket_bytes = 1; /* a parameter each */
    r->parallel = ignis_parallel_create(r->comm, r->all, LAYERS, &parallel);
    CHECK(r->parallel.id);
    adamw.zero_grad = !r->drops;
    adamw.drop_grad = r->drops;
    r->optimizer = ignis_adamw(&adamw);
    for (i = 0; i < LAYERS; i++)
        CHECK_OK(ignis_optimizer_add(r->optimizer, r->all[i], true));
}

static void rank_end(rank *r)
{
    int i;
    CHECK_OK(ignis_comm_synchronize(r->comm));
    CHECK_OK(ignis_parallel_free(r->parallel));
    CHECK_OK(ignis_optimizer_free(r->optimizer));
    for (i = 0; i < LAYERS; i++)
        CHECK_OK(ignis_tensor_release(r->all[i]));
    CHECK_OK(ignis_tensor_release(r->input));
}

static void *rank_main(void *context)
{
    rank *r = (rank *)context;
    rank_begin(r);
    r->work(r);
    rank_end(r);
    return NULL;
}

/*  Every rank is a thread with a device of its own. */
static void ranks_run_with(int ranks, ignis_shard shard, bool drops, void (*work)(rank *r))
{
    pthread_t threads[RANKS_MAX];
    ignis_comm comms[RANKS_MAX];
    int i;
    CHECK_OK(ignis_comm_init_all(comms, NULL, ranks, NULL));
    memset(ranks_of, 0, sizeof ranks_of);
    for (i = 0; i < ranks; i++) {
        ranks_of[i].rank = i;
        ranks_of[i].ranks = ranks;
        ranks_of[i].shard = shard;
        ranks_of[i].drops = drops;
        ranks_of[i].comm = comms[i];
        ranks_of[i].work = work;
        pthread_create(&threads[i], NULL, rank_main, &ranks_of[i]);
    }
    for (i = 0; i < ranks; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < ranks; i++)
        CHECK_OK(ignis_comm_destroy(comms[i]));
}

static void ranks_run(int ranks, ignis_shard shard, void (*work)(rank *r))
{
    ranks_run_with(ranks, shard, false, work);
}

static void train_and_measure(rank *r)
{
    ignis_memory_info info;
    CHECK_OK(forward_and_backward(r));
    CHECK_OK(ignis_optimizer_step(r->optimizer));
    CHECK_OK(ignis_memory_query(r->rank, &info));
    r->peak = info.live_peak;
    CHECK_OK(ignis_array_to_host(ignis_tensor_data(r->all[0]), r->values, IGNIS_F32, COUNT));
}

/*  In layers, of which there are 8, on 4 ranks with AdamW. All shared: 2 of weights, gradients and either moment, 3
    gathered, 2 for gradients that are reduced: 13. Weights are whole: 18 at the beginning. Nothing shared: 32. */
TEST(a_rank_needs_less_memory_and_has_the_same_weights)
{
    static float values[COUNT];
    const int64_t layer = COUNT * (int64_t)sizeof(float);
    int64_t peak = 0;
    static const ignis_shard shards[] = {IGNIS_SHARD_PARAMETERS, IGNIS_SHARD_GRADIENTS, IGNIS_SHARD_NONE};
    int i;
    SETUP(NULL);
    NEEDS_DEVICES(RANKS_MAX);
    for (i = 0; i < COUNT_OF(shards); i++) {
        ranks_run(RANKS_MAX, shards[i], train_and_measure);
        CHECK(ranks_of[1].peak > peak + 3 * layer);
        peak = ranks_of[1].peak; /* of all until now */
        if (i == 0) {
            CHECK(peak < 14 * layer);
            memcpy(values, ranks_of[0].values, sizeof values);
        }
        CHECK(memcmp(values, ranks_of[RANKS_MAX - 1].values, sizeof values) == 0);
    }
}

/*  Reads one element of a parameter, on all ranks. */
static float element_of(ignis_tensor parameter)
{
    float values[WIDTH];
    ignis_array view = ignis_array_slice(ignis_tensor_data(parameter), 0, ROWS - 1, 1);
    CHECK_OK(ignis_array_to_host(view, values, IGNIS_F32, WIDTH));
    CHECK_OK(ignis_array_free(view));
    return values[WIDTH - 1];
}

static int64_t bytes_of_gradients(const rank *r)
{
    enum { ROWS_OF_MEMORY = 64 };
    static ignis_memory_row rows[RANKS_MAX][ROWS_OF_MEMORY];
    int64_t bytes = 0;
    int i, count = ignis_memory_rows(r->rank, rows[r->rank], ROWS_OF_MEMORY);
    CHECK(count >= 0 && count <= ROWS_OF_MEMORY);
    for (i = 0; i < count; i++)
        bytes += strcmp(rows[r->rank][i].tag, "gradients") == 0 ? rows[r->rank][i].live_bytes : 0;
    return bytes;
}

/*  A rank has the gradients of its slices from the average until a step that drops them, in a graph, too. */
static void measure_gradients(rank *r)
{
    const int64_t slices = LAYERS * COUNT / r->ranks * (int64_t)sizeof(float);
    ignis_graph graph;
    float eager;
    CHECK_INT(bytes_of_gradients(r), 0);
    CHECK_OK(forward_and_backward(r));
    CHECK_INT(bytes_of_gradients(r), slices);
    CHECK_OK(ignis_optimizer_step(r->optimizer));
    CHECK_INT(bytes_of_gradients(r), r->drops ? 0 : slices);
    CHECK_OK(ignis_optimizer_step(r->optimizer)); /* of zeros */
    CHECK_INT(bytes_of_gradients(r), r->drops ? 0 : slices);
    eager = ignis_comm_synchronize(r->comm) == IGNIS_OK ? element_of(r->all[2]) : 0;
    CHECK_OK(ignis_optimizer_zero_grad(r->optimizer));
    CHECK_INT(bytes_of_gradients(r), slices);
    CHECK_OK(ignis_optimizer_step(r->optimizer));
    CHECK_OK(ignis_comm_synchronize(r->comm));
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(forward_and_backward(r));
    CHECK_OK(ignis_optimizer_step(r->optimizer));
    graph = ignis_graph_end();
    CHECK(graph.id);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_comm_synchronize(r->comm));
    r->values[0] = eager;
    r->values[1] = element_of(r->all[2]);
    CHECK_OK(ignis_graph_free(graph));
}

TEST(gradients_of_slices_have_memory_until_they_are_dropped)
{
    float values[2];
    int i;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    for (i = 0; i < 4; i++) {
        ranks_run_with(2, i < 2 ? IGNIS_SHARD_GRADIENTS : IGNIS_SHARD_PARAMETERS, i % 2, measure_gradients);
        if (i == 0)
            memcpy(values, ranks_of[0].values, sizeof values);
        CHECK(memcmp(values, ranks_of[0].values, sizeof values) == 0);
        CHECK(memcmp(values, ranks_of[1].values, sizeof values) == 0);
    }
}

static void write_values(rank *r)
{
    const float before = element_of(r->all[2]);
    ignis_graph graph;
    int i;
    for (i = 0; i < LAYERS; i++) { /* in another order than that of uses */
        ignis_array data = ignis_tensor_data(r->all[i * 3 % LAYERS]);
        CHECK_OK(ignis_array_scale(data, data, 2));
    }
    CHECK_CLOSE(element_of(r->all[2]), 2 * before, 0);
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_array_scale(ignis_tensor_data(r->all[2]), ignis_tensor_data(r->all[2]), 3));
    graph = ignis_graph_end();
    CHECK(graph.id);
    CHECK_CLOSE(element_of(r->all[2]), 2 * before, 0);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_CLOSE(element_of(r->all[1]), element_of(r->all[1]), 0); /* has others gathered */
    CHECK_OK(ignis_optimizer_zero_grad(r->optimizer));            /* frees them */
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_optimizer_zero_grad(r->optimizer));
    CHECK_CLOSE(element_of(r->all[2]), 18 * before, 0);
    CHECK_OK(ignis_graph_free(graph));
}

/*  What a program writes to a parameter on all ranks is there after the memory was freed, in graphs, too. */
TEST(writes_are_kept)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    ranks_run(2, IGNIS_SHARD_PARAMETERS, write_values);
}

/*  A graph of a part of the model: what was gathered ahead is not used, and ends with the capture. */
static void infer_in_a_graph(rank *r)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_graph graph;
    ignis_tensor y;
    double eager;
    CHECK_OK(ignis_no_grad_begin());
    eager = ignis_item(ignis_sum(ignis_matmul(ignis_matmul_t(r->input, r->all[5]), r->all[6])));
    CHECK_OK(ignis_graph_begin());
    y = ignis_sum(ignis_matmul(ignis_matmul_t(r->input, r->all[5]), r->all[6]));
    graph = ignis_graph_end();
    CHECK(graph.id);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_CLOSE(ignis_item(y), eager, 0);
    CHECK_OK(ignis_no_grad_end());
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(a_graph_gathers_what_it_uses)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    ranks_run(2, IGNIS_SHARD_PARAMETERS, infer_in_a_graph);
}

/*  An operation with parameters of 17 buckets, which all would be gathered at once. */
static void refuse_many(rank *r)
{
    ignis_parallel_desc desc;
    ignis_tensor_desc leaf;
    ignis_tensor many[17];
    ignis_parallel parallel;
    ignis_scope scope;
    int i;
    memset(&desc, 0, sizeof desc);
    memset(&leaf, 0, sizeof leaf);
    leaf.requires_grad = true;
    for (i = 0; i < 17; i++)
        many[i] = ignis_tensor_zeros(IGNIS_SHAPE(4), &leaf);
    desc.shard = IGNIS_SHARD_PARAMETERS;
    desc.bucket_bytes = desc.first_bucket_bytes = 1;
    parallel = ignis_parallel_create(r->comm, many, 17, &desc);
    CHECK(parallel.id);
    scope = ignis_scope_begin();
    CHECK_CLOSE(ignis_item(ignis_sum(ignis_concat(many, 16, 0))), 0, 0);
    CHECK_FAILS(ignis_concat(many, 17, 0), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("more than 16 buckets");
    CHECK_OK(ignis_scope_end(scope));
    CHECK_OK(ignis_comm_synchronize(r->comm));
    CHECK_OK(ignis_parallel_free(parallel));
    for (i = 0; i < 17; i++)
        CHECK_OK(ignis_tensor_release(many[i]));
}

static void refuse(rank *r)
{
    ignis_array data = ignis_tensor_data(r->all[0]), view = ignis_array_slice(data, 0, 0, 2),
                other = ignis_array_slice(data, 0, 1, 2), copy = ignis_array_clone(view);
    CHECK(copy.id);
    CHECK_FAILS(ignis_array_device_ptr(data), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("IGNIS_SHARD_PARAMETERS");
    CHECK_FAILS(ignis_array_to_dlpack(data, 1, NULL), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_STATUS(ignis_comm_broadcast(r->comm, view, 0), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_STATUS(ignis_array_copy(view, other), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_OVERLAP);
    refuse_many(r);
    CHECK_OK(ignis_comm_synchronize(r->comm));
    CHECK_OK(ignis_parallel_free(r->parallel));
    r->parallel.id = 0;
    CHECK_STATUS(ignis_array_copy(copy, view), IGNIS_ERROR_FREED, IGNIS_DIAG_PARALLEL_FREED);
    CHECK_MESSAGE_HAS("and with it the parameter");
    CHECK_OK(ignis_array_free(view));
    CHECK_OK(ignis_array_free(other));
    CHECK_OK(ignis_array_free(copy));
}

TEST(what_needs_an_address_is_refused)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    ranks_run(2, IGNIS_SHARD_PARAMETERS, refuse);
}

int main(int argc, char **argv)
{
    setenv("IGNIS_SIM_DEVICES", "4", 0);
    /* kernels with many threads cost most of a simulated step, and a sanitizer's memory */
    setenv("IGNIS_COMM_TUNE", "ll_blocks=3,ll_threads=64,blocks=3,threads=64", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast is not asked for on machines that others use too */
    return test_run(argc, argv);
}
