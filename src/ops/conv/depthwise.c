/*  >>ops.conv.depthwise - convolutions of one channel by one filter each

    Uses: geometry, gemm_params; kernels/depthwise.cu.
    Invariant: sums of the gradient of w have a fixed order. */

#include "room.h"

/*  Runs a depthwise convolution with the parameters of its product. sums: of the gradient of w; NULL: another
    pass. Packs of channels step over strips of pixels if a variant exists: 3, 5 or 7 taps side by side. */
IGNIS__PRIVATE void ignis__depthwise(ignis__op *op, const ignis__conv *conv, ignis__gemm *gemm, ignis__array *sums)
{
    ignis__gemm_params *p = &gemm->params;
    const ignis__patches *q = &p->patches;
    int64_t pack = ignis__pack_elements(conv->dtype), slabs, blocks, chunks, units,
            in_row = ignis__ceil_div(q->columns.size, IGNIS__DEPTHWISE_STRIP);
    int64_t processors = op->work.device->info.multiprocessors, taps = q->across.size;
    bool packed = ignis__gemm_packed(conv->dtype, p->a | (sums ? p->b : p->out | p->bias), conv->groups, 0);
    bool by_strips = packed && !gemm->volumes && (taps == 3 || taps == 5 || taps == 7) && q->step[1] == 1 &&
                     q->stride[1] <= 2 && (sums ? p->n : p->k) <= 64;
    ignis__divisor strips = ignis__divisor_of(in_row);
    char define[64];
    int across;
    void *params[] = {gemm, &across, &strips};
    pack = packed ? pack : 1;
    across = (int)ignis__clamp(ignis__power_of_2_up(ignis__ceil_div(conv->groups, pack)), 1, IGNIS__DEPTHWISE_ACROSS);
    slabs = ignis__ceil_div(conv->groups, across * pack);
    if (gemm->volumes)
        snprintf(define, sizeof define, "-DIGNIS_VOLUMES=1");
    else
        snprintf(define, sizeof define, "-DIGNIS_TAPS=%d -DIGNIS_STRIDE=%d", (int)taps, q->stride[1]);
    ignis__record_builtin_for_all(sums ? IGNIS__BUILTIN(DEPTHWISE_WEIGHTS) : IGNIS__BUILTIN(DEPTHWISE),
                                  conv->dtype); /* for other addresses */
    if (sums)
        ignis__record_builtin_for_all(IGNIS__BUILTIN(GEMM_FINISH), conv->dtype);
    if (!sums) {
        units = by_strips ? p->m / q->columns.size * in_row : ignis__ceil_div(p->m, IGNIS__DEPTHWISE_PIXELS);
        blocks = ignis__ceil_div(units, IGNIS__DEPTHWISE_THREADS / across);
        blocks = by_strips ? ignis__clamp(ignis__ceil_div(4 * processors, slabs), 1, blocks) : blocks;
        ignis__op_launch(op, packed ? IGNIS__BUILTIN(DEPTHWISE) : IGNIS__BUILTIN(DEPTHWISE_UNPACKED), conv->dtype,
                         by_strips || gemm->volumes ? define : NULL,
                         ignis__launch_row(slabs * blocks, IGNIS__DEPTHWISE_THREADS, 0), params);
        return;
    }
    units = by_strips ? p->k / q->columns.size * in_row : p->k;
    chunks = by_strips ? ignis__ceil_div(p->n / taps, taps == 3 ? 3 : 1) : ignis__ceil_div(p->n, IGNIS__DEPTHWISE_TAPS);
    blocks = (by_strips ? 2 : 4) * processors; /* a thread adds up several units of them at least */
    p->splits = (int)ignis__clamp(blocks / (slabs * chunks), 1,
                                  ignis__ceil_div(units, IGNIS__DEPTHWISE_THREADS / across * (by_strips ? 2 : 8)));
    p->split_k = ignis__ceil_div(units, p->splits);
    p->partial = ignis__gemm_sums_scratch(op, sums, p->splits, conv->dtype);
    ignis__op_launch(op, packed ? IGNIS__BUILTIN(DEPTHWISE_WEIGHTS) : IGNIS__BUILTIN(DEPTHWISE_WEIGHTS_UNPACKED),
                     conv->dtype, by_strips || gemm->volumes ? define : NULL,
                     ignis__launch_row(slabs * chunks * p->splits, IGNIS__DEPTHWISE_THREADS, 0), params);
    ignis__gemm_add_sums(op, sums, p->partial, p->splits);
}
