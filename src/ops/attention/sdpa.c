/*  >>ops.attention.sdpa - ignis_sdpa: forward of scaled dot-product attention

    Checks the desc, chooses kernels and launches them. Uses: select, operands, backward.
    Invariant: the same shapes, options and device choose the same kernel, so the bits are the same. */

#include "room.h"

/*  Adds the tensors of a desc to the inputs of an operation, after the first `count`. Returns the number of
    inputs. */
IGNIS__PRIVATE int ignis__sdpa_inputs(const ignis_sdpa_desc *desc, ignis_tensor *inputs, int count)
{
    if (desc && desc->bias.id)
        inputs[count++] = desc->bias;
    if (desc && desc->sinks.id)
        inputs[count++] = desc->sinks;
    if (desc && desc->lengths.id)
        inputs[count++] = desc->lengths;
    if (desc && desc->segments.id)
        inputs[count++] = desc->segments;
    if (desc && desc->offsets.id)
        inputs[count++] = desc->offsets;
    return count;
}

/*  Checks the ids or offsets of documents, an input. */
static bool ignis__sdpa_documents(ignis__op *op, const ignis_sdpa_desc *desc, int input, ignis__attention *attention)
{
    const ignis__attention_params *p = &attention->params;
    const ignis__array *array = op->in[input];
    const ignis_shape *shape = &array->shape;
    const char *name = desc->segments.id ? "segments" : "offsets";
    attention->documents = desc->segments.id ? IGNIS__DOCUMENTS_IDS : IGNIS__DOCUMENTS_OFFSETS;
    if ((desc->lengths.id != 0) + (desc->segments.id != 0) + (desc->offsets.id != 0) > 1)
        return ignis__op_fail(
            op, IGNIS_DIAG_BAD_NUMBER,
            "more than one of desc->lengths, desc->segments and desc->offsets is given; expected one");
    if (array->dtype != IGNIS_I32 && array->dtype != IGNIS_I64)
        return ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "desc->%s is %s; expected i32 or i64", name,
                              ignis__dtypes[array->dtype].name);
    if (p->sq != p->sk)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "q has %d rows, k has %d; with desc->%s expected as many",
                              p->sq, p->sk, name);
    if ((int64_t)p->batches * (p->sq + 1) > INT32_MAX)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED,
                              "q has %d x %d rows; with desc->%s fewer than 2^31 "
                              "are possible",
                              p->batches, p->sq, name);
    if (desc->segments.id && (shape->dim[shape->ndim - 1] != p->sq || array->numel != (int64_t)p->batches * p->sq ||
                              shape->ndim != (op->in[0]->shape.ndim == 3 ? 2 : 1)))
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE,
                              "desc->segments is %s; expected an id for each of %d x %d rows",
                              ignis__shape_write(shape).text, p->batches, p->sq);
    if (desc->offsets.id && (shape->ndim != 1 || shape->dim[0] < 1 || shape->dim[0] > INT32_MAX))
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "desc->offsets is %s; expected [documents + 1]",
                              ignis__shape_write(shape).text);
    if (desc->offsets.id && p->batches != 1)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "there are %d sequences; with desc->offsets expected one",
                              p->batches);
    return true;
}

/*  Checks a desc except for heads, mask and scale; its tensors are inputs from `input` on. The sizes are
    known. */
