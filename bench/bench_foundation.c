// SPDX-License-Identifier: MIT
/*  bench_foundation.c - what arrays, launches, element-wise kernels, transfers and a start cost

    Every figure is a median of many repetitions, taken warm; where there is a peer - the bare driver call - the two
    take turns in the same run. A bandwidth counts each byte that has to be read or written once.

        cc -O2 -I. bench/bench_foundation.c -o bench_foundation -lm -ldl -lpthread && ./bench_foundation
*/
#define _GNU_SOURCE
#define IGNIS_IMPLEMENTATION
#include "ignis.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "timing.h"

#define REQUIRE(call) require((call) == 0, #call)
#define KIB ((int64_t)1 << 10)
#define MIB ((int64_t)1 << 20)
#define COUNT_OF(table) ((int)(sizeof(table) / sizeof((table)[0])))

static bool simulated;

/* --- two things that take turns -------------------------------------------------------------------------------- */

/*  What a step works on: handles for Ignis, addresses for the bare driver. */
typedef struct work {
    ignis_array to, a, b;
    ignis_kernel kernel;
    int n;
    void *host;
    ignis__address dst, src;
    int64_t bytes;
    void *function, *stream;
} work;

typedef void (*step_fn)(work *w);

enum { REPEATS = 21 };

static double batch(step_fn step, work *w, int steps, bool wait)
{
    double start = now(), stop;
    int i;
    for (i = 0; i < steps; i++)
        step(w);
    if (wait)
        ignis_synchronize();
    stop = now();
    ignis_synchronize();
    return (stop - start) / steps;
}

/*  Seconds that a step takes, and its peer (null: none). wait: until the device is done; else only what the caller
    waits. */
static double compete(step_fn step, step_fn peer, work *w, bool wait, double *peer_seconds)
{
    double own[REPEATS], other[REPEATS], goal = simulated ? 1e-4 : 4e-3;
    int steps = 1, most = wait ? 4096 : 256, i; /* the driver's queue holds about a thousand launches */
    batch(step, w, 1, wait);
    if (peer)
        batch(peer, w, 1, wait);
    while (steps < most && batch(step, w, steps, wait) * steps < goal)
        steps *= 2;
    for (i = 0; i < REPEATS; i++) {
        own[i] = batch(step, w, steps, wait);
        other[i] = peer ? batch(peer, w, steps, wait) : 0;
    }
    require(ignis_status_last() == IGNIS_OK, "a measured step");
    *peer_seconds = median(other, REPEATS);
    return median(own, REPEATS);
}

static ignis_array make(ignis_dtype dtype, int64_t numel)
{
    ignis_array_desc desc;
    ignis_array array;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(numel);
    desc.dtype = dtype;
    array = ignis_array_create(&desc);
    REQUIRE(ignis_array_zero(array));
    return array;
}

static ignis__address address(ignis_array array) { return (ignis__address)(uintptr_t)ignis_array_device_ptr(array); }

/* --- arrays and launches --------------------------------------------------------------------------------------- */

static int64_t sink;

static void lookup(work *w) { sink += ignis_array_numel(w->a); }

static void create_and_free(work *w)
{
    ignis_array_desc desc;
    (void)w;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(1024);
    ignis_array_free(ignis_array_create(&desc));
}

static void create_use_and_free(work *w)
{
    ignis_array_desc desc;
    ignis_array array;
    (void)w;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(1024);
    array = ignis_array_create(&desc);
    ignis_array_to_device(array);
    ignis_array_free(array);
}

static const char axpy_source[] = "extern \"C\" __global__ void axpy(float *y, const float *x, float a, int n)\n"
                                  "{\n"
                                  "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                                  "    if (i < n) y[i] += a * x[i];\n"
                                  "}\n";

static void launch_ignis(work *w)
{
    ignis_launch launch = {{4, 0, 0}, {256, 0, 0}, 0, false, false};
    ignis_arg args[4];
    args[0] = ignis_arg_array(w->to);
    args[1] = ignis_arg_array(w->a);
    args[2] = ignis_arg_f32(0.5f);
    args[3] = ignis_arg_i32(w->n);
    ignis_kernel_launch(w->kernel, &launch, args, 4);
}

static void launch_driver(work *w)
{
    float a = 0.5f;
    void *args[4] = {&w->dst, &w->src, &a, &w->n};
    ignis__cuda.cuLaunchKernel(w->function, 4, 1, 1, 256, 1, 1, 0, w->stream, args, NULL);
}

static ignis_kernel ignis_axpy(void)
{
    ignis_kernel_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.source = axpy_source;
    desc.entry = "axpy";
    return ignis_kernel_compile(&desc);
}

