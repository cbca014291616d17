/*  Sends one message of the proofs, and brings the answer into the inbox. A server that is lost meanwhile may
    be another at the next attempt. */
static bool ignis__wire_ask(ignis__trouble *trouble, ignis__wire *wire, int type, const void *data, size_t size,
                            const ignis__until *until, bool *again)
{
    bool ok =
        ignis__wire_send(trouble, wire, type, data, size, NULL, 0, until) && ignis__wire_fetch(trouble, wire, until);
    *again = !ok && trouble->diagnostic == IGNIS_DIAG_CHANNEL_LOST;
    return ok;
}

/*  Both sides prove that they know the secret (null: the one of the name), and the client makes its claim.
    *again: it may go better at the next attempt, as whatever somebody says who has not proven that ends
    nothing: another may listen there soon. */
static bool ignis__wire_prove(ignis__trouble *trouble, ignis__wire *wire, const char *name_path,
                              const unsigned char *secret, const void *claim, size_t size, const ignis__until *until,
                              bool *again)
{
    unsigned char message[32 + IGNIS__WIRE_HANDSHAKE / 2], proof[32];
    const unsigned char *body;
    ignis__name_record record;
    ignis__head head;
    bool proven = false;
    *again = true;
    if (!secret) { /* read after connecting: a server that is replaced meanwhile has another one */
        if (!ignis__name_file_read(name_path, &record, sizeof record))
            return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "there is no token in %s", name_path);
        *again = record.version == IGNIS__WIRE_VERSION && record.has_secret;
        if (!*again)
            return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE,
                                      "the server has a token of its own, or another version: set desc.token");
    }
    *again = false;
    if (!ignis__wire_room(trouble, wire, IGNIS__WIRE_HANDSHAKE))
        return false;
    if (!ignis__random_bytes(wire->nonces[0], IGNIS__NONCE))
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "the system has no random bytes");
    if (!ignis__wire_ask(trouble, wire, IGNIS__HEAD_HELLO, wire->nonces[0], IGNIS__NONCE, until, again)) {
        *again = *again || trouble->diagnostic == IGNIS_DIAG_CHANNEL_MESSAGE;
        return false;
    }
    head = ignis__head_of(wire);
    body = wire->inbox + sizeof head;
    if (head.type == IGNIS__HEAD_CHALLENGE && head.size == IGNIS__NONCE + sizeof proof) {
        memcpy(wire->nonces[1], body, IGNIS__NONCE);
        ignis__wire_proof(wire, secret ? secret : record.secret, true, NULL, 0, proof);
        if (!ignis__bytes_equal(proof, body + IGNIS__NONCE, sizeof proof)) {
            *again = true;
            return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE,
                                      "the server at %s has another token than ours", wire->path);
        }
        proven = true;
        ignis__inbox_next(wire);
        ignis__wire_proof(wire, secret ? secret : record.secret, false, claim, size, message);
        memcpy(message + sizeof proof, claim, size);
        if (!ignis__wire_ask(trouble, wire, IGNIS__HEAD_PROOF, message, sizeof proof + size, until, again))
            return false;
        head = ignis__head_of(wire);
    }
    if (proven && head.type == IGNIS__HEAD_WELCOME) {
        ignis__inbox_next(wire);
        ignis__wire_proven(wire);
        return true;
    }
    *again = !proven;
    if (!proven)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE,
                                  "whoever listens at %s answers without a proof of our token%s%.*s", wire->path,
                                  head.size ? ": " : "", head.size < 100 ? (int)head.size : 100, (const char *)body);
    return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "the server at %s turned us away%s%.*s", wire->path,
                              head.size ? ": " : "", head.size < 256 ? (int)head.size : 256, (const char *)body);
}

/*  Connects to whoever is, or will be, at a path. */
IGNIS__COLD static ignis__wire *ignis__wire_connect(ignis__trouble *trouble, const ignis__wire_kind *kind,
                                                    const char *path, const char *name_path,
                                                    const unsigned char *secret, const void *claim, size_t size,
                                                    size_t capacity, const ignis__until *until)
{
    ignis__trouble word = IGNIS__ZERO; /* of who has proven nothing */
    int attempt;
    bool warned = false;
    for (attempt = 0;; attempt++) {
        ignis__wire *wire = ignis__wire_make(trouble, kind, path);
        bool again = false, stranger;
        if (!wire)
            return NULL;
        wire->attempt = attempt;
        if (kind->connect(trouble, wire, &again) &&
            ignis__wire_prove(trouble, wire, name_path, secret, claim, size, until, &again) &&
            ignis__wire_room(trouble, wire, capacity))
            return wire;
        ignis__wire_free(wire);
        if (!again && warned && trouble->diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT)
            ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_TIMEOUT, "no server accepted us before the deadline: %.220s",
                               word.why);
        if (!again)
            return NULL;
        if (ignis__until_slice(until, 1) == 0) {
            ignis__trouble last = *trouble;
            ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_TIMEOUT, "no server accepted us before the deadline: %.220s",
                               last.why);
            return NULL;
        }
        stranger = secret && trouble->diagnostic == IGNIS_DIAG_CHANNEL_MESSAGE;
        word = stranger ? *trouble : word;
        if (stranger && !warned)
            ignis__log(IGNIS_LOG_WARNING, IGNIS_DIAG_CHANNEL_MESSAGE, "%s; it is tried again until the deadline",
                       trouble->why);
        warned = warned || stranger;
        ignis__sleep_us(stranger ? 100000 : 5000);
    }
}
