// SPDX-License-Identifier: MIT
/*  test_transport.c - transports: which there are, handles and what is wrong with them, the contract across processes, copies */
#include "fault.h"

#include "array.h"

#include "../ignis_collective.h"

#include "channels.h"
#include "processes.h"

#include <dirent.h>

static const unsigned char token[IGNIS_TRANSPORT_TOKEN_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static ignis_transport make_transport(ignis_transport_kind kind, int src, int dst)
{
    ignis_transport_desc desc;
    ignis_transport transport;
    memset(&desc, 0, sizeof desc);
    desc.kind = kind;
    desc.src_device = src ? src : IGNIS_DEVICE_0;
    desc.dst_device = dst ? dst : IGNIS_DEVICE_0;
    desc.token = token;
    desc.timeout_s = 2;
    transport = ignis_transport_create(&desc);
    if (transport.id)
        CHECK_OK(ignis_transport_initialize(transport));
    return transport;
}

static ignis_transport_info query(ignis_transport transport)
{
    ignis_transport_info info;
    memset(&info, 0, sizeof info);
    CHECK_OK(ignis_transport_query(transport, &info));
    return info;
}

/*  An i32 array of first, first + 1, ... in memory that a kind can share. */
static ignis_array make_shared(ignis_transport_kind kind, int device, int64_t count, int32_t first)
{
    ignis_array_desc plain = desc_of(IGNIS_SHAPE(count), IGNIS_I32);
    ignis_vmm_array_desc vmm;
    ignis_array array;
    int32_t *values = (int32_t *)malloc((size_t)count * 4);
    int64_t i;
    memset(&vmm, 0, sizeof vmm);
    vmm.shape = plain.shape;
    vmm.dtype = IGNIS_I32;
    plain.device = vmm.device = device ? device : IGNIS_DEVICE_0;
    array = kind == IGNIS_TRANSPORT_VMM   ? ignis_vmm_array(&vmm)
            : kind == IGNIS_TRANSPORT_IPC ? ignis_ipc_array(&plain)
                                          : ignis_array_create(&plain);
    for (i = 0; i < count; i++)
        values[i] = first + (int32_t)i;
    CHECK_OK(ignis_array_from_host_raw(array, values, count * 4));
    free(values);
    return array;
}

static bool available(ignis_transport_kind kind, int src, int dst)
{
    return dst < ignis_device_count() && ignis_transport_available(kind, src, dst, NULL, 0);
}

static const ignis_transport_kind zero_copy[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER};

/* which there are ----------------------------------------------------------------------------------------------------- */

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
        ignis_array from = make_shared(IGNIS_TRANSPORT_VMM, 0, 1000, way), to = make_shared(IGNIS_TRANSPORT_PEER, 1, 1000, 0);
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
    CHECK_FAILS(ignis_transport_available((ignis_transport_kind)9, 0, 0, NULL, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_FAILS(ignis_transport_available(IGNIS_TRANSPORT_HOST, 0, 99, NULL, 0), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
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
    CHECK_STATUS(ignis_transport_select(0, 0, false, &choice), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_TRANSPORT_UNAVAILABLE);
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
    CHECK_STATUS(ignis_transport_export_handle(transport, array, &handle), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TRANSPORT_STATE);
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

/* one process --------------------------------------------------------------------------------------------------------- */

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
    CHECK(info_of(seen).ptr == info_of(array).ptr && info_of(again).ptr == info_of(array).ptr); /* T7: the pointer itself */
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
    CHECK_STATUS(ignis_array_transfer_ownership(array, IGNIS_OWNER_WNAIS), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
    CHECK_OK(ignis_transport_close_imported_handle(transport, seen));
    CHECK_STATUS(ignis_array_free(array), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_EXPORTED);
    CHECK_STATUS(ignis_transport_close_imported_handle(transport, seen), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    CHECK_STATUS(ignis_transport_close_imported_handle(transport, array), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TRANSPORT_STATE);
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
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &handle).id, IGNIS_ERROR_MISMATCH, IGNIS_DIAG_TRANSPORT_MISMATCH);
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
        CHECK_STATUS(ignis_transport_export_handle(vmm, shared, &handle), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
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

/* threads ------------------------------------------------------------------------------------------------------------- */

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
        ignis_array array = make_shared(c->kind, 0, 64, i), seen, all = ignis_transport_import_handle(c->transport, &c->common);
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
        uint64_t *place = &m->all->transports[test_draw(&m->random, MIX_ITEMS)], *other = &m->all->arrays[test_draw(&m->random, MIX_ITEMS)];
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
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER, IGNIS_TRANSPORT_HOST};
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

/* records that lie ---------------------------------------------------------------------------------------------------- */

static void reseal(const unsigned char *with, ignis__record_of_array *record)
{
    unsigned char secret[IGNIS__SECRET] = {0};
    memcpy(secret, with, IGNIS_TRANSPORT_TOKEN_BYTES);
    ignis__record_seal(secret, record, record->seal);
}

TEST(every_flipped_bit_of_a_record_is_seen)
{
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER, IGNIS_TRANSPORT_HOST};
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
            CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_FORMAT, IGNIS_DIAG_TRANSPORT_RECORD);
            if (test__state.failures)
                break;
        }
        memset(bad.record, 0, sizeof bad.record);
        CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_FORMAT, IGNIS_DIAG_TRANSPORT_RECORD);
        calls = fault_count("cuMemImportFromShareableHandle") + fault_count("cuIpcOpenMemHandle_v2") + fault_count("cuMemMap");
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
        CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_MISMATCH, IGNIS_DIAG_TRANSPORT_MISMATCH);
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
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_TRANSPORT_UNAVAILABLE);
    record = good;
    record.host++;
    reseal(token, &record);
    memcpy(bad.record, &record, sizeof record);
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_TRANSPORT_UNAVAILABLE);
    bad = handle;
    memset(&bad.memory, 0, sizeof bad.memory);
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_MISMATCH, IGNIS_DIAG_TRANSPORT_MISMATCH);
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
    case 12: record->offset = (int64_t)512 << 30, record->block_size = (int64_t)1 << 40, record->dim[0] = 2 << 20; break;
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
                CHECK_REFUSED(0, ignis_transport_import_handle(transport, told(&handle, &record)).id, IGNIS_ERROR_MISMATCH,
                              IGNIS_DIAG_TRANSPORT_MISMATCH);
                CHECK_INT(query(transport).imported, 1);
            }
            CHECK_INT(fault_count("cuMemMap") + fault_count("cuMemImportFromShareableHandle"), 0);
            record = good;
            record.serial++;
            if (!foreign)
                CHECK_REFUSED(0, ignis_transport_import_handle(transport, told(&handle, &record)).id, IGNIS_ERROR_MISMATCH,
                              IGNIS_DIAG_TRANSPORT_MISMATCH);
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
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER, IGNIS_TRANSPORT_HOST};
    static const int64_t numbers[] = {0, 1, -1, 4, 1 << 21, 1 << 22, INT64_MAX, INT64_MIN, (int64_t)1 << 40, (int64_t)1 << 32};
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
    CHECK_REFUSED(0, ignis_transport_import_handle(stranger, &handle).id, IGNIS_ERROR_FORMAT, IGNIS_DIAG_TRANSPORT_RECORD);
    CHECK_MESSAGE_HAS("token");
    CHECK_INT(ignis_transport_handle_fds(&handle, fds), 1);
    REQUIRE(pipe(pipes) == 0);
    bad = handle;
    ignis__vmm_handle_set_fd(&bad.memory, pipes[0]); /* T3: a pipe, a closed one, one of another size */
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_MISMATCH, IGNIS_DIAG_TRANSPORT_MISMATCH);
    close(pipes[0]);
    CHECK_REFUSED(0, ignis_transport_import_handle(transport, &bad).id, IGNIS_ERROR_MISMATCH, IGNIS_DIAG_TRANSPORT_MISMATCH);
    fds[0] = pipes[1];
    fds[1] = dup(pipes[1]);
    CHECK_STATUS(ignis_transport_handle_from_fds(&bad, handle.record, fds, 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
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

/* failures ------------------------------------------------------------------------------------------------------------ */

TEST(every_driver_call_may_fail)
{
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER, IGNIS_TRANSPORT_HOST};
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

/* two processes ------------------------------------------------------------------------------------------------------- */

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
static const char long_source[] = "extern \"C\" __global__ void watch(const volatile int *x, int *out, int first, int n, int ms)\n"
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
        if (ignis_transport_export_handle(transport, array, &handle) != IGNIS_OK || !send_handle(PROCESS_SOCKET, &handle) ||
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
    if (ignis_transport_receive_handle(transport, &handle) != IGNIS_OK || !ignis_transport_recv_with_handle(transport, &handle).id ||
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
        CHECK_REFUSED(0, ignis_transport_import_handle(transport, &late).id, IGNIS_ERROR_MISMATCH, IGNIS_DIAG_TRANSPORT_MISMATCH);
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
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER, IGNIS_TRANSPORT_HOST};
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
    static const ignis_transport_kind kinds[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_IPC, IGNIS_TRANSPORT_PEER, IGNIS_TRANSPORT_HOST};
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
