/*  >>ops.layer_norm - ignis_layer_norm, ignis_rms_norm and their forms that add first

    Checks, forward, and the sum that the add forms return. Uses: layer_norm_launch, layer_norm_backward.
    Invariant: the add forms give the bits of ignis_add and then the norm. */

#include "room.h"

/*  Checks the inputs: x, w, b of layer_norm, and last the tensor that is added to x first, if there is one. */
static bool ignis__norm_check(ignis__op *op, const ignis__norm *norm, double *eps, int64_t n)
{
    static const char *const names[] = {"x", "w", "b"};
    int weights = norm->rms ? 2 : 3, i;
    ignis__op_is_float(op, 0, "x");
    for (i = 1; i < weights; i++) {
        ignis__op_is_weight(op, i, names[i]);
        ignis__op_is_row(op, i, names[i], n);
    }
    if (op->count > weights && ignis__op_same_dtype(op, weights, "y"))
        ignis__op_same_shape(op, weights, "y");
    return ignis__op_eps(op, eps);
}

/*  Arrays and sizes of the forward kernels. */
typedef struct ignis__norm_work {
    ignis__address y, mean, rstd, x, w, b, sum, other;
    int64_t rows, n, numel;
    double eps;
} ignis__norm_work;

static bool ignis__norm_packed(const ignis__norm_work *work, ignis_dtype dtype)
{
    return work->n % ignis__pack_elements(dtype) == 0 &&
           (work->x | work->y | work->w | work->b | work->sum | work->other) % 16 == 0;
}

/*  Runs the norm of x, or of sum = x + other. The sum is made in the same pass if all arrays begin at
    multiples of 16 bytes. */
static void ignis__norm_run(ignis__op *op, const ignis__norm *norm, ignis__norm_work *work, ignis_dtype dtype)
{
    bool packed, anywhere;
    int kernel;
    ignis__rows plan;
    ignis__norm_plan odd = IGNIS__ZERO;
    void *plain[] = {&work->y,    &work->mean, &work->rstd, &work->x,     &work->w,  &work->b,
                     &work->rows, &work->n,    &work->eps,  &plan.packed, &plan.kept};
    void *adding[] = {&work->y,    &work->mean, &work->rstd, &work->x,   &work->w,     &work->b,
                      &work->rows, &work->n,    &work->eps,  &work->sum, &work->other, &plan.kept};
    void *add[] = {&work->sum, &work->x, &work->other, &work->numel};
    ignis__record_builtin_for_all(norm->rows[0], dtype); /* for other sizes and devices */
    ignis__record_builtin_for_all(norm->aligned[0], dtype);
    if (work->sum) {
        ignis__record_builtin_for_all(norm->added[0], dtype);
        ignis__record_builtin_for_all(IGNIS__BUILTIN(ADD), dtype);
    }
    for (;;) {
        packed = ignis__norm_packed(work, dtype);
        if (ignis__norm_is_unaligned(dtype, work->n, packed, work->x | work->y | work->sum | work->other)) {
            odd = ignis__norm_rows_plan(op, norm, dtype, work->rows, work->n, work->sum ? 2 : 1, false);
        }
        if (odd.threads || !work->sum || packed)
            break;
        ignis__op_launch_elementwise(op, IGNIS__BUILTIN(ADD), dtype, work->numel, add);
        work->x = work->sum; /* from here on it is the norm of a tensor like any other, by the same kernels */
        work->sum = work->other = 0;
    }
    if (odd.threads) {
        ignis__op_launch(op, odd.builtin, dtype, NULL, ignis__launch_row(odd.blocks, odd.threads, odd.shared), adding);
        return;
    }
    anywhere = !packed && (work->x - work->y) % 16 == 0 && work->n > 32 * ignis__row_share(dtype, true);
    kernel = ignis__norm_kernel(op, dtype, work->rows, work->n, packed, anywhere, &plan);
    ignis__op_launch(op, (work->sum ? norm->added : norm->aligned)[kernel], dtype, NULL,
                     ignis__launch_row(plan.blocks, plan.threads, plan.shared), work->sum ? adding : plain);
}

/*  Returns the tensor of the sum of the operation's first and last input. */
static ignis_tensor ignis__norm_sum(ignis__op *op, ignis__array *sum)
{
    ignis__tensor *added[2];
    ignis__binary_params same = IGNIS__ZERO;
    ignis_rule rule;
    int last = op->count - 1;
    same.axis.outer = same.axis.n = same.axis.inner = 1;
    rule = ignis__op_rule(op, "add", ignis__add_backward, &same, sizeof same);
    rule.saved_count = 0;
    added[0] = op->tensors[0];
    added[1] = op->tensors[last];
    return ignis__op_result(
        op, sum, 2, added, NULL,
        op->records && (op->tape_state[0].requires_grad || op->tape_state[last].requires_grad) ? &rule : NULL);
}

