// SPDX-License-Identifier: MIT
/*  test_threads.c - 16 threads on shared arrays, kernels and tensors */
#include "empty.h"
#include "tensor.h"
#include <unistd.h>

enum { THREADS = 16 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 80 };
#else
enum { ROUNDS = 600 };
#endif

static pthread_barrier_t start;
static struct {
    int index;
    void (*work)(int index);
} thread_args[THREADS];

static void *thread_main(void *arg)
{
    int index = (int)((char *)arg - (char *)thread_args) / (int)sizeof thread_args[0];
    pthread_barrier_wait(&start);
    thread_args[index].work(index);
    if (ignis_status_last() != IGNIS_OK)
        test__fail(__FILE__, __LINE__, ignis_status_message());
    ignis_status_clear();
    return NULL;
}

/*  Runs work on all threads at once. */
static void run_threads(void (*work)(int index))
{
    pthread_t threads[THREADS];
    int i;
    pthread_barrier_init(&start, NULL, THREADS);
    for (i = 0; i < THREADS; i++) {
        thread_args[i].index = i;
        thread_args[i].work = work;
        if (pthread_create(&threads[i], NULL, thread_main, &thread_args[i]) != 0)
            abort();
    }
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
}

static unsigned next_random(unsigned *state) { return (*state = *state * 1664525U + 1013904223U) >> 8; }

/* --- random misuse of shared handles -------------------------------------------------------------------------- */

enum { SLOTS = 24, ALL = 2 * THREADS * ROUNDS + SLOTS, N = 64 };

static struct {
    pthread_mutex_t lock;
    ignis_array slots[SLOTS]; /* what the threads work on */
    ignis_array all[ALL];     /* everything that was ever made */
    int count;
} shared = {PTHREAD_MUTEX_INITIALIZER, {{0}}, {{0}}, 0};

static ignis_array shared_get(int slot)
{
    ignis_array array;
    pthread_mutex_lock(&shared.lock);
    array = shared.slots[slot];
    pthread_mutex_unlock(&shared.lock);
    return array;
}

static void shared_put(int slot, ignis_array array)
{
    pthread_mutex_lock(&shared.lock);
    if (array.id) {
        if (shared.count == ALL)
            abort();
        shared.all[shared.count++] = array;
        shared.slots[slot] = array;
    }
    pthread_mutex_unlock(&shared.lock);
}

/*  A shared handle may be freed, owned by another or referenced at any moment: these failures are the documented ones.
    */
static void expect_documented(const char *what)
{
    ignis_status_info info;
    char text[1024];
    ignis_status_query(&info);
    switch (info.diagnostic) {
    case IGNIS_DIAG_NONE:
    case IGNIS_DIAG_ARRAY_FREED:
    case IGNIS_DIAG_FREE_BY_OTHER:
    case IGNIS_DIAG_FREE_REFERENCED:
    case IGNIS_DIAG_DOUBLE_ACQUIRE:
    case IGNIS_DIAG_RELEASE_BY_OTHER:
    case IGNIS_DIAG_TRANSFER_REFERENCED:
    case IGNIS_DIAG_OWNER_DIFFERS:
    case IGNIS_DIAG_REF_COUNT_ZERO:
    case IGNIS_DIAG_PIN_TWICE:
    case IGNIS_DIAG_PIN_MISSING: break;
    default:
        snprintf(text, sizeof text, "%s: %s: %.800s", what, ignis_diagnostic_name(info.diagnostic), info.message);
        test__fail(__FILE__, __LINE__, text);
    }
    ignis_status_clear();
}

/*  A loan to the storage layer, while others make views of the array and free it. */
static void save_shared(int index, ignis_array a)
{
    static const char *const name = "a";
    char path[64];
    ignis_tensor tensor = ignis_tensor_from_array(a, false);
    if (!tensor.id)
        return;
    snprintf(path, sizeof path, "/tmp/ignis_test_threads_%ld_%d", (long)getpid(), index);
    ignis_save(path, &name, &tensor, 1);
    remove(path);
    CHECK_OK(ignis_tensor_release(tensor));
}

