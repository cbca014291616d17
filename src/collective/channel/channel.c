/* --- channels ----------------------------------------------------------------------------------------------------------- */

/*  What both sides make of a desc. */
typedef struct ignis__address_of {
    const ignis__wire_kind *kind;
    char path[IGNIS__PATH_MAX], name_path[IGNIS__PATH_MAX];
    unsigned char secret[IGNIS__SECRET]; /* desc.token */
    int64_t timeout_ns;
} ignis__address_of;

static const char *const ignis__method_names[] = {"default", "socket", "pipe", "shared memory"};

static int64_t ignis__timeout_ns(double timeout_s)
{
    return timeout_s > 1e9 ? INT64_MAX / 4 : (int64_t)(timeout_s * 1e9);
}

/*  Where the server of a name is reached, and the file that holds its secret. */
static bool ignis__channel_paths(const char *call, char folder[IGNIS__PATH_MAX], const char *name,
                                 ignis__address_of *address)
{
    int length, name_length;
    if (!ignis__private_folder(call, folder, IGNIS__PATH_MAX))
        return false;
    name_length =
        snprintf(address->name_path, sizeof address->name_path, "%s/%s.%s-name", folder, name, address->kind->suffix);
#ifdef _WIN32 /* where to connect stands in that file */
    length = snprintf(address->path, sizeof address->path, "%s", address->name_path);
#else
    length = snprintf(address->path, sizeof address->path, "%s/%s.%s", folder, name, address->kind->suffix);
#endif
    if (length >= 0 && (size_t)length < sizeof address->path && name_length >= 0 &&
        (size_t)name_length < sizeof address->name_path)
        return true;
    return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "the path in %.80s... is longer than %d bytes", folder,
                             IGNIS__PATH_MAX - 1);
}

static bool ignis__channel_address(const char *call, const ignis_channel_desc *desc, ignis__address_of *address)
{
    char folder[IGNIS__PATH_MAX];
    int length;
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "desc", desc) ||
        !ignis__check_not_null(call, "desc.name", desc->name))
        return false;
    if (!ignis__name_valid(desc->name))
        return ignis__fail_false(
            IGNIS_DIAG_BAD_NUMBER, call,
            "desc.name is '%.80s'; a name has 1 to 63 letters, digits, '.', '_' or '-', and does not begin with '.'",
            desc->name);
    if ((unsigned)desc->method >= IGNIS_CHANNEL_METHOD_COUNT)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "desc.method is %d, which is no ignis_channel_method",
                                 (int)desc->method);
    if (!(desc->timeout_s >= 0))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc.timeout_s is %g, below 0", desc->timeout_s);
    memset(address, 0, sizeof *address);
    address->kind = ignis__wire_kinds[desc->method];
    if (!address->kind)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call, "there are no channels by %s on this system",
                                 ignis__method_names[desc->method]);
    if (desc->token)
        memcpy(address->secret, desc->token, IGNIS_CHANNEL_TOKEN_BYTES);
    address->timeout_ns = desc->timeout_s == 0 ? 30000000000 : ignis__timeout_ns(desc->timeout_s);
    length = snprintf(folder, sizeof folder, "%s", desc->directory ? desc->directory : "");
    if (length < 0 || (size_t)length >= sizeof folder)
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "desc.directory is longer than %d bytes",
                                 (int)sizeof folder - 1);
    return ignis__channel_paths(call, folder, desc->name, address);
}

/*  One of the two is there: a wire that carries messages, or a listener where others connect. */
typedef struct ignis__channel {
    ignis__slot slot;
    ignis__wire *wire;
    ignis__listener *listener;
} ignis__channel;

static ignis__pool ignis__channels =
    IGNIS__POOL(ignis__channel, IGNIS__KIND_CHANNEL, "channel", IGNIS_DIAG_CHANNEL_FREED);

/*  Closes what is no longer used by anybody, after a goodbye if there is room for one. */
static void ignis__channel_free(ignis__wire *wire, ignis__listener *listener)
{
    ignis__trouble ignored;
    if (wire && !ignis__atomic_load(&wire->lost))
        (void)ignis__wire_send(&ignored, wire, IGNIS__HEAD_GOODBYE, NULL, 0, NULL, 0, &ignis__until_now);
    ignis__wire_free(wire);
    ignis__listener_free(listener);
}

