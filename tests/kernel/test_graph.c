// SPDX-License-Identifier: MIT
/*  test_graph.c - CUDA graphs: capture and replay, a training step, random numbers, memory */
#include "fault.h"

#include "graphs.h"

#include <math.h>

static void set4(ignis_tensor tensor, double first)
{
    double values[4];
    int i;
    for (i = 0; i < 4; i++)
        values[i] = first + i;
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(tensor), values, IGNIS_F64, 4));
}

/* --- replay --------------------------------------------------------------------------------------------------------
   */

TEST(a_launch_does_what_was_captured)
{
    ignis_tensor x, y;
    ignis_graph graph;
    int i;
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    CHECK_OK(ignis_graph_begin());
    y = ignis_scale(x, 3);
    graph = ignis_graph_end();
    REQUIRE(graph.id != 0);
    CHECK_SHAPE_IS(y, IGNIS_SHAPE(4));
    for (i = 0; i < 5; i++) {
        set4(x, 10 * i);
        CHECK_OK(ignis_graph_launch(graph));
        CHECK_NUMBER(value_at(y, 3), 3 * (10 * i + 3)); /* the result's handle stays, with new values */
    }
    let_go(x);
    CHECK_OK(ignis_graph_launch(graph)); /* the graph keeps what it reads */
    CHECK_NUMBER(value_at(y, 0), 120);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_NUMBER(value_at(y, 0), 120); /* the result is the caller's */
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(a_graph_keeps_its_kernels)
{
    ignis_launch launch = test_launch(1, 1);
    ignis_tensor x;
    ignis_kernel kernel;
    ignis_graph graph;
    ignis_arg arg;
    int i;
    SETUP(NULL);
    kernel = test_compile("extern \"C\" __global__ void increment(float *x) { x[0] += 1.f; }", "increment", NULL);
    x = vector4(1, false);
    arg = ignis_arg_array(ignis_tensor_data(x));
    CHECK_OK(ignis_graph_begin());
    for (i = 0; i < 2; i++)
        CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
    graph = ignis_graph_end();
    REQUIRE(graph.id != 0);
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_STATUS(ignis_kernel_launch(kernel, &launch, &arg, 1), IGNIS_ERROR_FREED, IGNIS_DIAG_KERNEL_FREED);
    fault_reset_counts();
    for (i = 0; i < 3; i++)
        CHECK_OK(ignis_graph_launch(graph));
    CHECK_NUMBER(value_at(x, 0), 7);
    CHECK_INT(fault_count("cuModuleUnload"), 0);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_INT(fault_count("cuModuleUnload"), 1);
    let_go(x);
}

TEST(a_capture_runs_nothing)
{
    ignis_tensor x;
    ignis_graph graph;
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_array_scale(ignis_tensor_data(x), ignis_tensor_data(x), 2));
    graph = ignis_graph_end();
    CHECK_NUMBER(value_at(x, 0), 1);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_NUMBER(value_at(x, 0), 4);
    CHECK_OK(ignis_graph_free(graph));
    let_go(x);
}

TEST(an_empty_capture)
{
    ignis_graph graph;
    SETUP(NULL);
    CHECK_OK(ignis_graph_begin());
    graph = ignis_graph_end();
    CHECK(graph.id != 0);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_graph_free(graph));
}

/* --- a whole training step -------------------------------------------------------------------------------------------
   */

typedef struct network {
    ignis_tensor x, targets, weights[2], biases[2];
    ignis_optimizer optimizer;
} network;

static void network_open(network *n)
{
    static const double targets[6] = {0, 1, 2, 3, 1, 0};
    ignis_adamw_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.lr = 0.02;
    desc.weight_decay = 0.1;
    n->x = tensor_noise(IGNIS_SHAPE(6, 5), IGNIS_F32, 1, false);
    n->targets = tensor_of(targets, IGNIS_SHAPE(6), IGNIS_I32, false);
    n->optimizer = ignis_adamw(&desc);
    n->weights[0] = tensor_noise(IGNIS_SHAPE(8, 5), IGNIS_F32, 2, true);
    n->weights[1] = tensor_noise(IGNIS_SHAPE(4, 8), IGNIS_F32, 3, true);
    n->biases[0] = tensor_noise(IGNIS_SHAPE(8), IGNIS_F32, 4, true);
    n->biases[1] = tensor_noise(IGNIS_SHAPE(4), IGNIS_F32, 5, true);
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_optimizer_add(n->optimizer, n->weights[i], true));
        CHECK_OK(ignis_optimizer_add(n->optimizer, n->biases[i], false));
    }
}

static void network_close(network *n)
{
    int i;
    CHECK_OK(ignis_optimizer_free(n->optimizer));
    let_go(n->x);
    let_go(n->targets);
    for (i = 0; i < 2; i++) {
        let_go(n->weights[i]);
        let_go(n->biases[i]);
    }
}

/*  The loss, which the caller's scope has. */
static ignis_tensor network_step(network *n)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor h = ignis_gelu(ignis_linear(n->x, n->weights[0], n->biases[0])), loss;
    loss = ignis_cross_entropy(ignis_linear(h, n->weights[1], n->biases[1]), n->targets, NULL);
    ignis_backward(loss, IGNIS_NO_ARRAY);
    ignis_clip_grad_norm(n->optimizer, 1.0);
    ignis_optimizer_step(n->optimizer);
    ignis_optimizer_zero_grad(n->optimizer);
    return ignis_scope_return(scope, loss);
}

