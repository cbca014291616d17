// SPDX-License-Identifier: MIT
/*  test_second_derivatives.c - ignis_grad with create_graph: every operation beside differences of first derivatives */
#include "tensor.h"

#define MOST_INPUTS 4
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

/*  Compares the gradient with regard to all inputs of v . gradient with central differences. 1e-6: the differences have
    an error of 1e-10 of the third derivative, and round to 1e-11 of values near 1. */
static void check_operation(const operation *op)
{
    ignis_tensor inputs[MOST_INPUTS], grads[MOST_INPUTS], first[MOST_INPUTS], seconds[MOST_INPUTS], v[MOST_INPUTS], y;
    ignis_grad_desc desc = {.create_graph = true}, second = {.seeds = v, .allow_unused = true};
    double *values[MOST_INPUTS], *found, *plain, *graph, high, low;
    const double h = 1e-5;
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
    if (status == IGNIS_OK)
        for (i = 0; i < op->count; i++) {
            found = seconds[i].id ? tensor_values(seconds[i]) : NULL;
            for (k = 0; k < shape_numel(op->shape[i]); k++) {
                const double x = values[i][k];
                values[i][k] = x + h, high = slope_along(op, values);
                values[i][k] = x - h, low = slope_along(op, values);
                values[i][k] = x;
                if (!is_close(found ? found[k] : 0, (high - low) / (2 * h), 1e-6)) {
                    printf("    %s: input %d, element %lld\n", op->name, i, (long long)k);
                    CHECK_CLOSE(found ? found[k] : 0, (high - low) / (2 * h), 1e-6);
                }
            }
            free(found);
        }
    for (i = 0; i < op->count; i++)
        free(values[i]);
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

OPERATION(op_gather, ignis_gather(x[0], 0, indices(some_indices, IGNIS_SHAPE(2, 3))))
OPERATION(op_index_select, ignis_index_select(x[0], 1, indices(some_indices, IGNIS_SHAPE(5))))
OPERATION(op_scatter_add, ignis_scatter_add(x[0], 0, indices(some_indices, IGNIS_SHAPE(2, 3)), x[1]))
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
    y = ignis_map("rand()*x", IGNIS_INPUTS(x));
    CHECK_FAILS(ignis_grad(&y, 1, &x, 1, &g, &desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("random numbers");
    CHECK_OK(ignis_scope_end(scope));
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
static int reduced_dim;

static ignis_tensor op_reduce(const ignis_tensor *x)
{
    ignis_reduce_desc desc = {{reduced_dim}, reduced_dim < 0 ? 0 : 1, false};
    return ignis_map_reduce(reducer_now, "a*a*b", IGNIS_INPUTS(IGNIS_NAMED(a, x[0]), IGNIS_NAMED(b, x[1])), &desc);
}

TEST(reductions)
{
    ignis_scope scope;
    static const ignis_reducer reducers[] = {IGNIS_REDUCE_SUM, IGNIS_REDUCE_MEAN,      IGNIS_REDUCE_MAX,
                                             IGNIS_REDUCE_MIN, IGNIS_REDUCE_LOGSUMEXP, IGNIS_REDUCE_NORM};
    operation op = {"", op_reduce, 2, {{2, {3, 4}}, {1, {4}}}, 1.5, 1};
    ignis_grad_desc desc = {.create_graph = true};
    ignis_tensor x, y, g;
    int i;
    SETUP(NULL);
    scope = ignis_scope_begin();
    for (i = 0; i < COUNT_OF(reducers); i++)
        for (reduced_dim = -1; reduced_dim < 2; reduced_dim++) {
            char name[40];
            snprintf(name, sizeof name, "reducer %d, dim %d", (int)reducers[i], reduced_dim);
            op.name = name;
            reducer_now = reducers[i];
            check_operation(&op);
        }
    x = tensor_noise(IGNIS_SHAPE(4), IGNIS_F64, 1, true);
    y = ignis_map_reduce(IGNIS_REDUCE_PROD, "x", IGNIS_INPUTS(x), NULL);
    CHECK_FAILS(ignis_grad(&y, 1, &x, 1, &g, &desc), IGNIS_ERROR_UNSUPPORTED, IGNIS_DIAG_UNSUPPORTED);
    CHECK_MESSAGE_HAS("'prod'");
    CHECK_OK(ignis_scope_end(scope));
}

int main(int argc, char **argv) { return test_run(argc, argv); }
