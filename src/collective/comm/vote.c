/*  >>comm.vote - votes: the steps of creating a communicator

    After each step all ranks tell whether it succeeded; all go on or all stop.
    Uses: agreements of the job.
    Invariants: every rank learns the failure of the first rank that failed.
    Locks: comm->agreement from begin to end. */

#include "room.h"

/*  Begins the agreement of ranks that create a communicator; no other thread has it. */
IGNIS__PRIVATE void ignis__agreement_begin_new(ignis__agreement *agreement, ignis__comm *comm)
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

/*  Begins an agreement of all ranks of a communicator, one at a time. What a rank has given up before does
    not count in it. */
IGNIS__PRIVATE void ignis__agreement_begin(ignis__agreement *agreement, ignis__comm *comm, ignis__agreement_kind kind,
                                           uint64_t hash)
{
    ignis__mutex_lock(&comm->agreement);
    ignis__job_catch_up(comm->job);
    ignis__agreement_begin_new(agreement, comm);
    agreement->attempt = ++comm->attempts;
    agreement->print = IGNIS__AGREEMENT_PRINT(kind, hash);
}

IGNIS__PRIVATE void ignis__agreement_end(const ignis__agreement *agreement, ignis__comm *comm)
{
    if (agreement->failed)
        ignis__agreement_give_up(agreement);
    comm->attempts = agreement->attempt;
    ignis__mutex_unlock(&comm->agreement);
}

/*  Tells if a failed agreement should be tried again: others are at a later attempt, or a rank of a shrink
    has died. */
IGNIS__PRIVATE bool ignis__agreement_retry(const ignis__agreement *agreement)
{
    return agreement->failed && (agreement->overtaken || (agreement->print >> 28 == IGNIS__AGREEMENT_SHRINK &&
                                                          agreement->failure.reason == IGNIS__AGREEMENT_LOST));
}

IGNIS__PRIVATE void ignis__step_begin(ignis__comm_setup *setup) { setup->before = ignis__quiet_begin(); }

/*  Ends a step with a vote, and a descriptor if fds is not NULL. True: success on all ranks. Else
    setup->mine is the vote of the first rank that failed. */
IGNIS__PRIVATE bool ignis__step_end(ignis__comm_setup *setup, int fd, int *fds)
{
    ignis__comm *comm = setup->comm;
    ignis__record failure;
    int i;
    ignis__quiet_end(&setup->before, &failure, setup->mine.why, sizeof setup->mine.why);
    setup->mine.failed = (int32_t)failure.diagnostic;
    setup->mine.driver_error = (int32_t)failure.driver_error;
    setup->lost = !ignis__agreement_step(&setup->agreement, &setup->mine, sizeof setup->mine, setup->all, fd, fds);
    if (setup->lost)
        return false;
    for (i = 0; i < comm->size; i++) {
        ignis__vote *vote = &setup->all[i];
        if (!vote->failed)
            continue;
        vote->why[sizeof vote->why - 1] = 0;
        setup->mine.failed = vote->failed > 0 && vote->failed < IGNIS_DIAG_COUNT ? vote->failed : IGNIS_DIAG_COMM_PEER;
        setup->mine.driver_error = vote->driver_error;
        if (i == comm->rank)
            snprintf(setup->mine.why, sizeof setup->mine.why, "%s", vote->why);
        else
            snprintf(setup->mine.why, sizeof setup->mine.why, "rank %d: %.230s", i, vote->why);
        for (i = 0; fds && i < comm->size; i++)
            ignis__fd_close(&fds[i]);
        return false;
    }
    return true;
}

/*  Reports why a communicator could not be created. */
IGNIS__COLD IGNIS__PRIVATE void ignis__comm_setup_report(ignis__comm_setup *setup)
{
    int error = setup->mine.driver_error;
    if (setup->lost)
        (void)ignis__agreement_failed(setup->call, &setup->agreement);
    else
        ignis__fail_because((ignis_diagnostic)setup->mine.failed, setup->call, error,
                            error ? ignis__cuda_name(error) : NULL, NULL, "%s", setup->mine.why);
}
