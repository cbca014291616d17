/*  >>ops.cumsum - ignis_cumsum: running sums along a dimension, in either direction

    Long rows are split in tiles and read once: kernels/scan.cu.
    Uses: operation. */

#include "room.h"

/*  Sums rows of at least 2^12 elements, split in tiles. */
static void ignis__op_cumsum_rows(ignis__op *op, ignis__address target, ignis__address source, ignis_dtype dtype,
                                  int64_t outer, int64_t n, int reverse)
{
    int64_t wide = ignis__dtypes[ignis__sum_dtype(dtype)].size, tile = 256 * 64 / wide, words;
    int packed = n % ignis__pack_elements(dtype) == 0 && (source | target) % 16 == 0, warps = n <= 1024, tiles;
    ignis__address said = 0, next = 0;
    ignis__array *zeros;
    void *rows[] = {&target, &source, &outer, &n, &reverse, &packed, &warps},
         *each[] = {&target, &said, &next, &source, &outer, &n, &tiles, &reverse, &packed};
    if (n < 4096 || outer * ignis__ceil_div(n, tile) > INT32_MAX) {
        ignis__op_launch_row(op, IGNIS__BUILTIN_SCAN_ROWS, dtype,
                             ignis__clamp(ignis__ceil_div(outer, warps ? 8 : 1), 1, INT32_MAX), 256, rows);
        return;
    }
    tiles = (int)ignis__ceil_div(n, tile);
    words = outer * (tiles + ignis__ceil_div(tiles, 256)) * wide / 4;
    zeros = ignis__op_new_row(op, words + 1, IGNIS_I64);
    if (!zeros)
        return;
    ignis__op_zero(op, zeros);
    said = ignis__op_write(op, zeros);
    next = said + 8 * (uint64_t)words;
    ignis__op_launch_row(op, IGNIS__BUILTIN_SCAN_TILES, dtype,
                         ignis__clamp(3 * op->work.device->info.multiprocessors, 1, outer * tiles), 256, each);
}

/*  Computes out[outer, i, inner] = the sum of from[outer, j, inner] over j <= i, or over j >= i if reverse. */
static ignis__array *ignis__op_cumsum(ignis__op *op, ignis__array *from, const ignis__axis *axis, int reverse)
{
    ignis__array *out = ignis__op_new_like(op, from);
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, out), none = 0, partial = 0;
    int64_t outer = axis->outer, n = axis->n, inner = axis->inner, part_length, parts, blocks;
    void *params[] = {&target, &partial, &source, &outer, &n, &inner, &part_length, &parts, &reverse};
    if (!op->ok || outer * n * inner == 0)
        return out;
    if (inner == 1) {
        ignis__op_cumsum_rows(op, target, source, out->dtype, outer, n, reverse);
        return out;
    }
    parts = ignis__clamp(1024 * op->work.device->info.multiprocessors / (outer * inner), 1, ignis__ceil_div(n, 128));
    part_length = ignis__ceil_div(ignis__ceil_div(n, parts), 64) * 64;
    parts = ignis__ceil_div(n, part_length);
    blocks = ignis__clamp(ignis__ceil_div(outer * parts * inner, 256), 1, INT32_MAX);
    if (parts > 1) {
        partial = ignis__op_write(op, ignis__op_new_row(op, outer * parts * inner, ignis__sum_dtype(out->dtype)));
        params[0] = &none;
        ignis__op_launch_row(op, IGNIS__BUILTIN_SCAN_COLUMNS, out->dtype, blocks, 256, params);
        params[0] = &target;
    }
    ignis__op_launch_row(op, IGNIS__BUILTIN_SCAN_COLUMNS, out->dtype, blocks, 256, params);
    return out;
}

static ignis_status ignis__cumsum_backward(const ignis_backward_args *args)
{
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_cumsum", args))
        return ignis__failed();
    return ignis__op_finish_backward_one(&op, args,
                                         ignis__op_cumsum(&op, op.in[0], (const ignis__axis *)args->params, 1));
}

IGNIS_API ignis_tensor ignis_cumsum(ignis_tensor tensor, int dim)
{
    ignis__axis s = {1, 1, 1};
    ignis__op op;
    ignis__array *out = NULL;
    if (!ignis__op_begin(&op, "ignis_cumsum", 1, &tensor))
        return ignis__no_tensor();
    if (ignis__dtypes[op.in[0]->dtype].size == 1)
        ignis__op_fail(&op, IGNIS_DIAG_DTYPE_DIFFERS,
                       "the tensor is %s, whose sums would not fit; ignis_cast makes it %s",
                       ignis__dtypes[op.in[0]->dtype].name, op.in[0]->dtype == IGNIS_U8 ? "i64" : "f32");
    if (ignis__op_dim(&op, &dim, "dim")) {
        s = ignis__axis_of_dim(&op.in[0]->shape, dim);
        out = ignis__op_cumsum(&op, op.in[0], &s, 0);
    }
    return ignis__op_end_recorded(&op, out, "cumsum", ignis__cumsum_backward, &s, sizeof s);
}
