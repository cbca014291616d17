/*  >>job.rendezvous - rendezvous: how the ranks of a job meet

    All ranks connect to rank 0, which sends them the table of ranks or the reason why they cannot start. Then
    the ranks of a host connect with each other.
    Uses: listeners, messages.
    Invariants: all ranks succeed or all are told why not; no wait exceeds the timeout.
    Locks: none; one thread per job works here. */

#include "room.h"

/*  The answer of rank 0 when all ranks have come; the table follows, unless it tells why they cannot take
    part. */
typedef struct ignis__answer {
    int32_t refused; /* a diagnostic, or 0 */
    int32_t unused;
    uint64_t key, origin;
    unsigned char secret[IGNIS__SECRET];
    char why[256];
} ignis__answer;

/*  The claim of a rank to another one of its host. */
typedef struct ignis__mesh_claim {
    int32_t from, to;
} ignis__mesh_claim;

/*  A rendezvous in one rank. */
typedef struct ignis__rendezvous {
    const char *call;
    ignis__job *job;
    const ignis__place *place;
    int64_t deadline;
    ignis__connection **connections;   /* on rank 0: to each rank; on others: to rank 0, at index 0 */
    ignis__endpoint address;           /* of rank 0 */
    ignis__listener *listener, *local; /* of rank 0 for all; of this rank for those of its host */
    int came;
    int failed; /* a rank that cannot take part, -1: none */
} ignis__rendezvous;

static bool ignis__rendezvous_send(ignis__peer_error *error, ignis__connection *connection, ignis__job_kind kind,
                                   const void *data, size_t size, int64_t deadline)
{
    const ignis__deadline until = ignis__deadline_at(deadline);
    return ignis__connection_send(error, connection, (int)IGNIS__MESSAGE_JOB + (int)kind, data, size, NULL, 0, &until);
}

static bool ignis__rendezvous_receive(ignis__peer_error *error, ignis__connection *connection, ignis__job_kind kind,
                                      void *data, size_t size, int64_t deadline)
{
    const ignis__deadline until = ignis__deadline_at(deadline);
    if (!ignis__connection_receive(error, connection, &until))
        return false;
    if (ignis__message_header_read(connection).type != (int)IGNIS__MESSAGE_JOB + (int)kind ||
        ignis__message_header_read(connection).size != size)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "it sent an unexpected message");
    memcpy(data, connection->inbox + sizeof(ignis__message_header), size);
    ignis__inbox_remove(connection);
    return true;
}

/*  Terminates all texts in the description of a rank. */
static void ignis__job_rank_clean(ignis__job_rank *rank)
{
    rank->path[sizeof rank->path - 1] = 0;
    rank->pci[sizeof rank->pci - 1] = 0;
    rank->failed[sizeof rank->failed - 1] = 0;
}

/*  Admits an authenticated rank. False: it is told why it cannot take part. */
static bool ignis__rendezvous_admit(ignis__rendezvous *rendezvous, ignis__peer_error *error,
                                    ignis__connection *connection)
{
    ignis__job *job = rendezvous->job;
    ignis__job_rank rank;
    const ignis_diagnostic no = IGNIS_DIAG_CHANNEL_MESSAGE;
    if (!ignis__claim_read(error, connection, &rank, sizeof rank))
        return false;
    ignis__job_rank_clean(&rank);
    if (rank.size != job->size)
        return ignis__peer_error_set(error, no, "its size is %d; rank 0 has size %d", (int)rank.size, job->size);
    if (rank.rank < 1 || rank.rank >= job->size)
        return ignis__peer_error_set(error, no, "it claims rank %d, %s", (int)rank.rank,
                                     rank.rank == 0 ? "which is rank 0 itself" : "which is out of range");
    if (rendezvous->connections[rank.rank])
        return ignis__peer_error_set(error, no, "rank %d has already come, as process %d", (int)rank.rank,
                                     (int)job->ranks[rank.rank].pid);
    if (!ignis__connection_welcome(error, connection, IGNIS__HANDSHAKE_BYTES))
        return false;
    if (*rank.failed) { /* those that come soon are told, too */
        const int64_t soon = ignis__monotonic_ns() + 2000 * IGNIS__MILLISECOND;
        rendezvous->failed = rank.rank;
        rendezvous->deadline = soon < rendezvous->deadline ? soon : rendezvous->deadline;
    }
    job->ranks[rank.rank] = rank;
    rendezvous->connections[rank.rank] = connection;
    rendezvous->came++;
    return true;
}

