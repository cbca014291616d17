/*  >>comm.window - windows: memory of each rank that copy engines of the others read

    A window has equal sizes on all ranks, which map each other's part. Gathering copies the others' slices without a
    kernel, so it takes no multiprocessor from computations. Nothing is synchronized: the caller orders copies after
    writes and writes after copies, by barriers.
    Uses: regions, votes, vmm blocks, storages.
    Invariants: a part lives until the last rank that maps it has freed its window; graphs hold windows by the storage.
    Locks: the regions' lock around what threads of one process offer each other. */

#include "room.h"

#ifndef IGNIS_NO_TENSORS

static void ignis__window_part_drop(const char *call, ignis__window_part *part)
{
    if (!part || ignis__atomic_add(&part->users, (uint64_t)-1) != 0)
        return;
    if (part->block.memory)
        ignis__vmm_block_destroy(call, &part->block);
    ignis__free(part);
}

static ignis__window_part *ignis__window_part_new(const char *call)
{
    ignis__window_part *part = (ignis__window_part *)ignis__alloc_for(call, sizeof *part);
    if (part)
        part->users = 1;
    return part;
}

static void ignis__window_free(const char *call, ignis__window *window)
{
    int i;
    if (!window)
        return;
    if (window->counted.device)
        ignis__memory_count_out(&window->counted);
    for (i = 0; i < IGNIS_COMM_MAX_RANKS; i++)
        ignis__window_part_drop(call, window->part[i]);
    ignis__free(window);
}

static void ignis__window_release(void *ptr, void *data)
{
    (void)ptr;
    ignis__window_free("ignis_array_free", (ignis__window *)data);
}

/*  Tells if the ranks of a communicator read each other's device memory. All ranks find the same. */
static bool ignis__comm_has_windows(const ignis__comm *comm)
{
    const ignis__comm_regions *regions = comm->memory->regions;
    return comm->size > 1 && !ignis__global.dry_run && regions->address[0] && regions->block[comm->rank].memory;
}

/* --- ranks that are threads of one process --- */

/*  Waits until all ranks have offered their part, and holds the parts. A rank without a window has failed: it tells
    the others, and does not wait. */
static bool ignis__window_exchange(const char *call, ignis__comm *comm, ignis__window *window)
{
    ignis__comm_regions *regions = comm->memory->regions;
    const uint64_t serial = ++comm->windows;
    const int64_t deadline = ignis__monotonic_ns() + comm->options.timeout_ns;
    ignis__window_offer *offers = regions->offers[serial % 2];
    int i, missing = 0, failed = -1;
    ignis__mutex_lock(&regions->lock);
    offers[comm->rank].part = window ? window->part[comm->rank] : NULL;
    offers[comm->rank].serial = serial;
    while (window) {
        for (i = 0; i < comm->size && offers[i].serial == serial; i++)
            ;
        missing = i;
        if (missing == comm->size || ignis__monotonic_ns() >= deadline)
            break;
        ignis__mutex_unlock(&regions->lock);
        if (!ignis__comm_check_works(call, comm))
            return false;
        ignis__sleep_us(50);
        ignis__mutex_lock(&regions->lock);
    }
    for (i = 0; missing == comm->size && i < comm->size; i++) {
        failed = offers[i].part || failed >= 0 ? failed : i;
        if (window->part[i] || !offers[i].part)
            continue;
        window->part[i] = offers[i].part;
        ignis__atomic_add(&offers[i].part->users, 1);
    }
    ignis__mutex_unlock(&regions->lock);
    if (!window)
        return true;
    if (missing < comm->size)
        return ignis__fail_false(IGNIS_DIAG_COMM_TIMEOUT, call, "rank %d did not share its memory within %.3g s",
                                 missing, (double)comm->options.timeout_ns * 1e-9);
    return failed < 0 || ignis__fail_false(IGNIS_DIAG_COMM_PEER, call, "rank %d could not share its memory", failed);
}

