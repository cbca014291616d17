/* --- wires: connections that carry messages ------------------------------------------------------------------------------ */

enum {
    IGNIS__WIRE_MAGIC = 0x52494749, /* "IGIR" */
    IGNIS__WIRE_VERSION = 2,
    IGNIS__WIRE_HANDSHAKE = 1024, /* the longest message of those who have not proven themselves yet */
    IGNIS__NONCE = 16             /* bytes that are random, and never used twice */
};

/*  In front of every message. */
typedef struct ignis__head {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t size; /* of what follows */
    uint32_t fd_count;
    uint64_t sequence; /* counts the messages of a direction */
} ignis__head;

/*  What a message is. The first four prove, in this order, that both sides know the secret. */
enum {
    IGNIS__HEAD_HELLO = 1, /* the client's nonce */
    IGNIS__HEAD_CHALLENGE, /* the server's nonce and proof */
    IGNIS__HEAD_PROOF,     /* the client's proof, and its claim: what it says of itself */
    IGNIS__HEAD_WELCOME,
    IGNIS__HEAD_REFUSED, /* and why; without a word to those who have proven nothing */
    IGNIS__HEAD_GOODBYE, /* the channel was closed, and nobody has died */
    IGNIS__HEAD_DATA,
    IGNIS__HEAD_ARRAY,
    IGNIS__HEAD_JOB /* this and what follows */
};

typedef struct ignis__wire {
    const struct ignis__wire_kind *kind;
    int64_t timeout_ns;
    uint64_t closing; /* whoever waits in it gives up */
    uint64_t lost;    /* 1: it has failed for good; 2: the other side has said goodbye */
    ignis__mutex send_lock, receive_lock;
    char path[IGNIS__PATH_MAX]; /* of what clients connect to */
    ignis__file in, out;        /* of a socket and a Windows pipe both are the same */
    bool named;                 /* what is at the path is ours to remove */
    bool proven;                /* the other side knows the secret */
    /* on Windows, the other side's, which descriptors are put into; none: the system gives it to nobody */
    ignis__file process;
    int attempt; /* at connecting, from 0 on: of several addresses each takes another one */
    int64_t peer_pid, peer_uid;
    uint64_t sent, received; /* messages */
    unsigned char nonces[2][IGNIS__NONCE];

    size_t capacity;      /* of a message, without its head */
    unsigned char *inbox; /* the message that is arriving: its head, its bytes */
    size_t inbox_size;
    bool inbox_whole;
    int inbox_fds[IGNIS_CHANNEL_MAX_FDS];
    int inbox_fd_count;
    /* the message that is leaving; what a stream has not taken yet goes before the next one */
    unsigned char *outbox;
    size_t outbox_size, outbox_done;
    uint64_t unsent; /* there are such bytes */
    const int *outbox_fds;
    int outbox_fd_count;

    int side;        /* of shared memory */
    bool met;        /* there: who reads has seen the other side */
    int pause_us[2]; /* of who waits to read, and to write */
    ignis__file shared_file;
    struct ignis__shared *shared;
    size_t shared_bytes;
} ignis__wire;

struct ignis__listener;

/*  How bytes travel. Functions return false with the trouble set, except where they say otherwise. */
typedef struct ignis__wire_kind {
    ignis_channel_method method;
    const char *suffix; /* of the path */
    /* messages keep their boundaries, bring descriptors, and come from a user that the system names */
    bool packets;
    bool descriptors; /* messages bring some, and the system says which process they come from */
    /* null: there is nothing to do before accept */
    bool (*listen)(ignis__trouble *trouble, struct ignis__listener *listener);
    bool (*accept)(ignis__trouble *trouble, struct ignis__listener *listener,
                   ignis__wire *fresh);    /* false with no diagnostic: nobody has come */
    bool (*connected)(ignis__wire *fresh); /* somebody is at the other end; null: always */
    bool (*connect)(ignis__trouble *trouble, ignis__wire *wire, bool *again);
    int64_t (*write)(ignis__trouble *trouble, ignis__wire *wire); /* of the outbox: bytes; 0: not now; -1 */
    /* bytes; 0: not yet; -1: trouble */
    int64_t (*read)(ignis__trouble *trouble, ignis__wire *wire, void *data, size_t size);
    bool (*wait)(ignis__trouble *trouble, ignis__wire *wire, bool to_write, const ignis__until *until,
                 const char *what);
    bool (*alive)(ignis__wire *wire);
    /* tells the other side, while other threads may be inside; null: closing is what tells */
    void (*shutdown)(ignis__wire *wire);
    void (*remove)(ignis__wire *wire); /* removes what is at the path; null: it has no name of its own */
    /* for descriptors that are numbers behind a message: puts them into the other process, or takes them
       back; null: they need none */
    bool (*give)(ignis__trouble *trouble, const ignis__wire *wire, const int *fds, int count, uint64_t *numbers);
    void (*take_back)(const ignis__wire *wire, const uint64_t *numbers, int count);
} ignis__wire_kind;

/*  Bytes of such numbers behind a message. */
static size_t ignis__wire_tail(const ignis__wire *wire, size_t fd_count)
{
    return wire->kind->give ? fd_count * sizeof(uint64_t) : 0;
}

