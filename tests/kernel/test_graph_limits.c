// SPDX-License-Identifier: MIT
/*  test_graph_limits.c - CUDA graphs: what is refused during a capture, other threads, failures */
#include "fault.h"

#include "graphs.h"

#include <math.h>

enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY */

/* --- what is refused ---------------------------------------------------------------------------------------------- */

TEST(what_waits_is_refused_and_the_capture_goes_on)
{
    static const char source[] = "extern \"C\" __global__ void nothing(int n) {}";
    ignis_tensor x, y, one;
    ignis_tensor_desc with_gradient = tensor_desc(IGNIS_F32, true);
    ignis_optimizer optimizer;
    ignis_kernel kernel;
    ignis_graph graph, other;
    float values[4] = {0, 0, 0, 0};
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    one = ignis_tensor_ones(IGNIS_SHAPE(1), &with_gradient);
    optimizer = ignis_adamw(NULL);
    kernel = test_compile(source, "nothing", NULL);
    CHECK_OK(ignis_graph_begin());
    other = ignis_graph_end();
    CHECK_OK(ignis_graph_begin());
    y = ignis_scale(x, 2);
    CHECK_STATUS(ignis_tensor_to_host(x, values, IGNIS_F32, 4), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_tensor_to_host(y, values, IGNIS_F32, 4), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_FAILS(ignis_item(one), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_MESSAGE_HAS("captur");
    CHECK_STATUS(ignis_array_to_host(ignis_tensor_data(x), values, IGNIS_F32, 4), IGNIS_ERROR_UNSUPPORTED,
                 IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_array_from_host(ignis_tensor_data(x), values, IGNIS_F32, 4), IGNIS_ERROR_UNSUPPORTED,
                 IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_FAILS(ignis_tensor_from_host(values, IGNIS_SHAPE(4), NULL), IGNIS_ERROR_UNSUPPORTED,
                IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_synchronize(), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_kernel_free(kernel), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_graph_free(other), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_optimizer_add(optimizer, one, true), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_graph_begin(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CAPTURE_STATE);
    CHECK_FAILS(ignis_reshape(x, IGNIS_SHAPE(3)), IGNIS_ERROR_SHAPE,
                IGNIS_DIAG_SHAPE_DIFFERS); /* a failure of another kind */
    {
        ignis_tensor z = ignis_scale(y, 5);
        graph = ignis_graph_end();
        REQUIRE(graph.id != 0);
        CHECK_OK(ignis_graph_launch(graph));
        CHECK_NUMBER(value_at(y, 3), 8);
        CHECK_NUMBER(value_at(z, 3), 40);
        let_go(z);
    }
    CHECK_NUMBER(value_at(x, 3), 4);
    CHECK_FAILS(ignis_graph_end(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CAPTURE_STATE);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_graph_free(other));
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_OK(ignis_optimizer_free(optimizer));
    let_go(x), let_go(y), let_go(one);
    CHECK_INT(memory().live_blocks, 0);
}

/*  CUDA refuses a launch into a stream that is captured, and spoils the capture. */
TEST(a_graph_inside_another_is_refused_and_the_capture_goes_on)
{
    ignis_tensor x, y, z;
    ignis_graph inner, outer;
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    CHECK_OK(ignis_graph_begin());
    y = ignis_scale(x, 2);
    inner = ignis_graph_end();
    CHECK_OK(ignis_graph_begin());
    fault_reset_counts();
    CHECK_STATUS(ignis_graph_launch(inner), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_MESSAGE_HAS("capture the same work again");
    CHECK_INT(fault_count("cuGraphLaunch"), 0);
    z = ignis_scale(y, 3);
    outer = ignis_graph_end();
    REQUIRE(outer.id != 0);
    CHECK_OK(ignis_graph_launch(inner));
    CHECK_OK(ignis_graph_launch(outer));
    CHECK_NUMBER(value_at(z, 3), 24);
    CHECK_OK(ignis_graph_free(inner));
    CHECK_OK(ignis_graph_free(outer));
    let_go(x), let_go(y), let_go(z);
    CHECK_INT(memory().live_blocks, 0);
}

/*  So it is where another library captures the caller's stream. */
TEST(a_launch_into_a_capture_of_others_is_refused)
{
    ignis_tensor x, y;
    ignis_graph graph;
    void *stream, *captured = NULL;
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    CHECK_OK(ignis_graph_begin());
    y = ignis_scale(x, 2);
    graph = ignis_graph_end();
    CHECK_INT(ignis__cuda.cuStreamCreate(&stream, IGNIS__CU_STREAM_NON_BLOCKING), 0);
    CHECK_OK(ignis_stream_use(stream));
    CHECK_INT(ignis__cuda.cuStreamBeginCapture_v2(stream, IGNIS__CU_CAPTURE_RELAXED), 0);
    CHECK_STATUS(ignis_graph_launch(graph), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_INT(ignis__cuda.cuStreamEndCapture(stream, &captured), 0);
    CHECK_INT(ignis__cuda.cuGraphDestroy(captured), 0);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_NUMBER(value_at(y, 3), 8);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_stream_use(NULL));
    CHECK_OK(ignis_stream_forget(stream));
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(stream), 0);
    let_go(x), let_go(y);
}

TEST(memory_trim_and_stream_use_leave_a_capture_alone)
{
    ignis_tensor x, y, z;
    ignis_graph graph;
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    CHECK_OK(ignis_graph_begin());
    y = ignis_scale(x, 2);
    (void)ignis_memory_trim(0);
    ignis_status_clear();
    (void)ignis_stream_use(NULL);
    ignis_status_clear();
    z = ignis_scale(y, 2);
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_NUMBER(value_at(z, 0), 4);
    CHECK_OK(ignis_graph_free(graph));
    let_go(x), let_go(y), let_go(z);
}

TEST(stale_graphs_are_refused)
{
    ignis_graph graph, none = {0};
    ignis_tensor x;
    SETUP(NULL);
    CHECK_OK(ignis_graph_begin());
    graph = ignis_graph_end();
    CHECK_OK(ignis_graph_free(graph));
    CHECK_STATUS(ignis_graph_free(graph), IGNIS_ERROR_FREED, IGNIS_DIAG_GRAPH_FREED);
    CHECK_STATUS(ignis_graph_launch(graph), IGNIS_ERROR_FREED, IGNIS_DIAG_GRAPH_FREED);
    CHECK_STATUS(ignis_graph_launch(none), IGNIS_ERROR_FREED, IGNIS_DIAG_GRAPH_FREED);
    x = vector4(1, false);
    graph.id = x.id;
    CHECK_STATUS(ignis_graph_launch(graph), IGNIS_ERROR_FREED, IGNIS_DIAG_WRONG_KIND);
    CHECK_STATUS(ignis_graph_free(graph), IGNIS_ERROR_FREED, IGNIS_DIAG_WRONG_KIND);
    CHECK_FAILS(ignis_graph_end(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CAPTURE_STATE);
    let_go(x);
}

TEST(a_graph_runs_on_its_device)
{
    ignis_graph graph, other;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_graph_begin());
    graph = ignis_graph_end();
    CHECK_OK(ignis_device_use(1));
    CHECK_STATUS(ignis_graph_launch(graph), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_OK(ignis_graph_begin());
    other = ignis_graph_end();
    CHECK_OK(ignis_device_use(0));
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_device_use(1));
    CHECK_OK(ignis_graph_launch(other)); /* nothing captures on this one */
    CHECK_OK(ignis_device_use(0));
    CHECK_OK(ignis_graph_free(ignis_graph_end()));
    CHECK_OK(ignis_graph_free(other));
}

TEST(shutdown_ends_graphs_and_captures)
{
    ignis_tensor x;
    SETUP(NULL);
    warm_up();
    test_leaks_expected = true;
    x = vector4(1, false);
    CHECK_OK(ignis_graph_begin());
    (void)ignis_scale(x, 2);
    (void)ignis_graph_end();
    CHECK_OK(ignis_graph_begin());
    (void)ignis_scale(x, 2);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED), 2);
    CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "graph on device 0");
    SETUP(NULL);
    warm_up(); /* the stream captures nothing any more */
    CHECK_FAILS(ignis_graph_end(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CAPTURE_STATE);
}

static void *thread_that_ends_in_a_capture(void *arg)
{
    CHECK_OK(ignis_graph_begin());
    (void)ignis_scale(*(ignis_tensor *)arg, 2);
    return NULL;
}

TEST(shutdown_ends_the_capture_of_a_thread_that_is_gone)
{
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor x;
    pthread_t thread;
    SETUP(&desc);
    warm_up();
    test_leaks_expected = true;
    x = vector4(1, false);
    REQUIRE(pthread_create(&thread, NULL, thread_that_ends_in_a_capture, &x) == 0);
    pthread_join(thread, NULL);
    CHECK_NUMBER(value_at(x, 3), 4);
    CHECK_OK(ignis_synchronize());
    fault_reset_counts();
    CHECK_OK(ignis_shutdown());
    CHECK_INT(fault_count("cuStreamEndCapture"), 1);
    CHECK_INT(fault_count("cuStreamDestroy_v2"), 2); /* Ignis' own is the other */
    CHECK_INT(counter.blocks, 0);
}

TEST(graphs_need_a_setup)
{
    ignis_graph none = {0};
    CHECK_STATUS(ignis_graph_begin(), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    CHECK_FAILS(ignis_graph_end(), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
    CHECK_STATUS(ignis_graph_launch(none), IGNIS_ERROR_NOT_SETUP, IGNIS_DIAG_NOT_SETUP);
}

/*  After a fault the devices are gone, and what a graph holds of the host's memory goes all the same. */
TEST(graphs_go_after_a_fault)
{
    enum { ILLEGAL_ADDRESS = 700 }; /* CUDA_ERROR_ILLEGAL_ADDRESS */
    static host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor x, y;
    ignis_graph graph;
    NEEDS_NO_MEMCHECK();
    SETUP(&desc);
    warm_up();
    x = vector4(1, false);
    CHECK_OK(ignis_graph_begin());
    y = ignis_scale(x, 2);
    graph = ignis_graph_end();
    fault_arm("cuCtxSynchronize", 1, ILLEGAL_ADDRESS);
    CHECK_STATUS(ignis_synchronize(), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    fault_disarm();
    CHECK_STATUS(ignis_graph_launch(graph), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_OK(ignis_graph_free(graph));
    let_go(x), let_go(y);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(counter.blocks, 0);
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

static void *working_thread(void *arg)
{
    ignis_tensor x = vector4(5, false), y = ignis_scale(x, 2);
    ignis_launch launch = test_launch(1, 1);
    ignis_kernel kernel =
        test_compile("extern \"C\" __global__ void increment(float *x) { x[0] += 1.f; }", "increment", NULL);
    ignis_arg number = ignis_arg_array(ignis_tensor_data(y));
    ignis_graph graph;
    ignis_tensor sum;
    (void)arg;
    CHECK_NUMBER(value_at(y, 0), 10);
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &number, 1));
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK(ignis_array_pin(ignis_tensor_data(y)) != NULL);
    CHECK_OK(ignis_array_unpin(ignis_tensor_data(y)));
    CHECK_OK(ignis_graph_begin());
    sum = ignis_add(x, y);
    graph = ignis_graph_end();
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_synchronize());
    CHECK_NUMBER(value_at(sum, 0), 16);
    let_go(sum);
    CHECK_OK(ignis_graph_free(graph));
    CHECK(ignis_memory_trim(0) >= 0);
    CHECK_INT(ignis_status_last(), IGNIS_OK);
    let_go(x);
    let_go(y);
    return NULL;
}

/*  Another thread computes, captures, waits and frees while this one captures. */
TEST(other_threads_work_during_a_capture)
{
    ignis_tensor x, y;
    ignis_graph graph;
    pthread_t thread;
    if (test_is_memcheck())
        SKIP("under compute-sanitizer the capture ends as invalidated");
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    CHECK_OK(ignis_graph_begin());
    y = ignis_scale(x, 2);
    REQUIRE(pthread_create(&thread, NULL, working_thread, NULL) == 0);
    pthread_join(thread, NULL);
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_NUMBER(value_at(y, 0), 2);
    CHECK_OK(ignis_graph_free(graph));
    let_go(x);
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

/*  Another thread begins to capture just when this one is about to wait for the whole context. */
static int (*context_synchronize)(void);
static pthread_barrier_t about_to_wait;
static uint64_t capture_begun, wait_over;

static void *thread_that_captures_meanwhile(void *arg)
{
    ignis_tensor y;
    ignis_graph graph;
    int i;
    pthread_barrier_wait(&about_to_wait);
    CHECK_OK(ignis_graph_begin());
    ignis__atomic_store(&capture_begun, 1);
    for (i = 0; i < 500 && !ignis__atomic_load(&wait_over); i++)
        test_sleep_ms(2);
    y = ignis_scale(*(ignis_tensor *)arg, 2);
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_NUMBER(value_at(y, 0), 2);
    CHECK_OK(ignis_graph_free(graph));
    let_go(y);
    return NULL;
}

static int wait_after_a_while(void)
{
    int i, error;
    ignis__cuda.cuCtxSynchronize = context_synchronize; /* the other thread's goes through at once */
    pthread_barrier_wait(&about_to_wait);
    for (i = 0; i < 100 && !ignis__atomic_load(&capture_begun); i++)
        test_sleep_ms(2);
    error = context_synchronize();
    ignis__atomic_store(&wait_over, 1);
    return error;
}

TEST(a_capture_that_begins_while_another_thread_waits)
{
    ignis_tensor x;
    pthread_t thread;
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    CHECK_OK(ignis_synchronize());
    pthread_barrier_init(&about_to_wait, NULL, 2);
    REQUIRE(pthread_create(&thread, NULL, thread_that_captures_meanwhile, &x) == 0);
    capture_begun = wait_over = 0;
    context_synchronize = ignis__cuda.cuCtxSynchronize;
    ignis__cuda.cuCtxSynchronize = wait_after_a_while;
    CHECK_OK(ignis_synchronize());
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&about_to_wait);
    let_go(x);
}

/*  A capture draws in a stream just when another thread has found that it is not captured, and is about to wait for it.
    */
static int (*stream_synchronize)(void *);
static void *drawn_in;
static uint64_t is_drawn_in;

static void *thread_that_draws_in(void *arg)
{
    ignis__device *device = &ignis__devices[0];
    ignis_tensor x = *(ignis_tensor *)arg;
    ignis_graph graph;
    uint64_t serial;
    int i;
    CHECK_OK(ignis_graph_begin());
    serial = ignis__stream_adopt("adopt", device, drawn_in);
    pthread_barrier_wait(&about_to_wait);
    pthread_barrier_wait(&about_to_wait);
    CHECK(ignis__capture_draw("draw", device, ignis__stream_current(device), serial));
    ignis__atomic_store(&is_drawn_in, 1);
    CHECK(ignis__stream_order("join", device, drawn_in, device, ignis__stream_current(device)));
    for (i = 0; i < 500 && !ignis__atomic_load(&wait_over); i++)
        test_sleep_ms(2);
    let_go(ignis_scale(x, 2));
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    CHECK_OK(ignis_graph_free(graph));
    return NULL;
}

static int wait_for_stream_after_a_while(void *stream)
{
    int i, error;
    if (stream != drawn_in)
        return stream_synchronize(stream);
    pthread_barrier_wait(&about_to_wait);
    for (i = 0; i < 100 && !ignis__atomic_load(&is_drawn_in); i++)
        test_sleep_ms(2);
    error = stream_synchronize(stream);
    ignis__atomic_store(&wait_over, 1);
    return error;
}

TEST(a_stream_that_is_drawn_into_a_capture_while_another_thread_waits)
{
    ignis_tensor x;
    pthread_t thread;
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    CHECK_INT(ignis__cuda.cuStreamCreate(&drawn_in, 1), 0);
    pthread_barrier_init(&about_to_wait, NULL, 2);
    is_drawn_in = wait_over = 0;
    REQUIRE(pthread_create(&thread, NULL, thread_that_draws_in, &x) == 0);
    pthread_barrier_wait(&about_to_wait);
    stream_synchronize = ignis__cuda.cuStreamSynchronize;
    ignis__cuda.cuStreamSynchronize = wait_for_stream_after_a_while;
    CHECK_OK(ignis_synchronize());
    ignis__cuda.cuStreamSynchronize = stream_synchronize;
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&about_to_wait);
    CHECK_OK(ignis_stream_forget(drawn_in));
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(drawn_in), 0);
    let_go(x);
}

/*  Another library captures on a stream of its own, which Ignis does not know of. */
TEST(a_capture_of_others)
{
    ignis_kernel kernel;
    ignis_launch launch = test_launch(1, 1);
    ignis_tensor x;
    ignis_arg arg;
    void *stream, *graph;
    SETUP(NULL);
    x = vector4(1, false);
    arg = ignis_arg_array(ignis_tensor_data(x));
    kernel = test_compile("extern \"C\" __global__ void increment(float *x) { x[0] += 1.f; }", "increment", NULL);
    CHECK_INT(ignis__cuda.cuStreamCreate(&stream, IGNIS__CU_STREAM_NON_BLOCKING), 0);
    CHECK_INT(ignis__cuda.cuStreamBeginCapture_v2(stream, IGNIS__CU_CAPTURE_RELAXED), 0);
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_NUMBER(value_at(x, 0), 2);
    (void)ignis__cuda.cuStreamEndCapture(stream, &graph); /* it is spoilt */
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(stream), 0);
    let_go(x);
}

static void *launching_thread(void *arg)
{
    CHECK_OK(ignis_graph_launch(*(ignis_graph *)arg));
    CHECK_OK(ignis_synchronize());
    return NULL;
}

TEST(a_graph_is_launched_by_another_thread)
{
    ignis_tensor x, y;
    ignis_graph graph;
    pthread_t thread;
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    CHECK_OK(ignis_graph_begin());
    y = ignis_scale(x, 2);
    graph = ignis_graph_end();
    REQUIRE(pthread_create(&thread, NULL, launching_thread, &graph) == 0);
    pthread_join(thread, NULL);
    CHECK_NUMBER(value_at(y, 0), 2);
    CHECK_OK(ignis_graph_free(graph));
    let_go(x);
    let_go(y);
}

/*  Its stream is not the captured one: the graph runs at once. */
TEST(another_thread_launches_a_graph_during_a_capture)
{
    ignis_tensor x, y, z;
    ignis_graph graph, captured;
    pthread_t thread;
    if (test_is_memcheck())
        SKIP("under compute-sanitizer the capture ends as invalidated");
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    CHECK_OK(ignis_graph_begin());
    y = ignis_scale(x, 2);
    graph = ignis_graph_end();
    CHECK_OK(ignis_graph_begin());
    z = ignis_scale(x, 3);
    REQUIRE(pthread_create(&thread, NULL, launching_thread, &graph) == 0);
    pthread_join(thread, NULL);
    captured = ignis_graph_end();
    REQUIRE(captured.id != 0);
    CHECK_NUMBER(value_at(y, 0), 2);
    CHECK_OK(ignis_graph_launch(captured));
    CHECK_NUMBER(value_at(z, 0), 3);
    CHECK_OK(ignis_graph_free(captured));
    CHECK_OK(ignis_graph_free(graph));
    let_go(x), let_go(y), let_go(z);
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

/*  Each driver call from begin to end fails in turn, but for the one that ends the capture and has to be made: the
    capture is over then, nothing is left, and the next one works. */
static int sweep_capture(ignis_tensor x, const char *prefix)
{
    int at;
    for (at = 1; at < 200 && test__state.failures < 10; at++) {
        ignis_graph graph = {0};
        ignis_tensor y = {0}, z = {0}, dropped_out = {0};
        bool hit;
        fault_arm(prefix, at, OUT_OF_MEMORY);
        if (ignis_graph_begin() == IGNIS_OK) {
            y = ignis_scale(x, 2);
            dropped_out = ignis_dropout(x, 0.5);
            z = ignis_add(x, x);
            graph = ignis_graph_end();
        }
        hit = fault.failed != NULL;
        fault_disarm();
        CHECK(!hit || ignis_status_last() != IGNIS_OK || graph.id != 0);
        ignis_status_clear();
        CHECK_FAILS(ignis_graph_end(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_CAPTURE_STATE);
        if (graph.id) {
            CHECK_OK(ignis_graph_launch(graph));
            if (y.id)
                CHECK_NUMBER(value_at(y, 3), 8);
            if (z.id)
                CHECK_NUMBER(value_at(z, 3), 8);
            CHECK_OK(ignis_graph_free(graph));
        }
        if (y.id)
            let_go(y);
        if (z.id)
            let_go(z);
        if (dropped_out.id)
            let_go(dropped_out);
        y = ignis_scale(x, 3);
        CHECK_NUMBER(value_at(y, 3), 12);
        let_go(y);
        CHECK_INT(memory().live_blocks, 1);
        if (!hit)
            break;
    }
    return at - 1;
}

TEST(each_driver_call_of_a_capture_fails_once)
{
    static const char *const prefixes[] = {"cuCtx",     "cuGraph", "cuStreamBegin", "cuStreamW", "cuStreamI",
                                           "cuStreamS", "cuEvent", "cuMem",         "cuLaunch"};
    ignis_tensor x;
    int i, calls = 0;
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    let_go(ignis_dropout(x, 0.5));
    for (i = 0; i < COUNT_OF(prefixes); i++)
        calls += sweep_capture(x, prefixes[i]);
    printf("    %d driver calls\n", calls);
    CHECK(calls >= 5);
    let_go(x);
}

/*  A graph whose free meets a driver call that fails ends with the failure, and keeps nothing. */
TEST(a_graph_is_freed_although_a_driver_call_fails)
{
    static const char *const prefixes[] = {"cuCtx", "cuStreamS", "cuEvent", "cuGraph", "cuMem"};
    ignis_tensor x;
    int i, at, hits = 0;
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    for (i = 0; i < COUNT_OF(prefixes); i++) {
        bool hit = true;
        for (at = 1; hit && at < 50; at++) {
            int64_t before = memory().live_bytes;
            ignis_status status;
            ignis_graph graph;
            ignis_tensor y;
            CHECK_OK(ignis_graph_begin());
            y = ignis_scale(x, 2);
            graph = ignis_graph_end();
            REQUIRE(graph.id && y.id);
            fault_arm(prefixes[i], at, 999);
            status = ignis_graph_free(graph);
            hit = fault.failed != NULL;
            fault_disarm();
            hits += hit;
            CHECK_INT(status, ignis_status_last());
            if (status != IGNIS_OK)
                CHECK_HAS(ignis_status_message(), "ignis_graph_free: ");
            ignis_status_clear();
            CHECK_FAILS(ignis_graph_launch(graph), IGNIS_ERROR_FREED, IGNIS_DIAG_GRAPH_FREED);
            let_go(y);
            CHECK_INT(memory().live_bytes, before);
            CHECK(ignis__captures.first == NULL);
        }
    }
    CHECK(hits >= 2);
    let_go(x);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
