// SPDX-License-Identifier: MIT
/*  test_grad.c - ignis_grad: which gradients it returns, what it leaves alone, what it refuses, and graphs of graphs */
#include "fault.h"
#include "sweep.h"

static ignis_tensor number(double value, bool requires_grad)
{
    return tensor_of(&value, IGNIS_SHAPE(1), IGNIS_F64, requires_grad);
}

static ignis_grad_desc recorded(void)
{
    ignis_grad_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.create_graph = true;
    return desc;
}

TEST(gradients_are_tensors_and_leaves_stay)
{
    ignis_scope scope;
    ignis_tensor x, y, z, inputs[3], grads[3];
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = number(3, true), y = number(5, true);
    z = ignis_map("x*x*y", IGNIS_INPUTS(x, y));
    inputs[0] = x, inputs[1] = y, inputs[2] = x;
    CHECK_OK(ignis_grad(&z, 1, inputs, 3, grads, NULL));
    CHECK_NUMBER(value_at(grads[0], 0), 30);
    CHECK_NUMBER(value_at(grads[1], 0), 9);
    CHECK_NUMBER(value_at(grads[2], 0), 30);
    CHECK(grads[0].id != grads[2].id);
    CHECK(!tensor_info(grads[0]).requires_grad && tensor_info(grads[0]).is_leaf);
    CHECK_INT(ignis_tensor_grad(x).id, 0);
    CHECK_INT(ignis_tensor_grad(y).id, 0);
    CHECK_FAILS(ignis_grad(&z, 1, inputs, 1, grads, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_TWICE);
    CHECK_INT(ignis_tape_length(), 0);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(intermediates_several_outputs_and_seeds)
{
    ignis_scope scope;
    const double numbers[] = {1, -2, 4};
    ignis_tensor x, h, outputs[2], inputs[3], grads[3], seeds[2] = {{0}};
    ignis_grad_desc desc = {.seeds = seeds, .retain_graph = true};
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_of(numbers, IGNIS_SHAPE(3), IGNIS_F64, true);
    h = ignis_map("x*x", IGNIS_INPUTS(x));
    outputs[0] = ignis_map_sum("3*h + x", IGNIS_INPUTS(h, x));
    outputs[1] = ignis_map("h*h", IGNIS_INPUTS(h));
    seeds[1] = tensor_of(numbers, IGNIS_SHAPE(3), IGNIS_F64, false);
    inputs[0] = x, inputs[1] = h, inputs[2] = outputs[1];
    CHECK_OK(ignis_grad(outputs, 2, inputs, 3, grads, &desc));
    for (int i = 0; i < 3; i++) {
        const double of_h = 3 + 2 * numbers[i] * numbers[i] * numbers[i];
        CHECK_NUMBER(value_at(grads[1], i), of_h);
        CHECK_NUMBER(value_at(grads[0], i), 1 + 2 * numbers[i] * of_h);
        CHECK_NUMBER(value_at(grads[2], i), numbers[i]);
    }
    CHECK_OK(ignis_grad(outputs, 2, inputs, 3, grads, &desc)); /* the graph is retained */
    CHECK_NUMBER(value_at(grads[2], 2), 4);
    desc.retain_graph = false;
    CHECK_OK(ignis_grad(outputs, 1, inputs, 2, grads, &desc));
    CHECK_NUMBER(value_at(grads[1], 0), 3);
    CHECK_OK(ignis_tape_clear());
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor fourth_power(const ignis_tensor *x, int way)
{
    ignis_tensor y = x[0];
    return way == 0   ? ignis_map("y*y*y*y", IGNIS_INPUTS(y))
           : way == 1 ? ignis_map("pow(y, 4)", IGNIS_INPUTS(y))
           : way == 2 ? ignis_mul(ignis_mul(y, y), ignis_mul(y, y))
                      : ignis_map("pow(y, k)", IGNIS_INPUTS(y, IGNIS_VALUE(k, 4)));
}

TEST(any_order)
{
    const double expected[] = {81, 108, 108, 72, 24};
    ignis_grad_desc desc = recorded();
    SETUP(NULL);
    for (int way = 0; way < 4; way++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = number(3, true), y = fourth_power(&x, way);
        for (int order = 0; order < 5; order++) {
            CHECK_CLOSE(value_at(y, 0), expected[order], 1e-12);
            if (order < 4)
                CHECK_OK(ignis_grad(&y, 1, &x, 1, &y, &desc));
        }
        CHECK_OK(ignis_scope_end(scope));
    }
    CHECK_INT(ignis_tape_length(), 0);
}

TEST(recorded_in_a_no_grad_section)
{
    ignis_scope scope;
    ignis_grad_desc desc = recorded();
    ignis_tensor x, y, g;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = number(3, true), y = ignis_map("x*x*x", IGNIS_INPUTS(x));
    CHECK_OK(ignis_no_grad_begin());
    CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, &desc));
    CHECK(!tensor_info(ignis_scale(y, 2)).requires_grad); /* the section goes on */
    CHECK_OK(ignis_no_grad_end());
    CHECK(tensor_info(g).requires_grad);
    CHECK_OK(ignis_backward(g, IGNIS_NO_ARRAY));
    CHECK_CLOSE(grad_at(x, 0), 18, 1e-12);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_tensor weight_outside;

static ignis_tensor wave(const ignis_tensor *inputs, int count, void *user_data)
{
    ignis_tensor x = inputs[0], w = weight_outside;
    (void)count, (void)user_data;
    return ignis_sum(ignis_mul(ignis_map("sin(x*w)", IGNIS_INPUTS(x, w)), ignis_dropout(x, 0.3)));
}

/*  The second derivatives through a checkpoint equal those without, by leaves and by a weight that is a result. */
TEST(checkpoints)
{
    ignis_tensor x, v, inputs[2], grads[2], seconds[2], y;
    ignis_grad_desc desc = recorded();
    double found[2][2][6];
    SETUP(NULL);
    for (int way = 0; way < 2; way++) {
        ignis_scope scope = ignis_scope_begin();
        x = tensor_noise(IGNIS_SHAPE(6), IGNIS_F64, 1, true);
        v = tensor_noise(IGNIS_SHAPE(6), IGNIS_F64, 2, true);
        weight_outside = ignis_map("exp(v)", IGNIS_INPUTS(v));
        ignis_seed(7);
        y = way ? ignis_checkpoint(wave, NULL, &x, 1, NULL) : wave(&x, 1, NULL);
        inputs[0] = x, inputs[1] = v;
        CHECK_OK(ignis_grad(&y, 1, inputs, 2, grads, &desc));
        y = ignis_map_sum("a*a*b", IGNIS_INPUTS(IGNIS_NAMED(a, grads[0]), IGNIS_NAMED(b, grads[1])));
        CHECK_OK(ignis_grad(&y, 1, inputs, 2, seconds, NULL));
        for (int i = 0; i < 2; i++)
            CHECK_OK(ignis_tensor_to_host(seconds[i], found[way][i], IGNIS_F64, 6));
        CHECK_OK(ignis_scope_end(scope));
    }
    for (int i = 0; i < 12; i++)
        CHECK_CLOSE(found[1][i / 6][i % 6], found[0][i / 6][i % 6], 1e-13);
    CHECK_INT(ignis_tape_length(), 0);
}

/*  sin by the user's own rule; with a vjp_fn it has derivatives of any order. */
static ignis_tensor user_sin(ignis_tensor x, bool twice);

static ignis_status user_sin_backward(const ignis_backward_args *args)
{
    ignis_array grad = array_like(args->grad_output);
    return user_give(args, 0, grad,
                     ignis_array_map(grad, "g*cos(x)",
                                     IGNIS_ARRAYS(IGNIS_NAMED(g, args->grad_output), IGNIS_NAMED(x, args->saved[0]))));
}

static ignis_status user_sin_vjp(const ignis_vjp_args *args)
{
    ignis_tensor g = args->grad_output, x = args->inputs[0];
    CHECK_INT(args->input_count, 1);
    CHECK(args->needed[0]);
    args->grad_inputs[0] = ignis_map(
        "g*c",
        IGNIS_INPUTS(g, IGNIS_NAMED(c, user_sin(ignis_map("x + h", IGNIS_INPUTS(x, IGNIS_VALUE(h, 1.5707963267948966))),
                                                true))));
    return args->grad_inputs[0].id ? IGNIS_OK : ignis_status_last();
}

static ignis_tensor user_sin(ignis_tensor x, bool twice)
{
    ignis_array saved = ignis_tensor_data(x), made = array_like(saved);
    ignis_rule rule;
    memset(&rule, 0, sizeof rule);
    rule.name = "user_sin";
    rule.backward_fn = user_sin_backward;
    rule.vjp_fn = twice ? user_sin_vjp : NULL;
    rule.saved = &saved;
    rule.saved_count = 1;
    made = user_discard(made, ignis_array_map(made, "sin(x)", IGNIS_ARRAYS(IGNIS_NAMED(x, saved))));
    return user_result(made, &x, 1, &rule);
}

TEST(operations_of_the_user)
{
    const double expected[] = {0.644217687237691, 0.764842187284489, -0.644217687237691, -0.764842187284489};
    ignis_grad_desc desc = recorded();
    ignis_tensor x, y, g;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = number(0.7, true), y = user_sin(x, true);
    for (int order = 0; order < 4; order++) {
        CHECK_CLOSE(value_at(y, 0), expected[order], 1e-14);
        CHECK_OK(ignis_grad(&y, 1, &x, 1, &y, &desc));
    }
    y = user_sin(x, false);
    CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, NULL));
    CHECK_CLOSE(value_at(g, 0), expected[1], 1e-14);
    y = user_sin(x, false);
    CHECK_FAILS(ignis_grad(&y, 1, &x, 1, &g, &desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("'user_sin'");
    CHECK_INT(g.id, 0);
    CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, NULL)); /* the failure has used nothing up */
    CHECK_OK(ignis_scope_end(scope));
    CHECK_INT(ignis_tape_length(), 0);
}

