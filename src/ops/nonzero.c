/*  >>ops.select - ignis_nonzero, ignis_masked_select, ignis_unique: results whose size the device computes

    Elements are counted a tile at a time, the counts summed up, and their total is read before the result is made.
    Uses: operation, index, scan, sort; kernels/select.cu. */

#include "room.h"

/*  Returns the positions of the elements that are not 0: [count], or coordinates [count, rank]. NULL after a
    failure. */
static ignis__array *ignis__op_nonzero(ignis__op *op, ignis__array *from, bool coordinates)
{
    int64_t n = from->numel, tiles = ignis__ceil_div(n, IGNIS__SELECT_TILE), count = 0;
    int d, rank = coordinates ? from->shape.ndim : 0;
    ignis__array *counts = ignis__op_new_row(op, tiles, IGNIS_I64), *ends, *positions;
    ignis__address source = ignis__op_read(op, from), tile_counts = ignis__op_write(op, counts), tile_ends, target;
    ignis__select_sizes sizes = IGNIS__ZERO;
    void *count_params[] = {&tile_counts, &source, &n}, *write[] = {&target, &tile_ends, &source, &n, &sizes};
    ignis__op_launch_row(op, IGNIS__BUILTIN(SELECT_COUNT), from->dtype, tiles, 256, count_params);
    ends = ignis__op_sum_up(op, counts);
    tile_ends = ends ? ignis__op_read(op, ends) : 0;
    if (!ignis__op_read_back(op, &count, tile_ends + 8 * (uint64_t)(tiles - 1), tiles ? 8 : 0))
        return NULL;
    positions = coordinates ? ignis__op_new_rows(op, count, rank, IGNIS_I64) : ignis__op_new_row(op, count, IGNIS_I64);
    sizes.rank = rank;
    for (d = 0; d < rank; d++)
        sizes.size[d] = from->shape.dim[d];
    target = ignis__op_write(op, positions);
    ignis__op_launch_row(op, IGNIS__BUILTIN(SELECT_WRITE), from->dtype, count ? tiles : 0, 256, write);
    return positions;
}

IGNIS_API ignis_tensor ignis_nonzero(ignis_tensor tensor)
{
    ignis__op op;
    if (!ignis__op_begin(&op, "ignis_nonzero", 1, &tensor))
        return ignis__no_tensor();
    return ignis__op_end(&op, ignis__op_nonzero(&op, op.in[0], true), NULL);
}

IGNIS_API ignis_tensor ignis_masked_select(ignis_tensor tensor, ignis_tensor mask)
{
    static const char call[] = "ignis_masked_select";
    ignis_tensor inputs[] = {tensor, mask};
    ignis__indexing indexing = IGNIS__ZERO;
    ignis__op op;
    ignis__array *positions = NULL, *out = NULL;
    ignis_shape all, chosen;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    if (ignis__op_same_shape(&op, 1, "mask"))
        positions = ignis__op_nonzero(&op, op.in[1], false);
    if (positions) {
        all = IGNIS_SHAPE(op.in[0]->numel);
        chosen = IGNIS_SHAPE(positions->numel);
        ignis__indexing_make(&indexing, call, &all, 0, &chosen);
        indexing.shape = op.in[0]->shape;
        indexing.strides.to[0] = 1;
        out = ignis__op_new_row(&op, positions->numel, op.in[0]->dtype);
    }
    if (out)
        ignis__op_indexed(&op, IGNIS__BUILTIN(GATHER), out, op.in[0], positions, &indexing, 0);
    ignis__op_save(&op, positions);
    return ignis__op_end_recorded(&op, out, "masked_select", ignis__sort_backward, &indexing, sizeof indexing);
}

/*  The results of unique. inverse is made by the caller, NULL: not asked for. */
typedef struct ignis__unique {
    ignis__array *values, *inverse, *counts;
} ignis__unique;

/*  Finds the runs of equal elements of a sorted row, and writes one element of each. */
static void ignis__op_unique(ignis__op *op, ignis__unique *found, ignis__array *sorted, ignis__array *places,
                             bool counts_too)
{
    int64_t n = sorted->numel, count, blocks = ignis__ceil_div(n, 256);
    int32_t last = -1;
    ignis__array *heads = ignis__op_new_row(op, n, IGNIS_I32), *ranks;
    ignis__address source = ignis__op_read(op, sorted), at = ignis__op_write(op, heads), numbers, values, inverse = 0,
                   counts = 0, positions = ignis__op_read(op, places);
    void *mark[] = {&at, &source, &n}, *write[] = {&values, &inverse, &counts, &source, &positions, &numbers, &n};
    ignis__op_launch_row(op, IGNIS__BUILTIN(UNIQUE_HEADS), sorted->dtype, blocks, 256, mark);
    ranks = ignis__op_sum_up(op, heads);
    numbers = ranks ? ignis__op_read(op, ranks) : 0;
    if (!ignis__op_read_back(op, &last, numbers + 4 * (uint64_t)(n - 1), n ? 4 : 0))
        return;
    count = (int64_t)last + 1;
    found->values = ignis__op_new_row(op, count, sorted->dtype);
    values = ignis__op_write(op, found->values);
    if (found->inverse)
        inverse = ignis__op_write(op, found->inverse);
    if (counts_too)
        found->counts = ignis__op_new_row(op, count, IGNIS_I64);
    if (found->counts) {
        ignis__op_zero(op, found->counts);
        counts = ignis__op_write(op, found->counts);
    }
    ignis__op_launch_row(op, IGNIS__BUILTIN(UNIQUE_WRITE), sorted->dtype, blocks, 256, write);
}

IGNIS_API ignis_tensor ignis_unique(ignis_tensor tensor, ignis_tensor *inverse, ignis_tensor *counts)
{
    static const char call[] = "ignis_unique";
    ignis__unique found = IGNIS__ZERO;
    ignis__array *sorted = NULL, *places = NULL;
    ignis__op op;
    int64_t n;
    ignis_tensor result;
    if (inverse)
        *inverse = ignis__no_tensor();
    if (counts)
        *counts = ignis__no_tensor();
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    n = op.in[0]->numel;
    if (n > INT32_MAX - 8192)
        ignis__op_fail(&op, IGNIS_DIAG_UNSUPPORTED, "%s is sorted; 2^31 elements are too many",
                       ignis__shape_write(&op.in[0]->shape).text);
    sorted = ignis__op_new_row(&op, n, op.in[0]->dtype);
    places = ignis__op_new_row(&op, n, IGNIS_I64);
    if (op.ok) {
        ignis__op_sort_rows(&op, sorted, places, op.in[0], 1, n, n, 0);
        found.inverse = inverse ? ignis__op_new(&op, &op.in[0]->shape, IGNIS_I64) : NULL;
        ignis__op_unique(&op, &found, sorted, places, counts != NULL);
    }
    if (op.ok && inverse)
        *inverse = ignis__op_result(&op, found.inverse, 0, NULL, NULL, NULL);
    if (op.ok && counts)
        *counts = ignis__op_result(&op, found.counts, 0, NULL, NULL, NULL);
    result = ignis__op_result(&op, found.values, 0, NULL, NULL, NULL);
    ignis__op_leave_two(&op, counts);
    if (!op.ok && inverse && inverse->id) {
        (void)ignis_tensor_release(*inverse);
        *inverse = ignis__no_tensor();
    }
    return result;
}
