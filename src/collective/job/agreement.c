/*  >>job.agreement - agreements: ranks exchange records, all or none

    In each step every rank gives a record and receives those of all. Nothing is reported here.
    Uses: messages of the job.
    Invariants: no rank succeeds in a step unless all have given their records; records of abandoned attempts
    are never used.
    Locks: the job's lock, released while waiting. */

#include "room.h"

/*  The start of each record. */
typedef struct ignis__agreement_header {
    uint32_t attempt, print;
} ignis__agreement_header;

static ignis__agreement_header ignis__agreement_header_read(const ignis__job_message *message)
{
    ignis__agreement_header header;
    memset(&header, 0, sizeof header);
    memcpy(&header, message->data, message->size < sizeof header ? 0 : sizeof header);
    return header;
}

/*  Tells if the sender of a message has given up the attempt that the message belongs to. */
static bool ignis__agreement_is_void(const ignis__job_message *message)
{
    ignis__agreement_header header = ignis__agreement_header_read(message), later = header;
    const ignis__job_message *next = message->next;
    for (; next && later.print != IGNIS__AGREEMENT_GIVEN_UP; next = next->next)
        if (next->key == message->key && ignis__agreement_header_read(next).attempt == header.attempt)
            later = ignis__agreement_header_read(next);
    return later.print == IGNIS__AGREEMENT_GIVEN_UP;
}

/*  Takes the next record of a rank for this agreement from its messages. NULL if none has come, or the
    failure is noted. Drops records of earlier attempts, of attempts that the rank has given up, and of kinds
    that count less. The job is locked. */
static ignis__job_message *ignis__agreement_find(ignis__agreement *agreement, int rank)
{
    ignis__job_link *link = &agreement->job->links[rank];
    ignis__job_message **at = &link->first, *message;
    while ((message = *at) != NULL) {
        ignis__agreement_header header = ignis__agreement_header_read(message);
        bool stale = ignis__agreement_is_void(message) || header.attempt < agreement->attempt ||
                     (header.attempt == agreement->attempt && header.print >> 28 < agreement->print >> 28);
        if (message->key != agreement->key) {
            at = &message->next;
            continue;
        }
        if (!stale && header.attempt > agreement->attempt) {
            agreement->attempt = header.attempt;
            agreement->overtaken = true;
            return NULL;
        }
        if (!stale && header.print != agreement->print) {
            agreement->failure.reason = IGNIS__AGREEMENT_DIFFERS;
            agreement->failure.rank = rank;
            agreement->failure.theirs = header.print;
            return NULL;
        }
        *at = message->next;
        link->queued--;
        if (!stale)
            return message;
        ignis__fd_close(&message->fd);
        ignis__free(message);
    }
    return NULL;
}

/*  Takes the records that have come. Returns how many are missing; -1 if the failure is noted. The job is
    locked. */
static int ignis__agreement_take(ignis__agreement *agreement, size_t size, void *all, int *fds)
{
    int i, missing = 0;
    for (i = 0; i < agreement->count; i++) {
        ignis__job_message *message;
        if (ignis__bit(agreement->came, i))
            continue;
        message = ignis__agreement_find(agreement, agreement->member[i]);
        if (agreement->overtaken)
            return -1;
        if (message ||
            (agreement->failure.reason == IGNIS__AGREEMENT_DIFFERS && agreement->failure.rank == agreement->member[i]))
            ignis__bit_set(agreement->came, i);
        else if (!missing++ && agreement->failure.reason == IGNIS__AGREEMENT_LATE)
            agreement->failure.rank = agreement->member[i];
        if (!message)
            continue;
        if (message->size == sizeof(ignis__agreement_header) + size)
            memcpy((char *)all + (size_t)i * size, message->data + sizeof(ignis__agreement_header), size);
        else
            memset((char *)all + (size_t)i * size, 0, size);
        if (fds)
            fds[i] = message->fd;
        else
            ignis__fd_close(&message->fd);
        ignis__free(message);
    }
    if (agreement->failure.reason == IGNIS__AGREEMENT_DIFFERS)
        return -1;
    /* a rank that died after its record came stops the others, too */
    for (i = 0; missing && i < agreement->count; i++) {
        ignis__job_state state = ignis__job_state_in(agreement->job, agreement->watch, agreement->member[i]);
        bool here = i == agreement->me || (agreement->without && ignis__bit(agreement->without, i));
        if (!here && (state == IGNIS__JOB_DEAD || (state == IGNIS__JOB_GONE && !ignis__bit(agreement->came, i)))) {
            agreement->failure.reason = IGNIS__AGREEMENT_LOST;
            agreement->failure.rank = agreement->member[i];
            return -1;
        }
    }
    return missing;
}

