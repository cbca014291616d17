// SPDX-License-Identifier: MIT
/*  test_transport_processes.c - transports between processes: the contract, deaths, handles through channels */
#include "fault.h"

#include "transports.h"

#include <dirent.h>

/* two processes -------------------------------------------------------------------------------------------------------
   */

typedef struct order {
    ignis_transport_kind kind;
    int dst;
    int cycles;
} order;

static bool send_handle(int socket, const ignis_transport_handle *handle)
{
    int fds[2], count = ignis_transport_handle_fds(handle, fds);
    return process_send(socket, handle->record, sizeof handle->record, count > 0 ? fds[0] : -1) &&
           process_send(socket, "", 1, count > 1 ? fds[1] : -1);
}

static bool receive_handle(int socket, ignis_transport_handle *handle)
{
    unsigned char record[IGNIS_TRANSPORT_RECORD_BYTES];
    int fds[2], count;
    char byte;
    if (!process_receive(socket, record, sizeof record, &fds[0]) || !process_receive(socket, &byte, 1, &fds[1]))
        return false;
    count = (fds[0] >= 0) + (fds[1] >= 0);
    return ignis_transport_handle_from_fds(handle, record, fds, count) == IGNIS_OK;
}

/*  Sends handles of one array, of which the first ones make it larger than it is. */
static int liar(void)
{
    ignis_desc desc = test_desc(NULL);
    ignis_transport_handle handle, lie;
    ignis__record_of_array record;
    ignis_transport transport;
    order todo;
    int i;
    if (ignis_setup(&desc) != IGNIS_OK || !process_receive(PROCESS_SOCKET, &todo, sizeof todo, NULL))
        return 2;
    transport = make_transport(todo.kind, 0, 0);
    if (ignis_transport_export_handle(transport, make_shared(todo.kind, 0, 1000, 100), &handle) != IGNIS_OK)
        return 3;
    for (i = 0; i < 3; i++) {
        lie = handle;
        memcpy(&record, handle.record, sizeof record);
        record.block_size += i < 2 ? (int64_t)2 << (i ? 30 : 20) : 0;
        reseal(token, &record);
        memcpy(lie.record, &record, sizeof record);
        if (!send_handle(PROCESS_SOCKET, &lie))
            return 4;
    }
    return process_meet(PROCESS_SOCKET) ? 0 : 5;
}

static void check_liar(ignis_transport_kind kind)
{
    process child = process_start("liar");
    ignis_transport transport;
    ignis_transport_handle handle;
    ignis_array seen;
    order todo;
    int i;
    SETUP(NULL);
    if (!available(kind, 0, 0)) {
        process_kill(&child);
        SKIP("the transport is not available");
    }
    memset(&todo, 0, sizeof todo);
    todo.kind = kind;
    CHECK(process_send(child.socket, &todo, sizeof todo, -1));
    transport = make_transport(kind, 0, 0);
    for (i = 0; i < 3; i++) {
        REQUIRE(receive_handle(child.socket, &handle));
        seen = ignis_transport_import_handle(transport, &handle);
        CHECK_INT(seen.id != 0, i == 2);
        if (i < 2 && kind != IGNIS_TRANSPORT_VMM) /* where the map itself fails */
            CHECK_INT(ignis_status_last(), IGNIS_ERROR_MISMATCH);
        ignis_status_clear();
        CHECK_OK(ignis_transport_handle_close(&handle));
    }
    CHECK_COUNTING(seen, 1000, 100);
    drop(seen);
    CHECK(process_meet(child.socket));
    process_end(&child);
    CHECK_OK(ignis_transport_destroy(transport));
}

TEST(a_vmm_size_is_the_memorys) { check_liar(IGNIS_TRANSPORT_VMM); }
TEST(an_ipc_size_is_the_memorys) { check_liar(IGNIS_TRANSPORT_IPC); }
TEST(a_host_size_is_the_memorys) { check_liar(IGNIS_TRANSPORT_HOST); }

/*  Imports what it is sent, twice; checks it; writes it; then closes it when it is told to. */
static int importer(void)
{
    ignis_desc desc = test_desc(NULL);
    ignis_transport transport;
    ignis_transport_handle handle;
    ignis_array seen, again, clone;
    order todo;
    int fds = 0, i;
    if (ignis_setup(&desc) != IGNIS_OK || !process_receive(PROCESS_SOCKET, &todo, sizeof todo, NULL))
        return 2;
    transport = make_transport(todo.kind, 0, todo.dst);
    for (i = 0; i < todo.cycles; i++) {
        if (!receive_handle(PROCESS_SOCKET, &handle))
            return 3;
        seen = ignis_transport_import_handle(transport, &handle);
        again = ignis_transport_import_handle(transport, &handle);
        if (!seen.id || !again.id) {
            printf("%s\n", ignis_status_message());
            return 4;
        }
        if (todo.kind != IGNIS_TRANSPORT_HOST) {
            CHECK(info_of(seen).ptr == info_of(again).ptr);
            CHECK_INT(query(transport).mappings, 1);
        }
        ignis_transport_handle_close(&handle);
        if (i % 100 == 0) {
            clone = ignis_array_clone(seen);
            CHECK_COUNTING(clone, 4000, 100 + i);
            drop(clone);
            CHECK_OK(ignis_array_fill(again, 7.0));
            CHECK_OK(ignis_synchronize());
        }
        CHECK_OK(ignis_transport_close_imported_handle(transport, seen));
        if (!process_meet(PROCESS_SOCKET)) /* written; one import is left */
            return 5;
        if (!process_meet(PROCESS_SOCKET)) /* the exporter has tried to free */
            return 6;
        CHECK_OK(ignis_array_free(again));
        if (!process_meet(PROCESS_SOCKET))
            return 7;
        if (i == 20)
            fds = process_descriptors();
    }
    if (todo.cycles > 21)
        CHECK_INT(process_descriptors(), fds);
    CHECK_OK(ignis_transport_destroy(transport));
    CHECK_OK(ignis_shutdown());
    return test__state.failures ? 1 : 0;
}

