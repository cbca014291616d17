/* --- exports: an array that others may have, until the last lease of it ends ----------------------------------------------- */

typedef struct ignis__transport {
    ignis__slot slot;
    ignis_transport_kind kind;
    ignis__device *src, *dst;
    ignis_channel_method exchange;
    ignis_channel channel;
    int64_t peer_pid;  /* at the channel's other side; 0: unknown */
    bool peer_certain; /* that is the kernel's word */
    unsigned char token[IGNIS__SECRET];
    int64_t timeout_ns;
    uint64_t ready;
    uint64_t serial; /* of this transport, in this process: its slot is used again */
    double bandwidth_gbs, latency_us;
    /* what was sent to a receive of this process; the slot's lock guards them */
    struct ignis__waiting *waiting, **waiting_end;
    char folder[IGNIS__PATH_MAX]; /* of named leases and copies; "": this user's */
} ignis__transport;

static ignis__pool ignis__transports =
    IGNIS__POOL(ignis__transport, IGNIS__KIND_TRANSPORT, "transport", IGNIS_DIAG_TRANSPORT_FREED);

/*  A handle that is out: one of its array's exports, which it holds; or a copy under a name. */
typedef struct ignis__export {
    uint64_t transport; /* serial */
    ignis_channel channel;
    int64_t peer_pid; /* at its other side; 0: unknown */
    char description[96];
    ignis__array *array;           /* null: it is a copy */
    uint64_t turn;                 /* grows with each export; when the array was exported last, by the same transport */
    ignis__record_of_array record; /* without what each handle of an array has of its own */
    int watch;  /* hangs up when nobody has the handle, or an import of it, any more; -1: nobody says so */
    char *path; /* of what lies under a name; null: nothing does */
    struct ignis__export *next;
} ignis__export;

/*  The mapping of an export in this process, which arrays share. */
typedef struct ignis__import {
    ignis__record_of_array record; /* the export's */
    uint64_t transport;            /* serial; what another one says of the same export is not believed here */
    ignis__device *device;
    int arrays;
    ignis__mutex lock;      /* taken while it is mapped, by who comes first */
    bool made;              /* it is mapped */
    ignis__address address; /* of the memory that is shared */
    ignis__vmm_block block; /* of IGNIS_TRANSPORT_VMM, from another process */
    ignis__array *own;      /* of this process, held: not mapped again */
    int lease;
    struct ignis__import *next;
} ignis__import;

static struct {
    ignis__mutex lock; /* never held while an array is locked, or the driver called */
    uint64_t serials, names, transports;
    uint64_t ending; /* threads that have taken handles off the list which their array still counts */
    ignis__export *exports;
    ignis__import *imports;
} ignis__shares = {IGNIS__MUTEX_INIT, 0, 0, 0, 0, NULL, NULL};

/*  One more handle of an array is out. */
static bool ignis__array_add_export(const char *call, ignis__array *array)
{
    if (!ignis__array_lock(call, array))
        return false;
    array->exports++;
    array->ref_count++;
    ignis__atomic_add(&array->slot.state, 1);
    ignis__array_unlock(array);
    return true;
}

/*  One less. */
static void ignis__array_remove_export(const char *call, ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    array->exports--;
    if (array->ref_count > 0) /* a caller may have given back references that were not theirs */
        ignis__array_unref(array);
    ignis__array_unlock(array);
    ignis__array_drop(call, array);
}

/*  The other side of a channel that is still open here has closed it, or died. */
static bool ignis__channel_gone(ignis_channel handle)
{
    ignis__channel *channel = (ignis__channel *)ignis__pool_hold(&ignis__channels, handle.id);
    bool gone = channel && !channel->connection->kind->alive(channel->connection);
    if (channel)
        ignis__channel_drop(channel);
    return gone;
}

static void ignis__export_free(ignis__export *entry)
{
    ignis__fd_close(&entry->watch);
    ignis__free(entry->path);
    ignis__free(entry);
}

/*  Whether a handle ends: those that nobody has any more, or all but copies that are on their way, which
    arrive without us. It sets *dying where that is only a matter of a process that is being ended. */
static bool ignis__export_ends(const ignis__export *entry, bool unused, bool *dying)
{
    bool taken = entry->path && !ignis__name_there(entry->path), ending;
    if (!unused && (entry->array || !entry->channel.id))
        return true;
    if (entry->watch >= 0 ? ignis__lease_ended(entry->watch) : taken) {
        ending = entry->record.kind == IGNIS_TRANSPORT_IPC && entry->peer_pid && ignis__process_ending(entry->peer_pid);
        *dying |= ending;
        return !ending;
    }
    return entry->path && !taken && ignis__channel_gone(entry->channel);
}

/*  Ends handles: of one array, or of all (null), by one transport, or by any (0); all of them, or those that
    nobody uses. Copies that were taken end as well. True: one of them ends as soon as a process has, which is
    being ended. */
static bool ignis__exports_end(const char *call, const ignis__array *array, uint64_t transport, bool unused)
{
    ignis__export **at, *entry, *ended = NULL;
    bool dying = false;
    ignis__mutex_lock(&ignis__shares.lock);
    for (at = &ignis__shares.exports; (entry = *at) != NULL;) {
        bool concerned = entry->array
                             ? (!array || entry->array == array) && (!transport || entry->transport == transport)
                             : unused || (!array && entry->transport == transport);
        if (concerned && ignis__export_ends(entry, unused, &dying)) {
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

/*  Afterwards the array counts what is out; another thread may be ending its handles at this moment. A
    process that gave an array back and then returned from main is still being ended when the exporter hears
    of the first: waited for, since the system takes a moment for it. */
static void ignis__exports_reap_array(const char *call, ignis__array *array, bool wait)
{
    int64_t until_ns = ignis__monotonic_ns() + (wait ? 5000000000 : 0);
    int tries;
    while (ignis__exports_end(call, array, 0, true) && ignis__monotonic_ns() < until_ns)
        ignis__sleep_us(500);
    for (tries = 0; tries < 1000 && ignis__atomic_load(&ignis__shares.ending) != 0; tries++)
        ignis__sleep_us(50);
}

/*  For the message of an array that cannot be freed: how many handles are out, by which transport. The array
    is locked. */
IGNIS__COLD static void ignis__exports_describe(ignis__string_writer *text, const ignis__array *array)
{
    const ignis__export *entry, *other;
    ignis__mutex_lock(&ignis__shares.lock);
    for (entry = ignis__shares.exports; entry; entry = entry->next) {
        int count = 1;
        for (other = ignis__shares.exports; other->turn != entry->turn; other = other->next)
            ;
        if (entry->array != array || other != entry) /* the first of a transport stands for all */
            continue;
        while ((other = other->next) != NULL)
            count += other->turn == entry->turn;
        ignis__string_add(text, "%s%d by %s", text->length ? ", " : "", count, entry->description);
    }
    ignis__mutex_unlock(&ignis__shares.lock);
    ignis__string_add(text, "; close what was imported, or call ignis_transport_release_handle");
}
