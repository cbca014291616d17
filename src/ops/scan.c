/*  >>ops.scan - cumsum, cumprod, cummax, cummin, logcumsumexp: all elements up to each one along a dimension

    One kernel with an operator, kernels/scan.cu. Long rows are split in tiles and read once.
    Uses: operation, index. */

#include "room.h"

/*  A scan of `from` into `to`. NULL arrays are not used by the operator. */
typedef struct ignis__scan {
    int scan_operator, reverse;
    ignis__axis axis;
    ignis__array *to, *positions, *from, *x, *y;
} ignis__scan;

/*  A scan as a public function. */
typedef struct ignis__scan_kind {
    const char *call, *name;
    int scan_operator;
    ignis_status (*backward_fn)(const ignis_backward_args *args);
} ignis__scan_kind;

/*  Returns the option that compiles an operator; NULL for sums. */
static const char *ignis__scan_define(int scan_operator)
{
    static const char *const defines[] = {NULL,
                                          "-DIGNIS_SCAN=1",
                                          "-DIGNIS_SCAN=2",
                                          "-DIGNIS_SCAN=3",
                                          "-DIGNIS_SCAN=4",
                                          "-DIGNIS_SCAN=5",
                                          "-DIGNIS_SCAN=6"};
    return defines[scan_operator];
}

/*  Returns the bytes of a state. */
static int64_t ignis__scan_state_size(int scan_operator, ignis_dtype dtype)
{
    int64_t wide = ignis__dtypes[ignis__sum_dtype(dtype)].size;
    if (scan_operator <= IGNIS__SCAN_PRODUCT)
        return wide;
    if (scan_operator <= IGNIS__SCAN_MIN)
        return ignis__dtypes[dtype].size == 8 ? 16 : 8;
    return 2 * wide;
}

static void ignis__scan_launch(ignis__op *op, const ignis__scan *scan, ignis__builtin builtin, int64_t blocks,
                               void **params)
{
    ignis__op_launch(op, builtin, scan->from->dtype, ignis__scan_define(scan->scan_operator),
                     ignis__launch_row(ignis__clamp(blocks, 1, INT32_MAX), IGNIS__SCAN_THREADS, 0), params);
}

/*  Scans rows; those of at least 2^12 elements are split in tiles. */
static void ignis__op_scan_rows(ignis__op *op, const ignis__scan *scan, ignis__address target, ignis__address source,
                                ignis__scan_arrays *arrays)
{
    ignis_dtype dtype = scan->from->dtype;
    int64_t n = scan->axis.n, outer = scan->axis.outer, state = ignis__scan_state_size(scan->scan_operator, dtype),
            pack = ignis__dtypes[dtype].size == 1 ? 8 : ignis__pack_elements(dtype),
            tile = IGNIS__SCAN_THREADS * (state * pack < IGNIS__SCAN_BYTES ? IGNIS__SCAN_BYTES / state : pack), words;
    int packed = n % pack == 0 && (source | target | arrays->positions) % 16 == 0, warps = n <= 1024, tiles,
        reverse = scan->reverse;
    ignis__address said = 0, next = 0;
    ignis__array *zeros;
    void *rows[] = {&target, &source, arrays, &outer, &n, &reverse, &packed, &warps},
         *each[] = {&target, &said, &next, &source, arrays, &outer, &n, &tiles, &reverse, &packed};
    if (n < 4096 || outer * ignis__ceil_div(n, tile) > INT32_MAX) {
        ignis__scan_launch(op, scan, IGNIS__BUILTIN(SCAN_ROWS), ignis__ceil_div(outer, warps ? 8 : 1), rows);
        return;
    }
    tiles = (int)ignis__ceil_div(n, tile);
    words = outer * (tiles + ignis__ceil_div(tiles, 256)) * state / 4;
    zeros = ignis__op_new_row(op, words + 1, IGNIS_I64);
    if (!zeros)
        return;
    ignis__op_zero(op, zeros);
    said = ignis__op_write(op, zeros);
    next = said + 8 * (uint64_t)words;
    ignis__scan_launch(op, scan, IGNIS__BUILTIN(SCAN_TILES),
                       ignis__clamp(3 * op->work.device->info.multiprocessors, 1, outer * tiles), each);
}