static void check_two_processes(process *child, ignis_transport_kind kind, int dst, int cycles)
{
    ignis_transport transport = make_transport(kind, 0, dst);
    bool shares = kind != IGNIS_TRANSPORT_HOST;
    order todo;
    int i, fds = 0;
    int32_t value = 0;
    size_t room[2] = {0, 0}, total;
    memset(&todo, 0, sizeof todo);
    todo.kind = kind;
    todo.dst = dst;
    todo.cycles = cycles;
    CHECK(process_send(child->socket, &todo, sizeof todo, -1));
    for (i = 0; i < cycles && !test__state.failures; i++) {
        ignis_transport_handle handle;
        ignis_array array = make_shared(kind, 0, 4000, 100 + i), first;
        CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
        CHECK(send_handle(child->socket, &handle));
        CHECK_OK(ignis_transport_handle_close(&handle));
        CHECK(process_meet(child->socket));
        if (i % 100 == 0) {
            first = ignis_array_slice(array, 0, 0, 1);
            CHECK_OK(ignis_array_to_host(first, &value, IGNIS_I32, 1));
            CHECK_INT(value, shares ? 7 : 100 + i); /* the importer has written into it, or into a copy */
            drop(first);
        }
        if (shares) { /* T2 */
            CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
            CHECK_INT(query(transport).exported, 1);
        }
        CHECK(process_meet(child->socket));
        CHECK(process_meet(child->socket)); /* the importer has closed it */
        drop(array);
        if (i == 20) {
            fds = process_descriptors();
            CHECK_INT(ignis__cuda.cuMemGetInfo_v2(&room[0], &total), 0);
        }
    }
    if (cycles > 21) {
        CHECK_INT(process_descriptors(), fds);
        CHECK_INT(ignis__cuda.cuMemGetInfo_v2(&room[1], &total), 0);
        if (test_is_simulator()) /* elsewhere others take and give memory, too */
            CHECK_INT(room[1], room[0]);
    }
    CHECK_INT(process_end(child), 0);
    CHECK_OK(ignis_transport_destroy(transport));
}

static void between_processes(ignis_transport_kind kind, int dst, int cycles)
{
    process child = process_start("importer");
    SETUP(NULL);
    if (!available(kind, 0, dst)) {
        process_kill(&child);
        SKIP("the transport is not available between these devices");
    }
    check_two_processes(&child, kind, dst, cycles);
}

TEST(vmm_between_processes) { between_processes(IGNIS_TRANSPORT_VMM, 0, 1); }
TEST(vmm_between_processes_and_devices) { between_processes(IGNIS_TRANSPORT_VMM, 1, 1); }
TEST(ipc_between_processes) { between_processes(IGNIS_TRANSPORT_IPC, 0, 1); }
TEST(ipc_between_processes_and_devices) { between_processes(IGNIS_TRANSPORT_IPC, 1, 1); }
TEST(host_between_processes) { between_processes(IGNIS_TRANSPORT_HOST, 0, 1); }
TEST(host_between_processes_and_devices) { between_processes(IGNIS_TRANSPORT_HOST, 1, 1); }

/*  10 000 with IGNIS_SOAK=1 */
static int cycles(void) { return test_env("IGNIS_SOAK") ? 10000 : 200; }
TEST(vmm_cycles_leave_nothing) { between_processes(IGNIS_TRANSPORT_VMM, 0, cycles()); }
TEST(ipc_cycles_leave_nothing) { between_processes(IGNIS_TRANSPORT_IPC, 0, cycles()); }
TEST(host_cycles_leave_nothing) { between_processes(IGNIS_TRANSPORT_HOST, 0, cycles()); }

TEST(a_dead_importer_holds_nothing)
{
    process child = process_start("importer");
    ignis_transport transport;
    ignis_transport_handle handle;
    ignis_array array;
    order todo;
    int i;
    SETUP(NULL);
    memset(&todo, 0, sizeof todo);
    todo.kind = available(IGNIS_TRANSPORT_VMM, 0, 0) ? IGNIS_TRANSPORT_VMM : IGNIS_TRANSPORT_IPC;
    todo.cycles = 1;
    transport = make_transport(todo.kind, 0, 0);
    array = make_shared(todo.kind, 0, 4000, 100);
    CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
    CHECK(process_send(child.socket, &todo, sizeof todo, -1));
    CHECK(send_handle(child.socket, &handle));
    CHECK_OK(ignis_transport_handle_close(&handle));
    CHECK(process_meet(child.socket));
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
    process_kill(&child);
    for (i = 0; i < 100 && query(transport).exported; i++)
        ignis__sleep_us(10000);
    drop(array);
    CHECK_OK(ignis_transport_destroy(transport));
}

