// SPDX-License-Identifier: MIT
/*  test_hopper.c - checks of sm_90a in the simulator: mbarriers, bulk copies, products of warpgroups; see
    executor/hopper.cpp

        test_hopper         all checks, in every order of threads, late and early, and without the faults under each
                            sanitizer
        test_hopper all     all checks, once

    One kernel uses everything, and an argument selects a fault in it. Each fault has to end in an error that names it,
    or in wrong numbers, and never in a hang.
*/
#include "test_build.h"

enum { SIDE = 64, TILE = SIDE * 128, STEPS = 5, SHARED = 49152 + 64 };
enum { LATE = 1, EARLY = 2, ALWAYS = 3 }; /* when a fault must be caught */

/* A fault of the kernel `product`, and the text of its error; NULL for both: any error, or wrong numbers. */
#define FAULTS(X)                                                                                                     \
    X(NONE, 0, NULL, NULL)                                                                                            \
    X(TOO_MANY_BYTES, ALWAYS, "wait at the mbarrier at shared memory + 49152 for parity 0",                           \
      "lacks 0 of 1 arrivals and 16 bytes")                                                                           \
    X(TOO_FEW_BYTES, ALWAYS, NULL, NULL)                                                                              \
    X(TOO_MANY_ARRIVALS, ALWAYS, "wait at the mbarrier at shared memory + 49168 for parity 0",                        \
      "lacks 1 of 5 arrivals")                                                                                        \
    X(TOO_FEW_ARRIVALS, ALWAYS, NULL, NULL)                                                                           \
    X(PARITY_OF_LOADS, ALWAYS, "deadlock", "wait at the mbarrier at shared memory + 49168 for parity 0")              \
    X(PARITY_OF_PRODUCTS, ALWAYS, NULL, NULL)                                                                         \
    X(NOT_INITIALISED, ALWAYS, "this mbarrier is not initialised", "shared memory + 491")                             \
    X(NO_MBARRIER_FENCE, ALWAYS,                                                                                      \
      "shared memory + 49152: a bulk load reads what thread (0,0,0) wrote without a fence.proxy.async", "")           \
    X(NO_FENCE, ALWAYS, "a bulk store reads what thread (", "wrote without a fence.proxy.async")                      \
    X(NO_PLAIN_FENCE, ALWAYS,                                                                                         \
      "shared memory + 32768: a bulk store reads what thread (5,0,0) wrote without a fence.proxy.async", "")          \
    X(NO_OPERAND_FENCE, ALWAYS, "wgmma reads what thread (", "wrote without a fence.proxy.async")                     \
    X(NO_PRODUCT_WAIT, ALWAYS, NULL, NULL)                                                                            \
    X(NO_LAST_WAIT, ALWAYS, "exits while a wgmma of its warp is under way", "")                                       \
    X(EARLY_RELEASE, ALWAYS, "a bulk load over an operand of a wgmma that nobody has waited for", "shared memory + ") \
    X(NO_BARRIER, ALWAYS, NULL, NULL)                                                                                 \
    X(WRONG_STRIDE, ALWAYS, NULL, NULL)                                                                               \
    X(WRONG_START, ALWAYS, "does not start at a group of 8 rows", "a descriptor of wgmma")                            \
    X(BEYOND, ALWAYS, "a descriptor of wgmma leads to shared memory + ", "the block has 49216 bytes")                 \
    X(NO_SWIZZLE, ALWAYS, "a descriptor of wgmma", "the swizzle of 128 bytes")                                        \
    X(DIFFERENT_WARPS, ALWAYS, "the warps of a warpgroup issue different wgmma", "")                                  \
    X(REGISTERS, ALWAYS, "wait in setmaxnreg.inc", "of the block's 63488 are taken")                                  \
    X(MISALIGNED_TILE, ALWAYS, "not aligned to 1024 bytes", "")                                                       \
    X(TILE_BEYOND, ALWAYS, "a bulk copy of 8192 bytes at shared memory + ", "the block has 49216 bytes")              \
    X(NO_MAP, ALWAYS, "no tensor map", "")                                                                            \
    X(WRONG_RANK, ALWAYS, "another number of dimensions", "")                                                         \
    X(STORE_AHEAD, ALWAYS, "a tile that is stored, or added, begins ahead of its tensor", "")                         \
    X(NO_STORE_WAIT, ALWAYS, "exits before its bulk store from here has read it", "shared memory + 32768")            \
    X(REUSED_SOURCE, ALWAYS,                                                                                          \
      "shared memory + 32768: a write over the source of a bulk store that nobody has waited for", "")                \
    X(MISALIGNED_PREFETCH, ALWAYS, "misaligned address, or number of bytes, in cp.async.bulk.prefetch", "")           \
    X(UNUSED_LOAD, LATE, "the block ends while a bulk load to here is under way", "shared memory + 40960")            \
    X(NAMED_BARRIER, ALWAYS, "128 threads wait at barrier 1, which wants 160", "deadlock")                            \
    X(POLLS_IN_VAIN, ALWAYS, "no progress, some threads poll memory in vain",                                         \
      "wait at the mbarrier at shared memory + 49168")

