/*  >>grad - ignis_grad, and a table from the name of a rule to the function that computes its gradients by operations

    Such a function has the arguments of a backward function, as tensors, and fills the same gradients. Most are beside
    their operation; those that need nothing of it are here.
    Uses: vjp, and all operations. Invariant: a rule that is not in the table is refused by its name. */

#include "room.h"
#include "matmul/room.h"
#include "conv/room.h"
#include "fft/room.h"
#include "attention/room.h"

static void ignis__vjp_of_same(const ignis_vjp_args *args) { args->grad_inputs[0] = args->grad_output; }

static void ignis__vjp_of_scale(const ignis_vjp_args *args)
{
    args->grad_inputs[0] = ignis_scale(args->grad_output, *(const double *)args->params);
}

static void ignis__vjp_of_cast(const ignis_vjp_args *args)
{
    args->grad_inputs[0] = ignis_cast(args->grad_output, *(const ignis_dtype *)args->params);
}

static void ignis__vjp_of_add(const ignis_vjp_args *args)
{
    const ignis__binary_params *p = (const ignis__binary_params *)args->params;
    args->grad_inputs[0] = args->grad_output;
    if (args->needed[1])
        args->grad_inputs[1] = p->axis.n == 1 ? args->grad_output : ignis__vjp_sum_axis(args->grad_output, &p->axis);
}

static void ignis__vjp_of_sub(const ignis_vjp_args *args)
{
    ignis__vjp_of_add(args);
    if (args->needed[1])
        args->grad_inputs[1] = ignis_scale(args->grad_inputs[1], -1);
}

static void ignis__vjp_of_mul(const ignis_vjp_args *args)
{
    const ignis__binary_params *p = (const ignis__binary_params *)args->params;
    const ignis_tensor g = args->grad_output;
    if (args->needed[0])
        args->grad_inputs[0] = ignis_mul(g, ignis__vjp_input(args, 1, p->saved_b));
    if (args->needed[1]) {
        args->grad_inputs[1] = ignis_mul(g, ignis__vjp_input(args, 0, p->saved_a));
        if (p->axis.n != 1)
            args->grad_inputs[1] = ignis__vjp_sum_axis(args->grad_inputs[1], &p->axis);
    }
}

static void ignis__vjp_of_expand(const ignis_vjp_args *args)
{
    args->grad_inputs[0] = ignis__vjp_sum_to(args->grad_output, ignis__vjp_shape(args, 0));
}

/*  Running sums in the other direction. */
static void ignis__vjp_of_cumsum(const ignis_vjp_args *args)
{
    const ignis__axis *axis = (const ignis__axis *)args->params;
    const int dim = 1;
    ignis_tensor g = ignis_reshape(args->grad_output, IGNIS_SHAPE(axis->outer, axis->n, axis->inner));
    args->grad_inputs[0] = ignis_flip(ignis_cumsum(ignis_flip(g, &dim, 1), 1), &dim, 1);
}

static void ignis__vjp_of_activation(const ignis_vjp_args *args)
{
    static const struct {
        const char *name, *formula;
    } formulas[] = {{"relu", "relu(x)"}, {"gelu", "gelu(x)"}, {"gelu_exact", "gelu_exact(x)"}, {"silu", "silu(x)"}};
    const ignis_tensor x = ignis__vjp_input(args, 0, 0);
    int i = 0;
    while (strcmp(formulas[i].name, args->node->name) != 0)
        i++;
    ignis__vjp_plain(args, ignis_map(formulas[i].formula, IGNIS_INPUTS(x)), &x);
}

static void ignis__vjp_of_silu_mul(const ignis_vjp_args *args)
{
    ignis_tensor inputs[2];
    inputs[0] = ignis__vjp_input(args, 0, 0);
    inputs[1] = ignis__vjp_input(args, 1, 1);
    ignis__vjp_plain(args, ignis_map("silu(a)*b", IGNIS_INPUTS(IGNIS_NAMED(a, inputs[0]), IGNIS_NAMED(b, inputs[1]))),
                     inputs);
}

static const ignis_reduce_desc ignis__vjp_rows = {{-1}, 1, true};

/*  y (g - the sum of g y) */
static void ignis__vjp_of_softmax(const ignis_vjp_args *args)
{
    const ignis_tensor g = args->grad_output, y = ignis__vjp_output(args, 0),
                       s = ignis_map_reduce(IGNIS_REDUCE_SUM, "g*y", IGNIS_INPUTS(g, y), &ignis__vjp_rows);
    args->grad_inputs[0] = ignis_map("y*(g - s)", IGNIS_INPUTS(y, g, s));
}