/*  Exports, and dies once the importer has its handle. */
static int exporter(void)
{
    ignis_desc desc = test_desc(NULL);
    ignis_transport transport;
    ignis_transport_handle handle;
    if (ignis_setup(&desc) != IGNIS_OK)
        return 2;
    transport = make_transport(IGNIS_TRANSPORT_VMM, 0, 0);
    if (ignis_transport_export_handle(transport, make_shared(IGNIS_TRANSPORT_VMM, 0, 4000, 100), &handle) != IGNIS_OK ||
        !send_handle(PROCESS_SOCKET, &handle))
        return 3;
    for (;;)
        pause();
}

TEST(the_importer_survives_the_exporter)
{
    process child = process_start("exporter");
    ignis_transport transport;
    ignis_transport_handle handle;
    ignis_array seen;
    SETUP(NULL);
    if (!available(IGNIS_TRANSPORT_VMM, 0, 0)) {
        process_kill(&child);
        SKIP("device 0 makes no memory that can be shared");
    }
    transport = make_transport(IGNIS_TRANSPORT_VMM, 0, 0);
    CHECK(receive_handle(child.socket, &handle));
    seen = ignis_transport_import_handle(transport, &handle);
    CHECK_OK(ignis_transport_handle_close(&handle));
    process_kill(&child);
    CHECK_COUNTING(seen, 4000, 100); /* T9 */
    CHECK_OK(ignis_array_fill(seen, 1.0));
    CHECK_OK(ignis_synchronize());
    drop(seen);
    CHECK_OK(ignis_transport_destroy(transport));
}

/*  T9: it dies while a kernel here reads its memory over and over. */
static const char long_source[] =
    "extern \"C\" __global__ void watch(const volatile int *x, int *out, int first, int n, int ms)\n"
    "{\n"
    "    unsigned long long begin, now;\n"
    "    int wrong = 0, rounds = 0;\n"
    "    asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(begin));\n"
    "    do {\n"
    "        for (int i = 0; i < n; i++)\n"
    "            wrong += x[i] != first + i;\n"
    "        rounds++;\n"
    "        asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(now));\n"
    "    } while (now - begin < ms * 1000000ull);\n"
    "    out[0] = wrong;\n"
    "    out[1] = rounds;\n"
    "}\n";

static void *kill_soon(void *context)
{
    ignis__sleep_us(100000);
    process_kill((process *)context);
    return NULL;
}

TEST(a_long_kernel_survives_the_exporter)
{
    process child = process_start("exporter");
    ignis_transport transport;
    ignis_transport_handle handle;
    ignis_kernel kernel;
    ignis_launch launch = test_launch(1, 1);
    ignis_arg args[5];
    ignis_array seen, out;
    pthread_t killer;
    int32_t result[2] = {-1, 0};
    SETUP(NULL);
    if (!available(IGNIS_TRANSPORT_VMM, 0, 0)) {
        process_kill(&child);
        SKIP("device 0 makes no memory that can be shared");
    }
    kernel = test_compile(long_source, "watch", NULL);
    transport = make_transport(IGNIS_TRANSPORT_VMM, 0, 0);
    CHECK(receive_handle(child.socket, &handle));
    seen = ignis_transport_import_handle(transport, &handle);
    CHECK_OK(ignis_transport_handle_close(&handle));
    REQUIRE(kernel.id && seen.id);
    out = make(IGNIS_SHAPE(2), IGNIS_I32);
    args[0] = ignis_arg_array(seen);
    args[1] = ignis_arg_array(out);
    args[2] = ignis_arg_i32(100);
    args[3] = ignis_arg_i32(4000);
    args[4] = ignis_arg_i32(500);
    CHECK_INT(pthread_create(&killer, NULL, kill_soon, &child), 0);
    CHECK_OK(ignis_kernel_launch(kernel, &launch, args, 5));
    CHECK_OK(ignis_synchronize());
    pthread_join(killer, NULL);
    CHECK_OK(ignis_array_to_host(out, result, IGNIS_I32, 2));
    CHECK_INT(result[0], 0);
    CHECK(result[1] > 1);
    CHECK_COUNTING(seen, 4000, 100);
    drop(seen);
    drop(out);
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_OK(ignis_transport_destroy(transport));
}

