/*  >>ops.binary - add, sub, mul, which broadcast as in NumPy

    b that broadcasts to a along one axis has kernels of its own, and its gradient is summed along that axis. Any other
    broadcast is a formula. Uses: operation, sum, map; kernels POINTWISE. */

#include "room.h"

/*  Computes the second operand's gradient: factor times the sum of g, or of g * a, along the axis of its
    broadcast. */
static ignis__array *ignis__binary_reduce(ignis__op *op, ignis__array *g, ignis__array *a, double factor,
                                          const ignis__binary_params *p)
{
    ignis__array *gradient = ignis__op_new(op, &p->shape, g->dtype);
    if (gradient)
        ignis__op_sum(op, gradient, g, a, factor, &p->axis);
    return gradient;
}

/*  Makes an array of g's shape by an elementwise kernel of two arrays; the second may broadcast. */
static ignis__array *ignis__binary_launch(ignis__op *op, ignis__builtin same, ignis__builtin broadcast, ignis__array *a,
                                          ignis__array *b, const ignis__axis *axis)
{
    ignis__array *out = ignis__op_new_like(op, a);
    ignis__address from_a = ignis__op_read(op, a), from_b = ignis__op_read(op, b), to = ignis__op_write(op, out);
    int64_t span = axis->n * axis->inner, inner = axis->inner;
    void *params[] = {&to, &from_a, &from_b, &span, &inner, &a->numel};
    bool is_same = axis->n == 1;
    ignis__record_builtin_for_all(same, a->dtype); /* for other sizes */
    ignis__record_builtin_for_all(broadcast, a->dtype);
    if (is_same)
        params[3] = &a->numel;
    ignis__op_launch_elementwise(op, is_same ? same : broadcast, a->dtype, a->numel, params);
    return out;
}

/*  Requests the kernels that the gradient of an operand needs at other sizes, with a broadcast or without. */
static void ignis__binary_record(ignis_array gradient, double sign)
{
    ignis_array_info info;
    if (!ignis__requests.path[0] || ignis_array_query(gradient, &info) != IGNIS_OK)
        return;
    ignis__record_builtin_for_all(IGNIS__BUILTIN(SUM_ROWS), info.dtype);
    if (sign < 0)
        ignis__record_builtin_for_all(IGNIS__BUILTIN(SCALE), info.dtype);
}

/*  Computes the gradients of a + b and a - b: g for a; g or -g for b, summed where b was broadcast. */
static ignis_status ignis__add_sub_backward(const char *call, const ignis_backward_args *args, double sign)
{
    const ignis__binary_params *p = (const ignis__binary_params *)args->params;
    ignis__array *gradients[2] = {NULL, NULL};
    ignis__op op;
    if (args->needed[0])
        args->grad_inputs[0] = args->grad_output;
    if (!args->needed[1])
        return IGNIS_OK;
    ignis__binary_record(args->grad_output, sign);
    if (p->axis.n == 1 && sign > 0) {
        args->grad_inputs[1] = args->grad_output;
        return IGNIS_OK;
    }
    if (!ignis__op_begin_backward(&op, call, args))
        return ignis__failed();
    gradients[1] =
        p->axis.n == 1 ? ignis__op_scaled(&op, op.in[0], sign) : ignis__binary_reduce(&op, op.in[0], NULL, sign, p);
    return ignis__op_finish_backward(&op, args, 2, gradients);
}

IGNIS__PRIVATE ignis_status ignis__add_backward(const ignis_backward_args *args)
{
    return ignis__add_sub_backward("ignis_add", args, 1);
}
static ignis_status ignis__sub_backward(const ignis_backward_args *args)
{
    return ignis__add_sub_backward("ignis_sub", args, -1);
}

static ignis_status ignis__mul_backward(const ignis_backward_args *args)
{
    const ignis__binary_params *p = (const ignis__binary_params *)args->params;
    ignis__array *gradients[2] = {NULL, NULL};
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_mul", args))
        return ignis__failed();
    ignis__binary_record(args->grad_output, 1);
    if (args->needed[0])
        gradients[0] = ignis__binary_launch(&op, IGNIS__BUILTIN(MUL), IGNIS__BUILTIN(MUL_BROADCAST), op.in[0],
                                            op.in[1 + p->saved_b], &p->axis);
    if (args->needed[1] && p->axis.n == 1)
        gradients[1] = ignis__binary_launch(&op, IGNIS__BUILTIN(MUL), IGNIS__BUILTIN(MUL_BROADCAST), op.in[0],
                                            op.in[1 + p->saved_a], &p->axis);
    else if (args->needed[1])
        gradients[1] = ignis__binary_reduce(&op, op.in[0], op.in[1 + p->saved_a], 1, p);
    return ignis__op_finish_backward(&op, args, 2, gradients);
}

