/*  >>train.parameter - the parameters of an optimizer: ignis_optimizer_add

    Checks a leaf, claims its array, makes its state. Uses: optimizer, the room tensor. The optimizer is
    locked. */

#include "room.h"

IGNIS__COLD static bool ignis__parameter_check(const char *call, const ignis__optimizer *optimizer,
                                               ignis__tensor *tensor)
{
    ignis__tape_state tape_state = ignis__tensor_tape_state(tensor);
    int i;
    if (!tape_state.leaf || !tape_state.requires_grad)
        return ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call, "the tensor, %s, %s",
                                 ignis__shape_write(&tensor->shape).text,
                                 tape_state.leaf ? "requires no gradient" : "is the result of an operation");
    if (tensor->device != optimizer->device)
        return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call,
                                 "the tensor is on device %d, the optimizer is on device %d",
                                 ignis__device_ordinal(tensor->device), ignis__device_ordinal(optimizer->device));
    if (optimizer->step == IGNIS__BUILTIN(MUON) && tensor->shape.ndim != 2)
        return ignis__fail_false(IGNIS_DIAG_SHAPE_DIFFERS, call,
                                 "the tensor is %s; parameters of Muon have two dimensions",
                                 ignis__shape_write(&tensor->shape).text);
    if (optimizer->lbfgs && (optimizer->lbfgs->is_running || optimizer->lbfgs->start))
        return ignis__fail_false(IGNIS_DIAG_OPTIMIZER_STATE, call,
                                 "parameters of L-BFGS are added before its first step");
    if (optimizer->lbfgs && tensor->dtype != IGNIS_F32 && tensor->dtype != IGNIS_F64)
        return ignis__fail_false(IGNIS_DIAG_DTYPE_DIFFERS, call,
                                 "the tensor is %s; parameters of L-BFGS are f32 or f64",
                                 ignis__dtypes[tensor->dtype].name);
    for (i = 0; i < optimizer->count; i++)
        if (optimizer->parameters[i].tensor == tensor)
            return ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call,
                                     "the tensor, %s, was added already, as parameter %d",
                                     ignis__shape_write(&tensor->shape).text, i);
    return ignis__pieces_check(call, optimizer, tensor);
}

/*  Makes room for one more parameter. */
static bool ignis__optimizer_grow(const char *call, ignis__optimizer *optimizer)
{
    int wanted = optimizer->capacity ? 2 * optimizer->capacity : 16;
    ignis__parameter *parameters;
    ignis__optim_row *rows;
    if (optimizer->count < optimizer->capacity)
        return true;
    parameters = (ignis__parameter *)ignis__alloc(sizeof *parameters * (size_t)wanted);
    rows = (ignis__optim_row *)ignis__alloc(sizeof *rows * (size_t)wanted);
    if (!parameters || !rows) {
        ignis__free(parameters);
        ignis__free(rows);
        ignis__fail_host_memory(call, (sizeof *parameters + sizeof *rows) * (size_t)wanted);
        return false;
    }
    memset(parameters, 0, sizeof *parameters * (size_t)wanted);
    if (optimizer->count)
        memcpy(parameters, optimizer->parameters, sizeof *parameters * (size_t)optimizer->count);
    ignis__free(optimizer->parameters);
    ignis__free(optimizer->rows);
    optimizer->parameters = parameters;
    optimizer->rows = rows;
    optimizer->row_count = 0;
    optimizer->is_written = false;
    optimizer->capacity = wanted;
    ignis__optimizer_unclaim(call, &optimizer->table); /* made again, larger, at the next step */
    return true;
}

/*  Makes an array of `count` f64 numbers on the optimizer's device; claimed. NULL, and reported, on failure. */
IGNIS__PRIVATE ignis__array *ignis__optimizer_numbers(const char *call, const ignis__optimizer *optimizer,
                                                      int64_t count)
{
    ignis_array_desc desc = IGNIS__ZERO;
    desc.shape = IGNIS_SHAPE(count);
    desc.dtype = IGNIS_F64;
    desc.device = ignis__device_in_desc(optimizer->device);
    desc.tag = "optimizer";
    return ignis__array_adopt(call, ignis__array_create(call, &desc));
}

