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

/* --- walking a template ----------------------------------------------------------------------------------------------- */

/*  The arguments of a call. */
typedef struct ignis__chat_call {
    ignis__chat_value self; /* of a method, filter or test: what it is of */
    ignis__chat_items given, named;
    ignis__chat_value value[6]; /* those that the row names, in its order */
    int how;                    /* the row's */
} ignis__chat_call;

/*  A filter, test, method or function. */
typedef struct ignis__chat_row {
    const char *of;         /* f: filters, t: tests, s d: methods of a string or dict, g: functions */
    const char *names;      /* with spaces between */
    const char *parameters; /* names, a ! before those that must be given; null: the function looks at the call itself */
    ignis__chat_value (*run)(ignis__chat *c, ignis__chat_call *call);
    int how;
} ignis__chat_row;

static ignis__chat_value ignis__chat_eval(ignis__chat *c, const ignis__chat_node *node);
static ignis__chat_value ignis__chat_apply(ignis__chat *c, char of, ignis__chat_value name, ignis__chat_call *call);
static int ignis__chat_row_find(ignis__chat *c, char of, ignis__chat_value name);
static const ignis__chat_row *ignis__chat_row_at(int64_t row);

static ignis__chat_value ignis__chat_format(ignis__chat *c, ignis__chat_value format, ignis__chat_value values);

static ignis__chat_value ignis__chat_undefined(ignis__chat_value object, ignis__chat_value name)
{
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_UNDEFINED, 0);
    value.of = object.kind;
    if (name.kind == IGNIS__CHAT_STRING) {
        value.u.text = name.u.text;
        value.number = name.number;
    }
    return value;
}

/*  Methods that are there in Python: those that would change what they are of, which its sandbox hides, and those that this interpreter lacks. */
static const struct {
    unsigned char of; /* the kind of value */
    const char *hidden, *lacking;
} ignis__chat_methods[] = {
    {IGNIS__CHAT_STRING, "",
     "casefold center encode expandtabs format format_map isascii isidentifier isprintable istitle ljust maketrans partition rindex rjust "
     "rpartition swapcase translate zfill isalnum isalpha isdecimal isdigit islower isnumeric isspace isupper"},
    {IGNIS__CHAT_LIST, "append clear extend insert pop remove reverse sort", "copy count index"},
    {IGNIS__CHAT_TUPLE, "", "count index"},
    {IGNIS__CHAT_RANGE_OF, "", "count index start step stop"},
    {IGNIS__CHAT_DICT, "clear pop popitem setdefault update", "copy fromkeys"},
    {IGNIS__CHAT_LOOP, "", "changed cycle"},
};

static bool ignis__chat_peek(ignis__chat *c, ignis__chat_loop *loop);

/*  The items of a loop that are still to come are counted by going through its condition. */
static int64_t ignis__chat_loop_length(ignis__chat *c, ignis__chat_loop *loop)
{
    ignis__chat_loop rest = *loop;
    ignis__chat_items kept;
    if (!loop->filtered)
        return loop->end + loop->base;
    memset(&kept, 0, sizeof kept);
    while (ignis__chat_peek(c, &rest)) {
        ignis__chat_add(c, &kept, rest.after);
        rest.peeked = false;
    }
    *loop->items = kept;
    loop->next = 0;
    loop->end = kept.count;
    loop->filtered = loop->peeked = false;
    loop->base = loop->index;
    return loop->base + kept.count;
}

/*  An attribute of `loop`; false when there is none of that name. */
static bool ignis__chat_loop_attribute(ignis__chat *c, ignis__chat_loop *loop, ignis__chat_value name, ignis__chat_value *out)
{
    static const char *const names[] = {"index", "index0",   "first",  "depth",    "depth0",   "previtem",
                                        "last",  "nextitem", "length", "revindex", "revindex0"};
    ignis__chat_value none = ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
    int64_t i;
    for (i = 0; i < IGNIS__COUNT(names) && !ignis__chat_is(name, names[i]); i++)
        ;
    *out = ignis__chat_make(IGNIS__CHAT_INT, i == 4 ? 0 : i == 3 ? 1 : i == 1 ? loop->index - 1 : loop->index);
    if (i == 2)
        *out = ignis__chat_bool(loop->index == 1);
    else if (i == 5)
        *out = loop->index > 1 ? loop->before : ignis__chat_undefined(none, none);
    else if (i == 6)
        *out = ignis__chat_bool(!ignis__chat_peek(c, loop));
    else if (i == 7)
        *out = ignis__chat_peek(c, loop) ? loop->after : ignis__chat_undefined(none, none);
    else if (i >= 8)
        out->number = ignis__chat_loop_length(c, loop) - (i == 8 ? 0 : i == 9 ? loop->index - 1 : loop->index);
    return i < IGNIS__COUNT(names);
}

/*  A method of a value, or what else its type has by this name; false when there is nothing. */
static bool ignis__chat_attribute(ignis__chat *c, ignis__chat_value object, ignis__chat_value name, ignis__chat_value *out)
{
    char of = object.kind == IGNIS__CHAT_STRING ? 's' : object.kind == IGNIS__CHAT_DICT ? 'd' : ' '; /* as the table of methods has it */
    int row, i;
    *out = ignis__chat_undefined(object, name);
    if (object.kind == IGNIS__CHAT_NAMESPACE) {
        int64_t at = ignis__chat_find(c, object.u.items, name);
        *out = at < 0 ? *out : object.u.items->item[at + 1];
        return at >= 0;
    }
    if (object.kind == IGNIS__CHAT_LOOP && ignis__chat_loop_attribute(c, object.u.loop, name, out))
        return true;
    for (i = 0; i < IGNIS__COUNT(ignis__chat_methods); i++) {
        if (ignis__chat_methods[i].of != object.kind)
            continue;
        if (ignis__chat_in_words(ignis__chat_methods[i].lacking, name.u.text, name.number))
            *out = ignis__chat_lacks(c, "the method '%.*s' of %s", (int)name.number, name.u.text, ignis__chat_kinds[object.kind]);
        if (c->fault || ignis__chat_in_words(ignis__chat_methods[i].hidden, name.u.text, name.number))
            return true;
    }
    row = of == ' ' ? -1 : ignis__chat_row_find(c, of, name);
    if (row < 0)
        return false;
    *out = ignis__chat_make(IGNIS__CHAT_FUNCTION, row);
    out->u.object = (ignis__chat_value *)ignis__chat_alloc(c, sizeof object);
    if (out->u.object)
        *out->u.object = object;
    return true;
}

/*  Where a character of a string begins, from its number. */
static size_t ignis__chat_offset(ignis__chat *c, ignis__chat_value string, int64_t character)
{
    size_t at = 0;
    ignis__chat_work(c, character / 4);
    while (character-- > 0 && at < (size_t)string.number)
        at += ignis__chat_character(string.u.text + at);
    return at;
}

/*  object[key]; false when there is no such item. */
static bool ignis__chat_item(ignis__chat *c, ignis__chat_value object, ignis__chat_value key, ignis__chat_value *out)
{
    int64_t i = key.number, count;
    bool string = object.kind == IGNIS__CHAT_STRING;
    *out = ignis__chat_undefined(object, key);
    if (object.kind == IGNIS__CHAT_DICT) {
        if (key.kind == IGNIS__CHAT_LIST || key.kind == IGNIS__CHAT_DICT || (i = ignis__chat_find(c, object.u.items, key)) < 0)
            return false;
        *out = object.u.items->item[i + 1];
        return true;
    }
    if (!ignis__chat_is_whole(key) || !(string || (object.kind >= IGNIS__CHAT_LIST && object.kind <= IGNIS__CHAT_RANGE_OF)))
        return false;
    count = string ? ignis__chat_characters(c, object) : object.u.items->count;
    i += i < 0 ? count : 0;
    if (i < 0 || i >= count)
        return false;
    if (string) {
        size_t at = ignis__chat_offset(c, object, i);
        *out = ignis__chat_part(object, at, at + ignis__chat_character(object.u.text + at));
    } else {
        *out = object.u.items->item[i];
    }
    return true;
}

/*  Items put together to what another value is: a text, or a list of its kind. */
static ignis__chat_value ignis__chat_like(ignis__chat *c, ignis__chat_value other, const ignis__chat_items *items)
{
    ignis__chat_value out = other;
    ignis__chat_writer text = IGNIS__ZERO;
    int64_t i;
    if (other.kind != IGNIS__CHAT_STRING) {
        out = ignis__chat_new(c, (ignis__chat_kind)other.kind);
        out.mark = other.mark;
        if (!c->fault)
            *out.u.items = *items;
        return out;
    }
    for (i = 0; i < items->count && ignis__chat_work(c, 1); i++)
        ignis__chat_write_string(c, &text, items->item[i]);
    out = ignis__chat_written(&text);
    out.of = other.of;
    return out;
}

/*  object.name, or with `item` object[name]: either looks for the other next. */
static ignis__chat_value ignis__chat_member(ignis__chat *c, ignis__chat_value object, ignis__chat_value key, bool item)
{
    ignis__chat_value out = ignis__chat_make(IGNIS__CHAT_UNDEFINED, 0);
    if (c->fault || object.kind == IGNIS__CHAT_UNDEFINED)
        return ignis__chat_fail_kind(c, "", object);
    if (item && ignis__chat_item(c, object, key, &out))
        return out;
    if (key.kind == IGNIS__CHAT_STRING && !c->fault && ignis__chat_attribute(c, object, key, &out))
        return out;
    if (!item && !c->fault && ignis__chat_item(c, object, key, &out))
        return out;
    return ignis__chat_undefined(object, key);
}

static ignis__chat_value ignis__chat_slice(ignis__chat *c, ignis__chat_value object, const ignis__chat_value *bound)
{
    bool string = object.kind == IGNIS__CHAT_STRING;
    int64_t count, step = bound[2].kind == IGNIS__CHAT_NONE ? 1 : bound[2].number, limits[2], i;
    ignis__chat_items items, kept = IGNIS__ZERO;
    if (!string && (object.kind < IGNIS__CHAT_LIST || object.kind > IGNIS__CHAT_RANGE_OF))
        return ignis__chat_fail_kind(c, "slices are of texts and lists", object);
    for (i = 0; i < 3; i++)
        if (bound[i].kind != IGNIS__CHAT_NONE && !ignis__chat_is_whole(bound[i]))
            return ignis__chat_fail_kind(c, "the bounds of a slice are whole numbers", bound[i]);
    if (step == 0)
        return ignis__chat_fail(c, "the step of a slice is 0");
    if (object.kind == IGNIS__CHAT_RANGE_OF)
        return ignis__chat_lacks(c, "a slice of a range; |list makes a list of it");
    count = string ? ignis__chat_characters(c, object) : object.u.items->count;
    for (i = 0; i < 2; i++) { /* as Python cuts them to what is there */
        int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count, at = bound[i].number;
        if (bound[i].kind == IGNIS__CHAT_NONE)
            at = (i == 0) == (step > 0) ? low : high;
        else if (at < 0)
            at = at < -count ? low : at + count < low ? low : at + count;
        limits[i] = at > high ? high : at;
    }
    if (string && step == 1) {
        limits[1] = limits[1] < limits[0] ? limits[0] : limits[1];
        return ignis__chat_part(object, ignis__chat_offset(c, object, limits[0]), ignis__chat_offset(c, object, limits[1]));
    }
    ignis__chat_each(c, object, &items);
    for (i = limits[0]; (step > 0 ? i < limits[1] : i > limits[1]) && ignis__chat_work(c, 1); i += step) {
        ignis__chat_add(c, &kept, items.item[i]);
        if (step > 0 ? step >= limits[1] - i : step <= limits[1] - i)
            break;
    }
    return ignis__chat_like(c, object, &kept);
}

/*  Adds a text, with characters of HTML escaped. */
static void ignis__chat_write_escaped(ignis__chat *c, ignis__chat_writer *out, ignis__chat_value string)
{
    static const char plain[] = "&<>'\"";
    static const char *const escaped[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    size_t at, from = 0, size = (size_t)string.number;
    ignis__chat_work(c, string.number / 16);
    for (at = 0; at < size && !c->fault; at++) {
        const char *known = string.u.text[at] ? strchr(plain, string.u.text[at]) : NULL;
        if (!known)
            continue;
        ignis__chat_write_string(c, out, ignis__chat_part(string, from, at));
        ignis__chat_write_words(c, out, escaped[known - plain], string.marks && string.marks[at]);
        from = at + 1;
    }
    ignis__chat_write_string(c, out, ignis__chat_part(string, from, size));
}

/*  Joins two texts; what went through |safe is another type in Python, which escapes what is added to it. */
static ignis__chat_value ignis__chat_join_two(ignis__chat *c, ignis__chat_value a, ignis__chat_value b)
{
    ignis__chat_writer out = IGNIS__ZERO;
    ignis__chat_value joined;
    if (a.of == b.of && !ignis__chat_reserve(c, &out, (size_t)(a.number + b.number))) /* no more than is needed, as much is joined */
        return a;
    (b.of && !a.of ? ignis__chat_write_escaped : ignis__chat_write_string)(c, &out, a);
    (a.of && !b.of ? ignis__chat_write_escaped : ignis__chat_write_string)(c, &out, b);
    joined = ignis__chat_written(&out);
    joined.of = a.of || b.of;
    return joined;
}

/*  a op b of whole numbers; false when it does not fit 64 bits. */
static bool ignis__chat_whole(char op, int64_t a, int64_t b, int64_t *out)
{
    bool lowest = a == INT64_MIN || b == INT64_MIN;
    switch (op) {
    case '-': return b != INT64_MIN && ignis__chat_whole('+', a, -b, out);
    case '+': *out = (int64_t)((uint64_t)a + (uint64_t)b); return ((a ^ *out) & (b ^ *out)) >= 0;
    case '*':
        if (a && b && (lowest || (a < 0 ? -a : a) > INT64_MAX / (b < 0 ? -b : b)))
            return false;
        *out = a * b;
        return true;
    default:
        if (a == INT64_MIN)
            return false;
        *out = op == 'd' ? a / b : a % b;
        if (a % b != 0 && (a < 0) != (b < 0))
            *out += op == 'd' ? -1 : b;
        return true;
    }
}

static double ignis__chat_floating(char op, double a, double b)
{
    double rest, quotient, whole;
    switch (op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return a / b;
    default: break;
    }
    rest = fmod(a, b);
    quotient = (a - rest) / b;
    if (rest == 0)
        rest = copysign(0, b);
    else if ((b < 0) != (rest < 0))
        rest += b, quotient -= 1;
    if (op == '%')
        return rest;
    whole = floor(quotient);
    return quotient == 0 ? copysign(0, a / b) : quotient - whole > 0.5 ? whole + 1 : whole;
}

/*  A list, tuple or text, so many times. */
static ignis__chat_value ignis__chat_repeat(ignis__chat *c, ignis__chat_value a, int64_t times)
{
    bool string = a.kind == IGNIS__CHAT_STRING;
    ignis__chat_value out = a;
    ignis__chat_writer writer = IGNIS__ZERO;
    if (!string) {
        out = ignis__chat_new(c, (ignis__chat_kind)a.kind);
        out.mark = a.mark;
    }
    for (; times > 0 && (string ? a.number : a.u.items->count) > 0 && ignis__chat_work(c, 1); times--) {
        if (string)
            ignis__chat_write_string(c, &writer, a);
        else
            ignis__chat_add_all(c, out.u.items, a.u.items);
    }
    if (string) {
        out = ignis__chat_written(&writer);
        out.of = a.of;
    }
    return out;
}

static ignis__chat_value ignis__chat_binary_of(ignis__chat *c, char op, ignis__chat_value a, ignis__chat_value b)
{
    ignis__chat_value out = ignis__chat_make(IGNIS__CHAT_INT, 0);
    bool sequence = a.kind >= IGNIS__CHAT_STRING && a.kind <= IGNIS__CHAT_TUPLE;
    int i;
    if (c->fault)
        return a;
    if (op == '~') {
        a = ignis__chat_text(c, a);
        b = ignis__chat_text(c, b);
        a.of = b.of = 0;
        return ignis__chat_join_two(c, a, b);
    }
    if (op == '%' && a.kind == IGNIS__CHAT_STRING)
        return ignis__chat_format(c, a, b);
    if (a.kind == IGNIS__CHAT_UNDEFINED || b.kind == IGNIS__CHAT_UNDEFINED)
        return ignis__chat_fail_kind(c, "", a.kind == IGNIS__CHAT_UNDEFINED ? a : b);
    if (op == '^')
        return ignis__chat_lacks(c, "the operator **");
    if (ignis__chat_is_number(a) && ignis__chat_is_number(b)) {
        if (strchr("/d%", op) && ignis__chat_as_real(b) == 0)
            return ignis__chat_fail(c, "a division by 0");
        ignis__chat_work(c, strchr("d%", op) ? 16 : 0); /* fmod of numbers far apart goes bit by bit */
        if (op == '/' || a.kind == IGNIS__CHAT_FLOAT || b.kind == IGNIS__CHAT_FLOAT)
            out = ignis__chat_real(ignis__chat_floating(op, ignis__chat_as_real(a), ignis__chat_as_real(b)));
        else if (!ignis__chat_whole(op, a.number, b.number, &out.number))
            return ignis__chat_lacks(c, "a whole number of more than 64 bits");
        out.mark = a.mark || b.mark;
        return out;
    }
    if (op == '+' && sequence && a.kind == b.kind) {
        if (a.kind == IGNIS__CHAT_STRING)
            return ignis__chat_join_two(c, a, b);
        out = ignis__chat_new(c, (ignis__chat_kind)a.kind);
        out.mark = a.mark || b.mark;
        ignis__chat_add_all(c, out.u.items, a.u.items);
        ignis__chat_add_all(c, out.u.items, b.u.items);
        return out;
    }
    if (op == '*' && ignis__chat_is_whole(a) && !ignis__chat_is_number(b))
        return ignis__chat_binary_of(c, op, b, a);
    if (op == '*' && ignis__chat_is_whole(b) && sequence)
        return ignis__chat_repeat(c, a, b.number);
    for (i = 0; ignis__chat_operators[i].sign != op; i++)
        continue;
    return ignis__chat_fail(c, "%s %s %s", ignis__chat_kinds[a.kind], ignis__chat_operators[i].text, ignis__chat_kinds[b.kind]);
}

static bool ignis__chat_contains(ignis__chat *c, ignis__chat_value a, ignis__chat_value b)
{
    ignis__chat_items items;
    ignis__needle needle;
    int64_t i;
    if (c->fault)
        return false;
    if (b.kind == IGNIS__CHAT_STRING) {
        if (a.kind != IGNIS__CHAT_STRING) {
            ignis__chat_fail_kind(c, "what a text may contain is text", a);
            return false;
        }
        needle = ignis__chat_needle_of(c, a, false);
        return !c->fault && ignis__chat_search(c, b.u.text, (size_t)b.number, &needle) != NULL;
    }
    if (b.kind == IGNIS__CHAT_DICT)
        return ignis__chat_hashable(c, a) && ignis__chat_find(c, b.u.items, a) >= 0;
    ignis__chat_each(c, b, &items);
    for (i = items.at; i < items.count && !c->fault && !ignis__chat_equal(c, a, items.item[i]); i++)
        continue;
    if (b.kind == IGNIS__CHAT_GENERATOR && i < items.count)
        b.u.items->at = i + 1;
    return !c->fault && i < items.count;
}

static bool ignis__chat_compares(ignis__chat *c, char sign, ignis__chat_value a, ignis__chat_value b)
{
    switch (sign) {
    case '=': return ignis__chat_equal(c, a, b);
    case '!': return !ignis__chat_equal(c, a, b);
    case '<': return ignis__chat_less(c, a, b, false);
    case 'l': return ignis__chat_less(c, a, b, true);
    case '>': return ignis__chat_less(c, b, a, false);
    case 'g': return ignis__chat_less(c, b, a, true);
    case 'i': return ignis__chat_contains(c, a, b);
    default: return !ignis__chat_contains(c, a, b);
    }
}

static ignis__chat_value ignis__chat_lookup(ignis__chat *c, ignis__chat_value name)
{
    ignis__chat_scope *scope;
    int64_t at;
    int row;
    for (scope = c->scope; scope && ignis__chat_work(c, 1); scope = scope->outer)
        if ((at = ignis__chat_find(c, &scope->names, name)) >= 0)
            return scope->names.item[at + 1];
    row = ignis__chat_row_find(c, 'g', name);
    return row >= 0 ? ignis__chat_make(IGNIS__CHAT_FUNCTION, row) : ignis__chat_undefined(ignis__chat_make(IGNIS__CHAT_ABSENT, 0), name);
}

static void ignis__chat_assign(ignis__chat *c, const ignis__chat_node *target, ignis__chat_value value)
{
    const ignis__chat_node *part;
    ignis__chat_items items;
    int64_t i, wanted = 0;
    if (c->fault)
        return;
    if (target->op == IGNIS__CHAT_NAME) {
        ignis__chat_put(c, &c->scope->names, target->value, value);
    } else if (target->op == IGNIS__CHAT_ATTRIBUTE) {
        ignis__chat_value object = ignis__chat_lookup(c, target->a->value);
        c->here = target->at;
        if (object.kind != IGNIS__CHAT_NAMESPACE)
            ignis__chat_fail_kind(c, "attributes are set of namespaces", object);
        else
            ignis__chat_put(c, object.u.items, target->value, value);
    } else {
        for (part = target->list; part; part = part->next)
            wanted++;
        if (!ignis__chat_each(c, value, &items))
            return;
        if (items.count - items.at != wanted)
            ignis__chat_fail(c, "%lld names for %lld values", (long long)wanted, (long long)(items.count - items.at));
        for (part = target->list, i = items.at; part && !c->fault; part = part->next)
            ignis__chat_assign(c, part, items.item[i++]);
    }
}

static ignis__chat_scope *ignis__chat_enter(ignis__chat *c, ignis__chat_scope *outer)
{
    ignis__chat_scope *before = c->scope, *scope = (ignis__chat_scope *)ignis__chat_alloc(c, sizeof *scope);
    if (scope) {
        scope->outer = outer;
        c->scope = scope;
    }
    return before;
}

static int ignis__chat_run(ignis__chat *c, const ignis__chat_node *body);
static ignis__chat_value ignis__chat_eval_call(ignis__chat *c, const ignis__chat_node *node, const ignis__chat_value *caller);

/*  What a body writes, as a string, in a scope of its own. */
static ignis__chat_value ignis__chat_capture(ignis__chat *c, const ignis__chat_node *body)
{
    ignis__chat_writer out = IGNIS__ZERO, *before = c->out;
    c->out = &out;
    ignis__chat_run(c, body);
    c->out = before;
    return ignis__chat_written(&out);
}

/*  Finds the next item of a loop that its condition lets through. */
static bool ignis__chat_peek(ignis__chat *c, ignis__chat_loop *loop)
{
    while (!loop->peeked && loop->next < loop->end && ignis__chat_work(c, 1)) {
        loop->after = loop->items->item[loop->next++];
        loop->peeked = true;
        if (loop->filtered) {
            ignis__chat_scope *before = ignis__chat_enter(c, loop->outer);
            ignis__chat_assign(c, loop->node->a, loop->after);
            loop->peeked = ignis__chat_true(ignis__chat_eval(c, loop->node->c));
            c->scope = before;
        }
    }
    return loop->peeked && !c->fault;
}

static int ignis__chat_run_for(ignis__chat *c, const ignis__chat_node *node)
{
    ignis__chat_loop *loop = (ignis__chat_loop *)ignis__chat_alloc(c, sizeof *loop);
    ignis__chat_value value = ignis__chat_eval(c, node->b), it = ignis__chat_make(IGNIS__CHAT_LOOP, 0),
                      items = ignis__chat_new(c, IGNIS__CHAT_LIST);
    ignis__chat_scope *before = c->scope;
    bool none = true;
    int jump = 0;
    c->here = node->at;
    if (c->fault || !ignis__chat_each(c, value, items.u.items))
        return 0;
    loop->node = node;
    loop->outer = before;
    loop->items = items.u.items;
    loop->next = items.u.items->at;
    loop->end = items.u.items->count;
    loop->base = -loop->next;
    loop->filtered = node->c != NULL;
    it.u.loop = loop;
    ignis__chat_enter(c, before);
    while (jump != IGNIS__CHAT_BREAK && ignis__chat_peek(c, loop)) {
        loop->peeked = false;
        loop->before = loop->now;
        loop->now = loop->after;
        loop->index++;
        c->scope->names.count = 0;
        ignis__chat_assign(c, node->a, loop->now);
        ignis__chat_put(c, &c->scope->names, ignis__chat_words("loop"), it);
        jump = ignis__chat_run(c, node->list);
        none = none && jump; /* as in jinja2, where else runs when no turn has come to its end */
    }
    if (none && node->list->next) {
        ignis__chat_enter(c, before);
        ignis__chat_run(c, node->list->next);
    }
    c->scope = before;
    return 0;
}

/*  A macro, which sees what is around it. */
static ignis__chat_value ignis__chat_macro_of(ignis__chat *c, const ignis__chat_node *node)
{
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_MACRO, 0);
    value.u.macro = (ignis__chat_macro *)ignis__chat_alloc(c, sizeof *value.u.macro);
    if (!value.u.macro)
        return ignis__chat_make(IGNIS__CHAT_UNDEFINED, 0);
    value.u.macro->node = node;
    value.u.macro->scope = c->scope;
    return value;
}

