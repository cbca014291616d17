/*  test_frame.c - what the loop of an engine needs: streams and events of Ignis' own making */
#include "test.h"
#include <dlfcn.h>

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

/* --- streams ----------------------------------------------------------------------------------------------------------- */

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
    void *symbol;
    SETUP(NULL);
    symbol = dlsym(dlopen(ignis__libraries[IGNIS_LIBRARY_CUDA].path, RTLD_NOW), "cuStreamGetPriority");
    memcpy(&priority_of, &symbol, sizeof symbol);
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
    CHECK_STATUS(ignis_stream_free(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
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

/* --- events ------------------------------------------------------------------------------------------------------------ */

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

/* --- threads ------------------------------------------------------------------------------------------------------------ */

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

int main(int argc, char **argv) { return test_run(argc, argv); }
