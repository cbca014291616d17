// SPDX-License-Identifier: MIT
/*  test_stream.c - the caller's own streams, what is ordered between streams, waiting for a device */
#include "test.h"

/*  A stream of the caller on the current device: cudaStreamNonBlocking, so nothing orders it with others by itself. */
static void *new_stream(void)
{
    void *stream = NULL;
    CHECK_OK(ignis_device_use(ignis_device_current()));
    CHECK_INT(ignis__cuda.cuStreamCreate(&stream, 1), 0);
    return stream;
}

static void forget_and_destroy(void *stream)
{
    CHECK_OK(ignis_stream_forget(stream));
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(stream), 0);
}

TEST(each_device_has_one_own_stream)
{
    void *own;
    SETUP(NULL);
    own = ignis_stream_current();
    CHECK(own != NULL);
    CHECK(ignis_stream_current() == own);
    CHECK_OK(ignis_stream_use(NULL));
    CHECK(ignis_stream_current() == own);
    if (ignis_device_count() > 1) {
        CHECK_OK(ignis_device_use(1));
        CHECK(ignis_stream_current() != own);
        CHECK_OK(ignis_device_use(0));
        CHECK(ignis_stream_current() == own);
    }
}

TEST(work_goes_to_the_callers_stream)
{
    ignis_array a;
    ignis_array_info info;
    void *own, *stream;
    SETUP(NULL);
    own = ignis_stream_current();
    stream = new_stream();
    CHECK_OK(ignis_stream_use(stream));
    CHECK(ignis_stream_current() == stream);
    a = test_array(8, 8);
    CHECK_OK(ignis_array_query(a, &info));
    CHECK(info.stream == stream);
    test_check_series(a, 64, 0.0F, 1.0F);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_stream_use(NULL));
    CHECK(ignis_stream_current() == own);
    forget_and_destroy(stream);
}

/*  CU_STREAM_LEGACY is one stream, as ordered by the driver with Ignis' own. */
TEST(the_legacy_stream_is_accepted)
{
    char *handle = NULL;
    ignis_array a;
    SETUP(NULL);
    CHECK_OK(ignis_stream_use(handle + 1));
    CHECK(ignis_stream_current() == handle + 1);
    a = test_array(8, 8);
    CHECK_OK(ignis_array_scale(a, a, 2.0));
    CHECK_OK(ignis_stream_use(NULL));
    CHECK_OK(ignis_array_scale(a, a, 2.0));
    test_check_series(a, 64, 0.0F, 4.0F);
    CHECK_OK(ignis_stream_forget(handle + 1));
    CHECK_OK(ignis_array_free(a));
}

/*  Each device has one under that name. */
TEST(the_legacy_stream_is_that_of_the_current_device)
{
    char *handle = NULL;
    ignis_event event;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_stream_use(handle + 1));
    CHECK_OK(ignis_stream_use(NULL));
    CHECK_OK(ignis_device_use(1));
    event = ignis_event_create();
    CHECK_OK(ignis_event_record(event, handle + 1));
    CHECK_OK(ignis_event_wait(event));
    CHECK_OK(ignis_event_free(event));
    CHECK_OK(ignis_device_use(0));
}

