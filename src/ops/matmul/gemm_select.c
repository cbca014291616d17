/*  >>ops.matmul.gemm_select - the choice of a built-in GEMM kernel, its tile, and splits of k

    Estimates the time of each tile from measurements on an H200, and takes the least. Defines the variant's
    options.
    Uses: product. Invariant: the choice depends on shapes, dtypes, alignment and device, never on values. */

#include "room.h"

IGNIS__PRIVATE int64_t ignis__gemm_tiles(const ignis__gemm *p, int rows, int columns)
{
    return ignis__ceil_div(p->params.m, rows) * ignis__ceil_div(p->params.n, columns) * p->params.batch;
}

/*  Returns whether tensor cores may multiply a dtype: f32 is rounded to tf32, which the user allows or not. */
IGNIS__PRIVATE bool ignis__gemm_allows_tensor_cores(ignis_dtype operands)
{
    return operands == IGNIS_F16 || operands == IGNIS_BF16 || (operands == IGNIS_F32 && ignis__allow_tf32) ||
           ignis__dtype_is_f8(operands);
}

/*  Returns whether device, driver and compiler have wgmma for the dtype. */
IGNIS__PRIVATE bool ignis__gemm_has_wgmma(const ignis__op *op, ignis_dtype dtype)
{
    return ignis__gemm_allows_tensor_cores(dtype) && op->work.device->info.compute_major == 9 &&
           ignis__cuda.cuTensorMapEncodeTiled && ignis__wgmma_compiles(op->work.call);
}

/*  Returns whether wgmma can be used. TMA needs each side below 2^31 elements; f32 operands are contiguous
    along k, or transposed first; rows are full 16-byte packs. */
IGNIS__PRIVATE bool ignis__gemm_takes_wgmma(const ignis__op *op, const ignis__gemm *p)
{
    int64_t most = INT32_MAX - 256;
    bool by_k = !p->params.transpose_a && p->params.transpose_b,
         transposes = p->params.k % 4 == 0 && (p->params.transpose_a || p->params.packed_a) &&
                      (!p->params.transpose_b || p->params.packed_b);
    return ignis__gemm_has_wgmma(op, p->operands) &&
           (p->operands != IGNIS_F32 || (!p->patches_of && (by_k || transposes))) && p->params.k > 0 &&
           (!p->patches_of || p->wgmma_k) && p->params.m < most && p->params.n < most && p->params.k < most &&
           p->params.batch < most;
}

/*  Returns whether blocks can come in pairs. */
IGNIS__PRIVATE bool ignis__gemm_has_pairs(const ignis__op *op)
{
    return op->work.device->clusters && op->work.device->info.multiprocessors > 1;
}

/*  Returns whether pairs of blocks with tiles of 64 columns may share a, and whether such tiles are theirs. */
IGNIS__PRIVATE bool ignis__gemm_may_share_a(const ignis__gemm *p) { return !p->patches_of && p->params.n > 64; }

IGNIS__PRIVATE bool ignis__gemm_shares_a(int rows, int columns, int blocks)
{
    return rows == 128 && columns == 64 && blocks == 1;
}

/*  Returns a product as wgmma computes it: taps of patches are full k steps, and operands that are not of 16
    bits are contiguous along k. */
IGNIS__PRIVATE ignis__gemm ignis__gemm_by_wgmma(const ignis__gemm *product)
{
    ignis__gemm p = *product;
    if (p.patches_of)
        p.params.k = p.wgmma_k;
    if (ignis__dtypes[p.operands].size != 2) {
        p.params.row_a = p.params.row_b = p.params.k;
        p.params.transpose_a = 0;
        p.params.transpose_b = 1;
    }
    return p;
}

/*  Returns whether tiles are finished beside the next one: kernels/gemm_hopper_ahead.cuh. */
static bool ignis__gemm_is_ahead(const ignis__gemm_tile *tile) { return tile->columns == 192 && tile->rows == 128; }

/*  Returns whether rows begin at sectors of the L2 cache, of 32 bytes. Other rows are copied to full packs of
    16 bytes first. */
static bool ignis__gemm_rows_fill_sectors(const ignis__gemm *p, int64_t row)
{
    return ignis__ceil_div(row, ignis__pack_elements(p->operands)) % 2 == 0;
}

