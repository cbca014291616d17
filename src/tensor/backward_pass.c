/*  >>tensor.backward_pass - runs the tape from the last node to the first

    Calls the backward function of each node that a gradient has reached, adds up gradients, writes those of
    leaves at the end.
    Uses: backward_state, gradient, tape, scope, recorded_gradient. Calls functions of rules, which may
    begin a backward pass of their own.
    A pass of ignis_grad (with a request) runs only nodes that an input leads to, and writes no leaf. A pass that is
    recorded has tensors for gradients: see recorded_gradient.c.
    Invariants: after a failure no leaf has changed; the output of the running node is held.
    Locks: none is held while a backward function runs. Only the thread of a tape runs its nodes. */

#include "room.h"

/* Of the parts after this one, which run passes themselves. */
IGNIS__PRIVATE bool ignis__grad_leads(const ignis__backward_pass *pass, ignis__tensor *tensor);
IGNIS__PRIVATE bool ignis__recorded_run_node(ignis__backward_pass *pass, ignis__node *node, const bool *needed);

/*  *sum += gradient as ignis__gradient_add does it, or *sum = gradient if that is the total, which includes
    the sum. */
static bool ignis__backward_pass_add(const ignis__backward_pass *pass, ignis__array **sum, ignis__array *gradient,
                                     bool whole)
{
    if (whole && *sum) {
        ignis__array_unclaim(pass->call, *sum);
        *sum = NULL;
    }
    return ignis__gradient_add(pass->call, sum, gradient);
}

/*  Adds a gradient, whose claim is taken over, to a leaf. */
IGNIS__INLINE static bool ignis__backward_pass_add_to_leaf(ignis__backward_pass *pass, ignis__tensor *leaf,
                                                           ignis__array *gradient, bool whole)
{
    ignis__leaf_state *reached;
    if (pass->request && !(pass->count && *ignis__backward_pass_find_leaf(pass, leaf))) { /* not asked for */
        ignis__array_unclaim(pass->call, gradient);
        return true;
    }
    reached = ignis__backward_pass_reach_leaf(pass, leaf);
    if (reached && !(reached->group && reached->group->done))
        return ignis__backward_pass_add(pass, &reached->sum, gradient, whole);
    if (reached)
        ignis__fail(IGNIS_DIAG_GRADIENT_LATE, pass->call,
                    "a backward function ran a backward that reached a parameter %s of data-parallel training, whose "
                    "gradient was given to "
                    "the other ranks already; use ignis_checkpoint for it",
                    ignis__shape_write(&leaf->shape).text);
    ignis__array_unclaim(pass->call, gradient);
    return false;
}

/*  Checks that an input of a node can still receive a gradient. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__backward_pass_accepts(const ignis__backward_pass *pass,
                                                               const ignis__tensor *tensor,
                                                               const ignis__tape_state *tape_state)
{
    if (tape_state->node && tape_state->tape != pass->tape)
        ignis__fail(IGNIS_DIAG_TAPE_OF_OTHER, pass->call,
                    "a tensor %s on the way was recorded by another thread meanwhile",
                    ignis__shape_write(&tensor->shape).text);
    else if (tape_state->node && tape_state->node->running)
        ignis__fail(IGNIS_DIAG_BACKWARD_TWICE, pass->call,
                    "a tensor %s on the way is the result of '%s', whose backward function is running",
                    ignis__shape_write(&tensor->shape).text, tape_state->node->name);
    else if (!tape_state->node && !tape_state->leaf)
        ignis__fail(
            IGNIS_DIAG_BACKWARD_TWICE, pass->call,
            "a tensor %s on the way was made by operations that an earlier backward or ignis_tape_clear has released; "
            "run them again",
            ignis__shape_write(&tensor->shape).text);
    else
        return true;
    return false;
}

/*  Adds a gradient, whose claim is taken over, to a held tensor that the pass is yet to reach. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__backward_pass_add_to(ignis__backward_pass *pass, ignis__tensor *tensor,
                                                              ignis__array *gradient, bool whole)
{
    ignis__tape_state tape_state = ignis__tensor_tape_state(tensor);
    if (!ignis__backward_pass_accepts(pass, tensor, &tape_state)) {
        ignis__array_unclaim(pass->call, gradient);
        return false;
    }
    if (!tape_state.node)
        return ignis__backward_pass_add_to_leaf(pass, tensor, gradient, whole);
    if (pass->within && tape_state.node->serial <= pass->within->first) { /* no pass reaches it */
        ignis__array_unclaim(pass->call, gradient);
        return true;
    }
    if (!tape_state.node->grad)
        /* The output is held until its node is done: nothing else may keep it alive. */
        ignis__tensor_hold_again(tensor);
    return ignis__backward_pass_add(pass, &tape_state.node->grad, gradient, whole);
}

