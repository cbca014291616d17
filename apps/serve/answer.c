// SPDX-License-Identifier: MIT
/*  answer.c - answers: the page, lists and texts, whole or as a stream of events */

static const char page[] =
    "<!doctype html>\n<meta charset=utf-8><meta name=viewport content='width=device-width'><title>Ignis</title>\n"
    "<style>body{font:16px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em;color:#222}\n"
    "p{white-space:pre-wrap;overflow-wrap:anywhere;padding:.5em .8em;border-radius:.5em;margin:.5em 0}\n"
    ".user{background:#e8eef7}.assistant{background:#f4f4f0}.error{background:#fbe3e0}\n"
    "textarea{width:100%;box-sizing:border-box;font:inherit}label{margin-right:1em}input{width:5em;font:inherit}</"
    "style>\n"
    "<h1 id=name>Ignis</h1><div id=talk></div><form id=form><textarea id=text rows=3 placeholder='Ask'></textarea>\n"
    "<p><button id=send>Send</button> <button type=button id=stop disabled>Stop</button> <button type=button "
    "id=clear>New</button></p>\n"
    "<label>kind <select id=kind><option value=chat>chat<option value=text>go on with a text</select></label>\n"
    "<label>temperature <input id=temperature value=0.7></label><label>tokens <input id=tokens value=400></label>\n"
    "<label>key <input id=key type=password autocomplete=off></label></form>\n"
    "<script>\n"
    "const at = id => document.getElementById(id); let talk = [], control = null;\n"
    "const head = () => ({'Content-Type': 'application/json', ...(at('key').value ? {Authorization: 'Bearer ' + "
    "at('key').value} : {})});\n"
    "function show(who, text) { const p = document.createElement('p'); p.className = who; p.textContent = text; "
    "at('talk').append(p); "
    "return p; }\n"
    "async function send(text) {\n"
    "  const chat = at('kind').value == 'chat', answer = {role: 'assistant', content: ''}; let rest = '';\n"
    "  const ask = {stream: true, temperature: +at('temperature').value, max_tokens: +at('tokens').value};\n"
    "  show('user', text); const p = show('assistant', '');\n"
    "  if (chat) { talk.push({role: 'user', content: text}); ask.messages = talk.slice(); talk.push(answer); } else "
    "ask.prompt = text;\n"
    "  control = new AbortController(); at('send').disabled = true; at('stop').disabled = false;\n"
    "  try {\n"
    "    const reply = await fetch(chat ? '/v1/chat/completions' : '/v1/completions',\n"
    "                              {method: 'POST', headers: head(), body: JSON.stringify(ask), signal: "
    "control.signal});\n"
    "    if (!reply.ok) throw new Error((await reply.json()).error.message);\n"
    "    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();\n"
    "    for (let got; !(got = await reader.read()).done;) {\n"
    "      const lines = (rest + got.value).split('\\n'); rest = lines.pop();\n"
    "      for (const line of lines) if (line.startsWith('data: {')) {\n"
    "        const event = JSON.parse(line.slice(6)); if (event.error) throw new Error(event.error.message);\n"
    "        const choice = event.choices[0]; if (choice) answer.content += chat ? choice.delta.content || '' : "
    "choice.text;\n"
    "        p.textContent = answer.content; } }\n"
    "  } catch (error) { if (error.name != 'AbortError') show('error', error.message); if (chat && !answer.content) "
    "talk.splice(-2); }\n"
    "  at('send').disabled = false; at('stop').disabled = true; control = null; }\n"
    "at('form').onsubmit = e => { e.preventDefault(); const t = at('text').value; if (t && !control) { "
    "at('text').value = ''; send(t); } "
    "};\n"
    "at('text').onkeydown = e => { if (e.key == 'Enter' && !e.shiftKey) { e.preventDefault(); "
    "at('form').requestSubmit(); } };\n"
    "at('stop').onclick = () => control && control.abort();\n"
    "at('clear').onclick = () => { if (control) control.abort(); talk = []; at('talk').replaceChildren(); };\n"
    "</script>\n";