static void network_values(const network *n, double *out)
{
    double *values;
    int i, k = 0, j;
    for (i = 0; i < 2; i++) {
        values = tensor_values(n->weights[i]);
        for (j = 0; j < (i ? 32 : 40); j++)
            out[k++] = values[j];
        free(values);
        values = tensor_values(n->biases[i]);
        for (j = 0; j < (i ? 4 : 8); j++)
            out[k++] = values[j];
        free(values);
    }
}

TEST(a_training_step_replays_bit_for_bit)
{
    enum { STEPS = 12, NUMBERS = 84 };
    double losses[STEPS], eager[NUMBERS], replayed[NUMBERS];
    network n;
    ignis_graph graph;
    ignis_tensor loss;
    int i;
    SETUP(NULL);
    network_open(&n);
    for (i = 0; i < STEPS; i++) {
        loss = network_step(&n);
        losses[i] = ignis_item(loss);
        let_go(loss);
    }
    CHECK(losses[STEPS - 1] < losses[0]);
    network_values(&n, eager);
    network_close(&n);

    network_open(&n);
    loss = network_step(&n); /* the first one is eager: it compiles and fills tables */
    CHECK_NUMBER(ignis_item(loss), losses[0]);
    let_go(loss);
    CHECK_OK(ignis_graph_begin());
    loss = network_step(&n);
    graph = ignis_graph_end();
    REQUIRE(graph.id != 0);
    CHECK_INT(ignis_tape_length(), 0);
    for (i = 1; i < STEPS; i++) {
        CHECK_OK(ignis_graph_launch(graph));
        CHECK_NUMBER(ignis_item(loss), losses[i]);
    }
    network_values(&n, replayed);
    for (i = 0; i < NUMBERS; i++)
        CHECK_NUMBER(replayed[i], eager[i]);
    let_go(loss);
    CHECK_OK(ignis_graph_free(graph));
    loss = network_step(&n); /* and on it goes without a graph */
    CHECK(ignis_item(loss) < losses[0]);
    let_go(loss);
    network_close(&n);
    CHECK_INT(memory().live_blocks, 0);
}

/*  What becomes a node of a graph: of a network of three layers, each kernel once, and one for all gradients, one for
    all parameters. */
static int launches(void)
{
    return fault_count("cuLaunchKernel") + fault_count("cublasLtMatmul") + fault_count("cuMemsetD8Async") +
           fault_count("cuMemcpyDtoDAsync_v2");
}

