/*  models/generate/gemv.c - products of the rows of a step with weights, and of the rows of a chunk

    GEMV is bound by memory: weights are read once. f16 and bf16 on sm_80 and up take tensor cores, all else takes
    plain cores. Which kernel runs depends on the weights and the device, so rows keep their bits in any batch. A
    product of more rows is a GEMM of >>matmul.
    May use: gemv_cluster.c, >>matmul. Locks: the caller holds the engine's lock. */

#include "room.h"

/*  The kernels for up to 1, 8, 16, 32 and 64 rows. */
static const ignis__builtin ignis__gemv_dense_kernels[] = {IGNIS__BUILTIN(GEMV_MMA_1), IGNIS__BUILTIN(GEMV_MMA_8),
                                                           IGNIS__BUILTIN(GEMV_MMA_16), IGNIS__BUILTIN(GEMV_MMA_32),
                                                           IGNIS__BUILTIN(GEMV_MMA_64)};
static const ignis__builtin ignis__gemv_blocks_kernels[] = {
    IGNIS__BUILTIN(GEMV_BLOCKS_1), IGNIS__BUILTIN(GEMV_BLOCKS_8), IGNIS__BUILTIN(GEMV_BLOCKS_16),
    IGNIS__BUILTIN(GEMV_BLOCKS_32), IGNIS__BUILTIN(GEMV_BLOCKS_64)};

/*  Moves a product on by some rows. */
static void ignis__gemv_advance(ignis__gemv_mma *p, int rows)
{
    const ignis__address x = (ignis__address)(rows * p->k), result = (ignis__address)(rows * p->result_row);
    p->x += p->x ? 2 * x : 0;
    p->norm_of += p->norm_of ? 4 * x : 0;
    p->out += 2 * result;
    p->sum += 4 * result;
    p->logits += 4 * result;
    p->delta += p->delta ? (p->gated ? 8 : 4) * result : 0;
    p->places += p->places ? (ignis__address)rows * sizeof(ignis__generate_row) : 0;
}

/*  Multiplies 2 to IGNIS__GEMV_ROWS rows, or one where no kernel for one row fits. */
static void ignis__gemv_launch_dense(ignis__op *op, ignis__gemv_mma *p, const ignis__array *weights)
{
    /* bytes that gemv_mma.cu needs for a column; STAGES: for 8 columns, with more than 8 rows of x */
    enum { FOUND = 2 * 8 * 20 * 4, STAGES = 4 * 8 * 192 };
    const ignis_device_info *info = &op->work.device->info;
    const int64_t tiles = ignis__ceil_div(p->n, p->gated ? 8 : 16);
    const int number = p->rows <= 8 ? 1 : p->rows <= 16 ? 2 : p->rows <= 32 ? 3 : 4;
    int groups = 1, resident = number == 1 ? 2 : 1;
    size_t shared = (size_t)FOUND * 8;
    char define[32] = "";
    ignis__tensor_map map;
    void *params[] = {p, &map};
    memset(&map, 0, sizeof map);
    if (number > 1) { /* as many tiles share x as leave work for each SM */
        for (groups = 8; groups > 2 && ignis__ceil_div(tiles, groups) < info->multiprocessors * 3 / 4;)
            groups /= 2;
        shared = (size_t)STAGES * (size_t)(8 / groups) * ((size_t)1 << (number - 1));
        snprintf(define, sizeof define, "-DIGNIS_GROUPS=%d", groups);
        if (ignis__gemv_cluster_dense(op, p, weights))
            return;
    }
    p->found_at = 0;
    ignis__op_launch(
        op, ignis__gemv_dense_kernels[number], weights->dtype, number > 1 ? define : NULL,
        ignis__launch_row(ignis__clamp(ignis__ceil_div(tiles, groups), 1, info->multiprocessors * resident), 256,
                          shared),
        params);
}

