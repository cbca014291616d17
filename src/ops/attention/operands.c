/*  >>ops.attention.operands - checks of q, k, v, bias and lengths, and where their rows are

    Fills the parameter of the attention kernels from shapes and addresses. Uses: operation;
    kernels/attention.cuh has the structs. */

#include "room.h"

/*  Returns the rows of a contiguous tensor [rows, width] or [batch, rows, width]. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__attention_rows ignis__attention_rows_of(const ignis_shape *shape, int head_dim,
                                                                              ignis__address address)
{
    ignis__attention_rows rows;
    IGNIS_ASSERT(shape->ndim >= 2);
    rows.data = address;
    rows.row = shape->dim[shape->ndim - 1];
    rows.head = head_dim;
    rows.batch = rows.row * shape->dim[shape->ndim - 2];
    return rows;
}

/*  Returns the rows of a bias, whose shape has been checked. A shared dimension has stride 0. */
IGNIS__PRIVATE ignis__attention_rows ignis__attention_bias_rows(const ignis_shape *shape, ignis__address address)
{
    ignis__attention_rows rows = IGNIS__ZERO;
    long long *steps[] = {&rows.row, &rows.head, &rows.batch};
    int64_t step = shape->dim[shape->ndim - 1];
    int i;
    rows.data = address;
    for (i = 0; i < shape->ndim - 1; i++) {
        int64_t size = shape->dim[shape->ndim - 2 - i];
        *steps[i] = size > 1 ? step : 0;
        step *= size;
    }
    return rows;
}

/*  Reads the addresses of the bias, of the sinks, and of the lengths or the bounds, which are inputs from `input` on,
    in this order. Returns the input after them. */
IGNIS__PRIVATE int ignis__attention_read_options(ignis__op *op, int input, ignis__attention *p)
{
    if (p->bias_dtype) {
        p->params.bias = ignis__attention_bias_rows(&op->in[input]->shape, ignis__op_read(op, op->in[input]));
        input++;
    }
    if (p->has_sinks)
        p->params.sinks = ignis__op_read(op, op->in[input++]);
    if (p->has_lengths)
        p->params.lengths = ignis__op_read(op, op->in[input++]);
    if (p->documents) /* forward: ids or offsets, until ignis__attention_find_bounds */
        p->params.bounds = ignis__op_read(op, op->in[input++]);
    return input;
}

/*  Makes the bounds from ids or offsets, which are the last input, and were read. NULL if there are none. */
IGNIS__PRIVATE ignis__array *ignis__attention_find_bounds(ignis__op *op, ignis__attention *p)
{
    const ignis__array *documents;
    ignis__array *bounds;
    ignis__address to, from = p->params.bounds;
    int rows = p->params.sk, count;
    void *of_ids[] = {&to, &from, &rows}, *of_offsets[] = {&to, &from, &count, &rows};
    if (!op->ok || !p->documents)
        return NULL;
    documents = op->in[op->count - 1];
    count = (int)documents->numel - 1;
    bounds = ignis__op_new_rows(op, (int64_t)p->params.batches * (rows + 1), 2, IGNIS_I32);
    p->params.bounds = to = ignis__op_write(op, bounds);
    if (p->documents == IGNIS__DOCUMENTS_IDS)
        ignis__op_launch_row(op, IGNIS__BUILTIN(DOCUMENT_BOUNDS), documents->dtype,
                             p->params.batches * ignis__clamp(ignis__ceil_div(rows, 256), 1, INT32_MAX), 256, of_ids);
    else
        ignis__op_launch_row(op, IGNIS__BUILTIN(DOCUMENT_BOUNDS_OF_OFFSETS), documents->dtype,
                             ignis__ceil_div(rows + 1, 256), 256, of_offsets);
    return bounds;
}

/*  Saves the inputs from `input` on, as ignis__attention_read_options reads them. bounds replace the last one; NULL:
    they do not. */
IGNIS__PRIVATE void ignis__attention_save_options(ignis__op *op, int input, ignis__array *bounds)
{
    ignis__op_save_inputs(op, input, op->count - (bounds ? 1 : 0));
    ignis__op_save(op, bounds);
}

/*  Reads the addresses of q, k, v, which were checked, and of the result. */
IGNIS__PRIVATE void ignis__attention_operands(ignis__op *op, ignis__array *out, ignis__attention *p)
{
    if (!op->ok)
        return;
    p->params.q = ignis__attention_rows_of(&op->in[0]->shape, p->params.head_dim, ignis__op_read(op, op->in[0]));
    p->params.k = ignis__attention_rows_of(&op->in[1]->shape, p->params.head_dim, ignis__op_read(op, op->in[1]));
    p->params.v = ignis__attention_rows_of(&op->in[2]->shape, p->params.head_dim, ignis__op_read(op, op->in[2]));
    p->params.out = ignis__attention_rows_of(&op->in[0]->shape, p->params.head_dim, ignis__op_write(op, out));
    ignis__attention_read_options(op, 3, p);
}

IGNIS__PRIVATE bool ignis__attention_heads(ignis__op *op, int heads, int64_t kv_heads)
{
    if (heads % kv_heads != 0)
        ignis__op_fail(op, IGNIS_DIAG_SDPA_HEADS, "num_heads (%d) must be a multiple of num_kv_heads (%lld)", heads,
                       (long long)kv_heads);
    return op->ok;
}

