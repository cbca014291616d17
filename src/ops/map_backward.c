/*  >>ops.formula.map_backward - the gradients of a formula of tensors

    One kernel computes all gradients of a result. Gradients of broadcast inputs are summed, in that kernel if
    they agree.
    Uses: the room formula, sum. Invariant: sums over the same shapes have a fixed order. */

#include "room.h"

/*  Sums an array, of the dtype or W, where a shape was broadcast to its shape: over neighbouring dimensions,
    the last ones first. */
static ignis__array *ignis__formula_sum_gradient(ignis__op *op, ignis__array *from, const ignis_shape *from_shape,
                                                 const ignis_shape *shape, ignis_dtype dtype)
{
    int64_t stride[1][IGNIS__FORMULA_ANY_RANK], dim[IGNIS_MAX_DIMS];
    ignis__array *out = from;
    ignis__axis axis;
    int rank, d;
    ignis__formula_strides(from_shape, shape, stride[0]);
    rank = ignis__formula_collapse_dims(from_shape, 1, stride, dim);
    axis.inner = 1;
    for (d = rank - 1; d >= 0 && op->ok; d--) {
        if (stride[0][d]) {
            axis.inner *= dim[d];
            continue;
        }
        axis.n = dim[d];
        axis.outer = 1;
        for (rank = 0; rank < d; rank++)
            axis.outer *= dim[rank];
        from = out;
        out =
            d < 2 ? ignis__op_new(op, shape, from->dtype) : ignis__op_new_row(op, axis.outer * axis.inner, from->dtype);
        if (out)
            ignis__op_sum(op, out, from, NULL, 1, &axis);
    }
    return op->ok && out->dtype != dtype ? ignis__op_cast(op, out, dtype) : out;
}

/*  Returns whether a tensor was broadcast: it has fewer elements than the shape. */
static bool ignis__formula_is_broadcast(const ignis__formula_rule *p, int tensor)
{
    const ignis_shape *shape = &p->tensor[tensor].shape;
    return ignis__shape_product(shape, 0, shape->ndim) != ignis__shape_product(&p->shape, 0, p->shape.ndim);
}

/*  Returns whether the needed tensors were broadcast along the same neighbouring dimensions. Then one kernel
    also sums all gradients. */
static bool ignis__formula_broadcasts_alike(const ignis__formula_rule *p, uint32_t needed)
{
    const ignis_shape *shape, *first = NULL;
    ignis__axis axis;
    int i, d;
    for (i = 0; i < p->count; i++) {
        if (!(needed >> p->tensor[i].input & 1) || !ignis__formula_is_broadcast(p, i))
            continue;
        shape = &p->tensor[i].shape;
        if (!first)
            first = shape;
        for (d = 1; d <= p->shape.ndim; d++)
            if ((d <= shape->ndim ? shape->dim[shape->ndim - d] : 1) !=
                (d <= first->ndim ? first->dim[first->ndim - d] : 1))
                return false;
    }
    return first && ignis__shape_product(&p->shape, 0, p->shape.ndim) > 0 &&
           ignis__axis_of_broadcast(&p->shape, first, &axis);
}

/*  Sets the results of the gradients. fused: gradients of broadcast inputs are summed in the kernel. apart:
    all are as wide and long as they can be, and are finished later, which works at any size. */
static void ignis__formula_backward_results(const ignis__formula_rule *rule, uint32_t needed, bool wide, bool fused,
                                            bool apart, ignis__formula_run *run, int *tensor)
{
    int i, k;
    run->outs = 0;
    run->reduced = 0;
    for (i = 0; i < rule->formula->count; i++) { /* in the order of the formula's inputs */
        if (!(needed >> i & 1))
            continue;
        for (k = 0; k < rule->count && rule->tensor[k].input != i; k++)
            ;
        tensor[run->outs] = k;
        if (fused && ignis__formula_is_broadcast(rule, k)) {
            run->reduced |= (uint32_t)1 << run->outs;
            run->reduction = IGNIS_REDUCE_SUM;
            run->to_shape = &rule->tensor[k].shape;
        }
        run->out[run->outs++] = !apart && (fused || !ignis__formula_is_broadcast(rule, k)) ? rule->tensor[k].dtype
                                : wide                                                     ? IGNIS_F64
                                                                                           : IGNIS_F32;
    }
}

/*  Records what gradients need at other sizes. */
static void ignis__formula_backward_record(const char *call, const ignis__formula_rule *p,
                                           const ignis__formula_run *run)
{
    int k;
    if (!ignis__requests.path[0])
        return;
    ignis__record_builtin_for_all(IGNIS__BUILTIN(SUM_ROWS),
                                  run->dtype[p->formula->count]); /* for a gradient that equals the incoming one */
    if (run->outs == 0)
        return;
    ignis__formula_record_run(call, run);
    ignis__record_builtin_for_all(IGNIS__BUILTIN(SUM_ROWS), run->out[0]);
    for (k = 0; k < p->count; k++)
        if (ignis__dtype_is_float(p->tensor[k].dtype) && p->tensor[k].dtype != run->out[0])
            ignis__record_builtin_for_all(ignis__builtin_cast(p->tensor[k].dtype), run->out[0]);
}

/*  For a logsumexp: divides the incoming gradient by the sum, whose exponentials start at the saved largest
    element. NULL after a failure. */