static int ignis__chat_run_one(ignis__chat *c, const ignis__chat_node *node)
{
    const ignis__chat_node *part;
    ignis__chat_scope *before = c->scope, *inner;
    ignis__chat_value value;
    int jump = 0;
    switch (node->op) {
    case IGNIS__CHAT_TEXT: ignis__chat_write_string(c, c->out, node->value); break;
    case IGNIS__CHAT_PRINT:
        value = ignis__chat_eval(c, node->a);
        c->here = node->at;
        if (node->sign && value.kind != IGNIS__CHAT_STRING)
            ignis__chat_fail_kind(c, "the filters of a block write text", value);
        if (!c->fault)
            ignis__chat_write_value(c, c->out, value, NULL, false, 0);
        break;
    case IGNIS__CHAT_IF:
        for (part = node->list; part && !c->fault; part = part->next)
            if (!part->a || ignis__chat_true(ignis__chat_eval(c, part->a)))
                return c->fault ? 0 : ignis__chat_run(c, part->b);
        break;
    case IGNIS__CHAT_FOR: return ignis__chat_run_for(c, node);
    case IGNIS__CHAT_SET:
        value = ignis__chat_eval(c, node->b);
        c->here = node->at;
        ignis__chat_assign(c, node->a, value);
        break;
    case IGNIS__CHAT_SET_BLOCK:
        ignis__chat_enter(c, before);
        value = ignis__chat_capture(c, node->b);
        c->scope = before;
        c->here = node->at;
        ignis__chat_assign(c, node->a, value);
        break;
    case IGNIS__CHAT_MACRO_OF: ignis__chat_put(c, &before->names, node->value, ignis__chat_macro_of(c, node)); break;
    case IGNIS__CHAT_CALL_BLOCK:
        value = ignis__chat_macro_of(c, node->b);
        value = ignis__chat_eval_call(c, node->a, &value);
        c->here = node->at;
        if (value.kind != IGNIS__CHAT_STRING)
            ignis__chat_fail_kind(c, "what a block calls gives text", value);
        if (!c->fault)
            ignis__chat_write_string(c, c->out, value);
        break;
    case IGNIS__CHAT_BLOCK:
        ignis__chat_enter(c, before);
        inner = c->scope;
        for (part = node->list; part && !c->fault; part = part->next) { /* of with: values are taken outside, and set inside */
            c->scope = before;
            value = ignis__chat_eval(c, part->b);
            c->scope = inner;
            ignis__chat_assign(c, part->a, value);
        }
        jump = ignis__chat_run(c, node->b);
        c->scope = before;
        break;
    default: return node->op;
    }
    return jump;
}

static bool ignis__chat_deeper(ignis__chat *c, size_t at)
{
    c->here = at;
    if (c->fault || !ignis__chat_work(c, 1))
        return false;
    if (c->depth >= IGNIS__CHAT_DEPTH) {
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_LIMIT, at, "the template is nested deeper than %d", IGNIS__CHAT_DEPTH);
        return false;
    }
    c->depth++;
    return true;
}

/*  Runs the statements of a body; the statement that ended it early, break or continue, or 0. */
static int ignis__chat_run(ignis__chat *c, const ignis__chat_node *body)
{
    const ignis__chat_node *node;
    int jump = 0;
    if (!ignis__chat_deeper(c, body->at))
        return 0;
    for (node = body->list; node && !jump && ignis__chat_work(c, 1); node = node->next)
        jump = ignis__chat_run_one(c, node);
    c->depth--;
    return c->fault ? 0 : jump;
}

/*  The arguments of a call, filter or test. */
static void ignis__chat_take_arguments(ignis__chat *c, const ignis__chat_node *node, ignis__chat_call *call)
{
    const ignis__chat_node *argument;
    for (argument = node->list; argument && !c->fault; argument = argument->next) {
        ignis__chat_value value = ignis__chat_eval(c, argument->a);
        if (argument->value.kind == IGNIS__CHAT_ABSENT)
            ignis__chat_add(c, &call->given, value);
        else if (ignis__chat_find(c, &call->named, argument->value) >= 0)
            ignis__chat_fail(c, "an argument is given twice");
        else
            ignis__chat_put(c, &call->named, argument->value, value);
    }
    c->here = node->at;
}

/*  An argument by its place, or by its name; those by name are counted. */
static ignis__chat_value ignis__chat_argument(ignis__chat *c, const ignis__chat_call *call, ignis__chat_value of, ignis__chat_value name,
                                              int64_t place, int64_t *named)
{
    int64_t at = ignis__chat_find(c, &call->named, name);
    *named += at >= 0;
    if (at >= 0 && place < call->given.count)
        return ignis__chat_fail(c, "%.*s gets '%.*s' twice", (int)of.number, of.u.text, (int)name.number, name.u.text);
    return at >= 0                     ? call->named.item[at + 1]
           : place < call->given.count ? call->given.item[place]
                                       : ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
}

static ignis__chat_value ignis__chat_call_macro(ignis__chat *c, const ignis__chat_macro *macro, const ignis__chat_call *call)
{
    ignis__chat_scope *before = ignis__chat_enter(c, macro->scope);
    ignis__chat_value of = macro->node->value, caller = ignis__chat_words("caller"), value;
    const ignis__chat_node *name;
    int64_t count = 0, named = 0;
    for (name = macro->node->list; name && !c->fault; name = name->next) {
        value = ignis__chat_argument(c, call, of, name->value, count++, &named);
        if (!value.kind)
            value = name->a ? ignis__chat_eval(c, name->a) : ignis__chat_undefined(value, name->value);
        ignis__chat_put(c, &c->scope->names, name->value, value);
    }
    if (macro->node->sign && !c->fault && ignis__chat_find(c, &c->scope->names, caller) < 0) { /* a macro that names it has it */
        value = ignis__chat_argument(c, call, of, caller, INT64_MAX, &named);
        ignis__chat_put(c, &c->scope->names, caller, value.kind ? value : ignis__chat_undefined(value, caller));
    }
    if (call->given.count > count || call->named.count > 2 * named)
        ignis__chat_fail(c, "the macro '%.*s' has no such argument, or it has two values", (int)of.number, of.u.text);
    value = ignis__chat_capture(c, macro->node->b);
    c->scope = before;
    return value;
}

/*  Runs a row of the table: its arguments go to their places. */
static ignis__chat_value ignis__chat_run_row(ignis__chat *c, const ignis__chat_row *row, ignis__chat_call *call)
{
    ignis__chat_value of = ignis__chat_string(row->names, strcspn(row->names, " "), NULL);
    const char *at = row->parameters;
    int64_t named = 0;
    int count = 0;
    if (c->fault)
        return call->self;
    if (!row->run)
        return ignis__chat_lacks(c, "the function '%s'", row->names);
    memset(call->value, 0, sizeof call->value);
    call->how = row->how;
    if (call->self.kind == IGNIS__CHAT_STRING)
        ignis__chat_work(c, call->self.number / 16);
    for (; at && *at; count++) {
        bool needed = *at == '!';
        size_t length = strcspn(at += needed, " ");
        call->value[count] = ignis__chat_argument(c, call, of, ignis__chat_string(at, length, NULL), count, &named);
        if (needed && !call->value[count].kind)
            return ignis__chat_fail(c, "%.*s needs '%.*s'", (int)of.number, of.u.text, (int)length, at);
        at += length + (at[length] == ' ');
    }
    if (at && (call->given.count > count || call->named.count > 2 * named))
        return ignis__chat_fail(c, "%.*s takes other arguments: %s", (int)of.number, of.u.text,
                                *row->parameters ? row->parameters : "none");
    return c->fault ? call->self : row->run(c, call);
}

/*  A filter or a test by its name. */
static ignis__chat_value ignis__chat_apply(ignis__chat *c, char of, ignis__chat_value name, ignis__chat_call *call)
{
    int row = name.kind == IGNIS__CHAT_STRING ? ignis__chat_row_find(c, of, name) : -1;
    if (c->fault || name.kind != IGNIS__CHAT_STRING)
        return ignis__chat_fail(c, "the name of a filter or test is text");
    if (row < 0)
        return ignis__chat_lacks(c, "the %s '%.*s'", of == 'f' ? "filter" : "test", (int)(name.number < 60 ? name.number : 60),
                                 name.u.text);
    return ignis__chat_run_row(c, ignis__chat_row_at(row), call);
}

/*  A call, filter or test; caller: what {% call %} gives it beside its arguments, or null. */
static ignis__chat_value ignis__chat_eval_call(ignis__chat *c, const ignis__chat_node *node, const ignis__chat_value *caller)
{
    ignis__chat_call call = IGNIS__ZERO;
    ignis__chat_value object = ignis__chat_eval(c, node->a);
    ignis__chat_take_arguments(c, node, &call);
    if (caller)
        ignis__chat_put(c, &call.named, ignis__chat_words("caller"), *caller);
    if (c->fault)
        return object;
    call.self = object;
    if (node->op != IGNIS__CHAT_CALL) {
        object = ignis__chat_apply(c, node->op == IGNIS__CHAT_FILTER ? 'f' : 't', node->value, &call);
        return node->sign ? ignis__chat_bool(!ignis__chat_true(object)) : object;
    }
    if (object.kind == IGNIS__CHAT_MACRO)
        return ignis__chat_call_macro(c, object.u.macro, &call);
    if (object.kind != IGNIS__CHAT_FUNCTION)
        return ignis__chat_fail_kind(c, "what is called is a function", object);
    if (object.u.object)
        call.self = *object.u.object;
    return ignis__chat_run_row(c, ignis__chat_row_at(object.number), &call);
}

static ignis__chat_value ignis__chat_eval_items(ignis__chat *c, const ignis__chat_node *node)
{
    bool dict = node->sign == IGNIS__CHAT_DICT;
    ignis__chat_value value, out = ignis__chat_new(c, (ignis__chat_kind)node->sign);
    const ignis__chat_node *part;
    for (part = node->list; part && !c->fault; part = part->next) {
        value = ignis__chat_eval(c, part);
        if (!dict)
            ignis__chat_add(c, out.u.items, value);
        else if (part = part->next, !c->fault && ignis__chat_hashable(c, value))
            ignis__chat_put(c, out.u.items, value, ignis__chat_eval(c, part));
    }
    return out;
}

static ignis__chat_value ignis__chat_eval_compare(ignis__chat *c, const ignis__chat_node *node)
{
    ignis__chat_value left = ignis__chat_eval(c, node->a), right;
    const ignis__chat_node *part;
    bool yes = true;
    for (part = node->list; part && yes && !c->fault; part = part->next, left = right) {
        right = ignis__chat_eval(c, part->a);
        c->here = part->at;
        yes = !c->fault && ignis__chat_compares(c, (char)part->sign, left, right);
    }
    return ignis__chat_bool(yes);
}

static ignis__chat_value ignis__chat_eval_unary(ignis__chat *c, const ignis__chat_node *node)
{
    ignis__chat_value value = ignis__chat_eval(c, node->a);
    c->here = node->at;
    if (node->sign == '!')
        return ignis__chat_bool(!ignis__chat_true(value));
    if (c->fault || !ignis__chat_is_number(value))
        return ignis__chat_fail_kind(c, "a sign stands before a number", value);
    if (value.kind == IGNIS__CHAT_FLOAT)
        value.u.real = node->sign == '-' ? -value.u.real : value.u.real;
    else if (node->sign == '-' && value.number == INT64_MIN)
        return ignis__chat_lacks(c, "a whole number of more than 64 bits");
    else
        value.kind = IGNIS__CHAT_INT, value.number = node->sign == '-' ? -value.number : value.number;
    return value;
}

static ignis__chat_value ignis__chat_eval_slice(ignis__chat *c, const ignis__chat_node *node)
{
    ignis__chat_value object = ignis__chat_eval(c, node->a), bound[3];
    const ignis__chat_node *part;
    int i = 0;
    for (part = node->list; part && i < 3; part = part->next)
        bound[i++] = ignis__chat_eval(c, part);
    c->here = node->at;
    return c->fault ? object : ignis__chat_slice(c, object, bound);
}

static ignis__chat_value ignis__chat_eval_two(ignis__chat *c, const ignis__chat_node *node)
{
    ignis__chat_value a = ignis__chat_eval(c, node->a), b;
    bool logical = node->sign == 'a' || node->sign == 'o';
    if (c->fault || (logical && ignis__chat_true(a) == (node->sign == 'o')))
        return a;
    b = ignis__chat_eval(c, node->b);
    c->here = node->at;
    if (c->fault || logical)
        return b;
    return node->op == IGNIS__CHAT_ITEM ? ignis__chat_member(c, a, b, true) : ignis__chat_binary_of(c, (char)node->sign, a, b);
}

static ignis__chat_value ignis__chat_eval(ignis__chat *c, const ignis__chat_node *node)
{
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_UNDEFINED, 0);
    ignis__chat_scope *before;
    if (!ignis__chat_deeper(c, node->at))
        return value;
    switch (node->op) {
    case IGNIS__CHAT_CONST: value = node->value; break;
    case IGNIS__CHAT_NAME: value = ignis__chat_lookup(c, node->value); break;
    case IGNIS__CHAT_ITEMS_OF: value = ignis__chat_eval_items(c, node); break;
    case IGNIS__CHAT_SLICE: value = ignis__chat_eval_slice(c, node); break;
    case IGNIS__CHAT_ATTRIBUTE:
        value = ignis__chat_eval(c, node->a);
        c->here = node->at;
        value = ignis__chat_member(c, value, node->value, false);
        break;
    case IGNIS__CHAT_CALL:
    case IGNIS__CHAT_FILTER:
    case IGNIS__CHAT_TEST: value = ignis__chat_eval_call(c, node, NULL); break;
    case IGNIS__CHAT_CAPTURE:
        before = ignis__chat_enter(c, c->scope);
        value = ignis__chat_capture(c, node->b);
        c->scope = before;
        break;
    case IGNIS__CHAT_UNARY: value = ignis__chat_eval_unary(c, node); break;
    case IGNIS__CHAT_COMPARE: value = ignis__chat_eval_compare(c, node); break;
    case IGNIS__CHAT_CHOICE:
        if (ignis__chat_true(ignis__chat_eval(c, node->b)))
            value = ignis__chat_eval(c, node->a);
        else if (node->c)
            value = ignis__chat_eval(c, node->c);
        break;
    default: value = ignis__chat_eval_two(c, node); break;
    }
    c->depth--;
    return value;
}

/* --- filters, tests, methods and functions ----------------------------------------------------------------------------- */

static bool ignis__chat_given(ignis__chat_value v) { return v.kind != IGNIS__CHAT_ABSENT && v.kind != IGNIS__CHAT_NONE; }

/*  An argument that has to be text; a fault where it is not. */
static bool ignis__chat_want_text(ignis__chat *c, ignis__chat_value v)
{
    if (v.kind != IGNIS__CHAT_STRING)
        ignis__chat_fail_kind(c, "an argument is text", v);
    return !c->fault;
}