#define X(name, when, first, second) name,
enum { FAULTS(X) FAULT_COUNT };
#undef X

static const struct {
    const char *name;
    int when;
    const char *says[2];
} faults[] = {
#define X(name, when, first, second) {#name, when, {first, second}},
    FAULTS(X)
#undef X
};

/* Compiles the kernels for a type of elements, after the names of the faults. */
static build build_kernels(const char *type)
{
#define X(name, when, first, second) #name ", "
    char text[65536] = "enum { " FAULTS(X) "};\n#line 1 \"test_hopper.cu\"\n";
#undef X
    const char *const options[] = {"-arch=sm_90a", "-default-device", type, "-I../kernels", "-I../src"};
    size_t used = strlen(text);
    FILE *file = fopen("test_hopper.cu", "r");
    if (!file)
        printf("no test_hopper.cu here\n"), exit(2);
    used += fread(text + used, 1, sizeof text - used - 1, file);
    text[used] = 0;
    fclose(file);
    source s = {"test_hopper.cu", text, NULL, NULL, NULL};
    build b = compile_with(&s, (int)(sizeof options / sizeof *options), options);
    printf("%s", b.log);
    CHECK(b.result == 0);
    return b;
}

/* Makes a map as cuTensorMapEncodeTiled does, which belongs to the driver. */
static sim_tensor_map map_of(void *base, int type, int element, int rank, const unsigned *dims, const unsigned *box)
{
    sim_tensor_map m = {.magic = SIM_TENSOR_MAGIC,
                        .base = (uint64_t)(uintptr_t)base,
                        .rank = (uint8_t)rank,
                        .element = (uint8_t)element,
                        .swizzle = 3,
                        .type = (uint8_t)type};
    m.strides[0] = (uint64_t)element;
    for (int i = 0; i < rank; i++) {
        m.dims[i] = dims[i];
        m.box[i] = (uint16_t)box[i];
        if (i)
            m.strides[i] = m.strides[i - 1] * dims[i - 1];
    }
    return m;
}

static float from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* Returns an integer from -2 to 2: sums of these are exact. */
static uint16_t small_number(unsigned *seed)
{
    static const uint16_t numbers[] = {0xC000, 0xBF80, 0, 0x3F80, 0x4000};
    *seed = *seed * 1664525 + 1013904223;
    return numbers[(*seed >> 16) % 5];
}

typedef struct array {
    uint16_t x[SIDE * SIDE * STEPS];
} array;

static array *new_array(unsigned seed)
{
    array *a = aligned_alloc(1024, (sizeof *a + 1023) / 1024 * 1024);
    for (int i = 0; i < SIDE * SIDE * STEPS; i++)
        a->x[i] = small_number(&seed);
    return a;
}

static void test_faults(build *b)
{
    static uint32_t never[4] __attribute__((aligned(16)));
    const uint32_t *word = never;
    const unsigned long_side[] = {SIDE * STEPS, SIDE}, side[] = {SIDE, SIDE};
    array *x = new_array(1), *y = new_array(2), *z = new_array(3);
    const char *when = getenv("IGNIS_SIM_ASYNC");
    int mode = when && strcmp(when, "early") == 0 ? EARLY : LATE, steps = STEPS;
    _Alignas(64) sim_tensor_map mx = map_of(x, 9, 2, 2, long_side, side);
    _Alignas(64) sim_tensor_map my = map_of(y, 9, 2, 2, long_side, side);
    _Alignas(64) sim_tensor_map mz = map_of(z, 9, 2, 2, side, side);
    for (int fault = 0; fault < (in_lane("thread") || in_lane("address") ? NONE + 1 : FAULT_COUNT); fault++) {
        int wrong = 0;
        memset(z, 0xFF, sizeof *z);
        double start = seconds();
        int code = run(b, "product", 1, 256, SHARED, (void *[]){&mx, &my, &mz, &steps, &fault, &word});
        snprintf(where, sizeof where, "%s: ", faults[fault].name);
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                float sum = 0;
                for (int k = 0; k < SIDE * STEPS; k++)
                    sum += from_bf16(x->x[i * SIDE * STEPS + k]) * from_bf16(y->x[j * SIDE * STEPS + k]);
                wrong += from_bf16(z->x[i * SIDE + j]) != sum;
            }
        if (getenv("SHOW"))
            printf("%-20s %d, %d wrong: %s\n", faults[fault].name, code, wrong, failure);
        CHECK(seconds() - start < 30);
        if (fault == NONE)
            CHECK(code == 0 && wrong == 0);
        else if (faults[fault].when & mode)
            CHECK(code || wrong);
        for (int i = 0; i < 2 && (faults[fault].when & mode) && faults[fault].says[i]; i++)
            CHECK_HAS(failure, faults[fault].says[i]);
        if (code)
            CHECK_HAS(failure, "kernel product, block (0,0,0)");
    }
    free(x);
    free(y);
    free(z);
}

