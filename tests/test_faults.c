// SPDX-License-Identifier: MIT
/*  test_faults.c - every driver call, every NVRTC call and every host allocation fails once

    A scenario uses Ignis from setup to shutdown. A sweep runs it with the first call failing, then with the second, and
    so on until none is left to fail. Each run has to end in success or in a failure that names its cause, must hold
    nothing after shutdown, and must leave nothing behind that disturbs the next run. */
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
const char *__lsan_default_suppressions(void) { return "leak:libnvrtc\nleak:libcuda\nleak:ignis__dry_\n"; }

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
    float factor;
    ignis_occupancy occupancy;
    ignis_kernel entry;
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
    ignis_kernel_get_symbol(kernel, "factor", &factor, sizeof factor);
    entry = ignis_kernel_entry(kernel, "twice");
    ignis_kernel_occupancy(entry, 64, 0, &occupancy);
    ignis_kernel_free(entry);
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
    else if (failed && fault.failed && !sticky && result.status != IGNIS_ERROR_MEMORY &&
             !strstr(result.message, fault.failed))
        wrong = "its message does not name the function";
    else if (failed && fault.failed && !sticky && result.status != IGNIS_ERROR_MEMORY &&
             !strstr(result.message, "_ERROR_"))
        wrong = "its message does not name the error";
    else if (failed && counter->failed && result.diagnostic != IGNIS_DIAG_HOST_MEMORY)
        wrong = "is not HOST_MEMORY";
    else if (failed && !strstr(result.message, ": "))
        wrong = "its message does not name the call";
    else if (failed && fault.failed && result.status != IGNIS_ERROR_CUDA && result.status != IGNIS_ERROR_MEMORY &&
             result.status != IGNIS_ERROR_DEVICE && result.status != IGNIS_ERROR_LIBRARY &&
             result.status != IGNIS_ERROR_COMPILE)
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

/* --- every public call by itself ---------------------------------------------------------------------------------- */

/*  What a call works on, made beforehand. */
typedef struct bench_of_calls {
    ignis_array a, b;
    ignis_tensor x, w, ids, doubles;
    ignis_kernel kernel;
    ignis_optimizer optimizer;
    char path[400];
} bench_of_calls;

static ignis_tensor square(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count, (void)user_data;
    return ignis_mul(inputs[0], inputs[0]);
}

static ignis_array new_array(ignis_shape shape)
{
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape = shape;
    return ignis_array_create(&desc);
}

static bool fine(ignis_status status) { return status == IGNIS_OK; }
static bool freed_array(ignis_array array) { return array.id && fine(ignis_array_free(array)); }
static bool released(ignis_tensor tensor) { return tensor.id && fine(ignis_tensor_release(tensor)); }

/*  A tensor, its backward, and its end. */
static bool walked(ignis_tensor y)
{
    bool ok = y.id && fine(ignis_backward(y, ignis_tensor_data(y)));
    return y.id ? released(y) && ok : ok;
}

/*  A call each, with what ends what it makes; false: a call has failed. What cannot be ended is told by the memory that
    stays. */
