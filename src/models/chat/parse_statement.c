/* --- GGUF ------------------------------------------------------------------------------------------------------------ */

enum { IGNIS__TYPE_NORMAL = 1, IGNIS__TYPE_UNKNOWN, IGNIS__TYPE_CONTROL, IGNIS__TYPE_USER, IGNIS__TYPE_UNUSED, IGNIS__TYPE_BYTE };

/*  Tokens that end a text in whatever vocabulary they are. The list is llama.cpp's; those with a name have a rule of their own. */
enum {
    IGNIS__END_END,
    IGNIS__END_RETURN,
    IGNIS__END_FLUSH,
    IGNIS__END_CALL,
    IGNIS__END_CALLS,
    IGNIS__END_SLASH_S, /* in HTML, too: where it is an ordinary token it ends nothing */
    IGNIS__END_OTHERS
};

static const char *const ignis__text_end_list[] = {
    "<|end|>",
    "<|return|>",
    "<|flush|>",
    "<|call|>",
    "<|calls|>",
    "</s>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    ("<\xef\xbd\x9c" /* the next letter is no hexadecimal digit of it */
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
    "[e~[",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
};

/*  The number of a token of a GGUF file in that list; -1: it is not in it. */
static int ignis__text_ends(const char *text, int type)
{
    int i;
    if (*text != '<' && *text != '[' && *text != '_')
        return -1;
    for (i = 0; i < IGNIS__COUNT(ignis__text_end_list) && strcmp(text, ignis__text_end_list[i]) != 0;)
        i++;
    return i == IGNIS__COUNT(ignis__text_end_list) || (i == IGNIS__END_SLASH_S && type == IGNIS__TYPE_NORMAL) ? -1 : i;
}

/*  Names of pre-tokenizers that stand for what a tokenizer.json would have. */
static const struct {
    const char *name;
    ignis__splitter split;
    bool digits, nfc, ignore_merges, adds_bos;
} ignis__gguf_splits[] = {
    {"gpt-2", IGNIS__SPLIT_GPT2, false, false, false, false},        {"phi-2", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"jina-es", IGNIS__SPLIT_GPT2, false, false, false, false},      {"jina-de", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"jina-v2-es", IGNIS__SPLIT_GPT2, false, false, false, false},   {"jina-v2-de", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"gigachat", IGNIS__SPLIT_GPT2, false, false, false, false},     {"a.x-4.0", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"mellum", IGNIS__SPLIT_GPT2, false, false, false, false},       {"modern-bert", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"exaone4", IGNIS__SPLIT_GPT2, false, false, false, false},      {"jais", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"trillion", IGNIS__SPLIT_GPT2, false, false, false, false},     {"granite-docling", IGNIS__SPLIT_GPT2, false, false, false, false},
    {"mpt", IGNIS__SPLIT_GPT2, false, true, false, false},           {"olmo", IGNIS__SPLIT_GPT2, false, true, false, false},
    {"smollm", IGNIS__SPLIT_GPT2, true, false, false, false},        {"starcoder", IGNIS__SPLIT_GPT2, true, false, false, false},
    {"refact", IGNIS__SPLIT_GPT2, true, false, false, false},        {"codeshell", IGNIS__SPLIT_GPT2, true, false, false, false},
    {"exaone", IGNIS__SPLIT_GPT2, true, false, false, false},        {"minerva-7b", IGNIS__SPLIT_GPT2, true, false, false, false},
    {"mellum2", IGNIS__SPLIT_GPT2, true, false, false, false},       {"command-r", IGNIS__SPLIT_GPT2, true, true, false, false},
    {"llama-bpe", IGNIS__SPLIT_LLAMA3, false, false, true, true},    {"llama3", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"llama-v3", IGNIS__SPLIT_LLAMA3, false, false, true, true},     {"falcon3", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"falcon-h1", IGNIS__SPLIT_LLAMA3, false, false, true, true},    {"pixtral", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"midm-2.0", IGNIS__SPLIT_LLAMA3, false, false, true, true},     {"lfm2", IGNIS__SPLIT_LLAMA3, false, false, true, true},
    {"jina-v5-nano", IGNIS__SPLIT_LLAMA3, false, false, true, true}, {"dbrx", IGNIS__SPLIT_LLAMA3, false, false, false, false},
    {"smaug-bpe", IGNIS__SPLIT_LLAMA3, false, false, false, false},  {"chatglm-bpe", IGNIS__SPLIT_LLAMA3, false, false, false, false},
    {"glm4", IGNIS__SPLIT_LLAMA3, false, false, true, false},        {"glm5", IGNIS__SPLIT_LLAMA3, false, false, true, false},
    {"qwen2", IGNIS__SPLIT_QWEN2, false, true, false, false},        {"deepseek-r1-qwen", IGNIS__SPLIT_QWEN2, false, true, false, false},
    {"kormo", IGNIS__SPLIT_QWEN2, false, false, false, false},       {"f2llmv2", IGNIS__SPLIT_QWEN2, false, false, false, false},
    {"megrez", IGNIS__SPLIT_QWEN2, false, false, false, false},      {"stablelm2", IGNIS__SPLIT_QWEN2, false, false, false, false},
    {"hunyuan", IGNIS__SPLIT_QWEN2, false, false, false, false},     {"solar-open", IGNIS__SPLIT_QWEN2, false, false, false, false},
    {"grok-2", IGNIS__SPLIT_QWEN2, false, false, false, false},
};

#define IGNIS__SCORED_LIMIT 1024 /* bytes of a token with a score: each of its beginnings is looked up */

typedef struct ignis__scored {
    float score;
    int32_t id;
} ignis__scored;

static int ignis__scored_order(const void *a, const void *b)
{
    const ignis__scored *one = (const ignis__scored *)a, *other = (const ignis__scored *)b;
    if (one->score != other->score)
        return one->score > other->score ? -1 : 1;
    return one->id < other->id ? -1 : one->id > other->id;
}

/*  A vocabulary with scores: any two tokens that make a third are joined, of all pairs that which makes the one of the highest score. */
IGNIS__COLD static bool ignis__scores_take(ignis__text_load *load)
{
    const ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__token_entry *entries = (const ignis__token_entry *)(const void *)load->entries.items;
    ignis__scored *scored = (ignis__scored *)ignis__alloc((size_t)(load->entries.count + 1) * sizeof *scored);
    int64_t count = 0, i;
    uint32_t rank = 0;
    bool ok = scored != NULL;
    for (i = 0; ok && i < load->entries.count; i++) {
        scored[count].score = entries[i].score;
        scored[count].id = (int32_t)entries[i].id;
        count += !entries[i].apart;
    }
    if (ok && count > 1)
        qsort(scored, (size_t)count, sizeof *scored, ignis__scored_order);
    for (i = 0; ok && i < count; i++) {
        int32_t id = scored[i].id;
        const char *text = tokenizer->bytes + tokenizer->begin[id];
        size_t size = tokenizer->begin[id + 1] - tokenizer->begin[id], at;
        rank += i > 0 && scored[i].score != scored[i - 1].score;
        if (size > IGNIS__SCORED_LIMIT) {
            ignis__free(scored);
            return ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED, "token %d has %lld bytes; with scores at most %d are supported", (int)id,
                                     (long long)size, IGNIS__SCORED_LIMIT);
        }
        for (at = 1; ok && at < size; at++) {
            int32_t left, right;
            ignis__merge_entry *merge;
            if ((text[at] & 0xC0) == 0x80 || (left = ignis__token_find(tokenizer, text, at, false)) < 0 ||
                (right = ignis__token_find(tokenizer, text + at, size - at, false)) < 0)
                continue;
            merge = (ignis__merge_entry *)ignis__list_add(&load->merges);
            ok = merge != NULL;
            if (!ok)
                break;
            merge->rank = rank;
            merge->ids[0] = left;
            merge->ids[1] = right;
            merge->ids[2] = id;
        }
    }
    ignis__free(scored);
    return ok || ignis__text_no_memory(load);
}

/*  The tokens of a file, their types and scores. */
IGNIS__COLD static bool ignis__gguf_tokens(ignis__text_load *load, ignis__gguf *file, bool scores)
{
    ignis__gguf_items texts = IGNIS__ZERO, types = IGNIS__ZERO, values = IGNIS__ZERO, merges = IGNIS__ZERO;
    ignis__gguf_found got[4];
    int64_t count, i;
    size_t size;
    got[0] = ignis__gguf_array(file, "tokenizer.ggml.tokens", IGNIS__GGUF_STRING, &texts);
    got[1] = ignis__gguf_array(file, "tokenizer.ggml.token_type", IGNIS__GGUF_I64, &types);
    got[2] = scores ? ignis__gguf_array(file, "tokenizer.ggml.scores", IGNIS__GGUF_F64, &values) : IGNIS__GGUF_NONE;
    got[3] = scores ? IGNIS__GGUF_NONE : ignis__gguf_array(file, "tokenizer.ggml.merges", IGNIS__GGUF_STRING, &merges);
    for (i = 0; i < 4; i++)
        if (got[i] == IGNIS__GGUF_BAD)
            return ignis__text_fault(load, IGNIS_DIAG_GGUF_FORMAT, "%s", "");
    count = texts.left;
    if (!count || got[scores ? 2 : 3] == IGNIS__GGUF_NONE)
        return ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "it has no tokenizer.ggml.%s",
                                 !count   ? "tokens"
                                 : scores ? "scores"
                                          : "merges");
    if (count > IGNIS__TOKEN_LIMIT || (got[1] && types.left != count) || (got[2] && values.left != count))
        return ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT,
                                 "it has %lld tokens, %lld token_types and %lld scores; at most %lld tokens", (long long)count,
                                 (long long)(got[1] ? types.left : count), (long long)(got[2] ? values.left : count),
                                 (long long)IGNIS__TOKEN_LIMIT);
    for (i = 0; i < count; i++) {
        ignis__token_entry *entry = (ignis__token_entry *)ignis__list_add(&load->entries);
        int64_t type = got[1] ? ignis__gguf_next_int(&types) : (int64_t)IGNIS__TYPE_NORMAL;
        ignis__added *added;
        bool control;
        if (!entry)
            return ignis__text_no_memory(load);
        entry->text = ignis__gguf_next_text(&texts, &size);
        entry->size = size;
        entry->id = i;
        entry->type = (int)type;
        entry->apart = type != IGNIS__TYPE_NORMAL;
        entry->score = got[2] ? (float)ignis__gguf_next_real(&values) : 0;
        if (entry->score != entry->score || strlen(entry->text) != size || !ignis__utf8_valid(entry->text))
            return ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "token %lld has no score, or is no text in UTF-8", (long long)i);
        control = type == IGNIS__TYPE_CONTROL || /* what ends a text is no text that a user may write, whatever the file says */
                  ((type == IGNIS__TYPE_NORMAL || type == IGNIS__TYPE_USER) && ignis__text_ends(entry->text, (int)type) >= 0);
        if (!control && type != IGNIS__TYPE_USER)
            continue;
        added = (ignis__added *)ignis__list_add(&load->added);
        if (!added)
            return ignis__text_no_memory(load);
        added->text = entry->text;
        added->size = size;
        added->id = (int32_t)i;
        added->order = (int)load->added.count;
        added->special = control;
    }
    while (merges.left > 0) {
        ignis__merge_entry *merge = (ignis__merge_entry *)ignis__list_add(&load->merges);
        const char *both = ignis__gguf_next_text(&merges, &size);
        if (!merge)
            return ignis__text_no_memory(load);
        merge->rank = (uint32_t)(load->merges.count - 1);
        if (strlen(both) != size || !ignis__utf8_valid(both) || !ignis__merge_split(merge, both, size))
            return ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "merge %lld is not two tokens with a space between them",
                                     (long long)(load->merges.count - 1));
    }
    return true;
}

/*  Ids and switches of a file. */
IGNIS__COLD static bool ignis__gguf_facts(ignis__text_load *load, ignis__gguf *file, bool adds_bos)
{
    static const char *const names[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.padding_token_id",
                                        "tokenizer.ggml.unknown_token_id"};
    ignis__tokenizer *tokenizer = load->tokenizer;
    int *ids[4], i;
    bool add[2], ok = true;
    const char *text = NULL;
    size_t size = 0;
    ids[0] = &tokenizer->info.bos;
    ids[1] = &tokenizer->info.eos;
    ids[2] = &tokenizer->info.padding;
    ids[3] = &tokenizer->info.unknown;
    add[0] = adds_bos;
    add[1] = false;
    for (i = 0; ok && i < 4; i++) {
        int64_t id = -1;
        ignis__gguf_found got = ignis__gguf_int(file, names[i], &id);
        if (got == IGNIS__GGUF_FOUND && (id < 0 || id >= tokenizer->info.tokens)) {
            if (id != UINT32_MAX) /* none, to some writers */
                return ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "%s is %lld, and it has %d tokens", names[i], (long long)id,
                                         tokenizer->info.tokens);
        } else if (got == IGNIS__GGUF_FOUND) {
            *ids[i] = (int)id;
        }
        ok = got != IGNIS__GGUF_BAD;
    }
    ok = ok && ignis__gguf_bool(file, "tokenizer.ggml.add_bos_token", &add[0]) != IGNIS__GGUF_BAD &&
         ignis__gguf_bool(file, "tokenizer.ggml.add_eos_token", &add[1]) != IGNIS__GGUF_BAD &&
         ignis__gguf_string(file, "tokenizer.chat_template", &text, &size) != IGNIS__GGUF_BAD;
    if (!ok)
        return ignis__text_fault(load, IGNIS_DIAG_GGUF_FORMAT, "%s", "");
    tokenizer->front = (int32_t *)ignis__tokenizer_keep(tokenizer, sizeof(int32_t));
    tokenizer->back = (int32_t *)ignis__tokenizer_keep(tokenizer, sizeof(int32_t));
    if (!tokenizer->front || !tokenizer->back)
        return ignis__text_no_memory(load);
    ignis__template_set(tokenizer->front, &tokenizer->front_count, add[0], tokenizer->info.bos);
    ignis__template_set(tokenizer->back, &tokenizer->back_count, add[1], tokenizer->info.eos);
    for (i = 0; i < 2; i++) {
        const char *kept = NULL;
        if (*ids[i] < 0)
            continue;
        kept = ignis__tokenizer_keep_text(tokenizer, tokenizer->bytes + tokenizer->begin[*ids[i]],
                                          tokenizer->begin[*ids[i] + 1] - tokenizer->begin[*ids[i]]);
        if (!kept)
            return ignis__text_no_memory(load);
        *(i == 0 ? &tokenizer->bos_text : &tokenizer->eos_text) = kept;
    }
    if (text && (strlen(text) != size || !ignis__utf8_valid(text)))
        return ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "its chat template is no text in UTF-8");
    if (text && (tokenizer->chat_template = ignis__tokenizer_keep_text(tokenizer, text, size)) == NULL)
        return ignis__text_no_memory(load);
    return true;
}

