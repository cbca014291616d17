// SPDX-License-Identifier: MIT
/*  comm_ranks.h - collective operations between devices of one process: ranks, their arrays, and what these have to
    hold */
#ifndef COMM_RANKS_H
#define COMM_RANKS_H

#include "test.h"

#include "processes.h"

#include "ignis_collective.h"

enum { RANKS = 4 };

/*  Ways to do an operation, as IGNIS_COMM_TUNE. Few threads and small chunks make many steps of small arrays. */
#define SMALL "ll_blocks=3,ll_threads=64,blocks=3,threads=64,chunk=3K,lanes=2"
static const char *const ways[] = {
    SMALL ",ll_max=1M,ll_two_max=0,one_shot_max=0", SMALL ",ll_max=0,ll_two_max=1M,one_shot_max=0",
    SMALL ",ll_max=0,ll_two_max=0,one_shot_max=1024M", SMALL ",ll_max=0,ll_two_max=0,one_shot_max=0"};
enum { WAYS = 4 };

static ignis_comm comms[RANKS];
static int size; /* of the communicator under test */

static inline bool begin_for(int ranks, const char *tune, double timeout_s)
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
static inline bool begin(int ranks, const char *tune) { return begin_for(ranks, tune, 30); }

static inline void end(void)
{
    int r;
    for (r = 0; r < size; r++)
        CHECK_OK(ignis_comm_destroy(comms[r]));
}

/*  Contexts of GPUs take a second each to make: one that somebody has kept is there at the next setup. */
static inline void keep_contexts(void)
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

static inline ignis_array make_on(int rank, ignis_dtype dtype, int64_t numel)
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

static inline arrays make_all(ignis_dtype dtype, int64_t numel, int offset)
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

static inline void free_all(const arrays *a)
{
    int r;
    for (r = 0; r < size; r++) {
        CHECK_OK(ignis_array_free(a->at[r]));
        CHECK_OK(ignis_array_free(a->whole[r]));
    }
}

/*  Waits for all ranks. */
static inline void settle(void)
{
    int r;
    for (r = 0; r < size; r++) {
        CHECK_OK(ignis_device_use(r));
        CHECK_OK(ignis_comm_synchronize(comms[r]));
    }
}

/*  Element i of rank r. */
static inline double number(ignis_op op, ignis_dtype dtype, int r, int64_t i)
{
    if (op == IGNIS_OP_PROD)
        return (double)((i * 5 + r * 3) % 2 + 1) * (dtype != IGNIS_U8 && (i + r) % 3 == 0 ? -1 : 1);
    if (dtype == IGNIS_F8_E4M3 || dtype == IGNIS_F8_E5M2)
        return (double)((i * 7 + r * 13) % 9 - 4); /* what both have */
    return dtype == IGNIS_U8 ? (double)((i * 7 + r * 5) % 11) : (double)((i * 7 + r * 13) % 23 - 11);
}

/*  What the operation makes of element i of all ranks; an average is rounded as a kernel rounds it. */
static inline double combined(ignis_op op, ignis_dtype dtype, int64_t i)
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

static inline void fill(ignis_array array, ignis_op op, ignis_dtype dtype, int r, int64_t count)
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

static inline double expect_combined(ignis_op op, ignis_dtype dtype, int rank, int64_t i)
{
    return (void)rank, combined(op, dtype, i);
}
static inline double expect_part(ignis_op op, ignis_dtype dtype, int rank, int64_t i)
{
    return combined(op, dtype, rank * part_of + i);
}
static inline double expect_gathered(ignis_op op, ignis_dtype dtype, int rank, int64_t i)
{
    return (void)rank, number(op, dtype, (int)(i / part_of), i % part_of);
}
static inline double expect_exchanged(ignis_op op, ignis_dtype dtype, int rank, int64_t i)
{
    return number(op, dtype, (int)(i / part_of), rank * part_of + i % part_of);
}
static inline double expect_root(ignis_op op, ignis_dtype dtype, int rank, int64_t i)
{
    return (void)rank, number(op, dtype, root_is, i);
}
static inline double expect_reduced(ignis_op op, ignis_dtype dtype, int rank, int64_t i)
{
    return rank == root_is ? combined(op, dtype, i) : 0;
}
static inline double expect_previous(ignis_op op, ignis_dtype dtype, int rank, int64_t i)
{
    return number(op, dtype, (rank + size - 1) % size, i);
}

static inline bool holds(const arrays *out, ignis_op op, ignis_dtype dtype, int64_t count, expected_fn expected,
                         const char *what)
{
    double *wanted = (double *)malloc(sizeof(double) * (size_t)(count + 1)),
           *got = (double *)malloc(sizeof(double) * (size_t)(count + 1));
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
                snprintf(text, sizeof text,
                         "%s, op %d of %s on rank %d of %d, %lld elements: element %lld is %g, expected %g", what,
                         (int)op, ignis__dtypes[dtype].name, r, size, (long long)count, (long long)i, got[i],
                         wanted[i]);
                test__fail(__FILE__, __LINE__, text);
                fine = false;
            }
        CHECK_OK(ignis_array_free(rounded));
    }
    free(wanted);
    free(got);
    return fine;
}

static inline bool all_reduce_is_right(ignis_dtype dtype, ignis_op op, int64_t count, int in_offset, int out_offset,
                                       const char *what)
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

static inline void *abort_soon(void *context)
{
    test_sleep_ms(100);
    CHECK_OK(ignis_comm_abort(*(ignis_comm *)context));
    return NULL;
}

static arrays shared_arrays;

/*  shared_arrays of a number each, summed once: what the sum needs is loaded then. */
static inline void share_one_number(void)
{
    int r;
    shared_arrays = make_all(IGNIS_F32, 1, 0);
    for (r = 0; r < size; r++)
        fill(shared_arrays.at[r], IGNIS_OP_SUM, IGNIS_F32, r, 1);
    for (r = 0; r < size; r++)
        CHECK_OK(ignis_comm_all_reduce(comms[r], shared_arrays.at[r], shared_arrays.at[r], IGNIS_OP_SUM));
    settle();
}

#endif
