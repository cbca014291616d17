/*  models/tokenizer/vocabulary.c - tables of tokens, merges, added tokens and templates

    It converts what tokenizer_json.c or tokenizer_gguf.c has read, and checks it.
    May use: pipeline.c, bpe.c, tokenizer.c. Locks: none. */

#include "room.h"

/*  Decodes the text of a byte-level token in place to the bytes that it encodes, *size of them. False, and
    unchanged, if a character does not encode a byte. */
static bool ignis__token_decode_bytes(char *text, size_t *size)
{
    size_t at, out = 0;
    int length, round;
    for (round = 0; round < 2; round++) {
        for (at = out = 0; at < *size; at += (size_t)length) {
            uint32_t code = ignis__utf8_code(text + at, &length), byte = 256;
            if ((code >= 33 && code <= 126) || (code >= 161 && code <= 172) || (code >= 174 && code <= 255))
                byte = code;
            else if (code >= 256 && code <= 288)
                byte = code - 256;
            else if (code >= 289 && code <= 322)
                byte = code - 289 + 127;
            else if (code == 323)
                byte = 173;
            if (byte == 256)
                return false;
            if (round == 1)
                text[out++] = (char)byte;
        }
    }
    *size = out;
    return true;
}

/*  Returns the id of a text of the file, which is decoded as above. */
IGNIS__PRIVATE int32_t ignis__token_find_encoded(const ignis__tokenizer *tokenizer, const char *text, size_t *size)
{
    bool not_bytes = tokenizer->byte_level && !ignis__token_decode_bytes((char *)(uintptr_t)text, size);
    return ignis__token_find(tokenizer, text, *size, not_bytes);
}

/*  Gives each id its bytes, and fills the hash table of the model's tokens. extra: bytes of entries after
    those of the model. */
IGNIS__COLD static bool ignis__tokenizer_build_vocabulary(ignis__tokenizer_load *load, int64_t model_count,
                                                          int64_t tokens, const int32_t *entry_of)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__token_entry *entries = (const ignis__token_entry *)(const void *)load->entries.items;
    uint64_t buckets = 16, words = ((uint64_t)tokens + 63) / 64;
    size_t bytes = 0;
    int64_t i;
    for (i = 0; i < load->entries.count; i++)
        bytes += entries[i].size;
    if (bytes >= UINT32_MAX)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED, "its tokens have %lld bytes, 2^32 or more",
                                      (long long)bytes);
    while (buckets < (uint64_t)model_count * 2)
        buckets *= 2;
    tokenizer->bytes = (char *)ignis__tokenizer_keep(tokenizer, bytes + 1);
    tokenizer->begin = (uint32_t *)ignis__tokenizer_keep(tokenizer, ((size_t)tokens + 1) * sizeof(uint32_t));
    tokenizer->flags = (unsigned char *)ignis__tokenizer_keep(tokenizer, (size_t)tokens + 1);
    tokenizer->buckets =
        (ignis__token_slot *)ignis__tokenizer_keep(tokenizer, (size_t)buckets * sizeof(ignis__token_slot));
    tokenizer->known = (uint64_t *)ignis__tokenizer_keep(tokenizer, (size_t)words * 8);
    tokenizer->whole = (uint64_t *)ignis__tokenizer_keep(tokenizer, (size_t)words * 8);
    if (!tokenizer->bytes || !tokenizer->begin || !tokenizer->flags || !tokenizer->buckets || !tokenizer->known ||
        !tokenizer->whole)
        return ignis__tokenizer_no_memory(load);
    tokenizer->slot_mask = buckets - 1;
    tokenizer->info.tokens = (int)tokens;
    for (bytes = 0, i = 0; i < tokens; i++) {
        const ignis__token_entry *entry = &entries[entry_of[i] < 0 ? 0 : entry_of[i]];
        uint64_t hash, at;
        int probes = 0;
        tokenizer->begin[i + 1] = (uint32_t)bytes;
        if (entry_of[i] < 0)
            continue;
        if (entry->size)
            memcpy(tokenizer->bytes + bytes, entry->text, entry->size);
        bytes += entry->size;
        tokenizer->begin[i + 1] = (uint32_t)bytes;
        tokenizer->flags[i] = (unsigned char)(IGNIS__TOKEN_THERE | (entry->not_bytes ? IGNIS__TOKEN_NOT_BYTES : 0));
        if (entry_of[i] >= model_count || entry->unreachable)
            continue;
        tokenizer->flags[i] |= IGNIS__TOKEN_MODEL;
        tokenizer->longest = entry->size > tokenizer->longest ? entry->size : tokenizer->longest;
        if (ignis__token_find(tokenizer, entry->text, entry->size, entry->not_bytes) >= 0)
            return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                          "two ids, one of them %lld, have the same text %s", (long long)i,
                                          ignis__name_write(entry->text).text);
        hash = ignis__token_hash(entry->text, entry->size);
        for (at = hash & tokenizer->slot_mask; tokenizer->buckets[at].id; at = (at + 1) & tokenizer->slot_mask)
            if (++probes > IGNIS__PROBE_LIMIT)
                return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED, "the texts of its tokens collide");
        tokenizer->buckets[at].tag = (uint32_t)(hash >> 32);
        tokenizer->buckets[at].id = (int32_t)i + 1;
    }
    return true;
}

