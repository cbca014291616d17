/*  >>ops.formula.map - ignis_map and its kin: formulas of tensors, and activations that are formulas

    Prepares a run from tensors, launches it, and records each result with what its gradients need.
    Uses: the room formula, map_backward, map_reduce. */

#include "room.h"

IGNIS_API ignis_tensor ignis_value(double value)
{
    ignis_tensor handle;
    handle.id = ignis__value_make(value);
    return handle;
}

/*  Checks that a model's output and its targets do not broadcast by mistake. */
static bool ignis__formula_check_loss(ignis__op *op, const ignis__formula_run *run)
{
    if (!ignis__op_is_float(op, 0, "the first input") || !ignis__op_same_shape(op, 1, "targets"))
        return false;
    if (ignis__shape_same(&run->shape, &op->in[0]->shape))
        return true;
    return ignis__op_fail(op, IGNIS_DIAG_BROADCAST_SHAPE,
                          "the weights do not broadcast to the first input, which is %s: together they are %s",
                          ignis__shape_write(&op->in[0]->shape).text, ignis__shape_write(&run->shape).text);
}

/*  Prepares a formula of tensors: run can be launched, and the rule is filled except for what is known later. */
IGNIS__PRIVATE bool ignis__formula_begin_tensors(ignis__op *op, const char *call, const char *formula,
                                                 const ignis_inputs *inputs, int results, ignis__formula_run *run,
                                                 ignis__formula_rule *rule, ignis__loss_kind loss)
{
    uint64_t ids[IGNIS_MAX_INPUTS];
    ignis__formula_handles tensors;
    ignis_tensor handles[IGNIS_MAX_INPUTS];
    int i;
    for (i = 0; i < inputs->count && i < IGNIS_MAX_INPUTS; i++)
        ids[i] = inputs->tensor[i].id;
    if (!ignis__formula_begin(call, formula, inputs->names, inputs->count, ids, run, &tensors))
        return false;
    rule->count = tensors.count;
    if (rule->count == 0)
        return ignis__formula_has_no_shape(call);
    for (i = 0; i < rule->count; i++)
        handles[i].id = tensors.id[i];
    if (!ignis__op_begin(op, call, rule->count, handles))
        return false;
    for (i = 0; i < rule->count; i++) {
        run->input[tensors.at[i]] = &op->in[i]->shape;
        run->dtype[tensors.at[i]] = op->in[i]->dtype;
    }
    op->ok = ignis__formula_prepare(&op->work, formula, inputs->names, inputs->count, results, run);
    if (loss == IGNIS__LOSS_ALIKE && op->ok)
        op->ok = ignis__formula_check_loss(op, run);
    for (i = 0; i < rule->count && op->ok; i++)
        run->address[tensors.at[i]] = ignis__op_read(op, op->in[i]);
    if (!op->ok || !op->records)
        return true;
    rule->formula = run->formula;
    rule->shape = run->shape;
    rule->result = 0;
    rule->random = run->random;
    memcpy(rule->value, run->value, sizeof rule->value);
    memset(rule->saved, 0, sizeof rule->saved);
    rule->given = run->shape;
    rule->factor = 1;
    rule->kept = 0;
    for (i = 0; i < rule->count; i++) {
        rule->tensor[i].input = tensors.at[i];
        rule->tensor[i].dtype = op->in[i]->dtype;
        rule->tensor[i].shape = op->in[i]->shape;
    }
    return true;
}

static const char ignis__formula_function_names[] = "map";

/*  Records a result as a tensor, with what its gradients are computed from. */
static ignis_tensor ignis__formula_record_result(ignis__op *op, ignis__array *out, const char *name,
                                                 ignis__formula_rule *rule)
{
    ignis__array *launches = NULL;
    ignis_tensor result;
    ignis__formula_needs needs;
    ignis_rule record;
    uint32_t needed = 0;
    bool records = op->ok && op->records && ignis__dtype_is_float(out->dtype);
    int i;
    if (records) {
        for (i = 0; i < rule->count; i++)
            if (op->tape_state[i].requires_grad && ignis__dtype_is_float(op->in[i]->dtype))
                needed |= (uint32_t)1 << rule->tensor[i].input;
        memset(&needs, 0, sizeof needs);
        op->ok = needed == 0 || ignis__formula_needs_get(op->work.call, rule->formula, rule->result, needed,
                                                         ignis__formula_saves_value(rule->kept), &needs);
        rule->same = name == ignis__formula_function_names ? needs.same : 0;
        for (i = 0; i < rule->count && op->ok; i++)
            if (needs.used >> rule->tensor[i].input & 1) {
                rule->saved[rule->tensor[i].input] = 1 + op->saved_count;
                ignis__op_save(op, op->in[i]);
            }
        if (op->ok && rule->formula->randoms &&
            rule->random.launches.id) { /* the gradients make the random numbers again */
            launches = ignis__array_hold(op->work.call, rule->random.launches);
            op->ok = launches != NULL;
            ignis__op_save(op, launches);
        }
    }
    record = ignis__op_rule(op, name, ignis__formula_backward, rule,
                            offsetof(ignis__formula_rule, tensor) + (size_t)rule->count * sizeof rule->tensor[0]);
    result = ignis__op_result(op, out, op->count, op->tensors, op->tape_state, records ? &record : NULL);
    if (launches)
        ignis__array_drop(op->work.call, launches);
    op->saved_count = 0;
    return result;
}

