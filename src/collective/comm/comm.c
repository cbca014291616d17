/*  >>comm - communicators: options, memory, ending, failing

    Creates and ends the objects behind ignis_comm, and breaks a communicator from the host.
    Uses: regions, kernels, jobs, NCCL.
    Invariants: memory that kernels of a captured graph use stays until the graph is gone; a broken
    communicator never works again.
    Locks: the slot's lock, one operation at a time; the regions' lock. */

#include "room.h"

/* Of this part and the next one. */
IGNIS__PRIVATE void ignis__comm_drop(const char *call, ignis__comm *comm);
IGNIS__PRIVATE void ignis__comm_groups_break(ignis__comm *outer);
IGNIS__PRIVATE void ignis__comm_groups_settle(ignis__comm *comm);
IGNIS__PRIVATE void ignis__comm_group_unlist(ignis__comm *group);

/*  Frees the regions, so that others can be made. */
IGNIS__PRIVATE void ignis__comm_regions_clear(const char *call, ignis__comm_regions *regions)
{
    ignis__binding binding;
    int i;
    for (i = 0; i < IGNIS_COMM_MAX_RANKS && !regions->late; i++) { /* rather leak them than fault */
        if (regions->block[i].memory)
            ignis__vmm_block_destroy(call, &regions->block[i]);
        if (regions->pinned[i] && ignis__device_enter_to_give(call, regions->device, &binding)) {
            (void)IGNIS__CUDA_FAILED(call, regions->device, cuMemHostUnregister, (regions->host[i]));
            ignis__device_leave(&binding);
        }
        if (regions->host[i])
            ignis__shared_unmap(regions->host[i], (size_t)regions->bytes);
    }
    memset(regions->block, 0, sizeof regions->block);
    memset(regions->host, 0, sizeof regions->host);
    memset(regions->pinned, 0, sizeof regions->pinned);
    memset(regions->address, 0, sizeof regions->address);
    regions->late = false;
}

IGNIS__PRIVATE ignis__comm_regions *ignis__comm_regions_new(const char *call, ignis__device *device, int count)
{
    ignis__comm_regions *regions = (ignis__comm_regions *)ignis__alloc_for(call, sizeof *regions);
    if (!regions)
        return NULL;
    ignis__mutex_init(&regions->lock);
    regions->users = 1;
    regions->count = count;
    regions->device = device;
    return regions;
}

IGNIS__PRIVATE void ignis__comm_regions_drop(const char *call, ignis__comm_regions *regions)
{
    if (!regions || ignis__atomic_add(&regions->users, (uint64_t)-1) != 0)
        return;
    ignis__comm_regions_clear(call, regions);
    ignis__free(regions);
}

/*  Releases the memory when no kernel can run on it any more. */
static void ignis__comm_memory_release(void *ptr, void *data)
{
    static const char call[] = "ignis_comm_destroy";
    ignis__comm_memory *memory = (ignis__comm_memory *)data;
    ignis__binding binding;
    (void)ptr;
    ignis__nccl_leave(call, memory->nccl);
    if (memory->state && ignis__device_enter_to_give(call, memory->device, &binding)) {
        ignis__memory_recycle(call, memory->device, memory->state);
        ignis__device_leave(&binding);
    }
    if (memory->record_piece)
        (void)ignis__pinned_chunk_recycle(call, memory->device, memory->record_piece);
    ignis__comm_regions_drop(call, memory->regions);
    ignis__free(memory);
}

/*  Destroys a communicator without holds or without a handle, after its work is done. Memory that graphs
    still use stays, and makes their kernels return at once. */
