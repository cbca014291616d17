#include "room.h"

/*  Whether weights are multiplied by tensor cores: this follows from them alone, so that rows have the same bits in any number. */
IGNIS__PRIVATE bool ignis__step_takes_mma(ignis__op *op, ignis_dtype dtype, ignis__array *weights)
{
    return (dtype == IGNIS_F16 || dtype == IGNIS_BF16) && op->work.device->info.compute_major >= 8 &&
           ignis__weight_columns(weights) % 8 == 0 && ignis__weight_rows(weights) < INT32_MAX - 16 &&
           ignis__op_read(op, weights) % 16 == 0;
}

/*  out: null, where only the sum is wanted. */
IGNIS__PRIVATE void ignis__step_norm(ignis__op *op, int count, ignis__array *out, const ignis__step_norms *norm)
{
    ignis__address to = out ? ignis__op_write(op, out) : 0, from = ignis__op_write(op, norm->sum),
                   by = ignis__op_read(op, norm->weight), add = norm->bias ? ignis__op_read(op, norm->bias) : 0,
                   other = norm->other ? ignis__op_write(op, norm->other) : 0;
    int hidden = (int)norm->weight->numel, rms = norm->rms;
    int packed = hidden % ignis__pack_elements(norm->sum->dtype) == 0 && (to | from | by | add | other) % 16 == 0;
    double eps = norm->eps;
    void *params[] = {&to, &from, &other, &by, &add, &hidden, &eps, &rms, &packed};
    ignis__op_launch_row(op, IGNIS__BUILTIN_GENERATE_NORM, norm->weight->dtype, count, 256, params);
}

IGNIS__PRIVATE void ignis__step_mma_norm(ignis__op *op, ignis__gemv_mma *p, const ignis__step_norms *norm)
{
    p->norm_of = ignis__op_read(op, norm->sum);
    p->norm_weight = ignis__op_read(op, norm->weight);
    p->norm_bias = norm->bias ? ignis__op_read(op, norm->bias) : 0;
    p->eps = norm->eps;
    p->rms = norm->rms;
}

/*  Variants of gemv_cluster.cuh: rows of x at most, blocks of a cluster, and blocks that a multiprocessor has room for. A product has a cluster for
    each 128 rows of weights, and takes the first variant for so many rows of x with which it has up to `most` blocks for two multiprocessors: those
    that measured best. Clusters of one, the last ones, go on from group to group. found: times 512 bytes for each row of x, of shared memory for what
    is found. */
typedef struct ignis__gemv_cluster {
    int columns, cluster, resident, most, found;
} ignis__gemv_cluster;

enum { IGNIS__GEMV_CLUSTERS = 9 }; /* of numbers; of quantised weights fewer */
static const ignis__gemv_cluster ignis__gemv_clusters[2][IGNIS__GEMV_CLUSTERS] = {
    {{16, 8, 2, 3, 1},
     {16, 4, 2, 4, 1},
     {16, 1, 2, 0, 0},
     {32, 8, 2, 3, 1},
     {32, 4, 2, 4, 1},
     {32, 1, 2, 0, 1},
     {64, 8, 2, 4, 1},
     {64, 2, 1, 2, 2},
     {64, 1, 1, 0, 2}},
    {{16, 2, 1, 2, 3}, {16, 1, 1, 0, 3}, {32, 2, 1, 2, 3}, {32, 1, 1, 0, 3}}};

/*  type: of blocks, or 0. */
static void ignis__gemv_cluster_define(char *define, size_t size, const ignis__gemv_cluster *variant, int type)
{
    snprintf(define, size,
             type ? "-DIGNIS_COLUMNS=%d -DIGNIS_CLUSTER=%d -DIGNIS_BLOCKS=%d" : "-DIGNIS_COLUMNS=%d -DIGNIS_CLUSTER=%d",
             variant->columns, variant->cluster, type);
}

