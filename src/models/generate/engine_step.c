/*  models/generate/engine_step.c - rows through all layers of a model, and the decode step as a CUDA graph

    A decode step has one row for each sequence. Its rows have the same bits alone and in any batch. A chunk of a
    prompt has many rows of one sequence, which take the kernels of ignis_matmul and ignis_sdpa. Rows, pages and
    positions are in device memory, so one graph serves all steps of a width (see ignis__step_width).
    May use: gemv.c, paged_attention.c, fused_step.c. Locks: the caller holds the engine's lock. */

#include "room.h"

/*  A pass of rows through the layers: the params of its kernels, and where the layer's keys begin. */
typedef struct ignis__layers_pass {
    ignis__op *op;
    ignis__engine *engine;
    int count, end, adapted, layer; /* adapted: products with adapters, as bits */
    bool is_chunk, inner_ordered;   /* inner_ordered: inner elements are in the order of operands of wgmma */
    ignis__address keys, values;
    ignis__pre_norm norm;
    ignis__gemv_desc desc;
    ignis__generate_cache cache;
    ignis__gemv_mma direct;
    ignis__paged paged;
} ignis__layers_pass;

/*  Launches the norm of a product apart, if the products' kernels cannot compute it. desc->norm is NULL then. */
static void ignis__engine_norm_apart(ignis__op *op, ignis__gemv_desc *desc)
{
    if (!desc->norm || (desc->norm->weight && !(desc->norm->offset > 0)))
        return;
    ignis__pre_norm_launch(op, desc->count, desc->x, desc->norm);
    desc->norm = NULL;
}

/*  Multiplies rows with weights, with the scratch of the engine. is_chunk: the rows are a chunk of a prompt, and have
    the same bits for any chunk size; else they have the same bits alone and in a batch. */
static void ignis__engine_multiply(ignis__op *op, ignis__engine *engine, bool is_chunk, ignis__gemv_desc *desc)
{
    desc->dequantised = engine->dequantised;
    desc->gate_up = engine->gate_up;
    desc->ordered = engine->gate_up;
    if (!is_chunk) {
        const ignis__pre_norm *norm = desc->norm;
        ignis__engine_norm_apart(op, desc);
        ignis__gemv_run(op, desc);
        desc->norm = norm;
        return;
    }
    if (desc->norm)
        ignis__pre_norm_launch(op, desc->count, desc->x, desc->norm);
    ignis__chunk_gemm(op, desc);
}

/*  Computes what adapters add to a product of a decode step, before the product: desc->delta. */
static void ignis__layers_adapt(ignis__layers_pass *pass, int product, ignis__gemv_desc *desc)
{
    desc->delta = NULL;
    if (pass->is_chunk || !(pass->adapted >> product & 1))
        return;
    if (desc->norm)
        ignis__pre_norm_launch(pass->op, pass->count, desc->x, desc->norm);
    desc->delta = pass->engine->delta;
    ignis__lora_launch(pass->op, pass->engine, pass->count, pass->layer * IGNIS__LORA_PRODUCTS + product, desc->x,
                       desc->delta);
}

/*  Adds what adapters add to a product to its result. */
static void ignis__layers_add_adapters(ignis__layers_pass *pass, int product, ignis__array *x, ignis__array *out)
{
    if (pass->adapted >> product & 1)
        ignis__lora_launch(pass->op, pass->engine, pass->count, pass->layer * IGNIS__LORA_PRODUCTS + product, x, out);
}

/*  Replaces the first rows of an array by their sums over the ranks. */
static void ignis__engine_sum_ranks(ignis__op *op, const ignis__engine *engine, const ignis__array *array, int64_t rows)
{
    const ignis_model_parallel *ranks = &engine->model->parallel;
    ignis_array none = IGNIS__ZERO, slice = op->ok ? ignis__array_slice(op->work.call, array, 0, 0, rows) : none;
    op->ok = op->ok && slice.id && ranks->sum_fn(ranks->group, slice) == IGNIS_OK;
    if (slice.id)
        ignis__array_discard(op->work.call, &slice);
}

/*  Adds the rows that `norm` would add to the sum before the next norm. */
static void ignis__pre_norm_add_pending(ignis__op *op, int count, ignis__pre_norm *norm)
{
    if (norm->other)
        ignis__pre_norm_launch(op, count, NULL, norm);
    norm->other = NULL;
}

