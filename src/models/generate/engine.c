/*  models/generate/engine.c - what all sequences of a model share: its buffers, and the arrays of its weights

    The first sequence of a model creates the engine (engine_create.c); the last hold of the model destroys it.
    Every buffer is claimed by the engine and stays at its address, because captured decode steps contain the
    address.
    May use: room.h and the rooms below. Locks: none here; nobody else sees an engine that is made or destroyed. */

#include "room.h"

IGNIS__PRIVATE ignis__pool ignis__sequences =
    IGNIS__POOL(ignis__sequence, IGNIS__KIND_SEQUENCE, "sequence", IGNIS_DIAG_SEQUENCE_FREED);

/*  Returns the slabs of a layer in the cache: of keys and of values, or of latents. */
IGNIS__PRIVATE int ignis__engine_slabs(const ignis__engine *engine) { return engine->model->latent ? 1 : 2; }

/*  Returns the elements of the model's dtype that have the room of a page in a slab. */
IGNIS__PRIVATE int64_t ignis__engine_page_elements(const ignis__engine *engine)
{
    const ignis__model *model = engine->model;
    return IGNIS__PAGE * ignis__model_cache_bytes(model) / ignis__dtypes[model->dtype].size /
           ignis__engine_slabs(engine);
}

IGNIS__PRIVATE int ignis__engine_context_pages(const ignis__engine *engine)
{
    return (int)ignis__ceil_div(engine->context, IGNIS__PAGE);
}

/*  Frees the tree of kept pages; the pages go with the engine. */
IGNIS__COLD IGNIS__PRIVATE void ignis__kept_free(ignis__engine *engine)
{
    int g;
    for (g = 0; g < IGNIS__PAGE_GROUPS; g++) {
        ignis__free(engine->groups[g].kept);
        engine->groups[g].kept = NULL;
    }
    if (engine->kept) {
        ignis__free(engine->kept->entries);
        ignis__free(engine->kept->buckets);
    }
    ignis__free(engine->kept);
    engine->kept = NULL;
}

/*  Returns the number of rows of the graph that computes `count` rows: a power of 2 up to 64, or a multiple of 64. */
IGNIS__PRIVATE int ignis__step_width(int count)
{
    int width = 1;
    while (width < count && width < 64)
        width *= 2;
    return count <= width ? width : (int)ignis__ceil_div(count, 64) * 64;
}

/*  Destroys an engine. The caller knows that no decode step of it runs. After a lost device only host memory is
    freed. */
IGNIS__COLD IGNIS__PRIVATE void ignis__engine_destroy(const char *call, void *object)
{
    ignis__engine *engine = (ignis__engine *)object;
    const ignis__engine_step *step = (const ignis__engine_step *)(const void *)engine->steps;
    ignis__array **array;
    ignis__grammar *grammar;
    ignis__binding binding;
    bool lost = ignis__devices_lost(), entered = ignis__device_enter_to_give(call, engine->device, &binding);
    int i;
    if (entered)
        (void)ignis__device_finish(engine->device);
    for (i = 0; (entered || lost) && i < (int)(sizeof engine->steps / sizeof *step); i++)
        if (step[i].capture)
            ignis__graph_destroy(call, step[i].capture, lost ? NULL : step[i].exec);
    if (engine->draws_memory)
        (void)ignis__pinned_chunk_recycle(call, engine->device, engine->draws_memory);
    if (entered)
        ignis__device_leave(&binding);
    while ((grammar = engine->grammars) != NULL) {
        engine->grammars = grammar->next;
        ignis__grammar_free(grammar);
    }
    if (engine->vocabulary)
        ignis__vocabulary_free(engine->vocabulary);
    for (array = engine->caches; array <= &engine->agreement; array++)
        if (*array)
            ignis__array_unclaim(call, *array);
    for (array = &engine->embedding; array <= &engine->head; array++)
        if (*array)
            ignis__array_drop(call, *array);
    for (array = (ignis__array **)(void *)engine->layer;
         engine->layer && array < (ignis__array **)(void *)(engine->layer + engine->model->layers); array++)
        if (*array)
            ignis__array_drop(call, *array);
    ignis__free(engine->layer);
    ignis__kept_free(engine);
    for (i = 0; i < IGNIS__PAGE_GROUPS; i++) {
        ignis__free(engine->groups[i].uses);
        ignis__free(engine->groups[i].free_pages);
    }
    ignis__free(engine->mask);
    ignis__free(engine->row);
    ignis__free(engine);
}

