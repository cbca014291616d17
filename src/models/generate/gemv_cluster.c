/*  models/generate/gemv_cluster.c - choice of GEMV variants, rings and clusters; the norm before a GEMV

    A choice depends on the weights, the number of rows and the device. Every variant adds in the same order, so a
    row has the same bits with each of them.
    May use: kernel_params.c. Locks: the caller holds the engine's lock. */

#include "room.h"

/*  Returns whether tensor cores multiply these weights. Only the weights and the device decide, so that a row has the
    same bits in any batch. */
IGNIS__PRIVATE bool ignis__gemv_uses_tensor_cores(ignis__op *op, ignis_dtype dtype, ignis__array *weights)
{
    return (dtype == IGNIS_F16 || dtype == IGNIS_BF16) && op->work.device->info.compute_major >= 8 &&
           ignis__weight_columns(weights) % 8 == 0 && ignis__weight_rows(weights) < INT32_MAX - 16 &&
           ignis__op_read(op, weights) % 16 == 0;
}

/*  Launches a norm of rows of the sum. out: NULL if only the sum is needed. */
IGNIS__PRIVATE void ignis__pre_norm_launch(ignis__op *op, int count, ignis__array *out, const ignis__pre_norm *norm)
{
    ignis__address to = out ? ignis__op_write(op, out) : 0, from = ignis__op_write(op, norm->sum),
                   by = norm->weight ? ignis__op_read(op, norm->weight) : 0,
                   add = norm->bias ? ignis__op_read(op, norm->bias) : 0,
                   other = norm->other ? ignis__op_write(op, norm->other) : 0;
    int hidden = (int)norm->sum->shape.dim[1], rms = norm->rms || !norm->weight;
    int packed = hidden % ignis__pack_elements(norm->sum->dtype) == 0 && (to | from | by | add | other) % 16 == 0;
    double eps = norm->eps, offset = norm->offset;
    void *params[] = {&to, &from, &other, &by, &add, &hidden, &eps, &rms, &packed, &offset};
    ignis__op_launch_row(op, IGNIS__BUILTIN(GENERATE_NORM), norm->weight ? norm->weight->dtype : norm->dtype, count,
                         256, params);
}

IGNIS__PRIVATE void ignis__pre_norm_fuse(ignis__op *op, ignis__gemv_mma *p, const ignis__pre_norm *norm)
{
    p->norm_of = ignis__op_read(op, norm->sum);
    p->norm_weight = ignis__op_read(op, norm->weight);
    p->norm_bias = norm->bias ? ignis__op_read(op, norm->bias) : 0;
    p->eps = norm->eps;
    p->rms = norm->rms;
}

/*  Fills in the operands of a product with quantised weights, except those, and where its results go. result_row:
    elements from a row of results to the next. */
IGNIS__PRIVATE void ignis__gemv_fill(ignis__op *op, ignis__gemv_mma *p, const ignis__gemv_desc *desc,
                                     int64_t result_row)
{
    if (desc->cache)
        *p = *desc->cache;
    p->bias = desc->bias ? ignis__op_read(op, desc->bias) : 0;
    p->k = desc->weights->blocks.columns;
    p->kind = (int)desc->kind;
    p->gated = desc->gated;
    if (desc->norm)
        ignis__pre_norm_fuse(op, p, desc->norm);
    else
        p->x = ignis__op_read(op, desc->x);
    p->out = p->sum = p->logits = ignis__op_write(op, desc->out);
    p->delta = desc->delta ? ignis__op_write(op, desc->delta) : 0;
    p->result_row = result_row;
}

/*  A variant of gemv_cluster.cuh. columns: rows of x at most; cluster: blocks per cluster; resident: blocks per SM. A
    product has one cluster for each 128 rows of weights. It takes the first variant for its rows of x with which it
    has at most `most` blocks for two SMs; the limits were measured. The last variants have clusters of one block,
    which takes one group after the other. found: shared memory for results, in units of 512 bytes per row of x. */
typedef struct ignis__gemv_cluster {
    int columns, cluster, resident, most, found;
} ignis__gemv_cluster;

