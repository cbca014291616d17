// SPDX-License-Identifier: MIT
/*  test_tape_failures.c - what a step leaves after a failure: backward functions that fail, memory that runs out */
#include "fault.h"

#include "tape.h"

enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY */

/* --- backward functions that fail -------------------------------------------------------------------------------- */

static enum failure { QUIET, LOUD, WRONG_SHAPE, WRONG_DTYPE, FREED_ARRAY, WRONG_DEVICE, NO_ARRAY_AT_ALL, HALF } failure;

static ignis_status failing_backward(const ignis_backward_args *args)
{
    ignis_array grad = {0};
    ignis_array_desc desc = desc_of(IGNIS_SHAPE(3), IGNIS_F32);
    switch (failure) {
    case QUIET: return IGNIS_ERROR_UNSUPPORTED;
    case LOUD: return ignis_array_add(args->grad_output, grad, grad);
    case WRONG_SHAPE: desc.shape = IGNIS_SHAPE(4); break;
    case WRONG_DTYPE: desc.dtype = IGNIS_F64; break;
    case WRONG_DEVICE: desc.device = 1; break;
    case FREED_ARRAY:
    case NO_ARRAY_AT_ALL:
    case HALF: break;
    }
    grad = ignis_array_create(&desc);
    CHECK_OK(ignis_array_fill(grad, 1));
    if (failure == FREED_ARRAY)
        drop(grad);
    if (failure == NO_ARRAY_AT_ALL) {
        drop(grad);
        grad.id = args->grad_output.id ^ UINT64_C(0x10000000); /* a handle of another kind */
    }
    args->grad_inputs[0] = grad;
    return failure == HALF ? IGNIS_ERROR_IO : IGNIS_OK;
}

static void check_failing(enum failure how, ignis_status status, ignis_diagnostic diagnostic, const char *part)
{
    ignis_tensor x, w, a, y;
    ignis_array g;
    ignis_rule rule = rule_of("failing", failing_backward);
    ignis_scope scope;
    int64_t before;
    failure = how;
    x = vector3(1, 2, 3, true);
    w = vector3(1, 2, 3, true);
    CHECK_OK(ignis_zero_grad(w));
    before = memory().live_blocks;
    scope = ignis_scope_begin();
    a = vector3(1, 1, 1, false);
    CHECK_OK(ignis_tape_record(a, &x, 1, &rule));
    y = user_mul(a, w); /* w gets its gradient before the failure */
    g = array_of(1, 1, 1);
    CHECK(ignis_backward(y, g) != IGNIS_OK);
    CHECK_INT(ignis_status_last(), status);
    test__check_failure(__FILE__, __LINE__, failure == LOUD ? "ignis_array_add" : "ignis_backward", status, diagnostic);
    CHECK_MESSAGE_HAS(part);
    CHECK_GRAD(w, 0, 0, 0);
    CHECK(!has_grad(x));
    CHECK_INT(ignis_tape_length(), 0);
    drop(g);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_INT(memory().live_blocks, before);
    scope = ignis_scope_begin(); /* and it goes on */
    CHECK_OK(ignis_backward(user_sum(user_mul(x, w)), IGNIS_NO_ARRAY));
    CHECK_GRAD(w, 1, 2, 3);
    CHECK_OK(ignis_scope_end(scope));
    let_go(x);
    let_go(w);
}

TEST(a_backward_function_that_fails)
{
    SETUP(NULL);
    check_failing(QUIET, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_FAILED,
                  "'failing' returned IGNIS_ERROR_UNSUPPORTED");
    check_failing(LOUD, IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED, "");
    check_failing(HALF, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_FAILED, "'failing' returned IGNIS_ERROR_IO");
}

TEST(a_backward_function_that_gives_the_wrong_thing)
{
    SETUP(NULL);
    check_failing(WRONG_SHAPE, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS,
                  "'failing' gave a gradient [4] of f32 for input 0");
    check_failing(WRONG_DTYPE, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS, "[3] of f64 for input 0");
    check_failing(FREED_ARRAY, IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED, "'failing' gave a freed array for input 0");
    check_failing(NO_ARRAY_AT_ALL, IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED, "for input 0");
}

