/* --- backward ---------------------------------------------------------------------------------------------------------- */

/*  *sum += gradient as ignis__gradient_add does it, or *sum = gradient where that is the whole, with the sum in it. */
static bool ignis__walk_add(const ignis__walk *walk, ignis__array **sum, ignis__array *gradient, bool whole)
{
    if (whole && *sum) {
        ignis__array_unclaim(walk->call, *sum);
        *sum = NULL;
    }
    return ignis__gradient_add(walk->call, sum, gradient);
}

/*  Gives a gradient, whose claim is taken over, to a leaf. */
static bool ignis__walk_give_leaf(ignis__walk *walk, ignis__tensor *leaf, ignis__array *gradient, bool whole)
{
    ignis__reached *reached = ignis__walk_reach(walk, leaf);
    if (reached && !(reached->group && reached->group->done))
        return ignis__walk_add(walk, &reached->sum, gradient, whole);
    if (reached)
        ignis__fail(IGNIS_DIAG_GRADIENT_LATE, walk->call,
                    "a backward function ran a backward that reached a parameter %s of data-parallel training, whose gradient was given to "
                    "the other ranks already; use ignis_checkpoint for it",
                    ignis__shape_write(&leaf->shape).text);
    ignis__array_unclaim(walk->call, gradient);
    return false;
}

/*  Whether a gradient can still be given to an input of an entry. */
static bool ignis__walk_admits(const ignis__walk *walk, const ignis__tensor *tensor, const ignis__standing *standing)
{
    if (standing->node && standing->tape != walk->tape)
        ignis__fail(IGNIS_DIAG_TAPE_OF_OTHER, walk->call, "a tensor %s on the way was recorded by another thread meanwhile",
                    ignis__shape_write(&tensor->shape).text);
    else if (standing->node && standing->node->running)
        ignis__fail(IGNIS_DIAG_BACKWARD_TWICE, walk->call,
                    "a tensor %s on the way is the result of '%s', whose backward function is running",
                    ignis__shape_write(&tensor->shape).text, standing->node->name);
    else if (!standing->node && !standing->leaf)
        ignis__fail(IGNIS_DIAG_BACKWARD_TWICE, walk->call,
                    "a tensor %s on the way was made by operations that an earlier backward or ignis_tape_clear has released; "
                    "run them again",
                    ignis__shape_write(&tensor->shape).text);
    else
        return true;
    return false;
}

/*  Gives a gradient, whose claim is taken over, to a held tensor on the way. */
static bool ignis__walk_give(ignis__walk *walk, ignis__tensor *tensor, ignis__array *gradient, bool whole)
{
    ignis__standing standing = ignis__tensor_standing(tensor);
    if (!ignis__walk_admits(walk, tensor, &standing)) {
        ignis__array_unclaim(walk->call, gradient);
        return false;
    }
    if (!standing.node)
        return ignis__walk_give_leaf(walk, tensor, gradient, whole);
    if (!standing.node->grad)
        ignis__tensor_rehold(tensor); /* the output is held until its entry is done: nothing else may keep it alive */
    return ignis__walk_add(walk, &standing.node->grad, gradient, whole);
}

/*  For a backward function that is running: what its walk has as the gradient of an input by now; null: nothing yet. */
static ignis__array *ignis__walk_sum(int input)
{
    const ignis__walk *walk = ignis__tensor_thread_now()->walk;
    ignis__tensor *tensor = walk->at->inputs[input];
    const ignis__node *maker = ignis__tensor_standing(tensor).node;
    const ignis__reached *leaf = !maker && walk->count ? *ignis__walk_find(walk, tensor) : NULL;
    return maker ? maker->grad : leaf ? leaf->sum : NULL;
}

/*  For a backward function that is running: the gradient that it gives for an input is the whole, and has ignis__walk_sum in it. */
static void ignis__walk_sum_taken(int input) { ignis__tensor_thread_now()->walk->taken |= (uint64_t)1 << input; }

