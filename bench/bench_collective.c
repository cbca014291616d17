// SPDX-License-Identifier: MIT
/*  bench_collective.c - times collective operations between the GPUs of this machine, in one process with a thread for
    each

    Times are of one operation among many: in a replayed CUDA graph, or queued one by one. Bus bandwidth is that of
    nccl-tests: the bytes on each link. The results of every size are checked first. Every figure has a line for
    programs:

        row op=all_reduce ranks=4 dtype=bf16 bytes=1024 mode=graph variant=default us=4.56 bus_gbs=0.34

        cc -O2 -I. bench/bench_collective.c -o bench_collective -lm -ldl -lpthread
        ./bench_collective [ops=all_reduce,...] [dtypes=bf16,f32] [modes=graph,eager] [OPTION=VALUE ...]

    - min=1K, max=1G, factor=4: sizes.
    - ranks=all.
    - variants=default, variants=tune, or variants="name:IGNIS_COMM_TUNE;name:...".
    - job=1.

    With job=1 every thread calls ignis_comm_init, as a process would; so NCCL is used where it is faster.
*/
#define _GNU_SOURCE
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "timing.h"

#define REQUIRE(call) require((call) == 0, #call)
#define COUNT_OF(table) ((int)(sizeof(table) / sizeof((table)[0])))

/* --- variants --------------------------------------------------------------------------------------------- */

typedef enum operation {
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    BROADCAST,
    REDUCE,
    SEND_RECV,
    BARRIER,
    OPERATIONS
} operation;

static const char *const operation_names[OPERATIONS] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                                        "broadcast",  "reduce",     "send_recv",      "barrier"};
static const char *const mode_names[] = {"graph", "eager"};

/*  A variant: settings for IGNIS_COMM_TUNE, and the sizes that it suits. */
typedef struct variant {
    char name[24], tune[160];
    int64_t min, max;
} variant;

#define K *1024LL
#define M *1048576LL
#define PACKETS "ll_max=1M,ll_two_max=0,one_shot_max=0,"
#define PACKETS_TWO "ll_max=0,ll_two_max=4M,one_shot_max=0,"
#define ONE_SHOT "ll_max=0,ll_two_max=0,one_shot_max=4096M,"
#define TWO_SHOT "ll_max=0,ll_two_max=0,one_shot_max=0,"
static const variant tuning[] = {
    {"ll_16x512", PACKETS "ll_blocks=16,ll_threads=512", 0, 256 K},
    {"ll_64x128", PACKETS "ll_blocks=64,ll_threads=128", 0, 256 K},
    {"ll_64x256", PACKETS "ll_blocks=64,ll_threads=256", 0, 512 K},
    {"ll_64x512", PACKETS "ll_blocks=64,ll_threads=512", 0, 512 K},
    {"ll_128x512", PACKETS "ll_blocks=128,ll_threads=512", 64 K, 512 K},
    {"ll2_32x256", PACKETS_TWO "ll_blocks=32,ll_threads=256", 4 K, 1 M},
    {"ll2_64x256", PACKETS_TWO "ll_blocks=64,ll_threads=256", 4 K, 1 M},
    {"ll2_128x512", PACKETS_TWO "ll_blocks=128,ll_threads=512", 64 K, 1 M},
    {"one_64x480", ONE_SHOT "blocks=64,threads=480,chunk=64K", 64 K, 1024 M},
    {"one_128x480", ONE_SHOT "blocks=128,threads=480,chunk=64K", 64 K, 1024 M},
    {"one_128x480_c96", ONE_SHOT "blocks=128,threads=480,chunk=96K", 1 M, 1024 M},
    {"two_64x256", TWO_SHOT "blocks=64,threads=256,chunk=64K", 64 K, 4 M},
    {"two_64x480_c64", TWO_SHOT "blocks=64,threads=480,chunk=64K", 64 K, 1024 M},
    {"two_64x480_c128", TWO_SHOT "blocks=64,threads=480,chunk=128K", 1 M, 1024 M},
    {"two_128x256_c32", TWO_SHOT "blocks=128,threads=256,chunk=32K", 64 K, 64 M},
    {"two_128x480_c16", TWO_SHOT "blocks=128,threads=480,chunk=16K", 1 M, 64 M},
    {"two_128x480_c32", TWO_SHOT "blocks=128,threads=480,chunk=32K", 64 K, 1024 M},
    {"two_128x480_c64", TWO_SHOT "blocks=128,threads=480,chunk=64K", 1 M, 1024 M},
    {"two_132x480_c64", TWO_SHOT "blocks=132,threads=480,chunk=64K", 16 M, 1024 M},
};
#undef K
#undef M