/*  T16: while an import is held, its exporter lets the memory go, and shares other memory at the same address. */
static int renewer(void)
{
    ignis_desc desc = test_desc(NULL);
    uintptr_t address[2] = {0, 0};
    order todo;
    int i;
    if (ignis_setup(&desc) != IGNIS_OK || !process_receive(PROCESS_SOCKET, &todo, sizeof todo, NULL))
        return 2;
    for (i = 0; i < 2; i++) {
        ignis_transport transport = make_transport(todo.kind, 0, 0);
        ignis_array array = make_shared(todo.kind, 0, 4000, 100 * (i + 1));
        ignis_transport_handle handle;
        address[i] = (uintptr_t)info_of(array).ptr;
        if (ignis_transport_export_handle(transport, array, &handle) != IGNIS_OK ||
            !send_handle(PROCESS_SOCKET, &handle) ||
            !process_send(PROCESS_SOCKET, &address[i], sizeof address[i], -1) || !process_meet(PROCESS_SOCKET))
            return 3;
        CHECK_OK(ignis_transport_handle_close(&handle));
        CHECK_OK(ignis_transport_destroy(transport)); /* which ends its exports */
        drop(array);
    }
    CHECK_OK(ignis_shutdown());
    return test__state.failures ? 1 : 0;
}

TEST(an_address_that_is_used_again_is_other_memory)
{
    process child = process_start("renewer");
    ignis_transport transport;
    ignis_array seen[2];
    uintptr_t address[2];
    order todo;
    int i;
    SETUP(NULL);
    if (!available(IGNIS_TRANSPORT_VMM, 0, 0)) {
        process_kill(&child);
        SKIP("device 0 makes no memory that can be shared");
    }
    memset(&todo, 0, sizeof todo);
    todo.kind = IGNIS_TRANSPORT_VMM;
    CHECK(process_send(child.socket, &todo, sizeof todo, -1));
    transport = make_transport(IGNIS_TRANSPORT_VMM, 0, 0);
    for (i = 0; i < 2; i++) {
        ignis_transport_handle handle;
        CHECK(receive_handle(child.socket, &handle));
        CHECK(process_receive(child.socket, &address[i], sizeof address[i], NULL));
        seen[i] = ignis_transport_import_handle(transport, &handle);
        CHECK_OK(ignis_transport_handle_close(&handle));
        CHECK_COUNTING(seen[i], 4000, 100 * (i + 1));
        CHECK(process_meet(child.socket));
    }
    CHECK_INT(process_end(&child), 0);
    CHECK(info_of(seen[0]).ptr != info_of(seen[1]).ptr);
    CHECK_COUNTING(seen[0], 4000, 100);
    drop(seen[0]);
    drop(seen[1]);
    CHECK_OK(ignis_transport_destroy(transport));
    if (address[0] != address[1])
        SKIP("the exporter's second array has come to lie elsewhere");
}

/*  Through a channel: sends are received in order, copied or as handles. */
static ignis_transport channel_transport(ignis_transport_kind kind, ignis_channel channel)
{
    ignis_transport_desc desc;
    ignis_transport transport;
    memset(&desc, 0, sizeof desc);
    desc.kind = kind;
    desc.channel = channel;
    desc.token = token;
    transport = ignis_transport_create(&desc);
    CHECK_OK(ignis_transport_initialize(transport));
    return transport;
}

/*  The folder and the method are the environment's, also for the child. */
static ignis_channel_desc channel_desc(void)
{
    const char *method = getenv("TEST_TRANSPORT_METHOD");
    ignis_channel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.name = "test-transport";
    desc.token = token;
    desc.timeout_s = 20;
    desc.directory = getenv("TEST_TRANSPORT_DIR");
    desc.method = (ignis_channel_method)(method ? atoi(method) : 0);
    return desc;
}

/*  What travels without a copy: descriptors need a socket. */
static ignis_transport_kind kind_through(ignis_channel_method method)
{
    return method == METHOD_OF_DESCRIPTORS ? IGNIS_TRANSPORT_VMM : IGNIS_TRANSPORT_IPC;
}

static int channel_receiver(void)
{
    ignis_desc desc = test_desc(NULL);
    ignis_channel_desc channel = channel_desc();
    ignis_transport_kind kind = kind_through(channel.method);
    ignis_channel connected;
    ignis_transport shared, host;
    ignis_transport_handle handle;
    ignis_array seen, again, into;
    char byte;
    if (ignis_setup(&desc) != IGNIS_OK)
        return 2;
    connected = ignis_channel_connect(&channel);
    host = channel_transport(IGNIS_TRANSPORT_HOST, connected);
    into = make(IGNIS_SHAPE(100), IGNIS_I32);
    CHECK_OK(ignis_transport_recv(host, into));
    CHECK_COUNTING(into, 100, 1);
    CHECK_OK(ignis_transport_recv(host, into));
    CHECK_COUNTING(into, 100, 2);
    CHECK_OK(ignis_transport_receive_handle(host, &handle));
    seen = ignis_transport_import_handle(host, &handle);
    CHECK_OK(ignis_transport_handle_close(&handle));
    CHECK_INT(ignis_array_numel(seen), 3000000); /* more than goes through host memory at once */
    CHECK_COUNTING(ignis_array_slice(seen, 0, 2999900, 100), 100, 2999904);
    if (available(kind, 0, 0)) {
        shared = channel_transport(kind, connected);
        CHECK_OK(ignis_transport_receive_handle(shared, &handle));
        seen = ignis_transport_recv_with_handle(shared, &handle);
        again = ignis_transport_recv_with_handle(shared, &handle);
        CHECK_OK(ignis_transport_handle_close(&handle));
        CHECK(info_of(seen).ptr == info_of(again).ptr);
        drop(again);
        CHECK_COUNTING(seen, 100, 3);
        CHECK_OK(ignis_channel_send(connected, "x", 1, NULL, 0));
        CHECK_OK(ignis_channel_receive(connected, &byte, 1, NULL, NULL, 0, NULL));
        drop(seen);
        CHECK_OK(ignis_transport_destroy(shared));
    }
    drop(into);
    CHECK_OK(ignis_channel_send(connected, "x", 1, NULL, 0));
    CHECK_OK(ignis_transport_destroy(host));
    CHECK_OK(ignis_shutdown());
    return test__state.failures ? 1 : 0;
}