/*  For a backward function that is running: the entry of its walk's tape that made a tensor; null: none did. */
static const ignis__node *ignis__walk_maker(ignis__tensor *tensor)
{
    ignis__standing standing = ignis__tensor_standing(tensor);
    return standing.tape == ignis__tensor_thread_now()->walk->tape ? standing.node : NULL;
}

static void ignis__walk_sums_drop(ignis__walk *walk)
{
    if (walk->summed)
        ignis__array_unclaim(walk->call, walk->summed);
    if (walk->sums)
        ignis__array_unclaim(walk->call, walk->sums);
    walk->summed = walk->sums = NULL;
}

/*  For a backward function that is running: the gradient that it gives has these sums of its columns, for the function which that goes to and which
    has a bias. Both are arrays that nobody has claimed yet. */
static void ignis__walk_sums_leave(ignis_array gradient, ignis_array sums)
{
    ignis__walk *walk = ignis__tensor_thread_now()->walk;
    ignis__walk_sums_drop(walk);
    walk->summed = ignis__array_adopt(walk->call, gradient);
    walk->sums = ignis__array_adopt(walk->call, sums);
}

/*  The other end: the n sums of the columns of its gradient, which it may give on. No handle: nobody has left them. */
static ignis_array ignis__walk_sums_take(const ignis__array *gradient, int64_t n)
{
    ignis__walk *walk = ignis__tensor_thread_now()->walk;
    ignis_array sums = IGNIS__ZERO;
    if (walk->summed && walk->summed->storage == gradient->storage && walk->summed->offset == gradient->offset &&
        walk->summed->numel == gradient->numel && walk->sums->numel == n) {
        ignis__array_unclaim(walk->call, walk->summed);
        walk->summed = NULL;
        sums.id = walk->sums->slot.handle;
    }
    return sums;
}

/*  For a backward function that is running: whether it may run again, so what was saved for it has to stay as it is. */
static bool ignis__walk_retains(void) { return ignis__tensor_thread_now()->walk->retains; }

/*  Checks what a backward function gave for an input, and claims it. Null, and reported, when it does not fit. */
static ignis__array *ignis__walk_claim(const ignis__walk *walk, const ignis__node *node, int input, ignis_array handle)
{
    const ignis__tensor *tensor = node->inputs[input];
    ignis__array *gradient = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (!gradient) {
        ignis__fail(IGNIS_DIAG_ARRAY_FREED, walk->call, "the backward of '%s' gave a freed array for input %d", node->name, input);
        return NULL;
    }
    ignis__array_claim(gradient);
    ignis__array_drop(walk->call, gradient);
    if (gradient->numel == ignis__tensor_numel(tensor) && gradient->dtype == tensor->dtype && gradient->storage->device == tensor->device &&
        (gradient->numel == 0 || ignis__storage_readable(gradient->storage)))
        return gradient;
    if (gradient->storage->device != tensor->device)
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, walk->call,
                    "the backward of '%s' gave a gradient on device %d for input %d, which is on device %d", node->name,
                    ignis__device_ordinal(gradient->storage->device), input, ignis__device_ordinal(tensor->device));
    else if (gradient->numel == ignis__tensor_numel(tensor) && gradient->dtype == tensor->dtype)
        ignis__fail(IGNIS_DIAG_ARRAY_UNWRITTEN, walk->call, "the backward of '%s' gave %s for input %d, which was never written to",
                    node->name, ignis__array_label(gradient).text, input);
    else
        ignis__fail(gradient->dtype != tensor->dtype ? IGNIS_DIAG_DTYPE_DIFFERS : IGNIS_DIAG_SHAPE_DIFFERS, walk->call,
                    "the backward of '%s' gave a gradient %s of %s for input %d, which is %s of %s", node->name,
                    ignis__shape_write(&gradient->shape).text, ignis__dtypes[gradient->dtype].name, input,
                    ignis__shape_write(&tensor->shape).text, ignis__dtypes[tensor->dtype].name);
    ignis__array_unclaim(walk->call, gradient);
    return NULL;
}

