// SPDX-License-Identifier: MIT
/*  test_second_derivatives.c - ignis_grad with create_graph: every operation beside differences of first derivatives */
#include "tensor.h"

#define MOST_INPUTS 5
#define MOST_NUMBERS 256

/*  An operation of f64 inputs, and the shapes of those. inputs[i] = centre + scale * noise. */
typedef struct operation {
    const char *name;
    ignis_tensor (*fn)(const ignis_tensor *x);
    int count;
    ignis_shape shape[MOST_INPUTS];
    double centre, scale;
} operation;

/*  A smooth number of the operation's result, in which every element counts, and differently. */
static ignis_tensor number_of(const operation *op, const ignis_tensor *inputs)
{
    ignis_tensor y = op->fn(inputs), w;
    if (!y.id)
        return y;
    w = tensor_noise(shape_of(y), tensor_info(y).dtype, 77, false);
    return ignis_map_sum("w*y + 0.5*w*w*y*y", IGNIS_INPUTS(w, y));
}

/*  The number v . gradient of the operation, v noise; the gradient by the first-order path, and so by arrays. */
static double slope_along(const operation *op, double *const *values)
{
    ignis_tensor inputs[MOST_INPUTS], grads[MOST_INPUTS], y;
    ignis_scope scope = ignis_scope_begin();
    double sum = 0, *numbers;
    ignis_status status;
    int64_t k;
    int i;
    for (i = 0; i < op->count; i++)
        inputs[i] = tensor_of(values[i], op->shape[i], IGNIS_F64, true);
    y = number_of(op, inputs);
    status = ignis_grad(&y, 1, inputs, op->count, grads, NULL);
    CHECK_OK(status);
    if (status == IGNIS_OK)
        for (i = 0; i < op->count; i++) {
            numbers = tensor_values(grads[i]);
            for (k = 0; k < shape_numel(op->shape[i]); k++)
                sum += numbers[k] * noise(100 + (uint64_t)i, k);
            free(numbers);
        }
    CHECK_OK(ignis_scope_end(scope));
    return sum;
}

/*  A direction of an input: noise, or one element. */
typedef struct direction {
    uint64_t seed; /* 0: one element */
    int input;
    int64_t element;
} direction;

static double along(direction u, int input, int64_t k)
{
    return u.seed ? noise(u.seed + (uint64_t)input, k) : input == u.input && k == u.element;
}

/*  Returns whether the gradient of v . gradient along a direction is its central difference. 1e-6: the differences have
    an error of 1e-10 of the third derivative, and round to 1e-11 of values near 1. */
static bool is_slope(const operation *op, double *const *values, double *const *found, direction u, double *sum,
                     double *slope)
{
    const double h = 1e-5;
    double *moved[MOST_INPUTS], high, low;
    int64_t k;
    int i, side;
    *sum = high = low = 0;
    for (i = 0; i < op->count; i++)
        moved[i] = (double *)malloc(sizeof(double) * (size_t)(shape_numel(op->shape[i]) + 1));
    for (side = 1; side >= -1; side -= 2) {
        for (i = 0; i < op->count; i++)
            for (k = 0; k < shape_numel(op->shape[i]); k++)
                moved[i][k] = values[i][k] + side * h * along(u, i, k);
        *(side > 0 ? &high : &low) = slope_along(op, moved);
    }
    for (i = 0; i < op->count; i++) {
        for (k = 0; k < shape_numel(op->shape[i]); k++)
            *sum += (found[i] ? found[i][k] : 0) * along(u, i, k);
        free(moved[i]);
    }
    *slope = (high - low) / (2 * h);
    return is_close(*sum, *slope, 1e-6);
}

/*  Compares second derivatives along two directions, in which all elements count. If one differs, each element too. */
static void check_seconds(const operation *op, double *const *values, double *const *found)
{
    const direction all[] = {{.seed = 200}, {.seed = 300}};
    direction one = {0};
    double sum, slope;
    int i;
    for (i = 0; i < COUNT_OF(all); i++) {
        if (is_slope(op, values, found, all[i], &sum, &slope))
            continue;
        printf("    %s: direction %d\n", op->name, i);
        CHECK_CLOSE(sum, slope, 1e-6);
        for (one.input = 0; one.input < op->count; one.input++)
            for (one.element = 0; one.element < shape_numel(op->shape[one.input]); one.element++)
                if (!is_slope(op, values, found, one, &sum, &slope))
                    printf("    input %d, element %d: %.15g, not %.15g\n", one.input, (int)one.element, sum, slope);
        return;
    }
}

/*  Compares the recorded gradient with that by arrays, and its own gradient with differences. */
static void check_operation(const operation *op)
{
    ignis_tensor inputs[MOST_INPUTS], grads[MOST_INPUTS], first[MOST_INPUTS], seconds[MOST_INPUTS], v[MOST_INPUTS], y;
    ignis_grad_desc desc = {.create_graph = true}, second = {.seeds = v, .allow_unused = true};
    double *values[MOST_INPUTS], *found[MOST_INPUTS] = {NULL}, *plain, *graph;
    ignis_status status;
    int64_t k;
    int i;
    ignis_scope scope = ignis_scope_begin();
    for (i = 0; i < op->count; i++) {
        int64_t numel = shape_numel(op->shape[i]);
        values[i] = (double *)malloc(sizeof(double) * (size_t)(numel + 1));
        for (k = 0; k < numel; k++)
            values[i][k] = op->centre + op->scale * noise(10 + (uint64_t)i, k);
        inputs[i] = tensor_of(values[i], op->shape[i], IGNIS_F64, true);
        v[i] = tensor_noise(op->shape[i], IGNIS_F64, 100 + (uint64_t)i, false);
    }
    y = number_of(op, inputs);
    CHECK_OK(ignis_grad(&y, 1, inputs, op->count, grads, &desc));
    y = number_of(op, inputs);
    CHECK_OK(ignis_grad(&y, 1, inputs, op->count, first, NULL));
    for (i = 0; i < op->count && first[i].id && grads[i].id; i++) {
        plain = tensor_values(first[i]), graph = tensor_values(grads[i]);
        for (k = 0; k < shape_numel(op->shape[i]); k++)
            if (!is_close(graph[k], plain[k], 1e-11)) {
                printf("    %s: input %d, element %lld\n", op->name, i, (long long)k);
                CHECK_CLOSE(graph[k], plain[k], 1e-11);
            }
        free(plain), free(graph);
    }
    status = ignis_grad(grads, op->count, inputs, op->count, seconds, &second);
    CHECK_OK(status);
    if (status == IGNIS_OK) {
        for (i = 0; i < op->count; i++)
            found[i] = seconds[i].id ? tensor_values(seconds[i]) : NULL;
        check_seconds(op, values, found);
    }
    for (i = 0; i < op->count; i++)
        free(values[i]), free(found[i]);
    CHECK_OK(ignis_scope_end(scope));
}

static void check_operations(const operation *ops, int count)
{
    int i;
    for (i = 0; i < count; i++)
        check_operation(&ops[i]);
}

#define OPERATION(name, expression) \
    static ignis_tensor name(const ignis_tensor *x) { return expression; }

