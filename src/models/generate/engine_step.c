#include "room.h"

/*  A product of rows. many: they are of a piece of these, and have the same bits in any; else they have the same bits alone and together. norm: as
    ignis__step_product has it. */
static void ignis__engine_product(ignis__op *op, ignis__engine *e, int count, bool many, ignis__gemv_kind kind,
                                  bool gated, ignis__array *out, ignis__array *x, ignis__array *weights,
                                  ignis__array *bias, const ignis__step_norms *norm)
{
    if (!many) {
        ignis__step_product(op, count, kind, gated, out, x, weights, bias, e->numbers, norm);
        return;
    }
    if (norm)
        ignis__step_norm(op, count, x, norm);
    ignis__step_product_many(op, count, kind, gated, out, x, weights, bias, e->room, e->numbers);
}

/*  The first rows of an array become their sums over the ranks. */
static void ignis__engine_sum(ignis__op *op, const ignis__engine *e, const ignis__array *array, int64_t rows)
{
    const ignis_model_parallel *ranks = &e->model->parallel;
    ignis_array none = IGNIS__ZERO, some = op->ok ? ignis__array_slice(op->work.call, array, 0, 0, rows) : none;
    op->ok = op->ok && some.id && ranks->sum_fn(ranks->group, some) == IGNIS_OK;
    if (some.id)
        ignis__array_discard(op->work.call, &some);
}

/*  Adds what norm would, now. */
static void ignis__engine_add_rest(ignis__op *op, int count, ignis__step_norms *norm)
{
    if (norm->other)
        ignis__step_norm(op, count, NULL, norm);
    norm->other = NULL;
}

/*  A product that is added to `sum`, of which each rank has a share of the inner elements: rank 0 adds its own, the others put theirs in place of
    what they had, and all become the sum of these. What many rows have found, norm adds, ahead of it, unless there are other ranks. */
static void ignis__engine_add(ignis__op *op, ignis__engine *e, int count, bool many, ignis__array *x,
                              ignis__array *weights, ignis__array *bias, ignis__step_norms *norm)
{
    bool others = e->model->parallel.rank > 0;
    ignis__gemv_kind kind = others && !many && e->sum->dtype == IGNIS_F32 ? IGNIS__GEMV_LOGITS : IGNIS__GEMV_ADD;
    ignis__address sum = ignis__op_write(op, e->sum);
    if (op->ok && others && kind == IGNIS__GEMV_ADD)
        op->ok = ignis__copy_zeros(&op->work, sum, count * e->sum->shape.dim[1] * ignis__dtypes[e->sum->dtype].size);
    ignis__engine_product(op, e, count, many, kind, false, many ? e->room : e->sum, x, weights, others ? NULL : bias,
                          NULL);
    norm->other = many ? e->room : NULL;
    if (e->model->parallel.size > 1) {
        ignis__engine_add_rest(op, count, norm);
        ignis__engine_sum(op, e, e->sum, count);
    }
}

/*  Rows through all layers: what they add up to is in `sum`, keys and values are in the cache. end: 0, they are of different sequences; or of one,
    and behind them it has so many tokens. many: as ignis__engine_product has it. */
