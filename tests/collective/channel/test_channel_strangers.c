// SPDX-License-Identifier: MIT
/*  test_channel_strangers.c - channels and strangers: who is let in, messages and bytes that lie, places that others
    can reach */
#include "places.h"

#include <errno.h>
#include <sys/stat.h>
#ifndef _WIN32
#include <poll.h>
#include <sys/resource.h>
#include <sys/un.h>
#endif

/* who is let in ---------------------------------------------------------------------------------------------------- */

/*  The connection's head, as anybody can write it. */
typedef struct raw_head {
    uint32_t magic;
    uint16_t version, type;
    uint32_t size, fd_count;
    uint64_t sequence;
} raw_head;
enum {
    RAW_MAGIC = 0x52494749,
    RAW_VERSION = 3,
    RAW_HELLO = 1,
    RAW_CHALLENGE,
    RAW_PROOF,
    RAW_WELCOME,
    RAW_REFUSED,
    RAW_GOODBYE,
    RAW_DATA
};

/*  What a client says: first its nonce, then its proof and its process. */
typedef struct raw_hello {
    raw_head head;
    unsigned char nonce[16];
} raw_hello;

typedef struct raw_challenge {
    raw_head head;
    unsigned char nonce[16], proof[32];
} raw_challenge;

typedef struct raw_proof {
    raw_head head;
    unsigned char proof[32];
    uint64_t pid;
} raw_proof;

/*  Clients made by hand are refused where the library has another version, and the tests would wait for them. */
#define NEEDS_RAW_VERSION() REQUIRE(RAW_VERSION == (int)IGNIS__PROTOCOL_VERSION)

/*  Seconds within which the other end says what it has to. */
enum { RAW_PATIENCE = 20 };

static raw_head raw_head_of(int type, uint32_t size, uint32_t fd_count, uint64_t sequence)
{
    raw_head head = {RAW_MAGIC, RAW_VERSION, 0, 0, 0, 0};
    head.type = (uint16_t)type;
    head.size = size;
    head.fd_count = fd_count;
    head.sequence = sequence;
    return head;
}

static const unsigned char known_token[32] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 6};

static raw_hello good_hello(void)
{
    raw_hello hello;
    memset(&hello, 0, sizeof hello);
    hello.head = raw_head_of(RAW_HELLO, 16, 0, 0);
    return hello;
}

/*  The answer to a challenge by who knows a token, as the manual of the protocol has it. */
static raw_proof proof_of(const raw_hello *hello, const raw_challenge *challenge, const unsigned char *token)
{
    unsigned char said[40];
    raw_proof proof;
    memset(&proof, 0, sizeof proof);
    proof.head = raw_head_of(RAW_PROOF, 40, 0, 1);
    proof.pid = 77;
    memcpy(said, "client..", 8);
    memcpy(said + 8, hello->nonce, 16);
    memcpy(said + 24, challenge->nonce, 16);
    ignis__hmac(token, said, sizeof said, &proof.pid, sizeof proof.pid, proof.proof);
    return proof;
}

#ifdef _WIN32

/*  A client made by hand: its end of the server's pipe. */
static int raw_connect(ignis_channel server)
{
    HANDLE end = INVALID_HANDLE_VALUE;
    int tries;
    for (tries = 0; tries < 1000 && end == INVALID_HANDLE_VALUE;
         tries++) { /* there is one when the server waits for it */
        end = CreateFileA(info_of_channel(server).path, GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING, 0, NULL);
        if (end == INVALID_HANDLE_VALUE)
            test_sleep_ms(2);
    }
    CHECK(end != INVALID_HANDLE_VALUE);
    return (int)(intptr_t)end;
}

/*  Connects, and proves itself; greets with so many descriptors. */
typedef struct raw_friend {
    ignis_channel server;
    int fd;
    uint32_t greeted_with;
    bool welcome;
} raw_friend;

