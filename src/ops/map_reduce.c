/*  >>ops.formula.map_reduce - ignis_map_sum, _mean and _reduce: formulas of tensors, reduced

    Finds the reduced shape, and ends as a formula of tensors.
    Uses: map, map_backward; the room formula. */

#include "room.h"

/*  Sets the shape of a reduction: `kept` has 1 in the dimensions of desc (NULL: in all); *out drops them
    unless they are kept. */
static bool ignis__formula_reduced_shape(ignis__op *op, const ignis_shape *shape, const ignis_reduce_desc *desc,
                                         ignis_shape *kept, ignis_shape *out)
{
    uint32_t dims = 0;
    int i, d;
    *kept = *shape;
    memset(out, 0, sizeof *out);
    if (desc && (desc->dim_count < 0 || desc->dim_count > IGNIS_MAX_DIMS))
        return ignis__op_fail(op, IGNIS_DIAG_DIM_RANGE, "desc->dim_count is %d, outside 0 to %d", desc->dim_count,
                              IGNIS_MAX_DIMS);
    for (i = 0; desc && i < desc->dim_count; i++) {
        d = desc->dims[i] < 0 ? desc->dims[i] + shape->ndim : desc->dims[i];
        if (d < 0 || d >= shape->ndim || dims >> d & 1)
            return ignis__op_fail(op, IGNIS_DIAG_DIM_RANGE, "desc->dims[%d] is %d, %s %s", i, desc->dims[i],
                                  d >= 0 && d < shape->ndim ? "which was there before, of" : "outside of",
                                  ignis__shape_write(shape).text);
        dims |= (uint32_t)1 << d;
    }
    for (d = 0; d < shape->ndim; d++) {
        bool is = !desc || desc->dim_count == 0 || (dims >> d & 1);
        if (is)
            kept->dim[d] = 1;
        if (!is || (desc && desc->keepdim))
            out->dim[out->ndim++] = kept->dim[d];
    }
    if (out->ndim == 0) {
        out->ndim = 1;
        out->dim[0] = 1;
    }
    return true;
}

/*  Returns the dtype of a reduction's result. */
static ignis_dtype ignis__formula_reduced_dtype(const ignis__formula_run *run, ignis_reducer reducer,
                                                ignis__loss_kind loss)
{
    const ignis_dtype dtype = ignis__formula_result_dtype(run, 0);
    const char type = run->formula->term[run->formula->result[0]].type;
    const bool wide = ignis__formula_reduces_wide((int)reducer);
    if (reducer == IGNIS_REDUCE_ANY || reducer == IGNIS_REDUCE_ALL)
        return IGNIS_U8;
    if (reducer == IGNIS_REDUCE_ARGMAX || reducer == IGNIS_REDUCE_ARGMIN ||
        (type == 'b' && reducer != IGNIS_REDUCE_MEAN && !wide))
        return IGNIS_I64;
    if (type != 'w' && (reducer == IGNIS_REDUCE_MEAN || wide))
        return IGNIS_F32;
    return loss ? ignis__wide_dtype(dtype) : dtype;
}

/*  Reduces dimensions that are not neighbours, for reducers of one step: they are made the last ones. shape: of the
    result, which has the dtype. */
static ignis_tensor ignis__formula_reduced_apart(const char *call, ignis_reducer reducer, const char *formula,
                                                 const ignis_inputs *inputs, const ignis_shape *kept,
                                                 const ignis_shape *shape, ignis_dtype dtype)
{
    const ignis_tensor v = ignis__formula_tensor(call, formula, inputs, IGNIS__LOSS);
    const ignis_shape from = v.id ? ignis_tensor_shape(v) : *kept;
    ignis_reduce_desc desc = IGNIS__ZERO;
    int order[IGNIS_MAX_DIMS], d, k = 0;
    ignis_tensor moved, reduced, shaped, result;
    ignis__outer_call outer;
    for (d = 0; d < from.ndim; d++)
        if (kept->dim[d] == from.dim[d])
            order[k++] = d;
    for (d = 0; d < from.ndim; d++)
        if (kept->dim[d] != from.dim[d]) {
            desc.dims[desc.dim_count++] = k;
            order[k++] = d;
        }
    ignis__outer_call_begin(&outer, call, NULL);
    moved = ignis_permute(v, order, from.ndim);
    reduced = ignis_map_reduce(reducer, "v", IGNIS_INPUTS(IGNIS_NAMED(v, moved)), &desc);
    shaped = ignis_reshape(reduced, *shape);
    result = ignis_cast(shaped, dtype);
    ignis__outer_call_end(&outer);
    ignis__tensor_discard(call, v);
    ignis__tensor_discard(call, moved);
    ignis__tensor_discard(call, reduced);
    ignis__tensor_discard(call, shaped);
    return result;
}

