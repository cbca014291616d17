// SPDX-License-Identifier: MIT
/*  test_comm_grow.c - ranks that come back, or join: ignis_comm_grow, and heartbeats that find ranks which vanished */
#include "ranks.h"

#ifndef _WIN32
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#endif

enum { CAPTURE = OWN /* grows while it captures a graph */ };

static void own(const command *todo, ignis_comm comm, outcome *result)
{
    ignis_comm grown;
    (void)result;
    if (todo->what != CAPTURE)
        return;
    ignis_graph_begin();
    grown = ignis_comm_grow(comm, NULL);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_UNSUPPORTED);
    CHECK(!grown.id);
    ignis_graph_free(ignis_graph_end());
    ignis_status_clear();
}

static void start(process *ranks, int count, const char *extra)
{
    int i;
    for (i = 0; i < count; i++)
        ranks[i] = puppet_new(rank_in_folder(i, count, i, extra));
}

/*  A process that takes the place of a rank. */
static void replace(process *ranks, int rank, int count, const char *extra)
{
    ranks[rank] = puppet_new(rank_in_folder(rank, count, rank, extra));
    tell(&ranks[rank], INIT, 0, 1, 0, 0);
}

/*  All ranks have the communicator in slot 1, in order, and it works. */
static void check_grown(process *ranks, int count)
{
    int i;
    for (i = 0; i < count; i++) {
        const outcome result = ask(&ranks[i], QUERY, 1);
        CHECK_INT(result.info.rank, i);
        CHECK_INT(result.info.size, count);
        CHECK_INT(result.info.status, IGNIS_OK);
    }
    all_reduce(ranks, count, 1, 5000, 2);
}

/*  Any rank is killed; the others grow from the broken communicator, or from the one that they have shrunk to. */
TEST(a_killed_rank_comes_back)
{
    static const struct {
        int count, dead;
        bool shrinks;
        const char *extra;
    } table[] = {{2, 0, false, ""},
                 {2, 1, true, ""},
                 {3, 0, true, "IGNIS_COMM_TRANSPORT=staged"},
                 {3, 1, false, ""},
                 {4, 3, true, ""}};
    int c, i;
    for (c = 0; c < (int)(sizeof table / sizeof table[0]) && !test__state.failures; c++) {
        const int count = table[c].count, dead = table[c].dead, from = table[c].shrinks ? 2 : 0;
        process ranks[RANKS];
        NEEDS(count);
        start(ranks, count, table[c].extra);
        all(ranks, count, INIT, 0, 0);
        all_reduce(ranks, count, 0, 1000, 1);
        die(&ranks[dead]);
        if (table[c].shrinks)
            all(ranks, count, SHRINK, 0, 2);
        for (i = 0; i < count; i++)
            if (i != dead)
                tell(&ranks[i], GROW, from, 1, 0, 0);
        replace(ranks, dead, count, table[c].extra);
        all_well(ranks, count);
        check_grown(ranks, count);
        for (i = 0; i < count; i++) /* the new one does without the old ones */
            if (i != dead)
                CHECK_WENT_WELL(ask(&ranks[i], DESTROY, 0));
        check_grown(ranks, count);
        all(ranks, count, RESET, 0, 0);
        end(ranks, count);
        folder_end();
    }
}

TEST(more_ranks_join)
{
    process ranks[RANKS];
    int i;
    NEEDS(RANKS);
    start(ranks, 2, "");
    all(ranks, 2, INIT, 0, 0);
    for (i = 0; i < 2; i++)
        tell(&ranks[i], GROW, 0, 1, RANKS, 0);
    for (i = 2; i < RANKS; i++)
        replace(ranks, i, RANKS, "");
    all_well(ranks, RANKS);
    check_grown(ranks, RANKS);
    all_reduce(ranks, 2, 0, 1000, 1); /* the old one works, too */
    die(&ranks[0]);                   /* one that was there from the start, and then one that has joined */
    all(ranks, RANKS, SHRINK, 1, 2);
    die(&ranks[2]);
    for (i = 1; i < RANKS; i += 2)
        tell(&ranks[i], GROW, 2, 1, 0, 0);
    for (i = 0; i < RANKS; i += 2)
        replace(ranks, i, RANKS, "");
    all_well(ranks, RANKS);
    check_grown(ranks, RANKS);
    all(ranks, RANKS, RESET, 0, 0);
    end(ranks, RANKS);
    folder_end();
}

