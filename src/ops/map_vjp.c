/*  >>ops.formula.map_vjp - the gradients of a formula of tensors as a formula of tensors

    The text "@needed,result formula" is the gradient of a formula (formula/gradient_formula.c). It runs as any formula
    does, so it is recorded and has a gradient itself. Gradients of broadcast inputs are summed afterwards. Random
    numbers are those of the formula: they follow from the place of an element, so all runs have the full shape.
    Reductions: the gradient of each element is made first, by what the reduction has saved.
    Uses: map, vjp; the room formula. */

#include "room.h"

/*  Returns the index of the incoming gradient's name in the names of a formula: one for each prefix. */
static int ignis__formula_depth(const char *text)
{
    int depth = 0;
    for (; *text; text++)
        depth += *text == '@';
    return depth;
}

/*  Returns whether the formula has an index or random numbers: its result must have the full shape. */
static bool ignis__formula_has_index(const ignis__formula *formula)
{
    int i;
    if (formula->randoms)
        return true;
    for (i = 0; i < formula->term_count; i++)
        if (formula->term[i].function == IGNIS__FORMULA_INDEX)
            return true;
    return false;
}

/*  Returns the inputs of a formula as tensors of the tape and values. Inputs that its gradient does not depend on were
    not saved: a number takes their place, or an integer. The text of the gradient may have them nevertheless, in a
    condition between branches of the same gradient. */
static ignis_inputs ignis__formula_vjp_inputs(const ignis_vjp_args *args, const ignis__formula_rule *rule)
{
    ignis_inputs inputs = IGNIS__ZERO;
    ignis_tensor_desc desc = IGNIS__ZERO;
    int i, at;
    inputs.count = rule->formula->count;
    for (i = 0; i < rule->count; i++) {
        at = rule->tensor[i].input;
        if (rule->saved[at]) {
            inputs.tensor[at] = ignis__vjp_input(args, i, rule->saved[at] - 1);
        } else if (ignis__dtype_is_int(rule->tensor[i].dtype)) {
            desc.dtype = rule->tensor[i].dtype;
            desc.device = ignis__device_in_desc(args->node->output->device);
            inputs.tensor[at] = ignis_tensor_zeros(IGNIS_SHAPE(1), &desc);
        }
    }
    for (i = 0; i < inputs.count; i++)
        if (!inputs.tensor[i].id)
            inputs.tensor[i] = ignis_value(rule->value[i]);
    return inputs;
}

static bool ignis__formula_vjp_has_dtype(ignis_tensor tensor, ignis_dtype dtype)
{
    ignis_tensor_info info;
    return ignis_tensor_query(tensor, &info) == IGNIS_OK && info.dtype == dtype;
}

/*  Runs a formula with the random numbers that the rule's formula had. */
static bool ignis__formula_vjp_run(const ignis__formula_rule *rule, const char *text, ignis_inputs inputs, int count,
                                   ignis_tensor *results)
{
    ignis__random_state *random = &ignis__thread_state()->random, before = *random;
    bool ok;
    if (rule->formula->randoms) {
        random->seed = rule->random.seed;
        random->used = rule->random.first;
        random->again = true;
        random->launches = rule->random.launches.id;
    }
    ok = ignis_map_many(text, inputs, count, results) == IGNIS_OK;
    *random = before;
    return ok;
}

/*  Gives the first input that was saved the shape of the formula's result. */
static void ignis__formula_vjp_expand(const ignis__formula_rule *rule, ignis_inputs *inputs)
{
    int i = 0;
    while (i < rule->count && !rule->saved[rule->tensor[i].input])
        i++;
    if (i < rule->count && ignis__formula_has_index(rule->formula))
        inputs->tensor[rule->tensor[i].input] = ignis_expand(inputs->tensor[rule->tensor[i].input], rule->shape);
}

/*  Puts an incoming gradient, for its shape, in the place of an input that was not saved. */
static void ignis__formula_vjp_replace(const ignis__formula_rule *rule, ignis_inputs *inputs, ignis_tensor g)
{
    int i = 0;
    while (i < rule->count && rule->saved[rule->tensor[i].input])
        i++;
    if (i < rule->count)
        inputs->tensor[rule->tensor[i].input] = g;
    else
        ignis__formula_vjp_expand(rule, inputs);
}

/*  Fills the gradients of a formula's inputs from the gradient g of each element of its result, which broadcasts to the
    result's shape. */
