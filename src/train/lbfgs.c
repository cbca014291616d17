/*  >>lbfgs - ignis_lbfgs and ignis_lbfgs_step

    Directions are made by the two-loop recursion, whose products stay on the device. The host reads losses, slopes
    and largest elements. The optimizer is not locked while the caller's function runs; is_running keeps others out.
    Uses: lbfgs_state, lbfgs_search. */

#include "room.h"

/*  Adds the step and the change of the gradient to the history, if the curvature along the step is above 0. */
static bool ignis__lbfgs_remember(ignis__lbfgs *l)
{
    const int places = l->desc.history + 1, spare = (l->first + l->count) % places;
    const ignis_array g = ignis__lbfgs_handle(l->g[l->at]), before = ignis__lbfgs_handle(l->g[l->before]),
                      d = ignis__lbfgs_handle(l->d), s = ignis__lbfgs_handle(l->s[spare]),
                      y = ignis__lbfgs_handle(l->y[spare]);
    double ys = 0, yy = 0;
    if (!ignis__lbfgs_map(l->y[spare], "g - before", IGNIS_ARRAYS(g, before)) ||
        !ignis__lbfgs_map(l->s[spare], "t*d", IGNIS_ARRAYS(d, IGNIS_ARRAY_VALUE(t, l->t))) ||
        !ignis__lbfgs_number(l->numbers[spare], IGNIS_REDUCE_SUM, "y*s", IGNIS_ARRAYS(y, s), &ys) ||
        !ignis__lbfgs_number(l->numbers[spare], IGNIS_REDUCE_SUM, "y*y", IGNIS_ARRAYS(y), &yy))
        return false;
    if (!(ys > 1e-10))
        return true;
    l->rho[spare] = 1 / ys;
    l->h = ys / yy;
    if (l->count < l->desc.history)
        l->count++;
    else
        l->first = (l->first + 1) % places;
    return true;
}

/*  Computes d = -H g by the two loops (Nocedal 1980). */
static bool ignis__lbfgs_direct(ignis__lbfgs *l)
{
    const int places = l->desc.history + 1;
    const ignis_array g = ignis__lbfgs_handle(l->g[l->at]), d = ignis__lbfgs_handle(l->d);
    ignis__array *const number = l->numbers[(l->first + l->count) % places];
    bool ok = ignis__lbfgs_map(l->d, "-g", IGNIS_ARRAYS(g));
    int i, k;
    for (i = l->count - 1; ok && i >= 0; i--) {
        const ignis_array a = ignis__lbfgs_handle(l->numbers[k = (l->first + i) % places]);
        const ignis_array s = ignis__lbfgs_handle(l->s[k]), y = ignis__lbfgs_handle(l->y[k]);
        ok = ignis__lbfgs_number(l->numbers[k], IGNIS_REDUCE_SUM, "s*d", IGNIS_ARRAYS(s, d), NULL) &&
             ignis__lbfgs_map(l->d, "d - rho*a*y", IGNIS_ARRAYS(d, a, y, IGNIS_ARRAY_VALUE(rho, l->rho[k])));
    }
    ok = ok && ignis__lbfgs_map(l->d, "h*d", IGNIS_ARRAYS(d, IGNIS_ARRAY_VALUE(h, l->h)));
    for (i = 0; ok && i < l->count; i++) {
        const ignis_array a = ignis__lbfgs_handle(l->numbers[k = (l->first + i) % places]);
        const ignis_array s = ignis__lbfgs_handle(l->s[k]), y = ignis__lbfgs_handle(l->y[k]);
        const ignis_array b = ignis__lbfgs_handle(number);
        ok = ignis__lbfgs_number(number, IGNIS_REDUCE_SUM, "y*d", IGNIS_ARRAYS(y, d), NULL) &&
             ignis__lbfgs_map(l->d, "d + rho*(a - b)*s", IGNIS_ARRAYS(d, a, b, s, IGNIS_ARRAY_VALUE(rho, l->rho[k])));
    }
    return ok;
}