OPERATION(op_add, ignis_add(ignis_mul(x[0], x[0]), x[1]))
OPERATION(op_sub, ignis_sub(x[0], ignis_mul(x[1], x[1])))
OPERATION(op_mul, ignis_mul(x[0], x[1]))
OPERATION(op_scale, ignis_scale(x[0], 1.5))
OPERATION(op_relu, ignis_relu(x[0]))
OPERATION(op_gelu, ignis_gelu(x[0]))
OPERATION(op_gelu_exact, ignis_gelu_exact(x[0]))
OPERATION(op_silu, ignis_silu(x[0]))
OPERATION(op_silu_mul, ignis_silu_mul(x[0], x[1]))
OPERATION(op_cast, ignis_cast(ignis_cast(x[0], IGNIS_F64), IGNIS_F64))

TEST(elementwise)
{
    static const operation ops[] = {
        {"add", op_add, 2, {{2, {3, 4}}, {1, {4}}}, 0, 1},
        {"sub", op_sub, 2, {{2, {3, 4}}, {2, {3, 1}}}, 0, 1},
        {"mul", op_mul, 2, {{2, {3, 5}}, {2, {3, 5}}}, 0, 1},
        {"mul, broadcast", op_mul, 2, {{3, {2, 3, 4}}, {1, {4}}}, 0, 1},
        {"scale", op_scale, 1, {{1, {5}}}, 0, 1},
        {"relu", op_relu, 1, {{1, {7}}}, 0, 1},
        {"gelu", op_gelu, 1, {{1, {7}}}, 0, 2},
        {"gelu_exact", op_gelu_exact, 1, {{1, {7}}}, 0, 2},
        {"silu", op_silu, 1, {{1, {7}}}, 0, 2},
        {"silu_mul", op_silu_mul, 2, {{2, {2, 3}}, {2, {2, 3}}}, 0, 2},
        {"cast", op_cast, 1, {{1, {3}}}, 0, 1},
    };
    SETUP(NULL);
    check_operations(ops, COUNT_OF(ops));
}

OPERATION(op_matmul, ignis_matmul(x[0], x[1]))
OPERATION(op_matmul_t, ignis_matmul_t(x[0], x[1]))
OPERATION(op_linear, ignis_linear(x[0], x[1], x[2]))
OPERATION(op_linear_alone, ignis_linear(x[0], x[1], no_tensor()))
static ignis_tensor op_grouped_linear(const ignis_tensor *x)
{
    static const double offsets[] = {0, 2, 2, 5};
    return ignis_grouped_linear(x[0], x[1], tensor_of(offsets, IGNIS_SHAPE(4), IGNIS_I64, false));
}

OPERATION(op_mlp, ignis_mlp(x[0], x[1], x[2], x[3], no_tensor(), IGNIS_ACTIVATION_GELU))
OPERATION(op_mlp_relu, ignis_mlp(x[0], x[1], no_tensor(), x[2], x[3], IGNIS_ACTIVATION_RELU))
OPERATION(op_mlp_gated, ignis_mlp_gated(x[0], x[1], x[2], x[3]))

TEST(products)
{
    static const operation ops[] = {
        {"matmul", op_matmul, 2, {{2, {3, 4}}, {2, {4, 2}}}, 0, 1},
        {"matmul, one b", op_matmul, 2, {{3, {2, 3, 4}}, {2, {4, 2}}}, 0, 1},
        {"matmul, batch", op_matmul, 2, {{3, {2, 3, 4}}, {3, {2, 4, 2}}}, 0, 1},
        {"matmul, broadcast", op_matmul, 2, {{2, {3, 4}}, {3, {2, 4, 2}}}, 0, 1},
        {"matmul_t", op_matmul_t, 2, {{2, {3, 4}}, {2, {2, 4}}}, 0, 1},
        {"matmul_t, batch", op_matmul_t, 2, {{3, {2, 3, 4}}, {3, {2, 2, 4}}}, 0, 1},
        {"linear", op_linear, 3, {{3, {2, 2, 3}}, {2, {2, 3}}, {1, {2}}}, 0, 1},
        {"linear, no bias", op_linear_alone, 2, {{2, {4, 3}}, {2, {2, 3}}}, 0, 1},
        {"grouped_linear", op_grouped_linear, 2, {{2, {6, 3}}, {3, {3, 2, 3}}}, 0, 1},
        {"mlp", op_mlp, 4, {{2, {3, 2}}, {2, {4, 2}}, {1, {4}}, {2, {2, 4}}}, 0, 1},
        {"mlp, relu", op_mlp_relu, 4, {{2, {3, 2}}, {2, {4, 2}}, {2, {2, 4}}, {1, {2}}}, 0, 1},
        {"mlp_gated", op_mlp_gated, 4, {{2, {3, 2}}, {2, {3, 2}}, {2, {3, 2}}, {2, {2, 3}}}, 0, 1},
    };
    SETUP(NULL);
    check_operations(ops, COUNT_OF(ops));
}

static ignis_tensor op_rfft(const ignis_tensor *x)
{
    const ignis_fft_desc desc = {.ndim = 2, .lengths = {4, 7}, .norm = IGNIS_FFT_ORTHO};
    return ignis_rfft(x[0], &desc);
}

static ignis_tensor op_irfft(const ignis_tensor *x)
{
    const ignis_fft_desc desc = {.ndim = 1, .lengths = {6}};
    return ignis_irfft(x[0], &desc);
}

OPERATION(op_fft, ignis_fft(x[0], NULL))
OPERATION(op_ifft, ignis_ifft(x[0], NULL))
OPERATION(op_complex_mul, ignis_complex_mul(x[0], x[1], false))
OPERATION(op_complex_mul_conjugates, ignis_complex_mul(x[0], x[1], true))
OPERATION(op_fft_conv, ignis_fft_conv(x[0], x[1], 1))
OPERATION(op_einsum, ignis_einsum("iij,jk,kl->li", x, 3))
OPERATION(op_einsum_dot, ignis_einsum("bi,bi->b", x, 2))

TEST(transforms_and_einsum)
{
    static const operation ops[] = {
        {"fft", op_fft, 1, {{3, {2, 5, 2}}}, 0, 1},
        {"ifft", op_ifft, 1, {{3, {2, 6, 2}}}, 0, 1},
        {"rfft", op_rfft, 1, {{3, {2, 3, 6}}}, 0, 1},
        {"irfft", op_irfft, 1, {{3, {2, 5, 2}}}, 0, 1},
        {"complex_mul", op_complex_mul, 2, {{3, {2, 3, 2}}, {2, {3, 2}}}, 0, 1},
        {"complex_mul, conjugates", op_complex_mul_conjugates, 2, {{2, {3, 2}}, {2, {3, 2}}}, 0, 1},
        {"fft_conv", op_fft_conv, 2, {{2, {2, 5}}, {1, {3}}}, 0, 1},
        {"einsum", op_einsum, 3, {{3, {2, 2, 3}}, {2, {3, 2}}, {2, {2, 3}}}, 0, 1},
        {"einsum, dot", op_einsum_dot, 2, {{2, {2, 3}}, {2, {2, 3}}}, 0, 1},
    };
    SETUP(NULL);
    check_operations(ops, COUNT_OF(ops));
}

