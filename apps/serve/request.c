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

/*  The table of parameters. All may be null, which is as if they were missing. */
static const struct parameter {
    const char *names;
    int where;
    parameter_kind kind;
    double least, most;
    size_t offset; /* in a request */
} parameters[] = {
    {"model", -1, OTHER, 0, 0, 0},
    {"seed", GENERATES, OTHER, 0, 0, 0},
    {"stop logit_bias", TEXT | CHAT | NATIVE, OTHER, 0, 0, 0},
    {"stream_options response_format", TEXT | CHAT, OTHER, 0, 0, 0},
    {"prompt", TEXT | NATIVE, OTHER, 0, 0, 0},
    {"grammar json_schema", TEXT | CHAT | NATIVE, OTHER, 0, 0, 0},
    {"messages reasoning_effort chat_template_kwargs", CHAT, OTHER, 0, 0, 0},
    {"tools tool_choice", CHAT | RESPONSES, OTHER, 0, 0, 0},
    {"input instructions text reasoning", RESPONSES, OTHER, 0, 0, 0},
    {"logprobs", TEXT, OTHER, 0, 0, 0},
    {"max_tokens", TEXT, INTEGER, 0, 1e9, offsetof(request, max_tokens)},
    {"max_tokens max_completion_tokens", CHAT, INTEGER, 1, 1e9, offsetof(request, max_tokens)},
    {"max_output_tokens", RESPONSES, INTEGER, 1, 1e9, offsetof(request, max_tokens)},
    {"n_predict", NATIVE, INTEGER, -2, 1e9, offsetof(request, max_tokens)},
    {"temperature", GENERATES, NUMBER, 0, 2, offsetof(request, sampling.temperature)},
    {"top_p", GENERATES, NUMBER, 0, 1, offsetof(request, sampling.top_p)},
    {"top_k", GENERATES, INTEGER, 0, 1e9, offsetof(request, top_k)},
    {"min_p", GENERATES, NUMBER, 0, 1, offsetof(request, sampling.min_p)},
    {"repetition_penalty repeat_penalty", GENERATES, NUMBER, 0.01, 100, offsetof(request, sampling.repetition_penalty)},
    {"presence_penalty", GENERATES, NUMBER, -2, 2, offsetof(request, presence)},
    {"frequency_penalty", GENERATES, NUMBER, -2, 2, offsetof(request, frequency)},
    {"n", TEXT | CHAT, INTEGER, 1, MAX_JOBS, offsetof(request, choices)},
    {"stream", GENERATES, BOOLEAN, 0, 0, offsetof(request, stream)},
    {"parallel_tool_calls", CHAT | RESPONSES, BOOLEAN, 0, 0, offsetof(request, parallel)},
    {"logprobs", CHAT, BOOLEAN, 0, 0, offsetof(request, logprobs)},
    {"top_logprobs", CHAT, INTEGER, 0, MAX_TOPS, offsetof(request, top_logprobs)},
    {"n_probs", NATIVE, INTEGER, 0, MAX_TOPS, offsetof(request, top_logprobs)},
    {"echo", TEXT, BOOLEAN, 0, 0, offsetof(request, echo)},
    {"input encoding_format", EMBED, OTHER, 0, 0, 0},
    {"content tokens", TOKENS, OTHER, 0, 0, 0},
    {"add_special", TOKENS, BOOLEAN, 0, 0, offsetof(request, add_special)},
    {"with_pieces", TOKENS, BOOLEAN, 0, 0, offsetof(request, with_pieces)},
    /* these change no answer of this server */
    {"user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention prediction", -1, OTHER,
     0, 0, 0},
    {"truncation cache_prompt", -1, OTHER, 0, 0, 0},
    {"include", RESPONSES, OTHER, 0, 0, 0},
    {"best_of", TEXT, REFUSED, 1, 0, 0},
    {"suffix", TEXT, REFUSED, 0, 0, 0},
    {"functions modalities audio web_search_options", CHAT, REFUSED, 0, 0, 0},
    {"previous_response_id background conversation", RESPONSES, REFUSED, 0, 0, 0},
    {"dimensions", EMBED, REFUSED, 0, 0, 0},
};

