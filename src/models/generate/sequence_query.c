/*  models/generate/sequence_query.c - properties of a sequence; truncation, forks, grammars, adapters

    A fork shares all pages until one of both writes to a page. Grammars belong to the engine: sequences with the
    same text share one, with its states and masks.
    May use: sequence_next.c, kv_cache.c, >>grammar. Locks: the engine's lock. */

#include "room.h"

IGNIS_API ignis_status ignis_sequence_query(ignis_sequence handle, ignis_sequence_info *info)
{
    static const char call[] = "ignis_sequence_query";
    ignis__sequence *sequence = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, handle.id);
    ignis_status status = IGNIS_OK;
    const ignis__page_group *groups;
    int64_t free_pages;
    if (!sequence)
        return ignis__failed();
    if (info) {
        groups = sequence->engine->groups;
        ignis__mutex_lock(&sequence->engine->lock);
        memset(info, 0, sizeof *info);
        info->length = sequence->length;
        info->context = sequence->engine->context;
        groups += groups[IGNIS__PAGES_OF_ALL].layers ? IGNIS__PAGES_OF_ALL : IGNIS__PAGES_OF_WINDOWS;
        free_pages = (int64_t)groups->free_count + groups->spare;
        info->free_tokens = (int)ignis__clamp(free_pages * IGNIS__PAGE, 0, INT32_MAX);
        info->log_prob = (double)sequence->log_prob;
        ignis__mutex_unlock(&sequence->engine->lock);
    } else {
        status = ignis__fail_null(call, "info");
    }
    ignis__sequence_drop(call, sequence);
    return status;
}

IGNIS_API int ignis_sequence_length(ignis_sequence handle)
{
    static const char call[] = "ignis_sequence_length";
    ignis__sequence *sequence = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, handle.id);
    int length;
    if (!sequence)
        return -1;
    ignis__mutex_lock(&sequence->engine->lock);
    length = sequence->length;
    ignis__mutex_unlock(&sequence->engine->lock);
    ignis__sequence_drop(call, sequence);
    return length;
}

IGNIS_API int ignis_sequence_ids(ignis_sequence handle, int32_t *ids, int capacity)
{
    static const char call[] = "ignis_sequence_ids";
    ignis__sequence *sequence = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, handle.id);
    int length = -1;
    if (!sequence)
        return -1;
    if (capacity < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    } else if (capacity && !ids) {
        ignis__fail_null(call, "ids");
    } else {
        ignis__mutex_lock(&sequence->engine->lock);
        length = sequence->length;
        if (capacity)
            memcpy(ids, sequence->ids, sizeof *ids * (size_t)(length < capacity ? length : capacity));
        ignis__mutex_unlock(&sequence->engine->lock);
    }
    ignis__sequence_drop(call, sequence);
    return length;
}

IGNIS_API ignis_status ignis_sequence_truncate(ignis_sequence handle, int length)
{
    static const char call[] = "ignis_sequence_truncate";
    ignis__sequence *sequence = ignis__sequence_enter(call, handle);
    ignis_status status = IGNIS_OK;
    if (!sequence)
        return ignis__failed();
    if (length < 0 || length > sequence->length)
        status = ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "length is %d; the sequence has %d tokens", length,
                             sequence->length);
    else
        ignis__sequence_truncate(sequence, length);
    ignis__sequence_leave(call, sequence);
    return status;
}

IGNIS_API ignis_sequence ignis_sequence_fork(ignis_sequence handle)
{
    static const char call[] = "ignis_sequence_fork";
    ignis_sequence none = IGNIS__ZERO;
    ignis__sequence *sequence = ignis__sequence_enter(call, handle), *fork;
    int g, i;
    bool ok = false;
    if (!sequence)
        return none;
    fork = ignis__sequence_make(call, sequence->model, sequence->engine);
    if (fork) {
        (void)ignis__pool_hold_more(sequence->model);
        ok = ignis__sequence_copy_states(call, sequence, fork);
        memcpy(fork->ids, sequence->ids, sizeof *sequence->ids * (size_t)sequence->length);
        for (g = 0; g < IGNIS__PAGE_GROUPS; g++) {
            const ignis__page_table *table = &sequence->tables[g];
            for (i = table->first; i < table->count; i++) {
                fork->tables[g].page[i] = table->page[i];
                ignis__page_hold(&sequence->engine->groups[g], table->page[i]);
            }
            fork->tables[g].first = table->first;
            fork->tables[g].count = table->count;
        }
        fork->length = sequence->length;
        fork->cached = sequence->cached;
        fork->stale = sequence->stale;
        fork->shares = sequence->shares;
        fork->boundary = sequence->boundary;
        memcpy(fork->in_chunk, sequence->in_chunk, sizeof *sequence->in_chunk * (size_t)sequence->length);
        fork->last_hidden = sequence->last_hidden;
        fork->last_hidden_length = sequence->last_hidden_length;
        if (sequence->last_hidden)
            ignis__array_claim(sequence->last_hidden);
        fork->log_prob = sequence->log_prob;
        fork->grammar = sequence->grammar;
        fork->constrained = sequence->constrained, fork->matched = sequence->matched, fork->state = sequence->state,
        fork->epoch = sequence->epoch;
        if (sequence->grammar)
            sequence->grammar->uses++;
        ignis__sequence_share_lora(sequence, fork);
        if (ok)
            none.id = ignis__pool_publish(&ignis__sequences, fork);
    }
    ignis__sequence_leave(call, sequence);
    if (fork && !ok)
        ignis__sequence_clear(call, fork);
    return none;
}

