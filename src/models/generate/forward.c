/*  models/generate/forward.c - ignis_model_forward and _hidden: whole texts, by public operations

    The tape records these operations, so adapters can be trained through them. There is no KV cache here.
    May use: >>lora by the declarations below, because its parts come after this one; the weights of the model.
    Locks: none; the caller's handle is held for the call. */

#include "room.h"

IGNIS__PRIVATE struct ignis__lora *ignis__model_lora(ignis__model *model);
IGNIS__PRIVATE void ignis__lora_drop(const char *call, struct ignis__lora *lora);
IGNIS__PRIVATE bool ignis__lora_has(const struct ignis__lora *lora, const ignis__layer *layer, size_t member);
IGNIS__PRIVATE ignis_tensor ignis__lora_add(const struct ignis__lora *lora, const ignis__layer *layer, size_t member,
                                            ignis_tensor x, ignis_tensor y);

/*  Returns the norm of x; x itself if the model has no such norm. */
static ignis_tensor ignis__model_norm(const ignis__model *model, ignis_tensor x, ignis_tensor weight, ignis_tensor bias)
{
    ignis_tensor_desc desc;
    ignis_tensor ones;
    if (!weight.id)
        return x;
    memset(&desc, 0, sizeof desc);
    desc.dtype = model->dtype;
    desc.device = model->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(model->device - ignis__devices);
    if (!model->rms && !bias.id)
        bias = ignis_tensor_zeros(ignis_tensor_shape(weight), &desc);
    if (model->norm_offset > 0) { /* 1 + w would lose digits of w in 16 bits */
        ones = ignis_tensor_ones(ignis_tensor_shape(weight), &desc);
        x = ignis_rms_norm(x, ones, model->eps);
        return ignis_map("x*(1 + w)", IGNIS_INPUTS(x, IGNIS_NAMED(w, weight)));
    }
    return model->rms ? ignis_rms_norm(x, weight, model->eps) : ignis_layer_norm(x, weight, bias, model->eps);
}

/*  Returns the norm of each head of x [..., heads * head_dim], or of all heads together. */
static ignis_tensor ignis__model_head_norm(const ignis__model *model, ignis_tensor x, ignis_tensor weight, int heads)
{
    ignis_shape shape = ignis_tensor_shape(x), apart = shape;
    ignis_tensor_desc desc;
    ignis_tensor ones, zeros;
    if (!weight.id)
        return x;
    memset(&desc, 0, sizeof desc);
    desc.dtype = model->dtype;
    desc.device = model->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(model->device - ignis__devices);
    if (model->wide_norms)
        return ignis__model_norm(model, x, weight, ignis__no_tensor());
    if (shape.ndim < 1 || shape.ndim >= IGNIS_MAX_DIMS)
        return x;
    apart.dim[apart.ndim - 1] = heads;
    apart.dim[apart.ndim++] = model->head_dim;
    x = ignis_reshape(x, apart);
    if (model->head_layer_norms) {
        ones = ignis_tensor_ones(IGNIS_SHAPE(model->head_dim), &desc);
        zeros = ignis_tensor_zeros(IGNIS_SHAPE(model->head_dim), &desc);
        x = ignis_layer_norm(x, ones, zeros, model->eps);
        return ignis_reshape(ignis_mul(x, ignis_reshape(weight, IGNIS_SHAPE(heads, model->head_dim))), shape);
    }
    return ignis_reshape(ignis__model_norm(model, x, weight, ignis__no_tensor()), shape);
}

/*  Multiplies the elements of heads that do not rotate by the layer's scale for them. */
static ignis_tensor ignis__model_rest(const ignis__model *model, const ignis__layer *layer, ignis_tensor x, int heads)
{
    double factors[2 * IGNIS__MODEL_HALF];
    ignis_shape shape = ignis_tensor_shape(x), apart = shape;
    ignis_tensor_desc desc;
    ignis_shape one;
    int i;
    if (!(layer->rest_scale > 0) || shape.ndim < 1 || shape.ndim >= IGNIS_MAX_DIMS)
        return x;
    for (i = 0; i < model->head_dim; i++)
        factors[i] = i % (model->head_dim / 2) < model->rotary / 2 ? 1 : layer->rest_scale;
    memset(&desc, 0, sizeof desc);
    memset(&one, 0, sizeof one);
    desc.dtype = model->dtype;
    desc.host_dtype = IGNIS_F64;
    desc.device = model->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(model->device - ignis__devices);
    one.ndim = 1;
    one.dim[0] = model->head_dim;
    apart.dim[apart.ndim - 1] = heads;
    apart.dim[apart.ndim++] = model->head_dim;
    return ignis_reshape(ignis_mul(ignis_reshape(x, apart), ignis_tensor_from_host(factors, one, &desc)), shape);
}

