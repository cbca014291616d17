/*  device/memory_query.c - ignis_memory_query, _rows, _trim

    Reads the statistics of memory_block.c into copies for the caller.
    May use: memory_block.c, memory_cache.c, memory_pinned.c. Locks: cache->lock while it reads. */

#include "room.h"

IGNIS__COLD IGNIS_API ignis_status ignis_memory_query(int ordinal, ignis_memory_info *info)
{
    static const char call[] = "ignis_memory_query";
    ignis__device *device;
    ignis__cache *cache;
    ignis__binding binding;
    size_t available = 0, total = 0;
    bool ok;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "info", info))
        return ignis__failed();
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__device_enter(call, device, &binding))
        return ignis__failed();
    ok = !IGNIS__CUDA_FAILED(call, device, cuMemGetInfo_v2, (&available, &total));
    ignis__device_leave(&binding);
    cache = &ignis__caches[ordinal];
    ignis__mutex_lock(&cache->lock);
    *info = cache->info;
    info->largest_free = ignis__cache_largest_free(cache);
    ignis__mutex_unlock(&cache->lock);
    info->device_free = (int64_t)available;
    info->device_total = (int64_t)total;
    info->pinned_bytes = (int64_t)ignis__atomic_load(&ignis__pinned_bytes);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD static int ignis__row_order(const void *a, const void *b)
{
    const ignis_memory_row *x = (const ignis_memory_row *)a, *y = (const ignis_memory_row *)b;
    int order = (x->peak_bytes < y->peak_bytes) - (x->peak_bytes > y->peak_bytes);
    return order ? order : (x->live_bytes < y->live_bytes) - (x->live_bytes > y->live_bytes);
}

/*  Returns all rows of a device in a block of memory, in order. NULL, and reported, if out of memory. */
IGNIS__COLD IGNIS__PRIVATE ignis_memory_row *ignis__rows_make(const char *call, ignis__cache *cache, int *count)
{
    ignis__memory_row *list = NULL, **from = ignis__memory_traced ? &cache->counted : &list, *counted;
    ignis__block *first, *block;
    ignis_memory_row *rows = NULL;
    bool ok = true;
    int i;
    *count = 0;
    ignis__mutex_lock(&cache->lock);
    for (i = 0; i < 2; i++) {
        first = ignis__memory_traced ? NULL : i ? cache->outside : cache->segments;
        for (; first; first = first->next_segment) {
            for (block = first; ok && block; block = block->above) {
                if (!block->used || !block->origin.call)
                    continue;
                counted = ignis__memory_row_find(&list, &block->origin);
                ok = counted != NULL;
                if (ok) {
                    counted->row.live_bytes += block->size;
                    counted->row.live_blocks++;
                }
            }
        }
    }
    for (counted = *from; counted; counted = counted->next)
        ++*count;
    rows = ok ? (ignis_memory_row *)ignis__alloc((size_t)(*count + 1) * sizeof *rows) : NULL;
    for (counted = *from, *count = 0; rows && counted; counted = counted->next) {
        rows[*count] = counted->row;
        rows[(*count)++].peak_bytes = ignis__memory_traced ? ignis__memory_rows_peak(cache, counted) : 0;
    }
    ignis__mutex_unlock(&cache->lock);
    ignis__memory_rows_free(&list);
    if (rows)
        qsort(rows, (size_t)*count, sizeof *rows, ignis__row_order);
    else
        ignis__fail_host_memory(call, (size_t)(*count + 1) * sizeof *rows);
    return rows;
}

IGNIS__COLD IGNIS_API int ignis_memory_rows(int ordinal, ignis_memory_row *rows, int capacity)
{
    static const char call[] = "ignis_memory_rows";
    ignis_memory_row *made;
    ignis__device *device;
    int count = 0;
    if (!ignis__enter(call) || !ignis__check_capacity(call, "rows", rows, capacity))
        return -1;
    device = ignis__device_get(call, ordinal);
    made = device ? ignis__rows_make(call, &ignis__caches[ordinal], &count) : NULL;
    if (!made)
        return -1;
    if (capacity > 0)
        memcpy(rows, made, (size_t)(count < capacity ? count : capacity) * sizeof *rows);
    ignis__free(made);
    return count;
}

IGNIS__COLD IGNIS_API int64_t ignis_memory_trim(int ordinal)
{
    static const char call[] = "ignis_memory_trim";
    ignis__device *device;
    ignis__cache *cache;
    ignis__binding binding;
    int64_t freed;
    if (!ignis__enter(call) || ignis__capture_refuses(call))
        return -1;
    device = ignis__device_get(call, ordinal);
    if (!device || !ignis__device_enter(call, device, &binding))
        return -1;
    cache = &ignis__caches[ordinal];
    freed = ignis__cache_trim(call, device, cache);
    if (!ignis__pinned_chunks_trim(call, device, cache))
        freed = -1;
    ignis__device_leave(&binding);
    return freed;
}
