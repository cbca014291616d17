// SPDX-License-Identifier: MIT
/*  serve.c - an HTTP server for language models, which OpenAI's clients can talk to; README.md has its use and its
    design

        cc -I. apps/serve/serve.c -o serve -lm -ldl -lpthread && ./serve --help

    One program: this file includes its parts in order, and each part uses those before it. It ends with the threads of
    connections.
    For POSIX systems: Windows has neither poll nor signals as they are used here. */
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define MAX_HEAD 16384  /* bytes of a request line and its headers */
#define MAX_HEADERS 100 /* lines */
#define MAX_LINE 1024   /* bytes of a line between chunks */
#define MAX_DEPTH 32    /* of JSON */
#define MAX_MEMBERS 512 /* of one JSON object */
#define MAX_VALUES 400000
#define MAX_STOPS 16
#define MAX_BIASES 512
#define MAX_SEQUENCES 1024
#define PIECE 256      /* tokens of a prompt that are computed between two steps */
#define PIECE_TEXTS 16 /* texts of which vectors are computed between two steps */
#define OVER 8         /* connections above the limit, which get 503 */
#define LINGER 2.0     /* seconds in which a client may read the last answer */

#define MAX_JOBS 128   /* texts of one request */
#define MAX_TOPS 20    /* of top_logprobs */
#define MAX_TEXTS 2048 /* of /v1/embeddings */
#define MAX_TOOLS 128
#define MAX_ADAPTERS 64

#define COUNT(array) (sizeof(array) / sizeof *(array))

#include "text.c"
#include "json.c"
#include "settings.c"
#include "calls.c"
#include "forced.c"
#include "queue.c"
#include "model.c"
#include "score.c"
#include "engine.c"
#include "connection.c"
#include "messages.c"
#include "lists.c"
#include "answer.c"
#include "responses.c"
#include "request.c"
#include "tokens.c"
#include "follow.c"
#include "page.c"
#include "http.c"

/* --- the threads of connections ---------------------------------------------------------------------------------- */

static void *serve(void *data)
{
    connection *c = (connection *)data, **at = &shared.connections;
    double until;
    if (c->refused)
        refuse(c, 503, NULL, "as many connections are open as this server takes");
    else
        do {
            if (read_head(c) && read_body(c)) {
                c->keep = c->lasting;
                c->route->answer(c);
            }
            text_free(&c->body), text_free(&c->out), text_free(&c->part), text_free(&c->head); /* they may be large */
            if (c->taken == c->in.size)
                text_free(&c->in), c->taken = 0;
        } while (c->keep && !c->gone);
    shutdown(c->fd, SHUT_WR);
    for (until = seconds() + LINGER;
         fetch(c) && wait_for(c, POLLIN, until);) /* or what still comes takes the last answer with it */
        text_cut(&c->in, c->in.size);
    close(c->fd);
    pthread_mutex_lock(&shared.lock);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    shared.connection_count--;
    pthread_cond_signal(&shared.ended);
    pthread_mutex_unlock(&shared.lock);
    text_free(&c->in), text_free(&c->out), text_free(&c->part);
    free(c);
    return NULL;
}

/*  Reads the address of a client; of IPv6 its first 64 bits, as a client may choose the others. Returns whether it is
    the loopback of this machine. */
