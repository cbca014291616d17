/*  >>ops.strided_copy - copies between arrays by strides: slice_step, permute, flip, expand, pad

    Joins dimensions, chooses packs, launches. Its gradient is the copy in the other direction. Uses:
    operation; kernels/shape.cu. */

#include "room.h"

/*  Joins dimensions that one stride serves. sorted: the largest strides of `to` first. False if there are no
    elements. */
IGNIS__PRIVATE bool ignis__strides_merge(const ignis__strides *strides, ignis__strided *strided, bool sorted)
{
    int i, d, at;
    memset(strided, 0, sizeof *strided);
    for (i = 0; i < strides->rank; i++) {
        if (strides->size[i] == 0)
            return false;
        if (strides->size[i] == 1)
            continue;
        for (at = strided->rank++; sorted && at > 0 && llabs(strided->to[at - 1]) < llabs(strides->to[i]); at--) {
            strided->size[at] = strided->size[at - 1];
            strided->from[at] = strided->from[at - 1];
            strided->to[at] = strided->to[at - 1];
        }
        strided->size[at] = strides->size[i];
        strided->from[at] = strides->from[i];
        strided->to[at] = strides->to[i];
    }
    for (d = 0, i = 1; i < strided->rank; i++) {
        if (strided->from[d] == strided->from[i] * strided->size[i] &&
            strided->to[d] == strided->to[i] * strided->size[i])
            strided->size[d] *= strided->size[i];
        else
            strided->size[++d] = strided->size[i];
        strided->from[d] = strided->from[i];
        strided->to[d] = strided->to[i];
    }
    strided->rank = strided->rank ? d + 1 : 0;
    return true;
}

/*  Returns whether strides, except that of one dimension (-1: none), are multiples of a pack. */
IGNIS__PRIVATE bool ignis__strides_packed(const long long *strides, int rank, int but, int64_t pack)
{
    int i;
    for (i = 0; i < rank; i++)
        if (i != but && strides[i] % pack)
            return false;
    return true;
}

IGNIS__PRIVATE void ignis__strided_finish(ignis__strided *k)
{
    int i;
    if (k->rank == 0)
        k->size[k->rank++] = 1;
    for (i = 0, k->count = 1; i < k->rank; i++) {
        ignis__divisor size = ignis__divisor_of(k->size[i]);
        k->count *= k->size[i];
        k->shift[i] = size.shift;
        k->multiplier[i] = size.multiplier;
    }
}

IGNIS__PRIVATE void ignis__op_strided(ignis__op *op, ignis__array *to, ignis__array *from,
                                      const ignis__strides *strides)
{
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, to);
    ignis__strided strided;
    int64_t pack = from ? ignis__pack_elements(from->dtype) : 1, rows, columns, src_row, dst_row, edge, blocks;
    int last, x, packs, gathers;
    void *params[] = {&target, &source, &strided, &packs, &gathers},
         *tiles[] = {&target, &source, &strided, &rows, &columns, &src_row, &dst_row, &packs};
    if (!op->ok || !ignis__strides_merge(strides, &strided, true))
        return;
    source += (uint64_t)strides->from_offset * (uint64_t)ignis__dtypes[from->dtype].size;
    target += (uint64_t)strides->to_offset * (uint64_t)ignis__dtypes[from->dtype].size;
    last = strided.rank - 1;
    for (x = 0; x < last; x++)
        if (strided.from[x] == 1 && strided.size[x] >= 16 && strided.size[last] >= 16 && strided.to[last] == 1)
            break;
    if (x < last) { /* contiguous along one dimension in one array, along another in the other */
        edge = ignis__dtypes[from->dtype].size <= 4 ? 64 : 32;
        rows = strided.size[last];
        src_row = strided.from[last];
        columns = strided.size[x];
        dst_row = strided.to[x];
        for (strided.rank = last - 1; x < strided.rank; x++) {
            strided.size[x] = strided.size[x + 1];
            strided.from[x] = strided.from[x + 1];
            strided.to[x] = strided.to[x + 1];
        }
        packs = (source | target) % 16 == 0 && (rows | columns | src_row | dst_row) % pack == 0 &&
                ignis__strides_packed(strided.from, strided.rank, -1, pack) &&
                ignis__strides_packed(strided.to, strided.rank, -1, pack);
        if (strided.rank == 0)
            strided.from[0] = strided.to[0] = 0;
        ignis__strided_finish(&strided);
        blocks = strided.count * ignis__ceil_div(rows, edge) * ignis__ceil_div(columns, edge);
        ignis__op_launch_row(op, IGNIS__BUILTIN(STRIDED_TILES), from->dtype, ignis__clamp(blocks, 1, INT32_MAX), 256,
                             tiles);
        return;
    }
    packs = last >= 0 && strided.to[last] == 1 && strided.size[last] % pack == 0 && target % 16 == 0 &&
            ignis__strides_packed(strided.to, strided.rank, last, pack);
    gathers = !packs || strided.from[last] != 1 || source % 16 != 0 ||
              !ignis__strides_packed(strided.from, strided.rank, last, pack);
    if (packs) {
        strided.step = strided.from[last];
        strided.size[last] /= pack;
        strided.from[last] *= pack;
        strided.to[last] *= pack;
    }
    ignis__strided_finish(&strided);
    ignis__op_launch_row(op, IGNIS__BUILTIN(STRIDED_COPY), from->dtype, ignis__ceil_div(strided.count, 1024), 256,
                         params);
}

