// SPDX-License-Identifier: MIT
/*  bench_shards.c - training of a Llama whose weights, gradients and optimizer state the ranks share: speed and memory

    Each rank trains on 4 sequences (8B: 2) of 2048 tokens, in bf16, with AdamW. Figures are tokens a second of all
    ranks together, the median of three runs of steps that begin and end with idle ranks, called one by one and as a
    CUDA graph; and the most memory that this rank's arrays had at a time, the beginning included.

        cc -O2 -I. bench/bench_shards.c -o bench_shards -lm -ldl -lpthread
        torchrun --no-python --nproc-per-node 4 ./bench_shards llama-8b parameters

    Any launcher that ignis_comm_init knows works; without one it uses one GPU. Arguments: llama-1b, -3b, -8b, -13b,
    -34b or -70b; none, optimizer, gradients or parameters; the size of a bucket in MiB (0: a layer with parameters,
    else 25); a file for what each kernel of rank 0 takes in a step (-: none); activations that backward computes
    again: none, all, or with keep-products and offload (to the host) all but results of products; the ranks that
    divide a copy of the model (0: all; -1: those of each host). Instead of a kind of shard, tensor divides the
    matrices (tensor-parallel layers): all ranks train on all sequences.
    For PyTorch: python3 bench/peer_shards.py
*/
#define _GNU_SOURCE
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"

#include "models.h"

typedef struct job {
    llama llama;
    const char *model, *kind;
    int shard_ranks;
    ignis_comm comm;
    ignis_comm_info ranks;
    ignis_graph graph; /* none: steps are called one by one */
} job;

enum { TENSOR = IGNIS_SHARD_COUNT }; /* the kind that divides matrices */

/*  As llama_step, with this rank's parts of the matrices. */
static void tensor_step(const llama *l, ignis_comm comm)
{
    ignis_scope scope = ignis_scope_begin(), inside;
    ignis_cross_entropy_desc loss;
    ignis_sdpa_desc attention;
    ignis_rope_desc rope;
    ignis_tensor x, h, none;
    int64_t i;
    memset(&loss, 0, sizeof loss);
    memset(&attention, 0, sizeof attention);
    memset(&rope, 0, sizeof rope);
    memset(&none, 0, sizeof none);
    loss.classes = l->vocab;
    attention.num_heads = (int)l->heads;
    attention.num_kv_heads = (int)l->kv_heads;
    rope.num_heads = (int)(l->heads + l->kv_heads); /* of q and k */
    rope.base = 500000;
    x = ignis_vocab_parallel_embedding(comm, l->table, l->tokens);
    h = ignis_rms_norm(x, l->layer[0].norm1_weight, 1e-5);
    for (i = 0; i < l->layers; i++) {
        inside = ignis_scope_begin();
        h = ignis_sdpa_packed(ignis_column_parallel_linear(comm, h, l->layer[i].qkv_weight, none), &attention, &rope);
        h = ignis_scope_return(inside, ignis_row_parallel_linear(comm, h, l->layer[i].out_weight, none));
        h = ignis_add_rms_norm(x, h, l->layer[i].norm2_weight, 1e-5, &x);
        inside = ignis_scope_begin();
        h = ignis_mlp_gated(ignis_comm_all_reduce_backward(comm, h), l->layer[i].gate_weight, l->layer[i].up_weight,
                            l->layer[i].down_weight);
        h = ignis_scope_return(inside, ignis_comm_all_reduce_forward(comm, h));
        h = ignis_add_rms_norm(x, h, i + 1 < l->layers ? l->layer[i + 1].norm1_weight : l->norm_weight, 1e-5, &x);
    }
    h = ignis_column_parallel_linear(comm, h, l->table, none);
    ignis_backward(ignis_vocab_parallel_cross_entropy(comm, h, l->targets, &loss), IGNIS_NO_ARRAY);
    ignis_optimizer_step(l->optimizer);
    ignis_scope_end(scope);
}

static void step_now(const job *j)
{
    if (llama_parts > 1)
        tensor_step(&j->llama, j->comm);
    else
        llama_step(&j->llama);
}

static void step(void *data)
{
    const job *j = (const job *)data;
    if (j->graph.id)
        REQUIRE(ignis_graph_launch(j->graph));
    else
        step_now(j);
}

