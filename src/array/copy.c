/*  array/copy.c - copies between host and device, and zeros

    Copies of the array's own dtype are direct; others are converted in chunks of host memory.
    May use: work.c, conversion.c. Locks: none held while a copy runs. */

#include "room.h"

/*  Queues copies, and fills memory with zeros. */
IGNIS__PRIVATE bool ignis__copy_up(const ignis__work *work, ignis__address to, const void *from, int64_t size)
{
    ignis__trace_item traced;
    bool open = ignis__trace_copy(&traced, work->call, work->device, work->stream, "copy to the device", size);
    bool ok =
        !IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyHtoDAsync_v2, (to, from, (size_t)size, work->stream));
    return open ? ignis__trace_close(&traced, ok) : ok;
}

IGNIS__PRIVATE bool ignis__copy_down(const ignis__work *work, void *to, ignis__address from, int64_t size)
{
    ignis__trace_item traced;
    bool open = ignis__trace_copy(&traced, work->call, work->device, work->stream, "copy to the host", size);
    bool ok =
        !IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyDtoHAsync_v2, (to, from, (size_t)size, work->stream));
    return open ? ignis__trace_close(&traced, ok) : ok;
}

IGNIS__PRIVATE bool ignis__copy_zeros(const ignis__work *work, ignis__address to, int64_t size)
{
    ignis__trace_item traced;
    bool open = ignis__trace_copy(&traced, work->call, work->device, work->stream, "zeros", size);
    bool ok = !IGNIS__CUDA_FAILED(work->call, work->device, cuMemsetD8Async, (to, 0, (size_t)size, work->stream));
    return open ? ignis__trace_close(&traced, ok) : ok;
}

IGNIS__PRIVATE bool ignis__copy_on_device(const ignis__work *work, ignis__address to, ignis__address from, int64_t size)
{
    ignis__trace_item traced;
    bool open, ok;
    if (size == 0 || to == from)
        return true;
    open = ignis__trace_copy(&traced, work->call, work->device, work->stream, "copy on the device", 2 * size);
    ok = !IGNIS__CUDA_FAILED(work->call, work->device, cuMemcpyDtoDAsync_v2, (to, from, (size_t)size, work->stream));
    return open ? ignis__trace_close(&traced, ok) : ok;
}

IGNIS__PRIVATE ignis_status ignis__array_set_zero(const char *call, ignis_array handle)
{
    ignis__work work;
    ignis__array *array = ignis__array_work(call, handle, &work);
    ignis__address address = 0;
    bool ok = array && ignis__work_write(&work, array, &address);
    if (ok && array->numel)
        ok = ignis__copy_zeros(&work, address, ignis__array_bytes(array));
    return ignis__array_work_end(&work, array, ok);
}

IGNIS_API ignis_status ignis_array_zero(ignis_array array) { return ignis__array_set_zero("ignis_array_zero", array); }

/*  Waits after copies from pinned memory, which the driver reads later. Pageable memory has been read when the copy
    call returns. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__copy_from_host(const ignis__work *work, ignis__address to, const void *from,
                                                      int64_t size)
{
    int type, ordinal;
    if (size == 0)
        return true;
    if (ignis__capture_refuses(work->call))
        return false;
    if (!ignis__address_query(work->call, work->device, from, &type, &ordinal) || !ignis__copy_up(work, to, from, size))
        return false;
    return type == 0 || !IGNIS__CUDA_FAILED(work->call, work->device, cuStreamSynchronize, (work->stream));
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__copy_to_host(const ignis__work *work, void *to, ignis__address from,
                                                    int64_t size)
{
    if (ignis__capture_refuses(work->call))
        return false;
    if (size > 0 && !ignis__copy_down(work, to, from, size))
        return false;
    return !IGNIS__CUDA_FAILED(work->call, work->device, cuStreamSynchronize, (work->stream));
}

/*  A transfer between an array and host memory of another dtype. One of `from` and `to` is NULL. */
typedef struct ignis__conversion {
    ignis__address address;
    ignis_dtype dtype, host_dtype;
    const void *from;
    void *to;
    int64_t count;
} ignis__conversion;