/*  Returns the most rows that a pass has outside of chunks: those of a step, or of a short prompt. */
IGNIS__COLD IGNIS__PRIVATE int64_t ignis__engine_rows_outside_chunks(const ignis__engine *engine)
{
    return engine->step_rows > IGNIS__PROMPT_ROWS ? engine->step_rows : (int)IGNIS__PROMPT_ROWS;
}

/*  Allocates an array that the engine claims. False, and reported, if there is no memory. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc(const char *call, const ignis__engine *engine, ignis__array **array,
                                                    int64_t rows, int64_t columns, ignis_dtype dtype)
{
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape.ndim = 2;
    desc.shape.dim[0] = rows;
    desc.shape.dim[1] = columns;
    desc.dtype = dtype;
    desc.device = engine->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(engine->device - ignis__devices);
    desc.tag = "generation";
    *array = ignis__array_adopt(call, ignis__array_create(call, &desc));
    return *array != NULL;
}

/*  Holds the array of a weight. NULL if the model has no such weight, or, with *ok false and a report, if it is
    freed. */
IGNIS__COLD static ignis__array *ignis__engine_hold_weight(const char *call, ignis_tensor tensor, bool *ok)
{
    ignis__array *array = NULL;
    if (*ok && tensor.id)
        *ok = (array = ignis__array_hold(call, ignis_tensor_data(tensor))) != NULL;
    return array;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_hold_weights(const char *call, ignis__engine *engine)
{
    const ignis__model *model = engine->model;
    bool ok = true;
    int i;
    engine->embedding = ignis__engine_hold_weight(call, model->embedding, &ok);
    engine->positions = ignis__engine_hold_weight(call, model->positions, &ok);
    engine->norm = ignis__engine_hold_weight(call, model->norm, &ok);
    engine->norm_bias = ignis__engine_hold_weight(call, model->norm_bias, &ok);
    engine->head = ignis__engine_hold_weight(call, model->head.id ? model->head : model->embedding, &ok);
    if (ok && model->tied && model->parallel.size > 1) {
        int64_t share = ignis__model_head_rows(model), first = share * model->parallel.rank;
        ignis_array rows =
            ignis__array_slice(call, engine->head, 0, first, ignis__clamp(model->vocab - first, 0, share));
        ignis__array_drop(call, engine->head);
        engine->head = rows.id ? ignis__array_hold(call, rows) : NULL;
        ok = engine->head != NULL;
        ignis__array_discard(call, &rows);
    }
    for (i = 0; ok && i < model->layers; i++) {
        const ignis__layer *from = &model->layer[i];
        ignis__engine_layer *to = &engine->layer[i];
        to->attn_norm = ignis__engine_hold_weight(call, from->attn_norm, &ok);
        to->attn_norm_bias = ignis__engine_hold_weight(call, from->attn_norm_bias, &ok);
        to->qkv = ignis__engine_hold_weight(call, from->qkv, &ok);
        to->qkv_bias = ignis__engine_hold_weight(call, from->qkv_bias, &ok);
        to->q_norm = ignis__engine_hold_weight(call, from->q_norm, &ok);
        to->k_norm = ignis__engine_hold_weight(call, from->k_norm, &ok);
        to->o = ignis__engine_hold_weight(call, from->o, &ok);
        to->o_bias = ignis__engine_hold_weight(call, from->o_bias, &ok);
        to->mlp_norm = ignis__engine_hold_weight(call, from->mlp_norm, &ok);
        to->mlp_norm_bias = ignis__engine_hold_weight(call, from->mlp_norm_bias, &ok);
        to->up = ignis__engine_hold_weight(call, from->up, &ok);
        to->up_bias = ignis__engine_hold_weight(call, from->up_bias, &ok);
        to->down = ignis__engine_hold_weight(call, from->down, &ok);
        to->down_bias = ignis__engine_hold_weight(call, from->down_bias, &ok);
        to->router = ignis__engine_hold_weight(call, from->router, &ok);
        to->gate_experts = ignis__engine_hold_weight(call, from->gate_experts, &ok);
        to->up_experts = ignis__engine_hold_weight(call, from->up_experts, &ok);
        to->down_experts = ignis__engine_hold_weight(call, from->down_experts, &ok);
        to->choice_bias = ignis__engine_hold_weight(call, from->choice_bias, &ok);
        to->shared_gate = ignis__engine_hold_weight(call, from->shared_gate, &ok);
        to->router_bias = ignis__engine_hold_weight(call, from->router_bias, &ok);
        to->gate_experts_bias = ignis__engine_hold_weight(call, from->gate_experts_bias, &ok);
        to->up_experts_bias = ignis__engine_hold_weight(call, from->up_experts_bias, &ok);
        to->down_experts_bias = ignis__engine_hold_weight(call, from->down_experts_bias, &ok);
        to->sinks = ignis__engine_hold_weight(call, from->sinks, &ok);
        to->q_a_norm = ignis__engine_hold_weight(call, from->q_a_norm, &ok);
        to->q_b = ignis__engine_hold_weight(call, from->q_b, &ok);
        to->kv_a_norm = ignis__engine_hold_weight(call, from->kv_a_norm, &ok);
        to->kv_b = ignis__engine_hold_weight(call, from->kv_b, &ok);
        to->gate = ignis__engine_hold_weight(call, from->gate, &ok);
        to->conv = ignis__engine_hold_weight(call, from->conv, &ok);
        to->strengths = ignis__engine_hold_weight(call, from->strengths, &ok);
        to->decay_log = ignis__engine_hold_weight(call, from->decay_log, &ok);
        to->decay_bias = ignis__engine_hold_weight(call, from->decay_bias, &ok);
        to->delta_norm = ignis__engine_hold_weight(call, from->delta_norm, &ok);
        to->attn_norm_behind = ignis__engine_hold_weight(call, from->attn_norm_behind, &ok);
        to->mlp_norm_behind = ignis__engine_hold_weight(call, from->mlp_norm_behind, &ok);
    }
    return ok;
}

/*  Allocates what tensor parallelism needs: a view of the logits that begins at this rank's rows, and the buffer of
    the agreement. The logits of the other ranks are zeros here, so that a sum over the ranks completes them. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc_for_ranks(const char *call, ignis__engine *engine)
{
    const ignis_model_parallel *ranks = &engine->model->parallel;
    ignis_shape shape = engine->logits->shape;
    if (ranks->size <= 1)
        return true;
    shape.dim[0] = engine->step_rows;
    engine->rank_logits = ignis__array_adopt(
        call, ignis__array_view(call, engine->logits, &shape, shape.dim[0] * shape.dim[1],
                                ranks->rank * ignis__model_head_rows(engine->model) * (int64_t)sizeof(float)));
    return engine->rank_logits && ignis__engine_alloc(call, engine, &engine->agreement, 1, ranks->size, IGNIS_F32);
}

/*  Allocates a buffer for the dequantised elements of the largest weight of a layer. Prompts are multiplied with it.
    Allocates nothing if no weight is quantised. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_alloc_dequantised(const char *call, ignis__engine *engine)
{
    int64_t most = ignis__model_scratch_elements(engine->model);
    return most == 0 || ignis__engine_alloc(call, engine, &engine->dequantised, 1, most, engine->model->dtype);
}

IGNIS__PRIVATE ignis__decode_step_arrays ignis__engine_layer_arrays(const ignis__engine *engine, int layer)
{
    const ignis__engine_layer *l = &engine->layer[layer];
    ignis__decode_step_arrays a;
    memset(&a, 0, sizeof a);
    if (layer == engine->model->layers) {
        a.weights[0] = engine->head, a.norm[0] = engine->norm, a.norm_bias[0] = engine->norm_bias;
        return a;
    }
    a.weights[0] = l->qkv, a.weights[1] = l->o, a.weights[2] = l->up, a.weights[3] = l->down;
    a.bias[0] = l->qkv_bias, a.bias[1] = l->o_bias, a.bias[2] = l->up_bias, a.bias[3] = l->down_bias;
    a.norm[0] = l->attn_norm, a.norm[1] = l->mlp_norm, a.norm_bias[0] = l->attn_norm_bias,
    a.norm_bias[1] = l->mlp_norm_bias;
    a.head_norm[0] = l->q_norm, a.head_norm[1] = l->k_norm;
    return a;
}
