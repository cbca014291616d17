/*  >>ops.cross_entropy - ignis_cross_entropy: checks, label smoothing, and losses of rows

    Without smoothing the kernels of cross_entropy_launch do all; with it a formula over log-sums. Uses: loss,
    map. */

#include "room.h"

/*  Computes log(sum of exp(x)) of each row in two parts: the maximum and the rest, as views [..., 1]. False,
    and reported, on failure. */
static bool ignis__cross_entropy_sums(const char *call, ignis_tensor x, ignis_tensor targets,
                                      ignis__cross_entropy *entropy, ignis_tensor *max, ignis_tensor *rest)
{
    ignis__op op;
    ignis_tensor inputs[2];
    ignis__cross_entropy_results found;
    ignis__array *parts[2] = {NULL, NULL};
    ignis_dtype wide;
    ignis_shape shape;
    int i;
    inputs[0] = x;
    inputs[1] = targets;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return false;
    wide = ignis__wide_dtype(op.in[0]->dtype);
    shape = op.in[0]->shape;
    shape.dim[shape.ndim - 1] = 1;
    found.loss = ignis__op_new_row(&op, 1, wide);
    found.scale = ignis__op_new_row(&op, 1, wide);
    found.log_sums = ignis__op_new_row(&op, 2 * entropy->rows, wide);
    for (i = 0; i < 2 && op.ok; i++)
        parts[i] = ignis__op_view(&op, found.log_sums, &shape, entropy->rows, i * entropy->rows);
    if (op.ok)
        ignis__cross_entropy_forward(&op, entropy, &found, NULL);
    *max = ignis__op_result(&op, parts[0], 0, NULL, NULL, NULL);
    *rest = ignis__op_result(&op, parts[1], 0, NULL, NULL, NULL);
    ignis__op_leave_two(&op, max);
    return rest->id != 0;
}

/*  Differentiates these losses as what they are: q times log(sum of exp(x)) - x. */
IGNIS__PRIVATE void ignis__vjp_of_soft_cross_entropy(const ignis_vjp_args *args)
{
    static const ignis_reduce_desc column = {{-1}, 1, true}, row = {{-1}, 1, false};
    const ignis__formula_rule *rule = (const ignis__formula_rule *)args->params;
    const ignis_tensor x = ignis__vjp_input(args, 0, rule->saved[0] - 1),
                       t = ignis__vjp_constant(args, rule->saved[1] - 1);
    const double classes = rule->value[5];
    ignis_tensor inputs[IGNIS_MAX_INPUTS] = IGNIS__ZERO, wide = ignis__vjp_wide(x), l;
    inputs[0] = x;
    l = ignis_map_reduce(IGNIS_REDUCE_LOGSUMEXP, "index(-1) < n ? x : -inf",
                         IGNIS_INPUTS(IGNIS_NAMED(x, wide), IGNIS_VALUE(n, classes)), &column);
    ignis__vjp_plain(args,
                     ignis_map_reduce(IGNIS_REDUCE_SUM,
                                      "c = index(-1); q = (c == t ? 1 - e : 0) + e/n; t == k || c >= n ? 0"
                                      " : t < 0 || t >= n ? nan*x : q*(l - x)",
                                      IGNIS_INPUTS(IGNIS_NAMED(x, wide), t, l, IGNIS_VALUE(k, rule->value[4]),
                                                   IGNIS_VALUE(n, classes), IGNIS_VALUE(e, rule->value[6])),
                                      &row),
                     inputs);
}

IGNIS__PRIVATE const char ignis__soft_cross_entropy_name[] = "cross_entropy with label_smoothing";

/*  Names the rule of such losses. Its formula states a gradient, from which second derivatives do not follow. */
static void ignis__soft_cross_entropy_mark(const char *call, ignis_tensor losses)
{
    ignis__tensor *tensor = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, losses.id);
    ignis__node *node = tensor ? ignis__tensor_tape_state(tensor).node : NULL;
    if (node)
        node->name = ignis__soft_cross_entropy_name;
    if (tensor)
        ignis__tensor_drop(call, tensor);
}

/*  Computes the loss against the target q, which is 1 - e at its class plus e / n everywhere: the sum of q (m
    - x + l), with the gradient exp(x - m - l) - q. The formula states that gradient: derived through m and l,
    the parts of the log-sums, it would need another pass. */
static ignis_tensor ignis__soft_cross_entropy(const char *call, ignis_tensor x, ignis_tensor targets,
                                              const ignis_cross_entropy_desc *desc)
{
    ignis__cross_entropy entropy;
    ignis_tensor t = ignis__no_tensor(), m = t, l = t, losses = t;
    if (!ignis__rows_begin(call, x, targets, desc, &entropy, &t))
        return losses;
    if (ignis__cross_entropy_sums(call, x, targets, &entropy, &m, &l))
        losses = ignis__loss_rows(
            call,
            "c = index(-1); q = (c == t ? 1 - e : 0) + e/n; t == k || c >= n ? 0 : t < 0 || t >= n ? nan*x"
            " : with_grad(q == 0 ? 0 : q*(m - x + l), x*detach(exp(x - m - l) - q))",
            IGNIS_INPUTS(x, t, m, l, IGNIS_VALUE(k, (double)entropy.ignore_index),
                         IGNIS_VALUE(n, (double)entropy.classes), IGNIS_VALUE(e, desc->label_smoothing)),
            IGNIS__LOSS);
    ignis__soft_cross_entropy_mark(call, losses);
    ignis__tensor_discard(call, t);
    ignis__tensor_discard(call, m);
    ignis__tensor_discard(call, l);
    return ignis__loss_of_rows(call, losses, desc->reduction, targets, entropy.ignore_index);
}

