// SPDX-License-Identifier: MIT
/*  test_nccl.c - NCCL, opened at run time: what is missing is told, and what is there works */
#include "array.h"

#include "ignis_collective.h"

#include "fake_nccl.h"
#include "processes.h"

enum { RANKS_MAX = 4, PATIENCE_MS = 20000 };

/* --- libraries that are not what they should be ------------------------------------------------------------------ */

TEST(a_missing_nccl_is_told_and_the_rest_works)
{
    ignis_desc desc = test_desc(NULL);
    ignis_array array;
    ignis__nccl_id id;
    desc.nccl_library = "missing/libnccl.so.2";
    SETUP(&desc);
    CHECK(!ignis__nccl_make_id("ignis_comm_init", &id));
    test__check_failure(__FILE__, __LINE__, "ignis_comm_init(", IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_MISSING);
    CHECK_MESSAGE_HAS("missing/libnccl.so.2");
    CHECK_MESSAGE_HAS("IGNIS_NCCL_LIBRARY");
    array = test_array(2, 3);
    CHECK_OK(ignis_array_free(array));
}

TEST(a_library_that_is_not_nccl_is_told)
{
    ignis_desc desc = test_desc(NULL);
    ignis__nccl_id id;
    desc.nccl_library = "libm.so.6";
    SETUP(&desc);
    CHECK(!ignis__nccl_make_id("ignis_comm_init", &id));
    test__check_failure(__FILE__, __LINE__, "ignis_comm_init(", IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_SYMBOL);
    CHECK_MESSAGE_HAS("libm.so.6");
    CHECK_MESSAGE_HAS("older than NCCL 2.19");
}

TEST(an_nccl_that_is_too_old_is_told)
{
    ignis_desc desc = test_desc(NULL);
    ignis__nccl_id id;
    char path[64];
    snprintf(path, sizeof path, "/tmp/ignis_test_nccl_old_%d.so", (int)getpid());
    if (!fake_nccl(path, 21803, "", ""))
        SKIP("there is no compiler");
    desc.nccl_library = path;
    SETUP(&desc);
    CHECK(!ignis__nccl_make_id("ignis_comm_init", &id));
    test__check_failure(__FILE__, __LINE__, "ignis_comm_init(", IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_SYMBOL);
    CHECK_MESSAGE_HAS("version 2.18.3; 2.19.0 or newer is needed");
    unlink(path);
}