/*  Adds `result` to `sum` after a norm, unless `norm` is NULL, and a scale. */
static void ignis__layers_add_result(ignis__layers_pass *pass, ignis__array *norm)
{
    ignis__op *op = pass->op;
    ignis__engine *engine = pass->engine;
    const ignis__model *model = engine->model;
    ignis__address sum, result, weight;
    int hidden = model->hidden;
    double eps = model->eps, offset = model->norm_offset, scale = model->residual_scale > 0 ? model->residual_scale : 1;
    void *params[] = {&sum, &result, &weight, &hidden, &eps, &offset, &scale};
    sum = ignis__op_write(op, engine->sum);
    result = ignis__op_write(op, engine->result);
    weight = norm ? ignis__op_read(op, norm) : 0;
    ignis__op_launch_row(op, IGNIS__BUILTIN(GENERATE_RESIDUAL), model->dtype, pass->count, 256, params);
}

/*  Multiplies x with weights and adds the result to `sum`; result_norm: a norm of the result first, or NULL. With
    several ranks, each one has a slice of the inner elements: rank 0 adds to the sum, the other ranks replace theirs,
    and a sum over the ranks follows. With many rows and one rank, pass->norm adds the result before the next norm. */
static void ignis__layers_multiply_add(ignis__layers_pass *pass, int product, ignis__array *x, ignis__array *weights,
                                       ignis__array *bias, ignis__array *result_norm)
{
    ignis__op *op = pass->op;
    ignis__engine *engine = pass->engine;
    const int count = pass->count;
    const bool is_chunk = pass->is_chunk;
    bool others = engine->model->parallel.rank > 0;
    ignis__gemv_kind kind =
        others && !is_chunk && engine->sum->dtype == IGNIS_F32 ? IGNIS__GEMV_LOGITS : IGNIS__GEMV_ADD;
    ignis__gemv_desc desc = {count,
                             kind,
                             false,
                             is_chunk ? engine->gate_up : engine->sum,
                             x,
                             weights,
                             others ? NULL : bias,
                             NULL,
                             NULL,
                             NULL,
                             NULL,
                             NULL,
                             NULL,
                             pass->inner_ordered && product == IGNIS__LORA_DOWN,
                             false};
    ignis__address sum = ignis__op_write(op, engine->sum);
    if (engine->result) {
        desc.kind = IGNIS__GEMV_OUT;
        desc.out = engine->result;
        ignis__engine_multiply(op, engine, is_chunk, &desc);
        ignis__layers_add_adapters(pass, product, x, desc.out);
        ignis__layers_add_result(pass, result_norm);
        return;
    }
    if (op->ok && others && kind == IGNIS__GEMV_ADD)
        op->ok = ignis__copy_zeros(&op->work, sum,
                                   count * engine->sum->shape.dim[1] * ignis__dtypes[engine->sum->dtype].size);
    ignis__engine_multiply(op, engine, is_chunk, &desc);
    ignis__layers_add_adapters(pass, product, x, desc.out);
    pass->norm.other = is_chunk ? engine->gate_up : NULL;
    if (engine->model->parallel.size > 1) {
        ignis__pre_norm_add_pending(op, count, &pass->norm);
        ignis__engine_sum_ranks(op, engine, engine->sum, count);
    }
}

static void ignis__layers_pass_begin(ignis__layers_pass *pass, ignis__op *op, ignis__engine *engine, int count, int end,
                                     bool is_chunk)
{
    const ignis__model *model = engine->model;
    ignis__generate_cache *cache = &pass->cache;
    ignis__paged *paged = &pass->paged;
    ignis__gemv_mma *direct = &pass->direct;
    memset(pass, 0, sizeof *pass);
    pass->op = op;
    pass->engine = engine;
    pass->count = count;
    pass->end = end;
    pass->is_chunk = is_chunk;
    if (engine->gathered && is_chunk) {
        cache->k_too = ignis__op_write(op, engine->gathered);
        cache->v_too = cache->k_too + (ignis__address)(engine->gathered->numel / 2 * ignis__dtypes[model->dtype].size);
    }
    cache->qkv = paged->q = ignis__op_write(op, engine->qkv);
    cache->rows = paged->rows = direct->places = ignis__op_write(op, engine->rows);
    cache->eps = model->eps;
    cache->weight_offset = model->norm_offset;
    cache->turning = model->rotary / 2;
    cache->heads = paged->heads = direct->heads = model->heads;
    cache->kv_heads = paged->kv_heads = direct->kv_heads = model->kv_heads;
    cache->head_dim = paged->head_dim = direct->head_dim = model->head_dim;
    paged->out = ignis__op_write(op, engine->attended);
    paged->scratch = ignis__op_write(op, engine->scratch);
    paged->ended = ignis__op_write(op, engine->block_counts);
    paged->q_row = engine->qkv->shape.dim[1];
    paged->softcap = model->softcap;
    cache->type = paged->type = (int)model->cache_type;
    paged->splits = engine->splits;
    paged->settled = end == 0;
    pass->norm.sum = engine->sum;
    pass->norm.eps = model->eps;
    pass->norm.rms = model->rms;
    pass->norm.offset = model->norm_offset;
    pass->norm.dtype = model->dtype;
    pass->desc.count = count;
}

