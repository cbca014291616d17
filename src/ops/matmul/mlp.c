/*  >>ops.matmul.mlp - ignis_mlp: linear layers in a row, with activations and biases inside the products

    The backward goes from the last layer to the first, and fuses the activation's derivative into the product
    before it.
    Uses: dispatch, linear, product. */

#include "room.h"

typedef struct ignis__mlp {
    int count, activation;
    int bias
        [IGNIS_MAX_LAYERS]; /* indices of the biases among the inputs, which are x, the weights, the biases; 0: none */
    ignis__product layer[IGNIS_MAX_LAYERS]; /* the tape keeps only the existing ones */
} ignis__mlp;

/*  Runs backward from the last layer to the lowest that needs a gradient. ahead: the gradient of a layer's
    input, or of the product before. */
static ignis_status ignis__mlp_backward(const ignis_backward_args *args)
{
    const ignis__mlp *mlp = (const ignis__mlp *)args->params;
    enum { GRAD, X, WEIGHTS };
    const int hidden = WEIGHTS + mlp->count,
              pre = mlp->activation == IGNIS_ACTIVATION_RELU ? hidden : hidden + mlp->count - 1;
    ignis__array *gradients[IGNIS__OP_INPUTS] = {NULL}, *g, *db, *ahead;
    ignis__epilogue epilogue;
    ignis__product below;
    ignis__op op;
    int l = mlp->count - 1, lowest = 0, bias;
    if (!ignis__op_begin_backward(&op, "ignis_mlp", args))
        return ignis__failed();
    while (!args->needed[0] && lowest < l && !args->needed[1 + lowest] &&
           !(mlp->bias[lowest] && args->needed[mlp->bias[lowest]]))
        lowest++;
    for (g = op.in[GRAD]; op.ok && l >= lowest; l--, g = ahead) {
        memset(&epilogue, 0, sizeof epilogue);
        db = ahead = NULL;
        bias = mlp->bias[l];
        if (bias && args->needed[bias] && !gradients[bias])
            db = gradients[bias] = ignis__bias_gradient(&op, args, bias, g, mlp->layer[l].n);
        if (args->needed[1 + l])
            gradients[1 + l] = ignis__op_new_like(&op, op.in[WEIGHTS + l]);
        if (l == 0 && args->needed[0])
            gradients[0] = ahead = ignis__op_new_like(&op, op.in[X]);
        if (l > lowest) {
            ahead = ignis__op_new_like(&op, op.in[hidden + l - 1]);
            epilogue.activation = mlp->activation;
            epilogue.gradient = true;
            epilogue.pre = op.in[pre + l - 1];
            bias = mlp->bias[l - 1];
            below = ignis__matmul_product_b(&mlp->layer[l - 1]);
            if (bias && args->needed[bias] &&
                !(args->needed[l] && ignis__gemm_is_tiny(&op, &below))) /* a tiny product sums rows at no cost */
                epilogue.column_sums = gradients[bias] = ignis__op_new_row(&op, mlp->layer[l - 1].n, g->dtype);
            if (op.ok && epilogue.column_sums && ahead->numel == 0)
                ignis__op_zero(&op, epilogue.column_sums);
        }
        ignis__linear_gradients(&op, &mlp->layer[l], g, l ? op.in[hidden + l - 1] : op.in[X], op.in[WEIGHTS + l],
                                &epilogue, ignis__linear_grads_of(ahead, gradients[1 + l], db));
    }
    return ignis__op_finish_backward(&op, args, args->input_count, gradients);
}

/*  Checks the inputs, and describes all products. of_two: messages have the names of ignis_mlp. *shape: of
    all results, except the last dimension. */
