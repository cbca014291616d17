// SPDX-License-Identifier: MIT
/*  connection.c - a connection: waits for its socket, sends answers and errors */

typedef struct connection {
    struct connection *next;   /* under the lock of what is shared */
    unsigned char address[16]; /* of the client: IPv6, or IPv4 as IPv6 has it */
    int fd;
    bool refused; /* it is one too many */
    bool gone;    /* the client has left, or does not take its answer */
    text in;      /* bytes that have come */
    size_t taken; /* bytes of `in` that were read */
    text head, body, out;
    bool idle;    /* nothing of a request has come */
    double until; /* when the request has to be there */

    /* the request */
    const struct route *route;
    bool head_only, old; /* HEAD, HTTP/1.0 */
    bool lasting, keep;  /* the client wants the connection to go on; it does: all of the request was read */
    bool chunked;
    size_t length;      /* of the body, if it is not chunked */
    const char *origin; /* the page of another site that may use the server; or NULL */
    int key;            /* which of the keys was shown, from 1 on; 0: none is asked for */
    const char *rest;   /* of the path, behind that of the route */

    /* the answer */
    request *ask;
    bool begun; /* the first event of a stream is out */
    text part;
    char id[48];
    time_t created;
} connection;

static const struct status {
    int number;
    const char *reason, *type, *more; /* the type of error by OpenAI, headers */
} statuses[] = {
    {200, "OK", "", ""},
    {204, "No Content", "", ""},
    {400, "Bad Request", "invalid_request_error", ""},
    {401, "Unauthorized", "authentication_error", "WWW-Authenticate: Bearer\r\n"},
    {403, "Forbidden", "permission_error", ""},
    {404, "Not Found", "invalid_request_error", ""},
    {405, "Method Not Allowed", "invalid_request_error", ""}, /* Allow comes from the route */
    {408, "Request Timeout", "invalid_request_error", ""},
    {411, "Length Required", "invalid_request_error", ""},
    {413, "Content Too Large", "invalid_request_error", ""},
    {415, "Unsupported Media Type", "invalid_request_error", ""},
    {417, "Expectation Failed", "invalid_request_error", ""},
    {429, "Too Many Requests", "rate_limit_error", "Retry-After: 1\r\n"},
    {431, "Request Header Fields Too Large", "invalid_request_error", ""},
    {500, "Internal Server Error", "server_error", ""},
    {501, "Not Implemented", "invalid_request_error", ""},
    {503, "Service Unavailable", "server_error", "Retry-After: 5\r\n"},
    {505, "HTTP Version Not Supported", "invalid_request_error", ""},
};

static int64_t answered[COUNT(statuses)]; /* of each status; atomic */

static const struct status *status_of(int number)
{
    const struct status *s = statuses;
    while (s->number != number)
        s++;
    return s;
}

typedef struct route {
    const char *method, *path;
    bool open; /* no key is asked for */
    int kind;
    void (*answer)(connection *c);
} route;

/*  Waits for the socket. False if it is too late, also for the server as a whole. */
static bool wait_for(connection *c, short events, double until)
{
    struct pollfd polled[2] = {{c->fd, events, 0}, {shared.signal_pipe[0], POLLIN, 0}};
    for (;;) {
        double left = until - seconds(), rest = stop_time() + LINGER - seconds();
        bool ending = interrupted() > 0; /* then the pipe can always be read */
        if (left <= 0 || rest <= 0 || (ending && c->idle))
            return false;
        if (poll(polled, ending ? 1 : 2,
                 ending        ? 100
                 : left < 1000 ? (int)(left * 1000) + 1
                               : 1000000) > 0 &&
            polled[0].revents)
            return true;
    }
}

/*  Reads the bytes that have come, if any. False if the client has left. */
static bool fetch(connection *c)
{
    char buffer[MAX_HEAD];
    ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
    if (got > 0)
        text_add(&c->in, buffer, (size_t)got);
    else if (got == 0 || (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK))
        c->gone = true;
    return !c->gone;
}

/*  Sends all of the output. A client that does not take it in time counts as gone. */
static void flush(connection *c)
{
    double until = seconds() + (double)settings.request_time;
    size_t sent = 0;
    while (sent < c->out.size && !c->gone) {
        ssize_t now = send(c->fd, c->out.data + sent, c->out.size - sent, 0); /* SIGPIPE is ignored */
        if (now >= 0)
            sent += (size_t)now;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            c->gone = !wait_for(c, POLLOUT, until);
        else
            c->gone = errno != EINTR;
    }
    text_cut(&c->out, c->out.size);
}

