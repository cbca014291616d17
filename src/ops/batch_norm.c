/*  >>ops.batch_norm - ignis_batch_norm: statistics of each channel, and running averages

    Checks the running arrays, and ends in channel_norm. Training moves the running averages on the current
    stream. */

#include "room.h"

/*  Holds the running averages. Reports what does not fit. */
static bool ignis__batch_norm_running(ignis__op *op, const ignis_batch_norm_desc *desc, int64_t channels,
                                      ignis__array **running)
{
    static const char *const names[] = {"running_mean", "running_var"};
    ignis_dtype wide = ignis__wide_dtype(op->in[0]->dtype);
    int i;
    for (i = 0; i < 2 && op->ok; i++) {
        running[i] = ignis__array_hold(op->work.call, i ? desc->running_var : desc->running_mean);
        op->ok = running[i] != NULL;
        if (!op->ok)
            return false;
        if (ignis__op_same_device(op, running[i], names[i]) && running[i]->dtype != wide)
            ignis__op_fail(op, IGNIS_DIAG_DTYPE_DIFFERS, "desc->%s is %s; %s is needed for x of %s", names[i],
                           ignis__dtypes[running[i]->dtype].name, ignis__dtypes[wide].name,
                           ignis__dtypes[op->in[0]->dtype].name);
        else if (running[i]->shape.ndim != 1 || running[i]->numel != channels)
            ignis__op_fail(op, IGNIS_DIAG_SHAPE_DIFFERS, "desc->%s is %s; x is %s, and needs [%lld]", names[i],
                           ignis__shape_write(&running[i]->shape).text, ignis__shape_write(&op->in[0]->shape).text,
                           (long long)channels);
    }
    return op->ok;
}

IGNIS_API ignis_tensor ignis_batch_norm(ignis_tensor x, ignis_tensor w, ignis_tensor b,
                                        const ignis_batch_norm_desc *desc)
{
    static const char call[] = "ignis_batch_norm";
    ignis_tensor inputs[] = {x, w, b}, result;
    ignis_batch_norm_desc d = IGNIS__ZERO;
    ignis__array *running[2] = {NULL, NULL};
    ignis__channel_norm norm = IGNIS__ZERO;
    ignis__op op;
    bool has;
    int i;
    if (!ignis__op_begin(&op, call, 3, inputs))
        return ignis__no_tensor();
    d = desc ? *desc : d;
    has = d.running_mean.id != 0 || d.running_var.id != 0;
    norm.call = call;
    norm.given = d.eval;
    norm.sizes.outer = 1;
    norm.sizes.channels = norm.sizes.groups = op.in[0]->shape.dim[op.in[0]->shape.ndim - 1];
    norm.sizes.rows = ignis__shape_product(&op.in[0]->shape, 0, op.in[0]->shape.ndim - 1);
    ignis__op_is_float(&op, 0, "x");
    if (op.ok && has && (d.running_mean.id == 0 || d.running_var.id == 0))
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT, "desc->%s is given alone",
                       d.running_mean.id ? "running_mean" : "running_var");
    else if (op.ok && d.eval && !has)
        ignis__op_fail(&op, IGNIS_DIAG_NULL_ARGUMENT,
                       "desc->running_mean and running_var are not given, and desc->eval is set");
    else if (op.ok && !(d.momentum >= 0 && d.momentum <= 1))
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "desc->momentum is %g, outside of 0 to 1", d.momentum);
    else if (op.ok && !d.eval && norm.sizes.rows < 2)
        ignis__op_fail(&op, IGNIS_DIAG_SHAPE_DIFFERS,
                       "x is %s; a channel has %lld elements, and needs 2 for a variance",
                       ignis__shape_write(&op.in[0]->shape).text, (long long)norm.sizes.rows);
    has = has && ignis__batch_norm_running(&op, &d, norm.sizes.channels, running);
    if (!d.eval && ignis__thread_state()->random.again)
        has = false; /* a checkpoint runs its function again; they moved the first time */
    result = ignis__channel_norm_end(&op, "batch_norm", &norm, d.momentum == 0 ? 0.1 : d.momentum, d.eps,
                                     has ? running : NULL);
    for (i = 0; i < 2; i++)
        if (running[i])
            ignis__array_drop(call, running[i]);
    return result;
}
