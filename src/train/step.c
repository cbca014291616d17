/*  >>train.step - ignis_optimizer_step, ignis_optimizer_zero_grad, ignis_scale_loss, and Muon's orthogonalization

    Step count, learning rate and clipping advance on the device.
    Uses: table, clip, the matmul folder (Muon). */

#include "room.h"

/* Of training_keep.c. */
IGNIS__PRIVATE bool ignis__training_keep(const char *call, ignis_optimizer handle);

static bool ignis__optimizer_advance(const ignis__work *work, ignis__optimizer *optimizer, ignis__address *state)
{
    unsigned one[3] = {1, 1, 1}, block[3] = {32, 1, 1};
    int schedule = (int)optimizer->schedule.kind, rows = optimizer->has_missed ? optimizer->row_count : 0;
    ignis__address table;
    void *function =
        ignis__builtin_get(work->call, work->device, IGNIS__BUILTIN(OPTIM_ADVANCE), ignis__optimizer_dtype(optimizer));
    void *params[] = {state,
                      &table,
                      &rows,
                      &optimizer->beta1,
                      &optimizer->beta2,
                      &schedule,
                      &optimizer->schedule.warmup,
                      &optimizer->schedule.total,
                      &optimizer->schedule.floor,
                      &optimizer->scale.growth,
                      &optimizer->scale.backoff,
                      &optimizer->scale.lowest,
                      &optimizer->scale.interval};
    while (block[0] < IGNIS__OPTIM_ADVANCE_THREADS && block[0] < 2 * (unsigned)rows) /* two threads a row */
        block[0] *= 2;
    ignis__cost(0, 0, 0); /* the arrays belong to the kernel after it */
    return function && ignis__work_write(work, optimizer->table, &table) &&
           ignis__builtin_launch(work, IGNIS__BUILTIN(OPTIM_ADVANCE), function, one, block, 0, params);
}

/*  Replaces a matrix by nearly the nearest orthogonal matrix times sqrt(k): Newton-Schulz with Jordan's coefficients,
    along the smaller side. */
static bool ignis__muon_orthogonalize(const ignis__optimizer *optimizer, const ignis_shape *shape, ignis_dtype dtype,
                                      ignis_array second)
{
    double rows = (double)shape->dim[0], columns = (double)shape->dim[1];
    double k = optimizer->like_adamw ? 0.04 * (rows > columns ? rows : columns) : rows > columns ? rows / columns : 1;
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor u, norm, x, y, a, b;
    int i;
    bool ok;
    u = ignis_tensor_from_array(second, false);
    norm = ignis_map_reduce(IGNIS_REDUCE_NORM, "u", IGNIS_INPUTS(u), NULL);
    x = ignis_cast(ignis_map("u / max(norm, 1e-7)", IGNIS_INPUTS(u, norm)),
                   dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_BF16);
    ignis__record_builtin_for_all(IGNIS__BUILTIN(TRANSPOSE_RUNS), dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_BF16);
    if (rows > columns)
        x = ignis_transpose(x, 0, 1);
    for (i = 0; i < 5; i++) {
        a = ignis_matmul_t(x, x);
        b = ignis_matmul(a, a);
        b = ignis_map("-4.775*a + 2.0315*b", IGNIS_INPUTS(a, b));
        y = ignis_matmul(b, x);
        x = ignis_map("3.4445*x + y", IGNIS_INPUTS(x, y));
    }
    if (rows > columns)
        x = ignis_transpose(x, 0, 1);
    ok = x.id &&
         ignis_array_map(second, "sqrt(k)*x",
                         IGNIS_ARRAYS(IGNIS_NAMED(x, ignis_tensor_data(x)), IGNIS_ARRAY_VALUE(k, k))) == IGNIS_OK;
    return ignis_scope_end(scope) == IGNIS_OK && ok;
}

/*  As ignis__muon_orthogonalize, for this rank's piece of a matrix: the ranks that have one make all of the matrix. */
static bool ignis__muon_orthogonalize_piece(const ignis__work *work, const ignis__optimizer *optimizer,
                                            const ignis__parameter *parameter)
{
    ignis__array *second = parameter->second, *view;
    ignis_array whole = ignis__piece_fill(work->call, parameter, second);
    ignis__array *filled = whole.id ? (ignis__array *)ignis__pool_hold(&ignis__arrays, whole.id) : NULL;
    bool ok = filled != NULL;
    if (ok && second->numel > 0) {
        view = ignis__array_adopt(work->call, ignis__array_view(work->call, filled, &second->shape, second->numel,
                                                                parameter->start * ignis__dtypes[second->dtype].size));
        ok = view && ignis__muon_orthogonalize(optimizer, &filled->shape, filled->dtype, whole) &&
             ignis__array_copy_bytes(work->call, second, 0, view);
        ignis__optimizer_unclaim(work->call, &view);
    }
    if (filled) {
        ignis__array_drop(work->call, filled);
        ignis__array_discard(work->call, &whole);
    }
    return ok;
}