/*  g - softmax(x) times the sum of g */
static void ignis__vjp_of_log_softmax(const ignis_vjp_args *args)
{
    const ignis_tensor g = args->grad_output, y = ignis_softmax(ignis__vjp_input(args, 0, 0)),
                       s = ignis_map_reduce(IGNIS_REDUCE_SUM, "g", IGNIS_INPUTS(g), &ignis__vjp_rows);
    args->grad_inputs[0] = ignis_map("g - y*s", IGNIS_INPUTS(g, y, s));
}

/*  The index along a dimension for every element of a shape, from one row of it. */
static ignis_tensor ignis__vjp_index(ignis_tensor row, ignis_shape shape, int dim)
{
    ignis_shape one = shape;
    int i;
    for (i = 0; i < shape.ndim; i++)
        one.dim[i] = i == dim ? shape.dim[i] : 1;
    return ignis_expand(ignis_reshape(row, one), shape);
}

static void ignis__vjp_of_gather(const ignis_vjp_args *args)
{
    const ignis__indexing *x = (const ignis__indexing *)args->params;
    args->grad_inputs[0] =
        ignis_scatter_add(ignis__vjp_zeros(args, 0, x->shape), x->dim, ignis__vjp_constant(args, 0), args->grad_output);
}

static void ignis__vjp_of_index_select(const ignis_vjp_args *args)
{
    const ignis__indexing *x = (const ignis__indexing *)args->params;
    const ignis_tensor index = ignis__vjp_index(ignis__vjp_constant(args, 0), args->node->output->shape, x->dim);
    args->grad_inputs[0] = ignis_scatter_add(ignis__vjp_zeros(args, 0, x->shape), x->dim, index, args->grad_output);
}

/*  Adds the gradients at their positions in the tensor as one row. */
static void ignis__vjp_of_masked_select(const ignis_vjp_args *args)
{
    const ignis_tensor zeros = ignis__vjp_zeros(args, 0, IGNIS_SHAPE(ignis__tensor_numel(args->node->inputs[0])));
    args->grad_inputs[0] =
        ignis_scatter_add(zeros, 0, ignis_reshape(ignis__vjp_constant(args, 0), IGNIS_SHAPE(-1)), args->grad_output);
}

static void ignis__vjp_of_embedding(const ignis_vjp_args *args)
{
    const ignis_shape *table = ignis__vjp_shape(args, 0);
    const ignis_tensor ids = ignis__vjp_constant(args, 0);
    const ignis_shape shape = IGNIS_SHAPE(ids.id ? ignis_tensor_numel(ids) : 0, table->dim[1]);
    args->grad_inputs[0] = ignis_scatter_add(ignis__vjp_zeros(args, 0, *table), 0, ignis__vjp_index(ids, shape, 0),
                                             ignis_reshape(args->grad_output, shape));
}

/*  Returns the gradient of b of a norm, which has the dtype of w. */
static ignis_tensor ignis__vjp_of_bias(const ignis_vjp_args *args, ignis_tensor w)
{
    ignis_tensor_info info = IGNIS__ZERO;
    ignis_tensor g = args->grad_output;
    if (ignis_tensor_query(w, &info) == IGNIS_OK && info.dtype != args->node->output->dtype)
        g = ignis_cast(g, info.dtype);
    return ignis__vjp_sum_to(g, ignis__vjp_shape(args, 2));
}

/*  Differentiates (x - mean) / sqrt(variance + eps) * w, or x / sqrt(mean of x^2 + eps) * w. The gradient of b is the
    sum of g. 16 bits are computed in f32. */
static void ignis__vjp_of_norm(const ignis_vjp_args *args)
{
    const ignis__norm_rule *rule = (const ignis__norm_rule *)args->params;
    ignis_tensor inputs[3] = IGNIS__ZERO, x, w, m, v, plain;
    inputs[0] = ignis__vjp_input(args, 0, 0);
    inputs[1] = ignis__vjp_input(args, 1, 1);
    x = ignis__vjp_wide(inputs[0]);
    w = ignis__vjp_wide(inputs[1]);
    if (rule->norm->rms) {
        v = ignis_map_reduce(IGNIS_REDUCE_MEAN, "x*x", IGNIS_INPUTS(x), &ignis__vjp_rows);
        plain = ignis_map("x*rsqrt(v + eps)*w", IGNIS_INPUTS(x, w, v, IGNIS_VALUE(eps, rule->eps)));
    } else {
        m = ignis_map_reduce(IGNIS_REDUCE_MEAN, "x", IGNIS_INPUTS(x), &ignis__vjp_rows);
        v = ignis_map_reduce(IGNIS_REDUCE_MEAN, "(x - m)*(x - m)", IGNIS_INPUTS(x, m), &ignis__vjp_rows);
        plain = ignis_map("(x - m)*rsqrt(v + eps)*w", IGNIS_INPUTS(x, w, m, v, IGNIS_VALUE(eps, rule->eps)));
    }
    ignis__vjp_plain(args, ignis_cast(plain, args->node->output->dtype), inputs);
    if (args->input_count > 2 && args->needed[2])
        args->grad_inputs[2] = ignis__vjp_of_bias(args, inputs[1]);
}

