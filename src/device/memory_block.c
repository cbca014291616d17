/* ===============================================================================================================
   >>memory - a caching allocator per device, ordered by streams; pinned host memory

   This part: segments, blocks, bins, and the statistics of ignis_memory_rows. memory_cache.c takes and recycles
   memory; memory_pinned.c has pinned memory.
   May use: >>device, >>stream, >>capture. Invariants: free neighbours of one stream are merged; a block in a bin is
   free.
   Locks: cache->lock guards all fields of a cache. Callers hold it.
   =============================================================================================================== */

#include "room.h"

IGNIS__INLINE IGNIS__PRIVATE void ignis__origin_current(ignis__origin *origin, const char *call)
{
    const ignis__thread *thread = &ignis__this_thread;
    origin->call = call;
    origin->inside = thread->inside ? thread->inside->call : NULL;
    origin->file = thread->file;
    origin->line = thread->line;
}

IGNIS__PRIVATE ignis__cache ignis__caches[IGNIS_MAX_DEVICES];
IGNIS__PRIVATE bool ignis__memory_bypass, ignis__memory_traced;
IGNIS__PRIVATE uint64_t ignis__pinned_bytes;

/*  Returns the bin of a size. Each size up to 63 units has its own; above, each power of two has eight. */
IGNIS__INLINE static int ignis__bin_of(int64_t size)
{
    uint64_t units = (uint64_t)size / IGNIS__BLOCK_UNIT;
    int log;
    if (units < 64)
        return (int)units;
    log = ignis__log2(units);
    return 64 + (log - 6) * 8 + (int)(units >> (log - 3) & 7);
}

IGNIS__INLINE IGNIS__PRIVATE void ignis__bin_insert(ignis__block *block)
{
    int bin = ignis__bin_of(block->size);
    ignis__block **head = &block->part->bins[bin], *after = *head, *before = NULL;
    while (after && after->size < block->size) {
        before = after;
        after = after->larger;
    }
    block->smaller = before;
    block->larger = after;
    if (before)
        before->larger = block;
    else
        *head = block;
    if (after)
        after->smaller = block;
    block->part->filled[bin / 64] |= (uint64_t)1 << bin % 64;
}

IGNIS__INLINE IGNIS__PRIVATE void ignis__bin_remove(ignis__block *block)
{
    int bin = ignis__bin_of(block->size);
    ignis__stream_cache *part = block->part;
    if (block->smaller)
        block->smaller->larger = block->larger;
    else
        part->bins[bin] = block->larger;
    if (block->larger)
        block->larger->smaller = block->smaller;
    if (!part->bins[bin])
        part->filled[bin / 64] &= ~((uint64_t)1 << bin % 64);
    block->smaller = block->larger = NULL;
}

IGNIS__INLINE IGNIS__PRIVATE ignis__block *ignis__bin_best(const ignis__stream_cache *part, int64_t size)
{
    int bin = ignis__bin_of(size), word = (bin + 1) / 64;
    ignis__block *block = part->bins[bin];
    uint64_t bits;
    while (block && block->size < size)
        block = block->larger;
    if (block)
        return block;
    bits = word < IGNIS__BINS / 64 ? part->filled[word] & ~(uint64_t)0 << (bin + 1) % 64 : 0;
    while (!bits && ++word < IGNIS__BINS / 64)
        bits = part->filled[word];
    return bits ? part->bins[word * 64 + ignis__lowest_bit(bits)] : NULL;
}

/*  Returns the stream's cache for a size class, and creates it if necessary. NULL if out of host memory. */
IGNIS__INLINE IGNIS__PRIVATE ignis__stream_cache *ignis__stream_cache_of(ignis__cache *cache, void *stream,
                                                                         bool captured, bool is_small)
{
    ignis__stream_cache *part = cache->parts;
    while (part && !(part->stream == stream && part->is_small == is_small))
        part = part->next;
    if (!part && (part = (ignis__stream_cache *)ignis__alloc(sizeof *part)) != NULL) {
        part->stream = stream;
        part->captured = captured;
        part->is_small = is_small;
        part->next = cache->parts;
        cache->parts = part;
    }
    return part;
}

IGNIS__PRIVATE ignis__block *ignis__block_take(ignis__cache *cache, ignis__stream_cache *part, ignis__address address,
                                               int64_t size)
{
    ignis__block *block = cache->spare_blocks;
    if (block) {
        cache->spare_blocks = block->above;
        memset(block, 0, sizeof *block);
    } else {
        block = (ignis__block *)ignis__alloc(sizeof *block);
        if (!block)
            return NULL;
    }
    block->part = part;
    block->address = address;
    block->size = size;
    return block;
}

IGNIS__PRIVATE void ignis__block_recycle(ignis__cache *cache, ignis__block *block)
{
    block->above = cache->spare_blocks;
    cache->spare_blocks = block;
}

/*  Merges `block` with the block above it, which is destroyed. Both are free and in no bin. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__block_join(ignis__cache *cache, ignis__block *block)
{
    ignis__block *above = block->above;
    block->size += above->size;
    block->above = above->above;
    if (block->above)
        block->above->below = block;
    ignis__block_recycle(cache, above);
}

/*  Puts a freed block into its bin, merged with free neighbours of the same stream. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__block_unuse(ignis__cache *cache, ignis__block *block)
{
    block->used = false;
    if (block->above && !block->above->used && block->above->part == block->part) {
        ignis__bin_remove(block->above);
        ignis__block_join(cache, block);
    }
    if (block->below && !block->below->used && block->below->part == block->part) {
        block = block->below;
        ignis__bin_remove(block);
        ignis__block_join(cache, block);
    }
    ignis__bin_insert(block);
}

/*  Takes a free block out of its bin for `size` bytes, and splits off the rest. Keeps all of it if out of host
    memory. */
