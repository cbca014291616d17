// SPDX-License-Identifier: MIT
/*  test_faults.c - every driver call, every NVRTC call and every host allocation fails once

    A scenario uses Ignis from setup to shutdown. A sweep runs it with the first call failing, then with the second, and so
    on until none is left to fail. Each run has to end in success or in a failure that names its cause, must hold nothing after
    shutdown, and must leave nothing behind that disturbs the next run. */
#include "fault.h"
#include "test.h"
#include <unistd.h>

enum { LEGACY = 1 }; /* CU_STREAM_LEGACY */
enum { OUT_OF_MEMORY = 2, ILLEGAL_ADDRESS = 700, UNKNOWN = 999, LIMIT = 2000 };

static const char *const source = "__constant__ float factor = 2.0f;\n"
                                  "extern \"C\" __global__ void twice(float *x, int n)\n"
                                  "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= factor; }\n";

/*  Destroying calls that fail leave their objects with the libraries, which is what these runs are about. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libnvrtc\nleak:libcuda\n"; }

/*  What a run ended with: the first failure of the thread, in texts that outlive it. */
static struct {
    ignis_status status;
    ignis_diagnostic diagnostic;
    char message[4096];
    bool values_wrong;
} result;

static void keep_result(bool complete, const double *values, int64_t count)
{
    ignis_status_info info;
    int64_t i;
    result.status = ignis_status_query(&info);
    result.diagnostic = info.diagnostic;
    snprintf(result.message, sizeof result.message, "%s", info.message);
    result.values_wrong = !complete;
    for (i = 0; i < count; i++)
        result.values_wrong |= values[i] != 2.0 * (double)((i + 12) % 24);
    ignis_status_clear();
}

/*  Waits for what the devices have, past the calls that fail. */
static void drain(void)
{
    int i;
    void *context;
    for (i = 0; i < ignis__device_total; i++)
        if (ignis__devices[i].context && ignis__cuda.cuCtxPushCurrent_v2(ignis__devices[i].context) == 0) {
            (void)ignis__cuda.cuCtxSynchronize();
            (void)ignis__cuda.cuCtxPopCurrent_v2(&context);
        }
}

static void nothing(void *user_data) { (void)user_data; }

/*  What the loop of an engine uses: streams, events, tickets, a callback, a variable, a reload. a holds 24 floats. */
static void run_frame(ignis_array a, ignis_kernel kernel, bool reload)
{
    static float out[24];
    static double converted[24];
    const float three = 3.0F;
    ignis_kernel_desc desc;
    ignis_ticket tickets[4];
    double ms;
    bool done;
    int i;
    void *stream = ignis_stream_create(NULL), *pinned = ignis_host_alloc(sizeof out);
    ignis_event event = ignis_event_create(), last = ignis_event_create();
    memset(&desc, 0, sizeof desc);
    desc.source = source;
    desc.entry = "twice";
    ignis_event_record(event, NULL);
    ignis_stream_wait_event(stream, event);
    ignis_stream_wait(stream, NULL);
    ignis_stream_use(stream);
    tickets[0] = ignis_array_to_host_async(a, out, IGNIS_F32, 24);
    tickets[1] = pinned ? ignis_array_to_host_async(a, pinned, IGNIS_F32, 24) : tickets[0];
    tickets[2] = ignis_array_from_host_async(a, converted, IGNIS_F64, 24);
    tickets[3] = reload ? ignis_kernel_reload(kernel, &desc) : tickets[0];
    ignis_stream_call(stream, nothing, NULL);
    ignis_kernel_set_symbol(kernel, "factor", &three, sizeof three);
    ignis_event_record(last, stream);
    ignis_stream_query(stream, &done);
    for (i = 0; i < 4; i++) {
        if (i == 0 || tickets[i].id != tickets[0].id) {
            ignis_ticket_query(tickets[i], &done);
            ignis_ticket_wait(tickets[i]);
        }
    }
    ignis_event_query(last, &done);
    ignis_event_wait(event);
    ignis_event_wait(last);
    ignis_event_elapsed_ms(event, last, &ms);
    ignis_stream_use(NULL);
    ignis_stream_free(stream);
    ignis_host_free(pinned);
    ignis_event_free(event);
    ignis_event_free(last);
}

