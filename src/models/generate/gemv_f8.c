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

static void ignis__gemv_f8_define(char *define, size_t size, int columns, int cluster)
{
    snprintf(define, size, "-DIGNIS_COLUMNS=%d -DIGNIS_CLUSTER=%d", columns, cluster);
}

/*  Records the kernels that other numbers of rows take. */
IGNIS__COLD static void ignis__gemv_f8_record(const ignis__op *op, ignis_dtype dtype)
{
    char define[64];
    int columns, cluster;
    if (!op->ok || !ignis__requests.path[0])
        return;
    for (columns = 8; columns <= 128; columns *= 2)
        for (cluster = 1; cluster <= 4; cluster *= 4) {
            ignis__gemv_f8_define(define, sizeof define, columns, cluster);
            ignis__record_builtin(IGNIS__BUILTIN(GEMV_F8), dtype, define, 90, 90);
        }
}

/*  Launches the product of rounded rows. A cluster divides the slices of K of a tile if the device is at least a fifth
    faster with it, counted in tiles that its SMs take one after the other. */
static void ignis__gemv_f8_launch(ignis__op *op, ignis_dtype dtype, ignis__gemv_blocks *p)
{
    /* gemv_f8.cu has the same: slices of K; of a stage the bytes of the weights, and of all else for a row of x; bytes
       of the sums of a column */
    enum { SLICES_OF_K = 4, WEIGHTS = 128 * 272, EACH = 2 * (128 + 4), FOUND = 132 * 4 };
    const ignis_device_info *info = &op->work.device->info;
    ignis__gemv_mma *product = &p->product;
    const int64_t dims[] = {ignis__ceil_div(product->k, 256) * 256, product->rows}, step = dims[0];
    const int64_t processors = info->multiprocessors;
    int columns = 8, cluster = 1;
    int box[] = {128, 0};
    const ignis__tensor_map_desc desc = {IGNIS_F8_E4M3, false, p->x, 2, dims, &step, box, NULL};
    int64_t tiles;
    size_t stage, found;
    char define[64];
    ignis__tensor_map x_map;
    void *params[] = {p, &x_map};
    while (columns < product->rows && columns < 128)
        columns *= 2;
    box[1] = columns;
    product->across = (int)ignis__ceil_div(product->rows, columns);
    tiles = ignis__ceil_div(product->n, product->gated ? 64 : 128) * product->across;
    if (op->work.device->clusters &&
        5 * ignis__ceil_div(tiles * SLICES_OF_K, processors) <= 4 * SLICES_OF_K * ignis__ceil_div(tiles, processors))
        cluster = SLICES_OF_K;
    stage = ((size_t)WEIGHTS + (size_t)EACH * (size_t)columns + 1023) / 1024 * 1024;
    found = (size_t)FOUND * (size_t)columns;
    product->ring = (int)(((size_t)info->shared_per_block - found - 8) / (stage + 16));
    product->found_at = (int)stage * product->ring;
    ignis__gemv_f8_define(define, sizeof define, columns, cluster);
    op->ok = op->ok && ignis__tensor_map_make(&op->work, &x_map, &desc);
    ignis__op_launch(op, IGNIS__BUILTIN(GEMV_F8), dtype, define,
                     ignis__launch_row(cluster > 1 ? tiles * cluster : ignis__clamp(tiles, 1, processors), 384,
                                       (size_t)product->found_at + found + 8 + 16 * (size_t)product->ring),
                     params);
}

/*  Rounds rows of x, after their norm if there is one, and multiplies them with weights. desc->dequantised has
    ignis__f8_rows_bytes. result_row: elements from a row of results to the next. */
IGNIS__PRIVATE void ignis__gemv_run_f8(ignis__op *op, const ignis__gemv_desc *desc, int64_t result_row)
{
    const ignis__blocks *blocks = &desc->weights->blocks;
    const ignis_dtype dtype = desc->x->dtype;
    ignis__gemv_blocks p;
    ignis__gemv_mma *product = &p.product;
    void *params[] = {&p};
    memset(&p, 0, sizeof p);
    if (desc->cache)
        *product = *desc->cache;
    product->weights = ignis__quantised_part(blocks, 0, ignis__op_read(op, desc->weights)).records;
    product->bias = desc->bias ? ignis__op_read(op, desc->bias) : 0;
    product->k = blocks->columns;
    product->n = ignis__blocks_rows(blocks) / (desc->gated ? 2 : 1);
    product->rows = desc->count;
    product->kind = (int)desc->kind;
    product->gated = desc->gated;
    if (desc->norm)
        ignis__pre_norm_fuse(op, product, desc->norm);
    else
        product->x = ignis__op_read(op, desc->x);
    p.x = ignis__op_write(op, desc->dequantised);
    p.scales = p.x + (ignis__address)(desc->count * ignis__ceil_div(product->k, 256) * 256);
    product->out = product->sum = product->logits = ignis__op_write(op, desc->out);
    product->delta = desc->delta ? ignis__op_write(op, desc->delta) : 0;
    product->result_row = result_row;
    ignis__gemv_f8_record(op, dtype);
    ignis__cost(-1, 2.0 * (double)desc->count * (double)(ignis__blocks_rows(blocks) * product->k), (int)IGNIS_F8_E4M3);
    ignis__op_launch(op, IGNIS__BUILTIN(GEMV_F8_ROWS), dtype, NULL,
                     ignis__launch_row(desc->count, 256, desc->norm ? 2 * (size_t)product->k : 0), params);
    ignis__gemv_f8_launch(op, dtype, &p);
}
