/*  >>peer.listener - server: accepts connections and checks their proofs

    Accepts clients, runs the handshake of all pending ones, and hands out those that know the secret.
    Uses: connections, files of names.
    Invariants: a client that proves nothing costs one of 64 places, for 5 s at most; the oldest makes room
    for new ones.
    Locks: listener->lock, held by the caller that accepts. */

#include "room.h"

#define IGNIS__LISTENER_PATIENCE_NS 5000000000 /* for the handshake of a client */
#define IGNIS__LISTENER_CROWDED_NS 250000000   /* for the oldest client, while others wait for a place */

/*  Computes a proof over both nonces, so it cannot be replayed, and over the claim, so it belongs to the
    prover. */
IGNIS__PRIVATE void ignis__connection_proof(const ignis__connection *connection, const unsigned char *secret,
                                            bool of_server, const void *claim, size_t size, unsigned char proof[32])
{
    struct {
        char side[8];
        unsigned char nonces[2][IGNIS__NONCE];
    } said;
    memcpy(said.side, of_server ? "server.." : "client..", sizeof said.side);
    memcpy(said.nonces, connection->nonces, sizeof said.nonces);
    ignis__hmac(secret, &said, sizeof said, claim, size, proof);
}

#ifdef __linux__

/*  Adds a descriptor to those that listener->poll reports, or removes it. */
static void ignis__listener_poll(ignis__listener *listener, int fd, bool add)
{
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    if (listener->poll < 0)
        listener->poll = ignis__fd_register(epoll_create1(EPOLL_CLOEXEC));
    if (fd >= 0)
        (void)epoll_ctl(listener->poll, add ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event);
}

/*  Waits until a client comes or sends, at most `ms`. */
static void ignis__listener_wait(const ignis__listener *listener, int ms)
{
    const ignis__deadline until = ignis__deadline_in((int64_t)ms * 1000000);
    ignis__peer_error late;
    /* shared memory cannot be polled */
    if (listener->file < 0 && (listener->pending_count == 0 || listener->pending[0].connection->in < 0))
        ignis__sleep_us(1000);
    /* the queue would wake the poll, and all places are taken */
    else if (listener->pending_count == IGNIS__LISTENER_PENDING)
        ignis__sleep_us(1000);
    else
        (void)ignis__fd_wait(&late, listener->poll, POLLIN, &until, "");
}

#else

static void ignis__listener_poll(ignis__listener *listener, ignis__file file, bool add)
{
    (void)listener, (void)file, (void)add;
}
static void ignis__listener_wait(const ignis__listener *listener, int ms)
{
    (void)listener, (void)ms;
    ignis__sleep_us(1000);
}

#endif

/*  Removes a pending client; the others keep their order. */
static ignis__connection *ignis__listener_remove(ignis__listener *listener, int index)
{
    ignis__connection *connection = listener->pending[index].connection;
    ignis__listener_poll(listener, connection->in, false);
    listener->pending_count--;
    memmove(&listener->pending[index], &listener->pending[index + 1],
            sizeof listener->pending[0] * (size_t)(listener->pending_count - index));
    return connection;
}

/*  Counts a refused client; only the first one is logged. */
static void ignis__listener_log_refused(const char *call, ignis__listener *listener, const char *why)
{
    if (ignis__atomic_add(&listener->refused, 1) == 1)
        ignis__log(IGNIS_LOG_WARNING, IGNIS_DIAG_CHANNEL_MESSAGE,
                   "%s: a connection to %s was refused: %s (further ones are only counted)", call, listener->path, why);
}

/*  Refuses a client that is no longer pending. */
IGNIS__PRIVATE void ignis__listener_refuse(const char *call, ignis__listener *listener, ignis__connection *connection,
                                           bool is_authenticated, const char *why)
{
    ignis__peer_error ignored;
    if (ignis__connection_reserve(&ignored, connection, IGNIS__HANDSHAKE_BYTES) &&
        (!connection->kind->connected || connection->kind->connected(connection)))
        (void)ignis__connection_send(&ignored, connection, IGNIS__MESSAGE_REFUSED, why,
                                     is_authenticated ? strlen(why) : 0, NULL, 0, &ignis__deadline_now);
    ignis__connection_destroy(connection);
    ignis__listener_log_refused(call, listener, why);
}

/*  Disconnects the oldest pending client without a message. A client that was only slow connects again. */
static void ignis__listener_drop_oldest(const char *call, ignis__listener *listener, const char *why)
{
    ignis__connection_destroy(ignis__listener_remove(listener, 0));
    ignis__listener_log_refused(call, listener, why);
}