/*  Drops ranks that disconnected while rank 0 waits for the others. No rank sends before the answer. */
static void ignis__rendezvous_drop_lost(ignis__rendezvous *rendezvous)
{
    ignis__job *job = rendezvous->job;
    int i;
    for (i = 0; i < job->size; i++)
        job->poller.connection[i] = rendezvous->connections[i];
    ignis__poller_wait(&job->poller, 0);
    for (i = 0; i < job->size; i++)
        if (job->poller.is_ready[i]) {
            ignis__connection_destroy(rendezvous->connections[i]);
            rendezvous->connections[i] = NULL;
            rendezvous->came--;
        }
}

/*  Lists the ranks that rank 0 still waits for: "1, 2, 5". */
static void ignis__rendezvous_missing(const ignis__rendezvous *rendezvous, char *out, size_t size)
{
    ignis__string_writer text;
    int i;
    ignis__string_begin(&text, out, size);
    for (i = 1; i < rendezvous->job->size; i++)
        if (!rendezvous->connections[i])
            ignis__string_add(&text, "%s%d", text.length ? ", " : "", i);
}

/*  Checks on rank 0 that the ranks can work together. Two ranks of a host on one GPU would wait for each
    other for ever. */
static bool ignis__rendezvous_check(const ignis__rendezvous *rendezvous, char *why, size_t size)
{
    static const char *const transports[] = {"the best transport", "peer", "staged", "nccl"};
    const ignis__job_rank *ranks = rendezvous->job->ranks;
    int i, k;
    for (i = 0; i < rendezvous->job->size; i++) {
        if (ranks[i].transport != ranks[0].transport) {
            snprintf(why, size, "rank 0 requests %s and rank %d %s", transports[ranks[0].transport & 3], i,
                     transports[ranks[i].transport & 3]);
            return false;
        }
        if (ranks[i].heartbeat_ms != ranks[0].heartbeat_ms) {
            snprintf(why, size, "rank 0 has a heartbeat of %g s and rank %d of %g s; expected one on all ranks",
                     ranks[0].heartbeat_ms / 1e3, i, ranks[i].heartbeat_ms / 1e3);
            return false;
        }
        if (ranks[i].origin && rendezvous->job->origin && ranks[i].origin != rendezvous->job->origin) {
            snprintf(why, size, "rank %d comes from another job than lower ranks; expected ranks of one job", i);
            return false;
        }
        rendezvous->job->origin = ranks[i].origin ? ranks[i].origin : rendezvous->job->origin;
        for (k = 0; k < i; k++)
            if (ranks[i].host == ranks[k].host && memcmp(ranks[i].uuid, ranks[k].uuid, sizeof ranks[i].uuid) == 0 &&
                ranks[0].transport != IGNIS_COMM_STAGED) {
                snprintf(why, size,
                         "ranks %d and %d both use GPU %.15s; set local ranks or desc.device so that each has its own, "
                         "or request IGNIS_COMM_STAGED on all",
                         k, i, ranks[i].pci);
                return false;
            }
    }
    return true;
}

/*  Returns the secret of the rendezvous; NULL: it is in the private folder. */
static const unsigned char *ignis__place_secret(const ignis__place *place)
{
    return place->has_secret ? place->secret : NULL;
}