/*  One that has to be a whole number, `otherwise` where it is not given. */
static int64_t ignis__chat_want_int(ignis__chat *c, ignis__chat_value v, int64_t otherwise)
{
    if (ignis__chat_given(v) && !ignis__chat_is_whole(v))
        ignis__chat_fail_kind(c, "an argument is a whole number", v);
    return ignis__chat_given(v) ? v.number : otherwise;
}

/*  The pieces of a text between what separates them: at most `limit` times, if that is not negative, with `right` at the last places. An empty text
    separates all characters. */
static void ignis__chat_pieces(ignis__chat *c, ignis__chat_value s, ignis__chat_value by, int64_t limit, bool right, ignis__chat_items *out)
{
    size_t size = (size_t)s.number, step = (size_t)by.number, at = 0, end = size, place;
    ignis__needle needle = ignis__chat_needle_of(c, by, right);
    int64_t i, k;
    memset(out, 0, sizeof *out);
    while (out->count != limit && ignis__chat_work(c, 1)) { /* what is left lies from `at` to `end` */
        const char *found = ignis__chat_search(c, s.u.text + at, end - at, &needle);
        if (step == 0 && out->count)
            found = at == end ? NULL : right ? s.u.text + ignis__chat_before(s.u.text, end) : found + ignis__chat_character(found);
        if (!found)
            break;
        place = (size_t)(found - s.u.text);
        ignis__chat_add(c, out, right ? ignis__chat_part(s, place + step, end) : ignis__chat_part(s, at, place));
        *(right ? &end : &at) = right ? place : place + step;
    }
    ignis__chat_add(c, out, ignis__chat_part(s, at, end));
    for (i = 0, k = out->count - 1; right && i < k; i++, k--) {
        ignis__chat_value swap = out->item[i];
        out->item[i] = out->item[k];
        out->item[k] = swap;
    }
}

/*  strip and trim (3), lstrip (1), rstrip (2): white space, or the characters that are given. */
static ignis__chat_value ignis__chat_do_strip(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value s = ignis__chat_text(c, call->self), set = call->value[0];
    bool given = ignis__chat_given(set), ascii[128];
    size_t from = 0, to = (size_t)s.number, at, next;
    int side;
    if (given && !ignis__chat_want_text(c, set))
        return s;
    memset(ascii, 0, sizeof ascii);
    ignis__chat_work(c, given ? set.number / 16 : 0);
    for (at = 0; given && at < (size_t)set.number; at++)
        if ((unsigned char)set.u.text[at] < 128)
            ascii[(unsigned char)set.u.text[at]] = true;
    for (side = 1; side <= 2; side++) {
        while ((call->how & side) && from < to && ignis__chat_work(c, 1)) {
            at = side == 1 ? from : ignis__chat_before(s.u.text, to);
            next = at + ignis__chat_character(s.u.text + at);
            if (!given           ? !ignis__chat_is_space(s.u.text + at)
                : next - at == 1 ? !ascii[(unsigned char)s.u.text[at]]
                                 : !ignis__chat_contains(c, ignis__chat_part(s, at, next), set))
                break;
            *(side == 1 ? &from : &to) = side == 1 ? next : at;
        }
    }
    return ignis__chat_part(s, from, to);
}

/*  From here on written by tools/case_tables.py. */
/* clang-format off */
/*  Of Unicode 14.0.0. Runs of letters that change by the same: the first << 43 | 2^42 for every second | the last - the first << 26 |
    2^25 + the change. */
static const uint64_t ignis__case_lower[] = {
    0x600005A000020, 0x6C0001A000020, 0x80400BA000001, 0x9940012000001, 0x9CC003A000001, 0xA5400B2000001, 0xBC00001FFFF87, 0xBCC0012000001,
    0xC0800020000D2, 0xC14000A000001, 0xC3000020000CE, 0xC380002000001, 0xC4800060000CD, 0xC580002000001, 0xC70000200004F, 0xC7800020000CA,
    0xC8000020000CB, 0xC880002000001, 0xC9800020000CD, 0xCA000020000CF, 0xCB000020000D3, 0xCB800020000D1, 0xCC00002000001, 0xCE000020000D3,
    0xCE800020000D5, 0xCF800020000D6, 0xD040012000001, 0xD3000020000DA, 0xD380002000001, 0xD4800020000DA, 0xD600002000001, 0xD7000020000DA,
    0xD780002000001, 0xD8800060000D9, 0xD9C000A000001, 0xDB800020000DB, 0xDC00002000001, 0xDE00002000001, 0xE200002000002, 0xE280002000001,
    0xE380002000002, 0xE400002000001, 0xE500002000002, 0xE5C0042000001, 0xEF40042000001, 0xF880002000002, 0xF94000A000001, 0xFB00001FFFF9F,
    0xFB80001FFFFC8, 0xFC4009A000001, 0x11000001FFFF7E, 0x11140042000001, 0x11D00002002A2B, 0x11D80002000001, 0x11E80001FFFF5D, 0x11F00002002A28,
    0x12080002000001, 0x12180001FFFF3D, 0x12200002000045, 0x12280002000047, 0x12340022000001, 0x1B84000A000001, 0x1BB00002000001, 0x1BF80002000074,
    0x1C300002000026, 0x1C40000A000025, 0x1C600002000040, 0x1C70000600003F, 0x1C880042000020, 0x1D180022000020, 0x1E780002000008, 0x1EC4005A000001,
    0x1FA00001FFFFC4, 0x1FB80002000001, 0x1FC80001FFFFF9, 0x1FD00002000001, 0x1FE80009FFFF7E, 0x2000003E000050, 0x2080007E000020, 0x23040082000001,
    0x245400D2000001, 0x2600000200000F, 0x260C0032000001, 0x2684017A000001, 0x29880096000030, 0x85000096001C60, 0x86380002001C60, 0x86680002001C60,
    0x9D00013E0097D0, 0x9F800016000008, 0xE48000A9FFF440, 0xE5E80009FFF440, 0xF0040252000001, 0xF4F00001FFE241, 0xF504017A000001, 0xF840001DFFFFF8,
    0xF8C00015FFFFF8, 0xF940001DFFFFF8, 0xF9C0001DFFFFF8, 0xFA400015FFFFF8, 0xFACC0019FFFFF8, 0xFB40001DFFFFF8, 0xFC40001DFFFFF8, 0xFCC0001DFFFFF8,
    0xFD40001DFFFFF8, 0xFDC00005FFFFF8, 0xFDD00005FFFFB6, 0xFDE00001FFFFF7, 0xFE40000DFFFFAA, 0xFE600001FFFFF7, 0xFEC00005FFFFF8, 0xFED00005FFFF9C,
    0xFF400005FFFFF8, 0xFF500005FFFF90, 0xFF600001FFFFF9, 0xFFC00005FFFF80, 0xFFD00005FFFF82, 0xFFE00001FFFFF7, 0x109300001FFE2A3,
    0x109500001FFDF41, 0x109580001FFDFBA, 0x10990000200001C, 0x10B00003E000010, 0x10C180002000001, 0x125B0006600001A, 0x1600000BE000030,
    0x163000002000001, 0x163100001FFD609, 0x163180001FFF11A, 0x163200001FFD619, 0x1633C0012000001, 0x163680001FFD5E4, 0x163700001FFD603,
    0x163780001FFD5E1, 0x163800001FFD5E2, 0x163900002000001, 0x163A80002000001, 0x163F00005FFD5C1, 0x16404018A000001, 0x1675C000A000001,
    0x167900002000001, 0x5320400B2000001, 0x53404006A000001, 0x539140032000001, 0x5399400F2000001, 0x53BCC000A000001, 0x53BE80001FF75FC,
    0x53BF40022000001, 0x53C580002000001, 0x53C680001FF5AD8, 0x53C84000A000001, 0x53CB4004A000001, 0x53D500001FF5ABC, 0x53D580001FF5AB1,
    0x53D600001FF5AB5, 0x53D680001FF5ABF, 0x53D700001FF5ABC, 0x53D800001FF5AEE, 0x53D880001FF5AD6, 0x53D900001FF5AEB, 0x53D9800020003A0,
    0x53DA4003A000001, 0x53E200001FFFFD0, 0x53E280001FF5ABD, 0x53E300001FF75C8, 0x53E3C000A000001, 0x53E800002000001, 0x53EB4000A000001,
    0x53FA80002000001, 0x7F9080066000020, 0x82000009E000028, 0x82580008E000028, 0x82B80002A000027, 0x82BE0003A000027, 0x82C60001A000027,
    0x82CA00006000027, 0x8640000CA000040, 0x8C500007E000020, 0xB7200007E000020, 0xF48000086000022,
};
static const uint64_t ignis__case_upper[] = {
    0x5A800020002E7, 0x7000059FFFFE0, 0x7C00019FFFFE0, 0x7F80002000079, 0x80C00B9FFFFFF, 0x9880001FFFF18, 0x99C0011FFFFFF, 0x9D40039FFFFFF,
    0xA5C00B1FFFFFF, 0xBD40011FFFFFF, 0xBF80001FFFED4, 0xC0000020000C3, 0xC1C0009FFFFFF, 0xC400001FFFFFF, 0xC600001FFFFFF, 0xC900001FFFFFF,
    0xCA80002000061, 0xCC80001FFFFFF, 0xCD000020000A3, 0xCF00002000082, 0xD0C0011FFFFFF, 0xD400001FFFFFF, 0xD680001FFFFFF, 0xD800001FFFFFF,
    0xDA40009FFFFFF, 0xDC80001FFFFFF, 0xDE80001FFFFFF, 0xDF80002000038, 0xE280001FFFFFF, 0xE300001FFFFFE, 0xE400001FFFFFF, 0xE480001FFFFFE,
    0xE580001FFFFFF, 0xE600001FFFFFE, 0xE740039FFFFFF, 0xEE80001FFFFB1, 0xEFC0041FFFFFF, 0xF900001FFFFFF, 0xF980001FFFFFE, 0xFA80001FFFFFF,
    0xFCC0099FFFFFF, 0x111C0041FFFFFF, 0x11E00001FFFFFF, 0x11F80006002A3F, 0x12100001FFFFFF, 0x123C0021FFFFFF, 0x12800002002A1F, 0x12880002002A1C,
    0x12900002002A1E, 0x12980001FFFF2E, 0x12A00001FFFF32, 0x12B00005FFFF33, 0x12C80001FFFF36, 0x12D80001FFFF35, 0x12E0000200A54F, 0x13000001FFFF33,
    0x1308000200A54B, 0x13180001FFFF31, 0x1328000200A528, 0x1330000200A544, 0x13400001FFFF2F, 0x13480001FFFF2D, 0x1350000200A544, 0x135800020029F7,
    0x1360000200A541, 0x13780001FFFF2D, 0x138800020029FD, 0x13900001FFFF2B, 0x13A80001FFFF2A, 0x13E800020029E7, 0x14000001FFFF26, 0x1410000200A543,
    0x14180001FFFF26, 0x1438000200A52A, 0x14400001FFFF26, 0x14480001FFFFBB, 0x14500005FFFF27, 0x14600001FFFFB9, 0x14900001FFFF25, 0x14E8000200A515,
    0x14F0000200A512, 0x1A280002000054, 0x1B8C0009FFFFFF, 0x1BB80001FFFFFF, 0x1BD8000A000082, 0x1D600001FFFFDA, 0x1D680009FFFFDB, 0x1D880041FFFFE0,
    0x1E100001FFFFE1, 0x1E180021FFFFE0, 0x1E600001FFFFC0, 0x1E680005FFFFC1, 0x1E800001FFFFC2, 0x1E880001FFFFC7, 0x1EA80001FFFFD1, 0x1EB00001FFFFCA,
    0x1EB80001FFFFF8, 0x1ECC0059FFFFFF, 0x1F800001FFFFAA, 0x1F880001FFFFB0, 0x1F900002000007, 0x1F980001FFFF8C, 0x1FA80001FFFFA0, 0x1FC00001FFFFFF,
    0x1FD80001FFFFFF, 0x2180007DFFFFE0, 0x2280003DFFFFB0, 0x230C0081FFFFFF, 0x245C00D1FFFFFF, 0x26140031FFFFFF, 0x26780001FFFFF1, 0x268C0179FFFFFF,
    0x2B080095FFFFD0, 0x868000AA000BC0, 0x87E8000A000BC0, 0x9FC00015FFFFF8, 0xE4000001FFE792, 0xE4080001FFE793, 0xE4100001FFE79C, 0xE4180005FFE79E,
    0xE4280001FFE79D, 0xE4300001FFE7A4, 0xE4380001FFE7DB, 0xE44000020089C2, 0xEBC80002008A04, 0xEBE80002000EE6, 0xEC700002008A38, 0xF00C0251FFFFFF,
    0xF4D80001FFFFC5, 0xF50C0179FFFFFF, 0xF800001E000008, 0xF8800016000008, 0xF900001E000008, 0xF980001E000008, 0xFA000016000008, 0xFA8C001A000008,
    0xFB00001E000008, 0xFB80000600004A, 0xFB90000E000056, 0xFBB00006000064, 0xFBC00006000080, 0xFBD00006000070, 0xFBE0000600007E, 0xFD800006000008,
    0xFDF00001FFE3DB, 0xFE800006000008, 0xFF000006000008, 0xFF280002000007, 0x10A700001FFFFE4, 0x10B80003DFFFFF0, 0x10C200001FFFFFF,
    0x126800065FFFFE6, 0x1618000BDFFFFD0, 0x163080001FFFFFF, 0x163280001FFD5D5, 0x163300001FFD5D8, 0x163440011FFFFFF, 0x163980001FFFFFF,
    0x163B00001FFFFFF, 0x1640C0189FFFFFF, 0x167640009FFFFFF, 0x167980001FFFFFF, 0x168000095FFE3A0, 0x169380001FFE3A0, 0x169680001FFE3A0,
    0x5320C00B1FFFFFF, 0x5340C0069FFFFFF, 0x5391C0031FFFFFF, 0x5399C00F1FFFFFF, 0x53BD40009FFFFFF, 0x53BFC0021FFFFFF, 0x53C600001FFFFFF,
    0x53C8C0009FFFFFF, 0x53CA00002000030, 0x53CBC0049FFFFFF, 0x53DAC0039FFFFFF, 0x53E440009FFFFFF, 0x53E880001FFFFFF, 0x53EBC0009FFFFFF,
    0x53FB00001FFFFFF, 0x55A980001FFFC60, 0x55B80013DFF6830, 0x7FA080065FFFFE0, 0x82140009DFFFFD8, 0x826C0008DFFFFD8, 0x82CB80029FFFFD9,
    0x82D180039FFFFD9, 0x82D980019FFFFD9, 0x82DD80005FFFFD9, 0x8660000C9FFFFC0, 0x8C600007DFFFFE0, 0xB7300007DFFFFE0, 0xF49100085FFFFDE,
};
/*  Letters that become several, or others at the beginning of a word. */
static const struct {
    uint32_t code;
    const char *upper, *title;
} ignis__case_special[] = {
    {0xDF, "SS", "Ss"}, {0x149, "\xCA\xBCN", "\xCA\xBCN"}, {0x1C4, "\xC7\x84", "\xC7\x85"}, {0x1C5, "\xC7\x84", "\xC7\x85"},
    {0x1C6, "\xC7\x84", "\xC7\x85"}, {0x1C7, "\xC7\x87", "\xC7\x88"}, {0x1C8, "\xC7\x87", "\xC7\x88"}, {0x1C9, "\xC7\x87", "\xC7\x88"},
    {0x1CA, "\xC7\x8A", "\xC7\x8B"}, {0x1CB, "\xC7\x8A", "\xC7\x8B"}, {0x1CC, "\xC7\x8A", "\xC7\x8B"}, {0x1F0, "J\xCC\x8C", "J\xCC\x8C"},
    {0x1F1, "\xC7\xB1", "\xC7\xB2"}, {0x1F2, "\xC7\xB1", "\xC7\xB2"}, {0x1F3, "\xC7\xB1", "\xC7\xB2"},
    {0x390, "\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81"}, {0x3B0, "\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81"},
    {0x587, "\xD4\xB5\xD5\x92", "\xD4\xB5\xD6\x82"}, {0x10D0, "\xE1\xB2\x90", "\xE1\x83\x90"}, {0x10D1, "\xE1\xB2\x91", "\xE1\x83\x91"},
    {0x10D2, "\xE1\xB2\x92", "\xE1\x83\x92"}, {0x10D3, "\xE1\xB2\x93", "\xE1\x83\x93"}, {0x10D4, "\xE1\xB2\x94", "\xE1\x83\x94"},
    {0x10D5, "\xE1\xB2\x95", "\xE1\x83\x95"}, {0x10D6, "\xE1\xB2\x96", "\xE1\x83\x96"}, {0x10D7, "\xE1\xB2\x97", "\xE1\x83\x97"},
    {0x10D8, "\xE1\xB2\x98", "\xE1\x83\x98"}, {0x10D9, "\xE1\xB2\x99", "\xE1\x83\x99"}, {0x10DA, "\xE1\xB2\x9A", "\xE1\x83\x9A"},
    {0x10DB, "\xE1\xB2\x9B", "\xE1\x83\x9B"}, {0x10DC, "\xE1\xB2\x9C", "\xE1\x83\x9C"}, {0x10DD, "\xE1\xB2\x9D", "\xE1\x83\x9D"},
    {0x10DE, "\xE1\xB2\x9E", "\xE1\x83\x9E"}, {0x10DF, "\xE1\xB2\x9F", "\xE1\x83\x9F"}, {0x10E0, "\xE1\xB2\xA0", "\xE1\x83\xA0"},
    {0x10E1, "\xE1\xB2\xA1", "\xE1\x83\xA1"}, {0x10E2, "\xE1\xB2\xA2", "\xE1\x83\xA2"}, {0x10E3, "\xE1\xB2\xA3", "\xE1\x83\xA3"},
    {0x10E4, "\xE1\xB2\xA4", "\xE1\x83\xA4"}, {0x10E5, "\xE1\xB2\xA5", "\xE1\x83\xA5"}, {0x10E6, "\xE1\xB2\xA6", "\xE1\x83\xA6"},
    {0x10E7, "\xE1\xB2\xA7", "\xE1\x83\xA7"}, {0x10E8, "\xE1\xB2\xA8", "\xE1\x83\xA8"}, {0x10E9, "\xE1\xB2\xA9", "\xE1\x83\xA9"},
    {0x10EA, "\xE1\xB2\xAA", "\xE1\x83\xAA"}, {0x10EB, "\xE1\xB2\xAB", "\xE1\x83\xAB"}, {0x10EC, "\xE1\xB2\xAC", "\xE1\x83\xAC"},
    {0x10ED, "\xE1\xB2\xAD", "\xE1\x83\xAD"}, {0x10EE, "\xE1\xB2\xAE", "\xE1\x83\xAE"}, {0x10EF, "\xE1\xB2\xAF", "\xE1\x83\xAF"},
    {0x10F0, "\xE1\xB2\xB0", "\xE1\x83\xB0"}, {0x10F1, "\xE1\xB2\xB1", "\xE1\x83\xB1"}, {0x10F2, "\xE1\xB2\xB2", "\xE1\x83\xB2"},
    {0x10F3, "\xE1\xB2\xB3", "\xE1\x83\xB3"}, {0x10F4, "\xE1\xB2\xB4", "\xE1\x83\xB4"}, {0x10F5, "\xE1\xB2\xB5", "\xE1\x83\xB5"},
    {0x10F6, "\xE1\xB2\xB6", "\xE1\x83\xB6"}, {0x10F7, "\xE1\xB2\xB7", "\xE1\x83\xB7"}, {0x10F8, "\xE1\xB2\xB8", "\xE1\x83\xB8"},
    {0x10F9, "\xE1\xB2\xB9", "\xE1\x83\xB9"}, {0x10FA, "\xE1\xB2\xBA", "\xE1\x83\xBA"}, {0x10FD, "\xE1\xB2\xBD", "\xE1\x83\xBD"},
    {0x10FE, "\xE1\xB2\xBE", "\xE1\x83\xBE"}, {0x10FF, "\xE1\xB2\xBF", "\xE1\x83\xBF"}, {0x1E96, "H\xCC\xB1", "H\xCC\xB1"},
    {0x1E97, "T\xCC\x88", "T\xCC\x88"}, {0x1E98, "W\xCC\x8A", "W\xCC\x8A"}, {0x1E99, "Y\xCC\x8A", "Y\xCC\x8A"}, {0x1E9A, "A\xCA\xBE", "A\xCA\xBE"},
    {0x1F50, "\xCE\xA5\xCC\x93", "\xCE\xA5\xCC\x93"}, {0x1F52, "\xCE\xA5\xCC\x93\xCC\x80", "\xCE\xA5\xCC\x93\xCC\x80"},
    {0x1F54, "\xCE\xA5\xCC\x93\xCC\x81", "\xCE\xA5\xCC\x93\xCC\x81"}, {0x1F56, "\xCE\xA5\xCC\x93\xCD\x82", "\xCE\xA5\xCC\x93\xCD\x82"},
    {0x1F80, "\xE1\xBC\x88\xCE\x99", "\xE1\xBE\x88"}, {0x1F81, "\xE1\xBC\x89\xCE\x99", "\xE1\xBE\x89"},
    {0x1F82, "\xE1\xBC\x8A\xCE\x99", "\xE1\xBE\x8A"}, {0x1F83, "\xE1\xBC\x8B\xCE\x99", "\xE1\xBE\x8B"},
    {0x1F84, "\xE1\xBC\x8C\xCE\x99", "\xE1\xBE\x8C"}, {0x1F85, "\xE1\xBC\x8D\xCE\x99", "\xE1\xBE\x8D"},
    {0x1F86, "\xE1\xBC\x8E\xCE\x99", "\xE1\xBE\x8E"}, {0x1F87, "\xE1\xBC\x8F\xCE\x99", "\xE1\xBE\x8F"},
    {0x1F88, "\xE1\xBC\x88\xCE\x99", "\xE1\xBE\x88"}, {0x1F89, "\xE1\xBC\x89\xCE\x99", "\xE1\xBE\x89"},
    {0x1F8A, "\xE1\xBC\x8A\xCE\x99", "\xE1\xBE\x8A"}, {0x1F8B, "\xE1\xBC\x8B\xCE\x99", "\xE1\xBE\x8B"},
    {0x1F8C, "\xE1\xBC\x8C\xCE\x99", "\xE1\xBE\x8C"}, {0x1F8D, "\xE1\xBC\x8D\xCE\x99", "\xE1\xBE\x8D"},
    {0x1F8E, "\xE1\xBC\x8E\xCE\x99", "\xE1\xBE\x8E"}, {0x1F8F, "\xE1\xBC\x8F\xCE\x99", "\xE1\xBE\x8F"},
    {0x1F90, "\xE1\xBC\xA8\xCE\x99", "\xE1\xBE\x98"}, {0x1F91, "\xE1\xBC\xA9\xCE\x99", "\xE1\xBE\x99"},
    {0x1F92, "\xE1\xBC\xAA\xCE\x99", "\xE1\xBE\x9A"}, {0x1F93, "\xE1\xBC\xAB\xCE\x99", "\xE1\xBE\x9B"},
    {0x1F94, "\xE1\xBC\xAC\xCE\x99", "\xE1\xBE\x9C"}, {0x1F95, "\xE1\xBC\xAD\xCE\x99", "\xE1\xBE\x9D"},
    {0x1F96, "\xE1\xBC\xAE\xCE\x99", "\xE1\xBE\x9E"}, {0x1F97, "\xE1\xBC\xAF\xCE\x99", "\xE1\xBE\x9F"},
    {0x1F98, "\xE1\xBC\xA8\xCE\x99", "\xE1\xBE\x98"}, {0x1F99, "\xE1\xBC\xA9\xCE\x99", "\xE1\xBE\x99"},
    {0x1F9A, "\xE1\xBC\xAA\xCE\x99", "\xE1\xBE\x9A"}, {0x1F9B, "\xE1\xBC\xAB\xCE\x99", "\xE1\xBE\x9B"},
    {0x1F9C, "\xE1\xBC\xAC\xCE\x99", "\xE1\xBE\x9C"}, {0x1F9D, "\xE1\xBC\xAD\xCE\x99", "\xE1\xBE\x9D"},
    {0x1F9E, "\xE1\xBC\xAE\xCE\x99", "\xE1\xBE\x9E"}, {0x1F9F, "\xE1\xBC\xAF\xCE\x99", "\xE1\xBE\x9F"},
    {0x1FA0, "\xE1\xBD\xA8\xCE\x99", "\xE1\xBE\xA8"}, {0x1FA1, "\xE1\xBD\xA9\xCE\x99", "\xE1\xBE\xA9"},
    {0x1FA2, "\xE1\xBD\xAA\xCE\x99", "\xE1\xBE\xAA"}, {0x1FA3, "\xE1\xBD\xAB\xCE\x99", "\xE1\xBE\xAB"},
    {0x1FA4, "\xE1\xBD\xAC\xCE\x99", "\xE1\xBE\xAC"}, {0x1FA5, "\xE1\xBD\xAD\xCE\x99", "\xE1\xBE\xAD"},
    {0x1FA6, "\xE1\xBD\xAE\xCE\x99", "\xE1\xBE\xAE"}, {0x1FA7, "\xE1\xBD\xAF\xCE\x99", "\xE1\xBE\xAF"},
    {0x1FA8, "\xE1\xBD\xA8\xCE\x99", "\xE1\xBE\xA8"}, {0x1FA9, "\xE1\xBD\xA9\xCE\x99", "\xE1\xBE\xA9"},
    {0x1FAA, "\xE1\xBD\xAA\xCE\x99", "\xE1\xBE\xAA"}, {0x1FAB, "\xE1\xBD\xAB\xCE\x99", "\xE1\xBE\xAB"},
    {0x1FAC, "\xE1\xBD\xAC\xCE\x99", "\xE1\xBE\xAC"}, {0x1FAD, "\xE1\xBD\xAD\xCE\x99", "\xE1\xBE\xAD"},
    {0x1FAE, "\xE1\xBD\xAE\xCE\x99", "\xE1\xBE\xAE"}, {0x1FAF, "\xE1\xBD\xAF\xCE\x99", "\xE1\xBE\xAF"},
    {0x1FB2, "\xE1\xBE\xBA\xCE\x99", "\xE1\xBE\xBA\xCD\x85"}, {0x1FB3, "\xCE\x91\xCE\x99", "\xE1\xBE\xBC"},
    {0x1FB4, "\xCE\x86\xCE\x99", "\xCE\x86\xCD\x85"}, {0x1FB6, "\xCE\x91\xCD\x82", "\xCE\x91\xCD\x82"},
    {0x1FB7, "\xCE\x91\xCD\x82\xCE\x99", "\xCE\x91\xCD\x82\xCD\x85"}, {0x1FBC, "\xCE\x91\xCE\x99", "\xE1\xBE\xBC"},
    {0x1FC2, "\xE1\xBF\x8A\xCE\x99", "\xE1\xBF\x8A\xCD\x85"}, {0x1FC3, "\xCE\x97\xCE\x99", "\xE1\xBF\x8C"},
    {0x1FC4, "\xCE\x89\xCE\x99", "\xCE\x89\xCD\x85"}, {0x1FC6, "\xCE\x97\xCD\x82", "\xCE\x97\xCD\x82"},
    {0x1FC7, "\xCE\x97\xCD\x82\xCE\x99", "\xCE\x97\xCD\x82\xCD\x85"}, {0x1FCC, "\xCE\x97\xCE\x99", "\xE1\xBF\x8C"},
    {0x1FD2, "\xCE\x99\xCC\x88\xCC\x80", "\xCE\x99\xCC\x88\xCC\x80"}, {0x1FD3, "\xCE\x99\xCC\x88\xCC\x81", "\xCE\x99\xCC\x88\xCC\x81"},
    {0x1FD6, "\xCE\x99\xCD\x82", "\xCE\x99\xCD\x82"}, {0x1FD7, "\xCE\x99\xCC\x88\xCD\x82", "\xCE\x99\xCC\x88\xCD\x82"},
    {0x1FE2, "\xCE\xA5\xCC\x88\xCC\x80", "\xCE\xA5\xCC\x88\xCC\x80"}, {0x1FE3, "\xCE\xA5\xCC\x88\xCC\x81", "\xCE\xA5\xCC\x88\xCC\x81"},
    {0x1FE4, "\xCE\xA1\xCC\x93", "\xCE\xA1\xCC\x93"}, {0x1FE6, "\xCE\xA5\xCD\x82", "\xCE\xA5\xCD\x82"},
    {0x1FE7, "\xCE\xA5\xCC\x88\xCD\x82", "\xCE\xA5\xCC\x88\xCD\x82"}, {0x1FF2, "\xE1\xBF\xBA\xCE\x99", "\xE1\xBF\xBA\xCD\x85"},
    {0x1FF3, "\xCE\xA9\xCE\x99", "\xE1\xBF\xBC"}, {0x1FF4, "\xCE\x8F\xCE\x99", "\xCE\x8F\xCD\x85"},
    {0x1FF6, "\xCE\xA9\xCD\x82", "\xCE\xA9\xCD\x82"}, {0x1FF7, "\xCE\xA9\xCD\x82\xCE\x99", "\xCE\xA9\xCD\x82\xCD\x85"},
    {0x1FFC, "\xCE\xA9\xCE\x99", "\xE1\xBF\xBC"}, {0xFB00, "FF", "Ff"}, {0xFB01, "FI", "Fi"}, {0xFB02, "FL", "Fl"}, {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"}, {0xFB05, "ST", "St"}, {0xFB06, "ST", "St"}, {0xFB13, "\xD5\x84\xD5\x86", "\xD5\x84\xD5\xB6"},
    {0xFB14, "\xD5\x84\xD4\xB5", "\xD5\x84\xD5\xA5"}, {0xFB15, "\xD5\x84\xD4\xBB", "\xD5\x84\xD5\xAB"},
    {0xFB16, "\xD5\x8E\xD5\x86", "\xD5\x8E\xD5\xB6"}, {0xFB17, "\xD5\x84\xD4\xBD", "\xD5\x84\xD5\xAD"},
};
/* clang-format on */
/*  As far as here. Other letters than these and ASCII have no case. */

/*  The letter that a letter becomes by one of the tables, itself where it is in none. */
static uint32_t ignis__case_of(const uint64_t *table, int count, uint32_t code)
{
    int low = 0, high = count;
    uint64_t run;
    uint32_t first;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (table[middle] >> 43 <= code)
            low = middle;
        else
            high = middle;
    }
    run = table[low];
    first = (uint32_t)(run >> 43);
    if (code < first || code - first > (run >> 26 & 0xFFFF) || (run >> 42 & 1 && (code - first) % 2))
        return code;
    return code + (uint32_t)(run & 0x3FFFFFF) - (1u << 25);
}

