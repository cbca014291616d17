// SPDX-License-Identifier: MIT
/*  page.c - the page in the browser: a talk, tokens per second, the queue, and probabilities of tokens on hover */

static const char page_top[] =
    "<!doctype html>\n<meta charset=utf-8><meta name=viewport content='width=device-width'><title>Ignis</title>\n"
    "<style>body{font:16px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em;color:#222}\n"
    "p{white-space:pre-wrap;overflow-wrap:anywhere;padding:.5em .8em;border-radius:.5em;margin:.5em 0}\n"
    ".user{background:#e8eef7}.assistant{background:#f4f4f0}.error{background:#fbe3e0}.thought{color:#777}\n"
    ".state{color:#555;font-size:.85em;min-height:1.5em}p span:hover{outline:1px solid #888}\n"
    "textarea{width:100%;box-sizing:border-box;font:inherit}label{margin-right:1em}\n"
    "input:not([type=checkbox]){width:5em;font:inherit}</style>\n"
    "<h1 id=name>Ignis</h1><div id=talk></div><form id=form><textarea id=text rows=3 placeholder='Ask'></textarea>\n"
    "<div class=state><span id=speed></span> <span id=queue></span></div>\n"
    "<p><button id=send>Send</button> <button type=button id=stop disabled>Stop</button> <button type=button "
    "id=clear>New</button></p>\n"
    "<label>kind <select id=kind><option value=chat>chat<option value=text>go on with a text</select></label>\n"
    "<label>temperature <input id=temperature value=0.7></label><label>tokens <input id=tokens value=400></label>\n"
    "<label><input type=checkbox id=probable>probabilities</label>\n"
    "<label>key <input id=key type=password autocomplete=off></label></form>\n"
    "<script>\n";

static const char page_script[] =
    "const at = id => document.getElementById(id); let talk = [], control = null;\n"
    "const head = () => ({'Content-Type': 'application/json', ...(at('key').value ? {Authorization: 'Bearer ' + "
    "at('key').value} : {})});\n"
    "function show(who, text) { const p = document.createElement('p'); p.className = who; p.textContent = text; "
    "at('talk').append(p); return p; }\n"
    "function put(p, text, title, kind) { if (!text) return; const s = document.createElement('span'); "
    "s.textContent = text; if (title) s.title = title; if (kind) s.className = kind; p.append(s); }\n"
    "const chance = log => (100 * Math.exp(log)).toFixed(1) + ' %';\n"
    /* the tokens of an event: a list of [text, the title that shows its probabilities] */
    "function tokens(list, chat) {\n"
    "  if (!list) return [];\n"
    "  if (chat) return list.content.map(t => [t.token, [t, ...t.top_logprobs].map((o, i) => (i ? '  ' : '') + "
    "JSON.stringify(o.token) + ' ' + chance(o.logprob)).join('\\n')]);\n"
    "  return list.tokens.map((t, i) => [t, JSON.stringify(t) + ' ' + chance(list.token_logprobs[i]) + "
    "Object.entries((list.top_logprobs || [])[i] || {}).map(o => '\\n  ' + JSON.stringify(o[0]) + ' ' + "
    "chance(o[1])).join('')]); }\n";

static const char page_send[] =
    "async function send(text) {\n"
    "  const chat = at('kind').value == 'chat', answer = {role: 'assistant', content: ''}; let rest = '';\n"
    "  const ask = {stream: true, temperature: +at('temperature').value, max_tokens: +at('tokens').value,\n"
    "    stream_options: {include_usage: true}};\n"
    "  if (at('probable').checked) Object.assign(ask, chat ? {logprobs: true, top_logprobs: 5} : {logprobs: 5});\n"
    "  show('user', text); const p = show('assistant', '');\n"
    "  if (chat) { talk.push({role: 'user', content: text}); ask.messages = talk.slice(); talk.push(answer); } else "
    "ask.prompt = text;\n"
    "  control = new AbortController(); at('send').disabled = true; at('stop').disabled = false;\n"
    "  const begun = performance.now(); let first = 0, count = 0, list = [];\n"
    "  const speed = () => { const s = (performance.now() - first) / 1000; at('speed').textContent = count + "
    "' tokens, ' + (s > 0 && count > 1 ? ((count - 1) / s).toFixed(1) : '-') + ' a second, the first after ' + "
    "((first - begun) / 1000).toFixed(2) + ' s.'; };\n"
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
    "        if (!first) first = performance.now();\n"
    "        if (event.usage) count = event.usage.completion_tokens;\n"
    "        const choice = event.choices[0]; if (!choice) continue;\n"
    "        const delta = chat ? choice.delta : {content: choice.text}, text = delta.content || '';\n"
    "        answer.content += text; count += !event.usage && (text || delta.reasoning_content) ? 1 : 0;\n"
    "        put(p, delta.reasoning_content, '', 'thought');\n"
    "        list.push(...tokens(choice.logprobs, chat));\n"
    "        if (!text) continue;\n"
    "        if (list.map(t => t[0]).join('') == text) list.forEach(t => put(p, t[0], t[1]));\n"
    "        else put(p, text, list.map(t => t[1]).join('\\n'));\n"
    "        list = []; }\n"
    "      if (first) speed(); }\n"
    "    speed();\n"
    "  } catch (error) { if (error.name != 'AbortError') show('error', error.message); if (chat && !answer.content) "
    "talk.splice(-2); }\n"
    "  at('send').disabled = false; at('stop').disabled = true; control = null; }\n"
    "at('form').onsubmit = e => { e.preventDefault(); const t = at('text').value; if (t && !control) { "
    "at('text').value = ''; send(t); } };\n"
    "at('text').onkeydown = e => { if (e.key == 'Enter' && !e.shiftKey) { e.preventDefault(); "
    "at('form').requestSubmit(); } };\n"
    "at('stop').onclick = () => control && control.abort();\n"
    "at('clear').onclick = () => { if (control) control.abort(); talk = []; at('talk').replaceChildren(); };\n"
    "async function queue() {\n"
    "  try { const h = await (await fetch('/health')).json(); at('queue').textContent = h.running + ' running, ' + "
    "h.waiting + ' waiting.'; } catch (error) { at('queue').textContent = 'The server does not answer.'; }\n"
    "  setTimeout(queue, document.hidden ? 10000 : 1000); }\n"
    "queue();\n"
    "</script>\n";

/*  Sends the page. It writes the words of a model as text, never as HTML; if it had a way to, the policy would let no
    script in from elsewhere. */
static void answer_page(connection *c)
{
    text_cut(&c->part, c->part.size);
    text_print(&c->part, "%s%s%s", page_top, page_script, page_send);
    respond(c, 200,
            "text/html; charset=utf-8\r\nContent-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; "
            "style-src 'unsafe-inline'; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            c->part.data);
}
