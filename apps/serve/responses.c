// SPDX-License-Identifier: MIT
/*  responses.c - OpenAI's /v1/responses: its items become a chat, and an answer becomes items. Nothing is stored. */

/* --- requests ---------------------------------------------------------------------------------------------------- */

static void print_role(text *t, const char *role, const json *content)
{
    text_print(t, "%s{\"role\":\"%s\",\"content\":", t->data[t->size - 1] == '[' ? "" : ",", role);
    json_print(t, content);
    text_print(t, "}");
}

/*  Prints a call of an earlier answer. Calls that follow each other are of one message. */
static bool print_call_item(text *t, const json *item, bool follows)
{
    const json *id = member(item, "call_id"), *name = member(item, "name"), *arguments = member(item, "arguments");
    if (!id || id->kind != JSON_STRING || !name || name->kind != JSON_STRING || !arguments ||
        arguments->kind != JSON_STRING)
        return false;
    if (follows)
        t->data[t->size -= 2] = 0; /* the end of the message before, "]}" */
    else
        text_print(t, "%s{\"role\":\"assistant\",\"tool_calls\":[", t->data[t->size - 1] == '[' ? "" : ",");
    text_print(t, "%s{\"type\":\"function\",\"id\":", follows ? "," : "");
    json_print(t, id);
    text_print(t, ",\"function\":{\"name\":");
    json_print(t, name);
    text_print(t, ",\"arguments\":");
    json_print(t, arguments);
    text_print(t, "}}]}");
    return true;
}

/*  Writes the items of the input as messages. */
static bool print_items(connection *c, text *t, const json *input)
{
    const json *item = input->first, *type, *content, *role;
    bool follows = false;
    int i;
    for (i = 0; item; item = item->next, i++) {
        char path[40];
        bool ok = true;
        snprintf(path, sizeof path, "input[%d]", i);
        type = member(item, "type");
        role = member(item, "role");
        content = member(item, is_text(type, "function_call_output") ? "output" : "content");
        if (content && !is_text(type, "reasoning") && find_wrong_part(content)) {
            snprintf(path, sizeof path, "input[%d].%s", i, content->key);
            return refuse_value(c, path, find_wrong_part(content), CONTENT_KINDS);
        }
        if (is_text(type, "function_call")) {
            ok = print_call_item(t, item, follows);
        } else if (is_text(type, "function_call_output")) {
            const json *id = member(item, "call_id");
            ok = content && id && id->kind == JSON_STRING;
            if (ok) {
                text_print(t, "%s{\"role\":\"tool\",\"tool_call_id\":", t->data[t->size - 1] == '[' ? "" : ",");
                json_print(t, id);
                text_print(t, ",\"content\":");
                json_print(t, content);
                text_print(t, "}");
            }
        } else if (!is_text(type, "reasoning")) {
            ok = content && role && role->kind == JSON_STRING && (!type || is_text(type, "message")) &&
                 has_item("system user assistant developer", role->string, strncmp);
            if (ok)
                print_role(t, role->string, content);
        }
        if (!ok)
            return refuse_value(c, path, item, "a message, a function_call or a function_call_output");
        follows = is_text(type, "function_call");
    }
    return true;
}

/*  Prints tools as chats have them: those of responses have their function's members beside the type. */
static void print_tools(text *t, const json *tools)
{
    static const char *const keys[] = {"name", "description", "parameters"};
    const json *one, *value;
    size_t i;
    for (one = tools->first; one; one = one->next) {
        const char *comma = "";
        text_print(t, one == tools->first ? "{\"type\":" : ",{\"type\":");
        value = member(one, "type");
        if (value)
            json_print(t, value);
        else
            text_print(t, "null");
        text_print(t, ",\"function\":{");
        for (i = 0; i < COUNT(keys); i++) {
            value = member(one, keys[i]);
            if (!value)
                continue;
            text_print(t, "%s\"%s\":", comma, keys[i]);
            json_print(t, value);
            comma = ",";
        }
        text_print(t, "}}");
    }
}

