/* ===============================================================================================================
   >>pool - slots, handles, and the generations that tell a stale handle from a live one

   Every public object is an item of a pool. May use: >>status, >>platform.
   Locks: a pool's lock guards its free list and pages; a slot's lock guards the fields of its item. States of slots
   are atomic.
   =============================================================================================================== */

#include "room.h"

/*  The verbs of functions that give something up, here and in all sections:
        drop       releases one hold (the opposite of hold); the last drop of a dead item destroys it
        unclaim    releases one reference of an array (the opposite of claim), which may be the last
        recycle    returns a slot, a block or an event to its free list (the opposite of take)
        unuse      marks a block of memory as free (the opposite of use)
        destroy    takes apart an item that nobody uses any more
        discard    undoes what a failed call had made
        free       frees host memory, as ignis__free; in public: frees a handle, which is stale from then on (kill)
        unload     unloads a library or a module
        forget     removes the entry of an object that Ignis does not own, such as a caller's stream
        close      closes everything of a section, at ignis_shutdown */

/*  The order of locks. The holder of a lock on the left takes only locks on its right or further down the line, so
    that no two threads wait for each other:
        ignis__setup_lock     all others
        an optimizer's slot   a tensor's slot; those of memory and streams
        a model's engine      a model's slot
        a model's slot        planning, compiling
        planning, compiling   the loader's, the kernel caches', those of memory and streams
        ignis__audits         an array's slot, ignis__tracking
        ignis__tapes          a tape
        memory and streams    ignis__storages, a storage, a device
                              a fence, a device
                              an OpenGL buffer, an array's slot, a storage, a device
                              asking or trimming of a cache, the cache, a device
                              trimming of a cache, a stream of the caller, a device
                              an event of the caller, a stream of the caller, a device
    No lock is taken under those of a device, a pool, ignis__captures, ignis__callbacks, ignis__measurements or the
    kernel caches.
    No thread waits for the device while it holds a lock that a launch needs: work on the device may wait for that
    launch.
    The logger is called with locks held, so it must not call Ignis. */

IGNIS__PRIVATE uint64_t ignis__handle_kind(uint64_t handle) { return handle >> IGNIS__SLOT_BITS & 31; }

#define IGNIS__POOL_FIRST_PAGE 64u

static uint64_t ignis__pools; /* list of the pools with pages: the address of the first one */

IGNIS__INLINE static ignis__slot *ignis__pool_slot(const ignis__pool *pool, uint64_t index)
{
    uint64_t shifted = index + IGNIS__POOL_FIRST_PAGE;
    int page = ignis__log2(shifted) - 6;
    return (ignis__slot *)(void *)(pool->pages[page] +
                                   (shifted - ((uint64_t)IGNIS__POOL_FIRST_PAGE << page)) * pool->item_size);
}

/*  Adds a page of slots. Slots come from malloc, because they outlive ignis_shutdown and the user's allocator. They
    are freed when a library is unloaded. */
IGNIS__COLD static ignis__slot *ignis__pool_grow(ignis__pool *pool)
{
    uint64_t index = pool->count, shifted = index + IGNIS__POOL_FIRST_PAGE;
    int page = ignis__log2(shifted) - 6;
    ignis__slot *slot;
    if (page >= IGNIS__POOL_PAGES)
        return NULL;
    if (!pool->pages[page]) {
        pool->pages[page] = (char *)calloc(IGNIS__POOL_FIRST_PAGE << page, pool->item_size);
        if (!pool->pages[page])
            return NULL;
        if (page == 0) {
            uint64_t first = ignis__atomic_load(&ignis__pools);
            do
                pool->next = (ignis__pool *)(uintptr_t)first;
            while (!ignis__atomic_swap_if(&ignis__pools, &first, (uint64_t)(uintptr_t)pool));
        }
    }
    slot = ignis__pool_slot(pool, index);
    slot->index = (uint32_t)index;
    ignis__mutex_init(&slot->lock);
    ignis__atomic_store(&pool->count, index + 1);
    return slot;
}

/*  Frees all slots, when no handle can be used any more. */
IGNIS__COLD IGNIS__PRIVATE void ignis__pools_free(void)
{
    ignis__pool *pool = (ignis__pool *)(uintptr_t)ignis__atomic_load(&ignis__pools);
    int page;
    for (; pool; pool = pool->next) {
        for (page = 0; page < IGNIS__POOL_PAGES; page++) {
            free(pool->pages[page]);
            pool->pages[page] = NULL;
        }
        ignis__atomic_store(&pool->count, 0);
        pool->free = NULL;
    }
    ignis__atomic_store(&ignis__pools, 0);
}