static void *thread_that_takes_a_captured_stream(void *stream)
{
    bool done;
    CHECK_STATUS(ignis_stream_use(stream), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_STATUS(ignis_stream_query(stream, &done), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    return NULL;
}

/*  The stream that a capture goes to ends with it, so nobody may go on working on it. */
TEST(the_stream_of_a_capture_is_not_kept)
{
    ignis_array_desc desc;
    pthread_t thread;
    void *captured;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(4);
    CHECK_OK(ignis_graph_begin());
    captured = desc.stream = ignis_stream_current();
    CHECK_STATUS(ignis_stream_use(captured), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    CHECK_MESSAGE_HAS("ignis_graph_end");
    CHECK_FAILS(ignis_array_create(&desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_CAPTURE_REFUSED);
    REQUIRE(pthread_create(&thread, NULL, thread_that_takes_a_captured_stream, captured) == 0);
    pthread_join(thread, NULL);
    CHECK(ignis_stream_current() == captured);
    CHECK_OK(ignis_graph_free(ignis_graph_end()));
    CHECK(ignis_stream_current() != captured);
    CHECK_OK(ignis_array_free(test_array(4, 4)));
    CHECK_OK(ignis_synchronize());
}

/*  CU_STREAM_PER_THREAD is one handle of as many streams as there are threads: Ignis cannot order one with another by
    it. */
TEST(the_per_thread_stream_is_refused)
{
    char *handle = NULL;
    void *own;
    ignis_array_desc desc;
    SETUP(NULL);
    own = ignis_stream_current();
    CHECK_STATUS(ignis_stream_use(handle + 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STREAM_INVALID);
    CHECK_MESSAGE_HAS("cudaStreamCreate");
    CHECK(ignis_stream_current() == own);
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(64);
    desc.stream = handle + 2;
    CHECK_FAILS(ignis_array_create(&desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STREAM_INVALID);
}

/*  Streams are not ordered with each other by Ignis; a program that waits between them gets what one stream would give.
    */
TEST(one_array_is_used_on_several_streams)
{
    enum { N = 1 << 16, STEPS = 40 };
    ignis_array a, b;
    void *streams[3];
    int i;
    SETUP(NULL);
    streams[0] = NULL;
    streams[1] = new_stream();
    streams[2] = new_stream();
    a = test_array(1, N);
    b = test_array(1, N);
    CHECK_OK(ignis_array_fill(a, 0.0));
    CHECK_OK(ignis_array_fill(b, 1.0));
    for (i = 0; i < STEPS; i++) {
        CHECK_OK(ignis_synchronize());
        CHECK_OK(ignis_stream_use(streams[i % 3]));
        CHECK_OK(ignis_array_add(a, a, b));
    }
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_stream_use(NULL));
    test_check_series(a, N, (float)STEPS, 0.0F);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_array_free(b));
    forget_and_destroy(streams[1]);
    forget_and_destroy(streams[2]);
}

TEST(free_waits_for_work_on_any_stream)
{
    enum { N = 1 << 18 };
    ignis_array a, b, c;
    void *stream;
    SETUP(NULL);
    stream = new_stream();
    a = test_array(1, N);
    b = test_array(1, N);
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_stream_use(stream));
    CHECK_OK(ignis_array_scale(b, a, 2.0)); /* reads a on the caller's stream */
    CHECK_OK(ignis_stream_use(NULL));
    CHECK_OK(ignis_array_free(a)); /* while that may still run */
    c = test_array(1, N);          /* and its memory is asked for again */
    CHECK_OK(ignis_array_fill(c, -1.0));
    CHECK_OK(ignis_synchronize());
    test_check_series(b, N, 0.0F, 2.0F);
    CHECK_OK(ignis_array_free(b));
    CHECK_OK(ignis_array_free(c));
    forget_and_destroy(stream);
}

TEST(streams_of_another_device_are_refused)
{
    void *stream, *own;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_device_use(1));
    stream = new_stream();
    CHECK_OK(ignis_device_use(0));
    own = ignis_stream_current();
    CHECK_STATUS(ignis_stream_use(stream), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_STREAM_INVALID);
    CHECK(ignis_stream_current() == own);
    CHECK_OK(ignis_device_use(1));
    CHECK_OK(ignis_stream_use(stream));
    CHECK_OK(ignis_stream_use(NULL));
    forget_and_destroy(stream);
}

TEST(arrays_outlive_a_forgotten_stream)
{
    ignis_array a, b, unused;
    ignis_array_info info;
    ignis_array_desc desc;
    void *stream;
    SETUP(NULL);
    stream = new_stream();
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(64);
    desc.stream = stream;
    b = ignis_array_create(&desc);
    unused = ignis_array_create(&desc); /* before the stream is forgotten */
    CHECK_OK(ignis_array_query(b, &info));
    CHECK(info.stream == stream);
    CHECK_OK(ignis_stream_use(stream));
    a = test_array(8, 8);
    CHECK_OK(ignis_array_copy(b, a));
    forget_and_destroy(stream);
    CHECK(ignis_stream_current() != stream);
    CHECK_OK(ignis_array_query(b, &info));
    CHECK(info.stream != stream);
    CHECK_OK(ignis_array_scale(b, a, 3.0));
    test_check_series(b, 64, 0.0F, 3.0F);
    CHECK_OK(ignis_array_fill(unused, 2));
    test_check_series(unused, 64, 2.0F, 0.0F);
    CHECK_OK(ignis_array_free(unused));
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_array_free(b));
    CHECK_INT(ignis_memory_trim(0) >= 0, true);
    CHECK_OK(ignis_array_free(test_array(8, 8)));
}

TEST(forgetting_an_unknown_stream_is_fine)
{
    void *stream;
    SETUP(NULL);
    stream = new_stream();
    forget_and_destroy(stream);
}

static pthread_barrier_t barrier;

static void *work_on_a_stream_that_goes_away(void *stream)
{
    CHECK_OK(ignis_stream_use(stream));
    CHECK_OK(ignis_array_free(test_array(8, 8)));
    pthread_barrier_wait(&barrier); /* the other thread destroys the stream now */
    pthread_barrier_wait(&barrier);
    CHECK_OK(ignis_array_free(test_array(8, 8)));
    CHECK(ignis_stream_current() != stream);
    return NULL;
}

TEST(threads_leave_a_forgotten_stream)
{
    pthread_t thread;
    void *stream;
    SETUP(NULL);
    stream = new_stream();
    pthread_barrier_init(&barrier, NULL, 2);
    REQUIRE(pthread_create(&thread, NULL, work_on_a_stream_that_goes_away, stream) == 0);
    pthread_barrier_wait(&barrier);
    forget_and_destroy(stream);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&barrier);
}

