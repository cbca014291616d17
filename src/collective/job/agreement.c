/*  What a record begins with. */
typedef struct ignis__joint_head {
    uint32_t attempt, print;
} ignis__joint_head;

static ignis__joint_head ignis__joint_head_of(const ignis__job_message *message)
{
    ignis__joint_head head;
    memset(&head, 0, sizeof head);
    memcpy(&head, message->data, message->size < sizeof head ? 0 : sizeof head);
    return head;
}

/*  Whether a rank has given up the attempt that a message of it belongs to. */
static bool ignis__joint_void(const ignis__job_message *message)
{
    ignis__joint_head head = ignis__joint_head_of(message), later = head;
    const ignis__job_message *next = message->next;
    for (; next && later.print != IGNIS__JOINT_GIVEN_UP; next = next->next)
        if (next->key == message->key && ignis__joint_head_of(next).attempt == head.attempt)
            later = ignis__joint_head_of(next);
    return later.print == IGNIS__JOINT_GIVEN_UP;
}

/*  With the job locked: the next record of a rank for what is under way, taken out of its messages; null when
    none has come, or the failure is noted. Dropped are records of earlier attempts, those that the rank has
    given up, and those of one that is in something that counts less. */
static ignis__job_message *ignis__joint_find(ignis__joint *joint, int rank)
{
    ignis__job_link *link = &joint->job->links[rank];
    ignis__job_message **at = &link->first, *message;
    while ((message = *at) != NULL) {
        ignis__joint_head head = ignis__joint_head_of(message);
        bool stale = ignis__joint_void(message) || head.attempt < joint->attempt ||
                     (head.attempt == joint->attempt && head.print >> 28 < joint->print >> 28);
        if (message->key != joint->key) {
            at = &message->next;
            continue;
        }
        if (!stale && head.attempt > joint->attempt) {
            joint->attempt = head.attempt;
            joint->overtaken = true;
            return NULL;
        }
        if (!stale && head.print != joint->print) {
            joint->failure.reason = IGNIS__JOINT_DIFFERS;
            joint->failure.rank = rank;
            joint->failure.theirs = head.print;
            return NULL;
        }
        *at = message->next;
        link->queued--;
        if (!stale)
            return message;
        ignis__fd_drop(&message->fd);
        ignis__free(message);
    }
    return NULL;
}

/*  With the job locked: takes what has come from the ranks that are waited for, and returns how many have yet
    to come; -1: the failure is noted. */
static int ignis__joint_take(ignis__joint *joint, size_t size, void *all, int *fds)
{
    int i, missing = 0;
    for (i = 0; i < joint->count; i++) {
        ignis__job_message *message;
        if (ignis__bit(joint->came, i))
            continue;
        message = ignis__joint_find(joint, joint->member[i]);
        if (joint->overtaken)
            return -1;
        if (message || (joint->failure.reason == IGNIS__JOINT_DIFFERS && joint->failure.rank == joint->member[i]))
            ignis__bit_set(joint->came, i);
        else if (!missing++ && joint->failure.reason == IGNIS__JOINT_LATE)
            joint->failure.rank = joint->member[i];
        if (!message)
            continue;
        if (message->size == sizeof(ignis__joint_head) + size)
            memcpy((char *)all + (size_t)i * size, message->data + sizeof(ignis__joint_head), size);
        else
            memset((char *)all + (size_t)i * size, 0, size);
        if (fds)
            fds[i] = message->fd;
        else
            ignis__fd_drop(&message->fd);
        ignis__free(message);
    }
    if (joint->failure.reason == IGNIS__JOINT_DIFFERS)
        return -1;
    /* one that died after its record had come keeps the others from going on, too */
    for (i = 0; missing && i < joint->count; i++) {
        ignis__job_state state = ignis__job_state_in(joint->job, joint->watch, joint->member[i]);
        bool here = i == joint->me || (joint->without && ignis__bit(joint->without, i));
        if (!here && (state == IGNIS__JOB_DEAD || (state == IGNIS__JOB_GONE && !ignis__bit(joint->came, i)))) {
            joint->failure.reason = IGNIS__JOINT_LOST;
            joint->failure.rank = joint->member[i];
            return -1;
        }
    }
    return missing;
}

/*  One step: every rank gives a record of `size` bytes, and a descriptor unless it is -1, and gets those of
    all: all[i] and fds[i] of member i. No rank ends with success unless all have given theirs. False:
    joint->overtaken or joint->failure tells why, and no descriptor is kept. Nothing is reported. */
static bool ignis__joint_step(ignis__joint *joint, const void *mine, size_t size, void *all, int fd, int *fds)
{
    ignis__job *job = joint->job;
    unsigned char record[IGNIS__JOB_DATA];
    ignis__joint_head head;
    bool expired = false, late = false;
    int i, missing = 0;
    joint->overtaken = false;
    joint->failed = true;
    joint->failure.reason = IGNIS__JOINT_LATE;
    head.attempt = joint->attempt;
    head.print = joint->print;
    memcpy(record, &head, sizeof head);
    memcpy(record + sizeof head, mine, size);
    memset(joint->came, 0, sizeof joint->came);
    memcpy((char *)all + (size_t)joint->me * size, mine, size);
    for (i = 0; fds && i < joint->count; i++)
        fds[i] = -1;
    for (i = 0; i < joint->count; i++) {
        bool waits = !(joint->without && ignis__bit(joint->without, i));
        if (i == joint->me || !waits)
            ignis__bit_set(joint->came, i);
        if (i == joint->me ||
            ignis__job_send_as(job, job->rank, joint->member[i], IGNIS__JOB_RECORD, joint->key, record,
                               sizeof head + size, waits ? fd : -1, waits ? joint->deadline : 0, &late))
            continue;
        if (late && waits) {
            joint->failure.rank = joint->member[i];
            return false;
        }
    }
    if (joint->count == 1) {
        joint->failed = false;
        return true;
    }
    ignis__mutex_lock(&job->lock);
    while ((missing = ignis__joint_take(joint, size, all, fds)) > 0 && !expired)
        expired = !ignis__condition_wait_until(&job->changed, &job->lock, joint->deadline);
    ignis__mutex_unlock(&job->lock);
    for (i = 0; missing && fds && i < joint->count; i++)
        ignis__fd_drop(&fds[i]);
    joint->failed = missing != 0;
    return !joint->failed;
}

/*  Who gives up says so: what it has said before shall mislead nobody who comes later. Those who are at
    something else are to see that it differs. */
static void ignis__joint_give_up(const ignis__joint *joint)
{
    ignis__joint_head head;
    int i;
    head.attempt = joint->attempt;
    head.print = IGNIS__JOINT_GIVEN_UP;
    for (i = 0; i < joint->count; i++) {
        bool at_it = ignis__bit(joint->came, i) && !(joint->without && ignis__bit(joint->without, i));
        if (i != joint->me && !(joint->failure.reason == IGNIS__JOINT_DIFFERS && at_it))
            (void)ignis__job_send(joint->job, joint->member[i], IGNIS__JOB_RECORD, joint->key, &head, sizeof head);
    }
}
