/* ===============================================================================================================
   >>lora - adapters of a model: pairs of narrow matrices beside its products

   A row of the model's table names the product of an adapter. If several rows are one weight, the adapter
   adds to its own columns of the result. Adapters hold their model. The model refers to the adapters that are
   set without holding them: they are taken off when they are freed. Sequences hold their adapters, and count in
   lora->sequences, so that they are not freed before.
   May use: >>model, >>op. Locks: the model's slot.lock guards model->lora, lora->sequences, merging and merged.
   =============================================================================================================== */

#include "room.h"

IGNIS__PRIVATE ignis__pool ignis__loras = IGNIS__POOL(ignis__lora, IGNIS__KIND_LORA, "LoRA", IGNIS_DIAG_LORA_FREED);

IGNIS__PRIVATE ignis__lora *ignis__lora_hold(const char *call, ignis_lora handle)
{
    return (ignis__lora *)ignis__handle_hold(call, &ignis__loras, handle.id);
}

/*  Frees what adapters own, and recycles the slot. */
IGNIS__PRIVATE void ignis__lora_clear(const char *call, ignis__lora *lora)
{
    int i, j;
    for (i = 0; lora->adapters && i < lora->count; i++) {
        for (j = 0; j < 2; j++)
            if (lora->adapters[i].arrays[j])
                ignis__array_drop(call, lora->adapters[i].arrays[j]);
        ignis__tensor_discard(call, lora->adapters[i].a);
        ignis__tensor_discard(call, lora->adapters[i].b);
    }
    ignis__free(lora->adapters);
    ignis__free(lora->layer_first);
    if (lora->table)
        ignis__array_unclaim(call, lora->table);
    ignis__model_drop(call, lora->model);
    ignis__pool_recycle(&ignis__loras, lora);
}

IGNIS__PRIVATE void ignis__lora_drop(const char *call, ignis__lora *lora)
{
    if (ignis__pool_drop(lora))
        ignis__lora_clear(call, lora);
}

/*  Ends the handle of held adapters, and takes them off their model, whose lock the caller holds. False if another
    thread has done so. */
IGNIS__PRIVATE bool ignis__lora_end(ignis__lora *lora)
{
    bool live = ignis__handle_kill(lora);
    if (lora->model->lora == lora)
        lora->model->lora = NULL;
    return live;
}

/*  Holds and returns the adapters that are set; NULL if none are. */
IGNIS__PRIVATE ignis__lora *ignis__model_lora(ignis__model *model)
{
    ignis__lora *lora;
    ignis__mutex_lock(&model->slot.lock);
    lora = model->lora;
    if (lora)
        (void)ignis__pool_hold_more(
            lora); /* safe: ignis__lora_end takes them off the model before the last hold is dropped */
    ignis__mutex_unlock(&model->slot.lock);
    return lora;
}

/*  Returns why a model is not computed with adapters; NULL if it can be. The caller holds the model's lock. */
IGNIS__PRIVATE const char *ignis__lora_unusable(const ignis__lora *lora, const ignis__model *model)
{
    return lora->model != model ? "the adapters were made for another model"
           : lora->merging || lora->merged
               ? "the adapters are part of the model's weights, into which ignis_lora_merge has added them"
               : NULL;
}

/*  Reports all live adapters at ignis_shutdown, and ends them before the models. */
IGNIS__PRIVATE void ignis__loras_close(const char *call)
{
    ignis__lora *lora;
    uint64_t index = 0;
    while ((lora = (ignis__lora *)ignis__pool_next(&ignis__loras, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "LoRA: %d adapters of rank %d on device %d", lora->count,
                           lora->rank, (int)(lora->model->device - ignis__devices));
        ignis__mutex_lock(&lora->model->slot.lock);
        (void)ignis__lora_end(lora);
        ignis__mutex_unlock(&lora->model->slot.lock);
        ignis__lora_drop(call, lora);
    }
}

/*  Finds the adapters of a weight of a layer. Returns the first, or -1, and sets *end after the last one of
    that layer. */
static int ignis__lora_find(const ignis__lora *lora, const ignis__layer *layer, size_t member, int *end)
{
    int number, i;
    if (!lora)
        return -1;
    number = (int)(layer - lora->model->layer);
    *end = lora->layer_first[number + 1];
    for (i = lora->layer_first[number]; i < *end && lora->adapters[i].row->member != member;)
        i++;
    return i < *end ? i : -1;
}

IGNIS__PRIVATE bool ignis__lora_has(const ignis__lora *lora, const ignis__layer *layer, size_t member)
{
    int end;
    return ignis__lora_find(lora, layer, member, &end) >= 0;
}

/*  Computes scale (x A^T) B^T in a dtype. */
static ignis_tensor ignis__lora_delta(const ignis__lora *lora, const ignis__adapter *adapter, ignis_tensor x,
                                      ignis_dtype dtype)
{
    if (lora->dropout > 0 && ignis__recording())
        x = ignis_dropout(x, lora->dropout);
    x = ignis_scale(ignis_linear(x, adapter->a, ignis__no_tensor()),
                    lora->scale); /* scaled here, where the matrix is small */
    x = ignis_linear(x, adapter->b, ignis__no_tensor());
    return lora->dtype == dtype ? x : ignis_cast(x, dtype);
}

/*  Computes y = x by a weight, plus what the adapters of its parts add to their columns. */
IGNIS__PRIVATE ignis_tensor ignis__lora_add(const ignis__lora *lora, const ignis__layer *layer, size_t member,
                                            ignis_tensor x, ignis_tensor y)
{
    int end, i = ignis__lora_find(lora, layer, member, &end), count = 0;
    ignis_tensor pieces[8];
    ignis_tensor_desc desc;
    ignis_shape shape;
    int64_t columns, at = 0, next;
    if (i < 0 || !y.id)
        return y;
    memset(&desc, 0, sizeof desc);
    shape = ignis_tensor_shape(y);
    columns = shape.dim[shape.ndim - 1];
    desc.dtype = lora->model->dtype;
    desc.device = lora->model->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(lora->model->device - ignis__devices);
    if (lora->dtype != desc.dtype)
        x = ignis_cast(x, lora->dtype);
    while (at < columns) { /* adapters, with zeros between them */
        while (i < end && lora->adapters[i].row->member != member)
            i++;
        next = i < end ? lora->adapters[i].first : columns;
        shape.dim[shape.ndim - 1] = next - at;
        if (next > at)
            pieces[count++] = ignis_tensor_zeros(shape, &desc);
        if (i < end)
            pieces[count++] = ignis__lora_delta(lora, &lora->adapters[i], x, desc.dtype);
        at = i < end ? next + lora->adapters[i++].rows : columns;
    }
    return ignis_add(y, count == 1 ? pieces[0] : ignis_concat(pieces, count, -1));
}