static bool ignis__window_share_in_process(const char *call, ignis__comm *comm, int64_t bytes, ignis__window *window)
{
    ignis__comm_regions *regions = comm->memory->regions;
    int devices[IGNIS_COMM_MAX_RANKS], i;
    bool made;
    for (i = 0; i < comm->size; i++)
        devices[i] = ignis__device_ordinal(regions->block[i].device);
    made =
        window && (window->part[comm->rank] || ((window->part[comm->rank] = ignis__window_part_new(call)) != NULL &&
                                                ignis__vmm_block_create(call, comm->device, bytes, devices, comm->size,
                                                                        false, &window->part[comm->rank]->block)));
    if (!made) {
        (void)ignis__window_exchange(call, comm, NULL);
        return false;
    }
    /* the second time after all ranks hold all parts: each may free its own from then on */
    if (ignis__window_exchange(call, comm, window) && ignis__window_exchange(call, comm, window))
        return true;
    ignis__mutex_lock(&regions->lock); /* ranks that come late find no part, which is about to be freed */
    regions->offers[0][comm->rank].part = regions->offers[1][comm->rank].part = NULL;
    ignis__mutex_unlock(&regions->lock);
    return false;
}

/* --- ranks that are processes --- */

/*  Exports this rank's part, which is made if the window has none. */
static bool ignis__window_create_part(ignis__comm_setup *setup, int64_t bytes, ignis__window *window, int *fd)
{
    ignis__comm *comm = setup->comm;
    ignis__window_part *part = window ? window->part[comm->rank] : NULL;
    ignis_vmm_handle handle;
    if (window && !part) {
        window->part[comm->rank] = part = ignis__window_part_new(setup->call);
        if (part && !ignis__vmm_block_create(setup->call, comm->device, bytes, NULL, 0, true, &part->block))
            return false;
    }
    if (!part || !ignis__physical_export(setup->call, part->block.memory, &handle))
        return false;
    setup->mine.bytes = part->block.size;
    *fd = ignis__vmm_handle_fd(&handle);
    return true;
}

static bool ignis__window_map_parts(ignis__comm_setup *setup, const int *fds, ignis__window *window)
{
    ignis__comm *comm = setup->comm;
    const int64_t size = window->part[comm->rank]->block.size;
    ignis_vmm_handle handle;
    int i;
    memset(&handle, 0, sizeof handle);
    for (i = 0; i < comm->size; i++) {
        if (i == comm->rank)
            continue;
        if (fds[i] < 0 || setup->all[i].bytes != size)
            return ignis__fail_false(IGNIS_DIAG_COMM_PEER, setup->call, "rank %d shares %lld bytes%s, this rank %lld",
                                     i, (long long)setup->all[i].bytes, fds[i] < 0 ? " without a descriptor" : "",
                                     (long long)size);
        window->part[i] = ignis__window_part_new(setup->call);
        ignis__vmm_handle_set_fd(&handle, fds[i]);
        if (!window->part[i] ||
            !ignis__vmm_block_import(setup->call, comm->device, &handle, size, &window->part[i]->block))
            return false;
    }
    return true;
}

static bool ignis__window_share_by_job(const char *call, ignis__comm *comm, int64_t bytes, ignis__window *window)
{
    int fds[IGNIS_COMM_MAX_RANKS], mine = -1, i;
    ignis__comm_setup setup;
    bool ok;
    if (!ignis__comm_setup_begin(call, comm, &setup))
        return false;
    for (i = 0; i < IGNIS_COMM_MAX_RANKS; i++)
        fds[i] = -1;
    ignis__agreement_begin(&setup.agreement, comm, IGNIS__AGREEMENT_WINDOW, (uint64_t)bytes);
    ignis__step_begin(&setup);
    (void)ignis__window_create_part(&setup, bytes, window, &mine);
    ok = ignis__step_end(&setup, mine, fds);
    ignis__fd_close(&mine);
    if (ok) {
        ignis__step_begin(&setup);
        (void)ignis__window_map_parts(&setup, fds, window);
        for (i = 0; i < comm->size; i++)
            ignis__fd_close(&fds[i]);
        ok = ignis__step_end(&setup, -1, NULL);
    }
    ignis__agreement_end(&setup.agreement, comm);
    if (!ok)
        ignis__comm_setup_report(&setup);
    ignis__free(setup.all);
    return ok;
}

/* --- arrays in windows --- */

/*  Makes an array of bytes, zeroed, on all ranks of a communicator, each of which then reads the others'; by all
    alike. If they cannot read each other's memory it is an ordinary array. Claimed. NULL, and reported, on failure. */