static void misuse(int index)
{
    unsigned random = (unsigned)index + 1;
    float data[N];
    char text[256];
    ignis_array_info info;
    ignis_contract_entry entries[SLOTS];
    int round, i;
    for (i = 0; i < N; i++)
        data[i] = (float)i;
    for (round = 0; round < ROUNDS; round++) {
        int slot = (int)(next_random(&random) % SLOTS), operation = (int)(next_random(&random) % 28);
        ignis_owner owner = (ignis_owner)(IGNIS_OWNER_IGNIS + (int)(next_random(&random) % 3));
        ignis_array a = shared_get(slot), b = shared_get((slot + 1) % SLOTS), made = {0};
        switch (operation) {
        case 0: shared_put(slot, test_array(1, N)); break;
        case 1: shared_put(slot, ignis_array_slice(a, 0, 0, 1)); break;
        case 2: shared_put(slot, ignis_array_reshape(a, IGNIS_SHAPE(1, N))); break;
        case 3: shared_put(slot, ignis_array_clone(a)); break;
        case 4:
        case 5: ignis_array_free(a); break;
        case 6: ignis_array_free_as(a, owner); break;
        case 7: ignis_array_increment_ref(a); break;
        case 8:
        case 9: ignis_array_decrement_ref(a); break;
        case 10: ignis_array_pin(a); break;
        case 11: ignis_array_unpin(a); break;
        case 12: ignis_array_transfer_ownership(a, owner); break;
        case 13: ignis_contract_acquire(a, owner); break;
        case 14: ignis_contract_release(a, owner); break;
        case 15: ignis_array_from_host(a, data, IGNIS_F32, N); break;
        case 16: ignis_array_to_host(a, data, IGNIS_F32, N); break;
        case 17:
            ignis_contract_track(a);
            ignis_contract_audit(entries, SLOTS, -1);
            ignis_contract_untrack(a);
            break;
        case 18:
            if (ignis_array_query(a, &info) == IGNIS_OK)
                CHECK(info.ref_count >= 0 && info.shape.dim[1] == N);
            CHECK(ignis_array_to_string(a, text, sizeof text) > 0);
            break;
        case 19: ignis_contract_assert_owner(a, owner); break;
        case 20: ignis_array_mark_written(a); break;
        case 21: ignis_array_write_rows(a, b, 0); break;
        case 22: ignis_array_copy(a, b); break;
        case 23: ignis_array_fill(a, 1); break;
        case 24: made = ignis_array_cast(a, IGNIS_F16); break;
        case 25: CHECK_OK(ignis_contract_untrack(a)); break;
        case 26:
            if (round % 16 == 0) /* it waits for the disk */
                save_shared(index, a);
            break;
        default: ignis_array_add(a, a, b); break;
        }
        if (made.id) /* a copy that nobody else knows */
            CHECK(ignis_array_query(made, &info) == IGNIS_OK && ignis_array_free_as(made, info.owner) == IGNIS_OK);
        expect_documented("misuse");
    }
}

TEST(random_use_of_shared_arrays)
{
    int i, live = 0, freed = 0;
    SETUP(NULL);
    memset(shared.slots, 0, sizeof shared.slots);
    shared.count = 0;
    for (i = 0; i < SLOTS; i++)
        shared_put(i, test_array(1, N));
    run_threads(misuse);
    for (i = 0; i < shared.count; i++) {
        ignis_array a = shared.all[i];
        ignis_array_info info;
        if (!ignis_array_is_live(a))
            continue;
        live++;
        CHECK_OK(ignis_array_query(a, &info));
        while (info.ref_count > 0)
            CHECK_INT(ignis_array_decrement_ref(a), --info.ref_count);
        freed += ignis_array_free_as(a, info.owner) == IGNIS_OK;
    }
    CHECK_INT(freed, live);
    CHECK_INT(memory().live_blocks, 0);
    CHECK_INT(memory().live_bytes, 0);
    CHECK_INT(memory().pinned_bytes, 0);
    CHECK_OK(ignis_contract_reset());
}

/* --- exactly one wins ----------------------------------------------------------------------------------------- */

static ignis_array contested;

static void write_contested(int index)
{
    int round;
    for (round = 0; round < ROUNDS; round++)
        CHECK_OK(index % 2 ? ignis_array_mark_written(contested) : ignis_array_zero(contested));
}
static int winners;

static void win(bool won)
{
    pthread_mutex_lock(&shared.lock);
    winners += won;
    pthread_mutex_unlock(&shared.lock);
    ignis_status_clear();
}

static void free_contested(int index) { (void)index, win(ignis_array_free(contested) == IGNIS_OK); }
static void acquire_contested(int index)
{
    (void)index, win(ignis_contract_acquire(contested, IGNIS_OWNER_NVCCL) == IGNIS_OK);
}
static void pin_contested(int index) { (void)index, win(ignis_array_pin(contested) != NULL); }

