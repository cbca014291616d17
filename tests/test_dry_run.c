// SPDX-License-Identifier: MIT
/*  test_dry_run.c - programs that run without a device, and what memory is used for */
#define IGNIS_TRACE_CALLS
#include "tensor.h"

#include "ignis_collective.h"

#undef REQUIRE
#include "bench/models.h"
#undef REQUIRE

static ignis_desc dry_desc(void)
{
    ignis_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.dry_run = true;
    return desc;
}

TEST(a_dry_run_needs_no_libraries_and_is_a_device)
{
    ignis_desc desc = dry_desc();
    ignis_device_info facts, info;
    ignis_library_info library;
    memset(&facts, 0, sizeof facts);
    desc.cuda_library = desc.nvrtc_library = desc.cublas_library = "/nowhere";
    SETUP(&desc);
    CHECK_INT(ignis_device_count(), 1);
    CHECK_OK(ignis_device_query(0, &info));
    CHECK_INT(info.compute_major, 9);
    CHECK_INT(info.memory_total, (int64_t)139 << 30);
    CHECK_OK(ignis_library_query(IGNIS_LIBRARY_CUDA, &library));
    CHECK_TEXT(library.path, "dry run");
    CHECK_STATUS(ignis_device_use(1), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    CHECK_OK(ignis_shutdown());

    snprintf(facts.name, sizeof facts.name, "small");
    facts.compute_major = 7;
    facts.compute_minor = 5;
    facts.multiprocessors = 40;
    facts.memory_total = (int64_t)1 << 30;
    desc.dry_device = &facts;
    SETUP(&desc);
    CHECK_OK(ignis_device_query(0, &info));
    CHECK_TEXT(info.name, "small");
    CHECK_INT(10 * info.compute_major + info.compute_minor, 75);
    CHECK_INT(info.multiprocessors, 40);
    CHECK_INT(info.warp_size, 32);
    CHECK_INT(memory().device_total, (int64_t)1 << 30);
}

TEST(facts_of_a_dry_device_are_checked)
{
    ignis_desc desc = test_desc(NULL);
    ignis_device_info facts, info;
    desc.dry_run = true;
    desc.dry_device = &facts;
    memset(&facts, 0, sizeof facts);
    facts.memory_total = -1;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc.dry_device->memory_total is -1");
    facts.memory_total = 0;
    facts.multiprocessors = -2;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("desc.dry_device->multiprocessors is -2");
    facts.multiprocessors = 0;
    memset(facts.name, 'x', sizeof facts.name); /* without an end */
    memset(facts.pci_bus_id, 'y', sizeof facts.pci_bus_id);
    SETUP(&desc);
    CHECK_OK(ignis_device_query(0, &info));
    CHECK_INT(strlen(info.name), sizeof info.name - 1);
    CHECK_INT(strlen(info.pci_bus_id), sizeof info.pci_bus_id - 1);
}

TEST(what_a_dry_run_reads_is_zero)
{
    ignis_desc desc = dry_desc();
    double values[3] = {1, 2, 3};
    ignis_array_desc array_desc;
    ignis_array array, wrapped;
    ignis_tensor numbers, sum;
    ignis_ticket ticket;
    bool done = false;
    SETUP(&desc);
    numbers = tensor_of(values, IGNIS_SHAPE(3), IGNIS_F32, false);
    sum = ignis_sum(numbers);
    CHECK(ignis_item(sum) == 0);
    CHECK_OK(ignis_tensor_release(numbers));
    CHECK_OK(ignis_tensor_release(sum));
    array = test_array(1, 3);
    CHECK_OK(ignis_array_to_host(array, values, IGNIS_F64, 3));
    CHECK(values[0] == 0 && values[2] == 0);
    values[0] = 1;
    ticket = ignis_array_to_host_async(array, values, IGNIS_F64, 3);
    CHECK_OK(ignis_ticket_query(ticket, &done));
    CHECK(done);
    CHECK_OK(ignis_ticket_wait(ticket));
    CHECK(values[0] == 0);

    memset(&array_desc, 0, sizeof array_desc); /* its addresses are device memory, and end where the allocation does */
    array_desc.shape = IGNIS_SHAPE(3);
    array_desc.ptr = ignis_array_device_ptr(array);
    wrapped = ignis_array_create(&array_desc);
    CHECK(wrapped.id != 0);
    CHECK_OK(ignis_array_free(wrapped));
    array_desc.shape = IGNIS_SHAPE((int64_t)1 << 30);
    CHECK_INT(ignis_array_create(&array_desc).id, 0);
    CHECK_FAILS(ignis_array_create(&array_desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_OK(ignis_array_free(array));
}

static void *count_call(void *count)
{
    ++*(int *)count;
    return NULL;
}
static void call_back(void *count) { (void)count_call(count); }

TEST(kernels_streams_events_and_graphs_do_nothing_well)
{
    static const char source[] = "this is no CUDA, and nobody looks";
    ignis_desc desc = dry_desc();
    ignis_launch launch = test_launch(7, 32);
    ignis_occupancy occupancy;
    ignis_kernel kernel, entry;
    ignis_array array;
    ignis_arg arg;
    ignis_event event;
    ignis_graph graph;
    void *stream;
    double ms = -1;
    int calls = 0;
    float symbol = 1;
    SETUP(&desc);
    array = test_array(3, 5);
    arg = ignis_arg_array(array);
    kernel = test_compile(source, "any", NULL);
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
    CHECK_OK(ignis_kernel_set_symbol(kernel, "factor", &symbol, sizeof symbol));
    CHECK_OK(ignis_kernel_get_symbol(kernel, "factor", &symbol, sizeof symbol));
    CHECK(symbol == 0);
    entry = ignis_kernel_entry(kernel, "another");
    CHECK_OK(ignis_kernel_launch(entry, &launch, &arg, 1));
    CHECK_OK(ignis_kernel_occupancy(entry, 0, 0, &occupancy));
    CHECK(occupancy.block > 0 && occupancy.grid > 0);
    launch.cooperative = true;
    CHECK_OK(ignis_kernel_launch(entry, &launch, &arg, 1));
    launch.cooperative = false;
    CHECK_OK(ignis_kernel_free(entry));
    launch.block[0] = 2000;
    CHECK_STATUS(ignis_kernel_launch(kernel, &launch, &arg, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_LAUNCH_SIZE);
    launch.block[0] = 32;

    stream = ignis_stream_create(NULL);
    event = ignis_event_create();
    CHECK_OK(ignis_stream_use(stream));
    CHECK_OK(ignis_event_record(event, NULL));
    CHECK_OK(ignis_event_wait(event));
    CHECK_OK(ignis_event_elapsed_ms(event, event, &ms));
    CHECK(ms == 0);
    CHECK_OK(ignis_stream_call(NULL, call_back, &calls));
    CHECK_INT(calls, 1);

    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_array_fill(array, 2));
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
    CHECK_OK(ignis_stream_call(NULL, call_back, &calls));
    CHECK_STATUS(ignis_synchronize(), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    graph = ignis_graph_end();
    CHECK_INT(calls, 1);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_stream_use(NULL));
    CHECK_OK(ignis_stream_free(stream));
    CHECK_OK(ignis_event_free(event));
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_OK(ignis_array_free(array));
}

TEST(memory_runs_out_where_the_device_says)
{
    ignis_desc desc = dry_desc();
    ignis_device_info facts;
    ignis_array_desc array_desc;
    ignis_array half, other;
    memset(&facts, 0, sizeof facts);
    memset(&array_desc, 0, sizeof array_desc);
    facts.memory_total = (int64_t)64 << 20;
    desc.dry_device = &facts;
    SETUP(&desc);
    array_desc.shape = IGNIS_SHAPE((int64_t)40 << 20);
    array_desc.dtype = IGNIS_U8;
    half = ignis_array_create(&array_desc);
    other = ignis_array_create(&array_desc);
    CHECK_OK(ignis_array_to_device(half));
    CHECK_STATUS(ignis_array_to_device(other), IGNIS_ERROR_MEMORY, IGNIS_DIAG_DEVICE_MEMORY);
    CHECK_MESSAGE_HAS("has 24.0 MiB of 64.0 MiB free");
    CHECK_OK(ignis_array_free(half));
    CHECK_OK(ignis_array_to_device(other)); /* what was freed is there again */
    CHECK_OK(ignis_array_free(other));
    CHECK(ignis_memory_trim(0) >= 0);
    CHECK_INT(memory().device_free, (int64_t)64 << 20);
}

TEST(nothing_is_shared_in_a_dry_run)
{
    ignis_desc desc = dry_desc();
    SETUP(&desc);
    CHECK_INT(ignis_vmm_create(NULL).id, 0);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_UNSUPPORTED);
    CHECK_HAS(ignis_status_message(), "dry run");
    ignis_status_clear();
}

TEST(values_are_right_again_after_a_dry_run)
{
    ignis_desc desc = dry_desc();
    ignis_array array;
    SETUP(&desc);
    CHECK_OK(ignis_array_free(test_array(2, 3)));
    CHECK_OK(ignis_shutdown());
    SETUP(NULL);
    array = test_array(2, 3);
    test_check_series(array, 6, 0.0F, 1.0F);
    CHECK_OK(ignis_array_free(array));
}

/* --- peaks -------------------------------------------------------------------------------------------------------- */

/*  What bench/README.md says was measured had this optimizer, in place of gpt_optimize. */
static void optimize_as_measured(gpt *g)
{
    ignis_adamw_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.lr = 3e-4;
    desc.zero_grad = true;
    g->optimizer = ignis_adamw(&desc);
    for (i = 0; i < g->count; i++)
        CHECK_OK(ignis_optimizer_add(g->optimizer, g->all[i], g->decays[i]));
}

static ignis_memory_info gpt_peak(const gpt_shape *shape, void (*optimize)(gpt *))
{
    static gpt g;
    ignis_memory_info info;
    gpt_open(&g, shape);
    optimize(&g);
    gpt_step(&g);
    gpt_step(&g);
    info = memory();
    CHECK_OK(ignis_graph_begin());
    gpt_step(&g);
    g.graph = ignis_graph_end();
    CHECK_OK(ignis_graph_launch(g.graph));
    CHECK_OK(ignis_graph_free(g.graph));
    gpt_close(&g);
    return info;
}

static ignis_memory_info llama_peak(void)
{
    static llama l;
    ignis_memory_info info;
    llama_open(&l, &llama_shapes[0]);
    llama_optimize(&l);
    llama_step(&l);
    llama_step(&l);
    info = memory();
    llama_close(&l);
    return info;
}

/*  The same program, with own products as those of cuBLASLt ask for memory as they like, takes the same memory on the
    device and dry. */
TEST(the_peak_is_that_of_the_device)
{
    ignis_desc desc;
    ignis_device_info facts;
    ignis_memory_info wet, damp;
    int model;
    memset(&desc, 0, sizeof desc);
    desc.matmul = IGNIS_MATMUL_OWN;
    simulated = true; /* the sizes are tiny */
    for (model = 0; model < 2; model++) {
        desc.dry_run = false;
        desc.dry_device = NULL; /* facts are not known yet */
        SETUP(&desc);
        CHECK_OK(ignis_device_query(0, &facts));
        wet = model ? llama_peak() : gpt_peak(&gpt_124m, gpt_optimize);
        CHECK_OK(ignis_shutdown());
        desc.dry_run = true;
        desc.dry_device = &facts;
        SETUP(&desc);
        damp = model ? llama_peak() : gpt_peak(&gpt_124m, gpt_optimize);
        CHECK_OK(ignis_shutdown());
        CHECK_INT(damp.live_peak, wet.live_peak);
        CHECK_INT(damp.reserved_peak, wet.reserved_peak);
        CHECK_INT(damp.allocations, wet.allocations);
        CHECK_INT(damp.driver_allocations, wet.driver_allocations);
    }
}

static void check_measured(const ignis_memory_info *info, double gib)
{
    double peak = (double)info->reserved_peak / (1 << 30);
    char text[128];
    snprintf(text, sizeof text, "the peak is %.2f GiB, %.2f were measured", peak, gib);
    if (peak < 0.95 * gib || peak > 1.05 * gib)
        test__fail(__FILE__, __LINE__, text);
}

/*  The peaks that bench_training has measured on an H200: bench/README.md. */
TEST(peaks_of_models_are_those_measured)
{
    ignis_desc desc = dry_desc();
    ignis_memory_info info;
    if (test_is_bypass())
        SKIP("they were measured with the cache");
    simulated = false;
    SETUP(&desc);
    info = gpt_peak(&gpt_124m, optimize_as_measured);
    check_measured(&info, 14.3);
    CHECK_OK(ignis_shutdown());
    SETUP(&desc);
    info = gpt_peak(&gpt_1558m, optimize_as_measured);
    check_measured(&info, 46.8);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static const ignis_memory_row *row_of(const ignis_memory_row *rows, int count, const char *tag, const char *call)
{
    static const ignis_memory_row none;
    int i;
    for (i = 0; i < count; i++)
        if (strcmp(rows[i].tag, tag) == 0 && strcmp(rows[i].call, call) == 0)
            return &rows[i];
    CHECK_TEXT(tag, "to be found");
    return &none;
}

static void check_rows(bool traced)
{
    ignis_memory_row rows[16];
    const ignis_memory_row *row;
    ignis_array_desc desc;
    ignis_array a, b, view;
    int count, line, i;
    int64_t live = 0, peak = 0;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(1000);
    desc.tag = "weights";
    a = ignis_array_create(&desc), line = __LINE__;
    CHECK_INT(ignis_memory_rows(0, NULL, 0), 0); /* it has no memory yet */
    CHECK_OK(ignis_array_to_device(a));
    desc.tag = NULL;
    b = ignis_array_create(&desc);
    CHECK_OK(ignis_array_zero(b));
    view = ignis_array_slice(b, 0, 1, 2);
    CHECK_OK(ignis_array_free(b)); /* the view keeps the memory */
    count = ignis_memory_rows(0, rows, 16);
    CHECK_INT(count, 2);
    for (i = 0; i < count; i++) {
        live += rows[i].live_bytes;
        peak += rows[i].peak_bytes;
    }
    CHECK_INT(live, memory().live_bytes);
    CHECK_INT(peak, traced ? memory().live_peak : 0);
    row = row_of(rows, count, "weights", "ignis_array_create");
    CHECK(row->live_bytes >= 4000 && row->live_bytes <= 4096);
    CHECK_INT(row->live_blocks, 1);
    CHECK_TEXT(row->inside, "");
    CHECK_HAS(row->file, "test_dry_run.c");
    CHECK_INT(row->line, line);
    CHECK_INT(row_of(rows, count, "", "ignis_array_create")->live_blocks, 1);

    CHECK_OK(ignis_array_free(view));
    CHECK_OK(ignis_array_free(a));
    count = ignis_memory_rows(0, rows, 1);
    CHECK_INT(count, traced ? 2 : 0);
    if (traced) {
        CHECK_INT(rows[0].live_bytes + rows[0].live_blocks, 0);
        CHECK(rows[0].peak_bytes > 0);
    }
}

TEST(memory_is_counted_by_tag_call_and_line)
{
    ignis_desc desc;
    memset(&desc, 0, sizeof desc);
    SETUP(&desc);
    check_rows(test_env("IGNIS_TRACE_MEMORY"));
    CHECK_OK(ignis_shutdown());
    desc.trace_memory = true;
    SETUP(&desc);
    check_rows(true);
    CHECK_OK(ignis_shutdown());
    desc.dry_run = true;
    desc.trace_memory = false;
    SETUP(&desc);
    check_rows(true);
}

/*  Their results come by pointers. */
TEST(calls_that_return_a_status_are_traced)
{
    static const int64_t sizes[2] = {1, 99};
    ignis_memory_row rows[16];
    ignis_desc desc = dry_desc();
    ignis_scope scope;
    ignis_tensor x, results[2], parts[2];
    int count, line, split_line;
    SETUP(&desc);
    scope = ignis_scope_begin();
    x = tensor_noise(IGNIS_SHAPE(3, 100), IGNIS_F32, 1, false);
    CHECK_OK(ignis_map_many("x + 1, 2*x", IGNIS_INPUTS(x), 2, results)), line = __LINE__;
    CHECK_OK(ignis_split(x, 1, 2, sizes, parts)), split_line = __LINE__;
    count = ignis_memory_rows(0, rows, 16);
    CHECK_INT(row_of(rows, count, "", "ignis_map_many")->line, line);
    CHECK_INT(row_of(rows, count, "", "ignis_split")->line, split_line);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Rows of a step: what backward takes says so, and what all had at the peak adds up to the peak. */
TEST(rows_at_the_peak_add_up_to_it)
{
    static ignis_memory_row rows[256];
    ignis_desc desc = dry_desc();
    ignis_scope scope;
    ignis_tensor x, w;
    int64_t peak = 0;
    bool backward = false;
    int count, i;
    SETUP(&desc);
    x = tensor_noise(IGNIS_SHAPE(67, 129), IGNIS_F32, 1, false);
    w = tensor_noise(IGNIS_SHAPE(31, 129), IGNIS_F32, 2, true);
    for (i = 0; i < 3; i++) {
        scope = ignis_scope_begin();
        CHECK_OK(ignis_backward(ignis_sum(ignis_gelu(ignis_matmul_t(x, w))), IGNIS_NO_ARRAY));
        ignis_scope_end(scope);
    }
    count = ignis_memory_rows(0, rows, 256);
    for (i = 0; i < count && i < 256; i++) {
        peak += rows[i].peak_bytes;
        backward = backward || strcmp(rows[i].inside, "ignis_backward") == 0;
        CHECK(i == 0 || rows[i].peak_bytes <= rows[i - 1].peak_bytes);
    }
    CHECK_INT(peak, memory().live_peak);
    CHECK(backward);
    CHECK_OK(ignis_tensor_release(x));
    CHECK_OK(ignis_tensor_release(w));
}

TEST(rows_have_errors)
{
    ignis_desc desc = dry_desc();
    ignis_memory_row row;
    SETUP(&desc);
    CHECK_FAILS(ignis_memory_rows(0, &row, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_memory_rows(0, NULL, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_memory_rows(1, &row, 1), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
}

/* --- counts, ranks and sizes from the caller ---------------------------------------------------------------------- */

/*  In this lane of the sanitizers no product of such numbers may overflow before it is checked, and nothing is read or
    written by a rank that is another input's. A call either gives a tensor, or none and a failure. */
static void settle(int line, ignis_tensor made)
{
    char what[80];
    if ((made.id == 0) != (ignis_status_last() != IGNIS_OK)) {
        snprintf(what, sizeof what, "line %d: tensor %d, status %d", line, made.id != 0, (int)ignis_status_last());
        test__fail(__FILE__, line, what);
    }
    ignis_status_clear();
    if (made.id)
        let_go(made);
}
#define SETTLE(call) settle(__LINE__, call)
#define REFUSED(call) refused(__LINE__, (call).id)
static void refused(int line, uint64_t made)
{
    if (made != 0 || ignis_status_last() == IGNIS_OK)
        test__fail(__FILE__, line, "what has to be refused is not");
    ignis_status_clear();
}

static void say_nothing(ignis_log_level level, ignis_diagnostic diagnostic, const char *message, void *user_data)
{
    (void)level, (void)diagnostic, (void)message, (void)user_data;
}

/*  A dry run whose failures, which are many, are not printed. */
static ignis_desc quiet_desc(void)
{
    ignis_desc desc = dry_desc();
    desc.logger.log_fn = say_nothing;
    return desc;
}

static ignis_shape twos(int ndim)
{
    ignis_shape shape;
    int i;
    shape.ndim = ndim;
    for (i = 0; i < IGNIS_MAX_DIMS; i++)
        shape.dim[i] = 2;
    return shape;
}

TEST(inputs_of_different_rank)
{
    ignis_desc desc = quiet_desc();
    ignis_tensor_desc integers = {0};
    int a, b, c, dim;
    SETUP(&desc);
    integers.dtype = IGNIS_I32;
    for (a = 1; a <= IGNIS_MAX_DIMS; a++)
        for (b = 1; b <= IGNIS_MAX_DIMS; b++) {
            ignis_tensor x = ignis_tensor_zeros(twos(a), NULL), y = ignis_tensor_zeros(twos(b), NULL), many[20],
                         each[9];
            ignis_tensor ids = ignis_tensor_zeros(twos(b), &integers), w = ignis_tensor_zeros(IGNIS_SHAPE(2), NULL);
            ignis_conv_desc conv;
            ignis_rope_desc rope;
            memset(&conv, 0, sizeof conv), memset(&rope, 0, sizeof rope);
            for (c = 0; c < 20; c++)
                many[c] = c == 19 || (c == 7 && a < b) ? y : x;
            for (c = 0; c < 9; c++)
                each[c] = ids;
            for (dim = -9; dim <= 9; dim++) {
                int count;
                for (count = 1; count <= 20; count += count == 1 ? 1 : 6) {
                    ignis_tensor two[2];
                    two[0] = x, two[1] = y;
                    SETTLE(ignis_stack(count == 2 ? two : many, count, dim));
                    SETTLE(ignis_concat(count == 2 ? two : many, count, dim));
                    if (a != b && (count == 2 || count == 20)) {
                        REFUSED(ignis_stack(count == 2 ? two : many, count, dim));
                        REFUSED(ignis_concat(count == 2 ? two : many, count, dim));
                    }
                }
                SETTLE(ignis_gather(x, dim, ids));
                SETTLE(ignis_index_select(x, dim, ids));
                SETTLE(ignis_scatter_add(x, dim, ids, y));
                SETTLE(ignis_scatter_add(x, dim, ids, x));
                SETTLE(ignis_scatter(x, dim, ids, y)), SETTLE(ignis_index_put(x, each, dim, y, false));
            }
            SETTLE(ignis_beta(x, y)), SETTLE(ignis_categorical(x, a, true)), SETTLE(ignis_categorical(x, b, false));
            SETTLE(ignis_nonzero(x)), SETTLE(ignis_masked_select(x, y)), SETTLE(ignis_unique(x, &w, NULL));
            w = ignis_tensor_zeros(IGNIS_SHAPE(2), NULL);
            SETTLE(ignis_searchsorted(x, y, true)), SETTLE(ignis_bincount(ids, y, 3)),
                SETTLE(ignis_histogram_edges(x, y));
            SETTLE(ignis_matmul(x, y)), SETTLE(ignis_matmul_t(x, y)), SETTLE(ignis_linear(x, y, w)),
                SETTLE(ignis_linear(x, w, y));
            SETTLE(ignis_mlp(x, y, w, y, w, IGNIS_ACTIVATION_RELU)), SETTLE(ignis_mlp_gated(x, y, y, x));
            SETTLE(ignis_conv1d(x, y, w, &conv)), SETTLE(ignis_conv2d(x, y, w, &conv)),
                SETTLE(ignis_conv2d(x, x, y, &conv));
            SETTLE(ignis_add(x, y)), SETTLE(ignis_mul(x, y)), SETTLE(ignis_add_bias(x, y)),
                SETTLE(ignis_silu_mul(x, y));
            SETTLE(ignis_map("x*y", IGNIS_INPUTS(x, y))), SETTLE(ignis_map_sum("x*y", IGNIS_INPUTS(x, y)));
            SETTLE(ignis_expand(x, twos(b)));
            SETTLE(ignis_layer_norm(x, y, w, 0)), SETTLE(ignis_layer_norm(x, w, y, 0)), SETTLE(ignis_rms_norm(x, y, 0));
            SETTLE(ignis_add_layer_norm(x, y, w, w, 0, NULL)), SETTLE(ignis_add_rms_norm(x, y, w, 0, NULL));
            SETTLE(ignis_batch_norm(x, y, w, NULL)), SETTLE(ignis_group_norm(x, 1, w, y, 0));
            SETTLE(ignis_embedding(x, ids)), SETTLE(ignis_rope(x, &rope));
            SETTLE(ignis_mse_loss(x, y, IGNIS_REDUCTION_MEAN)), SETTLE(ignis_l1_loss(x, y, IGNIS_REDUCTION_NONE));
            SETTLE(ignis_huber_loss(x, y, 1, IGNIS_REDUCTION_SUM)), SETTLE(ignis_bce_with_logits(x, y, NULL));
            SETTLE(ignis_kl_div(x, y, false, IGNIS_REDUCTION_MEAN)), SETTLE(ignis_cosine_similarity(x, y));
            SETTLE(ignis_cross_entropy(x, ids, NULL)), SETTLE(ignis_nll_loss(x, ids, NULL));
            SETTLE(ignis_linear_cross_entropy(x, y, ids, NULL)), SETTLE(ignis_linear_cross_entropy(y, x, ids, NULL));
            SETTLE(ignis_sdpa(x, y, y, NULL)), SETTLE(ignis_sdpa(x, x, y, NULL)), SETTLE(ignis_decode_sdpa(x, y, x, 1));
            let_go(x), let_go(y), let_go(ids), let_go(w);
        }
}

TEST(extreme_counts_and_sizes)
{
    static const int64_t wide[] = {
        0, -1, 1, INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, (int64_t)1 << 62, (int64_t)1 << 40, -((int64_t)1 << 40)};
    static const int narrow[] = {0, -1, 1, INT32_MAX, INT32_MIN, 9, 1 << 30};
    ignis_desc desc = quiet_desc();
    ignis_tensor_desc integers = {0};
    ignis_tensor x, y, ids, pair, w, empty, image, parts[3];
    int i, k;
    SETUP(&desc);
    integers.dtype = IGNIS_I32;
    x = ignis_tensor_zeros(IGNIS_SHAPE(2, 4), NULL), y = ignis_tensor_zeros(IGNIS_SHAPE(1, 4), NULL),
    w = ignis_tensor_zeros(IGNIS_SHAPE(4), NULL);
    ids = ignis_tensor_zeros(IGNIS_SHAPE(1), &integers), pair = ignis_tensor_zeros(IGNIS_SHAPE(2), &integers);
    empty =
        ignis_tensor_zeros(IGNIS_SHAPE((int64_t)1 << 40, 0, 4), NULL); /* no elements, and large sizes all the same */
    image = ignis_tensor_zeros(IGNIS_SHAPE(1, 4, 4, 4), NULL);
    for (i = 0; i < (int)(sizeof narrow / sizeof narrow[0]); i++) {
        int n = narrow[i], dims[8] = {0, 1, 0, 0, 0, 0, 0, 0};
        int64_t pads[8] = {0};
        ignis_shape shape = twos(n);
        ignis_conv_desc conv;
        memset(&conv, 0, sizeof conv);
        if (n < 1 || n > IGNIS_MAX_DIMS) {
            REFUSED(ignis_expand(y, shape)), REFUSED(ignis_reshape(x, shape)), REFUSED(ignis_tensor_zeros(shape, NULL));
            REFUSED(ignis_tensor_ones(shape, NULL)), REFUSED(ignis_tensor_rand(shape, NULL)),
                REFUSED(ignis_tensor_randn(shape, NULL));
            REFUSED(ignis_tensor_from_host(pads, shape, NULL)),
                REFUSED(ignis_array_reshape(ignis_tensor_data(x), shape));
            REFUSED(ignis_permute(x, dims, n));
        }
        if (n < 1) {
            REFUSED(ignis_stack(parts, n, 0)), REFUSED(ignis_concat(parts, n, 0)),
                REFUSED(ignis_group_norm(image, n, w, w, 0));
            REFUSED(ignis_mlp_layers(x, parts, parts, n, IGNIS_ACTIVATION_RELU));
            REFUSED(ignis_group_norm(empty, n, w, w, 0));
            if (n < 0)
                REFUSED(ignis_pad(x, pads, pads, n, 0)), REFUSED(ignis_flip(x, dims, n));
            CHECK(ignis_split(x, 0, n, pads, parts) != IGNIS_OK);
            CHECK(ignis_map_many("1", IGNIS_INPUTS(x), n, parts) != IGNIS_OK);
            ignis_status_clear();
        }
        SETTLE(ignis_group_norm(image, n, w, w, 0)), SETTLE(ignis_group_norm(empty, n, w, w, 0));
        SETTLE(ignis_sum_dim(x, n)), SETTLE(ignis_mean_dim(x, n)), SETTLE(ignis_cumsum(x, n)),
            SETTLE(ignis_cumprod(x, n)), SETTLE(ignis_logcumsumexp(x, n)), SETTLE(ignis_cummax(x, n, NULL)),
            SETTLE(ignis_cummin(x, n, NULL)), SETTLE(ignis_transpose(x, n, 0));
        SETTLE(ignis_transpose(x, 0, n)), SETTLE(ignis_slice(x, n, 0, 1)), SETTLE(ignis_sort(x, n, false, NULL)),
            SETTLE(ignis_topk(x, 1, n, true, NULL));
        SETTLE(ignis_stack(&x, 1, n)), SETTLE(ignis_concat(&x, 1, n)), SETTLE(ignis_gather(x, n, ids)),
            SETTLE(ignis_index_select(x, n, ids));
        SETTLE(ignis_decode_sdpa(image, image, image, n));
        for (k = 0; k < (int)(sizeof narrow / sizeof narrow[0]); k++) {
            ignis_sdpa_desc sdpa;
            ignis_rope_desc rope;
            ignis_reduce_desc reduce;
            memset(&sdpa, 0, sizeof sdpa), memset(&rope, 0, sizeof rope), memset(&reduce, 0, sizeof reduce);
            sdpa.num_heads = n, sdpa.num_kv_heads = narrow[k], sdpa.window = narrow[(i + k) % 7];
            rope.num_heads = n, rope.inv_freq_count = narrow[k], rope.pos_offset = wide[k];
            reduce.dims[0] = n, reduce.dim_count = narrow[k];
            SETTLE(ignis_sdpa(x, x, x, &sdpa));
            SETTLE(ignis_rope(x, &rope));
            SETTLE(ignis_map_reduce(IGNIS_REDUCE_MAX, "x", IGNIS_INPUTS(x), &reduce));
        }
        for (k = 0; k < (int)(sizeof narrow / sizeof narrow[0]); k++) {
            conv.stride[0] = conv.stride[1] = n > 0 ? n : 1, conv.padding[0] = conv.padding[1] = narrow[k];
            SETTLE(ignis_conv2d(image, image, no_tensor(), &conv)),
                SETTLE(ignis_conv1d(empty, empty, no_tensor(), &conv));
            memset(&conv, 0, sizeof conv);
            conv.dilation[0] = conv.dilation[1] = n, conv.groups = narrow[k];
            SETTLE(ignis_conv2d(image, image, no_tensor(), &conv)),
                SETTLE(ignis_conv1d(empty, empty, no_tensor(), &conv));
        }
    }
    for (i = 0; i < (int)(sizeof wide / sizeof wide[0]); i++)
        for (k = 0; k < (int)(sizeof wide / sizeof wide[0]); k++) {
            int64_t n = wide[i], m = wide[k], before[2], after[2];
            ignis_pool_desc pool;
            ignis_upsample_desc up;
            ignis_cross_entropy_desc entropy;
            ignis_array slice;
            ignis_tensor made, more;
            if (n < 0)
                REFUSED(ignis_tensor_linspace(0, 1, n, NULL)), REFUSED(ignis_one_hot(ids, n, IGNIS_U8));
            SETTLE(ignis_tensor_linspace(0, 1, n, NULL)), SETTLE(ignis_one_hot(ids, n, IGNIS_F32)),
                SETTLE(ignis_tensor_eye(n, m, NULL));
            SETTLE(ignis_slice(x, 0, n, m)), SETTLE(ignis_slice_step(x, 0, n, m, 1)),
                SETTLE(ignis_slice_step(x, 1, 0, n, m));
            SETTLE(ignis_slice_step(x, 1, n, 2, m)), SETTLE(ignis_topk(x, n, -1, true, NULL)), SETTLE(ignis_tril(x, n)),
                SETTLE(ignis_triu(x, n));
            before[0] = n, before[1] = 0, after[0] = m, after[1] = 0;
            SETTLE(ignis_pad(x, before, after, 1, 0)), SETTLE(ignis_pad(x, before, after, 2, 0)),
                SETTLE(ignis_pad(empty, before, after, 2, 0));
            before[1] = m;
            (void)ignis_split(x, 1, 2, before, parts), ignis_status_clear();
            SETTLE(ignis_expand(y, IGNIS_SHAPE(n, m))), SETTLE(ignis_expand(y, IGNIS_SHAPE(n, m, 4))),
                SETTLE(ignis_reshape(x, IGNIS_SHAPE(n, m)));
            SETTLE(ignis_reshape(empty, IGNIS_SHAPE(n, m, 0)));
            memset(&entropy, 0, sizeof entropy);
            entropy.classes = n, entropy.chunk = entropy.ignore_index = m;
            SETTLE(ignis_cross_entropy(x, pair, &entropy)), SETTLE(ignis_nll_loss(x, pair, &entropy));
            SETTLE(ignis_linear_cross_entropy(x, x, pair, &entropy));
            slice = ignis_array_slice(ignis_tensor_data(x), narrow[i % 7], n, m), ignis_status_clear();
            if (slice.id)
                drop(slice);
            made = ignis_tensor_zeros(IGNIS_SHAPE(n, m), NULL), ignis_status_clear();
            if (made.id) {
                ignis_tensor two[3];
                two[0] = two[1] = two[2] = made;
                SETTLE(ignis_concat(two, 3, 0)), SETTLE(ignis_concat(two, 3, 1)), SETTLE(ignis_stack(two, 3, 0)),
                    SETTLE(ignis_matmul_t(made, made));
                SETTLE(ignis_matmul(made, x)), SETTLE(ignis_sum_dim(made, 0)), SETTLE(ignis_sum_dim(made, 1)),
                    SETTLE(ignis_softmax(made));
                SETTLE(ignis_cumsum(made, 1)), SETTLE(ignis_sort(made, 0, true, NULL)),
                    SETTLE(ignis_map("made + y", IGNIS_INPUTS(made, y)));
                more = ignis_tensor_zeros(IGNIS_SHAPE(m), NULL), ignis_status_clear();
                if (more.id)
                    SETTLE(ignis_layer_norm(made, more, more, 0)), SETTLE(ignis_rms_norm(made, more, 0)),
                        SETTLE(ignis_batch_norm(made, more, more, NULL)), let_go(more);
                let_go(made);
            }
            memset(&pool, 0, sizeof pool), memset(&up, 0, sizeof up);
            pool.window[0] = pool.window[1] = (int)(n % INT32_MAX),
            pool.stride[0] = pool.stride[1] = (int)(m % INT32_MAX);
            SETTLE(ignis_max_pool(image, &pool)), SETTLE(ignis_avg_pool(image, &pool)),
                SETTLE(ignis_avg_pool(empty, &pool));
            pool.window[0] = pool.window[1] = 2, pool.stride[0] = (int)(n % INT32_MAX),
            pool.padding[0] = pool.padding[1] = (int)(m % INT32_MAX), pool.ceil_mode = true;
            SETTLE(ignis_max_pool(image, &pool)), SETTLE(ignis_avg_pool(image, &pool));
            up.size[0] = n, up.size[1] = m;
            SETTLE(ignis_upsample(image, &up)), SETTLE(ignis_upsample(empty, &up));
        }
    let_go(x), let_go(y), let_go(ids), let_go(pair), let_go(w), let_go(empty), let_go(image);
}

/*  What a stride is does not set how long a backward takes: launches are as many as phases that patches meet, which are
    those of taps. */
TEST(strides_of_convolutions_cost_nothing)
{
    static const struct {
        int64_t in, kernel;
        int stride, padding, dilation;
    } table[] = {{4, 2, 1 << 30, 0, 1},
                 {4, 2, INT32_MAX, 0, 1},
                 {1 << 12, 3, 1 << 12, 1, 1},
                 {1 << 12, 3, (1 << 12) - 1, 1, 5},
                 {1 << 12, 2, 1 << 11, 0, 1024},
                 {5, 3, 1 << 30, 1 << 20, 1},
                 {64, 2, 1 << 30, 1 << 28, 1 << 20}};
    ignis_desc desc = dry_desc();
    ignis_tensor_desc grad = {0};
    int k;
    SETUP(&desc);
    grad.requires_grad = true;
    for (k = 0; k < 7; k++) {
        ignis_conv_desc conv;
        ignis_tensor x = ignis_tensor_zeros(IGNIS_SHAPE(1, table[k].in, table[k].in, 1), &grad),
                     w = ignis_tensor_zeros(IGNIS_SHAPE(1, table[k].kernel, table[k].kernel, 1), &grad);
        ignis_scope scope = ignis_scope_begin();
        memset(&conv, 0, sizeof conv);
        conv.stride[0] = conv.stride[1] = table[k].stride, conv.padding[0] = conv.padding[1] = table[k].padding;
        conv.dilation[0] = conv.dilation[1] = table[k].dilation;
        CHECK_OK(ignis_backward(ignis_sum(ignis_conv2d(x, w, no_tensor(), &conv)), IGNIS_NO_ARRAY));
        CHECK_OK(ignis_scope_end(scope));
        let_go(x), let_go(w);
    }
}

int main(int argc, char **argv) { return test_run(argc, argv); }