/*  Takes a free slot, invisible to other threads until ignis__pool_publish. NULL, and reported, if out of memory. */
IGNIS__INLINE IGNIS__PRIVATE void *ignis__pool_take(const char *call, ignis__pool *pool)
{
    ignis__slot *slot;
    ignis__mutex_lock(&pool->lock);
    slot = pool->free;
    if (slot)
        pool->free = slot->next_free;
    else
        slot = ignis__pool_grow(pool);
    ignis__mutex_unlock(&pool->lock);
    if (!slot)
        ignis__fail_host_memory(call, pool->item_size);
    return slot;
}

/*  As ignis__pool_take, with zeros from the end of the slot up to the tombstone. */
IGNIS__INLINE IGNIS__PRIVATE void *ignis__pool_take_zeroed(const char *call, ignis__pool *pool)
{
    char *item = (char *)ignis__pool_take(call, pool);
    if (item)
        memset(item + sizeof(ignis__slot), 0,
               (pool->tombstone ? pool->tombstone : pool->item_size) - sizeof(ignis__slot));
    return item;
}

/*  Copies an item to a taken one, except its slot: other threads read the slots of dead items, too. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__pool_fill(const ignis__pool *pool, void *item, const void *from)
{
    memcpy((char *)item + sizeof(ignis__slot), (const char *)from + sizeof(ignis__slot),
           pool->item_size - sizeof(ignis__slot));
}

/*  Gives an item a handle, which makes it visible, and `holds` holds. */
IGNIS__INLINE IGNIS__PRIVATE uint64_t ignis__pool_publish_held(ignis__pool *pool, void *item, int holds)
{
    ignis__slot *slot = (ignis__slot *)item;
    uint64_t generation = (ignis__atomic_load(&slot->state) >> 32) + 1;
    uint64_t handle = generation << 32 | (uint64_t)pool->kind << IGNIS__SLOT_BITS | slot->index;
    slot->handle = handle;
    ignis__atomic_store(&slot->state,
                        generation << 32 | (uint64_t)holds); /* from here on it is everybody's, and may be another's */
    return handle;
}

IGNIS__INLINE IGNIS__PRIVATE uint64_t ignis__pool_publish(ignis__pool *pool, void *item)
{
    return ignis__pool_publish_held(pool, item, 1);
}

/*  Returns a slot to the free list; its item has been destroyed. */
IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__pool_recycle(ignis__pool *pool, void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    if (ignis__atomic_load(&slot->state) >> 32 >= 0xFFFFFFFEu)
        return;
    ignis__mutex_lock(&pool->lock);
    slot->next_free = pool->free;
    pool->free = slot;
    ignis__mutex_unlock(&pool->lock);
}

/*  Holds and returns the item of a slot, if it is live and of that generation (0: any generation). Else NULL. */
static inline void *ignis__pool_hold_slot(ignis__pool *pool, uint64_t index, uint64_t generation)
{
    ignis__slot *slot = ignis__pool_slot(pool, index);
    uint64_t state = ignis__atomic_load(&slot->state);
    do {
        if (!(state >> 32 & 1) || (generation && state >> 32 != generation))
            return NULL;
    } while (!ignis__atomic_swap_if(&slot->state, &state, state + 1));
    return slot;
}

/*  Holds and returns the item of a live handle. NULL if the handle is stale or was never valid. */
IGNIS__PRIVATE void *ignis__pool_hold(ignis__pool *pool, uint64_t handle)
{
    uint64_t index = handle & IGNIS__SLOT_MASK;
    if (ignis__handle_kind(handle) != (uint64_t)pool->kind || index >= ignis__atomic_load(&pool->count) ||
        handle >> 32 == 0)
        return NULL;
    return ignis__pool_hold_slot(pool, index, handle >> 32);
}

/*  Holds and returns the next live item from a slot on. NULL if there is none. Begin with index 0. */
IGNIS__PRIVATE void *ignis__pool_next(ignis__pool *pool, uint64_t *index)
{
    void *item = NULL;
    while (!item && *index < ignis__atomic_load(&pool->count))
        item = ignis__pool_hold_slot(pool, (*index)++, 0);
    return item;
}

/*  Adds a hold to an item that others hold. False if the last hold was just dropped, and the item is being
    destroyed. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__pool_hold_more(void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    uint64_t state = ignis__atomic_load(&slot->state);
    do {
        if (!(state & 0xFFFFFFFFu))
            return false;
    } while (!ignis__atomic_swap_if(&slot->state, &state, state + 1));
    return true;
}

/*  Drops a hold. True if it was the last hold of a dead item: the caller destroys the item. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__pool_drop(void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    uint64_t state = ignis__atomic_add(&slot->state, (uint64_t)-1);
    return (state & 0xFFFFFFFFu) == 0 && !(state >> 32 & 1);
}

/*  Checks whether a held item is still live. The caller has the item's lock, because items die under it. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__pool_live(const void *item)
{
    return ignis__atomic_load(&((const ignis__slot *)item)->state) >> 32 & 1;
}

/*  Makes the handles of a live, held and locked item stale. The handle's own hold remains to be dropped. */
IGNIS__PRIVATE void ignis__pool_kill(void *item)
{
    ignis__atomic_add(&((ignis__slot *)item)->state, (uint64_t)1 << 32);
}