/*  What an entry has saved is as it was when it was recorded. */
static bool ignis__walk_unchanged(const ignis__walk *walk, const ignis__node *node)
{
    int i;
    for (i = 0; i < node->saved_count; i++) {
        const ignis__array *saved = node->saved[i];
        uint64_t version = ignis__storage_version(saved->storage);
        char view_of[40] = "";
        if (version == node->versions[i] || node->versions[i] == IGNIS__UNWRITTEN)
            continue;
        if (saved->view) /* which the tape may have made itself, to keep an array of the caller */
            snprintf(view_of, sizeof view_of, ", a view of #%llu,", (unsigned long long)saved->parent);
        return ignis__fail_false(
            IGNIS_DIAG_SAVED_CHANGED, walk->call,
            "the gradient of '%s' needs %s %s%s as it was when the operation was recorded, but it was written to since (version %llu, "
            "recorded at %llu); write after the backward, or to a copy",
            node->name, ignis__array_label(saved).text, ignis__shape_write(&saved->shape).text, view_of, (unsigned long long)version,
            (unsigned long long)node->versions[i]);
    }
    return true;
}

/*  Runs the backward function of an entry, between scopes and no-grad sections that it cannot end. */
static bool ignis__walk_call(ignis__walk *walk, ignis__node *node, const ignis_backward_args *args)
{
    ignis__frame frame;
    ignis_status status;
    ignis__frame_begin(&frame, walk->call, node->name, ignis__tensor_thread_now()->no_grad + 1);
    walk->at = node;
    walk->taken = 0;
    node->running = true;
    status = node->backward_fn(args);
    node->running = false;
    walk->at = NULL;
    if (!ignis__frame_end(&frame) && status == IGNIS_OK)
        status = ignis__failed();
    if (walk->failed && status == IGNIS_OK)
        status = ignis__fail(IGNIS_DIAG_BACKWARD_FAILED, walk->call,
                             "the backward of '%s' answered OK, but an ignis_backward inside of it has failed", node->name);
    if (status != IGNIS_OK && ignis__this_thread.record.status == IGNIS_OK)
        ignis__fail(IGNIS_DIAG_BACKWARD_FAILED, walk->call, "the backward of '%s' answered %s", node->name, ignis_status_name(status));
    else if (status != IGNIS_OK)
        ignis__this_thread.latest = status;
    return status == IGNIS_OK;
}

/*  Gives the gradient of an entry's output the output's shape: it came in the shape that the function it is from, or the caller, gave it. */
static bool ignis__walk_shape(const ignis__walk *walk, ignis__node *node)
{
    const ignis_shape *shape = &node->output->shape;
    ignis__array *view;
    if (ignis__shape_same(&node->grad->shape, shape))
        return true;
    if (ignis__array_is_private(node->grad)) {
        ignis__array_set_shape(node->grad, shape);
        return true;
    }
    view = ignis__array_adopt(walk->call, ignis__array_view(walk->call, node->grad, shape, node->grad->numel, 0));
    if (!view)
        return false;
    ignis__array_unclaim(walk->call, node->grad);
    node->grad = view;
    return true;
}

/*  Runs the backward of one entry, and hands its gradients on. */
static bool ignis__walk_step(ignis__walk *walk, ignis__node *node)
{
    ignis_backward_args args = IGNIS__ZERO;
    ignis_array grads[IGNIS__MAX_INPUTS] = IGNIS__ZERO, saved_few[16], *saved = saved_few;
    ignis__array *given[IGNIS__MAX_INPUTS];
    bool ok = true;
    int i;
    for (i = 0; i < node->input_count; i++) {
        ignis__standing standing = ignis__tensor_standing(node->inputs[i]);
        if (node->needed[i] && !ignis__walk_admits(walk, node->inputs[i], &standing))
            return false;
    }
    if (node->saved_count > IGNIS__COUNT(saved_few) &&
        (saved = (ignis_array *)ignis__alloc_for(walk->call, sizeof *saved * (size_t)node->saved_count)) == NULL)
        return false;
    for (i = 0; i < node->saved_count; i++)
        saved[i].id = node->saved[i]->slot.handle;
    args.grad_output.id = node->grad->slot.handle != walk->one ? node->grad->slot.handle : 0;
    args.saved = saved;
    args.saved_count = node->saved_count;
    args.params = node->params;
    args.input_count = node->input_count;
    args.needed = node->needed;
    args.grad_inputs = grads;
    args.user_data = node->user_data;
    ok = ignis__walk_call(walk, node, &args);
    for (i = 0; i < node->input_count; i++) { /* claim all before any is given on: one array may be there twice */
        given[i] = grads[i].id ? ignis__walk_claim(walk, node, i, grads[i]) : NULL;
        ok = ok && (given[i] || !grads[i].id || !node->needed[i]);
    }
    if (!walk->summed) /* so that the sums, if they are among those, belong to who gets them */
        ignis__walk_sums_drop(walk);
    for (i = 0; i < node->input_count; i++) {
        if (given[i] && ok && node->needed[i])
            ok = ignis__walk_give(walk, node->inputs[i], given[i], walk->taken >> i & 1);
        else if (given[i])
            ignis__array_unclaim(walk->call, given[i]);
    }
    if (saved != saved_few)
        ignis__free(saved);
    return ok;
}