static bool ignis__mlp_shapes(ignis__op *op, ignis__mlp *mlp, bool of_two, ignis_shape *shape)
{
    char w_name[24], b_name[24];
    int l;
    if (!ignis__op_is_float(op, 0, "x"))
        return false;
    for (l = 0; l < mlp->count; l++) {
        const ignis_shape *w = &op->in[1 + l]->shape;
        const ignis__array *bias = mlp->bias[l] ? op->in[mlp->bias[l]] : NULL;
        snprintf(w_name, sizeof w_name, of_two ? "w%d" : "weights[%d]", l + of_two);
        snprintf(b_name, sizeof b_name, of_two ? "b%d" : "biases[%d]", l + of_two);
        if (!ignis__op_same_dtype(op, 1 + l, w_name) || (bias && !ignis__op_same_dtype(op, mlp->bias[l], b_name)))
            return false;
        if (l == 0 && w->ndim != 2)
            return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "%s is %s; [out, in] is needed", w_name,
                                  ignis__shape_write(w).text);
        if (l == 0 && !ignis__matmul_shapes(op, 1, &mlp->layer[0], shape))
            return false;
        if (l > 0 && (w->ndim != 2 || w->dim[1] != mlp->layer[l - 1].n))
            return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "%s is %s; [out, %lld] is needed", w_name,
                                  ignis__shape_write(w).text, (long long)mlp->layer[l - 1].n);
        if (l > 0)
            mlp->layer[l] = ignis__product_of(op->in[0]->dtype, mlp->layer[0].m, w->dim[0], w->dim[1], 1);
        if (bias && bias->numel != mlp->layer[l].n)
            return ignis__op_fail(op, IGNIS_DIAG_MATMUL_SHAPE, "%s is %s; [%lld] is needed", b_name,
                                  ignis__shape_write(&bias->shape).text, (long long)mlp->layer[l].n);
    }
    return true;
}

/*  Runs the layers. biases: NULL, or one for each layer, without a handle if it has none. */
static ignis_tensor ignis__mlp_op(const char *call, bool of_two, ignis_tensor x, const ignis_tensor *weights,
                                  const ignis_tensor *biases, int count, ignis_activation activation)
{
    ignis_tensor inputs[IGNIS__OP_INPUTS] = IGNIS__ZERO;
    ignis__array *out[IGNIS_MAX_LAYERS] = {NULL}, *pre[IGNIS_MAX_LAYERS] = {NULL};
    ignis__epilogue epilogue;
    ignis__mlp mlp = IGNIS__ZERO;
    ignis_shape shape;
    ignis__op op;
    int used = 1 + count, l;
    mlp.count = count;
    mlp.activation = (int)activation;
    inputs[0] = x;
    memcpy(inputs + 1, weights, sizeof *weights * (size_t)count);
    for (l = 0; l < count; l++)
        if (biases && biases[l].id)
            inputs[mlp.bias[l] = used++] = biases[l];
    if (!ignis__op_begin(&op, call, used, inputs))
        return ignis__no_tensor();
    if (activation != IGNIS_ACTIVATION_RELU && activation != IGNIS_ACTIVATION_GELU)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_ENUM, "activation is %d; it is IGNIS_ACTIVATION_RELU or _GELU",
                       (int)activation);
    else
        ignis__mlp_shapes(&op, &mlp, of_two, &shape);
    for (l = 0; op.ok && l < count; l++) {
        shape.dim[shape.ndim - 1] = mlp.layer[l].n;
        out[l] = ignis__op_new_product(&op, &shape, op.in[0]->dtype);
        memset(&epilogue, 0, sizeof epilogue);
        epilogue.bias = mlp.bias[l] ? op.in[mlp.bias[l]] : NULL;
        if (l < count - 1) {
            epilogue.activation = mlp.activation;
            if (op.saves && activation != IGNIS_ACTIVATION_RELU) /* its gradient can be read from the result */
                epilogue.pre = pre[l] = ignis__op_new_product(&op, &shape, op.in[0]->dtype);
        }
        ignis__matmul_run(&op, &mlp.layer[l], out[l], l ? out[l - 1] : op.in[0], op.in[1 + l], &epilogue);
    }
    if (op.records && op.ok) {
        ignis__op_save_inputs(&op, 0, 1 + count);
        for (l = 0; l < count - 1; l++)
            ignis__op_save(&op, out[l]);
        for (l = 0; l < count - 1; l++)
            ignis__op_save(&op, pre[l]);
        for (l = 1 + count; l < used; l++) /* the biases */
            ignis__op_keep(&op, op.in[l]);
    }
    return ignis__op_end_recorded(&op, out[count - 1], "mlp", ignis__mlp_backward, &mlp,
                                  offsetof(ignis__mlp, layer) + sizeof mlp.layer[0] * (size_t)count);
}

