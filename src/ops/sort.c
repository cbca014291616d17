/*  >>ops.sort - ignis_sort, ignis_argsort and ignis_topk along a dimension

    Short rows sort in a block, small k are selected, long rows use the radix sort. NaN is the largest number.
    Uses: radix_sort, strided_copy, index; kernels/sort.cu. */

#include "room.h"

/*  As ignis__op_sort_rows, for k of at most 1024. A block selects from a row. If there are too few rows for
    the device, blocks first select from chunks of 4096 elements. Their results, k elements a chunk, become
    the row, until it is short. */
static void ignis__op_select(ignis__op *op, ignis_dtype dtype, ignis__selection *p, int64_t rows)
{
    bool few_rows = rows < op->work.device->info.multiprocessors;
    ignis__builtin builtin = few_rows ? IGNIS__BUILTIN(SORT_SELECT_FEW) : IGNIS__BUILTIN(SORT_SELECT);
    ignis__address values = p->values, positions = p->positions;
    unsigned threads = few_rows ? IGNIS__SORT_FEW_THREADS : IGNIS__SORT_THREADS;
    void *params[] = {p};
    size_t shared;
    p->items = (int)ignis__power_of_2_up(p->k > 64 ? p->k : 64);
    p->from_positions = 0;
    shared = (ignis__dtypes[dtype].size == 8 ? 16 : 8) * (size_t)p->items;
    for (; few_rows && p->n > 8192 && op->ok; p->n = (long long)p->parts * p->k) {
        p->parts = (int)ignis__ceil_div(p->n, 4096);
        p->values = ignis__op_write(op, ignis__op_new_row(op, rows * p->parts * p->k, dtype));
        p->positions = ignis__op_write(op, ignis__op_new_row(op, rows * p->parts * p->k, IGNIS_I64));
        ignis__op_launch(op, builtin, dtype, NULL, ignis__launch_row(rows * p->parts, threads, shared), params);
        p->src = p->values;
        p->from_positions = p->positions;
    }
    p->values = values;
    p->positions = positions;
    p->parts = 1;
    ignis__op_launch(op, builtin, dtype, NULL, ignis__launch_row(rows, threads, shared), params);
}

/*  Writes values and positions [rows, k]: the first k of each of the rows [rows, n] in order. */
IGNIS__PRIVATE void ignis__op_sort_rows(ignis__op *op, ignis__array *values, ignis__array *positions,
                                        ignis__array *from, int64_t rows, int64_t n, int64_t k, int descending)
{
    ignis_dtype dtype = from->dtype;
    int size = (int)ignis__dtypes[dtype].size, n_int = (int)n, k_int = (int)k, width, items;
    size_t item = size == 8 ? 16 : size == 4 ? 8 : 4; /* bytes */
    int64_t threads = ignis__ceil_div(n, 32 * IGNIS__SORT_ROW_ROUNDS) * 32,
            most = op->work.device->info.shared_per_block / (size + 2) / 2 < 8192 ? 4096 : 8192;
    ignis__address source = ignis__op_read(op, from), to = ignis__op_write(op, values),
                   places = ignis__op_write(op, positions);
    ignis__radix sort;
    ignis__selection selection;
    void *few[] = {&to, &places, &source, &rows, &n_int, &width, &items, &k_int, &descending};
    void *row[] = {&to, &places, &source, &n_int, &k_int, &descending};
    if (!op->ok || rows * k == 0)
        return;
    ignis__record_builtin_for_all(IGNIS__BUILTIN(SORT_SMALL), dtype); /* for rows of any length */
    ignis__record_builtin_for_all(IGNIS__BUILTIN(SORT_COUNT), dtype);
    if (n <= 256) {
        width = (int)ignis__power_of_2_up(n);
        items = 1024;
        ignis__op_launch(
            op, IGNIS__BUILTIN(SORT_SMALL), dtype, NULL,
            ignis__launch_row(ignis__ceil_div(rows, items / width), IGNIS__SORT_THREADS, item * (size_t)items), few);
    } else if (n > 4096 && k <= 1024) {
        selection.values = to;
        selection.positions = places;
        selection.src = source;
        selection.n = n;
        selection.k = k_int;
        selection.descending = descending;
        ignis__op_select(op, dtype, &selection, rows);
    } else if (n <= most) {
        ignis__op_launch(
            op, IGNIS__BUILTIN(SORT_ROW), dtype, NULL,
            ignis__launch_row(rows, (unsigned)threads, (size_t)(threads * IGNIS__SORT_ROW_ROUNDS * (size + 2))), row);
    } else {
        ignis__radix_begin(op, &sort, dtype, rows, n, size < 3 ? size - 1 : 2);
        ignis__radix_run(op, &sort, source, size, descending, to, places, k);
    }
}

