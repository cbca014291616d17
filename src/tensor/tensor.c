/*  >>tensor.tensor - tensors over arrays, and the scopes' lists of a thread

    Makes tensors, gives them handles in the current scope, enters them for an operation.
    Uses: node, thread; the room array. Invariant: a tensor that was not published is seen by its maker alone. */

#include "room.h"

IGNIS__PRIVATE uint64_t *ignis__scope_tensors(void) { return (uint64_t *)ignis__this_thread.attached[0]; }
IGNIS__PRIVATE ignis__scope_mark *ignis__scope_marks(void)
{
    return (ignis__scope_mark *)ignis__this_thread.attached[1];
}

/*  Makes room for one more element at the end of one of the thread's lists. */
IGNIS__PRIVATE bool ignis__scope_grow(const char *call, int which, int *capacity, int count, size_t size)
{
    int wanted = *capacity ? *capacity * 2 : 64;
    void *grown;
    if (count < *capacity)
        return true;
    grown = realloc(ignis__this_thread.attached[which], (size_t)wanted * size);
    if (!grown) {
        ignis__fail_host_memory(call, (size_t)wanted * size);
        return false;
    }
    ignis__this_thread.attached[which] = grown;
    ignis__tensors_at_exit();
    *capacity = wanted;
    return true;
}

/* --- tensors ---------------------------------------------------------------------------------------------------------
   */

IGNIS__ONE_COPY IGNIS__PRIVATE ignis_tensor ignis__no_tensor(void)
{
    ignis_tensor none = IGNIS__ZERO;
    return none;
}

IGNIS__PRIVATE bool ignis__dtype_is_float(ignis_dtype dtype) { return dtype >= IGNIS_F16 && dtype <= IGNIS_F64; }

IGNIS__ONE_COPY IGNIS__PRIVATE ignis__tensor *ignis__tensor_hold(const char *call, ignis_tensor handle)
{
    return (ignis__tensor *)ignis__handle_hold(call, &ignis__tensors, handle.id);
}

/*  Returns the tape state of a locked tensor. */
static ignis__tape_state ignis__tape_state_of(const ignis__tensor *tensor)
{
    ignis__tape_state tape_state;
    tape_state.node = tensor->node;
    tape_state.tape = tensor->node ? tensor->node->tape : NULL;
    tape_state.requires_grad = tensor->requires_grad;
    tape_state.leaf = tensor->leaf;
    tape_state.consumed = tensor->consumed;
    return tape_state;
}

IGNIS__ONE_COPY IGNIS__PRIVATE ignis__tape_state ignis__tensor_tape_state(ignis__tensor *tensor)
{
    ignis__tape_state tape_state;
    ignis__mutex_lock(&tensor->slot.lock);
    tape_state = ignis__tape_state_of(tensor);
    ignis__mutex_unlock(&tensor->slot.lock);
    return tape_state;
}

IGNIS__PRIVATE bool ignis__tensor_requires_grad(ignis__tensor *tensor)
{
    return ignis__tensor_tape_state(tensor).requires_grad;
}

/*  Holds the array of a held tensor, and reads its tape state. NULL, and reported, if another thread has
    released the tensor. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__tensor_enter(const char *call, ignis__tensor *tensor,
                                                                 ignis__tape_state *tape_state)
{
    ignis__array *array = NULL;
    ignis__mutex_lock(&tensor->slot.lock);
    *tape_state = ignis__tape_state_of(tensor);
    if (tensor->data)
        array = (ignis__array *)ignis__pool_hold(&ignis__arrays, tensor->data->slot.handle);
    ignis__mutex_unlock(&tensor->slot.lock);
    if (!array)
        ignis__fail(IGNIS_DIAG_TENSOR_FREED, call, "a tensor was released by another thread");
    return array;
}

IGNIS__PRIVATE ignis__array *ignis__tensor_array(const char *call, ignis__tensor *tensor)
{
    ignis__tape_state tape_state;
    return ignis__tensor_enter(call, tensor, &tape_state);
}

/*  Makes a tensor over an array, and takes over one claim of it. Only the maker sees it until
    ignis__tensor_publish. NULL if out of memory. */
IGNIS__PRIVATE ignis__tensor *ignis__tensor_make(const char *call, ignis__array *array, bool requires_grad)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__tensor *tensor;
    if (thread->scope_count &&
        !ignis__scope_grow(call, 0, &thread->tensor_capacity, thread->tensor_count, sizeof(uint64_t)))
        return NULL;
    tensor = (ignis__tensor *)ignis__pool_take_zeroed(call, &ignis__tensors);
    if (!tensor)
        return NULL;
    tensor->data = array;
    tensor->made_in = thread->pass_serial;
    tensor->requires_grad = requires_grad;
    tensor->leaf = true;
    tensor->shape = array->shape;
    tensor->dtype = array->dtype;
    tensor->device = array->storage->device;
    return tensor;
}

