/* ===============================================================================================================
   >>contract - acquire, release, assert, track, audit

   Layers acquire an array before they work on it. Tracking is a list for the user to find leaks; it has no effect
   on ownership.
   May use: array.c. Locks: ignis__audits, then an array's slot, then ignis__tracking.
   =============================================================================================================== */

#include "room.h"

/*  The tracking state is in the array itself, under its lock. The tracking lock guards the counts and the list of
    freed arrays. */
static void ignis__track(ignis__array *array, bool by_user)
{
    bool fresh = array->tracked_at_ns == 0;
    if (fresh || by_user)
        array->tracked_at_ns = ignis__monotonic_ns();
    array->tracked_by_user = array->tracked_by_user || by_user;
    if (fresh) {
        ignis__mutex_lock(&ignis__tracking.lock);
        ignis__tracking.live++;
        ignis__mutex_unlock(&ignis__tracking.lock);
    }
}

static void ignis__untrack(ignis__array *array)
{
    if (array->tracked_at_ns) {
        ignis__mutex_lock(&ignis__tracking.lock);
        ignis__tracking.live--;
        ignis__mutex_unlock(&ignis__tracking.lock);
    }
    array->tracked_at_ns = 0;
    array->tracked_by_user = false;
}

/*  Removes a freed array from the list, which is locked. */
static void ignis__tracked_forget(ignis__tracked_freed **link)
{
    ignis__tracked_freed *freed = *link;
    *link = freed->next;
    ignis__tracking.freed_count--;
    ignis__free(freed);
}

