// SPDX-License-Identifier: MIT
/*  test_frame.c - what the loop of an engine needs: streams, events, copies that nobody waits for */
#include "fault.h"
#include "test.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { THREADS = 8, ROUNDS = 12 };
#else
enum { THREADS = 8, ROUNDS = 200 };
#endif

static ignis_array make_array(int64_t count, ignis_dtype dtype)
{
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(count);
    desc.dtype = dtype;
    return ignis_array_create(&desc);
}

static pthread_barrier_t start;
static void (*thread_work)(int index);

static void *thread_main(void *arg)
{
    pthread_barrier_wait(&start);
    thread_work((int)(intptr_t)arg);
    if (ignis_status_last() != IGNIS_OK)
        test__fail(__FILE__, __LINE__, ignis_status_message());
    ignis_status_clear();
    return NULL;
}

/*  Runs work on all threads at once. */
static void run_threads(void (*work)(int index))
{
    pthread_t threads[THREADS];
    int i;
    thread_work = work;
    pthread_barrier_init(&start, NULL, THREADS);
    for (i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread_main, (void *)(intptr_t)i) != 0)
            abort();
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

TEST(a_created_stream_is_used_like_the_callers_own)
{
    ignis_stream_desc desc = {2};
    ignis_array_desc array;
    ignis_array a, b;
    void *plain, *urgent;
    bool done = false;
    SETUP(NULL);
    plain = ignis_stream_create(NULL);
    urgent = ignis_stream_create(&desc);
    REQUIRE(plain && urgent && plain != urgent);
    CHECK(ignis_stream_current() != plain);
    CHECK_OK(ignis_stream_use(urgent));
    CHECK(ignis_stream_current() == urgent);
    a = test_array(8, 8);
    memset(&array, 0, sizeof array);
    array.shape = IGNIS_SHAPE(64);
    array.stream = plain;
    b = ignis_array_create(&array);
    CHECK_OK(ignis_array_copy(b, a));
    test_check_series(b, 64, 0.0F, 1.0F);
    CHECK_OK(ignis_stream_query(NULL, &done));
    CHECK(done);
    CHECK_OK(ignis_stream_free(urgent));
    CHECK(ignis_stream_current() != urgent);
    CHECK_OK(ignis_stream_free(plain));
    CHECK_OK(ignis_array_scale(b, a, 2.0));
    test_check_series(b, 64, 0.0F, 2.0F);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_array_free(b));
}

TEST(priorities_are_those_of_the_device)
{
    int (*priority_of)(void *, int *);
    ignis_stream_desc descs[] = {{0}, {1}, {1000}, {-7}, {INT_MIN}};
    int i, priority = 1, before = 0;
    char why[256];
    void *symbol;
    SETUP(NULL);
    symbol = ignis__library_open(ignis__libraries[IGNIS_LIBRARY_CUDA].path, why, sizeof why);
    symbol = symbol ? ignis__library_symbol(symbol, "cuStreamGetPriority") : NULL;
    memcpy(&priority_of, &symbol, sizeof symbol);
#ifdef _WIN32 /* it is none of the functions that sim/windows passes on */
    if (!priority_of)
        SKIP("this driver has no cuStreamGetPriority");
#endif
    REQUIRE(priority_of);
    for (i = 0; i < IGNIS__COUNT(descs); i++) {
        void *stream = ignis_stream_create(&descs[i]);
        CHECK_INT(priority_of(stream, &priority), 0);
        CHECK(i < 3 ? priority <= before : priority == 0);
        CHECK(i != 1 || priority < 0);
        before = priority;
        CHECK_OK(ignis_stream_free(stream));
    }
}

TEST(only_created_streams_are_freed)
{
    void *created, *own, *foreign = NULL;
    bool done;
    SETUP(NULL);
    own = ignis_stream_current();
    created = ignis_stream_create(NULL);
    CHECK_INT(ignis__cuda.cuStreamCreate(&foreign, 1), 0);
    CHECK_OK(ignis_stream_use(foreign));
    CHECK_STATUS(ignis_stream_free(foreign), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STREAM_INVALID);
    CHECK_STATUS(ignis_stream_free(own), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STREAM_INVALID);
    CHECK_OK(ignis_stream_free(NULL));
    CHECK_STATUS(ignis_stream_query(NULL, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_stream_forget(foreign));
    CHECK_STATUS(ignis_stream_forget(created), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STREAM_INVALID);
    CHECK_MESSAGE_HAS("ignis_stream_free");
    CHECK_OK(ignis_stream_query(foreign, &done)); /* any stream of the device */
    CHECK_OK(ignis_stream_forget(foreign));
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(foreign), 0);
    CHECK_OK(ignis_stream_free(created));
    CHECK_STATUS(ignis_stream_free(created), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STREAM_INVALID);
}

/*  A host allocator that gives what Ignis knows of a stream the memory of the last one. */
static struct {
    void *last, *spare;
} stream_memory;

static void *alloc_again(size_t size, void *user_data)
{
    void *memory = size == sizeof(ignis__user_stream) ? stream_memory.spare : NULL;
    (void)user_data;
    if (memory)
        stream_memory.spare = NULL;
    else
        memory = malloc(size);
    if (size == sizeof(ignis__user_stream))
        stream_memory.last = memory;
    return memory;
}
static void free_for_again(void *memory, void *user_data)
{
    (void)user_data;
    if (memory == stream_memory.last && !stream_memory.spare)
        stream_memory.spare = memory;
    else
        free(memory);
}

static int (*get_current)(void **context);
static void *freed_first, *made_then;

/*  Another thread frees the stream, and makes another one. */
static int free_and_make(void **context)
{
    ignis__cuda.cuCtxGetCurrent = get_current;
    CHECK_OK(ignis_stream_free(freed_first));
    made_then = ignis_stream_create(NULL);
    return get_current(context);
}