/*  As ignis__vjp_of_norm, with statistics of groups of channels, or given ones. */
static void ignis__vjp_of_channel_norm(const ignis_vjp_args *args)
{
    static const ignis_reduce_desc inside = {{1, 3}, 2, true};
    const ignis__channel_norm *norm = (const ignis__channel_norm *)args->params;
    const ignis__channel_sizes *sizes = &norm->sizes;
    const int64_t share = sizes->channels / sizes->groups;
    const ignis_shape statistics = IGNIS_SHAPE(sizes->outer, 1, sizes->groups, 1);
    ignis_tensor inputs[3] = IGNIS__ZERO, x, w, m, r, plain;
    inputs[0] = ignis__vjp_input(args, 0, 0);
    inputs[1] = ignis__vjp_input(args, 1, 1);
    x = ignis_reshape(ignis__vjp_wide(inputs[0]), IGNIS_SHAPE(sizes->outer, sizes->rows, sizes->groups, share));
    w = ignis_reshape(ignis__vjp_wide(inputs[1]), IGNIS_SHAPE(sizes->groups, share));
    if (norm->given) {
        m = ignis_reshape(ignis__vjp_constant(args, 2), statistics);
        r = ignis_reshape(ignis__vjp_constant(args, 3), statistics);
    } else {
        m = ignis_map_reduce(IGNIS_REDUCE_MEAN, "x", IGNIS_INPUTS(x), &inside);
        r = ignis_map_reduce(IGNIS_REDUCE_MEAN, "(x - m)*(x - m)", IGNIS_INPUTS(x, m), &inside);
        r = ignis_map("rsqrt(r + eps)", IGNIS_INPUTS(r, IGNIS_VALUE(eps, norm->eps)));
    }
    plain = ignis_map("(x - m)*r*w", IGNIS_INPUTS(x, w, m, r));
    ignis__vjp_plain(args, ignis_cast(ignis_reshape(plain, args->node->output->shape), args->node->output->dtype),
                     inputs);
    if (args->needed[2])
        args->grad_inputs[2] = ignis__vjp_of_bias(args, inputs[1]);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*fn)(const ignis_vjp_args *args);
} ignis__vjps[] = {
    {"add", ignis__vjp_of_add},
    {"sub", ignis__vjp_of_sub},
    {"mul", ignis__vjp_of_mul},
    {"scale", ignis__vjp_of_scale},
    {"cast", ignis__vjp_of_cast},
    {"relu", ignis__vjp_of_activation},
    {"gelu", ignis__vjp_of_activation},
    {"gelu_exact", ignis__vjp_of_activation},
    {"silu", ignis__vjp_of_activation},
    {"silu_mul", ignis__vjp_of_silu_mul},
    {"dropout", ignis__vjp_of_dropout},
    {"sum", ignis__vjp_of_sum},
    {"mean", ignis__vjp_of_sum},
    {"cumsum", ignis__vjp_of_cumsum},
    {"cumprod", ignis__vjp_of_cumprod},
    {"logcumsumexp", ignis__vjp_of_logcumsumexp},
    {"reshape", ignis__vjp_of_same},
    {"split", ignis__vjp_of_same},
    {"part", ignis__vjp_of_slice},
    {"slice", ignis__vjp_of_slice},
    {"concat", ignis__vjp_of_concat},
    {"transpose", ignis__vjp_of_transpose},
    {"permute", ignis__vjp_of_strided},
    {"flip", ignis__vjp_of_strided},
    {"pad", ignis__vjp_of_strided},
    {"slice_step", ignis__vjp_of_strided},
    {"strided", ignis__vjp_of_strided},
    {"expand", ignis__vjp_of_expand},
    {"tril", ignis__vjp_of_band},
    {"triu", ignis__vjp_of_band},
    {"gather", ignis__vjp_of_gather},
    {"index_select", ignis__vjp_of_index_select},
    {"masked_select", ignis__vjp_of_masked_select},
    {"scatter_add", ignis__vjp_of_scatter},
    {"scatter", ignis__vjp_of_scatter},
    {"index_put", ignis__vjp_of_scatter},
    {"embedding", ignis__vjp_of_embedding},
    {"sort", ignis__vjp_of_gather},
    {"topk", ignis__vjp_of_gather},
    {"rope", ignis__vjp_of_rope},
    {"softmax", ignis__vjp_of_softmax},
    {"log_softmax", ignis__vjp_of_log_softmax},
    {"layer_norm", ignis__vjp_of_norm},
    {"rms_norm", ignis__vjp_of_norm},
    {"batch_norm", ignis__vjp_of_channel_norm},
    {"group_norm", ignis__vjp_of_channel_norm},
    {"cross_entropy", ignis__vjp_of_cross_entropy},
    {"linear_cross_entropy", ignis__vjp_of_linear_cross_entropy},
    {"conv1d", ignis__vjp_of_conv},
    {"conv2d", ignis__vjp_of_conv},
    {"conv3d", ignis__vjp_of_conv},
    {"conv_transpose1d", ignis__vjp_of_conv_transpose},
    {"conv_transpose2d", ignis__vjp_of_conv_transpose},
    {"conv_transpose3d", ignis__vjp_of_conv_transpose},
    {"gradient of conv", ignis__vjp_of_conv_part},
    {"grid_sample", ignis__vjp_of_grid_sample},
    {"unfold", ignis__vjp_of_unfold},
    {"fold", ignis__vjp_of_fold},
    {"pad_border", ignis__vjp_of_pad_border},
    {"max_pool", ignis__vjp_of_max_pool},
    {"avg_pool", ignis__vjp_of_avg_pool},
    {"upsample", ignis__vjp_of_upsample},
    {"adjoint", ignis__vjp_of_adjoint},
    {"sdpa", ignis__vjp_of_sdpa},
    {"sdpa_packed", ignis__vjp_of_sdpa_packed},
    {"complex_mul", ignis__vjp_of_complex_mul},
    {"cummax", ignis__vjp_of_gather},
    {"cummin", ignis__vjp_of_gather},
    {"matmul", ignis__vjp_of_matmul},
    {"matmul_t", ignis__vjp_of_matmul},
    {"product", ignis__vjp_of_product},
    {"linear", ignis__vjp_of_linear},
    {"grouped_linear", ignis__vjp_of_grouped_linear},
    {"diagonal", ignis__vjp_of_strided},
    {"fft", ignis__vjp_of_fft},
    {"ifft", ignis__vjp_of_fft},
    {"rfft", ignis__vjp_of_fft},
    {"irfft", ignis__vjp_of_fft},
    {"mlp", ignis__vjp_of_mlp},
    {"mlp_gated", ignis__vjp_of_mlp_gated},
};