static ignis_tensor op_split(const ignis_tensor *x)
{
    ignis_tensor parts[3];
    const int64_t sizes[] = {1, 3, 2};
    CHECK_OK(ignis_split(x[0], 1, 3, sizes, parts));
    return ignis_map("a*b", IGNIS_INPUTS(IGNIS_NAMED(a, parts[0]), IGNIS_NAMED(b, parts[1])));
}

static ignis_tensor op_permute(const ignis_tensor *x)
{
    const int dims[] = {2, 0, 1};
    return ignis_permute(x[0], dims, 3);
}

static ignis_tensor op_flip(const ignis_tensor *x)
{
    const int dims[] = {0, 2};
    return ignis_flip(x[0], dims, 2);
}

static ignis_tensor op_pad(const ignis_tensor *x)
{
    const int64_t before[] = {1, 0}, after[] = {0, 2};
    return ignis_pad(x[0], before, after, 2, 0.5);
}

OPERATION(op_sum, ignis_sum(x[0]))
OPERATION(op_mean, ignis_mean(x[0]))
OPERATION(op_sum_dim, ignis_sum_dim(x[0], 1))
OPERATION(op_mean_dim, ignis_mean_dim(x[0], -1))
OPERATION(op_cumsum, ignis_cumsum(x[0], 1))
OPERATION(op_reshape, ignis_reshape(x[0], IGNIS_SHAPE(3, -1)))
OPERATION(op_slice, ignis_slice(x[0], 1, 1, 2))
OPERATION(op_slice_step, ignis_slice_step(x[0], 1, 3, 2, -2))
OPERATION(op_concat, ignis_concat(x, 2, 1))
OPERATION(op_stack, ignis_stack(x, 2, 1))
OPERATION(op_transpose, ignis_transpose(x[0], 0, 2))
OPERATION(op_expand, ignis_expand(x[0], IGNIS_SHAPE(2, 3, 4)))
OPERATION(op_tril, ignis_tril(x[0], 0))
OPERATION(op_triu, ignis_triu(x[0], 1))

TEST(shapes_and_sums)
{
    static const operation ops[] = {
        {"sum", op_sum, 1, {{2, {3, 4}}}, 0, 1},
        {"mean", op_mean, 1, {{2, {3, 4}}}, 0, 1},
        {"sum_dim", op_sum_dim, 1, {{3, {2, 3, 2}}}, 0, 1},
        {"mean_dim", op_mean_dim, 1, {{3, {2, 3, 2}}}, 0, 1},
        {"cumsum", op_cumsum, 1, {{3, {2, 3, 2}}}, 0, 1},
        {"reshape", op_reshape, 1, {{2, {4, 3}}}, 0, 1},
        {"split", op_split, 1, {{2, {2, 6}}}, 0, 1},
        {"slice", op_slice, 1, {{3, {2, 4, 2}}}, 0, 1},
        {"slice_step", op_slice_step, 1, {{3, {2, 4, 2}}}, 0, 1},
        {"concat", op_concat, 2, {{3, {2, 1, 2}}, {3, {2, 3, 2}}}, 0, 1},
        {"stack", op_stack, 2, {{2, {2, 3}}, {2, {2, 3}}}, 0, 1},
        {"transpose", op_transpose, 1, {{3, {2, 3, 4}}}, 0, 1},
        {"permute", op_permute, 1, {{3, {2, 3, 4}}}, 0, 1},
        {"flip", op_flip, 1, {{3, {2, 3, 2}}}, 0, 1},
        {"pad", op_pad, 1, {{2, {2, 3}}}, 0, 1},
        {"expand", op_expand, 1, {{2, {3, 1}}}, 0, 1},
        {"tril", op_tril, 1, {{2, {3, 4}}}, 0, 1},
        {"triu", op_triu, 1, {{2, {3, 4}}}, 0, 1},
    };
    SETUP(NULL);
    check_operations(ops, COUNT_OF(ops));
}

static ignis_tensor indices(const double *values, ignis_shape shape)
{
    return tensor_of(values, shape, IGNIS_I64, false);
}

static const double some_indices[] = {2, 0, 1, 1, 3, 0, 2, 2};

/*  Several elements for one place, and places outside. */
static const double some_places[] = {2, 0, 1, 2, 3, -1, 2, 4, 1, 0, 0, 1};

static ignis_tensor put(const ignis_tensor *x, bool accumulate)
{
    const double rows[] = {0, 1, 0, 1, 7}, columns[] = {2, 1, 2, 0, 1};
    ignis_tensor ids[2];
    ids[0] = indices(rows, IGNIS_SHAPE(5));
    ids[1] = indices(columns, IGNIS_SHAPE(5));
    return ignis_index_put(x[0], ids, 2, x[1], accumulate);
}

OPERATION(op_gather, ignis_gather(x[0], 0, indices(some_indices, IGNIS_SHAPE(2, 3))))
OPERATION(op_index_select, ignis_index_select(x[0], 1, indices(some_indices, IGNIS_SHAPE(5))))
OPERATION(op_scatter_add, ignis_scatter_add(x[0], 0, indices(some_indices, IGNIS_SHAPE(2, 3)), x[1]))
OPERATION(op_scatter, ignis_scatter(x[0], 0, indices(some_places, IGNIS_SHAPE(4, 3)), x[1]))
OPERATION(op_scatter_add_outside, ignis_scatter_add(x[0], 0, indices(some_places, IGNIS_SHAPE(4, 3)), x[1]))
OPERATION(op_index_put, put(x, false))
OPERATION(op_index_add, put(x, true))
OPERATION(op_masked_select, ignis_masked_select(x[0], indices(some_indices, IGNIS_SHAPE(2, 4))))
OPERATION(op_embedding, ignis_embedding(x[0], indices(some_indices, IGNIS_SHAPE(2, 4))))
OPERATION(op_sort, ignis_sort(x[0], 1, true, NULL))
OPERATION(op_topk, ignis_topk(x[0], 2, 0, true, NULL))
OPERATION(op_softmax, ignis_softmax(x[0]))
OPERATION(op_log_softmax, ignis_log_softmax(x[0]))

static ignis_tensor op_rope(const ignis_tensor *x)
{
    ignis_rope_desc desc = {.num_heads = 2, .pos_offset = 3};
    return ignis_rope(x[0], &desc);
}

static ignis_tensor op_dropout(const ignis_tensor *x)
{
    ignis_seed(9);
    return ignis_dropout(x[0], 0.4);
}

