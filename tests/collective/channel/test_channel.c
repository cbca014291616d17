// SPDX-License-Identifier: MIT
/*  test_channel.c - messages and descriptors between processes, by socket, FIFO and shared memory: what arrives, who is
    let in, who is turned away, what happens when the other side lies, is slow, or dies */
#include "places.h"

#include <errno.h>
#include <sys/stat.h>
#ifndef _WIN32
#include <poll.h>
#include <sys/resource.h>
#include <sys/un.h>
#endif

static ignis_channel dial(const char *name, ignis_channel_method method, double timeout_s)
{
    ignis_channel_desc desc = desc_of_channel(name, method, timeout_s);
    return ignis_channel_connect(&desc);
}

/* two processes ---------------------------------------------------------------------------------------------------- */

/*  Sends back what comes, until a message "stop"; for each descriptor that comes, writes "through" into it. */
static int role_echo(ignis_channel_method method)
{
    ignis_channel channel;
    ignis_desc setup = test_desc(NULL);
    if (ignis_setup(&setup) != IGNIS_OK)
        return 2;
    channel = dial("echo", method, 20);
    for (;;) {
        int64_t size = 0;
        int fds[IGNIS_CHANNEL_MAX_FDS], count = 0, i;
        if (ignis_channel_receive(channel, big, sizeof big, &size, fds, IGNIS_CHANNEL_MAX_FDS, &count) != IGNIS_OK)
            return 3;
        for (i = 0; i < count; i++)
            if (write(fds[i], "through", 7) != 7 || !(fcntl(fds[i], F_GETFD) & FD_CLOEXEC) || close(fds[i]) != 0)
                return 4;
        if (ignis_channel_send(channel, big, size, NULL, 0) != IGNIS_OK)
            return 5;
        if (size == 4 && memcmp(big, "stop", 4) == 0)
            break;
    }
    return ignis_shutdown() == IGNIS_OK ? 0 : 6;
}

