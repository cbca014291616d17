/*  >>ops.attention.sdpa_vjp - attention by products and a softmax, for gradients of its gradients

    The scores are stored here: [batches, heads, sq, sk]. 16 bits are computed in f32.
    Uses: vjp, and public functions of other parts. */

#include "room.h"

/*  Returns the heads of rows [batches, rows, heads * head_dim] as [batches, all, rows, head_dim]. Each of the `heads`
    serves all / heads of them. */
static ignis_tensor ignis__sdpa_heads(ignis_tensor x, const ignis__attention_params *p, int rows, int heads, int all)
{
    static const int dims[] = {0, 2, 1, 3};
    const int64_t share = all / heads;
    x = ignis_permute(ignis_reshape(ignis__vjp_wide(x), IGNIS_SHAPE(p->batches, rows, heads, p->head_dim)), dims, 4);
    if (share == 1)
        return x;
    x = ignis_expand(ignis_reshape(x, IGNIS_SHAPE(p->batches, heads, 1, rows, p->head_dim)),
                     IGNIS_SHAPE(p->batches, heads, share, rows, p->head_dim));
    return ignis_reshape(x, IGNIS_SHAPE(p->batches, all, rows, p->head_dim));
}

/*  Returns the first row of each row's document (which 0), or the row after its last one (1), beside scores. Without
    documents: the same of all keys, or those of the lengths (no handle: sk). */
static ignis_tensor ignis__sdpa_limit(const ignis__attention *attention, ignis_tensor limits, int which)
{
    const ignis__attention_params *p = &attention->params;
    if (attention->documents)
        return ignis_reshape(
            ignis_slice(ignis_slice(ignis_reshape(limits, IGNIS_SHAPE(p->batches, p->sk + 1, 2)), 1, 0, p->sk), 2,
                        which, 1),
            IGNIS_SHAPE(p->batches, 1, p->sk, 1));
    if (which == 0)
        return ignis_value(0);
    return limits.id ? ignis_reshape(limits, IGNIS_SHAPE(-1, 1, 1, 1)) : ignis_value(p->sk);
}

/*  Returns the softmax of scores [batches, heads, sq, sk] and the sinks of heads, except for the sinks' shares. */
static ignis_tensor ignis__sdpa_softmax(const ignis__attention_params *p, ignis_tensor s, ignis_tensor sinks)
{
    ignis_tensor both[2];
    if (!sinks.id)
        return ignis_softmax(s);
    both[0] = s;
    both[1] = ignis_expand(ignis_reshape(ignis__vjp_wide(sinks), IGNIS_SHAPE(1, p->heads, 1, 1)),
                           IGNIS_SHAPE(p->batches, p->heads, p->sq, 1));
    return ignis_slice(ignis_softmax(ignis_concat(both, 2, 3)), 3, 0, p->sk);
}

/*  Returns the attention of q, k and v in rows. options: the bias and the sinks, which may be no handle, as may
    limits, which are lengths or bounds. */
static ignis_tensor ignis__sdpa_plain(const ignis__attention *attention, ignis_tensor q, ignis_tensor k, ignis_tensor v,
                                      const ignis_tensor options[2], ignis_tensor limits)
{
    static const int dims[] = {0, 2, 1, 3};
    const ignis__attention_params *p = &attention->params;
    ignis_tensor from = ignis__sdpa_limit(attention, limits, 0), n = ignis__sdpa_limit(attention, limits, 1),
                 offset = ignis_value(p->sk - p->sq), causal = ignis_value(p->causal), w = ignis_value(p->window), b, s;
    k = ignis__sdpa_heads(k, p, p->sk, p->kv_heads, p->heads);
    v = ignis__sdpa_heads(v, p, p->sk, p->kv_heads, p->heads);
    s = ignis_scale(ignis_matmul_t(ignis__sdpa_heads(q, p, p->sq, p->heads, p->heads), k), p->scale);
    if (p->softcap > 0)
        s = ignis_map("cap*tanh(s/cap)", IGNIS_INPUTS(s, IGNIS_VALUE(cap, p->softcap)));
    if (options[0].id) {
        b = ignis__vjp_wide(options[0]);
        s = ignis_map("s + b", IGNIS_INPUTS(s, b));
    }
    s = ignis_map("i = index(2) + offset; j = index(3);"
                  "j >= from && j < n && (!causal || j <= i) && i - j < w && j - i < w ? s : -1e30",
                  IGNIS_INPUTS(s, from, n, offset, causal, w));
    s = ignis__sdpa_softmax(p, s, options[1]);
    s = ignis_map("i = index(2) + offset; j = index(3);"
                  "j >= from && j < n && (!causal || j <= i) && i - j < w && j - i < w ? s : 0",
                  IGNIS_INPUTS(s, from, n, offset, causal, w));
    return ignis_permute(ignis_matmul(s, v), dims, 4);
}