/*  Records what other devices, or other numbers of rows, take for weights. */
IGNIS__COLD IGNIS__PRIVATE void ignis__step_request(const ignis__op *op, ignis_dtype dtype, bool gated)
{
    char define[64];
    int groups, i;
    if (!op->ok || !ignis__requests.path[0] || (dtype != IGNIS_F16 && dtype != IGNIS_BF16))
        return;
    ignis__record_builtin_for_all(gated ? IGNIS__BUILTIN_GEMV_GATED_1 : IGNIS__BUILTIN_GEMV_1, dtype);
    ignis__record_builtin_for_all(IGNIS__BUILTIN_GEMV_MMA_1, dtype);
    for (groups = 2; groups <= 8; groups *= 2) {
        snprintf(define, sizeof define, "-DIGNIS_GROUPS=%d", groups);
        ignis__record_builtin(IGNIS__BUILTIN_GEMV_MMA_16, dtype, define, 80, IGNIS__EVERY_ARCH);
    }
    for (i = 0; i < IGNIS__GEMV_CLUSTERS; i++) {
        ignis__gemv_cluster_define(define, sizeof define, &ignis__gemv_clusters[0][i], 0);
        ignis__record_builtin(IGNIS__BUILTIN_GEMV_CLUSTER, dtype, define, 90, IGNIS__EVERY_ARCH);
    }
}

/*  How the weights of a product of one row come to shared memory on sm_90 and up, where a block takes `rest` bytes beside them: three pieces of each
    warp are on their way if a multiprocessor has room for two such blocks, else two. resident: blocks that it has room for. */
IGNIS__PRIVATE void ignis__step_ring(ignis__op *op, const ignis__array *weights, size_t rest, ignis__gemv_mma *p,
                                     ignis__tensor_map *map, int *resident)
{
    enum {
        PIECES = 8 * (4 * 1024 + 8),
        OTHER = 2048
    }; /* bytes of a piece of each warp; those that a block takes otherwise */
    const size_t all = (size_t)op->work.device->info.shared_per_block + 1024; /* of a multiprocessor */
    const int64_t dims[] = {weights->shape.dim[1], weights->shape.dim[0]}, step = 2 * weights->shape.dim[1];
    const int box[] = {64, 8}; /* gemv_mma.cu has the same */
    p->ring = 2 * (3 * PIECES + rest + OTHER) <= all ? 3 : 2;
    p->found_at = PIECES * p->ring;
    *resident = 2 * ((size_t)p->found_at + rest + OTHER) <= all ? 2 : 1;
    op->ok =
        op->ok && ignis__tensor_map_make(&op->work, map, weights->dtype, false, p->weights, 2, dims, &step, box, NULL);
}

/*  What a product of 9 rows and more by gemv_cluster.cuh takes: rows of x, of so many 16-bit elements; and bytes of a stage, of weights and for each
    row. */
typedef struct ignis__gemv_cluster_source {
    ignis__builtin builtin;
    ignis__address x;
    int64_t x_columns, groups; /* groups: of 128 rows of weights */
    size_t weights, each;
    int type; /* of blocks, or 0 */
} ignis__gemv_cluster_source;

