/*  models/tokenizer/tokenizer_tekken.c - tekken.json, the tokenizer of Mistral's own files

    Tokens have ranks and bytes; ids begin after those of control tokens. Any two tokens that form a third are
    joined, the one with the lowest rank first, as tiktoken does.
    May use: tokenizer_json.c, vocabulary.c, tokenizer_gguf.c (merges), charsmap.c (base64). Locks: none. */

#include "room.h"

/*  Numbers and texts of the file. Numbers that it does not have are -1. */
typedef struct ignis__tekken {
    const char *pattern;
    int64_t vocab, specials; /* all ids, and those of control tokens, which are the first */
    ignis__bytes texts;      /* of tokens, in the form of tokenizer.json; allocated at once */
    bool has_specials;
} ignis__tekken;

/*  Control tokens of files without a list of them. */
static const char *const ignis__tekken_names[] = {"<unk>",
                                                  "<s>",
                                                  "</s>",
                                                  "[INST]",
                                                  "[/INST]",
                                                  "[AVAILABLE_TOOLS]",
                                                  "[/AVAILABLE_TOOLS]",
                                                  "[TOOL_RESULTS]",
                                                  "[/TOOL_RESULTS]",
                                                  "[TOOL_CALLS]",
                                                  "[IMG]",
                                                  "<pad>",
                                                  "[IMG_BREAK]",
                                                  "[IMG_END]",
                                                  "[PREFIX]",
                                                  "[MIDDLE]",
                                                  "[SUFFIX]",
                                                  "[SYSTEM_PROMPT]",
                                                  "[/SYSTEM_PROMPT]",
                                                  "[TOOL_CONTENT]"};

/*  Appends bytes as characters, as GPT-2 encodes them. */
static bool ignis__tekken_add_bytes(ignis__bytes *to, const char *bytes, size_t size)
{
    size_t i;
    bool ok = true;
    for (i = 0; ok && i < size; i++) {
        const unsigned byte = (unsigned char)bytes[i];
        const unsigned code = byte <= 32                   ? 256 + byte
                              : byte >= 127 && byte <= 160 ? 289 + byte - 127
                              : byte == 173                ? 323
                                                           : byte;
        char text[2];
        text[0] = code < 128 ? (char)code : (char)(0xC0 | code >> 6);
        text[1] = (char)(0x80 | (code & 63));
        ok = ignis__bytes_add(to, text, code < 128 ? 1 : 2);
    }
    return ok && ignis__bytes_add(to, "", 1);
}

/*  Reads a token of "vocab". */
IGNIS__COLD static bool ignis__tekken_read_token(ignis__tokenizer_load *load, ignis__tekken *tekken)
{
    ignis__json *json = &load->json;
    ignis__token_entry *entry = (ignis__token_entry *)ignis__list_add(&load->entries);
    const int64_t place = load->entries.count - 1;
    const size_t begin = tekken->texts.size;
    const char *name, *base64 = NULL;
    int64_t rank = -1;
    size_t size;
    bool first = true;
    if (!entry)
        return ignis__tokenizer_no_memory(load);
    ignis__json_expect(json, '{');
    while ((name = ignis__json_next_field(json, &first)) != NULL) {
        if (strcmp(name, "rank") == 0)
            rank = ignis__json_count(json);
        else if (strcmp(name, "token_bytes") == 0)
            base64 = ignis__json_read_text(json);
        else
            ignis__json_skip(json);
    }
    if (json->fault[0])
        return false;
    size = base64 ? ignis__base64_decode((char *)(uintptr_t)base64) : SIZE_MAX;
    if (rank != place || size == SIZE_MAX || size == 0 || (place < 256 && size != 1))
        return ignis__tokenizer_fault(
            load, IGNIS_DIAG_TOKENIZER_FORMAT,
            "entry %lld of its vocab has rank %lld and %s; its own rank, and bytes in base64, "
            "are needed: one for each of the first 256",
            (long long)place, (long long)rank, size == SIZE_MAX ? "no bytes" : "bytes");
    if (place >= IGNIS__TOKEN_LIMIT || !ignis__tekken_add_bytes(&tekken->texts, base64, size))
        return place < IGNIS__TOKEN_LIMIT
                   ? ignis__tokenizer_no_memory(load)
                   : ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "it has more than %lld tokens",
                                            (long long)IGNIS__TOKEN_LIMIT);
    entry->text = tekken->texts.data + begin;
    entry->size = tekken->texts.size - begin - 1;
    entry->score = -(double)rank;
    entry->type = IGNIS__TYPE_NORMAL;
    return true;
}