enum { MOST_VARIANTS = 32, MOST_SIZES = 32 };

static struct {
    bool operation[OPERATIONS], dtype[IGNIS_DTYPE_COUNT], mode[2];
    int64_t min, max, factor;
    int ranks, job;
    variant variants[MOST_VARIANTS];
    int variant_count;
} wanted;

static bool simulated;

/* --- a rank, in its thread ------------------------------------------------------------------------------------------
   */

typedef struct rank {
    int rank, size;
    ignis_comm comm;
    char *in, *out; /* device memory for the largest size */
    ignis_dtype dtype;
    operation op;
    int mode;
    const variant *how;
    double us[MOST_SIZES];
} rank;

static pthread_barrier_t together;

static ignis_array wrap(void *memory, ignis_dtype dtype, int64_t numel)
{
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(numel);
    desc.dtype = dtype;
    desc.ptr = numel ? memory : NULL;
    return ignis_array_create(&desc);
}

/*  bytes: the larger of input and output. */
typedef struct arrays {
    ignis_array in, out;
} arrays;

static arrays arrays_of(const rank *r, int64_t bytes)
{
    int64_t numel = bytes / ignis__dtypes[r->dtype].size, in = numel, out = numel;
    arrays a;
    if (r->op == ALL_GATHER)
        in = numel / r->size, out = in * r->size;
    if (r->op == REDUCE_SCATTER)
        out = numel / r->size, in = out * r->size;
    if (r->op == ALL_TO_ALL)
        in = out = numel / r->size * r->size;
    a.in = wrap(r->in, r->dtype, in);
    a.out = wrap(r->out, r->dtype, out);
    return a;
}

static void step(const rank *r, const arrays *a)
{
    switch (r->op) {
    case ALL_REDUCE: REQUIRE(ignis_comm_all_reduce(r->comm, a->in, a->out, IGNIS_OP_SUM)); break;
    case ALL_GATHER: REQUIRE(ignis_comm_all_gather(r->comm, a->in, a->out)); break;
    case REDUCE_SCATTER: REQUIRE(ignis_comm_reduce_scatter(r->comm, a->in, a->out, IGNIS_OP_SUM)); break;
    case ALL_TO_ALL: REQUIRE(ignis_comm_all_to_all(r->comm, a->in, a->out)); break;
    case BROADCAST: REQUIRE(ignis_comm_broadcast(r->comm, a->in, 0)); break;
    case REDUCE: REQUIRE(ignis_comm_reduce(r->comm, a->in, a->out, IGNIS_OP_SUM, 0)); break;
    case SEND_RECV:
        REQUIRE(
            ignis_comm_send_recv(r->comm, a->in, (r->rank + 1) % r->size, a->out, (r->rank + r->size - 1) % r->size));
        break;
    default: REQUIRE(ignis_comm_barrier(r->comm));
    }
}

/*  Returns the factor from bytes / time to the bandwidth of a link. */
static double bus_factor(operation op, int n)
{
    switch (op) {
    case ALL_REDUCE: return 2.0 * (n - 1) / n;
    case ALL_GATHER:
    case REDUCE_SCATTER:
    case ALL_TO_ALL: return (double)(n - 1) / n;
    default: return 1;
    }
}

