/*  >>ops.conv.conv - ignis_conv1d to ignis_conv3d and their transposes: checks, and the choice of a kernel

    Describes the convolution from shapes and desc; implicit_gemm, depthwise and grouped compute it.
    Uses: geometry, the matmul folder. Invariant: all sizes are below 2^30. */

#include "room.h"

static const char *const ignis__conv_calls[] = {"ignis_conv1d", "ignis_conv2d", "ignis_conv3d"};

static ignis_status ignis__conv_backward(const ignis_backward_args *args)
{
    const ignis__conv *conv = (const ignis__conv *)args->params;
    ignis__array *gradients[3] = {NULL, NULL, NULL};
    ignis__product product;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, ignis__conv_calls[conv->sides - 1], args))
        return ignis__failed();
    if (args->needed[1])
        gradients[1] = ignis__op_new_like(&op, op.in[2]);
    if (args->input_count > 2 && args->needed[2])
        gradients[2] = ignis__op_new_row(&op, conv->groups * conv->outs, conv->dtype);
    if (args->needed[0])
        gradients[0] = ignis__op_new_like(&op, op.in[1]);
    if (ignis__conv_is_product(conv, &product)) {
        ignis__linear_gradients(&op, &product, op.in[0], op.in[1], op.in[2], NULL,
                                ignis__linear_grads_of(gradients[0], gradients[1], gradients[2]));
        return ignis__op_finish_backward(&op, args, args->input_count, gradients);
    }
    if (op.ok && gradients[0])
        ignis__conv_grad_x(&op, conv, gradients[0], op.in[0], op.in[2], NULL);
    if (op.ok && (gradients[1] || gradients[2]))
        ignis__conv_grad_w(&op, conv, gradients[1], gradients[2], op.in[0], op.in[1]);
    return ignis__op_finish_backward(&op, args, args->input_count, gradients);
}

/*  Reads a number of the desc for each of `sides` dimensions. */
IGNIS__PRIVATE bool ignis__conv_read_number(ignis__op *op, const char *name, const int *given, int sides, int least,
                                            int standard, int64_t to[IGNIS__SIDES])
{
    int i;
    for (i = 0; i < sides; i++) {
        if (given && given[i] < 0)
            return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc.%s[%d] is %d, below %d", name, i, given[i], least);
        to[i] = given && given[i] ? given[i] : standard;
    }
    return true;
}

/*  Returns which side dimension i of `sides` is: the last two are rows and columns. */
IGNIS__PRIVATE int ignis__conv_side_of(int sides, int i) { return sides - i == 3 ? IGNIS__PLANES : 2 - sides + i; }

/*  Describes a convolution along dimension `at` of x, and checks it. */
static bool ignis__conv_describe_side(ignis__op *op, const ignis_shape *x, int at, ignis__conv_side *side)
{
    const ignis_shape *w = &op->in[1]->shape;
    const int64_t most = 1 << 30;
    int64_t reach;
    side->in = x->dim[at];
    side->kernel = w->dim[at];
    if (side->kernel < 1)
        return ignis__op_fail(op, IGNIS_DIAG_CONV_SHAPE, "x is %s, w is %s: w has at least one row and column",
                              ignis__shape_write(x).text, ignis__shape_write(w).text);
    if (side->in > most || side->kernel > most) /* before they are multiplied */
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "dimension %d of x %s or of w %s is longer than 2^30", at,
                              ignis__shape_write(x).text, ignis__shape_write(w).text);
    reach = (side->kernel - 1) * side->dilation + 1;
    if (side->in + 2 * side->padding < reach)
        return ignis__op_fail(op, IGNIS_DIAG_CONV_SHAPE,
                              "dimension %d of x %s with a padding of %lld on both sides is shorter than the %lld "
                              "of w %s with a dilation of %lld",
                              at, ignis__shape_write(x).text, (long long)side->padding, (long long)reach,
                              ignis__shape_write(w).text, (long long)side->dilation);
    if (side->in + 2 * side->padding > most)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED,
                              "dimension %d of x %s with its padding, and the patches, are longer than 2^30", at,
                              ignis__shape_write(x).text);
    if (side->stride > side->in + 2 * side->padding) /* larger strides have one patch, the same as this */
        side->stride = side->in + 2 * side->padding;
    side->out = (side->in + 2 * side->padding - reach) / side->stride + 1;
    return true;
}