/*  Sorts along a dimension, and returns the first k of each row; `positions` becomes their positions. NULL
    after a failure. */
static ignis__array *ignis__op_sort(ignis__op *op, int dim, int64_t k, int descending, ignis__array **positions)
{
    ignis__array *from = op->in[0], *values, *places;
    ignis_shape shape = from->shape, rows;
    ignis__axis axis = ignis__axis_of_dim(&shape, dim);
    ignis__exchange there = {axis.outer, axis.n, 1, axis.inner, 1}, back = {axis.outer, axis.inner, 1, k, 1};
    *positions = NULL;
    if (axis.n > INT32_MAX - 8192) {
        ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "dimension %d of %s is sorted; 2^31 elements are too many", dim,
                       ignis__shape_write(&shape).text);
        return NULL;
    }
    shape.dim[dim] = k;
    rows = IGNIS_SHAPE(from->numel);
    if (dim + 1 < shape.ndim) { /* also if the dimensions after it are 1 */
        ignis__record_builtin_for_all(IGNIS__BUILTIN(TRANSPOSE_RUNS), from->dtype);
        ignis__record_builtin_for_all(IGNIS__BUILTIN(TRANSPOSE_RUNS), IGNIS_I64);
    }
    if (axis.inner != 1)
        from = ignis__op_exchange(op, from, &rows, &there);
    rows = axis.inner == 1 ? shape : IGNIS_SHAPE(axis.outer * k * axis.inner);
    values = ignis__op_new(op, &rows, op->in[0]->dtype);
    places = ignis__op_new(op, &rows, IGNIS_I64);
    if (places)
        ignis__op_sort_rows(op, values, places, from, axis.outer * axis.inner, axis.n, k, descending);
    if (axis.inner != 1 && op->ok) {
        values = ignis__op_exchange(op, values, &shape, &back);
        places = ignis__op_exchange(op, places, &shape, &back);
    }
    *positions = places;
    return op->ok ? values : NULL;
}

/*  Puts the gradient where its elements come from, each place at most once. */
IGNIS__PRIVATE ignis_status ignis__sort_backward(const ignis_backward_args *args)
{
    const ignis__indexing *x = (const ignis__indexing *)args->params;
    ignis__op op;
    ignis__array *gradient;
    if (!ignis__op_begin_backward(&op, x->call, args))
        return ignis__failed();
    gradient = ignis__op_new(&op, &x->shape, op.in[0]->dtype);
    if (gradient && gradient->numel != op.in[0]->numel)
        ignis__op_zero(&op, gradient);
    if (gradient)
        ignis__op_indexed(&op, IGNIS__BUILTIN(SCATTER), gradient, op.in[0], op.in[1], x, 0);
    return ignis__op_finish_backward(&op, args, 1, &gradient);
}

/*  Sorts a tensor. k NULL: all elements. */
static ignis_tensor ignis__sort(const char *call, const char *name, ignis_tensor tensor, const int64_t *k, int dim,
                                bool descending, ignis_tensor *indices)
{
    ignis__indexing indexing = IGNIS__ZERO;
    ignis__op op;
    ignis__array *values = NULL, *positions = NULL;
    ignis_tensor result;
    ignis_rule rule;
    if (indices)
        *indices = ignis__no_tensor();
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    if (ignis__op_dim(&op, &dim, "dim") && k && (*k < 0 || *k > op.in[0]->shape.dim[dim]))
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "k is %lld, outside 0 to the %lld of dimension %d of %s",
                       (long long)*k, (long long)op.in[0]->shape.dim[dim], dim,
                       ignis__shape_write(&op.in[0]->shape).text);
    if (op.ok)
        values = ignis__op_sort(&op, dim, k ? *k : op.in[0]->shape.dim[dim], descending, &positions);
    if (values) {
        ignis__indexing_make(&indexing, call, &op.in[0]->shape, dim, &values->shape);
        ignis__shape_strides(&values->shape, indexing.strides.to);
        ignis__op_save(&op, positions);
    }
    if (values && indices)
        *indices = ignis__op_result(&op, positions, 0, NULL, NULL, NULL);
    rule = ignis__op_rule(&op, name, ignis__sort_backward, &indexing, sizeof indexing);
    result = ignis__op_result(&op, values, op.count, op.tensors, op.tape_state, op.records ? &rule : NULL);
    ignis__op_leave_two(&op, indices);
    return result;
}

IGNIS_API ignis_tensor ignis_sort(ignis_tensor tensor, int dim, bool descending, ignis_tensor *indices)
{
    return ignis__sort("ignis_sort", "sort", tensor, NULL, dim, descending, indices);
}

IGNIS_API ignis_tensor ignis_topk(ignis_tensor tensor, int64_t k, int dim, bool largest, ignis_tensor *indices)
{
    return ignis__sort("ignis_topk", "topk", tensor, &k, dim, largest, indices);
}
