/*  device/memory_cache.c - memory taken, recycled, stolen from other streams, returned to the driver

    Order of attempts: the stream's bins, blocks of other streams whose event is done, a new segment, free segments
    trimmed and a new segment; then the call fails.
    May use: memory_block.c. Locks: cache->asking or cache->trimming, then cache->lock, which is released around
    driver calls that may wait. */

#include "room.h"

/*  Allocates a segment: one free block in its bin, at least `size` bytes. NULL if out of memory. Releases the cache's
    lock around the driver call, which may wait for the device. Only other threads that ask the driver wait for it,
    and then look again for free memory. The stream's cache is looked up again, because another thread may have
    forgotten the stream; NULL if out of host memory. */
IGNIS__COLD static ignis__block *ignis__segment_make(ignis__cache *cache, ignis__stream_cache **part, int64_t size,
                                                     int64_t wanted, int *error)
{
    void *stream = (*part)->stream;
    bool captured = (*part)->captured, is_small = (*part)->is_small;
    ignis__address address = 0;
    ignis__block *block = NULL;
    int64_t room;
    ignis__mutex_unlock(&cache->lock);
    ignis__mutex_lock(&cache->asking);
    ignis__mutex_lock(&cache->lock);
    *part = ignis__stream_cache_of(cache, stream, captured, is_small);
    if (*part && !ignis__memory_bypass)
        block = ignis__bin_best(*part, size);
    room = cache->info.limit - cache->info.reserved_bytes;
    if (cache->info.limit && wanted > room)
        wanted = room / IGNIS__BLOCK_UNIT * IGNIS__BLOCK_UNIT;
    if (*part && !block && wanted >= size) {
        ignis__mutex_unlock(&cache->lock);
        *error = IGNIS__CUDA(cuMemAlloc_v2, (&address, (size_t)wanted));
        ignis__mutex_lock(&cache->lock);
        *part = ignis__stream_cache_of(cache, stream, captured, is_small);
        block = *part && *error == 0 ? ignis__block_take(cache, *part, address, wanted) : NULL;
        if (block) {
            block->next_segment = cache->segments;
            cache->segments = block;
            cache->info.driver_allocations++;
            ignis__memory_count(cache, 0, wanted);
            ignis__bin_insert(block);
        } else if (*error == 0) {
            (void)IGNIS__CUDA(cuMemFree_v2, (address));
            *error = IGNIS__NO_HOST_MEMORY;
        }
    }
    ignis__mutex_unlock(&cache->asking);
    return block;
}

static int64_t ignis__segment_size(int64_t size)
{
    int64_t step = IGNIS__SMALL_SEGMENT;
    if (size <= IGNIS__SMALL_LIMIT)
        return IGNIS__SMALL_SEGMENT;
    if (size < IGNIS__MEDIUM_LIMIT)
        return IGNIS__MEDIUM_SEGMENT;
    return size > INT64_MAX - step ? size : (size + step - 1) / step * step;
}

/*  Frees the zeroed blocks of a stream's cache. Those of a graph that never ran were not zeroed. */
static void ignis__zeroed_unuse(ignis__cache *cache, ignis__stream_cache *part)
{
    while (part->zeroed) {
        ignis__block *block = part->zeroed;
        part->zeroed = block->larger;
        block->larger = NULL;
        ignis__block_unuse(cache, block);
    }
}

/*  Takes every entirely free segment out of the locked cache. Returns a list linked by next_segment. */
IGNIS__COLD static ignis__block *ignis__segments_take(ignis__cache *cache)
{
    ignis__block **link = &cache->segments, *block, *taken = NULL;
    ignis__stream_cache *part;
    for (part = cache->parts; part; part = part->next)
        if (!part->captured)
            ignis__zeroed_unuse(cache, part);
    while (*link) {
        ignis__block *first = *link;
        for (block = first; block && !block->used && !block->part->captured; block = block->above)
            ;
        if (block) {
            link = &first->next_segment;
            continue;
        }
        for (block = first; block; block = block->above)
            ignis__bin_remove(block);
        while (first->above)
            ignis__block_join(cache, first);
        *link = first->next_segment;
        first->next_segment = taken;
        taken = first;
    }
    return taken;
}

