/*  >>ops.conv.grouped - convolutions of groups with few channels, by kernels/grouped_mma.cu

    Plans tiles of pixels and slabs of groups, and runs the kernel.
    Uses: geometry, gemm_params. */

#include "room.h"

/*  Plans a product of groups with few channels: tiles of up to 32 columns and as many rows as a k step of
    both operands in 40 KiB has. weights: it is the gradient of w. False if it is not such a product. */
IGNIS__PRIVATE bool ignis__grouped_plan(const ignis__conv *conv, const ignis__gemm *gemm, bool weights,
                                        ignis__grouped *plan)
{
    const ignis__gemm_params *p = &gemm->params;
    enum { ROOM = 40 << 10, MOST_STEPS = 28 };
    const ignis__patches *q = &p->patches;
    ignis__conv_tiles *tiles = &plan->tiles;
    int64_t channels = q->channels.size, outs = weights ? p->m : p->n, taps = (weights ? p->n : p->k) / channels,
            rows = q->rows.size, columns = q->columns.size, tap_rows = taps / q->across.size, slab = 1, steps,
            out_chunks, bytes = 0, halo_columns, row, width, best = 0;
    bool halves = conv->dtype == IGNIS_F16 || conv->dtype == IGNIS_BF16;
    if (!halves || channels < 8 || outs < 8 || channels > 64 || outs > 64 || !ignis__is_power_of_2(channels) ||
        !ignis__is_power_of_2(outs) || p->packed_a != 1 || p->packed_b != 1 ||
        (weights ? p->batch_a != outs || p->batch_b != channels : p->batch_a != channels || !p->packed_out) ||
        p->accumulate)
        return false;
    while (slab < 8 && (slab * 8 < channels || slab * 8 < p->batch * channels))
        slab *= 2;
    steps = ignis__ceil_div(taps * channels, 16);
    out_chunks = slab * outs / channels;
    if (steps * ignis__ceil_div(out_chunks, 8) > MOST_STEPS || out_chunks > 64)
        return false;
    width = ignis__ceil_div(columns, ignis__ceil_div(columns, 32));
    halo_columns = (width - 1) * q->stride[1] + ((int64_t)q->across.size - 1) * q->step[1] + 1;
    for (row = 1; row <= rows; row++) {
        int64_t halo = ((row - 1) * q->stride[0] + (tap_rows - 1) * q->step[0] + 1) * halo_columns * slab * 16;
        halo += weights ? ignis__ceil_div(row * width, 32) * 32 * out_chunks * 16 : 0;
        if (halo > ROOM)
            break;
        best = row;
    }
    if (best == 0)
        return false;
    best = ignis__ceil_div(rows, ignis__ceil_div(rows, best));
    memset(plan, 0, sizeof *plan);
    tiles->across = ignis__divisor_of(ignis__ceil_div(columns, width));
    tiles->down = ignis__divisor_of(ignis__ceil_div(rows, best));
    tiles->columns = ignis__divisor_of(width);
    tiles->halo = ignis__divisor_of(halo_columns);
    tiles->rows = (int)best;
    tiles->halo_rows = (int)((best - 1) * q->stride[0] + (tap_rows - 1) * q->step[0] + 1);
    tiles->count = (int)((weights ? p->k : p->m) / (rows * columns) * tiles->across.size * tiles->down.size);
    bytes = tiles->halo_rows * halo_columns * slab * 16 +
            (weights ? ignis__ceil_div(best * width, 32) * 32 * out_chunks * 16 : 0);
    plan->channels = (int)channels;
    plan->outs = (int)outs;
    plan->taps = (int)taps;
    plan->slab = (int)slab;
    plan->slabs = (int)ignis__ceil_div(p->batch * channels, slab * 8);
    plan->shared = 128 + 2 * bytes;
    snprintf(plan->define, sizeof plan->define, "-DIGNIS_CHANNELS=%d -DIGNIS_OUTS=%d -DIGNIS_TAPS=%d -DIGNIS_SLAB=%d",
             (int)channels, (int)outs, (int)taps, (int)slab);
    return true;
}

/*  Returns whether the device has the kernel, or a record has it. While programs are recorded: requests the
    kernel of older devices too. */
IGNIS__PRIVATE bool ignis__grouped_exists(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *p,
                                          const ignis__grouped *plan, bool weights)
{
    ignis__builtin builtin = weights ? IGNIS__BUILTIN(GROUPED_WEIGHTS) : IGNIS__BUILTIN(GROUPED);
    char define[32];
    if (op->work.device->info.compute_major < 8 ||
        !ignis__variant_exists(op->work.device, builtin, dtype, plan->define))
        return false;
    if (ignis__requests.path[0]) {
        snprintf(define, sizeof define, "-DIGNIS_PATCHES=%d", p->patches_of);
        ignis__record_builtin_for_all(IGNIS__BUILTIN(GEMM_FINISH), dtype);
        ignis__record_builtin(IGNIS__BUILTIN(GEMM_TINY), dtype, define, 0, 79);
        ignis__record_builtin(IGNIS__BUILTIN(GEMM), dtype, define, 0, 79);
    }
    return true;
}

/*  Runs the kernel. sums: the gradient of w; NULL: another product. */
IGNIS__PRIVATE void ignis__grouped_run(ignis__op *op, const ignis__conv *c, ignis__gemm *p, ignis__grouped *plan,
                                       ignis__array *sums)
{
    int64_t blocks = ignis__clamp(2 * op->work.device->info.multiprocessors / plan->slabs, 1, plan->tiles.count), steps,
            warps;
    void *params[] = {p, &plan->tiles};
    if (sums) { /* warps that share the pixels make a split each: K_WARPS of kernels/grouped_mma.cu */
        steps = ignis__ceil_div(plan->taps * plan->channels, 16);
        warps = plan->slab * 8 == plan->channels && plan->outs > 8 && steps > 7 ? 4 : 8;
        warps /= ignis__clamp(plan->slab * plan->outs / plan->channels, 1, warps);
        p->params.splits = (int)(blocks * warps);
        p->params.partial = ignis__gemm_sums_scratch(op, sums, p->params.splits, c->dtype);
    }
    ignis__cost(-1, ignis__gemm_flops(p), (int)c->dtype);
    ignis__op_launch(op, sums ? IGNIS__BUILTIN(GROUPED_WEIGHTS) : IGNIS__BUILTIN(GROUPED), c->dtype, plan->define,
                     ignis__launch_row(blocks * plan->slabs, 256, (size_t)plan->shared), params);
    if (sums)
        ignis__gemm_add_sums(op, sums, p->params.partial, p->params.splits);
}
