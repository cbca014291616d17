/*  models/weights/quantized_linear.c - linear layers and embeddings with quantised weights

    A forward product converts the weight to the dtype in a temporary tensor. The tape keeps the blocks, and the
    backward pass converts again.
    May use: quantized_layout.c, >>op. Locks: none. */

#include "room.h"

/*  Describes a part of a weight whose bytes begin at an address. */
IGNIS__PRIVATE ignis__quantised_weight ignis__quantised_part(const ignis__blocks *blocks, int part, ignis__address at)
{
    ignis__quantised_weight q;
    int type = blocks->part[part].type;
    memset(&q, 0, sizeof q);
    q.k = blocks->columns;
    q.type = type;
    q.records = at + (ignis__address)ignis__blocks_bytes(blocks, part);
    q.scales =
        q.records + (ignis__address)ignis__blocks_bytes_of(type, blocks->part[part].rows, blocks->columns, false);
    return q;
}

IGNIS__PRIVATE int64_t ignis__blocks_rows(const ignis__blocks *blocks)
{
    int64_t rows = 0;
    int i;
    for (i = 0; i < blocks->count; i++)
        rows += blocks->part[i].rows;
    return rows;
}

static void ignis__dequantise_define(char *define, size_t size, int type)
{
    snprintf(define, size, "-DIGNIS_BLOCKS=%d", type);
}

/*  Records the kernels that dequantise a weight: other numbers of rows, or other devices, multiply numbers. */
IGNIS__COLD IGNIS__PRIVATE void ignis__dequantise_record(const ignis__op *op, const ignis__blocks *blocks,
                                                         ignis_dtype dtype)
{
    char define[32];
    int part;
    if (!op->ok || !ignis__requests.path[0])
        return;
    for (part = 0; part < blocks->count; part++) {
        ignis__dequantise_define(define, sizeof define, blocks->part[part].type);
        ignis__record_builtin(IGNIS__BUILTIN(BLOCKS_ROWS), dtype, define, 0, IGNIS__EVERY_ARCH);
    }
}

/*  Converts rows of a quantised weight to the dtype, into `out` from its row `to` on, [.., columns]. */
IGNIS__PRIVATE void ignis__op_dequantise(ignis__op *op, ignis__array *out, int64_t to, ignis__array *weights,
                                         const ignis__blocks *blocks, int64_t first, int64_t rows)
{
    enum { ROWS = 8, COLUMNS = 16 * 256 }; /* of a block: blocks_rows.cu has the same */
    ignis__address at = ignis__op_read(op, weights), address = ignis__op_write(op, out), here;
    char define[32];
    int64_t begin = 0, from, end, count, row = blocks->columns * ignis__dtypes[out->dtype].size;
    ignis__quantised_weight q;
    int part;
    void *params[] = {&here, &q, &from, &count};
    for (part = 0; op->ok && part < blocks->count; begin += blocks->part[part++].rows) {
        from = first > begin ? first - begin : 0;
        end = first + rows - begin < blocks->part[part].rows ? first + rows - begin : blocks->part[part].rows;
        if (from >= end)
            continue;
        q = ignis__quantised_part(blocks, part, at);
        here = address + (ignis__address)((to + begin + from - first) * row);
        count = end - from;
        ignis__dequantise_define(define, sizeof define, q.type);
        ignis__op_launch(op, IGNIS__BUILTIN(BLOCKS_ROWS), out->dtype, define,
                         ignis__launch_grid(ignis__ceil_div(count, ROWS), ignis__ceil_div(blocks->columns, COLUMNS), 1,
                                            32 * ROWS, 1, 0),
                         params);
    }
}

IGNIS__PRIVATE ignis__blocks ignis__blocks_of(const char *call, ignis_tensor weight)
{
    ignis__array *array = weight.id ? ignis__borrow_array(call, weight) : NULL;
    ignis__blocks blocks;
    memset(&blocks, 0, sizeof blocks);
    if (array) {
        blocks = array->blocks;
        ignis__array_drop(call, array);
    }
    return blocks;
}

/*  Makes a tensor with rows of a quantised weight, converted to the dtype. */
IGNIS__PRIVATE ignis_tensor ignis__model_dequantise(const char *call, ignis_tensor weight, const ignis__blocks *blocks,
                                                    int64_t first, int64_t rows, ignis_dtype dtype)
{
    ignis_shape shape;
    ignis__array *out;
    ignis__op op;
    if (!ignis__op_begin(&op, call, 1, &weight))
        return ignis__no_tensor();
    memset(&shape, 0, sizeof shape);
    shape.ndim = 2;
    shape.dim[0] = rows;
    shape.dim[1] = blocks->columns;
    out = ignis__op_new(&op, &shape, dtype);
    ignis__op_dequantise(&op, out, 0, op.in[0], blocks, first, rows);
    return ignis__op_end(&op, out, NULL);
}