/*  Waits on rank 0 for all ranks, and sends them the table, or the reason why they cannot start. */
static bool ignis__rendezvous_lead(ignis__rendezvous *rendezvous)
{
    ignis__job *job = rendezvous->job;
    const char *name_path = *rendezvous->place->address ? NULL : rendezvous->address.name_path;
    int64_t deadline = rendezvous->deadline + 1000 * IGNIS__MILLISECOND;
    ignis__answer answer;
    ignis__peer_error error;
    int i, k;
    if (rendezvous->place->by_id && !ignis__id_take(rendezvous->place->secret, &rendezvous->listener->file))
        return ignis__fail_false(
            IGNIS_DIAG_BAD_NUMBER, rendezvous->call,
            "desc.id was created by another process than this one, rank 0, or was already used: rank 0 "
            "creates one for each rendezvous");
    if (!ignis__listener_open(rendezvous->call, &error, rendezvous->listener, name_path,
                              ignis__place_secret(rendezvous->place)))
        return ignis__fail_false(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call, "rank 0 cannot listen at %s: %s",
                                 rendezvous->address.path, error.why);
    while (rendezvous->came < job->size - 1 && ignis__monotonic_ns() < rendezvous->deadline) {
        ignis__deadline until = ignis__deadline_in(50 * IGNIS__MILLISECOND);
        ignis__connection *connection = ignis__listener_next(rendezvous->call, &error, rendezvous->listener, &until);
        if (!connection && error.diagnostic != IGNIS_DIAG_CHANNEL_TIMEOUT)
            ignis__sleep_us(10000); /* a shortage of memory or descriptors may pass */
        /* a rank that has died may be the one that comes */
        ignis__rendezvous_drop_lost(rendezvous);
        if (connection && !ignis__rendezvous_admit(rendezvous, &error, connection))
            ignis__listener_refuse(rendezvous->call, rendezvous->listener, connection, true, error.why);
    }
    ignis__listener_close(rendezvous->listener);
    memset(&answer, 0, sizeof answer);
    answer.key = job->key;
    memcpy(answer.secret, job->secret, sizeof answer.secret);
    if (rendezvous->failed >= 0) {
        snprintf(answer.why, sizeof answer.why, "rank %d: %s", rendezvous->failed,
                 job->ranks[rendezvous->failed].failed);
        answer.refused = IGNIS_DIAG_COMM_RENDEZVOUS;
    } else if (rendezvous->came < job->size - 1) {
        char missing[64];
        ignis__rendezvous_missing(rendezvous, missing, sizeof missing);
        snprintf(answer.why, sizeof answer.why, "%d of %d ranks did not connect to %.64s within %g s: %s%s",
                 job->size - 1 - rendezvous->came, job->size, rendezvous->address.path, (double)job->timeout_ns / 1e9,
                 missing, *rendezvous->place->address ? "" : " (" IGNIS__OTHER_HOSTS ")");
        answer.refused = IGNIS_DIAG_COMM_TIMEOUT;
    } else if (!ignis__rendezvous_check(rendezvous, answer.why, sizeof answer.why)) {
        answer.refused = IGNIS_DIAG_COMM_RENDEZVOUS;
    }
    job->origin = answer.origin = job->origin ? job->origin : job->key;
    for (i = 1; i < job->size; i++) {
        bool sent =
            rendezvous->connections[i] && ignis__rendezvous_send(&error, rendezvous->connections[i], IGNIS__JOB_ANSWER,
                                                                 &answer, sizeof answer, deadline);
        for (k = 0; sent && !answer.refused && k < job->size; k++)
            sent = ignis__rendezvous_send(&error, rendezvous->connections[i], IGNIS__JOB_TABLE, &job->ranks[k],
                                          sizeof job->ranks[k], deadline);
    }
    if (answer.refused && !*job->ranks[0].failed)
        return ignis__fail_false((ignis_diagnostic)answer.refused, rendezvous->call, "%s", answer.why);
    return !answer.refused;
}

