// SPDX-License-Identifier: MIT
/*  models.h - GPT-2 and a Llama in bf16, as bench_training.c and bench_parallel.c train them; and what benchmarks make
    tensors by

    Include it after Ignis. On the simulator the sizes are tiny. */
#ifndef MODELS_H
#define MODELS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

#define REQUIRE(call) require((call) == 0, #call)

static bool simulated;

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static ignis_tensor parameter(ignis_shape shape, ignis_dtype dtype, double deviation, bool requires_grad)
{
    ignis_tensor_desc desc;
    ignis_tensor tensor;
    memset(&desc, 0, sizeof desc);
    desc.dtype = dtype;
    desc.requires_grad = requires_grad;
    tensor = deviation == 0   ? ignis_tensor_zeros(shape, &desc)
             : deviation == 1 ? ignis_tensor_randn(shape, &desc)
                              : ignis_tensor_ones(shape, &desc);
    if (deviation != 0 && deviation != 1 && deviation > 0) {
        ignis_tensor_release(tensor);
        tensor = ignis_tensor_randn(shape, &desc);
        REQUIRE(ignis_array_scale(ignis_tensor_data(tensor), ignis_tensor_data(tensor), deviation));
    }
    require(tensor.id != 0, "making a tensor");
    return tensor;
}

enum { ONES = -1 }; /* as a deviation */

static ignis_tensor random_ids(ignis_shape shape, int64_t below)
{
    int64_t numel = 1, i;
    uint64_t state = 88172645463325252u;
    ignis_tensor_desc desc;
    ignis_tensor tensor;
    int32_t *ids;
    for (i = 0; i < shape.ndim; i++)
        numel *= shape.dim[i];
    ids = (int32_t *)malloc(sizeof *ids * (size_t)numel);
    for (i = 0; i < numel; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        ids[i] = (int32_t)((state >> 20) % (uint64_t)below);
    }
    memset(&desc, 0, sizeof desc);
    desc.dtype = IGNIS_I32;
    tensor = ignis_tensor_from_host(ids, shape, &desc);
    free(ids);
    require(tensor.id != 0, "making ids");
    return tensor;
}

/* --- GPT-2 -------------------------------------------------------------------------------------------------------- */

enum { MAX_LAYERS = 48 };

typedef struct gpt_shape {
    const char *name;
    int64_t layers, width, heads, sequences;
} gpt_shape;

static const gpt_shape gpt_124m = {"GPT-2 124M", 12, 768, 12, 32}, gpt_1558m = {"GPT-2 1.5B", 48, 1600, 25, 8};

typedef struct gpt {
    int64_t layers, width, heads, context, sequences, vocab, classes;
    ignis_tensor tokens, targets, table, positions, norm_weight, norm_bias;
    struct {
        ignis_tensor norm1_weight, norm1_bias, qkv_weight, qkv_bias, out_weight, out_bias;
        ignis_tensor norm2_weight, norm2_bias, up_weight, up_bias, down_weight, down_bias;
    } layer[MAX_LAYERS];
    ignis_tensor all[4 + 12 * MAX_LAYERS];
    bool decays[4 + 12 * MAX_LAYERS];
    int count;
    ignis_optimizer optimizer;
    ignis_graph graph;
} gpt;

static void gpt_size(gpt *g, const gpt_shape *shape)
{
    g->layers = simulated ? 2 : shape->layers;
    g->width = simulated ? 32 : shape->width;
    g->heads = simulated ? 2 : shape->heads;
    g->context = simulated ? 16 : 1024;
    g->sequences = simulated ? 2 : shape->sequences;
    g->classes = simulated ? 61 : 50257;
    g->vocab = simulated ? 64 : 50304;
}

static ignis_tensor gpt_parameter(gpt *g, ignis_shape shape, double deviation)
{
    ignis_tensor tensor = parameter(shape, IGNIS_BF16, deviation, true);
    g->decays[g->count] = shape.ndim > 1;
    g->all[g->count++] = tensor;
    return tensor;
}

