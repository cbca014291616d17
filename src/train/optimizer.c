/* ===============================================================================================================
   >>optim - optimizers: all parameters of one element type in one launch, state and schedule on the device.

   The parts: optimizer (kinds and their options), parameter, table (rows for the kernels), step, optimizer_state.
   Uses the rooms array, kernel, formula, tensor and ops. Kernels: OPTIM.
   Invariants: the state is on the device, so a captured step can be replayed; the table is in the order of parameters.
   Locks: an optimizer's own lock guards all of it; a call holds it until its work is queued.
   =============================================================================================================== */

#include "room.h"

static ignis__pool ignis__optimizers =
    IGNIS__POOL(ignis__optimizer, IGNIS__KIND_OPTIMIZER, "optimizer", IGNIS_DIAG_OPTIMIZER_FREED);

IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__optimizer_unclaim(const char *call, ignis__array **array)
{
    if (*array)
        ignis__array_unclaim(call, *array);
    *array = NULL;
}

IGNIS__PRIVATE void ignis__parameter_end(const char *call, ignis__parameter *parameter)
{
    ignis__optimizer_unclaim(call, &parameter->data);
    ignis__optimizer_unclaim(call, &parameter->first);
    ignis__optimizer_unclaim(call, &parameter->second);
    ignis__optimizer_unclaim(call, &parameter->master);
    ignis__optimizer_unclaim(call, &parameter->missed);
    ignis__optimizer_unclaim(call, &parameter->group);
    ignis__optimizer_unclaim(call, &parameter->sum);
    ignis__optimizer_unclaim(call, &parameter->average);
    ignis__optimizer_unclaim(call, &parameter->grad);
    if (parameter->tensor)
        ignis__tensor_drop(call, parameter->tensor);
    parameter->tensor = NULL;
}

/*  Frees the state of L-BFGS; NULL does nothing. */
static void ignis__lbfgs_end(const char *call, ignis__lbfgs *lbfgs)
{
    int i;
    if (!lbfgs)
        return;
    ignis__optimizer_unclaim(call, &lbfgs->start);
    ignis__optimizer_unclaim(call, &lbfgs->d);
    for (i = 0; i < IGNIS__LBFGS_GRADIENTS; i++)
        ignis__optimizer_unclaim(call, &lbfgs->g[i]);
    for (i = 0; lbfgs->s && i <= lbfgs->desc.history; i++) {
        ignis__optimizer_unclaim(call, &lbfgs->s[i]);
        ignis__optimizer_unclaim(call, &lbfgs->y[i]);
        ignis__optimizer_unclaim(call, &lbfgs->numbers[i]);
    }
    ignis__free(lbfgs->s); /* y and numbers are in its memory */
    ignis__free(lbfgs->rho);
    ignis__free(lbfgs);
}

IGNIS__PRIVATE void ignis__optimizer_drop(const char *call, ignis__optimizer *optimizer)
{
    int i;
    if (!ignis__pool_drop(optimizer))
        return;
    for (i = 0; i < optimizer->count; i++)
        ignis__parameter_end(call, &optimizer->parameters[i]);
    ignis__optimizer_unclaim(call, &optimizer->state);
    ignis__optimizer_unclaim(call, &optimizer->table);
    for (i = 0; i < optimizer->group_count; i++)
        ignis__optimizer_unclaim(call, &optimizer->groups[i]);
    ignis__free(optimizer->groups);
    ignis__lbfgs_end(call, optimizer->lbfgs);
    ignis__free(optimizer->parameters);
    ignis__free(optimizer->rows);
    ignis__pool_recycle(&ignis__optimizers, optimizer);
}

IGNIS__PRIVATE ignis__optimizer *ignis__optimizer_hold(const char *call, ignis_optimizer handle)
{
    return (ignis__optimizer *)ignis__handle_hold(call, &ignis__optimizers, handle.id);
}

/*  A new array of the optimizer, zeros like another one, of another dtype. On failure it may be there, for
    the caller to end. */
IGNIS__PRIVATE bool ignis__optimizer_array(const char *call, const ignis__array *like, ignis_dtype dtype,
                                           ignis__array **claimed)
{
    ignis_array made = ignis__array_create_like(call, like, dtype);
    *claimed = ignis__array_adopt(call, made);
    return *claimed && ignis__array_set_zero(call, made) == IGNIS_OK;
}