/*  Returns the lengths or bounds, or no handle. first: the input after q, k and v. Its saved array has a number that is
    two higher, as the result and its statistics are between. */
static ignis_tensor ignis__sdpa_limits(const ignis_vjp_args *args, const ignis__attention *attention,
                                       const ignis_tensor *inputs, int first)
{
    int input = first + (attention->bias_dtype != 0) + attention->has_sinks;
    if (attention->documents)
        return ignis__vjp_constant(args, input + 2);
    return attention->has_lengths ? inputs[input] : ignis__no_tensor();
}

/*  Fills inputs of an operation whose last one, ids or offsets, is left out: the bounds were saved in its place. */
static void ignis__sdpa_vjp_inputs(const ignis_vjp_args *args, const ignis__attention *attention, ignis_tensor *inputs,
                                   int first)
{
    int i, count = args->input_count - (attention->documents != IGNIS__DOCUMENTS_NONE);
    for (i = 0; i < count; i++)
        inputs[i] = ignis__vjp_input(args, i, i < first ? i : i + 2);
}

/*  Finds the bias and the sinks among inputs from `first` on; no handle: there are none. */
static void ignis__sdpa_options(const ignis__attention *attention, const ignis_tensor *inputs, int first,
                                ignis_tensor options[2])
{
    const int sinks = first + (attention->bias_dtype != 0);
    options[0] = attention->bias_dtype ? inputs[first] : ignis__no_tensor();
    options[1] = attention->has_sinks ? inputs[sinks] : ignis__no_tensor();
}

IGNIS__PRIVATE void ignis__vjp_of_sdpa(const ignis_vjp_args *args)
{
    const ignis__attention *attention = (const ignis__attention *)args->params;
    ignis_tensor inputs[6] = IGNIS__ZERO, options[2], plain;
    ignis__sdpa_vjp_inputs(args, attention, inputs, 3);
    ignis__sdpa_options(attention, inputs, 3, options);
    plain = ignis__sdpa_plain(attention, inputs[0], inputs[1], inputs[2], options,
                              ignis__sdpa_limits(args, attention, inputs, 3));
    ignis__vjp_plain(args, ignis_cast(ignis_reshape(plain, args->node->output->shape), args->node->output->dtype),
                     inputs);
}

IGNIS__PRIVATE void ignis__vjp_of_sdpa_packed(const ignis_vjp_args *args)
{
    const ignis__sdpa_packed *packed = (const ignis__sdpa_packed *)args->params;
    const ignis__attention *attention = &packed->attention;
    const ignis__attention_params *p = &attention->params;
    const int64_t rows = (int64_t)p->batches * p->sq, d = p->head_dim, of_q = p->heads * d, of_k = p->kv_heads * d;
    ignis_tensor inputs[4] = IGNIS__ZERO, options[2], qkv, qk, v, plain;
    ignis__sdpa_vjp_inputs(args, attention, inputs, 1);
    ignis__sdpa_options(attention, inputs, 1, options);
    qkv = ignis_reshape(inputs[0], IGNIS_SHAPE(rows, of_q + 2 * of_k));
    qk = ignis_slice(qkv, 1, 0, of_q + of_k);
    v = ignis_slice(qkv, 1, of_q + of_k, of_k);
    if (packed->rope.heads) { /* saved besides: rotated q and k, then the caller's frequencies */
        ignis__array *const *saved = args->node->saved;
        const int own = 3 + args->input_count, bounds = 3 + (attention->bias_dtype != 0) + attention->has_sinks;
        qk = ignis__rope_recorded(qk, &packed->rope, own < args->node->saved_count ? saved[own] : NULL,
                                  attention->documents ? saved[bounds] : NULL);
    }
    plain = ignis__sdpa_plain(attention, ignis_slice(qk, 1, 0, of_q), ignis_slice(qk, 1, of_q, of_k), v, options,
                              ignis__sdpa_limits(args, attention, inputs, 1));
    ignis__vjp_plain(args, ignis_cast(ignis_reshape(plain, args->node->output->shape), args->node->output->dtype),
                     inputs);
}