static void small_step(ignis_tensor x, ignis_tensor targets, ignis_tensor (*layers)[2], ignis_optimizer optimizer,
                       bool at_once)
{
    ignis_tensor weights[] = {layers[0][0], layers[1][0], layers[2][0]},
                 biases[] = {layers[0][1], layers[1][1], layers[2][1]}, h = x;
    ignis_scope scope = ignis_scope_begin();
    int i;
    if (at_once)
        h = ignis_mlp_layers(x, weights, biases, 3, IGNIS_ACTIVATION_RELU);
    for (i = 0; i < 3 && !at_once; i++) {
        h = ignis_linear(h, weights[i], biases[i]);
        if (i < 2)
            h = ignis_relu(h);
    }
    CHECK_OK(ignis_backward(ignis_cross_entropy(h, targets, NULL), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_optimizer_step(optimizer));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(a_training_step_takes_few_launches)
{
    static const double classes[6] = {0, 1, 2, 3, 1, 0};
    ignis_tensor x, targets, layers[3][2];
    ignis_optimizer optimizer;
    ignis_adamw_desc desc;
    ignis_graph graph;
    int i, k;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.zero_grad = true;
    optimizer = ignis_adamw(&desc);
    x = tensor_noise(IGNIS_SHAPE(6, 8), IGNIS_F32, 1, false);
    targets = tensor_of(classes, IGNIS_SHAPE(6), IGNIS_I32, false);
    for (i = 0; i < 3; i++) {
        layers[i][0] = tensor_noise(IGNIS_SHAPE(8, 8), IGNIS_F32, (uint64_t)i, true);
        layers[i][1] = tensor_noise(IGNIS_SHAPE(8), IGNIS_F32, (uint64_t)i + 9, true);
        for (k = 0; k < 2; k++)
            CHECK_OK(ignis_optimizer_add(optimizer, layers[i][k], true));
    }
    for (k = 0; k < 2; k++) { /* products forward are 3, backward 3: the two of a layer are one launch */
        const int most = k ? 9 : 13;
        for (i = 0; i < 2; i++) /* the first makes gradients */
            small_step(x, targets, layers, optimizer, k == 1);
        fault_reset_counts();
        small_step(x, targets, layers, optimizer, k == 1);
        CHECK_INT(launches(), most + 1);
        CHECK_OK(ignis_graph_begin());
        fault_reset_counts();
        small_step(x, targets, layers, optimizer, k == 1);
        CHECK_INT(launches(), most + 2); /* the table is written beside the capture */
        graph = ignis_graph_end();
        CHECK_OK(ignis_graph_launch(graph));
        CHECK_OK(ignis_graph_free(graph));
    }
    CHECK_OK(ignis_optimizer_free(optimizer));
    for (i = 0; i < 6; i++)
        let_go(layers[i / 2][i % 2]);
    let_go(x);
    let_go(targets);
    CHECK_INT(memory().live_blocks, 0);
}

/*  Gradients that are dropped: a captured step has its own in the graph's memory, and leaves none behind. */
TEST(a_graph_of_a_step_that_drops_its_gradients)
{
    ignis_tensor x, targets, layers[2][3][2];
    ignis_optimizer optimizers[2];
    ignis_adamw_desc desc;
    ignis_graph graph;
    int i, k, side, step;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    x = tensor_noise(IGNIS_SHAPE(6, 8), IGNIS_F32, 1, false);
    targets = tensor_counting(IGNIS_SHAPE(6), IGNIS_I32, 0, false);
    for (side = 0; side < 2; side++) {
        desc.zero_grad = side == 0;
        desc.drop_grad = side == 1;
        optimizers[side] = ignis_adamw(&desc);
        for (i = 0; i < 3; i++) {
            layers[side][i][0] = tensor_noise(IGNIS_SHAPE(8, 8), IGNIS_F32, (uint64_t)i, true);
            layers[side][i][1] = tensor_noise(IGNIS_SHAPE(8), IGNIS_F32, (uint64_t)i + 9, true);
            for (k = 0; k < 2; k++)
                CHECK_OK(ignis_optimizer_add(optimizers[side], layers[side][i][k], true));
        }
    }
    for (step = 0; step < 7; step++)
        small_step(x, targets, layers[0], optimizers[0], false);
    small_step(x, targets, layers[1], optimizers[1], false);
    CHECK_OK(ignis_graph_begin());
    small_step(x, targets, layers[1], optimizers[1], false);
    graph = ignis_graph_end();
    REQUIRE(graph.id != 0);
    for (step = 0; step < 3; step++) { /* in turns with steps that are no graph's */
        CHECK(!ignis_tensor_grad(layers[1][0][0]).id);
        CHECK_OK(ignis_graph_launch(graph));
        small_step(x, targets, layers[1], optimizers[1], false);
    }
    for (i = 0; i < 6; i++) {
        double *one = tensor_values(layers[0][i / 2][i % 2]), *other = tensor_values(layers[1][i / 2][i % 2]);
        for (k = 0; k < tensor_info(layers[0][i / 2][i % 2]).shape.dim[0]; k++)
            CHECK_NUMBER(other[k], one[k]);
        free(one);
        free(other);
        let_go(layers[0][i / 2][i % 2]);
        let_go(layers[1][i / 2][i % 2]);
    }
    CHECK_OK(ignis_graph_free(graph));
    for (side = 0; side < 2; side++)
        CHECK_OK(ignis_optimizer_free(optimizers[side]));
    let_go(x);
    let_go(targets);
    CHECK_INT(memory().live_blocks, 0);
}

/*  One step of a sum of parameters, whose gradients are 1, 2 and so on. */
static void add_up(ignis_optimizer optimizer, const ignis_tensor *parameters, int count)
{
    int i;
    for (i = 0; i < count; i++) {
        ignis_scope scope = ignis_scope_begin();
        CHECK_OK(ignis_backward(ignis_sum(ignis_scale(parameters[i], i + 1)), IGNIS_NO_ARRAY));
        CHECK_OK(ignis_scope_end(scope));
    }
    CHECK_OK(ignis_optimizer_step(optimizer));
    CHECK_OK(ignis_optimizer_zero_grad(optimizer));
}

/*  A graph has the parameters of its capture, whatever joins the optimizer later, also where those come first in its
    table. */
TEST(a_graph_and_steps_beside_it_with_other_parameters)
{
    ignis_tensor parameters[2];
    ignis_sgd_desc desc;
    ignis_optimizer optimizer;
    ignis_graph graph;
    int i;
    SETUP(NULL);
    memset(&desc, 0, sizeof desc);
    desc.lr = 1;
    optimizer = ignis_sgd(&desc);
    parameters[0] = vector4(0, true);
    parameters[1] = tensor_counting(IGNIS_SHAPE(4), IGNIS_F16, 0, true); /* of an element type that comes first */
    CHECK_OK(ignis_optimizer_add(optimizer, parameters[0], false));
    add_up(optimizer, parameters, 1);
    CHECK_OK(ignis_graph_begin());
    add_up(optimizer, parameters, 1);
    graph = ignis_graph_end();
    REQUIRE(graph.id != 0);
    CHECK_NUMBER(value_at(parameters[0], 3), 2);
    CHECK_OK(ignis_optimizer_add(optimizer, parameters[1], false));
    for (i = 0; i < 3; i++) {
        add_up(optimizer, parameters, 2);
        CHECK_OK(ignis_graph_launch(graph));
        CHECK_NUMBER(value_at(parameters[0], 3), 3 - 1 - 2 * (i + 1));
        CHECK_NUMBER(value_at(parameters[1], 3), -2 * (i + 1));
    }
    CHECK_OK(ignis_graph_free(graph));
    add_up(optimizer, parameters, 2);
    CHECK_NUMBER(value_at(parameters[0], 3), -5);
    CHECK_NUMBER(value_at(parameters[1], 3), -8);
    CHECK_OK(ignis_optimizer_free(optimizer));
    let_go(parameters[0]);
    let_go(parameters[1]);
    CHECK_INT(memory().live_blocks, 0);
}

/*  New data comes in by writing into the inputs' arrays. */
TEST(inputs_are_read_at_each_launch)
{
    static const double other[6] = {3, 3, 3, 3, 3, 3};
    network n;
    ignis_graph graph;
    ignis_tensor loss;
    double first;
    SETUP(NULL);
    network_open(&n);
    let_go(network_step(&n));
    CHECK_OK(ignis_graph_begin());
    loss = network_step(&n);
    graph = ignis_graph_end();
    CHECK_OK(ignis_graph_launch(graph));
    first = ignis_item(loss);
    CHECK_OK(ignis_array_from_host(ignis_tensor_data(n.targets), other, IGNIS_F64, 6));
    CHECK_OK(ignis_graph_launch(graph));
    CHECK(fabs(ignis_item(loss) - first) > 0.05);
    let_go(loss);
    CHECK_OK(ignis_graph_free(graph));
    network_close(&n);
    CHECK_INT(memory().live_blocks, 0);
}

/*  Gradients that a capture makes first: the buffers stay with the leaves. */
TEST(gradients_made_in_a_capture)
{
    ignis_tensor x;
    ignis_graph graph;
    ignis_scope scope;
    SETUP(NULL);
    warm_up();
    x = vector4(1, true);
    CHECK_OK(ignis_graph_begin());
    scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(ignis_sum(ignis_mul(x, x)), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
    graph = ignis_graph_end();
    REQUIRE(graph.id != 0);
    CHECK(ignis_tensor_grad(x).id != 0);
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_NUMBER(grad_at(x, 3), 8);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_NUMBER(grad_at(x, 3), 8);
    scope = ignis_scope_begin();
    CHECK_OK(ignis_backward(ignis_sum(ignis_mul(x, x)), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_scope_end(scope));
    CHECK_NUMBER(grad_at(x, 3), 16);
    let_go(x);
    CHECK_INT(memory().live_blocks, 0);
}

/* --- random numbers ----------------------------------------------------------------------------------------------- */

enum { MANY = 4096 };

static int differences(const double *a, const double *b)
{
    int i, count = 0;
    for (i = 0; i < MANY; i++)
        count += a[i] != b[i];
    return count;
}

static ignis_tensor dropout_twice(const ignis_tensor *in, int count, void *user_data)
{
    (void)count, (void)user_data;
    return ignis_dropout(ignis_dropout(in[0], 0.25), 0.5);
}

/*  What dropout makes of ones at each of three launches, and its gradient. in_checkpoint: computed again for the
    gradient. */
static void dropped(double values[3][MANY], bool in_checkpoint)
{
    ignis_tensor_desc desc = tensor_desc(IGNIS_F32, true);
    ignis_tensor x, y = {0};
    ignis_graph graph;
    int turn, i;
    CHECK_OK(ignis_seed(5));
    x = ignis_tensor_ones(IGNIS_SHAPE(MANY), &desc);
    CHECK_OK(ignis_zero_grad(x));
    for (turn = 0; turn < 2; turn++) { /* eager, then captured */
        if (turn == 1)
            CHECK_OK(ignis_graph_begin());
        y = in_checkpoint ? ignis_checkpoint(dropout_twice, NULL, &x, 1, NULL) : dropout_twice(&x, 1, NULL);
        CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
        if (turn == 0)
            let_go(y);
    }
    graph = ignis_graph_end();
    for (turn = 0; turn < 3; turn++) {
        double *made, *gradient, sum = 0;
        int wrong = 0;
        CHECK_OK(ignis_zero_grad(x));
        CHECK_OK(ignis_graph_launch(graph));
        made = tensor_values(y);
        gradient = array_values(ignis_tensor_grad(x));
        for (i = 0; i < MANY; i++) {
            wrong += made[i] != gradient[i]; /* as x is 1 */
            sum += values[turn][i] = made[i];
        }
        CHECK_INT(wrong, 0);
        CHECK_CLOSE(sum / MANY, 1, 0.1);
        free(made), free(gradient);
    }
    CHECK_OK(ignis_graph_free(graph));
    let_go(y);
    let_go(x);
}

/*  The masks differ from launch to launch, and are the same for a seed. */
static void check_masks(bool in_checkpoint)
{
    static double first[3][MANY], again[3][MANY];
    int turn;
    ignis_scope scope = ignis_scope_begin();
    dropped(first, in_checkpoint);
    dropped(again, in_checkpoint);
    for (turn = 0; turn < 3; turn++) {
        CHECK(differences(first[turn], first[(turn + 1) % 3]) > MANY / 4);
        CHECK_INT(differences(first[turn], again[turn]), 0); /* the seed decides */
    }
    CHECK_OK(ignis_scope_end(scope));
    CHECK_INT(memory().live_blocks, 0);
}

TEST(dropout_has_a_new_mask_at_each_launch)
{
    SETUP(NULL);
    check_masks(false);
}

TEST(a_checkpoint_in_a_graph_sees_the_same_mask)
{
    SETUP(NULL);
    check_masks(true);
}

/*  A checkpoint of before the capture has a mask of before the capture. */
TEST(a_checkpoint_whose_gradient_is_captured)
{
    ignis_tensor_desc desc = tensor_desc(IGNIS_F32, true);
    ignis_tensor x, y, warm;
    ignis_graph graph;
    ignis_scope scope;
    double *made, *gradient;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = ignis_tensor_ones(IGNIS_SHAPE(MANY), &desc);
    warm = ignis_checkpoint(dropout_twice, NULL, &x, 1, NULL);
    CHECK_OK(ignis_backward(ignis_sum(warm), IGNIS_NO_ARRAY));
    y = ignis_checkpoint(dropout_twice, NULL, &x, 1, NULL);
    CHECK_OK(ignis_zero_grad(x));
    CHECK_OK(ignis_graph_begin());
    (void)ignis_dropout(x, 0.5);
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    graph = ignis_graph_end();
    CHECK_OK(ignis_graph_launch(graph));
    made = tensor_values(y);
    gradient = array_values(ignis_tensor_grad(x));
    CHECK_INT(differences(made, gradient), 0);
    free(made), free(gradient);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_scope_end(scope));
    CHECK_INT(memory().live_blocks, 0);
}

/*  The gradient may come later, or in a graph of its own: its mask is that of the last launch. */
TEST(a_gradient_outside_of_the_graph)
{
    ignis_tensor_desc desc = tensor_desc(IGNIS_F32, true);
    ignis_tensor x, y;
    ignis_graph graph;
    ignis_scope scope;
    double *made, *gradient;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = ignis_tensor_ones(IGNIS_SHAPE(MANY), &desc);
    CHECK_OK(ignis_backward(ignis_sum(ignis_dropout(x, 0.5)), IGNIS_NO_ARRAY));
    CHECK_OK(ignis_zero_grad(x));
    CHECK_OK(ignis_graph_begin());
    y = ignis_dropout(x, 0.5);
    graph = ignis_graph_end();
    for (i = 0; i < 3; i++)
        CHECK_OK(ignis_graph_launch(graph));
    made = tensor_values(y);
    CHECK_OK(ignis_graph_free(graph)); /* the tape has what it needs */
    CHECK_OK(ignis_backward(ignis_sum(y), IGNIS_NO_ARRAY));
    gradient = array_values(ignis_tensor_grad(x));
    CHECK_INT(differences(made, gradient), 0);
    free(made), free(gradient);
    CHECK_OK(ignis_scope_end(scope));
    CHECK_INT(memory().live_blocks, 0);
}

/*  A launch writes to what it writes, and only to that. */
TEST(a_launch_counts_as_writing)
{
    ignis_tensor x, w, y;
    ignis_graph graph;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = vector4(1, true);
    w = vector4(2, false);
    CHECK_OK(ignis_array_add(ignis_tensor_data(w), ignis_tensor_data(w), ignis_tensor_data(x))); /* compiles */
    y = ignis_sum(ignis_mul(x, w));
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_array_add(ignis_tensor_data(w), ignis_tensor_data(w), ignis_tensor_data(x)));
    graph = ignis_graph_end();
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY)); /* nothing was launched, so w is as it was */
    y = ignis_sum(ignis_mul(x, x));
    CHECK_OK(ignis_graph_launch(graph)); /* reads x */
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
    y = ignis_sum(ignis_mul(x, w));
    CHECK_OK(ignis_graph_launch(graph)); /* writes w */
    CHECK_STATUS(ignis_backward(y, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
    CHECK_MESSAGE_HAS("'mul'");
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_scope_end(scope));
}

/*  Where the caller's own code is captured, that has had the address for long. */
TEST(a_launch_writes_what_was_marked_in_the_capture)
{
    ignis_tensor x, w, y;
    ignis_graph graph;
    ignis_scope scope;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = vector4(1, true);
    w = vector4(2, false);
    y = ignis_sum(ignis_mul(x, w));
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_array_mark_written(ignis_tensor_data(w)));
    graph = ignis_graph_end();
    CHECK_OK(ignis_backward(y, IGNIS_NO_ARRAY));
    y = ignis_sum(ignis_mul(x, w));
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_STATUS(ignis_backward(y, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_scope_end(scope));
}

#define CHECK_UNWRITTEN(call) CHECK_FAILS(call, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_ARRAY_UNWRITTEN)

/*  What a graph writes to memory of its own is not there before its first launch. */
TEST(results_are_never_written_before_the_first_launch)
{
    ignis_launch launch = test_launch(1, 1);
    ignis_array by_kernel, outside, to;
    ignis_tensor x, w, y, loss;
    ignis_kernel kernel;
    ignis_graph graph;
    ignis_scope scope;
    ignis_arg arg;
    double values[4];
    int launched;
    SETUP(NULL);
    warm_up();
    kernel = test_compile("extern \"C\" __global__ void set(float *x) { x[0] = 5.f; }", "set", NULL);
    for (launched = 1; launched >= 0; launched--) {
        scope = ignis_scope_begin();
        x = vector4(1, true), w = vector4(1, true);
        to = make(IGNIS_SHAPE(4), IGNIS_F32), by_kernel = make(IGNIS_SHAPE(4), IGNIS_F32),
        outside = make(IGNIS_SHAPE(4), IGNIS_F32);
        CHECK_OK(ignis_array_to_device(outside));
        CHECK_OK(ignis_graph_begin());
        y = ignis_scale(ignis_detach(x), 3);
        loss = ignis_sum(ignis_mul(x, y));
        CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
        arg = ignis_arg_array(by_kernel);
        CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
        arg = ignis_arg_array(outside);
        CHECK_OK(ignis_kernel_launch(kernel, &launch, &arg, 1));
        graph = ignis_graph_end();
        REQUIRE(graph.id != 0);
        CHECK_UNWRITTEN(ignis_array_to_host(ignis_tensor_data(y), values, IGNIS_F64, 4));
        CHECK_MESSAGE_HAS("a graph");
        CHECK_UNWRITTEN(ignis_array_clone(ignis_tensor_data(y)));
        CHECK_UNWRITTEN(ignis_item(loss));
        CHECK_UNWRITTEN(ignis_array_write_rows(to, ignis_tensor_data(y), 0));
        CHECK_UNWRITTEN(ignis_mul(w, y));
        CHECK_UNWRITTEN(ignis_array_to_host(ignis_tensor_grad(x), values, IGNIS_F64, 4));
        CHECK_UNWRITTEN(ignis_backward(ignis_sum(ignis_scale(x, 2)), IGNIS_NO_ARRAY)); /* would add to it */
        CHECK_UNWRITTEN(ignis_array_to_host(by_kernel, values, IGNIS_F64, 4));
        CHECK_UNWRITTEN(ignis_array_to_host(outside, values, IGNIS_F64, 4));
        if (launched) {
            CHECK_OK(ignis_graph_launch(graph));
            CHECK_NUMBER(value_at(y, 3), 12);
            CHECK_NUMBER(ignis_item(loss), 90);
            CHECK_NUMBER(grad_at(x, 3), 12);
            CHECK_NUMBER(array_at(by_kernel, 0), 5);
            CHECK_NUMBER(array_at(outside, 0), 5);
        }
        CHECK_OK(ignis_graph_free(graph));
        if (launched) {
            CHECK_NUMBER(value_at(y, 3), 12);
        } else {
            CHECK_UNWRITTEN(ignis_array_to_host(ignis_tensor_data(y), values, IGNIS_F64, 4));
            CHECK_OK(ignis_array_fill(ignis_tensor_data(y), 7));
            CHECK_NUMBER(value_at(y, 3), 7);
        }
        CHECK_OK(ignis_array_free(to)), CHECK_OK(ignis_array_free(by_kernel)), CHECK_OK(ignis_array_free(outside));
        CHECK_OK(ignis_scope_end(scope));
    }
    CHECK_OK(ignis_kernel_free(kernel));
    CHECK_INT(memory().live_blocks, 0);
}

/*  A backward needs what an operation saved, which a launch of the graph that made it has changed. */
TEST(a_launch_changes_what_was_saved_of_its_results)
{
    ignis_tensor x, w, y, loss;
    ignis_graph graph;
    ignis_scope scope;
    SETUP(NULL);
    warm_up();
    scope = ignis_scope_begin();
    x = vector4(1, false), w = vector4(1, true);
    CHECK_OK(ignis_graph_begin());
    y = ignis_scale(x, 3);
    graph = ignis_graph_end();
    CHECK_OK(ignis_graph_launch(graph));
    loss = ignis_sum(ignis_mul(w, y));
    CHECK_OK(ignis_backward(loss, IGNIS_NO_ARRAY));
    CHECK_NUMBER(grad_at(w, 3), 12);
    loss = ignis_sum(ignis_mul(w, y));
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_STATUS(ignis_backward(loss, IGNIS_NO_ARRAY), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_SAVED_CHANGED);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_scope_end(scope));
}

