// SPDX-License-Identifier: MIT
/*  test_comm_ops.c - collective operations between devices of one process

    Most inputs are small whole numbers, so that results are exact whatever the order; others are arbitrary bits, and compared as bits. */
#include "fault.h"

#include "test.h"

#include "processes.h"

#include "../ignis_collective.h"

#include <unistd.h>

/* --- ranks ----------------------------------------------------------------------------------------------------------- */

enum { RANKS = 4 };

/*  Ways to do an operation, as IGNIS_COMM_TUNE. Few threads and small chunks make many steps of small arrays. */
#define SMALL "ll_blocks=3,ll_threads=64,blocks=3,threads=64,chunk=3K,lanes=2"
static const char *const ways[] = {SMALL ",ll_max=1M,ll_two_max=0,one_shot_max=0", SMALL ",ll_max=0,ll_two_max=1M,one_shot_max=0",
                                   SMALL ",ll_max=0,ll_two_max=0,one_shot_max=1024M", SMALL ",ll_max=0,ll_two_max=0,one_shot_max=0"};
enum { WAYS = 4 };

static ignis_comm comms[RANKS];
static int size; /* of the communicator under test */

static bool begin_for(int ranks, const char *tune, double timeout_s)
{
    ignis_comm_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.timeout_s = timeout_s;
    size = ranks;
    setenv("IGNIS_COMM_TUNE", tune, 1);
    CHECK_OK(ignis_comm_init_all(comms, NULL, ranks, &desc));
    unsetenv("IGNIS_COMM_TUNE");
    return comms[0].id != 0;
}
static bool begin(int ranks, const char *tune) { return begin_for(ranks, tune, 30); }

static void end(void)
{
    int r;
    for (r = 0; r < size; r++)
        CHECK_OK(ignis_comm_destroy(comms[r]));
}

/*  Contexts of GPUs take a second each to make: one that somebody has kept is there at the next setup. */
static void keep_contexts(void)
{
    static int kept;
    void *context;
    int device = 0;
    for (; kept < RANKS && kept < ignis_device_count(); kept++) {
        CHECK_INT(ignis__cuda.cuDeviceGet(&device, kept), 0);
        CHECK_INT(ignis__cuda.cuDevicePrimaryCtxRetain(&context, device), 0);
    }
}

#define RANKS_SETUP(ranks) \
    SETUP(NULL);           \
    keep_contexts();       \
    NEEDS_DEVICES(ranks)

static ignis_array make_on(int rank, ignis_dtype dtype, int64_t numel)
{
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(numel);
    desc.dtype = dtype;
    desc.device = rank ? rank : IGNIS_DEVICE_0;
    return ignis_array_create(&desc);
}

/*  An array for each rank; `offset` elements off the alignment of the memory that it is a view of. */
typedef struct arrays {
    ignis_array whole[RANKS], at[RANKS];
} arrays;

static arrays make_all(ignis_dtype dtype, int64_t numel, int offset)
{
    arrays a;
    int r;
    for (r = 0; r < size; r++) {
        a.whole[r] = make_on(r, dtype, numel + offset);
        CHECK_OK(ignis_array_zero(a.whole[r]));
        a.at[r] = ignis_array_slice(a.whole[r], 0, offset, numel);
    }
    return a;
}

static void free_all(const arrays *a)
{
    int r;
    for (r = 0; r < size; r++) {
        CHECK_OK(ignis_array_free(a->at[r]));
        CHECK_OK(ignis_array_free(a->whole[r]));
    }
}

/*  Waits for all ranks. */
static void settle(void)
{
    int r;
    for (r = 0; r < size; r++) {
        CHECK_OK(ignis_device_use(r));
        CHECK_OK(ignis_comm_synchronize(comms[r]));
    }
}

/* --- numbers --------------------------------------------------------------------------------------------------------- */

/*  Element i of rank r. */
static double number(ignis_op op, ignis_dtype dtype, int r, int64_t i)
{
    if (op == IGNIS_OP_PROD)
        return (double)((i * 5 + r * 3) % 2 + 1) * (dtype != IGNIS_U8 && (i + r) % 3 == 0 ? -1 : 1);
    if (dtype == IGNIS_F8_E4M3 || dtype == IGNIS_F8_E5M2)
        return (double)((i * 7 + r * 13) % 9 - 4); /* what both have */
    return dtype == IGNIS_U8 ? (double)((i * 7 + r * 5) % 11) : (double)((i * 7 + r * 13) % 23 - 11);
}

/*  What the operation makes of element i of all ranks; an average is rounded as a kernel rounds it. */
static double combined(ignis_op op, ignis_dtype dtype, int64_t i)
{
    double result = number(op, dtype, 0, i);
    int r;
    for (r = 1; r < size; r++) {
        double x = number(op, dtype, r, i);
        switch (op) {
        case IGNIS_OP_PROD: result *= x; break;
        case IGNIS_OP_MIN: result = x < result ? x : result; break;
        case IGNIS_OP_MAX: result = x > result ? x : result; break;
        default: result += x;
        }
    }
    if (op == IGNIS_OP_AVG)
        result = dtype == IGNIS_F64 ? result * (1.0 / size) : (double)((float)result * (1.0f / (float)size));
    return result;
}

static void fill(ignis_array array, ignis_op op, ignis_dtype dtype, int r, int64_t count)
{
    double *data = (double *)malloc(sizeof(double) * (size_t)(count + 1));
    int64_t i;
    for (i = 0; i < count; i++)
        data[i] = number(op, dtype, r, i);
    CHECK_OK(ignis_array_from_host(array, data, IGNIS_F64, count));
    free(data);
}

/*  Elements that an array has to hold, in its own type. */
typedef double (*expected_fn)(ignis_op op, ignis_dtype dtype, int rank, int64_t i);
static int64_t part_of; /* elements of a part, for the functions below */
static int root_is;

static double expect_combined(ignis_op op, ignis_dtype dtype, int rank, int64_t i) { return (void)rank, combined(op, dtype, i); }
static double expect_part(ignis_op op, ignis_dtype dtype, int rank, int64_t i) { return combined(op, dtype, rank * part_of + i); }
static double expect_gathered(ignis_op op, ignis_dtype dtype, int rank, int64_t i)
{
    return (void)rank, number(op, dtype, (int)(i / part_of), i % part_of);
}
static double expect_exchanged(ignis_op op, ignis_dtype dtype, int rank, int64_t i)
{
    return number(op, dtype, (int)(i / part_of), rank * part_of + i % part_of);
}
static double expect_root(ignis_op op, ignis_dtype dtype, int rank, int64_t i) { return (void)rank, number(op, dtype, root_is, i); }
static double expect_reduced(ignis_op op, ignis_dtype dtype, int rank, int64_t i) { return rank == root_is ? combined(op, dtype, i) : 0; }
static double expect_previous(ignis_op op, ignis_dtype dtype, int rank, int64_t i)
{
    return number(op, dtype, (rank + size - 1) % size, i);
}

static bool holds(const arrays *out, ignis_op op, ignis_dtype dtype, int64_t count, expected_fn expected, const char *what)
{
    double *wanted = (double *)malloc(sizeof(double) * (size_t)(count + 1)), *got = (double *)malloc(sizeof(double) * (size_t)(count + 1));
    bool fine = true;
    char text[256];
    int64_t i;
    int r;
    for (r = 0; r < size && fine; r++) {
        ignis_array rounded = make_on(r, dtype, count);
        CHECK_OK(ignis_device_use(r));
        for (i = 0; i < count; i++)
            wanted[i] = expected(op, dtype, r, i);
        CHECK_OK(ignis_array_from_host(rounded, wanted, IGNIS_F64, count));
        CHECK_OK(ignis_array_to_host(rounded, wanted, IGNIS_F64, count));
        CHECK_OK(ignis_array_to_host(out->at[r], got, IGNIS_F64, count));
        for (i = 0; i < count && fine; i++)
            if (got[i] != wanted[i]) {
                snprintf(text, sizeof text, "%s, op %d of %s on rank %d of %d, %lld elements: element %lld is %g, expected %g", what,
                         (int)op, ignis__dtypes[dtype].name, r, size, (long long)count, (long long)i, got[i], wanted[i]);
                test__fail(__FILE__, __LINE__, text);
                fine = false;
            }
        CHECK_OK(ignis_array_free(rounded));
    }
    free(wanted);
    free(got);
    return fine;
}

static bool all_reduce_is_right(ignis_dtype dtype, ignis_op op, int64_t count, int in_offset, int out_offset, const char *what)
{
    arrays in = make_all(dtype, count, in_offset), out = make_all(dtype, count, out_offset);
    bool fine;
    int r;
    for (r = 0; r < size; r++)
        fill(in.at[r], op, dtype, r, count);
    for (r = 0; r < size; r++)
        CHECK_OK(ignis_comm_all_reduce(comms[r], in.at[r], out.at[r], op));
    settle();
    fine = holds(&out, op, dtype, count, expect_combined, what);
    for (r = 0; r < size; r++) /* in place */
        CHECK_OK(ignis_comm_all_reduce(comms[r], in.at[r], in.at[r], op));
    settle();
    fine = fine && holds(&in, op, dtype, count, expect_combined, what);
    free_all(&in);
    free_all(&out);
    return fine;
}

/*  Each operation and element type is a program of its own, which takes a second to compile: without IGNIS_SOAK=1 the types that are summed
    in the same way are tried with a few operations only, and all are compiled at once. */
static bool is_tried(int op, int dtype)
{
    if (op == IGNIS_OP_AVG && dtype >= IGNIS_I32)
        return false;
    return op == IGNIS_OP_SUM || dtype == IGNIS_F32 || (op == IGNIS_OP_AVG && dtype == IGNIS_BF16) ||
           (op == IGNIS_OP_PROD && dtype == IGNIS_U8) || (op == IGNIS_OP_MIN && dtype == IGNIS_F16) ||
           (op == IGNIS_OP_MAX && dtype == IGNIS_I64) || test_env("IGNIS_SOAK");
}

