/*  models/tokenizer/tokenizer_json.c - parses tokenizer.json into lists and steps

    The meaning of the steps is checked afterwards, by pipeline.c and vocabulary.c.
    May use: >>json, byte_buffer.c. Locks: none. */

#include "room.h"

/*  Appends a zeroed item. NULL without memory. */
IGNIS__PRIVATE void *ignis__list_add(ignis__list *list)
{
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity ? list->capacity * 2 : 64;
        char *items = (char *)ignis__alloc((size_t)capacity * list->size);
        if (!items)
            return NULL;
        if (list->count)
            memcpy(items, list->items, (size_t)list->count * list->size);
        ignis__free(list->items);
        list->items = items;
        list->capacity = capacity;
    }
    return list->items + (size_t)list->count++ * list->size;
}

IGNIS__PRIVATE const char *const ignis__tokenizer_part_names[IGNIS__PART_KINDS] = {"normalizer", "pre_tokenizer",
                                                                                   "post_processor", "decoder"};

IGNIS__PRIVATE void ignis__tokenizer_load_begin(ignis__tokenizer_load *load, const char *call,
                                                ignis__tokenizer *tokenizer)
{
    memset(load, 0, sizeof *load);
    load->call = call;
    load->tokenizer = tokenizer;
    load->entries.size = sizeof(ignis__token_entry);
    load->merges.size = sizeof(ignis__merge_entry);
    load->added.size = sizeof(ignis__added_token);
    load->word_limit = 100;
    load->unknown_id = -1;
    tokenizer->info.bos = tokenizer->info.eos = tokenizer->info.unknown = tokenizer->info.padding = -1;
}

IGNIS__PRIVATE void ignis__tokenizer_load_end(ignis__tokenizer_load *load)
{
    ignis__free(load->entries.items);
    ignis__free(load->merges.items);
    ignis__free(load->added.items);
}

