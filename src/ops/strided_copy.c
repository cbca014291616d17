/*  >>ops.strided_copy - copies between arrays by strides: slice_step, permute, flip, expand, pad

    Joins dimensions, chooses packs, launches. Its gradient is the copy in the other direction. Uses:
    operation; kernels/shape.cu. */

/*  A copy: to[to_offset + sum of i[d] * to[d]] = from[from_offset + sum of i[d] * from[d]] for every i below
    size; in elements. */
typedef struct ignis__strides {
    int rank;
    int64_t size[IGNIS_MAX_DIMS], from[IGNIS_MAX_DIMS], to[IGNIS_MAX_DIMS], from_offset, to_offset;
} ignis__strides;

/*  The parameter of the kernels: see kernels/shape.cu. */
typedef struct ignis__strided {
    int64_t size[IGNIS_MAX_DIMS], from[IGNIS_MAX_DIMS], to[IGNIS_MAX_DIMS];
    uint32_t multiplier[IGNIS_MAX_DIMS], shift[IGNIS_MAX_DIMS];
    int64_t count, step;
    int rank;
} ignis__strided;

static void ignis__shape_strides(const ignis_shape *shape, int64_t *strides)
{
    int i;
    int64_t stride = 1;
    for (i = shape->ndim - 1; i >= 0; stride *= shape->dim[i--])
        strides[i] = stride;
}

/*  Joins dimensions that one stride serves. sorted: the largest strides of `to` first. False if there are no
    elements. */
static bool ignis__strides_merge(const ignis__strides *s, ignis__strided *k, bool sorted)
{
    int i, d, at;
    memset(k, 0, sizeof *k);
    for (i = 0; i < s->rank; i++) {
        if (s->size[i] == 0)
            return false;
        if (s->size[i] == 1)
            continue;
        for (at = k->rank++; sorted && at > 0 && llabs(k->to[at - 1]) < llabs(s->to[i]); at--) {
            k->size[at] = k->size[at - 1];
            k->from[at] = k->from[at - 1];
            k->to[at] = k->to[at - 1];
        }
        k->size[at] = s->size[i];
        k->from[at] = s->from[i];
        k->to[at] = s->to[i];
    }
    for (d = 0, i = 1; i < k->rank; i++) {
        if (k->from[d] == k->from[i] * k->size[i] && k->to[d] == k->to[i] * k->size[i])
            k->size[d] *= k->size[i];
        else
            k->size[++d] = k->size[i];
        k->from[d] = k->from[i];
        k->to[d] = k->to[i];
    }
    k->rank = k->rank ? d + 1 : 0;
    return true;
}

/*  Returns whether strides, except that of one dimension (-1: none), are multiples of a pack. */
static bool ignis__strides_packed(const int64_t *strides, int rank, int but, int64_t pack)
{
    int i;
    for (i = 0; i < rank; i++)
        if (i != but && strides[i] % pack)
            return false;
    return true;
}

static void ignis__strided_finish(ignis__strided *k)
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

static void ignis__op_strided(ignis__op *op, ignis__array *to, ignis__array *from, const ignis__strides *s)
{
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, to);
    ignis__strided k;
    int64_t pack = from ? ignis__pack_elements(from->dtype) : 1, rows, columns, src_row, dst_row, edge, blocks;
    int last, x, packs, gathers;
    void *params[] = {&target, &source, &k, &packs, &gathers},
         *tiles[] = {&target, &source, &k, &rows, &columns, &src_row, &dst_row, &packs};
    if (!op->ok || !ignis__strides_merge(s, &k, true))
        return;
    source += (uint64_t)s->from_offset * (uint64_t)ignis__dtypes[from->dtype].size;
    target += (uint64_t)s->to_offset * (uint64_t)ignis__dtypes[from->dtype].size;
    last = k.rank - 1;
    for (x = 0; x < last; x++)
        if (k.from[x] == 1 && k.size[x] >= 16 && k.size[last] >= 16 && k.to[last] == 1)
            break;
    if (x < last) { /* contiguous along one dimension in one array, along another in the other */
        edge = ignis__dtypes[from->dtype].size <= 4 ? 64 : 32;
        rows = k.size[last];
        src_row = k.from[last];
        columns = k.size[x];
        dst_row = k.to[x];
        for (k.rank = last - 1; x < k.rank; x++) {
            k.size[x] = k.size[x + 1];
            k.from[x] = k.from[x + 1];
            k.to[x] = k.to[x + 1];
        }
        packs = (source | target) % 16 == 0 && (rows | columns | src_row | dst_row) % pack == 0 &&
                ignis__strides_packed(k.from, k.rank, -1, pack) && ignis__strides_packed(k.to, k.rank, -1, pack);
        if (k.rank == 0)
            k.from[0] = k.to[0] = 0;
        ignis__strided_finish(&k);
        blocks = k.count * ignis__ceil_div(rows, edge) * ignis__ceil_div(columns, edge);
        ignis__op_launch_row(op, IGNIS__BUILTIN_STRIDED_TILES, from->dtype, ignis__clamp(blocks, 1, INT32_MAX), 256,
                             tiles);
        return;
    }
    packs = last >= 0 && k.to[last] == 1 && k.size[last] % pack == 0 && target % 16 == 0 &&
            ignis__strides_packed(k.to, k.rank, last, pack);
    gathers = !packs || k.from[last] != 1 || source % 16 != 0 || !ignis__strides_packed(k.from, k.rank, last, pack);
    if (packs) {
        k.step = k.from[last];
        k.size[last] /= pack;
        k.from[last] *= pack;
        k.to[last] *= pack;
    }
    ignis__strided_finish(&k);
    ignis__op_launch_row(op, IGNIS__BUILTIN_STRIDED_COPY, from->dtype, ignis__ceil_div(k.count, 1024), 256, params);
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

/*  Begins such an operation. The strides are those of an input that is copied as it is. */
static bool ignis__strided_begin(ignis__op *op, const char *call, ignis_tensor tensor, ignis__strides *s)
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
static ignis_tensor ignis__strided_end(ignis__op *op, const char *name, const ignis_shape *shape, ignis__strides *s,
                                       const double *fill)
{
    ignis__array *out = ignis__op_new(op, shape, op->in[0]->dtype);
    ignis__strided_params p = IGNIS__ZERO;
    int64_t numel = 1;
    int i;
    if (out) {
        ignis__shape_strides(shape, s->to);
        for (i = 0; i < s->rank; i++)
            numel *= s->size[i];
        if (fill && numel != out->numel)
            ignis__op_fill(op, out, *fill);
        ignis__op_strided(op, out, op->in[0], s);
        p.call = op->work.call;
        p.shape = op->in[0]->shape;
        p.whole = numel == op->in[0]->numel;
        p.back = *s;
        memcpy(p.back.from, s->to, sizeof s->to);
        memcpy(p.back.to, s->from, sizeof s->from);
        p.back.from_offset = s->to_offset;
        p.back.to_offset = s->from_offset;
    }
    return ignis__op_end_recorded(op, out, name, ignis__strided_backward, &p, sizeof p);
}