static ignis_status unwritten_backward(const ignis_backward_args *args)
{
    args->grad_inputs[0] = make(IGNIS_SHAPE(3), IGNIS_F32);
    args->grad_inputs[1] = make(IGNIS_SHAPE(3), IGNIS_F64);
    return ignis_array_fill(args->grad_inputs[1], 1);
}

/*  Leaves of two element types are written by two launches: what cannot be read is found before both. */
TEST(a_backward_function_that_gives_what_nobody_has_written)
{
    ignis_tensor x[2], y;
    ignis_array g;
    ignis_rule rule = rule_of("unwritten", unwritten_backward);
    ignis_tensor_desc desc;
    double value[3];
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.dtype = IGNIS_F64;
    desc.requires_grad = true;
    x[0] = vector3(1, 2, 3, true);
    x[1] = ignis_tensor_zeros(IGNIS_SHAPE(3), &desc);
    CHECK_OK(ignis_zero_grad(x[0]));
    CHECK_OK(ignis_zero_grad(x[1]));
    g = array_of(1, 1, 1);
    y = user_result(ignis_array_clone(g), x, 2, &rule);
    CHECK_STATUS(ignis_backward(y, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    CHECK_MESSAGE_HAS("the backward of 'unwritten' gave");
    CHECK_GRAD(x[0], 0, 0, 0);
    CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x[1]), value, IGNIS_F64, 3));
    CHECK(value[0] == 0 && value[2] == 0);
    drop(g);
    let_go(y);
    let_go(x[0]);
    let_go(x[1]);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(a_backward_function_that_gives_an_array_of_another_device)
{
    SETUP(NULL);
    NEEDS_DEVICES(2);
    check_failing(WRONG_DEVICE, IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS, "device 1");
}

/*  An array of the caller's contract: what a user still owns elsewhere cannot be taken over twice. */
static ignis_array given_away;
static ignis_status given_backward(const ignis_backward_args *args)
{
    (void)args;
    args->grad_inputs[0] = given_away;
    return IGNIS_OK;
}

