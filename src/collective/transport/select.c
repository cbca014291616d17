/*  >>transport.select - kinds of transports: the table, which is available, which is best

    Tells what connects two devices, and why not.
    Uses: the memory functions, vmm.
    Invariants: VMM counts as available after a test write and read, since drivers claim more than they can.
    Locks: none. */

#include "room.h"

static bool ignis__attribute(ignis__device *device, int attribute)
{
    int value = 0;
    return IGNIS__CUDA(cuDeviceGetAttribute, (&value, attribute, device->handle)) == 0 && value != 0;
}

static bool ignis__peer_available(ignis__device *src, ignis__device *dst, ignis__string_writer *why)
{
    int reaches = src == dst;
    if (reaches || (IGNIS__CUDA(cuDeviceCanAccessPeer, (&reaches, dst->handle, src->handle)) == 0 && reaches != 0))
        return true;
    ignis__string_add(why, "device %d cannot reach device %d's memory", ignis__device_ordinal(dst),
                      ignis__device_ordinal(src));
    return false;
}

/*  Writes into exported memory of src, imported for dst, and reads it back: drivers claim more than they
    can. */
static bool ignis__vmm_probe_words(const char *call, const ignis__vmm_block *there, const ignis__vmm_block *here)
{
    static const uint32_t sent[4] = {0x1615D0F5u, 0x00C0FFEEu, 0xA5A5A5A5u, 0x01234567u};
    uint32_t got[4] = {0, 0, 0, 0};
    ignis__work work;
    bool ok = ignis__work_begin(call, there->device, &work);
    if (!ok)
        return false;
    ok = ignis__copy_from_host(&work, there->address, sent, (int64_t)sizeof sent) &&
         !IGNIS__CUDA_FAILED(call, work.device, cuStreamSynchronize, (work.stream));
    ignis__work_end(&work);
    if (!ok || !ignis__work_begin(call, here->device, &work))
        return false;
    ok = ignis__copy_to_host(&work, got, here->address, (int64_t)sizeof got);
    ignis__work_end(&work);
    if (ok && memcmp(sent, got, sizeof sent) != 0)
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call,
                                 "device %d does not see what device %d has written",
                                 ignis__device_ordinal(there->device), ignis__device_ordinal(here->device));
    return ok;
}

IGNIS__COLD static bool ignis__vmm_probe(const char *call, ignis__device *src, ignis__device *dst)
{
    ignis__vmm_block made, seen;
    ignis_vmm_handle handle;
    bool ok;
    if (!ignis__vmm_block_create(call, src, 1, NULL, 0, true, &made))
        return false;
    ok = ignis__physical_export(call, made.memory, &handle);
    if (ok) {
        ok = ignis__vmm_block_import(call, dst, &handle, made.size, &seen);
        ignis__vmm_handle_close(&handle);
        if (ok) {
            ok = ignis__vmm_probe_words(call, &made, &seen) && ignis__vmm_probe_words(call, &seen, &made);
            if (!ok) /* a copy may be running */
                (void)ignis__devices_wait(call, (uint64_t)1 << (src - ignis__devices) | (uint64_t)1
                                                                                            << (dst - ignis__devices));
            ignis__vmm_block_destroy(call, &seen);
        }
    }
    ignis__vmm_block_destroy(call, &made);
    return ok;
}

/* the setup in which a pair was tested */
static uint64_t ignis__vmm_pair_tested[IGNIS_MAX_DEVICES][IGNIS_MAX_DEVICES];

static bool ignis__vmm_available(ignis__device *src, ignis__device *dst, ignis__string_writer *why)
{
    static const char call[] = "ignis_transport_available";
    uint64_t *is_authenticated = &ignis__vmm_pair_tested[src - ignis__devices][dst - ignis__devices];
    ignis__record before = ignis__this_thread.record;
    bool ok;
    if (ignis__atomic_load(is_authenticated) == ignis__global.setups)
        return true;
    if (!ignis__attribute(src, IGNIS__CU_ATTRIBUTE_VMM) || !ignis__attribute(dst, IGNIS__CU_ATTRIBUTE_VMM) ||
        !ignis__attribute(src, IGNIS__CU_ATTRIBUTE_VMM_SYSTEM)) {
        ignis__string_add(why, "device %d or %d cannot create memory that other processes can map",
                          ignis__device_ordinal(src), ignis__device_ordinal(dst));
        return false;
    }
    if (!ignis__peer_available(src, dst, why))
        return false;
    /* a failed probe is an answer, not a failure of the thread */
    memset(&ignis__this_thread.record, 0, sizeof before);
    ok = !ignis__capture_refuses(call) && ignis__vmm_probe(call, src, dst);
    if (ok)
        ignis__atomic_store(is_authenticated, ignis__global.setups);
    else
        ignis__string_add(why, "a test write and read failed: %s", ignis_status_message());
    ignis__record_drop(&ignis__this_thread);
    ignis__this_thread.record = before;
    return ok;
}

static bool ignis__host_available(ignis__device *src, ignis__device *dst, ignis__string_writer *why)
{
    (void)src, (void)dst, (void)why;
    return true;
}

static bool ignis__peer_start(const char *call, ignis__device *src, ignis__device *dst)
{
    return ignis__peer_enable(call, dst, src) && ignis__peer_enable(call, src, dst);
}