/*  The tokenizer in a GGUF file, as the tokenizer.json that it was made of had it. */
IGNIS__COLD static bool ignis__text_gguf_take(ignis__text_load *load, ignis__gguf *file)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__token_entry *entries;
    const char *model = NULL, *name = NULL;
    size_t size;
    int64_t i;
    int at = IGNIS__COUNT(ignis__gguf_splits);
    bool pieces, prefix = true;
    if (ignis__gguf_string(file, "tokenizer.ggml.model", &model, &size) == IGNIS__GGUF_BAD ||
        ignis__gguf_string(file, "tokenizer.ggml.pre", &name, &size) == IGNIS__GGUF_BAD ||
        ignis__gguf_bool(file, "tokenizer.ggml.add_space_prefix", &prefix) == IGNIS__GGUF_BAD)
        return ignis__text_fault(load, IGNIS_DIAG_GGUF_FORMAT, "%s", "");
    if (!model)
        return ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "it has no tokenizer");
    pieces = strcmp(model, "llama") == 0;
    if (!pieces && strcmp(model, "gpt2") != 0)
        return ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED, "its tokenizer.ggml.model %s is not supported; gpt2 and llama are",
                                 ignis__name_write(model).text);
    for (at = 0; !pieces && at < IGNIS__COUNT(ignis__gguf_splits); at++)
        if (ignis__text_is(name, ignis__gguf_splits[at].name))
            break;
    if (!pieces && at == IGNIS__COUNT(ignis__gguf_splits))
        return ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED,
                                 "its tokenizer.ggml.pre %s is not supported; those that split as gpt-2, smollm, llama-bpe or qwen2 are",
                                 ignis__name_write(name ? name : "").text);
    tokenizer->byte_level = !pieces;
    tokenizer->byte_fallback = tokenizer->byte_decoder = tokenizer->fuse_unknown = pieces;
    if (pieces) {
        if (prefix) {
            tokenizer->normals[0].kind = IGNIS__NORMAL_PREPEND;
            tokenizer->normals[tokenizer->normal_count++].to = IGNIS__LOW_LINE;
        }
        tokenizer->normals[tokenizer->normal_count].kind = IGNIS__NORMAL_REPLACE;
        tokenizer->normals[tokenizer->normal_count].from = " ";
        tokenizer->normals[tokenizer->normal_count++].to = IGNIS__LOW_LINE;
        tokenizer->strip = prefix;
    } else {
        tokenizer->split = ignis__gguf_splits[at].split;
        tokenizer->digits = ignis__gguf_splits[at].digits;
        tokenizer->ignore_merges = ignis__gguf_splits[at].ignore_merges;
        tokenizer->normal_count = ignis__gguf_splits[at].nfc; /* of kind NFC */
    }
    if (!ignis__gguf_tokens(load, file, pieces) || !ignis__tokens_take(load) ||
        !(pieces ? ignis__scores_take(load) : ignis__merges_take(load)) || !ignis__joins_build(load) || !ignis__added_take(load))
        return false;
    entries = (const ignis__token_entry *)(const void *)load->entries.items;
    for (i = 0; i < load->entries.count; i++) {
        unsigned byte;
        if (entries[i].type == IGNIS__TYPE_BYTE && entries[i].size == 6 && sscanf(entries[i].text, "<0x%2x>", &byte) == 1)
            tokenizer->fallback[byte] = (int32_t)i;
        if (entries[i].type == IGNIS__TYPE_UNKNOWN)
            tokenizer->info.unknown = (int)i;
        if (entries[i].type == IGNIS__TYPE_UNKNOWN && pieces)
            tokenizer->flags[i] |= IGNIS__TOKEN_CONTROL;
    }
    return ignis__gguf_facts(load, file, pieces || ignis__gguf_splits[at].adds_bos);
}

/*  Says what family a tokenizer is of, and fills in the rest of its facts. */
static void ignis__tokenizer_facts(ignis__tokenizer *tokenizer)
{
    static const char *const families[] = {"bytes", "gpt2", "llama3", "qwen2"};
    ignis_tokenizer_info *info = &tokenizer->info;
    info->kind = tokenizer->byte_level ? IGNIS_TOKENIZER_BYTES : IGNIS_TOKENIZER_PIECES;
    snprintf(info->family, sizeof info->family, "%s",
             !tokenizer->byte_level                                       ? "llama"
             : tokenizer->digits && tokenizer->split == IGNIS__SPLIT_GPT2 ? "smollm"
                                                                          : families[tokenizer->split]);
    info->adds_bos = tokenizer->front_count > 0 && tokenizer->front[0] == info->bos;
    info->has_template = tokenizer->chat_template != NULL;
}

static bool ignis__text_is_gguf(const char *path)
{
    char first[4];
    int64_t size;
    int file = ignis__file_open(path, &size);
    bool is = file >= 0 && ignis__file_read_at(file, 0, first, 4) == 4 && memcmp(first, "GGUF", 4) == 0;
    if (file >= 0)
        ignis__file_close(file);
    return is;
}

/*  Fills in a tokenizer; load->path is that of the file which a fault is in. */
IGNIS__COLD static void ignis__text_open(ignis__text_load *load, const char *given, char *path, size_t path_size)
{
    int64_t length, time;
    size_t size;
    char *text;
    bool folder = !ignis__file_info(given, &length, &time);
    ignis__gguf gguf;
    load->path = path;
    snprintf(path, path_size, folder ? "%s/tokenizer.json" : "%s", given);
    if (!folder && ignis__text_is_gguf(path)) {
        if (!ignis__gguf_open(load->call, path, &gguf)) {
            ignis__text_fault(load, IGNIS_DIAG_GGUF_FORMAT, "%s", "");
            return;
        }
        (void)ignis__text_gguf_take(load, &gguf);
        ignis__gguf_close(&gguf);
        return;
    }
    text = ignis__text_file(load, path, true, &size);
    if (text && ignis__text_json_read(load) && ignis__text_json_take(load) && folder)
        (void)ignis__text_beside_take(load, given, path, path_size);
    ignis__free(text);
}

IGNIS__COLD IGNIS_API ignis_tokenizer ignis_tokenizer_open(const char *path)
{
    static const char call[] = "ignis_tokenizer_open";
    ignis_tokenizer handle = IGNIS__ZERO;
    ignis__text_load load = IGNIS__ZERO;
    ignis__tokenizer *tokenizer;
    char *file;
    size_t size;
    if (!ignis__enter(call))
        return handle;
    if (!path) {
        ignis__fail_null(call, "path");
        return handle;
    }
    size = strlen(path) + 64;
    file = (char *)ignis__alloc(size);
    if (!file) {
        ignis__fail_host_memory(call, size);
        return handle;
    }
    tokenizer = (ignis__tokenizer *)ignis__pool_take(call, &ignis__tokenizers);
    if (tokenizer) {
        ignis__text_load_begin(&load, call, tokenizer);
        ignis__text_open(&load, path, file, size);
        if (load.diagnostic == IGNIS_DIAG_NONE) {
            ignis__tokenizer_facts(tokenizer);
            handle.id = ignis__pool_publish(&ignis__tokenizers, tokenizer);
        } else {
            if (*load.fault)
                ignis__fail(load.diagnostic, call, "'%s': %s", file, load.fault);
            ignis__tokenizer_destroy(tokenizer);
        }
        ignis__text_load_end(&load);
    }
    ignis__free(file);
    return handle;
}

IGNIS__COLD IGNIS_API ignis_status ignis_tokenizer_free(ignis_tokenizer tokenizer)
{
    static const char call[] = "ignis_tokenizer_free";
    const uint64_t failures = ignis__failures();
    ignis_status status = IGNIS_OK;
    ignis__tokenizer *held;
    if (!tokenizer.id)
        return IGNIS_OK;
    held = ignis__tokenizer_hold(call, tokenizer);
    if (!held)
        return ignis__failed();
    if (!ignis__handle_kill(held))
        status = ignis__fail(IGNIS_DIAG_TOKENIZER_FREED, call, "another thread has freed the tokenizer");
    ignis__tokenizer_drop(held);
    return status == IGNIS_OK ? ignis__ended(failures, true) : status;
}

IGNIS__COLD IGNIS_API ignis_status ignis_tokenizer_query(ignis_tokenizer tokenizer, ignis_tokenizer_info *info)
{
    static const char call[] = "ignis_tokenizer_query";
    ignis__tokenizer *held = ignis__tokenizer_hold(call, tokenizer);
    if (!held)
        return ignis__failed();
    if (info)
        *info = held->info;
    ignis__tokenizer_drop(held);
    return info ? IGNIS_OK : ignis__fail_null(call, "info");
}

/*  The ids of a text, of which spans are plain, for a public call; -1, and reported: none. */
static int ignis__tokenizer_encode(const char *call, ignis__tokenizer *tokenizer, const char *text, size_t size,
                                   const ignis_encode_desc *desc, const ignis__plain_span *spans, int64_t span_count, int32_t *ids,
                                   int capacity)
{
    ignis__encoder encoder = IGNIS__ZERO;
    int count = -1;
    encoder.tokenizer = tokenizer;
    encoder.plain = desc && desc->plain;
    encoder.spans = spans;
    encoder.span_count = span_count;
    encoder.ids = ids;
    encoder.capacity = capacity;
    if (!ignis__encode(&encoder, text, size, desc && desc->no_bos) && encoder.too_long)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the text has more than %lld bytes once it is normalized", (long long)IGNIS__TEXT_LIMIT);
    else if (encoder.failed)
        ignis__fail_host_memory(call, size);
    else if (encoder.unclear)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "this tokenizer finds control tokens in normalized text, where it is not known whether a message has written them");
    else if (encoder.count > INT32_MAX)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "the text has %lld tokens, above 2^31", (long long)encoder.count);
    else
        count = (int)encoder.count;
    ignis__encoder_close(&encoder);
    return count;
}

IGNIS_API int ignis_tokenizer_encode(ignis_tokenizer tokenizer, const char *text, int64_t size, const ignis_encode_desc *desc, int32_t *ids,
                                     int capacity)
{
    static const char call[] = "ignis_tokenizer_encode";
    ignis__tokenizer *held = ignis__tokenizer_hold(call, tokenizer);
    int count = -1;
    if (!held)
        return -1;
    if ((!text && size != 0) || (!ids && capacity > 0))
        ignis__fail_null(call, !text && size != 0 ? "text" : "ids");
    else if (capacity < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    else if (size < 0 || size > IGNIS__TEXT_LIMIT)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld; texts have 0 to %lld bytes", (long long)size, (long long)IGNIS__TEXT_LIMIT);
    else
        count = ignis__tokenizer_encode(call, held, text ? text : "", (size_t)size, desc, NULL, 0, ids, capacity);
    ignis__tokenizer_drop(held);
    return count;
}

/*  Adds what an id stands for. first: no text comes before it. False: there is no memory. */
static bool ignis__token_add(const ignis__tokenizer *tokenizer, int32_t id, bool first, ignis__bytes *out)
{
    const char *text = tokenizer->bytes + tokenizer->begin[id];
    size_t size = tokenizer->begin[id + 1] - tokenizer->begin[id], at, begin = 0;
    unsigned byte;
    char c;
    if (tokenizer->byte_level)
        return ignis__bytes_add(out, text, size);
    if (tokenizer->byte_decoder && size == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>' &&
        strspn(text + 3, "0123456789ABCDEFabcdef") == 2 && sscanf(text + 3, "%2x", &byte) == 1) {
        c = (char)byte;
        return ignis__bytes_add(out, &c, 1);
    }
    for (at = 0; at + 3 <= size;) {
        bool taken =
            first && (tokenizer->metaspace_decoder == IGNIS__METASPACE_ALWAYS || tokenizer->metaspace_decoder == IGNIS__METASPACE_FIRST);
        if (memcmp(text + at, IGNIS__LOW_LINE, 3) != 0) {
            at++;
            continue;
        }
        if (!ignis__bytes_add(out, text + begin, at - begin) || (!taken && !ignis__bytes_add(out, " ", 1)))
            return false;
        begin = at += 3;
    }
    return ignis__bytes_add(out, text + begin, size - begin);
}

/*  Whether an id is one; if not, it is reported. */
static bool ignis__token_check(const char *call, const ignis__tokenizer *tokenizer, int32_t id)
{
    if (id >= 0 && id < tokenizer->info.tokens)
        return true;
    ignis__fail(IGNIS_DIAG_TOKEN_RANGE, call, "there is no id %d; those of this tokenizer are below %d", (int)id, tokenizer->info.tokens);
    return false;
}

IGNIS_API int64_t ignis_tokenizer_decode(ignis_tokenizer tokenizer, const int32_t *ids, int count, const ignis_decode_desc *desc, char *out,
                                         int64_t capacity)
{
    static const char call[] = "ignis_tokenizer_decode";
    ignis__bytes bytes = IGNIS__ZERO;
    ignis__tokenizer *held = ignis__tokenizer_hold(call, tokenizer);
    int64_t size = -1;
    int i, strip;
    bool first = true, known = true, room = true;
    if (!held)
        return -1;
    if ((!ids && count > 0) || (!out && capacity > 0)) {
        ignis__fail_null(call, !ids && count > 0 ? "ids" : "out");
    } else if (count < 0 || capacity < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "%s is below 0", count < 0 ? "count" : "capacity");
    } else {
        for (i = 0; known && room && i < count; i++) {
            known = ignis__token_check(call, held, ids[i]);
            if (!known || (held->flags[ids[i]] & IGNIS__TOKEN_CONTROL && !(desc && desc->control)))
                continue;
            room = ignis__token_add(held, ids[i], first, &bytes);
            first = false;
        }
        if (!room)
            ignis__fail_host_memory(call, bytes.size);
        for (strip = 0; room && strip < held->strip && (size_t)strip < bytes.size && bytes.data[strip] == ' '; strip++)
            continue;
        size = known && room ? (int64_t)bytes.size - strip : -1;
        if (size > 0 && capacity > 0)
            memcpy(out, bytes.data + strip, (size_t)(size < capacity ? size : capacity));
        ignis__free(bytes.data);
    }
    ignis__tokenizer_drop(held);
    return size;
}