/*  Connects to rank 0 and receives the table. */
static bool ignis__rendezvous_join(ignis__rendezvous *rendezvous)
{
    ignis__job *job = rendezvous->job;
    const ignis__place *place = rendezvous->place;
    const ignis__deadline until = ignis__deadline_at(rendezvous->deadline);
    ignis__peer_error error;
    ignis__answer answer;
    ignis__client client;
    int k;
    client.kind = rendezvous->address.kind;
    client.path = rendezvous->address.path;
    client.name_path = rendezvous->address.name_path;
    client.secret = ignis__place_secret(place);
    client.claim = &job->ranks[job->rank];
    client.claim_size = sizeof job->ranks[0];
    client.capacity = IGNIS__HANDSHAKE_BYTES;
    rendezvous->connections[0] = ignis__connection_open(&error, &client, &until);
    if (!rendezvous->connections[0]) {
        if (error.diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT)
            ignis__fail(IGNIS_DIAG_COMM_TIMEOUT, rendezvous->call, "rank %d did not reach rank 0 within %g s: %s%s",
                        job->rank, (double)job->timeout_ns / 1e9, error.why,
                        *place->address ? "" : " (" IGNIS__OTHER_HOSTS ")");
        else
            ignis__fail(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call, "rank %d cannot take part: %s", job->rank,
                        error.why);
        return false;
    }
    if (!ignis__rendezvous_receive(&error, rendezvous->connections[0], IGNIS__JOB_ANSWER, &answer, sizeof answer,
                                   rendezvous->deadline + 500 * IGNIS__MILLISECOND)) {
        bool late = error.diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT;
        return ignis__fail_false(late ? IGNIS_DIAG_COMM_TIMEOUT : IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call,
                                 late ? "rank 0 at %s sent no table to rank %d within %g s: other ranks may be missing"
                                      : "rank 0 at %s died before rank %d had the table (after at most %g s)",
                                 rendezvous->address.path, job->rank, (double)job->timeout_ns / 1e9);
    }
    answer.why[sizeof answer.why - 1] = 0;
    if (answer.refused) {
        if (answer.refused == IGNIS_DIAG_COMM_TIMEOUT)
            ignis__fail(IGNIS_DIAG_COMM_TIMEOUT, rendezvous->call, "%s", answer.why);
        else if (!*job->ranks[job->rank].failed) /* else it knows why */
            ignis__fail(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call, "rank 0 at %s refused rank %d: %s",
                        rendezvous->address.path, job->rank, answer.why);
        return false;
    }
    job->key = answer.key;
    job->origin = answer.origin;
    memcpy(job->secret, answer.secret, sizeof job->secret);
    for (k = 0; k < job->size; k++) {
        if (!ignis__rendezvous_receive(&error, rendezvous->connections[0], IGNIS__JOB_TABLE, &job->ranks[k],
                                       sizeof job->ranks[k], rendezvous->deadline + 1000 * IGNIS__MILLISECOND))
            return ignis__fail_false(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call, "rank 0 at %s disconnected: %s",
                                     rendezvous->address.path, error.why);
        ignis__job_rank_clean(&job->ranks[k]);
    }
    return true;
}

/*  Finds a rank that was lost while the ranks of a host connect: one that has connected, or on rank 0 has not yet done
    so after the table was sent. A rank that gives up ends its connections, so all others give up, too. -1 if there is
    none. */
static int ignis__mesh_lost(const ignis__rendezvous *rendezvous)
{
    int i;
    for (i = 0; i < rendezvous->job->size; i++) {
        ignis__connection *connection = rendezvous->job->links[i].connection;
        connection = connection ? connection : rendezvous->connections[i];
        if (connection && !connection->kind->alive(connection))
            return i;
    }
    return -1;
}