typedef struct ignis__binary_kind {
    const char *name;
    ignis_status (*backward_fn)(const ignis_backward_args *args);
    ignis__builtin same, broadcast;
    bool saves;
    const char *formula;
} ignis__binary_kind;

/*  Computes a broadcast along several axes, or of a, by a formula, which has gradients of its own. */
static ignis_tensor ignis__binary_formula(const char *call, const char *formula, ignis_tensor a, ignis_tensor b)
{
    ignis_inputs inputs = IGNIS__ZERO;
    inputs.names = "a, b";
    inputs.count = 2;
    inputs.tensor[0] = a;
    inputs.tensor[1] = b;
    return ignis__formula_tensor(call, formula, &inputs, IGNIS__LOSS_NONE);
}

static ignis_tensor ignis__binary(const char *call, const ignis__binary_kind *kind, ignis_tensor a, ignis_tensor b,
                                  bool bias)
{
    ignis_tensor inputs[] = {a, b};
    const ignis_shape *shape;
    ignis__binary_params binary = IGNIS__ZERO;
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, "a");
    ignis__op_same_dtype(&op, 1, bias ? "the bias" : "b");
    shape = &op.in[0]->shape;
    binary.shape = op.in[1]->shape;
    if (bias && (binary.shape.ndim != 1 || binary.shape.dim[0] != shape->dim[shape->ndim - 1]))
        ignis__op_fail(&op, IGNIS_DIAG_BROADCAST_SHAPE, "the bias of %s is [%lld], this one is %s",
                       ignis__shape_write(shape).text, (long long)shape->dim[shape->ndim - 1],
                       ignis__shape_write(&binary.shape).text);
    if (op.ok && !ignis__axis_of_broadcast(shape, &binary.shape, &binary.axis)) {
        ignis__op_leave(&op);
        return ignis__binary_formula(call, kind->formula, a, b);
    }
    if (op.ok)
        out = ignis__binary_launch(&op, kind->same, kind->broadcast, op.in[0], op.in[1], &binary.axis);
    if (kind->saves && op.tape_state[0].requires_grad) {
        binary.saved_b = op.saved_count;
        ignis__op_save(&op, op.in[1]);
    }
    if (kind->saves && op.tape_state[1].requires_grad) {
        binary.saved_a = op.saved_count;
        ignis__op_save(&op, op.in[0]);
    }
    return ignis__op_end_recorded(&op, out, kind->name, kind->backward_fn, &binary, sizeof binary);
}

static const ignis__binary_kind ignis__binary_add = {
    "add", ignis__add_backward, IGNIS__BUILTIN(ADD), IGNIS__BUILTIN(ADD_BROADCAST), false, "a + b"};
static const ignis__binary_kind ignis__binary_sub = {
    "sub", ignis__sub_backward, IGNIS__BUILTIN(SUB), IGNIS__BUILTIN(SUB_BROADCAST), false, "a - b"};
static const ignis__binary_kind ignis__binary_mul = {
    "mul", ignis__mul_backward, IGNIS__BUILTIN(MUL), IGNIS__BUILTIN(MUL_BROADCAST), true, "a * b"};

IGNIS_API ignis_tensor ignis_add(ignis_tensor a, ignis_tensor b)
{
    return ignis__binary("ignis_add", &ignis__binary_add, a, b, false);
}
IGNIS_API ignis_tensor ignis_sub(ignis_tensor a, ignis_tensor b)
{
    return ignis__binary("ignis_sub", &ignis__binary_sub, a, b, false);
}
IGNIS_API ignis_tensor ignis_mul(ignis_tensor a, ignis_tensor b)
{
    return ignis__binary("ignis_mul", &ignis__binary_mul, a, b, false);
}
IGNIS_API ignis_tensor ignis_add_bias(ignis_tensor tensor, ignis_tensor bias)
{
    return ignis__binary("ignis_add_bias", &ignis__binary_add, tensor, bias, true);
}
