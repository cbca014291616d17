/*  >>ops.conv.geometry - convolutions as products of patches: sides, grids of pixels, taps, operands

    A convolution multiplies patches of x by weights; its gradients multiply patches of the gradient, or
    patches by the gradient. Patches are never stored: kernels compute their addresses from the grids here,
    which kernels/gemm.cuh has as well. */

#include "room.h"

IGNIS__PRIVATE ignis__conv_grid ignis__conv_forward_grid(const ignis__conv_side *side)
{
    ignis__conv_grid walk;
    walk.grid = side->out;
    walk.taps = side->kernel;
    walk.first = -side->padding;
    walk.stride = side->stride;
    walk.step = side->dilation;
    walk.weight = 0;
    walk.weight_step = 1;
    return walk;
}

/*  Returns the distance from one tap to the next that reads the same pixels of x, for another patch. */
static int64_t ignis__conv_tap_step(const ignis__conv_side *side)
{
    int64_t common = side->stride, rest = side->dilation;
    while (rest) { /* greatest common divisor */
        int64_t next = common % rest;
        common = rest;
        rest = next;
    }
    return side->stride / common;
}

/*  Returns how many phases patches have: those of the first taps, which differ. There are at most as many as
    taps, however long the stride is. */
IGNIS__PRIVATE int64_t ignis__conv_phases(const ignis__conv_side *side)
{
    int64_t step = ignis__conv_tap_step(side);
    return step < side->kernel ? step : side->kernel;
}

/*  Returns the grid of the gradient of x for one phase. Pixels phase, phase + stride ... of x have patches in
    the gradient of the result. Pixel h of x is in the patch of pixel (h + padding - tap * dilation) / stride
    of the result, if that is a whole number. For one phase these are every few taps, each some pixels from
    the next. Taps count from the last one, so that pixels rise. */
IGNIS__PRIVATE ignis__conv_grid ignis__conv_backward_grid(const ignis__conv_side *side, int64_t tap, int64_t *phase)
{
    ignis__conv_grid walk = IGNIS__ZERO;
    int64_t step = ignis__conv_tap_step(side), at = (tap * side->dilation - side->padding) % side->stride;
    *phase = at < 0 ? at + side->stride : at;
    walk.grid = *phase < side->in ? ignis__ceil_div(side->in - *phase, side->stride) : 0;
    walk.taps = ignis__ceil_div(side->kernel - tap, step);
    walk.stride = 1;
    walk.step = side->dilation / (side->stride / step);
    walk.weight = tap + (walk.taps - 1) * step;
    walk.weight_step = -step;
    walk.first = (*phase + side->padding - walk.weight * side->dilation) / side->stride;
    return walk;
}

/*  Returns whether no patch has some pixels of x. */
IGNIS__PRIVATE bool ignis__conv_skips_pixels(const ignis__conv *conv)
{
    int i;
    for (i = 0; i < IGNIS__SIDES; i++) {
        const ignis__conv_side *side = &conv->side[i];
        int64_t phases = ignis__conv_phases(side), tap, phase, met = 0;
        for (tap = 0; tap < phases; tap++) {
            ignis__conv_backward_grid(side, tap, &phase);
            met += phase < side->in;
        }
        if (met < (side->stride < side->in ? side->stride : side->in))
            return true;
    }
    return false;
}

/*  Returns whether TMA can step through the grids: corners of a box of pixels, and the distances of taps, have
    8 bits, of volumes 5. */
static bool ignis__conv_fits_tma(const ignis__conv *conv, const ignis__conv_grid walk[IGNIS__SIDES],
                                 const int64_t size[IGNIS__SIDES])
{
    int64_t limit = conv->volumes ? 16 : 128;
    int i;
    for (i = 0; i < (conv->volumes ? 3 : 2); i++) {
        const ignis__conv_grid *w = &walk[i];
        int64_t upper = w->first + w->stride * (w->grid - 1) - (size[i] - 1);
        if (w->first < -limit || w->first >= limit || upper < -limit || upper >= limit || w->stride > 8 ||
            (w->taps - 1) * w->step >= 2 * limit)
            return false;
    }
    return true;
}

IGNIS__PRIVATE int64_t ignis__conv_taps(const ignis__conv *c)
{
    return c->side[0].kernel * c->side[1].kernel * c->side[2].kernel;
}

/*  Returns the pixels of the result. */
IGNIS__PRIVATE int64_t ignis__conv_pixels(const ignis__conv *c)
{
    return c->images * c->side[0].out * c->side[1].out * c->side[2].out;
}

/*  Returns whether a convolution is a product of the matrices as they are: x [rows, channels] w^T. */
IGNIS__PRIVATE bool ignis__conv_is_product(const ignis__conv *c, ignis__product *product)
{
    int i;
    if (c->groups != 1)
        return false;
    for (i = 0; i < IGNIS__SIDES; i++)
        if (c->side[i].kernel != 1 || c->side[i].stride != 1 || c->side[i].padding != 0)
            return false;
    *product = ignis__product_of(c->dtype, ignis__conv_pixels(c), c->outs, c->channels, 1);
    return true;
}