static bool call_number(int which, const bench_of_calls *on)
{
    static float host[64];
    static const int order[] = {1, 0};
    static const ignis_reduce_desc around = {{0, 2}, 2, false};
    const ignis_tensor *x = &on->x;
    ignis_tensor pair[2], scale, made;
    ignis_array array;
    ignis_event event;
    ignis_graph graph;
    ignis_scope scope;
    ignis_ticket ticket;
    ignis_dlpack *lent;
    void *pointer;
    bool ok;
    pair[0] = pair[1] = on->x;
    switch (which) {
    case 0: return freed_array(new_array(IGNIS_SHAPE(4)));
    case 1: return freed_array(ignis_array_clone(on->a));
    case 2: return freed_array(ignis_array_reshape(on->a, IGNIS_SHAPE(64)));
    case 3: return freed_array(ignis_array_slice(on->a, 0, 1, 2));
    case 4: return fine(ignis_array_copy(on->b, on->a));
    case 5: return fine(ignis_array_fill(on->a, 2));
    case 6: return fine(ignis_array_zero(on->a));
    case 7: return fine(ignis_array_add(on->b, on->a, on->a));
    case 8: return fine(ignis_array_map(on->b, "x*2 + 1", IGNIS_ARRAYS(IGNIS_NAMED(x, on->a))));
    case 9:
        array = new_array(IGNIS_SHAPE(1));
        ok = array.id && fine(ignis_array_reduce(array, IGNIS_REDUCE_SUM, "x", IGNIS_ARRAYS(IGNIS_NAMED(x, on->a))));
        return array.id ? freed_array(array) && ok : ok;
    case 10: return fine(ignis_array_to_host(on->a, host, IGNIS_F32, 64));
    case 11: return fine(ignis_array_from_host(on->a, host, IGNIS_F32, 64));
    case 12:
        ticket = ignis_array_to_host_async(on->a, host, IGNIS_F32, 64);
        return ticket.id && fine(ignis_ticket_wait(ticket));
    case 13:
        ticket = ignis_array_from_host_async(on->a, host, IGNIS_F32, 64);
        return ticket.id && fine(ignis_ticket_wait(ticket));
    case 14: pointer = ignis_stream_create(NULL); return pointer && fine(ignis_stream_free(pointer));
    case 15: event = ignis_event_create(); return event.id && fine(ignis_event_free(event));
    case 16:
        event = ignis_event_create();
        ok = event.id && fine(ignis_event_record(event, NULL)) && fine(ignis_event_wait(event));
        return event.id ? fine(ignis_event_free(event)) && ok : ok;
    case 17: pointer = ignis_host_alloc(1000); return pointer && fine(ignis_host_free(pointer));
    case 18: {
        ignis_launch launch = test_launch(1, 32);
        ignis_arg args[2];
        args[0] = ignis_arg_array(on->a), args[1] = ignis_arg_i32(64);
        return fine(ignis_kernel_launch(on->kernel, &launch, args, 2));
    }
    case 19: {
        ignis_kernel kernel = test_compile(source, "twice", NULL);
        return kernel.id && fine(ignis_kernel_free(kernel));
    }
    case 20: return fine(ignis_synchronize());
    case 21: return released(ignis_tensor_from_host(host, IGNIS_SHAPE(8, 8), NULL));
    case 22: return released(ignis_tensor_ones(IGNIS_SHAPE(8, 8), NULL));
    case 23: return released(ignis_tensor_randn(IGNIS_SHAPE(8, 8), NULL));
    case 24: return released(ignis_tensor_from_array(on->a, false));
    case 25: return released(ignis_detach(*x));
    case 26:
        scope = ignis_scope_begin();
        return scope.id && (ignis_relu(*x).id != 0) + fine(ignis_scope_end(scope)) == 2;
    case 27:
        made = ignis_relu(*x);
        ok = made.id && fine(ignis_tape_clear());
        return made.id ? released(made) && ok : ok;
    case 28: return walked(ignis_matmul(*x, on->w));
    case 29: return walked(ignis_softmax(*x));
    case 30: return walked(ignis_map("x*x + 1", IGNIS_INPUTS(IGNIS_NAMED(x, *x))));
    case 31: return walked(ignis_map_mean("x*x", IGNIS_INPUTS(IGNIS_NAMED(x, *x))));
    case 32: return walked(ignis_concat(pair, 2, 0));
    case 33: return walked(ignis_permute(*x, order, 2));
    case 34: return walked(ignis_cross_entropy(*x, on->ids, NULL));
    case 35: return walked(ignis_embedding(on->w, on->ids));
    case 36: return walked(ignis_checkpoint(square, NULL, x, 1, NULL));
    case 37: {
        double error = ignis_gradcheck(square, NULL, &on->doubles, 1, NULL);
        return error == error && ignis_status_last() == IGNIS_OK;
    }
    case 38: return fine(ignis_zero_grad(*x));
    case 39: return fine(ignis_optimizer_step(on->optimizer));
    case 40: {
        ignis_optimizer made_now = ignis_adamw(NULL);
        return made_now.id && fine(ignis_optimizer_free(made_now));
    }
    case 41:
        ok = fine(ignis_graph_begin());
        graph.id = 0;
        if (ok) {
            ok = fine(ignis_array_fill(on->a, 1));
            graph = ignis_graph_end();
            ok = ok && graph.id && fine(ignis_graph_launch(graph));
        }
        return graph.id ? fine(ignis_graph_free(graph)) && ok : ok;
    case 42: {
        const char *const names[] = {"x"};
        return fine(ignis_save(on->path, names, x, 1));
    }
    case 43: {
        const char *const names[] = {"x"};
        pair[0].id = 0;
        return fine(ignis_load(on->path, names, pair, 1)) && released(pair[0]);
    }
    case 44: return ignis_memory_trim(0) >= 0;
    case 45: {
        bool both;
        made = ignis_quantize_f8(ignis_detach(*x), IGNIS_F8_E4M3, true, &scale);
        both = made.id && scale.id;
        return (made.id ? released(made) : true) && (both ? released(scale) : true) && both;
    }
    case 46:
        made = ignis_sort(*x, 1, false, &scale);
        ok = made.id != 0;
        return (ok ? released(scale) && walked(made) : ok);
    case 47:
        lent = (ignis_dlpack *)ignis_array_to_dlpack(on->a, 0, NULL);
        if (lent)
            lent->deleter(lent);
        return lent && ignis_status_last() == IGNIS_OK;
    case 48:
        lent = (ignis_dlpack *)ignis_array_to_dlpack(on->a, 0, NULL);
        array.id = 0;
        if (lent)
            array = ignis_array_from_dlpack(lent, 0, NULL);
        if (lent && !array.id)
            lent->deleter(lent);
        return array.id && freed_array(array) && ignis_status_last() == IGNIS_OK;
    case 49: return ignis_derivative(ignis_derivative(ignis_cumprod(*x, 1), *x), *x).id != 0;
    case 50: return ignis_derivative(ignis_linear_cross_entropy(*x, on->w, on->ids, NULL), *x).id != 0;
    case 51:
        made = ignis_reshape(*x, IGNIS_SHAPE(2, 4, 8));
        return ignis_map_reduce(IGNIS_REDUCE_PROD, "x", IGNIS_INPUTS(IGNIS_NAMED(x, made)), &around).id != 0;
    case 52: {
        ignis_optimizer made_now = ignis_adamw(NULL);
        ok = made_now.id && ignis_parameter(made_now, IGNIS_SHAPE(4, 2), NULL).id != 0;
        return made_now.id ? fine(ignis_optimizer_free(made_now)) && ok : ok;
    }
    case 53:
        made = ignis_slice(on->ids, 0, 0, 2);
        return walked(ignis_grouped_linear(*x, ignis_reshape(on->w, IGNIS_SHAPE(1, 8, 8)), made));
    default: return true;
    }
}

