/*  >>job.message - messages of a job, and the state of each rank

    One watcher thread reads the messages of all ranks and notices who died; it tells the communicators.
    Uses: connections, the poller, threads.
    Invariants: a rank counts as dead when its connection ends without a goodbye; messages of one rank are
    delivered in order.
    Locks: job->lock guards links, watches and messages; take the locks of a connection first. */

#include "room.h"

enum { IGNIS__JOB_QUEUED = 1024 }; /* messages of one rank that no agreement has asked for */

/*  Returns the connection that leads to a rank. */
static ignis__connection *ignis__job_route(ignis__job *job, int to)
{
    return job->links[job->links[to].connection ? to : 0].connection;
}

IGNIS__PRIVATE ignis__job_outgoing ignis__job_outgoing_make(int from, int to, ignis__job_kind kind, uint64_t key,
                                                            const void *data, size_t size)
{
    ignis__job_outgoing message;
    message.header.from = from;
    message.header.to = to;
    message.header.key = key;
    message.kind = kind;
    message.data = data;
    message.size = size;
    message.fd = -1;
    return message;
}

/*  Sends one message. False: the peer is gone, or *late. */
IGNIS__PRIVATE bool ignis__job_send_message(ignis__job *job, const ignis__job_outgoing *message, int64_t deadline,
                                            bool *late)
{
    unsigned char bytes[sizeof(ignis__job_header) + IGNIS__JOB_DATA];
    ignis__connection *connection = ignis__job_route(job, message->header.to);
    ignis__peer_error error;
    const ignis__deadline until = ignis__deadline_at(deadline);
    bool ok;
    *late = false;
    memcpy(bytes, &message->header, sizeof message->header);
    if (message->size)
        memcpy(bytes + sizeof message->header, message->data, message->size);
    if (!connection || (message->fd >= 0 && !connection->kind->descriptors))
        return false;
    ignis__mutex_lock(&connection->send_lock);
    ok = ignis__connection_send(&error, connection, (int)IGNIS__MESSAGE_JOB + (int)message->kind, bytes,
                                sizeof message->header + message->size, &message->fd, message->fd >= 0, &until);
    *late = !ok && error.diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT;
    if (!ok && error.diagnostic == IGNIS_DIAG_CHANNEL_IO) /* the watcher knows more about dead ranks */
        ignis__log(IGNIS_LOG_WARNING, error.diagnostic, "rank %d cannot send to rank %d: %s", (int)message->header.from,
                   (int)message->header.to, error.why);
    ignis__mutex_unlock(&connection->send_lock);
    if (ignis__atomic_load(&connection->unsent))
        ignis__poller_wake(&job->poller); /* the watcher sends the rest */
    return ok;
}

/*  Sends a short message without a reply. Errors are ignored: a dead peer is detected elsewhere. */
IGNIS__PRIVATE bool ignis__job_send(ignis__job *job, int to, ignis__job_kind kind, uint64_t key, const void *data,
                                    size_t size)
{
    const ignis__job_outgoing message = ignis__job_outgoing_make(job->rank, to, kind, key, data, size);
    bool late;
    return ignis__job_send_message(job, &message, ignis__monotonic_ns() + 200 * IGNIS__MILLISECOND, &late);
}

IGNIS__PRIVATE void ignis__job_send_all(ignis__job *job, const int *member, int count, ignis__job_kind kind,
                                        uint64_t key)
{
    int i;
    for (i = 0; job->links && i < count; i++)
        if (member[i] != job->rank)
            (void)ignis__job_send(job, member[i], kind, key, NULL, 0);
}

/*  Tells the other ranks of a communicator what broke it. */
IGNIS__PRIVATE void ignis__job_send_fault(ignis__job *job, const int *member, int count, uint64_t key,
                                          const ignis__job_fault *cause)
{
    int i;
    for (i = 0; job->links && i < count; i++)
        if (member[i] != job->rank)
            (void)ignis__job_send(job, member[i], IGNIS__JOB_FAULT, key, cause, sizeof *cause);
}