static void echo_with(ignis_channel_method method)
{
    static const int sizes[] = {0, 1, 2, 4095, 4096, 4097, 40000, IGNIS_CHANNEL_MAX_BYTES - 1, IGNIS_CHANNEL_MAX_BYTES};
    process child = process_start(method_names[method]);
    ignis_channel server, channel;
    ignis_channel_info info;
    size_t k, i;
    SETUP(NULL);
    server = serve("echo", method, 20);
    CHECK(info_of_channel(server).server);
    channel = ignis_channel_accept(server);
    REQUIRE(channel.id != 0);
    info = info_of_channel(channel);
    CHECK_INT(info.method, method);
    CHECK_INT(info.peer_pid, child.pid);
    CHECK(info.alive && !info.server);
#ifdef _WIN32
    CHECK_INT(info.peer_uid, -1);
    CHECK_HAS(info.path, "\\\\.\\pipe\\ignis-");
#else
    CHECK_INT(info.peer_uid, geteuid());
    CHECK_HAS(info.path, folder);
    {
        struct stat file;
        int found = stat(info.path, &file);
        CHECK((found == 0) ==
              (method == IGNIS_CHANNEL_SOCKET)); /* the others lost their names when the client was there */
        if (found == 0)
            CHECK_INT(file.st_mode & 0777, 0600);
    }
#endif
    for (k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (i = 0; i < (size_t)sizes[k]; i++)
            big[i] = (unsigned char)(i * 7 + k);
        CHECK_OK(ignis_channel_send(channel, big, sizes[k], NULL, 0));
        CHECK_INT(receive_size(channel, back, sizeof back), sizes[k]);
        CHECK(memcmp(big, back, (size_t)sizes[k]) == 0);
    }
    if (method == METHOD_OF_DESCRIPTORS) {
        int ends[2], fds[IGNIS_CHANNEL_MAX_FDS], before;
        char text[8 * IGNIS_CHANNEL_MAX_FDS] = "";
        REQUIRE(pipe(ends) == 0);
        before = process_descriptors();
        fds[0] = ends[1];
        CHECK_OK(ignis_channel_send(channel, NULL, 0, fds, 1));
        CHECK_INT(receive_size(channel, back, sizeof back), 0);
        CHECK_INT(read(ends[0], text, sizeof text), 7);
        for (i = 0; i < IGNIS_CHANNEL_MAX_FDS; i++)
            fds[i] = ends[1];
        CHECK_OK(ignis_channel_send(channel, "many", 4, fds, IGNIS_CHANNEL_MAX_FDS));
        CHECK_INT(receive_size(channel, back, sizeof back), 4);
        CHECK_INT(read(ends[0], text, sizeof text), 7 * IGNIS_CHANNEL_MAX_FDS);
        CHECK_INT(process_descriptors(), before);
        close(ends[0]);
        close(ends[1]);
    }
    CHECK_OK(ignis_channel_send(channel, "stop", 4, NULL, 0));
    CHECK_INT(receive_size(channel, back, sizeof back), 4); /* what it said before it went still arrives */
    CHECK_INT(process_end(&child), 0);
    CHECK_STATUS(ignis_channel_receive(channel, back, sizeof back, NULL, NULL, 0, NULL), IGNIS_ERROR_PEER,
                 IGNIS_DIAG_CHANNEL_LOST);
    CHECK_STATUS(ignis_channel_send(channel, "x", 1, NULL, 0), IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
    CHECK(!info_of_channel(channel).alive);
    CHECK_INT(info_of_channel(server).refused, 0);
    CHECK_OK(ignis_channel_close(server));
    CHECK_OK(ignis_channel_close(channel));
    CHECK_INT(test_files_in(folder), 0);
}

TEST(messages_and_descriptors_through_the_default) { echo_with(METHOD_OF_DESCRIPTORS); }
#ifndef _WIN32
TEST(messages_through_pipes) { echo_with(IGNIS_CHANNEL_PIPE); }
TEST(messages_through_shared_memory) { echo_with(IGNIS_CHANNEL_SHM); }
#else
TEST(no_other_methods)
{
    SETUP(NULL);
    CHECK_NO_CHANNEL(ignis_channel_serve, desc_of_channel("no", IGNIS_CHANNEL_SOCKET, 1), IGNIS_ERROR_UNSUPPORTED,
                     IGNIS_DIAG_UNSUPPORTED);
    CHECK_NO_CHANNEL(ignis_channel_connect, desc_of_channel("no", IGNIS_CHANNEL_SHM, 1), IGNIS_ERROR_UNSUPPORTED,
                     IGNIS_DIAG_UNSUPPORTED);
}
#endif

/*  A peer that is killed is noticed at once: by who waits for it, by who sends to it, by who asks. */
static int role_dies(ignis_channel_method method)
{
    ignis_desc setup = test_desc(NULL);
    ignis_channel channel;
    if (ignis_setup(&setup) != IGNIS_OK)
        return 2;
    channel = dial("dies", method, 20);
    if (ignis_channel_send(channel, "here", 4, NULL, 0) != IGNIS_OK)
        return 3;
    for (;;)
        pause();
}

static void *kill_soon(void *data)
{
    test_sleep_ms(50);
    kill(((process *)data)->pid, SIGKILL);
    return NULL;
}

TEST(a_killed_peer_is_noticed)
{
    process child[3];
    ignis_channel_method m;
    EACH_METHOD(m)
    {
        char role[32];
        snprintf(role, sizeof role, "dies %s", method_names[m]);
        child[m - 1] = process_start(role);
    }
    SETUP(NULL);
    EACH_METHOD(m)
    {
        ignis_channel server = serve("dies", m, 20), channel = ignis_channel_accept(server);
        pthread_t killer;
        double begin;
        int i;
        CHECK_INT(receive_size(channel, back, sizeof back), 4);
        CHECK(info_of_channel(channel).alive);
        begin = test_seconds();
        pthread_create(&killer, NULL, kill_soon, &child[m - 1]);
        CHECK_STATUS(ignis_channel_receive(channel, back, sizeof back, NULL, NULL, 0, NULL), IGNIS_ERROR_PEER,
                     IGNIS_DIAG_CHANNEL_LOST);
        CHECK(test_seconds() - begin < 15);
        pthread_join(killer, NULL);
        for (i = 0; i < 3; i++)
            CHECK_STATUS(ignis_channel_send(channel, big, 100, NULL, 0), IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
        CHECK(!info_of_channel(channel).alive);
        CHECK_OK(ignis_channel_close(channel));
        CHECK_OK(ignis_channel_close(server));
        CHECK_INT(process_end(&child[m - 1]), -1);
    }
    CHECK_INT(test_files_in(folder), 0);
}

/*  A killed server leaves its files; the next one of that name replaces them. */
static int role_server(ignis_channel_method method)
{
    ignis_desc setup = test_desc(NULL);
    if (ignis_setup(&setup) != IGNIS_OK || serve("stale", method, 20).id == 0 || !process_meet(PROCESS_SOCKET))
        return 2;
    for (;;)
        pause();
}

TEST(what_a_dead_server_left_is_replaced)
{
    process child[3];
    ignis_channel_method m;
    EACH_METHOD(m)
    {
        char role[32];
        snprintf(role, sizeof role, "server %s", method_names[m]);
        child[m - 1] = process_start(role);
        CHECK(process_meet(child[m - 1].socket));
    }
    SETUP(NULL);
    EACH_METHOD(m)
    {
        ignis_channel server;
        CHECK_NO_CHANNEL(ignis_channel_serve, desc_of_channel("stale", m, 20), IGNIS_ERROR_IO, IGNIS_DIAG_CHANNEL_IO);
        CHECK_MESSAGE_HAS("a live server already has the name");
        process_kill(&child[m - 1]);
        CHECK(test_files_in(folder) >= (FIRST_METHOD == LAST_METHOD ? 0 : 2)); /* Windows removes them */
        CHECK_NO_CHANNEL(ignis_channel_connect, desc_of_channel("stale", m, 0.1), IGNIS_ERROR_TIMEOUT,
                         IGNIS_DIAG_CHANNEL_TIMEOUT);
        server = serve("stale", m, 1);
        CHECK(server.id != 0);
        CHECK_OK(ignis_channel_close(server));
    }
    CHECK_INT(test_files_in(folder), 0);
}

/* in one process --------------------------------------------------------------------------------------------------- */

TEST(a_message_that_does_not_fit_stays)
{
    ignis_channel_method m;
    SETUP(NULL);
    EACH_METHOD(m)
    {
        pair both = make_pair(m, 20);
        int64_t size = 0;
        int count = -1;
        CHECK_OK(ignis_channel_send(both.a, "0123456789", 10, NULL, 0));
        CHECK_OK(ignis_channel_send(both.a, "next", 4, NULL, 0));
        CHECK_STATUS(ignis_channel_receive(both.b, back, 9, &size, NULL, 0, &count), IGNIS_ERROR_ARGUMENT,
                     IGNIS_DIAG_COUNT_MISMATCH);
        CHECK_INT(size, 10);
        CHECK_INT(count, 0);
        CHECK_OK(ignis_channel_receive(both.b, back, 10, &size, NULL, 0, &count));
        CHECK(memcmp(back, "0123456789", 10) == 0);
        CHECK_INT(receive_size(both.b, back, 10), 4);
        if (m == METHOD_OF_DESCRIPTORS) {
            int before, fds[2], ends[2];
            REQUIRE(pipe(ends) == 0);
            before = process_descriptors();
            fds[0] = ends[0], fds[1] = ends[1];
            CHECK_OK(ignis_channel_send(both.a, NULL, 0, fds, 2));
            CHECK_STATUS(ignis_channel_receive(both.b, back, 10, &size, fds, 1, &count), IGNIS_ERROR_ARGUMENT,
                         IGNIS_DIAG_COUNT_MISMATCH);
            CHECK_INT(count, 2);
            CHECK_OK(ignis_channel_receive(both.b, back, 10, &size, fds, 2, &count));
            CHECK_INT(process_descriptors(), before + 2);
            close(fds[0]);
            close(fds[1]);
            fds[0] = ends[0];
            CHECK_OK(ignis_channel_send(both.a, NULL, 0, fds, 1)); /* nobody takes it */
            CHECK_STATUS(ignis_channel_receive(both.b, back, 10, NULL, NULL, 0, NULL), IGNIS_ERROR_ARGUMENT,
                         IGNIS_DIAG_COUNT_MISMATCH);
            CHECK_INT(process_descriptors(), before + 1);
            drop_pair(&both);
            /* its two ends, the server's socket, its token and what it waits for; on Windows for the last both sides'
               processes */
#ifdef _WIN32 /* and perhaps a pipe for the next client, which is there when this one has come */
            CHECK(process_descriptors() == before - 5 || process_descriptors() == before - 6);
#else
            CHECK_INT(process_descriptors(), before - 5);
#endif
            close(ends[0]);
            close(ends[1]);
        } else {
            drop_pair(&both);
        }
    }
}

TEST(nothing_waits_beyond_its_deadline)
{
    ignis_channel_method m;
    SETUP(NULL);
    EACH_METHOD(m)
    {
        ignis_channel server;
        double begin = test_seconds();
        pair both;
        int i;
        CHECK_NO_CHANNEL(ignis_channel_connect, desc_of_channel("nobody", m, 0.2), IGNIS_ERROR_TIMEOUT,
                         IGNIS_DIAG_CHANNEL_TIMEOUT);
        CHECK(test_seconds() - begin >= 0.2 && test_seconds() - begin < 15);
        server = serve("silent", m, 0.2);
        begin = test_seconds();
        CHECK_FAILS(ignis_channel_accept(server), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_CHANNEL_TIMEOUT);
        CHECK(test_seconds() - begin >= 0.2 && test_seconds() - begin < 15);
        CHECK_OK(ignis_channel_close(server));
        both = make_pair(m, 20);
        set_timeout(both.a, 0.2);
        begin = test_seconds();
        CHECK_STATUS(ignis_channel_receive(both.a, back, 10, NULL, NULL, 0, NULL), IGNIS_ERROR_TIMEOUT,
                     IGNIS_DIAG_CHANNEL_TIMEOUT);
        CHECK(test_seconds() - begin >= 0.2 && test_seconds() - begin < 15);
        CHECK_OK(ignis_channel_send(both.b, "late", 4, NULL, 0)); /* a deadline does no harm */
        CHECK_INT(receive_size(both.a, back, 10), 4);
        for (i = 0; i < 100 && ignis_channel_send(both.a, big, sizeof big, NULL, 0) == IGNIS_OK; i++)
            ;
        CHECK(i > 0 && i < 100);
        CHECK_INT(ignis_status_last(), IGNIS_ERROR_TIMEOUT);
        ignis_status_clear();
        drop_pair(&both);
    }
    ignis_status_clear();
}

static void *waits_long(void *data)
{
    const ignis_channel *channel = (const ignis_channel *)data;
    if (info_of_channel(*channel).server)
        CHECK_OK(ignis_channel_close(ignis_channel_accept(*channel)));
    else
        CHECK_INT(receive_size(*channel, big, sizeof big), 4);
    return NULL;
}

TEST(nobody_waits_for_the_deadline_of_another_thread)
{
    ignis_channel_method m;
    SETUP(NULL);
    EACH_METHOD(m)
    {
        pair both = make_pair(m, 20);
        pthread_t receiver, acceptor;
        ignis_channel late;
        double begin;
        pthread_create(&receiver, NULL, waits_long, &both.a);
        pthread_create(&acceptor, NULL, waits_long, &both.server);
        test_sleep_ms(100);
        begin = test_seconds();
        CHECK_INT(ignis_channel_receive_within(both.a, back, 10, NULL, NULL, 0, NULL, 0), IGNIS_ERROR_TIMEOUT);
        CHECK_INT(ignis_channel_accept_within(both.server, 0).id, 0);
        CHECK_INT(ignis_status_last(), IGNIS_OK);
        CHECK_STATUS(ignis_channel_receive_within(both.a, back, 10, NULL, NULL, 0, NULL, 0.1), IGNIS_ERROR_TIMEOUT,
                     IGNIS_DIAG_CHANNEL_TIMEOUT);
        CHECK(test_seconds() - begin < 10);
        CHECK_OK(ignis_channel_send(both.b, "late", 4, NULL, 0));
        late = dial("pair", m, 20);
        pthread_join(receiver, NULL);
        pthread_join(acceptor, NULL);
        CHECK_OK(ignis_channel_close(late));
        drop_pair(&both);
    }
}

static void *close_soon(void *data)
{
    test_sleep_ms(100);
    CHECK_OK(ignis_channel_close(*(ignis_channel *)data));
    return NULL;
}

TEST(closing_wakes_who_waits)
{
    ignis_channel_method m;
    SETUP(NULL);
    EACH_METHOD(m)
    {
        pair both = make_pair(m, 20);
        double begin = test_seconds();
        pthread_t closer;
        pthread_create(&closer, NULL, close_soon, &both.a);
        CHECK_STATUS(ignis_channel_receive(both.a, back, 10, NULL, NULL, 0, NULL), IGNIS_ERROR_FREED,
                     IGNIS_DIAG_CHANNEL_FREED);
        pthread_join(closer, NULL);
        CHECK_STATUS(ignis_channel_receive(both.b, back, 10, NULL, NULL, 0, NULL), IGNIS_ERROR_PEER,
                     IGNIS_DIAG_CHANNEL_LOST);
        pthread_create(&closer, NULL, close_soon, &both.server);
        CHECK_FAILS(ignis_channel_accept(both.server), IGNIS_ERROR_FREED, IGNIS_DIAG_CHANNEL_FREED);
        pthread_join(closer, NULL);
        CHECK(test_seconds() - begin < 15);
        CHECK_OK(ignis_channel_close(both.b));
    }
    CHECK_INT(test_files_in(folder), 0);
}

TEST(arguments_are_checked)
{
    ignis_channel_desc desc = desc_of_channel("ok", IGNIS_CHANNEL_DEFAULT, 1);
    ignis_channel_info info;
    char long_name[80];
    const char *bad_names[] = {"", ".", "../up", "a/b", "with space", long_name};
    pair both;
    int fd = 0, bad = 999999, i;
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    SETUP(NULL);
    CHECK_FAILS(ignis_channel_serve(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_channel_connect(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    for (i = 0; i < COUNT_OF(bad_names); i++) {
        desc.name = bad_names[i];
        CHECK_FAILS(ignis_channel_serve(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    }
    desc.name = "ok";
    desc.timeout_s = -1;
    CHECK_FAILS(ignis_channel_serve(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.timeout_s = 1;
    desc.method = IGNIS_CHANNEL_METHOD_COUNT;
    CHECK_FAILS(ignis_channel_serve(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    both = make_pair(IGNIS_CHANNEL_DEFAULT, 20);
    CHECK_STATUS(ignis_channel_send(both.a, big, -1, NULL, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_channel_send(both.a, big, IGNIS_CHANNEL_MAX_BYTES + 1, NULL, 0), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_channel_send(both.a, NULL, 1, NULL, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_channel_send(both.a, big, 1, NULL, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_channel_send(both.a, big, 1, &fd, IGNIS_CHANNEL_MAX_FDS + 1), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_channel_send(both.a, big, 1, &bad, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_channel_receive(both.a, NULL, 1, NULL, NULL, 0, NULL), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_channel_receive(both.a, back, -1, NULL, NULL, 0, NULL), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_channel_send(both.server, big, 1, NULL, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_channel_accept(both.a), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_channel_query(both.a, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_channel_send(both.a, big, 1, NULL, 0)); /* none of it did harm */
    CHECK_INT(receive_size(both.b, back, 1), 1);
    drop_pair(&both);
    CHECK_STATUS(ignis_channel_close(both.a), IGNIS_ERROR_FREED, IGNIS_DIAG_CHANNEL_FREED);
    CHECK_STATUS(ignis_channel_query(both.b, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_CHANNEL_FREED);
#ifndef _WIN32
    both = make_pair(IGNIS_CHANNEL_PIPE, 20);
    CHECK_STATUS(ignis_channel_send(both.a, big, 1, &fd, 1), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CHANNEL_DESCRIPTOR);
    drop_pair(&both);
    both = make_pair(IGNIS_CHANNEL_SHM, 20);
    CHECK_STATUS(ignis_channel_send(both.b, big, 1, &fd, 1), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CHANNEL_DESCRIPTOR);
    drop_pair(&both);
#endif
}

/* for event loops -------------------------------------------------------------------------------------------------- */

/*  A message of which a part was taken when the deadline came is finished before anything else is sent. */
TEST(half_a_message_is_finished_before_the_next)
{
    enum { MOST = 20 };
    ignis_channel_method m;
    SETUP(NULL);
    EACH_METHOD(m)
    {
        pair both = make_pair(m, 20);
        int sent = 0, got = 0, i;
        while (sent < MOST) {
            memset(big, sent, sizeof big);
            if (ignis_channel_send_within(both.a, big, sizeof big, NULL, 0, 0.01 * (sent % 2)) != IGNIS_OK)
                break;
            sent++;
        }
        CHECK(sent > 0 && sent < MOST);
        ignis_status_clear();
        while (got < sent) {
            CHECK_INT(receive_size(both.b, back, sizeof back), sizeof back);
            for (i = 0; i < (int)sizeof back && back[i] == got; i++)
                ;
            CHECK_INT(i, sizeof back);
            got++;
            (void)info_of_channel(both.a); /* any call sends on what was left */
        }
        CHECK_INT(info_of_channel(both.a).unsent, 0);
        CHECK_OK(ignis_channel_send(both.a, "next", 4, NULL, 0));
        CHECK_INT(receive_size(both.b, back, sizeof back), 4);
        drop_pair(&both);
    }
}

#ifndef _WIN32

/*  Whether a descriptor becomes ready within two seconds. */
static bool becomes_ready(int fd, short events)
{
    struct pollfd wanted = {fd, events, 0};
    return poll(&wanted, 1, 2000) == 1 && (wanted.revents & events);
}

/*  One thread serves clients, and waits in poll alone; nothing of it is an error. */
TEST(an_event_loop_serves_clients)
{
    static const ignis_channel_method pollable[] = {IGNIS_CHANNEL_SOCKET, IGNIS_CHANNEL_PIPE};
    int m, turns;
    SETUP(NULL);
    for (m = 0; m < COUNT_OF(pollable); m++) {
        ignis_channel server = serve("pair", pollable[m], 20), channel = {0};
        pair client;
        pthread_t thread;
        int fd = info_of_channel(server).fd;
        int64_t size = 0;
        CHECK(fd >= 0);
        CHECK_INT(info_of_channel(server).send_fd, -1);
        CHECK_INT(ignis_channel_accept_within(server, 0).id, 0);
        CHECK_OK(ignis_status_last());
        memset(&client, 0, sizeof client);
        client.desc = desc_of_channel("pair", pollable[m], 20);
        pthread_create(&thread, NULL, pair_connect, &client);
        for (turns = 0; turns < 20 && !channel.id; turns++) {
            CHECK(becomes_ready(info_of_channel(server).fd, POLLIN));
            channel = ignis_channel_accept_within(server, 0);
        }
        pthread_join(thread, NULL);
        REQUIRE(channel.id != 0);
        fd = info_of_channel(channel).fd;
        CHECK(fd >= 0 && becomes_ready(info_of_channel(channel).send_fd, POLLOUT));
        CHECK_INT(ignis_channel_receive_within(channel, back, sizeof back, &size, NULL, 0, NULL, 0),
                  IGNIS_ERROR_TIMEOUT);
        CHECK_OK(ignis_status_last());
        CHECK_OK(ignis_channel_send(client.b, "hello", 5, NULL, 0));
        CHECK(becomes_ready(fd, POLLIN));
        CHECK_OK(ignis_channel_receive_within(channel, back, sizeof back, &size, NULL, 0, NULL, 0));
        CHECK_INT(size, 5);
        while (ignis_channel_send_within(channel, big, sizeof big, NULL, 0, 0) == IGNIS_OK)
            ;
        CHECK_OK(ignis_status_last());
        CHECK_INT(test_log_count(IGNIS_DIAG_CHANNEL_TIMEOUT), 0);
        CHECK_OK(ignis_channel_close(client.b));
        CHECK(becomes_ready(fd, POLLIN));
        CHECK_STATUS(ignis_channel_receive_within(channel, back, sizeof back, &size, NULL, 0, NULL, 0),
                     IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
        CHECK_INT(test_log_count(IGNIS_DIAG_CHANNEL_LOST), 0); /* it has said goodbye */
        CHECK_OK(ignis_channel_close(channel));
        CHECK_OK(ignis_channel_close(server));
    }
    CHECK_INT(test_files_in(folder), 0);
}

/* places ----------------------------------------------------------------------------------------------------------- */

TEST(the_folder_must_be_private)
{
    ignis_channel_desc desc = desc_of_channel("place", IGNIS_CHANNEL_SOCKET, 1);
    char path[400], other[400];
    SETUP(NULL);
    desc.directory = path;
    snprintf(path, sizeof path, "%s/open", folder);
    CHECK(mkdir(path, 0700) == 0 && chmod(path, 0755) == 0);
    CHECK_NO_CHANNEL(ignis_channel_serve, desc, IGNIS_ERROR_IO, IGNIS_DIAG_CHANNEL_IO);
    CHECK_MESSAGE_HAS("0755");
    CHECK(chmod(path, 0700) == 0);
    snprintf(other, sizeof other, "%s/link", folder);
    CHECK(symlink(path, other) == 0);
    desc.directory = other;
    CHECK_NO_CHANNEL(ignis_channel_serve, desc, IGNIS_ERROR_IO, IGNIS_DIAG_CHANNEL_IO);
    CHECK_MESSAGE_HAS("symbolic link");
    unlink(other);
    if (geteuid() == 0) {
        CHECK(chown(path, 12345, 12345) == 0);
        desc.directory = path;
        CHECK_NO_CHANNEL(ignis_channel_serve, desc, IGNIS_ERROR_IO, IGNIS_DIAG_CHANNEL_IO);
        CHECK_MESSAGE_HAS("belongs to user 12345");
    }
    rmdir(path);
    snprintf(path, sizeof path, "%s/no/such", folder);
    desc.directory = path;
    CHECK_NO_CHANNEL(ignis_channel_serve, desc, IGNIS_ERROR_IO, IGNIS_DIAG_CHANNEL_IO);
}

/*  Without IGNIS_COMM_DIR the place is $XDG_RUNTIME_DIR/ignis, else a folder of the user's in $TMPDIR, however long
    that is. */
TEST(long_and_usual_places)
{
    char path[900], wanted[1000];
    int i, length;
    pair both;
    SETUP(NULL);
    unsetenv("IGNIS_COMM_DIR");
    setenv("XDG_RUNTIME_DIR", folder, 1);
    both = make_pair(IGNIS_CHANNEL_SOCKET, 20);
    snprintf(wanted, sizeof wanted, "%s/ignis/pair.sock", folder);
    CHECK_TEXT(info_of_channel(both.a).path, wanted);
    drop_pair(&both);
    snprintf(wanted, sizeof wanted, "%s/ignis", folder);
    CHECK(rmdir(wanted) == 0);
    setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
    length = snprintf(path, sizeof path, "%s", folder);
    for (i = 0; i < 2; i++) {
        length += snprintf(path + length, sizeof path - (size_t)length, "/%0100d", i);
        CHECK(mkdir(path, 0700) == 0);
    }
    setenv("TMPDIR", path, 1);
    both = make_pair(IGNIS_CHANNEL_SOCKET, 20);
    CHECK(strlen(info_of_channel(both.a).path) > 200);
    CHECK_OK(ignis_channel_send(both.a, "far", 3, NULL, 0));
    CHECK_INT(receive_size(both.b, back, 3), 3);
    drop_pair(&both);
    snprintf(wanted, sizeof wanted, "%s/ignis-%lu", path, (unsigned long)geteuid());
    CHECK(rmdir(wanted) == 0);
    for (; i > 0; i--) {
        CHECK(rmdir(path) == 0);
        path[strlen(path) - 101] = 0;
    }
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = 0;
    setenv("TMPDIR", path, 1);
    CHECK_NO_CHANNEL(ignis_channel_serve, desc_of_channel("far", IGNIS_CHANNEL_SOCKET, 1), IGNIS_ERROR_IO,
                     IGNIS_DIAG_CHANNEL_IO);
    CHECK_MESSAGE_HAS("longer than");
    unsetenv("TMPDIR");
    unsetenv("XDG_RUNTIME_DIR");
    setenv("IGNIS_COMM_DIR", folder, 1);
}

#endif

TEST(names_and_folders_keep_jobs_apart)
{
    ignis_channel_method m;
    char other[400];
    SETUP(NULL);
    snprintf(other, sizeof other, "%s/other", folder);
    EACH_METHOD(m)
    {
        ignis_channel_desc desc = desc_of_channel("pair", m, 20);
        pair first = make_pair(m, 20), second;
        pthread_t thread;
        CHECK_NO_CHANNEL(ignis_channel_serve, desc, IGNIS_ERROR_IO, IGNIS_DIAG_CHANNEL_IO);
        memset(&second, 0, sizeof second);
        desc.directory = other;
        second.desc = desc;
        second.server = ignis_channel_serve(&desc);
        pthread_create(&thread, NULL, pair_connect, &second);
        second.a = ignis_channel_accept(second.server);
        pthread_join(thread, NULL);
        CHECK_OK(ignis_channel_send(first.a, "first", 5, NULL, 0));
        CHECK_OK(ignis_channel_send(second.a, "second", 6, NULL, 0));
        CHECK_INT(receive_size(first.b, back, 10), 5);
        CHECK_INT(receive_size(second.b, back, 10), 6);
        drop_pair(&first);
        drop_pair(&second);
    }
    CHECK(rmdir(other) == 0);
}

/*  Several clients of one server, one after the other, as threads. */
TEST(a_server_accepts_many)
{
    ignis_channel_method m;
    SETUP(NULL);
    EACH_METHOD(m)
    {
        enum { MANY = 6 };
        ignis_channel server = serve("many", m, 20), at_server[MANY];
        pair client[MANY];
        pthread_t thread[MANY];
        int i, sum = 0;
        for (i = 0; i < MANY; i++) {
            memset(&client[i], 0, sizeof client[i]);
            client[i].desc = desc_of_channel("many", m, 20);
            pthread_create(&thread[i], NULL, pair_connect, &client[i]);
        }
        for (i = 0; i < MANY; i++)
            at_server[i] = ignis_channel_accept(server);
        for (i = 0; i < MANY; i++) {
            unsigned char number = (unsigned char)(i + 1);
            pthread_join(thread[i], NULL);
            CHECK_OK(ignis_channel_send(client[i].b, &number, 1, NULL, 0));
        }
        for (i = 0; i < MANY; i++) {
            unsigned char number = 0;
            CHECK_INT(receive_size(at_server[i], &number, 1), 1);
            sum += number;
            CHECK_OK(ignis_channel_close(at_server[i]));
        }
        CHECK_INT(sum, MANY * (MANY + 1) / 2);
        for (i = 0; i < MANY; i++)
            CHECK_OK(ignis_channel_close(client[i].b));
        CHECK_INT(info_of_channel(server).refused, 0);
        CHECK_OK(ignis_channel_close(server));
    }
    CHECK_INT(test_files_in(folder), 0);
}

#ifndef _WIN32

/*  A client may look at any moment: what has the name of a shared memory channel is whole. */
static uint64_t looking_ends;

static void *look_at_shared_file(void *path)
{
    int64_t *seen_half = (int64_t *)calloc(1, sizeof *seen_half);
    while (!ignis__atomic_load(&looking_ends)) {
        int fd = open((const char *)path, O_RDONLY);
        uint64_t magic = 0;
        struct stat info;
        if (fd < 0)
            continue;
        if (fstat(fd, &info) == 0 &&
            info.st_size == (off_t)sizeof(ignis__shared)) /* else what has got its number since */
            *seen_half += pread(fd, &magic, sizeof magic, 0) != (ssize_t)sizeof magic || magic != IGNIS__MESSAGE_MAGIC;
        close(fd);
    }
    return seen_half;
}

TEST(a_shared_file_is_never_seen_half_made)
{
    char path[400];
    void *seen_half = NULL;
    pthread_t looking;
    int i;
    SETUP(NULL);
    snprintf(path, sizeof path, "%s/pair.shm", folder);
    ignis__atomic_store(&looking_ends, 0);
    pthread_create(&looking, NULL, look_at_shared_file, path);
    for (i = 0; i < 300; i++) {
        pair both = make_pair(IGNIS_CHANNEL_SHM, 20);
        drop_pair(&both);
    }
    ignis__atomic_store(&looking_ends, 1);
    pthread_join(looking, &seen_half);
    CHECK_INT(*(int64_t *)seen_half, 0);
    free(seen_half);
    CHECK_INT(test_files_in(folder), 0);
}

#endif

/* what is left behind ---------------------------------------------------------------------------------------------- */

static void make_many_pairs(void)
{
    ignis_channel_method m;
    int i;
    EACH_METHOD(m)
    {
        for (i = 0; i < 50; i++) {
            pair both = make_pair(m, 20);
            drop_pair(&both);
        }
    }
}

TEST(descriptors_stay_flat)
{
    SETUP(NULL);
    process_leaves_no_descriptor(make_many_pairs);
}

#ifndef _WIN32

/*  Sixteen more than are open. */
TEST(descriptors_stay_flat_within_a_tight_limit)
{
    struct rlimit before, tight;
    ignis_channel_method m;
    int i, open_before, unused, fds[30], count = -1;
    pair both;
    SETUP(NULL);
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    tight = before;
    open_before = process_descriptors();
    for (i = unused = 0; unused < 16; i++)
        unused += fcntl(i, F_GETFD) < 0;
    tight.rlim_cur = (rlim_t)i;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    EACH_METHOD(m)
    {
        for (i = 0; i < (test_env("IGNIS_SOAK") ? 10000 : 100); i++) {
            both = make_pair(m, 20);
            drop_pair(&both);
        }
    }
    CHECK_INT(process_descriptors(), open_before);
    both = make_pair(IGNIS_CHANNEL_SOCKET, 20);
    for (i = 0; i < 30; i++)
        fds[i] = 0;
    CHECK_OK(ignis_channel_send(both.a, "many", 4, fds, 30)); /* more than fit the limit */
    CHECK_STATUS(ignis_channel_receive(both.b, back, 4, NULL, fds, 30, &count), IGNIS_ERROR_PEER,
                 IGNIS_DIAG_CHANNEL_MESSAGE);
    CHECK_MESSAGE_HAS("its limit of open files");
    drop_pair(&both);
    CHECK_INT(process_descriptors(), open_before);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

/*  A child gets NOT_SETUP, and what it execs inherits nothing. Its copies do not keep the other side waiting when we
    die. */
static int role_forks(void)
{
    ignis_desc setup = test_desc(NULL);
    ignis_channel channel;
    pid_t child;
    int status = 0;
    if (ignis_setup(&setup) != IGNIS_OK)
        return 2;
    fcntl(PROCESS_SOCKET, F_SETFD, FD_CLOEXEC);
    channel = dial("forks", IGNIS_CHANNEL_SOCKET, 20);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        if (ignis_channel_send(channel, "x", 1, NULL, 0) != IGNIS_ERROR_NOT_SETUP ||
            ignis_channel_close(channel) != IGNIS_ERROR_NOT_SETUP)
            _exit(7);
        execl("/bin/sh", "sh", "-c",
              "for fd in /proc/self/fd/*; do case $(readlink $fd) in socket:*) exit 8;; esac; done; exit 0",
              (char *)NULL);
        _exit(9);
    }
    close(PROCESS_SOCKET);
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return 3;
    if (WEXITSTATUS(status) != 0)
        return WEXITSTATUS(status);
    child = fork();
    if (child == 0) { /* lives on */
        sleep(60);
        _exit(0);
    }
    return ignis_channel_send(channel, &child, sizeof child, NULL, 0) == IGNIS_OK ? pause() : 4;
}

TEST(a_forked_child_has_no_channel)
{
    process child = process_start("forks");
    ignis_channel server, channel;
    pid_t grandchild = 0;
    double begin;
    SETUP(NULL);
    server = serve("forks", IGNIS_CHANNEL_SOCKET, 20);
    channel = ignis_channel_accept(server);
    CHECK_INT(receive_size(channel, &grandchild, sizeof grandchild), sizeof grandchild);
    begin = test_seconds();
    kill(child.pid, SIGKILL);
    CHECK_STATUS(ignis_channel_receive(channel, back, 4, NULL, NULL, 0, NULL), IGNIS_ERROR_PEER,
                 IGNIS_DIAG_CHANNEL_LOST);
    CHECK(test_seconds() - begin < 15); /* the grandchild lives longer */
    CHECK_INT(process_end(&child), -1);
    if (grandchild > 0)
        kill(grandchild, SIGKILL);
    CHECK_OK(ignis_channel_close(channel));
    CHECK_OK(ignis_channel_close(server));
}

#endif

TEST(shutdown_closes_what_was_left_open)
{
    ignis_channel_method m;
    int before = process_descriptors(), ended = 0;
    test_leaks_expected = true;
    EACH_METHOD(m)
    {
        pair both;
        SETUP(NULL);
        both = make_pair(m, 20);
        CHECK_OK(ignis_shutdown());
        CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED), 3 * ++ended); /* the one that listened, too */
        CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "channel of the ");
        CHECK_INT(test_files_in(folder), 0);
        SETUP(NULL);
        CHECK_STATUS(ignis_channel_close(both.a), IGNIS_ERROR_FREED, IGNIS_DIAG_CHANNEL_FREED);
        CHECK_OK(ignis_shutdown());
        CHECK(process_descriptors() <= before + 1); /* the simulator may keep one */
    }
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    int code, i;
#ifndef _WIN32
    if (role && strcmp(role, "forks") == 0)
        return role_forks();
#endif
    if (role) {
        for (i = 1; i <= 3; i++) {
            if (strcmp(role, method_names[i]) == 0)
                return role_echo(methods[i - 1]);
            if (strncmp(role, "dies ", 5) == 0 && strcmp(role + 5, method_names[i]) == 0)
                return role_dies(methods[i - 1]);
            if (strncmp(role, "server ", 7) == 0 && strcmp(role + 7, method_names[i]) == 0)
                return role_server(methods[i - 1]);
        }
        return 98;
    }
    snprintf(folder, sizeof folder, "/tmp/ignis_test_channel_XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    setenv("IGNIS_COMM_DIR", folder, 1);
    code = test_run(argc, argv);
    rmdir(folder);
    return code;
}