/*  Checks the head of the message that is arriving. */
static bool ignis__head_check(ignis__trouble *trouble, const ignis__wire *wire)
{
    ignis__head head;
    memcpy(&head, wire->inbox, sizeof head);
    if (head.magic != IGNIS__WIRE_MAGIC)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE,
                                  "what came is no message of Ignis: it begins with 0x%08x", head.magic);
    if (head.version != IGNIS__WIRE_VERSION)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE,
                                  "the other side speaks version %d of the protocol, we speak %d", head.version,
                                  IGNIS__WIRE_VERSION);
    if (head.size > wire->capacity ||
        head.fd_count > (wire->kind->descriptors && (wire->kind->packets || wire->proven) ? IGNIS_CHANNEL_MAX_FDS : 0u))
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE,
                                  "a message announces %u bytes and %u descriptors, which is too much", head.size,
                                  head.fd_count);
    if (head.sequence != wire->received)
        return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "message %llu came where message %llu was due",
                                  (unsigned long long)head.sequence, (unsigned long long)wire->received);
    return true;
}

static ignis__head ignis__head_of(const ignis__wire *wire)
{
    ignis__head head;
    memcpy(&head, wire->inbox, sizeof head);
    return head;
}

static void ignis__inbox_clear(ignis__wire *wire)
{
    ignis__fds_close(wire->inbox_fds, wire->inbox_fd_count);
    wire->inbox_fd_count = 0;
    wire->inbox_size = 0;
    wire->inbox_whole = false;
}

/*  The message in the inbox is whole: its descriptors, where they came as numbers behind it. */
static bool ignis__inbox_numbers(ignis__trouble *trouble, ignis__wire *wire)
{
    ignis__head head = ignis__head_of(wire);
    uint64_t number;
    uint32_t i;
    for (i = 0; wire->kind->give && i < head.fd_count; i++) {
        memcpy(&number, wire->inbox + sizeof head + head.size + i * sizeof number, sizeof number);
        if (number == 0 || number > INT32_MAX)
            return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "a message brings a handle that is none");
        wire->inbox_fds[i] = (int)number;
        wire->inbox_fd_count = (int)i + 1;
    }
    return true;
}

/*  The message in the inbox was taken. */
static void ignis__inbox_next(ignis__wire *wire)
{
    ignis__inbox_clear(wire);
    wire->received++;
}

/*  Brings the next message into the inbox, if it is not there already. What came in part before a deadline
    stays there. */
static bool ignis__wire_fetch(ignis__trouble *trouble, ignis__wire *wire, const ignis__until *until)
{
    size_t head_size = sizeof(ignis__head);
    while (!wire->inbox_whole) {
        size_t wanted = head_size;
        int64_t got;
        bool whole;
        if (wire->kind->packets)
            wanted += wire->capacity;
        else if (wire->inbox_size >= head_size)
            wanted += ignis__head_of(wire).size + ignis__wire_tail(wire, ignis__head_of(wire).fd_count);
        got = wire->kind->read(trouble, wire, wire->inbox + wire->inbox_size, wanted - wire->inbox_size);
        if (got < 0)
            return false;
        if (got == 0) {
            if (!wire->kind->wait(trouble, wire, false, until, "nothing came from the other side"))
                return false;
            continue;
        }
        if (wire->kind->packets && (size_t)got < head_size)
            return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE,
                                      "a message of %lld bytes is shorter than its head", (long long)got);
        wire->pause_us[0] = 0;
        wire->inbox_size += (size_t)got;
        if (wire->inbox_size < head_size)
            continue;
        if (!ignis__head_check(trouble, wire))
            return false;
        whole = wire->inbox_size ==
                head_size + ignis__head_of(wire).size + ignis__wire_tail(wire, ignis__head_of(wire).fd_count);
        if (whole && !ignis__inbox_numbers(trouble, wire))
            return false;
        if (wire->kind->packets && (!whole || (uint32_t)wire->inbox_fd_count != ignis__head_of(wire).fd_count))
            return ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE,
                                      "a message announces %u bytes and %u descriptors, and has %lld and %d",
                                      ignis__head_of(wire).size, ignis__head_of(wire).fd_count,
                                      (long long)(wire->inbox_size - head_size), wire->inbox_fd_count);
        wire->inbox_whole = whole;
    }
    return true;
}

/*  Nothing of the outbox will be sent any more. Descriptors of a message that the other side will never have
    whole are taken back. */
static void ignis__outbox_clear(ignis__wire *wire)
{
    ignis__head head;
    uint64_t numbers[IGNIS_CHANNEL_MAX_FDS];
    if (wire->outbox_done < wire->outbox_size && wire->kind->take_back) {
        memcpy(&head, wire->outbox, sizeof head);
        memcpy(numbers, wire->outbox + sizeof head + head.size, head.fd_count * sizeof *numbers);
        wire->kind->take_back(wire, numbers, (int)head.fd_count);
    }
    wire->outbox_size = wire->outbox_done = 0;
}