/*  The page writes what a model says as text, never as HTML; if it had a way to, the policy would let no script in from
    elsewhere. */
static void answer_page(connection *c)
{
    respond(c, 200,
            "text/html; charset=utf-8\r\nContent-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; "
            "style-src 'unsafe-inline'; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            page);
}

static void answer_health(connection *c)
{
    int jobs, running;
    pthread_mutex_lock(&shared.lock);
    jobs = shared.jobs;
    pthread_mutex_unlock(&shared.lock);
    running = jobs < settings.sequences ? jobs : (int)settings.sequences;
    text_cut(&c->part, c->part.size);
    text_print(&c->part, "{\"status\":\"ok\",\"running\":%d,\"waiting\":%d}", running, jobs - running);
    respond(c, 200, "application/json", c->part.data);
}

static void answer_models(connection *c)
{
    text_cut(&c->part, c->part.size);
    text_print(
        &c->part,
        "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"ignis\",",
        engine.name.data, (long long)engine.started);
    text_print(&c->part, "\"max_model_len\":%d}]}", engine.context);
    respond(c, 200, "application/json", c->part.data);
}

enum { WHOLE, EVENT, LAST_EVENT, USAGE_EVENT };

/*  Takes what the model's thread has made since. Under the job's lock; what is made of it is made without. */
static void take_news(connection *c)
{
    growth before = c->said;
    c->said = c->job->news_text;
    c->job->news_text = before;
}

/*  An answer, or one event of a stream, with what was taken. */
static const char *make_answer(connection *c, int what)
{
    job *j = c->job;
    growth *g = &c->said;
    const char *out = g->out.size ? g->out.data : "";
    text *t = &c->part;
    text_cut(t, t->size);
    text_print(t,
               "{\"id\":\"%s\",\"object\":\"%s%s\",\"created\":%lld,\"model\":\"%s\",\"system_fingerprint\":\"ignis-%"
               "s\",\"choices\":[",
               c->id, j->chat ? "chat.completion" : "text_completion", j->chat && what != WHOLE ? ".chunk" : "",
               (long long)c->created, engine.name.data, ignis_version_string());
    if (what != USAGE_EVENT) {
        if (!j->chat)
            text_print(t, "{\"index\":0,\"text\":\"%s\"", out);
        else if (what == WHOLE)
            text_print(t, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%s\"}", out);
        else if (what == LAST_EVENT)
            text_print(t, "{\"index\":0,\"delta\":{}");
        else
            text_print(t, "{\"index\":0,\"delta\":{%s\"content\":\"%s\"}", c->begun ? "" : "\"role\":\"assistant\",",
                       out);
        if (!g->tokens.size)
            text_print(t, ",\"logprobs\":null");
        else if (j->chat)
            text_print(t, ",\"logprobs\":{\"content\":[%s],\"refusal\":null}", g->tokens.data);
        else
            text_print(
                t, ",\"logprobs\":{\"tokens\":[%s],\"token_logprobs\":[%s],\"text_offset\":[%s],\"top_logprobs\":null}",
                g->tokens.data, g->log_probs.data, g->offsets.data);
        if (what == EVENT)
            text_print(t, ",\"finish_reason\":null}");
        else
            text_print(t, ",\"finish_reason\":\"%s\"}", j->finish);
        text_cut(&g->out, g->out.size), text_cut(&g->tokens, g->tokens.size);
        text_cut(&g->log_probs, g->log_probs.size), text_cut(&g->offsets, g->offsets.size);
    }
    if (what == WHOLE || what == USAGE_EVENT)
        text_print(t, "],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}}", j->count,
                   j->drawn, j->count + j->drawn);
    else
        text_print(t, j->usage ? "],\"usage\":null}" : "]}");
    return t->data;
}

/*  An event of a stream, which is a chunk. */
static void put_event(connection *c, const char *data)
{
    if (!c->begun)
        put_head(c, 200, "text/event-stream", -1);
    c->begun = true;
    if (c->old)
        text_print(&c->out, "data: %s\n\n", data);
    else
        text_print(&c->out, "%zx\r\ndata: %s\n\n\r\n", strlen(data) + 8, data);
}

/*  error: null, or why the answer is not whole, with its number. */
static void end_stream(connection *c, int number, const char *error)
{
    if (error)
        put_event(c, make_error(c, number, NULL, error));
    else {
        if (!c->begun || c->said.out.size || c->said.tokens.size)
            put_event(c, make_answer(c, EVENT));
        put_event(c, make_answer(c, LAST_EVENT));
        if (c->job->usage)
            put_event(c, make_answer(c, USAGE_EVENT));
        put_event(c, "[DONE]");
    }
    text_print(&c->out, c->old ? "" : "0\r\n\r\n");
    flush(c);
}

/*  Puts the job in the list, if there is room. */
static bool enlist(connection *c)
{
    job **last = &shared.first;
    int64_t most = settings.sequences + settings.queue;
    bool ok;
    if (interrupted())
        return refuse(c, 503, NULL, "the server is shutting down");
    pthread_mutex_lock(&shared.lock);
    ok = shared.jobs < most;
    if (ok) {
        while (*last)
            last = &(*last)->next;
        *last = c->job;
        shared.jobs++;
        pthread_cond_signal(&shared.wake_model);
    }
    pthread_mutex_unlock(&shared.lock);
    return ok ||
           refuse(c, 429, NULL, "%d requests are running or waiting, which is as many as this server takes", (int)most);
}

/*  Waits until the job has ended. Sends its text as it grows if the client wants a stream, and drops the job if the
    client leaves.
    Returns NULL, or why the job was dropped. */
static const char *follow(connection *c)
{
    job *j = c->job;
    double until = seconds() + (double)settings.answer_time;
    const char *late = NULL;
    bool waits;
    pthread_mutex_lock(&j->lock);
    while (!j->done && !late && !c->gone) {
        bool some = j->stream && (j->news_text.out.size || j->news_text.tokens.size);
        if (some)
            take_news(c);
        else
            nap(&j->news, &j->lock);
        pthread_mutex_unlock(&j->lock);
        if (some)
            put_event(c, make_answer(c, EVENT));
        flush(c);
        if (c->in.size <= MAX_HEAD) /* a little of the next request, to see whether the client is there */
            fetch(c);
        late = seconds() > stop_time() ? "the server is shutting down"
               : seconds() > until     ? "the answer has taken longer than this server allows"
                                       : NULL;
        pthread_mutex_lock(&j->lock);
    }
    pthread_mutex_unlock(&j->lock);
    pthread_mutex_lock(&shared.lock);
    j->dropped = true;
    waits = !j->begun;
    if (waits)
        job_leave(j);
    pthread_mutex_unlock(&shared.lock);
    pthread_mutex_lock(&j->lock);
    while (!j->done && !waits) /* soon: at the end of a step */
        pthread_cond_wait(&j->news, &j->lock);
    take_news(c);
    pthread_mutex_unlock(&j->lock);
    return late;
}

/*  Makes a job of the request, and answers with what becomes of it. */
static void answer_text(connection *c)
{
    job j;
    const char *late, *error;
    memset(&j, 0, sizeof j);
    pthread_mutex_init(&j.lock, NULL);
    pthread_cond_init(&j.news, NULL);
    c->job = &j;
    c->created = time(NULL);
    snprintf(c->id, sizeof c->id, "%s-%013llx", c->route->kind == CHAT ? "chatcmpl" : "cmpl",
             (unsigned long long)random_number(c));
    if (read_job(c) && enlist(c)) {
        late = follow(c);
        error = j.finish ? NULL : late ? late : j.message;
        c->keep = c->keep && !late;
        if (!j.stream && !error)
            respond(c, 200, "application/json", make_answer(c, WHOLE));
        else if (!c->begun && error)
            refuse(c, late ? 503 : 500, NULL, "%s", error);
        else
            end_stream(c, late ? 503 : 500, error);
    }
    free(j.ids), free(j.messages), text_free(&j.grammar);
    text_free(&j.held), growth_free(&j.news_text), growth_free(&c->said);
    pthread_cond_destroy(&j.news);
    pthread_mutex_destroy(&j.lock);
}