/*  Runs one step: every rank gives a record of `size` bytes, and a descriptor unless it is -1, and receives
    all: all[i] and fds[i] of member i. False: agreement->overtaken or agreement->failure tells why, and no
    descriptor is kept. Nothing is reported. */
IGNIS__PRIVATE bool ignis__agreement_step(ignis__agreement *agreement, const void *mine, size_t size, void *all, int fd,
                                          int *fds)
{
    ignis__job *job = agreement->job;
    unsigned char record[IGNIS__JOB_DATA];
    ignis__agreement_header header;
    ignis__job_outgoing message;
    bool expired = false, late = false;
    int i, missing = 0;
    agreement->overtaken = false;
    agreement->failed = true;
    agreement->failure.reason = IGNIS__AGREEMENT_LATE;
    header.attempt = agreement->attempt;
    header.print = agreement->print;
    memcpy(record, &header, sizeof header);
    memcpy(record + sizeof header, mine, size);
    memset(agreement->came, 0, sizeof agreement->came);
    memcpy((char *)all + (size_t)agreement->me * size, mine, size);
    for (i = 0; fds && i < agreement->count; i++)
        fds[i] = -1;
    for (i = 0; i < agreement->count; i++) {
        bool waits = !(agreement->without && ignis__bit(agreement->without, i));
        if (i == agreement->me || !waits)
            ignis__bit_set(agreement->came, i);
        if (i == agreement->me)
            continue;
        message = ignis__job_outgoing_make(job->rank, agreement->member[i], IGNIS__JOB_RECORD, agreement->key, record,
                                           sizeof header + size);
        message.fd = waits ? fd : -1;
        if (ignis__job_send_message(job, &message, waits ? agreement->deadline : 0, &late))
            continue;
        if (late && waits) {
            agreement->failure.rank = agreement->member[i];
            return false;
        }
    }
    if (agreement->count == 1) {
        agreement->failed = false;
        return true;
    }
    ignis__mutex_lock(&job->lock);
    while ((missing = ignis__agreement_take(agreement, size, all, fds)) > 0 && !expired)
        expired = !ignis__condition_wait_until(&job->changed, &job->lock, agreement->deadline);
    ignis__mutex_unlock(&job->lock);
    for (i = 0; missing && fds && i < agreement->count; i++)
        ignis__fd_close(&fds[i]);
    agreement->failed = missing != 0;
    return !agreement->failed;
}

/*  Tells the other ranks that this rank gives up, so that its earlier records mislead no rank that comes
    later. Ranks in another agreement see that the kinds differ. */
IGNIS__PRIVATE void ignis__agreement_give_up(const ignis__agreement *agreement)
{
    ignis__agreement_header header;
    int i;
    header.attempt = agreement->attempt;
    header.print = IGNIS__AGREEMENT_GIVEN_UP;
    for (i = 0; i < agreement->count; i++) {
        bool at_it = ignis__bit(agreement->came, i) && !(agreement->without && ignis__bit(agreement->without, i));
        if (i != agreement->me && !(agreement->failure.reason == IGNIS__AGREEMENT_DIFFERS && at_it))
            (void)ignis__job_send(agreement->job, agreement->member[i], IGNIS__JOB_RECORD, agreement->key, &header,
                                  sizeof header);
    }
}