static bool ignis__sdpa_variant(ignis__op *op, const ignis_sdpa_desc *desc, int input, ignis__attention *attention)
{
    ignis__attention_params *p = &attention->params;
    const ignis_shape *shape;
    int64_t sizes[4];
    int i;
    if (desc->window < 0)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->window is %d, below 0", desc->window);
    if (!(desc->softcap >= 0 && desc->softcap < 1e30))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->softcap is %g, not a positive number", desc->softcap);
    p->window = p->sq > p->sk ? p->sq : p->sk;
    attention->windowed = desc->window > 0;
    if (desc->window && desc->window < p->window)
        p->window =
            p->causal && desc->window >= p->sk ? p->window : desc->window; /* no key is further back than sk - 1 */
    p->softcap = desc->softcap;
    if (desc->bias.id) {
        shape = &op->in[input]->shape;
        attention->bias_dtype = (int)op->in[input]->dtype;
        if (attention->bias_dtype != (int)op->in[0]->dtype &&
            (attention->bias_dtype != IGNIS_F32 || op->in[0]->dtype == IGNIS_F64))
            ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "desc->bias is %s, the first input is %s",
                           ignis__dtypes[attention->bias_dtype].name, ignis__dtypes[op->in[0]->dtype].name);
        sizes[0] = p->batches, sizes[1] = p->heads, sizes[2] = p->sq, sizes[3] = p->sk;
        for (i = 0; i < shape->ndim && i < 4; i++)
            if (shape->dim[shape->ndim - 1 - i] != sizes[3 - i] && (i == 0 || shape->dim[shape->ndim - 1 - i] != 1))
                break;
        if (shape->ndim < 1 || shape->ndim > 4 || i < shape->ndim)
            ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE,
                           "desc->bias is %s; it has to be [%d or 1, %d or 1, %d or 1, %d], or the last of these",
                           ignis__shape_write(shape).text, p->batches, p->heads, p->sq, p->sk);
        input++;
    }
    if (desc->sinks.id) {
        shape = &op->in[input]->shape;
        attention->has_sinks = 1;
        p->wide_sinks = op->in[input]->dtype == ignis__wide_dtype(op->in[0]->dtype);
        if (!p->wide_sinks && op->in[input]->dtype != op->in[0]->dtype)
            ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "desc->sinks is %s, the first input is %s",
                           ignis__dtypes[op->in[input]->dtype].name, ignis__dtypes[op->in[0]->dtype].name);
        if (shape->ndim != 1 || shape->dim[0] != p->heads)
            ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "desc->sinks is %s; expected [%d], one of each head",
                           ignis__shape_write(shape).text, p->heads);
        input++;
    }
    if (desc->lengths.id) {
        shape = &op->in[input]->shape;
        attention->has_lengths = 1;
        if (op->in[input]->dtype != IGNIS_I32)
            ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "desc->lengths is %s; i32 is needed",
                           ignis__dtypes[op->in[input]->dtype].name);
        if (shape->ndim != 1 || shape->dim[0] != p->batches)
            ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "desc->lengths is %s; there are %d sequences",
                           ignis__shape_write(shape).text, p->batches);
        input++;
    }
    if (op->ok && (desc->segments.id || desc->offsets.id))
        ignis__sdpa_documents(op, desc, input, attention);
    return op->ok;
}

IGNIS__PRIVATE bool ignis__sdpa_prepare(ignis__op *op, const ignis_sdpa_desc *desc, ignis__sdpa_kind kind,
                                        ignis__attention *attention)
{
    static const ignis_sdpa_desc defaults = IGNIS__ZERO;
    int heads, kv_heads;
    desc = desc ? desc : &defaults;
    heads = desc->num_heads ? desc->num_heads : 1;
    kv_heads = desc->num_kv_heads || kind == IGNIS__SDPA_DECODE ? desc->num_kv_heads : heads;
    memset(attention, 0, sizeof *attention);
    if (heads < 1)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->num_heads is %d, below 1", heads);
    if (kv_heads < (kind == IGNIS__SDPA_DECODE ? 0 : 1))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->num_kv_heads is %d, below 1", kv_heads);
    if ((int)desc->mask < 0 || desc->mask >= IGNIS_MASK_COUNT)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_ENUM, "desc->mask is %d, not one of ignis_mask", (int)desc->mask);
    if (kind == IGNIS__SDPA_DECODE && (desc->segments.id || desc->offsets.id))
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "desc->%s is not supported",
                              desc->segments.id ? "segments" : "offsets");
    if (!(desc->scale >= 0 && desc->scale < 1e30))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->scale is %g, not a positive number", desc->scale);
    if ((kv_heads && !ignis__attention_heads(op, heads, kv_heads)) ||
        !(kind == IGNIS__SDPA_PACKED
              ? ignis__attention_packed_sizes(op, heads, kv_heads, attention)
              : ignis__attention_sizes(op, heads, kv_heads, kind == IGNIS__SDPA_DECODE ? 512 : 256, attention)))
        return false;
    attention->params.causal = desc->mask == IGNIS_MASK_CAUSAL;
    if (desc->scale > 0)
        attention->params.scale = desc->scale;
    return ignis__sdpa_variant(op, desc, kind == IGNIS__SDPA_PACKED ? 1 : 3, attention);
}

#define IGNIS__SECTION_BYTES ((int64_t)32 << 20) /* of k and v, that stay in the L2 cache of an H200 */