/*  Returns whether a convolution has one tap along a side, for each pixel. */
static bool ignis__conv_side_is_plain(const ignis__conv_side *side)
{
    return side->kernel == 1 && side->stride == 1 && side->padding == 0;
}

/*  Makes a convolution of volumes one of images where taps are in one plane, or one above the other. */
IGNIS__PRIVATE void ignis__conv_drop_planes(ignis__conv *conv)
{
    static const ignis__conv_side one = {1, 1, 1, 1, 0, 1};
    ignis__conv_side *side = conv->side;
    if (ignis__conv_side_is_plain(&side[IGNIS__PLANES])) {
        conv->images *= side[IGNIS__PLANES].in;
        side[IGNIS__PLANES] = one;
    } else if (ignis__conv_side_is_plain(&side[IGNIS__ROWS]) && ignis__conv_side_is_plain(&side[IGNIS__COLUMNS])) {
        side[IGNIS__COLUMNS].in = side[IGNIS__COLUMNS].out = side[IGNIS__COLUMNS].in * side[IGNIS__ROWS].in;
        side[IGNIS__ROWS] = side[IGNIS__PLANES];
        side[IGNIS__PLANES] = one;
    } else {
        conv->volumes = true;
    }
}

/*  Checks shapes and numbers, describes the convolution of x, and sets the shape of its result. */
static bool ignis__conv_describe(ignis__op *op, const ignis_shape *x, int sides, const ignis_conv_desc *desc,
                                 ignis__conv *conv, ignis_shape *out)
{
    static const char *const needs[] = {
        "[images, length, channels] and [outs, length, channels / groups]",
        "[images, height, width, channels] and [outs, height, width, channels / groups]",
        "[images, depth, height, width, channels] and [outs, depth, height, width, channels / groups]"};
    static const ignis__conv_side one = {1, 1, 1, 1, 0, 1};
    const ignis_shape *w = &op->in[1]->shape;
    int64_t groups = desc && desc->groups ? desc->groups : 1, outs;
    int64_t stride[IGNIS__SIDES], padding[IGNIS__SIDES], dilation[IGNIS__SIDES];
    const double most = 1 << 30;
    double pixels, results, taps = 1;
    int i;
    if (groups < 1)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc.groups is %lld, below 1", (long long)groups);
    if (!ignis__conv_read_number(op, "stride", desc ? desc->stride : NULL, sides, 1, 1, stride) ||
        !ignis__conv_read_number(op, "padding", desc ? desc->padding : NULL, sides, 0, 0, padding) ||
        !ignis__conv_read_number(op, "dilation", desc ? desc->dilation : NULL, sides, 1, 1, dilation))
        return false;
    if (x->ndim != sides + 2 || w->ndim != sides + 2)
        return ignis__op_fail(op, IGNIS_DIAG_CONV_SHAPE, "x is %s, w is %s; %s are needed", ignis__shape_write(x).text,
                              ignis__shape_write(w).text, needs[sides - 1]);
    outs = w->dim[0];
    if (x->dim[sides + 1] % groups || x->dim[sides + 1] / groups != w->dim[sides + 1] || outs % groups)
        return ignis__op_fail(
            op, IGNIS_DIAG_CONV_SHAPE,
            "x is %s, w is %s, of %lld groups; channels of x are groups times those of w, and the %lld of "
            "the result come in as many groups",
            ignis__shape_write(x).text, ignis__shape_write(w).text, (long long)groups, (long long)outs);
    memset(conv, 0, sizeof *conv);
    conv->images = x->dim[0];
    conv->channels = w->dim[sides + 1];
    conv->outs = outs / groups;
    conv->groups = groups;
    conv->dtype = op->in[0]->dtype;
    conv->sides = sides;
    *out = *x;
    out->dim[sides + 1] = outs;
    pixels = results = (double)conv->images;
    for (i = 0; i < IGNIS__SIDES; i++)
        conv->side[i] = one;
    for (i = 0; i < sides; i++) {
        ignis__conv_side *side = &conv->side[ignis__conv_side_of(sides, i)];
        side->stride = stride[i];
        side->padding = padding[i];
        side->dilation = dilation[i];
        if (!ignis__conv_describe_side(op, x, 1 + i, side))
            return false;
        out->dim[1 + i] = side->out;
        pixels *= (double)side->in;
        results *= (double)side->out;
        taps *= (double)side->kernel;
    }
    if (pixels > most || results > most || taps * (double)(conv->channels + 8) > most ||
        taps * (double)(conv->outs + 8) > most)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED,
                              "x, the result or a patch has more than 2^30 pixels or elements");
    ignis__conv_drop_planes(conv);
    return true;
}

