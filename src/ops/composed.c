/*  >>ops.composed - operations whose gradients are computed by operations on tensors

    The backward function of such an operation makes tensors over the saved arrays, and calls a function that computes
    the gradients by public operations. For ignis_grad with create_graph the tensors are those of the tape, and what is
    computed is recorded.
    Uses: operation, vjp, the room tensor. */

#include "room.h"

/*  Returns a tensor over an array, which the current scope owns. No handle after a failure. */
static ignis_tensor ignis__tensor_of_saved(const char *call, ignis_array handle)
{
    ignis__array *array = ignis__array_hold(call, handle);
    ignis_tensor tensor = IGNIS__ZERO;
    if (!array)
        return tensor;
    tensor = ignis__tensor_over(call, array, false);
    ignis__array_drop(call, array);
    return tensor;
}

/*  Gives the array of a gradient to the tape, in memory that outlives its tensor. */
static bool ignis__gradient_give(const char *call, ignis_tensor gradient, ignis_array *to)
{
    ignis__array *array = gradient.id ? ignis__array_hold(call, ignis_tensor_data(gradient)) : NULL;
    if (!array)
        return false;
    *to = ignis__array_view(call, array, &array->shape, array->numel, 0);
    ignis__array_drop(call, array);
    return to->id != 0;
}

static ignis_status ignis__composed_backward(const ignis_backward_args *args)
{
    const ignis__composed_gradient *rule = (const ignis__composed_gradient *)args->user_data;
    ignis__gradient_args run = IGNIS__ZERO;
    ignis_scope scope = ignis_scope_begin();
    bool ok = scope.id != 0;
    int i;
    if (!ok)
        return ignis__failed();
    run.needed = args->needed;
    run.params = args->params;
    run.gradient = ignis__tensor_of_saved(rule->call, args->grad_output);
    ok = run.gradient.id != 0;
    for (i = 0; ok && i < args->saved_count; i++) {
        run.saved[i] = ignis__tensor_of_saved(rule->call, args->saved[i]);
        ok = run.saved[i].id != 0;
    }
    if (ok)
        rule->fn(&run);
    for (i = 0; ok && i < args->input_count; i++)
        ok = !args->needed[i] || ignis__gradient_give(rule->call, run.result[i], &args->grad_inputs[i]);
    (void)ignis_scope_end(scope);
    return ok ? IGNIS_OK : ignis__failed();
}

static ignis_status ignis__composed_vjp(const ignis_vjp_args *args)
{
    const ignis__composed_gradient *rule = (const ignis__composed_gradient *)args->user_data;
    const uint64_t failures = ignis__failures();
    ignis__gradient_args run = IGNIS__ZERO;
    int i, count = args->node->saved_count;
    run.needed = args->needed;
    run.params = args->params;
    run.gradient = args->grad_output;
    for (i = 0; i < count; i++)
        if (rule->saved[i] >= 0)
            run.saved[i] = ignis__vjp_input(args, rule->saved[i], i);
        else if (rule->saved[i] == IGNIS__SAVED_OUTPUT)
            run.saved[i] = ignis__vjp_output(args, i);
        else if (rule->saved[i] == IGNIS__SAVED_CONSTANT)
            run.saved[i] = ignis__vjp_constant(args, i);
    if (rule->again_fn)
        rule->again_fn(run.saved[count - 1], run.saved);
    rule->fn(&run);
    for (i = 0; i < args->input_count; i++)
        args->grad_inputs[i] = run.result[i];
    return ignis__ended(failures, true);
}

/*  Returns the rule of an operation whose gradients are computed so. */
IGNIS__PRIVATE ignis_rule ignis__composed_rule(const ignis__op *op, const char *name,
                                               const ignis__composed_gradient *gradient, const void *params,
                                               size_t size)
{
    ignis_rule rule = ignis__op_rule(op, name, ignis__composed_backward, params, size);
    rule.vjp_fn = ignis__composed_vjp;
    rule.user_data = (void *)(uintptr_t)gradient;
    return rule;
}
