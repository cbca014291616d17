/*  >>comm.init_all - communicators of all GPUs of one process

    Init, split and shrink for all ranks in one call.
    Uses: comm.c, region.c.
    Invariants: communicators of a group share their regions, which are freed with the last of them.
    Locks: the regions' lock around the list of the group. */

#include "room.h"

static bool ignis__comm_devices_check(const char *call, const int *devices, int count)
{
    int i, k, can;
    if (count < 1 || count > IGNIS_COMM_MAX_RANKS || count > ignis__device_total)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "count is %d; expected 1 to %d: there are %d devices",
                                 count, IGNIS_COMM_MAX_RANKS, ignis__device_total);
    for (i = 0; i < count; i++) {
        if (!ignis__device_get(call, devices[i]))
            return false;
        for (k = 0; k < i; k++)
            if (devices[k] == devices[i])
                return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                         "device %d is used by rank %d and rank %d; each rank needs its own",
                                         devices[i], k, i);
    }
    for (i = 0; i < count && ignis__cuda.cuDeviceCanAccessPeer; i++)
        for (k = 0; k < count; k++) {
            can = i == k;
            if (!can && IGNIS__CUDA_FAILED(call, NULL, cuDeviceCanAccessPeer, (&can, devices[i], devices[k])))
                return false;
            if (!can)
                return ignis__fail_false(
                    IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call,
                    "device %d cannot reach the memory of device %d; start one process a device with ignis_comm_init",
                    devices[i], devices[k]);
        }
    return true;
}

/*  Creates the communicators of several devices, not published yet, with regions at the same address on all
    devices; none on failure. */
static bool ignis__comm_all_make(const char *call, const int *devices, int count, const ignis__comm_options *options,
                                 ignis__comm **comms)
{
    ignis__comm_regions *regions = ignis__comm_regions_new(call, NULL, count);
    int i, made = 0, most = IGNIS__COMM_BLOCKS;
    bool ok = regions != NULL;
    for (i = 0; ok && count > 1 && i < count; i++) {
        ok = ignis__vmm_block_create(call, &ignis__devices[devices[i]], ignis__comm_region_bytes(count), devices, count,
                                     false, &regions->block[i]);
        regions->address[i] = regions->block[i].address;
    }
    for (i = 0; ok && i < count; i++) {
        ignis__comm *comm = ignis__comm_new(call, &ignis__devices[devices[i]], i, count, options, regions);
        ok = comm != NULL;
        if (!ok)
            break;
        comms[made++] = regions->comms[i] = comm;
        snprintf(comm->reason, sizeof comm->reason, "all devices of one process");
        ok = ignis__comm_start(call, comm);
        if (ok && count > 1 && comm->most_blocks < most)
            most = comm->most_blocks;
    }
    for (i = 0; i < made; i++) {
        comms[i]->most_blocks = most;
        if (!ok)
            ignis__comm_end(call, comms[i]);
    }
    ignis__comm_regions_drop(call, regions);
    return ok;
}

IGNIS_API IGNIS__COLD ignis_status ignis_comm_init_all(ignis_comm *handles, const int *devices, int count,
                                                       const ignis_comm_desc *desc)
{
    static const char call[] = "ignis_comm_init_all";
    ignis__comm *comms[IGNIS_COMM_MAX_RANKS];
    int first[IGNIS_COMM_MAX_RANKS], i;
    ignis__comm_options options;
    ignis_comm_desc defaults;
    memset(&defaults, 0, sizeof defaults);
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "comms", handles))
        return ignis__failed();
    for (i = 0; i < IGNIS_COMM_MAX_RANKS; i++)
        first[i] = i;
    devices = devices ? devices : first;
    if (count > 0 && count <= IGNIS_COMM_MAX_RANKS)
        memset(handles, 0, sizeof *handles * (size_t)count);
    if (ignis__capture_refuses(call) || !ignis__comm_options_read(call, desc ? desc : &defaults, &options) ||
        !ignis__comm_devices_check(call, devices, count) ||
        !ignis__comm_all_make(call, devices, count, &options, comms))
        return ignis__failed();
    for (i = 0; i < count; i++)
        handles[i].id = ignis__pool_publish(&ignis__comms, comms[i]);
    return IGNIS_OK;
}

/*  Communicators of one group in a call, held, at their place in the call; NULL: no handle. */
typedef struct ignis__comm_siblings {
    ignis__comm *comm[IGNIS_COMM_MAX_RANKS];
    ignis__comm *rank[IGNIS_COMM_MAX_RANKS]; /* by rank */
    int place[IGNIS_COMM_MAX_RANKS];         /* of a rank in the call */
    int size;                                /* of the group */
} ignis__comm_siblings;

static void ignis__comm_siblings_drop(const char *call, ignis__comm_siblings *siblings)
{
    int i;
    for (i = 0; i < IGNIS_COMM_MAX_RANKS; i++)
        if (siblings->comm[i])
            ignis__comm_drop(call, siblings->comm[i]);
}

/*  Holds the communicators of a call: all ranks of a group; with some_missing, those whose handle is not
    0. */