/*  A view of a larger array, wrapped or shared memory: the leaf's gradient is a copy. */
TEST(a_view_as_gradient_is_copied)
{
    ignis_tensor x, y;
    ignis_array whole, g;
    ignis_rule rule = rule_of("given", given_backward);
    SETUP(NULL);
    whole = test_array(2, 3);
    given_away = ignis_array_slice(whole, 0, 1, 1);
    x = vector3(1, 2, 3, true);
    y = vector3(1, 2, 3, false);
    CHECK_OK(ignis_tape_record(y, &x, 1, &rule));
    g = array_of(1, 1, 1);
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(x, 3, 4, 5);
    CHECK_OK(ignis_array_fill(whole, 9));
    CHECK_GRAD(x, 3, 4, 5);
    CHECK_SHAPE(ignis_tensor_grad(x), IGNIS_SHAPE(3));
    drop(g);
    drop(whole);
    let_go(x);
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

/* --- a backward that retains -------------------------------------------------------------------------------------- */

/*  A walk that fails changes no leaf, and keeps what it was to retain. */
TEST(a_retaining_backward_that_fails)
{
    ignis_rule rule = rule_of("failing", failing_backward);
    ignis_tensor x, w, a, y;
    ignis_array g;
    SETUP(NULL);
    x = vector3(1, 2, 3, true), w = vector3(1, 2, 3, true), a = vector3(1, 1, 1, false);
    CHECK_OK(ignis_tape_record(a, &x, 1, &rule));
    y = user_mul(a, w);
    g = array_of(1, 1, 1);
    failure = QUIET;
    CHECK_STATUS(ignis_backward_retain(y, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_FAILED);
    CHECK(!has_grad(x) && !has_grad(w));
    CHECK_INT(ignis_tape_length(), 2);
    CHECK_STATUS(ignis_backward(y, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_FAILED);
    CHECK_INT(ignis_tape_length(), 0);
    drop(g);
    let_go(y), let_go(a), let_go(w), let_go(x);
}

/* --- gradcheck --------------------------------------------------------------------------------------------------- */

/*  A function that forgets to record: its gradient is zero, finite differences are not. */
static ignis_tensor forgetful(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_tensor detached = ignis_detach(inputs[0]);
    (void)count, (void)user_data;
    return user_add(user_mul(detached, inputs[0]), inputs[0]);
}

static ignis_tensor nan_function(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count, (void)user_data;
    return user_scale(inputs[0], NAN);
}

static ignis_tensor failing_function(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count, (void)user_data;
    return ignis_reshape(inputs[0], IGNIS_SHAPE(7));
}

TEST(gradcheck_of_bad_functions)
{
    ignis_tensor x;
    SETUP(NULL);
    x = double3(2, -3, 4, true);
    CHECK(ignis_gradcheck(forgetful, NULL, &x, 1, NULL) > 0.1);
    test__check_failure(__FILE__, __LINE__, "ignis_gradcheck", IGNIS_ERROR_MISMATCH, IGNIS_DIAG_GRADIENT_WRONG);
    CHECK(!(ignis_gradcheck(nan_function, NULL, &x, 1, NULL) <= 1e-6));
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_MISMATCH);
    ignis_status_clear();
    CHECK(isnan(ignis_gradcheck(failing_function, NULL, &x, 1, NULL)));
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_SHAPE);
    ignis_status_clear();
    CHECK_INT(ignis_tape_length(), 0);
    CHECK_ARRAY(ignis_tensor_data(x), 2, -3, 4);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_tensor failing_operation(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_rule rule = rule_of("failing", failing_backward);
    ignis_tensor output = ignis_tensor_from_array(ignis_tensor_data(inputs[0]), false);
    (void)count, (void)user_data;
    CHECK_OK(ignis_tape_record(output, inputs, 1, &rule));
    return output;
}

/*  The first failure says where it happened, however deep; the next one, outside, does not. */
static void check_inside(const char *call, const char *where)
{
    CHECK_HAS(ignis_status_message(), call);
    CHECK_HAS(ignis_status_message(), where);
    ignis_status_clear();
    CHECK_STATUS(ignis_device_use(-7), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_RANGE);
    CHECK(strstr(test__message, "inside") == NULL);
}

TEST(what_fails_in_a_function_of_the_caller_names_the_outer_call)
{
    ignis_scope scope;
    ignis_tensor x, y;
    ignis_array g;
    SETUP(NULL);
    failure = LOUD;
    scope = ignis_scope_begin();
    x = tensor_counting(IGNIS_SHAPE(3), IGNIS_F64, 1, true);
    g = ignis_array_clone(ignis_tensor_data(x));
    y = failing_operation(&x, 1, NULL);
    CHECK(ignis_backward(y, g) != IGNIS_OK);
    check_inside("ignis_array_add: ", " (inside the backward of 'failing', ignis_backward)");
    y = ignis_checkpoint(failing_operation, NULL, &x, 1, NULL);
    CHECK(ignis_backward(y, g) != IGNIS_OK);
    check_inside("ignis_array_add: ",
                 " (inside the backward of 'failing', ignis_backward, the backward of 'checkpoint', ignis_backward)");
    CHECK_INT(ignis_checkpoint(failing_function, NULL, &x, 1, NULL).id, 0);
    check_inside("ignis_reshape: ", " (inside ignis_checkpoint)");
    CHECK(isnan(ignis_gradcheck(failing_function, NULL, &x, 1, NULL)));
    check_inside("ignis_reshape: ", " (inside ignis_gradcheck)");
    CHECK(isnan(ignis_gradcheck(failing_operation, NULL, &x, 1, NULL)));
    check_inside("ignis_array_add: ", " (inside the backward of 'failing', ignis_backward, ignis_gradcheck)");
    drop(g);
    CHECK_OK(ignis_scope_end(scope));
    CHECK(isnan(ignis_gradcheck(failing_operation, NULL, &x, 1, NULL)));
    check_inside("ignis_tensor_query: ", " (inside ignis_gradcheck)");
}

/* --- running out of memory --------------------------------------------------------------------------------------- */

typedef struct model {
    layer l;
    ignis_tensor x, a, b;
} model;

static void model_open(model *m)
{
    memset(m, 0, sizeof *m);
    m->l.weight = vector3(0.5, -1, 2, true);
    m->x = vector3(1, 2, 0.5, true);
    m->a = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 0.1, true);
    m->b = tensor_counting(IGNIS_SHAPE(3, 2), IGNIS_F32, 0.2, true);
    CHECK_OK(ignis_zero_grad(m->x));
    CHECK_OK(ignis_zero_grad(m->l.weight)); /* the buffers of a and b are made in the step */
}

static void model_close(model *m)
{
    let_go(m->x);
    let_go(m->a);
    let_go(m->b);
    let_go(m->l.weight);
}

/*  One step: a shared input, a checkpoint, a product of matrices, views, dead branches. */
static ignis_status model_step(model *m)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor h, y, loss;
    ignis_status status;
    if (!scope.id)
        return IGNIS_ERROR_MEMORY;
    h = ignis_checkpoint(layer_run, &m->l, &m->x, 1, NULL);
    if (!user_scale(h, 3).id) { /* nothing needs it, so backward would not notice */
        ignis_scope_end(scope);
        return ignis_status_last();
    }
    y = ignis_reshape(ignis_matmul(m->a, m->b), IGNIS_SHAPE(4));
    loss = user_add(user_sum(user_add(h, user_mul(m->x, m->l.weight))), user_sum(user_mul(y, y)));
    status = ignis_backward(loss, IGNIS_NO_ARRAY);
    ignis_scope_end(scope);
    return status;
}