/*  Tells an event to the communicators of a rank, or to the one with a key. The job is locked. */
static void ignis__job_notify(ignis__job *job, ignis__job_event event, int rank, uint64_t key)
{
    ignis__job_watch *watch;
    int i;
    for (watch = job->watches; watch; watch = watch->next) {
        for (i = 0; i < watch->count; i++) {
            if (watch->member[i] != rank || (key && key != watch->key))
                continue;
            watch->gone[i] |= event == IGNIS__JOB_LEFT;
            watch->notify(watch->owner, event, i, 0);
        }
    }
    ignis__condition_wake(&job->changed);
}

/*  Tells a failure that another rank has reported to the communicator with a key. The job is locked. */
static void ignis__job_notify_fault(ignis__job *job, uint64_t key, const ignis__job_fault *cause)
{
    ignis__job_watch *watch;
    int i;
    for (watch = job->watches; watch; watch = watch->next) {
        if (watch->key != key)
            continue;
        for (i = watch->count - 1; i >= 0 && watch->member[i] != cause->rank; i--)
            ;
        watch->notify(watch->owner, IGNIS__JOB_FAILED, i, cause->code);
    }
    ignis__condition_wake(&job->changed);
}

/*  Marks a rank as dead. Rank 0 tells the ranks that have no connection to it. The job is locked. */
static void ignis__job_rank_died(ignis__job *job, int rank)
{
    int32_t number = rank;
    int i;
    if (rank == job->rank || job->links[rank].state != IGNIS__JOB_ALIVE)
        return;
    job->links[rank].state = IGNIS__JOB_DEAD;
    ignis__job_notify(job, IGNIS__JOB_DIED, rank, 0);
    for (i = 1; i < job->size && job->rank == 0; i++)
        if (job->ranks[i].host != job->ranks[rank].host && job->links[i].state == IGNIS__JOB_ALIVE)
            (void)ignis__job_send(job, i, IGNIS__JOB_LOST, 0, &number, sizeof number);
    for (i = 1; i < job->size && rank == 0; i++)
        if (!job->links[i].connection)
            ignis__job_rank_died(job, i);
}

/*  Keeps a record until an agreement asks for it. False if too many are waiting. */
static bool ignis__job_queue(ignis__job *job, const ignis__job_header *header, ignis__connection *connection,
                             const unsigned char *data, size_t size)
{
    ignis__job_message *message = (ignis__job_message *)ignis__alloc(sizeof *message), **last;
    ignis__job_link *from = &job->links[header->from];
    bool ok;
    if (!message)
        return false;
    message->key = header->key;
    message->size = size;
    message->fd = connection->inbox_fd_count ? connection->inbox_fds[0] : -1;
    connection->inbox_fd_count = 0; /* owned by the message now */
    memcpy(message->data, data, size);
    ignis__mutex_lock(&job->lock);
    for (last = &from->first; *last; last = &(*last)->next)
        ;
    *last = message;
    ok = ++from->queued <= IGNIS__JOB_QUEUED;
    ignis__condition_wake(&job->changed);
    ignis__mutex_unlock(&job->lock);
    return ok;
}