static void ignis__channel_drop(ignis__channel *channel)
{
    ignis__wire *wire = channel->wire;
    ignis__listener *listener = channel->listener;
    if (!ignis__pool_drop(channel))
        return;
    channel->wire = NULL;
    channel->listener = NULL;
    ignis__pool_recycle(&ignis__channels, channel);
    ignis__channel_free(wire, listener);
}

static bool ignis__channel_kill(ignis__channel *channel)
{
    if (!ignis__handle_kill(channel))
        return false;
    ignis__atomic_store(channel->wire ? &channel->wire->closing : &channel->listener->closing, 1);
    return true;
}

IGNIS__COLD static void ignis__channels_close(const char *call)
{
    ignis__channel *channel;
    uint64_t index = 0;
    while ((channel = (ignis__channel *)ignis__pool_next(&ignis__channels, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "channel, the end of the %s",
                           channel->listener ? "server" : "client");
        ignis__channel_kill(channel);
        ignis__channel_drop(channel);
    }
}

/*  Gives a wire or a listener a handle; frees it when that cannot be. */
static ignis_channel ignis__channel_publish(const char *call, ignis__wire *wire, ignis__listener *listener)
{
    ignis_channel handle = IGNIS__ZERO;
    ignis__channel *channel = (ignis__channel *)ignis__pool_take(call, &ignis__channels);
    if (!channel) {
        ignis__channel_free(wire, listener);
        return handle;
    }
    ignis__section_use(IGNIS__SECTION_CHANNEL, ignis__channels_close);
    channel->wire = wire;
    channel->listener = listener;
    handle.id = ignis__pool_publish(&ignis__channels, channel);
    return handle;
}

static ignis__channel *ignis__channel_hold(const char *call, ignis_channel handle)
{
    return (ignis__channel *)ignis__handle_hold(call, &ignis__channels, handle.id);
}

/*  A held channel that listens, or one that does not. */
IGNIS__ONE_COPY static ignis__channel *ignis__channel_hold_as(const char *call, ignis_channel handle, bool server)
{
    ignis__channel *channel = ignis__channel_hold(call, handle);
    if (!channel || (channel->listener != NULL) == server)
        return channel;
    ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                server ? "the channel does not listen; ignis_channel_serve makes one that does"
                       : "the channel only listens; ignis_channel_accept makes those that carry messages");
    ignis__channel_drop(channel);
    return NULL;
}

IGNIS_API IGNIS__COLD ignis_channel ignis_channel_serve(const ignis_channel_desc *desc)
{
    static const char call[] = "ignis_channel_serve";
    ignis_channel none = IGNIS__ZERO;
    ignis__address_of address;
    ignis__trouble trouble;
    ignis__listener *listener;
    if (!ignis__channel_address(call, desc, &address))
        return none;
    if ((listener = ignis__listener_new(call, address.kind, address.path)) == NULL)
        return none;
    listener->timeout_ns = address.timeout_ns;
    if (ignis__listener_open(call, &trouble, listener, address.name_path, desc->token ? address.secret : NULL))
        return ignis__channel_publish(call, NULL, listener);
    ignis__channel_free(NULL, listener);
    ignis__trouble_report(call, &trouble);
    return none;
}

/*  When a call on a channel gives up: timeout_s from now; below 0: when the channel's own deadline has
    passed. */
static ignis__until ignis__channel_until(int64_t timeout_ns, const uint64_t *closing, double timeout_s)
{
    ignis__until until = ignis__until_in(timeout_s < 0 ? timeout_ns : ignis__timeout_ns(timeout_s));
    until.stop = closing;
    if (timeout_s == 0)
        until.deadline_ns = 0;
    return until;
}

