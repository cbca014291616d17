// SPDX-License-Identifier: MIT
/*  tokens.c - tokens of a text, and back, as llama.cpp's server has them */

/*  Prints {"tokens": [...]} of a text, as llama.cpp has it. */
static void print_tokens(connection *c, const json *content)
{
    request *ask = c->ask;
    ignis_encode_desc desc = {.no_bos = !ask->add_special};
    int32_t *ids;
    char piece[4096];
    int i, size,
        count = ignis_tokenizer_encode(engine.tokenizer, content->string, (int64_t)content->size, &desc, NULL, 0);
    text_print(&c->part, "{\"tokens\":[");
    if (count > 0) {
        ids = (int32_t *)resize(NULL, sizeof *ids * (size_t)count);
        count = ignis_tokenizer_encode(engine.tokenizer, content->string, (int64_t)content->size, &desc, ids, count);
        for (i = 0; i < count; i++) {
            text_print(&c->part, ask->with_pieces ? "%s{\"id\":%d,\"piece\":\"" : "%s%d", i ? "," : "", (int)ids[i]);
            size = ask->with_pieces ? token_text(ids[i], piece, (int)sizeof piece) : 0;
            text_escape(&c->part, piece, (size_t)size);
            text_print(&c->part, ask->with_pieces ? "\"}" : "");
        }
        free(ids);
    }
    ignis_status_clear();
    text_print(&c->part, "]}");
}

static void answer_tokens(connection *c)
{
    request ask;
    const json *content, *tokens;
    text out = {0};
    bool back = strcmp(c->route->path, "/detokenize") == 0, ok;
    memset(&ask, 0, sizeof ask);
    ask.kind = TOKENS;
    c->ask = &ask;
    ok = read_json(c) && read_parameters(c, ask.values);
    content = ok ? member(ask.values, "content") : NULL;
    tokens = ok ? member(ask.values, "tokens") : NULL;
    text_cut(&c->part, c->part.size);
    if (ok && !back && (!content || content->kind != JSON_STRING))
        ok = refuse_value(c, "content", content, "a string");
    else if (ok && !back)
        print_tokens(c, content);
    else if (ok && (!tokens || tokens->kind != JSON_ARRAY || !decode_tokens(tokens, &out)))
        ok = refuse_value(c, "tokens", tokens, "an array of ids of tokens, 0 to %d", engine.tokens - 1);
    if (ok && back) {
        text_print(&c->part, "{\"content\":\"");
        text_escape(&c->part, out.data, out.size);
        text_print(&c->part, "\"}");
    }
    text_free(&out);
    if (ok)
        respond(c, 200, "application/json", c->part.data);
    c->ask = NULL;
    request_free(&ask);
}
