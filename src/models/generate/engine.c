#include "room.h"

IGNIS__PRIVATE ignis__pool ignis__sequences =
    IGNIS__POOL(ignis__sequence, IGNIS__KIND_SEQUENCE, "sequence", IGNIS_DIAG_SEQUENCE_FREED);

IGNIS__PRIVATE int64_t ignis__engine_page_elements(const ignis__engine *e)
{
    return (int64_t)IGNIS__PAGE * e->model->kv_heads * e->model->head_dim;
}

/*  Gives up what an engine has; no step of it runs. */
IGNIS__COLD IGNIS__PRIVATE void ignis__engine_destroy(const char *call, void *engine)
{
    ignis__engine *e = (ignis__engine *)engine;
    ignis__array **array;
    ignis__grammar *grammar;
    ignis__binding binding;
    bool lost = ignis__devices_lost(), entered = ignis__device_enter_to_give(call, e->device, &binding);
    int i;
    if (entered)
        (void)ignis__device_finish(e->device);
    for (i = 0; (entered || lost) && i < 8 * IGNIS__COUNT(e->steps); i++)
        if (e->steps[i / 8][i % 8].capture)
            ignis__graph_destroy(call, e->steps[i / 8][i % 8].capture, lost ? NULL : e->steps[i / 8][i % 8].exec);
    if (e->draws_piece)
        (void)ignis__pinned_chunk_recycle(call, e->device, e->draws_piece);
    if (entered)
        ignis__device_leave(&binding);
    while ((grammar = e->grammars) != NULL) {
        e->grammars = grammar->next;
        ignis__grammar_free(grammar);
    }
    if (e->vocabulary)
        ignis__vocabulary_free(e->vocabulary);
    for (array = &e->cache; array <= &e->said; array++)
        if (*array)
            ignis__array_unclaim(call, *array);
    for (array = &e->embedding; array <= &e->head; array++)
        if (*array)
            ignis__array_drop(call, *array);
    for (array = (ignis__array **)(void *)e->layer;
         e->layer && array < (ignis__array **)(void *)(e->layer + e->model->layers); array++)
        if (*array)
            ignis__array_drop(call, *array);
    ignis__free(e->layer);
    ignis__free(e->uses);
    ignis__free(e->mask);
    ignis__free(e->free_pages);
    ignis__free(e);
}

/*  A new array of the engine's. False: there is no memory. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_room(const char *call, const ignis__engine *e, ignis__array **array,
                                                   int64_t rows, int64_t columns, ignis_dtype dtype)
{
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape.ndim = 2;
    desc.shape.dim[0] = rows;
    desc.shape.dim[1] = columns;
    desc.dtype = dtype;
    desc.device = e->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(e->device - ignis__devices);
    desc.tag = "generation";
    *array = ignis__array_adopt(call, ignis__array_create(call, &desc));
    return *array != NULL;
}

/*  The array of a weight, held; null where there is none. */
IGNIS__COLD static ignis__array *ignis__engine_weight(const char *call, ignis_tensor tensor, bool *ok)
{
    ignis__array *array = NULL;
    if (*ok && tensor.id)
        *ok = (array = ignis__array_hold(call, ignis_tensor_data(tensor))) != NULL;
    return array;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_weights(const char *call, ignis__engine *e)
{
    const ignis__model *m = e->model;
    bool ok = true;
    int i;
    e->embedding = ignis__engine_weight(call, m->embedding, &ok);
    e->positions = ignis__engine_weight(call, m->positions, &ok);
    e->norm = ignis__engine_weight(call, m->norm, &ok);
    e->norm_bias = ignis__engine_weight(call, m->norm_bias, &ok);
    e->head = ignis__engine_weight(call, m->head.id ? m->head : m->embedding, &ok);
    if (ok && m->tied && m->parallel.size > 1) {
        int64_t share = ignis__model_head_rows(m), first = share * m->parallel.rank;
        ignis_array rows = ignis__array_slice(call, e->head, 0, first, ignis__clamp(m->vocab - first, 0, share));
        ignis__array_drop(call, e->head);
        e->head = rows.id ? ignis__array_hold(call, rows) : NULL;
        ok = e->head != NULL;
        ignis__array_discard(call, &rows);
    }
    for (i = 0; ok && i < m->layers; i++) {
        const ignis__layer *from = &m->layer[i];
        ignis__engine_layer *to = &e->layer[i];
        to->attn_norm = ignis__engine_weight(call, from->attn_norm, &ok);
        to->attn_norm_bias = ignis__engine_weight(call, from->attn_norm_bias, &ok);
        to->qkv = ignis__engine_weight(call, from->qkv, &ok);
        to->qkv_bias = ignis__engine_weight(call, from->qkv_bias, &ok);
        to->q_norm = ignis__engine_weight(call, from->q_norm, &ok);
        to->k_norm = ignis__engine_weight(call, from->k_norm, &ok);
        to->o = ignis__engine_weight(call, from->o, &ok);
        to->o_bias = ignis__engine_weight(call, from->o_bias, &ok);
        to->mlp_norm = ignis__engine_weight(call, from->mlp_norm, &ok);
        to->mlp_norm_bias = ignis__engine_weight(call, from->mlp_norm_bias, &ok);
        to->up = ignis__engine_weight(call, from->up, &ok);
        to->up_bias = ignis__engine_weight(call, from->up_bias, &ok);
        to->down = ignis__engine_weight(call, from->down, &ok);
        to->down_bias = ignis__engine_weight(call, from->down_bias, &ok);
    }
    return ok;
}

/*  What ranks need besides: where this one's logits begin, which are added to zeros of others, and what it says. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_ranks(const char *call, ignis__engine *e)
{
    const ignis_model_parallel *ranks = &e->model->parallel;
    ignis_shape shape = e->logits->shape;
    if (ranks->size <= 1)
        return true;
    shape.dim[0] = e->step_rows;
    e->mine = ignis__array_adopt(
        call, ignis__array_view(call, e->logits, &shape, shape.dim[0] * shape.dim[1],
                                ranks->rank * ignis__model_head_rows(e->model) * (int64_t)sizeof(float)));
    return e->mine && ignis__engine_room(call, e, &e->said, 1, ranks->size, IGNIS_F32);
}

/*  Room for the numbers of any quantised weight of a layer, which prompts are multiplied with; none where there is none. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__engine_numbers(const char *call, ignis__engine *e)
{
    int64_t most = ignis__model_largest(e->model);
    return most == 0 || ignis__engine_room(call, e, &e->numbers, 1, most, e->model->dtype);
}

IGNIS__PRIVATE ignis__step_arrays ignis__engine_arrays(const ignis__engine *e, int layer)
{
    const ignis__engine_layer *l = &e->layer[layer];
    ignis__step_arrays a;
    memset(&a, 0, sizeof a);
    if (layer == e->model->layers) {
        a.weights[0] = e->head, a.norm[0] = e->norm, a.norm_bias[0] = e->norm_bias;
        return a;
    }
    a.weights[0] = l->qkv, a.weights[1] = l->o, a.weights[2] = l->up, a.weights[3] = l->down;
    a.bias[0] = l->qkv_bias, a.bias[1] = l->o_bias, a.bias[2] = l->up_bias, a.bias[3] = l->down_bias;
    a.norm[0] = l->attn_norm, a.norm[1] = l->mlp_norm, a.norm_bias[0] = l->attn_norm_bias,
    a.norm_bias[1] = l->mlp_norm_bias;
    a.head_norm[0] = l->q_norm, a.head_norm[1] = l->k_norm;
    return a;
}
