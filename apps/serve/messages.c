// SPDX-License-Identifier: MIT
/*  messages.c - chats as OpenAI's clients write them: messages, tools and tool_choice become a prompt */

#define CONTENT_KINDS "a string, or an array of objects of the type text with a string as text"

/*  Finds the first part of a content that is not text; NULL if all are text. A content that is neither a string nor an
    array of parts is the wrong part itself. */
static const json *find_wrong_part(const json *content)
{
    const json *part = content->first;
    if (content->kind == JSON_STRING)
        return NULL;
    if (content->kind != JSON_ARRAY || !part)
        return content;
    for (; part; part = part->next) {
        const json *type = member(part, "type"), *piece = member(part, "text");
        if (!type || type->kind != JSON_STRING || !has_item("text input_text output_text", type->string, strncmp) ||
            !piece || piece->kind != JSON_STRING)
            return part;
    }
    return NULL;
}

/*  Returns the text of a content. Joins texts of parts where the first one is: a later one is behind it. */
static const char *join_parts(const json *content)
{
    const json *part = content->first, *first = part ? member(part, "text") : NULL, *piece;
    size_t size = 0;
    if (content->kind == JSON_STRING)
        return content->string;
    for (; part; part = part->next) {
        piece = member(part, "text");
        memmove(first->string + size, piece->string, piece->size);
        size += piece->size;
    }
    first->string[size] = 0;
    return first->string;
}

static void print_member(text *t, const char *name, const char *string)
{
    text_print(t, ",\"%s\":\"", name);
    text_escape(t, string, strlen(string));
    text_print(t, "\"");
}

/*  Prints the arguments of a call, which clients send as a text, as the template wants them. */
static void print_arguments(text *t, const json *arguments)
{
    json_reader r;
    text copy = {0};
    bool ok;
    if (!arguments || engine.wants_text || arguments->kind != JSON_STRING) {
        if (arguments)
            json_print(t, arguments);
        else
            text_print(t, "{}");
        return;
    }
    text_add(&copy, arguments->string, arguments->size);
    ok = json_read(&r, &copy) && r.values->kind == JSON_OBJECT;
    if (ok)
        json_print(t, r.values);
    else
        json_print(t, arguments);
    free(r.values);
    text_free(&copy);
}

/*  Prints the calls of a message, as templates know them; or as text, for a template that knows no tools. */
static bool print_calls(connection *c, text *t, const json *calls, int at)
{
    const json *one = calls->first;
    char path[80];
    int number = 0;
    snprintf(path, sizeof path, "messages[%d].tool_calls", at);
    if (calls->kind != JSON_ARRAY)
        return refuse_value(c, path, calls, "an array of calls of functions");
    if (engine.has_calls)
        text_print(t, ",\"tool_calls\":[");
    for (; one; one = one->next, number++) {
        const json *function = member(one, "function"), *name = function ? member(function, "name") : NULL,
                   *id = member(one, "id");
        snprintf(path, sizeof path, "messages[%d].tool_calls[%d]", at, number);
        if (!name || name->kind != JSON_STRING || (id && id->kind != JSON_STRING))
            return refuse_value(c, path, one, "an object with a function that has a name, and with a string as id");
        if (engine.has_calls) {
            text_print(t, one == calls->first ? "{\"type\":\"function\"" : ",{\"type\":\"function\"");
            if (id)
                print_member(t, "id", id->string);
            text_print(t, ",\"function\":{\"name\":\"");
            text_escape(t, name->string, name->size);
            text_print(t, "\",\"arguments\":");
            print_arguments(t, member(function, "arguments"));
            text_print(t, "}}");
        } else {
            text inside = {0};
            text_print(&inside, "\n<tool_call>\n{\"name\": \"%s\", \"arguments\": ", name->string);
            print_arguments(&inside, member(function, "arguments"));
            text_print(&inside, "}\n</tool_call>");
            text_escape(t, inside.data, inside.size);
            text_free(&inside);
        }
    }
    if (engine.has_calls)
        text_print(t, "]");
    return true;
}

