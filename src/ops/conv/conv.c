/*  >>ops.conv.conv - ignis_conv1d, ignis_conv2d: checks, and the choice of a kernel

    Describes the convolution from shapes and desc; implicit_gemm, depthwise and grouped compute it.
    Uses: geometry, the matmul folder. Invariant: all sizes are below 2^30. */

#include "../room.h"

static ignis_status ignis__conv_backward(const ignis_backward_args *args)
{
    const ignis__conv *conv = (const ignis__conv *)args->params;
    ignis__array *gradients[3] = {NULL, NULL, NULL};
    ignis__product product;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, conv->sides == 1 ? "ignis_conv1d" : "ignis_conv2d", args))
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
        ignis__conv_grad_x(&op, conv, gradients[0], op.in[0], op.in[2]);
    if (op.ok && (gradients[1] || gradients[2]))
        ignis__conv_grad_w(&op, conv, gradients[1], gradients[2], op.in[0], op.in[1]);
    return ignis__op_finish_backward(&op, args, args->input_count, gradients);
}

/*  Reads one number of the desc: of rows and columns, or of a signal's only side. */
static bool ignis__conv_read_number(ignis__op *op, const char *name, const int *given, int sides, int least,
                                    int standard, int64_t to[2])
{
    int i;
    to[0] = standard;
    for (i = 0; i < sides; i++) {
        if (given && given[i] < 0)
            return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc.%s[%d] is %d, below %d", name, i, given[i], least);
        to[2 - sides + i] = given && given[i] ? given[i] : standard;
    }
    return true;
}

/*  Checks shapes and numbers, describes the convolution, and sets the shape of its result. */
static bool ignis__conv_describe(ignis__op *op, int sides, const ignis_conv_desc *desc, ignis__conv *conv,
                                 ignis_shape *out)
{
    static const char *const needs[] = {
        "[images, length, channels] and [outs, length, channels / groups]",
        "[images, height, width, channels] and [outs, height, width, channels / groups]"};
    const ignis_shape *x = &op->in[0]->shape, *w = &op->in[1]->shape;
    int64_t groups = desc && desc->groups ? desc->groups : 1, outs, most = 1 << 30;
    int64_t stride[2], padding[2], dilation[2];
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
    for (i = 0; i < 2; i++) {
        ignis__conv_side *side = &conv->side[i];
        int at = i - 1 + sides; /* of x and w; 0: rows of a signal, which has none */
        int64_t reach;
        side->in = at ? x->dim[at] : 1;
        side->kernel = at ? w->dim[at] : 1;
        side->stride = stride[i];
        side->padding = padding[i];
        side->dilation = dilation[i];
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
        if (at)
            out->dim[at] = side->out;
    }
    if ((double)conv->images * (double)conv->side[0].in * (double)conv->side[1].in > (double)most ||
        (double)conv->images * (double)conv->side[0].out * (double)conv->side[1].out > (double)most ||
        (double)ignis__conv_taps(conv) * (double)(conv->channels + 8) > (double)most ||
        (double)ignis__conv_taps(conv) * (double)(conv->outs + 8) > (double)most)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED,
                              "x, the result or a patch has more than 2^30 pixels or elements");
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
        (count == 2 || ignis__op_same_dtype(&op, 2, "bias")) && ignis__conv_describe(&op, sides, desc, &conv, &shape)) {
        if (count == 3 && (op.in[2]->shape.ndim != 1 || op.in[2]->numel != conv.groups * conv.outs))
            ignis__op_fail(&op, IGNIS_DIAG_CONV_SHAPE, "bias is %s; w %s needs [%lld]",
                           ignis__shape_write(&op.in[2]->shape).text, ignis__shape_write(&op.in[1]->shape).text,
                           (long long)(conv.groups * conv.outs));
        out = ignis__op_new(&op, &shape, op.in[0]->dtype);
        if (out)
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