/*  Runs everything, also after a failure: calls with dead handles have to cope. */
static void run_scenario(const char *cache, host_counter *counter)
{
    ignis_desc desc = test_desc(NULL);
    ignis_array_desc array_desc;
    ignis_launch launch = test_launch(1, 32);
    ignis_arg args[2];
    ignis_array a, copy, view, wide, other;
    ignis_kernel kernel;
    float data[24];
    double back[24];
    int i;
    bool complete = false;
    desc.cache_dir = cache;
    desc.allocator.alloc_fn = host_alloc;
    desc.allocator.free_fn = host_free;
    desc.allocator.user_data = counter;
    memset(&array_desc, 0, sizeof array_desc);
    array_desc.shape = IGNIS_SHAPE(4, 6);
    for (i = 0; i < 24; i++)
        data[i] = (float)i, back[i] = -1.0;

    if (ignis_setup(&desc) != IGNIS_OK) {
        keep_result(false, back, 24);
        return;
    }
    a = ignis_array_create(&array_desc);
    ignis_array_from_host(a, data, IGNIS_F32, 24);
    kernel = test_compile(source, "twice", NULL);
    args[0] = ignis_arg_array(a);
    args[1] = ignis_arg_i32(24);
    ignis_kernel_launch(kernel, &launch, args, 2);
    ignis_array_pin(a);
    copy = ignis_array_clone(a);
    view = ignis_array_slice(a, 0, 0, 2);
    ignis_array_write_rows(copy, view, 2); /* rows 0 and 1 of a go to rows 2 and 3 */
    ignis_array_free(view);
    view = ignis_array_slice(a, 0, 2, 2);
    ignis_array_write_rows(copy, view, 0);
    wide = strcmp(cache, "off") == 0 ? ignis_array_clone(copy) /* as compiling Ignis' own kernels takes long */
                                     : ignis_array_cast(copy, IGNIS_F64);
    if (ignis_array_to_host(wide, back, IGNIS_F64, 24) == IGNIS_OK)
        complete = ignis_status_last() == IGNIS_OK;
    ignis_stream_use((void *)(uintptr_t)LEGACY);
    other = ignis_array_clone(a); /* a is now in use on two streams */
    ignis_array_free(other);
    ignis_stream_use(NULL);
    if (ignis_device_count() > 1) {
        ignis_device_use(1);
        other = ignis_array_create(&array_desc);
        ignis_array_copy(other, a);
        ignis_device_use(0);
        ignis_array_free(other);
    }
    run_frame(a, kernel, strcmp(cache, "off") != 0);
    ignis_contract_acquire(a, IGNIS_OWNER_NVCCL);
    ignis_contract_release(a, IGNIS_OWNER_NVCCL);
    ignis_array_unpin(a);
    ignis_synchronize();
    ignis_array_free(wide);
    ignis_array_free(view);
    ignis_array_free(copy);
    ignis_array_free(a);
    ignis_memory_trim(0);
    ignis_kernel_free(kernel);
    ignis_shutdown();
    keep_result(complete, back, complete ? 24 : 0);
}

/*  Creating and destroying calls. A destroying call that fails leaves its object with the driver, and when every call
    fails, a context that is lost takes its objects with it. */
static void check_balance(bool sticky)
{
    static const char *const pairs[][3] = {{"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"},
                                           {"nvrtcCreateProgram", "nvrtcDestroyProgram"},
                                           {"cuMemAlloc_v2", "cuMemFree_v2"},
                                           {"cuMemHostAlloc", "cuMemFreeHost"},
                                           {"cuStreamCreate", "cuStreamDestroy_v2", "cuStreamCreateWithPriority"},
                                           {"cuEventCreate", "cuEventDestroy_v2"},
                                           {"cuModuleLoadData", "cuModuleUnload"}};
    size_t i;
    for (i = 0; i < (sticky ? 2 : sizeof pairs / sizeof pairs[0]); i++) {
        int left = fault_count(pairs[i][0]) - fault_count(pairs[i][1]), lost = fault_failed(pairs[i][1]);
        char text[256];
        if (pairs[i][2])
            left += fault_count(pairs[i][2]);
        if (left >= 0 && left <= lost)
            continue;
        snprintf(text, sizeof text, "%d of %s are left (%s failed in this run)", left, pairs[i][0],
                 fault.failed ? fault.failed : "nothing");
        test__fail(__FILE__, __LINE__, text);
    }
}

static void check_run(const host_counter *counter, const char *what, long long at, bool sticky)
{
    char text[8192];
    const char *wrong = NULL;
    bool failed = result.status != IGNIS_OK;
    if (failed && !fault.failed && !counter->failed)
        wrong = "failed with no cause: an earlier run has left something";
    else if (!failed && result.values_wrong)
        wrong = "gave wrong values and no failure";
    else if (failed && fault.failed && !sticky && result.status != IGNIS_ERROR_MEMORY && !strstr(result.message, fault.failed))
        wrong = "its message does not name the function";
    else if (failed && fault.failed && !sticky && result.status != IGNIS_ERROR_MEMORY && !strstr(result.message, "_ERROR_"))
        wrong = "its message does not name the error";
    else if (failed && counter->failed && result.diagnostic != IGNIS_DIAG_HOST_MEMORY)
        wrong = "is not HOST_MEMORY";
    else if (failed && !strstr(result.message, ": "))
        wrong = "its message does not name the call";
    else if (failed && fault.failed && result.status != IGNIS_ERROR_CUDA && result.status != IGNIS_ERROR_MEMORY &&
             result.status != IGNIS_ERROR_DEVICE && result.status != IGNIS_ERROR_LIBRARY && result.status != IGNIS_ERROR_COMPILE)
        wrong = "has a status that does not fit";
    else if (counter->blocks != 0 || counter->bytes != 0)
        wrong = "left host memory";
    if (!wrong)
        return;
    snprintf(text, sizeof text, "%s %lld (%s): %s: %s %s: %s", what, at, fault.failed ? fault.failed : "-", wrong,
             ignis_status_name(result.status), ignis_diagnostic_name(result.diagnostic), result.message);
    test__fail(__FILE__, __LINE__, text);
}