/*  Handles the message in the inbox. False: it breaks the protocol, so the sender counts as dead. */
static bool ignis__job_deliver(ignis__job *job, int through, ignis__connection *connection)
{
    const ignis__message_header frame = ignis__message_header_read(connection);
    const unsigned char *data = connection->inbox + sizeof frame + sizeof(ignis__job_header);
    const size_t size = frame.size - sizeof(ignis__job_header);
    const int kind = (int)frame.type - (int)IGNIS__MESSAGE_JOB;
    ignis__job_header header;
    ignis__job_outgoing forwarded;
    ignis__job_fault cause;
    int32_t number = 0;
    bool ok, late;
    if (frame.size < sizeof header || size > IGNIS__JOB_DATA || frame.fd_count > 1)
        return false;
    memcpy(&header, connection->inbox + sizeof frame, sizeof header);
    if (header.from < 0 || header.from >= job->size || header.from == job->rank || header.to < 0 ||
        header.to >= job->size || (header.from != through && (through != 0 || job->links[header.from].connection)))
        return false;
    if (header.to != job->rank) { /* rank 0 forwards messages between hosts */
        if (job->rank != 0 || !job->links[header.to].connection)
            return false;
        forwarded = ignis__job_outgoing_make(header.from, header.to, (ignis__job_kind)kind, header.key, data, size);
        (void)ignis__job_send_message(job, &forwarded, ignis__monotonic_ns() + 1000 * IGNIS__MILLISECOND, &late);
        return true;
    }
    if (kind == IGNIS__JOB_RECORD)
        return ignis__job_queue(job, &header, connection, data, size);
    ignis__mutex_lock(&job->lock);
    ok = true;
    switch (kind) {
    case IGNIS__JOB_LEAVE: ignis__job_notify(job, IGNIS__JOB_LEFT, header.from, header.key); break;
    case IGNIS__JOB_ABORT: ignis__job_notify(job, IGNIS__JOB_ABORTED, header.from, header.key); break;
    case IGNIS__JOB_FAULT:
        ok = size == sizeof cause;
        if (ok) {
            memcpy(&cause, data, sizeof cause);
            ignis__job_notify_fault(job, header.key, &cause);
        }
        break;
    case IGNIS__JOB_BYE:
        if (job->links[header.from].state == IGNIS__JOB_ALIVE) {
            job->links[header.from].state = IGNIS__JOB_GONE;
            ignis__job_notify(job, IGNIS__JOB_LEFT, header.from, 0);
        }
        break;
    case IGNIS__JOB_BEAT: break;
    case IGNIS__JOB_LOST:
        ok = header.from == 0 && size == sizeof number;
        if (ok)
            memcpy(&number, data, sizeof number);
        ok = ok && number > 0 && number < job->size;
        if (ok)
            ignis__job_rank_died(job, number);
        break;
    default: ok = false;
    }
    ignis__mutex_unlock(&job->lock);
    return ok;
}

/*  Reads the messages of a rank, and sends what was left. Any thread may call it. */
static void ignis__job_read(ignis__job *job, int rank)
{
    ignis__connection *connection = job->links[rank].connection;
    ignis__peer_error error;
    bool valid = true;
    ignis__mutex_lock(&connection->receive_lock);
    if (!job->links[rank].ended) { /* changes with both locks held */
        ignis__connection_send_rest(connection);
        while (valid && ignis__connection_receive(&error, connection, &ignis__deadline_now)) {
            ignis__atomic_store(&job->links[rank].heard, 1);
            valid = ignis__job_deliver(job, rank, connection);
            ignis__inbox_remove(connection);
        }
        if (!valid || error.diagnostic != IGNIS_DIAG_CHANNEL_TIMEOUT) { /* no more messages will come */
            ignis__mutex_lock(&job->lock);
            job->links[rank].ended = true;
            ignis__job_rank_died(job, rank);
            ignis__mutex_unlock(&job->lock);
        }
    }
    ignis__mutex_unlock(&connection->receive_lock);
}

/*  Reads all messages that have come, without waiting for the watcher. */
IGNIS__PRIVATE void ignis__job_catch_up(ignis__job *job)
{
    int i;
    for (i = 0; job->links && i < job->size; i++)
        if (job->links[i].connection)
            ignis__job_read(job, i);
}

/*  Sends a message without waiting: it is dropped if another thread sends, or if the peer reads nothing. */
static void ignis__job_beat(ignis__job *job, int rank)
{
    const ignis__job_outgoing message = ignis__job_outgoing_make(job->rank, rank, IGNIS__JOB_BEAT, 0, NULL, 0);
    ignis__connection *connection = job->links[rank].connection;
    ignis__peer_error error;
    if (!ignis__mutex_try(&connection->send_lock))
        return;
    (void)ignis__connection_send(&error, connection, (int)IGNIS__MESSAGE_JOB + (int)message.kind, &message.header,
                                 sizeof message.header, NULL, 0, &ignis__deadline_now);
    ignis__mutex_unlock(&connection->send_lock);
}