/*  The variant for it, and its map of x; null: this device has none. */
static const ignis__gemv_cluster *ignis__gemv_cluster_choose(ignis__op *op, ignis_dtype dtype,
                                                             const ignis__gemv_cluster_source *source,
                                                             ignis__gemv_mma *p, ignis__tensor_map *of_x, char *define,
                                                             size_t size)
{
    const ignis_device_info *info = &op->work.device->info;
    const ignis__gemv_cluster *variant = ignis__gemv_clusters[source->type ? 1 : 0];
    const int64_t dims[] = {source->x_columns, p->rows}, step = 2 * source->x_columns;
    size_t stage, room, found;
    int box[] = {64, 0};
    if (!op->work.device->clusters || !ignis__cuda.cuTensorMapEncodeTiled)
        return NULL;
    while (variant->columns < p->rows || (variant->cluster > 1 && 2 * source->groups * variant->cluster >
                                                                      (int64_t)info->multiprocessors * variant->most))
        variant++;
    box[1] = variant->columns;
    stage = (source->weights + source->each * (size_t)variant->columns + 1023) / 1024 * 1024;
    found = 512 * (size_t)(variant->columns * variant->found);
    room = ((size_t)info->shared_per_block + 1024) / (size_t)variant->resident - 1024;
    p->ring = room > found ? (int)((room - found - 8) / (stage + 16)) : 0;
    p->found_at = (int)stage * p->ring;
    ignis__gemv_cluster_define(define, size, variant, source->type);
    if (p->ring < 2 || !ignis__variant_exists(op->work.device, source->builtin, dtype, define))
        return NULL;
    op->ok = op->ok && ignis__tensor_map_make(&op->work, of_x, dtype, false, source->x, 2, dims, &step, box, NULL);
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
                     variant->cluster > 1 ? source->groups * variant->cluster : ignis__clamp(source->groups, 1, most),
                     1, 1, 288, 1, shared, params);
}

/*  False: not on this device. */
IGNIS__PRIVATE bool ignis__step_mma_cluster(ignis__op *op, ignis__gemv_mma *p, const ignis__array *weights)
{
    const int half = p->kind == (int)IGNIS__GEMV_CACHE ? p->head_dim / 2
                                                       : 64; /* so many rows of the weights are next to each other */
    const int box[] = {64, (half & -half) < 64 ? half & -half : 64}; /* gemv_cluster.cu has the same */
    const int64_t dims[] = {weights->shape.dim[1], weights->shape.dim[0]}, step = 2 * dims[0];
    ignis__gemv_cluster_source source = IGNIS__ZERO;
    const ignis__gemv_cluster *variant;
    char define[64];
    ignis__tensor_map maps[2];
    void *params[] = {p, &maps[0], &maps[1]};
    source.builtin = IGNIS__BUILTIN_GEMV_CLUSTER;
    source.x = p->x;
    source.x_columns = dims[0];
    source.groups = ignis__ceil_div(p->n, p->gated ? 64 : 128);
    source.weights = 16 * 1024;
    source.each = 128;
    variant = ignis__gemv_cluster_choose(op, weights->dtype, &source, p, &maps[1], define, sizeof define);
    if (!variant)
        return false;
    op->ok = op->ok &&
             ignis__tensor_map_make(&op->work, &maps[0], weights->dtype, false, p->weights, 2, dims, &step, box, NULL);
    ignis__gemv_cluster_launch(op, weights->dtype, &source, p, variant, define, params);
    return true;
}

/*  The same of a part of quantised weights. With few rows of weights, or more than 32 of x, gemv_blocks.cu is as fast or faster. */
IGNIS__PRIVATE bool ignis__step_blocks_cluster(ignis__op *op, ignis_dtype dtype, ignis__gemv_blocks *p, int type,
                                               int64_t units)
{
    ignis__gemv_cluster_source source = IGNIS__ZERO;
    const ignis__gemv_cluster *variant;
    char define[64];
    ignis__tensor_map of_x;
    void *params[] = {p, &of_x};
    source.builtin = IGNIS__BUILTIN_GEMV_CLUSTER_BLOCKS;
    source.x = p->x;
    source.x_columns = units * 128;
    source.groups = ignis__ceil_div(p->product.n - p->first, p->product.gated ? 64 : 128);
    source.weights = 128 * (size_t)ignis__blocks_types[ignis__blocks_type(type)].bytes;
    source.each = 512 + (type == IGNIS__GGUF_Q4_K ? 64 : 32); /* eight scales, and sums if there are minima */
    source.type = type;
    if (p->product.rows > 32 || 4 * source.groups <= op->work.device->info.multiprocessors)
        return false;
    variant = ignis__gemv_cluster_choose(op, dtype, &source, &p->product, &of_x, define, sizeof define);
    if (!variant)
        return false;
    ignis__gemv_cluster_launch(op, dtype, &source, &p->product, variant, define, params);
    return true;
}