IGNIS_API int ignis_tokenizer_piece(ignis_tokenizer tokenizer, int32_t id, char *out, int capacity)
{
    static const char call[] = "ignis_tokenizer_piece";
    ignis__bytes bytes = IGNIS__ZERO;
    ignis__tokenizer *held = ignis__tokenizer_hold(call, tokenizer);
    int size = -1;
    if (!held)
        return -1;
    if (!out && capacity > 0) {
        ignis__fail_null(call, "out");
    } else if (capacity < 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    } else if (ignis__token_check(call, held, id)) {
        if (!ignis__token_add(held, id, false, &bytes)) {
            ignis__fail_host_memory(call, bytes.size);
        } else {
            size = (int)bytes.size;
            if (size > 0 && capacity > 0)
                memcpy(out, bytes.data, (size_t)(size < capacity ? size : capacity));
        }
        ignis__free(bytes.data);
    }
    ignis__tokenizer_drop(held);
    return size;
}

/*  Whether a stream's call has what it needs. */
static bool ignis__stream_check(const char *call, const ignis_text_stream *stream, const char *out, int capacity)
{
    if (!stream || (!out && capacity > 0))
        ignis__fail_null(call, stream ? "out" : "stream");
    else if (capacity < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %d, below 0", capacity);
    else if (stream->held_count < 0 || stream->held_count > 3)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "stream is no stream: zero it first");
    else
        return true;
    return false;
}

IGNIS_API int ignis_text_stream_put(ignis_text_stream *stream, int32_t id, char *out, int capacity)
{
    static const char call[] = "ignis_text_stream_put";
    ignis__tokenizer *held = NULL;
    ignis_text_stream next;
    ignis__bytes bytes = IGNIS__ZERO, fixed = IGNIS__ZERO;
    int size = -1;
    size_t at = 0, before;
    bool ok, open = false;
    if (!ignis__enter(call) || !ignis__stream_check(call, stream, out, capacity) ||
        (held = ignis__tokenizer_hold(call, stream->tokenizer)) == NULL)
        return -1;
    if (!ignis__token_check(call, held, id)) {
        ignis__tokenizer_drop(held);
        return -1;
    }
    if (held->flags[id] & IGNIS__TOKEN_CONTROL && !stream->control) {
        ignis__tokenizer_drop(held);
        return 0;
    }
    next = *stream;
    ok = ignis__bytes_add(&bytes, next.held, (size_t)next.held_count);
    before = bytes.size;
    ok = ok && ignis__token_add(held, id, !next.inside && next.stripped == 0 && next.held_count == 0, &bytes);
    /* spaces at the front of the text; where a byte of a character is held back, that is over */
    while (!next.inside && next.stripped < held->strip && before == 0 && at < bytes.size && bytes.data[at] == ' ')
        at++, next.stripped++;
    if (at < bytes.size || held->strip == 0)
        next.inside = true;
    for (before = at; ok && at < bytes.size && !open;) { /* whole characters */
        int length = ignis__utf8_length(bytes.data + at, bytes.size - at);
        at += (size_t)(length > 0 ? length : ignis__utf8_broken(bytes.data + at, bytes.size - at, &open));
    }
    next.held_count = 0;
    if (open) {
        for (at = bytes.size - 1; (bytes.data[at] & 0xC0) == 0x80; at--)
            continue;
        next.held_count = (int)(bytes.size - at);
        memcpy(next.held, bytes.data + at, bytes.size - at);
    }
    ok = ok && ignis__bytes_add_fixed(&fixed, bytes.data + before, at - before);
    if (!ok) {
        ignis__fail_host_memory(call, bytes.size);
    } else {
        size = (int)fixed.size;
        if (size <= capacity) {
            if (size)
                memcpy(out, fixed.data, fixed.size);
            *stream = next;
        }
    }
    ignis__free(bytes.data);
    ignis__free(fixed.data);
    ignis__tokenizer_drop(held);
    return size;
}

IGNIS_API int ignis_text_stream_end(ignis_text_stream *stream, char *out, int capacity)
{
    static const char call[] = "ignis_text_stream_end";
    int size;
    if (!ignis__enter(call) || !ignis__stream_check(call, stream, out, capacity))
        return -1;
    size = stream->held_count ? 3 : 0;
    if (size > capacity)
        return size;
    if (size)
        memcpy(out, "\xEF\xBF\xBD", 3);
    stream->held_count = stream->stripped = 0;
    stream->inside = false;
    return size;
}

/* ===============================================================================================================
   >>chat - chat templates: a small Jinja, bounded in steps, depth and output.
   =============================================================================================================== */

/*  A template is read once into nodes, which are then walked. Everything lies in one arena. Text carries a mark for each byte: 1 where it came from
    the caller's messages or variables, so that ignis_chat_encode can tell what a message says from what the template says. Operations keep
    marks; where it is not clear which byte is whose, the result is marked. */

#ifndef IGNIS__CHAT_STEPS
#define IGNIS__CHAT_STEPS 20000000   /* nodes walked, items, pieces written, 4 characters looked at, 64 bytes copied or compared */
#define IGNIS__CHAT_MEMORY 268435456 /* bytes of the arena */
#endif
#define IGNIS__CHAT_DEPTH 250    /* nodes inside nodes while they are walked: the C stack */
#define IGNIS__CHAT_NESTING 80   /* nodes inside nodes of the template's text */
#define IGNIS__CHAT_RANGE 100000 /* as jinja2's sandbox */

/* --- values ------------------------------------------------------------------------------------------------------- */

typedef enum ignis__chat_kind {
    IGNIS__CHAT_ABSENT, /* an argument that is not given */
    IGNIS__CHAT_UNDEFINED,
    IGNIS__CHAT_NONE,
    IGNIS__CHAT_BOOL,
    IGNIS__CHAT_INT,
    IGNIS__CHAT_FLOAT,
    IGNIS__CHAT_STRING,
    IGNIS__CHAT_LIST, /* from here to GENERATOR: items */
    IGNIS__CHAT_TUPLE,
    IGNIS__CHAT_RANGE_OF,
    IGNIS__CHAT_KEYS,
    IGNIS__CHAT_VALUES,
    IGNIS__CHAT_ITEMS,
    IGNIS__CHAT_GENERATOR, /* can be walked once */
    IGNIS__CHAT_DICT,      /* items: key, value, key, value ... */
    IGNIS__CHAT_NAMESPACE, /* the same */
    IGNIS__CHAT_LOOP,
    IGNIS__CHAT_MACRO,
    IGNIS__CHAT_FUNCTION, /* of the table; a method has an object */
    IGNIS__CHAT_KINDS
} ignis__chat_kind;

static const char *const ignis__chat_kinds[] = {"",     "Undefined", "NoneType",    "bool",      "int",         "float",      "str",
                                                "list", "tuple",     "range",       "dict_keys", "dict_values", "dict_items", "generator",
                                                "dict", "Namespace", "LoopContext", "Macro",     "function"};

typedef struct ignis__chat_value {
    unsigned char kind;
    unsigned char of;  /* undefined: the kind of what lacks it, 0 for a variable. A string: 1 behind |safe */
    bool mark;         /* of what is no string: it came from the caller */
    int64_t number;    /* a bool, an int; the bytes of a string, or of the name of what is undefined; the row of a function */
    const char *marks; /* of a string: one for each byte; null: none is marked */
    union {
        double real;
        const char *text; /* a string; the name of what is undefined */
        struct ignis__chat_items *items;
        struct ignis__chat_loop *loop;
        struct ignis__chat_macro *macro;
        struct ignis__chat_value *object;
    } u;
} ignis__chat_value;

typedef struct ignis__chat_items {
    ignis__chat_value *item;
    int64_t count, capacity;
    int64_t at; /* of a generator: those before it are gone */
} ignis__chat_items;

/*  Text that is being written. */
typedef struct ignis__chat_writer {
    char *text, *marks;
    size_t size, capacity;
} ignis__chat_writer;

typedef struct ignis__chat_scope {
    struct ignis__chat_scope *outer;
    ignis__chat_items names; /* name, value ... */
} ignis__chat_scope;

/* --- nodes -------------------------------------------------------------------------------------------------------- */

typedef enum ignis__chat_op {
    IGNIS__CHAT_CONST,
    IGNIS__CHAT_NAME,
    IGNIS__CHAT_ITEMS_OF, /* sign: the kind, of list, tuple or dict; list: the items, of a dict key, value ... */
    IGNIS__CHAT_ITEM,     /* a[b] */
    IGNIS__CHAT_SLICE,    /* a[list] */
    IGNIS__CHAT_ATTRIBUTE,
    IGNIS__CHAT_CALL, /* a(list) */
    IGNIS__CHAT_FILTER,
    IGNIS__CHAT_TEST,
    IGNIS__CHAT_UNARY,
    IGNIS__CHAT_CHOICE,  /* a if b else c */
    IGNIS__CHAT_CAPTURE, /* what the statements of b write */
    IGNIS__CHAT_BINARY,
    IGNIS__CHAT_COMPARE, /* a, then list, whose nodes have the operators */
    IGNIS__CHAT_TEXT,    /* statements from here on */
    IGNIS__CHAT_PRINT,
    IGNIS__CHAT_IF,  /* list: branches, each a condition (a) and a body (b) */
    IGNIS__CHAT_FOR, /* for a in b if c; list: the body, then d: that of else */
    IGNIS__CHAT_SET,
    IGNIS__CHAT_SET_BLOCK,
    IGNIS__CHAT_MACRO_OF,   /* list: its parameters; b: its body, in which sign: `caller` is named */
    IGNIS__CHAT_CALL_BLOCK, /* a: a call, which is given the macro b */
    IGNIS__CHAT_BLOCK,      /* a scope of its own */
    IGNIS__CHAT_BREAK,
    IGNIS__CHAT_CONTINUE,
} ignis__chat_op;

typedef struct ignis__chat_node {
    unsigned char op, sign; /* sign: which operator, or which kind */
    size_t at;              /* in the template */
    struct ignis__chat_node *a, *b, *c, *list, *last, *next;
    ignis__chat_value value; /* a constant; the name of a variable, attribute, filter or test; the name of a keyword argument */
} ignis__chat_node;

typedef struct ignis__chat_macro {
    const ignis__chat_node *node;
    ignis__chat_scope *scope;
} ignis__chat_macro;

typedef struct ignis__chat_loop {
    const ignis__chat_node *node;
    ignis__chat_scope *outer;
    ignis__chat_items *items;       /* as they come, before the loop's condition */
    int64_t next, end, index, base; /* the next one of them; how many have come out; how many had when `end` was set */
    bool filtered, peeked;          /* the next item is known */
    ignis__chat_value before, now, after;
} ignis__chat_loop;

typedef struct ignis__chat_chunk {
    struct ignis__chat_chunk *next;
    size_t size, used;
} ignis__chat_chunk;

/*  A template being read and walked. After the first fault every token is the end, and nothing is walked any more. */
typedef struct ignis__chat {
    ignis__chat_chunk *chunk;
    size_t memory;
    int64_t now;      /* seconds since 1970; 0: ask the clock */
    const char *text; /* the template, whose lines end with \n alone */
    size_t size, at;  /* behind the current token */
    size_t start;     /* of the current token */
    char kind; /* a name (a), an integer (0), a number (.), a string ("), an operator (+), the end of a tag (E), of the template (0) */
    char tag;  /* which one is read: { or % */
    int brackets, nesting, loops;
    bool line_start; /* what was read last ended a line */
    bool caller;     /* the macro that is being read names it */
    int64_t steps;
    int depth;
    size_t here; /* of the node that is walked */
    ignis__chat_scope *scope;
    ignis__chat_writer *out;
    ignis_diagnostic fault; /* 0: none */
    size_t fault_at;
    ignis__chat_node spare; /* nodes made after a fault */
    char message[600];
} ignis__chat;

IGNIS__PRINTF(4, 5)
IGNIS__COLD static ignis__chat_value ignis__chat_fault(ignis__chat *c, ignis_diagnostic diagnostic, size_t at, const char *format, ...)
{
    ignis__chat_value undefined;
    va_list args;
    memset(&undefined, 0, sizeof undefined);
    undefined.kind = IGNIS__CHAT_UNDEFINED;
    if (!c->fault) {
        va_start(args, format);
        vsnprintf(c->message, sizeof c->message, format, args);
        va_end(args);
        c->fault = diagnostic;
        c->fault_at = at;
        c->kind = 0;
    }
    return undefined;
}
#define ignis__chat_fail(c, ...) ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, (c)->here, __VA_ARGS__)
#define ignis__chat_lacks(c, ...) ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, (c)->here, __VA_ARGS__)

