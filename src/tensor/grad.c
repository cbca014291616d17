/*  >>tensor.grad - a backward pass for some tensors, whose gradients it returns: for ignis_grad, in ops/vjp_table.c

    Marks the nodes that an input leads to, places the seeds, runs the pass, and makes tensors of what it has found.
    Uses: backward_pass, backward_state, recorded_gradient.
    Invariants: no leaf changes. Marks (node->leads, node->wanted) are of this pass alone: nodes of an enclosing pass
    that are yet to run are older than request->first. */

#include "room.h"

/*  Returns whether an input of the request leads to a tensor, or is it. */
IGNIS__PRIVATE bool ignis__grad_leads(const ignis__backward_pass *pass, ignis__tensor *tensor)
{
    ignis__tape_state tape_state = ignis__tensor_tape_state(tensor);
    if (tape_state.node)
        return tape_state.tape == pass->tape && tape_state.node->serial > pass->request->first &&
               (tape_state.node->leads || tape_state.node->wanted);
    return pass->count && *ignis__backward_pass_find_leaf(pass, tensor);
}

/*  Marks the nodes that an input of the request leads to. A node that runs a function of the caller's may use any
    tensor. */
static void ignis__grad_mark(ignis__backward_pass *pass)
{
    ignis__node *node;
    int i;
    ignis__mutex_lock(&pass->tape->lock); /* no node of the list ends meanwhile */
    node = pass->tape->last;
    while (node && node->before && node->before->serial > pass->request->first)
        node = node->before;
    for (; node; node = node->after) {
        node->leads = node->nests;
        for (i = 0; i < node->input_count && !node->leads; i++)
            node->leads = node->needed[i] && ignis__grad_leads(pass, node->inputs[i]);
    }
    ignis__mutex_unlock(&pass->tape->lock);
}

/*  Returns the number of the first input that is the same tensor as input i. */
static int ignis__grad_first(const ignis__grad_request *request, int i)
{
    int first = 0;
    while (request->inputs[first] != request->inputs[i])
        first++;
    return first;
}

/*  Checks one tensor of a call. */
static bool ignis__grad_check(const char *call, ignis__tensor *tensor, const char *name, int i)
{
    ignis__tape_state tape_state = ignis__tensor_tape_state(tensor);
    if (tape_state.consumed)
        return ignis__fail_false(IGNIS_DIAG_BACKWARD_TWICE, call,
                                 "the operations that made %s[%d] were released by an earlier backward or "
                                 "ignis_tape_clear; run them again, or keep them with retain_graph",
                                 name, i);
    if (!tape_state.requires_grad)
        return ignis__fail_false(IGNIS_DIAG_NO_GRAD_WANTED, call,
                                 "%s[%d], a tensor %s of %s, does not require a gradient", name, i,
                                 ignis__shape_write(&tensor->shape).text, ignis__dtypes[tensor->dtype].name);
    if (tape_state.node && tape_state.tape != ignis__tensor_thread_now()->tape)
        return ignis__fail_false(IGNIS_DIAG_TAPE_OF_OTHER, call,
                                 "%s[%d] was recorded by another thread, whose tape it belongs to", name, i);
    return true;
}

/*  Registers the inputs of a request with its pass. */
static bool ignis__grad_want(ignis__backward_pass *pass, ignis__grad_request *request)
{
    uint64_t end = pass->outer ? pass->outer->node->serial : 0;
    bool ok = true;
    int i;
    request->first = UINT64_MAX;
    for (i = 0; ok && i < request->count; i++) {
        ignis__tensor *input = request->inputs[i];
        const ignis__node *node = ignis__tensor_tape_state(input).node;
        uint64_t first = node ? node->serial - 1 : end;
        if (pass->outer && (node ? first < end : input->made_in != pass->outer->serial))
            ok = ignis__fail_false(IGNIS_DIAG_NO_GRAD_WANTED, pass->call,
                                   "inputs[%d] is older than the backward function that this is called in", i);
        if (first < request->first)
            request->first = first;
    }
    for (i = 0; ok && i < request->count; i++) {
        ignis__node *node = ignis__tensor_tape_state(request->inputs[i]).node;
        if (node)
            node->wanted = 1 + ignis__grad_first(request, i);
        else
            ok = ignis__backward_pass_reach_leaf(pass, request->inputs[i]) != NULL;
    }
    return ok;
}

