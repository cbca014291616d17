/*  test_channel.c - messages and descriptors between processes, by socket, FIFO and shared memory: what arrives, who is let in, who is
    turned away, what happens when the other side lies, is slow, or dies */
#include "array.h"

#include "../ignis_collective.h"

#include "processes.h"

#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

static const ignis_channel_method methods[] = {IGNIS_CHANNEL_SOCKET, IGNIS_CHANNEL_PIPE, IGNIS_CHANNEL_SHM};
static const char *const method_names[] = {"", "socket", "pipe", "shm"};
#define EACH_METHOD(m) for (m = IGNIS_CHANNEL_SOCKET; m <= IGNIS_CHANNEL_SHM; m = (ignis_channel_method)(m + 1))

static char folder[256]; /* of all channels here; $IGNIS_COMM_DIR, also of the children */

static void sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&time, NULL);
}

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static ignis_channel_desc desc_of_channel(const char *name, ignis_channel_method method, double timeout_s)
{
    ignis_channel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.name = name;
    desc.method = method;
    desc.timeout_s = timeout_s;
    return desc;
}

static ignis_channel serve(const char *name, ignis_channel_method method, double timeout_s)
{
    ignis_channel_desc desc = desc_of_channel(name, method, timeout_s);
    return ignis_channel_serve(&desc);
}

static ignis_channel dial(const char *name, ignis_channel_method method, double timeout_s)
{
    ignis_channel_desc desc = desc_of_channel(name, method, timeout_s);
    return ignis_channel_connect(&desc);
}

/*  make, ignis_channel_serve or _connect, fails with a desc. */
#define CHECK_NO_CHANNEL(make, desc, status, diagnostic) check_no_channel(__LINE__, make, #make "(", desc, status, diagnostic)
static void check_no_channel(int line, ignis_channel (*make_it)(const ignis_channel_desc *), const char *call, ignis_channel_desc desc,
                             ignis_status status, ignis_diagnostic diagnostic)
{
    CHECK_INT(make_it(&desc).id, 0);
    test__check_failure(__FILE__, line, call, status, diagnostic);
}

static ignis_channel_info info_of_channel(ignis_channel channel)
{
    ignis_channel_info info;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_channel_query(channel, &info));
    return info;
}

static int files_in(const char *path)
{
    DIR *listed = opendir(path);
    struct dirent *entry;
    int count = 0;
    while (listed && (entry = readdir(listed)) != NULL)
        count += *entry->d_name != '.';
    if (listed)
        closedir(listed);
    return count;
}

/*  Both ends of a channel in this process. */
typedef struct pair {
    ignis_channel_desc desc;
    ignis_channel server, a, b;
} pair;

static void *pair_connect(void *data)
{
    pair *both = (pair *)data;
    both->b = ignis_channel_connect(&both->desc);
    CHECK_OK(ignis_status_last());
    return NULL;
}

static pair make_pair(ignis_channel_method method, double timeout_s)
{
    pair both;
    pthread_t thread;
    memset(&both, 0, sizeof both);
    both.desc = desc_of_channel("pair", method, timeout_s);
    both.server = ignis_channel_serve(&both.desc);
    pthread_create(&thread, NULL, pair_connect, &both);
    both.a = ignis_channel_accept(both.server);
    pthread_join(thread, NULL);
    CHECK(both.a.id != 0 && both.b.id != 0);
    return both;
}

static void drop_pair(pair *both)
{
    CHECK_OK(ignis_channel_close(both->a));
    CHECK_OK(ignis_channel_close(both->b));
    CHECK_OK(ignis_channel_close(both->server));
}

static int receive_size(ignis_channel channel, void *data, int64_t capacity)
{
    int64_t size = -1;
    return ignis_channel_receive(channel, data, capacity, &size, NULL, 0, NULL) == IGNIS_OK ? (int)size : -1;
}

/* two processes -------------------------------------------------------------------------------------------------------- */

