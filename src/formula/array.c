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

/*  Holds the results and then the inputs that are arrays, enters their device and prepares the formula. into: if
    there are no arrays, the first result gives the shape. On
    failure nothing is held. */
static bool ignis__formula_begin_arrays(const char *call, int results, const ignis_array *dsts, const char *formula,
                                        const ignis_array_inputs *inputs, ignis__work *work, ignis__formula_run *run,
                                        ignis__array **arrays, int *held, bool into)
{
    uint64_t ids[IGNIS_MAX_INPUTS], others[IGNIS_MAX_INPUTS];
    ignis_array handles[2 * IGNIS_MAX_INPUTS];
    int at[IGNIS_MAX_INPUTS], i, count;
    bool ok;
    for (i = 0; i < inputs->count && i < IGNIS_MAX_INPUTS; i++)
        ids[i] = inputs->array[i].id;
    if (!ignis__formula_begin(call, formula, inputs->names, inputs->count, ids, run, others, at, &count))
        return false;
    if (count == 0 && !into)
        return ignis__formula_has_no_shape(call);
    for (i = 0; i < results; i++)
        handles[i] = dsts[i];
    for (i = 0; i < count; i++)
        handles[results + i].id = others[i];
    if (!ignis__array_hold_all(call, results + count, handles, arrays))
        return false;
    *held = results + count;
    ok = ignis__work_begin(call, arrays[0]->storage->device, work);
    if (!ok) {
        ignis__array_drop_all(call, *held, arrays);
        return false;
    }
    for (i = 0; i < count; i++) {
        run->input[at[i]] = &arrays[results + i]->shape;
        run->dtype[at[i]] = arrays[results + i]->dtype;
    }
    if (count == 0)
        run->to_shape = &arrays[0]->shape;
    ok = ignis__formula_prepare(work, formula, inputs->names, inputs->count, results, run);
    for (i = 1; i < results && ok; i++)
        ok = ignis__same_device(call, arrays[0], arrays[i], "a result");
    for (i = 0; i < count && ok; i++)
        ok = ignis__same_device(call, arrays[0], arrays[results + i], "an input") &&
             ignis__work_read(work, arrays[results + i], &run->address[at[i]]);
    if (!ok) {
        ignis__work_end(work);
        ignis__array_drop_all(call, *held, arrays);
    }
    return ok;
}

/*  Runs a formula into arrays. If all inputs are values, the first of these gives the shape. */
IGNIS__PRIVATE ignis_status ignis__formula_run_into(const char *call, int count, const ignis_array *dsts,
                                                    const char *formula, const ignis_array_inputs *inputs)
{
    ignis__array *arrays[2 * IGNIS_MAX_INPUTS];
    ignis__formula_run run;
    ignis__work work;
    int64_t numel;
    int held, i, k;
    bool ok;
    if (!ignis__formula_begin_arrays(call, count, dsts, formula, inputs, &work, &run, arrays, &held, true))
        return ignis__failed();
    numel = ignis__shape_product(&run.shape, 0, run.shape.ndim);
    for (k = 0, ok = true; k < count && ok; k++) {
        run.out[k] = arrays[k]->dtype;
        if (numel != arrays[k]->numel)
            ok = ignis__fail_false(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s is %s, the result %s",
                                   count > 1 ? ignis__array_label(arrays[k]).text : "dst",
                                   ignis__shape_write(&arrays[k]->shape).text, ignis__shape_write(&run.shape).text);
        ok = ok && ignis__work_write(&work, arrays[k], &run.to[k]);
        for (i = count; i < held && ok; i++)
            ok = ignis__formula_check_overlap(call, arrays[k], arrays[i]);
        for (i = 0; i < k && ok; i++) {
            ok = ignis__array_check_overlap(call, arrays[k], 0, ignis__array_bytes(arrays[k]), arrays[i]);
            if (ok && numel > 0 && arrays[k]->storage == arrays[i]->storage && arrays[k]->offset == arrays[i]->offset)
                ok = ignis__fail_false(IGNIS_DIAG_OVERLAP, call, "results %d and %d are in the same memory", i, k);
        }
    }
    ok = ok && ignis__formula_launch(&work, &run);
    ignis__work_end(&work);
    ignis__array_drop_all(call, held, arrays);
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
    ignis__array *arrays[IGNIS_MAX_INPUTS + 1];
    int64_t numel;
    double none = 0;
    ignis__formula_run run;
    ignis__work work;
    int held, i, lacking;
    bool ok;
    if (ignis__enter(call) && !ignis__formula_check_reducer(call, reducer))
        return ignis__failed();
    if (!ignis__formula_begin_arrays(call, 1, &dst, formula, &inputs, &work, &run, arrays, &held, false))
        return ignis__failed();
    lacking = run.shape.ndim - arrays[0]->shape.ndim;
    ok = lacking >= 0;
    numel = ignis__shape_product(&run.shape, 0, run.shape.ndim);
    for (i = 0; i < run.shape.ndim; i++)
        ok = ok && (i < lacking || arrays[0]->shape.dim[i - lacking] == 1 ||
                    arrays[0]->shape.dim[i - lacking] == run.shape.dim[i]);
    if (!ok)
        ignis__fail(IGNIS_DIAG_BROADCAST_SHAPE, call, "dst is %s, the formula %s; dst has 1 where that is reduced",
                    ignis__shape_write(&arrays[0]->shape).text, ignis__shape_write(&run.shape).text);
    run.reduced = 1;
    run.reduction = reducer;
    run.to_shape = &arrays[0]->shape;
    run.out[0] = arrays[0]->dtype;
    run.factor = reducer == IGNIS_REDUCE_MEAN && numel ? (double)(numel / arrays[0]->numel) : 1;
    for (i = 1; i < held && ok;
         i++) { /* the results may not share memory either: others are read after one is written */
        ok = ignis__array_check_overlap(call, arrays[0], 0, ignis__array_bytes(arrays[0]), arrays[i]);
        if (ok && arrays[0]->storage == arrays[i]->storage && arrays[0]->offset == arrays[i]->offset &&
            arrays[0]->numel != 0)
            ok = ignis__fail_false(IGNIS_DIAG_OVERLAP, call, "dst is %s, which is read",
                                   ignis__array_label(arrays[i]).text);
    }
    if (ok && numel == 0)
        ok = arrays[0]->numel == 0 ||
             (ignis__formula_reduce_empty(call, reducer, &none) && ignis__work_fill(&work, arrays[0], none));
    else
        ok = ok && ignis__work_write(&work, arrays[0], &run.to[0]) && ignis__formula_reduce(&work, &run);
    ignis__work_end(&work);
    ignis__array_drop_all(call, held, arrays);
    return ok ? IGNIS_OK : ignis__failed();
}
