/*  >>comm.create - creating a communicator of ranks that have met

    Chooses the transport, sets up regions or NCCL in steps with votes, and watches the members.
    Uses: votes, region_setup.c, NCCL, the job.
    Invariants: all ranks succeed or all fail with the reason of the first one that failed.
    Locks: comm->agreement around anything that all ranks do together. */

#include "room.h"

/*  Enforces the deadline for operations of NCCL, which has none: while one runs, and after another one has
    failed. Runs on the watcher's thread. */
static void ignis__comm_check_nccl_deadline(ignis__comm *comm)
{
    const ignis__comm_record *record = comm->memory->record;
    uint64_t running = record ? ignis__atomic_load(&record->nccl) : 0;
    int64_t now = ignis__monotonic_ns();
    int peer;
    if (running != comm->nccl_seen || !running) {
        comm->nccl_seen = running;
        comm->nccl_since = now;
    } else if (now - comm->nccl_since > comm->options.timeout_ns) {
        ignis__comm_break(comm, IGNIS__COMM_TIMEOUT, -1);
    } else {
        ignis__comm_nccl_check(comm);
    }
    if (ignis__atomic_load(&comm->nccl_there) && ignis__comm_failure(comm, &peer) != IGNIS_DIAG_NONE)
        ignis__nccl_abort(comm->memory->nccl);
}

/*  Handles an event of a member, on the thread that reads the job's messages. A member may leave after the
    last operation while this rank is still in it. */
static void ignis__comm_notify(void *owner, ignis__job_event event, int member, int code)
{
    ignis__comm *comm = (ignis__comm *)owner;
    const bool is_known = code > IGNIS__COMM_FINE && code < IGNIS__COMM_NCCL_FAILED;
    if (event == IGNIS__JOB_TICK) {
        ignis__comm_check_nccl_deadline(comm);
        ignis__comm_groups_settle(comm);
    } else if (event != IGNIS__JOB_LEFT) {
        ignis__comm_break(comm, event == IGNIS__JOB_FAILED && is_known ? code : IGNIS__COMM_PEER, member);
    }
}

/*  Creates an empty communicator of members (ranks of the job; NULL: all). */
IGNIS__PRIVATE ignis__comm *ignis__comm_prepare(const char *call, ignis__job *job, ignis__device *device,
                                                const int *member, int count, int me, uint64_t key,
                                                const ignis__comm_options *options)
{
    ignis__comm *comm = ignis__comm_new(call, device, me, count, options, NULL);
    int i;
    if (!comm)
        return NULL;
    for (i = 0; i < count; i++)
        comm->member[i] = member ? member[i] : i;
    comm->watch.key = key;
    comm->watch.member = comm->member;
    comm->watch.count = count;
    comm->watch.gone = comm->gone;
    comm->watch.notify = ignis__comm_notify;
    comm->watch.owner = comm;
    comm->job = job;
    ignis__job_hold(job);
    return comm;
}

IGNIS__PRIVATE int ignis__comm_hosts(const ignis__comm *comm, int *local_rank, int *local_size)
{
    const ignis__job_watch *watch = &comm->watch;
    const ignis__job_rank *ranks = comm->job->ranks;
    int i, k, hosts = 0;
    *local_rank = *local_size = 0;
    for (i = 0; i < watch->count; i++) {
        bool here = ranks[watch->member[i]].host == ranks[comm->job->rank].host;
        *local_size += here;
        *local_rank += here && i < comm->rank;
        for (k = 0; k < i && ranks[watch->member[k]].host != ranks[watch->member[i]].host; k++)
            ;
        hosts += k == i;
    }
    return hosts;
}

/*  Joins NCCL: rank 0 creates an id, all open NCCL, then all join. False: one of them could not, or is
    lost. */
static bool ignis__comm_join(ignis__comm_setup *setup)
{
    ignis__comm *comm = setup->comm;
    ignis__nccl_comm *nccl;
    ignis__nccl_id id;
    int i, local_rank, local_size;
    ignis__step_begin(setup);
    if (comm->rank == 0)
        (void)ignis__nccl_make_id(setup->call, &setup->mine.nccl);
    else
        (void)ignis__nccl_open(setup->call);
    setup->mine.release = (int32_t)ignis__libraries[IGNIS_LIBRARY_NCCL].release;
    if (!ignis__step_end(setup, -1, NULL))
        return false;
    for (i = 0; i < comm->size; i++)
        if (setup->all[i].release != setup->all[0].release) {
            setup->mine.failed = IGNIS_DIAG_LIBRARY_SYMBOL;
            snprintf(setup->mine.why, sizeof setup->mine.why, "NCCL is version %d on rank 0 and version %d on rank %d",
                     (int)setup->all[0].release, (int)setup->all[i].release, i);
            return false;
        }
    id = setup->all[0].nccl;
    ignis__step_begin(setup);
    nccl = comm->memory->nccl = ignis__nccl_begin(setup->call, comm->device, &id, comm->rank, comm->size,
                                                  setup->agreement.deadline - ignis__monotonic_ns());
    if (nccl) {
        ignis__atomic_store(&comm->nccl_there, 1); /* if a rank dies now, the watcher ends the wait */
        (void)ignis__nccl_wait_joined(setup->call, nccl);
        nccl->patience_ns = comm->options.timeout_ns;
        nccl->hosts = ignis__comm_hosts(comm, &local_rank, &local_size) > 1;
    }
    setup->agreement.deadline += comm->options.timeout_ns; /* a rank that waited in vain comes later */
    return ignis__step_end(setup, -1, NULL);
}

