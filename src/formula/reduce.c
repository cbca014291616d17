/*  >>formula.reduce - reductions over dimensions that are not neighbours, or over no elements

    A reduction over dimensions that are not neighbours runs in two steps or more; the value between them has
    the wide type.
    Uses: launch. Invariant: argmax, argmin and saved positions are never reduced in steps. */

#include "room.h"

/*  Returns whether other dimensions are between the reduced ones. may: whether that could be so if dimensions
    of 1 were larger. */
static bool ignis__formula_reduces_in_steps(const ignis__formula_run *run, bool may)
{
    int d, lacking = run->shape.ndim - run->to_shape->ndim,
           part = 0; /* 0: before what is reduced, 1: in it, 2: after it */
    for (d = 0; d < run->shape.ndim; d++) {
        int64_t dim = run->shape.dim[d], to = d < lacking ? 1 : run->to_shape->dim[d - lacking];
        bool reduced = may ? to == 1 : to != dim, stays = to == dim && (may || dim != 1);
        if (part == 2 && reduced)
            return true;
        part = part == 1 && stays ? 2 : part == 0 && reduced ? 1 : part;
    }
    return false;
}

/*  Sets the types of the two steps: the result of the first, and the input of the second. False, and
    reported, if out of memory. */
static bool ignis__formula_reduce_types(const char *call, ignis__formula_run *run, ignis__formula_run *last)
{
    int d;
    *last = *run;
    memset(last->input, 0, sizeof last->input);
    last->input[0] = &last->shape;
    last->dtype[0] = run->out[0] == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32;
    for (d = 0; d < run->formula->count; d++)
        if (run->input[d] && run->dtype[d] == IGNIS_F64)
            last->dtype[0] = IGNIS_F64;
    if (run->formula->term[run->formula->result[0]].type != 'w' && !ignis__formula_reduces_wide((int)run->reduction))
        last->dtype[0] = IGNIS_I64;
    last->used = 1;
    last->formula = ignis__formula_get(call, "x", "x", 1, last->dtype[0] == IGNIS_I64);
    run->out[0] = last->dtype[0];
    run->reduction = run->reduction == IGNIS_REDUCE_MEAN ? IGNIS_REDUCE_SUM : run->reduction;
    run->kept = 0;
    return last->formula != NULL;
}

/*  Returns whether a reduction is done in one step only. */
static bool ignis__formula_reduces_whole(const ignis__formula_run *run)
{
    return ignis__formula_reductions[run->reduction].place || (run->kept && !ignis__formula_reduces_wide(run->kept));
}

/*  Returns whether the reduced dimensions have to be made neighbours first. */
IGNIS__PRIVATE bool ignis__formula_needs_neighbours(const ignis__formula_run *run)
{
    return ignis__formula_reduces_whole(run) && ignis__formula_reduces_in_steps(run, false);
}

/*  As ignis__formula_launch, for reduced dimensions that are not neighbours: in steps, the last dimensions
    first. */
IGNIS__PRIVATE bool ignis__formula_reduce(const ignis__work *work, ignis__formula_run *run)
{
    ignis_shape shape = run->shape;
    const ignis_shape *to_shape = run->to_shape;
    ignis__formula_run first, last;
    ignis__block *memory;
    int d, lacking = shape.ndim - to_shape->ndim;
    bool found = false, ok;
    bool whole = ignis__formula_reduces_whole(run);
    if (ignis__requests.path[0] && !whole && ignis__formula_reduces_in_steps(run, true)) {
        first = *run;
        ignis__formula_record_run(work->call, run);
        if (!ignis__formula_reduce_types(work->call, &first, &last))
            return false;
        ignis__formula_record_run(work->call, &first);
        ignis__formula_record_run(work->call, &last);
    }
    if (!ignis__formula_reduces_in_steps(run, false))
        return ignis__formula_launch(work, run);
    if (whole)
        return ignis__fail_false(IGNIS_DIAG_DIM_RANGE, work->call,
                                 "%s needs all dimensions, or dimensions that are neighbours",
                                 ignis__formula_reductions[run->reduction].name);
    for (d = shape.ndim - 1; d >= 0; d--) {
        bool is = shape.dim[d] != (d < lacking ? 1 : to_shape->dim[d - lacking]);
        if (found && !is && shape.dim[d] > 1)
            break;
        found = found || is;
        if (is)
            shape.dim[d] = 1;
    }
    if (!ignis__formula_reduce_types(work->call, run, &last))
        return false;
    last.shape = shape;
    memory =
        ignis__memory_take(work->call, work->device, work->stream, ignis__shape_product(&shape, 0, shape.ndim) * 8);
    if (!memory)
        return false;
    last.address[0] = run->to[0] = memory->address;
    run->to_shape = &shape;
    ok = ignis__formula_launch(work, run) && ignis__formula_reduce(work, &last);
    ignis__memory_recycle(work->call, work->device, memory);
    return ok;
}

/*  Returns the value of a reduction over no elements. False, and reported, if it has none. */
IGNIS__PRIVATE bool ignis__formula_reduce_empty(const char *call, ignis_reducer reducer, double *value)
{
    if (reducer >= IGNIS_REDUCE_MAX && reducer != IGNIS_REDUCE_ANY && reducer != IGNIS_REDUCE_ALL &&
        !ignis__formula_reduces_wide((int)reducer))
        return ignis__fail_false(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s of no elements is not defined",
                                 ignis__formula_reductions[reducer].name);
    *value = reducer == IGNIS_REDUCE_MEAN        ? ignis__nan()
             : reducer == IGNIS_REDUCE_LOGSUMEXP ? ignis__double_of(0xFFF0000000000000u) /* minus infinity */
                                                 : reducer == IGNIS_REDUCE_PROD || reducer == IGNIS_REDUCE_ALL;
    return true;
}

IGNIS__PRIVATE bool ignis__formula_check_reducer(const char *call, ignis_reducer reducer)
{
    if (reducer >= IGNIS_REDUCE_SUM && reducer < IGNIS_REDUCE_COUNT)
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "there is no reducer %d; IGNIS_REDUCE_SUM to _NORM are 1 to %d",
                             (int)reducer, (int)IGNIS_REDUCE_COUNT - 1);
}
