// SPDX-License-Identifier: MIT
/*  http.c - requests as HTTP has them: request line, headers, body, and which pages and clients are refused */

static const route routes[] = {
    {"GET", "/", true, 0, answer_page},
    {"GET", "/health", true, 0, answer_health},
    {"GET", "/v1/health", true, 0, answer_health},
    {"GET", "/metrics", false, 0, answer_metrics},
    {"GET", "/props", false, 0, answer_props},
    {"GET", "/v1/models", false, 0, answer_models},
    {"GET", "/v1/models/*", false, 0, answer_model},
    {"POST", "/v1/completions", false, TEXT, answer_text},
    {"POST", "/v1/chat/completions", false, CHAT, answer_text},
    {"POST", "/v1/responses", false, RESPONSES, answer_text},
    {"POST", "/v1/embeddings", false, EMBED, answer_text},
    {"POST", "/completion", false, NATIVE, answer_text},
    {"POST", "/tokenize", false, TOKENS, answer_tokens},
    {"POST", "/detokenize", false, TOKENS, answer_tokens},
};

/*  Returns whether a path is that of a route. Of one that ends in a star, *rest is what the star is for. */
static bool is_at(const char *path, const char *pattern, const char **rest)
{
    size_t size = strlen(pattern);
    bool star = pattern[size - 1] == '*';
    *rest = path + size - star;
    return star ? strncmp(path, pattern, size - 1) == 0 : strcmp(path, pattern) == 0;
}

/*  Waits for more input. False if the connection ends without it. */
static bool receive(connection *c)
{
    size_t had;
    text_cut(&c->in, c->taken);
    c->taken = 0;
    had = c->in.size;
    while (fetch(c) && c->in.size == had)
        if (!wait_for(c, POLLIN, c->until))
            return c->idle ? false : refuse(c, 408, NULL, "the request has not come in time");
    return !c->gone;
}

/*  Returns the next line, without its end; null, if the request is refused, or the client has left. *room: the bytes
    that lines may have. */
static char *read_line(connection *c, size_t *room, int number, const char *too_long)
{
    size_t i;
    for (i = 0; i < *room; i++) {
        char *line, now, before;
        if (c->taken + i == c->in.size && !receive(c))
            return NULL;
        line = c->in.data + c->taken;
        now = line[i];
        before = (char)(i ? line[i - 1] : 0);
        if (((unsigned char)now < 0x20 && !strchr("\t\r\n", now)) || now == 0 || now == 0x7F ||
            (now == '\n') != (before == '\r')) {
            refuse(c, 400, NULL, "this is not HTTP: control characters, or lines that do not end in CR LF");
            return NULL;
        }
        if (now == '\n') {
            line[i - 1] = 0;
            c->taken += i + 1;
            *room -= i + 1;
            return line;
        }
    }
    refuse(c, number, NULL, "%s", too_long);
    return NULL;
}

static bool is_token(const char *s)
{
    return *s && !s[strspn(s, "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")];
}

enum { HOST, LENGTH, CODING, CONNECTION, EXPECT, KEY, TYPE, ORIGIN, ENCODING, FIELDS };

static const char *const fields[FIELDS] = {"Host",         "Content-Length", "Transfer-Encoding",
                                           "Connection",   "Expect",         "Authorization",
                                           "Content-Type", "Origin",         "Content-Encoding"};

/*  Returns whether only this machine reaches the server. */
static bool is_local(void)
{
    return strcmp(settings.host, "localhost") == 0 || strncmp(settings.host, "127.", 4) == 0 ||
           strcmp(settings.host, "::1") == 0;
}

/*  Returns whether a name is an address, as "192.168.1.5" or "[fe80::1]". */
static bool is_address(const char *name)
{
    unsigned char address[16];
    char inside[256] = "";
    if (name[0] != '[')
        return inet_pton(AF_INET, name, address) == 1;
    snprintf(inside, sizeof inside, "%.*s", (int)strcspn(name + 1, "]"), name + 1);
    return inet_pton(AF_INET6, inside, address) == 1;
}

/*  Returns whether the name in "name:port" is this server's. A page whose name was made to lead to this machine (DNS
    rebinding) has another one than this server, which is no address; and no key. */
static bool is_own_name(const char *host)
{
    char name[256];
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    size_t size = end ? (size_t)(end + 1 - host) : strcspn(host, ":");
    if (!size || size >= sizeof name ||
        (host[size] && (host[size] != ':' || host[size + 1 + strspn(host + size + 1, "0123456789")])))
        return false;
    snprintf(name, sizeof name, "%.*s", (int)size, host);
    return has_item("localhost,127.0.0.1,[::1]", name, strncasecmp) || has_item(settings.allowed, name, strncasecmp) ||
           strcasecmp(name, settings.host) == 0 || (!is_local() && (is_address(name) || settings.key));
}