/*  Called by a running backward function: returns what the pass has as the gradient of an input so far. NULL
    if nothing yet. */
IGNIS__PRIVATE ignis__array *ignis__backward_pass_input_sum(int input)
{
    const ignis__backward_pass *pass = ignis__tensor_thread_now()->pass;
    ignis__tensor *tensor = pass->node->inputs[input];
    const ignis__node *maker = ignis__tensor_tape_state(tensor).node;
    const ignis__leaf_state *leaf = !maker && pass->count ? *ignis__backward_pass_find_leaf(pass, tensor) : NULL;
    return maker ? maker->grad : leaf ? leaf->sum : NULL;
}

/*  Called by a running backward function: its gradient of an input is the total, and includes
    ignis__backward_pass_input_sum. */
IGNIS__PRIVATE void ignis__backward_pass_mark_summed(int input)
{
    ignis__tensor_thread_now()->pass->summed_inputs |= (uint64_t)1 << input;
}

/*  Called by a running backward function: finds the node of the pass's tape that made a tensor. NULL if there
    is none. */
IGNIS__PRIVATE const ignis__node *ignis__backward_pass_find_maker(ignis__tensor *tensor)
{
    ignis__tape_state tape_state = ignis__tensor_tape_state(tensor);
    return tape_state.tape == ignis__tensor_thread_now()->pass->tape ? tape_state.node : NULL;
}

IGNIS__INLINE static void ignis__backward_pass_drop_column_sums(ignis__backward_pass *pass)
{
    if (pass->offered)
        ignis__array_unclaim(pass->call, pass->offered);
    if (pass->sums)
        ignis__array_unclaim(pass->call, pass->sums);
    pass->offered = pass->sums = NULL;
}

/*  Called by a running backward function: offers the column sums of its gradient to the function that
    receives the gradient and has a bias. Both are arrays that nobody has claimed yet. */
IGNIS__PRIVATE void ignis__backward_pass_offer_column_sums(ignis_array gradient, ignis_array sums)
{
    ignis__backward_pass *pass = ignis__tensor_thread_now()->pass;
    ignis__backward_pass_drop_column_sums(pass);
    pass->offered = ignis__array_adopt(pass->call, gradient);
    pass->sums = ignis__array_adopt(pass->call, sums);
}

/*  Takes the n column sums that were offered for a gradient. They may be handed on as a gradient. No handle
    if none were offered. */
IGNIS__PRIVATE ignis_array ignis__backward_pass_take_column_sums(const ignis__array *gradient, int64_t n)
{
    ignis__backward_pass *pass = ignis__tensor_thread_now()->pass;
    ignis_array sums = IGNIS__ZERO;
    if (pass->offered && pass->offered->storage == gradient->storage && pass->offered->offset == gradient->offset &&
        pass->offered->numel == gradient->numel && pass->sums->numel == n) {
        ignis__array_unclaim(pass->call, pass->offered);
        pass->offered = NULL;
        sums.id = pass->sums->slot.handle;
    }
    return sums;
}

/*  Called by a running backward function: returns whether it may run again, so what was saved for it must not
    change. */
IGNIS__PRIVATE bool ignis__backward_pass_retains(void) { return ignis__tensor_thread_now()->pass->retains; }

/*  Checks and claims the array that a backward function gave for an input. NULL, and reported, if it does not
    fit. */