TEST(streams_of_threads_are_their_own)
{
    pthread_t thread;
    void *stream, *own;
    SETUP(NULL);
    own = ignis_stream_current();
    stream = new_stream();
    pthread_barrier_init(&barrier, NULL, 2);
    REQUIRE(pthread_create(&thread, NULL, work_on_a_stream_that_goes_away, stream) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(ignis_stream_current() == own);
    forget_and_destroy(stream);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&barrier);
}

/*  While a thread waits for the streams of a device one by one, as it does during a capture, another one destroys one
    of them. */
static int (*is_capturing)(void *, int *);
static void *destroyed;
static uint64_t is_destroyed;

static void *thread_that_destroys(void *arg)
{
    (void)arg;
    CHECK_OK(ignis_device_use(0));
    forget_and_destroy(destroyed);
    ignis__atomic_store(&is_destroyed, 1);
    return NULL;
}

static int ask_after_a_while(void *stream, int *captures)
{
    static pthread_t thread;
    int i;
    if (stream == destroyed && ignis__cuda.cuStreamIsCapturing != is_capturing) {
        ignis__cuda.cuStreamIsCapturing = is_capturing;
        CHECK_INT(pthread_create(&thread, NULL, thread_that_destroys, NULL), 0);
        for (i = 0; i < 100 && !ignis__atomic_load(&is_destroyed); i++)
            test_sleep_ms(2);
        CHECK_INT(pthread_detach(thread), 0);
    }
    return is_capturing(stream, captures);
}

static void *thread_that_captures(void *arg)
{
    (void)arg;
    CHECK_OK(ignis_graph_begin());
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK_OK(ignis_graph_free(ignis_graph_end()));
    return NULL;
}