/*  Returns whether pairs of blocks that share b are faster. */
IGNIS__PRIVATE bool ignis__gemm_shares_b(const ignis__gemm *p, int columns)
{
    return columns > 64 && !p->patches_of && p->params.m > 128 &&
           !(ignis__gemm_rows_fill_sectors(p, p->params.row_a) && ignis__gemm_rows_fill_sectors(p, p->params.row_b));
}

/*  Returns whether kernels/gemm_hopper.cu skips loading what does not exist of such tiles. */
IGNIS__PRIVATE bool ignis__gemm_skips(const ignis__gemm *p, int rows, int columns)
{
    return !p->patches_of && (columns <= 128 || rows == 192);
}

/*  Estimates the nanoseconds of a kernel for a product split along k: by the SM with the most blocks, by the
    rounds of blocks, and by the L2 cache. That gives 11500 bytes a nanosecond, 16000 to tiles of 192 rows,
    and to wgmma 5900 of rows that do not begin at its sectors. A thread of ignis_gemm_finish has 8 loads
    under way. */
static double ignis__gemm_time(const ignis__op *op, const ignis__gemm *gemm, const ignis__gemm_tile *tile,
                               int64_t splits)
{
    const ignis__gemm_params *p = &gemm->params;
    int64_t size = ignis__dtypes[gemm->operands].size, processors = op->work.device->info.multiprocessors,
            room = processors * tile->blocks;
    bool hopper = tile->builtin == IGNIS__BUILTIN(GEMM_HOPPER),
         shares_b = hopper && ignis__gemm_has_pairs(op) && ignis__gemm_shares_b(gemm, tile->columns);
    bool shares_a = ignis__gemm_shares_a(tile->rows, tile->columns, tile->blocks);
    int64_t between = tile->between;
    int64_t down = shares_b ? 2 * ignis__ceil_div(p->m, 2 * tile->rows) : ignis__ceil_div(p->m, tile->rows),
            across = ignis__ceil_div(p->n, tile->columns);
    int64_t blocks = down * across * p->batch * splits, rounds = ignis__ceil_div(blocks, room);
    bool skips = hopper && ignis__gemm_skips(gemm, tile->rows, tile->columns);
    double rows =
        (skips ? (double)p->m / (double)down : (double)ignis__clamp(p->m, 0, tile->rows)) / (shares_a ? 2 : 1);
    double columns =
        (skips ? (double)p->n / (double)across : (double)ignis__clamp(p->n, 0, tile->columns)) / (shares_b ? 2 : 1);
    double whole = tile->rows == 192 ? 16000 : 11500, parts = hopper && !gemm->patches_of ? 5900 : whole;
    double each = rows / (ignis__gemm_rows_fill_sectors(gemm, p->row_a) ? whole : parts) +
                  columns / (ignis__gemm_rows_fill_sectors(gemm, p->row_b) ? whole : parts);
    double scale = tile->builtin == IGNIS__BUILTIN(GEMM) || tile->builtin == IGNIS__BUILTIN(GEMM_SMALL) ||
                           tile->builtin == IGNIS__BUILTIN(GEMM_TINY)
                       ? size == 8 ? 2 : 1
                       : (double)size / 2;
    double step = scale * tile->step * (double)ignis__ceil_div(blocks, processors),
           latency = scale * tile->latency * (double)rounds;
    double cache = 64.0 * (double)size * each * (double)(blocks < room ? blocks : room) * (double)rounds, time;
    step = step > latency ? step : latency;
    step = step > cache ? step : cache;
    if (hopper && gemm->dtype == IGNIS_F32 && tile->blocks == 1 && splits == 1 &&
        !ignis__gemm_is_ahead(tile)) /* all this is stored and nothing is multiplied */
        between += tile->rows * tile->columns / 8;
    time =
        step * (double)ignis__ceil_div(ignis__ceil_div(p->k, splits), 64) + (double)(between * rounds + tile->before);
    if (splits > 1)
        time += 2000 + 600 * (double)ignis__ceil_div(splits, 8) +
                (double)(p->m * p->n * p->batch * (4 * splits + size)) / 3000;
    return time;
}

/*  Returns the splits of k, of 128 at least, that fill `rounds` rounds of blocks. 1: no more than pay for
    adding them up. */