TEST(random_tensors_are_new_at_each_launch)
{
    ignis_graph graph;
    ignis_scope scope;
    int d;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        ignis_tensor_desc desc = tensor_desc(float_dtypes[d], false);
        ignis_tensor uniform, normal;
        double *values[4], sum = 0, squares = 0;
        int i;
        scope = ignis_scope_begin();
        ignis_tensor_rand(IGNIS_SHAPE(MANY), &desc);
        CHECK_OK(ignis_graph_begin());
        uniform = ignis_tensor_rand(IGNIS_SHAPE(MANY), &desc);
        normal = ignis_tensor_randn(IGNIS_SHAPE(MANY), &desc);
        graph = ignis_graph_end();
        for (i = 0; i < 4; i += 2) {
            CHECK_OK(ignis_graph_launch(graph));
            values[i] = tensor_values(uniform);
            values[i + 1] = tensor_values(normal);
        }
        CHECK(differences(values[0], values[2]) > MANY / 2);
        CHECK(differences(values[1], values[3]) > MANY / 2);
        for (i = 0; i < MANY; i++) {
            CHECK(values[2][i] >= 0 && values[2][i] < 1);
            sum += values[2][i];
            squares += values[3][i] * values[3][i];
        }
        CHECK_CLOSE(sum / MANY, 0.5, 0.05);
        CHECK_CLOSE(squares / MANY, 1, 0.1);
        for (i = 0; i < 4; i++)
            free(values[i]);
        CHECK_OK(ignis_graph_free(graph));
        CHECK_OK(ignis_scope_end(scope));
    }
    CHECK_INT(memory().live_blocks, 0);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