/*  Converts on the host, in chunks of the array's dtype. */
static bool ignis__convert_transfer(const ignis__work *work, const ignis__conversion *c)
{
    int64_t size = ignis__dtypes[c->dtype].size, host_size = ignis__dtypes[c->host_dtype].size;
    int64_t step = IGNIS__CONVERT_CHUNK / size, done, part;
    void *chunk = ignis__alloc((size_t)((c->count < step ? c->count : step) * size + 1));
    bool ok = chunk != NULL;
    if (!ok)
        ignis__fail_host_memory(work->call, (size_t)IGNIS__CONVERT_CHUNK);
    for (done = 0; ok && done < c->count; done += part) {
        ignis__address at = c->address + (uint64_t)(done * size);
        part = c->count - done < step ? c->count - done : step;
        if (c->from) {
            ignis__convert(chunk, c->dtype, (const char *)c->from + done * host_size, c->host_dtype, part);
            ok = ignis__copy_from_host(work, at, chunk, part * size);
        } else {
            ok = ignis__copy_to_host(work, chunk, at, part * size);
            if (ok)
                ignis__convert((char *)c->to + done * host_size, c->host_dtype, chunk, c->dtype, part);
        }
    }
    ignis__free(chunk);
    return ok;
}

/*  Checks the arguments of the four transfers: a host pointer, and as many elements or bytes as the array has. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__transfer_check(const char *call, const ignis__array *array, const void *host,
                                                      const char *host_name, int64_t count, int64_t needed,
                                                      const char *unit)
{
    if (count != needed)
        return ignis__fail_false(IGNIS_DIAG_COUNT_MISMATCH, call, "%s %s %s has %lld %s, the call says %lld",
                                 ignis__array_label(array).text, ignis__shape_write(&array->shape).text,
                                 ignis__dtypes[array->dtype].name, (long long)needed, unit, (long long)count);
    return needed == 0 || ignis__check_not_null(call, host_name, host);
}

IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__array_from_host(const char *call, ignis__array *array, const void *data,
                                                               ignis_dtype dtype)
{
    ignis__conversion c = {0, array->dtype, dtype, data, NULL, array->numel};
    ignis__work work;
    bool ok = ignis__work_begin(call, array->storage->device, &work);
    if (ok) {
        ok = (array->numel == 0 || !ignis__capture_refuses(call)) && ignis__work_write(&work, array, &c.address) &&
             (dtype == array->dtype ? ignis__copy_from_host(&work, c.address, data, ignis__array_bytes(array))
                                    : ignis__convert_transfer(&work, &c));
        ignis__work_end(&work);
    }
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__array_to_host(const char *call, ignis__array *array, void *out,
                                                             ignis_dtype dtype)
{
    ignis__conversion c = {0, array->dtype, dtype, NULL, out, array->numel};
    ignis__work work;
    bool ok = ignis__work_begin(call, array->storage->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, array, &c.address) &&
             (dtype == array->dtype ? ignis__copy_to_host(&work, out, c.address, ignis__array_bytes(array))
                                    : ignis__convert_transfer(&work, &c));
        ignis__work_end(&work);
    }
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_from_host(ignis_array handle, const void *data, ignis_dtype dtype,
                                                         int64_t count)
{
    static const char call[] = "ignis_array_from_host";
    ignis__array *array = ignis__array_hold(call, handle);
    bool ok = array != NULL;
    if (ok && dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    ok = ok && ignis__dtype_valid(call, dtype) &&
         ignis__transfer_check(call, array, data, "data", count, array->numel, "elements") &&
         ignis__array_from_host(call, array, data, dtype) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_from_host_raw(ignis_array handle, const void *bytes, int64_t size)
{
    static const char call[] = "ignis_array_from_host_raw";
    ignis__array *array = ignis__array_hold(call, handle);
    bool ok = array && ignis__transfer_check(call, array, bytes, "bytes", size, ignis__array_bytes(array), "bytes") &&
              ignis__array_from_host(call, array, bytes, array->dtype) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_to_host(ignis_array handle, void *out, ignis_dtype dtype, int64_t count)
{
    static const char call[] = "ignis_array_to_host";
    ignis__array *array = ignis__array_hold(call, handle);
    bool ok = array != NULL;
    if (ok && dtype == IGNIS_DTYPE_DEFAULT)
        dtype = array->dtype;
    ok = ok && ignis__dtype_valid(call, dtype) &&
         ignis__transfer_check(call, array, out, "out", count, array->numel, "elements") &&
         ignis__array_to_host(call, array, out, dtype) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_array_to_host_raw(ignis_array handle, void *out, int64_t size)
{
    static const char call[] = "ignis_array_to_host_raw";
    ignis__array *array = ignis__array_hold(call, handle);
    bool ok = array && ignis__transfer_check(call, array, out, "out", size, ignis__array_bytes(array), "bytes") &&
              ignis__array_to_host(call, array, out, array->dtype) == IGNIS_OK;
    return ignis__array_end(call, array, ok);
}
