/*  models/tokenizer/open.c - ignis_tokenizer_open, _free and _query

    A tokenizer becomes visible in its pool when it is complete.
    May use: tokenizer_json.c, tokenizer_config.c, tokenizer_gguf.c, tokenizer_tekken.c, tokenizer.c. Locks: none. */

#include "room.h"

/*  Finds the family of a tokenizer, and fills in the rest of its facts. */
IGNIS__PRIVATE void ignis__tokenizer_fill_info(ignis__tokenizer *tokenizer)
{
    static const char *const families[] = {"bytes", "gpt2", "llama3", "qwen2"};
    ignis_tokenizer_info *info = &tokenizer->info;
    info->kind = tokenizer->byte_level    ? IGNIS_TOKENIZER_BYTES
                 : tokenizer->word_pieces ? IGNIS_TOKENIZER_WORDS
                                          : IGNIS_TOKENIZER_PIECES;
    snprintf(info->family, sizeof info->family, "%s",
             tokenizer->word_pieces                                       ? "bert"
             : tokenizer->unigram                                         ? "unigram"
             : !tokenizer->byte_level                                     ? "llama"
             : tokenizer->digits && tokenizer->split == IGNIS__SPLIT_GPT2 ? "smollm"
                                                                          : families[tokenizer->split]);
    info->adds_bos = tokenizer->front_count > 0 && tokenizer->front[0] == info->bos;
    info->has_template = tokenizer->chat_template != NULL;
}

static bool ignis__tokenizer_is_gguf(const char *path)
{
    char first[4];
    int64_t size;
    int file = ignis__file_open(path, &size);
    bool is = file >= 0 && ignis__file_read_at(file, 0, first, 4) == 4 && memcmp(first, "GGUF", 4) == 0;
    if (file >= 0)
        ignis__file_close(file);
    return is;
}

/*  Opens a tokenizer. load->path is the file of a failure. */
IGNIS__COLD static void ignis__tokenizer_open(ignis__tokenizer_load *load, const char *given, char *path,
                                              size_t path_size)
{
    int64_t length, time;
    size_t size;
    char *text;
    bool folder = !ignis__file_info(given, &length, &time), tekken = false;
    ignis__gguf gguf;
    load->path = path;
    snprintf(path, path_size, folder ? "%s/tokenizer.json" : "%s", given);
    if (!folder && ignis__tokenizer_is_gguf(path)) {
        if (!ignis__gguf_open(load->call, path, &gguf)) {
            ignis__tokenizer_fault(load, IGNIS_DIAG_GGUF_FORMAT, "%s", "");
            return;
        }
        (void)ignis__tokenizer_read_gguf(load, &gguf);
        ignis__gguf_close(&gguf);
        return;
    }
    if (folder && !ignis__file_info(path, &length, &time)) {
        snprintf(path, path_size, "%s/tekken.json", given);
        tekken = ignis__file_info(path, &length, &time);
        if (!tekken)
            snprintf(path, path_size, "%s/tokenizer.json", given);
    } else if (!folder) { /* as mistral_common tells its files */
        const char *name = strrchr(path, '/');
        tekken = strstr(name ? name : path, "tekken") != NULL;
    }
    text = ignis__tokenizer_read_file(load, path, true, &size);
    if (text &&
        (tekken ? ignis__tokenizer_read_tekken(load)
                : ignis__tokenizer_read_json(load) && ignis__tokenizer_build(load)) &&
        folder)
        (void)ignis__tokenizer_read_other_files(load, given, path, path_size);
    ignis__free(text);
}

IGNIS__COLD IGNIS_API ignis_tokenizer ignis_tokenizer_open(const char *path)
{
    static const char call[] = "ignis_tokenizer_open";
    ignis_tokenizer handle = IGNIS__ZERO;
    ignis__tokenizer_load load = IGNIS__ZERO;
    ignis__tokenizer *tokenizer;
    char *file;
    size_t size;
    if (!ignis__models_enter(call))
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
        ignis__tokenizer_load_begin(&load, call, tokenizer);
        ignis__tokenizer_open(&load, path, file, size);
        if (load.diagnostic == IGNIS_DIAG_NONE) {
            ignis__tokenizer_fill_info(tokenizer);
            ignis__models_close_by(IGNIS__CLOSE_TOKENIZERS, ignis__tokenizers_close);
            handle.id = ignis__pool_publish(&ignis__tokenizers, tokenizer);
        } else {
            if (*load.fault)
                ignis__fail(load.diagnostic, call, "'%s': %s", file, load.fault);
            ignis__tokenizer_destroy(tokenizer);
        }
        ignis__tokenizer_load_end(&load);
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