/*  Counts work; false when there was too much of it, or a fault. */
static bool ignis__chat_work(ignis__chat *c, int64_t steps)
{
    c->steps += steps;
    if (c->steps > IGNIS__CHAT_STEPS)
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_LIMIT, c->here, "the template takes more than %d steps", IGNIS__CHAT_STEPS);
    return !c->fault;
}

/*  Memory of the arena, zeroed; null after a fault. */
static void *ignis__chat_alloc(ignis__chat *c, size_t size)
{
    ignis__chat_chunk *chunk = c->chunk;
    void *memory;
    size = (size + 15) / 16 * 16;
    if (c->fault)
        return NULL;
    if (!chunk || chunk->size - chunk->used < size) {
        size_t room = size > 32768 ? size : 32768, head = (sizeof *chunk + 15) / 16 * 16;
        if (size > IGNIS__CHAT_MEMORY || c->memory + room > IGNIS__CHAT_MEMORY) {
            ignis__chat_fault(c, IGNIS_DIAG_CHAT_LIMIT, c->here, "the template takes more than %d bytes of memory", IGNIS__CHAT_MEMORY);
            return NULL;
        }
        chunk = (ignis__chat_chunk *)ignis__alloc(head + room);
        if (!chunk) {
            ignis__chat_fault(c, IGNIS_DIAG_HOST_MEMORY, c->here, "out of host memory: %lld bytes were asked for",
                              (long long)(head + room));
            return NULL;
        }
        chunk->size = head + room;
        chunk->used = head;
        chunk->next = c->chunk;
        c->chunk = chunk;
        c->memory += room;
    }
    memory = (char *)chunk + chunk->used;
    chunk->used += size;
    return memory;
}

static ignis__chat_value ignis__chat_make(ignis__chat_kind kind, int64_t number)
{
    ignis__chat_value value;
    memset(&value, 0, sizeof value);
    value.kind = (unsigned char)kind;
    value.number = number;
    return value;
}

static ignis__chat_value ignis__chat_bool(bool yes) { return ignis__chat_make(IGNIS__CHAT_BOOL, yes); }

static ignis__chat_value ignis__chat_real(double real)
{
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_FLOAT, 0);
    value.u.real = real;
    return value;
}

static ignis__chat_value ignis__chat_string(const char *text, size_t size, const char *marks)
{
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_STRING, (int64_t)size);
    value.u.text = text;
    value.marks = marks;
    return value;
}

static ignis__chat_value ignis__chat_words(const char *text) { return ignis__chat_string(text, strlen(text), NULL); }

static ignis__chat_value ignis__chat_part(ignis__chat_value string, size_t from, size_t to)
{
    ignis__chat_value part = string;
    part.u.text += from;
    part.number = (int64_t)(to - from);
    if (part.marks)
        part.marks += from;
    return part;
}

static bool ignis__chat_is(ignis__chat_value value, const char *text)
{
    return (size_t)value.number == strlen(text) && memcmp(value.u.text, text, (size_t)value.number) == 0;
}

/*  Is it one of the words of a list with spaces between? */
static bool ignis__chat_in_words(const char *words, const char *text, int64_t size)
{
    int64_t length;
    for (; *words; words += length + (words[length] == ' ')) {
        length = (int64_t)strcspn(words, " ");
        if (length == size && memcmp(words, text, (size_t)size) == 0)
            return true;
    }
    return false;
}

/*  A new value of items. */
static ignis__chat_value ignis__chat_new(ignis__chat *c, ignis__chat_kind kind)
{
    ignis__chat_value value = ignis__chat_make(kind, 0);
    value.u.items = (ignis__chat_items *)ignis__chat_alloc(c, sizeof *value.u.items);
    return value.u.items ? value : ignis__chat_make(IGNIS__CHAT_UNDEFINED, 0);
}

static void ignis__chat_add(ignis__chat *c, ignis__chat_items *items, ignis__chat_value value)
{
    if (c->fault)
        return;
    if (items->count == items->capacity) {
        int64_t capacity = items->capacity ? 2 * items->capacity : 8;
        ignis__chat_value *larger = (ignis__chat_value *)ignis__chat_alloc(c, (size_t)capacity * sizeof *larger);
        if (!larger)
            return;
        if (items->count)
            memcpy(larger, items->item, (size_t)items->count * sizeof *larger);
        items->item = larger;
        items->capacity = capacity;
    }
    items->item[items->count++] = value;
}

static void ignis__chat_add_all(ignis__chat *c, ignis__chat_items *items, const ignis__chat_items *more)
{
    int64_t i;
    for (i = 0; !c->fault && i < more->count && ignis__chat_work(c, 1); i++)
        ignis__chat_add(c, items, more->item[i]);
}

/*  Makes room for so many bytes in all. */
static bool ignis__chat_reserve(ignis__chat *c, ignis__chat_writer *out, size_t capacity)
{
    char *larger = (char *)ignis__chat_alloc(c, capacity), *marked = (char *)ignis__chat_alloc(c, capacity);
    if (!larger || !marked)
        return false;
    if (out->size) {
        memcpy(larger, out->text, out->size);
        memcpy(marked, out->marks, out->size);
    }
    out->text = larger;
    out->marks = marked;
    out->capacity = capacity;
    return true;
}

/*  Adds bytes, whose marks are those given, or where that is null all `mark`. */
static void ignis__chat_write(ignis__chat *c, ignis__chat_writer *out, const char *text, size_t size, const char *marks, bool mark)
{
    if (!ignis__chat_work(c, 1 + (int64_t)(size / 64)) || size == 0)
        return;
    if (out->capacity - out->size < size && !ignis__chat_reserve(c, out, out->size + size < 128 ? 256 : 2 * (out->size + size)))
        return;
    memcpy(out->text + out->size, text, size);
    if (marks)
        memcpy(out->marks + out->size, marks, size);
    else
        memset(out->marks + out->size, mark, size);
    out->size += size;
}

static void ignis__chat_write_string(ignis__chat *c, ignis__chat_writer *out, ignis__chat_value string)
{
    ignis__chat_write(c, out, string.u.text, (size_t)string.number, string.marks, false);
}

static void ignis__chat_write_words(ignis__chat *c, ignis__chat_writer *out, const char *text, bool mark)
{
    ignis__chat_write(c, out, text, strlen(text), NULL, mark);
}

static ignis__chat_value ignis__chat_written(const ignis__chat_writer *out)
{
    return ignis__chat_string(out->text ? out->text : "", out->size, out->marks);
}