/*  Launches the forward by kernels/attention_hopper.cu. */
static void ignis__sdpa_wgmma(ignis__op *op, ignis_dtype dtype, ignis__attention *attention)
{
    ignis__attention_params *p = &attention->params;
    const ignis__attention_hopper_shape *shape;
    int64_t multiprocessors = op->work.device->info.multiprocessors, pairs = (int64_t)p->batches * p->heads;
    int64_t items, tiles, seen, least, wanted, slabs = ignis__ceil_div(p->head_dim, 64), shared;
    int64_t heads_of_section = IGNIS__SECTION_BYTES / (4 * (int64_t)p->sk * p->head_dim);
    ignis__tensor_map q, k, v, out;
    ignis__forward_plan plan = IGNIS__ZERO;
    void *params[] = {&q, &k, &v, &out, &attention->params, &plan}, *combine[] = {&attention->params, &plan};
    int range = ignis__attention_hopper_range(attention);
    char define[IGNIS__DEFINES];
    shape = ignis__attention_hopper_choose(op, attention, range != 0);
    ignis__attention_tma_map(op, &q, dtype, attention, &p->q, false, 64, p->head_dim / 64);
    ignis__attention_tma_map(op, &k, dtype, attention, &p->k, true, shape->keys, p->head_dim / 64);
    ignis__attention_tma_map(op, &v, dtype, attention, &p->v, true, shape->keys, p->head_dim / 64);
    ignis__attention_tma_map(op, &out, dtype, attention, &p->out, false, 64, p->head_dim / 64);
    ignis__attention_hopper_define(define, sizeof define, attention, shape);
    ignis__attention_options(define, sizeof define, attention, range);

    items = ignis__ceil_div(p->sq, 64 * shape->groups) * pairs;
    tiles = ignis__ceil_div(p->sk, shape->keys);
    seen = 64 * shape->groups +
           (p->causal ? 1 : 2) * (int64_t)p->window; /* the most keys that the queries of an item see */
    tiles = ignis__clamp(ignis__ceil_div(seen, shape->keys) + 1, 1, tiles);
    least = shape->keys > 64 ? 2 : 4; /* tiles of keys that are worth a split */
    wanted = op->steady ? 1 : ignis__clamp(multiprocessors / items, 1, tiles > least ? tiles / least : 1);
    plan.tiles = (int)ignis__ceil_div(tiles, wanted);
    plan.splits = (int)ignis__ceil_div(tiles, plan.tiles);
    plan.section = (int)ignis__clamp(
        ((int64_t)1 << ignis__log2((uint64_t)(heads_of_section | 1))) * (p->heads / p->kv_heads), 1, pairs);
    plan.counter = ignis__op_zeroed(op);
    if (plan.splits > 1)
        plan.parts =
            ignis__op_write(op, ignis__op_new_row(op, plan.splits * pairs * p->sq * (p->head_dim + 2), IGNIS_F32));
    shared = slabs * 128 * (64 * shape->groups * (p->head_dim <= 128 ? 3 : 1) + 2 * shape->stages * shape->keys);
    shared = shape->teams * shared + (shape->teams - 1) * 1024 + 256; /* a team begins at a multiple of 1024 bytes */
    ignis__attention_cost(attention, dtype, 2, 2, 2);
    ignis__op_launch(op, IGNIS__BUILTIN(SDPA_HOPPER), dtype, define,
                     ignis__launch_row(ignis__clamp(items * plan.splits, 1, multiprocessors),
                                       (unsigned)(128 * (shape->teams * shape->groups + 1)), (size_t)shared),
                     params);
    if (plan.splits > 1)
        ignis__op_launch(op, IGNIS__BUILTIN(SDPA_HOPPER_COMBINE), dtype, define,
                         ignis__launch_row(ignis__ceil_div(pairs * p->sq, 8), 256, 0), combine);
}

/*  Launches the forward by the best kernels for the operands. */
IGNIS__PRIVATE void ignis__sdpa_run(ignis__op *op, ignis_dtype dtype, ignis__attention *p)
{
    ignis__attention_variant variant;
    if (op->replays)
        return;
    if (op->ok)
        ignis__attention_request(op, dtype, p, false);
    if (op->ok && ignis__attention_takes_wgmma(op, dtype, p)) {
        ignis__sdpa_wgmma(op, dtype, p);
    } else if (op->ok) {
        variant = ignis__attention_choose(op, dtype, p);
        ignis__attention_cost(p, dtype, 2, 2, 2);
        ignis__attention_launch(op, &variant, variant.forward_kernel, &variant.forward, dtype, p->params.sq,
                                p->params.heads, p);
    }
}

IGNIS_API ignis_tensor ignis_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, const ignis_sdpa_desc *desc)
{
    ignis_tensor inputs[8] = {q, k, v};
    ignis__attention attention;
    ignis__op op;
    ignis__array *out, *lse, *bounds;
    if (!ignis__op_begin(&op, "ignis_sdpa", ignis__sdpa_inputs(desc, inputs, 3), inputs))
        return ignis__no_tensor();
    ignis__sdpa_prepare(&op, desc, IGNIS__SDPA, &attention);
    out = ignis__op_new_product(&op, &op.in[0]->shape, op.in[0]->dtype);
    ignis__attention_operands(&op, out, &attention);
    bounds = ignis__attention_find_bounds(&op, &attention);
    if (op.saves) {
        lse = ignis__attention_new_lse(&op, &attention, op.in[0]->dtype);
        attention.params.lse = ignis__op_write(&op, lse);
        ignis__op_save_inputs(&op, 0, 3);
        ignis__op_save(&op, out);
        ignis__op_save(&op, lse);
        ignis__attention_save_options(&op, 3, bounds);
    }
    ignis__sdpa_run(&op, op.in[0]->dtype, &attention);
    return ignis__op_end_recorded(&op, out, "sdpa", ignis__sdpa_backward, &attention, sizeof attention);
}
