// SPDX-License-Identifier: MIT
/*  engine.c - the model's thread, which advances all running jobs together */

/*  Passes on text of a model, through the parser if it is a chat's. Under the request's lock. */
static void job_say(job *j, const char *data, size_t size, bool last)
{
    const request *ask = j->ask;
    if (ask->forced && j->chosen)
        put_piece(j, PIECE_ARGUMENTS, data, size);
    else if (ask->forced)
        text_add(&j->name, data, size);
    else if (ask->plain || !(ask->kind & (CHAT | RESPONSES)))
        put_piece(j, PIECE_TEXT, data, size);
    else
        parser_add(&j->parser, data, size, last);
}

/*  Begins the arguments of a forced call whose tool is known, held to its schema. */
static bool job_choose(job *j, const json *function)
{
    const json *schema = member(function, "parameters"), *name = member(function, "name");
    text grammar = {0};
    bool ok;
    print_schema(&grammar, schema);
    ok = ignis_sequence_grammar(j->sequence, grammar.data) == IGNIS_OK;
    text_free(&grammar);
    pthread_mutex_lock(&j->ask->lock);
    put_piece(j, PIECE_CALL, name->string, name->size);
    j->chosen = true;
    pthread_mutex_unlock(&j->ask->lock);
    return ok;
}

/*  Ends the name of a tool: takes off the token that has ended it, and feeds the text between name and arguments. */
static bool job_name_end(job *j)
{
    const json *function = find_tool(j->ask->tools, j->name.data ? j->name.data : "");
    if (!function) {
        snprintf(j->message, sizeof j->message, "the model has chosen no tool");
        return false;
    }
    return ignis_sequence_truncate(j->sequence, ignis_sequence_length(j->sequence) - 1) == IGNIS_OK &&
           ignis_sequence_grammar(j->sequence, NULL) == IGNIS_OK &&
           ignis_sequence_feed(j->sequence, j->ask->middle, j->ask->middle_count) == IGNIS_OK &&
           job_choose(j, function);
}

/*  Begins the answer, after the prompt. */
static bool job_ready(job *j)
{
    const request *ask = j->ask;
    j->characters.tokenizer = engine.tokenizer;
    j->characters.inside = ask->kind & (TEXT | NATIVE);
    if (ask->head.size) {
        pthread_mutex_lock(&j->ask->lock);
        parser_add(&j->parser, ask->head.data, ask->head.size, false);
        pthread_mutex_unlock(&j->ask->lock);
    } else if (ask->forced_tool)
        return job_choose(j, ask->forced_tool);
    return !ask->grammar.size || ignis_sequence_grammar(j->sequence, ask->grammar.data) == IGNIS_OK;
}

/*  Computes vectors of the next texts, if no other job has in this step. Returns false: the job is never ready for a
    token. */
static bool job_embed(job *j, bool *fed)
{
    request *ask = j->ask;
    ignis_embed_desc desc = {.truncate = false};
    int left = ask->text_count - j->embedded, count = left < PIECE_TEXTS ? left : PIECE_TEXTS;
    if (*fed)
        return false;
    *fed = true;
    if (ignis_model_embed(engine.model, (const char *const *)ask->texts + j->embedded, count, &desc,
                          ask->vectors + (size_t)j->embedded * (size_t)engine.hidden) != IGNIS_OK)
        return job_end(j, NULL);
    j->embedded += count;
    return count < left ? false : job_end(j, "stop");
}

/*  Computes a piece of the prompt, if no other job has in this step. Returns whether the job is ready for a token. */
static bool job_feed(job *j, bool *fed)
{
    int piece = j->count - j->fed < PIECE ? j->count - j->fed : PIECE;
    const job *leader = j->leader;
    if (j->unwanted)
        return job_end(j, NULL);
    if (j->ask->kind == EMBED)
        return job_embed(j, fed);
    if (!j->sequence.id && leader && leader->begun && !leader->done && !leader->drawn && leader->sequence.id) {
        if (leader->fed < leader->count)
            return false; /* it computes the prompt of both */
        if ((j->sequence = ignis_sequence_fork(leader->sequence)).id) {
            j->fed = j->count;
            return job_ready(j) || job_end(j, NULL);
        }
        ignis_status_clear();
    }
    if (!j->sequence.id) {
        ignis_prefix_desc prefix = {.boundary = (uint64_t)j->ask->key};
        j->sequence = ignis_sequence_begin(engine.model);
        if (!j->sequence.id ||
            (j->ask->adapter >= 0 &&
             ignis_sequence_set_lora(j->sequence, engine.adapters[j->ask->adapter].lora) != IGNIS_OK))
            return job_end(j, NULL);
        if (ignis_sequence_share_prefix(j->sequence, &prefix) != IGNIS_OK)
            ignis_status_clear(); /* it computes all of its prompt */
    }
    if (piece && !*fed) {
        ignis_prefix_info before = {0}, after = {0};
        *fed = true;
        ignis_model_prefixes(engine.model, &before);
        if (ignis_sequence_feed(j->sequence, j->ids + j->fed, piece) != IGNIS_OK)
            return job_end(j, NULL);
        ignis_model_prefixes(engine.model, &after);
        j->found += (int)(after.found - before.found);
        j->fed += piece;
        if (j->fed == j->count && !job_ready(j))
            return job_end(j, NULL);
    }
    return j->fed == j->count;
}