TEST(only_one_thread_frees_acquires_or_pins)
{
    int i;
    SETUP(NULL);
    for (i = 0; i < 20; i++) {
        contested = test_array(1, 8);
        winners = 0, run_threads(pin_contested), CHECK_INT(winners, 1);
        winners = 0, run_threads(acquire_contested), CHECK_INT(winners, 1);
        CHECK_OK(ignis_contract_release(contested, IGNIS_OWNER_NVCCL));
        winners = 0, run_threads(free_contested), CHECK_INT(winners, 1);
    }
}

static void count_references(int index)
{
    int i;
    (void)index;
    for (i = 0; i < ROUNDS; i++)
        CHECK(ignis_array_increment_ref(contested) > 0);
    for (i = 1; i < ROUNDS; i++)
        CHECK(ignis_array_decrement_ref(contested) > 0);
}

TEST(writes_are_counted_exactly)
{
    ignis_array_info info;
    SETUP(NULL);
    contested = test_array(1, 8);
    run_threads(write_contested);
    CHECK_OK(ignis_array_query(contested, &info));
    CHECK_INT(info.version, 1 + THREADS * ROUNDS);
    CHECK_OK(ignis_array_free(contested));
}

TEST(references_are_counted_exactly)
{
    ignis_array_info info;
    int i;
    SETUP(NULL);
    contested = test_array(1, 8);
    run_threads(count_references);
    CHECK_OK(ignis_array_query(contested, &info));
    CHECK_INT(info.ref_count, THREADS);
    for (i = THREADS; i > 0; i--)
        CHECK_INT(ignis_array_decrement_ref(contested), i - 1);
    CHECK_OK(ignis_array_free(contested));
}

/* --- arrays of their own -------------------------------------------------------------------------------------- */

static void use_own_arrays(int index)
{
    unsigned random = (unsigned)index * 77 + 5;
    int i, k;
    for (i = 0; i < ROUNDS / 10; i++) {
        int64_t count = 1 + next_random(&random) % 3000, wrong = 0;
        float *data = (float *)malloc(sizeof(float) * (size_t)count);
        ignis_array a = test_array(1, count), b = ignis_array_clone(a);
        REQUIRE(data);
        CHECK_OK(ignis_array_scale(b, b, 1.0 + index));
        CHECK_OK(ignis_array_free(a));
        CHECK_OK(ignis_array_to_host(b, data, IGNIS_F32, count));
        for (k = 0; k < count; k++)
            wrong += data[k] != (float)k * (float)(1 + index);
        CHECK_INT(wrong, 0);
        CHECK_OK(ignis_array_free(b));
        free(data);
    }
}

TEST(threads_with_arrays_of_their_own)
{
    SETUP(NULL);
    run_threads(use_own_arrays);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(the_first_use_of_a_device_may_come_from_all_threads)
{
    SETUP(NULL);
    run_threads(use_own_arrays); /* nothing was used before on this thread */
    CHECK_OK(ignis_shutdown());
    SETUP(NULL);
    run_threads(use_own_arrays);
}

static pthread_barrier_t turn;

static void *live_through_a_shutdown(void *arg)
{
    (void)arg;
    CHECK_OK(ignis_array_free(test_array(8, 8)));
    pthread_barrier_wait(&turn); /* the main thread shuts down and sets up again */
    pthread_barrier_wait(&turn);
    CHECK_OK(ignis_array_free(test_array(8, 8)));
    CHECK_OK(ignis_synchronize());
    return NULL;
}

TEST(a_thread_goes_on_after_another_setup)
{
    pthread_t thread;
    SETUP(NULL);
    pthread_barrier_init(&turn, NULL, 2);
    REQUIRE(pthread_create(&thread, NULL, live_through_a_shutdown, NULL) == 0);
    pthread_barrier_wait(&turn);
    CHECK_OK(ignis_shutdown());
    CHECK(test__setup(__FILE__, __LINE__, NULL));
    pthread_barrier_wait(&turn);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&turn);
}

/* --- kernels -------------------------------------------------------------------------------------------------- */

static ignis_kernel shared_kernel;

static ignis_kernel compile(const char *option)
{
    return test_compile("extern \"C\" __global__ void plus(float *x, int n)\n"
                        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += STEP; }\n",
                        "plus", option);
}

static void launch_and_check(ignis_kernel kernel, float step, int times)
{
    ignis_array a = test_array(1, N);
    ignis_launch launch = test_launch(2, N / 2);
    ignis_arg args[2];
    float data[N];
    int i, wrong = 0;
    args[0] = ignis_arg_array(a);
    args[1] = ignis_arg_i32(N);
    for (i = 0; i < times; i++)
        CHECK_OK(ignis_kernel_launch(kernel, &launch, args, 2));
    CHECK_OK(ignis_array_to_host(a, data, IGNIS_F32, N));
    for (i = 0; i < N; i++)
        wrong += data[i] != (float)i + step * (float)times;
    CHECK_INT(wrong, 0);
    CHECK_OK(ignis_array_free(a));
}