/*  The kernel once more, compiled and loaded with bare calls. */
static void *bare_axpy(void)
{
    ignis_device_info device;
    ignis_library_info library;
    void *program, *module, *function;
    char arch[32], *image;
    const char *options[1];
    size_t size;
    REQUIRE(ignis_device_query(0, &device));
    REQUIRE(ignis_library_query(IGNIS_LIBRARY_NVRTC, &library));
    snprintf(arch, sizeof arch, "-arch=sm_%d%d", device.compute_major, device.compute_minor);
    options[0] = arch;
    REQUIRE(ignis__nvrtc.nvrtcCreateProgram(&program, axpy_source, "axpy.cu", 0, NULL, NULL));
    REQUIRE(ignis__nvrtc.nvrtcCompileProgram(program, 1, options));
    REQUIRE(ignis__nvrtc.nvrtcGetCUBINSize(program, &size));
    image = (char *)malloc(size);
    REQUIRE(ignis__nvrtc.nvrtcGetCUBIN(program, image));
    REQUIRE(ignis__nvrtc.nvrtcDestroyProgram(&program));
    REQUIRE(ignis__cuda.cuModuleLoadData(&module, image));
    REQUIRE(ignis__cuda.cuModuleGetFunction(&function, module, "axpy"));
    free(image);
    return function;
}

/* --- element-wise kernels against a device copy ---------------------------------------------------------------- */

static void copy_driver(work *w) { ignis__cuda.cuMemcpyDtoDAsync_v2(w->dst, w->src, (size_t)w->bytes, w->stream); }
static void run_copy(work *w) { ignis_array_copy(w->to, w->a); } /* converts, too */
static void run_add(work *w) { ignis_array_add(w->to, w->a, w->b); }
static void run_scale(work *w) { ignis_array_scale(w->to, w->a, 1.5); }
static void run_fill(work *w) { ignis_array_fill(w->to, 1.5); }

static const struct {
    const char *name;
    step_fn step;
    ignis_dtype from, to;
    int reads; /* arrays */
} operations[] = {
    {"copy f32", run_copy, IGNIS_F32, IGNIS_F32, 1},          {"cast f32 to bf16", run_copy, IGNIS_F32, IGNIS_BF16, 1},
    {"cast bf16 to f32", run_copy, IGNIS_BF16, IGNIS_F32, 1}, {"cast f32 to f64", run_copy, IGNIS_F32, IGNIS_F64, 1},
    {"cast u8 to f32", run_copy, IGNIS_U8, IGNIS_F32, 1},     {"add f32", run_add, IGNIS_F32, IGNIS_F32, 2},
    {"add bf16", run_add, IGNIS_BF16, IGNIS_BF16, 2},         {"add f16", run_add, IGNIS_F16, IGNIS_F16, 2},
    {"scale f32", run_scale, IGNIS_F32, IGNIS_F32, 1},        {"scale bf16", run_scale, IGNIS_BF16, IGNIS_BF16, 1},
    {"fill f32", run_fill, IGNIS_F32, IGNIS_F32, 0},          {"fill bf16", run_fill, IGNIS_BF16, IGNIS_BF16, 0},
};

enum { OPERATIONS = COUNT_OF(operations), SIZES = 4 };

typedef struct bandwidth {
    double own, copy; /* bytes per second */
} bandwidth;

/*  One operation whose largest array has so many bytes, in turn with a copy between two arrays of that size. */
static bandwidth measure(int op, int64_t bytes)
{
    const int from = ignis__dtypes[operations[op].from].size, to = ignis__dtypes[operations[op].to].size;
    const int64_t numel = bytes / (from > to ? from : to), moved = numel * (from * operations[op].reads + to);
    ignis_array copy_to = make(IGNIS_U8, bytes), copy_from = make(IGNIS_U8, bytes);
    bandwidth result;
    double own, copy;
    work w;
    memset(&w, 0, sizeof w);
    w.to = make(operations[op].to, numel);
    w.a = make(operations[op].from, numel);
    w.b = make(operations[op].from, numel);
    w.dst = address(copy_to), w.src = address(copy_from), w.bytes = bytes, w.stream = ignis_stream_current();
    own = compete(operations[op].step, copy_driver, &w, true, &copy);
    ignis_array_free(w.to);
    ignis_array_free(w.a);
    ignis_array_free(w.b);
    ignis_array_free(copy_to);
    ignis_array_free(copy_from);
    result.own = (double)moved / own;
    result.copy = 2 * (double)bytes / copy;
    return result;
}

/* --- transfers ------------------------------------------------------------------------------------------------- */

