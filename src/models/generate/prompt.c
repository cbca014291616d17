#include "room.h"

/*  The ids of a text for a sequence, which is locked; null, and reported: there are none. */
static int32_t *ignis__sequence_encode(const char *call, const ignis__sequence *s, ignis_tokenizer tokenizer,
                                       const char *text, int64_t size, int *count)
{
    ignis_encode_desc encode = IGNIS__ZERO;
    int32_t *ids = NULL;
    encode.no_bos = s->length > 0;
    *count = ignis_tokenizer_encode(tokenizer, text, size, &encode, NULL, 0);
    if (*count < 0)
        return NULL;
    ids = (int32_t *)ignis__alloc(sizeof *ids * ((size_t)*count + 1));
    if (!ids)
        ignis__fail_host_memory(call, sizeof *ids * ((size_t)*count + 1));
    else if (ignis_tokenizer_encode(tokenizer, text, size, &encode, ids, *count) == *count)
        return ids;
    ignis__free(ids);
    return NULL;
}

IGNIS_API ignis_status ignis_sequence_text(ignis_sequence sequence, const char *text, int64_t size)
{
    static const char call[] = "ignis_sequence_text";
    ignis__sequence *s = ignis__sequence_enter(call, sequence);
    ignis_tokenizer tokenizer = IGNIS__ZERO;
    int32_t *ids = NULL;
    int count = 0;
    bool ok;
    if (!s)
        return ignis__failed();
    if (!text)
        ignis__fail_null(call, "text");
    else if (size < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld, below 0", (long long)size);
    else
        tokenizer = ignis__model_tokenizer(s->model);
    if (tokenizer.id)
        ids = ignis__sequence_encode(call, s, tokenizer, text, size, &count);
    ok = ids && ignis__sequence_knows(call, s, ids, count) && ignis__sequence_append(call, s, ids, count);
    ignis__free(ids);
    ignis__sequence_leave(call, s);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  What a sequence has in common with tokens stays, the rest is computed. */
static bool ignis__sequence_become(const char *call, ignis__sequence *s, const int32_t *ids, int count)
{
    int common = 0;
    if (count > s->engine->context)
        return ignis__fail(IGNIS_DIAG_CONTEXT_FULL, call, "%d tokens do not fit the context of %d", count,
                           s->engine->context) == IGNIS_OK;
    if (!ignis__sequence_knows(call, s, ids, count))
        return false;
    while (common < count && common < s->length && s->ids[common] == ids[common])
        common++;
    ignis__sequence_cut(s, common);
    return ignis__sequence_append(call, s, ids + common, count - common);
}

IGNIS_API ignis_status ignis_sequence_set(ignis_sequence sequence, const int32_t *ids, int count)
{
    static const char call[] = "ignis_sequence_set";
    ignis__sequence *s = ignis__sequence_enter(call, sequence);
    bool ok = false;
    if (!s)
        return ignis__failed();
    if (count < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    else if (count && !ids)
        ignis__fail_null(call, "ids");
    else
        ok = ignis__sequence_become(call, s, ids, count);
    ignis__sequence_leave(call, s);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_sequence_chat(ignis_sequence sequence, const ignis_message *messages, int count)
{
    static const char call[] = "ignis_sequence_chat";
    ignis__sequence *s = ignis__sequence_hold(call, sequence); /* others' sequences go on while the template runs */
    ignis_chat_desc desc = IGNIS__ZERO;
    ignis_tokenizer tokenizer;
    int32_t *ids = NULL;
    int tokens = -1;
    bool ok;
    if (!s)
        return ignis__failed();
    desc.add_generation_prompt = true;
    desc.now = ignis__wall_ns() / 1000000000; /* the same for both calls */
    tokenizer = ignis__model_tokenizer(s->model);
    if (tokenizer.id)
        tokens = ignis_chat_encode(tokenizer, messages, count, &desc, NULL, 0);
    if (tokens >= 0)
        ids = (int32_t *)ignis__alloc(sizeof *ids * ((size_t)tokens + 1));
    if (tokens >= 0 && !ids)
        ignis__fail_host_memory(call, sizeof *ids * ((size_t)tokens + 1));
    ok = ids && ignis_chat_encode(tokenizer, messages, count, &desc, ids, tokens) == tokens;
    if (ok) {
        ignis__engine_lock(call, s->engine);
        ok = ignis__sequence_become(call, s, ids, tokens);
        ignis__mutex_unlock(&s->engine->lock);
    }
    ignis__free(ids);
    ignis__sequence_drop(call, s);
    return ok ? IGNIS_OK : ignis__failed();
}