TEST(who_frees_a_stream_too_late_frees_no_other_one)
{
    ignis_desc desc = test_desc(NULL);
    desc.allocator.alloc_fn = alloc_again;
    desc.allocator.free_fn = free_for_again;
    SETUP(&desc);
    freed_first = ignis_stream_create(NULL);
    REQUIRE(freed_first != NULL);
    get_current = ignis__cuda.cuCtxGetCurrent;
    ignis__cuda.cuCtxGetCurrent = free_and_make;
    CHECK_STATUS(ignis_stream_free(freed_first), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STREAM_INVALID);
    CHECK(made_then != NULL); /* a driver may give it the handle of the one that was freed */
    CHECK_OK(ignis_stream_use(made_then));
    CHECK_OK(ignis_array_free(test_array(4, 4)));
    CHECK_OK(ignis_stream_use(NULL));
    CHECK_OK(ignis_stream_free(made_then));
    CHECK_OK(ignis_shutdown());
    free(stream_memory.spare);
    stream_memory.spare = stream_memory.last = NULL;
}

TEST(streams_and_events_that_are_left_are_reported)
{
    SETUP(NULL);
    test_leaks_expected = true;
    CHECK(ignis_stream_create(NULL) != NULL);
    CHECK(ignis_event_create().id != 0);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED), 2);
    CHECK_HAS(test_log_text(IGNIS_DIAG_HANDLE_LEAKED), "ignis_stream_create");
}

/*  Sums are right only if each stream begins behind the other. */
TEST(streams_wait_for_each_other)
{
    enum { N = 1 << 14, STEPS = 30 };
    ignis_array a, b;
    ignis_event event;
    void *streams[2];
    int i;
    SETUP(NULL);
    streams[0] = ignis_stream_create(NULL);
    streams[1] = ignis_stream_create(NULL);
    event = ignis_event_create();
    a = make_array(N, IGNIS_F32);
    b = make_array(N, IGNIS_F32);
    CHECK_OK(ignis_array_fill(a, 0.0));
    CHECK_OK(ignis_array_fill(b, 1.0));
    CHECK_OK(ignis_stream_wait(streams[0], NULL));
    for (i = 0; i < STEPS; i++) {
        CHECK_OK(ignis_stream_use(streams[i % 2]));
        CHECK_OK(ignis_array_add(a, a, b));
        if (i % 3 == 0) {
            CHECK_OK(ignis_stream_wait(streams[(i + 1) % 2], streams[i % 2]));
        } else {
            CHECK_OK(ignis_event_record(event, i % 3 == 1 ? NULL : streams[i % 2]));
            CHECK_OK(ignis_stream_wait_event(streams[(i + 1) % 2], event));
        }
    }
    CHECK_OK(ignis_stream_use(NULL));
    CHECK_OK(ignis_stream_wait(NULL, streams[0]));
    CHECK_OK(ignis_stream_wait(NULL, streams[0])); /* of what is done by then */
    CHECK_OK(ignis_stream_wait(NULL, NULL));
    test_check_series(a, N, (float)STEPS, 0.0F);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_array_free(b));
    CHECK_OK(ignis_event_free(event));
    CHECK_OK(ignis_stream_free(streams[0]));
    CHECK_OK(ignis_stream_free(streams[1]));
}

