// SPDX-License-Identifier: MIT
/*  test_linear.c - linear layers and multilayer perceptrons against their parts and finite differences, their errors */
#include "matmul.h"

#include <math.h>

/* --- linear ------------------------------------------------------------------------------------------------------- */

TEST(linear_with_and_without_a_bias)
{
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        for (i = 0; i < COUNT_OF(all_sizes); i++) {
            check_linear(float_dtypes[d], all_sizes[i], true);
            if (i % 3 == 0)
                check_linear(float_dtypes[d], all_sizes[i], false);
        }
    }
}

TEST(linear_of_nothing)
{
    static const sizes empty[] = {{0, 3, 2}, {3, 0, 2}, {3, 2, 0}, {0, 0, 0}};
    int d, i;
    SETUP(NULL);
    for (d = 0; d < 4; d++)
        for (i = 0; i < COUNT_OF(empty); i++)
            check_linear(float_dtypes[d], empty[i], true);
}

static ignis_tensor run_linear(const ignis_tensor *in, int count, void *user_data)
{
    ignis_tensor none = {0};
    (void)user_data;
    return ignis_linear(in[0], in[1], count > 2 ? in[2] : none);
}

TEST(linear_against_finite_differences)
{
    ignis_tensor in[3];
    SETUP(NULL);
    in[0] = tensor_noise(IGNIS_SHAPE(2, 3, 4), IGNIS_F64, 5, true);
    in[1] = tensor_noise(IGNIS_SHAPE(5, 4), IGNIS_F64, 6, true);
    in[2] = tensor_noise(IGNIS_SHAPE(5), IGNIS_F64, 7, true);
    CHECK(ignis_gradcheck(run_linear, NULL, in, 3, NULL) < 1e-6);
    CHECK(ignis_gradcheck(run_linear, NULL, in, 2, NULL) < 1e-6);
    let_go(in[0]), let_go(in[1]), let_go(in[2]);
}

static ignis_tensor run_two_linear(const ignis_tensor *in, int count, void *user_data)
{
    ignis_tensor none = {0}, first = ignis_linear(in[0], in[1], none);
    (void)count, (void)user_data;
    return ignis_add(first, ignis_linear(in[0], in[2], none));
}

/*  Of two layers the second one to give x a gradient adds to that of the first, inside its product: the sum is rounded
    once. */
TEST(linear_adds_to_a_gradient_that_x_has)
{
    enum { ROWS = 24, IN = 40, OUT = 16 };
    ignis_tensor in[3], y, other, rounded;
    double *g, *w1, *w2, *dx, *first, *expected = (double *)calloc(ROWS * IN, sizeof(double)), *kept;
    int r, i, k, differ = 0;
    ignis_scope scope;
    SETUP(NULL);
    in[0] = tensor_noise(IGNIS_SHAPE(3, 4), IGNIS_F64, 5, true);
    in[1] = tensor_noise(IGNIS_SHAPE(5, 4), IGNIS_F64, 6, true);
    in[2] = tensor_noise(IGNIS_SHAPE(5, 4), IGNIS_F64, 7, true);
    CHECK(ignis_gradcheck(run_two_linear, NULL, in, 3, NULL) < 1e-6);
    let_go(in[0]), let_go(in[1]), let_go(in[2]);

    scope = ignis_scope_begin();
    in[0] = tensor_noise(IGNIS_SHAPE(ROWS, IN), IGNIS_BF16, 5, true);
    in[1] = tensor_noise(IGNIS_SHAPE(OUT, IN), IGNIS_BF16, 6, true);
    in[2] = tensor_noise(IGNIS_SHAPE(OUT, IN), IGNIS_BF16, 7, true);
    y = run_two_linear(in, 3, NULL);
    other = tensor_noise(IGNIS_SHAPE(ROWS, OUT), IGNIS_BF16, 8, false);
    CHECK_OK(ignis_backward(y, ignis_tensor_data(other)));
    g = tensor_values(other), w1 = tensor_values(in[1]), w2 = tensor_values(in[2]);
    for (r = 0; r < ROWS; r++) /* the layer that came last is the first of the walk */
        for (i = 0; i < IN; i++)
            for (k = 0; k < OUT; k++)
                expected[r * IN + i] += g[r * OUT + k] * w2[k * IN + i];
    rounded = tensor_of(expected, IGNIS_SHAPE(ROWS, IN), IGNIS_BF16, false);
    first = tensor_values(rounded);
    for (r = 0; r < ROWS; r++)
        for (i = 0; i < IN; i++) {
            double sum = 0;
            for (k = 0; k < OUT; k++)
                sum += g[r * OUT + k] * w1[k * IN + i];
            expected[r * IN + i] = sum + first[r * IN + i];
        }
    rounded = tensor_of(expected, IGNIS_SHAPE(ROWS, IN), IGNIS_BF16, false);
    kept = tensor_values(rounded);
    dx = array_values(ignis_tensor_grad(in[0]));
    for (i = 0; i < ROWS * IN; i++)
        differ += dx[i] != kept[i];
    CHECK(
        /* where the exact sum is next to the middle of two numbers; of sums that are rounded twice a fifth differs */
        differ <= 4);
    free(g), free(w1), free(w2), free(dx), free(first), free(expected), free(kept);
    CHECK_OK(ignis_scope_end(scope));
}

