/*  models/generate/latent_forward.c - latent attention (DeepSeek-V2, 2024, section 2.1) of whole texts, by public
    operations

    The first product of a layer, qkv, gives q, or its low rank, which has a norm and a second product; the latent of
    the token, which has a norm; and the elements of its key that rotate, which all heads share. kv_b makes of a latent
    the other elements of each head's key, and its value. Keys and values of each head go to ignis_sdpa, so there are
    gradients.
    May use: >>lora by the declaration below; the weights of the model. Locks: none. */

#include "room.h"

IGNIS__PRIVATE ignis_tensor ignis__lora_add(const struct ignis__lora *lora, const ignis__layer *layer, size_t member,
                                            ignis_tensor x, ignis_tensor y);

/*  Rotates heads of x [batch, tokens, heads, rotary], after one another in a row, and scales them. */
static ignis_tensor ignis__latent_rotate(const ignis__model *model, ignis_tensor x, int64_t tokens, int heads)
{
    ignis_rope_desc rope;
    memset(&rope, 0, sizeof rope);
    rope.num_heads = heads;
    rope.inv_freq_f64 = model->frequencies;
    rope.inv_freq_count = model->rotary / 2;
    x = ignis_rope(ignis_reshape(x, IGNIS_SHAPE(-1, tokens, (int64_t)heads * model->rotary)), &rope);
    if (model->attention_factor != 1)
        x = ignis_scale(x, model->attention_factor);
    return ignis_reshape(x, IGNIS_SHAPE(-1, tokens, heads, model->rotary));
}

/*  Returns the queries of all heads, of the rows of q in qkv. */
static ignis_tensor ignis__latent_queries(const ignis__model *model, const struct ignis__lora *lora,
                                          const ignis__layer *layer, ignis_tensor q, int64_t tokens)
{
    const int64_t sizes[] = {model->head_dim - model->rotary, model->rotary};
    ignis_tensor part[2];
    if (model->q_rank) {
        q = ignis_rms_norm(q, layer->q_a_norm, model->eps);
        q = ignis__lora_add(lora, layer, offsetof(ignis__layer, q_b), q,
                            ignis__model_linear(model, q, layer->q_b, ignis__no_tensor()));
    }
    q = ignis_reshape(q, IGNIS_SHAPE(-1, tokens, model->heads, model->head_dim));
    if (ignis_split(q, -1, 2, sizes, part) != IGNIS_OK)
        return ignis__no_tensor();
    part[1] = ignis__latent_rotate(model, part[1], tokens, model->heads);
    return ignis_reshape(ignis_concat(part, 2, -1), IGNIS_SHAPE(-1, tokens, (int64_t)model->heads * model->head_dim));
}

/*  Computes keys of all heads, and their values, filled up with zeros to the size of keys. */
static bool ignis__latent_keys(const ignis__model *model, const ignis__layer *layer, ignis_tensor latent,
                               ignis_tensor turning, int64_t tokens, ignis_tensor of[2])
{
    const int64_t plain = model->head_dim - model->rotary, heads = model->heads, before[4] = {0},
                  after[4] = {0, 0, 0, model->head_dim - model->value_dim},
                  sizes[] = {heads * plain, heads * model->value_dim};
    ignis_tensor part[2], key[2];
    ignis_shape shape;
    latent = ignis_rms_norm(latent, layer->kv_a_norm, model->eps);
    if (ignis_split(ignis_linear(latent, layer->kv_b, ignis__no_tensor()), -1, 2, sizes, part) != IGNIS_OK)
        return false;
    key[0] = ignis_reshape(part[0], IGNIS_SHAPE(-1, tokens, heads, plain));
    key[1] = ignis__latent_rotate(model, turning, tokens, 1);
    shape = ignis_tensor_shape(key[1]);
    shape.dim[2] = heads;
    key[1] = ignis_expand(key[1], shape);
    of[0] = ignis_reshape(ignis_concat(key, 2, -1), IGNIS_SHAPE(-1, tokens, heads * model->head_dim));
    of[1] = ignis_reshape(part[1], IGNIS_SHAPE(-1, tokens, heads, model->value_dim));
    if (model->value_dim < model->head_dim)
        of[1] = ignis_pad(of[1], before, after, 4, 0);
    of[1] = ignis_reshape(of[1], IGNIS_SHAPE(-1, tokens, heads * model->head_dim));
    return of[1].id != 0;
}

/*  Computes attention of a layer for whole texts, as ignis__model_attention does for other families. */
IGNIS__PRIVATE ignis_tensor ignis__model_latent_attention(const ignis__model *model, const struct ignis__lora *lora,
                                                          const ignis__layer *layer, ignis_tensor h,
                                                          ignis_tensor lengths)
{
    const int64_t q = model->q_rank ? model->q_rank : (int64_t)model->heads * model->head_dim,
                  sizes[] = {q, model->latent, model->rotary};
    ignis_shape shape = ignis_tensor_shape(h);
    const int64_t tokens = shape.ndim > 1 ? shape.dim[shape.ndim - 2] : 1;
    ignis_sdpa_desc attention;
    ignis_tensor part[3], of[2];
    h = ignis__lora_add(lora, layer, offsetof(ignis__layer, qkv), h,
                        ignis__model_linear(model, h, layer->qkv, ignis__no_tensor()));
    if (ignis_split(h, -1, 3, sizes, part) != IGNIS_OK ||
        !ignis__latent_keys(model, layer, part[1], part[2], tokens, of))
        return ignis__no_tensor();
    memset(&attention, 0, sizeof attention);
    attention.num_heads = attention.num_kv_heads = model->heads;
    attention.scale = layer->attention_scale;
    attention.mask = IGNIS_MASK_CAUSAL;
    attention.lengths = lengths;
    h = ignis_sdpa(ignis__latent_queries(model, lora, layer, part[0], tokens), of[0], of[1], &attention);
    if (model->value_dim < model->head_dim) {
        h = ignis_reshape(h, IGNIS_SHAPE(-1, tokens, model->heads, model->head_dim));
        h = ignis_slice(h, 3, 0, model->value_dim);
    }
    shape.dim[shape.ndim - 1] = (int64_t)model->heads * model->value_dim;
    h = ignis_reshape(h, shape);
    return ignis__lora_add(lora, layer, offsetof(ignis__layer, o), h,
                           ignis__model_linear(model, h, layer->o, ignis__no_tensor()));
}