TEST(an_nccl_without_a_function_is_told)
{
    ignis_desc desc = test_desc(NULL);
    ignis__nccl_id id;
    char path[64];
    snprintf(path, sizeof path, "/tmp/ignis_test_nccl_part_%d.so", (int)getpid());
    if (!fake_nccl(path, 22809, "ncclCommGetAsyncError", ""))
        SKIP("there is no compiler");
    desc.nccl_library = path;
    SETUP(&desc);
    CHECK(!ignis__nccl_make_id("ignis_comm_init", &id));
    test__check_failure(__FILE__, __LINE__, "ignis_comm_init(", IGNIS_ERROR_LIBRARY, IGNIS_DIAG_LIBRARY_SYMBOL);
    CHECK_MESSAGE_HAS("ncclCommGetAsyncError");
    unlink(path);
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

typedef struct rank {
    int rank, size;
    const ignis__nccl_id *id;
    ignis__nccl_comm *nccl;
    ignis_dtype dtype;
    ignis_op op;
} rank;

/*  Sets up, and makes an id; a sentence where the tests of this file cannot run. */
static const char *why_not(int ranks, ignis__nccl_id *id)
{
    if (ignis_device_count() < ranks)
        return "there are not enough devices";
    if (!ignis__nccl_make_id("test", id)) {
        ignis_status_clear();
        return "there is no NCCL";
    }
    return NULL;
}
#define NEEDS_NCCL(ranks, id)                     \
    do {                                          \
        const char *why = why_not((ranks), (id)); \
        if (why)                                  \
            SKIP(why);                            \
    } while (0)

/*  Joins, and waits for the others until the deadline, by ignis__monotonic_ns. Null on failure. */
static ignis__nccl_comm *join(ignis__device *device, const ignis__nccl_id *id, int number, int size,
                              int64_t deadline_ns)
{
    ignis__nccl_comm *nccl = ignis__nccl_begin("join", device, id, number, size, deadline_ns - ignis__monotonic_ns());
    if (nccl && !ignis__nccl_wait_joined("join", nccl)) {
        ignis__nccl_leave("join", nccl);
        nccl = NULL;
    }
    return nccl;
}

static bool rank_join(rank *r)
{
    CHECK_OK(ignis_device_use(r->rank));
    r->nccl =
        join(&ignis__devices[r->rank], r->id, r->rank, r->size, ignis__monotonic_ns() + (int64_t)PATIENCE_MS * 1000000);
    CHECK(r->nccl);
    return r->nccl != NULL;
}

static void ranks_run(int ranks, const ignis__nccl_id *id, ignis_dtype dtype, ignis_op op, void *(*run)(void *))
{
    pthread_t threads[RANKS_MAX];
    rank r[RANKS_MAX];
    int i;
    for (i = 0; i < ranks; i++) {
        memset(&r[i], 0, sizeof r[i]);
        r[i].rank = i, r[i].size = ranks, r[i].id = id, r[i].dtype = dtype, r[i].op = op;
        pthread_create(&threads[i], NULL, run, &r[i]);
    }
    for (i = 0; i < ranks; i++)
        pthread_join(threads[i], NULL);
}

/*  A small number that depends on rank and place, the same for all kinds of element. */
static double value_of(int rank_number, int64_t i) { return (double)(1 + (rank_number + i) % 3); }

static ignis_array array_make(const rank *r, int64_t count, double nothing)
{
    ignis_array array = make(IGNIS_SHAPE(count), r->dtype);
    double *values = (double *)malloc(sizeof(double) * (size_t)(count + 1));
    int64_t i;
    for (i = 0; values && i < count; i++)
        values[i] = nothing != 0 ? nothing : value_of(r->rank, i);
    CHECK_OK(ignis_array_from_host(array, values, IGNIS_F64, count));
    free(values);
    return array;
}

static ignis__comm_task task_of(const rank *r, ignis__comm_kind kind, ignis_array in, ignis_array out, int64_t count,
                                int root)
{
    ignis__comm_task task;
    task.kind = kind;
    task.in = in.id ? (ignis__address)(uintptr_t)ignis_array_device_ptr(in) : 0;
    task.out = out.id ? (ignis__address)(uintptr_t)ignis_array_device_ptr(out) : 0;
    task.count = count;
    task.dtype = r->dtype;
    task.op = r->op;
    task.root = root;
    return task;
}

static bool run_one(const rank *r, ignis__comm_kind kind, ignis_array in, ignis_array out, int64_t count, int root)
{
    ignis__comm_task task = task_of(r, kind, in, out, count, root);
    bool aborted;
    return ignis__nccl_run("run", r->nccl, &task, 1, r->size, ignis_stream_current(), &aborted);
}

/*  Checks that an operation is not queued because another call has aborted the communicator, which is not reported. */
static void expect_aborted(ignis__nccl_comm *nccl, int size, const ignis__comm_task *task)
{
    bool aborted = false;
    ignis_status_clear();
    CHECK(!ignis__nccl_run("run", nccl, task, 1, size, ignis_stream_current(), &aborted));
    CHECK(aborted);
    CHECK_INT(ignis_status_last(), IGNIS_OK);
}

static void expect(const rank *r, const char *what, ignis_array out, int64_t count,
                   double (*wanted)(const rank *r, int64_t i, int64_t n), int64_t n)
{
    double *values = (double *)malloc(sizeof(double) * (size_t)count);
    int64_t i, wrong = 0;
    CHECK_OK(ignis_array_to_host(out, values, IGNIS_F64, count));
    for (i = 0; i < count; i++)
        wrong += values[i] != wanted(r, i, n);
    if (wrong)
        printf("%s, %s, op %d, rank %d of %d: %lld of %lld are wrong\n", what, ignis__dtypes[r->dtype].name, (int)r->op,
               r->rank, r->size, (long long)wrong, (long long)count);
    CHECK_INT(wrong, 0);
    free(values);
}

static double reduced(const rank *r, int64_t i, int64_t n)
{
    double result = value_of(0, i);
    int k;
    (void)n;
    for (k = 1; k < r->size; k++) {
        double other = value_of(k, i);
        if (r->op == IGNIS_OP_PROD)
            result *= other;
        else if (r->op == IGNIS_OP_MIN)
            result = other < result ? other : result;
        else if (r->op == IGNIS_OP_MAX)
            result = other > result ? other : result;
        else
            result += other;
    }
    if (r->op == IGNIS_OP_AVG) { /* as the element type has it */
        if (r->dtype == IGNIS_I32 || r->dtype == IGNIS_I64 || r->dtype == IGNIS_U8)
            return (double)((int64_t)result / r->size);
        if (r->dtype == IGNIS_F16 || r->dtype == IGNIS_BF16 || r->dtype == IGNIS_F32) {
            float f = (float)result / (float)r->size;
            unsigned char bytes[8];
            ignis__convert(bytes, r->dtype, &f, IGNIS_F32, 1);
            ignis__convert(&result, IGNIS_F64, bytes, r->dtype, 1);
            return result;
        }
        return result / r->size;
    }
    return result;
}
static double scattered(const rank *r, int64_t i, int64_t n) { return reduced(r, r->rank * n + i, n); }
static double of_root(const rank *r, int64_t i, int64_t n) { return (void)n, value_of(r->size - 1, i); }
static double gathered(const rank *r, int64_t i, int64_t n) { return (void)r, value_of((int)(i / n), i % n); }
static double transposed(const rank *r, int64_t i, int64_t n) { return value_of((int)(i / n), r->rank * n + i % n); }
static double of_neighbour(const rank *r, int64_t i, int64_t n) { return (void)n, value_of(r->rank ^ 1, i); }
static double of_left(const rank *r, int64_t i, int64_t n) { return (void)n, value_of(r->rank - 1, i); }

static void *run_reductions(void *context)
{
    rank *r = (rank *)context;
    const int64_t n = 1000;
    ignis_array in, out;
    if (!rank_join(r))
        return NULL;
    in = array_make(r, r->size * n, 0);
    out = array_make(r, r->size * n, 99);
    CHECK(run_one(r, IGNIS__COMM_ALL_REDUCE, in, out, r->size * n, 0));
    expect(r, "all_reduce", out, r->size * n, reduced, n);
    CHECK(run_one(r, IGNIS__COMM_REDUCE_SCATTER, in, out, n, 0));
    ignis_array part = ignis_array_slice(out, 0, 0, n);
    expect(r, "reduce_scatter", part, n, scattered, n);
    CHECK_OK(ignis_array_free(part));
    CHECK(run_one(r, IGNIS__COMM_REDUCE, in, out, r->size * n, r->size - 1));
    if (r->rank == r->size - 1)
        expect(r, "reduce", out, r->size * n, reduced, n);
    CHECK(run_one(r, IGNIS__COMM_ALL_REDUCE, in, in, r->size * n, 0));
    expect(r, "all_reduce in place", in, r->size * n, reduced, n);
    CHECK_OK(ignis_synchronize());
    ignis__nccl_leave("leave", r->nccl);
    CHECK_OK(ignis_array_free(in));
    CHECK_OK(ignis_array_free(out));
    return NULL;
}

TEST(reductions_of_every_element_type_and_operation)
{
    ignis__nccl_id id;
    int dtype, op;
    SETUP(NULL);
    for (dtype = IGNIS_F16; dtype <= IGNIS_U8;
         dtype++) { /* floats of 8 bits NCCL adds up as floats of 8 or 16 bits, by its version */
        for (op = 0; op < IGNIS_OP_COUNT; op++) {
            if (op != IGNIS_OP_SUM && dtype % 2 == 0) /* each of both at least once */
                continue;
            NEEDS_NCCL(2, &id);
            ranks_run(2, &id, (ignis_dtype)dtype, (ignis_op)op, run_reductions);
        }
    }
}

static void *run_moves(void *context)
{
    rank *r = (rank *)context;
    const int64_t n = 100000; /* several pieces of what the stand-in exchanges */
    ignis_array in, out, none = IGNIS__ZERO;
    ignis__comm_task both[2];
    bool aborted;
    if (!rank_join(r))
        return NULL;
    in = array_make(r, r->size * n, 0);
    out = array_make(r, r->size * n, 99);
    CHECK(run_one(r, IGNIS__COMM_BROADCAST, in, out, r->size * n, r->size - 1));
    expect(r, "broadcast", out, r->size * n, of_root, n);
    CHECK(run_one(r, IGNIS__COMM_ALL_GATHER, in, out, n, 0));
    expect(r, "all_gather", out, r->size * n, gathered, n);
    CHECK(run_one(r, IGNIS__COMM_ALL_TO_ALL, in, out, n, 0));
    expect(r, "all_to_all", out, r->size * n, transposed, n);
    both[0] = task_of(r, IGNIS__COMM_SEND, in, none, n, r->rank ^ 1);
    both[1] = task_of(r, IGNIS__COMM_RECV, none, out, n, r->rank ^ 1);
    CHECK(ignis__nccl_run("run", r->nccl, both, 2, r->size, ignis_stream_current(), &aborted));
    ignis_array part = ignis_array_slice(out, 0, 0, n);
    expect(r, "send and recv", part, n, of_neighbour, n);
    if (r->rank > 0) {
        CHECK(run_one(r, IGNIS__COMM_RECV, none, out, n, r->rank - 1));
        expect(r, "recv", part, n, of_left, n);
    }
    if (r->rank + 1 < r->size)
        CHECK(run_one(r, IGNIS__COMM_SEND, in, none, n, r->rank + 1));
    CHECK_OK(ignis_array_free(part));
    CHECK_OK(ignis_synchronize());
    ignis__nccl_leave("leave", r->nccl);
    CHECK_OK(ignis_array_free(in));
    CHECK_OK(ignis_array_free(out));
    return NULL;
}

TEST(data_goes_to_every_rank)
{
    ignis__nccl_id id;
    SETUP(NULL);
    NEEDS_NCCL(2, &id);
    ranks_run(2, &id, IGNIS_F32, IGNIS_OP_SUM, run_moves);
}

TEST(four_ranks)
{
    ignis__nccl_id id;
    SETUP(NULL);
    NEEDS_NCCL(4, &id);
    ranks_run(4, &id, IGNIS_BF16, IGNIS_OP_SUM, run_moves);
    NEEDS_NCCL(4, &id);
    ranks_run(4, &id, IGNIS_F32, IGNIS_OP_AVG, run_reductions);
}

static void *run_captured(void *context)
{
    rank *r = (rank *)context;
    ignis_array in, out;
    ignis_graph graph;
    int i;
    if (!rank_join(r))
        return NULL;
    in = array_make(r, 64, 0);
    out = array_make(r, 64, 99);
    CHECK(run_one(r, IGNIS__COMM_ALL_REDUCE, in, out, 64, 0)); /* connections are made outside of the capture */
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_graph_begin());
    CHECK(run_one(r, IGNIS__COMM_ALL_REDUCE, in, out, 64, 0));
    CHECK(run_one(r, IGNIS__COMM_BROADCAST, out, out, 64, 0));
    graph = ignis_graph_end();
    CHECK(graph.id);
    for (i = 0; i < 3; i++)
        CHECK_OK(ignis_graph_launch(graph));
    expect(r, "all_reduce of a graph", out, 64, reduced, 64);
    CHECK_OK(ignis_graph_free(graph));
    ignis__nccl_leave("leave", r->nccl);
    CHECK_OK(ignis_array_free(in));
    CHECK_OK(ignis_array_free(out));
    return NULL;
}