/*  Multiplies rows of x with all rows of dense weights on tensor cores. */
IGNIS__PRIVATE void ignis__gemv_run_dense(ignis__op *op, const ignis__gemv_desc *desc)
{
    enum { FOUND = 2 * 8 * 20 * 4 }; /* bytes that gemv_mma.cu needs for a column */
    const ignis_device_info *info = &op->work.device->info;
    const bool rings = info->compute_major >= 9; /* the kernel of one row has a ring */
    int resident = 2, rest;
    size_t shared = FOUND + 2 * (size_t)(ignis__ceil_div(desc->weights->shape.dim[1], 32) * 32);
    bool single;
    const bool wgmma = ignis__gemv_takes_wgmma(op, desc);
    ignis__gemv_mma p;
    ignis__tensor_map map;
    void *params[] = {&p, &map};
    memset(&p, 0, sizeof p);
    memset(&map, 0, sizeof map);
    if (desc->cache)
        p = *desc->cache;
    p.ordered = wgmma ? ignis__op_write(op, desc->ordered) : 0;
    p.orders = desc->orders;
    p.weights = ignis__op_read(op, desc->weights);
    p.bias = desc->bias ? ignis__op_read(op, desc->bias) : 0;
    p.k = desc->weights->shape.dim[1];
    p.n = desc->weights->shape.dim[0] / (desc->gated ? 2 : 1);
    p.rows = desc->count;
    p.kind = (int)desc->kind;
    p.gated = desc->gated;
    if (desc->count == 1 && rings && ignis__cuda.cuTensorMapEncodeTiled)
        ignis__gemv_choose_ring(op, desc->weights, shared, &p, &map, &resident);
    shared += (size_t)p.found_at;
    single = desc->count == 1 && (p.ring || !rings) && shared <= (size_t)info->shared_per_block;
    if (desc->norm) {
        ignis__pre_norm_fuse(op, &p, desc->norm);
        if (!single) {
            p.out = ignis__op_write(op, desc->x);
            ignis__op_launch_row(op, IGNIS__BUILTIN(GEMV_MMA_NORM), desc->weights->dtype, desc->count, 256, params);
            p.norm_of = 0;
        }
    }
    p.x = p.norm_of ? 0 : ignis__op_read(op, desc->x);
    p.out = p.sum = p.logits = ignis__op_write(op, desc->out);
    p.delta = desc->delta ? ignis__op_write(op, desc->delta) : 0;
    p.result_row = desc->out->shape.dim[1];
    ignis__cost(-1, 2.0 * (double)desc->count * (double)desc->weights->numel, (int)desc->weights->dtype);
    if (single) {
        const int64_t tiles = ignis__ceil_div(p.n, desc->gated ? 8 : 16);
        ignis__op_launch(op, ignis__gemv_dense_kernels[0], desc->weights->dtype, NULL,
                         ignis__launch_row(ignis__clamp(tiles, 1, info->multiprocessors * resident), 256, shared),
                         params);
        return;
    }
    if (wgmma) {
        if (!desc->norm && !desc->is_ordered)
            ignis__op_launch(op, IGNIS__BUILTIN(GEMV_MMA_ORDER), desc->weights->dtype, NULL,
                             ignis__launch_grid(ignis__ceil_div(p.k, 2048), desc->count, 1, 256, 1, 0), params);
        p.x = desc->is_ordered ? p.x : p.ordered;
        ignis__gemv_wgmma(op, &p, desc->weights);
        return;
    }
    for (rest = desc->count; op->ok && rest > 0; rest -= p.rows) {
        p.rows = rest < IGNIS__GEMV_ROWS ? rest : (int)IGNIS__GEMV_ROWS;
        ignis__gemv_launch_dense(op, &p, desc->weights);
        ignis__gemv_advance(&p, p.rows);
    }
}

/*  Multiplies up to IGNIS__GEMV_ROWS rows, from `first` on, with quantised weights: launches one kernel for each of
    their types. */