/*  Frees every entirely free segment. Waits for the device, so the streams of blocks do not matter any more. Work on
    the device may wait for a launch of another thread, so only other trimming threads wait for this call. Returns the
    bytes, -1 on failure. */
IGNIS__COLD IGNIS__PRIVATE int64_t ignis__cache_trim(const char *call, ignis__device *device, ignis__cache *cache)
{
    ignis__block *taken, *first;
    int64_t freed = 0;
    bool ok = true;
    if (ignis__atomic_load(&device->captures))
        return 0;
    ignis__mutex_lock(&cache->trimming);
    ignis__mutex_lock(&cache->lock);
    taken = ignis__segments_take(cache);
    ignis__mutex_unlock(&cache->lock);
    if (taken)
        ok = ignis__device_wait(call, device);
    while ((first = taken) != NULL) {
        taken = first->next_segment;
        ok = ok && !IGNIS__CUDA_FAILED(call, device, cuMemFree_v2, (first->address));
        ignis__mutex_lock(&cache->lock);
        if (ok) {
            cache->info.driver_frees++;
            freed += first->size;
            ignis__memory_count(cache, 0, -first->size);
            ignis__block_recycle(cache, first);
        } else {
            first->next_segment = cache->segments;
            cache->segments = first;
            ignis__bin_insert(first);
        }
        ignis__mutex_unlock(&cache->lock);
    }
    ignis__mutex_unlock(&cache->trimming);
    return ok ? freed : -1;
}

/*  Returns the best free block of another stream, after making the stream of `part` wait for that stream's use of
    it. */
IGNIS__COLD static ignis__block *ignis__block_steal(const char *call, ignis__device *device, ignis__cache *cache,
                                                    ignis__stream_cache *part, int64_t size)
{
    ignis__stream_cache *other;
    ignis__block *best = NULL;
    for (other = cache->parts; other; other = other->next) {
        ignis__block *block = other == part || other->captured ? NULL : ignis__bin_best(other, size);
        if (block && (!best || block->size < best->size))
            best = block;
    }
    if (!best || !ignis__stream_order(call, device, best->part->stream, device, part->stream))
        return NULL;
    ignis__block_use(cache, best, size); /* cut first, so that the rest stays with its stream */
    best->part = part;
    best->used = false;
    ignis__bin_insert(best);
    return best;
}

/*  Returns a free block in its bin, at least `size` bytes. NULL if out of memory. Releases the cache's lock while it
    waits for the device. */
static ignis__block *ignis__memory_find(const char *call, ignis__device *device, ignis__cache *cache,
                                        ignis__stream_cache *part, int64_t size, int *error)
{
    ignis__block *block = ignis__bin_best(part, size);
    void *stream = part->stream;
    bool is_small = part->is_small, trimmed;
    if (block) {
        cache->info.cache_hits++;
        return block;
    }
    block = ignis__segment_make(cache, &part, size, ignis__segment_size(size), error);
    if (!block && part)
        block = ignis__segment_make(cache, &part, size, size, error);
    if (block || !part || part->captured || ignis__capturing()) /* the rest needs events or waits */
        return block;
    block = ignis__block_steal(call, device, cache, part, size);
    if (block)
        return block;
    ignis__mutex_unlock(&cache->lock);
    trimmed = ignis__cache_trim(call, device, cache) >= 0;
    ignis__mutex_lock(&cache->lock);
    part = trimmed ? ignis__stream_cache_of(cache, stream, false, is_small) : NULL;
    block = part ? ignis__bin_best(part, size) : NULL;
    return block || !part ? block : ignis__segment_make(cache, &part, size, size, error);
}