/*  Moves once. *done: a tolerance is reached. */
static bool ignis__lbfgs_iterate(const char *call, ignis__optimizer *optimizer, ignis_loss_fn fn, void *user_data,
                                 ignis__lbfgs_point *point, bool is_last, int *losses, bool *done)
{
    ignis__lbfgs *l = optimizer->lbfgs;
    const double before = point->loss;
    const bool is_first = l->iterations++ == 0;
    ignis__array *number;
    ignis_array g, d = ignis__lbfgs_handle(l->d);
    double largest, moved = 0, sum = 1;
    *done = true;
    if (!is_first && !ignis__lbfgs_remember(l))
        return false;
    if (!ignis__lbfgs_start(call, optimizer) || !ignis__lbfgs_direct(l))
        return false;
    number = l->numbers[(l->first + l->count) % (l->desc.history + 1)];
    g = ignis__lbfgs_handle(l->g[l->at]);
    if (is_first && !ignis__lbfgs_number(number, IGNIS_REDUCE_SUM, "abs(g)", IGNIS_ARRAYS(g), &sum))
        return false;
    l->before = l->at;
    l->t = (is_first && sum > 1 ? 1 / sum : 1) * l->desc.lr;
    if (!ignis__lbfgs_number(number, IGNIS_REDUCE_SUM, "g*d", IGNIS_ARRAYS(g, d), &point->slope))
        return false;
    if (point->slope > -l->desc.tolerance_change)
        return true;
    point->t = 0;
    point->g = l->at;
    if (!ignis__lbfgs_move(optimizer, -1))
        return false;
    if (!l->desc.no_line_search) {
        if (!ignis__lbfgs_search(call, optimizer, fn, user_data, point, l->t, losses))
            return false;
        l->t = point->t;
        if (!ignis__lbfgs_move(optimizer, l->t))
            return false;
    } else {
        if (!ignis__lbfgs_move(optimizer, l->t))
            return false;
        if (is_last)
            return true;
        point->g = l->before ? 0 : 1;
        ++*losses;
        if (!ignis__lbfgs_loss(call, optimizer, fn, user_data, point))
            return false;
    }
    l->at = point->g;
    g = ignis__lbfgs_handle(l->g[l->at]);
    if (!ignis__lbfgs_number(number, IGNIS_REDUCE_MAX, "abs(g)", IGNIS_ARRAYS(g), &largest) ||
        !ignis__lbfgs_number(number, IGNIS_REDUCE_MAX, "abs(d)", IGNIS_ARRAYS(d), &moved))
        return false;
    moved *= l->t;
    sum = point->loss - before;
    *done = largest <= l->desc.tolerance_grad || moved <= l->desc.tolerance_change ||
            (sum < 0 ? -sum : sum) < l->desc.tolerance_change;
    return true;
}

/*  Runs a step of an optimizer whose is_running is set. */
static bool ignis__lbfgs_run(const char *call, ignis__optimizer *optimizer, ignis_loss_fn fn, void *user_data,
                             double *loss)
{
    ignis__lbfgs *l = optimizer->lbfgs;
    ignis__lbfgs_point point = IGNIS__ZERO;
    ignis_array g;
    double largest = 0;
    int i, losses = 1;
    bool done = false;
    if (!ignis__lbfgs_start(call, optimizer))
        return false;
    l->at = point.g = l->before == 0 ? 1 : 0;
    if (!ignis__lbfgs_loss(call, optimizer, fn, user_data, &point))
        return false;
    if (loss)
        *loss = point.loss;
    g = ignis__lbfgs_handle(l->g[l->at]);
    if (l->n > 0 && !ignis__lbfgs_number(l->numbers[(l->first + l->count) % (l->desc.history + 1)], IGNIS_REDUCE_MAX,
                                         "abs(g)", IGNIS_ARRAYS(g), &largest))
        return false;
    if (largest <= l->desc.tolerance_grad)
        return true;
    for (i = 1; i <= l->desc.max_iter && !done && (i == 1 || losses < l->desc.max_eval); i++)
        if (!ignis__lbfgs_iterate(call, optimizer, fn, user_data, &point, i == l->desc.max_iter, &losses, &done))
            return false;
    return true;
}