/*  Walks from the entry of the root back to the first, running those that a gradient has reached, and takes these apart unless it retains them. A
    walk inside a backward function ends where the enclosing one stands. The output of the entry that the walk is at is held. */
static bool ignis__walk_run(ignis__walk *walk, ignis__node *root, ignis__array *gradient)
{
    uint64_t end = walk->outer ? walk->outer->at->serial : 0;
    ignis__node *node = root, *before;
    bool ok = true;
    ignis__tensor_rehold(root->output); /* as of every entry with a gradient */
    root->grad = gradient;
    ignis__tensor_rehold(root->output);
    if (!walk->outer && ignis__atomic_load(&ignis__grad_groups))
        ok = ignis__groups_count(walk, root);
    for (; node; node = before) {
        ignis__tensor *output = node->output;
        if (node->grad)
            ok = ok && ignis__walk_unchanged(walk, node) && ignis__walk_shape(walk, node) && ignis__walk_step(walk, node);
        if (node->counted)
            ok = ignis__groups_pass(walk, node, ok);
        before = ignis__node_before(walk->tape, node, end);
        if (node->grad) {
            if (walk->retains) {
                ignis__array_unclaim(walk->call, node->grad);
                node->grad = NULL;
            } else {
                ignis__node_consume(walk->call, node);
            }
            ignis__tensor_drop(walk->call, output);
        }
        ignis__tensor_drop(walk->call, output);
    }
    return ok;
}

/*  Writes the gradients of leaves. A walk inside a backward function writes those of leaves that the function has made, which wants to read them, and
    leaves the others to the enclosing walk: so when the outermost one fails, no leaf has changed. */
static bool ignis__walk_end(ignis__walk *walk, bool ok)
{
    ignis__reached **link = &walk->leaves, *reached;
    while (walk->outer && (reached = *link) != NULL) {
        ignis__array *sum = reached->sum;
        if (reached->leaf->made_in == walk->outer->serial) {
            link = &reached->next;
            continue;
        }
        if (ok && sum) {
            reached->sum = NULL;
            ok = ignis__walk_give_leaf(walk->outer, reached->leaf, sum, false);
        }
        *link = reached->next;
        reached->next = NULL;
        ignis__reached_end(walk->call, &reached);
    }
    ignis__walk_sums_drop(walk);
    ok = ok && ignis__leaves_write(walk->call, walk->leaves);
    ok = ignis__groups_end(walk, ok);
    ignis__reached_end(walk->call, &walk->leaves);
    ignis__free(walk->table);
    if (!ok && walk->outer)
        walk->outer->failed = true;
    return ok;
}