IGNIS__COLD IGNIS__PRIVATE int64_t ignis__cache_largest_free(const ignis__cache *cache)
{
    const ignis__stream_cache *part;
    int64_t largest = 0;
    int word;
    for (part = cache->parts; part; part = part->next) {
        for (word = IGNIS__BINS / 64 - 1; word >= 0; word--) {
            const ignis__block *block;
            if (!part->filled[word])
                continue;
            for (block = part->bins[word * 64 + ignis__log2(part->filled[word])]; block; block = block->larger)
                if (block->size > largest)
                    largest = block->size;
            break;
        }
    }
    return largest;
}

/*  Writes a size as "1.50 GiB", "20.0 MiB" or "512 bytes". */
IGNIS__COLD IGNIS__PRIVATE ignis__label ignis__size_write(int64_t bytes)
{
    ignis__label out;
    ignis__string_writer text;
    ignis__string_begin(&text, out.text, sizeof out.text);
    if (bytes >= (int64_t)1 << 30)
        ignis__string_add(&text, "%.2f GiB", (double)bytes / (double)(1 << 30));
    else if (bytes >= 1 << 20)
        ignis__string_add(&text, "%.1f MiB", (double)bytes / (1 << 20));
    else
        ignis__string_add(&text, "%lld bytes", (long long)bytes);
    return out;
}

IGNIS__COLD static ignis_status ignis__fail_device_memory(const char *call, ignis__device *device,
                                                          const ignis__cache *cache, int64_t size, int error)
{
    size_t available = 0, total = 0;
    const ignis_memory_info *info = &cache->info;
    char limit[sizeof(ignis__label) + 16] = "no limit is set";
    if (error != 0 && error != IGNIS__CU_OUT_OF_MEMORY)
        return ignis__cuda_fail(call, device, "cuMemAlloc_v2", error);
    (void)IGNIS__CUDA(cuMemGetInfo_v2, (&available, &total)); /* for the sentence only */
    if (info->limit)
        snprintf(limit, sizeof limit, "the limit is %s", ignis__size_write(info->limit).text);
    return ignis__fail_because(IGNIS_DIAG_DEVICE_MEMORY, call, error, error ? ignis__cuda_name(error) : NULL, NULL,
                               "out of memory on device %d: %s were requested; arrays use %s of %s reserved (largest "
                               "free block %s), %s, another %s are VMM "
                               "memory, and the device has %s of %s free",
                               ignis__device_ordinal(device), ignis__size_write(size).text,
                               ignis__size_write(info->live_bytes).text, ignis__size_write(info->reserved_bytes).text,
                               ignis__size_write(ignis__cache_largest_free(cache)).text, limit,
                               ignis__size_write(info->vmm_bytes).text, ignis__size_write((int64_t)available).text,
                               ignis__size_write((int64_t)total).text);
}

/*  Takes memory of at least `size` bytes for work on `stream`. NULL on failure. The device is entered. */
IGNIS__PRIVATE ignis__block *ignis__memory_take_for(const char *call, const ignis__origin *origin,
                                                    ignis__device *device, void *stream, int64_t size)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__stream_cache *part;
    ignis__block *block = NULL;
    int64_t rounded = size > INT64_MAX - IGNIS__BLOCK_UNIT
                          ? size
                          : (size + IGNIS__BLOCK_UNIT - 1) / IGNIS__BLOCK_UNIT * IGNIS__BLOCK_UNIT;
    ignis__capture *capture = ignis__capture_on(device);
    int error = 0;

    ignis__mutex_lock(&cache->lock);
    cache->info.allocations++;
    part = ignis__stream_cache_of(cache, capture ? (void *)capture : stream, capture != NULL,
                                  rounded <= IGNIS__SMALL_LIMIT);
    if (!part)
        error = IGNIS__NO_HOST_MEMORY;
    if (part && ignis__memory_bypass) /* exact sizes, so that a memory checker sees every byte beyond them */
        block = ignis__segment_make(cache, &part, size, size, &error);
    else if (part)
        block = ignis__memory_find(call, device, cache, part, rounded, &error);
    if (block) {
        ignis__block_use(cache, block, ignis__memory_bypass ? block->size : rounded);
        ignis__block_begin(cache, block, origin);
    } else if (error == IGNIS__NO_HOST_MEMORY) {
        ignis__fail_host_memory(call, part ? sizeof *block : sizeof *part);
    } else if (!ignis__devices_lost()) {
        ignis__fail_device_memory(call, device, cache, size, error);
    }
    ignis__mutex_unlock(&cache->lock);
    return block;
}