IGNIS__PRIVATE void ignis__engine_layers(ignis__op *op, ignis__engine *e, int count, int end, bool many)
{
    const ignis__model *m = e->model;
    ignis__address slab = (ignis__address)(e->pages * ignis__engine_page_elements(e) * ignis__dtypes[m->dtype].size),
                   at;
    ignis__step_norms norm;
    ignis__generate_cache cache;
    ignis__gemv_mma direct;
    ignis__paged paged;
    int i;
    memset(&cache, 0, sizeof cache);
    memset(&paged, 0, sizeof paged);
    memset(&direct, 0, sizeof direct);
    at = ignis__op_write(op, e->cache);
    if (many) {
        cache.k_too = ignis__op_write(op, e->gathered);
        cache.v_too = cache.k_too + (ignis__address)(e->gathered->numel / 2 * ignis__dtypes[m->dtype].size);
    }
    cache.qkv = paged.q = ignis__op_write(op, e->qkv);
    cache.rows = paged.rows = direct.places = ignis__op_write(op, e->rows);
    cache.eps = m->eps;
    cache.heads = paged.heads = direct.heads = m->heads;
    cache.kv_heads = paged.kv_heads = direct.kv_heads = m->kv_heads;
    cache.head_dim = paged.head_dim = direct.head_dim = m->head_dim;
    direct.frequencies = m->rope ? ignis__op_write(op, e->turning) : 0;
    paged.out = ignis__op_write(op, e->attended);
    paged.scratch = ignis__op_write(op, e->scratch);
    paged.ended = ignis__op_write(op, e->ended);
    paged.q_row = e->qkv->shape.dim[1];
    paged.scale = m->attention_scale;
    paged.splits = e->splits;
    paged.settled = end == 0;
    memset(&norm, 0, sizeof norm);
    norm.sum = e->sum;
    norm.eps = m->eps;
    norm.rms = m->rms;
    ignis__step_embed(op, count, m->dtype, e->sum, e->embedding, e->positions, e->rows);
    for (i = 0; op->ok && i < m->layers; i++, at += 2 * slab) {
        const ignis__engine_layer *l = &e->layer[i];
        norm.weight = l->attn_norm;
        norm.bias = l->attn_norm_bias;
        cache.k = paged.k = direct.keys = at;
        cache.v = paged.v = direct.values = at + slab;
        if (!many && !l->q_norm && !l->k_norm && m->head_dim % 16 == 0 && ignis__step_takes_mma(op, m->dtype, l->qkv)) {
            if (l->qkv->blocks.count)
                ignis__step_blocks(op, count, IGNIS__GEMV_CACHE, false, e->qkv, e->normed, l->qkv, l->qkv_bias,
                                   e->numbers, &norm, &direct);
            else
                ignis__step_mma(op, count, IGNIS__GEMV_CACHE, false, e->qkv, e->normed, l->qkv, l->qkv_bias, &norm,
                                &direct);
        } else {
            cache.q_weight = l->q_norm ? ignis__op_read(op, l->q_norm) : 0;
            cache.k_weight = l->k_norm ? ignis__op_read(op, l->k_norm) : 0;
            ignis__engine_product(op, e, count, many, IGNIS__GEMV_OUT, false, e->qkv, e->normed, l->qkv, l->qkv_bias,
                                  &norm);
            ignis__step_cache(op, count, m->dtype, &cache, m->rope ? e->frequencies : NULL);
        }
        if (many)
            ignis__step_attention_many(op, count, end, &paged, e->gathered);
        else
            ignis__step_attention(op, count, e->step_rows, m->dtype, &paged);
        ignis__engine_add(op, e, count, many, e->attended, l->o, l->o_bias, &norm);
        norm.weight = l->mlp_norm;
        norm.bias = l->mlp_norm_bias;
        ignis__engine_product(op, e, count, many, m->gelu ? IGNIS__GEMV_GELU : IGNIS__GEMV_OUT, !m->gelu, e->inner,
                              e->normed, l->up, l->up_bias, &norm);
        ignis__engine_add(op, e, count, many, e->inner, l->down, l->down_bias, &norm);
    }
    ignis__engine_add_rest(op, count, &norm);
}