IGNIS__PRIVATE const ignis__transport_ops ignis__transport_kinds[IGNIS_TRANSPORT_KIND_COUNT] = {
    /*               zero_copy across copies descriptor named */
    {"", "", false, false, false, false, false, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL},
    {"VMM", "vmm", true, true, false, true, false, 300, 5, ignis__vmm_available, NULL, ignis__vmm_export_memory,
     ignis__vmm_import_memory, ignis__vmm_unmap_memory, ignis__vmm_grant_access},
    {"peer", "peer", true, false, true, false, true, 300, 10, ignis__peer_available, ignis__peer_start,
     ignis__peer_export_memory, NULL, NULL, ignis__peer_grant_access},
    {"IPC", "ipc", true, true, false, false, true, 25, 10, ignis__peer_available, NULL, ignis__ipc_export_memory,
     ignis__ipc_import_memory, ignis__ipc_unmap_memory, ignis__peer_grant_access},
    {"host", "host", false, true, true, true, true, 10, 50, ignis__host_available, NULL, ignis__host_export_memory,
     NULL, NULL, NULL},
};

IGNIS__PRIVATE bool ignis__transport_kind_valid(const char *call, ignis_transport_kind kind)
{
    if (kind > IGNIS_TRANSPORT_AUTO && kind < IGNIS_TRANSPORT_KIND_COUNT)
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "kind is %d; expected IGNIS_TRANSPORT_VMM to _HOST, %d to %d",
                             (int)kind, (int)IGNIS_TRANSPORT_VMM, (int)IGNIS_TRANSPORT_HOST);
}

/*  Opens both devices. */
IGNIS__PRIVATE bool ignis__transport_devices(const char *call, int src, int dst, ignis__device **devices)
{
    devices[0] = ignis__device_get(call, src);
    devices[1] = devices[0] ? ignis__device_get(call, dst) : NULL;
    return devices[1] && ignis__vmm_open_device(call, src) && ignis__vmm_open_device(call, dst);
}

IGNIS_API bool ignis_transport_available(ignis_transport_kind kind, int src, int dst, char *reason, size_t capacity)
{
    static const char call[] = "ignis_transport_available";
    ignis__device *devices[2];
    ignis__string_writer why;
    char none[1];
    ignis__string_begin(&why, reason ? reason : none, reason ? capacity : sizeof none);
    return ignis__collective_enter(call) && ignis__transport_kind_valid(call, kind) &&
           ignis__transport_devices(call, src, dst, devices) &&
           ignis__transport_kinds[kind].available(devices[0], devices[1], &why);
}

/*  Reads the kind that the environment names; AUTO if it names none. */
static bool ignis__transport_read_environment(const char *call, ignis_transport_kind *kind)
{
    const char *word = ignis__env("IGNIS_TRANSPORT");
    int i;
    *kind = IGNIS_TRANSPORT_AUTO;
    if (!word || !*word)
        return true;
    for (i = 1; i < IGNIS_TRANSPORT_KIND_COUNT; i++)
        if (strcmp(word, ignis__transport_kinds[i].word) == 0)
            *kind = (ignis_transport_kind)i;
    if (*kind != IGNIS_TRANSPORT_AUTO)
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "IGNIS_TRANSPORT is \"%.40s\"; expected vmm, peer, ipc or host",
                             word);
}

/*  Chooses the first available kind. descriptors: the channel carries them. */
IGNIS__PRIVATE bool ignis__transport_choose(const char *call, ignis__device *const *devices, bool same_process,
                                            bool descriptors, ignis_transport_choice *choice)
{
    static const ignis_transport_kind order[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_PEER, IGNIS_TRANSPORT_HOST};
    ignis_transport_kind wanted;
    ignis__string_writer text;
    int i;
    memset(choice, 0, sizeof *choice);
    ignis__string_begin(&text, choice->reason, sizeof choice->reason);
    if (!ignis__transport_read_environment(call, &wanted))
        return false;
    for (i = 0; i < (wanted ? 1 : IGNIS__COUNT(order)); i++) {
        ignis_transport_kind kind = wanted ? wanted : order[i];
        const ignis__transport_ops *ops = &ignis__transport_kinds[kind];
        ignis__string_add(&text, "%s%s: ", i ? "; " : wanted ? "named by IGNIS_TRANSPORT: " : "", ops->name);
        if (!same_process && !ops->across) {
            ignis__string_add(&text, "works within one process only");
        } else if (!descriptors && !ops->named) {
            ignis__string_add(&text, "its descriptors need IGNIS_CHANNEL_SOCKET");
        } else if (ops->available(devices[0], devices[1], &text)) {
            ignis__string_add(&text, kind == IGNIS_TRANSPORT_VMM ? "a test write and read succeeded" : "available");
            choice->kind = kind;
            return true;
        }
    }
    return ignis__fail_false(IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call,
                             "no transport connects device %d with device %d: %s", ignis__device_ordinal(devices[0]),
                             ignis__device_ordinal(devices[1]), choice->reason);
}

IGNIS_API ignis_status ignis_transport_select(int src, int dst, bool same_process, ignis_transport_choice *choice)
{
    static const char call[] = "ignis_transport_select";
    ignis__device *devices[2];
    return ignis__collective_enter(call) && ignis__check_not_null(call, "choice", choice) &&
                   ignis__transport_devices(call, src, dst, devices) &&
                   ignis__transport_choose(call, devices, same_process, true, choice)
               ? IGNIS_OK
               : ignis__failed();
}
