/*  array/array.c - arrays: created, wrapped, held, claimed, freed

    An array dies when its owner frees it, or with its last claim if a tensor or the tape made it. Memory belongs to
    the storage.
    May use: storage.c, dtype.c, >>contract's tracking. Invariants: only the owner frees; ref_count is 0 when an
    array is freed.
    Locks: array->slot.lock guards owner, ref_count, pinned and tracking. The audit, a storage and a device come
    after it. */

#include "room.h"

IGNIS__PRIVATE ignis__pool ignis__arrays = IGNIS__POOL_NAMED(ignis__array, IGNIS__KIND_ARRAY, "array",
                                                             IGNIS_DIAG_ARRAY_FREED, offsetof(ignis__array, tombstone));
IGNIS__PRIVATE uint64_t ignis__array_ids; /* the last id of this process */

IGNIS__INLINE IGNIS__PRIVATE int64_t ignis__array_bytes(const ignis__array *array)
{
    return array->numel * ignis__dtypes[array->dtype].size;
}

IGNIS__ONE_COPY IGNIS__PRIVATE ignis__label ignis__array_label(const ignis__array *array)
{
    return ignis__label_write("array", array->id, array->tag);
}

/*  Holds and returns the array of a handle. NULL, and reported, if there is none. */
IGNIS__INLINE IGNIS__PRIVATE ignis__array *ignis__array_hold(const char *call, ignis_array handle)
{
    return (ignis__array *)ignis__handle_hold(call, &ignis__arrays, handle.id);
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE uint64_t ignis__array_version(const ignis__array *array)
{
    bool written = !ignis__capture_on(array->storage->device) && ignis__storage_readable(array->storage);
    return written ? ignis__storage_version(array->storage) : IGNIS__UNWRITTEN;
}

/*  Destroys a dead array. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__array_destroy(const char *call, ignis__array *array)
{
    if (array->pinned)
        ignis__pinned_recycle(call, array->storage->device, array->pinned, ignis__array_bytes(array));
    ignis__storage_drop(call, array->storage);
    array->pinned = NULL;
    array->storage = NULL;
    ignis__pool_recycle(&ignis__arrays, array);
}

IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__array_drop(const char *call, ignis__array *array)
{
    if (ignis__pool_drop(array))
        ignis__array_destroy(call, array);
}

/*  Drops the hold of a call on an array; NULL does nothing. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__array_end(const char *call, ignis__array *array, bool ok)
{
    if (array)
        ignis__array_drop(call, array);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Locks a held array to change its fields. False, and reported, if another thread has freed it meanwhile. */
IGNIS__INLINE IGNIS__PRIVATE bool ignis__array_lock(const char *call, ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    if (ignis__pool_live(array))
        return true;
    ignis__mutex_unlock(&array->slot.lock);
    return ignis__fail_false(IGNIS_DIAG_ARRAY_FREED, call, "%s, freed by another thread meanwhile",
                             ignis__array_label(array).text);
}

IGNIS__PRIVATE void ignis__array_unlock(ignis__array *array) { ignis__mutex_unlock(&array->slot.lock); }

IGNIS__PRIVATE struct ignis__tracking_type ignis__tracking = {IGNIS__MUTEX_INIT, 0, 0, NULL};

IGNIS__COLD IGNIS__PRIVATE void ignis__track_entry(const ignis__array *array, ignis_contract_entry *entry)
{
    memset(entry, 0, sizeof *entry);
    entry->array_id = array->id;
    entry->owner = array->owner;
    entry->shape = array->shape;
    entry->dtype = array->dtype;
    entry->bytes = ignis__array_bytes(array);
    entry->ref_count = array->ref_count;
    entry->views = (int)ignis__atomic_load(&array->storage->users) - 1;
    entry->exports = array->exports;
    memcpy(entry->tag, array->tag, sizeof entry->tag);
}

/*  Updates the audit when a tracked array dies. An array that was only acquired leaves it; one that the user tracks
    stays, as freed. */
IGNIS__COLD static void ignis__track_freed(const ignis__array *array)
{
    ignis__tracked_freed *freed = array->tracked_by_user ? (ignis__tracked_freed *)ignis__alloc(sizeof *freed) : NULL;
    ignis__mutex_lock(&ignis__tracking.lock);
    ignis__tracking.live--;
    if (freed) {
        ignis__track_entry(array, &freed->entry);
        freed->entry.freed = true;
        freed->handle = array->slot.handle;
        freed->audit = array->audit;
        freed->tracked_at_ns = array->tracked_at_ns;
        freed->next = ignis__tracking.freed;
        ignis__tracking.freed = freed;
        ignis__tracking.freed_count++;
    }
    ignis__mutex_unlock(&ignis__tracking.lock);
}

/*  Takes a reference that keeps an array and its memory alive: for tensors and the tape, which own it from now on. */
IGNIS__ONE_COPY IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__array_claim(ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    array->ref_count++;
    array->owned_by_refs = true;
    ignis__atomic_add(&array->slot.state, 1);
    ignis__mutex_unlock(&array->slot.lock);
}

/*  Claims a new array, which then lives as long as its claims. NULL for no handle. */
IGNIS__ONE_COPY IGNIS__MAYBE_UNUSED IGNIS__PRIVATE ignis__array *ignis__array_adopt(const char *call, ignis_array made)
{
    ignis__array *array = made.id ? (ignis__array *)ignis__pool_hold(&ignis__arrays, made.id) : NULL;
    if (!array)
        return NULL;
    ignis__array_claim(array);
    ignis__array_drop(call, array);
    return array;
}

/*  Makes the handle of a live, held and locked array stale. */
IGNIS__INLINE IGNIS__PRIVATE void ignis__array_kill(ignis__array *array)
{
    if (array->tracked_at_ns)
        ignis__track_freed(array);
    ignis__tombstone_write(&array->tombstone, &array->slot, array->id, array->tag);
    ignis__pool_kill(array);
    ignis__pool_drop(array); /* the handle's own hold; the caller still has one */
}

/*  Releases a reference of a locked array. The last one frees an array that its references own. */
IGNIS__INLINE IGNIS__PRIVATE int ignis__array_unref(ignis__array *array)
{
    int count = --array->ref_count;
    if (count == 0 && array->owned_by_refs && ignis__pool_live(array))
        ignis__array_kill(array);
    return count;
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__array_unclaim(const char *call, ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    if (array->ref_count > 0) /* a caller may have released references of others */
        ignis__array_unref(array);
    ignis__array_unlock(array);
    ignis__array_drop(call, array);
}

/*  Makes an array over a storage, whose users it joins. Invisible to other threads until ignis__array_publish. NULL
    if out of memory. */
IGNIS__INLINE IGNIS__PRIVATE ignis__array *ignis__array_make(const char *call, ignis__storage *storage,
                                                             const ignis_shape *shape, ignis_dtype dtype, int64_t numel)
{
    ignis__array *array = (ignis__array *)ignis__pool_take_zeroed(call, &ignis__arrays);
    if (!array)
        return NULL;
    ignis__atomic_add(&storage->users, 1);
    array->storage = storage;
    array->numel = numel;
    ignis__shape_copy(&array->shape, shape);
    array->dtype = dtype;
    array->owner = IGNIS_OWNER_IGNIS;
    array->id = ignis__atomic_add(&ignis__array_ids, 1);
    array->created_at_ns = ignis__wall_ns();
    return array;
}

/*  Publishes an array; the references that it has already become claims. */
IGNIS__INLINE IGNIS__PRIVATE ignis_array ignis__array_publish(ignis__array *array)
{
    ignis_array handle;
    handle.id = ignis__pool_publish_held(&ignis__arrays, array, 1 + array->ref_count);
    return handle;
}

/*  Checks memory to wrap: the device can use it, it belongs to that device, and it is as large as the array. */
IGNIS__COLD static bool ignis__array_wrappable(const char *call, ignis__device *device, void *ptr, int64_t size)
{
    int type, ordinal, wanted = ignis__device_ordinal(device);
    ignis__address start, at = (ignis__address)(uintptr_t)ptr;
    size_t range;
    if (!ignis__address_query(call, device, ptr, &type, &ordinal) ||
        !ignis__address_range(call, device, ptr, &start, &range))
        return false;
    if (type == 0 || type == IGNIS__CU_MEMORY_HOST)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.ptr %p is not device memory; copy host memory with ignis_array_from_host", ptr);
    if (ordinal != wanted)
        return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call,
                                 "desc.ptr %p is memory of device %d, the array is to be on device %d", ptr, ordinal,
                                 wanted);
    if (range && (uint64_t)size > start + range - at)
        return ignis__fail_false(
            IGNIS_DIAG_BAD_NUMBER, call,
            "the array has %lld bytes, but from desc.ptr %p on there are %llu left of the %llu of its memory",
            (long long)size, ptr, (unsigned long long)(start + range - at), (unsigned long long)range);
    return true;
}

/*  Does the part of ignis_array_create that needs the device: checks the pointer, unless it is external, and adds an
    entry for the stream. */
IGNIS__COLD static bool ignis__array_attach(const char *call, ignis__device *device, ignis__storage *storage,
                                            const ignis_array_desc *desc, bool external)
{
    ignis__binding binding;
    bool ok;
    if (!ignis__device_enter(call, device, &binding))
        return false;
    ok = (!desc->ptr || storage->size == 0 || external ||
          ignis__array_wrappable(call, device, desc->ptr, storage->size)) &&
         (!desc->stream || desc->stream == device->stream || ignis__stream_adopt(call, device, desc->stream) != 0);
    ignis__device_leave(&binding);
    storage->wrapped = desc->ptr != NULL;
    storage->external = external;
    storage->address = (uint64_t)(uintptr_t)desc->ptr;
    storage->stream = desc->stream;
    ignis__storage_enlist(storage, device, desc->stream);
    if (ok) { /* on failure the memory stays the caller's */
        storage->release_fn = desc->release_fn;
        storage->release_data = desc->release_data;
    }
    return ok;
}

/*  external: desc->ptr is memory of a graphics API; the caller has checked its size. */
IGNIS__PRIVATE ignis_array ignis__array_create_over(const char *call, const ignis_array_desc *desc, bool external)
{
    ignis_array handle = IGNIS__ZERO;
    ignis__device *device;
    ignis__storage *storage;
    ignis__array *array;
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    ignis_owner owner = desc->owner ? desc->owner : IGNIS_OWNER_IGNIS;
    int ordinal = ignis__desc_device(desc->device);
    int64_t numel;
    size_t length;

    if (!ignis__dtype_valid(call, dtype) || !ignis__owner_valid(call, owner) ||
        !ignis__shape_check(call, &desc->shape, dtype, &numel) || (device = ignis__device_get(call, ordinal)) == NULL ||
        (storage = ignis__storage_make(call, device, numel * ignis__dtypes[dtype].size)) == NULL)
        return handle;
    array = (!desc->ptr && !desc->stream) || ignis__array_attach(call, device, storage, desc, external)
                ? ignis__array_make(call, storage, &desc->shape, dtype, numel)
                : NULL;
    if (!array) {
        ignis__storage_destroy(storage);
        return handle;
    }
    array->owner = owner;
    if (desc->tag) {
        length = ignis__utf8_cut(desc->tag, sizeof array->tag - 1);
        memcpy(array->tag, desc->tag, length);
        memcpy(storage->origin.tag, array->tag, sizeof array->tag);
    }
    return ignis__array_publish(array);
}

IGNIS__INLINE IGNIS__PRIVATE ignis_array ignis__array_create(const char *call, const ignis_array_desc *desc)
{
    return ignis__array_create_over(call, desc, false);
}

IGNIS_API ignis_array ignis_array_create(const ignis_array_desc *desc)
{
    static const char call[] = "ignis_array_create";
    ignis_array none = IGNIS__ZERO;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "desc", desc))
        return none;
    return ignis__array_create(call, desc);
}