/*  Places the gradient that an output begins with. */
static bool ignis__grad_seed(ignis__backward_pass *pass, ignis__tensor *output, ignis_tensor seed, const char *name,
                             bool known)
{
    ignis__tensor *held = seed.id ? ignis__tensor_hold(pass->call, seed) : NULL;
    ignis__array *array;
    ignis_array data = IGNIS__ZERO;
    ignis_tensor alias = IGNIS__ZERO;
    bool ok = held || !seed.id;
    if (held)
        ok = (array = ignis__tensor_array(pass->call, held)) != NULL;
    else
        array = NULL;
    if (array) {
        data.id = array->slot.handle;
        ignis__array_drop(pass->call, array);
    }
    array = ok ? ignis__backward_start(pass->call, output, data, name, known) : NULL;
    if (array && pass->records) {
        alias = held ? ignis__recorded_alias(pass->call, held, array, &output->shape)
                     : ignis__tensor_over(pass->call, array, false);
        ignis__array_unclaim(pass->call, array);
        ok = alias.id && ignis__recorded_add_to(pass, output, alias);
    } else {
        if (known && array)
            pass->one = array->slot.handle;
        ok = array && ignis__backward_pass_add_to(pass, output, array, false);
    }
    if (held)
        ignis__tensor_drop(pass->call, held);
    return ok;
}

/*  Places the seeds of outputs that an input leads to, and runs the pass from the newest. */
static bool ignis__grad_run(ignis__backward_pass *pass, ignis__tensor *const *outputs, int count,
                            const ignis__grad_options *options)
{
    ignis__node *root = NULL;
    bool ok = true;
    char name[40];
    int i;
    for (i = 0; ok && i < count; i++) {
        ignis_tensor seed = options->seeds ? options->seeds[i] : ignis__no_tensor();
        ignis__node *node = ignis__tensor_tape_state(outputs[i]).node;
        snprintf(name, sizeof name, "desc->seeds[%d]", i);
        if (!ignis__grad_leads(pass, outputs[i]))
            continue;
        ok = ignis__grad_seed(pass, outputs[i], seed, name,
                              count == 1 && !pass->records && !seed.id && node && node->knows_one && !node->wanted);
        if (node && (node->grad || node->recorded_grad.id) && (!root || node->serial > root->serial))
            root = node;
    }
    return root ? ignis__backward_pass_run(pass, root, ok) : ok;
}

/*  Takes the sums of leaves, so that all gradients are in the request, and ends the marks of inputs. */
static void ignis__grad_collect(ignis__backward_pass *pass, ignis__grad_request *request)
{
    int i;
    for (i = 0; i < request->count; i++) {
        ignis__node *node = ignis__tensor_tape_state(request->inputs[i]).node;
        ignis__leaf_state *leaf =
            !node && pass->count ? *ignis__backward_pass_find_leaf(pass, request->inputs[i]) : NULL;
        if (node)
            node->wanted = 0;
        if (leaf && leaf->sum) {
            request->arrays[i] = leaf->sum;
            leaf->sum = NULL;
        }
        if (leaf && leaf->recorded_sum.id) {
            request->recorded[i] = leaf->recorded_sum;
            leaf->recorded_sum.id = 0;
        }
    }
}

/*  Makes the tensors of a request's gradients. Each of a recorded pass gets a handle of its own, so it can be
    released alone; `scope` has those of the pass, and ends here. */