static ignis__array *ignis__backward_pass_claim_gradient(const ignis__backward_pass *pass, const ignis__node *node,
                                                         int input, ignis_array handle)
{
    const ignis__tensor *tensor = node->inputs[input];
    ignis__array *gradient = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (!gradient) {
        ignis__fail(IGNIS_DIAG_ARRAY_FREED, pass->call, "the backward of '%s' gave a freed array for input %d",
                    node->name, input);
        return NULL;
    }
    ignis__array_claim(gradient);
    ignis__array_drop(pass->call, gradient);
    if (gradient->numel == ignis__tensor_numel(tensor) && gradient->dtype == tensor->dtype &&
        gradient->storage->device == tensor->device &&
        (gradient->numel == 0 || ignis__storage_readable(gradient->storage)))
        return gradient;
    if (gradient->storage->device != tensor->device)
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, pass->call,
                    "the backward of '%s' gave a gradient on device %d for input %d, which is on device %d", node->name,
                    ignis__device_ordinal(gradient->storage->device), input, ignis__device_ordinal(tensor->device));
    else if (gradient->numel == ignis__tensor_numel(tensor) && gradient->dtype == tensor->dtype)
        ignis__fail(IGNIS_DIAG_ARRAY_UNWRITTEN, pass->call,
                    "the backward of '%s' gave %s for input %d, which was never written to", node->name,
                    ignis__array_label(gradient).text, input);
    else
        ignis__fail(gradient->dtype != tensor->dtype ? IGNIS_DIAG_DTYPE_DIFFERS : IGNIS_DIAG_SHAPE_DIFFERS, pass->call,
                    "the backward of '%s' gave a gradient %s of %s for input %d, which is %s of %s", node->name,
                    ignis__shape_write(&gradient->shape).text, ignis__dtypes[gradient->dtype].name, input,
                    ignis__shape_write(&tensor->shape).text, ignis__dtypes[tensor->dtype].name);
    ignis__array_unclaim(pass->call, gradient);
    return NULL;
}

/*  Checks that the arrays a node saved have not changed since it was recorded. */
static bool ignis__backward_pass_check_saved(const ignis__backward_pass *pass, const ignis__node *node)
{
    int i;
    for (i = 0; i < node->saved_count - (pass->records ? 0 : node->kept_count); i++) {
        const ignis__array *saved = node->saved[i];
        uint64_t version = ignis__storage_version(saved->storage);
        char view_of[40] = "";
        if (version == node->versions[i] || node->versions[i] == IGNIS__UNWRITTEN)
            continue;
        if (saved->view) /* the tape made this view to keep an array of the caller's */
            snprintf(view_of, sizeof view_of, ", a view of #%llu,", (unsigned long long)saved->parent);
        return ignis__fail_false(IGNIS_DIAG_SAVED_CHANGED, pass->call,
                                 "the gradient of '%s' needs %s %s%s as it was when the operation was recorded, but it "
                                 "was written to since (version %llu, "
                                 "recorded at %llu); write after the backward, or to a copy",
                                 node->name, ignis__array_label(saved).text, ignis__shape_write(&saved->shape).text,
                                 view_of, (unsigned long long)version, (unsigned long long)node->versions[i]);
    }
    return true;
}

/*  Returns the status of a node's function, which has returned. A failure is reported by now. */
IGNIS__PRIVATE ignis_status ignis__backward_pass_status(const ignis__backward_pass *pass, const ignis__node *node,
                                                        ignis_status status)
{
    if (pass->failed && status == IGNIS_OK)
        status =
            ignis__fail(IGNIS_DIAG_BACKWARD_FAILED, pass->call,
                        "the backward of '%s' returned OK, but an ignis_backward inside of it has failed", node->name);
    if (status != IGNIS_OK && ignis__this_thread.record.status == IGNIS_OK)
        ignis__fail(IGNIS_DIAG_BACKWARD_FAILED, pass->call, "the backward of '%s' returned %s", node->name,
                    ignis_status_name(status));
    else if (status != IGNIS_OK)
        ignis__this_thread.latest = status;
    return status;
}

/*  Runs the backward function of a node between scopes and no-grad sections that it cannot end. */
static bool ignis__backward_pass_call_rule(ignis__backward_pass *pass, ignis__node *node,
                                           const ignis_backward_args *args)
{
    ignis__frame frame;
    ignis_status status;
    ignis__frame_begin(&frame, pass->call, node->name, ignis__tensor_thread_now()->no_grad + 1);
    pass->node = node;
    pass->summed_inputs = 0;
    node->running = true;
    status = node->backward_fn(args);
    node->running = false;
    pass->node = NULL;
    if (!ignis__frame_end(&frame) && status == IGNIS_OK)
        status = ignis__failed();
    return ignis__backward_pass_status(pass, node, status) == IGNIS_OK;
}

/*  Reshapes the gradient of a node's output to the output's shape. It had the shape that the function or the
    caller gave it. */
