/*  >>train.optimizer_state - reads and changes an optimizer's state: ignis_optimizer_query, _set_lr, _state

    State parts are arrays that a program saves and restores.
    Uses: optimizer. Reading waits for the stream. */

#include "room.h"

IGNIS_API ignis_status ignis_optimizer_set_lr(ignis_optimizer handle, double lr)
{
    static const char call[] = "ignis_optimizer_set_lr";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    ignis_array view = IGNIS__ZERO;
    ignis__array *array;
    ignis_shape one = IGNIS_SHAPE(1);
    bool ok;
    if (!optimizer)
        return ignis__failed();
    ok = ignis__optimizer_check_number(call, "lr", lr, 0, 1e300);
    if (ok)
        view = ignis__array_view(call, optimizer->state, &one, 1, IGNIS__OPTIM_BASE_LR * (int64_t)sizeof(double));
    ok = view.id != 0;
    if (ok) {
        array = (ignis__array *)ignis__pool_hold(&ignis__arrays, view.id);
        ok = ignis__array_from_host(call, array, &lr, IGNIS_F64) == IGNIS_OK;
        ignis__array_discard(call, &view);
        ignis__array_drop(call, array);
    }
    ignis__optimizer_drop(call, optimizer);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_optimizer_query(ignis_optimizer handle, ignis_optimizer_info *info)
{
    static const char call[] = "ignis_optimizer_query";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    double state[IGNIS__OPTIM_STATES];
    ignis_status status;
    if (!optimizer)
        return ignis__failed();
    if (!info) {
        status = ignis__fail_null(call, "info");
    } else {
        memset(info, 0, sizeof *info);
        status = ignis__array_to_host(call, optimizer->state, state, IGNIS_F64);
        if (status == IGNIS_OK) {
            info->step = (int64_t)state[IGNIS__OPTIM_STEP];
            info->lr = state[IGNIS__OPTIM_LR];
            info->grad_norm = state[IGNIS__OPTIM_NORM];
            info->loss_scale = state[IGNIS__OPTIM_SCALE];
            info->skipped = (int64_t)state[IGNIS__OPTIM_SKIPPED];
            ignis__mutex_lock(&optimizer->slot.lock);
            info->parameters = optimizer->count;
            ignis__mutex_unlock(&optimizer->slot.lock);
        }
    }
    ignis__optimizer_drop(call, optimizer);
    return status;
}

IGNIS__COLD IGNIS_API ignis_array ignis_optimizer_state(ignis_optimizer handle, int parameter,
                                                        ignis_optimizer_part part)
{
    static const char call[] = "ignis_optimizer_state";
    ignis_array none = IGNIS__ZERO;
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    const ignis__parameter *p;
    const ignis__array *array = NULL;
    if (!optimizer)
        return none;
    ignis__mutex_lock(&optimizer->slot.lock);
    if ((int)part < IGNIS_OPTIMIZER_SELF || part > IGNIS_OPTIMIZER_EMA) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "there is no part %d; IGNIS_OPTIMIZER_SELF to _EMA are 0 to 6",
                    (int)part);
    } else if (part == IGNIS_OPTIMIZER_SELF) {
        array = optimizer->state;
    } else if (part == IGNIS_OPTIMIZER_GROUP) {
        if (parameter < 0 || parameter > optimizer->group_count)
            ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "group is %d, outside 0 to %d", parameter, optimizer->group_count);
        else if (parameter > 0)
            array = optimizer->groups[parameter - 1];
    } else if (parameter < 0 || parameter >= optimizer->count) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "parameter is %d, outside 0 to %d", parameter, optimizer->count - 1);
    } else {
        p = &optimizer->parameters[parameter];
        array = part == IGNIS_OPTIMIZER_FIRST    ? p->first
                : part == IGNIS_OPTIMIZER_SECOND ? p->second
                : part == IGNIS_OPTIMIZER_MASTER ? p->master
                : part == IGNIS_OPTIMIZER_EMA    ? p->average
                                                 : p->missed;
    }
    if (array)
        none.id = array->slot.handle;
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_drop(call, optimizer);
    return none;
}
