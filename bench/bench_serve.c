// SPDX-License-Identifier: MIT
/*  bench_serve.c - what clients of apps/serve see: tokens a second of all, the time to the first one, and the longest
    pause

    Starts the server, then has clients ask side by side, each request after request on one connection, for streams of
    random prompts.

        make build/default/serve build/default/bench_serve build/default/bench_generate
        build/default/bench_generate folder=/dev/shm/models batch=1 drawn llama-135m
        build/default/bench_serve build/default/serve /dev/shm/models/ignis-llama-135m [OPTION=VALUE ...] [-- ARGUMENTS]

    The second line writes a model with random weights and a tokenizer. Options:

    - clients=1,8,64, tokens=128, prompt=64: clients at a time, tokens of an answer and of a prompt.
    - requests=4: of each client.

    Arguments after -- are those of the server, such as --sequences 64.
*/
#define _GNU_SOURCE
#include "timing.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_CLIENTS = 4096, BODY = 1 << 16 };

static int port, tokens = 128, prompt = 64, requests = 4;

typedef struct client {
    pthread_t thread;
    int number, refused;
    int64_t drawn;
    double *first, *pauses; /* seconds; of each request, and of each piece of an answer */
    int first_count, pause_count;
    bool failed;
} client;

static int dial(void)
{
    struct sockaddr_in to;
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    to.sin_port = htons((uint16_t)port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    close(fd);
    return -1;
}

/*  One request: 1 answered, 0 refused, -1 a failure. */
static int ask(client *c, int fd, int number)
{
    static _Thread_local char body[BODY], buffer[1 << 20];
    char head[256];
    size_t size = 0, filled = 0, seen = 0;
    int i, status = 0;
    double start, last;
    char *at;
    size += (size_t)snprintf(
        body, sizeof body,
        "{\"stream\":true,\"stream_options\":{\"include_usage\":true},\"max_tokens\":%d,\"seed\":%d,\"prompt\":[",
        tokens, number);
    for (i = 0; i < prompt; i++)
        size += (size_t)snprintf(body + size, sizeof body - size, "%s%d", i ? "," : "", (number * 131 + i * 7) % 250);
    size += (size_t)snprintf(body + size, sizeof body - size, "]}");
    i = snprintf(head, sizeof head,
                 "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                 "application/json\r\nContent-Length: %zu\r\n\r\n",
                 size);
    start = last = now();
    if (send(fd, head, (size_t)i, MSG_MORE) != i || send(fd, body, size, 0) != (ssize_t)size)
        return -1;
    for (;;) {
        ssize_t got = recv(fd, buffer + filled, sizeof buffer - filled - 1, 0);
        if (got <= 0)
            return -1;
        filled += (size_t)got;
        buffer[filled] = 0;
        if (!status && (sscanf(buffer, "HTTP/1.1 %d", &status) != 1 || status != 200))
            return status == 429 || status == 503 ? 0 : -1;
        if (!strstr(buffer + seen, "data: "))
            continue;
        if (seen)
            c->pauses[c->pause_count++] = now() - last;
        else
            c->first[c->first_count++] = now() - start;
        last = now();
        if ((at = strstr(buffer + seen, "\"completion_tokens\":")))
            c->drawn += atoi(at + strlen("\"completion_tokens\":"));
        if (strstr(buffer + seen, "[DONE]") && strstr(buffer + filled - 5, "0\r\n\r\n"))
            return 1;
        seen = filled > 64 ? filled - 64 : 1; /* a word may lie across two pieces */
        if (filled > sizeof buffer / 2) {
            memmove(buffer, buffer + seen, filled - seen + 1);
            filled -= seen;
            seen = 1;
        }
    }
}

static void *run_client(void *data)
{
    client *c = (client *)data;
    int fd = dial(), done = 0;
    while (done < requests && !c->failed) {
        int result = fd < 0 ? -1 : ask(c, fd, c->number * requests + done);
        if (result == 0) {
            c->refused++;
            usleep(50000);
        }
        if (result == 0 && c->refused < 10000) {
            close(fd);
            fd = dial();
        } else {
            c->failed = result < 0;
            done++;
        }
    }
    close(fd);
    return NULL;
}

static double share_of(double *values, int count, double share)
{
    return count ? values[(int)(share * (count - 1))] : 0;
}

static bool run_clients(int count)
{
    client *all = (client *)calloc((size_t)count, sizeof *all);
    double start = now(), taken, *first = NULL, *pauses = NULL;
    int64_t drawn = 0;
    int i, refused = 0, firsts = 0, pause_count = 0, failed = 0;
    for (i = 0; i < count; i++) {
        all[i].number = i;
        all[i].first = (double *)calloc((size_t)requests, sizeof(double));
        all[i].pauses = (double *)calloc((size_t)requests * (size_t)(tokens + 8), sizeof(double));
        pthread_create(&all[i].thread, NULL, run_client, &all[i]);
    }
    for (i = 0; i < count; i++)
        pthread_join(all[i].thread, NULL);
    taken = now() - start;
    for (i = 0; i < count; i++) {
        first = (double *)realloc(first, sizeof *first * (size_t)(firsts + all[i].first_count + 1));
        memcpy(first + firsts, all[i].first, sizeof *first * (size_t)all[i].first_count);
        pauses = (double *)realloc(pauses, sizeof *pauses * (size_t)(pause_count + all[i].pause_count + 1));
        memcpy(pauses + pause_count, all[i].pauses, sizeof *pauses * (size_t)all[i].pause_count);
        firsts += all[i].first_count;
        pause_count += all[i].pause_count;
        drawn += all[i].drawn;
        refused += all[i].refused;
        failed += all[i].failed;
        free(all[i].first);
        free(all[i].pauses);
    }
    qsort(first, (size_t)firsts, sizeof *first, compare);
    qsort(pauses, (size_t)pause_count, sizeof *pauses, compare);
    printf("%7d %9.0f %9.1f %9.1f %9.2f %9.2f %9.1f %8d%s\n", count, (double)drawn / taken,
           1e3 * share_of(first, firsts, 0.5), 1e3 * share_of(first, firsts, 0.99),
           1e3 * share_of(pauses, pause_count, 0.5), 1e3 * share_of(pauses, pause_count, 0.99),
           1e3 * share_of(pauses, pause_count, 1), refused, failed ? "  FAILED" : "");
    fflush(stdout);
    free(first);
    free(pauses);
    free(all);
    return !failed;
}

/*  Starts the server; its first line says where it listens. */
static pid_t start_server(char **words, double *seconds)
{
    int ends[2];
    char line[512] = "", *colon;
    double start = now();
    FILE *said;
    pid_t child;
    if (pipe(ends) != 0)
        return -1;
    child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        execv(words[0], words);
        _exit(127);
    }
    close(ends[1]);
    said = fdopen(ends[0], "r");
    if (child < 0 || !said || !fgets(line, sizeof line, said) || !(colon = strrchr(line, ':')))
        return -1;
    port = atoi(colon + 1);
    *seconds = now() - start;
    return child;
}