/*  Describes the form of a call of keys and values, with two of them. */
static void print_call_words(text *t, const call_form *f)
{
    static const char *const values[] = {"<parameter-name>", "<value>"};
    const char *percent = strchr(f->forced, '%'), *at;
    int i, percents;
    text_print(t, "A function call has this form:\n%.*s<function-name>%s", (int)(percent - f->forced), f->forced,
               percent + 1);
    for (i = 1; i <= 2; i++)
        for (at = f->pair, percents = 0; *at; at++)
            if (*at == '%')
                text_print(t, "%.*s-%d>", (int)strlen(values[percents]) - 1, values[percents], i), percents++;
            else
                text_print(t, *at == '?' ? "true|false" : "%c", *at);
    text_print(t, "%s%s", f->end, f->finish);
}

/*  Tells a model about tools whose template does not: the words of Hermes 2 and Qwen, with the form of its calls. */
static void print_tools_words(text *t, const char *tools, const char *system)
{
    const char *forced = engine.form->forced, *percent = strchr(forced, '%');
    text words = {0};
    text_print(&words,
               "%s%s# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
               "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n%s\n</tools>\n\n",
               system, *system ? "\n\n" : "", tools);
    if (strcmp(engine.form->name, "hermes") == 0)
        text_print(&words, "For each function call, return a json object with function name and arguments within "
                           "<tool_call></tool_call> XML tags:\n<tool_call>\n"
                           "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>");
    else if (engine.form->pair)
        print_call_words(&words, engine.form);
    else
        text_print(&words, "A function call begins with:\n%.*s<function-name>%s<args-json-object>",
                   (int)(percent - forced), forced, percent + 1);
    text_escape(t, words.data, words.size);
    text_free(&words);
}

static bool refuse_message(connection *c, int number, const char *name, const json *value, const char *expected)
{
    char path[80];
    snprintf(path, sizeof path, "messages[%d].%s", number, name);
    return refuse_value(c, path, value, "%s", expected);
}

/*  Writes messages as an array for the template. Their text stays text, and never becomes a control token. */
static bool print_messages(connection *c, text *t, const json *messages, const char *tools)
{
    static const char *const strings[] = {"reasoning_content", "tool_call_id", "name"};
    const json *one;
    int i = 0;
    bool told = !tools || engine.has_tools;
    if (!messages || messages->kind != JSON_ARRAY || !messages->count)
        return refuse_value(c, "messages", messages, "an array of at least one message");
    text_print(t, "[");
    one = messages->first;
    if (!told && !is_text(member(one, "role"), "system") && !is_text(member(one, "role"), "developer")) {
        text_print(t, "{\"role\":\"system\",\"content\":\"");
        print_tools_words(t, tools, "");
        text_print(t, "\"},");
        told = true;
    }
    for (; one; one = one->next, i++) {
        const json *role = member(one, "role"), *content = member(one, "content"), *calls = member(one, "tool_calls");
        const json *reasoning = member(one, "reasoning_content"), *id = member(one, "tool_call_id"),
                   *name = member(one, "name");
        const json *wrong;
        const char *string, *as;
        bool is_tool = is_text(role, "tool");
        size_t k;
        if (!role || role->kind != JSON_STRING ||
            !has_item("system user assistant developer tool", role->string, strncmp))
            return refuse_message(c, i, "role", role, "system, developer, user, assistant or tool");
        if (member(one, "function_call") || member(one, "audio"))
            return refuse(c, 400, "messages", "messages[%d].%s is not supported", i,
                          member(one, "audio") ? "audio" : "function_call");
        wrong = content ? find_wrong_part(content) : NULL;
        if (wrong || (!content && !calls))
            return refuse_message(c, i, "content", wrong, CONTENT_KINDS);
        string = content ? join_parts(content) : "";
        for (k = 0; k < COUNT(strings); k++) {
            const json *value = member(one, strings[k]);
            if (value && value->kind != JSON_STRING)
                return refuse_message(c, i, strings[k], value, "a string");
        }
        as = is_text(role, "developer")       ? "system" /* OpenAI's newer name for it */
             : is_tool && !engine.has_results ? "user"
                                              : role->string;
        text_print(t, i ? ",{\"role\":\"%s\",\"content\":\"" : "{\"role\":\"%s\",\"content\":\"", as);
        if (!told)
            print_tools_words(t, tools, string);
        else if (is_tool && !engine.has_results)
            text_print(t, "<tool_response>\\n"), text_escape(t, string, strlen(string)),
                text_print(t, "\\n</tool_response>");
        else
            text_escape(t, string, strlen(string));
        told = true;
        if (calls && !engine.has_calls && !print_calls(c, t, calls, i))
            return false;
        text_print(t, "\"");
        if (reasoning)
            print_member(t, "reasoning_content", reasoning->string);
        if (id)
            print_member(t, "tool_call_id", id->string);
        if (name)
            print_member(t, "name", name->string);
        if (calls && engine.has_calls && !print_calls(c, t, calls, i))
            return false;
        text_print(t, "}");
    }
    text_print(t, "]");
    return true;
}

