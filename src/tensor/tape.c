/*  >>tape - records operations: nodes, saved arrays, and the arrays that a checkpoint's function reads

    A node is made, filled and then appended to the tape of its thread as the maker of its output.
    Uses: node, tensor. Knows no operation.
    Invariant: a node is on the tape only with its output, and the output is new.
    Locks: tape->lock for the links, a tensor's lock for its node. */

#include "room.h"

/*  Holds once more what the caller holds already. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__tensor_hold_again(ignis__tensor *held)
{
    ignis__atomic_add(&held->slot.state, 1);
}

/*  Returns the calling thread's tape, made at its first use. */
IGNIS__PRIVATE ignis__tape *ignis__tape_now(const char *call)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__tape *tape = thread->tape;
    if (tape)
        return tape;
    tape = (ignis__tape *)ignis__alloc_for(call, sizeof *tape);
    if (!tape)
        return NULL;
    ignis__mutex_init(&tape->lock);
    ignis__mutex_lock(&ignis__tapes.lock);
    tape->number = ++ignis__tapes.numbers;
    tape->next = ignis__tapes.first;
    ignis__tapes.first = tape;
    ignis__mutex_unlock(&ignis__tapes.lock);
    thread->tape = tape;
    ignis__this_thread.tape = tape->number;
    ignis__tensors_at_exit();
    return tape;
}

IGNIS__INLINE IGNIS__PRIVATE bool ignis__recording(void) { return ignis__tensor_thread_now()->no_grad == 0; }

/*  Claims what a node keeps of a held array for its backward function. An array that lives by references gets
    one more. The caller's own array is kept through a view: it may be freed at any time. NULL, and reported,
    if out of memory. */
IGNIS__INLINE IGNIS__PRIVATE ignis__array *ignis__array_keep(const char *call, ignis__array *array)
{
    bool kept;
    ignis__mutex_lock(&array->slot.lock);
    kept = array->owned_by_refs && ignis__pool_live(array);
    if (kept) {
        array->ref_count++;
        ignis__atomic_add(&array->slot.state, 1);
    }
    ignis__array_unlock(array);
    return kept ? array : ignis__array_adopt(call, ignis__array_view(call, array, &array->shape, array->numel, 0));
}

/*  Discards a node that did not get onto the tape. */
IGNIS__COLD IGNIS__PRIVATE void ignis__node_discard(const char *call, ignis__node *node)
{
    ignis__tensor *dead = NULL;
    ignis__node_destroy(call, node, &dead);
    ignis__tensors_destroy_chain(call, dead);
}

/*  Makes a node for an operation on held inputs, with room for what the rule saves and for `kept_count` arrays more;
    it is on no tape yet. tape_states may be NULL: they are read here. NULL, and reported, if it cannot be recorded on
    this thread's tape, or if out of memory. */
IGNIS__PRIVATE ignis__node *ignis__node_make(const char *call, int count, ignis__tensor *const *inputs,
                                             const ignis__tape_state *tape_states, const ignis_rule *rule,
                                             int kept_count)
{
    ignis__tape *tape = ignis__tape_now(call);
    int saved_count = rule->saved_count + kept_count;
    size_t saved_size = (sizeof(ignis__array *) + sizeof(uint64_t)) * (size_t)saved_count;
    size_t size =
        sizeof(ignis__node) + (sizeof(ignis__tensor *) + sizeof(bool)) * (size_t)count + saved_size + rule->params_size;
    ignis__node *node = tape ? (ignis__node *)ignis__alloc_for(call, size) : NULL;
    int i;
    if (!node)
        return NULL;
    node->tape = tape;
    node->name = rule->name;
    node->backward_fn = rule->backward_fn;
    node->vjp_fn = rule->vjp_fn;
    node->kept_count = kept_count;
    node->user_data = rule->user_data;
    node->inputs = (ignis__tensor **)(void *)(node + 1);
    node->saved = (ignis__array **)(void *)(node->inputs + count);
    node->versions = (uint64_t *)(void *)(node->saved + saved_count);
    node->params = node->versions + saved_count;
    node->needed = (bool *)node->params + rule->params_size;
    if (rule->params_size)
        memcpy(node->params, rule->params, rule->params_size);
    for (i = 0; i < count; i++) {
        ignis__tape_state tape_state = tape_states ? tape_states[i] : ignis__tensor_tape_state(inputs[i]);
        if (tape_state.node && tape_state.tape != tape) {
            ignis__fail(IGNIS_DIAG_TAPE_OF_OTHER, call,
                        "input %d was recorded by another thread, whose tape it belongs to; ignis_detach it", i);
            ignis__node_discard(call, node);
            return NULL;
        }
        ignis__tensor_hold_again(inputs[i]);
        if (!ignis__atomic_load(&inputs[i]->read))
            ignis__atomic_store(&inputs[i]->read, 1);
        node->inputs[node->input_count++] = inputs[i];
        node->needed[i] = tape_state.requires_grad;
    }
    return node;
}

