/*  models/generate/delta_forward.c - recurrent layers in ignis_model_forward, by public operations

    The delta rule in chunks (Yang, Kautz, Hatamizadeh 2024, section 3.3): within a chunk the changes of the state
    follow from a triangular system, and a loop over chunks carries the state. So the tape has one state of each chunk.
    Everything is in the wide type.
    May use: room.h. Locks: none. */

#include "room.h"

enum { IGNIS__DELTA_CHUNK = 64 }; /* tokens */

static ignis_tensor ignis__delta_wide(const ignis__model *model, ignis_tensor x)
{
    const ignis_dtype wide = ignis__wide_dtype(model->dtype);
    return wide == model->dtype ? x : ignis_cast(x, wide);
}

/*  Convolves the tokens of x [batch, tokens, channels] in each channel, and applies silu. */
static ignis_tensor ignis__delta_convolve(const ignis__model *model, const ignis__layer *layer, ignis_tensor x,
                                          int64_t tokens)
{
    const int64_t before[] = {0, model->delta_conv - 1, 0};
    ignis_tensor weight = ignis__delta_wide(model, layer->conv), padded = ignis_pad(x, before, NULL, 3, 0), w;
    ignis_tensor sum = ignis__no_tensor();
    int i;
    for (i = 0; i < model->delta_conv; i++) {
        x = ignis_slice(padded, 1, i, tokens);
        w = ignis_reshape(ignis_slice(weight, 1, i, 1), IGNIS_SHAPE(-1));
        sum = i == 0 ? ignis_map("x*w", IGNIS_INPUTS(x, w)) : ignis_map("sum + x*w", IGNIS_INPUTS(sum, x, w));
    }
    return ignis_silu(sum);
}

/*  Makes heads of q or k [batch, tokens, heads * k] of length `scale`, one for each head of v. */
static ignis_tensor ignis__delta_heads(const ignis__model *model, ignis_tensor x, int64_t tokens, double scale)
{
    static const ignis_reduce_desc last = {{-1}, 1, true};
    const int64_t heads = model->delta_heads, group = model->delta_v_heads / heads, k = model->delta_k;
    ignis_tensor squares;
    x = ignis_reshape(x, IGNIS_SHAPE(-1, tokens, heads, k));
    squares = ignis_map_reduce(IGNIS_REDUCE_SUM, "x*x", IGNIS_INPUTS(x), &last);
    x = ignis_map("x*scale/sqrt(squares + 1e-6)", IGNIS_INPUTS(x, squares, IGNIS_VALUE(scale, scale)));
    if (group == 1)
        return x;
    x = model->tiled ? ignis_reshape(x, IGNIS_SHAPE(-1, tokens, 1, heads, k))
                     : ignis_reshape(x, IGNIS_SHAPE(-1, tokens, heads, 1, k));
    x = ignis_expand(x, model->tiled ? IGNIS_SHAPE(-1, -1, group, -1, -1) : IGNIS_SHAPE(-1, -1, -1, group, -1));
    return ignis_reshape(x, IGNIS_SHAPE(-1, tokens, heads * group, k));
}

/*  Pads x [batch, tokens, heads of v, n] with zeros to whole chunks: [batch, heads of v, chunks, chunk, n]. */
static ignis_tensor ignis__delta_chunks(const ignis__model *model, ignis_tensor x, int64_t tokens, int64_t chunk,
                                        int64_t n)
{
    const int64_t chunks = ignis__ceil_div(tokens, chunk), after[] = {0, chunks * chunk - tokens, 0, 0};
    x = ignis_transpose(ignis_pad(x, NULL, after, 4, 0), 1, 2);
    return ignis_reshape(x, IGNIS_SHAPE(-1, model->delta_v_heads, chunks, chunk, n));
}

/*  Returns chunk i of x [batch, heads, chunks, m, n], of whatever m and n: [batch, heads, m, n]. */
static ignis_tensor ignis__delta_chunk(ignis_tensor x, int64_t i)
{
    const ignis_shape shape = ignis_tensor_shape(x);
    return shape.ndim == 5 ? ignis_reshape(ignis_slice(x, 2, i, 1),
                                           IGNIS_SHAPE(shape.dim[0], shape.dim[1], shape.dim[3], shape.dim[4]))
                           : ignis__no_tensor();
}

static ignis_tensor ignis__delta_product(const char *equation, ignis_tensor a, ignis_tensor b)
{
    ignis_tensor operands[2];
    operands[0] = a;
    operands[1] = b;
    return ignis_einsum(equation, operands, 2);
}

/*  The operands of the rule in chunks, [batch, heads, chunks, chunk, k or v or 1]. decay: its logarithm. */
typedef struct ignis__delta_operands {
    ignis_tensor q, k, v, strength, decay;
} ignis__delta_operands;