/*  Where the character before a place begins. */
static size_t ignis__chat_before(const char *text, size_t at)
{
    do
        at--;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

static uint32_t ignis__chat_code(const char *text)
{
    int length;
    return ignis__utf8_code(text, &length);
}

static int64_t ignis__chat_characters(ignis__chat *c, ignis__chat_value string)
{
    int64_t count = 0, i;
    ignis__chat_work(c, string.number / 16);
    for (i = 0; i < string.number; i++)
        count += ((unsigned char)string.u.text[i] & 0xC0) != 0x80;
    return count;
}

/*  White space as Python's str.isspace has it. */
static bool ignis__chat_is_space(const char *text)
{
    uint32_t code = ignis__chat_code(text);
    return ignis__char_space(code) || (code >= 28 && code <= 31);
}

/*  Ends of lines as Python's str.splitlines has them; the bytes of one, 0 for none. */
static size_t ignis__chat_line_end(const char *text, size_t left)
{
    uint32_t code = ignis__chat_code(text);
    if (code == 13)
        return left > 1 && text[1] == 10 ? 2 : 1;
    if ((code >= 10 && code <= 12) || (code >= 28 && code <= 30))
        return 1;
    return code == 0x85 ? 2 : code == 0x2028 || code == 0x2029 ? 3 : 0;
}

/*  Is any of it from the caller? */
static bool ignis__chat_marked(ignis__chat_value value)
{
    if (value.kind != IGNIS__CHAT_STRING)
        return value.mark;
    return value.marks && value.number > 0 && memchr(value.marks, 1, (size_t)value.number) != NULL;
}

/*  A failure that says which kind came, or what is undefined. */
IGNIS__COLD static ignis__chat_value ignis__chat_fail_kind(ignis__chat *c, const char *what, ignis__chat_value value)
{
    int length = (int)(value.number < 60 ? value.number : 60);
    if (value.kind != IGNIS__CHAT_UNDEFINED)
        return ignis__chat_fail(c, "%s, not %s", what, ignis__chat_kinds[value.kind]);
    if (!value.u.text)
        return ignis__chat_fail(c, "a value is undefined");
    if (value.of)
        return ignis__chat_fail(c, "%s has no '%.*s'", ignis__chat_kinds[value.of], length, value.u.text);
    return ignis__chat_fail(c, "'%.*s' is undefined", length, value.u.text);
}

/*  Bytes of the character at a place of text that is well-formed. */
static size_t ignis__chat_character(const char *text)
{
    int length;
    (void)ignis__utf8_code(text, &length);
    return (size_t)length;
}

static bool ignis__chat_is_number(ignis__chat_value v) { return v.kind >= IGNIS__CHAT_BOOL && v.kind <= IGNIS__CHAT_FLOAT; }
static bool ignis__chat_has_items(ignis__chat_value v) { return v.kind >= IGNIS__CHAT_LIST && v.kind <= IGNIS__CHAT_GENERATOR; }
static bool ignis__chat_is_whole(ignis__chat_value v) { return v.kind == IGNIS__CHAT_BOOL || v.kind == IGNIS__CHAT_INT; }
static double ignis__chat_as_real(ignis__chat_value v) { return v.kind == IGNIS__CHAT_FLOAT ? v.u.real : (double)v.number; }

static bool ignis__chat_true(ignis__chat_value v)
{
    if (v.kind == IGNIS__CHAT_DICT || (v.kind >= IGNIS__CHAT_LIST && v.kind < IGNIS__CHAT_GENERATOR))
        return v.u.items->count != 0;
    if (v.kind == IGNIS__CHAT_FLOAT)
        return v.u.real != 0;
    return v.kind > IGNIS__CHAT_STRING || (v.kind >= IGNIS__CHAT_BOOL && v.number != 0);
}

static int64_t ignis__chat_find(ignis__chat *c, const ignis__chat_items *items, ignis__chat_value key);

/*  -1, 0, 1 as Python orders numbers, strings, lists and tuples; 2: they have no order. `equal` asks only whether it is 0. */
static int ignis__chat_compare(ignis__chat *c, ignis__chat_value a, ignis__chat_value b, bool equal, int depth)
{
    bool numbers = ignis__chat_is_number(a) && ignis__chat_is_number(b);
    int64_t i, k, count;
    int sign = 0;
    if (depth > IGNIS__CHAT_NESTING)
        ignis__chat_fail(c, "values are nested deeper than %d", IGNIS__CHAT_NESTING);
    if (!ignis__chat_work(c, 1))
        return 2;
    if (numbers && (a.kind == IGNIS__CHAT_FLOAT || b.kind == IGNIS__CHAT_FLOAT)) {
        double x = ignis__chat_as_real(a), y = ignis__chat_as_real(b);
        return x < y ? -1 : x > y ? 1 : x == y ? 0 : 3; /* nan */
    }
    if (numbers)
        return (a.number > b.number) - (a.number < b.number);
    if (a.kind != b.kind)
        return 2;
    switch (a.kind) {
    case IGNIS__CHAT_UNDEFINED:
    case IGNIS__CHAT_NONE: return equal ? 0 : 2;
    case IGNIS__CHAT_STRING:
        if (equal && a.number != b.number)
            return 2;
        count = a.number < b.number ? a.number : b.number;
        ignis__chat_work(c, count / 64);
        sign = memcmp(a.u.text, b.u.text, (size_t)count);
        return sign ? (sign > 0) - (sign < 0) : (a.number > b.number) - (a.number < b.number);
    case IGNIS__CHAT_LIST:
    case IGNIS__CHAT_TUPLE:
    case IGNIS__CHAT_RANGE_OF:
        count = b.u.items->count;
        if (equal ? a.u.items->count != count : a.kind == IGNIS__CHAT_RANGE_OF)
            return 2;
        for (i = 0; i < a.u.items->count && i < count && !sign; i++) {
            sign = ignis__chat_compare(c, a.u.items->item[i], b.u.items->item[i], true, depth + 1);
            if (sign && !equal)
                sign = ignis__chat_compare(c, a.u.items->item[i], b.u.items->item[i], false, depth + 1);
        }
        return sign ? sign : (a.u.items->count > count) - (a.u.items->count < count);
    case IGNIS__CHAT_DICT:
        if (!equal || a.u.items->count != b.u.items->count)
            return 2;
        for (i = 0; i < a.u.items->count && !sign; i += 2) {
            k = ignis__chat_find(c, b.u.items, a.u.items->item[i]);
            sign = k < 0 ? 2 : ignis__chat_compare(c, a.u.items->item[i + 1], b.u.items->item[k + 1], true, depth + 1);
        }
        return sign ? 2 : 0;
    default: return equal && a.u.items == b.u.items && a.number == b.number ? 0 : 2;
    }
}

static bool ignis__chat_equal(ignis__chat *c, ignis__chat_value a, ignis__chat_value b)
{
    return ignis__chat_compare(c, a, b, true, 0) == 0;
}

/*  a < b; a failure where they have no order. */
static bool ignis__chat_less(ignis__chat *c, ignis__chat_value a, ignis__chat_value b, bool or_equal)
{
    int sign = ignis__chat_compare(c, a, b, false, 0);
    if (sign == 2 && (a.kind == IGNIS__CHAT_UNDEFINED || b.kind == IGNIS__CHAT_UNDEFINED))
        ignis__chat_fail_kind(c, "", a.kind == IGNIS__CHAT_UNDEFINED ? a : b);
    else if (sign == 2)
        ignis__chat_fail(c, "%s and %s have no order", ignis__chat_kinds[a.kind], ignis__chat_kinds[b.kind]);
    return sign == -1 || (or_equal && sign == 0);
}

/*  A list in the order of its keys; what is equal stays as it is. */
static ignis__chat_value ignis__chat_sorted(ignis__chat *c, const ignis__chat_items *items, const ignis__chat_items *keys, bool reverse)
{
    ignis__chat_value out = ignis__chat_new(c, IGNIS__CHAT_LIST), key, other;
    int64_t i, low, high, middle, *order = (int64_t *)ignis__chat_alloc(c, (size_t)keys->count * sizeof *order);
    for (i = 0; i < keys->count && !c->fault; i++) { /* each goes behind those that it is not to precede */
        for (low = 0, high = i, key = keys->item[i]; low < high && !c->fault;) {
            middle = (low + high) / 2;
            other = keys->item[order[middle]];
            if (reverse ? ignis__chat_less(c, other, key, false) : ignis__chat_less(c, key, other, false))
                high = middle;
            else
                low = middle + 1;
        }
        ignis__chat_work(c, (i - low) / 8);
        memmove(order + low + 1, order + low, (size_t)(i - low) * sizeof *order);
        order[low] = i;
    }
    for (i = 0; i < keys->count && !c->fault; i++)
        ignis__chat_add(c, out.u.items, items->item[order[i] + items->at]);
    return out;
}

/*  The place of a key in a dict, in a namespace or among names; -1 where there is none. */
static int64_t ignis__chat_find(ignis__chat *c, const ignis__chat_items *items, ignis__chat_value key)
{
    int64_t i;
    for (i = 0; i < items->count && ignis__chat_work(c, 1); i += 2) {
        const ignis__chat_value *other = &items->item[i];
        if (key.kind == IGNIS__CHAT_STRING && other->kind == IGNIS__CHAT_STRING
                ? key.number == other->number && ignis__chat_work(c, key.number / 64) &&
                      memcmp(key.u.text, other->u.text, (size_t)key.number) == 0
                : ignis__chat_equal(c, key, *other))
            return i;
    }
    return -1;
}

static void ignis__chat_put(ignis__chat *c, ignis__chat_items *items, ignis__chat_value key, ignis__chat_value value)
{
    int64_t i = ignis__chat_find(c, items, key);
    if (i >= 0) {
        items->item[i + 1] = value;
        return;
    }
    ignis__chat_add(c, items, key);
    ignis__chat_add(c, items, value);
}

static void ignis__chat_put_all(ignis__chat *c, ignis__chat_items *items, const ignis__chat_items *from)
{
    int64_t i;
    for (i = 0; i < from->count && !c->fault; i += 2)
        ignis__chat_put(c, items, from->item[i], from->item[i + 1]);
}

/*  Can it be the key of a dict? A failure where not. */
static bool ignis__chat_hashable_at(ignis__chat *c, ignis__chat_value key, int depth)
{
    int64_t i;
    if (key.kind == IGNIS__CHAT_LIST || key.kind == IGNIS__CHAT_DICT)
        ignis__chat_fail(c, "a %s cannot be a key", ignis__chat_kinds[key.kind]);
    if (depth > IGNIS__CHAT_NESTING)
        ignis__chat_fail(c, "values are nested deeper than %d", IGNIS__CHAT_NESTING);
    for (i = 0; key.kind == IGNIS__CHAT_TUPLE && i < key.u.items->count && ignis__chat_work(c, 1); i++)
        ignis__chat_hashable_at(c, key.u.items->item[i], depth + 1);
    return !c->fault;
}

static bool ignis__chat_hashable(ignis__chat *c, ignis__chat_value key) { return ignis__chat_hashable_at(c, key, 0); }

/*  What is walked over, in *out: the items from out->at to out->count. A failure where nothing can be. */
static bool ignis__chat_each(ignis__chat *c, ignis__chat_value v, ignis__chat_items *out)
{
    size_t at, length;
    int64_t i;
    memset(out, 0, sizeof *out);
    if (v.kind == IGNIS__CHAT_STRING) {
        for (v.of = 0, at = 0; at < (size_t)v.number && ignis__chat_work(c, 1); at += length) {
            length = ignis__chat_character(v.u.text + at);
            ignis__chat_add(c, out, ignis__chat_part(v, at, at + length));
        }
    } else if (v.kind == IGNIS__CHAT_DICT) {
        for (i = 0; i < v.u.items->count && ignis__chat_work(c, 1); i += 2)
            ignis__chat_add(c, out, v.u.items->item[i]);
    } else if (ignis__chat_has_items(v)) {
        *out = *v.u.items;
        out->capacity = out->count; /* who adds gets a copy */
        if (v.kind == IGNIS__CHAT_GENERATOR)
            v.u.items->at = v.u.items->count;
    } else if (v.kind == IGNIS__CHAT_LOOP) {
        ignis__chat_lacks(c, "'loop' as something to walk over");
    } else if (v.kind != IGNIS__CHAT_UNDEFINED) {
        ignis__chat_fail(c, "there is nothing to walk over in %s", ignis__chat_kinds[v.kind]);
    }
    return !c->fault;
}

/* --- searching ------------------------------------------------------------------------------------------------------ */

/*  What a search is for; its steps are counted by the length of that. */
static ignis__needle ignis__chat_needle_of(ignis__chat *c, ignis__chat_value part, bool back)
{
    ignis__chat_work(c, 1 + part.number / 2);
    return ignis__needle_of(part.u.text, (size_t)part.number, back);
}

/*  Searches, and counts by what was looked at. */
static const char *ignis__chat_search(ignis__chat *c, const char *text, size_t size, const ignis__needle *needle)
{
    const char *found = ignis__needle_find(needle, text, size);
    size_t before = found ? (size_t)(found - text) : 0;
    ignis__chat_work(c, (int64_t)((!found ? size : needle->back ? size - before : before + needle->length) / 4));
    return found;
}

/* --- numbers and texts ---------------------------------------------------------------------------------------------- */

/*  How json.dumps writes. */
typedef struct ignis__chat_json {
    ignis__chat_value indent, separators[2];
    bool ascii, sort, pretty;
} ignis__chat_json;

/*  The number that a text in Python's syntax says: digits, at most one point, an exponent. False when it is none, or longer than 300. */
static bool ignis__chat_read_real(const char *text, size_t size, double *real)
{
    static const char *const words[] = {"inf", "infinity", "nan"};
    char copy[340], half[16], *out = copy, *end;
    bool minus = size > 0 && *text == '-', digits = false;
    size_t i, k;
    if (size > 0 && (*text == '-' || *text == '+'))
        text++, size--;
    if (size == 0 || size > 300)
        return false;
    for (k = 0; k < 3; k++) {
        for (i = 0; i < size && words[k][i] && (text[i] | 32) == words[k][i]; i++)
            continue;
        if (i < size || words[k][i])
            continue;
        *real = k == 2 ? HUGE_VAL - HUGE_VAL : minus ? -HUGE_VAL : HUGE_VAL;
        return true;
    }
    snprintf(half, sizeof half, "%.1f", 0.5); /* with the point of the program's locale, for strtod */
    half[strlen(half) - 1] = 0;
    for (i = 0; i < size; i++) {
        bool between = i > 0 && i + 1 < size && ignis__map_is_digit(text[i - 1]) && ignis__map_is_digit(text[i + 1]);
        if (out > copy + 320 || (text[i] == '_' && !between) || (!ignis__map_is_digit(text[i]) && !strchr("._eE+-", text[i])) ||
            (strchr("+-", text[i]) && (i == 0 || (text[i - 1] | 32) != 'e')) || ((text[i] | 32) == 'e' && !digits))
            return false;
        if (text[i] == '.')
            out += snprintf(out, 16, "%s", half + 1);
        else if (text[i] != '_')
            *out++ = text[i];
        digits = digits || ignis__map_is_digit(text[i]);
    }
    *out = 0;
    *real = strtod(copy, &end);
    *real = minus ? -*real : *real;
    return digits && end == out;
}

/*  The whole number that a text in Python's syntax says. False when it is none; a fault when it does not fit 64 bits. */
static bool ignis__chat_read_int(ignis__chat *c, const char *text, size_t size, int64_t *number)
{
    bool minus = size > 0 && *text == '-';
    size_t i = size > 0 && (*text == '-' || *text == '+'), first = i;
    *number = 0;
    for (; i < size; i++) {
        int digit = text[i] - '0';
        if (text[i] == '_' && i > first && i + 1 < size && text[i - 1] != '_')
            continue;
        if (digit < 0 || digit > 9)
            return false;
        if (*number > (INT64_MAX - digit) / 10) {
            ignis__chat_lacks(c, "a whole number of more than 64 bits");
            return false;
        }
        *number = 10 * *number + digit;
    }
    *number = minus ? -*number : *number;
    return size > first;
}

/*  A number as Python's repr writes it: the fewest digits that come back. */
static void ignis__chat_write_real(ignis__chat *c, double real, char out[40])
{
    char text[40];
    const char *at;
    int precision, exponent;
    ignis__chat_work(c, 64); /* by trial */
    if (real != real || real - real != 0) {
        snprintf(out, 40, "%s", real != real ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    for (precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, real);
        if (strtod(text, NULL) == real)
            break;
    }
    exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16)
        snprintf(text, sizeof text, "%.*f", precision > exponent ? precision - exponent : 1, real);
    for (at = text; *at; at++) /* the program's locale may have another point, of more than a byte */
        if (strchr("0123456789e+-", *at))
            *out++ = *at;
        else if (out[-1] != '.')
            *out++ = '.';
    *out = 0;
}

/*  A string in quotes, as Python's repr writes it, for which characters that are not assigned count as printable; or as json.dumps does. */
static void ignis__chat_write_quoted(ignis__chat *c, ignis__chat_writer *out, ignis__chat_value string, const ignis__chat_json *json)
{
    static const char *const plain[] = {"\\\n\r\t", "\"\\\n\r\t\f\b"}, *const escaped[] = {"\\nrt", "\"\\nrtfb"};
    size_t size = (size_t)string.number, at, length, from = 0;
    const char *text = string.u.text, *known, *one = json || (memchr(text, '\'', size) && !memchr(text, '"', size)) ? "\"" : "'";
    bool marked = ignis__chat_marked(string);
    ignis__chat_work(c, string.number / 4);
    ignis__chat_write_words(c, out, one, marked);
    for (at = 0; at < size && !c->fault; at += length) {
        uint32_t code = ignis__chat_code(text + at);
        char piece[16] = "";
        bool hidden =
            json ? code < 32 || (code >= 128 && json->ascii)
                 : code < 32 || (code >= 0x7F && code <= 0xA0) || code == 0xAD || (code > 0xA0 && ignis__chat_is_space(text + at)) ||
                       (code >= 0x200B && code <= 0x200F) || (code >= 0x202A && code <= 0x202E) || (code >= 0x2060 && code <= 0x206F) ||
                       (code >= 0xE000 && code <= 0xF8FF) || code == 0xFEFF || (code >= 0xFFF9 && code <= 0xFFFB) || code >= 0xE0000;
        length = ignis__chat_character(text + at);
        known = code && code < 128 ? strchr(plain[json != NULL], (int)code) : NULL;
        if (known)
            snprintf(piece, sizeof piece, "\\%c", escaped[json != NULL][known - plain[json != NULL]]);
        else if (code == (unsigned char)*one)
            snprintf(piece, sizeof piece, "\\%c", *one);
        else if (hidden && json && code >= 65536)
            snprintf(piece, sizeof piece, "\\u%04x\\u%04x", (unsigned)(0xD7C0 + (code >> 10)), (unsigned)(0xDC00 | (code & 1023)));
        else if (hidden)
            snprintf(piece, sizeof piece, json || code >= 256 ? code < 65536 ? "\\u%04x" : "\\U%08x" : "\\x%02x", (unsigned)code);
        if (!*piece)
            continue;
        ignis__chat_write_string(c, out, ignis__chat_part(string, from, at));
        ignis__chat_write_words(c, out, piece, string.marks && string.marks[at]);
        from = at + length;
    }
    ignis__chat_write_string(c, out, ignis__chat_part(string, from, size));
    ignis__chat_write_words(c, out, one, marked);
}

/*  What stands between the items of a value: marked as the value is. */
static void ignis__chat_write_sign(ignis__chat *c, ignis__chat_writer *out, ignis__chat_value sign, bool mark)
{
    ignis__chat_write(c, out, sign.u.text, (size_t)sign.number, mark ? NULL : sign.marks, mark);
}

static void ignis__chat_write_line(ignis__chat *c, ignis__chat_writer *out, const ignis__chat_json *json, int depth, bool mark)
{
    int i;
    if (!json || !json->pretty)
        return;
    ignis__chat_write_words(c, out, "\n", mark);
    for (i = 0; i < depth; i++)
        ignis__chat_write_sign(c, out, json->indent, mark);
}

/*  The pairs of a dict in the order of their keys. */
static ignis__chat_items ignis__chat_by_keys(ignis__chat *c, const ignis__chat_items *dict)
{
    ignis__chat_items keys = IGNIS__ZERO, pairs = IGNIS__ZERO;
    ignis__chat_value sorted;
    int64_t i;
    for (i = 0; i < dict->count; i += 2)
        ignis__chat_add(c, &keys, dict->item[i]);
    sorted = ignis__chat_sorted(c, &keys, &keys, false);
    for (i = 0; i < keys.count && !c->fault; i++)
        ignis__chat_put(c, &pairs, sorted.u.items->item[i], dict->item[ignis__chat_find(c, dict, sorted.u.items->item[i]) + 1]);
    return pairs;
}

/*  A value as Python's str writes it, or `quoted`, inside others, as repr does; or as json.dumps. */
static void ignis__chat_write_value(ignis__chat *c, ignis__chat_writer *out, ignis__chat_value v, const ignis__chat_json *json, bool quoted,
                                    int depth)
{
    static const char *const brackets[][2] = {{"[", "]"}, {"(", ")"}, {"{", "}"}, {"<Namespace {", "}>"}};
    static const char *const words[][3] = {{"None", "False", "True"}, {"null", "false", "true"}};
    bool dict = v.kind == IGNIS__CHAT_DICT || v.kind == IGNIS__CHAT_NAMESPACE;
    const char *text = NULL, *const * around;
    ignis__chat_items items;
    char number[80];
    int64_t i;
    if (depth > IGNIS__CHAT_NESTING)
        ignis__chat_fail(c, "values are nested deeper than %d", IGNIS__CHAT_NESTING);
    else if (json && v.kind > IGNIS__CHAT_TUPLE && v.kind != IGNIS__CHAT_DICT)
        ignis__chat_fail_kind(c, "JSON is made of text, numbers, lists and dicts", v);
    else if (v.kind > IGNIS__CHAT_TUPLE && !dict)
        ignis__chat_lacks(c, "a %s made text%s", ignis__chat_kinds[v.kind], ignis__chat_has_items(v) ? "; |list makes a list of it" : "");
    if (!ignis__chat_work(c, 1))
        return;
    switch (v.kind) {
    case IGNIS__CHAT_UNDEFINED:
        if (json)
            ignis__chat_fail_kind(c, "", v);
        text = quoted ? "Undefined" : "";
        break;
    case IGNIS__CHAT_NONE:
    case IGNIS__CHAT_BOOL: text = words[json != NULL][v.kind == IGNIS__CHAT_NONE ? 0 : 1 + (v.number != 0)]; break;
    case IGNIS__CHAT_INT:
        snprintf(number, sizeof number, "%lld", (long long)v.number);
        text = number;
        break;
    case IGNIS__CHAT_FLOAT:
        ignis__chat_write_real(c, v.u.real, number);
        text = !json || v.u.real - v.u.real == 0 ? number : v.u.real != v.u.real ? "NaN" : v.u.real > 0 ? "Infinity" : "-Infinity";
        break;
    case IGNIS__CHAT_STRING:
        ignis__chat_write_words(c, out, quoted && v.of && !json ? "Markup(" : "", ignis__chat_marked(v));
        if (quoted)
            ignis__chat_write_quoted(c, out, v, json);
        else
            ignis__chat_write_string(c, out, v);
        ignis__chat_write_words(c, out, quoted && v.of && !json ? ")" : "", ignis__chat_marked(v));
        return;
    default: break;
    }
    if (text) {
        ignis__chat_write_words(c, out, text, v.mark);
        return;
    }
    around = brackets[dict ? v.kind - IGNIS__CHAT_DICT + 2 : json ? 0 : v.kind - IGNIS__CHAT_LIST];
    items = json && json->sort && dict ? ignis__chat_by_keys(c, v.u.items) : *v.u.items;
    ignis__chat_write_words(c, out, around[0], v.mark);
    for (i = 0; i < items.count && !c->fault; i++) {
        ignis__chat_value item = items.item[i];
        bool value = dict && i % 2, key = json && dict && !value && item.kind != IGNIS__CHAT_STRING; /* keys in JSON are strings */
        if (key && !ignis__chat_is_number(item) && item.kind != IGNIS__CHAT_NONE)
            ignis__chat_fail_kind(c, "keys in JSON are text, numbers or none", item);
        if (i)
            ignis__chat_write_sign(c, out, json ? json->separators[value] : ignis__chat_words(value ? ": " : ", "), v.mark);
        if (!value)
            ignis__chat_write_line(c, out, json, depth + 1, v.mark);
        ignis__chat_write_words(c, out, key ? "\"" : "", item.mark);
        ignis__chat_write_value(c, out, item, json, true, depth + 1);
        ignis__chat_write_words(c, out, key ? "\"" : "", item.mark);
    }
    if (items.count)
        ignis__chat_write_line(c, out, json, depth, v.mark);
    ignis__chat_write_words(c, out, !json && v.kind == IGNIS__CHAT_TUPLE && i == 1 ? "," : "", v.mark);
    ignis__chat_write_words(c, out, around[1], v.mark);
}

/*  A value as text, which carries its marks. */
static ignis__chat_value ignis__chat_text(ignis__chat *c, ignis__chat_value v)
{
    ignis__chat_writer out = IGNIS__ZERO;
    if (v.kind == IGNIS__CHAT_STRING)
        return v;
    ignis__chat_write_value(c, &out, v, NULL, false, 0);
    return ignis__chat_written(&out);
}

/* --- reading a template: words --------------------------------------------------------------------------------------- */

static size_t ignis__chat_skip_space(const ignis__chat *c, size_t at)
{
    while (at < c->size && ignis__chat_is_space(c->text + at))
        at += ignis__chat_character(c->text + at);
    return at;
}

static bool ignis__chat_at(const ignis__chat *c, size_t at, const char *sign)
{
    size_t length = strlen(sign);
    return at <= c->size && c->size - at >= length && memcmp(c->text + at, sign, length) == 0;
}

static size_t ignis__chat_digits(const ignis__chat *c, size_t at)
{
    while (at < c->size &&
           (ignis__map_is_digit(c->text[at]) || (c->text[at] == '_' && at + 1 < c->size && ignis__map_is_digit(c->text[at + 1]))))
        at++;
    return at;
}

/*  The end of a tag at this place: steps over it, and over the white space that goes with it. */
static bool ignis__chat_tag_end(ignis__chat *c, size_t at, char tag)
{
    char end[3];
    bool minus = ignis__chat_at(c, at, "-"), plus = tag != '{' && ignis__chat_at(c, at, "+");
    end[0] = tag == '{' ? '}' : tag, end[1] = '}', end[2] = 0;
    if (!ignis__chat_at(c, at + (minus || plus), end))
        return false;
    at += 2 + (size_t)(minus || plus);
    if (minus)
        at = ignis__chat_skip_space(c, at);
    else if (!plus && tag != '{' && ignis__chat_at(c, at, "\n"))
        at++;
    c->at = at;
    c->line_start = c->text[at - 1] == '\n';
    return true;
}

/*  Goes on to the next word or sign inside a tag. */
static void ignis__chat_next(ignis__chat *c)
{
    static const char *const signs[] = {"**", "//", "==", "!=", "<=", ">="};
    size_t at, i;
    char first;
    if (c->fault)
        return;
    c->start = at = ignis__chat_skip_space(c, c->at);
    c->at = at;
    if (c->brackets == 0 && ignis__chat_tag_end(c, at, c->tag)) {
        c->kind = 'E';
        return;
    }
    if (at == c->size) {
        c->kind = 0;
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, at, "the template ends inside a tag");
        return;
    }
    first = c->text[at];
    if (ignis__map_is_letter(first)) {
        c->kind = 'a';
        while (at < c->size && (ignis__map_is_letter(c->text[at]) || ignis__map_is_digit(c->text[at])))
            at++;
    } else if (ignis__map_is_digit(first)) {
        size_t end;
        c->kind = '0';
        at = ignis__chat_digits(c, at);
        if (c->start == 0 || c->text[c->start - 1] != '.') {
            end = at < c->size && c->text[at] == '.' ? ignis__chat_digits(c, at + 1) : at;
            if (end > at + 1)
                at = end, c->kind = '.';
            if (at < c->size && (c->text[at] == 'e' || c->text[at] == 'E')) {
                end = at + 1 + (size_t)(ignis__chat_at(c, at + 1, "-") || ignis__chat_at(c, at + 1, "+"));
                if (ignis__chat_digits(c, end) > end)
                    at = ignis__chat_digits(c, end), c->kind = '.';
            }
        }
        if (at < c->size && ignis__map_is_letter(c->text[at]))
            ignis__chat_fault(c, first == '0' ? IGNIS_DIAG_UNSUPPORTED : IGNIS_DIAG_CHAT_TEMPLATE, c->start, "a number with letters in it");
    } else if (first == '"' || first == '\'') {
        c->kind = '"';
        for (at++; at < c->size && c->text[at] != first; at++)
            at += c->text[at] == '\\';
        if (at >= c->size) {
            ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, c->start, "a text in quotes has no end");
            return;
        }
        at++;
    } else {
        c->kind = '+';
        if (!strchr("+-*/%~[](){}=!<>.:|,;", first) || (first == '!' && !ignis__chat_at(c, at, "!="))) {
            ignis__chat_fault(c, (unsigned char)first < 128 ? IGNIS_DIAG_CHAT_TEMPLATE : IGNIS_DIAG_UNSUPPORTED, at, "%s inside a tag",
                              (unsigned char)first < 128 ? "a sign that is none" : "a name with letters beyond ASCII");
            return;
        }
        at++;
        for (i = 0; i < sizeof signs / sizeof *signs; i++)
            if (ignis__chat_at(c, c->start, signs[i]))
                at = c->start + 2;
        if (strchr("([{", first))
            c->brackets++;
        else if (strchr(")]}", first) && c->brackets > 0)
            c->brackets--;
    }
    if (!c->fault)
        c->at = at;
}