static bool ignis__backward_pass_reshape_gradient(const ignis__backward_pass *pass, ignis__node *node)
{
    const ignis_shape *shape = &node->output->shape;
    ignis__array *view;
    if (ignis__shape_same(&node->grad->shape, shape))
        return true;
    if (ignis__array_is_private(node->grad)) {
        ignis__array_set_shape(node->grad, shape);
        return true;
    }
    view = ignis__array_adopt(pass->call, ignis__array_view(pass->call, node->grad, shape, node->grad->numel, 0));
    if (!view)
        return false;
    ignis__array_unclaim(pass->call, node->grad);
    node->grad = view;
    return true;
}

/*  Runs the backward function of one node, and hands its gradients on to the needed inputs. */
static bool ignis__backward_pass_run_node(ignis__backward_pass *pass, ignis__node *node, const bool *needed)
{
    ignis_backward_args args = IGNIS__ZERO;
    ignis_array grads[IGNIS__MAX_INPUTS] = IGNIS__ZERO, saved_few[16], *saved = saved_few;
    ignis__array *given[IGNIS__MAX_INPUTS];
    bool ok = true;
    int i;
    for (i = 0; i < node->input_count; i++) {
        ignis__tape_state tape_state = ignis__tensor_tape_state(node->inputs[i]);
        if (needed[i] && !ignis__backward_pass_accepts(pass, node->inputs[i], &tape_state))
            return false;
    }
    args.saved_count = node->saved_count - node->kept_count;
    if (args.saved_count > IGNIS__COUNT(saved_few) &&
        (saved = (ignis_array *)ignis__alloc_for(pass->call, sizeof *saved * (size_t)args.saved_count)) == NULL)
        return false;
    for (i = 0; i < args.saved_count; i++)
        saved[i].id = node->saved[i]->slot.handle;
    args.grad_output.id = node->grad->slot.handle != pass->one ? node->grad->slot.handle : 0;
    args.saved = saved;
    args.params = node->params;
    args.input_count = node->input_count;
    args.needed = needed;
    args.grad_inputs = grads;
    args.user_data = node->user_data;
    ok = ignis__backward_pass_call_rule(pass, node, &args);
    for (i = 0; i < node->input_count; i++) { /* claim all before any is handed on: one array may be there twice */
        given[i] = grads[i].id ? ignis__backward_pass_claim_gradient(pass, node, i, grads[i]) : NULL;
        ok = ok && (given[i] || !grads[i].id || !needed[i]);
    }
    if (!pass->offered) /* sums that are among the gradients belong to whoever received them */
        ignis__backward_pass_drop_column_sums(pass);
    for (i = 0; i < node->input_count; i++) {
        if (given[i] && ok && needed[i])
            ok = ignis__backward_pass_add_to(pass, node->inputs[i], given[i], pass->summed_inputs >> i & 1);
        else if (given[i])
            ignis__array_unclaim(pass->call, given[i]);
    }
    if (saved != saved_few)
        ignis__free(saved);
    return ok;
}

/*  Keeps the gradient of a node's output, if the request or ignis_retain_grad asks for it. */
static bool ignis__backward_pass_keep_gradient(ignis__backward_pass *pass, ignis__node *node)
{
    if (pass->request && node->wanted && pass->records) {
        pass->request->recorded[node->wanted - 1] = node->recorded_grad;
    } else if (pass->request && node->wanted) {
        ignis__array_claim(node->grad);
        pass->request->arrays[node->wanted - 1] = node->grad;
    } else if (node->output->retains_grad && !pass->request && !pass->records) {
        ignis__array_claim(node->grad);
        return ignis__backward_pass_add_to_leaf(pass, node->output, node->grad, false);
    }
    return true;
}

/*  Hands the gradient of a node on. A pass with a request runs only nodes, and asks only for gradients, that one of its
    inputs leads to. */
static bool ignis__backward_pass_visit(ignis__backward_pass *pass, ignis__node *node)
{
    bool leading[IGNIS__MAX_INPUTS];
    const bool *needed = node->needed;
    int i;
    if ((!pass->records && !ignis__backward_pass_reshape_gradient(pass, node)) ||
        !ignis__backward_pass_keep_gradient(pass, node))
        return false;
    if (pass->request) {
        if (!node->leads)
            return true;
        for (i = 0; i < node->input_count; i++)
            leading[i] = needed[i] && ignis__grad_leads(pass, node->inputs[i]);
        needed = leading;
    }
    if (!ignis__backward_pass_check_saved(pass, node))
        return false;
    return pass->records ? ignis__recorded_run_node(pass, node, needed)
                         : ignis__backward_pass_run_node(pass, node, needed);
}