/*  Runs an operation with rank + 1 as input of each rank, and checks both ends of the output. */
static void check(rank *r, int64_t bytes)
{
    arrays a = arrays_of(r, bytes);
    const int n = r->size;
    int64_t numel = ignis_array_numel(r->op == BROADCAST ? a.in : a.out), sample = numel < 1024 ? numel : 1024, i;
    char *memory = r->op == BROADCAST ? r->in : r->out;
    const int element = ignis__dtypes[r->dtype].size;
    double got[1024];
    int end;
    REQUIRE(ignis_array_fill(a.in, r->rank + 1));
    REQUIRE(ignis_array_fill(a.out, -1));
    step(r, &a);
    REQUIRE(ignis_comm_synchronize(r->comm));
    for (end = 0; end < 2; end++) {
        int64_t first = end ? numel - sample : 0;
        ignis_array part = wrap(memory + first * element, r->dtype, sample);
        REQUIRE(ignis_array_to_host(part, got, IGNIS_F64, sample));
        for (i = 0; i < sample; i++) {
            double expected = n * (n + 1) / 2;
            if (r->op == ALL_GATHER || r->op == ALL_TO_ALL)
                expected = (double)((first + i) / (numel / n) + 1);
            if (r->op == BROADCAST)
                expected = 1;
            if (r->op == REDUCE && r->rank != 0)
                expected = -1;
            if (r->op == SEND_RECV)
                expected = (r->rank + n - 1) % n + 1;
            if (r->op != BARRIER && got[i] != expected) {
                fprintf(stderr, "bench: %s of %lld bytes on rank %d, %s: element %lld is %g, not %g\n",
                        operation_names[r->op], (long long)bytes, r->rank, r->how->name, (long long)(first + i), got[i],
                        expected);
                exit(1);
            }
        }
        ignis_array_free(part);
    }
    ignis_array_free(a.in);
    ignis_array_free(a.out);
}

static double measure(rank *r, int64_t bytes)
{
    arrays a = arrays_of(r, bytes);
    const double guess = 6e-6 + (double)bytes / 150e9, goal = simulated ? 1e-4 : 20e-3;
    int steps = (int)(goal / 4 / guess), replays = 4, round, i;
    ignis_graph graph = {0};
    double best = INFINITY;
    steps = steps < 2 ? 2 : steps > 200 ? 200 : steps;
    if (r->mode == 0) {
        REQUIRE(ignis_graph_begin());
        for (i = 0; i < steps; i++)
            step(r, &a);
        graph = ignis_graph_end();
        require(graph.id != 0, "ignis_graph_end");
    }
    for (round = 0; round < 4; round++) { /* the first is to warm up */
        double start;
        pthread_barrier_wait(&together);
        start = now();
        for (i = 0; i < replays; i++) {
            int k;
            if (r->mode == 0)
                REQUIRE(ignis_graph_launch(graph));
            for (k = 0; r->mode == 1 && k < steps; k++)
                step(r, &a);
        }
        REQUIRE(ignis_comm_synchronize(r->comm));
        pthread_barrier_wait(&together);
        start = (now() - start) / (replays * steps);
        if (round > 0 && start < best)
            best = start;
    }
    if (graph.id)
        REQUIRE(ignis_graph_free(graph));
    ignis_array_free(a.in);
    ignis_array_free(a.out);
    return best * 1e6;
}

static int sizes_count(void)
{
    int64_t bytes;
    int count = 0;
    for (bytes = wanted.min; bytes <= wanted.max && count < MOST_SIZES; bytes *= wanted.factor)
        count++;
    return count;
}

static char folder[] = "/tmp/ignis_bench_XXXXXX"; /* where ranks meet */

static ignis_comm join(int rank, int size)
{
    ignis_comm_desc desc;
    char place[64];
    memset(&desc, 0, sizeof desc);
    snprintf(place, sizeof place, "dir:%s", folder);
    desc.rank = rank;
    desc.size = size;
    desc.rendezvous = place;
    desc.device = rank ? rank : IGNIS_DEVICE_0;
    return ignis_comm_init(&desc);
}