/*  Runs forward. inputs: as ignis__norm_check has them. sum_out: NULL if nothing is added. */
static ignis_tensor ignis__norm_forward(const char *call, const ignis__norm *norm, int count,
                                        const ignis_tensor *inputs, double eps, ignis_tensor *sum_out)
{
    ignis__op op;
    ignis__array *out, *sum = NULL, *means = NULL, *rstds;
    ignis__tensor *made[3];
    ignis_tensor result = IGNIS__ZERO;
    ignis__norm_work work = IGNIS__ZERO;
    ignis__norm_rule params;
    ignis_dtype dtype;
    ignis_rule rule;
    if (sum_out)
        *sum_out = ignis__no_tensor();
    if (!ignis__op_begin(&op, call, count, inputs))
        return result;
    dtype = op.in[0]->dtype;
    if (op.in[1]->dtype != dtype)
        norm = norm->rms ? &ignis__rms_norm_wide : &ignis__layer_norm_wide;
    work.eps = eps;
    work.numel = op.in[0]->numel;
    ignis__op_rows(&op, op.in[0], &work.rows, &work.n);
    ignis__norm_check(&op, norm, &work.eps, work.n);
    out = ignis__op_new_like(&op, op.in[0]);
    rstds = ignis__op_new_row(&op, work.rows, ignis__wide_dtype(dtype));
    work.x = ignis__op_read(&op, op.in[0]);
    work.w = ignis__op_read(&op, op.in[1]);
    work.y = ignis__op_write(&op, out);
    work.rstd = ignis__op_write(&op, rstds);
    if (!norm->rms) {
        means = ignis__op_new_row(&op, work.rows, ignis__wide_dtype(dtype));
        work.b = ignis__op_read(&op, op.in[2]);
        work.mean = ignis__op_write(&op, means);
    }
    if (sum_out) {
        sum = ignis__op_new_like(&op, op.in[0]);
        work.other = ignis__op_read(&op, op.in[count - 1]);
        work.sum = ignis__op_write(&op, sum);
    }
    params.norm = norm;
    params.eps = work.eps;
    ignis__norm_run(&op, norm, &work, dtype);
    ignis__op_save(&op, sum ? sum : op.in[0]);
    ignis__op_save(&op, op.in[1]);
    ignis__op_save(&op, rstds);
    ignis__op_save(&op, means);
    if (!sum_out)
        return ignis__op_end_recorded(&op, out, norm->name, ignis__norm_backward, &params, sizeof params);
    *sum_out = ignis__norm_sum(&op, sum);
    made[0] = (ignis__tensor *)ignis__pool_hold(&ignis__tensors, sum_out->id);
    made[1] = op.tensors[1];
    made[2] = op.tensors[2];
    rule = ignis__op_rule(&op, norm->name, ignis__norm_backward, &params, sizeof params);
    result = ignis__op_result(&op, out, norm->rms ? 2 : 3, made, NULL, op.records ? &rule : NULL);
    if (made[0])
        ignis__tensor_drop(call, made[0]);
    ignis__op_leave_two(&op, sum_out);
    return result;
}

IGNIS_API ignis_tensor ignis_layer_norm(ignis_tensor x, ignis_tensor w, ignis_tensor b, double eps)
{
    ignis_tensor inputs[] = {x, w, b};
    return ignis__norm_forward("ignis_layer_norm", &ignis__layer_norm, 3, inputs, eps, NULL);
}

IGNIS_API ignis_tensor ignis_rms_norm(ignis_tensor x, ignis_tensor w, double eps)
{
    ignis_tensor inputs[] = {x, w};
    return ignis__norm_forward("ignis_rms_norm", &ignis__rms_norm, 2, inputs, eps, NULL);
}

/*  Runs the norm of x + y. The sum goes to the caller; it is dropped if sum is NULL. */
static ignis_tensor ignis__add_norm(const char *call, const ignis__norm *norm, int count, const ignis_tensor *inputs,
                                    double eps, ignis_tensor *sum)
{
    ignis_tensor unasked, result = ignis__norm_forward(call, norm, count, inputs, eps, sum ? sum : &unasked);
    if (!sum && unasked.id)
        (void)ignis_tensor_release(unasked);
    return result;
}

IGNIS_API ignis_tensor ignis_add_layer_norm(ignis_tensor x, ignis_tensor y, ignis_tensor w, ignis_tensor b, double eps,
                                            ignis_tensor *sum)
{
    ignis_tensor inputs[] = {x, w, b, y};
    return ignis__add_norm("ignis_add_layer_norm", &ignis__layer_norm, 4, inputs, eps, sum);
}

IGNIS_API ignis_tensor ignis_add_rms_norm(ignis_tensor x, ignis_tensor y, ignis_tensor w, double eps, ignis_tensor *sum)
{
    ignis_tensor inputs[] = {x, w, y};
    return ignis__add_norm("ignis_add_rms_norm", &ignis__rms_norm, 3, inputs, eps, sum);
}