IGNIS_API ignis_status ignis_lbfgs_step(ignis_optimizer handle, ignis_loss_fn fn, void *user_data, double *loss)
{
    static const char call[] = "ignis_lbfgs_step";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    bool ok = false;
    if (!optimizer)
        return ignis__failed();
    ignis__mutex_lock(&optimizer->slot.lock);
    if (!optimizer->lbfgs)
        ignis__fail(IGNIS_DIAG_OPTIMIZER_STATE, call, "the optimizer is %s; expected one of ignis_lbfgs",
                    optimizer->name);
    else if (optimizer->count == 0)
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call, "the optimizer has no parameters; ignis_optimizer_add adds them");
    else if (optimizer->lbfgs->is_running)
        ignis__fail(IGNIS_DIAG_OPTIMIZER_STATE, call, "a step of the optimizer is running");
    else if (!fn)
        ignis__fail_null(call, "fn");
    else
        ok = optimizer->lbfgs->is_running = !ignis__capture_refuses(call);
    ignis__mutex_unlock(&optimizer->slot.lock);
    if (ok) {
        ok = ignis__lbfgs_run(call, optimizer, fn, user_data, loss);
        ignis__mutex_lock(&optimizer->slot.lock);
        optimizer->lbfgs->is_running = false;
        ignis__mutex_unlock(&optimizer->slot.lock);
    }
    ignis__optimizer_drop(call, optimizer);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_optimizer ignis_lbfgs(const ignis_lbfgs_desc *desc)
{
    static const char call[] = "ignis_lbfgs";
    const double no_limit = 1e300, no_count = 1e8;
    ignis_optimizer handle = IGNIS__ZERO;
    ignis_sgd_desc plain = IGNIS__ZERO;
    ignis_lbfgs_desc d = IGNIS__ZERO;
    ignis__optimizer *optimizer;
    ignis__lbfgs *lbfgs;
    if (!ignis__enter(call))
        return handle;
    d = desc ? *desc : d;
    d.lr = ignis__number_or_default(d.lr, 1);
    d.tolerance_grad = ignis__number_or_default(d.tolerance_grad, 1e-7);
    d.tolerance_change = ignis__number_or_default(d.tolerance_change, 1e-9);
    d.max_iter = d.max_iter ? d.max_iter : 20;
    d.max_eval = d.max_eval ? d.max_eval : d.max_iter + d.max_iter / 4;
    d.history = d.history ? d.history : 100;
    if (!ignis__optimizer_check_number(call, "lr", d.lr, 0, no_limit) ||
        !ignis__optimizer_check_number(call, "tolerance_grad", d.tolerance_grad, 0, no_limit) ||
        !ignis__optimizer_check_number(call, "tolerance_change", d.tolerance_change, 0, no_limit) ||
        !ignis__optimizer_check_number(call, "max_iter", d.max_iter, 1, no_count) ||
        !ignis__optimizer_check_number(call, "max_eval", d.max_eval, 1, no_count) ||
        !ignis__optimizer_check_number(call, "history", d.history, 1, no_count))
        return handle;
    lbfgs = (ignis__lbfgs *)ignis__alloc(sizeof *lbfgs);
    if (!lbfgs) {
        ignis__fail_host_memory(call, sizeof *lbfgs);
        return handle;
    }
    memset(lbfgs, 0, sizeof *lbfgs);
    lbfgs->desc = d;
    lbfgs->h = 1;
    lbfgs->before = -1;
    plain.lr = d.lr;
    handle = ignis_sgd(&plain);
    optimizer = handle.id ? ignis__optimizer_hold(call, handle) : NULL;
    if (!optimizer) {
        ignis__free(lbfgs);
        return handle;
    }
    optimizer->name = "lbfgs";
    optimizer->lbfgs = lbfgs;
    ignis__optimizer_drop(call, optimizer);
    return handle;
}