/*  Computes dx = dy W, with W converted once more. */
static ignis_status ignis__model_linear_backward(const ignis_backward_args *args)
{
    const ignis__blocks *blocks = (const ignis__blocks *)args->params;
    ignis__array *numbers, *gradient = NULL;
    ignis__product product;
    ignis_shape shape;
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_backward", args))
        return ignis__failed();
    memset(&product, 0, sizeof product);
    product.k = ignis__blocks_rows(blocks);
    product.m = op.in[0]->numel / product.k;
    product.n = blocks->columns;
    product.batch = 1;
    product.batch_a = product.m * product.k;
    product.batch_b = product.n * product.k;
    product.dtype = (int)op.in[0]->dtype;
    memset(&shape, 0, sizeof shape);
    shape.ndim = 2;
    shape.dim[0] = product.m;
    shape.dim[1] = product.n;
    gradient = ignis__op_new(&op, &shape, op.in[0]->dtype);
    shape.dim[0] = product.k;
    numbers = ignis__op_new(&op, &shape, op.in[0]->dtype);
    ignis__op_dequantise(&op, numbers, 0, op.in[1], blocks, 0, product.k);
    if (op.ok)
        ignis__matmul_run(&op, &product, gradient, op.in[0], numbers, NULL);
    return ignis__op_finish_backward(&op, args, 1, &gradient);
}

/*  As ignis_linear, with a weight of a model. Of a quantised one the tape keeps only the blocks. */
IGNIS__PRIVATE ignis_tensor ignis__model_linear(const ignis__model *model, ignis_tensor x, ignis_tensor weight,
                                                ignis_tensor bias)
{
    static const char call[] = "ignis_model_forward";
    ignis__blocks blocks = ignis__blocks_of(call, weight);
    ignis_array saved;
    ignis_tensor y;
    ignis_scope scope;
    ignis_rule rule;
    if (!blocks.count)
        return ignis_linear(x, weight, bias);
    scope = ignis_scope_begin();
    (void)ignis_no_grad_begin();
    y = ignis_linear(x, ignis__model_dequantise(call, weight, &blocks, 0, ignis__blocks_rows(&blocks), model->dtype),
                     bias);
    (void)ignis_no_grad_end();
    y = ignis_scope_return(scope, y);
    saved = ignis_tensor_data(weight);
    memset(&rule, 0, sizeof rule);
    rule.name = "linear";
    rule.backward_fn = ignis__model_linear_backward;
    rule.saved = &saved;
    rule.saved_count = 1;
    rule.params = &blocks;
    rule.params_size = sizeof blocks;
    if (!y.id || ignis_tape_record(y, &x, 1, &rule) == IGNIS_OK)
        return y;
    ignis__tensor_discard(call, y);
    return ignis__no_tensor();
}

/*  As ignis_embedding, with the table of a model. */
IGNIS__PRIVATE ignis_tensor ignis__model_embedding(ignis_tensor table, ignis_tensor ids, ignis_dtype dtype)
{
    static const char call[] = "ignis_model_forward";
    ignis__blocks blocks = ignis__blocks_of(call, table);
    ignis_tensor inputs[2];
    ignis__array *out = NULL;
    ignis__address to, from;
    ignis__quantised_weight q;
    ignis_shape shape;
    ignis__op op;
    int64_t count, vocab;
    int id_bytes;
    void *params[] = {&to, &q, &from, &id_bytes, &count, &vocab};
    if (!blocks.count)
        return ignis_embedding(table, ids);
    inputs[0] = table;
    inputs[1] = ids;
    if (!ignis__op_begin(&op, call, 2, inputs))
        return ignis__no_tensor();
    if (ignis__op_is_index(&op, 1, "ids")) {
        shape = op.in[1]->shape;
        shape.dim[shape.ndim++] = blocks.columns;
        out = ignis__op_new(&op, &shape, dtype);
        q = ignis__quantised_part(&blocks, 0, ignis__op_read(&op, op.in[0]));
        from = ignis__op_read(&op, op.in[1]);
        to = ignis__op_write(&op, out);
        id_bytes = (int)ignis__dtypes[op.in[1]->dtype].size;
        count = op.in[1]->numel;
        vocab = ignis__blocks_rows(&blocks);
        ignis__op_launch_row(&op, IGNIS__BUILTIN(BLOCKS_EMBEDDING), dtype, ignis__clamp(count, 0, 65535), 256, params);
    }
    return ignis__op_end(&op, out, NULL);
}