static ignis__array *ignis__formula_divide_by_sum(ignis__op *op, const ignis__formula_rule *rule)
{
    ignis__array *kept = op->in[rule->kept_saved], *out = ignis__op_new(op, &rule->given, kept->dtype);
    ignis__formula_run run = IGNIS__ZERO;
    run.formula = ignis__formula_get(op->work.call, "g/s", "g, s", 2, 0);
    op->ok = op->ok && run.formula;
    run.shape = rule->given;
    run.used = 3;
    run.input[0] = run.input[1] = &rule->given;
    run.dtype[0] = op->in[0]->dtype;
    run.dtype[1] = kept->dtype;
    run.address[0] = ignis__op_read(op, op->in[0]);
    run.address[1] = ignis__op_read(op, kept) + (ignis__address)(kept->numel / 2 * ignis__dtypes[kept->dtype].size);
    run.outs = 1;
    run.out[0] = kept->dtype;
    run.to[0] = ignis__op_write(op, out);
    if (op->ok) {
        ignis__formula_record_run(op->work.call, &run);
        op->ok = ignis__formula_launch(&op->work, &run);
    }
    return op->ok ? out : NULL;
}

IGNIS__PRIVATE ignis_status ignis__formula_backward(const ignis_backward_args *args)
{
    static const char call[] = "ignis_map";
    const ignis__formula_rule *rule = (const ignis__formula_rule *)args->params;
    ignis__array *gradients[IGNIS_MAX_INPUTS] = {NULL}, *made[IGNIS_MAX_INPUTS] = {NULL};
    uint32_t needed = 0, all = 0;
    ignis__array *given;
    ignis__formula_needs needs;
    ignis__formula_run run = IGNIS__ZERO;
    ignis__op op;
    int i, count = rule->formula->count, tensor[IGNIS_MAX_INPUTS];
    bool wide = false, fused, apart = false;
    if (!ignis__op_begin_backward(&op, call, args))
        return ignis__failed();
    given = rule->kept == IGNIS_REDUCE_LOGSUMEXP ? ignis__formula_divide_by_sum(&op, rule) : op.in[0];
    if (!given)
        return ignis__op_finish_backward(&op, args, rule->count, gradients);
    run.formula = rule->formula;
    run.shape = rule->shape;
    run.dtype[count] = given->dtype;
    run.input[count] = &rule->given;
    run.factor = rule->factor;
    for (i = 0; i < count; i++) {
        run.value[i] = rule->value[i];
        if (rule->saved[i]) {
            run.dtype[i] = op.in[rule->saved[i]]->dtype;
            run.input[i] = &op.in[rule->saved[i]]->shape;
            wide = wide || run.dtype[i] == IGNIS_F64;
        }
    }
    for (i = 0; i < rule->count; i++) {
        wide = wide || rule->tensor[i].dtype == IGNIS_F64;
        if (!args->needed[i] || !ignis__dtype_is_float(rule->tensor[i].dtype))
            continue;
        all |= (uint32_t)1 << rule->tensor[i].input;
        if (!(rule->same >> rule->tensor[i].input & 1) || rule->tensor[i].dtype != op.in[0]->dtype)
            needed |= (uint32_t)1 << rule->tensor[i].input;
    }
    run.result = rule->result;
    run.random = rule->random;
    op.ok = ignis__formula_needs_get(call, rule->formula, rule->result, needed ? needed : all,
                                     ignis__formula_saves_value(rule->kept), &needs);
    run.used = needs.used | (uint32_t)1 << count;
    if (rule->kept) {
        run.kept = rule->kept;
        run.used |= (uint32_t)2 << count;
        run.input[count + 1] = &rule->given;
        run.dtype[count + 1] = op.in[rule->kept_saved]->dtype;
        run.address[count + 1] = ignis__op_read(&op, op.in[rule->kept_saved]);
    }
    run.needed = needed;
    fused = ignis__formula_broadcasts_alike(rule, needed);
    if (op.ok) {
        ignis__formula_backward_results(rule, needed, wide, false, true, &run, tensor);
        ignis__formula_backward_record(call, rule, &run);
    }
    if (needed && op.ok) {
        ignis__formula_backward_results(rule, needed, wide, fused, false, &run, tensor);
        apart = !ignis__formula_is_available(call, op.work.device, &run);
        fused = fused && !apart;
        if (apart)
            ignis__formula_backward_results(rule, needed, wide, false, true, &run, tensor);
    }
    for (i = 0; i < run.outs && op.ok; i++) {
        made[tensor[i]] =
            ignis__op_new(&op, run.reduced >> i & 1 ? &rule->tensor[tensor[i]].shape : &rule->shape, run.out[i]);
        run.to[i] = ignis__op_write(&op, made[tensor[i]]);
    }
    for (i = 0; i <= count; i++)
        if (needed && (run.used >> i & 1) && run.input[i])
            run.address[i] = ignis__op_read(&op, i == count ? given : op.in[rule->saved[i]]);
    if (op.ok && needed)
        op.ok = ignis__formula_launch(&op.work, &run);
    for (i = 0; i < rule->count && op.ok; i++) {
        if (!(all >> rule->tensor[i].input & 1))
            continue;
        if (!made[i] && !ignis__formula_is_broadcast(rule, i))
            args->grad_inputs[i] = args->grad_output;
        else if (made[i] && (fused || !ignis__formula_is_broadcast(rule, i)) && made[i]->dtype == rule->tensor[i].dtype)
            gradients[i] = made[i];
        else
            gradients[i] = ignis__formula_sum_gradient(&op, made[i] ? made[i] : op.in[0], &rule->shape,
                                                       &rule->tensor[i].shape, rule->tensor[i].dtype);
    }
    return ignis__op_finish_backward(&op, args, rule->count, gradients);
}
