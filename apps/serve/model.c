// SPDX-License-Identifier: MIT
/*  model.c - the model: how it is opened, what its chat template does with tools; and the end of a job */

static struct engine {
    ignis_model model;
    ignis_tokenizer tokenizer;
    int context, tokens, vocab, hidden;
    bool is_encoder;  /* its texts have vectors, and no next token */
    int32_t ends[17]; /* tokens that end an answer */
    int end_count;
    bool talks;            /* there is a chat template, */
    bool has_results;      /* which writes results of calls, */
    bool has_calls;        /* which writes calls, */
    bool has_tools;        /* which writes the tools that it is given, */
    bool wants_text;       /* and takes the arguments of calls as text */
    const call_form *form; /* of calls */
    text name;             /* of the model, as inside of a JSON string */
    float *logits;         /* of one token */
    struct {
        char *name;
        ignis_lora lora;
    } adapters[MAX_ADAPTERS];
    int adapter_count;
    time_t started;
} engine;

/*  How many sequences there is memory for, where nobody has said it: of 64, 32, 16 and 8 the most that leave a tenth of
    what is free. */
static void choose_sequences(ignis_model_desc *desc)
{
    ignis_model_info info;
    ignis_memory_info memory;
    if (settings.sequences)
        return;
    for (settings.sequences = 64; settings.sequences > 8; settings.sequences /= 2) {
        desc->sequences = (int)settings.sequences;
        if (ignis_model_inspect(desc, &info) != IGNIS_OK || ignis_memory_query(0, &memory) != IGNIS_OK ||
            (double)(info.weight_bytes + info.cache_bytes + info.workspace_bytes) < 0.9 * (double)memory.device_free)
            break;
    }
}

/*  Says how far it is, once a second. */
static bool show_progress(int done, int total, void *user_data)
{
    double *last = (double *)user_data, now = seconds();
    if (now - *last < 1)
        return true;
    *last = now;
    fprintf(stderr, "serve: warming up, %d of %d\n", done, total);
    return true;
}

/*  A talk with a tool and a call of it, as the template writes it; NULL if it fails. The caller frees it. */
static char *render_probe(const char *arguments)
{
    static const char *const roles[] = {"user", "assistant", "tool"};
    ignis_message messages[3] = {{roles[0], "U"}, {roles[1], ""}, {roles[2], "the_result"}};
    ignis_chat_desc desc = {.add_generation_prompt = true};
    text variables = {0};
    char *out = NULL;
    int64_t size;
    text_print(&variables,
               "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"the_name\",\"description\":\"d\","
               "\"parameters\":{\"type\":\"object\",\"properties\":{\"the_key\":{\"type\":\"string\"}}}}}],"
               "\"messages\":[{\"role\":\"user\",\"content\":\"U\"}");
    if (arguments)
        text_print(&variables,
                   ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdefgh1\",\"type\":"
                   "\"function\",\"function\":{\"name\":\"the_name\",\"arguments\":%s}}]},{\"role\":\"tool\",\"name\":"
                   "\"the_name\",\"tool_call_id\":\"abcdefgh1\",\"content\":\"the_result\"}",
                   arguments);
    text_print(&variables, "]}");
    desc.json = variables.data;
    size = ignis_chat_render(engine.tokenizer, messages, arguments ? 3 : 1, &desc, NULL, 0);
    if (size >= 0) {
        out = (char *)allocate((size_t)size + 1, 1);
        ignis_chat_render(engine.tokenizer, messages, arguments ? 3 : 1, &desc, out, size);
    }
    ignis_status_clear();
    text_free(&variables);
    return out;
}

/*  Finds out what the chat template does with tools, and in which form the model writes calls. */
static void probe_template(void)
{
    char *tools = render_probe(NULL), *calls = render_probe("{\"the_key\":\"v1\"}");
    if (!calls || !strstr(calls, "v1")) {
        free(calls);
        calls = render_probe("\"{\\\"the_key\\\": \\\"v1\\\"}\"");
        engine.wants_text = calls && strstr(calls, "v1");
    }
    engine.has_tools = tools && strstr(tools, "the_name");
    engine.has_calls = calls && strstr(calls, "v1");
    engine.has_results = calls && strstr(calls, "the_result");
    engine.form = settings.form                                     ? form_named(settings.form)
                  : calls && (engine.has_tools || engine.has_calls) ? find_form(calls)
                  : engine.has_tools                                ? find_form(tools)
                                                                    : form_named("hermes");
    if (!engine.form)
        give_up("no such form of calls: ", settings.form);
    free(tools), free(calls);
}

