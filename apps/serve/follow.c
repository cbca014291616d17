// SPDX-License-Identifier: MIT
/*  follow.c - a request from its jobs' begin to the end of its answer */

/*  The form of an answer: its events, and the whole of it in c->part. */
static const struct answer_form {
    int kind;
    const char *prefix; /* of ids */
    void (*news)(connection *c, job *j, growth *g, bool ends);
    void (*end)(connection *c);
    void (*whole)(connection *c);
} answer_forms[] = {
    {TEXT, "cmpl", put_news, put_end, print_whole},
    {CHAT, "chatcmpl", put_news, put_end, print_whole},
    {NATIVE, "cmpl", put_native, put_nothing, print_native_whole},
    {RESPONSES, "resp", put_responses, put_responses_end, print_responses_whole},
    {EMBED, "embd", NULL, NULL, print_vectors},
};

/*  Puts the jobs in the list, if there is room for all. */
static bool enlist(connection *c)
{
    request *ask = c->ask;
    job **last = &shared.first;
    int64_t most = settings.sequences + settings.queue;
    int i;
    bool ok;
    if (interrupted())
        return refuse(c, 503, NULL, "the server is shutting down");
    pthread_mutex_lock(&shared.lock);
    ok = shared.jobs + ask->job_count <= most;
    if (ok) {
        while (*last)
            last = &(*last)->next;
        for (i = 0; i < ask->job_count; i++) {
            *last = &ask->jobs[i];
            last = &ask->jobs[i].next;
        }
        shared.jobs += ask->job_count;
        pthread_cond_signal(&shared.wake_model);
    }
    pthread_mutex_unlock(&shared.lock);
    return ok ||
           refuse(c, 429, NULL, "%d requests are running or waiting, which is as many as this server takes", (int)most);
}

/*  Sends the growth of the jobs. Under the request's lock, which is released around the sending. */
static bool put_all_news(connection *c, const struct answer_form *form)
{
    request *ask = c->ask;
    bool some = false;
    int i;
    for (i = 0; i < ask->job_count; i++) {
        job *j = &ask->jobs[i];
        bool ends = j->done && j->finish;
        growth news;
        if (j->ended || !(ends || j->news.count || j->news.tokens.size))
            continue;
        news = take_news(j);
        pthread_mutex_unlock(&ask->lock);
        form->news(c, j, &news, ends);
        j->ended = ends;
        growth_free(&news);
        some = true;
        pthread_mutex_lock(&ask->lock);
    }
    return some;
}

/*  Takes the jobs back: those that wait leave the list, and those that run leave it at the end of a step. */
static void drop_jobs(request *ask)
{
    int i;
    pthread_mutex_lock(&shared.lock);
    for (i = 0; i < ask->job_count; i++) {
        job *j = &ask->jobs[i];
        j->dropped = true;
        if (j->begun)
            continue;
        job_leave(j);
        shared.dropped++;
        pthread_mutex_lock(&ask->lock);
        j->done = true;
        ask->open--;
        pthread_mutex_unlock(&ask->lock);
    }
    pthread_mutex_unlock(&shared.lock);
    pthread_mutex_lock(&ask->lock);
    while (ask->open)
        pthread_cond_wait(&ask->news, &ask->lock);
    pthread_mutex_unlock(&ask->lock);
}

/*  Waits until the jobs have ended. Sends their texts as they grow if the client wants a stream, and drops the jobs if
    the client leaves. Returns NULL, or why they were dropped. */
static const char *follow(connection *c, const struct answer_form *form)
{
    request *ask = c->ask;
    double until = seconds() + (double)settings.answer_time;
    const char *late = NULL;
    pthread_mutex_lock(&ask->lock);
    while (ask->open && !late && !c->gone) {
        if (!ask->stream || !put_all_news(c, form))
            if (ask->open)
                nap(&ask->news, &ask->lock);
        pthread_mutex_unlock(&ask->lock);
        flush(c);
        if (c->in.size <= MAX_HEAD) /* a little of the next request, to see whether the client is there */
            fetch(c);
        late = seconds() > stop_time() ? "the server is shutting down"
               : seconds() > until     ? "the answer has taken longer than this server allows"
                                       : NULL;
        pthread_mutex_lock(&ask->lock);
    }
    if (!ask->open)
        late = NULL;
    pthread_mutex_unlock(&ask->lock);
    drop_jobs(ask);
    return late;
}

/*  Returns the error of a job, or NULL. */
static const char *failure_of(const request *ask)
{
    int i;
    for (i = 0; i < ask->job_count; i++)
        if (!ask->jobs[i].finish)
            return ask->jobs[i].message;
    return NULL;
}

static void answer_jobs(connection *c, const struct answer_form *form)
{
    request *ask = c->ask;
    const char *late = follow(c, form), *error = late ? late : failure_of(ask);
    c->keep = c->keep && !late;
    record_times(ask);
    if (!c->begun && error) {
        refuse(c, late ? 503 : 500, NULL, "%s", error);
    } else if (!ask->stream) {
        form->whole(c);
        respond(c, 200, "application/json", c->part.data);
    } else {
        pthread_mutex_lock(&ask->lock);
        put_all_news(c, form);
        pthread_mutex_unlock(&ask->lock);
        if (error)
            put_event(c, NULL, make_error(c, late ? 503 : 500, NULL, error));
        else
            form->end(c);
        text_print(&c->out, c->old ? "" : "0\r\n\r\n");
        flush(c);
    }
}

/*  Makes jobs of the request, and answers with their results. */
static void answer_text(connection *c)
{
    const struct answer_form *form = answer_forms;
    request ask;
    memset(&ask, 0, sizeof ask);
    pthread_mutex_init(&ask.lock, NULL);
    pthread_cond_init(&ask.news, NULL);
    ask.kind = c->route->kind;
    ask.key = c->key;
    ask.adapter = -1;
    ask.asked_at = seconds();
    while (!(form->kind & ask.kind))
        form++;
    c->ask = &ask;
    c->created = time(NULL);
    snprintf(c->id, sizeof c->id, "%s-%013llx", form->prefix, (unsigned long long)(ask.id = random_number(c)));
    if (read_request(c) && enlist(c))
        answer_jobs(c, form);
    c->ask = NULL;
    request_free(&ask);
    pthread_cond_destroy(&ask.news);
    pthread_mutex_destroy(&ask.lock);
}
