/*  models/generate/engine_create.c - the making of an engine: checks, KV cache, buffers, free list of pages

    Every size is fixed here, so decode steps never allocate. The cache has enough pages for desc.sequences
    sequences of desc.context tokens.
    May use: engine.c, fused_step.c. Locks: the caller holds the model's slot lock, so that a model gets one engine. */

#include "room.h"

/*  The types of caches. elements: heads are multiples of it. */
static const struct {
    const char *name;
    int elements;
} ignis__cache_types[IGNIS_CACHE_COUNT] = {{"of numbers", 8}, {"f8", 16}, {"q8_0", 32}, {"q4_0", 32}};

/*  Returns whether sequences of the model can be generated with a cache of this size; false, and reported, if not. */
IGNIS__COLD static bool ignis__engine_check(const char *call, const ignis__engine *engine, int64_t pages,
                                            int64_t page_bytes)
{
    const ignis__model *model = engine->model;
    if (model->encoder)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "a %s model is an encoder, which has no next token; ignis_model_embed makes vectors "
                                 "of texts with it",
                                 ignis__family_of(model->family)->model_type);
    if (model->head_dim % 8 != 0 || model->head_dim > 256 || model->vocab > IGNIS__DRAW_VOCAB)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "heads have %d elements, the vocabulary %d tokens; multiples of 8 up to 256, and up "
                                 "to %d tokens, can be generated with",
                                 model->head_dim, model->vocab, (int)IGNIS__DRAW_VOCAB);
    if (model->latent &&
        (model->latent % 8 != 0 || model->rotary % 8 != 0 || model->latent + model->rotary > IGNIS__LATENT_WIDTH))
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "latents have %d elements, and %d rotate; multiples of 8, up to %d together, can be "
                                 "generated with",
                                 model->latent, model->rotary, (int)IGNIS__LATENT_WIDTH);
    if (model->cache_dtype != model->dtype)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "the cache is to be %s and the model is %s; a cache has the dtype of its model",
                                 ignis__dtypes[model->cache_dtype].name, ignis__dtypes[model->dtype].name);
    if (model->cache_type && (model->latent || model->dtype == IGNIS_F64))
        return ignis__fail_false(
            IGNIS_DIAG_UNSUPPORTED, call,
            "the cache is to be %s, and the model has %s; such a cache has keys and values of f32, "
            "f16 or bf16",
            ignis__cache_types[model->cache_type].name, model->latent ? "latents" : "dtype f64");
    if (model->cache_type && model->head_dim % ignis__cache_types[model->cache_type].elements != 0)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "the cache is to be %s, and heads have %d elements; such a cache has multiples of %d",
                                 ignis__cache_types[model->cache_type].name, model->head_dim,
                                 ignis__cache_types[model->cache_type].elements);
    if (model->recurrent_layers && (model->delta_k % 4 != 0 || model->delta_k > 256))
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "heads of keys of recurrent layers have %d elements; multiples of 4 up to 256 can be "
                                 "generated with",
                                 model->delta_k);
    if (pages > INT32_MAX || pages > INT64_MAX / page_bytes)
        return ignis__fail_false(
            IGNIS_DIAG_CACHE_FULL, call,
            "a cache for %d sequences of %d tokens, %lld pages of %lld bytes, is more than any device has",
            model->sequences, engine->context, (long long)pages, (long long)page_bytes);
    return true;
}

/*  Sets the layers and the numbers of pages of the groups. `pages`: for all tokens of all sequences. */
IGNIS__COLD static void ignis__engine_divide_layers(ignis__engine *engine, int64_t pages)
{
    ignis__page_group *all = &engine->groups[IGNIS__PAGES_OF_ALL], *windows = &engine->groups[IGNIS__PAGES_OF_WINDOWS];
    const int64_t tokens = ignis__model_window_tokens(engine->model, &windows->window, &windows->layers);
    all->layers = engine->model->layers - engine->model->recurrent_layers - windows->layers;
    all->pages = all->layers ? (int)ignis__clamp(pages, 1, INT32_MAX) : 0;
    windows->pages = (int)(tokens / IGNIS__PAGE); /* fewer than `pages`, which are checked */
}

/*  Allocates the cache. False, and reported, if there is no memory. */
IGNIS__COLD static bool ignis__engine_alloc_caches(const char *call, ignis__engine *engine)
{
    bool ok = true;
    int g;
    for (g = 0; ok && g < IGNIS__PAGE_GROUPS; g++) {
        const ignis__page_group *group = &engine->groups[g];
        ok = !group->layers ||
             ignis__engine_alloc(call, engine, &engine->caches[g], (int64_t)ignis__engine_slabs(engine) * group->layers,
                                 group->pages * ignis__engine_page_elements(engine), engine->model->dtype);
    }
    return ok;
}