enum { IGNIS__GEMV_DENSE, IGNIS__GEMV_WHOLE_NUMBERS, IGNIS__GEMV_WARPGROUPS, IGNIS__GEMV_SOURCES };
enum { IGNIS__GEMV_CLUSTERS = 10 }; /* at most */
static const ignis__gemv_cluster ignis__gemv_clusters[IGNIS__GEMV_SOURCES][IGNIS__GEMV_CLUSTERS] = {
    {{16, 8, 2, 3, 1},
     {16, 4, 2, 4, 1},
     {16, 1, 2, 0, 0},
     {32, 8, 2, 3, 1},
     {32, 4, 2, 4, 1},
     {32, 1, 2, 0, 1},
     {64, 8, 2, 4, 1},
     {64, 2, 1, 2, 2},
     {64, 1, 1, 0, 2}},
    {{16, 2, 1, 2, 3}, {16, 1, 1, 0, 3}, {32, 2, 1, 2, 3}, {32, 1, 1, 0, 3}},
    {{8, 4, 2, 4, 1},
     {8, 1, 2, 0, 0},
     {16, 4, 2, 4, 1},
     {16, 1, 2, 0, 2},
     {32, 4, 1, 2, 1},
     {32, 2, 1, 2, 1},
     {32, 1, 1, 0, 1},
     {64, 4, 1, 2, 1},
     {64, 2, 1, 7, 2},
     {64, 1, 1, 0, 2}}};

/*  Writes the defines of a variant. type: of quantised blocks, or 0. */
static void ignis__gemv_cluster_define(char *define, size_t size, const ignis__gemv_cluster *variant, int type)
{
    snprintf(define, size,
             type ? "-DIGNIS_COLUMNS=%d -DIGNIS_CLUSTER=%d -DIGNIS_BLOCKS=%d" : "-DIGNIS_COLUMNS=%d -DIGNIS_CLUSTER=%d",
             variant->columns, variant->cluster, type);
}

/*  Writes the defines of gemv_hopper.cu. split: blocks of a cluster. */
static void ignis__gemv_wgmma_define(char *define, size_t size, int columns, int split)
{
    snprintf(define, size, "-DIGNIS_COLUMNS=%d -DIGNIS_SPLIT=%d", columns, split);
}

/*  Records the kernels that other devices, or other numbers of rows, take for these weights. */
IGNIS__COLD IGNIS__PRIVATE void ignis__gemv_record(const ignis__op *op, ignis_dtype dtype, bool gated)
{
    char define[64];
    int groups, i;
    if (!op->ok || !ignis__requests.path[0] || (dtype != IGNIS_F16 && dtype != IGNIS_BF16))
        return;
    ignis__record_builtin_for_all(gated ? IGNIS__BUILTIN(GEMV_GATED_1) : IGNIS__BUILTIN(GEMV_1), dtype);
    ignis__record_builtin_for_all(IGNIS__BUILTIN(GEMV_MMA_1), dtype);
    for (groups = 2; groups <= 8; groups *= 2) {
        snprintf(define, sizeof define, "-DIGNIS_GROUPS=%d", groups);
        ignis__record_builtin(IGNIS__BUILTIN(GEMV_MMA_16), dtype, define, 80, IGNIS__EVERY_ARCH);
    }
    for (i = 0; ignis__gemv_clusters[IGNIS__GEMV_DENSE][i].columns && i < IGNIS__GEMV_CLUSTERS; i++) {
        ignis__gemv_cluster_define(define, sizeof define, &ignis__gemv_clusters[IGNIS__GEMV_DENSE][i], 0);
        ignis__record_builtin(IGNIS__BUILTIN(GEMV_CLUSTER), dtype, define, 90, IGNIS__EVERY_ARCH);
    }
    for (i = 0; i < 4; i++) {
        ignis__gemv_wgmma_define(define, sizeof define, IGNIS__WGMMA_COLUMNS >> i / 2, 1 + i % 2);
        ignis__record_builtin(IGNIS__BUILTIN(GEMV_HOPPER), dtype, define, 90, 90);
    }
}

/*  Chooses the ring that brings weights to shared memory on sm_90 and up, for a product of one row. rest: bytes that
    a block needs besides. Three chunks of each warp are in flight if an SM still has memory for two such blocks, else
    two. resident: receives the blocks per SM. */
