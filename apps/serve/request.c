// SPDX-License-Identifier: MIT
/*  request.c - requests as OpenAI's clients write them: reads JSON into a job */

typedef enum parameter_kind {
    NUMBER,  /* a double */
    INTEGER, /* an int64_t */
    BOOLEAN, /* a bool */
    OTHER,   /* code reads it, or it does not change the answer */
    /* it does, and is not there: only what changes nothing is taken: the number `least`, false, "", {} and [] */
    REFUSED
} parameter_kind;

/*  All of them may be null, which is as if they were not there. */
static const struct parameter {
    const char *names;
    int where;
    parameter_kind kind;
    double least, most;
    size_t offset; /* in a job */
} parameters[] = {
    {"model stop logit_bias stream_options seed", BOTH, OTHER, 0, 0, 0},
    {"prompt logprobs", TEXT, OTHER, 0, 0, 0},
    {"messages response_format", CHAT, OTHER, 0, 0, 0},
    {"max_tokens", BOTH, INTEGER, 1, 1e9, offsetof(job, max_tokens)},
    {"max_completion_tokens", CHAT, INTEGER, 1, 1e9, offsetof(job, max_tokens)},
    {"temperature", BOTH, NUMBER, 0, 2, offsetof(job, sampling.temperature)},
    {"top_p", BOTH, NUMBER, 0, 1, offsetof(job, sampling.top_p)},
    {"top_k", BOTH, INTEGER, 0, 1e9, offsetof(job, top_k)},
    {"min_p", BOTH, NUMBER, 0, 1, offsetof(job, sampling.min_p)},
    {"repetition_penalty", BOTH, NUMBER, 0.01, 100, offsetof(job, sampling.repetition_penalty)},
    {"stream", BOTH, BOOLEAN, 0, 0, offsetof(job, stream)},
    {"logprobs", CHAT, BOOLEAN, 0, 0, offsetof(job, logprobs)},
    {"user", BOTH, OTHER, 0, 0, 0},
    {"metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention", CHAT, OTHER, 0, 0, 0},
    {"prediction", CHAT, OTHER, 0, 0, 0},                                    /* speed alone */
    {"parallel_tool_calls tool_choice function_call", CHAT, OTHER, 0, 0, 0}, /* there are no tools */
    {"n", BOTH, REFUSED, 1, 0, 0},
    {"best_of", TEXT, REFUSED, 1, 0, 0},
    {"frequency_penalty presence_penalty", BOTH, REFUSED, 0, 0, 0},
    {"echo suffix", TEXT, REFUSED, 0, 0, 0},
    {"top_logprobs tools functions modalities audio web_search_options reasoning_effort verbosity", CHAT, REFUSED, 0, 0,
     0},
};

/*  All parameters have their names in the table, and their values within its limits. */
static bool read_parameters(connection *c, const json *request)
{
    const json *value;
    for (value = request->first; value; value = value->next) {
        const struct parameter *p = parameters, *end = parameters + COUNT(parameters);
        const char *name = value->key;
        bool is_number = value->kind == JSON_NUMBER, is_boolean = value->kind == JSON_TRUE || value->kind == JSON_FALSE;
        void *to;
        while (p < end && !((p->where & c->route->kind) && has_item(p->names, name, strncmp)))
            p++;
        if (p == end)
            return refuse(c, 400, name, "there is no parameter %.100s here", name);
        to = (char *)c->job + p->offset;
        if (value->kind == JSON_NULL)
            continue;
        if (p->kind == REFUSED &&
            (is_number ? value->number != p->least : value->kind == JSON_TRUE || value->size || value->count))
            return refuse(c, 400, name, "this server does not have %s", name);
        if (p->kind == BOOLEAN && !is_boolean)
            return refuse(c, 400, name, "%s has to be true or false", name);
        if ((p->kind == NUMBER || p->kind == INTEGER) &&
            (!is_number || value->number < p->least || value->number > p->most ||
             (p->kind == INTEGER && value->number != floor(value->number))))
            return refuse(c, 400, name, "%s has to be %s from %.15g to %.15g", name,
                          p->kind == INTEGER ? "an integer" : "a number", p->least, p->most);
        if (p->kind == NUMBER)
            *(double *)to = value->number;
        else if (p->kind == INTEGER)
            *(int64_t *)to = (int64_t)value->number;
        else if (p->kind == BOOLEAN)
            *(bool *)to = value->kind == JSON_TRUE;
    }
    return true;
}

/*  An integer of 64 bits, with or without a sign: a double has not all of them. */
static bool read_seed(connection *c, const json *seed)
{
    uint64_t *to = &c->job->sampling.seed;
    char *end = NULL;
    if (!seed)
        return true;
    errno = 0;
    if (seed->kind == JSON_NUMBER)
        *to = seed->digits[0] == '-' ? (uint64_t)strtoll(seed->digits, &end, 10)
                                     : (uint64_t)strtoull(seed->digits, &end, 10);
    if (!end || errno || end != seed->digits + seed->size)
        return refuse(c, 400, "seed",
                      "seed has to be an integer from -9223372036854775808 to 18446744073709551615, in digits");
    return true;
}