TEST(indices_and_rows)
{
    static const operation ops[] = {
        {"gather", op_gather, 1, {{2, {4, 3}}}, 0, 1},
        {"index_select", op_index_select, 1, {{3, {2, 4, 2}}}, 0, 1},
        {"scatter_add", op_scatter_add, 2, {{2, {4, 3}}, {2, {2, 3}}}, 0, 1},
        {"scatter_add, outside", op_scatter_add_outside, 2, {{2, {4, 3}}, {2, {4, 3}}}, 0, 1},
        {"scatter", op_scatter, 2, {{2, {4, 3}}, {2, {4, 3}}}, 0, 1},
        {"index_put", op_index_put, 2, {{3, {2, 3, 2}}, {2, {5, 2}}}, 0, 1},
        {"index_put, added", op_index_add, 2, {{3, {2, 3, 2}}, {2, {5, 2}}}, 0, 1},
        {"masked_select", op_masked_select, 1, {{2, {2, 4}}}, 0, 1},
        {"embedding", op_embedding, 1, {{2, {4, 3}}}, 0, 1},
        {"sort", op_sort, 1, {{2, {2, 5}}}, 0, 1},
        {"topk", op_topk, 1, {{2, {5, 2}}}, 0, 1},
        {"softmax", op_softmax, 1, {{2, {2, 5}}}, 0, 2},
        {"log_softmax", op_log_softmax, 1, {{2, {2, 5}}}, 0, 2},
        {"rope", op_rope, 1, {{2, {3, 8}}}, 0, 1},
        {"dropout", op_dropout, 1, {{2, {3, 5}}}, 0, 1},
    };
    SETUP(NULL);
    check_operations(ops, COUNT_OF(ops));
}

OPERATION(op_layer_norm, ignis_layer_norm(x[0], x[1], x[2], 0.1))
OPERATION(op_rms_norm, ignis_rms_norm(x[0], x[1], 0))
OPERATION(op_group_norm, ignis_group_norm(x[0], 2, x[1], x[2], 0.05))
OPERATION(op_batch_norm, ignis_batch_norm(x[0], x[1], x[2], NULL))

static ignis_tensor op_add_layer_norm(const ignis_tensor *x)
{
    ignis_tensor sum, norm = ignis_add_layer_norm(x[0], x[1], x[2], x[3], 0.1, &sum);
    return ignis_mul(norm, sum);
}

static ignis_array running[2];

static ignis_tensor op_batch_norm_eval(const ignis_tensor *x)
{
    ignis_batch_norm_desc desc = {.running_mean = running[0], .running_var = running[1], .eval = true};
    return ignis_batch_norm(x[0], x[1], x[2], &desc);
}

TEST(norms)
{
    static const operation ops[] = {
        {"layer_norm", op_layer_norm, 3, {{2, {3, 5}}, {1, {5}}, {1, {5}}}, 0, 1},
        {"rms_norm", op_rms_norm, 2, {{2, {3, 5}}, {1, {5}}}, 0, 1},
        {"add_layer_norm", op_add_layer_norm, 4, {{2, {2, 4}}, {2, {2, 4}}, {1, {4}}, {1, {4}}}, 0, 1},
        {"group_norm", op_group_norm, 3, {{3, {2, 3, 4}}, {1, {4}}, {1, {4}}}, 0, 1},
        {"batch_norm", op_batch_norm, 3, {{3, {2, 3, 2}}, {1, {2}}, {1, {2}}}, 0, 1},
        {"batch_norm, eval", op_batch_norm_eval, 3, {{2, {3, 2}}, {1, {2}}, {1, {2}}}, 0, 1},
    };
    int i;
    SETUP(NULL);
    for (i = 0; i < 2; i++) {
        running[i] = make(IGNIS_SHAPE(2), IGNIS_F64);
        CHECK_OK(ignis_array_fill(running[i], 0.7));
    }
    check_operations(ops, COUNT_OF(ops));
    drop(running[0]), drop(running[1]);
}

static ignis_cross_entropy_desc entropy_desc;
static const double some_targets[] = {2, 0, -100, 3};

OPERATION(op_cross_entropy, ignis_cross_entropy(x[0], indices(some_targets, IGNIS_SHAPE(4)), &entropy_desc))
OPERATION(op_linear_cross_entropy,
          ignis_linear_cross_entropy(x[0], x[1], indices(some_targets, IGNIS_SHAPE(4)), &entropy_desc))
OPERATION(op_nll, ignis_nll_loss(ignis_log_softmax(x[0]), indices(some_targets, IGNIS_SHAPE(4)), NULL))
OPERATION(op_mse, ignis_mse_loss(x[0], x[1], IGNIS_REDUCTION_MEAN))
OPERATION(op_l1, ignis_l1_loss(ignis_mul(x[0], x[0]), x[1], IGNIS_REDUCTION_SUM))
OPERATION(op_huber, ignis_huber_loss(x[0], x[1], 0.5, IGNIS_REDUCTION_NONE))
OPERATION(op_bce, ignis_bce_with_logits(x[0], ignis_map("sigmoid(t)", IGNIS_INPUTS(IGNIS_NAMED(t, x[1]))), NULL))
OPERATION(op_kl, ignis_kl_div(ignis_log_softmax(x[0]), ignis_softmax(x[1]), false, IGNIS_REDUCTION_MEAN))
OPERATION(op_cosine, ignis_cosine_similarity(x[0], x[1]))

TEST(losses)
{
    static const operation ops[] = {
        {"nll", op_nll, 1, {{2, {4, 5}}}, 0, 1},
        {"mse", op_mse, 2, {{2, {2, 3}}, {2, {2, 3}}}, 0, 1},
        {"l1", op_l1, 2, {{2, {2, 3}}, {2, {2, 3}}}, 0, 1},
        {"huber", op_huber, 2, {{2, {2, 3}}, {2, {2, 3}}}, 0, 1},
        {"bce", op_bce, 2, {{2, {2, 3}}, {2, {2, 3}}}, 0, 1},
        {"kl_div", op_kl, 2, {{2, {2, 3}}, {2, {2, 3}}}, 0, 1},
        {"cosine", op_cosine, 2, {{2, {2, 3}}, {2, {2, 3}}}, 0.5, 1},
    };
    static const operation linear = {
        "linear_cross_entropy", op_linear_cross_entropy, 2, {{3, {2, 2, 3}}, {2, {5, 3}}}, 0, 1};
    operation entropy = {"cross_entropy", op_cross_entropy, 1, {{2, {4, 5}}}, 0, 1};
    int way;
    SETUP(NULL);
    check_operations(ops, COUNT_OF(ops));
    memset(&entropy_desc, 0, sizeof entropy_desc);
    check_operation(&linear);
    entropy_desc.chunk = 3, entropy_desc.classes = 4, entropy_desc.reduction = IGNIS_REDUCTION_SUM;
    check_operation(&linear);
    for (way = 0; way < 6; way++) {
        char name[40];
        snprintf(name, sizeof name, "cross_entropy, way %d", way);
        memset(&entropy_desc, 0, sizeof entropy_desc);
        entropy_desc.reduction = way % 3 == 2 ? IGNIS_REDUCTION_NONE : (ignis_reduction)(way % 3);
        entropy_desc.label_smoothing = way < 3 ? 0 : 0.2;
        entropy_desc.classes = way == 1 || way == 4 ? 4 : 0; /* the last column is padding */
        entropy.name = name;
        check_operation(&entropy);
    }
}

