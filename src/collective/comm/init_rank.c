/*  >>comm.init_rank - init, split, shrink, destroy and query of one rank

    The public functions of communicators across processes.
    Uses: create.c, agreements, jobs.
    Invariants: a communicator keeps its job alive; a failed init leaves nothing behind.
    Locks: comm->agreement, through agreements. */

#include "room.h"

/*  Returns a random number of this process, so that ranks can tell whether they are threads of one. */
static uint64_t ignis__process_key(void)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    static uint64_t key;
    ignis__mutex_lock(&lock);
    if (!key && !ignis__random_bytes(&key, sizeof key))
        key = 1;
    ignis__mutex_unlock(&lock);
    return key;
}

/*  Creates the communicator of a rank in a dry run, which is the only one there: it meets nobody. */
IGNIS__PRIVATE ignis_comm ignis__comm_make_dry(const char *call, int rank, int size, const ignis__comm_options *options)
{
    ignis_comm handle = {0};
    ignis__comm *comm = ignis__comm_new(call, ignis__device_get(call, 0), rank, size, options, NULL);
    if (!comm)
        return handle;
    comm->transport = IGNIS_COMM_PEER;
    snprintf(comm->reason, sizeof comm->reason, "a dry run sends nothing");
    if (ignis__comm_start(call, comm))
        handle.id = ignis__pool_publish(&ignis__comms, comm);
    else
        ignis__comm_end(call, comm);
    return handle;
}

/*  Meets the other ranks, which are at a place, and creates a communicator of all. device NULL: the failure was
    reported, and the others are told. origin: of the job that this rank comes from; 0: none. */
IGNIS__COLD static ignis_comm ignis__comm_meet(const char *call, ignis__device *device, const ignis__place *place,
                                               const ignis__comm_options *options, uint64_t origin)
{
    ignis_comm handle = {0};
    ignis__job_rank self;
    ignis__binding binding;
    ignis__comm *comm;
    ignis__job *job;
    const bool entered = device && ignis__device_enter(call, device, &binding);
    memset(&self, 0, sizeof self);
    self.host = ignis__job_host();
    self.process = ignis__process_key();
    if (entered) {
        memcpy(self.uuid, device->info.uuid, sizeof self.uuid);
        memcpy(self.pci, device->info.pci_bus_id, sizeof self.pci);
        self.driver = device->info.driver_version;
    } else {
        snprintf(self.failed, sizeof self.failed, "%.*s", (int)sizeof self.failed - 1, ignis_status_message());
        if (place->size == 1)
            return handle;
    }
    self.rank = place->rank;
    self.size = place->size;
    self.pid = (int32_t)ignis__process_id();
    self.transport = (int32_t)options->transport;
    self.heartbeat_ms = options->heartbeat_ms;
    self.origin = origin;
    job = ignis__job_meet(call, place, &self, options->timeout_ns);
    if (!entered) {
        ignis__job_drop(job);
        return handle;
    }
    if (job) {
        comm = ignis__comm_prepare(call, job, device, NULL, job->size, job->rank, job->key, options);
        if (comm)
            handle = ignis__comm_make(call, comm, NULL);
    }
    ignis__job_drop(job); /* held by the communicator now */
    ignis__device_leave(&binding);
    return handle;
}

IGNIS_API IGNIS__COLD ignis_comm ignis_comm_init(const ignis_comm_desc *desc)
{
    static const char call[] = "ignis_comm_init";
    ignis_comm_desc defaults;
    ignis__comm_options options;
    ignis_comm handle = {0};
    ignis__place place;
    int ordinal;
    memset(&defaults, 0, sizeof defaults);
    desc = desc ? desc : &defaults;
    if (!ignis__enter(call) || ignis__capture_refuses(call) || !ignis__comm_options_read(call, desc, &options) ||
        !ignis__place_read(call, desc, &place))
        return handle;
    if (ignis__global.dry_run)
        return ignis__comm_make_dry(call, place.rank, place.size, &options);
    ordinal = desc->device == 0 ? ignis__place_device(call, &place) : desc->device == IGNIS_DEVICE_0 ? 0 : desc->device;
    return ignis__comm_meet(call, ordinal < 0 ? NULL : ignis__device_get(call, ordinal), &place, &options, 0);
}

/*  Holds a communicator to derive others from; those of ignis_comm_init_all are split and shrunk together. */
static ignis__comm *ignis__comm_parent(const char *call, ignis_comm handle)
{
    ignis__comm *comm = ignis__comm_hold(call, handle);
    if (!comm || (comm->job && !ignis__capture_refuses(call)))
        return comm;
    if (!comm->job && ignis__global.dry_run)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "a dry run has the communicator of ignis_comm_init alone");
    else if (!comm->job && strcmp(call, "ignis_comm_grow") == 0)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "the communicator is of ignis_comm_init_all, whose ranks are one process; none can join it");
    else if (!comm->job)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "the communicator is of ignis_comm_init_all; %s does it for all ranks at once",
                    strncmp(call, "ignis_comm_shrink", 17) == 0 ? "ignis_comm_shrink_all" : "ignis_comm_split_all");
    ignis__comm_drop(call, comm);
    return NULL;
}

