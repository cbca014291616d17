/*  Keeps the deadline for operations of NCCL, which have none: as long as one runs, and after another has
    failed. On the watcher's thread. */
static void ignis__comm_watch_nccl(ignis__comm *comm)
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

/*  What the job says of a member, on the thread that reads it. One that leaves may do so after the last
    operation, while this rank is still in it. */
static void ignis__comm_notify(void *owner, ignis__job_event event, int member)
{
    if (event == IGNIS__JOB_TICK)
        ignis__comm_watch_nccl((ignis__comm *)owner);
    else if (event != IGNIS__JOB_LEFT)
        ignis__comm_break((ignis__comm *)owner, IGNIS__COMM_PEER, member);
}

/*  A communicator of members (ranks of the job; null: all of it) with nothing in it yet. */
static ignis__comm *ignis__comm_prepare(const char *call, ignis__job *job, ignis__device *device, const int *member,
                                        int count, int me, uint64_t key, const ignis__comm_options *options)
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

static int ignis__comm_hosts(const ignis__comm *comm, int *local_rank, int *local_size)
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

/*  Rank 0 makes an id, all open NCCL, and then all join. False: one of them could not, or is lost. */
static bool ignis__comm_join(ignis__making *making)
{
    ignis__comm *comm = making->comm;
    ignis__nccl_comm *nccl;
    ignis__nccl_id id;
    int i, local_rank, local_size;
    ignis__step_begin(making);
    if (comm->rank == 0)
        (void)ignis__nccl_make_id(making->call, &making->mine.nccl);
    else
        (void)ignis__nccl_open(making->call);
    making->mine.release = (int32_t)ignis__libraries[IGNIS_LIBRARY_NCCL].release;
    if (!ignis__step_end(making, -1, NULL))
        return false;
    for (i = 0; i < comm->size; i++)
        if (making->all[i].release != making->all[0].release) {
            making->mine.failed = IGNIS_DIAG_LIBRARY_SYMBOL;
            snprintf(making->mine.why, sizeof making->mine.why,
                     "NCCL is version %d on rank 0 and version %d on rank %d", (int)making->all[0].release,
                     (int)making->all[i].release, i);
            return false;
        }
    id = making->all[0].nccl;
    ignis__step_begin(making);
    nccl = comm->memory->nccl = ignis__nccl_begin(making->call, comm->device, &id, comm->rank, comm->size,
                                                  making->agreement.deadline - ignis__monotonic_ns());
    if (nccl) {
        ignis__atomic_store(&comm->nccl_there, 1); /* who dies now makes the watcher end the waiting */
        (void)ignis__nccl_joined(making->call, nccl);
        nccl->patience_ns = comm->options.timeout_ns;
        nccl->hosts = ignis__comm_hosts(comm, &local_rank, &local_size) > 1;
    }
    making->agreement.deadline += comm->options.timeout_ns; /* one that has waited in vain comes later */
    return ignis__step_end(making, -1, NULL);
}

/*  Joins NCCL when the first operation comes to all ranks that it does faster. If one of them cannot, all
    stay with own kernels for good. False: one has died, or did not come. */
IGNIS__COLD static bool ignis__comm_join_late(const char *call, ignis__comm *comm)
{
    ignis__making making;
    int peer;
    bool ok;
    memset(&making, 0, sizeof making);
    making.call = call;
    making.comm = comm;
    making.all = (ignis__vote *)ignis__alloc_for(call, sizeof *making.all * (size_t)comm->size);
    if (!making.all) { /* the others wait in vain, and are told why */
        ignis__comm_break_all(comm, IGNIS__COMM_PEER, comm->rank);
        return false;
    }
    ignis__job_watch_tick(comm->job, &comm->watch);
    ignis__agreement_begin(&making.agreement, comm, IGNIS__AGREEMENT_NCCL, 0);
    do
        ok = ignis__comm_join(&making);
    while (!ok && making.agreement.overtaken && !comm->memory->nccl);
    ignis__agreement_end(&making.agreement, comm);
    ignis__free(making.all);
    if (!ok && comm->memory->nccl)
        ignis__nccl_abort(comm->memory->nccl);
    if (making.lost) {
        for (peer = comm->size - 1; peer >= 0 && comm->member[peer] != making.agreement.failure.rank; peer--)
            ;
        ignis__comm_break_all(
            comm, making.agreement.failure.reason == IGNIS__AGREEMENT_LATE ? IGNIS__COMM_TIMEOUT : IGNIS__COMM_PEER,
            peer);
        return ignis__agreement_failed(call, &making.agreement);
    }
    comm->nccl_state = ok ? IGNIS__COMM_NCCL_JOINED : IGNIS__COMM_NCCL_REFUSED;
    snprintf(comm->nccl_reason, sizeof comm->nccl_reason,
             ok ? "NCCL does large operations" : "NCCL does not help: %.160s", making.mine.why);
    comm->nccl_reason[strcspn(comm->nccl_reason, "\n")] = 0; /* the first line is enough */
    ignis__atomic_store(&comm->nccl_told, 1);
    ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: rank %d of %d: %s", call, comm->rank, comm->size,
               comm->nccl_reason);
    return true;
}