static bool read_stops(connection *c, const json *stop)
{
    job *j = c->job;
    const json *one = stop && stop->kind == JSON_ARRAY ? stop->first : stop;
    for (; one; one = one == stop ? NULL : one->next) {
        if (one->kind != JSON_STRING || !one->size || one->size > 1000 || j->stop_count == MAX_STOPS)
            return refuse(c, 400, "stop", "stop has to be a string of 1 to 1000 bytes, or an array of up to %d of them",
                          MAX_STOPS);
        j->stops[j->stop_count++] = one->string;
    }
    return true;
}

static bool read_biases(connection *c, const json *biases)
{
    job *j = c->job;
    const json *one = biases ? biases->first : NULL;
    ignis_logit_bias *at;
    if (biases && (biases->kind != JSON_OBJECT || biases->count > MAX_BIASES))
        return refuse(c, 400, "logit_bias", "logit_bias has to be an object of up to %d numbers", MAX_BIASES);
    for (; one; one = one->next) {
        size_t digits = strspn(one->key, "0123456789");
        long id = digits && digits < 9 && !one->key[digits] ? strtol(one->key, NULL, 10) : -1;
        if (id < 0 || id >= engine.tokens || one->kind != JSON_NUMBER || fabs(one->number) > 100)
            return refuse(c, 400, "logit_bias",
                          "logit_bias has to be numbers from -100 to 100 under the ids of tokens, 0 to %d",
                          engine.tokens - 1);
        for (at = j->biases + j->sampling.bias_count++; at > j->biases && at[-1].id > id; at--) /* in rising order */
            at[0] = at[-1];
        if (at > j->biases && at[-1].id == id)
            return refuse(c, 400, "logit_bias", "logit_bias has the token %ld twice", id);
        at->id = (int32_t)id;
        at->bias = one->number <= -100 ? -INFINITY : (float)one->number;
    }
    j->sampling.biases = j->biases;
    return true;
}

/*  Texts of the parts {"type": "text", "text": "..."}, pushed together where the first one lies: a later one lies
    behind it. Null: refused. */
static char *join_parts(const json *content)
{
    const json *part = content->first, *first = part ? member(part, "text") : NULL, *piece;
    size_t size = 0;
    for (; part; part = part->next) {
        piece = member(part, "text");
        if (!is_text(member(part, "type"), "text") || !piece || piece->kind != JSON_STRING)
            return NULL;
        memmove(first->string + size, piece->string, piece->size);
        size += piece->size;
    }
    if (first)
        first->string[size] = 0;
    return first ? first->string : NULL;
}

/*  Makes tokens of messages. What they have in their text is text: no control token. */
static bool read_messages(connection *c, const json *messages)
{
    job *j = c->job;
    ignis_chat_desc chat = {.add_generation_prompt = true};
    const json *one;
    int i = 0;
    if (!engine.talks)
        return refuse(c, 400, NULL, "this model has no chat template: take /v1/completions");
    if (!messages || messages->kind != JSON_ARRAY || !messages->count)
        return refuse(c, 400, "messages", "messages has to be an array of at least one message");
    j->messages = (ignis_message *)allocate((size_t)messages->count, sizeof *j->messages);
    for (one = messages->first; one; one = one->next, i++) {
        const json *role = member(one, "role"), *content = member(one, "content");
        if (!role || role->kind != JSON_STRING || !has_item("system user assistant developer", role->string, strncmp))
            return refuse(c, 400, "messages", "messages[%d].role has to be system, developer, user or assistant", i);
        if (member(one, "tool_calls") || member(one, "function_call") || member(one, "audio"))
            return refuse(c, 400, "messages", "messages[%d]: this server knows no tools and no sound", i);
        j->messages[i].role = is_text(role, "developer") ? "system" : role->string; /* OpenAI's newer name for it */
        j->messages[i].content = !content ? NULL : content->kind == JSON_ARRAY ? join_parts(content) : content->string;
        if (!j->messages[i].content)
            return refuse(c, 400, "messages",
                          "messages[%d].content has to be a text, or an array of parts of type text", i);
    }
    j->count = ignis_chat_encode(engine.tokenizer, j->messages, i, &chat, j->ids, engine.context);
    return true;
}

/*  Makes tokens of a text, or an array of one text; or takes them from an array of their ids. */
static bool read_prompt(connection *c, const json *prompt)
{
    job *j = c->job;
    const json *one;
    if (prompt && prompt->kind == JSON_ARRAY && prompt->count == 1 && prompt->first->kind != JSON_NUMBER)
        prompt = prompt->first;
    if (!prompt || (prompt->kind != JSON_STRING && (prompt->kind != JSON_ARRAY || !prompt->count)))
        return refuse(c, 400, "prompt",
                      "prompt has to be a text, or an array of the ids of tokens; one prompt a request");
    if (prompt->kind == JSON_STRING)
        j->count = ignis_tokenizer_encode(engine.tokenizer, prompt->string, (int64_t)prompt->size, NULL, j->ids,
                                          engine.context);
    for (one = prompt->first; one; one = one->next, j->count++) {
        if (one->kind != JSON_NUMBER || one->number != floor(one->number) || one->number < 0 ||
            one->number >= engine.tokens)
            return refuse(c, 400, "prompt", "prompt[%d] has to be the id of a token, 0 to %d; one prompt a request",
                          j->count, engine.tokens - 1);
        if (j->count < engine.context)
            j->ids[j->count] = (int32_t)one->number;
    }
    return true;
}

