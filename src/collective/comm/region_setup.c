/*  >>comm.region_setup - setting up regions: create, exchange, map, test

    Shares a region of each rank with all others, and tests every pair.
    Uses: votes, vmm blocks, shared host memory.
    Invariants: kernels use regions only after each pair of ranks has passed a write and a read.
    Locks: none; other threads do not have the communicator yet. */

#include "room.h"

/*  Maps a region of host memory, and pins it for the device. */
static bool ignis__region_map_staged(const char *call, ignis__comm_regions *regions, int i, int fd)
{
    regions->host[i] = ignis__shared_map(fd, (size_t)regions->bytes);
    if (!regions->host[i])
        return ignis__fail_false(errno == EINVAL ? IGNIS_DIAG_TRANSPORT_RECORD : IGNIS_DIAG_CHANNEL_IO, call,
                                 "cannot map the region of rank %d, %lld bytes of shared host memory: %s", i,
                                 (long long)regions->bytes, strerror(errno));
    if (IGNIS__CUDA_FAILED(call, regions->device, cuMemHostRegister_v2,
                           (regions->host[i], (size_t)regions->bytes,
                            (unsigned)IGNIS__CU_HOST_REGISTER_PORTABLE | (unsigned)IGNIS__CU_HOST_REGISTER_MAPPED)))
        return false;
    regions->pinned[i] = true;
    return !IGNIS__CUDA_FAILED(call, regions->device, cuMemHostGetDevicePointer_v2,
                               (&regions->address[i], regions->host[i], 0));
}

/*  Creates this rank's region; fds[0] is its descriptor for the others. */
static bool ignis__region_create(ignis__comm_setup *setup, bool staged, int *fds)
{
    ignis__comm *comm = setup->comm;
    ignis__comm_regions *regions = comm->memory->regions;
    ignis__vmm_block *mine = &regions->block[comm->rank];
    ignis_vmm_handle handle;
    setup->mine.bytes = regions->bytes = ignis__comm_region_bytes(comm->size);
    if (staged) {
        fds[0] = ignis__shared_make((size_t)regions->bytes);
        if (fds[0] >= 0)
            return ignis__region_map_staged(setup->call, regions, comm->rank, fds[0]);
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, setup->call, "cannot share %lld bytes of host memory: %s",
                                 (long long)regions->bytes, strerror(errno));
    }
    if (!ignis__vmm_block_create(setup->call, comm->device, regions->bytes, NULL, 0, true, mine))
        return false;
    setup->mine.bytes = regions->bytes = mine->size;
    regions->address[comm->rank] = mine->address;
    if (!ignis__physical_export(setup->call, mine->memory, &handle))
        return false;
    fds[0] = ignis__vmm_handle_fd(&handle);
    return true;
}

/*  Maps the regions of the other ranks. */
static bool ignis__regions_map(ignis__comm_setup *setup, bool staged, int *fds)
{
    ignis__comm *comm = setup->comm;
    ignis__comm_regions *regions = comm->memory->regions;
    ignis_vmm_handle handle;
    int i;
    memset(&handle, 0, sizeof handle);
    for (i = 0; i < comm->size; i++) {
        ignis__vmm_handle_set_fd(&handle, fds[i]);
        if (i == comm->rank)
            continue;
        if (fds[i] < 0 || setup->all[i].bytes != regions->bytes)
            return ignis__fail_false(
                IGNIS_DIAG_COMM_PEER, setup->call, "rank %d has a region of %lld bytes%s, this rank one of %lld", i,
                (long long)setup->all[i].bytes, fds[i] < 0 ? " without a descriptor" : "", (long long)regions->bytes);
        if (staged ? !ignis__region_map_staged(setup->call, regions, i, fds[i])
                   : !ignis__vmm_block_import(setup->call, comm->device, &handle, regions->bytes, &regions->block[i]))
            return false;
        if (!staged)
            regions->address[i] = regions->block[i].address;
    }
    return true;
}

/*  Waits for a stream until the deadline. Its work is done afterwards, unless *late. */
static bool ignis__stream_wait(const char *call, ignis__device *device, void *stream, int64_t deadline, bool *late)
{
    int error;
    while ((error = IGNIS__CUDA(cuStreamQuery, (stream))) == IGNIS__CU_NOT_READY) {
        if (ignis__monotonic_ns() >= deadline) {
            ignis__fail(IGNIS_DIAG_COMM_TIMEOUT, call,
                        "a copy to or from another rank's memory did not end before the deadline");
            *late = true;
            return false;
        }
        ignis__sleep_us(20);
    }
    if (error == 0)
        return !IGNIS__CUDA_FAILED(call, device, cuStreamSynchronize, (stream));
    (void)IGNIS__CUDA(cuStreamSynchronize, (stream));
    return ignis__cuda_check(call, device, "cuStreamQuery", error) == IGNIS_OK;
}

