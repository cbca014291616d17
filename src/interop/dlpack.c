/* ===============================================================================================================
   >>dlpack - arrays from and for other libraries

   A struct with a deleter crosses the border; streams of both sides are ordered when it does.
   May use: >>array, >>stream, >>formula. Invariant: the memory lives until the deleter was called, or
   ignis_shutdown. Locks: those of arrays.
   =============================================================================================================== */

#include "room.h"

enum { IGNIS__DLPACK_CUDA = 2, IGNIS__DLPACK_READ_ONLY = 1 };

static const struct {
    uint8_t code, bits;
    ignis_dtype dtype;
} ignis__dlpack_dtypes[] = {{2, 16, IGNIS_F16},     {4, 16, IGNIS_BF16},   {2, 32, IGNIS_F32}, {2, 64, IGNIS_F64},
                            {0, 32, IGNIS_I32},     {0, 64, IGNIS_I64},    {1, 8, IGNIS_U8},   {6, 8, IGNIS_U8},
                            {10, 8, IGNIS_F8_E4M3}, {12, 8, IGNIS_F8_E5M2}};

/*  A tensor that another library has: the struct, and the view that keeps the memory. From malloc, because it may
    outlive ignis_shutdown. */
typedef struct ignis__dlpack_export {
    union {
        ignis_dlpack plain;
        ignis_dlpack_versioned versioned;
    } managed;
    int64_t shape[IGNIS_MAX_DIMS], strides[IGNIS_MAX_DIMS];
    ignis_array view;
} ignis__dlpack_export;

/*  Frees the view, unless ignis_shutdown has. The other library may call this on any thread, and it cannot fail. */
IGNIS__COLD static void ignis__dlpack_give_back(void *context)
{
    ignis__dlpack_export *exported = (ignis__dlpack_export *)context;
    bool here = ignis__atomic_load(&ignis__global.ready) && !ignis__atomic_load(&ignis__global.forked);
    ignis__array *array = here ? (ignis__array *)ignis__pool_hold(&ignis__arrays, exported->view.id) : NULL;
    if (array) {
        ignis__mutex_lock(&array->slot.lock);
        (void)ignis__array_kill(array);
        ignis__array_unlock(array);
        ignis__array_drop("the deleter of ignis_array_to_dlpack", array);
    }
    free(exported);
}
static void ignis__dlpack_delete(ignis_dlpack *self) { ignis__dlpack_give_back(self->context); }
static void ignis__dlpack_delete_versioned(ignis_dlpack_versioned *self) { ignis__dlpack_give_back(self->context); }

IGNIS__COLD static bool ignis__dlpack_major(const char *call, int major)
{
    if (major == 0 || major == 1)
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "major is %d; 0 and 1 are known", major);
}

/*  Makes stream `later` wait for `earlier` on an entered device; NULL does nothing. */
IGNIS__COLD static bool ignis__dlpack_order(const char *call, ignis__device *device, void *other, void *earlier,
                                            void *later)
{
    return !other || ((other == device->stream || ignis__stream_adopt(call, device, other) != 0) &&
                      ignis__stream_order(call, device, earlier, device, later));
}

/*  Describes the memory at an address. */
IGNIS__COLD static void *ignis__dlpack_describe(ignis__dlpack_export *exported, const ignis__array *array,
                                                ignis__address address, int major)
{
    ignis_dlpack_tensor *tensor = major ? &exported->managed.versioned.tensor : &exported->managed.plain.tensor;
    int64_t stride = 1;
    int i;
    tensor->data = (void *)(uintptr_t)address;
    tensor->device_type = IGNIS__DLPACK_CUDA;
    tensor->device_id = (int32_t)(array->storage->device - ignis__devices);
    tensor->ndim = array->shape.ndim;
    for (i = 0; ignis__dlpack_dtypes[i].dtype != array->dtype; i++)
        ;
    tensor->code = ignis__dlpack_dtypes[i].code;
    tensor->bits = ignis__dlpack_dtypes[i].bits;
    tensor->lanes = 1;
    tensor->shape = exported->shape;
    tensor->strides = exported->strides;
    for (i = array->shape.ndim - 1; i >= 0; i--) {
        exported->shape[i] = array->shape.dim[i];
        exported->strides[i] = stride;
        stride *= array->shape.dim[i] > 1 ? array->shape.dim[i] : 1;
    }
    if (!major) {
        exported->managed.plain.context = exported;
        exported->managed.plain.deleter = ignis__dlpack_delete;
        return &exported->managed.plain;
    }
    exported->managed.versioned.major = 1;
    exported->managed.versioned.context = exported;
    exported->managed.versioned.deleter = ignis__dlpack_delete_versioned;
    return &exported->managed.versioned;
}