static ignis_channel ignis__channel_accept(const char *call, ignis_channel handle, double timeout_s)
{
    ignis_channel accepted = IGNIS__ZERO;
    ignis__channel *channel = ignis__channel_hold_as(call, handle, true);
    ignis__trouble trouble;
    ignis__until until;
    ignis__wire *wire = NULL;
    ignis__listener *listener;
    uint64_t pid = 0;
    if (!channel)
        return accepted;
    listener = channel->listener;
    until = ignis__channel_until(listener->timeout_ns, &listener->closing, timeout_s);
    if (ignis__mutex_within(&trouble, &listener->lock, &until, "another thread was accepting, and did not end")) {
        while ((wire = ignis__listener_next(call, &trouble, listener, &until)) != NULL) {
            if (ignis__claim_read(&trouble, wire, &pid, sizeof pid) &&
                ignis__wire_welcome(&trouble, wire, IGNIS_CHANNEL_MAX_BYTES))
                break;
            ignis__listener_refuse(call, listener, wire, true, trouble.why);
        }
        ignis__mutex_unlock(&listener->lock);
    }
    if (wire) {
        wire->timeout_ns = listener->timeout_ns;
        if (wire->peer_pid == 0)
            wire->peer_pid = (int64_t)pid;
        accepted = ignis__channel_publish(call, wire, NULL);
    } else {
        ignis__trouble_report(call, &trouble);
    }
    ignis__channel_drop(channel);
    return accepted;
}

IGNIS_API ignis_channel ignis_channel_accept(ignis_channel handle)
{
    return ignis__channel_accept("ignis_channel_accept", handle, -1);
}

IGNIS_API ignis_channel ignis_channel_accept_within(ignis_channel handle, double timeout_s)
{
    return ignis__channel_accept("ignis_channel_accept_within", handle, timeout_s);
}

IGNIS_API IGNIS__COLD ignis_channel ignis_channel_connect(const ignis_channel_desc *desc)
{
    static const char call[] = "ignis_channel_connect";
    ignis_channel none = IGNIS__ZERO;
    ignis__address_of address;
    ignis__trouble trouble;
    ignis__until until;
    ignis__wire *wire;
    uint64_t pid = ignis__process_id();
    if (!ignis__channel_address(call, desc, &address))
        return none;
    until = ignis__until_in(address.timeout_ns);
    wire = ignis__wire_connect(&trouble, address.kind, address.path, address.name_path,
                               desc->token ? address.secret : NULL, &pid, sizeof pid, IGNIS_CHANNEL_MAX_BYTES, &until);
    if (wire) {
        wire->timeout_ns = address.timeout_ns;
        return ignis__channel_publish(call, wire, NULL);
    }
    ignis__trouble_report(call, &trouble);
    return none;
}

/*  What stands in the way of a message, before anything is done. */
static bool ignis__channel_send_check(const char *call, const ignis__wire *wire, const void *data, int64_t size,
                                      const int *fds, int fd_count)
{
    int i;
    if (size < 0 || size > IGNIS_CHANNEL_MAX_BYTES)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld; a message has 0 to %d bytes",
                                 (long long)size, IGNIS_CHANNEL_MAX_BYTES);
    if (fd_count < 0 || fd_count > IGNIS_CHANNEL_MAX_FDS)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "fd_count is %d; 0 to %d descriptors go with a message",
                                 fd_count, IGNIS_CHANNEL_MAX_FDS);
    if ((size > 0 && !ignis__check_not_null(call, "data", data)) ||
        (fd_count > 0 && !ignis__check_not_null(call, "fds", fds)))
        return false;
    if (fd_count > 0 && !wire->kind->descriptors)
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_DESCRIPTOR, call,
                                 "descriptors do not travel through a channel by %s; use IGNIS_CHANNEL_SOCKET",
                                 ignis__method_names[wire->kind->method]);
    for (i = 0; i < fd_count; i++)
        if (!ignis__fd_open(fds[i]))
            return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "fds[%d] is %d, which is no open descriptor", i,
                                     fds[i]);
    return true;
}

/*  After a failure that leaves the two sides out of step. */
static void ignis__wire_fail(ignis__wire *wire, const ignis__trouble *trouble)
{
    if (trouble->diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT || trouble->diagnostic == IGNIS_DIAG_CHANNEL_FREED)
        return;
    if (!ignis__atomic_load(&wire->lost))
        ignis__atomic_store(&wire->lost, 1);
    if (wire->kind->shutdown)
        wire->kind->shutdown(wire);
}

/*  Sends one message of a type, in the time that there is, or says why not. */
static bool ignis__channel_put(ignis__trouble *trouble, ignis__wire *wire, int type, const void *data, size_t size,
                               const int *fds, int fd_count, double timeout_s)
{
    ignis__until until = ignis__channel_until(wire->timeout_ns, &wire->closing, timeout_s);
    bool ok;
    if (!ignis__mutex_within(trouble, &wire->send_lock, &until, "another thread was sending, and did not end"))
        return false;
    ok = ignis__wire_usable(trouble, wire) && ignis__wire_send(trouble, wire, type, data, size, fds, fd_count, &until);
    /* what the other side said before it went can still be received */
    if (!ok && trouble->diagnostic != IGNIS_DIAG_CHANNEL_LOST)
        ignis__wire_fail(wire, trouble);
    ignis__mutex_unlock(&wire->send_lock);
    return ok;
}