/*  Measures steps, and prints the row. */
static void measure(job *j, const char *name)
{
    const double seconds =
        simulated ? median_step_seconds(j->comm, step, j, 1, 1, 1) : median_step_seconds(j->comm, step, j, 2, 3, 3);
    double tokens;
    ignis_memory_info memory;
    require(ignis_status_last() == IGNIS_OK, name);
    REQUIRE(ignis_memory_query(j->ranks.device, &memory));
    tokens = (double)(j->ranks.size / llama_parts * j->llama.sequences * j->llama.context) / seconds;
    if (j->ranks.rank == 0)
        printf("%s on %d, %-10s over %d, recompute %-13s %-18s %9.0f tokens/s  peak %6.2f GiB\n", j->model,
               j->ranks.size, j->kind, j->shard_ranks, llama_recomputes[j->llama.recompute], name, tokens,
               (double)memory.live_peak / (double)(1 << 30));
    fflush(stdout);
}

/*  Writes what each kernel of a step takes. */
static void profile(job *j, const char *path)
{
    wait_for_ranks(j->comm);
    REQUIRE(ignis_profile_begin());
    step(j);
    wait_for_ranks(j->comm);
    REQUIRE(ignis_profile_end(NULL, j->ranks.rank == 0 ? path : NULL));
}

int main(int argc, char **argv)
{
    const char *models[LLAMA_SHAPES];
    static job j;
    int model, kind = 0, i;
    ignis_parallel_desc desc;
    ignis_parallel parallel;
    ignis_parallel_info info;
    ignis_device_info device;
    for (i = 0; i < LLAMA_SHAPES; i++)
        models[i] = llama_shapes[i].name;
    model = argc > 1 ? find_name(argv[1], models, LLAMA_SHAPES) : 0;
    if (argc > 2)
        kind = strcmp(argv[2], "tensor") == 0 ? TENSOR : find_name(argv[2], shard_names, IGNIS_SHARD_COUNT);
    REQUIRE(ignis_setup(NULL));
    j.model = models[model];
    j.kind = kind == TENSOR ? "tensor" : shard_names[kind];
    j.comm = ignis_comm_init(NULL);
    REQUIRE(ignis_comm_query(j.comm, &j.ranks));
    REQUIRE(ignis_device_use(j.ranks.device));
    REQUIRE(ignis_device_query(j.ranks.device, &device));
    simulated = strstr(device.name, "Simulator") != NULL;
    if (simulated && j.ranks.rank == 0)
        printf("THIS IS THE SIMULATOR: the sizes are tiny, and the figures mean nothing.\n");
    llama_parts = kind == TENSOR ? j.ranks.size : 1;
    llama_open(&j.llama, &llama_shapes[model]);
    if (argc > 5)
        j.llama.recompute = (llama_recompute)find_name(argv[5], llama_recomputes, LLAMA_RECOMPUTES);
    memset(&desc, 0, sizeof desc);
    desc.shard = kind == TENSOR ? IGNIS_SHARD_NONE : (ignis_shard)kind;
    desc.shard_ranks = argc > 6 ? atoi(argv[6]) : 0;
    j.shard_ranks = j.ranks.size; /* that divide matrices */
    if (argc > 3 && atoll(argv[3]) > 0)
        desc.bucket_bytes = atoll(argv[3]) << 20;
    else if (desc.shard == IGNIS_SHARD_PARAMETERS)
        desc.bucket_bytes = desc.first_bucket_bytes = llama_layer_bytes(&j.llama);
    memset(&parallel, 0, sizeof parallel);
    if (kind != TENSOR) {
        parallel = ignis_parallel_create(j.comm, j.llama.all, j.llama.count, &desc);
        require(parallel.id != 0, "ignis_parallel_create");
        REQUIRE(ignis_parallel_query(parallel, &info));
        j.shard_ranks = info.shard_ranks;
    }
    llama_optimize(&j.llama);
    measure(&j, "called one by one");
    if (argc > 4 && strcmp(argv[4], "-") != 0)
        profile(&j, argv[4]);
    wait_for_ranks(j.comm);
    require(ignis_memory_trim(j.ranks.device) >= 0, "ignis_memory_trim"); /* a graph has memory of its own */
    REQUIRE(ignis_graph_begin());
    step_now(&j);
    j.graph = ignis_graph_end();
    require(j.graph.id != 0, "the capture");
    measure(&j, "CUDA graph");
    REQUIRE(ignis_graph_free(j.graph));
    REQUIRE(ignis_parallel_free(parallel));
    llama_close(&j.llama);
    REQUIRE(ignis_comm_destroy(j.comm));
    REQUIRE(ignis_shutdown());
    return 0;
}