/*  Operations that are one strided copy of each element, at most once: their gradient is that copy in the
    other direction. */
typedef struct ignis__strided_params {
    const char *call;
    ignis_shape shape; /* of the input */
    ignis__strides back;
    bool whole; /* every element of the input is copied */
} ignis__strided_params;

static ignis_status ignis__strided_backward(const ignis_backward_args *args)
{
    const ignis__strided_params *p = (const ignis__strided_params *)args->params;
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, p->call, args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &p->shape, op.in[0]->dtype);
    if (gradient && !p->whole)
        ignis__op_zero(&op, gradient);
    ignis__op_strided(&op, gradient, op.in[0], &p->back);
    return ignis__op_finish_backward(&op, args, 1, &gradient);
}

/*  The copy in the other direction, whose own gradient is the first one again. */
IGNIS__PRIVATE void ignis__vjp_of_strided(const ignis_vjp_args *args)
{
    const ignis__strided_params *p = (const ignis__strided_params *)args->params;
    ignis__strided_params there = *p;
    ignis__array *gradient;
    ignis__op op;
    int64_t numel = 1;
    int i;
    if (!ignis__op_begin(&op, p->call, 1, &args->grad_output))
        return;
    gradient = ignis__op_new(&op, &p->shape, op.in[0]->dtype);
    if (gradient && !p->whole)
        ignis__op_zero(&op, gradient);
    ignis__op_strided(&op, gradient, op.in[0], &p->back);
    for (i = 0; i < p->back.rank; i++)
        numel *= p->back.size[i];
    there.shape = op.in[0]->shape;
    there.whole = numel == op.in[0]->numel;
    memcpy(there.back.from, p->back.to, sizeof p->back.to);
    memcpy(there.back.to, p->back.from, sizeof p->back.from);
    there.back.from_offset = p->back.to_offset;
    there.back.to_offset = p->back.from_offset;
    args->grad_inputs[0] =
        ignis__op_end_recorded(&op, gradient, "strided", ignis__strided_backward, &there, sizeof there);
}

/*  Begins such an operation. The strides are those of an input that is copied as it is. */
IGNIS__PRIVATE bool ignis__strided_begin(ignis__op *op, const char *call, ignis_tensor tensor, ignis__strides *s)
{
    memset(s, 0, sizeof *s);
    if (!ignis__op_begin(op, call, 1, &tensor))
        return false;
    s->rank = op->in[0]->shape.ndim;
    memcpy(s->size, op->in[0]->shape.dim, sizeof s->size);
    ignis__shape_strides(&op->in[0]->shape, s->from);
    return true;
}

/*  Ends it. Strides of `to` that are 0 become those of the output. With a fill, the copy goes into the middle
    of it. */
IGNIS__PRIVATE ignis_tensor ignis__strided_end(ignis__op *op, const char *name, const ignis_shape *shape,
                                               ignis__strides *strides, const double *fill)
{
    ignis__array *out = ignis__op_new(op, shape, op->in[0]->dtype);
    ignis__strided_params params = IGNIS__ZERO;
    int64_t numel = 1;
    int i;
    if (out) {
        ignis__shape_strides(shape, strides->to);
        for (i = 0; i < strides->rank; i++)
            numel *= strides->size[i];
        if (fill && numel != out->numel)
            ignis__op_fill(op, out, *fill);
        ignis__op_strided(op, out, op->in[0], strides);
        params.call = op->work.call;
        params.shape = op->in[0]->shape;
        params.whole = numel == op->in[0]->numel;
        params.back = *strides;
        memcpy(params.back.from, strides->to, sizeof strides->to);
        memcpy(params.back.to, strides->from, sizeof strides->from);
        params.back.from_offset = strides->to_offset;
        params.back.to_offset = strides->from_offset;
    }
    return ignis__op_end_recorded(op, out, name, ignis__strided_backward, &params, sizeof params);
}
