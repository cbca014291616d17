/*  models/chat/render.c - ignis_chat_render and ignis_chat_encode: messages and variables in, text or ids out

    Text of the caller is marked byte by byte, so that ignis_chat_encode reads control tokens only in the
    template's own text.
    May use: all parts of chat, the tokenizer. Locks: none; the tokenizer is held during a call. */

#include "room.h"

/*  Makes a string of the caller's text, all of it marked. Bytes that are not UTF-8 become U+FFFD. */
static ignis__chat_value ignis__chat_mark_content(ignis__chat *chat, const char *text)
{
    size_t left = text ? strlen(text) : 0, size, length;
    ignis__chat_writer out = IGNIS__ZERO;
    ignis__chat_value none = ignis__chat_make(IGNIS__CHAT_NONE, 0);
    none.mark = true;
    while (left > 0 && !chat->fault) {
        for (size = 0; size < left && (length = (size_t)ignis__utf8_length(text + size, left - size)) > 0;)
            size += length;
        ignis__chat_write(chat, &out, text, size, NULL, true);
        text += size, left -= size;
        if (left)
            ignis__chat_write(chat, &out, "\xEF\xBF\xBD", 3, NULL, true), text++, left--;
    }
    return text ? ignis__chat_writer_value(&out) : none;
}

static ignis__chat_value ignis__chat_json_text(ignis__chat *chat, ignis__json *json, bool mark)
{
    size_t size = 0;
    const char *text = ignis__json_string(json, &size);
    char *marks = mark ? (char *)ignis__chat_alloc(chat, size + 1) : NULL;
    if (marks)
        memset(marks, 1, size);
    return ignis__chat_string(text, size, marks);
}

/*  Reads a value of a JSON text. At the outermost level, variables whose name ends in _token are unmarked,
    and the others are marked. */
static ignis__chat_value ignis__chat_read_json(ignis__chat *chat, ignis__json *json, bool mark, int depth)
{
    char kind = ignis__json_peek(json);
    ignis__chat_value value = ignis__chat_make(IGNIS__CHAT_NONE, 0), key = value;
    bool dict = kind == '{', first = true, whole, ok;
    const char *from = json->at;
    size_t size;
    if (depth > IGNIS__JSON_DEPTH)
        ignis__json_fail(json, "values are nested deeper than %d", IGNIS__JSON_DEPTH);
    if (json->fault[0] || chat->fault)
        return value;
    if (kind == '"')
        return ignis__chat_json_text(chat, json, mark);
    if (dict || kind == '[') {
        value = ignis__chat_new(chat, dict ? IGNIS__CHAT_DICT : IGNIS__CHAT_LIST);
        json->at++;
        while (!chat->fault && ignis__json_more(json, dict ? '}' : ']', &first)) {
            bool own = mark;
            if (dict) {
                key = ignis__chat_json_text(chat, json, mark && depth);
                own = mark && (depth || key.number < 6 || memcmp(key.u.text + key.number - 6, "_token", 6) != 0);
                ignis__json_expect(json, ':');
            }
            if (json->fault[0])
                break;
            if (dict)
                ignis__chat_put(chat, value.u.items, key, ignis__chat_read_json(chat, json, own, depth + 1));
            else
                ignis__chat_add(chat, value.u.items, ignis__chat_read_json(chat, json, own, depth + 1));
        }
    } else {
        ignis__json_skip_scalar(json);
        size = (size_t)(json->at - from);
        if (kind == 't' || kind == 'f')
            value = ignis__chat_bool(kind == 't');
        if (!json->fault[0] && !strchr("nft", kind)) {
            whole = !memchr(from, '.', size) && !memchr(from, 'e', size) && !memchr(from, 'E', size);
            value = whole ? ignis__chat_make(IGNIS__CHAT_INT, 0) : ignis__chat_real(0);
            ok = whole ? ignis__chat_read_int(chat, from, size, &value.number)
                       : ignis__chat_read_real(from, size, &value.u.real);
            if (!ok)
                ignis__json_fail(json, "a number is too long");
        }
    }
    value.mark = mark;
    return value;
}