static void gpt_open(gpt *g, const gpt_shape *shape)
{
    int64_t c, i;
    gpt_size(g, shape);
    c = g->width;
    g->count = 0;
    g->tokens = random_ids(IGNIS_SHAPE(g->sequences, g->context), g->classes);
    g->targets = random_ids(IGNIS_SHAPE(g->sequences, g->context), g->classes);
    g->table = gpt_parameter(g, IGNIS_SHAPE(g->vocab, c), 0.02);
    g->positions = gpt_parameter(g, IGNIS_SHAPE(g->context, c), 0.02);
    for (i = 0; i < g->layers; i++) {
        g->layer[i].norm1_weight = gpt_parameter(g, IGNIS_SHAPE(c), ONES);
        g->layer[i].norm1_bias = gpt_parameter(g, IGNIS_SHAPE(c), 0);
        g->layer[i].qkv_weight = gpt_parameter(g, IGNIS_SHAPE(3 * c, c), 0.02);
        g->layer[i].qkv_bias = gpt_parameter(g, IGNIS_SHAPE(3 * c), 0);
        g->layer[i].out_weight = gpt_parameter(g, IGNIS_SHAPE(c, c), 0.02);
        g->layer[i].out_bias = gpt_parameter(g, IGNIS_SHAPE(c), 0);
        g->layer[i].norm2_weight = gpt_parameter(g, IGNIS_SHAPE(c), ONES);
        g->layer[i].norm2_bias = gpt_parameter(g, IGNIS_SHAPE(c), 0);
        g->layer[i].up_weight = gpt_parameter(g, IGNIS_SHAPE(4 * c, c), 0.02);
        g->layer[i].up_bias = gpt_parameter(g, IGNIS_SHAPE(4 * c), 0);
        g->layer[i].down_weight = gpt_parameter(g, IGNIS_SHAPE(c, 4 * c), 0.02);
        g->layer[i].down_bias = gpt_parameter(g, IGNIS_SHAPE(c), 0);
    }
    g->norm_weight = gpt_parameter(g, IGNIS_SHAPE(c), ONES);
    g->norm_bias = gpt_parameter(g, IGNIS_SHAPE(c), 0);
}

static void gpt_optimize(gpt *g)
{
    ignis_adamw_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.lr = 3e-4;
    desc.weight_decay = 0.1;
    desc.drop_grad = true;
    g->optimizer = ignis_adamw(&desc);
    for (i = 0; i < g->count; i++)
        REQUIRE(ignis_optimizer_add(g->optimizer, g->all[i], g->decays[i]));
}

static void gpt_close(gpt *g)
{
    int i;
    REQUIRE(ignis_optimizer_free(g->optimizer));
    for (i = 0; i < g->count; i++)
        REQUIRE(ignis_tensor_release(g->all[i]));
    REQUIRE(ignis_tensor_release(g->tokens));
    REQUIRE(ignis_tensor_release(g->targets));
}

static void gpt_step(const gpt *g)
{
    ignis_scope scope = ignis_scope_begin(), inside;
    ignis_cross_entropy_desc entropy;
    ignis_sdpa_desc attention;
    ignis_tensor x, h;
    int64_t i;
    memset(&entropy, 0, sizeof entropy);
    memset(&attention, 0, sizeof attention);
    entropy.classes = g->classes;
    attention.num_heads = (int)g->heads;
    x = ignis_add(ignis_embedding(g->table, g->tokens), g->positions);
    h = ignis_layer_norm(x, g->layer[0].norm1_weight, g->layer[0].norm1_bias, 1e-5);
    for (i = 0; i < g->layers; i++) {
        bool is_last = i == g->layers - 1;
        inside = ignis_scope_begin();
        h = ignis_sdpa_packed(ignis_linear(h, g->layer[i].qkv_weight, g->layer[i].qkv_bias), &attention, NULL);
        h = ignis_scope_return(inside, ignis_linear(h, g->layer[i].out_weight, g->layer[i].out_bias));
        h = ignis_add_layer_norm(x, h, g->layer[i].norm2_weight, g->layer[i].norm2_bias, 1e-5, &x);
        inside = ignis_scope_begin();
        h = ignis_scope_return(inside, ignis_mlp(h, g->layer[i].up_weight, g->layer[i].up_bias, g->layer[i].down_weight,
                                                 g->layer[i].down_bias, IGNIS_ACTIVATION_GELU));
        h = ignis_add_layer_norm(x, h, is_last ? g->norm_weight : g->layer[i + 1].norm1_weight,
                                 is_last ? g->norm_bias : g->layer[i + 1].norm1_bias, 1e-5, &x);
    }
    entropy.chunk = 16384; /* rows of logits that are there at a time */
    x = ignis_linear_cross_entropy(h, g->table, g->targets, &entropy);
    ignis_backward(x, IGNIS_NO_ARRAY);
    ignis_optimizer_step(g->optimizer);
    ignis_scope_end(scope);
}

/* --- Llama -------------------------------------------------------------------------------------------------------- */

enum { LLAMA_LAYERS = 80, LLAMA_PARAMETERS = 2 + 7 * LLAMA_LAYERS, LLAMA_SHAPES = 6 };

typedef struct llama_shape {
    const char *name;
    int64_t layers, width, hidden, heads, kv_heads, sequences, vocab;
} llama_shape;

/*  The shapes of Llama 3.2 1B and 3B, Llama 3.1 8B, Llama 2 13B, Code Llama 34B and Llama 3.1 70B: gated layers; one
    matrix for embedding and head, which from 8B on the published models have two of. */