/*  Accepts the clients that wait, while places are free. */
static bool ignis__listener_accept(const char *call, ignis__peer_error *error, ignis__listener *listener)
{
    for (;;) {
        ignis__connection *fresh;
        if (listener->pending_count == IGNIS__LISTENER_PENDING) {
            if (ignis__monotonic_ns() - listener->pending[0].since_ns < IGNIS__LISTENER_CROWDED_NS)
                return true;
            ignis__listener_drop_oldest(call, listener, "too many clients at once do not authenticate");
        }
        fresh = ignis__connection_create(error, listener->kind, listener->path);
        if (!fresh)
            return false;
        error->diagnostic = IGNIS_DIAG_NONE;
        if (!listener->kind->accept(error, listener, fresh) ||
            !ignis__connection_reserve(error, fresh, IGNIS__HANDSHAKE_BYTES)) {
            ignis__connection_destroy(fresh);
            if (error->diagnostic == IGNIS_DIAG_NONE || listener->pending_count == 0)
                return error->diagnostic == IGNIS_DIAG_NONE;
            /* too few descriptors, or too little memory */
            ignis__listener_drop_oldest(call, listener, error->why);
            continue;
        }
        listener->arrivals++;
        ignis__listener_poll(listener, fresh->in, true);
        listener->pending[listener->pending_count].connection = fresh;
        listener->pending[listener->pending_count++].since_ns = fresh->kind->connected ? 0 : ignis__monotonic_ns();
    }
}

/*  Takes the next step of a handshake. True: the client has authenticated, and its claim is in the inbox.
    False without a diagnostic: more messages are expected; with one: refuse it. */
static bool ignis__listener_handshake(ignis__peer_error *error, const ignis__listener *listener,
                                      ignis__connection *connection)
{
    struct {
        unsigned char nonce[IGNIS__NONCE], proof[32];
    } challenge;
    unsigned char proof[32];
    const unsigned char *body = connection->inbox + sizeof(ignis__message_header);
    const ignis_diagnostic no = IGNIS_DIAG_CHANNEL_MESSAGE;
    ignis__message_header header;
#ifndef _WIN32
    if (connection->kind->packets && connection->peer_uid != (int64_t)geteuid())
        return ignis__peer_error_set(error, no, "the client belongs to user %lld, this process to user %lld",
                                     (long long)connection->peer_uid, (long long)geteuid());
#endif
    while (ignis__connection_receive(error, connection, &ignis__deadline_now)) {
        header = ignis__message_header_read(connection);
        if (connection->received == 0 && header.type == IGNIS__MESSAGE_HELLO && header.size == IGNIS__NONCE &&
            header.fd_count == 0) {
            memcpy(connection->nonces[0], body, IGNIS__NONCE);
            if (!ignis__random_bytes(connection->nonces[1], IGNIS__NONCE))
                return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the system returned no random bytes");
            memcpy(challenge.nonce, connection->nonces[1], IGNIS__NONCE);
            ignis__connection_proof(connection, listener->secret, true, NULL, 0, challenge.proof);
            ignis__inbox_remove(connection);
            if (!ignis__connection_send(error, connection, IGNIS__MESSAGE_CHALLENGE, &challenge, sizeof challenge, NULL,
                                        0, &ignis__deadline_now))
                return false;
        } else if (connection->received == 1 && header.type == IGNIS__MESSAGE_PROOF && header.size >= sizeof proof &&
                   header.fd_count == 0) {
            ignis__connection_proof(connection, listener->secret, false, body + sizeof proof,
                                    header.size - sizeof proof, proof);
            return ignis__bytes_equal(proof, body, sizeof proof) ||
                   ignis__peer_error_set(error, no, "the client has another token");
        } else {
            return ignis__peer_error_set(error, no, "the client violates the handshake");
        }
    }
    if (error->diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT)
        error->diagnostic = IGNIS_DIAG_NONE;
    return false;
}

/*  Returns the next authenticated client, with its claim in the inbox: the caller welcomes or refuses it.
    NULL, with the error set, if the deadline passes. */
IGNIS__COLD IGNIS__PRIVATE ignis__connection *ignis__listener_next(const char *call, ignis__peer_error *error,
                                                                   ignis__listener *listener,
                                                                   const ignis__deadline *until)
{
    for (;;) {
        int i, slice;
        if (!ignis__listener_accept(call, error, listener))
            return NULL;
        for (i = 0; i < listener->pending_count; i++) {
            ignis__connection *connection = listener->pending[i].connection;
            int64_t now_ns = ignis__monotonic_ns();
            bool is_authenticated = ignis__listener_handshake(error, listener, connection),
                 waits = !is_authenticated && error->diagnostic == IGNIS_DIAG_NONE;
            if (is_authenticated && connection->kind->connected)
                (void)connection->kind->connected(
                    connection); /* it may have sent everything at once: read its process here */
            if (is_authenticated)
                return ignis__listener_remove(listener, i);
            if (waits && listener->pending[i].since_ns == 0 && connection->kind->connected &&
                connection->kind->connected(connection))
                listener->pending[i].since_ns = now_ns;
            if (waits && listener->pending[i].since_ns &&
                now_ns - listener->pending[i].since_ns >= IGNIS__LISTENER_PATIENCE_NS)
                waits = ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                              "the client did not authenticate within %d s",
                                              (int)(IGNIS__LISTENER_PATIENCE_NS / 1000000000));
            if (!waits)
                ignis__listener_refuse(call, listener, ignis__listener_remove(listener, i--), false, error->why);
        }
        slice = ignis__deadline_slice_ms(until, 50);
        if (slice == 0) {
            ignis__peer_error_set_timeout(error, until, "no client connected");
            return NULL;
        }
        ignis__listener_wait(listener, slice);
    }
}

