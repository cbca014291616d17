/*  >>linalg.gradient - gradients of the room, computed by operations on tensors

    The backward function of an operation makes tensors over the saved arrays, and calls a function that computes the
    gradients by public operations. They may be recorded, as any others.
    Uses: the rooms tensor and ops. */

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

/*  A backward function: fn computes the gradients. */
IGNIS__PRIVATE ignis_status ignis__linalg_backward(const char *call, const ignis_backward_args *args,
                                                   ignis__gradient_fn fn)
{
    ignis_tensor saved[IGNIS__LINALG_INPUTS] = IGNIS__ZERO, gradients[IGNIS__LINALG_INPUTS] = IGNIS__ZERO, gradient;
    ignis_scope scope = ignis_scope_begin();
    bool ok = scope.id != 0;
    int i;
    if (!ok)
        return ignis__failed();
    gradient = ignis__tensor_of_saved(call, args->grad_output);
    ok = gradient.id != 0;
    for (i = 0; ok && i < args->saved_count; i++) {
        saved[i] = ignis__tensor_of_saved(call, args->saved[i]);
        ok = saved[i].id != 0;
    }
    if (ok)
        fn(args, gradient, saved, gradients);
    for (i = 0; ok && i < args->input_count; i++)
        ok = !args->needed[i] || ignis__gradient_give(call, gradients[i], &args->grad_inputs[i]);
    (void)ignis_scope_end(scope);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Returns a right side [..., n, k] for matrices of `ndim` dimensions: one of vectors becomes one of one column. */
IGNIS__PRIVATE ignis_tensor ignis__tensor_columns(ignis_tensor tensor, int ndim)
{
    ignis_shape shape = ignis_tensor_shape(tensor);
    if (shape.ndim == 0 || shape.ndim >= ndim)
        return tensor;
    shape.dim[shape.ndim++] = 1;
    return ignis_reshape(tensor, shape);
}

IGNIS__PRIVATE ignis_tensor ignis__tensor_transposed(ignis_tensor tensor) { return ignis_transpose(tensor, -2, -1); }

/*  Returns a formula of a and b (no handle: of a alone). */
IGNIS__PRIVATE ignis_tensor ignis__tensor_formula(const char *formula, ignis_tensor a, ignis_tensor b)
{
    ignis_inputs inputs = IGNIS__ZERO;
    inputs.names = b.id ? "a, b" : "a";
    inputs.count = b.id ? 2 : 1;
    inputs.tensor[0] = a;
    inputs.tensor[1] = b;
    return ignis_map(formula, inputs);
}