IGNIS__PRIVATE ignis__array *ignis__window_make(const char *call, ignis_comm handle, int64_t bytes, const char *tag)
{
    ignis__comm *comm = ignis__comm_hold(call, handle);
    ignis__window *window = NULL;
    ignis_array array = IGNIS__ZERO;
    ignis_array_desc desc;
    ignis__origin origin;
    if (!comm)
        return NULL;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(bytes);
    desc.dtype = IGNIS_U8;
    desc.device = ignis__device_in_desc(comm->device);
    desc.tag = tag;
    if (!ignis__comm_has_windows(comm)) {
        array = ignis__array_create(call, &desc);
    } else {
        window = (ignis__window *)ignis__alloc_for(call, sizeof *window);
        if (comm->job ? ignis__window_share_by_job(call, comm, bytes, window)
                      : ignis__window_share_in_process(call, comm, bytes, window)) {
            array = ignis__vmm_wrap(call, comm->device, window->part[comm->rank]->block.address, &desc,
                                    ignis__window_release, window);
        }
        if (array.id) {
            ignis__origin_current(&origin, call);
            snprintf(origin.tag, sizeof origin.tag, "%s", tag);
            ignis__memory_count_in(comm->device, &window->counted, &origin, bytes);
        } else {
            ignis__window_free(call, window);
        }
    }
    if (array.id && ignis__array_set_zero(call, array) != IGNIS_OK)
        ignis__array_discard(call, &array);
    ignis__comm_drop(call, comm);
    return ignis__array_adopt(call, array);
}

/*  Tells if an array is in a window. */
IGNIS__PRIVATE bool ignis__window_has(const ignis__array *array)
{
    return array->storage->release_fn == ignis__window_release;
}

/*  Shares the memory of an array of ignis__window_make again, with the ranks of another communicator, of which this one
    has the same rank; by all alike, those that make their window included. Its content, address and views stay.
    Copies of the other ranks' parts must have ended. */
IGNIS__PRIVATE bool ignis__window_renew(const char *call, ignis_comm handle, const ignis__array *array)
{
    ignis__window *window = (ignis__window *)array->storage->release_data, *renewed = NULL;
    const bool had = ignis__window_has(array);
    ignis__comm *comm = ignis__comm_hold(call, handle);
    bool ok;
    int i;
    if (!comm)
        return false;
    ok = ignis__comm_has_windows(comm) == had ||
         ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                           "the ranks %s each other's memory; expected ranks that %s, as those before",
                           had ? "do not reach" : "reach", had ? "do" : "do not");
    if (ok && had) {
        renewed = (ignis__window *)ignis__alloc_for(call, sizeof *renewed);
        if (renewed) {
            renewed->part[comm->rank] = window->part[comm->rank];
            ignis__atomic_add(&window->part[comm->rank]->users, 1);
        }
        ok = comm->job ? ignis__window_share_by_job(call, comm, array->numel, renewed)
                       : ignis__window_share_in_process(call, comm, array->numel, renewed);
        ok = ok && renewed;
        for (i = 0; ok && i < IGNIS_COMM_MAX_RANKS; i++) {
            ignis__window_part *before = window->part[i];
            window->part[i] = renewed->part[i];
            renewed->part[i] = before;
        }
        ignis__window_free(call, renewed);
    }
    ignis__comm_drop(call, comm);
    return ok;
}

/*  Copies the slices of all ranks, at the place of `slice` in their windows, to `whole`: on the current stream, by copy
    engines. Each rank begins with another one. */
IGNIS__PRIVATE bool ignis__window_gather(const char *call, ignis_comm handle, ignis__array *slice, ignis__array *whole)
{
    ignis__comm *comm = ignis__comm_hold(call, handle);
    const ignis__window *window = (const ignis__window *)slice->storage->release_data;
    const int64_t bytes = ignis__array_bytes(slice);
    ignis__address from, to = 0;
    ignis__work work;
    bool ok;
    int i;
    if (!comm)
        return false;
    ok = ignis__comm_check_works(call, comm) && ignis__work_begin(call, comm->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, slice, &from) && ignis__work_write(&work, whole, &to);
        for (i = 1; ok && i <= comm->size; i++) {
            const int rank = (comm->rank + i) % comm->size;
            ok = ignis__copy_on_device(&work, to + (ignis__address)(rank * bytes),
                                       window->part[rank]->block.address + (ignis__address)slice->offset, bytes);
        }
        ignis__work_end(&work);
    }
    ignis__comm_drop(call, comm);
    return ok;
}
#endif /* IGNIS_NO_TENSORS */