/*  Makes a chat of the request, which is read as one. */
static bool read_responses(connection *c, const json *body)
{
    request *ask = c->ask;
    text *t = &ask->own_text;
    const json *input = member(body, "input"), *told = member(body, "instructions"), *tools = member(body, "tools");
    const json *include = member(body, "include"), *one, *reasoning = member(body, "reasoning"),
               *format = member(body, "text"), *effort = reasoning ? member(reasoning, "effort") : NULL;
    json_reader r;
    if (!engine.talks)
        return refuse(c, 400, NULL, "this model has no chat template; expected /v1/completions");
    if (told && told->kind != JSON_STRING)
        return refuse_value(c, "instructions", told, "a string");
    if (include && include->kind != JSON_ARRAY)
        return refuse_value(c, "include", include, "an array of strings");
    for (one = include ? include->first : NULL; one; one = one->next)
        if (is_text(one, "message.output_text.logprobs")) /* the others would add nothing to these answers */
            return refuse(c, 400, "include", "include: message.output_text.logprobs is not supported");
    if (!input || (input->kind != JSON_STRING && input->kind != JSON_ARRAY))
        return refuse_value(c, "input", input, "a string, or an array of items");
    if (tools && tools->kind != JSON_ARRAY)
        return refuse_value(c, "tools", tools, "an array of tools");
    if (format && format->kind != JSON_OBJECT)
        return refuse_value(c, "text", format, "an object");
    if (reasoning && reasoning->kind != JSON_OBJECT)
        return refuse_value(c, "reasoning", reasoning, "an object");
    text_print(t, "{\"messages\":[");
    if (told)
        print_role(t, "system", told);
    if (input->kind == JSON_STRING)
        print_role(t, "user", input);
    else if (!print_items(c, t, input))
        return false;
    if (t->data[t->size - 1] == '[')
        return refuse_value(c, "input", input, "an array of at least one message");
    text_print(t, "],\"tools\":[");
    if (tools)
        print_tools(t, tools);
    text_print(t, "]}");
    if (!json_read(&r, t)) { /* it nests a little deeper than the body did */
        free(r.values);
        return refuse(c, 400, NULL, "the body is nested too deeply, or too long");
    }
    ask->own_values = r.values;
    return print_variables(c, NULL, effort) &&
           make_prompt(c, member(r.values, "messages"), member(r.values, "tools"), member(body, "tool_choice"));
}

/* --- answers ----------------------------------------------------------------------------------------------------- */

/*  Prints the item that a piece begins: reasoning, a message, or a call, whose arguments are the next piece. */
static void print_item(text *t, const job *j, const growth *g, int at, bool whole)
{
    const answer_piece *p = &g->pieces[at];
    const char *status = whole ? "completed" : "in_progress";
    const char *type = p->kind == PIECE_TEXT ? "output_text" : "reasoning_text";
    int i, number = 0;
    if (p->kind == PIECE_CALL) {
        for (i = 0; i < at; i++)
            number += g->pieces[i].kind == PIECE_CALL;
        print_call_id(t, "{\"id\":\"fc_%s\",\"type\":\"function_call\",", j, number);
        print_call_id(t, "\"call_id\":\"%s\",", j, number);
        text_print(t, "\"name\":\"%s\",\"status\":\"%s\",\"arguments\":\"", p->text.data, status);
        if (whole && at + 1 < g->count && p[1].kind == PIECE_ARGUMENTS)
            text_escape(t, p[1].text.data, p[1].text.size);
        text_print(t, "\"}");
        return;
    }
    if (p->kind == PIECE_TEXT)
        text_print(t, "{\"id\":\"msg_%llx_%d\",\"type\":\"message\",\"role\":\"assistant\",\"status\":\"%s\"",
                   (unsigned long long)j->ask->id, at, status);
    else
        text_print(t, "{\"id\":\"rs_%llx_%d\",\"type\":\"reasoning\",\"summary\":[]", (unsigned long long)j->ask->id,
                   at);
    text_print(t, ",\"content\":[");
    if (whole) {
        text_print(t, "{\"type\":\"%s\",\"annotations\":[],\"text\":\"", type);
        text_escape(t, p->text.data, p->text.size);
        text_print(t, "\"}");
    }
    text_print(t, "]}");
}

/*  Parameters that a response repeats, and what they are if they are missing. */
static const struct {
    const char *name, *usual;
} repeated[] = {{"metadata", "{}"}, {"instructions", "null"}, {"tools", "[]"}, {"tool_choice", "\"auto\""}};