static void *run_rank(void *context)
{
    rank *r = (rank *)context;
    int64_t bytes = wanted.min;
    int s;
    REQUIRE(ignis_device_use(r->rank));
    if (wanted.job)
        r->comm = join(r->rank, r->size);
    require(r->comm.id != 0, "ignis_comm_init");
    for (s = 0; s < sizes_count(); s++, bytes *= wanted.factor) {
        r->us[s] = NAN;
        if (bytes < r->how->min || bytes > r->how->max)
            continue;
        pthread_barrier_wait(&together);
        check(r, bytes);
        pthread_barrier_wait(&together);
        r->us[s] = measure(r, bytes);
    }
    REQUIRE(ignis_comm_destroy(r->comm));
    return NULL;
}

/* --- the report ------------------------------------------------------------------------------------------------------
   */

static void run_table(operation op, ignis_dtype dtype, int mode, char *const *memory)
{
    static rank ranks[IGNIS_COMM_MAX_RANKS];
    static double us[MOST_VARIANTS][MOST_SIZES];
    pthread_t threads[IGNIS_COMM_MAX_RANKS];
    ignis_comm comms[IGNIS_COMM_MAX_RANKS];
    int64_t bytes;
    int v, i, s;
    for (v = 0; v < wanted.variant_count; v++) {
        const variant *how = &wanted.variants[v];
        setenv("IGNIS_COMM_TUNE", how->tune, 1);
        memset(comms, 0, sizeof comms);
        if (!wanted.job)
            REQUIRE(ignis_comm_init_all(comms, NULL, wanted.ranks, NULL));
        for (i = 0; i < wanted.ranks; i++) {
            rank *r = &ranks[i];
            r->rank = i;
            r->size = wanted.ranks;
            r->comm = comms[i];
            r->in = memory[2 * i];
            r->out = memory[2 * i + 1];
            r->dtype = dtype;
            r->op = op;
            r->mode = mode;
            r->how = how;
            require(pthread_create(&threads[i], NULL, run_rank, r) == 0, "pthread_create");
        }
        for (i = 0; i < wanted.ranks; i++)
            pthread_join(threads[i], NULL);
        memcpy(us[v], ranks[0].us, sizeof us[v]);
        for (s = 0, bytes = wanted.min; s < sizes_count(); s++, bytes *= wanted.factor)
            if (!isnan(us[v][s]))
                printf("row op=%s ranks=%d dtype=%s bytes=%lld mode=%s variant=%s us=%.2f bus_gbs=%.2f\n",
                       operation_names[op], wanted.ranks, ignis__dtypes[dtype].name, (long long)bytes, mode_names[mode],
                       how->name, us[v][s], (double)bytes * bus_factor(op, wanted.ranks) / us[v][s] * 1e-3);
        fflush(stdout);
    }
    printf("\n%s, %s, %d ranks, %s, us\n%12s", operation_names[op], ignis__dtypes[dtype].name, wanted.ranks,
           mode_names[mode], "bytes");
    for (v = 0; v < wanted.variant_count; v++)
        printf(" %14s", wanted.variants[v].name);
    printf("%14s\n", "best, GB/s");
    for (s = 0, bytes = wanted.min; s < sizes_count(); s++, bytes *= wanted.factor) {
        double best = INFINITY;
        printf("%12lld", (long long)bytes);
        for (v = 0; v < wanted.variant_count; v++) {
            if (isnan(us[v][s]))
                printf(" %14s", "");
            else
                printf(" %14.2f", us[v][s]);
            if (us[v][s] < best)
                best = us[v][s];
        }
        printf("%14.1f\n", (double)bytes * bus_factor(op, wanted.ranks) / best * 1e-3);
    }
    printf("\n");
    fflush(stdout);
}

/* --- arguments -------------------------------------------------------------------------------------------------------
   */

static bool listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    if (strcmp(list, "all") == 0)
        return true;
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == length && strncmp(list, name, length) == 0)
            return true;
    return false;
}

static int64_t size_of(const char *text)
{
    char *end;
    int64_t value = strtoll(text, &end, 10);
    return *end == 'K' ? value << 10 : *end == 'M' ? value << 20 : *end == 'G' ? value << 30 : value;
}