/*  Makes a layer the owner of a held array until a call of it ends. `borrower` identifies the call, which may borrow
    an array again. References do not matter, and the audit shows nothing, unlike ignis_contract_acquire.
    ignis__contract_return restores the owner. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__contract_borrow(const char *call, ignis__array *array, ignis_owner by,
                                                               const void *borrower)
{
    ignis_owner owner;
    bool again;
    if (!ignis__array_lock(call, array))
        return false;
    owner = array->owner;
    again = array->borrower == borrower;
    if (owner == IGNIS_OWNER_IGNIS) {
        array->owner = by;
        array->borrower = borrower;
    }
    ignis__array_unlock(array);
    if (owner == IGNIS_OWNER_IGNIS || again)
        return true;
    return ignis__fail_false(owner == by ? IGNIS_DIAG_DOUBLE_ACQUIRE : IGNIS_DIAG_OWNER_DIFFERS, call,
                             "%s is owned by %s%s", ignis__array_label(array).text, ignis__owner_name(owner),
                             owner == by ? " already: another thread's call works on it, or it was acquired"
                                         : ", which has to release it first");
}

IGNIS__MAYBE_UNUSED IGNIS__PRIVATE void ignis__contract_return(ignis__array *array, const void *borrower)
{
    ignis__mutex_lock(&array->slot.lock);
    if (array->borrower == borrower) {
        array->owner = IGNIS_OWNER_IGNIS;
        array->borrower = NULL;
    }
    ignis__array_unlock(array);
}

IGNIS_API ignis_status ignis_contract_acquire(ignis_array handle, ignis_owner by)
{
    static const char call[] = "ignis_contract_acquire";
    ignis__array *array = ignis__array_enter_reaped(call, handle, false);
    bool ok;
    if (!array)
        return ignis__failed();
    ok = ignis__owner_valid(call, by);
    if (ok && array->owner == by)
        ok = ignis__fail_false(IGNIS_DIAG_DOUBLE_ACQUIRE, call, "%s is already owned by %s: a double acquire",
                               ignis__array_label(array).text, ignis__owner_name(by));
    ok = ok && ignis__array_transfer(call, array, by) == IGNIS_OK;
    if (ok)
        ignis__track(array, false);
    return ignis__array_leave(call, array, ok);
}

IGNIS_API ignis_status ignis_contract_release(ignis_array handle, ignis_owner by)
{
    static const char call[] = "ignis_contract_release";
    ignis__array *array;
    bool ok;
    if (!handle.id)
        return IGNIS_OK;
    array = ignis__array_enter_reaped(call, handle, false);
    if (!array)
        return ignis__failed();
    ok = ignis__owner_valid(call, by);
    if (ok && array->owner != by)
        ok = ignis__fail_false(IGNIS_DIAG_RELEASE_BY_OTHER, call,
                               "%s is owned by %s, not by %s, which therefore cannot release it",
                               ignis__array_label(array).text, ignis__owner_name(array->owner), ignis__owner_name(by));
    return ignis__array_leave(call, array, ok && ignis__array_transfer(call, array, IGNIS_OWNER_IGNIS) == IGNIS_OK);
}

IGNIS__COLD IGNIS_API ignis_status ignis_contract_assert_owner(ignis_array handle, ignis_owner owner)
{
    static const char call[] = "ignis_contract_assert_owner";
    ignis__array *array = ignis__array_enter_reaped(call, handle, false);
    bool ok;
    if (!array)
        return ignis__failed();
    ok = ignis__owner_valid(call, owner);
    if (ok && array->owner != owner)
        ok = ignis__fail_false(IGNIS_DIAG_OWNER_DIFFERS, call, "%s was expected to be owned by %s, but is owned by %s",
                               ignis__array_label(array).text, ignis__owner_name(owner),
                               ignis__owner_name(array->owner));
    return ignis__array_leave(call, array, ok);
}

IGNIS__COLD IGNIS_API ignis_status ignis_contract_track(ignis_array handle)
{
    static const char call[] = "ignis_contract_track";
    ignis__array *array = ignis__array_enter_reaped(call, handle, false);
    if (!array)
        return ignis__failed();
    ignis__track(array, true);
    return ignis__array_leave(call, array, true);
}

IGNIS__COLD IGNIS_API ignis_status ignis_contract_untrack(ignis_array handle)
{
    static const char call[] = "ignis_contract_untrack";
    ignis__tracked_freed **link;
    ignis__array *array;
    bool live;
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    array = (ignis__array *)ignis__pool_hold(&ignis__arrays, handle.id);
    if (array) {
        ignis__mutex_lock(&array->slot.lock);
        live = ignis__pool_live(array); /* else another thread has freed it meanwhile */
        if (live)
            ignis__untrack(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
        if (live)
            return IGNIS_OK;
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    for (link = &ignis__tracking.freed; *link && (*link)->handle != handle.id; link = &(*link)->next)
        ;
    if (*link)
        ignis__tracked_forget(link);
    ignis__mutex_unlock(&ignis__tracking.lock);
    return IGNIS_OK;
}

static int ignis__audit_older(const void *a, const void *b)
{
    int64_t age_a = ((const ignis_contract_entry *)a)->age_ms, age_b = ((const ignis_contract_entry *)b)->age_ms;
    uint64_t id_a = ((const ignis_contract_entry *)a)->array_id, id_b = ((const ignis_contract_entry *)b)->array_id;
    return age_a != age_b ? (age_a < age_b) - (age_a > age_b) : (id_a > id_b) - (id_a < id_b);
}

/*  Audits run one at a time, and are numbered: an array freed between the passes over live and freed arrays is listed
    once. */
static struct {
    ignis__mutex lock;
    uint64_t count;
} ignis__audits = {IGNIS__MUTEX_INIT, 0};

/*  Collects the oldest `capacity` entries by age, and returns their total number. */
typedef struct ignis__audit {
    ignis_contract_entry *entries;
    int capacity, kept, found;
    int64_t now_ns, min_age_ms;
} ignis__audit;

