// SPDX-License-Identifier: MIT
/*  test_checkpoint.c - checkpoints: the same values, gradients and random numbers, with less memory */
#include "fault.h"

#include "tape.h"

/* --- checkpoints ------------------------------------------------------------------------------------------------- */

static void run_layers(layer *l, ignis_tensor x, bool checkpointed, double out[9])
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor y, loss;
    double *v;
    int i;
    CHECK_OK(ignis_seed(5));
    y = checkpointed ? ignis_checkpoint(layer_run, l, &x, 1, NULL) : layer_run(&x, 1, l);
    y = checkpointed ? ignis_checkpoint(layer_run, l, &y, 1, NULL) : layer_run(&y, 1, l);
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
    ignis_tensor h = ignis_checkpoint(layer_run, user_data, inputs, count, NULL);
    h = ignis_checkpoint(layer_run, user_data, &h, 1, NULL);
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
            y[i] = ignis_checkpoint(nested_run, &l, &x, 1, NULL);
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
    CHECK_OK(ignis_backward(user_sum(ignis_checkpoint(layer_run, &l, &x, 1, NULL)), IGNIS_NO_ARRAY)); /* 2 w x^2 */
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
    CHECK_OK(ignis_backward(user_sum(user_add(user_add(ignis_checkpoint(layer_run, &l, &x, 1, NULL),
                                                       ignis_checkpoint(layer_run, &l, &x, 1, NULL)),
                                              user_mul(x, l.weight))),
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
            y = ignis_scope_return(inner, i ? ignis_checkpoint(layer_run, &l, &y, 1, NULL) : layer_run(&y, 1, &l));
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
    y = ignis_checkpoint(layer_run, &l, &x, 1, NULL);
    CHECK(!tensor_info(y).requires_grad);
    CHECK_OK(ignis_backward(user_sum(user_mul(y, w)), IGNIS_NO_ARRAY));
    CHECK_INT(l.calls, 1); /* there was nothing to run it again for */
    CHECK_GRAD(w, 2, 8, 18);
    y = ignis_checkpoint(layer_run, &l, &w, 1, NULL);
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
    CHECK_OK(ignis_backward(user_sum(user_mul(ignis_checkpoint(constant_run, &c, &x, 1, NULL), x)), IGNIS_NO_ARRAY));
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
            y[k + 1] = ignis_checkpoint(deep_run, &w, &y[k], 1, NULL);
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
        CHECK_INT(memory().live_bytes - before,
                  outside ? 0 : 2 * BYTES); /* the two gradients are new in the first round */
    }
    CHECK_OK(ignis_no_grad_begin());
    let_go(ignis_checkpoint(deep_run, &w, &x, 1, NULL));
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
    CHECK_OK(ignis_backward(user_sum(ignis_checkpoint(layer_run, &l, &x, 1, NULL)), IGNIS_NO_ARRAY));
    CHECK_GRAD(l.weight, 1, 4, 9);
    y = user_result(ignis_array_clone(ignis_tensor_data(x)), &x, 1, &rule);
    CHECK(ignis_backward(user_sum(ignis_checkpoint(layer_run, &l, &y, 1, NULL)), IGNIS_NO_ARRAY) != IGNIS_OK);
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
        y = ignis_checkpoint(unbalanced_run, &i, &x, 1, NULL);
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
    y = ignis_checkpoint(writing_run, NULL, &x, 1, NULL);
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
    y = ignis_checkpoint(integer_run, NULL, &x, 1, NULL);
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
    y = ignis_checkpoint(shutdown_run, NULL, &x, 1, NULL);
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
    y = ignis_checkpoint(same_run, NULL, &x, 1, NULL);
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
    y = ignis_checkpoint(layer_run, &l, &x, 1, NULL);
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
    CHECK_REFUSED(0, ignis_checkpoint(NULL, &l, &x, 1, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_checkpoint(layer_run, &l, NULL, 1, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_checkpoint(layer_run, &l, &x, -1, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    for (i = 0; i < 65; i++)
        many[i] = x;
    CHECK_REFUSED(0, ignis_checkpoint(layer_run, &l, many, 65, NULL).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_checkpoint(layer_run, &l, &stale, 1, NULL).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_INT(l.calls, 0);
    l.fail_at = 1; /* the function itself gives no tensor, and says nothing */
    CHECK_INT(ignis_checkpoint(layer_run, &l, &x, 1, NULL).id, 0);
    ignis_status_clear();
    l.calls = 0, l.fail_at = 2; /* fails when it is run again */
    scope = ignis_scope_begin();
    y = user_sum(user_mul(ignis_checkpoint(layer_run, &l, &x, 1, NULL), x));
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

/* --- a backward that retains -------------------------------------------------------------------------------------- */

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

/*  What a checkpoint's function reads beside its inputs has to be the same when it runs again, whether it has a
    gradient or not. */
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
        y = ignis_checkpoint(uses_captured, &c, &x, 1, NULL);
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

int main(int argc, char **argv) { return test_run(argc, argv); }