/*  Computes norms of q and k over all heads, or layer norms of each head, in place. */
static void ignis__layers_norms_apart(ignis__layers_pass *pass, const ignis__engine_layer *layer)
{
    const ignis__model *model = pass->engine->model;
    ignis__address x = pass->cache.qkv, weight;
    long long stride = pass->paged.q_row;
    double eps = model->eps, offset = model->norm_offset;
    int n, i, centred = model->head_layer_norms;
    void *params[] = {&x, &weight, &stride, &n, &eps, &offset, &centred};
    for (i = 0; i < 2; i++) {
        const int heads = i == 0 ? model->heads : model->kv_heads;
        n = model->wide_norms ? heads * model->head_dim : model->head_dim;
        weight = ignis__op_read(pass->op, i == 0 ? layer->q_norm : layer->k_norm);
        ignis__op_launch(pass->op, IGNIS__BUILTIN(GENERATE_NORM_WIDTH), model->dtype, NULL,
                         ignis__launch_grid(pass->count, model->wide_norms ? 1 : heads, 1, 256, 1, 0), params);
        x += (ignis__address)((int64_t)heads * model->head_dim * ignis__dtypes[model->dtype].size);
    }
}

/*  Computes q, k and v of a layer, rotates them, and puts keys and values into the KV cache. */
static void ignis__layers_project(ignis__layers_pass *pass, int number)
{
    ignis__op *op = pass->op;
    ignis__engine *engine = pass->engine;
    const ignis__model *model = engine->model;
    const ignis__engine_layer *layer = &engine->layer[number];
    const ignis__rope_kind rope = model->layer[number].rope;
    const bool turns = model->rope && rope != IGNIS__ROPE_NONE, apart = model->wide_norms || model->head_layer_norms;
    ignis__gemv_desc *desc = &pass->desc;
    ignis__generate_cache *cache = &pass->cache;
    desc->kind = IGNIS__GEMV_OUT;
    desc->gated = false;
    desc->out = engine->qkv;
    desc->x = engine->normed;
    desc->weights = layer->qkv;
    desc->bias = layer->qkv_bias;
    desc->norm = &pass->norm;
    desc->cache = NULL;
    cache->k = pass->paged.k = pass->direct.keys = pass->keys;
    cache->v = pass->paged.v = pass->direct.values = pass->values;
    cache->rest_scale = model->layer[number].rest_scale;
    pass->paged.scale = model->layer[number].attention_scale;
    ignis__layers_adapt(pass, IGNIS__LORA_QKV, desc);
    pass->direct.frequencies =
        turns ? ignis__op_write(op, engine->rope_table) + (rope == IGNIS__ROPE_LOCAL ? 4 * IGNIS__ROPE_HALF : 0) : 0;
    if (!pass->is_chunk && !model->latent && !model->cache_type && !layer->q_norm && !layer->k_norm &&
        model->head_dim % 16 == 0 && !(cache->rest_scale > 0) &&
        ignis__gemv_uses_tensor_cores(op, model->dtype, layer->qkv)) {
        desc->kind = IGNIS__GEMV_CACHE;
        desc->cache = &pass->direct;
        desc->dequantised = engine->dequantised;
        desc->ordered = engine->gate_up;
        ignis__engine_norm_apart(op, desc);
        if (layer->qkv->blocks.count)
            ignis__gemv_run_quantised(op, desc);
        else
            ignis__gemv_run_dense(op, desc);
        return;
    }
    ignis__engine_multiply(op, engine, pass->is_chunk, desc);
    if (pass->is_chunk)
        ignis__layers_add_adapters(pass, IGNIS__LORA_QKV, desc->x, desc->out);
    if (model->latent)
        return;
    cache->q_weight = layer->q_norm && !apart ? ignis__op_read(op, layer->q_norm) : 0;
    cache->k_weight = layer->k_norm && !apart ? ignis__op_read(op, layer->k_norm) : 0;
    if (apart)
        ignis__layers_norms_apart(pass, layer);
    ignis__kv_cache_append(op, pass->count, model->dtype, cache,
                           turns ? engine->frequencies[rope == IGNIS__ROPE_LOCAL] : NULL);
}