static int next_program;
static void *compile_programs(void *context)
{
    ignis__device *device = ignis__device_get("test", 0);
    ignis__comm_program program;
    ignis__binding binding;
    int index;
    (void)context;
    CHECK(ignis__device_enter("test", device, &binding));
    while ((index = __sync_fetch_and_add(&next_program, 1)) < IGNIS_OP_COUNT * IGNIS_DTYPE_COUNT) {
        memset(&program, 0, sizeof program);
        program.ranks = 3;
        program.op = index / IGNIS_DTYPE_COUNT;
        program.dtype = index % IGNIS_DTYPE_COUNT;
        if (program.dtype >= IGNIS_F16 && is_tried(program.op, program.dtype) && ignis__comm_program_load("test", device, &program))
            ignis__module_unload(&program.module); /* it is in the cache now */
    }
    ignis__device_leave(&binding);
    return NULL;
}

TEST(all_reduce_every_type_operation_and_algorithm)
{
    pthread_t threads[16];
    int way, op, dtype, i;
    RANKS_SETUP(3);
    next_program = 0;
    for (i = 0; i < 16 && i < sysconf(_SC_NPROCESSORS_ONLN); i++)
        CHECK_INT(pthread_create(&threads[i], NULL, compile_programs, NULL), 0);
    while (i-- > 0)
        pthread_join(threads[i], NULL);
    for (way = 0; way < WAYS; way++) {
        REQUIRE(begin(3, ways[way]));
        for (op = IGNIS_OP_SUM; op < IGNIS_OP_COUNT; op++)
            for (dtype = IGNIS_F16; dtype < IGNIS_DTYPE_COUNT; dtype++)
                if (is_tried(op, dtype))
                    CHECK(all_reduce_is_right((ignis_dtype)dtype, (ignis_op)op, 1237, 0, 0, ways[way]));
        end();
    }
}

TEST(all_reduce_sizes_and_ranks)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 15, 16, 17, 1023, 4095, 4096, 4097, 30011};
    int way, ranks, i;
    RANKS_SETUP(2);
    for (ranks = 2; ranks <= RANKS && ranks <= ignis_device_count(); ranks++)
        for (way = 0; way < WAYS; way++) {
            REQUIRE(begin(ranks, ways[way]));
            for (i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
                CHECK(all_reduce_is_right(IGNIS_BF16, IGNIS_OP_SUM, sizes[i], 0, 0, ways[way]));
            end();
        }
}

/*  Where the table changes from one algorithm to the next. */
TEST(all_reduce_at_the_crossovers)
{
    int ranks, i, step;
    RANKS_SETUP(2);
    for (ranks = 2; ranks <= RANKS && ranks <= ignis_device_count(); ranks += 2) {
        REQUIRE(begin(ranks, ""));
        for (i = 0; i < IGNIS__COUNT(ignis__comm_table); i++)
            if (ignis__comm_table[i].kind == IGNIS__COMM_ALL_REDUCE && ignis__comm_table[i].most_ranks >= ranks &&
                ignis__comm_table[i].most_bytes <= (test_is_simulator() ? 64 << 10 : 1 << 30))
                for (step = -1; step <= 1; step++)
                    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, ignis__comm_table[i].most_bytes / 4 + step, 0, 0, "table"));
        end();
    }
}

TEST(any_alignment)
{
    int way;
    RANKS_SETUP(2);
    for (way = 0; way < WAYS; way++) {
        REQUIRE(begin(2, ways[way]));
        CHECK(all_reduce_is_right(IGNIS_BF16, IGNIS_OP_SUM, 1001, 1, 0, ways[way]));
        CHECK(all_reduce_is_right(IGNIS_BF16, IGNIS_OP_SUM, 1001, 0, 3, ways[way]));
        CHECK(all_reduce_is_right(IGNIS_U8, IGNIS_OP_MAX, 1001, 5, 2, ways[way]));
        CHECK(all_reduce_is_right(IGNIS_F64, IGNIS_OP_SUM, 333, 1, 1, ways[way]));
        end();
    }
}

/*  Everything but all_reduce, once. */
static void others_are_right(ignis_dtype dtype, int64_t part, int offset, const char *what)
{
    const ignis_op op = IGNIS_OP_SUM;
    arrays few = make_all(dtype, part, offset), many = make_all(dtype, part * size, offset), more = make_all(dtype, part * size, offset);
    int r;
    part_of = part;
    for (r = 0; r < size; r++) {
        fill(few.at[r], op, dtype, r, part);
        CHECK_OK(ignis_comm_all_gather(comms[r], few.at[r], many.at[r]));
    }
    settle();
    holds(&many, op, dtype, part * size, expect_gathered, what);
    for (r = 0; r < size; r++)
        fill(many.at[r], op, dtype, r, part * size);
    for (r = 0; r < size; r++)
        CHECK_OK(ignis_comm_reduce_scatter(comms[r], many.at[r], few.at[r], op));
    settle();
    holds(&few, op, dtype, part, expect_part, what);
    for (r = 0; r < size; r++)
        CHECK_OK(ignis_comm_all_to_all(comms[r], many.at[r], more.at[r]));
    settle();
    holds(&more, op, dtype, part * size, expect_exchanged, what);
    for (r = 0; r < size; r++) /* in place */
        CHECK_OK(ignis_comm_all_to_all(comms[r], many.at[r], many.at[r]));
    settle();
    holds(&many, op, dtype, part * size, expect_exchanged, what);
    for (root_is = 0; root_is < size; root_is++) {
        for (r = 0; r < size; r++) {
            fill(many.at[r], op, dtype, r, part * size);
            CHECK_OK(ignis_array_zero(more.at[r]));
        }
        for (r = 0; r < size; r++)
            CHECK_OK(ignis_comm_reduce(comms[r], many.at[r], more.at[r], op, root_is));
        for (r = 0; r < size; r++)
            CHECK_OK(ignis_comm_broadcast(comms[r], many.at[r], root_is));
        settle();
        holds(&more, op, dtype, part * size, expect_reduced, what);
        holds(&many, op, dtype, part * size, expect_root, what);
    }
    for (r = 0; r < size; r++)
        fill(many.at[r], op, dtype, r, part * size);
    for (r = 0; r < size; r++)
        CHECK_OK(ignis_comm_send_recv(comms[r], many.at[r], (r + 1) % size, more.at[r], (r + size - 1) % size));
    settle();
    holds(&more, op, dtype, part * size, expect_previous, what);
    free_all(&few);
    free_all(&many);
    free_all(&more);
}

TEST(other_operations_with_every_algorithm)
{
    int way, ranks;
    RANKS_SETUP(2);
    for (ranks = 2; ranks <= RANKS && ranks <= ignis_device_count(); ranks++)
        for (way = 0; way < WAYS; way++) {
            REQUIRE(begin(ranks, ways[way]));
            others_are_right(IGNIS_F32, 1001, 0, ways[way]);
            others_are_right(IGNIS_BF16, 15, 0, ways[way]);
            others_are_right(IGNIS_F32, 0, 0, ways[way]);
            if (ranks == 3)
                others_are_right(IGNIS_BF16, 333, 1, ways[way]);
            end();
        }
}