static void model_values(model *m, double out[4])
{
    out[0] = grad_at(m->x, 0), out[1] = grad_at(m->l.weight, 2);
    out[2] = grad_at(m->a, 5), out[3] = grad_at(m->b, 0);
}

/*  Each allocation of the step fails in turn, and all that follow in the step; then memory is there again. */
static int sweep_step(const ignis_desc *desc, const char *prefix, host_counter *counter, bool all)
{
    double expected[4], values[4];
    model m;
    int at, i;
    CHECK_OK(ignis_setup(desc));
    model_open(&m);
    CHECK_OK(model_step(&m));
    model_values(&m, expected);
    model_close(&m);
    CHECK_OK(ignis_shutdown());
    for (at = 1; at < 2000; at++) {
        ignis_memory_info before, after;
        ignis_status status;
        bool hit;
        CHECK_OK(ignis_setup(desc));
        model_open(&m);
        CHECK_OK(model_step(&m)); /* compiles, chooses, caches */
        if (at % 2) {             /* without buffers of gradients, and with */
            model_close(&m);
            model_open(&m);
        }
        CHECK_OK(ignis_zero_grad(m.x));
        CHECK_OK(ignis_zero_grad(m.l.weight));
        if (at % 2 == 0) {
            CHECK_OK(ignis_zero_grad(m.a));
            CHECK_OK(ignis_zero_grad(m.b));
        }
        CHECK(ignis_memory_trim(0) >= 0);
        before = memory();
        fault_plan(prefix, at, OUT_OF_MEMORY, counter, all);
        status = model_step(&m);
        hit = fault_over(counter);
        if (hit && status == IGNIS_OK && all)
            test__fail(__FILE__, __LINE__, "memory ran out, and the step says that all is well");
        if (status != IGNIS_OK && ignis_status_last() != IGNIS_ERROR_MEMORY && ignis_status_last() != IGNIS_ERROR_CUDA)
            test__fail(__FILE__, __LINE__, ignis_status_message());
        if ((status == IGNIS_OK) != (ignis_status_last() == IGNIS_OK)) {
            char text[1024];
            snprintf(text, sizeof text, "allocation %d fails: the step answers %s, the thread's failure is: %.800s", at,
                     ignis_status_name(status), ignis_status_message());
            test__fail(__FILE__, __LINE__, text);
        }
        ignis_status_clear();
        if (status != IGNIS_OK) {
            after = memory();
            CHECK_INT(after.live_bytes, before.live_bytes);
            CHECK_INT(after.live_blocks, before.live_blocks);
            CHECK_INT(ignis_tape_length(), 0);
            CHECK_GRAD(m.x, 0, 0, 0);
            CHECK_GRAD(m.l.weight, 0, 0, 0);
            CHECK_OK(model_step(&m)); /* training goes on */
        }
        model_values(&m, values);
        for (i = 0; i < 4; i++)
            CHECK_NUMBER(values[i], expected[i]);
        model_close(&m);
        CHECK_INT(memory().live_blocks, 0);
        CHECK_OK(ignis_shutdown());
        if (!hit || test__state.failures > 10)
            break;
    }
    return at - 1;
}

