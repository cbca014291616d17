// SPDX-License-Identifier: MIT
/*  test_driver.c - checks of the simulator's libcuda

    Each lane (a mode of streams, or a setting) is a child process, since the simulator reads its settings once. Kernels
    need libnvrtc.so beside libcuda.so.1; without it those checks are skipped.

        test_driver [folder of the libraries]     default: ../build/sim
*/
#include "test.h"

#include <sys/mman.h>

/* Checks that nothing is alive between tests. */
static void check_empty(void)
{
    static const char *const watched[] = {"context", "malloc",      "bytes",    "hostalloc", "stream",
                                          "event",   "module",      "graph",    "handle",    "import",
                                          "mapping", "reservation", "external", "timeline",  "resource"};
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
        CHECK(ignis_sim_live(watched[i]) == 0);
}

static handle new_event(void)
{
    handle event = NULL;
    OK(cuEventCreate(&event, 0));
    return event;
}

/* >>kernels */

static const char *const kernel_text =
    "extern \"C\" {\n"
    "__device__ int counter = 5;\n"
    "__global__ void iota(int *out, int start, int n)\n"
    "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = start + i; }\n"
    "__global__ void wild(int *out) { out[0] = 1; }\n"
    "__global__ __launch_bounds__(64) void small(int *out) { out[threadIdx.x] = 1; }\n"
    "__global__ void shared_bytes(int *out) { extern __shared__ int s[]; s[threadIdx.x] = 1; out[0] = s[0]; }\n"
    "}\n";

static int launch(handle function, unsigned threads, unsigned shared, handle stream, void **arguments)
{
    return cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, shared, stream, arguments, NULL);
}

/* >>tests of every lane */