/*  As ignis__muon_orthogonalize, for all matrices that have a gradient. */
static bool ignis__muon_orthogonalize_all(const ignis__work *work, const ignis__optimizer *optimizer)
{
    const ignis__parameter *parameter;
    ignis_array second;
    bool ok = true;
    int i;
    for (i = 0; i < optimizer->count && ok; i++) {
        parameter = &optimizer->parameters[i];
        if (!parameter->has_row || ignis__tensor_numel(parameter->tensor) == 0)
            continue;
        second.id = parameter->second->slot.handle;
        ok = parameter->group_of
                 ? ignis__muon_orthogonalize_piece(work, optimizer, parameter)
                 : ignis__muon_orthogonalize(optimizer, &parameter->data->shape, parameter->second->dtype, second);
    }
    return ok;
}

IGNIS_API ignis_status ignis_optimizer_step(ignis_optimizer handle)
{
    ignis__work work;
    static const char call[] = "ignis_optimizer_step";
    ignis__optimizer *optimizer =
        ignis__training_keep(call, handle) ? ignis__optimizer_begin(call, handle, IGNIS__WRITES_DATA, &work) : NULL;
    ignis__address state;
    int zero_grad, i;
    void *params[] = {NULL, NULL, &state, NULL, NULL, NULL, &zero_grad};
    bool ok, drops;
    if (!optimizer)
        return ignis__failed();
    if (optimizer->is_swapped) {
        ignis__fail(IGNIS_DIAG_OPTIMIZER_STATE, work.call,
                    "the parameters hold their averages; a second ignis_optimizer_swap_ema takes them back");
        return ignis__optimizer_end(optimizer, &work, false);
    }
    drops = optimizer->drop_grad && ignis__pieces_may_drop(optimizer);
    zero_grad = optimizer->zero_grad && !drops;
    for (i = 0; optimizer->drop_grad && !drops && i < optimizer->count; i++)
        zero_grad |= optimizer->parameters[i].grouped;
    params[3] = &optimizer->beta1;
    params[4] = &optimizer->beta2;
    params[5] = &optimizer->eps;
    ok = optimizer->row_count == 0 ||
         ((optimizer->scale.interval == 0 || ignis__optimizer_norm(&work, optimizer)) &&
          ignis__work_write(&work, optimizer->state, &state) && ignis__optimizer_advance(&work, optimizer, &state) &&
          ignis__optimizer_launch(&work, optimizer, optimizer->step, 0, params, NULL));
    if (optimizer->row_count && optimizer->step == IGNIS__BUILTIN(MUON))
        ok = ok && ignis__muon_orthogonalize_all(&work, optimizer) &&
             ignis__optimizer_launch(&work, optimizer, IGNIS__BUILTIN(MUON_APPLY), 0, params, NULL);
    ok = ok &&
         (drops ? ignis__pieces_drop(work.call, optimizer) : !zero_grad || ignis__pieces_zero(work.call, optimizer));
    ok = ok && ignis__pieces_spread(work.call, optimizer);
    for (i = 0; ok && optimizer->drop_grad && i < optimizer->count; i++)
        (void)ignis__gradient_drop(work.call, optimizer->parameters[i].tensor);
    return ignis__optimizer_end(optimizer, &work, ok);
}

IGNIS_API ignis_status ignis_optimizer_zero_grad(ignis_optimizer handle)
{
    ignis__work work;
    ignis__optimizer *optimizer =
        ignis__optimizer_begin("ignis_optimizer_zero_grad", handle, IGNIS__WRITES_GRADS, &work);
    void *params[2];
    bool ok;
    if (!optimizer)
        return ignis__failed();
    ok = ignis__optimizer_launch(&work, optimizer, IGNIS__BUILTIN(GRAD_ZERO), 0, params, NULL) &&
         ignis__pieces_zero(work.call, optimizer);
    return ignis__optimizer_end(optimizer, &work, ok);
}

IGNIS_API ignis_tensor ignis_scale_loss(ignis_optimizer handle, ignis_tensor loss)
{
    static const char call[] = "ignis_scale_loss";
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    ignis_tensor scale = ignis__no_tensor(), result = scale;
    ignis_tensor_info info;
    ignis_array state, view;
    if (!optimizer)
        return result;
    if (ignis_tensor_query(loss, &info) == IGNIS_OK && info.dtype == IGNIS_F16) {
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call,
                    "the loss is f16, which does not hold the scale as its gradient; losses of >>ops.loss are f32");
    } else if (info.dtype) {
        state.id = optimizer->state->slot.handle;
        view = ignis_array_slice(state, 0, IGNIS__OPTIM_SCALE, 1);
        if (view.id)
            scale = ignis_tensor_from_array(view, false);
        if (scale.id)
            result = ignis_map("loss * scale", IGNIS_INPUTS(loss, scale));
        if (view.id)
            ignis_array_free(view);
        ignis__tensor_discard(call, scale);
    }
    ignis__optimizer_drop(call, optimizer);
    return result;
}
