/*  >>ops.layer_norm_backward - the gradients of layer_norm and rms_norm, with column sums for the layer

    before One pass over rows that a team holds, else two kernels. Partial sums of dw and db are added in a
    fixed order.
    Uses: layer_norm_launch, the backward pass (offered column sums). */

#include "room.h"
#include "matmul/room.h"

static void ignis__norm_partials(ignis__op *op, bool rms, ignis__norm_backward_work *work, ignis_dtype wide,
                                 int64_t count)
{
    ignis__address size = (ignis__address)(count * work->n * ignis__dtypes[wide].size);
    work->partial_w = ignis__op_write(op, ignis__op_new_row(op, (2 + work->sums_dx) * count * work->n, wide));
    work->partial_b = work->partial_w + size;
    work->partial_dx = work->sums_dx ? work->partial_b + (rms ? 0 : size) : 0;
}

/*  Computes dx and partial sums; returns their number. Rows that a team holds are read once, by a few blocks
    on each SM, which add up over many rows. Rows that are too long, or whose arrays begin at different
    addresses modulo 16, take two kernels: averages of every row, then all columns. work->before becomes 0 if
    it is not in dx, and work->sums_dx false if its sums are not made. */
static int64_t ignis__norm_backward_run(ignis__op *op, const ignis__norm *norm, ignis__norm_backward_work *work,
                                        ignis_dtype dtype)
{
    int64_t processors = op->work.device->info.multiprocessors, pack = ignis__pack_elements(dtype),
            period = ignis__norm_alignment_period(dtype, work->n);
    int64_t count, across;
    unsigned threads = 128;
    ignis_dtype wide = ignis__wide_dtype(dtype);
    ignis__address average_g, average_gh;
    ignis__norm_plan plan = IGNIS__ZERO;
    void *rows[] = {&work->dx,     &work->partial_w, &work->partial_b, &work->dy,   &work->x,
                    &work->w,      &work->mean,      &work->rstd,      &work->rows, &work->n,
                    &work->before, &work->partial_dx}; /* the last of the _even rows */
    void *averages[] = {&average_g,  &average_gh, &work->dy,   &work->x, &work->w,
                        &work->mean, &work->rstd, &work->rows, &work->n, &work->packed};
    void *columns[] = {&work->dx,   &work->partial_w, &work->partial_b, &work->dy,  &work->x,
                       &work->w,    &work->mean,      &work->rstd,      &average_g, &average_gh,
                       &work->rows, &work->n,         &work->packed};
    ignis__record_builtin_for_all(norm->rows_backward[0], dtype); /* for other devices */
    ignis__record_builtin_for_all(norm->averages, dtype);
    work->before = work->before % 16 ? 0 : work->before;
    if ((work->dx | work->dy | work->x) % 16 == 0)
        plan = ignis__norm_rows_plan(op, norm, dtype, work->rows, work->n, work->before ? 3 : 2, true);
    work->sums_dx = work->sums_dx && plan.even;
    if (plan.threads) {
        ignis__norm_partials(op, norm->rms, work, wide, plan.blocks);
        ignis__op_launch(op, plan.builtin, dtype, NULL, ignis__launch_row(plan.blocks, plan.threads, plan.shared),
                         rows);
        return plan.blocks;
    }
    work->before = 0;
    if (!work->packed && (work->dx - work->x) % 16 == 0 && (work->dx - work->dy) % 16 == 0)
        work->packed = IGNIS__NORM_UNALIGNED;
    across = ignis__ceil_div(
        work->packed ? work->n / pack + (work->packed == IGNIS__NORM_UNALIGNED ? 2 * pack : 0) : work->n, threads);
    count = ignis__clamp(ignis__ceil_div(processors * 8, across), 1, work->rows);
    count = work->packed == IGNIS__NORM_UNALIGNED ? ignis__ceil_div(count, period) * period : count;
    ignis__norm_partials(op, norm->rms, work, wide, count);
    average_g = ignis__op_write(op, ignis__op_new_row(op, work->rows, wide));
    average_gh = ignis__op_write(op, ignis__op_new_row(op, work->rows, wide));
    ignis__op_launch_row(op, norm->averages, dtype, ignis__clamp(work->rows, 0, IGNIS__ROW_BLOCKS),
                         IGNIS__NORM_AVERAGES_THREADS, averages);
    ignis__op_launch(op, norm->columns, dtype, NULL, ignis__launch_grid(across, count, 1, threads, 1, 0), columns);
    return count;
}