static uint32_t ignis__case_lower_of(uint32_t code)
{
    if (code < 128)
        return code >= 'A' && code <= 'Z' ? code | 32 : code;
    return ignis__case_of(ignis__case_lower, IGNIS__COUNT(ignis__case_lower), code);
}

static uint32_t ignis__case_upper_of(uint32_t code)
{
    if (code < 128)
        return code >= 'a' && code <= 'z' ? code & ~32u : code;
    return ignis__case_of(ignis__case_upper, IGNIS__COUNT(ignis__case_upper), code);
}

/*  Whether a character has upper and lower case; letters of which only one exists are taken for others, but for a few. */
static bool ignis__case_is(uint32_t code)
{
    return ignis__case_lower_of(code) != code || ignis__case_upper_of(code) != code || code == 0xDF || code == 0x130 || code == 0xAA ||
           code == 0xBA;
}

/*  Whether a sigma at a place ends a word: behind a letter with case, and with none behind it, marks aside. */
static bool ignis__case_ends(const char *text, size_t size, size_t at)
{
    int length, way;
    for (way = 0; way < 2; way++) {
        size_t place = at;
        uint32_t code = 0;
        for (;;) {
            if (way == 0 ? place == 0 : place + (size_t)ignis__utf8_length(text + place, size - place) >= size)
                break;
            place = way == 0 ? ignis__chat_before(text, place) : place + (size_t)ignis__utf8_length(text + place, size - place);
            code = ignis__utf8_code(text + place, &length);
            if (!ignis__char_mark(code) && !(code < 128 && code && strchr("'.:^`", (int)code)) && code != 0xAD && code != 0xB7 &&
                code != 0x2019)
                break;
            code = 0;
        }
        if (ignis__case_is(code) != (way == 0))
            return false;
    }
    return true;
}