static ignis_status ignis__channel_send(const char *call, ignis_channel handle, const void *data, int64_t size,
                                        const int *fds, int fd_count, double timeout_s)
{
    ignis__channel *channel = ignis__channel_hold_as(call, handle, false);
    ignis_status status = IGNIS_OK;
    ignis__trouble trouble;
    if (!channel)
        return ignis__failed();
    if (!ignis__channel_send_check(call, channel->wire, data, size, fds, fd_count))
        status = ignis__failed();
    else if (!ignis__channel_put(&trouble, channel->wire, IGNIS__HEAD_DATA, data, (size_t)size, fds, fd_count,
                                 timeout_s))
        status = ignis__trouble_report(call, &trouble);
    ignis__channel_drop(channel);
    return status;
}

IGNIS_API ignis_status ignis_channel_send(ignis_channel handle, const void *data, int64_t size, const int *fds,
                                          int fd_count)
{
    return ignis__channel_send("ignis_channel_send", handle, data, size, fds, fd_count, -1);
}

IGNIS_API ignis_status ignis_channel_send_within(ignis_channel handle, const void *data, int64_t size, const int *fds,
                                                 int fd_count, double timeout_s)
{
    return ignis__channel_send("ignis_channel_send_within", handle, data, size, fds, fd_count, timeout_s);
}

/*  Hands the message in the inbox out, if there is room for it. */
static ignis_status ignis__inbox_take(const char *call, ignis__wire *wire, void *data, int64_t capacity, int64_t *size,
                                      int *fds, int fd_capacity, int *fd_count)
{
    int64_t bytes = (int64_t)ignis__head_of(wire).size;
    int count = wire->inbox_fd_count;
    if (size)
        *size = bytes;
    if (fd_count)
        *fd_count = count;
    if (bytes > capacity || count > fd_capacity)
        return ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call,
                           "the message has %lld bytes and %d descriptors; there is room for %lld and %d",
                           (long long)bytes, count, (long long)capacity, fd_capacity);
    if (bytes > 0)
        memcpy(data, wire->inbox + sizeof(ignis__head), (size_t)bytes);
    if (count > 0)
        memcpy(fds, wire->inbox_fds, (size_t)count * sizeof(int));
    wire->inbox_fd_count = 0; /* they are the caller's now */
    ignis__inbox_next(wire);
    return IGNIS_OK;
}

/*  Sends on what a stream has not taken yet, if nobody else is sending. */
static void ignis__wire_push(ignis__wire *wire)
{
    ignis__trouble ignored;
    if (!ignis__atomic_load(&wire->unsent) || !ignis__mutex_try(&wire->send_lock))
        return;
    (void)ignis__wire_flush(&ignored, wire, &ignis__until_now);
    ignis__mutex_unlock(&wire->send_lock);
}

/*  Brings the next message or array into the inbox. True: the receive lock is the caller's. */
static bool ignis__wire_next(ignis__trouble *trouble, ignis__wire *wire, double timeout_s)
{
    ignis__until until = ignis__channel_until(wire->timeout_ns, &wire->closing, timeout_s);
    int type;
    ignis__wire_push(wire);
    if (!ignis__mutex_within(trouble, &wire->receive_lock, &until, "another thread was receiving, and did not end"))
        return false;
    if (wire->inbox_whole)
        return true;
    if (ignis__wire_usable(trouble, wire) && ignis__wire_fetch(trouble, wire, &until)) {
        type = ignis__head_of(wire).type;
        if (type == IGNIS__HEAD_DATA || type == IGNIS__HEAD_ARRAY)
            return true;
        ignis__trouble_set(trouble, IGNIS_DIAG_CHANNEL_MESSAGE, "a message of type %d came", type);
        if (type == IGNIS__HEAD_GOODBYE) {
            ignis__atomic_store(&wire->lost, 2);
            (void)ignis__wire_usable(trouble, wire);
        }
    }
    if (trouble->diagnostic != IGNIS_DIAG_CHANNEL_TIMEOUT)
        ignis__inbox_clear(wire);
    ignis__wire_fail(wire, trouble);
    ignis__mutex_unlock(&wire->receive_lock);
    return false;
}

