/*  >>train.group - groups of parameters with a learning rate and a weight decay of their own

    The numbers of a group are on the device, where the step kernels read them.
    Uses: optimizer, parameter. */

#include "room.h"

static bool ignis__group_check(const char *call, double lr, double weight_decay)
{
    const double no_limit = 1e300;
    return ignis__optimizer_check_number(call, "lr", lr, 0, no_limit) &&
           ignis__optimizer_check_number(call, "weight_decay", weight_decay, 0, no_limit);
}

static bool ignis__group_write(const char *call, ignis__array *group, double lr, double weight_decay)
{
    double numbers[IGNIS__OPTIM_GROUP_COUNT];
    numbers[IGNIS__OPTIM_GROUP_LR] = lr;
    numbers[IGNIS__OPTIM_GROUP_DECAY] = weight_decay;
    return ignis__array_from_host(call, group, numbers, IGNIS_F64) == IGNIS_OK;
}

/*  Makes room for one more group. */
static bool ignis__groups_grow(const char *call, ignis__optimizer *optimizer)
{
    const int wanted = optimizer->group_capacity ? 2 * optimizer->group_capacity : 8;
    ignis__array **groups;
    if (optimizer->group_count < optimizer->group_capacity)
        return true;
    groups = (ignis__array **)ignis__alloc(sizeof *groups * (size_t)wanted);
    if (!groups) {
        ignis__fail_host_memory(call, sizeof *groups * (size_t)wanted);
        return false;
    }
    if (optimizer->group_count)
        memcpy(groups, optimizer->groups, sizeof *groups * (size_t)optimizer->group_count);
    ignis__free(optimizer->groups);
    optimizer->groups = groups;
    optimizer->group_capacity = wanted;
    return true;
}

IGNIS__COLD IGNIS_API int ignis_optimizer_add_group(ignis_optimizer handle, double lr, double weight_decay)
{
    static const char call[] = "ignis_optimizer_add_group";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    ignis__array *group = NULL;
    int number = -1;
    if (!optimizer)
        return -1;
    if (optimizer->lbfgs)
        ignis__fail(IGNIS_DIAG_OPTIMIZER_STATE, call, "L-BFGS has no groups");
    else if (!ignis__capture_refuses(call) && ignis__group_check(call, lr, weight_decay))
        group = ignis__optimizer_numbers(call, optimizer, IGNIS__OPTIM_GROUP_COUNT);
    ignis__mutex_lock(&optimizer->slot.lock);
    if (group && ignis__group_write(call, group, lr, weight_decay) && ignis__groups_grow(call, optimizer)) {
        optimizer->groups[optimizer->group_count++] = group;
        group = NULL;
        number = optimizer->group_count;
    }
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_unclaim(call, &group);
    ignis__optimizer_drop(call, optimizer);
    return number;
}

IGNIS_API ignis_status ignis_optimizer_set_group(ignis_optimizer handle, int number, double lr, double weight_decay)
{
    static const char call[] = "ignis_optimizer_set_group";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    bool ok = false;
    if (!optimizer)
        return ignis__failed();
    ignis__mutex_lock(&optimizer->slot.lock);
    if (number < 1 || number > optimizer->group_count)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "group is %d; %s", number,
                    optimizer->group_count
                        ? "expected a number that ignis_optimizer_add_group returned"
                        : "the optimizer has no groups; ignis_optimizer_set_lr sets the rate of the others");
    else
        ok = ignis__group_check(call, lr, weight_decay) &&
             ignis__group_write(call, optimizer->groups[number - 1], lr, weight_decay);
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_drop(call, optimizer);
    return ok ? IGNIS_OK : ignis__failed();
}
