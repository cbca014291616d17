/*  >>ops.softmax - ignis_softmax and ignis_log_softmax over the last dimension

    Softmax saves its result, log_softmax its input and f32 log-sums.
    Uses: row_launch; kernels SOFTMAX, LOG_SOFTMAX. */

#include "room.h"

static ignis_status ignis__softmax_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *dx;
    ignis__address to, grad, y;
    ignis__rows plan;
    int64_t rows, n;
    void *params[] = {&to, &grad, &y, &rows, &n, &plan.packed, &plan.kept};
    if (!ignis__op_begin_backward(&op, "ignis_softmax", args))
        return ignis__failed();
    ignis__op_rows(&op, op.in[1], &rows, &n);
    dx = ignis__op_new_like(&op, op.in[1]);
    grad = ignis__op_read(&op, op.in[0]);
    y = ignis__op_read(&op, op.in[1]);
    to = ignis__op_write(&op, dx);
    plan = ignis__rows_plan(&op, op.in[1]->dtype, rows, n, to % 16 == y % 16 && to % 16 == grad % 16, 2, 1);
    ignis__rows_launch(&op, &plan, IGNIS__BUILTIN(SOFTMAX_BACKWARD_WARP), IGNIS__BUILTIN(SOFTMAX_BACKWARD_BLOCK),
                       op.in[1]->dtype, params);
    return ignis__op_finish_backward(&op, args, 1, &dx);
}

IGNIS_API ignis_tensor ignis_softmax(ignis_tensor tensor)
{
    ignis__op op;
    ignis__array *out;
    ignis__address x, y;
    ignis__rows plan;
    int64_t rows, n;
    void *params[] = {&y, &x, &rows, &n, &plan.packed, &plan.kept};
    if (!ignis__op_begin(&op, "ignis_softmax", 1, &tensor))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, "x");
    ignis__op_rows(&op, op.in[0], &rows, &n);
    out = ignis__op_new_like(&op, op.in[0]);
    x = ignis__op_read(&op, op.in[0]);
    y = ignis__op_write(&op, out);
    plan = ignis__rows_plan(&op, op.in[0]->dtype, rows, n, x % 16 == y % 16, 1, 2);
    ignis__rows_launch(&op, &plan, IGNIS__BUILTIN(SOFTMAX_WARP),
                       plan.kept ? IGNIS__BUILTIN(SOFTMAX_LONG) : IGNIS__BUILTIN(SOFTMAX_BLOCK), op.in[0]->dtype,
                       params);
    ignis__op_save(&op, out);
    return ignis__op_end_recorded(&op, out, "softmax", ignis__softmax_backward, NULL, 0);
}

/*  Records a tensor, which has the values, as the softmax of a held tensor. */
IGNIS__PRIVATE ignis_tensor ignis__softmax_of(ignis__tensor *x, ignis_tensor values)
{
    ignis__tape_state tape_state = ignis__tensor_tape_state(x);
    ignis_rule rule;
    ignis_tensor result;
    ignis__array *out;
    ignis__op op;
    values = ignis_cast(values, x->dtype);
    if (!ignis__op_begin(&op, "ignis_softmax", 1, &values))
        return ignis__no_tensor();
    out = ignis__op_view(&op, op.in[0], &x->shape, op.in[0]->numel, 0);
    ignis__op_save(&op, out);
    rule = ignis__op_rule(&op, "softmax", ignis__softmax_backward, NULL, 0);
    result =
        ignis__op_result(&op, out, 1, &x, &tape_state, tape_state.requires_grad && ignis__recording() ? &rule : NULL);
    ignis__op_leave(&op);
    return result;
}

/*  Computes the gradient of log_softmax. Saved: x, log_sums. */
static ignis_status ignis__log_softmax_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__array *dx;
    ignis__address to, grad, x, log_sums;
    ignis__rows plan;
    int64_t rows, n;
    void *params[] = {&to, &grad, &x, &log_sums, &rows, &n, &plan.packed, &plan.kept};
    if (!ignis__op_begin_backward(&op, "ignis_log_softmax", args))
        return ignis__failed();
    ignis__op_rows(&op, op.in[1], &rows, &n);
    dx = ignis__op_new_like(&op, op.in[1]);
    grad = ignis__op_read(&op, op.in[0]);
    x = ignis__op_read(&op, op.in[1]);
    log_sums = ignis__op_read(&op, op.in[2]);
    to = ignis__op_write(&op, dx);
    plan = ignis__rows_plan(&op, op.in[1]->dtype, rows, n, to % 16 == x % 16 && to % 16 == grad % 16, 2, 1);
    ignis__rows_launch(&op, &plan, IGNIS__BUILTIN(LOG_SOFTMAX_BACKWARD_WARP),
                       IGNIS__BUILTIN(LOG_SOFTMAX_BACKWARD_BLOCK), op.in[1]->dtype, params);
    return ignis__op_finish_backward(&op, args, 1, &dx);
}

IGNIS_API ignis_tensor ignis_log_softmax(ignis_tensor tensor)
{
    ignis__op op;
    ignis__array *out, *sums = NULL;
    ignis__address x, y, log_sums;
    ignis__rows plan;
    int64_t rows, n;
    void *params[] = {&y, &log_sums, &x, &rows, &n, &plan.packed, &plan.kept};
    if (!ignis__op_begin(&op, "ignis_log_softmax", 1, &tensor))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, "x");
    if (ignis__op_rows(&op, op.in[0], &rows, &n))
        sums = ignis__op_new_rows(&op, 2, rows, ignis__wide_dtype(op.in[0]->dtype));
    out = ignis__op_new_like(&op, op.in[0]);
    x = ignis__op_read(&op, op.in[0]);
    y = ignis__op_write(&op, out);
    log_sums = ignis__op_write(&op, sums);
    plan = ignis__rows_plan(&op, op.in[0]->dtype, rows, n, x % 16 == y % 16, 1, 2);
    ignis__rows_launch(&op, &plan, IGNIS__BUILTIN(LOG_SOFTMAX_WARP),
                       plan.kept ? IGNIS__BUILTIN(LOG_SOFTMAX_LONG) : IGNIS__BUILTIN(LOG_SOFTMAX_BLOCK),
                       op.in[0]->dtype, params);
    ignis__op_save(&op, op.in[0]);
    ignis__op_save(&op, sums);
    return ignis__op_end_recorded(&op, out, "log_softmax", ignis__log_softmax_backward, NULL, 0);
}