TEST(handles_may_be_released_and_memory_may_not_change)
{
    ignis_scope scope;
    ignis_grad_desc desc = recorded();
    ignis_tensor x, a, y, g;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = number(2, true);
    a = ignis_mul(x, x);
    y = ignis_mul(a, a); /* x^4 */
    let_go(a);
    CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, &desc));
    let_go(y);
    CHECK_OK(ignis_grad(&g, 1, &x, 1, &y, NULL));
    CHECK_NUMBER(value_at(y, 0), 48);
    let_go(y), let_go(g);
    CHECK_INT(ignis_tape_length(), 0);
    y = ignis_mul(x, x);
    CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, &desc));
    g = ignis_mul(g, g);
    CHECK_OK(ignis_array_fill(ignis_tensor_data(x), 3));
    CHECK_FAILS(ignis_grad(&y, 1, &x, 1, &a, &desc), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
    CHECK_MESSAGE_HAS("'mul'");
    CHECK_OK(ignis_scope_end(scope));
}

TEST(gradients_of_results_are_kept_when_asked)
{
    ignis_scope scope;
    ignis_tensor x, h, y;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = number(3, true), h = ignis_mul(x, x), y = ignis_mul(h, h);
    CHECK_OK(ignis_retain_grad(h));
    CHECK_OK(ignis_retain_grad(x)); /* a leaf has one anyway */
    CHECK_OK(ignis_backward_retain(y, IGNIS_NO_ARRAY));
    CHECK_NUMBER(grad_at(h, 0), 18);
    CHECK_NUMBER(grad_at(x, 0), 108);
    CHECK_INT(ignis_tensor_grad(y).id, 0);
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
    CHECK_NUMBER(grad_at(h, 0), 36); /* added, as to leaves */
    CHECK_OK(ignis_zero_grad(h));
    CHECK_NUMBER(grad_at(h, 0), 0);
    CHECK_FAILS(ignis_retain_grad(number(1, false)), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_GRAD_WANTED);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_status nested_backward(const ignis_backward_args *args)
{
    ignis_tensor own = number(2, true), y = ignis_map("own*own", IGNIS_INPUTS(own)), g;
    CHECK(!y.id || !tensor_info(y).requires_grad); /* nothing is recorded here */
    CHECK_FAILS(ignis_grad(&weight_outside, 1, &weight_outside, 1, &g, NULL), IGNIS_ERROR_ARGUMENT,
                IGNIS_DIAG_NO_GRAD_WANTED);
    CHECK_MESSAGE_HAS("inputs[0] is older than the backward function");
    args->grad_inputs[0] = args->grad_output;
    return IGNIS_OK;
}

TEST(inside_a_backward_function)
{
    ignis_scope scope;
    ignis_tensor x, y;
    ignis_rule rule = {.name = "nested", .backward_fn = nested_backward};
    SETUP(NULL);
    scope = ignis_scope_begin();
    weight_outside = x = number(2, true);
    y = number(1, false);
    CHECK_OK(ignis_tape_record(y, &x, 1, &rule));
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
    CHECK_NUMBER(grad_at(x, 0), 1);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(bad_calls)
{
    ignis_scope scope;
    ignis_tensor x, y, c, none = {0}, g, seed, long_one;
    ignis_grad_desc desc = {0};
    SETUP(NULL);
    scope = ignis_scope_begin();
    CHECK_FAILS(ignis_grad(NULL, 1, &none, 1, &g, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_grad(&none, 1, NULL, 1, &g, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_grad(&none, 1, &none, 1, NULL, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_FAILS(ignis_grad(&none, 0, &none, 1, &g, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    x = number(2, true), c = number(4, false), y = ignis_mul(x, c);
    CHECK_FAILS(ignis_grad(&y, 1, &c, 1, &g, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_GRAD_WANTED);
    CHECK_MESSAGE_HAS("inputs[0]");
    CHECK_FAILS(ignis_grad(&c, 1, &x, 1, &g, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_GRAD_WANTED);
    CHECK_MESSAGE_HAS("outputs[0]");
    CHECK_FAILS(ignis_grad(&x, 1, &y, 1, &g, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_GRAD_WANTED);
    CHECK_MESSAGE_HAS("does not lead to the outputs");
    desc.allow_unused = true;
    CHECK_OK(ignis_grad(&x, 1, &y, 1, &g, &desc));
    CHECK_INT(g.id, 0);
    let_go(c);
    CHECK_FAILS(ignis_grad(&y, 1, &c, 1, &g, NULL), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    long_one = ignis_expand(y, IGNIS_SHAPE(3));
    CHECK_FAILS(ignis_grad(&long_one, 1, &x, 1, &g, NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BACKWARD_NOT_SCALAR);
    CHECK_MESSAGE_HAS("desc->seeds[0]");
    seed = number(1, false);
    desc.seeds = &seed;
    CHECK_FAILS(ignis_grad(&long_one, 1, &x, 1, &g, &desc), IGNIS_ERROR_SHAPE, IGNIS_DIAG_SHAPE_DIFFERS);
    CHECK_MESSAGE_HAS("desc->seeds[0] is [1], the tensor is [3]");
    seed = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 1, false);
    CHECK_FAILS(ignis_grad(&long_one, 1, &x, 1, &g, &desc), IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    let_go(seed);
    CHECK_FAILS(ignis_grad(&long_one, 1, &x, 1, &g, &desc), IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    seed = tensor_counting(IGNIS_SHAPE(3), IGNIS_F64, 1, false);
    CHECK_OK(ignis_grad(&long_one, 1, &x, 1, &g, &desc)); /* all is as before */
    CHECK_NUMBER(value_at(g, 0), 24);
    CHECK_OK(ignis_scope_end(scope));
}

/*  The penalty (|d critic / d x| - 1)^2 of a critic of two layers (Gulrajani et al., Improved Training of Wasserstein
    GANs, 2017). */
static ignis_tensor penalty(const ignis_tensor *w)
{
    ignis_grad_desc desc = recorded();
    ignis_tensor x = tensor_noise(IGNIS_SHAPE(4, 3), IGNIS_F64, 5, true), g, n,
                 y = ignis_sum(ignis_linear(ignis_silu(ignis_linear(x, w[0], w[1])), w[2], no_tensor()));
    const ignis_reduce_desc rows = {{1}, 1, false};
    CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, &desc));
    n = ignis_map_reduce(IGNIS_REDUCE_NORM, "g", IGNIS_INPUTS(g), &rows);
    return ignis_map_mean("(n - 1)*(n - 1)", IGNIS_INPUTS(n));
}

/*  The loss after a step of gradient descent with the rate 0.1 (Finn et al., Model-Agnostic Meta-Learning, 2017). */
static ignis_tensor after_a_step(const ignis_tensor *w)
{
    ignis_grad_desc desc = recorded();
    ignis_tensor x = tensor_noise(IGNIS_SHAPE(4, 3), IGNIS_F64, 5, false), loss, g[3], moved[3];
    int step, i;
    memcpy(moved, w, sizeof moved);
    for (step = 0; step < 3; step++) {
        ignis_tensor y =
            ignis_linear(ignis_map("tanh(h)", IGNIS_INPUTS(IGNIS_NAMED(h, ignis_linear(x, moved[0], moved[1])))),
                         moved[2], no_tensor());
        loss = ignis_map_mean("(y - 0.3)*(y - 0.3)", IGNIS_INPUTS(y));
        if (step == 2)
            break;
        CHECK_OK(ignis_grad(&loss, 1, moved, 3, g, &desc));
        for (i = 0; i < 3; i++)
            moved[i] = ignis_sub(moved[i], ignis_scale(g[i], 0.1));
    }
    return loss;
}

/*  Compares ignis_backward of such a number with central differences: 1e-7, as for ignis_gradcheck. */
static void check_weights(ignis_tensor (*fn)(const ignis_tensor *w))
{
    const ignis_shape shapes[3] = {{2, {5, 3}}, {1, {5}}, {2, {1, 5}}};
    const double h = 1e-5;
    ignis_tensor w[3];
    int i;
    for (i = 0; i < 3; i++)
        w[i] = tensor_noise(shapes[i], IGNIS_F64, 20 + (uint64_t)i, true);
    ignis_scope scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(fn(w), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
    for (i = 0; i < 3; i++) {
        double *values = tensor_values(w[i]), *grads = array_values(ignis_tensor_grad(w[i])), side[2];
        const int64_t numel = shape_numel(shapes[i]);
        for (int64_t k = 0; k < numel; k++) {
            const double x = values[k];
            for (int sign = 0; sign < 2; sign++) {
                values[k] = sign ? x + h : x - h;
                CHECK_OK(ignis_array_from_host(ignis_tensor_data(w[i]), values, IGNIS_F64, numel));
                scope = ignis_scope_begin();
                side[sign] = ignis_item(fn(w));
                CHECK_OK(ignis_scope_end(scope));
            }
            values[k] = x;
            CHECK_CLOSE(grads[k], (side[1] - side[0]) / (2 * h), 1e-7);
        }
        CHECK_OK(ignis_array_from_host(ignis_tensor_data(w[i]), values, IGNIS_F64, numel));
        free(values), free(grads);
    }
    CHECK_INT(ignis_tape_length(), 0);
}

TEST(gradient_penalty)
{
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    check_weights(penalty);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(meta_learning)
{
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    check_weights(after_a_step);
    CHECK_OK(ignis_scope_end(scope));
}

/*  16 bits: the second derivative of x^3 is 6 x, rounded a few times. */
TEST(other_dtypes)
{
    ignis_grad_desc desc = recorded();
    SETUP(NULL);
    for (int k = 0; k < 4; k++) {
        const double tolerance = float_dtypes[k] == IGNIS_BF16 ? 2e-2 : float_dtypes[k] == IGNIS_F16 ? 3e-3 : 1e-6;
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_counting(IGNIS_SHAPE(5), float_dtypes[k], 0.25, true), y, g;
        y = ignis_sum(ignis_mul(ignis_map("x*x", IGNIS_INPUTS(x)), x));
        CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, &desc));
        y = ignis_sum(g);
        CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, NULL));
        CHECK_INT(tensor_info(g).dtype, float_dtypes[k]);
        for (int i = 0; i < 5; i++)
            CHECK_CLOSE(value_at(g, i), 6 * 0.25 * (i + 1), tolerance);
        CHECK_OK(ignis_scope_end(scope));
    }
}

/*  A gradient of a gradient for the sweep. */
static ignis_tensor everything(int at, const ignis_tensor *w)
{
    ignis_grad_desc desc = recorded();
    ignis_tensor x = ignis_tensor_ones(IGNIS_SHAPE(2, 3), NULL), y, g[2];
    (void)at;
    y = ignis_sum(
        ignis_softmax(ignis_linear(ignis_map("x*v", IGNIS_INPUTS(x, IGNIS_NAMED(v, w[1]))), w[0], no_tensor())));
    if (!y.id || ignis_grad(&y, 1, w, 2, g, &desc) != IGNIS_OK)
        return no_tensor();
    return ignis_add(ignis_map_sum("g*g", IGNIS_INPUTS(IGNIS_NAMED(g, g[0]))), ignis_sum(g[1]));
}

TEST(memory_that_runs_out)
{
    ignis_tensor w[2];
    static host_counter counter; /* until the shutdown after the test */
    ignis_desc desc = test_counting_desc(&counter);
    NEEDS_NO_MEMCHECK();
    SETUP(&desc);
    w[0] = tensor_counting(IGNIS_SHAPE(4, 3), IGNIS_F32, 0.1, true);
    w[1] = tensor_counting(IGNIS_SHAPE(3), IGNIS_F32, 0.1, true);
    sweep_walks(NULL, &counter, everything, w);
    let_go(w[0]), let_go(w[1]);
}

/*  A captured step: each launch computes the penalty's gradient from what x and w are then. */
TEST(captured)
{
    ignis_grad_desc desc = recorded();
    ignis_scope scope;
    ignis_tensor x, w, y, g;
    ignis_graph graph;
    double numbers[2] = {2, 3};
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_of(numbers, IGNIS_SHAPE(2), IGNIS_F64, true);
    w = tensor_of(numbers, IGNIS_SHAPE(2), IGNIS_F64, true);
    for (int warm = 0; warm < 2; warm++) { /* what is compiled is loaded before the capture */
        CHECK_OK(ignis_zero_grad(w));
        if (warm)
            CHECK_OK(ignis_graph_begin());
        y = ignis_sum(ignis_mul(ignis_mul(x, x), w));
        CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, &desc));
        CHECK_OK(ignis_backward(ignis_map_sum("g*g", IGNIS_INPUTS(g)), IGNIS_NO_ARRAY)); /* (2 x w)^2 */
    }
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    for (int launch = 1; launch < 3; launch++) {
        numbers[0] = launch;
        CHECK_OK(ignis_array_from_host(ignis_tensor_data(x), numbers, IGNIS_F64, 2));
        CHECK_OK(ignis_zero_grad(w));
        CHECK_OK(ignis_graph_launch(graph));
        CHECK_NUMBER(grad_at(w, 0), 8.0 * launch * launch * 2);
        CHECK_NUMBER(grad_at(w, 1), 8.0 * 9 * 3);
    }
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(products_with_second_derivatives)
{
    const double numbers[] = {1, -2, 3}, vector[] = {2, 1, -1};
    ignis_tensor x[2], v[2], y, products[2], none = {0};
    ignis_scope scope;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (i = 0; i < 2; i++) {
        x[i] = tensor_of(numbers, IGNIS_SHAPE(3), IGNIS_F64, true);
        v[i] = tensor_of(vector, IGNIS_SHAPE(3), IGNIS_F64, false);
    }
    y = ignis_map_sum("a*a*a + b", IGNIS_INPUTS(IGNIS_NAMED(a, x[0]), IGNIS_NAMED(b, x[1])));
    CHECK_OK(ignis_hvp(y, x, 2, v, products));
    for (i = 0; i < 3; i++) {
        CHECK_CLOSE(value_at(products[0], i), 6 * numbers[i] * vector[i], 1e-13);
        CHECK_NUMBER(value_at(products[1], i), 0); /* the gradient by b is constant */
    }
    y = ignis_map_sum("a*a*b", IGNIS_INPUTS(IGNIS_NAMED(a, x[0]), IGNIS_NAMED(b, x[1])));
    CHECK_OK(ignis_hvp(y, x, 2, v, products));
    for (i = 0; i < 3; i++) {
        CHECK_CLOSE(value_at(products[0], i), 4 * numbers[i] * vector[i], 1e-13);
        CHECK_CLOSE(value_at(products[1], i), 2 * numbers[i] * vector[i], 1e-13);
    }
    CHECK_FAILS(ignis_hvp(y, x, 0, v, products), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_FAILS(ignis_hvp(y, x, 2, NULL, products), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK(ignis_hvp(none, x, 2, v, products) != IGNIS_OK);
    test__check_failure(__FILE__, __LINE__, "ignis_grad", IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_MESSAGE_HAS("inside ignis_hvp");
    CHECK_OK(ignis_scope_end(scope));
    CHECK_INT(ignis_tape_length(), 0);
}

/*  Rows where the output is shorter, columns where the input is. */
TEST(derivatives_at_points)
{
    const double at[] = {-1, 0.5, 2};
    ignis_scope scope;
    ignis_tensor x, y, g;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_of(at, IGNIS_SHAPE(3, 1), IGNIS_F64, true);
    y = ignis_map("x*x*x", IGNIS_INPUTS(x));
    g = ignis_derivative(ignis_derivative(y, x), x);
    CHECK_SHAPE_IS(g, IGNIS_SHAPE(3, 1));
    for (i = 0; i < 3; i++)
        CHECK_CLOSE(value_at(g, i), 6 * at[i], 1e-14);
    g = ignis_derivative(g, x);
    CHECK_CLOSE(value_at(g, 2), 6, 1e-14);
    CHECK_INT(ignis_tensor_grad(x).id, 0);
    CHECK_INT(ignis_derivative(ignis_detach(x), x).id, 0);
    test__check_failure(__FILE__, __LINE__, "ignis_grad", IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_GRAD_WANTED);
    CHECK_MESSAGE_HAS("inside ignis_derivative");
    CHECK_INT(ignis_derivative(no_tensor(), x).id, 0);
    test__check_failure(__FILE__, __LINE__, "ignis_tensor_query", IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_INT(ignis_tape_length(), 0);
}

TEST(jacobians)
{
    ignis_scope scope;
    SETUP(NULL);
    for (int outs = 2; outs < 5; outs += 2) {
        scope = ignis_scope_begin();
        ignis_tensor x = tensor_noise(IGNIS_SHAPE(3), IGNIS_F64, 1, true),
                     w = tensor_noise(IGNIS_SHAPE(outs, 3), IGNIS_F64, 2, false), h, y, jacobian;
        h = ignis_linear(ignis_reshape(x, IGNIS_SHAPE(1, 3)), w, no_tensor());
        y = ignis_map("sin(h)", IGNIS_INPUTS(h));
        jacobian = ignis_jacobian(y, x);
        CHECK_SHAPE_IS(jacobian, IGNIS_SHAPE(outs, 3));
        CHECK(!tensor_info(jacobian).requires_grad);
        h = ignis_map("cos(h)", IGNIS_INPUTS(h));
        for (int i = 0; i < 3 * outs; i++)
            CHECK_CLOSE(value_at(jacobian, i), value_at(h, i / 3) * value_at(w, i), 1e-14);
        CHECK_INT(ignis_tensor_grad(x).id, 0);
        CHECK_INT(ignis_jacobian(w, x).id, 0);
        test__check_failure(__FILE__, __LINE__, "ignis_grad", IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NO_GRAD_WANTED);
        CHECK_MESSAGE_HAS("inside ignis_jacobian");
        CHECK_OK(ignis_scope_end(scope));
        CHECK_INT(ignis_tape_length(), 0);
    }
}

int main(int argc, char **argv) { return test_run(argc, argv); }
