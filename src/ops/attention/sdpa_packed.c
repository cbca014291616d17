/*  >>ops.attention.sdpa_packed - ignis_sdpa_packed: q, k and v in the rows of one tensor, rotated first or

    not The gradient is one array too, and its column sums go to the projection's bias. Uses: sdpa, backward,
    rope. */

#include "room.h"
#include "../matmul/room.h"

/*  Returns where q, k and v are in the rows of one tensor: first the heads of q, then those of k, then those
    of v. */
static void ignis__sdpa_packed_rows(const ignis__attention *p, const ignis__array *array, ignis__address address,
                                    ignis__attention_rows *q, ignis__attention_rows *k, ignis__attention_rows *v)
{
    ignis__address head = address ? (ignis__address)(p->params.head_dim * ignis__dtypes[array->dtype].size) : 0;
    *q = *k = *v = ignis__attention_rows_of(&array->shape, p->params.head_dim, address);
    k->data += head * (ignis__address)p->params.heads;
    v->data += head * (ignis__address)(p->params.heads + p->params.kv_heads);
}

/*  Sets q, k and v for the kernels. rotated: rotated q and k; NULL: they are not rotated. */
static void ignis__sdpa_packed_operands(ignis__op *op, ignis__array *qkv, ignis__array *rotated, ignis__attention *p)
{
    ignis__attention_rows behind;
    ignis__sdpa_packed_rows(p, qkv, ignis__op_read(op, qkv), &p->params.q, &p->params.k, &p->params.v);
    if (rotated)
        ignis__sdpa_packed_rows(p, rotated, ignis__op_read(op, rotated), &p->params.q, &p->params.k, &behind);
}

/*  Computes the gradient of qkv by wgmma, and its column sums if the projection that made qkv has a bias and
    q and k were not rotated. Returns the sums, or NULL. */
static ignis__array *ignis__sdpa_packed_wgmma(ignis__op *op, ignis_dtype dtype, ignis__attention *p, bool summed,
                                              ignis__rotation *rotation)
{
    int parts = (int)(ignis__ceil_div(p->params.sk, 64) * p->params.batches);
    int64_t n = (int64_t)(p->params.heads + 2 * p->params.kv_heads) * p->params.head_dim;
    ignis__address partial = 0, to[3] = {0, 0, 0};
    ignis__array *sums;
    if (summed)
        partial = ignis__op_write(op, ignis__op_new_row(op, parts * n, IGNIS_F32));
    ignis__attention_backward_wgmma(op, dtype, p, partial, rotation);
    if (!summed)
        return NULL;
    to[0] = ignis__op_write(op, sums = ignis__op_new_row(op, n, dtype));
    ignis__sum_partials(op, dtype, to, 1, partial, parts, n);
    return sums;
}

static ignis_status ignis__sdpa_packed_backward(const ignis_backward_args *args)
{
    ignis__sdpa_packed packed;
    ignis__attention *attention = &packed.attention;
    ignis__op op; /* of grad_out, qkv, out, lse, the bias, the sinks, the lengths or bounds, rotated q and k, their
                     frequencies */
    ignis__array *gradients[3], *sums = NULL, *own;
    ignis__address address;
    ignis__rotation rotation;
    bool wgmma, rotates_after; /* rotates the gradients after the kernels of attention */
    ignis__rope_rows rows;
    int next, sinks; /* inputs: after the options; of the operation */
    if (!ignis__op_begin_backward(&op, "ignis_sdpa_packed", args))
        return ignis__failed();
    memcpy(&packed, args->params, sizeof packed);
    next = ignis__attention_read_options(&op, 4, attention);
    ignis__sdpa_packed_operands(&op, op.in[1], next < op.count ? op.in[next] : NULL, attention);
    attention->params.out =
        ignis__attention_rows_of(&op.in[2]->shape, attention->params.head_dim, ignis__op_read(&op, op.in[2]));
    attention->params.grad_out = ignis__attention_rows_of(&op.in[2]->shape, attention->params.head_dim,
                                                          ignis__op_read(&op, op.in[0])); /* it has the numel of out */
    attention->params.lse = ignis__op_read(&op, op.in[3]);
    gradients[0] = ignis__op_new_like(&op, op.in[1]);
    sinks = attention->bias_dtype ? 2 : 1;
    gradients[1] = ignis__attention_grad_bias(&op, 4, attention->bias_dtype && args->needed[1], attention);
    if (attention->has_sinks)
        gradients[sinks] = ignis__attention_grad_sinks(&op, sinks + 3, args->needed[sinks], attention);
    address = ignis__op_write(&op, gradients[0]);
    if (op.ok)
        ignis__sdpa_packed_rows(attention, gradients[0], address, &attention->params.grad_q, &attention->params.grad_k,
                                &attention->params.grad_v);
    own = next + 1 < op.count ? op.in[next + 1] : NULL;
    packed.rope.bounds = attention->params.bounds;
    rotation.offset = packed.rope.offset;
    rotation.own = own ? ignis__op_read(&op, own) : 0;
    ignis__rope_round_frequencies(rotation.frequencies, packed.rope.frequencies);
    wgmma = ignis__attention_backward_takes_wgmma(&op, op.in[1]->dtype, attention);
    rotates_after = !wgmma || attention->params.head_dim % 16 != 0 || ignis__attention_has_one_query_tile(attention);
    if (wgmma)
        sums = ignis__sdpa_packed_wgmma(&op, op.in[1]->dtype, attention,
                                        args->needed[0] && !packed.rope.heads && ignis__gradient_wants_column_sums(),
                                        rotates_after || !packed.rope.heads ? NULL : &rotation);
    else
        ignis__attention_backward_run(&op, op.in[1]->dtype, attention);
    rows.address = address;
    rows.row = attention->params.grad_q.row;
    if (packed.rope.heads && rotates_after) /* rotates back in place */
        ignis__rope_rotate(&op, &packed.rope, op.in[1]->dtype, rows, rows, own, -1);
    return ignis__op_finish_backward_with_sums(&op, args, sinks + attention->has_sinks, gradients, sums);
}