IGNIS__COLD static void ignis__audit_add(ignis__audit *audit, ignis_contract_entry *entry, int64_t tracked_at_ns)
{
    int place;
    entry->age_ms = (audit->now_ns - tracked_at_ns) / 1000000;
    if (entry->age_ms <= audit->min_age_ms)
        return;
    audit->found++;
    for (place = audit->kept; place > 0 && ignis__audit_older(entry, &audit->entries[place - 1]) < 0; place--)
        if (place < audit->capacity)
            audit->entries[place] = audit->entries[place - 1];
    if (place < audit->capacity)
        audit->entries[place] = *entry;
    if (audit->kept < audit->capacity)
        audit->kept++;
}

IGNIS__COLD IGNIS_API int ignis_contract_audit(ignis_contract_entry *entries, int capacity, int64_t min_age_ms)
{
    static const char call[] = "ignis_contract_audit";
    ignis__audit audit = IGNIS__ZERO;
    ignis__reap_hook *reap = IGNIS__HOOK(ignis__reap_hook, ignis__exports_reap);
    ignis__tracked_freed *freed;
    ignis__slot *dead = NULL;
    ignis__array *array;
    uint64_t index = 0;
    if (!ignis__enter(call) || !ignis__check_capacity(call, "entries", entries, capacity))
        return -1;
    while (reap && (array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        bool exported;
        ignis__mutex_lock(&array->slot.lock);
        exported = array->exports > 0;
        ignis__mutex_unlock(&array->slot.lock);
        if (exported)
            reap(call, array, false);
        ignis__array_drop(call, array);
    }
    audit.entries = entries;
    audit.capacity = capacity;
    audit.now_ns = ignis__monotonic_ns();
    audit.min_age_ms = min_age_ms == 0 ? 5000 : min_age_ms;
    index = 0;
    ignis__mutex_lock(&ignis__audits.lock);
    ignis__audits.count++;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis_contract_entry entry;
        ignis__mutex_lock(&array->slot.lock);
        if (array->tracked_at_ns && ignis__pool_live(array)) {
            ignis__track_entry(array, &entry);
            ignis__audit_add(&audit, &entry, array->tracked_at_ns);
            array->audit = ignis__audits.count;
        }
        ignis__array_unlock(array);
        if (ignis__pool_drop(array)) { /* another thread has freed it meanwhile */
            array->slot.next_free = dead;
            dead = &array->slot;
        }
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    for (freed = ignis__tracking.freed; freed; freed = freed->next)
        if (freed->audit != ignis__audits.count)
            ignis__audit_add(&audit, &freed->entry, freed->tracked_at_ns);
    ignis__mutex_unlock(&ignis__tracking.lock);
    ignis__mutex_unlock(&ignis__audits.lock);
    while (dead) { /* called unlocked: a callback told of the release of wrapped memory may audit, too */
        array = (ignis__array *)(void *)dead;
        dead = dead->next_free;
        ignis__array_destroy(call, array);
    }
    return audit.found;
}

IGNIS_API int ignis_contract_tracked_count(void)
{
    int count;
    if (!ignis__enter("ignis_contract_tracked_count"))
        return -1;
    ignis__mutex_lock(&ignis__tracking.lock);
    count = ignis__tracking.live + ignis__tracking.freed_count;
    ignis__mutex_unlock(&ignis__tracking.lock);
    return count;
}

IGNIS__COLD IGNIS__PRIVATE void ignis__tracking_reset(const char *call)
{
    ignis__array *array;
    uint64_t index = 0;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        ignis__mutex_lock(&array->slot.lock);
        if (ignis__pool_live(array))
            ignis__untrack(array);
        ignis__array_unlock(array);
        ignis__array_drop(call, array);
    }
    ignis__mutex_lock(&ignis__tracking.lock);
    while (ignis__tracking.freed)
        ignis__tracked_forget(&ignis__tracking.freed);
    ignis__mutex_unlock(&ignis__tracking.lock);
}

IGNIS_API ignis_status ignis_contract_reset(void)
{
    static const char call[] = "ignis_contract_reset";
    if (!ignis__enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    ignis__tracking_reset(call);
    return IGNIS_OK;
}
