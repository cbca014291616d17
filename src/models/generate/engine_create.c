#include "room.h"

/*  Returns whether sequences of the model can be generated with a cache of this size; false, and reported, if not. */
IGNIS__COLD static bool ignis__engine_check(const char *call, const ignis__engine *engine, int64_t pages,
                                            int64_t page_bytes)
{
    const ignis__model *m = engine->model;
    if (m->head_dim % 8 != 0 || m->head_dim > 256 || m->vocab > IGNIS__DRAW_VOCAB)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "heads have %d elements, the vocabulary %d tokens; multiples of 8 up to 256, and up "
                                 "to %d tokens, can be generated with",
                                 m->head_dim, m->vocab, (int)IGNIS__DRAW_VOCAB);
    if (m->cache_dtype != m->dtype)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "the cache is to be %s and the model is %s; a cache has the dtype of its model",
                                 ignis__dtypes[m->cache_dtype].name, ignis__dtypes[m->dtype].name);
    if (pages > INT32_MAX || pages > INT64_MAX / page_bytes)
        return ignis__fail_false(
            IGNIS_DIAG_CACHE_FULL, call,
            "a cache for %d sequences of %d tokens, %lld pages of %lld bytes, is more than any device has",
            m->sequences, engine->context, (long long)pages, (long long)page_bytes);
    return true;
}