static ignis_status ignis__channel_receive(const char *call, ignis_channel handle, void *data, int64_t capacity,
                                           int64_t *size, int *fds, int fd_capacity, int *fd_count, double timeout_s)
{
    ignis__channel *channel = ignis__channel_hold_as(call, handle, false);
    ignis_status status;
    ignis__trouble trouble;
    ignis__wire *wire;
    if (!channel)
        return ignis__failed();
    wire = channel->wire;
    if (capacity < 0 || fd_capacity < 0) {
        status = ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %lld and fd_capacity %d; neither is below 0",
                             (long long)capacity, fd_capacity);
    } else if ((capacity > 0 && !ignis__check_not_null(call, "data", data)) ||
               (fd_capacity > 0 && !ignis__check_not_null(call, "fds", fds))) {
        status = ignis__failed();
    } else if (!ignis__wire_next(&trouble, wire, timeout_s)) {
        status = ignis__trouble_report(call, &trouble);
    } else {
        if (ignis__head_of(wire).type != IGNIS__HEAD_DATA)
            status = ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                                 "what comes next is an array; take it with ignis_share_receive");
        else
            status = ignis__inbox_take(call, wire, data, capacity, size, fds, fd_capacity, fd_count);
        ignis__mutex_unlock(&wire->receive_lock);
    }
    ignis__channel_drop(channel);
    return status;
}

IGNIS_API ignis_status ignis_channel_receive(ignis_channel handle, void *data, int64_t capacity, int64_t *size,
                                             int *fds, int fd_capacity, int *fd_count)
{
    return ignis__channel_receive("ignis_channel_receive", handle, data, capacity, size, fds, fd_capacity, fd_count,
                                  -1);
}

IGNIS_API ignis_status ignis_channel_receive_within(ignis_channel handle, void *data, int64_t capacity, int64_t *size,
                                                    int *fds, int fd_capacity, int *fd_count, double timeout_s)
{
    return ignis__channel_receive("ignis_channel_receive_within", handle, data, capacity, size, fds, fd_capacity,
                                  fd_count, timeout_s);
}

IGNIS_API ignis_status ignis_channel_query(ignis_channel handle, ignis_channel_info *info)
{
    static const char call[] = "ignis_channel_query";
    ignis__channel *channel = ignis__check_not_null(call, "info", info) ? ignis__channel_hold(call, handle) : NULL;
    ignis__wire *wire;
    ignis__listener *listener;
    if (!channel)
        return ignis__failed();
    wire = channel->wire;
    listener = channel->listener;
    memset(info, 0, sizeof *info);
    info->method = (wire ? wire->kind : listener->kind)->method;
    info->server = listener != NULL;
    info->alive = !wire || (!ignis__atomic_load(&wire->lost) && wire->kind->alive(wire));
    info->peer_pid = wire ? wire->peer_pid : 0;
    info->peer_uid = wire ? wire->peer_uid : -1;
    info->refused = listener ? (int64_t)ignis__atomic_load(&listener->refused) : 0;
    snprintf(info->path, sizeof info->path, "%s", wire ? wire->path : listener->path);
    if (wire)
        ignis__wire_push(wire);
    info->unsent = wire ? (int64_t)ignis__atomic_load(&wire->unsent) : 0;
    info->fd = info->send_fd = -1;
#ifndef _WIN32
    info->fd = wire ? wire->in : listener->kind == &ignis__wire_memory ? -1 : listener->poll;
    info->send_fd = wire ? wire->out : -1;
#endif
    ignis__channel_drop(channel);
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_channel_close(ignis_channel handle)
{
    static const char call[] = "ignis_channel_close";
    ignis__channel *channel;
    ignis_status status = IGNIS_OK;
    if (!handle.id)
        return IGNIS_OK;
    channel = ignis__channel_hold(call, handle);
    if (!channel)
        return ignis__failed();
    if (!ignis__channel_kill(channel))
        status = ignis__fail(IGNIS_DIAG_CHANNEL_FREED, call, "another thread has closed the channel");
    ignis__channel_drop(channel);
    return status;
}