/*  Reads the variables of desc.json. */
static void ignis__chat_read_variables(ignis__chat *chat, const char *text, ignis__chat_items *names)
{
    ignis__json json;
    size_t size = strlen(text);
    ignis__chat_value all;
    memset(&json, 0, sizeof json);
    json.what = "desc.json";
    json.start = json.at = (char *)ignis__chat_alloc(chat, size + 1);
    if (chat->fault)
        return;
    memcpy(json.start, text, size);
    json.end = json.start + size;
    if (ignis__json_peek(&json) != '{')
        (void)ignis__json_expect(&json, '{');
    all = ignis__chat_read_json(chat, &json, true, 0);
    if (!json.fault[0] && (ignis__json_peek(&json), json.at != json.end))
        ignis__json_fail(&json, "something follows the object");
    if (json.fault[0])
        ignis__chat_fault(chat, IGNIS_DIAG_CHAT_VARIABLES, SIZE_MAX, "%s", json.fault);
    else if (!chat->fault)
        ignis__chat_put_all(chat, names, all.u.items);
}

/*  Prepares messages for the template. A role that is a word is not marked, as control tokens may be put
    together around it. Reasoning has three names: each fills reasoning_content, and thinking if that is
    missing, as in transformers. */
static void ignis__chat_prepare_messages(ignis__chat *chat, ignis__chat_value messages)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    int64_t i, k;
    for (i = 0; messages.kind == IGNIS__CHAT_LIST && i < messages.u.items->count && ignis__chat_work(chat, 1); i++) {
        ignis__chat_value message = messages.u.items->item[i], thought = ignis__chat_make(IGNIS__CHAT_NONE, 0);
        ignis__chat_items *items = message.u.items, with = IGNIS__ZERO;
        if (message.kind != IGNIS__CHAT_DICT)
            continue;
        k = ignis__chat_find(chat, items, ignis__chat_words("role"));
        if (k >= 0 && items->item[k + 1].kind == IGNIS__CHAT_STRING) {
            ignis__chat_value *role = &items->item[k + 1];
            int64_t at = 0;
            while (at < role->number && (ignis__formula_is_letter(role->u.text[at]) ||
                                         ignis__formula_is_digit(role->u.text[at]) || role->u.text[at] == '-'))
                at++;
            if (at == role->number)
                role->marks = NULL;
        }
        for (k = 0; k < 3 && thought.kind == IGNIS__CHAT_NONE; k++) {
            int64_t at = ignis__chat_find(chat, items, ignis__chat_words(names[k]));
            thought = at >= 0 ? items->item[at + 1] : thought;
        }
        if (thought.kind == IGNIS__CHAT_NONE)
            continue;
        ignis__chat_put(chat, &with, ignis__chat_words(names[1]), thought);
        ignis__chat_put_all(chat, &with, items);
        ignis__chat_put(chat, &with, ignis__chat_words(names[0]), thought);
        *items = with;
    }
}

/*  Copies the template's text with \n as line ends, without the last one. */
static void ignis__chat_copy_template(ignis__chat *chat, const char *text)
{
    size_t size = strlen(text), i, out = 0;
    char *copy = (char *)ignis__chat_alloc(chat, size + 1);
    if (!copy)
        return;
    for (i = 0; i < size; i++)
        if (text[i] != '\r' || text[i + 1] != '\n')
            copy[out++] = text[i] == '\r' ? '\n' : text[i];
    if (out && copy[out - 1] == '\n')
        out--;
    copy[out] = 0;
    chat->text = copy;
    chat->size = out;
    chat->line_start = true;
    for (i = 0; i < out && !chat->fault; i += (size_t)ignis__utf8_length(copy + i, out - i))
        if (ignis__utf8_length(copy + i, out - i) == 0)
            ignis__chat_fault(chat, IGNIS_DIAG_CHAT_TEMPLATE, i, "the template is no UTF-8");
}

IGNIS__PRIVATE void ignis__chat_close(ignis__chat *chat)
{
    while (chat->chunk) {
        ignis__chat_chunk *next = chat->chunk->next;
        ignis__free(chat->chunk);
        chat->chunk = next;
    }
}

