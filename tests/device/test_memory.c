// SPDX-License-Identifier: MIT
/*  test_memory.c - the allocator of device memory: reuse, statistics, limits, running out */
#include "fault.h"
#include "array.h"

enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY */
static const int64_t MIB = 1024 * 1024;

#define NEEDS_CACHE()     \
    if (test_is_bypass()) \
    SKIP("IGNIS_MEMORY_BYPASS=1: nothing is cached")

/*  An array that has its memory already */
static ignis_array block(int64_t bytes)
{
    ignis_array array = make(IGNIS_SHAPE(bytes), IGNIS_U8);
    CHECK_OK(ignis_array_to_device(array));
    return array;
}

/*  An array over the memory of another one, as over a caller's */
static ignis_array wrap(ignis_array array, int64_t bytes)
{
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(bytes), IGNIS_U8);
    desc.ptr = ignis_array_device_ptr(array);
    return ignis_array_create(&desc);
}

static void check_nothing_is_held(void)
{
    ignis_memory_info info;
    CHECK(ignis_memory_trim(0) >= 0);
    info = memory();
    CHECK_INT(info.live_bytes, 0);
    CHECK_INT(info.live_blocks, 0);
    CHECK_INT(info.reserved_bytes, 0);
    CHECK_INT(info.segments, 0);
    CHECK_INT(info.largest_free, 0);
    CHECK_INT(info.driver_allocations, info.driver_frees);
}

/* --- statistics ----------------------------------------------------------------------------------------------- */

TEST(figures_follow_the_arrays)
{
    ignis_memory_info start, info;
    ignis_device_info device;
    ignis_array a, b;
    SETUP(NULL);
    start = memory();
    CHECK_INT(start.live_bytes, 0);
    CHECK_INT(start.reserved_bytes, 0);
    CHECK_INT(start.limit, 0);
    CHECK_OK(ignis_device_query(0, &device));
    CHECK_INT(start.device_total, device.memory_total);
    CHECK(start.device_free > 0 && start.device_free <= start.device_total);

    a = make(IGNIS_SHAPE(3 * MIB), IGNIS_U8);
    b = make(IGNIS_SHAPE(5 * MIB), IGNIS_U8);
    CHECK_INT(memory().live_blocks, 0); /* no memory before the first use */
    CHECK_OK(ignis_array_to_device(a));
    CHECK_OK(ignis_array_to_device(a));
    CHECK_OK(ignis_array_to_device(b));
    info = memory();
    CHECK_INT(info.live_blocks, 2);
    CHECK(info.live_bytes >= 8 * MIB && info.live_bytes <= 10 * MIB);
    CHECK(info.reserved_bytes >= info.live_bytes);
    CHECK_INT(info.live_peak, info.live_bytes);
    CHECK_INT(info.reserved_peak, info.reserved_bytes);
    CHECK_INT(info.allocations, 2);
    CHECK(info.driver_allocations >= 1);
    CHECK_INT(info.driver_allocations - info.driver_frees, info.segments);

    CHECK_OK(ignis_array_free(b));
    CHECK_INT(memory().live_blocks, 1);
    CHECK(memory().live_bytes >= 3 * MIB && memory().live_bytes < 5 * MIB);
    CHECK_INT(memory().live_peak, info.live_peak);
    CHECK_OK(ignis_array_free(a));
    check_nothing_is_held();
    CHECK_INT(memory().live_peak, info.live_peak);
    CHECK_INT(memory().reserved_peak, info.reserved_peak);
}

TEST(empty_arrays_take_no_memory)
{
    ignis_array a;
    SETUP(NULL);
    a = block(0);
    CHECK(ignis_array_device_ptr(a) == NULL);
    CHECK_INT(memory().live_blocks, 0);
    CHECK_OK(ignis_array_free(a));
    CHECK_INT(ignis_status_last(), IGNIS_OK);
}

TEST(memory_stays_until_the_last_view_is_freed)
{
    ignis_array a, view, inner;
    SETUP(NULL);
    a = block(4 * MIB);
    view = ignis_array_slice(a, 0, 0, MIB);
    inner = ignis_array_slice(view, 0, 16, 16);
    CHECK_OK(ignis_array_zero(a));
    CHECK_INT(memory().live_blocks, 1);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_array_free(view));
    CHECK_INT(memory().live_blocks, 1);
    CHECK_OK(ignis_array_zero(inner));
    CHECK_OK(ignis_array_free(inner));
    CHECK_INT(memory().live_blocks, 0);
}

