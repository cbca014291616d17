/*  >>ops.loss - kernels of cross_entropy: how rows are distributed, one pass forward with the gradient

    Blocks keep running over rows; a few rows run in one block. The log-sum of a row has two parts, so no
    digits are lost.
    Uses: row_launch; kernels SOFTMAX. Sums of losses have a fixed order. */

#include "room.h"

/*  Scales the gradients. Saved: the gradients of the inputs that needed one when the loss was recorded, for a loss
    gradient of 1; nobody else has them. */
IGNIS__PRIVATE ignis_status ignis__cross_entropy_rescale(const ignis_backward_args *args)
{
    const bool *recorded = ignis__tensor_thread_now()->pass->node->needed;
    ignis__op op;
    ignis__array *made[3] = {NULL, NULL, NULL};
    int i, at = 0;
    for (i = 0; i < args->input_count && !args->grad_output.id; at += recorded[i++])
        if (args->needed[i])
            args->grad_inputs[i] = args->saved[at];
    if (!args->grad_output.id)
        return IGNIS_OK;
    if (!ignis__op_begin_backward(&op, "ignis_cross_entropy", args))
        return ignis__failed();
    for (i = 0, at = 0; i < args->input_count; at += recorded[i++]) {
        ignis__array *saved;
        ignis__address gradient, grad;
        int64_t numel;
        void *params[] = {&gradient, &grad, &numel};
        if (!args->needed[i])
            continue;
        saved = op.in[1 + at];
        numel = saved->numel;
        if (ignis__backward_pass_retains()) {
            made[i] = ignis__op_new_like(&op, saved);
            ignis__op_copy(&op, made[i], saved);
        }
        grad = ignis__op_read(&op, op.in[0]);
        gradient = ignis__op_write(&op, made[i] ? made[i] : saved);
        ignis__op_launch_elementwise(&op, IGNIS__BUILTIN(CROSS_ENTROPY_RESCALE), saved->dtype, numel, params);
        if (op.ok && !made[i])
            args->grad_inputs[i] = args->saved[at];
    }
    return ignis__op_finish_backward(&op, args, args->input_count, made);
}

/*  Computes the gradient from the results of forward. It may replace the logits. */
IGNIS__PRIVATE void ignis__cross_entropy_launch_backward(ignis__op *op, ignis__cross_entropy *entropy,
                                                         ignis_dtype dtype, ignis__cross_entropy_addresses *at)
{
    bool packed = at->logits % 16 == at->gradient % 16;
    ignis__rows plan = ignis__rows_plan(op, dtype, entropy->rows, entropy->classes, packed, 0, 2);
    void *params[] = {&at->gradient,    &at->grad,
                      &at->log_sums,    &at->logits,
                      &at->targets,     &entropy->target_bytes,
                      &entropy->rows,   &entropy->classes,
                      &entropy->stride, &entropy->ignore_index,
                      &at->scale,       &plan.packed};
    if (plan.warp) { /* no such kernel exists */
        plan.threads = ignis__row_threads(entropy->classes, ignis__row_share(dtype, true), 512);
        plan.blocks = entropy->rows;
    }
    ignis__op_launch_row(op, IGNIS__BUILTIN(CROSS_ENTROPY_BACKWARD), dtype, plan.blocks, plan.threads, params);
}

/*  Computes the gradient of the logits. Saved: logits, targets, log_sums, scale. */
IGNIS__PRIVATE ignis_status ignis__cross_entropy_backward(const ignis_backward_args *args)
{
    ignis__op op;
    ignis__cross_entropy entropy;
    ignis__array *made;
    ignis__cross_entropy_addresses at;
    ignis_dtype dtype;
    int i;
    if (!ignis__op_begin_backward(&op, "ignis_cross_entropy", args))
        return ignis__failed();
    memcpy(&entropy, args->params, sizeof entropy);
    dtype = op.in[1]->dtype;
    made = ignis__op_new_like(&op, op.in[1]);
    at.grad = ignis__op_read(&op, op.in[0]);
    at.logits = ignis__op_read(&op, op.in[1]);
    at.targets = ignis__op_read(&op, op.in[2]);
    at.log_sums = ignis__op_read(&op, op.in[3]);
    at.scale = ignis__op_read(&op, op.in[4]);
    at.gradient = ignis__op_write(&op, made);
    ignis__cross_entropy_launch_backward(&op, &entropy, dtype, &at);
    for (i = 1; i < args->input_count; i++)
        args->grad_inputs[i].id = 0;
    return ignis__op_finish_backward(&op, args, 1, &made);
}