/*  Adds the optimizers that an array belongs to to a text; returns how often. */
IGNIS__PRIVATE int ignis__optimizers_list_claims(ignis__string_writer *text, const ignis__array *array)
{
    ignis__optimizer *optimizer;
    uint64_t index = 0;
    int count = 0, i;
    while ((optimizer = (ignis__optimizer *)ignis__pool_next(&ignis__optimizers, &index)) != NULL) {
        ignis__mutex_lock(&optimizer->slot.lock);
        for (i = 0; i < optimizer->count; i++) {
            if (optimizer->parameters[i].data != array)
                continue;
            ignis__string_add(text, ", an optimizer changes it");
            count++;
        }
        ignis__mutex_unlock(&optimizer->slot.lock);
        ignis__optimizer_drop("ignis_array_free", optimizer);
    }
    return count;
}

/*  Returns whether a tensor is a parameter of an optimizer. */
IGNIS__MAYBE_UNUSED IGNIS__PRIVATE bool ignis__optimizers_have(const ignis__tensor *tensor)
{
    ignis__optimizer *optimizer;
    uint64_t index = 0;
    bool found = false;
    int i;
    while ((optimizer = (ignis__optimizer *)ignis__pool_next(&ignis__optimizers, &index)) != NULL) {
        ignis__mutex_lock(&optimizer->slot.lock);
        for (i = 0; i < optimizer->count; i++)
            found |= optimizer->parameters[i].tensor == tensor;
        ignis__mutex_unlock(&optimizer->slot.lock);
        ignis__optimizer_drop("ignis_parallel_create", optimizer);
    }
    return found;
}

/* --- making one ------------------------------------------------------------------------------------------------------
   */

/*  The state of a new optimizer, on the thread's current device. */
static bool ignis__optimizer_start(const char *call, ignis__optimizer *optimizer)
{
    double state[IGNIS__OPTIM_STATES] = IGNIS__ZERO;
    ignis_array_desc desc = IGNIS__ZERO;
    desc.shape = IGNIS_SHAPE(IGNIS__OPTIM_STATES);
    desc.dtype = IGNIS_F64;
    desc.tag = "optimizer";
    state[IGNIS__OPTIM_BASE_LR] = optimizer->lr;
    state[IGNIS__OPTIM_CLIP_NEXT] = state[IGNIS__OPTIM_CLIP] = 1;
    state[IGNIS__OPTIM_SCALE] = optimizer->scale.initial;
    optimizer->state = ignis__array_adopt(call, ignis__array_create(call, &desc));
    if (!optimizer->state)
        return false;
    optimizer->device = optimizer->state->storage->device;
    if (ignis__array_from_host(call, optimizer->state, state, IGNIS_F64) == IGNIS_OK)
        return true;
    ignis__optimizer_unclaim(call, &optimizer->state);
    return false;
}

IGNIS__ONE_COPY IGNIS__PRIVATE bool ignis__optimizer_check_number(const char *call, const char *name, double value,
                                                                  double low, double below)
{
    if (ignis__is_finite(value) && value >= low && value < below)
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "%s is %g, outside %g to below %g", name, value, low, below);
}

/*  By its bits: where the compiler assumes that there is no NaN, one would be equal to 0. */
IGNIS__PRIVATE double ignis__number_or_default(double value, double otherwise)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits << 1 ? value : otherwise;
}

