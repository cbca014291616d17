// SPDX-License-Identifier: MIT
/*  score.c - probabilities: of the tokens of an answer, of the likeliest ones beside them, and of a prompt's tokens */

static int token_text(int32_t id, char *piece, int capacity)
{
    int size = id < engine.tokens ? ignis_tokenizer_piece(engine.tokenizer, id, piece, capacity) : 0;
    return size < 0 || size > capacity ? 0 : size;
}

/*  Writes the text of an array of token ids. False if the value is no such array. */
static bool decode_tokens(const json *tokens, text *out)
{
    const json *one;
    int32_t *ids = (int32_t *)resize(NULL, sizeof *ids * (size_t)(tokens->count + 1));
    ignis_decode_desc desc = {.control = true};
    int64_t size;
    int count = 0;
    for (one = tokens->first; one; one = one->next)
        if (one->kind == JSON_NUMBER && one->number == floor(one->number) && one->number >= 0 &&
            one->number < engine.tokens)
            ids[count++] = (int32_t)one->number;
    size = count == tokens->count ? ignis_tokenizer_decode(engine.tokenizer, ids, count, &desc, NULL, 0) : -1;
    if (size >= 0) {
        text_add(out, NULL, (size_t)size);
        ignis_tokenizer_decode(engine.tokenizer, ids, count, &desc, out->data, size);
    }
    ignis_status_clear();
    free(ids);
    return size >= 0;
}

/*  Prints a token of a chat: {"token": ..., "logprob": ..., "bytes": [...], without its end. */
static void print_token(text *t, int32_t id, double log_prob)
{
    char piece[4096];
    int i, size = token_text(id, piece, (int)sizeof piece);
    text_print(t, "{\"token\":\"");
    text_escape(t, piece, (size_t)size);
    text_print(t, "\",\"logprob\":%.6g,\"bytes\":[", log_prob > -9999 ? log_prob : -9999);
    for (i = 0; i < size; i++)
        text_print(t, i ? ",%d" : "%d", (unsigned char)piece[i]);
    text_print(t, "]");
}

/*  Adds a token as chats list it, and as completions do. has_prob: the first token of a prompt has none. */
static void add_token(job *j, int32_t id, double log_prob, bool has_prob)
{
    growth *g = &j->news;
    char piece[4096];
    const char *comma = g->tokens.size ? "," : "";
    int i, size = token_text(id, piece, (int)sizeof piece);
    log_prob = log_prob > -9999 ? log_prob : -9999;
    if (j->ask->kind & (CHAT | RESPONSES)) {
        text_print(&g->tokens, "%s", comma);
        print_token(&g->tokens, id, log_prob);
        text_print(&g->tokens, ",\"top_logprobs\":[");
        for (i = 0; i < j->top_count; i++) {
            text_print(&g->tokens, i ? "," : "");
            print_token(&g->tokens, j->tops[i].id, j->tops[i].log_prob);
            text_print(&g->tokens, "}");
        }
        text_print(&g->tokens, "]}");
        return;
    }
    text_print(&g->tokens, "%s\"", comma);
    text_escape(&g->tokens, piece, (size_t)size);
    text_print(&g->tokens, "\"");
    text_print(&g->log_probs, has_prob ? "%s%.6g" : "%snull", comma, log_prob);
    text_print(&g->offsets, "%s%zu", comma, j->offset);
    if (!j->ask->top_logprobs)
        return;
    text_print(&g->tops, has_prob ? "%s{" : "%snull", comma);
    for (i = 0; i < j->top_count && has_prob; i++) {
        size = token_text(j->tops[i].id, piece, (int)sizeof piece);
        text_print(&g->tops, i ? ",\"" : "\"");
        text_escape(&g->tops, piece, (size_t)size);
        text_print(&g->tops, "\":%.6g", j->tops[i].log_prob > -9999 ? j->tops[i].log_prob : -9999);
    }
    text_print(&g->tops, has_prob ? "}" : "");
}

/*  Adds the token that was sampled last. Under the request's lock. */
static void add_log_prob(job *j, int32_t id)
{
    ignis_sequence_info info = {0};
    ignis_sequence_query(j->sequence, &info);
    add_token(j, id, info.log_prob, true);
}