static bool ignis__comm_siblings_hold(const char *call, const ignis_comm *comms, int count, bool some_missing,
                                      ignis_comm *out, ignis__comm_siblings *siblings)
{
    ignis__comm *comm, *first = NULL;
    int i;
    bool ok = false;
    memset(siblings, 0, sizeof *siblings);
    if (!ignis__collective_enter(call) || ignis__capture_refuses(call) ||
        !ignis__check_not_null(call, "comms", comms) || !ignis__check_not_null(call, "out", out))
        return false;
    if (count < 1 || count > IGNIS_COMM_MAX_RANKS)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "count is %d; expected 1 to %d", count,
                                 IGNIS_COMM_MAX_RANKS);
    if (out == comms)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "out equals comms, whose handles are still needed; expected another array");
    memset(out, 0, sizeof *out * (size_t)count);
    for (i = 0; i < count; i++) {
        if (some_missing && !comms[i].id)
            continue;
        comm = siblings->comm[i] = ignis__comm_hold(call, comms[i]);
        if (!comm)
            break;
        first = first ? first : comm;
        siblings->size = first->size;
        if (comm->job) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                        "comms[%d] is of ignis_comm_init; each of its ranks calls %.*s for itself", i,
                        (int)strlen(call) - 4, call);
            break;
        }
        if (comm->memory->regions != first->memory->regions || siblings->rank[comm->rank]) {
            ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                        "comms[%d] is rank %d of %s; each has to be another rank of one group", i, comm->rank,
                        comm->memory->regions == first->memory->regions ? "them a second time" : "another group");
            break;
        }
        siblings->rank[comm->rank] = comm;
        siblings->place[comm->rank] = i;
    }
    if (i == count && !first)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "all %d communicators are missing; expected one at least", count);
    else if (i == count && !some_missing && count != first->size)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d; expected all %d ranks of the group", count, first->size);
    else
        ok = i == count;
    if (!ok)
        ignis__comm_siblings_drop(call, siblings);
    return ok;
}

/*  Lists the ranks of one color by their keys in `place`. Returns their number. */
IGNIS__PRIVATE int ignis__split_order(const ignis__split *all, int size, int color, int *place)
{
    int i, k, count = 0;
    for (i = 0; i < size; i++) {
        if (all[i].color != color)
            continue;
        for (k = count++; k > 0 && all[place[k - 1]].key > all[i].key; k--)
            place[k] = place[k - 1];
        place[k] = i;
    }
    return count;
}

IGNIS_API IGNIS__COLD ignis_status ignis_comm_split_all(const ignis_comm *comms, const int *colors, const int *keys,
                                                        int count, ignis_comm *out)
{
    static const char call[] = "ignis_comm_split_all";
    ignis__comm *made[IGNIS_COMM_MAX_RANKS] = {NULL}, *part[IGNIS_COMM_MAX_RANKS]; /* made: by rank */
    int devices[IGNIS_COMM_MAX_RANKS], order[IGNIS_COMM_MAX_RANKS], i, k, members;
    ignis__split all[IGNIS_COMM_MAX_RANKS];
    ignis__comm_siblings siblings;
    bool ok;
    if (!ignis__comm_siblings_hold(call, comms, count, false, out, &siblings))
        return ignis__failed();
    ok = ignis__check_not_null(call, "colors", colors);
    for (i = 0; i < count && ok; i++) {
        all[i].color = colors[siblings.place[i]];
        all[i].key = keys ? keys[siblings.place[i]] : 0;
    }
    for (i = 0; i < count && ok; i++) {
        if (all[i].color < 0 || made[i])
            continue;
        members = ignis__split_order(all, count, all[i].color, order);
        for (k = 0; k < members; k++)
            devices[k] = ignis__device_ordinal(siblings.rank[order[k]]->device);
        ok = ignis__comm_all_make(call, devices, members, &siblings.rank[i]->options, part);
        for (k = 0; k < members && ok; k++)
            made[order[k]] = part[k];
    }
    for (i = 0; i < count; i++)
        if (made[i] && ok)
            out[siblings.place[i]].id = ignis__pool_publish(&ignis__comms, made[i]);
        else if (made[i])
            ignis__comm_end(call, made[i]);
    ignis__comm_siblings_drop(call, &siblings);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API IGNIS__COLD ignis_status ignis_comm_shrink_all(const ignis_comm *comms, int count, ignis_comm *out)
{
    static const char call[] = "ignis_comm_shrink_all";
    ignis__comm *made[IGNIS_COMM_MAX_RANKS];
    int devices[IGNIS_COMM_MAX_RANKS] = {0}, order[IGNIS_COMM_MAX_RANKS], members = 0, r, k;
    ignis__comm_siblings siblings;
    const ignis__comm_options *options = NULL;
    bool ok;
    if (!ignis__comm_siblings_hold(call, comms, count, true, out, &siblings))
        return ignis__failed();
    for (r = 0; r < siblings.size; r++) {
        if (!siblings.rank[r])
            continue;
        options = &siblings.rank[r]->options;
        devices[members] = ignis__device_ordinal(siblings.rank[r]->device);
        order[members++] = siblings.place[r];
    }
    ok = ignis__comm_all_make(call, devices, members, options, made);
    for (k = 0; k < members && ok; k++)
        out[order[k]].id = ignis__pool_publish(&ignis__comms, made[k]);
    ignis__comm_siblings_drop(call, &siblings);
    return ok ? IGNIS_OK : ignis__failed();
}