/*  Returns the owner of a view or copy of an array: the array's owner, or after a loan the owner before it. Another
    thread may be about to transfer the array. */
IGNIS__PRIVATE ignis_owner ignis__array_owner(const ignis__array *array)
{
    ignis__mutex *lock = (ignis__mutex *)(uintptr_t)&array->slot.lock;
    ignis_owner owner;
    ignis__mutex_lock(lock);
    owner = array->borrower ? IGNIS_OWNER_IGNIS : array->owner;
    ignis__mutex_unlock(lock);
    return owner;
}

/*  Creates an array like another one, with memory of its own and perhaps another dtype. */
IGNIS__COLD IGNIS__PRIVATE ignis_array ignis__array_create_like(const char *call, const ignis__array *like,
                                                                ignis_dtype dtype)
{
    ignis_array_desc desc = IGNIS__ZERO;
    desc.shape = like->shape;
    desc.dtype = dtype;
    desc.device = ignis__device_in_desc(like->storage->device);
    desc.owner = ignis__array_owner(like);
    desc.tag = like->tag;
    return ignis__array_create(call, &desc);
}

/*  Makes a view, which shares the array's storage, owner and tag. Invisible to other threads until
    ignis__array_publish. */
IGNIS__PRIVATE ignis__array *ignis__array_view_make(const char *call, const ignis__array *of, const ignis_shape *shape,
                                                    int64_t numel, int64_t offset)
{
    ignis__array *view = ignis__array_make(call, of->storage, shape, of->dtype, numel);
    if (!view)
        return NULL;
    view->offset = of->offset + offset;
    view->owner = ignis__array_owner(of);
    view->view = true;
    view->parent = of->id;
    if (numel == of->numel)
        view->blocks = of->blocks; /* a recomputed function reads its inputs by views */
    memcpy(view->tag, of->tag, sizeof view->tag);
    return view;
}

