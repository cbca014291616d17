/*  >>transport.export - exports: arrays whose handles are in use elsewhere

    Lists handles that are out. A handle ends with its lease, its channel, or its transport.
    Uses: records, channels, arrays.
    Invariants: an array counts its handles and cannot be freed or transferred while one is out; a handle
    holds its array.
    Locks: ignis__shares.lock guards both lists; it is never held while an array is locked or the driver is
    called. */

#include "room.h"

IGNIS__PRIVATE ignis__pool ignis__transports =
    IGNIS__POOL(ignis__transport, IGNIS__KIND_TRANSPORT, "transport", IGNIS_DIAG_TRANSPORT_FREED);

IGNIS__PRIVATE struct ignis__shares_type ignis__shares = {IGNIS__MUTEX_INIT, 0, 0, 0, 0, NULL, NULL};

/*  Counts one more handle of an array. */
IGNIS__PRIVATE bool ignis__array_add_export(const char *call, ignis__array *array)
{
    if (!ignis__array_lock(call, array))
        return false;
    array->exports++;
    array->ref_count++;
    ignis__atomic_add(&array->slot.state, 1);
    ignis__array_unlock(array);
    return true;
}

/*  Counts one handle less. */
IGNIS__PRIVATE void ignis__array_remove_export(const char *call, ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    array->exports--;
    if (array->ref_count > 0) /* a caller may have dropped references that belong to handles */
        ignis__array_unref(array);
    ignis__array_unlock(array);
    ignis__array_drop(call, array);
}

/*  Tells if the peer of an open channel has closed it or died. */
static bool ignis__channel_peer_is_gone(ignis_channel handle)
{
    ignis__channel *channel = (ignis__channel *)ignis__pool_hold(&ignis__channels, handle.id);
    bool gone = channel && !channel->connection->kind->alive(channel->connection);
    if (channel)
        ignis__channel_drop(channel);
    return gone;
}

IGNIS__PRIVATE void ignis__export_free(ignis__export *entry)
{
    ignis__fd_close(&entry->watch);
    ignis__free(entry->path);
    ignis__free(entry);
}

/*  Tells if a handle ends. With `unused`, handles that no process uses end; else all do, except copies under
    way, which arrive without this process. *dying: it ends as soon as an exiting process has ended. */
static bool ignis__export_is_over(const ignis__export *entry, bool unused, bool *dying)
{
    bool taken = entry->path && !ignis__named_file_exists(entry->path), ending;
    if (!unused && (entry->array || !entry->channel.id))
        return true;
    if (entry->watch >= 0 ? ignis__lease_is_over(entry->watch) : taken) {
        ending =
            entry->record.kind == IGNIS_TRANSPORT_IPC && entry->peer_pid && ignis__process_is_exiting(entry->peer_pid);
        *dying |= ending;
        return !ending;
    }
    return entry->path && !taken && ignis__channel_peer_is_gone(entry->channel);
}

/*  Ends handles of one array or of all (NULL), by one transport or by any (0); all of them, or unused ones.
    Copies that were taken end as well. True: one of them ends when an exiting process has ended. */
IGNIS__PRIVATE bool ignis__exports_end(const char *call, const ignis__array *array, uint64_t transport, bool unused)
{
    ignis__export **at, *entry, *ended = NULL;
    bool dying = false;
    ignis__mutex_lock(&ignis__shares.lock);
    for (at = &ignis__shares.exports; (entry = *at) != NULL;) {
        bool concerned = entry->array
                             ? (!array || entry->array == array) && (!transport || entry->transport == transport)
                             : unused || (!array && entry->transport == transport);
        if (concerned && ignis__export_is_over(entry, unused, &dying)) {
            *at = entry->next;
            entry->next = ended;
            ended = entry;
        } else {
            at = &entry->next;
        }
    }
    if (ended)
        ignis__atomic_add(&ignis__shares.ending, 1);
    ignis__mutex_unlock(&ignis__shares.lock);
    if (!ended)
        return dying;
    while ((entry = ended) != NULL) {
        ended = entry->next;
        if (entry->path)
            (void)ignis__file_remove(entry->path);
        if (entry->array)
            ignis__array_remove_export(call, entry->array);
        ignis__export_free(entry);
    }
    ignis__atomic_add(&ignis__shares.ending, (uint64_t)-1);
    return dying;
}

/*  Updates the count of an array's handles, which another thread may be ending, too. With `wait`, waits for
    processes that are exiting: the system takes a moment to close their leases. */
IGNIS__PRIVATE void ignis__exports_reap_array(const char *call, ignis__array *array, bool wait)
{
    int64_t until_ns = ignis__monotonic_ns() + (wait ? 5000000000 : 0);
    int tries;
    while (ignis__exports_end(call, array, 0, true) && ignis__monotonic_ns() < until_ns)
        ignis__sleep_us(500);
    for (tries = 0; tries < 1000 && ignis__atomic_load(&ignis__shares.ending) != 0; tries++)
        ignis__sleep_us(50);
}

/*  Describes for a message how many handles of an array are out, by transport. The array is locked. */
IGNIS__COLD IGNIS__PRIVATE void ignis__exports_describe(ignis__string_writer *text, const ignis__array *array)
{
    const ignis__export *entry, *other;
    ignis__mutex_lock(&ignis__shares.lock);
    for (entry = ignis__shares.exports; entry; entry = entry->next) {
        int count = 1;
        for (other = ignis__shares.exports; other->turn != entry->turn; other = other->next)
            ;
        if (entry->array != array || other != entry) /* one line for all handles of a transport */
            continue;
        while ((other = other->next) != NULL)
            count += other->turn == entry->turn;
        ignis__string_add(text, "%s%d by %s", text->length ? ", " : "", count, entry->description);
    }
    ignis__mutex_unlock(&ignis__shares.lock);
    ignis__string_add(text, "; close what was imported, or call ignis_transport_release_handle");
}
