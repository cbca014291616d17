/* --- listeners: where others connect, and prove that they know the secret ------------------------------------------------------ */

/*  Room for so many that have connected and proven nothing yet; the others wait in the system's queue. */
enum { IGNIS__LISTENER_PENDING = 64 };
#define IGNIS__LISTENER_PATIENCE_NS 5000000000 /* what one of them may take */
#define IGNIS__LISTENER_CROWDED_NS 250000000   /* and what the oldest may take while others wait for room */

typedef struct ignis__listener {
    const ignis__wire_kind *kind;
    int64_t timeout_ns;
    uint64_t closing;
    ignis__mutex lock; /* whoever accepts */
    char path[IGNIS__PATH_MAX], name_path[IGNIS__PATH_MAX];
    ignis__file file, name_file, poll; /* poll: one descriptor to wait for all that may come */
    bool named;                        /* what is at the path is ours to remove */
    unsigned char secret[IGNIS__SECRET];
    uint64_t place; /* random, in the name's record */
    uint64_t refused, arrivals;
    struct {
        ignis__wire *wire;
        int64_t since_ns;               /* 0: nobody is there yet */
    } pending[IGNIS__LISTENER_PENDING]; /* the oldest first */
    int pending_count;
} ignis__listener;

/*  A proof: over both sides' nonces, so that what was heard once proves nothing again; and over the claim, so
    that it is the prover's. */
static void ignis__wire_proof(const ignis__wire *wire, const unsigned char *secret, bool of_server, const void *claim,
                              size_t size, unsigned char proof[32])
{
    struct {
        char side[8];
        unsigned char nonces[2][IGNIS__NONCE];
    } said;
    memcpy(said.side, of_server ? "server.." : "client..", sizeof said.side);
    memcpy(said.nonces, wire->nonces, sizeof said.nonces);
    ignis__hmac(secret, &said, sizeof said, claim, size, proof);
}

#ifdef __linux__

/*  Adds a descriptor to those that the listener's own stands for, or takes it out. */
static void ignis__listener_poll(ignis__listener *listener, int fd, bool add)
{
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    if (listener->poll < 0)
        listener->poll = ignis__fd_keep(epoll_create1(EPOLL_CLOEXEC));
    if (fd >= 0)
        (void)epoll_ctl(listener->poll, add ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event);
}