TEST(wrapped_memory_is_not_counted_and_not_freed)
{
    ignis_array a, wrapped;
    SETUP(NULL);
    a = block(1024);
    wrapped = wrap(a, 1024);
    CHECK_OK(ignis_array_zero(wrapped));
    CHECK_INT(memory().live_blocks, 1);
    CHECK_OK(ignis_array_free(wrapped));
    CHECK_INT(memory().live_blocks, 1);
    CHECK_OK(ignis_array_zero(a));
    CHECK_OK(ignis_array_free(a));
}

TEST(pinned_bytes_are_counted)
{
    ignis_array a, b;
    SETUP(NULL);
    a = make(IGNIS_SHAPE(100000), IGNIS_U8);
    b = make(IGNIS_SHAPE(50000), IGNIS_U8);
    CHECK(ignis_array_pin(a) != NULL);
    CHECK(ignis_array_pin(b) != NULL);
    CHECK(memory().pinned_bytes >= 150000);
    CHECK_INT(memory().live_blocks, 0);
    CHECK_OK(ignis_array_unpin(a));
    CHECK(memory().pinned_bytes >= 50000 && memory().pinned_bytes < 150000);
    CHECK_OK(ignis_array_free(b)); /* frees its pinned memory, too */
    CHECK_INT(memory().pinned_bytes, 0);
    CHECK_OK(ignis_array_free(a));
}

/*  What Ignis reads files through is freed at once where there is one device. Where there are others, of which one may
    wait for this thread, it is kept until the next file, or until it is asked for: see ignis__pinned_chunk_recycle. */
TEST(large_pieces_are_kept_where_devices_may_wait)
{
    ignis__device *device;
    ignis__pinned *piece, *again;
    ignis__binding binding;
    SETUP(NULL);
    CHECK_OK(ignis_device_use(0));
    device = ignis__device_get("test", 0);
    REQUIRE(ignis__device_enter("test", device, &binding));
    piece = ignis__pinned_chunk_take("test", device, 3 * MIB);
    CHECK(piece && memory().pinned_bytes == 3 * MIB);
    CHECK_OK(ignis__pinned_chunk_recycle("test", device, piece));
    CHECK_INT(memory().pinned_bytes, 0);
    piece = ignis__pinned_chunk_take("test", device, 5000);
    CHECK(piece && piece->size == 8192);
    CHECK_OK(ignis__pinned_chunk_recycle("test", device, piece)); /* a small one stays */
    again = ignis__pinned_chunk_take("test", device, 8192);
    CHECK(again == piece);
    CHECK_OK(ignis__pinned_chunk_recycle("test", device, again));
    ignis__device_leave(&binding);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_device_use(1));
    CHECK_OK(ignis_device_use(0));
    REQUIRE(ignis__device_enter("test", device, &binding));
    piece = ignis__pinned_chunk_take("test", device, 3 * MIB);
    CHECK_OK(ignis__pinned_chunk_recycle("test", device, piece));
    CHECK_INT(memory().pinned_bytes, 3 * MIB + 8192);
    again = ignis__pinned_chunk_take("test", device, 2 * MIB);
    CHECK(again == piece);
    CHECK_OK(ignis__pinned_chunk_recycle("test", device, again));
    ignis__device_leave(&binding);
    CHECK_INT(ignis_memory_trim(1), 0); /* has none */
    CHECK_INT(memory().pinned_bytes, 3 * MIB + 8192);
    CHECK_INT(ignis_memory_trim(0), 0);
    CHECK_INT(memory().pinned_bytes, 8192);
}

TEST(devices_have_their_own_memory)
{
    ignis_memory_info other;
    ignis_array a;
    SETUP(NULL);
    NEEDS_DEVICES(2);
    CHECK_OK(ignis_device_use(1));
    a = block(MIB);
    CHECK_OK(ignis_memory_query(1, &other));
    CHECK_INT(other.live_blocks, 1);
    CHECK_INT(memory().live_blocks, 0);
    CHECK_OK(ignis_array_free(a));
    CHECK(ignis_memory_trim(1) >= 0);
    CHECK_OK(ignis_memory_query(1, &other));
    CHECK_INT(other.reserved_bytes, 0);
}