TEST(operations_in_a_graph)
{
    ignis__nccl_id id;
    SETUP(NULL);
    NEEDS_NCCL(2, &id);
    ranks_run(2, &id, IGNIS_F32, IGNIS_OP_SUM, run_captured);
}

TEST(a_rank_that_does_not_come_is_a_timeout)
{
    ignis__nccl_id id;
    int64_t begin;
    SETUP(NULL);
    NEEDS_NCCL(2, &id);
    begin = ignis__monotonic_ns();
    CHECK(!join(&ignis__devices[0], &id, 0, 2, begin + 300000000));
    test__check_failure(__FILE__, __LINE__, "join(", IGNIS_ERROR_TIMEOUT, IGNIS_DIAG_COMM_TIMEOUT);
    CHECK_MESSAGE_HAS("other ranks did not come");
    CHECK(ignis__monotonic_ns() - begin < (int64_t)10 * 1000000000);
}

TEST(what_nccl_refuses_is_told)
{
    ignis__comm_task task = {IGNIS__COMM_BROADCAST, 0, 0, 1, IGNIS_F32, IGNIS_OP_SUM, 7};
    ignis__nccl_id id;
    ignis__nccl_comm *nccl;
    bool aborted;
    SETUP(NULL);
    NEEDS_NCCL(1, &id);
    CHECK(!ignis__nccl_begin("join", &ignis__devices[0], &id, 5, 2, 1000000000));
    test__check_failure(__FILE__, __LINE__, "join(", IGNIS_ERROR_CUDA, IGNIS_DIAG_NCCL_CALL);
    CHECK_MESSAGE_HAS("ncclCommInitRankConfig failed with \"invalid argument"); /* some versions say more here */
    CHECK_MESSAGE_HAS("\" (4)");
    nccl = join(&ignis__devices[0], &id, 0, 1, ignis__monotonic_ns() + (int64_t)PATIENCE_MS * 1000000);
    REQUIRE(nccl);
    CHECK(!ignis__nccl_run("run", nccl, &task, 1, 1, ignis_stream_current(), &aborted));
    test__check_failure(__FILE__, __LINE__, "run(", IGNIS_ERROR_CUDA, IGNIS_DIAG_NCCL_CALL);
    CHECK(!aborted);
    task.root = 0;
    expect_aborted(nccl, 1, &task);
    ignis__nccl_leave("leave", nccl);
}