IGNIS__PRIVATE ignis__block *ignis__memory_take(const char *call, ignis__device *device, void *stream, int64_t size)
{
    ignis__origin origin;
    ignis__origin_current(&origin, call);
    memset(origin.tag, 0, sizeof origin.tag);
    return ignis__memory_take_for(call, &origin, device, stream, size);
}

/*  Recycles memory in the order of its stream. The device is entered. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__memory_recycle(const char *call, ignis__device *device, ignis__block *block)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__mutex_lock(&cache->lock);
    ignis__block_end(cache, block);
    ignis__block_unuse(cache, block);
    ignis__mutex_unlock(&cache->lock);
    if (ignis__memory_bypass && !ignis__capturing())
        (void)ignis__cache_trim(call, device, cache);
}

/*  Takes a word of 8 bytes that is 0 when the stream reaches it. NULL on failure. The device is entered.
    Kernels leave it 0, so a recycled word needs no zeroing for its next use on the stream. In a graph, the first use
    zeroes it. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__block *ignis__memory_take_zeroed(const char *call, ignis__device *device,
                                                                           void *stream)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__capture *capture = ignis__capture_on(device);
    ignis__stream_cache *part;
    ignis__origin origin = IGNIS__ZERO;
    ignis__block *block;
    ignis__mutex_lock(&cache->lock);
    part = ignis__stream_cache_of(cache, capture ? (void *)capture : stream, capture != NULL, true);
    block = part ? part->zeroed : NULL;
    if (block) {
        part->zeroed = block->larger;
        block->larger = NULL;
        cache->info.allocations++;
        cache->info.cache_hits++;
        ignis__origin_current(&origin, call);
        ignis__block_begin(cache, block, &origin);
    }
    ignis__mutex_unlock(&cache->lock);
    if (block || (block = ignis__memory_take(call, device, stream, 8)) == NULL)
        return block;
    if (!IGNIS__CUDA_FAILED(call, device, cuMemsetD8Async, (block->address, 0, 8, stream)))
        return block;
    ignis__memory_recycle(call, device, block);
    return NULL;
}

/*  Recycles the word after its kernels were queued. A word that may not be 0 goes to ignis__memory_recycle. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__memory_recycle_zeroed(const char *call, ignis__device *device,
                                                                     ignis__block *block)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    if (ignis__memory_bypass) {
        ignis__memory_recycle(call, device, block);
        return;
    }
    ignis__mutex_lock(&cache->lock);
    ignis__block_end(cache, block);
    block->larger = block->part->zeroed;
    block->part->zeroed = block;
    ignis__mutex_unlock(&cache->lock);
}

static void ignis__stream_cache_merge(ignis__cache *cache, ignis__stream_cache *from, ignis__stream_cache *into)
{
    ignis__block *first, *block;
    ignis__zeroed_unuse(cache, from);
    for (first = cache->segments; first; first = first->next_segment) {
        for (block = first; block; block = block->above) {
            if (block->part != from)
                continue;
            if (!block->used)
                ignis__bin_remove(block);
            block->part = into;
            if (!block->used)
                ignis__bin_insert(block);
        }
    }
}

/*  Moves a stream's blocks, free and used, to Ignis' own stream. The stream is idle. */
IGNIS__COLD IGNIS__PRIVATE void ignis__memory_forget_stream(ignis__device *device, void *stream)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__stream_cache **link = &cache->parts;
    ignis__mutex_lock(&cache->trimming); /* blocks taken by another thread may return to this stream's cache */
    ignis__mutex_lock(&cache->lock);
    while (*link) {
        ignis__stream_cache *part = *link, *own = cache->parts;
        while (own && !(own->stream == device->stream && !own->captured && own->is_small == part->is_small))
            own = own->next;
        if (part->stream == stream && own) {
            ignis__stream_cache_merge(cache, part, own);
            *link = part->next;
            ignis__free(part);
            continue;
        }
        if (part->stream == stream) {
            ignis__zeroed_unuse(cache, part);
            part->stream = device->stream;
            part->captured = false;
        }
        link = &part->next;
    }
    ignis__mutex_unlock(&cache->lock);
    ignis__mutex_unlock(&cache->trimming);
}