static bool ignis__grad_finish(const char *call, ignis__grad_request *request, bool records, ignis_scope scope,
                               ignis_tensor *grads, bool ok)
{
    ignis__tensor *recorded = NULL;
    int i, first;
    for (i = 0; i < request->count; i++) { /* hold all before the scope ends, and the copies of one before it changes */
        first = ignis__grad_first(request, i);
        if (!records && first < i && request->arrays[first])
            ignis__array_claim(request->arrays[i] = request->arrays[first]);
        if (!ok || !records || !request->recorded[i].id)
            continue;
        recorded = ignis__tensor_hold(call, request->recorded[i]);
        request->arrays[i] = recorded ? ignis__tensor_array(call, recorded) : NULL;
        if (recorded && !request->arrays[i])
            ignis__tensor_drop(call, recorded);
        ok = request->arrays[i] != NULL;
        request->held[i] = ok ? recorded : NULL;
    }
    if (scope.id)
        (void)ignis_scope_end(scope);
    for (i = 0; i < request->count; i++) {
        ignis__tensor *input = request->inputs[i], *made;
        first = ignis__grad_first(request, i);
        if (records) {
            if (ok && request->held[first]) {
                grads[i] = ignis__recorded_alias(call, request->held[first], request->arrays[first], &input->shape);
                ok = grads[i].id != 0;
            }
            continue;
        }
        if (ok && request->arrays[i] && (ok = ignis__gradient_separate(call, &request->arrays[i]))) {
            ignis__array_set_shape(request->arrays[i], &input->shape);
            ok = (made = ignis__tensor_make(call, request->arrays[i], false)) != NULL;
            if (ok) {
                request->arrays[i] = NULL;
                grads[i] = ignis__tensor_publish(made);
            }
        }
        if (request->arrays[i])
            ignis__array_unclaim(call, request->arrays[i]);
    }
    for (i = 0; records && i < request->count; i++) {
        if (!request->held[i])
            continue;
        ignis__array_drop(call, request->arrays[i]);
        ignis__tensor_drop(call, request->held[i]);
    }
    return ok;
}

/*  Computes the gradients of held outputs. */
static bool ignis__grad(const char *call, ignis__tensor *const *outputs, int output_count, ignis__grad_request *request,
                        ignis_tensor *grads, const ignis__grad_options *options)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    bool records = options->create_graph, ok = true;
    ignis_scope scope = IGNIS__ZERO;
    ignis__backward_pass pass;
    int i, no_grad = thread->no_grad;
    if (thread->pass && !thread->pass->node)
        return ignis__fail_false(IGNIS_DIAG_TAPE_WALKED, call,
                                 "a backward of this thread is under way, outside of its backward functions");
    for (i = 0; ok && i < output_count; i++)
        ok = ignis__grad_check(call, outputs[i], "outputs", i);
    for (i = 0; ok && i < request->count; i++)
        ok = ignis__grad_check(call, request->inputs[i], "inputs", i);
    if (ok && records)
        ok = (scope = ignis_scope_begin()).id != 0;
    if (!ok)
        return false;
    if (records)
        thread->no_grad = 0; /* the caller asks for the graph; no function of the caller's runs until it is restored */
    ignis__backward_pass_begin(&pass, call);
    pass.records = records;
    pass.retains = records || options->retain_graph;
    pass.request = request;
    ok = ignis__grad_want(&pass, request);
    pass.within = request;
    if (ok && pass.tape)
        ignis__grad_mark(&pass);
    ok = ok && ignis__grad_run(&pass, outputs, output_count, options);
    ignis__grad_collect(&pass, request);
    ok = ignis__backward_pass_end(&pass, ok);
    for (i = 0; ok && i < request->count; i++) {
        int first = ignis__grad_first(request, i);
        if (!request->arrays[first] && !request->recorded[first].id && !options->allow_unused)
            ok = ignis__fail_false(IGNIS_DIAG_NO_GRAD_WANTED, call,
                                   "inputs[%d], a tensor %s, does not lead to the outputs; desc->allow_unused gives it "
                                   "no gradient",
                                   i, ignis__shape_write(&request->inputs[i]->shape).text);
    }
    ok = ignis__grad_finish(call, request, records, scope, grads, ok);
    thread->no_grad = no_grad;
    return ok;
}