static void variants_of(const char *text)
{
    variant *at = wanted.variants;
    int i;
    wanted.variant_count = 0;
    if (strcmp(text, "tune") == 0) {
        for (i = 0; i < COUNT_OF(tuning); i++)
            wanted.variants[wanted.variant_count++] = tuning[i];
        return;
    }
    for (; *text && wanted.variant_count < MOST_VARIANTS; at++) {
        size_t whole = strcspn(text, ";"), name = strcspn(text, ":;");
        memset(at, 0, sizeof *at);
        snprintf(at->name, sizeof at->name, "%.*s", (int)name, text);
        if (name < whole)
            snprintf(at->tune, sizeof at->tune, "%.*s", (int)(whole - name - 1), text + name + 1);
        at->max = INT64_MAX;
        wanted.variant_count++;
        text += whole;
        text += *text == ';';
    }
}

int main(int argc, char **argv)
{
    const char *ops = "all_reduce", *dtypes = "bf16", *modes = "graph,eager", *variants = "default";
    ignis_device_info device;
    char *memory[2 * IGNIS_COMM_MAX_RANKS];
    ignis_array arrays_made[2 * IGNIS_COMM_MAX_RANKS];
    int i, op, dtype, mode;
    REQUIRE(ignis_setup(NULL));
    REQUIRE(ignis_device_query(0, &device));
    simulated = strstr(device.name, "Simulator") != NULL;
    wanted.min = 1 << 10;
    wanted.max = simulated ? 16 << 10 : 1 << 30;
    wanted.factor = 4;
    wanted.ranks = ignis_device_count() < IGNIS_COMM_MAX_RANKS ? ignis_device_count() : IGNIS_COMM_MAX_RANKS;
    for (i = 1; i < argc; i++) {
        const char *value = strchr(argv[i], '=') ? strchr(argv[i], '=') + 1 : "";
        if (strncmp(argv[i], "ops=", 4) == 0)
            ops = value;
        else if (strncmp(argv[i], "dtypes=", 7) == 0)
            dtypes = value;
        else if (strncmp(argv[i], "modes=", 6) == 0)
            modes = value;
        else if (strncmp(argv[i], "variants=", 9) == 0)
            variants = value;
        else if (strncmp(argv[i], "min=", 4) == 0)
            wanted.min = size_of(value);
        else if (strncmp(argv[i], "max=", 4) == 0)
            wanted.max = size_of(value);
        else if (strncmp(argv[i], "ranks=", 6) == 0)
            wanted.ranks = atoi(value);
        else if (strncmp(argv[i], "factor=", 7) == 0)
            wanted.factor = size_of(value);
        else if (strncmp(argv[i], "job=", 4) == 0)
            wanted.job = atoi(value);
        else
            require(false, argv[i]);
    }
    variants_of(variants);
    if (wanted.ranks < 2) {
        printf("skipped: there is one GPU\n");
        return ignis_shutdown() != IGNIS_OK;
    }
    require(!wanted.job || mkdtemp(folder), "mkdtemp");
    printf("%d x %s\n", wanted.ranks, device.name);
    for (i = 0; i < 2 * wanted.ranks; i++) {
        ignis_array_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.shape = IGNIS_SHAPE(wanted.max);
        desc.dtype = IGNIS_U8;
        REQUIRE(ignis_device_use(i / 2));
        arrays_made[i] = ignis_array_create(&desc);
        memory[i] = (char *)ignis_array_device_ptr(arrays_made[i]);
        require(memory[i] != NULL, "device memory");
    }
    pthread_barrier_init(&together, NULL, (unsigned)wanted.ranks);
    for (op = 0; op < OPERATIONS; op++)
        for (dtype = IGNIS_F16; dtype < IGNIS_DTYPE_COUNT; dtype++)
            for (mode = 0; mode < 2; mode++)
                if (listed(ops, operation_names[op]) && listed(dtypes, ignis__dtypes[dtype].name) &&
                    listed(modes, mode_names[mode]))
                    run_table((operation)op, (ignis_dtype)dtype, mode, memory);
    for (i = 0; i < 2 * wanted.ranks; i++)
        REQUIRE(ignis_array_free(arrays_made[i]));
    REQUIRE(ignis_shutdown());
    if (wanted.job)
        rmdir(folder);
    return 0;
}
