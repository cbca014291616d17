#include "room.h"

/*  Rows of x by all rows of the weights: [rows, k] and [n, k], or gated [2 n, k]; out is [rows, n or more]. norm: x is made by it first; null: x is
    there. cache: of the kind IGNIS__GEMV_CACHE, its places, keys, values, frequencies and numbers of heads. */
IGNIS__PRIVATE void ignis__step_mma(ignis__op *op, int count, ignis__gemv_kind kind, bool gated, ignis__array *out,
                                    ignis__array *x, ignis__array *weights, ignis__array *bias,
                                    const ignis__step_norms *norm, const ignis__gemv_mma *cache)
{
    enum {
        FOUND = 2 * 8 * 20 * 4,
        STAGES = 4 * 8 * 192
    }; /* bytes that gemv_mma.cu takes for a column, and of many for 8 of them */
    const ignis_device_info *info = &op->work.device->info;
    int number = count <= 8 ? 1 : count <= 16 ? 2 : count <= 32 ? 3 : 4, groups = 1, resident = count <= 8 ? 2 : 1;
    bool rings = info->compute_major >= 9; /* the kernel of one row has them */
    size_t shared, row = 2 * (size_t)(ignis__ceil_div(weights->shape.dim[1], 32) * 32);
    char define[32] = "";
    int64_t tiles;
    ignis__gemv_mma p;
    ignis__tensor_map map;
    void *params[] = {&p, &map};
    memset(&p, 0, sizeof p);
    memset(&map, 0, sizeof map);
    if (cache)
        p = *cache;
    p.weights = ignis__op_read(op, weights);
    p.bias = bias ? ignis__op_read(op, bias) : 0;
    p.k = weights->shape.dim[1];
    p.n = weights->shape.dim[0] / (gated ? 2 : 1);
    p.rows = count;
    p.kind = (int)kind;
    p.gated = gated;
    tiles = ignis__ceil_div(p.n, gated ? 8 : 16);
    shared = FOUND + row;
    if (count == 1 && rings && ignis__cuda.cuTensorMapEncodeTiled)
        ignis__step_ring(op, weights, shared, &p, &map, &resident);
    shared += (size_t)p.found_at;
    if (count == 1 && (p.ring || !rings) && shared <= (size_t)info->shared_per_block)
        number = 0;
    else if (number == 1)
        shared = (size_t)FOUND * 8, p.found_at = 0, resident = 2;
    if (number > 1) { /* as many tiles share x as leave each multiprocessor some */
        for (groups = 8; groups > 2 && ignis__ceil_div(tiles, groups) < info->multiprocessors * 3 / 4;)
            groups /= 2;
        shared = (size_t)STAGES * (size_t)(8 / groups) * ((size_t)1 << (number - 1));
        snprintf(define, sizeof define, "-DIGNIS_GROUPS=%d", groups);
    }
    if (norm) {
        ignis__step_mma_norm(op, &p, norm);
        if (number > 0) {
            p.out = ignis__op_write(op, x);
            ignis__op_launch_row(op, IGNIS__BUILTIN_GEMV_MMA_NORM, weights->dtype, count, 256, params);
            p.norm_of = 0;
        }
    }
    p.x = p.norm_of ? 0 : ignis__op_read(op, x);
    p.out = p.sum = p.logits = ignis__op_write(op, out);
    p.result_row = out->shape.dim[1];
    ignis__cost(-1, 2.0 * (double)count * (double)weights->numel, (int)weights->dtype);
    if (number > 1 && ignis__step_mma_cluster(op, &p, weights))
        return;
    ignis__op_launch(op, (ignis__builtin)((int)IGNIS__BUILTIN_GEMV_MMA_1 + number), weights->dtype,
                     number > 1 ? define : NULL,
                     ignis__clamp(ignis__ceil_div(tiles, groups), 1, info->multiprocessors * resident), 1, 1, 256, 1,
                     shared, params);
}

