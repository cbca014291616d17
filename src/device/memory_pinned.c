/*  device/memory_pinned.c - pinned host memory: of the caller, and chunks for copies

    To free pinned memory CUDA waits for all devices, so chunks are kept for the next copy.
    May use: memory_block.c, >>device. Locks: cache->lock guards the lists; it is released around driver calls. */

#include "room.h"

/*  Allocates pinned host memory; the device is entered. NULL on failure. */
IGNIS__PRIVATE void *ignis__pinned_take(const char *call, ignis__device *device, int64_t size)
{
    void *memory = NULL;
    int error = IGNIS__CUDA(cuMemHostAlloc, (&memory, (size_t)size, 0));
    if (error == 0) {
        ignis__atomic_add(&ignis__pinned_bytes, (uint64_t)size);
        return memory;
    }
    if (error == IGNIS__CU_OUT_OF_MEMORY)
        ignis__fail_because(IGNIS_DIAG_PINNED_MEMORY, call, error, ignis__cuda_name(error), NULL,
                            "out of pinned host memory: %lld bytes were requested, %lld are pinned already",
                            (long long)size, (long long)ignis__atomic_load(&ignis__pinned_bytes));
    else
        ignis__cuda_fail(call, device, "cuMemHostAlloc", error);
    return NULL;
}

/*  Waits for the device, because copies may still use the memory, and frees it (NULL: nothing), also if the device
    cannot be entered. After a fault there is nothing to wait for, and the memory ends with the process. */
static ignis_status ignis__pinned_end(const char *call, ignis__device *device, void *memory)
{
    ignis__binding binding;
    bool entered, ok;
    if (ignis__devices_lost())
        return IGNIS_OK;
    entered = ignis__device_enter_to_give(call, device, &binding);
    ok = entered && ignis__device_wait(call, device);
    if (memory && IGNIS__CUDA_FAILED(call, device, cuMemFreeHost, (memory)))
        ok = false;
    if (entered)
        ignis__device_leave(&binding);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__PRIVATE ignis_status ignis__pinned_recycle(const char *call, ignis__device *device, void *memory, int64_t size)
{
    ignis__atomic_add(&ignis__pinned_bytes, (uint64_t)-size);
    return ignis__pinned_end(call, device, memory);
}

/*  Allocates pinned memory and its entry. NULL on failure. The device is entered. */
IGNIS__COLD static ignis__pinned *ignis__pinned_make(const char *call, ignis__device *device, int64_t size)
{
    ignis__pinned *pinned = (ignis__pinned *)ignis__alloc_for(call, sizeof *pinned);
    if (!pinned)
        return NULL;
    pinned->size = size;
    pinned->memory = ignis__pinned_take(call, device, size);
    if (pinned->memory)
        return pinned;
    ignis__free(pinned);
    return NULL;
}

static void ignis__pinned_keep(ignis__device *device, ignis__pinned **list, ignis__pinned *pinned)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__mutex_lock(&cache->lock);
    pinned->next = *list;
    *list = pinned;
    ignis__mutex_unlock(&cache->lock);
}

IGNIS__PRIVATE ignis__pinned *ignis__pinned_chunk_take(const char *call, ignis__device *device, int64_t size)
{
    ignis__cache *cache = &ignis__caches[device - ignis__devices];
    ignis__pinned *piece = NULL, **link, **best = NULL;
    int64_t room = 4096; /* few sizes, so that pieces fit again */
    ignis__mutex_lock(&cache->lock);
    for (link = &cache->spare; *link; link = &(*link)->next)
        if ((*link)->size >= size && (!best || (*link)->size < (*best)->size))
            best = link;
    if (best) {
        piece = *best;
        *best = piece->next;
    }
    ignis__mutex_unlock(&cache->lock);
    while (room < size && room < IGNIS__PIECE)
        room *= 2;
    return piece ? piece : ignis__pinned_make(call, device, room < size ? size : room);
}