/* --- other processes ------------------------------------------------------------------------------------------------
   */

/*  Rank 0 waits in an operation to which rank 1 never comes, until another thread aborts it. */
static void *abort_soon(void *context)
{
    test_sleep_ms(200);
    ignis__nccl_abort((ignis__nccl_comm *)context);
    return NULL;
}

static void run_abort(rank *r)
{
    ignis__comm_task task;
    pthread_t thread;
    ignis_array in;
    if (!rank_join(r))
        return;
    in = array_make(r, 100, 0);
    CHECK_OK(ignis_synchronize());
    if (r->rank == 0) {
        CHECK(run_one(r, IGNIS__COMM_ALL_REDUCE, in, in, 100, 0));
        pthread_create(&thread, NULL, abort_soon, r->nccl);
        CHECK_OK(ignis_synchronize());
        pthread_join(thread, NULL);
        task = task_of(r, IGNIS__COMM_ALL_REDUCE, in, in, 100, 0);
        expect_aborted(r->nccl, 2, &task);
    } else {
        sleep(1);
        ignis__nccl_abort(r->nccl);
    }
    ignis__nccl_leave("leave", r->nccl);
    CHECK_OK(ignis_array_free(in));
}

/*  What a process is told that is one of two ranks. */
typedef struct part {
    ignis__nccl_id id;
    int rank;
} part;