static void test_devices(void)
{
    int n = 0, version = 0, value = 0;
    char name[64] = "", a[16], b[16];
    const char *text = NULL;
    OK(cuDriverGetVersion(&version));
    OK(cuDeviceGetCount(&n));
    CHECK(n == 2 && version == 13000);
    OK(cuDeviceGetName(name, sizeof name, 0));
    CHECK(!strcmp(name, "Ignis Simulator (CPU)"));
    OK(cuDeviceGetUuid_v2(a, 0));
    OK(cuDeviceGetUuid_v2(b, 1));
    CHECK(memcmp(a, b, 16));
    OK(cuDeviceGetAttribute(&value, 75, 0));
    CHECK(value == 9);
    OK(cuDeviceGetAttribute(&value, 97, 1));
    CHECK(value == 232448);
    CODE(1, cuDeviceGetAttribute(&value, 9999, 0));
    CODE(101, cuDeviceGet(&value, 2));
    OK(cuGetErrorName(700, &text));
    CHECK(text && !strcmp(text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    CODE(1, cuGetErrorName(12345, &text));
}

static void test_symbols(void)
{
    void *address = NULL;
    int status = -1;
    OK(cuGetProcAddress_v2("cuMemAlloc", &address, 12000, 0, &status));
    CHECK(address == (void *)cuMemAlloc_v2 && status == 0);
    OK(cuGetProcAddress_v2("cuNothing", &address, 12000, 0, &status));
    CHECK(!address && status == 1);
}

static void test_contexts(void)
{
    handle first, second, top = NULL;
    int active, device;
    unsigned flags;
    ptr block;
    OK(cuCtxSetCurrent(NULL));
    CODE(201, cuCtxSynchronize());
    CODE(201, cuDevicePrimaryCtxRelease_v2(0));
    first = context_of(0);
    OK(cuDevicePrimaryCtxRetain(&second, 0));
    CHECK(first == second && ignis_sim_live("context") == 2);
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxPushCurrent_v2(second));
    OK(cuCtxGetDevice(&device));
    CHECK(device == 1);
    OK(cuCtxPopCurrent_v2(&top));
    CHECK(top == second);
    OK(cuCtxEnablePeerAccess(second, 0));
    CODE(704, cuCtxEnablePeerAccess(second, 0));
    CODE(201, cuCtxEnablePeerAccess(first, 0));
    OK(cuCtxDisablePeerAccess(second));
    CODE(705, cuCtxDisablePeerAccess(second));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuCtxSynchronize());
    block = new_block(100);
    handle stream = new_stream();
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(!active);
    CODE(709, cuMemAlloc_v2(&block, 16));
    context_of(0);
    CODE(400, cuStreamSynchronize(stream));
    CODE(1, cuMemFree_v2(block));
    CODE(201, cuCtxPushCurrent_v2((handle)0x1234));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void test_memory(void)
{
    unsigned char out[1000];
    size_t before, after, total, size;
    ptr base = 0, block;
    int type = 0;
    handle context = context_of(0);
    OK(cuMemGetInfo_v2(&before, &total));
    block = new_block(1000);
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(before - after == 1024 && ignis_sim_live("bytes") == 1000);
    OK(cuMemcpyDtoH_v2(out, block, 1000));
    CHECK(out[0] == 0xFF && out[999] == 0xFF);
    OK(cuMemGetAddressRange_v2(&base, &size, block + 999));
    CHECK(base == block && size == 1000);
    CODE(500, cuMemGetAddressRange_v2(&base, &size, block + 1000));
    CODE(1, cuMemcpyDtoH_v2(out, block + 1, 1000));
    CODE(1, cuMemcpyHtoD_v2(block, NULL, 4));
    CODE(1, cuMemcpyHtoD_v2((ptr)(uintptr_t)out, out, 4));
    CODE(1, cuMemsetD32Async(block + 2, 0, 1, NULL));
    CODE(1, cuMemsetD8Async(block, 0, 1001, NULL));
    OK(cuPointerGetAttribute(&type, 2, block));
    CHECK(type == 2);
    CODE(1, cuPointerGetAttribute(&type, 2, (ptr)(uintptr_t)out));
    CODE(1, cuMemAlloc_v2(&base, 0));
    CODE(2, cuMemAlloc_v2(&base, (size_t)3 << 30));
    CODE(1, cuMemFree_v2(block + 8));
    OK(cuMemFree_v2(block));
    CODE(1, cuMemFree_v2(block));
    CODE(1, cuMemcpyDtoH_v2(out, block, 4));
    OK(cuMemFree_v2(0));
    CHECK(new_block(1000) != block);
    OK(cuDevicePrimaryCtxReset_v2(0));
    CODE(709, cuCtxSynchronize());
    OK(cuDevicePrimaryCtxRelease_v2(0));
    (void)context;
}

static void test_pinned(void)
{
    static char plain[8192];
    void *pinned = NULL;
    ptr block;
    context_of(0);
    block = new_block(4096);
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    memset(pinned, 7, 4096);
    OK(cuMemcpyHtoD_v2(block, pinned, 4096));
    CODE(1, cuMemcpyHtoD_v2(block, (char *)pinned + 1, 4096));
    CODE(1, cuMemFreeHost(plain));
    OK(cuMemHostRegister_v2(plain, 4096, 0));
    CODE(712, cuMemHostRegister_v2(plain + 100, 4096, 0));
    OK(cuMemcpyDtoH_v2(plain, block, 4096));
    CHECK(plain[4095] == 7);
    CHECK(ignis_sim_live("hostalloc") == 2);
    OK(cuMemHostUnregister(plain));
    CODE(713, cuMemHostUnregister(plain));
    OK(cuMemFreeHost(pinned));
    CODE(1, cuMemFreeHost(pinned));
    OK(cuMemFree_v2(block));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* Checks that a pageable source may be changed after the call, and a pinned one only after the copy. */
static void test_copy_snapshot(void)
{
    int *pinned = NULL, source = 11, out[2] = {0};
    ptr block;
    context_of(0);
    handle stream = new_stream();
    block = new_block(8);
    OK(cuMemHostAlloc((void **)&pinned, 8, 0));
    pinned[0] = 21;
    OK(cuMemcpyHtoDAsync_v2(block, &source, 4, stream));
    source = 12;
    OK(cuMemcpyHtoDAsync_v2(block + 4, pinned, 4, stream));
    if (!strcmp(streams, "lazy"))
        pinned[0] = 22;
    OK(cuMemcpyDtoHAsync_v2(out, block, 8, stream));
    CHECK(out[0] == 11);
    CHECK(out[1] == (strcmp(streams, "lazy") ? 21 : 22));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree_v2(block));
    OK(cuStreamDestroy_v2(stream));
    CODE(400, cuStreamSynchronize(stream));
    CODE(400, cuStreamDestroy_v2(stream));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* Checks events: two streams pass a value to and fro, which is right only if every wait is honoured. */
static void test_events(void)
{
    enum { ROUNDS = 50 };
    int *pinned = NULL;
    float ms = -1;
    context_of(0);
    handle a = new_stream(), b = new_stream(), first = new_event(), event = new_event();
    ptr x = new_block(4 * ROUNDS), y = new_block(4 * ROUNDS);
    OK(cuMemHostAlloc((void **)&pinned, 4 * ROUNDS, 0));
    CODE(400, cuEventElapsedTime(&ms, first, event));
    OK(cuEventQuery(event));
    OK(cuEventRecord(first, a));
    OK(cuMemsetD32Async(x, 77, 1, a));
    for (unsigned i = 0; i + 1 < ROUNDS; i++) {
        OK(cuEventRecord(event, a));
        OK(cuStreamWaitEvent(b, event, 0));
        OK(cuMemcpyDtoDAsync_v2(y + 4 * i, x + 4 * i, 4, b));
        OK(cuEventRecord(event, b));
        OK(cuStreamWaitEvent(a, event, 0));
        OK(cuMemcpyDtoDAsync_v2(x + 4 * i + 4, y + 4 * i, 4, a));
    }
    OK(cuMemcpyDtoHAsync_v2(pinned, x, 4 * ROUNDS, a));
    OK(cuEventRecord(event, a));
    OK(cuEventSynchronize(event));
    CHECK(pinned[0] == 77 && pinned[ROUNDS - 1] == 77);
    OK(cuEventElapsedTime(&ms, first, event));
    CHECK(ms >= 0 && ms < 10000);
    OK(cuEventDestroy_v2(event));
    CODE(400, cuEventRecord(event, a));
    CODE(400, cuStreamWaitEvent(a, event, 0));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void set_flag(void *flag)
{
    handle context;
    *(int *)flag = cuCtxGetCurrent(&context);
}

static void test_host_function(void)
{
    int flag = -1;
    context_of(0);
    handle stream = new_stream();
    OK(cuLaunchHostFunc(stream, set_flag, &flag));
    OK(cuStreamSynchronize(stream));
    CHECK(flag == 800);
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* Checks that work of the NULL stream comes after that of blocking streams, and before their later work. */
static void test_legacy_stream(void)
{
    int *pinned = NULL;
    handle blocking;
    context_of(0);
    ptr block = new_block(8);
    OK(cuStreamCreate(&blocking, 0));
    OK(cuMemHostAlloc((void **)&pinned, 8, 0));
    OK(cuMemsetD32Async(block, 1, 1, blocking));
    OK(cuMemcpyDtoDAsync_v2(block + 4, block, 4, NULL));
    OK(cuMemcpyDtoHAsync_v2(pinned, block, 8, blocking));
    OK(cuStreamSynchronize(blocking));
    CHECK(pinned[0] == 1 && pinned[1] == 1);
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* CU_STREAM_PER_THREAD: one handle, and a stream for each thread. */
static void *use_thread_stream(void *pinned)
{
    handle mine = (handle)2;
    int status = -1;
    context_of(0);
    OK(cuStreamIsCapturing(mine, &status));
    CHECK(status == 0);
    ptr block = new_block(4);
    OK(cuMemsetD32Async(block, 7, 1, mine));
    OK(cuMemcpyDtoHAsync_v2(pinned, block, 4, mine));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    return NULL;
}

static void test_thread_streams(void)
{
    handle mine = (handle)2, graph = NULL;
    pthread_t thread;
    int *pinned = NULL, status = -1;
    context_of(0);
    OK(cuMemHostAlloc((void **)&pinned, 4, 0));
    pinned[0] = 0;
    OK(cuStreamBeginCapture_v2(mine, 2));
    pthread_create(&thread, NULL, use_thread_stream, pinned);
    pthread_join(thread, NULL);
    OK(cuStreamIsCapturing(mine, &status));
    CHECK(status == 1);
    OK(cuStreamEndCapture(mine, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamSynchronize(mine)); /* of this thread only */
    if (!strcmp(streams, "lazy"))
        CHECK(pinned[0] == 0);
    OK(cuCtxSynchronize()); /* work that a thread has queued outlives it */
    CHECK(pinned[0] == 7);
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void test_peer(void)
{
    int value = 42, out = 0;
    handle zero = context_of(0);
    ptr a = new_block(4);
    OK(cuMemcpyHtoD_v2(a, &value, 4));
    handle one = context_of(1);
    ptr b = new_block(4);
    handle stream = new_stream();
    OK(cuMemcpyPeerAsync(b, one, a, zero, 4, stream));
    CODE(1, cuMemcpyPeerAsync(b, zero, a, one, 4, stream));
    OK(cuMemcpyDtoHAsync_v2(&out, b, 4, stream));
    CHECK(out == 42);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuMemsetD8Async(b, 0, 4, stream));
    OK(cuDevicePrimaryCtxRelease_v2(1));
}

static void test_faults(void)
{
    ptr block;
    handle stream;
    int value = 0;
    context_of(0);
    CHECK(ignis_sim_fail("nonsense:1") == -1 && ignis_sim_fail("malloc:0") == -1);
    CHECK(ignis_sim_fail("malloc:2,stream:1+") == 0);
    long calls = ignis_sim_calls("malloc");
    block = new_block(16);
    CODE(2, cuMemAlloc_v2(&block, 16));
    new_block(16);
    CODE(2, cuStreamCreate(&stream, 0));
    CODE(2, cuStreamCreate(&stream, 0));
    CHECK(ignis_sim_calls("malloc") == calls + 3 && ignis_sim_calls("no such name") == -1);
    CHECK(ignis_sim_live("malloc") == 2 && ignis_sim_live("stream") == 0);
    CHECK(ignis_sim_fail("cuMemcpyHtoD_v2:1") == 0);
    CODE(999, cuMemcpyHtoD_v2(block, &value, 4));
    OK(cuMemcpyHtoD_v2(block, &value, 4));
    CHECK(ignis_sim_fail("any:3") == 0);
    OK(cuMemcpyHtoD_v2(block, &value, 4));
    OK(cuMemcpyHtoD_v2(block, &value, 4));
    OK(cuMemFree_v2(0));
    CODE(999, cuMemcpyHtoD_v2(block, &value, 4));
    CHECK(ignis_sim_fail("") == 0);
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void add_one(void *value) { ++*(int *)value; }

/* Checks graphs: work of two streams is captured, then run three times. */
static void test_graphs(void)
{
    int *pinned = NULL, runs = 0, status = 0;
    size_t nodes = 0;
    handle graph = NULL, exec = NULL;
    context_of(0);
    handle a = new_stream(), b = new_stream(), event = new_event(), back = new_event();
    ptr block = new_block(8);
    OK(cuMemHostAlloc((void **)&pinned, 8, 0));
    OK(cuStreamBeginCapture_v2(a, 0));
    CODE(401, cuStreamBeginCapture_v2(a, 0));
    OK(cuMemcpyHtoDAsync_v2(block, pinned, 4, a));
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    OK(cuMemcpyDtoDAsync_v2(block + 4, block, 4, b));
    OK(cuLaunchHostFunc(b, add_one, &runs));
    OK(cuEventRecord(back, b));
    OK(cuStreamWaitEvent(a, back, 0));
    OK(cuMemcpyDtoHAsync_v2(pinned + 1, block + 4, 4, a));
    OK(cuStreamIsCapturing(b, &status));
    CHECK(status == 1 && runs == 0);
    OK(cuStreamEndCapture(a, &graph));
    OK(cuStreamIsCapturing(b, &status));
    CHECK(status == 0);
    CODE(1, cuEventQuery(event));
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 4);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    CODE(1, cuGraphDestroy(graph));
    for (int i = 0; i < 3; i++) {
        pinned[0] = 100 + i;
        OK(cuGraphLaunch(exec, b));
        OK(cuStreamSynchronize(b));
        CHECK(pinned[1] == 100 + i && runs == i + 1);
    }
    OK(cuGraphExecDestroy(exec));
    CODE(1, cuGraphLaunch(exec, b));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* Checks calls that invalidate a capture, with the codes of an H200's driver. */
static void test_capture_errors(void)
{
    enum {
        ALLOC,
        FREE,
        SYNC,
        SYNC_OTHER,
        SYNC_CONTEXT,
        QUERY,
        QUERY_EVENT,
        QUERY_CAPTURED,
        END_OTHER,
        LAUNCH_GRAPH,
        OUTSIDE_EVENT,
        UNJOINED,
        HARMLESS,
        RELAXED,
        CASES
    };
    static const struct {
        int code, end;
    } expected[CASES] = {[ALLOC] = {900, 901},         [FREE] = {900, 901},
                         [SYNC] = {900, 901},          [SYNC_OTHER] = {900, 901},
                         [SYNC_CONTEXT] = {900, 901},  [QUERY] = {900, 901},
                         [QUERY_EVENT] = {900, 901},   [QUERY_CAPTURED] = {907, 901},
                         [END_OTHER] = {903, 901},     [LAUNCH_GRAPH] = {900, 901},
                         [OUTSIDE_EVENT] = {905, 901}, [UNJOINED] = {0, 904},
                         [HARMLESS] = {0, 0},          [RELAXED] = {0, 0}};
    int value = 0, mode = 2;
    handle graph = NULL, exec = NULL, blocking;
    size_t free_bytes;
    context_of(0);
    handle a = new_stream(), b = new_stream(), event = new_event(), outside = new_event();
    ptr block = new_block(8), other = 0;
    OK(cuEventRecord(outside, b));
    OK(cuStreamBeginCapture_v2(b, 0));
    OK(cuStreamEndCapture(b, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    for (int i = 0; i < CASES; i++) {
        int code = -1;
        OK(cuStreamBeginCapture_v2(a, 0));
        OK(cuMemsetD8Async(block, 0, 8, a));
        OK(cuEventRecord(event, a));
        if (i == END_OTHER || i == UNJOINED)
            OK(cuStreamWaitEvent(b, event, 0));
        if (i == RELAXED)
            OK(cuThreadExchangeStreamCaptureMode(&mode));
        switch (i) {
        case ALLOC: code = cuMemAlloc_v2(&other, 8); break;
        case FREE: code = cuMemFree_v2(block); break;
        case SYNC: code = cuStreamSynchronize(a); break;
        case SYNC_OTHER: code = cuStreamSynchronize(b); break;
        case SYNC_CONTEXT: code = cuCtxSynchronize(); break;
        case QUERY: code = cuStreamQuery(a); break;
        case QUERY_EVENT: code = cuEventQuery(outside); break;
        case QUERY_CAPTURED: code = cuEventQuery(event); break;
        case END_OTHER: code = cuStreamEndCapture(b, &graph); break;
        case LAUNCH_GRAPH: code = cuGraphLaunch(exec, a); break;
        case OUTSIDE_EVENT: code = cuStreamWaitEvent(a, outside, 0); break;
        case UNJOINED: code = cuMemsetD8Async(block, 0, 4, b); break;
        case HARMLESS: code = cuMemGetInfo_v2(&free_bytes, &free_bytes) || cuMemcpyDtoH_v2(&value, block, 4); break;
        case RELAXED: code = cuMemAlloc_v2(&other, 8); break;
        }
        CODE(expected[i].code, code);
        CODE(expected[i].end, cuStreamEndCapture(a, &graph));
        if (!expected[i].end)
            OK(cuGraphDestroy(graph));
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CODE(900, cuStreamBeginCapture_v2(NULL, 0));
    CODE(401, cuStreamEndCapture(a, &graph));
    OK(cuStreamCreate(&blocking, 0));
    OK(cuStreamBeginCapture_v2(blocking, 0));
    CODE(906, cuMemcpyDtoH_v2(&value, block, 4));
    CODE(901, cuMemsetD8Async(block, 0, 4, blocking));
    CODE(901, cuStreamEndCapture(blocking, &graph));
    OK(cuMemcpyDtoH_v2(&value, block, 4));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* Runs threads with a stream, a block and an event each, all on one device. */
static void *hammer(void *argument)
{
    int id = (int)(intptr_t)argument, *pinned = NULL;
    handle context = NULL;
    OK(cuDevicePrimaryCtxRetain(&context, id & 1));
    OK(cuCtxSetCurrent(context));
    handle stream = new_stream(), event = new_event();
    OK(cuMemHostAlloc((void **)&pinned, 4096, 0));
    for (int i = 0; i < 20; i++) {
        ptr block = new_block(4096);
        OK(cuMemsetD32Async(block, (unsigned)(id * 1000 + i), 1024, stream));
        OK(cuMemcpyDtoHAsync_v2(pinned, block, 4096, stream));
        OK(cuEventRecord(event, stream));
        OK(cuEventSynchronize(event));
        CHECK(pinned[0] == id * 1000 + i && pinned[1023] == pinned[0]);
        OK(cuMemFree_v2(block));
    }
    OK(cuMemFreeHost(pinned));
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(stream));
    OK(cuDevicePrimaryCtxRelease_v2(id & 1));
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[8];
    for (intptr_t i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, hammer, (void *)i);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
}

static void test_kernels(const void *image)
{
    static const uint64_t no_image[16] = {0};
    int out[64], start = 3, n = 64, *pinned = NULL, value = 0;
    size_t size = 0, offset = 0;
    ptr block, address = 0;
    handle module = NULL;
    context_of(0);
    block = new_block(sizeof out);
    OK(cuMemHostAlloc((void **)&pinned, 64 * 4, 0));
    memset(pinned, 0, 64 * 4);
    CODE(200, cuModuleLoadData(&module, no_image));
    OK(cuModuleLoadData(&module, image));
    CODE(500, cuModuleGetFunction(&(handle){NULL}, module, "missing"));
    handle iota = function_of(module, "iota"), small = function_of(module, "small"),
           bytes = function_of(module, "shared_bytes");
    handle stream = new_stream();
    void *arguments[] = {&block, &start, &n};
    OK(launch(iota, 64, 0, stream, arguments));
    start = 1000;
    OK(cuMemcpyDtoHAsync_v2(pinned, block, 64 * 4, stream));
    if (!strcmp(streams, "lazy"))
        CHECK(pinned[0] == 0);
    OK(cuStreamSynchronize(stream));
    CHECK(pinned[0] == 3 && pinned[63] == 66);
    OK(cuFuncGetParamInfo(iota, 1, &offset, &size));
    CHECK(offset == 8 && size == 4);
    CODE(1, launch(iota, 64, 0, stream, NULL));
    CODE(1, launch(iota, 0, 0, stream, arguments));
    CODE(1, launch(iota, 1025, 0, stream, arguments));
    CODE(1, launch(small, 65, 0, stream, arguments));
    OK(launch(small, 64, 0, stream, arguments));
    CODE(1, launch(bytes, 64, 50000, stream, arguments));
    OK(cuFuncSetAttribute(bytes, 8, 50000));
    OK(launch(bytes, 64, 50000, stream, arguments));
    CODE(1, cuFuncSetAttribute(bytes, 8, 232449));
    struct {
        ptr out;
        int start, n;
    } packed = {block, 9, 64};
    size = sizeof packed;
    void *extra[] = {(void *)1, &packed, (void *)2, &size, NULL};
    OK(cuLaunchKernel(iota, 1, 1, 1, 64, 1, 1, 0, stream, NULL, extra));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(out, block, sizeof out));
    CHECK(out[0] == 9 && out[63] == 72);
    OK(cuModuleGetGlobal_v2(&address, &size, module, "counter"));
    CHECK(size == 4 && *(int *)(uintptr_t)address == 5);
    value = 6;
    OK(cuMemcpyHtoDAsync_v2(address, &value, 4, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(*(int *)(uintptr_t)address == 6);
    CODE(1, cuMemcpyHtoDAsync_v2(address, out, 8, stream)); /* beyond its end */
    OK(cuFuncGetAttribute(&value, 0, small));
    CHECK(value == 64);
    handle graph = NULL, exec = NULL;
    OK(cuStreamBeginCapture_v2(stream, 0));
    start = 50;
    OK(launch(iota, 64, 0, stream, arguments));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(out, block, sizeof out));
    CHECK(out[0] == 50 && out[63] == 113);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuModuleUnload(module));
    CODE(1, cuMemcpyHtoDAsync_v2(address, &value, 4, stream)); /* unloaded with the module */
    CODE(400, launch(iota, 64, 0, stream, arguments));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* >>tests of one lane */

/* Checks that nothing runs before something waits for it, and that a loop of queries ends. */
static void test_lazy(void)
{
    int *pinned = NULL, polls = 0;
    context_of(0);
    handle stream = new_stream(), event = new_event();
    ptr block = new_block(4);
    OK(cuMemHostAlloc((void **)&pinned, 4, 0));
    *pinned = 5;
    OK(cuMemsetD32Async(block, 6, 1, stream));
    OK(cuMemcpyDtoHAsync_v2(pinned, block, 4, stream));
    OK(cuEventRecord(event, stream));
    CHECK(*pinned == 5);
    CODE(600, cuEventQuery(event));
    CHECK(*pinned == 5);
    while (cuEventQuery(event) == 600 && polls < 100)
        polls++;
    CHECK(*pinned == 6 && polls < 100);
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* Allocates far more blocks than memory or address space has, unless freed ones are used again. */
static void test_reuse(void)
{
    context_of(0);
    for (int i = 0; i < 140; i++) {
        ptr block = new_block((size_t)2047 << 20);
        OK(cuMemFree_v2(block));
    }
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void test_fork(void)
{
    int status = 0;
    context_of(0);
    pid_t child = fork();
    if (!child) {
        ptr block;
        _exit(cuMemAlloc_v2(&block, 16) == 3 && cuInit(0) == 3 ? 0 : 1);
    }
    waitpid(child, &status, 0);
    CHECK(status == 0);
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static handle timeline_at(uint64_t value, int *file)
{
    external_fence desc = {.type = 9, .os = {.fd = ignis_sim_timeline(value)}};
    handle fence = NULL;
    *file = fcntl(desc.os.fd, F_DUPFD_CLOEXEC, 0);
    OK(cuImportExternalSemaphore(&fence, &desc));
    return fence;
}

static uint64_t value_in(int file)
{
    uint64_t value = 0;
    CHECK(pread(file, &value, sizeof value, 16) == sizeof value);
    return value;
}

/* Checks what a program may do with memory, timelines and buffers of other APIs, and what it may not. */
static void test_graphics(void)
{
    external_memory memory = {.type = 1, .os = {.fd = memfd_create("test", 0)}, .size = 100};
    external_part whole = {.size = 100}, part = {.offset = 50, .size = 50};
    handle imported = NULL, fence, resource = NULL, stream, graph = NULL;
    fence_value value = {.value = 4};
    unsigned char bytes[100];
    int file, twin = fcntl(memory.os.fd, F_DUPFD_CLOEXEC, 0);
    ptr address = 0;
    size_t size = 0;
    context_of(0);
    stream = new_stream();

    CHECK(!ftruncate(memory.os.fd, 100));
    memory.size = 96;
    CODE(1, cuImportExternalMemory(&imported, &memory));
    memory.size = 100, memory.type = 2;
    CODE(801, cuImportExternalMemory(&imported, &memory));
    memory.type = 1;
    OK(cuImportExternalMemory(&imported, &memory));
    CODE(1, cuExternalMemoryGetMappedBuffer(&address, imported, &part)); /* Ignis maps the whole memory */
    OK(cuExternalMemoryGetMappedBuffer(&address, imported, &whole));
    OK(cuMemsetD8Async(address, 7, 100, stream));
    CODE(1, cuMemsetD8Async(address, 7, 101, stream));
    CODE(401, cuDestroyExternalMemory(imported)); /* while it is mapped */
    OK(cuMemFree_v2(address));                    /* waits for the device, as cuMemFree does */
    CODE(1, cuMemFree_v2(address));
    CODE(1, cuMemsetD8Async(address, 8, 1, stream));
    OK(cuDestroyExternalMemory(imported));
    CODE(400, cuDestroyExternalMemory(imported));
    CHECK(fcntl(memory.os.fd, F_GETFD) < 0); /* the driver has closed it */
    CHECK(pread(twin, bytes, 100, 0) == 100 && bytes[0] == 7 && bytes[99] == 7);
    close(twin);

    fence = timeline_at(3, &file);
    OK(cuWaitExternalSemaphoresAsync(&fence, &(fence_value){.value = 2}, 1, stream));
    OK(cuSignalExternalSemaphoresAsync(&fence, &value, 1, stream));
    OK(cuWaitExternalSemaphoresAsync(&fence, &value, 1, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(value_in(file) == 4);
    OK(cuStreamBeginCapture_v2(stream, 2));
    CODE(801, cuSignalExternalSemaphoresAsync(&fence, &value, 1, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuWaitExternalSemaphoresAsync(&fence, &(fence_value){.value = 6}, 1, stream));
    CODE(401, cuDestroyExternalSemaphore(fence)); /* while a wait is queued */
    value.value = 6;
    CHECK(pwrite(file, &value.value, 8, 16) == 8); /* as the other API does */
    OK(cuStreamSynchronize(stream));
    OK(cuDestroyExternalSemaphore(fence));
    CODE(400, cuDestroyExternalSemaphore(fence));
    close(file);

    unsigned name = ignis_sim_gl_buffer(64);
    CODE(219, cuGraphicsGLRegisterBuffer(&resource, name, 0));
    ignis_sim_gl_current(1);
    CODE(1, cuGraphicsGLRegisterBuffer(&resource, name + 1, 0));
    OK(cuGraphicsGLRegisterBuffer(&resource, name, 0));
    CODE(211, cuGraphicsUnmapResources(1, &resource, stream));
    CODE(211, cuGraphicsResourceGetMappedPointer_v2(&address, &size, resource));
    OK(cuGraphicsMapResources(1, &resource, stream));
    CODE(208, cuGraphicsMapResources(1, &resource, stream));
    OK(cuGraphicsResourceGetMappedPointer_v2(&address, &size, resource));
    CHECK(size == 64 && !ignis_sim_gl_data(name));
    OK(cuMemsetD8Async(address, 9, 64, stream));
    CODE(401, cuGraphicsUnregisterResource(resource)); /* while it is mapped */
    OK(cuGraphicsUnmapResources(1, &resource, stream));
    CHECK(((unsigned char *)ignis_sim_gl_data(name))[63] == 9);
    OK(cuGraphicsUnregisterResource(resource));
    CODE(400, cuGraphicsUnregisterResource(resource));
    ignis_sim_gl_delete(name);
    ignis_sim_gl_current(0);
    OK(cuStreamDestroy_v2(stream));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

/* >>tests of faults, each in its own process, which has no device afterwards */

static void start_driver(void)
{
    load_driver();
    OK(cuInit(0));
}

/* Checks that a fault ends all devices, including those not opened yet, and remains when their contexts are
   gone. */
static void test_sticky(void)
{
    char *image = compile_kernels(kernel_text);
    ptr block, other, bad = 8;
    handle module = NULL, event, one, two = NULL;
    int value = 0, type = 0;
    if (!image) {
        skipped++;
        return;
    }
    setenv("IGNIS_SIM_DEVICES", "3", 1);
    start_driver();
    one = context_of(1);
    other = new_block(4);
    context_of(0);
    block = new_block(4);
    event = new_event();
    OK(cuModuleLoadData(&module, image));
    void *arguments[] = {&bad};
    OK(launch(function_of(module, "wild"), 1, 0, NULL, arguments));
    CODE(700, cuCtxSynchronize());
    CODE(700, cuMemcpyHtoD_v2(block, &value, 4));
    CODE(700, cuMemFree_v2(block));
    CODE(700, cuEventRecord(event, NULL));
    CODE(700, cuStreamQuery(NULL));
    OK(cuPointerGetAttribute(&type, 2, block));
    OK(cuCtxPushCurrent_v2(one));
    CODE(700, cuCtxSynchronize());
    CODE(700, cuMemcpyHtoD_v2(other, &value, 4));
    OK(cuCtxPopCurrent_v2(NULL));
    CODE(700, cuDevicePrimaryCtxRetain(&one, 1));
    CODE(700, cuDevicePrimaryCtxRetain(&two, 2));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    check_empty();
    CODE(700, cuDevicePrimaryCtxRetain(&one, 1));
    free(image);
}

/* Launches a graph whose kernel's module is unloaded. */
static void test_unloaded(void)
{
    char *image = compile_kernels(kernel_text);
    handle module = NULL, stream, graph = NULL, exec = NULL;
    ptr block;
    if (!image) {
        skipped++;
        return;
    }
    start_driver();
    context_of(0);
    block = new_block(256);
    stream = new_stream();
    OK(cuModuleLoadData(&module, image));
    void *arguments[] = {&block};
    OK(cuStreamBeginCapture_v2(stream, 0));
    OK(launch(function_of(module, "small"), 64, 0, stream, arguments));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuModuleUnload(module));
    OK(cuGraphLaunch(exec, stream));
    CODE(700, cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    check_empty();
    free(image);
}

/* Checks that a byte written after a block is noticed when the block is freed. */
static void test_canary(void)
{
    int value;
    start_driver();
    context_of(0);
    ptr block = new_block(100);
    ((volatile char *)(uintptr_t)block)[100] = 1;
    CODE(700, cuMemFree_v2(block));
    CODE(700, cuMemcpyDtoH_v2(&value, block, 4));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    check_empty();
}

/* Checks that a wait for a value that never comes is reported and does not hang, and that a timeline does not
   go back. */
static void test_no_progress(void)
{
    int file;
    setenv("IGNIS_SIM_PATIENCE", "50", 1);
    start_driver();
    context_of(0);
    handle fence = timeline_at(3, &file), stream = new_stream();
    OK(cuWaitExternalSemaphoresAsync(&fence, &(fence_value){.value = 4}, 1, stream));
    CODE(702, cuStreamSynchronize(stream));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    check_empty();
}

static void test_timeline_back(void)
{
    int file;
    start_driver();
    context_of(0);
    handle fence = timeline_at(3, &file), stream = new_stream();
    OK(cuSignalExternalSemaphoresAsync(&fence, &(fence_value){.value = 3}, 1, stream));
    CODE(719, cuStreamSynchronize(stream));
    CHECK(value_in(file) == 3);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    check_empty();
}

/* Checks what cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col refuse; case 0 is valid. */
static void test_tensor_maps(void)
{
    enum { BF16 = 9, FLOAT32 = 7, SWIZZLE_64 = 2, SWIZZLE_128 = 3 };
    _Alignas(64) char map[128 + 16];
    ptr block = (context_of(0), new_block(1 << 20));
    for (int wrong = 0; wrong <= 20; wrong++) {
        uint64_t dims[] = {64, 100, 2, 4, 3}, strides[] = {1024, 128, 256, 102400};
        unsigned box[] = {64, 128, 2, 1, 1}, steps[] = {1, 1, 1, 1, 1}, rank = 5;
        int type = BF16, interleave = 0, swizzle = SWIZZLE_128, l2 = 2, fill = 0;
        void *to = map;
        ptr base = block;
        switch (wrong) {
        case 1: rank = 0; break;
        case 2: rank = 6; break;
        case 3: base += 8; break;
        case 4: base = 0; break;
        case 5: strides[0] = 1032; break;
        case 6: strides[3] = (uint64_t)1 << 40; break;
        case 7: box[1] = 257; break;
        case 8: box[1] = 0; break;
        case 9: box[0] = 72; break; /* 144 bytes */
        case 10: swizzle = SWIZZLE_64; break;
        case 11: dims[2] = 0; break;
        case 12: dims[1] = ((uint64_t)1 << 32) + 1; break;
        case 13: to = map + 16; break;
        case 14: type = 99; break;
        case 15: swizzle = 9; break;
        case 16: steps[0] = 0; break;
        case 17: box[0] = 4; break; /* 8 bytes */
        case 18: fill = 2; break;
        case 19: l2 = 4; break;
        case 20: to = NULL; break;
        }
        snprintf(where, sizeof where, "[%s] tensor map %d: ", streams, wrong);
        CODE(wrong ? 1 : 0,
             cuTensorMapEncodeTiled(to, type, rank, base, dims, strides, box, steps, interleave, swizzle, l2, fill));
    }
    for (int wrong = 0; wrong <= 10; wrong++) {
        uint64_t dims[] = {64, 20, 30, 4}, strides[] = {128, 2560, 76800};
        unsigned steps[] = {1, 2, 8, 1}, rank = 4, channels = 64, pixels = 1024;
        int lower[] = {-128, 127}, upper[] = {127, 127};
        switch (wrong) {
        case 1: rank = 2; break;
        case 2: lower[0] = -129; break;
        case 3: upper[1] = 128; break;
        case 4: channels = 257; break;
        case 5: pixels = 1025; break;
        case 6: pixels = 0; break;
        case 7: steps[1] = 9; break;
        case 8: steps[2] = 0; break;
        case 9: upper[1] = 97; break; /* no rows */
        case 10: strides[1] = 2568; break;
        }
        snprintf(where, sizeof where, "[%s] map of pixels %d: ", streams, wrong);
        CODE(wrong ? 1 : 0, cuTensorMapEncodeIm2col(map, BF16, rank, block, dims, strides, lower, upper, channels,
                                                    pixels, steps, 0, SWIZZLE_128, 2, 0));
    }
    uint64_t dims[] = {33, 5}, strides[] = {144};
    unsigned box[] = {32, 5}, steps[] = {1, 1};
    OK(cuTensorMapEncodeTiled(map, FLOAT32, 2, block, dims, strides, box, steps, 0, SWIZZLE_128, 0, 1));
    OK(cuMemFree_v2(block));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void run_tests(void)
{
    char *image = compile_kernels(kernel_text);
    void (*const tests[])(void) = {
        test_devices, test_symbols,        test_contexts,      test_memory,         test_pinned,  test_copy_snapshot,
        test_events,  test_host_function,  test_legacy_stream, test_thread_streams, test_peer,    test_faults,
        test_graphs,  test_capture_errors, test_threads,       test_tensor_maps,    test_graphics};
    load_driver();
    CODE(3, cuDeviceGet(&(int){0}, 0));
    OK(cuInit(0));
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tests[i](), check_empty();
    if (image)
        test_kernels(image), check_empty();
    else
        skipped++;
    if (!strcmp(streams, "lazy"))
        test_lazy();
    if (!strcmp(streams, "eager"))
        test_reuse(), test_fork();
    check_empty();
    free(image);
}

int main(int argc, char **argv)
{
    static const char *const lanes[] = {"eager", "lazy", "thread"};
    if (argc > 1)
        folder = argv[1];
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
        run_apart(lanes[i], "driver", run_tests);
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes && !is_sanitized();
         i++) { /* a sanitizer ends the program at a wild access */
        run_apart(lanes[i], "fault", test_sticky);
        run_apart(lanes[i], "unloaded", test_unloaded);
        run_apart(lanes[i], "canary", test_canary);
        run_apart(lanes[i], "no progress", test_no_progress);
        run_apart(lanes[i], "timeline back", test_timeline_back);
    }
    return report();
}
