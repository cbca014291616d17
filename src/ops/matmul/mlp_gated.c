/*  >>ops.matmul.mlp_gated - ignis_mlp_gated: gated layers, with gate and multiplicand in one array

    The epilogue of the up product multiplies by silu(gate).
    Uses: dispatch, linear, product. */

#include "room.h"

typedef struct ignis__mlp_gated {
    ignis__product up, down; /* the gate's is like up */
} ignis__mlp_gated;

static ignis_status ignis__mlp_gated_backward(const ignis_backward_args *args)
{
    const ignis__mlp_gated *layer = (const ignis__mlp_gated *)args->params;
    enum { GRAD, X, GATE, UP, DOWN, HIDDEN, BOTH }; /* the saved arrays */
    const ignis_shape shape = IGNIS_SHAPE(layer->up.m, layer->up.n);
    ignis__array *gradients[4] = {NULL}, *both = NULL, *of, *dx[2] = {NULL, NULL};
    ignis__epilogue epilogue = IGNIS__ZERO;
    ignis__op op;
    int i;
    if (!ignis__op_begin_backward(&op, "ignis_mlp_gated", args))
        return ignis__failed();
    for (i = 1; i < 4; i++)
        if (args->needed[i])
            gradients[i] = ignis__op_new_like(&op, op.in[X + i]);
    if (args->needed[0] || args->needed[1] || args->needed[2])
        both = ignis__op_new_like(&op, op.in[BOTH]);
    epilogue.activation = IGNIS__ACTIVATION_GATED;
    epilogue.gradient = true;
    epilogue.pre = op.in[BOTH];
    ignis__linear_gradients(&op, &layer->down, op.in[GRAD], op.in[HIDDEN], op.in[DOWN], &epilogue,
                            ignis__linear_grads_of(both, gradients[3], NULL));
    memset(&epilogue, 0, sizeof epilogue);
    for (i = 0; both && i < 2; i++) { /* of the gate, of up */
        of = ignis__op_view(&op, both, &shape, layer->up.m * layer->up.n, i * layer->up.m * layer->up.n);
        epilogue.residual = dx[0];
        if (args->needed[0])
            dx[i] = ignis__op_new_like(&op, op.in[X]);
        ignis__linear_gradients(&op, &layer->up, of, op.in[X], op.in[GATE + i], &epilogue,
                                ignis__linear_grads_of(dx[i], gradients[1 + i], NULL));
    }
    gradients[0] = dx[1];
    return ignis__op_finish_backward(&op, args, 4, gradients);
}

/*  Differentiates the layers one by one. */
IGNIS__PRIVATE void ignis__vjp_of_mlp_gated(const ignis_vjp_args *args)
{
    ignis_tensor inputs[4], hidden;
    int i;
    for (i = 0; i < 4; i++)
        inputs[i] = ignis__vjp_input(args, i, i);
    hidden = ignis_silu_mul(ignis_linear(inputs[0], inputs[1], ignis__no_tensor()),
                            ignis_linear(inputs[0], inputs[2], ignis__no_tensor()));
    ignis__vjp_plain(args, ignis_linear(hidden, inputs[3], ignis__no_tensor()), inputs);
}

IGNIS_API ignis_tensor ignis_mlp_gated(ignis_tensor x, ignis_tensor w_gate, ignis_tensor w_up, ignis_tensor w_down)
{
    enum { X, GATE, UP, DOWN, INPUTS };
    ignis_tensor inputs[] = {x, w_gate, w_up, w_down};
    ignis__array *out = NULL, *hidden = NULL, *both = NULL, *first;
    ignis__epilogue epilogue = IGNIS__ZERO;
    const ignis_shape *gate, *up, *down;
    ignis__mlp_gated layer = IGNIS__ZERO;
    ignis_shape shape, pair;
    ignis__op op;
    if (!ignis__op_begin(&op, "ignis_mlp_gated", INPUTS, inputs))
        return ignis__no_tensor();
    gate = &op.in[GATE]->shape, up = &op.in[UP]->shape, down = &op.in[DOWN]->shape;
    if (ignis__op_is_float(&op, X, "x") && ignis__op_same_dtype(&op, GATE, "w_gate") &&
        ignis__op_same_dtype(&op, UP, "w_up") && ignis__op_same_dtype(&op, DOWN, "w_down")) {
        if (gate->ndim != 2)
            ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "w_gate is %s; [hidden, in] is needed",
                           ignis__shape_write(gate).text);
        else if (ignis__matmul_shapes(&op, 1, &layer.up, &shape) && !ignis__shape_same(gate, up))
            ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "w_up is %s; that of w_gate is needed, %s",
                           ignis__shape_write(up).text, ignis__shape_write(gate).text);
        else if (op.ok && (down->ndim != 2 || down->dim[1] != layer.up.n))
            ignis__op_fail(&op, IGNIS_DIAG_MATMUL_SHAPE, "w_down is %s; [out, %lld] is needed",
                           ignis__shape_write(down).text, (long long)layer.up.n);
    }
    if (op.ok) {
        layer.down = ignis__product_of(op.in[X]->dtype, layer.up.m, down->dim[0], layer.up.n, 1);
        hidden = ignis__op_new_product(&op, &shape, op.in[X]->dtype);
        shape.dim[shape.ndim - 1] = layer.down.n;
        out = ignis__op_new_product(&op, &shape, op.in[X]->dtype);
        pair = IGNIS_SHAPE(op.saves ? 2 : 1, layer.up.m, layer.up.n);
        both = ignis__op_new_product(&op, &pair, op.in[X]->dtype);
    }
    if (op.ok) {
        pair = IGNIS_SHAPE(layer.up.m, layer.up.n);
        first = ignis__op_view(&op, both, &pair, layer.up.m * layer.up.n, 0);
        ignis__matmul_run(&op, &layer.up, first, op.in[X], op.in[GATE], NULL);
        epilogue.activation = IGNIS__ACTIVATION_GATED;
        epilogue.pre = both;
        epilogue.keeps = op.saves;
        ignis__matmul_run(&op, &layer.up, hidden, op.in[X], op.in[UP], &epilogue);
        ignis__matmul_run(&op, &layer.down, out, hidden, op.in[DOWN], NULL);
    }
    ignis__op_save_inputs(&op, 0, INPUTS);
    ignis__op_save(&op, hidden);
    ignis__op_save(&op, both);
    return ignis__op_end_recorded(&op, out, "mlp_gated", ignis__mlp_gated_backward, &layer, sizeof layer);
}