IGNIS__PRIVATE ignis_array ignis__array_view(const char *call, const ignis__array *of, const ignis_shape *shape,
                                             int64_t numel, int64_t offset)
{
    ignis_array none = IGNIS__ZERO;
    ignis__array *view = ignis__array_view_make(call, of, shape, numel, offset);
    return view ? ignis__array_publish(view) : none;
}

/*  Writes the processes that hold an exported array. ignis_collective.h sets it, because it knows them. The array is
    locked. */
IGNIS__PRIVATE uint64_t ignis__export_holders;

/*  Drops the exports of processes that are gone, before a call on the array is refused, and waits for processes that
    are ending. Also set by ignis_collective.h. Both are set before an array counts an export. */
IGNIS__PRIVATE uint64_t ignis__exports_reap;

/*  Holds and locks the array of a handle to change its fields. NULL, and reported, if there is none. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__array_enter(const char *call, ignis_array handle)
{
    ignis__array *array = ignis__array_hold(call, handle);
    if (!array || ignis__array_lock(call, array))
        return array;
    ignis__array_drop(call, array);
    return NULL;
}

/*  As ignis__array_enter, for calls of the contract: first drops exports of processes that are gone; with wait, also
    of processes that are ending. */
IGNIS__INLINE IGNIS__PRIVATE ignis__array *ignis__array_enter_reaped(const char *call, ignis_array handle, bool wait)
{
    ignis__array *array = ignis__array_enter(call, handle);
    if (!array || array->exports == 0)
        return array;
    ignis__array_unlock(array);
    IGNIS__HOOK(ignis__reap_hook, ignis__exports_reap)(call, array, wait);
    if (ignis__array_lock(call, array))
        return array;
    ignis__array_drop(call, array);
    return NULL;
}

IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__array_leave(const char *call, ignis__array *array, bool ok)
{
    ignis__array_unlock(array);
    return ignis__array_end(call, array, ok);
}

IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__fail_exported(const char *call, const ignis__array *array,
                                                             const char *what)
{
    ignis__holders_hook *name = IGNIS__HOOK(ignis__holders_hook, ignis__export_holders);
    char holders[512];
    ignis__string_writer text;
    ignis__string_begin(&text, holders, sizeof holders);
    if (name)
        name(&text, array);
    return ignis__fail(IGNIS_DIAG_FREE_EXPORTED, call, "%s cannot be %s while %d handle%s of it %s out: %s",
                       ignis__array_label(array).text, what, array->exports, array->exports == 1 ? "" : "s",
                       array->exports == 1 ? "is" : "are", holders);
}

/*  Writes the holders of claims on an array, each after a comma, and returns the number of claims. Set by the
    sections above. */
IGNIS__PRIVATE int (*ignis__claim_holders)(ignis__string_writer *text, const ignis__array *array);

/*  Reports that an array has references. The array is held; the caller has read ref_count under its lock. */
IGNIS__COLD static ignis_status ignis__fail_referenced(const char *call, const ignis__array *array, ignis_owner owner,
                                                       int ref_count)
{
    char holders[512];
    ignis__string_writer text;
    int others;
    ignis__string_begin(&text, holders, sizeof holders);
    others = ref_count - (ignis__claim_holders ? ignis__claim_holders(&text, array) : 0);
    if (others > 0)
        ignis__string_add(&text, ", %d held by others, as by ignis_array_increment_ref", others);
    return ignis__fail(IGNIS_DIAG_FREE_REFERENCED, call,
                       "%s, owned by %s, cannot be freed while its ref_count is %d, not 0%s%s",
                       ignis__array_label(array).text, ignis__owner_name(owner), ref_count, text.length ? ":" : "",
                       text.length ? holders + 1 : "");
}