/* --- reuse ---------------------------------------------------------------------------------------------------- */

TEST(a_freed_block_comes_back)
{
    static const int64_t sizes[] = {1, 255, 4096, 100000, 1048576, 3000000, 40000000};
    size_t i;
    NEEDS_CACHE();
    SETUP(NULL);
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ignis_array a = block(sizes[i]);
        ignis_memory_info before = memory();
        void *ptr = ignis_array_device_ptr(a);
        int k;
        CHECK_OK(ignis_array_free(a));
        for (k = 0; k < 10; k++) {
            a = block(sizes[i]);
            CHECK(ignis_array_device_ptr(a) == ptr);
            CHECK_OK(ignis_array_free(a));
        }
        CHECK_INT(memory().driver_allocations, before.driver_allocations);
        CHECK_INT(memory().driver_frees, before.driver_frees);
        CHECK_INT(memory().cache_hits, before.cache_hits + 10);
    }
    check_nothing_is_held();
}

TEST(large_blocks_are_split_and_joined_again)
{
    enum { PARTS = 8 };
    static const int order[PARTS] = {3, 0, 7, 4, 1, 6, 5, 2};
    ignis_array parts[PARTS];
    ignis_memory_info before;
    int i;
    NEEDS_CACHE();
    SETUP(NULL);
    CHECK_OK(ignis_array_free(block(64 * MIB)));
    before = memory();
    CHECK(before.largest_free >= 64 * MIB);
    for (i = 0; i < PARTS; i++)
        parts[i] = block(8 * MIB);
    for (i = 0; i < PARTS; i++)
        CHECK_OK(ignis_array_free(parts[order[i]]));
    CHECK_INT(memory().largest_free, before.largest_free);
    CHECK_OK(ignis_array_free(block(64 * MIB)));
    CHECK_INT(memory().driver_allocations, before.driver_allocations);
    check_nothing_is_held();
}

TEST(the_smallest_block_that_fits_is_taken)
{
    ignis_array a, b, keep[2];
    void *ptr_a, *ptr_b;
    int64_t calls;
    NEEDS_CACHE();
    SETUP(NULL);
    a = block(48 * MIB);
    keep[0] = block(1000); /* in the way of joining */
    b = block(24 * MIB);
    keep[1] = block(1000);
    ptr_a = ignis_array_device_ptr(a);
    ptr_b = ignis_array_device_ptr(b);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_array_free(b));
    calls = memory().driver_allocations;
    b = block(24 * MIB);
    a = block(48 * MIB);
    CHECK(ignis_array_device_ptr(b) == ptr_b);
    CHECK(ignis_array_device_ptr(a) == ptr_a);
    CHECK_INT(memory().driver_allocations, calls);
    CHECK_OK(ignis_array_free(a));
    CHECK_OK(ignis_array_free(b));
    CHECK_OK(ignis_array_free(keep[0]));
    CHECK_OK(ignis_array_free(keep[1]));
    check_nothing_is_held();
}

TEST(trim_leaves_live_arrays_alone)
{
    unsigned char out[1000];
    ignis_array a, b;
    size_t i;
    SETUP(NULL);
    a = block(1000);
    b = block(30 * MIB);
    memset(out, 7, sizeof out);
    CHECK_OK(ignis_array_from_host_raw(a, out, (int64_t)sizeof out));
    CHECK_OK(ignis_array_free(b));
    CHECK(ignis_memory_trim(0) >= (test_is_bypass() ? 0 : 30 * MIB));
    CHECK_INT(ignis_memory_trim(0), 0);
    CHECK_INT(memory().live_blocks, 1);
    memset(out, 0, sizeof out);
    CHECK_OK(ignis_array_to_host_raw(a, out, (int64_t)sizeof out));
    for (i = 0; i < sizeof out; i++)
        CHECK_INT(out[i], 7);
    CHECK_OK(ignis_array_free(a));
    check_nothing_is_held();
}

