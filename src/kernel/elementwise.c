/* ===============================================================================================================
   >>elementwise - fill, copy, cast, add, mul, scale

   Arrays of one numel, computed by kernels/elementwise.cu; copies between devices go through the driver.
   May use: kernel/launch.c, builtin.c, array/work.c. Locks: none.
   =============================================================================================================== */

#include "room.h"

/*  Launches a kernel of kernels/elementwise.cu: 256 threads compute 4096 elements. */
IGNIS__PRIVATE bool ignis__elementwise(const ignis__work *work, ignis__builtin builtin, ignis_dtype dtype,
                                       int64_t numel, void **params)
{
    unsigned grid[3] = {0, 1, 1}, block[3] = {256, 1, 1};
    int64_t blocks = (numel + 4095) / 4096;
    void *function;
    if (numel == 0)
        return true;
    if (blocks > INT32_MAX)
        return ignis__fail_false(IGNIS_DIAG_SHAPE_OVERFLOW, work->call,
                                 "%lld elements are more than one launch can cover", (long long)numel);
    grid[0] = (unsigned)blocks;
    function = ignis__builtin_get(work->call, work->device, builtin, dtype);
    return function && ignis__builtin_launch(work, builtin, function, grid, block, 0, params);
}

IGNIS__PRIVATE bool ignis__work_fill(const ignis__work *work, ignis__array *array, double value)
{
    ignis__address to;
    char element[8];
    void *params[] = {&to, element, &array->numel};
    ignis__convert(element, array->dtype, &value, IGNIS_F64, 1);
    return ignis__work_write(work, array, &to) &&
           ignis__elementwise(work, IGNIS__BUILTIN(FILL), array->dtype, array->numel, params);
}

IGNIS__INLINE IGNIS__PRIVATE ignis_status ignis__array_set(const char *call, ignis_array handle, double value)
{
    ignis__work work;
    ignis__array *array = ignis__array_work(call, handle, &work);
    return ignis__array_work_end(&work, array, array && ignis__work_fill(&work, array, value));
}

IGNIS_API ignis_status ignis_array_fill(ignis_array array, double value)
{
    return ignis__array_set("ignis_array_fill", array, value);
}

static bool ignis__same_numel(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->numel == src->numel)
        return true;
    return ignis__fail_false(IGNIS_DIAG_SHAPE_DIFFERS, call, "dst %s has %lld elements, %s %s has %lld",
                             ignis__shape_write(&dst->shape).text, (long long)dst->numel, name,
                             ignis__shape_write(&src->shape).text, (long long)src->numel);
}

static bool ignis__same_dtype(const char *call, const ignis__array *dst, const ignis__array *src, const char *name)
{
    if (dst->dtype == src->dtype)
        return true;
    return ignis__fail_false(IGNIS_DIAG_DTYPE_DIFFERS, call, "dst is %s, %s is %s", ignis__dtypes[dst->dtype].name,
                             name, ignis__dtypes[src->dtype].name);
}

IGNIS__INLINE IGNIS__PRIVATE bool ignis__same_device(const char *call, const ignis__array *dst, const ignis__array *src,
                                                     const char *name)
{
    if (dst->storage->device == src->storage->device)
        return true;
    return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call, "dst is on device %d, %s is on device %d",
                             ignis__device_ordinal(dst->storage->device), name,
                             ignis__device_ordinal(src->storage->device));
}

/*  Returns the kernel that converts to a dtype. */
IGNIS__PRIVATE ignis__builtin ignis__builtin_cast(ignis_dtype dtype)
{
    static const ignis__builtin casts[] = {
        IGNIS__BUILTIN(CAST_F16), IGNIS__BUILTIN(CAST_BF16),    IGNIS__BUILTIN(CAST_F32),
        IGNIS__BUILTIN(CAST_F64), IGNIS__BUILTIN(CAST_I32),     IGNIS__BUILTIN(CAST_I64),
        IGNIS__BUILTIN(CAST_U8),  IGNIS__BUILTIN(CAST_F8_E4M3), IGNIS__BUILTIN(CAST_F8_E5M2)};
    return casts[(int)dtype - (int)IGNIS_F16];
}

/*  Converts an array on one device. */
IGNIS__PRIVATE bool ignis__array_convert(const char *call, ignis__array *dst, ignis__array *src)
{
    ignis__work work;
    ignis__address to, from;
    ignis__builtin cast = ignis__builtin_cast(dst->dtype);
    void *params[] = {&to, &from, &src->numel};
    bool ok = ignis__work_begin(call, dst->storage->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, src, &from) && ignis__work_write(&work, dst, &to) &&
             (dst->dtype == src->dtype ? ignis__copy_on_device(&work, to, from, ignis__array_bytes(src))
                                       : ignis__elementwise(&work, cast, src->dtype, src->numel, params));
        ignis__work_end(&work);
    }
    return ok;
}

