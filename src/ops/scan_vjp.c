/*  >>ops.scan_vjp - gradients of cumprod, logcumsumexp and prod by a linear recurrence, which has a gradient itself

    r[i] = g[i] + x[i + 1] r[i + 1] along an axis: of cumprod x is its input, of logcumsumexp a ratio that is at most 1.
    So nothing is divided by an element that may be 0, and no exponential overflows. A gradient of the recurrence is a
    recurrence in the other direction, so it can be differentiated to any order.
    Uses: scan, composed, vjp, and public functions of other parts. */

#include "room.h"

/*  Returns the elements of x [outer, n, inner] moved by one along n; the first ones are `value`. */
static ignis_tensor ignis__recurrence_shift(ignis_tensor x, double value)
{
    static const int64_t before[] = {0, 1, 0}, after[] = {0, 0, 0};
    return ignis_pad(ignis_slice(x, 1, 0, ignis_tensor_shape(x).dim[1] - 1), before, after, 3, value);
}

static ignis_tensor ignis__recurrence_flip(ignis_tensor x)
{
    const int dim = 1;
    return ignis_flip(x, &dim, 1);
}

static void ignis__recurrence_gradient(ignis__gradient_args *args);

static const ignis__composed_gradient ignis__recurrence_rule = {
    "ignis_grad", ignis__recurrence_gradient, {0, IGNIS__SAVED_OUTPUT}, NULL};

/*  Returns r of x and g, both [outer, n, inner], n at least 1. x[0] is not read. */
static ignis_tensor ignis__recurrence(ignis_tensor x, ignis_tensor g)
{
    ignis_tensor inputs[2];
    ignis__array *out = NULL;
    ignis_rule rule;
    ignis__op op;
    inputs[0] = x;
    inputs[1] = g;
    if (!ignis__op_begin(&op, "ignis_grad", 2, inputs))
        return ignis__no_tensor();
    out = ignis__op_recurrence(&op, op.in[0], op.in[1]);
    ignis__op_save(&op, op.in[0]);
    ignis__op_save(&op, out);
    rule = ignis__composed_rule(&op, "recurrence", &ignis__recurrence_rule, NULL, 0);
    return ignis__op_end(&op, out, &rule);
}

/*  The gradient of g is d[i] = h[i] + x[i] d[i - 1] of the incoming one h; that of x[i] is d[i - 1] r[i]. */
static void ignis__recurrence_gradient(ignis__gradient_args *args)
{
    const ignis_tensor x = args->saved[0], r = args->saved[1],
                       flipped = ignis__recurrence_shift(ignis__recurrence_flip(x), 0),
                       d = ignis__recurrence_flip(ignis__recurrence(
                           flipped, ignis__recurrence_flip(ignis_reshape(args->gradient, ignis_tensor_shape(r)))));
    if (args->needed[0])
        args->result[0] = ignis_mul(ignis__recurrence_shift(d, 0), r);
    if (args->needed[1])
        args->result[1] = d;
}

/*  Returns an array of a scan as a wide tensor [outer, n, inner]. */
static ignis_tensor ignis__scan_wide(ignis_tensor x, const ignis__axis *axis)
{
    return ignis_reshape(ignis__vjp_wide(x), IGNIS_SHAPE(axis->outer, axis->n, axis->inner));
}

/*  Returns dx[i] = y[i - 1] r[i], for the products y of x. */
static ignis_tensor ignis__cumprod_gradient(ignis_tensor x, ignis_tensor y, ignis_tensor g)
{
    return ignis_mul(ignis__recurrence_shift(y, 1), ignis__recurrence(x, g));
}

IGNIS__PRIVATE void ignis__vjp_of_cumprod(const ignis_vjp_args *args)
{
    const ignis__axis *axis = (const ignis__axis *)args->params;
    const ignis_tensor x = ignis__scan_wide(ignis__vjp_input(args, 0, 0), axis),
                       y = ignis__scan_wide(ignis__vjp_output(args, 1), axis),
                       g = ignis__scan_wide(args->grad_output, axis);
    args->grad_inputs[0] = args->grad_output;
    if (axis->outer * axis->n * axis->inner > 0)
        args->grad_inputs[0] = ignis_cast(ignis__cumprod_gradient(x, y, g), args->node->output->dtype);
}

/*  Computes dx[i] = exp(x[i] - y[i]) r[i], where r has the factors exp(y[i - 1] - y[i]). A y that is infinite ends the
    sums, or is one of no elements. */
IGNIS__PRIVATE void ignis__vjp_of_logcumsumexp(const ignis_vjp_args *args)
{
    const ignis__axis *axis = (const ignis__axis *)args->params;
    const ignis_tensor x = ignis__scan_wide(ignis__vjp_input(args, 0, 0), axis),
                       y = ignis__scan_wide(ignis__vjp_output(args, 1), axis),
                       g = ignis__scan_wide(args->grad_output, axis);
    ignis_tensor before, r;
    args->grad_inputs[0] = args->grad_output;
    if (axis->outer * axis->n * axis->inner == 0)
        return;
    before = ignis__recurrence_shift(y, 0);
    r = ignis__recurrence(ignis_map("abs(b) == inf ? b == y : exp(b - y)", IGNIS_INPUTS(IGNIS_NAMED(b, before), y)), g);
    args->grad_inputs[0] =
        ignis_cast(ignis_map("x == -inf ? 0 : r*exp(x - y)", IGNIS_INPUTS(x, y, r)), args->node->output->dtype);
}

/*  Returns the gradients of elements v of a shape from those of their products along an axis, g: as those of cumprod,
    of whose results the last one counts. */
IGNIS__PRIVATE ignis_tensor ignis__vjp_of_prod(ignis_tensor v, ignis_tensor g, const ignis__axis *axis)
{
    const int64_t before[] = {0, axis->n - 1, 0}, after[] = {0, 0, 0};
    const ignis__axis one = {axis->outer, 1, axis->inner};
    const ignis_shape shape = ignis_tensor_shape(v);
    ignis_tensor x;
    if (axis->outer * axis->n * axis->inner == 0)
        return v;
    x = ignis__scan_wide(v, axis);
    g = ignis_pad(ignis__scan_wide(g, &one), before, after, 3, 0);
    return ignis_reshape(ignis__cumprod_gradient(x, ignis_cumprod(x, 1), g), shape);
}