/*  Counts the steps that a new parameter has missed: all until now. */
static bool ignis__parameter_missed(const char *call, const ignis__optimizer *optimizer, ignis__parameter *parameter)
{
    ignis_shape one = IGNIS_SHAPE(1);
    ignis__array *step;
    bool ok;
    parameter->missed = ignis__optimizer_numbers(call, optimizer, 1);
    if (!parameter->missed)
        return false;
    step = ignis__array_adopt(
        call, ignis__array_view(call, optimizer->state, &one, 1, IGNIS__OPTIM_STEP * (int64_t)sizeof(double)));
    ok = step && ignis__array_convert(call, parameter->missed, step);
    ignis__optimizer_unclaim(call, &step);
    return ok;
}

/*  Makes the copies of a parameter in the state those of its values. */
IGNIS__PRIVATE bool ignis__parameter_follow(const char *call, const ignis__optimizer *optimizer,
                                            ignis__parameter *parameter)
{
    return (!parameter->master || optimizer->split_master ||
            ignis__array_convert(call, parameter->master, parameter->data)) &&
           (!parameter->average || ignis__array_convert(call, parameter->average, parameter->data));
}

/*  Adds a tensor. After a failure the caller ends what the parameter has by then. */
static bool ignis__parameter_start(const char *call, ignis__optimizer *optimizer, ignis__parameter *parameter)
{
    ignis_dtype dtype = parameter->tensor->dtype, wide = ignis__wide_dtype(dtype);
    ignis__array *data;
    bool ok;
    if (!ignis__piece_take(call, optimizer, parameter))
        return false;
    data = parameter->data;
    ok = !optimizer->has_first || ignis__optimizer_array(call, data, wide, &parameter->first);
    ok = ok && (!optimizer->has_second || ignis__optimizer_array(call, data, wide, &parameter->second));
    ok = ok && (!optimizer->has_missed || ignis__parameter_missed(call, optimizer, parameter));
    if (ok && dtype == IGNIS_BF16 && optimizer->split_master)
        ok = ignis__optimizer_array(call, data, dtype, &parameter->master);
    else if (ok && dtype != wide && !optimizer->no_master)
        ok = ignis__optimizer_array(call, data, wide, &parameter->master);
    if (ok && optimizer->ema_decay > 0)
        ok = ignis__optimizer_array(call, data, wide, &parameter->average);
    if (ok && optimizer->has_sums)
        ok = ignis__optimizer_array(call, data, wide, &parameter->sum);
    return ok && ignis__parameter_follow(call, optimizer, parameter);
}

IGNIS__COLD IGNIS_API ignis_status ignis_optimizer_add(ignis_optimizer handle, ignis_tensor tensor, bool decay)
{
    static const char call[] = "ignis_optimizer_add";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    ignis__parameter *parameter;
    ignis__tensor *held;
    bool ok;
    if (!optimizer)
        return ignis__failed();
    held = ignis__capture_refuses(call) ? NULL : ignis__tensor_hold(call, tensor);
    if (!held) {
        ignis__optimizer_drop(call, optimizer);
        return ignis__failed();
    }
    ignis__mutex_lock(&optimizer->slot.lock);
    ok = ignis__parameter_check(call, optimizer, held) && ignis__optimizer_grow(call, optimizer);
    if (ok) {
        parameter = &optimizer->parameters[optimizer->count];
        memset(parameter, 0, sizeof *parameter);
        parameter->tensor = held;
        if (optimizer->group_count) {
            parameter->group = optimizer->groups[optimizer->group_count - 1];
            ignis__array_claim(parameter->group);
        }
        parameter->decay = !decay ? 0 : parameter->group ? 1 : optimizer->weight_decay;
        held = NULL;
        ok = ignis__parameter_start(call, optimizer, parameter);
        if (ok)
            optimizer->count++;
        else
            ignis__parameter_end(call, parameter);
    }
    ignis__mutex_unlock(&optimizer->slot.lock);
    if (held)
        ignis__tensor_drop(call, held);
    ignis__optimizer_drop(call, optimizer);
    return ok ? IGNIS_OK : ignis__failed();
}