static void ignis__gemv_launch_quantised(ignis__op *op, const ignis__gemv_desc *desc, int first, int count)
{
    /* gemv_blocks.cu has the same: bytes of a column, and of a tile of one row; tiles of a block */
    enum { FOUND = 2 * 8 * 20 * 4, TILE = (8 * 16 + 8) * 4, TILES = 32 };
    /* bytes of its largest ring, and of all else that a block uses */
    enum { RING = 8 * 2 * (16 * 272 + 8), OTHER = 2048 };
    const ignis_device_info *info = &op->work.device->info;
    const ignis__blocks *blocks = &desc->weights->blocks;
    ignis__address at = ignis__op_read(op, desc->weights);
    int number = count <= 8 ? 2 : count <= 16 ? 3 : count <= 32 ? 4 : 5, part, record;
    int64_t units = ignis__ceil_div(blocks->columns, 256) * 2, tiles, grid; /* two units per record */
    size_t row = desc->norm ? 2 * (size_t)blocks->columns : 0, alone = (size_t)(units * (256 + 2 * 16)) + row, shared;
    bool rings = info->compute_major >= 9, in_step = !desc->gated || ignis__blocks_rows(blocks) % 16 == 0;
    bool single = count == 1 && (!rings || in_step) &&
                  (rings ? RING : 0) + alone + TILES * TILE <= (size_t)info->shared_per_block;
    char define[32];
    ignis__quantised_weight q;
    ignis__gemv_blocks p;
    ignis__gemv_mma *product = &p.product;
    void *params[] = {&p};
    memset(&p, 0, sizeof p);
    ignis__gemv_fill(op, product, desc, desc->out->shape.dim[1]);
    product->rows = count;
    if (!single) {
        p.x = ignis__op_write(op, desc->dequantised);
        p.scales = p.x + (ignis__address)(ignis__ceil_div(count, 8) * 8 * units * 256);
    }
    ignis__gemv_advance(product, first);
    ignis__cost(-1, 2.0 * (double)count * (double)(ignis__blocks_rows(blocks) * product->k), (int)desc->x->dtype);
    /* gated weights have one part */
    for (part = 0; op->ok && part < blocks->count; part++, p.first = (int)product->n) {
        q = ignis__quantised_part(blocks, part, at);
        product->weights = q.records;
        p.scales_of = q.scales;
        product->n = p.first + blocks->part[part].rows / (desc->gated ? 2 : 1);
        tiles = ignis__ceil_div(product->n - p.first, desc->gated ? 8 : 16);
        snprintf(define, sizeof define, "-DIGNIS_BLOCKS=%d", q.type);
        grid = ignis__clamp(tiles, 1, info->multiprocessors * (count <= 8 ? 2 : 1));
        if (single) {
            record = ignis__blocks_types[ignis__blocks_type(q.type)].bytes;
            product->found_at = rings ? 8 * (record > 144 ? 2 : 3) * (16 * record + 8) : 0;
            grid = grid * TILES < tiles ? ignis__ceil_div(tiles, TILES) : grid;
            shared = (size_t)product->found_at + alone + TILE * (size_t)ignis__ceil_div(tiles, grid);
            /* if one block fits on each SM */
            if (2 * (shared + OTHER) > (size_t)info->shared_per_block + 1024 && grid > info->multiprocessors) {
                grid = ignis__clamp(ignis__ceil_div(tiles, TILES), info->multiprocessors, grid);
                shared = (size_t)product->found_at + alone + TILE * (size_t)ignis__ceil_div(tiles, grid);
            }
        } else { /* the factor of the type is in the scales of x */
            if (in_step && ignis__gemv_cluster_quantised(op, desc->x->dtype, &p, q.type, units))
                continue;
            ignis__gemv_launch_rows(op, desc->x->dtype, &p, q.type);
            shared = (size_t)FOUND * 2 * ((size_t)1 << number);
        }
        ignis__op_launch(op, ignis__gemv_blocks_kernels[single ? 0 : number - 1], desc->x->dtype, define,
                         ignis__launch_row(grid, 256, shared), params);
    }
}

/*  As ignis__gemv_run_dense, for quantised weights. */
IGNIS__PRIVATE void ignis__gemv_run_quantised(ignis__op *op, const ignis__gemv_desc *desc)
{
    int first;
    if (ignis__gemv_takes_f8(desc)) {
        ignis__gemv_run_f8(op, desc, desc->out->shape.dim[1]);
        return;
    }
    for (first = 0; op->ok && first < desc->count; first += IGNIS__GEMV_ROWS)
        ignis__gemv_launch_quantised(
            op, desc, first, desc->count - first < IGNIS__GEMV_ROWS ? desc->count - first : (int)IGNIS__GEMV_ROWS);
}