/*  The loss keeps other arrays for f16, and p - 1 rounded for bf16: the curvature p (1 - p) within their rounding. */
TEST(cross_entropy_in_other_dtypes)
{
    const double zeros[] = {0, 0, 0, 0}, target[] = {1};
    ignis_grad_desc desc = {.create_graph = true};
    int i, k;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(float_dtypes); k++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor x = tensor_of(zeros, IGNIS_SHAPE(1, 4), float_dtypes[k], true), y, g;
        y = ignis_cross_entropy(x, indices(target, IGNIS_SHAPE(1)), NULL);
        CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, &desc));
        y = ignis_sum(ignis_slice(g, 1, 0, 1));
        CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, NULL));
        for (i = 0; i < 4; i++)
            CHECK_CLOSE(value_at(g, i), i == 0 ? 0.25 * 0.75 : -0.25 * 0.25,
                        float_dtypes[k] == IGNIS_BF16 ? 4e-3 : 1e-3);
        CHECK_OK(ignis_scope_end(scope));
    }
}

static ignis_conv_desc conv_desc;
static const ignis_conv_transpose_desc transpose_desc = {.stride = {2, 1, 2}, .padding = {1, 0, 1}};

OPERATION(op_conv1d, ignis_conv1d(x[0], x[1], x[2], &conv_desc))
OPERATION(op_conv2d, ignis_conv2d(x[0], x[1], x[2], &conv_desc))
OPERATION(op_conv3d, ignis_conv3d(x[0], x[1], x[2], &conv_desc))
OPERATION(op_conv_transpose1d, ignis_conv_transpose1d(x[0], x[1], x[2], NULL))
OPERATION(op_conv_transpose2d, ignis_conv_transpose2d(x[0], x[1], x[2], &transpose_desc))
OPERATION(op_conv_transpose3d, ignis_conv_transpose3d(x[0], x[1], x[2], &transpose_desc))
OPERATION(op_conv2d_alone, ignis_conv2d(x[0], x[1], no_tensor(), &conv_desc))

TEST(convolutions)
{
    static const operation ops[] = {
        {"conv1d", op_conv1d, 3, {{3, {2, 5, 2}}, {3, {3, 3, 2}}, {1, {3}}}, 0, 1},
        {"conv2d", op_conv2d, 3, {{4, {1, 4, 5, 2}}, {4, {3, 3, 2, 2}}, {1, {3}}}, 0, 1},
        {"conv2d, 1x1", op_conv2d, 3, {{4, {1, 2, 3, 2}}, {4, {3, 1, 1, 2}}, {1, {3}}}, 0, 1},
        {"conv3d", op_conv3d, 3, {{5, {1, 2, 3, 3, 2}}, {5, {2, 2, 2, 2, 2}}, {1, {2}}}, 0, 1},
        {"conv_transpose1d", op_conv_transpose1d, 3, {{3, {2, 3, 2}}, {3, {2, 2, 3}}, {1, {3}}}, 0, 1},
        {"conv_transpose2d", op_conv_transpose2d, 3, {{4, {1, 3, 2, 2}}, {4, {2, 3, 2, 2}}, {1, {2}}}, 0, 1},
        {"conv_transpose3d", op_conv_transpose3d, 3, {{5, {1, 2, 2, 2, 2}}, {5, {2, 2, 1, 2, 2}}, {1, {2}}}, 0, 1},
    };
    static const operation grouped = {
        "conv2d, groups", op_conv2d_alone, 2, {{4, {1, 4, 4, 4}}, {4, {2, 2, 2, 2}}}, 0, 1};
    static const operation depthwise = {
        "conv2d, depthwise", op_conv2d_alone, 2, {{4, {1, 4, 4, 2}}, {4, {2, 3, 3, 1}}}, 0, 1};
    SETUP(NULL);
    memset(&conv_desc, 0, sizeof conv_desc);
    check_operations(ops, COUNT_OF(ops));
    conv_desc.stride[0] = 2, conv_desc.padding[0] = conv_desc.padding[1] = 1, conv_desc.dilation[1] = 2;
    check_operation(&ops[1]);
    conv_desc.groups = 2;
    check_operation(&grouped);
    check_operation(&depthwise);
}

static const ignis_unfold_desc unfold_desc = {{2, 2}, {1, 2}, {1, 0}, {1, 1}};
static const int64_t fold_size[] = {3, 4}, pad_before[] = {0, 1, 2, 0}, pad_after[] = {0, 0, 1, 0};

OPERATION(op_unfold, ignis_unfold(x[0], &unfold_desc))
OPERATION(op_fold, ignis_fold(x[0], fold_size, 2, &unfold_desc))
OPERATION(op_pad_reflect, ignis_pad_reflect(x[0], pad_before, pad_after, 4))
OPERATION(op_pad_replicate, ignis_pad_replicate(x[0], pad_before, pad_after, 4))
OPERATION(op_pad_circular, ignis_pad_circular(x[0], pad_before, pad_after, 4))

TEST(patches)
{
    static const operation ops[] = {
        {"unfold", op_unfold, 1, {{4, {1, 3, 4, 2}}}, 0, 1},
        {"fold", op_fold, 1, {{3, {1, 8, 8}}}, 0, 1},
        {"pad_reflect", op_pad_reflect, 1, {{4, {1, 3, 3, 2}}}, 0, 1},
        {"pad_replicate", op_pad_replicate, 1, {{4, {1, 3, 3, 2}}}, 0, 1},
        {"pad_circular", op_pad_circular, 1, {{4, {1, 3, 3, 2}}}, 0, 1},
    };
    SETUP(NULL);
    check_operations(ops, COUNT_OF(ops));
}

static ignis_grid_sample_desc sample_desc;

OPERATION(op_grid_sample, ignis_grid_sample(x[0], x[1], &sample_desc))
OPERATION(op_grid_sample_nearest, ignis_grid_sample(x[0], ignis_detach(x[0]), &sample_desc))

TEST(grid_sample)
{
    static const operation ops[] = {
        {"grid_sample", op_grid_sample, 2, {{4, {1, 3, 4, 2}}, {4, {1, 2, 3, 2}}}, 0, 1},
        {"grid_sample of volumes", op_grid_sample, 2, {{5, {1, 2, 3, 2, 1}}, {5, {1, 1, 2, 1, 3}}}, 0, 1},
    };
    static const operation nearest = {"grid_sample, nearest", op_grid_sample_nearest, 1, {{4, {1, 3, 2, 2}}}, 0, 1};
    int padding;
    SETUP(NULL);
    for (padding = 0; padding < IGNIS_GRID_COUNT; padding++) {
        memset(&sample_desc, 0, sizeof sample_desc);
        sample_desc.padding = (ignis_grid_padding)padding;
        sample_desc.align_corners = padding == 1;
        check_operations(ops, padding == 0 ? 2 : 1);
    }
    sample_desc.nearest = true;
    check_operation(&nearest);
}

static ignis_pool_desc pool_desc;
static ignis_upsample_desc upsample_desc;

OPERATION(op_max_pool, ignis_max_pool(x[0], &pool_desc))
OPERATION(op_avg_pool, ignis_avg_pool(x[0], &pool_desc))
OPERATION(op_upsample, ignis_upsample(x[0], &upsample_desc))