/*  The same with quantised weights; one launch for each of their types. numbers: room of the device's. */
IGNIS__PRIVATE void ignis__step_blocks(ignis__op *op, int count, ignis__gemv_kind kind, bool gated, ignis__array *out,
                                       ignis__array *x, ignis__array *weights, ignis__array *bias,
                                       ignis__array *numbers, const ignis__step_norms *norm,
                                       const ignis__gemv_mma *cache)
{
    enum {
        FOUND = 2 * 8 * 20 * 4,
        TILE = (8 * 16 + 8) * 4,
        TILES = 32
    }; /* gemv_blocks.cu: bytes of a column, and of a tile of one row */
    enum {
        RING = 8 * 2 * (16 * 272 + 8),
        OTHER = 2048
    }; /* bytes of its largest ring; those that a block takes otherwise */
    const ignis_device_info *info = &op->work.device->info;
    const ignis__blocks *blocks = &weights->blocks;
    ignis__address at = ignis__op_read(op, weights);
    int number = count <= 8 ? 2 : count <= 16 ? 3 : count <= 32 ? 4 : 5, part, record;
    int64_t units = ignis__ceil_div(blocks->columns, 256) * 2, tiles, grid; /* a record is two */
    size_t row = norm ? 2 * (size_t)blocks->columns : 0, alone = (size_t)(units * (256 + 2 * 16)) + row, shared;
    bool rings = info->compute_major >= 9, in_step = !gated || ignis__blocks_rows(blocks) % 16 == 0;
    bool single = count == 1 && (!rings || in_step) &&
                  (rings ? RING : 0) + alone + TILES * TILE <= (size_t)info->shared_per_block;
    char define[32];
    ignis__quantised q;
    ignis__gemv_blocks p;
    ignis__gemv_mma *product = &p.product;
    void *params[] = {&p};
    memset(&p, 0, sizeof p);
    if (cache)
        *product = *cache;
    product->bias = bias ? ignis__op_read(op, bias) : 0;
    product->k = blocks->columns;
    product->rows = count;
    product->kind = (int)kind;
    product->gated = gated;
    if (norm)
        ignis__step_mma_norm(op, product, norm);
    else
        product->x = ignis__op_read(op, x);
    if (!single) {
        p.x = ignis__op_write(op, numbers);
        p.scales = p.x + (ignis__address)(ignis__ceil_div(count, 8) * 8 * units * 256);
    }
    product->out = product->sum = product->logits = ignis__op_write(op, out);
    product->result_row = out->shape.dim[1];
    ignis__cost(-1, 2.0 * (double)count * (double)(ignis__blocks_rows(blocks) * product->k), (int)x->dtype);
    for (part = 0; op->ok && part < blocks->count; part++, p.first = (int)product->n) { /* gated: there is one part */
        q = ignis__quantised_part(blocks, part, at);
        product->weights = q.records;
        p.scales_of = q.scales;
        product->n = p.first + blocks->part[part].rows / (gated ? 2 : 1);
        tiles = ignis__ceil_div(product->n - p.first, gated ? 8 : 16);
        snprintf(define, sizeof define, "-DIGNIS_BLOCKS=%d", q.type);
        grid = ignis__clamp(tiles, 1, info->multiprocessors * (count <= 8 ? 2 : 1));
        if (single) {
            record = ignis__blocks_types[ignis__blocks_type(q.type)].bytes;
            product->found_at = rings ? 8 * (record > 144 ? 2 : 3) * (16 * record + 8) : 0;
            grid = grid * TILES < tiles ? ignis__ceil_div(tiles, TILES) : grid;
            shared = (size_t)product->found_at + alone + TILE * (size_t)ignis__ceil_div(tiles, grid);
            if (2 * (shared + OTHER) > (size_t)info->shared_per_block + 1024 &&
                grid > info->multiprocessors) { /* one fits on each */
                grid = ignis__clamp(ignis__ceil_div(tiles, TILES), info->multiprocessors, grid);
                shared = (size_t)product->found_at + alone + TILE * (size_t)ignis__ceil_div(tiles, grid);
            }
        } else { /* numbers of x have the factor of the type */
            ignis__op_launch(op, IGNIS__BUILTIN_GEMV_BLOCKS_ROWS, x->dtype, define, count, 1, 1, 256, 1, row, params);
            if (count > 8 && in_step && ignis__step_blocks_cluster(op, x->dtype, &p, q.type, units))
                continue;
            shared = (size_t)FOUND * 2 * ((size_t)1 << number);
        }
        ignis__op_launch(op, (ignis__builtin)((int)IGNIS__BUILTIN_GEMV_BLOCKS_ROWS + (single ? 1 : number)), x->dtype,
                         define, grid, 1, 1, 256, 1, shared, params);
    }
}

/*  The same by cores of any device; or on tensor cores, where they take the weights. Where not, quantised ones become numbers in `numbers`, as
    many rows at a time as it has room for. */