static void *raw_friend_run(void *data)
{
    raw_friend *made = (raw_friend *)data;
    raw_challenge challenge;
    raw_proof proof;
    raw_head head;
    raw_hello hello = good_hello();
    hello.head.fd_count = made->greeted_with;
    made->welcome = false;
    made->fd = raw_connect(made->server);
    CHECK(write(made->fd, &hello, sizeof hello) == sizeof hello);
    if (read(made->fd, &challenge, sizeof challenge) != sizeof challenge)
        return NULL;
    proof = proof_of(&hello, &challenge, known_token);
    CHECK(write(made->fd, &proof, sizeof proof) == sizeof proof);
    made->welcome = read(made->fd, &head, sizeof head) == sizeof head && head.type == RAW_WELCOME;
    return NULL;
}

static ignis_channel accept_raw(raw_friend *friend, ignis_channel server, uint32_t greeted_with)
{
    pthread_t thread;
    ignis_channel channel;
    memset(friend, 0, sizeof *friend);
    friend->server = server;
    friend->greeted_with = greeted_with;
    pthread_create(&thread, NULL, raw_friend_run, friend);
    channel = ignis_channel_accept_within(server, greeted_with ? 0.3 : RAW_PATIENCE);
    if (greeted_with)
        ignis_status_clear();
    pthread_join(thread, NULL);
    return channel;
}

/*  As when the other side runs with more rights. The first failure of a process opens what stays open: the second one
    is measured. */
TEST(who_may_not_be_opened_gets_no_handles)
{
    pair both;
    ignis__channel *channel;
    int ends[2], before, round;
    SETUP(NULL);
    REQUIRE(pipe(ends) == 0);
    for (round = 0; round < 2; round++) {
        both = make_pair(IGNIS_CHANNEL_PIPE, 20);
        channel = (ignis__channel *)ignis__pool_hold(&ignis__channels, both.a.id);
        ignis__peer_file_close(&channel->connection->process);
        ignis__channel_drop(channel);
        before = process_descriptors();
        CHECK_STATUS(ignis_channel_send(both.a, "no", 2, ends, 2), IGNIS_ERROR_IO, IGNIS_DIAG_CHANNEL_IO);
        CHECK_MESSAGE_HAS("does not allow handles to be duplicated into it");
        if (round > 0)
            CHECK_INT(process_descriptors(), before);
        CHECK_OK(ignis_channel_close(both.a));
        CHECK_OK(ignis_channel_close(both.b));
        CHECK_OK(ignis_channel_close(both.server));
    }
    close(ends[0]);
    close(ends[1]);
}

static ignis_channel guarded;