/*  The logits of a step of one row, which is there, by generate_step.cu. */
static void ignis__engine_whole_step(ignis__op *op, ignis__engine *e)
{
    const ignis__model *m = e->model;
    const int width = (m->heads + 2 * m->kv_heads) * m->head_dim, attended = m->heads * m->head_dim;
    const int n[] = {width, m->hidden, m->inner, m->hidden, m->vocab},
              k[] = {m->hidden, attended, m->hidden, m->inner, m->hidden};
    int64_t blocks = 1;
    double flops = 0;
    ignis__step p;
    size_t shared;
    void *params[] = {&p};
    int i, j;
    memset(&p, 0, sizeof p);
    shared = ignis__engine_whole_shared(e, &p);
    for (i = 0; i <= m->layers; i++) { /* behind those who write them on other streams */
        ignis__step_arrays a = ignis__engine_arrays(e, i);
        for (j = 0; j < 4; j++) {
            flops += a.weights[j] && ignis__op_read(op, a.weights[j])
                         ? 2.0 * (double)(ignis__weight_rows(a.weights[j]) * ignis__weight_columns(a.weights[j]))
                         : 0.0;
            (void)(a.bias[j] && ignis__op_read(op, a.bias[j]));
        }
        for (j = 0; j < 2; j++) {
            (void)(a.norm[j] && ignis__op_read(op, a.norm[j]));
            (void)(a.norm_bias[j] && ignis__op_read(op, a.norm_bias[j]));
            (void)(a.head_norm[j] && ignis__op_read(op, a.head_norm[j]));
        }
    }
    for (i = 0; i < 5; i++) {
        ignis__step_shape *shape = &p.shapes[i];
        shape->n = n[i];
        shape->k = k[i];
        shape->kind = i == 0 ? IGNIS__GEMV_CACHE : IGNIS__GEMV_OUT;
        shape->gated = i == 2 && !m->gelu;
        shape->head_dim = m->head_dim;
        shape->tiles = (int)ignis__ceil_div(n[i], shape->gated ? 8 : 16);
        blocks = shape->tiles > blocks ? shape->tiles : blocks;
    }
    p.layers = ignis__op_write(op, e->table);
    p.row = ignis__op_write(op, e->rows);
    p.frequencies = m->rope ? ignis__op_write(op, e->turning) : 0;
    p.embedding = ignis__op_read(op, e->embedding);
    if (e->embedding->blocks.count)
        p.table = ignis__quantised_part(&e->embedding->blocks, 0, p.embedding);
    p.positions = e->positions ? ignis__op_read(op, e->positions) : 0;
    p.cache = ignis__op_write(op, e->cache);
    p.slab = e->pages * ignis__engine_page_elements(e);
    p.logits = ignis__op_write(op, e->logits);
    p.sums[0] = ignis__op_write(op, e->words);
    p.sums[1] = p.sums[0] + 8 * (ignis__address)m->hidden;
    p.qkv = p.sums[1] + 8 * (ignis__address)m->hidden;
    p.attended = p.qkv + 4 * (ignis__address)width; /* two elements a word */
    p.inner = p.attended + 4 * (ignis__address)attended;
    p.found = p.inner + 4 * (ignis__address)m->inner;
    p.state = p.found + 8 * (ignis__address)((int64_t)m->heads * e->splits * (2 + m->head_dim));
    p.eps = m->eps;
    p.scale = m->attention_scale;
    p.count = m->layers;
    p.rms = m->rms;
    p.heads = m->heads;
    p.kv_heads = m->kv_heads;
    p.head_dim = m->head_dim;
    p.splits = e->splits;
    ignis__cost(-1, flops, (int)m->dtype);
    ignis__op_launch(op, IGNIS__BUILTIN_GENERATE_STEP, m->dtype, e->step_define,
                     ignis__clamp(blocks, 1, op->work.device->info.multiprocessors), 1, 1, 384, 1, shared, params);
}

