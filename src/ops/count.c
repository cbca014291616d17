/*  >>ops.select - ignis_searchsorted, ignis_bincount, ignis_histogram: places among sorted elements, counts in bins

    Counts are integers, so atomic additions give equal bits every time; sums of weights are those of scatter_add.
    Uses: operation, index, map_reduce; kernels/select.cu. */

#include "room.h"

/*  Returns whether rows of `sorted` are for values: one row for all, or one for each row of values. */
static bool ignis__search_rows_fit(const ignis_shape *sorted, const ignis_shape *values)
{
    int d;
    if (sorted->ndim == 1)
        return true;
    if (sorted->ndim != values->ndim)
        return false;
    for (d = 0; d + 1 < sorted->ndim; d++)
        if (sorted->dim[d] != values->dim[d])
            return false;
    return true;
}

IGNIS_API ignis_tensor ignis_searchsorted(ignis_tensor sorted, ignis_tensor values, bool right)
{
    ignis_tensor inputs[] = {sorted, values};
    ignis__op op;
    ignis__array *out = NULL;
    const ignis_shape *rows, *shape;
    int64_t n, share;
    int is_right = right;
    ignis__address target, source, at;
    void *params[] = {&target, &source, &at, &n, &share, NULL, &is_right};
    if (!ignis__op_begin(&op, "ignis_searchsorted", 2, inputs))
        return ignis__no_tensor();
    rows = &op.in[0]->shape;
    shape = &op.in[1]->shape;
    if (ignis__op_same_dtype(&op, 1, "values") && !ignis__search_rows_fit(rows, shape))
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS,
                       "sorted is %s, values is %s; expected one row, or the leading dimensions of values",
                       ignis__shape_write(rows).text, ignis__shape_write(shape).text);
    if (op.ok)
        out = ignis__op_new(&op, shape, IGNIS_I64);
    if (out) {
        n = rows->dim[rows->ndim - 1];
        share = rows->ndim == 1 ? INT64_MAX : shape->dim[shape->ndim - 1];
        source = ignis__op_read(&op, op.in[0]);
        at = ignis__op_read(&op, op.in[1]);
        target = ignis__op_write(&op, out);
        params[5] = &out->numel;
        ignis__op_launch_row(&op, IGNIS__BUILTIN(SEARCH), op.in[0]->dtype,
                             ignis__clamp(ignis__ceil_div(out->numel, 256), 0, INT32_MAX), 256, params);
    }
    return ignis__op_end(&op, out, NULL);
}

/*  Bins, and how elements are counted in them. */
typedef struct ignis__bins {
    int64_t count;
    double low, high;
    int how;
    ignis__array *edges;
} ignis__bins;

/*  Returns how many elements are in each bin. NULL after a failure. */
static ignis__array *ignis__op_count(ignis__op *op, ignis__array *from, const ignis__bins *given)
{
    ignis__bins bins = *given;
    ignis__array *counts = ignis__op_new_row(op, bins.count, IGNIS_I64);
    ignis__address target, source, edges = 0;
    int64_t blocks = ignis__clamp(ignis__ceil_div(from->numel, 4096), 0, 8 * op->work.device->info.multiprocessors);
    int shared = bins.count <= 8192;
    void *params[] = {&target, &source, &edges, &from->numel, &bins.count, &bins.low, &bins.high, &bins.how, &shared};
    if (!counts)
        return NULL;
    ignis__op_zero(op, counts);
    source = ignis__op_read(op, from);
    if (bins.edges)
        edges = ignis__op_read(op, bins.edges);
    target = ignis__op_write(op, counts);
    ignis__op_launch(op, IGNIS__BUILTIN(COUNT_BINS), from->dtype, NULL,
                     ignis__launch_row(bins.count ? blocks : 0, 256, shared ? 4 * (size_t)bins.count : 0), params);
    return counts;
}

/*  Returns how many bins hold all ids, which it waits for; -1 on failure. */
static int64_t ignis__bins_for(const char *call, ignis_tensor ids)
{
    ignis_tensor_info info;
    ignis_tensor largest;
    int64_t i, numel = 1, most = -1;
    if (ignis__capture_refuses(call) || ignis_tensor_query(ids, &info) != IGNIS_OK)
        return -1;
    for (i = 0; i < info.shape.ndim; i++)
        numel *= info.shape.dim[i];
    if (numel == 0 || (info.dtype != IGNIS_I32 && info.dtype != IGNIS_I64))
        return 0;
    largest = ignis_map_reduce(IGNIS_REDUCE_MAX, "max(ids, -1)", IGNIS_INPUTS(ids), NULL);
    if (!largest.id)
        return -1;
    most = ignis_item_i64(largest);
    (void)ignis_tensor_release(largest);
    if (most == INT64_MIN)
        return -1;
    if (most < INT64_MAX)
        return most + 1;
    ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the largest id is %lld; expected one that an array has elements for",
                (long long)most);
    return -1;
}