TEST(blocks_are_aligned)
{
    ignis_array arrays[20];
    int i;
    SETUP(NULL);
    for (i = 0; i < 20; i++) {
        arrays[i] = block(1 + 37 * i * i);
        CHECK_INT((uintptr_t)ignis_array_device_ptr(arrays[i]) % 256, 0);
    }
    for (i = 0; i < 20; i++)
        CHECK_OK(ignis_array_free(arrays[i]));
}

/*  Random arrays come and go; each keeps its own pattern all its life, and the figures add up. */
TEST(soak)
{
    enum { SLOTS = 48, ROUNDS = 3000, LARGEST = 1 << 17 };
    static unsigned char data[LARGEST];
    struct {
        ignis_array array;
        int64_t size;
        unsigned char seed;
    } slots[SLOTS];
    int64_t sum = 0, count = 0, wrong = 0, i;
    unsigned random = 12345;
    int round;
    memset(slots, 0, sizeof slots);
    SETUP(NULL);
    for (round = 0; round < ROUNDS; round++) {
        int k = (int)((random = random * 1664525U + 1013904223U) >> 16) % SLOTS;
        if (slots[k].array.id) {
            CHECK_OK(ignis_array_to_host_raw(slots[k].array, data, slots[k].size));
            for (i = 0; i < slots[k].size; i++)
                wrong += data[i] != (unsigned char)(slots[k].seed + i);
            CHECK_OK(ignis_array_free(slots[k].array));
            slots[k].array = IGNIS_NO_ARRAY;
            sum -= slots[k].size, count--;
        } else {
            random = random * 1664525U + 1013904223U;
            slots[k].size = 1 + (int64_t)((random >> 8) % (1U << (random >> 28) << 2)) % LARGEST;
            slots[k].seed = (unsigned char)random;
            slots[k].array = make(IGNIS_SHAPE(slots[k].size), IGNIS_U8);
            for (i = 0; i < slots[k].size; i++)
                data[i] = (unsigned char)(slots[k].seed + i);
            CHECK_OK(ignis_array_from_host_raw(slots[k].array, data, slots[k].size));
            sum += slots[k].size, count++;
        }
        if (round % 64 == 0) {
            ignis_memory_info info = memory();
            CHECK_INT(info.live_blocks, count);
            CHECK(info.live_bytes >= sum && info.live_bytes <= 2 * sum + 512 * count);
            CHECK(info.reserved_bytes >= info.live_bytes && info.live_peak >= info.live_bytes);
            CHECK_INT(info.driver_allocations - info.driver_frees, info.segments);
        }
        if (round % 1000 == 999)
            CHECK(ignis_memory_trim(0) >= 0);
    }
    CHECK_INT(wrong, 0);
    for (round = 0; round < SLOTS; round++)
        if (slots[round].array.id)
            CHECK_OK(ignis_array_free(slots[round].array));
    check_nothing_is_held();
}

/* --- streams -------------------------------------------------------------------------------------------------- */

TEST(another_stream_gets_a_block_only_behind_an_event)
{
    ignis_array a, b;
    void *stream = NULL, *ptr;
    int recorded, waited;
    NEEDS_CACHE();
    SETUP(NULL);
    CHECK_OK(ignis_device_use(0));
    REQUIRE(ignis__cuda.cuStreamCreate(&stream, 1) == 0);

    fault_reset_counts();
    a = block(32 * MIB);
    CHECK_OK(ignis_array_zero(a));
    ptr = ignis_array_device_ptr(a);
    CHECK_OK(ignis_array_free(a));
    recorded = fault_count("cuEventRecord");
    waited = fault_count("cuStreamWaitEvent");
    CHECK_OK(ignis_stream_use(stream));
    b = block(32 * MIB);
    if (ignis_array_device_ptr(b) == ptr) {
        CHECK(recorded + fault_count("cuEventRecord") > 0);
        CHECK(fault_count("cuStreamWaitEvent") > waited || fault_count("cuEventQuery") > 0);
    }
    CHECK_OK(ignis_array_zero(b));
    CHECK_OK(ignis_array_free(b));
    CHECK_OK(ignis_stream_forget(stream));
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(stream), 0);
    check_nothing_is_held();
}

