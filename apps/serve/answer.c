// SPDX-License-Identifier: MIT
/*  answer.c - answers: texts and chats, whole or as a stream of events */

/*  Takes the news that the model's thread has made since the last call. */
static growth take_news(job *j)
{
    growth news = j->news;
    memset(&j->news, 0, sizeof j->news);
    return news;
}

/*  Sends an event of a stream as a chunk. name: of the event, or NULL. */
static void put_event(connection *c, const char *name, const char *data)
{
    size_t size = strlen(data) + 8 + (name ? strlen(name) + 8 : 0);
    if (!c->begun)
        put_head(c, 200, "text/event-stream", -1);
    c->begun = true;
    if (!c->old)
        text_print(&c->out, "%zx\r\n", size);
    if (name)
        text_print(&c->out, "event: %s\n", name);
    text_print(&c->out, c->old ? "data: %s\n\n" : "data: %s\n\n\r\n", data);
}

/*  Prints all text of a kind, as inside of a JSON string. Returns whether there is any. */
static bool print_pieces(text *t, const growth *g, piece_kind kind)
{
    bool some = false;
    int i;
    for (i = 0; i < g->count; i++)
        if (g->pieces[i].kind == kind) {
            text_escape(t, g->pieces[i].text.data, g->pieces[i].text.size);
            some = true;
        }
    return some;
}

/*  Prints the calls of a message; numbered: as in a stream, in which arguments may go on that have begun before. */
static void print_new_calls(text *t, const job *j, const growth *g, bool numbered)
{
    int i, number = j->calls_said - 1, count = 0;
    for (i = 0; i < g->count; i++) {
        const answer_piece *p = &g->pieces[i], *next = i + 1 < g->count ? p + 1 : NULL;
        if (p->kind != PIECE_CALL && p->kind != PIECE_ARGUMENTS)
            continue;
        number += p->kind == PIECE_CALL;
        text_print(t, count++ ? ",{" : "{");
        if (numbered)
            text_print(t, "\"index\":%d,", number);
        if (p->kind == PIECE_CALL) {
            print_call_id(t, "\"id\":\"%s\",\"type\":\"function\",", j, number);
            text_print(t, "\"function\":{\"name\":\"%s\",\"arguments\":\"", p->text.data);
        } else {
            text_print(t, "\"function\":{\"arguments\":\"");
        }
        if (p->kind == PIECE_ARGUMENTS || (next && next->kind == PIECE_ARGUMENTS)) {
            const answer_piece *arguments = p->kind == PIECE_ARGUMENTS ? p : next;
            text_escape(t, arguments->text.data, arguments->text.size);
            i += p->kind == PIECE_CALL;
        }
        text_print(t, "\"}}");
    }
}

static int count_calls(const growth *g)
{
    int i, count = 0;
    for (i = 0; i < g->count; i++)
        count += g->pieces[i].kind == PIECE_CALL;
    return count;
}

static bool has_kind(const growth *g, piece_kind kind)
{
    int i = 0;
    while (i < g->count && g->pieces[i].kind != kind)
        i++;
    return i < g->count;
}

/*  Prints the members of a message, or of its growth. */
static void print_message(text *t, const job *j, const growth *g, bool whole)
{
    if (whole || (!j->opened && !j->ended))
        text_print(t, "\"role\":\"assistant\",");
    if (has_kind(g, PIECE_REASONING)) {
        text_print(t, "\"reasoning_content\":\"");
        print_pieces(t, g, PIECE_REASONING);
        text_print(t, "\",");
    }
    if (has_kind(g, PIECE_CALL) || has_kind(g, PIECE_ARGUMENTS)) {
        text_print(t, "\"tool_calls\":[");
        print_new_calls(t, j, g, !whole);
        text_print(t, "],");
    }
    if (whole && has_kind(g, PIECE_CALL) && !has_kind(g, PIECE_TEXT)) {
        text_print(t, "\"content\":null");
    } else if (whole || has_kind(g, PIECE_TEXT) || !j->opened) {
        text_print(t, "\"content\":\"");
        print_pieces(t, g, PIECE_TEXT);
        text_print(t, "\"");
    } else if (t->data[t->size - 1] == ',') {
        text_print(t, "\"content\":null");
    }
}

