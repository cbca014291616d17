/*  >>ops.vjp - what the gradients of operations by operations share, for ignis_grad with create_graph

    Saved arrays become tensors of the tape: ignis__vjp_input and ignis__vjp_output. Where an operation is a chain of
    others, ignis__vjp_plain differentiates that chain.
    Uses: operation, the room tensor, and public functions of other parts. */

#include "room.h"

/*  Makes a tensor over a saved array that the tape takes for a held tensor (NULL: none, a constant). */
static ignis_tensor ignis__vjp_saved(const ignis_vjp_args *args, ignis__tensor *of, int saved)
{
    static const char call[] = "ignis_grad";
    ignis__array *array = args->node->saved[saved];
    return of ? ignis__recorded_alias(call, of, array, &of->shape) : ignis__tensor_over(call, array, false);
}

/*  Returns an input of the operation, which is saved array `saved`. */
IGNIS__PRIVATE ignis_tensor ignis__vjp_input(const ignis_vjp_args *args, int input, int saved)
{
    return ignis__vjp_saved(args, args->node->inputs[input], saved);
}

/*  Returns the operation's result, which is saved array `saved`. */
IGNIS__PRIVATE ignis_tensor ignis__vjp_output(const ignis_vjp_args *args, int saved)
{
    return ignis__vjp_saved(args, args->node->output, saved);
}

/*  Returns a saved array that no gradient goes to. */
IGNIS__PRIVATE ignis_tensor ignis__vjp_constant(const ignis_vjp_args *args, int saved)
{
    return ignis__vjp_saved(args, NULL, saved);
}

IGNIS__PRIVATE const ignis_shape *ignis__vjp_shape(const ignis_vjp_args *args, int input)
{
    return &args->node->inputs[input]->shape;
}

/*  Makes zeros in the dtype and on the device of an input. */
IGNIS__PRIVATE ignis_tensor ignis__vjp_zeros(const ignis_vjp_args *args, int input, ignis_shape shape)
{
    const ignis__tensor *like = args->node->inputs[input];
    ignis_tensor_desc desc = IGNIS__ZERO;
    desc.dtype = like->dtype;
    desc.device = ignis__device_in_desc(like->device);
    return ignis_tensor_zeros(shape, &desc);
}

/*  Returns a tensor of 16 bits as f32. Others stay. */
IGNIS__PRIVATE ignis_tensor ignis__vjp_wide(ignis_tensor x)
{
    ignis_tensor_info info;
    if (x.id && ignis_tensor_query(x, &info) == IGNIS_OK && ignis__wide_dtype(info.dtype) != info.dtype)
        return ignis_cast(x, ignis__wide_dtype(info.dtype));
    return x;
}

/*  Sums a tensor to a shape that broadcasts to its own. */
IGNIS__PRIVATE ignis_tensor ignis__vjp_sum_to(ignis_tensor x, const ignis_shape *shape)
{
    const ignis_shape from = x.id ? ignis_tensor_shape(x) : *shape;
    ignis_reduce_desc desc = IGNIS__ZERO;
    int i, lacking = from.ndim - shape->ndim;
    desc.keepdim = true;
    for (i = 0; i < from.ndim; i++)
        if (i < lacking || from.dim[i] != shape->dim[i - lacking])
            desc.dims[desc.dim_count++] = i;
    if (desc.dim_count)
        x = ignis_map_reduce(IGNIS_REDUCE_SUM, "x", IGNIS_INPUTS(x), &desc);
    return lacking ? ignis_reshape(x, *shape) : x;
}

/*  Sums a tensor along an axis. */
IGNIS__PRIVATE ignis_tensor ignis__vjp_sum_axis(ignis_tensor x, const ignis__axis *axis)
{
    return ignis_sum_dim(ignis_reshape(x, IGNIS_SHAPE(axis->outer, axis->n, axis->inner)), 1);
}

/*  Fills the gradients by differentiating a tensor that equals the operation's result. inputs: the tensors that it was
    computed from, one for each input of the operation (no handle: it was not). */
IGNIS__PRIVATE void ignis__vjp_plain(const ignis_vjp_args *args, ignis_tensor plain, const ignis_tensor *inputs)
{
    ignis_tensor wanted[IGNIS__OP_INPUTS], grads[IGNIS__OP_INPUTS];
    ignis_grad_desc desc = IGNIS__ZERO;
    int index[IGNIS__OP_INPUTS], count = 0, i;
    desc.seeds = &args->grad_output;
    desc.create_graph = desc.allow_unused = true;
    for (i = 0; i < args->input_count; i++) {
        if (!args->needed[i] || !inputs[i].id)
            continue;
        index[count] = i;
        wanted[count++] = inputs[i];
    }
    if (!plain.id || !count || ignis_grad(&plain, 1, wanted, count, grads, &desc) != IGNIS_OK)
        return;
    for (i = 0; i < count; i++)
        args->grad_inputs[index[i]] = grads[i];
}

static ignis_status ignis__adjoint_backward(const ignis_backward_args *args)
{
    const ignis__adjoint *adjoint = (const ignis__adjoint *)args->params;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_grad", args))
        return ignis__failed();
    return ignis__op_finish_backward_one(&op, args, adjoint->fn(&op, adjoint->params, !adjoint->back));
}

/*  Fills the gradient by a linear operation, which is recorded with its adjoint as gradient. */
IGNIS__PRIVATE void ignis__vjp_linear(const ignis_vjp_args *args, ignis__linear_fn fn, const void *params, size_t size,
                                      bool back)
{
    ignis__adjoint adjoint = IGNIS__ZERO;
    ignis__op op;
    adjoint.fn = fn;
    adjoint.back = back;
    IGNIS_ASSERT(size <= sizeof adjoint.params);
    memcpy(adjoint.params, params, size);
    if (ignis__op_begin(&op, "ignis_grad", 1, &args->grad_output))
        args->grad_inputs[0] = ignis__op_end_recorded(&op, fn(&op, params, back), "adjoint", ignis__adjoint_backward,
                                                      &adjoint, sizeof adjoint);
}

IGNIS__PRIVATE void ignis__vjp_of_adjoint(const ignis_vjp_args *args)
{
    const ignis__adjoint *adjoint = (const ignis__adjoint *)args->params;
    ignis__vjp_linear(args, adjoint->fn, adjoint->params, sizeof adjoint->params, !adjoint->back);
}