IGNIS__PRIVATE void ignis__gemv_choose_ring(ignis__op *op, const ignis__array *weights, size_t rest, ignis__gemv_mma *p,
                                            ignis__tensor_map *map, int *resident)
{
    /* bytes of a chunk of each warp, and of all else that a block uses */
    enum { PIECES = 8 * (4 * 1024 + 8), OTHER = 2048 };
    const size_t all = (size_t)op->work.device->info.shared_per_block + 1024; /* of an SM */
    const int64_t dims[] = {weights->shape.dim[1], weights->shape.dim[0]}, step = 2 * weights->shape.dim[1];
    const int box[] = {64, 8}; /* gemv_mma.cu has the same box */
    const ignis__tensor_map_desc desc = {weights->dtype, false, p->weights, 2, dims, &step, box, NULL};
    p->ring = 2 * (3 * PIECES + rest + OTHER) <= all ? 3 : 2;
    p->found_at = PIECES * p->ring;
    *resident = 2 * ((size_t)p->found_at + rest + OTHER) <= all ? 2 : 1;
    op->ok = op->ok && ignis__tensor_map_make(&op->work, map, &desc);
}

/*  The operands of a product by gemv_cluster.cuh. x_columns: 16-bit elements of a row of x.
    weights, each: bytes of a stage for the weights, and for each row of x. */
typedef struct ignis__gemv_cluster_source {
    ignis__builtin builtin;
    ignis__address x;
    int64_t x_columns, groups; /* groups: of 128 rows of weights */
    size_t weights, each;
    int type;     /* of quantised blocks, or 0 */
    int variants; /* IGNIS__GEMV_DENSE and so on */
} ignis__gemv_cluster_source;

/*  Chooses the variant for a product and makes its TMA map of x. NULL if this device has no variant. */
static const ignis__gemv_cluster *ignis__gemv_cluster_choose(ignis__op *op, ignis_dtype dtype,
                                                             const ignis__gemv_cluster_source *source,
                                                             ignis__gemv_mma *p, ignis__tensor_map *x_map, char *define,
                                                             size_t size)
{
    const ignis_device_info *info = &op->work.device->info;
    const ignis__gemv_cluster *variant = ignis__gemv_clusters[source->variants];
    const int64_t dims[] = {source->x_columns, p->rows}, step = 2 * source->x_columns;
    size_t stage, free_bytes, found;
    int box[] = {64, 0};
    const ignis__tensor_map_desc desc = {dtype, false, source->x, 2, dims, &step, box, NULL};
    if (!op->work.device->clusters || !ignis__cuda.cuTensorMapEncodeTiled)
        return NULL;
    while (variant->columns < p->rows || (variant->cluster > 1 && 2 * source->groups * variant->cluster >
                                                                      (int64_t)info->multiprocessors * variant->most))
        variant++;
    box[1] = variant->columns;
    stage = (source->weights + source->each * (size_t)variant->columns + 1023) / 1024 * 1024;
    found = 512 * (size_t)(variant->columns * variant->found);
    free_bytes = ((size_t)info->shared_per_block + 1024) / (size_t)variant->resident - 1024;
    p->ring = free_bytes > found ? (int)((free_bytes - found - 8) / (stage + 16)) : 0;
    p->found_at = (int)stage * p->ring;
    ignis__gemv_cluster_define(define, size, variant, source->type);
    if (p->ring < 2 || !ignis__variant_exists(op->work.device, source->builtin, dtype, define))
        return NULL;
    op->ok = op->ok && ignis__tensor_map_make(&op->work, x_map, &desc);
    return variant;
}

static void ignis__gemv_cluster_launch(ignis__op *op, ignis_dtype dtype, const ignis__gemv_cluster_source *source,
                                       const ignis__gemv_mma *p, const ignis__gemv_cluster *variant, const char *define,
                                       void **params)
{
    const size_t shared =
        (size_t)p->found_at + 512 * (size_t)(variant->columns * variant->found) + 8 + 16 * (size_t)p->ring;
    const int64_t most = (int64_t)variant->resident * op->work.device->info.multiprocessors;
    ignis__op_launch(op, source->builtin, dtype, define,
                     ignis__launch_row(variant->cluster > 1 ? source->groups * variant->cluster
                                                            : ignis__clamp(source->groups, 1, most),
                                       source->variants == IGNIS__GEMV_WARPGROUPS && variant->columns >= 32 ? 384 : 288,
                                       shared),
                     params);
}