/*  Fills the bytes that rank `from` writes into the region of rank `to`. */
static void ignis__probe_fill(const ignis__comm *comm, int from, int to, unsigned char *out)
{
    uint64_t hash = ignis__hash(comm->watch.key, &from, sizeof from);
    int i;
    hash = ignis__hash(hash, &to, sizeof to);
    for (i = 0; i < IGNIS__PROBE_BYTES; i++)
        out[i] = (unsigned char)(hash >> i % 8 * 8) ^ (unsigned char)i;
}

/*  Copies between host memory and the first bytes of the regions, on a separate stream: rank i has data + i *
    piece, at + offset. */
static bool ignis__probe_copy(ignis__comm_setup *setup, unsigned char *data, size_t piece, size_t offset, bool write)
{
    ignis__comm *comm = setup->comm;
    const ignis__address *address = comm->memory->regions->address;
    void *stream = NULL;
    bool ok;
    int i;
    ok = !IGNIS__CUDA_FAILED(setup->call, comm->device, cuStreamCreate, (&stream, IGNIS__CU_STREAM_NON_BLOCKING));
    for (i = 0; ok && i < comm->size; i++)
        ok = write ? !IGNIS__CUDA_FAILED(setup->call, comm->device, cuMemcpyHtoDAsync_v2,
                                         (address[i] + offset, data + (size_t)i * piece, piece, stream))
                   : !IGNIS__CUDA_FAILED(setup->call, comm->device, cuMemcpyDtoHAsync_v2,
                                         (data + (size_t)i * piece, address[i] + offset, piece, stream));
    if (ok)
        ok = ignis__stream_wait(setup->call, comm->device, stream, setup->agreement.deadline,
                                &comm->memory->regions->late);
    else if (stream) /* copies before the failed one use memory that is freed now */
        (void)IGNIS__CUDA(cuStreamSynchronize, (stream));
    if (stream)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (stream));
    return ok;
}

/*  Writes into every region. */
static bool ignis__probe_write(ignis__comm_setup *setup, bool staged, int *fds)
{
    ignis__comm *comm = setup->comm;
    unsigned char data[IGNIS_COMM_MAX_RANKS * IGNIS__PROBE_BYTES];
    int i;
    (void)staged, (void)fds;
    for (i = 0; i < comm->size; i++)
        ignis__probe_fill(comm, comm->rank, i, data + i * IGNIS__PROBE_BYTES);
    return ignis__probe_copy(setup, data, IGNIS__PROBE_BYTES, (size_t)comm->rank * IGNIS__PROBE_BYTES, true);
}

/*  Reads what all ranks wrote into every region. */
static bool ignis__probe_read(ignis__comm_setup *setup, bool staged, int *fds)
{
    ignis__comm *comm = setup->comm;
    unsigned char data[IGNIS_COMM_MAX_RANKS * IGNIS_COMM_MAX_RANKS * IGNIS__PROBE_BYTES], expected[IGNIS__PROBE_BYTES];
    size_t piece = (size_t)comm->size * IGNIS__PROBE_BYTES;
    int from, to;
    (void)staged, (void)fds;
    memset(data, 0, sizeof data);
    if (!ignis__probe_copy(setup, data, piece, 0, false))
        return false;
    for (to = 0; to < comm->size; to++)
        for (from = 0; from < comm->size; from++) {
            ignis__probe_fill(comm, from, to, expected);
            if (memcmp(data + (size_t)to * piece + (size_t)from * IGNIS__PROBE_BYTES, expected, IGNIS__PROBE_BYTES) ==
                0)
                continue;
            return ignis__fail_false(IGNIS_DIAG_TRANSPORT_UNAVAILABLE, setup->call,
                                     "the bytes of rank %d in the region of rank %d differ when rank %d reads them",
                                     from, to, comm->rank);
        }
    return true;
}

/*  Sets up regions of device or host memory, and tests them by a write and a read between each two ranks. */
IGNIS__PRIVATE bool ignis__regions_setup(ignis__comm_setup *setup, bool staged)
{
    static bool (*const steps[])(ignis__comm_setup * setup, bool staged, int *fds) = {
        ignis__region_create, ignis__regions_map, ignis__probe_write, ignis__probe_read};
    ignis__comm *comm = setup->comm;
    int fds[IGNIS_COMM_MAX_RANKS], mine, i, step;
    ignis__binding binding;
    bool ok = true;
    for (i = 0; i < comm->size; i++)
        fds[i] = -1;
    for (step = 0; ok && step < IGNIS__COUNT(steps); step++) {
        ignis__step_begin(setup);
        if (ignis__device_enter(setup->call, comm->device, &binding)) {
            (void)steps[step](setup, staged, fds);
            ignis__device_leave(&binding);
        }
        mine = step == 0 ? fds[0] : -1; /* sent to the others; theirs come back */
        for (i = 0; step > 0 && i < comm->size; i++)
            ignis__fd_close(&fds[i]);
        ok = ignis__step_end(setup, mine, step == 0 ? fds : NULL);
        ignis__fd_close(&mine);
    }
    if (!ok)
        ignis__comm_regions_clear(setup->call, comm->memory->regions);
    return ok;
}
