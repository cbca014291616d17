/*  >>ops.fft.complex - ignis_complex_mul and ignis_fft_conv

    The gradients of a product are products by conjugates.
    Uses: operation, expand, pad, slice_step, fft; kernels POINTWISE. */

#include "room.h"

/*  Multiplies arrays of one shape. conjugates: bit 0: of a, bit 1: of b. */
static ignis__array *ignis__complex_product(ignis__op *op, ignis__array *a, ignis__array *b, int conjugates)
{
    ignis__array *operands[] = {a, b};
    ignis__address to, from[2];
    ignis__array *out = ignis__op_new_like(op, a);
    int64_t n = a->numel / 2;
    int of_a = conjugates & 1, of_b = conjugates >> 1 & 1, i;
    void *params[] = {&to, &from[0], &from[1], &n, &of_a, &of_b};
    for (i = 0; i < 2; i++) {
        from[i] = ignis__op_read(op, operands[i]);
        if (from[i] % (2 * (uint64_t)ignis__dtypes[a->dtype].size)) { /* a view that begins anywhere */
            ignis__array *copy = ignis__op_new_like(op, a);
            ignis__op_copy(op, copy, operands[i]);
            from[i] = ignis__op_read(op, copy);
        }
    }
    to = ignis__op_write(op, out);
    ignis__op_launch_row(op, IGNIS__BUILTIN(COMPLEX_MUL), a->dtype,
                         ignis__clamp(ignis__ceil_div(n, 1024), n > 0, 1 << 20), 256, params);
    return out;
}

/*  With y = a b: da = g conj(b), db = g conj(a). With y = a conj(b): da = g b, db = conj(g) a. */
static ignis_status ignis__complex_mul_backward(const ignis_backward_args *args)
{
    const bool conjugates = *(const int *)args->params != 0;
    ignis__array *gradients[2] = {NULL, NULL};
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_complex_mul", args))
        return ignis__failed();
    if (args->needed[0])
        gradients[0] = ignis__complex_product(&op, op.in[0], op.in[2], conjugates ? 0 : 2);
    if (args->needed[1])
        gradients[1] = ignis__complex_product(&op, op.in[0], op.in[1], conjugates ? 1 : 2);
    return ignis__op_finish_backward(&op, args, 2, gradients);
}

IGNIS__PRIVATE void ignis__vjp_of_complex_mul(const ignis_vjp_args *args)
{
    const bool conjugates = *(const int *)args->params != 0;
    const ignis_tensor g = args->grad_output;
    if (args->needed[0])
        args->grad_inputs[0] = ignis_complex_mul(g, ignis__vjp_input(args, 1, 1), !conjugates);
    if (args->needed[1]) {
        const ignis_tensor a = ignis__vjp_input(args, 0, 0);
        args->grad_inputs[1] = conjugates ? ignis_complex_mul(a, g, true) : ignis_complex_mul(g, a, true);
    }
}

/*  Broadcasts two shapes, whose last dimensions are 2. False, and reported, if they do not. */
static bool ignis__complex_broadcast(ignis__op *op, ignis_shape *shape)
{
    const ignis_shape *a = &op->in[0]->shape, *b = &op->in[1]->shape;
    int i;
    *shape = a->ndim > b->ndim ? *a : *b;
    for (i = 1; i <= shape->ndim; i++) {
        const int64_t of_a = i > a->ndim ? 1 : a->dim[a->ndim - i], of_b = i > b->ndim ? 1 : b->dim[b->ndim - i];
        if (i == 1 && (of_a != 2 || of_b != 2))
            return ignis__op_fail(
                op, IGNIS_DIAG_SHAPE_DIFFERS,
                "a is %s, b is %s; their last dimensions have to be 2, the real and the imaginary part",
                ignis__shape_write(a).text, ignis__shape_write(b).text);
        if (of_a != of_b && of_a != 1 && of_b != 1)
            return ignis__op_fail(op, IGNIS_DIAG_BROADCAST_SHAPE, "a is %s, b is %s, which do not broadcast",
                                  ignis__shape_write(a).text, ignis__shape_write(b).text);
        shape->dim[shape->ndim - i] = of_a == 1 ? of_b : of_a;
    }
    return true;
}

