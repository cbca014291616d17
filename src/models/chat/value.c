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