/*  Returns the bytes of the held text that can go out: up to a stop string, or to the beginning of one, if more text
    comes. */
static size_t find_stop(const job *j, bool last, bool *stopped)
{
    const request *ask = j->ask;
    size_t start, held = j->held.size, end = held;
    int i;
    for (start = 0; start < held; start++)
        for (i = 0; i < ask->stop_count; i++) {
            size_t size = strlen(ask->stops[i]), there = held - start;
            if (memcmp(j->held.data + start, ask->stops[i], size < there ? size : there) != 0)
                continue;
            *stopped = size <= there;
            if (*stopped)
                return start;
            if (!last && start < end)
                end = start;
        }
    return end;
}

/*  Adds penalties, which are biases of the tokens that the answer has: presence once, frequency for each time. A
    request's own bias of a token stays. Ignis takes MAX_BIASES of them: of more tokens, the first ones count. */
static void add_penalty(job *j, int32_t id)
{
    const request *ask = j->ask;
    int i = 0, count = j->sampling.bias_count;
    if (!j->biases)
        return;
    while (i < count && j->biases[i].id < id)
        i++;
    if (i == count || j->biases[i].id != id) {
        if (count == MAX_BIASES)
            return;
        memmove(j->biases + i + 1, j->biases + i, sizeof *j->biases * (size_t)(count - i));
        memmove(j->uses + i + 1, j->uses + i, sizeof *j->uses * (size_t)(count - i));
        j->biases[i].id = id;
        j->biases[i].bias = 0;
        j->uses[i] = 0;
        j->sampling.bias_count++;
    }
    j->biases[i].bias -= (float)(ask->frequency + (j->uses[i]++ ? 0 : ask->presence));
}

/*  Adds a token to the answer. */
static void job_put(job *j, int32_t id)
{
    char piece[4096];
    bool ended = false, last, stopped = false, is_text;
    int i, size = 0;
    size_t release;
    request *ask = j->ask;
    for (i = 0; i < engine.end_count; i++)
        ended = ended || engine.ends[i] == id;
    is_text = !ended && id < engine.tokens; /* those behind them fill up the model's vocabulary, and are no text */
    if (is_text && ask->kind & (CHAT | RESPONSES)) {
        size = ignis_tokenizer_piece(engine.tokenizer, id, piece, (int)sizeof piece - 1);
        piece[size > 0 && size < (int)sizeof piece ? size : 0] = 0;
        j->characters.control = is_marker(engine.form, piece);
        size = 0;
    }
    if (is_text)
        size = ignis_text_stream_put(&j->characters, id, piece, (int)sizeof piece);
    if (size < 0 || size > (int)sizeof piece) {
        job_end(j, NULL);
        return;
    }
    add_penalty(j, id);
    pthread_mutex_lock(&ask->lock);
    if (!j->drawn)
        j->first_at = seconds();
    if (!ended)
        j->drawn++;
    if (!ended && ask->logprobs)
        add_log_prob(j, id);
    last = ended || j->drawn >= j->most;
    text_add(&j->held, piece, (size_t)size);
    for (i = 0; i < size; i++)
        j->offset += (piece[i] & 0xC0) != 0x80; /* a character begins */
    if (last && (size = ignis_text_stream_end(&j->characters, piece, (int)sizeof piece)) > 0)
        text_add(&j->held, piece, (size_t)size);
    release = find_stop(j, last, &stopped);
    job_say(j, j->held.data, release, last || stopped);
    text_cut(&j->held, release);
    pthread_mutex_unlock(&ask->lock);
    if (ended && ask->forced && !j->chosen) {
        if (!job_name_end(j))
            job_end(j, NULL);
    } else if (last || stopped) {
        job_end(j, !(ended || stopped) ? "length" : j->calls ? "tool_calls" : "stop");
    } else if (ask->stream) {
        pthread_cond_signal(&ask->news); /* nobody else has anything to do before the end */
    }
}

/*  Runs steps: a piece of a prompt, then a token for each of the first jobs whose prompt is complete. */
static void *run_model(void *unused)
{
    static job *jobs[MAX_SEQUENCES], *j;
    static ignis_sequence sequences[MAX_SEQUENCES];
    static ignis_sampling_desc sampling[MAX_SEQUENCES];
    static int32_t ids[MAX_SEQUENCES];
    (void)unused;
    for (;;) {
        int i, count = 0, ready = 0;
        bool fed[2] = {false, false}, ok; /* a prompt; texts of which vectors are asked for */
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
            if (job_feed(jobs[i], &fed[jobs[i]->ask->kind == EMBED]) && job_score(jobs[i])) {
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