/*  Saves a claimed array in a node. False for NULL. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__node_save(ignis__node *node, ignis__array *claimed)
{
    if (!claimed)
        return false;
    node->versions[node->saved_count] = ignis__array_version(claimed);
    node->saved[node->saved_count++] = claimed;
    return true;
}

/*  Makes a tensor the result of a node. The tensor is locked, or seen by nobody else. */
IGNIS__PRIVATE void ignis__tensor_result(ignis__tensor *output, ignis__node *node)
{
    output->requires_grad = true;
    output->leaf = false;
    output->node = node;
    node->output = output;
}

/*  Appends a node to its tape. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__tape_append(ignis__node *node)
{
    ignis__tape *tape = node->tape;
    ignis__mutex_lock(&tape->lock);
    node->serial = ++tape->serials;
    node->before = tape->last;
    if (tape->last)
        tape->last->after = node;
    else
        tape->first = node;
    tape->last = node;
    tape->length++;
    ignis__mutex_unlock(&tape->lock);
}

/*  Makes a held tensor the result of a node, which goes onto the tape. False, and reported, if the tensor is
    not new. */
static bool ignis__tape_claim_output(const char *call, ignis__tensor *output, ignis__node *node)
{
    const char *what = NULL;
    bool read;
    ignis__mutex_lock(&output->slot.lock);
    read = ignis__atomic_load(&output->read) != 0;
    if (output->node || output->consumed || output->requires_grad)
        what = output->node ? output->node->name : "an operation";
    else if (!read)
        ignis__tensor_result(output, node);
    ignis__mutex_unlock(&output->slot.lock);
    if (what)
        ignis__fail(IGNIS_DIAG_RECORDED_TWICE, call,
                    "output is the result of '%s' already, or a leaf that requires a gradient; record a new tensor",
                    what);
    else if (read)
        ignis__fail(IGNIS_DIAG_RECORDED_TWICE, call,
                    "output is an input of an operation that is recorded; record a new tensor");
    else
        ignis__tape_append(node);
    return !what && !read;
}

/*  Records an operation on held tensors. The caller has checked that one requires a gradient and that
    recording is on. Returns the node, valid while the output is held; NULL after a failure. */
IGNIS__PRIVATE ignis__node *ignis__tape_add(const char *call, ignis__tensor *output, int count,
                                            ignis__tensor *const *inputs, const ignis_rule *rule)
{
    int kept_count = rule->vjp_fn ? count : 0;
    ignis__node *node = ignis__node_make(call, count, inputs, NULL, rule, kept_count);
    bool ok = true;
    int i;
    if (node)
        node->keeps_inputs = kept_count > 0;
    for (i = 0; node && ok && i < rule->saved_count + kept_count; i++) {
        ignis__array *array = i < rule->saved_count ? ignis__array_hold(call, rule->saved[i])
                                                    : ignis__tensor_array(call, inputs[i - rule->saved_count]);
        ok = array && ignis__node_save(node, ignis__array_keep(call, array));
        if (array)
            ignis__array_drop(call, array);
    }
    if (node && ok && ignis__tape_claim_output(call, output, node))
        return node;
    if (node)
        ignis__node_discard(call, node);
    return NULL;
}

