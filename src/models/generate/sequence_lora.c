/*  models/generate/sequence_lora.c - sequences that are computed with adapters beside the weights, each with its own

    A row of a step names the table of its sequence's adapters, which has the addresses of A and B. So one graph serves
    steps with any adapters, and A and B may learn between steps. Graphs differ by the products that have adapters.
    May use: kernel_params.c, engine.c, >>lora. Locks: the engine's lock guards the table and the buffers; then the
    model's slot.lock, for the number of sequences. */

#include "room.h"

/*  Adds what the adapters of rows add to a product: x [count, k] are the rows, `out` the engine's sum, its delta, which
    is overwritten, or results of the product. product: its number in the table. */
IGNIS__PRIVATE void ignis__lora_launch(ignis__op *op, const ignis__engine *engine, int count, int product,
                                       ignis__array *x, ignis__array *out)
{
    enum { AT_A_TIME = 16 }; /* blocks of a row */
    const ignis__model *model = engine->model;
    const bool shared = model->shared_inner && product / IGNIS__LORA_PRODUCTS >= model->dense_layers;
    const bool recurs = model->layer[product / IGNIS__LORA_PRODUCTS].recurrent;
    const int64_t inner = shared ? model->shared_inner : model->inner;
    const int64_t n[] = {(recurs ? engine->qkvz : engine->qkv)->shape.dim[1], model->hidden,
                         inner * (model->gelu ? 1 : 2), model->hidden};
    static const int pairs[] = {IGNIS__LORA_PAIRS, 1, 2, 1};
    ignis__address to = ignis__op_write(op, out);
    ignis__lora_step p;
    void *params[] = {&p};
    memset(&p, 0, sizeof p);
    p.rows = ignis__op_write(op, engine->rows);
    p.x = ignis__op_write(op, x);
    p.shrunk = ignis__op_write(op, engine->shrunk);
    p.delta = out == engine->delta ? to : 0;
    p.sum = out == engine->sum ? to : 0;
    p.out = to;
    p.k = x->shape.dim[1];
    p.n = n[product % IGNIS__LORA_PRODUCTS];
    p.count = count;
    p.product = product;
    ignis__op_launch(
        op, IGNIS__BUILTIN(LORA_SHRINK), model->dtype, NULL,
        ignis__launch_grid(AT_A_TIME, pairs[product % IGNIS__LORA_PRODUCTS], count, IGNIS__LORA_SHRINK_THREADS, 1, 0),
        params);
    ignis__op_launch(op, IGNIS__BUILTIN(LORA_EXPAND), model->dtype, NULL,
                     ignis__launch_grid(ignis__ceil_div(p.n, IGNIS__LORA_EXPAND_THREADS), count, 1,
                                        IGNIS__LORA_EXPAND_THREADS, 1, 0),
                     params);
}

/*  Orders a step after earlier work on A and B of a sequence's adapters. */
IGNIS__PRIVATE void ignis__sequence_read_lora(ignis__op *op, const ignis__sequence *sequence)
{
    const ignis__lora *lora = sequence->lora;
    int i;
    for (i = 0; lora && i < lora->count; i++) {
        (void)ignis__op_read(op, lora->adapters[i].arrays[0]);
        (void)ignis__op_read(op, lora->adapters[i].arrays[1]);
    }
}

/*  Allocates the engine's buffers for adapters. False, and reported, on failure. */
IGNIS__COLD static bool ignis__engine_alloc_for_lora(const char *call, ignis__engine *engine)
{
    const ignis__model *model = engine->model;
    const ignis_dtype wide = ignis__wide_dtype(model->dtype);
    const int64_t qkv = engine->qkv->shape.dim[1], delta = ignis__delta_rows(model), width = qkv > delta ? qkv : delta,
                  up = (int64_t)ignis__model_widest_inner(model) * (model->gelu ? 1 : 2);
    const int64_t rows = ignis__engine_rows_outside_chunks(engine);
    return (engine->shrunk || ignis__engine_alloc(call, engine, &engine->shrunk, IGNIS__CHUNK,
                                                  (int64_t)IGNIS__LORA_PAIRS * IGNIS__LORA_SEQUENCE_RANK, wide)) &&
           (engine->delta || ignis__engine_alloc(call, engine, &engine->delta, rows, width > up ? width : up, wide));
}

/*  Returns the product of an adapter; IGNIS__LORA_PRODUCTS if sequences do not support it. */
static int ignis__lora_product_of(const ignis__adapter *adapter)
{
    const size_t member = adapter->row->member;
    return member == offsetof(ignis__layer, qkv)    ? IGNIS__LORA_QKV
           : member == offsetof(ignis__layer, o)    ? IGNIS__LORA_O
           : member == offsetof(ignis__layer, up)   ? IGNIS__LORA_UP
           : member == offsetof(ignis__layer, down) ? IGNIS__LORA_DOWN
                                                    : IGNIS__LORA_PRODUCTS;
}

