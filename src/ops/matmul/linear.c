/*  >>ops.matmul.linear - ignis_linear: x w^T + bias, the bias inside the product

    The gradient of the bias is summed inside the product of dw, or offered by the layer after. Uses:
    dispatch, matmul. */

#include "room.h"

IGNIS__PRIVATE ignis__linear_grads ignis__linear_grads_of(ignis__array *x, ignis__array *w, ignis__array *bias)
{
    ignis__linear_grads grads;
    grads.x = x;
    grads.w = w;
    grads.bias = bias;
    return grads;
}

/*  Computes the gradients of y = x w^T + bias that are not NULL: dx = g w, with the epilogue; dw = g^T x; and
    db, the sum of g over its rows, inside the product of dw if it can. */
IGNIS__PRIVATE void ignis__linear_gradients(ignis__op *op, const ignis__product *forward, ignis__array *g,
                                            ignis__array *x, ignis__array *w, const ignis__epilogue *epilogue,
                                            ignis__linear_grads to)
{
    ignis__product of_x = ignis__matmul_product_a(forward), of_w = ignis__matmul_product_b(forward);
    ignis__epilogue sums = IGNIS__ZERO;
    ignis__axis rows = {1, forward->m, forward->n};
    ignis__gemm_pending pending;
    bool summed = false;
    if (!op->ok)
        return;
    ignis__gemm_join(op, &pending);
    if (to.x)
        ignis__matmul_run(op, &of_x, to.x, g, w, epilogue);
    sums.row_sums = to.bias;
    if (to.w)
        summed = ignis__matmul_run(op, &of_w, to.w, g, x, &sums);
    ignis__gemm_join_end(op);
    if (to.bias && !summed)
        ignis__op_sum(op, to.bias, g, NULL, 1.0, &rows);
}

/*  Returns the gradient of a bias, an input, for the product of g. NULL if it was handed on already: the
    maker of g had offered its column sums. */
IGNIS__PRIVATE ignis__array *ignis__bias_gradient(ignis__op *op, const ignis_backward_args *args, int input,
                                                  const ignis__array *g, int64_t n)
{
    ignis_array known = IGNIS__ZERO;
    if (op->ok)
        known = ignis__backward_pass_take_column_sums(g, n);
    if (known.id)
        args->grad_inputs[input] = known;
    return known.id ? NULL : ignis__op_new_row(op, n, g->dtype);
}

IGNIS__PRIVATE ignis_status ignis__linear_backward(const ignis_backward_args *args)
{
    const ignis__product *p = (const ignis__product *)args->params;
    ignis__array *gradients[3] = {NULL, NULL, NULL};
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__op op;
    epilogue.residual = args->needed[0] ? ignis__backward_pass_input_sum(0)
                                        : NULL; /* x may have a gradient from another layer by now */
    if (!ignis__op_begin_backward(&op, "ignis_linear", args))
        return ignis__failed();
    if (args->needed[0])
        gradients[0] = ignis__op_new_like(&op, op.in[1]);
    if (args->needed[1])
        gradients[1] = ignis__op_new_like(&op, op.in[2]);
    if (args->input_count > 2 && args->needed[2])
        gradients[2] = ignis__bias_gradient(&op, args, 2, op.in[0], p->n);
    ignis__linear_gradients(&op, p, op.in[0], op.in[1], op.in[2], &epilogue,
                            ignis__linear_grads_of(gradients[0], gradients[1], gradients[2]));
    if (epilogue.residual)
        ignis__backward_pass_mark_summed(0);
    return ignis__op_finish_backward(&op, args, args->input_count, gradients);
}

IGNIS_API ignis_tensor ignis_linear(ignis_tensor x, ignis_tensor w, ignis_tensor bias)
{
    ignis_tensor inputs[] = {x, w, bias};
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__product product;
    ignis__array *out = NULL;
    ignis_shape shape;
    ignis__op op;
    int count = bias.id ? 3 : 2;
    if (!ignis__op_begin(&op, "ignis_linear", count, inputs))
        return ignis__no_tensor();
    if (ignis__op_is_float(&op, 0, "x") && ignis__op_same_dtype(&op, 1, "w") &&
        (count == 2 || ignis__op_same_dtype(&op, 2, "bias"))) {
        if (op.in[1]->shape.ndim != 2)
            ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "w is %s; [out, in] is needed",
                           ignis__shape_write(&op.in[1]->shape).text);
        else if (ignis__matmul_shapes(&op, 1, &product, &shape) && count == 3 && op.in[2]->numel != product.n)
            ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "bias is %s; w %s needs [%lld]",
                           ignis__shape_write(&op.in[2]->shape).text, ignis__shape_write(&op.in[1]->shape).text,
                           (long long)product.n);
    }
    if (op.ok) {
        out = ignis__op_new_product(&op, &shape, op.in[0]->dtype);
        epilogue.bias = count == 3 ? op.in[2] : NULL;
        ignis__matmul_run(&op, &product, out, op.in[0], op.in[1], &epilogue);
    }
    ignis__op_save_inputs(&op, 0, 2);
    return ignis__op_end_recorded(&op, out, "linear", ignis__linear_backward, &product, sizeof product);
}