IGNIS__COLD IGNIS__PRIVATE ignis__label ignis__label_write(const char *what, uint64_t id, const char *name)
{
    ignis__label out;
    ignis__string_writer text;
    ignis__string_begin(&text, out.text, sizeof out.text);
    ignis__string_add(&text, "%s", what);
    if (id)
        ignis__string_add(&text, " #%llu", (unsigned long long)id);
    if (*name)
        ignis__string_add(&text, " '%s'", name);
    return out;
}

/*  Records the name of an item that is about to die. The caller has its lock. */
IGNIS__PRIVATE void ignis__tombstone_write(ignis__tombstone *tombstone, const ignis__slot *slot, uint64_t id,
                                           const char *name)
{
    size_t length = strlen(name);
    tombstone->handle = slot->handle;
    tombstone->id = id;
    length = length < sizeof tombstone->name ? length : sizeof tombstone->name - 1;
    memcpy(tombstone->name, name, length);
    tombstone->name[length] = 0;
}

/*  Returns "array #7 'weights', freed" for a stale handle; "" if nothing is known about it. */
IGNIS__COLD IGNIS__PRIVATE ignis__label ignis__label_stale(ignis__pool *pool, uint64_t handle)
{
    uint64_t index = handle & IGNIS__SLOT_MASK;
    ignis__tombstone tombstone = IGNIS__ZERO;
    ignis__label out = IGNIS__ZERO;
    ignis__string_writer text;
    ignis__slot *slot;
    if (!handle || !pool->tombstone || ignis__handle_kind(handle) != (uint64_t)pool->kind ||
        index >= ignis__atomic_load(&pool->count))
        return out;
    slot = ignis__pool_slot(pool, index);
    ignis__mutex_lock(&slot->lock);
    memcpy(&tombstone, (const char *)slot + pool->tombstone, sizeof tombstone);
    ignis__mutex_unlock(&slot->lock);
    ignis__string_begin(&text, out.text, sizeof out.text);
    if (tombstone.handle == handle)
        ignis__string_add(&text, "%s, freed", ignis__label_write(pool->what, tombstone.id, tombstone.name).text);
    return out;
}

IGNIS__COLD IGNIS__PRIVATE void ignis__fail_stale(const char *call, ignis__pool *pool, uint64_t handle)
{
    uint64_t kind = ignis__handle_kind(handle);
    ignis__label label = ignis__label_stale(pool, handle);
    if (kind != (uint64_t)pool->kind && kind >= IGNIS__KIND_ARRAY && kind < IGNIS__KIND_COUNT)
        ignis__fail(IGNIS_DIAG_WRONG_KIND, call, "%s handle 0x%llx names an object of another kind", pool->what,
                    (unsigned long long)handle);
    else if (*label.text)
        ignis__fail(pool->freed, call, "%s (handle 0x%llx)", label.text, (unsigned long long)handle);
    else if (handle)
        ignis__fail(pool->freed, call, "%s handle 0x%llx was freed, or never existed", pool->what,
                    (unsigned long long)handle);
    /* 0 is the result of a failed call: the first failure says why */
    else if (ignis__this_thread.record.status == IGNIS_OK)
        ignis__fail(pool->freed, call, "%s handle is 0: no %s was created", pool->what, pool->what);
    else
        ignis__this_thread.latest = ignis__diagnostics[pool->freed].status;
}

/*  Holds and returns the item of a handle, for a public call. NULL, and reported, if there is none. */
IGNIS__ONE_COPY IGNIS__PRIVATE void *ignis__handle_hold(const char *call, ignis__pool *pool, uint64_t handle)
{
    void *item = NULL;
    if (ignis__enter(call) && (item = ignis__pool_hold(pool, handle)) == NULL)
        ignis__fail_stale(call, pool, handle);
    return item;
}

/*  Makes the handle of a held item stale, once. False if another thread has done so. The caller's hold remains. */
IGNIS__PRIVATE bool ignis__handle_kill(void *item)
{
    ignis__slot *slot = (ignis__slot *)item;
    bool live;
    ignis__mutex_lock(&slot->lock);
    live = ignis__pool_live(item);
    if (live) {
        ignis__pool_kill(item);
        ignis__pool_drop(item); /* the handle's own hold */
    }
    ignis__mutex_unlock(&slot->lock);
    return live;
}

IGNIS__PRIVATE int ignis__leaks; /* reported by the ignis_shutdown that is under way */

IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE void ignis__leak_report(const char *call, ignis_diagnostic diagnostic, const char *format,
                                                   ...)
{
    char line[512];
    va_list args;
    if (ignis__leaks++ >= IGNIS__LEAKS_SHOWN)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ignis__log(IGNIS_LOG_WARNING, diagnostic, "%s: still alive: %s", call, line);
}