static const llama_shape llama_shapes[LLAMA_SHAPES] = {
    {"llama-1b", 16, 2048, 8192, 32, 8, 4, 128256},  {"llama-3b", 28, 3072, 8192, 24, 8, 4, 128256},
    {"llama-8b", 32, 4096, 14336, 32, 8, 2, 128256}, {"llama-13b", 40, 5120, 13824, 40, 40, 1, 32000},
    {"llama-34b", 48, 8192, 22016, 64, 8, 1, 32000}, {"llama-70b", 80, 8192, 28672, 64, 8, 1, 128256}};

/*  Activations of a layer that are not there between its forward and its backward. */
typedef enum llama_recompute {
    LLAMA_NONE,
    LLAMA_ALL,
    LLAMA_KEEP_PRODUCTS,
    LLAMA_OFFLOAD,
    LLAMA_RECOMPUTES
} llama_recompute;

static const char *const llama_recomputes[LLAMA_RECOMPUTES] = {"none", "all", "keep-products", "offload"};

typedef struct llama {
    int64_t layers, width, hidden, heads, kv_heads, context, sequences, vocab;
    llama_recompute recompute;
    ignis_tensor tokens, targets, table, norm_weight;
    struct llama_layer {
        ignis_tensor norm1_weight, qkv_weight, out_weight, norm2_weight, gate_weight, up_weight, down_weight;
    } layer[LLAMA_LAYERS];
    ignis_tensor all[LLAMA_PARAMETERS];
    bool decays[LLAMA_PARAMETERS];
    int count;
    ignis_optimizer optimizer;
} llama;

static int64_t llama_parts = 1; /* ranks that divide the matrices; then their sequences are those of all together */

static ignis_tensor llama_parameter(llama *l, ignis_shape shape)
{
    ignis_tensor tensor = parameter(shape, IGNIS_BF16, shape.ndim > 1 ? 0.02 : ONES, true);
    l->decays[l->count] = shape.ndim > 1;
    l->all[l->count++] = tensor;
    return tensor;
}

/*  context: the tokens of a sequence. */
static void llama_open_with(llama *l, const llama_shape *shape, int64_t context)
{
    int64_t c, i, head;
    memset(l, 0, sizeof *l);
    l->layers = simulated ? 2 : shape->layers, l->width = c = simulated ? 64 : shape->width;
    l->hidden = simulated ? 4 * c : shape->hidden;
    l->heads = simulated ? 4 : shape->heads, l->kv_heads = simulated ? 2 : shape->kv_heads;
    l->context = simulated ? 16 : context, l->sequences = simulated ? 2 : shape->sequences;
    l->vocab = simulated ? 64 : shape->vocab;
    head = c / l->heads;
    l->heads /= llama_parts, l->kv_heads /= llama_parts, l->hidden /= llama_parts, l->sequences *= llama_parts;
    l->tokens = random_ids(IGNIS_SHAPE(l->sequences, l->context), l->vocab);
    l->targets = random_ids(IGNIS_SHAPE(l->sequences, l->context), l->vocab);
    l->table = llama_parameter(l, IGNIS_SHAPE((l->vocab + llama_parts - 1) / llama_parts, c));
    l->norm_weight = llama_parameter(l, IGNIS_SHAPE(c));
    for (i = 0; i < l->layers; i++) {
        l->layer[i].norm1_weight = llama_parameter(l, IGNIS_SHAPE(c));
        l->layer[i].qkv_weight = llama_parameter(l, IGNIS_SHAPE((l->heads + 2 * l->kv_heads) * head, c));
        l->layer[i].out_weight = llama_parameter(l, IGNIS_SHAPE(c, l->heads * head));
        l->layer[i].norm2_weight = llama_parameter(l, IGNIS_SHAPE(c));
        l->layer[i].gate_weight = llama_parameter(l, IGNIS_SHAPE(l->hidden, c));
        l->layer[i].up_weight = llama_parameter(l, IGNIS_SHAPE(l->hidden, c));
        l->layer[i].down_weight = llama_parameter(l, IGNIS_SHAPE(c, l->hidden));
    }
}

static inline void llama_open(llama *l, const llama_shape *shape) { llama_open_with(l, shape, 2048); }

/*  Makes the optimizer; with shards after ignis_parallel_create. */
static inline void llama_optimize(llama *l)
{
    ignis_adamw_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.lr = 3e-4, desc.weight_decay = 0.1;
    desc.drop_grad = desc.split_master = true;
    l->optimizer = ignis_adamw(&desc);
    for (i = 0; i < l->count; i++)
        REQUIRE(ignis_optimizer_add(l->optimizer, l->all[i], l->decays[i]));
}

static void llama_close(llama *l)
{
    int i;
    REQUIRE(ignis_optimizer_free(l->optimizer));
    for (i = 0; i < l->count; i++)
        REQUIRE(ignis_tensor_release(l->all[i]));
    REQUIRE(ignis_tensor_release(l->tokens));
    REQUIRE(ignis_tensor_release(l->targets));
}