IGNIS__COLD IGNIS__PRIVATE void ignis__memory_setup(int64_t limit, bool bypass, bool traced)
{
    int i;
    ignis__memory_bypass = bypass;
    ignis__memory_traced = traced;
    ignis__pinned_bytes = 0;
    for (i = 0; i < ignis__device_total; i++) {
        memset(&ignis__caches[i], 0, sizeof ignis__caches[i]);
        ignis__mutex_init(&ignis__caches[i].lock);
        ignis__mutex_init(&ignis__caches[i].asking);
        ignis__mutex_init(&ignis__caches[i].trimming);
        ignis__caches[i].info.limit = limit;
    }
}

/*  Frees all segments and host memory of a device's cache. Its context is current. */
IGNIS__COLD IGNIS__PRIVATE void ignis__memory_close(const char *call, ignis__device *device)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    bool lost = ignis__devices_lost(); /* then each call would fail with the error that is known already */
    while (cache->segments) {
        ignis__block *first = cache->segments, *block = first;
        cache->segments = first->next_segment;
        if (lost)
            (void)IGNIS__CUDA(cuMemFree_v2, (first->address));
        else
            (void)IGNIS__CUDA_FAILED(call, device, cuMemFree_v2, (first->address));
        while (block) {
            ignis__block *above = block->above;
            ignis__block_recycle(cache, block);
            block = above;
        }
    }
    while (cache->spare_blocks) {
        ignis__block *block = cache->spare_blocks;
        cache->spare_blocks = block->above;
        ignis__free(block);
    }
    while (cache->user || cache->spare) {
        ignis__pinned **list = cache->user ? &cache->user : &cache->spare, *pinned = *list;
        *list = pinned->next;
        (void)IGNIS__CUDA(cuMemFreeHost, (pinned->memory)); /* can only fail with a fault that is reported already */
        ignis__free(pinned);
    }
    while (cache->parts) {
        ignis__stream_cache *part = cache->parts;
        cache->parts = part->next;
        ignis__free(part);
    }
    ignis__memory_rows_free(&cache->counted);
}

/*  Asks the driver about an address: the type of its memory, 0 if unknown (pageable host memory), and its device. */
IGNIS__PRIVATE bool ignis__address_query(const char *call, ignis__device *device, const void *ptr, int *type,
                                         int *ordinal)
{
    int attributes[2] = {IGNIS__CU_POINTER_MEMORY_TYPE, IGNIS__CU_POINTER_ORDINAL};
    void *values[2] = {type, ordinal};
    *type = *ordinal = 0;
    return !IGNIS__CUDA_FAILED(call, device, cuPointerGetAttributes,
                               (2, attributes, values, (ignis__address)(uintptr_t)ptr));
}

/*  Finds the allocation, or the reserved address range, around an address. The size is 0 if the driver does not
    tell. */
IGNIS__PRIVATE bool ignis__address_range(const char *call, ignis__device *device, const void *ptr,
                                         ignis__address *start, size_t *size)
{
    int attributes[2] = {IGNIS__CU_POINTER_RANGE_START, IGNIS__CU_POINTER_RANGE_SIZE};
    void *values[2] = {start, size};
    *start = 0;
    *size = 0;
    return !IGNIS__CUDA_FAILED(call, device, cuPointerGetAttributes,
                               (2, attributes, values, (ignis__address)(uintptr_t)ptr));
}
