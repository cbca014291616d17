/*  >>ops.conv.implicit_gemm - convolutions and their gradients as GEMMs whose operand is patches

    Forward, the gradient of x (a product for each phase of the strides) and the gradient of w.
    Uses: geometry, depthwise, grouped, gemm_launch. */

#include "room.h"

/*  Describes a product with patches of all groups, whose first operand has `channels` channels. */
static ignis__product ignis__conv_product(const ignis__conv *c, int64_t m, int64_t n, int64_t k, int64_t channels)
{
    ignis__product p = ignis__product_of(c->dtype, m, n, k, 0);
    p.batch = c->groups;
    p.batch_a = channels;
    p.batch_b = 0;
    return p;
}

/*  Runs a product with patches. False: the caller computes the row sums. */
static bool ignis__conv_compute(ignis__op *op, const ignis__conv *c, ignis__gemm *p, ignis__array *sums,
                                const ignis__epilogue *epilogue)
{
    ignis__grouped plan;
    if (!op->ok)
        return false;
    if (p->params.packed_a != 1 || p->params.packed_b != 1)
        p->wgmma_k = 0;
    if (ignis__conv_is_depthwise(c)) {
        ignis__depthwise(op, c, p, sums);
        return false;
    }
    if ((c->groups == 1 && !p->folded) || c->volumes || !ignis__grouped_plan(c, p, sums != NULL, &plan) ||
        !ignis__grouped_exists(op, c->dtype, p, &plan, sums != NULL))
        return ignis__gemm_compute(op, c->dtype, p, epilogue);
    ignis__grouped_run(op, c, p, &plan, sums);
    return false;
}

IGNIS__PRIVATE void ignis__conv_forward(ignis__op *op, const ignis__conv *conv, ignis__array *out, ignis__array *x,
                                        ignis__array *w, ignis__array *bias)
{
    ignis__array *const arrays[2] = {x, w};
    ignis__conv_operand operand[2];
    ignis__conv_grid walk[IGNIS__SIDES];
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__product product;
    ignis__gemm gemm;
    const int64_t channels[2] = {conv->channels, conv->channels};
    int64_t size[IGNIS__SIDES];
    int i;
    epilogue.bias = bias;
    if (!op->ok || out->numel == 0)
        return;
    if (ignis__conv_is_product(conv, &product)) {
        ignis__matmul_run(op, &product, out, x, w, &epilogue);
        return;
    }
    ignis__conv_operands(op, conv, operand, arrays, channels);
    for (i = 0; i < IGNIS__SIDES; i++) {
        walk[i] = ignis__conv_forward_grid(&conv->side[i]);
        size[i] = conv->side[i].in;
    }
    product = ignis__conv_product(conv, ignis__conv_pixels(conv), conv->outs,
                                  ignis__conv_taps(conv) * operand[0].channels, operand[0].channels);
    product.transpose_b = 1;
    gemm = ignis__gemm_describe(op, &product, out, &epilogue);
    gemm.params.a = operand[0].at;
    gemm.params.packed_a = operand[0].packed;
    ignis__conv_patches(&gemm, conv, IGNIS__OPERAND_A, walk, size, &operand[0], operand[0].channels);
    ignis__conv_weights(&gemm, conv, &operand[1]);
    gemm.params.patches.out_column = conv->groups * conv->outs;
    gemm.params.patches.out_row = gemm.params.patches.out_column * conv->side[IGNIS__COLUMNS].out;
    gemm.params.patches.out_plane = gemm.params.patches.out_row * conv->side[IGNIS__ROWS].out;
    gemm.params.patches.out_image = gemm.params.patches.out_plane * conv->side[IGNIS__PLANES].out;
    ignis__conv_compute(op, conv, &gemm, NULL, &epilogue);
}

/*  Writes the bias (NULL: zeros) to all pixels of the gradient of x, as some have no patch. */
static void ignis__conv_fill(ignis__op *op, ignis__array *dx, ignis__array *bias)
{
    ignis__strides strides = IGNIS__ZERO;
    if (!bias) {
        ignis__op_zero(op, dx);
        return;
    }
    strides.rank = 2;
    strides.size[0] = dx->numel / bias->numel;
    strides.size[1] = strides.to[0] = bias->numel;
    strides.from[1] = strides.to[1] = 1;
    ignis__op_strided(op, dx, bias, &strides);
}