/*  Computes latent attention of a layer, after its qkv: see latent.c. */
static void ignis__layers_attend_to_latents(ignis__layers_pass *pass, const ignis__engine_layer *layer)
{
    ignis__engine *engine = pass->engine;
    ignis__gemv_desc *desc = &pass->desc;
    ignis__latent_write(pass->op, engine, layer, &pass->paged, pass->count);
    if (layer->q_b) {
        desc->x = engine->q_normed;
        desc->out = engine->q;
        desc->weights = layer->q_b;
        desc->bias = NULL;
        desc->norm = NULL;
        desc->delta = NULL;
        ignis__engine_multiply(pass->op, engine, pass->is_chunk, desc);
    }
    ignis__latent_attend(pass->op, engine, layer, &pass->paged, pass->count, pass->is_chunk);
}

/*  Computes the gates of the results of attention. */
static void ignis__layers_gates(ignis__layers_pass *pass, const ignis__engine_layer *layer)
{
    ignis__gemv_desc *desc = &pass->desc;
    desc->kind = IGNIS__GEMV_OUT;
    desc->gated = false;
    desc->out = pass->engine->gates;
    desc->x = pass->engine->normed;
    desc->weights = layer->gate;
    desc->bias = NULL;
    desc->norm = &pass->norm;
    desc->cache = NULL;
    desc->delta = NULL;
    ignis__engine_multiply(pass->op, pass->engine, pass->is_chunk, desc);
}

/*  Computes a recurrent layer up to its last product. number: among the recurrent layers. */
static void ignis__layers_recur(ignis__layers_pass *pass, const ignis__engine_layer *layer, int number)
{
    ignis__op *op = pass->op;
    ignis__engine *engine = pass->engine;
    ignis__gemv_desc *desc = &pass->desc;
    desc->kind = IGNIS__GEMV_OUT;
    desc->gated = false;
    desc->out = engine->qkvz;
    desc->x = engine->normed;
    desc->weights = layer->qkv;
    desc->bias = NULL;
    desc->norm = NULL;
    desc->cache = NULL;
    ignis__pre_norm_launch(op, pass->count, engine->normed, &pass->norm);
    ignis__layers_adapt(pass, IGNIS__LORA_QKV, desc);
    ignis__engine_multiply(op, engine, pass->is_chunk, desc);
    if (pass->is_chunk)
        ignis__layers_add_adapters(pass, IGNIS__LORA_QKV, desc->x, desc->out);
    desc->out = engine->strengths;
    desc->weights = layer->strengths;
    desc->delta = NULL;
    ignis__engine_multiply(op, engine, pass->is_chunk, desc);
    ignis__delta_net_launch(op, engine, layer, number, pass->count, pass->end > 0 ? pass->count : 1);
}

/*  Returns the buffer for the inner elements of a layer's dense MLP, which may be the expert for all tokens. */
static ignis__array *ignis__layers_inner(const ignis__layers_pass *pass, const ignis__engine_layer *layer)
{
    return layer->router && pass->engine->shared_inner ? pass->engine->shared_inner : pass->engine->inner;
}

/*  Returns whether the inner elements go out in the order of operands: both products are by wgmma, and nothing else
    reads them. */
static bool ignis__layers_order_inner(const ignis__layers_pass *pass, const ignis__engine_layer *layer,
                                      const ignis__gemv_desc *up)
{
    ignis__gemv_desc down = *up;
    down.weights = layer->down;
    return !pass->is_chunk && !pass->engine->model->exact_gelu && !(pass->adapted >> IGNIS__LORA_DOWN & 1) &&
           ignis__gemv_uses_tensor_cores(pass->op, up->x->dtype, up->weights) &&
           ignis__gemv_uses_tensor_cores(pass->op, up->x->dtype, down.weights) &&
           ignis__gemv_takes_wgmma(pass->op, up) && ignis__gemv_takes_wgmma(pass->op, &down);
}