/*  Returns whether each channel of the result depends on one channel of x. */
IGNIS__PRIVATE bool ignis__conv_is_depthwise(const ignis__conv *c)
{
    return c->groups > 1 && c->channels == 1 && c->outs == 1;
}

/*  Reads two operands. For tensor cores, channels that are not full packs are copied into packs; packs of few
    channels are half as large. */
IGNIS__PRIVATE void ignis__conv_operands(ignis__op *op, const ignis__conv *conv, ignis__conv_operand operand[2],
                                         ignis__array *const arrays[2], const int64_t channels[2])
{
    bool tensor_cores =
        op->work.device->info.compute_major >= 8 && !ignis__conv_is_depthwise(conv) &&
        (conv->dtype == IGNIS_F16 || conv->dtype == IGNIS_BF16 || (conv->dtype == IGNIS_F32 && ignis__allow_tf32));
    ignis__gemm_copy copies[2] = IGNIS__ZERO;
    int i;
    for (i = 0; i < 2; i++) {
        int64_t whole = ignis__pack_elements(conv->dtype), pack = 2 * channels[i] <= whole ? whole / 2 : whole;
        operand[i].at = ignis__op_read(op, arrays[i]);
        operand[i].channels = channels[i];
        if (channels[i] % pack == 0 && operand[i].at % (uint64_t)(pack * ignis__dtypes[conv->dtype].size) == 0)
            operand[i].packed = (int)(whole / pack);
        else
            operand[i].packed = 0;
        if (op->ok && tensor_cores && ignis__array_bytes(arrays[i]) <= ignis__gemm_pack_limit && arrays[i]->numel > 0) {
            ignis__gemm_matrix matrix = {
                operand[i].at, 1, arrays[i]->numel / channels[i], channels[i], channels[i], 0, operand[i].packed};
            ignis__gemm_plan_copy(op, conv->dtype, &copies[i], &matrix, pack);
            operand[i].at = matrix.at;
            operand[i].channels = matrix.row;
            operand[i].packed = matrix.packed;
        }
    }
    if (op->ok && (copies[0].to || copies[1].to))
        ignis__gemm_copies(op, conv->dtype, &copies[0], &copies[1]);
}

/*  Sets the patches of an array of pixels, of these sides and with `channels` channels, and the k of wgmma. */
IGNIS__PRIVATE void ignis__conv_patches(ignis__gemm *gemm, const ignis__conv *conv, int of,
                                        const ignis__conv_grid walk[IGNIS__SIDES], const int64_t size[IGNIS__SIDES],
                                        const ignis__conv_operand *pixels, int64_t channels)
{
    ignis__patches *q = &gemm->params.patches;
    int64_t whole = ignis__ceil_div(channels, 64) * 64;
    int i;
    gemm->patches_of = of;
    gemm->images = conv->images;
    gemm->volumes = conv->volumes;
    q->rows = ignis__divisor_of(walk[IGNIS__ROWS].grid);
    q->columns = ignis__divisor_of(walk[IGNIS__COLUMNS].grid);
    q->planes = ignis__divisor_of(walk[IGNIS__PLANES].grid);
    q->channels = ignis__divisor_of(channels);
    q->across = ignis__divisor_of(walk[IGNIS__COLUMNS].taps);
    q->down = ignis__divisor_of(walk[IGNIS__ROWS].taps);
    q->height = (int)size[IGNIS__ROWS];
    q->width = (int)size[IGNIS__COLUMNS];
    q->depth = (int)size[IGNIS__PLANES];
    q->pixel = conv->groups * pixels->channels;
    q->weight = 0;
    for (i = 0; i < IGNIS__SIDES; i++) {
        int64_t apart = i == IGNIS__COLUMNS ? 1 : conv->side[IGNIS__COLUMNS].kernel; /* taps of w, to the next one */
        apart *= i == IGNIS__PLANES ? conv->side[IGNIS__ROWS].kernel : 1;
        q->first[i] = (int)walk[i].first;
        q->stride[i] = (int)walk[i].stride;
        q->step[i] = (int)walk[i].step;
        q->weight += (int)(walk[i].weight * apart);
        q->weight_step[i] = (int)(walk[i].weight_step * apart);
    }
    gemm->wgmma_k = 0;
    if (conv->groups == 1 && ignis__cuda.cuTensorMapEncodeIm2col && ignis__conv_fits_tma(conv, walk, size) &&
        (of == 1 || channels == whole))
        gemm->wgmma_k = of == 1 ? walk[0].taps * walk[1].taps * walk[2].taps * whole : gemm->params.k;
}

/*  Sets the weights as the second operand of a product with patches. */
IGNIS__PRIVATE void ignis__conv_weights(ignis__gemm *p, const ignis__conv *c, const ignis__conv_operand *w)
{
    p->params.b = w->at;
    p->params.batch_b = c->outs * ignis__conv_taps(c) * w->channels;
    p->weights = w->channels;
    p->params.patches.weight_row = ignis__conv_taps(c) * w->channels;
    p->params.patches.weight_channels = (int)c->outs;
    p->params.packed_b = w->packed;
}