enum { MIB = 1 << 20 };

static int64_t capture_chain(int length, ignis_graph *graph, ignis_tensor *result)
{
    ignis_tensor_desc desc = tensor_desc(IGNIS_F32, false);
    ignis_tensor x = ignis_tensor_ones(IGNIS_SHAPE(MIB / 4), &desc), y = ignis_detach(x), next;
    int64_t before = memory().reserved_bytes, taken;
    int i;
    CHECK_OK(ignis_graph_begin());
    for (i = 0; i < length; i++) {
        next = ignis_scale(y, i % 2 ? 0.5 : 2);
        let_go(y);
        y = next;
    }
    *graph = ignis_graph_end();
    taken = memory().reserved_bytes - before;
    let_go(x);
    *result = y;
    return taken;
}

TEST(temporaries_are_used_again_inside_a_capture)
{
    ignis_graph graph;
    ignis_tensor y;
    int64_t taken;
    SETUP(NULL);
    if (test_is_bypass())
        SKIP("IGNIS_MEMORY_BYPASS=1: nothing is cached");
    warm_up();
    taken = capture_chain(64, &graph, &y);
    CHECK(taken <= 32 * MIB); /* two at a time, in segments that may be larger */
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_NUMBER(value_at(y, MIB / 4 - 1), 1);
    let_go(y);
    CHECK_OK(ignis_graph_free(graph));
    CHECK_INT(memory().live_blocks, 0);
    CHECK(ignis_memory_trim(0) >= 0);
    CHECK_INT(memory().reserved_bytes, 0);
}