/*  Sets the text that load->json reads. */
IGNIS__PRIVATE void ignis__tokenizer_load_json(ignis__tokenizer_load *load, char *text, size_t size)
{
    memset(&load->json, 0, sizeof load->json);
    load->json.what = "the file";
    load->json.start = load->json.at = text;
    load->json.end = text ? text + size : NULL;
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_fault(ignis__tokenizer_load *load, ignis_diagnostic diagnostic,
                                                       const char *format, ...)
{
    va_list args;
    if (load->diagnostic == IGNIS_DIAG_NONE) {
        load->diagnostic = diagnostic;
        va_start(args, format);
        vsnprintf(load->fault, sizeof load->fault, format, args);
        va_end(args);
    }
    return false;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_no_memory(ignis__tokenizer_load *load)
{
    return ignis__tokenizer_fault(load, IGNIS_DIAG_HOST_MEMORY, "out of host memory");
}

/*  Skips a word, such as null, if it is next. Tells whether it was. */
IGNIS__PRIVATE bool ignis__json_skip_word(ignis__json *json, const char *word)
{
    size_t size = strlen(word);
    if (json->fault[0] || ignis__json_peek(json) != word[0] || (size_t)(json->end - json->at) < size ||
        memcmp(json->at, word, size) != 0)
        return false;
    json->at += size;
    return true;
}

/*  Reads true or false. False after a fault. */
IGNIS__PRIVATE bool ignis__json_read_bool(ignis__json *json)
{
    bool value = ignis__json_skip_word(json, "true");
    if (!value && !ignis__json_skip_word(json, "false"))
        ignis__json_fail(json, "true or false is missing");
    return value;
}

/*  Reads the name of the next field and its colon. NULL at the end of the object, or after a fault. */
IGNIS__PRIVATE const char *ignis__json_next_field(ignis__json *json, bool *first)
{
    size_t size;
    const char *name;
    if (!ignis__json_more(json, '}', first))
        return NULL;
    name = ignis__json_string(json, &size);
    ignis__json_expect(json, ':');
    return json->fault[0] ? NULL : name;
}

/*  Reads a text without a 0 in it. NULL for null. */
IGNIS__PRIVATE const char *ignis__json_read_text(ignis__json *json)
{
    size_t size;
    const char *text;
    if (ignis__json_skip_word(json, "null"))
        return NULL;
    text = ignis__json_string(json, &size);
    if (strlen(text) != size)
        ignis__json_fail(json, "the text %s goes on behind a character 0", ignis__name_write(text).text);
    return text;
}

/*  Reads {"id": "<s>", "ids": [1], ...} for each name. */
IGNIS__COLD static void ignis__tokenizer_read_template_specials(ignis__tokenizer_load *load)
{
    ignis__json *json = &load->json;
    bool first = true;
    const char *name, *field;
    ignis__json_expect(json, '{');
    while ((name = ignis__json_next_field(json, &first)) != NULL) {
        bool first_field = true, first_id = true;
        int at = load->special_count++, *count = &load->special_id_count[at];
        if (at == IGNIS__TEMPLATE_TOKENS) {
            load->special_count--;
            ignis__json_fail(json, "a template has more than %d special tokens", IGNIS__TEMPLATE_TOKENS);
            return;
        }
        load->special_name[at] = name;
        ignis__json_expect(json, '{');
        while ((field = ignis__json_next_field(json, &first_field)) != NULL) {
            if (strcmp(field, "ids") != 0) {
                ignis__json_skip(json);
                continue;
            }
            ignis__json_expect(json, '[');
            for (*count = 0; ignis__json_more(json, ']', &first_id);) {
                int64_t id = ignis__json_count(json);
                if (id >= IGNIS__TOKEN_LIMIT || *count == IGNIS__TEMPLATE_TOKENS)
                    ignis__json_fail(json,
                                     "a special token of a template has an id of at least %lld, or more than %d ids",
                                     (long long)IGNIS__TOKEN_LIMIT, IGNIS__TEMPLATE_TOKENS);
                else
                    load->special_ids[at][(*count)++] = (int32_t)id;
            }
        }
    }
}

/*  Reads [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]. */
IGNIS__COLD static void ignis__tokenizer_read_template_single(ignis__tokenizer_load *load)
{
    ignis__json *json = &load->json;
    bool first = true;
    const char *kind, *field;
    load->template_count = 0;
    ignis__json_expect(json, '[');
    while (ignis__json_more(json, ']', &first)) {
        bool first_kind = true;
        ignis__json_expect(json, '{');
        while ((kind = ignis__json_next_field(json, &first_kind)) != NULL) {
            bool special = strcmp(kind, "SpecialToken") == 0, first_field = true;
            const char *id = NULL;
            ignis__json_expect(json, '{');
            while ((field = ignis__json_next_field(json, &first_field)) != NULL) {
                if (strcmp(field, "id") == 0)
                    id = ignis__json_read_text(json);
                else
                    ignis__json_skip(json);
            }
            if (json->fault[0])
                return;
            if (!id || (!special && (strcmp(kind, "Sequence") != 0 || strcmp(id, "A") != 0 || load->template_text)))
                ignis__json_fail(json, "a template of one text is more than special tokens around the text A");
            else if (!special)
                load->template_text = true;
            else if (load->template_count == IGNIS__TEMPLATE_TOKENS)
                ignis__json_fail(json, "a template has more than %d special tokens", IGNIS__TEMPLATE_TOKENS);
            else {
                load->template_behind[load->template_count] = load->template_text;
                load->template_name[load->template_count++] = id;
            }
        }
    }
}

/*  Reads ["[CLS]", 101] of a BertProcessing or RobertaProcessing, which is added before or after a text. */
IGNIS__COLD static void ignis__tokenizer_read_around(ignis__tokenizer_load *load, bool behind)
{
    ignis__json *json = &load->json;
    const char *text;
    int64_t id;
    ignis__json_expect(json, '[');
    text = ignis__json_read_text(json);
    ignis__json_expect(json, ',');
    id = ignis__json_count(json);
    ignis__json_expect(json, ']');
    if (json->fault[0])
        return;
    if (!text || id >= IGNIS__TOKEN_LIMIT || load->template_count == IGNIS__TEMPLATE_TOKENS ||
        load->special_count == IGNIS__TEMPLATE_TOKENS) {
        ignis__json_fail(json, "a post_processor has no token, an id of at least %lld, or more than %d tokens",
                         (long long)IGNIS__TOKEN_LIMIT, IGNIS__TEMPLATE_TOKENS);
        return;
    }
    load->template_text = true;
    load->template_behind[load->template_count] = behind;
    load->template_name[load->template_count++] = text;
    load->special_name[load->special_count] = text;
    load->special_ids[load->special_count][0] = (int32_t)id;
    load->special_id_count[load->special_count++] = 1;
}

/*  Reads a normalizer or another part: null, one step, or a sequence of steps. */
IGNIS__COLD static void ignis__tokenizer_read_normalizer(ignis__tokenizer_load *load, int kind, int depth)
{
    static const struct {
        const char *name;
        char type; /* t a text, n a number, b true or false */
        size_t at;
    } fields[] = {{"type", 't', offsetof(ignis__tokenizer_part, type)},
                  {"prepend", 't', offsetof(ignis__tokenizer_part, prepend)},
                  {"content", 't', offsetof(ignis__tokenizer_part, content)},
                  {"behavior", 't', offsetof(ignis__tokenizer_part, behavior)},
                  {"replacement", 't', offsetof(ignis__tokenizer_part, replacement)},
                  {"prepend_scheme", 't', offsetof(ignis__tokenizer_part, scheme)},
                  {"invert", 'b', offsetof(ignis__tokenizer_part, invert)},
                  {"individual_digits", 'b', offsetof(ignis__tokenizer_part, individual)},
                  {"add_prefix_space", 'b', offsetof(ignis__tokenizer_part, prefix)},
                  {"use_regex", 'b', offsetof(ignis__tokenizer_part, use_regex)},
                  {"split", 'b', offsetof(ignis__tokenizer_part, split)},
                  {"prefix", 't', offsetof(ignis__tokenizer_part, word_prefix)},
                  {"cleanup", 'b', offsetof(ignis__tokenizer_part, cleanup)},
                  {"clean_text", 'b', offsetof(ignis__tokenizer_part, clean)},
                  {"handle_chinese_chars", 'b', offsetof(ignis__tokenizer_part, chinese)},
                  {"strip_accents", 'b', offsetof(ignis__tokenizer_part, strip)},
                  {"lowercase", 'b', offsetof(ignis__tokenizer_part, lower)},
                  {"strip_left", 'b', offsetof(ignis__tokenizer_part, left)},
                  {"strip_right", 'b', offsetof(ignis__tokenizer_part, right)},
                  {"precompiled_charsmap", 't', offsetof(ignis__tokenizer_part, charsmap)},
                  {"delimiter", 't', offsetof(ignis__tokenizer_part, delimiter)},
                  {"start", 'n', offsetof(ignis__tokenizer_part, start)},
                  {"stop", 'n', offsetof(ignis__tokenizer_part, stop)}};
    static const char *const sequences[IGNIS__PART_KINDS] = {"normalizers", "pretokenizers", "processors", "decoders"};
    ignis__json *json = &load->json;
    ignis__tokenizer_part part;
    bool first = true, first_step = true, sequence = false;
    const char *name;
    int i;
    if (ignis__json_skip_word(json, "null"))
        return;
    if (depth > 8) {
        ignis__json_fail(json, "a %s is nested deeper than 8", ignis__tokenizer_part_names[kind]);
        return;
    }
    memset(&part, 0, sizeof part);
    part.invert = part.individual = part.prefix = part.use_regex = part.split = part.start = part.stop = -1;
    part.cleanup = part.clean = part.chinese = part.strip = part.lower = part.left = part.right = -1;
    ignis__json_expect(json, '{');
    while ((name = ignis__json_next_field(json, &first)) != NULL) {
        for (i = 0; i < IGNIS__COUNT(fields) && strcmp(name, fields[i].name) != 0; i++)
            continue;
        if (i < IGNIS__COUNT(fields)) {
            char *at = (char *)&part + fields[i].at;
            if (fields[i].type == 't')
                *(const char **)(void *)at = ignis__json_read_text(json);
            else if (!ignis__json_skip_word(json, "null"))
                *(int64_t *)(void *)at =
                    fields[i].type == 'n' ? ignis__json_count(json) : (int64_t)ignis__json_read_bool(json);
        } else if (strcmp(name, sequences[kind]) == 0) {
            sequence = true;
            ignis__json_expect(json, '[');
            while (ignis__json_more(json, ']', &first_step))
                ignis__tokenizer_read_normalizer(load, kind, depth + 1);
        } else if (strcmp(name, "pattern") == 0) {
            bool first_pattern = true;
            ignis__json_expect(json, '{');
            while ((name = ignis__json_next_field(json, &first_pattern)) != NULL)
                *(strcmp(name, "Regex") == 0 ? &part.regex : &part.string) = ignis__json_read_text(json);
        } else if (kind == IGNIS__PART_PROCESSOR && strcmp(name, "single") == 0) {
            ignis__tokenizer_read_template_single(load);
        } else if (kind == IGNIS__PART_PROCESSOR && (strcmp(name, "cls") == 0 || strcmp(name, "sep") == 0)) {
            ignis__tokenizer_read_around(load, *name == 's');
        } else if (kind == IGNIS__PART_PROCESSOR && strcmp(name, "special_tokens") == 0) {
            ignis__tokenizer_read_template_specials(load);
        } else {
            ignis__json_skip(json);
        }
    }
    if (json->fault[0] || sequence)
        return;
    if (!part.type)
        ignis__json_fail(json, "a %s has no type", ignis__tokenizer_part_names[kind]);
    else if (load->part_count[kind] == IGNIS__TEXT_STEPS)
        ignis__json_fail(json, "a %s has more than %d steps", ignis__tokenizer_part_names[kind], IGNIS__TEXT_STEPS);
    else
        load->parts[kind][load->part_count[kind]++] = part;
}

/*  Reads [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized":
    false, "special": true}]. */
IGNIS__COLD static void ignis__tokenizer_read_added(ignis__tokenizer_load *load)
{
    ignis__json *json = &load->json;
    bool first = true;
    const char *name;
    if (ignis__json_skip_word(json, "null"))
        return;
    ignis__json_expect(json, '[');
    while (ignis__json_more(json, ']', &first)) {
        bool first_field = true, has_id = false;
        ignis__added_token *added = (ignis__added_token *)ignis__list_add(&load->added);
        if (!added) {
            ignis__tokenizer_no_memory(load);
            return;
        }
        added->normalized = true;
        added->order = (int)load->added.count;
        ignis__json_expect(json, '{');
        while ((name = ignis__json_next_field(json, &first_field)) != NULL) {
            if (strcmp(name, "content") == 0) {
                added->text = ignis__json_string(json, &added->size);
            } else if (strcmp(name, "id") == 0) {
                int64_t id = ignis__json_count(json);
                has_id = true;
                if (id >= IGNIS__TOKEN_LIMIT)
                    ignis__json_fail(json, "an added token has the id %lld; ids are below %lld", (long long)id,
                                     (long long)IGNIS__TOKEN_LIMIT);
                added->id = (int32_t)id;
            } else if (strcmp(name, "single_word") == 0) {
                added->single_word = ignis__json_read_bool(json);
            } else if (strcmp(name, "lstrip") == 0) {
                added->lstrip = ignis__json_read_bool(json);
            } else if (strcmp(name, "rstrip") == 0) {
                added->rstrip = ignis__json_read_bool(json);
            } else if (strcmp(name, "normalized") == 0) {
                added->normalized = ignis__json_read_bool(json);
            } else if (strcmp(name, "special") == 0) {
                added->special = ignis__json_read_bool(json);
            } else {
                ignis__json_skip(json);
            }
        }
        if (!json->fault[0] && (!added->text || !has_id))
            ignis__json_fail(json, "an added token has no %s", added->text ? "id" : "content");
    }
}

/*  Splits "a b", the merge of a and b. False if it is malformed. */
IGNIS__PRIVATE bool ignis__merge_split(ignis__merge_entry *merge, const char *both, size_t size)
{
    const char *space = (const char *)memchr(both, ' ', size);
    if (!space)
        return false;
    merge->left = both;
    merge->left_size = (size_t)(space - both);
    merge->right = space + 1;
    merge->right_size = size - merge->left_size - 1;
    return !memchr(merge->right, ' ', merge->right_size);
}

/*  Reads "merges": ["a b", ...] or [["a", "b"], ...], the lowest rank first. */
IGNIS__COLD static void ignis__tokenizer_read_merges(ignis__tokenizer_load *load)
{
    ignis__json *json = &load->json;
    bool first = true;
    ignis__json_expect(json, '[');
    while (ignis__json_more(json, ']', &first)) {
        ignis__merge_entry *merge = (ignis__merge_entry *)ignis__list_add(&load->merges);
        if (!merge) {
            ignis__tokenizer_no_memory(load);
            return;
        }
        if (ignis__json_take(json, '[')) {
            merge->left = ignis__json_string(json, &merge->left_size);
            ignis__json_expect(json, ',');
            merge->right = ignis__json_string(json, &merge->right_size);
            ignis__json_expect(json, ']');
        } else {
            size_t size;
            const char *both = ignis__json_string(json, &size);
            if (!json->fault[0] && !ignis__merge_split(merge, both, size))
                ignis__json_fail(json, "the merge %s is not two tokens with a space between them",
                                 ignis__name_write(both).text);
        }
        merge->rank = (uint32_t)(load->merges.count - 1);
    }
}

/*  Reads "vocab": {"a": 0, ...}, or [["a", -1.5], ...] of Unigram. */
IGNIS__COLD static void ignis__tokenizer_read_tokens(ignis__tokenizer_load *load)
{
    ignis__json *json = &load->json;
    const bool scores = ignis__json_peek(json) == '[';
    bool first = true;
    size_t size;
    if (!scores && ignis__json_peek(json) != '{') { /* a vocabulary of another kind of model */
        ignis__json_skip(json);
        return;
    }
    load->has_vocabulary = true;
    load->has_scores = scores;
    ignis__json_expect(json, scores ? '[' : '{');
    while (ignis__json_more(json, scores ? ']' : '}', &first)) {
        ignis__token_entry *entry;
        const char *text;
        if (scores)
            ignis__json_expect(json, '[');
        text = ignis__json_string(json, &size);
        ignis__json_expect(json, scores ? ',' : ':');
        entry = (ignis__token_entry *)ignis__list_add(&load->entries);
        if (!entry) {
            ignis__tokenizer_no_memory(load);
            return;
        }
        entry->text = text;
        entry->size = size;
        entry->id = scores ? load->entries.count - 1 : ignis__json_count(json);
        entry->score = scores ? ignis__json_number(json) : 0;
        if (scores)
            ignis__json_expect(json, ']');
        if (entry->id >= IGNIS__TOKEN_LIMIT)
            ignis__json_fail(json, "the token %s has the id %lld; ids are below %lld", ignis__name_write(text).text,
                             (long long)entry->id, (long long)IGNIS__TOKEN_LIMIT);
    }
}

IGNIS__COLD static void ignis__tokenizer_read_model(ignis__tokenizer_load *load)
{
    ignis__json *json = &load->json;
    ignis__tokenizer *tokenizer = load->tokenizer;
    bool first = true;
    const char *name, *text;
    ignis__json_expect(json, '{');
    while (load->diagnostic == IGNIS_DIAG_NONE && (name = ignis__json_next_field(json, &first)) != NULL) {
        if (strcmp(name, "type") == 0) {
            load->model = ignis__json_read_text(json);
        } else if (strcmp(name, "unk_token") == 0) {
            load->unknown = ignis__json_read_text(json);
        } else if (strcmp(name, "unk_id") == 0) {
            load->unknown_id = ignis__json_skip_word(json, "null") ? -1 : ignis__json_count(json);
        } else if (strcmp(name, "vocab") == 0) {
            ignis__tokenizer_read_tokens(load);
        } else if (strcmp(name, "merges") == 0) {
            load->has_merges = true;
            ignis__tokenizer_read_merges(load);
        } else if (strcmp(name, "ignore_merges") == 0) {
            tokenizer->ignore_merges = ignis__json_read_bool(json);
        } else if (strcmp(name, "byte_fallback") == 0) {
            tokenizer->byte_fallback = ignis__json_read_bool(json);
        } else if (strcmp(name, "fuse_unk") == 0) {
            tokenizer->fuse_unknown = ignis__json_read_bool(json);
        } else if (strcmp(name, "dropout") == 0) {
            load->dropout = !ignis__json_skip_word(json, "null");
            if (load->dropout) {
                const char *digits = (ignis__json_peek(json), json->at);
                ignis__json_skip(json);
                load->dropout = !(json->at - digits > 0 && strspn(digits, "0.") >= (size_t)(json->at - digits));
            }
        } else if (strcmp(name, "continuing_subword_prefix") == 0 || strcmp(name, "end_of_word_suffix") == 0) {
            text = ignis__json_read_text(json);
            load->word_prefix = *name == 'c' ? text : load->word_prefix;
            load->affix = load->affix || (text && *text);
        } else if (strcmp(name, "max_input_chars_per_word") == 0) {
            load->word_limit = ignis__json_count(json);
        } else {
            ignis__json_skip(json);
        }
    }
}

/*  Reads tokenizer.json. Its meaning is checked afterwards. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__tokenizer_read_json(ignis__tokenizer_load *load)
{
    ignis__json *json = &load->json;
    bool first = true;
    const char *name;
    int i;
    ignis__json_expect(json, '{');
    while (load->diagnostic == IGNIS_DIAG_NONE && (name = ignis__json_next_field(json, &first)) != NULL) {
        for (i = 0; i < IGNIS__PART_KINDS && strcmp(name, ignis__tokenizer_part_names[i]) != 0; i++)
            continue;
        if (i < IGNIS__PART_KINDS)
            ignis__tokenizer_read_normalizer(load, i, 0);
        else if (strcmp(name, "added_tokens") == 0)
            ignis__tokenizer_read_added(load);
        else if (strcmp(name, "model") == 0)
            ignis__tokenizer_read_model(load);
        else
            ignis__json_skip(json);
    }
    if (load->diagnostic == IGNIS_DIAG_NONE && !json->fault[0] && (ignis__json_peek(json), json->at != json->end))
        ignis__json_fail(json, "something follows the end of the JSON text");
    if (json->fault[0])
        ignis__tokenizer_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "%s", json->fault);
    return load->diagnostic == IGNIS_DIAG_NONE;
}