/*  Writes a character in lower case (0), upper case (1) or as at the beginning of a word (2): at most 6 bytes; how many there are. */
static int ignis__case_write(char *out, const char *text, size_t size, size_t at, int how)
{
    int low = 0, high = IGNIS__COUNT(ignis__case_special), length;
    uint32_t code = ignis__utf8_code(text + at, &length);
    if (how == 0 && code == 0x130)
        return (memcpy(out, "i\xCC\x87", 3), 3);
    if (how == 0 && code == 0x3A3 && ignis__case_ends(text, size, at))
        return ignis__utf8_write(out, 0x3C2);
    if (how == 0)
        return ignis__utf8_write(out, ignis__case_lower_of(code));
    while (code >= 128 && low < high) {
        int middle = (low + high) / 2;
        if (ignis__case_special[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    if (code >= 128 && low < IGNIS__COUNT(ignis__case_special) && ignis__case_special[low].code == code) {
        const char *special = how == 1 ? ignis__case_special[low].upper : ignis__case_special[low].title;
        length = (int)strlen(special);
        memcpy(out, special, (size_t)length);
        return length;
    }
    return ignis__utf8_write(out, ignis__case_upper_of(code));
}

/*  lower (0), upper (1), capitalize (2), the filter title (3), the method title (4). */
static ignis__chat_value ignis__chat_do_case(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value s = ignis__chat_text(c, call->self);
    size_t size = (size_t)s.number, room = size + 1, at, part = 0, out = 0;
    int how = call->how == 0 ? 0 : call->how % 2 == 1 ? 1 : 2, length, i;
    char *text, *marks;
    for (at = 0; at < size; at++)
        room += (unsigned char)s.u.text[at] < 128 ? 0 : 2; /* at most 6 bytes of 2 */
    text = ignis__chat_work(c, s.number) ? (char *)ignis__chat_alloc(c, room) : NULL;
    marks = s.marks ? (char *)ignis__chat_alloc(c, room) : NULL;
    if (!text || (s.marks && !marks))
        return s;
    for (at = 0; at < size; at += (size_t)length) {
        uint32_t code = ignis__utf8_code(s.u.text + at, &length);
        int written = ignis__case_write(text + out, s.u.text + part, size - part, at - part, how);
        for (i = 0; marks && i < written; i++)
            marks[out + (size_t)i] = s.marks[at];
        out += (size_t)written;
        if (call->how == 3) { /* pieces are made small one by one */
            bool between = (code < 128 && code && strchr("-({[<", (int)code)) || ignis__chat_is_space(s.u.text + at);
            part = how == 1 || between ? at + (size_t)length : part;
            how = between ? 1 : 0;
        } else if (call->how >= 2) {
            how = call->how == 4 && !ignis__case_is(code) ? 2 : 0;
        }
    }
    s.u.text = text;
    s.marks = marks;
    s.number = (int64_t)out;
    s.of = call->how == 3 ? 0 : s.of;
    return s;
}

/*  split (0), rsplit (1): at a text, or at white space. */
static ignis__chat_value ignis__chat_do_split(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value s = call->self, by = call->value[0], out = ignis__chat_new(c, IGNIS__CHAT_LIST);
    int64_t limit = ignis__chat_want_int(c, call->value[1], -1), i;
    size_t at = 0, size = (size_t)s.number, from;
    ignis__chat_items *parts = out.u.items;
    if (c->fault || (ignis__chat_given(by) && !ignis__chat_want_text(c, by)))
        return out;
    if (ignis__chat_given(by) && by.number == 0)
        return ignis__chat_fail(c, "split at a text without characters");
    if (ignis__chat_given(by)) {
        ignis__chat_pieces(c, s, by, limit, call->how == 1, parts);
        return out;
    }
    ignis__chat_work(c, s.number / 4);
    while (at < size && ignis__chat_work(c, 1)) {
        for (; at < size && ignis__chat_is_space(s.u.text + at); at += ignis__chat_character(s.u.text + at))
            continue;
        for (from = at; at < size && !ignis__chat_is_space(s.u.text + at); at += ignis__chat_character(s.u.text + at))
            continue;
        if (at > from)
            ignis__chat_add(c, parts, ignis__chat_part(s, from, at));
    }
    if (limit >= 0 && parts->count > limit && !c->fault) { /* the rest stays in one piece */
        ignis__chat_value *part = &parts->item[i = call->how ? parts->count - limit - 1 : limit];
        at = (size_t)(part->u.text - s.u.text);
        *part = call->how ? ignis__chat_part(s, 0, at + (size_t)part->number) : ignis__chat_part(s, at, size);
        parts->item += call->how ? i : 0;
        parts->count = parts->capacity = limit + 1;
    }
    return out;
}

static ignis__chat_value ignis__chat_do_lines(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value s = call->self, out = ignis__chat_new(c, IGNIS__CHAT_LIST);
    size_t at = 0, from = 0, size = (size_t)s.number, end;
    ignis__chat_work(c, s.number / 4);
    while (at < size && !c->fault) {
        end = ignis__chat_line_end(s.u.text + at, size - at);
        if (end) {
            ignis__chat_add(c, out.u.items, ignis__chat_part(s, from, ignis__chat_true(call->value[0]) ? at + end : at));
            from = at + end;
        }
        at += end ? end : ignis__chat_character(s.u.text + at);
    }
    if (from < size && !c->fault)
        ignis__chat_add(c, out.u.items, ignis__chat_part(s, from, size));
    return out;
}

/*  startswith (1), endswith (2), removeprefix (3), removesuffix (4). */
static ignis__chat_value ignis__chat_do_begins(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value s = call->self, with = call->value[0], part;
    bool tuple = with.kind == IGNIS__CHAT_TUPLE && call->how < 3, front = call->how % 2 == 1, yes = false;
    int64_t i;
    for (i = 0; i < (tuple ? with.u.items->count : 1) && !yes && !c->fault; i++) {
        part = tuple ? with.u.items->item[i] : with;
        if (!ignis__chat_want_text(c, part) || !ignis__chat_work(c, 1 + part.number / 64))
            return part;
        yes = part.number <= s.number && memcmp(s.u.text + (front ? 0 : s.number - part.number), part.u.text, (size_t)part.number) == 0;
    }
    if (call->how < 3)
        return ignis__chat_bool(yes);
    return yes ? ignis__chat_part(s, (size_t)(front ? with.number : 0), (size_t)(front ? s.number : s.number - with.number)) : s;
}

/*  The method (0), whose arguments are text, and the filter (1), which makes them text. */
static ignis__chat_value ignis__chat_do_replace(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value s = ignis__chat_text(c, call->self), old = call->value[0], with = call->value[1];
    int64_t count = ignis__chat_want_int(c, call->value[2], -1), i;
    ignis__chat_writer out = IGNIS__ZERO;
    ignis__chat_items pieces;
    if (call->how == 1)
        old = ignis__chat_text(c, old), with = ignis__chat_text(c, with);
    else if (s.of)
        return ignis__chat_lacks(c, "the method replace of a text behind |safe");
    if (!ignis__chat_want_text(c, old) || !ignis__chat_want_text(c, with))
        return s;
    ignis__chat_pieces(c, s, old, count, false, &pieces);
    for (i = 0; i < pieces.count && !c->fault; i++) {
        if (i)
            ignis__chat_write_string(c, &out, with);
        ignis__chat_write_string(c, &out, pieces.item[i]);
    }
    return ignis__chat_written(&out);
}

/*  find (1), rfind (2), index (3), count (4) of a text in another. */
static ignis__chat_value ignis__chat_do_find(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_items pieces;
    if (!ignis__chat_want_text(c, call->value[0]))
        return call->self;
    ignis__chat_pieces(c, call->self, call->value[0], call->how == 4 ? -1 : 1, call->how == 2, &pieces);
    if (c->fault || call->how == 4)
        return ignis__chat_make(IGNIS__CHAT_INT, pieces.count - 1);
    if (call->how == 3 && pieces.count == 1)
        return ignis__chat_fail(c, "index: the text is not there");
    return ignis__chat_make(IGNIS__CHAT_INT, pieces.count == 1 ? -1 : ignis__chat_characters(c, pieces.item[0]));
}

/*  item.a.b.0, an attribute of an attribute; with `fold` letters are made small, as sorting does. */
static ignis__chat_value ignis__chat_path(ignis__chat *c, ignis__chat_value item, ignis__chat_value path, ignis__chat_value otherwise,
                                          bool fold)
{
    ignis__chat_call call = IGNIS__ZERO;
    ignis__chat_items keys;
    int64_t i, k;
    if (path.kind == IGNIS__CHAT_STRING) {
        ignis__chat_pieces(c, path, ignis__chat_words("."), -1, false, &keys);
        for (i = 0; i < keys.count && !c->fault; i++) {
            ignis__chat_value key = keys.item[i];
            for (k = 0; k < key.number && ignis__map_is_digit(key.u.text[k]); k++)
                continue;
            if (k && k == key.number) {
                ignis__chat_read_int(c, key.u.text, (size_t)k, &k);
                key = ignis__chat_make(IGNIS__CHAT_INT, k);
            }
            item = ignis__chat_member(c, item, key, true);
            if (item.kind == IGNIS__CHAT_UNDEFINED && ignis__chat_given(otherwise))
                item = otherwise;
        }
    } else if (ignis__chat_given(path)) {
        item = ignis__chat_member(c, item, path, true);
    }
    call.self = item;
    return fold && item.kind == IGNIS__CHAT_STRING && !c->fault ? ignis__chat_do_case(c, &call) : item;
}

/*  The filter join (0), which makes everything text, and the method (1), whose self stands between texts. */
static ignis__chat_value ignis__chat_do_join(ignis__chat *c, ignis__chat_call *call)
{
    bool method = call->how == 1;
    ignis__chat_value between =
                          method || call->value[0].kind ? ignis__chat_text(c, method ? call->self : call->value[0]) : ignis__chat_words(""),
                      item;
    ignis__chat_items items;
    ignis__chat_writer out = IGNIS__ZERO;
    int64_t i;
    if (method && between.of)
        return ignis__chat_lacks(c, "the method join of a text behind |safe");
    if (!ignis__chat_each(c, method ? call->value[0] : call->self, &items))
        return between;
    for (i = items.at; i < items.count && ignis__chat_work(c, 1); i++) {
        item = method ? items.item[i] : ignis__chat_path(c, items.item[i], call->value[1], call->value[5], false);
        if (method && !ignis__chat_want_text(c, item))
            break;
        if (i > items.at)
            ignis__chat_write_string(c, &out, between);
        ignis__chat_write_value(c, &out, item, NULL, false, 0);
    }
    return ignis__chat_written(&out);
}

static ignis__chat_value ignis__chat_do_length(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value v = call->self;
    int64_t count = 0;
    if (v.kind == IGNIS__CHAT_STRING)
        count = ignis__chat_characters(c, v);
    else if (v.kind == IGNIS__CHAT_LOOP)
        count = ignis__chat_loop_length(c, v.u.loop);
    else if (v.kind == IGNIS__CHAT_DICT || (ignis__chat_has_items(v) && v.kind != IGNIS__CHAT_GENERATOR))
        count = v.u.items->count / (v.kind == IGNIS__CHAT_DICT ? 2 : 1);
    else if (v.kind != IGNIS__CHAT_UNDEFINED)
        return ignis__chat_fail(c, "%s has no length", ignis__chat_kinds[v.kind]);
    return ignis__chat_make(IGNIS__CHAT_INT, count);
}

/*  The first item (0), the last (1). */
static ignis__chat_value ignis__chat_do_end(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value absent = ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
    bool generator = call->self.kind == IGNIS__CHAT_GENERATOR;
    ignis__chat_items items;
    if (call->how && generator)
        return ignis__chat_fail(c, "what can be walked once has no last item; |list makes a list of it");
    if (!ignis__chat_each(c, call->self, &items) || items.at == items.count)
        return ignis__chat_undefined(absent, absent);
    if (generator)
        call->self.u.items->at = items.at + 1;
    return items.item[call->how ? items.count - 1 : items.at];
}

/*  The least item (0), the greatest (1): of several the first. */
static ignis__chat_value ignis__chat_do_extreme(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value absent = ignis__chat_make(IGNIS__CHAT_ABSENT, 0), best = ignis__chat_undefined(absent, absent), best_key = best, key;
    bool fold = !ignis__chat_true(call->value[0]);
    ignis__chat_items items;
    int64_t i;
    if (!ignis__chat_each(c, call->self, &items))
        return best;
    for (i = items.at; i < items.count && ignis__chat_work(c, 1); i++) {
        key = ignis__chat_path(c, items.item[i], call->value[1], absent, fold);
        if (i > items.at && !(call->how ? ignis__chat_less(c, best_key, key, false) : ignis__chat_less(c, key, best_key, false)))
            continue;
        best = items.item[i];
        best_key = key;
    }
    return best;
}

/*  The items of anything, as a list (0); the other way round (1). */
static ignis__chat_value ignis__chat_do_list(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value like = call->self;
    bool reverse = call->how == 1, text = like.kind == IGNIS__CHAT_STRING;
    ignis__chat_items items, out = IGNIS__ZERO;
    int64_t i;
    if (!ignis__chat_each(c, like, &items))
        return like;
    for (i = items.at; i < items.count && ignis__chat_work(c, 1); i++)
        ignis__chat_add(c, &out, items.item[reverse ? items.count - 1 - (i - items.at) : i]);
    if (!reverse || !text)
        like.kind = !reverse || like.kind == IGNIS__CHAT_GENERATOR ? IGNIS__CHAT_LIST : IGNIS__CHAT_GENERATOR;
    like.of = 0;
    return ignis__chat_like(c, like, &out);
}

/*  keys, values, items of a dict, and the filter items. */
static ignis__chat_value ignis__chat_do_pairs(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value out = ignis__chat_new(c, (ignis__chat_kind)call->how), pair;
    const ignis__chat_items *dict = call->self.u.items;
    int64_t i;
    if (c->fault || call->self.kind == IGNIS__CHAT_UNDEFINED)
        return out;
    if (call->self.kind != IGNIS__CHAT_DICT)
        return ignis__chat_fail_kind(c, "items are of a dict", call->self);
    out.mark = call->self.mark;
    for (i = 0; i < dict->count && ignis__chat_work(c, 1); i += 2) {
        pair = dict->item[i + (call->how == IGNIS__CHAT_VALUES)];
        if (call->how != IGNIS__CHAT_KEYS && call->how != IGNIS__CHAT_VALUES) {
            pair = ignis__chat_new(c, IGNIS__CHAT_TUPLE);
            pair.mark = out.mark;
            ignis__chat_add(c, pair.u.items, dict->item[i]);
            ignis__chat_add(c, pair.u.items, dict->item[i + 1]);
        }
        ignis__chat_add(c, out.u.items, pair);
    }
    return out;
}

static ignis__chat_value ignis__chat_do_get(ignis__chat *c, ignis__chat_call *call)
{
    int64_t at = ignis__chat_hashable(c, call->value[0]) ? ignis__chat_find(c, call->self.u.items, call->value[0]) : -1;
    if (at >= 0)
        return call->self.u.items->item[at + 1];
    return call->value[1].kind ? call->value[1] : ignis__chat_make(IGNIS__CHAT_NONE, 0);
}

static ignis__chat_value ignis__chat_do_default(ignis__chat *c, ignis__chat_call *call)
{
    (void)c;
    if (call->self.kind == IGNIS__CHAT_UNDEFINED || (ignis__chat_true(call->value[1]) && !ignis__chat_true(call->self)))
        return call->value[0].kind ? call->value[0] : ignis__chat_words("");
    return call->self;
}

/*  string (0), safe (1). */
static ignis__chat_value ignis__chat_do_text(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value s = ignis__chat_text(c, call->self);
    s.of |= (unsigned char)call->how;
    return s;
}

/*  int (0), float (1). */
static ignis__chat_value ignis__chat_do_number(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value v = call->self, otherwise = call->value[0], out = ignis__chat_make(IGNIS__CHAT_INT, v.number);
    bool is_float = call->how == 1, known = ignis__chat_is_number(v);
    double real = known ? ignis__chat_as_real(v) : 0;
    if (v.kind == IGNIS__CHAT_UNDEFINED)
        return ignis__chat_fail_kind(c, "", v);
    if (!is_float && ignis__chat_given(call->value[1]) && call->value[1].number != 10)
        return ignis__chat_lacks(c, "int of another base");
    if (!otherwise.kind)
        otherwise = is_float ? ignis__chat_real(0) : ignis__chat_make(IGNIS__CHAT_INT, 0);
    if (v.kind == IGNIS__CHAT_STRING) {
        call->value[0] = ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
        call->how = 3;
        v = ignis__chat_do_strip(c, call);
        if (!is_float && ignis__chat_read_int(c, v.u.text, (size_t)v.number, &out.number))
            v.kind = IGNIS__CHAT_INT;
        known = v.kind == IGNIS__CHAT_INT || ignis__chat_read_real(v.u.text, (size_t)v.number, &real);
    }
    if (!known || (!is_float && real != real))
        return otherwise;
    if (is_float)
        out = ignis__chat_real(real);
    else if (!ignis__chat_is_whole(v) && (real >= 9.2e18 || real <= -9.2e18))
        return real - real != 0 ? ignis__chat_fail(c, "int of an infinite number")
                                : ignis__chat_lacks(c, "a whole number of more than 64 bits");
    else if (!ignis__chat_is_whole(v))
        out.number = (int64_t)real;
    out.mark = ignis__chat_marked(call->self);
    return out;
}

/*  One conversion of a format: %(key)-+ #0width.precision and a letter. */
typedef struct ignis__chat_spec {
    bool left, plus, space, other, zero;
    int64_t width, precision; /* precision -1: none */
    char letter;
} ignis__chat_spec;

/*  A number as a conversion writes it, without its width; in `out`, of so many bytes. */
static bool ignis__chat_convert_number(ignis__chat *c, const ignis__chat_spec *spec, ignis__chat_value v, char *out, size_t room)
{
    bool real = strchr("eEfFgG", spec->letter) != NULL, negative = v.kind == IGNIS__CHAT_FLOAT ? copysign(1, v.u.real) < 0 : v.number < 0;
    char format[16], digits[512], *at;
    const char *prefix = "";
    int64_t precision = spec->precision;
    uint64_t whole;
    double value = ignis__chat_as_real(v);
    if (!ignis__chat_is_number(v) || (!real && v.kind == IGNIS__CHAT_FLOAT && strchr("xXo", spec->letter))) {
        ignis__chat_fail_kind(c, strchr("xXo", spec->letter) ? "%x and %o write whole numbers" : "a conversion writes a number", v);
        return false;
    }
    if (!real && v.kind == IGNIS__CHAT_FLOAT && !(value > -9.2e18 && value < 9.2e18)) {
        ignis__chat_lacks(c, "a whole number of more than 64 bits");
        return false;
    }
    if (precision > 100) {
        ignis__chat_lacks(c, "a precision above 100");
        return false;
    }
    ignis__chat_work(c, 16);
    if (real) {
        value = negative ? -value : value;
        snprintf(format, sizeof format, "%%%s.%d%c", spec->other ? "#" : "", precision < 0 ? 6 : (int)precision, spec->letter);
        snprintf(digits, sizeof digits, format, value);
        for (at = digits; *at; at++) /* the program's locale may have another point, of more than a byte */
            if (!strchr("0123456789eE+-infaINFA", *at)) {
                size_t more = 1;
                while (at[more] && !strchr("0123456789eE+-", at[more]))
                    more++;
                *at = '.';
                memmove(at + 1, at + more, strlen(at + more) + 1);
            }
    } else {
        int64_t number = v.kind == IGNIS__CHAT_FLOAT ? (int64_t)value : v.number;
        negative = number < 0;
        whole = negative ? 0 - (uint64_t)number : (uint64_t)number;
        snprintf(format, sizeof format, "%%.%dll%c", precision < 1 ? 1 : (int)precision, strchr("diu", spec->letter) ? 'u' : spec->letter);
        snprintf(digits, sizeof digits, format, (unsigned long long)whole);
        prefix = !spec->other ? "" : spec->letter == 'x' ? "0x" : spec->letter == 'X' ? "0X" : spec->letter == 'o' ? "0o" : "";
    }
    snprintf(out, room, "%s%s%s", negative ? "-" : spec->plus ? "+" : spec->space ? " " : "", prefix, digits);
    return true;
}

/*  A value as a conversion writes it, without its width. */
static ignis__chat_value ignis__chat_convert(ignis__chat *c, const ignis__chat_spec *spec, ignis__chat_value v)
{
    ignis__chat_writer out = IGNIS__ZERO;
    char text[700];
    if (spec->letter == 's' || spec->letter == 'r') {
        ignis__chat_write_value(c, &out, v, NULL, spec->letter == 'r', 0);
        v = ignis__chat_written(&out);
        return spec->precision < 0 ? v : ignis__chat_part(v, 0, ignis__chat_offset(c, v, spec->precision));
    }
    if (spec->letter == 'c') {
        if (v.kind == IGNIS__CHAT_STRING && ignis__chat_characters(c, v) == 1)
            return v;
        if (!ignis__chat_is_whole(v) || v.number < 0 || v.number > 0x10FFFF || (v.number >= 0xD800 && v.number < 0xE000))
            return ignis__chat_fail(c, "%%c writes one character, or the number of one");
        text[ignis__utf8_write(text, (uint32_t)v.number)] = 0;
        ignis__chat_write(c, &out, text, v.number ? strlen(text) : 1, NULL, v.mark);
        return ignis__chat_written(&out);
    }
    if (!ignis__chat_convert_number(c, spec, v, text, sizeof text))
        return ignis__chat_words("");
    ignis__chat_write_words(c, &out, text, v.mark);
    return ignis__chat_written(&out);
}

/*  Digits of a format, as a number that says too much where there are too many. */
static int64_t ignis__chat_format_number(ignis__chat_value format, size_t *at)
{
    int64_t number = 0;
    for (; *at < (size_t)format.number && ignis__map_is_digit(format.u.text[*at]); ++*at)
        number = number > INT32_MAX ? number : number * 10 + (format.u.text[*at] - '0');
    return number;
}

/*  format % values, as Python has it: a tuple of them, or a dict for conversions with keys. */
static ignis__chat_value ignis__chat_format(ignis__chat *c, ignis__chat_value format, ignis__chat_value values)
{
    ignis__chat_writer out = IGNIS__ZERO;
    ignis__chat_value spaces = ignis__chat_words(" "), zeros = ignis__chat_words("0"), v;
    bool tuple = values.kind == IGNIS__CHAT_TUPLE, dict = values.kind == IGNIS__CHAT_DICT, numeric;
    bool rest = dict || values.kind == IGNIS__CHAT_LIST || values.kind == IGNIS__CHAT_RANGE_OF ||
                values.kind == IGNIS__CHAT_UNDEFINED; /* may be left over */
    size_t at, from = 0, size = (size_t)format.number, begin, head;
    int64_t next = 0, count = tuple ? values.u.items->count : 1, pad;
    if (format.of)
        return ignis__chat_lacks(c, "a text behind |safe %% values");
    for (at = 0; at < size && ignis__chat_work(c, 1); from = at) {
        const char *found = (const char *)memchr(format.u.text + at, '%', size - at);
        ignis__chat_spec spec;
        memset(&spec, 0, sizeof spec);
        spec.precision = -1;
        at = found ? (size_t)(found - format.u.text) : size;
        ignis__chat_write_string(c, &out, ignis__chat_part(format, from, at));
        if (at == size)
            break;
        v = ignis__chat_make(IGNIS__CHAT_ABSENT, 0);
        if (++at < size && format.u.text[at] == '%') {
            ignis__chat_write_string(c, &out, ignis__chat_part(format, at, at + 1));
            at++;
            continue;
        }
        if (at < size && format.u.text[at] == '(') {
            const char *end = (const char *)memchr(format.u.text + at, ')', size - at);
            if (!end || memchr(format.u.text + at + 1, '(', (size_t)(end - format.u.text) - at - 1))
                return ignis__chat_fail(c, "a format has a key without an end, or with another in it");
            if (!dict)
                return ignis__chat_fail(c, "a format with keys needs a dict");
            v = ignis__chat_part(format, at + 1, (size_t)(end - format.u.text));
            at = (size_t)(end - format.u.text) + 1;
            if (!ignis__chat_item(c, values, v, &v))
                return ignis__chat_fail_kind(c, "", v);
            next = count; /* none without a key is to follow */
        }
        for (; at < size && strchr("-+ #0", format.u.text[at]) && format.u.text[at]; at++)
            *(format.u.text[at] == '-'   ? &spec.left
              : format.u.text[at] == '+' ? &spec.plus
              : format.u.text[at] == ' ' ? &spec.space
              : format.u.text[at] == '#' ? &spec.other
                                         : &spec.zero) = true;
        if (at < size && format.u.text[at] == '*')
            return ignis__chat_lacks(c, "a format with *");
        spec.width = ignis__chat_format_number(format, &at);
        if (at < size && format.u.text[at] == '.') {
            at++;
            if (at < size && format.u.text[at] == '*')
                return ignis__chat_lacks(c, "a format with *");
            spec.precision = ignis__chat_format_number(format, &at);
        }
        at += at < size && format.u.text[at] && strchr("hlL", format.u.text[at]);
        spec.letter = (char)(at < size ? format.u.text[at] : 0);
        if (!spec.letter || !strchr("diuoxXeEfFgGcrs", spec.letter))
            return ignis__chat_fail(c, "a format has a %% without one of d i u o x X e E f F g G c r s");
        at++;
        if (!v.kind && next == count)
            return ignis__chat_fail(c, "a format has more conversions than there are values");
        if (!v.kind)
            v = tuple ? values.u.items->item[next] : values, next++;
        v = ignis__chat_convert(c, &spec, v);
        if (c->fault)
            break;
        pad = spec.width - ignis__chat_characters(c, v);
        numeric = strchr("crs", spec.letter) == NULL;
        head = numeric && v.number > 0 && strchr("+- ", v.u.text[0]) ? 1 : 0;
        head += numeric && spec.other && strchr("xXo", spec.letter) ? 2 : 0;
        numeric = numeric && spec.zero && !spec.left &&
                  (ignis__map_is_digit(v.u.text[v.number - 1]) || strchr("xX", spec.letter) || v.u.text[v.number - 1] == '.');
        spaces.marks = zeros.marks = NULL;
        begin = out.size;
        if (numeric)
            ignis__chat_write_string(c, &out, ignis__chat_part(v, 0, head));
        if (!spec.left)
            ignis__chat_write_string(c, &out, ignis__chat_repeat(c, numeric ? zeros : spaces, pad));
        ignis__chat_write_string(c, &out, ignis__chat_part(v, numeric ? head : 0, (size_t)v.number));
        if (spec.left)
            ignis__chat_write_string(c, &out, ignis__chat_repeat(c, spaces, pad));
        if (!c->fault && pad > 0 && ignis__chat_marked(v))
            memset(out.marks + begin, 1, out.size - begin);
    }
    if (!c->fault && !rest && next < count)
        return ignis__chat_fail(c, "a format has fewer conversions than there are values");
    return ignis__chat_written(&out);
}

static ignis__chat_value ignis__chat_do_format(ignis__chat *c, ignis__chat_call *call)
{
    bool named = call->named.count > 0;
    ignis__chat_value values = ignis__chat_new(c, named ? IGNIS__CHAT_DICT : IGNIS__CHAT_TUPLE);
    if (named && call->given.count)
        return ignis__chat_fail(c, "format takes values with names, or values without");
    if (!c->fault)
        *values.u.items = named ? call->named : call->given;
    return ignis__chat_format(c, ignis__chat_text(c, call->self), values);
}

static ignis__chat_value ignis__chat_do_indent(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value width = call->value[0], s = call->self, by;
    bool first = ignis__chat_true(call->value[1]), blank = ignis__chat_true(call->value[2]);
    ignis__chat_writer text = IGNIS__ZERO;
    const ignis__chat_items *lines;
    int64_t i;
    if (!ignis__chat_want_text(c, s))
        return width;
    by = width.kind == IGNIS__CHAT_STRING ? width : ignis__chat_repeat(c, ignis__chat_words(" "), ignis__chat_want_int(c, width, 4));
    call->self = ignis__chat_join_two(c, s, ignis__chat_words("\n"));
    call->value[0] = ignis__chat_bool(false);
    lines = ignis__chat_do_lines(c, call).u.items;
    for (i = 0; !c->fault && i < lines->count; i++) {
        ignis__chat_write_words(c, &text, i ? "\n" : "", false);
        if (i ? blank || lines->item[i].number : first)
            ignis__chat_write_string(c, &text, by);
        ignis__chat_write_string(c, &text, lines->item[i]);
    }
    by = ignis__chat_written(&text);
    by.of = s.of;
    return by;
}

/*  map (0): a filter, or an attribute, of each item. select (1), reject (2), selectattr (3), rejectattr (4): the items that pass a test. */
static ignis__chat_value ignis__chat_do_map(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value out = ignis__chat_new(c, IGNIS__CHAT_GENERATOR), path = ignis__chat_make(IGNIS__CHAT_ABSENT, 0), otherwise = path;
    int64_t attribute = ignis__chat_find(c, &call->named, ignis__chat_words("attribute")), i, from = call->how >= 3;
    bool map = call->how == 0, by_name = map && call->given.count == 0 && attribute >= 0;
    ignis__chat_items items;
    if (!ignis__chat_true(call->self) || !ignis__chat_each(c, call->self, &items))
        return out;
    i = ignis__chat_find(c, &call->named, ignis__chat_words("default"));
    if (by_name ? call->named.count > (i >= 0 ? 4 : 2) : call->given.count < (map || from))
        return ignis__chat_fail(c, "map, selectattr and rejectattr need the name of an attribute, filter or test");
    if (by_name) {
        path = call->named.item[attribute + 1];
        otherwise = i >= 0 ? call->named.item[i + 1] : otherwise;
    } else if (from) {
        path = call->given.item[0];
    }
    for (i = items.at; i < items.count && ignis__chat_work(c, 1); i++) {
        ignis__chat_call inner = *call;
        inner.self = ignis__chat_path(c, items.item[i], path, otherwise, false);
        if (call->given.count > from && !c->fault) {
            inner.given.item += from + 1;
            inner.given.count -= from + 1;
            if (!ignis__chat_deeper(c, c->here))
                break;
            inner.self = ignis__chat_apply(c, map ? 'f' : 't', call->given.item[from], &inner);
            c->depth--;
        }
        if (map || ignis__chat_true(inner.self) == (call->how % 2 == 1))
            ignis__chat_add(c, out.u.items, map ? inner.self : items.item[i]);
    }
    return out;
}

/*  sort (0), dictsort (1): by keys, of which letters are made small unless case_sensitive is set. */
static ignis__chat_value ignis__chat_do_sort(ignis__chat *c, ignis__chat_call *call)
{
    bool dict = call->how == 1, fold = !ignis__chat_true(call->value[!dict]), reverse = ignis__chat_true(call->value[dict ? 2 : 0]);
    ignis__chat_value absent = ignis__chat_make(IGNIS__CHAT_ABSENT, 0), by = call->value[dict ? 1 : 2], key, tuple;
    ignis__chat_items items, keys = IGNIS__ZERO;
    int64_t i;
    if (dict) {
        if (call->self.kind != IGNIS__CHAT_DICT)
            return ignis__chat_fail_kind(c, "dictsort is of a dict", call->self);
        by = ignis__chat_make(IGNIS__CHAT_INT, by.kind == IGNIS__CHAT_STRING && ignis__chat_is(by, "value"));
        call->how = IGNIS__CHAT_ITEMS;
        call->self = ignis__chat_do_pairs(c, call);
    }
    if (c->fault || !ignis__chat_each(c, call->self, &items))
        return absent;
    if (by.kind == IGNIS__CHAT_STRING && by.number && memchr(by.u.text, ',', (size_t)by.number))
        return ignis__chat_lacks(c, "sort by several attributes");
    for (i = items.at; i < items.count && ignis__chat_work(c, 1); i++) {
        key = ignis__chat_path(c, items.item[i], by, absent, fold);
        if (!dict) { /* in tuples, as what is undefined or none has no order, but may be equal */
            tuple = ignis__chat_new(c, IGNIS__CHAT_TUPLE);
            ignis__chat_add(c, tuple.u.items, key);
            key = tuple;
        }
        ignis__chat_add(c, &keys, key);
    }
    return c->fault ? absent : ignis__chat_sorted(c, &items, &keys, reverse);
}

static ignis__chat_value ignis__chat_do_tojson(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value indent = call->value[1], separators = call->value[2], spaces = ignis__chat_words(" ");
    ignis__chat_json how;
    ignis__chat_writer out = IGNIS__ZERO;
    how.ascii = ignis__chat_true(call->value[0]);
    how.sort = ignis__chat_true(call->value[3]);
    how.pretty = ignis__chat_given(indent);
    how.indent = indent.kind == IGNIS__CHAT_STRING ? indent : ignis__chat_repeat(c, spaces, ignis__chat_want_int(c, indent, 0));
    how.separators[0] = ignis__chat_words(how.pretty ? "," : ", ");
    how.separators[1] = ignis__chat_words(": ");
    if (ignis__chat_given(separators)) {
        if ((separators.kind != IGNIS__CHAT_LIST && separators.kind != IGNIS__CHAT_TUPLE) || separators.u.items->count != 2 ||
            !ignis__chat_want_text(c, separators.u.items->item[0]) || !ignis__chat_want_text(c, separators.u.items->item[1]))
            return ignis__chat_fail(c, "separators are two texts");
        memcpy(how.separators, separators.u.items->item, sizeof how.separators);
    }
    ignis__chat_write_value(c, &out, call->self, &how, true, 0);
    return ignis__chat_written(&out);
}

/*  Tests of what a value is, by a letter each. */
static ignis__chat_value ignis__chat_do_test(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value v = call->self, by = call->value[0];
    bool yes = false, sequence = v.kind == IGNIS__CHAT_STRING || v.kind == IGNIS__CHAT_DICT || v.kind == IGNIS__CHAT_UNDEFINED ||
                                 (v.kind >= IGNIS__CHAT_LIST && v.kind <= IGNIS__CHAT_RANGE_OF);
    switch (call->how) {
    case 'D': yes = v.kind != IGNIS__CHAT_UNDEFINED; break;
    case 'B': yes = v.kind == IGNIS__CHAT_BOOL; break;
    case 'F': yes = v.kind == IGNIS__CHAT_BOOL && !v.number; break;
    case 'T': yes = v.kind == IGNIS__CHAT_BOOL && v.number; break;
    case '0': yes = ignis__chat_is_number(v); break;
    case 'Q': yes = sequence; break;
    case 'W': yes = sequence || ignis__chat_has_items(v) || v.kind == IGNIS__CHAT_LOOP; break;
    case 'C': yes = v.kind == IGNIS__CHAT_MACRO || v.kind == IGNIS__CHAT_FUNCTION || v.kind == IGNIS__CHAT_UNDEFINED; break;
    case 'E': yes = v.of == 1 && v.kind == IGNIS__CHAT_STRING; break;
    case 'X':
        if (v.kind == by.kind && v.kind >= IGNIS__CHAT_FLOAT && v.kind <= IGNIS__CHAT_STRING)
            return ignis__chat_lacks(c, "sameas of texts and numbers with a point");
        yes = v.kind == by.kind && (v.kind <= IGNIS__CHAT_INT ? v.number == by.number : v.u.items == by.u.items);
        break;
    case 'o':
    case 'e':
    case 'd':
        v = ignis__chat_binary_of(c, '%', v, call->how == 'd' ? by : ignis__chat_make(IGNIS__CHAT_INT, 2));
        yes = ignis__chat_as_real(v) == (call->how == 'o');
        break;
    default: yes = call->how < IGNIS__CHAT_KINDS ? v.kind == call->how : ignis__chat_compares(c, (char)call->how, v, by);
    }
    return ignis__chat_bool(yes);
}

static ignis__chat_value ignis__chat_do_range(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value out = ignis__chat_new(c, IGNIS__CHAT_RANGE_OF);
    int64_t range[3] = {0, 0, 1}, at, i;
    if (c->fault)
        return out;
    if (call->named.count)
        return ignis__chat_fail(c, "the arguments of range have no names");
    for (i = 0; i < call->given.count; i++) {
        if (!ignis__chat_is_whole(call->value[i]))
            return ignis__chat_fail_kind(c, "range is of whole numbers", call->value[i]);
        range[i] = call->value[i].number;
    }
    if (call->given.count == 1)
        range[1] = range[0], range[0] = 0;
    if (range[2] == 0)
        return ignis__chat_fail(c, "the step of a range is 0");
    for (at = range[0]; (range[2] > 0 ? at < range[1] : at > range[1]) && ignis__chat_work(c, 1); at += range[2]) {
        if (out.u.items->count == IGNIS__CHAT_RANGE)
            return ignis__chat_fail(c, "a range has more than %d numbers", IGNIS__CHAT_RANGE);
        ignis__chat_add(c, out.u.items, ignis__chat_make(IGNIS__CHAT_INT, at));
        if (range[2] > 0 ? at > INT64_MAX - range[2] : at < INT64_MIN - range[2])
            break;
    }
    return out;
}

/*  dict and namespace: of another dict, of arguments with names. */
static ignis__chat_value ignis__chat_do_dict(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value out = ignis__chat_new(c, (ignis__chat_kind)call->how);
    if (call->given.count > 1)
        return ignis__chat_fail(c, "dict and namespace take one dict, and arguments with names");
    if (call->given.count && call->given.item[0].kind != IGNIS__CHAT_DICT)
        return ignis__chat_lacks(c, "a dict made of a %s", ignis__chat_kinds[call->given.item[0].kind]);
    if (call->given.count)
        ignis__chat_put_all(c, out.u.items, call->given.item[0].u.items);
    ignis__chat_put_all(c, out.u.items, &call->named);
    return out;
}

static ignis__chat_value ignis__chat_do_raise(ignis__chat *c, ignis__chat_call *call)
{
    ignis__chat_value text = ignis__chat_text(c, call->value[0]);
    size_t size = text.number < 500 ? (size_t)text.number : 500;
    if (c->fault)
        return text;
    if (size < (size_t)text.number)
        size = ignis__chat_before(text.u.text, size + 1);
    return ignis__chat_fault(c, IGNIS_DIAG_CHAT_REFUSED, c->here, "%.*s%s", (int)size, text.u.text,
                             size < (size_t)text.number ? "..." : "");
}

static ignis__chat_value ignis__chat_do_strftime(ignis__chat *c, ignis__chat_call *call)
{
    static const char known[] = "aAbBcdDeFhHIjmMpRSTuUwWxXyY%nt";
    ignis__chat_value format = call->value[0];
    ignis__chat_writer out = IGNIS__ZERO;
    struct tm now;
    int64_t i;
#ifdef _WIN32
    __time64_t seconds = c->now ? c->now : (__time64_t)time(NULL);
    bool ok = _localtime64_s(&now, &seconds) == 0;
#else
    time_t seconds = c->now ? (time_t)c->now : time(NULL);
    bool ok = localtime_r(&seconds, &now) != NULL;
#endif
    if (!ignis__chat_want_text(c, format) || !ok)
        return ignis__chat_fail(c, "the time cannot be told");
    for (i = 0; i < format.number && !c->fault; i++) {
        char one[4] = "%?", text[128], *from = text;
        bool short_one = false;
        if (format.u.text[i] != '%') {
            ignis__chat_write_string(c, &out, ignis__chat_part(format, (size_t)i, (size_t)i + 1));
            continue;
        }
        i++;
        if (i + 1 < format.number && format.u.text[i] == '-')
            short_one = true, i++;
        ignis__chat_work(c, 8);
        one[1] = i < format.number ? format.u.text[i] : 0;
        if (!one[1] || !strchr(known, one[1]) || (short_one && !strchr("dHIjmMSyUW", one[1])))
            return ignis__chat_lacks(c, "strftime_now with '%%%c'", one[1] > ' ' && one[1] < 127 ? one[1] : '?');
        if (strftime(text, sizeof text, one, &now) == 0)
            *text = 0;
        while (short_one && *from == '0' && from[1])
            from++;
        ignis__chat_write_words(c, &out, from, false);
    }
    return ignis__chat_written(&out);
}

/* clang-format off */
static const ignis__chat_row ignis__chat_rows[] = {
    {"fs", "capitalize", "", ignis__chat_do_case, 2},
    {"f", "count length", "", ignis__chat_do_length, 0},                    {"f", "d default", "default_value boolean", ignis__chat_do_default, 0},
    {"f", "dictsort", "case_sensitive by reverse", ignis__chat_do_sort, 1},
    {"f", "first", "", ignis__chat_do_end, 0},                              {"f", "float", "default", ignis__chat_do_number, 1},
    {"f", "indent", "width first blank", ignis__chat_do_indent, 0},         {"f", "int", "default base", ignis__chat_do_number, 0},
    {"f", "items", "", ignis__chat_do_pairs, IGNIS__CHAT_GENERATOR},        {"f", "join", "d attribute", ignis__chat_do_join, 0},
    {"f", "last", "", ignis__chat_do_end, 1},                               {"f", "list", "", ignis__chat_do_list, 0},
    {"fs", "lower", "", ignis__chat_do_case, 0},
    {"f", "format", NULL, ignis__chat_do_format, 0},
    {"f", "max", "case_sensitive attribute", ignis__chat_do_extreme, 1},    {"f", "min", "case_sensitive attribute", ignis__chat_do_extreme, 0},
    {"f", "map", NULL, ignis__chat_do_map, 0},                              {"f", "reject", NULL, ignis__chat_do_map, 2},
    {"f", "rejectattr", NULL, ignis__chat_do_map, 4},                       {"f", "replace", "!old !new count", ignis__chat_do_replace, 1},
    {"f", "reverse", "", ignis__chat_do_list, 1},                           {"f", "safe", "", ignis__chat_do_text, 1},
    {"f", "select", NULL, ignis__chat_do_map, 1},                           {"f", "selectattr", NULL, ignis__chat_do_map, 3},
    {"f", "sort", "reverse case_sensitive attribute", ignis__chat_do_sort, 0},
    {"f", "string", "", ignis__chat_do_text, 0},                            {"f", "title", "", ignis__chat_do_case, 3},
    {"f", "tojson", "ensure_ascii indent separators sort_keys", ignis__chat_do_tojson, 0},
    {"f", "trim", "chars", ignis__chat_do_strip, 3},
    {"fs", "upper", "", ignis__chat_do_case, 1},
    {"t", "boolean", "", ignis__chat_do_test, IGNIS__CHAT_BOOL},            {"t", "callable", "", ignis__chat_do_test, 'C'},
    {"t", "defined", "", ignis__chat_do_test, 'D'},                         {"t", "divisibleby", "!num", ignis__chat_do_test, 'd'},
    {"t", "eq equalto ==", "!b", ignis__chat_do_test, '='},                 {"t", "escaped", "", ignis__chat_do_test, 'E'},
    {"t", "even", "", ignis__chat_do_test, 'e'},                            {"t", "false", "", ignis__chat_do_test, 'F'},
    {"t", "float", "", ignis__chat_do_test, IGNIS__CHAT_FLOAT},             {"t", "ge >=", "!b", ignis__chat_do_test, 'g'},
    {"t", "gt greaterthan >", "!b", ignis__chat_do_test, '>'},              {"t", "in", "!seq", ignis__chat_do_test, 'i'},
    {"t", "integer", "", ignis__chat_do_test, IGNIS__CHAT_INT},             {"t", "iterable", "", ignis__chat_do_test, 'W'},
    {"t", "le <=", "!b", ignis__chat_do_test, 'l'},                         {"t", "lt lessthan <", "!b", ignis__chat_do_test, '<'},
    {"t", "mapping", "", ignis__chat_do_test, IGNIS__CHAT_DICT},            {"t", "ne !=", "!b", ignis__chat_do_test, '!'},
    {"t", "none", "", ignis__chat_do_test, IGNIS__CHAT_NONE},               {"t", "number", "", ignis__chat_do_test, '0'},
    {"t", "odd", "", ignis__chat_do_test, 'o'},                             {"t", "sameas", "!other", ignis__chat_do_test, 'X'},
    {"t", "sequence", "", ignis__chat_do_test, 'Q'},                        {"t", "string", "", ignis__chat_do_test, IGNIS__CHAT_STRING},
    {"t", "true", "", ignis__chat_do_test, 'T'},                            {"t", "undefined", "", ignis__chat_do_test, IGNIS__CHAT_UNDEFINED},
    {"s", "count", "!sub", ignis__chat_do_find, 4},                         {"s", "endswith", "!suffix", ignis__chat_do_begins, 2},
    {"s", "find", "!sub", ignis__chat_do_find, 1},                          {"s", "index", "!sub", ignis__chat_do_find, 3},
    {"s", "join", "!iterable", ignis__chat_do_join, 1},                     {"s", "lstrip", "chars", ignis__chat_do_strip, 1},
    {"s", "removeprefix", "!prefix", ignis__chat_do_begins, 3},             {"s", "removesuffix", "!suffix", ignis__chat_do_begins, 4},
    {"s", "replace", "!old !new count", ignis__chat_do_replace, 0},         {"s", "rfind", "!sub", ignis__chat_do_find, 2},
    {"s", "rsplit", "sep maxsplit", ignis__chat_do_split, 1},               {"s", "rstrip", "chars", ignis__chat_do_strip, 2},
    {"s", "split", "sep maxsplit", ignis__chat_do_split, 0},                {"s", "splitlines", "keepends", ignis__chat_do_lines, 0},
    {"s", "startswith", "!prefix", ignis__chat_do_begins, 1},               {"s", "strip", "chars", ignis__chat_do_strip, 3},
    {"s", "title", "", ignis__chat_do_case, 4},
    {"d", "get", "!key default", ignis__chat_do_get, 0},                    {"d", "items", "", ignis__chat_do_pairs, IGNIS__CHAT_ITEMS},
    {"d", "keys", "", ignis__chat_do_pairs, IGNIS__CHAT_KEYS},              {"d", "values", "", ignis__chat_do_pairs, IGNIS__CHAT_VALUES},
    {"g", "cycler", NULL, NULL, 0},                                         {"g", "joiner", NULL, NULL, 0},
    {"g", "lipsum", NULL, NULL, 0},                                         {"g", "dict", NULL, ignis__chat_do_dict, IGNIS__CHAT_DICT},
    {"g", "namespace", NULL, ignis__chat_do_dict, IGNIS__CHAT_NAMESPACE},   {"g", "raise_exception", "!message", ignis__chat_do_raise, 0},
    {"g", "range", "!start stop step", ignis__chat_do_range, 0},            {"g", "strftime_now", "!format", ignis__chat_do_strftime, 0},
};
/* clang-format on */

static int ignis__chat_row_find(ignis__chat *c, char of, ignis__chat_value name)
{
    int i;
    ignis__chat_work(c, 8); /* for the whole table */
    for (i = 0; i < IGNIS__COUNT(ignis__chat_rows); i++)
        if (strchr(ignis__chat_rows[i].of, of) && ignis__chat_in_words(ignis__chat_rows[i].names, name.u.text, name.number))
            return i;
    return -1;
}

static const ignis__chat_row *ignis__chat_row_at(int64_t row) { return &ignis__chat_rows[row]; }

/* --- a chat ------------------------------------------------------------------------------------------------------------- */

/*  Text of the caller, all of it marked; bytes that are no UTF-8 become U+FFFD. */
static ignis__chat_value ignis__chat_content(ignis__chat *c, const char *text)
{
    size_t left = text ? strlen(text) : 0, size, length;
    ignis__chat_writer out = IGNIS__ZERO;
    ignis__chat_value none = ignis__chat_make(IGNIS__CHAT_NONE, 0);
    none.mark = true;
    while (left > 0 && !c->fault) {
        for (size = 0; size < left && (length = (size_t)ignis__utf8_length(text + size, left - size)) > 0;)
            size += length;
        ignis__chat_write(c, &out, text, size, NULL, true);
        text += size, left -= size;
        if (left)
            ignis__chat_write(c, &out, "\xEF\xBF\xBD", 3, NULL, true), text++, left--;
    }
    return text ? ignis__chat_written(&out) : none;
}

static ignis__chat_value ignis__chat_json_text(ignis__chat *c, ignis__json *json, bool mark)
{
    size_t size = 0;
    const char *text = ignis__json_string(json, &size);
    char *marks = mark ? (char *)ignis__chat_alloc(c, size + 1) : NULL;
    if (marks)
        memset(marks, 1, size);
    return ignis__chat_string(text, size, marks);
}

/*  A value of a JSON text. The outermost one has the variables: those whose name ends in _token are the template's own, the others the caller's. */
static ignis__chat_value ignis__chat_read_json(ignis__chat *c, ignis__json *json, bool mark, int depth)
{
    char kind = ignis__json_peek(json);
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_NONE, 0), key = value;
    bool dict = kind == '{', first = true, whole, ok;
    const char *from = json->at;
    size_t size;
    if (depth > IGNIS__JSON_DEPTH)
        ignis__json_fail(json, "values are nested deeper than %d", IGNIS__JSON_DEPTH);
    if (json->fault[0] || c->fault)
        return value;
    if (kind == '"')
        return ignis__chat_json_text(c, json, mark);
    if (dict || kind == '[') {
        value = ignis__chat_new(c, dict ? IGNIS__CHAT_DICT : IGNIS__CHAT_LIST);
        json->at++;
        while (!c->fault && ignis__json_more(json, dict ? '}' : ']', &first)) {
            bool own = mark;
            if (dict) {
                key = ignis__chat_json_text(c, json, mark && depth);
                own = mark && (depth || key.number < 6 || memcmp(key.u.text + key.number - 6, "_token", 6) != 0);
                ignis__json_expect(json, ':');
            }
            if (json->fault[0])
                break;
            if (dict)
                ignis__chat_put(c, value.u.items, key, ignis__chat_read_json(c, json, own, depth + 1));
            else
                ignis__chat_add(c, value.u.items, ignis__chat_read_json(c, json, own, depth + 1));
        }
    } else {
        ignis__json_skip_scalar(json);
        size = (size_t)(json->at - from);
        if (kind == 't' || kind == 'f')
            value = ignis__chat_bool(kind == 't');
        if (!json->fault[0] && !strchr("nft", kind)) {
            whole = !memchr(from, '.', size) && !memchr(from, 'e', size) && !memchr(from, 'E', size);
            value = whole ? ignis__chat_make(IGNIS__CHAT_INT, 0) : ignis__chat_real(0);
            ok = whole ? ignis__chat_read_int(c, from, size, &value.number) : ignis__chat_read_real(from, size, &value.u.real);
            if (!ok)
                ignis__json_fail(json, "a number is too long");
        }
    }
    value.mark = mark;
    return value;
}

/*  The variables of desc.json. */
static void ignis__chat_variables(ignis__chat *c, const char *text, ignis__chat_items *names)
{
    ignis__json json;
    size_t size = strlen(text);
    ignis__chat_value all;
    memset(&json, 0, sizeof json);
    json.what = "desc.json";
    json.start = json.at = (char *)ignis__chat_alloc(c, size + 1);
    if (c->fault)
        return;
    memcpy(json.start, text, size);
    json.end = json.start + size;
    if (ignis__json_peek(&json) != '{')
        (void)ignis__json_expect(&json, '{');
    all = ignis__chat_read_json(c, &json, true, 0);
    if (!json.fault[0] && (ignis__json_peek(&json), json.at != json.end))
        ignis__json_fail(&json, "something follows the object");
    if (json.fault[0])
        ignis__chat_fault(c, IGNIS_DIAG_CHAT_VARIABLES, SIZE_MAX, "%s", json.fault);
    else if (!c->fault)
        ignis__chat_put_all(c, names, all.u.items);
}

/*  What is done with messages before a template sees them. A role that is a word is the template's own text, as a control token may be put together
    around it. What was thought has three names, of which any fills reasoning_content, and thinking where that is missing, as by transformers. */
static void ignis__chat_messages(ignis__chat *c, ignis__chat_value messages)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    int64_t i, k;
    for (i = 0; messages.kind == IGNIS__CHAT_LIST && i < messages.u.items->count && ignis__chat_work(c, 1); i++) {
        ignis__chat_value message = messages.u.items->item[i], thought = ignis__chat_make(IGNIS__CHAT_NONE, 0);
        ignis__chat_items *items = message.u.items, with = IGNIS__ZERO;
        if (message.kind != IGNIS__CHAT_DICT)
            continue;
        k = ignis__chat_find(c, items, ignis__chat_words("role"));
        if (k >= 0 && items->item[k + 1].kind == IGNIS__CHAT_STRING) {
            ignis__chat_value *role = &items->item[k + 1];
            int64_t at = 0;
            while (at < role->number &&
                   (ignis__map_is_letter(role->u.text[at]) || ignis__map_is_digit(role->u.text[at]) || role->u.text[at] == '-'))
                at++;
            if (at == role->number)
                role->marks = NULL;
        }
        for (k = 0; k < 3 && thought.kind == IGNIS__CHAT_NONE; k++) {
            int64_t at = ignis__chat_find(c, items, ignis__chat_words(names[k]));
            thought = at >= 0 ? items->item[at + 1] : thought;
        }
        if (thought.kind == IGNIS__CHAT_NONE)
            continue;
        ignis__chat_put(c, &with, ignis__chat_words(names[1]), thought);
        ignis__chat_put_all(c, &with, items);
        ignis__chat_put(c, &with, ignis__chat_words(names[0]), thought);
        *items = with;
    }
}

/*  The template's text, its lines ended by \n, without the end of the last one. */
static void ignis__chat_open(ignis__chat *c, const char *text)
{
    size_t size = strlen(text), i, out = 0;
    char *copy = (char *)ignis__chat_alloc(c, size + 1);
    if (!copy)
        return;
    for (i = 0; i < size; i++)
        if (text[i] != '\r' || text[i + 1] != '\n')
            copy[out++] = text[i] == '\r' ? '\n' : text[i];
    if (out && copy[out - 1] == '\n')
        out--;
    copy[out] = 0;
    c->text = copy;
    c->size = out;
    c->line_start = true;
    for (i = 0; i < out && !c->fault; i += (size_t)ignis__utf8_length(copy + i, out - i))
        if (ignis__utf8_length(copy + i, out - i) == 0)
            ignis__chat_fault(c, IGNIS_DIAG_CHAT_TEMPLATE, i, "the template is no UTF-8");
}

static void ignis__chat_close(ignis__chat *c)
{
    while (c->chunk) {
        ignis__chat_chunk *next = c->chunk->next;
        ignis__free(c->chunk);
        c->chunk = next;
    }
}

/*  Reports the fault of a chat, with its place in the template. */
IGNIS__COLD static void ignis__chat_report(const ignis__chat *c, const char *call)
{
    const char *lack = c->fault == IGNIS_DIAG_UNSUPPORTED ? " is not supported" : "";
    int line, column;
    ignis__text_place(c->text, c->text + (c->fault_at < c->size ? c->fault_at : c->size), &line, &column);
    if (c->fault_at == SIZE_MAX || c->fault == IGNIS_DIAG_HOST_MEMORY)
        ignis__fail(c->fault, call, "%s%s", c->message, lack);
    else
        ignis__fail(c->fault, call, "%s%s (line %d, column %d of the template)", c->message, lack, line, column);
}

/*  The texts of the tokenizer's tokens that templates know. */
static void ignis__chat_tokens(ignis__chat *c, ignis__tokenizer *tokenizer, ignis__chat_items *names)
{
    static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    int32_t ids[4];
    int i;
    ids[0] = tokenizer->info.bos, ids[1] = tokenizer->info.eos, ids[2] = tokenizer->info.unknown, ids[3] = tokenizer->info.padding;
    for (i = 0; i < 4 && !c->fault; i++) {
        ignis__bytes bytes = IGNIS__ZERO;
        ignis__chat_writer text;
        memset(&text, 0, sizeof text);
        if (ids[i] < 0)
            continue;
        if (!ignis__token_add(tokenizer, ids[i], false, &bytes))
            ignis__chat_fault(c, IGNIS_DIAG_HOST_MEMORY, 0, "out of host memory: %lld bytes were asked for", (long long)bytes.size);
        ignis__chat_write(c, &text, bytes.data, bytes.size, NULL, false);
        ignis__chat_put(c, names, ignis__chat_words(token_names[i]), ignis__chat_written(&text));
        ignis__free(bytes.data);
    }
}

/*  Renders; what is written lies in the arena, which ignis__chat_close frees also after a failure. tokenizer may be null. */
static bool ignis__chat_render(ignis__chat *c, const char *call, const char *text, const ignis_message *messages, int count,
                               const ignis_chat_desc *desc, ignis__tokenizer *tokenizer, ignis__chat_writer *out)
{
    ignis__chat_value list, message;
    ignis__chat_node *root;
    int i;
    memset(c, 0, sizeof *c);
    memset(out, 0, sizeof *out);
    c->now = desc->now;
    c->out = out;
    ignis__chat_open(c, text);
    root = ignis__chat_body(c, "");
    ignis__chat_enter(c, NULL);
    list = ignis__chat_new(c, IGNIS__CHAT_LIST);
    list.mark = true;
    for (i = 0; i < count && !c->fault; i++) {
        message = ignis__chat_new(c, IGNIS__CHAT_DICT);
        if (c->fault)
            break;
        message.mark = true;
        ignis__chat_put(c, message.u.items, ignis__chat_words("role"), ignis__chat_content(c, messages[i].role));
        ignis__chat_put(c, message.u.items, ignis__chat_words("content"), ignis__chat_content(c, messages[i].content));
        ignis__chat_add(c, list.u.items, message);
    }
    if (!c->fault) {
        ignis__chat_items *names = &c->scope->names;
        c->here = SIZE_MAX; /* what fails from here on is no place of the template */
        ignis__chat_put(c, names, ignis__chat_words("messages"), list);
        ignis__chat_put(c, names, ignis__chat_words("tools"), ignis__chat_make(IGNIS__CHAT_NONE, 0));
        ignis__chat_put(c, names, ignis__chat_words("documents"), ignis__chat_make(IGNIS__CHAT_NONE, 0));
        ignis__chat_put(c, names, ignis__chat_words("add_generation_prompt"), ignis__chat_bool(desc->add_generation_prompt));
        if (tokenizer)
            ignis__chat_tokens(c, tokenizer, names);
        if (desc->json)
            ignis__chat_variables(c, desc->json, names);
        if (!c->fault)
            ignis__chat_messages(c, names->item[ignis__chat_find(c, names, ignis__chat_words("messages")) + 1]);
    }
    if (!c->fault)
        ignis__chat_run(c, root);
    if (c->fault)
        ignis__chat_report(c, call);
    return !c->fault;
}

/*  What both calls do: checks, and the rendered text in *out. *held is the tokenizer, to be dropped, or null. After a failure nothing is held. */
static bool ignis__chat_begin(const char *call, ignis_tokenizer tokenizer, const ignis_message *messages, int count,
                              const ignis_chat_desc *desc, bool no_out, int64_t capacity, ignis__chat *chat, ignis__tokenizer **held,
                              ignis__chat_writer *out)
{
    ignis_chat_desc defaults;
    const char *text;
    int i;
    bool ok = false;
    *held = NULL;
    memset(&defaults, 0, sizeof defaults);
    desc = desc ? desc : &defaults;
    text = desc->chat_template;
    if (!ignis__enter(call) || ((tokenizer.id || !text) && (*held = ignis__tokenizer_hold(call, tokenizer)) == NULL))
        return false;
    text = text ? text : (*held)->chat_template;
    for (i = 0; messages && i < count && messages[i].role; i++)
        continue;
    if (!text)
        ignis__fail(IGNIS_DIAG_CHAT_TEMPLATE, call, "the tokenizer has no chat template; desc.chat_template can give one");
    else if (no_out && capacity > 0)
        ignis__fail_null(call, "the result");
    else if (count < 0 || capacity < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "%s is %lld, below 0", count < 0 ? "count" : "capacity",
                    count < 0 ? (long long)count : (long long)capacity);
    else if (count > 0 && !messages)
        ignis__fail_null(call, "messages");
    else if (i < count)
        ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "messages[%d].role is null", i);
    else
        ok = ignis__chat_render(chat, call, text, messages, count, desc, *held, out) || (ignis__chat_close(chat), false);
    if (!ok && *held)
        ignis__tokenizer_drop(*held);
    return ok;
}

