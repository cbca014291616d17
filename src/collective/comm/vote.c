/* --- making one: in steps, after each of which all ranks say how it went ----------------------------------------------- */

/*  What a rank says after each step of making a communicator. */
typedef struct ignis__vote {
    int32_t failed; /* a diagnostic; 0: it went well */
    int32_t driver_error;
    int64_t bytes;       /* of its region */
    int32_t most_blocks; /* of its kernels */
    int32_t release;     /* of NCCL */
    uint64_t tune;       /* hash of IGNIS_COMM_TUNE */
    char why[256];
    ignis__nccl_id nccl;
} ignis__vote;

/*  A communicator that is being made. */
typedef struct ignis__making {
    const char *call;
    ignis__comm *comm;
    ignis__agreement agreement;
    ignis__record before; /* what this thread had reported */
    ignis__vote mine, *all;
    bool lost; /* a rank died, or did not come: `agreement` tells */
} ignis__making;

enum { IGNIS__PROBE_BYTES = 64 };

/*  What ranks of a communicator that is being made do together: nobody else has it yet. */
static void ignis__agreement_first(ignis__agreement *agreement, ignis__comm *comm)
{
    memset(agreement, 0, sizeof *agreement);
    agreement->job = comm->job;
    agreement->watch = &comm->watch;
    agreement->member = comm->member;
    agreement->count = comm->size;
    agreement->me = comm->rank;
    agreement->key = comm->watch.key;
    agreement->deadline = ignis__monotonic_ns() + comm->options.timeout_ns;
}

/*  Begins what all ranks of a communicator do together: only one thing at a time. What a rank has given up
    before shall not count in it. */
static void ignis__agreement_begin(ignis__agreement *agreement, ignis__comm *comm, ignis__agreement_kind kind,
                                   uint64_t hash)
{
    ignis__mutex_lock(&comm->agreement);
    ignis__job_catch_up(comm->job);
    ignis__agreement_first(agreement, comm);
    agreement->attempt = ++comm->attempts;
    agreement->print = IGNIS__AGREEMENT_PRINT(kind, hash);
}

static void ignis__agreement_end(const ignis__agreement *agreement, ignis__comm *comm)
{
    if (agreement->failed)
        ignis__agreement_give_up(agreement);
    comm->attempts = agreement->attempt;
    ignis__mutex_unlock(&comm->agreement);
}

/*  Whether a failure is a reason to try again: others are at it anew, or one of those who shrink has died
    meanwhile. */
static bool ignis__agreement_retry(const ignis__agreement *agreement)
{
    return agreement->failed && (agreement->overtaken || (agreement->print >> 28 == IGNIS__AGREEMENT_SHRINK &&
                                                          agreement->failure.reason == IGNIS__AGREEMENT_LOST));
}

static void ignis__step_begin(ignis__making *making) { making->before = ignis__quiet_begin(); }

/*  After a step: all ranks say how it went, with a descriptor if fds is not null. True: well, for all. Else
    making->mine is what the first of those who failed says. */
static bool ignis__step_end(ignis__making *making, int fd, int *fds)
{
    ignis__comm *comm = making->comm;
    ignis__record failure;
    int i;
    ignis__quiet_end(&making->before, &failure, making->mine.why, sizeof making->mine.why);
    making->mine.failed = (int32_t)failure.diagnostic;
    making->mine.driver_error = (int32_t)failure.driver_error;
    making->lost = !ignis__agreement_step(&making->agreement, &making->mine, sizeof making->mine, making->all, fd, fds);
    if (making->lost)
        return false;
    for (i = 0; i < comm->size; i++) {
        ignis__vote *vote = &making->all[i];
        if (!vote->failed)
            continue;
        vote->why[sizeof vote->why - 1] = 0;
        making->mine.failed = vote->failed > 0 && vote->failed < IGNIS_DIAG_COUNT ? vote->failed : IGNIS_DIAG_COMM_PEER;
        making->mine.driver_error = vote->driver_error;
        if (i == comm->rank)
            snprintf(making->mine.why, sizeof making->mine.why, "%s", vote->why);
        else
            snprintf(making->mine.why, sizeof making->mine.why, "rank %d: %.230s", i, vote->why);
        for (i = 0; fds && i < comm->size; i++)
            ignis__fd_close(&fds[i]);
        return false;
    }
    return true;
}

/*  Reports why a communicator could not be made. */
IGNIS__COLD static void ignis__making_report(ignis__making *making)
{
    int error = making->mine.driver_error;
    if (making->lost)
        (void)ignis__agreement_failed(making->call, &making->agreement);
    else
        ignis__fail_because((ignis_diagnostic)making->mine.failed, making->call, error,
                            error ? ignis__cuda_name(error) : NULL, NULL, "%s", making->mine.why);
}