/*  Fills in the pairs of all adapters, and holds their arrays. False, and reported, on failure. */
IGNIS__COLD static bool ignis__lora_fill_table(ignis__op *op, ignis__lora *lora, ignis__lora_pair *pairs)
{
    int i, j, product;
    lora->products = 0;
    for (i = 0; op->ok && i < lora->count; i++) {
        ignis__adapter *adapter = &lora->adapters[i];
        ignis__lora_pair *pair;
        product = ignis__lora_product_of(adapter);
        if (product == IGNIS__LORA_PRODUCTS)
            return ignis__op_fail(op, IGNIS_DIAG_UNSUPPORTED, "sequences do not support an adapter beside %s",
                                  ignis__lora_product(lora->model, adapter->row, adapter->layer).text);
        lora->products |= 1 << product;
        pair = pairs + (adapter->layer * IGNIS__LORA_PRODUCTS + product) * IGNIS__LORA_PAIRS;
        for (j = 0; j < IGNIS__LORA_PAIRS - 1 && pair->rank; j++)
            pair++;
        for (j = 0; op->ok && j < 2; j++) {
            if (!adapter->arrays[j])
                adapter->arrays[j] = ignis__array_hold(op->work.call, ignis_tensor_data(j ? adapter->b : adapter->a));
            op->ok = adapter->arrays[j] != NULL;
        }
        pair->a = ignis__op_read(op, adapter->arrays[0]);
        pair->b = ignis__op_read(op, adapter->arrays[1]);
        pair->scale = lora->scale;
        pair->first = (int32_t)adapter->first;
        pair->columns = (int32_t)adapter->rows;
        pair->rank = lora->rank;
        pair->dtype = (int32_t)lora->dtype;
    }
    return op->ok;
}

/*  Makes the table of adapters for the sequences of an engine. False, and reported, on failure. */
IGNIS__COLD static bool ignis__lora_make_table(const char *call, ignis__engine *engine, ignis__lora *lora)
{
    const int64_t count = (int64_t)lora->model->layers * IGNIS__LORA_PRODUCTS * IGNIS__LORA_PAIRS,
                  words = count * (int64_t)(sizeof(ignis__lora_pair) / 4);
    ignis__lora_pair *pairs;
    ignis__array *table = NULL;
    ignis__op op;
    bool ok;
    if (lora->table)
        return true;
    if (lora->rank > IGNIS__LORA_SEQUENCE_RANK)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "the adapters have rank %d; sequences support ranks of up to %d", lora->rank,
                                 (int)IGNIS__LORA_SEQUENCE_RANK);
    pairs = (ignis__lora_pair *)ignis__alloc_for(call, (size_t)count * sizeof *pairs);
    if (!pairs)
        return false;
    memset(pairs, 0, (size_t)count * sizeof *pairs);
    ok = ignis__engine_alloc_for_lora(call, engine) && ignis__engine_alloc(call, engine, &table, 1, words, IGNIS_I32) &&
         ignis__op_begin_on_device(&op, call, engine->device);
    if (ok) {
        if (ignis__lora_fill_table(&op, lora, pairs))
            ignis__upload_i32(&op, engine->model->dtype, table, 0, (const int32_t *)(const void *)pairs, words);
        ok = ignis__op_leave(&op) == IGNIS_OK;
    }
    if (ok)
        lora->table = table;
    else if (table)
        ignis__array_unclaim(call, table);
    ignis__free(pairs);
    return ok;
}

/*  Lets a sequence have no adapters. */
IGNIS__PRIVATE void ignis__sequence_drop_lora(const char *call, ignis__sequence *sequence)
{
    ignis__lora *lora = sequence->lora;
    sequence->lora = NULL;
    if (!lora)
        return;
    ignis__mutex_lock(&sequence->model->slot.lock);
    lora->sequences--;
    ignis__mutex_unlock(&sequence->model->slot.lock);
    ignis__lora_drop(call, lora);
}

/*  Lets a sequence of a locked engine be computed with held adapters, whose hold it takes over. False, and reported,
    on failure; then the hold is dropped. */
IGNIS__PRIVATE bool ignis__sequence_take_lora(const char *call, ignis__sequence *sequence, ignis__lora *lora)
{
    ignis__model *model = sequence->model;
    const char *reason;
    bool live = false;
    ignis__mutex_lock(&model->slot.lock);
    reason = ignis__lora_unusable(lora, model);
    if (!reason && (live = ignis__pool_live(lora)) == true)
        lora->sequences++;
    ignis__mutex_unlock(&model->slot.lock);
    if (reason)
        ignis__fail(IGNIS_DIAG_LORA_STATE, call, "%s", reason);
    else if (!live)
        ignis__fail(IGNIS_DIAG_LORA_FREED, call, "another thread has freed the adapters");
    if (live && ignis__lora_make_table(call, sequence->engine, lora)) {
        ignis__sequence_drop_lora(call, sequence);
        sequence->lora = lora;
        return true;
    }
    if (live) {
        ignis__mutex_lock(&model->slot.lock);
        lora->sequences--;
        ignis__mutex_unlock(&model->slot.lock);
    }
    ignis__lora_drop(call, lora);
    return false;
}

/*  Lets a fork have the adapters of its sequence, whose engine is locked. */
IGNIS__PRIVATE void ignis__sequence_share_lora(const ignis__sequence *sequence, ignis__sequence *fork)
{
    if (!sequence->lora)
        return;
    (void)ignis__pool_hold_more(sequence->lora);
    ignis__mutex_lock(&sequence->model->slot.lock);
    sequence->lora->sequences++;
    ignis__mutex_unlock(&sequence->model->slot.lock);
    fork->lora = sequence->lora;
}