/*  Returns which of the keys "a,b" was shown, from 1 on; 0: none. Takes as long for every key of the same length. */
static int find_key(const char *given)
{
    const char *key = settings.key;
    int found = 0, number = 1;
    size_t size, i;
    if (!given || strncasecmp(given, "Bearer ", 7) != 0)
        return 0;
    for (given += 7; *key; key += size + (key[size] != 0), number++) {
        int difference = 0;
        size = strcspn(key, ",");
        for (i = 0; i < size && strlen(given) == size; i++)
            difference |= key[i] ^ given[i];
        if (size && strlen(given) == size && difference == 0)
            found = number;
    }
    return found;
}

/*  Reads header lines, with a 0 behind each and an empty one at the end, into values. */
static bool read_fields(connection *c, char *line, const char *values[FIELDS])
{
    int i, count = 0;
    char *next;
    for (; *line; line = next) {
        char *end = line + strlen(line), *colon = strchr(line, ':'), *value;
        next = end + 1;
        if (!colon)
            return refuse(c, 400, NULL, "a header line without a colon");
        *colon = 0;
        if (!is_token(line))
            return refuse(c, 400, NULL, "the name of a header has characters that names do not have");
        if (++count > MAX_HEADERS)
            return refuse(c, 431, NULL, "too many headers");
        value = colon + 1 + strspn(colon + 1, " \t");
        while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
            *--end = 0;
        for (i = 0; i < FIELDS && strcasecmp(line, fields[i]) != 0; i++)
            continue;
        if (i < FIELDS && values[i])
            return refuse(c, 400, NULL, "a header that says how to read the request is there twice");
        if (i < FIELDS)
            values[i] = value;
    }
    return true;
}

/*  Checks the head: finds the length of the body and the route, or refuses the request. */
static bool check_head(connection *c, const char *method, const char *path, const char *values[FIELDS])
{
    const char *host = values[HOST], *origin = values[ORIGIN], *site = origin ? strstr(origin, "://") : NULL;
    const char *length = values[LENGTH], *type = values[TYPE] ? values[TYPE] : "", *going_on = values[CONNECTION];
    const route *r = routes, *end = routes + COUNT(routes);
    c->chunked = values[CODING] != NULL;
    if (c->chunked && (length || c->old))
        return refuse(c, 400, NULL, "Transfer-Encoding beside Content-Length, or in HTTP/1.0");
    if (c->chunked && strcasecmp(values[CODING], "chunked") != 0)
        return refuse(c, 501, NULL, "Transfer-Encoding: only chunked is known");
    if (length && (!*length || length[strspn(length, "0123456789")]))
        return refuse(c, 400, NULL, "Content-Length is %.40s; expected a number of bytes", length);
    if (length && (strlen(length) > 12 || atoll(length) > settings.max_body))
        return refuse(c, 413, NULL, "the body has %.40s bytes; expected at most %lld (--max-body)", length,
                      (long long)settings.max_body);
    c->length = length ? (size_t)atoll(length) : 0;
    c->head_only = strcmp(method, "HEAD") == 0;
    if (!host && !c->old)
        return refuse(c, 400, NULL, "HTTP/1.1 needs a Host header");
    if (host && !is_own_name(host))
        return refuse(c, 403, NULL, "Host is none of this server's names; --allow-host adds one");
    if (origin && settings.origins &&
        (has_item(settings.origins, "*", strncmp) || has_item(settings.origins, origin, strncasecmp)))
        c->origin = origin;
    else if (origin && (!site || !host || strcasecmp(site + 3, host) != 0))
        return refuse(c, 403, NULL, "Origin is the page of another site; --allow-origin adds one");
    c->lasting = c->old ? has_item(going_on, "keep-alive", strncasecmp) : !has_item(going_on, "close", strncasecmp);
    c->keep = c->lasting && !c->chunked && !c->length; /* if it is refused, nobody reads the body */
    while (r < end && !is_at(path, r->path, &c->rest))
        r++;
    c->route = r;
    if (r == end)
        return refuse(c, 404, NULL, "the path is %.200s; expected one of this server's, such as /v1/chat/completions",
                      path);
    if (c->origin && strcmp(method, "OPTIONS") == 0) {
        respond(c, 204, "text/plain", ""); /* what a browser asks before it sends a request of another site's page */
        return false;
    }
    if (strcmp(method, r->method) != 0 && !(c->head_only && strcmp(r->method, "GET") == 0))
        return refuse(c, 405, NULL, "the method is %.20s; expected %s at this path", method, r->method);
    c->key = settings.key ? find_key(values[KEY]) : 0;
    if (settings.key && !r->open && !c->key)
        return refuse(c, 401, NULL, "no key, or a wrong one: Authorization: Bearer KEY");
    if (r->kind && !c->chunked && !length)
        return refuse(c, 411, NULL, "neither Content-Length nor Transfer-Encoding");
    if (r->kind && (strncasecmp(type, "application/json", 16) != 0 || !strchr("; \t", type[16])))
        return refuse(c, 415, NULL, "Content-Type is %.80s; expected application/json", *type ? type : "missing");
    if (values[ENCODING] && strcasecmp(values[ENCODING], "identity") != 0)
        return refuse(c, 415, NULL, "Content-Encoding: a body has to come as it is, without compression");
    if (values[EXPECT] && strcasecmp(values[EXPECT], "100-continue") != 0)
        return refuse(c, 417, NULL, "Expect: only 100-continue is known");
    c->keep = false;
    return true;
}

