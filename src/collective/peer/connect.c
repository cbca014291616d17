/*  >>peer.connect - client: connects to a listener and authenticates

    Repeats connecting and the handshake until both sides have proven that they know the secret, or the deadline
    passes.
    Uses: connections, files of names.
    Invariants: an answer without a proof never ends the attempts, as the real server may listen later.
    Locks: none; the connection belongs to the calling thread until it is returned. */

#include "room.h"

/*  Sends one message of the handshake and receives the answer. If the server is lost meanwhile, *again is
    set: another one may listen at the next attempt. */
static bool ignis__connection_request(ignis__peer_error *error, ignis__connection *connection, int type,
                                      const void *data, size_t size, const ignis__deadline *until, bool *again)
{
    bool ok = ignis__connection_send(error, connection, type, data, size, NULL, 0, until) &&
              ignis__connection_receive(error, connection, until);
    *again = !ok && error->diagnostic == IGNIS_DIAG_CHANNEL_LOST;
    return ok;
}

/*  Authenticates both sides by the secret (NULL: the one in the file of the name), and sends the client's
    claim. *again: the next attempt may succeed. An unauthenticated answer ends nothing, since the real server
    may listen there soon. */
static bool ignis__connection_authenticate(ignis__peer_error *error, ignis__connection *connection,
                                           const ignis__client *client, const ignis__deadline *until, bool *again)
{
    const unsigned char *secret = client->secret;
    unsigned char message[32 + IGNIS__HANDSHAKE_BYTES / 2], proof[32];
    const unsigned char *body;
    ignis__name_record record;
    ignis__message_header header;
    bool is_authenticated = false;
    *again = true;
    if (!secret) { /* read after connecting: a server that replaced another one has another secret */
        if (!ignis__name_file_read(client->name_path, &record, sizeof record))
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "no token in %s", client->name_path);
        *again = record.version == IGNIS__PROTOCOL_VERSION && record.has_secret;
        if (!*again)
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                         "the server has its own token or another version: set desc.token");
        secret = record.secret;
    }
    *again = false;
    if (!ignis__connection_reserve(error, connection, IGNIS__HANDSHAKE_BYTES))
        return false;
    if (!ignis__random_bytes(connection->nonces[0], IGNIS__NONCE))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the system returned no random bytes");
    if (!ignis__connection_request(error, connection, IGNIS__MESSAGE_HELLO, connection->nonces[0], IGNIS__NONCE, until,
                                   again)) {
        *again = *again || error->diagnostic == IGNIS_DIAG_CHANNEL_MESSAGE;
        return false;
    }
    header = ignis__message_header_read(connection);
    body = connection->inbox + sizeof header;
    if (header.type == IGNIS__MESSAGE_CHALLENGE && header.size == IGNIS__NONCE + sizeof proof) {
        memcpy(connection->nonces[1], body, IGNIS__NONCE);
        ignis__connection_proof(connection, secret, true, NULL, 0, proof);
        if (!ignis__bytes_equal(proof, body + IGNIS__NONCE, sizeof proof)) {
            *again = true;
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "the server at %s has another token",
                                         connection->path);
        }
        is_authenticated = true;
        ignis__inbox_remove(connection);
        ignis__connection_proof(connection, secret, false, client->claim, client->claim_size, message);
        memcpy(message + sizeof proof, client->claim, client->claim_size);
        if (!ignis__connection_request(error, connection, IGNIS__MESSAGE_PROOF, message,
                                       sizeof proof + client->claim_size, until, again))
            return false;
        header = ignis__message_header_read(connection);
    }
    if (is_authenticated && header.type == IGNIS__MESSAGE_WELCOME) {
        ignis__inbox_remove(connection);
        ignis__connection_set_authenticated(connection);
        return true;
    }
    *again = !is_authenticated;
    if (!is_authenticated)
        return ignis__peer_error_set(
            error, IGNIS_DIAG_CHANNEL_MESSAGE, "the server at %s did not prove that it has our token%s%.*s",
            connection->path, header.size ? ": " : "", header.size < 100 ? (int)header.size : 100, (const char *)body);
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "the server at %s refused the connection%s%.*s",
                                 connection->path, header.size ? ": " : "", header.size < 256 ? (int)header.size : 256,
                                 (const char *)body);
}

/*  Connects to the listener that is, or will be, at a path. NULL, with the error set, if the deadline
    passes. */
IGNIS__COLD IGNIS__PRIVATE ignis__connection *ignis__connection_open(ignis__peer_error *error,
                                                                     const ignis__client *client,
                                                                     const ignis__deadline *until)
{
    ignis__peer_error last_answer = IGNIS__ZERO; /* of a server that has not authenticated */
    int attempt;
    bool warned = false;
    for (attempt = 0;; attempt++) {
        ignis__connection *connection = ignis__connection_create(error, client->kind, client->path);
        bool again = false, stranger;
        if (!connection)
            return NULL;
        connection->attempt = attempt;
        if (client->kind->connect(error, connection, &again) &&
            ignis__connection_authenticate(error, connection, client, until, &again) &&
            ignis__connection_reserve(error, connection, client->capacity))
            return connection;
        ignis__connection_destroy(connection);
        if (!again && warned && error->diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT)
            ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_TIMEOUT,
                                  "no server accepted the connection before the deadline: %.220s", last_answer.why);
        if (!again)
            return NULL;
        if (ignis__deadline_slice_ms(until, 1) == 0) {
            ignis__peer_error last = *error;
            ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_TIMEOUT,
                                  "no server accepted the connection before the deadline: %.220s", last.why);
            return NULL;
        }
        stranger = client->secret && error->diagnostic == IGNIS_DIAG_CHANNEL_MESSAGE;
        last_answer = stranger ? *error : last_answer;
        if (stranger && !warned)
            ignis__log(IGNIS_LOG_WARNING, IGNIS_DIAG_CHANNEL_MESSAGE, "%s; retrying until the deadline", error->why);
        warned = warned || stranger;
        ignis__sleep_us(stranger ? 100000 : 5000);
    }
}