/*  Returns the engine's grammar of a text. NULL, and reported, if the text is no grammar. A few unused grammars are
    kept for later sequences. */
static ignis__grammar *ignis__engine_find_grammar(const char *call, ignis__engine *engine, ignis__model *model,
                                                  const char *text)
{
    enum { KEPT = 8 };
    ignis__grammar **link, *g;
    ignis__tokenizer *tokenizer;
    int number = 0;
    if (!engine->vocabulary) {
        ignis_tokenizer handle = ignis__model_tokenizer(model);
        tokenizer = handle.id ? ignis__tokenizer_hold(call, handle) : NULL;
        if (!tokenizer)
            return NULL;
        engine->vocabulary = ignis__vocabulary_make(tokenizer, model->vocab, model->stops, model->stop_count);
        ignis__tokenizer_drop(tokenizer);
        if (!engine->vocabulary) {
            ignis__fail_host_memory(call, sizeof *engine->vocabulary);
            return NULL;
        }
    }
    for (link = &engine->grammars; (g = *link) != NULL && strcmp(g->source, text) != 0; number++)
        if (g->uses == 0 && (number >= KEPT || ignis__grammar_state_bytes(g) > IGNIS__GRAMMAR_UNUSED)) {
            *link = g->next;
            ignis__grammar_free(g);
        } else {
            link = &g->next;
        }
    if (g)
        *link = g->next;
    else if ((g = ignis__grammar_make(call, text)) != NULL)
        g->number = ++engine->grammars_made;
    if (g) {
        g->next = engine->grammars;
        engine->grammars = g;
    }
    return g;
}

IGNIS_API ignis_status ignis_sequence_grammar(ignis_sequence handle, const char *grammar)
{
    static const char call[] = "ignis_sequence_grammar";
    ignis__sequence *sequence = ignis__sequence_enter(call, handle);
    ignis__grammar *g = NULL;
    bool ok;
    if (!sequence)
        return ignis__failed();
    if (grammar)
        g = ignis__engine_find_grammar(call, sequence->engine, sequence->model, grammar);
    ok = !grammar || g;
    if (ok && sequence->grammar)
        sequence->grammar->uses--;
    if (ok) {
        sequence->grammar = g;
        sequence->constrained = sequence->length;
        sequence->epoch = 0;
    }
    if (g)
        g->uses++;
    ignis__sequence_leave(call, sequence);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_sequence_set_lora(ignis_sequence handle, ignis_lora lora_handle)
{
    static const char call[] = "ignis_sequence_set_lora";
    ignis__sequence *sequence = ignis__sequence_enter(call, handle);
    ignis__lora *lora = sequence && lora_handle.id ? ignis__lora_hold(call, lora_handle) : NULL;
    bool ok = sequence && (lora || !lora_handle.id);
    if (ok && lora != sequence->lora && sequence->length > 0)
        ok = ignis__fail(IGNIS_DIAG_LORA_STATE, call,
                         "the sequence has %d tokens, which are computed with %s; ignis_sequence_truncate to 0 tokens "
                         "comes before other adapters",
                         sequence->length, sequence->lora ? "its adapters" : "no adapters") == IGNIS_OK;
    if (ok && lora && lora != sequence->lora) {
        ok = ignis__sequence_take_lora(call, sequence, lora);
        lora = NULL;
    } else if (ok && !lora) {
        ignis__sequence_drop_lora(call, sequence);
    }
    if (lora)
        ignis__lora_drop(call, lora);
    if (sequence)
        ignis__sequence_leave(call, sequence);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_sequence_free(ignis_sequence handle)
{
    static const char call[] = "ignis_sequence_free";
    const uint64_t failures = ignis__failures();
    ignis__sequence *sequence;
    bool live;
    if (!handle.id)
        return IGNIS_OK;
    sequence = ignis__sequence_hold(call, handle);
    if (!sequence)
        return ignis__failed();
    live = ignis__handle_kill(sequence);
    ignis__sequence_drop(call, sequence);
    return live ? ignis__ended(failures, true)
                : ignis__fail(IGNIS_DIAG_SEQUENCE_FREED, call, "another thread has freed the sequence");
}
