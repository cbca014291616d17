/*  >>lbfgs.state - the state of L-BFGS: arrays as large as all parameters, and what one loss needs

    Parameters are at start + t d. Arithmetic on the arrays is by formulas, sums are in f64.
    Uses: optimizer, the rooms formula and tensor. */

#include "room.h"

IGNIS__PRIVATE ignis_array ignis__lbfgs_handle(const ignis__array *array)
{
    ignis_array handle;
    handle.id = array->slot.handle;
    return handle;
}

/*  Makes an array of a dtype and of n elements. */
static bool ignis__lbfgs_array(const char *call, const ignis__optimizer *optimizer, int64_t n, ignis_dtype dtype,
                               ignis__array **claimed)
{
    ignis_array_desc desc = IGNIS__ZERO;
    if (*claimed)
        return true;
    desc.shape = IGNIS_SHAPE(n);
    desc.dtype = dtype;
    desc.device = ignis__device_in_desc(optimizer->device);
    desc.tag = "optimizer";
    *claimed = ignis__array_adopt(call, ignis__array_create(call, &desc));
    return *claimed != NULL;
}

/*  Makes what is missing: at the first step all arrays but those of the history, later the pair of the next
    direction. */
IGNIS__PRIVATE bool ignis__lbfgs_start(const char *call, ignis__optimizer *optimizer)
{
    ignis__lbfgs *l = optimizer->lbfgs;
    const size_t places = (size_t)l->desc.history + 1;
    const int spare = (l->first + l->count) % (l->desc.history + 1);
    int i;
    bool ok;
    if (!l->s) {
        l->n = 0;
        l->dtype = IGNIS_F32;
        for (i = 0; i < optimizer->count; i++) {
            l->n += optimizer->parameters[i].data->numel;
            if (optimizer->parameters[i].data->dtype == IGNIS_F64)
                l->dtype = IGNIS_F64;
        }
        l->rho = (double *)ignis__alloc(places * sizeof *l->rho);
        l->s = (ignis__array **)ignis__alloc(3 * places * sizeof *l->s);
        if (!l->rho || !l->s) {
            ignis__fail_host_memory(call, places * (sizeof *l->rho + 3 * sizeof *l->s));
            ignis__free(l->rho);
            ignis__free(l->s);
            l->rho = NULL;
            l->s = NULL;
            return false;
        }
        memset(l->s, 0, 3 * places * sizeof *l->s);
        l->y = l->s + places;
        l->numbers = l->y + places;
    }
    ok = ignis__lbfgs_array(call, optimizer, l->n, l->dtype, &l->d) &&
         ignis__lbfgs_array(call, optimizer, 1, IGNIS_F64, &l->numbers[spare]) &&
         ignis__lbfgs_array(call, optimizer, l->n, l->dtype, &l->s[spare]) &&
         ignis__lbfgs_array(call, optimizer, l->n, l->dtype, &l->y[spare]);
    for (i = 0; ok && i < IGNIS__LBFGS_GRADIENTS; i++)
        ok = ignis__lbfgs_array(call, optimizer, l->n, l->dtype, &l->g[i]);
    return ok && ignis__lbfgs_array(call, optimizer, l->n, l->dtype, &l->start);
}

/*  Computes a formula into an array. */
IGNIS__PRIVATE bool ignis__lbfgs_map(ignis__array *to, const char *formula, ignis_array_inputs inputs)
{
    return ignis_array_map(ignis__lbfgs_handle(to), formula, inputs) == IGNIS_OK;
}

/*  Reduces a formula to an f64 number on the device, and reads it unless value is NULL. */
IGNIS__PRIVATE bool ignis__lbfgs_number(ignis__array *number, ignis_reducer reducer, const char *formula,
                                        ignis_array_inputs inputs, double *value)
{
    const ignis_array to = ignis__lbfgs_handle(number);
    return ignis_array_reduce(to, reducer, formula, inputs) == IGNIS_OK &&
           (!value || ignis_array_to_host(to, value, IGNIS_F64, 1) == IGNIS_OK);
}

/*  A part of a flat array, as large as a parameter; the caller frees it. */
static ignis_array ignis__lbfgs_part(const ignis__array *array, int64_t at, const ignis__parameter *parameter)
{
    return ignis_array_slice(ignis__lbfgs_handle(array), 0, at, parameter->data->numel);
}

/*  Sets the parameters to start + t d; before the first direction (t below 0) start to the parameters. */
IGNIS__PRIVATE bool ignis__lbfgs_move(ignis__optimizer *optimizer, double t)
{
    const ignis__lbfgs *l = optimizer->lbfgs;
    int64_t at = 0;
    int i;
    bool ok = true;
    for (i = 0; ok && i < optimizer->count; i++) {
        const ignis__parameter *p = &optimizer->parameters[i];
        const ignis_array x = ignis__lbfgs_handle(p->data);
        ignis_array start, d;
        if (p->data->numel == 0)
            continue;
        start = ignis__lbfgs_part(l->start, at, p);
        d = ignis__lbfgs_part(l->d, at, p);
        if (t < 0)
            ok = start.id && ignis_array_map(start, "x", IGNIS_ARRAYS(x)) == IGNIS_OK;
        else
            ok = d.id && ignis_array_map(x, "start + t*d", IGNIS_ARRAYS(start, d, IGNIS_ARRAY_VALUE(t, t))) == IGNIS_OK;
        ignis_array_free(start);
        ignis_array_free(d);
        at += p->data->numel;
    }
    return ok;
}

/*  Copies the gradients of all parameters to a flat array. */
static bool ignis__lbfgs_gather(const ignis__optimizer *optimizer, const ignis__array *to)
{
    int64_t at = 0;
    int i;
    bool ok = true;
    for (i = 0; ok && i < optimizer->count; i++) {
        const ignis__parameter *p = &optimizer->parameters[i];
        ignis_array part, grad = IGNIS__ZERO;
        if (p->data->numel == 0)
            continue;
        ignis__mutex_lock(&p->tensor->slot.lock);
        if (p->tensor->grad)
            grad.id = p->tensor->grad->slot.handle;
        ignis__mutex_unlock(&p->tensor->slot.lock);
        part = ignis__lbfgs_part(to, at, p);
        ok = part.id && ignis_array_map(part, "grad", IGNIS_ARRAYS(grad)) == IGNIS_OK;
        ignis_array_free(part);
        at += p->data->numel;
    }
    return ok;
}

/*  Computes the loss at the parameters, and its gradient into g[point->g]. */
IGNIS__PRIVATE bool ignis__lbfgs_loss(const char *call, ignis__optimizer *optimizer, ignis_loss_fn fn, void *user_data,
                                      ignis__lbfgs_point *point)
{
    uint64_t failures = ignis__failures();
    ignis_scope scope;
    ignis_tensor loss;
    int i;
    bool ok = true;
    for (i = 0; ok && i < optimizer->count; i++)
        ok = ignis__zero_grad(call, optimizer->parameters[i].tensor) == IGNIS_OK;
    if (!ok)
        return false;
    scope = ignis_scope_begin();
    loss = fn(user_data);
    if (!loss.id && ignis__failures() == failures)
        ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "fn returned no tensor");
    ok = loss.id && ignis_backward(loss, IGNIS_NO_ARRAY) == IGNIS_OK;
    if (ok) {
        failures = ignis__failures();
        point->loss = ignis_item(loss);
        ok = ignis__failures() == failures;
    }
    ok = ignis_scope_end(scope) == IGNIS_OK && ok;
    return ok && ignis__lbfgs_gather(optimizer, optimizer->lbfgs->g[point->g]);
}
