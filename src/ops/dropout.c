/*  >>ops.dropout - ignis_dropout: the mask is computed again in the backward pass

    No mask is stored: words of random numbers are made again from the saved counter.
    Uses: operation; the random numbers of the room kernel; kernels POINTWISE. */

#include "room.h"

/*  An element is dropped if its 32-bit random word is below the threshold; backward makes the words again. */
typedef struct ignis__dropout_params {
    int64_t threshold;
    double scale;
    ignis__random random; /* its launch counter, if there is one, is a saved array */
} ignis__dropout_params;

static ignis__array *ignis__op_dropout(ignis__op *op, ignis__array *from, const ignis__dropout_params *given)
{
    ignis__dropout_params p = *given;
    ignis__array *out = ignis__op_new_like(op, from);
    ignis__address source = ignis__op_read(op, from), target = ignis__op_write(op, out), step = 0;
    void *params[] = {&target, &source, &p.threshold, &p.scale, &p.random.seed, &p.random.first, &step, &from->numel};
    op->ok = op->ok && ignis__random_step(&op->work, p.random.launches, &step);
    ignis__op_launch_elementwise(op, IGNIS__BUILTIN(DROPOUT), from->dtype, from->numel, params);
    return out;
}

static ignis_status ignis__dropout_backward(const ignis_backward_args *args)
{
    ignis__op op;
    if (!ignis__op_begin_backward(&op, "ignis_dropout", args))
        return ignis__failed();
    return ignis__op_finish_backward_one(&op, args,
                                         ignis__op_dropout(&op, op.in[0], (const ignis__dropout_params *)args->params));
}

/*  Drops the same elements of the gradient. */
IGNIS__PRIVATE void ignis__vjp_of_dropout(const ignis_vjp_args *args)
{
    ignis__dropout_params p = *(const ignis__dropout_params *)args->params;
    ignis__array *launches = NULL, *out;
    ignis__op op;
    if (!ignis__op_begin(&op, "ignis_dropout", 1, &args->grad_output))
        return;
    if (args->node->saved_count) {
        p.random.launches.id = args->node->saved[0]->slot.handle;
        launches = ignis__array_hold(op.work.call, p.random.launches);
        op.ok = launches != NULL;
    }
    out = ignis__op_dropout(&op, op.in[0], &p);
    ignis__op_save(&op, launches);
    args->grad_inputs[0] = ignis__op_end_recorded(&op, out, "dropout", ignis__dropout_backward, &p, sizeof p);
    if (launches)
        ignis__array_drop("ignis_dropout", launches);
}

IGNIS_API ignis_tensor ignis_dropout(ignis_tensor tensor, double probability)
{
    static const char call[] = "ignis_dropout";
    ignis__dropout_params dropout = IGNIS__ZERO;
    ignis__op op;
    ignis__array *out = NULL, *launches;
    ignis_tensor result;
    if (!ignis__op_begin(&op, call, 1, &tensor))
        return ignis__no_tensor();
    ignis__op_is_float(&op, 0, "the tensor");
    if (!(probability >= 0 && probability < 1))
        ignis__op_fail(&op, IGNIS_DIAG_BAD_NUMBER, "the probability is %g, outside 0 to below 1", probability);
    if (op.ok) {
        dropout.threshold = (int64_t)(probability * 4294967296.0 + 0.5);
        dropout.scale = 1 / (1 - probability);
        op.ok = ignis__random_take(&op.work, op.in[0]->dtype, op.in[0]->numel, &dropout.random);
        out = ignis__op_dropout(&op, op.in[0], &dropout);
    }
    launches = op.ok && dropout.random.launches.id ? ignis__array_hold(call, dropout.random.launches) : NULL;
    ignis__op_save(&op, launches);
    result = ignis__op_end_recorded(&op, out, "dropout", ignis__dropout_backward, &dropout, sizeof dropout);
    if (launches)
        ignis__array_drop(call, launches);
    return result;
}