IGNIS__PRIVATE ignis_status ignis__array_free_as(const char *call, ignis_array handle, ignis_owner as)
{
    const uint64_t failures = ignis__failures();
    ignis__array *array;
    ignis_owner owner;
    int ref_count = 0;
    bool ok = false;
    if (!handle.id)
        return IGNIS_OK;
    array = ignis__array_enter_reaped(call, handle, true);
    if (!array)
        return ignis__failed();
    if (!ignis__owner_valid(call, as))
        return ignis__array_leave(call, array, false);
    owner = array->owner;
    if (owner != as)
        ignis__fail(IGNIS_DIAG_FREE_BY_OTHER, call, "%s is owned by %s and may only be freed by it, not by %s",
                    ignis__array_label(array).text, ignis__owner_name(owner), ignis__owner_name(as));
    else if (array->exports > 0)
        ignis__fail_exported(call, array, "freed");
    else if (array->ref_count > 0)
        ref_count = array->ref_count;
    else
        ok = true;
    if (ok)
        ignis__array_kill(array);
    ignis__array_unlock(array);
    if (ref_count) /* called unlocked: holders of this lock take other locks first */
        ignis__fail_referenced(call, array, owner, ref_count);
    (void)ignis__array_end(call, array, ok);
    return ignis__ended(failures, ok);
}

IGNIS_API ignis_status ignis_array_free(ignis_array array)
{
    return ignis__array_free_as("ignis_array_free", array, IGNIS_OWNER_IGNIS);
}

IGNIS_API ignis_status ignis_array_free_as(ignis_array array, ignis_owner owner)
{
    return ignis__array_free_as("ignis_array_free_as", array, owner);
}

IGNIS_API bool ignis_array_is_live(ignis_array handle)
{
    bool usable = ignis__atomic_load(&ignis__global.ready) && !ignis__atomic_load(&ignis__global.forked);
    void *array = usable ? ignis__pool_hold(&ignis__arrays, handle.id) : NULL;
    if (!array)
        return false;
    ignis__array_drop("ignis_array_is_live", (ignis__array *)array);
    return true;
}