TEST(a_stream_is_destroyed_while_another_thread_waits_for_all)
{
    pthread_t thread;
    int i;
    SETUP(NULL);
    destroyed = new_stream();
    is_destroyed = 0;
    CHECK_OK(ignis_stream_use(destroyed));
    CHECK_OK(ignis_array_free(test_array(8, 8)));
    CHECK_OK(ignis_stream_use(NULL));
    pthread_barrier_init(&barrier, NULL, 2);
    REQUIRE(pthread_create(&thread, NULL, thread_that_captures, NULL) == 0);
    pthread_barrier_wait(&barrier);
    is_capturing = ignis__cuda.cuStreamIsCapturing;
    ignis__cuda.cuStreamIsCapturing = ask_after_a_while;
    CHECK_OK(ignis_synchronize());
    CHECK(ignis__cuda.cuStreamIsCapturing == is_capturing);
    for (i = 0; i < 500 && !ignis__atomic_load(&is_destroyed); i++)
        test_sleep_ms(2);
    CHECK(ignis__atomic_load(&is_destroyed));
    CHECK_OK(ignis_synchronize());
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&barrier);
}

/*  While a thread asks whether a stream is done, another one draws the stream into its capture, which the question
    would spoil. */
static void *asked;
static uint64_t is_drawn;

static void *thread_that_draws(void *arg)
{
    ignis_graph graph;
    (void)arg;
    CHECK_OK(ignis_graph_begin());
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* the other thread is about to ask */
    CHECK_OK(ignis_stream_wait(asked, NULL));
    ignis__atomic_store(&is_drawn, 1);
    pthread_barrier_wait(&barrier);
    CHECK_OK(ignis_stream_wait(NULL, asked));
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    CHECK_OK(ignis_graph_free(graph));
    return NULL;
}

static int draw_after_asking(void *stream, int *captures)
{
    int error = is_capturing(stream, captures), i;
    if (stream == asked) {
        ignis__cuda.cuStreamIsCapturing = is_capturing;
        pthread_barrier_wait(&barrier);
        for (i = 0; i < 50 && !ignis__atomic_load(&is_drawn); i++)
            test_sleep_ms(2);
        CHECK(!ignis__atomic_load(&is_drawn)); /* it waits for this thread */
    }
    return error;
}

TEST(a_stream_is_drawn_into_a_capture_while_another_thread_asks)
{
    pthread_t thread;
    bool done = false;
    SETUP(NULL);
    asked = ignis_stream_create(NULL);
    is_drawn = 0;
    pthread_barrier_init(&barrier, NULL, 2);
    REQUIRE(pthread_create(&thread, NULL, thread_that_draws, NULL) == 0);
    pthread_barrier_wait(&barrier);
    is_capturing = ignis__cuda.cuStreamIsCapturing;
    ignis__cuda.cuStreamIsCapturing = draw_after_asking;
    CHECK_OK(ignis_stream_query(asked, &done));
    CHECK(done);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&barrier);
    CHECK_OK(ignis_stream_free(asked));
}

/*  While a thread orders memory that it gives up behind a stream, another one destroys that. */
static int (*record)(void *, void *);

static int record_after_a_while(void *event, void *stream)
{
    static pthread_t thread;
    if (stream == destroyed && ignis__cuda.cuEventRecord != record) {
        int i;
        ignis__cuda.cuEventRecord = record;
        CHECK_INT(pthread_create(&thread, NULL, thread_that_destroys, NULL), 0);
        for (i = 0; i < 50 && !ignis__atomic_load(&is_destroyed); i++)
            test_sleep_ms(2);
        CHECK(!ignis__atomic_load(&is_destroyed)); /* it waits for this thread */
        CHECK_INT(pthread_detach(thread), 0);
    }
    return record(event, stream);
}

TEST(a_stream_is_destroyed_while_another_thread_frees_what_was_used_on_it)
{
    ignis_array a, b;
    int i;
    SETUP(NULL);
    destroyed = new_stream();
    is_destroyed = 0;
    a = test_array(8, 8);
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_stream_use(destroyed));
    b = ignis_array_clone(a);
    CHECK_OK(ignis_stream_use(NULL));
    record = ignis__cuda.cuEventRecord;
    ignis__cuda.cuEventRecord = record_after_a_while;
    CHECK_OK(ignis_array_free(a));
    CHECK(ignis__cuda.cuEventRecord == record);
    for (i = 0; i < 500 && !ignis__atomic_load(&is_destroyed); i++)
        test_sleep_ms(2);
    CHECK(ignis__atomic_load(&is_destroyed));
    test_check_series(b, 64, 0.0F, 1.0F);
    CHECK_OK(ignis_array_free(b));
}