IGNIS__COLD IGNIS_API void *ignis_array_to_dlpack(ignis_array handle, int major, void *stream)
{
    static const char call[] = "ignis_array_to_dlpack";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis__dlpack_export *exported = NULL;
    ignis__address address = 0;
    ignis__work work;
    uint64_t base;
    void *managed = NULL;
    if (!array)
        return NULL;
    if (ignis__dlpack_major(call, major) && !ignis__capture_refuses(call) &&
        !ignis__array_refuses_address(call, array) && ignis__work_begin(call, array->storage->device, &work)) {
        if (ignis__work_address(&work, array, &address) &&
            ignis__dlpack_order(call, work.device, stream, work.stream, stream) &&
            (!stream || ignis__storage_use(call, array->storage, work.device, stream, &base))) {
            exported = (ignis__dlpack_export *)calloc(1, sizeof *exported);
            if (!exported)
                ignis__fail_host_memory(call, sizeof *exported);
        }
        if (exported)
            exported->view = ignis__array_view(call, array, &array->shape, array->numel, 0);
        if (exported && exported->view.id) {
            ignis__atomic_store(&array->storage->exposed, 1);
            managed = ignis__dlpack_describe(exported, array, address, major);
        } else {
            free(exported);
        }
        ignis__work_end(&work);
    }
    (void)ignis__array_end(call, array, managed != NULL);
    return managed;
}

/*  Returns memory to another library, through its deleter. */
static void ignis__dlpack_return(void *ptr, void *managed)
{
    ignis_dlpack *plain = (ignis_dlpack *)managed;
    (void)ptr;
    if (plain->deleter)
        plain->deleter(plain);
}

static void ignis__dlpack_return_versioned(void *ptr, void *managed)
{
    ignis_dlpack_versioned *versioned = (ignis_dlpack_versioned *)managed;
    (void)ptr;
    if (versioned->deleter)
        versioned->deleter(versioned);
}

/*  Tells whether elements are integers of 8 bits, with a sign. */
static bool ignis__dlpack_is_int8(const ignis_dlpack_tensor *tensor)
{
    return tensor->code == 0 && tensor->bits == 8 && tensor->lanes == 1;
}

/*  Computes the desc of an array over the memory; of int8, of its bytes. False, and reported, if that is impossible. */
IGNIS__COLD static bool ignis__dlpack_read(const char *call, const ignis_dlpack_tensor *tensor, ignis_array_desc *desc,
                                           int64_t *numel)
{
    int64_t stride = 1;
    int i, at = IGNIS__COUNT(ignis__dlpack_dtypes);
    memset(desc, 0, sizeof *desc);
    if (tensor->device_type != IGNIS__DLPACK_CUDA)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "the memory is of DLPack's device type %d; expected 2, a CUDA device",
                                 (int)tensor->device_type);
    if (!ignis__device_get(call, tensor->device_id))
        return false;
    desc->device = tensor->device_id ? tensor->device_id : IGNIS_DEVICE_0;
    while (--at >= 0 &&
           !(ignis__dlpack_dtypes[at].code == tensor->code && ignis__dlpack_dtypes[at].bits == tensor->bits))
        ;
    if (!ignis__dlpack_is_int8(tensor) && (at < 0 || tensor->lanes != 1))
        return ignis__fail_false(IGNIS_DIAG_DTYPE_DIFFERS, call,
                                 "elements of code %d, %d bits and %d lanes are not a dtype of Ignis; convert them to "
                                 "float32 or int32 first",
                                 tensor->code, tensor->bits, tensor->lanes);
    desc->dtype = at < 0 ? IGNIS_U8 : ignis__dlpack_dtypes[at].dtype;
    if (tensor->ndim < 0 || tensor->ndim > IGNIS_MAX_DIMS || (tensor->ndim > 0 && !tensor->shape))
        return ignis__fail_false(IGNIS_DIAG_SHAPE_RANK, call, "it has %d dimensions; up to %d are possible",
                                 (int)tensor->ndim, IGNIS_MAX_DIMS);
    desc->shape.ndim = tensor->ndim > 0 ? tensor->ndim : 1;
    desc->shape.dim[0] = 1;
    for (i = 0; i < tensor->ndim; i++)
        desc->shape.dim[i] = tensor->shape[i];
    if (!ignis__shape_check(call, &desc->shape, desc->dtype, numel))
        return false;
    /* without elements, strides do not matter */
    for (i = tensor->ndim - 1; tensor->strides && *numel > 0 && i >= 0; i--) {
        if (tensor->shape[i] > 1 && tensor->strides[i] != stride)
            return ignis__fail_false(IGNIS_DIAG_SLICE_STRIDED, call,
                                     "dimension %d has a stride of %lld elements; %lld would be contiguous", i,
                                     (long long)tensor->strides[i], (long long)stride);
        stride *= tensor->shape[i] > 1 ? tensor->shape[i] : 1;
    }
    desc->ptr = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
    desc->tag = "dlpack";
    if (*numel > 0 && (uintptr_t)desc->ptr % (uintptr_t)ignis__dtypes[desc->dtype].size != 0)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "its address %p is not a multiple of the %d bytes of an element", desc->ptr,
                                 ignis__dtypes[desc->dtype].size);
    return true;
}