IGNIS__PRIVATE bool ignis__checkpoint_inputs_add(const char *call, ignis__checkpoint_inputs *reads,
                                                 const ignis__array *array)
{
    if (reads->count + 1 >= reads->capacity) {
        int capacity = reads->capacity ? 2 * reads->capacity : 64;
        size_t size = (sizeof *reads->arrays + sizeof *reads->versions) * (size_t)capacity;
        ignis_array *arrays = (ignis_array *)ignis__alloc_for(call, size);
        uint64_t *versions;
        if (!arrays)
            return false;
        versions = (uint64_t *)(void *)(arrays + capacity);
        if (reads->count) {
            memcpy(arrays, reads->arrays, sizeof *arrays * (size_t)reads->count);
            memcpy(versions, reads->versions, sizeof *versions * (size_t)reads->count);
        }
        ignis__free(reads->arrays);
        reads->arrays = arrays;
        reads->versions = versions;
        reads->capacity = capacity;
    }
    reads->arrays[reads->count].id = array->slot.handle;
    reads->versions[reads->count++] = ignis__array_version(array);
    return true;
}

/*  Notes that an operation is about to read an array. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__checkpoint_inputs_read(const char *call, const ignis__array *array)
{
    ignis__checkpoint_inputs *reads = ignis__tensor_thread_now()->checkpoint_inputs;
    int i;
    if (!reads || array->id > reads->newest)
        return true;
    for (i = 0; i < reads->count; i++)
        if (reads->arrays[i].id == array->slot.handle)
            return true;
    return ignis__checkpoint_inputs_add(call, reads, array);
}

/*  Notes that an operation has an input that requires a gradient. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__checkpoint_inputs_use(const char *call, ignis__tensor *tensor,
                                                               const ignis__array *array)
{
    ignis__checkpoint_inputs *reads = ignis__tensor_thread_now()->checkpoint_inputs;
    ignis__tensor **grown;
    int i;
    if (!reads || array->id > reads->newest)
        return true;
    for (i = 0; i < reads->use_count; i++)
        if (reads->uses[i] == tensor)
            return true;
    if (reads->use_count == reads->use_capacity) {
        int capacity = reads->use_capacity ? 2 * reads->use_capacity : 16;
        grown = (ignis__tensor **)ignis__alloc_for(call, sizeof(ignis__tensor *) * (size_t)capacity);
        if (!grown)
            return false;
        if (reads->use_count)
            memcpy(grown, reads->uses, sizeof *grown * (size_t)reads->use_count);
        ignis__free(reads->uses);
        reads->uses = grown;
        reads->use_capacity = capacity;
    }
    ignis__tensor_hold_again(tensor);
    reads->uses[reads->use_count++] = tensor;
    return true;
}

IGNIS_API ignis_status ignis_tape_record(ignis_tensor output_handle, const ignis_tensor *handles, int count,
                                         const ignis_rule *rule)
{
    static const char call[] = "ignis_tape_record";
    ignis__tensor *output, *inputs[IGNIS__MAX_INPUTS];
    bool wanted = false, ok = true;
    int i, held = 0;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (!rule || !rule->backward_fn || !rule->name)
        return ignis__fail_null(call, !rule ? "rule" : !rule->name ? "rule->name" : "rule->backward_fn");
    if (count < 0 || count > IGNIS__MAX_INPUTS)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, outside 0 to %d", count, IGNIS__MAX_INPUTS);
    if (rule->saved_count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "rule->saved_count is %d, below 0", rule->saved_count);
    if ((count > 0 && !handles) || (rule->saved_count > 0 && !rule->saved) || (rule->params_size > 0 && !rule->params))
        return ignis__fail_null(call, count > 0 && !handles                   ? "inputs"
                                      : rule->saved_count > 0 && !rule->saved ? "rule->saved"
                                                                              : "rule->params");
    if ((output = ignis__tensor_hold(call, output_handle)) == NULL)
        return ignis__failed();
    for (; ok && held < count; held += ok) {
        inputs[held] = ignis__tensor_hold(call, handles[held]);
        ok = inputs[held] != NULL;
        if (ok && inputs[held] == output) {
            ok = ignis__fail_false(IGNIS_DIAG_RECORDED_TWICE, call, "output is input %d itself; record a new tensor",
                                   held);
            ignis__tensor_drop(call, inputs[held]);
        }
        wanted = wanted || (ok && ignis__tensor_requires_grad(inputs[held]));
    }
    for (i = 0; ok && i < held; i++) {
        ignis__array *array = ignis__tensor_array(call, inputs[i]);
        ok = array && ignis__checkpoint_inputs_read(call, array) &&
             (!ignis__tensor_requires_grad(inputs[i]) || ignis__checkpoint_inputs_use(call, inputs[i], array));
        if (array)
            ignis__array_drop(call, array);
    }
    if (ok && wanted)
        ignis__tensor_thread_now()->saw_trainable = true;
    if (ok && wanted && ignis__recording()) {
        if (!ignis__dtype_is_float(output->dtype))
            ok = ignis__fail_false(IGNIS_DIAG_GRAD_OF_INTEGERS, call, "a tensor of %s cannot require a gradient",
                                   ignis__dtypes[output->dtype].name);
        ok = ok && ignis__tape_add(call, output, count, inputs, rule);
    }
    for (i = 0; i < held; i++)
        ignis__tensor_drop(call, inputs[i]);
    ignis__tensor_drop(call, output);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_no_grad_begin(void)
{
    if (!ignis__enter("ignis_no_grad_begin"))
        return IGNIS_ERROR_NOT_SETUP;
    ignis__tensor_thread_now()->no_grad++;
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_no_grad_end(void)
{
    static const char call[] = "ignis_no_grad_end";
    ignis__tensor_thread *thread;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    thread = ignis__tensor_thread_now();
    if (thread->no_grad == thread->no_grad_floor) {
        thread->unbalanced = true;
        return ignis__fail(IGNIS_DIAG_SCOPE_ORDER, call, "ignis_no_grad_begin was not called%s",
                           thread->no_grad ? " in the function that is running now" : "");
    }
    thread->no_grad--;
    return IGNIS_OK;
}

IGNIS_API ignis_tensor ignis_detach(ignis_tensor handle)
{
    static const char call[] = "ignis_detach";
    ignis_tensor detached = IGNIS__ZERO;
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis__array *array;
    if (!tensor)
        return detached;
    array = ignis__tensor_array(call, tensor);
    if (array) {
        detached = ignis__tensor_over(call, array, false);
        ignis__array_drop(call, array);
    }
    ignis__tensor_drop(call, tensor);
    return detached;
}

/*  Adds the nodes that have saved an array to a text. Returns their number. */
IGNIS__COLD IGNIS__PRIVATE int ignis__tape_list_claims(ignis__string_writer *text, const ignis__array *array)
{
    ignis__tape *tape;
    const ignis__node *node;
    int count = 0, i;
    ignis__mutex_lock(&ignis__tapes.lock);
    for (tape = ignis__tapes.first; tape; tape = tape->next) {
        ignis__mutex_lock(&tape->lock);
        for (node = tape->first; node; node = node->after) {
            int before = count;
            for (i = 0; i < node->saved_count; i++)
                count += node->saved[i] == array;
            if (count > before)
                ignis__string_add(text, ", the gradient of '%s' needs it", node->name);
        }
        ignis__mutex_unlock(&tape->lock);
    }
    ignis__mutex_unlock(&ignis__tapes.lock);
    return count;
}