IGNIS__COLD IGNIS__PRIVATE void ignis__comm_end(const char *call, ignis__comm *comm)
{
    ignis__binding binding;
    ignis__comm_memory *memory = comm->memory;
    ignis__comm *outer = comm->outer;
    int i;
    if (memory->state && ignis__device_enter_to_give(call, comm->device, &binding)) {
        (void)ignis__device_wait(call, comm->device); /* ends, since all waits have deadlines */
        if (ignis__atomic_load(&comm->storage->users) > 1) {
            (void)IGNIS__CUDA_FAILED(call, comm->device, cuMemsetD8Async,
                                     (memory->state->address + offsetof(ignis__comm_state, broken), IGNIS__COMM_PEER, 1,
                                      comm->device->stream));
            if (memory->nccl)
                ignis__nccl_abort(memory->nccl);
        }
        ignis__device_leave(&binding);
    }
    if (comm->job) /* from here on the job tells it nothing */
        ignis__job_watch_end(comm->job, &comm->watch);
    if (outer)
        ignis__comm_group_unlist(comm);
    ignis__mutex_lock(&memory->regions->lock);
    for (i = 0; i < memory->regions->count; i++)
        if (memory->regions->comms[i] == comm)
            memory->regions->comms[i] = NULL;
    ignis__mutex_unlock(&memory->regions->lock);
    ignis__storage_drop(call, comm->storage);
    ignis__job_drop(comm->job);
    ignis__pool_recycle(&ignis__comms, comm);
    if (outer)
        ignis__comm_drop(call, outer);
}

/*  Holds the communicator of a handle. NULL, and reported, if the handle is stale. */
IGNIS__PRIVATE ignis__comm *ignis__comm_hold(const char *call, ignis_comm handle)
{
    return (ignis__comm *)ignis__handle_hold(call, &ignis__comms, handle.id);
}

IGNIS__PRIVATE void ignis__comm_drop(const char *call, ignis__comm *comm)
{
    if (ignis__pool_drop(comm))
        ignis__comm_end(call, comm);
}

IGNIS__COLD static void ignis__comms_close(const char *call)
{
    ignis__comm *comm;
    uint64_t index = 0;
    int i;
    while ((comm = (ignis__comm *)ignis__pool_next(&ignis__comms, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "communicator: rank %d of %d on device %d", comm->rank,
                           comm->size, ignis__device_ordinal(comm->device));
        ignis__handle_kill(comm);
        ignis__comm_drop(call, comm);
    }
    for (i = 0; i < ignis__device_total; i++) {
        ignis__device *device = &ignis__devices[i];
        ignis__binding binding;
        bool entered = ignis__comm_programs.first[i] && ignis__device_enter_to_give(call, device, &binding);
        while (ignis__comm_programs.first[i]) {
            ignis__comm_program *program = ignis__comm_programs.first[i];
            ignis__comm_programs.first[i] = program->next;
            if (entered)
                ignis__module_unload(&program->module);
            ignis__free(program);
        }
        if (entered)
            ignis__device_leave(&binding);
    }
}

/*  Reads the limit of silence. False, and reported, if it is invalid. */
static bool ignis__comm_heartbeat_read(const char *call, const ignis_comm_desc *desc, ignis__comm_options *options)
{
    const char *text = ignis__env("IGNIS_COMM_HEARTBEAT");
    char *end = NULL;
    double seconds = desc->heartbeat_s;
    if (desc->heartbeat_s == 0 && text && *text) {
        seconds = strtod(text, &end);
        if (*end || !(seconds >= 0.1 && seconds <= 1e6) || end == text)
            return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call,
                                     "IGNIS_COMM_HEARTBEAT is \"%.64s\"; expected seconds, from 0.1 to 1000000", text);
    }
    if (seconds != 0 && !(seconds >= 0.1 && seconds <= 1e6))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.heartbeat_s is %g; expected 0, or seconds from 0.1 to 1000000", seconds);
    options->heartbeat_ms = (int)(seconds * 1000);
    return true;
}

