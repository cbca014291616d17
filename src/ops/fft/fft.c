/*  >>ops.fft - ignis_fft, ignis_ifft, ignis_rfft, ignis_irfft: checks, steps along dimensions, gradients

    A transform is a list of steps, one a dimension. The gradient runs the adjoint steps in the opposite order: that of
    a transform is the inverse without its factor, with cut and filled lengths exchanged. Numbers inside a half
    spectrum represent two: they count twice, or half, in the adjoint.
    Uses: passes, rope (square root). */

#include "room.h"

typedef enum ignis__fft_kind { IGNIS__FFT_C2C, IGNIS__FFT_R2C, IGNIS__FFT_C2R } ignis__fft_kind;

typedef struct ignis__fft_call {
    const char *call, *name;
    ignis__fft_kind kind;
    bool is_inverse;
} ignis__fft_call;

typedef struct ignis__fft_rule {
    const char *call;
    int count;
    ignis__fft_step steps[3];
    ignis_shape shape; /* of the input */
} ignis__fft_rule;

static bool ignis__fft_writes_real(const ignis__fft_step *step)
{
    return step->store == IGNIS__FFT_REAL || step->store == IGNIS__FFT_PAIRS;
}

/*  Returns the shape of a step's result: arrays between steps have no other dimensions. */
static ignis_shape ignis__fft_step_shape(const ignis__fft_step *step)
{
    ignis_shape shape = IGNIS_SHAPE(step->outer, step->out, step->inner, 2);
    if (ignis__fft_writes_real(step))
        shape.ndim = 2;
    return shape;
}

/*  Runs steps on the operation's first input. The result has the shape. */
static ignis__array *ignis__fft_steps_run(ignis__op *op, const ignis__fft_step *steps, int count,
                                          const ignis_shape *shape)
{
    ignis__array *array = op->in[0];
    int i, k;
    for (i = 0; op->ok && i < count; i++) {
        ignis_shape between = ignis__fft_step_shape(&steps[i]);
        const bool keeps = steps[i].in == steps[i].out && steps[i].load == IGNIS__FFT_COMPLEX;
        for (k = i + 1; k < count && steps[k].in == steps[k].out && steps[k].load == IGNIS__FFT_COMPLEX; k++)
            ;
        array = ignis__fft_step_run(op, &steps[i], array, i > 0 && keeps ? array : NULL, k == count ? shape : &between);
    }
    return op->ok ? array : NULL;
}

/*  Returns the step that is the adjoint of another one. */
static ignis__fft_step ignis__fft_adjoint(const ignis__fft_step *step)
{
    ignis__fft_step adjoint = *step;
    adjoint.in = step->out;
    adjoint.out = step->in;
    adjoint.load = step->store;
    adjoint.store = step->load;
    adjoint.is_inverse = !step->is_inverse;
    if (step->load != IGNIS__FFT_COMPLEX)
        adjoint.inner_weight *= ignis__fft_writes_real(step) ? 2.0 : 0.5;
    return adjoint;
}

static ignis_status ignis__fft_backward(const ignis_backward_args *args)
{
    const ignis__fft_rule *rule = (const ignis__fft_rule *)args->params;
    ignis__fft_step steps[3];
    ignis__op op;
    int i;
    if (!ignis__op_begin_backward(&op, rule->call, args))
        return ignis__failed();
    for (i = 0; i < rule->count; i++)
        steps[i] = ignis__fft_adjoint(&rule->steps[rule->count - 1 - i]);
    return ignis__op_finish_backward_one(&op, args, ignis__fft_steps_run(&op, steps, rule->count, &rule->shape));
}