/*  Reads known parameters, within their limits. Others are ignored, and the answer's X-Ignored names them. */
static bool read_parameters(connection *c, const json *body)
{
    request *ask = c->ask;
    const json *value;
    for (value = body->first; value; value = value->next) {
        const struct parameter *p = parameters, *end = parameters + COUNT(parameters);
        const char *name = value->key;
        bool is_number = value->kind == JSON_NUMBER, is_boolean = value->kind == JSON_TRUE || value->kind == JSON_FALSE;
        void *to;
        while (p < end && !((p->where & ask->kind) && has_item(p->names, name, strncmp)))
            p++;
        if (p == end) {
            if (ask->ignored.size < 300)
                text_print(&ask->ignored, ask->ignored.size ? ", %.*s" : "%.*s",
                           (int)strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"),
                           name);
            continue;
        }
        to = (char *)ask + p->offset;
        if (value->kind == JSON_NULL)
            continue;
        if (p->kind == REFUSED &&
            (is_number ? value->number != p->least : value->kind == JSON_TRUE || value->size || value->count))
            return refuse(c, 400, name, "%s is not supported", name);
        if (p->kind == BOOLEAN && !is_boolean)
            return refuse_value(c, name, value, "true or false");
        if ((p->kind == NUMBER || p->kind == INTEGER) &&
            (!is_number || value->number < p->least || value->number > p->most ||
             (p->kind == INTEGER && value->number != floor(value->number))))
            return refuse_value(c, name, value, "%s from %.15g to %.15g",
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

/*  Reads an integer of 64 bits, with or without a sign: a double does not have all of them. */
static bool read_seed(connection *c, const json *seed)
{
    uint64_t *to = &c->ask->sampling.seed;
    char *end = NULL;
    if (!seed)
        return true;
    errno = 0;
    if (seed->kind == JSON_NUMBER && c->ask->kind == NATIVE && seed->number == -1)
        return true; /* llama.cpp: any */
    if (seed->kind == JSON_NUMBER)
        *to = seed->digits[0] == '-' ? (uint64_t)strtoll(seed->digits, &end, 10)
                                     : (uint64_t)strtoull(seed->digits, &end, 10);
    if (!end || errno || end != seed->digits + seed->size)
        return refuse_value(c, "seed", seed, "an integer from -9223372036854775808 to 18446744073709551615, in digits");
    return true;
}

static bool read_stops(connection *c, const json *stop)
{
    request *ask = c->ask;
    const json *one = stop && stop->kind == JSON_ARRAY ? stop->first : stop;
    if (one != stop && stop->count > MAX_STOPS)
        return refuse(c, 400, "stop", "stop has %d strings; expected at most %d", stop->count, MAX_STOPS);
    for (; one; one = one == stop ? NULL : one->next) {
        char path[40] = "stop";
        if (one != stop)
            snprintf(path, sizeof path, "stop[%d]", ask->stop_count);
        if (one->kind != JSON_STRING || !one->size || one->size > 1000)
            return refuse_value(c, path, one, "a string of 1 to 1000 bytes%s",
                                one == stop ? ", or an array of them" : "");
        ask->stops[ask->stop_count++] = one->string;
    }
    return true;
}

static bool read_biases(connection *c, const json *biases)
{
    request *ask = c->ask;
    const json *one = biases ? biases->first : NULL;
    ignis_logit_bias *at;
    if (biases && biases->kind != JSON_OBJECT)
        return refuse_value(c, "logit_bias", biases, "an object of numbers");
    if (biases && biases->count > MAX_BIASES)
        return refuse(c, 400, "logit_bias", "logit_bias has %d numbers; expected at most %d", biases->count,
                      MAX_BIASES);
    for (; one; one = one->next) {
        size_t digits = strspn(one->key, "0123456789");
        long id = digits && digits < 9 && !one->key[digits] ? strtol(one->key, NULL, 10) : -1;
        char path[40];
        if (id < 0 || id >= engine.tokens)
            return refuse(c, 400, "logit_bias", "logit_bias has the key \"%.40s\"; expected ids of tokens, 0 to %d",
                          one->key, engine.tokens - 1);
        snprintf(path, sizeof path, "logit_bias[%ld]", id);
        if (one->kind != JSON_NUMBER || fabs(one->number) > 100)
            return refuse_value(c, path, one, "a number from -100 to 100");
        for (at = ask->biases + ask->sampling.bias_count++; at > ask->biases && at[-1].id > id;
             at--) /* in rising order */
            at[0] = at[-1];
        if (at > ask->biases && at[-1].id == id)
            return refuse(c, 400, "logit_bias", "logit_bias has the token %ld twice", id);
        at->id = (int32_t)id;
        at->bias = one->number <= -100 ? -INFINITY : (float)one->number;
    }
    ask->sampling.biases = ask->biases;
    return true;
}

/*  Makes tokens of a text, or takes them from an array of their ids. */
static bool read_prompt(connection *c, const json *prompt, int at, bool many)
{
    request *ask = c->ask;
    int32_t *ids = (int32_t *)resize(NULL, sizeof *ids * (size_t)engine.context); /* more are counted, not written */
    const json *one;
    char path[60];
    int count = 0;
    ask->prompts[at] = ids;
    if (prompt->kind == JSON_STRING)
        count =
            ignis_tokenizer_encode(engine.tokenizer, prompt->string, (int64_t)prompt->size, NULL, ids, engine.context);
    for (one = prompt->first; one; one = one->next, count++) {
        if (one->kind != JSON_NUMBER || one->number != floor(one->number) || one->number < 0 ||
            one->number >= engine.tokens) {
            if (many)
                snprintf(path, sizeof path, "prompt[%d][%d]", at, count);
            else
                snprintf(path, sizeof path, "prompt[%d]", count);
            return refuse_value(c, path, one, "the id of a token, 0 to %d", engine.tokens - 1);
        }
        if (count < engine.context)
            ids[count] = (int32_t)one->number;
    }
    ask->counts[at] = count;
    return true;
}

/*  Reads a prompt, or an array of them: each is a text, or an array of ids. */
static bool read_prompts(connection *c, const json *prompt)
{
    request *ask = c->ask;
    const json *one = prompt;
    bool many = prompt && prompt->kind == JSON_ARRAY && prompt->count && prompt->first->kind != JSON_NUMBER;
    int i, count = many ? prompt->count : 1;
    if (count > MAX_JOBS)
        return refuse(c, 400, "prompt", "prompt has %d prompts; expected at most %d", count, MAX_JOBS);
    ask->prompts = (int32_t **)allocate((size_t)count, sizeof *ask->prompts);
    ask->counts = (int *)allocate((size_t)count, sizeof *ask->counts);
    ask->prompt_count = count;
    one = many ? prompt->first : prompt;
    for (i = 0; i < count; i++, one = many ? one->next : NULL) {
        if (!one || (one->kind != JSON_STRING && (one->kind != JSON_ARRAY || !one->count)))
            return refuse_value(c, "prompt", prompt, "a string, an array of ids of tokens, or an array of these");
        if (!read_prompt(c, one, i, many))
            return false;
    }
    return true;
}

/*  Checks the grammar of the answer. False if it is refused. */
static bool take_grammar(connection *c, const char *name)
{
    if (ignis_grammar_check(c->ask->grammar.data) == IGNIS_OK)
        return true;
    refuse(c, 400, name, "%s", ignis_status_message());
    ignis_status_clear();
    return false;
}

/*  Reads the format of the answer: {"type": "text"}, "json_object", or "json_schema" with {"schema": ...}. */
static bool read_format(connection *c, const json *format, const char *name)
{
    const json *type = member(format, "type"), *schema = member(format, "json_schema");
    text *grammar = &c->ask->grammar;
    if (is_text(type, "text"))
        return true;
    schema = member(schema ? schema : format, "schema"); /* /v1/responses has it beside the type */
    if (is_text(type, "json_object"))
        text_print(grammar, "{\"type\":\"object\"}");
    else if (is_text(type, "json_schema") && schema && schema->kind == JSON_OBJECT)
        json_print(grammar, schema);
    else
        return refuse_value(c, name, format,
                            "an object whose type is text, json_object, or json_schema with an object as schema");
    return is_text(type, "json_object") || take_grammar(c, name);
}

/*  Reads a grammar of llama.cpp, or a schema. */
static bool read_grammar(connection *c, const json *body)
{
    const json *grammar = member(body, "grammar"), *schema = member(body, "json_schema"),
               *format = member(body, "response_format"), *own = member(body, "text");
    const char *name = grammar ? "grammar" : "json_schema";
    own = own ? member(own, "format") : NULL;
    if (format && !read_format(c, format, "response_format"))
        return false;
    if (own && c->ask->kind == RESPONSES && !read_format(c, own, "text.format"))
        return false;
    if (c->ask->kind == RESPONSES || (!grammar && !schema) ||
        (grammar && grammar->kind == JSON_STRING && !grammar->size))
        return true;
    if (c->ask->grammar.size || (grammar && schema))
        return refuse(c, 400, name, "%s is one of several grammars; expected response_format, grammar or json_schema",
                      name);
    if ((grammar && grammar->kind != JSON_STRING) || (schema && schema->kind != JSON_OBJECT))
        return refuse_value(c, name, grammar ? grammar : schema, grammar ? "a string" : "an object");
    if (grammar)
        text_add(&c->ask->grammar, grammar->string, grammar->size);
    else
        json_print(&c->ask->grammar, schema);
    return take_grammar(c, name);
}

/*  Returns the number of the adapters that a model's name asks for; -1 for any other name, which is the model's. */
static int find_adapter(const json *model)
{
    int i;
    for (i = 0; i < engine.adapter_count; i++)
        if (is_text(model, engine.adapters[i].name))
            return i;
    return -1;
}

/*  Reads texts of which vectors are asked for: one, or an array of them; ids of tokens become text again. */
static bool read_inputs(connection *c, const json *input)
{
    request *ask = c->ask;
    const json *format = member(ask->values, "encoding_format"), *one;
    bool many = input && input->kind == JSON_ARRAY && input->count && input->first->kind != JSON_NUMBER;
    int i, count = many ? input->count : 1;
    if (format && !is_text(format, "float") && !is_text(format, "base64"))
        return refuse_value(c, "encoding_format", format, "float or base64");
    if (!input)
        return refuse_value(c, "input", input, "a string, an array of ids of tokens, or an array of these");
    if (count > MAX_TEXTS)
        return refuse(c, 400, "input", "input has %d texts; expected at most %d", count, MAX_TEXTS);
    ask->base64 = is_text(format, "base64");
    ask->texts = (char **)allocate((size_t)count, sizeof *ask->texts);
    ask->text_count = count;
    ask->vectors = (float *)allocate((size_t)count * (size_t)engine.hidden, sizeof *ask->vectors);
    ask->counts = (int *)allocate(1, sizeof *ask->counts); /* of all texts together */
    for (i = 0, one = many ? input->first : input; i < count; i++, one = one->next) {
        text copy = {0};
        char path[40] = "input";
        int tokens = 0;
        if (many)
            snprintf(path, sizeof path, "input[%d]", i);
        if (one->kind == JSON_STRING)
            text_add(&copy, one->string, one->size);
        else if (one->kind != JSON_ARRAY || !one->count || !decode_tokens(one, &copy))
            return refuse_value(c, path, one, "a string, or an array of ids of tokens, 0 to %d", engine.tokens - 1);
        ask->texts[i] = copy.data;
        tokens = ignis_tokenizer_encode(engine.tokenizer, copy.data, (int64_t)copy.size, NULL, NULL, 0);
        if (tokens < 1 || tokens > engine.context) {
            ignis_status_clear();
            return refuse(c, 400, "input", "%s has %d tokens; expected 1 to %d", path, tokens, engine.context);
        }
        ask->counts[0] += tokens;
    }
    return true;
}

/*  Reads the parameters that the table leaves to code. */
static bool read_rest(connection *c, const json *body)
{
    request *ask = c->ask;
    const json *model = member(body, "model"), *logprobs = member(body, "logprobs");
    const json *streamed = member(body, "stream_options"), *usage = member(streamed, "include_usage");
    if (model && model->kind != JSON_STRING)
        return refuse_value(c, "model", model, "a string");
    ask->adapter = find_adapter(model);
    if (!read_grammar(c, body))
        return false;
    if (streamed && streamed->kind != JSON_OBJECT)
        return refuse_value(c, "stream_options", streamed, "an object");
    if (usage && usage->kind != JSON_TRUE && usage->kind != JSON_FALSE)
        return refuse_value(c, "stream_options.include_usage", usage, "true or false");
    if (ask->kind == TEXT && logprobs) {
        if (logprobs->kind != JSON_NUMBER || logprobs->number != floor(logprobs->number) || logprobs->number < 0 ||
            logprobs->number > MAX_TOPS)
            return refuse_value(c, "logprobs", logprobs, "an integer from 0 to %d", MAX_TOPS);
        ask->logprobs = true;
        ask->top_logprobs = (int64_t)logprobs->number;
    }
    if (ask->kind == CHAT && ask->top_logprobs && !ask->logprobs)
        return refuse(c, 400, "top_logprobs", "top_logprobs is %d; expected logprobs to be true beside it",
                      (int)ask->top_logprobs);
    ask->logprobs = ask->logprobs || ask->top_logprobs;
    if (ask->top_logprobs > engine.vocab)
        ask->top_logprobs = engine.vocab;
    ask->usage = usage && usage->kind == JSON_TRUE;
    if (!read_seed(c, member(body, "seed")) || !read_stops(c, member(body, "stop")) ||
        !read_biases(c, member(body, "logit_bias")))
        return false;
    if (ask->kind == EMBED)
        return read_inputs(c, member(body, "input"));
    if (engine.is_encoder)
        return refuse(c, 400, NULL, "this model is an encoder, which writes no text; expected /v1/embeddings");
    return ask->kind == CHAT        ? read_chat(c, body)
           : ask->kind == RESPONSES ? read_responses(c, body)
                                    : read_prompts(c, member(body, "prompt"));
}

/*  Returns another number for each request. */
static uint64_t random_number(const connection *c)
{
    struct timespec now;
    uint64_t x;
    clock_gettime(CLOCK_REALTIME, &now);
    x = ((uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec + (uint64_t)(uintptr_t)c) * 0x9E3779B97F4A7C15u;
    return (x ^ x >> 29) >> 12;
}

/*  Makes the jobs of a request: `choices` for each prompt. Their seeds differ, so that their texts do. */
static bool make_jobs(connection *c)
{
    request *ask = c->ask;
    /* the name of a tool, and what follows it */
    int reserve = ask->forced && !ask->forced_tool ? ask->middle_count + 64 : 0;
    int i, k, count = ask->kind == EMBED ? 1 : ask->prompt_count * (int)ask->choices;
    const char *name = ask->kind == CHAT ? "messages" : ask->kind == RESPONSES ? "input" : "prompt";
    if (count > MAX_JOBS)
        return refuse(c, 400, "n", "prompts times n is %d; expected at most %d", count, MAX_JOBS);
    for (i = 0; i < ask->prompt_count; i++) {
        if (ask->counts[i] <= 0) {
            refuse(c, 400, name, "%s: %s", name,
                   ask->counts[i] ? ignis_status_message() : "the prompt has no tokens; expected one at least");
            ignis_status_clear();
            return false;
        }
        if (ask->counts[i] + reserve + (ask->max_tokens > 0) > engine.context)
            return refuse(
                c, 400, name,
                "%s: the prompt has %d tokens; expected at most %d, which the context has room for beside one "
                "of the answer",
                name, ask->counts[i], engine.context - 1 - reserve);
    }
    ask->jobs = (job *)allocate((size_t)count, sizeof *ask->jobs);
    ask->job_count = ask->open = count;
    for (i = 0; i < count; i++) {
        job *j = &ask->jobs[i];
        k = i / (int)ask->choices;
        j->ask = ask;
        j->index = i;
        if (ask->kind == EMBED)
            continue;
        j->ids = ask->prompts[k];
        j->count = ask->counts[k];
        j->leader = i % ask->choices ? &ask->jobs[k * (int)ask->choices] : NULL;
        k = engine.context - j->count - reserve;
        j->most = ask->max_tokens < k ? (int)ask->max_tokens : k;
        j->sampling = ask->sampling;
        j->sampling.seed += (uint64_t)(i % ask->choices);
        if (ask->presence != 0 || ask->frequency != 0) {
            j->biases = (ignis_logit_bias *)allocate(MAX_BIASES, sizeof *j->biases);
            j->uses = (int *)allocate(MAX_BIASES, sizeof *j->uses);
            memcpy(j->biases, ask->biases, sizeof ask->biases);
            j->sampling.biases = j->biases;
        }
        j->parser.form = engine.form;
        j->parser.tools = ask->tools;
        j->parser.put = put_piece;
        j->parser.to = j;
        if (ask->kind & (CHAT | RESPONSES))
            parser_begin(&j->parser, ask->thought);
    }
    return true;
}

/*  Reads the body, as JSON. */
static bool read_json(connection *c)
{
    request *ask = c->ask;
    json_reader r;
    bool ok;
    text_add(&c->body, "", 0);
    ok = json_read(&r, &c->body);
    ask->values = r.values;
    if (!ok)
        return refuse(c, 400, NULL, "the body is not JSON: %s at byte %ld", r.error, (long)(r.at - c->body.data));
    if (r.values->kind != JSON_OBJECT)
        return refuse(c, 400, NULL, "the body is JSON of another kind; expected an object");
    return true;
}

/*  Reads a request, and makes its jobs. */
static bool read_request(connection *c)
{
    request *ask = c->ask;
    ask->sampling.temperature = ask->sampling.top_p = 1; /* as OpenAI has them */
    ask->max_tokens = ask->kind == TEXT ? 16 : INT32_MAX;
    ask->choices = 1;
    ask->parallel = true;
    ask->sampling.seed = random_number(c);
    if (!read_json(c) || !read_parameters(c, ask->values) || !read_rest(c, ask->values))
        return false;
    ask->max_tokens = ask->max_tokens < 0 ? INT32_MAX : ask->max_tokens;
    ask->sampling.top_p = ask->sampling.top_p > 0 ? ask->sampling.top_p : 1e-9; /* for Ignis 0 is all */
    ask->sampling.top_k = (int)ask->top_k;
    return make_jobs(c);
}

static void request_free(request *ask)
{
    int i;
    for (i = 0; i < ask->job_count; i++) {
        job *j = &ask->jobs[i];
        growth_free(&j->news), growth_free(&j->all);
        text_free(&j->held), text_free(&j->name), text_free(&j->parser.held);
        free(j->biases), free(j->uses);
    }
    for (i = 0; i < ask->prompt_count; i++)
        free(ask->prompts[i]);
    for (i = 0; i < ask->text_count; i++)
        free(ask->texts[i]);
    free(ask->prompts), free(ask->counts), free(ask->jobs), free(ask->middle), free(ask->texts), free(ask->vectors);
    free(ask->values), free(ask->own_values);
    text_free(&ask->grammar), text_free(&ask->variables), text_free(&ask->ignored), text_free(&ask->own_text);
    text_free(&ask->head);
}