/*  Reads the options of a description and the environment. False, and reported, if they are invalid. */
IGNIS__PRIVATE bool ignis__comm_options_read(const char *call, const ignis_comm_desc *desc,
                                             ignis__comm_options *options)
{
    static const char *const names[] = {"", "peer", "staged", "nccl"};
    double timeout = desc->timeout_s == 0 ? 30 : desc->timeout_s;
    const char *text = ignis__env("IGNIS_COMM_TRANSPORT");
    int i;
    if (!(timeout > 0 && timeout <= 1e6))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.timeout_s is %g; expected above 0 and up to 1000000", timeout);
    if (desc->most_blocks < 0)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc.most_blocks is %d; expected 0 or more",
                                 desc->most_blocks);
    if ((unsigned)desc->transport >= IGNIS_COMM_TRANSPORT_COUNT)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call,
                                 "desc.transport is %d; expected IGNIS_COMM_PEER, _STAGED or _NCCL",
                                 (int)desc->transport);
    if (!ignis__comm_heartbeat_read(call, desc, options))
        return false;
    options->timeout_ns = (int64_t)(timeout * 1e9);
    options->most_blocks = desc->most_blocks;
    options->transport = desc->transport;
    if (desc->transport || !text || !*text)
        return true;
    for (i = 1; i < IGNIS__COUNT(names); i++)
        if (strcmp(text, names[i]) == 0)
            options->transport = (ignis_comm_transport)i;
    if (options->transport)
        return true;
    return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call,
                             "IGNIS_COMM_TRANSPORT is \"%.64s\"; expected peer, staged or nccl", text);
}

/*  Creates a communicator that other threads do not see before ignis__pool_publish. It shares the regions
    `shared`, or has its own if that is NULL. NULL on failure. */
IGNIS__PRIVATE ignis__comm *ignis__comm_new(const char *call, ignis__device *device, int rank, int size,
                                            const ignis__comm_options *options, ignis__comm_regions *shared)
{
    ignis__comm *comm = (ignis__comm *)ignis__pool_take(call, &ignis__comms);
    ignis__comm_regions *regions = !comm || shared ? shared : ignis__comm_regions_new(call, device, 0);
    ignis__comm_memory *memory = comm && regions ? (ignis__comm_memory *)ignis__alloc_for(call, sizeof *memory) : NULL;
    ignis__storage *storage = memory ? ignis__storage_make(call, device, 0) : NULL;
    if (!comm)
        return NULL;
    if (!storage) {
        if (!shared)
            ignis__comm_regions_drop(call, regions);
        ignis__free(memory);
        ignis__pool_recycle(&ignis__comms, comm);
        return NULL;
    }
    if (shared)
        ignis__atomic_add(&shared->users, 1);
    memset((char *)comm + sizeof comm->slot, 0, sizeof *comm - sizeof comm->slot);
    memory->device = device;
    memory->regions = regions;
    storage->users = 1;
    storage->wrapped = true;
    storage->release_fn = ignis__comm_memory_release;
    storage->release_data = memory;
    comm->rank = rank;
    comm->size = size;
    comm->device = device;
    comm->options = *options;
    comm->storage = storage;
    comm->memory = memory;
    ignis__mutex_init(&comm->agreement);
    ignis__mutex_init(&comm->groups_lock);
    ignis__section_use(IGNIS__SECTION_COMM, ignis__comms_close);
    return comm;
}

