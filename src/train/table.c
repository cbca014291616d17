/*  >>train.table - the table of parameters that the optimizer's kernels read

    Gathered when gradients or memory have changed; its rows travel as kernel parameters, so nothing on the
    host must live longer.
    Uses: optimizer, parameter. The optimizer is locked. */

#include "room.h"

/*  Holds the gradient that a step reads; NULL if there is none. */
static ignis__array *ignis__parameter_grad(ignis__parameter *parameter)
{
    const ignis__array *grad = parameter->grad;
    ignis__mutex_lock(&parameter->tensor->slot.lock);
    parameter->grouped = parameter->tensor->group != NULL;
    if (!grad)
        grad = parameter->tensor->grad;
    ignis__mutex_unlock(&parameter->tensor->slot.lock);
    return grad ? (ignis__array *)ignis__pool_hold(&ignis__arrays, grad->slot.handle) : NULL;
}

/*  Fills the row of a parameter. False, with *ok still true, if it has no gradient, or no elements; a piece without
    elements has a row, so that the ranks count the same steps. */
static bool ignis__parameter_row(const ignis__work *work, ignis__parameter *parameter, unsigned writes,
                                 ignis__optim_row *row, bool *ok)
{
    ignis__array *grad = ignis__parameter_grad(parameter);
    memset(row, 0, sizeof *row);
    if (!grad)
        return false;
    row->count = parameter->data->numel;
    row->decay = parameter->decay;
    row->is_split = parameter->master && parameter->master->dtype == IGNIS_BF16;
    *ok = ignis__work_read(work, grad, &row->grad) && ignis__work_read(work, parameter->data, &row->data) &&
          (!parameter->first || ignis__work_write(work, parameter->first, &row->first)) &&
          (!parameter->second || ignis__work_write(work, parameter->second, &row->second)) &&
          (!parameter->master || ignis__work_write(work, parameter->master, &row->master)) &&
          (!parameter->missed || ignis__work_write(work, parameter->missed, &row->missed)) &&
          (!parameter->group || ignis__work_read(work, parameter->group, &row->group)) &&
          (!parameter->sum || ignis__work_write(work, parameter->sum, &row->sum)) &&
          (!parameter->average || ignis__work_write(work, parameter->average, &row->average));
    if (row->count == 0) /* an empty piece has no address; NULL means that the parameter misses the step */
        row->data = row->missed;
    if (*ok && writes & IGNIS__WRITES_DATA)
        ignis__storage_written(parameter->data->storage);
    if (*ok && writes & IGNIS__WRITES_GRADS)
        ignis__storage_written(grad->storage);
    ignis__array_drop(work->call, grad); /* the tensor has it, and keeps its memory */
    return *ok && (row->count > 0 || parameter->group_of);
}

/*  Writes rows to the table. They travel as parameters of a kernel, so nothing on the host needs to stay. */
static bool ignis__optimizer_write(const ignis__work *work, ignis__optimizer *optimizer, int count, ignis_dtype dtype)
{
    unsigned grid[3] = {1, 1, 1}, block[3] = {64, 1, 1};
    void *function = ignis__builtin_get(work->call, work->device, IGNIS__BUILTIN(OPTIM_TABLE), dtype);
    ignis__optim_batch batch;
    ignis__address table;
    int at, some;
    void *params[] = {&table, &batch, &some};
    bool ok = function && ignis__work_write(work, optimizer->table, &table);
    for (at = 0; ok && at < count; at += some) {
        some = count - at < IGNIS__OPTIM_BATCH ? count - at : IGNIS__OPTIM_BATCH;
        memset(&batch, 0, sizeof batch);
        memcpy(batch.rows, optimizer->rows + at, sizeof *optimizer->rows * (size_t)some);
        ok = ignis__builtin_launch(work, IGNIS__BUILTIN(OPTIM_TABLE), function, grid, block, 0, params);
        table += sizeof *optimizer->rows * (uint64_t)some;
    }
    return ok;
}

static bool ignis__optimizer_table(const char *call, ignis__optimizer *optimizer)
{
    ignis_array_desc desc = IGNIS__ZERO;
    if (optimizer->table)
        return true;
    desc.shape = IGNIS_SHAPE((int64_t)sizeof *optimizer->rows * optimizer->capacity);
    desc.dtype = IGNIS_U8;
    desc.device = ignis__device_in_desc(optimizer->device);
    desc.tag = "optimizer";
    optimizer->table = ignis__array_adopt(call, ignis__array_create(call, &desc));
    return optimizer->table != NULL;
}

/*  Writes the first rows to the table. A capture has a table of its own, which its graph then finds as it is
    now. */
static bool ignis__optimizer_renew(const ignis__work *work, ignis__optimizer *optimizer, int count, ignis_dtype dtype)
{
    ignis__capture *capture = ignis__capture_on(optimizer->device);
    ignis__work aside = *work;
    bool ok;
    if (capture || optimizer->table_of)
        ignis__optimizer_unclaim(work->call, &optimizer->table);
    optimizer->table_of = capture;
    if (!ignis__optimizer_table(work->call, optimizer))
        return false;
    capture = ignis__capture_pause();
    aside.stream = ignis__stream_current(work->device);
    ok = ignis__optimizer_write(&aside, optimizer, count, dtype);
    return ignis__capture_resume(work->call, capture) && ok;
}

