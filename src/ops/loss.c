/*  >>ops.loss.formulas - losses that are formulas: mse, l1, huber, bce, kl_div, nll, cosine_similarity

    Each is a text for the room formula, with a reduction.
    Uses: map, map_reduce. */

#include "room.h"

static bool ignis__reduction_valid(const char *call, ignis_reduction reduction)
{
    if (!ignis__enter(call))
        return false;
    if (reduction >= IGNIS_REDUCTION_MEAN && reduction < IGNIS_REDUCTION_COUNT)
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call,
                             "there is no reduction %d; IGNIS_REDUCTION_MEAN to _NONE are 0 to 2", (int)reduction);
}

/*  Computes losses of elements. */
static ignis_tensor ignis__loss(const char *call, const char *formula, ignis_inputs inputs, ignis_reduction reduction)
{
    if (!ignis__reduction_valid(call, reduction))
        return ignis__no_tensor();
    if (reduction == IGNIS_REDUCTION_NONE)
        return ignis__formula_tensor(call, formula, &inputs, IGNIS__LOSS_ALIKE);
    return ignis__formula_reduced(call, reduction == IGNIS_REDUCTION_SUM ? IGNIS_REDUCE_SUM : IGNIS_REDUCE_MEAN,
                                  formula, &inputs, NULL, IGNIS__LOSS_ALIKE);
}

IGNIS_API ignis_tensor ignis_mse_loss(ignis_tensor x, ignis_tensor targets, ignis_reduction reduction)
{
    return ignis__loss("ignis_mse_loss", "square(x - targets)", IGNIS_INPUTS(x, targets), reduction);
}

IGNIS_API ignis_tensor ignis_l1_loss(ignis_tensor x, ignis_tensor targets, ignis_reduction reduction)
{
    return ignis__loss("ignis_l1_loss", "abs(x - targets)", IGNIS_INPUTS(x, targets), reduction);
}

IGNIS_API ignis_tensor ignis_huber_loss(ignis_tensor x, ignis_tensor targets, double delta, ignis_reduction reduction)
{
    static const char call[] = "ignis_huber_loss";
    if (ignis__enter(call) && !(delta > 0)) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "delta is %g, which is not above 0", delta);
        return ignis__no_tensor();
    }
    return ignis__loss(call, "d = x - targets; abs(d) < delta ? 0.5*d*d : delta*(abs(d) - 0.5*delta)",
                       IGNIS_INPUTS(x, targets, IGNIS_VALUE(delta, delta)), reduction);
}

/*  softplus(x) is s + max(x, 0); s serves both signs. max has the gradient 1/2 at 0, which is right here. */
IGNIS_API ignis_tensor ignis_bce_with_logits(ignis_tensor logits, ignis_tensor targets, const ignis_bce_desc *desc)
{
    ignis_tensor x = logits, t = targets, w = desc && desc->weight.id ? desc->weight : ignis_value(1),
                 p = desc && desc->pos_weight.id ? desc->pos_weight : ignis_value(1);
    return ignis__loss("ignis_bce_with_logits",
                       "s = softplus(-abs(x)); a = s + max(x, 0); b = s + max(-x, 0); "
                       "l = with_grad(t == 1 ? 0 : (1 - t)*a, (1 - t)*a) + with_grad(p*t == 0 ? 0 : p*t*b, p*t*b); "
                       "with_grad(w == 0 ? 0 : w*l, w == 0 ? w*detach(l) : w*l)",
                       IGNIS_INPUTS(x, t, w, p), desc ? desc->reduction : IGNIS_REDUCTION_MEAN);
}

/*  Computes a formula's sum over the last dimension. */
IGNIS__PRIVATE ignis_tensor ignis__loss_rows(const char *call, const char *formula, ignis_inputs inputs,
                                             ignis__loss_kind loss)
{
    static const ignis_reduce_desc last = {{-1}, 1, false};
    return ignis__formula_reduced(call, IGNIS_REDUCE_SUM, formula, &inputs, &last, loss);
}

/*  Checks rows of classes and their targets [...], and makes the targets a column beside the rows: [..., 1].
    False, and reported, on failure. */