/*  Waits a little for somebody to come to a listener, or to say something. */
static void ignis__listener_wait(const ignis__listener *listener, int ms)
{
    const ignis__until until = ignis__until_in((int64_t)ms * 1000000);
    ignis__trouble late;
    /* shared memory wakes nobody */
    if (listener->file < 0 && (listener->pending_count == 0 || listener->pending[0].wire->in < 0))
        ignis__sleep_us(1000);
    else if (listener->pending_count == IGNIS__LISTENER_PENDING) /* the queue would wake us, and there is no room */
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

/*  Nobody is pending at index any more; the order of the others stays. */
static ignis__wire *ignis__listener_remove(ignis__listener *listener, int index)
{
    ignis__wire *wire = listener->pending[index].wire;
    ignis__listener_poll(listener, wire->in, false);
    listener->pending_count--;
    memmove(&listener->pending[index], &listener->pending[index + 1],
            sizeof listener->pending[0] * (size_t)(listener->pending_count - index));
    return wire;
}

/*  Counts one that was turned away; the first is told. */
static void ignis__listener_count_refused(const char *call, ignis__listener *listener, const char *why)
{
    if (ignis__atomic_add(&listener->refused, 1) == 1)
        ignis__log(IGNIS_LOG_WARNING, IGNIS_DIAG_CHANNEL_MESSAGE,
                   "%s: a connection to %s was turned away: %s (more of them are only counted)", call, listener->path,
                   why);
}

/*  Turns away one that is no longer pending. */
static void ignis__listener_refuse(const char *call, ignis__listener *listener, ignis__wire *wire, bool proven,
                                   const char *why)
{
    ignis__trouble ignored;
    if (ignis__wire_room(&ignored, wire, IGNIS__WIRE_HANDSHAKE) &&
        (!wire->kind->connected || wire->kind->connected(wire)))
        (void)ignis__wire_send(&ignored, wire, IGNIS__HEAD_REFUSED, why, proven ? strlen(why) : 0, NULL, 0,
                               &ignis__until_now);
    ignis__wire_free(wire);
    ignis__listener_count_refused(call, listener, why);
}

/*  Cuts off the oldest of those that are pending, without a word: an honest client that was only slow
    connects again. */
static void ignis__listener_drop_oldest(const char *call, ignis__listener *listener, const char *why)
{
    ignis__wire_free(ignis__listener_remove(listener, 0));
    ignis__listener_count_refused(call, listener, why);
}

/*  Takes in who has come to a listener, as far as there is room. */
static bool ignis__listener_accept(const char *call, ignis__trouble *trouble, ignis__listener *listener)
{
    for (;;) {
        ignis__wire *fresh;
        if (listener->pending_count == IGNIS__LISTENER_PENDING) {
            if (ignis__monotonic_ns() - listener->pending[0].since_ns < IGNIS__LISTENER_CROWDED_NS)
                return true;
            ignis__listener_drop_oldest(call, listener, "too many at once prove nothing");
        }
        fresh = ignis__wire_make(trouble, listener->kind, listener->path);
        if (!fresh)
            return false;
        trouble->diagnostic = IGNIS_DIAG_NONE;
        if (!listener->kind->accept(trouble, listener, fresh) ||
            !ignis__wire_room(trouble, fresh, IGNIS__WIRE_HANDSHAKE)) {
            ignis__wire_free(fresh);
            if (trouble->diagnostic == IGNIS_DIAG_NONE || listener->pending_count == 0)
                return trouble->diagnostic == IGNIS_DIAG_NONE;
            /* there are too few descriptors, or too little memory */
            ignis__listener_drop_oldest(call, listener, trouble->why);
            continue;
        }
        listener->arrivals++;
        ignis__listener_poll(listener, fresh->in, true);
        listener->pending[listener->pending_count].wire = fresh;
        listener->pending[listener->pending_count++].since_ns = fresh->kind->connected ? 0 : ignis__monotonic_ns();
    }
}

/*  The next step of one that is pending. True: it has proven itself, and its claim is in the inbox. False: it
    has more to say, with no diagnostic, or is to be turned away. */
static bool ignis__listener_handshake(ignis__trouble *trouble, const ignis__listener *listener, ignis__wire *wire)
{
    struct {
        unsigned char nonce[IGNIS__NONCE], proof[32];
    } challenge;
    unsigned char proof[32];
    const unsigned char *body = wire->inbox + sizeof(ignis__head);
    const ignis_diagnostic no = IGNIS_DIAG_CHANNEL_MESSAGE;
    ignis__head head;
#ifndef _WIN32
    if (wire->kind->packets && wire->peer_uid != (int64_t)geteuid())
        return ignis__trouble_set(trouble, no, "it is of user %lld, and we are user %lld", (long long)wire->peer_uid,
                                  (long long)geteuid());
#endif
    while (ignis__wire_fetch(trouble, wire, &ignis__until_now)) {
        head = ignis__head_of(wire);
        if (wire->received == 0 && head.type == IGNIS__HEAD_HELLO && head.size == IGNIS__NONCE && head.fd_count == 0) {
            memcpy(wire->nonces[0], body, IGNIS__NONCE);
            if (!ignis__random_bytes(wire->nonces[1], IGNIS__NONCE))
                return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "the system has no random bytes");
            memcpy(challenge.nonce, wire->nonces[1], IGNIS__NONCE);
            ignis__wire_proof(wire, listener->secret, true, NULL, 0, challenge.proof);
            ignis__inbox_next(wire);
            if (!ignis__wire_send(trouble, wire, IGNIS__HEAD_CHALLENGE, &challenge, sizeof challenge, NULL, 0,
                                  &ignis__until_now))
                return false;
        } else if (wire->received == 1 && head.type == IGNIS__HEAD_PROOF && head.size >= sizeof proof &&
                   head.fd_count == 0) {
            ignis__wire_proof(wire, listener->secret, false, body + sizeof proof, head.size - sizeof proof, proof);
            return ignis__bytes_equal(proof, body, sizeof proof) ||
                   ignis__trouble_set(trouble, no, "its token is not ours");
        } else {
            return ignis__trouble_set(trouble, no, "it does not keep to the handshake");
        }
    }
    if (trouble->diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT)
        trouble->diagnostic = IGNIS_DIAG_NONE;
    return false;
}

/*  The next one that has proven itself, with its claim in the inbox: the caller welcomes or refuses it. Null
    with the trouble set. */