static void compile_the_same(int index)
{
    ignis_kernel kernel = compile("-DSTEP=3.0f");
    (void)index;
    launch_and_check(kernel, 3.0F, 3);
    CHECK_OK(ignis_kernel_free(kernel));
}

static void compile_one_of_four(int index)
{
    char option[32];
    ignis_kernel kernel;
    snprintf(option, sizeof option, "-DSTEP=%d.0f", index % 4);
    kernel = compile(option);
    launch_and_check(kernel, (float)(index % 4), 2);
    CHECK_OK(ignis_kernel_free(kernel));
}

static void launch_shared(int index)
{
    (void)index;
    launch_and_check(shared_kernel, 1.0F, 20);
}

static void launch_while_freed(int index)
{
    ignis_array a = test_array(1, N);
    ignis_launch launch = test_launch(1, N);
    ignis_arg args[2];
    int i;
    args[0] = ignis_arg_array(a);
    args[1] = ignis_arg_i32(N);
    for (i = 0; i < 20; i++) {
        if (index == 0 && i == 10)
            CHECK_OK(ignis_kernel_free(shared_kernel));
        ignis_kernel_launch(shared_kernel, &launch, args, 2);
        CHECK(ignis_status_last() == IGNIS_OK || ignis_status_last() == IGNIS_ERROR_FREED);
        ignis_status_clear();
    }
    CHECK_OK(ignis_array_free(a));
}

TEST(all_threads_compile_the_same_kernel)
{
    ignis_desc desc = test_desc(NULL);
    desc.cache_dir = "off";
    SETUP(&desc);
    run_threads(compile_the_same);
}

TEST(threads_compile_four_kernels)
{
    SETUP(NULL);
    run_threads(compile_one_of_four);
}

TEST(threads_launch_one_kernel)
{
    SETUP(NULL);
    shared_kernel = compile("-DSTEP=1.0f");
    run_threads(launch_shared);
    CHECK_OK(ignis_kernel_free(shared_kernel));
}

TEST(a_kernel_is_freed_while_others_launch_it)
{
    SETUP(NULL);
    shared_kernel = compile("-DSTEP=1.0f");
    run_threads(launch_while_freed);
    CHECK_OK(ignis_synchronize());
}

/*  Just before the kernel of long rows is launched, another thread launches it for shorter ones, which need less shared
    memory. */
typedef int launch_function(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                            void **, void **);
typedef int launch_ex_function(const void *, void *, void **, void **);
static launch_function *real_launch;

static void softmax_of(int64_t columns)
{
    ignis_tensor x = ignis_tensor_ones(IGNIS_SHAPE(1, columns), NULL), y = ignis_softmax(x);
    float *values = (float *)malloc(sizeof(float) * (size_t)columns);
    CHECK_OK(ignis_tensor_to_host(y, values, IGNIS_F32, columns));
    CHECK(values[columns - 1] * (float)columns > 0.99F && values[columns - 1] * (float)columns < 1.01F);
    free(values);
    CHECK_OK(ignis_tensor_release(x));
    CHECK_OK(ignis_tensor_release(y));
}

static void *softmax_of_short_rows(void *arg)
{
    (void)arg;
    softmax_of(20000);
    return NULL;
}

static int launch_behind_another(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned x,
                                 unsigned y, unsigned z, unsigned shared_bytes, void *stream, void **params,
                                 void **extra)
{
    pthread_t thread;
    if (shared_bytes > 90 * 1024) {
        ignis__cuda.cuLaunchKernel = real_launch;
        CHECK(pthread_create(&thread, NULL, softmax_of_short_rows, NULL) == 0);
        pthread_join(thread, NULL);
    }
    return real_launch(function, grid_x, grid_y, grid_z, x, y, z, shared_bytes, stream, params, extra);
}

TEST(threads_launch_one_kernel_with_different_shared_memory)
{
    ignis_device_info device;
    launch_ex_function *real_launch_ex;
    SETUP(NULL);
    CHECK_OK(ignis_device_query(0, &device));
    if (device.shared_per_block < 200 * 1024)
        SKIP("long rows are kept in less shared memory than 90 KB");
    CHECK_OK(ignis_device_use(0));
    real_launch = ignis__cuda.cuLaunchKernel;
    real_launch_ex = ignis__cuda.cuLaunchKernelEx;
    ignis__cuda.cuLaunchKernel = launch_behind_another;
    ignis__cuda.cuLaunchKernelEx = NULL; /* all are launched by the other one */
    softmax_of(30000);
    CHECK(ignis__cuda.cuLaunchKernel == real_launch); /* it was interrupted */
    ignis__cuda.cuLaunchKernel = real_launch;
    ignis__cuda.cuLaunchKernelEx = real_launch_ex;
}