IGNIS__PRIVATE void ignis__block_use(ignis__cache *cache, ignis__block *block, int64_t size)
{
    ignis__bin_remove(block);
    block->used = true;
    if (block->size > size) {
        ignis__block *rest = ignis__block_take(cache, block->part, block->address + (uint64_t)size, block->size - size);
        if (rest) {
            rest->below = block;
            rest->above = block->above;
            if (rest->above)
                rest->above->below = rest;
            block->above = rest;
            block->size = size;
            ignis__bin_insert(rest);
        }
    }
}

/*  Returns the row of an origin in a list, and adds it if necessary. NULL if out of host memory. */
IGNIS__COLD IGNIS__PRIVATE ignis__memory_row *ignis__memory_row_find(ignis__memory_row **list,
                                                                     const ignis__origin *origin)
{
    const char *inside = origin->inside ? origin->inside : "", *file = origin->file ? origin->file : "";
    ignis__memory_row *counted = *list;
    while (counted && !(counted->row.call == origin->call && counted->row.line == origin->line &&
                        strcmp(counted->row.inside, inside) == 0 && strcmp(counted->row.tag, origin->tag) == 0 &&
                        strcmp(counted->row.file, file) == 0))
        counted = counted->next;
    if (counted || (counted = (ignis__memory_row *)ignis__alloc(sizeof *counted)) == NULL)
        return counted;
    memcpy(counted->row.tag, origin->tag, sizeof counted->row.tag);
    counted->row.call = origin->call;
    counted->row.inside = inside;
    counted->row.file = file;
    counted->row.line = origin->line;
    counted->next = *list;
    return *list = counted;
}

/*  Returns the bytes of a row at the peak: its live bytes, unless they changed after the peak and were saved. */
IGNIS__PRIVATE int64_t ignis__memory_rows_peak(const ignis__cache *cache, const ignis__memory_row *counted)
{
    return counted->peaks == cache->peaks ? counted->row.peak_bytes : counted->row.live_bytes;
}

IGNIS__COLD static void ignis__memory_row_add(ignis__cache *cache, ignis__memory_row *counted, int64_t bytes)
{
    counted->row.peak_bytes = ignis__memory_rows_peak(cache, counted);
    counted->peaks = cache->peaks;
    counted->row.live_bytes += bytes;
    counted->row.live_blocks += bytes > 0 ? 1 : -1;
}

IGNIS__PRIVATE void ignis__memory_rows_free(ignis__memory_row **list)
{
    while (*list) {
        ignis__memory_row *next = (*list)->next;
        ignis__free(*list);
        *list = next;
    }
}

IGNIS__INLINE IGNIS__PRIVATE void ignis__memory_count(ignis__cache *cache, int64_t live, int64_t reserved)
{
    ignis_memory_info *info = &cache->info;
    info->live_bytes += live;
    info->live_blocks += (live > 0) - (live < 0);
    info->reserved_bytes += reserved;
    info->segments += (reserved > 0) - (reserved < 0);
    if (info->live_bytes > info->live_peak) {
        info->live_peak = info->live_bytes;
        cache->peaks++;
    }
    if (info->reserved_bytes > info->reserved_peak)
        info->reserved_peak = info->reserved_bytes;
    if (ignis__profiling())
        ignis__trace_memory((int)(cache - ignis__caches), info->live_bytes, info->reserved_bytes);
}

/*  Counts a block in when its use begins, and out when it ends. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__block_begin(ignis__cache *cache, ignis__block *block,
                                                     const ignis__origin *origin)
{
    block->origin = *origin;
    block->counted = ignis__memory_traced ? ignis__memory_row_find(&cache->counted, origin) : NULL;
    if (block->counted)
        ignis__memory_row_add(cache, block->counted, block->size);
    ignis__memory_count(cache, block->size, 0);
}

IGNIS__INLINE IGNIS__PRIVATE void ignis__block_end(ignis__cache *cache, ignis__block *block)
{
    if (block->counted)
        ignis__memory_row_add(cache, block->counted, -block->size);
    ignis__memory_count(cache, -block->size, 0);
    block->counted = NULL;
    block->origin.call = NULL;
}

/*  Counts memory that arrays use and the cache does not have as live and reserved, instead of in vmm_bytes, until
    ignis__memory_count_out. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__memory_count_in(ignis__device *device, ignis__counted_memory *memory,
                                                               const ignis__origin *origin, int64_t bytes)
{
    ignis__cache *cache = &ignis__caches[ignis__device_ordinal(device)];
    memory->device = device;
    memory->block.size = (bytes + IGNIS__BLOCK_UNIT - 1) / IGNIS__BLOCK_UNIT * IGNIS__BLOCK_UNIT;
    memory->block.used = true;
    ignis__mutex_lock(&cache->lock);
    ignis__block_begin(cache, &memory->block, origin);
    ignis__memory_count(cache, 0, memory->block.size);
    cache->info.vmm_bytes -= memory->block.size;
    memory->block.next_segment = cache->outside;
    cache->outside = &memory->block;
    ignis__mutex_unlock(&cache->lock);
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__memory_count_out(ignis__counted_memory *memory)
{
    ignis__cache *cache = &ignis__caches[ignis__device_ordinal(memory->device)];
    ignis__block **at;
    ignis__mutex_lock(&cache->lock);
    for (at = &cache->outside; *at != &memory->block; at = &(*at)->next_segment)
        ;
    *at = memory->block.next_segment;
    ignis__block_end(cache, &memory->block);
    ignis__memory_count(cache, 0, -memory->block.size);
    cache->info.vmm_bytes += memory->block.size;
    ignis__mutex_unlock(&cache->lock);
    memory->device = NULL;
}