/*  Sets row `at` of the table. Returns whether the table had another one there. */
static bool ignis__optimizer_row(ignis__optimizer *optimizer, int at, const ignis__optim_row *row)
{
    bool changed = at >= optimizer->row_count || memcmp(row, &optimizer->rows[at], sizeof *row) != 0;
    optimizer->rows[at] = *row;
    return changed;
}

/*  Updates the table: the parameters with a gradient, ordered by element type, and after them those that miss
    a step. */
static bool ignis__optimizer_gather(const ignis__work *work, ignis__optimizer *optimizer, unsigned writes)
{
    ignis_dtype dtype, some = IGNIS_F32;
    ignis__optim_row row;
    int64_t whole;
    int i, count = 0;
    bool ok = true, changed = !optimizer->is_written || optimizer->table_of != ignis__capture_on(optimizer->device);
    memset(optimizer->rows_of, 0, sizeof optimizer->rows_of);
    memset(optimizer->blocks_of, 0, sizeof optimizer->blocks_of);
    memset(optimizer->steps_of, 0, sizeof optimizer->steps_of);
    memset(optimizer->squares_of, 0, sizeof optimizer->squares_of);
    for (dtype = IGNIS_F16; ok && dtype <= IGNIS_F64; dtype = (ignis_dtype)(dtype + 1)) {
        for (i = 0; ok && i < optimizer->count; i++) {
            if (optimizer->parameters[i].tensor->dtype != dtype)
                continue;
            optimizer->parameters[i].has_row = ignis__parameter_row(work, &optimizer->parameters[i], writes, &row, &ok);
            if (!optimizer->parameters[i].has_row)
                continue;
            whole = ignis__tensor_numel(optimizer->parameters[i].tensor);
            row.chunk = IGNIS__OPTIM_CHUNK(whole);
            row.average_share = 1 - optimizer->ema_decay;
            row.first_block = optimizer->blocks_of[dtype];
            row.first_step = optimizer->steps_of[dtype];
            row.first_square = optimizer->squares_of[dtype] + optimizer->parameters[i].start / row.chunk;
            optimizer->blocks_of[dtype] += ignis__ceil_div(row.count, row.chunk);
            optimizer->squares_of[dtype] += ignis__ceil_div(whole, row.chunk);
            optimizer->steps_of[dtype] += ignis__ceil_div(row.count, IGNIS__OPTIM_SHARE);
            optimizer->rows_of[dtype]++;
            changed |= ignis__optimizer_row(optimizer, count++, &row);
            some = dtype;
        }
    }
    for (i = 0; ok && optimizer->has_missed && count > 0 && i < optimizer->count; i++) {
        if (optimizer->parameters[i].has_row)
            continue;
        memset(&row, 0, sizeof row);
        ok = ignis__work_write(work, optimizer->parameters[i].missed, &row.missed);
        changed |= ignis__optimizer_row(optimizer, count++, &row);
    }
    ok = ok && (!changed || ignis__optimizer_renew(work, optimizer, count, some));
    optimizer->row_count = ok ? count : 0;
    optimizer->is_written = ok;
    return ok;
}

/*  For profiles: returns the bytes that a step reads and writes for parameters of a dtype. */
IGNIS__COLD static double ignis__optimizer_bytes(const ignis__optimizer *optimizer, ignis_dtype dtype)
{
    double bytes = 0;
    int i;
    for (i = 0; i < optimizer->count; i++) {
        const ignis__parameter *p = &optimizer->parameters[i];
        double data = (double)ignis__array_bytes(p->data);
        if (p->data->dtype == dtype)
            bytes += data * (optimizer->zero_grad ? 3 : 2) +
                     (p->master ? 2 * (double)ignis__array_bytes(p->master) : data) +
                     (p->first ? 2 * (double)ignis__array_bytes(p->first) : 0) +
                     (p->sum ? 2 * (double)ignis__array_bytes(p->sum) : 0) +
                     (p->average ? 2 * (double)ignis__array_bytes(p->average) : 0) +
                     (p->second ? 2 * (double)ignis__array_bytes(p->second) : 0);
    }
    return bytes;
}