/*  Nobody comes, or another process than the one that is waited for: the old communicator stays as it is. */
TEST(who_does_not_come_is_named)
{
    static const struct {
        const char *environment; /* of the process that comes; NULL: none */
        const char *says;
    } table[] = {{NULL, NULL},
                 {"IGNIS_RANK=2 IGNIS_WORLD_SIZE=4 IGNIS_LOCAL_RANK=2", "its size is 4; rank 0 has size 3"},
                 {"IGNIS_RANK=1 IGNIS_WORLD_SIZE=3 IGNIS_LOCAL_RANK=2", "rank 1 has already come"}};
    process ranks[3];
    outcome result;
    char text[512];
    int c, i;
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0);
    die(&ranks[2]);
    all(ranks, 3, SHRINK, 0, 1);
    for (c = 0; c < (int)(sizeof table / sizeof table[0]); c++) {
        process other = {-1, -1};
        patience = table[c].environment ? 4 : 1;
        for (i = 0; i < 2; i++)
            tell(&ranks[i], GROW, 1, 2, 0, 0);
        if (table[c].environment) {
            ignis__sleep_us(1000000); /* so that the others have come */
            snprintf(text, sizeof text, "%s IGNIS_COMM_DIR=%s", table[c].environment, folder);
            other = puppet_new(text);
            result = ask(&other, INIT, 0);
            CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_RENDEZVOUS);
            CHECK_HAS(result.message, table[c].says);
            CHECK_INT(process_end(&other), 0);
        }
        for (i = 0; i < 2; i++) {
            result = hear(&ranks[i]);
            CHECK_WENT(result, IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
            CHECK_HAS(result.message, "1 of 3 ranks did not connect");
            CHECK_HAS(result.message, "s: 2");
            CHECK(!result.handle);
        }
        patience = PATIENCE;
        all_reduce(ranks, 3, 1, 1000, 2);
    }
    for (i = 0; i < 2; i++) /* they may try again */
        tell(&ranks[i], GROW, 1, 1, 0, 0);
    replace(ranks, 2, 3, "");
    all_well(ranks, 3);
    check_grown(ranks, 3);
    all(ranks, 3, RESET, 0, 0);
    end(ranks, 3);
    folder_end();
}

/*  Processes of a job that met at the same place are not taken for ranks of this one. */
TEST(ranks_of_two_jobs_do_not_grow_together)
{
    process ranks[2][2];
    int job, i;
    NEEDS(2);
    for (job = 0; job < 2; job++) {
        start(ranks[job], 2, "");
        all(ranks[job], 2, INIT, 0, 0);
    }
    tell(&ranks[0][0], GROW, 0, 1, 0, 0);
    tell(&ranks[1][1], GROW, 0, 1, 0, 0);
    for (i = 0; i < 2; i++) {
        const outcome result = hear(&ranks[i][i]);
        CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_RENDEZVOUS);
        CHECK_HAS(result.message, "rank 1 comes from another job");
    }
    for (job = 0; job < 2; job++) {
        all_reduce(ranks[job], 2, 0, 1000, 1);
        all(ranks[job], 2, RESET, 0, 0);
        end(ranks[job], 2);
    }
    folder_end();
}

/*  A rank that was killed while ranks met leaves its socket. */
static void left_behind_remove(void)
{
#ifndef _WIN32
    char remove[128];
    snprintf(remove, sizeof remove, "rm -f %s/rank1-*", folder);
    CHECK_INT(system(remove), 0);
#endif
}

/*  One that dies while the others wait is waited for again; ranks that cannot grow say so. */
TEST(a_rank_dies_while_all_grow)
{
    process ranks[3];
    outcome result;
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0);
    CHECK_WENT_WELL(ask(&ranks[0], CAPTURE, 0));
    tell(&ranks[1], GROW, 0, 1, 1, 0);
    result = hear(&ranks[1]);
    CHECK_WENT(result, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_HAS(result.message, "desc.size is 1 and this rank 1; expected a size above it");
    die(&ranks[1]);
    tell(&ranks[0], GROW, 0, 1, 0, 0);
    replace(ranks, 1, 3, "");
    ignis__sleep_us(500000);
    die(&ranks[1]); /* rank 2 has not come yet */
    tell(&ranks[2], GROW, 0, 1, 0, 0);
    replace(ranks, 1, 3, "");
    all_well(ranks, 3);
    check_grown(ranks, 3);
    all(ranks, 3, RESET, 0, 0);
    end(ranks, 3);
    left_behind_remove();
    folder_end();
}