TEST(images)
{
    static const operation pools[] = {
        {"max_pool", op_max_pool, 1, {{4, {2, 5, 4, 2}}}, 0, 1},
        {"avg_pool", op_avg_pool, 1, {{4, {2, 5, 4, 2}}}, 0, 1},
    };
    static const operation signals[] = {
        {"max_pool of a signal", op_max_pool, 1, {{3, {2, 7, 2}}}, 0, 1},
        {"avg_pool of a signal", op_avg_pool, 1, {{3, {2, 7, 2}}}, 0, 1},
    };
    static const operation upsample = {"upsample", op_upsample, 1, {{4, {1, 2, 3, 2}}}, 0, 1};
    SETUP(NULL);
    memset(&pool_desc, 0, sizeof pool_desc);
    pool_desc.window[0] = 3, pool_desc.stride[0] = 2, pool_desc.padding[0] = 1;
    check_operations(signals, COUNT_OF(signals));
    pool_desc.window[1] = 2, pool_desc.stride[1] = 1, pool_desc.padding[1] = 1;
    check_operations(pools, COUNT_OF(pools));
    memset(&upsample_desc, 0, sizeof upsample_desc);
    upsample_desc.size[0] = 5, upsample_desc.size[1] = 4;
    check_operation(&upsample);
    upsample_desc.mode = IGNIS_UPSAMPLE_LINEAR;
    check_operation(&upsample);
}

static ignis_sdpa_desc sdpa_desc;

OPERATION(op_sdpa, ignis_sdpa(x[0], x[1], x[2], &sdpa_desc))
OPERATION(op_sdpa_packed, ignis_sdpa_packed(x[0], &sdpa_desc, NULL))

static ignis_array own_frequencies;

static ignis_tensor op_sdpa_packed_rope(const ignis_tensor *x)
{
    ignis_rope_desc rope = {.pos_offset = 2, .inv_freq_array = own_frequencies};
    return ignis_sdpa_packed(x[0], &sdpa_desc, &rope);
}

static ignis_tensor op_sdpa_bias(const ignis_tensor *x)
{
    ignis_sdpa_desc desc = sdpa_desc;
    desc.bias = x[3];
    return ignis_sdpa(x[0], x[1], x[2], &desc);
}

static ignis_tensor op_sdpa_sinks(const ignis_tensor *x)
{
    ignis_sdpa_desc desc = sdpa_desc;
    desc.bias = x[3];
    desc.sinks = x[4];
    return ignis_sdpa(x[0], x[1], x[2], &desc);
}

static ignis_tensor op_sdpa_packed_sinks(const ignis_tensor *x)
{
    const double offsets[] = {0, 1, 4};
    ignis_sdpa_desc desc = sdpa_desc;
    ignis_rope_desc rope = {.pos_offset = 1};
    desc.sinks = x[1];
    desc.offsets = tensor_of(offsets, IGNIS_SHAPE(3), IGNIS_I64, false);
    return ignis_sdpa_packed(x[0], &desc, &rope);
}

static ignis_tensor op_sdpa_lengths(const ignis_tensor *x)
{
    const double lengths[] = {2, 4};
    ignis_sdpa_desc desc = sdpa_desc;
    desc.lengths = tensor_of(lengths, IGNIS_SHAPE(2), IGNIS_I32, false);
    return ignis_sdpa(x[0], x[1], x[2], &desc);
}

static ignis_tensor op_sdpa_segments(const ignis_tensor *x)
{
    const double ids[] = {4, 4, -1, 0, 0, 1, 1, 1, 1, 1};
    ignis_sdpa_desc desc = sdpa_desc;
    desc.segments = tensor_of(ids, IGNIS_SHAPE(2, 5), IGNIS_I32, false);
    return ignis_sdpa(x[0], x[1], x[2], &desc);
}

static ignis_tensor op_sdpa_packed_offsets(const ignis_tensor *x)
{
    const double offsets[] = {0, 1, 4};
    ignis_sdpa_desc desc = sdpa_desc;
    ignis_rope_desc rope = {.pos_offset = 1};
    desc.offsets = tensor_of(offsets, IGNIS_SHAPE(3), IGNIS_I64, false);
    return ignis_sdpa_packed(x[0], &desc, &rope);
}

TEST(attention)
{
    static const operation plain = {"sdpa", op_sdpa, 3, {{2, {3, 8}}, {2, {4, 8}}, {2, {4, 8}}}, 0, 1};
    static const operation grouped = {
        "sdpa, groups", op_sdpa, 3, {{3, {2, 3, 8}}, {3, {2, 3, 4}}, {3, {2, 3, 4}}}, 0, 1};
    static const operation bias = {
        "sdpa, bias", op_sdpa_bias, 4, {{2, {3, 4}}, {2, {3, 4}}, {2, {3, 4}}, {4, {1, 2, 1, 3}}}, 0, 1};
    static const operation sinks = {
        "sdpa, sinks", op_sdpa_sinks, 5, {{2, {3, 4}}, {2, {3, 4}}, {2, {3, 4}}, {2, {3, 3}}, {1, {2}}}, 0, 1};
    static const operation packed_sinks = {
        "sdpa_packed, rope, offsets, sinks", op_sdpa_packed_sinks, 2, {{2, {4, 12}}, {1, {2}}}, 0, 1};
    static const operation lengths = {
        "sdpa, lengths", op_sdpa_lengths, 3, {{3, {2, 3, 4}}, {3, {2, 4, 4}}, {3, {2, 4, 4}}}, 0, 1};
    static const operation segments = {
        "sdpa, segments", op_sdpa_segments, 3, {{3, {2, 5, 4}}, {3, {2, 5, 4}}, {3, {2, 5, 4}}}, 0, 1};
    static const operation offsets = {"sdpa_packed, rope, offsets", op_sdpa_packed_offsets, 1, {{2, {4, 12}}}, 0, 1};
    static const operation packed = {"sdpa_packed", op_sdpa_packed, 1, {{3, {2, 3, 12}}}, 0, 1};
    static const operation rotated = {"sdpa_packed, rope", op_sdpa_packed_rope, 1, {{3, {1, 3, 12}}}, 0, 1};
    SETUP(NULL);
    memset(&sdpa_desc, 0, sizeof sdpa_desc);
    sdpa_desc.num_heads = 2;
    check_operation(&plain);
    check_operation(&bias);
    check_operation(&packed);
    check_operation(&rotated);
    own_frequencies = make(IGNIS_SHAPE(1), IGNIS_F64);
    CHECK_OK(ignis_array_fill(own_frequencies, 0.3));
    check_operation(&rotated);
    drop(own_frequencies);
    check_operation(&segments);
    check_operation(&offsets);
    check_operation(&sinks);
    check_operation(&packed_sinks);
    sdpa_desc.mask = IGNIS_MASK_NONE;
    sdpa_desc.scale = 0.9;
    check_operation(&plain);
    check_operation(&lengths);
    sdpa_desc.softcap = 1.5;
    sdpa_desc.window = 2;
    check_operation(&plain);
    sdpa_desc.num_heads = 4, sdpa_desc.num_kv_heads = 2;
    check_operation(&grouped);
}