/*  What is released inside a capture is not handed to others: replays write there. */
TEST(memory_of_a_graph_is_its_own)
{
    ignis_tensor_desc desc = tensor_desc(IGNIS_F32, false);
    ignis_tensor y, others[8];
    ignis_graph graph;
    int i, k;
    SETUP(NULL);
    warm_up();
    (void)capture_chain(5, &graph, &y);
    for (i = 0; i < 8; i++)
        others[i] = ignis_tensor_zeros(IGNIS_SHAPE(MIB / 4), &desc);
    for (k = 0; k < 3; k++)
        CHECK_OK(ignis_graph_launch(graph));
    for (i = 0; i < 8; i++) {
        double *values = tensor_values(others[i]);
        int wrong = 0;
        for (k = 0; k < MIB / 4; k++)
            wrong += values[k] != 0;
        CHECK_INT(wrong, 0);
        free(values);
        let_go(others[i]);
    }
    CHECK_NUMBER(value_at(y, 7), 2);
    CHECK_OK(ignis_graph_free(graph));
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

/*  The stream of an array's own does not have to do with the memory that a capture takes: once the graph is gone, that
    memory is Ignis' own stream's, and the next who gets it there comes behind what the array's stream did with it. */
TEST(what_a_capture_takes_for_an_array_of_another_stream)
{
    ignis_array_desc desc;
    ignis_array array, next;
    ignis_graph graph;
    void *stream;
    SETUP(NULL);
    warm_up();
    CHECK_INT(ignis__cuda.cuStreamCreate(&stream, 1), 0);
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(MIB);
    desc.stream = stream;
    array = ignis_array_create(&desc);
    CHECK_OK(ignis_graph_begin());
    CHECK_OK(ignis_array_zero(array));
    graph = ignis_graph_end();
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_graph_free(graph));
    CHECK_OK(ignis_stream_use(stream));
    CHECK_OK(ignis_array_fill(array, 1));
    CHECK_OK(ignis_stream_use(NULL));
    fault_reset_counts();
    CHECK_OK(ignis_array_free(array));
    desc.stream = NULL;
    next = ignis_array_create(&desc);
    CHECK_OK(ignis_array_zero(next));
    CHECK_INT(fault_count("cuStreamWaitEvent"), 1);
    CHECK_OK(ignis_array_free(next));
    CHECK_OK(ignis_stream_forget(stream));
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(stream), 0);
}