/*  Checks tools: {"type": "function", "function": {"name": ..., "parameters": {...}}}. */
static bool check_tools(connection *c, const json *tools)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    const json *one = tools->first;
    const char *inside = c->ask->kind == RESPONSES ? "" : "function."; /* see print_tools */
    char path[80];
    int i;
    if (tools->kind != JSON_ARRAY)
        return refuse_value(c, "tools", tools, "an array of tools");
    if (tools->count > MAX_TOOLS)
        return refuse(c, 400, "tools", "tools has %d tools; expected at most %d", tools->count, MAX_TOOLS);
    for (i = 0; one; one = one->next, i++) {
        const json *function = member(one, "function"), *name = member(function, "name"),
                   *schema = member(function, "parameters");
        snprintf(path, sizeof path, "tools[%d].type", i);
        if (!is_text(member(one, "type"), "function"))
            return refuse_value(c, path, member(one, "type"), "function");
        snprintf(path, sizeof path, "tools[%d].%sname", i, inside);
        if (!name || name->kind != JSON_STRING || !name->size || name->size > 64 ||
            name->string[strspn(name->string, letters)])
            return refuse_value(c, path, name, "1 to 64 letters, digits, _, - and .");
        snprintf(path, sizeof path, "tools[%d].%sparameters", i, inside);
        if (schema && schema->kind != JSON_OBJECT)
            return refuse_value(c, path, schema, "an object, which is a JSON schema");
    }
    return true;
}

/*  Makes the grammar of a forced call in a form of keys and values. */
static bool force_pairs(connection *c, const json *tools, bool several)
{
    request *ask = c->ask;
    text why = {0};
    bool ok = print_forced(&ask->grammar, &ask->head, engine.form, tools, ask->forced_tool, several, &why);
    if (!ok)
        refuse(c, 400, "tools", "%s", why.data);
    else if (ignis_grammar_check(ask->grammar.data) != IGNIS_OK)
        ok = refuse(c, 400, "tools", "the parameters of tools: %s", ignis_status_message());
    ignis_status_clear();
    text_free(&why);
    return ok;
}

/*  Reads tool_choice. The grammar of a forced call is that of the names, if its arguments are JSON; of a single one, of
    its arguments. */
