/*  >>tensor.recorded_gradient - a backward pass whose gradients are tensors, recorded as they are computed

    For ignis_grad with create_graph. The vjp_fn of a node computes by operations on tensors what its backward function
    computes on arrays. A node keeps arrays, and its inputs without their handles: an alias is a tensor over such an
    array that the tape takes for the input.
    Uses: tape, tensor, scope, backward_pass. Knows no operation: sums and aliases are recorded here.
    Invariant: whatever a pass makes is newer than all nodes that it runs, so a later pass runs it before them. */

#include "room.h"

/*  Gives the gradient of the output to all inputs. */
static ignis_status ignis__recorded_same_backward(const ignis_backward_args *args)
{
    int i;
    for (i = 0; i < args->input_count; i++)
        args->grad_inputs[i] = args->grad_output;
    return IGNIS_OK;
}

static ignis_status ignis__recorded_same_vjp(const ignis_vjp_args *args)
{
    int i;
    for (i = 0; i < args->input_count; i++)
        args->grad_inputs[i] = args->grad_output;
    return IGNIS_OK;
}

/*  Makes a tensor of an array, recorded as the result of held tensors if one requires a gradient. Takes over one claim
    of the array. No handle after a failure. */
static ignis_tensor ignis__recorded_result(const char *call, const char *name, ignis__array *array, int count,
                                           ignis__tensor *const *inputs)
{
    ignis__tensor *made = ignis__tensor_make(call, array, false);
    ignis__node *node = NULL;
    ignis_rule rule = IGNIS__ZERO;
    bool wanted = false;
    int i;
    if (!made) {
        ignis__array_unclaim(call, array);
        return ignis__no_tensor();
    }
    for (i = 0; i < count; i++)
        wanted = wanted || ignis__tensor_requires_grad(inputs[i]);
    rule.name = name;
    rule.backward_fn = ignis__recorded_same_backward;
    rule.vjp_fn = ignis__recorded_same_vjp;
    if (wanted && ignis__recording()) {
        node = ignis__node_make(call, count, inputs, NULL, &rule, 0);
        if (!node) {
            ignis__tensors_destroy_chain(call, made);
            return ignis__no_tensor();
        }
        ignis__tensor_result(made, node);
        ignis__tape_append(node);
    }
    return ignis__tensor_publish(made);
}

/*  Makes a tensor over an array, with its values and another shape, that the tape takes for a held tensor. No handle
    after a failure. */
IGNIS__PRIVATE ignis_tensor ignis__recorded_alias(const char *call, ignis__tensor *of, ignis__array *array,
                                                  const ignis_shape *shape)
{
    ignis__array *view = ignis__array_adopt(call, ignis__array_view(call, array, shape, array->numel, 0));
    return view ? ignis__recorded_result(call, "alias", view, 1, &of) : ignis__no_tensor();
}

/*  Makes the sum of two tensors of one shape. No handle after a failure. */
static ignis_tensor ignis__recorded_sum(const char *call, ignis_tensor a, ignis_tensor b)
{
    ignis_tensor handles[2], result = IGNIS__ZERO;
    ignis__tensor *held[2] = {NULL, NULL};
    ignis__array *arrays[2] = {NULL, NULL};
    ignis_array made = IGNIS__ZERO, from[2];
    bool ok = true;
    int i;
    handles[0] = a;
    handles[1] = b;
    for (i = 0; ok && i < 2; i++) {
        held[i] = ignis__tensor_hold(call, handles[i]);
        arrays[i] = held[i] ? ignis__tensor_array(call, held[i]) : NULL;
        ok = arrays[i] != NULL;
        from[i].id = ok ? arrays[i]->slot.handle : 0;
    }
    if (ok)
        made = ignis__array_create_like(call, arrays[0], arrays[0]->dtype);
    if (made.id && ignis__array_binary(call, IGNIS__BUILTIN(ADD), made, from[0], from[1]) != IGNIS_OK)
        ignis__array_discard(call, &made);
    if (made.id)
        result = ignis__recorded_result(call, "sum of gradients", ignis__array_adopt(call, made), 2, held);
    for (i = 0; i < 2; i++) {
        if (arrays[i])
            ignis__array_drop(call, arrays[i]);
        if (held[i])
            ignis__tensor_drop(call, held[i]);
    }
    return result;
}

/*  Checks a gradient that a function gave for a tensor, and gives it the tensor's shape. No handle, and reported, if it
    does not fit. */
static ignis_tensor ignis__recorded_fit(const ignis__backward_pass *pass, const ignis__tensor *tensor,
                                        ignis_tensor handle)
{
    ignis__tensor *gradient = ignis__tensor_hold(pass->call, handle);
    ignis__array *array = gradient ? ignis__tensor_array(pass->call, gradient) : NULL;
    ignis_tensor result = IGNIS__ZERO;
    if (array && array->numel == ignis__tensor_numel(tensor) && array->dtype == tensor->dtype &&
        array->storage->device == tensor->device)
        result = ignis__shape_same(&array->shape, &tensor->shape)
                     ? handle
                     : ignis__recorded_alias(pass->call, gradient, array, &tensor->shape);
    else if (array && array->storage->device != tensor->device)
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, pass->call, "a gradient on device %d was given to a tensor on device %d",
                    ignis__device_ordinal(array->storage->device), ignis__device_ordinal(tensor->device));
    else if (array)
        ignis__fail(array->dtype != tensor->dtype ? IGNIS_DIAG_DTYPE_DIFFERS : IGNIS_DIAG_SHAPE_DIFFERS, pass->call,
                    "a gradient %s of %s was given to a tensor %s of %s", ignis__shape_write(&array->shape).text,
                    ignis__dtypes[array->dtype].name, ignis__shape_write(&tensor->shape).text,
                    ignis__dtypes[tensor->dtype].name);
    if (array)
        ignis__array_drop(pass->call, array);
    if (gradient)
        ignis__tensor_drop(pass->call, gradient);
    return result;
}

