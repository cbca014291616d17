/*  >>ops.rope - ignis_rope: rotates pairs of elements by angles of their position

    Frequencies are computed in f64 on the host, or read from an array on the device. The gradient rotates
    back.
    Uses: operation; kernels/rope.cu. */

#include "room.h"

/*  Returns the root of x of some degree, by Newton's method: pow of the C library would have to be linked. */
IGNIS__PRIVATE double ignis__root_of_degree(double x, int degree)
{
    double root = 1, power, factor, step = 1;
    int i, exponent;
    for (i = 0; i < 2000 && (step > 1e-15 || step < -1e-15); i++) {
        power = 1;
        factor = root;
        for (exponent = degree; exponent; exponent >>= 1) {
            power *= exponent & 1 ? factor : 1;
            factor *= factor;
        }
        step = (x / power - 1) / degree;
        step = step > 0.5 ? 0.5 : step;
        root *= 1 + step;
    }
    return root;
}

IGNIS__PRIVATE double ignis__square_root(double x) { return ignis__root_of_degree(x, 2); }

/*  Multiplies a double-double number, x + low, by another. The error of the product is exact (Dekker: A
    Floating-Point Technique for Extending the Available Precision, 1971). */
static void ignis__multiply_double_double(double *x, double *low, double y, double y_low)
{
    double product = *x * y, x_most = *x * 134217729, y_most = y * 134217729, error;
    x_most -= x_most - *x;
    y_most -= y_most - y;
    error = x_most * y_most - product;
    error += x_most * (y - y_most) + (*x - x_most) * y_most;
    error += (*x - x_most) * (y - y_most) + *x * y_low + *low * y;
    *x = product + error;
    *low = error - (*x - product);
}

/*  Computes the frequencies base^(-i / count). exact: for angles in f64; powers of a rounded root have errors
    that grow with the power. */
static void ignis__rope_frequencies(double *frequencies, int count, double base, bool exact)
{
    double ratio = ignis__root_of_degree(1 / base, count), ratio_low = 0, power = base, power_low = 0, low = 0;
    int i;
    for (i = 0; exact && i < count; i++)
        ignis__multiply_double_double(&power, &power_low, ratio, 0);
    if (exact)
        ratio_low = ratio * ((1 - power - power_low) / count);
    frequencies[0] = 1;
    for (i = 1; i < count; i++) {
        frequencies[i] = frequencies[i - 1];
        if (exact)
            ignis__multiply_double_double(&frequencies[i], &low, ratio, ratio_low);
        else
            frequencies[i] *= ratio;
    }
}

/*  Rounds frequencies for dtypes whose angles are in f32. Returns `to`. */
IGNIS__PRIVATE float *ignis__rope_round_frequencies(float *to, const double *frequencies)
{
    int i;
    for (i = 0; i < IGNIS__ROPE_HALF; i++)
        to[i] = (float)frequencies[i];
    return to;
}

/*  Rotates the heads at the beginning of rows of x into rows of y, which may be x. own: frequencies on the
    device; NULL: those of the parameters. */
IGNIS__PRIVATE void ignis__rope_rotate(ignis__op *op, ignis__rope *rope, ignis_dtype dtype, ignis__rope_rows y,
                                       ignis__rope_rows x, ignis__array *own, double direction)
{
    ignis__rope_params p;
    int64_t pack = ignis__pack_elements(dtype), threads;
    float frequencies[IGNIS__ROPE_HALF];
    void *params[] = {&y.address, &x.address, &p, rope->frequencies};
    p.y_row = y.row;
    p.x_row = x.row;
    p.rows = rope->rows;
    p.seq = rope->seq;
    p.offset = rope->offset;
    p.bounds = rope->bounds;
    p.direction = direction;
    p.own = own ? ignis__op_read(op, own) : 0;
    p.heads = rope->heads;
    p.half = rope->half;
    p.own_is_wide = own && own->dtype == IGNIS_F64;
    p.packed = !p.own_is_wide && p.half % pack == 0 && (x.row | y.row) % pack == 0 && (x.address | y.address) % 16 == 0;
    if (dtype != IGNIS_F64)
        params[3] = ignis__rope_round_frequencies(frequencies, rope->frequencies);
    threads = p.rows * (p.packed ? p.half / pack : p.half) * ignis__ceil_div(p.heads, IGNIS__ROPE_HEADS);
    ignis__op_launch_row(op, IGNIS__BUILTIN(ROPE), dtype, ignis__ceil_div(threads, IGNIS__ROPE_THREADS),
                         IGNIS__ROPE_THREADS, params);
}