/*  Checks what all optimizers have in common, and makes one from a filled template. */
IGNIS__COLD static ignis_optimizer ignis__optimizer_make(const char *call, ignis__optimizer *given, const char *beta1,
                                                         const char *beta2)
{
    ignis_optimizer handle = IGNIS__ZERO;
    const ignis_schedule_desc *schedule = &given->schedule;
    const double no_limit = 1e300;
    ignis__optimizer *optimizer;
    ignis_loss_scale_desc *scale = &given->scale;
    if (scale->initial == 0)
        memset(scale, 0, sizeof *scale); /* no interval: no step looks at the gradients */
    else if (scale->interval == 0)
        scale->interval = 2000;
    scale->initial = ignis__number_or_default(scale->initial, 1);
    scale->growth = ignis__number_or_default(scale->growth, 2);
    scale->backoff = ignis__number_or_default(scale->backoff, 0.5);
    scale->lowest = ignis__number_or_default(scale->lowest, scale->initial < 1 ? scale->initial : 1);
    if (!ignis__optimizer_check_number(call, "lr", given->lr, 0, no_limit) ||
        !ignis__optimizer_check_number(call, beta1, given->beta1, 0, 1) ||
        !ignis__optimizer_check_number(call, beta2, given->beta2, 0, 1) ||
        !ignis__optimizer_check_number(call, "eps", given->eps, 0, no_limit) ||
        !ignis__optimizer_check_number(call, "weight_decay", given->weight_decay, 0, no_limit) ||
        !ignis__optimizer_check_number(call, "ema_decay", given->ema_decay, 0, 1) ||
        !ignis__optimizer_check_number(call, "loss_scale.initial", scale->initial, 1e-30, 1e30) ||
        !ignis__optimizer_check_number(call, "loss_scale.growth", scale->growth, 1, 1e30) ||
        !ignis__optimizer_check_number(call, "loss_scale.backoff", scale->backoff, 1e-30, 1) ||
        !ignis__optimizer_check_number(call, "loss_scale.lowest", scale->lowest, 1e-30, 1e30) ||
        !ignis__optimizer_check_number(call, "loss_scale.interval", (double)scale->interval, 0, no_limit) ||
        !ignis__optimizer_check_number(call, "schedule.floor", schedule->floor, 0, no_limit) ||
        !ignis__optimizer_check_number(call, "schedule.warmup", (double)schedule->warmup, 0, no_limit))
        return handle;
    if (scale->lowest > scale->initial) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "loss_scale.lowest is %g, which is above loss_scale.initial, %g",
                    scale->lowest, scale->initial);
        return handle;
    }
    if ((int)schedule->kind < IGNIS_SCHEDULE_CONSTANT || schedule->kind > IGNIS_SCHEDULE_LINEAR) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no schedule %d; IGNIS_SCHEDULE_CONSTANT to _LINEAR are 0 to 2",
                    (int)schedule->kind);
        return handle;
    }
    if (schedule->kind != IGNIS_SCHEDULE_CONSTANT && schedule->total <= schedule->warmup) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "schedule.total is %lld, which is not above schedule.warmup, %lld",
                    (long long)schedule->total, (long long)schedule->warmup);
        return handle;
    }
    optimizer = (ignis__optimizer *)ignis__pool_take(call, &ignis__optimizers);
    if (!optimizer)
        return handle;
    ignis__pool_fill(&ignis__optimizers, optimizer, given);
    if (!ignis__optimizer_start(call, optimizer)) {
        ignis__pool_recycle(&ignis__optimizers, optimizer);
        return handle;
    }
    handle.id = ignis__pool_publish(&ignis__optimizers, optimizer);
    return handle;
}

/*  Begins a call that makes an optimizer: `given` has what all descs have. */
#define IGNIS__OPTIMIZER_GIVEN(desc_type, default_lr, its_name, its_step) \
    ignis_optimizer none = IGNIS__ZERO;                                   \
    ignis__optimizer given;                                               \
    desc_type d;                                                          \
    if (!ignis__enter(call))                                              \
        return none;                                                      \
    memset(&d, 0, sizeof d);                                              \
    memset(&given, 0, sizeof given);                                      \
    if (desc)                                                             \
        d = *desc;                                                        \
    given.name = its_name;                                                \
    given.step = its_step;                                                \
    given.lr = ignis__number_or_default(d.lr, default_lr);                \
    given.weight_decay = d.weight_decay;                                  \
    given.schedule = d.schedule;                                          \
    given.no_master = d.no_master;                                        \
    given.zero_grad = d.zero_grad;                                        \
    given.drop_grad = d.drop_grad;                                        \
    given.ema_decay = d.ema_decay;                                        \
    given.scale = d.loss_scale