/*  Prints the response. g: its pieces, if it is complete. */
static void print_response(connection *c, text *t, const growth *g)
{
    const request *ask = c->ask;
    const job *j = &ask->jobs[0];
    bool cut = g && j->finish && strcmp(j->finish, "length") == 0;
    size_t k;
    int i, items = 0;
    text_print(t, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"model\":\"%s\",\"status\":\"%s\",",
               c->id, (long long)c->created, model_name(ask),
               !g    ? "in_progress"
               : cut ? "incomplete"
                     : "completed");
    text_print(t, "\"error\":null,\"incomplete_details\":%s", cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    for (k = 0; k < COUNT(repeated); k++) {
        const json *value = member(ask->values, repeated[k].name);
        text_print(t, ",\"%s\":", repeated[k].name);
        if (value)
            json_print(t, value);
        else
            text_print(t, "%s", repeated[k].usual);
    }
    text_print(t, ",\"parallel_tool_calls\":%s,\"temperature\":%.6g,\"top_p\":%.6g,\"output\":[",
               ask->parallel ? "true" : "false", ask->sampling.temperature, ask->sampling.top_p);
    for (i = 0; g && i < g->count; i++)
        if (g->pieces[i].kind != PIECE_ARGUMENTS) {
            text_print(t, items++ ? "," : "");
            print_item(t, j, g, i, true);
        }
    text_print(t, "],");
    if (g)
        print_usage(t, ask, "input_tokens", "output_tokens");
    else
        text_print(t, "\"usage\":null");
    text_print(t, "}");
}

static void print_responses_whole(connection *c)
{
    text_cut(&c->part, c->part.size);
    print_response(c, &c->part, &c->ask->jobs[0].news);
}

/*  Begins an event about the item that is open. */
static text *begin_event(connection *c, job *j, const char *type)
{
    text *t = &c->part;
    text_cut(t, t->size);
    text_print(t, "{\"type\":\"%s\",\"sequence_number\":%d", type, j->event_count++);
    if (j->open_item >= 0)
        text_print(t, ",\"output_index\":%d", j->item_count - 1);
    if (j->open_item >= 0 && j->all.pieces[j->open_item].kind == PIECE_TEXT)
        text_print(t, ",\"item_id\":\"msg_%llx_%d\",\"content_index\":0,\"logprobs\":[]",
                   (unsigned long long)j->ask->id, j->open_item);
    else if (j->open_item >= 0 && j->all.pieces[j->open_item].kind == PIECE_REASONING)
        text_print(t, ",\"item_id\":\"rs_%llx_%d\",\"content_index\":0", (unsigned long long)j->ask->id, j->open_item);
    else if (j->open_item >= 0)
        print_call_id(t, ",\"item_id\":\"fc_%s\"", j, count_calls(&j->all) - 1);
    return t;
}

static void end_event(connection *c, const char *type)
{
    text_print(&c->part, "}");
    put_event(c, type, c->part.data);
}

static void put_response_event(connection *c, job *j, const char *type, const growth *g)
{
    text *t = begin_event(c, j, type);
    text_print(t, ",\"response\":");
    print_response(c, t, g);
    end_event(c, type);
}

static void put_item_event(connection *c, job *j, const char *type, bool whole)
{
    text *t = begin_event(c, j, type);
    text_print(t, ",\"item\":");
    print_item(t, j, &j->all, j->open_item, whole);
    end_event(c, type);
}

static void put_text_event(connection *c, job *j, const char *type, const char *name, const text *what)
{
    text *t = begin_event(c, j, type);
    text_print(t, ",\"%s\":\"", name);
    if (what)
        text_escape(t, what->data, what->size);
    text_print(t, "\"");
    end_event(c, type);
}

static void put_part_event(connection *c, job *j, const char *type, const text *what)
{
    text *t = begin_event(c, j, type);
    text_print(t, ",\"part\":{\"type\":\"output_text\",\"annotations\":[],\"text\":\"");
    if (what)
        text_escape(t, what->data, what->size);
    text_print(t, "\"}");
    end_event(c, type);
}

/*  Ends the item that is open. */
static void close_item(connection *c, job *j)
{
    const answer_piece *p = j->open_item < 0 ? NULL : &j->all.pieces[j->open_item];
    if (!p)
        return;
    if (p->kind == PIECE_TEXT) {
        put_text_event(c, j, "response.output_text.done", "text", &p->text);
        put_part_event(c, j, "response.content_part.done", &p->text);
    } else if (p->kind == PIECE_REASONING) {
        put_text_event(c, j, "response.reasoning_text.done", "text", &p->text);
    } else {
        put_text_event(c, j, "response.function_call_arguments.done", "arguments",
                       j->open_item + 1 < j->all.count ? &p[1].text : NULL);
    }
    put_item_event(c, j, "response.output_item.done", true);
    j->open_item = -1;
}

static void put_responses(connection *c, job *j, growth *g, bool ends)
{
    int i;
    if (!j->opened) {
        j->open_item = -1;
        put_response_event(c, j, "response.created", NULL);
        put_response_event(c, j, "response.in_progress", NULL);
    }
    j->opened = true;
    for (i = 0; i < g->count; i++) {
        const answer_piece *p = &g->pieces[i];
        bool goes_on = p->kind == PIECE_ARGUMENTS ||
                       (j->open_item >= 0 && p->kind != PIECE_CALL && j->all.pieces[j->open_item].kind == p->kind);
        if (!goes_on)
            close_item(c, j);
        growth_add(&j->all, p->kind, p->text.data, p->text.size);
        if (!goes_on) {
            j->open_item = j->all.count - 1;
            j->item_count++;
            put_item_event(c, j, "response.output_item.added", false);
            if (p->kind == PIECE_TEXT)
                put_part_event(c, j, "response.content_part.added", NULL);
        }
        if (p->kind != PIECE_CALL)
            put_text_event(c, j,
                           p->kind == PIECE_TEXT        ? "response.output_text.delta"
                           : p->kind == PIECE_REASONING ? "response.reasoning_text.delta"
                                                        : "response.function_call_arguments.delta",
                           "delta", &p->text);
    }
    if (ends)
        close_item(c, j);
}

static void put_responses_end(connection *c)
{
    job *j = &c->ask->jobs[0];
    bool cut = strcmp(j->finish, "length") == 0;
    put_response_event(c, j, cut ? "response.incomplete" : "response.completed", &j->all);
}