enum { CALLS = 54 };

static int left_behind; /* objects of the driver that it was not allowed to destroy */

/*  Each call with its first host allocation and its first driver call failing, then the second, and so on: it ends with
    success, or with a failure that has a sentence, gives what it held back, and works the next time. A dry run makes
    all calls of the driver. */
static void sweep_call(int which, const bench_of_calls *on, host_counter *counter, const char *prefix)
{
    char what[80];
    bool hit = true;
    int at, failures = test__state.failures;
    for (at = 1; at < LIMIT && hit && test__state.failures < failures + 4; at++) {
        ignis_scope scope;
        int64_t before;
        long long blocks;
        ignis_status_info info;
        bool ok, ended;
        snprintf(what, sizeof what, "call %d with %s %d failing", which, prefix ? prefix : "host allocation", at);
        ignis_status_clear();
        before = memory().live_bytes;
        blocks = counter->blocks;
        scope = ignis_scope_begin();
        fault_plan(prefix, at, UNKNOWN, counter, false);
        ok = call_number(which, on);
        ended = fault.failed &&
                (strstr(fault.failed, "Destroy") || strstr(fault.failed, "FreeHost")); /* what it has is the driver's */
        left_behind += ended;
        hit = fault_over(counter);
        (void)ignis_status_query(&info);
        if (ok != (info.status == IGNIS_OK) || (!ok && !*info.message)) {
            test__fail(__FILE__, __LINE__, what);
            fprintf(stderr, "    it says %s: %s\n", ok ? "success" : "failure", info.message);
        }
        ignis_status_clear();
        (void)ignis_scope_end(scope);
        (void)ignis_tape_clear();
        (void)ignis_zero_grad(on->x), (void)ignis_zero_grad(on->w), (void)ignis_zero_grad(on->doubles);
        ignis_status_clear();
        if (memory().live_bytes != before) {
            test__fail(__FILE__, __LINE__, what);
            fprintf(stderr, "    %lld bytes of the device stay\n", (long long)(memory().live_bytes - before));
        }
        scope = ignis_scope_begin();
        ok = call_number(which, on); /* the next time all is well, and brings nothing that stays */
        CHECK_OK(ignis_scope_end(scope));
        if (!ok)
            test__fail(__FILE__, __LINE__, what);
        ignis_status_clear();
        if (at > 2 && !ended && counter->blocks > blocks) {
            test__fail(__FILE__, __LINE__, what);
            fprintf(stderr, "    %lld blocks of the host stay\n", counter->blocks - blocks);
        }
    }
}

