/*  >>vmm.array - arrays over VMM memory

    Creates arrays in blocks and over slices of ranges, and finds the physical memory of any array.
    Uses: arrays and storages of ignis.h, blocks, ranges.
    Invariants: an array over a slice keeps its range and the mappings of the slice until it is freed.
    Locks: the range's slot, around its mappings. */

#include "room.h"

/*  Creates an array over memory that may be on another device, which the driver's pointer query would reject.
    On failure the caller keeps what release_fn would release. */
IGNIS__PRIVATE ignis_array ignis__vmm_wrap(const char *call, ignis__device *device, ignis__address address,
                                           const ignis_array_desc *desc, void (*release_fn)(void *ptr, void *user_data),
                                           void *release_data)
{
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    ignis_array result = IGNIS__ZERO;
    ignis__storage *storage;
    ignis__array *array;
    int64_t numel;
    if (!ignis__shape_check(call, &desc->shape, dtype, &numel) ||
        (storage = ignis__storage_make(call, device, numel * ignis__dtypes[dtype].size)) == NULL)
        return result;
    storage->wrapped = true;
    storage->address = address;
    storage->stream = desc->stream;
    ignis__storage_enlist(storage, device, desc->stream);
    array = ignis__array_make(call, storage, &desc->shape, dtype, numel);
    if (!array) {
        ignis__storage_destroy(storage);
        return result;
    }
    storage->release_fn = release_fn;
    storage->release_data = release_data;
    array->owner = desc->owner ? desc->owner : IGNIS_OWNER_IGNIS;
    if (desc->tag)
        snprintf(array->tag, sizeof array->tag, "%s", desc->tag);
    return ignis__array_publish(array);
}

IGNIS__PRIVATE bool ignis__vmm_adopt_stream(const char *call, ignis__device *device, void *stream)
{
    return !stream || stream == device->stream || ignis__stream_adopt(call, device, stream) != 0;
}

/*  Checks a description before memory is allocated, and computes the bytes. */
IGNIS__PRIVATE bool ignis__vmm_array_check(const char *call, const ignis_array_desc *desc, int64_t *size)
{
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    int64_t numel;
    if (desc->ptr || desc->release_fn)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.ptr and desc.release_fn must be null: this call chooses the address");
    if (!ignis__dtype_valid(call, dtype) || !ignis__owner_valid(call, desc->owner ? desc->owner : IGNIS_OWNER_IGNIS) ||
        !ignis__shape_check(call, &desc->shape, dtype, &numel))
        return false;
    *size = numel * ignis__dtypes[dtype].size;
    return true;
}

static void ignis__vmm_array_release(void *ptr, void *data)
{
    (void)ptr;
    ignis__vmm_block_destroy("ignis_array_free", (ignis__vmm_block *)data);
    ignis__free(data);
}

/*  Creates an array in a new block. */
static ignis_array ignis__vmm_array_create(const char *call, ignis__device *device, const ignis_array_desc *desc,
                                           int64_t size, const int *access_devices, int access_count, bool shareable)
{
    ignis_array result = IGNIS__ZERO;
    ignis__vmm_block *block = (ignis__vmm_block *)ignis__alloc_for(call, sizeof *block);
    if (block &&
        ignis__vmm_block_create(call, device, size ? size : 1, access_devices, access_count, shareable, block)) {
        result = ignis__vmm_wrap(call, device, block->address, desc, ignis__vmm_array_release, block);
        if (!result.id)
            ignis__vmm_block_destroy(call, block);
    }
    if (!result.id)
        ignis__free(block);
    return result;
}

/*  Creates a zeroed array of one dimension; other processes can map its memory if it is shareable. */
IGNIS__PRIVATE ignis_array ignis__array_zeroed(const char *call, ignis__device *device, ignis_dtype dtype,
                                               int64_t numel, const char *tag, bool shareable)
{
    ignis_array result;
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape.ndim = 1;
    desc.shape.dim[0] = numel;
    desc.dtype = dtype;
    desc.device = ignis__device_in_desc(device);
    desc.tag = tag;
    result = shareable ? ignis__vmm_array_create(call, device, &desc, numel * ignis__dtypes[dtype].size, NULL, 0, true)
                       : ignis__array_create(call, &desc);
    if (result.id && ignis__array_set_zero(call, result) != IGNIS_OK)
        ignis__array_discard(call, &result);
    return result;
}