/*  Makes the lists of pages, all of which are free. False, and reported, if there is no memory. */
IGNIS__COLD static bool ignis__engine_free_all_pages(const char *call, ignis__engine *engine)
{
    int g, i;
    for (g = 0; g < IGNIS__PAGE_GROUPS; g++) {
        ignis__page_group *group = &engine->groups[g];
        if (!group->layers)
            continue;
        group->uses = (int *)ignis__alloc(sizeof *group->uses * (size_t)group->pages);
        group->free_pages = (int *)ignis__alloc(sizeof *group->free_pages * (size_t)group->pages);
        if (!group->uses || !group->free_pages)
            return ignis__fail_host_memory(call, sizeof *group->uses * 2 * (size_t)group->pages) == IGNIS_OK;
        for (i = 0; i < group->pages; i++)
            group->free_pages[group->free_count++] = group->pages - 1 - i;
    }
    return true;
}

/*  Allocates what the engine has in host memory. False, and reported, if there is no memory. */
IGNIS__COLD static bool ignis__engine_alloc_on_host(const char *call, ignis__engine *engine)
{
    engine->mask = (ignis__engine_mask *)ignis__alloc_for(call, sizeof *engine->mask * (size_t)engine->mask_count);
    if (engine->mask)
        engine->row = (ignis__generate_row *)ignis__alloc_for(call, sizeof *engine->row * (size_t)engine->step_rows);
    return engine->row && ignis__engine_free_all_pages(call, engine);
}

/*  Takes the memory of large arrays now, so that a full device fails here. */
IGNIS__COLD static void ignis__engine_take_memory(ignis__op *op, const ignis__engine *engine)
{
    int i;
    for (i = 0; i < IGNIS__PAGE_GROUPS; i++)
        (void)(engine->caches[i] && ignis__op_write(op, engine->caches[i]));
    (void)ignis__op_write(op, engine->logits);
    (void)ignis__op_write(op, engine->scores);
    (void)ignis__op_write(op, engine->scratch);
}

/*  Tells whether results of attention and MLP are scaled or normalised before they are added. */
IGNIS__COLD static bool ignis__engine_adds_results(const ignis__engine *engine)
{
    return engine->model->residual_scale > 0 || engine->layer[0].attn_norm_behind || engine->layer[0].mlp_norm_behind;
}

