// SPDX-License-Identifier: MIT
/*  test_handles.c - the functions of ignis_models.h and ignis_collective.h, without a setup and without a handle

    tests/base/test_status.c has those of ignis.h without a setup. */
#include "test.h"

#include "ignis_collective.h"
#include "ignis_models.h"

/*  Checks that the call before it has failed so, and clears its failure. */
static void check_failed(int line, const char *call, ignis_status expected)
{
    ignis_status_info info;
    size_t length = strcspn(call, "(");
    ignis_status_query(&info);
    if (info.status != expected || strlen(info.call) != length || strncmp(info.call, call, length) != 0)
        test__check_text(__FILE__, line, call, info.message, ignis_status_name(expected), true);
    ignis_status_clear();
}
#define FAILS(call) ((void)(call), check_failed(__LINE__, #call, expected))

static const ignis_array no_array = {0};

/*  Calls what takes a handle, each with none. */
static void call_channels(ignis_status expected)
{
    static const ignis_channel channel = {0};
    ignis_channel_info info;
    int64_t size;
    int count;
    char data[4] = "";
    FAILS(ignis_channel_accept(channel));
    FAILS(ignis_channel_accept_within(channel, 1));
    FAILS(ignis_channel_send(channel, data, 1, NULL, 0));
    FAILS(ignis_channel_send_within(channel, data, 1, NULL, 0, 1));
    FAILS(ignis_channel_receive(channel, data, sizeof data, &size, NULL, 0, &count));
    FAILS(ignis_channel_receive_within(channel, data, sizeof data, &size, NULL, 0, &count, 1));
    FAILS(ignis_channel_query(channel, &info));
    FAILS(ignis_share_send(channel, no_array));
    FAILS(ignis_share_receive(channel));
    CHECK_OK(ignis_channel_close(channel));
}

static void call_communicators(ignis_status expected)
{
    static const ignis_comm comm = {0};
    static const ignis_parallel parallel = {0};
    static const ignis_tensor tensor = {0};
    ignis_comm_info info;
    ignis_parallel_info facts;
    int rank = 0;
    FAILS(ignis_comm_split(comm, 0, 0));
    FAILS(ignis_comm_shrink(comm));
    FAILS(ignis_comm_shrink_without(comm, &rank, 1));
    FAILS(ignis_comm_abort(comm));
    FAILS(ignis_comm_query(comm, &info));
    FAILS(ignis_comm_all_reduce(comm, no_array, no_array, IGNIS_OP_SUM));
    FAILS(ignis_comm_reduce(comm, no_array, no_array, IGNIS_OP_SUM, 0));
    FAILS(ignis_comm_broadcast(comm, no_array, 0));
    FAILS(ignis_comm_all_gather(comm, no_array, no_array));
    FAILS(ignis_comm_reduce_scatter(comm, no_array, no_array, IGNIS_OP_SUM));
    FAILS(ignis_comm_all_to_all(comm, no_array, no_array));
    FAILS(ignis_comm_send(comm, no_array, 0));
    FAILS(ignis_comm_recv(comm, no_array, 0));
    FAILS(ignis_comm_send_recv(comm, no_array, 0, no_array, 0));
    FAILS(ignis_comm_barrier(comm));
    FAILS(ignis_comm_synchronize(comm));
    FAILS(ignis_comm_status(comm));
    FAILS(ignis_comm_parallel(comm));
    FAILS(ignis_parallel_create(comm, &tensor, 1, NULL));
    FAILS(ignis_parallel_no_sync_begin(parallel));
    FAILS(ignis_parallel_no_sync_end(parallel));
    FAILS(ignis_parallel_query(parallel, &facts));
    CHECK_OK(ignis_parallel_free(parallel));
    CHECK_OK(ignis_comm_destroy(comm));
}

static void call_transports(ignis_status expected)
{
    static const ignis_transport transport = {0};
    ignis_transport_info info;
    ignis_transport_handle handle;
    char text[64];
    int fds[2];
    memset(&handle, 0, sizeof handle);
    FAILS(ignis_transport_initialize(transport));
    FAILS(ignis_transport_query(transport, &info));
    FAILS(ignis_transport_to_string(transport, text, sizeof text));
    FAILS(ignis_transport_export_handle(transport, no_array, &handle));
    FAILS(ignis_transport_exported_handle(transport, &handle));
    FAILS(ignis_transport_import_handle(transport, &handle));
    FAILS(ignis_transport_recv_with_handle(transport, &handle));
    FAILS(ignis_transport_send(transport, no_array, &handle));
    FAILS(ignis_transport_send_async(transport, no_array, &handle));
    FAILS(ignis_transport_recv(transport, no_array));
    FAILS(ignis_transport_recv_async(transport, no_array));
    FAILS(ignis_transport_receive_handle(transport, &handle));
    FAILS(ignis_transport_synchronize(transport));
    FAILS(ignis_transport_measure(transport, 1));
    FAILS(ignis_transport_ready(transport));
    CHECK_INT(ignis_transport_handle_fds(NULL, fds), 0);
    CHECK_INT(ignis_transport_handle_fds(&handle, NULL), 0);
    CHECK_OK(ignis_transport_handle_close(NULL));
    CHECK_OK(ignis_transport_release_handle(transport, no_array));
    FAILS(ignis_transport_close_imported_handle(transport, no_array));
    CHECK_OK(ignis_transport_destroy(transport));
}