IGNIS__COLD IGNIS_API ignis_optimizer ignis_adamw(const ignis_adamw_desc *desc)
{
    static const char call[] = "ignis_adamw";
    IGNIS__OPTIMIZER_GIVEN(ignis_adamw_desc, 1e-3, "adamw", d.coupled ? IGNIS__BUILTIN(ADAM) : IGNIS__BUILTIN(ADAMW));
    given.has_first = given.has_second = given.has_missed = true;
    given.beta1 = ignis__number_or_default(d.beta1, 0.9);
    given.beta2 = ignis__number_or_default(d.beta2, 0.999);
    given.eps = ignis__number_or_default(d.eps, 1e-8);
    given.split_master = d.split_master;
    if (d.split_master && (d.no_master || d.ema_decay > 0)) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "split_master is set, and %s, too; expected one of them",
                    d.no_master ? "no_master" : "ema_decay");
        return none;
    }
    return ignis__optimizer_make(call, &given, "beta1", "beta2");
}

IGNIS__COLD IGNIS_API ignis_optimizer ignis_sgd(const ignis_sgd_desc *desc)
{
    static const char call[] = "ignis_sgd";
    IGNIS__OPTIMIZER_GIVEN(ignis_sgd_desc, 1e-3, "sgd", IGNIS__BUILTIN(SGD));
    given.has_first = d.momentum != 0;
    given.beta1 = d.momentum;
    return ignis__optimizer_make(call, &given, "momentum", "");
}

IGNIS__COLD IGNIS_API ignis_optimizer ignis_rmsprop(const ignis_rmsprop_desc *desc)
{
    static const char call[] = "ignis_rmsprop";
    IGNIS__OPTIMIZER_GIVEN(ignis_rmsprop_desc, 1e-2, "rmsprop", IGNIS__BUILTIN(RMSPROP));
    given.has_first = d.momentum != 0;
    given.has_second = true;
    given.beta1 = d.momentum;
    given.beta2 = ignis__number_or_default(d.alpha, 0.99);
    given.eps = ignis__number_or_default(d.eps, 1e-8);
    return ignis__optimizer_make(call, &given, "momentum", "alpha");
}

IGNIS__COLD IGNIS_API ignis_optimizer ignis_lion(const ignis_lion_desc *desc)
{
    static const char call[] = "ignis_lion";
    IGNIS__OPTIMIZER_GIVEN(ignis_lion_desc, 1e-4, "lion", IGNIS__BUILTIN(LION));
    given.has_first = true;
    given.beta1 = ignis__number_or_default(d.beta1, 0.9);
    given.beta2 = ignis__number_or_default(d.beta2, 0.99);
    return ignis__optimizer_make(call, &given, "beta1", "beta2");
}

IGNIS__COLD IGNIS_API ignis_optimizer ignis_muon(const ignis_muon_desc *desc)
{
    static const char call[] = "ignis_muon";
    IGNIS__OPTIMIZER_GIVEN(ignis_muon_desc, 1e-3, "muon", IGNIS__BUILTIN(MUON));
    given.has_first = given.has_second = true;
    given.beta1 = ignis__number_or_default(d.momentum, 0.95);
    given.like_adamw = d.like_adamw;
    return ignis__optimizer_make(call, &given, "momentum", "");
}

IGNIS__COLD IGNIS_API ignis_status ignis_optimizer_free(ignis_optimizer handle)
{
    static const char call[] = "ignis_optimizer_free";
    const uint64_t failures = ignis__failures();
    ignis__optimizer *optimizer;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    optimizer = ignis__optimizer_hold(call, handle);
    if (!optimizer)
        return ignis__failed();
    live = ignis__handle_kill(optimizer);
    ignis__optimizer_drop(call, optimizer);
    return live ? ignis__ended(failures, true)
                : ignis__fail(IGNIS_DIAG_OPTIMIZER_FREED, call, "another thread has freed the optimizer");
}

/*  Ends every optimizer; for ignis_shutdown, before tensors end. */
IGNIS__PRIVATE void ignis__optimizers_close(const char *call)
{
    ignis__optimizer *optimizer;
    uint64_t index = 0;
    while ((optimizer = (ignis__optimizer *)ignis__pool_next(&ignis__optimizers, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "optimizer: %s of %d parameter%s on device %d",
                           optimizer->name, optimizer->count, optimizer->count == 1 ? "" : "s",
                           ignis__device_ordinal(optimizer->device));
        ignis__handle_kill(optimizer);
        ignis__optimizer_drop(call, optimizer);
    }
}