static ignis_tensor ignis__conv_op(const char *call, int sides, ignis_tensor x, ignis_tensor w, ignis_tensor bias,
                                   const ignis_conv_desc *desc)
{
    ignis_tensor inputs[] = {x, w, bias};
    ignis__array *out = NULL;
    ignis__conv conv;
    ignis_shape shape;
    ignis__op op;
    int count = bias.id ? 3 : 2;
    if (!ignis__op_begin(&op, call, count, inputs))
        return ignis__no_tensor();
    if (ignis__op_is_float(&op, 0, "x") && ignis__op_same_dtype(&op, 1, "w") &&
        (count == 2 || ignis__op_same_dtype(&op, 2, "bias")) &&
        ignis__conv_describe(&op, &op.in[0]->shape, sides, desc, &conv, &shape)) {
        if (count == 3 && (op.in[2]->shape.ndim != 1 || op.in[2]->numel != conv.groups * conv.outs))
            ignis__op_fail(&op, IGNIS_DIAG_CONV_SHAPE, "bias is %s; w %s needs [%lld]",
                           ignis__shape_write(&op.in[2]->shape).text, ignis__shape_write(&op.in[1]->shape).text,
                           (long long)(conv.groups * conv.outs));
        out = ignis__op_new_product(&op, &shape, op.in[0]->dtype);
        if (out && !op.replays)
            ignis__conv_forward(&op, &conv, out, op.in[0], op.in[1], count == 3 ? op.in[2] : NULL);
    }
    ignis__op_save_inputs(&op, 0, 2);
    return ignis__op_end_recorded(&op, out, call + 6, ignis__conv_backward, &conv, sizeof conv);
}

IGNIS_API ignis_tensor ignis_conv1d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc *desc)
{
    return ignis__conv_op("ignis_conv1d", 1, x, w, bias, desc);
}

IGNIS_API ignis_tensor ignis_conv2d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc *desc)
{
    return ignis__conv_op("ignis_conv2d", 2, x, w, bias, desc);
}

IGNIS_API ignis_tensor ignis_conv3d(ignis_tensor x, ignis_tensor w, ignis_tensor bias, const ignis_conv_desc *desc)
{
    return ignis__conv_op("ignis_conv3d", 3, x, w, bias, desc);
}