/*  All that sequences of a model share. Null, and reported: it cannot be. */
IGNIS__COLD IGNIS__PRIVATE ignis__engine *ignis__engine_make(const char *call, const ignis__model *m)
{
    ignis__engine *e = (ignis__engine *)ignis__alloc(sizeof *e);
    int64_t chunk = IGNIS__CHUNK, width = (int64_t)(m->heads + 2 * m->kv_heads) * m->head_dim, ranks = m->parallel.size;
    int64_t pages = ignis__ceil_div(m->room, IGNIS__PAGE) * m->sequences, page_bytes;
    int64_t stride = ignis__ceil_div(m->vocab + (ranks > 1 ? ranks : 0), 4) * 4;
    ignis_dtype wide = ignis__wide_dtype(m->dtype);
    int32_t turning[IGNIS__ROPE_HALF];
    float frequencies[IGNIS__ROPE_HALF];
    ignis__paged paged;
    ignis__op op;
    int i;
    bool ok = e != NULL;
    if (!ok) {
        ignis__fail_host_memory(call, sizeof *e);
        return NULL;
    }
    ignis__mutex_init(&e->lock);
    e->model = m;
    e->device = m->device;
    e->context = m->room;
    for (e->step_rows = 8; e->step_rows < m->sequences && e->step_rows < IGNIS__STEP_ROWS;)
        e->step_rows *= 2;
    e->mask_count = e->step_rows + IGNIS__MASKS_KEPT;
    e->splits = (int)ignis__clamp(ignis__ceil_div(e->context, IGNIS__SPLIT), 1, IGNIS__SPLITS);
    page_bytes = 2 * m->layers * ignis__engine_page_elements(e) * ignis__dtypes[m->dtype].size;
    ok = ignis__engine_check(call, e, pages, page_bytes);
    for (i = 0; ok && m->rope && i < m->head_dim / 2; i++)
        e->frequencies[i] = m->frequencies[i];
    if (ok && (e->layer = (ignis__engine_layer *)ignis__alloc(sizeof *e->layer * (size_t)m->layers)) == NULL)
        ok = ignis__fail_host_memory(call, sizeof *e->layer * (size_t)m->layers) == IGNIS_OK;
    e->pages = (int)ignis__clamp(pages, 1, INT32_MAX);
    memset(&paged, 0, sizeof paged);
    paged.heads = m->heads;
    paged.head_dim = m->head_dim;
    paged.splits = e->splits;
    ok =
        ok && ignis__engine_weights(call, e) && ignis__engine_numbers(call, e) &&
        ignis__engine_room(call, e, &e->cache, (int64_t)2 * m->layers, e->pages * ignis__engine_page_elements(e),
                           m->dtype) &&
        ignis__engine_room(call, e, &e->rows, chunk, (int64_t)sizeof(ignis__generate_row), IGNIS_U8) &&
        ignis__engine_room(call, e, &e->sum, chunk, m->hidden, wide) &&
        ignis__engine_room(call, e, &e->normed, chunk, m->hidden, m->dtype) &&
        ignis__engine_room(call, e, &e->qkv, chunk, width, m->dtype) &&
        ignis__engine_room(call, e, &e->attended, chunk, (int64_t)m->heads * m->head_dim, m->dtype) &&
        ignis__engine_room(call, e, &e->inner, chunk, m->inner, m->dtype) &&
        ignis__engine_room(call, e, &e->room, chunk, m->hidden > 2 * m->inner ? m->hidden : 2 * m->inner, m->dtype) &&
        ignis__engine_room(call, e, &e->scratch, 1, ignis__paged_numbers(&paged, e->step_rows), wide) &&
        ignis__engine_room(call, e, &e->logits, e->step_rows + (ranks > 1), stride, IGNIS_F32) &&
        ignis__engine_ranks(call, e) && ignis__engine_room(call, e, &e->scores, e->step_rows, stride, IGNIS_F32) &&
        ignis__engine_room(call, e, &e->biases, e->step_rows, IGNIS__BIASES * (int64_t)sizeof(ignis__generate_bias),
                           IGNIS_U8) &&
        ignis__engine_room(call, e, &e->masks, e->mask_count, (m->vocab + 31) / 32, IGNIS_I32) &&
        ignis__engine_room(call, e, &e->gathered, 2, (int64_t)e->context * m->kv_heads * m->head_dim, m->dtype) &&
        ignis__engine_room(call, e, &e->parts, e->step_rows, (int64_t)IGNIS__DRAW_PARTS * IGNIS__DRAW_PART, IGNIS_U8) &&
        ignis__engine_room(call, e, &e->bins, e->step_rows, IGNIS__DRAW_BINS, IGNIS_U8) &&
        ignis__engine_room(call, e, &e->turning, 1, IGNIS__ROPE_HALF, IGNIS_I32) &&
        ignis__engine_room(call, e, &e->ended, e->step_rows, m->heads, IGNIS_I32) &&
        ignis__next_begin(&op, call, e->device);
    if (ok) {
        memcpy(turning, ignis__rope_round_frequencies(frequencies, e->frequencies), sizeof turning);
        (void)ignis__op_write(&op, e->cache); /* takes its memory, or there is none */
        ignis__step_words(&op, m->dtype, e->turning, 0, turning, IGNIS__ROPE_HALF);
        ignis__op_zero(&op, e->ended);
        ignis__op_zero(&op, e->bins);
        e->draws_piece = ignis__pinned_chunk_take(call, e->device, 2 * e->step_rows * (int64_t)sizeof *e->draws);
        e->draws = e->draws_piece ? (ignis__generate_draw *)e->draws_piece->memory : NULL;
        op.ok = op.ok && e->draws;
        ok = ignis__op_leave(&op) == IGNIS_OK && ignis__engine_whole(call, e);
    }
    if (ok) {
        e->uses = (int *)ignis__alloc(sizeof *e->uses * (size_t)e->pages);
        e->free_pages = (int *)ignis__alloc(sizeof *e->free_pages * (size_t)e->pages);
        e->mask = (ignis__engine_mask *)ignis__alloc(sizeof *e->mask * (size_t)e->mask_count);
        ok = (e->uses && e->free_pages && e->mask) ||
             ignis__fail_host_memory(call, sizeof *e->uses * 2 * (size_t)e->pages) == IGNIS_OK;
    }
    for (i = 0; ok && i < e->pages; i++)
        e->free_pages[e->free_count++] = e->pages - 1 - i;
    if (ok)
        return e;
    ignis__engine_destroy(call, e);
    return NULL;
}