/*  A friend that turns hostile after its greeting loses its channel. */
static void tell_lies(void)
{
    enum { LIES = 7 };
    ignis_channel channel;
    raw_friend friend;
    int lie;
    for (lie = 0; lie < LIES; lie++) {
        struct {
            raw_head head;
            uint64_t handles[IGNIS_CHANNEL_MAX_FDS];
        } message;
        int fds[IGNIS_CHANNEL_MAX_FDS];
        memset(&message, 0, sizeof message);
        channel = accept_raw(&friend, guarded, 0);
        CHECK(friend.welcome);
        message.head = raw_head_of(RAW_DATA, 0, 0, 2);
        switch (lie) {
        case 0: message.head.sequence = 3; break;       /* one is missing */
        case 1: message.head.type = RAW_WELCOME; break; /* not now */
        case 2: message.head.size = 0x80000000u; break; /* too much */
        case 3: message.head.fd_count = 65; break;      /* more than there is room for */
        case 4: message.head.fd_count = 1; break;       /* no handle */
        case 5:
            message.head.fd_count = 2;
            message.handles[1] = (uint64_t)1 << 40;
            break;
        case 6: message.head.magic++; break;
        default: break;
        }
        CHECK(write(friend.fd, &message, sizeof message) == sizeof message);
        CHECK_STATUS(ignis_channel_receive(channel, back, sizeof back, NULL, fds, IGNIS_CHANNEL_MAX_FDS, NULL),
                     IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_MESSAGE);
        CHECK_STATUS(ignis_channel_receive(channel, back, sizeof back, NULL, NULL, 0, NULL), IGNIS_ERROR_PEER,
                     IGNIS_DIAG_CHANNEL_LOST);
        CHECK_STATUS(ignis_channel_send(channel, back, 1, NULL, 0), IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
        CHECK_OK(ignis_channel_close(channel));
        close(friend.fd);
    }
}

TEST(a_message_that_lies_ends_its_channel)
{
    ignis_channel_desc desc = desc_of_channel("guarded", IGNIS_CHANNEL_PIPE, 20);
    ignis_channel channel;
    raw_friend friend;
    SETUP(NULL);
    NEEDS_RAW_VERSION();
    desc.token = known_token;
    guarded = ignis_channel_serve(&desc);
    channel = accept_raw(&friend, guarded, 1); /* who has proven nothing brings no handles */
    CHECK(!channel.id && !friend.welcome);
    CHECK_INT(info_of_channel(guarded).refused, 1);
    close(friend.fd);
    process_leaves_no_descriptor(tell_lies);
    CHECK_OK(ignis_channel_close(guarded));
}

#else

static int raw_connect(ignis_channel server)
{
    ignis_channel_info info = info_of_channel(server);
    const struct timeval patience = {RAW_PATIENCE, 0};
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", info.path);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static void raw_send(int fd, const void *data, size_t size, int fd_to_send, int fd_count)
{
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr message;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(128 * sizeof(int))];
    } control;
    int i;
    memset(&message, 0, sizeof message);
    memset(&control, 0, sizeof control);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd_count > 0) {
        message.msg_control = control.room;
        message.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
        for (i = 0; i < fd_count; i++)
            memcpy(CMSG_DATA(&control.header) + (size_t)i * sizeof(int), &fd_to_send, sizeof(int));
    }
    CHECK(sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)size);
}

/*  A client made by hand, which proves itself and then does what a test wants. */
typedef struct raw_friend {
    ignis_channel server;
    int fd;
    bool welcome;
    raw_hello hello; /* what it has said, */
    raw_proof proof; /* for others to say again */
} raw_friend;

static void *raw_friend_run(void *data)
{
    raw_friend *made = (raw_friend *)data;
    raw_challenge challenge;
    raw_head head;
    made->welcome = false;
    made->fd = raw_connect(made->server);
    made->hello = good_hello();
    raw_send(made->fd, &made->hello, sizeof made->hello, -1, 0);
    if (recv(made->fd, &challenge, sizeof challenge, 0) != sizeof challenge || challenge.head.type != RAW_CHALLENGE) {
        test__fail(__FILE__, __LINE__, "the server does not answer a greeting by a challenge");
        return NULL;
    }
    made->proof = proof_of(&made->hello, &challenge, known_token);
    raw_send(made->fd, &made->proof, sizeof made->proof, -1, 0);
    made->welcome = recv(made->fd, &head, sizeof head, 0) == sizeof head && head.type == RAW_WELCOME;
    return NULL;
}

static void *connect_known(void *data)
{
    ignis_channel_desc desc = desc_of_channel("guarded", IGNIS_CHANNEL_SOCKET, 20);
    desc.token = known_token;
    test_sleep_ms(50);
    *(ignis_channel *)data = ignis_channel_connect(&desc);
    CHECK_OK(ignis_status_last());
    return NULL;
}