/*  Finds the shape that a transposed convolution gives: the x of the convolution whose result has the shape of x. */
static bool ignis__conv_transpose_shape(ignis__op *op, int sides, const ignis_conv_transpose_desc *desc,
                                        ignis_shape *result)
{
    static const char *const needs[] = {
        "[images, length, channels] and [channels, length, outs / groups]",
        "[images, height, width, channels] and [channels, height, width, outs / groups]",
        "[images, depth, height, width, channels] and [channels, depth, height, width, outs / groups]"};
    const ignis_shape *x = &op->in[0]->shape, *w = &op->in[1]->shape;
    int64_t groups = desc && desc->groups > 0 ? desc->groups : 1, stride[IGNIS__SIDES], padding[IGNIS__SIDES],
            dilation[IGNIS__SIDES], more[IGNIS__SIDES];
    int i;
    if (!ignis__conv_read_number(op, "stride", desc ? desc->stride : NULL, sides, 1, 1, stride) ||
        !ignis__conv_read_number(op, "padding", desc ? desc->padding : NULL, sides, 0, 0, padding) ||
        !ignis__conv_read_number(op, "dilation", desc ? desc->dilation : NULL, sides, 1, 1, dilation) ||
        !ignis__conv_read_number(op, "output_padding", desc ? desc->output_padding : NULL, sides, 0, 0, more))
        return false;
    if (x->ndim != sides + 2 || w->ndim != sides + 2)
        return ignis__op_fail(op, IGNIS_DIAG_CONV_SHAPE, "x is %s, w is %s; %s are needed", ignis__shape_write(x).text,
                              ignis__shape_write(w).text, needs[sides - 1]);
    if (x->dim[sides + 1] != w->dim[0])
        return ignis__op_fail(op, IGNIS_DIAG_CONV_SHAPE,
                              "x is %s, w is %s; the first dimension of w is the channels of x",
                              ignis__shape_write(x).text, ignis__shape_write(w).text);
    *result = *x;
    result->dim[sides + 1] = w->dim[sides + 1] * groups;
    for (i = 0; i < sides; i++) {
        int64_t in = x->dim[1 + i], kernel = w->dim[1 + i], out;
        if (more[i] >= stride[i])
            return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER,
                                  "desc.output_padding[%d] is %lld; expected a number below the stride, %lld", i,
                                  (long long)more[i], (long long)stride[i]);
        if (in > 1 << 30 || kernel > 1 << 30)
            return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "dimension %d of x %s or of w %s is longer than 2^30",
                                  1 + i, ignis__shape_write(x).text, ignis__shape_write(w).text);
        out = (in - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel - 1) + 1 + more[i];
        if (in < 1 || kernel < 1 || out < 1)
            return ignis__op_fail(op, IGNIS_DIAG_CONV_SHAPE,
                                  "dimension %d of x %s, with w %s and a padding of %lld, gives no pixel", 1 + i,
                                  ignis__shape_write(x).text, ignis__shape_write(w).text, (long long)padding[i]);
        result->dim[1 + i] = out;
    }
    return true;
}

/*  Of the incoming gradient g: dx is the convolution of g, dw is that of a convolution of g whose gradient is x. */
static ignis_status ignis__conv_transpose_backward(const ignis_backward_args *args)
{
    static const char *const calls[] = {"ignis_conv_transpose1d", "ignis_conv_transpose2d", "ignis_conv_transpose3d"};
    const ignis__conv *conv = (const ignis__conv *)args->params;
    ignis__array *gradients[3] = {NULL, NULL, NULL};
    ignis__axis pixels = {1, 0, conv->groups * conv->channels};
    ignis__op op;
    if (!ignis__op_begin_backward(&op, calls[conv->sides - 1], args))
        return ignis__failed();
    if (args->needed[0] && (gradients[0] = ignis__op_new_like(&op, op.in[1])) != NULL)
        ignis__conv_forward(&op, conv, gradients[0], op.in[0], op.in[2], NULL);
    if (args->needed[1] && (gradients[1] = ignis__op_new_like(&op, op.in[2])) != NULL)
        ignis__conv_grad_w(&op, conv, gradients[1], NULL, op.in[1], op.in[0]);
    if (args->input_count > 2 && args->needed[2])
        gradients[2] = ignis__op_new_row(&op, pixels.inner, conv->dtype);
    if (gradients[2]) {
        pixels.n = pixels.inner ? op.in[0]->numel / pixels.inner : 0;
        ignis__op_sum(&op, gradients[2], op.in[0], NULL, 1, &pixels);
    }
    return ignis__op_finish_backward(&op, args, args->input_count, gradients);
}

static ignis_tensor ignis__conv_transpose(const char *call, int sides, ignis_tensor x, ignis_tensor w,
                                          ignis_tensor bias, const ignis_conv_transpose_desc *desc)
{
    ignis_tensor inputs[] = {x, w, bias};
    ignis_conv_desc forward = IGNIS__ZERO;
    ignis__array *out = NULL;
    ignis__conv conv = IGNIS__ZERO;
    ignis_shape result, back;
    ignis__op op;
    int count = bias.id ? 3 : 2;
    if (!ignis__op_begin(&op, call, count, inputs))
        return ignis__no_tensor();
    if (desc) {
        memcpy(forward.stride, desc->stride, sizeof forward.stride);
        memcpy(forward.padding, desc->padding, sizeof forward.padding);
        memcpy(forward.dilation, desc->dilation, sizeof forward.dilation);
        forward.groups = desc->groups;
    }
    if (ignis__op_is_float(&op, 0, "x") && ignis__op_same_dtype(&op, 1, "w") &&
        (count == 2 || ignis__op_same_dtype(&op, 2, "bias")) &&
        ignis__conv_transpose_shape(&op, sides, desc, &result) &&
        ignis__conv_describe(&op, &result, sides, &forward, &conv, &back)) {
        if (count == 3 && (op.in[2]->shape.ndim != 1 || op.in[2]->numel != result.dim[sides + 1]))
            ignis__op_fail(&op, IGNIS_DIAG_CONV_SHAPE, "bias is %s; w %s needs [%lld]",
                           ignis__shape_write(&op.in[2]->shape).text, ignis__shape_write(&op.in[1]->shape).text,
                           (long long)result.dim[sides + 1]);
        out = ignis__op_new_product(&op, &result, op.in[0]->dtype);
    }
    if (out && !op.replays)
        ignis__conv_grad_x(&op, &conv, out, op.in[0], op.in[1], count == 3 ? op.in[2] : NULL);
    ignis__op_save_inputs(&op, 0, 2);
    return ignis__op_end_recorded(&op, out, call + 6, ignis__conv_transpose_backward, &conv, sizeof conv);
}