static void to_device(work *w) { ignis_array_from_host_raw(w->a, w->host, w->bytes); }
static void to_host(work *w) { ignis_array_to_host_raw(w->a, w->host, w->bytes); }
static void to_device_driver(work *w)
{
    ignis__cuda.cuMemcpyHtoDAsync_v2(w->dst, w->host, (size_t)w->bytes, w->stream);
    ignis__cuda.cuStreamSynchronize(w->stream);
}
static void to_host_driver(work *w)
{
    ignis__cuda.cuMemcpyDtoHAsync_v2(w->host, w->dst, (size_t)w->bytes, w->stream);
    ignis__cuda.cuStreamSynchronize(w->stream);
}

/* --- starts, in processes of their own ------------------------------------------------------------------------- */

typedef struct start {
    double ms, rss_mb;
} start;

/*  What a short program does: set up, run an own kernel and one of Ignis', read the result. */
static void start_ignis(void)
{
    ignis_array array;
    work w;
    float value;
    REQUIRE(ignis_setup(NULL));
    memset(&w, 0, sizeof w);
    w.to = make(IGNIS_F32, 1);
    w.a = array = make(IGNIS_F32, 1);
    w.n = 1;
    w.kernel = ignis_axpy();
    REQUIRE(ignis_array_fill(array, 3));
    launch_ignis(&w);
    REQUIRE(ignis_array_to_host(w.to, &value, IGNIS_F32, 1));
    require(value == 1.5f, "the first result");
}

/*  The part of it that no program gets around. */
static void start_driver(void)
{
    const char *path = getenv("IGNIS_CUDA_LIBRARY");
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *context;
    require(library != NULL, "opening the driver");
    int (*init)(unsigned), (*retain)(void **, int), (*use)(void *), (*alloc)(ignis__address *, size_t);
    ignis__address memory;
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&use = dlsym(library, "cuCtxSetCurrent");
    *(void **)&alloc = dlsym(library, "cuMemAlloc_v2");
    require(init(0) == 0 && retain(&context, 0) == 0 && use(context) == 0 && alloc(&memory, 4) == 0,
            "starting the driver");
}

static int start_main(const char *kind)
{
    double begin = now();
    struct rusage usage;
    if (strcmp(kind, "driver") == 0)
        start_driver();
    else
        start_ignis();
    begin = now() - begin;
    getrusage(RUSAGE_SELF, &usage);
    printf("%.6f %.6f\n", begin * 1e3, (double)usage.ru_maxrss / 1024);
    return 0;
}