/*  Connects to a rank of this host with a lower number. */
static bool ignis__mesh_connect(ignis__rendezvous *rendezvous, ignis__client *client, int to)
{
    ignis__job *job = rendezvous->job;
    ignis__connection *connection;
    ignis__peer_error error;
    ignis__mesh_claim claim;
    char path[IGNIS__PATH_MAX];
    int64_t slice;
    claim.from = job->rank;
    claim.to = to;
    client->claim = &claim;
    client->path = path;
    ignis__local_path(job->ranks[to].path, path);
    do {
        ignis__deadline until;
        slice = ignis__monotonic_ns() + 500 * IGNIS__MILLISECOND;
        until = ignis__deadline_at(slice < rendezvous->deadline ? slice : rendezvous->deadline);
        connection = ignis__connection_open(&error, client, &until);
    } while (!connection && error.diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT && slice < rendezvous->deadline &&
             ignis__mesh_lost(rendezvous) < 0);
    job->links[to].connection = connection;
    return connection || ignis__fail_false(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call,
                                           "rank %d cannot reach rank %d of its host: %s", job->rank, to, error.why);
}

/*  Connects the ranks of a host: this rank connects to the lower ones and accepts the higher ones. */
static bool ignis__rendezvous_mesh(ignis__rendezvous *rendezvous)
{
    ignis__job *job = rendezvous->job;
    const ignis__job_rank *ranks = job->ranks;
    ignis__mesh_claim claim;
    ignis__client client;
    ignis__peer_error error;
    ignis__connection *connection;
    int i, lost = -1, expected = 0;
    memcpy(rendezvous->local->secret, job->secret, sizeof job->secret);
    client.kind = ignis__connection_kinds[IGNIS_CHANNEL_DEFAULT];
    client.name_path = NULL;
    client.secret = job->secret;
    client.claim_size = sizeof claim;
    client.capacity = IGNIS__HANDSHAKE_BYTES;
    for (i = 0; i < job->size; i++) {
        if (i == job->rank || ranks[i].host != ranks[job->rank].host)
            continue;
        if (i > job->rank)
            expected++;
        else if (!ignis__mesh_connect(rendezvous, &client, i))
            return false;
    }
    memset(&error, 0, sizeof error);
    while (expected > 0 && lost < 0 && ignis__monotonic_ns() < rendezvous->deadline) {
        const ignis__deadline until = ignis__deadline_in(50 * IGNIS__MILLISECOND);
        connection = ignis__listener_next(rendezvous->call, &error, rendezvous->local, &until);
        if (!connection) {
            lost = ignis__mesh_lost(rendezvous);
            if (error.diagnostic != IGNIS_DIAG_CHANNEL_TIMEOUT)
                ignis__sleep_us(10000); /* a shortage of memory or descriptors may pass */
        } else if (ignis__claim_read(&error, connection, &claim, sizeof claim) && claim.to == job->rank &&
                   claim.from > job->rank && claim.from < job->size &&
                   ranks[claim.from].host == ranks[job->rank].host && !job->links[claim.from].connection &&
                   ignis__connection_welcome(&error, connection, IGNIS__HANDSHAKE_BYTES)) {
            job->links[claim.from].connection = connection;
            expected--;
        } else {
            ignis__listener_refuse(rendezvous->call, rendezvous->local, connection, true, "the rank is not expected");
        }
    }
    if (lost >= 0)
        return ignis__fail_false(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call,
                                 "rank %d was lost before all ranks of its host were connected", lost);
    return expected == 0 ||
           ignis__fail_false(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call,
                             "%d ranks did not connect to rank %d of their host: %s", expected, job->rank, error.why);
}