IGNIS_API ignis_tensor ignis_mlp(ignis_tensor x, ignis_tensor w1, ignis_tensor b1, ignis_tensor w2, ignis_tensor b2,
                                 ignis_activation activation)
{
    ignis_tensor weights[] = {w1, w2}, biases[] = {b1, b2};
    return ignis__mlp_op("ignis_mlp", true, x, weights, biases, 2, activation);
}

IGNIS_API ignis_tensor ignis_mlp_layers(ignis_tensor x, const ignis_tensor *weights, const ignis_tensor *biases,
                                        int count, ignis_activation activation)
{
    static const char call[] = "ignis_mlp_layers";
    if (!ignis__enter(call) || !ignis__check_not_null(call, "weights", weights))
        return ignis__no_tensor();
    if (count < 1 || count > IGNIS_MAX_LAYERS) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, outside 1 to %d", count, IGNIS_MAX_LAYERS);
        return ignis__no_tensor();
    }
    return ignis__mlp_op(call, false, x, weights, biases, count, activation);
}

/*  Differentiates the layers one by one. */
IGNIS__PRIVATE void ignis__vjp_of_mlp(const ignis_vjp_args *args)
{
    const ignis__mlp *mlp = (const ignis__mlp *)args->params;
    const int biases = args->node->saved_count - (args->input_count - 1 - mlp->count);
    ignis_tensor inputs[IGNIS__OP_INPUTS], x;
    int i, l;
    for (i = 0; i < args->input_count; i++)
        inputs[i] = ignis__vjp_input(args, i, i <= mlp->count ? i : biases + i - 1 - mlp->count);
    for (x = inputs[0], l = 0; l < mlp->count; l++) {
        x = ignis_linear(x, inputs[1 + l], mlp->bias[l] ? inputs[mlp->bias[l]] : ignis__no_tensor());
        if (l < mlp->count - 1)
            x = mlp->activation == IGNIS_ACTIVATION_RELU ? ignis_relu(x) : ignis_gelu(x);
    }
    ignis__vjp_plain(args, x, inputs);
}

/*  Returns whether a tensor is the result of a layer whose bias needs a gradient: the column sums of the
    tensor's own. */
static bool ignis__tensor_wants_column_sums(ignis__tensor *tensor)
{
    const ignis__node *node = ignis__backward_pass_find_maker(tensor);
    const ignis__mlp *mlp;
    int bias = 0;
    if (node && node->backward_fn == ignis__linear_backward && node->input_count > 2) {
        bias = 2;
    } else if (node && node->backward_fn == ignis__mlp_backward) {
        mlp = (const ignis__mlp *)node->params;
        bias = mlp->bias[mlp->count - 1];
    }
    return bias > 0 && node->needed[bias];
}

/*  Called by a running backward function: returns whether the gradient of its first input goes to such a
    result, directly or through an addition. */
IGNIS__PRIVATE bool ignis__gradient_wants_column_sums(void)
{
    ignis__tensor *tensor = ignis__tensor_thread_now()->pass->node->inputs[0];
    const ignis__node *node = ignis__backward_pass_find_maker(tensor);
    int i;
    if (!node || node->backward_fn != ignis__add_backward)
        return ignis__tensor_wants_column_sums(tensor);
    for (i = 0; i < 2; i++)
        if (ignis__shape_same(&node->inputs[i]->shape, &tensor->shape) &&
            ignis__tensor_wants_column_sums(node->inputs[i]))
            return true;
    return false;
}