static void call_vmm(ignis_status expected)
{
    static const ignis_vmm vmm = {0};
    static const ignis_vmm_range range = {0};
    ignis_array_desc desc;
    ignis_vmm_info info;
    ignis_vmm_range_info facts;
    ignis_vmm_handle handle;
    ignis_vmm_access access;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(1);
    FAILS(ignis_vmm_query(vmm, &info));
    FAILS(ignis_vmm_range_query(range, &facts));
    FAILS(ignis_vmm_map(range, 0, vmm));
    FAILS(ignis_vmm_unmap(range, 0));
    FAILS(ignis_vmm_set_access(range, 0, 1, 0, IGNIS_VMM_ACCESS_READ_WRITE));
    FAILS(ignis_vmm_get_access(range, 0, 0, &access));
    FAILS(ignis_vmm_export(vmm, &handle));
    FAILS(ignis_vmm_array_map(range, 0, &desc));
    FAILS(ignis_vmm_of_array(no_array, NULL));
    CHECK_OK(ignis_vmm_handle_close(NULL));
    CHECK_OK(ignis_vmm_unreserve(range));
    CHECK_OK(ignis_vmm_free(vmm));
}

static void call_models(ignis_status expected)
{
    static const ignis_tokenizer tokenizer = {0};
    static const ignis_model model = {0};
    static const ignis_lora lora = {0};
    static const ignis_tensor tensor = {0};
    ignis_tokenizer_info words;
    ignis_model_info facts;
    ignis_lora_info info;
    ignis_tensor weight;
    int32_t id = 0;
    char text[8] = "a";
    FAILS(ignis_tokenizer_query(tokenizer, &words));
    FAILS(ignis_tokenizer_encode(tokenizer, text, 1, NULL, &id, 1));
    FAILS(ignis_tokenizer_decode(tokenizer, &id, 1, NULL, text, sizeof text));
    FAILS(ignis_tokenizer_piece(tokenizer, id, text, sizeof text));
    FAILS(ignis_model_query(model, &facts));
    FAILS(ignis_model_tensor(model, "a"));
    FAILS(ignis_model_tokenizer(model));
    FAILS(ignis_model_weights(model, &weight, 1));
    FAILS(ignis_model_forward(model, tensor));
    FAILS(ignis_model_save(model, "/nowhere"));
    FAILS(ignis_model_warmup(model, NULL));
    FAILS(ignis_model_set_lora(model, lora));
    FAILS(ignis_lora_create(model, NULL));
    FAILS(ignis_lora_open(model, "/nowhere"));
    FAILS(ignis_lora_query(lora, &info));
    FAILS(ignis_lora_weights(lora, &weight, 1));
    FAILS(ignis_lora_save(lora, "/nowhere"));
    FAILS(ignis_lora_merge(lora));
    CHECK_OK(ignis_lora_free(lora));
    CHECK_OK(ignis_model_free(model));
    CHECK_OK(ignis_tokenizer_free(tokenizer));
}

static void call_sequences(ignis_status expected)
{
    static const ignis_model model = {0};
    static const ignis_sequence sequence = {0};
    static const ignis_message message = {0};
    ignis_sequence_info info;
    ignis_prefix_info prefixes;
    ignis_generate_desc desc;
    float logits[4];
    int32_t id = 0;
    memset(&desc, 0, sizeof desc);
    FAILS(ignis_sequence_begin(model));
    FAILS(ignis_sequence_feed(sequence, &id, 1));
    FAILS(ignis_sequence_next(sequence, NULL));
    FAILS(ignis_sequence_next_all(&sequence, 1, NULL, &id));
    FAILS(ignis_sequence_logits(sequence, logits, 4));
    FAILS(ignis_sequence_length(sequence));
    FAILS(ignis_sequence_query(sequence, &info));
    FAILS(ignis_sequence_ids(sequence, &id, 1));
    FAILS(ignis_sequence_truncate(sequence, 0));
    FAILS(ignis_sequence_fork(sequence));
    FAILS(ignis_sequence_share_prefix(sequence, NULL));
    FAILS(ignis_model_prefixes(model, &prefixes));
    FAILS(ignis_model_drop_prefixes(model));
    FAILS(ignis_sequence_grammar(sequence, "root ::= \"a\""));
    FAILS(ignis_sequence_set(sequence, &id, 1));
    FAILS(ignis_sequence_chat(sequence, &message, 1));
    FAILS(ignis_sequence_text(sequence, "a", 1));
    FAILS(ignis_generate(sequence, &desc));
    CHECK_OK(ignis_sequence_free(sequence));
}

static void call_all(ignis_status expected)
{
    call_channels(expected);
    call_communicators(expected);
    call_transports(expected);
    call_vmm(expected);
    call_models(expected);
    call_sequences(expected);
}

TEST(without_a_setup)
{
    const ignis_status expected = IGNIS_ERROR_NOT_SETUP;
    ignis_comm_id id;
    ignis_comm comm;
    ignis_vmm_handle handle;
    int device = 0;
    memset(&handle, 0, sizeof handle);
    call_all(expected);
    FAILS(ignis_channel_serve(NULL));
    FAILS(ignis_channel_connect(NULL));
    FAILS(ignis_comm_init(NULL));
    FAILS(ignis_comm_unique_id(&id));
    FAILS(ignis_comm_init_all(&comm, &device, 1, NULL));
    FAILS(ignis_transport_create(NULL));
    FAILS(ignis_ipc_array(NULL));
    FAILS(ignis_vmm_granularity(0, true));
    FAILS(ignis_vmm_create(NULL));
    FAILS(ignis_vmm_reserve(1, 0));
    FAILS(ignis_vmm_import(&handle, 1, 0));
    FAILS(ignis_vmm_array(NULL));
    FAILS(ignis_vmm_check(1, "a context"));
    FAILS(ignis_tokenizer_open("/nowhere"));
    FAILS(ignis_model_open(NULL));
}

TEST(without_a_handle)
{
    SETUP(NULL);
    call_all(IGNIS_ERROR_FREED);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