IGNIS__PRIVATE ignis_tensor ignis__formula_reduced(const char *call, ignis_reducer reducer, const char *formula,
                                                   const ignis_inputs *inputs, const ignis_reduce_desc *desc,
                                                   ignis__loss_kind loss)
{
    ignis_shape kept, shape;
    ignis__formula_rule rule;
    ignis__formula_run run;
    ignis__array *out = NULL, *aside;
    ignis_dtype dtype;
    ignis__op op;
    int64_t numel;
    double none = 0;
    if (ignis__enter(call) && !ignis__formula_check_reducer(call, reducer))
        return ignis__no_tensor();
    if (!ignis__formula_begin_tensors(&op, call, formula, inputs, 1, &run, &rule, loss))
        return ignis__no_tensor();
    if (op.ok && ignis__formula_reduced_shape(&op, &run.shape, desc, &kept, &shape)) {
        dtype = ignis__formula_reduced_dtype(&run, reducer, loss);
        run.reduction = reducer;
        run.to_shape = &kept;
        if (op.records && ignis__dtype_is_float(dtype) &&
            ((reducer >= IGNIS_REDUCE_PROD && reducer <= IGNIS_REDUCE_MIN) ||
             ignis__formula_reduces_wide((int)reducer)))
            run.kept = rule.kept = (int)reducer;
        if (ignis__formula_needs_neighbours(&run)) {
            (void)ignis__op_leave(&op);
            return ignis__formula_reduced_apart(call, reducer, formula, inputs, &kept, &shape, dtype);
        }
        out = ignis__op_new(&op, &shape, dtype);
        numel = ignis__shape_product(&run.shape, 0, run.shape.ndim);
        run.out[0] = dtype;
        run.reduced = 1;
        if (reducer == IGNIS_REDUCE_MEAN && numel)
            run.factor = (double)(numel / ignis__shape_product(&kept, 0, kept.ndim));
        rule.given = kept;
        rule.factor = 1 / run.factor;
        if (run.kept) {
            aside = ignis__op_new_rows(&op, reducer == IGNIS_REDUCE_LOGSUMEXP ? 2 : 1,
                                       ignis__shape_product(&kept, 0, kept.ndim),
                                       ignis__formula_saves_value((int)reducer) ? ignis__wide_dtype(dtype) : IGNIS_I64);
            run.kept_to = ignis__op_write(&op, aside);
            rule.kept_saved = 1 + op.saved_count;
            ignis__op_save(&op, aside);
        }
        if (op.ok && numel == 0 && out->numel > 0) {
            op.ok = ignis__formula_reduce_empty(call, reducer, &none);
            ignis__op_fill(&op, out, none);
        } else {
            run.to[0] = ignis__op_write(&op, out);
            op.ok = op.ok && ignis__formula_reduce(&op.work, &run);
        }
    }
    return ignis__formula_end(&op, out, ignis__formula_reductions[reducer].name, &rule);
}

IGNIS_API ignis_tensor ignis_map_sum(const char *formula, ignis_inputs inputs)
{
    return ignis__formula_reduced("ignis_map_sum", IGNIS_REDUCE_SUM, formula, &inputs, NULL, IGNIS__LOSS_NONE);
}

IGNIS_API ignis_tensor ignis_map_mean(const char *formula, ignis_inputs inputs)
{
    return ignis__formula_reduced("ignis_map_mean", IGNIS_REDUCE_MEAN, formula, &inputs, NULL, IGNIS__LOSS_NONE);
}

IGNIS_API ignis_tensor ignis_map_reduce(ignis_reducer reducer, const char *formula, ignis_inputs inputs,
                                        const ignis_reduce_desc *desc)
{
    return ignis__formula_reduced("ignis_map_reduce", reducer, formula, &inputs, desc, IGNIS__LOSS_NONE);
}