TEST(linear_makes_the_gradient_of_the_bias_alone)
{
    ignis_tensor x, w, bias, y;
    ignis_array g;
    int d;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        x = tensor_noise(IGNIS_SHAPE(3, 4), float_dtypes[d], 1, false);
        w = tensor_noise(IGNIS_SHAPE(2, 4), float_dtypes[d], 2, false);
        bias = tensor_noise(IGNIS_SHAPE(2), float_dtypes[d], 3, true);
        y = ignis_linear(x, w, bias);
        g = make(IGNIS_SHAPE(3, 2), float_dtypes[d]);
        CHECK_OK(ignis_array_fill(g, 0.5));
        CHECK_OK(ignis_backward(y, g));
        CHECK_NUMBER(grad_at(bias, 1), 1.5);
        CHECK_INT(ignis_tensor_grad(w).id, 0);
        drop(g);
        let_go(x), let_go(w), let_go(bias), let_go(y);
    }
}

/* --- two layers at once ------------------------------------------------------------------------------------------- */

enum { MLP_X, MLP_W1, MLP_B1, MLP_W2, MLP_B2, MLP_INPUTS };

static ignis_tensor run_mlp(const ignis_tensor *in, int count, void *user_data)
{
    (void)count;
    return ignis_mlp(in[MLP_X], in[MLP_W1], in[MLP_B1], in[MLP_W2], in[MLP_B2], *(const ignis_activation *)user_data);
}

static ignis_tensor run_mlp_without_biases(const ignis_tensor *in, int count, void *user_data)
{
    ignis_tensor none = {0};
    (void)count;
    return ignis_mlp(in[0], in[1], none, in[2], none, *(const ignis_activation *)user_data);
}

TEST(mlp_against_finite_differences)
{
    static const ignis_activation gelu = IGNIS_ACTIVATION_GELU;
    ignis_tensor in[MLP_INPUTS], plain[3];
    int i;
    SETUP(NULL);
    in[MLP_X] = tensor_noise(IGNIS_SHAPE(2, 3, 4), IGNIS_F64, 5, true);
    in[MLP_W1] = tensor_noise(IGNIS_SHAPE(6, 4), IGNIS_F64, 6, true);
    in[MLP_B1] = tensor_noise(IGNIS_SHAPE(6), IGNIS_F64, 7, true);
    in[MLP_W2] = tensor_noise(IGNIS_SHAPE(3, 6), IGNIS_F64, 8, true);
    in[MLP_B2] = tensor_noise(IGNIS_SHAPE(3), IGNIS_F64, 9, true);
    plain[0] = in[MLP_X], plain[1] = in[MLP_W1], plain[2] = in[MLP_W2];
    CHECK(ignis_gradcheck(run_mlp, (void *)&gelu, in, MLP_INPUTS, NULL) < 1e-6);
    CHECK(ignis_gradcheck(run_mlp_without_biases, (void *)&gelu, plain, 3, NULL) < 1e-6);
    for (i = 0; i < MLP_INPUTS; i++)
        let_go(in[i]);
}

/*  The largest difference of two arrays, as a part of the largest number. */
static double largest_difference(ignis_array a, ignis_array b)
{
    double *x = array_values(a), *y = array_values(b), most = 0, size = 1e-30;
    int64_t i, count = ignis_array_numel(a);
    CHECK_INT(ignis_array_numel(b), count);
    for (i = 0; i < count; i++) {
        most = fabs(x[i] - y[i]) > most || isnan(x[i]) ? fabs(x[i] - y[i]) : most;
        size = fabs(y[i]) > size ? fabs(y[i]) : size;
    }
    free(x), free(y);
    return most / size;
}

/*  The same as its parts, in values and gradients; of those only the wanted ones are made. */
static void check_mlp(ignis_dtype dtype, int64_t rows, bool biases, ignis_activation activation, int wanted)
{
    ignis_tensor in[2][MLP_INPUTS], hidden, pre, y[2], none = {0},
                                                       g = tensor_noise(IGNIS_SHAPE(rows, 12), dtype, 9, false);
    int way, i;
    for (way = 0; way < 2; way++)
        for (i = 0; i < MLP_INPUTS; i++)
            in[way][i] = i == MLP_X              ? tensor_noise(IGNIS_SHAPE(rows, 20), dtype, 1, wanted & 1)
                         : i == MLP_W1           ? tensor_noise(IGNIS_SHAPE(24, 20), dtype, 2, wanted & 2)
                         : i == MLP_W2           ? tensor_noise(IGNIS_SHAPE(12, 24), dtype, 3, wanted & 4)
                         : biases && i == MLP_B1 ? tensor_noise(IGNIS_SHAPE(24), dtype, 4, wanted & 8)
                         : biases                ? tensor_noise(IGNIS_SHAPE(12), dtype, 5, wanted & 16)
                                                 : none;
    y[0] = ignis_mlp(in[0][MLP_X], in[0][MLP_W1], in[0][MLP_B1], in[0][MLP_W2], in[0][MLP_B2], activation);
    pre = ignis_linear(in[1][MLP_X], in[1][MLP_W1], in[1][MLP_B1]);
    hidden = activation == IGNIS_ACTIVATION_RELU ? ignis_relu(pre) : ignis_gelu(pre);
    y[1] = ignis_linear(hidden, in[1][MLP_W2], in[1][MLP_B2]);
    for (way = 0; way < 2; way++)
        CHECK_OK(ignis_backward(y[way], ignis_tensor_data(g)));
    CHECK(largest_difference(ignis_tensor_data(y[0]), ignis_tensor_data(y[1])) <= 8 * epsilon_of(dtype));
    for (i = 0; i < MLP_INPUTS; i++) {
        ignis_array grad[2];
        if (!in[0][i].id)
            continue;
        grad[0] = ignis_tensor_grad(in[0][i]), grad[1] = ignis_tensor_grad(in[1][i]);
        CHECK_INT(grad[0].id != 0, grad[1].id != 0);
        if (grad[0].id && grad[1].id)
            CHECK(largest_difference(grad[0], grad[1]) <= 24 * epsilon_of(dtype));
    }
    let_go(pre), let_go(hidden), let_go(y[0]), let_go(y[1]), let_go(g);
    for (way = 0; way < 2; way++)
        for (i = 0; i < MLP_INPUTS; i++)
            if (in[way][i].id)
                let_go(in[way][i]);
}