/*  Returns whether a desc needs options that the kernels of all rows lack. */
IGNIS__PRIVATE bool ignis__cross_entropy_is_soft(const ignis_cross_entropy_desc *desc)
{
    return desc && (desc->label_smoothing != 0 || desc->reduction == IGNIS_REDUCTION_NONE);
}

/*  Checks the options. Logits: an input, or computed here as [rows, columns]. */
IGNIS__PRIVATE bool ignis__cross_entropy_prepare(ignis__op *op, const ignis_cross_entropy_desc *desc, int64_t rows,
                                                 int64_t columns, const ignis__array *targets,
                                                 ignis__cross_entropy *entropy)
{
    memset(entropy, 0, sizeof *entropy);
    entropy->rows = rows;
    entropy->stride = columns;
    if (targets->dtype != IGNIS_I32 && targets->dtype != IGNIS_I64)
        return ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "targets is %s; i32 or i64 is needed",
                              ignis__dtypes[targets->dtype].name);
    if (entropy->stride == 0 || targets->numel != entropy->rows)
        return ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS,
                              "%s is %s, targets %s; one target is needed for each of %lld rows of at least one class",
                              op->in[1] == targets ? "logits" : "hidden", ignis__shape_write(&op->in[0]->shape).text,
                              ignis__shape_write(&targets->shape).text, (long long)rows);
    if (desc && (desc->reduction < IGNIS_REDUCTION_MEAN || desc->reduction >= IGNIS_REDUCTION_COUNT))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_ENUM, "desc->reduction is %d", (int)desc->reduction);
    if (desc && !(desc->label_smoothing >= 0 && desc->label_smoothing <= 1))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->label_smoothing is %g, outside 0 to 1",
                              desc->label_smoothing);
    if (desc && (desc->classes < 0 || desc->classes > entropy->stride))
        return ignis__op_fail(op, IGNIS_DIAG_BAD_NUMBER, "desc->classes is %lld; there are %lld columns of logits",
                              (long long)desc->classes, (long long)entropy->stride);
    entropy->classes = desc && desc->classes ? desc->classes : entropy->stride;
    entropy->ignore_index = desc && (desc->ignore_index || desc->ignore_zero) ? desc->ignore_index : -100;
    entropy->mean = !desc || desc->reduction == IGNIS_REDUCTION_MEAN;
    entropy->target_bytes = (int)ignis__dtypes[targets->dtype].size;
    return true;
}

/*  Returns whether forward makes the gradient too: f16 does not hold the gradient of a mean before it is
    scaled up. */
IGNIS__PRIVATE bool ignis__cross_entropy_is_fused(ignis_dtype dtype) { return dtype != IGNIS_F16; }

#define IGNIS__ONE_BLOCK_ROWS 128 /* one block, a warp for each row, is faster than three launches */
#define IGNIS__ROUND_BLOCKS 7     /* on an SM, each with a row in flight: one more is 4 % slower on an H200 */

static bool ignis__cross_entropy_fits_one_block(const ignis__cross_entropy *entropy,
                                                const ignis__cross_entropy_work *work)
{
    return work->plan.warp && entropy->rows <= IGNIS__ONE_BLOCK_ROWS && !work->part;
}

/*  Plans the rows. With many rows, blocks keep running: as many as the device holds at a time, so that few
    hand over results. */
IGNIS__PRIVATE void ignis__cross_entropy_plan(ignis__op *op, const ignis__cross_entropy *entropy,
                                              ignis__cross_entropy_work *work, ignis_dtype dtype)
{
    ignis__rows *plan = &work->plan;
    int64_t resident;
    *plan = ignis__rows_plan(op, dtype, entropy->rows, entropy->classes,
                             !work->gradient || work->logits % 16 == work->gradient % 16, work->gradient ? 1 : 0, 2);
    if (plan->packed && (work->logits | work->gradient) % 16 == 0 &&
        (entropy->classes | entropy->stride) % ignis__pack_elements(dtype) == 0)
        plan->packed = IGNIS__ROWS_EXACT;
    work->counts = !work->gradient && plan->packed == IGNIS__ROWS_EXACT && !work->part &&
                   !ignis__cross_entropy_fits_one_block(entropy, work);
    if (work->counts) {
        plan->threads = plan->warp ? IGNIS__LOSS_WARP_THREADS : IGNIS__LOSS_THREADS;
        plan->blocks = ignis__ceil_div(entropy->rows, plan->warp ? plan->threads / 32 : 1);
    }
    work->builtin = work->counts && plan->warp          ? IGNIS__BUILTIN(CROSS_ENTROPY_LOSS_WARP)
                    : work->counts                      ? IGNIS__BUILTIN(CROSS_ENTROPY_LOSS_BLOCK)
                    : plan->warp                        ? IGNIS__BUILTIN(CROSS_ENTROPY_WARP)
                    : plan->packed != IGNIS__ROWS_EXACT ? IGNIS__BUILTIN(CROSS_ENTROPY_BLOCK)
                    : plan->threads <= 128              ? IGNIS__BUILTIN(CROSS_ENTROPY_ROUND)
                                                        : IGNIS__BUILTIN(CROSS_ENTROPY_EXACT);
    ignis__record_builtin_for_all(IGNIS__BUILTIN(CROSS_ENTROPY_COUNT), dtype); /* for other numbers of rows */
    ignis__record_builtin_for_all(IGNIS__BUILTIN(CROSS_ENTROPY_WARP), dtype);
    if (!work->gradient)
        ignis__record_builtin_for_all(IGNIS__BUILTIN(CROSS_ENTROPY_LOSS_WARP), dtype);
    if (ignis__cross_entropy_fits_one_block(entropy, work))
        return;
    resident = ignis__op_resident(op, work->builtin, dtype, plan->threads, plan->shared);
    if (work->builtin == IGNIS__BUILTIN(CROSS_ENTROPY_ROUND) && resident > IGNIS__ROUND_BLOCKS)
        resident = IGNIS__ROUND_BLOCKS;
    plan->blocks = ignis__clamp(plan->blocks, 1, op->work.device->info.multiprocessors * resident);
}