/*  Computes to[outer, i, inner] = from[outer, j, inner] combined over j <= i, or over j >= i if reverse. */
static void ignis__op_scan(ignis__op *op, const ignis__scan *scan)
{
    int64_t outer = scan->axis.outer, n = scan->axis.n, inner = scan->axis.inner, part_length, parts, blocks;
    ignis__address source = ignis__op_read(op, scan->from), target = ignis__op_write(op, scan->to), none = 0,
                   partial = 0;
    ignis__scan_arrays arrays = IGNIS__ZERO;
    int reverse = scan->reverse;
    void *params[] = {&target, &partial, &source, &arrays, &outer, &part_length, &parts, &reverse};
    arrays.x = scan->x ? ignis__op_read(op, scan->x) : 0;
    arrays.y = scan->y ? ignis__op_read(op, scan->y) : 0;
    arrays.positions = scan->positions ? ignis__op_write(op, scan->positions) : 0;
    arrays.n = n;
    arrays.inner = inner;
    if (!op->ok || outer * n * inner == 0)
        return;
    if (inner == 1) {
        ignis__op_scan_rows(op, scan, target, source, &arrays);
        return;
    }
    parts = ignis__clamp(1024 * op->work.device->info.multiprocessors / (outer * inner), 1, ignis__ceil_div(n, 128));
    part_length = ignis__ceil_div(ignis__ceil_div(n, parts), 64) * 64;
    parts = ignis__ceil_div(n, part_length);
    blocks = ignis__ceil_div(outer * parts * inner, 256);
    if (parts > 1) {
        int64_t words = ignis__scan_state_size(scan->scan_operator, scan->from->dtype) / 4;
        partial = ignis__op_write(op, ignis__op_new_row(op, outer * parts * inner * words, IGNIS_I32));
        params[0] = &none;
        ignis__scan_launch(op, scan, IGNIS__BUILTIN(SCAN_COLUMNS), blocks, params);
        params[0] = &target;
    }
    ignis__scan_launch(op, scan, IGNIS__BUILTIN(SCAN_COLUMNS), blocks, params);
}

/*  Returns the sums of rows up to each of their elements. NULL after a failure. */
IGNIS__PRIVATE ignis__array *ignis__op_sum_up(ignis__op *op, ignis__array *rows)
{
    ignis__scan scan = IGNIS__ZERO;
    if (!op->ok)
        return NULL;
    scan.axis = ignis__axis_of_dim(&rows->shape, rows->shape.ndim - 1);
    scan.from = rows;
    scan.to = ignis__op_new_like(op, rows);
    ignis__op_scan(op, &scan);
    return scan.to;
}

/*  Returns r[i] = g[i] + x[i + 1] r[i + 1] along the second of three dimensions: the gradient of products, of which
    those before each element are 1. NULL after a failure. */
IGNIS__PRIVATE ignis__array *ignis__op_recurrence(ignis__op *op, ignis__array *x, ignis__array *g)
{
    ignis__scan scan = IGNIS__ZERO;
    if (!op->ok)
        return NULL;
    scan.scan_operator = IGNIS__SCAN_PRODUCT_GRADIENT;
    scan.reverse = 1;
    scan.axis = ignis__axis_of_dim(&g->shape, 1);
    scan.from = g;
    scan.x = x;
    scan.y = ignis__op_new_like(op, x);
    if (scan.y)
        ignis__op_fill(op, scan.y, 1);
    scan.to = ignis__op_new_like(op, g);
    ignis__op_scan(op, &scan);
    return scan.to;
}

/*  Computes the gradient by an operator, in the other direction. The saved arrays are x and y, or there are none. */
static ignis_status ignis__scan_backward(const char *call, const ignis_backward_args *args, int scan_operator)
{
    ignis__scan scan = IGNIS__ZERO;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, call, args))
        return ignis__failed();
    scan.scan_operator = scan_operator;
    scan.reverse = 1;
    scan.axis = *(const ignis__axis *)args->params;
    scan.from = op.in[0];
    if (op.count > 1) {
        scan.x = op.in[1];
        scan.y = op.in[2];
    }
    scan.to = ignis__op_new_like(&op, op.in[0]);
    ignis__op_scan(&op, &scan);
    return ignis__op_finish_backward_one(&op, args, scan.to);
}

static ignis_status ignis__cumsum_backward(const ignis_backward_args *args)
{
    return ignis__scan_backward("ignis_cumsum", args, IGNIS__SCAN_SUM);
}
static ignis_status ignis__cumprod_backward(const ignis_backward_args *args)
{
    return ignis__scan_backward("ignis_cumprod", args, IGNIS__SCAN_PRODUCT_GRADIENT);
}
static ignis_status ignis__logcumsumexp_backward(const ignis_backward_args *args)
{
    return ignis__scan_backward("ignis_logcumsumexp", args, IGNIS__SCAN_LOGSUMEXP_GRADIENT);
}