static const ignis_matmul_backend both_ways[2] = {IGNIS_MATMUL_AUTO, IGNIS_MATMUL_OWN};

TEST(mlp_is_its_parts)
{
    int d, way;
    for (way = 0; way < 2; way++) {
        ignis_desc desc = test_desc(NULL);
        desc.matmul = both_ways[way];
        SETUP(&desc);
        for (d = 0; d < 4; d++) {
            check_mlp(float_dtypes[d], 17, true, IGNIS_ACTIVATION_GELU, 31);
            check_mlp(float_dtypes[d], 9, true, IGNIS_ACTIVATION_RELU, 31);
            check_mlp(float_dtypes[d], 9, false, IGNIS_ACTIVATION_GELU, 7);
            check_mlp(float_dtypes[d], 5, true, IGNIS_ACTIVATION_GELU, 1 << d | 16);
        }
        check_mlp(IGNIS_F32, 5, true, IGNIS_ACTIVATION_RELU, 0 | 8);
        check_mlp(IGNIS_F32, 0, true, IGNIS_ACTIVATION_RELU, 31);
        CHECK_OK(ignis_shutdown());
    }
}

TEST(mlp_refuses)
{
    ignis_tensor x, w1, b1, w2, none = {0};
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, true);
    w1 = tensor_noise(IGNIS_SHAPE(4, 3), IGNIS_F32, 2, true);
    b1 = tensor_noise(IGNIS_SHAPE(3), IGNIS_F32, 3, true);
    w2 = tensor_noise(IGNIS_SHAPE(5, 4), IGNIS_F32, 4, true);
    CHECK_REFUSED(0, ignis_mlp(x, w1, b1, w2, none, IGNIS_ACTIVATION_GELU).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("b1 is [3]; [4] is needed");
    CHECK_REFUSED(0, ignis_mlp(x, w1, none, w2, b1, IGNIS_ACTIVATION_GELU).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("b2 is [3]; [5] is needed");
    CHECK_REFUSED(0, ignis_mlp(x, w1, none, w1, none, IGNIS_ACTIVATION_GELU).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("w2 is [4, 3]; [out, 4] is needed");
    CHECK_REFUSED(0, ignis_mlp(x, w2, none, w1, none, IGNIS_ACTIVATION_GELU).id, IGNIS_ERROR_SHAPE,
                  IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_mlp(x, w1, none, w2, none, (ignis_activation)0).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_BAD_ENUM);
    CHECK_INT(ignis_tape_length(), 0);
    let_go(x), let_go(w1), let_go(b1), let_go(w2);
}

/* --- gated layers ------------------------------------------------------------------------------------------------- */

enum { GATED_X, GATED_GATE, GATED_UP, GATED_DOWN, GATED_INPUTS };

static ignis_tensor run_gated(const ignis_tensor *in, int count, void *user_data)
{
    (void)count, (void)user_data;
    return ignis_mlp_gated(in[GATED_X], in[GATED_GATE], in[GATED_UP], in[GATED_DOWN]);
}

static void gated_open(ignis_tensor *in, ignis_dtype dtype, int64_t rows, int64_t hidden, int wanted)
{
    in[GATED_X] = tensor_noise(IGNIS_SHAPE(rows, 20), dtype, 1, wanted & 1);
    in[GATED_GATE] = tensor_noise(IGNIS_SHAPE(hidden, 20), dtype, 2, wanted & 2);
    in[GATED_UP] = tensor_noise(IGNIS_SHAPE(hidden, 20), dtype, 3, wanted & 4);
    in[GATED_DOWN] = tensor_noise(IGNIS_SHAPE(12, hidden), dtype, 4, wanted & 8);
}

static void gated_close(const ignis_tensor *in)
{
    int i;
    for (i = 0; i < GATED_INPUTS; i++)
        let_go(in[i]);
}

TEST(mlp_gated_against_finite_differences)
{
    ignis_tensor in[GATED_INPUTS];
    SETUP(NULL);
    in[GATED_X] = tensor_noise(IGNIS_SHAPE(2, 3, 4), IGNIS_F64, 5, true);
    in[GATED_GATE] = tensor_noise(IGNIS_SHAPE(7, 4), IGNIS_F64, 6, true);
    in[GATED_UP] = tensor_noise(IGNIS_SHAPE(7, 4), IGNIS_F64, 7, true);
    in[GATED_DOWN] = tensor_noise(IGNIS_SHAPE(3, 7), IGNIS_F64, 8, true);
    CHECK(ignis_gradcheck(run_gated, NULL, in, GATED_INPUTS, NULL) < 1e-6);
    gated_close(in);
}

/*  The same as its parts, in values and gradients; of those only the wanted ones are made. The second time nothing is
    recorded. */
static void check_gated(ignis_dtype dtype, int64_t rows, int64_t hidden, int wanted)
{
    ignis_tensor in[2][GATED_INPUTS], part[3], y[3], none = {0},
                                                     g = tensor_noise(IGNIS_SHAPE(rows, 12), dtype, 9, false);
    int way, i;
    for (way = 0; way < 2; way++)
        gated_open(in[way], dtype, rows, hidden, wanted);
    y[0] = ignis_mlp_gated(in[0][GATED_X], in[0][GATED_GATE], in[0][GATED_UP], in[0][GATED_DOWN]);
    part[0] = ignis_linear(in[1][GATED_X], in[1][GATED_GATE], none),
    part[1] = ignis_linear(in[1][GATED_X], in[1][GATED_UP], none);
    part[2] = ignis_silu_mul(part[0], part[1]);
    y[1] = ignis_linear(part[2], in[1][GATED_DOWN], none);
    ignis_no_grad_begin();
    y[2] = ignis_mlp_gated(in[0][GATED_X], in[0][GATED_GATE], in[0][GATED_UP], in[0][GATED_DOWN]);
    ignis_no_grad_end();
    CHECK(largest_difference(ignis_tensor_data(y[2]), ignis_tensor_data(y[0])) == 0);
    CHECK(largest_difference(ignis_tensor_data(y[0]), ignis_tensor_data(y[1])) <= 8 * epsilon_of(dtype));
    for (way = 0; wanted && way < 2; way++)
        CHECK_OK(ignis_backward(y[way], ignis_tensor_data(g)));
    for (i = 0; i < GATED_INPUTS; i++) {
        ignis_array grad[2];
        grad[0] = ignis_tensor_grad(in[0][i]), grad[1] = ignis_tensor_grad(in[1][i]);
        CHECK_INT(grad[0].id != 0, wanted >> i & 1);
        CHECK_INT(grad[0].id != 0, grad[1].id != 0);
        if (grad[0].id && grad[1].id)
            CHECK(largest_difference(grad[0], grad[1]) <= 24 * epsilon_of(dtype));
    }
    for (i = 0; i < 3; i++)
        let_go(y[i]), let_go(part[i]);
    let_go(g), gated_close(in[0]), gated_close(in[1]);
}

TEST(mlp_gated_is_its_parts)
{
    int d, way, wanted;
    for (way = 0; way < 2; way++) {
        ignis_desc desc = test_desc(NULL);
        desc.matmul = both_ways[way];
        SETUP(&desc);
        for (d = 0; d < 4; d++) {
            check_gated(float_dtypes[d], 17, 24, 15);
            check_gated(float_dtypes[d], 5, 37, 15);
        }
        for (wanted = 0; wanted < 15; wanted++)
            check_gated(IGNIS_F32, 3, 8, wanted);
        check_gated(IGNIS_F32, 0, 8, 15);
        check_gated(IGNIS_F32, 3, 0, 15);
        CHECK_OK(ignis_shutdown());
    }
}

TEST(mlp_gated_refuses)
{
    ignis_tensor in[GATED_INPUTS], half;
    SETUP(NULL);
    gated_open(in, IGNIS_F32, 3, 8, 15);
    half = tensor_noise(IGNIS_SHAPE(8, 20), IGNIS_F16, 1, false);
    CHECK_REFUSED(0, ignis_mlp_gated(in[0], in[3], in[2], in[3]).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_REFUSED(0, ignis_mlp_gated(in[0], in[1], in[0], in[3]).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("w_up is [3, 20]; that of w_gate is needed, [8, 20]");
    CHECK_REFUSED(0, ignis_mlp_gated(in[0], in[1], in[2], in[2]).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("w_down is [8, 20]; [out, 8] is needed");
    CHECK_REFUSED(0, ignis_mlp_gated(in[0], in[1], half, in[3]).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("w_up");
    CHECK_INT(ignis_tape_length(), 0);
    let_go(half), gated_close(in);
}

/* --- any number of layers ----------------------------------------------------------------------------------------- */

enum { MOST_LAYERS = 5 };

static const int64_t layer_widths[MOST_LAYERS + 1] = {20, 24, 12, 40, 7, 9};

/*  A network, whose layers have biases where they are one of these bits. */
typedef struct network {
    ignis_activation activation;
    int count, biased;
    ignis_tensor x, weights[MOST_LAYERS], biases[MOST_LAYERS];
} network;

/*  wanted: which have gradients: x is 1, the weights and biases follow in turns. */
static void network_open(network *n, ignis_dtype dtype, int64_t rows, int64_t narrower, int wanted)
{
    int i;
    n->x = tensor_noise(IGNIS_SHAPE(rows, layer_widths[0] / narrower), dtype, 1, wanted & 1);
    for (i = 0; i < n->count; i++) {
        int64_t in = layer_widths[i] / narrower, out = layer_widths[i + 1] / narrower;
        ignis_tensor none = {0};
        n->weights[i] = tensor_noise(IGNIS_SHAPE(out, in), dtype, (uint64_t)(2 + 2 * i), wanted >> (1 + 2 * i) & 1);
        n->biases[i] = n->biased >> i & 1
                           ? tensor_noise(IGNIS_SHAPE(out), dtype, (uint64_t)(3 + 2 * i), wanted >> (2 + 2 * i) & 1)
                           : none;
    }
}

static void network_close(network *n)
{
    int i;
    let_go(n->x);
    for (i = 0; i < n->count; i++) {
        let_go(n->weights[i]);
        if (n->biases[i].id)
            let_go(n->biases[i]);
    }
}

static ignis_tensor network_at_once(const network *n)
{
    return ignis_mlp_layers(n->x, n->weights, n->biased ? n->biases : NULL, n->count, n->activation);
}

static ignis_tensor network_in_parts(const network *n)
{
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor h = n->x;
    int i;
    for (i = 0; i < n->count; i++) {
        h = ignis_linear(h, n->weights[i], n->biases[i]);
        if (i < n->count - 1)
            h = n->activation == IGNIS_ACTIVATION_RELU ? ignis_relu(h) : ignis_gelu(h);
    }
    return ignis_scope_return(scope, h);
}

/*  The result in double, by rows. */
static double *network_reference(const network *n)
{
    double *h = tensor_values(n->x);
    int64_t rows = tensor_info(n->x).shape.dim[0], row, in, out;
    int i;
    for (i = 0; i < n->count; i++) {
        ignis_shape shape = tensor_info(n->weights[i]).shape;
        double *w = tensor_values(n->weights[i]), *b = n->biases[i].id ? tensor_values(n->biases[i]) : NULL;
        double *next = (double *)calloc((size_t)(rows * shape.dim[0] + 1), sizeof *next);
        for (row = 0; row < rows; row++) {
            for (out = 0; out < shape.dim[0]; out++) {
                double sum = b ? b[out] : 0;
                for (in = 0; in < shape.dim[1]; in++)
                    sum += h[row * shape.dim[1] + in] * w[out * shape.dim[1] + in];
                if (i < n->count - 1 && n->activation == IGNIS_ACTIVATION_RELU)
                    sum = sum < 0 ? 0 : sum;
                else if (i < n->count - 1)
                    sum = sum / 2 * (1 + tanh(0.79788456080286535588 * (sum + 0.044715 * sum * sum * sum)));
                next[row * shape.dim[0] + out] = sum;
            }
        }
        free(h), free(w), free(b);
        h = next;
    }
    return h;
}

static ignis_tensor run_network(const ignis_tensor *in, int count, void *user_data)
{
    network n = *(const network *)user_data;
    int i, at = 1 + n.count;
    n.x = in[0];
    for (i = 0; i < n.count; i++) {
        n.weights[i] = in[1 + i];
        if (n.biased >> i & 1)
            n.biases[i] = in[at++];
    }
    CHECK_INT(at, count);
    return network_at_once(&n);
}

static const int layer_counts[] = {1, 2, 3, 5};

TEST(mlp_layers_against_finite_differences)
{
    ignis_tensor in[1 + 2 * MOST_LAYERS];
    network n;
    int c, biased, i, count;
    SETUP(NULL);
    for (c = 0; c < COUNT_OF(layer_counts); c++) {
        for (biased = 0; biased < 3; biased++) {
            n.activation = (c + biased) % 2 ? IGNIS_ACTIVATION_RELU : IGNIS_ACTIVATION_GELU;
            n.count = layer_counts[c];
            n.biased = biased == 0 ? 0 : biased == 1 ? 0x15 : 0x1F;
            network_open(&n, IGNIS_F64, 3, 4, -1);
            count = 0;
            in[count++] = n.x;
            for (i = 0; i < n.count; i++)
                in[count++] = n.weights[i];
            for (i = 0; i < n.count; i++)
                if (n.biases[i].id)
                    in[count++] = n.biases[i];
            CHECK(ignis_gradcheck(run_network, &n, in, count, NULL) < 1e-6);
            network_close(&n);
        }
    }
    CHECK_INT(memory().live_blocks, 0);
}

static bool same_gradients(ignis_tensor a, ignis_tensor b, double tolerance)
{
    ignis_array x, y;
    if (!a.id)
        return true;
    x = ignis_tensor_grad(a), y = ignis_tensor_grad(b);
    return (x.id != 0) == (y.id != 0) && (!x.id || largest_difference(x, y) <= tolerance);
}

/*  The same as its parts, and its values as in double; only the wanted gradients are made. */
static void check_layers(ignis_dtype dtype, int64_t rows, int count, int biased, ignis_activation activation,
                         int wanted)
{
    network n[2];
    ignis_tensor y[2], g = tensor_noise(IGNIS_SHAPE(rows, layer_widths[count]), dtype, 20, false);
    int way, i;
    double *values, *reference, size = 1e-30;
    int64_t k;
    for (way = 0; way < 2; way++) {
        n[way].activation = activation;
        n[way].count = count;
        n[way].biased = biased;
        network_open(&n[way], dtype, rows, 1, wanted);
        y[way] = way ? network_in_parts(&n[way]) : network_at_once(&n[way]);
        CHECK_INT(tensor_info(y[way]).shape.dim[1], layer_widths[count]);
    }
    values = tensor_values(y[0]), reference = network_reference(&n[0]);
    for (k = 0; k < rows * layer_widths[count]; k++)
        size = fabs(reference[k]) > size ? fabs(reference[k]) : size;
    for (k = 0; k < rows * layer_widths[count]; k++)
        CHECK(fabs(values[k] - reference[k]) <= 24 * epsilon_of(dtype) * size);
    free(values), free(reference);
    CHECK_INT(tensor_info(y[0]).requires_grad, wanted != 0);
    for (way = 0; way < 2 && wanted; way++)
        CHECK_OK(ignis_backward(y[way], ignis_tensor_data(g)));
    CHECK(same_gradients(n[0].x, n[1].x, 32 * epsilon_of(dtype)));
    for (i = 0; i < count; i++) {
        CHECK(same_gradients(n[0].weights[i], n[1].weights[i], 32 * epsilon_of(dtype)));
        CHECK(same_gradients(n[0].biases[i], n[1].biases[i], 32 * epsilon_of(dtype)));
    }
    let_go(y[0]), let_go(y[1]), let_go(g);
    network_close(&n[0]), network_close(&n[1]);
}

TEST(mlp_layers_are_their_parts)
{
    int d, c, i, way;
    for (way = 0; way < 2; way++) {
        ignis_desc desc = test_desc(NULL);
        desc.matmul = both_ways[way];
        SETUP(&desc);
        for (c = 0; c < COUNT_OF(layer_counts); c++) {
            for (d = 0; d < 4; d++) {
                check_layers(float_dtypes[d], 9, layer_counts[c], 0x1F,
                             d % 2 ? IGNIS_ACTIVATION_RELU : IGNIS_ACTIVATION_GELU, -1);
                check_layers(float_dtypes[d], 7, layer_counts[c], 0,
                             d % 2 ? IGNIS_ACTIVATION_GELU : IGNIS_ACTIVATION_RELU, -1);
            }
            check_layers(IGNIS_F32, 5, layer_counts[c], 0x15, IGNIS_ACTIVATION_GELU, 0);
            check_layers(IGNIS_F32, 5, layer_counts[c], 0x1F, IGNIS_ACTIVATION_GELU, -2);    /* not of x */
            check_layers(IGNIS_F32, 5, layer_counts[c], 0x1F, IGNIS_ACTIVATION_RELU, 0x555); /* biases and x */
            check_layers(IGNIS_F32, 0, layer_counts[c], 0x1F, IGNIS_ACTIVATION_RELU, -1);
            check_layers(IGNIS_F32, 520, layer_counts[c], 0x1F, IGNIS_ACTIVATION_GELU,
                         -1); /* more than tiny products have */
        }
        for (i = 0; i < 7; i++) /* each alone */
            check_layers(IGNIS_F32, 5, 3, 7, IGNIS_ACTIVATION_RELU, 1 << i);
        CHECK_INT(memory().live_blocks, 0);
        CHECK_OK(ignis_shutdown());
    }
}

TEST(mlp_layers_of_most_and_of_no_width)
{
    ignis_tensor x, y, one[2], weights[IGNIS_MAX_LAYERS], biases[IGNIS_MAX_LAYERS], none = {0};
    ignis_array g;
    int i, empty;
    SETUP(NULL);
    for (empty = 0; empty < 2; empty++) {
        x = tensor_noise(IGNIS_SHAPE(2, 3, 4), IGNIS_F32, 1, true);
        for (i = 0; i < IGNIS_MAX_LAYERS; i++) {
            int64_t in = empty && i == 3 ? 0 : 4, out = empty && i == 2 ? 0 : 4;
            weights[i] = tensor_noise(IGNIS_SHAPE(out, in), IGNIS_F32, (uint64_t)i + 2, true);
            biases[i] = tensor_noise(IGNIS_SHAPE(out), IGNIS_F32, (uint64_t)i + 20, true);
        }
        y = ignis_mlp_layers(x, weights, biases, IGNIS_MAX_LAYERS, IGNIS_ACTIVATION_GELU);
        CHECK_SHAPE_IS(y, IGNIS_SHAPE(2, 3, 4));
        one[0] = ignis_mlp_layers(x, weights, NULL, 1, IGNIS_ACTIVATION_GELU),
        one[1] = ignis_linear(x, weights[0], none);
        CHECK(largest_difference(ignis_tensor_data(one[0]), ignis_tensor_data(one[1])) == 0);
        g = make(IGNIS_SHAPE(2, 3, 4), IGNIS_F32);
        CHECK_OK(ignis_array_fill(g, 1));
        CHECK_OK(ignis_backward(y, g));
        CHECK_SHAPE(ignis_tensor_grad(x), IGNIS_SHAPE(2, 3, 4));
        CHECK_NUMBER(grad_at(biases[IGNIS_MAX_LAYERS - 1], 3), 6);
        for (i = 0; i < IGNIS_MAX_LAYERS; i++) {
            CHECK(ignis_tensor_grad(weights[i]).id != 0);
            CHECK(ignis_tensor_grad(biases[i]).id != 0);
            let_go(weights[i]), let_go(biases[i]);
        }
        if (empty)
            CHECK_NUMBER(grad_at(x, 5), 0);
        drop(g);
        let_go(x), let_go(y), let_go(one[0]), let_go(one[1]);
    }
}

TEST(mlp_layers_refuses)
{
    ignis_tensor x, w[3], b[3], other, freed, none = {0}, weights[IGNIS_MAX_LAYERS + 1], biases[3];
    static const ignis_activation gelu = IGNIS_ACTIVATION_GELU;
    int64_t before;
    int i;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, true);
    for (i = 0; i < 3; i++) {
        w[i] = tensor_noise(IGNIS_SHAPE(4 + i, 3 + i), IGNIS_F32, (uint64_t)i + 2, true);
        b[i] = tensor_noise(IGNIS_SHAPE(4 + i), IGNIS_F32, (uint64_t)i + 5, true);
        weights[i] = w[i], biases[i] = b[i];
    }
    other = tensor_noise(IGNIS_SHAPE(5, 4), IGNIS_F64, 9, true);
    freed = tensor_noise(IGNIS_SHAPE(5, 4), IGNIS_F32, 9, true);
    let_go(freed);
    before = memory().live_blocks;
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 0, gelu).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_MESSAGE_HAS("count is 0, outside 1 to 8");
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, -1, gelu).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, IGNIS_MAX_LAYERS + 1, gelu).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_BAD_NUMBER);
    CHECK_REFUSED(0, ignis_mlp_layers(x, NULL, biases, 3, gelu).id, IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, (ignis_activation)7).id, IGNIS_ERROR_ARGUMENT,
                  IGNIS_DIAG_BAD_ENUM);
    CHECK_REFUSED(0, ignis_mlp_layers(none, weights, biases, 3, gelu).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    weights[1] = none;
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    weights[1] = freed;
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    weights[1] = other;
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    CHECK_MESSAGE_HAS("weights[1] is f64");
    weights[1] = w[2];
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("ignis_mlp_layers: weights[1] is [6, 5]; [out, 4] is needed");
    weights[1] = b[1];
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    weights[1] = w[1], weights[0] = b[0];
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("weights[0] is [4]; [out, in] is needed");
    weights[0] = w[1];
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    weights[0] = w[0], biases[2] = b[1];
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("biases[2] is [5]; [6] is needed");
    biases[2] = other;
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_DTYPE, IGNIS_DIAG_DTYPE_DIFFERS);
    biases[2] = freed;
    CHECK_REFUSED(0, ignis_mlp_layers(x, weights, biases, 3, gelu).id, IGNIS_ERROR_FREED, IGNIS_DIAG_TENSOR_FREED);
    CHECK_INT(memory().live_blocks, before);
    CHECK_INT(ignis_tape_length(), 0);
    for (i = 0; i < 3; i++)
        let_go(w[i]), let_go(b[i]);
    let_go(x), let_go(other);
}