static bool read_choice(connection *c, const json *tools, const json *choice)
{
    request *ask = c->ask;
    const json *name = choice ? member(choice, "name") : NULL, *one;
    const json *named = choice ? member(choice, "function") : NULL;
    text schema = {0};
    bool ok = true;
    if (named)
        name = member(named, "name");
    if (!choice || is_text(choice, "auto")) {
        ask->tools = tools;
        return true;
    }
    if (is_text(choice, "none"))
        return true;
    if (!is_text(choice, "required") && !(name && name->kind == JSON_STRING))
        return refuse_value(c, "tool_choice", choice, "none, auto, required, or an object with a function to call");
    if (!tools || (name && !find_tool(tools, name->string)))
        return refuse_value(c, "tool_choice", choice, tools ? "a function of tools" : "tools beside it");
    ask->tools = tools;
    ask->forced = !engine.form->pair;
    ask->forced_tool = name                ? find_tool(tools, name->string)
                       : tools->count == 1 ? member(tools->first, "function")
                                           : NULL;
    text_cut(&ask->grammar, ask->grammar.size);
    for (one = tools->first; one && ok; one = one->next) {
        const json *function = member(one, "function");
        if (ask->forced_tool && function != ask->forced_tool)
            continue;
        text_cut(&schema, schema.size);
        print_schema(&schema, member(function, "parameters"));
        ok = ignis_grammar_check(schema.data) == IGNIS_OK;
        if (!ok)
            refuse(c, 400, "tools", "the parameters of %s: %s", member(function, "name")->string,
                   ignis_status_message());
        text_print(&ask->grammar, ask->grammar.size ? " | \"%s\"" : "root ::= \"%s\"",
                   member(function, "name")->string);
    }
    ignis_status_clear();
    text_free(&schema);
    if (ok && !ask->forced) {
        text_cut(&ask->grammar, ask->grammar.size);
        ok = force_pairs(c, tools, ask->parallel && !name);
    }
    return ok;
}

/*  Adds the tokens of a text of this server to a prompt. */
static void append_text(int32_t **ids, int *count, const char *words, size_t size)
{
    ignis_encode_desc desc = {.no_bos = true};
    int more = ignis_tokenizer_encode(engine.tokenizer, words, (int64_t)size, &desc, NULL, 0);
    if (more <= 0)
        return;
    *ids = (int32_t *)resize(*ids, sizeof **ids * (size_t)(*count + more));
    ignis_tokenizer_encode(engine.tokenizer, words, (int64_t)size, &desc, *ids + *count, more);
    *count += more;
}

/*  Adds what the template writes between a prompt and a call, or text, that the server begins: the end of reasoning
    that is open, and white space. tail: the prompt's last bytes. */
static void print_gap(text *t, const request *ask, const char *tail, size_t size, bool call)
{
    const gaps *g = call ? &engine.call_gaps : &engine.text_gaps;
    const text *asked = &engine.asked;
    const char *blank = closed_thought(tail, size);
    size_t there = blank ? (size_t)(tail + size - blank) : 0;
    if (ask->thought)
        text_print(t, "%s%s%s", g->before, thoughts[ask->thought - 1].end, g->behind);
    else if (call && asked->size && size >= asked->size &&
             memcmp(tail + size - asked->size, asked->data, asked->size) == 0)
        text_add(t, engine.lead.data, engine.lead.size);
    else if (blank && strncmp(g->behind, blank, there) == 0)
        text_print(t, "%s", g->behind + there);
}

/*  Ends a prompt. Where a grammar holds the answer, reasoning that is open is closed, and a forced call begins. */
static void end_prompt(request *ask)
{
    static const char final[] = "<|channel|>final<|message|>";
    int32_t **ids = &ask->prompts[0];
    int *count = &ask->counts[0], last = *count < 32 ? *count : 32;
    const char *forced = engine.form->forced, *percent = strchr(forced, '%');
    const json *name = member(ask->forced_tool, "name");
    const bool call = ask->forced || ask->head.size;
    ignis_decode_desc control = {.control = true};
    char tail[2048];
    text words = {0};
    int64_t size = ignis_tokenizer_decode(engine.tokenizer, *ids + *count - last, last, &control, tail, sizeof tail);
    size = size > 0 && size <= (int64_t)sizeof tail ? size : 0;
    ask->thought = open_thought(tail, (size_t)size);
    ask->plain = ask->grammar.size > 0 && !ask->head.size;
    if (!ask->plain && !call)
        return;
    print_gap(&words, ask, tail, (size_t)size, call);
    ask->thought = 0;
    if (ask->head.size) {
        text_add(&words, ask->head.data, ask->head.size);
    } else if (ask->forced) {
        append_text(&ask->middle, &ask->middle_count, percent + 1, strlen(percent + 1));
        text_add(&words, forced, (size_t)(percent - forced));
        if (name)
            text_print(&words, "%s%s", name->string, percent + 1);
    } else if (!engine.form->open) {
        text_print(&words, "%s", final);
    }
    append_text(ids, count, words.data ? words.data : "", words.size); /* at once: as tokens of one text */
    text_free(&words);
}

