// SPDX-License-Identifier: MIT
/*  lists.c - what the server says of itself: health, models, properties, metrics; tokens of a text and back */

/*  Returns the name of the model or the adapter that answers a request, as inside of a JSON string. */
static const char *model_name(const request *ask)
{
    return ask->adapter >= 0 ? engine.adapters[ask->adapter].name : engine.name.data;
}

/*  Prints the id of a call, by its request: 9 letters and digits, which Mistral's templates ask for. */
static void print_call_id(text *t, const char *format, const job *j, int number)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    uint64_t x = (j->ask->id + (uint64_t)j->index * 1000003u + (uint64_t)number) * 0x9E3779B97F4A7C15u;
    char id[10] = "";
    int i;
    x ^= x >> 32;
    for (i = 0; i < 9; i++, x /= 36)
        id[i] = digits[x % 36];
    text_print(t, format, id);
}

/* --- times ------------------------------------------------------------------------------------------------------- */

/*  Histograms, as Prometheus has them. */
static const double bounds[] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
typedef struct histogram {
    const char *name, *help;
    int64_t counts[COUNT(bounds) + 1], count;
    double sum;
} histogram;
static histogram first_times = {"serve_time_to_first_token_seconds", "from a request to its first token", {0}, 0, 0};
static histogram all_times = {"serve_request_seconds", "from a request to the end of its answer", {0}, 0, 0};

/*  Counts a time. Under the lock. */
static void add_time(histogram *h, double time)
{
    size_t i = 0;
    while (i < COUNT(bounds) && time > bounds[i])
        i++;
    h->counts[i]++;
    h->count++;
    h->sum += time;
}

static void record_times(const request *ask)
{
    double first = INFINITY;
    int i;
    for (i = 0; i < ask->job_count; i++)
        if (ask->jobs[i].first_at > 0 && ask->jobs[i].first_at < first)
            first = ask->jobs[i].first_at;
    pthread_mutex_lock(&shared.lock);
    add_time(&all_times, seconds() - ask->asked_at);
    if (first < INFINITY)
        add_time(&first_times, first - ask->asked_at);
    pthread_mutex_unlock(&shared.lock);
}

/* --- routes ------------------------------------------------------------------------------------------------------ */

static void count_jobs(int *running, int *waiting)
{
    int jobs;
    pthread_mutex_lock(&shared.lock);
    jobs = shared.jobs;
    pthread_mutex_unlock(&shared.lock);
    *running = jobs < settings.sequences ? jobs : (int)settings.sequences;
    *waiting = jobs - *running;
}

static void answer_health(connection *c)
{
    int running, waiting;
    count_jobs(&running, &waiting);
    text_cut(&c->part, c->part.size);
    text_print(&c->part, "{\"status\":\"ok\",\"running\":%d,\"waiting\":%d}", running, waiting);
    respond(c, 200, "application/json", c->part.data);
}

static void print_model(text *t, const char *name)
{
    text_print(t, "{\"id\":\"%s\",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"ignis\",\"max_model_len\":%d}",
               name, (long long)engine.started, engine.context);
}

static void answer_models(connection *c)
{
    int i;
    text_cut(&c->part, c->part.size);
    text_print(&c->part, "{\"object\":\"list\",\"data\":[");
    print_model(&c->part, engine.name.data);
    for (i = 0; i < engine.adapter_count; i++)
        text_print(&c->part, ","), print_model(&c->part, engine.adapters[i].name);
    text_print(&c->part, "]}");
    respond(c, 200, "application/json", c->part.data);
}

static void answer_model(connection *c)
{
    const char *name = strcmp(c->rest, settings.name) == 0 ? engine.name.data : NULL;
    int i;
    for (i = 0; i < engine.adapter_count; i++)
        if (strcmp(c->rest, engine.adapters[i].name) == 0)
            name = engine.adapters[i].name;
    if (!name) {
        refuse(c, 404, "model", "the model is %.100s; expected %.200s, or an adapter of it", c->rest, settings.name);
        return;
    }
    text_cut(&c->part, c->part.size);
    print_model(&c->part, name);
    respond(c, 200, "application/json", c->part.data);
}

static void answer_props(connection *c)
{
    text *t = &c->part;
    text_cut(t, t->size);
    text_print(t, "{\"default_generation_settings\":{\"n_ctx\":%d},\"total_slots\":%d,\"model_path\":\"",
               engine.context, (int)settings.sequences);
    text_escape(t, settings.path, strlen(settings.path));
    text_print(t, "\",\"model_alias\":\"%s\",\"tool_calls\":\"%s\",\"template_has_tools\":%s,", engine.name.data,
               engine.talks ? engine.form->name : "", engine.has_tools ? "true" : "false");
    text_print(t, "\"vocabulary\":%d,\"build_info\":\"ignis-%s\"}", engine.vocab, ignis_version_string());
    respond(c, 200, "application/json", t->data);
}

static void print_metric(text *t, const char *name, const char *type, const char *help, double value)
{
    text_print(t, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, type, name, value);
}

static void print_histogram(text *t, const histogram *h)
{
    int64_t count = 0;
    size_t i;
    text_print(t, "# HELP %s %s\n# TYPE %s histogram\n", h->name, h->help, h->name);
    for (i = 0; i < COUNT(bounds); i++) {
        count += h->counts[i];
        text_print(t, "%s_bucket{le=\"%g\"} %lld\n", h->name, bounds[i], (long long)count);
    }
    text_print(t, "%s_bucket{le=\"+Inf\"} %lld\n%s_sum %.9g\n%s_count %lld\n", h->name, (long long)h->count, h->name,
               h->sum, h->name, (long long)h->count);
}

static void answer_metrics(connection *c)
{
    text *t = &c->part;
    size_t i;
    int running, waiting;
    count_jobs(&running, &waiting);
    text_cut(t, t->size);
    print_metric(t, "serve_running", "gauge", "texts that are being answered", running);
    print_metric(t, "serve_waiting", "gauge", "texts that wait", waiting);
    pthread_mutex_lock(&shared.lock);
    print_metric(t, "serve_connections", "gauge", "open connections", shared.connection_count);
    print_metric(t, "serve_prompt_tokens_total", "counter", "tokens of prompts that were computed",
                 (double)shared.prompt_tokens);
    print_metric(t, "serve_found_tokens_total", "counter", "tokens of prompts that earlier requests had computed",
                 (double)shared.found_tokens);
    print_metric(t, "serve_generated_tokens_total", "counter", "tokens of answers", (double)shared.drawn_tokens);
    print_metric(t, "serve_dropped_total", "counter", "texts whose client has left, or that took too long",
                 (double)shared.dropped);
    print_metric(t, "serve_failed_total", "counter", "texts that have failed", (double)shared.failed);
    print_histogram(t, &first_times);
    print_histogram(t, &all_times);
    pthread_mutex_unlock(&shared.lock);
    text_print(t, "# HELP serve_answers_total answers by HTTP status\n# TYPE serve_answers_total counter\n");
    for (i = 0; i < COUNT(statuses); i++)
        text_print(t, "serve_answers_total{status=\"%d\"} %lld\n", statuses[i].number,
                   (long long)__atomic_load_n(&answered[i], __ATOMIC_RELAXED));
    respond(c, 200, "text/plain; version=0.0.4; charset=utf-8", t->data);
}