TEST(synchronize_waits_and_succeeds)
{
    ignis_array a;
    SETUP(NULL);
    CHECK_OK(ignis_synchronize()); /* nothing was done yet */
    a = test_array(64, 64);
    CHECK_OK(ignis_array_fill(a, 1.0));
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_array_free(a));
}

/*  An array that is freed while its stream is being forgotten makes that stream wait for where the array was used last.
    Its memory is handed on when that is over, not before. */
static int (*finish_stream)(void *stream);
static int (*wait_in_stream)(void *stream, void *event, unsigned flags);
static ignis_array freed_meanwhile;
static bool waits_still;

static int finish_and_free(void *stream)
{
    int error = finish_stream(stream);
    waits_still = waits_still && stream != destroyed;
    if (stream == destroyed && freed_meanwhile.id) {
        CHECK_OK(ignis_array_free(freed_meanwhile));
        freed_meanwhile.id = 0;
    }
    return error;
}

static int note_wait(void *stream, void *event, unsigned flags)
{
    waits_still = waits_still || stream == destroyed;
    return wait_in_stream(stream, event, flags);
}

TEST(an_array_is_freed_while_its_stream_is_forgotten)
{
    void *other;
    SETUP(NULL);
    destroyed = new_stream();
    other = new_stream();
    CHECK_OK(ignis_stream_use(destroyed));
    freed_meanwhile = test_array(8, 8);
    CHECK_OK(ignis_stream_use(other));
    CHECK_OK(ignis_array_scale(freed_meanwhile, freed_meanwhile, 2));
    CHECK_OK(ignis_stream_use(NULL));
    waits_still = false;
    finish_stream = ignis__cuda.cuStreamSynchronize;
    wait_in_stream = ignis__cuda.cuStreamWaitEvent;
    ignis__cuda.cuStreamSynchronize = finish_and_free;
    ignis__cuda.cuStreamWaitEvent = note_wait;
    CHECK_OK(ignis_stream_forget(destroyed));
    ignis__cuda.cuStreamSynchronize = finish_stream;
    ignis__cuda.cuStreamWaitEvent = wait_in_stream;
    CHECK_INT(freed_meanwhile.id, 0);
    CHECK(!waits_still);
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(destroyed), 0);
    forget_and_destroy(other);
}

/*  An array of a stream that is forgotten just when the array takes its memory. */
static int (*take_memory)(ignis__address *address, size_t size);

static int take_and_forget(ignis__address *address, size_t size)
{
    ignis__cuda.cuMemAlloc_v2 = take_memory;
    forget_and_destroy(destroyed);
    return take_memory(address, size);
}

static int no_memory(ignis__address *address, size_t size)
{
    (void)address;
    (void)size;
    return 2; /* CUDA_ERROR_OUT_OF_MEMORY */
}

TEST(a_stream_is_forgotten_while_its_array_takes_memory)
{
    enum { N = 1 << 18 };
    ignis_array_desc desc;
    ignis_array a;
    void *other;
    if (test_is_bypass())
        SKIP("IGNIS_MEMORY_BYPASS=1: nothing is cached");
    SETUP(NULL);
    other = new_stream();
    destroyed = new_stream();
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(N);
    desc.stream = destroyed;
    a = ignis_array_create(&desc);
    take_memory = ignis__cuda.cuMemAlloc_v2;
    ignis__cuda.cuMemAlloc_v2 = take_and_forget;
    CHECK_OK(ignis_array_fill(a, 1));
    CHECK(ignis__cuda.cuMemAlloc_v2 == take_memory);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_stream_use(other));
    desc.stream = NULL;
    ignis__cuda.cuMemAlloc_v2 = no_memory; /* what is left is that array's */
    a = ignis_array_create(&desc);
    CHECK_OK(ignis_array_fill(a, 2));
    ignis__cuda.cuMemAlloc_v2 = take_memory;
    test_check_series(a, N, 2.0F, 0.0F);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_stream_use(NULL));
    forget_and_destroy(other);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
