// SPDX-License-Identifier: MIT
/*  test_peer.c - what channels and jobs have in common: the hash, the proof, streams that take a message in parts, and
    a fork */
#include "array.h"

#include "ignis_collective.h"

#include "processes.h"

static void digits(const unsigned char *bytes, int count, char *text)
{
    int i;
    for (i = 0; i < count; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
}

/*  FIPS 180-4 and RFC 4231. */
TEST(hashes_are_those_of_the_standard)
{
    static const struct {
        const char *text, *hash;
    } sha[] = {{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
               {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
               {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
               {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqr"
                "stnopqrstu",
                "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"}};
    unsigned char out[32], secret[IGNIS__SECRET];
    char text[65];
    int i;
    for (i = 0; i < COUNT_OF(sha); i++) {
        ignis__sha hash;
        ignis__sha_begin(&hash);
        ignis__sha_add(&hash, sha[i].text, strlen(sha[i].text));
        ignis__sha_end(&hash, out);
        digits(out, 32, text);
        CHECK_TEXT(text, sha[i].hash);
    }
    memset(secret, 0, sizeof secret);
    memset(secret, 0x0b, 20);
    ignis__hmac(secret, "Hi ", 3, "There", 5, out);
    digits(out, 32, text);
    CHECK_TEXT(text, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    memset(secret, 0, sizeof secret);
    memcpy(secret, "Jefe", 4);
    ignis__hmac(secret, "what do ya want ", 16, "for nothing?", 12, out);
    digits(out, 32, text);
    CHECK_TEXT(text, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

#ifndef _WIN32 /* which has neither */

/*  A connection over one end of a stream. */
static ignis__connection *stream_of(int fd)
{
    ignis__peer_error error;
    ignis__connection *connection = ignis__connection_create(&error, &ignis__connection_tcp, "stream");
    connection->in = connection->out = ignis__fd_register(fd);
    CHECK(ignis__connection_reserve(&error, connection, 50000));
    return connection;
}

/*  Deadlines pass in the middle of messages again and again, and every message that was sent arrives whole and in
    order. */
TEST(deadlines_leave_streams_in_step)
{
    enum { MESSAGES = 200 };
    static unsigned char data[50000];
    ignis__peer_error error;
    ignis__connection *a, *b;
    int ends[2], sent = 0, got = 0, waits = 0, parts = 0, size = 5000;
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    REQUIRE(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
    a = stream_of(ends[0]), b = stream_of(ends[1]);
    while (got < MESSAGES) {
        const ignis__deadline until = ignis__deadline_in(sent % 3 * 100000);
        if (sent < MESSAGES) {
            memset(data, sent, sizeof data);
            if (ignis__connection_send(&error, a, IGNIS__MESSAGE_DATA, data, (size_t)(sent * 7919 % 50000), NULL, 0,
                                       &until))
                sent++;
            else
                waits++, CHECK_INT(error.diagnostic, IGNIS_DIAG_CHANNEL_TIMEOUT);
            parts += ignis__atomic_load(&a->unsent) != 0;
        } else {
            (void)ignis__connection_flush(&error, a, &ignis__deadline_now);
        }
        if (ignis__connection_receive(&error, b, &ignis__deadline_now)) {
            const int bytes = (int)ignis__message_header_read(b).size;
            CHECK_INT(bytes, got * 7919 % 50000);
            CHECK(bytes == 0 || (b->inbox[sizeof(ignis__message_header)] == (unsigned char)got &&
                                 b->inbox[sizeof(ignis__message_header) + (size_t)bytes - 1] == (unsigned char)got));
            ignis__inbox_remove(b);
            got++;
        } else {
            REQUIRE(error.diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT);
        }
    }
    CHECK(waits > 0 && parts > 0);
    ignis__connection_destroy(a);
    CHECK(!ignis__connection_receive(&error, b, &ignis__deadline_now));
    CHECK_INT(error.diagnostic, IGNIS_DIAG_CHANNEL_LOST);
    ignis__connection_destroy(b);
}

/*  Descriptors that are kept are closed in a child, others are not. */
TEST(a_child_keeps_no_descriptor)
{
    int ends[2], status = 0, open_before = process_descriptors();
    pid_t child;
    REQUIRE(pipe(ends) == 0);
    ignis__fd_register(ends[0]);
    fflush(stdout);
    child = fork();
    if (child == 0)
        _exit(fcntl(ends[0], F_GETFD) < 0 && fcntl(ends[1], F_GETFD) >= 0 ? 0 : 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(fcntl(ends[0], F_GETFD) >= 0);
    ignis__fd_close(&ends[0]);
    CHECK_INT(ends[0], -1);
    close(ends[1]);
    CHECK_INT(process_descriptors(), open_before);
}

#endif

typedef struct meeting_end {
    ignis__listener *listener;
    const unsigned char *secret;
    char path[200];
    ignis__peer_error error;
    ignis__connection *connection;
    bool other; /* than the listener's: tried until it is late */
} meeting_end;

static void *come(void *data)
{
    meeting_end *end = (meeting_end *)data;
    const ignis__deadline until = ignis__deadline_in(end->other ? 250000000 : 5000000000);
    const ignis__client client = {end->listener->kind, end->path, NULL, end->secret, "claim", 5, 100};
    end->connection = ignis__connection_open(&end->error, &client, &until);
    return NULL;
}

/*  The server proves itself first: who does not know the secret learns nothing that proves anything, and its client
    does not stay. */
TEST(both_sides_prove_that_they_know_the_secret)
{
    static const unsigned char secret[IGNIS__SECRET] = "sesame", other[IGNIS__SECRET] = "open";
    char folder[] = "/tmp/ignis_test_peer_XXXXXX", text[8] = "";
    const ignis__deadline until = ignis__deadline_in(5000000000), soon = ignis__deadline_in(300000000);
    ignis__peer_error error;
    ignis__listener *listener;
    ignis__connection *connection;
    meeting_end end;
    pthread_t thread;
    REQUIRE(mkdtemp(folder) != NULL);
    memset(&end, 0, sizeof end);
    snprintf(end.path, sizeof end.path, "%s/listener", folder);
    end.listener = listener = ignis__listener_new("test", ignis__connection_kinds[IGNIS_CHANNEL_DEFAULT], end.path);
    REQUIRE(listener != NULL);
#ifdef _WIN32 /* what is at the path says where */
    CHECK(ignis__listener_open("test", &error, listener, end.path, secret));
#else
    CHECK(ignis__listener_open("test", &error, listener, NULL, secret));
#endif
    end.secret = other;
    end.other = true;
    pthread_create(&thread, NULL, come, &end);
    CHECK(!ignis__listener_next("test", &error, listener, &soon));
    pthread_join(thread, NULL);
    CHECK(!end.connection);
    CHECK_HAS(end.error.why, "another token");
    CHECK(listener->refused >= 1);
    end.secret = secret;
    end.other = false;
    pthread_create(&thread, NULL, come, &end);
    connection = ignis__listener_next("test", &error, listener, &until);
    REQUIRE(connection != NULL);
    CHECK(!ignis__claim_read(&error, connection, text, 4));
    CHECK(ignis__claim_read(&error, connection, text, 5) && ignis__connection_welcome(&error, connection, 100));
    CHECK_TEXT(text, "claim");
    pthread_join(thread, NULL);
    REQUIRE(end.connection != NULL);
    CHECK(memcmp(connection->nonces, end.connection->nonces, sizeof connection->nonces) == 0);
    ignis__connection_destroy(connection);
    ignis__connection_destroy(end.connection);
    ignis__listener_free(listener);
    CHECK_INT(rmdir(folder), 0);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
