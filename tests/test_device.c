/*  test_device.c - devices, current device and stream of a thread, the caller's own streams */
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

static void check_values(ignis_array a, int64_t count, float first, float step)
{
    float *data = (float *)malloc(sizeof(float) * (size_t)count);
    int64_t i, wrong = 0;
    REQUIRE(data);
    CHECK_OK(ignis_array_to_host(a, data, IGNIS_F32, count));
    for (i = 0; i < count; i++)
        wrong += data[i] != first + step * (float)i;
    CHECK_INT(wrong, 0);
    free(data);
}

/* --- devices -------------------------------------------------------------------------------------------------- */

TEST(device_facts_make_sense)
{
    ignis_device_info info, other;
    int i, k, count;
    SETUP(NULL);
    count = ignis_device_count();
    CHECK(count >= 1 && count <= IGNIS_MAX_DEVICES);
    for (i = 0; i < count; i++) {
        CHECK_OK(ignis_device_query(i, &info));
        CHECK_INT(info.device, i);
        CHECK(info.name[0] != '\0');
        CHECK(strchr(info.pci_bus_id, ':') != NULL);
        CHECK(info.compute_major >= 5 && info.compute_minor >= 0);
        CHECK(info.multiprocessors > 0);
        CHECK_INT(info.warp_size, 32);
        CHECK_INT(info.max_threads_per_block, 1024);
        CHECK(info.shared_per_block >= 48 * 1024);
        CHECK(info.l2_bytes > 0);
        CHECK(info.memory_total >= 64 * 1024 * 1024);
        CHECK(info.driver_version >= 11000);
        for (k = 0; k < i; k++) {
            CHECK_OK(ignis_device_query(k, &other));
            CHECK(memcmp(info.uuid, other.uuid, sizeof info.uuid) != 0);
        }
    }
    CHECK_STATUS(ignis_device_query(count, &info), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
}

TEST(threads_start_with_the_device_of_the_setup)
{
    ignis_desc desc = test_desc(NULL);
    ignis_array_info info;
    ignis_array a;
    SETUP(NULL);
    CHECK_INT(ignis_device_current(), 0);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_shutdown());
    desc.device = 1;
    SETUP(&desc);
    CHECK_INT(ignis_device_current(), 1);
    a = test_array(2, 3);
    CHECK_OK(ignis_array_query(a, &info));
    CHECK_INT(info.device, 1);
    CHECK_OK(ignis_array_free(a));
}

TEST(desc_names_the_device_of_an_array)
{
    ignis_array_desc desc;
    ignis_array_info info;
    ignis_array a;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(2);
    SETUP(NULL);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_device_use(1));
    desc.device = IGNIS_DEVICE_0;
    a = ignis_array_create(&desc);
    CHECK_OK(ignis_array_query(a, &info));
    CHECK_INT(info.device, 0);
    CHECK_OK(ignis_array_fill(a, 3.0)); /* works while another device is current */
    check_values(a, 2, 3.0F, 0.0F);
    CHECK_INT(ignis_device_current(), 1);
    CHECK_OK(ignis_array_free(a));
}

static void *use_device_0(void *arg)
{
    (void)arg;
    CHECK_INT(ignis_device_current(), 0);
    CHECK_OK(ignis_array_free(test_array(2, 2)));
    CHECK_OK(ignis_device_use(0));
    return NULL;
}

TEST(each_thread_has_its_own_device)
{
    pthread_t thread;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_device_use(1));
    REQUIRE(pthread_create(&thread, NULL, use_device_0, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_INT(ignis_device_current(), 1);
}

TEST(copies_go_between_devices)
{
    ignis_array a, b;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    a = test_array(64, 64);
    CHECK_OK(ignis_device_use(1));
    b = test_array(64, 64);
    CHECK_OK(ignis_array_zero(b));
    CHECK_OK(ignis_array_copy(b, a));
    check_values(b, 64 * 64, 0.0F, 1.0F);
    CHECK_STATUS(ignis_array_add(b, b, a), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_STATUS(ignis_array_write_rows(b, a, 0), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_array_free(b));
}

/* --- streams -------------------------------------------------------------------------------------------------- */

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
    check_values(a, 64, 0.0F, 1.0F);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_stream_use(NULL));
    CHECK(ignis_stream_current() == own);
    forget_and_destroy(stream);
}

TEST(special_streams_are_accepted)
{
    char *handle = NULL;
    int i;
    SETUP(NULL);
    for (i = 1; i <= 2; i++) { /* CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
        ignis_array a;
        CHECK_OK(ignis_stream_use(handle + i));
        a = test_array(8, 8);
        CHECK_OK(ignis_array_scale(a, a, 2.0));
        check_values(a, 64, 0.0F, 2.0F);
        CHECK_OK(ignis_array_free(a));
        CHECK_OK(ignis_stream_use(NULL));
    }
}

/*  Streams are not ordered with each other by Ignis; a program that waits between them gets what one stream would give. */
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
    check_values(a, N, (float)STEPS, 0.0F);
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
    check_values(b, N, 0.0F, 2.0F);
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
    ignis_array a, b;
    ignis_array_info info;
    ignis_array_desc desc;
    void *stream;
    SETUP(NULL);
    stream = new_stream();
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(64);
    desc.stream = stream;
    b = ignis_array_create(&desc);
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
    check_values(b, 64, 0.0F, 3.0F);
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

int main(int argc, char **argv) { return test_run(argc, argv); }
