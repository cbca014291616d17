/*  >>ops.index - gather, index_select, scatter_add: elements by index along a dimension

    Sums by index have a fixed order: rows in a warp, or sorted ids. Uses: embedding, radix_sort,
    strided_copy. */

#include "room.h"

/*  Describes the indexing; strides.to is left to the caller. */
IGNIS__PRIVATE void ignis__indexing_make(ignis__indexing *x, const char *call, const ignis_shape *indexed, int dim,
                                         const ignis_shape *shape)
{
    memset(x, 0, sizeof *x);
    x->call = call;
    x->shape = *indexed;
    x->dim = dim;
    x->size = indexed->dim[dim];
    x->strides.rank = shape->ndim;
    memcpy(x->strides.size, shape->dim, sizeof shape->dim);
    ignis__shape_strides(indexed, x->strides.from);
    x->dim_stride = x->strides.from[dim];
    x->strides.from[dim] = 0;
}

/*  GATHER: to[i] = from[position of i]; an index outside gives 0, or NaN in a floating type. SCATTER:
    to[position of i] = from[i], where no two positions are equal. */
IGNIS__PRIVATE void ignis__op_indexed(ignis__op *op, ignis__builtin builtin, ignis__array *to, ignis__array *from,
                                      ignis__array *ids, const ignis__indexing *indexing, int nan)
{
    ignis__address source = ignis__op_read(op, from), indices = ignis__op_read(op, ids),
                   target = ignis__op_write(op, to);
    ignis__strided strided;
    int64_t pack, size = indexing->size, dim_stride = indexing->dim_stride;
    int id_bytes = (int)ignis__dtypes[ids->dtype].size, packs, last;
    void *params[] = {&target, &source, &indices, &id_bytes, &strided, &size, &dim_stride, &nan, &packs};
    if (!op->ok || !ignis__strides_merge(&indexing->strides, &strided, false))
        return;
    pack = ignis__pack_elements(to->dtype);
    last = strided.rank - 1;
    packs = builtin == IGNIS__BUILTIN(GATHER) && last >= 0 && strided.from[last] == 1 && strided.to[last] == 0 &&
            (strided.size[last] | dim_stride) % pack == 0 && (source | target) % 16 == 0 &&
            ignis__strides_packed(strided.from, strided.rank, last, pack);
    if (packs) {
        strided.size[last] /= pack;
        strided.from[last] *= pack;
    }
    ignis__strided_finish(&strided);
    ignis__op_launch_row(op, builtin, to->dtype,
                         ignis__ceil_div(strided.count, builtin == IGNIS__BUILTIN(GATHER) ? 1024 : 256), 256, params);
}

/*  Returns the rows of `to` along its last dimension if each gets the sums of its own row of n elements,
    which a warp can hold; else 0. */
static int64_t ignis__scatter_rows(const ignis__op *op, const ignis__array *to, const ignis__indexing *x, int64_t *n)
{
    const ignis_device_info *info = &op->work.device->info;
    int64_t rows = x->size ? to->numel / x->size : 0;
    int i;
    *n = x->dim == x->shape.ndim - 1 ? x->strides.size[x->dim] : 0;
    for (i = 0; i < x->dim; i++)
        if (x->strides.size[i] != x->shape.dim[i])
            return 0;
    return *n && (*n <= 8192 || rows >= info->multiprocessors) && rows <= INT32_MAX &&
                   x->size * ignis__dtypes[ignis__sum_dtype(to->dtype)].size <= info->shared_per_block
               ? rows
               : 0;
}