/*  A rank dies, and its successor comes before rank 0 has looked at those that it had. */
TEST(a_rank_comes_again_at_once)
{
    process ranks[3], successor;
    int i;
    NEEDS(3);
    start(ranks, 3, "");
    all(ranks, 3, INIT, 0, 0);
    die(&ranks[1]);
    tell(&ranks[0], GROW, 0, 1, 0, 0);
    replace(ranks, 1, 3, "");
    for (i = 0; i < 3; i++) {
        successor = puppet_new(rank_in_folder(1, 3, 1, ""));
        ignis__sleep_us(300000); /* both have started, and rank 2 has not come yet */
        die(&ranks[1]);
        ranks[1] = successor;
        tell(&ranks[1], INIT, 0, 1, 0, 0);
    }
    tell(&ranks[2], GROW, 0, 1, 0, 0);
    all_well(ranks, 3);
    check_grown(ranks, 3);
    end(ranks, 3);
    left_behind_remove();
    folder_end();
}

#ifndef _WIN32

/*  A rank that is stopped says nothing. It is named long before the deadline of the operation. When it goes on, it
    learns that the others do without it. Ranks that were all stopped do not take each other for dead. */
TEST(a_silent_rank_is_found)
{
    process ranks[3];
    outcome result;
    int i;
    NEEDS(3);
    start(ranks, 3, "IGNIS_COMM_HEARTBEAT=1.5");
    all(ranks, 3, INIT, 0, 0);
    all_reduce(ranks, 3, 0, 5000, 1);
    for (i = 0; i < 3; i++)
        kill(ranks[i].pid, SIGSTOP);
    ignis__sleep_us(2500000);
    for (i = 0; i < 3; i++)
        kill(ranks[i].pid, SIGCONT);
    all_reduce(ranks, 3, 0, 5000, 1);
    kill(ranks[2].pid, SIGSTOP);
    for (i = 0; i < 2; i++)
        tell(&ranks[i], REDUCE, 0, 0, 5000, 1);
    for (i = 0; i < 2; i++) {
        result = hear(&ranks[i]);
        CHECK_INT(result.status, IGNIS_ERROR_PEER); /* the deadline would be a TIMEOUT */
        CHECK_HAS(result.message, "rank 2 died");
    }
    tell_all(ranks, 2, GROW, 0, 1, 0, 0);
    kill(ranks[2].pid, SIGCONT);
    tell(&ranks[2], WAIT, 0, 0, 0, 0);
    result = hear(&ranks[2]);
    CHECK_INT(result.info.status, IGNIS_ERROR_PEER);
    tell(&ranks[2], GROW, 0, 1, 0, 0); /* and comes back */
    all_well(ranks, 3);
    check_grown(ranks, 3);
    all(ranks, 3, RESET, 0, 0);
    end(ranks, 3);
    folder_end();
}

/*  Two connections that a thread forwards, until it stops reading: the systems of both sides still answer. */
typedef struct proxy {
    int listener, port, to;
    uint64_t silent, ends;
    pthread_t thread;
} proxy;

static int tcp(int port, bool listens)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address;
    bool ok;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)port);
    ok = (listens ? bind(fd, (struct sockaddr *)&address, sizeof address)
                  : connect(fd, (struct sockaddr *)&address, sizeof address)) == 0 &&
         (!listens || listen(fd, 8) == 0);
    if (ok)
        return fd;
    close(fd);
    return -1;
}

static int tcp_port(int fd)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    memset(&address, 0, sizeof address);
    getsockname(fd, (struct sockaddr *)&address, &size);
    return ntohs(address.sin_port);
}

static void *proxy_run(void *pointer)
{
    enum { MOST = 64 };
    proxy *p = (proxy *)pointer;
    struct pollfd polls[1 + 2 * MOST];
    char bytes[4096];
    int count = 1, i;
    polls[0].fd = p->listener;
    while (!ignis__atomic_load(&p->ends)) {
        for (i = 0; i < count; i++)
            polls[i].events = POLLIN, polls[i].revents = 0;
        if (ignis__atomic_load(&p->silent) || poll(polls, (nfds_t)count, 20) <= 0) {
            ignis__sleep_us(1000);
            continue;
        }
        for (i = 1; i < count; i++) { /* sockets 1 and 2 are a pair, then 3 and 4 */
            const int other = i % 2 ? i + 1 : i - 1;
            ssize_t got = polls[i].fd >= 0 && polls[i].revents ? recv(polls[i].fd, bytes, sizeof bytes, 0) : -2;
            if (got > 0)
                got = send(polls[other].fd, bytes, (size_t)got, 0);
            if (got == 0 || got == -1) {
                close(polls[i].fd);
                close(polls[other].fd);
                polls[i].fd = polls[other].fd = -1;
            }
        }
        if (polls[0].revents && count < 1 + 2 * MOST) {
            polls[count].fd = accept(p->listener, NULL, NULL);
            polls[count + 1].fd = tcp(p->to, false);
            if (polls[count + 1].fd < 0) {
                close(polls[count].fd);
                continue;
            }
            polls[count].revents = polls[count + 1].revents = 0;
            count += 2;
        }
    }
    for (i = 0; i < count; i++)
        if (polls[i].fd >= 0)
            close(polls[i].fd);
    return NULL;
}