/*  Fills the communicator's own memory and clears its region. The device is entered. */
static bool ignis__comm_memory_begin(const char *call, ignis__comm *comm)
{
    ignis__comm_memory *memory = comm->memory;
    ignis__comm_state *state;
    int i;
    bool ok;
    memory->record_piece = ignis__pinned_chunk_take(call, comm->device, (int64_t)sizeof *memory->record);
    memory->record = memory->record_piece ? (ignis__comm_record *)memory->record_piece->memory : NULL;
    memory->state =
        memory->record ? ignis__memory_take(call, comm->device, comm->device->stream, (int64_t)sizeof *state) : NULL;
    state = memory->state ? (ignis__comm_state *)ignis__alloc_for(call, sizeof *state) : NULL;
    if (!state)
        return false;
    memset(memory->record, 0, sizeof *memory->record);
    for (i = 0; i < IGNIS__COMM_BLOCKS; i++)
        state->op[i] = (uint32_t)comm->tune.epoch;
    state->rank = (uint32_t)comm->rank;
    state->size = (uint32_t)comm->size;
    state->record = (ignis__address)(uintptr_t)memory->record;
    memcpy(state->region, memory->regions->address, sizeof state->region);
    ok = !IGNIS__CUDA_FAILED(call, comm->device, cuMemcpyHtoDAsync_v2,
                             (memory->state->address, state, sizeof *state, comm->device->stream)) &&
         (memory->regions->host[0] || !ignis__comm_has_region(comm) ||
          !IGNIS__CUDA_FAILED(
              call, comm->device, cuMemsetD8Async,
              (memory->regions->address[comm->rank], 0, (size_t)IGNIS__COMM_DATA, comm->device->stream))) &&
         !IGNIS__CUDA_FAILED(call, comm->device, cuStreamSynchronize, (comm->device->stream));
    ignis__free(state);
    return ok;
}

/*  Counts the blocks that run at the same time, for every kernel that moves bytes. */
static bool ignis__comm_count_blocks(const char *call, ignis__comm *comm)
{
    static const struct {
        int kernel, threads;
    } limits[] = {{IGNIS__COMM_KERNEL_PACKETS, IGNIS__COMM_PACKET_THREADS},
                  {IGNIS__COMM_KERNEL_PARTS, IGNIS__COMM_FLAG_THREADS},
                  {IGNIS__COMM_KERNEL_SLICES, IGNIS__COMM_FLAG_THREADS},
                  {IGNIS__COMM_KERNEL_PAIR, IGNIS__COMM_FLAG_THREADS}};
    ignis__comm_program *program =
        ignis__comm_program_get(call, comm->device, comm->size, -1, -1, comm->tune.delay != 0);
    int i, per_processor = 1;
    if (!program)
        return false;
    comm->most_blocks = IGNIS__COMM_BLOCKS;
    for (i = 0; i < IGNIS__COUNT(limits); i++) {
        if (IGNIS__CUDA_FAILED(call, comm->device, cuOccupancyMaxActiveBlocksPerMultiprocessor,
                               (&per_processor, program->function[limits[i].kernel], limits[i].threads, 0)))
            return false;
        if (comm->most_blocks > per_processor * comm->device->info.multiprocessors)
            comm->most_blocks = per_processor * comm->device->info.multiprocessors;
    }
    if (comm->options.most_blocks > 0 && comm->most_blocks > comm->options.most_blocks)
        comm->most_blocks = comm->options.most_blocks;
    if (comm->most_blocks < 1)
        comm->most_blocks = 1;
    return true;
}

/*  Completes a communicator whose regions exist. All ranks must meet afterwards, before one of them launches.
    Without regions (NCCL alone, one rank) less is needed. */
IGNIS__PRIVATE bool ignis__comm_start(const char *call, ignis__comm *comm)
{
    ignis__binding binding;
    bool ok;
    if (!ignis__comm_tune_read(call, &comm->tune) || !ignis__device_enter(call, comm->device, &binding))
        return false;
    ok = comm->size == 1 || ignis__comm_memory_begin(call, comm);
    if (ok && comm->size > 1 && ignis__comm_has_region(comm))
        ok = ignis__comm_count_blocks(call, comm);
    else if (ok && comm->size > 1) /* a program for any number of ranks marks the operations of NCCL */
        ok = (comm->programs[0][0] = ignis__comm_program_get(call, comm->device, 2, -1, -1, false)) != NULL;
    ignis__device_leave(&binding);
    return ok;
}