/*  Creates a communicator of the ranks of `parent` in `place`, this one among them; with patience a group of it. `what`
    goes into its key. */
static ignis_comm ignis__comm_derive(const char *call, ignis__comm *parent, ignis__agreement *agreement,
                                     const int *place, int count, uint64_t what, int patience)
{
    int member[IGNIS__JOB_MAX_RANKS], me = 0, i;
    uint64_t key =
        ignis__hash(ignis__hash(agreement->key, &agreement->attempt, sizeof agreement->attempt), &what, sizeof what);
    ignis_comm none = {0};
    ignis__comm *comm;
    for (i = 0; i < count; i++) {
        member[i] = agreement->member[place[i]];
        if (place[i] == agreement->me)
            me = i;
    }
    comm = ignis__comm_prepare(call, parent->job, parent->device, member, count, me, key, &parent->options);
    if (comm && patience)
        ignis__comm_group_begin(parent, comm, patience);
    return comm ? ignis__comm_make(call, comm, agreement) : none;
}

/*  Checks that all ranks divide themselves into groups alike, as their keys tell. */
static bool ignis__split_check_groups(const char *call, const ignis__split *all, int size, int32_t key)
{
    int i = 0;
    while (i < size && all[i].key == key)
        i++;
    return i == size || ignis__fail_false(IGNIS_DIAG_COMM_MISMATCH, call,
                                          "groups of ranks have %d ranks on this rank and %d on rank %d", (int)key,
                                          (int)all[i].key, i);
}

/*  Does the work of ignis_comm_split, or makes groups (NULL: others), whose key is equal on all ranks. */
IGNIS__COLD IGNIS__PRIVATE ignis_comm ignis__comm_split(const char *call, ignis_comm handle, int color, int key,
                                                        const ignis__comm_group *group)
{
    ignis__comm *parent = ignis__comm_parent(call, handle);
    int place[IGNIS__JOB_MAX_RANKS];
    ignis_comm result = {0};
    ignis__split mine, *all;
    ignis__agreement agreement;
    if (!parent)
        return result;
    mine.color = color;
    mine.key = key;
    all = (ignis__split *)ignis__alloc_for(call, sizeof *all * (size_t)parent->size);
    ignis__agreement_begin(&agreement, parent, IGNIS__AGREEMENT_SPLIT, 0);
    do { /* the second step finds out who said it, but has given up meanwhile */
        if (all && (!ignis__agreement_step(&agreement, &mine, sizeof mine, all, -1, NULL) ||
                    !ignis__agreement_step(&agreement, &mine, 0, all, -1, NULL)))
            (void)(ignis__agreement_retry(&agreement) || ignis__agreement_failed(call, &agreement));
        else if (all && color >= 0 && (!group || ignis__split_check_groups(call, all, parent->size, key)))
            result =
                ignis__comm_derive(call, parent, &agreement, place, ignis__split_order(all, parent->size, color, place),
                                   (uint64_t)(uint32_t)color, group ? group->patience : 0);
    } while (all && !result.id && ignis__agreement_retry(&agreement));
    ignis__agreement_end(&agreement, parent);
    ignis__free(all);
    ignis__comm_drop(call, parent);
    return result;
}

IGNIS_API ignis_comm ignis_comm_split(ignis_comm comm, int color, int key)
{
    return ignis__comm_split("ignis_comm_split", comm, color, key, NULL);
}

/*  Agrees on the missing ranks: each rank tells which ranks it misses; `all` receives these lists. True: all
    lists are equal. False: a rank sent none, or *gone has grown. */
static bool ignis__shrink_agree(ignis__agreement *agreement, unsigned char *gone, unsigned char *all)
{
    size_t bytes = ((size_t)agreement->count + 7) / 8, b;
    bool same = true;
    int i;
    for (i = 0; i < agreement->count; i++)
        if (i != agreement->me && ignis__job_rank_is_absent(agreement->job, agreement->watch, agreement->member[i]))
            ignis__bit_set(gone, i);
    agreement->without = gone;
    if (!ignis__agreement_step(agreement, gone, bytes, all, -1, NULL))
        return false;
    for (i = 0; i < agreement->count; i++)
        same = same && (ignis__bit(gone, i) || memcmp(all + (size_t)i * bytes, gone, bytes) == 0);
    for (i = 0; !same && i < agreement->count; i++)
        for (b = 0; b < bytes && !ignis__bit(gone, i); b++)
            gone[b] = (unsigned char)(gone[b] | all[(size_t)i * bytes + b]);
    return same;
}