IGNIS_API ignis_array ignis_vmm_array(const ignis_vmm_array_desc *desc)
{
    static const char call[] = "ignis_vmm_array";
    ignis_array result = IGNIS__ZERO;
    ignis_array_desc plain;
    ignis__device *device;
    int64_t size;
    int type;
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "desc", desc) ||
        (desc->access_count > 0 && !ignis__check_not_null(call, "desc.access_devices", desc->access_devices)))
        return result;
    memset(&plain, 0, sizeof plain);
    plain.shape = desc->shape;
    plain.dtype = desc->dtype;
    plain.owner = desc->owner;
    plain.tag = desc->tag;
    type = ignis__vmm_handle_type(call, desc->handle_type);
    device = type < 0 ? NULL : ignis__device_get(call, ignis__desc_device(desc->device));
    if (device && ignis__vmm_array_check(call, &plain, &size))
        result =
            ignis__vmm_array_create(call, device, &plain, size, desc->access_devices, desc->access_count, type != 0);
    return result;
}

/*  A slice of a range, under an array. */
typedef struct ignis__vmm_slice {
    ignis__range *range; /* held */
    int64_t offset, size;
} ignis__vmm_slice;

static void ignis__vmm_slice_release(void *ptr, void *data)
{
    ignis__vmm_slice *slice = (ignis__vmm_slice *)data;
    (void)ptr;
    ignis__mutex_lock(&slice->range->slot.lock);
    ignis__range_check_mapped("ignis_array_free", slice->range, slice->offset, slice->size, 0, -1);
    slice->range->arrays--;
    ignis__mutex_unlock(&slice->range->slot.lock);
    ignis__range_drop("ignis_array_free", slice->range);
    ignis__free(slice);
}

static bool ignis__vmm_slice_check(const char *call, const ignis__range *range, ignis__device *device,
                                   const ignis__vmm_slice *slice, int64_t element)
{
    unsigned long long flags = 0;
    int64_t at;
    if (slice->offset % element != 0)
        return ignis__fail_false(IGNIS_DIAG_VMM_SIZE, call, "offset is %lld, not a multiple of the element size %lld",
                                 (long long)slice->offset, (long long)element);
    if (!ignis__range_check_mapped(call, range, slice->offset, slice->size, 0, 0))
        return false;
    for (at = slice->offset / range->granularity * range->granularity; at < slice->offset + slice->size;
         at += range->granularity) {
        if (!ignis__vmm_read_access(call, device, range->address + (uint64_t)at, &flags))
            return false;
        if (flags == IGNIS_VMM_ACCESS_NONE)
            return ignis__fail_false(IGNIS_DIAG_VMM_STATE, call,
                                     "device %d has no access to the range at offset %lld; call ignis_vmm_set_access",
                                     ignis__device_ordinal(device), (long long)at);
    }
    return true;
}

IGNIS_API ignis_array ignis_vmm_array_map(ignis_vmm_range handle, int64_t offset, const ignis_array_desc *desc)
{
    static const char call[] = "ignis_vmm_array_map";
    ignis_array result = IGNIS__ZERO;
    ignis__vmm_slice *slice = NULL;
    ignis__range_use use;
    ignis__range *range =
        ignis__range_begin(call, handle, desc ? ignis__desc_device(desc->device) : IGNIS__RANGE_DEVICE, &use);
    int64_t size = 0;
    if (!range)
        return result;
    if (ignis__check_not_null(call, "desc", desc) && ignis__vmm_array_check(call, desc, &size) &&
        ignis__vmm_adopt_stream(call, use.device, desc->stream))
        slice = (ignis__vmm_slice *)ignis__alloc_for(call, sizeof *slice);
    if (slice) {
        slice->range = range;
        slice->offset = offset;
        slice->size = size ? size : 1;
        if (ignis__vmm_slice_check(call, range, use.device, slice,
                                   ignis__dtypes[desc->dtype ? desc->dtype : IGNIS_F32].size))
            result = ignis__vmm_wrap(call, use.device, range->address + (uint64_t)offset, desc,
                                     ignis__vmm_slice_release, slice);
    }
    if (result.id) {
        ignis__range_check_mapped(call, range, offset, slice->size, 0, 1);
        range->arrays++;
        ignis__atomic_add(&range->slot.state, 1); /* held by the array */
    } else {
        ignis__free(slice);
    }
    (void)ignis__range_end(call, &use, true);
    return result;
}

/*  Finds the driver's allocation that contains an array. Fails for memory that Ignis shares between arrays.
    The device is entered. */
