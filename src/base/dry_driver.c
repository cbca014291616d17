/* ===============================================================================================================
   >>dry - dry runs: a driver that does nothing

   May use: >>loader, whose tables it fills. Invariant: it never dereferences an address that it gave out as device
   memory.
   Locks: ignis__dry.lock guards counters and addresses; no lock is taken under it.
   =============================================================================================================== */

#include "room.h"

IGNIS__PRIVATE struct ignis__dry_type ignis__dry = {IGNIS__ZERO, IGNIS__MUTEX_INIT, NULL, 0, 0};

/*  Calls without any effect, named by their parameters. */
IGNIS__PRIVATE int ignis__dry_number(int number) { return (void)number, 0; }
IGNIS__PRIVATE int ignis__dry_flags(unsigned flags) { return (void)flags, 0; }
IGNIS__PRIVATE int ignis__dry_nothing(void) { return 0; }
IGNIS__PRIVATE int ignis__dry_handle(void *handle) { return (void)handle, 0; }
IGNIS__PRIVATE int ignis__dry_two(void *a, void *b) { return (void)a, (void)b, 0; }
IGNIS__PRIVATE int ignis__dry_order(void *stream, void *event, unsigned flags)
{
    return (void)stream, (void)event, (void)flags, 0;
}
IGNIS__PRIVATE int ignis__dry_set(void *function, int attribute, int value)
{
    return (void)function, (void)attribute, (void)value, 0;
}

/*  Calls that return a handle. */
IGNIS__PRIVATE int ignis__dry_recycle(void **handle) { return *handle = &ignis__dry, 0; }
IGNIS__PRIVATE int ignis__dry_none(void **context) { return *context = NULL, 0; }
IGNIS__PRIVATE int ignis__dry_context(void **context, int device) { return (void)device, ignis__dry_recycle(context); }
IGNIS__PRIVATE int ignis__dry_context_of(void *stream, void **context)
{
    return (void)stream, ignis__dry_recycle(context);
}
IGNIS__PRIVATE int ignis__dry_event(void **event, unsigned flags) { return (void)flags, ignis__dry_recycle(event); }
IGNIS__PRIVATE int ignis__dry_module(void **module, const void *image)
{
    return (void)image, ignis__dry_recycle(module);
}
IGNIS__PRIVATE int ignis__dry_function(void **function, void *module, const char *name)
{
    return (void)module, (void)name, ignis__dry_recycle(function);
}
IGNIS__PRIVATE int ignis__dry_exec(void **exec, void *graph, unsigned long long flags)
{
    return (void)graph, (void)flags, ignis__dry_recycle(exec);
}

/*  Streams. */
IGNIS__PRIVATE int ignis__dry_stream_with(void **stream, unsigned flags, int priority)
{
    (void)flags, (void)priority;
    *stream = ignis__alloc(sizeof(uint64_t)); /* 1 while it is captured */
    return *stream ? 0 : IGNIS__CU_OUT_OF_MEMORY;
}
IGNIS__PRIVATE int ignis__dry_stream(void **stream, unsigned flags) { return ignis__dry_stream_with(stream, flags, 0); }
IGNIS__PRIVATE int ignis__dry_freed(void *memory) { return ignis__free(memory), 0; }
static bool ignis__dry_captured(void *stream)
{
    return (uintptr_t)stream > IGNIS__CU_STREAM_PER_THREAD && ignis__atomic_load((uint64_t *)stream) != 0;
}
IGNIS__PRIVATE int ignis__dry_capturing(void *stream, int *captured)
{
    return *captured = ignis__dry_captured(stream), 0;
}
IGNIS__PRIVATE int ignis__dry_capture(void *stream, int mode)
{
    return (void)mode, ignis__atomic_store((uint64_t *)stream, 1), 0;
}
IGNIS__PRIVATE int ignis__dry_capture_end(void *stream, void **graph)
{
    ignis__atomic_store((uint64_t *)stream, 0);
    return ignis__dry_recycle(graph);
}
IGNIS__PRIVATE int ignis__dry_elapsed(float *ms, void *first, void *last)
{
    return (void)first, (void)last, *ms = 0, 0;
}
IGNIS__PRIVATE int ignis__dry_call(void *stream, void (*fn)(void *), void *user_data)
{
    if (!ignis__dry_captured(stream))
        fn(user_data);
    return 0;
}

