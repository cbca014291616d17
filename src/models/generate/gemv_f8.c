/*  models/generate/gemv_f8.c - products of rows that are rounded to e4m3, with weights of F8

    The rows of a step and those of a chunk take one kernel, which adds in the same order for any number of rows.
    Weights say whether their rows are rounded; ignis_model_open sets it.
    May use: gemv_cluster.c. Locks: the caller holds the engine's lock. */

#include "room.h"

/*  Returns whether the rows of a product are rounded to e4m3. Only the weights decide, so that a row has the same bits
    in any batch. */
IGNIS__PRIVATE bool ignis__gemv_takes_f8(const ignis__gemv_desc *desc)
{
    const ignis__blocks *blocks = &desc->weights->blocks;
    /* eight rows of a record stay together, in gate and in up */
    return blocks->rounds_rows && blocks->count == 1 && blocks->part[0].type == IGNIS__GGUF_F8 &&
           (!desc->gated || blocks->part[0].rows % 16 == 0);
}

static void ignis__gemv_f8_define(char *define, size_t size, int columns, int split)
{
    snprintf(define, size, "-DIGNIS_COLUMNS=%d -DIGNIS_SPLIT=%d", columns, split);
}

/*  Records the kernels that other numbers of rows take. */
IGNIS__COLD static void ignis__gemv_f8_record(const ignis__op *op, ignis_dtype dtype)
{
    char define[64];
    int columns, split;
    if (!op->ok || !ignis__requests.path[0])
        return;
    for (columns = 16; columns <= 128; columns *= 2)
        for (split = 1; split <= 2; split++) {
            ignis__gemv_f8_define(define, sizeof define, columns, split);
            ignis__record_builtin(IGNIS__BUILTIN(GEMV_F8), dtype, define, 90, 90);
        }
}

/*  How gemv_f8.cu takes a product. weights, columns: rows of the weights and of x of a block; split: blocks that divide
    K; resident: blocks of an SM. */
typedef struct ignis__gemv_f8_shape {
    int columns, split, weights, resident;
    int64_t groups, across;
} ignis__gemv_f8_shape;

static ignis__gemv_f8_shape ignis__gemv_f8_shape_of(const ignis__gemv_mma *product, int columns, int split)
{
    ignis__gemv_f8_shape shape;
    shape.columns = columns;
    shape.split = split;
    shape.weights = columns > 64 ? 128 : 64;
    shape.resident = columns > 64 ? 1 : 2;
    shape.groups = ignis__ceil_div(product->n, product->gated ? shape.weights / 2 : shape.weights);
    shape.across = ignis__ceil_div(product->rows, columns);
    return shape;
}

/*  Returns the time of a product, in bytes of shared memory or of weights that an SM moves: a tile's records, and as
    much as MORE of them for what comes before and after. Counted: a record goes in and out, x of a record goes in once,
    and out for each 64 rows of weights; weights from memory take about four times as long. */
static int64_t ignis__gemv_f8_time(const ignis__gemv_f8_shape *shape, int processors, int64_t records)
{
    enum { RECORD = 272, UNITS = 256, MORE = 4, MEMORY = 4 };
    const int64_t tiles = shape->groups * shape->across * shape->split;
    const int64_t moved = 2 * RECORD * shape->weights + (int64_t)UNITS * shape->columns * (1 + shape->weights / 64);
    const int64_t read = MEMORY * (int64_t)RECORD * shape->weights / shape->across;
    return ignis__ceil_div(tiles, processors) * (moved > read ? moved : read) *
           (ignis__ceil_div(records, shape->split) + MORE);
}

static ignis__gemv_f8_shape ignis__gemv_f8_choose(const ignis__gemv_mma *product, int processors, bool clusters)
{
    const int64_t records = ignis__ceil_div(product->k, 256);
    ignis__gemv_f8_shape best;
    int64_t least = 0;
    int columns, split, least_columns = 16;
    memset(&best, 0, sizeof best);
    while (least_columns < product->rows && least_columns < 64)
        least_columns *= 2;
    for (columns = least_columns; columns <= (product->rows > 64 ? 128 : least_columns); columns *= 2)
        for (split = 1; split <= (clusters ? 2 : 1); split++) {
            const ignis__gemv_f8_shape shape = ignis__gemv_f8_shape_of(product, columns, split);
            const int64_t time = ignis__gemv_f8_time(&shape, processors, records);
            if (least == 0 || time < least) {
                least = time;
                best = shape;
            }
        }
    return best;
}