TEST(strangers_are_turned_away_and_friends_let_in)
{
    enum { STRANGERS = 12 };
    ignis_channel_desc desc = desc_of_channel("guarded", IGNIS_CHANNEL_SOCKET, 20);
    ignis_channel server, a, b;
    raw_hello hello;
    raw_proof proof;
    raw_challenge answer;
    raw_head head;
    int stranger[STRANGERS], i = 0, before, silent, refusals = 0;
    pthread_t thread;
    SETUP(NULL);
    NEEDS_RAW_VERSION();
    desc.token = known_token;
    server = ignis_channel_serve(&desc);
    before = process_descriptors();
    for (i = 0; i < STRANGERS; i++)
        stranger[i] = raw_connect(server);
    silent = raw_connect(server);
    i = 0;
    raw_send(stranger[i++], "x", 1, -1, 0);
    raw_send(stranger[i++], "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n", 35, -1, 0);
    hello = good_hello(), hello.head.magic++;
    raw_send(stranger[i++], &hello, sizeof hello, -1, 0);
    hello = good_hello(), hello.head.version++;
    raw_send(stranger[i++], &hello, sizeof hello, -1, 0);
    hello = good_hello(), hello.head.type = RAW_DATA;
    raw_send(stranger[i++], &hello, sizeof hello, -1, 0);
    hello = good_hello(), memset(&proof, 0, sizeof proof); /* proofs of who does not know the token */
    proof.head = raw_head_of(RAW_PROOF, 40, 0, 1);
    raw_send(stranger[i], &hello, sizeof hello, -1, 0);
    raw_send(stranger[i++], &proof, sizeof proof, -1, 0);
    proof.head = raw_head_of(RAW_PROOF, 0, 0, 1);
    raw_send(stranger[i], &hello, sizeof hello, -1, 0);
    raw_send(stranger[i++], &proof, sizeof proof.head, -1, 0);
    head = raw_head_of(RAW_HELLO, 0, 0, 0);
    raw_send(stranger[i++], &head, sizeof head, -1, 0);
    hello = good_hello(), hello.head.size = 0xFFFFFFFFu;
    raw_send(stranger[i++], &hello, sizeof hello, -1, 0);
    hello = good_hello(), hello.head.sequence = 7;
    raw_send(stranger[i++], &hello, sizeof hello, -1, 0);
    hello = good_hello(), hello.head.fd_count = 1;
    raw_send(stranger[i++], &hello, sizeof hello, 0, 1); /* a good one, but with a descriptor */
    close(stranger[i]);                                  /* and one that goes without a word */
    stranger[i++] = -1;
    CHECK_INT(i, STRANGERS);
    pthread_create(&thread, NULL, connect_known, &b);
    a = ignis_channel_accept(server);
    pthread_join(thread, NULL);
    CHECK(a.id != 0);
    CHECK_OK(ignis_channel_send(a, "hello", 5, NULL, 0));
    CHECK_INT(receive_size(b, back, 5), 5);
    CHECK_INT(info_of_channel(server).refused, STRANGERS);
    CHECK_INT(test_log_count(IGNIS_DIAG_CHANNEL_MESSAGE), 1);
    CHECK_HAS(test_log_text(IGNIS_DIAG_CHANNEL_MESSAGE), "refused");
    for (i = 0; i < STRANGERS; i++) {
        answer.head.type = 0;
        while (stranger[i] >= 0 && answer.head.type != RAW_REFUSED && recv(stranger[i], &answer, sizeof answer, 0) > 0)
            ;
        refusals += answer.head.type == RAW_REFUSED;
        close(stranger[i]);
    }
    CHECK_INT(refusals, STRANGERS - 1);
    CHECK(recv(silent, &head, sizeof head, MSG_DONTWAIT) < 0 && errno == EAGAIN); /* still has time to speak */
    close(silent);
    CHECK_OK(ignis_channel_close(a));
    CHECK_OK(ignis_channel_close(b));
    CHECK_INT(process_descriptors(), before + 1); /* the silent one's other end */
    CHECK_OK(ignis_channel_close(server));
    CHECK_INT(process_descriptors(), before - 3);
}

#endif