TEST(out_of_device_memory_anywhere_in_a_step)
{
    ignis_desc desc = test_desc(NULL);
    int count;
    desc.memory_bypass = true; /* each block is one driver allocation */
    count = sweep_step(&desc, "cuMemAlloc", NULL, true);
    printf("    %d driver allocations\n", count);
    CHECK(count >= 20);
}

TEST(one_failed_allocation_in_a_step)
{
    ignis_desc desc = test_desc(NULL);
    desc.memory_bypass = true;
    CHECK(sweep_step(&desc, "cuMemAlloc", NULL, false) >= 20);
}

TEST(out_of_host_memory_anywhere_in_a_step)
{
    static const bool ways[2] = {false, true};
    host_counter counter;
    int i, count;
    for (i = 0; i < 2; i++) {
        ignis_desc desc = test_counting_desc(&counter);
        count = sweep_step(&desc, NULL, &counter, ways[i]);
        printf("    %d host allocations\n", count);
        CHECK(count >= 20);
        CHECK_INT(counter.blocks, 0);
    }
}

static ignis_status cloned_backward(const ignis_backward_args *args)
{
    args->grad_inputs[0] = ignis_array_clone(
        args->saved[0]); /* by no kernel: those of elements are in one module with the one that adds */
    args->grad_inputs[1] = ignis_array_clone(args->saved[1]);
    return ignis_status_last();
}

/*  Leaves of two element types are added to by a kernel each: that one cannot be loaded is found before the other has
    run. */
TEST(a_kernel_that_cannot_be_loaded_changes_no_leaf)
{
    ignis_rule rule = rule_of("cloned", cloned_backward);
    ignis_tensor x[2], y;
    ignis_array g, saved[2];
    double value[3];
    bool hit = true;
    int at;
    for (at = 1; hit && at < 9; at++) {
        SETUP(NULL);
        x[0] = vector3(1, 2, 3, true);
        x[1] = double3(1, 2, 3, true);
        CHECK_OK(ignis_zero_grad(x[0]));
        CHECK_OK(ignis_zero_grad(x[1]));
        g = array_of(1, 1, 1);
        saved[0] = ignis_tensor_data(x[0]);
        saved[1] = ignis_tensor_data(x[1]);
        rule.saved = saved;
        rule.saved_count = 2;
        y = user_result(ignis_array_clone(g), x, 2, &rule);
        fault_plan("cuModuleLoad", at, OUT_OF_MEMORY, NULL, false);
        (void)ignis_backward(y, g);
        hit = fault_over(NULL);
        CHECK_INT(ignis_status_last() != IGNIS_OK, hit);
        ignis_status_clear();
        CHECK_GRAD(x[0], hit ? 0 : 1, hit ? 0 : 2, hit ? 0 : 3);
        CHECK_OK(ignis_array_to_host(ignis_tensor_grad(x[1]), value, IGNIS_F64, 3));
        CHECK_NUMBER(value[2], hit ? 0 : 3);
        drop(g);
        let_go(y);
        let_go(x[0]);
        let_go(x[1]);
        CHECK_OK(ignis_shutdown());
    }
    CHECK(at > 3); /* either of two has failed, and none */
}

/*  A limit of Ignis' own instead of a failing driver. */
TEST(a_step_that_exceeds_the_limit)
{
    ignis_desc desc = test_desc(NULL);
    ignis_tensor x, big;
    ignis_scope scope;
    SETUP(NULL);
    CHECK_OK(ignis_shutdown());
    desc.memory_limit = 8 << 20;
    CHECK_OK(ignis_setup(&desc));
    x = vector3(1, 2, 3, true);
    scope = ignis_scope_begin();
    big = ignis_tensor_zeros(IGNIS_SHAPE(1 << 20), NULL);
    big = user_mul(user_mul(user_mul(big, big), big), big);
    CHECK_INT(big.id, 0);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_MEMORY);
    ignis_status_clear();
    CHECK_OK(ignis_scope_end(scope));
    scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(user_sum(user_mul(x, x)), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
    CHECK_GRAD(x, 2, 4, 6);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
