/*  >>ops.conv.unfold - ignis_unfold and ignis_fold: patches of images as rows, and sums of such rows as images

    Each is the gradient of the other, and linear. The grid and its patches are those of a convolution without weights.
    Uses: geometry, conv; kernels/unfold.cu. */

#include "room.h"

/*  Values that both directions need. */
typedef struct ignis__unfold_params {
    const char *call;
    ignis__conv conv;
    ignis_shape image, rows;
} ignis__unfold_params;

/*  Returns rows of patches of op->in[0], or with `back` the image that is their sum. */
static ignis__array *ignis__unfold_linear(ignis__op *op, const void *params, bool back)
{
    const ignis__unfold_params *p = (const ignis__unfold_params *)params;
    const ignis__conv *conv = &p->conv;
    ignis_dtype dtype = op->in[0]->dtype;
    ignis__array *to = ignis__op_new(op, back ? &p->image : &p->rows, dtype);
    ignis__address source = ignis__op_read(op, op->in[0]), target = ignis__op_write(op, to);
    ignis__unfolding unfolding = IGNIS__ZERO;
    ignis__conv_operand pixels = IGNIS__ZERO;
    ignis__conv_grid walk[IGNIS__SIDES];
    ignis__gemm gemm = IGNIS__ZERO;
    int64_t size[IGNIS__SIDES], pack = ignis__pack_elements(dtype);
    void *kernel[] = {&target, &source, &unfolding};
    int i;
    if (!op->ok || to->numel == 0)
        return to;
    if (op->in[0]->numel == 0) {
        ignis__op_zero(op, to);
        return to;
    }
    for (i = 0; i < IGNIS__SIDES; i++) {
        walk[i] = ignis__conv_forward_grid(&conv->side[i]);
        size[i] = conv->side[i].in;
        unfolding.size[i] = ignis__divisor_of(size[i]);
        unfolding.stride[i] = ignis__divisor_of(conv->side[i].stride);
    }
    pixels.channels = conv->channels;
    ignis__conv_patches(&gemm, conv, IGNIS__OPERAND_A, walk, size, &pixels, conv->channels);
    unfolding.packed = conv->channels % pack == 0 && (source | target) % 16 == 0;
    pack = unfolding.packed ? pack : 1;
    unfolding.patches = gemm.params.patches;
    unfolding.taps = (int)ignis__conv_taps(conv);
    unfolding.packs = ignis__divisor_of((back ? 1 : unfolding.taps) * conv->channels / pack);
    unfolding.count = to->numel / pack;
    ignis__op_launch(
        op, back ? IGNIS__BUILTIN(FOLD) : IGNIS__BUILTIN(UNFOLD), dtype, conv->volumes ? "-DIGNIS_VOLUMES=1" : NULL,
        ignis__launch_row(ignis__clamp(ignis__ceil_div(unfolding.count, IGNIS__UNFOLD_THREADS), 1, INT32_MAX),
                          IGNIS__UNFOLD_THREADS, 0),
        kernel);
    return to;
}

static ignis_status ignis__unfold_backward(const ignis_backward_args *args)
{
    const ignis__unfold_params *p = (const ignis__unfold_params *)args->params;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, p->call, args))
        return ignis__failed();
    return ignis__op_finish_backward_one(&op, args, ignis__unfold_linear(&op, p, true));
}

static ignis_status ignis__fold_backward(const ignis_backward_args *args)
{
    const ignis__unfold_params *p = (const ignis__unfold_params *)args->params;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, p->call, args))
        return ignis__failed();
    return ignis__op_finish_backward_one(&op, args, ignis__unfold_linear(&op, p, false));
}

IGNIS__PRIVATE void ignis__vjp_of_unfold(const ignis_vjp_args *args)
{
    ignis__vjp_linear(args, ignis__unfold_linear, args->params, sizeof(ignis__unfold_params), true);
}

IGNIS__PRIVATE void ignis__vjp_of_fold(const ignis_vjp_args *args)
{
    ignis__vjp_linear(args, ignis__unfold_linear, args->params, sizeof(ignis__unfold_params), false);
}

