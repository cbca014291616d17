/* --- arrays ------------------------------------------------------------------------------------------------------------ */

/*  An array over memory that need not lie on its device, which the driver's view of a pointer would have to
    say. What release_fn gives back stays the caller's on failure. */
static ignis_array ignis__vmm_wrap(const char *call, ignis__device *device, ignis__address address,
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

static bool ignis__vmm_stream(const char *call, ignis__device *device, void *stream)
{
    return !stream || stream == device->stream || ignis__stream_adopt(call, device, stream) != 0;
}

/*  What of an array's desc can be wrong before there is memory for it. */
static bool ignis__vmm_array_check(const char *call, const ignis_array_desc *desc, int64_t *size)
{
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    int64_t numel;
    if (desc->ptr || desc->release_fn)
        return ignis__fail_false(
            IGNIS_DIAG_BAD_NUMBER, call,
            "desc.ptr and desc.release_fn are null: where the array lies is not the caller's to say");
    if (!ignis__dtype_valid(call, dtype) || !ignis__owner_valid(call, desc->owner ? desc->owner : IGNIS_OWNER_IGNIS) ||
        !ignis__shape_check(call, &desc->shape, dtype, &numel))
        return false;
    *size = numel * ignis__dtypes[dtype].size;
    return true;
}

static void ignis__vmm_array_release(void *ptr, void *data)
{
    (void)ptr;
    ignis__vmm_drop("ignis_array_free", (ignis__vmm_block *)data);
    ignis__free(data);
}

/*  An array in memory of its own. */
static ignis_array ignis__vmm_array_make(const char *call, ignis__device *device, const ignis_array_desc *desc,
                                         int64_t size, const int *access_devices, int access_count, bool shareable)
{
    ignis_array result = IGNIS__ZERO;
    ignis__vmm_block *block = (ignis__vmm_block *)ignis__alloc_for(call, sizeof *block);
    if (block && ignis__vmm_make(call, device, size ? size : 1, access_devices, access_count, shareable, block)) {
        result = ignis__vmm_wrap(call, device, block->address, desc, ignis__vmm_array_release, block);
        if (!result.id)
            ignis__vmm_drop(call, block);
    }
    if (!result.id)
        ignis__free(block);
    return result;
}

/*  A zeroed array of one dimension, in memory that others can map if it is shareable. */
static ignis_array ignis__array_zeroed(const char *call, ignis__device *device, ignis_dtype dtype, int64_t numel,
                                       const char *tag, bool shareable)
{
    ignis_array result;
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape.ndim = 1;
    desc.shape.dim[0] = numel;
    desc.dtype = dtype;
    desc.device = ignis__device_in_desc(device);
    desc.tag = tag;
    result = shareable ? ignis__vmm_array_make(call, device, &desc, numel * ignis__dtypes[dtype].size, NULL, 0, true)
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
        result = ignis__vmm_array_make(call, device, &plain, size, desc->access_devices, desc->access_count, type != 0);
    return result;
}

/*  The part of a range that an array lies in. */
typedef struct ignis__vmm_part {
    ignis__range *range; /* held */
    int64_t offset, size;
} ignis__vmm_part;

static void ignis__vmm_part_release(void *ptr, void *data)
{
    ignis__vmm_part *part = (ignis__vmm_part *)data;
    (void)ptr;
    ignis__mutex_lock(&part->range->slot.lock);
    ignis__range_covered("ignis_array_free", part->range, part->offset, part->size, 0, -1);
    part->range->arrays--;
    ignis__mutex_unlock(&part->range->slot.lock);
    ignis__range_unhold("ignis_array_free", part->range);
    ignis__free(part);
}

static bool ignis__vmm_part_check(const char *call, const ignis__range *range, ignis__device *device,
                                  const ignis__vmm_part *part, int64_t element)
{
    unsigned long long flags = 0;
    int64_t at;
    if (part->offset % element != 0)
        return ignis__fail_false(IGNIS_DIAG_VMM_SIZE, call, "offset is %lld, not a multiple of the element size %lld",
                                 (long long)part->offset, (long long)element);
    if (!ignis__range_covered(call, range, part->offset, part->size, 0, 0))
        return false;
    for (at = part->offset / range->granularity * range->granularity; at < part->offset + part->size;
         at += range->granularity) {
        if (!ignis__access_read(call, device, range->address + (uint64_t)at, &flags))
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
    ignis__vmm_part *part = NULL;
    ignis__range_use use;
    ignis__range *range =
        ignis__range_begin(call, handle, desc ? ignis__desc_device(desc->device) : IGNIS__RANGE_DEVICE, &use);
    int64_t size = 0;
    if (!range)
        return result;
    if (ignis__check_not_null(call, "desc", desc) && ignis__vmm_array_check(call, desc, &size) &&
        ignis__vmm_stream(call, use.device, desc->stream))
        part = (ignis__vmm_part *)ignis__alloc_for(call, sizeof *part);
    if (part) {
        part->range = range;
        part->offset = offset;
        part->size = size ? size : 1;
        if (ignis__vmm_part_check(call, range, use.device, part,
                                  ignis__dtypes[desc->dtype ? desc->dtype : IGNIS_F32].size))
            result = ignis__vmm_wrap(call, use.device, range->address + (uint64_t)offset, desc, ignis__vmm_part_release,
                                     part);
    }
    if (result.id) {
        ignis__range_covered(call, range, offset, part->size, 0, 1);
        range->arrays++;
        ignis__atomic_add(&range->slot.state, 1); /* the array's hold */
    } else {
        ignis__free(part);
    }
    (void)ignis__range_end(call, &use, true);
    return result;
}

/*  Where the driver's allocation of an array begins and how long it is, for memory that Ignis does not hand
    out in parts. The device is entered. */
static bool ignis__vmm_allocation(const char *call, const ignis__array *array, const char *instead,
                                  ignis__address *base, int64_t *size)
{
    ignis__address address = ignis__atomic_load(&array->storage->address);
    size_t whole = 0;
    int error;
    if (array->storage->external)
        return ignis__fail_false(IGNIS_DIAG_NOT_SHAREABLE, call,
                                 "%s lies in memory of a graphics API, which exports it itself to who asks that",
                                 ignis__array_label(array).text);
    if (!address || array->storage->block)
        return ignis__fail_false(IGNIS_DIAG_NOT_SHAREABLE, call,
                                 "%s lies in memory that it shares with other arrays, of which nothing can be exported "
                                 "alone; make it with %s",
                                 ignis__array_label(array).text, instead);
    error = IGNIS__CUDA(cuMemGetAddressRange_v2, (base, &whole, address + (uint64_t)array->offset));
    if (error != 0)
        ignis__fail_because(
            IGNIS_DIAG_NOT_SHAREABLE, call, error, ignis__cuda_name(error), NULL,
            "%s wraps a pointer that the driver knows no allocation of: cuMemGetAddressRange gives %s (%d)",
            ignis__array_label(array).text, ignis__cuda_name(error), error);
    *size = (int64_t)whole;
    return error == 0;
}

/*  The physical memory of a pointer of the caller's: *base is where it begins. */
static ignis__physical *ignis__physical_retain(const char *call, ignis__array *array, ignis__address at,
                                               ignis__address *base)
{
    unsigned long long handle = 0;
    ignis_vmm_prop prop;
    int64_t size;
    int error;
    if (!ignis__vmm_allocation(call, array, "ignis_vmm_array", base, &size))
        return NULL;
    error = IGNIS__CUDA(cuMemRetainAllocationHandle, (&handle, (void *)(uintptr_t)at));
    if (error != 0) {
        ignis__fail_because(
            IGNIS_DIAG_NOT_SHAREABLE, call, error, ignis__cuda_name(error), NULL,
            "%s does not lie in memory of cuMemCreate, so it cannot be exported: cuMemRetainAllocationHandle "
            "gives %s (%d); make it with ignis_vmm_array",
            ignis__array_label(array).text, ignis__cuda_name(error), error);
        return NULL;
    }
    if (ignis__vmm_inspect(call, array->storage->device, handle, &prop))
        return ignis__physical_of(call, &ignis__devices[prop.location.id], handle, size, prop.handle_types);
    (void)IGNIS__CUDA(cuMemRelease, (handle));
    return NULL;
}

/*  The physical memory behind an array, with one hold more, and where in it the array begins. The device is
    entered. */
static ignis__physical *ignis__vmm_find(const char *call, ignis__array *array, int64_t *offset)
{
    ignis__storage *storage = array->storage;
    ignis__address at = ignis__atomic_load(&storage->address) + (uint64_t)array->offset, base = at;
    ignis__physical *memory = NULL;
    if (storage->release_fn == ignis__vmm_array_release) {
        base = ((const ignis__vmm_block *)storage->release_data)->address;
        memory = ((const ignis__vmm_block *)storage->release_data)->memory;
        ignis__atomic_add(&memory->holds, 1);
    } else if (storage->release_fn == ignis__vmm_part_release) {
        ignis__range *range = ((ignis__vmm_part *)storage->release_data)->range;
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
    ignis__fail(IGNIS_DIAG_NOT_SHAREABLE, call, "%s reaches over more than one allocation; export them one by one",
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
        if (ignis__vmm_device(call, array->storage->device, &facts) &&
            (memory = ignis__vmm_find(call, array, &at)) != NULL)
            result = ignis__vmm_publish(call, memory, facts.granularity, false);
        if (result.id && offset)
            *offset = at;
        ignis__device_leave(&binding);
    }
    ignis__array_drop(call, array);
    return result;
}