static void test_products(build *b)
{
    array *x = new_array(4), *y = new_array(5);
    float *out = malloc(6 * SIDE * SIDE * sizeof *out);
    CHECK(run(b, "products", 1, 128, 2 * TILE, (void *[]){&x, &y, &out}) == 0);
    for (int way = 0; way < 6; way++) {
        int ta = way / 2 == 1, tb = way % 2, wrong = 0;
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                float sum = 0;
                for (int k = 0; k < 16; k++)
                    sum += from_bf16(x->x[ta ? k * SIDE + i : i * SIDE + k]) *
                           from_bf16(y->x[tb ? k * SIDE + j : j * SIDE + k]);
                wrong += out[way * SIDE * SIDE + i * SIDE + j] != sum;
            }
        snprintf(where, sizeof where, "product %d: ", way);
        CHECK(wrong == 0);
    }
    free(x);
    free(y);
    free(out);
}

/* Checks products of floats with bits that tf32 drops. */
static void test_tf32_products(void)
{
    build b = build_kernels("-DIGNIS_T=3");
    float *x = malloc(64 * 32 * sizeof *x), *y = malloc(64 * 32 * sizeof *y),
          *out = malloc(2 * SIDE * SIDE * sizeof *out);
    int wrong = 0;
    for (int i = 0; i < 64 * 32; i++)
        x[i] = ((float)(i * 7 % 5 + 1) + 0x1p-13f) * (i % 3 ? 1 : -1), y[i] = (float)(i * 5 % 13 - 6);
    CHECK(run(&b, "tf32_products", 1, 128, 2 * TILE, (void *[]){&x, &y, &out}) == 0);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            float sum = 0;
            for (int k = 8; k < 16; k++)
                sum += (float)(int)x[i * 32 + k] * y[j * 32 + k];
            wrong += (out[i * SIDE + j] != sum) + (out[SIDE * SIDE + i * SIDE + j] != sum);
        }
    CHECK(wrong == 0);
    free(x), free(y), free(out);
    discard(&b);
}

static void test_copies(build *b)
{
    enum { WIDE = 48, HIGH = 20 };
    const unsigned dims[] = {WIDE, HIGH, 2}, box[] = {32, 64, 1};
    float *tensor = aligned_alloc(64, WIDE * HIGH * 2 * 4), *from = aligned_alloc(64, 4096),
          *to = aligned_alloc(64, 4096);
    float *sum = aligned_alloc(64, 4096), *tile = aligned_alloc(64, TILE);
    _Alignas(64) sim_tensor_map m = map_of(tensor, 7, 4, 3, dims, box);
    int wrong = 0;
    for (int i = 0; i < WIDE * HIGH * 2; i++)
        tensor[i] = (float)(i + 1);
    for (int i = 0; i < 1024; i++)
        from[i] = (float)i, to[i] = 0, sum[i] = 1;
    CHECK(run(b, "plain", 1, 32, 128, (void *[]){&to}) == 0 && to[0] == 1 && to[31] == 30);
    for (int i = 0; i < 32; i++)
        to[i] = 0;
    CHECK(run(b, "copies", 1, 64, 3 * TILE + 8, (void *[]){&m, &from, &to, &sum, &tile}) == 0);
    for (int i = 0; i < 1024; i++)
        wrong += to[i] != (float)i || sum[i] != (float)(i + 1);
    CHECK(wrong == 0);
    for (int row = 0; row < 64; row++)
        for (int column = 0; column < 32; column++) {
            int r = row - 8, c = column - 16, place = row * 32 + ((column / 4) ^ row % 8) * 4 + column % 4;
            float expected = r >= 0 && r < HIGH && c >= 0 ? (float)((HIGH + r) * WIDE + c + 1) : 0;
            wrong += tile[place] != expected;
        }
    for (int i = 0; i < WIDE * HIGH; i++) {
        int r = i / WIDE - 8 - 8, c = i % WIDE - 24 - 16, added = r >= 0 && c >= 0 ? (HIGH + r) * WIDE + c + 1 : 0;
        wrong += tensor[i] != (float)(i + 1) || tensor[WIDE * HIGH + i] != (float)(WIDE * HIGH + i + 1 + added);
    }
    CHECK(wrong == 0);
    free(tensor), free(from), free(to), free(sum), free(tile);
}