/*  Computes the inner elements of the MLP. */
static void ignis__layers_expand(ignis__layers_pass *pass, const ignis__engine_layer *layer)
{
    const ignis__model *model = pass->engine->model;
    ignis__gemv_desc *desc = &pass->desc;
    ignis__array *inner = ignis__layers_inner(pass, layer);
    long long elements = (long long)pass->count * inner->shape.dim[1];
    ignis__address x;
    const bool apart = pass->is_chunk && pass->adapted >> IGNIS__LORA_UP & 1; /* the activation follows the adapters */
    int exact = model->exact_gelu;
    void *params[] = {&x, &elements, &exact};
    desc->kind = (model->gelu && !model->exact_gelu) || model->gelu_gate ? IGNIS__GEMV_GELU : IGNIS__GEMV_OUT;
    desc->gated = !model->gelu;
    desc->out = inner;
    desc->x = pass->engine->normed;
    desc->weights = layer->up;
    desc->bias = layer->up_bias;
    desc->norm = &pass->norm;
    desc->cache = NULL;
    if (apart) {
        desc->kind = IGNIS__GEMV_OUT;
        desc->gated = false;
        desc->out = model->gelu ? inner : pass->engine->gate_up;
    }
    desc->ordered = pass->engine->gate_up;
    desc->orders = pass->inner_ordered = ignis__layers_order_inner(pass, layer, desc);
    ignis__layers_adapt(pass, IGNIS__LORA_UP, desc);
    ignis__engine_multiply(pass->op, pass->engine, pass->is_chunk, desc);
    desc->orders = false;
    if (apart)
        ignis__layers_add_adapters(pass, IGNIS__LORA_UP, desc->x, desc->out);
    if (apart && !model->gelu)
        ignis__gate_launch(pass->op, pass->count, inner, desc->out, (int)inner->shape.dim[1], model->gelu_gate);
    if (!model->exact_gelu && !(apart && model->gelu))
        return;
    x = ignis__op_write(pass->op, inner);
    ignis__op_launch_row(pass->op, IGNIS__BUILTIN(GENERATE_GELU), model->dtype,
                         ignis__clamp(ignis__ceil_div(elements, 256), 1, 1024), 256, params);
}

/*  Adds the results of a layer's experts. The expert for all tokens reads the sum before the others add to it. */
static void ignis__layers_experts(ignis__layers_pass *pass, const ignis__engine_layer *layer)
{
    if (layer->up) {
        ignis__layers_expand(pass, layer);
        pass->norm.other = NULL; /* it has been added */
    }
    ignis__pre_norm_launch(pass->op, pass->count, pass->engine->normed, &pass->norm);
    pass->norm.other = NULL; /* it has been added */
    ignis__experts_run(pass->op, pass->engine, layer, pass->count, pass->is_chunk);
    if (pass->engine->result)
        ignis__layers_add_result(pass, layer->mlp_norm_behind);
    if (!layer->up)
        return;
    if (layer->shared_gate)
        ignis__experts_run_shared_gate(pass->op, pass->engine, layer, pass->count);
    ignis__layers_multiply_add(pass, IGNIS__LORA_DOWN, ignis__layers_inner(pass, layer), layer->down, layer->down_bias,
                               layer->mlp_norm_behind);
}

/*  Computes attention of a layer up to its last product. at: keys of the next layer of each group of pages. */
static void ignis__layers_attend(ignis__layers_pass *pass, int number, ignis__address at[IGNIS__PAGE_GROUPS])
{
    ignis__op *op = pass->op;
    ignis__engine *engine = pass->engine;
    const ignis__model *model = engine->model;
    const ignis__engine_layer *layer = &engine->layer[number];
    const int g = model->layer[number].window > 0 && engine->groups[IGNIS__PAGES_OF_WINDOWS].layers
                      ? IGNIS__PAGES_OF_WINDOWS
                      : IGNIS__PAGES_OF_ALL;
    const int64_t page = ignis__engine_page_elements(engine) * ignis__dtypes[model->dtype].size;
    pass->keys = at[g];
    pass->values = pass->keys + (ignis__address)(engine->groups[g].pages * page);
    at[g] = pass->keys + (ignis__address)(ignis__engine_slabs(engine) * engine->groups[g].pages * page);
    pass->cache.table = pass->direct.table = pass->paged.table = g * ignis__engine_context_pages(engine);
    pass->paged.window = model->layer[number].window;
    pass->paged.sinks = layer->sinks ? ignis__op_read(op, layer->sinks) : 0;
    ignis__layers_project(pass, number);
    pass->norm.other = NULL; /* it has been added */
    if (layer->gate)
        ignis__layers_gates(pass, layer);
    if (model->latent)
        ignis__layers_attend_to_latents(pass, layer);
    else if (pass->is_chunk)
        ignis__chunk_attention(op, pass->count, pass->end, &pass->paged, engine->gathered);
    else
        ignis__paged_attention(op, pass->count, engine->step_rows, model->dtype, &pass->paged);
    if (layer->gate)
        ignis__delta_net_gate(op, engine, pass->count);
}

/*  Runs rows through all layers. Leaves their hidden states in `sum`, and their keys and values in the KV cache. end:
    0 if the rows belong to different sequences; else the length of their one sequence after them, which only a chunk
    reads. is_chunk: as in ignis__engine_multiply. adapted: products of which some rows have adapters, as bits. */