/*  How many handles wait in a folder under names. */
static int names_in(const char *folder)
{
    DIR *names = opendir(folder);
    struct dirent *name;
    int count = 0;
    while (names && (name = readdir(names)) != NULL)
        count += strncmp(name->d_name, "handle-", 7) == 0;
    if (names)
        closedir(names);
    return count;
}

typedef struct meeting {
    char folder[32];
    process child;
    ignis_channel server, channel;
} meeting;

/*  Starts a role at the other end of a channel, before the setup. */
static void meet(meeting *m, const char *role, ignis_channel_method method)
{
    ignis_channel_desc desc;
    char text[16];
    memset(m, 0, sizeof *m);
    snprintf(m->folder, sizeof m->folder, "/tmp/ignis-test-XXXXXX");
    snprintf(text, sizeof text, "%d", (int)method);
    REQUIRE(mkdtemp(m->folder) != NULL);
    setenv("TEST_TRANSPORT_DIR", m->folder, 1);
    setenv("TEST_TRANSPORT_METHOD", text, 1);
    m->child = process_start(role);
    SETUP(NULL);
    desc = channel_desc();
    m->server = ignis_channel_serve(&desc);
    m->channel = ignis_channel_accept(m->server);
    CHECK(m->channel.id);
}

static void part(meeting *m)
{
    CHECK_OK(ignis_channel_close(m->channel));
    CHECK_OK(ignis_channel_close(m->server));
    CHECK_OK(ignis_shutdown());
    CHECK_INT(names_in(m->folder), 0);
    unsetenv("TEST_TRANSPORT_DIR");
    unsetenv("TEST_TRANSPORT_METHOD");
    test_remove_folder(m->folder);
}

static void through_a_channel(ignis_channel_method method)
{
    static const char *const words[] = {"", "socket", "named_pipe", "shared_memory"};
    ignis_transport_kind kind = kind_through(method);
    ignis_transport shared, host, vmm;
    ignis_array array;
    char text[64], byte;
    meeting m;
    meet(&m, "channel", method);
    REQUIRE(m.channel.id);
    host = channel_transport(IGNIS_TRANSPORT_HOST, m.channel);
    CHECK(ignis_transport_to_string(host, text, sizeof text) > 0);
    CHECK_HAS(text, words[method]);
    array = make_shared(IGNIS_TRANSPORT_HOST, 0, 100, 1);
    CHECK_OK(ignis_transport_send(host, array, NULL));
    drop(array); /* what was sent is a copy */
    array = make_shared(IGNIS_TRANSPORT_HOST, 0, 100, 2);
    CHECK_OK(ignis_transport_send(host, array, NULL));
    drop(array);
    array = make_shared(IGNIS_TRANSPORT_HOST, 0, 3000000, 4);
    CHECK_OK(ignis_transport_send(host, array, NULL));
    drop(array);
    CHECK_OK(ignis_transport_destroy(host)); /* what is on its way arrives all the same */
    if (available(kind, 0, 0)) {
        shared = channel_transport(kind, m.channel);
        array = make_shared(kind, 0, 100, 3);
        CHECK_OK(ignis_transport_send(shared, array, NULL));
        CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
        snprintf(text, sizeof text, "%s] to process %d", words[method], (int)m.child.pid);
        CHECK_MESSAGE_HAS(text);
        CHECK_OK(ignis_channel_receive(m.channel, &byte, 1, NULL, NULL, 0, NULL));
        CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
        CHECK_INT(names_in(m.folder), 0);
        CHECK_OK(ignis_channel_send(m.channel, "x", 1, NULL, 0));
    }
    CHECK_OK(ignis_channel_receive(m.channel, &byte, 1, NULL, NULL, 0, NULL));
    if (available(kind, 0, 0)) {
        drop(array); /* the other side has freed its own */
        CHECK_OK(ignis_transport_destroy(shared));
    }
    if (method != METHOD_OF_DESCRIPTORS && available(IGNIS_TRANSPORT_VMM, 0, 0)) {
        vmm = channel_transport(IGNIS_TRANSPORT_VMM, m.channel);
        array = make_shared(IGNIS_TRANSPORT_VMM, 0, 100, 3);
        CHECK_STATUS(ignis_transport_send(vmm, array, NULL), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CHANNEL_DESCRIPTOR);
        CHECK_MESSAGE_HAS("IGNIS_CHANNEL_SOCKET");
        drop(array);
        CHECK_OK(ignis_transport_destroy(vmm));
        vmm = channel_transport(IGNIS_TRANSPORT_AUTO, m.channel);
        CHECK_INT(query(vmm).kind, IGNIS_TRANSPORT_HOST);
        CHECK_OK(ignis_transport_destroy(vmm));
    }
    CHECK_INT(process_end(&m.child), 0);
    part(&m);
}