IGNIS__PRIVATE bool ignis__rows_begin(const char *call, ignis_tensor rows, ignis_tensor targets,
                                      const ignis_cross_entropy_desc *desc, ignis__cross_entropy *entropy,
                                      ignis_tensor *column)
{
    ignis__op op;
    ignis_tensor inputs[] = {rows, targets};
    int64_t count, columns;
    ignis_shape shape;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return false;
    op.ok = ignis__op_is_float(&op, 0, "the first input") && ignis__op_rows(&op, op.in[0], &count, &columns) &&
            ignis__cross_entropy_prepare(&op, desc, count, columns, op.in[1], entropy);
    shape = op.in[0]->shape;
    if (ignis__op_leave(&op) != IGNIS_OK)
        return false;
    shape.dim[shape.ndim - 1] = 1;
    *column = ignis_reshape(targets, shape);
    return column->id != 0;
}

/*  Reduces the losses of rows, which it takes over. Rows with the target k are left out of the mean (no
    targets: none are). */
IGNIS__PRIVATE ignis_tensor ignis__loss_of_rows(const char *call, ignis_tensor losses, ignis_reduction reduction,
                                                ignis_tensor targets, int64_t k)
{
    ignis_tensor sum, count, result = ignis__no_tensor();
    if (!losses.id || reduction == IGNIS_REDUCTION_NONE)
        return losses;
    if (reduction == IGNIS_REDUCTION_SUM || !targets.id) {
        result = reduction == IGNIS_REDUCTION_SUM ? ignis_sum(losses) : ignis_mean(losses);
    } else {
        sum = ignis_sum(losses);
        count = sum.id ? ignis_map_sum("targets != k", IGNIS_INPUTS(targets, IGNIS_VALUE(k, (double)k))) : sum;
        if (count.id)
            result = ignis_map("sum / count", IGNIS_INPUTS(sum, count));
        ignis__tensor_discard(call, sum);
        ignis__tensor_discard(call, count);
    }
    ignis__tensor_discard(call, losses);
    return result;
}

IGNIS_API ignis_tensor ignis_kl_div(ignis_tensor x, ignis_tensor targets, bool log_targets, ignis_reduction reduction)
{
    static const char call[] = "ignis_kl_div";
    ignis_tensor t = targets, losses;
    if (!ignis__reduction_valid(call, reduction))
        return ignis__no_tensor();
    losses = ignis__loss_rows(call, log_targets ? "t == -inf ? 0 : exp(t)*(t - x)" : "t == 0 ? 0 : t*(log(t) - x)",
                              IGNIS_INPUTS(x, t), IGNIS__LOSS_ALIKE);
    return ignis__loss_of_rows(call, losses, reduction, ignis__no_tensor(), 0);
}

/*  Lengths are taken times s = 2^-20: a row's length may be beyond the largest number. */
IGNIS_API ignis_tensor ignis_cosine_similarity(ignis_tensor a, ignis_tensor b)
{
    static const char call[] = "ignis_cosine_similarity";
    static const ignis_reduce_desc last = {{-1}, 1, true};
    ignis_inputs of_a = IGNIS_INPUTS(a), of_b = IGNIS_INPUTS(b);
    ignis_tensor m = ignis__formula_reduced(call, IGNIS_REDUCE_NORM, "a*9.5367431640625e-7", &of_a, &last, IGNIS__LOSS),
                 result = ignis__no_tensor();
    ignis_tensor n =
        m.id ? ignis__formula_reduced(call, IGNIS_REDUCE_NORM, "b*9.5367431640625e-7", &of_b, &last, IGNIS__LOSS) : m;
    ignis_tensor c = n.id
                         ? ignis__loss_rows(call, "s = 9.5367431640625e-7; (a/max(m, 1e-8*s)*s) * (b/max(n, 1e-8*s)*s)",
                                            IGNIS_INPUTS(a, b, m, n), IGNIS__LOSS_ALIKE)
                         : n;
    if (c.id) /* rounding must not give a cosine above 1 */
        result = ignis_map("with_grad(min(max(c, -1), 1), c)", IGNIS_INPUTS(c));
    ignis__tensor_discard(call, m);
    ignis__tensor_discard(call, n);
    ignis__tensor_discard(call, c);
    return result;
}
