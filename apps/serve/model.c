// SPDX-License-Identifier: MIT
/*  model.c - the model: how it is opened, what its chat template does with tools; and the end of a job */

static struct engine {
    ignis_model model;
    ignis_tokenizer tokenizer;
    int context, tokens, vocab, hidden;
    bool is_encoder;  /* its texts have vectors, and no next token */
    int32_t ends[17]; /* tokens that end an answer */
    int end_count;
    bool talks;                /* there is a chat template, */
    bool has_results;          /* which writes results of calls, */
    bool has_calls;            /* which writes calls, */
    bool has_tools;            /* which writes the tools that it is given, */
    bool wants_text;           /* and takes the arguments of calls as text */
    const call_form *form;     /* of calls */
    gaps call_gaps, text_gaps; /* around the end of reasoning, if a call follows it, and if text does */
    text asked, lead;          /* behind a question without reasoning; between that and a call */
    text name;                 /* of the model, as inside of a JSON string */
    float *logits;             /* of one token */
    struct {
        char *name;
        ignis_lora lora;
    } adapters[MAX_ADAPTERS];
    int adapter_count;
    time_t started;
} engine;

/*  Chooses the number of sequences, where nobody has said it: of 64, 32, 16 and 8 the most that leave a tenth of what
    is free. */
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

/*  Prints the progress of the warm-up, once a second. */
static bool show_progress(int done, int total, void *user_data)
{
    double *last = (double *)user_data, now = seconds();
    if (now - *last < 1)
        return true;
    *last = now;
    fprintf(stderr, "serve: warming up, %d of %d\n", done, total);
    return true;
}

/*  Members of an answer in a probe: a call of a tool. */
#define PROBE_CALL(arguments)                                                                                    \
    "\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdefgh1\",\"type\":\"function\",\"function\":{\"name\":\"the_" \
    "name\","                                                                                                    \
    "\"arguments\":" arguments "}}]"
#define PROBE_OBJECT "{\"the_key\":\"v1\"}"
#define PROBE_TEXT "\"{\\\"the_key\\\": \\\"v1\\\"}\""
#define PROBE_THOUGHT "\"reasoning_content\":\"the_thought\","

/*  Renders a talk with a tool and an answer, and a result of the tool if the answer calls it; NULL if it fails. answer:
    its members; NULL: the talk ends with the question. The caller frees it. */
static char *render_probe(const char *answer)
{
    static const ignis_message none = {"user", ""};
    ignis_chat_desc desc = {.add_generation_prompt = true};
    text variables = {0};
    char *out = NULL;
    int64_t size;
    text_print(&variables,
               "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"the_name\",\"description\":\"d\","
               "\"parameters\":{\"type\":\"object\",\"properties\":{\"the_key\":{\"type\":\"string\"}}}}}],"
               "\"messages\":[{\"role\":\"user\",\"content\":\"the_question\"}");
    if (answer)
        text_print(&variables, ",{\"role\":\"assistant\",%s}", answer);
    if (answer && strstr(answer, "tool_calls"))
        text_print(&variables, ",{\"role\":\"tool\",\"name\":\"the_name\",\"tool_call_id\":\"abcdefgh1\",\"content\":"
                               "\"the_result\"}");
    text_print(&variables, "]}");
    desc.json = variables.data;
    size = ignis_chat_render(engine.tokenizer, &none, 1, &desc, NULL, 0);
    if (size >= 0) {
        out = (char *)allocate((size_t)size + 1, 1);
        ignis_chat_render(engine.tokenizer, &none, 1, &desc, out, size);
    }
    ignis_status_clear();
    text_free(&variables);
    return out;
}

/*  Finds out what the template has between a question and a call without reasoning. */
static void probe_lead(const char *question, const char *calls)
{
    const char *end = question ? strstr(question, "the_question") : NULL;
    size_t size = question ? strlen(question) : 0;
    if (!end || !calls || !engine.form->open || *engine.form->open == '|' || strncmp(calls, question, size) != 0)
        return;
    text_add(&engine.lead, calls + size, lead_length(calls + size, engine.form));
    text_print(&engine.asked, "%s", end + strlen("the_question"));
}

/*  Finds out what the chat template does with tools and reasoning, and in which form the model writes calls. */
static void probe_template(void)
{
    static const char *const thoughtful[] = {PROBE_THOUGHT PROBE_CALL(PROBE_OBJECT),
                                             PROBE_THOUGHT PROBE_CALL(PROBE_TEXT)};
    char *tools = render_probe(NULL), *calls = render_probe(PROBE_CALL(PROBE_OBJECT)), *thought, *words;
    const char *closed;
    if (!calls || !strstr(calls, "v1")) {
        free(calls);
        calls = render_probe(PROBE_CALL(PROBE_TEXT));
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
        refuse_option("--calls", settings.form, "a form such as hermes, llama3 or glm");
    thought = render_probe(thoughtful[engine.wants_text]);
    words = render_probe(PROBE_THOUGHT "\"content\":\"the_words\"");
    find_gaps(words, "the_words", &engine.text_gaps);
    engine.call_gaps = engine.text_gaps;
    probe_lead(tools, calls);
    closed = engine.asked.size ? closed_thought(engine.asked.data, engine.asked.size) : NULL;
    if (!find_gaps(thought, NULL, &engine.call_gaps) && closed && calls) /* a template that leaves reasoning out */
        snprintf(engine.call_gaps.behind, sizeof engine.call_gaps.behind, "%s%.*s", closed, (int)engine.lead.size,
                 engine.lead.size ? engine.lead.data : "");
    free(tools), free(calls), free(thought), free(words);
}

/*  Finds the markers of calls that are control tokens. */
static void find_controls(void)
{
    ignis_decode_desc plain = {.control = false};
    char piece[sizeof controls->text];
    int32_t id;
    for (id = 0; id < engine.tokens && engine.form->pair && control_count < MAX_CONTROLS; id++) {
        int size = ignis_tokenizer_piece(engine.tokenizer, id, piece, (int)sizeof piece - 1);
        if (size < 2 || size >= (int)sizeof piece)
            continue;
        piece[size] = 0;
        if (!is_marker(engine.form, piece) || ignis_tokenizer_decode(engine.tokenizer, &id, 1, &plain, NULL, 0) != 0)
            continue;
        memcpy(controls[control_count].text, piece, sizeof piece);
        controls[control_count++].id = id;
    }
    ignis_status_clear();
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
            refuse_option("--adapters", settings.adapters, "name=folder,name=folder, at most %d", MAX_ADAPTERS);
        both[name] = 0;
        if (strpbrk(both, "\"\\"))
            refuse_option("--adapters", settings.adapters, "names without quotation marks and backslashes");
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
        refuse_option("--cache", settings.cache, "numbers, f8, q8_0 or q4_0");
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
    engine.call_gaps = engine.text_gaps = usual_gaps;
    if (engine.talks)
        probe_template(), find_controls();
    engine.logits = (float *)allocate((size_t)info.vocab, sizeof *engine.logits);
    engine.started = time(NULL);
    text_escape(&engine.name, settings.name, strlen(settings.name));
}

/*  Ends a job. finish: NULL, if a call of Ignis has failed. Returns false, for the caller to return. */
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