/*  As ignis__rope_rotate, for full rows, from the operation's input to an array like it. */
static void ignis__rope_run(ignis__op *op, ignis__rope *rope, ignis__array *out, ignis__array *own, double direction)
{
    ignis__rope_rows x, y;
    x.address = ignis__op_read(op, op->in[0]);
    y.address = ignis__op_write(op, out);
    x.row = y.row = (int64_t)2 * rope->heads * rope->half;
    ignis__rope_rotate(op, rope, op->in[0]->dtype, y, x, own, direction);
}

static ignis_status ignis__rope_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *dx;
    ignis__rope rope;
    if (!ignis__op_begin_backward(&op, "ignis_rope", args))
        return ignis__failed();
    memcpy(&rope, args->params, sizeof rope);
    dx = ignis__op_new_like(&op, op.in[0]);
    if (rope.bounds)
        rope.bounds = ignis__op_read(&op, op.in[args->saved_count]);
    ignis__rope_run(&op, &rope, dx, args->saved_count > (rope.bounds != 0) ? op.in[1] : NULL, -rope.direction);
    return ignis__op_finish_backward(&op, args, 1, &dx);
}

/*  Rotates x by a rotation that has been checked, recorded. own: frequencies; bounds: of documents. Each may be
    NULL. */
IGNIS__PRIVATE ignis_tensor ignis__rope_recorded(ignis_tensor x, const ignis__rope *rope, ignis__array *own,
                                                 ignis__array *bounds)
{
    ignis__rope rotation = *rope;
    ignis__array *out;
    ignis__op op;
    if (!ignis__op_begin(&op, "ignis_rope", 1, &x))
        return ignis__no_tensor();
    out = ignis__op_new_like(&op, op.in[0]);
    rotation.bounds = bounds ? ignis__op_read(&op, bounds) : 0;
    ignis__rope_run(&op, &rotation, out, own, rotation.direction);
    ignis__op_save(&op, own);
    ignis__op_save(&op, bounds); /* the last one */
    return ignis__op_end_recorded(&op, out, "rope", ignis__rope_backward, &rotation, sizeof rotation);
}

/*  Rotates the gradient back. */
IGNIS__PRIVATE void ignis__vjp_of_rope(const ignis_vjp_args *args)
{
    ignis__array *const *saved = args->node->saved, *bounds;
    int count = args->node->saved_count;
    ignis__rope rope;
    memcpy(&rope, args->params, sizeof rope);
    rope.direction = -rope.direction;
    bounds = rope.bounds ? saved[--count] : NULL;
    args->grad_inputs[0] = ignis__rope_recorded(args->grad_output, &rope, count ? saved[0] : NULL, bounds);
}

/*  Checks that the caller's frequencies on the device fit heads of `pairs` pairs. */
static bool ignis__rope_check_frequency_array(ignis__op *op, const ignis_rope_desc *desc, const ignis__array *own,
                                              int pairs)
{
    if (desc->inv_freq || desc->inv_freq_f64 || desc->inv_freq_count)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "both desc->inv_freq%s and desc->inv_freq_array are given",
                              desc->inv_freq_f64 ? "_f64" : "");
    if (!ignis__op_same_device(op, own, "inv_freq_array"))
        return false;
    if (own->dtype != IGNIS_F32 && (own->dtype != IGNIS_F64 || op->in[0]->dtype != IGNIS_F64))
        return ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "desc->inv_freq_array is %s; f32 is needed%s",
                              ignis__dtypes[own->dtype].name, op->in[0]->dtype == IGNIS_F64 ? ", or f64" : "");
    if (own->numel != pairs)
        return ignis__op_fail(op, IGNIS_DIAG_COUNT_MISMATCH,
                              "desc->inv_freq_array is %s; heads of %d elements have %d frequencies",
                              ignis__shape_write(&own->shape).text, 2 * pairs, pairs);
    return true;
}

