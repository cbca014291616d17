/*  >>ops.activation - relu, gelu, silu and silu_mul: functions of one element, which save their input

    Each is a row of a table: the kernel, its backward kernel, its name.
    Uses: operation; kernels ACTIVATION. */

#include "room.h"

/*  Launches an elementwise kernel: out = kernel(a, ...), with up to three arrays of one shape. */
static ignis__array *ignis__op_elementwise(ignis__op *op, ignis__builtin builtin, int count, ignis__array *const *from)
{
    ignis__array *out = ignis__op_new_like(op, from[0]);
    ignis__address source[3], target;
    void *params[] = {&target, &source[0], &source[1], &source[2], NULL};
    int i;
    for (i = 0; i < count; i++)
        source[i] = ignis__op_read(op, from[i]);
    target = ignis__op_write(op, out);
    params[1 + count] = &from[0]->numel;
    ignis__op_launch_elementwise(op, builtin, from[0]->dtype, from[0]->numel, params);
    return out;
}

typedef struct ignis__activation {
    const char *call; /* the name of the rule comes after ignis_ */
    ignis__builtin forward, backward;
} ignis__activation;

static ignis_status ignis__activation_backward(const ignis_backward_args *args)
{
    const ignis__activation *kind = *(const ignis__activation *const *)args->params;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, kind->call, args))
        return ignis__failed();
    return ignis__op_finish_backward_one(&op, args, ignis__op_elementwise(&op, kind->backward, 2, op.in));
}

static ignis_tensor ignis__activate(const ignis__activation *kind, ignis_tensor tensor)
{
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, kind->call, 1, &tensor))
        return ignis__no_tensor();
    ignis__op_save(&op, op.in[0]);
    if (ignis__op_is_float(&op, 0, "the tensor"))
        out = ignis__op_elementwise(&op, kind->forward, 1, op.in);
    return ignis__op_end_recorded(&op, out, kind->call + 6, ignis__activation_backward, &kind, sizeof kind);
}

static const ignis__activation ignis__act_relu = {"ignis_relu", IGNIS__BUILTIN(RELU), IGNIS__BUILTIN(RELU_BACKWARD)};
static const ignis__activation ignis__act_gelu = {"ignis_gelu", IGNIS__BUILTIN(GELU), IGNIS__BUILTIN(GELU_BACKWARD)};
static const ignis__activation ignis__act_gelu_exact = {"ignis_gelu_exact", IGNIS__BUILTIN(GELU_EXACT),
                                                        IGNIS__BUILTIN(GELU_EXACT_BACKWARD)};
static const ignis__activation ignis__act_silu = {"ignis_silu", IGNIS__BUILTIN(SILU), IGNIS__BUILTIN(SILU_BACKWARD)};

IGNIS_API ignis_tensor ignis_relu(ignis_tensor tensor) { return ignis__activate(&ignis__act_relu, tensor); }
IGNIS_API ignis_tensor ignis_gelu(ignis_tensor tensor) { return ignis__activate(&ignis__act_gelu, tensor); }
IGNIS_API ignis_tensor ignis_gelu_exact(ignis_tensor tensor) { return ignis__activate(&ignis__act_gelu_exact, tensor); }
IGNIS_API ignis_tensor ignis_silu(ignis_tensor tensor) { return ignis__activate(&ignis__act_silu, tensor); }

static ignis_status ignis__silu_mul_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *gradients[2];
    ignis__address dgate, dup, g, gate, up;
    int64_t n;
    int i;
    void *params[] = {&dgate, &dup, &g, &gate, &up, &n};
    if (!ignis__op_begin_backward(&op, "ignis_silu_mul", args))
        return ignis__failed();
    n = op.in[0]->numel;
    for (i = 0; i < 2; i++)
        gradients[i] = ignis__op_new_like(&op, op.in[1]);
    g = ignis__op_read(&op, op.in[0]);
    gate = ignis__op_read(&op, op.in[1]);
    up = ignis__op_read(&op, op.in[2]);
    dgate = ignis__op_write(&op, gradients[0]);
    dup = ignis__op_write(&op, gradients[1]);
    ignis__op_launch_elementwise(&op, IGNIS__BUILTIN(SILU_MUL_BACKWARD), op.in[1]->dtype, n, params);
    return ignis__op_finish_backward(&op, args, 2, gradients);
}

IGNIS_API ignis_tensor ignis_silu_mul(ignis_tensor gate, ignis_tensor up)
{
    ignis_tensor inputs[] = {gate, up};
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, "ignis_silu_mul", 2, inputs))
        return ignis__no_tensor();
    ignis__op_save_inputs(&op, 0, 2);
    if (ignis__op_is_float(&op, 0, "gate") && ignis__op_same_dtype(&op, 1, "up") && ignis__op_same_shape(&op, 1, "up"))
        out = ignis__op_elementwise(&op, IGNIS__BUILTIN(SILU_MUL), 2, op.in);
    return ignis__op_end_recorded(&op, out, "silu_mul", ignis__silu_mul_backward, NULL, 0);
}