/*  Reads all tokens: those of the model, and those added to them. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_read_vocabulary(ignis__tokenizer_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    ignis__added_token *added = (ignis__added_token *)(void *)load->added.items;
    ignis__token_entry *entries = (ignis__token_entry *)(void *)load->entries.items, *entry;
    int64_t model_count = load->entries.count, tokens = 0, i;
    int32_t *entry_of;
    char name[8];
    bool ok = true;
    for (i = 0; i < model_count; i++)
        tokens = entries[i].id >= tokens ? entries[i].id + 1 : tokens;
    for (i = 0; i < load->added.count; i++)
        tokens = added[i].id >= tokens ? added[i].id + 1 : tokens;
    if (model_count == 0)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "its vocabulary is empty");
    entry_of = (int32_t *)ignis__alloc((size_t)tokens * sizeof *entry_of);
    if (!entry_of)
        return ignis__tokenizer_no_memory(load);
    for (i = 0; i < tokens; i++)
        entry_of[i] = -1;
    for (i = 0; ok && i < model_count; i++) {
        entry = &entries[i];
        if (entry_of[entry->id] >= 0)
            ok =
                ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "the tokens %s and %s have the same id, %lld",
                                       ignis__name_write(entries[entry_of[entry->id]].text).text,
                                       ignis__name_write(entry->text).text, (long long)entry->id);
        entry_of[entry->id] = (int32_t)i;
    }
    for (i = 0; ok && i < model_count && tokenizer->byte_level; i++)
        entries[i].not_bytes = !ignis__token_decode_bytes((char *)(uintptr_t)entries[i].text, &entries[i].size);
    for (i = 0; ok && i < load->added.count; i++) {
        char *text = (char *)(uintptr_t)added[i].text;
        size_t size = added[i].size;
        bool not_bytes;
        added[i].text = ignis__tokenizer_keep_text(tokenizer, text, size);
        if (!added[i].text) {
            ok = ignis__tokenizer_no_memory(load);
            break;
        }
        not_bytes = tokenizer->byte_level && !ignis__token_decode_bytes(text, &size);
        if (entry_of[added[i].id] < 0) {
            entry = (ignis__token_entry *)ignis__list_add(&load->entries);
            if (!entry) {
                ok = ignis__tokenizer_no_memory(load);
                break;
            }
            entries = (ignis__token_entry *)(void *)load->entries.items;
            entry->text = text;
            entry->size = size;
            entry->not_bytes = not_bytes;
            entry->id = added[i].id;
            entry_of[added[i].id] = (int32_t)(load->entries.count - 1);
            continue;
        }
        entry = &entries[entry_of[added[i].id]];
        if (entry->size != size || entry->not_bytes != not_bytes || memcmp(entry->text, text, size) != 0)
            ok = ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                        "the added token %s has the id %d, which is that of another token",
                                        ignis__name_write(added[i].text).text, (int)added[i].id);
    }
    ok = ok && ignis__tokenizer_build_vocabulary(load, model_count, tokens, entry_of);
    for (i = 0; ok && i < load->added.count; i++) {
        int32_t id = added[i].id, model = ignis__token_find(tokenizer, tokenizer->bytes + tokenizer->begin[id],
                                                            tokenizer->begin[id + 1] - tokenizer->begin[id],
                                                            (tokenizer->flags[id] & IGNIS__TOKEN_NOT_BYTES) != 0);
        if (model >= 0 && model != id)
            ok = ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                        "the added token %s has the id %d, but in the vocabulary %d",
                                        ignis__name_write(added[i].text).text, (int)id, (int)model);
        if (added[i].special)
            tokenizer->flags[id] |= IGNIS__TOKEN_CONTROL;
    }
    for (i = 0; ok && i < 256; i++) {
        name[0] = (char)i;
        tokenizer->single[i] = tokenizer->byte_level || i < 128 ? ignis__token_find(tokenizer, name, 1, false) : -1;
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        tokenizer->fallback[i] = ignis__token_find(tokenizer, name, 6, false);
    }
    ignis__free(entry_of);
    return ok;
}

/*  Fills the table of pairs from the ids and ranks of the merges. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_build_joins(ignis__tokenizer_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__merge_entry *merges = (const ignis__merge_entry *)(const void *)load->merges.items;
    uint64_t size = 16, at;
    int64_t i;
    while (size < (uint64_t)load->merges.count * 3 / 2)
        size *= 2;
    tokenizer->joins = (ignis__join *)ignis__tokenizer_keep(tokenizer, (size_t)size * sizeof(ignis__join));
    if (!tokenizer->joins)
        return ignis__tokenizer_no_memory(load);
    tokenizer->join_mask = size - 1;
    tokenizer->words = !tokenizer->byte_level && !tokenizer->unigram &&
                       ignis__token_find(tokenizer, IGNIS__LOW_LINE, 3, false) >= 0 && !tokenizer->ignore_merges;
    for (i = 0; i < load->merges.count; i++) {
        const ignis__merge_entry *merge = &merges[i];
        uint64_t key = ((uint64_t)(uint32_t)merge->ids[0] << 32 | (uint32_t)merge->ids[1]) + 1,
                 hash = key * 0x9E3779B97F4A7C15u;
        const char *text = tokenizer->bytes + tokenizer->begin[merge->ids[2]];
        uint32_t length = tokenizer->begin[merge->ids[2] + 1] - tokenizer->begin[merge->ids[2]], k;
        int probes = 0;
        for (at = (hash ^ hash >> 32) & tokenizer->join_mask;
             tokenizer->joins[at].key && tokenizer->joins[at].key != key;) {
            at = (at + 1) & tokenizer->join_mask;
            if (++probes > IGNIS__PROBE_LIMIT)
                return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED, "its merges collide");
        }
        tokenizer->joins[at].key = key;
        tokenizer->joins[at].rank = merge->rank;
        tokenizer->joins[at].id = merge->ids[2];
        for (k = 1; tokenizer->words && k + 3 <= length; k++)
            if (memcmp(text + k, IGNIS__LOW_LINE, 3) == 0 && (k < 3 || memcmp(text + k - 3, IGNIS__LOW_LINE, 3) != 0))
                tokenizer->words = false;
    }
    return true;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_build_merges(ignis__tokenizer_load *load)
{
    const ignis__tokenizer *tokenizer = load->tokenizer;
    ignis__merge_entry *merges = (ignis__merge_entry *)(void *)load->merges.items;
    ignis__bytes both = IGNIS__ZERO;
    bool ok = true;
    int64_t i;
    int k;
    for (i = 0; ok && i < load->merges.count; i++) {
        ignis__merge_entry *merge = &merges[i];
        size_t size;
        both.size = 0;
        ok = ignis__bytes_add(&both, merge->left, merge->left_size) &&
             ignis__bytes_add(&both, merge->right, merge->right_size) && ignis__bytes_add(&both, "", 1);
        if (!ok) {
            ignis__tokenizer_no_memory(load);
            break;
        }
        size = both.size - 1;
        merge->ids[2] = ignis__token_find_encoded(tokenizer, both.data, &size);
        merge->ids[0] = ignis__token_find_encoded(tokenizer, merge->left, &merge->left_size);
        merge->ids[1] = ignis__token_find_encoded(tokenizer, merge->right, &merge->right_size);
        for (k = 0; k < 3; k++)
            if (merge->ids[k] < 0)
                ok = ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                            "merge %lld %s a token that is not in its vocabulary", (long long)i,
                                            k == 2 ? "makes" : "joins");
    }
    ignis__free(both.data);
    return ok;
}

static int ignis__added_token_order(const void *a, const void *b)
{
    const ignis__added_token *one = (const ignis__added_token *)a, *other = (const ignis__added_token *)b;
    size_t size = one->size < other->size ? one->size : other->size;
    int order = size ? memcmp(one->text, other->text, size) : 0;
    if (order)
        return order;
    if (one->size != other->size)
        return one->size < other->size ? -1 : 1;
    if (one->special != other->special)
        return one->special ? -1 : 1; /* as in the library, special tokens come first */
    return one->order - other->order;
}

