/*  array/view.c - views (slice, reshape), clones and rows

    A view shares storage, owner and tag, and is an array of its own.
    May use: array.c, work.c, copy.c. Locks: those of array.c. */

#include "room.h"

/*  Checks that `size` bytes of dst from an offset on, which will be written, and those of src are the same or
    disjoint. */
IGNIS__PRIVATE bool ignis__array_check_overlap(const char *call, const ignis__array *dst, int64_t offset, int64_t size,
                                               const ignis__array *src)
{
    uint64_t to = ignis__atomic_load(&dst->storage->address), from = ignis__atomic_load(&src->storage->address);
    uint64_t from_size = (uint64_t)ignis__array_bytes(src);
    if (dst->storage == src->storage && dst->storage->find_fn)
        to = from = 1; /* wherever that is */
    if (!to || !from || size == 0 || from_size == 0)
        return true;
    to += (uint64_t)(dst->offset + offset);
    from += (uint64_t)src->offset;
    if (to + (uint64_t)size <= from || from + from_size <= to || (to == from && (uint64_t)size == from_size))
        return true;
    return ignis__fail_false(IGNIS_DIAG_OVERLAP, call,
                             "%s (%llu bytes at 0x%llx) overlaps the destination in part: %lld bytes of %s at 0x%llx",
                             ignis__array_label(src).text, (unsigned long long)from_size, (unsigned long long)from,
                             (long long)size, ignis__array_label(dst).text, (unsigned long long)to);
}

/*  Copies the bytes of src over those of dst from an offset on; both are on one device. */
IGNIS__PRIVATE bool ignis__array_copy_bytes(const char *call, ignis__array *dst, int64_t offset, ignis__array *src)
{
    ignis__work work;
    ignis__address to, from;
    bool ok = ignis__work_begin(call, dst->storage->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, src, &from) && ignis__work_write(&work, dst, &to) &&
             ignis__copy_on_device(&work, to + (uint64_t)offset, from, ignis__array_bytes(src));
        ignis__work_end(&work);
    }
    return ok;
}

/*  Frees an array that a failed call has made and not yet returned. */
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__array_discard(const char *call, ignis_array *handle)
{
    ignis__array *array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle->id);
    ignis__handle_kill(array);
    ignis__array_drop(call, array);
    handle->id = 0;
}

IGNIS__COLD IGNIS_API ignis_array ignis_array_clone(ignis_array handle)
{
    static const char call[] = "ignis_array_clone";
    ignis_array copy = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle), *made;
    if (!array)
        return copy;
    copy = ignis__array_create_like(call, array, array->dtype);
    if (copy.id) {
        made = (ignis__array *)ignis__pool_hold(&ignis__arrays, copy.id);
        if (!ignis__array_copy_bytes(call, made, 0, array))
            ignis__array_discard(call, &copy);
        ignis__array_drop(call, made);
    }
    ignis__array_drop(call, array);
    return copy;
}

IGNIS__COLD IGNIS__PRIVATE ignis_array ignis__array_slice(const char *call, const ignis__array *array, int dim,
                                                          int64_t start, int64_t len)
{
    ignis_array none = IGNIS__ZERO;
    ignis_shape shape = array->shape;
    int64_t leading = 1, trailing = 1, numel;
    int i;
    if (dim < 0 || dim >= shape.ndim) {
        ignis__fail(IGNIS_DIAG_SLICE_RANGE, call, "dim %d is outside shape %s", dim, ignis__shape_write(&shape).text);
        return none;
    }
    if (start < 0 || len < 0 || len > shape.dim[dim] || start > shape.dim[dim] - len) {
        ignis__fail(IGNIS_DIAG_SLICE_RANGE, call, "elements %lld to %lld + %lld are outside dim %d of shape %s",
                    (long long)start, (long long)start, (long long)len, dim, ignis__shape_write(&shape).text);
        return none;
    }
    for (i = 0; i < dim; i++)
        leading = shape.dim[i] > 1 ? 2 : leading; /* more than one is all that counts */
    if (leading > 1) {
        ignis__fail(IGNIS_DIAG_SLICE_STRIDED, call,
                    "a slice of dim %d of shape %s is strided: its elements are not contiguous. A view can be of dim "
                    "0, or of a dim "
                    "with only 1s "
                    "before it; copy strided slices with a kernel",
                    dim, ignis__shape_write(&shape).text);
        return none;
    }
    for (i = dim + 1; i < shape.ndim; i++)
        trailing *= shape.dim[i];
    shape.dim[dim] = len;
    if (!ignis__shape_check(call, &shape, array->dtype, &numel))
        return none;
    return ignis__array_view(call, array, &shape, numel,
                             array->numel ? start * trailing * ignis__dtypes[array->dtype].size : 0);
}

IGNIS_API ignis_array ignis_array_slice(ignis_array handle, int dim, int64_t start, int64_t len)
{
    static const char call[] = "ignis_array_slice";
    ignis_array view = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array)
        return view;
    view = ignis__array_slice(call, array, dim, start, len);
    ignis__array_drop(call, array);
    return view;
}