/*  Hands what is in the outbox to the system. */
static bool ignis__wire_flush(ignis__trouble *trouble, ignis__wire *wire, const ignis__until *until)
{
    while (wire->outbox_done < wire->outbox_size) {
        int64_t written = wire->kind->write(trouble, wire);
        if (written < 0)
            return false;
        wire->outbox_done += (size_t)written;
        if (written > 0)
            wire->pause_us[1] = 0;
        else if (!wire->kind->wait(trouble, wire, true, until, "the other side does not read"))
            return false;
    }
    ignis__outbox_clear(wire);
    ignis__atomic_store(&wire->unsent, 0);
    return true;
}

/*  Sends one message, with the send lock taken or nobody else there. A message of which a stream has taken a
    part counts as sent: its rest stays in the outbox. */
static bool ignis__wire_send(ignis__trouble *trouble, ignis__wire *wire, int type, const void *data, size_t size,
                             const int *fds, int fd_count, const ignis__until *until)
{
    ignis__head head;
    uint64_t numbers[IGNIS_CHANNEL_MAX_FDS];
    size_t tail = ignis__wire_tail(wire, (size_t)fd_count);
    if (!ignis__wire_flush(trouble, wire, until) ||
        (tail > 0 && !wire->kind->give(trouble, wire, fds, fd_count, numbers)))
        return false;
    head.magic = IGNIS__WIRE_MAGIC;
    head.version = IGNIS__WIRE_VERSION;
    head.type = (uint16_t)type;
    head.size = (uint32_t)size;
    head.fd_count = (uint32_t)fd_count;
    head.sequence = wire->sent;
    memcpy(wire->outbox, &head, sizeof head);
    if (size > 0)
        memcpy(wire->outbox + sizeof head, data, size);
    if (tail > 0)
        memcpy(wire->outbox + sizeof head + size, numbers, tail);
    wire->outbox_size = sizeof head + size + tail;
    wire->outbox_fds = fds;
    wire->outbox_fd_count = fd_count;
    if (!ignis__wire_flush(trouble, wire, until) &&
        (wire->outbox_done == 0 || trouble->diagnostic != IGNIS_DIAG_CHANNEL_TIMEOUT)) {
        ignis__outbox_clear(wire);
        return false;
    }
    ignis__atomic_store(&wire->unsent, wire->outbox_size - wire->outbox_done);
    wire->sent++;
    return true;
}

static void ignis__wire_free(ignis__wire *wire)
{
    ignis__trouble ignored;
    int left = 1000;
    if (!wire)
        return;
    /* what was put into this process, and nobody takes; what comes later still stays open */
    if (wire->kind->give && wire->capacity > 0) {
        while (left-- > 0 && ignis__wire_fetch(&ignored, wire, &ignis__until_now))
            ignis__inbox_next(wire);
        ignis__outbox_clear(wire);
    }
    ignis__inbox_clear(wire);
    if (wire->named)
        wire->kind->remove(wire);
#ifndef _WIN32
    if (wire->shared)
        ignis__shared_unmap((void *)wire->shared, wire->shared_bytes);
#endif
    if (wire->out != wire->in)
        ignis__file_drop(&wire->out);
    ignis__file_drop(&wire->in);
    ignis__file_drop(&wire->shared_file);
    ignis__file_drop(&wire->process);
    ignis__free(wire->inbox);
    ignis__free(wire->outbox);
    ignis__free(wire);
}

/*  Room for messages of so many bytes; nothing is arriving or leaving. */
static bool ignis__wire_room(ignis__trouble *trouble, ignis__wire *wire, size_t capacity)
{
    size_t bytes = sizeof(ignis__head) + capacity + ignis__wire_tail(wire, IGNIS_CHANNEL_MAX_FDS);
    if (wire->capacity >= capacity)
        return true;
    ignis__free(wire->inbox);
    ignis__free(wire->outbox);
    wire->inbox = (unsigned char *)ignis__alloc(bytes);
    wire->outbox = (unsigned char *)ignis__alloc(bytes);
    wire->capacity = wire->inbox && wire->outbox ? capacity : 0;
    return wire->capacity || ignis__trouble_memory(trouble, 2 * bytes);
}

static ignis__wire *ignis__wire_make(ignis__trouble *trouble, const ignis__wire_kind *kind, const char *path)
{
    ignis__wire *wire = (ignis__wire *)ignis__alloc(sizeof *wire);
    if (!wire) {
        ignis__trouble_memory(trouble, sizeof *wire);
        return NULL;
    }
    wire->in = wire->out = wire->shared_file = wire->process = IGNIS__NO_FILE;
    wire->kind = kind;
    wire->peer_uid = -1;
    snprintf(wire->path, sizeof wire->path, "%s", path);
    ignis__mutex_init(&wire->send_lock);
    ignis__mutex_init(&wire->receive_lock);
    return wire;
}

static bool ignis__wire_usable(ignis__trouble *trouble, const ignis__wire *wire)
{
    uint64_t lost = ignis__atomic_load(&wire->lost);
    if (!lost)
        return true;
    ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_LOST,
                       lost == 2 ? "the other side has closed the channel" : "the channel has failed before");
    trouble->expected = lost == 2;
    return false;
}