OPERATION(op_cummax, ignis_cummax(x[0], 1, NULL))
OPERATION(op_cumprod, ignis_cumprod(x[0], 1))
OPERATION(op_logcumsumexp, ignis_logcumsumexp(x[0], 1))

/*  As x where check_operation begins, with zeros in the places of a formula's condition. */
static ignis_tensor some_zeros(const char *formula, ignis_tensor x)
{
    return ignis_map(formula, IGNIS_INPUTS(x, IGNIS_NAMED(z, tensor_noise(shape_of(x), IGNIS_F64, 10, false))));
}

OPERATION(op_cumprod_zeros, ignis_cumprod(some_zeros("index(1) % 3 == 1 ? x - z : x", x[0]), 1))
OPERATION(op_prod_zeros,
          ignis_map_reduce(IGNIS_REDUCE_PROD, "x",
                           IGNIS_INPUTS(IGNIS_NAMED(x, some_zeros("index(0) < 2 ? x - z : x", x[0]))), NULL))

TEST(scans)
{
    static const operation ops[] = {
        {"cummax", op_cummax, 1, {{2, {2, 5}}}, 0, 1},
        {"cumprod", op_cumprod, 1, {{2, {2, 5}}}, 0, 1},
        {"cumprod of columns", op_cumprod, 1, {{3, {2, 4, 2}}}, 0, 1},
        {"cumprod of one", op_cumprod, 1, {{2, {3, 1}}}, 0, 1},
        {"cumprod, zeros", op_cumprod_zeros, 1, {{2, {2, 7}}}, 0, 1},
        {"prod, zeros", op_prod_zeros, 1, {{1, {5}}}, 0, 1},
        {"logcumsumexp", op_logcumsumexp, 1, {{2, {2, 5}}}, 0, 2},
        {"logcumsumexp of columns", op_logcumsumexp, 1, {{3, {2, 4, 2}}}, 0, 2},
    };
    SETUP(NULL);
    check_operations(ops, COUNT_OF(ops));
}

/*  The number of all orders: d^3 (a b c) / da db dc is 1, also at zeros, where a quotient would be NaN. */
TEST(third_derivative_of_products)
{
    const double values[] = {0, 3, 0};
    ignis_grad_desc desc = {.create_graph = true};
    ignis_tensor x, y;
    ignis_scope scope;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_of(values, IGNIS_SHAPE(3), IGNIS_F64, true);
    y = ignis_slice(ignis_cumprod(x, 0), 0, 2, 1);
    for (i = 0; i < 3; i++) {
        CHECK_OK(ignis_grad(&y, 1, &x, 1, &y, &desc));
        y = ignis_slice(y, 0, i, 1);
    }
    CHECK_NUMBER(value_at(y, 0), 1);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Beside infinities, and where exp(x) or its quotients overflow. y = log(e^x0 + e^x1) at 0 and 1000: curvature 0. */
TEST(logcumsumexp_at_extremes)
{
    const double values[] = {(double)-INFINITY, 0, 1000, -1000, (double)-INFINITY, 1000};
    const double gradients[] = {0, 1, 3.5, 0, 0, 0.5};
    ignis_grad_desc desc = {.create_graph = true};
    ignis_tensor x, y, g;
    ignis_scope scope;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_of(values, IGNIS_SHAPE(6), IGNIS_F64, true);
    y = ignis_sum(ignis_slice(ignis_logcumsumexp(x, 0), 0, 1, 5));
    CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, &desc));
    for (i = 0; i < 6; i++)
        CHECK_CLOSE(value_at(g, i), gradients[i], 1e-12);
    y = ignis_sum(ignis_mul(g, g));
    CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, NULL));
    for (i = 0; i < 6; i++) /* d/dx of (3 + p)^2 + (1 - p)^2, p = 1/2, dp = 1/4: 2 (3.5 - 0.5)/4 */
        CHECK_CLOSE(value_at(g, i), i == 2 ? 1.5 : i == 5 ? -1.5 : 0, 1e-12);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Formulas of one function each: y = formula(a, b), and what is chosen by conditions. */
static const char *formula_text;

static ignis_tensor op_formula(const ignis_tensor *x)
{
    return ignis_map(formula_text, IGNIS_INPUTS(IGNIS_NAMED(a, x[0]), IGNIS_NAMED(b, x[1])));
}

TEST(formulas)
{
    static const struct {
        const char *text;
        double centre, scale;
    } formulas[] = {
        {"a + b", 0, 1},
        {"a - b*b", 0, 1},
        {"a*b", 0, 1},
        {"a/b", 3, 1},
        {"a % b", 3, 0.7},
        {"-a*a", 0, 1},
        {"pow(a, 3) + pow(b, -2)", 2, 1},
        {"pow(a, b)", 2, 1},
        {"abs(a)*a", 0, 1},
        {"max(a, b)*a", 0, 1},
        {"min(a, b)*b", 0, 1},
        {"relu(a)*a*b", 0, 1},
        {"exp(a*b)", 0, 1},
        {"exp2(a) + expm1(b)", 0, 1},
        {"log(a) + log2(b)", 2, 1},
        {"log10(a) + log1p(b)", 2, 1},
        {"sqrt(a) + rsqrt(b)", 2, 1},
        {"cbrt(a*b)", 2, 1},
        {"sin(a)*cos(b)", 0, 2},
        {"tan(a) + atan(b)", 0, 1},
        {"asin(a) + acos(b)", 0, 0.8},
        {"sinh(a)*cosh(b)", 0, 1},
        {"tanh(a) + sigmoid(b)", 0, 2},
        {"softplus(a) + erf(b)", 0, 1},
        {"atan2(a, b)", 0, 2},
        {"silu(a)*gelu(b)", 0, 2},
        {"gelu_exact(a) + logsigmoid(b)", 0, 2},
        {"clamp(a, -0.5, 0.5)*a*b", 0, 1},
        {"lerp(a, b, a*b)", 0, 1},
        {"a < b ? a*a : exp(b)", 0, 1},
        {"a < 0 ? sqrt(-a)*b : log(a + 1)*b", 0, 1}, /* each branch is NaN where the other is taken */
        {"s = sin(a*b); s*s*s + s", 0, 1},
        {"detach(a)*b*b", 0, 1},
        {"with_grad(a*b, a*a*b)", 0, 1},
        {"index(0)*a*b + index(1)*a*a", 0, 1},
        {"floor(a)*a*b + round(b)*b", 0, 1},
        {"a > 0 ? b*b*b : b*b*b + 1", 0, 1}, /* the gradient does not depend on the condition */
        {"f = round(a); f >= 0 && f <= 1 ? 1 + 0*a + b*b : 0*a + b*b", 0, 1},
    };
    operation op = {"", op_formula, 2, {{2, {2, 3}}, {1, {3}}}, 0, 1};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(formulas); i++) {
        op.name = formula_text = formulas[i].text;
        op.centre = formulas[i].centre;
        op.scale = formulas[i].scale;
        if (strstr(formula_text, "with_grad") || strstr(formula_text, "detach"))
            continue; /* their gradient is what they say, and no slope */
        check_operation(&op);
    }
}