/*  Reads the claim of an authenticated client. False, with the error set, if its size is wrong. */
IGNIS__PRIVATE bool ignis__claim_read(ignis__peer_error *error, const ignis__connection *connection, void *claim,
                                      size_t size)
{
    if (ignis__message_header_read(connection).size != 32 + size)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "the client has another version of Ignis");
    memcpy(claim, connection->inbox + sizeof(ignis__message_header) + 32, size);
    return true;
}

/*  Marks the peer as authenticated; from here on its messages may carry descriptors. */
IGNIS__PRIVATE void ignis__connection_set_authenticated(ignis__connection *connection)
{
#ifdef _WIN32
    HANDLE process = OpenProcess(PROCESS_DUP_HANDLE | SYNCHRONIZE, FALSE, (DWORD)connection->peer_pid);
    connection->process = process ? process : IGNIS__NO_FILE;
#endif
    connection->is_authenticated = true;
}

/*  Welcomes an authenticated client; from here on messages may have `capacity` bytes. */
IGNIS__PRIVATE bool ignis__connection_welcome(ignis__peer_error *error, ignis__connection *connection, size_t capacity)
{
    ignis__inbox_remove(connection);
    ignis__connection_set_authenticated(connection);
    if (connection->owns_path)
        connection->kind->remove(connection);
    connection->owns_path = false;
    return ignis__connection_reserve(error, connection, capacity) &&
           ignis__connection_send(error, connection, IGNIS__MESSAGE_WELCOME, NULL, 0, NULL, 0, &ignis__deadline_now);
}

IGNIS__PRIVATE void ignis__listener_close(ignis__listener *listener)
{
    while (listener->pending_count > 0)
        ignis__connection_destroy(ignis__listener_remove(listener, 0));
#ifndef _WIN32
    if (listener->owns_path)
        (void)unlink(listener->path);
#endif
    listener->owns_path = false;
    ignis__peer_file_close(&listener->file);
    ignis__peer_file_close(&listener->poll);
    if (listener->name_file != IGNIS__NO_FILE)
        ignis__name_file_delete(listener->name_path);
    ignis__peer_file_close(&listener->name_file);
}

/*  Creates a listener that is not open yet. NULL, and reported, if host memory is short. */
IGNIS__PRIVATE ignis__listener *ignis__listener_new(const char *call, const ignis__connection_kind *kind,
                                                    const char *path)
{
    ignis__listener *listener = (ignis__listener *)ignis__alloc_for(call, sizeof *listener);
    if (!listener)
        return NULL;
    listener->kind = kind;
    listener->file = listener->name_file = listener->poll = IGNIS__NO_FILE;
    snprintf(listener->path, sizeof listener->path, "%s", path);
    ignis__mutex_init(&listener->lock);
    return listener;
}

IGNIS__PRIVATE void ignis__listener_free(ignis__listener *listener)
{
    if (listener)
        ignis__listener_close(listener);
    ignis__free(listener);
}

/*  Opens a listener. With a name_path it owns that name alone. Its secret is `secret`, or a new one that it
    writes to that file. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__listener_open(const char *call, ignis__peer_error *error,
                                                     ignis__listener *listener, const char *name_path,
                                                     const unsigned char *secret)
{
    ignis__name_record record;
    memset(&record, 0, sizeof record);
    record.version = IGNIS__PROTOCOL_VERSION;
    record.pid = ignis__process_id();
    record.has_secret = !secret;
    if (secret)
        memcpy(listener->secret, secret, sizeof listener->secret);
    if ((!secret && !ignis__random_bytes(listener->secret, sizeof listener->secret)) ||
        !ignis__random_bytes(&listener->place, sizeof listener->place))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the system returned no random bytes for a token");
    record.place = listener->place;
    if (record.has_secret)
        memcpy(record.secret, listener->secret, sizeof record.secret);
    if (name_path) {
        snprintf(listener->name_path, sizeof listener->name_path, "%s", name_path);
        if (!ignis__name_file_lock(error, name_path, &listener->name_file))
            return false;
        if (!ignis__name_file_write(listener->name_file, &record, sizeof record))
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%s cannot be written", name_path);
    }
    if (listener->file == IGNIS__NO_FILE && listener->kind->listen && !listener->kind->listen(error, listener))
        return false;
    ignis__listener_poll(listener, listener->file, true);
    return ignis__listener_accept(call, error, listener);
}
