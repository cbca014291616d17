// SPDX-License-Identifier: MIT
/*  engine.c - the model and its thread, which advances all running jobs together */

static struct engine {
    ignis_model model;
    ignis_tokenizer tokenizer;
    int context, tokens;
    int32_t ends[17]; /* tokens that end an answer */
    int end_count;
    bool talks;
    text name; /* of the model, as inside of a JSON string */
    time_t started;
} engine;

/*  The end of a job. finish: null, if a call of Ignis has failed. False, for the caller to return. */
static bool job_end(job *j, const char *finish)
{
    if (!finish)
        snprintf(j->message, sizeof j->message, "%s", ignis_status_message());
    ignis_status_clear();
    if (j->sequence.id)
        ignis_sequence_free(j->sequence);
    pthread_mutex_lock(&shared.lock);
    job_leave(j);
    pthread_mutex_unlock(&shared.lock);
    pthread_mutex_lock(&j->lock);
    j->finish = finish;
    j->done = true;
    pthread_cond_signal(&j->news);
    pthread_mutex_unlock(&j->lock); /* from here on it may be gone */
    return false;
}

/*  Computes a piece of the prompt, if no other job has in this step. Whether the job is ready for a token. */
static bool job_feed(job *j, bool *fed)
{
    int piece = j->count - j->fed < PIECE ? j->count - j->fed : PIECE;
    if (j->unwanted)
        return job_end(j, NULL);
    if (!j->sequence.id && !(j->sequence = ignis_sequence_begin(engine.model)).id)
        return job_end(j, NULL);
    if (piece && !*fed) {
        *fed = true;
        if (ignis_sequence_feed(j->sequence, j->ids + j->fed, piece) != IGNIS_OK)
            return job_end(j, NULL);
        j->fed += piece;
        if (j->fed == j->count && j->grammar.size && ignis_sequence_grammar(j->sequence, j->grammar.data) != IGNIS_OK)
            return job_end(j, NULL);
    }
    return j->fed == j->count;
}

/*  The bytes of what is held that can go out: up to a stop string, or to what may become one, if more text comes. */
static size_t find_stop(const job *j, bool last, bool *stopped)
{
    size_t start, held = j->held.size, end = held;
    int i;
    for (start = 0; start < held; start++)
        for (i = 0; i < j->stop_count; i++) {
            size_t size = strlen(j->stops[i]), there = held - start;
            if (memcmp(j->held.data + start, j->stops[i], size < there ? size : there) != 0)
                continue;
            *stopped = size <= there;
            if (*stopped)
                return start;
            if (!last && start < end)
                end = start;
        }
    return end;
}

/*  A token as chats list it, and as completions do. Under the job's lock. */
static void add_log_prob(job *j, int32_t id)
{
    growth *g = &j->news_text;
    char piece[4096];
    const char *comma = g->tokens.size ? "," : "";
    ignis_sequence_info info = {0};
    int i, size = id < engine.tokens ? ignis_tokenizer_piece(engine.tokenizer, id, piece, (int)sizeof piece) : 0;
    size = size < 0 || size > (int)sizeof piece ? 0 : size;
    ignis_sequence_query(j->sequence, &info);
    info.log_prob = info.log_prob > -9999 ? info.log_prob : -9999;
    text_print(&g->tokens, j->chat ? "%s{\"token\":\"" : "%s\"", comma);
    text_escape(&g->tokens, piece, (size_t)size);
    text_print(&g->tokens, "\"");
    if (j->chat) {
        text_print(&g->tokens, ",\"logprob\":%.6g,\"bytes\":[", info.log_prob);
        for (i = 0; i < size; i++)
            text_print(&g->tokens, i ? ",%d" : "%d", (unsigned char)piece[i]);
        text_print(&g->tokens, "],\"top_logprobs\":[]}");
    }
    text_print(&g->log_probs, "%s%.6g", comma, info.log_prob);
    text_print(&g->offsets, "%s%zu", comma, j->offset);
}

