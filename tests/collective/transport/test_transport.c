// SPDX-License-Identifier: MIT
/*  test_transport.c - transports in one process: which there are, handles and what is wrong with them, copies, threads,
    failures */
#include "fault.h"

#include "transports.h"

#include <dirent.h>

static const ignis_transport_kind zero_copy[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER};

/* which there are -----------------------------------------------------------------------------------------------------
   */

/*  Memory that is tried goes when no copy of the trial is under way any more. */
TEST(a_trial_that_fails_anywhere_costs_no_device)
{
    int k, d;
    SETUP(NULL);
    if (!available(IGNIS_TRANSPORT_VMM, 0, 1))
        SKIP("there are not two devices that share memory");
    for (k = 1; k < 200; k++) {
        const char *failed;
        CHECK_OK(ignis_shutdown());
        SETUP(NULL);
        for (d = 0; d < 2; d++) {
            CHECK_OK(ignis_device_use(d));
            CHECK_OK(ignis_synchronize());
        }
        fault_arm("cu", k, 1);
        (void)available(IGNIS_TRANSPORT_VMM, 0, 1);
        failed = fault.failed;
        fault_disarm();
        ignis_status_clear();
        for (d = 0; d < 2; d++) {
            CHECK_OK(ignis_device_use(d));
            CHECK_OK(ignis_synchronize());
        }
        if (test__state.failures)
            printf("at call %d, %s\n", k, failed ? failed : "none");
        if (!failed || test__state.failures)
            break;
    }
    CHECK(k > 20 && k < 200);
}

/*  Another device may still read memory that goes, whatever call fails then. */
TEST(memory_goes_behind_the_work_of_other_devices)
{
    static const char *const failing[] = {"none", "cuEventRecord", "cuStreamWaitEvent", "cuStreamSynchronize"};
    int way;
    SETUP(NULL);
    if (!available(IGNIS_TRANSPORT_VMM, 0, 1))
        SKIP("there are not two devices that share memory");
    for (way = 0; way < 4; way++) {
        ignis_array from = make_shared(IGNIS_TRANSPORT_VMM, 0, 1000, way),
                    to = make_shared(IGNIS_TRANSPORT_PEER, 1, 1000, 0);
        int32_t values[1000];
        CHECK_OK(ignis_array_copy(to, from));
        fault_arm(failing[way], 1, 1);
        (void)ignis_array_free(from); /* it is freed in any case, and says what has failed */
        fault_disarm();
        CHECK(!ignis_array_is_live(from));
        ignis_status_clear();
        CHECK_OK(ignis_array_to_host_raw(to, values, (int64_t)sizeof values));
        CHECK_INT(values[999], way + 999);
        CHECK_OK(ignis_array_free(to));
    }
}

/*  Memory of a stream that is forgotten is used again when the stream is through, also when it cannot be waited for. */
TEST(memory_of_a_forgotten_stream_goes_behind_its_work)
{
    enum { COUNT = 3 << 20, COPIES = 30 };
    ignis_array from, to, other;
    int32_t *values = (int32_t *)malloc(COUNT * sizeof *values);
    void *stream;
    int i;
    SETUP(NULL);
    CHECK_OK(ignis_device_use(0));
    other = make_shared(IGNIS_TRANSPORT_PEER, 0, COUNT, 0);
    to = make_shared(IGNIS_TRANSPORT_PEER, 0, COUNT, 0);
    CHECK_INT(ignis__cuda.cuStreamCreate(&stream, IGNIS__CU_STREAM_NON_BLOCKING), 0);
    CHECK_OK(ignis_stream_use(stream));
    from = make_shared(IGNIS_TRANSPORT_PEER, 0, COUNT, 5);
    for (i = 0; i < COPIES; i++)
        CHECK_OK(ignis_array_copy(to, from));
    CHECK_OK(ignis_array_free(from));
    CHECK_OK(ignis_stream_use(NULL));
    fault_arm("cuStreamSynchronize", 1, 1);
    CHECK_STATUS(ignis_stream_forget(stream), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    fault_disarm();
    from = ignis_array_clone(other); /* gets the memory */
    CHECK_OK(ignis_array_free(from));
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_array_to_host_raw(to, values, (int64_t)COUNT * 4));
    CHECK_INT(values[COUNT - 1], COUNT + 4);
    free(values);
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(stream), 0);
    CHECK_OK(ignis_array_free(to));
    CHECK_OK(ignis_array_free(other));
}

TEST(available_says_why_not)
{
    char reason[512] = "";
    SETUP(NULL);
    CHECK(ignis_transport_available(IGNIS_TRANSPORT_HOST, 0, 0, reason, sizeof reason));
    CHECK(ignis_transport_available(IGNIS_TRANSPORT_PEER, 0, 0, reason, sizeof reason));
    CHECK_TEXT(reason, "");
    CHECK_FAILS(ignis_transport_available((ignis_transport_kind)9, 0, 0, NULL, 0), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_BAD_ENUM);
    CHECK_FAILS(ignis_transport_available(IGNIS_TRANSPORT_HOST, 0, 99, NULL, 0), IGNIS_ERROR_DEVICE,
                IGNIS_DIAG_DEVICE_RANGE);
    if (!ignis_transport_available(IGNIS_TRANSPORT_VMM, 0, 0, NULL, 0))
        SKIP("device 0 makes no memory that can be shared");
    CHECK_OK(ignis_shutdown());
    SETUP(NULL);
    fault_arm("cuMemExportToShareableHandle", 1, 801);
    CHECK(!ignis_transport_available(IGNIS_TRANSPORT_VMM, 0, 0, reason, sizeof reason));
    fault_disarm();
    CHECK_HAS(reason, "a test write and read failed");
    CHECK_HAS(reason, "cuMemExportToShareableHandle");
    CHECK_INT(ignis_status_last(), IGNIS_OK); /* an answer is no failure */
    CHECK(ignis_transport_available(IGNIS_TRANSPORT_VMM, 0, 0, reason, sizeof reason));
}

