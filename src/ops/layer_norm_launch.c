/*  >>ops.norm - layer_norm and rms_norm: which kernels run, and how

    Plans teams of threads for rows: a warp, a row, a long row, a block; or the kernels of norm_unaligned.cuh.
    Uses: operation, row_launch. Invariant: the same rows choose the same kernel on a device, so the bits are
    the same. */

#include "room.h"

#define IGNIS__NORM_KERNELS(NAME)                                                                                \
    {IGNIS__BUILTIN(NAME##_WARP), IGNIS__BUILTIN(NAME##_ROW), IGNIS__BUILTIN(NAME##_LONG),                       \
     IGNIS__BUILTIN(NAME##_BLOCK)},                                                                              \
        {IGNIS__BUILTIN(ADD_##NAME##_WARP), IGNIS__BUILTIN(ADD_##NAME##_ROW), IGNIS__BUILTIN(ADD_##NAME##_LONG), \
         IGNIS__BUILTIN(ADD_##NAME##_BLOCK)},                                                                    \
        {IGNIS__BUILTIN(NAME##_ROWS_FEW), IGNIS__BUILTIN(NAME##_ROWS_WARP), IGNIS__BUILTIN(NAME##_ROWS_BLOCK),   \
         IGNIS__BUILTIN(NAME##_ROWS_EVEN)},                                                                      \
        {IGNIS__BUILTIN(NAME##_ROWS_BACKWARD_FEW), IGNIS__BUILTIN(NAME##_ROWS_BACKWARD_WARP),                    \
         IGNIS__BUILTIN(NAME##_ROWS_BACKWARD_BLOCK), IGNIS__BUILTIN(NAME##_ROWS_BACKWARD_EVEN)},                 \
        IGNIS__BUILTIN(NAME##_BACKWARD_AVERAGES), IGNIS__BUILTIN(NAME##_BACKWARD_COLUMNS)

/*  The kernels of norm.cu and norm_add.cu, in the order of ignis__norm. */
enum { IGNIS__NORM_WARP, IGNIS__NORM_ROW, IGNIS__NORM_LONG, IGNIS__NORM_BLOCK };

IGNIS__PRIVATE const ignis__norm ignis__layer_norm = {"ignis_layer_norm", "layer_norm", false,
                                                      IGNIS__NORM_KERNELS(LAYER_NORM), 1};
IGNIS__PRIVATE const ignis__norm ignis__layer_norm_wide = {"ignis_layer_norm", "layer_norm", false,
                                                           IGNIS__NORM_KERNELS(LAYER_NORM_WIDE), 2};
IGNIS__PRIVATE const ignis__norm ignis__rms_norm = {"ignis_rms_norm", "rms_norm", true, IGNIS__NORM_KERNELS(RMS_NORM),
                                                    1};
IGNIS__PRIVATE const ignis__norm ignis__rms_norm_wide = {"ignis_rms_norm", "rms_norm", true,
                                                         IGNIS__NORM_KERNELS(RMS_NORM_WIDE), 2};

/*  Returns how many blocks an SM holds at a time, at least 1. */
IGNIS__PRIVATE int64_t ignis__op_resident(ignis__op *op, ignis__builtin builtin, ignis_dtype dtype, unsigned threads,
                                          size_t shared)
{
    void *function = op->ok ? ignis__builtin_get(op->work.call, op->work.device, builtin, dtype) : NULL;
    int resident = 0;
    op->ok =
        function && !IGNIS__CUDA_FAILED(op->work.call, op->work.device, cuOccupancyMaxActiveBlocksPerMultiprocessor,
                                        (&resident, function, (int)threads, shared));
    return resident > 1 ? resident : 1;
}

/*  Returns after how many rows one begins at the same address modulo 16 again. */
IGNIS__PRIVATE int64_t ignis__norm_alignment_period(ignis_dtype dtype, int64_t n)
{
    int64_t pack = ignis__pack_elements(dtype), period = pack;
    while (period > 1 && n * period / 2 % pack == 0)
        period /= 2;
    return period;
}

/*  Returns whether rows of full packs use the kernels named _even, whose threads have one pack of a row: they
    are faster for these. */
static bool ignis__norm_is_even(ignis_dtype dtype, int64_t n, bool backward)
{
    int64_t pack = ignis__pack_elements(dtype), packs = n / pack;
    return n % pack == 0 && packs > (backward ? 32 : 128) && packs <= (backward ? 512 : 256);
}

/*  Plans rows. arrays: arrays of rows that are read. Rows of a team
    begin at the same address modulo 16. In backward a team has a few rows at least, as its block leaves a row
    of partial sums. The shared memory is that of the most arrays possible, so that the same rows have the
    same kernel and bits. */
IGNIS__PRIVATE ignis__norm_plan ignis__norm_rows_plan(ignis__op *op, const ignis__norm *norm, ignis_dtype dtype,
                                                      int64_t rows, int64_t n, int arrays, bool backward)
{
    static const struct {
        int packs, threads, teams; /* packs of a row for a thread, the most threads of a team, teams of a block */
    } shapes[] = {{1, 32, IGNIS__NORM_WARPS}, {4, 32, IGNIS__NORM_WARPS}, {4, IGNIS__NORM_BLOCK_THREADS, 1}};
    const ignis_device_info *info = &op->work.device->info;
    const ignis__builtin *kernels = backward ? norm->rows_backward : norm->rows;
    int64_t pack = ignis__pack_elements(dtype), packs = n / pack, unit;
    ignis__norm_plan plan = IGNIS__ZERO;
    int count = (int)(sizeof shapes / sizeof *shapes), i = 0;
    plan.threads = ignis__row_threads(packs, 1, IGNIS__NORM_BLOCK_THREADS);
    if (ignis__norm_is_even(dtype, n, backward) &&
        (int64_t)plan.threads * 16 * IGNIS__NORM_FLIGHT * (backward ? 3 : 2) <= info->shared_per_block - 2048) {
        plan.builtin = kernels[count];
        plan.even = true;
        plan.shared = (size_t)plan.threads * 16 * (size_t)(IGNIS__NORM_FLIGHT * arrays);
        unit = rows ? ignis__ceil_div(rows, IGNIS__NORM_FLIGHT) : 1; /* of all blocks, which get equal numbers */
        plan.blocks = ignis__clamp(ignis__ceil_div(unit, backward ? 2 : 1), 1,
                                   info->multiprocessors *
                                       ignis__op_resident(op, plan.builtin, dtype, plan.threads, plan.shared));
        plan.blocks = ignis__ceil_div(unit, ignis__ceil_div(unit, plan.blocks));
        return plan;
    }
    while (i < count && packs > (int64_t)shapes[i].packs * shapes[i].threads)
        i++;
    plan.threads =
        i < count ? ignis__row_threads(packs, shapes[i].packs, (unsigned)shapes[i].threads) * (unsigned)shapes[i].teams
                  : 0;
    if ((int64_t)plan.threads * 16 * IGNIS__NORM_FLIGHT * (2 + 2 * norm->weight_packs) > info->shared_per_block - 8192)
        plan.threads = 0;
    if (plan.threads == 0)
        return plan;
    plan.builtin = kernels[i];
    plan.shared = (size_t)plan.threads * 16 *
                  (size_t)(IGNIS__NORM_FLIGHT * arrays + (backward ? 1 : 2) * norm->weight_packs * shapes[i].packs);
    unit = ignis__ceil_div(ignis__norm_alignment_period(dtype, n), shapes[i].teams);
    plan.blocks =
        ignis__clamp(ignis__ceil_div(rows, shapes[i].teams * (backward ? 4 : 1)), 1,
                     info->multiprocessors * ignis__op_resident(op, plan.builtin, dtype, plan.threads, plan.shared));
    plan.blocks = plan.blocks < unit ? unit : plan.blocks / unit * unit;
    return plan;
}

/*  Returns whether rows use these kernels unless they are too long. addresses: the bitwise or of all
    addresses of rows. */
IGNIS__PRIVATE bool ignis__norm_is_unaligned(ignis_dtype dtype, int64_t n, bool packed, ignis__address addresses)
{
    return (!packed || ignis__norm_is_even(dtype, n, false)) && addresses % 16 == 0;
}

/*  Chooses a kernel of norm.cu or norm_add.cu, and how it is launched. */
IGNIS__PRIVATE int ignis__norm_kernel(const ignis__op *op, ignis_dtype dtype, int64_t rows, int64_t n, bool packed,
                                      bool anywhere, ignis__rows *plan)
{
    int64_t packs = ignis__ceil_div(n, ignis__pack_elements(dtype));
    int share = packs <= IGNIS__NORM_BLOCK_THREADS * IGNIS__ROW_PACKS ? IGNIS__ROW_PACKS : IGNIS__NORM_LONG_PACKS;
    *plan = ignis__rows_plan(op, dtype, rows, n, packed || anywhere, 1, 2);
    plan->packed = anywhere ? (int)IGNIS__NORM_UNALIGNED : packed;
    if (plan->warp)
        return IGNIS__NORM_WARP;
    if (!packed || packs > IGNIS__NORM_BLOCK_THREADS * share)
        return IGNIS__NORM_BLOCK;
    plan->threads = ignis__row_threads(packs, share, IGNIS__NORM_BLOCK_THREADS);
    plan->shared = 0;
    return share == IGNIS__ROW_PACKS ? IGNIS__NORM_ROW : IGNIS__NORM_LONG;
}