/*  The loss of all rows by many blocks, of which the last adds up. */
static double loss_by_blocks(ignis_tensor logits, ignis_tensor targets)
{
    ignis_tensor loss = ignis_cross_entropy(logits, targets, NULL);
    double value = ignis_item(loss);
    let_go(loss);
    return value;
}

/*  What blocks count themselves by is zeroed for the first kernel of a stream, or of a graph, and left 0 by each. */
TEST(blocks_count_themselves_anew_in_each_kernel)
{
    static double classes[150];
    ignis_tensor logits, targets, losses[2];
    ignis_graph graph;
    void *stream = NULL;
    double expected;
    int i;
    SETUP(NULL);
    logits = tensor_noise(IGNIS_SHAPE(150, 64), IGNIS_F32, 1, false);
    for (i = 0; i < 150; i++)
        classes[i] = i % 64;
    targets = tensor_of(classes, IGNIS_SHAPE(150), IGNIS_I32, false);
    expected = loss_by_blocks(logits, targets);
    fault_reset_counts();
    for (i = 0; i < 3; i++)
        CHECK_NUMBER(loss_by_blocks(logits, targets), expected);
    CHECK_INT(fault_count("cuMemsetD8Async"), ignis__memory_bypass ? 3 : 0);
    CHECK(ignis_memory_trim(0) >= 0);
    CHECK_NUMBER(loss_by_blocks(logits, targets), expected);

    CHECK_OK(ignis_graph_begin());
    fault_reset_counts();
    for (i = 0; i < 2; i++)
        losses[i] = ignis_cross_entropy(logits, targets, NULL);
    CHECK_INT(fault_count("cuMemsetD8Async"), ignis__memory_bypass ? 2 : 1);
    graph = ignis_graph_end();
    for (i = 0; i < 3; i++) {
        CHECK_OK(ignis_graph_launch(graph));
        CHECK_NUMBER(loss_by_blocks(logits, targets), expected);
        CHECK_NUMBER(value_at(losses[0], 0), expected);
        CHECK_NUMBER(value_at(losses[1], 0), expected);
    }
    CHECK_OK(ignis_graph_free(graph));
    CHECK_NUMBER(loss_by_blocks(logits, targets), expected);

    CHECK_INT(ignis__cuda.cuStreamCreate(&stream, 1), 0);
    CHECK_OK(ignis_stream_use(stream));
    for (i = 0; i < 2; i++)
        CHECK_NUMBER(loss_by_blocks(logits, targets), expected);
    CHECK_OK(ignis_stream_use(NULL));
    CHECK_OK(ignis_stream_forget(stream));
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(stream), 0);
    CHECK_NUMBER(loss_by_blocks(logits, targets), expected);
    let_go(losses[0]), let_go(losses[1]), let_go(logits), let_go(targets);
    CHECK_INT(memory().live_blocks, 0);
    CHECK(ignis_memory_trim(0) >= 0);
    CHECK_INT(memory().reserved_bytes, 0);
}