static void warm_up(int index)
{
    (void)index;
    CHECK_OK(ignis_warmup(NULL, 0));
}

/*  Each program is compiled once, whoever comes first. */
TEST(threads_warm_up_together)
{
    ignis_desc desc = test_desc(NULL);
    const ignis__source *source;
    int i;
    desc.cache_dir = "off";
    SETUP(&desc);
    empty_begin();
    run_threads(warm_up);
    empty_end();
    for (i = 0; (source = ignis__source_at(i)) != NULL; i++)
        CHECK_INT(empty_made[i], ignis__source_dtypes(source));
}

/* --- memory and streams --------------------------------------------------------------------------------------- */

static void trim_and_query(int index)
{
    ignis_memory_info info;
    int i;
    for (i = 0; i < ROUNDS / 10; i++) {
        ignis_array a = test_array(1 + index, 100 * (1 + i % 7));
        if (index % 4 == 0)
            CHECK(ignis_memory_trim(0) >= 0);
        if (index % 4 == 1)
            CHECK_OK(ignis_synchronize());
        info = memory();
        CHECK(info.live_blocks >= 1 && info.live_blocks <= THREADS);
        CHECK_OK(ignis_array_free(a));
    }
}

TEST(threads_trim_while_others_allocate)
{
    SETUP(NULL);
    run_threads(trim_and_query);
    CHECK(ignis_memory_trim(0) >= 0);
    CHECK_INT(memory().live_bytes, 0);
    CHECK_INT(memory().reserved_bytes, 0);
}