IGNIS__PRIVATE void ignis__engine_layers(ignis__op *op, ignis__engine *engine, int count, int end, bool is_chunk,
                                         int adapted)
{
    const ignis__model *model = engine->model;
    ignis__address at[IGNIS__PAGE_GROUPS]; /* keys of the next layer of a group */
    ignis__layers_pass pass;
    ignis__pre_norm *norm = &pass.norm;
    int i, g, recurrent = 0; /* recurrent: layers of that kind so far */
    ignis__layers_pass_begin(&pass, op, engine, count, end, is_chunk);
    pass.adapted = adapted;
    for (g = 0; g < IGNIS__PAGE_GROUPS; g++)
        at[g] = engine->caches[g] ? ignis__op_write(op, engine->caches[g]) : 0;
    ignis__embed_rows(op, count, engine);
    for (i = 0; op->ok && i < model->layers; i++) {
        const ignis__engine_layer *layer = &engine->layer[i];
        const bool recurs = model->layer[i].recurrent;
        ignis__array *attended = recurs ? engine->recalled : engine->attended;
        pass.layer = i;
        norm->weight = layer->attn_norm;
        norm->bias = layer->attn_norm_bias;
        if (recurs)
            ignis__layers_recur(&pass, layer, recurrent++);
        else
            ignis__layers_attend(&pass, i, at);
        norm->other = NULL; /* it has been added */
        if (!model->parallel_blocks)
            ignis__layers_multiply_add(&pass, IGNIS__LORA_O, attended, layer->o, layer->o_bias,
                                       layer->attn_norm_behind);
        norm->weight = model->parallel_blocks && !layer->mlp_norm ? layer->attn_norm : layer->mlp_norm;
        norm->bias = model->parallel_blocks && !layer->mlp_norm ? layer->attn_norm_bias : layer->mlp_norm_bias;
        if (layer->router) {
            ignis__layers_experts(&pass, layer);
            continue;
        }
        ignis__layers_expand(&pass, layer);
        if (model->parallel_blocks) { /* the MLP has read the sum */
            ignis__layers_multiply_add(&pass, IGNIS__LORA_O, attended, layer->o, layer->o_bias,
                                       layer->attn_norm_behind);
            ignis__pre_norm_add_pending(op, count, norm);
        }
        ignis__layers_multiply_add(&pass, IGNIS__LORA_DOWN, engine->inner, layer->down, layer->down_bias,
                                   layer->mlp_norm_behind);
    }
    ignis__pre_norm_add_pending(op, count, norm);
}

/*  Multiplies logits by the model's scale, and applies its softcap. */
static void ignis__engine_scale_logits(ignis__op *op, ignis__engine *engine, int count)
{
    const ignis__model *model = engine->model;
    ignis__address logits = ignis__op_write(op, engine->logits);
    long long stride = engine->logits->shape.dim[1];
    double scale = model->logit_scale > 0 ? model->logit_scale : 1, softcap = model->logit_softcap;
    int vocab = model->vocab;
    void *params[] = {&logits, &stride, &vocab, &scale, &softcap};
    if (scale == 1 && !(softcap > 0))
        return;
    ignis__op_launch(op, IGNIS__BUILTIN(GENERATE_LOGITS), model->dtype, NULL,
                     ignis__launch_grid(ignis__clamp(ignis__ceil_div(vocab, 1024), 1, 128), count, 1, 256, 1, 0),
                     params);
}