/*  A graph that never ran has zeroed nothing: what it took is memory like any other afterwards. */
TEST(a_graph_freed_without_a_launch_leaves_nothing_that_passes_for_zeroed)
{
    static double classes[150];
    ignis_tensor logits, targets, loss;
    void *stream = NULL;
    double expected;
    int i;
    SETUP(NULL);
    CHECK_OK(ignis_device_use(0));
    CHECK_INT(ignis__cuda.cuStreamCreate(&stream, 1), 0);
    CHECK_OK(ignis_stream_use(stream)); /* so that Ignis' own stream has no memory of its own yet */
    logits = tensor_noise(IGNIS_SHAPE(150, 64), IGNIS_F32, 1, false);
    for (i = 0; i < 150; i++)
        classes[i] = i % 64;
    targets = tensor_of(classes, IGNIS_SHAPE(150), IGNIS_I32, false);
    expected = loss_by_blocks(logits, targets);
    CHECK_OK(ignis_graph_begin());
    loss = ignis_cross_entropy(logits, targets, NULL);
    CHECK_OK(ignis_graph_free(ignis_graph_end()));
    CHECK_OK(ignis_array_fill(ignis_tensor_data(loss), 7)); /* what the graph had taken may hold anything */
    let_go(loss);
    CHECK_OK(ignis_stream_use(NULL));
    for (i = 0; i < 3; i++)
        CHECK_NUMBER(loss_by_blocks(logits, targets), expected);
    let_go(logits), let_go(targets);
    CHECK_OK(ignis_stream_forget(stream));
    CHECK_INT(ignis__cuda.cuStreamDestroy_v2(stream), 0);
}

/*  Memory that nothing but a graph has any more leaves a forgotten stream as well. */
TEST(a_forgotten_stream_is_not_used_for_what_only_a_graph_holds)
{
    ignis_graph graph;
    ignis_tensor x, y;
    void *streams[2];
    int i;
    SETUP(NULL);
    warm_up();
    for (i = 0; i < 2; i++)
        CHECK_INT(ignis__cuda.cuStreamCreate(&streams[i], 1), 0);
    CHECK_OK(ignis_stream_use(streams[0]));
    x = vector4(1, false);
    CHECK_OK(ignis_synchronize());
    CHECK_OK(ignis_stream_use(streams[1]));
    let_go(ignis_scale(x, 2)); /* its memory is to come back behind both streams */
    CHECK_OK(ignis_graph_begin());
    y = ignis_scale(x, 3);
    graph = ignis_graph_end();
    let_go(x);
    for (i = 0; i < 2; i++) {
        CHECK_OK(ignis_stream_forget(streams[i]));
        CHECK_INT(ignis__cuda.cuStreamDestroy_v2(streams[i]), 0);
    }
    CHECK_OK(ignis_graph_launch(graph));
    CHECK_NUMBER(value_at(y, 3), 12);
    fault_reset_counts();
    CHECK_OK(ignis_graph_free(graph));
    CHECK_INT(fault_failed("cuEventRecord") + fault_failed("cuStreamWaitEvent") + fault_failed("cuStreamSynchronize"),
              0);
    let_go(y);
    CHECK_INT(memory().live_blocks, 0);
}

TEST(many_graphs_come_and_go)
{
    ignis_memory_info first, last;
    ignis_graph graph;
    ignis_tensor x, y;
    int i;
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    memset(&first, 0, sizeof first);
    for (i = 0; i < 50; i++) {
        ignis_scope scope;
        CHECK_OK(ignis_graph_begin());
        scope = ignis_scope_begin();
        y = ignis_scope_return(scope, ignis_scale(ignis_add(x, x), 2));
        graph = ignis_graph_end();
        CHECK_OK(ignis_graph_launch(graph));
        CHECK_NUMBER(value_at(y, 0), 4);
        let_go(y);
        CHECK_OK(ignis_graph_free(graph));
        if (i == 3)
            first = memory();
    }
    last = memory();
    CHECK(last.reserved_bytes - first.reserved_bytes <= 4 * MIB);
    let_go(x);
}

/*  Two graphs take turns; each has its own memory. */
TEST(two_graphs)
{
    ignis_tensor x, y, z;
    ignis_graph one, two;
    int i;
    SETUP(NULL);
    warm_up();
    x = vector4(1, false);
    CHECK_OK(ignis_graph_begin());
    y = ignis_scale(x, 2);
    one = ignis_graph_end();
    CHECK_OK(ignis_graph_begin());
    z = ignis_scale(y, 5); /* reads what the other has made */
    two = ignis_graph_end();
    for (i = 0; i < 4; i++) {
        set4(x, i);
        CHECK_OK(ignis_graph_launch(one));
        CHECK_OK(ignis_graph_launch(two));
        CHECK_NUMBER(value_at(z, 1), 10 * (i + 1));
    }
    CHECK_OK(ignis_graph_free(one));
    CHECK_OK(ignis_graph_launch(two));
    CHECK_NUMBER(value_at(z, 1), 40);
    CHECK_OK(ignis_graph_free(two));
    let_go(x), let_go(y), let_go(z);
    CHECK_INT(memory().live_blocks, 0);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