static void print_log_probs(text *t, const job *j, const growth *g)
{
    if (!g->tokens.size)
        text_print(t, ",\"logprobs\":null");
    else if (j->ask->kind == CHAT)
        text_print(t, ",\"logprobs\":{\"content\":[%s],\"refusal\":null}", g->tokens.data);
    else
        text_print(t, ",\"logprobs\":{\"tokens\":[%s],\"token_logprobs\":[%s],\"text_offset\":[%s],\"top_logprobs\":",
                   g->tokens.data, g->log_probs.data, g->offsets.data);
    if (g->tokens.size && j->ask->kind != CHAT)
        text_print(t, g->tops.size ? "[%s]}" : "null}", g->tops.data);
}

/*  Prints a choice. whole: all of it, else its growth; ends: it has ended. */
static void print_choice(text *t, const job *j, const growth *g, bool whole, bool ends)
{
    text_print(t, "{\"index\":%d,", j->index);
    if (j->ask->kind != CHAT) {
        text_print(t, "\"text\":\"");
        print_pieces(t, g, PIECE_TEXT);
        text_print(t, "\"");
    } else {
        text_print(t, whole ? "\"message\":{" : "\"delta\":{");
        if (whole || !ends)
            print_message(t, j, g, whole);
        text_print(t, "}");
    }
    print_log_probs(t, j, g);
    if (ends)
        text_print(t, ",\"finish_reason\":\"%s\"}", j->finish);
    else
        text_print(t, ",\"finish_reason\":null}");
}

static void print_usage(text *t, const request *ask, const char *input, const char *output)
{
    int i, prompt = 0, drawn = 0, found = 0;
    for (i = 0; i < ask->prompt_count; i++)
        prompt += ask->counts[i];
    for (i = 0; i < ask->job_count; i++)
        drawn += ask->jobs[i].drawn, found += ask->jobs[i].found;
    text_print(t, "\"usage\":{\"%s\":%d,\"%s\":%d,\"total_tokens\":%d", input, prompt, output, drawn, prompt + drawn);
    if (found)
        text_print(t, ",\"%s_details\":{\"cached_tokens\":%d}", input, found);
    text_print(t, "}");
}

/*  Prints the head of an answer, up to its choices. */
static text *begin_answer(connection *c, bool whole)
{
    bool chat = c->ask->kind == CHAT;
    text *t = &c->part;
    text_cut(t, t->size);
    text_print(t, "{\"id\":\"%s\",\"object\":\"%s%s\",\"created\":%lld,\"model\":\"", c->id,
               chat ? "chat.completion" : "text_completion", chat && !whole ? ".chunk" : "", (long long)c->created);
    text_print(t, "%s\",\"system_fingerprint\":\"ignis-%s\",\"choices\":[", model_name(c->ask), ignis_version_string());
    return t;
}

/*  Sends events: the growth of a choice, and its end. */
static void put_choice(connection *c, job *j, growth *g, bool ends)
{
    text *t = begin_answer(c, false);
    print_choice(t, j, g, false, ends);
    text_print(t, c->ask->usage ? "],\"usage\":null}" : "]}");
    j->calls_said += count_calls(g);
    j->opened = true;
    put_event(c, NULL, t->data);
}

static void put_news(connection *c, job *j, growth *g, bool ends)
{
    growth none;
    memset(&none, 0, sizeof none);
    if (g->count || g->tokens.size || (ends && !j->opened))
        put_choice(c, j, g, false);
    if (ends)
        put_choice(c, j, &none, true);
}

static void put_end(connection *c)
{
    text *t;
    if (c->ask->usage) {
        t = begin_answer(c, false);
        text_print(t, "],");
        print_usage(t, c->ask, "prompt_tokens", "completion_tokens");
        text_print(t, "}");
        put_event(c, NULL, t->data);
    }
    put_event(c, NULL, "[DONE]");
}

