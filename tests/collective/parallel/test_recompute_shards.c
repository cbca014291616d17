// SPDX-License-Identifier: MIT
/*  test_recompute_shards.c - checkpoints over parameters that ranks share: bits, and gradients that are sent in time */
#include "tensor.h"

#include "ignis_collective.h"

enum { RANKS = 2, LAYERS = 6, STEPS = 3, WIDTH_MAX = 128, ROWS = 16, PARAMETERS = 2 * LAYERS, MODES = 3 };

typedef struct rank {
    ignis_comm comm;
    ignis_shard shard;
    int mode; /* 0: no checkpoints; else 1 + ignis_recompute */
    bool graph;
    int width;
    ignis_tensor all[PARAMETERS];
    float weights[PARAMETERS][WIDTH_MAX * WIDTH_MAX];
    int64_t gradients; /* bytes at the peak */
} rank;

static ignis_tensor layer(const ignis_tensor *inputs, int count, void *user_data)
{
    const ignis_tensor *w = (const ignis_tensor *)user_data;
    ignis_tensor h = ignis_gelu(ignis_linear(inputs[0], w[0], no_tensor()));
    (void)count;
    return ignis_add(inputs[0], ignis_linear(ignis_dropout(h, 0.25), w[1], no_tensor()));
}

static void step(rank *r, ignis_tensor input, ignis_optimizer optimizer)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_checkpoint_desc desc;
    ignis_tensor x = input;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.recompute = r->mode == 2 ? IGNIS_RECOMPUTE_KEEP_PRODUCTS : IGNIS_RECOMPUTE_ALL;
    for (i = 0; i < LAYERS; i++)
        x = r->mode ? ignis_checkpoint(layer, &r->all[2 * i], &x, 1, &desc) : layer(&x, 1, &r->all[2 * i]);
    CHECK_OK(ignis_backward(ignis_sum(ignis_mul(x, x)), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_optimizer_step(optimizer));
    CHECK_OK(ignis_scope_end(scope));
}

static void train(rank *r)
{
    const int64_t bytes = (int64_t)sizeof(float) * r->width * r->width;
    ignis_memory_row rows[64];
    ignis_parallel_desc desc;
    ignis_adamw_desc adamw;
    ignis_optimizer optimizer;
    ignis_parallel parallel;
    ignis_graph graph = {0};
    ignis_comm_info info;
    ignis_tensor input;
    int i, count;
    CHECK_OK(ignis_comm_query(r->comm, &info));
    CHECK_OK(ignis_device_use(info.device));
    CHECK_OK(ignis_seed(4));
    for (i = 0; i < PARAMETERS; i++)
        r->all[i] = tensor_noise(IGNIS_SHAPE(r->width, r->width), IGNIS_F32, (uint64_t)i, true);
    input = tensor_noise(IGNIS_SHAPE(ROWS, r->width), IGNIS_F32, (uint64_t)(100 + info.rank), false);
    memset(&desc, 0, sizeof desc);
    memset(&adamw, 0, sizeof adamw);
    desc.shard = r->shard;
    desc.bucket_bytes = desc.first_bucket_bytes = 2 * bytes;
    parallel = ignis_parallel_create(r->comm, r->all, PARAMETERS, &desc);
    CHECK(parallel.id);
    adamw.drop_grad = true;
    optimizer = ignis_adamw(&adamw);
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_optimizer_add(optimizer, r->all[i], true));
    step(r, input, optimizer);
    if (r->graph) {
        CHECK_OK(ignis_comm_synchronize(r->comm));
        CHECK_OK(ignis_graph_begin());
        step(r, input, optimizer);
        graph = ignis_graph_end();
    }
    for (i = 1; i < STEPS; i++)
        if (r->graph)
            CHECK_OK(ignis_graph_launch(graph));
        else
            step(r, input, optimizer);
    CHECK_OK(ignis_comm_synchronize(r->comm));
    for (i = 0; i < PARAMETERS; i++)
        CHECK_OK(ignis_array_to_host_raw(ignis_tensor_data(r->all[i]), r->weights[i], bytes));
    count = ignis_memory_rows(info.device, rows, COUNT_OF(rows));
    for (i = 0, r->gradients = 0; i < count && i < COUNT_OF(rows); i++)
        r->gradients += strcmp(rows[i].tag, "gradients") == 0 ? rows[i].peak_bytes : 0;
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_parallel_free(parallel));
    CHECK_OK(ignis_optimizer_free(optimizer));
    for (i = 0; i < PARAMETERS; i++)
        let_go(r->all[i]);
    let_go(input);
}

static void *train_thread(void *context)
{
    train((rank *)context);
    return NULL;
}

/*  Trains by ranks, each a thread with a device. */
static void train_all(rank *ranks, ignis_shard shard, int mode, bool graph)
{
    pthread_t threads[RANKS];
    ignis_comm comms[RANKS];
    int i;
    CHECK_OK(ignis_comm_init_all(comms, NULL, RANKS, NULL));
    for (i = 0; i < RANKS; i++) {
        ranks[i].comm = comms[i], ranks[i].shard = shard, ranks[i].mode = mode, ranks[i].graph = graph;
        ranks[i].width = 32;
        pthread_create(&threads[i], NULL, train_thread, &ranks[i]);
    }
    for (i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < RANKS; i++)
        CHECK_OK(ignis_comm_destroy(comms[i]));
}

TEST(the_same_weights)
{
    static const ignis_shard shards[] = {IGNIS_SHARD_NONE, IGNIS_SHARD_GRADIENTS, IGNIS_SHARD_PARAMETERS};
    static rank plain[2][RANKS], got[RANKS];
    int shard, mode, graph, i;
    SETUP(NULL);
    NEEDS_DEVICES(RANKS);
    for (shard = 0; shard < COUNT_OF(shards); shard++)
        for (graph = 0; graph < 2; graph++)
            for (mode = 0; mode < MODES; mode++) {
                rank *ranks = mode || shard ? got : plain[graph];
                train_all(ranks, shards[shard], mode, graph);
                for (i = 0; i < RANKS; i++)
                    CHECK(memcmp(ranks[i].weights, plain[graph][0].weights, sizeof ranks[i].weights) == 0);
            }
}

/*  Checkpoints let buckets go as soon as the layers before them have run: never does a rank have all gradients. */
TEST(gradients_are_sent_in_time)
{
    int64_t gradients[MODES];
    int mode;
    for (mode = 0; mode < MODES; mode++) {
        static rank r;
        ignis_comm_desc comm_desc;
        ignis_desc desc;
        memset(&desc, 0, sizeof desc);
        memset(&r, 0, sizeof r);
        memset(&comm_desc, 0, sizeof comm_desc);
        desc.dry_run = true;
        SETUP(&desc);
        comm_desc.size = RANKS;
        r.comm = ignis_comm_init(&comm_desc);
        r.shard = IGNIS_SHARD_GRADIENTS, r.mode = mode, r.width = WIDTH_MAX;
        train(&r);
        gradients[mode] = r.gradients;
        CHECK_OK(ignis_comm_destroy(r.comm));
        CHECK_OK(ignis_shutdown());
    }
    CHECK_INT(gradients[1], gradients[0]);
    CHECK_INT(gradients[2], gradients[0]);
    CHECK(gradients[0] > 0 && gradients[0] < PARAMETERS * (int64_t)sizeof(float) * WIDTH_MAX * WIDTH_MAX);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
