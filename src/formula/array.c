/*  >>formula.array - ignis_array_map, ignis_array_map_many, ignis_array_reduce and ignis_array_value

    Runs formulas on arrays: holds results and inputs, prepares the run, launches it, marks the results as
    written.
    Uses: inputs, launch, reduce; the rooms array and kernel. Knows no tensor.
    Invariant: nothing is written before all checks have passed. */

#include "room.h"

IGNIS_API ignis_array ignis_array_value(double value)
{
    ignis_array handle;
    handle.id = ignis__value_make(value);
    return handle;
}

/*  Checks that dst may be written while src is read: they do not overlap, or they are the same elements. Both have
    addresses. */
static bool ignis__formula_check_overlap(const char *call, const ignis__array *dst, const ignis__array *src)
{
    if (!ignis__array_check_overlap(call, dst, 0, ignis__array_bytes(dst), src))
        return false;
    if (dst->numel == src->numel || dst->numel == 0 || src->numel == 0 ||
        dst->storage->address + (uint64_t)dst->offset != src->storage->address + (uint64_t)src->offset)
        return true;
    return ignis__fail_false(IGNIS_DIAG_OVERLAP, call,
                             "%s is broadcast to the shape of the result, which uses the same memory",
                             ignis__array_label(src).text);
}

/*  A formula that runs on arrays: the results, and then the inputs that are arrays, are held. */
typedef struct ignis__formula_arrays {
    ignis__work work;
    ignis__formula_run run;
    ignis__array *array[2 * IGNIS_MAX_INPUTS];
    int held;
} ignis__formula_arrays;

static void ignis__formula_end_arrays(const char *call, ignis__formula_arrays *f)
{
    ignis__work_end(&f->work);
    ignis__array_drop_all(call, f->held, f->array);
}

/*  Holds the arrays, enters their device and prepares the formula. into: if there are no arrays, the first result
    gives the shape. On failure nothing is held. */
static bool ignis__formula_begin_arrays(const char *call, int results, const ignis_array *dsts, const char *formula,
                                        const ignis_array_inputs *inputs, bool into, ignis__formula_arrays *f)
{
    uint64_t ids[IGNIS_MAX_INPUTS];
    ignis__formula_handles found;
    ignis_array handles[2 * IGNIS_MAX_INPUTS];
    int i;
    bool ok;
    for (i = 0; i < inputs->count && i < IGNIS_MAX_INPUTS; i++)
        ids[i] = inputs->array[i].id;
    if (!ignis__formula_begin(call, formula, inputs->names, inputs->count, ids, &f->run, &found))
        return false;
    if (found.count == 0 && !into)
        return ignis__formula_has_no_shape(call);
    for (i = 0; i < results; i++)
        handles[i] = dsts[i];
    for (i = 0; i < found.count; i++)
        handles[results + i].id = found.id[i];
    f->held = results + found.count;
    if (!ignis__array_hold_all(call, f->held, handles, f->array))
        return false;
    ok = ignis__work_begin(call, f->array[0]->storage->device, &f->work);
    if (!ok) {
        ignis__array_drop_all(call, f->held, f->array);
        return false;
    }
    for (i = 0; i < found.count; i++) {
        f->run.input[found.at[i]] = &f->array[results + i]->shape;
        f->run.dtype[found.at[i]] = f->array[results + i]->dtype;
    }
    if (found.count == 0)
        f->run.to_shape = &f->array[0]->shape;
    ok = ignis__formula_prepare(&f->work, formula, inputs->names, inputs->count, results, &f->run);
    for (i = 1; i < results && ok; i++)
        ok = ignis__same_device(call, f->array[0], f->array[i], "a result");
    for (i = 0; i < found.count && ok; i++)
        ok = ignis__same_device(call, f->array[0], f->array[results + i], "an input") &&
             ignis__work_read(&f->work, f->array[results + i], &f->run.address[found.at[i]]);
    if (!ok)
        ignis__formula_end_arrays(call, f);
    return ok;
}