/*  Fails each call whose name starts with prefix, in turn; returns how many there were. */
static int sweep_calls(const char *prefix, int code, bool sticky, const char *cache)
{
    host_counter counter;
    int at, failures = test__state.failures;
    test_leaks_expected = true;
    for (at = 1; at < LIMIT && test__state.failures < failures + 10; at++) {
        bool hit;
        host_counter_init(&counter);
        fault_reset_counts();
        fault_arm(prefix, at, code);
        fault.all = sticky;
        fault.drain = drain;
        run_scenario(cache, &counter);
        hit = fault.failed != NULL;
        check_run(&counter, "call", at, sticky);
        check_balance(sticky);
        fault_disarm();
        if (!hit)
            break;
    }
    return at - 1;
}

/*  Keeps the device's context open, so that each run need not make it anew. */
static void hold_context(void)
{
    void *context;
    CHECK_INT(ignis__cuda.cuDevicePrimaryCtxRetain(&context, 0), 0);
}

/*  The first test: makes the folder of the kernel cache, and shows that the scenario works with no fault at all. */
TEST(scenario_works)
{
    host_counter counter;
    SETUP(NULL);
    if (!test_is_memcheck())
        hold_context();
    CHECK_OK(ignis_shutdown());
    host_counter_init(&counter);
    fault_reset_counts();
    run_scenario(test_folder, &counter);
    check_run(&counter, "none", 0, false);
    check_balance(false);
    CHECK_INT(result.status, IGNIS_OK);
    CHECK(fault_count("cuMemAlloc_v2") > 0);
    CHECK(fault_count("cuMemHostAlloc") > 0);
    CHECK(fault_count("cuStreamCreate") > 0);
    CHECK(fault_count("cuEventCreate") > 0);
    CHECK(fault_count("cuModuleLoadData") > 0);
    CHECK(fault_count("cuLaunchKernel") > 0);
    CHECK(fault_count("cuDevicePrimaryCtxRetain") > 0);
    CHECK(fault_count("nvrtcCreateProgram") > 0);
}

TEST(each_driver_call_fails_once)
{
    int calls;
    NEEDS_NO_MEMCHECK();
    calls = sweep_calls("cu", UNKNOWN, false, test_folder);
    printf("    %d driver calls\n", calls);
    CHECK(calls > 20 && calls < LIMIT - 1);
}

TEST(each_driver_call_runs_out_of_memory_once)
{
    NEEDS_NO_MEMCHECK();
    CHECK(sweep_calls("cu", OUT_OF_MEMORY, false, test_folder) > 20);
}

TEST(each_driver_call_and_all_after_it_fail)
{
    NEEDS_NO_MEMCHECK();
    CHECK(sweep_calls("cu", ILLEGAL_ADDRESS, true, test_folder) > 20);
}

TEST(each_nvrtc_call_fails_once)
{
    int calls = sweep_calls("nvrtc", UNKNOWN, false, "off");
    printf("    %d NVRTC calls\n", calls);
    CHECK(calls >= 5);
}

static void sweep_host_memory(const char *cache, bool all)
{
    host_counter counter;
    int at, failures = test__state.failures;
    test_leaks_expected = true;
    for (at = 1; at < LIMIT && test__state.failures < failures + 10; at++) {
        host_counter_init(&counter);
        counter.fail_at = at;
        counter.all = all;
        fault_reset_counts();
        fault_disarm();
        run_scenario(cache, &counter);
        check_run(&counter, "host allocation", at, false);
        check_balance(false);
        if (!counter.failed)
            break;
    }
    printf("    %d host allocations\n", at - 1);
    CHECK(at > 5 && at < LIMIT);
}

TEST(each_host_allocation_fails_once) { sweep_host_memory(test_folder, false); }

TEST(each_host_allocation_and_all_after_it_fail) { sweep_host_memory(test_folder, true); }

TEST(each_host_allocation_fails_once_without_a_cache) { sweep_host_memory("off", false); }

TEST(scenario_still_works)
{
    host_counter counter;
    host_counter_init(&counter);
    fault_reset_counts();
    fault_disarm();
    run_scenario(test_folder, &counter);
    check_run(&counter, "none", 0, false);
    check_balance(false);
    CHECK_INT(result.status, IGNIS_OK);
}

int main(int argc, char **argv) { return test_run_in_folder(argc, argv); }