/*  Allocates the lists of a job of several ranks, and the watcher's poller. */
static bool ignis__job_prepare(const char *call, ignis__job *job)
{
    ignis__mutex_init(&job->lock);
    job->poller.count = job->size;
    job->poller.connection =
        (ignis__connection **)ignis__alloc_for(call, sizeof *job->poller.connection * (size_t)job->size);
    job->poller.is_ready = job->poller.connection
                               ? (bool *)ignis__alloc_for(call, sizeof *job->poller.is_ready * (size_t)job->size)
                               : NULL;
    job->links =
        job->poller.is_ready ? (ignis__job_link *)ignis__alloc_for(call, sizeof *job->links * (size_t)job->size) : NULL;
    if (!job->links)
        return false;
    job->ready = ignis__condition_make(&job->changed);
    job->has_poller = job->ready;
    return job->ready ? ignis__poller_open(call, &job->poller)
                      : ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "the system returned no condition variable");
}

/*  Determines where the ranks meet, and opens the listener for ranks of this host. */
static bool ignis__rendezvous_listen(ignis__rendezvous *rendezvous)
{
    const ignis__place *place = rendezvous->place;
    ignis__job_rank *self = &rendezvous->job->ranks[rendezvous->job->rank];
    const ignis__connection_kind *local = ignis__connection_kinds[IGNIS_CHANNEL_DEFAULT];
    char folder[IGNIS__PATH_MAX], path[IGNIS__PATH_MAX];
    ignis__peer_error error;
    uint64_t random = 0;
    snprintf(folder, sizeof folder, "%s", place->folder);
    rendezvous->address.kind = *place->address ? IGNIS__CONNECTION_FAR : local;
    if (!ignis__endpoint_set_paths(rendezvous->call, folder, place->name, &rendezvous->address))
        return false;
    if (*place->address)
        ignis__local_path(place->address, rendezvous->address.path);
    if (!ignis__random_bytes(&random, sizeof random))
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, rendezvous->call, "the system returned no random bytes");
    if (!ignis__local_name(folder, self->rank, random, self->path, sizeof self->path))
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, rendezvous->call,
                                 "the path of the folder %.300s is too long for sockets; expected at most %d bytes",
                                 folder, (int)sizeof self->path - 24);
    ignis__local_path(self->path, path);
    if ((rendezvous->listener =
             ignis__listener_new(rendezvous->call, rendezvous->address.kind, rendezvous->address.path)) == NULL ||
        (rendezvous->local = ignis__listener_new(rendezvous->call, local, path)) == NULL)
        return false;
    return ignis__listener_open(rendezvous->call, &error, rendezvous->local, NULL,
                                rendezvous->job->secret) || /* replaced by the secret of rank 0 */
           ignis__peer_error_report(rendezvous->call, &error) == IGNIS_OK;
}

static bool ignis__rendezvous_run(ignis__rendezvous *rendezvous)
{
    ignis__job *job = rendezvous->job;
    int i;
    if (!ignis__rendezvous_listen(rendezvous) ||
        !(job->rank == 0 ? ignis__rendezvous_lead(rendezvous) : ignis__rendezvous_join(rendezvous)) ||
        !ignis__rendezvous_mesh(rendezvous))
        return false;
    for (i = 0; i < job->size; i++) /* with other hosts, connections to rank 0 stay */
        if (!job->links[i].connection && rendezvous->connections[i] &&
            job->ranks[i].host != job->ranks[job->rank].host) {
            job->links[i].connection = rendezvous->connections[i];
            rendezvous->connections[i] = NULL;
        }
    /* messages that came since wait for the watcher */
    job->watched = ignis__watcher_start(&job->watcher, ignis__job_watcher, job);
    return job->watched || ignis__fail_false(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call,
                                             "rank %d could not start a thread", job->rank);
}

