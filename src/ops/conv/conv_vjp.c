/*  >>ops.conv.conv_vjp - gradients of convolutions by convolutions

    The product of the gradient g with a convolution of x by w is linear in x, in w and in g. So each of the three - the
    result, the gradient of x, that of w - is computed from the other two, and so are the gradients of each.
    Uses: conv, the matmul folder, vjp. */

#include "room.h"

enum { IGNIS__CONV_X, IGNIS__CONV_W, IGNIS__CONV_RESULT, IGNIS__CONV_OPERANDS };

/*  The parameters of such an operation. */
typedef struct ignis__conv_part {
    ignis__conv conv;
    ignis_shape shape[IGNIS__CONV_OPERANDS];
    int of; /* which of the three it computes; the others are its inputs, in this order */
} ignis__conv_part;

/*  Computes one of the three from the other two. */
static ignis__array *ignis__conv_part_run(ignis__op *op, const ignis__conv_part *part, int of,
                                          ignis__array *const *operands)
{
    ignis__array *out = ignis__op_new(op, &part->shape[of], part->conv.dtype), *x = operands[IGNIS__CONV_X],
                 *w = operands[IGNIS__CONV_W], *g = operands[IGNIS__CONV_RESULT];
    ignis__product product;
    if (!out)
        return NULL;
    if (of == IGNIS__CONV_RESULT)
        ignis__conv_forward(op, &part->conv, out, x, w, NULL);
    else if (ignis__conv_is_product(&part->conv, &product))
        ignis__linear_gradients(
            op, &product, g, x, w, NULL,
            ignis__linear_grads_of(of == IGNIS__CONV_X ? out : NULL, of == IGNIS__CONV_W ? out : NULL, NULL));
    else if (of == IGNIS__CONV_X)
        ignis__conv_grad_x(op, &part->conv, out, g, w, NULL);
    else
        ignis__conv_grad_w(op, &part->conv, out, NULL, g, x);
    return out;
}

/*  Returns which operand input `i` of a part is. */
static int ignis__conv_part_operand(const ignis__conv_part *part, int i) { return i + (i >= part->of); }

static ignis_status ignis__conv_part_backward(const ignis_backward_args *args)
{
    const ignis__conv_part *part = (const ignis__conv_part *)args->params;
    ignis__array *gradients[2] = {NULL, NULL}, *operands[IGNIS__CONV_OPERANDS] = {NULL, NULL, NULL};
    ignis__op op;
    int i;
    if (!ignis__op_begin_backward(&op, "ignis_conv2d", args))
        return ignis__failed();
    operands[part->of] = op.in[0];
    for (i = 0; i < 2; i++)
        operands[ignis__conv_part_operand(part, i)] = op.in[1 + i];
    for (i = 0; i < 2; i++)
        if (args->needed[i] && op.ok)
            gradients[i] = ignis__conv_part_run(&op, part, ignis__conv_part_operand(part, i), operands);
    return ignis__op_finish_backward(&op, args, 2, gradients);
}

/*  Computes one of the three from the other two, recorded. */
static ignis_tensor ignis__conv_part_op(const ignis__conv_part *like, int of, const ignis_tensor *operands)
{
    ignis__conv_part part = *like;
    ignis__array *arrays[IGNIS__CONV_OPERANDS] = {NULL, NULL, NULL};
    ignis_tensor inputs[2];
    ignis__op op;
    int i;
    part.of = of;
    for (i = 0; i < 2; i++)
        inputs[i] = operands[ignis__conv_part_operand(&part, i)];
    if (!ignis__op_begin(&op, "ignis_conv2d", 2, inputs))
        return ignis__no_tensor();
    for (i = 0; i < 2; i++)
        arrays[ignis__conv_part_operand(&part, i)] = op.in[i];
    ignis__op_save_inputs(&op, 0, 2);
    return ignis__op_end_recorded(&op, ignis__conv_part_run(&op, &part, of, arrays), "gradient of conv",
                                  ignis__conv_part_backward, &part, sizeof part);
}

IGNIS__PRIVATE void ignis__vjp_of_conv_part(const ignis_vjp_args *args)
{
    const ignis__conv_part *part = (const ignis__conv_part *)args->params;
    ignis_tensor operands[IGNIS__CONV_OPERANDS];
    int i;
    operands[part->of] = args->grad_output;
    for (i = 0; i < 2; i++)
        operands[ignis__conv_part_operand(part, i)] = ignis__vjp_input(args, i, i);
    for (i = 0; i < 2; i++)
        if (args->needed[i])
            args->grad_inputs[i] = ignis__conv_part_op(part, ignis__conv_part_operand(part, i), operands);
}

/*  The result is the x of a convolution, and its input the result of that. */
IGNIS__PRIVATE void ignis__vjp_of_conv_transpose(const ignis_vjp_args *args)
{
    ignis__conv_part part = IGNIS__ZERO;
    ignis_tensor operands[IGNIS__CONV_OPERANDS];
    memcpy(&part.conv, args->params, sizeof part.conv);
    part.shape[IGNIS__CONV_X] = args->node->output->shape;
    part.shape[IGNIS__CONV_W] = *ignis__vjp_shape(args, 1);
    part.shape[IGNIS__CONV_RESULT] = *ignis__vjp_shape(args, 0);
    operands[IGNIS__CONV_X] = args->grad_output;
    operands[IGNIS__CONV_W] = ignis__vjp_input(args, 1, 1);
    operands[IGNIS__CONV_RESULT] = ignis__vjp_input(args, 0, 0);
    if (args->needed[0])
        args->grad_inputs[0] = ignis__conv_part_op(&part, IGNIS__CONV_RESULT, operands);
    if (args->needed[1])
        args->grad_inputs[1] = ignis__conv_part_op(&part, IGNIS__CONV_W, operands);
    if (args->input_count > 2 && args->needed[2])
        args->grad_inputs[2] = ignis__vjp_sum_to(args->grad_output, ignis__vjp_shape(args, 2));
}

IGNIS__PRIVATE void ignis__vjp_of_conv(const ignis_vjp_args *args)
{
    ignis__conv_part part = IGNIS__ZERO;
    ignis_tensor operands[IGNIS__CONV_OPERANDS];
    int i;
    memcpy(&part.conv, args->params, sizeof part.conv);
    part.shape[IGNIS__CONV_RESULT] = args->node->output->shape;
    operands[IGNIS__CONV_RESULT] = args->grad_output;
    for (i = 0; i < 2; i++) {
        part.shape[i] = *ignis__vjp_shape(args, i);
        operands[i] = ignis__vjp_input(args, i, i);
    }
    for (i = 0; i < 2; i++)
        if (args->needed[i])
            args->grad_inputs[i] = ignis__conv_part_op(&part, i, operands);
    if (args->input_count > 2 && args->needed[2])
        args->grad_inputs[2] = ignis__vjp_sum_to(args->grad_output, ignis__vjp_shape(args, 2));
}
