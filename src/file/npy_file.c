/*  file/npy_file.c - ignis_npy_save and ignis_npy_load

    The data is written and read as that of a safetensors file with one tensor. Fortran order is read as the reversed
    shape in C order, and permuted on the device.
    May use: npy.c, save.c, load.c, borrow.c, >>ops. Locks: none held while a file is read or written. */

#include "room.h"

/*  Writes the header and the data of a borrowed array. */
static bool ignis__npy_save_array(const char *call, const char *path, ignis__array *array, const char *dtype)
{
    ignis__file_tensor item = IGNIS__ZERO;
    ignis__replacement to;
    char header[512];
    size_t size;
    void *chunk;
    bool ok;
    if (!ignis__file_dtype_choose(call, dtype, array->dtype, &item.type))
        return false;
    item.name = array->tag;
    size = ignis__npy_write(item.type, &array->shape, header, sizeof header);
    if (size == 0)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "the tensor is %s, a dtype that .npy files do not have; "
                                 "ignis_cast it to f32",
                                 ignis__dtypes[array->dtype].name);
    if (!ignis__replace_begin(&to, call, path))
        return false;
    chunk = ignis__alloc_for(call, (size_t)IGNIS__CONVERT_CHUNK);
    ok = chunk && ignis__save_write(call, path, to.file, header, (int64_t)size) &&
         ignis__save_array(call, path, to.file, array, &item, chunk);
    ignis__free(chunk);
    return ignis__replace_end(&to, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_npy_save(const char *path, ignis_tensor tensor, const char *dtype)
{
    static const char call[] = "ignis_npy_save";
    ignis__borrowed_tensor lent = IGNIS__ZERO;
    bool ok;
    if (!ignis__enter(call) || ignis__capture_refuses(call) || !ignis__check_not_null(call, "path", path))
        return ignis__failed();
    lent.array = ignis__borrow_array(call, tensor);
    ok = lent.array && ignis__borrow_acquire(call, &lent, 1) && ignis__npy_save_array(call, path, lent.array, dtype);
    ignis__borrow_release(call, &lent, 1, ok);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Opens a file and reads its header. */
static bool ignis__npy_open(const char *call, const char *path, ignis__load *load, ignis__npy *npy)
{
    unsigned char first[12], *head;
    int64_t size;
    ignis_diagnostic result = IGNIS_DIAG_STORAGE_IO;
    if (!ignis__load_open_file(call, path, load))
        return false;
    size = load->size < 12 ? load->size : 12;
    if (ignis__load_read(call, load, 0, first, size)) {
        size = ignis__npy_header_size(first, size);
        size = size < load->size ? size : load->size;
        head = (unsigned char *)ignis__alloc_for(call, (size_t)size + 1);
        if (head && ignis__load_read(call, load, 0, head, size))
            result = ignis__npy_parse(npy, head, load->size);
        ignis__free(head);
    }
    if (result == IGNIS_DIAG_NONE)
        return true;
    if (result == IGNIS_DIAG_STORAGE_FORMAT)
        ignis__fail(result, call, "'%s' is not a sound .npy file: %s", path, npy->fault);
    else if (result != IGNIS_DIAG_STORAGE_IO)
        ignis__fail(result, call, "'%s' cannot be loaded: %s", path, npy->fault);
    ignis__load_close(load);
    return false;
}

/*  Reverses the dimensions of a shape that was read in Fortran order. `count`: of those, which leaves out that of
    complex numbers. */
static ignis_tensor ignis__npy_permute(ignis_tensor tensor, int count, int ndim)
{
    int dims[IGNIS_MAX_DIMS], i;
    ignis_tensor result;
    for (i = 0; i < ndim; i++)
        dims[i] = i < count ? count - 1 - i : i;
    result = ignis_permute(tensor, dims, ndim);
    (void)ignis_tensor_release(tensor);
    return result;
}

/*  Makes a tensor of the file's dtype and reads the data into it. */
static ignis_tensor ignis__npy_read(const char *call, ignis__load *load, const ignis__npy *npy,
                                    const ignis_tensor_desc *desc)
{
    ignis__borrowed_tensor lent = IGNIS__ZERO;
    ignis__file_tensor item = IGNIS__ZERO;
    ignis_tensor_desc options = IGNIS__ZERO;
    int i;
    bool ok;
    item.name = desc && desc->tag ? desc->tag : "npy";
    item.type = npy->type;
    item.shape = npy->shape;
    for (i = 0; npy->is_fortran && i < npy->shape.ndim; i++)
        item.shape.dim[i] = npy->shape.dim[npy->shape.ndim - 1 - i];
    if (npy->is_complex)
        item.shape.dim[item.shape.ndim++] = 2;
    load->file.data = npy->data;
    load->swaps = npy->is_swapped;
    options.dtype = ignis__file_dtypes[npy->type].loaded;
    options.device = desc ? desc->device : 0;
    options.tag = item.name;
    lent.item = &item;
    lent.made = ignis__tensor_adopt(call, ignis__tensor_array_create(call, item.shape, &options), false);
    ok = lent.made.id && (lent.array = ignis__borrow_array(call, lent.made)) != NULL &&
         ignis__borrow_acquire(call, &lent, 1) && ignis__load_arrays(call, load, &lent, 1);
    ignis__borrow_release(call, &lent, 1, ok);
    if (!ok)
        return ignis__no_tensor();
    return npy->is_fortran && npy->shape.ndim > 1 ? ignis__npy_permute(lent.made, npy->shape.ndim, item.shape.ndim)
                                                  : lent.made;
}

IGNIS__COLD IGNIS_API ignis_tensor ignis_npy_load(const char *path, const ignis_tensor_desc *desc)
{
    static const char call[] = "ignis_npy_load";
    ignis_tensor tensor = IGNIS__ZERO, cast;
    ignis_dtype dtype, wanted;
    ignis__load load;
    ignis__npy npy;
    if (!ignis__enter(call) || ignis__capture_refuses(call) || !ignis__check_not_null(call, "path", path) ||
        (desc && desc->dtype && !ignis__dtype_valid(call, desc->dtype)) || !ignis__npy_open(call, path, &load, &npy))
        return tensor;
    dtype = ignis__file_dtypes[npy.type].loaded;
    wanted = desc && desc->dtype ? desc->dtype : dtype;
    if (!desc || !desc->requires_grad || ignis__dtype_is_float(wanted))
        tensor = ignis__npy_read(call, &load, &npy, desc);
    else
        ignis__fail(IGNIS_DIAG_GRAD_OF_INTEGERS, call, "a tensor of %s cannot require a gradient",
                    ignis__dtypes[wanted].name);
    ignis__load_close(&load);
    if (tensor.id && wanted != dtype) {
        cast = ignis_cast(tensor, wanted);
        (void)ignis_tensor_release(tensor);
        tensor = cast;
    }
    if (tensor.id && desc && desc->requires_grad)
        (void)ignis_tensor_set_requires_grad(tensor, true);
    return tensor;
}