static bool ignis__tekken_add_special(ignis__tokenizer_load *load, int64_t id, const char *text)
{
    ignis__added_token *added = (ignis__added_token *)ignis__list_add(&load->added);
    if (!added)
        return ignis__tokenizer_no_memory(load);
    added->text = text;
    added->size = strlen(text);
    added->id = (int32_t)id;
    added->order = (int)load->added.count;
    added->special = true;
    return true;
}

/*  Reads "special_tokens". */
IGNIS__COLD static bool ignis__tekken_read_specials(ignis__tokenizer_load *load, ignis__tekken *tekken)
{
    ignis__json *json = &load->json;
    bool first = true;
    if (ignis__json_skip_word(json, "null"))
        return true;
    tekken->has_specials = true;
    ignis__json_expect(json, '[');
    while (ignis__json_more(json, ']', &first)) {
        const char *name, *text = NULL;
        int64_t rank = -1;
        bool first_field = true;
        ignis__json_expect(json, '{');
        while ((name = ignis__json_next_field(json, &first_field)) != NULL) {
            if (strcmp(name, "rank") == 0)
                rank = ignis__json_count(json);
            else if (strcmp(name, "token_str") == 0)
                text = ignis__json_read_text(json);
            else
                ignis__json_skip(json);
        }
        if (json->fault[0])
            return false;
        if (rank != load->added.count || !text || !*text)
            return ignis__tokenizer_fault(
                load, IGNIS_DIAG_TOKENIZER_FORMAT, "entry %lld of its special_tokens has rank %lld and %s",
                (long long)load->added.count, (long long)rank, text && *text ? "a text" : "no text");
        if (rank >= IGNIS__TOKEN_LIMIT || !ignis__tekken_add_special(load, rank, text))
            return false;
    }
    return true;
}

/*  Reads "config". */
static void ignis__tekken_read_config(ignis__tokenizer_load *load, ignis__tekken *tekken)
{
    ignis__json *json = &load->json;
    bool first = true;
    const char *name;
    ignis__json_expect(json, '{');
    while ((name = ignis__json_next_field(json, &first)) != NULL) {
        if (strcmp(name, "pattern") == 0)
            tekken->pattern = ignis__json_read_text(json);
        else if (strcmp(name, "default_vocab_size") == 0)
            tekken->vocab = ignis__json_count(json);
        else if (strcmp(name, "default_num_special_tokens") == 0)
            tekken->specials = ignis__json_count(json);
        else
            ignis__json_skip(json);
    }
}

/*  Gives tokens their ids, and adds the control tokens that have no name. */
IGNIS__COLD static bool ignis__tekken_set_ids(ignis__tokenizer_load *load, const ignis__tekken *tekken)
{
    ignis__token_entry *entries = (ignis__token_entry *)(void *)load->entries.items;
    int64_t i;
    if (!tekken->pattern || tekken->specials < 3 || tekken->vocab < tekken->specials + 256 ||
        tekken->vocab > IGNIS__TOKEN_LIMIT || load->entries.count < tekken->vocab - tekken->specials ||
        load->added.count > tekken->specials)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                      "its config has %s pattern, default_vocab_size %lld and "
                                      "default_num_special_tokens %lld, beside %lld tokens "
                                      "and %lld special_tokens",
                                      tekken->pattern ? "a" : "no", (long long)tekken->vocab,
                                      (long long)tekken->specials, (long long)load->entries.count,
                                      (long long)load->added.count);
    load->entries.count = tekken->vocab - tekken->specials;
    for (i = 0; i < load->entries.count; i++)
        entries[i].id = i + tekken->specials;
    for (i = load->added.count; i < tekken->specials; i++) {
        char name[32];
        const char *text = name;
        snprintf(name, sizeof name, "<SPECIAL_%d>", (int)i);
        if (!tekken->has_specials && i < IGNIS__COUNT(ignis__tekken_names))
            text = ignis__tekken_names[i];
        text = ignis__tokenizer_keep_text(load->tokenizer, text, strlen(text));
        if (!text)
            return ignis__tokenizer_no_memory(load);
        if (!ignis__tekken_add_special(load, i, text))
            return false;
    }
    return true;
}