static bool ignis__chat_sees(const ignis__chat *c, const char *word)
{
    return !c->fault && (c->kind == 'a' || c->kind == '+') && c->at - c->start == strlen(word) && ignis__chat_at(c, c->start, word);
}

static bool ignis__chat_take(ignis__chat *c, const char *word)
{
    bool is = ignis__chat_sees(c, word);
    if (is)
        ignis__chat_next(c);
    return is;
}

/*  Whether this stands behind the current token. */
static bool ignis__chat_then(const ignis__chat *c, const char *sign)
{
    size_t at = ignis__chat_skip_space(c, c->at), behind = at + strlen(sign);
    return ignis__chat_at(c, at, sign) &&
           (behind == c->size || *sign == '=' ? !ignis__chat_at(c, behind, "=")
                                              : !ignis__map_is_letter(c->text[behind]) && !ignis__map_is_digit(c->text[behind]));
}

/*  Is the current token one of these words? */
static bool ignis__chat_listed(const ignis__chat *c, const char *words)
{
    return c->kind == 'a' && ignis__chat_in_words(words, c->text + c->start, (int64_t)(c->at - c->start));
}

IGNIS__COLD static void ignis__chat_unexpected(ignis__chat *c, const char *wanted)
{
    char token[40] = "the end of the tag";
    size_t length = c->at - c->start;
    if (c->kind != 'E')
        snprintf(token, sizeof token, "'%.*s'", (int)(length < 30 ? length : 30), c->text + c->start);
    ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, c->start, "%s is expected before %s", wanted, token);
}

static void ignis__chat_want(ignis__chat *c, const char *sign)
{
    char wanted[24];
    snprintf(wanted, sizeof wanted, "'%.16s'", sign);
    if (!ignis__chat_take(c, sign))
        ignis__chat_unexpected(c, wanted);
}

/*  The current token as a string, and on to the next. */
static ignis__chat_value ignis__chat_word(ignis__chat *c)
{
    ignis__chat_value word = ignis__chat_string(c->text + c->start, c->at - c->start, NULL);
    if (c->kind != 'a')
        ignis__chat_unexpected(c, "a name");
    ignis__chat_next(c);
    return word;
}

/* --- reading a template: nodes ---------------------------------------------------------------------------------------- */

/*  A node, never null: after a fault it is one that nobody walks. */
static ignis__chat_node *ignis__chat_node_of(ignis__chat *c, ignis__chat_op op, size_t at)
{
    ignis__chat_node *node = (ignis__chat_node *)ignis__chat_alloc(c, sizeof *node);
    if (!node)
        node = &c->spare;
    node->op = (unsigned char)op;
    node->at = at;
    return node;
}

/*  One level deeper in the template's text. */
static void ignis__chat_nest(ignis__chat *c)
{
    if (++c->nesting > IGNIS__CHAT_NESTING)
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_LIMIT, c->start, "the template is nested deeper than %d", IGNIS__CHAT_NESTING);
}

static void ignis__chat_append(ignis__chat_node *node, ignis__chat_node *part)
{
    if (node->last)
        node->last->next = part;
    else
        node->list = part;
    node->last = part;
}

static ignis__chat_node *ignis__chat_expression(ignis__chat *c);
static ignis__chat_node *ignis__chat_binary(ignis__chat *c, int level);

/*  The current token, a text in quotes, without them and its escapes. */
static void ignis__chat_unquote(ignis__chat *c, ignis__chat_writer *out)
{
    static const char plain[] = "ntr\\'\"abfv", values[] = "\n\t\r\\'\"\a\b\f\v";
    size_t at = c->start + 1, end = c->at - 1, from = at, i;
    for (; at < end && !c->fault; from = at) {
        uint32_t code = 0;
        const char *known;
        char piece[4], letter;
        while (at < end && c->text[at] != '\\')
            at++;
        ignis__chat_write(c, out, c->text + from, at - from, NULL, false);
        if (at == end)
            break;
        letter = c->text[++at];
        known = letter ? strchr(plain, letter) : NULL;
        if (known) {
            code = (unsigned char)values[known - plain];
            at++;
        } else if (letter == '\n') {
            at++;
            continue;
        } else if (letter >= '0' && letter <= '7') {
            for (i = 0; i < 3 && at < end && c->text[at] >= '0' && c->text[at] <= '7'; i++)
                code = code * 8 + (uint32_t)(c->text[at++] - '0');
        } else if (letter == 'x' || letter == 'u' || letter == 'U') {
            size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
            for (at++, i = 0; i < digits && at < end && strchr("0123456789abcdefABCDEF", c->text[at]); i++, at++)
                code = code << 4 | (uint32_t)(c->text[at] <= '9' ? c->text[at] - '0' : (c->text[at] | 32) - 'a' + 10);
            if (i < digits || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
                ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, at, "an escape in a text is no character");
        } else if (letter == 'N') {
            ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, at, "\\N in a text");
        } else { /* no escape: the backslash is itself */
            code = '\\';
        }
        if (!c->fault)
            ignis__chat_write(c, out, piece, (size_t)ignis__utf8_write(piece, code), NULL, false);
    }
}