/*  Chooses the transport, as all ranks do from the same facts, and sets it up. */
static bool ignis__comm_make_transport(ignis__making *making)
{
    ignis__comm *comm = making->comm;
    int local_rank, local_size, hosts = ignis__comm_hosts(comm, &local_rank, &local_size);
    char apart[96] = "";
    if (hosts > 1)
        snprintf(apart, sizeof apart, "the ranks are on %d hosts", hosts);
    else if (comm->size > IGNIS_COMM_MAX_RANKS)
        snprintf(apart, sizeof apart, "there are %d ranks, more than %d", comm->size, IGNIS_COMM_MAX_RANKS);
    if (*apart && (comm->options.transport == IGNIS_COMM_PEER || comm->options.transport == IGNIS_COMM_STAGED)) {
        making->mine.failed = IGNIS_DIAG_TRANSPORT_UNAVAILABLE;
        snprintf(making->mine.why, sizeof making->mine.why, "%s was asked for, but %s, which takes NCCL",
                 comm->options.transport == IGNIS_COMM_PEER ? "IGNIS_COMM_PEER" : "IGNIS_COMM_STAGED", apart);
        return false;
    }
    if (*apart || comm->options.transport == IGNIS_COMM_NCCL) {
        comm->transport = IGNIS_COMM_NCCL;
        snprintf(comm->reason, sizeof comm->reason, "NCCL, as %s", *apart ? apart : "it was asked for");
        return ignis__comm_join(making);
    }
    comm->transport = IGNIS_COMM_PEER;
    if (comm->size == 1) {
        snprintf(comm->reason, sizeof comm->reason, "there is one rank");
        return true;
    }
    if (comm->options.transport != IGNIS_COMM_STAGED) {
        snprintf(comm->reason, sizeof comm->reason, "all ranks write and read each other's memory");
        if (ignis__regions_make(making, false))
            return true;
        if (making->lost || comm->options.transport == IGNIS_COMM_PEER)
            return false;
        snprintf(comm->reason, sizeof comm->reason,
                 "through host memory, as the ranks cannot share device memory: %.170s", making->mine.why);
    } else {
        snprintf(comm->reason, sizeof comm->reason, "through host memory, as it was asked for");
    }
    comm->transport = IGNIS_COMM_STAGED;
    return ignis__regions_make(making, true);
}

/*  Sets a prepared communicator up together with its other ranks, and makes its handle. `agreement` is what
    they are at, null: they have met just now. On failure the communicator is gone, which is not reported
    where ignis__agreement_retry. */
IGNIS__COLD static ignis_comm ignis__comm_make(const char *call, ignis__comm *comm, ignis__agreement *agreement)
{
    const ignis__comm_regions *regions = comm->memory->regions;
    ignis_comm handle = {0};
    ignis__making making;
    ignis__record dropped;
    bool ok = false;
    int i;
    memset(&making, 0, sizeof making);
    making.call = call;
    making.comm = comm;
    ignis__agreement_first(&making.agreement, comm);
    if (agreement) {
        making.agreement.attempt = agreement->attempt;
        making.agreement.print = agreement->print;
        making.agreement.key = agreement->key;
    }
    making.all = (ignis__vote *)ignis__alloc(sizeof *making.all * (size_t)comm->size);
    if (!making.all) {
        making.mine.failed = IGNIS_DIAG_HOST_MEMORY;
        snprintf(making.mine.why, sizeof making.mine.why, "out of host memory for %d ranks", comm->size);
    } else if (ignis__comm_make_transport(&making)) {
        ignis__step_begin(&making);
        if (regions->host[comm->rank]) /* those of device memory are cleared by what follows */
            memset(regions->host[comm->rank], 0, IGNIS_COMM_MAX_RANKS * IGNIS__PROBE_BYTES);
        (void)ignis__comm_start(call, comm);
        making.mine.most_blocks = (int32_t)comm->most_blocks;
        making.mine.tune = ignis__hash(IGNIS__HASH_START, &comm->tune, sizeof comm->tune);
        ignis__job_watch_begin(comm->job, &comm->watch);
        if (comm->memory->nccl)
            ignis__job_watch_tick(comm->job, &comm->watch);
        ok = ignis__step_end(&making, -1, NULL);
        for (i = 0; ok && i < comm->size; i++) { /* all launch as many as the smallest GPU runs */
            comm->most_blocks =
                making.all[i].most_blocks < comm->most_blocks ? making.all[i].most_blocks : comm->most_blocks;
            if (making.all[i].tune == making.all[0].tune)
                continue;
            making.mine.failed = IGNIS_DIAG_COMM_ENVIRONMENT;
            snprintf(making.mine.why, sizeof making.mine.why, "IGNIS_COMM_TUNE is not the same on rank 0 and rank %d",
                     i);
            ok = false;
        }
    }
    if (agreement) {
        agreement->attempt = making.agreement.attempt;
        agreement->failed = making.agreement.failed;
        agreement->overtaken = making.agreement.overtaken;
        agreement->failure = making.agreement.failure;
    }
    if (!ok && !(agreement && ignis__agreement_retry(agreement)))
        ignis__making_report(&making);
    ignis__free(making.all);
    if (ok) {
        ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: rank %d of %d, device %d: %s", call, comm->rank, comm->size,
                   ignis__device_ordinal(comm->device), comm->reason);
        handle.id = ignis__pool_publish(&ignis__comms, comm);
        return handle;
    }
    making.before = ignis__quiet_begin(); /* the first failure is the one reported */
    ignis__comm_end(call, comm);
    ignis__quiet_end(&making.before, &dropped, making.mine.why, sizeof making.mine.why);
    return handle;
}