static void ignis__comm_break_one(ignis__comm *comm, uint64_t value)
{
    uint64_t none = 0;
    ignis__atomic_swap_if(&comm->broken, &none, value);
    if (comm->memory->record)
        ignis__atomic_store(&comm->memory->record->abort, value);
}

/*  Breaks a communicator, and those that share its regions, from the host. Waiting kernels return soon, and
    NCCL is aborted. code: IGNIS__COMM_PEER or another; peer: the rank at fault, -1 for none. Kernels see the
    low 8 bits, as they have fewer ranks. Any thread may call it. */
IGNIS__PRIVATE void ignis__comm_break(ignis__comm *comm, int code, int peer)
{
    ignis__comm_regions *regions = comm->memory->regions;
    uint64_t value = (uint64_t)code | (uint64_t)((uint32_t)peer & 0xFFFFFF) << 8;
    int i;
    ignis__comm_break_one(comm, value);
    ignis__mutex_lock(&regions->lock);
    for (i = 0; i < regions->count; i++)
        if (regions->comms[i])
            ignis__comm_break_one(regions->comms[i], value);
    ignis__mutex_unlock(&regions->lock);
    if (ignis__atomic_load(&comm->nccl_there))
        ignis__nccl_abort(comm->memory->nccl);
    ignis__comm_groups_break(comm);
}

/*  As ignis__comm_break, and tells the ranks of other processes. */
IGNIS__PRIVATE void ignis__comm_break_all(ignis__comm *comm, int code, int peer)
{
    ignis__comm_break(comm, code, peer);
    if (comm->outer)
        ignis__comm_groups_settle(comm);
    else if (comm->job)
        ignis__job_send_all(comm->job, comm->member, comm->size, IGNIS__JOB_ABORT, comm->watch.key);
}

/*  Breaks a communicator on all ranks if its NCCL has failed: no other rank could end what the others wait
    for. Any thread may call it. */
IGNIS__PRIVATE void ignis__comm_nccl_check(ignis__comm *comm)
{
    int error = ignis__atomic_load(&comm->nccl_there) ? ignis__nccl_error(comm->memory->nccl) : 0;
    if (error)
        ignis__comm_break_all(comm, IGNIS__COMM_NCCL_FAILED, error);
}

/*  Returns the code of what has broken a communicator, IGNIS__COMM_TIMEOUT or another; 0: it works. *peer: the rank at
    fault, -1 if unknown. */
IGNIS__PRIVATE int ignis__comm_failure_code(const ignis__comm *comm, int *peer)
{
    const ignis__comm_record *record = comm->memory->record;
    uint64_t broken = ignis__atomic_load(&comm->broken), code = record ? ignis__atomic_load(&record->code) : 0;
    *peer = code ? (int)record->peer : broken ? (int)(broken >> 8 & 0xFFFFFF) : -1;
    if (*peer >= comm->size || (broken & 0xFF) == IGNIS__COMM_NCCL_FAILED)
        *peer = -1;
    return (int)(code ? code : broken & 0xFF);
}

/*  Returns what has broken a communicator, or IGNIS_DIAG_NONE; *peer: the rank at fault, -1 if unknown. */
IGNIS__PRIVATE ignis_diagnostic ignis__comm_failure(const ignis__comm *comm, int *peer)
{
    static const ignis_diagnostic diagnostics[] = {IGNIS_DIAG_NONE,          IGNIS_DIAG_COMM_TIMEOUT,
                                                   IGNIS_DIAG_COMM_MISMATCH, IGNIS_DIAG_COMM_PEER,
                                                   IGNIS_DIAG_COMM_MISMATCH, IGNIS_DIAG_NCCL_CALL};
    const int code = ignis__comm_failure_code(comm, peer);
    return diagnostics[code >= 0 && code < IGNIS__COUNT(diagnostics) ? code : IGNIS__COMM_PEER];
}
