/*  >>train.gradcheck - ignis_gradcheck: gradients of the tape beside central finite differences

    Runs the function twice for each element with the same random numbers. Uses: the room tensor. Inputs keep
    their values: each element is restored after its two runs. */

#include "room.h"

/*  One check: the function, its inputs, and fixed weights that reduce its output to one number. */
typedef struct ignis__gradcheck {
    const char *call;
    ignis_tensor_fn fn;
    void *user_data;
    const ignis_tensor *inputs;
    int count;
    ignis__random_state random;
} ignis__gradcheck;

static double ignis__gradcheck_weight(int64_t i)
{
    return 0.5 + (double)((uint64_t)(i + 1) * 0x9E3779B97F4A7C15u >> 40) / (double)(1 << 24);
}

/*  Calls the function with the same random numbers every time. no_grad: without recording. */
IGNIS__COLD static ignis_tensor ignis__gradcheck_call(const ignis__gradcheck *check, int no_grad)
{
    ignis__thread_state()->random = check->random;
    return ignis__tensor_fn_call(check->call, no_grad, check->fn, check->inputs, check->count, check->user_data);
}

/*  Computes the weighted sum of the function's output. False on failure. */
IGNIS__COLD static bool ignis__gradcheck_value(const ignis__gradcheck *check, double *value)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor output;
    ignis_tensor_info info;
    double *numbers;
    int64_t numel, i;
    bool ok = false;
    if (!scope.id)
        return false;
    output = ignis__gradcheck_call(check, 1);
    *value = 0;
    if (output.id && ignis_tensor_query(output, &info) == IGNIS_OK) {
        numel = ignis_array_numel(info.data);
        numbers = (double *)ignis__alloc_for(check->call, sizeof *numbers * (size_t)(numel + 1));
        ok = numbers && ignis_tensor_to_host(output, numbers, IGNIS_F64, numel) == IGNIS_OK;
        for (i = 0; ok && i < numel; i++)
            *value += numbers[i] * ignis__gradcheck_weight(i);
        ignis__free(numbers);
    }
    ignis_scope_end(scope);
    return ok;
}

/*  Computes all gradients by the tape. */
static bool ignis__gradcheck_tape(const ignis__gradcheck *check)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor output;
    ignis_tensor_info info;
    ignis_array weights = IGNIS__ZERO;
    double *numbers = NULL;
    int64_t numel = 0, i;
    bool ok = scope.id != 0;
    output.id = 0;
    for (i = 0; ok && i < check->count; i++) {
        ok = ignis_tensor_query(check->inputs[i], &info) == IGNIS_OK;
        if (ok && info.requires_grad)
            ok = ignis_zero_grad(check->inputs[i]) == IGNIS_OK;
    }
    if (ok)
        output = ignis__gradcheck_call(check, 0);
    ok = ok && output.id && ignis_tensor_query(output, &info) == IGNIS_OK;
    if (ok) {
        numel = ignis_array_numel(info.data);
        numbers = (double *)ignis__alloc_for(check->call, sizeof *numbers * (size_t)(numel + 1));
        weights = ignis_array_clone(info.data);
        ok = numbers && weights.id;
        for (i = 0; ok && i < numel; i++)
            numbers[i] = ignis__gradcheck_weight(i);
        ok = ok && ignis_array_from_host(weights, numbers, IGNIS_F64, numel) == IGNIS_OK &&
             ignis_backward(output, weights) == IGNIS_OK;
        ignis__free(numbers);
        if (weights.id)
            ignis_array_free(weights);
    }
    if (scope.id)
        ignis_scope_end(scope);
    return ok;
}