static void print_whole(connection *c)
{
    request *ask = c->ask;
    text *t = begin_answer(c, true);
    int i;
    for (i = 0; i < ask->job_count; i++) {
        text_print(t, i ? "," : "");
        print_choice(t, &ask->jobs[i], &ask->jobs[i].news, true, true);
    }
    text_print(t, "],");
    print_usage(t, ask, "prompt_tokens", "completion_tokens");
    text_print(t, "}");
}

/*  Prints an answer in llama.cpp's form. */
static void print_native(connection *c, const job *j, const growth *g, bool ends)
{
    text *t = &c->part;
    text_cut(t, t->size);
    text_print(t, "{\"index\":%d,\"content\":\"", j->index);
    print_pieces(t, g, PIECE_TEXT);
    text_print(t, "\",\"stop\":%s", ends ? "true" : "false");
    if (g->tokens.size)
        text_print(t, ",\"completion_probabilities\":[%s]", g->tokens.data);
    if (ends)
        text_print(t,
                   ",\"model\":\"%s\",\"stop_type\":\"%s\",\"truncated\":false,\"tokens_predicted\":%d,"
                   "\"tokens_evaluated\":%d",
                   model_name(c->ask), strcmp(j->finish, "length") == 0 ? "limit" : "eos", j->drawn, j->count);
    text_print(t, "}");
}

static void put_native(connection *c, job *j, growth *g, bool ends)
{
    if (g->count || g->tokens.size || ends) {
        print_native(c, j, g, ends);
        put_event(c, NULL, c->part.data);
    }
}

static void print_native_whole(connection *c)
{
    request *ask = c->ask;
    text all = {0};
    int i;
    for (i = 0; i < ask->job_count; i++) {
        print_native(c, &ask->jobs[i], &ask->jobs[i].news, true);
        text_print(&all, "%s%s", i ? "," : ask->job_count > 1 ? "[" : "", c->part.data);
    }
    text_print(&all, ask->job_count > 1 ? "]" : "");
    text_cut(&c->part, c->part.size);
    text_add(&c->part, all.data, all.size);
    text_free(&all);
}

static void print_base64(text *t, const unsigned char *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t i;
    for (i = 0; i < size; i += 3) {
        unsigned next = i + 1 < size ? bytes[i + 1] : 0, last = i + 2 < size ? bytes[i + 2] : 0;
        unsigned three = (unsigned)bytes[i] << 16 | next << 8 | last;
        char four[4];
        four[0] = digits[three >> 18];
        four[1] = digits[three >> 12 & 63];
        four[2] = i + 1 < size ? digits[three >> 6 & 63] : '=';
        four[3] = i + 2 < size ? digits[three & 63] : '=';
        text_add(t, four, 4);
    }
}

static void print_vectors(connection *c)
{
    const request *ask = c->ask;
    text *t = &c->part;
    int i, k;
    text_cut(t, t->size);
    text_print(t, "{\"object\":\"list\",\"data\":[");
    for (i = 0; i < ask->text_count; i++) {
        const float *vector = ask->vectors + (size_t)i * (size_t)engine.hidden;
        text_print(t, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i ? "," : "", i);
        text_print(t, ask->base64 ? "\"" : "[");
        if (ask->base64) /* floats of little-endian machines, which all that run CUDA are */
            print_base64(t, (const unsigned char *)vector, sizeof *vector * (size_t)engine.hidden);
        for (k = 0; k < engine.hidden && !ask->base64; k++)
            text_print(t, k ? ",%.9g" : "%.9g", (double)vector[k]);
        text_print(t, ask->base64 ? "\"}" : "]}");
    }
    text_print(t, "],\"model\":\"%s\",\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d}}", model_name(ask),
               ask->counts[0], ask->counts[0]);
}

static void put_nothing(connection *c) { (void)c; }
