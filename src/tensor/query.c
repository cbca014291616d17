/*  >>tensor.query - what a tensor is: data, shape, values on the host, text, and its release

    Uses: tensor, node; the rooms array and kernel. Reading values waits for the current stream.
    Locks: a tensor's own, for its data, gradient and node. */

#include "room.h"

/*  Returns the array of a tensor by handle, unheld, for ignis_tensor_data. */
static ignis_array ignis__tensor_array_handle(const char *call, ignis_tensor handle, bool grad)
{
    ignis_array result = IGNIS__ZERO;
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    if (!tensor)
        return result;
    ignis__mutex_lock(&tensor->slot.lock);
    if (!grad && tensor->data)
        result.id = tensor->data->slot.handle;
    if (grad && tensor->grad)
        result.id = tensor->grad->slot.handle;
    ignis__mutex_unlock(&tensor->slot.lock);
    ignis__tensor_drop(call, tensor);
    return result;
}

IGNIS_API ignis_array ignis_tensor_data(ignis_tensor tensor)
{
    return ignis__tensor_array_handle("ignis_tensor_data", tensor, false);
}

IGNIS_API ignis_array ignis_tensor_grad(ignis_tensor tensor)
{
    return ignis__tensor_array_handle("ignis_tensor_grad", tensor, true);
}

IGNIS_API ignis_status ignis_tensor_query(ignis_tensor handle, ignis_tensor_info *info)
{
    static const char call[] = "ignis_tensor_query";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status = IGNIS_OK;
    if (!tensor)
        return ignis__failed();
    if (!info) {
        status = ignis__fail_null(call, "info");
    } else {
        memset(info, 0, sizeof *info);
        ignis__mutex_lock(&tensor->slot.lock);
        info->shape = tensor->shape;
        info->dtype = tensor->dtype;
        info->device = ignis__device_ordinal(tensor->device);
        info->requires_grad = tensor->requires_grad;
        info->is_leaf = tensor->leaf;
        info->data.id = tensor->data ? tensor->data->slot.handle : 0;
        info->grad.id = tensor->grad ? tensor->grad->slot.handle : 0;
        info->operation = tensor->node ? tensor->node->name : "";
        ignis__mutex_unlock(&tensor->slot.lock);
    }
    ignis__tensor_drop(call, tensor);
    return status;
}

IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__tensor_read(const char *call, ignis__tensor *tensor, void *out,
                                                           ignis_dtype dtype, int64_t count)
{
    ignis__array *array = ignis__tensor_array(call, tensor);
    ignis_status status;
    if (!array)
        return ignis__failed();
    if (dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    if (ignis__dtype_valid(call, dtype) &&
        ignis__transfer_check(call, array, out, "out", count, array->numel, "elements"))
        status = ignis__array_to_host(call, array, out, dtype);
    else
        status = ignis__failed();
    ignis__array_drop(call, array);
    return status;
}

IGNIS__COLD IGNIS_API ignis_status ignis_tensor_to_host(ignis_tensor handle, void *out, ignis_dtype dtype,
                                                        int64_t count)
{
    static const char call[] = "ignis_tensor_to_host";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_status status;
    if (!tensor)
        return ignis__failed();
    status = ignis__tensor_read(call, tensor, out, dtype, count);
    ignis__tensor_drop(call, tensor);
    return status;
}

IGNIS__INLINE IGNIS__PRIVATE int64_t ignis__tensor_numel(const ignis__tensor *tensor)
{
    int64_t numel = 1;
    int i;
    for (i = 0; i < tensor->shape.ndim; i++)
        numel *= tensor->shape.dim[i];
    return numel;
}

IGNIS_API ignis_shape ignis_tensor_shape(ignis_tensor handle)
{
    static const char call[] = "ignis_tensor_shape";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis_shape shape = IGNIS__ZERO;
    if (!tensor)
        return shape;
    shape = tensor->shape;
    ignis__tensor_drop(call, tensor);
    return shape;
}

IGNIS_API int64_t ignis_tensor_numel(ignis_tensor handle)
{
    static const char call[] = "ignis_tensor_numel";
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    int64_t numel;
    if (!tensor)
        return -1;
    numel = ignis__tensor_numel(tensor);
    ignis__tensor_drop(call, tensor);
    return numel;
}

IGNIS__COLD IGNIS_API int ignis_tensor_to_string(ignis_tensor handle, char *out, size_t capacity)
{
    static const char call[] = "ignis_tensor_to_string";
    ignis__tensor *tensor;
    ignis__string_writer text;
    char none[1];
    if (!ignis__enter(call) || (capacity && !ignis__check_not_null(call, "out", out)))
        return -1;
    ignis__string_begin(&text, out ? out : none, capacity);
    tensor = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, handle.id);
    if (tensor) {
        ignis__mutex_lock(&tensor->slot.lock);
        ignis__string_add(&text, "tensor %s %s on device %d", ignis__shape_write(&tensor->shape).text,
                          ignis__dtypes[tensor->dtype].name, ignis__device_ordinal(tensor->device));
        if (tensor->node)
            ignis__string_add(&text, ", result of %s", tensor->node->name);
        else
            ignis__string_add(&text, ", %s", tensor->leaf ? "leaf" : "result of an operation that was released");
        if (tensor->leaf && tensor->requires_grad)
            ignis__string_add(&text, ", requires a gradient");
        if (tensor->data && *tensor->data->tag)
            ignis__string_add(&text, ", '%s'", tensor->data->tag);
        ignis__mutex_unlock(&tensor->slot.lock);
        ignis__tensor_drop(call, tensor);
    } else {
        ignis__string_add(&text, "tensor handle 0x%llx (freed)", (unsigned long long)handle.id);
    }
    return (int)text.length;
}