IGNIS_API int64_t ignis_chat_render(ignis_tokenizer tokenizer, const ignis_message *messages, int count, const ignis_chat_desc *desc,
                                    char *out, int64_t capacity)
{
    static const char call[] = "ignis_chat_render";
    ignis__tokenizer *held;
    ignis__chat chat;
    ignis__chat_writer text;
    if (!ignis__chat_begin(call, tokenizer, messages, count, desc, !out, capacity, &chat, &held, &text))
        return -1;
    if (text.size && capacity > 0)
        memcpy(out, text.text, (int64_t)text.size < capacity ? text.size : (size_t)capacity);
    ignis__chat_close(&chat);
    if (held)
        ignis__tokenizer_drop(held);
    return (int64_t)text.size;
}

IGNIS_API int ignis_chat_encode(ignis_tokenizer tokenizer, const ignis_message *messages, int count, const ignis_chat_desc *desc,
                                int32_t *ids, int capacity)
{
    static const char call[] = "ignis_chat_encode";
    static const ignis_encode_desc no_bos = {true, false};
    ignis__tokenizer *held;
    ignis__chat chat;
    ignis__chat_writer text;
    ignis__list spans = IGNIS__ZERO; /* of the caller's text */
    size_t at, begin;
    int result = -1;
    bool ok = true;
    if (!ignis__chat_begin(call, tokenizer, messages, count, desc, !ids, capacity, &chat, &held, &text))
        return -1;
    spans.size = sizeof(ignis__plain_span);
    for (at = 0; at < text.size && ok;) {
        ignis__plain_span *span;
        for (begin = at; at < text.size && text.marks[at] == text.marks[begin]; at++)
            continue;
        if (!text.marks[begin])
            continue;
        span = (ignis__plain_span *)ignis__list_add(&spans);
        ok = span != NULL;
        if (ok) {
            span->begin = begin;
            span->end = at;
        }
    }
    if (!held)
        ignis__fail_null(call, "tokenizer");
    else if (!ok)
        ignis__fail_host_memory(call, spans.size * (size_t)spans.count * 2);
    else
        result = ignis__tokenizer_encode(call, held, text.text ? text.text : "", text.size, &no_bos,
                                         (const ignis__plain_span *)(void *)spans.items, spans.count, ids, capacity);
    ignis__free(spans.items);
    ignis__chat_close(&chat);
    if (held)
        ignis__tokenizer_drop(held);
    return result;
}