/*  detach and with_grad at any order: the gradient is that of the other formula, and so is its own. */
TEST(formulas_with_a_gradient_of_their_own)
{
    ignis_scope scope;
    ignis_grad_desc desc = {.create_graph = true};
    double three = 3;
    ignis_tensor x, y, g;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_of(&three, IGNIS_SHAPE(1), IGNIS_F64, true);
    y = ignis_map("with_grad(round(x), x*x*x)", IGNIS_INPUTS(x));
    CHECK_NUMBER(value_at(y, 0), 3);
    CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, &desc));
    CHECK_NUMBER(value_at(g, 0), 27);
    CHECK_OK(ignis_grad(&g, 1, &x, 1, &g, &desc));
    CHECK_NUMBER(value_at(g, 0), 18);
    y = ignis_map("detach(x)*x", IGNIS_INPUTS(x));
    CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, &desc));
    CHECK_NUMBER(value_at(g, 0), 3);
    CHECK_OK(ignis_scope_end(scope));
}

/*  Random numbers are the same in the formula and in all its gradients, whatever shape these have. */
static ignis_tensor op_random(const ignis_tensor *x)
{
    ignis_seed(9);
    return ignis_map(formula_text, IGNIS_INPUTS(IGNIS_NAMED(a, x[0]), IGNIS_NAMED(b, x[1])));
}

static ignis_tensor op_random_product(const ignis_tensor *x)
{
    ignis_seed(9);
    return ignis_map_reduce(IGNIS_REDUCE_PROD, "(1 + rand())*a + b*b",
                            IGNIS_INPUTS(IGNIS_NAMED(a, x[0]), IGNIS_NAMED(b, x[1])), NULL);
}

TEST(formulas_with_random_numbers)
{
    static const char *const texts[] = {"rand()*a*a + randn()*b*a", "a*a*a + rand()*b", "rand() < 0.5 ? a*b : exp(b)"};
    operation op = {"", op_random, 2, {{2, {2, 3}}, {1, {3}}}, 0, 1};
    ignis_grad_desc desc = {.create_graph = true};
    ignis_tensor x, y, g, after[2];
    ignis_scope scope;
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(texts); i++) {
        op.name = formula_text = texts[i];
        check_operation(&op);
    }
    op.name = "prod of random numbers";
    op.fn = op_random_product;
    check_operation(&op);
    scope = ignis_scope_begin();
    for (i = 0; i < 2; i++) { /* the gradients take no numbers from the calls that follow */
        ignis_seed(4);
        x = tensor_noise(IGNIS_SHAPE(3), IGNIS_F64, 1, true);
        y = ignis_map("rand()*x*x", IGNIS_INPUTS(x));
        y = ignis_sum(y);
        if (i == 1)
            CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, &desc));
        after[i] = ignis_tensor_rand(IGNIS_SHAPE(1), NULL);
    }
    CHECK_NUMBER(value_at(after[0], 0), value_at(after[1], 0));
    CHECK_OK(ignis_scope_end(scope));
}

/*  All inputs that a formula can have: none is left for the incoming gradient. */
static ignis_tensor op_of_16(const ignis_tensor *x)
{
    ignis_inputs inputs = {"a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p", 16, {{0}}};
    int i;
    for (i = 0; i < 16; i++)
        inputs.tensor[i] = i < 4 ? x[i] : ignis_value(0.25 * i - 1);
    return ignis_map(formula_text, inputs);
}

TEST(formulas_with_16_inputs)
{
    static const char *const texts[] = {
        "sin(a*b)*c + exp(d*h) + e*f*g*a + i*j*k + l*m*n + o*p*b*b",
        "a + b + c + d + e",                         /* its gradient needs no input */
        "a*a + index(1)*b + (c < d ? d : index(0))", /* its gradient depends on the shape of all */
    };
    operation op = {"", op_of_16, 4, {{2, {2, 3}}, {1, {3}}, {2, {2, 1}}, {1, {1}}}, 0, 1};
    int i;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(texts); i++) {
        op.name = formula_text = texts[i];
        check_operation(&op);
    }
}

/*  An incoming gradient of 0 is differentiated too: d/dg of g f'(x) is f'(x) at g = 0, in the branch that is taken. */
TEST(incoming_zeros)
{
    ignis_scope scope;
    const double at[] = {-2, -0.5, 0.25, 3};
    ignis_grad_desc desc = {.create_graph = true};
    ignis_tensor x, y, u, g, slope;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    x = tensor_of(at, IGNIS_SHAPE(4), IGNIS_F64, true);
    u = tensor_of((const double[]){0, 0, 0, 0}, IGNIS_SHAPE(4), IGNIS_F64, true);
    y = ignis_map("x < 0 ? max(x, -1)*x : relu(x)*abs(x)*x", IGNIS_INPUTS(x));
    desc.seeds = &u;
    CHECK_OK(ignis_grad(&y, 1, &x, 1, &g, &desc));
    g = ignis_sum(g);
    CHECK_OK(ignis_grad(&g, 1, &u, 1, &slope, NULL));
    for (i = 0; i < 4; i++)
        CHECK_CLOSE(value_at(slope, i), at[i] < -1 ? -1 : at[i] < 0 ? 2 * at[i] : 3 * at[i] * at[i], 1e-14);
    CHECK_OK(ignis_scope_end(scope));
}

static ignis_reducer reducer_now;
static ignis_reduce_desc reduced_now;

static ignis_tensor op_reduce(const ignis_tensor *x)
{
    return ignis_map_reduce(reducer_now, "a*a*b", IGNIS_INPUTS(IGNIS_NAMED(a, x[0]), IGNIS_NAMED(b, x[1])),
                            &reduced_now);
}

/*  Of all, of one dimension each, and of the dimensions around another one. */
TEST(reductions)
{
    static const ignis_reducer reducers[] = {IGNIS_REDUCE_SUM, IGNIS_REDUCE_MEAN, IGNIS_REDUCE_PROD,
                                             IGNIS_REDUCE_MAX, IGNIS_REDUCE_MIN,  IGNIS_REDUCE_LOGSUMEXP,
                                             IGNIS_REDUCE_NORM};
    static const ignis_reduce_desc descs[] = {{{0}, 0, false}, {{0}, 1, false}, {{1}, 1, false}, {{0, 2}, 2, true}};
    operation op = {"", op_reduce, 2, {{2, {3, 4}}, {1, {4}}}, 1.5, 1};
    int i, k;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(reducers); i++)
        for (k = 0; k < COUNT_OF(descs); k++) {
            char name[40];
            snprintf(name, sizeof name, "reducer %d, desc %d", (int)reducers[i], k);
            op.name = name;
            op.shape[0] = k < 3 ? IGNIS_SHAPE(3, 4) : IGNIS_SHAPE(2, 3, 2);
            op.shape[1] = k < 3 ? IGNIS_SHAPE(4) : IGNIS_SHAPE(2);
            reducer_now = reducers[i];
            reduced_now = descs[k];
            check_operation(&op);
        }
}

int main(int argc, char **argv) { return test_run(argc, argv); }