/*  The adjoint transform, whose own gradient is the first one again. */
IGNIS__PRIVATE void ignis__vjp_of_fft(const ignis_vjp_args *args)
{
    const ignis__fft_rule *rule = (const ignis__fft_rule *)args->params;
    ignis__fft_rule adjoint = *rule;
    ignis__array *gradient;
    ignis__op op;
    int i;
    if (!ignis__op_begin(&op, rule->call, 1, &args->grad_output))
        return;
    for (i = 0; i < rule->count; i++)
        adjoint.steps[i] = ignis__fft_adjoint(&rule->steps[rule->count - 1 - i]);
    adjoint.shape = op.in[0]->shape;
    gradient = ignis__fft_steps_run(&op, adjoint.steps, rule->count, &rule->shape);
    args->grad_inputs[0] = ignis__op_end_recorded(&op, gradient, "fft", ignis__fft_backward, &adjoint, sizeof adjoint);
}

/*  Returns the factor of a transform of n points. */
static double ignis__fft_scale(ignis_fft_norm norm, bool is_inverse, int64_t n)
{
    if (norm == IGNIS_FFT_ORTHO)
        return 1.0 / ignis__square_root((double)n);
    return (norm == IGNIS_FFT_FORWARD) != is_inverse ? 1.0 / (double)n : 1.0;
}

/*  Checks the desc, and the shape of the input. *dims: dimensions that are transformed; *first: the first of them. */
static bool ignis__fft_check(ignis__op *op, const ignis__fft_call *call, const ignis_fft_desc *desc, int *dims,
                             int *first)
{
    const ignis_shape *shape = &op->in[0]->shape;
    const ignis_dtype dtype = op->in[0]->dtype;
    const bool is_complex = call->kind != IGNIS__FFT_R2C;
    int i;
    *dims = desc->ndim ? desc->ndim : 1;
    *first = shape->ndim - *dims - is_complex;
    if (dtype != IGNIS_F32 && dtype != IGNIS_F64)
        return ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "x is %s; f32 or f64 is needed, ignis_cast makes it so",
                              ignis__dtypes[dtype].name);
    if (*dims < 1 || *dims > 3)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->ndim is %d; expected 1 to 3", desc->ndim);
    if (desc->norm < IGNIS_FFT_BACKWARD || desc->norm > IGNIS_FFT_FORWARD)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_ENUM, "desc->norm is %d; expected one of ignis_fft_norm",
                              (int)desc->norm);
    if (is_complex && shape->dim[shape->ndim - 1] != 2)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS,
                              "x is %s; its last dimension has to be 2, the real and the imaginary part",
                              ignis__shape_write(shape).text);
    if (*first < 0)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s, which has no %d dimensions to transform%s",
                              ignis__shape_write(shape).text, *dims, is_complex ? " before that of 2" : "");
    if (!is_complex && shape->ndim == IGNIS_MAX_DIMS)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS,
                              "x is %s; the result would have %d dimensions, and %d is the limit",
                              ignis__shape_write(shape).text, IGNIS_MAX_DIMS + 1, IGNIS_MAX_DIMS);
    for (i = 0; i < *dims; i++)
        if (desc->lengths[i] < 0)
            return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->lengths[%d] is %lld; expected 0 or more", i,
                                  (long long)desc->lengths[i]);
    return true;
}

/*  Plans the step along a dimension. shape, which has the sizes of complex or real numbers, becomes that of the
    result. */
