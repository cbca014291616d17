// SPDX-License-Identifier: MIT
/*  test_tape_threads.c - the tape and threads: whose it is, and threads that share tensors */
#include "fault.h"

#include "tape.h"

/* --- threads ----------------------------------------------------------------------------------------------------- */

typedef struct thread_case {
    ignis_tensor x, y;
    ignis_array g;
} thread_case;

static void *record_thread(void *arg)
{
    thread_case *c = (thread_case *)arg;
    c->y = user_mul(c->x, c->x);
    CHECK_INT(ignis_tape_length(), 1);
    return NULL;
}

TEST(a_tape_belongs_to_its_thread)
{
    thread_case c;
    pthread_t thread;
    ignis_tensor z, detached;
    SETUP(NULL);
    c.x = vector3(1, 2, 3, true);
    c.g = array_of(1, 1, 1);
    REQUIRE(pthread_create(&thread, NULL, record_thread, &c) == 0);
    pthread_join(thread, NULL);
    CHECK_INT(ignis_tape_length(), 0);
    CHECK_STATUS(ignis_backward(c.y, c.g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TAPE_OF_OTHER);
    CHECK_FAILS(ignis_reshape(c.y, IGNIS_SHAPE(3, 1)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TAPE_OF_OTHER);
    CHECK_MESSAGE_HAS("another thread");
    CHECK_REFUSED(-1, ignis_tape_dot(c.y, NULL, 0), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TAPE_OF_OTHER);
    detached = ignis_detach(c.y);
    z = user_mul(detached, c.x);
    CHECK_OK(ignis_backward(z, c.g));
    CHECK_GRAD(c.x, 1, 4, 9);
    let_go(z);
    let_go(detached);
    let_go(c.y); /* releasing it here ends its entry there */
    let_go(c.x);
    drop(c.g);
    CHECK_INT(memory().live_blocks, 0);
}

typedef struct tape_case {
    thread_case kept;
    pthread_barrier_t turn;
} tape_case;

/*  Leaves its tape empty behind, or with one entry that a tensor keeps. */
static void *end_with_a_tape(void *arg)
{
    thread_case *c = (thread_case *)arg;
    ignis_tensor x = c ? c->x : vector3(1, 2, 3, true), y = user_mul(x, x);
    if (c) {
        c->y = y;
    } else {
        let_go(y);
        let_go(x);
    }
    return NULL;
}

static void *end_after_a_shutdown(void *arg)
{
    tape_case *c = (tape_case *)arg;
    let_go(user_mul(c->kept.x, c->kept.x));
    pthread_barrier_wait(&c->turn);
    pthread_barrier_wait(&c->turn);
    return NULL;
}

static void run_thread(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, run, arg), 0);
    pthread_join(thread, NULL);
}

TEST(a_tape_goes_with_its_thread_and_its_entries)
{
    host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    tape_case c;
    pthread_t thread;
    long long blocks;
    int i;
    SETUP(&desc);
    c.kept.x = vector3(1, 2, 3, true);
    run_thread(end_with_a_tape, NULL); /* whatever is made once is there */
    blocks = counter.blocks;
    for (i = 0; i < 10; i++)
        run_thread(end_with_a_tape, NULL);
    CHECK_INT(counter.blocks, blocks);
    for (i = 0; i < 10; i++) {
        run_thread(end_with_a_tape, &c.kept);
        CHECK(counter.blocks > blocks);
        let_go(c.kept.y);
    }
    CHECK_INT(counter.blocks, blocks);
    test_leaks_expected = true;
    run_thread(end_with_a_tape, &c.kept); /* which ignis_shutdown finds, though its thread is gone */
    pthread_barrier_init(&c.turn, NULL, 2);
    REQUIRE(pthread_create(&thread, NULL, end_after_a_shutdown, &c) == 0);
    pthread_barrier_wait(&c.turn);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(counter.blocks, 0);
    CHECK(test__setup(__FILE__, __LINE__, &desc));
    c.kept.x = vector3(1, 2, 3, true);
    c.kept.y = user_mul(c.kept.x, c.kept.x); /* on a tape that the ending thread must leave alone */
    pthread_barrier_wait(&c.turn);
    pthread_join(thread, NULL);
    CHECK_INT(ignis_tape_length(), 1);
    let_go(c.kept.y), let_go(c.kept.x);
    pthread_barrier_destroy(&c.turn);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(counter.blocks, 0);
}