int main(int argc, char **argv)
{
    const char *clients = "1,8,16,64";
    char *words[64], *rest;
    int i, count = 0, status;
    double seconds = 0;
    bool ok = true;
    pid_t child;
    if (argc < 3) {
        fprintf(stderr,
                "bench_serve SERVER MODEL [clients=1,8,16,64] [tokens=128] [prompt=64] [requests=4] [-- OPTION ...]\n");
        return 2;
    }
    words[count++] = argv[1];
    words[count++] = argv[2];
    words[count++] = (char *)"--port";
    words[count++] = (char *)"0";
    for (i = 3; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], "clients=", 8) == 0)
            clients = argv[i] + 8;
        else if (sscanf(argv[i], "tokens=%d", &tokens) + sscanf(argv[i], "prompt=%d", &prompt) +
                     sscanf(argv[i], "requests=%d", &requests) <
                 1)
            return fprintf(stderr, "bench_serve: what is %s?\n", argv[i]), 2;
    for (i++; i < argc && count < 62; i++)
        words[count++] = argv[i];
    words[count] = NULL;
    signal(SIGPIPE, SIG_IGN);
    child = start_server(words, &seconds);
    if (child < 0) {
        fprintf(stderr, "bench_serve: the server does not start\n");
        return 1;
    }
    printf("%s: listens after %.1f s; %d tokens behind %d, %d requests of each client\n", argv[2], seconds, tokens,
           prompt, requests);
    printf("%7s %9s %9s %9s %9s %9s %9s %8s\n", "clients", "tokens/s", "first p50", "p99, ms", "pause p50", "p99, ms",
           "most, ms", "refused");
    for (rest = (char *)clients; *rest; rest += *rest == ',')
        ok = run_clients((int)strtol(rest, &rest, 10)) && ok;
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    return !ok;
}