/* ===============================================================================================================
   >>grammar - texts that a grammar allows: GBNF and JSON Schema become rules of bytes, these states, these masks of a vocabulary.
   =============================================================================================================== */

/*  A rule has alternatives, an alternative is a row of parts: a byte within a range, another rule, the end. Groups, classes, repetitions are rules
    of their own, and a character of several bytes is a row of them, so what is matched is always UTF-8. A place in a row with a stack of places to
    go back to is where a text may be; the set of all of them is a state. States are made when a text comes to them, each once, and remember where
    each class of bytes leads, as in a lazy automaton: a byte that was seen there before costs a look into a table. */
enum {
    IGNIS__GRAMMAR_PARTS = 1 << 18,   /* of a grammar, at most */
    IGNIS__GRAMMAR_RANGES = 256,      /* of a class of characters */
    IGNIS__GRAMMAR_NESTED = 100,      /* groups within groups */
    IGNIS__GRAMMAR_DEPTH = 500,       /* rules within rules that a text is in */
    IGNIS__GRAMMAR_REACHED = 1 << 14, /* places that a text is in at once */
    IGNIS__GRAMMAR_LOOKED = 1 << 26,  /* names of rules, while a grammar is read */
    IGNIS__GRAMMAR_STEPS = 1 << 24,   /* places that are looked at for a mask */
    IGNIS__GRAMMAR_STATES = 4096,     /* that are kept from one mask to the next, */
    IGNIS__GRAMMAR_MASKS = 256,       /* and masks */
    IGNIS__GRAMMAR_BUCKETS = 4096,
    IGNIS__GRAMMAR_BYTE = -1, /* a part that is no rule */
    IGNIS__GRAMMAR_END = -2
};

typedef struct ignis__grammar_part {
    int32_t rule; /* or one of the two above */
    int32_t alternative;
    int32_t other; /* part that has the same rule; -1: none */
    unsigned char low, high;
} ignis__grammar_part;

typedef struct ignis__grammar_alternative {
    int32_t rule, first, next; /* parts; next: of the rule, -1: none */
    int32_t open;              /* rules in it of which it is not known that a text of theirs ends */
} ignis__grammar_alternative;

typedef struct ignis__grammar_rule {
    const char *name; /* in the text, which has it at first there; null: none */
    int32_t size, alternatives, calls, named;
    bool defined, ends, empty;
    unsigned char seen;          /* while rules are looked for that begin with themselves: 1: in it, 2: done */
    int32_t at, at_part, caller; /* the same */
} ignis__grammar_rule;

typedef struct ignis__grammar_place {
    int32_t part, stack;
} ignis__grammar_place;

typedef struct ignis__grammar_stack {
    ignis__grammar_place place; /* to go back to, and the rest */
    int32_t depth, link;
} ignis__grammar_stack;

typedef struct ignis__grammar_state {
    int32_t first, count, link; /* places */
    bool ends;                  /* the text may end here */
    bool any;                   /* the mask has a token */
    uint32_t *mask;             /* null: not yet */
} ignis__grammar_state;

typedef struct ignis__grammar {
    struct ignis__grammar *next;
    int uses;
    char *source, *text; /* as it was given; as GBNF, which may be the same */
    ignis__list rules, alternatives, parts;
    ignis__list states, rows, places, stacks;
    int32_t root, start, masks, epoch; /* epoch: how often states were forgotten */
    uint64_t number;                   /* among those of its engine, from 1 on */
    int64_t steps;
    int classes;
    unsigned char class_of[256];
    int32_t rule_of[256], state_of[IGNIS__GRAMMAR_BUCKETS], stack_of[IGNIS__GRAMMAR_BUCKETS];
    struct {
        ignis__grammar_place place;
        int32_t slot;
    } reached[IGNIS__GRAMMAR_REACHED];
    int32_t reached_count, buckets[2 * IGNIS__GRAMMAR_REACHED];
    ignis_diagnostic diagnostic; /* NONE: nothing is wrong */
    char fault[320];
} ignis__grammar;

#define IGNIS__GRAMMAR_AT(g, kind, list, number) ((ignis__grammar_##kind *)(void *)(g)->list.items + (number))

IGNIS__PRINTF(4, 5)
IGNIS__COLD static bool ignis__grammar_fail(ignis__grammar *g, ignis_diagnostic diagnostic, const char *at, const char *format, ...)
{
    ignis__text text;
    int line, column;
    va_list args;
    if (g->diagnostic != IGNIS_DIAG_NONE)
        return false;
    g->diagnostic = diagnostic;
    ignis__text_begin(&text, g->fault, sizeof g->fault);
    if (at) {
        ignis__text_place(g->text, at, &line, &column);
        ignis__text_add(&text, "%sline %d, column %d: ", g->text == g->source ? "" : "of the grammar of the schema, ", line, column);
    }
    va_start(args, format);
    ignis__text_addv(&text, format, args);
    va_end(args);
    return false;
}

IGNIS__COLD static void *ignis__grammar_add(ignis__grammar *g, ignis__list *list)
{
    void *item = ignis__list_add(list);
    if (item)
        memset(item, 0, list->size);
    else
        ignis__grammar_fail(g, IGNIS_DIAG_HOST_MEMORY, NULL, "out of host memory");
    return item;
}

/* --- GBNF becomes rules ------------------------------------------------------------------------------------------------- */

typedef struct ignis__grammar_reader {
    ignis__grammar *g;
    const char *at, *end;
    ignis__list row; /* parts of the alternatives that are being read, the innermost last */
    int64_t looked;  /* names that were looked at for others */
} ignis__grammar_reader;

#define ignis__grammar_wrong(r, ...) ignis__grammar_fail((r)->g, IGNIS_DIAG_GRAMMAR, (r)->at, __VA_ARGS__)

