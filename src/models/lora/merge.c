/*  models/lora/merge.c - set, query, merge and free adapters

    A merge adds adapter by adapter and counts those that are done, so that a call after a failure continues.
    May use: lora.c, >>op. Locks: the model's slot.lock, for short changes; none during kernels. */

#include "room.h"

IGNIS_API ignis_status ignis_model_set_lora(ignis_model handle, ignis_lora lora_handle)
{
    static const char call[] = "ignis_model_set_lora";
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__lora *lora = model && lora_handle.id ? ignis__lora_hold(call, lora_handle) : NULL;
    const char *reason = NULL;
    bool ok = model && (lora || !lora_handle.id);
    if (ok) {
        ignis__mutex_lock(&model->slot.lock);
        reason = lora ? ignis__lora_unusable(lora, model) : NULL;
        if (!reason && (!lora || ignis__pool_live(lora))) /* if it is not live, another thread is freeing it */
            model->lora = lora;
        ignis__mutex_unlock(&model->slot.lock);
    }
    if (reason)
        ok = ignis__fail(IGNIS_DIAG_LORA_STATE, call, "%s", reason) == IGNIS_OK;
    if (lora)
        ignis__lora_drop(call, lora);
    if (model)
        ignis__model_drop(call, model);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_lora_query(ignis_lora handle, ignis_lora_info *info)
{
    static const char call[] = "ignis_lora_query";
    ignis__lora *lora = ignis__lora_hold(call, handle);
    int i;
    if (!lora)
        return ignis__failed();
    if (info) {
        memset(info, 0, sizeof *info);
        info->rank = lora->rank, info->adapters = lora->count;
        info->alpha = lora->alpha, info->dropout = lora->dropout, info->scale = lora->scale;
        info->rslora = lora->rslora;
        info->dtype = lora->dtype;
        for (i = 0; i < lora->count; i++)
            info->parameters += lora->rank * (lora->adapters[i].rows + lora->adapters[i].columns);
        ignis__mutex_lock(&lora->model->slot.lock);
        info->set = lora->model->lora == lora;
        info->sequences = lora->sequences;
        info->merged = lora->merged == lora->count;
        ignis__mutex_unlock(&lora->model->slot.lock);
    }
    ignis__lora_drop(call, lora);
    return info ? IGNIS_OK : ignis__fail_null(call, "info");
}

IGNIS__COLD IGNIS_API int ignis_lora_weights(ignis_lora handle, ignis_tensor *tensors, int capacity)
{
    static const char call[] = "ignis_lora_weights";
    ignis__lora *lora = ignis__lora_hold(call, handle);
    int count = -1, i;
    if (!lora)
        return -1;
    if (capacity < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    else if (!tensors && capacity > 0)
        ignis__fail_null(call, "tensors");
    else
        count = 2 * lora->count;
    for (i = 0; i < count && i < capacity; i++)
        tensors[i] = i % 2 ? lora->adapters[i / 2].b : lora->adapters[i / 2].a;
    ignis__lora_drop(call, lora);
    return count;
}

/*  Adds one adapter to its rows of a weight. */
static bool ignis__lora_merge_one(const char *call, const ignis__lora *lora, const ignis__adapter *adapter)
{
    ignis_tensor weight = *ignis__model_member(lora->model, adapter->row, adapter->layer), rows;
    ignis_dtype wide = lora->dtype == IGNIS_F64 || lora->model->dtype == IGNIS_F64 ? IGNIS_F64 : IGNIS_F32;
    ignis_scope scope = ignis_scope_begin();
    ignis_array_inputs inputs;
    bool ok;
    memset(&inputs, 0, sizeof inputs);
    rows = ignis__model_slice_rows(call, weight, adapter->first, adapter->rows, lora->model->dtype);
    inputs.names = "w, d, scale";
    inputs.count = 3;
    inputs.array[0] = ignis_tensor_data(rows);
    inputs.array[1] = ignis_tensor_data(ignis_matmul(ignis_cast(adapter->b, wide), ignis_cast(adapter->a, wide)));
    inputs.array[2] = ignis_array_value(lora->scale);
    ok =
        inputs.array[0].id && inputs.array[1].id && ignis_array_map(inputs.array[0], "w + scale*d", inputs) == IGNIS_OK;
    (void)ignis_scope_end(scope);
    return ok;
}

/*  Adds all adapters that are not merged yet, and waits. */
static bool ignis__lora_merge(const char *call, ignis__lora *lora)
{
    ignis__work work;
    bool ok = true;
    (void)ignis_no_grad_begin();
    while (ok && lora->merged < lora->count) {
        ok = ignis__lora_merge_one(call, lora, &lora->adapters[lora->merged]);
        ignis__mutex_lock(&lora->model->slot.lock);
        lora->merged += ok;
        ignis__mutex_unlock(&lora->model->slot.lock);
    }
    (void)ignis_no_grad_end();
    if (!ignis__work_begin(call, lora->model->device, &work))
        return false;
    ok = !IGNIS__CUDA_FAILED(call, work.device, cuStreamSynchronize, (work.stream)) && ok;
    ignis__work_end(&work);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_lora_merge(ignis_lora handle)
{
    static const char call[] = "ignis_lora_merge";
    ignis__lora *lora = ignis__lora_hold(call, handle);
    const char *reason = NULL;
    bool ok;
    if (!lora)
        return ignis__failed();
    ok = !ignis__capture_refuses(call);
    if (ok && lora->model->quantised)
        ok = ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                         "weights of the model are quantised, and adapters are merged into numbers alone") == IGNIS_OK;
    if (ok) {
        ignis__mutex_lock(&lora->model->slot.lock);
        reason = lora->merging                 ? "another thread merges the adapters now"
                 : lora->merged == lora->count ? "the adapters are merged already"
                 : lora->sequences             ? "sequences are computed with the adapters; free them first"
                                               : NULL;
        if (!reason) {
            lora->merging = true;
            if (lora->model->lora == lora)
                lora->model->lora = NULL;
        }
        ignis__mutex_unlock(&lora->model->slot.lock);
    }
    if (reason) {
        ok = ignis__fail(IGNIS_DIAG_LORA_STATE, call, "%s", reason) == IGNIS_OK;
    } else if (ok) {
        ok = ignis__lora_merge(call, lora);
        ignis__mutex_lock(&lora->model->slot.lock);
        lora->merging = false;
        ignis__mutex_unlock(&lora->model->slot.lock);
    }
    ignis__lora_drop(call, lora);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_lora_free(ignis_lora handle)
{
    static const char call[] = "ignis_lora_free";
    const uint64_t failures = ignis__failures();
    ignis__lora *lora;
    int sequences;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    lora = ignis__lora_hold(call, handle);
    if (!lora)
        return ignis__failed();
    ignis__mutex_lock(&lora->model->slot.lock);
    sequences = lora->sequences;
    live = sequences == 0 && ignis__lora_end(lora);
    ignis__mutex_unlock(&lora->model->slot.lock);
    ignis__lora_drop(call, lora);
    if (sequences)
        return ignis__fail(
            IGNIS_DIAG_LORA_STATE, call,
            "%d sequences are computed with the adapters; free them first, or set other adapters on them", sequences);
    return live ? ignis__ended(failures, true)
                : ignis__fail(IGNIS_DIAG_LORA_FREED, call, "another thread has freed the adapters");
}