TEST(parts_of_one_array_where_the_operation_puts_them)
{
    int way, r;
    RANKS_SETUP(2);
    for (way = 0; way < WAYS; way++) {
        arrays whole;
        ignis_array part[2];
        REQUIRE(begin(2, ways[way]));
        part_of = 500;
        whole = make_all(IGNIS_F32, 1000, 0);
        for (r = 0; r < 2; r++) {
            part[r] = ignis_array_slice(whole.at[r], 0, r * 500, 500);
            fill(part[r], IGNIS_OP_SUM, IGNIS_F32, r, 500);
        }
        for (r = 0; r < 2; r++)
            CHECK_OK(ignis_comm_all_gather(comms[r], part[r], whole.at[r]));
        settle();
        holds(&whole, IGNIS_OP_SUM, IGNIS_F32, 1000, expect_gathered, "all_gather in place");
        for (r = 0; r < 2; r++)
            fill(whole.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
        for (r = 0; r < 2; r++)
            CHECK_OK(ignis_comm_reduce_scatter(comms[r], whole.at[r], part[r], IGNIS_OP_SUM));
        settle();
        {
            arrays parts;
            memcpy(parts.at, part, sizeof part);
            holds(&parts, IGNIS_OP_SUM, IGNIS_F32, 500, expect_part, "reduce_scatter in place");
        }
        for (r = 0; r < 2; r++)
            CHECK_OK(ignis_array_free(part[r]));
        free_all(&whole);
        end();
    }
}

TEST(send_and_receive)
{
    static const int64_t sizes[] = {0, 1, 17, 4096, 3 << 20};
    arrays a;
    int i;
    RANKS_SETUP(2);
    REQUIRE(begin(2, SMALL));
    for (i = 0; i < 5; i++) {
        a = make_all(IGNIS_U8, sizes[i], i & 1);
        fill(a.at[0], IGNIS_OP_SUM, IGNIS_U8, 0, sizes[i]);
        CHECK_OK(ignis_comm_send(comms[0], a.at[0], 1));
        CHECK_OK(ignis_comm_recv(comms[1], a.at[1], 0));
        settle();
        root_is = 0;
        holds(&a, IGNIS_OP_SUM, IGNIS_U8, sizes[i], expect_root, "send");
        free_all(&a);
    }
    a = make_all(IGNIS_F32, 100, 0);
    {
        ignis_array copy = make_on(0, IGNIS_F32, 100);
        fill(a.at[0], IGNIS_OP_SUM, IGNIS_F32, 0, 100);
        CHECK_OK(ignis_comm_send_recv(comms[0], a.at[0], 0, copy, 0)); /* to itself */
        CHECK_OK(ignis_array_free(copy));
    }
    CHECK_STATUS(ignis_comm_send(comms[0], a.at[0], 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_recv(comms[0], a.at[0], 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_send_recv(comms[0], a.at[0], 1, a.at[0], 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COMM_OVERLAP);
    free_all(&a);
    end();
}

TEST(a_receive_of_another_size_is_a_mismatch)
{
    arrays a;
    RANKS_SETUP(2);
    REQUIRE(begin_for(2, SMALL, 5));
    a = make_all(IGNIS_F32, 100, 0);
    {
        ignis_array shorter = ignis_array_slice(a.at[1], 0, 0, 99);
        CHECK_OK(ignis_comm_send(comms[0], a.at[0], 1));
        CHECK_OK(ignis_comm_recv(comms[1], shorter, 0));
        CHECK_STATUS(ignis_comm_synchronize(comms[1]), IGNIS_ERROR_MISMATCH, IGNIS_DIAG_COMM_MISMATCH);
        CHECK_OK(ignis_array_free(shorter));
    }
    CHECK_OK(ignis_comm_send(comms[0], a.at[0], 1)); /* finds its region poisoned */
    CHECK_STATUS(ignis_comm_synchronize(comms[0]), IGNIS_ERROR_MISMATCH, IGNIS_DIAG_COMM_MISMATCH);
    free_all(&a);
    end();
}

/* --- bits ------------------------------------------------------------------------------------------------------------ */

static uint64_t random_state = 12345;
static uint32_t random_word(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

/*  The bits of NaN that the processor's own additions make depend on the order of the operands, which compilers choose; on GPUs there is one NaN. */
static void unify_nan(char *data, ignis_dtype dtype, int64_t bytes)
{
    int64_t i;
    for (i = 0; i < bytes / 4 && dtype == IGNIS_F32 && test_is_simulator(); i++) {
        uint32_t word;
        memcpy(&word, data + i * 4, 4);
        if ((word & 0x7FFFFFFF) > 0x7F800000)
            memset(data + i * 4, 0xFF, 4);
    }
}

/*  Arbitrary bits, with many NaN, infinities, zeros of both signs and subnormals among them. */
static void fill_bits(ignis_array array, int64_t bytes)
{
    static const uint32_t special[] = {0x80000000, 0, 0x7f800000, 0xff800000, 0x7fc00001,
                                       0x7f800001, 1, 0x80000001, 0x00007f80, 0xff807f80};
    uint32_t *data = (uint32_t *)malloc((size_t)bytes + 4);
    int64_t i;
    for (i = 0; i < bytes / 4; i++)
        data[i] = random_word() % 3 ? random_word() : special[random_word() % 10];
    CHECK_OK(ignis_array_from_host_raw(array, data, bytes));
    free(data);
}

TEST(all_ranks_and_algorithms_give_the_same_bits)
{
    enum { COUNT = 3000 };
    static const ignis_dtype dtypes[] = {IGNIS_BF16, IGNIS_F32};
    static const ignis_op ops[] = {IGNIS_OP_SUM, IGNIS_OP_MIN, IGNIS_OP_MAX};
    static char first[2][3][COUNT * 4], other[COUNT * 4];
    int way, r, d, o;
    RANKS_SETUP(3);
    for (way = 0; way < WAYS; way++) {
        REQUIRE(begin(3, ways[way]));
        for (d = 0; d < 2; d++)
            for (o = 0; o < 3; o++) {
                const int64_t bytes = COUNT * ignis__dtypes[dtypes[d]].size;
                arrays in = make_all(dtypes[d], COUNT, 0), out = make_all(dtypes[d], COUNT, 0);
                random_state = 99;
                for (r = 0; r < size; r++)
                    fill_bits(in.at[r], bytes);
                for (r = 0; r < size; r++)
                    CHECK_OK(ignis_comm_all_reduce(comms[r], in.at[r], out.at[r], ops[o]));
                settle();
                for (r = 0; r < size; r++) {
                    char *const mine = r == 0 && way == 0 ? first[d][o] : other;
                    CHECK_OK(ignis_array_to_host_raw(out.at[r], mine, bytes));
                    unify_nan(mine, dtypes[d], bytes);
                    CHECK(memcmp(first[d][o], mine, (size_t)bytes) == 0);
                }
                free_all(&in);
                free_all(&out);
            }
        end();
    }
}

TEST(what_is_only_moved_keeps_its_bits)
{
    enum { COUNT = 3000 };
    static char sent[COUNT * 4], came[COUNT * 4];
    int way, r;
    RANKS_SETUP(2);
    for (way = 0; way < WAYS; way++) {
        arrays a;
        REQUIRE(begin(2, ways[way]));
        a = make_all(IGNIS_F32, COUNT, 0);
        fill_bits(a.at[1], sizeof sent);
        CHECK_OK(ignis_array_to_host_raw(a.at[1], sent, sizeof sent));
        for (r = 0; r < 2; r++)
            CHECK_OK(ignis_comm_broadcast(comms[r], a.at[r], 1));
        settle();
        CHECK_OK(ignis_array_to_host_raw(a.at[0], came, sizeof came));
        CHECK(memcmp(sent, came, sizeof sent) == 0);
        free_all(&a);
        end();
    }
}

/* --- what is refused ------------------------------------------------------------------------------------------------- */

TEST(arguments_are_checked_before_anything_is_queued)
{
    ignis_comm stale, twice[2];
    ignis_array ints, shorter, overlapping;
    ignis_array_info before, after;
    int devices[2] = {0, 0};
    arrays a;
    RANKS_SETUP(2);
    CHECK_STATUS(ignis_comm_init_all(NULL, NULL, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_comm_init_all(twice, NULL, 0, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_init_all(twice, devices, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    devices[1] = 1000;
    CHECK_STATUS(ignis_comm_init_all(twice, devices, 2, NULL), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    setenv("IGNIS_COMM_TUNE", "blocks=many", 1);
    CHECK_STATUS(ignis_comm_init_all(twice, NULL, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    setenv("IGNIS_COMM_TUNE", "blocks=4,speed=9", 1);
    CHECK_STATUS(ignis_comm_init_all(twice, NULL, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_INT(twice[0].id, 0);
    REQUIRE(begin(2, SMALL));
    a = make_all(IGNIS_F32, 100, 0);
    ints = make_on(0, IGNIS_I32, 100);
    shorter = ignis_array_slice(a.at[0], 0, 0, 50);
    overlapping = ignis_array_slice(a.at[0], 0, 25, 50);
    CHECK_OK(ignis_array_zero(ints));
    CHECK_STATUS(ignis_comm_all_reduce(comms[0], a.at[0], ints, IGNIS_OP_SUM), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_STATUS(ignis_comm_all_reduce(comms[0], ints, ints, IGNIS_OP_AVG), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_STATUS(ignis_comm_all_reduce(comms[0], a.at[0], a.at[0], (ignis_op)9), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_ENUM);
    CHECK_STATUS(ignis_comm_all_reduce(comms[0], a.at[0], shorter, IGNIS_OP_SUM), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_OK(ignis_array_query(overlapping, &before));
    CHECK_STATUS(ignis_comm_all_reduce(comms[0], shorter, overlapping, IGNIS_OP_SUM), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COMM_OVERLAP);
    CHECK_OK(ignis_array_query(overlapping, &after));
    CHECK_INT(after.version, before.version); /* a backward may still use it */
    CHECK_STATUS(ignis_comm_all_reduce(comms[0], a.at[1], a.at[1], IGNIS_OP_SUM), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
    CHECK_STATUS(ignis_comm_all_gather(comms[0], overlapping, a.at[0]), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_COMM_OVERLAP);
    CHECK_STATUS(ignis_comm_all_gather(comms[0], a.at[0], a.at[0]), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_STATUS(ignis_comm_broadcast(comms[0], a.at[0], 2), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_reduce(comms[0], a.at[0], a.at[0], IGNIS_OP_SUM, -1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_OK(ignis_contract_acquire(a.at[0], IGNIS_OWNER_WNAIS));
    CHECK_STATUS(ignis_comm_broadcast(comms[0], a.at[0], 0), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_OWNER_DIFFERS);
    CHECK_OK(ignis_contract_release(a.at[0], IGNIS_OWNER_WNAIS));
    CHECK_OK(ignis_contract_untrack(a.at[0]));
    CHECK_OK(ignis_contract_assert_owner(a.at[1], IGNIS_OWNER_IGNIS));
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 100, 0, 0, "after what was refused"));
    stale = comms[0];
    CHECK_OK(ignis_array_free(shorter));
    CHECK_OK(ignis_array_free(overlapping));
    CHECK_OK(ignis_array_free(ints));
    free_all(&a);
    end();
    CHECK_STATUS(ignis_comm_barrier(stale), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_STATUS(ignis_comm_status(stale), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
}

TEST(one_rank_alone)
{
    arrays in, out;
    SETUP(NULL);
    REQUIRE(begin(1, ""));
    in = make_all(IGNIS_F32, 100, 0);
    out = make_all(IGNIS_F32, 100, 0);
    fill(in.at[0], IGNIS_OP_SUM, IGNIS_F32, 0, 100);
    root_is = 0;
    CHECK_OK(ignis_comm_all_reduce(comms[0], in.at[0], out.at[0], IGNIS_OP_AVG));
    CHECK_OK(ignis_comm_broadcast(comms[0], out.at[0], 0));
    CHECK_OK(ignis_comm_barrier(comms[0]));
    CHECK_OK(ignis_comm_synchronize(comms[0]));
    holds(&out, IGNIS_OP_SUM, IGNIS_F32, 100, expect_root, "alone");
    free_all(&in);
    free_all(&out);
    end();
}

/* --- what goes wrong ------------------------------------------------------------------------------------------------- */

typedef ignis_status (*wrong_fn)(int rank, const arrays *a);
static ignis_status wrong_count(int rank, const arrays *a)
{
    ignis_array part = ignis_array_slice(a->at[rank], 0, 0, rank ? 100 : 99);
    ignis_status status = ignis_comm_all_reduce(comms[rank], part, part, IGNIS_OP_SUM);
    ignis_array_free(part);
    return status;
}
/*  Two sizes that a short hash would not tell apart. */
static ignis_status wrong_count_of_one_hash(int rank, const arrays *a)
{
    ignis_array part = ignis_array_slice(a->at[rank], 0, 0, rank ? 42 : 530);
    ignis_status status = ignis_comm_all_reduce(comms[rank], part, part, IGNIS_OP_SUM);
    ignis_array_free(part);
    return status;
}
static ignis_status wrong_dtype(int rank, const arrays *a)
{
    ignis_array_desc desc = {0};
    ignis_status status;
    ignis_array same;
    desc.shape = IGNIS_SHAPE(1000);
    desc.dtype = rank ? IGNIS_I32 : IGNIS_F32; /* as many bytes */
    desc.device = rank ? rank : IGNIS_DEVICE_0;
    desc.ptr = ignis_array_device_ptr(a->at[rank]);
    same = ignis_array_create(&desc);
    status = ignis_comm_all_reduce(comms[rank], same, same, IGNIS_OP_SUM);
    ignis_array_free(same);
    return status;
}
static ignis_status wrong_op(int rank, const arrays *a)
{
    return ignis_comm_all_reduce(comms[rank], a->at[rank], a->at[rank], rank ? IGNIS_OP_SUM : IGNIS_OP_MAX);
}
static ignis_status wrong_root(int rank, const arrays *a) { return ignis_comm_broadcast(comms[rank], a->at[rank], rank); }
static ignis_status wrong_kind(int rank, const arrays *a)
{
    return rank ? ignis_comm_barrier(comms[rank]) : ignis_comm_broadcast(comms[rank], a->at[rank], 0);
}

TEST(ranks_that_disagree_all_hear_of_it)
{
    static const wrong_fn wrongs[] = {wrong_count, wrong_op, wrong_root, wrong_kind, wrong_dtype, wrong_count_of_one_hash};
    static const char *const says[] = {"all_reduce sum of 99 f32",       "all_reduce max of 1000 f32",
                                       "broadcast of 1000 f32 (root 1)", "barrier",
                                       "all_reduce sum of 1000 i32",     "all_reduce sum of 530 f32"};
    int way, w, r;
    RANKS_SETUP(2);
    for (way = 0; way < WAYS; way++)
        for (w = 0; w < (int)(sizeof wrongs / sizeof wrongs[0]); w++) {
            arrays a;
            if (way && w != way) /* each way with one, and one with each */
                continue;
            REQUIRE(begin_for(2, w == 5 ? "" : ways[way], 20));
            a = make_all(IGNIS_F32, 1000, 0);
            CHECK(all_reduce_is_right(IGNIS_I32, IGNIS_OP_SUM, 10, 0, 0, "loaded now, as loading may wait for the device"));
            for (r = 0; r < 2; r++)
                CHECK_OK(wrongs[w](r, &a));
            for (r = 0; r < 2; r++) {
                ignis_comm_info info;
                CHECK_STATUS(ignis_comm_synchronize(comms[r]), IGNIS_ERROR_MISMATCH, IGNIS_DIAG_COMM_MISMATCH);
                CHECK_MESSAGE_HAS(says[w]);
                CHECK_STATUS(ignis_comm_status(comms[r]), IGNIS_ERROR_MISMATCH, IGNIS_DIAG_COMM_MISMATCH);
                CHECK_STATUS(ignis_comm_barrier(comms[r]), IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_BROKEN);
                CHECK_OK(ignis_comm_query(comms[r], &info));
                CHECK_INT(info.status, IGNIS_ERROR_MISMATCH);
            }
            free_all(&a);
            end();
        }
}

TEST(a_rank_that_is_late_and_one_that_does_not_come)
{
    int way, r;
    RANKS_SETUP(3);
    for (way = 0; way < WAYS; way++) {
        arrays a;
        REQUIRE(begin_for(3, ways[way], 0.5));
        a = make_all(IGNIS_F32, 1000, 0);
        for (r = 0; r < 3; r++)
            fill(a.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
        for (r = 0; r < 3; r++) {
            if (r == 2)
                test_sleep_ms(100);
            CHECK_OK(ignis_comm_all_reduce(comms[r], a.at[r], a.at[r], IGNIS_OP_SUM));
        }
        settle();
        holds(&a, IGNIS_OP_SUM, IGNIS_F32, 1000, expect_combined, "late");
        for (r = 0; r < 2; r++)
            CHECK_OK(ignis_comm_all_reduce(comms[r], a.at[r], a.at[r], IGNIS_OP_SUM));
        for (r = 0; r < 2; r++) {
            CHECK_STATUS(ignis_comm_synchronize(comms[r]), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
            CHECK_MESSAGE_HAS("rank 2 did not come");
        }
        CHECK_OK(ignis_comm_all_reduce(comms[2], a.at[2], a.at[2], IGNIS_OP_SUM)); /* too late: its region is poisoned */
        CHECK_STATUS(ignis_comm_synchronize(comms[2]), IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
        CHECK_STATUS(ignis_comm_all_reduce(comms[2], a.at[2], a.at[2], IGNIS_OP_SUM), IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_BROKEN);
        free_all(&a);
        end();
    }
}

static void *abort_soon(void *context)
{
    test_sleep_ms(100);
    CHECK_OK(ignis_comm_abort(*(ignis_comm *)context));
    return NULL;
}

/*  T10: by another rank, and by another thread of the one that waits. */
TEST(an_abort_ends_what_waits)
{
    int who;
    RANKS_SETUP(2);
    for (who = 0; who < 2; who++) {
        arrays a;
        pthread_t thread;
        REQUIRE(begin_for(2, SMALL, 60));
        a = make_all(IGNIS_F32, 1000, 0);
        REQUIRE(pthread_create(&thread, NULL, abort_soon, &comms[who]) == 0);
        CHECK_OK(ignis_comm_all_reduce(comms[0], a.at[0], a.at[0], IGNIS_OP_SUM));
        CHECK_STATUS(ignis_comm_synchronize(comms[0]), IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_PEER);
        pthread_join(thread, NULL);
        CHECK(ignis_comm_barrier(comms[1]) != IGNIS_OK || ignis_comm_synchronize(comms[1]) != IGNIS_OK);
        CHECK_INT(ignis_status_last(), IGNIS_ERROR_PEER);
        ignis_status_clear();
        free_all(&a);
        end();
    }
}

/* --- graphs ---------------------------------------------------------------------------------------------------------- */

/*  a = sum of a, then a is exchanged with b by an all-to-all, on every rank, as one graph a rank. */
static void capture(ignis_graph *graphs, const arrays *a, const arrays *b, int steps)
{
    int r, i;
    for (r = 0; r < size; r++) {
        CHECK_OK(ignis_device_use(r));
        CHECK_OK(ignis_graph_begin());
        for (i = 0; i < steps; i++) {
            CHECK_OK(ignis_comm_all_reduce(comms[r], a->at[r], b->at[r], IGNIS_OP_MAX));
            CHECK_OK(ignis_comm_all_to_all(comms[r], b->at[r], a->at[r]));
        }
        graphs[r] = ignis_graph_end();
        CHECK(graphs[r].id);
    }
}

TEST(graphs_and_eager_operations_mixed)
{
    int way, r, round;
    RANKS_SETUP(2);
    for (way = 0; way < WAYS; way++) {
        ignis_graph one[RANKS], two[RANKS];
        arrays a, b;
        REQUIRE(begin(2, ways[way]));
        a = make_all(IGNIS_F32, 1000, 0);
        b = make_all(IGNIS_F32, 1000, 0);
        CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_MAX, 100, 0, 0, "before the capture"));
        capture(one, &a, &b, 1);
        capture(two, &a, &b, 2);
        for (round = 0; round < 5; round++) {
            for (r = 0; r < 2; r++) {
                CHECK_OK(ignis_device_use(r));
                fill(a.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
                CHECK_OK(ignis_graph_launch(one[r]));
            }
            for (r = 0; r < 2; r++) {
                CHECK_OK(ignis_device_use(r));
                CHECK_OK(ignis_graph_launch(round % 2 ? one[r] : two[r]));
                CHECK_OK(ignis_graph_launch(round % 3 ? one[r] : two[r]));
            }
            settle();
            CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_MAX, 777, 0, 0, "between launches"));
            for (r = 0; r < 2; r++) { /* the largest of all ranks, in a; all-to-all of equal arrays gathers one part of them */
                double got[1000];
                int i;
                CHECK_OK(ignis_array_to_host(a.at[r], got, IGNIS_F64, 1000));
                for (i = 0; i < 1000; i++)
                    if (got[i] != combined(IGNIS_OP_MAX, IGNIS_F32, r * 500 + i % 500) &&
                        got[i] != combined(IGNIS_OP_MAX, IGNIS_F32, i % 500) &&
                        got[i] < combined(IGNIS_OP_MAX, IGNIS_F32, r * 500 + i % 500))
                        break;
                CHECK_INT(i, 1000);
            }
        }
        for (r = 0; r < 2; r++) {
            CHECK_OK(ignis_graph_free(one[r]));
            CHECK_OK(ignis_graph_free(two[r]));
        }
        free_all(&a);
        free_all(&b);
        end();
    }
}

/*  T17: one rank replays, the other calls. */
TEST(a_capture_on_one_rank_only)
{
    ignis_graph graph;
    arrays a, b;
    int way, i;
    RANKS_SETUP(2);
    for (way = 0; way < WAYS; way++) {
        REQUIRE(begin(2, ways[way]));
        a = make_all(IGNIS_F32, 1000, 0);
        b = make_all(IGNIS_F32, 1000, 0);
        CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 100, 0, 0, "before the capture"));
        fill(a.at[0], IGNIS_OP_SUM, IGNIS_F32, 0, 1000);
        fill(a.at[1], IGNIS_OP_SUM, IGNIS_F32, 1, 1000);
        CHECK_OK(ignis_device_use(0));
        CHECK_OK(ignis_graph_begin());
        for (i = 0; i < 2; i++)
            CHECK_OK(ignis_comm_all_reduce(comms[0], a.at[0], b.at[0], IGNIS_OP_SUM));
        graph = ignis_graph_end();
        for (i = 0; i < 6; i++) {
            CHECK_OK(ignis_device_use(0));
            if (i % 2 == 0)
                CHECK_OK(ignis_graph_launch(graph));
            CHECK_OK(ignis_device_use(1));
            CHECK_OK(ignis_comm_all_reduce(comms[1], a.at[1], b.at[1], IGNIS_OP_SUM));
            if (i % 2 == 0)
                continue;
            settle();
            CHECK(holds(&b, IGNIS_OP_SUM, IGNIS_F32, 1000, expect_combined, "a replay with calls"));
        }
        CHECK_OK(ignis_graph_free(graph));
        free_all(&a);
        free_all(&b);
        end();
    }
}

TEST(an_abort_ends_a_replay)
{
    ignis_graph graphs[RANKS];
    pthread_t thread;
    arrays a, b;
    int r;
    RANKS_SETUP(2);
    REQUIRE(begin_for(2, SMALL, 60));
    a = make_all(IGNIS_F32, 1000, 0);
    b = make_all(IGNIS_F32, 1000, 0);
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_MAX, 10, 0, 0, "before the capture"));
    capture(graphs, &a, &b, 2);
    CHECK_OK(ignis_device_use(0));
    REQUIRE(pthread_create(&thread, NULL, abort_soon, &comms[1]) == 0);
    CHECK_OK(ignis_graph_launch(graphs[0])); /* the other rank does not come */
    CHECK_STATUS(ignis_comm_synchronize(comms[0]), IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_PEER);
    pthread_join(thread, NULL);
    CHECK_OK(ignis_graph_launch(graphs[0])); /* leaves at once */
    CHECK_OK(ignis_synchronize());
    for (r = 0; r < 2; r++)
        CHECK_OK(ignis_graph_free(graphs[r]));
    free_all(&a);
    free_all(&b);
    end();
}

/*  Two streams of the caller's on the current device. */
static void streams_make(void *streams[2])
{
    int s;
    for (s = 0; s < 2; s++)
        CHECK_INT(ignis__cuda.cuStreamCreate(&streams[s], IGNIS__CU_STREAM_NON_BLOCKING), 0);
}
static void streams_end(void *streams[2])
{
    int s;
    for (s = 0; s < 2; s++) {
        CHECK_OK(ignis_stream_forget(streams[s]));
        CHECK_INT(ignis__cuda.cuStreamDestroy_v2(streams[s]), 0);
    }
}

/*  T17: graphs of one communicator on two streams. Without an order between them two may run at once, which is refused or goes well. */
TEST(replays_on_two_streams)
{
    void *streams[2][2];
    ignis_graph graphs[RANKS];
    ignis_status status = IGNIS_OK;
    arrays a, b;
    int r, s, i;
    RANKS_SETUP(2);
    REQUIRE(begin_for(2, SMALL, 5));
    a = make_all(IGNIS_F32, 1000, 0);
    b = make_all(IGNIS_F32, 1000, 0);
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_MAX, 10, 0, 0, "before the capture"));
    for (r = 0; r < 2; r++) {
        CHECK_OK(ignis_device_use(r));
        fill(a.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
        CHECK_OK(ignis_graph_begin());
        CHECK_OK(ignis_comm_all_reduce(comms[r], a.at[r], b.at[r], IGNIS_OP_SUM));
        graphs[r] = ignis_graph_end();
        streams_make(streams[r]);
    }
    for (i = 0; i < 6; i++)
        for (r = 0; r < 2; r++) {
            CHECK_OK(ignis_device_use(r));
            CHECK_OK(ignis_stream_use(streams[r][i % 2]));
            CHECK_OK(ignis_graph_launch(graphs[r]));
        }
    for (r = 0; r < 2; r++) {
        CHECK_OK(ignis_device_use(r));
        for (s = 0; s < 2; s++) {
            CHECK_OK(ignis_stream_use(streams[r][s]));
            CHECK_OK(ignis_synchronize());
        }
        status = status == IGNIS_OK ? ignis_comm_status(comms[r]) : status;
        ignis_status_clear();
    }
    if (status == IGNIS_OK)
        CHECK(holds(&b, IGNIS_OP_SUM, IGNIS_F32, 1000, expect_combined, "replays on two streams"));
    for (r = 0; r < 2; r++) {
        CHECK_OK(ignis_device_use(r));
        CHECK_OK(ignis_graph_free(graphs[r]));
        streams_end(streams[r]);
    }
    free_all(&a);
    free_all(&b);
    end();
}

TEST(a_graph_outlives_its_communicator)
{
    ignis_graph graphs[RANKS];
    arrays a, b;
    int r;
    RANKS_SETUP(2);
    REQUIRE(begin(2, SMALL));
    a = make_all(IGNIS_F32, 1000, 0);
    b = make_all(IGNIS_F32, 1000, 0);
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_MAX, 10, 0, 0, "before the capture"));
    capture(graphs, &a, &b, 1);
    end();
    for (r = 0; r < 2; r++) { /* it leaves at once */
        CHECK_OK(ignis_device_use(r));
        CHECK_OK(ignis_graph_launch(graphs[r]));
        CHECK_OK(ignis_synchronize());
        CHECK_OK(ignis_graph_free(graphs[r]));
    }
    free_all(&a);
    free_all(&b);
}

/* --- numbers of operations, delays, streams, threads ------------------------------------------------------------------- */

TEST(numbers_come_back)
{
    static const char *const starts[] = {"epoch=0xFFFFFFF0,", "epoch=0x7FFFFFF0,", "epoch=0,"};
    char tune[256];
    int way, s, i;
    RANKS_SETUP(2);
    for (s = 0; s < 3; s++)
        for (way = 0; way < WAYS; way++) {
            snprintf(tune, sizeof tune, "%s%s", starts[s], ways[way]);
            REQUIRE(begin(2, tune));
            for (i = 0; i < 12; i++)
                CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 1 + (i * 389) % 2000, 0, 0, tune));
            end();
        }
}

TEST(blocks_that_are_late_at_random)
{
    arrays a, b;
    int i, r, iterations;
    RANKS_SETUP(3);
    iterations = test_is_simulator() ? (test_env("IGNIS_SOAK") ? 3000 : 60) : test_env("IGNIS_SOAK") ? 1000000 : 3000;
    REQUIRE(begin(
        3, "delay=1,ll_max=2K,ll_two_max=6K,one_shot_max=12K,ll_blocks=3,ll_threads=64,blocks=3,threads=64,chunk=3K,epoch=0xFFFFFFC0"));
    a = make_all(IGNIS_I32, 6000, 0);
    b = make_all(IGNIS_I32, 6000, 0);
    for (r = 0; r < 3; r++)
        fill(a.at[r], IGNIS_OP_SUM, IGNIS_I32, r, 6000);
    for (i = 0; i < (iterations); i++) {
        int64_t count = 1 + random_word() % 2000 * 3;
        int kind = (int)(random_word() % 4);
        for (r = 0; r < 3; r++) {
            ignis_array in = ignis_array_slice(a.at[r], 0, 0, count * 3 <= 6000 ? count * 3 : count),
                        out = ignis_array_slice(b.at[r], 0, 0, count * 3 <= 6000 ? count * 3 : count);
            if (kind == 0)
                CHECK_OK(ignis_comm_broadcast(comms[r], out, i % 3));
            else if (kind == 1)
                CHECK_OK(ignis_comm_reduce(comms[r], in, out, IGNIS_OP_SUM, i % 3));
            else
                CHECK_OK(ignis_comm_all_reduce(comms[r], in, out, IGNIS_OP_SUM));
            CHECK_OK(ignis_array_free(in));
            CHECK_OK(ignis_array_free(out));
        }
        if (i % 5 == 0) {
            for (r = 0; r < 3; r++)
                CHECK_OK(ignis_comm_all_reduce(comms[r], a.at[r], b.at[r], IGNIS_OP_SUM));
            settle();
            if (!holds(&b, IGNIS_OP_SUM, IGNIS_I32, 6000, expect_combined, "delays"))
                break;
        }
    }
    settle();
    free_all(&a);
    free_all(&b);
    end();
}

TEST(two_streams_are_put_in_order)
{
    void *streams[2][2];
    arrays a;
    int r, i;
    RANKS_SETUP(2);
    REQUIRE(begin(2, SMALL));
    a = make_all(IGNIS_F32, 1000, 0);
    for (r = 0; r < 2; r++) {
        CHECK_OK(ignis_device_use(r));
        fill(a.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
        streams_make(streams[r]);
    }
    for (i = 0; i < 6; i++)
        for (r = 0; r < 2; r++) {
            CHECK_OK(ignis_device_use(r));
            CHECK_OK(ignis_stream_use(streams[r][i % 2]));
            CHECK_OK(ignis_comm_all_reduce(comms[r], a.at[r], a.at[r], i ? IGNIS_OP_MAX : IGNIS_OP_SUM));
        }
    settle();
    holds(&a, IGNIS_OP_SUM, IGNIS_F32, 1000, expect_combined, "two streams");
    for (r = 0; r < 2; r++) {
        CHECK_OK(ignis_device_use(r));
        streams_end(streams[r]);
        CHECK_OK(ignis_comm_barrier(comms[r])); /* the stream that it was used on last is gone */
    }
    settle();
    free_all(&a);
    end();
}

static arrays shared_arrays;

/*  shared_arrays of a number each, summed once: what the sum needs is loaded then. */
static void share_one_number(void)
{
    int r;
    shared_arrays = make_all(IGNIS_F32, 1, 0);
    for (r = 0; r < size; r++)
        fill(shared_arrays.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1);
    for (r = 0; r < size; r++)
        CHECK_OK(ignis_comm_all_reduce(comms[r], shared_arrays.at[r], shared_arrays.at[r], IGNIS_OP_SUM));
    settle();
}

static void *rank_thread(void *context)
{
    int r = (int)(intptr_t)context, i;
    CHECK_OK(ignis_device_use(r));
    for (i = 0; i < 50; i++)
        CHECK_OK(ignis_comm_all_reduce(comms[r], shared_arrays.at[r], shared_arrays.at[r], i ? IGNIS_OP_MIN : IGNIS_OP_SUM));
    CHECK_OK(ignis_comm_synchronize(comms[r]));
    return NULL;
}

/*  Rank 0 begins operations of several communicators in one order, rank 1 in the other, each on a stream of its own. With as many blocks as
    there may be, one or two kernels fit on a GPU at a time, and each waits for one that cannot begin on the other GPU: the message names
    both communicators. With few blocks all fit. */
TEST(operations_in_different_orders_fit_beside_each_other_or_are_told)
{
    enum { ORDERS = 4, NUMBERS = 1 << 20 };
    ignis_comm group[ORDERS][RANKS];
    ignis_comm_desc desc;
    void *streams[2][ORDERS];
    arrays a[ORDERS];
    float *seen;
    bool whole[2][ORDERS];
    int few, r, k, i, late;
    if (getenv("IGNIS_SIM_SANITIZE"))
        SKIP("under a sanitizer the simulator runs one kernel of a module at a time");
    RANKS_SETUP(2);
    size = 2;
    memset(&desc, 0, sizeof desc);
    seen = (float *)malloc(NUMBERS * sizeof *seen);
    REQUIRE(seen != NULL);
    for (k = 0; k < ORDERS; k++)
        a[k] = make_all(IGNIS_F32, NUMBERS, 0);
    for (few = 0; few < 2; few++) {
        desc.timeout_s = few ? 20 : 2;
        desc.most_blocks = few ? 16 : 0;
        setenv("IGNIS_COMM_TUNE", "blocks=256,nccl_min=0", 1);
        for (k = 0; k < ORDERS; k++) {
            CHECK_OK(ignis_comm_init_all(group[k], NULL, 2, &desc));
            for (r = 0; r < 2; r++)
                CHECK_OK(ignis_array_fill(a[k].at[r], 1));
        }
        unsetenv("IGNIS_COMM_TUNE");
        for (r = 0; r < 2; r++) { /* loads what is used */
            CHECK_OK(ignis_device_use(r));
            CHECK_OK(ignis_comm_all_reduce(group[0][r], a[0].at[r], a[0].at[r], IGNIS_OP_SUM));
            for (k = 0; k < ORDERS; k++)
                CHECK_INT(ignis__cuda.cuStreamCreate(&streams[r][k], IGNIS__CU_STREAM_NON_BLOCKING), 0);
        }
        for (r = 0; r < 2; r++)
            CHECK_OK(ignis_comm_synchronize(group[0][r]));
        for (k = 0; k < ORDERS; k++) {
            for (r = 0; r < 2; r++) {
                int at = r ? ORDERS - 1 - k : k;
                CHECK_OK(ignis_device_use(r));
                CHECK_OK(ignis_stream_use(streams[r][at]));
                CHECK_OK(ignis_comm_all_reduce(group[at][r], a[at].at[r], a[at].at[r], IGNIS_OP_SUM));
            }
            ignis__sleep_us(20000); /* now each GPU has a kernel that the other one's is to wait for */
        }
        for (r = late = 0; r < 2; r++) {
            CHECK_OK(ignis_device_use(r));
            for (k = 0; k < ORDERS; k++) {
                ignis_status status = ignis_comm_synchronize(group[k][r]);
                if ((whole[r][k] = status == IGNIS_OK))
                    continue;
                late++;
                CHECK_INT(status, IGNIS_ERROR_TIMEOUT);
                CHECK_HAS(ignis_status_message(), "beside this one");
                CHECK_HAS(ignis_status_message(), "in one order");
                ignis_status_clear();
            }
            CHECK_OK(ignis_stream_use(NULL));
        }
        CHECK(few ? late == 0 : late > 0 || !test_is_simulator()); /* there may be GPUs with room for all of them */
        for (r = 0; r < 2; r++)
            for (k = 0; k < ORDERS; k++) {
                CHECK_OK(ignis_device_use(r));
                if (whole[r][k]) {
                    CHECK_OK(ignis_array_to_host(a[k].at[r], seen, IGNIS_F32, NUMBERS));
                    for (i = 0; i < NUMBERS && seen[i] == (k ? 2 : 4); i++)
                        ;
                    CHECK_INT(i, NUMBERS);
                }
                CHECK_OK(ignis_comm_destroy(group[k][r]));
                CHECK_OK(ignis_stream_forget(streams[r][k]));
                CHECK_INT(ignis__cuda.cuStreamDestroy_v2(streams[r][k]), 0);
            }
    }
    for (k = 0; k < ORDERS; k++)
        free_all(&a[k]);
    free(seen);
}

TEST(a_thread_for_each_rank)
{
    pthread_t threads[RANKS];
    int r;
    RANKS_SETUP(3);
    REQUIRE(begin(3, SMALL));
    shared_arrays = make_all(IGNIS_F32, 1000, 0);
    for (r = 0; r < 3; r++)
        fill(shared_arrays.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
    for (r = 0; r < 3; r++)
        REQUIRE(pthread_create(&threads[r], NULL, rank_thread, (void *)(intptr_t)r) == 0);
    for (r = 0; r < 3; r++)
        pthread_join(threads[r], NULL);
    holds(&shared_arrays, IGNIS_OP_SUM, IGNIS_F32, 1000, expect_combined, "threads");
    free_all(&shared_arrays);
    end();
}

static ignis_kernel loading_kernel;

/*  Rank 0 loads a kernel behind an operation; the others load it before, and rank 0 then waits for them. */
static void *loading_thread(void *context)
{
    int r = (int)(intptr_t)context;
    ignis_launch launch = test_launch(1, 1);
    ignis_arg arg = ignis_arg_array(shared_arrays.at[r]);
    CHECK_OK(ignis_device_use(r));
    if (r > 0)
        test_sleep_ms(300);
    if (r > 0)
        CHECK_OK(ignis_kernel_launch(loading_kernel, &launch, &arg, 1));
    CHECK_OK(ignis_comm_all_reduce(comms[r], shared_arrays.at[r], shared_arrays.at[r], IGNIS_OP_SUM));
    if (r == 0)
        CHECK_OK(ignis_kernel_launch(loading_kernel, &launch, &arg, 1));
    CHECK_OK(ignis_comm_synchronize(comms[r]));
    return NULL;
}

/*  Loading waits for a device, and that for an operation to which another thread has yet to come, with the same kernel. */
TEST(a_thread_that_loads_holds_up_no_other)
{
    pthread_t threads[2];
    int r;
    RANKS_SETUP(3);
    REQUIRE(begin_for(2, SMALL, 5));
    CHECK_OK(ignis_device_use(2)); /* where it is loaded now */
    loading_kernel = test_compile("extern \"C\" __global__ void tenfold(float *x) { x[0] *= 10.f; }", "tenfold", NULL);
    share_one_number();
    for (r = 0; r < 2; r++)
        REQUIRE(pthread_create(&threads[r], NULL, loading_thread, (void *)(intptr_t)r) == 0);
    for (r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    free_all(&shared_arrays);
    CHECK_OK(ignis_kernel_free(loading_kernel));
    end();
}

/* --- others made of them --------------------------------------------------------------------------------------------- */

/*  Whether communicator i of `some`, wherever there is one, is of rank ranks[i] on device i, and sums over those who have it. */
static bool sums_over(const ignis_comm *some, const int *ranks, int members, double sum)
{
    ignis_comm_info info;
    ignis_array x[RANKS];
    bool fine = true;
    double got[100];
    int i;
    for (i = 0; i < RANKS; i++) {
        if (!some[i].id)
            continue;
        CHECK_OK(ignis_comm_query(some[i], &info));
        fine &= info.rank == ranks[i] && info.size == members && info.device == i && info.status == IGNIS_OK && info.timeout_s == 20;
        x[i] = make_on(i, IGNIS_F32, 100);
        CHECK_OK(ignis_array_fill(x[i], 1 << i));
        CHECK_OK(ignis_comm_all_reduce(some[i], x[i], x[i], IGNIS_OP_SUM));
    }
    for (i = 0; i < RANKS; i++) {
        if (!some[i].id)
            continue;
        CHECK_OK(ignis_device_use(i));
        CHECK_OK(ignis_comm_synchronize(some[i]));
        CHECK_OK(ignis_array_to_host(x[i], got, IGNIS_F64, 100));
        fine &= got[0] == sum && got[99] == sum;
        CHECK_OK(ignis_array_free(x[i]));
    }
    CHECK_OK(ignis_device_use(0));
    return fine;
}

static void destroy_some(const ignis_comm *some)
{
    int i;
    for (i = 0; i < RANKS; i++)
        if (some[i].id)
            CHECK_OK(ignis_comm_destroy(some[i]));
}

TEST(one_thread_splits_all_ranks_at_once)
{
    static const int colors[] = {7, -1, 7, 7}, keys[] = {1, 0, 5, -2}, ranks[] = {1, -1, 2, 0}, own[] = {0, 1, 2, 3}, zero[RANKS] = {0};
    ignis_comm some[RANKS], pair[RANKS], ordered[RANKS], mixed[RANKS];
    int i;
    RANKS_SETUP(4);
    REQUIRE(begin_for(4, SMALL, 20));
    CHECK_OK(ignis_comm_split_all(comms, colors, keys, 4, some));
    CHECK_INT(some[1].id, 0);
    CHECK(sums_over(some, ranks, 3, 13));

    /* what was split is split again, and so is the parent; nobody is in the way of the others */
    for (i = 0; i < 3; i++) /* in another order: those of devices 3, 0, 2 */
        mixed[i] = some[i == 0 ? 3 : i == 1 ? 0 : 2];
    CHECK_OK(ignis_comm_split_all(mixed, zero + 1, NULL, 3, ordered));
    memset(pair, 0, sizeof pair);
    pair[3] = ordered[0], pair[0] = ordered[1], pair[2] = ordered[2];
    CHECK(sums_over(pair, ranks, 3, 13));
    destroy_some(some);
    CHECK(sums_over(pair, ranks, 3, 13));
    CHECK(sums_over(comms, own, 4, 15));
    destroy_some(pair);

    /* two colors, each a group of its own; they outlive their parent */
    for (i = 0; i < 4; i++)
        ordered[i] = comms[i];
    CHECK_OK(ignis_comm_split_all(ordered, (const int[]){0, 1, 1, 0}, NULL, 4, some));
    end();
    memset(pair, 0, sizeof pair);
    pair[0] = some[0], pair[3] = some[3];
    CHECK(sums_over(pair, (const int[]){0, -1, -1, 1}, 2, 9));
    destroy_some(pair);
    memset(pair, 0, sizeof pair);
    pair[1] = some[1], pair[2] = some[2];
    CHECK(sums_over(pair, (const int[]){-1, 0, 1, -1}, 2, 6));
    CHECK_OK(ignis_comm_split_all(&pair[1], (const int[]){1, 2}, NULL, 2, &some[1])); /* each alone */
    some[0].id = some[3].id = 0;
    destroy_some(pair);
    memset(pair, 0, sizeof pair);
    pair[1] = some[1];
    CHECK(sums_over(pair, zero, 1, 2));
    destroy_some(some);
}

TEST(those_who_are_left_go_on)
{
    static const int own[] = {0, 1, 2, 3}, without_1[] = {0, -1, 1, 2}, two[] = {0, -1, -1, 1};
    ignis_comm some[RANKS], fewer[RANKS], given[RANKS];
    int64_t region;
    RANKS_SETUP(4);
    REQUIRE(begin_for(4, SMALL, 20));
    region = memory_of(1).vmm_bytes;
    CHECK(region >= ignis__comm_region_bytes(4));
    CHECK_OK(ignis_comm_shrink_all(comms, 4, some)); /* before anything failed: the same again */
    CHECK_INT(memory_of(1).vmm_bytes, 2 * region);
    CHECK(sums_over(some, own, 4, 15));
    CHECK(sums_over(comms, own, 4, 15));
    destroy_some(some);
    CHECK_INT(memory_of(1).vmm_bytes, region);

    CHECK_OK(ignis_comm_abort(comms[1]));
    CHECK_STATUS(ignis_comm_barrier(comms[2]), IGNIS_ERROR_PEER, IGNIS_DIAG_COMM_BROKEN);
    memcpy(given, comms, sizeof given);
    CHECK_OK(ignis_comm_destroy(comms[1]));
    given[1].id = 0;
    CHECK_OK(ignis_comm_shrink_all(given, 4, some));
    CHECK_INT(some[1].id, 0);
    CHECK(sums_over(some, without_1, 3, 13));
    destroy_some(given);
    memset(given, 0, sizeof given);
    given[0] = some[3], given[1] = some[0]; /* in any order, the others left out */
    CHECK_OK(ignis_comm_shrink_all(given, 2, fewer));
    given[3] = fewer[0], given[0] = fewer[1];
    given[1].id = 0;
    CHECK(sums_over(given, two, 2, 9));
    CHECK(sums_over(some, without_1, 3, 13)); /* who was left out on purpose breaks nothing */
    destroy_some(given);
    destroy_some(some);
    CHECK_INT(memory_of(1).vmm_bytes, 0);
}

TEST(what_cannot_be_split_or_shrunk_is_refused)
{
    static const int colors[RANKS] = {0};
    ignis_comm others[2], out[RANKS], mixed[2], none[2] = {{0}, {0}}, job;
    ignis_comm_desc alone;
    RANKS_SETUP(2);
    REQUIRE(begin(2, SMALL));
    CHECK_OK(ignis_comm_init_all(others, NULL, 2, NULL));
    CHECK_FAILS(ignis_comm_split(comms[0], 0, 0), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("ignis_comm_split_all");
    CHECK_FAILS(ignis_comm_shrink(comms[0]), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("ignis_comm_shrink_all");
    CHECK_STATUS(ignis_comm_split_all(NULL, colors, NULL, 2, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_comm_split_all(comms, NULL, NULL, 2, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_comm_split_all(comms, colors, NULL, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_comm_split_all(comms, colors, NULL, 2, comms), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_shrink_all(comms, 2, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_STATUS(ignis_comm_split_all(comms, colors, NULL, 0, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_shrink_all(comms, IGNIS_COMM_MAX_RANKS + 1, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_split_all(comms, colors, NULL, 1, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("all 2 ranks");
    mixed[0] = comms[0], mixed[1] = others[1];
    out[0].id = 1;
    CHECK_STATUS(ignis_comm_split_all(mixed, colors, NULL, 2, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("another group");
    CHECK_INT(out[0].id, 0);
    mixed[1] = comms[0];
    CHECK_STATUS(ignis_comm_shrink_all(mixed, 2, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("second time");
    CHECK_STATUS(ignis_comm_shrink_all(none, 2, out), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_comm_split_all(none, colors, NULL, 2, out), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    memset(&alone, 0, sizeof alone);
    alone.size = 1;
    job = ignis_comm_init(&alone);
    CHECK_STATUS(ignis_comm_split_all(&job, colors, NULL, 1, out), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("calls ignis_comm_split for itself");
    CHECK_STATUS(ignis_comm_shrink_all(&job, 1, out), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("calls ignis_comm_shrink for itself");
    CHECK_OK(ignis_comm_destroy(job));
    CHECK_OK(ignis_comm_destroy(others[1]));
    CHECK_STATUS(ignis_comm_split_all(others, colors, NULL, 2, out), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_STATUS(ignis_comm_shrink_all(others, 2, out), IGNIS_ERROR_FREED, IGNIS_DIAG_COMM_FREED);
    CHECK_OK(ignis_comm_destroy(others[0]));
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 100, 0, 0, "after what was refused"));
    end();
}

/*  In a process of its own: device 1 faults while device 0 waits for it. That takes all devices, but nothing hangs. */
enum { TOO_FEW = 77 };
static int fault_main(void)
{
    const ignis_launch one = {{1, 1, 1}, {1, 1, 1}, 0, false, false};
    ignis_comm some[RANKS] = {{0}};
    ignis_kernel_desc desc;
    ignis_kernel wild;
    ignis_array waits;
    ignis_status status;
    ignis_arg arg;
    double start;
    int r;
    ignis_desc setup = test_desc(NULL);
    CHECK_OK(ignis_setup(&setup));
    if (ignis_device_count() < 3)
        return TOO_FEW;
    if (!begin_for(3, SMALL, 20))
        return 1;
    waits = make_on(0, IGNIS_F32, 100);
    CHECK_OK(ignis_array_zero(waits));
    memset(&desc, 0, sizeof desc);
    desc.source = "extern \"C\" __global__ void wild(long long at) { *(int *)at = 1; }";
    desc.entry = "wild";
    CHECK_OK(ignis_device_use(1));
    wild = ignis_kernel_compile(&desc);
    arg = ignis_arg_i64(0x1000);
    start = test_seconds();
    CHECK_OK(ignis_comm_all_reduce(comms[0], waits, waits, IGNIS_OP_SUM)); /* device 1 does not come to this */
    CHECK_OK(ignis_kernel_launch(wild, &one, &arg, 1));
    test_sleep_ms(200);
    CHECK_STATUS(ignis_comm_synchronize(comms[0]), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
    CHECK_MESSAGE_HAS("CUDA_ERROR_ILLEGAL_ADDRESS");
    for (r = 0; r < 3; r++)
        CHECK_STATUS(ignis_device_use(r), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_STATUS(ignis_comm_synchronize(comms[2]), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_STATUS(ignis_comm_shrink_all(comms, 3, some), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_LOST);
    CHECK_MESSAGE_HAS("CUDA_ERROR_ILLEGAL_ADDRESS");
    for (r = 0; r < 3; r++) {
        CHECK_INT(some[r].id, 0);
        CHECK_OK(ignis_comm_destroy(comms[r]));
    }
    CHECK_OK(ignis_kernel_free(wild));
    CHECK_OK(ignis_array_free(waits));
    status = ignis_shutdown(); /* may report what the driver says of the devices */
    CHECK(status == IGNIS_OK || status == IGNIS_ERROR_CUDA);
    CHECK(test_seconds() - start < 15); /* less than the deadline of the operation */
    ignis_status_clear();
    return test__state.failures != 0;
}

TEST(a_fault_ends_all_ranks_of_a_process)
{
    process child;
    int code;
    if (test_is_bypass() || getenv("IGNIS_SIM_SANITIZE"))
        SKIP("a memory checker takes the fault for a mistake");
    child = process_start("fault");
    code = process_end(&child);
    if (code == TOO_FEW)
        SKIP("there are fewer devices than the test needs");
    CHECK_INT(code, 0);
}

static int waiting_for;
static uint64_t is_waiting;
static ignis_vmm_range waiting_range;
enum { WAITS = 5 };

static void multiply(int rows)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor product = ignis_matmul(ignis_tensor_zeros(IGNIS_SHAPE(rows, 3), NULL), ignis_tensor_zeros(IGNIS_SHAPE(3, 5), NULL));
    CHECK(product.id != 0);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Rank 0 waits for its device behind an operation to which rank 1 has yet to come, which asks about memory and ends a capture before. */
static void *waiting_thread(void *context)
{
    int r = (int)(intptr_t)context;
    CHECK_OK(ignis_device_use(r));
    while (r > 0 && !ignis__atomic_load(&is_waiting))
        test_sleep_ms(1);
    if (r > 0) {
        ignis_memory_info info;
        ignis_vmm_range_info range_info;
        ignis_graph graph;
        test_sleep_ms(100);
        CHECK_OK(ignis_memory_query(0, &info));
        CHECK_OK(ignis_vmm_range_query(waiting_range, &range_info));
        multiply(2);
        CHECK_OK(ignis_graph_begin());
        graph = ignis_graph_end();
        CHECK(graph.id != 0);
        CHECK_OK(ignis_graph_free(graph));
    }
    CHECK_OK(ignis_comm_all_reduce(comms[r], shared_arrays.at[r], shared_arrays.at[r], IGNIS_OP_SUM));
    if (r == 0) {
        ignis__atomic_store(&is_waiting, 1);
        if (waiting_for == 0)
            CHECK(ignis_memory_trim(0) >= 0);
        if (waiting_for == 1) {
            ignis_array large = make_on(0, IGNIS_U8, 60 << 20);
            CHECK_OK(ignis_array_zero(large));
            CHECK_OK(ignis_array_free(large));
        }
        if (waiting_for == 2) {
            ignis_transport_desc desc;
            ignis_transport_handle handle;
            ignis_transport transport;
            memset(&desc, 0, sizeof desc);
            desc.kind = IGNIS_TRANSPORT_HOST;
            transport = ignis_transport_create(&desc);
            CHECK_OK(ignis_transport_initialize(transport));
            CHECK_OK(ignis_transport_export_handle(transport, shared_arrays.at[0], &handle));
            CHECK_OK(ignis_transport_handle_close(&handle));
            CHECK_OK(ignis_transport_destroy(transport));
        }
        if (waiting_for == 3)
            CHECK_OK(ignis_vmm_unmap(waiting_range, 0));
        if (waiting_for == 4)
            multiply(4);
    }
    CHECK_OK(ignis_comm_synchronize(comms[r]));
    return NULL;
}

TEST(a_thread_that_waits_holds_up_no_other)
{
    pthread_t threads[2];
    ignis_desc desc;
    ignis_vmm_desc vmm_desc;
    ignis_vmm vmm;
    int64_t granule;
    int r;
    memset(&desc, 0, sizeof desc);
    desc.memory_limit = 80 << 20;
    SETUP(&desc);
    keep_contexts();
    NEEDS_DEVICES(2);
    granule = ignis_vmm_granularity(0, false);
    memset(&vmm_desc, 0, sizeof vmm_desc);
    vmm_desc.size = granule;
    vmm_desc.device = IGNIS_DEVICE_0;
    vmm = ignis_vmm_create(&vmm_desc);
    waiting_range = ignis_vmm_reserve(granule, 0);
    CHECK_OK(ignis_vmm_map(waiting_range, 0, vmm));
    CHECK_OK(ignis_vmm_set_access(waiting_range, 0, granule, 0, IGNIS_VMM_ACCESS_READ_WRITE));
    for (waiting_for = 0; waiting_for < WAITS; waiting_for++) {
        ignis_array large;
        REQUIRE(begin_for(2, SMALL, 3));
        share_one_number();
        large = make_on(0, IGNIS_U8, 40 << 20); /* a segment that can be given back */
        CHECK_OK(ignis_array_zero(large));
        CHECK_OK(ignis_array_free(large));
        is_waiting = 0;
        for (r = 0; r < 2; r++)
            REQUIRE(pthread_create(&threads[r], NULL, waiting_thread, (void *)(intptr_t)r) == 0);
        for (r = 0; r < 2; r++)
            pthread_join(threads[r], NULL);
        free_all(&shared_arrays);
        end();
        if (test__state.failures)
            printf("while rank 0 waited in way %d\n", waiting_for);
    }
    CHECK_OK(ignis_vmm_unreserve(waiting_range));
    CHECK_OK(ignis_vmm_free(vmm));
}

/* --- what is let go -------------------------------------------------------------------------------------------------- */

TEST(a_start_that_fails_anywhere_leaves_nothing)
{
    ignis_memory_info before, after;
    int at, r;
    RANKS_SETUP(2);
    REQUIRE(begin(2, SMALL)); /* the kernels are compiled */
    end();
    before = memory();
    for (at = 1; at < 400; at++) {
        ignis_status status;
        const char *failed;
        fault_arm("cu", at, 1);
        status = ignis_comm_init_all(comms, NULL, 2, NULL);
        failed = fault.failed;
        fault_disarm();
        ignis_status_clear();
        for (r = 0; r < 2 && status == IGNIS_OK; r++) /* all went well, or the failure of this call does not matter */
            CHECK_OK(ignis_comm_destroy(comms[r]));
        if (!failed)
            break;
        CHECK(status == IGNIS_OK || comms[0].id == 0);
    }
    CHECK(at > 10 && at < 400);
    after = memory();
    CHECK_INT(after.live_bytes, before.live_bytes);
    CHECK_INT(after.pinned_bytes, before.pinned_bytes);
    CHECK_INT(after.vmm_bytes, 0);
    CHECK(after.device_free + (test_is_simulator() ? 0 : 256 << 20) >= before.device_free); /* drivers keep some for themselves */
}

TEST(a_split_that_fails_anywhere_leaves_nothing)
{
    static const int colors[] = {0, 1, 0, 1};
    ignis_comm some[RANKS];
    int64_t region;
    int at;
    RANKS_SETUP(4);
    REQUIRE(begin(4, SMALL));
    region = memory_of(1).vmm_bytes;
    CHECK_OK(ignis_comm_split_all(comms, colors, NULL, 4, some));
    destroy_some(some);
    for (at = 1; at < 400; at++) {
        ignis_status status;
        const char *failed;
        fault_reset_counts();
        fault_arm("cu", at, 1);
        status = at % 2 ? ignis_comm_split_all(comms, colors, NULL, 4, some) : ignis_comm_shrink_all(comms, 4, some);
        failed = fault.failed;
        fault_disarm();
        CHECK(status == IGNIS_OK || ignis_status_last() == status);
        CHECK(status == IGNIS_OK || (!some[0].id && !some[1].id && !some[2].id && !some[3].id));
        ignis_status_clear();
        destroy_some(some);
        CHECK(fault_count("cuMemCreate") - fault_count("cuMemRelease") <= fault_failed("cuMemRelease"));
        CHECK(fault_count("cuMemMap") - fault_count("cuMemUnmap") <= fault_failed("cuMemUnmap"));
        CHECK_INT(memory_of(1).vmm_bytes, region);
        if (!failed)
            break;
    }
    CHECK(at > 10 && at < 400);
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 100, 0, 0, "after all that"));
    end();
}

/*  T13: a driver call of an operation fails on one rank. What it could not queue the others wait for in vain, until their deadline or a
    word of that rank. */
TEST(an_operation_that_fails_anywhere)
{
    int at, r;
    RANKS_SETUP(2);
    for (at = 1; at < 20; at++) {
        ignis_status status;
        const char *failed;
        arrays a;
        REQUIRE(begin_for(2, SMALL, 0.6));
        a = make_all(IGNIS_F32, 1000, 0);
        for (r = 0; r < 2; r++)
            fill(a.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1000);
        CHECK_OK(ignis_comm_all_reduce(comms[0], a.at[0], a.at[0], IGNIS_OP_MAX)); /* loads what there is to load */
        CHECK_OK(ignis_comm_all_reduce(comms[1], a.at[1], a.at[1], IGNIS_OP_MAX));
        settle();
        fault_arm("cu", at, 1);
        status = ignis_comm_all_reduce(comms[0], a.at[0], a.at[0], IGNIS_OP_MAX);
        failed = fault.failed;
        fault_disarm();
        CHECK(status == IGNIS_OK || ignis_status_last() == status);
        ignis_status_clear();
        CHECK(ignis_comm_all_reduce(comms[1], a.at[1], a.at[1], IGNIS_OP_MAX) == IGNIS_OK || status != IGNIS_OK);
        if (status == IGNIS_OK) {
            settle();
            holds(&a, IGNIS_OP_MAX, IGNIS_F32, 1000, expect_combined, "although a call failed");
        } else {
            (void)ignis_comm_synchronize(comms[1]);
            CHECK(ignis_status_last() == IGNIS_OK || ignis_status_last() == IGNIS_ERROR_TIMEOUT || ignis_status_last() == IGNIS_ERROR_PEER);
            (void)ignis_comm_synchronize(comms[0]);
        }
        ignis_status_clear();
        free_all(&a);
        end();
        if (!failed)
            break;
    }
    CHECK(at > 1 && at < 20);
}

/*  T13: shutdown with communicators alive. It goes to its end whatever fails, and the next setup works. */
TEST(a_shutdown_that_fails_anywhere)
{
    const int step = test_env("IGNIS_SOAK") ? 1 : 7;
    int at;
    RANKS_SETUP(2);
    if (test_is_memcheck())
        SKIP("memory that the driver is made to keep would be reported");
    test_leaks_expected = true;
    for (at = 1; at < 400; at += step) {
        const char *failed;
        REQUIRE(begin(2, SMALL));
        CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 100, 0, 0, "before the shutdown"));
        fault_arm("cu", at, 1);
        (void)ignis_shutdown();
        failed = fault.failed;
        fault_disarm();
        ignis_status_clear();
        SETUP(NULL);
        if (!failed)
            break;
    }
    CHECK(at > 7 && at < 400);
    REQUIRE(begin(2, SMALL));
    CHECK(all_reduce_is_right(IGNIS_F32, IGNIS_OP_SUM, 100, 0, 0, "after all shutdowns"));
    end();
}

TEST(more_than_4_gib)
{
    const int64_t count = ((int64_t)4 << 30) + 17;
    ignis_array in[2], out[2];
    uint8_t ends[2][64];
    int r, i;
    RANKS_SETUP(2);
    if (test_is_simulator())
        SKIP("the simulator is too slow for 4 GiB");
    REQUIRE(begin(2, ""));
    for (r = 0; r < 2; r++) {
        in[r] = make_on(r, IGNIS_U8, count);
        out[r] = make_on(r, IGNIS_U8, count);
        CHECK_OK(ignis_array_fill(in[r], r + 1));
    }
    for (r = 0; r < 2; r++)
        CHECK_OK(ignis_comm_all_reduce(comms[r], in[r], out[r], IGNIS_OP_SUM));
    settle();
    for (r = 0; r < 2; r++) {
        ignis_array head = ignis_array_slice(out[r], 0, 0, 64), tail = ignis_array_slice(out[r], 0, count - 64, 64);
        CHECK_OK(ignis_array_to_host_raw(head, ends[0], 64));
        CHECK_OK(ignis_array_to_host_raw(tail, ends[1], 64));
        for (i = 0; i < 64; i++)
            CHECK(ends[0][i] == 3 && ends[1][i] == 3);
        CHECK_OK(ignis_array_free(head));
        CHECK_OK(ignis_array_free(tail));
        CHECK_OK(ignis_array_free(in[r]));
        CHECK_OK(ignis_array_free(out[r]));
    }
    end();
}

int main(int argc, char **argv)
{
    setenv("IGNIS_SIM_DEVICES", "4", 0);
    if (process_role(argc, argv))
        return fault_main();
    return test_run(argc, argv);
}