/*  Meets the other ranks of a job. */
static bool ignis__job_connect(const char *call, ignis__job *job, const ignis__place *place)
{
    ignis__rendezvous rendezvous;
    bool ok;
    int i;
    memset(&rendezvous, 0, sizeof rendezvous);
    rendezvous.call = call;
    rendezvous.job = job;
    rendezvous.place = place;
    rendezvous.deadline = ignis__monotonic_ns() + job->timeout_ns;
    rendezvous.failed = -1;
    if (*job->ranks[job->rank].failed) { /* it only tells this to the ranks that came */
        int64_t soon = ignis__monotonic_ns() + 2000 * IGNIS__MILLISECOND;
        rendezvous.deadline = soon < rendezvous.deadline ? soon : rendezvous.deadline;
        rendezvous.failed = job->rank == 0 ? 0 : -1;
    }
    rendezvous.connections =
        (ignis__connection **)ignis__alloc_for(call, sizeof *rendezvous.connections * (size_t)job->size);
    ok = rendezvous.connections && ignis__job_prepare(call, job) && ignis__rendezvous_run(&rendezvous);
    for (i = 0; rendezvous.connections && i < job->size; i++)
        ignis__connection_destroy(rendezvous.connections[i]);
    ignis__listener_free(rendezvous.listener);
    ignis__listener_free(rendezvous.local);
    ignis__free(rendezvous.connections);
    return ok;
}

/*  Creates a job, which the caller holds, and meets its other ranks. self describes this rank. */
IGNIS__COLD IGNIS__PRIVATE ignis__job *ignis__job_meet(const char *call, const ignis__place *place,
                                                       const ignis__job_rank *self, int64_t timeout_ns)
{
    ignis__job *job = (ignis__job *)ignis__alloc_for(call, sizeof *job);
    bool ok;
    if (!job)
        return NULL;
    job->rank = place->rank;
    job->size = place->size;
    job->users = 1;
    job->timeout_ns = timeout_ns;
    job->ranks = (ignis__job_rank *)ignis__alloc_for(call, sizeof *job->ranks * (size_t)job->size);
    ok = job->ranks &&
         ((ignis__random_bytes(job->secret, sizeof job->secret) && ignis__random_bytes(&job->key, sizeof job->key)) ||
          ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "the system returned no random bytes"));
    if (ok) {
        job->ranks[job->rank] = *self;
        job->place = *place;
        job->origin = job->size > 1 ? 0 : self->origin ? self->origin : job->key;
        ok = job->size == 1 || ignis__job_connect(call, job, place);
    }
    if (ok)
        return job;
    ignis__job_end(job);
    return NULL;
}

IGNIS__PRIVATE void ignis__job_hold(ignis__job *job) { ignis__atomic_add(&job->users, 1); }

IGNIS__PRIVATE void ignis__job_drop(ignis__job *job)
{
    if (job && ignis__atomic_add(&job->users, (uint64_t)-1) == 0)
        ignis__job_end(job);
}

/*  Reports the failure of an agreement. Always returns false. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__agreement_failed(const char *call, const ignis__agreement *agreement)
{
    static const char *const kinds[IGNIS__AGREEMENT_KIND_COUNT + 1] = {
        "ignis_comm_init",   "an operation that joins NCCL", "ignis_parallel_create", "ignis_comm_split",
        "ignis_comm_shrink", "an unknown function"};
    const ignis__agreement_failure *failure = &agreement->failure;
    const uint32_t kind = failure->theirs >> 28;
    if (failure->reason == IGNIS__AGREEMENT_LOST)
        return ignis__fail_false(IGNIS_DIAG_COMM_PEER, call, "rank %d has died or left", failure->rank);
    if (failure->reason == IGNIS__AGREEMENT_LATE)
        return ignis__fail_false(IGNIS_DIAG_COMM_TIMEOUT, call, "rank %d did not answer before the deadline",
                                 failure->rank);
    if (kind == agreement->print >> 28)
        return ignis__fail_false(IGNIS_DIAG_COMM_MISMATCH, call, "rank %d excludes other ranks", failure->rank);
    return ignis__fail_false(IGNIS_DIAG_COMM_MISMATCH, call, "rank %d calls %s", failure->rank,
                             kinds[kind < (uint32_t)IGNIS__COUNT(kinds) ? kind : (uint32_t)IGNIS__COUNT(kinds) - 1]);
}