/*  Runs the nodes from the root's back to the first that a gradient has reached, and destroys them unless the
    pass retains them, or has not used them. A pass inside a backward function ends at the node of the enclosing pass.
    The output of the running node is held. After a failure (ok is false) the gradients are dropped. */
IGNIS__PRIVATE bool ignis__backward_pass_run(ignis__backward_pass *pass, ignis__node *root, bool ok)
{
    uint64_t end = pass->request ? pass->request->first : pass->outer ? pass->outer->node->serial : 0;
    ignis__node *node = root, *before;
    ignis__tensor_hold_again(root->output);
    if (!pass->outer && !pass->request && ignis__atomic_load(&ignis__grad_groups))
        ok = ignis__groups_count(pass, root) && ok;
    for (; node; node = before) {
        ignis__tensor *output = node->output;
        bool reached = node->grad || node->recorded_grad.id;
        if (reached)
            ok = ok && ignis__backward_pass_visit(pass, node);
        if (node->counted)
            ok = ignis__groups_pass(pass, node, ok);
        before = ignis__node_before(pass->tape, node, end);
        if (reached) {
            node->recorded_grad.id = 0;
            if (pass->retains || (pass->request && !node->leads)) {
                if (node->grad)
                    ignis__array_unclaim(pass->call, node->grad);
                node->grad = NULL;
            } else {
                ignis__node_consume(pass->call, node);
            }
            ignis__tensor_drop(pass->call, output);
        }
        ignis__tensor_drop(pass->call, output);
    }
    return ok;
}

/*  Begins a pass of the calling thread; ignis__backward_pass_end ends it. */
IGNIS__PRIVATE void ignis__backward_pass_begin(ignis__backward_pass *pass, const char *call)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    memset(pass, 0, sizeof *pass);
    pass->call = call;
    pass->tape = thread->tape;
    pass->outer = thread->pass;
    pass->within = pass->outer ? pass->outer->within : NULL;
    pass->serial = ignis__atomic_add(&ignis__backward_pass_serials, 1);
    thread->pass = pass;
    thread->pass_serial = pass->serial;
}

/*  Writes the gradients of leaves, unless a request wants them. A pass inside a backward function writes only leaves
    that the function made, so that it can read them. The others wait for the enclosing pass: if the outermost one
    fails, no leaf has changed. */
IGNIS__PRIVATE bool ignis__backward_pass_end(ignis__backward_pass *pass, bool ok)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__leaf_state **link = &pass->leaves, *reached;
    while (pass->outer && !pass->request && (reached = *link) != NULL) {
        ignis__array *sum = reached->sum;
        if (reached->leaf->made_in == pass->outer->serial) {
            link = &reached->next;
            continue;
        }
        if (ok && sum) {
            reached->sum = NULL;
            ok = ignis__backward_pass_add_to_leaf(pass->outer, reached->leaf, sum, false);
        }
        *link = reached->next;
        reached->next = NULL;
        ignis__leaf_states_free(pass->call, &reached);
    }
    ignis__backward_pass_drop_column_sums(pass);
    ok = ok && (pass->request || ignis__leaves_write(pass->call, pass->leaves));
    ok = ignis__groups_end(pass, ok);
    ignis__leaf_states_free(pass->call, &pass->leaves);
    ignis__free(pass->table);
    if (!ok && pass->outer && !pass->request)
        pass->outer->failed = true;
    thread->pass = pass->outer;
    thread->pass_serial = pass->outer ? pass->outer->serial : 0;
    return ok;
}

/*  Holds the caller's array that becomes a tensor's gradient. NULL, and reported, if it does not fit. */
IGNIS__PRIVATE ignis__array *ignis__gradient_hold(const char *call, const ignis__tensor *tensor, ignis_array handle,
                                                  const char *name)
{
    ignis__array *gradient = ignis__array_hold(call, handle);
    if (!gradient)
        return NULL;
    if (gradient->numel != ignis__tensor_numel(tensor))
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s is %s, the tensor is %s", name,
                    ignis__shape_write(&gradient->shape).text, ignis__shape_write(&tensor->shape).text);
    else if (gradient->dtype != tensor->dtype)
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "%s is %s, the tensor is %s", name,
                    ignis__dtypes[gradient->dtype].name, ignis__dtypes[tensor->dtype].name);
    else if (gradient->storage->device != tensor->device)
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "%s is on device %d, the tensor on device %d", name,
                    ignis__device_ordinal(gradient->storage->device), ignis__device_ordinal(tensor->device));
    else
        return gradient;
    ignis__array_drop(call, gradient);
    return NULL;
}