TEST(without_the_token_nobody_connects)
{
    static const unsigned char other_token[16] = {1};
    ignis_channel_method m;
    SETUP(NULL);
    EACH_METHOD(m)
    {
        ignis_channel_desc desc = desc_of_channel("token", m, 0.5);
        ignis_channel server = ignis_channel_serve(&desc);
        pair later;
        pthread_t thread;
        desc.token = other_token;
        CHECK_NO_CHANNEL(ignis_channel_connect, desc, IGNIS_ERROR_TIMEOUT,
                         IGNIS_DIAG_CHANNEL_TIMEOUT); /* nobody looks */
        CHECK_FAILS(ignis_channel_accept(server), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_CHANNEL_TIMEOUT);
        CHECK_INT(info_of_channel(server).refused, 1);
        memset(&later, 0, sizeof later);
        later.desc = desc;
        later.desc.token = NULL;
        later.desc.timeout_s = 20;
        set_timeout(server, 20);
        pthread_create(&thread, NULL, pair_connect, &later); /* and nobody suffers from it */
        later.a = ignis_channel_accept(server);
        pthread_join(thread, NULL);
        CHECK_OK(ignis_channel_send(later.b, "friend", 6, NULL, 0));
        CHECK_INT(receive_size(later.a, back, 6), 6);
        later.server = server;
        drop_pair(&later);
        desc.token = known_token;
        server = ignis_channel_serve(&desc);
        desc.token = NULL;
        CHECK_NO_CHANNEL(ignis_channel_connect, desc, IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_MESSAGE);
        CHECK_MESSAGE_HAS("its own token");
        CHECK_OK(ignis_channel_close(server));
    }
}

#ifndef _WIN32