static ignis_status ignis__bincount_backward(const ignis_backward_args *args)
{
    const ignis__indexing *x = (const ignis__indexing *)args->params;
    ignis__array *gradients[2] = {NULL, NULL};
    ignis__op op;
    if (!ignis__op_begin_backward(&op, x->call, args))
        return ignis__failed();
    gradients[1] = ignis__op_new(&op, &x->shape, op.in[0]->dtype);
    if (gradients[1])
        ignis__op_indexed(&op, IGNIS__BUILTIN(GATHER), gradients[1], op.in[0], op.in[1], x, 0);
    return ignis__op_finish_backward(&op, args, 2, gradients);
}

IGNIS_API ignis_tensor ignis_bincount(ignis_tensor ids, ignis_tensor weights, int64_t bins)
{
    static const char call[] = "ignis_bincount";
    ignis_tensor inputs[2];
    ignis__indexing indexing = IGNIS__ZERO;
    ignis__bins by_value = IGNIS__ZERO;
    ignis__op op;
    ignis__array *out = NULL;
    ignis_shape row, all;
    inputs[0] = ids;
    inputs[1] = weights;
    if (bins == 0 && (bins = ignis__bins_for(call, ids)) < 0)
        return ignis__no_tensor();
    if (!ignis__op_begin(&op, call, weights.id ? 2 : 1, inputs))
        return ignis__no_tensor();
    if (bins < 0)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "bins is %lld; expected 0 or more", (long long)bins);
    ignis__op_is_index(&op, 0, "ids");
    by_value.count = bins;
    by_value.how = IGNIS__COUNT_BY_VALUE;
    if (op.ok && !weights.id)
        return ignis__op_end(&op, ignis__op_count(&op, op.in[0], &by_value), NULL);
    if (op.ok && ignis__op_same_shape(&op, 1, "weights") && ignis__op_is_float(&op, 1, "weights")) {
        row = IGNIS_SHAPE(bins);
        all = IGNIS_SHAPE(op.in[0]->numel);
        ignis__indexing_make(&indexing, call, &row, 0, &all);
        ignis__shape_strides(&all, indexing.strides.to);
        out = ignis__op_new_row(&op, bins, op.in[1]->dtype);
    }
    if (out) {
        ignis__op_zero(&op, out);
        ignis__op_scatter_add(&op, out, op.in[1], op.in[0], &indexing);
        indexing.shape = op.in[0]->shape; /* of the gradient */
        ignis__op_save(&op, op.in[0]);
    }
    return ignis__op_end_recorded(&op, out, "bincount", ignis__bincount_backward, &indexing, sizeof indexing);
}

IGNIS_API ignis_tensor ignis_histogram(ignis_tensor tensor, int64_t bins, double low, double high)
{
    ignis__bins by_width = IGNIS__ZERO;
    ignis__op op;
    if (!ignis__op_begin(&op, "ignis_histogram", 1, &tensor))
        return ignis__no_tensor();
    if (bins < 1)
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "bins is %lld; expected 1 or more", (long long)bins);
    if (!(low < high) || !ignis__is_finite(high - low))
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "low is %g, high is %g; expected finite numbers, low below high",
                       low, high);
    by_width.count = bins;
    by_width.low = low;
    by_width.high = high;
    by_width.how = IGNIS__COUNT_BY_WIDTH;
    return ignis__op_end(&op, op.ok ? ignis__op_count(&op, op.in[0], &by_width) : NULL, NULL);
}

IGNIS_API ignis_tensor ignis_histogram_edges(ignis_tensor tensor, ignis_tensor edges)
{
    ignis_tensor inputs[] = {tensor, edges};
    ignis__bins by_edges = IGNIS__ZERO;
    ignis__op op;
    if (!ignis__op_begin(&op, "ignis_histogram_edges", 2, inputs))
        return ignis__no_tensor();
    ignis__op_same_dtype(&op, 1, "edges");
    if (op.in[1]->shape.ndim != 1 || op.in[1]->numel < 2)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS, "edges is %s; expected a row of 2 or more",
                       ignis__shape_write(&op.in[1]->shape).text);
    by_edges.count = op.in[1]->numel - 1;
    by_edges.how = IGNIS__COUNT_BY_EDGES;
    by_edges.edges = op.in[1];
    return ignis__op_end(&op, op.ok ? ignis__op_count(&op, op.in[0], &by_edges) : NULL, NULL);
}