/*  Multiplies x with a weight of a layer, and adds what the adapters add. */
#define IGNIS__MODEL_LINEAR(x, layer, weight)                       \
    ignis__lora_add(lora, layer, offsetof(ignis__layer, weight), x, \
                    ignis__model_linear(model, x, (layer)->weight, (layer)->weight##_bias))

static ignis_tensor ignis__model_attention(const ignis__model *model, const struct ignis__lora *lora,
                                           const ignis__layer *layer, ignis_tensor h, ignis_tensor lengths)
{
    const bool turns = model->rope && layer->rope != IGNIS__ROPE_NONE;
    ignis_sdpa_desc attention;
    ignis_tensor qkv, part[3], gate;
    ignis_rope_desc rope;
    int64_t sizes[3];
    if (model->latent)
        return ignis__model_latent_attention(model, lora, layer, h, lengths);
    qkv = IGNIS__MODEL_LINEAR(h, layer, qkv);
    if (layer->recurrent) {
        part[0] = ignis__model_linear(model, h, layer->strengths, ignis__no_tensor());
        h = ignis__model_delta_net(model, layer, qkv, part[0]);
        return IGNIS__MODEL_LINEAR(h, layer, o);
    }
    memset(&attention, 0, sizeof attention);
    memset(&rope, 0, sizeof rope);
    attention.num_heads = model->heads;
    attention.num_kv_heads = model->kv_heads;
    attention.scale = layer->attention_scale;
    attention.window = layer->window;
    attention.softcap = model->softcap;
    attention.mask = model->encoder ? IGNIS_MASK_NONE : IGNIS_MASK_CAUSAL;
    attention.sinks = layer->sinks;
    attention.lengths = lengths;
    rope.inv_freq_f64 = layer->rope == IGNIS__ROPE_LOCAL ? model->local_frequencies : model->frequencies;
    rope.inv_freq_count = model->head_dim / 2;
    gate = layer->gate.id ? ignis__model_linear(model, h, layer->gate, ignis__no_tensor()) : ignis__no_tensor();
    if (!layer->q_norm.id && !(layer->rest_scale > 0) && !gate.id) {
        h = ignis_sdpa_packed(qkv, &attention, turns ? &rope : NULL);
        return IGNIS__MODEL_LINEAR(h, layer, o);
    }
    sizes[0] = (int64_t)model->heads * model->head_dim;
    sizes[1] = sizes[2] = (int64_t)model->kv_heads * model->head_dim;
    if (ignis_split(qkv, -1, 3, sizes, part) != IGNIS_OK)
        return ignis__no_tensor();
    rope.num_heads = model->heads;
    part[0] = ignis__model_head_norm(model, part[0], layer->q_norm, model->heads);
    part[0] = turns ? ignis__model_rest(model, layer, ignis_rope(part[0], &rope), model->heads) : part[0];
    rope.num_heads = model->kv_heads;
    part[1] = ignis__model_head_norm(model, part[1], layer->k_norm, model->kv_heads);
    part[1] = turns ? ignis__model_rest(model, layer, ignis_rope(part[1], &rope), model->kv_heads) : part[1];
    h = ignis_sdpa(part[0], part[1], part[2], &attention);
    h = gate.id ? ignis_map("h*sigmoid(gate)", IGNIS_INPUTS(h, gate)) : h;
    return IGNIS__MODEL_LINEAR(h, layer, o);
}

/*  Returns the numbers 0 to count - 1 as i64. */
static ignis_tensor ignis__model_numbers(const ignis__model *model, int count)
{
    ignis_tensor_desc desc;
    ignis_inputs values;
    ignis_shape shape;
    memset(&desc, 0, sizeof desc);
    memset(&shape, 0, sizeof shape);
    memset(&values, 0, sizeof values);
    desc.dtype = IGNIS_I64;
    desc.device = model->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(model->device - ignis__devices);
    shape.ndim = 1;
    shape.dim[0] = count;
    return ignis_map_shape("index(0)", shape, values, &desc);
}

/*  Multiplies rows, sorted by expert, with their experts' matrices. inputs: rows, the weight, offsets. */
static ignis_tensor ignis__model_experts_product(const ignis_tensor *inputs, int count, void *user_data)
{
    static const char call[] = "ignis_model_forward";
    const ignis__blocks blocks = ignis__blocks_of(call, inputs[1]);
    const ignis_shape offsets = ignis_tensor_shape(inputs[2]);
    ignis_tensor weight = inputs[1];
    ignis_tensor_info info;
    (void)count, (void)user_data;
    if (ignis_tensor_query(inputs[0], &info) != IGNIS_OK || !offsets.ndim)
        return ignis__no_tensor();
    if (blocks.count) {
        (void)ignis_no_grad_begin();
        weight = ignis__model_dequantise(call, weight, &blocks, 0, ignis__blocks_rows(&blocks), info.dtype);
        (void)ignis_no_grad_end();
    }
    weight = ignis_reshape(weight, IGNIS_SHAPE(offsets.dim[0] - 1, -1, info.shape.dim[1]));
    return ignis_grouped_linear(inputs[0], weight, inputs[2]);
}

/*  As ignis_grouped_linear, with a weight of experts and their biases, or no tensor. Of a quantised weight the tape
    keeps only the blocks. experts: of the rows. */
static ignis_tensor ignis__model_experts_linear(ignis_tensor x, ignis_tensor weight, ignis_tensor bias,
                                                ignis_tensor experts, ignis_tensor offsets)
{
    const ignis_shape groups = ignis_tensor_shape(offsets);
    ignis_tensor inputs[3];
    inputs[0] = x;
    inputs[1] = weight;
    inputs[2] = offsets;
    x = ignis__blocks_of("ignis_model_forward", weight).count
            ? ignis_checkpoint(ignis__model_experts_product, NULL, inputs, 3, NULL)
            : ignis__model_experts_product(inputs, 3, NULL);
    if (!bias.id || !groups.ndim)
        return x;
    bias = ignis_embedding(ignis_reshape(bias, IGNIS_SHAPE(groups.dim[0] - 1, -1)), experts);
    return ignis_add(x, bias);
}

/*  Gates the inner elements of experts as gpt-oss does. */
static ignis_tensor ignis__model_clamped_gate(const ignis__model *model, ignis_tensor gate, ignis_tensor up)
{
    char formula[160];
    snprintf(formula, sizeof formula, "min(gate, %.9g)*sigmoid(1.702*min(gate, %.9g))*(max(min(up, %.9g), -%.9g) + 1)",
             model->expert_limit, model->expert_limit, model->expert_limit, model->expert_limit);
    return ignis_map(formula, IGNIS_INPUTS(gate, up));
}

/*  Returns which groups of experts a token has, [rows, groups, 1]: above 0. A group counts by the sum of its two
    largest sigmoids, or by its largest share of the softmax. choice: [rows, groups, experts of one]. */
static ignis_tensor ignis__model_used_groups(const ignis__model *model, ignis_tensor choice)
{
    ignis_tensor ids, found, group = ignis__model_numbers(model, model->groups);
    ignis_tensor sums = ignis_sum_dim(ignis_topk(choice, model->sigmoid ? 2 : 1, 2, true, &ids), 2);
    (void)ignis_topk(sums, model->used_groups, 1, true, &found);
    found = ignis_reshape(found, IGNIS_SHAPE(-1, 1, model->used_groups));
    group = ignis_reshape(group, IGNIS_SHAPE(model->groups, 1));
    found = ignis_cast(ignis_map("found == group ? 1 : 0", IGNIS_INPUTS(found, group)), IGNIS_F32);
    found = ignis_sum_dim(found, 2);
    return ignis_reshape(found, IGNIS_SHAPE(-1, model->groups, 1));
}

/*  Chooses experts by sigmoids, as ignis_experts_choose_sigmoid does. Returns their shares. */
static ignis_tensor ignis__model_choose_sigmoid(const ignis__model *model, const ignis__layer *layer, ignis_tensor x,
                                                ignis_tensor *ids)
{
    const ignis_dtype wide = ignis__wide_dtype(model->dtype);
    ignis_tensor logits = ignis_linear(ignis_cast(x, wide), ignis_cast(layer->router, wide), ignis__no_tensor());
    ignis_tensor scores = ignis_map("sigmoid(logits)", IGNIS_INPUTS(logits)), choice, used, shares, total;
    static const ignis_reduce_desc rows = {{-1}, 1, true};
    choice = ignis_map("scores + bias", IGNIS_INPUTS(scores, IGNIS_NAMED(bias, layer->choice_bias)));
    if (model->used_groups < model->groups) {
        choice = ignis_reshape(choice, IGNIS_SHAPE(-1, model->groups, model->experts / model->groups));
        used = ignis__model_used_groups(model, choice);
        choice = ignis_map("used > 0 ? choice : -inf", IGNIS_INPUTS(used, choice));
        choice = ignis_reshape(choice, IGNIS_SHAPE(-1, model->experts));
    }
    (void)ignis_topk(choice, model->chosen, 1, true, ids);
    shares = ignis_gather(scores, 1, *ids);
    if (model->normalises) {
        total = ignis_map_reduce(IGNIS_REDUCE_SUM, "shares", IGNIS_INPUTS(shares), &rows);
        shares = ignis_map("shares/(total + 1e-20)", IGNIS_INPUTS(shares, total));
    }
    return ignis_cast(ignis_scale(shares, model->routed_scale), model->dtype);
}

/*  Chooses experts by the softmax of their logits. Returns their shares. */
static ignis_tensor ignis__model_choose_softmax(const ignis__model *model, const ignis__layer *layer, ignis_tensor x,
                                                ignis_tensor *ids)
{
    static const ignis_reduce_desc rows = {{-1}, 1, true};
    ignis_tensor shares = ignis_softmax(ignis_linear(x, layer->router, layer->router_bias)), total, used;
    if (model->used_groups < model->groups) {
        shares = ignis_reshape(shares, IGNIS_SHAPE(-1, model->groups, model->experts / model->groups));
        used = ignis__model_used_groups(model, shares);
        shares = ignis_map("used > 0 ? shares : -1", IGNIS_INPUTS(used, shares));
        shares = ignis_reshape(shares, IGNIS_SHAPE(-1, model->experts));
    }
    shares = ignis_topk(shares, model->chosen, 1, true, ids);
    if (model->normalises) {
        total = ignis_map_reduce(IGNIS_REDUCE_SUM, "shares", IGNIS_INPUTS(shares), &rows);
        shares = ignis_map("shares/total", IGNIS_INPUTS(shares, total));
    }
    return model->routed_scale > 0 && model->routed_scale != 1 ? ignis_scale(shares, model->routed_scale) : shares;
}

/*  Computes a mixture of experts. A token is in as many rows as it has experts, and rows are sorted by expert. */
static ignis_tensor ignis__model_experts(const ignis__model *model, const ignis__layer *layer, ignis_tensor h)
{
    const ignis_shape shape = ignis_tensor_shape(h);
    ignis_tensor x = ignis_reshape(h, IGNIS_SHAPE(-1, model->hidden)), shares, ids, sorted, order, place, offsets,
                 token, gate, up;
    char formula[32];
    shares = model->sigmoid ? ignis__model_choose_sigmoid(model, layer, x, &ids)
                            : ignis__model_choose_softmax(model, layer, x, &ids);
    sorted = ignis_sort(ignis_reshape(ids, IGNIS_SHAPE(-1)), 0, false, &order);
    offsets = ignis_searchsorted(sorted, ignis__model_numbers(model, model->experts + 1), false);
    snprintf(formula, sizeof formula, "floor(order/%d)", model->chosen); /* of integers */
    token = ignis_map(formula, IGNIS_INPUTS(order));
    x = ignis_index_select(x, 0, token);
    gate = ignis__model_experts_linear(x, layer->gate_experts, layer->gate_experts_bias, sorted, offsets);
    up = ignis__model_experts_linear(x, layer->up_experts, layer->up_experts_bias, sorted, offsets);
    x = model->expert_limit > 0 ? ignis__model_clamped_gate(model, gate, up) : ignis_silu_mul(gate, up);
    x = ignis__model_experts_linear(x, layer->down_experts, layer->down_experts_bias, sorted, offsets);
    (void)ignis_sort(order, 0, false, &place); /* where each token's experts are */
    x = ignis_reshape(ignis_index_select(x, 0, place), IGNIS_SHAPE(-1, model->chosen, model->hidden));
    shares = ignis_reshape(shares, IGNIS_SHAPE(-1, model->chosen, 1));
    return ignis_reshape(ignis_sum_dim(ignis_map("x*shares", IGNIS_INPUTS(x, shares)), 1), shape);
}

static ignis_tensor ignis__model_dense_mlp(const ignis__model *model, const struct ignis__lora *lora,
                                           const ignis__layer *layer, ignis_tensor h)
{
    bool plain = !model->quantised && !ignis__lora_has(lora, layer, offsetof(ignis__layer, up)) &&
                 !ignis__lora_has(lora, layer, offsetof(ignis__layer, down));
    ignis_tensor part[2];
    if (plain && model->gelu && !model->exact_gelu)
        return ignis_mlp(h, layer->up, layer->up_bias, layer->down, layer->down_bias, IGNIS_ACTIVATION_GELU);
    if (plain && !model->gelu && !model->gelu_gate && !layer->up_bias.id && !layer->down_bias.id)
        return ignis_split(layer->up, 0, 2, NULL, part) == IGNIS_OK ? ignis_mlp_gated(h, part[0], part[1], layer->down)
                                                                    : ignis__no_tensor();
    h = IGNIS__MODEL_LINEAR(h, layer, up);
    if (model->exact_gelu)
        h = ignis_map("gelu_exact(h)", IGNIS_INPUTS(h));
    else if (model->gelu)
        h = ignis_gelu(h);
    else if (ignis_split(h, -1, 2, NULL, part) == IGNIS_OK)
        h = model->gelu_gate ? ignis_mul(ignis_gelu(part[0]), part[1]) : ignis_silu_mul(part[0], part[1]);
    else
        return ignis__no_tensor();
    return IGNIS__MODEL_LINEAR(h, layer, down);
}

/*  Computes the MLP: a dense one, or experts, and the expert for all tokens if the model has it. */
static ignis_tensor ignis__model_mlp(const ignis__model *model, const struct ignis__lora *lora,
                                     const ignis__layer *layer, ignis_tensor h)
{
    ignis_tensor y, shared, gate;
    if (!layer->router.id)
        return ignis__model_dense_mlp(model, lora, layer, h);
    y = ignis__model_experts(model, layer, h);
    if (!layer->up.id)
        return y;
    shared = ignis__model_dense_mlp(model, lora, layer, h);
    if (!layer->shared_gate.id)
        return ignis_add(y, shared);
    gate = ignis_linear(h, layer->shared_gate, ignis__no_tensor());
    return ignis_map("y + sigmoid(gate)*shared", IGNIS_INPUTS(y, gate, shared));
}

/*  Adds y to *x and returns the norm of the sum. Discards the old *x and y: the tape keeps what it needs. */
static ignis_tensor ignis__model_add_norm(const ignis__model *model, ignis_tensor *x, ignis_tensor y,
                                          ignis_tensor weight, ignis_tensor bias)
{
    static const char call[] = "ignis_model_forward";
    ignis_tensor before = *x, norm;
    norm = model->rms ? ignis_add_rms_norm(*x, y, weight, model->eps, x)
                      : ignis_add_layer_norm(*x, y, weight, bias, model->eps, x);
    ignis__tensor_discard(call, before);
    ignis__tensor_discard(call, y);
    return norm;
}

/*  Tells whether the additions and norms of a model are those of ignis_add_rms_norm or ignis_add_layer_norm. */
static bool ignis__model_fuses_norms(const ignis__model *model)
{
    const ignis__layer *first = &model->layer[0];
    return first->attn_norm.id && first->mlp_norm.id && !first->attn_norm_behind.id && !first->mlp_norm_behind.id &&
           !(model->norm_offset > 0) && !(model->residual_scale > 0) && !model->parallel_blocks &&
           (model->rms || first->attn_norm_bias.id);
}

/*  Returns x plus y, after its norm and its scale. */
static ignis_tensor ignis__model_add(const ignis__model *model, ignis_tensor x, ignis_tensor y, ignis_tensor behind)
{
    y = ignis__model_norm(model, y, behind, ignis__no_tensor());
    return model->residual_scale > 0
               ? ignis_map("x + scale*y", IGNIS_INPUTS(x, y, IGNIS_VALUE(scale, model->residual_scale)))
               : ignis_add(x, y);
}

/*  Applies a layer whose norms are not fused with additions. */
static ignis_tensor ignis__model_apply_layer(const ignis__model *model, const struct ignis__lora *lora,
                                             const ignis__layer *layer, ignis_tensor x, ignis_tensor lengths)
{
    ignis_tensor h, y;
    if (model->encoder) {
        y = ignis__model_attention(model, lora, layer, x, lengths);
        x = ignis__model_norm(model, ignis_add(x, y), layer->attn_norm_behind, layer->attn_norm_behind_bias);
        y = ignis__model_mlp(model, lora, layer, x);
        return ignis__model_norm(model, ignis_add(x, y), layer->mlp_norm_behind, layer->mlp_norm_behind_bias);
    }
    h = ignis__model_norm(model, x, layer->attn_norm, layer->attn_norm_bias);
    y = ignis__model_attention(model, lora, layer, h, lengths);
    if (model->parallel_blocks) {
        h = layer->mlp_norm.id ? ignis__model_norm(model, x, layer->mlp_norm, layer->mlp_norm_bias) : h;
        x = ignis__model_add(model, x, y, layer->attn_norm_behind);
    } else {
        x = ignis__model_add(model, x, y, layer->attn_norm_behind);
        h = ignis__model_norm(model, x, layer->mlp_norm, layer->mlp_norm_bias);
    }
    return ignis__model_add(model, x, ignis__model_mlp(model, lora, layer, h), layer->mlp_norm_behind);
}

/*  Applies all layers, and the last norm, one after the other. */
static ignis_tensor ignis__model_apply_layers(const ignis__model *model, const struct ignis__lora *lora, ignis_tensor x,
                                              ignis_tensor lengths)
{
    static const char call[] = "ignis_model_forward";
    int i;
    for (i = 0; i < model->layers; i++) {
        ignis_scope inner = ignis_scope_begin();
        ignis_tensor before = x;
        x = ignis_scope_return(inner, ignis__model_apply_layer(model, lora, &model->layer[i], x, lengths));
        ignis__tensor_discard(call, before);
    }
    return ignis__model_norm(model, x, model->norm, model->norm_bias);
}

/*  Returns the logits of the hidden states after the last norm. */
static ignis_tensor ignis__model_logits(const ignis__model *model, ignis_tensor h)
{
    ignis_tensor x = ignis__model_linear(model, h, model->head, ignis__no_tensor());
    if (model->logit_scale > 0)
        x = ignis_scale(x, model->logit_scale);
    if (model->logit_softcap > 0)
        x = ignis_map("cap*tanh(x/cap)", IGNIS_INPUTS(x, IGNIS_VALUE(cap, model->logit_softcap)));
    return x;
}

/*  Returns what the first layer reads: rows of the table, of positions and of types, scaled and normalised. */
static ignis_tensor ignis__model_embed_ids(const ignis__model *model, ignis_tensor ids, const ignis_hidden_desc *desc,
                                           int64_t seq)
{
    ignis_tensor x = ignis__model_embedding(model->embedding, ids, model->dtype);
    if (!model->rope)
        x = ignis_add(x, ignis_slice(model->positions, 0, model->first_position, seq));
    if (model->types.id)
        x = ignis_add(x, desc->types.id ? ignis_embedding(model->types, desc->types)
                                        : ignis_slice(model->types, 0, 0, 1)); /* type 0 */
    if (model->embedding_scale > 0)
        x = ignis_scale(x, model->embedding_scale);
    return ignis__model_norm(model, x, model->embedding_norm, model->embedding_norm_bias);
}

/*  Returns the hidden states after the last norm. Its scopes free everything that the tape does not keep. */
IGNIS__PRIVATE ignis_tensor ignis__model_hidden(const ignis__model *model, const struct ignis__lora *lora,
                                                ignis_tensor ids, const ignis_hidden_desc *desc, int64_t seq)
{
    static const char call[] = "ignis_model_forward";
    ignis_scope all = ignis_scope_begin(), inner;
    ignis_tensor x = ignis__model_embed_ids(model, ids, desc, seq), h, y;
    int i;
    if (!ignis__model_fuses_norms(model))
        return ignis_scope_return(all, ignis__model_apply_layers(model, lora, x, desc->lengths));
    h = ignis__model_norm(model, x, model->layer[0].attn_norm, model->layer[0].attn_norm_bias);
    for (i = 0; i < model->layers; i++) {
        const ignis__layer *layer = &model->layer[i];
        bool last = i == model->layers - 1;
        inner = ignis_scope_begin();
        y = ignis_scope_return(inner, ignis__model_attention(model, lora, layer, h, desc->lengths));
        ignis__tensor_discard(call, h);
        h = ignis__model_add_norm(model, &x, y, layer->mlp_norm, layer->mlp_norm_bias);
        inner = ignis_scope_begin();
        y = ignis_scope_return(inner, ignis__model_mlp(model, lora, layer, h));
        ignis__tensor_discard(call, h);
        h = ignis__model_add_norm(model, &x, y, last ? model->norm : layer[1].attn_norm,
                                  last ? model->norm_bias : layer[1].attn_norm_bias);
    }
    return ignis_scope_return(all, h);
}

/*  Computes the hidden states of ids after all checks; their logits if `logits` is set. */
static ignis_tensor ignis__model_run(const char *call, ignis_model handle, ignis_tensor ids,
                                     const ignis_hidden_desc *desc, bool logits)
{
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__tensor *tensor = model ? ignis__tensor_hold(call, ids) : NULL;
    struct ignis__lora *lora;
    ignis_tensor result = IGNIS__ZERO;
    ignis_shape shape;
    ignis_scope scope;
    if (tensor) {
        shape = tensor->shape;
        ignis__tensor_drop(call, tensor);
        if (shape.ndim > 2 || shape.dim[shape.ndim - 1] < 1)
            ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "ids is %s; [seq] or [batch, seq] is needed",
                        ignis__shape_write(&shape).text);
        else if (logits && model->encoder)
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                        "a %s model is an encoder, which has no logits; ignis_model_hidden gives its hidden states",
                        ignis__family_of(model->family)->model_type);
        else if (desc->types.id && !model->types.id)
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "desc->types is set; a %s model has no types of tokens",
                        ignis__family_of(model->family)->model_type);
        else if (!ignis__model_check_not_shared(call, model))
            result = ignis__no_tensor();
        else if (!model->rope && shape.dim[shape.ndim - 1] > model->context)
            ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "ids is %s; the model has positions for %d tokens",
                        ignis__shape_write(&shape).text, model->context);
        else {
            lora = ignis__model_lora(model);
            scope = ignis_scope_begin();
            result = ignis__model_hidden(model, lora, ids, desc, shape.dim[shape.ndim - 1]);
            result = ignis_scope_return(scope, logits ? ignis__model_logits(model, result) : result);
            if (lora)
                ignis__lora_drop(call, lora);
        }
    }
    if (model)
        ignis__model_drop(call, model);
    return result;
}

IGNIS_API ignis_tensor ignis_model_forward(ignis_model model, ignis_tensor ids)
{
    static const ignis_hidden_desc none = IGNIS__ZERO;
    return ignis__model_run("ignis_model_forward", model, ids, &none, true);
}

IGNIS_API ignis_tensor ignis_model_hidden(ignis_model model, ignis_tensor ids, const ignis_hidden_desc *desc)
{
    static const ignis_hidden_desc none = IGNIS__ZERO;
    return ignis__model_run("ignis_model_hidden", model, ids, desc ? desc : &none, false);
}