IGNIS__PRIVATE void ignis__cross_entropy_count(ignis__op *op, ignis__cross_entropy *entropy,
                                               ignis__cross_entropy_work *work, ignis_dtype dtype)
{
    void *count[] = {&work->count, &work->targets, &entropy->target_bytes, &entropy->rows, &entropy->ignore_index};
    ignis__op_launch_row(op, IGNIS__BUILTIN(CROSS_ENTROPY_COUNT), dtype, IGNIS__COUNT_BLOCKS, 256, count);
}

IGNIS__PRIVATE void ignis__cross_entropy_launch(ignis__op *op, ignis__cross_entropy *entropy,
                                                ignis__cross_entropy_work *work, ignis_dtype dtype)
{
    void *rows[] = {&work->loss,       &work->scale,     &work->log_sums,        &work->gradient,
                    &work->logits,     &work->targets,   &entropy->target_bytes, &entropy->rows,
                    &entropy->classes, &entropy->stride, &entropy->ignore_index, &entropy->mean,
                    &work->losses,     &work->count,     &work->plan.packed,     &work->plan.kept};
    if (ignis__cross_entropy_fits_one_block(entropy, work)) { /* it takes the first twelve */
        int64_t threads = entropy->classes > IGNIS__SHORT_ROW ? dtype == IGNIS_F64 ? 256 : 1024
                                                              : 32 * ignis__ceil_div(entropy->rows, 32);
        ignis__op_launch_row(op, IGNIS__BUILTIN(CROSS_ENTROPY_FEW), dtype, 1, (unsigned)ignis__clamp(threads, 32, 1024),
                             rows);
        return;
    }
    if (!work->counts && !work->part)
        ignis__cross_entropy_count(op, entropy, work, dtype);
    ignis__op_launch(op, work->builtin, dtype, NULL,
                     ignis__launch_row(work->plan.blocks, work->plan.threads, work->plan.shared), rows);
}

/*  Runs forward on op->in[0] and the targets op->in[1]. Writes the gradient unless it is NULL. */
IGNIS__PRIVATE void ignis__cross_entropy_forward(ignis__op *op, ignis__cross_entropy *entropy,
                                                 const ignis__cross_entropy_results *found, ignis__array *gradient)
{
    ignis__cross_entropy_work work = IGNIS__ZERO;
    ignis__array *losses = NULL, *count = NULL;
    ignis_dtype dtype = op->in[0]->dtype;
    work.logits = ignis__op_read(op, op->in[0]);
    work.targets = ignis__op_read(op, op->in[1]);
    if (gradient)
        work.gradient = ignis__op_write(op, gradient);
    if (op->ok)
        ignis__cross_entropy_plan(op, entropy, &work, dtype);
    if (op->ok) {
        losses = ignis__op_new_row(op, 2 * work.plan.blocks, ignis__wide_dtype(dtype)); /* or losses and counts */
        count = work.counts ? NULL : ignis__op_new_row(op, IGNIS__COUNT_BLOCKS + 1, IGNIS_I64);
    }
    work.loss = ignis__op_write(op, found->loss);
    work.scale = ignis__op_write(op, found->scale);
    work.log_sums = ignis__op_write(op, found->log_sums);
    work.losses = ignis__op_write(op, losses);
    work.count = work.counts ? ignis__op_zeroed(op) : ignis__op_write(op, count);
    if (op->ok)
        ignis__cross_entropy_launch(op, entropy, &work, dtype);
}