/*  What an answer looks like: {"type": "text"}, "json_object", or "json_schema" with {"schema": ...}. */
static bool read_format(connection *c, const json *format)
{
    const json *type = member(format, "type"), *schema = member(format, "json_schema");
    text *grammar = &c->job->grammar;
    if (is_text(type, "text"))
        return true;
    schema = schema && schema->kind == JSON_OBJECT ? member(schema, "schema") : NULL;
    if (is_text(type, "json_object"))
        text_print(grammar, "{\"type\":\"object\"}");
    else if (is_text(type, "json_schema") && schema && schema->kind == JSON_OBJECT)
        json_print(grammar, schema);
    else
        return refuse(c, 400, "response_format",
                      "response_format has the types text, json_object, and json_schema with a schema");
    if (!is_text(type, "json_object")) { /* its first bytes are the key it had */
        text_cut(grammar, strlen("\"schema\":"));
        if (ignis_grammar_check(grammar->data) != IGNIS_OK) {
            refuse(c, 400, "response_format", "%s", ignis_status_message());
            ignis_status_clear();
            return false;
        }
    }
    return true;
}

/*  What the table leaves to code. */
static bool read_rest(connection *c, const json *request)
{
    job *j = c->job;
    const json *model = member(request, "model"), *format = member(request, "response_format"),
               *logprobs = member(request, "logprobs");
    const json *streamed = member(request, "stream_options"),
               *usage = streamed ? member(streamed, "include_usage") : NULL;
    if (model && !is_text(model, settings.name))
        return refuse(c, 404, "model", "the model of this server is %.200s", settings.name);
    if (format && !read_format(c, format))
        return false;
    if (streamed && streamed->kind != JSON_OBJECT)
        return refuse(c, 400, "stream_options", "stream_options has to be an object");
    if (!j->chat && logprobs && (logprobs->kind != JSON_NUMBER || logprobs->number != 0))
        return refuse(c, 400, "logprobs",
                      "this server has the log probabilities of the answer's own tokens alone: logprobs has to be 0");
    j->usage = usage && usage->kind == JSON_TRUE;
    j->logprobs = j->logprobs || (!j->chat && logprobs);
    if (!read_seed(c, member(request, "seed")) || !read_stops(c, member(request, "stop")) ||
        !read_biases(c, member(request, "logit_bias")))
        return false;
    j->ids = (int32_t *)resize(NULL, sizeof *j->ids * (size_t)engine.context); /* more are counted, but not written */
    if (!(j->chat ? read_messages(c, member(request, "messages")) : read_prompt(c, member(request, "prompt"))))
        return false;
    if (j->count <= 0) {
        refuse(c, 400, NULL, "%s", j->count ? ignis_status_message() : "the prompt has no tokens");
        ignis_status_clear();
    } else if (j->count >= engine.context)
        refuse(c, 400, NULL, "the prompt has %d tokens; the context has room for %d, and one of the answer", j->count,
               engine.context - 1);
    return j->count > 0 && j->count < engine.context;
}

/*  Another number for each request. */
static uint64_t random_number(const connection *c)
{
    struct timespec now;
    uint64_t x;
    clock_gettime(CLOCK_REALTIME, &now);
    x = ((uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec + (uint64_t)(uintptr_t)c) * 0x9E3779B97F4A7C15u;
    return (x ^ x >> 29) >> 12;
}

/*  Makes a job of a request. */
static bool read_job(connection *c)
{
    job *j = c->job;
    json_reader r;
    bool ok;
    j->chat = c->route->kind == CHAT;
    j->sampling.temperature = j->sampling.top_p = 1; /* as OpenAI has them */
    j->max_tokens = j->chat ? INT32_MAX : 16;
    j->sampling.seed = random_number(c);
    text_add(&c->body, "", 0);
    ok = json_read(&r, &c->body);
    if (!ok)
        refuse(c, 400, NULL, "the body is not JSON: %s at byte %ld", r.error, (long)(r.at - c->body.data));
    else if (r.values->kind != JSON_OBJECT)
        ok = refuse(c, 400, NULL, "the body has to be a JSON object");
    ok = ok && read_parameters(c, r.values) && read_rest(c, r.values);
    free(r.values);
    if (ok && j->max_tokens > engine.context - j->count)
        j->max_tokens = engine.context - j->count;
    j->sampling.top_p = j->sampling.top_p > 0 ? j->sampling.top_p : 1e-9; /* for Ignis 0 is all */
    j->sampling.top_k = (int)j->top_k;
    j->characters.tokenizer = engine.tokenizer;
    j->characters.inside = !j->chat;
    return ok;
}