/*  Reports the fault of a chat, with its place in the template. */
IGNIS__COLD static void ignis__chat_report(const ignis__chat *chat, const char *call)
{
    const char *lack = chat->fault == IGNIS_DIAG_UNSUPPORTED ? " is not supported" : "";
    int line, column;
    ignis__text_place(chat->text, chat->text + (chat->fault_at < chat->size ? chat->fault_at : chat->size), &line,
                      &column);
    if (chat->fault_at == SIZE_MAX || chat->fault == IGNIS_DIAG_HOST_MEMORY)
        ignis__fail(chat->fault, call, "%s%s", chat->message, lack);
    else
        ignis__fail(chat->fault, call, "%s%s (line %d, column %d of the template)", chat->message, lack, line, column);
}

/*  Adds the texts of the tokenizer's tokens that templates know. */
static void ignis__chat_add_tokens(ignis__chat *chat, ignis__tokenizer *tokenizer, ignis__chat_items *names)
{
    static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    int32_t ids[4];
    int i;
    ids[0] = tokenizer->info.bos, ids[1] = tokenizer->info.eos, ids[2] = tokenizer->info.unknown,
    ids[3] = tokenizer->info.padding;
    for (i = 0; i < 4 && !chat->fault; i++) {
        ignis__bytes bytes = IGNIS__ZERO;
        ignis__chat_writer text;
        memset(&text, 0, sizeof text);
        if (ids[i] < 0)
            continue;
        if (!ignis__token_add(tokenizer, ids[i], false, &bytes))
            ignis__chat_fault(chat, IGNIS_DIAG_HOST_MEMORY, 0, "out of host memory: %lld bytes were requested",
                              (long long)bytes.size);
        ignis__chat_write(chat, &text, bytes.data, bytes.size, NULL, false);
        ignis__chat_put(chat, names, ignis__chat_words(token_names[i]), ignis__chat_writer_value(&text));
        ignis__free(bytes.data);
    }
}

/*  Renders. The output is in the arena, which the caller frees with ignis__chat_close, also after a failure.
    `tokenizer` may be NULL. */
IGNIS__PRIVATE bool ignis__chat_render(ignis__chat *chat, const char *call, const char *text,
                                       const ignis_message *messages, int count, const ignis_chat_desc *desc,
                                       ignis__tokenizer *tokenizer, ignis__chat_writer *out)
{
    ignis__chat_value list, message;
    ignis__chat_node *root;
    int i;
    memset(chat, 0, sizeof *chat);
    memset(out, 0, sizeof *out);
    chat->now = desc->now;
    chat->out = out;
    ignis__chat_copy_template(chat, text);
    root = ignis__chat_read_body(chat, "");
    ignis__chat_enter(chat, NULL);
    list = ignis__chat_new(chat, IGNIS__CHAT_LIST);
    list.mark = true;
    for (i = 0; i < count && !chat->fault; i++) {
        message = ignis__chat_new(chat, IGNIS__CHAT_DICT);
        if (chat->fault)
            break;
        message.mark = true;
        ignis__chat_put(chat, message.u.items, ignis__chat_words("role"),
                        ignis__chat_mark_content(chat, messages[i].role));
        ignis__chat_put(chat, message.u.items, ignis__chat_words("content"),
                        ignis__chat_mark_content(chat, messages[i].content));
        ignis__chat_add(chat, list.u.items, message);
    }
    if (!chat->fault) {
        ignis__chat_items *names = &chat->scope->names;
        chat->here = SIZE_MAX; /* faults from here on have no place in the template */
        ignis__chat_put(chat, names, ignis__chat_words("messages"), list);
        ignis__chat_put(chat, names, ignis__chat_words("tools"), ignis__chat_make(IGNIS__CHAT_NONE, 0));
        ignis__chat_put(chat, names, ignis__chat_words("documents"), ignis__chat_make(IGNIS__CHAT_NONE, 0));
        ignis__chat_put(chat, names, ignis__chat_words("add_generation_prompt"),
                        ignis__chat_bool(desc->add_generation_prompt));
        if (tokenizer)
            ignis__chat_add_tokens(chat, tokenizer, names);
        if (desc->json)
            ignis__chat_read_variables(chat, desc->json, names);
        if (!chat->fault)
            ignis__chat_prepare_messages(chat,
                                         names->item[ignis__chat_find(chat, names, ignis__chat_words("messages")) + 1]);
    }
    if (!chat->fault)
        ignis__chat_run(chat, root);
    if (chat->fault)
        ignis__chat_report(chat, call);
    return !chat->fault;
}