/*  Sets the parameters for heads at the beginning of the input's rows. Reports what does not fit. */
IGNIS__PRIVATE bool ignis__rope_prepare(ignis__op *op, const ignis_rope_desc *desc, const ignis__array *own, int heads,
                                        int64_t head_dim, ignis__rope *rope)
{
    const ignis_shape *shape = &op->in[0]->shape;
    double base;
    int i;
    memset(rope, 0, sizeof *rope);
    base = desc->base == 0 ? 10000.0 : desc->base;
    if (head_dim % 2 != 0)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS,
                              "%s has heads of %lld elements, which cannot be rotated in pairs",
                              ignis__shape_write(shape).text, (long long)head_dim);
    if (head_dim > 2 * IGNIS__ROPE_HALF) /* too many for the parameters */
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "heads have %lld elements, more than %d", (long long)head_dim,
                              2 * IGNIS__ROPE_HALF);
    if (!(base > 0 && base < 1e300))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->base is %g, not a positive number", desc->base);
    if (desc->pos_offset > INT32_MAX || desc->pos_offset < -INT32_MAX)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->pos_offset is %lld, beyond 2^31",
                              (long long)desc->pos_offset);
    rope->heads = heads;
    rope->half = (int)(head_dim / 2);
    rope->seq = shape->ndim > 1 ? shape->dim[shape->ndim - 2] : 1;
    rope->rows = op->in[0]->numel / shape->dim[shape->ndim - 1];
    rope->offset = desc->pos_offset;
    rope->direction = 1;
    if (own)
        return ignis__rope_check_frequency_array(op, desc, own, rope->half);
    if (desc->inv_freq && desc->inv_freq_f64)
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "both desc->inv_freq and desc->inv_freq_f64 are given");
    if ((desc->inv_freq || desc->inv_freq_f64 || desc->inv_freq_count) && desc->inv_freq_count != rope->half)
        return ignis__op_fail(op, IGNIS_DIAG_COUNT_MISMATCH,
                              "desc->inv_freq_count is %d; heads of %d elements have %d frequencies",
                              desc->inv_freq_count, 2 * rope->half, rope->half);
    if (desc->inv_freq_count && !desc->inv_freq && !desc->inv_freq_f64)
        return ignis__op_fail(op, IGNIS_DIAG_NULL_ARGUMENT, "desc->inv_freq is null");
    for (i = 0; i < desc->inv_freq_count; i++)
        rope->frequencies[i] = desc->inv_freq ? (double)desc->inv_freq[i] : desc->inv_freq_f64[i];
    if (!desc->inv_freq_count)
        ignis__rope_frequencies(rope->frequencies, rope->half, base, op->in[0]->dtype == IGNIS_F64);
    return true;
}

/*  Holds the frequencies that the caller has on the device. NULL if there are none, or if the operation has
    failed. */
IGNIS__PRIVATE ignis__array *ignis__rope_frequency_array(ignis__op *op, const ignis_rope_desc *desc)
{
    ignis__array *own = NULL;
    if (op->ok && desc->inv_freq_array.id)
        op->ok = (own = ignis__array_hold(op->work.call, desc->inv_freq_array)) != NULL;
    return own;
}

IGNIS_API ignis_tensor ignis_rope(ignis_tensor tensor, const ignis_rope_desc *desc)
{
    static const char call[] = "ignis_rope";
    ignis__op op;
    ignis__rope rope;
    ignis__array *out = NULL, *own = NULL;
    ignis_tensor result;
    int64_t width;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    width = op.in[0]->shape.dim[op.in[0]->shape.ndim - 1];
    if (!desc)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "desc is null");
    else if (desc->num_heads < 1)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "desc->num_heads is %d, below 1", desc->num_heads);
    else if (ignis__op_is_float(&op, 0, "x") && (width == 0 || width % (2 * (int64_t)desc->num_heads) != 0))
        ignis__op_fail(
            &op, IGNIS_DIAG_SHAPE_DIFFERS,
            "x is %s; its last dimension has to be %d heads of an even number of elements, which are rotated in pairs",
            ignis__shape_write(&op.in[0]->shape).text, desc->num_heads);
    else
        own = ignis__rope_frequency_array(&op, desc);
    if (op.ok && ignis__rope_prepare(&op, desc, own, desc->num_heads, width / desc->num_heads, &rope)) {
        out = ignis__op_new_like(&op, op.in[0]);
        ignis__rope_run(&op, &rope, out, own, 1);
        if (own && op.records) /* through a view: the array itself stays the caller's */
            ignis__op_save(&op, ignis__op_view(&op, own, &own->shape, own->numel, 0));
    }
    result = ignis__op_end_recorded(&op, out, "rope", ignis__rope_backward, &rope, sizeof rope);
    if (own)
        ignis__array_drop(call, own);
    return result;
}