/*  Multiplies rows with weights: on tensor cores if they support the weights, else on plain cores. Plain cores need
    dequantised weights: `dequantised` takes as many rows of them at a time as fit. */
IGNIS__PRIVATE void ignis__gemv_run(ignis__op *op, const ignis__gemv_desc *desc)
{
    int size = desc->count < 3 ? desc->count - 1 : desc->count < 5 ? 2 : 3, columns = 1 << size;
    static const ignis__builtin kernels[2][4] = {
        {IGNIS__BUILTIN(GEMV_1), IGNIS__BUILTIN(GEMV_2), IGNIS__BUILTIN(GEMV_4), IGNIS__BUILTIN(GEMV_8)},
        {IGNIS__BUILTIN(GEMV_GATED_1), IGNIS__BUILTIN(GEMV_GATED_2), IGNIS__BUILTIN(GEMV_GATED_4),
         IGNIS__BUILTIN(GEMV_GATED_8)}};
    ignis__builtin builtin = kernels[desc->gated][size];
    ignis__address to = ignis__op_write(op, desc->out);
    int64_t all = ignis__weight_rows(desc->weights), first, some = all;
    ignis__gemv p;
    void *params[] = {&p};
    ignis__gemv_record(op, desc->x->dtype, desc->gated);
    ignis__dequantise_record(op, &desc->weights->blocks, desc->x->dtype);
    if (ignis__gemv_uses_tensor_cores(op, desc->x->dtype, desc->weights)) {
        if (desc->weights->blocks.count)
            ignis__gemv_run_quantised(op, desc);
        else
            ignis__gemv_run_dense(op, desc);
        return;
    }
    if (desc->norm)
        ignis__pre_norm_launch(op, desc->count, desc->x, desc->norm);
    memset(&p, 0, sizeof p);
    p.x = ignis__op_read(op, desc->x);
    p.weights =
        desc->weights->blocks.count ? ignis__op_write(op, desc->dequantised) : ignis__op_read(op, desc->weights);
    p.bias = desc->bias ? ignis__op_read(op, desc->bias) : 0;
    p.out = p.sum = p.logits = to;
    p.delta = desc->delta ? ignis__op_write(op, desc->delta) : 0;
    p.k = ignis__weight_columns(desc->weights);
    p.result_row = desc->out->shape.dim[1];
    p.rows = desc->count;
    p.kind = (int)desc->kind;
    p.packed = (p.x | p.weights) % 16 == 0 && p.k % ignis__pack_elements(desc->x->dtype) == 0;
    ignis__cost(-1, 2.0 * (double)desc->count * (double)(all * p.k), (int)desc->x->dtype);
    if (desc->weights->blocks.count && !desc->gated)
        some = desc->dequantised->numel / p.k;
    for (first = 0; op->ok && first < all; first += some) {
        some = all - first < some ? all - first : some;
        if (desc->weights->blocks.count)
            ignis__op_dequantise(op, desc->dequantised, 0, desc->weights, &desc->weights->blocks, first, some);
        p.n = some / (desc->gated ? 2 : 1);
        ignis__op_launch(
            op, builtin, desc->x->dtype, NULL,
            ignis__launch_grid(ignis__ceil_div(p.n, 4), ignis__ceil_div(desc->count, columns), 1, 128, 1, 0), params);
        p.bias += p.bias ? (ignis__address)(some * ignis__dtypes[desc->x->dtype].size) : 0;
        p.delta += p.delta ? (ignis__address)(some * ignis__dtypes[desc->delta->dtype].size) : 0;
        p.out = p.sum = p.logits = p.out + (ignis__address)(some * ignis__dtypes[desc->out->dtype].size);
    }
}