/*  Finds the likeliest tokens of logits, by the model itself. */
static void find_tops(job *j, const float *logits)
{
    double most = -INFINITY, sum = 0;
    int i, at;
    for (i = 0; i < engine.vocab; i++)
        most = logits[i] > most ? logits[i] : most;
    for (i = 0; i < engine.vocab; i++)
        sum += exp(logits[i] - most);
    j->top_count = 0;
    for (i = 0; i < engine.vocab; i++) {
        if (j->top_count == j->ask->top_logprobs && logits[i] <= j->tops[j->top_count - 1].log_prob)
            continue;
        j->top_count += j->top_count < j->ask->top_logprobs;
        for (at = j->top_count - 1; at > 0 && j->tops[at - 1].log_prob < logits[i]; at--)
            j->tops[at] = j->tops[at - 1];
        j->tops[at].id = i;
        j->tops[at].log_prob = logits[i];
    }
    for (at = 0; at < j->top_count; at++)
        j->tops[at].log_prob -= most + log(sum);
}

/*  Computes log probabilities of the tokens of a prompt behind the first one, all at once; and of the `tops` likeliest
    ones. */
static bool score_prompt(const job *j, float *log_probs, float *top_probs, int64_t *top_ids)
{
    int count = j->count - 1, tops = (int)j->ask->top_logprobs;
    ignis_tensor_desc i32 = {.dtype = IGNIS_I32};
    ignis_tensor log_softmax, next, places = {0};
    ignis_scope scope;
    bool ok;
    if (!count)
        return true;
    scope = ignis_scope_begin();
    ignis_no_grad_begin();
    log_softmax =
        ignis_log_softmax(ignis_model_forward(engine.model, ignis_tensor_from_host(j->ids, IGNIS_SHAPE(count), &i32)));
    next = ignis_tensor_from_host(j->ids + 1, IGNIS_SHAPE(count, 1), &i32);
    ok = ignis_tensor_to_host(ignis_gather(log_softmax, 1, next), log_probs, IGNIS_F32, count) == IGNIS_OK;
    if (ok && tops) {
        next = ignis_topk(log_softmax, tops, 1, true, &places);
        ok = ignis_tensor_to_host(next, top_probs, IGNIS_F32, (int64_t)count * tops) == IGNIS_OK &&
             ignis_tensor_to_host(places, top_ids, IGNIS_I64, (int64_t)count * tops) == IGNIS_OK;
    }
    ignis_no_grad_end();
    ignis_scope_end(scope);
    return ok;
}

/*  Adds the prompt to the answer, with its probabilities. */
static bool job_echo(job *j)
{
    const request *ask = j->ask;
    int i, k, tops = (int)ask->top_logprobs, many = j->count;
    float *log_probs = (float *)allocate((size_t)many, sizeof *log_probs);
    float *top_probs = (float *)allocate((size_t)many * (size_t)(tops + 1), sizeof *top_probs);
    int64_t *top_ids = (int64_t *)allocate((size_t)many * (size_t)(tops + 1), sizeof *top_ids);
    char piece[4096];
    bool ok = !ask->logprobs || score_prompt(j, log_probs, top_probs, top_ids);
    ignis_text_stream stream = {.tokenizer = engine.tokenizer, .inside = true};
    pthread_mutex_lock(&j->ask->lock);
    for (i = 0; i < many && ok; i++) {
        int size, at;
        j->top_count = i ? tops : 0;
        for (k = 0; k < j->top_count; k++) {
            j->tops[k].id = (int32_t)top_ids[(i - 1) * tops + k];
            j->tops[k].log_prob = top_probs[(i - 1) * tops + k];
        }
        if (ask->logprobs)
            add_token(j, j->ids[i], i ? log_probs[i - 1] : 0, i > 0);
        size = ignis_text_stream_put(&stream, j->ids[i], piece, (int)sizeof piece);
        if (size <= 0 || size > (int)sizeof piece)
            continue;
        for (at = 0; at < size; at++)
            j->offset += (piece[at] & 0xC0) != 0x80;
        put_piece(j, PIECE_TEXT, piece, (size_t)size);
    }
    j->top_count = 0;
    pthread_mutex_unlock(&j->ask->lock);
    free(log_probs), free(top_probs), free(top_ids);
    return ok;
}

/*  Prepares a token before it is sampled: the echo of the prompt, the likeliest tokens. False if the job has ended. */
static bool job_score(job *j)
{
    const request *ask = j->ask;
    if (ask->echo && !j->scored && !job_echo(j))
        return job_end(j, NULL);
    j->scored = true;
    if (!ask->max_tokens)
        return job_end(j, "length");
    if (!ask->top_logprobs)
        return true;
    if (ignis_sequence_logits(j->sequence, engine.logits, engine.vocab) != IGNIS_OK)
        return job_end(j, NULL);
    find_tops(j, engine.logits);
    return true;
}