IGNIS_API ignis_status ignis_array_query(ignis_array handle, ignis_array_info *info)
{
    static const char call[] = "ignis_array_query";
    ignis__array *array = ignis__array_enter(call, handle);
    ignis__storage *storage;
    uint64_t address;
    if (!array)
        return ignis__failed();
    if (!ignis__check_not_null(call, "info", info))
        return ignis__array_leave(call, array, false);
    storage = array->storage;
    address = ignis__atomic_load(&storage->address);
    info->id = array->id;
    info->shape = array->shape;
    info->dtype = array->dtype;
    info->device = ignis__device_ordinal(storage->device);
    info->owner = array->owner;
    info->ref_count = array->ref_count;
    info->ptr = address ? (void *)(uintptr_t)(address + (uint64_t)array->offset) : NULL;
    info->pinned_host_ptr = array->pinned;
    info->created_at_ns = array->created_at_ns;
    info->owns_memory = !array->view && !storage->wrapped;
    info->on_device = address != 0;
    info->parent = array->parent;
    memcpy(info->tag, array->tag, sizeof info->tag);
    info->version = ignis__storage_version(storage);
    ignis__array_unlock(array);
    if (address)
        ignis__atomic_store(&storage->exposed, 1);
    ignis__mutex_lock(&storage->lock);
    info->stream = storage->stream;
    ignis__mutex_unlock(&storage->lock);
    return ignis__array_end(call, array, true);
}

IGNIS_API int64_t ignis_array_numel(ignis_array handle)
{
    static const char call[] = "ignis_array_numel";
    ignis__array *array = ignis__array_hold(call, handle);
    int64_t numel;
    if (!array)
        return -1;
    numel = array->numel;
    ignis__array_drop(call, array);
    return numel;
}

IGNIS_API int64_t ignis_array_size_bytes(ignis_array handle)
{
    static const char call[] = "ignis_array_size_bytes";
    ignis__array *array = ignis__array_hold(call, handle);
    int64_t size;
    if (!array)
        return -1;
    size = ignis__array_bytes(array);
    ignis__array_drop(call, array);
    return size;
}

IGNIS__COLD static void ignis__array_describe(ignis__string_writer *text, const ignis__array *array)
{
    ignis__string_add(text, "array #%llu %s %s on device %d, owner %s, ref_count %d", (unsigned long long)array->id,
                      ignis__shape_write(&array->shape).text, ignis__dtypes[array->dtype].name,
                      ignis__device_ordinal(array->storage->device), ignis__owner_name(array->owner), array->ref_count);
    if (*array->tag)
        ignis__string_add(text, ", '%s'", array->tag);
}

IGNIS__COLD IGNIS_API int ignis_array_to_string(ignis_array handle, char *out, size_t capacity)
{
    static const char call[] = "ignis_array_to_string";
    ignis__array *array;
    ignis__label label;
    ignis__string_writer text;
    char none[1];
    if (!ignis__enter(call) || (capacity && !ignis__check_not_null(call, "out", out)))
        return -1;
    ignis__string_begin(&text, out ? out : none, capacity);
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (array) {
        ignis__mutex_lock(&array->slot.lock);
        ignis__array_describe(&text, array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    } else {
        label = ignis__label_stale(&ignis__arrays, handle.id);
        if (*label.text)
            ignis__string_add(&text, "%s", label.text);
        else
            ignis__string_add(&text, "array handle 0x%llx (freed)", (unsigned long long)handle.id);
    }
    return (int)text.length;
}

/*  Reports an array that is alive at ignis_shutdown; `what` precedes its description. */
IGNIS__COLD IGNIS__PRIVATE void ignis__array_leaked(const char *call, const ignis__array *array, const char *what)
{
    char line[256];
    ignis__string_writer text;
    ignis__string_begin(&text, line, sizeof line);
    ignis__array_describe(&text, array);
    ignis__leak_report(call, IGNIS_DIAG_ARRAY_LEAKED, "%s%s, %lld bytes, %lld ms old", what, line,
                       (long long)ignis__array_bytes(array),
                       (long long)((ignis__wall_ns() - array->created_at_ns) / 1000000));
}