IGNIS__PRIVATE void ignis__step_product(ignis__op *op, int count, ignis__gemv_kind kind, bool gated, ignis__array *out,
                                        ignis__array *x, ignis__array *weights, ignis__array *bias,
                                        ignis__array *numbers, const ignis__step_norms *norm)
{
    int size = count < 3 ? count - 1 : count < 5 ? 2 : 3, columns = 1 << size;
    ignis__builtin builtin =
        (ignis__builtin)((int)(gated ? IGNIS__BUILTIN_GEMV_GATED_1 : IGNIS__BUILTIN_GEMV_1) + size);
    ignis__address to = ignis__op_write(op, out);
    int64_t all = ignis__weight_rows(weights), first, some = all;
    ignis__gemv p;
    void *params[] = {&p};
    ignis__step_request(op, x->dtype, gated);
    if (ignis__step_takes_mma(op, x->dtype, weights)) {
        if (weights->blocks.count)
            ignis__step_blocks(op, count, kind, gated, out, x, weights, bias, numbers, norm, NULL);
        else
            ignis__step_mma(op, count, kind, gated, out, x, weights, bias, norm, NULL);
        return;
    }
    if (norm)
        ignis__step_norm(op, count, x, norm);
    memset(&p, 0, sizeof p);
    p.x = ignis__op_read(op, x);
    p.weights = weights->blocks.count ? ignis__op_write(op, numbers) : ignis__op_read(op, weights);
    p.bias = bias ? ignis__op_read(op, bias) : 0;
    p.out = p.sum = p.logits = to;
    p.k = ignis__weight_columns(weights);
    p.result_row = out->shape.dim[1];
    p.rows = count;
    p.kind = (int)kind;
    p.packed = (p.x | p.weights) % 16 == 0 && p.k % ignis__pack_elements(x->dtype) == 0;
    ignis__cost(-1, 2.0 * (double)count * (double)(all * p.k), (int)x->dtype);
    if (weights->blocks.count && !gated)
        some = numbers->numel / p.k;
    for (first = 0; op->ok && first < all; first += some) {
        some = all - first < some ? all - first : some;
        if (weights->blocks.count)
            ignis__op_numbers(op, numbers, 0, weights, &weights->blocks, first, some);
        p.n = some / (gated ? 2 : 1);
        ignis__op_launch(op, builtin, x->dtype, NULL, ignis__ceil_div(p.n, 4), ignis__ceil_div(count, columns), 1, 128,
                         1, 0, params);
        p.bias += p.bias ? (ignis__address)(some * ignis__dtypes[x->dtype].size) : 0;
        p.out = p.sum = p.logits = p.out + (ignis__address)(some * ignis__dtypes[out->dtype].size);
    }
}

/*  Whether IGNIS__ACTIVATION_PAIRED can be had for a product, whatever rows there are. */
static bool ignis__gemm_pairs(ignis__op *op, const ignis__product *product, ignis__array *out, ignis__array *a,
                              ignis__array *b, const ignis__epilogue *epilogue)
{
    ignis_dtype dtype = (ignis_dtype)product->dtype;
    ignis__epilogue paired = *epilogue;
    char define[IGNIS__DEFINES];
    ignis__gemm p;
    paired.activation = IGNIS__ACTIVATION_PAIRED;
    p = ignis__gemm_params(op, product, out, &paired);
    if (!op->ok || (dtype != IGNIS_F16 && dtype != IGNIS_BF16) || p.n < 256 ||
        !ignis__gemm_finishes_in_registers(&p, 128) ||
        !ignis__gemm_packed(dtype, ignis__op_read(op, a) | ignis__op_read(op, b), p.k, 0))
        return false;
    ignis__gemm_hopper_define(define, sizeof define, &p, 128, true);
    if (ignis__requests.path[0])
        ignis__record_builtin(IGNIS__BUILTIN_GEMM_HOPPER, dtype, define, 90, 90);
    return ignis__gemm_takes_wgmma(op, &p) &&
           ignis__variant_exists(op->work.device, IGNIS__BUILTIN_GEMM_HOPPER, dtype, define);
}

/*  The same of many rows, by the kernels of ignis_matmul, without a norm; gated: perhaps through `room`, [rows, 2 n]. */
IGNIS__PRIVATE void ignis__step_product_many(ignis__op *op, int count, ignis__gemv_kind kind, bool gated,
                                             ignis__array *out, ignis__array *x, ignis__array *weights,
                                             ignis__array *bias, ignis__array *room, ignis__array *numbers)
{
    ignis__address result, from;
    ignis__epilogue epilogue;
    ignis__product product;
    int half = (int)(ignis__weight_rows(weights) / 2);
    void *gate[] = {&result, &from, &half};
    memset(&product, 0, sizeof product);
    memset(&epilogue, 0, sizeof epilogue);
    product.m = count;
    product.n = ignis__weight_rows(weights);
    product.k = ignis__weight_columns(weights);
    product.batch = 1;
    product.batch_a = product.m * product.k;
    product.batch_b = product.n * product.k;
    product.transpose_b = 1;
    product.dtype = (int)x->dtype;
    if (weights->blocks.count) {
        ignis__op_numbers(op, numbers, 0, weights, &weights->blocks, 0, product.n);
        weights = numbers;
    }
    epilogue.bias = bias;
    epilogue.activation = kind == IGNIS__GEMV_GELU ? (int)IGNIS_ACTIVATION_GELU : 0;
    if (gated && ignis__gemm_pairs(op, &product, out, x, weights, &epilogue)) {
        epilogue.activation = IGNIS__ACTIVATION_PAIRED;
        gated = false;
    }
    if (op->ok)
        (void)ignis__gemm_run(op, &product, gated ? room : out, x, weights, &epilogue);
    ignis__op_free_made(op, 0);
    if (!gated)
        return;
    result = ignis__op_write(op, out);
    from = ignis__op_write(op, room);
    ignis__op_launch(op, IGNIS__BUILTIN_GENERATE_GATE, x->dtype, NULL, ignis__clamp(ignis__ceil_div(half, 2048), 1, 64),
                     product.m, 1, 256, 1, 0, gate);
}