/*  Medians of a few processes. cold: each has an empty kernel cache, of Ignis and of the driver. */
static start measure_start(const char *kind, bool cold)
{
    enum { STARTS = 5 };
    double ms[STARTS], rss[STARTS];
    char folder[] = "/tmp/ignis_bench_XXXXXX", command[512], self[256] = "";
    start result;
    int i, first = cold || strcmp(kind, "driver") == 0 ? 0 : -1; /* the first warm one fills the cache */
    require(readlink("/proc/self/exe", self, sizeof self - 1) > 0 && mkdtemp(folder), "a folder for the kernel cache");
    for (i = first; i < STARTS; i++) {
        FILE *child;
        snprintf(command, sizeof command, "%s rm -rf %s/*; IGNIS_CACHE_DIR=%s '%s' --start %s",
                 cold ? "CUDA_CACHE_DISABLE=1; export CUDA_CACHE_DISABLE;" : ":", cold ? folder : "/nonexistent",
                 folder, self, kind);
        child = popen(command, "r");
        require(child && fscanf(child, "%lf %lf", &ms[i < 0 ? 0 : i], &rss[i < 0 ? 0 : i]) == 2, "a fresh process");
        pclose(child);
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    require(system(command) == 0, "removing the kernel cache");
    result.ms = median(ms, STARTS);
    result.rss_mb = median(rss, STARTS);
    return result;
}

/* --- the report ------------------------------------------------------------------------------------------------ */

static void head(const char *title) { printf("\n%-36s %10s %10s %7s\n", title, "Ignis", "peer", "ratio"); }

static void row(const char *what, const char *unit, double own, double peer, const char *peer_name)
{
    printf("%-36s %10.2f", what, own);
    if (peer_name)
        printf(" %10.2f %7.2f  %s, the peer is %s\n", peer, own / peer, unit, peer_name);
    else
        printf(" %10s %7s  %s\n", "", "", unit);
}

/*  Seconds of something and of its peer, for the rows. */
typedef struct pair {
    double own, peer;
} pair;

static pair race(step_fn step, step_fn peer, work *w, bool wait)
{
    pair result;
    result.own = compete(step, peer, w, wait, &result.peer);
    return result;
}

int main(int argc, char **argv)
{
    static const int64_t gpu_sizes[SIZES] = {1 * MIB, 16 * MIB, 256 * MIB, 1024 * MIB};
    static const int64_t simulator_sizes[SIZES] = {1 * KIB, 4 * KIB, 16 * KIB, 64 * KIB};
    static const char *const transfer_names[4] = {"to device, pageable", "to host, pageable", "to device, pinned",
                                                  "to host, pinned"};
    static bandwidth table[OPERATIONS][SIZES];
    const int64_t *sizes;
    ignis_device_info device;
    start driver, cold, warm;
    pair looked_up, created, used, launched, added, transferred[4];
    int op, s, i;
    work w;

    if (argc == 3 && strcmp(argv[1], "--start") == 0)
        return start_main(argv[2]);

    driver = measure_start("driver", false);
    cold = measure_start("ignis", true);
    warm = measure_start("ignis", false);

    REQUIRE(ignis_setup(NULL));
    REQUIRE(ignis_device_query(0, &device));
    REQUIRE(ignis_device_use(0));
    simulated = strstr(device.name, "Simulator") != NULL;
    sizes = simulated ? simulator_sizes : gpu_sizes;

    memset(&w, 0, sizeof w);
    w.n = 1024;
    w.to = make(IGNIS_F32, w.n);
    w.a = make(IGNIS_F32, w.n);
    w.dst = address(w.to), w.src = address(w.a), w.stream = ignis_stream_current();
    w.kernel = ignis_axpy();
    w.function = bare_axpy();
    looked_up = race(lookup, NULL, &w, false);
    created = race(create_and_free, NULL, &w, false);
    used = race(create_use_and_free, NULL, &w, false);
    launched = race(launch_ignis, launch_driver, &w, false);
    w.b = w.a;
    added = race(run_add, NULL, &w, false);
    ignis_array_free(w.to);
    ignis_array_free(w.a);
    ignis_kernel_free(w.kernel);

    w.bytes = simulated ? 64 * KIB : 64 * MIB;
    w.a = make(IGNIS_U8, w.bytes);
    w.dst = address(w.a);
    for (i = 0; i < 4; i++) {
        w.host = i < 2 ? malloc((size_t)w.bytes) : i == 2 ? ignis_array_pin(w.a) : w.host;
        require(w.host != NULL, "host memory");
        memset(w.host, 1, (size_t)w.bytes);
        transferred[i] =
            i % 2 == 0 ? race(to_device, to_device_driver, &w, true) : race(to_host, to_host_driver, &w, true);
        if (i < 2)
            free(w.host);
    }
    ignis_array_free(w.a);

    for (op = 0; op < OPERATIONS; op++)
        for (s = 0; s < SIZES; s++)
            table[op][s] = measure(op, sizes[s]);
    REQUIRE(ignis_shutdown());

    printf("\n%s, compute capability %d.%d, driver %d.%d\n", device.name, device.compute_major, device.compute_minor,
           device.driver_version / 1000, device.driver_version % 1000 / 10);
    if (simulated)
        printf("THIS IS THE SIMULATOR: the sizes are tiny, and the figures mean nothing.\n");
    head("calls");
    row("handle lookup (ignis_array_numel)", "ns", looked_up.own * 1e9, 0, NULL);
    row("array create + free, no memory", "ns", created.own * 1e9, 0, NULL);
    row("array create + free, cached memory", "ns", used.own * 1e9, 0, NULL);
    row("launch of a small kernel", "us", launched.own * 1e6, launched.peer * 1e6, "cuLaunchKernel");
    row("  more than the peer", "us", (launched.own - launched.peer) * 1e6, 0, NULL);
    row("add of small arrays, not waiting", "us", added.own * 1e6, 0, NULL);
    for (i = 0; i < 4; i++)
        row(transfer_names[i], "GB/s", (double)w.bytes / transferred[i].own / 1e9,
            (double)w.bytes / transferred[i].peer / 1e9, "cuMemcpyAsync");
    row("start with an empty kernel cache", "ms", cold.ms, driver.ms, "opening the bare driver");
    row("start with a filled kernel cache", "ms", warm.ms, driver.ms, "opening the bare driver");
    row("peak host memory of the former", "MiB", cold.rss_mb, driver.rss_mb, "opening the bare driver");
    row("peak host memory of the latter", "MiB", warm.rss_mb, driver.rss_mb, "opening the bare driver");

    printf("\n%-24s", "GB/s (ratio to a copy)");
    for (s = 0; s < SIZES; s++)
        printf(" %10lld %s", (long long)(sizes[s] / (simulated ? KIB : MIB)), simulated ? "KiB" : "MiB");
    printf("\n%-24s", "cuMemcpyDtoDAsync");
    for (s = 0; s < SIZES; s++)
        printf(" %7.1f       ", table[0][s].copy / 1e9);
    printf("\n");
    for (op = 0; op < OPERATIONS; op++) {
        printf("%-24s", operations[op].name);
        for (s = 0; s < SIZES; s++)
            printf(" %7.1f (%4.2f)", table[op][s].own / 1e9, table[op][s].own / table[op][s].copy);
        printf("\n");
    }
    return 0;
}