/*  Makes the engine of a model. NULL, and reported, on failure. */
IGNIS__COLD IGNIS__PRIVATE ignis__engine *ignis__engine_make(const char *call, const ignis__model *model)
{
    ignis__engine *engine = (ignis__engine *)ignis__alloc(sizeof *engine);
    int64_t chunk = IGNIS__CHUNK, width = ignis__model_qkv_rows(model), ranks = model->parallel.size;
    int64_t pages = ignis__ceil_div(model->max_tokens, IGNIS__PAGE) * model->sequences, page_bytes;
    int64_t stride = ignis__ceil_div(model->vocab + (ranks > 1 ? ranks : 0), 4) * 4;
    const int64_t inner = ignis__model_widest_inner(model);
    ignis_dtype wide = ignis__wide_dtype(model->dtype);
    int32_t rope_table[IGNIS__ROPE_HALF];
    float frequencies[IGNIS__ROPE_HALF];
    ignis__paged paged;
    ignis__op op;
    int i;
    bool ok = engine != NULL;
    if (!ok) {
        ignis__fail_host_memory(call, sizeof *engine);
        return NULL;
    }
    ignis__mutex_init(&engine->lock);
    engine->model = model;
    engine->device = model->device;
    engine->context = model->max_tokens;
    engine->step_rows = ignis__step_width((int)ignis__clamp(model->sequences, 8, IGNIS__STEP_ROWS));
    engine->max_graphs = IGNIS__STEP_GRAPHS;
    engine->mask_count = engine->step_rows + IGNIS__SPARE_MASKS;
    engine->splits = (int)ignis__clamp(ignis__ceil_div(engine->context, IGNIS__SPLIT), 1, IGNIS__SPLITS);
    page_bytes = (int64_t)IGNIS__PAGE * (model->layers - model->recurrent_layers) * ignis__model_cache_bytes(model);
    ok = ignis__engine_check(call, engine, pages, page_bytes);
    for (i = 0; ok && model->rope && i < model->head_dim / 2; i++) {
        engine->frequencies[0][i] = model->frequencies[i];
        engine->frequencies[1][i] = model->local_frequencies[i];
    }
    if (ok &&
        (engine->layer = (ignis__engine_layer *)ignis__alloc(sizeof *engine->layer * (size_t)model->layers)) == NULL)
        ok = ignis__fail_host_memory(call, sizeof *engine->layer * (size_t)model->layers) == IGNIS_OK;
    ignis__engine_divide_layers(engine, pages);
    memset(&paged, 0, sizeof paged);
    paged.heads = model->heads;
    paged.head_dim = model->latent ? model->latent : model->head_dim;
    paged.splits = engine->splits;
    ok = ok && ignis__engine_hold_weights(call, engine) && ignis__engine_alloc_dequantised(call, engine) &&
         ignis__engine_alloc_caches(call, engine) &&
         ignis__engine_alloc(call, engine, &engine->rows, chunk, (int64_t)sizeof(ignis__generate_row), IGNIS_U8) &&
         ignis__engine_alloc(call, engine, &engine->sum, chunk, model->hidden, wide) &&
         ignis__engine_alloc(call, engine, &engine->normed, chunk, model->hidden, model->dtype) &&
         ignis__engine_alloc(call, engine, &engine->qkv, chunk, width, model->dtype) &&
         ignis__engine_alloc(call, engine, &engine->attended, chunk, (int64_t)model->heads * model->value_dim,
                             model->dtype) &&
         ignis__engine_alloc(call, engine, &engine->inner, chunk, model->inner, model->dtype) &&
         ignis__engine_alloc(call, engine, &engine->gate_up, chunk,
                             model->hidden > 2 * inner ? model->hidden : 2 * inner, model->dtype) &&
         ignis__engine_alloc(call, engine, &engine->scratch, 1,
                             ignis__paged_scratch_elements(&paged, engine->step_rows), wide) &&
         ignis__engine_alloc(call, engine, &engine->logits, engine->step_rows + (ranks > 1), stride, IGNIS_F32) &&
         ignis__engine_alloc_for_ranks(call, engine) &&
         ignis__engine_alloc(call, engine, &engine->scores, engine->step_rows, stride, IGNIS_F32) &&
         ignis__engine_alloc(call, engine, &engine->biases, engine->step_rows,
                             IGNIS__BIASES * (int64_t)sizeof(ignis__generate_bias), IGNIS_U8) &&
         ignis__engine_alloc(call, engine, &engine->masks, engine->mask_count, (model->vocab + 31) / 32, IGNIS_I32) &&
         (model->latent ||
          ignis__engine_alloc(call, engine, &engine->gathered, 2,
                              (int64_t)engine->context * model->kv_heads * model->head_dim, model->dtype)) &&
         ignis__engine_alloc(call, engine, &engine->parts, engine->step_rows,
                             (int64_t)IGNIS__DRAW_PARTS * IGNIS__DRAW_PART, IGNIS_U8) &&
         ignis__engine_alloc(call, engine, &engine->bins, engine->step_rows, IGNIS__DRAW_BINS, IGNIS_U8) &&
         ignis__engine_alloc(call, engine, &engine->rope_table, 2, IGNIS__ROPE_HALF, IGNIS_I32) &&
         (!ignis__engine_adds_results(engine) ||
          ignis__engine_alloc(call, engine, &engine->result, chunk, model->hidden, model->dtype)) &&
         ignis__engine_alloc_experts(call, engine, chunk) && ignis__engine_alloc_latent(call, engine, chunk) &&
         ignis__engine_alloc_delta(call, engine, chunk) &&
         ignis__engine_alloc(call, engine, &engine->block_counts, engine->step_rows, model->heads, IGNIS_I32) &&
         ignis__op_begin_on_device(&op, call, engine->device);
    if (ok) {
        ignis__engine_take_memory(&op, engine);
        for (i = 0; i < 2; i++) {
            memcpy(rope_table, ignis__rope_round_frequencies(frequencies, engine->frequencies[i]), sizeof rope_table);
            ignis__upload_i32(&op, model->dtype, engine->rope_table, i * IGNIS__ROPE_HALF, rope_table,
                              IGNIS__ROPE_HALF);
        }
        ignis__op_zero(&op, engine->block_counts);
        ignis__op_zero(&op, engine->bins);
        engine->draws_memory = ignis__pinned_chunk_take(
            call, engine->device, IGNIS__DRAWS * engine->step_rows * (int64_t)sizeof *engine->draws);
        engine->draws = engine->draws_memory ? (ignis__generate_draw *)engine->draws_memory->memory : NULL;
        op.ok = op.ok && engine->draws;
        ok = ignis__op_leave(&op) == IGNIS_OK && ignis__engine_single_launch(call, engine);
    }
    if (ok && ignis__engine_alloc_on_host(call, engine))
        return engine;
    ignis__engine_destroy(call, engine);
    return NULL;
}