static int64_t ignis__gemm_splits(const ignis__op *op, const ignis__gemm *p, const ignis__gemm_tile *tile, int rounds)
{
    int64_t room = rounds * op->work.device->info.multiprocessors * tile->blocks /
                   ignis__gemm_tiles(p, tile->rows, tile->columns),
            splits = 2;
    double whole = (double)tile->latency * (double)p->params.k / 64,
           part = 75 + (double)(p->params.m * p->params.n * p->params.batch) / 750;
    while (rounds == 1 && splits < room && 2 * (double)(splits * splits) * part < whole)
        splits *= 2;
    return ignis__clamp(rounds == 1 ? splits : room, 1, ignis__clamp(p->params.k / 128, 1, room > 1 ? room : 1));
}

/*  Larger operands are not copied. */
IGNIS__PRIVATE int64_t ignis__gemm_pack_limit = (int64_t)1 << 30;

/*  Returns the rows of a wgmma tile: fewer if a convolution's gradient of w has no more. */
static int ignis__gemm_rows(const ignis__gemm *p)
{
    return p->rows ? p->rows : p->patches_of == IGNIS__OPERAND_B && p->params.m <= 64 && p->params.n > 64 ? 64 : 128;
}

/*  Returns the columns of a wgmma tile: 64 if there are no more, unless operands have 8 bits; else 128, or
    256 if requested. */
IGNIS__PRIVATE int ignis__gemm_columns(const ignis__gemm *p, int columns)
{
    return p->params.n <= 64 && !ignis__dtype_is_f8(p->operands) ? 64
           : ignis__gemm_rows(p) == 64 || columns == 64          ? 128
                                                                 : columns;
}

IGNIS__PRIVATE bool ignis__gemm_gates(const ignis__gemm *p) { return p->params.activation == IGNIS__ACTIVATION_GATED; }

/*  Returns the columns of the result. */
IGNIS__PRIVATE int64_t ignis__gemm_out_columns(const ignis__gemm *p)
{
    return p->params.activation == IGNIS__ACTIVATION_PAIRED ? p->params.n / 2 : p->params.n;
}

/*  Returns whether a product by wgmma is finished in registers, with tiles of `columns` columns:
    kernels/gemm_hopper.cu. */
IGNIS__PRIVATE bool ignis__gemm_finishes_in_registers(const ignis__gemm *p, int columns)
{
    int others = (p->params.gradient != 0) + (p->params.residual != 0) + (p->params.accumulate != 0);
    bool gates = ignis__gemm_gates(p), paired = p->params.activation == IGNIS__ACTIVATION_PAIRED;
    if (p->dtype == IGNIS_F32 ? gates || paired || p->params.column_sums
                              : (gates && columns != 192) || (paired && columns != 128))
        return false;
    return p->params.packed_out && !p->params.partial && p->params.factor == 1 && others <= 1 &&
           !(p->params.activation && p->params.row_sums) &&
           (p->params.gradient ? !p->params.bias : !p->params.column_sums && !(others && p->params.activation));
}

/*  Returns the matrix read or written besides the result if a product is finished in registers. */
IGNIS__PRIVATE ignis__address ignis__gemm_extra_matrix(const ignis__gemm *p)
{
    return p->params.residual ? p->params.residual : p->params.accumulate ? p->params.out : p->params.pre;
}

/*  Returns the option of a variant whose operands do not have the result's dtype. */
static const char *ignis__gemm_operands_define(ignis_dtype dtype)
{
    return dtype == IGNIS_F8_E4M3 ? " -DIGNIS_OPERANDS=8" : dtype == IGNIS_F8_E5M2 ? " -DIGNIS_OPERANDS=9" : "";
}

/*  Returns the options of a variant with or without patches. */
IGNIS__PRIVATE const char *ignis__gemm_patches_define(const ignis__gemm *p)
{
    static const char *const defines[][2] = {
        {"-DIGNIS_PATCHES=0", "-DIGNIS_PATCHES=0"},
        {"-DIGNIS_PATCHES=1", "-DIGNIS_PATCHES=1 -DIGNIS_VOLUMES=1"},
        {"-DIGNIS_PATCHES=2", "-DIGNIS_PATCHES=2 -DIGNIS_VOLUMES=1"},
    };
    return defines[p->patches_of][p->volumes];
}

/*  Writes the options of the variant of kernels/gemm_mma.cu. */
IGNIS__PRIVATE void ignis__gemm_mma_define(char *define, size_t size, const ignis__gemm *p)
{
    snprintf(define, size, "-DIGNIS_TRANSPOSE_A=%d -DIGNIS_TRANSPOSE_B=%d %s%s", p->params.transpose_a,
             p->params.transpose_b, ignis__gemm_patches_define(p), ignis__gemm_operands_define(p->operands));
}