static int role(const char *name)
{
    ignis_desc desc = test_desc(NULL);
    part mine;
    rank r;
    setenv("IGNIS_SIM_STREAMS", "thread", 1);
    if (!process_receive(PROCESS_SOCKET, &mine, sizeof mine, NULL) || ignis_setup(&desc) != IGNIS_OK)
        return 1;
    memset(&r, 0, sizeof r);
    r.rank = mine.rank, r.size = 2, r.id = &mine.id, r.dtype = IGNIS_F32;
    if (strcmp(name, "moves") == 0)
        run_moves(&r);
    else
        run_abort(&r);
    ignis_shutdown();
    return test__state.failures != 0;
}

static void run_processes(const char *name, const ignis__nccl_id *id)
{
    process children[2];
    part one;
    one.id = *id;
    for (one.rank = 0; one.rank < 2; one.rank++) {
        children[one.rank] = process_start(name);
        CHECK(process_send(children[one.rank].socket, &one, sizeof one, -1));
    }
    for (one.rank = 0; one.rank < 2; one.rank++)
        CHECK_INT(process_end(&children[one.rank]), 0);
}

TEST(ranks_in_two_processes)
{
    ignis__nccl_id id;
    SETUP(NULL);
    NEEDS_NCCL(2, &id);
    if (!test_is_simulator())
        SKIP("the process that makes an id of NCCL has to take part");
    run_processes("moves", &id);
}

TEST(an_operation_that_waits_can_be_aborted)
{
    ignis__nccl_id id;
    SETUP(NULL);
    NEEDS_NCCL(2, &id);
    if (!test_is_simulator())
        SKIP("the process that makes an id of NCCL has to take part");
    run_processes("abort", &id);
}

int main(int argc, char **argv)
{
    const char *name = process_role(argc, argv);
    setenv("IGNIS_SIM_DEVICES", "4", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast is not asked for on machines that others use too */
    return name ? role(name) : test_run(argc, argv);
}