/*  Begins a setup of a communicator that exists; the caller frees setup->all. False, and reported, if out of memory. */
IGNIS__PRIVATE bool ignis__comm_setup_begin(const char *call, ignis__comm *comm, ignis__comm_setup *setup)
{
    memset(setup, 0, sizeof *setup);
    setup->call = call;
    setup->comm = comm;
    setup->all = (ignis__vote *)ignis__alloc_for(call, sizeof *setup->all * (size_t)comm->size);
    if (!setup->all) /* the others wait until the deadline and are told why */
        ignis__comm_break_all(comm, IGNIS__COMM_PEER, comm->rank);
    return setup->all != NULL;
}

/*  Joins NCCL at the first operation that it does faster. If one rank cannot, all keep the built-in kernels
    for good. False: a rank has died or did not come. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__comm_join_late(const char *call, ignis__comm *comm)
{
    ignis__comm_setup setup;
    int peer;
    bool ok;
    if (!ignis__comm_setup_begin(call, comm, &setup))
        return false;
    ignis__job_watch_tick(comm->job, &comm->watch);
    ignis__agreement_begin(&setup.agreement, comm, IGNIS__AGREEMENT_NCCL, 0);
    do
        ok = ignis__comm_join(&setup);
    while (!ok && setup.agreement.overtaken && !comm->memory->nccl);
    ignis__agreement_end(&setup.agreement, comm);
    ignis__free(setup.all);
    if (!ok && comm->memory->nccl)
        ignis__nccl_abort(comm->memory->nccl);
    if (setup.lost) {
        for (peer = comm->size - 1; peer >= 0 && comm->member[peer] != setup.agreement.failure.rank; peer--)
            ;
        ignis__comm_break_all(
            comm, setup.agreement.failure.reason == IGNIS__AGREEMENT_LATE ? IGNIS__COMM_TIMEOUT : IGNIS__COMM_PEER,
            peer);
        return ignis__agreement_failed(call, &setup.agreement);
    }
    comm->nccl_state = ok ? IGNIS__COMM_NCCL_JOINED : IGNIS__COMM_NCCL_REFUSED;
    snprintf(comm->nccl_reason, sizeof comm->nccl_reason,
             ok ? "NCCL runs large operations" : "NCCL is not used: %.160s", setup.mine.why);
    comm->nccl_reason[strcspn(comm->nccl_reason, "\n")] = 0; /* the first line is enough */
    ignis__atomic_store(&comm->nccl_told, 1);
    ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: rank %d of %d: %s", call, comm->rank, comm->size,
               comm->nccl_reason);
    return true;
}

/*  Chooses the transport, as all ranks do from the same facts, and sets it up. */
static bool ignis__comm_make_transport(ignis__comm_setup *setup)
{
    ignis__comm *comm = setup->comm;
    int local_rank, local_size, hosts = ignis__comm_hosts(comm, &local_rank, &local_size);
    char apart[96] = "";
    if (hosts > 1)
        snprintf(apart, sizeof apart, "the ranks are on %d hosts", hosts);
    else if (comm->size > IGNIS_COMM_MAX_RANKS)
        snprintf(apart, sizeof apart, "%d ranks are more than %d", comm->size, IGNIS_COMM_MAX_RANKS);
    if (*apart && (comm->options.transport == IGNIS_COMM_PEER || comm->options.transport == IGNIS_COMM_STAGED)) {
        setup->mine.failed = IGNIS_DIAG_TRANSPORT_UNAVAILABLE;
        snprintf(setup->mine.why, sizeof setup->mine.why, "%s was requested, but %s, which needs NCCL",
                 comm->options.transport == IGNIS_COMM_PEER ? "IGNIS_COMM_PEER" : "IGNIS_COMM_STAGED", apart);
        return false;
    }
    if (*apart || comm->options.transport == IGNIS_COMM_NCCL) {
        comm->transport = IGNIS_COMM_NCCL;
        snprintf(comm->reason, sizeof comm->reason, "NCCL, as %s", *apart ? apart : "it was requested");
        return ignis__comm_join(setup);
    }
    comm->transport = IGNIS_COMM_PEER;
    if (comm->size == 1) {
        snprintf(comm->reason, sizeof comm->reason, "one rank");
        return true;
    }
    if (comm->options.transport != IGNIS_COMM_STAGED) {
        snprintf(comm->reason, sizeof comm->reason, "all ranks write and read each other's memory");
        if (ignis__regions_setup(setup, false))
            return true;
        if (setup->lost || comm->options.transport == IGNIS_COMM_PEER)
            return false;
        snprintf(comm->reason, sizeof comm->reason,
                 "through host memory, as the ranks cannot share device memory: %.170s", setup->mine.why);
    } else {
        snprintf(comm->reason, sizeof comm->reason, "through host memory, as it was requested");
    }
    comm->transport = IGNIS_COMM_STAGED;
    return ignis__regions_setup(setup, true);
}