/*  Returns the kernel that an optimizer runs in place of another one: sums and averages have their own. */
static ignis__builtin ignis__optimizer_kernel(const ignis__optimizer *optimizer, ignis__builtin plain)
{
#define IGNIS__EXTRA(NAME)             \
    if (plain == IGNIS__BUILTIN(NAME)) \
    return IGNIS__BUILTIN(NAME##_EXTRA)
    if (!optimizer->has_sums && optimizer->ema_decay == 0)
        return plain;
    IGNIS__EXTRA(ADAMW);
    IGNIS__EXTRA(ADAM);
    IGNIS__EXTRA(SGD);
    IGNIS__EXTRA(RMSPROP);
    IGNIS__EXTRA(LION);
    IGNIS__EXTRA(MUON);
    IGNIS__EXTRA(MUON_APPLY);
    IGNIS__EXTRA(GRAD_SQUARES);
    IGNIS__EXTRA(GRAD_ZERO);
#undef IGNIS__EXTRA
    return plain;
}

/*  Launches a kernel for the rows of every element type. params from table_at on become the rows and their
    count, *squares the one of its first block. */
IGNIS__PRIVATE bool ignis__optimizer_launch(const ignis__work *work, ignis__optimizer *optimizer,
                                            ignis__builtin builtin, int table_at, void **params,
                                            ignis__address *squares)
{
    unsigned grid[3] = {1, 1, 1}, block[3] = {256, 1, 1};
    ignis__address table;
    ignis_dtype dtype;
    void *function;
    int count;
    bool steps = builtin != IGNIS__BUILTIN(GRAD_SQUARES) && builtin != IGNIS__BUILTIN(GRAD_ZERO) &&
                 builtin != IGNIS__BUILTIN(GRAD_ACCUMULATE);
    bool ok = ignis__work_write(work, optimizer->table, &table);
    const ignis__builtin kernel = ignis__optimizer_kernel(optimizer, builtin);
    params[table_at] = &table;
    params[table_at + 1] = &count;
    for (dtype = IGNIS_F16; ok && dtype <= IGNIS_F64; dtype = (ignis_dtype)(dtype + 1)) {
        count = optimizer->rows_of[dtype];
        if (!count)
            continue;
        ok = (steps ? optimizer->steps_of : optimizer->blocks_of)[dtype] <= INT32_MAX;
        if (!ok) {
            ignis__fail(IGNIS_DIAG_SHAPE_OVERFLOW, work->call, "the parameters are more than one launch can cover");
            break;
        }
        grid[0] = (unsigned)(steps ? optimizer->steps_of : optimizer->blocks_of)[dtype];
        function = ignis__builtin_get(work->call, work->device, kernel, dtype);
        if (ignis__profiling() && builtin == optimizer->step && builtin != IGNIS__BUILTIN(MUON))
            ignis__cost(ignis__optimizer_bytes(optimizer, dtype), 0, 0);
        ok = function && (grid[0] == 0 || /* this rank's pieces are empty */
                          ignis__builtin_launch(work, kernel, function, grid, block, 0, params));
        table += sizeof *optimizer->rows * (uint64_t)count;
        if (squares)
            *squares += sizeof(double) * (uint64_t)optimizer->squares_of[dtype];
    }
    params[table_at] = params[table_at + 1] = NULL;
    return ok;
}

/*  Holds and locks an optimizer, enters its device and gathers the table. On failure nothing is held. */
IGNIS__PRIVATE ignis__optimizer *ignis__optimizer_begin(const char *call, ignis_optimizer handle, unsigned writes,
                                                        ignis__work *work)
{
    ignis__optimizer *optimizer = ignis__optimizer_hold(call, handle);
    if (!optimizer)
        return NULL;
    ignis__mutex_lock(&optimizer->slot.lock);
    if (optimizer->lbfgs) {
        ignis__fail(IGNIS_DIAG_OPTIMIZER_STATE, call, "the optimizer is L-BFGS; ignis_lbfgs_step makes its steps");
    } else if (optimizer->count == 0) {
        ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call, "the optimizer has no parameters; ignis_optimizer_add adds them");
    } else if (ignis__pieces_begin(call, optimizer, (writes & IGNIS__WRITES_DATA) != 0)) {
        if (ignis__pieces_gradients(call, optimizer) && ignis__work_begin(call, optimizer->device, work)) {
            if (writes & IGNIS__WRITES_DATA && (optimizer->zero_grad || optimizer->drop_grad))
                writes |= IGNIS__WRITES_GRADS;
            if (ignis__optimizer_gather(work, optimizer, writes))
                return optimizer;
            ignis__work_end(work);
        }
        ignis__pieces_end(call, optimizer);
    }
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_drop(call, optimizer);
    return NULL;
}

IGNIS__PRIVATE ignis_status ignis__optimizer_end(ignis__optimizer *optimizer, const ignis__work *work, bool ok)
{
    ignis__work_end(work);
    ignis__pieces_end(work->call, optimizer);
    ignis__mutex_unlock(&optimizer->slot.lock);
    ignis__optimizer_drop(work->call, optimizer);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Returns an element type that the step compiles anyway, for kernels that do not depend on it. */
IGNIS__PRIVATE ignis_dtype ignis__optimizer_dtype(const ignis__optimizer *optimizer)
{
    ignis_dtype dtype = IGNIS_F16;
    while (dtype < IGNIS_F64 && !optimizer->rows_of[dtype])
        dtype = (ignis_dtype)(dtype + 1);
    return dtype;
}