/*  Launches generate_step.cu, which computes the logits of one uploaded row. */
static void ignis__engine_launch_single(ignis__op *op, ignis__engine *engine)
{
    const ignis__model *model = engine->model;
    const int width = (model->heads + 2 * model->kv_heads) * model->head_dim, attended = model->heads * model->head_dim;
    const int n[] = {width, model->hidden, model->inner, model->hidden, model->vocab},
              k[] = {model->hidden, attended, model->hidden, model->inner, model->hidden};
    int64_t blocks = 1;
    double flops = 0;
    ignis__decode_step p;
    size_t shared;
    void *params[] = {&p};
    int i, j;
    memset(&p, 0, sizeof p);
    shared = ignis__engine_single_launch_shared(engine, &p);
    for (i = 0; i <= model->layers; i++) { /* orders the launch after writes on other streams */
        ignis__decode_step_arrays a = ignis__engine_layer_arrays(engine, i);
        for (j = 0; j < 4; j++) {
            flops += a.weights[j] && ignis__op_read(op, a.weights[j])
                         ? 2.0 * (double)(ignis__weight_rows(a.weights[j]) * ignis__weight_columns(a.weights[j]))
                         : 0.0;
            (void)(a.bias[j] && ignis__op_read(op, a.bias[j]));
        }
        for (j = 0; j < 2; j++) {
            (void)(a.norm[j] && ignis__op_read(op, a.norm[j]));
            (void)(a.norm_bias[j] && ignis__op_read(op, a.norm_bias[j]));
            (void)(a.head_norm[j] && ignis__op_read(op, a.head_norm[j]));
        }
    }
    for (i = 0; i < 5; i++) {
        ignis__decode_step_shape *shape = &p.shapes[i];
        shape->n = n[i];
        shape->k = k[i];
        shape->kind = i == 0 ? IGNIS__GEMV_CACHE : IGNIS__GEMV_OUT;
        shape->gated = i == 2 && !model->gelu;
        shape->head_dim = model->head_dim;
        shape->tiles = (int)ignis__ceil_div(n[i], shape->gated ? 8 : 16);
        blocks = shape->tiles > blocks ? shape->tiles : blocks;
    }
    p.layers = ignis__op_write(op, engine->layer_table);
    p.row = ignis__op_write(op, engine->rows);
    p.frequencies = model->rope ? ignis__op_write(op, engine->rope_table) : 0;
    p.embedding = ignis__op_read(op, engine->embedding);
    if (engine->embedding->blocks.count)
        p.table = ignis__quantised_part(&engine->embedding->blocks, 0, p.embedding);
    p.positions = engine->positions ? ignis__op_read(op, engine->positions) : 0;
    p.cache = ignis__op_write(op, engine->caches[IGNIS__PAGES_OF_ALL]);
    p.slab = engine->groups[IGNIS__PAGES_OF_ALL].pages * ignis__engine_page_elements(engine);
    p.logits = ignis__op_write(op, engine->logits);
    p.sums[0] = ignis__op_write(op, engine->step_scratch);
    p.sums[1] = p.sums[0] + 8 * (ignis__address)model->hidden;
    p.qkv = p.sums[1] + 8 * (ignis__address)model->hidden;
    p.attended = p.qkv + 4 * (ignis__address)width; /* two elements per word */
    p.inner = p.attended + 4 * (ignis__address)attended;
    p.found = p.inner + 4 * (ignis__address)model->inner;
    p.state = p.found + 8 * (ignis__address)((int64_t)model->heads * engine->splits * (2 + model->head_dim));
    p.eps = model->eps;
    p.scale = model->layer[0].attention_scale; /* all layers have the same */
    p.count = model->layers;
    p.rms = model->rms;
    p.heads = model->heads;
    p.kv_heads = model->kv_heads;
    p.head_dim = model->head_dim;
    p.splits = engine->splits;
    ignis__cost(-1, flops, (int)model->dtype);
    ignis__op_launch(op, IGNIS__BUILTIN(GENERATE_STEP), model->dtype, engine->step_define,
                     ignis__launch_row(ignis__clamp(blocks, 1, op->work.device->info.multiprocessors), 384, shared),
                     params);
}

/*  Launches a decode step of `count` uploaded rows: logits, then sampling. ready: their hidden states are in `sum`
    already, so the layers are left out. adapted: as in ignis__engine_layers. */