/*  Writes the options of the variant of kernels/gemm_hopper.cu. A variant that does not finish in registers
    finishes all products. */
IGNIS__PRIVATE void ignis__gemm_hopper_define(char *define, size_t size, const ignis__gemm *p, int columns, bool direct)
{
    snprintf(define, size,
             "-DIGNIS_TRANSPOSE_A=%d -DIGNIS_TRANSPOSE_B=%d %s -DIGNIS_COLUMNS=%d -DIGNIS_DIRECT=%d "
             "-DIGNIS_ACTIVATION=%d "
             "-DIGNIS_OTHER=%d%s%s%s",
             p->params.transpose_a, p->params.transpose_b, ignis__gemm_patches_define(p), columns, direct,
             direct ? p->params.activation : 0,
             !direct                ? 0
             : p->params.gradient   ? 2
             : ignis__gemm_gates(p) ? 3
                                    : ignis__gemm_extra_matrix(p) != p->params.pre,
             ignis__gemm_rows(p) == 64    ? " -DIGNIS_ROWS=64"
             : ignis__gemm_rows(p) == 192 ? " -DIGNIS_ROWS=192"
                                          : "",
             p->pairs == IGNIS__SHARE_A ? " -DIGNIS_PAIRS=1"
             : p->pairs                 ? " -DIGNIS_PAIRS=2"
                                        : "",
             ignis__gemm_operands_define(p->operands));
}

/*  Returns the least k of tiles that are finished beside the next one: 12 k steps of 128 bytes. */
IGNIS__PRIVATE int64_t ignis__gemm_ahead_k(ignis_dtype dtype) { return 11 * 128 / ignis__dtypes[dtype].size + 1; }

/*  Returns whether a tile may be finished beside the next one: kernels/gemm_hopper_ahead.cuh. f32 would wait
    for reads, and 8 bits lack registers for it. */
IGNIS__PRIVATE bool ignis__gemm_takes_ahead(const ignis__gemm *product, const ignis__epilogue *epilogue)
{
    ignis__gemm p = *product;
    p.params.column_sums = epilogue->column_sums != NULL;
    return !p.patches_of && !epilogue->row_sums && p.params.k >= ignis__gemm_ahead_k(p.dtype) &&
           !ignis__dtype_is_f8(p.operands) &&
           !(p.dtype == IGNIS_F32 && (p.params.gradient || p.params.residual || p.params.accumulate)) &&
           ignis__gemm_finishes_in_registers(&p, 192);
}

/*  Returns whether a tile may have 192 rows: nothing is read besides the operands and a bias, and nothing
    summed. */
IGNIS__PRIVATE bool ignis__gemm_takes_192_rows(const ignis__gemm *p, const ignis__epilogue *epilogue)
{
    return !p->patches_of && !ignis__dtype_is_f8(p->operands) && p->params.m > 128 && p->params.n > 128 &&
           !p->params.gradient && !p->params.residual && !p->params.accumulate && !epilogue->row_sums &&
           !epilogue->column_sums && ignis__gemm_finishes_in_registers(p, 192) && !ignis__gemm_gates(p);
}

/*  Returns whether the device has the variant with these columns and rows. If nothing is compiled, others may
    have been recorded. */
static bool ignis__gemm_exists(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *product,
                               const ignis__epilogue *epilogue, int rows, int columns, int pairs)
{
    ignis__gemm p = *product;
    char define[IGNIS__DEFINES];
    if (!ignis__compile_never)
        return true;
    p.params.column_sums = epilogue->column_sums != NULL;
    p.rows = rows;
    p.pairs = pairs;
    ignis__gemm_hopper_define(define, sizeof define, &p, columns, ignis__gemm_finishes_in_registers(&p, columns));
    return ignis__variant_exists(op->work.device, IGNIS__BUILTIN(GEMM_HOPPER), dtype, define);
}

/*  Sets the best number of columns for a tile of 192 rows, a multiple of 16. False if there is no such
    kernel. */