/*  An array of the caller's that is to be a tensor's gradient, held. Null, and reported, when it does not fit. */
static ignis__array *ignis__gradient_hold(const char *call, const ignis__tensor *tensor, ignis_array handle, const char *name)
{
    ignis__array *gradient = ignis__array_hold(call, handle);
    if (!gradient)
        return NULL;
    if (gradient->numel != ignis__tensor_numel(tensor))
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s is %s, the tensor is %s", name, ignis__shape_write(&gradient->shape).text,
                    ignis__shape_write(&tensor->shape).text);
    else if (gradient->dtype != tensor->dtype)
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "%s is %s, the tensor is %s", name, ignis__dtypes[gradient->dtype].name,
                    ignis__dtypes[tensor->dtype].name);
    else if (gradient->storage->device != tensor->device)
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "%s is on device %d, the tensor on device %d", name,
                    ignis__device_ordinal(gradient->storage->device), ignis__device_ordinal(tensor->device));
    else
        return gradient;
    ignis__array_drop(call, gradient);
    return NULL;
}

/*  The gradient that a backward starts from, claimed: the caller's, or 1, unwritten where the entry knows it. Null, reported: it does not fit. */
static ignis__array *ignis__backward_start(const char *call, const ignis__tensor *tensor, ignis_array grad_output, bool known)
{
    ignis_array_desc desc = IGNIS__ZERO;
    ignis_array made;
    ignis__array *gradient;
    if (grad_output.id) {
        gradient = ignis__gradient_hold(call, tensor, grad_output, "grad_output");
        if (!gradient)
            return NULL;
        /* through a view, which ends with the walk: the array itself stays the caller's */
        made = ignis__array_view(call, gradient, &gradient->shape, gradient->numel, 0);
        ignis__array_drop(call, gradient);
        return ignis__array_adopt(call, made);
    }
    if (ignis__tensor_numel(tensor) != 1) {
        ignis__fail(IGNIS_DIAG_BACKWARD_NOT_SCALAR, call, "a tensor of shape %s needs grad_output; without it there has to be one element",
                    ignis__shape_write(&tensor->shape).text);
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

static ignis_status ignis__backward_held(const char *call, ignis__tensor *tensor, ignis_array grad_output, bool retains)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__standing standing = ignis__tensor_standing(tensor);
    ignis__walk walk;
    ignis__array *gradient;
    bool ok, runs, known;
    if (standing.walked)
        return ignis__fail(IGNIS_DIAG_BACKWARD_TWICE, call,
                           "the operations that made this tensor were released by an earlier backward or ignis_tape_clear; "
                           "run them again, or keep them with ignis_backward_retain");
    if (!standing.requires_grad)
        return ignis__fail(IGNIS_DIAG_NO_GRAD_WANTED, call,
                           "the tensor does not require a gradient, and none of the tensors that it was made of does");
    if (standing.node && standing.tape != thread->tape)
        return ignis__fail(IGNIS_DIAG_TAPE_OF_OTHER, call, "the tensor was recorded by another thread, whose tape it belongs to");
    if (thread->walk && !thread->walk->at)
        return ignis__fail(IGNIS_DIAG_TAPE_WALKED, call, "a backward of this thread is under way, outside of its backward functions");
    /* inside a backward function, what is older than its entry waits for the enclosing walk */
    runs = standing.node && (!thread->walk || standing.node->serial > thread->walk->at->serial);
    known = runs && !grad_output.id && standing.node->knows_one;
    gradient = ignis__backward_start(call, tensor, grad_output, known);
    if (!gradient)
        return ignis__failed();
    memset(&walk, 0, sizeof walk);
    walk.call = call;
    walk.tape = thread->tape;
    walk.retains = retains;
    walk.outer = thread->walk;
    walk.serial = ignis__atomic_add(&ignis__walk_serials, 1);
    walk.one = known ? gradient->slot.handle : 0;
    thread->walk = &walk;
    thread->walk_serial = walk.serial;
    ok = runs ? ignis__walk_run(&walk, standing.node, gradient) : ignis__walk_give(&walk, tensor, gradient, false);
    ok = ignis__walk_end(&walk, ok);
    thread->walk = walk.outer;
    thread->walk_serial = walk.outer ? walk.outer->serial : 0;
    return ok ? IGNIS_OK : ignis__failed();
}

static ignis_status ignis__backward(const char *call, ignis_tensor handle, ignis_array grad_output, bool retains)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status;
    if (!tensor)
        return ignis__failed();
    status = ignis__backward_held(call, tensor, grad_output, retains);
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
