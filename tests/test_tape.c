// SPDX-License-Identifier: MIT
/*  test_tape.c - recording, backward, gradients that add up, checkpoints, graphs, gradcheck

    All operations here are users' own (tensor.h), but for ignis_reshape, which costs no launch, and ignis_matmul. */
#include "fault.h"
#include "tensor.h"
#include <limits.h>
#include <math.h>

enum { OUT_OF_MEMORY = 2 }; /* CUDA_ERROR_OUT_OF_MEMORY */

static ignis_tensor vector3(double a, double b, double c, bool requires_grad)
{
    double values[3];
    values[0] = a, values[1] = b, values[2] = c;
    return tensor_of(values, IGNIS_SHAPE(3), IGNIS_F32, requires_grad);
}

static ignis_tensor double3(double a, double b, double c, bool requires_grad)
{
    double values[3];
    values[0] = a, values[1] = b, values[2] = c;
    return tensor_of(values, IGNIS_SHAPE(3), IGNIS_F64, requires_grad);
}

static ignis_array array_of(double a, double b, double c)
{
    double values[3];
    ignis_array array = make(IGNIS_SHAPE(3), IGNIS_F32);
    values[0] = a, values[1] = b, values[2] = c;
    CHECK_OK(ignis_array_from_host(array, values, IGNIS_F64, 3));
    return array;
}

#define CHECK_GRAD(tensor, a, b, c) check_values3(__LINE__, ignis_tensor_grad(tensor), a, b, c)
#define CHECK_ARRAY(array, a, b, c) check_values3(__LINE__, array, a, b, c)
static void check_values3(int line, ignis_array array, double a, double b, double c)
{
    char text[256];
    double *v;
    if (!array.id || ignis_array_numel(array) != 3) {
        test__fail(__FILE__, line, "there is no such array");
        return;
    }
    v = array_values(array);
    if (v[0] != a || v[1] != b || v[2] != c) {
        snprintf(text, sizeof text, "[%.9g, %.9g, %.9g], expected [%.9g, %.9g, %.9g]", v[0], v[1], v[2], a, b, c);
        test__fail(__FILE__, line, text);
    }
    free(v);
}

static bool has_grad(ignis_tensor tensor) { return ignis_tensor_grad(tensor).id != 0; }

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