/*  Computes the part of dx that one phase of the strides of each side gives. beside: as ignis__gemm.beside. Returns
    whether the product of the next phase may run beside this one. */
static bool ignis__conv_grad_x_phase(ignis__op *op, const ignis__conv *conv, ignis__array *dx,
                                     const ignis__conv_operand operand[2], const ignis__conv_grid walk[IGNIS__SIDES],
                                     const int64_t phase[IGNIS__SIDES], const ignis__epilogue *epilogue, int beside)
{
    const ignis__conv_side *rows = &conv->side[IGNIS__ROWS], *columns = &conv->side[IGNIS__COLUMNS],
                           *planes = &conv->side[IGNIS__PLANES];
    const int64_t size[IGNIS__SIDES] = {rows->out, columns->out, planes->out};
    int64_t pixel = conv->groups * conv->channels,
            first = (phase[IGNIS__PLANES] * rows->in + phase[IGNIS__ROWS]) * columns->in + phase[IGNIS__COLUMNS];
    ignis__product product =
        ignis__conv_product(conv, conv->images * walk[0].grid * walk[1].grid * walk[2].grid, conv->channels,
                            walk[0].taps * walk[1].taps * walk[2].taps * operand[0].channels, operand[0].channels);
    ignis__gemm gemm = ignis__gemm_describe(op, &product, dx, epilogue);
    ignis__patches *patches = &gemm.params.patches;
    gemm.params.a = operand[0].at;
    gemm.params.packed_a = operand[0].packed;
    ignis__conv_patches(&gemm, conv, IGNIS__OPERAND_A, walk, size, &operand[0], operand[0].channels);
    ignis__conv_weights(&gemm, conv, &operand[1]);
    gemm.params.row_b = operand[1].channels;
    patches->apart = rows->stride > 1 || columns->stride > 1 || planes->stride > 1;
    patches->out_column = pixel * columns->stride;
    patches->out_row = pixel * columns->in * rows->stride;
    patches->out_plane = pixel * columns->in * rows->in * planes->stride;
    patches->out_image = pixel * columns->in * rows->in * planes->in;
    gemm.params.out += (uint64_t)(first * pixel * ignis__dtypes[conv->dtype].size);
    gemm.beside = beside;
    ignis__conv_compute(op, conv, &gemm, NULL, epilogue);
    return (patches->beside & IGNIS__BESIDE_NEXT) != 0;
}

/*  Computes dx: for each phase of the strides a product of patches of g and the weights of that phase, plus the bias of
    a transposed convolution (NULL: none). */
IGNIS__PRIVATE void ignis__conv_grad_x(ignis__op *op, const ignis__conv *conv, ignis__array *dx, ignis__array *g,
                                       ignis__array *w, ignis__array *bias)
{
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__array *const arrays[2] = {g, w};
    const int64_t channels[2] = {conv->outs, conv->channels};
    int64_t phases[IGNIS__SIDES], phase[IGNIS__SIDES], all = 1, k;
    ignis__conv_operand operand[2];
    ignis__conv_grid walk[IGNIS__SIDES];
    int beside = 0, i;
    epilogue.bias = bias;
    if (!op->ok || dx->numel == 0)
        return;
    if (g->numel == 0 || w->numel == 0 || ignis__conv_skips_pixels(conv))
        ignis__conv_fill(op, dx, bias);
    if (!op->ok || g->numel == 0 || w->numel == 0)
        return;
    ignis__conv_operands(op, conv, operand, arrays, channels);
    for (i = 0; i < IGNIS__SIDES; i++)
        all *= phases[i] = ignis__conv_phases(&conv->side[i]);
    for (k = 0; k < all && op->ok; k++) {
        int made = op->made_count;
        int64_t left = k;
        bool exists = true;
        for (i = 0; i < IGNIS__SIDES; i++) {
            walk[i] = ignis__conv_backward_grid(&conv->side[i], left % phases[i], &phase[i]);
            exists = exists && walk[i].grid > 0;
            left /= phases[i];
        }
        beside = all > 1 ? IGNIS__BESIDE_NEXT | beside : 0;
        if (exists)
            beside = ignis__conv_grad_x_phase(op, conv, dx, operand, walk, phase, &epilogue, beside)
                         ? IGNIS__BESIDE_LAST
                         : 0;
        ignis__op_free_made(op, made);
    }
}

/*  Returns whether the gradient of w reads pairs of pixels as one of 8 channels: in first layers, with few
    channels and stride 2. */