/*  Opens the adapters of "name=folder,name=folder". */
static void open_adapters(void)
{
    const char *at = settings.adapters;
    while (at && *at) {
        size_t size = strcspn(at, ","), name = strcspn(at, "=,");
        char *both = (char *)allocate(size + 1, 1);
        memcpy(both, at, size);
        if (name == 0 || name == size || engine.adapter_count == MAX_ADAPTERS)
            give_up("adapters are name=folder,name=folder, at most 64: ", both);
        both[name] = 0;
        if (strpbrk(both, "\"\\"))
            give_up("a name has no quotation marks: ", both);
        engine.adapters[engine.adapter_count].lora = ignis_lora_open(engine.model, both + name + 1);
        engine.adapters[engine.adapter_count++].name = both;
        at += size + (at[size] == ',');
    }
}

/*  Returns the type of the cache that --cache names. */
static ignis_cache_type cache_type(void)
{
    static const char *const names[] = {"numbers", "f8", "q8_0", "q4_0"};
    size_t i;
    for (i = 0; settings.cache && i < COUNT(names); i++)
        if (strcmp(names[i], settings.cache) == 0)
            return (ignis_cache_type)i;
    if (settings.cache)
        give_up("no type of a cache (numbers, f8, q8_0, q4_0): ", settings.cache);
    return IGNIS_CACHE_DEFAULT;
}

static void open_engine(void)
{
    ignis_model_desc desc = {.path = settings.path, .context = (int)settings.context, .cache_type = cache_type()};
    double begun = seconds();
    ignis_model_warmup_desc warmup = {.tokens = PIECE, .progress_fn = show_progress, .user_data = &begun};
    ignis_model_info info;
    ignis_tokenizer_info about;
    ignis_setup(NULL);
    choose_sequences(&desc);
    desc.sequences = (int)settings.sequences;
    engine.model = ignis_model_open(&desc);
    engine.tokenizer = ignis_model_tokenizer(engine.model);
    ignis_model_query(engine.model, &info);
    ignis_tokenizer_query(engine.tokenizer, &about);
    engine.hidden = info.hidden;
    engine.is_encoder = info.family == IGNIS_MODEL_BERT || info.family == IGNIS_MODEL_NOMIC_BERT ||
                        info.family == IGNIS_MODEL_ROBERTA || info.family == IGNIS_MODEL_XLM_ROBERTA;
    if (!engine.is_encoder)
        ignis_model_warmup(engine.model, &warmup);
    open_adapters();
    if (ignis_status_last() != IGNIS_OK)
        give_up("stopped by the error above", "");
    engine.context = info.context;
    engine.vocab = info.vocab;
    engine.tokens = about.tokens < info.vocab ? about.tokens : info.vocab;
    memcpy(engine.ends, info.ends, sizeof info.ends);
    engine.end_count = info.end_count;
    if (about.eos >= 0)
        engine.ends[engine.end_count++] = about.eos;
    engine.talks = about.has_template;
    engine.form = form_named("hermes");
    if (engine.talks)
        probe_template();
    engine.logits = (float *)allocate((size_t)info.vocab, sizeof *engine.logits);
    engine.started = time(NULL);
    text_escape(&engine.name, settings.name, strlen(settings.name));
}

/*  The end of a job. finish: NULL, if a call of Ignis has failed. False, for the caller to return. */
static bool job_end(job *j, const char *finish)
{
    request *ask = j->ask;
    if (!finish)
        snprintf(j->message, sizeof j->message, "%s", ignis_status_message());
    ignis_status_clear();
    if (j->sequence.id)
        ignis_sequence_free(j->sequence);
    j->sequence.id = 0;
    pthread_mutex_lock(&shared.lock);
    job_leave(j);
    shared.prompt_tokens += j->fed - j->found;
    shared.found_tokens += j->found;
    shared.drawn_tokens += j->drawn;
    shared.dropped += j->unwanted;
    shared.failed += !finish && !j->unwanted;
    pthread_mutex_unlock(&shared.lock);
    pthread_mutex_lock(&ask->lock);
    j->finish = finish;
    j->done = true;
    ask->open--;
    pthread_cond_signal(&ask->news);
    pthread_mutex_unlock(&ask->lock); /* from here on it may be gone */
    return false;
}

static void put_piece(void *to, piece_kind kind, const char *data, size_t size)
{
    job *j = (job *)to;
    growth_add(&j->news, kind, data, size);
    j->calls += kind == PIECE_CALL;
}
