// SPDX-License-Identifier: MIT
/*  test_share.c - arrays that two processes use: what the other side sees, who keeps it from being freed, what is left
    when one dies */
#include "fault.h"

#include "array.h"

#include "ignis_collective.h"

#include "channels.h"
#include "processes.h"

#include <sys/stat.h>
#include <time.h>

static char folder[256]; /* of all channels here; $IGNIS_COMM_DIR, also of the children */

/*  Sets up; a device whose memory cannot be shared ends the test. */
#define SHARE_SETUP()                                                      \
    do {                                                                   \
        SETUP(NULL);                                                       \
        if (ignis_vmm_granularity(0, false) < 0) {                         \
            ignis_status_clear();                                          \
            SKIP("device 0 has no virtual memory management to share by"); \
        }                                                                  \
    } while (0)

static ignis_array make_shared(ignis_shape shape, const char *tag)
{
    ignis_vmm_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape = shape;
    desc.dtype = IGNIS_I32;
    desc.tag = tag;
    return ignis_vmm_array(&desc);
}

static void write_counting(ignis_array array, int32_t first)
{
    int32_t values[4096];
    int64_t i, n = ignis_array_numel(array);
    for (i = 0; i < n; i++)
        values[i] = first + (int32_t)i;
    CHECK_OK(ignis_array_from_host_raw(array, values, n * 4));
}

/* two processes ---------------------------------------------------------------------------------------------------- */

/*  Both ends of a channel: the test serves, the child connects; "serves" turns it round. */
static ignis_channel meet_child(void)
{
    ignis_channel_desc desc = desc_of_channel("share", IGNIS_CHANNEL_DEFAULT, 20);
    ignis_channel server = ignis_channel_serve(&desc), channel = ignis_channel_accept(server);
    CHECK_OK(ignis_channel_close(server));
    return channel;
}

static ignis_channel meet_parent(void)
{
    ignis_channel_desc desc = desc_of_channel("share", IGNIS_CHANNEL_DEFAULT, 20);
    return ignis_channel_connect(&desc);
}

static bool say(ignis_channel channel, char word) { return ignis_channel_send(channel, &word, 1, NULL, 0) == IGNIS_OK; }
static bool hear(ignis_channel channel, char word)
{
    char heard = 0;
    return ignis_channel_receive(channel, &heard, 1, NULL, NULL, 0, NULL) == IGNIS_OK && heard == word;
}

/*  Takes an array of 100 x 10 that counts from 0, adds 5 to each, frees it when told. */
static int role_user(void)
{
    ignis_desc setup = test_desc(NULL);
    ignis_channel channel;
    ignis_array array;
    int32_t values[1000];
    int i;
    if (ignis_setup(&setup) != IGNIS_OK)
        return 2;
    channel = meet_parent();
    array = ignis_share_receive(channel);
    if (!array.id || ignis_array_to_host(array, values, IGNIS_I32, 1000) != IGNIS_OK)
        return 3;
    for (i = 0; i < 1000; i++)
        if (values[i] != i)
            return 4;
        else
            values[i] += 5;
    if (ignis_array_from_host_raw(array, values, 4000) != IGNIS_OK || ignis_synchronize() != IGNIS_OK)
        return 5;
    if (!say(channel, 'w') || !hear(channel, 'f'))
        return 5;
    if (ignis_array_free(array) != IGNIS_OK || !say(channel, 'd') || !hear(channel, 'e'))
        return 6;
    return ignis_shutdown() == IGNIS_OK ? 0 : 7;
}