static bool ignis__conv_folds_pixel_pairs(const ignis__op *op, const ignis__conv *c,
                                          const ignis__conv_operand operand[2])
{
    const ignis__conv_side *side = &c->side[1];
    return op->ok && c->groups == 1 && !c->volumes && (c->dtype == IGNIS_F16 || c->dtype == IGNIS_BF16) &&
           op->work.device->info.compute_major >= 8 && operand[1].packed == 2 && operand[1].channels == 4 &&
           operand[1].at % 16 == 0 && operand[0].packed == 1 && side->stride == 2 && side->dilation == 1 &&
           side->in % 2 == 0;
}

/*  Computes dw = g^T times the patches of x, and db (NULL: not needed), the sum of g over its rows, inside
    that product if it can. */
IGNIS__PRIVATE void ignis__conv_grad_w(ignis__op *op, const ignis__conv *conv, ignis__array *dw, ignis__array *db,
                                       ignis__array *g, ignis__array *x)
{
    ignis__array *const arrays[2] = {g, x};
    ignis__conv_operand operand[2];
    ignis__conv_grid walk[IGNIS__SIDES];
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__product product;
    ignis__array *out = dw;
    ignis__axis rows = {1, ignis__conv_pixels(conv), conv->groups * conv->outs};
    ignis__gemm gemm;
    const int64_t channels[2] = {conv->outs, conv->channels};
    int64_t taps, size[IGNIS__SIDES], skipped = 0;
    bool summed = false, folded;
    int i;
    epilogue.row_sums = conv->groups == 1 ? db : NULL;
    if (op->ok && dw && dw->numel > 0 && (g->numel == 0 || x->numel == 0)) {
        ignis__op_zero(op, dw);
    } else if (op->ok && dw && dw->numel > 0) {
        ignis__conv_operands(op, conv, operand, arrays, channels);
        for (i = 0; i < IGNIS__SIDES; i++) {
            walk[i] = ignis__conv_forward_grid(&conv->side[i]);
            size[i] = conv->side[i].in;
        }
        folded = ignis__conv_folds_pixel_pairs(op, conv, operand);
        if (folded) { /* pairs of pixels: the first of them may belong to no tap */
            skipped = conv->side[1].padding % 2;
            walk[1].first = -(conv->side[1].padding + skipped) / 2;
            walk[1].stride = 1;
            walk[1].taps = ignis__ceil_div(walk[1].taps + skipped, 2);
            operand[1].channels *= 2;
            operand[1].packed = 1;
            size[IGNIS__COLUMNS] /= 2;
        }
        taps = walk[0].taps * walk[1].taps * walk[2].taps;
        if (operand[1].channels != conv->channels)
            out = ignis__op_new_row(op, conv->groups * conv->outs * taps * operand[1].channels, conv->dtype);
        product = ignis__conv_product(conv, conv->outs, taps * operand[1].channels, rows.n, operand[0].channels);
        product.batch_b = operand[1].channels;
        product.transpose_a = 1;
        gemm = ignis__gemm_describe(op, &product, out, &epilogue);
        gemm.params.a = operand[0].at;
        gemm.params.b = operand[1].at;
        gemm.params.row_a = conv->groups * operand[0].channels;
        gemm.params.packed_a = operand[0].packed;
        gemm.params.packed_b = operand[1].packed;
        ignis__conv_patches(&gemm, conv, IGNIS__OPERAND_B, walk, size, &operand[1], operand[1].channels);
        gemm.folded = folded;
        summed = ignis__conv_compute(op, conv, &gemm, out, &epilogue);
        if (op->ok && out != dw) { /* without the channels that were added */
            ignis__strides strides = IGNIS__ZERO;
            strides.rank = 3;
            strides.size[0] = conv->groups * conv->outs * conv->side[IGNIS__PLANES].kernel * conv->side[0].kernel;
            strides.size[1] = conv->side[1].kernel;
            strides.size[2] = conv->channels;
            strides.from[1] = operand[1].channels / (folded ? 2 : 1);
            strides.from[0] = walk[1].taps * operand[1].channels;
            strides.to[1] = conv->channels;
            strides.to[0] = strides.size[1] * strides.to[1];
            strides.from[2] = strides.to[2] = 1;
            strides.from_offset = skipped * strides.from[1];
            ignis__op_strided(op, dw, out, &strides);
        }
    }
    if (db && !summed)
        ignis__op_sum(op, db, g, NULL, 1.0, &rows);
}