static void ignis__grammar_blank(ignis__grammar_reader *r, bool lines)
{
    for (;; r->at++) {
        if (r->at < r->end && *r->at == '#')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        if (r->at == r->end || !(*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || (lines && *r->at == '\n')))
            return;
    }
}

static bool ignis__grammar_take(ignis__grammar_reader *r, char c)
{
    bool is = !r->g->diagnostic && r->at < r->end && *r->at == c;
    r->at += is;
    return is;
}

/*  A rule of its own; -1: there is no memory. */
static int32_t ignis__grammar_rule_new(ignis__grammar *g)
{
    ignis__grammar_rule *rule = (ignis__grammar_rule *)ignis__grammar_add(g, &g->rules);
    if (!rule)
        return -1;
    rule->alternatives = rule->calls = rule->named = -1;
    return (int32_t)g->rules.count - 1;
}

static void ignis__grammar_push(ignis__grammar_reader *r, int32_t rule, int low, int high)
{
    ignis__grammar_part *part = NULL;
    if (r->row.count + r->g->parts.count >= IGNIS__GRAMMAR_PARTS)
        ignis__grammar_fail(r->g, IGNIS_DIAG_UNSUPPORTED, r->at, "with this the grammar has more than %d parts", (int)IGNIS__GRAMMAR_PARTS);
    else if (!r->g->diagnostic)
        part = (ignis__grammar_part *)ignis__grammar_add(r->g, &r->row);
    if (!part)
        return;
    part->rule = rule;
    part->low = (unsigned char)low;
    part->high = (unsigned char)high;
}

/*  The parts from `from` on become one more alternative of a rule. */
static void ignis__grammar_close(ignis__grammar_reader *r, int32_t rule, int64_t from)
{
    ignis__grammar *g = r->g;
    ignis__grammar_alternative *to = NULL;
    ignis__grammar_part *part;
    int64_t i;
    ignis__grammar_push(r, IGNIS__GRAMMAR_END, 0, 0);
    if (!g->diagnostic)
        to = (ignis__grammar_alternative *)ignis__grammar_add(g, &g->alternatives);
    if (to) {
        to->rule = rule;
        to->first = (int32_t)g->parts.count;
        to->next = IGNIS__GRAMMAR_AT(g, rule, rules, rule)->alternatives;
        IGNIS__GRAMMAR_AT(g, rule, rules, rule)->alternatives = (int32_t)g->alternatives.count - 1;
    }
    for (i = from; to && i < r->row.count && (part = (ignis__grammar_part *)ignis__grammar_add(g, &g->parts)) != NULL; i++) {
        *part = ((ignis__grammar_part *)(void *)r->row.items)[i];
        part->alternative = (int32_t)g->alternatives.count - 1;
        if (part->rule >= 0) {
            to->open++;
            part->other = IGNIS__GRAMMAR_AT(g, rule, rules, part->rule)->calls;
            IGNIS__GRAMMAR_AT(g, rule, rules, part->rule)->calls = (int32_t)g->parts.count - 1;
        }
    }
    r->row.count = from;
}

/*  A character of a literal or a class; -1: a fault. */
static int64_t ignis__grammar_character(ignis__grammar_reader *r)
{
    static const char names[] = "nrt\\\"[]xuU", values[] = "\n\r\t\\\"[]";
    const char *known, *begin = r->at;
    int length = ignis__utf8_length(r->at, (size_t)(r->end - r->at));
    int64_t code;
    if (length == 0) {
        ignis__grammar_wrong(r, r->at == r->end ? "the text ends within quotes or brackets" : "this is not UTF-8");
        return -1;
    }
    code = ignis__utf8_code(r->at, &length);
    r->at += length;
    if (code != '\\')
        return code;
    known = r->at < r->end ? strchr(names, *r->at) : NULL;
    if (!known) {
        r->at = begin;
        ignis__grammar_wrong(r, "a backslash begins no escape");
        return -1;
    }
    r->at++;
    if (known - names < 7)
        return values[known - names];
    code = 0;
    for (length = 2 << (known - names - 7); length > 0 && r->at < r->end && *r->at && strchr("0123456789abcdefABCDEF", *r->at);
         length--, r->at++)
        code = code * 16 + (*r->at <= '9' ? *r->at - '0' : (*r->at | 32) - 'a' + 10);
    if (length == 0 && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF))
        return code;
    r->at = begin;
    ignis__grammar_wrong(r, length ? "an escape has too few digits" : "there is no such character");
    return -1;
}

/*  Characters of a range as alternatives of a rule: ranges are cut to where the first bytes are equal, or those behind them any. */
static void ignis__grammar_range(ignis__grammar_reader *r, int32_t rule, uint32_t low, uint32_t high)
{
    static const uint32_t borders[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF}; /* lengths, and the surrogates */
    int64_t from = r->row.count;
    char first[4], last[4];
    uint32_t cut = 0, bits;
    int i, length;
    for (i = 0; i < IGNIS__COUNT(borders) && !cut; i++)
        cut = low <= borders[i] && high > borders[i] ? borders[i] + 1 : 0;
    for (bits = 0x3F; low > 0x7F && !cut && bits <= 0x3FFFF; bits = bits << 6 | 0x3F)
        if ((low & ~bits) != (high & ~bits))
            cut = low & bits ? (low | bits) + 1 : (high & bits) != bits ? high & ~bits : 0;
    if (cut) {
        ignis__grammar_range(r, rule, low, cut - 1);
        ignis__grammar_range(r, rule, cut, high);
        return;
    }
    if (low >= 0xD800 && high <= 0xDFFF)
        return;
    length = ignis__utf8_write(first, low);
    (void)ignis__utf8_write(last, high);
    for (i = 0; i < length; i++)
        ignis__grammar_push(r, IGNIS__GRAMMAR_BYTE, (unsigned char)first[i], (unsigned char)last[i]);
    ignis__grammar_close(r, rule, from);
}

/*  A class, behind its bracket; any: the point, which is any character. */
static void ignis__grammar_class(ignis__grammar_reader *r, bool any)
{
    uint64_t ranges[IGNIS__GRAMMAR_RANGES];
    int64_t low, high;
    uint32_t next = 0;
    int32_t rule = ignis__grammar_rule_new(r->g);
    int count = 0, i;
    bool others = any || ignis__grammar_take(r, '^');
    while (!any && !r->g->diagnostic && !ignis__grammar_take(r, ']')) {
        low = high = ignis__grammar_character(r);
        if (r->end - r->at > 1 && r->at[0] == '-' && r->at[1] != ']') {
            r->at++;
            high = ignis__grammar_character(r);
        }
        if (low > high)
            ignis__grammar_wrong(r, "a range ends before it begins");
        else if (count == IGNIS__GRAMMAR_RANGES)
            ignis__grammar_wrong(r, "a class has more than %d ranges", (int)IGNIS__GRAMMAR_RANGES);
        else
            ranges[count++] = (uint64_t)low << 32 | (uint64_t)high;
    }
    if (r->g->diagnostic)
        return;
    qsort(ranges, (size_t)count, sizeof *ranges, ignis__u64_order);
    for (i = 0; i < count; i++) {
        uint32_t begin = (uint32_t)(ranges[i] >> 32), end = (uint32_t)ranges[i];
        if (!others)
            ignis__grammar_range(r, rule, begin, end);
        else if (begin > next)
            ignis__grammar_range(r, rule, next, begin - 1);
        next = end >= next ? end + 1 : next;
    }
    if (others && next <= 0x10FFFF)
        ignis__grammar_range(r, rule, next, 0x10FFFF);
    ignis__grammar_push(r, rule, 0, 0);
}

/*  A number of a repetition. */
static int ignis__grammar_number(ignis__grammar_reader *r)
{
    const char *begin = r->at;
    int number = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        number = number < IGNIS__GRAMMAR_PARTS ? number * 10 + (*r->at - '0') : number;
    if (r->at == begin)
        ignis__grammar_wrong(r, "a number is missing");
    return number;
}

/*  What stands behind `from` is there least to most times; most below 0: any number of times. */
static void ignis__grammar_repeat(ignis__grammar_reader *r, int64_t from, int least, int most)
{
    ignis__grammar_part part;
    int32_t rule, rest = -1;
    int64_t top;
    int i;
    if (r->row.count - from != 1) {
        rule = ignis__grammar_rule_new(r->g);
        ignis__grammar_close(r, rule, from);
        ignis__grammar_push(r, rule, 0, 0);
    }
    if (r->g->diagnostic)
        return;
    part = ((ignis__grammar_part *)(void *)r->row.items)[--r->row.count];
    for (i = 0; i < least && !r->g->diagnostic; i++)
        ignis__grammar_push(r, part.rule, part.low, part.high);
    for (i = most < 0 ? -1 : least; (i < most || (most < 0 && rest < 0)) && !r->g->diagnostic; i++) {
        top = r->row.count; /* rest: once more, and the rest behind it, or nothing */
        if ((rule = ignis__grammar_rule_new(r->g)) < 0)
            return;
        ignis__grammar_close(r, rule, top);
        ignis__grammar_push(r, part.rule, part.low, part.high);
        if (most < 0 || rest >= 0)
            ignis__grammar_push(r, most < 0 ? rule : rest, 0, 0);
        ignis__grammar_close(r, rule, top);
        rest = rule;
    }
    if (rest >= 0)
        ignis__grammar_push(r, rest, 0, 0);
}

static const char ignis__grammar_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/*  The rule of a name, which is made if need be; -1: a fault. */
static int32_t ignis__grammar_name(ignis__grammar_reader *r)
{
    const char *name = r->at;
    ignis__grammar_rule *rule;
    int32_t *bucket, i;
    size_t size = strspn(name, ignis__grammar_letters);
    if (size == 0) {
        ignis__grammar_wrong(r, "the name of a rule is missing");
        return -1;
    }
    r->at += size;
    bucket = &r->g->rule_of[ignis__token_hash(name, size) % 256];
    if (r->looked > IGNIS__GRAMMAR_LOOKED) {
        ignis__grammar_fail(r->g, IGNIS_DIAG_UNSUPPORTED, r->at, "the grammar has too many names: %lld had to be looked at",
                            (long long)r->looked);
        return -1;
    }
    for (i = *bucket; i >= 0; i = rule->named) {
        rule = IGNIS__GRAMMAR_AT(r->g, rule, rules, i);
        r->looked += 1 + ((size_t)rule->size == size ? (int64_t)size / 64 : 0);
        if ((size_t)rule->size == size && memcmp(rule->name, name, size) == 0)
            return i;
    }
    if ((i = ignis__grammar_rule_new(r->g)) < 0)
        return -1;
    rule = IGNIS__GRAMMAR_AT(r->g, rule, rules, i);
    rule->name = name;
    rule->size = (int32_t)size;
    rule->named = *bucket;
    return *bucket = i;
}

/*  The alternatives of a rule, as far as they go; nested: in so many groups, where lines do not end them. */
static void ignis__grammar_alternatives(ignis__grammar_reader *r, int32_t rule, int nested)
{
    int64_t from = r->row.count, last = -1;
    int64_t code;
    int32_t group;
    int least, most;
    char bytes[4];
    if (nested > IGNIS__GRAMMAR_NESTED)
        ignis__grammar_wrong(r, "groups are nested deeper than %d", (int)IGNIS__GRAMMAR_NESTED);
    while (!r->g->diagnostic) {
        ignis__grammar_blank(r, nested > 0);
        if (ignis__grammar_take(r, '|')) {
            ignis__grammar_close(r, rule, from);
            ignis__grammar_blank(r, true);
            last = -1;
        } else if (r->at < r->end && strchr("*+?{", *r->at) && *r->at) {
            if (last < 0)
                ignis__grammar_wrong(r, "there is nothing to repeat");
            least = *r->at == '+';
            most = *r->at == '?' ? 1 : -1;
            if (*r->at++ == '{') {
                ignis__grammar_blank(r, nested > 0);
                least = most = ignis__grammar_number(r);
                ignis__grammar_blank(r, nested > 0);
                if (ignis__grammar_take(r, ',')) {
                    ignis__grammar_blank(r, nested > 0);
                    most = r->at < r->end && *r->at == '}' ? -1 : ignis__grammar_number(r);
                    ignis__grammar_blank(r, nested > 0);
                }
                if (!ignis__grammar_take(r, '}') || (most >= 0 && most < least))
                    ignis__grammar_wrong(r, most >= 0 && most < least ? "the second number is below the first" : "a } is missing");
            }
            if (!r->g->diagnostic)
                ignis__grammar_repeat(r, last, least, most);
        } else {
            int64_t begin = r->row.count;
            if (ignis__grammar_take(r, '"')) {
                while (!r->g->diagnostic && !ignis__grammar_take(r, '"'))
                    if ((code = ignis__grammar_character(r)) >= 0)
                        for (most = ignis__utf8_write(bytes, (uint32_t)code), least = 0; least < most; least++)
                            ignis__grammar_push(r, IGNIS__GRAMMAR_BYTE, (unsigned char)bytes[least], (unsigned char)bytes[least]);
            } else if (ignis__grammar_take(r, '[')) {
                ignis__grammar_class(r, false);
            } else if (ignis__grammar_take(r, '.')) {
                ignis__grammar_class(r, true);
            } else if (ignis__grammar_take(r, '(')) {
                if ((group = ignis__grammar_rule_new(r->g)) >= 0)
                    ignis__grammar_alternatives(r, group, nested + 1);
                if (!ignis__grammar_take(r, ')'))
                    ignis__grammar_wrong(r, r->at == r->end ? "a ) is missing" : "this begins nothing that a group may have");
                ignis__grammar_push(r, group, 0, 0);
            } else if (r->at < r->end && *r->at && strchr(ignis__grammar_letters, *r->at)) {
                ignis__grammar_push(r, ignis__grammar_name(r), 0, 0);
            } else {
                break;
            }
            last = begin;
        }
    }
    ignis__grammar_close(r, rule, from);
}

/*  Rules that call themselves before a byte came would go on for ever: there may be none. Says of all rules whether they have the empty text. A
    rule that ends with itself is none of them. */
static bool ignis__grammar_begins(ignis__grammar *g)
{
    ignis__grammar_rule *rules = IGNIS__GRAMMAR_AT(g, rule, rules, 0), *rule, *to;
    const ignis__grammar_alternative *alternatives = IGNIS__GRAMMAR_AT(g, alternative, alternatives, 0);
    const ignis__grammar_part *parts = IGNIS__GRAMMAR_AT(g, part, parts, 0), *part;
    int32_t i, now;
    for (i = 0; i < g->rules.count; i++)
        for (now = rules[i].seen ? -1 : i; now >= 0;) {
            rule = &rules[now];
            if (!rule->seen) {
                rule->seen = 1;
                rule->caller = now == i ? -1 : rule->caller;
                rule->at = rule->alternatives;
                rule->at_part = rule->at < 0 ? -1 : alternatives[rule->at].first;
            }
            if (rule->at < 0) {
                rule->seen = 2;
                now = rule->caller;
                continue;
            }
            part = &parts[rule->at_part];
            to = part->rule < 0 ? NULL : &rules[part->rule];
            if (to && !to->seen) {
                to->caller = now;
                now = part->rule;
                continue;
            }
            if (to && to->seen == 1 && !(to == rule && part[1].rule == IGNIS__GRAMMAR_END)) {
                while (!to->name && to->caller >= 0)
                    to = &rules[to->caller];
                return ignis__grammar_fail(g, IGNIS_DIAG_GRAMMAR, to->name, "the rule '%.*s' begins with itself, by left recursion",
                                           to->size > 60 ? 60 : (int)to->size, to->name ? to->name : "");
            }
            rule->empty = rule->empty || part->rule == IGNIS__GRAMMAR_END;
            if (to && to->seen == 2 && to->empty) {
                rule->at_part++;
            } else {
                rule->at = alternatives[rule->at].next;
                rule->at_part = rule->at < 0 ? -1 : alternatives[rule->at].first;
            }
        }
    return true;
}

/*  Takes alternatives off that no text ends in, so that what the matcher allows can always be gone on with. */
static bool ignis__grammar_ends(ignis__grammar *g)
{
    ignis__grammar_rule *rules = IGNIS__GRAMMAR_AT(g, rule, rules, 0);
    ignis__grammar_alternative *alternatives = IGNIS__GRAMMAR_AT(g, alternative, alternatives, 0);
    const ignis__grammar_part *parts = IGNIS__GRAMMAR_AT(g, part, parts, 0);
    int32_t i, part, last = -1, *link;
    for (i = 0; i < g->alternatives.count; i++) {
        int32_t rule = alternatives[i].rule;
        if (alternatives[i].open || rules[rule].ends)
            continue;
        rules[rule].ends = true;
        for (rules[rule].caller = -1, last = rule; last >= 0;) { /* rules that end, and whose callers do not know it */
            rule = last;
            last = rules[rule].caller;
            for (part = rules[rule].calls; part >= 0; part = parts[part].other) {
                ignis__grammar_alternative *in = &alternatives[parts[part].alternative];
                if (--in->open == 0 && !rules[in->rule].ends) {
                    rules[in->rule].ends = true;
                    rules[in->rule].caller = last;
                    last = in->rule;
                }
            }
        }
    }
    for (i = 0; i < g->rules.count; i++)
        for (link = &rules[i].alternatives; *link >= 0;)
            if (alternatives[*link].open)
                *link = alternatives[*link].next;
            else
                link = &alternatives[*link].next;
    return rules[g->root].ends || ignis__grammar_fail(g, IGNIS_DIAG_GRAMMAR, rules[g->root].name, "no text of the rule 'root' ever ends");
}

/*  GBNF, in g->text, becomes rules. */
static bool ignis__grammar_read(ignis__grammar *g)
{
    ignis__grammar_reader r = IGNIS__ZERO;
    ignis__grammar_part *part;
    bool edge[257] = {false};
    int32_t i, rule;
    r.g = g;
    r.at = g->text;
    r.end = r.at + strlen(r.at);
    r.row.size = sizeof(ignis__grammar_part);
    memset(g->rule_of, 0xFF, sizeof g->rule_of);
    for (ignis__grammar_blank(&r, true); r.at < r.end && !g->diagnostic; ignis__grammar_blank(&r, true)) {
        const char *name = r.at;
        rule = ignis__grammar_name(&r);
        ignis__grammar_blank(&r, false);
        if (!g->diagnostic && strncmp(r.at, "::=", 3) != 0)
            ignis__grammar_wrong(&r, "::= is missing behind the name of a rule");
        if (g->diagnostic)
            break;
        if (IGNIS__GRAMMAR_AT(g, rule, rules, rule)->defined) {
            r.at = name;
            ignis__grammar_wrong(&r, "this rule was there before");
        }
        IGNIS__GRAMMAR_AT(g, rule, rules, rule)->defined = true;
        r.at += g->diagnostic ? 0 : 3;
        ignis__grammar_blank(&r, true);
        ignis__grammar_alternatives(&r, rule, 0);
        if (r.at < r.end && *r.at != '\n')
            ignis__grammar_wrong(&r, "this begins nothing that a rule may have");
    }
    ignis__free(r.row.items);
    for (i = 0, g->root = -1; i < g->rules.count && !g->diagnostic; i++) {
        const ignis__grammar_rule *known = IGNIS__GRAMMAR_AT(g, rule, rules, i);
        if (known->name && !known->defined)
            ignis__grammar_fail(g, IGNIS_DIAG_GRAMMAR, known->name, "there is no rule '%.*s'", known->size > 60 ? 60 : (int)known->size,
                                known->name);
        if (known->size == 4 && memcmp(known->name, "root", 4) == 0)
            g->root = i;
    }
    if (!g->diagnostic && g->root < 0)
        ignis__grammar_fail(g, IGNIS_DIAG_GRAMMAR, NULL, "there is no rule 'root', which the text would be");
    if (g->diagnostic || !ignis__grammar_begins(g) || !ignis__grammar_ends(g))
        return false;
    for (i = 0; i < g->parts.count; i++) { /* bytes that no part tells apart are of one class */
        part = IGNIS__GRAMMAR_AT(g, part, parts, i);
        if (part->rule == IGNIS__GRAMMAR_BYTE)
            edge[part->low] = edge[part->high + 1] = true;
    }
    for (i = 0, g->classes = 1; i < 256; i++) {
        g->classes += i > 0 && edge[i];
        g->class_of[i] = (unsigned char)(g->classes - 1);
    }
    return true;
}