static ignis_rule rule_of(const char *name, ignis_status (*fn)(const ignis_backward_args *))
{
    ignis_rule rule;
    memset(&rule, 0, sizeof rule);
    rule.name = name;
    rule.backward_fn = fn;
    return rule;
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
    CHECK_STATUS(ignis_tape_record(a, &a, 1, &rule), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_RECORDED_TWICE); /* a leaf that wants a gradient */
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
    return user_give(args, 0, grad, grad.id ? ignis_array_mul(grad, args->grad_output, args->saved[0]) : IGNIS_ERROR_MEMORY);
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
    CHECK_STATUS(ignis_array_free(args->saved[0]), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_FREE_REFERENCED); /* that one is the tape's */
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

/* --- adding up --------------------------------------------------------------------------------------------------- */

TEST(a_tensor_that_is_used_many_times)
{
    ignis_tensor x, loss;
    ignis_scope scope;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    scope = ignis_scope_begin();
    loss = user_sum(user_add(user_add(user_mul(x, x), x), user_add(user_scale(x, 5), user_mul(user_mul(x, x), x)))); /* x^2 + 6x + x^3 */
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
        inside.other = user_mul(inside.weight, inside.weight); /* older than the entry that walks it: it waits for the walk */
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
    default: CHECK_STATUS(ignis_scope_end(*(const ignis_scope *)args->params), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER); break;
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

/*  What one stream adds comes after what the other has added: seen where the simulator runs work only when it is waited for. */
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
    check_failing(QUIET, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_FAILED, "'failing' answered IGNIS_ERROR_UNSUPPORTED");
    check_failing(LOUD, IGNIS_ERROR_FREED, IGNIS_DIAG_ARRAY_FREED, "");
    check_failing(HALF, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_FAILED, "'failing' answered IGNIS_ERROR_IO");
}

TEST(a_backward_function_that_gives_the_wrong_thing)
{
    SETUP(NULL);
    check_failing(WRONG_SHAPE, IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS, "'failing' gave a gradient [4] of f32 for input 0");
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

/* --- checkpoints ------------------------------------------------------------------------------------------------- */

typedef struct layer {
    ignis_tensor weight;
    int calls, fail_at; /* the call that fails; 0: none */
    bool random;
} layer;

/*  x * w * x, and x * random where wanted */
static ignis_tensor layer_run(const ignis_tensor *inputs, int count, void *user_data)
{
    layer *l = (layer *)user_data;
    ignis_tensor none = {0}, y;
    CHECK_INT(count, 1);
    if (++l->calls == l->fail_at)
        return none;
    y = user_mul(user_mul(inputs[0], l->weight), inputs[0]);
    return l->random ? user_mul(y, ignis_tensor_rand(IGNIS_SHAPE(3), NULL)) : y;
}

static void run_layers(layer *l, ignis_tensor x, bool checkpointed, double out[9])
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor y, loss;
    double *v;
    int i;
    CHECK_OK(ignis_seed(5));
    y = checkpointed ? ignis_checkpoint(layer_run, l, &x, 1) : layer_run(&x, 1, l);
    y = checkpointed ? ignis_checkpoint(layer_run, l, &y, 1) : layer_run(&y, 1, l);
    loss = user_sum(user_mul(y, y));
    v = tensor_values(y);
    for (i = 0; i < 3; i++)
        out[i] = v[i];
    free(v);
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    v = array_values(ignis_tensor_grad(x));
    for (i = 0; i < 3; i++)
        out[3 + i] = v[i];
    free(v);
    v = array_values(ignis_tensor_grad(l->weight));
    for (i = 0; i < 3; i++)
        out[6 + i] = v[i];
    free(v);
    CHECK_OK(ignis_zero_grad(x));
    CHECK_OK(ignis_zero_grad(l->weight));
    CHECK_OK(ignis_scope_end(scope));
}

static void check_checkpoint(bool random)
{
    layer l;
    ignis_tensor x;
    double plain[9], checkpointed[9];
    int i;
    memset(&l, 0, sizeof l);
    l.random = random;
    l.weight = vector3(0.5, -1, 2, true); /* not an input: fn uses it beside */
    x = vector3(1, 2, 0.5, true);
    run_layers(&l, x, false, plain);
    CHECK_INT(l.calls, 2);
    run_layers(&l, x, true, checkpointed);
    CHECK_INT(l.calls, 6);
    for (i = 0; i < 9; i++) {
        CHECK_NUMBER(checkpointed[i], plain[i]);
        CHECK(plain[i] != 0);
    }
    let_go(x);
    let_go(l.weight);
    CHECK_INT(memory().live_blocks, 0);
    CHECK_INT(ignis_tape_length(), 0);
}

TEST(a_checkpoint_gives_the_same_values_and_gradients)
{
    SETUP(NULL);
    check_checkpoint(false);
}

TEST(a_checkpoint_sees_the_same_random_numbers)
{
    SETUP(NULL);
    check_checkpoint(true);
}

/*  The random numbers after a backward go on from where they were, whether there were checkpoints in it or not. */
TEST(a_checkpoint_leaves_the_random_sequence_alone)
{
    layer l;
    ignis_tensor x, r[2];
    double ignored[9];
    int i;
    SETUP(NULL);
    memset(&l, 0, sizeof l);
    l.random = true;
    l.weight = vector3(0.5, -1, 2, true);
    x = vector3(1, 2, 0.5, true);
    for (i = 0; i < 2; i++) {
        run_layers(&l, x, i == 1, ignored);
        r[i] = ignis_tensor_rand(IGNIS_SHAPE(1), NULL);
    }
    CHECK_NUMBER(value_at(r[0], 0), value_at(r[1], 0));
    let_go(r[0]);
    let_go(r[1]);
    let_go(x);
    let_go(l.weight);
}

static ignis_tensor nested_run(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_tensor h = ignis_checkpoint(layer_run, user_data, inputs, count);
    h = ignis_checkpoint(layer_run, user_data, &h, 1);
    return user_add(h, inputs[0]);
}

TEST(checkpoints_nest)
{
    layer l;
    ignis_tensor x, y[2];
    double grads[2][6], *v;
    int i, k;
    SETUP(NULL);
    memset(&l, 0, sizeof l);
    l.weight = vector3(0.5, -1, 2, true);
    x = vector3(1, 2, 0.5, true);
    for (i = 0; i < 2; i++) {
        ignis_scope scope = ignis_scope_begin();
        if (i == 0) {
            ignis_tensor h = layer_run(&x, 1, &l);
            y[i] = user_add(layer_run(&h, 1, &l), x);
        } else {
            y[i] = ignis_checkpoint(nested_run, &l, &x, 1);
        }
        CHECK_OK(ignis_backward(user_sum(y[i]), IGNIS_NO_ARRAY));
        v = array_values(ignis_tensor_grad(x));
        for (k = 0; k < 3; k++)
            grads[i][k] = v[k];
        free(v);
        v = array_values(ignis_tensor_grad(l.weight));
        for (k = 0; k < 3; k++)
            grads[i][3 + k] = v[k];
        free(v);
        CHECK_OK(ignis_zero_grad(x));
        CHECK_OK(ignis_zero_grad(l.weight));
        CHECK_OK(ignis_scope_end(scope));
    }
    for (k = 0; k < 6; k++)
        CHECK_NUMBER(grads[1][k], grads[0][k]);
    let_go(x);
    let_go(l.weight);
    CHECK_INT(memory().live_blocks, 0);
    CHECK_INT(ignis_tape_length(), 0);
}

/*  What fn uses beside its inputs may be the result of an operation before it. */
TEST(a_checkpoint_uses_what_was_computed_before)
{
    layer l;
    ignis_tensor x, w;
    ignis_scope scope;
    SETUP(NULL);
    memset(&l, 0, sizeof l);
    x = vector3(1, 2, 3, true);
    w = vector3(1, 2, 3, true);
    scope = ignis_scope_begin();
    l.weight = user_scale(w, 2);
    CHECK_OK(ignis_backward(user_sum(ignis_checkpoint(layer_run, &l, &x, 1)), IGNIS_NO_ARRAY)); /* 2 w x^2 */
    CHECK_GRAD(x, 4, 16, 36);
    CHECK_GRAD(w, 2, 8, 18);
    CHECK_OK(ignis_scope_end(scope));
    let_go(x);
    let_go(w);
    CHECK_INT(memory().live_blocks, 0);
}

/*  A weight that two checkpoints and a plain operation use. */
TEST(checkpoints_add_up)
{
    layer l;
    ignis_tensor x;
    ignis_scope scope;
    SETUP(NULL);
    memset(&l, 0, sizeof l);
    x = vector3(1, 2, 3, true);
    l.weight = vector3(1, 1, 1, true);
    scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(
        user_sum(user_add(user_add(ignis_checkpoint(layer_run, &l, &x, 1), ignis_checkpoint(layer_run, &l, &x, 1)), user_mul(x, l.weight))),
        IGNIS_NO_ARRAY));
    CHECK_GRAD(l.weight, 3, 10, 21); /* 2 x^2 + x */
    CHECK_GRAD(x, 5, 9, 13);         /* 4 x w + w */
    CHECK_OK(ignis_scope_end(scope));
    let_go(x);
    let_go(l.weight);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(a_checkpoint_keeps_less)
{
    enum { LAYERS = 8, SIZE = 1 << 14 };
    layer l;
    ignis_tensor x;
    int64_t kept[2];
    int i, k;
    SETUP(NULL);
    memset(&l, 0, sizeof l);
    l.weight = tensor_counting(IGNIS_SHAPE(SIZE), IGNIS_F32, 1e-4, true);
    x = tensor_counting(IGNIS_SHAPE(SIZE), IGNIS_F32, 1e-4, true);
    for (i = 0; i < 2; i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor y = x, loss;
        int64_t before = memory().live_bytes;
        for (k = 0; k < LAYERS; k++) {
            ignis_scope inner = ignis_scope_begin();
            y = ignis_scope_return(inner, i ? ignis_checkpoint(layer_run, &l, &y, 1) : layer_run(&y, 1, &l));
        }
        loss = user_sum(y);
        kept[i] = memory().live_bytes - before;
        CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
        CHECK_OK(ignis_scope_end(scope));
    }
    CHECK(kept[1] * 3 < kept[0] * 2); /* one array for each layer instead of two */
    let_go(x);
    let_go(l.weight);
    CHECK_INT(memory().live_blocks, 0);
}

/*  Nothing to train inside: the block is a constant, or hands the gradient of its input on. */
TEST(a_checkpoint_without_trainable_tensors)
{
    layer l;
    ignis_tensor x, w, y;
    ignis_scope scope;
    SETUP(NULL);
    memset(&l, 0, sizeof l);
    x = vector3(1, 2, 3, false);
    w = vector3(1, 1, 1, true);
    l.weight = vector3(2, 2, 2, false);
    scope = ignis_scope_begin();
    y = ignis_checkpoint(layer_run, &l, &x, 1);
    CHECK(!tensor_info(y).requires_grad);
    CHECK_OK(ignis_backward(user_sum(user_mul(y, w)), IGNIS_NO_ARRAY));
    CHECK_INT(l.calls, 1); /* there was nothing to run it again for */
    CHECK_GRAD(w, 2, 8, 18);
    y = ignis_checkpoint(layer_run, &l, &w, 1);
    CHECK(tensor_info(y).requires_grad);
    CHECK_OK(ignis_backward(user_sum(y), IGNIS_NO_ARRAY));
    CHECK_GRAD(w, 6, 12, 22);
    CHECK_OK(ignis_scope_end(scope));
    let_go(l.weight);
    let_go(w);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

/*  The input is there, and wants a gradient; the function does not use it. */
static ignis_tensor constant_run(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)inputs, (void)count;
    return user_mul(*(ignis_tensor *)user_data, *(ignis_tensor *)user_data);
}

TEST(a_checkpoint_that_makes_a_constant)
{
    ignis_tensor x, c;
    ignis_scope scope;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    c = vector3(2, 3, 4, false);
    scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(user_sum(user_mul(ignis_checkpoint(constant_run, &c, &x, 1), x)), IGNIS_NO_ARRAY));
    CHECK_GRAD(x, 4, 9, 16);
    CHECK_OK(ignis_scope_end(scope));
    let_go(c);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

/*  Of eight products in a row the function keeps none: a checkpoint holds its input and its result. */
static ignis_tensor deep_run(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_tensor y = inputs[0];
    int i;
    (void)count;
    for (i = 0; i < 8; i++)
        y = user_mul(y, *(ignis_tensor *)user_data);
    return y;
}

TEST(a_checkpoint_releases_what_its_function_makes)
{
    enum { LAYERS = 8, SIZE = 1 << 14, BYTES = 4 * SIZE };
    ignis_tensor x, w;
    int outside, k;
    SETUP(NULL);
    w = tensor_counting(IGNIS_SHAPE(SIZE), IGNIS_F32, 1e-4, true);
    x = tensor_counting(IGNIS_SHAPE(SIZE), IGNIS_F32, 1e-4, true);
    for (outside = 0; outside < 2; outside++) { /* all in one scope of the caller's, then without any */
        ignis_scope scope = {0};
        ignis_tensor y[LAYERS + 1], loss;
        int64_t before = memory().live_bytes;
        if (!outside)
            scope = ignis_scope_begin();
        y[0] = x;
        for (k = 0; k < LAYERS; k++)
            y[k + 1] = ignis_checkpoint(deep_run, &w, &y[k], 1);
        CHECK_INT(memory().live_bytes - before, LAYERS * BYTES);
        loss = user_sum(y[LAYERS]);
        CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
        if (outside) {
            let_go(loss);
            for (k = 1; k <= LAYERS; k++)
                let_go(y[k]);
        } else {
            CHECK_OK(ignis_scope_end(scope));
        }
        CHECK_INT(memory().live_bytes - before, outside ? 0 : 2 * BYTES); /* the two gradients are new in the first round */
    }
    CHECK_OK(ignis_no_grad_begin());
    let_go(ignis_checkpoint(deep_run, &w, &x, 1));
    CHECK_OK(ignis_no_grad_end());
    let_go(x);
    let_go(w);
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_status refuse_backward(const ignis_backward_args *args)
{
    (void)args;
    return IGNIS_ERROR_IO;
}

/*  The checkpoint has walked when the entry before it fails. */
TEST(a_failed_backward_leaves_the_weights_of_checkpoints)
{
    layer l;
    ignis_tensor x, y;
    ignis_rule rule = rule_of("refuse", refuse_backward);
    ignis_scope scope;
    SETUP(NULL);
    memset(&l, 0, sizeof l);
    x = vector3(1, 2, 3, true);
    l.weight = vector3(1, 1, 1, true);
    scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(user_sum(ignis_checkpoint(layer_run, &l, &x, 1)), IGNIS_NO_ARRAY));
    CHECK_GRAD(l.weight, 1, 4, 9);
    y = user_result(ignis_array_clone(ignis_tensor_data(x)), &x, 1, &rule);
    CHECK(ignis_backward(user_sum(ignis_checkpoint(layer_run, &l, &y, 1)), IGNIS_NO_ARRAY) != IGNIS_OK);
    ignis_status_clear();
    CHECK_INT(l.calls, 4);
    CHECK_GRAD(l.weight, 1, 4, 9);
    CHECK_GRAD(x, 2, 4, 6);
    CHECK_OK(ignis_scope_end(scope));
    let_go(l.weight);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_tensor unbalanced_run(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count;
    switch (*(int *)user_data) {
    case 0: CHECK_STATUS(ignis_no_grad_end(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER); break;
    case 1: CHECK_OK(ignis_no_grad_begin()); break;
    case 2: CHECK(ignis_scope_begin().id != 0); break;
    default: break;
    }
    return user_mul(inputs[0], inputs[0]);
}

TEST(a_checkpoint_ends_what_its_function_has_begun)
{
    ignis_tensor x, y;
    int i;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    for (i = 0; i < 4; i++) {
        y = ignis_checkpoint(unbalanced_run, &i, &x, 1);
        CHECK_INT(y.id != 0, i == 3);
        ignis_status_clear();
        if (y.id)
            let_go(y);
        y = user_mul(x, x); /* recording is as it was */
        CHECK(tensor_info(y).requires_grad);
        let_go(y);
        CHECK_STATUS(ignis_no_grad_end(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SCOPE_ORDER);
    }
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_tensor writing_run(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_array data = ignis_tensor_data(inputs[0]);
    (void)count, (void)user_data;
    CHECK_OK(ignis_array_scale(data, data, 2));
    return user_mul(inputs[0], inputs[0]);
}

/*  The second run would write once more: its gradient would be that of another result. */
TEST(a_checkpoint_whose_function_writes_to_its_input)
{
    ignis_tensor x, y;
    ignis_array g;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    g = array_of(1, 1, 1);
    y = ignis_checkpoint(writing_run, NULL, &x, 1);
    CHECK_ARRAY(ignis_tensor_data(y), 4, 16, 36);
    CHECK_STATUS(ignis_backward(y, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
    CHECK_MESSAGE_HAS("'checkpoint'");
    CHECK_ARRAY(ignis_tensor_data(x), 2, 4, 6);
    CHECK(!has_grad(x));
    drop(g);
    let_go(y);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_tensor integer_run(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count, (void)user_data;
    return ignis_cast(user_mul(inputs[0], inputs[0]), IGNIS_I32);
}

TEST(a_checkpoint_that_makes_integers)
{
    ignis_tensor x, y;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    y = ignis_checkpoint(integer_run, NULL, &x, 1);
    CHECK_INT(tensor_info(y).dtype, IGNIS_I32);
    CHECK(!tensor_info(y).requires_grad);
    CHECK(tensor_info(y).is_leaf);
    CHECK_INT(ignis_tape_length(), 0);
    let_go(y);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_tensor shutdown_run(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count, (void)user_data;
    CHECK_STATUS(ignis_shutdown(), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_TAPE_WALKED);
    return user_mul(inputs[0], inputs[0]);
}

TEST(shutdown_inside_a_function_is_refused)
{
    ignis_tensor x, y;
    SETUP(NULL);
    x = double3(1, 2, 3, true);
    y = ignis_checkpoint(shutdown_run, NULL, &x, 1);
    CHECK(tensor_info(y).requires_grad);
    let_go(y);
    CHECK(ignis_gradcheck(shutdown_run, NULL, &x, 1, NULL) < 1e-6);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

static ignis_tensor same_run(const ignis_tensor *inputs, int count, void *user_data)
{
    (void)count, (void)user_data;
    return inputs[0];
}

TEST(a_checkpoint_may_return_its_input)
{
    ignis_tensor x, y;
    ignis_array g;
    SETUP(NULL);
    x = vector3(1, 2, 3, true);
    y = ignis_checkpoint(same_run, NULL, &x, 1);
    CHECK(y.id != 0 && y.id != x.id);
    g = array_of(1, 2, 3);
    CHECK_OK(ignis_backward(y, g));
    CHECK_GRAD(x, 1, 2, 3);
    drop(g);
    let_go(y);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(a_checkpoint_inside_no_grad_records_nothing)
{
    layer l;
    ignis_tensor x, y;
    ignis_scope scope;
    SETUP(NULL);
    memset(&l, 0, sizeof l);
    x = vector3(1, 2, 3, true);
    l.weight = vector3(1, 1, 1, true);
    scope = ignis_scope_begin();
    CHECK_OK(ignis_no_grad_begin());
    y = ignis_checkpoint(layer_run, &l, &x, 1);
    CHECK_OK(ignis_no_grad_end());
    CHECK_INT(ignis_tape_length(), 0);
    CHECK(!tensor_info(y).requires_grad);
    CHECK_ARRAY(ignis_tensor_data(y), 1, 4, 9);
    CHECK_OK(ignis_scope_end(scope));
    let_go(x);
    let_go(l.weight);
}

TEST(a_checkpoint_that_fails)
{
    layer l;
    ignis_tensor x, y, stale, many[65];
    ignis_scope scope;
    int64_t before;
    int i;
    SETUP(NULL);
    memset(&l, 0, sizeof l);
    x = vector3(1, 2, 3, true);
    l.weight = vector3(1, 1, 1, true);
    stale = vector3(1, 2, 3, true);
    let_go(stale);
    before = memory().live_blocks;
    CHECK_REFUSED(0, ignis_checkpoint(NULL, &l, &x, 1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_checkpoint(layer_run, &l, NULL, 1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_checkpoint(layer_run, &l, &x, -1).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    for (i = 0; i < 65; i++)
        many[i] = x;
    CHECK_REFUSED(0, ignis_checkpoint(layer_run, &l, many, 65).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_checkpoint(layer_run, &l, &stale, 1).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_INT(l.calls, 0);
    l.fail_at = 1; /* the function itself gives no tensor, and says nothing */
    CHECK_INT(ignis_checkpoint(layer_run, &l, &x, 1).id, 0);
    ignis_status_clear();
    l.calls = 0, l.fail_at = 2; /* fails when it is run again */
    scope = ignis_scope_begin();
    y = user_sum(user_mul(ignis_checkpoint(layer_run, &l, &x, 1), x));
    CHECK_INT(l.calls, 1);
    CHECK(ignis_backward(y, IGNIS_NO_ARRAY) != IGNIS_OK);
    CHECK(ignis_status_last() != IGNIS_OK); /* a failure is never silent */
    ignis_status_clear();
    CHECK_INT(l.calls, 2);
    CHECK(!has_grad(x));
    CHECK(!has_grad(l.weight));
    CHECK_OK(ignis_scope_end(scope));
    CHECK_INT(memory().live_blocks, before);
    CHECK_INT(ignis_tape_length(), 0);
    let_go(x);
    let_go(l.weight);
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

/* --- a backward that retains ------------------------------------------------------------------------------------------ */

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

/*  (x weight + constant) weight */
typedef struct captured {
    ignis_tensor weight, constant;
    bool writes; /* before it reads */
} captured;

static ignis_tensor uses_captured(const ignis_tensor *inputs, int count, void *user_data)
{
    const captured *c = (const captured *)user_data;
    (void)count;
    if (c->writes)
        CHECK_OK(ignis_array_fill(ignis_tensor_data(c->constant), 7));
    return user_mul(user_add(user_mul(inputs[0], c->weight), c->constant), c->weight);
}

/*  What a checkpoint's function reads beside its inputs has to be the same when it runs again, whether it has a gradient or not. */
TEST(a_checkpoint_notices_what_was_written_to_since)
{
    captured c;
    ignis_tensor x, y;
    ignis_array g;
    int which;
    SETUP(NULL);
    g = array_of(1, 1, 1);
    for (which = 0; which < 4; which++) {
        ignis_scope scope = ignis_scope_begin();
        x = vector3(1, 2, 3, true), c.weight = vector3(4, 5, 6, true), c.constant = vector3(7, 7, 7, false);
        c.writes = which == 3;
        y = ignis_checkpoint(uses_captured, &c, &x, 1);
        if (which == 1 || which == 2) {
            CHECK_OK(ignis_array_fill(ignis_tensor_data(which == 1 ? c.weight : c.constant), 100));
            CHECK_STATUS(ignis_backward(y, g), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
            CHECK_MESSAGE_HAS("'checkpoint'");
            CHECK(!has_grad(x) && !has_grad(c.weight));
        } else {
            CHECK_OK(ignis_backward(y, g));
            CHECK_GRAD(x, 16, 25, 36);
            CHECK_GRAD(c.weight, 15, 27, 43);
        }
        CHECK_OK(ignis_scope_end(scope));
        CHECK_OK(ignis_tape_clear());
    }
    drop(g);
    CHECK_INT(memory().live_blocks, 0);
}

/* --- functions that return nothing --------------------------------------------------------------------------------------- */

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
    CHECK_FAILS(ignis_checkpoint(returns_nothing, &left, &x, 1), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
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
    z = ignis_checkpoint(returns_nothing, &left, &x, 1);
    y = ignis_sum(z);
    CHECK_INT(ignis_backward(y, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT);
    CHECK_HAS(ignis_status_message(), "the function returned no tensor");
    ignis_status_clear();
    for (wrong = 0; wrong < 2; wrong++) {
        if (wrong == 0)
            CHECK(ignis_checkpoint(returns_a_failure, NULL, &x, 1).id == 0);
        else
            CHECK(ignis_gradcheck(returns_a_failure, NULL, &x, 1, NULL) != 0);
        CHECK_INT(ignis_status_last(), IGNIS_ERROR_SHAPE);
        ignis_status_clear();
    }
    let_go(x), let_go(y), let_go(z);
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
    y = ignis_checkpoint(failing_operation, NULL, &x, 1);
    CHECK(ignis_backward(y, g) != IGNIS_OK);
    check_inside("ignis_array_add: ", " (inside the backward of 'failing', ignis_backward, the backward of 'checkpoint', ignis_backward)");
    CHECK_INT(ignis_checkpoint(failing_function, NULL, &x, 1).id, 0);
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

/*  A backward function records nothing by itself, and leaves that are older than it get their gradients when it is over. */
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
    return ignis_checkpoint(cube, user_data, inputs, count);
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
    h = ignis_checkpoint(layer_run, &m->l, &m->x, 1);
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
    args->grad_inputs[0] = ignis_array_clone(args->saved[0]); /* by no kernel: those of elements are in one module with the one that adds */
    args->grad_inputs[1] = ignis_array_clone(args->saved[1]);
    return ignis_status_last();
}

/*  Leaves of two element types are added to by a kernel each: that one cannot be loaded is found before the other has run. */
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
