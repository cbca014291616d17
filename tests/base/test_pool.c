// SPDX-License-Identifier: MIT
/*  test_pool.c - handles: stale ones stay stale, cycles cost no memory, and all host memory comes back */
#include "fault.h"
#include "array.h"
#ifdef _WIN32
#include <psapi.h>
#else
#include <sys/resource.h>
#endif

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CYCLES = 100000, GROWTH = 1 << 20 }; /* sanitizers keep freed memory */
#else
enum { CYCLES = 2000000, GROWTH = 1 << 10 };
#endif

static const char one_source[] = "extern \"C\" __global__ void one(float *x) { x[0] = 1.0f; }\n";

/*  The most memory that this process has had, in KiB */
static long resident(void)
{
#ifdef _WIN32
    PROCESS_MEMORY_COUNTERS memory;
    K32GetProcessMemoryInfo(GetCurrentProcess(), &memory, sizeof memory);
    return (long)(memory.PeakWorkingSetSize / 1024);
#else
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
#endif
}

TEST(millions_of_cycles_take_no_memory)
{
    host_counter c;
    ignis_desc desc = test_counting_desc(&c);
    long long bytes = 0, calls = 0;
    uint64_t previous = 0;
    long kilobytes = 0;
    int i, repeats = 0;
    SETUP(&desc);
    for (i = 0; i < CYCLES; i++) {
        ignis_array a = make(IGNIS_SHAPE(4), IGNIS_F32);
        if (a.id == 0 || a.id == previous)
            repeats++;
        previous = a.id;
        if (ignis_array_free(a) != IGNIS_OK)
            repeats++;
        if (i == 1000)
            bytes = c.bytes, calls = c.calls, kilobytes = resident();
    }
    CHECK_INT(repeats, 0);
    CHECK_INT(c.bytes, bytes);
    CHECK(resident() - kilobytes < GROWTH);
    CHECK(c.calls - calls <= CYCLES * 2LL); /* a bounded number of host allocations a cycle */
    CHECK_OK(ignis_shutdown());
    CHECK_INT(c.blocks, 0);
    CHECK_INT(c.bytes, 0);
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

TEST(a_handle_is_never_given_twice)
{
    enum { COUNT = 100000 };
    uint64_t *ids = (uint64_t *)malloc(sizeof(uint64_t) * COUNT);
    int i, live = 0, same = 0;
    REQUIRE(ids);
    SETUP(NULL);
    for (i = 0; i < COUNT; i++) {
        ignis_array a = make(IGNIS_SHAPE(1), IGNIS_F32);
        ids[i] = a.id;
        CHECK_OK(ignis_array_free(a));
    }
    for (i = 0; i < COUNT; i++) {
        ignis_array a;
        a.id = ids[i];
        live += ignis_array_is_live(a);
    }
    qsort(ids, COUNT, sizeof *ids, compare_ids);
    for (i = 1; i < COUNT; i++)
        same += ids[i] == ids[i - 1];
    CHECK_INT(live, 0);
    CHECK_INT(same, 0);
    free(ids);
}

TEST(many_arrays_live_at_once)
{
    enum { COUNT = 100000 };
    ignis_array *arrays = (ignis_array *)malloc(sizeof(ignis_array) * COUNT);
    int i, wrong = 0;
    unsigned random = 1;
    REQUIRE(arrays);
    SETUP(NULL);
    for (i = 0; i < COUNT; i++)
        arrays[i] = make(IGNIS_SHAPE(i + 1), IGNIS_F32);
    for (i = 0; i < COUNT; i++)
        wrong += ignis_array_numel(arrays[i]) != i + 1;
    for (i = COUNT - 1; i > 0; i--) { /* shuffle, so that slots are freed in any order */
        int k = (int)((random = random * 1664525U + 1013904223U) >> 8) % (i + 1);
        ignis_array swap = arrays[i];
        arrays[i] = arrays[k];
        arrays[k] = swap;
    }
    for (i = 0; i < COUNT; i++)
        wrong += ignis_array_free(arrays[i]) != IGNIS_OK;
    for (i = 0; i < COUNT; i++)
        wrong += ignis_array_is_live(arrays[i]);
    CHECK_INT(wrong, 0);
    free(arrays);
}

TEST(a_stale_handle_does_not_reach_the_next_array_of_its_slot)
{
    ignis_array old, next;
    SETUP(NULL);
    old = test_array(2, 3);
    CHECK_OK(ignis_array_free(old));
    next = test_array(2, 3);
    CHECK(next.id != old.id);
    CHECK_STATUS(ignis_array_free(old), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    CHECK_STATUS(ignis_array_zero(old), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    CHECK(ignis_array_is_live(next));
    CHECK_OK(ignis_array_free(next));
}

TEST(handles_stay_stale_after_the_next_setup)
{
    ignis_array old, next;
    ignis_kernel old_kernel;
    int i;
    SETUP(NULL);
    test_leaks_expected = true;
    old = test_array(2, 3);
    old_kernel = test_compile(one_source, "one", NULL);
    for (i = 0; i < 3; i++) {
        CHECK_OK(ignis_shutdown());
        SETUP(NULL);
        next = test_array(2, 3);
        CHECK(next.id != old.id);
        CHECK(!ignis_array_is_live(old));
        CHECK_STATUS(ignis_array_zero(old), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
        CHECK_STATUS(ignis_kernel_free(old_kernel), IGNIS_ERROR_FREED, IGNIS_DIAG_KERNEL_FREED);
        CHECK_OK(ignis_array_free(next));
    }
}

static void *use_on_a_thread(void *arg)
{
    ignis_array a = test_array(3, 3);
    (void)arg;
    CHECK_OK(ignis_array_free(a));
    CHECK_STATUS(ignis_array_free(a), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    return NULL;
}

TEST(all_host_memory_comes_back_at_shutdown)
{
    host_counter c;
    ignis_desc desc = test_counting_desc(&c);
    ignis_array a, view, wide;
    pthread_t thread;
    SETUP(&desc);
    test_leaks_expected = true;
    a = test_array(4, 5);
    view = ignis_array_slice(a, 0, 1, 2);
    wide = ignis_array_cast(view, IGNIS_F64);
    CHECK(ignis_array_pin(a) != NULL);
    CHECK_OK(ignis_contract_track(a));
    CHECK_OK(ignis_contract_track(wide));
    CHECK_OK(ignis_array_free(a));
    CHECK(test_compile(one_source, "one", NULL).id != 0);
    CHECK_INT(test_compile("this does not compile", "one", NULL).id, 0);
    test__check_failure(__FILE__, __LINE__, "ignis_kernel_compile(", IGNIS_ERROR_COMPILE, IGNIS_DIAG_COMPILE_FAILED);
    REQUIRE(pthread_create(&thread, NULL, use_on_a_thread, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK(c.blocks > 0);
    CHECK_OK(ignis_shutdown()); /* view, wide and a kernel are still alive */
    CHECK(test_log_count(IGNIS_DIAG_ARRAY_LEAKED) >= 2);
    CHECK_INT(c.blocks, 0);
    CHECK_INT(c.bytes, 0);
}

TEST(a_failed_setup_returns_all_host_memory)
{
    host_counter c;
    ignis_desc desc = test_counting_desc(&c);
    desc.device = 9999;
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    CHECK_INT(c.blocks, 0);
    desc.device = 0;
    desc.cuda_library = "missing/libcuda.so.1";
#ifndef IGNIS_LINK_CUDA
    CHECK_STATUS(ignis_setup(&desc), IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
#endif
    CHECK_INT(c.blocks, 0);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