IGNIS_API ignis_tensor ignis_conv_transpose1d(ignis_tensor x, ignis_tensor w, ignis_tensor bias,
                                              const ignis_conv_transpose_desc *desc)
{
    return ignis__conv_transpose("ignis_conv_transpose1d", 1, x, w, bias, desc);
}

IGNIS_API ignis_tensor ignis_conv_transpose2d(ignis_tensor x, ignis_tensor w, ignis_tensor bias,
                                              const ignis_conv_transpose_desc *desc)
{
    return ignis__conv_transpose("ignis_conv_transpose2d", 2, x, w, bias, desc);
}

IGNIS_API ignis_tensor ignis_conv_transpose3d(ignis_tensor x, ignis_tensor w, ignis_tensor bias,
                                              const ignis_conv_transpose_desc *desc)
{
    return ignis__conv_transpose("ignis_conv_transpose3d", 3, x, w, bias, desc);
}

/*  Moves factor * factor channels of a pixel to as many pixels, or back. */
static ignis_tensor ignis__pixel_shuffle(const char *call, ignis_tensor x, int factor, bool back)
{
    static const int to_pixels[] = {0, 1, 4, 2, 5, 3}, to_channels[] = {0, 1, 3, 5, 2, 4};
    ignis_tensor_info info;
    ignis_tensor split, moved, result;
    ignis_shape shape;
    int64_t n, h, w, c, f = factor;
    if (!ignis__enter(call) || ignis_tensor_query(x, &info) != IGNIS_OK)
        return ignis__no_tensor();
    shape = info.shape;
    if (factor < 1 || shape.ndim != 4 || (back ? shape.dim[1] % f || shape.dim[2] % f : shape.dim[3] % (f * f))) {
        ignis__fail(factor < 1 ? IGNIS_DIAG_BAD_NUMBER : IGNIS_DIAG_SHAPE_DIFFERS, call,
                    "x is %s, factor is %d; expected [images, height, width, channels], %s",
                    ignis__shape_write(&shape).text, factor,
                    back ? "of a height and a width that are multiples of factor"
                         : "of channels that are a multiple of factor*factor");
        return ignis__no_tensor();
    }
    n = shape.dim[0], h = shape.dim[1], w = shape.dim[2], c = shape.dim[3];
    split = ignis_reshape(x, back ? IGNIS_SHAPE(n, h / f, f, w / f, f, c) : IGNIS_SHAPE(n, h, w, c / (f * f), f, f));
    moved = ignis_permute(split, back ? to_channels : to_pixels, 6);
    result = ignis_reshape(moved,
                           back ? IGNIS_SHAPE(n, h / f, w / f, c * f * f) : IGNIS_SHAPE(n, h * f, w * f, c / (f * f)));
    (void)ignis_tensor_release(split);
    (void)ignis_tensor_release(moved);
    return result;
}

IGNIS_API ignis_tensor ignis_pixel_shuffle(ignis_tensor x, int factor)
{
    return ignis__pixel_shuffle("ignis_pixel_shuffle", x, factor, false);
}

IGNIS_API ignis_tensor ignis_pixel_unshuffle(ignis_tensor x, int factor)
{
    return ignis__pixel_shuffle("ignis_pixel_unshuffle", x, factor, true);
}