/*  Reads added tokens. A token that is matched in normalized text is normalized itself. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_build_added(ignis__tokenizer_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    ignis__added_token *added = (ignis__added_token *)(void *)load->added.items;
    ignis__encoder encoder = IGNIS__ZERO;
    int level, k, kept;
    int64_t i;
    bool ok = true;
    encoder.tokenizer = tokenizer;
    encoder.steps = (int64_t)1 << 22;
    for (level = 0; ok && level < 2; level++) {
        ignis__added_set *set = &tokenizer->added[level];
        set->items = (ignis__added_token *)ignis__tokenizer_keep(tokenizer,
                                                                 (size_t)(load->added.count + 1) * sizeof *set->items);
        ok = set->items != NULL;
        for (i = 0; ok && i < load->added.count; i++) {
            ignis__added_token *item = &set->items[set->count];
            const char *text = added[i].text;
            if (added[i].normalized != (level == 1) || added[i].size == 0)
                continue;
            *item = added[i];
            if (item->size > IGNIS__ADDED_LIMIT) {
                ignis__encoder_close(&encoder);
                return ignis__tokenizer_fault(
                    load, IGNIS_DIAG_UNSUPPORTED, "the added token %s has %lld bytes; at most %d are supported",
                    ignis__name_write(item->text).text, (long long)item->size, IGNIS__ADDED_LIMIT);
            }
            if (level == 1) {
                ok = ignis__encode_normalize(&encoder, &text, &item->size) &&
                     (item->text = ignis__tokenizer_keep_text(tokenizer, text, item->size)) != NULL;
                if (item->size == 0)
                    continue;
            }
            set->count++;
        }
        if (!ok)
            break;
        if (set->count > 1)
            qsort(set->items, (size_t)set->count, sizeof *set->items, ignis__added_token_order);
        for (kept = 0, k = 0; k < set->count; k++)
            if (kept == 0 || set->items[kept - 1].size != set->items[k].size ||
                memcmp(set->items[kept - 1].text, set->items[k].text, set->items[k].size) != 0)
                set->items[kept++] = set->items[k];
        set->count = kept;
        for (k = 0; k < kept; k++)
            set->first[(unsigned char)set->items[k].text[0]] = true;
    }
    ignis__encoder_close(&encoder);
    if (encoder.too_slow || encoder.too_long)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED,
                                      "an added token takes too many steps or bytes to be normalized");
    return ok || ignis__tokenizer_no_memory(load);
}

/*  Reads the ids around each text. */
IGNIS__COLD static bool ignis__tokenizer_build_template(ignis__tokenizer_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    int i, k;
    size_t fresh_size = (size_t)(IGNIS__TEMPLATE_TOKENS + 1) * IGNIS__TEMPLATE_TOKENS * sizeof(int32_t);
    for (i = 0; i < load->part_count[IGNIS__PART_PROCESSOR]; i++) {
        const ignis__tokenizer_part *part = &load->parts[IGNIS__PART_PROCESSOR][i];
        if (!ignis__tokenizer_part_is(part->type, "ByteLevel") &&
            !ignis__tokenizer_part_is(part->type, "TemplateProcessing") &&
            !ignis__tokenizer_part_is(part->type, "BertProcessing") &&
            !ignis__tokenizer_part_is(part->type, "RobertaProcessing"))
            return ignis__tokenizer_refuse_part(load, IGNIS__PART_PROCESSOR, part, "");
        if (ignis__tokenizer_part_is(part->type, "TemplateProcessing") && !load->template_text)
            return ignis__tokenizer_refuse_part(load, IGNIS__PART_PROCESSOR, part,
                                                "its template has no place for the text");
    }
    tokenizer->front = (int32_t *)ignis__tokenizer_keep(tokenizer, fresh_size);
    tokenizer->back = (int32_t *)ignis__tokenizer_keep(tokenizer, fresh_size);
    if (!tokenizer->front || !tokenizer->back)
        return ignis__tokenizer_no_memory(load);
    for (i = 0; i < load->template_count; i++) {
        bool behind = load->template_behind[i];
        int32_t *ids = behind ? tokenizer->back : tokenizer->front;
        int *count = behind ? &tokenizer->back_count : &tokenizer->front_count, at;
        for (at = 0; at < load->special_count && strcmp(load->special_name[at], load->template_name[i]) != 0; at++)
            continue;
        if (at == load->special_count)
            return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                          "its template names the special token %s, which it does not have",
                                          ignis__name_write(load->template_name[i]).text);
        for (k = 0; k < load->special_id_count[at]; k++) {
            if (load->special_ids[at][k] >= tokenizer->info.tokens)
                return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                              "its template has the id %d, and it has %d tokens",
                                              (int)load->special_ids[at][k], tokenizer->info.tokens);
            ids[(*count)++] = load->special_ids[at][k];
        }
    }
    tokenizer->info.bos = tokenizer->front_count ? tokenizer->front[0] : -1;
    return true;
}