/*  Reads the one element of a tensor as it is stored. *dtype is its type, IGNIS_DTYPE_DEFAULT on failure. */
IGNIS__COLD static int64_t ignis__tensor_item(const char *call, ignis_tensor handle, ignis_dtype *dtype)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    int64_t bits = 0;
    *dtype = IGNIS_DTYPE_DEFAULT;
    if (!tensor)
        return bits;
    if (ignis__tensor_numel(tensor) != 1)
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "a tensor of one element is needed, this one is %s",
                    ignis__shape_write(&tensor->shape).text);
    else if (ignis__tensor_read(call, tensor, &bits, ignis__dtype_is_int(tensor->dtype) ? IGNIS_I64 : IGNIS_F64, 1) ==
             IGNIS_OK)
        *dtype = tensor->dtype;
    ignis__tensor_drop(call, tensor);
    return bits;
}

IGNIS__COLD IGNIS_API double ignis_item(ignis_tensor tensor)
{
    static const char call[] = "ignis_item";
    ignis_dtype dtype;
    int64_t bits = ignis__tensor_item(call, tensor, &dtype);
    double value;
    memcpy(&value, &bits, sizeof value);
    if (dtype == IGNIS_DTYPE_DEFAULT)
        return ignis__nan();
    if (!ignis__dtype_is_int(dtype))
        return value;
    if ((double)bits < 9223372036854775808.0 && (int64_t)(double)bits == bits)
        return (double)bits;
    ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                "the value is %lld, which no double is equal to; ignis_item_i64 returns it", (long long)bits);
    return ignis__nan();
}

IGNIS__COLD IGNIS_API int64_t ignis_item_i64(ignis_tensor tensor)
{
    static const char call[] = "ignis_item_i64";
    ignis_dtype dtype;
    int64_t value = ignis__tensor_item(call, tensor, &dtype);
    if (dtype == IGNIS_DTYPE_DEFAULT || ignis__dtype_is_int(dtype))
        return dtype ? value : INT64_MIN;
    ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "the tensor is %s; i32, i64 or u8 is needed",
                ignis__dtypes[dtype].name);
    return INT64_MIN;
}

/*  Makes a held tensor's handle stale, and gives up its data. False if that was done already. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__tensor_end_handle(const char *call, ignis__tensor *tensor)
{
    ignis__array *data;
    bool live;
    ignis__mutex_lock(&tensor->slot.lock);
    live = ignis__pool_live(tensor);
    data = live ? tensor->data : NULL;
    if (live) {
        tensor->data = NULL;
        ignis__pool_kill(tensor);
    }
    ignis__mutex_unlock(&tensor->slot.lock);
    if (data)
        ignis__array_unclaim(call, data);
    if (live)
        ignis__pool_drop(tensor); /* the handle's own hold; the caller still has one */
    return live;
}

IGNIS_API ignis_status ignis_tensor_release(ignis_tensor handle)
{
    static const char call[] = "ignis_tensor_release";
    const uint64_t failures = ignis__failures();
    ignis__tensor *tensor;
    ignis_status status = IGNIS_OK;
    if (!handle.id)
        return IGNIS_OK;
    tensor = ignis__tensor_hold(call, handle);
    if (!tensor)
        return ignis__failed();
    if (!ignis__tensor_end_handle(call, tensor))
        status = ignis__fail(IGNIS_DIAG_TENSOR_FREED, call, "another thread has released the tensor");
    ignis__tensor_drop(call, tensor);
    return status == IGNIS_OK ? ignis__ended(failures, true) : status;
}

/*  Releases a tensor that a call has made. No handle: nothing. */
IGNIS__PRIVATE void ignis__tensor_discard(const char *call, ignis_tensor handle)
{
    ignis__tensor *tensor = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, handle.id);
    if (!tensor)
        return;
    (void)ignis__tensor_end_handle(call, tensor);
    ignis__tensor_drop(call, tensor);
}