static pthread_key_t late;

static void use_scopes(void *arg)
{
    thread_case *c = (thread_case *)arg;
    ignis_scope scope = ignis_scope_begin();
    CHECK(scope.id != 0);
    (void)user_mul(c->x, c->x);
    CHECK_INT(ignis_tape_length(), 1);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_INT(ignis_tape_length(), 0);
    CHECK_STATUS(ignis_tensor_release(c->y), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
}

static void *end_with_an_open_scope(void *arg)
{
    use_scopes(arg);
    CHECK(ignis_scope_begin().id != 0);
    CHECK_INT(pthread_setspecific(late, arg), 0);
    return NULL;
}

TEST(a_destructor_of_the_thread_records_after_that_of_ignis)
{
    host_counter counter;
    ignis_desc desc = test_counting_desc(&counter);
    thread_case c;
    long long blocks;
    SETUP(&desc);
    c.x = vector3(1, 2, 3, true);
    c.y = vector3(1, 2, 3, true);
    let_go(c.y);
    use_scopes(&c); /* whatever is made once is there, and Ignis' destructor comes before the next */
    blocks = counter.blocks;
    REQUIRE(pthread_key_create(&late, use_scopes) == 0);
    run_thread(end_with_an_open_scope, &c);
    pthread_key_delete(late);
    CHECK_INT(counter.blocks, blocks);
    let_go(c.x);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(counter.blocks, 0);
}

enum { THREADS = 4 };

static void *train_thread(void *arg)
{
    ignis_tensor x = vector3(1, 2, 3, true);
    int i;
    (void)arg;
    for (i = 0; i < 50; i++) {
        ignis_scope scope = ignis_scope_begin();
        CHECK_OK(ignis_backward(user_sum(user_mul(x, x)), IGNIS_NO_ARRAY));
        CHECK_OK(ignis_scope_end(scope));
        CHECK_GRAD(x, 2, 4, 6);
        CHECK_OK(ignis_zero_grad(x));
    }
    let_go(x);
    return NULL;
}

TEST(threads_train_side_by_side)
{
    pthread_t threads[THREADS];
    int i;
    SETUP(NULL);
    for (i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, train_thread, NULL) == 0);
    for (i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(memory().live_blocks, 0);
}

/* --- threads that share tensors ---------------------------------------------------------------------------------- */

enum { SHARED = 130 /* more than one launch adds */, ADDERS = 6 };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { STEPS = 2 };
#else
enum { STEPS = 10 };
#endif

static ignis_tensor shared_weights[SHARED];
static struct adder {
    void *stream; /* of its own, or null */
} adders[ADDERS];

/*  Every input's gradient is that of the output. */
static ignis_status spread_backward(const ignis_backward_args *args)
{
    int i;
    for (i = 0; i < args->input_count; i++)
        args->grad_inputs[i] = args->grad_output;
    return IGNIS_OK;
}

/*  Adds 1 to every element of every weight's gradient, STEPS times, each time through all of them. */
static void *add_thread(void *arg)
{
    const struct adder *adder = (const struct adder *)arg;
    ignis_rule rule = rule_of("spread", spread_backward);
    int step, i;
    CHECK_OK(ignis_stream_use(adder->stream));
    for (step = 0; step < STEPS; step++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_array ones = array_of(1, 1, 1);
        ignis_tensor parts[SHARED / 26], y;
        for (i = 0; i < SHARED / 26; i++)
            parts[i] = user_result(ignis_array_clone(ones), shared_weights + 26 * i, 26, &rule);
        y = user_result(ignis_array_clone(ones), parts, SHARED / 26, &rule);
        CHECK_OK(ignis_backward(y, ones));
        drop(ones);
        CHECK_OK(ignis_scope_end(scope));
    }
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_stream_use(NULL));
    return NULL;
}

