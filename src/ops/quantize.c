/*  >>ops.quantize - ignis_quantize_f8: 8-bit floats with a scale for each row, or one for all

    Nothing is recorded.
    Uses: operation, row_launch; kernels/quantize.cu. */

#include "room.h"

/*  Quantizes op->in[0] by rows, or as a whole. */
static void ignis__op_quantize(ignis__op *op, bool per_row, ignis__array *out, ignis__array *scale)
{
    enum { WARP, BLOCK, ALL };
    static const ignis__builtin by_dtype[2][3] = {
        {IGNIS__BUILTIN(QUANTIZE_F8_E4M3_WARP), IGNIS__BUILTIN(QUANTIZE_F8_E4M3_BLOCK),
         IGNIS__BUILTIN(QUANTIZE_F8_E4M3)},
        {IGNIS__BUILTIN(QUANTIZE_F8_E5M2_WARP), IGNIS__BUILTIN(QUANTIZE_F8_E5M2_BLOCK),
         IGNIS__BUILTIN(QUANTIZE_F8_E5M2)}};
    const ignis__builtin *kernels = by_dtype[out->dtype != IGNIS_F8_E4M3];
    ignis__array *x = op->in[0], *room;
    ignis__address from = ignis__op_read(op, x), to = ignis__op_write(op, out), scales = ignis__op_write(op, scale),
                   largest;
    int64_t rows, n, blocks;
    ignis__rows plan;
    if (!op->ok)
        return;
    if (per_row) {
        void *params[] = {&to, &scales, &from, &rows, &n, &plan.packed, &plan.kept};
        ignis__op_rows(op, x, &rows, &n);
        plan = ignis__rows_plan(op, x->dtype, rows, n, from % 16 == 0, 1, 2);
        ignis__rows_launch(op, &plan, kernels[WARP], kernels[BLOCK], x->dtype, params);
    } else {
        int packed = from % 16 == 0;
        void *find[] = {&largest, &from, &x->numel, &packed},
             *params[] = {&to, &scales, &from, &largest, &x->numel, &packed};
        room = ignis__op_new_row(op, 1, IGNIS_F32);
        if (room)
            ignis__op_fill(op, room, 0);
        largest = ignis__op_write(op, room);
        blocks = ignis__clamp(ignis__ceil_div(x->numel, 256 * ignis__pack_elements(x->dtype)), 1,
                              (int64_t)8 * op->work.device->info.multiprocessors);
        ignis__op_launch_row(op, IGNIS__BUILTIN(QUANTIZE_LARGEST), x->dtype, blocks, 256, find);
        ignis__op_launch_row(op, kernels[ALL], x->dtype, blocks, 256, params);
    }
}

IGNIS_API ignis_tensor ignis_quantize_f8(ignis_tensor x, ignis_dtype dtype, bool per_row, ignis_tensor *scale)
{
    static const char call[] = "ignis_quantize_f8";
    ignis__array *out = NULL, *scales = NULL;
    ignis_tensor result;
    ignis_shape shape;
    ignis__op op;
    if (!scale) {
        ignis__fail_null(call, "scale");
        return ignis__no_tensor();
    }
    *scale = ignis__no_tensor();
    if (!ignis__op_begin(&op, call, 1, &x))
        return ignis__no_tensor();
    if (!ignis__dtype_is_f8(dtype))
        ignis__op_fail(&op, IGNIS_DIAG_BAD_ENUM, "dtype is %d; IGNIS_F8_E4M3 or IGNIS_F8_E5M2 is needed", (int)dtype);
    if (op.ok && ignis__op_is_float(&op, 0, "x")) {
        shape = op.in[0]->shape;
        shape.ndim = per_row ? shape.ndim : 1;
        shape.dim[shape.ndim - 1] = 1;
        out = ignis__op_new(&op, &op.in[0]->shape, dtype);
        scales = ignis__op_new(&op, &shape, IGNIS_F32);
        if (op.ok && out->numel == 0)
            ignis__op_fill(&op, scales, 1);
        else if (op.ok)
            ignis__op_quantize(&op, per_row, out, scales);
    }
    if (op.ok)
        *scale = ignis__op_result(&op, scales, 0, NULL, NULL, NULL);
    result = ignis__op_result(&op, out, op.count, op.tensors, op.tape_state, NULL);
    ignis__op_leave_two(&op, scale);
    return result;
}