/*  Rank 1 is on another host, from which nothing comes any more; its system has not closed the connection. */
TEST(a_host_that_vanished_is_found)
{
    process ranks[2];
    outcome result;
    proxy p;
    char text[512];
    int i, spare = tcp(0, true);
    NEEDS(2);
    memset(&p, 0, sizeof p);
    p.listener = tcp(0, true);
    p.port = tcp_port(p.listener);
    p.to = tcp_port(spare);
    close(spare);
    pthread_create(&p.thread, NULL, proxy_run, &p);
    for (i = 0; i < 2; i++) {
        snprintf(text, sizeof text,
                 "IGNIS_RANK=%d IGNIS_WORLD_SIZE=2 IGNIS_LOCAL_RANK=%d IGNIS_COMM_HOST=host%d MASTER_ADDR=127.0.0.1 "
                 "MASTER_PORT=%d IGNIS_COMM_TOKEN=secret IGNIS_COMM_HEARTBEAT=2 IGNIS_SIM_STREAMS=thread",
                 i, i, i, i ? p.port : p.to);
        ranks[i] = puppet_new(text);
        tell(&ranks[i], INIT, 0, 0, 0, 0);
    }
    for (i = 0; i < 2; i++) {
        result = hear(&ranks[i]);
        if (result.status != IGNIS_ERROR_LIBRARY)
            CHECK_WENT_WELL(result);
    }
    if (result.status != IGNIS_ERROR_LIBRARY) {
        all_reduce(ranks, 2, 0, 1000, 2);
        ignis__sleep_us(3000000); /* ranks beat while their programs do nothing */
        all_reduce(ranks, 2, 0, 1000, 2);
        tell_all(ranks, 2, WAIT, 0, 0, 0, 0);
        ignis__atomic_store(&p.silent, 1);
        for (i = 0; i < 2; i++) {
            result = hear(&ranks[i]);
            CHECK_INT(result.info.status, IGNIS_ERROR_PEER);
            CHECK_INT(result.info.failed_rank, 1 - i);
        }
    }
    ignis__atomic_store(&p.ends, 1);
    pthread_join(p.thread, NULL);
    if (result.status == IGNIS_ERROR_LIBRARY) {
        for (i = 0; i < 2; i++)
            process_kill(&ranks[i]);
        folder_end();
        SKIP("NCCL is not installed");
    }
    all(ranks, 2, RESET, 0, 0);
    end(ranks, 2);
    folder_end();
}

#endif

/*  All ranks have one limit. */
TEST(heartbeats_that_differ_are_refused)
{
    process ranks[2];
    outcome result;
    int i;
    NEEDS(2);
    for (i = 0; i < 2; i++) {
        ranks[i] = puppet_new(rank_in_folder(i, 2, i, i ? "IGNIS_COMM_HEARTBEAT=20" : ""));
        tell(&ranks[i], INIT, 0, 0, 0, 0);
    }
    for (i = 0; i < 2; i++) {
        result = hear(&ranks[i]);
        CHECK_WENT(result, IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_RENDEZVOUS);
        CHECK_HAS(result.message, "rank 0 has a heartbeat of 0 s and rank 1 of 20 s; expected one on all ranks");
    }
    end(ranks, 2);
    ranks[0] = puppet_new(rank_in_folder(0, 2, 0, "IGNIS_COMM_HEARTBEAT=soon"));
    result = ask(&ranks[0], INIT, 0);
    CHECK_WENT(result, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COMM_ENVIRONMENT);
    CHECK_HAS(result.message, "IGNIS_COMM_HEARTBEAT is \"soon\"; expected seconds, from 0.1");
    end(ranks, 1);
    folder_end();
}

int main(int argc, char **argv) { return ranks_main(argc, argv, own); }