/*  Describes patches of an image [n, sides, channels], and sets the shape of their rows. */
static bool ignis__unfold_describe(ignis__op *op, const ignis_shape *image, const ignis_unfold_desc *desc,
                                   ignis__unfold_params *p)
{
    static const ignis__conv_side one = {1, 1, 1, 1, 0, 1};
    int sides = image->ndim - 2, i;
    int64_t stride[IGNIS__SIDES], padding[IGNIS__SIDES], dilation[IGNIS__SIDES];
    const double most = 1 << 30;
    double pixels = (double)image->dim[0], patches = pixels, taps = 1;
    if (!ignis__conv_read_number(op, "stride", desc->stride, sides, 1, 1, stride) ||
        !ignis__conv_read_number(op, "padding", desc->padding, sides, 0, 0, padding) ||
        !ignis__conv_read_number(op, "dilation", desc->dilation, sides, 1, 1, dilation))
        return false;
    p->conv.images = image->dim[0];
    p->conv.channels = image->dim[sides + 1];
    p->conv.groups = p->conv.outs = 1;
    p->conv.sides = sides;
    p->conv.dtype = op->in[0]->dtype;
    for (i = 0; i < IGNIS__SIDES; i++)
        p->conv.side[i] = one;
    for (i = 0; i < sides; i++) {
        ignis__conv_side *side = &p->conv.side[ignis__conv_side_of(sides, i)];
        int64_t reach;
        side->in = image->dim[1 + i];
        side->kernel = desc->kernel[i];
        side->stride = stride[i];
        side->padding = padding[i];
        side->dilation = dilation[i];
        if (side->kernel < 1)
            return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc.kernel[%d] is %d; expected 1 or more", i,
                                  desc->kernel[i]);
        reach = (side->kernel - 1) * side->dilation + 1;
        if (side->in > 1 << 30 || side->in + 2 * side->padding > 1 << 30)
            return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED,
                                  "dimension %d of an image %s with its padding is longer than 2^30", 1 + i,
                                  ignis__shape_write(image).text);
        if (side->in + 2 * side->padding < reach)
            return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS,
                                  "dimension %d of an image %s with a padding of %lld on both sides is shorter than a "
                                  "patch, %lld",
                                  1 + i, ignis__shape_write(image).text, (long long)side->padding, (long long)reach);
        if (side->stride > side->in + 2 * side->padding) /* larger strides have one patch, the same as this */
            side->stride = side->in + 2 * side->padding;
        side->out = (side->in + 2 * side->padding - reach) / side->stride + 1;
        pixels *= (double)side->in;
        patches *= (double)side->out;
        taps *= (double)side->kernel;
    }
    if (pixels > most || patches > most || taps * (double)(p->conv.channels + 8) > most)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED,
                              "an image %s, or its patches, have more than 2^30 pixels or elements",
                              ignis__shape_write(image).text);
    p->image = *image;
    p->rows = IGNIS_SHAPE(image->dim[0], p->conv.side[0].out * p->conv.side[1].out * p->conv.side[2].out,
                          ignis__conv_taps(&p->conv) * p->conv.channels);
    ignis__conv_drop_planes(&p->conv);
    return true;
}

IGNIS_API ignis_tensor ignis_unfold(ignis_tensor x, const ignis_unfold_desc *desc)
{
    ignis__unfold_params params = IGNIS__ZERO;
    ignis__array *out = NULL;
    ignis__op op;
    if (!ignis__op_begin(&op, "ignis_unfold", 1, &x))
        return ignis__no_tensor();
    params.call = op.work.call;
    if (!desc)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "desc is null");
    else if (ignis__op_is_float(&op, 0, "x") && (op.in[0]->shape.ndim < 3 || op.in[0]->shape.ndim > 5))
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS,
                       "x is %s; expected [n, sides, channels] with one side (length), two (height, width) or three "
                       "(depth, height, width)",
                       ignis__shape_write(&op.in[0]->shape).text);
    if (op.ok && ignis__unfold_describe(&op, &op.in[0]->shape, desc, &params))
        out = ignis__unfold_linear(&op, &params, false);
    return ignis__op_end_recorded(&op, out, "unfold", ignis__unfold_backward, &params, sizeof params);
}

IGNIS_API ignis_tensor ignis_fold(ignis_tensor patches, const int64_t *size, int sides, const ignis_unfold_desc *desc)
{
    ignis__unfold_params params = IGNIS__ZERO;
    ignis__array *out = NULL;
    ignis_shape image = IGNIS__ZERO;
    const ignis_shape *shape;
    int64_t taps = 1;
    ignis__op op;
    int i;
    if (!ignis__op_begin(&op, "ignis_fold", 1, &patches))
        return ignis__no_tensor();
    params.call = op.work.call;
    shape = &op.in[0]->shape;
    if (!desc || !size)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "%s is null", desc ? "size" : "desc");
    else if (sides < 1 || sides > IGNIS__SIDES)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "sides is %d; expected 1 to 3", sides);
    else if (ignis__op_is_float(&op, 0, "patches") && shape->ndim != 3)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "patches is %s; expected [n, patches, taps * channels]",
                       ignis__shape_write(shape).text);
    for (i = 0; op.ok && i < sides; i++) {
        image.dim[1 + i] = size[i];
        taps *= desc->kernel[i] > 0 ? desc->kernel[i] : 1;
        if (size[i] < 0)
            ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "size[%d] is %lld, below 0", i, (long long)size[i]);
        else if (taps > 1 << 30)
            ignis__op_fail(&op, IGNIS_DIAG_UNSUPPORTED, "a patch has more than 2^30 taps");
    }
    if (op.ok) {
        image.ndim = sides + 2;
        image.dim[0] = shape->dim[0];
        image.dim[sides + 1] = shape->dim[2] / taps;
    }
    if (op.ok && ignis__unfold_describe(&op, &image, desc, &params)) {
        if (!ignis__shape_same(&params.rows, shape))
            ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS,
                           "patches is %s; an image %s has patches [%lld, %lld, %lld taps of equal channels]",
                           ignis__shape_write(shape).text, ignis__shape_write(&image).text, (long long)image.dim[0],
                           (long long)params.rows.dim[1], (long long)taps);
        else
            out = ignis__unfold_linear(&op, &params, true);
    }
    return ignis__op_end_recorded(&op, out, "fold", ignis__fold_backward, &params, sizeof params);
}
