/*  >>ops.embedding - ignis_embedding: rows of a table by index

    The gradient sorts the ids, so that each row sums its positions in order. Uses: radix_sort;
    kernels/embedding.cu. */

#include "room.h"

/*  Sums rows [vocab, n]: at each id the sum of grad [ids, n] over all its positions, in order. weights: of these (NULL:
    1). adds: to the existing values, else to 0. */
IGNIS__PRIVATE void ignis__op_add_rows(ignis__op *op, ignis__array *rows, ignis__array *grad, ignis__array *ids,
                                       const ignis__row_weights *weights, int64_t vocab, int64_t n, int adds)
{
    ignis_dtype dtype = grad->dtype;
    int64_t count = ids->numel, larger = count > 2 * vocab ? count : 2 * vocab, chunks, share, across;
    int id_bytes = (int)ignis__dtypes[ids->dtype].size;
    ignis__radix sort;
    ignis__embedding_sums sums = IGNIS__ZERO;
    ignis__address source = ignis__op_read(op, ids);
    unsigned threads;
    void *keys[] = {&sort.keys[0], &sums.bounds, &source, &id_bytes, &count, &vocab},
         *begins[] = {&sums.bounds, &sort.keys[0], &count, &vocab}, *params[] = {&sums};
    if (!op->ok || rows->numel == 0)
        return;
    ignis__radix_begin(op, &sort, IGNIS_I32, 1, count, 2);
    sums.bounds = ignis__op_write(op, ignis__op_new_row(op, 2 * vocab, IGNIS_I32));
    ignis__op_launch_row(op, IGNIS__BUILTIN(EMBEDDING_KEYS), dtype, ignis__ceil_div(larger, IGNIS__EMBEDDING_THREADS),
                         IGNIS__EMBEDDING_THREADS, keys);
    ignis__radix_run(op, &sort, sort.keys[0], ignis__radix_passes((uint64_t)vocab), 0, 0, 0,
                     0); /* vocab: ids out of range */
    ignis__op_launch_row(op, IGNIS__BUILTIN(EMBEDDING_BOUNDS), dtype, ignis__ceil_div(count, IGNIS__EMBEDDING_THREADS),
                         IGNIS__EMBEDDING_THREADS, begins);
    chunks = ignis__ceil_div(count, IGNIS__EMBEDDING_CHUNK);
    sums.partial = ignis__op_write(op, ignis__op_new_row(op, 2 * chunks * n, ignis__wide_dtype(dtype)));
    sums.grad = ignis__op_read(op, grad);
    sums.table = ignis__op_write(op, rows);
    sums.keys = sort.keys[0];
    sums.positions = sort.positions[0];
    sums.count = count;
    sums.vocab = vocab;
    sums.n = n;
    sums.packed = n % ignis__pack_elements(dtype) == 0 && (sums.table | sums.grad) % 16 == 0;
    sums.adds = adds;
    sums.weights = weights ? ignis__op_read(op, weights->weights) : 0;
    sums.shift = weights ? weights->shift : 0;
    share = sums.packed ? ignis__pack_elements(dtype) : 1;
    threads = ignis__row_threads(n, share, IGNIS__EMBEDDING_THREADS);
    across = ignis__ceil_div(n, threads * share);
    ignis__op_launch(op, IGNIS__BUILTIN(EMBEDDING_CHUNKS), dtype, weights ? "-DIGNIS_WEIGHTED=1" : NULL,
                     ignis__launch_grid(chunks, across, 1, threads, 1, 0), params);
    ignis__op_launch(op, IGNIS__BUILTIN(EMBEDDING_ROWS), dtype, NULL,
                     ignis__launch_grid(ignis__clamp(vocab, 0, 65536), across, 1, threads, 1, 0), params);
}

static ignis_status ignis__embedding_backward(const ignis_backward_args *args)
{
    const int64_t *table = (const int64_t *)args->params; /* vocab, n */
    ignis__op op;
    ignis__array *sum = ignis__backward_pass_input_sum(0),
                 /* A table that is also the weight of the last product has a gradient by now. */
        *made = NULL;
    bool adds = sum && ignis__array_is_private(sum);
    if (!ignis__op_begin_backward(&op, "ignis_embedding", args))
        return ignis__failed();
    if (!adds)
        sum = made = ignis__op_new_rows(&op, table[0], table[1], op.in[0]->dtype);
    ignis__op_add_rows(&op, sum, op.in[0], op.in[1], NULL, table[0], table[1], adds);
    return ignis__op_finish_backward(&op, args, 1, &made);
}

/*  Sets the shape of ids with n appended. */
static bool ignis__embedding_shape(ignis__op *op, ignis_shape *shape)
{
    const ignis__array *table = op->in[0], *ids = op->in[1];
    *shape = ids->shape;
    if (!ignis__op_is_index(op, 1, "ids"))
        return false;
    if (table->shape.ndim != 2)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "table is %s; [vocab, n] is needed",
                              ignis__shape_write(&table->shape).text);
    if (ids->shape.ndim == IGNIS_MAX_DIMS)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_RANK, "ids is %s; the result would have more than %d dimensions",
                              ignis__shape_write(&ids->shape).text, IGNIS_MAX_DIMS);
    if (table->shape.dim[0] > INT32_MAX || table->shape.dim[1] >= (int64_t)1 << 30 || ids->numel > INT32_MAX)
        return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED,
                              "table is %s, and ids has %lld elements; 2^31 rows or ids, or 2^30 columns, are too many",
                              ignis__shape_write(&table->shape).text, (long long)ids->numel);
    shape->dim[shape->ndim++] = table->shape.dim[1];
    return true;
}

IGNIS_API ignis_tensor ignis_embedding(ignis_tensor table, ignis_tensor ids)
{
    ignis_tensor inputs[] = {table, ids};
    ignis__op op;
    ignis_shape shape;
    ignis__array *out = NULL;
    ignis__address from, indices, to;
    ignis_dtype dtype;
    int64_t count, sizes[2]; /* vocab, n */
    int id_bytes, packed;
    void *params[] = {&to, &from, &indices, &id_bytes, &count, &sizes[0], &sizes[1], &packed};
    if (!ignis__op_begin(&op, "ignis_embedding", 2, inputs))
        return ignis__no_tensor();
    dtype = op.in[0]->dtype;
    if (ignis__op_is_float(&op, 0, "table") && ignis__embedding_shape(&op, &shape)) {
        out = ignis__op_new(&op, &shape, dtype);
        from = ignis__op_read(&op, op.in[0]);
        indices = ignis__op_read(&op, op.in[1]);
        to = ignis__op_write(&op, out);
        id_bytes = (int)ignis__dtypes[op.in[1]->dtype].size;
        count = op.in[1]->numel;
        sizes[0] = op.in[0]->shape.dim[0];
        sizes[1] = op.in[0]->shape.dim[1];
        packed = sizes[1] % ignis__pack_elements(dtype) == 0 && (from | to) % 16 == 0;
        ignis__op_launch_row(
            &op, IGNIS__BUILTIN(EMBEDDING), dtype, sizes[1] ? count : 0,
            ignis__row_threads(sizes[1], ignis__row_share(dtype, packed != 0), IGNIS__EMBEDDING_THREADS), params);
    }
    ignis__op_save(&op, op.in[1]);
    return ignis__op_end_recorded(&op, out, "embedding", ignis__embedding_backward, sizes, sizeof sizes);
}