/*  Compares the gradient of one input. *worst is the largest error so far; *where names it for the message. */
static bool ignis__gradcheck_input(const ignis__gradcheck *check, int input, double step, double *worst, char *where,
                                   size_t where_size)
{
    ignis_tensor_info info;
    double *values = NULL, *grads = NULL;
    int64_t numel, i;
    bool ok = ignis_tensor_query(check->inputs[input], &info) == IGNIS_OK;
    if (!ok || !info.requires_grad)
        return ok;
    numel = ignis_array_numel(info.data);
    values = (double *)ignis__alloc_for(check->call, sizeof *values * (size_t)(numel + 1));
    grads = values ? (double *)ignis__alloc_for(check->call, sizeof *grads * (size_t)(numel + 1)) : NULL;
    ok = grads && ignis_array_to_host(info.data, values, IGNIS_F64, numel) == IGNIS_OK &&
         ignis_array_to_host(ignis_tensor_grad(check->inputs[input]), grads, IGNIS_F64, numel) == IGNIS_OK;
    for (i = 0; ok && i < numel; i++) {
        double x = values[i], size = x < 0 ? -x : x, h = step * (size > 1 ? size : 1), high = 0, low = 0, slope, error,
               scale;
        values[i] = x + h;
        ok = ignis_array_from_host(info.data, values, IGNIS_F64, numel) == IGNIS_OK &&
             ignis__gradcheck_value(check, &high);
        values[i] = x - h;
        ok = ok && ignis_array_from_host(info.data, values, IGNIS_F64, numel) == IGNIS_OK &&
             ignis__gradcheck_value(check, &low);
        values[i] = x;
        ok = ignis_array_from_host(info.data, values, IGNIS_F64, numel) == IGNIS_OK && ok;
        slope = (high - low) / (2 * h);
        scale = slope < 0 ? -slope : slope;
        scale = grads[i] > scale ? grads[i] : -grads[i] > scale ? -grads[i] : scale;
        error = (slope > grads[i] ? slope - grads[i] : grads[i] - slope) / (scale > 1 ? scale : 1);
        if (!(error <= *worst)) { /* NaN counts as worse than everything */
            *worst = error;
            snprintf(where, where_size, "input %d, element %lld: the tape says %.17g, finite differences say %.17g",
                     input, (long long)i, grads[i], slope);
        }
    }
    ignis__free(values);
    ignis__free(grads);
    return ok;
}

/*  Returns the serial of the backward pass whose backward function made a tensor. */
static uint64_t ignis__tensor_creator_pass(ignis_tensor handle)
{
    ignis__tensor *tensor = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, handle.id);
    uint64_t made_in = tensor ? tensor->made_in : 0;
    if (tensor)
        ignis__tensor_drop("ignis_gradcheck", tensor);
    return made_in;
}

/*  Returns the largest relative error of all inputs; NaN on failure. */
static double ignis__gradcheck_run(const ignis__gradcheck *check, double step, double tolerance)
{
    uint64_t pass = ignis__tensor_thread_now()->pass_serial;
    ignis_tensor_info info;
    double worst = 0;
    char where[256] = "";
    bool ok = true;
    int i;
    for (i = 0; i < check->count; i++) {
        if (ignis_tensor_query(check->inputs[i], &info) != IGNIS_OK)
            return ignis__nan();
        if (!info.requires_grad)
            continue;
        if (info.dtype != IGNIS_F64)
            ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, check->call, "input %d is %s; finite differences need f64", i,
                        ignis__dtypes[info.dtype].name);
        else if (!info.is_leaf)
            ignis__fail(IGNIS_DIAG_PARAMETER_KIND, check->call,
                        "input %d is the result of an operation; use a leaf with its values", i);
        else if (pass && ignis__tensor_creator_pass(check->inputs[i]) != pass)
            ignis__fail(IGNIS_DIAG_PARAMETER_KIND, check->call,
                        "input %d is older than the backward function that this is called in, and gets its gradient "
                        "when that is over; use "
                        "a leaf made here with its values",
                        i);
        else
            continue;
        return ignis__nan();
    }
    ok = ignis__gradcheck_tape(check);
    for (i = 0; ok && i < check->count; i++)
        ok = ignis__gradcheck_input(check, i, step, &worst, where, sizeof where);
    for (i = 0; i < check->count; i++)
        if (ignis_tensor_query(check->inputs[i], &info) == IGNIS_OK && info.requires_grad)
            ok = ignis_zero_grad(check->inputs[i]) == IGNIS_OK && ok;
    if (!ok)
        return ignis__nan();
    if (!(worst <= tolerance))
        ignis__fail(IGNIS_DIAG_GRADIENT_WRONG, check->call, "relative error %.3g is above %.3g at %s", worst, tolerance,
                    where);
    return worst;
}

IGNIS__COLD IGNIS_API double ignis_gradcheck(ignis_tensor_fn fn, void *user_data, const ignis_tensor *inputs, int count,
                                             const ignis_gradcheck_desc *desc)
{
    static const char call[] = "ignis_gradcheck";
    ignis__gradcheck check;
    ignis__outer_call outer;
    double worst;
    if (!ignis__enter(call))
        return ignis__nan();
    if (!fn || !inputs || count < 1) {
        ignis__fail_null(call, fn ? "inputs" : "fn");
        return ignis__nan();
    }
    check.call = call;
    check.fn = fn;
    check.user_data = user_data;
    check.inputs = inputs;
    check.count = count;
    check.random = ignis__thread_state()->random;
    ignis__outer_call_begin(&outer, call, NULL);
    worst = ignis__gradcheck_run(&check, desc && desc->step > 0 ? desc->step : 1e-5,
                                 desc && desc->tolerance > 0 ? desc->tolerance : 1e-6);
    ignis__outer_call_end(&outer);
    return worst;
}