/*  A friend that turns hostile after its greeting loses its channel, and nothing of what it sent stays open. */
TEST(a_message_that_lies_ends_its_channel)
{
    enum { LIES = 11 };
    ignis_channel_desc desc = desc_of_channel("guarded", IGNIS_CHANNEL_SOCKET, 20);
    ignis_channel server;
    int lie, before;
    SETUP(NULL);
    NEEDS_RAW_VERSION();
    desc.token = known_token;
    server = ignis_channel_serve(&desc);
    before = process_descriptors();
    for (lie = 0; lie < LIES; lie++) {
        int fds[IGNIS_CHANNEL_MAX_FDS], fd;
        raw_hello hello = good_hello();
        raw_head head;
        ignis_channel channel;
        static char huge[sizeof(raw_head) + IGNIS_CHANNEL_MAX_BYTES + 1];
        raw_friend friend;
        pthread_t thread;
        friend.server = server;
        pthread_create(&thread, NULL, raw_friend_run, &friend);
        channel = ignis_channel_accept(server);
        pthread_join(thread, NULL);
        REQUIRE(channel.id && friend.welcome);
        fd = friend.fd;
        head = raw_head_of(RAW_DATA, 0, 0, 2);
        switch (lie) {
        case 0: raw_send(fd, &head, sizeof head - 1, -1, 0); break;                 /* cut off */
        case 1: head.size = 1, raw_send(fd, &head, sizeof head, -1, 0); break;      /* less than it says */
        case 2: raw_send(fd, &hello, sizeof hello, -1, 0); break;                   /* an old message again */
        case 3: head.fd_count = 1, raw_send(fd, &head, sizeof head, -1, 0); break;  /* no descriptor */
        case 4: raw_send(fd, &head, sizeof head, 0, 1); break;                      /* one too many */
        case 5: head.fd_count = 64, raw_send(fd, &head, sizeof head, 0, 65); break; /* more than there is room for */
        case 6:
            memcpy(huge, &head, sizeof head), raw_send(fd, huge, sizeof huge, 0, 3);
            break;                                                                       /* longer than any message */
        case 7: head.sequence = 3, raw_send(fd, &head, sizeof head, 0, 1); break;        /* one is missing */
        case 8: head.type = RAW_WELCOME, raw_send(fd, &head, sizeof head, -1, 0); break; /* not now */
        case 9:
            head.size = 0x80000000u, raw_send(fd, &head, sizeof head, 0, 64);
            break; /* too much, with 64 descriptors */
        case 10: head.fd_count = 0xFFFFFFFFu, raw_send(fd, &head, sizeof head, 0, 64); break;
        default: break;
        }
        CHECK_STATUS(ignis_channel_receive(channel, back, sizeof back, NULL, fds, IGNIS_CHANNEL_MAX_FDS, NULL),
                     IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_MESSAGE);
        CHECK_STATUS(ignis_channel_receive(channel, back, sizeof back, NULL, NULL, 0, NULL), IGNIS_ERROR_PEER,
                     IGNIS_DIAG_CHANNEL_LOST);
        CHECK_STATUS(ignis_channel_send(channel, back, 1, NULL, 0), IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
        CHECK(!info_of_channel(channel).alive);
        CHECK(recv(fd, &head, sizeof head, 0) <= 0); /* it learns of it */
        CHECK_INT(process_descriptors(), before + 2);
        CHECK_OK(ignis_channel_close(channel));
        close(fd);
    }
    CHECK_INT(process_descriptors(), before);
    CHECK_OK(ignis_channel_close(server));
}

/*  The same through FIFOs and shared memory: bytes that are no message. */
TEST(bytes_that_lie_end_their_channel)
{
    char path[600];
    pair both;
    int fd, i;
    ignis_channel server;
    SETUP(NULL);
    server = serve("bytes", IGNIS_CHANNEL_PIPE, 0.3);
    for (i = 0; i < 3; i++) { /* who writes before greeting gets nowhere */
        snprintf(path, sizeof path, "%s.up", info_of_channel(server).path);
        fd = open(path, O_WRONLY | O_NONBLOCK);
        CHECK(fd >= 0);
        CHECK(write(fd, big, 4000) == 4000);
        if (i == 1)
            close(fd);
        CHECK_FAILS(ignis_channel_accept(server), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_CHANNEL_TIMEOUT);
        if (i != 1)
            close(fd);
    }
    CHECK_INT(info_of_channel(server).refused, 3);
    CHECK_OK(ignis_channel_close(server));
    server = serve("bytes", IGNIS_CHANNEL_SHM, 0.3);
    fd = open(info_of_channel(server).path, O_RDWR);
    CHECK(fd >= 0);
    CHECK(pwrite(fd, big, 4000, 0) == 4000); /* over its words, and nobody holds the lock of a client */
    CHECK_FAILS(ignis_channel_accept(server), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_CHANNEL_TIMEOUT);
    close(fd);
    CHECK_OK(ignis_channel_close(server));
    memset(big, 0xA5, sizeof big);
    both = make_pair(IGNIS_CHANNEL_SHM, 20);
    {
        ignis__channel *channel = (ignis__channel *)ignis__pool_hold(&ignis__channels, both.a.id);
        ignis__shared *shared = channel->connection->shared; /* what the other side can write as well */
        shared->ring[1].written += ((uint64_t)1 << 62) + 5;
        ignis__channel_drop(channel);
    }
    CHECK_STATUS(ignis_channel_receive(both.a, back, sizeof back, NULL, NULL, 0, NULL), IGNIS_ERROR_PEER,
                 IGNIS_DIAG_CHANNEL_MESSAGE);
    CHECK_STATUS(ignis_channel_receive(both.a, back, sizeof back, NULL, NULL, 0, NULL), IGNIS_ERROR_PEER,
                 IGNIS_DIAG_CHANNEL_LOST);
    drop_pair(&both);
}

/*  Who says again what a friend has said is no friend. */
TEST(what_was_said_once_proves_nothing_again)
{
    ignis_channel_desc desc = desc_of_channel("guarded", IGNIS_CHANNEL_SOCKET, 20);
    ignis_channel server, channel;
    raw_friend friend;
    pthread_t thread;
    int fd;
    SETUP(NULL);
    NEEDS_RAW_VERSION();
    desc.token = known_token;
    friend.server = server = ignis_channel_serve(&desc);
    pthread_create(&thread, NULL, raw_friend_run, &friend);
    channel = ignis_channel_accept(server);
    pthread_join(thread, NULL);
    REQUIRE(channel.id != 0 && friend.welcome);
    fd = raw_connect(server);
    raw_send(fd, &friend.hello, sizeof friend.hello, -1, 0);
    raw_send(fd, &friend.proof, sizeof friend.proof, -1, 0);
    set_timeout(server, 0.2);
    CHECK_FAILS(ignis_channel_accept(server), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_CHANNEL_TIMEOUT);
    CHECK_INT(info_of_channel(server).refused, 1);
    CHECK_HAS(test_log_text(IGNIS_DIAG_CHANNEL_MESSAGE), "the client has another token");
    close(fd);
    close(friend.fd);
    CHECK_OK(ignis_channel_close(channel));
    CHECK_OK(ignis_channel_close(server));
}

/*  More who say nothing than there is room for, and as many clients at once: all clients get in, and one that comes
    behind all of them. */
TEST(a_crowd_keeps_no_client_out)
{
    enum { SILENT = 100, CLIENTS = 41, LATE = CLIENTS - 1 };
    ignis_channel server;
    pair client[CLIENTS];
    pthread_t thread[CLIENTS];
    int silent[SILENT], i;
    SETUP(NULL);
    server = serve("crowd", IGNIS_CHANNEL_SOCKET, 30);
    for (i = 0; i < SILENT / 2; i++) /* as many as the queue of a socket holds on any system, while nobody accepts */
        silent[i] = raw_connect(server);
    for (i = 0; i < CLIENTS; i++) {
        memset(&client[i], 0, sizeof client[i]);
        client[i].desc = desc_of_channel("crowd", IGNIS_CHANNEL_SOCKET, 30);
        if (i != LATE)
            pthread_create(&thread[i], NULL, pair_connect, &client[i]);
    }
    for (i = 0; i < CLIENTS; i++) {
        if (i != LATE)
            silent[SILENT / 2 + i] = raw_connect(server);
        else
            pthread_create(&thread[i], NULL, pair_connect, &client[i]);
        client[i].a = ignis_channel_accept(server);
        CHECK(client[i].a.id != 0);
    }
    for (i = 0; i < CLIENTS; i++)
        pthread_join(thread[i], NULL);
    for (i = 0; i < CLIENTS; i++) {
        CHECK_OK(ignis_channel_close(client[i].a));
        CHECK_OK(ignis_channel_close(client[i].b));
    }
    for (i = 0; i < SILENT / 2 + LATE; i++)
        close(silent[i]);
#ifndef _WIN32 /* where nobody connects while the server does not wait */
    CHECK_HAS(test_log_text(IGNIS_DIAG_CHANNEL_MESSAGE), "too many clients at once do not authenticate");
#endif
    CHECK_OK(ignis_channel_close(server));
    CHECK_INT(test_files_in(folder), 0);
}

/*  Anything at all is said to a server and to an accepted channel. */
static uint64_t fuzz_ends;

static void *fuzz_serve(void *data)
{
    ignis_channel server = *(ignis_channel *)data, channel;
    while (!ignis__atomic_load(&fuzz_ends)) {
        int fds[IGNIS_CHANNEL_MAX_FDS], count = 0;
        channel = ignis_channel_accept_within(server, 0.05);
        if (!channel.id)
            continue;
        while (ignis_channel_receive_within(channel, back, sizeof back, NULL, fds, IGNIS_CHANNEL_MAX_FDS, &count,
                                            0.5) == IGNIS_OK)
            while (count > 0)
                close(fds[--count]);
        ignis_channel_close(channel);
        ignis_status_clear();
    }
    ignis_status_clear();
    return NULL;
}

TEST(garbage_does_no_harm)
{
    const int rounds = test_env("IGNIS_SOAK") ? 50000 : 300;
    ignis_channel_desc desc = desc_of_channel("guarded", IGNIS_CHANNEL_SOCKET, 20);
    ignis_channel server, client;
    pthread_t thread;
    uint32_t random = 12345;
    int round, i, before;
    SETUP(NULL);
    NEEDS_RAW_VERSION();
    desc.token = known_token;
    server = ignis_channel_serve(&desc);
    ignis__atomic_store(&fuzz_ends, 0);
    pthread_create(&thread, NULL, fuzz_serve, &server);
    before = process_descriptors();
    for (round = 0; round < rounds; round++) {
        int fd = raw_connect(server), messages = 1 + round % 3;
        raw_challenge challenge;
        raw_hello hello = good_hello();
        memset(&challenge, 0, sizeof challenge);
        for (i = 0; i < messages; i++) {
            unsigned char bytes[200];
            size_t size, k;
            raw_proof proof = proof_of(&hello, &challenge, known_token);
            raw_head head = raw_head_of(RAW_DATA, 100, 0, (uint64_t)i);
            memset(bytes, 0, sizeof bytes);
            if (i == 0)
                memcpy(bytes, &hello, size = sizeof hello);
            else if (i == 1)
                memcpy(bytes, &proof, size = sizeof proof);
            else
                memcpy(bytes, &head, sizeof head), size = sizeof head + 100;
            if (i == messages - 1) /* the last one is damaged */
                for (k = 0; k < 3; k++) {
                    random = random * 1664525u + 1013904223u;
                    bytes[random / 7 % (i == 0 ? sizeof(raw_head) : size)] ^= (unsigned char)(1u << (random >> 29));
                }
            random = random * 1664525u + 1013904223u;
            if (send(fd, bytes, i == messages - 1 && random % 4 == 0 ? random / 4 % size : size, MSG_NOSIGNAL) < 0)
                break;
            if (i == 0 && messages > 1 && recv(fd, &challenge, sizeof challenge, 0) != sizeof challenge)
                break;
        }
        close(fd);
    }
    client = ignis_channel_connect(&desc);
    CHECK(client.id != 0);
    CHECK_OK(ignis_channel_send(client, "well", 4, NULL, 0));
    CHECK_OK(ignis_channel_close(client));
    ignis__atomic_store(&fuzz_ends, 1);
    pthread_join(thread, NULL);
    CHECK(process_descriptors() <= before);
    CHECK_OK(ignis_channel_close(server));
}

/*  A client that cuts off the memory that it shares with the server would be the end of the server. */
TEST(shared_memory_cannot_be_cut_off)
{
    ignis_channel_desc desc = desc_of_channel("pair", IGNIS_CHANNEL_SHM, 20);
    pthread_t thread;
    pair both;
    int fd;
    SETUP(NULL);
    memset(&both, 0, sizeof both);
    both.desc = desc;
    both.server = ignis_channel_serve(&desc);
    fd = open(info_of_channel(both.server).path, O_RDWR);
    CHECK(fd >= 0);
    pthread_create(&thread, NULL, pair_connect, &both);
    both.a = ignis_channel_accept(both.server);
    pthread_join(thread, NULL);
    CHECK(ftruncate(fd, 0) != 0);
    close(fd);
    CHECK_OK(ignis_channel_send(both.a, big, sizeof big, NULL, 0));
    CHECK_INT(receive_size(both.b, back, sizeof back), sizeof back);
    drop_pair(&both);
}

#endif

/*  Two threads at each end, one that sends and one that receives. */
static void *send_many(void *data)
{
    int i, number;
    for (i = 0; i < 100; i++) {
        number = i;
        CHECK_OK(ignis_channel_send(*(ignis_channel *)data, &number, sizeof number, NULL, 0));
    }
    return NULL;
}

static void *receive_many(void *data)
{
    int i, number = -1;
    for (i = 0; i < 100; i++) {
        CHECK_INT(receive_size(*(ignis_channel *)data, &number, sizeof number), sizeof number);
        CHECK_INT(number, i);
    }
    return NULL;
}

TEST(both_directions_at_once)
{
    ignis_channel_method m;
    SETUP(NULL);
    EACH_METHOD(m)
    {
        pair both = make_pair(m, 20);
        pthread_t thread[4];
        int i;
        for (i = 0; i < 4; i++)
            pthread_create(&thread[i], NULL, i < 2 ? send_many : receive_many, i % 2 ? &both.a : &both.b);
        while (info_of_channel(both.a).unsent)
            test_sleep_ms(1);
        for (i = 0; i < 4; i++)
            pthread_join(thread[i], NULL);
        CHECK(info_of_channel(both.b).alive);
        drop_pair(&both);
    }
}

int main(int argc, char **argv)
{
    int code;
    snprintf(folder, sizeof folder, "/tmp/ignis_test_channel_XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    setenv("IGNIS_COMM_DIR", folder, 1);
    code = test_run(argc, argv);
    rmdir(folder);
    return code;
}