/*  As ignis__backward_pass_add_to, for a gradient that is a tensor. Leaves that are not asked for get none. */
IGNIS__PRIVATE bool ignis__recorded_add_to(ignis__backward_pass *pass, ignis__tensor *tensor, ignis_tensor gradient)
{
    ignis__tape_state tape_state = ignis__tensor_tape_state(tensor);
    ignis__backward_pass *asked = pass;
    ignis__leaf_state *leaf = NULL;
    ignis_tensor *sum;
    if (!ignis__backward_pass_accepts(pass, tensor, &tape_state))
        return false;
    if (!tape_state.node) {
        while (asked && !asked->request)
            asked = asked->outer;
        leaf = asked && asked->count ? *ignis__backward_pass_find_leaf(asked, tensor) : NULL;
        if (!leaf)
            return true;
    } else if (pass->within && tape_state.node->serial <= pass->within->first) {
        return true;
    }
    gradient = ignis__recorded_fit(pass, tensor, gradient);
    if (!gradient.id)
        return false;
    sum = leaf ? &leaf->recorded_sum : &tape_state.node->recorded_grad;
    if (sum->id)
        gradient = ignis__recorded_sum(pass->call, *sum, gradient);
    else if (!leaf)
        ignis__tensor_hold_again(tensor); /* as ignis__backward_pass_add_to does */
    if (gradient.id || !sum->id)
        *sum = gradient;
    return gradient.id != 0;
}

/*  Makes aliases of a node's inputs over the arrays that it has kept. */
static bool ignis__recorded_inputs(const char *call, const ignis__node *node, ignis_tensor *inputs)
{
    ignis__array *const *kept = node->saved + node->saved_count - node->kept_count;
    int i;
    for (i = 0; node->keeps_inputs && i < node->kept_count; i++) {
        inputs[i] = ignis__recorded_alias(call, node->inputs[i], kept[i], &node->inputs[i]->shape);
        if (!inputs[i].id)
            return false;
    }
    return true;
}

/*  Runs the vjp_fn of one node, recorded, and hands its gradients on to the needed inputs. */
IGNIS__PRIVATE bool ignis__recorded_run_node(ignis__backward_pass *pass, ignis__node *node, const bool *needed)
{
    ignis_status (*vjp_fn)(const ignis_vjp_args *args) =
        node->is_operation && !node->vjp_fn ? pass->within->operation_vjp : node->vjp_fn;
    ignis_vjp_args args = IGNIS__ZERO;
    ignis_tensor grads[IGNIS__MAX_INPUTS] = IGNIS__ZERO, inputs[IGNIS__MAX_INPUTS];
    ignis_status status;
    ignis__frame frame;
    bool ok = true;
    int i;
    if (!vjp_fn)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, pass->call,
                                 "the gradient of '%s' cannot be differentiated: its rule has no vjp_fn; without "
                                 "create_graph it has a gradient",
                                 node->name);
    ignis__frame_begin(&frame, pass->call, node->name, 0);
    pass->node = node;
    node->running = true;
    args.grad_output = node->recorded_grad;
    args.inputs = node->keeps_inputs ? inputs : NULL;
    args.input_count = node->input_count;
    args.needed = needed;
    args.params = node->params;
    args.grad_inputs = grads;
    args.user_data = node->user_data;
    args.node = node;
    status = ignis__recorded_inputs(pass->call, node, inputs) ? vjp_fn(&args) : ignis__failed();
    ok = ignis__backward_pass_status(pass, node, status) == IGNIS_OK;
    for (i = 0; ok && i < node->input_count; i++)
        if (needed[i] && grads[i].id)
            ok = ignis__recorded_add_to(pass, node->inputs[i], grads[i]);
    node->running = false;
    pass->node = NULL;
    return ignis__frame_end(&frame) && ok;
}

/*  Called by the vjp_fn of a node that has run a function of the caller's again: differentiates what that has recorded.
    Gradients of everything older go to the pass of the node. */
IGNIS__PRIVATE ignis_status ignis__recorded_splice(const char *call, ignis_tensor handle, ignis_tensor grad_output)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis__tape_state tape_state;
    ignis__backward_pass pass;
    bool ok;
    if (!tensor)
        return ignis__failed();
    tape_state = ignis__tensor_tape_state(tensor);
    ok = true;
    if (tape_state.requires_grad) {
        ignis__backward_pass_begin(&pass, call);
        pass.retains = pass.records = true;
        ok = ignis__recorded_add_to(&pass, tensor, grad_output);
        if (tape_state.node && tape_state.node->serial > pass.outer->node->serial)
            ok = ignis__backward_pass_run(&pass, tape_state.node, ok);
        ok = ignis__backward_pass_end(&pass, ok);
    }
    ignis__tensor_drop(call, tensor);
    return ok ? IGNIS_OK : ignis__failed();
}