/*  Copies between devices on the current stream of dst's device, after the work on that of src's device. */
IGNIS__PRIVATE bool ignis__array_copy_peer(const char *call, ignis__array *dst, ignis__array *src)
{
    ignis__device *from_device = src->storage->device;
    ignis__work work, from_work;
    ignis__address to, from;
    uint64_t base = 0;
    ignis__trace_item item;
    bool traced, ok = ignis__work_begin(call, from_device, &from_work);
    if (!ok)
        return false;
    ok = ignis__work_read(&from_work, src, &from);
    ignis__work_end(&from_work);
    if (!ok || !ignis__work_begin(call, dst->storage->device, &work))
        return false;
    ok = ignis__work_write(&work, dst, &to) &&
         ignis__stream_order(call, from_device, from_work.stream, work.device, work.stream) &&
         ignis__storage_use(call, src->storage, work.device, work.stream, &base);
    if (ok && src->numel > 0) {
        from = base + (uint64_t)src->offset;
        traced =
            ignis__trace_copy(&item, call, work.device, work.stream, "copy between devices", ignis__array_bytes(src));
        ok = !IGNIS__CUDA_FAILED(
            call, work.device, cuMemcpyPeerAsync,
            (to, work.device->context, from, from_device->context, (size_t)ignis__array_bytes(src), work.stream));
        if (traced)
            (void)ignis__trace_close(&item, ok);
    }
    ignis__work_end(&work);
    return ok;
}

IGNIS_API ignis_status ignis_array_copy(ignis_array dst, ignis_array src)
{
    static const char call[] = "ignis_array_copy";
    ignis_array handles[] = {dst, src};
    ignis__array *arrays[2];
    bool ok;
    if (!ignis__array_hold_all(call, 2, handles, arrays))
        return ignis__failed();
    ok = ignis__same_numel(call, arrays[0], arrays[1], "src") &&
         ignis__array_check_overlap(call, arrays[0], 0, ignis__array_bytes(arrays[0]), arrays[1]);
    if (ok && arrays[0]->storage->device == arrays[1]->storage->device)
        ok = ignis__array_convert(call, arrays[0], arrays[1]);
    else if (ok &&
             arrays[0]->dtype != arrays[1]->dtype) /* the kernel would have to reach across; cast on one side first */
        ok = ignis__same_device(call, arrays[0], arrays[1], "src");
    else if (ok)
        ok = ignis__array_copy_peer(call, arrays[0], arrays[1]);
    ignis__array_drop_all(call, 2, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_array ignis_array_cast(ignis_array handle, ignis_dtype dtype)
{
    static const char call[] = "ignis_array_cast";
    ignis_array made = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle), *target;
    if (!array)
        return made;
    if (ignis__dtype_valid(call, dtype))
        made = ignis__array_create_like(call, array, dtype);
    if (made.id) {
        target = (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id);
        if (!ignis__array_convert(call, target, array))
            ignis__array_discard(call, &made);
        ignis__array_drop(call, target);
    }
    ignis__array_drop(call, array);
    return made;
}

/*  Computes dst = f(sources), all of one dtype and numel on one device. params are the kernel's, with addresses[0]
    for dst. */
static ignis_status ignis__array_map(const char *call, ignis__builtin builtin, int count, const ignis_array *handles,
                                     const char *const *names, ignis__address *addresses, void **params, int64_t *numel)
{
    ignis__array *arrays[3];
    ignis__work work;
    bool ok = true;
    int i;
    if (!ignis__array_hold_all(call, count, handles, arrays))
        return ignis__failed();
    for (i = 1; ok && i < count; i++)
        ok = ignis__same_numel(call, arrays[0], arrays[i], names[i]) &&
             ignis__same_dtype(call, arrays[0], arrays[i], names[i]) &&
             ignis__same_device(call, arrays[0], arrays[i], names[i]) &&
             ignis__array_check_overlap(call, arrays[0], 0, ignis__array_bytes(arrays[0]), arrays[i]);
    ok = ok && ignis__work_begin(call, arrays[0]->storage->device, &work);
    if (ok) {
        *numel = arrays[0]->numel;
        for (i = 1; ok && i < count; i++)
            ok = ignis__work_read(&work, arrays[i], &addresses[i]);
        ok = ok && ignis__work_write(&work, arrays[0], &addresses[0]) &&
             ignis__elementwise(&work, builtin, arrays[0]->dtype, *numel, params);
        ignis__work_end(&work);
    }
    ignis__array_drop_all(call, count, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__INLINE IGNIS__PRIVATE ignis_status ignis__array_binary(const char *call, ignis__builtin builtin, ignis_array dst,
                                                              ignis_array a, ignis_array b)
{
    static const char *const names[] = {"dst", "a", "b"};
    ignis_array handles[] = {dst, a, b};
    ignis__address addresses[3];
    int64_t numel;
    void *params[] = {&addresses[0], &addresses[1], &addresses[2], &numel};
    return ignis__array_map(call, builtin, 3, handles, names, addresses, params, &numel);
}

IGNIS_API ignis_status ignis_array_add(ignis_array dst, ignis_array a, ignis_array b)
{
    return ignis__array_binary("ignis_array_add", IGNIS__BUILTIN(ADD), dst, a, b);
}

IGNIS_API ignis_status ignis_array_mul(ignis_array dst, ignis_array a, ignis_array b)
{
    return ignis__array_binary("ignis_array_mul", IGNIS__BUILTIN(MUL), dst, a, b);
}

IGNIS_API ignis_status ignis_array_scale(ignis_array dst, ignis_array src, double factor)
{
    static const char *const names[] = {"dst", "src"};
    ignis_array handles[] = {dst, src};
    ignis__address addresses[2];
    int64_t numel;
    void *params[] = {&addresses[0], &addresses[1], &factor, &numel};
    return ignis__array_map("ignis_array_scale", IGNIS__BUILTIN(SCALE), 2, handles, names, addresses, params, &numel);
}