/* Loads patches of 2 images of 7 x 9 pixels. Their corners are in a box of every second pixel of every third
   row. The patches are stored one after the other. */
static void test_pixels(build *b)
{
    enum { WIDE = 9, HIGH = 7, IMAGES = 2, CHANNELS = 64, COLUMNS = 5, ROWS = 3, RIGHT = 2, DOWN = 1, SKIPPED = 2 };
    const unsigned dims[] = {CHANNELS, WIDE, HIGH, IMAGES}, out_dims[] = {CHANNELS, 64, 1, 1}, box[] = {64, 64, 1, 1};
    int x = -2 + 2 * SKIPPED, y = -1, image = 0, right = RIGHT, down = DOWN, wrong = 0, pixel = SKIPPED;
    uint16_t *in = aligned_alloc(64, WIDE * HIGH * IMAGES * CHANNELS * 2), *out = aligned_alloc(64, TILE);
    _Alignas(64) sim_tensor_map from = map_of(in, 9, 2, 4, dims, box), to = map_of(out, 9, 2, 4, out_dims, box);
    from.im2col = to.im2col = 1;
    from.lower[0] = -2, from.lower[1] = -1, from.upper[0] = -2, from.upper[1] = 0;
    from.steps[0] = 2, from.steps[1] = 3;
    to.steps[0] = to.steps[1] = 1;
    for (int i = 0; i < WIDE * HIGH * IMAGES * CHANNELS; i++)
        in[i] = (uint16_t)(i % 65521 + 1);
    CHECK(run(b, "pixels", 1, 32, TILE + 8, (void *[]){&from, &to, &x, &y, &image, &right, &down}) == 0);
    for (int i = 0; i < 64; i++, pixel++) {
        int column = -2 + 2 * (pixel % COLUMNS) + RIGHT, row = -1 + 3 * (pixel / COLUMNS % ROWS) + DOWN,
            n = pixel / COLUMNS / ROWS;
        for (int c = 0; c < CHANNELS; c++) {
            int is_there = column >= 0 && column < WIDE && row >= 0 && row < HIGH && n < IMAGES;
            wrong += out[i * CHANNELS + c] !=
                     (is_there ? (((n * HIGH + row) * WIDE + column) * CHANNELS + c) % 65521 + 1 : 0);
        }
    }
    CHECK(wrong == 0);
    from.im2col = 0;
    CHECK(run(b, "pixels", 1, 32, TILE + 8, (void *[]){&from, &to, &x, &y, &image, &right, &down}) != 0);
    CHECK_HAS(failure, "a copy in im2col mode wants a tensor map of cuTensorMapEncodeIm2col");
    free(in), free(out);
}

/* Multicasts rows of 64 numbers of two matrices: each block gets those of all blocks of its cluster. */
static void test_multicasts(build *b, float *out, int cluster, int blocks)
{
    const unsigned dims[] = {64, (unsigned)blocks, 2}, box[] = {64, 1, 1};
    static const char *const says[] = {"shared memory of block 4 of a cluster: there are 4 blocks",
                                       "the simulator takes addresses of mapa"};
    float *rows = aligned_alloc(64, (size_t)blocks * 64 * 2 * sizeof *rows);
    _Alignas(64) sim_tensor_map m = map_of(rows, 7, 4, 3, dims, box);
    int fault = 0, wrong = 0, bytes = cluster * 256 + 16;
    m.swizzle = 0;
    for (int i = 0; i < blocks * 64 * 2; i++)
        rows[i] = (float)(i % 8191);
    CHECK(run(b, "multicasts", (unsigned)blocks, 64, (unsigned)bytes, (void *[]){&m, &out, &fault}) == 0);
    for (int i = 0; i < blocks * 64; i++) {
        float sum = 0;
        for (int k = 0; k < 2 * cluster; k++)
            sum += rows[k / cluster * blocks * 64 + (i / 64 / cluster * cluster + k % cluster) * 64 + i % 64];
        wrong += out[i] != sum;
    }
    CHECK(wrong == 0);
    for (fault = 1; fault <= 2; fault++) {
        CHECK(run(b, "multicasts", (unsigned)cluster, 64, (unsigned)bytes, (void *[]){&m, &out, &fault}) != 0);
        CHECK_HAS(failure, says[fault - 1]);
    }
    free(rows);
}