/*  Returns the shape of `heads` heads of each row of qkv. */
static ignis_shape ignis__sdpa_packed_heads(const ignis__op *op, const ignis__attention *p, int heads)
{
    ignis_shape shape = op->in[0]->shape;
    shape.dim[shape.ndim - 1] = op->ok ? (int64_t)heads * p->params.head_dim : 0;
    return shape;
}

/*  Rotates q and k into an array of their own. */
static ignis__array *ignis__sdpa_packed_rotate(ignis__op *op, const ignis_rope_desc *desc, ignis__array *own,
                                               ignis__sdpa_packed *packed)
{
    const ignis__attention *p = &packed->attention;
    int heads = p->params.heads + p->params.kv_heads;
    ignis__array *rotated;
    ignis__rope_rows from, to;
    ignis_shape shape;
    if (desc->num_heads != 0 && desc->num_heads != heads)
        ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "rope->num_heads is %d; q and k have %d heads", desc->num_heads,
                       heads);
    if (!op->ok || !ignis__rope_prepare(op, desc, own, heads, p->params.head_dim, &packed->rope))
        return NULL;
    packed->rope.bounds = p->params.bounds;
    shape = ignis__sdpa_packed_heads(op, p, heads);
    rotated = ignis__op_new(op, &shape, op->in[0]->dtype);
    from.address = ignis__op_read(op, op->in[0]);
    from.row = op->in[0]->shape.dim[op->in[0]->shape.ndim - 1];
    to.address = ignis__op_write(op, rotated);
    to.row = (int64_t)heads * p->params.head_dim;
    ignis__rope_rotate(op, &packed->rope, op->in[0]->dtype, to, from, own, 1);
    return rotated;
}

IGNIS_API ignis_tensor ignis_sdpa_packed(ignis_tensor qkv, const ignis_sdpa_desc *desc, const ignis_rope_desc *rope)
{
    static const char call[] = "ignis_sdpa_packed";
    ignis__sdpa_packed packed = IGNIS__ZERO;
    ignis__attention *attention = &packed.attention;
    ignis__op op;
    ignis__array *out, *lse, *bounds, *own = NULL, *rotated = NULL;
    ignis_tensor result, inputs[6] = {qkv};
    ignis_shape shape;
    if (!ignis__op_begin(&op, call, ignis__sdpa_inputs(desc, inputs, 1), inputs))
        return ignis__no_tensor();
    ignis__sdpa_prepare(&op, desc, IGNIS__SDPA_PACKED, attention);
    if (op.ok)
        ignis__attention_read_options(&op, 1, attention);
    bounds = ignis__attention_find_bounds(&op, attention);
    if (rope) {
        own = ignis__rope_frequency_array(&op, rope);
        rotated = ignis__sdpa_packed_rotate(&op, rope, own, &packed);
    }
    shape = ignis__sdpa_packed_heads(&op, attention, attention->params.heads);
    out = ignis__op_new_product(&op, &shape, op.in[0]->dtype);
    if (op.ok)
        ignis__sdpa_packed_operands(&op, op.in[0], rotated, attention);
    if (op.ok)
        attention->params.out =
            ignis__attention_rows_of(&out->shape, attention->params.head_dim, ignis__op_write(&op, out));
    if (op.saves) {
        lse = ignis__attention_new_lse(&op, attention, op.in[0]->dtype);
        attention->params.lse = ignis__op_write(&op, lse);
        ignis__op_save(&op, op.in[0]);
        ignis__op_save(&op, out);
        ignis__op_save(&op, lse);
        ignis__attention_save_options(&op, 1, bounds);
        ignis__op_save(&op, rotated);
        if (own) /* through a view: the array itself stays the caller's */
            ignis__op_save(&op, ignis__op_view(&op, own, &own->shape, own->numel, 0));
    }
    ignis__sdpa_run(&op, op.in[0]->dtype, attention);
    result = ignis__op_end_recorded(&op, out, "sdpa_packed", ignis__sdpa_packed_backward, &packed, sizeof packed);
    if (own)
        ignis__array_drop(call, own);
    return result;
}