/*  Sets up a prepared communicator together with its other ranks, and creates its handle. `agreement` is the
    agreement in progress, NULL right after the rendezvous. On failure the communicator is destroyed; the
    failure is not reported if ignis__agreement_retry. */
IGNIS__COLD IGNIS__PRIVATE ignis_comm ignis__comm_make(const char *call, ignis__comm *comm, ignis__agreement *agreement)
{
    const ignis__comm_regions *regions = comm->memory->regions;
    ignis_comm handle = {0};
    ignis__comm_setup setup;
    ignis__record dropped;
    bool ok = false;
    int i;
    memset(&setup, 0, sizeof setup);
    setup.call = call;
    setup.comm = comm;
    ignis__agreement_begin_new(&setup.agreement, comm);
    if (agreement) {
        setup.agreement.attempt = agreement->attempt;
        setup.agreement.print = agreement->print;
        setup.agreement.key = agreement->key;
    }
    setup.all = (ignis__vote *)ignis__alloc(sizeof *setup.all * (size_t)comm->size);
    if (!setup.all) {
        setup.mine.failed = IGNIS_DIAG_HOST_MEMORY;
        snprintf(setup.mine.why, sizeof setup.mine.why, "out of host memory for %d ranks", comm->size);
    } else if (ignis__comm_make_transport(&setup)) {
        ignis__step_begin(&setup);
        if (regions->host[comm->rank]) /* regions of device memory are cleared below */
            memset(regions->host[comm->rank], 0, IGNIS_COMM_MAX_RANKS * IGNIS__PROBE_BYTES);
        (void)ignis__comm_start(call, comm);
        setup.mine.most_blocks = (int32_t)comm->most_blocks;
        setup.mine.tune = ignis__hash(IGNIS__HASH_START, &comm->tune, sizeof comm->tune);
        ignis__job_watch_begin(comm->job, &comm->watch);
        if (comm->memory->nccl)
            ignis__job_watch_tick(comm->job, &comm->watch);
        ok = ignis__step_end(&setup, -1, NULL);
        for (i = 0; ok && i < comm->size; i++) { /* all launch as many as the smallest GPU runs */
            comm->most_blocks =
                setup.all[i].most_blocks < comm->most_blocks ? setup.all[i].most_blocks : comm->most_blocks;
            if (setup.all[i].tune == setup.all[0].tune)
                continue;
            setup.mine.failed = IGNIS_DIAG_COMM_ENVIRONMENT;
            snprintf(setup.mine.why, sizeof setup.mine.why, "IGNIS_COMM_TUNE differs between rank 0 and rank %d", i);
            ok = false;
        }
    }
    if (agreement) {
        agreement->attempt = setup.agreement.attempt;
        agreement->failed = setup.agreement.failed;
        agreement->overtaken = setup.agreement.overtaken;
        agreement->failure = setup.agreement.failure;
    }
    if (!ok && !(agreement && ignis__agreement_retry(agreement)))
        ignis__comm_setup_report(&setup);
    ignis__free(setup.all);
    if (ok) {
        ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: rank %d of %d, device %d: %s", call, comm->rank, comm->size,
                   ignis__device_ordinal(comm->device), comm->reason);
        handle.id = ignis__pool_publish(&ignis__comms, comm);
        return handle;
    }
    setup.before = ignis__quiet_begin(); /* only the first failure is reported */
    ignis__comm_end(call, comm);
    ignis__quiet_end(&setup.before, &dropped, setup.mine.why, sizeof setup.mine.why);
    return handle;
}