/*  Calls that return facts. */
IGNIS__PRIVATE int ignis__dry_one(int *count) { return *count = 1, 0; }
IGNIS__PRIVATE int ignis__dry_version(int *version) { return *version = ignis__dry.device.driver_version, 0; }
IGNIS__PRIVATE int ignis__dry_device_get(int *device, int ordinal) { return *device = ordinal, 0; }
IGNIS__PRIVATE int ignis__dry_name(char *name, int size, int device)
{
    (void)device;
    snprintf(name, (size_t)size, "%s", ignis__dry.device.name);
    return 0;
}
IGNIS__PRIVATE int ignis__dry_bus(char *name, int size, int device)
{
    (void)device;
    snprintf(name, (size_t)size, "%s", ignis__dry.device.pci_bus_id);
    return 0;
}
IGNIS__PRIVATE int ignis__dry_uuid(void *uuid, int device)
{
    (void)device;
    memcpy(uuid, ignis__dry.device.uuid, sizeof ignis__dry.device.uuid);
    return 0;
}
IGNIS__PRIVATE int ignis__dry_total(size_t *bytes, int device)
{
    return (void)device, *bytes = (size_t)ignis__dry.device.memory_total, 0;
}
IGNIS__PRIVATE int ignis__dry_attribute(int *value, int attribute, int device)
{
    const ignis_device_info *info = &ignis__dry.device;
    (void)device;
    switch (attribute) {
    case IGNIS__CU_ATTRIBUTE_MAX_THREADS: *value = info->max_threads_per_block; break;
    case IGNIS__CU_ATTRIBUTE_WARP_SIZE: *value = info->warp_size; break;
    case IGNIS__CU_ATTRIBUTE_MULTIPROCESSORS: *value = info->multiprocessors; break;
    case IGNIS__CU_ATTRIBUTE_L2_BYTES: *value = (int)info->l2_bytes; break;
    case IGNIS__CU_ATTRIBUTE_MAJOR: *value = info->compute_major; break;
    case IGNIS__CU_ATTRIBUTE_MINOR: *value = info->compute_minor; break;
    case IGNIS__CU_ATTRIBUTE_SHARED_OPTIN: *value = info->shared_per_block; break;
    case IGNIS__CU_ATTRIBUTE_CLUSTERS: *value = info->compute_major >= 9; break;
    default: *value = 0;
    }
    return 0;
}
IGNIS__PRIVATE int ignis__dry_function_get(int *value, int attribute, void *function)
{
    (void)function;
    *value = attribute == IGNIS__CU_FUNC_MAX_THREADS ? ignis__dry.device.max_threads_per_block
                                                     : 0; /* else registers, and memory that a kernel has of itself */
    return 0;
}
/*  Counts threads and dynamic shared memory; registers are not known. */
IGNIS__PRIVATE int ignis__dry_resident(int *blocks, void *function, int threads, size_t shared)
{
    size_t most = (size_t)(threads > 0 ? 2048 / threads : 0),
           fit = shared ? (size_t)ignis__dry.device.shared_per_block / shared : most;
    (void)function;
    *blocks = (int)(fit < most ? fit : most);
    return 0;
}
IGNIS__PRIVATE int ignis__dry_map(void *map, int type, unsigned rank, void *data, const unsigned long long *sizes,
                                  const unsigned long long *strides, const unsigned *box, const unsigned *steps,
                                  int interleave, int swizzle, int promotion, int fill)
{
    (void)map, (void)type, (void)rank, (void)data, (void)sizes, (void)strides, (void)box, (void)steps;
    (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    return 0;
}

IGNIS__PRIVATE int ignis__dry_pixels(void *map, int type, unsigned rank, void *data, const unsigned long long *sizes,
                                     const unsigned long long *strides, const int *lower, const int *upper,
                                     unsigned channels, unsigned pixels, const unsigned *steps, int interleave,
                                     int swizzle, int promotion, int outside)
{
    return (void)lower, (void)upper, (void)channels, (void)pixels,
           ignis__dry_map(map, type, rank, data, sizes, strides, steps, steps, interleave, swizzle, promotion, outside);
}

/*  Memory. Addresses are never reused; each allocation is rounded to a driver's mapping granularity. */
IGNIS__PRIVATE int ignis__dry_free_bytes(size_t *available, size_t *total)
{
    *total = (size_t)ignis__dry.device.memory_total;
    ignis__mutex_lock(&ignis__dry.lock);
    *available = *total - ignis__dry.used;
    ignis__mutex_unlock(&ignis__dry.lock);
    return 0;
}
IGNIS__PRIVATE int ignis__dry_alloc(ignis__address *address, size_t size)
{
    ignis__dry_memory *memory = (ignis__dry_memory *)ignis__alloc(sizeof *memory);
    bool fits;
    ignis__mutex_lock(&ignis__dry.lock);
    fits = memory && size <= (size_t)ignis__dry.device.memory_total - ignis__dry.used;
    if (fits) {
        memory->start = *address = ignis__dry.next;
        memory->size = size;
        memory->next = ignis__dry.memory;
        ignis__dry.memory = memory;
        ignis__dry.used += size;
        ignis__dry.next += (size / ((size_t)2 << 20) + 1) * ((size_t)2 << 20);
    }
    ignis__mutex_unlock(&ignis__dry.lock);
    if (!fits)
        ignis__free(memory);
    return fits ? 0 : IGNIS__CU_OUT_OF_MEMORY;
}
IGNIS__PRIVATE int ignis__dry_free(ignis__address address)
{
    ignis__dry_memory **link = &ignis__dry.memory, *memory;
    ignis__mutex_lock(&ignis__dry.lock);
    while (*link && (*link)->start != address)
        link = &(*link)->next;
    memory = *link;
    if (memory) {
        *link = memory->next;
        ignis__dry.used -= memory->size;
    }
    ignis__mutex_unlock(&ignis__dry.lock);
    ignis__free(memory);
    return memory ? 0 : IGNIS__CU_INVALID_VALUE;
}
IGNIS__PRIVATE int ignis__dry_pinned(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    *memory = ignis__alloc(size);
    return *memory ? 0 : IGNIS__CU_OUT_OF_MEMORY;
}
/*  The driver does not know host memory. */
IGNIS__PRIVATE int ignis__dry_pointer(unsigned count, int *attributes, void **values, ignis__address address)
{
    const ignis__dry_memory *memory;
    unsigned i;
    ignis__mutex_lock(&ignis__dry.lock);
    for (memory = ignis__dry.memory; memory && address - memory->start >= memory->size; memory = memory->next)
        ;
    for (i = 0; i < count; i++) {
        switch (attributes[i]) {
        case IGNIS__CU_POINTER_MEMORY_TYPE: *(int *)values[i] = memory ? IGNIS__CU_MEMORY_DEVICE : 0; break;
        case IGNIS__CU_POINTER_ORDINAL: *(int *)values[i] = 0; break;
        case IGNIS__CU_POINTER_RANGE_START: *(ignis__address *)values[i] = memory ? memory->start : 0; break;
        case IGNIS__CU_POINTER_RANGE_SIZE: *(size_t *)values[i] = memory ? memory->size : 0; break;
        default: break;
        }
    }
    ignis__mutex_unlock(&ignis__dry.lock);
    return 0;
}
IGNIS__PRIVATE int ignis__dry_fill(ignis__address to, unsigned char value, size_t size, void *stream)
{
    return (void)to, (void)value, (void)size, (void)stream, 0;
}
IGNIS__PRIVATE int ignis__dry_upload(ignis__address to, const void *from, size_t size, void *stream)
{
    return (void)to, (void)from, (void)size, (void)stream, 0;
}
IGNIS__PRIVATE int ignis__dry_download(void *to, ignis__address from, size_t size, void *stream)
{
    (void)from, (void)stream;
    memset(to, 0, size);
    return 0;
}
IGNIS__PRIVATE int ignis__dry_copy(ignis__address to, ignis__address from, size_t size, void *stream)
{
    return (void)to, (void)from, (void)size, (void)stream, 0;
}
IGNIS__PRIVATE int ignis__dry_launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                     void *stream, void **params, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    return (void)shared, (void)stream, (void)params, (void)extra, 0;
}
IGNIS__PRIVATE int ignis__dry_launch_config(const void *config, void *function, void **params, void **extra)
{
    return (void)config, (void)function, (void)params, (void)extra, 0;
}