/*  Multiplies with dense weights by clusters. False if this device has no variant. */
IGNIS__PRIVATE bool ignis__gemv_cluster_dense(ignis__op *op, ignis__gemv_mma *p, const ignis__array *weights)
{
    /* rows of the weights */
    const int adjacent = p->kind == (int)IGNIS__GEMV_CACHE ? p->head_dim / 2 : 64;
    const int box[] = {64,
                       (adjacent & -adjacent) < 64 ? adjacent & -adjacent : 64}; /* gemv_cluster.cu has the same box */
    const int64_t dims[] = {weights->shape.dim[1], weights->shape.dim[0]}, step = 2 * dims[0];
    const ignis__tensor_map_desc desc = {weights->dtype, false, p->weights, 2, dims, &step, box, NULL};
    ignis__gemv_cluster_source source = IGNIS__ZERO;
    const ignis__gemv_cluster *variant;
    char define[64];
    ignis__tensor_map maps[2];
    void *params[] = {p, &maps[0], &maps[1]};
    source.builtin = IGNIS__BUILTIN(GEMV_CLUSTER);
    source.x = p->x;
    source.x_columns = dims[0];
    source.groups = ignis__ceil_div(p->n, p->gated ? 64 : 128);
    source.weights = 16 * 1024;
    source.each = 128;
    variant = ignis__gemv_cluster_choose(op, weights->dtype, &source, p, &maps[1], define, sizeof define);
    if (!variant)
        return false;
    op->ok = op->ok && ignis__tensor_map_make(&op->work, &maps[0], &desc);
    ignis__gemv_cluster_launch(op, weights->dtype, &source, p, variant, define, params);
    return true;
}

/*  Returns whether gemv_hopper.cu multiplies the rows. Their bits do not depend on it. */
IGNIS__PRIVATE bool ignis__gemv_takes_wgmma(ignis__op *op, const ignis__gemv_desc *desc)
{
    const ignis__array *weights = desc->weights;
    char define[64];
    ignis__gemv_wgmma_define(define, sizeof define, IGNIS__WGMMA_COLUMNS, 1);
    return desc->count > IGNIS__CLUSTER_ROWS && !weights->blocks.count && weights->shape.dim[1] % 512 == 0 &&
           desc->ordered && desc->ordered->numel >= desc->count * weights->shape.dim[1] && op->work.device->clusters &&
           ignis__gemm_has_wgmma(op, weights->dtype) &&
           ignis__variant_exists(op->work.device, IGNIS__BUILTIN(GEMV_HOPPER), weights->dtype, define);
}

/*  Returns how many blocks should divide K for a product of groups x across tiles. A round of tiles takes as long as a
    block's steps of K, and as MORE for what comes before and after them. Steps of undivided K take an eighth longer,
    as a ring with fewer stages serves them. All of this was measured; so was that more than two blocks are slower, as
    not all clusters of four run at a time. */
static int ignis__gemv_wgmma_split(int multiprocessors, int64_t groups, int64_t across, int64_t steps)
{
    enum { MORE = 8 };
    const int64_t one = multiprocessors / across,
                  two = multiprocessors / 2 / across; /* clusters for the same columns */
    const int64_t undivided = ignis__ceil_div(groups, one > 0 ? one : 1) * (steps + steps / 8 + MORE);
    return two > 0 && ignis__ceil_div(groups, two) * (steps / 2 + MORE) < undivided ? 2 : 1;
}

/*  Multiplies rows of x in the order of operands with dense weights by wgmma. */
IGNIS__PRIVATE void ignis__gemv_wgmma(ignis__op *op, ignis__gemv_mma *p, const ignis__array *weights)
{
    const ignis_device_info *info = &op->work.device->info;
    const int columns = p->rows <= IGNIS__WGMMA_COLUMNS / 2 ? IGNIS__WGMMA_COLUMNS / 2 : IGNIS__WGMMA_COLUMNS;
    const int64_t groups = ignis__ceil_div(p->n, p->gated ? 64 : 128), across = ignis__ceil_div(p->rows, columns);
    const int split = ignis__gemv_wgmma_split(info->multiprocessors, groups, across, weights->shape.dim[1] / 64);
    const int64_t clusters = ignis__clamp(info->multiprocessors / split / across, 1, groups) * across;
    /* gemv_hopper.cu has the same: bytes of a stage, of sums of a tile and results of columns, of what follows */
    const size_t stage = 16 * 1024 + 128 * (size_t)columns, sums = 512 * (size_t)columns,
                 found = split == 1 ? 2 * sums : sums + (size_t)columns / 2 * 272, rows = 16 + 16 * (size_t)columns;
    /* rows of the weights */
    const int adjacent = p->kind == (int)IGNIS__GEMV_CACHE ? p->head_dim / 2 : 64;
    const int box[] = {64, (adjacent & -adjacent) < 64 ? adjacent & -adjacent : 64}, x_box[] = {64, columns};
    const int64_t dims[] = {weights->shape.dim[1], weights->shape.dim[0]}, x_dims[] = {dims[0], p->rows},
                  step = 2 * dims[0];
    const ignis__tensor_map_desc desc = {weights->dtype, false, p->weights, 2, dims, &step, box, NULL},
                                 x_desc = {weights->dtype, false, p->x, 2, x_dims, &step, x_box, NULL};
    char define[64];
    ignis__tensor_map maps[2];
    void *params[] = {p, &maps[0], &maps[1]};
    p->across = (int)across;
    p->ring = (int)(((size_t)info->shared_per_block - found - rows) / (stage + 16));
    p->found_at = (int)stage * p->ring;
    ignis__gemv_wgmma_define(define, sizeof define, columns, split);
    op->ok = op->ok && ignis__tensor_map_make(&op->work, &maps[0], &desc) &&
             ignis__tensor_map_make(&op->work, &maps[1], &x_desc);
    ignis__op_launch(
        op, IGNIS__BUILTIN(GEMV_HOPPER), weights->dtype, define,
        ignis__launch_row(clusters * split, 384, (size_t)p->found_at + found + 16 * (size_t)p->ring + rows), params);
}