TEST(the_best_kind_is_chosen_and_the_reason_told)
{
    ignis_transport_choice choice;
    ignis_transport transport;
    SETUP(NULL);
    CHECK_OK(ignis_transport_select(0, 0, true, &choice));
    if (choice.kind == IGNIS_TRANSPORT_VMM)
        CHECK_HAS(choice.reason, "VMM: a test write and read succeeded");
    CHECK_OK(ignis_shutdown());
    SETUP(NULL);
    fault_arm("cuMemCreate", 1, 801);
    fault.all = true;
    CHECK_OK(ignis_transport_select(0, 0, true, &choice));
    CHECK_INT(choice.kind, IGNIS_TRANSPORT_PEER);
    CHECK_OK(ignis_transport_select(0, 0, false, &choice));
    CHECK_INT(choice.kind, IGNIS_TRANSPORT_HOST);
    CHECK_HAS(choice.reason, "peer: works within one process only");
    fault_disarm();
    setenv("IGNIS_TRANSPORT", "host", 1);
    CHECK_OK(ignis_transport_select(0, 0, true, &choice));
    CHECK_INT(choice.kind, IGNIS_TRANSPORT_HOST);
    CHECK_HAS(choice.reason, "IGNIS_TRANSPORT");
    transport = make_transport(IGNIS_TRANSPORT_AUTO, 0, 0);
    CHECK_INT(query(transport).kind, IGNIS_TRANSPORT_HOST);
    setenv("IGNIS_TRANSPORT", "pigeon", 1);
    CHECK_STATUS(ignis_transport_select(0, 0, true, &choice), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_MESSAGE_HAS("pigeon");
    setenv("IGNIS_TRANSPORT", "peer", 1); /* asked for, and not to be had: nothing else is taken instead */
    CHECK_STATUS(ignis_transport_select(0, 0, false, &choice), IGNIS_ERROR_UNSUPPORTED,
                 IGNIS_DIAG_TRANSPORT_UNAVAILABLE);
    unsetenv("IGNIS_TRANSPORT");
    CHECK_OK(ignis_transport_destroy(transport));
}

TEST(create_initialize_query_destroy)
{
    ignis_transport_desc desc;
    ignis_transport_info info;
    ignis_transport transport;
    ignis_transport_handle handle;
    ignis_array array;
    char text[64];
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.kind = IGNIS_TRANSPORT_IPC;
    desc.token = token;
    desc.exchange = IGNIS_CHANNEL_PIPE;
    transport = ignis_transport_create(&desc);
    REQUIRE(transport.id);
    CHECK(!ignis_transport_ready(transport));
    CHECK_INT(ignis_transport_to_string(transport, text, sizeof text), 21);
    CHECK_TEXT(text, "IPC[0->0, named_pipe]");
    array = test_array(4, 4);
    CHECK_STATUS(ignis_transport_export_handle(transport, array, &handle), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_TRANSPORT_STATE);
    CHECK_MESSAGE_HAS("ignis_transport_initialize");
    CHECK_STATUS(ignis_transport_synchronize(transport), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TRANSPORT_STATE);
    CHECK_OK(ignis_transport_initialize(transport));
    CHECK_OK(ignis_transport_initialize(transport));
    CHECK(ignis_transport_ready(transport));
    info = query(transport);
    CHECK_INT(info.kind, IGNIS_TRANSPORT_IPC);
    CHECK(info.ready && info.zero_copy);
    CHECK(info.estimated_bandwidth_gbs == 25.0 && info.estimated_latency_us == 10.0);
    CHECK(info.measured_bandwidth_gbs == 0);
    CHECK_OK(ignis_transport_synchronize(transport));
    CHECK_STATUS(ignis_transport_recv(transport, array), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TRANSPORT_HANDLE);
    CHECK_MESSAGE_HAS("ignis_transport_recv_with_handle");
    CHECK_STATUS(ignis_transport_recv_async(transport, array), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TRANSPORT_HANDLE);
    CHECK_STATUS(ignis_transport_send(transport, array, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TRANSPORT_HANDLE);
    CHECK_OK(ignis_transport_destroy(transport));
    CHECK_STATUS(ignis_transport_destroy(transport), IGNIS_ERROR_FREED, IGNIS_DIAG_TRANSPORT_FREED);
    CHECK_STATUS(ignis_transport_query(transport, &info), IGNIS_ERROR_FREED, IGNIS_DIAG_TRANSPORT_FREED);
    CHECK_FAILS(ignis_transport_ready(transport), IGNIS_ERROR_FREED, IGNIS_DIAG_TRANSPORT_FREED);
    drop(array);

    CHECK_FAILS(ignis_transport_create(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    desc.kind = (ignis_transport_kind)77;
    CHECK_FAILS(ignis_transport_create(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    desc.kind = IGNIS_TRANSPORT_AUTO;
    desc.exchange = (ignis_channel_method)77;
    CHECK_FAILS(ignis_transport_create(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
#ifdef _WIN32
    desc.exchange = IGNIS_CHANNEL_SHM;
    CHECK_FAILS(ignis_transport_create(&desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
#endif
    desc.exchange = IGNIS_CHANNEL_DEFAULT;
    desc.timeout_s = -1;
    CHECK_FAILS(ignis_transport_create(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    desc.timeout_s = 0;
    desc.channel.id = 12345;
    CHECK_FAILS(ignis_transport_create(&desc), IGNIS_ERROR_FREED, IGNIS_DIAG_CHANNEL_FREED);
    desc.channel.id = 0;
    desc.dst_device = 99;
    CHECK_FAILS(ignis_transport_create(&desc), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
}

/* one process ---------------------------------------------------------------------------------------------------------
   */

static void check_same_process(ignis_transport_kind kind, int dst)
{
    ignis_transport transport = make_transport(kind, 0, dst);
    ignis_array array = make_shared(kind, 0, 1000, 5), view = ignis_array_slice(array, 0, 100, 50), seen, again, clone;
    ignis_transport_handle handle, second;
    CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
    CHECK_OK(ignis_transport_export_handle(transport, array, &second));
    CHECK(memcmp(handle.record, second.record, sizeof handle.record) == 0);
    CHECK_INT(query(transport).exported, 2);
    CHECK_INT(info_of(array).ref_count, 2);
    seen = ignis_transport_import_handle(transport, &handle);
    again = ignis_transport_recv_with_handle(transport, &second);
    CHECK(seen.id && again.id && seen.id != again.id);
    CHECK_INT(info_of(seen).device, dst);
    CHECK(info_of(seen).ptr == info_of(array).ptr &&
          info_of(again).ptr == info_of(array).ptr); /* T7: the pointer itself */
    CHECK_INT(query(transport).imported, 2);
    CHECK_INT(query(transport).mappings, 1);
    clone = ignis_array_clone(seen);
    CHECK_COUNTING(clone, 1000, 5);
    drop(clone);
    CHECK_OK(ignis_transport_handle_close(&handle));
    CHECK_OK(ignis_transport_handle_close(&second));
    CHECK_OK(ignis_transport_handle_close(&second));
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
    CHECK_MESSAGE_HAS("while 1 handle of it is out: 1 by ");
    CHECK_STATUS(ignis_array_transfer_ownership(array, IGNIS_OWNER_WNAIS), IGNIS_ERROR_CONTRACT,
                 IGNIS_DIAG_FREE_EXPORTED);
    CHECK_OK(ignis_transport_close_imported_handle(transport, seen));
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
    CHECK_STATUS(ignis_transport_close_imported_handle(transport, seen), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    CHECK_STATUS(ignis_transport_close_imported_handle(transport, array), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_TRANSPORT_STATE);
    CHECK_OK(ignis_array_free(again)); /* that will do, too */
    CHECK_INT(query(transport).imported, 0);

    CHECK_OK(ignis_transport_export_handle(transport, view, &handle));
    seen = ignis_transport_import_handle(transport, &handle);
    clone = ignis_array_clone(seen);
    CHECK_COUNTING(clone, 50, 105);
    drop(clone);
    drop(seen);
    CHECK_OK(ignis_transport_handle_close(&handle));
    drop(view);
    drop(array);
    CHECK_OK(ignis_transport_destroy(transport));
}

TEST(handles_of_this_process_are_the_array_itself)
{
    int k, dst, done = 0;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(zero_copy); k++)
        for (dst = 0; dst < 2; dst++)
            if (available(zero_copy[k], 0, dst)) {
                check_same_process(zero_copy[k], dst);
                done++;
            }
    CHECK(done > 0);
}

TEST(release_and_destroy_end_exports)
{
    ignis_transport transport;
    ignis_transport_handle handle;
    ignis_array array, seen, view;
    SETUP(NULL);
    transport = make_transport(IGNIS_TRANSPORT_PEER, 0, 0);
    array = make_shared(IGNIS_TRANSPORT_PEER, 0, 100, 0);
    CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
    CHECK_OK(ignis_transport_release_handle(transport, array));
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &handle).id, IGNIS_ERROR_MISMATCH,
                  IGNIS_DIAG_TRANSPORT_MISMATCH);
    CHECK_MESSAGE_HAS("no longer exported");
    CHECK_OK(ignis_transport_handle_close(&handle));
    CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
    seen = ignis_transport_import_handle(transport, &handle);
    view = ignis_array_slice(seen, 0, 10, 20);
    CHECK_OK(ignis_transport_destroy(transport));
    CHECK(!ignis_array_is_live(seen));
    drop(array);
    CHECK_COUNTING(view, 20, 10); /* a view keeps what it lies in, the exporter's memory too */
    drop(view);
    CHECK_OK(ignis_transport_handle_close(&handle));
}

TEST(send_and_receive_copy)
{
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_PEER, IGNIS_TRANSPORT_HOST};
    int k, dst;
    SETUP(NULL);
    for (k = 0; k < 2; k++)
        for (dst = 0; dst < 2; dst++) {
            ignis_transport transport;
            ignis_array a, b, into, other;
            if (!available(kinds[k], 0, dst))
                continue;
            transport = make_transport(kinds[k], 0, dst);
            a = make_shared(kinds[k], 0, 3000, 1);
            b = make_shared(kinds[k], 0, 3000, 70000);
            into = make_shared(kinds[k], dst, 3000, 0);
            CHECK_OK(ignis_transport_send(transport, a, NULL));
            CHECK_OK(ignis_transport_send_async(transport, b, NULL));
            CHECK_OK(ignis_transport_recv(transport, into));
            CHECK_COUNTING(into, 3000, 1);
            CHECK_OK(ignis_transport_recv_async(transport, into));
            CHECK_OK(ignis_transport_synchronize(transport));
            CHECK_COUNTING(into, 3000, 70000);
            CHECK_INT(query(transport).exported, 0);

            CHECK_OK(ignis_transport_send(transport, a, NULL));
            other = make(IGNIS_SHAPE(10), IGNIS_I32);
            if (dst == 0) {
                CHECK_STATUS(ignis_transport_recv(transport, other), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
                CHECK_OK(ignis_transport_send(transport, a, NULL));
            }
            drop(other);
            other = make(IGNIS_SHAPE(3000), IGNIS_F32);
            if (dst == 0)
                CHECK_STATUS(ignis_transport_recv(transport, other), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
            else
                CHECK_STATUS(ignis_transport_recv(transport, other), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
            drop(other);
            CHECK_OK(ignis_transport_send(transport, a, NULL)); /* is still waiting when the transport goes */
            CHECK_OK(ignis_transport_destroy(transport));
            drop(a);
            drop(b);
            drop(into);
        }
}

TEST(a_receive_that_nobody_sends_to_ends)
{
    ignis_transport_desc desc;
    ignis_transport transport;
    ignis_array array;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.kind = IGNIS_TRANSPORT_HOST;
    desc.timeout_s = 0.05;
    desc.token = token;
    transport = ignis_transport_create(&desc);
    CHECK_OK(ignis_transport_initialize(transport));
    array = test_array(4, 4);
    CHECK_STATUS(ignis_transport_recv(transport, array), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_CHANNEL_TIMEOUT);
    CHECK_STATUS(ignis_transport_receive_handle(transport, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    drop(array);
    CHECK_OK(ignis_transport_destroy(transport));
}

static void share_what_cannot_be(void)
{
    ignis_transport vmm, ipc;
    ignis_transport_handle handle;
    ignis_array plain, view, wrapped, shared;
    ignis_array_desc wrap = desc_of(IGNIS_SHAPE(4), IGNIS_F32);
    ignis__address odd = 0;
    vmm = make_transport(IGNIS_TRANSPORT_VMM, 0, 0);
    ipc = make_transport(IGNIS_TRANSPORT_IPC, 0, 0);
    plain = test_array(4, 4);
    view = ignis_array_slice(plain, 0, 1, 2);
    CHECK_STATUS(ignis_transport_export_handle(vmm, plain, &handle), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    CHECK_MESSAGE_HAS("ignis_vmm_array");
    CHECK_STATUS(ignis_transport_export_handle(ipc, view, &handle), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    CHECK_MESSAGE_HAS("ignis_ipc_array");
    CHECK_INT(info_of(plain).ref_count, 0);
    wrap.ptr = ignis_array_device_ptr(plain); /* what the driver knows as a part of something */
    wrap.tag = "borrowed";
    wrapped = ignis_array_create(&wrap);
    CHECK_STATUS(ignis_transport_export_handle(vmm, wrapped, &handle), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    CHECK_MESSAGE_HAS("'borrowed' ");
    drop(wrapped);
    CHECK_INT(ignis__cuda.cuMemAlloc_v2(&odd, 4096), 0); /* a block with neighbours */
    wrap.ptr = (void *)(uintptr_t)odd;
    wrapped = ignis_array_create(&wrap);
    CHECK_STATUS(ignis_transport_export_handle(ipc, wrapped, &handle), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    CHECK_MESSAGE_HAS("ignis_ipc_array");
    drop(wrapped);
    CHECK_INT(ignis__cuda.cuMemFree_v2(odd), 0);
    shared = make_shared(IGNIS_TRANSPORT_VMM, 0, 10, 0);
    CHECK_STATUS(ignis_transport_export_handle(ipc, shared, &handle), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    drop(shared);
    shared = make_shared(IGNIS_TRANSPORT_IPC, 0, 10, 0);
    CHECK_STATUS(ignis_transport_export_handle(vmm, shared, &handle), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NOT_SHAREABLE);
    drop(shared);
    if (ignis_device_count() > 1) {
        shared = make_shared(IGNIS_TRANSPORT_VMM, 1, 10, 0);
        CHECK_STATUS(ignis_transport_export_handle(vmm, shared, &handle), IGNIS_ERROR_DEVICE,
                     IGNIS_DIAG_DEVICE_DIFFERS);
        drop(shared);
    }
    drop(view);
    drop(plain);
    CHECK_OK(ignis_transport_destroy(vmm));
    CHECK_OK(ignis_transport_destroy(ipc));
}

TEST(what_cannot_be_shared_is_refused)
{
    SETUP(NULL);
    if (!available(IGNIS_TRANSPORT_VMM, 0, 0) || !available(IGNIS_TRANSPORT_IPC, 0, 0))
        SKIP("needs shareable memory and IPC");
    process_leaves_no_descriptor(share_what_cannot_be);
}

/* threads -------------------------------------------------------------------------------------------------------------
   */

typedef struct crowd {
    ignis_transport transport;
    ignis_transport_kind kind;
    ignis_transport_handle common; /* of one array, that all import */
} crowd;

static void *share_often(void *context)
{
    const crowd *c = (const crowd *)context;
    int i;
    for (i = 0; i < 40; i++) {
        ignis_array array = make_shared(c->kind, 0, 64, i), seen,
                    all = ignis_transport_import_handle(c->transport, &c->common);
        ignis_transport_handle handle;
        CHECK(all.id);
        CHECK_OK(ignis_transport_export_handle(c->transport, array, &handle));
        seen = ignis_transport_import_handle(c->transport, &handle);
        CHECK_OK(ignis_transport_handle_close(&handle));
        CHECK_COUNTING(seen, 64, i);
        CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
        (void)query(c->transport);
        CHECK_OK(i % 2 ? ignis_array_free(seen) : ignis_transport_close_imported_handle(c->transport, seen));
        drop(array);
        drop(all);
    }
    return NULL;
}

TEST(threads_share_one_transport)
{
    pthread_t threads[4];
    ignis_array array;
    crowd c;
    int i;
    SETUP(NULL);
    c.kind = available(IGNIS_TRANSPORT_VMM, 0, 0) ? IGNIS_TRANSPORT_VMM : IGNIS_TRANSPORT_PEER;
    c.transport = make_transport(c.kind, 0, 0);
    array = make_shared(c.kind, 0, 64, 0);
    CHECK_OK(ignis_transport_export_handle(c.transport, array, &c.common));
    for (i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, share_often, &c), 0);
    for (i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_OK(ignis_transport_handle_close(&c.common));
    CHECK_INT(query(c.transport).exported, 0);
    CHECK_INT(query(c.transport).imported, 0);
    drop(array);
    CHECK_OK(ignis_transport_destroy(c.transport));
}

/*  What all threads use, replace and destroy under each other's hands. */
enum { MIX_THREADS = 4, MIX_ITEMS = 3 };

typedef struct mix {
    ignis_transport_kind kind;
    uint64_t transports[MIX_ITEMS], arrays[MIX_ITEMS]; /* handles; swapped atomically */
    int rounds;
} mix;

typedef struct mixer {
    mix *all;
    unsigned random;
} mixer;

static void *mix_calls(void *context)
{
    mixer *m = (mixer *)context;
    int round;
    for (round = 0; round < m->all->rounds; round++) {
        uint64_t *place = &m->all->transports[test_draw(&m->random, MIX_ITEMS)],
                 *other = &m->all->arrays[test_draw(&m->random, MIX_ITEMS)];
        ignis_transport transport;
        ignis_transport_handle handle;
        ignis_transport_info info;
        ignis_array array, seen;
        char text[64];
        transport.id = ignis__atomic_load(place);
        array.id = ignis__atomic_load(other);
        switch (test_draw(&m->random, 12)) {
        case 0:
            transport.id = test_swap(place, make_transport(m->all->kind, 0, 0).id);
            (void)ignis_transport_destroy(transport);
            break;
        case 1:
            array.id = test_swap(other, make_shared(m->all->kind, 0, 64, round).id);
            while (ignis_array_is_live(array) && ignis_array_free(array) != IGNIS_OK) { /* others have handles of it */
                transport.id = ignis__atomic_load(&m->all->transports[test_draw(&m->random, MIX_ITEMS)]);
                (void)ignis_transport_release_handle(transport, array);
            }
            break;
        case 2: (void)ignis_transport_release_handle(transport, array); break;
        case 3:
            (void)ignis_transport_query(transport, &info);
            (void)ignis_transport_to_string(transport, text, sizeof text);
            break;
        case 4:
            (void)ignis_transport_synchronize(transport);
            (void)ignis_transport_initialize(transport);
            break;
        case 5:
            if (ignis_transport_exported_handle(transport, &handle) == IGNIS_OK)
                (void)ignis_transport_handle_close(&handle);
            break;
        case 6:
            if (round % 8 == 0)
                (void)ignis_transport_measure(transport, 1 << 12);
            break;
        case 7: (void)ignis_transport_send(transport, array, NULL); break;
        default:
            if (ignis_transport_export_handle(transport, array, &handle) != IGNIS_OK)
                break;
            seen = ignis_transport_import_handle(transport, &handle);
            (void)ignis_transport_handle_close(&handle);
            if (seen.id && ignis_transport_close_imported_handle(transport, seen) != IGNIS_OK)
                (void)ignis_array_free(seen); /* if the transport went meanwhile, and did not take it along */
        }
        ignis_status_clear();
    }
    return NULL;
}

TEST(threads_mix_every_call)
{
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER,
                                                 IGNIS_TRANSPORT_HOST};
    pthread_t threads[MIX_THREADS];
    mixer mixers[MIX_THREADS];
    mix all;
    int k, i;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(kinds); k++) {
        if (!available(kinds[k], 0, 0))
            continue;
        memset(&all, 0, sizeof all);
        all.kind = kinds[k];
        all.rounds = test_env("IGNIS_SOAK") ? 3000 : 60;
        for (i = 0; i < MIX_ITEMS; i++) {
            all.transports[i] = make_transport(all.kind, 0, 0).id;
            all.arrays[i] = make_shared(all.kind, 0, 64, i).id;
        }
        for (i = 0; i < MIX_THREADS; i++) {
            mixers[i].all = &all;
            mixers[i].random = (unsigned)(k * 100 + i);
            CHECK_INT(pthread_create(&threads[i], NULL, mix_calls, &mixers[i]), 0);
        }
        for (i = 0; i < MIX_THREADS; i++)
            pthread_join(threads[i], NULL);
        for (i = 0; i < MIX_ITEMS; i++) {
            ignis_transport transport;
            transport.id = all.transports[i];
            CHECK_OK(ignis_transport_destroy(transport));
        }
        for (i = 0; i < MIX_ITEMS; i++) {
            ignis_array array;
            array.id = all.arrays[i];
            drop(array); /* nobody has any of it */
        }
    }
}

/* records that lie ----------------------------------------------------------------------------------------------------
   */

TEST(every_flipped_bit_of_a_record_is_seen)
{
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER,
                                                 IGNIS_TRANSPORT_HOST};
    int k, bit, calls;
    SETUP(NULL);
    for (k = 0; k < 4; k++) {
        ignis_transport transport;
        ignis_transport_handle handle, bad;
        ignis_array array;
        if (!available(kinds[k], 0, 0))
            continue;
        transport = make_transport(kinds[k], 0, 0);
        array = make_shared(kinds[k], 0, 100, 0);
        CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
        fault_reset_counts();
        for (bit = 0; bit < IGNIS_TRANSPORT_RECORD_BYTES * 8; bit++) {
            bad = handle;
            bad.record[bit / 8] = (unsigned char)(bad.record[bit / 8] ^ 1 << bit % 8);
            CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_FORMAT,
                          IGNIS_DIAG_TRANSPORT_RECORD);
            if (test__state.failures)
                break;
        }
        memset(bad.record, 0, sizeof bad.record);
        CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_FORMAT,
                      IGNIS_DIAG_TRANSPORT_RECORD);
        calls = fault_count("cuMemImportFromShareableHandle") + fault_count("cuIpcOpenMemHandle_v2") +
                fault_count("cuMemMap");
        CHECK_INT(calls, 0); /* the driver has seen none of it */
        CHECK_OK(ignis_transport_handle_close(&handle));
        CHECK_OK(ignis_transport_destroy(transport));
        drop(array);
    }
}

TEST(sealed_lies_are_seen_too)
{
    ignis_transport transport, host;
    ignis_transport_handle handle, bad;
    ignis__record_of_array record, good;
    ignis_array array;
    int k;
    SETUP(NULL);
    if (!available(IGNIS_TRANSPORT_VMM, 0, 0))
        SKIP("device 0 makes no memory that can be shared");
    transport = make_transport(IGNIS_TRANSPORT_VMM, 0, 0);
    host = make_transport(IGNIS_TRANSPORT_HOST, 0, 0);
    array = make_shared(IGNIS_TRANSPORT_VMM, 0, 100, 0);
    CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
    memcpy(&good, handle.record, sizeof good);
    for (k = 0; k < 13; k++) {
        record = good;
        switch (k) {
        case 0: record.block_size = 0; break;
        case 1: record.block_size = INT64_MIN; break;
        case 2: record.offset = record.block_size; break;
        case 3: record.offset = -4; break;
        case 4: record.offset = INT64_MAX; break;
        case 5: record.offset = 1; break;
        case 6: record.ndim = 9; break;
        case 7: record.ndim = 0; break;
        case 8: record.dtype = 99; break;
        case 9: record.dim[0] = INT64_MAX; break;
        case 10: record.dim[0] = -1; break;
        case 11: record.kind = 77; break;
        default: record.dtype = 0; break;
        }
        reseal(token, &record);
        bad = handle;
        memcpy(bad.record, &record, sizeof record);
        CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_MISMATCH,
                      IGNIS_DIAG_TRANSPORT_MISMATCH);
    }
    bad = handle; /* of another process, with a size that is not the memory's: the map tells */
    record = good;
    record.process[0] ^= 1;
    record.block_size = good.block_size * 64;
    reseal(token, &record);
    memcpy(bad.record, &record, sizeof record);
    CHECK(!ignis_transport_import_handle(transport, &bad).id && ignis_status_last() == IGNIS_ERROR_CUDA);
    ignis_status_clear();
    record.block_size = good.block_size + 1;
    reseal(token, &record);
    memcpy(bad.record, &record, sizeof record);
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_VMM_SIZE);
    record = good;
    record.process[0] ^= 1;
    record.uuid[3] ^= 0x55;
    reseal(token, &record);
    memcpy(bad.record, &record, sizeof record);
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_UNSUPPORTED,
                  IGNIS_DIAG_TRANSPORT_UNAVAILABLE);
    record = good;
    record.host++;
    reseal(token, &record);
    memcpy(bad.record, &record, sizeof record);
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_UNSUPPORTED,
                  IGNIS_DIAG_TRANSPORT_UNAVAILABLE);
    bad = handle;
    memset(&bad.memory, 0, sizeof bad.memory);
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_MISMATCH,
                  IGNIS_DIAG_TRANSPORT_MISMATCH);
    CHECK_REFUSED(0, ignis_transport_import_handle(host, &handle).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TRANSPORT_STATE);
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_INT(query(transport).imported, 0);
    CHECK_OK(ignis_transport_handle_close(&handle));
    drop(array);
    CHECK_OK(ignis_transport_destroy(transport));
    CHECK_OK(ignis_transport_destroy(host));
}

/*  One field of a record says something else. False: there is no such field. */
static bool tell_a_lie(ignis__record_of_array *record, int field)
{
    switch (field) {
    case 0: record->block_size = (int64_t)1 << 40; break;
    case 1: record->block_size += 2 << 20; break;
    case 2: record->offset += 4; break;
    case 3: record->dim[0]++; break;
    case 4: record->dim[0]--; break;
    case 5: record->dtype = IGNIS_U8; break;
    case 6: record->ndim = 2, record->dim[1] = 1; break;
    case 7: record->uuid[5] ^= 1; break;
    case 8: record->pid++; break;
    case 9: record->pid_namespace++; break;
    case 10: record->ipc.bytes[3] = (char)(record->ipc.bytes[3] ^ 1); break;
    case 11: record->dim[7] = 1; break;
    case 12:
        record->offset = (int64_t)512 << 30, record->block_size = (int64_t)1 << 40, record->dim[0] = 2 << 20;
        break;
    default: return false;
    }
    return true;
}

/*  The handle with another record, sealed. */
static const ignis_transport_handle *told(const ignis_transport_handle *handle, ignis__record_of_array *record)
{
    static ignis_transport_handle result;
    result = *handle;
    reseal(token, record);
    memcpy(result.record, record, sizeof *record);
    return &result;
}

/*  That this process knows an export, its own or another's, gives nobody memory of it by other words. */
TEST(what_is_known_is_believed_no_other_words)
{
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_PEER};
    int k, foreign, field;
    SETUP(NULL);
    for (k = 0; k < 2; k++)
        for (foreign = 0; foreign < 2 - k; foreign++) {
            ignis_transport transport;
            ignis_transport_handle handle;
            ignis__record_of_array good, record;
            ignis_array array, seen;
            if (!available(kinds[k], 0, 0))
                continue;
            transport = make_transport(kinds[k], 0, 0);
            array = make_shared(kinds[k], 0, 1000, 5);
            CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
            memcpy(&good, handle.record, sizeof good);
            good.process[0] = (unsigned char)(good.process[0] ^ foreign); /* as if another process had exported it */
            record = good;
            seen = ignis_transport_import_handle(transport, told(&handle, &record));
            CHECK_COUNTING(seen, 1000, 5);
            fault_reset_counts();
            for (field = 0; record = good, tell_a_lie(&record, field); field++) {
                CHECK_REFUSED(0, ignis_transport_import_handle(transport, told(&handle, &record)).id,
                              IGNIS_ERROR_MISMATCH, IGNIS_DIAG_TRANSPORT_MISMATCH);
                CHECK_INT(query(transport).imported, 1);
            }
            CHECK_INT(fault_count("cuMemMap") + fault_count("cuMemImportFromShareableHandle"), 0);
            record = good;
            record.serial++;
            if (!foreign)
                CHECK_REFUSED(0, ignis_transport_import_handle(transport, told(&handle, &record)).id,
                              IGNIS_ERROR_MISMATCH, IGNIS_DIAG_TRANSPORT_MISMATCH);
            CHECK_COUNTING(seen, 1000, 5);
            drop(seen);
            CHECK_OK(ignis_transport_handle_close(&handle));
            drop(array);
            CHECK_OK(ignis_transport_destroy(transport));
        }
}

/*  The device that a handle names has to be the memory's. */
TEST(memory_lies_where_its_handle_says)
{
    ignis_transport transport;
    ignis_transport_handle handle;
    ignis__record_of_array record;
    ignis_device_info other;
    ignis_array array;
    SETUP(NULL);
    if (!available(IGNIS_TRANSPORT_VMM, 0, 1))
        SKIP("there are not two devices that share memory");
    transport = make_transport(IGNIS_TRANSPORT_VMM, 0, 0);
    array = make_shared(IGNIS_TRANSPORT_VMM, 0, 10, 0);
    CHECK_OK(ignis_device_query(1, &other));
    CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
    memcpy(&record, handle.record, sizeof record);
    record.process[0] ^= 1;
    memcpy(record.uuid, other.uuid, sizeof record.uuid);
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, told(&handle, &record)).id, IGNIS_ERROR_MISMATCH,
                  IGNIS_DIAG_TRANSPORT_MISMATCH);
    CHECK_OK(ignis_transport_handle_close(&handle));
    drop(array);
    CHECK_OK(ignis_transport_destroy(transport));
}

/*  Sealed records of anything: an import fails, or all of the array can be read. */
TEST(random_records_do_no_harm)
{
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER,
                                                 IGNIS_TRANSPORT_HOST};
    static const int64_t numbers[] = {
        0, 1, -1, 4, 1 << 21, 1 << 22, INT64_MAX, INT64_MIN, (int64_t)1 << 40, (int64_t)1 << 32};
    int k, round, rounds = test_env("IGNIS_SOAK") ? 20000 : 300, fds, accepted = 0;
    unsigned dice = 1;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(kinds); k++) {
        ignis_transport transport;
        ignis_transport_handle handle;
        ignis_array array;
        if (!available(kinds[k], 0, 0))
            continue;
        transport = make_transport(kinds[k], 0, 0);
        array = make_shared(kinds[k], 0, 1000, 5);
        CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
        fds = process_descriptors();
        for (round = 0; round < rounds && !test__state.failures; round++) {
            unsigned char bytes[sizeof(ignis__record_of_array)];
            ignis__record_of_array record;
            ignis_array seen;
            int change, changes = (int)test_draw(&dice, 4);
            memcpy(bytes, handle.record, sizeof bytes);
            for (change = 0; change < changes; change++) {
                unsigned at = test_draw(&dice, (unsigned)sizeof bytes);
                if (test_draw(&dice, 2)) {
                    bytes[at] = (unsigned char)test_draw(&dice, 256);
                } else {
                    at = at / 8 * 8;
                    memcpy(bytes + at, &numbers[test_draw(&dice, COUNT_OF(numbers))], 8);
                }
            }
            memcpy(&record, bytes, sizeof record);
            if (test_draw(&dice, 2))
                record.process[0] ^= 1;
            seen = ignis_transport_import_handle(transport, told(&handle, &record));
            if (seen.id) {
                int64_t size = ignis_array_size_bytes(seen);
                void *content = malloc((size_t)size + 1);
                CHECK_OK(ignis_array_to_host_raw(seen, content, size));
                free(content);
                drop(seen);
                accepted++;
            }
            ignis_status_clear();
        }
        CHECK_INT(query(transport).imported, 0);
        CHECK(process_descriptors() <= fds + 1); /* one may be the driver's */
        CHECK_OK(ignis_transport_handle_close(&handle));
        drop(array);
        CHECK_OK(ignis_transport_destroy(transport));
    }
    CHECK(accepted > 0); /* those that nothing was changed in, at least */
}

TEST(another_token_and_wrong_descriptors)
{
    static const unsigned char other[IGNIS_TRANSPORT_TOKEN_BYTES] = {9};
    ignis_transport transport, stranger;
    ignis_transport_handle handle, bad;
    ignis_transport_desc desc;
    ignis_array array;
    int fds[4], pipes[2], open_now;
    SETUP(NULL);
    transport = make_transport(IGNIS_TRANSPORT_HOST, 0, 0);
    memset(&desc, 0, sizeof desc);
    desc.kind = IGNIS_TRANSPORT_HOST;
    desc.token = other;
    stranger = ignis_transport_create(&desc);
    CHECK_OK(ignis_transport_initialize(stranger));
    array = make_shared(IGNIS_TRANSPORT_HOST, 0, 100, 3);
    open_now = process_descriptors();
    CHECK_OK(ignis_transport_export_handle(transport, array, &handle));
    CHECK_REFUSED(0, ignis_transport_import_handle(stranger, &handle).id, IGNIS_ERROR_FORMAT,
                  IGNIS_DIAG_TRANSPORT_RECORD);
    CHECK_MESSAGE_HAS("token");
    CHECK_INT(ignis_transport_handle_fds(&handle, fds), 1);
    REQUIRE(pipe(pipes) == 0);
    bad = handle;
    ignis__vmm_handle_set_fd(&bad.memory, pipes[0]); /* T3: a pipe, a closed one, one of another size */
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_MISMATCH,
                  IGNIS_DIAG_TRANSPORT_MISMATCH);
    close(pipes[0]);
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_MISMATCH,
                  IGNIS_DIAG_TRANSPORT_MISMATCH);
    fds[0] = pipes[1];
    fds[1] = dup(pipes[1]);
    CHECK_STATUS(ignis_transport_handle_from_fds(&bad, handle.record, fds, 2), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_COUNT_MISMATCH);
    CHECK(fcntl(fds[0], F_GETFD) < 0 && fcntl(fds[1], F_GETFD) < 0); /* extra ones are closed */
    CHECK_OK(ignis_transport_handle_close(&handle));
    CHECK_INT(process_descriptors(), open_now);
    drop(array);
    CHECK_OK(ignis_transport_destroy(transport));
    CHECK_OK(ignis_transport_destroy(stranger));
}

TEST(the_token_of_this_user)
{
    char folder[] = "/tmp/ignis-test-XXXXXX", path[64];
    ignis_transport_desc desc;
    ignis_transport a, b;
    ignis_transport_handle handle;
    ignis_array array, seen;
    struct stat info;
    REQUIRE(mkdtemp(folder) != NULL);
    setenv("IGNIS_COMM_DIR", folder, 1);
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.kind = IGNIS_TRANSPORT_HOST;
    a = ignis_transport_create(&desc);
    b = ignis_transport_create(&desc);
    CHECK_OK(ignis_transport_initialize(a));
    CHECK_OK(ignis_transport_initialize(b));
    snprintf(path, sizeof path, "%s/transport.token", folder);
    CHECK(stat(path, &info) == 0 && info.st_size == 16);
#ifndef _WIN32 /* where the folder has the rights */
    CHECK_INT(info.st_mode & 077, 0);
#endif
    array = make_shared(IGNIS_TRANSPORT_HOST, 0, 100, 3);
    CHECK_OK(ignis_transport_export_handle(a, array, &handle));
    seen = ignis_transport_import_handle(b, &handle);
    CHECK_COUNTING(seen, 100, 3);
    drop(seen);
    drop(array);
    CHECK_OK(ignis_transport_handle_close(&handle));
    CHECK_OK(ignis_transport_destroy(a));
    CHECK_OK(ignis_transport_destroy(b));
    unsetenv("IGNIS_COMM_DIR");
    remove(path);
    rmdir(folder);
}

/* failures ------------------------------------------------------------------------------------------------------------
   */

TEST(every_driver_call_may_fail)
{
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER,
                                                 IGNIS_TRANSPORT_HOST};
    int k, at;
    NEEDS_NO_MEMCHECK();
    SETUP(NULL);
    for (k = 0; k < 4; k++) {
        ignis_transport transport;
        ignis_array array;
        int fds;
        if (!available(kinds[k], 0, 0))
            continue;
        transport = make_transport(kinds[k], 0, 0);
        array = make_shared(kinds[k], 0, 100000, 0);
        fds = process_descriptors();
        for (at = 1; at < 100; at++) {
            ignis_transport_handle handle;
            ignis_array seen = {0};
            bool exported, ok;
            fault_arm("cu", at, 1);
            exported = ignis_transport_export_handle(transport, array, &handle) == IGNIS_OK;
            seen = exported ? ignis_transport_import_handle(transport, &handle) : seen;
            ok = seen.id && !fault.failed;
            fault_disarm();
            if (seen.id)
                CHECK_OK(ignis_array_free(seen));
            if (exported)
                CHECK_OK(ignis_transport_handle_close(&handle));
            ignis_status_clear();
            CHECK_INT(query(transport).exported, 0);
            CHECK_INT(info_of(array).ref_count, 0);
            if (ok)
                break;
        }
        CHECK(at > 1 && at < 100);
        CHECK(process_descriptors() <= fds + 2); /* the driver's own, where releasing was made to fail */
        drop(array);
        CHECK_OK(ignis_transport_destroy(transport));
    }
}

int main(int argc, char **argv)
{
    setenv("IGNIS_SIM_STREAMS", "thread", 0); /* what is under way while memory goes is under way on a GPU too */
    setenv("IGNIS_SIM_DELAY", "200", 0);
    return test_run(argc, argv);
}