TEST(each_call_fails_with_a_sentence_and_keeps_nothing)
{
    static const int64_t targets[] = {1, 2, 3, 4, 5, 6, 7, 0};
    host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    ignis_tensor_desc trained, wide, whole;
    bench_of_calls on;
    bool bypass = test_is_bypass();
    int which, turn;
    fault_disarm();
    desc.dry_run = true;
    memset(&on, 0, sizeof on), memset(&trained, 0, sizeof trained), memset(&wide, 0, sizeof wide),
        memset(&whole, 0, sizeof whole);
    trained.requires_grad = wide.requires_grad = true;
    wide.dtype = IGNIS_F64;
    whole.dtype = IGNIS_I32, whole.host_dtype = IGNIS_I64;
    /* without the cache the driver frees each temporary, and its failure is told beside a success */
    unsetenv("IGNIS_MEMORY_BYPASS");
    SETUP(&desc);
    if (bypass)
        setenv("IGNIS_MEMORY_BYPASS", "1", 1);
    on.a = new_array(IGNIS_SHAPE(8, 8)), on.b = new_array(IGNIS_SHAPE(8, 8));
    CHECK_OK(ignis_array_zero(on.a));
    CHECK_OK(ignis_array_zero(on.b));
    on.x = ignis_tensor_ones(IGNIS_SHAPE(8, 8), &trained), on.w = ignis_tensor_ones(IGNIS_SHAPE(8, 8), &trained);
    on.doubles = ignis_tensor_ones(IGNIS_SHAPE(3), &wide);
    on.ids = ignis_tensor_from_host(targets, IGNIS_SHAPE(8), &whole);
    on.kernel = test_compile(source, "twice", NULL);
    on.optimizer = ignis_sgd(NULL);
    snprintf(on.path, sizeof on.path, "%s/calls.safetensors", test_folder);
    CHECK_OK(ignis_optimizer_add(on.optimizer, on.x, false));
    for (turn = 0; turn < 2; turn++) /* what is made once is there then */
        for (which = 0; which < CALLS; which++) {
            ignis_scope scope = ignis_scope_begin();
            if (!call_number(which, &on))
                fprintf(stderr, "call %d: %s\n", which, ignis_status_message());
            CHECK_OK(ignis_status_last());
            ignis_status_clear();
            CHECK_OK(ignis_scope_end(scope));
        }
    left_behind = 0;
    test_leaks_expected = true;
    for (which = 0; which < CALLS; which++) {
        sweep_call(which, &on, &counter, NULL);
        sweep_call(which, &on, &counter, "cu");
    }
    test_leaks_expected = false;
    CHECK_OK(ignis_array_free(on.a));
    CHECK_OK(ignis_array_free(on.b));
    CHECK_OK(ignis_kernel_free(on.kernel));
    CHECK_OK(ignis_optimizer_free(on.optimizer));
    CHECK_OK(ignis_tensor_release(on.x));
    CHECK_OK(ignis_tensor_release(on.w));
    CHECK_OK(ignis_tensor_release(on.ids));
    CHECK_OK(ignis_tensor_release(on.doubles));
    CHECK_OK(ignis_shutdown());
    CHECK(counter.blocks <= left_behind);
}

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

int main(int argc, char **argv) { return test_run(argc, argv); }