IGNIS_API ignis_tensor ignis_nll_loss(ignis_tensor x, ignis_tensor targets, const ignis_cross_entropy_desc *desc)
{
    static const char call[] = "ignis_nll_loss";
    ignis__cross_entropy entropy;
    ignis_tensor t = ignis__no_tensor(), losses = ignis__no_tensor();
    if (ignis__enter(call) && desc && desc->label_smoothing != 0) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "label_smoothing is for ignis_cross_entropy");
        return losses;
    }
    if (!ignis__rows_begin(call, x, targets, desc, &entropy, &t))
        return losses;
    losses = ignis__loss_rows(
        call, "t == k ? 0 : t < 0 || t >= n ? nan*x : index(-1) == t ? -x : 0",
        IGNIS_INPUTS(x, t, IGNIS_VALUE(k, (double)entropy.ignore_index), IGNIS_VALUE(n, (double)entropy.classes)),
        IGNIS__LOSS);
    ignis__tensor_discard(call, t);
    return ignis__loss_of_rows(call, losses, desc ? desc->reduction : IGNIS_REDUCTION_MEAN, targets,
                               entropy.ignore_index);
}

IGNIS_API ignis_tensor ignis_cross_entropy(ignis_tensor logits_tensor, ignis_tensor targets_tensor,
                                           const ignis_cross_entropy_desc *desc)
{
    static const char call[] = "ignis_cross_entropy";
    ignis__op op;
    ignis__cross_entropy entropy;
    ignis_tensor inputs[] = {logits_tensor, targets_tensor};
    ignis__array *made = NULL;
    ignis__cross_entropy_results found = {NULL, NULL, NULL};
    ignis_dtype wide;
    int64_t rows, columns;
    bool fused;
    if (ignis__cross_entropy_is_soft(desc))
        return ignis__soft_cross_entropy(call, logits_tensor, targets_tensor, desc);
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    wide = ignis__wide_dtype(op.in[0]->dtype);
    fused = op.records && ignis__cross_entropy_is_fused(op.in[0]->dtype);
    op.knows_one = fused;
    op.ok = ignis__op_is_float(&op, 0, "logits") && ignis__op_rows(&op, op.in[0], &rows, &columns) &&
            ignis__cross_entropy_prepare(&op, desc, rows, columns, op.in[1], &entropy);
    if (op.ok) {
        made = fused ? ignis__op_new_like(&op, op.in[0]) : NULL;
        found.loss = ignis__op_new_row(&op, 1, wide);
        found.scale = ignis__op_new_row(&op, 1, wide);
        found.log_sums = ignis__op_new_row(&op, 2 * entropy.rows, wide);
    }
    if (op.ok)
        ignis__cross_entropy_forward(&op, &entropy, &found, made);
    ignis__op_save(&op, fused ? made : op.in[0]);
    if (!fused) {
        ignis__op_save(&op, op.in[1]);
        ignis__op_save(&op, found.log_sums);
        ignis__op_save(&op, found.scale);
    } else {
        ignis__op_keep(&op, op.in[1]);
        ignis__op_keep(&op, found.scale);
    }
    return ignis__op_end_recorded(&op, found.loss, "cross_entropy",
                                  fused ? ignis__cross_entropy_rescale : ignis__cross_entropy_backward, &entropy,
                                  sizeof entropy);
}

/*  Computes p - 1 at the target's class, times the loss' factor. p, the softmax of the logits, is recorded as that.
    It is made from them, or from the gradient that forward has made: p - 1 at the class, times the factor. */
IGNIS__PRIVATE void ignis__vjp_of_cross_entropy(const ignis_vjp_args *args)
{
    const ignis__cross_entropy *entropy = (const ignis__cross_entropy *)args->params;
    const ignis_shape *shape = ignis__vjp_shape(args, 0);
    const bool fused = args->node->backward_fn == ignis__cross_entropy_rescale;
    const ignis_tensor first = fused ? ignis__vjp_constant(args, 0) : ignis__vjp_input(args, 0, 0),
                       s = ignis__vjp_constant(args, fused ? 2 : 3), k = ignis_value((double)entropy->ignore_index),
                       n = ignis_value((double)entropy->classes);
    ignis_tensor p, t = ignis__vjp_constant(args, 1), g = args->grad_output;
    ignis_shape column = *shape;
    column.dim[column.ndim - 1] = 1;
    t = ignis_reshape(t, column);
    if (fused)
        p = ignis__softmax_of(args->node->inputs[0],
                              ignis_map("t == k || index(-1) >= n ? 0 : d/s + (index(-1) == t ? 1 : 0)",
                                        IGNIS_INPUTS(IGNIS_NAMED(d, ignis_reshape(first, *shape)), t, s,
                                                     IGNIS_NAMED(k, k), IGNIS_NAMED(n, n))));
    else
        p = ignis_softmax(first);
    p = ignis_map("t == k || index(-1) >= n ? 0 : t < 0 || t >= n ? nan*p : g*s*(p - (index(-1) == t ? 1 : 0))",
                  IGNIS_INPUTS(p, t, g, s, IGNIS_NAMED(k, k), IGNIS_NAMED(n, n)));
    args->grad_inputs[0] = ignis_cast(p, args->node->inputs[0]->dtype);
}