/*  Sets the sizes of rows of queries and keys. Reports what is too large. */
static bool ignis__attention_set_sizes(ignis__op *op, const ignis_shape *q, const ignis_shape *k, int heads,
                                       int kv_heads, int64_t head_dim, int most, ignis__attention *p)
{
    int64_t sq = q->dim[q->ndim - 2], sk = k->dim[k->ndim - 2], batches = q->ndim == 3 ? q->dim[0] : 1,
            limit = (int64_t)1 << 30;
    if (head_dim > most)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "head_dim is %lld; %d is the most", (long long)head_dim,
                              most);
    if (sq >= limit || sk >= limit || batches >= limit)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "queries are %s, keys are %s; 2^30 rows are too many",
                              ignis__shape_write(q).text, ignis__shape_write(k).text);
    p->params.batches = (int)batches;
    p->params.heads = heads;
    p->params.kv_heads = kv_heads;
    p->params.head_dim = (int)head_dim;
    p->params.sq = (int)sq;
    p->params.sk = (int)sk;
    p->params.scale = ignis__square_root(1.0 / (double)head_dim);
    return true;
}

/*  Sets the sizes from q, k and v. kv_heads 0: as many as k has. Heads have up to `most` elements. Reports
    what does not fit. */
IGNIS__PRIVATE bool ignis__attention_sizes(ignis__op *op, int heads, int kv_heads, int most,
                                           ignis__attention *attention)
{
    const ignis_shape *q = &op->in[0]->shape, *k = &op->in[1]->shape, *v = &op->in[2]->shape;
    int64_t width, head_dim, kv_width;
    int last = q->ndim - 1;
    if (!ignis__op_is_float(op, 0, "q") || !ignis__op_same_dtype(op, 1, "k") || !ignis__op_same_dtype(op, 2, "v"))
        return false;
    if (q->ndim < 2 || q->ndim > 3)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "q is %s; it has to be [rows, width] or [batch, rows, width]",
                              ignis__shape_write(q).text);
    if (k->ndim != q->ndim || (q->ndim == 3 && k->dim[0] != q->dim[0]))
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "k is %s, which does not fit q %s", ignis__shape_write(k).text,
                              ignis__shape_write(q).text);
    if (!ignis__shape_same(v, k))
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE, "v is %s, k is %s", ignis__shape_write(v).text,
                              ignis__shape_write(k).text);
    width = q->dim[last];
    kv_width = k->dim[last];
    if (width == 0 || width % heads != 0)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE,
                              "q is %s; its last dimension has to be num_heads (%d) heads of equal size",
                              ignis__shape_write(q).text, heads);
    head_dim = width / heads;
    if (kv_heads == 0 && (kv_width == 0 || kv_width % head_dim != 0 || kv_width > width))
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE,
                              "k is %s; its last dimension has to be 1 to %d heads of %lld elements",
                              ignis__shape_write(k).text, heads, (long long)head_dim);
    if (kv_heads != 0 && kv_width != kv_heads * head_dim)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE,
                              "k is %s; its last dimension has to be num_kv_heads (%d) heads of %lld elements",
                              ignis__shape_write(k).text, kv_heads, (long long)head_dim);
    if (!ignis__attention_heads(op, heads, kv_width / head_dim))
        return false;
    return ignis__attention_set_sizes(op, q, k, heads, (int)(kv_width / head_dim), head_dim, most, attention);
}

/*  As ignis__attention_sizes, for q, k and v in the rows of one tensor. */
IGNIS__PRIVATE bool ignis__attention_packed_sizes(ignis__op *op, int heads, int kv_heads, ignis__attention *p)
{
    const ignis_shape *shape = &op->in[0]->shape;
    int64_t width = shape->dim[shape->ndim - 1], all = heads + 2 * (int64_t)kv_heads;
    if (!ignis__op_is_float(op, 0, "qkv"))
        return false;
    if (shape->ndim < 2 || shape->ndim > 3)
        return ignis__op_fail(op, IGNIS_DIAG_SDPA_SHAPE,
                              "qkv is %s; it has to be [rows, width] or [batch, rows, width]",
                              ignis__shape_write(shape).text);
    if (width == 0 || width % all != 0)
        return ignis__op_fail(
            op, IGNIS_DIAG_SDPA_SHAPE,
            "qkv is %s; its last dimension has to be num_heads (%d) and 2 * num_kv_heads (%d) heads of equal size",
            ignis__shape_write(shape).text, heads, kv_heads);
    return ignis__attention_set_sizes(op, shape, shape, heads, kv_heads, width / all, 256, p);
}

/*  Makes an array of `count` statistics for each query head of each row. */
IGNIS__PRIVATE ignis__array *ignis__attention_new_statistics(ignis__op *op, const ignis__attention *p,
                                                             ignis_dtype dtype, int count)
{
    return ignis__op_new_row(op, (int64_t)count * p->params.batches * p->params.heads * p->params.sq,
                             ignis__wide_dtype(dtype));
}

/*  Makes the array of what the forward keeps of each query for the backward. */
IGNIS__PRIVATE ignis__array *ignis__attention_new_lse(ignis__op *op, const ignis__attention *p, ignis_dtype dtype)
{
    const ignis_shape shape =
        IGNIS_SHAPE((int64_t)ignis__attention_lse_count(p) * p->params.batches * p->params.heads * p->params.sq);
    return ignis__op_new_product(op, &shape, ignis__wide_dtype(dtype));
}