static bool ignis__fft_plan_step(ignis__op *op, ignis__fft_kind kind, bool is_inverse, const ignis_fft_desc *desc,
                                 int dim, int64_t length, ignis_shape *shape, ignis__fft_step *step)
{
    const bool is_even = kind != IGNIS__FFT_C2C;
    memset(step, 0, sizeof *step);
    step->in = shape->dim[dim];
    step->n = length ? length : kind == IGNIS__FFT_C2R ? 2 * (step->in - 1) : step->in;
    if (step->n < 1 || step->n > IGNIS__FFT_LONGEST)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS,
                              "dimension %d of x, %s, has %lld points; expected 1 to 2^29", dim,
                              ignis__shape_write(&op->in[0]->shape).text, (long long)(step->n < 0 ? 0 : step->n));
    step->out = kind == IGNIS__FFT_R2C ? step->n / 2 + 1 : step->n;
    step->outer = ignis__shape_product(shape, 0, dim);
    step->inner = ignis__shape_product(shape, dim + 1, shape->ndim);
    step->is_inverse = is_inverse;
    step->scale = ignis__fft_scale(desc->norm, is_inverse, step->n);
    step->inner_weight = 1;
    if (is_even && step->n % 2 == 0) {
        step->load = kind == IGNIS__FFT_R2C ? IGNIS__FFT_PAIRS : IGNIS__FFT_MERGED;
        step->store = kind == IGNIS__FFT_R2C ? IGNIS__FFT_MERGED : IGNIS__FFT_PAIRS;
    } else if (is_even) {
        step->load = kind == IGNIS__FFT_R2C ? IGNIS__FFT_REAL : IGNIS__FFT_HERMITIAN;
        step->store = kind == IGNIS__FFT_R2C ? IGNIS__FFT_HERMITIAN : IGNIS__FFT_REAL;
    }
    shape->dim[dim] = step->out;
    return true;
}

static ignis_tensor ignis__fft(const ignis__fft_call *call, ignis_tensor x, const ignis_fft_desc *given)
{
    const ignis_fft_desc none = IGNIS__ZERO, *desc = given ? given : &none;
    const bool is_inverse_real = call->kind == IGNIS__FFT_C2R;
    ignis__fft_rule rule = IGNIS__ZERO;
    ignis__array *out = NULL;
    ignis_shape shape;
    ignis__op op;
    int first = 0, i;
    if (!ignis__op_begin(&op, call->call, 1, &x))
        return ignis__no_tensor();
    rule.call = call->call;
    rule.shape = shape = op.in[0]->shape;
    if (ignis__fft_check(&op, call, desc, &rule.count, &first)) {
        if (call->kind != IGNIS__FFT_R2C)
            shape.ndim--;
        /* The real side is the last dimension: its step is the first one of a spectrum, and the last one back. */
        for (i = 0; op.ok && i < rule.count; i++) {
            const int at = is_inverse_real ? i : rule.count - 1 - i;
            const bool is_real = at == rule.count - 1;
            ignis__fft_plan_step(&op, is_real ? call->kind : IGNIS__FFT_C2C, call->is_inverse, desc, first + at,
                                 desc->lengths[at], &shape, &rule.steps[i]);
        }
        if (!is_inverse_real)
            shape.dim[shape.ndim++] = 2;
        if (op.ok)
            out = ignis__fft_steps_run(&op, rule.steps, rule.count, &shape);
    }
    return ignis__op_end_recorded(&op, out, call->name, ignis__fft_backward, &rule, sizeof rule);
}

IGNIS_API ignis_tensor ignis_fft(ignis_tensor x, const ignis_fft_desc *desc)
{
    static const ignis__fft_call call = {"ignis_fft", "fft", IGNIS__FFT_C2C, false};
    return ignis__fft(&call, x, desc);
}

IGNIS_API ignis_tensor ignis_ifft(ignis_tensor x, const ignis_fft_desc *desc)
{
    static const ignis__fft_call call = {"ignis_ifft", "ifft", IGNIS__FFT_C2C, true};
    return ignis__fft(&call, x, desc);
}

IGNIS_API ignis_tensor ignis_rfft(ignis_tensor x, const ignis_fft_desc *desc)
{
    static const ignis__fft_call call = {"ignis_rfft", "rfft", IGNIS__FFT_R2C, false};
    return ignis__fft(&call, x, desc);
}

IGNIS_API ignis_tensor ignis_irfft(ignis_tensor x, const ignis_fft_desc *desc)
{
    static const ignis__fft_call call = {"ignis_irfft", "irfft", IGNIS__FFT_C2R, true};
    return ignis__fft(&call, x, desc);
}