/*  A rendered chat, the tokenizer, which is held, or NULL, and the text. */
typedef struct ignis__chat_rendering {
    ignis__chat chat;
    ignis__tokenizer *tokenizer;
    ignis__chat_writer text;
} ignis__chat_rendering;

/*  Checks the arguments of both calls and renders to run->text. On failure nothing is held. */
static bool ignis__chat_start_call(const char *call, ignis_tokenizer tokenizer, const ignis_message *messages,
                                   int count, const ignis_chat_desc *desc, bool no_out, int64_t capacity,
                                   ignis__chat_rendering *run)
{
    ignis_chat_desc defaults;
    const char *text;
    int i;
    bool ok = false;
    run->tokenizer = NULL;
    memset(&defaults, 0, sizeof defaults);
    desc = desc ? desc : &defaults;
    text = desc->chat_template;
    if (!ignis__enter(call) ||
        ((tokenizer.id || !text) && (run->tokenizer = ignis__tokenizer_hold(call, tokenizer)) == NULL))
        return false;
    text = text ? text : run->tokenizer->chat_template;
    for (i = 0; messages && i < count && messages[i].role; i++)
        continue;
    if (!text)
        ignis__fail(IGNIS_DIAG_CHAT_TEMPLATE, call,
                    "the tokenizer has no chat template; desc.chat_template can give one");
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
        ok = ignis__chat_render(&run->chat, call, text, messages, count, desc, run->tokenizer, &run->text) ||
             (ignis__chat_close(&run->chat), false);
    if (!ok && run->tokenizer)
        ignis__tokenizer_drop(run->tokenizer);
    return ok;
}

static void ignis__chat_end_call(ignis__chat_rendering *run)
{
    ignis__chat_close(&run->chat);
    if (run->tokenizer)
        ignis__tokenizer_drop(run->tokenizer);
}

IGNIS_API int64_t ignis_chat_render(ignis_tokenizer tokenizer, const ignis_message *messages, int count,
                                    const ignis_chat_desc *desc, char *out, int64_t capacity)
{
    static const char call[] = "ignis_chat_render";
    ignis__chat_rendering run;
    if (!ignis__chat_start_call(call, tokenizer, messages, count, desc, !out, capacity, &run))
        return -1;
    if (run.text.size && capacity > 0)
        memcpy(out, run.text.text, (int64_t)run.text.size < capacity ? run.text.size : (size_t)capacity);
    ignis__chat_end_call(&run);
    return (int64_t)run.text.size;
}

IGNIS_API int ignis_chat_encode(ignis_tokenizer tokenizer, const ignis_message *messages, int count,
                                const ignis_chat_desc *desc, int32_t *ids, int capacity)
{
    static const char call[] = "ignis_chat_encode";
    ignis__chat_rendering run;
    ignis__encoder encoder = IGNIS__ZERO;
    ignis__list spans = IGNIS__ZERO; /* of the caller's text */
    size_t at, begin;
    int result = -1;
    bool ok = true;
    if (!ignis__chat_start_call(call, tokenizer, messages, count, desc, !ids, capacity, &run))
        return -1;
    spans.size = sizeof(ignis__plain_span);
    for (at = 0; at < run.text.size && ok;) {
        ignis__plain_span *span;
        for (begin = at; at < run.text.size && run.text.marks[at] == run.text.marks[begin]; at++)
            continue;
        if (!run.text.marks[begin])
            continue;
        span = (ignis__plain_span *)ignis__list_add(&spans);
        ok = span != NULL;
        if (ok) {
            span->begin = begin;
            span->end = at;
        }
    }
    if (!run.tokenizer)
        ignis__fail_null(call, "tokenizer");
    else if (!ok)
        ignis__fail_host_memory(call, spans.size * (size_t)spans.count * 2);
    else {
        encoder.tokenizer = run.tokenizer;
        encoder.spans = (const ignis__plain_span *)(void *)spans.items;
        encoder.span_count = spans.count;
        encoder.ids = ids;
        encoder.capacity = capacity;
        result = ignis__tokenizer_encode(call, &encoder, run.text.text ? run.text.text : "", run.text.size, true);
    }
    ignis__free(spans.items);
    ignis__chat_end_call(&run);
    return result;
}