/* Runs more clusters than fit at the same time, then the faults. */
static void test_clusters(build *b)
{
    enum { CLUSTER = 4, BLOCKS = 60 * CLUSTER, BYTES = CLUSTER * 64 * 8 };
    static const struct {
        const char *kernel, *says;
        int blocks;
    } faulty[] = {{"clusters", "arrives twice at the barrier of its cluster", CLUSTER},
                  {"clusters", "waits at the barrier of its cluster, and has not arrived", CLUSTER},
                  {"clusters", "shared memory of block 4 of a cluster: there are 4 blocks, with 2048 bytes", CLUSTER},
                  {"clusters", "of a cluster: there are 4 blocks, with 2048 bytes", CLUSTER},
                  {"clusters", "5 blocks along x, in clusters of 4", CLUSTER + 1},
                  {"no_clusters", "an instruction for clusters, in a kernel without __cluster_dims__", 1}};
    static const char *const kernels[] = {"clusters", "async_stores", "bulk_sends"};
    static const char *const astray[][2] = {
        {"lacks 0 of 1 arrivals and 8 bytes", "st.async: the simulator takes addresses of mapa, both of one block"},
        {"wrote without a fence.proxy.async behind it", "the simulator takes addresses of mapa, both of one block"}};
    float *out = calloc(BLOCKS * 64, sizeof *out);
    int fault = 0, wrong = 0;
    if (in_lane("thread") || in_lane("address")) {
        CHECK(run(b, "clusters", BLOCKS, 64, BYTES, (void *[]){&out, &fault}) != 0);
        CHECK_HAS(failure, "under a sanitizer the simulator has no clusters");
        free(out);
        return;
    }
    for (int k = 0; k < 3; k++) {
        memset(out, 0, BLOCKS * 64 * sizeof *out);
        CHECK(run(b, kernels[k], BLOCKS, 64, BYTES + 16 + 64 * 8, (void *[]){&out, &fault}) == 0);
        for (int i = 0; i < BLOCKS * 64; i++) {
            int first = i / 64 / CLUSTER * CLUSTER * 64 + i % 64;
            wrong += out[i] != (float)(CLUSTER * first + 64 * CLUSTER * (CLUSTER - 1) / 2);
        }
        CHECK(wrong == 0);
    }
    for (int k = 1; k < 3; k++)
        for (fault = 1; fault <= 2; fault++) {
            CHECK(run(b, kernels[k], CLUSTER, 64, BYTES + 16 + 64 * 8, (void *[]){&out, &fault}) != 0);
            CHECK_HAS(failure, astray[k - 1][fault - 1]);
        }
    test_multicasts(b, out, CLUSTER, BLOCKS);
    for (fault = 1; fault <= (int)(sizeof faulty / sizeof *faulty); fault++) {
        CHECK(run(b, faulty[fault - 1].kernel, (unsigned)faulty[fault - 1].blocks, 64, BYTES,
                  (void *[]){&out, &fault}) != 0);
        CHECK_HAS(failure, faulty[fault - 1].says);
    }
    free(out);
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count > 1 && strcmp(arguments[1], "all") == 0) {
        build b = build_kernels("-DIGNIS_T=2");
        test_products(&b);
        test_tf32_products();
        test_copies(&b);
        test_pixels(&b);
        test_clusters(&b);
        test_faults(&b);
        discard(&b);
    } else {
        run_lane("test_hopper", arguments[0], NULL, "IGNIS_SIM_PATIENCE=1");
        run_lane("test_hopper", arguments[0], NULL, "IGNIS_SIM_PATIENCE=1 IGNIS_SIM_ASYNC=early");
        run_lane("test_hopper", arguments[0], NULL, "IGNIS_SIM_PATIENCE=1 IGNIS_SIM_ORDER=reverse");
        run_lane("test_hopper", arguments[0], NULL,
                 "IGNIS_SIM_PATIENCE=1 IGNIS_SIM_ORDER=random:7 IGNIS_SIM_ASYNC=early");
        run_lane("test_hopper", arguments[0], "address", "");
        run_lane("test_hopper", arguments[0], "thread", "");
    }
    report_as("test_hopper");
    return failed != 0;
}