/*  Prints variables of the template. Those whose text would be the template's own are refused. */
static bool print_variables(connection *c, const json *given, const json *effort)
{
    text *t = &c->ask->variables;
    const json *one;
    if (given && given->kind != JSON_OBJECT)
        return refuse_value(c, "chat_template_kwargs", given, "an object");
    if (effort && effort->kind != JSON_STRING)
        return refuse_value(c, c->ask->kind == CHAT ? "reasoning_effort" : "reasoning.effort", effort, "a string");
    if (effort) {
        print_member(t, "reasoning_effort", effort->string);
        if (strcmp(effort->string, "none") == 0 && !member(given, "enable_thinking"))
            text_print(t, ",\"enable_thinking\":false");
    }
    for (one = given ? given->first : NULL; one; one = one->next) {
        size_t size = strlen(one->key);
        if (has_item("messages tools documents", one->key, strncmp) ||
            (size >= 6 && strcmp(one->key + size - 6, "_token") == 0) ||
            (effort && strcmp(one->key, "reasoning_effort") == 0))
            return refuse(c, 400, "chat_template_kwargs",
                          "chat_template_kwargs has the key %.100s; expected variables that are not the template's own",
                          one->key);
        text_print(t, ",\"");
        text_escape(t, one->key, size);
        text_print(t, "\":");
        json_print(t, one);
    }
    return true;
}

/*  Makes the prompt of messages and tools. */
static bool make_prompt(connection *c, const json *messages, const json *tools, const json *choice)
{
    static const ignis_message none = {"user", ""};
    request *ask = c->ask;
    ignis_chat_desc chat = {.add_generation_prompt = true};
    text variables = {0}, list = {0};
    int count;
    bool ok;
    if (tools && !check_tools(c, tools))
        return false;
    tools = tools && tools->count ? tools : NULL;
    if (!read_choice(c, tools, choice))
        return false;
    if (ask->tools)
        json_print(&list, ask->tools);
    text_print(&variables, "{\"messages\":");
    ok = print_messages(c, &variables, messages, ask->tools ? list.data : NULL);
    if (ok && ask->tools && engine.has_tools)
        text_print(&variables, ",\"tools\":%s", list.data);
    text_add(&variables, ask->variables.data, ask->variables.size);
    text_print(&variables, "}");
    chat.json = variables.data;
    if (ok) {
        ask->prompts = (int32_t **)allocate(1, sizeof *ask->prompts);
        ask->counts = (int *)allocate(1, sizeof *ask->counts);
        ask->prompt_count = 1;
        ask->prompts[0] = (int32_t *)resize(NULL, sizeof **ask->prompts * (size_t)engine.context);
        count = ask->counts[0] = ignis_chat_encode(engine.tokenizer, &none, 1, &chat, ask->prompts[0], engine.context);
        if (count > 0 && count <= engine.context)
            end_prompt(ask);
    }
    text_free(&variables), text_free(&list);
    return ok;
}

static bool read_chat(connection *c, const json *body)
{
    if (!engine.talks)
        return refuse(c, 400, NULL, "this model has no chat template; expected /v1/completions");
    return print_variables(c, member(body, "chat_template_kwargs"), member(body, "reasoning_effort")) &&
           make_prompt(c, member(body, "messages"), member(body, "tools"), member(body, "tool_choice"));
}