IGNIS_API ignis_tensor ignis_complex_mul(ignis_tensor a, ignis_tensor b, bool conjugates)
{
    static const char call[] = "ignis_complex_mul";
    ignis_tensor inputs[] = {a, b}, result;
    ignis__array *out = NULL;
    ignis_shape shape;
    ignis__op op;
    int kind = conjugates, i;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    if (ignis__op_is_float(&op, 0, "a") && ignis__op_same_dtype(&op, 1, "b") && ignis__complex_broadcast(&op, &shape)) {
        if (!ignis__shape_same(&op.in[0]->shape, &op.in[1]->shape)) { /* again, with expanded operands */
            ignis__op_leave(&op);
            inputs[0] = ignis_expand(a, shape);
            inputs[1] = ignis_expand(b, shape);
            result = ignis_complex_mul(inputs[0], inputs[1], conjugates);
            for (i = 0; i < 2; i++)
                if (inputs[i].id)
                    (void)ignis_tensor_release(inputs[i]);
            return result;
        }
        out = ignis__complex_product(&op, op.in[0], op.in[1], conjugates ? 2 : 0);
    }
    ignis__op_save_inputs(&op, 0, 2);
    return ignis__op_end_recorded(&op, out, "complex_mul", ignis__complex_mul_backward, &kind, sizeof kind);
}

IGNIS_API ignis_tensor ignis_fft_conv(ignis_tensor x, ignis_tensor w, int ndim)
{
    static const char call[] = "ignis_fft_conv";
    ignis_tensor made[6] = IGNIS__ZERO, inputs[2], result;
    ignis_fft_desc desc = IGNIS__ZERO;
    int64_t lengths[3] = {0, 0, 0};
    ignis_shape a, b;
    ignis__op op;
    int count = 0, i;
    inputs[0] = x;
    inputs[1] = w;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    a = op.in[0]->shape;
    b = op.in[1]->shape;
    if (ndim < 1 || ndim > 3)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "ndim is %d; expected 1 to 3", ndim);
    else if (a.ndim < ndim || b.ndim < ndim)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s, w is %s; expected %d dimensions or more",
                       ignis__shape_write(&a).text, ignis__shape_write(&b).text, ndim);
    for (i = 0; op.ok && i < ndim; i++) {
        const int64_t of_x = a.dim[a.ndim - ndim + i], of_w = b.dim[b.ndim - ndim + i];
        if (of_x < 1 || of_w < 1 || of_x > IGNIS__FFT_LONGEST || of_w > IGNIS__FFT_LONGEST) {
            ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "x is %s, w is %s; expected 1 to 2^29 points in dimension %d",
                           ignis__shape_write(&a).text, ignis__shape_write(&b).text, i - ndim);
        } else {
            lengths[i] = of_x + of_w - 1;
            desc.lengths[i] = ignis__fft_smooth_up(lengths[i]);
        }
    }
    if (ignis__op_leave(&op) != IGNIS_OK)
        return ignis__no_tensor();
    desc.ndim = ndim;
    made[count++] = ignis_rfft(x, &desc);
    made[count++] = ignis_rfft(w, &desc);
    made[count++] = ignis_complex_mul(made[0], made[1], false);
    result = ignis_irfft(made[2], &desc);
    for (i = 0; i < ndim; i++)
        if (lengths[i] < desc.lengths[i]) {
            made[count++] = result;
            result = ignis_slice(made[count - 1], i - ndim, 0, lengths[i]);
        }
    for (i = 0; i < count; i++)
        if (made[i].id)
            (void)ignis_tensor_release(made[i]);
    return result;
}
