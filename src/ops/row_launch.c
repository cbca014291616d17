/*  >>ops.row_launch - how kernels over rows are launched: a warp or a block for each row

    Geometry of ignis_row in kernels/ignis.cuh.
    Uses: operation. Rows are those of the last dimension. */

#include "room.h"

/*  Reads a tensor as rows of its last dimension. */
IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__op_rows(ignis__op *op, const ignis__array *array, int64_t *rows, int64_t *n)
{
    *n = array->shape.dim[array->shape.ndim - 1];
    *rows = *n ? array->numel / *n : 0;
    if (*n >= (int64_t)1 << 30)
        ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "the last dimension has %lld elements, 2^30 or more", (long long)*n);
    return op->ok;
}

#define IGNIS__ROW_ELEMENTS 8

/*  Returns the elements of a thread of a block in a round. */
IGNIS__PRIVATE int64_t ignis__row_share(ignis_dtype dtype, bool packed)
{
    return packed ? IGNIS__ROW_PACKS * ignis__pack_elements(dtype) : IGNIS__ROW_ELEMENTS;
}

IGNIS__PRIVATE unsigned ignis__row_threads(int64_t n, int64_t share, unsigned most)
{
    return (unsigned)ignis__clamp(ignis__ceil_div(ignis__ceil_div(n, share), 32) * 32, 32, (int64_t)most);
}

/*  Plans kernels that read `arrays` arrays forwards and backwards; 0: there is nothing to keep. `blocks`
    blocks, 1 or 2, fit on an SM. */
IGNIS__PRIVATE ignis__rows ignis__rows_plan(const ignis__op *op, ignis_dtype dtype, int64_t rows, int64_t n,
                                            bool packed, int arrays, int blocks)
{
    ignis__rows plan = IGNIS__ZERO;
    int64_t share = ignis__row_share(dtype, packed), rounds, round_bytes,
            room = op->work.device->info.shared_per_block / blocks - 2048;
    plan.packed = packed;
    plan.warp = packed && n <= 32 * share;
    plan.threads = plan.warp ? 128 : ignis__row_threads(n, share, 512);
    plan.blocks = ignis__clamp(plan.warp ? ignis__ceil_div(rows, 4) : rows, 0, IGNIS__ROW_BLOCKS);
    if (packed && !plan.warp && arrays) {
        rounds = ignis__ceil_div(n, plan.threads * share);
        round_bytes = (int64_t)plan.threads * IGNIS__ROW_PACKS * 16 * arrays;
        plan.kept = (int)(rounds - 1 < room / round_bytes ? rounds - 1 : room / round_bytes);
        plan.shared = (size_t)(plan.kept * round_bytes);
    }
    return plan;
}

IGNIS__PRIVATE void ignis__rows_launch(ignis__op *op, const ignis__rows *plan, ignis__builtin warp,
                                       ignis__builtin block, ignis_dtype dtype, void **params)
{
    ignis__op_launch(op, plan->warp ? warp : block, dtype, NULL,
                     ignis__launch_row(plan->blocks, plan->threads, plan->shared), params);
}