/*  Adds to[position of i] += from[i] in a fixed order. */
IGNIS__PRIVATE void ignis__op_scatter_add(ignis__op *op, ignis__array *to, ignis__array *from, ignis__array *ids,
                                          const ignis__indexing *indexing)
{
    ignis__address source = ignis__op_read(op, from), indices = ignis__op_read(op, ids),
                   target = ignis__op_write(op, to), partial;
    ignis__strided strided;
    ignis__radix sort;
    int64_t size = indexing->size, dim_stride = indexing->dim_stride, blocks, rows, n;
    int id_bytes = (int)ignis__dtypes[ids->dtype].size;
    ignis_dtype dtype;
    uint32_t none;
    void *keys[] = {&sort.keys[0], &indices, &id_bytes, &strided, &size, &dim_stride, &none};
    void *sums[] = {&target, &partial, &source, &sort.keys[0], &sort.positions[0], &strided.count, &none};
    void *finish[] = {&target, &partial, &sort.keys[0], &strided.count, &none},
         *whole[] = {&target, &source, &indices, &id_bytes, &n, &size};
    if (!op->ok || !ignis__strides_merge(&indexing->strides, &strided, false))
        return;
    dtype = to->dtype;
    rows = ignis__scatter_rows(op, to, indexing, &n);
    ignis__record_builtin_for_all(IGNIS__BUILTIN(SORT_COUNT), IGNIS_I32); /* for the other path */
    if (rows) {
        ignis__op_launch(op, IGNIS__BUILTIN(SCATTER_ADD_ROWS), dtype, NULL,
                         ignis__launch_row(rows, 32, (size_t)(size * ignis__dtypes[ignis__sum_dtype(dtype)].size)),
                         whole);
        return;
    }
    if (to->numel > INT32_MAX || from->numel > INT32_MAX) {
        ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "%lld elements are added to %lld; 2^31 are too many",
                       (long long)from->numel, (long long)to->numel);
        return;
    }
    none = (uint32_t)to->numel;
    ignis__strided_finish(&strided);
    blocks = ignis__ceil_div(strided.count, 256);
    ignis__radix_begin(op, &sort, IGNIS_I32, 1, strided.count, 2);
    partial = ignis__op_write(op, ignis__op_new_row(op, blocks * 16, ignis__sum_dtype(dtype)));
    ignis__op_launch_row(op, IGNIS__BUILTIN(SCATTER_KEYS), dtype, blocks, 256, keys);
    ignis__radix_run(op, &sort, sort.keys[0], ignis__radix_passes(none), 0, 0, 0, 0);
    ignis__op_launch_row(op, IGNIS__BUILTIN(SEGMENT_SUMS), dtype, blocks, 256, sums);
    ignis__op_launch_row(op, IGNIS__BUILTIN(SEGMENT_FINISH), dtype, blocks, 256, finish);
}

/*  Sums the gradient by index, at the positions that forward has read. */
IGNIS__PRIVATE ignis_status ignis__gather_backward(const ignis_backward_args *args)
{
    const ignis__indexing *x = (const ignis__indexing *)args->params;
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, x->call, args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &x->shape, op.in[0]->dtype);
    if (gradient) {
        ignis__op_zero(&op, gradient);
        ignis__op_scatter_add(&op, gradient, op.in[0], op.in[1], x);
    }
    return ignis__op_finish_backward(&op, args, 1, &gradient);
}

static ignis_status ignis__scatter_add_backward(const ignis_backward_args *args)
{
    const ignis__indexing *x = (const ignis__indexing *)args->params;
    ignis__op op;
    ignis__array *gradients[3] = {NULL, NULL, NULL};
    if (args->needed[0])
        args->grad_inputs[0] = args->grad_output;
    if (!args->needed[2])
        return IGNIS_OK;
    if (!ignis__op_begin_backward(&op, x->call, args))
        return ignis__failed();
    gradients[2] = ignis__op_new(&op, &op.in[1]->shape, op.in[0]->dtype);
    if (gradients[2])
        ignis__op_indexed(&op, IGNIS__BUILTIN(GATHER), gradients[2], op.in[0], op.in[1], x, 0);
    return ignis__op_finish_backward(&op, args, 3, gradients);
}

/*  Sums rows by index, as the gradient of embedding. Dimensions before the indexed one move after it, and
    back. */
static ignis_status ignis__index_select_backward(const ignis_backward_args *args)
{
    const ignis__indexing *indexing = (const ignis__indexing *)args->params;
    ignis__op op;
    ignis__array *gradient, *moved, *sums;
    int64_t outer = ignis__shape_product(&indexing->shape, 0, indexing->dim), inner = indexing->dim_stride, count;
    ignis__exchange there = {1, outer, 1, 1, inner}, back = {1, indexing->size, 1, outer, inner};
    ignis_shape shape;
    if (!ignis__op_begin_backward(&op, indexing->call, args))
        return ignis__failed();
    there.n = count = op.in[1]->numel;
    if (outer * inner >= (int64_t)1 << 30 || indexing->size > INT32_MAX || count > INT32_MAX)
        ignis__op_fail(&op, IGNIS_DIAG_UNSUPPORTED,
                       "the gradient of %s along dimension %d; 2^31 rows, or rows of 2^30 elements, are too many",
                       ignis__shape_write(&indexing->shape).text, indexing->dim);
    if (indexing->dim > 0) /* also if those before it are 1 */
        ignis__record_builtin_for_all(IGNIS__BUILTIN(TRANSPOSE_RUNS), op.in[0]->dtype);
    if (outer == 1) {
        gradient = ignis__op_new(&op, &indexing->shape, op.in[0]->dtype);
        if (gradient)
            ignis__op_add_rows(&op, gradient, op.in[0], op.in[1], NULL, indexing->size, inner, 0);
        return ignis__op_finish_backward(&op, args, 1, &gradient);
    }
    shape = IGNIS_SHAPE(op.in[0]->numel);
    moved = op.ok ? ignis__op_exchange(&op, op.in[0], &shape, &there) : NULL;
    sums = ignis__op_new_row(&op, outer * indexing->size * inner, op.in[0]->dtype);
    if (sums)
        ignis__op_add_rows(&op, sums, moved, op.in[1], NULL, indexing->size, outer * inner, 0);
    gradient = op.ok ? ignis__op_exchange(&op, sums, &indexing->shape, &back) : NULL;
    return ignis__op_finish_backward(&op, args, 1, &gradient);
}