/* --- two products in one launch ----------------------------------------------------------------------------------- */

enum { OF_LINEAR, OF_MATMUL, OF_MATMUL_T, PRODUCTS };

/*  The wanted gradients (bits) of a product's operands and bias, to be freed; null: not wanted. */
static void product_gradients(int which, ignis_dtype dtype, sizes s, int wanted, double **gradients)
{
    ignis_tensor in[3] = {{0}}, y, g = tensor_noise(IGNIS_SHAPE(s.m, s.n), dtype, 3, false);
    int i, count = which == OF_LINEAR ? 3 : 2;
    in[0] = tensor_noise(IGNIS_SHAPE(s.m, s.k), dtype, 1, wanted & 1);
    in[1] = tensor_noise(which == OF_MATMUL ? IGNIS_SHAPE(s.k, s.n) : IGNIS_SHAPE(s.n, s.k), dtype, 2, wanted & 2);
    if (which == OF_LINEAR)
        in[2] = tensor_noise(IGNIS_SHAPE(s.n), dtype, 4, wanted & 4);
    y = which == OF_LINEAR   ? ignis_linear(in[0], in[1], in[2])
        : which == OF_MATMUL ? ignis_matmul(in[0], in[1])
                             : ignis_matmul_t(in[0], in[1]);
    CHECK_OK(ignis_backward(y, ignis_tensor_data(g)));
    for (i = 0; i < count; i++) {
        gradients[i] = wanted >> i & 1 ? array_values(ignis_tensor_grad(in[i])) : NULL;
        let_go(in[i]);
    }
    let_go(y), let_go(g);
}