/*  Its owner knows when it is done with; a frame that wraps and frees must not wait. */
TEST(freeing_wrapped_memory_waits_for_no_stream)
{
    ignis_array a, wrapped;
    void *stream = NULL;
    SETUP(NULL);
    a = block(1024);
    REQUIRE(ignis__cuda.cuStreamCreate(&stream, 1) == 0);
    wrapped = wrap(a, 1024);
    CHECK_OK(ignis_array_zero(wrapped));
    CHECK_OK(ignis_stream_use(stream));
    CHECK_OK(ignis_array_zero(wrapped));
    CHECK_OK(ignis_stream_use(NULL));
    fault_reset_counts();
    CHECK_OK(ignis_array_free(wrapped));
    CHECK_INT(fault_count("cuCtxSynchronize") + fault_count("cuStreamSynchronize"), 0);
    CHECK_OK(ignis_stream_forget(stream));
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(stream), 0);
    CHECK_OK(ignis_array_free(a));
}

/* --- threads -------------------------------------------------------------------------------------------------- */

/*  While one thread waits in a call of the driver, which may wait for the device, another goes on. */
static int (*real_alloc)(ignis__address *, size_t);
static int (*real_host_alloc)(void **, size_t, unsigned);
static int (*real_wait)(void *);
static ignis_array used_meanwhile;
static void *forgotten_meanwhile;
static uint64_t went_on;

static void *thread_that_goes_on(void *arg)
{
    ignis_array_info info;
    (void)arg;
    CHECK_OK(ignis_array_query(used_meanwhile, &info));
    CHECK_INT(ignis_array_increment_ref(used_meanwhile), 1);
    CHECK_INT(ignis_array_decrement_ref(used_meanwhile), 0);
    CHECK_OK(ignis_array_free(block(1024)));
    (void)memory();
    if (forgotten_meanwhile)
        CHECK_OK(ignis_stream_forget(forgotten_meanwhile));
    ignis__atomic_store(&went_on, 1);
    return NULL;
}

/*  False: it does not for a second. */
static void let_another_go_on(void)
{
    pthread_t thread;
    int i;
    went_on = 0;
    CHECK(pthread_create(&thread, NULL, thread_that_goes_on, NULL) == 0);
    for (i = 0; i < 500 && !ignis__atomic_load(&went_on); i++)
        test_sleep_ms(2);
    CHECK(ignis__atomic_load(&went_on));
    CHECK_INT(pthread_detach(thread), 0);
}

static int slow_alloc(ignis__address *address, size_t size)
{
    ignis__cuda.cuMemAlloc_v2 = real_alloc;
    let_another_go_on();
    return real_alloc(address, size);
}

static int slow_host_alloc(void **address, size_t size, unsigned flags)
{
    ignis__cuda.cuMemHostAlloc = real_host_alloc;
    let_another_go_on();
    return real_host_alloc(address, size, flags);
}

static int slow_wait(void *event)
{
    ignis__cuda.cuEventSynchronize = real_wait;
    let_another_go_on();
    return real_wait(event);
}

static void released(void *ptr, void *user_data) { *(void **)user_data = ptr; }

/*  Memory that goes back to its owner is waited for. */
TEST(threads_go_on_while_one_waits_for_wrapped_memory)
{
    ignis_array_desc desc;
    ignis_array a, wrapped;
    void *stream = NULL, *given_back = NULL;
    SETUP(NULL);
    used_meanwhile = a = block(1024);
    REQUIRE(ignis__cuda.cuStreamCreate(&stream, 1) == 0);
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(256);
    desc.ptr = ignis_array_device_ptr(a);
    desc.stream = forgotten_meanwhile = stream;
    desc.release_fn = released;
    desc.release_data = &given_back;
    wrapped = ignis_array_create(&desc);
    CHECK_OK(ignis_stream_use(stream));
    CHECK_OK(ignis_array_zero(wrapped));
    CHECK_OK(ignis_stream_use(NULL));
    real_wait = ignis__cuda.cuEventSynchronize;
    ignis__cuda.cuEventSynchronize = slow_wait;
    CHECK_OK(ignis_array_free(wrapped));
    CHECK(ignis__cuda.cuEventSynchronize == real_wait);
    CHECK(given_back == ignis_array_device_ptr(a));
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(stream), 0);
    CHECK_OK(ignis_array_free(a));
    forgotten_meanwhile = NULL;
    check_nothing_is_held();
}