/*  Sums the columns of one to three matrices of the wide dtype, stored one after the other, with `rows` rows
    each. */
IGNIS__PRIVATE void ignis__sum_partials(ignis__op *op, ignis_dtype dtype, ignis__address *to, int matrices,
                                        ignis__address partial, int rows, int64_t n)
{
    void *params[] = {&to[0], &to[1], &to[2], &partial, &rows, &n};
    ignis__op_launch(op, IGNIS__BUILTIN(NORM_BACKWARD_SUM), dtype, NULL,
                     ignis__launch_grid(ignis__ceil_div(n, 32), matrices, 1, 512, 1, 0), params);
}

/*  Computes the gradients. Saved: x, w, rstd, and mean of layer_norm. */
IGNIS__PRIVATE ignis_status ignis__norm_backward(const ignis_backward_args *args)
{
    const ignis__norm *norm = *(const ignis__norm *const *)args->params;
    ignis__op op;
    ignis__array *gradients[3] = {NULL, NULL, NULL},
                 *before = args->needed[0] ? ignis__backward_pass_input_sum(0) : NULL, *sums = NULL;
    ignis__norm_backward_work work = IGNIS__ZERO;
    ignis__address to[5] = {0, 0, 0, 0, 0}; /* dw, db, sums; the last two are 0 */
    int64_t n;
    ignis_dtype dtype;
    int partial_count, count = norm->rms ? 1 : 2, i;
    if (!ignis__op_begin_backward(&op, norm->call, args))
        return ignis__failed();
    dtype = op.in[1]->dtype;
    ignis__op_rows(&op, op.in[1], &work.rows, &work.n);
    n = work.n;
    for (i = 0; i < args->input_count; i++) /* x, w, b */
        gradients[i] = ignis__op_new_like(&op, op.in[i ? 2 : 1]);
    if (op.in[1]->numel == 0) {
        for (i = 1; i < args->input_count; i++)
            ignis__op_zero(&op, gradients[i]);
    } else {
        work.dy = ignis__op_read(&op, op.in[0]);
        work.x = ignis__op_read(&op, op.in[1]);
        work.w = ignis__op_read(&op, op.in[2]);
        work.rstd = ignis__op_read(&op, op.in[3]);
        work.mean = norm->rms ? 0 : ignis__op_read(&op, op.in[4]);
        work.dx = ignis__op_write(&op, gradients[0]);
        work.before = before ? ignis__op_read(&op, before) : 0;
        work.sums_dx = args->needed[0] && ignis__gradient_wants_column_sums();
        work.packed = n % ignis__pack_elements(dtype) == 0 && (work.dy | work.x | work.w | work.dx) % 16 == 0;
        partial_count = (int)ignis__norm_backward_run(&op, norm, &work, dtype);
        if (work.before)
            ignis__backward_pass_mark_summed(0);
        for (i = 0; i < count; i++)
            to[i] = ignis__op_write(&op, gradients[1 + i]);
        if (work.sums_dx)
            to[count++] = ignis__op_write(&op, sums = ignis__op_new_row(&op, n, dtype));
        if (op.in[2]->dtype == dtype) {
            ignis__sum_partials(&op, dtype, to, count, work.partial_w, partial_count, n);
        } else { /* dw and db are of another dtype than the sums of dx */
            ignis__sum_partials(&op, op.in[2]->dtype, to, norm->rms ? 1 : 2, work.partial_w, partial_count, n);
            if (work.sums_dx)
                ignis__sum_partials(&op, dtype, to + count - 1, 1, work.partial_dx, partial_count, n);
        }
    }
    return ignis__op_finish_backward_with_sums(&op, args, args->input_count, gradients, sums);
}