static void ignis__formula_vjp_elements(const ignis_vjp_args *args, const ignis__formula_rule *rule,
                                        ignis_inputs inputs, ignis_tensor g)
{
    const ignis__formula *formula = rule->formula;
    const bool is_full = formula->count == IGNIS_MAX_INPUTS;
    size_t size = strlen(formula->text) + strlen(formula->names) + 80;
    ignis_tensor results[IGNIS_MAX_INPUTS], result;
    uint32_t needed = 0;
    int i, k, count = 0;
    char *text, *names;
    for (i = 0; i < rule->count; i++)
        if (args->needed[i] && ignis__dtype_is_float(rule->tensor[i].dtype))
            needed |= (uint32_t)1 << rule->tensor[i].input;
    for (i = 0; i < formula->count; i++)
        count += (int)(needed >> i & 1);
    if (!count || !g.id)
        return;
    text = (char *)ignis__alloc_for("ignis_grad", 2 * size);
    if (!text)
        return;
    names = text + size;
    snprintf(text, size, "@%u,%d%s %s", (unsigned)needed, rule->result, is_full ? "!" : "", formula->text);
    snprintf(names, size, is_full ? "%s" : "%s, gradient__%d", formula->names, ignis__formula_depth(text));
    inputs.names = names;
    if (is_full) /* no input more: the gradients are computed for 1, and multiplied by g */
        ignis__formula_vjp_replace(rule, &inputs, g);
    else
        inputs.tensor[inputs.count++] = g;
    if (!ignis__formula_vjp_run(rule, text, inputs, count, results))
        count = 0;
    for (i = 0; is_full && i < count; i++)
        results[i] = ignis_map("g*d", IGNIS_INPUTS(g, IGNIS_NAMED(d, results[i])));
    ignis__free(text);
    for (i = 0, k = 0; count && i < formula->count; i++) {
        int at = 0;
        if (!(needed >> i & 1))
            continue;
        while (rule->tensor[at].input != i)
            at++;
        result = results[k++];
        if (!ignis__shape_same(&rule->shape, &rule->tensor[at].shape) ||
            ignis_tensor_numel(result) != ignis__tensor_numel(args->node->inputs[at])) {
            const ignis_shape shape = ignis_tensor_shape(result);
            if (!ignis__shape_same(&shape, &rule->shape))
                result = ignis_expand(result, rule->shape);
            result = ignis__vjp_sum_to(result, &rule->tensor[at].shape);
        }
        args->grad_inputs[at] = ignis__formula_vjp_has_dtype(result, rule->tensor[at].dtype)
                                    ? result
                                    : ignis_cast(result, rule->tensor[at].dtype);
    }
}

/*  Returns the gradient of each element that a reduction to the largest or smallest has read: g there, else 0. */
static ignis_tensor ignis__formula_vjp_chosen(const ignis_vjp_args *args, const ignis__formula_rule *rule,
                                              ignis_tensor g)
{
    const ignis_tensor position = ignis__vjp_constant(args, rule->kept_saved - 1);
    ignis_tensor_desc desc = IGNIS__ZERO;
    ignis_shape one;
    ignis__axis axis;
    ignis__axis_of_broadcast(&rule->shape, &rule->given, &axis);
    one = IGNIS_SHAPE(axis.outer, 1, axis.inner);
    desc.dtype = args->node->output->dtype;
    desc.device = ignis__device_in_desc(args->node->output->device);
    g = ignis_scatter_add(ignis_tensor_zeros(IGNIS_SHAPE(axis.outer, axis.n, axis.inner), &desc), 1,
                          ignis_reshape(position, one), ignis_reshape(g, one));
    return ignis_reshape(g, rule->shape);
}

/*  Returns the values of the formula, recorded. */
static ignis_tensor ignis__formula_vjp_value(const ignis__formula_rule *rule, ignis_inputs inputs)
{
    ignis_tensor results[IGNIS_MAX_INPUTS] = IGNIS__ZERO;
    inputs.names = rule->formula->names;
    ignis__formula_vjp_expand(rule, &inputs);
    (void)ignis__formula_vjp_run(rule, rule->formula->text, inputs, rule->formula->result_count, results);
    return results[rule->result];
}

/*  Returns the gradient of each element that a reduction has read, from that of its result. */
static ignis_tensor ignis__formula_vjp_reduced(const ignis_vjp_args *args, const ignis__formula_rule *rule,
                                               ignis_inputs inputs)
{
    ignis_tensor g = ignis_reshape(args->grad_output, rule->given), v, y;
    ignis_reduce_desc desc = IGNIS__ZERO;
    ignis__axis axis;
    int i;
    if (rule->factor != 1)
        g = ignis_scale(g, rule->factor);
    if (!rule->kept)
        return g;
    if (rule->kept == IGNIS_REDUCE_MAX || rule->kept == IGNIS_REDUCE_MIN)
        return ignis__formula_vjp_chosen(args, rule, g);
    if (rule->kept == IGNIS_REDUCE_PROD) {
        ignis__axis_of_broadcast(&rule->shape, &rule->given, &axis);
        return ignis__vjp_of_prod(ignis__formula_vjp_value(rule, inputs), g, &axis);
    }
    for (i = 0; i < rule->shape.ndim; i++)
        if (rule->given.dim[i] != rule->shape.dim[i])
            desc.dims[desc.dim_count++] = i;
    desc.keepdim = true;
    v = ignis__formula_vjp_value(rule, inputs);
    y = desc.dim_count ? ignis_map_reduce((ignis_reducer)rule->kept, "v", IGNIS_INPUTS(v), &desc)
                       : v; /* of one element each */
    if (!desc.dim_count && rule->kept == IGNIS_REDUCE_NORM)
        y = ignis_map("abs(v)", IGNIS_INPUTS(v));
    return rule->kept == IGNIS_REDUCE_NORM ? ignis_map("y == 0 ? 0 : g*v/y", IGNIS_INPUTS(g, v, y))
                                           : ignis_map("v == -inf ? 0 : g*exp(v - y)", IGNIS_INPUTS(g, v, y));
}

IGNIS__PRIVATE void ignis__vjp_of_formula(const ignis_vjp_args *args)
{
    const ignis__formula_rule *rule = (const ignis__formula_rule *)args->params;
    ignis_inputs inputs;
    ignis_tensor g;
    inputs = ignis__formula_vjp_inputs(args, rule);
    g = ignis__formula_vjp_reduced(args, rule, inputs);
    if (g.id && ignis__formula_has_index(rule->formula))
        g = ignis_expand(g, rule->shape);
    ignis__formula_vjp_elements(args, rule, inputs, g);
}
