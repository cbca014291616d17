#include "room.h"

IGNIS_API ignis_status ignis_sequence_query(ignis_sequence sequence, ignis_sequence_info *info)
{
    static const char call[] = "ignis_sequence_query";
    ignis__sequence *s = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, sequence.id);
    ignis_status status = IGNIS_OK;
    if (!s)
        return ignis__failed();
    if (info) {
        ignis__mutex_lock(&s->engine->lock);
        memset(info, 0, sizeof *info);
        info->length = s->length;
        info->context = s->engine->context;
        info->free_tokens = (int)ignis__clamp((int64_t)s->engine->free_count * IGNIS__PAGE, 0, INT32_MAX);
        info->log_prob = (double)s->log_prob;
        ignis__mutex_unlock(&s->engine->lock);
    } else {
        status = ignis__fail_null(call, "info");
    }
    ignis__sequence_drop(call, s);
    return status;
}

IGNIS_API int ignis_sequence_length(ignis_sequence sequence)
{
    static const char call[] = "ignis_sequence_length";
    ignis__sequence *s = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, sequence.id);
    int length;
    if (!s)
        return -1;
    ignis__mutex_lock(&s->engine->lock);
    length = s->length;
    ignis__mutex_unlock(&s->engine->lock);
    ignis__sequence_drop(call, s);
    return length;
}

IGNIS_API int ignis_sequence_ids(ignis_sequence sequence, int32_t *ids, int capacity)
{
    static const char call[] = "ignis_sequence_ids";
    ignis__sequence *s = (ignis__sequence *)ignis__handle_hold(call, &ignis__sequences, sequence.id);
    int length = -1;
    if (!s)
        return -1;
    if (capacity < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    } else if (capacity && !ids) {
        ignis__fail_null(call, "ids");
    } else {
        ignis__mutex_lock(&s->engine->lock);
        length = s->length;
        if (capacity)
            memcpy(ids, s->ids, sizeof *ids * (size_t)(length < capacity ? length : capacity));
        ignis__mutex_unlock(&s->engine->lock);
    }
    ignis__sequence_drop(call, s);
    return length;
}

IGNIS_API ignis_status ignis_sequence_truncate(ignis_sequence sequence, int length)
{
    static const char call[] = "ignis_sequence_truncate";
    ignis__sequence *s = ignis__sequence_enter(call, sequence);
    ignis_status status = IGNIS_OK;
    if (!s)
        return ignis__failed();
    if (length < 0 || length > s->length)
        status =
            ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "length is %d; the sequence has %d tokens", length, s->length);
    else
        ignis__sequence_cut(s, length);
    ignis__sequence_leave(call, s);
    return status;
}

IGNIS_API ignis_sequence ignis_sequence_fork(ignis_sequence sequence)
{
    static const char call[] = "ignis_sequence_fork";
    ignis_sequence none = IGNIS__ZERO;
    ignis__sequence *s = ignis__sequence_enter(call, sequence), *fork;
    int i;
    if (!s)
        return none;
    fork = ignis__sequence_make(call, s->model, s->engine);
    if (fork) {
        (void)ignis__pool_hold_more(s->model);
        memcpy(fork->ids, s->ids, sizeof *s->ids * (size_t)s->length);
        memcpy(fork->page, s->page, sizeof *s->page * (size_t)s->page_count);
        for (i = 0; i < s->page_count; i++)
            s->engine->uses[s->page[i]]++;
        fork->length = s->length;
        fork->page_count = s->page_count;
        fork->cached = s->cached;
        memcpy(fork->many, s->many, sizeof *s->many * (size_t)s->length);
        fork->last = s->last;
        fork->last_length = s->last_length;
        if (s->last)
            ignis__array_claim(s->last);
        fork->log_prob = s->log_prob;
        fork->grammar = s->grammar;
        fork->constrained = s->constrained, fork->matched = s->matched, fork->state = s->state, fork->epoch = s->epoch;
        if (s->grammar)
            s->grammar->uses++;
        none.id = ignis__pool_publish(&ignis__sequences, fork);
    }
    ignis__sequence_leave(call, s);
    return none;
}

/*  The engine's grammar of a text; null, and reported: it is none. Some that nobody uses any more are kept for those to come. */
static ignis__grammar *ignis__engine_grammar(const char *call, ignis__engine *e, ignis__model *model, const char *text)
{
    enum { KEPT = 8 };
    ignis__grammar **link, *g;
    ignis__tokenizer *tokenizer;
    int number = 0;
    if (!e->vocabulary) {
        ignis_tokenizer handle = ignis__model_tokenizer(model);
        tokenizer = handle.id ? ignis__tokenizer_hold(call, handle) : NULL;
        if (!tokenizer)
            return NULL;
        e->vocabulary = ignis__vocabulary_make(tokenizer, model->vocab, model->stops, model->stop_count);
        ignis__tokenizer_drop(tokenizer);
        if (!e->vocabulary) {
            ignis__fail_host_memory(call, sizeof *e->vocabulary);
            return NULL;
        }
    }
    for (link = &e->grammars; (g = *link) != NULL && strcmp(g->source, text) != 0; number++)
        if (number >= KEPT && g->uses == 0) {
            *link = g->next;
            ignis__grammar_free(g);
        } else {
            link = &g->next;
        }
    if (g)
        *link = g->next;
    else if ((g = ignis__grammar_make(call, text)) != NULL)
        g->number = ++e->grammars_made;
    if (g) {
        g->next = e->grammars;
        e->grammars = g;
    }
    return g;
}

IGNIS_API ignis_status ignis_sequence_grammar(ignis_sequence sequence, const char *grammar)
{
    static const char call[] = "ignis_sequence_grammar";
    ignis__sequence *s = ignis__sequence_enter(call, sequence);
    ignis__grammar *g = NULL;
    bool ok;
    if (!s)
        return ignis__failed();
    if (grammar)
        g = ignis__engine_grammar(call, s->engine, s->model, grammar);
    ok = !grammar || g;
    if (ok && s->grammar)
        s->grammar->uses--;
    if (ok) {
        s->grammar = g;
        s->constrained = s->length;
        s->epoch = 0;
    }
    if (g)
        g->uses++;
    ignis__sequence_leave(call, s);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_sequence_free(ignis_sequence sequence)
{
    static const char call[] = "ignis_sequence_free";
    const uint64_t failures = ignis__failures();
    ignis__sequence *s;
    bool live;
    if (!sequence.id)
        return IGNIS_OK;
    s = ignis__sequence_hold(call, sequence);
    if (!s)
        return ignis__failed();
    live = ignis__handle_kill(s);
    ignis__sequence_drop(call, s);
    return live ? ignis__ended(failures, true)
                : ignis__fail(IGNIS_DIAG_SEQUENCE_FREED, call, "another thread has freed the sequence");
}