typedef struct ignis__index_kind {
    const char *call, *name;
    ignis_status (*backward_fn)(const ignis_backward_args *args);
    bool row, adds; /* index_select; scatter_add */
} ignis__index_kind;

/*  Checks that input 1 is an index of the tensor along dim: a row, or as the tensor but for dim. */
IGNIS__PRIVATE bool ignis__index_fits(ignis__op *op, int *dim, bool row)
{
    const ignis_shape *shape = &op->in[0]->shape, *ids = &op->in[1]->shape;
    bool fits = ids->ndim == (row ? 1 : shape->ndim);
    int i;
    if (ignis__op_dim(op, dim, "dim") && ignis__op_is_index(op, 1, "index"))
        for (i = 0; fits && i < ids->ndim && !row; i++)
            fits = i == *dim || ids->dim[i] <= shape->dim[i];
    if (op->ok && !fits)
        ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS,
                       row ? "index is %s, and not one row; the tensor is %s, and dim %d"
                           : "index is %s, the tensor is %s; it may be larger in dimension %d only",
                       ignis__shape_write(ids).text, ignis__shape_write(shape).text, *dim);
    return op->ok;
}

/*  Checks that input 2 has an element for each index. */
IGNIS__PRIVATE bool ignis__index_src_fits(ignis__op *op)
{
    const ignis_shape *ids = &op->in[1]->shape, *src = &op->in[2]->shape;
    if (ignis__op_same_dtype(op, 2, "src") && !ignis__shape_same(ids, src))
        ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "src is %s, index is %s", ignis__shape_write(src).text,
                       ignis__shape_write(ids).text);
    return op->ok;
}

/*  Runs an index operation. The index has the tensor's dimensions, of any size along dim and at most the
    tensor's along others; or it is a row. src is added. */
static ignis_tensor ignis__index_op(const ignis__index_kind *kind, ignis_tensor tensor, int dim, ignis_tensor index,
                                    const ignis_tensor *src)
{
    ignis_tensor inputs[] = {tensor, index, src ? *src : index};
    ignis__indexing indexing = IGNIS__ZERO;
    ignis__op op;
    ignis__array *out = NULL;
    ignis_shape shape, ids;
    if (!ignis__op_begin(&op, kind->call, src ? 3 : 2, inputs))
        return ignis__no_tensor();
    shape = op.in[0]->shape;
    ids = op.in[1]->shape;
    if (ignis__index_fits(&op, &dim, kind->row) && src)
        ignis__index_src_fits(&op);
    if (op.ok) {
        int64_t count = ids.dim[0];
        if (kind->row)
            ids = shape, ids.dim[dim] = count;
        ignis__indexing_make(&indexing, kind->call, &shape, dim, &ids);
        if (kind->row)
            indexing.strides.to[dim] = 1;
        else
            ignis__shape_strides(&ids, indexing.strides.to);
        out = ignis__op_new(&op, kind->adds ? &shape : &ids, op.in[0]->dtype);
    }
    if (out && kind->adds) {
        ignis__op_copy(&op, out, op.in[0]);
        ignis__op_scatter_add(&op, out, op.in[2], op.in[1], &indexing);
    } else if (out) {
        ignis__op_indexed(&op, IGNIS__BUILTIN(GATHER), out, op.in[0], op.in[1], &indexing, 1);
    }
    ignis__op_save(&op, op.in[1]);
    return ignis__op_end_recorded(&op, out, kind->name, kind->backward_fn, &indexing, sizeof indexing);
}

IGNIS_API ignis_tensor ignis_gather(ignis_tensor tensor, int dim, ignis_tensor index)
{
    static const ignis__index_kind kind = {"ignis_gather", "gather", ignis__gather_backward, false, false};
    return ignis__index_op(&kind, tensor, dim, index, NULL);
}

IGNIS_API ignis_tensor ignis_index_select(ignis_tensor tensor, int dim, ignis_tensor index)
{
    static const ignis__index_kind kind = {"ignis_index_select", "index_select", ignis__index_select_backward, true,
                                           false};
    return ignis__index_op(&kind, tensor, dim, index, NULL);
}

IGNIS_API ignis_tensor ignis_scatter_add(ignis_tensor tensor, int dim, ignis_tensor index, ignis_tensor src)
{
    static const ignis__index_kind kind = {"ignis_scatter_add", "scatter_add", ignis__scatter_add_backward, false,
                                           true};
    return ignis__index_op(&kind, tensor, dim, index, &src);
}