static bool read_address(const struct sockaddr_storage *from, unsigned char address[16])
{
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}, own[16] = {[15] = 1};
    memset(address, 0, 16);
    if (from->ss_family == AF_INET) {
        memcpy(address, mapped, 12);
        memcpy(address + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
    } else if (from->ss_family == AF_INET6) {
        memcpy(address, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
    }
    if (memcmp(address, mapped, 12) == 0)
        return address[12] == 127;
    if (memcmp(address, own, 16) == 0)
        return true;
    memset(address + 8, 0, 8);
    return false;
}

/*  Refuses a connection of an address that has as many as it may have, without a thread, and without waiting for it. */
static void turn_away(connection *c)
{
    const char *body = make_error(c, 503, NULL, "this address has as many connections as it may have");
    ssize_t sent;
    put_head(c, 503, "application/json", (int64_t)strlen(body));
    text_add(&c->out, body, strlen(body));
    sent = send(c->fd, c->out.data, c->out.size, 0);
    (void)sent;
    text_free(&c->out), text_free(&c->part);
}

/*  Starts a thread for a connection. Under the lock. */
static void take_up(int fd, const struct sockaddr_storage *from)
{
    connection *c = (connection *)allocate(1, sizeof *c), *other;
    bool own = read_address(from, c->address);
    int same = 0, on = 1;
    pthread_t thread;
    for (other = shared.connections; other; other = other->next)
        same += memcmp(other->address, c->address, sizeof c->address) == 0;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->fd = fd;
    c->refused = shared.connection_count >= settings.connections;
    same = same >= settings.client_connections && (!own || settings.limits_all);
    if (same)
        turn_away(c);
    if (same || pthread_create(&thread, NULL, serve, c) != 0) {
        close(fd);
        free(c);
        return;
    }
    pthread_detach(thread);
    shared.connection_count++;
    c->next = shared.connections;
    shared.connections = c;
}

/*  Accepts connections until a signal comes; then until all that runs is answered, or the time for that is over, or a
    second signal comes. */
static void run(int listener)
{
    struct pollfd polled[2] = {{listener, POLLIN, 0}, {shared.signal_pipe[0], POLLIN, 0}};
    int fd;
    pthread_mutex_lock(&shared.lock);
    while (!interrupted() || shared.connection_count) {
        struct sockaddr_storage from;
        socklen_t size = sizeof from;
        if (interrupted()) {
            double stop = seconds() + (interrupted() > 1 ? 0 : (double)settings.grace_time);
            stop = stop < stop_time() ? stop : stop_time();
            __atomic_store(&shared.stop, &stop, __ATOMIC_SEQ_CST);
        }
        if (interrupted() || shared.connection_count >= settings.connections + OVER) {
            nap(&shared.ended, &shared.lock);
            continue;
        }
        pthread_mutex_unlock(&shared.lock);
        memset(&from, 0, sizeof from);
        fd = poll(polled, 2, -1) > 0 && polled[0].revents ? accept(listener, (struct sockaddr *)&from, &size) : -1;
        if (fd < 0)
            poll(NULL, 0, 100); /* no descriptors, say: not again at once */
        pthread_mutex_lock(&shared.lock);
        if (fd >= 0)
            take_up(fd, &from);
    }
    pthread_mutex_unlock(&shared.lock);
}

/*  Opens the socket, and writes its address to `at`: the system may choose the port. */
static int open_listener(char *at, size_t capacity)
{
    struct addrinfo want, *list = NULL, *a;
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char port[16];
    int fd = -1, on = 1, code;
    memset(&want, 0, sizeof want);
    want.ai_socktype = SOCK_STREAM;
    want.ai_flags = AI_PASSIVE;
    snprintf(port, sizeof port, "%d", (int)settings.port);
    code = getaddrinfo(settings.host, port, &want, &list);
    if (code)
        give_up("no such address: ", gai_strerror(code));
    for (a = list; a; a = a->ai_next) { /* the first one that it can have */
        fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 128) == 0)
            break;
        code = errno;
        close(fd);
    }
    if (!a)
        give_up("cannot listen there: ", strerror(code));
    freeaddrinfo(list);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    getsockname(fd, (struct sockaddr *)&address, &size);
    getnameinfo((struct sockaddr *)&address, size, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    snprintf(at, capacity, strchr(settings.host, ':') ? "http://[%s]:%s" : "http://%s:%s", settings.host, port);
    return fd;
}

/*  Bounds the memory that glibc keeps for later: else there are eight arenas for each processor, and an arena keeps
    blocks up to the size of the largest one that was ever freed. */
static void limit_arenas(void)
{
#ifdef __GLIBC__
    mallopt(M_ARENA_MAX, 8);
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* the first value, which then does not rise */
#endif
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_flags = 0};
    pthread_t thread;
    char at[300];
    int listener;
    limit_arenas();
    read_settings(argc, argv);
    open_engine();
    listener = open_listener(at, sizeof at);
    if (!settings.key && !is_local())
        fprintf(stderr, "serve: without --api-key everybody who reaches %s may use this server\n", settings.host);
    if (pipe(shared.signal_pipe) != 0)
        give_up("no pipe: ", strerror(errno));
    fcntl(shared.signal_pipe[1], F_SETFL, O_NONBLOCK);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    if (pthread_create(&thread, NULL, run_model, NULL) != 0)
        give_up("no thread for the model", "");
    printf("serve: %s at %s\n", settings.name, at);
    fflush(stdout);

    run(listener);
    close(listener);
    pthread_mutex_lock(&shared.lock);
    shared.quit = true;
    pthread_cond_signal(&shared.wake_model);
    pthread_mutex_unlock(&shared.lock);
    pthread_join(thread, NULL);
    while (engine.adapter_count) {
        ignis_lora_free(engine.adapters[--engine.adapter_count].lora);
        free(engine.adapters[engine.adapter_count].name);
    }
    ignis_model_free(engine.model);
    text_free(&engine.name), text_free(&engine.asked), text_free(&engine.lead);
    free(engine.logits);
    puts("serve: ended");
    return ignis_shutdown() != IGNIS_OK;
}
