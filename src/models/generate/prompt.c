/*  models/generate/prompt.c - tokens, texts and chats for a sequence

    ignis_sequence_set and _chat keep the common prefix of old and new tokens, so that an extended chat computes
    only what is new.
    May use: kv_cache.c, >>tokenizer, >>chat. Locks: the engine's lock; a chat template runs without it. */

#include "room.h"

/*  Encodes a text for a locked sequence; bos only if it is empty. NULL, and reported, on failure. */
static int32_t *ignis__sequence_encode(const char *call, const ignis__sequence *sequence, ignis_tokenizer tokenizer,
                                       const char *text, int64_t size, int *count)
{
    ignis_encode_desc encode = IGNIS__ZERO;
    int32_t *ids = NULL;
    encode.no_bos = sequence->length > 0;
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

static bool ignis__sequence_append_checked(const char *call, ignis__sequence *sequence, const int32_t *ids, int count)
{
    return ignis__sequence_check_ids(call, sequence, ids, count) && ignis__sequence_append(call, sequence, ids, count);
}

IGNIS_API ignis_status ignis_sequence_text(ignis_sequence handle, const char *text, int64_t size)
{
    static const char call[] = "ignis_sequence_text";
    ignis__sequence *sequence = ignis__sequence_enter(call, handle);
    ignis_tokenizer tokenizer = IGNIS__ZERO;
    int32_t *ids = NULL;
    int count = 0;
    bool ok;
    if (!sequence)
        return ignis__failed();
    if (!text)
        ignis__fail_null(call, "text");
    else if (size < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld, below 0", (long long)size);
    else
        tokenizer = ignis__model_tokenizer(sequence->model);
    if (tokenizer.id)
        ids = ignis__sequence_encode(call, sequence, tokenizer, text, size, &count);
    ok = ids && ignis__sequence_append_checked(call, sequence, ids, count);
    ignis__free(ids);
    ignis__sequence_leave(call, sequence);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  Makes a sequence consist of `ids`. Keeps the common prefix, and computes the rest. */
IGNIS__PRIVATE bool ignis__sequence_replace_tokens(const char *call, ignis__sequence *sequence, const int32_t *ids,
                                                   int count)
{
    int common = 0;
    if (count > sequence->engine->context)
        return ignis__fail(IGNIS_DIAG_CONTEXT_FULL, call, "%d tokens do not fit the context of %d", count,
                           sequence->engine->context) == IGNIS_OK;
    if (!ignis__sequence_check_ids(call, sequence, ids, count))
        return false;
    while (common < count && common < sequence->length && sequence->ids[common] == ids[common])
        common++;
    ignis__sequence_truncate(sequence, common);
    return ignis__sequence_append(call, sequence, ids + common, count - common);
}

/*  Calls fn for the caller's tokens, with the sequence locked. */
static ignis_status ignis__sequence_take_tokens(const char *call, ignis_sequence handle, const int32_t *ids, int count,
                                                bool (*fn)(const char *call, ignis__sequence *sequence,
                                                           const int32_t *ids, int count))
{
    ignis__sequence *sequence = ignis__sequence_enter(call, handle);
    bool ok = false;
    if (!sequence)
        return ignis__failed();
    if (count < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    else if (count && !ids)
        ignis__fail_null(call, "ids");
    else
        ok = fn(call, sequence, ids, count);
    ignis__sequence_leave(call, sequence);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_sequence_feed(ignis_sequence sequence, const int32_t *ids, int count)
{
    return ignis__sequence_take_tokens("ignis_sequence_feed", sequence, ids, count, ignis__sequence_append_checked);
}

IGNIS_API ignis_status ignis_sequence_set(ignis_sequence sequence, const int32_t *ids, int count)
{
    return ignis__sequence_take_tokens("ignis_sequence_set", sequence, ids, count, ignis__sequence_replace_tokens);
}

IGNIS_API ignis_status ignis_sequence_chat(ignis_sequence handle, const ignis_message *messages, int count)
{
    static const char call[] = "ignis_sequence_chat";
    ignis__sequence *sequence =
        ignis__sequence_hold(call, handle); /* other sequences continue while the template runs */
    ignis_chat_desc desc = IGNIS__ZERO;
    ignis_tokenizer tokenizer;
    int32_t *ids = NULL;
    int tokens = -1;
    bool ok;
    if (!sequence)
        return ignis__failed();
    desc.add_generation_prompt = true;
    desc.now = ignis__wall_ns() / 1000000000; /* one time for both calls */
    tokenizer = ignis__model_tokenizer(sequence->model);
    if (tokenizer.id)
        tokens = ignis_chat_encode(tokenizer, messages, count, &desc, NULL, 0);
    if (tokens >= 0)
        ids = (int32_t *)ignis__alloc(sizeof *ids * ((size_t)tokens + 1));
    if (tokens >= 0 && !ids)
        ignis__fail_host_memory(call, sizeof *ids * ((size_t)tokens + 1));
    ok = ids && ignis_chat_encode(tokenizer, messages, count, &desc, ids, tokens) == tokens;
    if (ok) {
        ignis__engine_lock(call, sequence->engine);
        ok = ignis__sequence_replace_tokens(call, sequence, ids, tokens);
        ignis__mutex_unlock(&sequence->engine->lock);
    }
    ignis__free(ids);
    ignis__sequence_drop(call, sequence);
    return ok ? IGNIS_OK : ignis__failed();
}