static void check_adders(bool own_streams)
{
    pthread_t threads[ADDERS];
    int i, k, wrong = 0;
    CHECK_OK(ignis_device_use(0));
    for (i = 0; i < SHARED; i++)
        shared_weights[i] = vector3(1, 2, 3, true);
    for (i = 0; i < ADDERS; i++) {
        adders[i].stream = NULL;
        if (own_streams)
            CHECK_INT(ignis__cuda.cuStreamCreate(&adders[i].stream, IGNIS__CU_STREAM_NON_BLOCKING), 0);
        CHECK_INT(pthread_create(&threads[i], NULL, add_thread, &adders[i]), 0);
    }
    for (i = 0; i < ADDERS; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < SHARED; i++) {
        double *grad = array_values(ignis_tensor_grad(shared_weights[i]));
        for (k = 0; k < 3; k++)
            wrong += grad[k] != ADDERS * STEPS;
        free(grad);
        let_go(shared_weights[i]);
    }
    CHECK_INT(wrong, 0);
    for (i = 0; i < ADDERS && own_streams; i++) {
        CHECK_OK(ignis_stream_forget(adders[i].stream));
        CHECK_INT(ignis__cuda.cuStreamDestroy_v2(adders[i].stream), 0);
    }
    CHECK_INT(memory().live_blocks, 0);
}

TEST(threads_add_to_the_same_gradients)
{
    SETUP(NULL);
    check_adders(false);
}

TEST(threads_with_streams_of_their_own_add_to_the_same_gradients)
{
    SETUP(NULL);
    check_adders(true);
}

/*  What one stream adds comes after what the other has added: seen where the simulator runs work only when it is waited
    for. */
TEST(two_streams_add_to_one_gradient_in_turn)
{
    void *streams[2];
    ignis_tensor x, y;
    ignis_array ones;
    int i;
    SETUP(NULL);
    CHECK_OK(ignis_device_use(0));
    x = vector3(1, 2, 3, true);
    ones = array_of(1, 1, 1);
    y = user_scale(x, 2);
    CHECK_OK(ignis_synchronize());
    for (i = 0; i < 2; i++)
        CHECK_INT(ignis__cuda.cuStreamCreate(&streams[i], IGNIS__CU_STREAM_NON_BLOCKING), 0);
    for (i = 0; i < 6; i++) {
        CHECK_OK(ignis_stream_use(streams[i % 2]));
        CHECK_OK(ignis_backward_retain(y, ones));
    }
    CHECK_GRAD(x, 12, 12, 12); /* waits for the last stream alone */
    CHECK_OK(ignis_stream_use(NULL));
    let_go(y);
    let_go(x);
    drop(ones);
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_stream_forget(streams[i]));
        CHECK_INT(ignis__cuda.cuStreamDestroy_v2(streams[i]), 0);
    }
    CHECK_INT(memory().live_blocks, 0);
}

static struct {
    pthread_barrier_t there, done;
    ignis_tensor y, x;
    ignis_array g;
} walked;

/*  Lets another thread do what it likes with the tensor that is being walked. */
static ignis_status wait_backward(const ignis_backward_args *args)
{
    pthread_barrier_wait(&walked.there);
    pthread_barrier_wait(&walked.done);
    args->grad_inputs[0] = args->grad_output;
    return IGNIS_OK;
}

