/*  >>ops.pad - ignis_pad_reflect, ignis_pad_replicate and ignis_pad_circular: a tensor's own elements around it

    One kernel for any padded dimensions; others that are adjacent become one. Linear; the gradient sums an element's
    copies in a fixed order.
    Uses: operation; kernels/border.cu. */

#include "room.h"

/*  Values that both directions need. */
typedef struct ignis__pad_border {
    const char *call;
    ignis_shape src, dst;
    int64_t before[IGNIS_MAX_DIMS];
    int mode;
} ignis__pad_border;

/*  Describes both arrays, with dimensions joined that are not padded. */
static void ignis__border_set(ignis__border *border, const ignis__pad_border *p)
{
    int64_t src = 1, dst = 1;
    bool joins = false;
    int i, k;
    memset(border, 0, sizeof *border);
    for (i = 0; i < p->src.ndim; i++) {
        bool padded = p->src.dim[i] != p->dst.dim[i];
        if (padded || !joins)
            border->src[border->rank] = border->dst[border->rank] = 1, border->rank++;
        k = border->rank - 1;
        joins = !padded;
        border->src[k] *= p->src.dim[i];
        border->dst[k] *= p->dst.dim[i];
        border->before[k] = p->before[i];
    }
    for (k = border->rank - 1; k >= 0; k--) {
        border->src_stride[k] = src;
        border->dst_stride[k] = dst;
        src *= border->src[k];
        dst *= border->dst[k];
    }
    border->mode = p->mode;
}

/*  Returns op->in[0] with its border, or with `back` the sum of each element's copies. */
static ignis__array *ignis__pad_border_linear(ignis__op *op, const void *params, bool back)
{
    const ignis__pad_border *p = (const ignis__pad_border *)params;
    ignis_dtype dtype = op->in[0]->dtype;
    ignis__array *to = ignis__op_new(op, back ? &p->src : &p->dst, dtype);
    ignis__address source = ignis__op_read(op, op->in[0]), target = ignis__op_write(op, to);
    ignis__border border;
    int64_t pack = ignis__pack_elements(dtype);
    int last, k;
    void *kernel[] = {&target, &source, &border};
    if (!op->ok || to->numel == 0)
        return to;
    ignis__border_set(&border, p);
    last = border.rank - 1;
    border.packed = last >= 0 && border.src[last] == border.dst[last] && border.src[last] % pack == 0 &&
                    (source | target) % 16 == 0;
    if (border.packed) {
        border.src[last] /= pack;
        border.dst[last] /= pack;
        border.src_stride[last] = border.dst_stride[last] = pack;
    }
    border.count = border.packed ? to->numel / pack : to->numel;
    for (k = 0; k < border.rank; k++)
        border.by[k] = ignis__divisor_of(back ? border.src[k] : border.dst[k]);
    ignis__op_launch_row(op, back ? IGNIS__BUILTIN(PAD_BORDER_BACKWARD) : IGNIS__BUILTIN(PAD_BORDER), dtype,
                         ignis__clamp(ignis__ceil_div(border.count, IGNIS__BORDER_THREADS), 1, INT32_MAX),
                         IGNIS__BORDER_THREADS, kernel);
    return to;
}

static ignis_status ignis__pad_border_backward(const ignis_backward_args *args)
{
    const ignis__pad_border *p = (const ignis__pad_border *)args->params;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, p->call, args))
        return ignis__failed();
    return ignis__op_finish_backward_one(&op, args, ignis__pad_border_linear(&op, p, true));
}

IGNIS__PRIVATE void ignis__vjp_of_pad_border(const ignis_vjp_args *args)
{
    ignis__vjp_linear(args, ignis__pad_border_linear, args->params, sizeof(ignis__pad_border), true);
}

/*  Checks the padding of dimension i, and sets its size in dst. */
static void ignis__pad_border_check(ignis__op *op, ignis__pad_border *p, int i, int64_t low, int64_t high)
{
    static const char *const most[] = {"expected less than the size", "expected an element to repeat",
                                       "expected at most the size"};
    int64_t size = p->src.dim[i], limit = p->mode == IGNIS__BORDER_REFLECT    ? size - 1
                                          : p->mode == IGNIS__BORDER_CIRCULAR ? size
                                                                              : INT64_MAX;
    limit = size == 0 ? 0 : limit;
    if (low < 0 || high < 0)
        ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER,
                       "dimension %d is padded by %lld and %lld; ignis_slice makes it shorter", i, (long long)low,
                       (long long)high);
    else if (low > limit || high > limit)
        ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "dimension %d of %s is padded by %lld and %lld; %s", i,
                       ignis__shape_write(&p->src).text, (long long)low, (long long)high, most[p->mode]);
    else if (low > INT64_MAX - size || high > INT64_MAX - size - low)
        ignis__op_fail(op, IGNIS_DIAG_SHAPE_OVERFLOW,
                       "dimension %d of %s, padded by %lld and %lld, is more than 63 bits can count", i,
                       ignis__shape_write(&p->src).text, (long long)low, (long long)high);
    else
        p->dst.dim[i] += low + high;
    p->before[i] = low;
}

static ignis_tensor ignis__pad_by_border(const char *call, int mode, ignis_tensor tensor, const int64_t *before,
                                         const int64_t *after, int count)
{
    ignis__pad_border p = IGNIS__ZERO;
    ignis__array *out = NULL;
    int64_t numel;
    ignis__op op;
    int i;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    p.call = call;
    p.mode = mode;
    p.src = p.dst = op.in[0]->shape;
    if (count != p.src.ndim)
        ignis__op_fail(&op, IGNIS_DIAG_COUNT_MISMATCH, "count is %d, the tensor is %s", count,
                       ignis__shape_write(&p.src).text);
    for (i = 0; op.ok && i < count; i++)
        ignis__pad_border_check(&op, &p, i, before ? before[i] : 0, after ? after[i] : 0);
    op.ok = op.ok && ignis__shape_check(call, &p.dst, op.in[0]->dtype, &numel);
    if (op.ok)
        out = ignis__pad_border_linear(&op, &p, false);
    return ignis__op_end_recorded(&op, out, "pad_border", ignis__pad_border_backward, &p, sizeof p);
}

IGNIS_API ignis_tensor ignis_pad_reflect(ignis_tensor tensor, const int64_t *before, const int64_t *after, int count)
{
    return ignis__pad_by_border("ignis_pad_reflect", IGNIS__BORDER_REFLECT, tensor, before, after, count);
}

IGNIS_API ignis_tensor ignis_pad_replicate(ignis_tensor tensor, const int64_t *before, const int64_t *after, int count)
{
    return ignis__pad_by_border("ignis_pad_replicate", IGNIS__BORDER_REPLICATE, tensor, before, after, count);
}

IGNIS_API ignis_tensor ignis_pad_circular(ignis_tensor tensor, const int64_t *before, const int64_t *after, int count)
{
    return ignis__pad_by_border("ignis_pad_circular", IGNIS__BORDER_CIRCULAR, tensor, before, after, count);
}