/*  Runs a formula into arrays. If all inputs are values, the first of these gives the shape. */
IGNIS__PRIVATE ignis_status ignis__formula_run_into(const char *call, int count, const ignis_array *dsts,
                                                    const char *formula, const ignis_array_inputs *inputs)
{
    ignis__formula_arrays f;
    int64_t numel;
    int i, k;
    bool ok;
    if (!ignis__formula_begin_arrays(call, count, dsts, formula, inputs, true, &f))
        return ignis__failed();
    numel = ignis__shape_product(&f.run.shape, 0, f.run.shape.ndim);
    for (k = 0, ok = true; k < count && ok; k++) {
        f.run.out[k] = f.array[k]->dtype;
        if (numel != f.array[k]->numel)
            ok = ignis__fail_false(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s is %s, the result %s",
                                   count > 1 ? ignis__array_label(f.array[k]).text : "dst",
                                   ignis__shape_write(&f.array[k]->shape).text, ignis__shape_write(&f.run.shape).text);
        ok = ok && ignis__work_write(&f.work, f.array[k], &f.run.to[k]);
        for (i = count; i < f.held && ok; i++)
            ok = ignis__formula_check_overlap(call, f.array[k], f.array[i]);
        for (i = 0; i < k && ok; i++) {
            ok = ignis__array_check_overlap(call, f.array[k], 0, ignis__array_bytes(f.array[k]), f.array[i]);
            if (ok && numel > 0 && f.array[k]->storage == f.array[i]->storage &&
                f.array[k]->offset == f.array[i]->offset)
                ok = ignis__fail_false(IGNIS_DIAG_OVERLAP, call, "results %d and %d are in the same memory", i, k);
        }
    }
    ok = ok && ignis__formula_launch(&f.work, &f.run);
    ignis__formula_end_arrays(call, &f);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_array_map(ignis_array dst, const char *formula, ignis_array_inputs inputs)
{
    return ignis__formula_run_into("ignis_array_map", 1, &dst, formula, &inputs);
}

/*  Checks the number of results. */
IGNIS__PRIVATE bool ignis__formula_check_count(const char *call, int count, const void *results)
{
    if (!ignis__enter(call))
        return false;
    if (count < 1 || count > IGNIS_MAX_INPUTS)
        return ignis__fail_false(IGNIS_DIAG_COUNT_MISMATCH, call, "count is %d; 1 to %d results can be had", count,
                                 IGNIS_MAX_INPUTS);
    return ignis__check_not_null(call, "results", results);
}

IGNIS_API ignis_status ignis_array_map_many(int count, const ignis_array *results, const char *formula,
                                            ignis_array_inputs inputs)
{
    static const char call[] = "ignis_array_map_many";
    return ignis__formula_check_count(call, count, results)
               ? ignis__formula_run_into(call, count, results, formula, &inputs)
               : ignis__failed();
}

IGNIS_API ignis_status ignis_array_reduce(ignis_array dst, ignis_reducer reducer, const char *formula,
                                          ignis_array_inputs inputs)
{
    static const char call[] = "ignis_array_reduce";
    ignis__formula_arrays f;
    int64_t numel;
    double none = 0;
    int i, lacking;
    bool ok;
    if (ignis__enter(call) && !ignis__formula_check_reducer(call, reducer))
        return ignis__failed();
    if (!ignis__formula_begin_arrays(call, 1, &dst, formula, &inputs, false, &f))
        return ignis__failed();
    lacking = f.run.shape.ndim - f.array[0]->shape.ndim;
    ok = lacking >= 0;
    numel = ignis__shape_product(&f.run.shape, 0, f.run.shape.ndim);
    for (i = 0; i < f.run.shape.ndim; i++)
        ok = ok && (i < lacking || f.array[0]->shape.dim[i - lacking] == 1 ||
                    f.array[0]->shape.dim[i - lacking] == f.run.shape.dim[i]);
    if (!ok)
        ignis__fail(IGNIS_DIAG_BROADCAST_SHAPE, call, "dst is %s, the formula %s; dst has 1 where that is reduced",
                    ignis__shape_write(&f.array[0]->shape).text, ignis__shape_write(&f.run.shape).text);
    f.run.reduced = 1;
    f.run.reduction = reducer;
    f.run.to_shape = &f.array[0]->shape;
    f.run.out[0] = f.array[0]->dtype;
    f.run.factor = reducer == IGNIS_REDUCE_MEAN && numel ? (double)(numel / f.array[0]->numel) : 1;
    for (i = 1; i < f.held && ok;
         i++) { /* the results may not share memory either: others are read after one is written */
        ok = ignis__array_check_overlap(call, f.array[0], 0, ignis__array_bytes(f.array[0]), f.array[i]);
        if (ok && f.array[0]->storage == f.array[i]->storage && f.array[0]->offset == f.array[i]->offset &&
            f.array[0]->numel != 0)
            ok = ignis__fail_false(IGNIS_DIAG_OVERLAP, call, "dst is %s, which is read",
                                   ignis__array_label(f.array[i]).text);
    }
    if (ok && numel == 0)
        ok = f.array[0]->numel == 0 ||
             (ignis__formula_reduce_empty(call, reducer, &none) && ignis__work_fill(&f.work, f.array[0], none));
    else
        ok = ok && ignis__work_write(&f.work, f.array[0], &f.run.to[0]) && ignis__formula_reduce(&f.work, &f.run);
    ignis__formula_end_arrays(call, &f);
    return ok ? IGNIS_OK : ignis__failed();
}
