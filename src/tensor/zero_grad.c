/*  >>tensor.zero_grad - sets, zeroes and drops gradients, and clears the tape

    A gradient keeps its memory: graphs and optimizers have its address. Dropping it frees the memory.
    Uses: gradient, tape. Locks: a leaf is entered while its gradient changes. */

#include "room.h"

/*  Makes new memory for the gradient of a held tensor, claimed. NULL, and reported, on failure. */
static ignis__array *ignis__gradient_make(const char *call, ignis__tensor *tensor)
{
    ignis__array *data = ignis__tensor_array(call, tensor), *made;
    if (!data)
        return NULL;
    made = ignis__array_adopt(call, ignis__array_create_like(call, data, data->dtype));
    ignis__array_drop(call, data);
    return made;
}

/*  Copies an array (NULL: zeros) to the gradient of a held tensor, in its memory if it has some. */
static bool ignis__gradient_set(const char *call, ignis__tensor *tensor, ignis__array *values)
{
    ignis__array *grad;
    ignis_array handle;
    bool ok, fresh;
    ignis__leaf_enter(tensor);
    fresh = !tensor->grad;
    grad = fresh ? ignis__gradient_make(call, tensor) : tensor->grad;
    ok = grad && (fresh || ignis__gradient_wait(call, grad));
    if (ok && !values) {
        handle.id = grad->slot.handle;
        ok = ignis__array_set_zero(call, handle) == IGNIS_OK;
    } else if (ok && values != grad) {
        ok = ignis__array_copy_bytes(call, grad, 0, values);
    }
    if (ok && fresh)
        ignis__gradient_install(call, tensor, grad);
    ignis__leaf_leave(tensor);
    if (grad && fresh && !ok)
        ignis__array_unclaim(call, grad);
    return ok;
}

/*  Sets the piece of a gradient to zero that a rank keeps, if ranks share it. *own: the tensor has a gradient of its
    own, too, or ranks do not share it. */
static bool ignis__zero_piece(const char *call, ignis__tensor *tensor, bool *own)
{
    ignis__grad_group *group;
    bool ok;
    ignis__mutex_lock(&tensor->slot.lock);
    group = tensor->group && tensor->group->sharing && tensor->group->sharing->zero_fn ? tensor->group : NULL;
    if (group && !ignis__pool_hold_more(group->owner))
        group = NULL; /* it is just ending */
    *own = !group || tensor->grad;
    ignis__mutex_unlock(&tensor->slot.lock);
    if (!group)
        return true;
    ok = group->sharing->zero_fn(group, call, tensor);
    return group->sharing->drop_fn(group, call) && ok;
}

IGNIS__PRIVATE ignis_status ignis__zero_grad(const char *call, ignis__tensor *tensor)
{
    bool own;
    if (!ignis__tensor_requires_grad(tensor))
        return ignis__fail(IGNIS_DIAG_NO_GRAD_WANTED, call, "the tensor does not require a gradient");
    if (!ignis__zero_piece(call, tensor, &own))
        return ignis__failed();
    if (!own)
        return IGNIS_OK;
    return ignis__gradient_set(call, tensor, NULL) ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_zero_grad(ignis_tensor handle)
{
    static const char call[] = "ignis_zero_grad";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status;
    if (!tensor)
        return ignis__failed();
    status = ignis__zero_grad(call, tensor);
    ignis__tensor_drop(call, tensor);
    return status;
}

/*  Drops the gradient of a held tensor. False if it is in memory that other ranks read at the end of each
    pass; then it stays. */
IGNIS__PRIVATE bool ignis__gradient_drop(const char *call, ignis__tensor *tensor)
{
    ignis__array *before = NULL;
    bool grouped;
    ignis__leaf_enter(tensor);
    ignis__mutex_lock(&tensor->slot.lock);
    grouped = tensor->group != NULL;
    if (!grouped) {
        before = tensor->grad;
        tensor->grad = NULL;
    }
    ignis__mutex_unlock(&tensor->slot.lock);
    ignis__leaf_leave(tensor);
    if (before)
        ignis__array_unclaim(call, before);
    return !grouped;
}

IGNIS__COLD IGNIS_API ignis_status ignis_tensor_set_grad(ignis_tensor handle, ignis_array grad)
{
    static const char call[] = "ignis_tensor_set_grad";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis__array *values = NULL;
    bool ok;
    if (!tensor)
        return ignis__failed();
    ok = ignis__tensor_requires_grad(tensor);
    if (!ok)
        ignis__fail(IGNIS_DIAG_NO_GRAD_WANTED, call, "the tensor, of %s, does not require a gradient",
                    ignis__dtypes[tensor->dtype].name);
    if (ok && grad.id)
        ok = (values = ignis__gradient_hold(call, tensor, grad, "grad")) != NULL;
    if (ok && values)
        ok = ignis__gradient_set(call, tensor, values);
    else if (ok && !(ok = ignis__gradient_drop(call, tensor)))
        ignis__fail(IGNIS_DIAG_GRADIENT_SHARED, call,
                    "the tensor %s is a parameter of data-parallel training; use ignis_zero_grad",
                    ignis__shape_write(&tensor->shape).text);
    if (values)
        ignis__array_drop(call, values);
    ignis__tensor_drop(call, tensor);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS__PRIVATE void ignis__tape_clear(const char *call, ignis__tape *tape)
{
    ignis__node *node;
    /* An output without handle ends with its node, hence the hold. */
    while (tape && (node = ignis__node_before(tape, NULL, 0)) != NULL) {
        ignis__tensor *output = node->output;
        ignis__node_consume(call, node);
        ignis__tensor_drop(call, output);
    }
}

IGNIS__COLD IGNIS_API ignis_status ignis_tape_clear(void)
{
    static const char call[] = "ignis_tape_clear";
    const uint64_t failures = ignis__failures();
    ignis__tensor_thread *thread;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    thread = ignis__tensor_thread_now();
    if (thread->pass)
        return ignis__fail(IGNIS_DIAG_TAPE_WALKED, call, "called inside ignis_backward, which still uses the tape");
    ignis__tape_clear(call, thread->tape);
    return ignis__ended(failures, true);
}

IGNIS_API int64_t ignis_tape_length(void)
{
    ignis__tape *tape;
    int64_t length;
    if (!ignis__enter("ignis_tape_length"))
        return -1;
    tape = ignis__tensor_thread_now()->tape;
    if (!tape)
        return 0;
    ignis__mutex_lock(&tape->lock);
    length = tape->length;
    ignis__mutex_unlock(&tape->lock);
    return length;
}