TEST(through_a_pipe) { through_a_channel(IGNIS_CHANNEL_PIPE); }
#ifndef _WIN32
TEST(through_a_socket) { through_a_channel(IGNIS_CHANNEL_SOCKET); }
TEST(through_shared_memory) { through_a_channel(IGNIS_CHANNEL_SHM); }
#endif

/*  Takes the first handle that comes, and no other. */
static int channel_taker(void)
{
    ignis_desc desc = test_desc(NULL);
    ignis_channel_desc channel = channel_desc();
    ignis_transport transport;
    ignis_transport_handle handle;
    ignis_channel connected;
    if (ignis_setup(&desc) != IGNIS_OK)
        return 2;
    connected = ignis_channel_connect(&channel);
    transport = channel_transport(kind_through(channel.method), connected);
    if (ignis_transport_receive_handle(transport, &handle) != IGNIS_OK ||
        !ignis_transport_recv_with_handle(transport, &handle).id ||
        ignis_channel_send(connected, "x", 1, NULL, 0) != IGNIS_OK)
        return 3;
    for (;;)
        pause();
}

/*  The same, gives it back in order and ends, for which the system needs a while: there is much memory to take back. */
static int channel_leaver(void)
{
    ignis_desc desc = test_desc(NULL);
    ignis_channel_desc channel = channel_desc();
    ignis_transport transport;
    ignis_transport_handle handle;
    ignis_channel connected;
    ignis_array taken;
    size_t bytes = (size_t)256 << 20, i;
    volatile char *memory = (volatile char *)malloc(bytes);
    if (!memory || ignis_setup(&desc) != IGNIS_OK)
        return 2;
    for (i = 0; i < bytes; i += 4096)
        memory[i] = 1;
    connected = ignis_channel_connect(&channel);
    transport = channel_transport(IGNIS_TRANSPORT_IPC, connected);
    CHECK_OK(ignis_transport_receive_handle(transport, &handle));
    taken = ignis_transport_recv_with_handle(transport, &handle);
    CHECK_OK(ignis_transport_handle_close(&handle));
    drop(taken);
    CHECK_OK(ignis_channel_send(connected, "x", 1, NULL, 0));
    _exit(test__state.failures ? 1 : 0);
}

TEST(a_receiver_that_is_ending)
{
    ignis_transport transport;
    ignis_array array;
    meeting m;
    char byte;
    meet(&m, "leaver", IGNIS_CHANNEL_PIPE);
    REQUIRE(m.channel.id);
    if (!available(IGNIS_TRANSPORT_IPC, 0, 0)) {
        process_kill(&m.child);
        SKIP("the transport is not available");
    }
    transport = channel_transport(IGNIS_TRANSPORT_IPC, m.channel);
    array = make_shared(IGNIS_TRANSPORT_IPC, 0, 100, 0);
    CHECK_OK(ignis_transport_send(transport, array, NULL));
    CHECK_OK(ignis_channel_receive(m.channel, &byte, 1, NULL, NULL, 0, NULL));
    ignis__sleep_us(2000);
    drop(array);
    CHECK_INT(process_end(&m.child), 0);
    CHECK_OK(ignis_transport_destroy(transport));
    part(&m);
}