/*  Recycles a chunk that nothing uses any more. */
IGNIS__PRIVATE void ignis__pinned_chunk_keep(ignis__device *device, ignis__pinned *piece)
{
    ignis__pinned_keep(device, &ignis__caches[device - ignis__devices].spare, piece);
}

/*  Waits for the device, then recycles a chunk, or frees a large one. To free it, CUDA waits for all devices. If
    several ranks of this process use a device each, one may wait for work that this thread has yet to launch: with
    several devices, the chunk is kept. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis_status ignis__pinned_chunk_recycle(const char *call, ignis__device *device,
                                                                            ignis__pinned *piece)
{
    ignis_status status;
    int opened = 0, i;
    for (i = 0; i < ignis__device_total; i++)
        opened += ignis__atomic_load(&ignis__devices[i].opened) != 0;
    if (piece->size > IGNIS__PIECE && opened <= 1) {
        status = ignis__pinned_recycle(call, device, piece->memory, piece->size);
        ignis__free(piece);
        return status;
    }
    status = ignis__pinned_end(call, device, NULL);
    ignis__pinned_chunk_keep(device, piece);
    return status;
}

/*  Frees the large spare chunks of a device. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__pinned_chunks_trim(const char *call, ignis__device *device, ignis__cache *cache)
{
    ignis__pinned *taken = NULL, *piece, **link;
    bool ok = true;
    ignis__mutex_lock(&cache->lock);
    for (link = &cache->spare; *link;)
        if ((*link)->size > IGNIS__PIECE) {
            piece = *link;
            *link = piece->next;
            piece->next = taken;
            taken = piece;
        } else {
            link = &(*link)->next;
        }
    ignis__mutex_unlock(&cache->lock);
    while ((piece = taken) != NULL) {
        taken = piece->next;
        ok = ignis__pinned_recycle(call, device, piece->memory, piece->size) == IGNIS_OK && ok;
        ignis__free(piece);
    }
    return ok;
}

IGNIS__COLD IGNIS_API void *ignis_host_alloc(int64_t size)
{
    static const char call[] = "ignis_host_alloc";
    ignis__pinned *pinned;
    ignis__device *device;
    ignis__binding binding;
    if (!ignis__enter(call))
        return NULL;
    if (size < 1) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld, below 1", (long long)size);
        return NULL;
    }
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return NULL;
    pinned = ignis__pinned_make(call, device, size);
    ignis__device_leave(&binding);
    if (!pinned)
        return NULL;
    ignis__pinned_keep(device, &ignis__caches[device - ignis__devices].user, pinned);
    return pinned->memory;
}

IGNIS__COLD IGNIS_API ignis_status ignis_host_free(void *memory)
{
    static const char call[] = "ignis_host_free";
    ignis__pinned *pinned = NULL, **link;
    ignis_status status;
    int i;
    if (!memory)
        return IGNIS_OK;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    if (ignis__capture_refuses(call))
        return ignis__failed();
    for (i = 0; !pinned && i < ignis__device_total; i++) {
        ignis__cache *cache = &ignis__caches[i];
        ignis__mutex_lock(&cache->lock);
        for (link = &cache->user; *link && (*link)->memory != memory; link = &(*link)->next)
            ;
        pinned = *link;
        if (pinned)
            *link = pinned->next;
        ignis__mutex_unlock(&cache->lock);
    }
    if (!pinned)
        return ignis__fail(IGNIS_DIAG_HOST_UNKNOWN, call, "%p is no address of ignis_host_alloc, or was freed already",
                           memory);
    status = ignis__pinned_recycle(call, &ignis__devices[i - 1], memory, pinned->size);
    ignis__free(pinned);
    return status;
}

IGNIS__COLD IGNIS__PRIVATE void ignis__pinned_leaked(const char *call)
{
    const ignis__pinned *pinned;
    int i;
    for (i = 0; i < ignis__device_total; i++)
        for (pinned = ignis__caches[i].user; pinned; pinned = pinned->next)
            ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "pinned host memory %p of ignis_host_alloc, %lld bytes",
                               pinned->memory, (long long)pinned->size);
}
