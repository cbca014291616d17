/*  models/tokenizer/tokenizer_config.c - tokenizer_config.json and chat_template.jinja beside tokenizer.json

    Missing files are no failure.
    May use: tokenizer_json.c, vocabulary.c, >>file. Locks: none. */

#include "room.h"

/*  Reads a token: "<s>", or {"content": "<s>", ...}, or null. */
static const char *ignis__config_read_token(ignis__json *json)
{
    const char *text = NULL, *name;
    bool first = true;
    if (ignis__json_peek(json) != '{')
        return ignis__json_read_text(json);
    ignis__json_expect(json, '{');
    while ((name = ignis__json_next_field(json, &first)) != NULL) {
        if (strcmp(name, "content") == 0)
            text = ignis__json_read_text(json);
        else
            ignis__json_skip(json);
    }
    return text;
}

/*  Reads the chat template: a text, or [{"name": "default", "template": a text}, ...], of which it takes the
    default one, else the first. */
static const char *ignis__config_read_template(ignis__json *json)
{
    const char *chosen = NULL, *name;
    bool first = true, is_default = false;
    if (ignis__json_peek(json) != '[')
        return ignis__json_read_text(json);
    ignis__json_expect(json, '[');
    while (ignis__json_more(json, ']', &first)) {
        const char *its_name = NULL, *text = NULL;
        bool first_field = true;
        ignis__json_expect(json, '{');
        while ((name = ignis__json_next_field(json, &first_field)) != NULL) {
            if (strcmp(name, "name") == 0)
                its_name = ignis__json_read_text(json);
            else if (strcmp(name, "template") == 0)
                text = ignis__json_read_text(json);
            else
                ignis__json_skip(json);
        }
        if (!chosen || (!is_default && ignis__tokenizer_part_is(its_name, "default"))) {
            chosen = text;
            is_default = ignis__tokenizer_part_is(its_name, "default");
        }
    }
    return chosen;
}

/*  Returns the id of an added token, or of one of the model, by its text; -1 if there is none. */
static int32_t ignis__token_find_named(const ignis__tokenizer *tokenizer, const char *text)
{
    char bytes[256];
    size_t size = strlen(text);
    const ignis__added_token *added;
    bool hidden;
    int level;
    for (level = 0; level < 2; level++)
        if ((added = ignis__added_set_find(&tokenizer->added[level], text, size, 0, SIZE_MAX, &hidden)) != NULL &&
            added->size == size)
            return added->id;
    if (size >= sizeof bytes)
        return -1;
    memcpy(bytes, text, size + 1);
    return ignis__token_find_encoded(tokenizer, bytes, &size);
}

/*  Sets the ids before or after a text to this one, or to none. */
IGNIS__PRIVATE void ignis__tokenizer_set_template(int32_t *ids, int *count, int add, int32_t id)
{
    if (add == 0)
        *count = 0;
    if (add != 1 || id < 0 || *count > 0)
        return;
    ids[0] = id;
    *count = 1;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_read_config(ignis__tokenizer_load *load)
{
    static const char *const names[] = {"bos_token",     "eos_token",     "pad_token",
                                        "chat_template", "add_bos_token", "add_eos_token"};
    ignis__tokenizer *tokenizer = load->tokenizer;
    ignis__json *json = &load->json;
    const char *texts[4] = {NULL, NULL, NULL, NULL}, *name;
    int add[2] = {-1, -1}, i;
    bool first = true, copied = true;
    ignis__json_expect(json, '{');
    while ((name = ignis__json_next_field(json, &first)) != NULL) {
        for (i = 0; i < IGNIS__COUNT(names) && strcmp(name, names[i]) != 0; i++)
            continue;
        if (i < 3)
            texts[i] = ignis__config_read_token(json);
        else if (i == 3)
            texts[i] = ignis__config_read_template(json);
        else if (i == IGNIS__COUNT(names))
            ignis__json_skip(json);
        else if (!ignis__json_skip_word(json, "null"))
            add[i - 4] = ignis__json_read_bool(json);
    }
    if (json->fault[0])
        return ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "%s", json->fault);
    if (texts[0]) {
        tokenizer->info.bos = ignis__token_find_named(tokenizer, texts[0]);
        copied = (tokenizer->bos_text = ignis__tokenizer_keep_text(tokenizer, texts[0], strlen(texts[0]))) != NULL;
    }
    if (texts[1]) {
        tokenizer->info.eos = ignis__token_find_named(tokenizer, texts[1]);
        copied =
            copied && (tokenizer->eos_text = ignis__tokenizer_keep_text(tokenizer, texts[1], strlen(texts[1]))) != NULL;
    }
    if (texts[2])
        tokenizer->info.padding = ignis__token_find_named(tokenizer, texts[2]);
    if (texts[3])
        copied = copied &&
                 (tokenizer->chat_template = ignis__tokenizer_keep_text(tokenizer, texts[3], strlen(texts[3]))) != NULL;
    ignis__tokenizer_set_template(tokenizer->front, &tokenizer->front_count, add[0], tokenizer->info.bos);
    ignis__tokenizer_set_template(tokenizer->back, &tokenizer->back_count, add[1], tokenizer->info.eos);
    return copied || ignis__tokenizer_no_memory(load);
}

/*  Reads the text file `path` for load->json. *missing: it does not exist, which is reported only if
    `needed`. */
IGNIS__COLD IGNIS__PRIVATE char *ignis__tokenizer_read_file(ignis__tokenizer_load *load, const char *path, bool needed,
                                                            size_t *size)
{
    int64_t length = 0;
    int64_t time;
    char *text;
    *size = 0;
    if (!ignis__file_info(path, &length, &time)) {
        if (needed)
            ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_IO, "it cannot be opened");
        return NULL;
    }
    if (length > IGNIS__TEXT_LIMIT) {
        ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "it has %lld bytes, above %lld", (long long)length,
                               (long long)IGNIS__TEXT_LIMIT);
        return NULL;
    }
    text = (char *)ignis__file_read(path, size);
    if (!text)
        ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_IO,
                               "it cannot be read, or there is no memory for its %lld bytes", (long long)length);
    ignis__tokenizer_load_json(load, text, *size);
    return text;
}

/*  Reads the files beside tokenizer.json. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_read_other_files(ignis__tokenizer_load *load, const char *folder,
                                                                  char *path, size_t path_size)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    bool ok;
    size_t size;
    char *text;
    snprintf(path, path_size, "%s/tokenizer_config.json", folder);
    text = ignis__tokenizer_read_file(load, path, false, &size);
    ok = !text ? load->diagnostic == IGNIS_DIAG_NONE : ignis__tokenizer_read_config(load);
    ignis__free(text);
    if (!ok)
        return false;
    snprintf(path, path_size, "%s/chat_template.jinja", folder);
    text = ignis__tokenizer_read_file(load, path, false, &size);
    if (!text)
        return load->diagnostic == IGNIS_DIAG_NONE;
    if (strlen(text) != size || !ignis__utf8_valid(text))
        ok = ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "it is no text in UTF-8");
    else
        ok = (tokenizer->chat_template = ignis__tokenizer_keep_text(tokenizer, text, size)) != NULL ||
             ignis__tokenizer_no_memory(load);
    ignis__free(text);
    return ok;
}