/*  Sets the bits of the ranks that a call excludes. */
static bool ignis__shrink_read_excluded(const char *call, const ignis__comm *parent, const int *ranks, int count,
                                        unsigned char *gone)
{
    int i;
    if (count < 0 || (count > 0 && !ranks))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "count is %d and ranks is %s; expected `count` ranks",
                                 count, ranks ? "not null" : "null");
    for (i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->size || ranks[i] == parent->rank)
            return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "ranks[%d] is %d, %s", i, ranks[i],
                                     ranks[i] == parent->rank ? "which is this rank; expected others"
                                                              : "expected a rank of the communicator");
        ignis__bit_set(gone, ranks[i]);
    }
    return true;
}

/*  Agrees in attempts on the missing ranks, and creates the communicator of the others. A rank that dies
    meanwhile costs another attempt. */
IGNIS__COLD static ignis_comm ignis__comm_shrink(const char *call, ignis_comm handle, const int *ranks, int count)
{
    ignis__comm *parent = ignis__comm_parent(call, handle);
    unsigned char gone[IGNIS__JOB_MAX_RANKS / 8], *all = NULL;
    int place[IGNIS__JOB_MAX_RANKS], i, left;
    ignis_comm result = {0};
    ignis__agreement agreement;
    bool again = true;
    if (!parent)
        return result;
    memset(gone, 0, sizeof gone);
    if (ignis__shrink_read_excluded(call, parent, ranks, count, gone))
        all = (unsigned char *)ignis__alloc_for(call, (size_t)parent->size * sizeof gone);
    if (!all) {
        ignis__comm_drop(call, parent);
        return result;
    }
    ignis__agreement_begin(&agreement, parent, IGNIS__AGREEMENT_SHRINK,
                           ignis__hash(IGNIS__HASH_START, gone, sizeof gone));
    while (again) {
        if (ignis__shrink_agree(&agreement, gone, all)) {
            for (i = left = 0; i < parent->size; i++)
                if (!ignis__bit(gone, i))
                    place[left++] = i;
            result = ignis__comm_derive(call, parent, &agreement, place, left,
                                        ignis__hash(IGNIS__HASH_START, gone, sizeof gone), 0);
            again = !result.id && ignis__agreement_retry(&agreement);
        } else if (ignis__bit(gone, parent->rank)) {
            ignis__fail(IGNIS_DIAG_COMM_PEER, call, "the other ranks have excluded this one");
            again = false;
        } else if (agreement.failed && !ignis__agreement_retry(&agreement)) {
            again = ignis__agreement_failed(call, &agreement);
        }
        agreement.attempt += again && !agreement.overtaken;
    }
    ignis__agreement_end(&agreement, parent);
    ignis__free(all);
    ignis__comm_drop(call, parent);
    return result;
}

IGNIS_API ignis_comm ignis_comm_shrink(ignis_comm comm)
{
    return ignis__comm_shrink("ignis_comm_shrink", comm, NULL, 0);
}

IGNIS_API ignis_comm ignis_comm_shrink_without(ignis_comm comm, const int *ranks, int count)
{
    return ignis__comm_shrink("ignis_comm_shrink_without", comm, ranks, count);
}

/*  Finds where the ranks of a job meet those that join, and the options. */
static bool ignis__grow_read(const char *call, const ignis__comm *parent, const ignis_comm_desc *desc,
                             ignis__place *place, ignis__comm_options *options)
{
    const ignis__job *job = parent->job;
    ignis_comm_desc asked;
    ignis__comm_options read;
    memset(&asked, 0, sizeof asked);
    if (desc)
        asked = *desc;
    asked.rank = job->rank;
    asked.size = asked.size ? asked.size : job->size;
    if (asked.size <= job->rank)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.size is %d and this rank %d; expected a size above it: ranks keep their numbers",
                                 asked.size, job->rank);
    if (!ignis__comm_options_read(call, &asked, &read))
        return false;
    *options = parent->options;
    if (asked.timeout_s != 0)
        options->timeout_ns = read.timeout_ns;
    if (asked.transport)
        options->transport = read.transport;
    if (asked.most_blocks)
        options->most_blocks = read.most_blocks;
    if (asked.heartbeat_s != 0)
        options->heartbeat_ms = read.heartbeat_ms;
    *place = job->place;
    if (job->place.by_id && !asked.id && !asked.rendezvous)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.id is null; expected a new id of ignis_comm_unique_id, as the ranks met by one");
    if (asked.id || asked.rendezvous || asked.token || job->size == 1) {
        if (!ignis__place_read(call, &asked, place))
            return false;
    }
    place->size = asked.size;
    return true;
}

