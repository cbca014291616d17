/*  >>ops.upsample - ignis_upsample: nearest and linear, as in PyTorch

    The gradient gathers in a fixed order.
    Uses: image, pool (its params); kernels/upsample.cu. */

#include "room.h"

typedef struct ignis__upsample_params {
    ignis_shape shape;
    int64_t n, channels, in[2], out[2];
    ignis__resampling resampling;
} ignis__upsample_params;

static ignis_status ignis__upsample_backward(const ignis_backward_args *args)
{
    const ignis__upsample_params *p = (const ignis__upsample_params *)args->params;
    ignis__resampling resampling = p->resampling;
    ignis__address dx, dy;
    ignis__array *gradient;
    ignis__op op;
    void *params[] = {&dx, &dy, &resampling};
    if (!ignis__op_begin_backward(&op, "ignis_upsample", args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &p->shape, op.in[0]->dtype);
    dx = ignis__op_write(&op, gradient);
    dy = ignis__op_read(&op, op.in[0]);
    ignis__images_set(&resampling.images, op.in[0]->dtype, p->n, p->channels, p->in, p->out, dx | dy, false);
    ignis__images_launch(&op, IGNIS__BUILTIN(UPSAMPLE_BACKWARD), op.in[0]->dtype, &resampling.images, params);
    return ignis__op_finish_backward(&op, args, 1, &gradient);
}

/*  Sets the positions of a dimension. A single pixel has no corners to align, and all positions are that
    pixel. */
static void ignis__scaling_set(ignis__scaling *s, int64_t in, int64_t out, const ignis_upsample_desc *desc)
{
    bool is_linear = desc->mode == IGNIS_UPSAMPLE_LINEAR, aligned = is_linear && desc->align_corners && in > 1;
    s->in = (int)in;
    s->out = (int)out;
    s->is_linear = is_linear;
    s->step = (int)(aligned ? in - 1 : is_linear ? 2 * in : in);
    s->start = is_linear && !aligned ? (int)(in - out) : 0;
    s->den = ignis__divisor_of(aligned ? (out > 1 ? out - 1 : 1) : is_linear ? 2 * out : out);
    s->by_step = ignis__divisor_of(s->step);
}

IGNIS_API ignis_tensor ignis_upsample(ignis_tensor tensor, const ignis_upsample_desc *desc)
{
    ignis__upsample_params upsample = IGNIS__ZERO;
    ignis__address x, y = 0;
    ignis__array *out = NULL;
    ignis_shape shape;
    ignis__op op;
    int d;
    void *params[] = {&y, &x, &upsample.resampling};
    if (!ignis__op_begin(&op, "ignis_upsample", 1, &tensor))
        return ignis__no_tensor();
    upsample.shape = op.in[0]->shape;
    if (!desc)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "desc is null");
    else if ((int)desc->mode < 0 || desc->mode >= IGNIS_UPSAMPLE_COUNT)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "desc->mode is %d, not one of ignis_upsample_mode", (int)desc->mode);
    else if (desc->align_corners && desc->mode != IGNIS_UPSAMPLE_LINEAR)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER,
                       "desc->align_corners is set, which only IGNIS_UPSAMPLE_LINEAR can do");
    else
        ignis__image_check(&op, &desc->size[1], 1, &upsample.n, upsample.in, &upsample.channels);
    for (d = upsample.shape.ndim == 4 ? 0 : 1, upsample.out[0] = 1; op.ok && d < 2; d++) {
        int given = upsample.shape.ndim == 4 ? d : 0;
        upsample.out[d] = desc->size[given];
        if (upsample.out[d] < 1 || upsample.out[d] >= IGNIS__IMAGE_LIMIT)
            ignis__op_fail(&op, upsample.out[d] < 1 ? IGNIS_DIAG_BAD_NUMBER : IGNIS_DIAG_UNSUPPORTED,
                           "desc->size[%d] is %lld, %s", given, (long long)upsample.out[d],
                           upsample.out[d] < 1 ? "below 1" : "2^28 or more");
        else if (upsample.in[d] == 0)
            ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s, which has no pixels",
                           ignis__shape_write(&upsample.shape).text);
    }
    if (op.ok) {
        shape = ignis__image_shape(&upsample.shape, upsample.out);
        out = ignis__op_new(&op, &shape, op.in[0]->dtype);
        x = ignis__op_read(&op, op.in[0]);
        y = ignis__op_write(&op, out);
        for (d = 0; d < 2; d++)
            ignis__scaling_set(&upsample.resampling.dim[d], upsample.in[d], upsample.out[d], desc);
        ignis__images_set(&upsample.resampling.images, op.in[0]->dtype, upsample.n, upsample.channels, upsample.out,
                          upsample.in, x | y, true);
        ignis__images_launch(&op, IGNIS__BUILTIN(UPSAMPLE), op.in[0]->dtype, &upsample.resampling.images, params);
    }
    return ignis__op_end_recorded(&op, out, "upsample", ignis__upsample_backward, &upsample, sizeof upsample);
}

/*  Upsampling, or with `back` its gradient. */
static ignis__array *ignis__upsample_linear(ignis__op *op, const void *params, bool back)
{
    const ignis__upsample_params *p = (const ignis__upsample_params *)params;
    ignis__resampling resampling = p->resampling;
    ignis_shape shape = back ? p->shape : ignis__image_shape(&p->shape, p->out);
    ignis__array *to = ignis__op_new(op, &shape, op->in[0]->dtype);
    ignis__address source = ignis__op_read(op, op->in[0]), target = ignis__op_write(op, to);
    void *kernel[] = {&target, &source, &resampling};
    if (!op->ok)
        return NULL;
    ignis__images_set(&resampling.images, to->dtype, p->n, p->channels, back ? p->in : p->out, back ? p->out : p->in,
                      source | target, !back);
    ignis__images_launch(op, back ? IGNIS__BUILTIN(UPSAMPLE_BACKWARD) : IGNIS__BUILTIN(UPSAMPLE), to->dtype,
                         &resampling.images, kernel);
    return to;
}

IGNIS__PRIVATE void ignis__vjp_of_upsample(const ignis_vjp_args *args)
{
    ignis__vjp_linear(args, ignis__upsample_linear, args->params, sizeof(ignis__upsample_params), true);
}