IGNIS__PRIVATE bool ignis__vmm_find_allocation(const char *call, const ignis__array *array, const char *instead,
                                               ignis__address *base, int64_t *size)
{
    ignis__address address = ignis__atomic_load(&array->storage->address);
    size_t whole = 0;
    int error;
    if (array->storage->external)
        return ignis__fail_false(IGNIS_DIAG_NOT_SHAREABLE, call,
                                 "%s is in memory of a graphics API; export it with that API",
                                 ignis__array_label(array).text);
    if (!address || array->storage->block)
        return ignis__fail_false(IGNIS_DIAG_NOT_SHAREABLE, call,
                                 "%s shares its allocation with other arrays, so it cannot be exported alone; "
                                 "make it with %s",
                                 ignis__array_label(array).text, instead);
    error = IGNIS__CUDA(cuMemGetAddressRange_v2, (base, &whole, address + (uint64_t)array->offset));
    if (error != 0)
        ignis__fail_because(
            IGNIS_DIAG_NOT_SHAREABLE, call, error, ignis__cuda_name(error), NULL,
            "%s wraps a pointer outside every allocation of the driver: cuMemGetAddressRange returned %s (%d)",
            ignis__array_label(array).text, ignis__cuda_name(error), error);
    *size = (int64_t)whole;
    return error == 0;
}

/*  Holds the physical memory at a pointer of the caller; *base is its first address. */
static ignis__physical *ignis__physical_retain(const char *call, ignis__array *array, ignis__address at,
                                               ignis__address *base)
{
    unsigned long long handle = 0;
    ignis_vmm_prop prop;
    int64_t size;
    int error;
    if (!ignis__vmm_find_allocation(call, array, "ignis_vmm_array", base, &size))
        return NULL;
    error = IGNIS__CUDA(cuMemRetainAllocationHandle, (&handle, (void *)(uintptr_t)at));
    if (error != 0) {
        ignis__fail_because(IGNIS_DIAG_NOT_SHAREABLE, call, error, ignis__cuda_name(error), NULL,
                            "%s is not in memory of cuMemCreate, so it cannot be exported: cuMemRetainAllocationHandle "
                            "returned %s (%d); make it with ignis_vmm_array",
                            ignis__array_label(array).text, ignis__cuda_name(error), error);
        return NULL;
    }
    if (ignis__physical_check_imported(call, array->storage->device, handle, &prop))
        return ignis__physical_wrap(call, &ignis__devices[prop.location.id], handle, size, prop.handle_types);
    (void)IGNIS__CUDA(cuMemRelease, (handle));
    return NULL;
}

/*  Holds the physical memory of an array, and finds the array's offset in it. The device is entered. */
IGNIS__PRIVATE ignis__physical *ignis__vmm_find_physical(const char *call, ignis__array *array, int64_t *offset)
{
    ignis__storage *storage = array->storage;
    ignis__address at = ignis__atomic_load(&storage->address) + (uint64_t)array->offset, base = at;
    ignis__physical *memory = NULL;
    if (storage->release_fn == ignis__vmm_array_release) {
        base = ((const ignis__vmm_block *)storage->release_data)->address;
        memory = ((const ignis__vmm_block *)storage->release_data)->memory;
        ignis__atomic_add(&memory->holds, 1);
    } else if (storage->release_fn == ignis__vmm_slice_release) {
        ignis__range *range = ((ignis__vmm_slice *)storage->release_data)->range;
        const ignis__mapping *mapping;
        ignis__mutex_lock(&range->slot.lock);
        for (mapping = range->mappings; mapping && range->address + (uint64_t)mapping->offset <= at;
             mapping = mapping->next) {
            base = range->address + (uint64_t)mapping->offset;
            memory = mapping->vmm->memory;
        }
        ignis__atomic_add(&memory->holds, 1); /* the array keeps it mapped */
        ignis__mutex_unlock(&range->slot.lock);
    } else if ((memory = ignis__physical_retain(call, array, at, &base)) == NULL) {
        return NULL;
    }
    *offset = (int64_t)(at - base);
    if (*offset + ignis__array_bytes(array) <= memory->size)
        return memory;
    ignis__fail(IGNIS_DIAG_NOT_SHAREABLE, call, "%s covers several allocations; export each one alone",
                ignis__array_label(array).text);
    ignis__physical_drop(call, memory);
    return NULL;
}

IGNIS_API ignis_vmm ignis_vmm_of_array(ignis_array handle, int64_t *offset)
{
    static const char call[] = "ignis_vmm_of_array";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis_vmm result = IGNIS__ZERO;
    ignis__physical *memory;
    ignis__binding binding;
    ignis__vmm_facts facts;
    int64_t at = 0;
    if (!array)
        return result;
    if (ignis__device_enter(call, array->storage->device, &binding)) {
        if (ignis__vmm_read_facts(call, array->storage->device, &facts) &&
            (memory = ignis__vmm_find_physical(call, array, &at)) != NULL)
            result = ignis__vmm_publish(call, memory, facts.granularity, false);
        if (result.id && offset)
            *offset = at;
        ignis__device_leave(&binding);
    }
    ignis__array_drop(call, array);
    return result;
}