IGNIS_API IGNIS__COLD ignis_comm ignis_comm_grow(ignis_comm handle, const ignis_comm_desc *desc)
{
    static const char call[] = "ignis_comm_grow";
    ignis__comm *parent = ignis__comm_parent(call, handle);
    ignis__comm_options options;
    ignis__place place;
    ignis_comm result = {0};
    if (!parent)
        return result;
    if (ignis__grow_read(call, parent, desc, &place, &options))
        result = ignis__comm_meet(call, parent->device, &place, &options, parent->job->origin);
    ignis__comm_drop(call, parent);
    return result;
}

IGNIS_API ignis_status ignis_comm_abort(ignis_comm handle)
{
    static const char call[] = "ignis_comm_abort";
    ignis__comm *comm = ignis__comm_hold(call, handle);
    int code, peer = -1;
    if (!comm)
        return ignis__failed();
    ignis__comm_groups_settle(comm);
    code = comm->job ? ignis__comm_failure_code(comm, &peer) : 0;
    if (code) /* the others learn which rank broke it, and not this one */
        ignis__comm_break_told(comm, code, peer);
    else
        ignis__comm_break_all(comm, IGNIS__COMM_PEER, comm->rank);
    ignis__comm_drop(call, comm);
    return IGNIS_OK;
}

/*  Tells the other ranks that this one leaves a communicator. */
static void ignis__comm_say_goodbye(ignis__comm *comm)
{
    if (comm->job)
        ignis__job_send_all(comm->job, comm->member, comm->size, IGNIS__JOB_LEAVE, comm->watch.key);
}

#ifndef IGNIS_NO_TENSORS
/*  Leaves a group; no handle is allowed. */
IGNIS__PRIVATE void ignis__comm_leave(const char *call, ignis_comm handle)
{
    ignis__comm *comm = handle.id ? ignis__comm_hold(call, handle) : NULL;
    if (!comm)
        return;
    if (ignis__handle_kill(comm))
        ignis__comm_say_goodbye(comm);
    ignis__comm_drop(call, comm);
}
#endif /* IGNIS_NO_TENSORS */

IGNIS_API ignis_status ignis_comm_destroy(ignis_comm handle)
{
    static const char call[] = "ignis_comm_destroy";
    ignis__record before;
    ignis__comm *comm;
    ignis_status status;
    if (!handle.id)
        return IGNIS_OK;
    comm = ignis__comm_hold(call, handle);
    if (!comm)
        return ignis__failed();
    if (ignis__capture_refuses(call) ||
        !(ignis__handle_kill(comm) ||
          ignis__fail_false(IGNIS_DIAG_COMM_FREED, call, "another thread has destroyed the communicator"))) {
        ignis__comm_drop(call, comm);
        return ignis__failed();
    }
    ignis__comm_say_goodbye(comm);
    before = ignis__this_thread.record;
    memset(&ignis__this_thread.record, 0, sizeof before); /* to see the first failure of this call */
    ignis__comm_drop(call, comm);
    status = ignis__this_thread.record.status;
    if (before.status != IGNIS_OK) {
        ignis__record_drop(&ignis__this_thread);
        ignis__this_thread.record = before;
    }
    return status;
}

/*  Does the work of ignis_comm_query for another call. */
IGNIS__PRIVATE ignis_status ignis__comm_query(const char *call, ignis_comm handle, ignis_comm_info *info)
{
    ignis__comm *comm = ignis__check_not_null(call, "info", info) ? ignis__comm_hold(call, handle) : NULL;
    if (!comm)
        return ignis__failed();
    memset(info, 0, sizeof *info);
    info->rank = info->local_rank = comm->rank;
    info->size = info->local_size = comm->size;
    info->device = ignis__device_ordinal(comm->device);
    info->hosts = 1;
    info->transport = IGNIS_COMM_PEER;
    if (comm->job) {
        info->hosts = ignis__comm_hosts(comm, &info->local_rank, &info->local_size);
        info->transport = comm->transport;
    }
    if (ignis__atomic_load(&comm->nccl_told))
        snprintf(info->reason, sizeof info->reason, "%.60s; %.190s", comm->reason, comm->nccl_reason);
    else
        snprintf(info->reason, sizeof info->reason, "%s", comm->reason);
    ignis__comm_groups_settle(comm);
    info->status = ignis__diagnostics[ignis__comm_failure(comm, &info->failed_rank)].status;
    info->timeout_s = (double)comm->options.timeout_ns / 1e9;
    ignis__comm_drop(call, comm);
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_comm_query(ignis_comm handle, ignis_comm_info *info)
{
    return ignis__comm_query("ignis_comm_query", handle, info);
}