static bool same_bits(const double *a, const double *b, int64_t count)
{
    return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

/*  Tiny products of every type are joined; not larger ones, and ones of long k, which are split. Each gradient has the
    bits that it has alone. */
TEST(gradients_in_one_launch_have_the_bits_of_each_alone)
{
    static const sizes few[] = {{64, 128, 10}, {17, 31, 9}, {1, 7, 1}, {600, 40, 24}, {16, 3000, 16}, {700, 24, 700}};
    int way, which, d, i;
    for (way = 0; way < 2; way++) {
        ignis_desc desc = test_desc(NULL);
        desc.matmul = both_ways[way];
        SETUP(&desc);
        for (which = 0; which < PRODUCTS; which++) {
            for (d = 0; d < 4; d++) {
                for (i = 0; i < (d == 2 ? COUNT_OF(few) : 3); i++) {
                    double *both[3], *of_a[3], *of_b[3];
                    product_gradients(which, float_dtypes[d], few[i], 7, both);
                    product_gradients(which, float_dtypes[d], few[i], 1, of_a);
                    product_gradients(which, float_dtypes[d], few[i], 6, of_b);
                    CHECK(same_bits(both[0], of_a[0], few[i].m * few[i].k));
                    CHECK(same_bits(both[1], of_b[1], few[i].n * few[i].k));
                    free(both[0]), free(both[1]), free(of_a[0]), free(of_b[1]);
                    if (which == OF_LINEAR) {
                        CHECK(same_bits(both[2], of_b[2], few[i].n));
                        free(both[2]), free(of_b[2]);
                    }
                }
            }
        }
        CHECK_OK(ignis_shutdown());
    }
}

/*  By each way: cuBLASLt adds biases' gradients in its products, and may divide a long sum. */
TEST(gradients_have_the_same_bits_every_time)
{
    static const ignis_matmul_backend ways[] = {IGNIS_MATMUL_AUTO, IGNIS_MATMUL_CUBLASLT};
    static const sizes all[] = {{40, 24, 70}, {8192, 1536, 384}, {8192, 384, 1536}};
    ignis_library_info info;
    int way, d, i, again, k;
    for (way = 0; way < COUNT_OF(ways); way++) {
        ignis_desc desc = test_desc(NULL);
        desc.matmul = ways[way];
        SETUP(&desc);
        if (ways[way] == IGNIS_MATMUL_CUBLASLT && ignis_library_query(IGNIS_LIBRARY_CUBLASLT, &info) != IGNIS_OK) {
            ignis_status_clear();
            SKIP("there is no cuBLASLt");
        }
        for (d = 0; d < 4; d++)
            for (i = 0; i < (test_takes_all() ? COUNT_OF(all) : 1); i++) {
                const int64_t counts[3] = {all[i].m * all[i].k, all[i].n * all[i].k, all[i].n};
                double *first[3], *now[3];
                product_gradients(OF_LINEAR, float_dtypes[d], all[i], 7, first);
                for (again = 0; again < 4; again++) {
                    product_gradients(OF_LINEAR, float_dtypes[d], all[i], 7, now);
                    for (k = 0; k < 3; k++) {
                        CHECK(same_bits(first[k], now[k], counts[k]));
                        free(now[k]);
                    }
                }
                for (k = 0; k < 3; k++)
                    free(first[k]);
            }
        CHECK_OK(ignis_shutdown());
    }
}

TEST(gradients_of_layers_have_the_bits_of_each_alone)
{
    network n[2];
    ignis_tensor y, g;
    int d, i, way;
    SETUP(NULL);
    for (d = 0; d < 4; d++) {
        for (i = 0; i < 4; i++) { /* x, and the weights of three layers */
            ignis_array all, alone;
            g = tensor_noise(IGNIS_SHAPE(33, layer_widths[3]), float_dtypes[d], 20, false);
            for (way = 0; way < 2; way++) {
                n[way].activation = IGNIS_ACTIVATION_GELU;
                n[way].count = 3, n[way].biased = 7;
                network_open(&n[way], float_dtypes[d], 33, 1, way ? 1 << (i ? 2 * i - 1 : 0) : -1);
                y = network_at_once(&n[way]);
                CHECK_OK(ignis_backward(y, ignis_tensor_data(g)));
                let_go(y);
            }
            all = ignis_tensor_grad(i ? n[0].weights[i - 1] : n[0].x),
            alone = ignis_tensor_grad(i ? n[1].weights[i - 1] : n[1].x);
            CHECK(largest_difference(all, alone) == 0);
            network_close(&n[0]), network_close(&n[1]);
            let_go(g);
        }
    }
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

TEST(linear_refuses_a_bias_of_another_size)
{
    ignis_tensor x, w, bias;
    SETUP(NULL);
    x = tensor_noise(IGNIS_SHAPE(2, 3), IGNIS_F32, 1, true);
    w = tensor_noise(IGNIS_SHAPE(4, 3), IGNIS_F32, 2, true);
    bias = tensor_noise(IGNIS_SHAPE(3), IGNIS_F32, 3, true);
    CHECK_REFUSED(0, ignis_linear(x, w, bias).id, IGNIS_ERROR_SHAPE, IGNIS_DIAG_MATMUL_SHAPE);
    CHECK_MESSAGE_HAS("[4]");
    let_go(x), let_go(w), let_go(bias);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