static ignis__chat_node *ignis__chat_constant(ignis__chat *c, ignis__chat_value value, size_t at)
{
    ignis__chat_node *node = ignis__chat_node_of(c, IGNIS__CHAT_CONST, at);
    node->value = value;
    return node;
}

/*  A list, tuple or dict whose items follow. */
static ignis__chat_node *ignis__chat_items_node(ignis__chat *c, ignis__chat_kind kind, size_t at)
{
    ignis__chat_node *node = ignis__chat_node_of(c, IGNIS__CHAT_ITEMS_OF, at);
    node->sign = (unsigned char)kind;
    return node;
}

/*  What a reader reads, with commas between, up to the end of the tag, a closing parenthesis or a =. Several are a tuple; so is none. */
static ignis__chat_node *ignis__chat_commas(ignis__chat *c, ignis__chat_node *(*read)(ignis__chat *c), bool empty)
{
    ignis__chat_node *tuple = ignis__chat_items_node(c, IGNIS__CHAT_TUPLE, c->start);
    bool comma = false;
    while (!c->fault && c->kind != 'E' && !ignis__chat_sees(c, ")") && !ignis__chat_sees(c, "=")) {
        ignis__chat_append(tuple, read(c));
        if (!ignis__chat_take(c, ","))
            break;
        comma = true;
    }
    if (!tuple->list && !empty)
        ignis__chat_unexpected(c, "a value");
    return tuple->list && !comma ? tuple->list : tuple;
}

/*  A name, a constant, or what is in brackets. */
static ignis__chat_node *ignis__chat_primary(ignis__chat *c)
{
    size_t at = c->start;
    ignis__chat_node *node = ignis__chat_node_of(c, IGNIS__CHAT_CONST, at);
    bool list = ignis__chat_sees(c, "["), whole = c->kind == '0';
    node->value = ignis__chat_string(c->text + at, c->at - at, NULL);
    if (ignis__chat_take(c, "none") || ignis__chat_take(c, "None")) {
        node->value = ignis__chat_make(IGNIS__CHAT_NONE, 0);
    } else if (ignis__chat_listed(c, "true True false False")) {
        node->value = ignis__chat_bool((c->text[at] | 32) == 't');
        ignis__chat_next(c);
    } else if (c->kind == 'a') {
        node->op = IGNIS__CHAT_NAME;
        c->caller = c->caller || ignis__chat_sees(c, "caller");
        ignis__chat_next(c);
    } else if (c->kind == '"') {
        ignis__chat_writer out = IGNIS__ZERO;
        for (; c->kind == '"' && !c->fault; ignis__chat_next(c))
            ignis__chat_unquote(c, &out);
        node->value = ignis__chat_string(out.text ? out.text : "", out.size, NULL);
    } else if (whole || c->kind == '.') {
        node->value = whole ? ignis__chat_make(IGNIS__CHAT_INT, 0) : ignis__chat_real(0);
        c->here = at;
        if (!(whole ? ignis__chat_read_int(c, c->text + at, c->at - at, &node->value.number)
                    : ignis__chat_read_real(c->text + at, c->at - at, &node->value.u.real)) ||
            (whole && c->text[at] == '0' && node->value.number))
            ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, at, "a number that is none");
        ignis__chat_next(c);
    } else if (ignis__chat_take(c, "(")) {
        node = ignis__chat_commas(c, ignis__chat_expression, true);
        ignis__chat_want(c, ")");
    } else if (list || ignis__chat_sees(c, "{")) {
        node = ignis__chat_items_node(c, list ? IGNIS__CHAT_LIST : IGNIS__CHAT_DICT, at);
        ignis__chat_next(c);
        while (!c->fault && !ignis__chat_sees(c, list ? "]" : "}")) {
            ignis__chat_append(node, ignis__chat_expression(c));
            if (!list) {
                ignis__chat_want(c, ":");
                ignis__chat_append(node, ignis__chat_expression(c));
            }
            if (!ignis__chat_take(c, ","))
                break;
        }
        ignis__chat_want(c, list ? "]" : "}");
    } else {
        ignis__chat_unexpected(c, "a value");
    }
    return node;
}

/*  Arguments behind an opening parenthesis; those with names have them as values. */
static void ignis__chat_arguments(ignis__chat *c, ignis__chat_node *call)
{
    bool named = false;
    ignis__chat_want(c, "(");
    while (!c->fault && !ignis__chat_sees(c, ")")) {
        ignis__chat_value name = ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
        ignis__chat_node *argument;
        size_t at = c->start;
        if (ignis__chat_sees(c, "*") || ignis__chat_sees(c, "**"))
            ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, at, "* and ** before arguments");
        if (c->kind == 'a' && ignis__chat_then(c, "=")) {
            name = ignis__chat_word(c);
            ignis__chat_next(c);
            named = true;
        } else if (named) {
            ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, at, "an argument without a name follows one that has a name");
        }
        argument = ignis__chat_node_of(c, IGNIS__CHAT_PRINT, at);
        argument->a = ignis__chat_expression(c);
        argument->value = name;
        ignis__chat_append(call, argument);
        if (!ignis__chat_take(c, ","))
            break;
    }
    ignis__chat_want(c, ")");
}

static ignis__chat_node *ignis__chat_around(ignis__chat *c, ignis__chat_op op, size_t at, ignis__chat_node *part)
{
    ignis__chat_node *node = ignis__chat_node_of(c, op, at);
    node->a = part;
    return node;
}

/*  An index or a slice, behind the bracket. */
static ignis__chat_node *ignis__chat_subscript(ignis__chat *c, ignis__chat_node *object, size_t at)
{
    ignis__chat_node *node = ignis__chat_around(c, IGNIS__CHAT_ITEM, at, object), *parts[3] = {NULL, NULL, NULL};
    int colons = 0, i;
    bool more = true;
    while (more && !c->fault) {
        if (!ignis__chat_sees(c, ":") && !ignis__chat_sees(c, "]") && !ignis__chat_sees(c, ","))
            parts[colons] = ignis__chat_expression(c);
        more = ignis__chat_take(c, ":");
        colons += more;
        if (colons > 2)
            ignis__chat_unexpected(c, "']'");
    }
    if (ignis__chat_sees(c, ","))
        ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, c->start, "more than one index");
    if (!parts[0] && colons == 0)
        ignis__chat_unexpected(c, "an index");
    node->b = colons ? NULL : parts[0];
    node->op = (unsigned char)(colons ? IGNIS__CHAT_SLICE : IGNIS__CHAT_ITEM);
    for (i = 0; colons && i < 3; i++)
        ignis__chat_append(node, parts[i] ? parts[i] : ignis__chat_constant(c, ignis__chat_make(IGNIS__CHAT_NONE, 0), at));
    ignis__chat_want(c, "]");
    return node;
}

/*  What follows a value: attributes, items, calls; with `filters` also filters and tests. */
static ignis__chat_node *ignis__chat_postfix(ignis__chat *c, ignis__chat_node *node, bool filters)
{
    bool filtered = false; /* behind a filter or test only more of them and calls */
    while (!c->fault) {
        size_t at = c->start;
        if (!filtered && ignis__chat_take(c, ".")) {
            bool name = c->kind == 'a';
            node = ignis__chat_around(c, name ? IGNIS__CHAT_ATTRIBUTE : IGNIS__CHAT_ITEM, c->start, node);
            if (name)
                node->value = ignis__chat_word(c);
            else if (c->kind == '0')
                node->b = ignis__chat_primary(c);
            else
                ignis__chat_unexpected(c, "a name");
        } else if (!filtered && ignis__chat_take(c, "[")) {
            node = ignis__chat_subscript(c, node, at);
        } else if (ignis__chat_sees(c, "(")) {
            node = ignis__chat_around(c, IGNIS__CHAT_CALL, at, node);
            ignis__chat_arguments(c, node);
        } else if (filters && ignis__chat_take(c, "|")) {
            node = ignis__chat_around(c, IGNIS__CHAT_FILTER, c->start, node);
            node->value = ignis__chat_word(c);
            if (ignis__chat_sees(c, "("))
                ignis__chat_arguments(c, node);
            filtered = true;
        } else if (filters && ignis__chat_take(c, "is")) {
            bool negated = ignis__chat_take(c, "not");
            node = ignis__chat_around(c, IGNIS__CHAT_TEST, c->start, node);
            node->sign = negated;
            node->value = ignis__chat_word(c);
            if (ignis__chat_sees(c, "(")) {
                ignis__chat_arguments(c, node);
            } else if ((c->kind == 'a' && !ignis__chat_sees(c, "else") && !ignis__chat_sees(c, "or") && !ignis__chat_sees(c, "and")) ||
                       (c->kind && strchr("\"0.", c->kind)) || ignis__chat_sees(c, "[") || ignis__chat_sees(c, "{")) {
                ignis__chat_node *argument;
                if (ignis__chat_sees(c, "is"))
                    ignis__chat_unexpected(c, "the end of the test");
                argument = ignis__chat_node_of(c, IGNIS__CHAT_PRINT, c->start);
                argument->a = ignis__chat_postfix(c, ignis__chat_primary(c), false);
                ignis__chat_append(node, argument);
            }
            filtered = true;
        } else {
            break;
        }
    }
    return node;
}

/*  Signs before a value are counted, as they nest. */
static ignis__chat_node *ignis__chat_unary(ignis__chat *c, bool filters)
{
    ignis__chat_node *node;
    size_t at = c->start;
    if (!ignis__chat_sees(c, "-") && !ignis__chat_sees(c, "+"))
        return ignis__chat_postfix(c, ignis__chat_primary(c), filters);
    ignis__chat_nest(c);
    ignis__chat_next(c);
    node = ignis__chat_around(c, IGNIS__CHAT_UNARY, at, ignis__chat_unary(c, false));
    node->sign = (unsigned char)c->text[at];
    c->nesting--;
    return ignis__chat_postfix(c, node, filters);
}

/*  Operators of two sides, and how tightly they bind. 3 is `not`; those of 4 are chained. */
static const struct {
    const char *text;
    char level, sign;
} ignis__chat_operators[] = {{"or", 1, 'o'}, {"and", 2, 'a'}, {"==", 4, '='}, {"!=", 4, '!'},  {"<", 4, '<'}, {"<=", 4, 'l'},
                             {">", 4, '>'},  {">=", 4, 'g'},  {"in", 4, 'i'}, {"not", 4, 'n'}, {"+", 5, '+'}, {"-", 5, '-'},
                             {"~", 6, '~'},  {"*", 7, '*'},   {"/", 7, '/'},  {"//", 7, 'd'},  {"%", 7, '%'}, {"**", 8, '^'}};

static int ignis__chat_operator(ignis__chat *c)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__chat_operators); i++)
        if (ignis__chat_sees(c, ignis__chat_operators[i].text) && (ignis__chat_operators[i].sign != 'n' || ignis__chat_then(c, "in")))
            return i;
    return -1;
}

static ignis__chat_node *ignis__chat_binary(ignis__chat *c, int level)
{
    ignis__chat_node *left, *node;
    size_t at = c->start;
    int op;
    ignis__chat_nest(c);
    if (level <= 3 && ignis__chat_take(c, "not")) {
        left = ignis__chat_around(c, IGNIS__CHAT_UNARY, at, ignis__chat_binary(c, 3));
        left->sign = '!';
    } else {
        left = ignis__chat_unary(c, true);
    }
    while ((op = ignis__chat_operator(c)) >= 0 && ignis__chat_operators[op].level >= level) {
        char sign = ignis__chat_operators[op].sign;
        int tighter = ignis__chat_operators[op].level + 1;
        at = c->start;
        ignis__chat_next(c);
        if (sign == 'n')
            ignis__chat_next(c);
        if (tighter == 5) {
            if (left->op != IGNIS__CHAT_COMPARE || left->sign) /* sign: in parentheses */
                left = ignis__chat_around(c, IGNIS__CHAT_COMPARE, at, left);
            node = ignis__chat_around(c, IGNIS__CHAT_PRINT, at, ignis__chat_binary(c, tighter));
            ignis__chat_append(left, node);
        } else {
            left = node = ignis__chat_around(c, IGNIS__CHAT_BINARY, at, left);
            node->b = ignis__chat_binary(c, tighter);
        }
        node->sign = (unsigned char)sign;
    }
    if (left->op == IGNIS__CHAT_COMPARE)
        left->sign = 1;
    c->nesting--;
    return left;
}

/*  An expression without a choice: `if` behind it is not its own. */
static ignis__chat_node *ignis__chat_condition(ignis__chat *c) { return ignis__chat_binary(c, 1); }

static ignis__chat_node *ignis__chat_expression(ignis__chat *c)
{
    ignis__chat_node *node = ignis__chat_binary(c, 1);
    size_t at = c->start;
    while (ignis__chat_take(c, "if")) {
        node = ignis__chat_around(c, IGNIS__CHAT_CHOICE, at, node);
        node->b = ignis__chat_binary(c, 1);
        if (ignis__chat_take(c, "else")) {
            ignis__chat_nest(c);
            node->c = ignis__chat_expression(c);
            c->nesting--;
        }
        at = c->start;
    }
    return node;
}

/* --- reading a template: statements ------------------------------------------------------------------------------------ */