/*  Runs cumsum, cumprod or logcumsumexp. */
static ignis_tensor ignis__cumulate(const ignis__scan_kind *kind, ignis_tensor tensor, int dim)
{
    ignis__scan scan = IGNIS__ZERO;
    ignis__op op;
    if (!ignis__op_begin(&op, kind->call, 1, &tensor))
        return ignis__no_tensor();
    scan.from = op.in[0];
    if (kind->scan_operator == IGNIS__SCAN_LOGSUMEXP)
        ignis__op_is_float(&op, 0, "the tensor");
    else if (ignis__dtypes[scan.from->dtype].size == 1)
        ignis__op_fail(
            &op, IGNIS_DIAG_DTYPE_DIFFERS, "the tensor is %s, whose %s would not fit; ignis_cast makes it %s",
            ignis__dtypes[scan.from->dtype].name, kind->scan_operator == IGNIS__SCAN_SUM ? "sums" : "products",
            scan.from->dtype == IGNIS_U8 ? "i64" : "f32");
    if (ignis__op_dim(&op, &dim, "dim")) {
        scan.scan_operator = kind->scan_operator;
        scan.axis = ignis__axis_of_dim(&scan.from->shape, dim);
        scan.to = ignis__op_new_like(&op, scan.from);
        ignis__op_scan(&op, &scan);
    }
    if (kind->scan_operator != IGNIS__SCAN_SUM) {
        ignis__op_save(&op, scan.from);
        ignis__op_save(&op, scan.to);
    }
    return ignis__op_end_recorded(&op, scan.to, kind->name, kind->backward_fn, &scan.axis, sizeof scan.axis);
}

IGNIS_API ignis_tensor ignis_cumsum(ignis_tensor tensor, int dim)
{
    static const ignis__scan_kind kind = {"ignis_cumsum", "cumsum", IGNIS__SCAN_SUM, ignis__cumsum_backward};
    return ignis__cumulate(&kind, tensor, dim);
}

IGNIS_API ignis_tensor ignis_cumprod(ignis_tensor tensor, int dim)
{
    static const ignis__scan_kind kind = {"ignis_cumprod", "cumprod", IGNIS__SCAN_PRODUCT, ignis__cumprod_backward};
    return ignis__cumulate(&kind, tensor, dim);
}

IGNIS_API ignis_tensor ignis_logcumsumexp(ignis_tensor tensor, int dim)
{
    static const ignis__scan_kind kind = {"ignis_logcumsumexp", "logcumsumexp", IGNIS__SCAN_LOGSUMEXP,
                                          ignis__logcumsumexp_backward};
    return ignis__cumulate(&kind, tensor, dim);
}

/*  Runs cummax or cummin. The gradient of an element is the sum of those of the results that it is. */
static ignis_tensor ignis__extremes(const ignis__scan_kind *kind, ignis_tensor tensor, int dim, ignis_tensor *indices)
{
    ignis__indexing indexing = IGNIS__ZERO;
    ignis__scan scan = IGNIS__ZERO;
    ignis__op op;
    ignis_tensor result;
    ignis_rule rule;
    bool records;
    if (indices)
        *indices = ignis__no_tensor();
    if (!ignis__op_begin(&op, kind->call, 1, &tensor))
        return ignis__no_tensor();
    scan.from = op.in[0];
    if (ignis__dtypes[scan.from->dtype].size == 1 && scan.from->dtype != IGNIS_U8)
        ignis__op_fail(&op, IGNIS_DIAG_DTYPE_DIFFERS, "the tensor is %s; ignis_cast makes it f16",
                       ignis__dtypes[scan.from->dtype].name);
    if (ignis__op_dim(&op, &dim, "dim") && scan.from->shape.dim[dim] > INT32_MAX)
        ignis__op_fail(&op, IGNIS_DIAG_UNSUPPORTED, "dimension %d of %s; 2^31 elements are too many", dim,
                       ignis__shape_write(&scan.from->shape).text);
    if (op.ok) {
        scan.scan_operator = kind->scan_operator;
        scan.axis = ignis__axis_of_dim(&scan.from->shape, dim);
        scan.to = ignis__op_new_like(&op, scan.from);
        scan.positions = ignis__op_new(&op, &scan.from->shape, IGNIS_I64);
    }
    if (scan.positions) {
        ignis__op_scan(&op, &scan);
        ignis__indexing_make(&indexing, kind->call, &scan.from->shape, dim, &scan.from->shape);
        ignis__shape_strides(&scan.from->shape, indexing.strides.to);
        ignis__op_save(&op, scan.positions);
    }
    if (scan.positions && indices)
        *indices = ignis__op_result(&op, scan.positions, 0, NULL, NULL, NULL);
    rule = ignis__op_rule(&op, kind->name, kind->backward_fn, &indexing, sizeof indexing);
    records = op.ok && op.records && ignis__dtype_is_float(scan.to->dtype);
    result = ignis__op_result(&op, scan.to, op.count, op.tensors, op.tape_state, records ? &rule : NULL);
    ignis__op_leave_two(&op, indices);
    return result;
}

IGNIS_API ignis_tensor ignis_cummax(ignis_tensor tensor, int dim, ignis_tensor *indices)
{
    static const ignis__scan_kind kind = {"ignis_cummax", "cummax", IGNIS__SCAN_MAX, ignis__gather_backward};
    return ignis__extremes(&kind, tensor, dim, indices);
}

IGNIS_API ignis_tensor ignis_cummin(ignis_tensor tensor, int dim, ignis_tensor *indices)
{
    static const ignis__scan_kind kind = {"ignis_cummin", "cummin", IGNIS__SCAN_MIN, ignis__gather_backward};
    return ignis__extremes(&kind, tensor, dim, indices);
}