TEST(two_processes_use_one_array)
{
    process child = process_start("user");
    ignis_array array;
    ignis_array_info info;
    ignis_channel channel;
    char pid[32];
    SHARE_SETUP();
    array = make_shared(IGNIS_SHAPE(100, 10), "both");
    write_counting(array, 0);
    channel = meet_child();
    CHECK_OK(ignis_share_send(channel, array));
    info = info_of(array);
    CHECK_INT(info.ref_count, 1);
    CHECK(hear(channel, 'w'));
    CHECK_COUNTING(array, 1000, 5);
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
    snprintf(pid, sizeof pid, "process %d", (int)child.pid);
    CHECK_MESSAGE_HAS(pid);
    CHECK_STATUS(ignis_contract_acquire(array, IGNIS_OWNER_NVCCL), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
    CHECK(say(channel, 'f') && hear(channel, 'd'));
    CHECK_OK(ignis_contract_acquire(array, IGNIS_OWNER_NVCCL)); /* asked again, and found to be free */
    CHECK_INT(info_of(array).ref_count, 0);
    CHECK_OK(ignis_contract_release(array, IGNIS_OWNER_NVCCL));
    CHECK_OK(ignis_array_free(array));
    CHECK(say(channel, 'e'));
    CHECK_INT(process_end(&child), 0);
    CHECK_OK(ignis_channel_close(channel));
}

/*  Takes an array, and waits for its end. */
static int role_waiter(void)
{
    ignis_desc setup = test_desc(NULL);
    ignis_channel channel;
    if (ignis_setup(&setup) != IGNIS_OK)
        return 2;
    channel = meet_parent();
    if (!ignis_share_receive(channel).id || !say(channel, 'h'))
        return 3;
    for (;;)
        pause();
}

TEST(a_dead_user_holds_nothing)
{
    process child = process_start("waiter");
    ignis_contract_entry entry;
    ignis_channel channel;
    ignis_array array;
    SHARE_SETUP();
    array = make_shared(IGNIS_SHAPE(8), "");
    write_counting(array, 0);
    CHECK_OK(ignis_contract_track(array));
    channel = meet_child();
    CHECK_OK(ignis_share_send(channel, array));
    CHECK(hear(channel, 'h'));
    CHECK_OK(ignis_channel_close(channel)); /* which is not what counts */
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
    CHECK_INT(ignis_contract_audit(&entry, 1, -1), 1);
    CHECK_INT(entry.exports, 1);
    process_kill(&child);
    CHECK_INT(ignis_contract_audit(&entry, 1, -1), 1);
    CHECK_INT(entry.exports, 0);
    CHECK_OK(ignis_contract_untrack(array));
    CHECK_OK(ignis_array_free(array));
}

/*  Makes an array, shares it, and dies. */
static int role_giver(void)
{
    ignis_desc setup = test_desc(NULL);
    ignis_channel channel;
    ignis_array array;
    if (ignis_setup(&setup) != IGNIS_OK)
        return 2;
    array = make_shared(IGNIS_SHAPE(1000), "left behind");
    write_counting(array, 7);
    channel = meet_parent();
    if (ignis_share_send(channel, array) != IGNIS_OK || !hear(channel, 'h'))
        return 3;
    kill(getpid(), SIGKILL);
    return 4;
}

TEST(memory_outlives_who_made_it)
{
    process child = process_start("giver");
    ignis_channel channel;
    ignis_array array;
    SHARE_SETUP();
    channel = meet_child();
    array = ignis_share_receive(channel);
    CHECK_TEXT(info_of(array).tag, "left behind");
    CHECK(say(channel, 'h'));
    CHECK_INT(process_end(&child), -1);
    CHECK_COUNTING(array, 1000, 7);
    write_counting(array, 8);
    CHECK_COUNTING(array, 1000, 8);
    CHECK_OK(ignis_array_free(array));
    CHECK_FAILS(ignis_share_receive(channel), IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
    CHECK_OK(ignis_channel_close(channel));
}

/*  Shares an array, says so, and has gone before anybody looks. */
static int role_leaver(void)
{
    ignis_desc setup = test_desc(NULL);
    ignis_channel channel;
    ignis_array array;
    if (ignis_setup(&setup) != IGNIS_OK)
        return 2;
    array = make_shared(IGNIS_SHAPE(1000), "from afar");
    write_counting(array, 9);
    channel = meet_parent();
    if (ignis_share_send(channel, array) != IGNIS_OK || !say(channel, 'b') || ignis_channel_close(channel) != IGNIS_OK)
        return 3;
    fflush(stdout);
    _exit(0);
}

TEST(who_has_shared_may_leave_before_it_is_taken)
{
    process child = process_start("leaver");
    ignis_channel channel;
    ignis_array array;
    SHARE_SETUP();
    channel = meet_child();
    CHECK_INT(process_end(&child), 0);
    array = ignis_share_receive(channel);
    CHECK_TEXT(info_of(array).tag, "from afar");
    CHECK(hear(channel, 'b'));
    CHECK_COUNTING(array, 1000, 9);
    CHECK_OK(ignis_array_free(array));
    CHECK_FAILS(ignis_share_receive(channel), IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
    CHECK_OK(ignis_channel_close(channel));
}

/* one process ------------------------------------------------------------------------------------------------------ */

TEST(a_view_shares_its_part)
{
    ignis_array array, view, mine;
    pair both;
    SHARE_SETUP();
    both = make_pair(IGNIS_CHANNEL_DEFAULT, 5);
    array = make_shared(IGNIS_SHAPE(20, 10), "whole");
    write_counting(array, 0);
    view = ignis_array_slice(array, 0, 5, 3);
    CHECK_OK(ignis_share_send(both.a, view));
    mine = ignis_share_receive(both.b);
    CHECK_COUNTING(mine, 30, 50);
    CHECK_INT(info_of(mine).shape.ndim, 2);
    CHECK_OK(ignis_array_fill(mine, 4));
    CHECK_OK(ignis_array_free(array)); /* the view keeps the memory */
    CHECK_STATUS(ignis_array_free(view), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
    CHECK_OK(ignis_array_free(mine));
    CHECK_OK(ignis_array_free(view));
    drop_pair(&both);
}

TEST(what_nobody_took_is_free_again)
{
    ignis_array array;
    char byte;
    pair both;
    int before;
    SHARE_SETUP();
    array = make_shared(IGNIS_SHAPE(4), "");
    before = process_descriptors();
    both = make_pair(IGNIS_CHANNEL_DEFAULT, 5);
    CHECK_OK(ignis_share_send(both.a, array));
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
    /* it is no message, and stays */
    CHECK_STATUS(ignis_channel_receive(both.b, &byte, 1, NULL, NULL, 0, NULL), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("ignis_share_receive");
    drop_pair(&both);
    CHECK_OK(ignis_contract_assert_owner(array, IGNIS_OWNER_IGNIS)); /* looks who is left */
    CHECK_INT(process_descriptors(), before);
    CHECK_OK(ignis_array_free(array));
}

TEST(messages_and_arrays_keep_their_order)
{
    ignis_array array, mine;
    pair both;
    SHARE_SETUP();
    both = make_pair(IGNIS_CHANNEL_DEFAULT, 5);
    array = make_shared(IGNIS_SHAPE(4), "");
    CHECK(say(both.a, '1'));
    CHECK_OK(ignis_share_send(both.a, array));
    CHECK(say(both.a, '2'));
    CHECK_FAILS(ignis_share_receive(both.b), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("ignis_channel_receive");
    CHECK(hear(both.b, '1'));
    mine = ignis_share_receive(both.b);
    CHECK(hear(both.b, '2'));
    CHECK_OK(ignis_array_free(mine));
    CHECK_OK(ignis_array_free(array));
    drop_pair(&both);
}

TEST(only_what_was_made_to_be_shared)
{
    ignis_vmm_array_desc closed;
    ignis_array array;
    ignis_array none = {0};
    pair both;
    SHARE_SETUP();
    both = make_pair(IGNIS_CHANNEL_DEFAULT, 5);
    array = test_array(2, 3);
    CHECK_STATUS(ignis_share_send(both.a, array), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    CHECK_MESSAGE_HAS("ignis_vmm_array");
    CHECK_OK(ignis_array_free(array));
    memset(&closed, 0, sizeof closed);
    closed.shape = IGNIS_SHAPE(3);
    closed.handle_type = IGNIS_VMM_HANDLE_NONE;
    array = ignis_vmm_array(&closed);
    CHECK_STATUS(ignis_share_send(both.a, array), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    CHECK_OK(ignis_array_free(array));
    CHECK_STATUS(ignis_share_send(both.a, none), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    array = make_shared(IGNIS_SHAPE(4), "");
    CHECK_OK(ignis_channel_close(both.b));
    CHECK_STATUS(ignis_share_send(both.a, array), IGNIS_ERROR_PEER, IGNIS_DIAG_CHANNEL_LOST);
    CHECK_OK(ignis_channel_close(both.a));
    CHECK_OK(ignis_channel_close(both.server));
    CHECK_STATUS(ignis_share_send(both.a, array), IGNIS_ERROR_FREED, IGNIS_DIAG_CHANNEL_FREED);
#ifndef _WIN32 /* where pipes carry descriptors */
    both = make_pair(IGNIS_CHANNEL_PIPE, 5);
    CHECK_STATUS(ignis_share_send(both.a, array), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CHANNEL_DESCRIPTOR);
    CHECK_FAILS(ignis_share_receive(both.b), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CHANNEL_DESCRIPTOR);
    drop_pair(&both);
#endif
    CHECK_OK(ignis_array_free(array)); /* nothing of all that held it */
}

/*  Sends a message by the connection, with its seal, and with two descriptors of which the first may be anything. */
static void send_message(ignis_channel channel, const ignis__record_of_array *message, size_t size, int memory,
                         int count)
{
    ignis__channel *item = (ignis__channel *)ignis__pool_hold(&ignis__channels, channel.id);
    ignis__deadline until = {0, NULL};
    ignis__peer_error error;
    int fds[3], ends[2];
    until.deadline_ns = ignis__monotonic_ns() + 1000000000;
    CHECK(pipe(ends) == 0);
    fds[0] = memory;
    fds[1] = ends[1];
    fds[2] = ends[0];
    CHECK(ignis__connection_send(&error, item->connection, IGNIS__MESSAGE_ARRAY, message, size, fds, count, &until));
    close(ends[0]);
    close(ends[1]);
    ignis__channel_drop(item);
}

static ignis__record_of_array sealed(const ignis__record_of_array *record, const char *tag)
{
    static const unsigned char nobody[IGNIS__SECRET];
    ignis__record_of_array message = *record;
    memset(message.tag, 0, sizeof message.tag);
    snprintf(message.tag, sizeof message.tag, "%s", tag);
    ignis__record_seal(nobody, &message, message.seal);
    return message;
}

/*  A record that another process might have sent, of an array of this one, and a descriptor of its memory. */
static ignis__record_of_array foreign_record(ignis_array array, int *fd)
{
    ignis_transport_handle handle;
    ignis__record_of_array record;
    ignis_transport_desc desc;
    ignis_transport transport;
    memset(&desc, 0, sizeof desc);
    desc.kind = IGNIS_TRANSPORT_VMM;
    transport = ignis_transport_create(&desc);
    CHECK_OK(ignis_transport_initialize(transport));
    CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
    memcpy(&record, handle.record, sizeof record);
    record.process[0] ^= 1;
    *fd = dup(ignis__vmm_handle_fd(&handle.memory));
    CHECK_OK(ignis_transport_handle_close(&handle));
    CHECK_OK(ignis_transport_destroy(transport));
    return record;
}

TEST(records_that_lie_are_refused)
{
    enum { LIES = 17 };
    ignis__record_of_array good;
    ignis__record_of_array message;
    ignis_array array, mine;
    pair both;
    int lie, before, memory, ends[2];
    SHARE_SETUP();
    both = make_pair(IGNIS_CHANNEL_DEFAULT, 5);
    array = make_shared(IGNIS_SHAPE(6, 2), "good");
    write_counting(array, 3);
    good = foreign_record(array, &memory);
    before = process_descriptors();
    for (lie = 0; lie < LIES; lie++) {
        ignis__record_of_array record = good;
        size_t size = sizeof message;
        int count = 2;
        switch (lie) {
        case 0: record.dtype = 0; break;
        case 1: record.dtype = IGNIS_DTYPE_COUNT; break;
        case 2: record.ndim = 0; break;
        case 3: record.ndim = IGNIS_MAX_DIMS + 1; break;
        case 4: record.dim[0] = -6; break;
        case 5: record.dim[0] = record.dim[1] = (int64_t)1 << 32; break; /* a product that is 0 in 64 bits */
        case 6: record.dim[0] = record.block_size / 8 + 1; break;        /* a row more than there is */
        case 7: record.offset = record.block_size - 44; break;
        case 8: record.offset = -8; break;
        case 9: record.block_size = INT64_MAX, record.offset = INT64_MAX - 3; break;
        case 10: record.block_size = 0; break;
        case 11: record.name = 7; break;
        case 12: record.version = 1; break;
        case 13: record.magic[0] = 'X'; break;
        case 14: size--; break;
        case 15: count = 3; break;
        default: break;
        }
        message = sealed(&record, "lie");
        if (lie == 16) {
            static const unsigned char nobody[IGNIS__SECRET];
            memset(message.tag, 'x', sizeof message.tag);
            ignis__record_seal(nobody, &message, message.seal);
        }
        send_message(both.a, &message, size, memory, count);
        if (lie < 11 || lie == 16)
            CHECK_FAILS(ignis_share_receive(both.b), IGNIS_ERROR_MISMATCH, IGNIS_DIAG_TRANSPORT_MISMATCH);
        else
            CHECK_FAILS(ignis_share_receive(both.b), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TRANSPORT_RECORD);
        CHECK_INT(process_descriptors(), before);
    }
    message = sealed(&good, "changed");
    message.dim[1] ^= 1;
    send_message(both.a, &message, sizeof message, memory, 2);
    CHECK_FAILS(ignis_share_receive(both.b), IGNIS_ERROR_FORMAT, IGNIS_DIAG_TRANSPORT_RECORD);
    good.pid++;
    message = sealed(&good, "another's");
    send_message(both.a, &message, sizeof message, memory, 2);
    CHECK_FAILS(ignis_share_receive(both.b), IGNIS_ERROR_PEER, IGNIS_DIAG_TRANSPORT_PEER); /* the socket knows better */
    good.pid--;
    good.uuid[0] ^= 1;
    message = sealed(&good, "elsewhere");
    send_message(both.a, &message, sizeof message, memory, 2);
    CHECK_FAILS(ignis_share_receive(both.b), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_TRANSPORT_UNAVAILABLE);
    good.uuid[0] ^= 1;
    CHECK(pipe(ends) == 0); /* descriptors, but not of memory */
    message = sealed(&good, "file");
    send_message(both.a, &message, sizeof message, ends[1], 2);
    CHECK_INT(ignis_share_receive(both.b).id, 0);
    CHECK(ignis_status_last() != IGNIS_OK);
    ignis_status_clear();
    close(ends[0]);
    close(ends[1]);
    good.block_size *= 2; /* more than the memory has */
    message = sealed(&good, "long");
    send_message(both.a, &message, sizeof message, memory, 2);
    CHECK_INT(ignis_share_receive(both.b).id, 0);
    CHECK(ignis_status_last() != IGNIS_OK);
    ignis_status_clear();
    good.block_size /= 2;
    CHECK_INT(process_descriptors(), before);
    message = sealed(&good, "true"); /* and after all that, the truth */
    send_message(both.a, &message, sizeof message, memory, 2);
    mine = ignis_share_receive(both.b);
    CHECK_COUNTING(mine, 12, 3);
    CHECK_TEXT(info_of(mine).tag, "true");
    CHECK_OK(ignis_array_free(mine));
    CHECK_INT(process_descriptors(), before);
    close(memory);
    CHECK_OK(ignis_array_free(array));
    drop_pair(&both);
}

/*  T13: each driver call of sharing fails once. */
TEST(a_share_that_fails_anywhere)
{
    ignis_array array;
    pair both;
    int before, at;
    SHARE_SETUP();
    both = make_pair(IGNIS_CHANNEL_DEFAULT, 5);
    array = make_shared(IGNIS_SHAPE(16), "");
    write_counting(array, 3);
    CHECK_OK(ignis_share_send(both.a, array)); /* once, so that everything is in place */
    CHECK_OK(ignis_array_free(ignis_share_receive(both.b)));
    CHECK_OK(ignis_contract_assert_owner(array, IGNIS_OWNER_IGNIS));
    before = process_descriptors();
    for (at = 1; at < 100; at++) {
        ignis_array mine = {0};
        bool sent;
        const char *failed;
        fault_arm("cu", at, 1);
        sent = ignis_share_send(both.a, array) == IGNIS_OK;
        if (sent)
            mine = ignis_share_receive(both.b);
        failed = fault.failed;
        fault_disarm();
        CHECK((mine.id != 0) == (ignis_status_last() == IGNIS_OK));
        ignis_status_clear();
        if (mine.id) {
            CHECK_COUNTING(mine, 16, 3);
            CHECK_OK(ignis_array_free(mine));
        }
        CHECK_OK(ignis_contract_assert_owner(array, IGNIS_OWNER_IGNIS)); /* looks who is left */
        CHECK_INT(info_of(array).ref_count, 0);
        if (!failed)
            break;
    }
    CHECK(at < 100);
    CHECK(process_descriptors() <= before + 1); /* the driver's own, where releasing was made to fail */
    CHECK_OK(ignis_array_free(array));
    drop_pair(&both);
}

TEST(many_shares_leave_nothing)
{
    ignis_array array;
    pair both;
    int before, i;
    SHARE_SETUP();
    both = make_pair(IGNIS_CHANNEL_DEFAULT, 5);
    array = make_shared(IGNIS_SHAPE(16), "");
    before = process_descriptors();
    for (i = 0; i < (test_env("IGNIS_SOAK") ? 10000 : 500); i++) {
        ignis_array mine;
        CHECK_OK(ignis_share_send(both.a, array));
        mine = ignis_share_receive(both.b);
        CHECK_OK(ignis_array_free(mine));
        if (i % 100 == 99)
            CHECK_OK(ignis_contract_assert_owner(array, IGNIS_OWNER_IGNIS)); /* looks */
    }
    CHECK_INT(info_of(array).ref_count, 0);
    CHECK_INT(process_descriptors(), before);
    CHECK_OK(ignis_share_send(both.a, array)); /* left to shutdown */
    test_leaks_expected = true;
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    char token[300];
    int code;
    if (role) {
        code = strcmp(role, "user") == 0     ? role_user()
               : strcmp(role, "waiter") == 0 ? role_waiter()
               : strcmp(role, "leaver") == 0 ? role_leaver()
                                             : role_giver();
        if (code)
            printf("%s ends with %d: %s\n", role, code, ignis_status_message());
        return code;
    }
    snprintf(folder, sizeof folder, "/tmp/ignis_test_share_XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    setenv("IGNIS_COMM_DIR", folder, 1);
    code = test_run(argc, argv);
    snprintf(token, sizeof token, "%s/transport.token", folder);
    remove(token);
    rmdir(folder);
    return code;
}
