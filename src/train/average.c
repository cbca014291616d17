/*  >>train.average - sums of gradients and averages of weights: ignis_optimizer_accumulate, ignis_optimizer_swap_ema

    A step adds the sums to the gradients, and moves the averages; here they are made, filled and exchanged.
    Uses: table, the room formula. */

#include "room.h"

/*  Makes the sums of all parameters that have none. The optimizer is locked. */
static bool ignis__sums_make(const char *call, ignis__optimizer *optimizer)
{
    int i;
    if (optimizer->has_sums)
        return true;
    if (ignis__capture_refuses(call))
        return false;
    for (i = 0; i < optimizer->count; i++) {
        ignis__parameter *p = &optimizer->parameters[i];
        if (!p->sum && !ignis__optimizer_array(call, p->data, ignis__wide_dtype(p->data->dtype), &p->sum)) {
            ignis__optimizer_unclaim(call, &p->sum);
            return false;
        }
    }
    optimizer->has_sums = true;
    return true;
}

IGNIS_API ignis_status ignis_optimizer_accumulate(ignis_optimizer handle)
{
    static const char call[] = "ignis_optimizer_accumulate";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    ignis__work work;
    void *params[2];
    bool ok;
    if (!optimizer)
        return ignis__failed();
    ignis__mutex_lock(&optimizer->slot.lock);
    ok = ignis__sums_make(call, optimizer);
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_drop(call, optimizer);
    optimizer = ok ? ignis__optimizer_begin(call, handle, IGNIS__WRITES_GRADS, &work) : NULL;
    if (!optimizer)
        return ignis__failed();
    ok = ignis__optimizer_launch(&work, optimizer, IGNIS__BUILTIN(GRAD_ACCUMULATE), 0, params, NULL) &&
         ignis__pieces_zero(call, optimizer);
    return ignis__optimizer_end(optimizer, &work, ok);
}

/*  Exchanges a parameter and its average. The master copy is the parameter in full precision. */
static bool ignis__average_swap(const ignis__parameter *p)
{
    ignis_array results[2], value, average, data;
    average.id = p->average->slot.handle;
    data.id = p->data->slot.handle;
    value.id = p->master ? p->master->slot.handle : data.id;
    results[0] = average;
    results[1] = value;
    return ignis_array_map_many(2, results, "value, average", IGNIS_ARRAYS(value, average)) == IGNIS_OK &&
           (!p->master || ignis_array_copy(data, value) == IGNIS_OK);
}

IGNIS_API ignis_status ignis_optimizer_swap_ema(ignis_optimizer handle)
{
    static const char call[] = "ignis_optimizer_swap_ema";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    bool ok = false;
    int i;
    if (!optimizer)
        return ignis__failed();
    ignis__mutex_lock(&optimizer->slot.lock);
    if (optimizer->ema_decay == 0) {
        ignis__fail(IGNIS_DIAG_OPTIMIZER_STATE, call,
                    "the optimizer has no averages; ema_decay of its desc makes them");
    } else if (optimizer->count == 0) {
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call, "the optimizer has no parameters; ignis_optimizer_add adds them");
    } else {
        ok = !ignis__capture_refuses(call) && ignis__pieces_begin(call, optimizer, true);
        for (i = 0; ok && i < optimizer->count; i++)
            ok = optimizer->parameters[i].data->numel == 0 || ignis__average_swap(&optimizer->parameters[i]);
        ok = ok && ignis__pieces_spread(call, optimizer);
        ignis__pieces_end(call, optimizer);
        if (ok)
            optimizer->is_swapped = !optimizer->is_swapped;
    }
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_drop(call, optimizer);
    return ok ? IGNIS_OK : ignis__failed();
}