TEST(threads_go_on_while_one_asks_the_driver_for_memory)
{
    ignis_array a;
    NEEDS_CACHE();
    SETUP(NULL);
    used_meanwhile = block(1024);
    real_alloc = ignis__cuda.cuMemAlloc_v2;
    ignis__cuda.cuMemAlloc_v2 = slow_alloc;
    a = block(32 * MIB);
    CHECK(ignis__cuda.cuMemAlloc_v2 == real_alloc);
    CHECK_OK(ignis_array_free(a));
    real_host_alloc = ignis__cuda.cuMemHostAlloc;
    ignis__cuda.cuMemHostAlloc = slow_host_alloc;
    CHECK(ignis_array_pin(used_meanwhile) != NULL);
    CHECK(ignis__cuda.cuMemHostAlloc == real_host_alloc);
    CHECK_OK(ignis_array_unpin(used_meanwhile));
    CHECK_OK(ignis_array_free(used_meanwhile));
    check_nothing_is_held();
}

/* --- running out ---------------------------------------------------------------------------------------------- */

TEST(the_limit_is_kept_and_its_failure_says_all)
{
    enum { MOST = 7 };
    ignis_desc desc = test_desc(NULL);
    ignis_array arrays[MOST];
    char figure[32];
    int count = 0, i;
    desc.memory_limit = 64 * MIB;
    SETUP(&desc);
    CHECK_INT(memory().limit, 64 * MIB);
    while (count < MOST) {
        arrays[count] = make(IGNIS_SHAPE(10 * MIB), IGNIS_U8);
        if (ignis_array_to_device(arrays[count++]) != IGNIS_OK)
            break;
    }
    CHECK_INT(count, MOST); /* six fit, the seventh does not */
    test__check_failure(__FILE__, __LINE__, "ignis_array_to_device(", IGNIS_ERROR_MEMORY, IGNIS_DIAG_DEVICE_MEMORY);
    CHECK_MESSAGE_HAS("10.0 MiB were requested");
    CHECK_MESSAGE_HAS("the limit is 64.0 MiB");
    snprintf(figure, sizeof figure, "arrays use %.1f MiB of ", (double)memory().live_bytes / (double)MIB);
    CHECK_MESSAGE_HAS(figure);
    CHECK(memory().reserved_bytes <= 64 * MIB);
    CHECK_OK(ignis_array_free(arrays[0]));
    CHECK_OK(ignis_array_to_device(arrays[MOST - 1])); /* the array survived its failure */
    for (i = 1; i < count; i++)
        CHECK_OK(ignis_array_free(arrays[i]));
    check_nothing_is_held();
}

TEST(the_limit_gives_up_cached_memory_first)
{
    ignis_desc desc = test_desc(NULL);
    desc.memory_limit = 64 * MIB;
    SETUP(&desc);
    CHECK_OK(ignis_array_free(block(30 * MIB)));
    CHECK_OK(ignis_array_free(block(31 * MIB)));
    CHECK_OK(ignis_array_free(block(60 * MIB)));
    CHECK_INT(ignis_status_last(), IGNIS_OK);
    check_nothing_is_held();
}

TEST(a_driver_out_of_memory_is_met_by_trimming)
{
    ignis_array a;
    NEEDS_CACHE();
    SETUP(NULL);
    CHECK_OK(ignis_array_free(block(8 * MIB)));
    fault_arm("cuMemAlloc_v2", 1, OUT_OF_MEMORY);
    fault.all = true;
    fault.until = "cuMemFree_v2";
    a = block(40 * MIB);
    CHECK(fault.failed != NULL);
    fault_disarm();
    CHECK_INT(memory().live_blocks, 1);
    CHECK_INT(memory().driver_frees, 1);
    CHECK_OK(ignis_array_zero(a));
    CHECK_OK(ignis_array_free(a));
    check_nothing_is_held();
}