/*  Reads the request line and the headers. False if they are refused, or do not come. */
static bool read_head(connection *c)
{
    const char *values[FIELDS] = {0}, *target_host = NULL;
    char *method, *path, *version, *line, authority[300];
    size_t room = MAX_HEAD, size;
    c->keep = c->old = c->head_only = c->begun = false;
    c->origin = NULL;
    c->idle = true;
    c->until = seconds() + (double)settings.idle_time;
    do { /* some clients end a body with one line too many */
        if (c->taken == c->in.size && !receive(c))
            return false;
        c->taken += strspn(c->in.data + c->taken, "\r\n");
    } while (c->taken == c->in.size);
    c->idle = false;
    c->until = seconds() + (double)settings.request_time;
    text_cut(&c->head, c->head.size);
    do {
        line = read_line(c, &room, 431, "the request line and the headers are too long");
        if (!line)
            return false;
        text_add(&c->head, line, strlen(line) + 1);
    } while (*line);
    method = c->head.data;
    line = method + strlen(method) + 1;
    path = strchr(method, ' ');
    version = path ? strchr(path + 1, ' ') : NULL;
    if (!version || strchr(version + 1, ' '))
        return refuse(c, 400, NULL, "the request line is not METHOD PATH VERSION");
    *path++ = *version++ = 0;
    if (strncasecmp(path, "http://", 7) == 0 ||
        strncasecmp(path, "https://", 8) == 0) { /* as to a proxy: a server has to take it, too */
        path = strstr(path, "://") + 3;
        size = strcspn(path, "/?#");
        if (!size || size >= sizeof authority)
            return refuse(c, 400, NULL, "the target of the request has no host, or a long one");
        snprintf(authority, sizeof authority, "%.*s", (int)size, path);
        path += size;
        target_host = authority;
        if (*path != '/')
            *--path = '/', path[1] = 0; /* in place of the last byte of the host, which was copied */
    }
    if (strncmp(version, "HTTP/", 5) != 0 || !is_token(method) || path[0] != '/')
        return refuse(c, 400, NULL, "the request line is not METHOD PATH VERSION");
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return refuse(c, 505, NULL, "only HTTP/1.1 and 1.0 are known");
    path[strcspn(path, "?")] = 0;
    c->old = version[7] == '0';
    if (!read_fields(c, line, values))
        return false;
    if (target_host && (values[HOST] || c->old))
        values[HOST] = target_host; /* it is what counts (RFC 9112, 3.2.2) */
    if (!check_head(c, method, path, values))
        return false;
    if (values[EXPECT] && !c->old && (c->chunked || c->length) && c->taken == c->in.size) {
        text_print(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
        flush(c);
    }
    return true;
}

static bool read_bytes(connection *c, size_t size)
{
    while (size) {
        size_t there = c->in.size - c->taken, piece = there < size ? there : size;
        if (!piece && !receive(c))
            return false;
        text_add(&c->body, c->in.data + c->taken, piece);
        c->taken += piece;
        size -= piece;
    }
    return true;
}

static bool read_body(connection *c)
{
    static const char too_long[] = "a line between chunks is too long";
    size_t room, digits, size = c->length;
    char *line;
    if (!c->chunked)
        return read_bytes(c, size);
    for (;;) {
        room = MAX_LINE;
        line = read_line(c, &room, 400, too_long);
        if (!line)
            return false;
        digits = strspn(line, "0123456789abcdefABCDEF");
        if (!digits || digits > 8 || !strchr("; \t", line[digits]))
            return refuse(c, 400, NULL, "a chunk without a size");
        size = (size_t)strtoul(line, NULL, 16);
        if (!size)
            break;
        if (c->body.size + size > (size_t)settings.max_body)
            return refuse(c, 413, NULL, "the body has more than %lld bytes, the most that is taken (--max-body)",
                          (long long)settings.max_body);
        if (!read_bytes(c, size) || !(line = read_line(c, &room, 400, too_long)))
            return false;
        if (*line)
            return refuse(c, 400, NULL, "a chunk is longer than its size");
    }
    for (room = MAX_HEAD; line && *line;) /* trailers say nothing that matters here */
        line = read_line(c, &room, 431, "the trailers are too long");
    return line != NULL;
}