static unsigned char big[IGNIS_CHANNEL_MAX_BYTES], back[IGNIS_CHANNEL_MAX_BYTES];

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
    struct stat file;
    size_t k, i;
    SETUP(NULL);
    server = serve("echo", method, 20);
    CHECK(info_of_channel(server).server);
    channel = ignis_channel_accept(server);
    REQUIRE(channel.id != 0);
    info = info_of_channel(channel);
    CHECK_INT(info.method, method);
    CHECK_INT(info.peer_pid, child.pid);
    CHECK_INT(info.peer_uid, geteuid());
    CHECK(info.alive && !info.server);
    CHECK_HAS(info.path, folder);
    if (method == IGNIS_CHANNEL_SOCKET) {
        CHECK(stat(info.path, &file) == 0);
        CHECK_INT(file.st_mode & 0777, 0600);
    } else {
        CHECK(stat(info.path, &file) != 0); /* it lost its name when the client was there */
    }
    for (k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (i = 0; i < (size_t)sizes[k]; i++)
            big[i] = (unsigned char)(i * 7 + k);
        CHECK_OK(ignis_channel_send(channel, big, sizes[k], NULL, 0));
        CHECK_INT(receive_size(channel, back, sizeof back), sizes[k]);
        CHECK(memcmp(big, back, (size_t)sizes[k]) == 0);
    }
    if (method == IGNIS_CHANNEL_SOCKET) {
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
    CHECK_STATUS(ignis_channel_receive(channel, back, sizeof back, NULL, NULL, 0, NULL), IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
    CHECK_STATUS(ignis_channel_send(channel, "x", 1, NULL, 0), IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
    CHECK(!info_of_channel(channel).alive);
    CHECK_INT(info_of_channel(server).refused, 0);
    CHECK_OK(ignis_channel_close(server));
    CHECK_OK(ignis_channel_close(channel));
    CHECK_INT(files_in(folder), 0);
}

TEST(messages_and_descriptors_through_a_socket) { echo_with(IGNIS_CHANNEL_SOCKET); }
TEST(messages_through_pipes) { echo_with(IGNIS_CHANNEL_PIPE); }
TEST(messages_through_shared_memory) { echo_with(IGNIS_CHANNEL_SHM); }

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
    sleep_ms(50);
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
        begin = now_s();
        pthread_create(&killer, NULL, kill_soon, &child[m - 1]);
        CHECK_STATUS(ignis_channel_receive(channel, back, sizeof back, NULL, NULL, 0, NULL), IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
        CHECK(now_s() - begin < 5);
        pthread_join(killer, NULL);
        for (i = 0; i < 3; i++)
            CHECK_STATUS(ignis_channel_send(channel, big, 100, NULL, 0), IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
        CHECK(!info_of_channel(channel).alive);
        CHECK_OK(ignis_channel_close(channel));
        CHECK_OK(ignis_channel_close(server));
        CHECK_INT(process_end(&child[m - 1]), -1);
    }
    CHECK_INT(files_in(folder), 0);
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
        CHECK_NO_CHANNEL(ignis_channel_serve, desc_of_channel("stale", m, 1), IGNIS_ERROR_IO, IGNIS_DIAG_CHANNEL_IO);
        CHECK_MESSAGE_HAS("a live server has the name");
        process_kill(&child[m - 1]);
        CHECK(files_in(folder) >= 2);
        CHECK_NO_CHANNEL(ignis_channel_connect, desc_of_channel("stale", m, 0.1), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_CHANNEL_TIMEOUT);
        server = serve("stale", m, 1);
        CHECK(server.id != 0);
        CHECK_OK(ignis_channel_close(server));
    }
    CHECK_INT(files_in(folder), 0);
}

/* in one process ------------------------------------------------------------------------------------------------------- */

TEST(a_message_that_does_not_fit_stays)
{
    ignis_channel_method m;
    SETUP(NULL);
    EACH_METHOD(m)
    {
        pair both = make_pair(m, 5);
        int64_t size = 0;
        int count = -1;
        CHECK_OK(ignis_channel_send(both.a, "0123456789", 10, NULL, 0));
        CHECK_OK(ignis_channel_send(both.a, "next", 4, NULL, 0));
        CHECK_STATUS(ignis_channel_receive(both.b, back, 9, &size, NULL, 0, &count), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
        CHECK_INT(size, 10);
        CHECK_INT(count, 0);
        CHECK_OK(ignis_channel_receive(both.b, back, 10, &size, NULL, 0, &count));
        CHECK(memcmp(back, "0123456789", 10) == 0);
        CHECK_INT(receive_size(both.b, back, 10), 4);
        if (m == IGNIS_CHANNEL_SOCKET) {
            int before = process_descriptors(), fds[2] = {0, 1};
            CHECK_OK(ignis_channel_send(both.a, NULL, 0, fds, 2));
            CHECK_STATUS(ignis_channel_receive(both.b, back, 10, &size, fds, 1, &count), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
            CHECK_INT(count, 2);
            CHECK_OK(ignis_channel_receive(both.b, back, 10, &size, fds, 2, &count));
            CHECK_INT(process_descriptors(), before + 2);
            close(fds[0]);
            close(fds[1]);
            fds[0] = 0;
            CHECK_OK(ignis_channel_send(both.a, NULL, 0, fds, 1)); /* nobody takes it */
            CHECK_STATUS(ignis_channel_receive(both.b, back, 10, NULL, NULL, 0, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
            CHECK_INT(process_descriptors(), before + 1);
            drop_pair(&both);
            CHECK_INT(process_descriptors(), before - 4); /* its two ends, the server's socket and token */
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
        double begin = now_s();
        pair both;
        int i;
        CHECK_NO_CHANNEL(ignis_channel_connect, desc_of_channel("nobody", m, 0.2), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_CHANNEL_TIMEOUT);
        CHECK(now_s() - begin >= 0.2 && now_s() - begin < 2);
        server = serve("silent", m, 0.2);
        begin = now_s();
        CHECK_FAILS(ignis_channel_accept(server), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_CHANNEL_TIMEOUT);
        CHECK(now_s() - begin >= 0.2 && now_s() - begin < 2);
        CHECK_OK(ignis_channel_close(server));
        both = make_pair(m, 0.2);
        begin = now_s();
        CHECK_STATUS(ignis_channel_receive(both.a, back, 10, NULL, NULL, 0, NULL), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_CHANNEL_TIMEOUT);
        CHECK(now_s() - begin >= 0.2 && now_s() - begin < 2);
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

static void *close_soon(void *data)
{
    sleep_ms(100);
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
        double begin = now_s();
        pthread_t closer;
        pthread_create(&closer, NULL, close_soon, &both.a);
        CHECK_STATUS(ignis_channel_receive(both.a, back, 10, NULL, NULL, 0, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_CHANNEL_FREED);
        pthread_join(closer, NULL);
        CHECK_STATUS(ignis_channel_receive(both.b, back, 10, NULL, NULL, 0, NULL), IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
        pthread_create(&closer, NULL, close_soon, &both.server);
        CHECK_FAILS(ignis_channel_accept(both.server), IGNIS_ERROR_FREED, IGNIS_DIAG_CHANNEL_FREED);
        pthread_join(closer, NULL);
        CHECK(now_s() - begin < 5);
        CHECK_OK(ignis_channel_close(both.b));
    }
    CHECK_INT(files_in(folder), 0);
}

TEST(arguments_are_checked)
{
    ignis_channel_desc desc = desc_of_channel("ok", IGNIS_CHANNEL_DEFAULT, 1);
    ignis_channel none = {0};
    ignis_channel_info info;
    char long_name[80];
    const char *bad_names[] = {"", ".", "../up", "a/b", "with space", long_name};
    pair both;
    int fd = 0, bad = 999, i;
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    CHECK_STATUS(ignis_channel_close(none), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
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
    both = make_pair(IGNIS_CHANNEL_SOCKET, 1);
    CHECK_STATUS(ignis_channel_send(both.a, big, -1, NULL, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_channel_send(both.a, big, IGNIS_CHANNEL_MAX_BYTES + 1, NULL, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_channel_send(both.a, NULL, 1, NULL, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_channel_send(both.a, big, 1, NULL, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_channel_send(both.a, big, 1, &fd, IGNIS_CHANNEL_MAX_FDS + 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_channel_send(both.a, big, 1, &bad, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_channel_receive(both.a, NULL, 1, NULL, NULL, 0, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_channel_receive(both.a, back, -1, NULL, NULL, 0, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_channel_send(both.server, big, 1, NULL, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_channel_accept(both.a), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_channel_query(both.a, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_channel_send(both.a, big, 1, NULL, 0)); /* none of it did harm */
    CHECK_INT(receive_size(both.b, back, 1), 1);
    drop_pair(&both);
    CHECK_STATUS(ignis_channel_close(both.a), IGNIS_ERROR_FREED, IGNIS_DIAG_CHANNEL_FREED);
    CHECK_STATUS(ignis_channel_query(both.b, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_CHANNEL_FREED);
    both = make_pair(IGNIS_CHANNEL_PIPE, 1);
    CHECK_STATUS(ignis_channel_send(both.a, big, 1, &fd, 1), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CHANNEL_DESCRIPTOR);
    drop_pair(&both);
    both = make_pair(IGNIS_CHANNEL_SHM, 1);
    CHECK_STATUS(ignis_channel_send(both.b, big, 1, &fd, 1), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CHANNEL_DESCRIPTOR);
    drop_pair(&both);
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    int code, i;
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