/*  Ends an operation with one result. */
IGNIS__PRIVATE ignis_tensor ignis__formula_end(ignis__op *op, ignis__array *out, const char *name,
                                               ignis__formula_rule *rule)
{
    ignis_tensor result = ignis__formula_record_result(op, out, name, rule);
    ignis__op_leave(op);
    return result;
}

/*  Runs a formula with several results, which are recorded separately. */
static ignis_status ignis__formula_tensors(const char *call, const char *formula, const ignis_inputs *inputs, int count,
                                           ignis_tensor *results, ignis__loss_kind loss)
{
    ignis__formula_rule rule;
    ignis__formula_run run;
    ignis__array *out[IGNIS_MAX_INPUTS] = {NULL};
    ignis__op op;
    int k;
    memset(results, 0, sizeof *results * (size_t)count);
    if (!ignis__formula_begin_tensors(&op, call, formula, inputs, count, &run, &rule, loss))
        return ignis__failed();
    for (k = 0; k < count && op.ok; k++) {
        run.out[k] = ignis__formula_result_dtype(&run, k);
        if (loss)
            run.out[k] = ignis__wide_dtype(run.out[k]);
        out[k] = ignis__op_new(&op, &run.shape, run.out[k]);
        run.to[k] = ignis__op_write(&op, out[k]);
    }
    op.ok = op.ok && ignis__formula_launch(&op.work, &run);
    for (k = 0; k < count && op.ok; k++) {
        rule.result = k;
        memset(rule.saved, 0, sizeof rule.saved);
        results[k] = ignis__formula_record_result(&op, out[k], ignis__formula_function_names, &rule);
    }
    if (ignis__op_leave(&op) == IGNIS_OK)
        return IGNIS_OK;
    for (k = 0; k < count; k++) {
        if (results[k].id)
            (void)ignis_tensor_release(results[k]);
        results[k].id = 0;
    }
    return ignis__failed();
}

/*  Runs a formula with one result. */
IGNIS__PRIVATE ignis_tensor ignis__formula_tensor(const char *call, const char *formula, const ignis_inputs *inputs,
                                                  ignis__loss_kind loss)
{
    ignis_tensor result;
    (void)ignis__formula_tensors(call, formula, inputs, 1, &result, loss);
    return result;
}

IGNIS_API ignis_tensor ignis_map(const char *formula, ignis_inputs inputs)
{
    return ignis__formula_tensor("ignis_map", formula, &inputs, IGNIS__LOSS_NONE);
}

IGNIS_API ignis_status ignis_map_many(const char *formula, ignis_inputs inputs, int count, ignis_tensor *results)
{
    static const char call[] = "ignis_map_many";
    return ignis__formula_check_count(call, count, results)
               ? ignis__formula_tensors(call, formula, &inputs, count, results, IGNIS__LOSS_NONE)
               : ignis__failed();
}

IGNIS_API ignis_tensor ignis_map_shape(const char *formula, ignis_shape shape, ignis_inputs values,
                                       const ignis_tensor_desc *desc)
{
    static const char call[] = "ignis_map_shape";
    ignis_array_inputs inputs = IGNIS__ZERO;
    ignis_array made;
    int i;
    if (!ignis__enter(call))
        return ignis__no_tensor();
    inputs.names = values.count ? values.names : "no_value";
    inputs.count = values.count ? values.count : 1;
    for (i = 0; i < values.count && i < IGNIS_MAX_INPUTS; i++)
        inputs.array[i].id = values.tensor[i].id;
    if (!values.count)
        inputs.array[0] = ignis_array_value(0);
    for (i = 0; i < inputs.count && i < IGNIS_MAX_INPUTS; i++)
        if (ignis__handle_kind(inputs.array[i].id) != IGNIS__KIND_VALUE) {
            ignis__fail(IGNIS_DIAG_FORMULA, call, "input %d is a tensor; expected values alone, or ignis_map", i);
            return ignis__no_tensor();
        }
    made = ignis__tensor_array_create(call, shape, desc);
    if (!made.id)
        return ignis__no_tensor();
    if (ignis__formula_run_into(call, 1, &made, formula, &inputs) != IGNIS_OK) {
        ignis__array_discard(call, &made);
        return ignis__no_tensor();
    }
    return ignis__tensor_adopt(call, made, desc && desc->requires_grad);
}
