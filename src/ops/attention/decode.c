/*  >>ops.attention.decode - ignis_decode_sdpa: attention of one query to a cache of keys

    Splits the keys of a sequence over blocks, then combines the splits. Nothing is recorded on the tape.
    Uses: select, operands; kernels ATTENTION_DECODE and ATTENTION_DECODE_MMA. */

#include "room.h"

/*  How a cache is split over blocks. */
typedef struct ignis__decode_variant {
    char define[96];
    ignis__builtin kernel, combine_kernel;
    int heads;                   /* query heads of a block: it reads the keys once for all of them */
    int keys;                    /* that a block steps over at a time */
    int threads, shared, blocks; /* of a block; blocks of an SM */
} ignis__decode_variant;

/*  Returns the geometry of kernels/attention_decode_mma.cu and kernels/attention_decode.cu. */
static ignis__decode_variant ignis__decode_choose(const ignis__op *op, ignis_dtype dtype,
                                                  const ignis__attention *attention)
{
    ignis__decode_variant variant = IGNIS__ZERO;
    int head_dim = 64, group = attention->params.heads / attention->params.kv_heads, warps;
    while (head_dim < attention->params.head_dim)
        head_dim *= 2;
    snprintf(variant.define, sizeof variant.define, "-DIGNIS_HEAD_DIM=%d", head_dim);
    ignis__attention_options(variant.define, sizeof variant.define, attention, ignis__attention_range(attention));
    if (head_dim <= 256 && ignis__attention_takes_mma(op, dtype, attention)) {
        warps = head_dim <= 128 ? 4 : 2;
        variant.kernel = IGNIS__BUILTIN(SDPA_MMA_DECODE);
        variant.combine_kernel = IGNIS__BUILTIN(SDPA_MMA_DECODE_COMBINE);
        variant.heads = 16;
        variant.keys = 16 * warps;
        variant.threads = 32 * warps;
        variant.shared = 2 * variant.keys * 3 * 2 * head_dim;
        variant.blocks = head_dim <= 64 ? 4 : 2;
    } else {
        group = group > 2 && dtype == IGNIS_F64 && head_dim > 256 ? 2 : group;
        variant.kernel = group == 1   ? IGNIS__BUILTIN(SDPA_DECODE_1)
                         : group == 2 ? IGNIS__BUILTIN(SDPA_DECODE_2)
                                      : IGNIS__BUILTIN(SDPA_DECODE_4);
        variant.combine_kernel = IGNIS__BUILTIN(SDPA_DECODE_COMBINE);
        variant.heads = group < 3 ? group : 4;
        variant.keys = 64;
        variant.threads = 256;
        variant.blocks = 2;
    }
    return variant;
}

/*  While programs are recorded: requests the kernels that devices of every kind choose, with rows inside a
    window and beyond it. */
IGNIS__COLD static void ignis__decode_request(ignis__op *op, ignis_dtype dtype, const ignis__attention *given)
{
    ignis__attention p = *given;
    int major, round;
    for (round = 0; op->ok && ignis__requests.path[0] && round < (p.windowed && !p.has_lengths ? 2 : 1); round++) {
        for (major = 7; major <= 8; major++) {
            ignis__decode_variant variant;
            op->as_major = major;
            variant = ignis__decode_choose(op, dtype, &p);
            ignis__record_builtin(variant.kernel, dtype, variant.define, major == 7 ? 0 : 80, IGNIS__EVERY_ARCH);
        }
        p.params.window = ignis__attention_range(&p) ? p.params.sq > p.params.sk ? p.params.sq : p.params.sk : 0;
    }
    op->as_major = 0;
}

/*  Launches one block for each key head and split of its keys, then one for each query head. */
static void ignis__decode_run(ignis__op *op, ignis__attention *p, ignis_dtype dtype)
{
    ignis__decode_variant variant = ignis__decode_choose(op, dtype, p);
    int64_t passes = ignis__ceil_div(p->params.heads / p->params.kv_heads, variant.heads),
            items = passes * p->params.kv_heads * p->params.batches;
    int64_t wanted = ignis__clamp((int64_t)variant.blocks * op->work.device->info.multiprocessors / items, 1, 1024);
    int per_split = (int)(ignis__ceil_div(ignis__ceil_div(p->params.window, wanted), variant.keys) * variant.keys);
    int splits = (int)ignis__ceil_div(p->params.window,
                                      per_split); /* the most keys that the query sees: without a window all of them */
    int64_t numbers = (int64_t)p->params.batches * p->params.heads * splits * (p->params.head_dim + 2);
    ignis__address scratch = ignis__op_write(op, ignis__op_new_row(op, numbers, ignis__wide_dtype(dtype)));
    void *parts[] = {p, &scratch, &per_split}, *combine[] = {p, &scratch, &splits};
    ignis__decode_request(op, dtype, p);
    ignis__op_launch(op, variant.kernel, dtype, variant.define,
                     ignis__launch_grid(splits, passes * p->params.kv_heads, p->params.batches,
                                        (unsigned)variant.threads, 1, (size_t)variant.shared),
                     parts);
    ignis__op_launch(op, variant.combine_kernel, dtype, variant.define,
                     ignis__launch_row((int64_t)p->params.batches * p->params.heads, 128, 0), combine);
}

static ignis_tensor ignis__decode_sdpa(const char *call, ignis_tensor q, ignis_tensor k, ignis_tensor v,
                                       const ignis_sdpa_desc *desc)
{
    ignis_tensor inputs[8] = {q, k, v};
    ignis__attention p;
    ignis__op op;
    ignis__array *out;
    if (!ignis__op_begin(&op, call, ignis__sdpa_inputs(desc, inputs, 3), inputs))
        return ignis__no_tensor();
    if (ignis__sdpa_prepare(&op, desc, IGNIS__SDPA_DECODE, &p) && (p.params.sq != 1 || p.params.sk < 1))
        ignis__op_fail(&op, IGNIS_DIAG_SDPA_SHAPE, "q is %s, k is %s; one query and at least one key are needed",
                       ignis__shape_write(&op.in[0]->shape).text, ignis__shape_write(&op.in[1]->shape).text);
    out = ignis__op_new_like(&op, op.in[0]);
    ignis__attention_operands(&op, out, &p);
    if (op.ok && p.params.batches > 0)
        ignis__decode_run(&op, &p, out->dtype);
    return ignis__op_end(&op, out, NULL);
}

IGNIS_API ignis_tensor ignis_decode_sdpa(ignis_tensor q, ignis_tensor k, ignis_tensor v, int num_heads)
{
    static const char call[] = "ignis_decode_sdpa";
    ignis_sdpa_desc desc = IGNIS__ZERO;
    desc.num_heads = num_heads;
    if (num_heads >= 1)
        return ignis__decode_sdpa(call, q, k, v, &desc);
    if (ignis__enter(call))
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "num_heads is %d, below 1", num_heads);
    return ignis__no_tensor();
}

IGNIS_API ignis_tensor ignis_decode_sdpa_with(ignis_tensor q, ignis_tensor k, ignis_tensor v,
                                              const ignis_sdpa_desc *desc)
{
    return ignis__decode_sdpa("ignis_decode_sdpa_with", q, k, v, desc);
}