static void fail_with_own_text(int index)
{
    char expected[64];
    int i;
    snprintf(expected, sizeof expected, "%d", 1000 + index);
    for (i = 0; i < ROUNDS; i++) {
        CHECK_STATUS(ignis_device_use(1000 + index), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
        CHECK_MESSAGE_HAS(expected);
    }
}

TEST(each_thread_reads_its_own_message)
{
    SETUP(NULL);
    run_threads(fail_with_own_text);
}

/* --- random use of shared tensors ------------------------------------------------------------------------------ */

enum { TENSOR_THREADS = 6, TENSOR_SLOTS = 12, TENSOR_CALLS = 45, TENSOR_N = 16 };

static struct {
    pthread_mutex_t lock;
    pthread_barrier_t start;
    ignis_tensor slots[TENSOR_SLOTS];
    ignis_tensor *all; /* everything that was ever put into a slot, to be released at the end */
    int count, capacity, rounds;
    bool own_streams; /* then without calls that only the caller can order: changes of values, reading of gradients */
    void *streams[TENSOR_THREADS];
    ignis_optimizer optimizer;
} tensors = {PTHREAD_MUTEX_INITIALIZER, {{0}}, {{0}}, NULL, 0, 0, 0, false, {NULL}, {0}};

static ignis_tensor tensor_get(unsigned *random)
{
    ignis_tensor tensor;
    int slot = (int)(next_random(random) % TENSOR_SLOTS);
    pthread_mutex_lock(&tensors.lock);
    tensor = tensors.slots[slot];
    pthread_mutex_unlock(&tensors.lock);
    return tensor;
}

static void tensor_put(unsigned *random, ignis_tensor tensor)
{
    int slot = (int)(next_random(random) % TENSOR_SLOTS);
    if (!tensor.id)
        return;
    pthread_mutex_lock(&tensors.lock);
    if (tensors.count == tensors.capacity) {
        tensors.capacity = tensors.capacity ? 2 * tensors.capacity : 1024;
        tensors.all = (ignis_tensor *)realloc(tensors.all, sizeof *tensors.all * (size_t)tensors.capacity);
    }
    tensors.all[tensors.count++] = tensor;
    tensors.slots[slot] = tensor;
    pthread_mutex_unlock(&tensors.lock);
}

/*  A shared tensor may be released, walked or recorded by another thread at any moment: these failures are the
    documented ones. */
static void expect_documented_of_tensors(int call)
{
    ignis_status_info info;
    char text[1024];
    ignis_status_query(&info);
    switch (info.diagnostic) {
    case IGNIS_DIAG_NONE:
    case IGNIS_DIAG_TENSOR_FREED:
    case IGNIS_DIAG_ARRAY_FREED:
    case IGNIS_DIAG_TAPE_OF_OTHER:
    case IGNIS_DIAG_TAPE_WALKED:
    case IGNIS_DIAG_RECORDED_TWICE:
    case IGNIS_DIAG_BACKWARD_TWICE:
    case IGNIS_DIAG_BACKWARD_FAILED:
    case IGNIS_DIAG_SAVED_CHANGED:
    case IGNIS_DIAG_NO_GRAD_WANTED:
    case IGNIS_DIAG_PARAMETER_KIND:
    case IGNIS_DIAG_FREE_REFERENCED: break;
    default:
        snprintf(text, sizeof text, "call %d: %s: %.800s", call, ignis_diagnostic_name(info.diagnostic), info.message);
        test__fail(__FILE__, __LINE__, text);
    }
    ignis_status_clear();
}

/*  x * x + another shared tensor, that a checkpoint runs twice */
static ignis_tensor stress_block(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_tensor other;
    (void)count;
    other.id = (uint64_t)(uintptr_t)user_data;
    return ignis_add(ignis_mul(inputs[0], inputs[0]), other);
}

/*  A user's backward function: it uses shared tensors itself, clears the tape in vain, and walks back inside. */
static ignis_status stress_backward(const ignis_backward_args *args)
{
    unsigned random = *(const unsigned *)args->params;
    ignis_tensor t = tensor_get(&random);
    switch (next_random(&random) % 5) {
    case 0: ignis_tensor_release(t); break;
    case 1: (void)ignis_backward(t, args->grad_output); break;
    case 2: ignis_tape_clear(); break;
    case 3: ignis_zero_grad(t); break;
    default: break;
    }
    args->grad_inputs[0] = next_random(&random) % 2 ? args->grad_output : args->saved[0];
    return IGNIS_OK;
}

/*  Records t as the result of an operation of the caller's on a, with an array that is freed at once or used twice. */
static void stress_record(ignis_tensor t, ignis_tensor a, unsigned random)
{
    ignis_array saved[2];
    ignis_rule rule;
    saved[0] = saved[1] = test_array(1, TENSOR_N);
    memset(&rule, 0, sizeof rule);
    rule.name = "stress";
    rule.backward_fn = stress_backward;
    rule.saved = saved;
    rule.saved_count = 2;
    rule.params = &random;
    rule.params_size = sizeof random;
    ignis_tape_record(t, &a, 1, &rule);
    ignis_array_free(saved[0]);
}

static void use_shared_tensors(int index, unsigned *random, ignis_array gradient)
{
    static const double numbers[TENSOR_N] = {1, 2, 3};
    ignis_tensor a = tensor_get(random), b = tensor_get(random), parts[2];
    ignis_array no_gradient = {0};
    double values[TENSOR_N];
    char text[512];
    ignis_tensor_info info;
    int call = (int)(next_random(random) % TENSOR_CALLS);
    switch (call) {
    case 0:
    case 1:
    case 2:
        tensor_put(random, tensor_of(numbers, IGNIS_SHAPE(1, TENSOR_N), IGNIS_F32, next_random(random) % 3 > 0));
        break;
    case 3: tensor_put(random, ignis_mul(a, b)); break;
    case 4:
    case 5: tensor_put(random, ignis_add(a, b)); break;
    case 6: tensor_put(random, ignis_reshape(a, IGNIS_SHAPE(1, TENSOR_N))); break;
    case 7: tensor_put(random, ignis_relu(a)); break;
    case 8: tensor_put(random, ignis_scale(a, 0.5)); break;
    case 9: tensor_put(random, ignis_detach(a)); break;
    case 10: stress_record(tensor_get(random), a, *random); break;
    case 11: tensor_put(random, ignis_checkpoint(stress_block, (void *)(uintptr_t)b.id, &a, 1, NULL)); break;
    case 12:
    case 13:
    case 14:
    case 15: ignis_backward(a, gradient); break;
    case 16: {
        ignis_scope scope = ignis_scope_begin();
        ignis_backward(ignis_sum(ignis_mul(ignis_add(a, b), a)), IGNIS_NO_ARRAY);
        tensor_put(random, ignis_scale(a, 2)); /* ends with the scope, while others use it */
        CHECK_OK(ignis_scope_end(scope));
        break;
    }
    case 17: ignis_zero_grad(a); break;
    case 18: ignis_tape_clear(); break;
    case 19: CHECK(ignis_tape_length() >= 0); break;
    case 20: ignis_tape_dot(a, text, sizeof text); break;
    case 21:
        if (ignis_tensor_query(a, &info) == IGNIS_OK)
            CHECK(shape_numel(info.shape) == TENSOR_N);
        break;
    case 22: ignis_tensor_to_host(a, values, IGNIS_F64, TENSOR_N); break;
    case 23: {
        ignis_array grad = ignis_tensor_grad(a);
        if (grad.id && !tensors.own_streams)
            ignis_array_to_host(grad, values, IGNIS_F64, TENSOR_N);
        break;
    }
    case 24: {
        ignis_scope scope = ignis_scope_begin();
        tensor_put(random, ignis_scope_return(scope, ignis_mul(a, ignis_add(a, b))));
        break;
    }
    case 25:
        CHECK_OK(ignis_no_grad_begin());
        tensor_put(random, ignis_mul(a, b));
        CHECK_OK(ignis_no_grad_end());
        break;
    case 26:
        if (ignis_split(a, 1, 2, NULL, parts) == IGNIS_OK) {
            tensor_put(random, ignis_concat(parts, 2, 1));
            ignis_tensor_release(parts[0]);
            ignis_tensor_release(parts[1]);
        }
        break;
    case 27:
        ignis_optimizer_add(tensors.optimizer, a, false);
        if (!tensors.own_streams)
            ignis_optimizer_step(tensors.optimizer);
        break;
    case 28:
        if (tensors.own_streams)
            CHECK_OK(ignis_stream_use(next_random(random) % 2 ? tensors.streams[index] : NULL));
        break;
    case 29: ignis_backward_retain(a, gradient); break;
    case 30: ignis_tensor_set_grad(a, next_random(random) % 2 ? gradient : no_gradient); break;
    case 31: tensor_put(random, ignis_tensor_from_array(ignis_tensor_data(a), next_random(random) % 2)); break;
    case 32: {
        ignis_tensor_desc desc = tensor_desc(IGNIS_F32, true);
        CHECK_OK(ignis_seed(*random));
        tensor_put(random, ignis_tensor_rand(IGNIS_SHAPE(1, TENSOR_N), &desc));
        break;
    }
    case 33: ignis_tensor_release(ignis_slice(a, 1, 2, 3)); break;
    case 34: {
        ignis_scope scope = ignis_scope_begin();
        (void)ignis_item(ignis_sum(a));
        CHECK_OK(ignis_scope_end(scope));
        break;
    }
    case 35:
        CHECK(ignis_tensor_to_string(a, text, sizeof text) > 0);
        if (ignis_tensor_shape(a).ndim > 0)
            CHECK(ignis_tensor_numel(a) == TENSOR_N || ignis_status_last() != IGNIS_OK);
        break;
    case 36:
        if (!tensors.own_streams)
            ignis_array_fill(ignis_tensor_data(a), 1);
        break;
    case 37: ignis_array_free(ignis_tensor_data(a)); break; /* which is refused, and looks for who holds it */
    case 38: tensor_put(random, ignis_map("a * b + k * a", IGNIS_INPUTS(a, b, IGNIS_VALUE(k, 0.5)))); break;
    case 39: {
        ignis_scope scope = ignis_scope_begin();
        ignis_backward(ignis_map_sum("tanh(a) * b", IGNIS_INPUTS(a, b)), IGNIS_NO_ARRAY);
        CHECK_OK(ignis_scope_end(scope));
        break;
    }
    case 40: tensor_put(random, ignis_flip(a, (const int[]){1}, 1)); break;
    case 41: tensor_put(random, ignis_cumsum(a, 1)); break;
    case 42: {
        ignis_tensor order = {0}, sorted = ignis_sort(a, 1, false, &order);
        if (sorted.id)
            tensor_put(random, ignis_gather(b, 1, order));
        ignis_tensor_release(order);
        ignis_tensor_release(sorted);
        break;
    }
    case 43: {
        ignis_tensor scale = {0}, none = {0},
                     eighths = ignis_quantize_f8(a, IGNIS_F8_E4M3, next_random(random) % 2, &scale);
        if (eighths.id)
            ignis_tensor_release(ignis_matmul_f8(eighths, eighths, scale, none, none, IGNIS_F32));
        ignis_tensor_release(eighths);
        ignis_tensor_release(scale);
        break;
    }
    default: ignis_tensor_release(a); break;
    }
    expect_documented_of_tensors(call);
}

static void *tensor_thread(void *arg)
{
    int index = *(int *)arg, round;
    unsigned random = (unsigned)index * 101 + 7;
    ignis_array gradient = test_array(1, TENSOR_N);
    pthread_barrier_wait(&tensors.start);
    for (round = 0; round < tensors.rounds; round++)
        use_shared_tensors(index, &random, gradient);
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_stream_use(NULL));
    CHECK_OK(ignis_array_free(gradient));
    return NULL;
}