TEST(streams_of_two_devices_wait_for_each_other)
{
    ignis_array a;
    ignis_event event;
    void *streams[2];
    SETUP(NULL);
    NEEDS_DEVICES(2);
    streams[0] = ignis_stream_create(NULL);
    event = ignis_event_create();
    CHECK_OK(ignis_stream_use(streams[0]));
    a = test_array(16, 16);
    CHECK_OK(ignis_event_record(event, NULL));
    CHECK_OK(ignis_device_use(1));
    streams[1] = ignis_stream_create(NULL);
    CHECK_OK(ignis_stream_wait(streams[1], streams[0]));
    CHECK_OK(ignis_stream_wait_event(NULL, event));
    CHECK_STATUS(ignis_event_record(event, streams[1]), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_OK(ignis_event_record(event, streams[0])); /* whatever device is current */
    CHECK_OK(ignis_stream_free(streams[1]));
    CHECK_OK(ignis_stream_free(streams[0]));
    CHECK_OK(ignis_event_free(event));
    CHECK_OK(ignis_array_free(a));
}

/* --- events ------------------------------------------------------------------------------------------------------- */

TEST(events_are_waited_for_and_timed)
{
    ignis_event first, last;
    ignis_array a;
    double ms = -1;
    bool done = false;
    SETUP(NULL);
    first = ignis_event_create();
    last = ignis_event_create();
    CHECK_OK(ignis_event_query(first, &done));
    CHECK(done); /* never recorded */
    CHECK_OK(ignis_event_wait(first));
    CHECK_OK(ignis_stream_wait_event(NULL, first));
    CHECK_STATUS(ignis_event_elapsed_ms(first, last, &ms), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_EVENT_STATE);
    CHECK_MESSAGE_HAS("never recorded");
    CHECK_OK(ignis_event_record(first, NULL));
    a = test_array(64, 64);
    CHECK_OK(ignis_array_scale(a, a, 2.0));
    CHECK_OK(ignis_event_record(last, NULL));
    CHECK_OK(ignis_event_wait(last));
    CHECK_OK(ignis_event_query(last, &done));
    CHECK(done);
    CHECK_OK(ignis_event_elapsed_ms(first, last, &ms));
    CHECK(ms >= 0 && ms < 60000);
    CHECK_STATUS(ignis_event_elapsed_ms(first, last, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_event_query(first, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_event_free(first));
    CHECK_STATUS(ignis_event_free(first), IGNIS_ERROR_FREED, IGNIS_DIAG_EVENT_FREED);
    CHECK_STATUS(ignis_event_record(first, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_EVENT_FREED);
    CHECK_STATUS(ignis_event_query(first, &done), IGNIS_ERROR_FREED, IGNIS_DIAG_EVENT_FREED);
    CHECK_STATUS(ignis_event_wait(first), IGNIS_ERROR_FREED, IGNIS_DIAG_EVENT_FREED);
    CHECK_STATUS(ignis_stream_wait_event(NULL, first), IGNIS_ERROR_FREED, IGNIS_DIAG_EVENT_FREED);
    CHECK_STATUS(ignis_event_elapsed_ms(last, first, &ms), IGNIS_ERROR_FREED, IGNIS_DIAG_EVENT_FREED);
    CHECK_OK(ignis_event_free(last));
    CHECK_OK(ignis_array_free(a));
}

/*  Nothing that is refused spoils the capture. */
TEST(captures_take_what_the_driver_takes)
{
    ignis_event before, inside, joined;
    ignis_graph graph;
    ignis_array a;
    void *side, *other;
    double ms;
    bool done;
    SETUP(NULL);
    a = test_array(4, 4);
    CHECK_OK(ignis_array_scale(a, a, 1.0)); /* compiles the kernel */
    side = ignis_stream_create(NULL);
    other = ignis_stream_create(NULL);
    before = ignis_event_create();
    inside = ignis_event_create();
    joined = ignis_event_create();
    CHECK_OK(ignis_event_record(before, other));
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_array_scale(a, a, 2.0));
    CHECK_STATUS(ignis_stream_wait_event(NULL, before), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_stream_wait(NULL, other), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_stream_query(NULL, &done), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_stream_free(other), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_stream_query(other, &done));
    CHECK_OK(ignis_event_wait(before));
    CHECK_OK(ignis_event_record(inside, NULL));
    CHECK_STATUS(ignis_event_query(inside, &done), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_event_wait(inside), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_event_elapsed_ms(inside, inside, &ms), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_stream_wait_event(side, inside)); /* joins */
    CHECK_STATUS(ignis_stream_query(side, &done), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_event_record(joined, side));
    CHECK_OK(ignis_stream_wait_event(NULL, joined));
    CHECK_OK(ignis_stream_wait(other, NULL)); /* and so does this one */
    CHECK_OK(ignis_stream_wait(NULL, other));
    graph = ignis_graph_end();
    REQUIRE(graph.id != 0);
    CHECK_STATUS(ignis_stream_wait_event(side, inside), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_event_query(joined, &done), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_OK(ignis_event_record(inside, side)); /* outside again */
    CHECK_OK(ignis_event_wait(inside));
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_graph_launch(graph));
    test_check_series(a, 16, 0.0F, 4.0F);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_event_free(before));
    CHECK_OK(ignis_event_free(inside));
    CHECK_OK(ignis_event_free(joined));
    CHECK_OK(ignis_stream_free(side));
    CHECK_OK(ignis_stream_free(other));
    CHECK_OK(ignis_array_free(a));
}

/* --- pinned memory and tickets ------------------------------------------------------------------------------------ */

static void check_series(const float *data, int64_t count, float first, float step)
{
    int64_t i, wrong = 0;
    for (i = 0; i < count; i++)
        wrong += data[i] != first + step * (float)i;
    CHECK_INT(wrong, 0);
}

static void finish(ignis_ticket ticket)
{
    CHECK(ticket.id != 0);
    CHECK_OK(ignis_ticket_wait(ticket));
}

TEST(pinned_memory_is_counted_and_freed_once)
{
    int64_t before;
    char *memory_a, *memory_b;
    SETUP(NULL);
    before = memory().pinned_bytes;
    memory_a = (char *)ignis_host_alloc(1000);
    memory_b = (char *)ignis_host_alloc(1);
    REQUIRE(memory_a && memory_b);
    memset(memory_a, 1, 1000);
    CHECK_INT(memory().pinned_bytes - before, 1001);
    CHECK_STATUS(ignis_host_free(memory_a + 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_HOST_UNKNOWN);
    CHECK_OK(ignis_host_free(memory_a));
    CHECK_STATUS(ignis_host_free(memory_a), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_HOST_UNKNOWN);
    CHECK_OK(ignis_host_free(memory_b));
    CHECK_OK(ignis_host_free(NULL));
    CHECK_INT(memory().pinned_bytes, before);
    CHECK_FAILS(ignis_host_alloc(0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_host_alloc(-1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
}

/*  Both ways, of sizes around those of a piece; out and data are pinned or not. */
TEST(asynchronous_copies_copy)
{
    static const int64_t counts[] = {0, 1, 7, 262143, 262144, 262145, 800003};
    float *plain, *out, *pinned;
    int i, way;
    SETUP(NULL);
    plain = (float *)malloc(800003 * sizeof *plain);
    out = (float *)malloc(800003 * sizeof *out);
    pinned = (float *)ignis_host_alloc(800003 * (int64_t)sizeof *pinned);
    REQUIRE(plain && out && pinned);
    for (i = 0; i < IGNIS__COUNT(counts); i++) {
        int64_t j, n = counts[i];
        for (way = 0; way < 2; way++) {
            float *data = way ? pinned : plain, *back = way ? pinned : out;
            ignis_array a = make_array(n, IGNIS_F32);
            ignis_ticket tickets[2];
            for (j = 0; j < n; j++)
                data[j] = (float)j + (float)way;
            fault_reset_counts();
            tickets[0] = ignis_array_from_host_async(a, data, IGNIS_F32, n);
            if (way)
                finish(tickets[0]); /* as the memory is used for the result */
            CHECK_OK(ignis_array_scale(a, a, 2.0));
            tickets[1] = ignis_array_to_host_async(a, back, IGNIS_DTYPE_DEFAULT, n);
            CHECK_OK(ignis_array_fill(a, -1.0)); /* too late for the copy */
            CHECK_OK(ignis_array_free(a));
            finish(tickets[1]);
            if (!way)
                finish(tickets[0]);
            CHECK_INT(fault_count("cuLaunchHostFunc"), way ? 0 : 2 * ((n + 262143) / 262144));
            check_series(back, n, (float)way * 2, 2.0F);
        }
    }
    CHECK_OK(ignis_host_free(pinned));
    free(plain), free(out);
}

TEST(asynchronous_copies_convert)
{
    static const ignis_dtype dtypes[] = {IGNIS_F16, IGNIS_F64, IGNIS_I32, IGNIS_I64, IGNIS_BF16, IGNIS_F32};
    enum { N = 150001 };
    double *data, *out;
    float *pinned;
    int i, j, wrong;
    SETUP(NULL);
    data = (double *)malloc(N * sizeof *data);
    out = (double *)malloc(N * sizeof *out);
    pinned = (float *)ignis_host_alloc(N * (int64_t)sizeof *pinned);
    REQUIRE(data && out && pinned);
    for (j = 0; j < N; j++)
        data[j] = j % 200 - 50; /* which all of them hold exactly */
    for (i = 0; i < IGNIS__COUNT(dtypes); i++) {
        ignis_array a = make_array(N, dtypes[i]);
        ignis_ticket in = ignis_array_from_host_async(a, data, IGNIS_F64, N),
                     doubles = ignis_array_to_host_async(a, out, IGNIS_F64, N);
        finish(ignis_array_to_host_async(a, pinned, IGNIS_F32, N));
        finish(doubles);
        finish(in);
        for (j = wrong = 0; j < N; j++)
            wrong += out[j] != data[j] || (double)pinned[j] != data[j];
        CHECK_INT(wrong, 0);
        CHECK_OK(ignis_array_free(a));
    }
    CHECK_OK(ignis_host_free(pinned));
    free(data), free(out);
}

TEST(tickets_are_waited_for_once)
{
    float out[16];
    ignis_array a, empty;
    ignis_ticket ticket;
    bool done = false;
    int i;
    SETUP(NULL);
    a = test_array(4, 4);
    empty = make_array(4, IGNIS_F32);
    CHECK_FAILS(ignis_array_to_host_async(empty, out, IGNIS_F32, 4), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_FAILS(ignis_array_to_host_async(a, out, IGNIS_F32, 15), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_FAILS(ignis_array_to_host_async(a, NULL, IGNIS_F32, 16), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_array_from_host_async(a, NULL, IGNIS_F32, 16), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_array_from_host_async(a, out, (ignis_dtype)99, 16), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    ticket = ignis_array_to_host_async(a, out, IGNIS_F32, 16);
    CHECK_STATUS(ignis_ticket_query(ticket, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    for (i = 0; i < 5000 && !done; i++) {
        CHECK_OK(ignis_ticket_query(ticket, &done));
        if (!done)
            test_sleep_ms(1);
    }
    CHECK(done);
    check_series(out, 16, 0, 1);
    finish(ticket);
    CHECK_STATUS(ignis_ticket_wait(ticket), IGNIS_ERROR_FREED, IGNIS_DIAG_TICKET_FREED);
    CHECK_STATUS(ignis_ticket_query(ticket, &done), IGNIS_ERROR_FREED, IGNIS_DIAG_TICKET_FREED);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_array_free(empty));
}

/*  What a copy fails with is known where it is waited for. */
TEST(failures_of_copies_leave_nothing_behind)
{
    static const struct {
        const char *function;
        int at;
    } faults[] = {{"cuMemHostAlloc", 1},        {"cuMemcpyDtoHAsync", 1}, {"cuMemcpyDtoHAsync", 3},
                  {"cuLaunchHostFunc", 1},      {"cuLaunchHostFunc", 3},  {"cuEventRecord", 1},
                  {"cuPointerGetAttributes", 2}};
    enum { N = 800003 };
    float *out;
    ignis_array a;
    ignis_ticket ticket;
    int i;
    SETUP(NULL);
    NEEDS_NO_MEMCHECK();
    out = (float *)malloc(N * sizeof *out);
    REQUIRE(out);
    a = make_array(N, IGNIS_F32);
    CHECK_OK(ignis_array_fill(a, 3.0));
    for (i = 0; i < IGNIS__COUNT(faults); i++) {
        fault_arm(faults[i].function, faults[i].at, 1);
        CHECK_FAILS(ignis_array_to_host_async(a, out, IGNIS_F32, N), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
        CHECK(fault.failed != NULL);
        fault_disarm();
        finish(ignis_array_to_host_async(a, out, IGNIS_F32, N));
        check_series(out, N, 3.0F, 0.0F);
    }
    CHECK_INT(memory().pinned_bytes, IGNIS__PIECE);
    ticket = ignis_array_to_host_async(a, out, IGNIS_F32, N);
    fault_arm("cuEventSynchronize", 1, 1);
    CHECK_STATUS(ignis_ticket_wait(ticket), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    fault_disarm();
    CHECK_STATUS(ignis_ticket_wait(ticket), IGNIS_ERROR_FREED, IGNIS_DIAG_TICKET_FREED);
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_array_free(a));
    free(out);
}

TEST(shutdown_waits_for_tickets)
{
    enum { N = 300001 };
    float *out = (float *)malloc(N * sizeof *out);
    ignis_array a;
    REQUIRE(out);
    SETUP(NULL);
    test_leaks_expected = true;
    a = make_array(N, IGNIS_F32);
    CHECK_OK(ignis_array_fill(a, 5.0));
    CHECK(ignis_array_to_host_async(a, out, IGNIS_F32, N).id != 0);
    CHECK(ignis_host_alloc(64) != NULL);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_shutdown());
    check_series(out, N, 5.0F, 0.0F);
    CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED), 2);
    free(out);
}

TEST(captures_refuse_copies_to_and_from_the_host)
{
    float data[4] = {1, 2, 3, 4};
    ignis_graph graph;
    ignis_array a;
    ignis_ticket before;
    void *pinned;
    SETUP(NULL);
    a = test_array(1, 4);
    pinned = ignis_host_alloc(16);
    before = ignis_array_from_host_async(a, data, IGNIS_F32, 4);
    CHECK_OK(ignis_graph_begin());
    CHECK_FAILS(ignis_array_from_host_async(a, data, IGNIS_F32, 4), IGNIS_ERROR_UNSUPPORTED,
                IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_FAILS(ignis_array_to_host_async(a, data, IGNIS_F32, 4), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_host_free(pinned), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    finish(before); /* which spoils nothing */
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_host_free(pinned));
    CHECK_OK(ignis_array_free(a));
}

/* --- callbacks ---------------------------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int calls, sum;
    ignis_status status, status_of_setup;
    ignis_diagnostic diagnostic;
} called = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, IGNIS_OK, IGNIS_OK, IGNIS_DIAG_NONE};

static void count_call(void *user_data)
{
    pthread_mutex_lock(&called.lock);
    called.calls++;
    called.sum += *(int *)user_data;
    pthread_cond_broadcast(&called.changed);
    pthread_mutex_unlock(&called.lock);
}

static void await_calls(int calls)
{
    CHECK_OK(ignis_synchronize());
    pthread_mutex_lock(&called.lock);
    CHECK_INT(called.calls, calls);
    pthread_mutex_unlock(&called.lock);
}

/*  All that a stream has is done when it calls: 64 floats are in *user_data. */
static void check_readback(void *user_data)
{
    int one = 1;
    check_series((const float *)user_data, 64, 0, 1);
    count_call(&one);
}

static void misuse(void *user_data)
{
    ignis_status_info info;
    ignis_desc desc;
    int one = 1;
    memset(&desc, 0, sizeof desc);
    called.status_of_setup = ignis_setup(&desc);
    ignis_status_clear();
    called.status = ignis_synchronize();
    ignis_status_query(&info);
    called.diagnostic = info.diagnostic;
    CHECK(ignis_shutdown() != IGNIS_OK);
    CHECK_INT(ignis_array_numel(*(ignis_array *)user_data), -1);
    count_call(&one);
}

TEST(streams_call_functions)
{
    static const int numbers[] = {1, 10, 100};
    float out[64];
    ignis_array a;
    void *stream;
    int i;
    SETUP(NULL);
    called.calls = called.sum = 0;
    stream = ignis_stream_create(NULL);
    a = test_array(8, 8);
    CHECK_OK(ignis_stream_wait(stream, NULL));
    for (i = 0; i < 3; i++)
        CHECK_OK(ignis_stream_call(i ? stream : NULL, count_call, (void *)(uintptr_t)&numbers[i]));
    await_calls(3);
    CHECK_INT(called.sum, 111);
    CHECK_OK(ignis_stream_use(stream));
    memset(out, 0, sizeof out);
    finish(ignis_array_to_host_async(a, out, IGNIS_F32, 64));
    CHECK_OK(ignis_stream_call(NULL, check_readback, out));
    await_calls(4);
    CHECK_STATUS(ignis_stream_call(NULL, NULL, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_stream_free(stream));
    CHECK_OK(ignis_array_free(a));
}

TEST(what_streams_call_does_not_call_ignis)
{
    ignis_array a;
    SETUP(NULL);
    called.calls = 0;
    a = test_array(2, 2);
    CHECK_OK(ignis_stream_call(NULL, misuse, &a));
    await_calls(1);
    CHECK_INT(called.status, IGNIS_ERROR_NOT_SETUP);
    CHECK_INT(called.status_of_setup, IGNIS_ERROR_NOT_SETUP);
    CHECK_INT(called.diagnostic, IGNIS_DIAG_INSIDE_CALLBACK);
    CHECK_INT(test_log_count(IGNIS_DIAG_INSIDE_CALLBACK), 4);
    CHECK_INT(ignis_status_last(), IGNIS_OK); /* of whatever thread has run it */
    CHECK_OK(ignis_array_free(a));
}

TEST(graphs_call_functions_at_each_launch)
{
    static const int one = 1;
    ignis_graph graph;
    int i;
    SETUP(NULL);
    called.calls = 0;
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_stream_call(NULL, count_call, (void *)(uintptr_t)&one));
    graph = ignis_graph_end();
    await_calls(0);
    for (i = 1; i <= 3; i++) {
        CHECK_OK(ignis_graph_launch(graph));
        await_calls(i);
    }
    CHECK_OK(ignis_graph_free(graph));
}

TEST(a_call_that_fails_is_not_made)
{
    static const int one = 1;
    SETUP(NULL);
    NEEDS_NO_MEMCHECK();
    called.calls = 0;
    CHECK(ignis_stream_current() != NULL);
    fault_arm("cuLaunchHostFunc", 1, 1);
    CHECK_STATUS(ignis_stream_call(NULL, count_call, (void *)(uintptr_t)&one), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    fault_disarm();
    await_calls(0);
}

/* --- symbols ------------------------------------------------------------------------------------------------------ */

static const char *const symbol_source =
    "struct look { float scale; int offset; };\n"
    "__constant__ look style = {2.0f, 1};\n"
    "__device__ float table[3];\n"
    "namespace inner { __constant__ int deep = 4; }\n"
    "extern \"C\" __global__ void show(float *y)\n"
    "{ y[0] = style.scale; y[1] = style.offset; y[2] = table[2]; y[3] = inner::deep; }\n";

static void check_shown(ignis_kernel kernel, float scale, float offset, float last, float deep)
{
    ignis_launch launch = test_launch(1, 1);
    ignis_array y = make_array(4, IGNIS_F32);
    ignis_arg arg = ignis_arg_array(y);
    float shown[4] = {0, 0, 0, 0};
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
    CHECK_OK(ignis_array_to_host(y, shown, IGNIS_F32, 4));
    CHECK(shown[0] == scale && shown[1] == offset && shown[2] == last && shown[3] == deep);
    CHECK_OK(ignis_array_free(y));
}

TEST(symbols_are_written_by_name)
{
    const struct {
        float scale;
        int offset;
    } style = {0.5F, 7};
    const float table[3] = {1, 2, 3};
    const int deep = 9;
    ignis_kernel kernel, other;
    ignis_graph graph;
    SETUP(NULL);
    kernel = test_compile(symbol_source, "show", NULL);
    other = test_compile(symbol_source, "show", NULL);
    check_shown(kernel, 2, 1, 0, 4);
    CHECK_OK(ignis_kernel_set_symbol(kernel, "style", &style, sizeof style));
    CHECK_OK(ignis_kernel_set_symbol(kernel, "table", table, sizeof table));
    check_shown(kernel, 0.5F, 7, 3, 4);
    check_shown(other, 2, 1, 0, 4); /* has its own */
    CHECK_STATUS(ignis_kernel_set_symbol(kernel, "deep", &deep, 4), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SYMBOL_MISSING);
    CHECK_MESSAGE_HAS("'deep'");
    CHECK_STATUS(ignis_kernel_set_symbol(kernel, "table", table, 8), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COUNT_MISMATCH);
    CHECK_STATUS(ignis_kernel_set_symbol(kernel, NULL, table, 12), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_kernel_set_symbol(kernel, "table", NULL, 12), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_OK(ignis_graph_begin());
    CHECK_STATUS(ignis_kernel_set_symbol(kernel, "table", table, 12), IGNIS_ERROR_UNSUPPORTED,
                 IGNIS_DIAG_CAPTURE_REFUSED);
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    CHECK_OK(ignis_graph_free(graph));
    if (ignis_device_count() > 1) {
        CHECK_OK(ignis_device_use(1));
        check_shown(kernel, 2, 1, 0, 4);
        CHECK_OK(ignis_kernel_set_symbol(kernel, "table", table, sizeof table));
        check_shown(kernel, 2, 1, 3, 4);
        CHECK_OK(ignis_device_use(0));
    }
    CHECK_OK(ignis_kernel_free(other));
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_STATUS(ignis_kernel_set_symbol(kernel, "table", table, 12), IGNIS_ERROR_FREED, IGNIS_DIAG_KERNEL_FREED);
}

/* --- reloading ---------------------------------------------------------------------------------------------------- */

/*  A program that writes `number` to a float, and the desc of it. */
typedef struct numbered {
    char source[256];
    ignis_kernel_desc desc;
} numbered;

static void write_program(numbered *program, int number)
{
    memset(program, 0, sizeof *program);
    snprintf(
        program->source, sizeof program->source,
        "__constant__ float more = 0.0f;\nextern \"C\" __global__ void number(float *y) { y[0] = %d.0f + more; }\n",
        number);
    program->desc.source = program->source;
    program->desc.entry = "number";
}

static ignis_ticket reload(ignis_kernel kernel, int number)
{
    numbered program;
    ignis_ticket ticket;
    write_program(&program, number);
    ticket = ignis_kernel_reload(kernel, &program.desc);
    memset(&program, 'x', sizeof program); /* it was copied */
    return ticket;
}

static float number_of(ignis_kernel kernel)
{
    ignis_launch launch = test_launch(1, 1);
    ignis_array y = make_array(1, IGNIS_F32);
    ignis_arg arg = ignis_arg_array(y);
    float number = -1;
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
    CHECK_OK(ignis_array_to_host(y, &number, IGNIS_F32, 1));
    CHECK_OK(ignis_array_free(y));
    return number;
}

TEST(a_kernel_becomes_another_one)
{
    static const float more = 0.5F;
    ignis_kernel_info info;
    ignis_ticket tickets[5];
    ignis_kernel kernel;
    numbered program;
    bool done = false;
    int i;
    SETUP(NULL);
    write_program(&program, 1);
    kernel = ignis_kernel_compile(&program.desc);
    CHECK(number_of(kernel) == 1);
    CHECK_OK(ignis_kernel_set_symbol(kernel, "more", &more, sizeof more));
    CHECK(number_of(kernel) == 1.5F);
    tickets[0] = reload(kernel, 2);
    for (i = 0; i < 60000 && !done; i++) { /* a minute or more: a busy machine compiles slowly */
        float number = number_of(kernel);
        test_sleep_ms(1);
        CHECK(number == 1.5F || number == 2);
        CHECK_OK(ignis_ticket_query(tickets[0], &done));
    }
    CHECK(done);
    CHECK(number_of(kernel) == 2); /* before anybody waits; `more` is that of the source */
    finish(tickets[0]);
    CHECK_OK(ignis_kernel_set_symbol(kernel, "more", &more, sizeof more));
    CHECK(number_of(kernel) == 2.5F);
    for (i = 0; i < 5; i++)
        tickets[i] = reload(kernel, 10 + i);
    for (i = 0; i < 5; i++)
        finish(tickets[i]);
    CHECK(number_of(kernel) == 14); /* the last one that was asked for */
    if (ignis_device_count() > 1) {
        CHECK_OK(ignis_device_use(1));
        CHECK(number_of(kernel) == 14);
        CHECK_OK(ignis_device_use(0));
    }
    CHECK_OK(ignis_kernel_query(kernel, &info));
    CHECK_TEXT(info.entry, "number");
    CHECK_OK(ignis_kernel_free(kernel));
}

TEST(a_program_with_errors_replaces_nothing)
{
    ignis_status_info info;
    ignis_kernel kernel;
    ignis_ticket ticket;
    numbered program;
    SETUP(NULL);
    write_program(&program, 1);
    kernel = ignis_kernel_compile(&program.desc);
    program.desc.source = "extern \"C\" __global__ void number(float *y) { y[0] = undeclared; }";
    program.desc.name = "numbers.cu";
    ticket = ignis_kernel_reload(kernel, &program.desc);
    CHECK_INT(ignis_ticket_wait(ticket), IGNIS_ERROR_COMPILE);
    CHECK_INT(ignis_status_query(&info), IGNIS_ERROR_COMPILE);
    CHECK_INT(info.diagnostic, IGNIS_DIAG_COMPILE_FAILED);
    CHECK_TEXT(info.call, "ignis_kernel_reload");
    CHECK_HAS(info.log, "numbers.cu");
    CHECK_HAS(info.log, "undeclared");
    CHECK_HAS(info.message, "undeclared");
    ignis_status_clear();
    CHECK_INT(test_log_count(IGNIS_DIAG_COMPILE_FAILED), 1);
    CHECK(number_of(kernel) == 1);
    program.desc.entry = NULL;
    CHECK_FAILS(ignis_kernel_reload(kernel, &program.desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_kernel_reload(kernel, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    finish(reload(kernel, 3));
    CHECK(number_of(kernel) == 3);
    CHECK_OK(ignis_kernel_free(kernel));
    write_program(&program, 1);
    CHECK_FAILS(ignis_kernel_reload(kernel, &program.desc), IGNIS_ERROR_FREED, IGNIS_DIAG_KERNEL_FREED);
}

TEST(graphs_keep_what_they_captured)
{
    ignis_launch launch = test_launch(1, 1);
    ignis_kernel kernel;
    ignis_graph graph;
    ignis_array y;
    ignis_arg arg;
    numbered program;
    float number;
    SETUP(NULL);
    write_program(&program, 1);
    kernel = ignis_kernel_compile(&program.desc);
    y = test_array(1, 1);
    arg = ignis_arg_array(y);
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
    finish(reload(kernel, 2)); /* spoils nothing */
    graph = ignis_graph_end();
    REQUIRE(graph.id != 0);
    CHECK(number_of(kernel) == 2);
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_array_to_host(y, &number, IGNIS_F32, 1));
    CHECK(number == 1);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_array_free(y));
}

TEST(reloads_outlive_their_kernel_and_end_with_shutdown)
{
    ignis_kernel kernel;
    ignis_ticket ticket;
    numbered program;
    SETUP(NULL);
    write_program(&program, 1);
    kernel = ignis_kernel_compile(&program.desc);
    ticket = reload(kernel, 20);
    CHECK_OK(ignis_kernel_free(kernel));
    finish(ticket);
    kernel = ignis_kernel_compile(&program.desc);
    CHECK(reload(kernel, 21).id != 0);
    test_leaks_expected = true;
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_HANDLE_LEAKED), 2);
}

/*  After a fault the devices are gone; handles are given back all the same, and nothing of the host's memory is left.
    */
TEST(all_of_it_goes_after_a_fault)
{
    enum { ILLEGAL_ADDRESS = 700 }; /* CUDA_ERROR_ILLEGAL_ADDRESS */
    static host_counter counter;
    static const int one = 1;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_kernel kernel;
    ignis_ticket ticket;
    ignis_event event;
    ignis_array a;
    numbered program;
    float out[16];
    void *stream, *pinned;
    bool done = false;
    NEEDS_NO_MEMCHECK();
    SETUP(&desc);
    write_program(&program, 1);
    kernel = ignis_kernel_compile(&program.desc);
    finish(reload(kernel, 2));
    a = test_array(4, 4);
    stream = ignis_stream_create(NULL);
    event = ignis_event_create();
    pinned = ignis_host_alloc(64);
    CHECK_OK(ignis_stream_use(stream));
    CHECK_OK(ignis_stream_call(NULL, count_call, (void *)(uintptr_t)&one));
    CHECK_OK(ignis_event_record(event, NULL));
    ticket = ignis_array_to_host_async(a, out, IGNIS_F32, 16);
    CHECK_OK(ignis_stream_use(NULL));
    fault_arm("cuCtxSynchronize", 1, ILLEGAL_ADDRESS);
    CHECK_STATUS(ignis_synchronize(), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    fault_disarm();
    CHECK_OK(ignis_ticket_query(ticket, &done));
    CHECK(done);
    CHECK_STATUS(ignis_event_query(event, &done), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_STATUS(ignis_stream_query(stream, &done), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_STATUS(ignis_stream_call(stream, count_call, NULL), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_FAILS(ignis_stream_create(NULL), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_FAILS(ignis_host_alloc(64), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_STATUS(ignis_ticket_wait(ticket), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_INT(ignis_ticket_wait(reload(kernel, 3)), IGNIS_ERROR_DEVICE);
    ignis_status_clear();
    CHECK_STATUS(ignis_stream_free(stream), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_OK(ignis_host_free(pinned));
    CHECK_OK(ignis_event_free(event));
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_kernel_free(kernel));
    (void)ignis_shutdown();
    ignis_status_clear();
    CHECK_INT(counter.blocks, 0);
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

static struct {
    pthread_mutex_t lock;
    void *stream;
    ignis_event event;
    int freed;
} shared = {PTHREAD_MUTEX_INITIALIZER, NULL, {0}, 0};

/*  Makes, uses, waits for and frees streams and events of its own, and what all threads share. */
static void work_on_streams(int index)
{
    ignis_array a = make_array(256, IGNIS_F32);
    int round;
    for (round = 0; round < ROUNDS; round++) {
        void *stream = ignis_stream_create(NULL);
        ignis_event event = ignis_event_create();
        bool done;
        CHECK_OK(ignis_stream_use(stream));
        CHECK_OK(ignis_array_fill(a, index));
        CHECK_OK(ignis_event_record(event, NULL));
        CHECK_OK(ignis_stream_wait_event(shared.stream, event));
        CHECK_OK(ignis_event_record(shared.event, shared.stream));
        CHECK_OK(ignis_stream_query(shared.stream, &done));
        CHECK_OK(ignis_event_query(shared.event, &done));
        CHECK_OK(ignis_event_wait(shared.event));
        CHECK_OK(ignis_stream_wait(stream, shared.stream));
        if (round % 2)
            CHECK_OK(ignis_event_free(event));
        CHECK_OK(ignis_stream_free(stream));
        if (round % 2 == 0)
            CHECK_OK(ignis_event_free(event));
    }
    test_check_series(a, 256, (float)index, 0.0F);
    CHECK_OK(ignis_array_free(a));
}

TEST(threads_use_streams_and_events)
{
    SETUP(NULL);
    shared.stream = ignis_stream_create(NULL);
    shared.event = ignis_event_create();
    run_threads(work_on_streams);
    CHECK_OK(ignis_event_free(shared.event));
    CHECK_OK(ignis_stream_free(shared.stream));
}

static void free_shared(int index)
{
    int freed = (ignis_stream_free(shared.stream) == IGNIS_OK) + (ignis_event_free(shared.event) == IGNIS_OK);
    (void)index;
    ignis_status_clear();
    pthread_mutex_lock(&shared.lock);
    shared.freed += freed;
    pthread_mutex_unlock(&shared.lock);
}

TEST(of_several_threads_one_frees)
{
    int i;
    SETUP(NULL);
    for (i = 0; i < 10; i++) {
        shared.stream = ignis_stream_create(NULL);
        shared.event = ignis_event_create();
        shared.freed = 0;
        run_threads(free_shared);
        CHECK_INT(shared.freed, 2);
    }
}

/*  Copies of its own, both ways, and one ticket of all threads. */
static struct {
    ignis_ticket ticket[ROUNDS];
    float out[64];
} readback;

static void work_on_tickets(int index)
{
    enum { N = 1000 };
    float *pinned = (float *)ignis_host_alloc(N * (int64_t)sizeof *pinned), plain[N];
    ignis_array a = make_array(N, IGNIS_F32);
    int round, i;
    for (round = 0; round < ROUNDS; round++) {
        float *in = round % 2 ? pinned : plain, *out = round % 2 ? plain : pinned;
        ignis_ticket tickets[2];
        ignis_status status;
        bool done;
        for (i = 0; i < N; i++)
            in[i] = (float)(index + round);
        tickets[0] = ignis_array_from_host_async(a, in, IGNIS_F32, N);
        tickets[1] = ignis_array_to_host_async(a, out, IGNIS_F32, N);
        if (round % 3 == 0) {
            CHECK_OK(ignis_array_free(a));
            a = make_array(N, IGNIS_F32);
        }
        (void)ignis_ticket_query(readback.ticket[round], &done); /* which another thread may have waited for */
        status = ignis_ticket_wait(readback.ticket[round]);
        CHECK(status == IGNIS_OK || status == IGNIS_ERROR_FREED);
        ignis_status_clear();
        finish(tickets[1]);
        finish(tickets[0]);
        check_series(out, N, (float)(index + round), 0.0F);
    }
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_host_free(pinned));
}

TEST(threads_use_tickets)
{
    ignis_array a;
    int i;
    SETUP(NULL);
    a = test_array(8, 8);
    for (i = 0; i < ROUNDS; i++)
        readback.ticket[i] = ignis_array_to_host_async(a, readback.out, IGNIS_F32, 64);
    run_threads(work_on_tickets);
    check_series(readback.out, 64, 0, 1);
    CHECK_OK(ignis_array_free(a));
}

/*  Each thread's stream calls; every third waits for what it has asked for. */
static void work_on_callbacks(int index)
{
    static const int one = 1;
    void *stream = ignis_stream_create(NULL);
    int round;
    CHECK_OK(ignis_stream_use(stream));
    for (round = 0; round < ROUNDS; round++) {
        CHECK_OK(ignis_stream_call(round % 2 ? NULL : stream, count_call, (void *)(uintptr_t)&one));
        if (round % 3 == index % 3)
            CHECK_OK(ignis_synchronize());
    }
    CHECK_OK(ignis_stream_free(stream));
}

TEST(threads_are_called_back)
{
    SETUP(NULL);
    called.calls = 0;
    run_threads(work_on_callbacks);
    await_calls(THREADS * ROUNDS);
}

static ignis_kernel reloaded;

/*  Two threads reload, the others launch what there is. */
static void work_on_reloads(int index)
{
    int round;
    for (round = 0; round < ROUNDS / 6; round++) {
        if (index < 2) {
            finish(reload(reloaded, 1 + (index + round) % 4));
        } else {
            float number = number_of(reloaded);
            CHECK(number >= 1 && number <= 4);
        }
    }
}

TEST(threads_launch_what_others_reload)
{
    numbered program;
    SETUP(NULL);
    write_program(&program, 1);
    reloaded = ignis_kernel_compile(&program.desc);
    run_threads(work_on_reloads);
    CHECK_OK(ignis_kernel_free(reloaded));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