/*  Makes an array over the memory. One without elements has no memory to return. managed: NULL if the memory is not
    to be returned with the array. */
IGNIS__COLD static ignis_array ignis__dlpack_wrap(const char *call, void *managed, int major, ignis_array_desc *desc,
                                                  int64_t numel, void *stream)
{
    ignis_array none = IGNIS__ZERO, array;
    ignis__device *device = ignis__device_get(call, desc->device == IGNIS_DEVICE_0 ? 0 : desc->device);
    void (*give_back)(void *ptr, void *managed) = major ? ignis__dlpack_return_versioned : ignis__dlpack_return;
    ignis__work work;
    bool ok;
    if (numel > 0 && !ignis__check_not_null(call, "managed.tensor.data", desc->ptr))
        return none;
    if (numel == 0) {
        desc->ptr = NULL;
    } else if (managed) {
        desc->release_fn = give_back;
        desc->release_data = managed;
    }
    if (!ignis__work_begin(call, device, &work))
        return none;
    ok = ignis__dlpack_order(call, device, stream, stream, work.stream);
    ignis__work_end(&work);
    array = ok ? ignis__array_create(call, desc) : none;
    if (array.id && numel == 0 && managed)
        give_back(NULL, managed);
    return array;
}

#ifdef IGNIS_NO_TENSORS
IGNIS__COLD static ignis_array ignis__dlpack_copy_int8(const char *call, void *managed, int major,
                                                       ignis_array_desc *desc, int64_t numel, void *stream)
{
    ignis_array none = IGNIS__ZERO;
    (void)managed, (void)major, (void)desc, (void)numel, (void)stream;
    ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call,
                "elements are int8, which a formula converts; without IGNIS_NO_TENSORS");
    return none;
}
#else
/*  Copies int8 elements to a new array of i32, waits, and returns the memory. After a failure it is not returned. */
IGNIS__COLD static ignis_array ignis__dlpack_copy_int8(const char *call, void *managed, int major,
                                                       ignis_array_desc *desc, int64_t numel, void *stream)
{
    ignis_array_desc wide = IGNIS__ZERO;
    ignis_array_inputs inputs = IGNIS__ZERO;
    ignis_array copy = IGNIS__ZERO;
    ignis__work work;
    bool ok;
    wide.shape = desc->shape;
    wide.dtype = IGNIS_I32;
    wide.device = desc->device;
    wide.tag = desc->tag;
    inputs.names = "x";
    inputs.count = 1;
    inputs.array[0] = ignis__dlpack_wrap(call, NULL, major, desc, numel, stream);
    if (!inputs.array[0].id)
        return copy;
    copy = ignis__array_create(call, &wide);
    ok = copy.id && ignis__formula_run_into(call, 1, &copy, "x - 256*(x > 127)", &inputs) == IGNIS_OK &&
         ignis__work_begin(call, ignis__device_get(call, desc->device == IGNIS_DEVICE_0 ? 0 : desc->device), &work);
    if (ok) {
        ok = !IGNIS__CUDA_FAILED(call, work.device, cuStreamSynchronize, (work.stream));
        ignis__work_end(&work);
    }
    (void)ignis_array_free(inputs.array[0]);
    if (!ok)
        ignis__array_discard(call, &copy);
    else if (major)
        ignis__dlpack_return_versioned(NULL, managed);
    else
        ignis__dlpack_return(NULL, managed);
    return copy;
}
#endif

IGNIS__COLD IGNIS_API ignis_array ignis_array_from_dlpack(void *managed, int major, void *stream)
{
    static const char call[] = "ignis_array_from_dlpack";
    const ignis_dlpack_versioned *versioned = (const ignis_dlpack_versioned *)managed;
    const ignis_dlpack_tensor *tensor;
    ignis_array none = IGNIS__ZERO;
    ignis_array_desc desc;
    int64_t numel;
    if (!ignis__enter(call) || !ignis__dlpack_major(call, major) || ignis__capture_refuses(call))
        return none;
    if (!ignis__check_not_null(call, "managed", managed))
        return none;
    if (major && versioned->major != 1) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the struct is of version %u.%u of DLPack, and not of 1",
                    (unsigned)versioned->major, (unsigned)versioned->minor);
        return none;
    }
    if (major && (versioned->flags & IGNIS__DLPACK_READ_ONLY)) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "the memory is read-only, and arrays can be written");
        return none;
    }
    tensor = major ? &versioned->tensor : &((const ignis_dlpack *)managed)->tensor;
    if (!ignis__dlpack_read(call, tensor, &desc, &numel))
        return none;
    if (ignis__dlpack_is_int8(tensor))
        return ignis__dlpack_copy_int8(call, managed, major, &desc, numel, stream);
    return ignis__dlpack_wrap(call, managed, major, &desc, numel, stream);
}