/*  Gives a tensor that was just made its handle, in the current scope. */
IGNIS__INLINE IGNIS__PRIVATE ignis_tensor ignis__tensor_publish(ignis__tensor *tensor)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis_tensor handle;
    handle.id = ignis__pool_publish(&ignis__tensors, tensor);
    if (thread->scope_count)
        ignis__scope_tensors()[thread->tensor_count++] = handle.id;
    return handle;
}

/*  Makes the tensor of a new array that nobody else has; the array ends with it. A handle of 0 gives none. */
IGNIS__PRIVATE ignis_tensor ignis__tensor_adopt(const char *call, ignis_array made, bool requires_grad)
{
    ignis__array *array = ignis__array_adopt(call, made);
    ignis__tensor *tensor = NULL;
    if (!array)
        return ignis__no_tensor();
    if (requires_grad && !ignis__dtype_is_float(array->dtype))
        ignis__fail(IGNIS_DIAG_GRAD_OF_INTEGERS, call, "a tensor of %s cannot require a gradient",
                    ignis__dtypes[array->dtype].name);
    else
        tensor = ignis__tensor_make(call, array, requires_grad);
    if (tensor)
        return ignis__tensor_publish(tensor);
    ignis__array_unclaim(call, array);
    return ignis__no_tensor();
}

IGNIS__COLD IGNIS__PRIVATE ignis_array ignis__tensor_array_create(const char *call, ignis_shape shape,
                                                                  const ignis_tensor_desc *desc)
{
    ignis_array_desc array = IGNIS__ZERO;
    array.shape = shape;
    if (desc) {
        array.dtype = desc->dtype;
        array.device = desc->device;
        array.tag = desc->tag;
    }
    return ignis__array_create(call, &array);
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_tensor_from_host(const void *data, ignis_shape shape,
                                                          const ignis_tensor_desc *desc)
{
    static const char call[] = "ignis_tensor_from_host";
    ignis_tensor none = IGNIS__ZERO;
    ignis_array made;
    ignis__array *array;
    ignis_dtype host;
    int64_t count;
    if (!ignis__enter(call))
        return none;
    made = ignis__tensor_array_create(call, shape, desc);
    if (!made.id)
        return none;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
    count = desc && desc->host_count ? desc->host_count : array->numel;
    host = desc && desc->host_dtype                                  ? desc->host_dtype
           : array->dtype == IGNIS_F16 || array->dtype == IGNIS_BF16 ? IGNIS_F32
                                                                     : array->dtype;
    if (!ignis__dtype_valid(call, host) ||
        !ignis__transfer_check(call, array, data, "data", count, array->numel, "elements") ||
        ignis__array_from_host(call, array, data, host) != IGNIS_OK)
        ignis__array_discard(call, &made);
    ignis__array_drop(call, array);
    return ignis__tensor_adopt(call, made, desc && desc->requires_grad);
}

/*  Makes a tensor over the memory of an array, through an array of its own. */
IGNIS__PRIVATE ignis_tensor ignis__tensor_over(const char *call, ignis__array *array, bool requires_grad)
{
    return ignis__tensor_adopt(call, ignis__array_view(call, array, &array->shape, array->numel, 0), requires_grad);
}

IGNIS_API ignis_tensor ignis_tensor_from_array(ignis_array handle, bool requires_grad)
{
    static const char call[] = "ignis_tensor_from_array";
    ignis_tensor tensor = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array)
        return tensor;
    tensor = ignis__tensor_over(call, array, requires_grad);
    ignis__array_drop(call, array);
    return tensor;
}

IGNIS__COLD static ignis_tensor ignis__tensor_filled(const char *call, ignis_shape shape, const ignis_tensor_desc *desc,
                                                     double value)
{
    ignis_array made;
    if (!ignis__enter(call))
        return ignis__no_tensor();
    made = ignis__tensor_array_create(call, shape, desc);
    if (made.id && (value == 0 ? ignis__array_set_zero(call, made) : ignis__array_set(call, made, value)) != IGNIS_OK)
        ignis__array_discard(call, &made);
    return ignis__tensor_adopt(call, made, desc && desc->requires_grad);
}

IGNIS_API ignis_tensor ignis_tensor_zeros(ignis_shape shape, const ignis_tensor_desc *desc)
{
    return ignis__tensor_filled("ignis_tensor_zeros", shape, desc, 0);
}

IGNIS_API ignis_tensor ignis_tensor_ones(ignis_shape shape, const ignis_tensor_desc *desc)
{
    return ignis__tensor_filled("ignis_tensor_ones", shape, desc, 1);
}