/*  One more token. */
static void job_put(job *j, int32_t id)
{
    char piece[4096];
    bool ended = false, last, stopped = false;
    int i, size = 0;
    size_t release;
    for (i = 0; i < engine.end_count; i++)
        ended = ended || engine.ends[i] == id;
    if (!ended && id < engine.tokens) /* those behind them fill up the model's vocabulary, and are no text */
        size = ignis_text_stream_put(&j->characters, id, piece, (int)sizeof piece);
    if (size < 0 || size > (int)sizeof piece) {
        job_end(j, NULL);
        return;
    }
    pthread_mutex_lock(&j->lock);
    if (!ended)
        j->drawn++;
    if (!ended && j->logprobs)
        add_log_prob(j, id);
    last = ended || j->drawn >= j->max_tokens;
    text_add(&j->held, piece, (size_t)size);
    for (i = 0; i < size; i++)
        j->offset += (piece[i] & 0xC0) != 0x80; /* a character begins */
    if (last && (size = ignis_text_stream_end(&j->characters, piece, (int)sizeof piece)) > 0)
        text_add(&j->held, piece, (size_t)size);
    release = find_stop(j, last, &stopped);
    text_escape(&j->news_text.out, j->held.data, release);
    text_cut(&j->held, release);
    pthread_mutex_unlock(&j->lock);
    if (last || stopped)
        job_end(j, ended || stopped ? "stop" : "length");
    else if (j->stream)
        pthread_cond_signal(&j->news); /* nobody else has anything to do before the end */
}

/*  Steps: a piece of a prompt, then a token for each of the first jobs whose prompt is through. */
static void *run_model(void *unused)
{
    static job *jobs[MAX_SEQUENCES], *j;
    static ignis_sequence sequences[MAX_SEQUENCES];
    static ignis_sampling_desc sampling[MAX_SEQUENCES];
    static int32_t ids[MAX_SEQUENCES];
    (void)unused;
    for (;;) {
        int i, count = 0, ready = 0;
        bool fed = false, ok;
        pthread_mutex_lock(&shared.lock);
        while (!shared.quit && !shared.first)
            pthread_cond_wait(&shared.wake_model, &shared.lock);
        for (j = shared.first; j && count < (int)settings.sequences; j = j->next) {
            j->begun = true;
            j->unwanted = j->dropped;
            jobs[count++] = j;
        }
        pthread_mutex_unlock(&shared.lock);
        if (!count)
            return NULL; /* quit */
        for (i = 0; i < count; i++)
            if (job_feed(jobs[i], &fed)) {
                sequences[ready] = jobs[i]->sequence;
                sampling[ready] = jobs[i]->sampling;
                jobs[ready++] = jobs[i];
            }
        ok = ignis_sequence_next_all(sequences, ready, sampling, ids) == IGNIS_OK;
        if (!ok)
            ignis_status_clear();
        for (i = 0; i < ready; i++) {
            if (!ok && ids[i] < 0) /* those that have not gone on: each alone, so that only the guilty ones fail */
                ids[i] = ignis_sequence_next(sequences[i], &sampling[i]);
            if (ids[i] < 0)
                job_end(jobs[i], NULL);
            else
                job_put(jobs[i], ids[i]);
        }
    }
}

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

static void open_engine(void)
{
    ignis_model_desc desc = {.path = settings.path, .context = (int)settings.context};
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
    ignis_model_warmup(engine.model, &warmup);
    if (ignis_status_last() != IGNIS_OK)
        give_up("stopped by the error above", "");
    engine.context = info.context;
    engine.tokens = about.tokens < info.vocab ? about.tokens : info.vocab;
    memcpy(engine.ends, info.ends, sizeof info.ends);
    engine.end_count = info.end_count;
    if (about.eos >= 0)
        engine.ends[engine.end_count++] = about.eos;
    engine.talks = about.has_template;
    engine.started = time(NULL);
    text_escape(&engine.name, settings.name, strlen(settings.name));
}