IGNIS__COLD static ignis__wire *ignis__listener_next(const char *call, ignis__trouble *trouble,
                                                     ignis__listener *listener, const ignis__until *until)
{
    for (;;) {
        int i, slice;
        if (!ignis__listener_accept(call, trouble, listener))
            return NULL;
        for (i = 0; i < listener->pending_count; i++) {
            ignis__wire *wire = listener->pending[i].wire;
            int64_t now_ns = ignis__monotonic_ns();
            bool proven = ignis__listener_handshake(trouble, listener, wire),
                 waits = !proven && trouble->diagnostic == IGNIS_DIAG_NONE;
            if (proven && wire->kind->connected)
                (void)wire->kind->connected(wire); /* it may have said all at once: who it is is asked here */
            if (proven)
                return ignis__listener_remove(listener, i);
            if (waits && listener->pending[i].since_ns == 0 && wire->kind->connected && wire->kind->connected(wire))
                listener->pending[i].since_ns = now_ns;
            if (waits && listener->pending[i].since_ns &&
                now_ns - listener->pending[i].since_ns >= IGNIS__LISTENER_PATIENCE_NS)
                waits = ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "it did not prove itself in %d s",
                                           (int)(IGNIS__LISTENER_PATIENCE_NS / 1000000000));
            if (!waits)
                ignis__listener_refuse(call, listener, ignis__listener_remove(listener, i--), false, trouble->why);
        }
        slice = ignis__until_slice(until, 50);
        if (slice == 0) {
            ignis__trouble_late(trouble, until, "nobody connected");
            return NULL;
        }
        ignis__listener_wait(listener, slice);
    }
}

/*  The claim of one that has proven itself, if it has the right size. */
static bool ignis__claim_read(ignis__trouble *trouble, const ignis__wire *wire, void *claim, size_t size)
{
    if (ignis__head_of(wire).size != 32 + size)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "it is of another version of Ignis");
    memcpy(claim, wire->inbox + sizeof(ignis__head) + 32, size);
    return true;
}

/*  The other side is who it should be, and from here on its messages may bring descriptors. */
static void ignis__wire_proven(ignis__wire *wire)
{
#ifdef _WIN32
    HANDLE process = OpenProcess(PROCESS_DUP_HANDLE | SYNCHRONIZE, FALSE, (DWORD)wire->peer_pid);
    wire->process = process ? process : IGNIS__NO_FILE;
#endif
    wire->proven = true;
}

/*  Lets in one that has proven itself; from here on messages may have `capacity` bytes. */
static bool ignis__wire_welcome(ignis__trouble *trouble, ignis__wire *wire, size_t capacity)
{
    ignis__inbox_next(wire);
    ignis__wire_proven(wire);
    if (wire->named)
        wire->kind->remove(wire);
    wire->named = false;
    return ignis__wire_room(trouble, wire, capacity) &&
           ignis__wire_send(trouble, wire, IGNIS__HEAD_WELCOME, NULL, 0, NULL, 0, &ignis__until_now);
}

static void ignis__listener_close(ignis__listener *listener)
{
    while (listener->pending_count > 0)
        ignis__wire_free(ignis__listener_remove(listener, 0));
#ifndef _WIN32
    if (listener->named)
        (void)unlink(listener->path);
#endif
    listener->named = false;
    ignis__file_drop(&listener->file);
    ignis__file_drop(&listener->poll);
    if (listener->name_file != IGNIS__NO_FILE)
        ignis__name_file_remove(listener->name_path);
    ignis__file_drop(&listener->name_file);
}

/*  A listener that is closed; null, and reported: out of memory. */
static ignis__listener *ignis__listener_new(const char *call, const ignis__wire_kind *kind, const char *path)
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

static void ignis__listener_free(ignis__listener *listener)
{
    if (listener)
        ignis__listener_close(listener);
    ignis__free(listener);
}

/*  Opens it. With a name_path it has a name, which nobody else has meanwhile; its secret is `secret`, or a
    new one that lies in that file. */
IGNIS__COLD static bool ignis__listener_open(const char *call, ignis__trouble *trouble, ignis__listener *listener,
                                             const char *name_path, const unsigned char *secret)
{
    ignis__name_record record;
    memset(&record, 0, sizeof record);
    record.version = IGNIS__WIRE_VERSION;
    record.pid = ignis__process_id();
    record.has_secret = !secret;
    if (secret)
        memcpy(listener->secret, secret, sizeof listener->secret);
    if ((!secret && !ignis__random_bytes(listener->secret, sizeof listener->secret)) ||
        !ignis__random_bytes(&listener->place, sizeof listener->place))
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "the system has no random bytes for a token");
    record.place = listener->place;
    if (record.has_secret)
        memcpy(record.secret, listener->secret, sizeof record.secret);
    if (name_path) {
        snprintf(listener->name_path, sizeof listener->name_path, "%s", name_path);
        if (!ignis__name_file_take(trouble, name_path, &listener->name_file))
            return false;
        if (!ignis__name_file_write(listener->name_file, &record, sizeof record))
            return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_IO, "%s cannot be written", name_path);
    }
    if (listener->file == IGNIS__NO_FILE && listener->kind->listen && !listener->kind->listen(trouble, listener))
        return false;
    ignis__listener_poll(listener, listener->file, true);
    return ignis__listener_accept(call, trouble, listener);
}