/*  Applies the rule to all chunks: [batch, heads, chunks, chunk, v]. */
static ignis_tensor ignis__delta_rule(const ignis__delta_operands *in, int64_t chunks, int64_t chunk)
{
    static const ignis_triangular_desc unit = {false, false, true};
    ignis_tensor all = ignis_cumsum(in->decay, 3), end = ignis_slice(all, 3, chunk - 1, 1), k = in->k, q = in->q,
                 v = in->v, strength = in->strength, pairs, system, scores, changes, seen, state = IGNIS__ZERO, change,
                 part, found,
                 *results = (ignis_tensor *)ignis__alloc_for("ignis_model_forward", (size_t)chunks * sizeof *results);
    int64_t i;
    if (!results)
        return ignis__no_tensor();
    /* the decay from token j to token i; 0 for later tokens */
    pairs = ignis_map("index(3) >= index(4) ? exp(min(a - b, 0)) : 0",
                      IGNIS_INPUTS(IGNIS_NAMED(a, all), IGNIS_NAMED(b, ignis_transpose(all, 3, 4))));
    system = ignis__delta_product("bhcik,bhcjk->bhcij", ignis_map("k*strength", IGNIS_INPUTS(k, strength)), k);
    system = ignis_map("system*pairs", IGNIS_INPUTS(system, pairs));
    changes = ignis_solve_triangular(system, ignis_map("v*strength", IGNIS_INPUTS(v, strength)), &unit);
    seen = ignis_solve_triangular(system, ignis_map("k*strength*exp(all)", IGNIS_INPUTS(k, strength, all)), &unit);
    scores = ignis__delta_product("bhcik,bhcjk->bhcij", q, k);
    scores = ignis_map("scores*pairs", IGNIS_INPUTS(scores, pairs));
    q = ignis_map("q*exp(all)", IGNIS_INPUTS(q, all));
    k = ignis_map("k*exp(end - all)", IGNIS_INPUTS(k, end, all));
    for (i = 0; i < chunks; i++) {
        change = ignis__delta_chunk(changes, i);
        if (i > 0) {
            found = ignis__delta_product("bhik,bhkv->bhiv", ignis__delta_chunk(seen, i), state);
            change = ignis_sub(change, found);
        }
        results[i] = ignis__delta_product("bhij,bhjv->bhiv", ignis__delta_chunk(scores, i), change);
        if (i > 0) {
            found = ignis__delta_product("bhik,bhkv->bhiv", ignis__delta_chunk(q, i), state);
            results[i] = ignis_add(results[i], found);
        }
        part = ignis__delta_product("bhik,bhiv->bhkv", ignis__delta_chunk(k, i), change);
        end = ignis__delta_chunk(all, i);
        end = ignis_slice(end, 2, chunk - 1, 1);
        state = i == 0 ? part : ignis_map("state*exp(end) + part", IGNIS_INPUTS(state, end, part));
    }
    all = ignis_stack(results, (int)chunks, 2);
    ignis__free(results);
    return all;
}

/*  Returns what a recurrent layer's last product reads, of its first products [.., tokens, n]. */
IGNIS__PRIVATE ignis_tensor ignis__model_delta_net(const ignis__model *model, const ignis__layer *layer,
                                                   ignis_tensor qkvz, ignis_tensor strengths)
{
    const ignis_shape shape = ignis_tensor_shape(qkvz);
    const int64_t channels = ignis__delta_channels(model), width = ignis__delta_width(model),
                  heads = model->delta_v_heads, keys = (int64_t)model->delta_heads * model->delta_k,
                  sizes[] = {channels, width}, parts[] = {keys, keys, width},
                  tokens = shape.ndim > 1 ? shape.dim[shape.ndim - 2] : 1;
    const int64_t chunk = ignis__clamp(tokens, 1, IGNIS__DELTA_CHUNK);
    ignis__delta_operands in;
    ignis_tensor apart[2], qkv[3], gains[2], x, z, a;
    ignis_shape result = shape;
    if (!shape.ndim || ignis_split(qkvz, -1, 2, sizes, apart) != IGNIS_OK ||
        ignis_split(strengths, -1, 2, NULL, gains) != IGNIS_OK)
        return ignis__no_tensor();
    x = ignis_reshape(ignis__delta_wide(model, apart[0]), IGNIS_SHAPE(-1, tokens, channels));
    if (ignis_split(ignis__delta_convolve(model, layer, x, tokens), -1, 3, parts, qkv) != IGNIS_OK)
        return ignis__no_tensor();
    in.q = ignis__delta_heads(model, qkv[0], tokens, 1 / ignis__square_root(model->delta_k));
    in.k = ignis__delta_heads(model, qkv[1], tokens, 1);
    in.v = ignis_reshape(qkv[2], IGNIS_SHAPE(-1, tokens, heads, model->delta_v));
    x = ignis_reshape(ignis__delta_wide(model, gains[0]), IGNIS_SHAPE(-1, tokens, heads, 1));
    in.strength = ignis_map("sigmoid(x)", IGNIS_INPUTS(x));
    x = ignis_reshape(ignis__delta_wide(model, gains[1]), IGNIS_SHAPE(-1, tokens, heads, 1));
    a = ignis_reshape(layer->decay_log, IGNIS_SHAPE(heads, 1));
    z = ignis_reshape(layer->decay_bias, IGNIS_SHAPE(heads, 1));
    in.decay = ignis_map("-exp(a)*softplus(x + z)", IGNIS_INPUTS(a, x, z));
    in.q = ignis__delta_chunks(model, in.q, tokens, chunk, model->delta_k);
    in.k = ignis__delta_chunks(model, in.k, tokens, chunk, model->delta_k);
    in.v = ignis__delta_chunks(model, in.v, tokens, chunk, model->delta_v);
    in.strength = ignis__delta_chunks(model, in.strength, tokens, chunk, 1);
    in.decay = ignis__delta_chunks(model, in.decay, tokens, chunk, 1);
    x = ignis__delta_rule(&in, ignis__ceil_div(tokens, chunk), chunk);
    x = ignis_reshape(x, IGNIS_SHAPE(-1, heads, ignis__ceil_div(tokens, chunk) * chunk, model->delta_v));
    x = ignis_transpose(ignis_slice(x, 2, 0, tokens), 1, 2);
    x = ignis_rms_norm(x, ignis__delta_wide(model, layer->delta_norm), model->eps);
    z = ignis_reshape(ignis__delta_wide(model, apart[1]), IGNIS_SHAPE(-1, tokens, heads, model->delta_v));
    x = ignis_map("x*silu(z)", IGNIS_INPUTS(x, z));
    result.dim[result.ndim - 1] = width;
    return ignis_cast(ignis_reshape(x, result), model->dtype);
}