/*  Adds the head of an answer. size: of the body; -1: it comes in pieces. */
static void put_head(connection *c, int number, const char *type, int64_t size)
{
    const struct status *s = status_of(number);
    char date[64];
    struct tm now;
    time_t clock = time(NULL);
    gmtime_r(&clock, &now);
    __atomic_add_fetch(&answered[s - statuses], 1, __ATOMIC_RELAXED);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &now);
    if (interrupted() || (size < 0 && c->old))
        c->keep = false; /* HTTP/1.0 has no chunks: the end of the connection is the end of the answer */
    text_print(&c->out, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\n%s", number, s->reason, date, type, s->more);
    text_print(&c->out, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
    if (c->origin)
        text_print(&c->out,
                   "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\nAccess-Control-Expose-Headers: X-Ignored, "
                   "Retry-After\r\n",
                   c->origin);
    if (number == 204) /* client libraries send headers of their own; the star does not include Authorization */
        text_print(&c->out, "Access-Control-Allow-Methods: GET, POST\r\nAccess-Control-Allow-Headers: "
                            "Authorization, Content-Type, *\r\nAccess-Control-Max-Age: 600\r\n");
    if (c->ask && c->ask->ignored.size)
        text_print(&c->out, "X-Ignored: %s\r\n", c->ask->ignored.data);
    if (number == 405)
        text_print(&c->out, "Allow: %s\r\n", strcmp(c->route->method, "GET") == 0 ? "GET, HEAD" : c->route->method);
    if (size >= 0 && number != 204)
        text_print(&c->out, "Content-Length: %lld\r\n", (long long)size);
    else if (size < 0 && !c->old)
        text_print(&c->out, "Transfer-Encoding: chunked\r\n");
    text_print(&c->out, "Connection: %s\r\n\r\n", c->keep ? "keep-alive" : "close");
}

static void respond(connection *c, int number, const char *type, const char *body)
{
    put_head(c, number, type, (int64_t)strlen(body));
    if (!c->head_only)
        text_add(&c->out, body, strlen(body));
    flush(c);
}

/*  Writes an error as OpenAI does. name: the parameter that is wrong, or null. */
static const char *make_error(connection *c, int number, const char *name, const char *message)
{
    text *t = &c->part;
    text_cut(t, t->size);
    text_print(t, "{\"error\":{\"message\":\"");
    text_escape(t, message, strlen(message));
    text_print(t, "\",\"type\":\"%s\",\"param\":%s", status_of(number)->type, name ? "\"" : "null");
    if (name)
        text_escape(t, name, strlen(name) < 100 ? strlen(name) : 100);
    text_print(t, "%s,\"code\":%d}}", name ? "\"" : "", number);
    return t->data;
}

/*  Answers with an error. Returns false, for the caller to return. */
static bool refuse(connection *c, int number, const char *name, const char *format, ...)
{
    char message[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    respond(c, number, "application/json", make_error(c, number, name, message));
    return false;
}

/*  Refuses a value of the body: "stop[1] is 7; expected a string". path: up to a dot or a bracket the parameter; value:
    NULL, if it is missing or null. Returns false, for the caller to return. */
static bool refuse_value(connection *c, const char *path, const json *value, const char *expected, ...)
{
    enum { SHOWN = 60 };
    char name[100], what[400];
    text shown = {0};
    size_t size = SHOWN;
    va_list arguments;
    va_start(arguments, expected);
    vsnprintf(what, sizeof what, expected, arguments);
    va_end(arguments);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(path, ".["), path);
    if (value && value->kind == JSON_NUMBER)
        text_add(&shown, value->digits, value->size);
    else if (value)
        json_print(&shown, value);
    else
        text_print(&shown, "missing");
    while (size < shown.size && (shown.data[size] & 0xC0) == 0x80) /* a character is shown whole */
        size--;
    refuse(c, 400, name, "%s is %.*s%s; expected %s", path, (int)size, shown.data, size < shown.size ? "..." : "",
           what);
    text_free(&shown);
    return false;
}