static void *meddle_thread(void *arg)
{
    ignis_tensor detached;
    char text[64];
    (void)arg;
    pthread_barrier_wait(&walked.there);
    CHECK_FAILS(ignis_reshape(walked.y, IGNIS_SHAPE(3, 1)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TAPE_OF_OTHER);
    CHECK_STATUS(ignis_backward(walked.y, walked.g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TAPE_OF_OTHER);
    CHECK_REFUSED(-1, ignis_tape_dot(walked.y, text, sizeof text), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TAPE_OF_OTHER);
    CHECK_TEXT(tensor_info(walked.y).operation, "waits");
    CHECK_OK(ignis_tape_clear()); /* its own */
    detached = ignis_detach(walked.y);
    CHECK_ARRAY(ignis_tensor_data(detached), 1, 10, 100);
    let_go(detached);
    CHECK_OK(ignis_backward(walked.x, walked.g)); /* a leaf is everybody's */
    let_go(walked.y);
    pthread_barrier_wait(&walked.done);
    return NULL;
}

TEST(a_tensor_that_another_thread_walks)
{
    pthread_t thread;
    ignis_rule rule = rule_of("waits", wait_backward);
    SETUP(NULL);
    pthread_barrier_init(&walked.there, NULL, 2);
    pthread_barrier_init(&walked.done, NULL, 2);
    walked.x = vector3(1, 2, 3, true);
    walked.g = array_of(1, 10, 100);
    walked.y = user_result(ignis_array_clone(walked.g), &walked.x, 1, &rule);
    REQUIRE(pthread_create(&thread, NULL, meddle_thread, NULL) == 0);
    CHECK_OK(ignis_backward(walked.y, walked.g));
    pthread_join(thread, NULL);
    CHECK_GRAD(walked.x, 2, 20, 200);
    CHECK_INT(ignis_tape_length(), 0);
    let_go(walked.x);
    drop(walked.g);
    pthread_barrier_destroy(&walked.there);
    pthread_barrier_destroy(&walked.done);
    CHECK_INT(memory().live_blocks, 0);
}

enum { RELEASED = 400 };

static struct {
    pthread_barrier_t start;
    ignis_tensor chain[RELEASED];
} released;

static void *release_thread(void *arg)
{
    int i;
    (void)arg;
    pthread_barrier_wait(&released.start);
    for (i = 0; i < RELEASED; i++)
        let_go(released.chain[i]);
    return NULL;
}

/*  A chain, and beside it branches that only their handles keep: both end under the walk. */
TEST(tensors_are_released_while_another_thread_walks)
{
    int round, i, rounds = test_env("IGNIS_SOAK") ? 300 : 5;
    SETUP(NULL);
    pthread_barrier_init(&released.start, NULL, 2);
    for (round = 0; round < rounds; round++) {
        ignis_tensor x = vector3(1, 2, 3, true), y = x;
        ignis_array g = array_of(1, 1, 1);
        pthread_t thread;
        for (i = 0; i < RELEASED; i += 2) {
            released.chain[i] = y = ignis_reshape(y, IGNIS_SHAPE(3));
            released.chain[i + 1] = ignis_reshape(y, IGNIS_SHAPE(3));
        }
        y = ignis_reshape(y, IGNIS_SHAPE(3));
        REQUIRE(pthread_create(&thread, NULL, release_thread, NULL) == 0);
        pthread_barrier_wait(&released.start);
        CHECK_OK(ignis_backward(y, g));
        CHECK_GRAD(x, 1, 1, 1);
        CHECK_OK(ignis_tape_clear()); /* branches that are there still */
        pthread_join(thread, NULL);
        let_go(y);
        let_go(x);
        drop(g);
    }
    pthread_barrier_destroy(&released.start);
    CHECK_INT(memory().live_blocks, 0);
}

static pthread_barrier_t zeroes;

static void *zero_thread(void *arg)
{
    pthread_barrier_wait(&zeroes);
    CHECK_OK(ignis_zero_grad(*(ignis_tensor *)arg));
    return NULL;
}

TEST(threads_zero_one_fresh_gradient)
{
    pthread_t threads[ADDERS];
    int round, i;
    SETUP(NULL);
    pthread_barrier_init(&zeroes, NULL, ADDERS);
    for (round = 0; round < 20; round++) {
        ignis_tensor x = vector3(1, 2, 3, true);
        for (i = 0; i < ADDERS; i++)
            CHECK_INT(pthread_create(&threads[i], NULL, zero_thread, &x), 0);
        for (i = 0; i < ADDERS; i++)
            pthread_join(threads[i], NULL);
        CHECK_GRAD(x, 0, 0, 0);
        let_go(x);
        CHECK_INT(memory().live_blocks, 0);
    }
    pthread_barrier_destroy(&zeroes);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