TEST(a_lasting_out_of_memory_is_reported_and_survived)
{
    ignis_status_info info;
    ignis_array a;
    SETUP(NULL);
    a = make(IGNIS_SHAPE(8 * MIB), IGNIS_U8);
    CHECK_OK(ignis_synchronize());
    fault_arm("cuMemAlloc_v2", 1, OUT_OF_MEMORY);
    fault.all = true;
    CHECK_INT(ignis_array_to_device(a), IGNIS_ERROR_MEMORY);
    ignis_status_query(&info);
    CHECK_INT(info.driver_error, OUT_OF_MEMORY);
    CHECK_TEXT(info.driver_name, "CUDA_ERROR_OUT_OF_MEMORY");
    test__check_failure(__FILE__, __LINE__, "ignis_array_to_device(", IGNIS_ERROR_MEMORY, IGNIS_DIAG_DEVICE_MEMORY);
    CHECK_MESSAGE_HAS("8.0 MiB");
    CHECK_STATUS(ignis_array_zero(a), IGNIS_ERROR_MEMORY, IGNIS_DIAG_DEVICE_MEMORY);
    fault_disarm();
    CHECK_INT(memory().live_blocks, 0);
    CHECK_OK(ignis_array_zero(a));
    CHECK_OK(ignis_array_free(a));
    check_nothing_is_held();
}

TEST(more_than_the_device_has_is_refused)
{
    ignis_array a;
    if (test_is_memcheck())
        SKIP("the checker would report the refusal of the driver");
    SETUP(NULL);
    a = make(IGNIS_SHAPE(INT64_C(1) << 46), IGNIS_U8);
    REQUIRE(a.id);
    CHECK_STATUS(ignis_array_to_device(a), IGNIS_ERROR_MEMORY, IGNIS_DIAG_DEVICE_MEMORY);
    CHECK_MESSAGE_HAS("65536.00 GiB were requested");
    CHECK_OK(ignis_array_free(a));
    a = make(IGNIS_SHAPE(INT64_MAX), IGNIS_U8);
    REQUIRE(a.id);
    CHECK_STATUS(ignis_array_to_device(a), IGNIS_ERROR_MEMORY, IGNIS_DIAG_DEVICE_MEMORY);
    CHECK_OK(ignis_array_free(a));
    check_nothing_is_held();
}

TEST(pinned_memory_can_run_out)
{
    ignis_array a;
    SETUP(NULL);
    a = make(IGNIS_SHAPE(100000), IGNIS_U8);
    CHECK_OK(ignis_synchronize());
    fault_arm("cuMemHostAlloc", 1, OUT_OF_MEMORY);
    fault.all = true;
    CHECK(ignis_array_pin(a) == NULL);
    fault_disarm();
    test__check_failure(__FILE__, __LINE__, "ignis_array_pin(", IGNIS_ERROR_MEMORY, IGNIS_DIAG_PINNED_MEMORY);
    CHECK(ignis_array_pin(a) != NULL);
    CHECK_OK(ignis_array_free(a));
}

static void check_bypass(void)
{
    ignis_memory_info info;
    int i;
    for (i = 1; i <= 5; i++) {
        ignis_array a = block(10000), b = block(20000);
        info = memory();
        CHECK_INT(info.driver_allocations, 2 * i);
        CHECK_INT(info.segments, 2);
        CHECK_OK(ignis_array_free(a));
        CHECK_OK(ignis_array_free(b));
        CHECK_OK(ignis_synchronize());
    }
    info = memory();
    CHECK_INT(info.cache_hits, 0);
    CHECK_INT(info.driver_frees, 10);
    CHECK_INT(info.reserved_bytes, 0);
}

TEST(bypass_makes_each_block_a_driver_allocation)
{
    ignis_desc desc = test_desc(NULL);
    desc.memory_bypass = true;
    SETUP(&desc);
    check_bypass();
}

TEST(bypass_can_come_from_the_environment)
{
    bool was_set = test_is_bypass();
    setenv("IGNIS_MEMORY_BYPASS", "1", 1);
    SETUP(NULL);
    if (!was_set)
        unsetenv("IGNIS_MEMORY_BYPASS");
    check_bypass();
}

int main(int argc, char **argv) { return test_run(argc, argv); }