IGNIS__PRIVATE ignis_status ignis__grad_call(const char *call, const ignis_tensor *outputs, int output_count,
                                             const ignis_tensor *inputs, int input_count, ignis_tensor *grads,
                                             const ignis__grad_options *options)
{
    ignis__grad_request request = IGNIS__ZERO;
    ignis__tensor **held;
    int count, i;
    bool ok;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!outputs || !inputs || !grads)
        return ignis__fail_null(call, !outputs ? "outputs" : !inputs ? "inputs" : "grads");
    if (output_count < 1 || input_count < 1 || output_count > INT_MAX / 8 || input_count > INT_MAX / 8)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "output_count is %d and input_count %d; expected 1 or more",
                           output_count, input_count);
    count = output_count + input_count;
    held = (ignis__tensor **)ignis__alloc_for(call, sizeof *held * (size_t)(count + input_count) +
                                                        (sizeof *request.arrays + sizeof *request.recorded) *
                                                            (size_t)input_count);
    if (!held)
        return ignis__failed();
    request.count = input_count;
    request.operation_vjp = options->operation_vjp;
    request.inputs = held + output_count;
    request.held = held + count;
    request.arrays = (ignis__array **)(void *)(request.held + input_count);
    request.recorded = (ignis_tensor *)(void *)(request.arrays + input_count);
    for (i = 0, ok = true; i < count && ok; i++)
        ok = (held[i] = ignis__tensor_hold(call, i < output_count ? outputs[i] : inputs[i - output_count])) != NULL;
    memset(grads, 0, sizeof *grads * (size_t)input_count);
    ok = ok && ignis__grad(call, held, output_count, &request, grads, options);
    for (i = 0; i < count && held[i]; i++)
        ignis__tensor_drop(call, held[i]);
    for (i = 0; !ok && i < input_count; i++) {
        ignis__tensor_discard(call, grads[i]);
        grads[i].id = 0;
    }
    ignis__free(held);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_retain_grad(ignis_tensor handle)
{
    static const char call[] = "ignis_retain_grad";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    bool requires_grad;
    if (!tensor)
        return ignis__failed();
    ignis__mutex_lock(&tensor->slot.lock);
    requires_grad = tensor->requires_grad;
    tensor->retains_grad = requires_grad && !tensor->leaf;
    ignis__mutex_unlock(&tensor->slot.lock);
    ignis__tensor_drop(call, tensor);
    return requires_grad ? IGNIS_OK
                         : ignis__fail(IGNIS_DIAG_NO_GRAD_WANTED, call, "the tensor does not require a gradient");
}

IGNIS_API ignis_status ignis_tensor_set_requires_grad(ignis_tensor handle, bool requires_grad)
{
    static const char call[] = "ignis_tensor_set_requires_grad";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    bool is_leaf, has_group;
    ignis_status status = IGNIS_OK;
    if (!tensor)
        return ignis__failed();
    ignis__mutex_lock(&tensor->slot.lock);
    is_leaf = tensor->leaf;
    has_group = tensor->group != NULL;
    if (is_leaf && (requires_grad ? ignis__dtype_is_float(tensor->dtype) : !has_group))
        tensor->requires_grad = requires_grad;
    ignis__mutex_unlock(&tensor->slot.lock);
    if (!is_leaf)
        status =
            ignis__fail(IGNIS_DIAG_NO_GRAD_WANTED, call,
                        "the tensor is the result of an operation; expected a leaf, which ignis_detach makes of it");
    else if (requires_grad && !ignis__dtype_is_float(tensor->dtype))
        status = ignis__fail(IGNIS_DIAG_GRAD_OF_INTEGERS, call, "a tensor of %s cannot require a gradient",
                             ignis__dtypes[tensor->dtype].name);
    else if (!requires_grad && has_group)
        status =
            ignis__fail(IGNIS_DIAG_NO_GRAD_WANTED, call,
                        "the tensor is a parameter of data-parallel training, whose other ranks expect its gradient");
    ignis__tensor_drop(call, tensor);
    return status;
}