/*  Returns the claimed gradient that a pass starts from: the caller's, or 1. A node that knows it starts from
    1 gets it unwritten. NULL, and reported, if it does not fit. */
IGNIS__PRIVATE ignis__array *ignis__backward_start(const char *call, const ignis__tensor *tensor,
                                                   ignis_array grad_output, const char *name, bool known)
{
    ignis_array_desc desc = IGNIS__ZERO;
    ignis_array made;
    ignis__array *gradient;
    if (grad_output.id) {
        gradient = ignis__gradient_hold(call, tensor, grad_output, name);
        if (!gradient)
            return NULL;
        /* a view, which ends with the pass: the array itself stays the caller's */
        made = ignis__array_view(call, gradient, &gradient->shape, gradient->numel, 0);
        ignis__array_drop(call, gradient);
        return ignis__array_adopt(call, made);
    }
    if (ignis__tensor_numel(tensor) != 1) {
        ignis__fail(
            IGNIS_DIAG_BACKWARD_NOT_SCALAR, call,
            "a tensor of shape %s needs %s; without it there has to be one element, as ignis_sum and ignis_mean give",
            ignis__shape_write(&tensor->shape).text, name);
        return NULL;
    }
    desc.shape = tensor->shape;
    desc.dtype = tensor->dtype;
    desc.device = ignis__device_in_desc(tensor->device);
    made = ignis__array_create(call, &desc);
    if (made.id && !known && ignis__array_set(call, made, 1.0) != IGNIS_OK)
        ignis__array_discard(call, &made);
    return ignis__array_adopt(call, made);
}

static ignis_status ignis__backward_from(const char *call, ignis__tensor *tensor, ignis_array grad_output, bool retains)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__tape_state tape_state = ignis__tensor_tape_state(tensor);
    ignis__backward_pass pass;
    ignis__array *gradient;
    bool ok, runs, known;
    if (tape_state.consumed)
        return ignis__fail(
            IGNIS_DIAG_BACKWARD_TWICE, call,
            "the operations that made this tensor were released by an earlier backward or ignis_tape_clear; "
            "run them again, or keep them with ignis_backward_retain");
    if (!tape_state.requires_grad)
        return ignis__fail(IGNIS_DIAG_NO_GRAD_WANTED, call,
                           "the tensor does not require a gradient, and none of the tensors that it was made of does");
    if (tape_state.node && tape_state.tape != thread->tape)
        return ignis__fail(IGNIS_DIAG_TAPE_OF_OTHER, call,
                           "the tensor was recorded by another thread, whose tape it belongs to");
    if (thread->pass && !thread->pass->node)
        return ignis__fail(IGNIS_DIAG_TAPE_WALKED, call,
                           "a backward of this thread is under way, outside of its backward functions");
    /* inside a backward function, whatever is older than its node waits for the enclosing pass */
    runs = tape_state.node && (!thread->pass || tape_state.node->serial > thread->pass->node->serial);
    known = runs && !grad_output.id && tape_state.node->knows_one;
    gradient = ignis__backward_start(call, tensor, grad_output, "grad_output", known);
    if (!gradient)
        return ignis__failed();
    ignis__backward_pass_begin(&pass, call);
    pass.retains = retains;
    pass.one = known ? gradient->slot.handle : 0;
    ok = ignis__backward_pass_add_to(&pass, tensor, gradient, false);
    if (runs)
        ok = ignis__backward_pass_run(&pass, tape_state.node, ok);
    ok = ignis__backward_pass_end(&pass, ok);
    return ok ? IGNIS_OK : ignis__failed();
}

static ignis_status ignis__backward(const char *call, ignis_tensor handle, ignis_array grad_output, bool retains)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status;
    if (!tensor)
        return ignis__failed();
    status = ignis__backward_from(call, tensor, grad_output, retains);
    ignis__tensor_drop(call, tensor);
    return status;
}

IGNIS_API ignis_status ignis_backward(ignis_tensor tensor, ignis_array grad_output)
{
    return ignis__backward("ignis_backward", tensor, grad_output, false);
}

IGNIS_API ignis_status ignis_backward_retain(ignis_tensor tensor, ignis_array grad_output)
{
    return ignis__backward("ignis_backward_retain", tensor, grad_output, true);
}