/*  A step of so many rows, which lie in device memory: logits, and draws. ready: what all layers have found of them is there. */
IGNIS__PRIVATE void ignis__engine_launches(ignis__op *op, ignis__engine *e, int count, ignis__draws draws, bool ready)
{
    ignis__address logits, said;
    ignis__step_norms norm;
    ignis__draw p;
    bool whole = !ready && count == 1 && e->table;
    if (whole)
        ignis__engine_whole_step(op, e);
    else if (!ready)
        ignis__engine_layers(op, e, count, 0, false);
    memset(&norm, 0, sizeof norm);
    norm.sum = e->sum;
    norm.weight = e->norm;
    norm.bias = e->norm_bias;
    norm.eps = e->model->eps;
    norm.rms = e->model->rms;
    if (e->model->parallel.size > 1) { /* what this rank says stands behind the first row of logits */
        logits = ignis__op_write(op, e->logits);
        said = ignis__op_write(op, e->said);
        op->ok = op->ok &&
                 ignis__copy_zeros(&op->work, logits, count * e->logits->shape.dim[1] * (int64_t)sizeof(float)) &&
                 ignis__copy_on_device(&op->work, logits + (ignis__address)e->model->vocab * sizeof(float), said,
                                       ignis__array_bytes(e->said));
    }
    if (!whole)
        ignis__step_product(op, count, IGNIS__GEMV_LOGITS, false, e->mine ? e->mine : e->logits, e->normed, e->head,
                            NULL, e->numbers, &norm);
    if (e->model->parallel.size > 1)
        ignis__engine_sum(op, e, e->logits, count);
    if (draws == IGNIS__DRAWS_NONE)
        return;
    memset(&p, 0, sizeof p);
    p.logits = ignis__op_write(op, e->logits);
    p.scores = ignis__op_write(op, e->scores);
    p.rows = ignis__op_write(op, e->rows);
    p.biases = ignis__op_write(op, e->biases);
    p.parts = ignis__op_write(op, e->parts);
    p.bins = ignis__op_write(op, e->bins);
    p.stride = e->logits->shape.dim[1];
    p.vocab = e->model->vocab;
    p.bias_room = IGNIS__BIASES;
    p.masks = ignis__op_write(op, e->masks);
    p.mask_room = (int)e->masks->shape.dim[1];
    ignis__step_draw(op, count, draws, &p);
}

/*  The same as a graph, from the second time on. count is a power of 2. */
IGNIS__PRIVATE void ignis__engine_step(ignis__op *op, ignis__engine *e, int count, ignis__draws draws)
{
    const char *call = op->work.call;
    int number = ignis__log2((uint64_t)count);
    ignis__trace_item item;
    ignis__op captured;
    bool traced, same;
    if (e->steps[draws][number].runs++ == 0) { /* kernels are compiled now */
        ignis__engine_launches(op, e, count, draws, false);
        return;
    }
    if (op->ok && !e->steps[draws][number].exec) {
        op->ok = ignis__device_wait(call, e->device) && ignis__capture_begin(call, e->device);
        if (!op->ok)
            return;
        e->steps[draws][number].capture = ignis__capturing();
        same = ignis__next_begin(&captured, call, e->device);
        if (same) {
            ignis__engine_launches(&captured, e, count, draws, false);
            same = ignis__op_leave(&captured) == IGNIS_OK;
        }
        e->steps[draws][number].exec = ignis__capture_end(call, e->steps[draws][number].capture);
        op->ok = same && e->steps[draws][number].exec;
        if (!op->ok) {
            ignis__graph_destroy(call, e->steps[draws][number].capture, e->steps[draws][number].exec);
            e->steps[draws][number].capture = NULL;
            e->steps[draws][number].exec = NULL;
        }
    }
    op->ok = op->ok && ignis__graph_launchable(call, e->device, op->work.stream);
    if (!op->ok)
        return;
    traced = ignis__profiling() &&
             ignis__trace_open(&item, IGNIS__TRACED_GRAPH, call, e->device, op->work.stream, NULL, "graph");
    op->ok = !IGNIS__CUDA_FAILED(call, e->device, cuGraphLaunch, (e->steps[draws][number].exec, op->work.stream));
    if (traced)
        (void)ignis__trace_close(&item, op->ok);
}