/*  Ends the connection to a rank that was silent, as if the rank had died. If it only was stopped, it learns of that
    when it goes on. */
static void ignis__job_end_silent(ignis__job *job, int rank)
{
    ignis__connection *connection = job->links[rank].connection;
    ignis__log(IGNIS_LOG_WARNING, IGNIS_DIAG_COMM_PEER,
               "rank %d: nothing came from rank %d for %g s, it counts as dead", job->rank, rank,
               (double)job->ranks[job->rank].heartbeat_ms / 1e3);
    ignis__mutex_lock(&connection->receive_lock);
    ignis__mutex_lock(&job->lock);
    job->links[rank].ended = true;
    ignis__job_rank_died(job, rank);
    ignis__mutex_unlock(&job->lock);
    if (connection->kind->shutdown)
        connection->kind->shutdown(connection);
    ignis__mutex_unlock(&connection->receive_lock);
}

/*  Sends a heartbeat to each connected rank, and ends the connections of those that sent nothing for
    IGNIS__JOB_BEATS beats. Beats are counted instead of time, which also passes while this process is stopped. */
static void ignis__job_beat_all(ignis__job *job)
{
    int i;
    for (i = 0; i < job->size; i++) {
        ignis__job_link *link = &job->links[i];
        if (!link->connection || link->ended)
            continue;
        link->silent = ignis__atomic_load(&link->heard) ? 0 : link->silent + 1;
        ignis__atomic_store(&link->heard, 0);
        if (link->silent > IGNIS__JOB_BEATS)
            ignis__job_end_silent(job, i);
        else
            ignis__job_beat(job, i);
    }
}

/*  Returns how long the watcher may wait for messages, in ms; -1: without limit. */
static int ignis__job_pause_ms(bool ticking, int64_t beat_ns, int64_t next_beat)
{
    const int64_t left = (next_beat - ignis__monotonic_ns()) / IGNIS__MILLISECOND + 1;
    if (!beat_ns || (ticking && left > IGNIS__JOB_TICK_MS))
        return ticking ? IGNIS__JOB_TICK_MS : -1;
    return left > 0 ? (int)left : 0;
}

IGNIS__PRIVATE IGNIS__THREAD_RESULT ignis__job_watcher(void *pointer)
{
    ignis__job *job = (ignis__job *)pointer;
    ignis__poller *poller = &job->poller;
    const int64_t beat_ns = job->ranks[job->rank].heartbeat_ms * IGNIS__MILLISECOND / IGNIS__JOB_BEATS;
    int64_t ticked = 0, next_beat = ignis__monotonic_ns() + beat_ns;
    for (;;) {
        int i;
        bool ending, ticking = false;
        ignis__job_watch *watch;
        ignis__mutex_lock(&job->lock);
        for (i = 0; i < job->size; i++)
            poller->connection[i] = job->links[i].ended ? NULL : job->links[i].connection;
        ending = job->ending;
        for (watch = job->watches; watch; watch = watch->next)
            ticking |= watch->ticks;
        if (ticking && ignis__monotonic_ns() - ticked >= (int64_t)IGNIS__JOB_TICK_MS * 1000000) {
            for (watch = job->watches; watch; watch = watch->next)
                if (watch->ticks)
                    watch->notify(watch->owner, IGNIS__JOB_TICK, -1, 0);
            ticked = ignis__monotonic_ns();
        }
        ignis__mutex_unlock(&job->lock);
        if (ending)
            return 0;
        ignis__poller_wait(poller, ignis__job_pause_ms(ticking, beat_ns, next_beat));
        for (i = 0; i < job->size; i++) {
            const ignis__connection *connection = poller->connection[i];
            if (connection && (poller->is_ready[i] || ignis__atomic_load(&connection->unsent)))
                ignis__job_read(job, i);
        }
        if (beat_ns && ignis__monotonic_ns() >= next_beat) {
            ignis__job_beat_all(job);
            next_beat = ignis__monotonic_ns() + beat_ns;
        }
    }
}