static void check_shared_tensors(bool own_streams)
{
    pthread_t threads[TENSOR_THREADS];
    int index[TENSOR_THREADS], i;
    unsigned random = 1;
    ignis_sgd_desc sgd;
    memset(&sgd, 0, sizeof sgd);
    tensors.own_streams = own_streams;
    memset(tensors.slots, 0, sizeof tensors.slots);
    tensors.rounds = test_env("IGNIS_SOAK") ? 20000 : 2 * ROUNDS;
    tensors.optimizer = ignis_sgd(&sgd);
    CHECK_OK(ignis_device_use(0));
    CHECK(tensors.optimizer.id != 0);
    for (i = 0; i < TENSOR_SLOTS; i++)
        tensor_put(&random, tensor_counting(IGNIS_SHAPE(1, TENSOR_N), IGNIS_F32, 1, true));
    pthread_barrier_init(&tensors.start, NULL, TENSOR_THREADS);
    for (i = 0; i < TENSOR_THREADS; i++) {
        index[i] = i;
        CHECK_INT(ignis__cuda.cuStreamCreate(&tensors.streams[i], IGNIS__CU_STREAM_NON_BLOCKING), 0);
        REQUIRE(pthread_create(&threads[i], NULL, tensor_thread, &index[i]) == 0);
    }
    for (i = 0; i < TENSOR_THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&tensors.start);
    CHECK_OK(ignis_optimizer_free(tensors.optimizer));
    for (i = 0; i < tensors.count; i++)
        ignis_tensor_release(tensors.all[i]);
    ignis_status_clear();
    free(tensors.all);
    tensors.all = NULL;
    tensors.count = tensors.capacity = 0;
    for (i = 0; i < TENSOR_THREADS; i++) {
        CHECK_OK(ignis_stream_forget(tensors.streams[i]));
        CHECK_INT(ignis__cuda.cuStreamDestroy_v2(tensors.streams[i]), 0);
    }
    CHECK_INT(memory().live_blocks, 0);
}