/*  Replaces the one -1 of a shape, so that the elements are numel. A shape without -1 stays. */
IGNIS__PRIVATE bool ignis__shape_infer(const char *call, ignis_shape *shape, int64_t numel)
{
    int64_t known = 1;
    int i, open = -1;
    for (i = 0; i < shape->ndim && i < IGNIS_MAX_DIMS; i++) {
        if (shape->dim[i] == -1 && open >= 0)
            return ignis__fail_false(IGNIS_DIAG_SHAPE_DIM, call, "shape %s leaves more than one dimension open",
                                     ignis__shape_write(shape).text);
        if (shape->dim[i] == -1)
            open = i;
        else if (shape->dim[i] < 0 || !ignis__multiply(known, shape->dim[i], &known))
            return true; /* the check after this one reports the error */
    }
    if (open >= 0 && (known == 0 || numel % known != 0))
        return ignis__fail_false(IGNIS_DIAG_SHAPE_DIFFERS, call, "%lld elements cannot be laid out as %s",
                                 (long long)numel, ignis__shape_write(shape).text);
    if (open >= 0)
        shape->dim[open] = numel / known;
    return true;
}

IGNIS__COLD IGNIS_API ignis_array ignis_array_reshape(ignis_array handle, ignis_shape shape)
{
    static const char call[] = "ignis_array_reshape";
    ignis_array view = IGNIS__ZERO;
    ignis__array *array = ignis__array_hold(call, handle);
    int64_t numel;
    if (!array)
        return view;
    if (ignis__shape_infer(call, &shape, array->numel) && ignis__shape_check(call, &shape, array->dtype, &numel)) {
        if (numel != array->numel)
            ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s %s has %lld elements, the new shape %s has %lld",
                        ignis__array_label(array).text, ignis__shape_write(&array->shape).text, (long long)array->numel,
                        ignis__shape_write(&shape).text, (long long)numel);
        else
            view = ignis__array_view(call, array, &shape, numel, 0);
    }
    ignis__array_drop(call, array);
    return view;
}

IGNIS__COLD static bool ignis__write_rows_check(const char *call, const ignis__array *dst, const ignis__array *src,
                                                int64_t start_row, int64_t *row_bytes)
{
    int64_t rows = dst->shape.dim[0];
    *row_bytes = rows && dst->numel ? ignis__array_bytes(dst) / rows : 0;
    if (dst->dtype != src->dtype)
        return ignis__fail_false(IGNIS_DIAG_DTYPE_DIFFERS, call, "dst is %s, src is %s", ignis__dtypes[dst->dtype].name,
                                 ignis__dtypes[src->dtype].name);
    if (dst->storage->device != src->storage->device)
        return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call, "dst is on device %d, src is on device %d",
                                 ignis__device_ordinal(dst->storage->device),
                                 ignis__device_ordinal(src->storage->device));
    if (start_row < 0 || start_row > rows)
        return ignis__fail_false(IGNIS_DIAG_ROWS_OVERFLOW, call, "row %lld is outside dst %s", (long long)start_row,
                                 ignis__shape_write(&dst->shape).text);
    if (src->numel && (*row_bytes == 0 || ignis__array_bytes(src) % *row_bytes != 0))
        return ignis__fail_false(IGNIS_DIAG_SHAPE_DIFFERS, call, "src %s is not a whole number of rows of dst %s",
                                 ignis__shape_write(&src->shape).text, ignis__shape_write(&dst->shape).text);
    if (src->numel && ignis__array_bytes(src) / *row_bytes > rows - start_row)
        return ignis__fail_false(IGNIS_DIAG_ROWS_OVERFLOW, call,
                                 "writing %lld bytes at row %lld (offset %lld) goes beyond the %lld bytes of dst %s",
                                 (long long)ignis__array_bytes(src), (long long)start_row,
                                 (long long)(start_row * *row_bytes), (long long)ignis__array_bytes(dst),
                                 ignis__shape_write(&dst->shape).text);
    return true;
}

IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__array_drop_all(const char *call, int count, ignis__array **arrays)
{
    while (count > 0)
        ignis__array_drop(call, arrays[--count]);
}

/*  Holds two or three arrays of one call. False if one is stale, and then none is held. NULL pointers are skipped. */
IGNIS__PRIVATE bool ignis__array_hold_all(const char *call, int count, const ignis_array *handles,
                                          ignis__array **arrays)
{
    int i;
    for (i = 0; i < count; i++) {
        arrays[i] = ignis__array_hold(call, handles[i]);
        if (!arrays[i]) {
            ignis__array_drop_all(call, i, arrays);
            return false;
        }
    }
    return true;
}

IGNIS_API ignis_status ignis_array_write_rows(ignis_array dst, ignis_array src, int64_t start_row)
{
    static const char call[] = "ignis_array_write_rows";
    const ignis_array handles[] = {dst, src};
    ignis__array *arrays[2];
    int64_t row_bytes;
    bool ok;
    if (!ignis__array_hold_all(call, 2, handles, arrays))
        return ignis__failed();
    ok = ignis__write_rows_check(call, arrays[0], arrays[1], start_row, &row_bytes) &&
         ignis__array_check_overlap(call, arrays[0], start_row * row_bytes, ignis__array_bytes(arrays[1]), arrays[1]) &&
         (arrays[1]->numel == 0 || ignis__array_copy_bytes(call, arrays[0], start_row * row_bytes, arrays[1]));
    ignis__array_drop_all(call, 2, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}