/*  Returns whether a GEMM with IGNIS__ACTIVATION_PAIRED supports this product, for any number of rows. */
static bool ignis__gemm_supports_paired(ignis__op *op, const ignis__product *product, ignis__array *out,
                                        ignis__array *a, ignis__array *b, const ignis__epilogue *epilogue)
{
    ignis_dtype dtype = (ignis_dtype)product->dtype;
    ignis__epilogue paired = *epilogue;
    char define[IGNIS__DEFINES];
    ignis__gemm p;
    paired.activation = IGNIS__ACTIVATION_PAIRED;
    p = ignis__gemm_describe(op, product, out, &paired);
    if (!op->ok || (dtype != IGNIS_F16 && dtype != IGNIS_BF16) || p.params.n < 256 ||
        !ignis__gemm_finishes_in_registers(&p, 128) ||
        !ignis__gemm_packed(dtype, ignis__op_read(op, a) | ignis__op_read(op, b), p.params.k, 0))
        return false;
    ignis__gemm_hopper_define(define, sizeof define, &p, 128, true);
    if (ignis__requests.path[0])
        ignis__record_builtin(IGNIS__BUILTIN(GEMM_HOPPER), dtype, define, 90, 90);
    return ignis__gemm_takes_wgmma(op, &p) &&
           ignis__variant_exists(op->work.device, IGNIS__BUILTIN(GEMM_HOPPER), dtype, define);
}

/*  Writes silu, or gelu, of the first half of each row of `from`, times the second half: of `columns` each. */
IGNIS__PRIVATE void ignis__gate_launch(ignis__op *op, int64_t rows, ignis__array *out, ignis__array *from, int columns,
                                       int is_gelu)
{
    ignis__address result = ignis__op_write(op, out), gates = ignis__op_write(op, from);
    void *params[] = {&result, &gates, &columns, &is_gelu};
    ignis__op_launch(op, IGNIS__BUILTIN(GENERATE_GATE), out->dtype, NULL,
                     ignis__launch_grid(ignis__clamp(ignis__ceil_div(columns, 2048), 1, 64), rows, 1, 256, 1, 0),
                     params);
}

/*  Multiplies the rows of a chunk with weights, by the kernels of ignis_matmul. */
IGNIS__PRIVATE void ignis__chunk_gemm(ignis__op *op, const ignis__gemv_desc *desc)
{
    ignis__epilogue epilogue;
    ignis__product product;
    const bool is_gelu = desc->kind == IGNIS__GEMV_GELU;
    ignis__array *weights = desc->weights;
    bool gated = desc->gated;
    if (ignis__gemv_takes_f8(desc)) {
        ignis__gemv_desc own = *desc; /* its rows are normalised, and are not added to the sum here */
        own.norm = NULL;
        own.kind = is_gelu ? IGNIS__GEMV_GELU : IGNIS__GEMV_OUT;
        ignis__gemv_run_f8(op, &own, ignis__weight_rows(weights) / (gated ? 2 : 1));
        return;
    }
    memset(&product, 0, sizeof product);
    memset(&epilogue, 0, sizeof epilogue);
    product.m = desc->count;
    product.n = ignis__weight_rows(weights);
    product.k = ignis__weight_columns(weights);
    product.batch = 1;
    product.batch_a = product.m * product.k;
    product.batch_b = product.n * product.k;
    product.transpose_b = 1;
    product.dtype = (int)desc->x->dtype;
    if (weights->blocks.count) {
        ignis__op_dequantise(op, desc->dequantised, 0, weights, &weights->blocks, 0, product.n);
        weights = desc->dequantised;
    }
    epilogue.bias = desc->bias;
    epilogue.activation = desc->kind == IGNIS__GEMV_GELU && !gated ? (int)IGNIS_ACTIVATION_GELU : 0;
    if (gated && !is_gelu && ignis__gemm_supports_paired(op, &product, desc->out, desc->x, weights, &epilogue)) {
        epilogue.activation = IGNIS__ACTIVATION_PAIRED;
        gated = false;
    }
    if (op->ok)
        (void)ignis__gemm_run(op, &product, gated ? desc->gate_up : desc->out, desc->x, weights, &epilogue);
    ignis__op_free_made(op, 0);
    if (gated)
        ignis__gate_launch(op, product.m, desc->out, desc->gate_up, (int)(product.n / 2), is_gelu);
}