TEST(random_use_of_shared_tensors)
{
    SETUP(NULL);
    check_shared_tensors(false);
}

TEST(random_use_of_shared_tensors_on_streams_of_their_own)
{
    SETUP(NULL);
    check_shared_tensors(true);
}

/* --- what is made while others look at all there is --------------------------------------------------------------- */

enum { MADE = 300 };

static void *make_optimizers(void *context)
{
    int i;
    for (i = 0; i < MADE; i++) {
        ignis_optimizer optimizer = ignis_sgd(NULL);
        *(bool *)context = *(bool *)context && optimizer.id && ignis_optimizer_free(optimizer) == IGNIS_OK;
    }
    return NULL;
}

static void *train_by_itself(void *context)
{
    ignis_tensor_desc trained;
    int i;
    memset(&trained, 0, sizeof trained);
    trained.requires_grad = true;
    for (i = 0; i < MADE; i++) { /* the gradient of x gets its shape from y's */
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = ignis_tensor_ones(IGNIS_SHAPE(2, 3), &trained), y = ignis_reshape(x, IGNIS_SHAPE(6));
        *(bool *)context = *(bool *)context && ignis_backward(ignis_sum(ignis_mul(y, y)), IGNIS_NO_ARRAY) == IGNIS_OK;
        (void)ignis_scope_end(scope);
    }
    return NULL;
}

/*  Refused frees ask all optimizers who has the array; pictures of memory look at all arrays. The thread sanitizer sees
    what is written meanwhile. */
TEST(things_are_made_while_others_look_at_all)
{
    void *(*const makers[2])(void *) = {make_optimizers, train_by_itself};
    pthread_t threads[2];
    bool right[2] = {true, true};
    char path[400];
    ignis_desc desc = test_desc(NULL);
    ignis_tensor owned;
    int i;
    desc.dry_run = true;
    SETUP(&desc);
    owned = ignis_tensor_ones(IGNIS_SHAPE(4), NULL);
    snprintf(path, sizeof path, "/tmp/ignis-threads-%ld.json", (long)getpid());
    for (i = 0; i < 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, makers[i], &right[i]) == 0);
    for (i = 0; i < 60; i++) {
        CHECK(ignis_array_free(ignis_tensor_data(owned)) != IGNIS_OK);
        ignis_status_clear();
        if (i % 3 == 0)
            CHECK_OK(ignis_memory_snapshot(path));
    }
    for (i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(right[0] && right[1]);
    remove(path);
    CHECK_OK(ignis_tensor_release(owned));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