/*  Returns the norm of *x + out; *x becomes that sum. Releases *x, the norm h before and out: the tape keeps those that
    backward needs. */
static ignis_tensor llama_add_norm(ignis_tensor *x, ignis_tensor h, ignis_tensor out, ignis_tensor weight)
{
    ignis_tensor sum, norm = ignis_add_rms_norm(*x, out, weight, 1e-5, &sum);
    REQUIRE(ignis_tensor_release(*x));
    REQUIRE(ignis_tensor_release(h));
    REQUIRE(ignis_tensor_release(out));
    *x = sum;
    return norm;
}

typedef struct llama_section {
    const llama *model;
    const struct llama_layer *layer;
} llama_section;

static ignis_tensor llama_attention(const llama *l, const struct llama_layer *layer, ignis_tensor h)
{
    ignis_scope inside = ignis_scope_begin();
    ignis_sdpa_desc attention;
    ignis_rope_desc rope;
    ignis_tensor none;
    memset(&attention, 0, sizeof attention);
    memset(&rope, 0, sizeof rope);
    memset(&none, 0, sizeof none);
    attention.num_heads = (int)l->heads;
    attention.num_kv_heads = (int)l->kv_heads;
    rope.num_heads = (int)(l->heads + l->kv_heads); /* of q and k */
    rope.base = 500000;
    h = ignis_sdpa_packed(ignis_linear(h, layer->qkv_weight, none), &attention, &rope);
    return ignis_scope_return(inside, ignis_linear(h, layer->out_weight, none));
}

/*  A layer as a function of one tensor, for ignis_checkpoint. */
static ignis_tensor llama_layer_run(const ignis_tensor *inputs, int count, void *user_data)
{
    const llama_section *section = (const llama_section *)user_data;
    const struct llama_layer *layer = section->layer;
    ignis_tensor x = inputs[0], h;
    (void)count;
    h = llama_attention(section->model, layer, ignis_rms_norm(x, layer->norm1_weight, 1e-5));
    h = ignis_add_rms_norm(x, h, layer->norm2_weight, 1e-5, &x);
    return ignis_add(x, ignis_mlp_gated(h, layer->gate_weight, layer->up_weight, layer->down_weight));
}

/*  Runs the layers as checkpoints. Returns the last one's result after the norm. */
static ignis_tensor llama_run_checkpoints(const llama *l, ignis_tensor x)
{
    static llama_section sections[LLAMA_LAYERS]; /* alive until backward */
    ignis_checkpoint_desc desc;
    int64_t i;
    memset(&desc, 0, sizeof desc);
    desc.recompute = (ignis_recompute)(l->recompute - LLAMA_ALL);
    for (i = 0; i < l->layers; i++) {
        sections[i].model = l;
        sections[i].layer = &l->layer[i];
        x = ignis_checkpoint(llama_layer_run, &sections[i], &x, 1, &desc);
    }
    return ignis_rms_norm(x, l->norm_weight, 1e-5);
}

static void llama_step(const llama *l)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor x, h, out;
    int64_t i;
    x = ignis_embedding(l->table, l->tokens);
    h = l->recompute ? llama_run_checkpoints(l, x) : ignis_rms_norm(x, l->layer[0].norm1_weight, 1e-5);
    for (i = 0; !l->recompute && i < l->layers; i++) {
        h = llama_add_norm(&x, h, llama_attention(l, &l->layer[i], h), l->layer[i].norm2_weight);
        out = ignis_mlp_gated(h, l->layer[i].gate_weight, l->layer[i].up_weight, l->layer[i].down_weight);
        h = llama_add_norm(&x, h, out, i + 1 < l->layers ? l->layer[i + 1].norm1_weight : l->norm_weight);
    }
    x = ignis_linear_cross_entropy(h, l->table, l->targets, NULL);
    ignis_backward(x, IGNIS_NO_ARRAY);
    ignis_optimizer_step(l->optimizer);
    ignis_scope_end(scope);
}

/*  Returns the bytes of the parameters of a layer: buckets of that size for IGNIS_SHARD_PARAMETERS. */
static inline int64_t llama_layer_bytes(const llama *l)
{
    int64_t bytes = 0;
    int i;
    for (i = 2; i < 9; i++)
        bytes += ignis_array_size_bytes(ignis_tensor_data(l->all[i]));
    return bytes;
}

/*  Returns the place of a name in a list. */
static inline int find_name(const char *name, const char *const *names, int count)
{
    int i = 0;
    while (i < count && strcmp(name, names[i]) != 0)
        i++;
    require(i < count, name);
    return i;
}

static const char *const shard_names[] = {"none", "optimizer", "gradients", "parameters"};

#endif /* MODELS_H */