/*  The text before a tag, without the white space that the tag's sign takes, or that stands alone before it in its line. */
static void ignis__chat_data(ignis__chat *c, ignis__chat_node *body, size_t from, size_t to, char sign, bool block)
{
    size_t line, before, at;
    ignis__chat_node *node;
    if (sign == '-') {
        while (to > from && ignis__chat_is_space(c->text + (before = ignis__chat_before(c->text, to))))
            to = before;
    } else if (sign != '+' && block) {
        for (line = to; line > from && c->text[line - 1] != '\n'; line--)
            ;
        at = line;
        while (at < to && ignis__chat_is_space(c->text + at))
            at += ignis__chat_character(c->text + at);
        if (at == to && (line > from || c->line_start))
            to = line;
    }
    if (to > from) {
        node = ignis__chat_node_of(c, IGNIS__CHAT_TEXT, from);
        node->value = ignis__chat_string(c->text + from, to - from, NULL);
        ignis__chat_append(body, node);
    }
}

/*  Behind the opening of a tag and its sign: the place behind {% raw %}, 0 when it is another tag. */
static size_t ignis__chat_raw(const ignis__chat *c, size_t at, const char *word)
{
    at = ignis__chat_skip_space(c, at);
    if (!ignis__chat_at(c, at, word))
        return 0;
    at = ignis__chat_skip_space(c, at + strlen(word));
    return ignis__chat_at(c, at, "%}") || ignis__chat_at(c, at, "-%}") || (word[0] == 'e' && ignis__chat_at(c, at, "+%}")) ? at : 0;
}

static char ignis__chat_sign(const ignis__chat *c, size_t at)
{
    return (char)(at < c->size && (c->text[at] == '-' || c->text[at] == '+') ? c->text[at] : 0);
}

static void ignis__chat_read_raw(ignis__chat *c, ignis__chat_node *body, size_t at)
{
    size_t from, end;
    char sign;
    (void)ignis__chat_tag_end(c, at, '%');
    from = c->at;
    if (c->text[from - 1] == '\n' && c->text[at] == '%')
        from--; /* unlike other tags this one leaves the end of its line */
    c->line_start = c->text[from - 1] == '\n';
    for (at = from; at < c->size; at++) {
        if (!ignis__chat_at(c, at, "{%"))
            continue;
        sign = ignis__chat_sign(c, at + 2);
        end = ignis__chat_raw(c, at + 2 + (sign != 0), "endraw");
        if (end) {
            ignis__chat_data(c, body, from, at, sign, true);
            (void)ignis__chat_tag_end(c, end, '%');
            return;
        }
    }
    ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, from, "{%% raw %%} has no end");
}

static void ignis__chat_statement(ignis__chat *c, ignis__chat_node *body);

/*  What stands between the end of a tag, which is the current token, and a tag that begins with one of these words: the current one then. At the
    template's end where there are none. */
static ignis__chat_node *ignis__chat_body(ignis__chat *c, const char *ends)
{
    ignis__chat_node *body = ignis__chat_node_of(c, IGNIS__CHAT_BLOCK, c->start), *print;
    if (*ends) {
        ignis__chat_take(c, ":");
        if (c->kind != 'E')
            ignis__chat_unexpected(c, "the end of the tag");
    }
    ignis__chat_nest(c);
    while (!c->fault) {
        size_t from = c->at, tag = from, raw;
        const char *brace;
        char kind, sign;
        for (; tag < c->size; tag++) {
            brace = (const char *)memchr(c->text + tag, '{', c->size - tag);
            tag = brace ? (size_t)(brace - c->text) : c->size;
            if (tag + 1 < c->size && strchr("{%#", c->text[tag + 1]) && c->text[tag + 1])
                break;
        }
        if (tag >= c->size) {
            ignis__chat_data(c, body, from, c->size, '+', false);
            c->at = c->size;
            if (*ends)
                ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, c->size, "the template ends before one of: %s", ends);
            break;
        }
        kind = c->text[tag + 1];
        sign = ignis__chat_sign(c, tag + 2);
        ignis__chat_data(c, body, from, tag, sign, kind != '{');
        c->at = tag + 2 + (sign != 0);
        if (kind == '#') {
            size_t at = c->at;
            while (at < c->size && !ignis__chat_tag_end(c, at, '#'))
                at++;
            if (at >= c->size)
                ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, tag, "a comment has no end");
            continue;
        }
        if (kind == '%' && (raw = ignis__chat_raw(c, c->at, "raw")) != 0 && !ignis__chat_at(c, raw, "+")) {
            ignis__chat_read_raw(c, body, raw);
            continue;
        }
        c->tag = kind;
        c->brackets = 0;
        ignis__chat_next(c);
        if (kind == '{') {
            print = ignis__chat_node_of(c, IGNIS__CHAT_PRINT, c->start);
            print->a = ignis__chat_commas(c, ignis__chat_expression, false);
            ignis__chat_append(body, print);
        } else if (*ends && ignis__chat_listed(c, ends)) {
            break;
        } else {
            ignis__chat_statement(c, body);
        }
        if (c->kind != 'E')
            ignis__chat_unexpected(c, "the end of the tag");
    }
    c->nesting--;
    return body;
}

/*  What is assigned to: a name, an attribute of a namespace, or several with commas between. */
static ignis__chat_node *ignis__chat_target_of(ignis__chat *c, ignis__chat_node *(*again)(ignis__chat *c), bool attributes)
{
    ignis__chat_node *node;
    if (ignis__chat_sees(c, "(")) {
        ignis__chat_nest(c);
        ignis__chat_next(c);
        node = ignis__chat_commas(c, again, false);
        ignis__chat_want(c, ")");
        c->nesting--;
        return node;
    }
    if (ignis__chat_listed(c, "true True false False none None"))
        ignis__chat_unexpected(c, "a name to assign to");
    node = ignis__chat_node_of(c, IGNIS__CHAT_NAME, c->start);
    node->value = ignis__chat_word(c);
    if (attributes && ignis__chat_take(c, ".")) {
        node = ignis__chat_around(c, IGNIS__CHAT_ATTRIBUTE, c->start, node);
        node->value = ignis__chat_word(c);
    }
    return node;
}

static ignis__chat_node *ignis__chat_name_target(ignis__chat *c) { return ignis__chat_target_of(c, ignis__chat_name_target, false); }

static ignis__chat_node *ignis__chat_any_target(ignis__chat *c) { return ignis__chat_target_of(c, ignis__chat_any_target, true); }

static void ignis__chat_read_if(ignis__chat *c, ignis__chat_node *node)
{
    bool more = true;
    while (more && !c->fault) {
        bool last = ignis__chat_sees(c, "else");
        ignis__chat_node *branch = ignis__chat_node_of(c, IGNIS__CHAT_IF, c->start);
        ignis__chat_next(c);
        branch->a = last ? NULL : ignis__chat_commas(c, ignis__chat_condition, false);
        branch->b = ignis__chat_body(c, last ? "endif" : "elif else endif");
        ignis__chat_append(node, branch);
        more = !ignis__chat_take(c, "endif");
    }
}

static void ignis__chat_read_for(ignis__chat *c, ignis__chat_node *node)
{
    ignis__chat_next(c);
    node->a = ignis__chat_commas(c, ignis__chat_name_target, false);
    ignis__chat_want(c, "in");
    node->b = ignis__chat_commas(c, ignis__chat_condition, false);
    if (ignis__chat_take(c, "if"))
        node->c = ignis__chat_expression(c);
    if (ignis__chat_sees(c, "recursive"))
        ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, c->start, "a recursive loop");
    c->loops++;
    ignis__chat_append(node, ignis__chat_body(c, "else endfor"));
    c->loops--;
    if (ignis__chat_take(c, "else"))
        ignis__chat_append(node, ignis__chat_body(c, "endfor"));
    ignis__chat_take(c, "endfor");
}

static void ignis__chat_read_set(ignis__chat *c, ignis__chat_node *node)
{
    ignis__chat_next(c);
    node->a = ignis__chat_commas(c, ignis__chat_any_target, false);
    if (ignis__chat_take(c, "=")) {
        node->b = ignis__chat_commas(c, ignis__chat_expression, false);
        return;
    }
    if (ignis__chat_sees(c, "|"))
        ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, c->start, "a filter of a set block");
    node->op = IGNIS__CHAT_SET_BLOCK;
    node->b = ignis__chat_body(c, "endset");
    ignis__chat_take(c, "endset");
}

/*  The parameters of a macro, in parentheses. */
static void ignis__chat_read_parameters(ignis__chat *c, ignis__chat_node *node)
{
    bool defaults = false;
    ignis__chat_want(c, "(");
    while (!c->fault && !ignis__chat_sees(c, ")")) {
        ignis__chat_node *name = ignis__chat_node_of(c, IGNIS__CHAT_NAME, c->start);
        name->value = ignis__chat_word(c);
        if (ignis__chat_take(c, "="))
            defaults = true, name->a = ignis__chat_expression(c);
        else if (defaults)
            ignis__chat_unexpected(c, "a default value");
        ignis__chat_append(node, name);
        if (!ignis__chat_sees(c, ")"))
            ignis__chat_want(c, ",");
    }
    ignis__chat_want(c, ")");
}

/*  Its body, up to this word. */
static void ignis__chat_read_macro_body(ignis__chat *c, ignis__chat_node *node, const char *end)
{
    int loops = c->loops;
    bool caller = c->caller;
    c->loops = 0;
    c->caller = false;
    node->b = ignis__chat_body(c, end);
    node->sign = c->caller;
    c->loops = loops;
    c->caller = c->caller || caller;
    ignis__chat_take(c, end);
}

static void ignis__chat_read_macro(ignis__chat *c, ignis__chat_node *node)
{
    ignis__chat_next(c);
    node->value = ignis__chat_word(c);
    ignis__chat_read_parameters(c, node);
    ignis__chat_read_macro_body(c, node, "endmacro");
}

/*  {% call(parameters) f(arguments) %}: f is called with a macro named caller. */
static void ignis__chat_read_call(ignis__chat *c, ignis__chat_node *node)
{
    ignis__chat_next(c);
    node->b = ignis__chat_node_of(c, IGNIS__CHAT_MACRO_OF, c->start);
    node->b->value = ignis__chat_words("caller");
    if (ignis__chat_sees(c, "("))
        ignis__chat_read_parameters(c, node->b);
    node->a = ignis__chat_expression(c);
    if (node->a->op != IGNIS__CHAT_CALL)
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, node->a->at, "what stands behind {%% call %%} is a call");
    ignis__chat_read_macro_body(c, node->b, "endcall");
}

/*  Filters of what a block writes, which is printed. */
static void ignis__chat_read_filter(ignis__chat *c, ignis__chat_node *node)
{
    ignis__chat_node *capture = ignis__chat_node_of(c, IGNIS__CHAT_CAPTURE, c->start);
    node->a = capture;
    node->sign = 1;
    do {
        ignis__chat_next(c);
        node->a = ignis__chat_around(c, IGNIS__CHAT_FILTER, c->start, node->a);
        node->a->value = ignis__chat_word(c);
        if (ignis__chat_sees(c, "("))
            ignis__chat_arguments(c, node->a);
    } while (ignis__chat_sees(c, "|"));
    capture->b = ignis__chat_body(c, "endfilter");
    ignis__chat_take(c, "endfilter");
}

/*  generation, whose marks for training are not used here, and with: their names end with them. */
static void ignis__chat_read_block(ignis__chat *c, ignis__chat_node *node)
{
    bool with = ignis__chat_sees(c, "with");
    int loops = c->loops;
    ignis__chat_next(c);
    while (with && !c->fault && c->kind == 'a') {
        ignis__chat_node *set = ignis__chat_node_of(c, IGNIS__CHAT_SET, c->start);
        set->a = ignis__chat_commas(c, ignis__chat_name_target, false);
        ignis__chat_want(c, "=");
        set->b = ignis__chat_expression(c);
        ignis__chat_append(node, set);
        if (!ignis__chat_take(c, ","))
            break;
    }
    if (!with)
        c->loops = 0;
    node->b = ignis__chat_body(c, with ? "endwith" : "endgeneration");
    c->loops = loops;
    ignis__chat_take(c, with ? "endwith" : "endgeneration");
}

static void ignis__chat_read_jump(ignis__chat *c, ignis__chat_node *node)
{
    if (!c->loops)
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, node->at, "break and continue belong into a loop");
    ignis__chat_next(c);
}

static void ignis__chat_statement(ignis__chat *c, ignis__chat_node *body)
{
    static const struct {
        const char *word;
        ignis__chat_op op;
        void (*read)(ignis__chat *c, ignis__chat_node *node);
    } statements[] = {
        {"if", IGNIS__CHAT_IF, ignis__chat_read_if},
        {"for", IGNIS__CHAT_FOR, ignis__chat_read_for},
        {"set", IGNIS__CHAT_SET, ignis__chat_read_set},
        {"macro", IGNIS__CHAT_MACRO_OF, ignis__chat_read_macro},
        {"with", IGNIS__CHAT_BLOCK, ignis__chat_read_block},
        {"generation", IGNIS__CHAT_BLOCK, ignis__chat_read_block},
        {"break", IGNIS__CHAT_BREAK, ignis__chat_read_jump},
        {"continue", IGNIS__CHAT_CONTINUE, ignis__chat_read_jump},
        {"filter", IGNIS__CHAT_PRINT, ignis__chat_read_filter},
        {"call", IGNIS__CHAT_CALL_BLOCK, ignis__chat_read_call},
    };
    ignis__chat_node *node;
    size_t length = c->at - c->start;
    int i;
    for (i = 0; i < IGNIS__COUNT(statements); i++) {
        if (ignis__chat_sees(c, statements[i].word)) {
            node = ignis__chat_node_of(c, statements[i].op, c->start);
            statements[i].read(c, node);
            ignis__chat_append(body, node);
            return;
        }
    }
    if (ignis__chat_listed(c, "block extends print include from import autoescape"))
        ignis__chat_fault(c, IGNIS_DIAG_UNSUPPORTED, c->start, "the statement '%.*s'", (int)length, c->text + c->start);
    else
        ignis__chat_unexpected(c, "a statement");
}