/*  The vjp_fn of all operations of Ignis. */
static ignis_status ignis__op_vjp(const ignis_vjp_args *args)
{
    const uint64_t failures = ignis__failures();
    int i = 0;
    if (args->node->name == ignis__soft_cross_entropy_name) {
        ignis__vjp_of_soft_cross_entropy(args);
        return ignis__ended(failures, true);
    }
    if (args->node->backward_fn == ignis__formula_backward) {
        ignis__vjp_of_formula(args);
        return ignis__ended(failures, true);
    }
    while (i < IGNIS__COUNT(ignis__vjps) && strcmp(ignis__vjps[i].name, args->node->name) != 0)
        i++;
    if (i == IGNIS__COUNT(ignis__vjps))
        return ignis__fail(IGNIS_DIAG_UNSUPPORTED, "ignis_grad",
                           "the gradient of '%s' cannot be differentiated; without create_graph it has a gradient",
                           args->node->name);
    ignis__vjps[i].fn(args);
    return ignis__ended(failures, true);
}

IGNIS_API ignis_status ignis_grad(const ignis_tensor *outputs, int output_count, const ignis_tensor *inputs,
                                  int input_count, ignis_tensor *grads, const ignis_grad_desc *desc)
{
    ignis__grad_options options = IGNIS__ZERO;
    if (desc) {
        options.seeds = desc->seeds;
        options.create_graph = desc->create_graph;
        options.retain_graph = desc->retain_graph;
        options.allow_unused = desc->allow_unused;
    }
    options.operation_vjp = ignis__op_vjp;
    return ignis__grad_call("ignis_grad", outputs, output_count, inputs, input_count, grads, &options);
}