/*  Launches the product of rounded rows. */
static void ignis__gemv_f8_launch(ignis__op *op, ignis_dtype dtype, ignis__gemv_blocks *p)
{
    const ignis_device_info *info = &op->work.device->info;
    ignis__gemv_mma *product = &p->product;
    const ignis__gemv_f8_shape shape = ignis__gemv_f8_choose(product, info->multiprocessors, op->work.device->clusters);
    const int64_t clusters =
        ignis__clamp(info->multiprocessors * shape.resident / shape.split / shape.across, 1, shape.groups) *
        shape.across;
    /* gemv_f8.cu has the same: threads that multiply; bytes of a record of all rows of weights, and of a unit of x,
       each with two barriers; of sums that are sent, and of results; of what follows */
    const size_t threads = 2 * (size_t)shape.weights, columns = (size_t)shape.columns,
                 weights = 272 * (size_t)shape.weights + 16, unit = 128 * columns + 16,
                 share = columns / (size_t)shape.split, sent = shape.split > 1 ? 2 * threads * share : 0,
                 results = (2 * (size_t)shape.weights + 16) * share, found = sent > results ? sent : results,
                 rest = found + 16 + (16 + 4) * columns;
    const size_t bytes = ((size_t)info->shared_per_block + 1024) / (size_t)shape.resident - 1024 - rest;
    const int64_t dims[] = {ignis__ceil_div(product->k, 256) * 256, product->rows}, step = dims[0];
    const int box[] = {128, shape.columns};
    const ignis__tensor_map_desc desc = {IGNIS_F8_E4M3, false, p->x, 2, dims, &step, box, NULL};
    char define[64];
    ignis__tensor_map x_map;
    void *params[] = {p, &x_map};
    product->across = (int)shape.across;
    /* a record is on its way with the units of x that it meets, except one */
    product->ring = (int)((bytes + unit) / (weights + 2 * unit));
    p->x_ring = (int)((bytes - (size_t)product->ring * weights) / unit);
    p->x_ring = p->x_ring < 2 * product->ring ? p->x_ring : 2 * product->ring;
    product->found_at = (int)((size_t)product->ring * (weights - 16) + (size_t)p->x_ring * (unit - 16));
    ignis__gemv_f8_define(define, sizeof define, shape.columns, shape.split);
    op->ok = op->ok && ignis__tensor_map_make(&op->work, &x_map, &desc);
    ignis__op_launch(op, IGNIS__BUILTIN(GEMV_F8), dtype, define,
                     ignis__launch_row(clusters * shape.split, (unsigned)threads + (shape.resident == 1 ? 128u : 64u),
                                       (size_t)product->found_at + rest + 16 * (size_t)(product->ring + p->x_ring)),
                     params);
}

/*  Rounds rows of x, after their norm if there is one, and multiplies them with weights. desc->dequantised has
    ignis__f8_rows_bytes. result_row: elements from a row of results to the next. */
IGNIS__PRIVATE void ignis__gemv_run_f8(ignis__op *op, const ignis__gemv_desc *desc, int64_t result_row)
{
    const ignis__blocks *blocks = &desc->weights->blocks;
    const ignis_dtype dtype = desc->x->dtype;
    const int64_t records = ignis__ceil_div(blocks->columns, 256);
    ignis__gemv_blocks p;
    ignis__gemv_mma *product = &p.product;
    void *params[] = {&p};
    memset(&p, 0, sizeof p);
    ignis__gemv_fill(op, product, desc, result_row);
    product->weights = ignis__quantised_part(blocks, 0, ignis__op_read(op, desc->weights)).records;
    product->n = ignis__blocks_rows(blocks) / (desc->gated ? 2 : 1);
    product->rows = desc->count;
    p.x = ignis__op_write(op, desc->dequantised);
    p.scales = p.x + (ignis__address)(desc->count * records * 256);
    ignis__gemv_f8_record(op, dtype);
    ignis__cost(-1, 2.0 * (double)desc->count * (double)(ignis__blocks_rows(blocks) * product->k), (int)IGNIS_F8_E4M3);
    ignis__op_launch(op, IGNIS__BUILTIN(GEMV_F8_ROWS), dtype, NULL, ignis__launch_row(desc->count, 256, 0), params);
    ignis__gemv_f8_launch(op, dtype, &p);
}