/*  Sets the ids of control tokens by their texts, and begins texts with <s>. */
IGNIS__COLD static bool ignis__tekken_set_facts(ignis__tokenizer_load *load)
{
    static const char *const names[] = {"<s>", "</s>", "<unk>", "<pad>"};
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__added_token *added = (const ignis__added_token *)(const void *)load->added.items;
    int *ids[4];
    int64_t i;
    int k;
    ids[0] = &tokenizer->info.bos;
    ids[1] = &tokenizer->info.eos;
    ids[2] = &tokenizer->info.unknown;
    ids[3] = &tokenizer->info.padding;
    for (i = 0; i < load->added.count; i++)
        for (k = 0; k < 4; k++)
            if (strcmp(added[i].text, names[k]) == 0)
                *ids[k] = (int)added[i].id;
    if (tokenizer->info.bos < 0 || tokenizer->info.eos < 0)
        return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "its special_tokens have no %s",
                                      tokenizer->info.bos < 0 ? "<s>" : "</s>");
    tokenizer->front = (int32_t *)ignis__tokenizer_keep(tokenizer, sizeof(int32_t));
    tokenizer->back = (int32_t *)ignis__tokenizer_keep(tokenizer, sizeof(int32_t));
    tokenizer->bos_text = ignis__tokenizer_keep_text(tokenizer, "<s>", 3);
    tokenizer->eos_text = ignis__tokenizer_keep_text(tokenizer, "</s>", 4);
    if (!tokenizer->front || !tokenizer->back || !tokenizer->bos_text || !tokenizer->eos_text)
        return ignis__tokenizer_no_memory(load);
    ignis__tokenizer_set_template(tokenizer->front, &tokenizer->front_count, true, tokenizer->info.bos);
    return true;
}

/*  Reads the text of tekken.json. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_read_tekken(ignis__tokenizer_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    ignis__json *json = &load->json;
    ignis__tekken tekken = IGNIS__ZERO;
    bool first = true, ok, inner;
    const char *name;
    tekken.vocab = tekken.specials = -1;
    tokenizer->byte_level = tokenizer->ignore_merges = true;
    ok = ignis__bytes_reserve(&tekken.texts, 2 * (size_t)(json->end - json->start) + 1) ||
         ignis__tokenizer_no_memory(load);
    ignis__json_expect(json, '{');
    while (ok && (name = ignis__json_next_field(json, &first)) != NULL) {
        if (strcmp(name, "config") == 0) {
            ignis__tekken_read_config(load, &tekken);
        } else if (strcmp(name, "vocab") == 0) {
            ignis__json_expect(json, '[');
            for (inner = true; ok && ignis__json_more(json, ']', &inner);)
                ok = ignis__tekken_read_token(load, &tekken);
        } else if (strcmp(name, "special_tokens") == 0) {
            ok = ignis__tekken_read_specials(load, &tekken);
        } else {
            ignis__json_skip(json);
        }
    }
    if (ok && !json->fault[0] && (ignis__json_peek(json), json->at != json->end))
        ignis__json_fail(json, "something follows the end of the JSON text");
    if (load->diagnostic == IGNIS_DIAG_NONE && json->fault[0])
        ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "%s", json->fault);
    ok = ok && load->diagnostic == IGNIS_DIAG_NONE && ignis__tekken_set_ids(load, &tekken) &&
         ignis__tokenizer_add_pattern(load, tekken.pattern, IGNIS__BEHAVIOR_ISOLATED, false) &&
         ignis__tokenizer_read_vocabulary(load) && ignis__tokenizer_build_score_merges(load) &&
         ignis__tokenizer_build_joins(load) && ignis__tokenizer_build_added(load) && ignis__tekken_set_facts(load);
    ignis__free(tekken.texts.data);
    return ok && load->diagnostic == IGNIS_DIAG_NONE;
}