/*  Returns whether wgmma multiplies these blocks: gemv_hopper_blocks.cu says which. */
static bool ignis__gemv_takes_warpgroups(const ignis__op *op, ignis_dtype dtype,
                                         const struct ignis__blocks_types_type *of)
{
    return ignis__gemm_has_wgmma(op, dtype) &&
           (of->type == IGNIS__GGUF_F8 || ((of->bits == 4 || of->bits == 5) && of->numbers < (int)IGNIS__NUMBERS_IQ4));
}

/*  Converts the rows of x of a product with one part of quantised weights. */
IGNIS__PRIVATE void ignis__gemv_launch_rows(ignis__op *op, ignis_dtype dtype, ignis__gemv_blocks *p, int type)
{
    char define[32];
    void *params[] = {p};
    const size_t shared = p->product.norm_of ? 2 * (size_t)p->product.k : 0;
    snprintf(define, sizeof define, "-DIGNIS_BLOCKS=%d", type);
    ignis__op_launch(op, IGNIS__BUILTIN(GEMV_BLOCKS_ROWS), dtype, define,
                     ignis__launch_row(p->product.rows, 256, shared), params);
}

/*  As ignis__gemv_cluster_dense, for one part of quantised weights, with the conversion of x. False, too, for few rows
    of weights, and for numbers of rows of x where gemv_blocks.cu is as fast. */
IGNIS__PRIVATE bool ignis__gemv_cluster_quantised(ignis__op *op, ignis_dtype dtype, ignis__gemv_blocks *p, int type,
                                                  int64_t units)
{
    const struct ignis__blocks_types_type *of = &ignis__blocks_types[ignis__blocks_type(type)];
    const bool minima = of->scales == (int)IGNIS__SCALES_K || of->scales == (int)IGNIS__SCALES_ADDED;
    ignis__gemv_cluster_source source = IGNIS__ZERO;
    const ignis__gemv_cluster *variant;
    char define[64];
    ignis__tensor_map x_map;
    void *params[] = {p, &x_map};
    p->paired = ignis__gemv_takes_warpgroups(op, dtype, of);
    source.builtin = p->paired ? IGNIS__BUILTIN(GEMV_HOPPER_BLOCKS) : IGNIS__BUILTIN(GEMV_CLUSTER_BLOCKS);
    source.x = p->x;
    source.x_columns = units * 128;
    source.groups = ignis__ceil_div(p->product.n - p->first, p->product.gated ? 64 : 128);
    source.weights = 128 * (size_t)of->bytes;
    /* eight scales, if x is whole numbers, and sums if minima need them */
    source.each = 512 + (p->paired ? 0u : 32u) + (minima ? 32u : 0u);
    source.type = type;
    source.variants = p->paired ? IGNIS__GEMV_WARPGROUPS : IGNIS__GEMV_WHOLE_NUMBERS;
    variant = !p->paired && (p->product.rows <= 8 || p->product.rows > 32 ||
                             4 * source.groups <= op->work.device->info.multiprocessors)
                  ? NULL
                  : ignis__gemv_cluster_choose(op, dtype, &source, &p->product, &x_map, define, sizeof define);
    if (!variant) {
        p->paired = 0;
        return false;
    }
    ignis__gemv_launch_rows(op, dtype, p, type);
    ignis__gemv_cluster_launch(op, dtype, &source, &p->product, variant, define, params);
    return true;
}
