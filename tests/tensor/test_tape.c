// SPDX-License-Identifier: MIT
/*  test_tape.c - recording, backward, what a walk releases and retains, and walks inside of backward functions */
#include "fault.h"

#include "tape.h"

/* --- recording --------------------------------------------------------------------------------------------------- */

TEST(a_users_operation_is_recorded)
{
    ignis_tensor a, b, y;
    SETUP(NULL);
    CHECK_INT(ignis_tape_length(), 0);
    a = vector3(1, 2, 3, true);
    b = vector3(4, 5, 6, false);
    y = user_mul(a, b);
    CHECK_INT(ignis_tape_length(), 1);
    CHECK_TEXT(tensor_info(y).operation, "user_mul");
    CHECK(tensor_info(y).requires_grad);
    CHECK(!tensor_info(y).is_leaf);
    CHECK_ARRAY(ignis_tensor_data(y), 4, 10, 18);
    CHECK_STATUS(ignis_array_free(ignis_tensor_data(a)), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_REFERENCED);
    CHECK_MESSAGE_HAS("the gradient of 'user_mul' needs it");
    let_go(y);
    CHECK_INT(ignis_tape_length(), 0);
    y = user_mul(b, b); /* nobody wants a gradient */
    CHECK_INT(ignis_tape_length(), 0);
    CHECK(!tensor_info(y).requires_grad);
    CHECK(tensor_info(y).is_leaf);
    CHECK_TEXT(tensor_info(y).operation, "");
    let_go(y);
    let_go(a);
    let_go(b);
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_status never_backward(const ignis_backward_args *args)
{
    (void)args;
    test__fail(__FILE__, __LINE__, "a backward function ran that must not");
    return IGNIS_OK;
}

/* --- what is saved stays as it was -------------------------------------------------------------------------------- */

/*  All ways to write to an array, as far as Ignis knows of them. */
static void write_to(int way, ignis_array array, ignis_array other)
{
    static const float data[3] = {7, 8, 9};
    ignis_array view, row;
    switch (way) {
    case 0: CHECK_OK(ignis_array_fill(array, 100)); break;
    case 1: CHECK_OK(ignis_array_zero(array)); break;
    case 2: CHECK_OK(ignis_array_from_host(array, data, IGNIS_F32, 3)); break;
    case 3: CHECK_OK(ignis_array_copy(array, other)); break;
    case 4: CHECK_OK(ignis_array_add(array, array, other)); break;
    case 5: CHECK_OK(ignis_array_mark_written(array)); break;
    case 6: /* a part of it, through a view */
        view = ignis_array_slice(array, 0, 2, 1);
        CHECK_OK(ignis_array_fill(view, 5));
        drop(view);
        break;
    default:
        row = test_array(1, 1);
        CHECK_OK(ignis_array_write_rows(array, row, 1));
        drop(row);
    }
}

TEST(backward_refuses_what_was_written_since)
{
    ignis_tensor a, y;
    ignis_array other;
    char name[64];
    int way;
    SETUP(NULL);
    other = array_of(1, 1, 1);
    for (way = 0; way < 8; way++) {
        ignis_scope scope = ignis_scope_begin();
        a = vector3(1, 2, 3, true);
        CHECK_OK(ignis_backward(user_sum(a), IGNIS_NO_ARRAY)); /* a gradient that must not change */
        y = user_sum(user_mul(a, a));
        write_to(way, ignis_tensor_data(a), other);
        CHECK_STATUS(ignis_backward(y, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
        CHECK_MESSAGE_HAS("'user_mul'");
        snprintf(name, sizeof name, "array #%llu", (unsigned long long)info_of(ignis_tensor_data(a)).id);
        CHECK_MESSAGE_HAS(name);
        CHECK_GRAD(a, 1, 1, 1);
        CHECK_INT(ignis_tape_length(), 0);
        CHECK_OK(ignis_backward(user_sum(user_mul(a, a)), IGNIS_NO_ARRAY)); /* the library keeps working */
        CHECK_OK(ignis_scope_end(scope));
    }
    drop(other);
}

/*  A backward writes to gradients that are there, and to nothing else. */
TEST(gradients_that_add_up_are_written)
{
    ignis_tensor a, y;
    ignis_array grad;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = vector3(1, 2, 3, true);
    CHECK_OK(ignis_backward(user_sum(a), IGNIS_NO_ARRAY));
    grad = ignis_tensor_grad(a);
    y = user_sum(user_mul(a, ignis_tensor_from_array(grad, false))); /* saves the gradient */
    CHECK_OK(ignis_backward(user_sum(a), IGNIS_NO_ARRAY));
    CHECK_STATUS(ignis_backward(y, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
    y = user_sum(user_mul(a, ignis_tensor_from_array(grad, false)));
    CHECK_OK(ignis_zero_grad(a));
    CHECK_STATUS(ignis_backward(y, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
    CHECK_INT(version_of(ignis_tensor_data(a)), 1);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(what_may_be_written_before_backward)
{
    static const char source[] = "extern \"C\" __global__ void look(const float *x) { (void)x; }";
    ignis_launch launch = test_launch(1, 1);
    ignis_tensor a, b, y, unused, inputs[2];
    ignis_scope scope;
    ignis_kernel kernel;
    char name[64];
    ignis_array later, saved[2];
    ignis_rule rule;
    ignis_arg arg;
    SETUP(NULL);
    scope = ignis_scope_begin();
    a = vector3(1, 2, 3, true);
    b = vector3(4, 5, 6, false);
    kernel = test_compile(source, "look", NULL);
    /* what no operation saved; what an operation saved that backward does not come to; a kernel that only reads */
    y = user_sum(user_add(a, b));
    CHECK_OK(ignis_array_fill(ignis_tensor_data(b), 7));
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
    y = user_sum(user_mul(a, a));
    unused = user_mul(a, b);
    CHECK_OK(ignis_array_fill(ignis_tensor_data(b), 8));
    arg = ignis_arg_array(ignis_tensor_data(a));
    CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
    CHECK(ignis_array_device_ptr(ignis_tensor_data(a)) != NULL);
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
    CHECK_GRAD(a, 3, 5, 7);
    CHECK_STATUS(ignis_backward(user_sum(unused), IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
    /* an array that is saved first, and filled then */
    CHECK_OK(ignis_zero_grad(a));
    inputs[0] = a, inputs[1] = b;
    saved[0] = ignis_tensor_data(b), saved[1] = later = make(IGNIS_SHAPE(3), IGNIS_F32);
    memset(&rule, 0, sizeof rule);
    rule.name = "filled_later";
    rule.backward_fn = user_mul_backward;
    rule.saved = saved;
    rule.saved_count = 2;
    y = vector3(0, 0, 0, false);
    CHECK_OK(ignis_tape_record(y, inputs, 2, &rule));
    CHECK_OK(ignis_array_fill(later, 3));
    CHECK_OK(ignis_backward(user_sum(y), IGNIS_NO_ARRAY));
    CHECK_GRAD(a, 3, 3, 3);
    /* the same array again, now with something in it */
    y = vector3(0, 0, 0, false);
    CHECK_OK(ignis_tape_record(y, inputs, 2, &rule));
    CHECK_OK(ignis_array_fill(later, 4));
    CHECK_STATUS(ignis_backward(user_sum(y), IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
    snprintf(name, sizeof name, "a view of #%llu,", (unsigned long long)info_of(later).id);
    CHECK_MESSAGE_HAS(name);
    drop(later);
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(record_refuses)
{
    ignis_tensor a, y, integers, many[65];
    ignis_array freed;
    ignis_rule rule = rule_of("refused", never_backward), wrong;
    int64_t live;
    int i;
    SETUP(NULL);
    a = vector3(1, 2, 3, true);
    y = vector3(1, 2, 3, false);
    integers = ignis_tensor_from_array(freed = make_counting(IGNIS_SHAPE(3), 0), false);
    drop(freed);
    live = memory().live_blocks;
    CHECK_STATUS(ignis_tape_record(y, &a, 1, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    wrong = rule, wrong.name = NULL;
    CHECK_STATUS(ignis_tape_record(y, &a, 1, &wrong), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("rule->name");
    wrong = rule, wrong.backward_fn = NULL;
    CHECK_STATUS(ignis_tape_record(y, &a, 1, &wrong), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("rule->backward_fn");
    CHECK_STATUS(ignis_tape_record(y, NULL, 1, &rule), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    wrong = rule, wrong.saved_count = 1;
    CHECK_STATUS(ignis_tape_record(y, &a, 1, &wrong), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("rule->saved");
    wrong = rule, wrong.params_size = 8;
    CHECK_STATUS(ignis_tape_record(y, &a, 1, &wrong), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("rule->params");
    wrong = rule, wrong.saved_count = -1;
    CHECK_STATUS(ignis_tape_record(y, &a, 1, &wrong), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_STATUS(ignis_tape_record(y, &a, -1, &rule), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    for (i = 0; i < 65; i++)
        many[i] = a;
    CHECK_STATUS(ignis_tape_record(y, many, 65, &rule), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    wrong = rule, wrong.saved = &freed, wrong.saved_count = 1;
    CHECK_STATUS(ignis_tape_record(y, &a, 1, &wrong), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    CHECK_STATUS(ignis_tape_record(a, &a, 1, &rule), IGNIS_ERROR_ARGUMENT,
                 IGNIS_DIAG_RECORDED_TWICE); /* a leaf that wants a gradient */
    CHECK_STATUS(ignis_tape_record(integers, &a, 1, &rule), IGNIS_ERROR_DTYPE, IGNIS_DIAG_GRAD_OF_INTEGERS);
    CHECK_INT(ignis_tape_length(), 0);
    CHECK(tensor_info(y).is_leaf);
    CHECK_OK(ignis_tape_record(y, &a, 1, &rule));
    CHECK_STATUS(ignis_tape_record(y, &a, 1, &rule), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_RECORDED_TWICE);
    CHECK_MESSAGE_HAS("'refused'");
    CHECK_INT(ignis_tape_length(), 1);
    CHECK_INT(memory().live_blocks, live);
    CHECK_OK(ignis_tape_clear());
    CHECK_STATUS(ignis_tape_record(y, &a, 1, &rule), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_RECORDED_TWICE);
    let_go(a);
    let_go(y);
    let_go(integers);
}

/*  b depends on itself, at once or by way of c: its entries would keep each other, and their memory */
TEST(record_refuses_a_circle)
{
    ignis_tensor a, b, c, inputs[2];
    ignis_rule rule = rule_of("circle", never_backward);
    SETUP(NULL);
    a = vector3(1, 2, 3, true);
    b = vector3(1, 2, 3, false);
    inputs[0] = a, inputs[1] = b;
    CHECK(ignis_tape_record(b, inputs, 2, &rule) != IGNIS_OK);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_ARGUMENT);
    ignis_status_clear();
    CHECK_INT(ignis_tape_length(), 0);
    c = ignis_mul(a, b);
    CHECK_STATUS(ignis_tape_record(b, &c, 1, &rule), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_RECORDED_TWICE);
    CHECK_MESSAGE_HAS("output is an input of an operation that is recorded");
    let_go(a);
    let_go(b);
    let_go(c);
    CHECK_INT(ignis_tape_length(), 0);
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_status params_backward(const ignis_backward_args *args)
{
    const int64_t *params = (const int64_t *)args->params;
    ignis_array grad = make(IGNIS_SHAPE(3), IGNIS_F32);
    CHECK_INT(params[0], 11);
    CHECK_INT(params[1], 22);
    CHECK_INT(args->saved_count, 20);
    CHECK_INT(args->input_count, 64);
    CHECK(args->user_data == (void *)test__message);
    CHECK_ARRAY(args->saved[0], 0, 1, 2);
    CHECK_ARRAY(args->saved[19], 0, 1, 2);
    CHECK(args->needed[0] && !args->needed[1] && args->needed[63]);
    CHECK_OK(ignis_array_fill(grad, 5));
    args->grad_inputs[0] = grad;
    args->grad_inputs[63] = grad;
    return IGNIS_OK;
}

TEST(a_rule_is_copied)
{
    ignis_tensor inputs[64], a, b, y;
    ignis_array saved[20], kept;
    ignis_rule rule = rule_of("params", params_backward);
    int64_t params[2] = {11, 22};
    int i;
    SETUP(NULL);
    a = vector3(1, 2, 3, true);
    b = vector3(1, 2, 3, false);
    y = vector3(7, 8, 9, false);
    kept = test_array(1, 3);
    for (i = 0; i < 64; i++)
        inputs[i] = i == 0 || i == 63 ? a : b;
    for (i = 0; i < 20; i++)
        saved[i] = kept;
    rule.saved = saved, rule.saved_count = 20;
    rule.params = params, rule.params_size = sizeof params;
    rule.user_data = test__message;
    CHECK_OK(ignis_tape_record(y, inputs, 64, &rule));
    memset(&rule, 0, sizeof rule);
    memset(params, 0, sizeof params);
    memset(saved, 0, sizeof saved);
    memset(inputs, 0, sizeof inputs);
    drop(kept); /* the tape keeps the memory */
    let_go(b);
    kept = array_of(1, 1, 1);
    CHECK_OK(ignis_backward(y, kept));
    CHECK_GRAD(a, 10, 10, 10);
    drop(kept);
    let_go(a);
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

/* --- saved arrays belong to who made them ------------------------------------------------------------------------ */

/*  grad = grad_output * saved[0] */
static ignis_status saved_mul_backward(const ignis_backward_args *args)
{
    ignis_array grad = array_like(args->grad_output);
    CHECK(ignis_array_is_live(args->saved[0]));
    return user_give(args, 0, grad,
                     grad.id ? ignis_array_mul(grad, args->grad_output, args->saved[0]) : IGNIS_ERROR_MEMORY);
}

/*  a * mask, with the caller's own array for a mask */
static ignis_tensor masked(ignis_tensor a, ignis_array mask)
{
    ignis_array made = array_like(ignis_tensor_data(a));
    ignis_rule rule = rule_of("masked", saved_mul_backward);
    rule.saved = &mask;
    rule.saved_count = 1;
    CHECK_OK(ignis_array_mul(made, ignis_tensor_data(a), mask));
    return user_result(made, &a, 1, &rule);
}

TEST(a_saved_array_is_used_for_ever)
{
    ignis_tensor x;
    ignis_array mask;
    int i;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    mask = array_of(1, 0, 2);
    for (i = 0; i < 3; i++) {
        ignis_scope scope = ignis_scope_begin();
        CHECK_OK(ignis_backward(user_sum(masked(masked(x, mask), mask)), IGNIS_NO_ARRAY)); /* twice in one step, too */
        CHECK_OK(ignis_scope_end(scope));
        CHECK_GRAD(x, i + 1, 0, 4 * (i + 1));
        CHECK_ARRAY(mask, 1, 0, 2);
        CHECK_INT(info_of(mask).ref_count, 0);
    }
    drop(mask);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(a_saved_array_is_freed_at_once)
{
    ignis_tensor x, y;
    ignis_array mask, g;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    mask = array_of(1, 0, 2);
    g = array_of(1, 1, 1);
    y = masked(masked(x, mask), mask);
    test_leaks_expected = true; /* the inner product's handle */
    drop(mask);
    CHECK(!ignis_array_is_live(mask));
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(x, 1, 0, 4);
    let_go(y);
    y = masked(x, mask = array_of(5, 5, 5));
    drop(mask);
    CHECK_OK(ignis_tape_clear()); /* nobody needs it any more */
    let_go(y);
    let_go(x);
    drop(g);
}

static ignis_array freed_inside;
static ignis_status free_inside_backward(const ignis_backward_args *args)
{
    drop(freed_inside);
    CHECK_STATUS(ignis_array_free(args->saved[0]), IGNIS_ERROR_CONTRACT,
                 IGNIS_DIAG_FREE_REFERENCED); /* that one is the tape's */
    return saved_mul_backward(args);
}

TEST(a_saved_array_is_freed_inside_its_backward)
{
    ignis_tensor x, y;
    ignis_array g;
    ignis_rule rule = rule_of("inside", free_inside_backward);
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    g = array_of(1, 1, 1);
    freed_inside = array_of(4, 5, 6);
    rule.saved = &freed_inside;
    rule.saved_count = 1;
    y = user_result(ignis_array_clone(g), &x, 1, &rule);
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(x, 4, 5, 6);
    let_go(y);
    let_go(x);
    drop(g);
    CHECK_INT(memory().live_blocks, 0);
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

TEST(backward_follows_the_chain_rule)
{
    ignis_tensor x, w, y, loss;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    w = vector3(-1, 0.5, 4, true);
    y = user_scale(user_mul(x, w), 3); /* the product's handle is lost: a scope would have it */
    loss = user_sum(y);
    CHECK_NUMBER(ignis_item(loss), 36);
    test_leaks_expected = true;
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    CHECK_GRAD(x, -3, 1.5, 12);
    CHECK_GRAD(w, 3, 6, 9);
    CHECK(!has_grad(y));
    CHECK(!has_grad(loss));
    CHECK_INT(ignis_tape_length(), 0);
    let_go(x);
    let_go(w);
    let_go(y);
    let_go(loss);
}

TEST(backward_with_a_gradient)
{
    ignis_tensor x, y;
    ignis_array g;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    y = user_mul(x, x);
    g = array_of(1, 10, 100);
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(x, 2, 40, 600);
    CHECK_ARRAY(g, 1, 10, 100);
    drop(g); /* is the caller's */
    let_go(x);
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(backward_of_one_element_in_any_shape_and_dtype)
{
    static const double two = 2;
    int d;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        ignis_tensor x = tensor_of(&two, IGNIS_SHAPE(1, 1, 1), float_dtypes[d], true), y = user_mul(x, x);
        CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
        CHECK_NUMBER(grad_at(x, 0), 4);
        CHECK_SHAPE(ignis_tensor_grad(x), IGNIS_SHAPE(1, 1, 1));
        CHECK_INT(info_of(ignis_tensor_grad(x)).dtype, float_dtypes[d]);
        let_go(x);
        let_go(y);
    }
}

TEST(backward_refuses)
{
    ignis_tensor x, y, constant;
    ignis_array g, other;
    int64_t live;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    y = user_mul(x, x);
    constant = vector3(1, 2, 3, false);
    live = memory().live_blocks;
    CHECK_STATUS(ignis_backward(y, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_NOT_SCALAR);
    CHECK_MESSAGE_HAS("[3]");
    CHECK_STATUS(ignis_backward(constant, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_GRAD_WANTED);
    g = test_array(2, 2);
    CHECK_STATUS(ignis_backward(y, g), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("[2, 2]");
    drop(g);
    CHECK_STATUS(ignis_backward(y, g), IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED);
    g = make(IGNIS_SHAPE(3), IGNIS_F64);
    CHECK_OK(ignis_array_fill(g, 1));
    CHECK_STATUS(ignis_backward(y, g), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("f64");
    drop(g);
    if (ignis_device_count() > 1) {
        ignis_array_desc desc = desc_of(IGNIS_SHAPE(3), IGNIS_F32);
        desc.device = 1;
        other = ignis_array_create(&desc);
        CHECK_OK(ignis_array_fill(other, 1));
        CHECK_STATUS(ignis_backward(y, other), IGNIS_ERROR_DEVICE, IGNIS_DIAG_DEVICE_DIFFERS);
        drop(other);
    }
    CHECK_INT(memory().live_blocks, live);
    CHECK_INT(ignis_tape_length(), 1); /* a refusal leaves the tape alone */
    CHECK(!has_grad(x));
    g = array_of(1, 1, 1);
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(x, 2, 4, 6);
    drop(g);
    let_go(x);
    let_go(y);
    let_go(constant);
}

TEST(backward_with_a_gradient_that_was_never_written)
{
    ignis_tensor x, y;
    ignis_array g;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    y = user_mul(x, x);
    g = make(IGNIS_SHAPE(3), IGNIS_F32);
    CHECK(ignis_backward(y, g) == IGNIS_ERROR_ARGUMENT);
    CHECK_INT(ignis_status_last(), IGNIS_ERROR_ARGUMENT);
    ignis_status_clear();
    CHECK(!has_grad(x));
    drop(g);
    let_go(x);
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(backward_from_a_leaf)
{
    ignis_tensor x, one;
    ignis_array g;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    g = array_of(1, 2, 3);
    CHECK_OK(ignis_backward(x, g));
    CHECK_OK(ignis_backward(x, g));
    CHECK_GRAD(x, 2, 4, 6);
    CHECK_ARRAY(g, 1, 2, 3);
    CHECK(ignis_array_device_ptr(g) != ignis_array_device_ptr(ignis_tensor_grad(x)));
    drop(g);
    one = ignis_tensor_from_array(g = make_counting(IGNIS_SHAPE(1), 0), false);
    drop(g);
    let_go(one);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(backward_of_nothing)
{
    ignis_tensor x, y;
    ignis_tensor_desc desc = tensor_desc(IGNIS_F32, true);
    ignis_array g;
    SETUP(NULL);
    x = ignis_tensor_zeros(IGNIS_SHAPE(0, 3), &desc);
    y = user_mul(x, x);
    CHECK_STATUS(ignis_backward(y, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_NOT_SCALAR);
    g = make(IGNIS_SHAPE(0, 3), IGNIS_F32);
    CHECK_OK(ignis_backward(y, g));
    CHECK_SHAPE(ignis_tensor_grad(x), IGNIS_SHAPE(0, 3));
    drop(g);
    let_go(x);
    let_go(y);
}

TEST(gradients_reach_through_what_was_released)
{
    ignis_tensor x, a, b;
    ignis_scope scope;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    scope = ignis_scope_begin();
    a = user_mul(x, x);
    b = ignis_scope_return(scope, user_sum(user_mul(a, x)));
    CHECK_FAILS(ignis_tensor_data(a), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_INT(ignis_tape_length(), 3);
    CHECK_OK(ignis_backward(b, IGNIS_NO_ARRAY));
    CHECK_GRAD(x, 3, 12, 27);
    CHECK_INT(ignis_tape_length(), 0);
    let_go(b);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

/*  A leaf that is released before backward takes its gradient along, and nothing leaks. */
TEST(a_leaf_may_be_released_before_backward)
{
    ignis_tensor x, w, y;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    w = vector3(4, 5, 6, true);
    y = user_mul(x, w);
    let_go(x);
    {
        ignis_array g = array_of(1, 1, 1);
        CHECK_OK(ignis_backward(y, g));
        drop(g);
    }
    CHECK_GRAD(w, 1, 2, 3);
    let_go(y);
    let_go(w);
    CHECK_INT(memory().live_blocks, 0);
}

/* --- walked once ------------------------------------------------------------------------------------------------- */

TEST(a_second_backward_is_refused)
{
    ignis_tensor x, h, y;
    ignis_array g;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    h = user_mul(x, x);
    y = user_scale(h, 2);
    g = array_of(1, 1, 1);
    CHECK_OK(ignis_backward(y, g));
    CHECK_STATUS(ignis_backward(y, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_TWICE);
    CHECK_STATUS(ignis_backward(h, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_TWICE);
    CHECK_GRAD(x, 4, 8, 12);
    CHECK_ARRAY(ignis_tensor_data(h), 1, 4, 9); /* values stay */
    drop(g);
    let_go(x);
    let_go(h);
    let_go(y);
}

/*  Two losses share a trunk, which the first backward has released: the second must not quietly miss it. */
TEST(a_backward_into_a_walked_trunk_is_refused)
{
    ignis_tensor x, w, h, first, second, late;
    ignis_array g;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    w = vector3(1, 1, 1, true);
    h = user_mul(x, x);
    first = user_scale(h, 2);
    second = user_mul(h, w);
    g = array_of(1, 1, 1);
    CHECK_OK(ignis_backward(first, g));
    CHECK_STATUS(ignis_backward(second, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_TWICE);
    CHECK_GRAD(x, 4, 8, 12);
    CHECK(!has_grad(w));   /* after a failure no leaf has changed */
    late = user_mul(h, w); /* recorded after the trunk was walked */
    CHECK_STATUS(ignis_backward(late, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_TWICE);
    CHECK(!has_grad(w));
    drop(g);
    let_go(x);
    let_go(w);
    let_go(h);
    let_go(first);
    let_go(second);
    if (late.id)
        let_go(late);
    ignis_status_clear();
    CHECK_INT(memory().live_blocks, 0);
}

TEST(another_branch_keeps_its_record)
{
    ignis_tensor x, a, b;
    ignis_array g;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    a = user_mul(x, x);
    b = user_scale(x, 3);
    g = array_of(1, 1, 1);
    CHECK_INT(ignis_tape_length(), 2);
    CHECK_OK(ignis_backward(a, g));
    CHECK_INT(ignis_tape_length(), 1);
    CHECK_OK(ignis_backward(b, g));
    CHECK_GRAD(x, 5, 7, 9);
    drop(g);
    let_go(x);
    let_go(a);
    let_go(b);
}

TEST(backward_releases_as_it_goes)
{
    ignis_scope scope;
    ignis_tensor x, loss;
    int64_t before, recorded;
    SETUP(NULL);
    x = tensor_counting(IGNIS_SHAPE(1 << 16), IGNIS_F32, 1e-5, true);
    CHECK_OK(ignis_zero_grad(x));
    before = memory().live_bytes;
    scope = ignis_scope_begin();
    loss = ignis_scope_return(scope, user_sum(user_mul(user_mul(user_mul(x, x), x), x)));
    recorded = memory().live_bytes;
    CHECK(recorded >= before + 2 * 4 * (1 << 16)); /* two products are saved */
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    let_go(loss);
    CHECK_INT(memory().live_bytes, before);
    let_go(x);
}

TEST(tape_clear_forgets)
{
    ignis_tensor x, y;
    ignis_array g;
    int64_t before;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    before = memory().live_blocks;
    y = user_mul(user_mul(x, x), x);
    test_leaks_expected = true; /* the inner product's handle */
    CHECK_INT(ignis_tape_length(), 2);
    CHECK_OK(ignis_tape_clear());
    CHECK_INT(ignis_tape_length(), 0);
    CHECK_OK(ignis_tape_clear());
    g = array_of(1, 1, 1);
    CHECK_STATUS(ignis_backward(y, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_TWICE);
    CHECK_ARRAY(ignis_tensor_data(y), 1, 8, 27); /* values stay */
    CHECK(!has_grad(x));
    let_go(y);
    CHECK(memory().live_blocks <= before + 2);
    y = user_mul(x, x);
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(x, 2, 4, 6);
    drop(g);
    let_go(x);
    let_go(y);
}

TEST(tape_clear_frees_what_scopes_have_left)
{
    ignis_scope scope;
    ignis_tensor x, y;
    int i;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    scope = ignis_scope_begin();
    y = x;
    for (i = 0; i < 50; i++)
        y = user_mul(y, x);
    y = ignis_scope_return(scope, y);
    CHECK_INT(ignis_tape_length(), 50);
    CHECK_OK(ignis_tape_clear());
    let_go(y);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(shutdown_ends_an_unfinished_tape)
{
    ignis_scope scope;
    ignis_tensor x, y;
    int i;
    SETUP(NULL);
    test_leaks_expected = true;
    x = vector3(1, 2, 3, true);
    scope = ignis_scope_begin();
    y = x;
    for (i = 0; i < 5; i++)
        y = user_mul(y, x);
    y = ignis_scope_return(scope, y);
    CHECK_OK(ignis_shutdown());
    CHECK_INT(test_log_count(IGNIS_DIAG_ARRAY_LEAKED), 2); /* x and y; not what only the tape had */
    SETUP(NULL);
    CHECK_INT(ignis_tape_length(), 0);
    CHECK_FAILS(ignis_backward(y, IGNIS_NO_ARRAY), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
}

/* --- long and many ----------------------------------------------------------------------------------------------- */

enum { CHAIN = 100000 };

/*  A chain of reshapes from x, released on the way. */
static ignis_tensor long_chain(ignis_tensor x)
{
    ignis_tensor y = x, next;
    int i;
    for (i = 0; i < CHAIN && y.id; i++) {
        next = ignis_reshape(y, i % 2 ? IGNIS_SHAPE(1, 1) : IGNIS_SHAPE(1));
        if (i > 0)
            ignis_tensor_release(y);
        y = next;
    }
    return y;
}

static void *long_chain_thread(void *arg)
{
    static const double one = 1;
    ignis_tensor x = tensor_of(&one, IGNIS_SHAPE(1), IGNIS_F32, true), y = long_chain(x);
    (void)arg;
    CHECK_INT(ignis_tape_length(), CHAIN);
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
    CHECK_NUMBER(grad_at(x, 0), 1);
    CHECK_INT(ignis_tape_length(), 0);
    let_go(y);
    y = long_chain(x);
    let_go(y); /* the whole chain goes with its last tensor */
    CHECK_INT(ignis_tape_length(), 0);
    y = long_chain(x);
    CHECK_OK(ignis_tape_clear());
    let_go(y);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
    return NULL;
}

/*  On a stack on which no recursion of that depth would fit. */
TEST(a_hundred_thousand_operations)
{
    pthread_attr_t attributes;
    pthread_t thread;
    SETUP(NULL);
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setstacksize(&attributes, 512 * 1024) == 0);
    REQUIRE(pthread_create(&thread, &attributes, long_chain_thread, NULL) == 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

TEST(a_thousand_steps_take_no_memory)
{
    ignis_memory_info first, last;
    ignis_tensor x;
    int i;
    SETUP(NULL);
    x = vector3(1, 0.5, 0.25, true);
    memset(&first, 0, sizeof first);
    for (i = 0; i < 1000; i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor h = user_mul(x, x), dead = user_scale(h, 7), loss = user_sum(user_add(h, x));
        (void)user_mul(dead, dead); /* a branch that no loss needs */
        CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
        CHECK_OK(ignis_scope_end(scope));
        CHECK_OK(ignis_zero_grad(x));
        CHECK_INT(ignis_tape_length(), 0);
        if (i == 5)
            first = memory();
    }
    last = memory();
    CHECK_INT(last.live_bytes, first.live_bytes);
    CHECK_INT(last.live_blocks, first.live_blocks);
    CHECK_INT(last.reserved_bytes, first.reserved_bytes);
    let_go(x);
}

/*  A ladder: each rung is used by the next two; 2^200 paths, 200 entries. */
TEST(each_entry_is_walked_once)
{
    ignis_scope scope;
    ignis_tensor x, a, b, next;
    double expected = 0;
    int i;
    SETUP(NULL);
    x = vector3(1, 1, 1, true);
    scope = ignis_scope_begin();
    a = x, b = x;
    for (i = 0; i < 200; i++) {
        next = user_scale(user_add(a, b), 0.5);
        a = b, b = next;
    }
    CHECK_OK(ignis_backward(user_sum(b), IGNIS_NO_ARRAY));
    expected = 1;
    CHECK_CLOSE(grad_at(x, 0), expected, 1e-5);
    CHECK_OK(ignis_scope_end(scope));
    let_go(x);
}

/* --- inside a backward function ---------------------------------------------------------------------------------- */

static struct {
    ignis_tensor weight, other; /* other is walked */
    ignis_status status;        /* that the function is to answer; then that of the backward inside */
} inside;

/*  Walks back from inside.other, and fails if it is told so. */
static ignis_status walk_inside_backward(const ignis_backward_args *args)
{
    ignis_status failing = inside.status;
    inside.status = ignis_backward(inside.other, args->grad_output);
    args->grad_inputs[0] = args->grad_output;
    return failing;
}

TEST(a_backward_inside_writes_to_leaves_with_the_outermost)
{
    ignis_tensor x, y;
    ignis_array g;
    ignis_rule rule = rule_of("inside", walk_inside_backward);
    int i;
    SETUP(NULL);
    g = array_of(1, 10, 100);
    for (i = 0; i < 2; i++) {
        x = vector3(1, 2, 3, true);
        inside.weight = vector3(2, 2, 2, true);
        inside.other =
            user_mul(inside.weight, inside.weight); /* older than the entry that walks it: it waits for the walk */
        inside.status = i ? IGNIS_OK : IGNIS_ERROR_IO;
        y = user_result(ignis_array_clone(g), &x, 1, &rule);
        CHECK_INT(ignis_backward(y, g) == IGNIS_OK, i);
        ignis_status_clear();
        CHECK_OK(inside.status);
        CHECK(has_grad(inside.weight) == (i == 1));
        CHECK(has_grad(x) == (i == 1));
        if (i)
            CHECK_GRAD(inside.weight, 4, 40, 400);
        CHECK_INT(ignis_tape_length(), 0);
        let_go(inside.other);
        let_go(inside.weight);
        let_go(y);
        let_go(x);
    }
    drop(g);
    CHECK_INT(memory().live_blocks, 0);
}

/*  A backward inside that fails fails all: what it gave to others is not whole. */
TEST(a_failed_backward_inside_is_not_swallowed)
{
    ignis_tensor x, y;
    ignis_array g;
    ignis_rule rule = rule_of("inside", walk_inside_backward);
    SETUP(NULL);
    g = array_of(1, 10, 100);
    x = vector3(1, 2, 3, true);
    inside.weight = vector3(2, 2, 2, true);
    y = user_result(ignis_array_clone(g), &x, 1, &rule);
    inside.other = y; /* its own result */
    inside.status = IGNIS_OK;
    CHECK_STATUS(ignis_backward(y, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_TWICE);
    CHECK_MESSAGE_HAS("'inside'");
    CHECK_INT(inside.status, IGNIS_ERROR_ARGUMENT);
    CHECK(!has_grad(x));
    let_go(y);
    let_go(x);
    let_go(inside.weight);
    drop(g);
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_status unbalanced_backward(const ignis_backward_args *args)
{
    switch ((int)(size_t)args->user_data) {
    case 0: CHECK(ignis_scope_begin().id != 0); break;
    case 1: CHECK_OK(ignis_no_grad_begin()); break;
    case 2: CHECK_STATUS(ignis_no_grad_end(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER); break;
    default:
        CHECK_STATUS(ignis_scope_end(*(const ignis_scope *)args->params), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER);
        break;
    }
    args->grad_inputs[0] = args->grad_output;
    return IGNIS_OK;
}

TEST(a_backward_function_ends_what_it_begins)
{
    size_t i;
    SETUP(NULL);
    for (i = 0; i < 4; i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = vector3(1, 2, 3, true), y;
        ignis_array g = array_of(1, 1, 1);
        ignis_rule rule = rule_of("unbalanced", unbalanced_backward);
        rule.user_data = (void *)i;
        rule.params = &scope;
        rule.params_size = sizeof scope;
        y = user_result(ignis_array_clone(g), &x, 1, &rule);
        CHECK(ignis_backward(y, g) != IGNIS_OK);
        ignis_status_clear();
        CHECK(!has_grad(x));
        CHECK_OK(ignis_backward(user_mul(x, x), g)); /* recording is on */
        CHECK_OK(ignis_scope_end(scope));
        drop(g);
    }
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_status clear_backward(const ignis_backward_args *args)
{
    CHECK_STATUS(ignis_tape_clear(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TAPE_WALKED);
    CHECK_STATUS(ignis_shutdown(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TAPE_WALKED);
    args->grad_inputs[0] = args->grad_output;
    return IGNIS_OK;
}

TEST(a_tape_is_not_cleared_inside_a_backward)
{
    ignis_tensor x, y;
    ignis_array g;
    ignis_rule rule = rule_of("clear", clear_backward);
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    g = array_of(1, 10, 100);
    y = user_result(ignis_array_clone(g), &x, 1, &rule);
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(x, 1, 10, 100);
    let_go(y);
    let_go(x);
    drop(g);
    CHECK_INT(memory().live_blocks, 0);
}

/* --- the graph as text ------------------------------------------------------------------------------------------- */

TEST(tape_dot_draws_the_graph)
{
    char text[4096], small[20];
    ignis_scope scope;
    ignis_tensor x, c, y;
    int64_t length;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    c = vector3(1, 2, 3, false);
    scope = ignis_scope_begin();
    (void)user_scale(x, 7); /* does not lead to y */
    y = user_sum(user_mul(user_mul(x, c), x));
    length = ignis_tape_dot(y, text, sizeof text);
    CHECK_INT(length, (int64_t)strlen(text));
    CHECK_HAS(text, "digraph tape {\n");
    CHECK_HAS(text, "user_sum\\n[1] f32");
    CHECK_HAS(text, "user_mul\\n[3] f32\\n24 bytes kept");
    CHECK_HAS(text, "leaf\\n[3] f32");
    CHECK_HAS(text, "constant\\n[3] f32");
    CHECK(strstr(text, "user_scale") == NULL);
    CHECK(strcmp(text + length - 2, "}\n") == 0);
    CHECK_INT(ignis_tape_dot(y, NULL, 0), length);
    memset(small, 'x', sizeof small);
    CHECK_INT(ignis_tape_dot(y, small, 10), length);
    CHECK_TEXT(small, "digraph t");
    CHECK_INT(small[10], 'x');
    CHECK_REFUSED(-1, ignis_tape_dot(y, NULL, 10), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_TEXT((ignis_tape_dot(x, text, sizeof text), text), "digraph tape {\n}\n");
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY)); /* drawing has changed nothing */
    CHECK_GRAD(x, 2, 8, 18);
    CHECK_OK(ignis_scope_end(scope));
    let_go(x);
    let_go(c);
}

/* --- a backward that retains -------------------------------------------------------------------------------------- */

/*  Two results share a trunk: each has a walk of its own. */
TEST(a_retained_trunk_serves_two_results)
{
    ignis_tensor x, trunk, first, second;
    ignis_array g;
    int64_t before;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    CHECK_OK(ignis_zero_grad(x));
    g = array_of(1, 1, 1);
    before = memory().live_bytes;
    trunk = user_mul(x, x);
    first = user_scale(trunk, 2);
    second = user_scale(trunk, 5);
    CHECK_OK(ignis_backward_retain(first, g));
    CHECK_GRAD(x, 4, 8, 12);
    CHECK_OK(ignis_backward(second, g));
    CHECK_GRAD(x, 14, 28, 42);
    CHECK_STATUS(ignis_backward(first, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_TWICE); /* the trunk is gone */
    let_go(first), let_go(second), let_go(trunk);
    CHECK_INT(memory().live_bytes, before);
    CHECK_GRAD(x, 14, 28, 42);
    drop(g);
    let_go(x);
}

/*  What was retained goes with the tensors that lead to it, or with the tape. */
TEST(a_retained_record_ends)
{
    ignis_tensor x, y, trunk;
    ignis_array g;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    g = array_of(1, 1, 1);
    trunk = user_scale(x, 2);
    y = user_mul(trunk, x);
    CHECK_OK(ignis_backward_retain(y, g));
    CHECK_INT(ignis_tape_length(), 2);
    CHECK_OK(ignis_tape_clear());
    CHECK_STATUS(ignis_backward_retain(y, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_TWICE);
    CHECK_GRAD(x, 4, 8, 12);
    let_go(y), let_go(trunk);
    trunk = user_scale(x, 2);
    y = user_mul(trunk, x);
    CHECK_OK(ignis_backward_retain(y, g));
    let_go(trunk);
    CHECK_INT(ignis_tape_length(), 2);
    let_go(y);
    CHECK_INT(ignis_tape_length(), 0);
    drop(g);
    let_go(x);
}

/* --- functions that return nothing -------------------------------------------------------------------------------- */

/*  What the function of a checkpoint or a gradcheck does: *user_data is how often it still returns a tensor. */
static ignis_tensor returns_nothing(const ignis_tensor *inputs, int count, void *user_data)
{
    int *left = (int *)user_data;
    (void)count;
    return (*left)-- > 0 ? ignis_scale(inputs[0], 2) : no_tensor();
}

static ignis_tensor returns_a_failure(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count, (void)user_data;
    return ignis_matmul(inputs[0], inputs[0]); /* of one dimension */
}

/*  Whoever returns no tensor without a reason is told so; a reason of its own stays. */
TEST(a_function_that_returns_no_tensor_is_told)
{
    ignis_tensor x, y, z;
    int left, wrong;
    SETUP(NULL);
    x = tensor_counting(IGNIS_SHAPE(4), IGNIS_F64, 1, true);
    left = 0;
    CHECK_FAILS(ignis_checkpoint(returns_nothing, &left, &x, 1, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_MESSAGE_HAS("ignis_checkpoint: the function returned no tensor");
    for (left = 0; left < 2; left++) { /* the first time, or at the first difference */
        int calls = left;
        double error = ignis_gradcheck(returns_nothing, &calls, &x, 1, NULL);
        CHECK(error != error);
        CHECK_INT(ignis_status_last(), IGNIS_ERROR_ARGUMENT);
        CHECK_HAS(ignis_status_message(), "the function returned no tensor");
        ignis_status_clear();
    }
    left = 1; /* not when it is run again, in backward */
    z = ignis_checkpoint(returns_nothing, &left, &x, 1, NULL);
    y = ignis_sum(z);
    CHECK_INT(ignis_backward(y, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT);
    CHECK_HAS(ignis_status_message(), "the function returned no tensor");
    ignis_status_clear();
    for (wrong = 0; wrong < 2; wrong++) {
        if (wrong == 0)
            CHECK(ignis_checkpoint(returns_a_failure, NULL, &x, 1, NULL).id == 0);
        else
            CHECK(ignis_gradcheck(returns_a_failure, NULL, &x, 1, NULL) != 0);
        CHECK_INT(ignis_status_last(), IGNIS_ERROR_SHAPE);
        ignis_status_clear();
    }
    let_go(x), let_go(y), let_go(z);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