static bool ignis__gemm_fit_columns(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *p,
                                    const ignis__epilogue *epilogue, ignis__gemm_tile *tile)
{
    ignis__gemm_tile fitted = *tile;
    const ignis__gemm_tile widest = *tile;
    double least = -1;
    for (fitted.columns = 64; fitted.columns <= widest.columns; fitted.columns += 16) {
        double time;
        fitted.step = fitted.latency = widest.step * fitted.columns / widest.columns;
        time = ignis__gemm_time(op, p, &fitted, 1);
        if ((least >= 0 && time >= least) ||
            !ignis__gemm_exists(op, dtype, p, epilogue, fitted.rows, fitted.columns, 0))
            continue;
        *tile = fitted;
        least = time;
    }
    return least >= 0;
}

/*  Chooses a built-in kernel, in this one place: tensor cores for 16-bit types and f32 that may be rounded,
    else plain CUDA C; tiles and splits of k by the least time. wgmma needs rows of full packs, and mma.sync
    is 12 times slower without: other operands are copied for them. */
IGNIS__PRIVATE ignis__gemm_kernel ignis__gemm_choose(const ignis__op *op, ignis_dtype dtype, const ignis__gemm *gemm,
                                                     const ignis__epilogue *epilogue)
{
    const ignis__gemm_params *p = &gemm->params;
    ignis__gemm_tile best = IGNIS__ZERO;
    ignis__gemm_kernel kernel = IGNIS__ZERO;
    ignis__gemm by_wgmma = ignis__gemm_by_wgmma(gemm);
    int64_t bytes_a = (p->batch_a ? p->batch : 1) * p->m * p->k * ignis__dtypes[gemm->operands].size;
    int64_t bytes_b = (p->batch_b ? p->batch : 1) * p->k * p->n * ignis__dtypes[gemm->operands].size;
    bool eights = ignis__dtype_is_f8(gemm->operands);
    bool tensor_cores = ignis__gemm_allows_tensor_cores(gemm->operands) &&
                        ignis__capability(&op->work.device->info) >= (eights ? 89 : 80),
         wgmma = tensor_cores && ignis__gemm_takes_wgmma(op, gemm);
    bool packed = p->packed_a && p->packed_b, may_pack = !gemm->patches_of &&
                                                         (p->packed_a || bytes_a <= ignis__gemm_pack_limit) &&
                                                         (p->packed_b || bytes_b <= ignis__gemm_pack_limit);
    bool transposes = gemm->operands == IGNIS_F32 && (p->transpose_a || !p->transpose_b), /* by wgmma */
        may_transpose = (!p->transpose_a || bytes_a <= ignis__gemm_pack_limit) &&
                        (p->transpose_b || bytes_b <= ignis__gemm_pack_limit);
    int64_t processors = op->work.device->info.multiprocessors;
    int64_t wide = ignis__gemm_tiles(gemm, 128, 192), other = ignis__gemm_tiles(gemm, 128, 128);
    bool ahead =
        ignis__gemm_takes_ahead(gemm, epilogue) &&
        (op->steady ? 3 * ignis__ceil_div(wide, processors) < 2 * ignis__ceil_div(other, processors) /* fewer rounds */
                    : wide > processors) && /* a block needs a next tile */
        ignis__gemm_exists(op, dtype, &by_wgmma, epilogue, 0, 192, 0);
    bool pairs = wgmma && ignis__gemm_has_pairs(op) && !op->steady && ignis__gemm_may_share_a(gemm) &&
                 ignis__gemm_exists(op, dtype, &by_wgmma, epilogue, 0, 64, IGNIS__SHARE_A);
    bool large = wgmma && !op->steady && ignis__gemm_takes_192_rows(gemm, epilogue);
    unsigned staging, stage, stages; /* bytes of a row and of a k step; k steps that are on their way */
    double least = 0, packing = 3000 + (double)((p->packed_a ? 0 : bytes_a) + (p->packed_b ? 0 : bytes_b)) / 1500;
    double transposing =
        (p->transpose_a ? 3000 + (double)bytes_a / 2000 : 0) + (p->transpose_b ? 0 : 3000 + (double)bytes_b / 2000);
    double gating = ignis__gemm_gates(gemm) ? (double)(3 * p->m * p->n * ignis__dtypes[dtype].size) / 3000
                                            : 0; /* not beside another tile */
    int i, trial;
    for (i = 0; i < IGNIS__COUNT(ignis__gemm_tile_sizes); i++) {
        ignis__gemm_tile tile = ignis__gemm_tile_sizes[i];
        bool hopper = tile.builtin == IGNIS__BUILTIN(GEMM_HOPPER);
        bool mma = tile.builtin == IGNIS__BUILTIN(GEMM_MMA) || tile.builtin == IGNIS__BUILTIN(GEMM_MMA_SMALL);
        bool is_tiny = tile.builtin == IGNIS__BUILTIN(GEMM_TINY); /* exact, for every dtype, and for little work */
        bool is_large = tile.rows == 192, is_ahead = ignis__gemm_is_ahead(&tile);
        bool shares_a = ignis__gemm_shares_a(tile.rows, tile.columns, tile.blocks);
        const ignis__gemm *of = hopper ? &by_wgmma : gemm;
        int64_t tiles = ignis__gemm_tiles(gemm, tile.rows, tile.columns);
        if ((is_tiny ? tiles > 4 * processors || (tensor_cores && packed && dtype != IGNIS_F32)
                     : (hopper || mma) != tensor_cores) ||
            (is_ahead && !ahead) || (eights && (is_tiny || tile.columns > 128)) ||
            (hopper && (!wgmma || !(transposes ? may_transpose : packed || may_pack) ||
                        (is_large ? !large || !ignis__gemm_fit_columns(op, dtype, of, epilogue, &tile)
                                  : (shares_a ? !pairs : tile.columns != ignis__gemm_columns(gemm, tile.columns)) ||
                                        tile.rows != ignis__gemm_rows(gemm)))) ||
            (op->steady && (is_tiny || best.threads || tile.columns > 192))) /* all remaining ones sum k in one order */
            continue;
        for (trial = 0; trial <= (p->k < 256 || op->steady || is_ahead || is_large ? 0 : 3); trial++) {
            int64_t splits = trial ? ignis__gemm_splits(op, of, &tile, trial) : 1;
            double time = trial && splits == 1 ? least : ignis__gemm_time(op, of, &tile, splits);
            bool packs = !packed && (hopper ? !transposes : mma && may_pack && 12 * time > time + packing);
            time = packs ? time + packing : !packed && mma ? 12 * time : time;
            time += (is_ahead ? 0 : gating) + (hopper && transposes ? transposing : 0);
            if (best.threads && time >= least)
                continue;
            best = tile;
            least = time;
            kernel.splits = splits;
            kernel.packs = packs;
            kernel.transposes = hopper && transposes;
        }
    }
    kernel.builtin = best.builtin;
    kernel.rows = kernel.summed_rows = best.rows;
    kernel.columns = best.columns;
    kernel.threads = best.threads;
    kernel.blocks = best.blocks;
    tensor_cores = tensor_cores && best.builtin != IGNIS__BUILTIN(GEMM_TINY);
    kernel.sums_rows = !tensor_cores || dtype != IGNIS_F32; /* the summed values would be rounded */
    if (gemm->patches_of)
        snprintf(kernel.define, sizeof kernel.define, "%s", ignis__gemm_patches_define(gemm));
    if (!tensor_cores)
        return kernel;
    ignis__gemm_mma_define(kernel.define, sizeof kernel.define, gemm);
    if (best.builtin == IGNIS__BUILTIN(GEMM_HOPPER)) {
        kernel.summed_rows = 64;
        kernel.stays = true;
        /* k steps of both operands, 64 rows of staging for each warpgroup that multiplies, and the barriers:
           kernels/gemm_hopper.cu */
        staging = kernel.rows == 192 ? 64 * 2 : kernel.columns == 192 ? 256 * 2 : kernel.blocks == 2 ? 64 * 2 : 68 * 4;
        stage = 128u * (unsigned)(kernel.rows +
                                  (by_wgmma.params.transpose_b ? kernel.columns : (kernel.columns + 63) / 64 * 64));
        stages = ignis__gemm_shares_a(kernel.rows, kernel.columns, kernel.blocks) ? 8
                 : kernel.rows == 192                         ? (unsigned)ignis__clamp(202 * 1024 / stage, 1, 6)
                 : kernel.columns > 128 || kernel.blocks == 2 ? 4
                                                              : 6;
        kernel.shared = stages * (stage + 16) + (kernel.threads / 128 - 1) * 64 * staging + 48;
    } else {
        kernel.shared = 4 * 64 * 2 * (unsigned)kernel.rows; /* 4 k steps of 64 bytes of each row of both operands */
    }
    return kernel;
}