static void a_dead_receiver(ignis_channel_method method)
{
    ignis_transport_kind kind = kind_through(method);
    ignis_transport transport, host;
    ignis_array taken, waiting;
    meeting m;
    char byte;
    int i;
    meet(&m, "taker", method);
    REQUIRE(m.channel.id);
    if (!available(kind, 0, 0)) {
        process_kill(&m.child);
        SKIP("the transport is not available");
    }
    transport = channel_transport(kind, m.channel);
    host = channel_transport(IGNIS_TRANSPORT_HOST, m.channel);
    taken = make_shared(kind, 0, 100, 0);
    waiting = make_shared(kind, 0, 100, 0);
    CHECK_OK(ignis_transport_send(transport, taken, NULL));
    CHECK_OK(ignis_channel_receive(m.channel, &byte, 1, NULL, NULL, 0, NULL));
    CHECK_OK(ignis_transport_send(transport, waiting, NULL));
    CHECK_OK(ignis_transport_send(host, waiting, NULL));
    CHECK_STATUS(ignis_array_free(taken), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
    CHECK_STATUS(ignis_array_free(waiting), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
    CHECK_INT(names_in(m.folder), method == METHOD_OF_DESCRIPTORS ? 0 : 2);
    process_kill(&m.child);
    if (method == IGNIS_CHANNEL_SOCKET) /* what is in it keeps its leases until it is closed */
        CHECK_OK(ignis_transport_release_handle(transport, waiting));
    for (i = 0; i < 100 && query(transport).exported + query(host).exported; i++)
        ignis__sleep_us(10000);
    drop(taken);
    drop(waiting);
    CHECK_OK(ignis_transport_destroy(transport));
    CHECK_OK(ignis_transport_destroy(host));
    part(&m);
}

TEST(a_dead_receiver_at_a_pipe) { a_dead_receiver(IGNIS_CHANNEL_PIPE); }
#ifndef _WIN32
TEST(a_dead_receiver_at_a_socket) { a_dead_receiver(IGNIS_CHANNEL_SOCKET); }
TEST(a_dead_receiver_at_shared_memory) { a_dead_receiver(IGNIS_CHANNEL_SHM); }
#endif

#ifndef _WIN32
static void *pausing(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static int threads(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, pausing, NULL) != 0)
        return 2;
    pthread_exit(NULL);
}

static bool first_thread_over(pid_t pid)
{
    ignis__thread_counts first = {pid, 0, 0, 0};
    char name[16];
    snprintf(name, sizeof name, "%d", (int)pid);
    ignis__thread_count(&first, name);
    return first.zombies == 1 && first.exiting == 1;
}
#endif

TEST(a_process_that_has_ended_is_not_ending)
{
    process child = process_start("sleeper");
#ifndef _WIN32
    siginfo_t info;
    int i;
#endif
    CHECK(!ignis__process_is_exiting((int64_t)getpid()));
    CHECK(!ignis__process_is_exiting((int64_t)child.pid));
    kill(child.pid, SIGKILL);
#ifdef _WIN32
    CHECK_INT(WaitForSingleObject(child.handle, INFINITE), WAIT_OBJECT_0);
#else
    CHECK_INT(waitid(P_PID, (id_t)child.pid, &info, WEXITED | WNOWAIT), 0);
#endif
    CHECK(!ignis__process_is_exiting((int64_t)child.pid)); /* nobody has waited for it, but all of it is gone */
    process_end(&child);
    CHECK(!ignis__process_is_exiting((int64_t)child.pid));
#ifndef _WIN32
    child = process_start("threads"); /* its first thread ends, the other one stays */
    for (i = 0; i < 500 && !first_thread_over(child.pid); i++)
        ignis__sleep_us(10000);
    CHECK(i < 500);
    CHECK(!ignis__process_is_exiting((int64_t)child.pid));
    process_kill(&child);
#endif
}

/*  Handles that the caller carries as bytes alone. */
TEST(handles_without_descriptors)
{
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_PEER, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_HOST};
    char folder[] = "/tmp/ignis-test-XXXXXX";
    int k, fds[2];
    NEEDS_POSIX("exchange that needs names");
    REQUIRE(mkdtemp(folder) != NULL);
    setenv("IGNIS_COMM_DIR", folder, 1);
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(kinds); k++) {
        ignis_transport_handle sent, came, late;
        ignis_transport_desc desc;
        ignis_transport transport;
        ignis_array array, seen;
        if (!available(kinds[k], 0, 0))
            continue;
        memset(&desc, 0, sizeof desc);
        desc.kind = kinds[k];
        desc.token = token;
        desc.exchange = IGNIS_CHANNEL_SHM;
        transport = ignis_transport_create(&desc);
        CHECK_OK(ignis_transport_initialize(transport));
        array = make_shared(kinds[k], 0, 50, 7);
        CHECK_OK(ignis_transport_export_handle(transport, array, &sent));
        CHECK_INT(ignis_transport_handle_fds(&sent, fds), 0);
        CHECK_OK(ignis_transport_handle_from_fds(&came, sent.record, NULL, 0));
        CHECK_OK(ignis_transport_handle_close(&sent));
        CHECK_INT(query(transport).exported, 1);
        CHECK_INT(names_in(folder), 1);
        late = came;
        seen = ignis_transport_import_handle(transport, &came);
        CHECK_COUNTING(seen, 50, 7);
        CHECK_INT(names_in(folder), 0);
        drop(seen);
        CHECK_INT(query(transport).exported, 0);
        CHECK_REFUSED(0, ignis_transport_import_handle(transport, &late).id, IGNIS_ERROR_MISMATCH,
                      IGNIS_DIAG_TRANSPORT_MISMATCH);
        CHECK_OK(ignis_transport_export_handle(transport, array, &sent)); /* goes nowhere */
        CHECK_INT(names_in(folder), 1);
        CHECK_OK(ignis_transport_destroy(transport));
        CHECK_INT(names_in(folder), 0);
        drop(array);
    }
    unsetenv("IGNIS_COMM_DIR");
    test_remove_folder(folder);
}