IGNIS__PRIVATE void ignis__engine_launch_step(ignis__op *op, ignis__engine *engine, int count,
                                              ignis__sampling_kind draws, bool ready, int adapted)
{
    ignis__address logits, agreement;
    ignis__pre_norm norm;
    ignis__draw p;
    bool single = !ready && count == 1 && engine->layer_table && !adapted;
    if (single)
        ignis__engine_launch_single(op, engine);
    else if (!ready)
        ignis__engine_layers(op, engine, count, engine->one_sequence ? count : 0, false, adapted);
    memset(&norm, 0, sizeof norm);
    norm.sum = engine->sum;
    norm.weight = engine->norm;
    norm.bias = engine->norm_bias;
    norm.eps = engine->model->eps;
    norm.rms = engine->model->rms;
    norm.offset = engine->model->norm_offset;
    norm.dtype = engine->model->dtype;
    if (engine->model->parallel.size > 1) { /* the agreement follows the first row of logits */
        logits = ignis__op_write(op, engine->logits);
        agreement = ignis__op_write(op, engine->agreement);
        op->ok = op->ok &&
                 ignis__copy_zeros(&op->work, logits, count * engine->logits->shape.dim[1] * (int64_t)sizeof(float)) &&
                 ignis__copy_on_device(&op->work, logits + (ignis__address)engine->model->vocab * sizeof(float),
                                       agreement, ignis__array_bytes(engine->agreement));
    }
    if (!single) {
        ignis__gemv_desc desc = {count,
                                 IGNIS__GEMV_LOGITS,
                                 false,
                                 engine->rank_logits ? engine->rank_logits : engine->logits,
                                 engine->normed,
                                 engine->head,
                                 NULL,
                                 engine->dequantised,
                                 NULL,
                                 &norm,
                                 NULL,
                                 NULL,
                                 engine->gate_up,
                                 false,
                                 false};
        ignis__engine_norm_apart(op, &desc);
        ignis__gemv_run(op, &desc);
    }
    if (engine->model->parallel.size > 1)
        ignis__engine_sum_ranks(op, engine, engine->logits, count);
    ignis__engine_scale_logits(op, engine, count);
    if (draws == IGNIS__SAMPLING_NONE)
        return;
    memset(&p, 0, sizeof p);
    p.logits = ignis__op_write(op, engine->logits);
    p.scores = ignis__op_write(op, engine->scores);
    p.rows = ignis__op_write(op, engine->rows);
    p.biases = ignis__op_write(op, engine->biases);
    p.parts = ignis__op_write(op, engine->parts);
    p.bins = ignis__op_write(op, engine->bins);
    p.stride = engine->logits->shape.dim[1];
    p.vocab = engine->model->vocab;
    p.bias_room = IGNIS__BIASES;
    p.masks = ignis__op_write(op, engine->masks);
    p.mask_room = (int)engine->masks->shape.dim[1];
    ignis__sampling_launch(op, count, draws, &p);
}

/*  Destroys the graph of a step, which is captured again when it is needed. The device is idle. */
static void ignis__engine_step_forget(const char *call, ignis__engine *engine, ignis__engine_step *step)
{
    ignis__graph_destroy(call, step->capture, step->exec);
    step->capture = NULL;
    step->exec = NULL;
    engine->graph_count--;
}

/*  Destroys the graphs that were used longest ago until there is room for another one. The device is idle. */
static void ignis__engine_make_room_for_graph(const char *call, ignis__engine *engine)
{
    ignis__engine_step *step = (ignis__engine_step *)(void *)engine->steps, *oldest;
    const int count = (int)(sizeof engine->steps / sizeof *step);
    int i;
    while (engine->graph_count >= engine->max_graphs) {
        for (i = 0, oldest = NULL; i < count; i++)
            if (step[i].exec && (!oldest || step[i].used < oldest->used))
                oldest = &step[i];
        ignis__engine_step_forget(call, engine, oldest);
    }
}

/*  Runs a decode step: the first time by launches, later as a captured graph. count: see ignis__step_width. */
IGNIS__PRIVATE void ignis__engine_run_step(ignis__op *op, ignis__engine *engine, int count, ignis__sampling_kind draws,
                                           int adapted)
{
    const char *call = op->work.call;
    const int number = count <= 64 ? ignis__log2((uint64_t)count) : 5 + count / 64;
    ignis__engine_step *step = &engine->steps[adapted][draws][engine->one_sequence][number];
    ignis__trace_item item;
    ignis__op captured;
    bool traced, captured_ok;
    if (step->runs++ == 0) { /* compiles the kernels, which a capture cannot do */
        ignis__engine_launch_step(op, engine, count, draws, false, adapted);
        return;
    }
    if (op->ok && !step->exec) {
        op->ok = ignis__device_wait(call, engine->device);
        if (op->ok)
            ignis__engine_make_room_for_graph(call, engine);
        op->ok = op->ok && ignis__capture_begin(call, engine->device);
        if (!op->ok)
            return;
        engine->graph_count++;
        step->capture = ignis__capturing();
        captured_ok = ignis__op_begin_on_device(&captured, call, engine->device);
        if (captured_ok) {
            ignis__engine_launch_step(&captured, engine, count, draws, false, adapted);
            captured_ok = ignis__op_leave(&captured) == IGNIS_OK;
        }
        step->exec = ignis__capture_end(call, step->capture);
        op->ok = captured_ok && step->exec;
        if (!op->ok)
            ignis__engine_step_forget(call, engine, step);
    }
    step->used = ++engine->graphs_used;
    op->ok = op->ok && ignis__graph_launchable(call, engine->device, op->work.stream);
    if (!op->ok)
        return;
    traced = ignis__profiling() &&
             ignis__trace_open(&item, IGNIS__TRACED_GRAPH, call, engine->device, op->work.stream, NULL, "graph");
    op->ok = !IGNIS__CUDA_FAILED(call, engine->device, cuGraphLaunch, (step->exec, op->work.stream));
    if (traced)
        (void)ignis__trace_close(&item, op->ok);
}
