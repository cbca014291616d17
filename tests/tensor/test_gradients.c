// SPDX-License-Identifier: MIT
/*  test_gradients.c - gradients that add up, no-grad and zero_grad, gradcheck */
#include "fault.h"

#include "tape.h"

/* --- adding up --------------------------------------------------------------------------------------------------- */

TEST(a_tensor_that_is_used_many_times)
{
    ignis_tensor x, loss;
    ignis_scope scope;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    scope = ignis_scope_begin();
    loss = user_sum(user_add(user_add(user_mul(x, x), x),
                             user_add(user_scale(x, 5), user_mul(user_mul(x, x), x)))); /* x^2 + 6x + x^3 */
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    CHECK_GRAD(x, 2 + 6 + 3, 4 + 6 + 12, 6 + 6 + 27);
    CHECK_OK(ignis_scope_end(scope));
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

/*  user_add gives grad_output itself for both inputs: the caller's array, two gradients, three buffers. */
TEST(gradients_never_share_memory)
{
    ignis_tensor a, b, y;
    ignis_array g, ga, gb;
    SETUP(NULL);
    a = vector3(1, 2, 3, true);
    b = vector3(4, 5, 6, true);
    y = user_add(a, b);
    g = array_of(1, 2, 3);
    CHECK_OK(ignis_backward(y, g));
    ga = ignis_tensor_grad(a), gb = ignis_tensor_grad(b);
    CHECK_INT(ga.id == gb.id || ga.id == g.id || gb.id == g.id, 0);
    CHECK(ignis_array_device_ptr(ga) != ignis_array_device_ptr(gb));
    CHECK(ignis_array_device_ptr(ga) != ignis_array_device_ptr(g));
    CHECK(ignis_array_device_ptr(gb) != ignis_array_device_ptr(g));
    CHECK_OK(ignis_array_fill(ga, 50));
    CHECK_ARRAY(gb, 1, 2, 3);
    CHECK_ARRAY(g, 1, 2, 3);
    CHECK_OK(ignis_array_fill(g, 60));
    CHECK_ARRAY(ga, 50, 50, 50);
    CHECK_ARRAY(gb, 1, 2, 3);
    drop(g);
    let_go(a);
    let_go(b);
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(the_same_leaf_twice_in_one_operation)
{
    ignis_tensor a, y;
    ignis_array g;
    SETUP(NULL);
    a = vector3(1, 2, 3, true);
    y = user_add(a, a);
    g = array_of(1, 2, 3);
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(a, 2, 4, 6);
    CHECK_ARRAY(g, 1, 2, 3);
    drop(g);
    let_go(a);
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

/*  The gradient of a . w with regard to a is w: the rule gives the saved array itself. */
static ignis_status saved_backward(const ignis_backward_args *args)
{
    args->grad_inputs[0] = args->saved[0];
    args->grad_inputs[1] = args->saved[0];
    return IGNIS_OK;
}

TEST(a_saved_array_as_gradient)
{
    ignis_tensor a, b, w, y, inputs[2];
    ignis_array saved;
    ignis_rule rule = rule_of("saved", saved_backward);
    int round;
    SETUP(NULL);
    a = vector3(1, 2, 3, true);
    b = vector3(1, 2, 3, true);
    w = vector3(7, 8, 9, false);
    inputs[0] = a, inputs[1] = b;
    saved = ignis_tensor_data(w);
    rule.saved = &saved, rule.saved_count = 1;
    for (round = 1; round <= 2; round++) {
        double value = 1;
        y = tensor_of(&value, IGNIS_SHAPE(1), IGNIS_F32, false);
        CHECK_OK(ignis_tape_record(y, inputs, 2, &rule));
        CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
        CHECK_GRAD(a, 7 * round, 8 * round, 9 * round);
        CHECK_GRAD(b, 7 * round, 8 * round, 9 * round);
        CHECK_ARRAY(ignis_tensor_data(w), 7, 8, 9);
        let_go(y);
    }
    CHECK_OK(ignis_zero_grad(a));
    CHECK_GRAD(b, 14, 16, 18);
    CHECK_ARRAY(ignis_tensor_data(w), 7, 8, 9);
    let_go(a);
    let_go(b);
    let_go(w);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(gradients_add_up_over_backwards_in_one_buffer)
{
    ignis_tensor x, y;
    ignis_array g, grad, first = {0};
    void *address = NULL;
    int i;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    g = array_of(1, 1, 1);
    for (i = 1; i <= 3; i++) {
        y = user_mul(x, x);
        CHECK_OK(ignis_backward(y, g));
        CHECK_GRAD(x, 2 * i, 4 * i, 6 * i);
        grad = ignis_tensor_grad(x);
        if (i == 1)
            first = grad, address = ignis_array_device_ptr(grad);
        CHECK_INT(grad.id, first.id);
        CHECK(ignis_array_device_ptr(grad) == address);
        let_go(y);
    }
    drop(g);
    let_go(x);
}

/*  The gradients of many leaves of all types and sizes are added in few launches, and each to its own. */
TEST(gradients_of_many_leaves_add_up)
{
    enum { LEAVES = 250 };
    static const int64_t sizes[] = {3, 0, 4096, 1, 4097, 0, 9000};
    ignis_tensor leaves[LEAVES], sum;
    ignis_array before[LEAVES];
    int i, k, turn, adds = 0;
    SETUP(NULL);
    for (i = 0; i < LEAVES; i++) {
        leaves[i] = tensor_counting(IGNIS_SHAPE(sizes[i % 7]), float_dtypes[i / 7 % 4], 0, true);
        CHECK_OK(ignis_zero_grad(leaves[i]));
        before[i] = ignis_tensor_grad(leaves[i]);
    }
    for (turn = 1; turn <= 2; turn++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor_desc desc = tensor_desc(IGNIS_F64, false);
        sum = ignis_tensor_zeros(IGNIS_SHAPE(1), &desc);
        for (i = 0; i < LEAVES; i++)
            sum = ignis_add(sum, ignis_cast(ignis_scale(ignis_sum(leaves[i]), i % 5 + 1), IGNIS_F64));
        fault_reset_counts();
        CHECK_OK(ignis_backward(ignis_reshape(sum, IGNIS_SHAPE(1)), IGNIS_NO_ARRAY));
        adds = fault_count("cuLaunchKernel");
        CHECK_OK(ignis_scope_end(scope));
        for (i = 0; i < LEAVES; i++) {
            CHECK(ignis_tensor_grad(leaves[i]).id == before[i].id);
            if (!sizes[i % 7])
                continue;
            for (k = 0; k < 3; k++)
                CHECK_NUMBER(grad_at(leaves[i], k * (sizes[i % 7] - 1) / 2), turn * (i % 5 + 1));
        }
    }
    CHECK(adds < 3 * LEAVES + 10); /* three for the operations on each leaf; fewer where that is empty */
    for (i = 0; i < LEAVES; i++)
        let_go(leaves[i]);
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_status probe_backward(const ignis_backward_args *args)
{
    ignis_tensor *leaf = (ignis_tensor *)args->user_data;
    ignis_array grad = ignis_tensor_grad(*leaf);
    if (grad.id)
        CHECK_ARRAY(grad, 100, 100, 100); /* as it was before the walk */
    args->grad_inputs[0] = args->grad_output;
    return IGNIS_OK;
}

TEST(leaves_are_written_once_after_the_walk)
{
    ignis_tensor x, a, y;
    ignis_array g, grad;
    ignis_rule rule = rule_of("probe", probe_backward);
    int round;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    g = array_of(1, 1, 1);
    rule.user_data = &x;
    for (round = 0; round < 2; round++) {
        if (round) {
            grad = ignis_tensor_grad(x);
            CHECK_OK(ignis_array_fill(grad, 100));
        }
        a = vector3(0, 0, 0, false);
        CHECK_OK(ignis_tape_record(a, &x, 1, &rule));
        y = user_add(a, user_add(x, x)); /* these give gradients to x before the probe runs */
        test_leaks_expected = true;
        CHECK_OK(ignis_backward(y, g));
        CHECK_GRAD(x, 3 + 100 * round, 3 + 100 * round, 3 + 100 * round);
        let_go(a);
        let_go(y);
    }
    drop(g);
    let_go(x);
}

static ignis_status zero_backward(const ignis_backward_args *args)
{
    (void)args; /* gives nothing: zero */
    return IGNIS_OK;
}

TEST(no_handle_counts_as_zero)
{
    ignis_tensor x, a, y;
    ignis_array g;
    ignis_rule rule = rule_of("zero", zero_backward);
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    a = vector3(1, 2, 3, false);
    CHECK_OK(ignis_tape_record(a, &x, 1, &rule));
    y = user_add(a, x);
    g = array_of(1, 2, 3);
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(x, 1, 2, 3);
    drop(g);
    let_go(x);
    let_go(a);
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_status generous_backward(const ignis_backward_args *args)
{
    int i;
    for (i = 0; i < args->input_count; i++) {
        args->grad_inputs[i] = array_like(args->grad_output);
        CHECK_OK(ignis_array_fill(args->grad_inputs[i], 2));
    }
    return IGNIS_OK;
}

static ignis_status shape_backward(const ignis_backward_args *args)
{
    CHECK_INT(info_of(args->grad_output).shape.ndim, 2);
    CHECK_INT(info_of(args->grad_output).shape.dim[1], 3);
    args->grad_inputs[0] = args->grad_output;
    return IGNIS_OK;
}

/*  A reshape after the operation, one whose gradient others have too, and a caller's gradient of another shape. */
TEST(a_gradient_comes_in_the_shape_of_the_output)
{
    ignis_tensor x, y, z;
    ignis_array g;
    ignis_rule rule = rule_of("shape", shape_backward);
    ignis_scope scope;
    int i;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    g = array_of(1, 2, 3);
    for (i = 0; i < 3; i++) {
        scope = ignis_scope_begin();
        y = user_result(ignis_array_reshape(ignis_tensor_data(x), IGNIS_SHAPE(1, 3)), &x, 1, &rule);
        z = i == 0 ? y : ignis_reshape(y, IGNIS_SHAPE(3));
        z = i == 2 ? ignis_add(z, ignis_reshape(y, IGNIS_SHAPE(3))) : z;
        CHECK_OK(ignis_backward_retain(z, g));
        CHECK_OK(ignis_backward(z, g));
        CHECK_OK(ignis_scope_end(scope));
    }
    CHECK_GRAD(x, 8, 16, 24);
    drop(g);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(a_gradient_that_nobody_wants_is_freed)
{
    ignis_tensor x, c, y, inputs[2];
    ignis_array g;
    ignis_rule rule = rule_of("generous", generous_backward);
    SETUP(NULL);
    inputs[0] = x = vector3(1, 2, 3, true);
    inputs[1] = c = vector3(1, 2, 3, false);
    y = vector3(1, 2, 3, false);
    CHECK_OK(ignis_tape_record(y, inputs, 2, &rule));
    g = array_of(1, 1, 1);
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(x, 2, 2, 2);
    CHECK(!has_grad(c));
    drop(g);
    let_go(x);
    let_go(c);
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

/*  Gradients come through other shapes; the leaf's has the leaf's. */
TEST(a_gradient_has_the_shape_of_its_leaf)
{
    ignis_tensor x, y;
    ignis_array g;
    SETUP(NULL);
    x = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, true);
    y = ignis_reshape(x, IGNIS_SHAPE(3, -1));
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(3, 2));
    CHECK_TEXT(tensor_info(y).operation, "reshape");
    g = test_array(3, 2);
    CHECK_OK(ignis_backward(y, g));
    CHECK_SHAPE(ignis_tensor_grad(x), IGNIS_SHAPE(2, 3));
    CHECK_NUMBER(grad_at(x, 5), 5);
    CHECK(ignis_array_device_ptr(g) != ignis_array_device_ptr(ignis_tensor_grad(x)));
    drop(g);
    let_go(x);
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(reshape_refuses)
{
    ignis_tensor x;
    SETUP(NULL);
    x = tensor_counting(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, true);
    CHECK_REFUSED(0, ignis_reshape(x, IGNIS_SHAPE(5)).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("[2, 3] cannot become [5]");
    CHECK(ignis_reshape(x, IGNIS_SHAPE(-1, -1)).id == 0);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_SHAPE);
    ignis_status_clear();
    CHECK(ignis_reshape(x, IGNIS_SHAPE(-1, 4)).id == 0);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_SHAPE);
    ignis_status_clear();
    CHECK_INT(ignis_tape_length(), 0);
    let_go(x);
}

/* --- no-grad, zero_grad ------------------------------------------------------------------------------------------ */

TEST(no_grad_nests)
{
    ignis_tensor x, y[4];
    int i;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    CHECK_OK(ignis_no_grad_begin());
    y[0] = user_mul(x, x);
    CHECK_OK(ignis_no_grad_begin());
    y[1] = user_mul(x, x);
    CHECK_OK(ignis_no_grad_end());
    y[2] = user_mul(x, x);
    CHECK_OK(ignis_no_grad_end());
    CHECK_STATUS(ignis_no_grad_end(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER);
    y[3] = user_mul(x, x);
    for (i = 0; i < 4; i++) {
        CHECK_INT(tensor_info(y[i]).requires_grad, i == 3);
        CHECK_INT(tensor_info(y[i]).is_leaf, i != 3);
    }
    CHECK_INT(ignis_tape_length(), 1);
    for (i = 0; i < 4; i++)
        let_go(y[i]);
    let_go(x);
}

static void *no_grad_thread(void *arg)
{
    ignis_tensor x = *(ignis_tensor *)arg, y = user_mul(x, x);
    CHECK(tensor_info(y).requires_grad);
    let_go(y);
    CHECK_INT(ignis_tape_length(), 0);
    return NULL;
}

TEST(no_grad_is_the_threads_own)
{
    ignis_tensor x;
    pthread_t thread;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    CHECK_OK(ignis_no_grad_begin());
    REQUIRE(pthread_create(&thread, NULL, no_grad_thread, &x) == 0);
    pthread_join(thread, NULL);
    CHECK_OK(ignis_no_grad_end());
    let_go(x);
}

TEST(backward_works_inside_no_grad)
{
    ignis_tensor x, y;
    ignis_array g;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    y = user_mul(x, x);
    g = array_of(1, 1, 1);
    CHECK_OK(ignis_no_grad_begin());
    CHECK_OK(ignis_backward(y, g));
    CHECK_OK(ignis_no_grad_end());
    CHECK_GRAD(x, 2, 4, 6);
    drop(g);
    let_go(x);
    let_go(y);
}

TEST(a_gradient_is_set_and_dropped)
{
    ignis_tensor x, y, ids;
    ignis_array g, grad, other;
    int64_t before;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    ids = tensor_counting(IGNIS_SHAPE(3), IGNIS_I32, 1, false);
    g = array_of(1, 1, 1);
    before = memory().live_bytes;
    CHECK_OK(ignis_tensor_set_grad(x, IGNIS_NO_ARRAY)); /* there is none */
    CHECK_OK(ignis_tensor_set_grad(x, g));
    CHECK_GRAD(x, 1, 1, 1);
    grad = ignis_tensor_grad(x);
    CHECK(grad.id != g.id);
    CHECK_OK(ignis_array_fill(g, 5)); /* it was copied */
    CHECK_GRAD(x, 1, 1, 1);
    y = user_mul(x, x);
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(x, 11, 21, 31);
    CHECK_OK(ignis_tensor_set_grad(x, g));
    CHECK_GRAD(x, 5, 5, 5);
    CHECK_INT(ignis_tensor_grad(x).id, grad.id); /* in the memory that it has */
    CHECK_OK(ignis_tensor_set_grad(x, grad));
    CHECK_GRAD(x, 5, 5, 5);
    let_go(y);
    CHECK_OK(ignis_tensor_set_grad(x, IGNIS_NO_ARRAY));
    CHECK(!has_grad(x));
    CHECK_INT(memory().live_bytes, before);
    CHECK(!ignis_array_is_live(grad));
    y = user_mul(x, x);
    CHECK_OK(ignis_backward(y, g)); /* as if there had never been one */
    CHECK_GRAD(x, 10, 20, 30);

    CHECK_STATUS(ignis_tensor_set_grad(ids, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_GRAD_WANTED);
    CHECK_MESSAGE_HAS("of i32");
    CHECK_STATUS(ignis_tensor_set_grad(ids, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_GRAD_WANTED);
    other = make(IGNIS_SHAPE(4), IGNIS_F32);
    CHECK_STATUS(ignis_tensor_set_grad(x, other), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("grad is [4], the tensor is [3]");
    drop(other);
    CHECK_STATUS(ignis_tensor_set_grad(x, other), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    other = make(IGNIS_SHAPE(3), IGNIS_F64);
    CHECK_STATUS(ignis_tensor_set_grad(x, other), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    drop(other);
    other = make(IGNIS_SHAPE(3), IGNIS_F32);
    CHECK_STATUS(ignis_tensor_set_grad(x, other), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN);
    drop(other);
    if (ignis_device_count() > 1) {
        ignis_array_desc desc = desc_of(IGNIS_SHAPE(3), IGNIS_F32);
        desc.device = 1;
        other = ignis_array_create(&desc);
        CHECK_STATUS(ignis_tensor_set_grad(x, other), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
        drop(other);
    }
    CHECK_GRAD(x, 10, 20, 30);
    drop(g);
    let_go(y), let_go(x), let_go(ids);
    CHECK_STATUS(ignis_tensor_set_grad(x, IGNIS_NO_ARRAY), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
}

TEST(zero_grad_keeps_the_buffer)
{
    ignis_tensor x, y, constant;
    ignis_array g, grad;
    void *address;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    CHECK_OK(ignis_zero_grad(x)); /* makes it */
    CHECK_GRAD(x, 0, 0, 0);
    grad = ignis_tensor_grad(x);
    address = ignis_array_device_ptr(grad);
    CHECK_INT(tensor_info(x).grad.id, grad.id);
    g = array_of(1, 1, 1);
    y = user_mul(x, x);
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(x, 2, 4, 6);
    CHECK_INT(ignis_tensor_grad(x).id, grad.id);
    CHECK_OK(ignis_zero_grad(x));
    CHECK_GRAD(x, 0, 0, 0);
    CHECK_INT(ignis_tensor_grad(x).id, grad.id);
    CHECK(ignis_array_device_ptr(ignis_tensor_grad(x)) == address);
    constant = vector3(1, 2, 3, false);
    CHECK_STATUS(ignis_zero_grad(constant), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_GRAD_WANTED);
    drop(g);
    let_go(x);
    let_go(y);
    let_go(constant);
}

/* --- gradcheck --------------------------------------------------------------------------------------------------- */

static ignis_tensor cube(const ignis_tensor *inputs, int count, void *user_data)
{
    int *calls = (int *)user_data;
    if (calls)
        ++*calls;
    return user_add(user_mul(user_mul(inputs[0], inputs[0]), inputs[0]), count > 1 ? inputs[1] : inputs[0]);
}

TEST(gradcheck_passes_what_is_right)
{
    ignis_tensor inputs[2];
    ignis_gradcheck_desc desc = {0, 0};
    double error;
    int calls = 0;
    SETUP(NULL);
    inputs[0] = double3(0.3, -2, 50, true);
    inputs[1] = double3(1, 2, 3, false);
    error = ignis_gradcheck(cube, &calls, inputs, 2, NULL);
    CHECK(error >= 0 && error < 1e-6);
    CHECK_INT(calls, 1 + 2 * 3); /* constants are not moved */
    CHECK_ARRAY(ignis_tensor_data(inputs[0]), 0.3, -2, 50);
    CHECK_GRAD(inputs[0], 0, 0, 0);
    CHECK(!has_grad(inputs[1]));
    CHECK_INT(ignis_tape_length(), 0);
    desc.step = 1e-3;
    desc.tolerance = 1e-3;
    CHECK(ignis_gradcheck(cube, NULL, inputs, 1, &desc) < 1e-3);
    let_go(inputs[0]);
    let_go(inputs[1]);
    CHECK_INT(memory().live_blocks, 0);
}

/*  a * b, whose second gradient is wrong in one element by one part in ten thousand */
static ignis_status planted_backward(const ignis_backward_args *args)
{
    ignis_status status = user_mul_backward(args);
    double values[3];
    if (status != IGNIS_OK || !args->needed[1])
        return status;
    status = ignis_array_to_host(args->grad_inputs[1], values, IGNIS_F64, 3);
    values[1] *= 1 + 1e-4;
    return status != IGNIS_OK ? status : ignis_array_from_host(args->grad_inputs[1], values, IGNIS_F64, 3);
}

static ignis_tensor planted(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_array saved[2], made = array_like(ignis_tensor_data(inputs[0]));
    ignis_rule rule = rule_of("planted", planted_backward);
    (void)count, (void)user_data;
    saved[0] = ignis_tensor_data(inputs[0]), saved[1] = ignis_tensor_data(inputs[1]);
    rule.saved = saved, rule.saved_count = 2;
    made = user_discard(made, ignis_array_mul(made, saved[0], saved[1]));
    return user_result(made, inputs, 2, &rule);
}

TEST(gradcheck_finds_what_is_wrong)
{
    ignis_tensor inputs[2];
    double error;
    SETUP(NULL);
    inputs[0] = double3(2, -3, 4, true);
    inputs[1] = double3(1, 2, 3, true);
    error = ignis_gradcheck(planted, NULL, inputs, 2, NULL);
    CHECK_CLOSE(error, 1e-4, 1e-5);
    test__check_failure(__FILE__, __LINE__, "ignis_gradcheck", IGNIS_ERROR_MISMATCH, IGNIS_DIAG_GRADIENT_WRONG);
    CHECK_MESSAGE_HAS("input 1, element 1");
    CHECK_ARRAY(ignis_tensor_data(inputs[1]), 1, 2, 3);
    CHECK_GRAD(inputs[1], 0, 0, 0);
    let_go(inputs[0]);
    let_go(inputs[1]);
}

TEST(gradcheck_refuses)
{
    ignis_tensor x, y, z;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    y = double3(1, 2, 3, true);
    CHECK(isnan(ignis_gradcheck(cube, NULL, &x, 1, NULL)));
    test__check_failure(__FILE__, __LINE__, "ignis_gradcheck", IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("f32");
    CHECK(isnan(ignis_gradcheck(NULL, NULL, &y, 1, NULL)));
    test__check_failure(__FILE__, __LINE__, "ignis_gradcheck", IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK(isnan(ignis_gradcheck(cube, NULL, NULL, 1, NULL)));
    test__check_failure(__FILE__, __LINE__, "ignis_gradcheck", IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK(isnan(ignis_gradcheck(cube, NULL, &y, 0, NULL)));
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_ARGUMENT);
    ignis_status_clear();
    z = user_mul(y, y); /* whose gradient would go on to y, and its entry be used up */
    CHECK(isnan(ignis_gradcheck(cube, NULL, &z, 1, NULL)));
    test__check_failure(__FILE__, __LINE__, "ignis_gradcheck", IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    CHECK_MESSAGE_HAS("input 0 is the result of an operation");
    CHECK_INT(ignis_tape_length(), 1);
    CHECK(!has_grad(y));
    let_go(z);
    let_go(y);
    CHECK(isnan(ignis_gradcheck(cube, NULL, &y, 1, NULL)));
    test__check_failure(__FILE__, __LINE__, "ignis_tensor_query", IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    let_go(x);
}

static ignis_tensor random_function(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_tensor_desc desc = tensor_desc(IGNIS_F64, false);
    (void)count, (void)user_data;
    return user_mul(inputs[0], ignis_tensor_rand(IGNIS_SHAPE(3), &desc));
}

static double checked_here, checked_older;
static ignis_tensor checked_leaf;

static ignis_status checking_backward(const ignis_backward_args *args)
{
    ignis_tensor x = double3(0.3, -2, 50, true);
    checked_here = ignis_gradcheck(cube, NULL, &x, 1, NULL);
    let_go(x);
    checked_older = ignis_gradcheck(cube, NULL, &checked_leaf, 1, NULL);
    test__check_failure(__FILE__, __LINE__, "ignis_gradcheck", IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_PARAMETER_KIND);
    args->grad_inputs[0] = ignis_array_clone(args->grad_output);
    return IGNIS_OK;
}

/*  A backward function records nothing by itself, and leaves that are older than it get their gradients when it is
    over. */
TEST(gradcheck_inside_a_backward_function)
{
    ignis_rule rule = rule_of("checking", checking_backward);
    ignis_tensor y;
    SETUP(NULL);
    checked_leaf = double3(0.3, -2, 50, true);
    y = user_result(ignis_array_clone(ignis_tensor_data(checked_leaf)), &checked_leaf, 1, &rule);
    checked_here = checked_older = 1;
    CHECK_OK(ignis_backward(y, ignis_tensor_data(y)));
    CHECK(checked_here < 1e-6);
    CHECK(isnan(checked_older));
    CHECK_OK(ignis_zero_grad(checked_leaf));
    CHECK_OK(ignis_no_grad_begin());
    CHECK(ignis_gradcheck(cube, NULL, &checked_leaf, 1, NULL) < 1e-6);
    CHECK_OK(ignis_no_grad_end());
    let_go(y), let_go(checked_leaf);
}

TEST(gradcheck_repeats_random_numbers)
{
    ignis_tensor x;
    SETUP(NULL);
    x = double3(2, -3, 4, true);
    CHECK(ignis_gradcheck(random_function, NULL, &x, 1, NULL) < 1e-6);
    let_go(x);
}

static ignis_tensor checkpointed_cube(const ignis_tensor *inputs, int count, void *user_data)
{
    return ignis_checkpoint(cube, user_data, inputs, count, NULL);
}

TEST(gradcheck_through_a_checkpoint)
{
    ignis_tensor inputs[2];
    SETUP(NULL);
    inputs[0] = double3(0.3, -2, 5, true);
    inputs[1] = double3(1, 2, 3, true);
    CHECK(ignis_gradcheck(checkpointed_cube, NULL, inputs, 2, NULL) < 1e-6);
    let_go(inputs[0]);
    let_go(inputs[1]);
    CHECK_INT(memory().live_blocks, 0);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