TEST(the_handle_that_was_exported)
{
    ignis_transport_handle first, second, again;
    ignis_transport transport;
    ignis_array a, b;
    SETUP(NULL);
    transport = make_transport(IGNIS_TRANSPORT_PEER, 0, 0);
    CHECK_STATUS(ignis_transport_exported_handle(transport, &again), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TRANSPORT_HANDLE);
    CHECK_STATUS(ignis_transport_exported_handle(transport, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    a = make_shared(IGNIS_TRANSPORT_PEER, 0, 10, 0);
    b = make_shared(IGNIS_TRANSPORT_PEER, 0, 10, 0);
    CHECK_OK(ignis_transport_export_handle(transport, a, &first));
    CHECK_OK(ignis_transport_export_handle(transport, b, &second));
    CHECK_OK(ignis_transport_exported_handle(transport, &again));
    CHECK(memcmp(again.record, second.record, sizeof again.record) == 0);
    CHECK_INT(info_of(b).ref_count, 2);
    CHECK_OK(ignis_transport_handle_close(&again));
    CHECK_OK(ignis_transport_export_handle(transport, a, &again));
    CHECK_OK(ignis_transport_handle_close(&again));
    CHECK_OK(ignis_transport_exported_handle(transport, &again));
    CHECK(memcmp(again.record, first.record, sizeof again.record) == 0); /* a has come last */
    CHECK_OK(ignis_transport_handle_close(&again));
    CHECK_OK(ignis_transport_handle_close(&second));
    CHECK_OK(ignis_transport_exported_handle(transport, &again)); /* b's is not out any more */
    CHECK(memcmp(again.record, first.record, sizeof again.record) == 0);
    CHECK_OK(ignis_transport_handle_close(&again));
    CHECK_OK(ignis_transport_handle_close(&first));
    drop(a);
    drop(b);
    CHECK_OK(ignis_transport_destroy(transport));
}

TEST(host_copies_pin_memory_once)
{
    ignis_transport_handle handle;
    ignis_transport transport;
    ignis_array array, seen;
    int i;
    SETUP(NULL);
    transport = make_transport(IGNIS_TRANSPORT_HOST, 0, 0);
    array = make_shared(IGNIS_TRANSPORT_HOST, 0, 3000000, 5);
    fault_reset_counts();
    for (i = 0; i < 5; i++) {
        CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
        seen = ignis_transport_import_handle(transport, &handle);
        CHECK_INT(ignis_array_numel(seen), 3000000);
        drop(seen);
        CHECK_OK(ignis_transport_handle_close(&handle));
    }
    CHECK_INT(fault_count("cuMemHostAlloc") + fault_count("cuMemHostRegister_v2"), 1);
    drop(array);
    CHECK_OK(ignis_transport_destroy(transport));
}

TEST(empty_arrays_travel)
{
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER,
                                                 IGNIS_TRANSPORT_HOST};
    int k;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(kinds); k++) {
        ignis_transport transport;
        ignis_transport_handle handle;
        ignis_array array, seen;
        if (!available(kinds[k], 0, 0))
            continue;
        transport = make_transport(kinds[k], 0, 0);
        array = make_shared(kinds[k], 0, 0, 0);
        CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
        seen = ignis_transport_import_handle(transport, &handle);
        CHECK(seen.id);
        CHECK_INT(ignis_array_numel(seen), 0);
        drop(seen);
        CHECK_OK(ignis_transport_handle_close(&handle));
        drop(array);
        CHECK_OK(ignis_transport_destroy(transport));
    }
}

TEST(device_0_is_the_current_one)
{
    ignis_transport_desc desc;
    ignis_transport transport;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    memset(&desc, 0, sizeof desc);
    desc.kind = IGNIS_TRANSPORT_HOST;
    desc.token = token;
    desc.dst_device = IGNIS_DEVICE_0;
    CHECK_OK(ignis_device_use(1));
    transport = ignis_transport_create(&desc);
    CHECK_INT(query(transport).src_device, 1);
    CHECK_INT(query(transport).dst_device, 0);
    CHECK_OK(ignis_transport_destroy(transport));
    CHECK_OK(ignis_device_use(0));
}

TEST(measure)
{
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER,
                                                 IGNIS_TRANSPORT_HOST};
    int k;
    SETUP(NULL);
    for (k = 0; k < 4; k++) {
        ignis_transport transport;
        ignis_transport_info info;
        if (!available(kinds[k], 0, 0))
            continue;
        transport = make_transport(kinds[k], 0, 0);
        CHECK_OK(ignis_transport_measure(transport, 1 << 20));
        info = query(transport);
        CHECK(info.measured_bandwidth_gbs > 0 && info.measured_latency_us > 0);
        CHECK_STATUS(ignis_transport_measure(transport, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
        CHECK_OK(ignis_transport_destroy(transport));
    }
}

int main(int argc, char **argv)
{
    const char *role = process_role(argc, argv);
    setenv("IGNIS_SIM_STREAMS", "thread", 0); /* what is under way while memory goes is under way on a GPU too */
    setenv("IGNIS_SIM_DELAY", "200", 0);
    if (role) {
        return strcmp(role, "sleeper") == 0    ? pause()
               : strcmp(role, "importer") == 0 ? importer()
               : strcmp(role, "exporter") == 0 ? exporter()
               : strcmp(role, "renewer") == 0  ? renewer()
               : strcmp(role, "liar") == 0     ? liar()
               : strcmp(role, "taker") == 0    ? channel_taker()
               : strcmp(role, "leaver") == 0   ? channel_leaver()
#ifndef _WIN32
               : strcmp(role, "threads") == 0 ? threads()
#endif
                                              : channel_receiver();
    }
    return test_run(argc, argv);
}