/*  Converts the parsed tokenizer.json. Fails at anything unknown. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_build(ignis__tokenizer_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const bool words = ignis__tokenizer_part_is(load->model, "WordPiece");
    const bool unigram = load->model ? strcmp(load->model, "Unigram") == 0 : load->has_scores;
    size_t size;
    if (!words && !unigram && (load->model ? strcmp(load->model, "BPE") != 0 : !load->has_merges))
        return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED,
                                      "its model is of type %s; BPE, Unigram and WordPiece are supported",
                                      load->model ? ignis__name_write(load->model).text : "none");
    if (!load->has_vocabulary || (!load->has_merges && !words && !unigram) || load->has_scores != unigram)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "its model has %s",
                                      !load->has_vocabulary         ? "no vocab"
                                      : load->has_scores == unigram ? "no merges"
                                      : unigram                     ? "a vocab without scores"
                                                                    : "a vocab with scores");
    if (unigram && (load->unknown_id < 0 || load->unknown_id >= load->entries.count))
        return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                      "its unk_id is %lld, and it has %lld tokens; Unigram needs one of them",
                                      (long long)load->unknown_id, (long long)load->entries.count);
    tokenizer->unigram = unigram;
    if (words) {
        const char *prefix = load->word_prefix ? load->word_prefix : "##";
        tokenizer->word_pieces = true;
        tokenizer->word_limit = load->word_limit;
        tokenizer->word_prefix = ignis__tokenizer_keep_text(tokenizer, prefix, strlen(prefix));
        load->unknown = load->unknown ? load->unknown : "[UNK]";
        if (!tokenizer->word_prefix)
            return ignis__tokenizer_no_memory(load);
    }
    if (load->dropout || (load->affix && !words))
        return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED, "its model has %s, which is not supported",
                                      load->dropout ? "a dropout"
                                                    : "a continuing_subword_prefix or an end_of_word_suffix");
    if (!ignis__tokenizer_set_normalizer(load) || !ignis__tokenizer_set_splitter(load) ||
        !ignis__tokenizer_set_decoder(load))
        return false;
    if (tokenizer->byte_level && tokenizer->byte_fallback)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_UNSUPPORTED,
                                      "it has a byte_fallback beside ByteLevel, which is not supported");
    if (!ignis__tokenizer_read_vocabulary(load) || !ignis__tokenizer_build_merges(load) ||
        !ignis__tokenizer_build_joins(load) || (unigram && !ignis__tokenizer_build_unigram(load)) ||
        !ignis__tokenizer_build_added(load) || !ignis__tokenizer_build_template(load))
        return false;
    size = load->unknown ? strlen(load->unknown) : 0;
    tokenizer->info.unknown = unigram         ? (int)load->unknown_id
                              : load->unknown ? ignis__token_find_encoded(tokenizer, load->unknown, &size)
                                              : -1;
    if (words && tokenizer->info.unknown < 0)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                      "its unk_token %s is not in its vocabulary, which WordPiece needs",
                                      ignis__name_write(load->unknown).text);
    return true;
}