/*  Destroys a job in any state. */
IGNIS__COLD IGNIS__PRIVATE void ignis__job_end(ignis__job *job)
{
    int i;
    if (job->watched) {
        for (i = 0; i < job->size; i++)
            if (i != job->rank)
                (void)ignis__job_send(job, i, IGNIS__JOB_BYE, 0, NULL, 0);
        ignis__mutex_lock(&job->lock);
        job->ending = true;
        ignis__mutex_unlock(&job->lock);
        ignis__poller_wake(&job->poller);
        ignis__thread_join(job->watcher);
    }
    for (i = 0; job->links && i < job->size; i++) {
        while (job->links[i].first) {
            ignis__job_message *message = job->links[i].first;
            job->links[i].first = message->next;
            ignis__fd_close(&message->fd);
            ignis__free(message);
        }
        ignis__connection_destroy(job->links[i].connection);
    }
    if (job->has_poller)
        ignis__poller_close(&job->poller);
    if (job->ready)
        ignis__condition_end(&job->changed);
    ignis__free(job->links);
    ignis__free(job->poller.connection);
    ignis__free(job->poller.is_ready);
    ignis__free(job->ranks);
    ignis__free(job);
}

/*  Registers a watch: from here on it is told of its members. */
IGNIS__PRIVATE void ignis__job_watch_begin(ignis__job *job, ignis__job_watch *watch)
{
    int i;
    if (!job->links)
        return;
    ignis__mutex_lock(&job->lock);
    watch->next = job->watches;
    job->watches = watch;
    for (i = 0; i < watch->count; i++)
        if (job->links[watch->member[i]].state == IGNIS__JOB_DEAD)
            watch->notify(watch->owner, IGNIS__JOB_DIED, i, 0);
    ignis__mutex_unlock(&job->lock);
}

/*  Makes a watch tick: from here on it is told that time passes. */
IGNIS__PRIVATE void ignis__job_watch_tick(ignis__job *job, ignis__job_watch *watch)
{
    if (!job->links)
        return;
    ignis__mutex_lock(&job->lock);
    watch->ticks = true;
    ignis__mutex_unlock(&job->lock);
    ignis__poller_wake(&job->poller);
}

/*  Removes a watch and the messages for its key. */
IGNIS__PRIVATE void ignis__job_watch_end(ignis__job *job, ignis__job_watch *watch)
{
    ignis__job_watch **at;
    int i;
    if (!job->links)
        return;
    ignis__mutex_lock(&job->lock);
    for (at = &job->watches; *at && *at != watch; at = &(*at)->next)
        ;
    if (*at)
        *at = watch->next;
    for (i = 0; i < job->size; i++) {
        ignis__job_message **message = &job->links[i].first;
        while (*message) {
            ignis__job_message *old = *message;
            if (old->key != watch->key) {
                message = &old->next;
                continue;
            }
            *message = old->next;
            job->links[i].queued--;
            ignis__fd_close(&old->fd);
            ignis__free(old);
        }
    }
    ignis__mutex_unlock(&job->lock);
}

/*  Returns the state of a rank for a communicator (NULL: for the job). The job is locked. */
IGNIS__PRIVATE ignis__job_state ignis__job_state_in(const ignis__job *job, const ignis__job_watch *watch, int rank)
{
    int i;
    if (job->links[rank].state == IGNIS__JOB_ALIVE)
        for (i = 0; watch && i < watch->count; i++)
            if (watch->member[i] == rank && watch->gone[i])
                return IGNIS__JOB_GONE;
    return job->links[rank].state;
}

/*  Tells if a rank has died, or left a communicator. */
IGNIS__PRIVATE bool ignis__job_rank_is_absent(ignis__job *job, const ignis__job_watch *watch, int rank)
{
    bool absent;
    if (!job->links)
        return false;
    ignis__mutex_lock(&job->lock);
    absent = ignis__job_state_in(job, watch, rank) != IGNIS__JOB_ALIVE;
    ignis__mutex_unlock(&job->lock);
    return absent;
}
