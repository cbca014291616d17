// SPDX-License-Identifier: MIT
/*  test_grammar.c - grammars: what the matcher allows against an independent recogniser, texts of schemas against an
    independent reader, errors */
#define IGNIS_MODELS /* as before version 0.5; the others include ignis_models.h */
#include "tensor.h"

#include "schema_cases.h"

/* the matcher ---------------------------------------------------------------------------------------------------- */

/*  A vocabulary of all texts of up to three bytes of an alphabet. */
enum { LETTERS = 4, TOKENS = LETTERS + LETTERS * LETTERS + LETTERS * LETTERS * LETTERS };

static ignis__vocabulary *vocabulary_of(const char *letters)
{
    static ignis__tokenizer tokenizer;
    static char bytes[3 * TOKENS];
    static uint32_t begin[TOKENS + 3];
    static unsigned char flags[TOKENS + 2];
    int id = 0, size, i, k;
    uint32_t at = 0;
    memset(&tokenizer, 0, sizeof tokenizer);
    for (size = 1; size <= 3; size++)
        for (i = 0; i < (size == 1 ? LETTERS : size == 2 ? LETTERS * LETTERS : LETTERS * LETTERS * LETTERS); i++) {
            begin[id] = at;
            flags[id++] = IGNIS__TOKEN_THERE;
            for (k = 0; k < size; k++)
                bytes[at++] = letters[(k == 0 ? i : k == 1 ? i / LETTERS : i / LETTERS / LETTERS) % LETTERS];
        }
    begin[id] = begin[id + 1] = begin[id + 2] = at;
    flags[id] = flags[id + 1] = IGNIS__TOKEN_THERE | IGNIS__TOKEN_CONTROL; /* the end; another one */
    tokenizer.bytes = bytes;
    tokenizer.begin = begin;
    tokenizer.flags = flags;
    tokenizer.byte_level = true;
    tokenizer.info.tokens = TOKENS + 2;
    tokenizer.info.eos = TOKENS;
    return ignis__vocabulary_make(&tokenizer, TOKENS + 3, NULL, 0);
}

/*  An independent view of a language: its strings up to a length, by rewriting the leftmost rule breadth first. Rules
    are letters A to Z, R the root, in GBNF as groups of plain alternatives; both are made of this table. */
typedef struct language {
    const char *gbnf;
    const char *rules; /* "R=aRb|;A=..." */
} language;

static const language languages[] = {
    {"root ::= \"a\" root \"b\" | \"\"", "R=aRb|"},
    {"root ::= (\"a\" | \"b\" root \"c\")*", "R=aR|bRcR|"},
    {"root ::= [a-c]{2,4} \"d\"?", "R=XXD|XXXD|XXXXD;X=a|b|c;D=d|"},
    {"root ::= x y\nx ::= \"a\"+ # one or more\ny ::= x \"b\" | \"c\"", "R=XY;X=aX|a;Y=Xb|c"},
    {"root ::= (\"a\"?)* \"b\" | dead\ndead ::= \"c\" dead", "R=aR|b"},
    {"root ::= [^abc\\x80-\\U0010FFFF\\x00-\\x60\\x65-\\x7F]{3,} | (\"ab\" | \"a\") \"b\"{0,2}",
     "R=dddD|abB|aB;D=dD|;B=|b|bb"},
    {"root ::= s\ns ::= s2 | \"b\" s s\ns2 ::= \"a\" | \"c\" s \"d\" s2", "R=S;S=T|bSS;T=a|cSdT"},
    {"root ::= (\"a\" | \"ab\" | \"abc\"){1,3}", "R=XYY;Y=X|;X=a|ab|abc"},
};

enum { LONGEST = 7, FORMS = 1 << 18 };

static int derivable(const language *l, const char *prefix, bool whole)
{
    /* depth first over sentential forms, cut where the terminals ahead of the first rule differ from the prefix */
    static char forms[4096][32];
    static char seen[1 << 16][24];
    static int seen_count;
    int count = 1, i;
    size_t length = strlen(prefix);
    strcpy(forms[0], "R");
    seen_count = 0;
    while (count > 0) {
        char form[32];
        size_t at = 0, left = 0, k;
        const char *rule, *end;
        strcpy(form, forms[--count]);
        while (form[at] && !(form[at] >= 'A' && form[at] <= 'Z') && at < length && form[at] == prefix[at])
            at++;
        if (at == length && (!whole || !form[at]))
            return 1;
        if (!form[at] || !(form[at] >= 'A' && form[at] <= 'Z'))
            continue;
        for (k = 0; form[k]; k++)
            left += !(form[k] >= 'A' && form[k] <= 'Z');
        if (strlen(form) > 20 || left > 2 * LONGEST + 4)
            continue;
        for (i = 0; i < seen_count && strcmp(seen[i], form) != 0;)
            i++;
        if (i < seen_count)
            continue;
        if (seen_count == (int)(sizeof seen / sizeof *seen))
            abort();
        strcpy(seen[seen_count++], form);
        for (rule = l->rules; rule[0] != form[at] || rule[1] != '='; rule++)
            if (!*rule)
                abort();
        for (rule += 2;; rule = end + 1) {
            for (end = rule; *end && *end != '|' && *end != ';';)
                end++;
            if (count == (int)(sizeof forms / sizeof *forms))
                abort();
            snprintf(forms[count++], sizeof forms[0], "%.*s%.*s%s", (int)at, form, (int)(end - rule), rule,
                     form + at + 1);
            if (*end != '|')
                break;
        }
    }
    return 0;
}

/*  Behind every text of a language, up to a length, each token is allowed if the text and it begin one of the language,
    and the end where one ends. */
TEST(tokens_are_those_that_texts_go_on_with)
{
    int k, wrong = 0;
    SETUP(NULL);
    for (k = 0; k < COUNT_OF(languages); k++) {
        ignis__vocabulary *v = vocabulary_of("abcd");
        ignis__grammar *g = ignis__grammar_make("test", languages[k].gbnf);
        char texts[600][8];
        int32_t states[600];
        int count = 1, i, id;
        CHECK(g && v);
        if (!g || !v)
            continue;
        texts[0][0] = 0;
        states[0] = g->start;
        for (i = 0; i < count; i++) {
            const uint32_t *mask = ignis__grammar_compute_mask(g, v, states[i]);
            CHECK(mask != NULL);
            wrong +=
                IGNIS__GRAMMAR_AT(g, state, states, states[i])->ends != (derivable(&languages[k], texts[i], true) != 0);
            for (id = 0; id < TOKENS + 3; id++) {
                char text[16];
                const ignis__vocabulary_token *token;
                bool allowed = mask[id / 32] >> id % 32 & 1, expected = false;
                if (v->place[id] >= 0) {
                    token = (const ignis__vocabulary_token *)(const void *)v->tokens.items + v->place[id];
                    snprintf(text, sizeof text, "%s%.*s", texts[i], (int)token->size, token->text);
                    expected = derivable(&languages[k], text, false);
                    if (expected && token->size == 1 && strlen(text) < 5 && count < COUNT_OF(texts)) {
                        strcpy(texts[count], text);
                        states[count++] = ignis__grammar_step_token(g, v, states[i], id);
                    }
                } else {
                    CHECK(id >= TOKENS);
                }
                if (allowed != expected && wrong++ == 0) {
                    snprintf(text, sizeof text, "%d %s %d", k, texts[i], id);
                    test__fail(__FILE__, __LINE__, text);
                }
            }
        }
        CHECK(count > 3);
        ignis__grammar_free(g);
        ignis__vocabulary_free(v);
    }
    CHECK_INT(wrong, 0);
}

static bool matches(ignis__grammar *g, const char *text, size_t size)
{
    int32_t state = g->start;
    size_t i;
    for (i = 0; i < size && state > 0; i++)
        state = ignis__grammar_step(g, state, (unsigned char)text[i]);
    return state > 0 && IGNIS__GRAMMAR_AT(g, state, states, state)->ends;
}

static bool fits(const char *grammar, const char *text)
{
    ignis__grammar *g = ignis__grammar_make("test", grammar);
    bool is;
    CHECK(g != NULL);
    if (!g)
        return false;
    is = matches(g, text, strlen(text));
    ignis__grammar_free(g);
    return is;
}

/*  Classes of characters are those characters, in UTF-8, whatever their length. */
/*  A control token is matched by its id alone, whatever bytes other tokens have. */
TEST(control_tokens)
{
    static const struct {
        const char *grammar;
        int32_t before[3]; /* tokens ahead of it, up to -1 */
        bool allowed, others;
    } cases[] = {
        {"root ::= <[85]>", {-1, 0, 0}, true, false},
        {"root ::= \"a\" <[85]> \"b\"", {-1, 0, 0}, false, true},
        {"root ::= \"a\" <[85]> \"b\"", {0, -1, 0}, true, false},
        {"root ::= \"a\" <[85]> \"b\"", {0, 85, -1}, false, true},
        {"root ::= (<[85]> | \"a\"){2}", {85, -1, 0}, true, true},
        {"root ::= <[84]>", {-1, 0, 0}, false, false}, /* the token that ends a text is not among its tokens */
        {"root ::= <[7]> | \"a\"", {-1, 0, 0}, false, true},
        {"root ::= [^a]* | .+ | [\\x80-\\U0010FFFF]", {-1, 0, 0}, false, true},
    };
    int i, k, id, others;
    SETUP(NULL);
    CHECK_INT(TOKENS, 84);
    for (i = 0; i < COUNT_OF(cases); i++) {
        ignis__vocabulary *v = vocabulary_of("ab\x85\xFF");
        ignis__grammar *g = ignis__grammar_make("test", cases[i].grammar);
        const uint32_t *mask;
        int32_t state = g ? g->start : 0;
        for (k = 0; g && cases[i].before[k] >= 0; k++)
            state = ignis__grammar_step_token(g, v, state, cases[i].before[k]);
        CHECK(g && v && state > 0);
        if (!g || !v || state <= 0)
            continue;
        mask = ignis__grammar_compute_mask(g, v, state);
        for (id = others = 0; id < TOKENS; id++)
            others += (int)(mask[id / 32] >> id % 32 & 1);
        CHECK_INT(mask[85 / 32] >> 85 % 32 & 1, cases[i].allowed);
        CHECK_INT(mask[84 / 32] >> 84 % 32 & 1, 0);
        CHECK_INT(others > 0, cases[i].others);
        CHECK_INT(mask[3 / 32] >> 3 & 1, 0); /* the byte FF */
        ignis__grammar_free(g);
        ignis__vocabulary_free(v);
    }
}

/*  Wide states make room for those of another text, and are refused where one text has too many. */
TEST(states_have_a_limit)
{
    enum { OPTIONAL = 3000, FITS = 500, MOST = 900 }; /* a state has a place for each letter that may follow */
    static int32_t ids[MOST];
    ignis__engine *engine = (ignis__engine *)calloc(1, sizeof *engine);
    ignis__sequence *s = (ignis__sequence *)calloc(1, sizeof *s);
    char *text = (char *)malloc(8 * OPTIONAL + 64), *at = text;
    ignis__grammar *g;
    int64_t bytes;
    int i, resets = 0;
    SETUP(NULL);
    CHECK(engine && s && text);
    if (!engine || !s || !text)
        return;
    at += sprintf(at, "root ::= ");
    for (i = 0; i < OPTIONAL; i++)
        at += sprintf(at, "\"a\"? ");
    sprintf(at, "\"b\"");
    g = ignis__grammar_make("test", text);
    engine->vocabulary = vocabulary_of("abcd");
    s->engine = engine;
    s->grammar = g;
    s->ids = ids; /* all of them the letter a */
    CHECK(g && engine->vocabulary);
    for (i = 0; g && i < 4; i++) {
        const int32_t epoch = g->epoch;
        s->constrained = 0;
        s->length = i == 2 ? MOST : FITS;
        s->matched = 0;
        s->epoch = 0;
        if (i == 1) /* states of others are there */
            for (bytes = 0; ignis__grammar_state_bytes(g) < IGNIS__GRAMMAR_BYTES - (1 << 20); bytes++)
                (void)ignis__list_add(&g->places);
        CHECK((ignis__sequence_match_grammar("ignis_sequence_next", s) != NULL) == (i != 2));
        CHECK_INT(ignis_status_last(), i == 2 ? IGNIS_ERROR_UNSUPPORTED : IGNIS_OK);
        ignis_status_clear();
        resets += g->epoch != epoch;
        CHECK(ignis__grammar_state_bytes(g) < IGNIS__GRAMMAR_BYTES + (1 << 20));
    }
    CHECK(resets >= 2);
    ignis__grammar_free(g);
    ignis__vocabulary_free(engine->vocabulary);
    free(engine), free(s), free(text);
}

TEST(classes_of_characters)
{
    static const uint32_t ranges[][2] = {{0x41, 0x7E2},     {0x7FF, 0x800},     {0x900, 0xD7FF},     {0xD000, 0xE001},
                                         {0xFFFE, 0x10001}, {0x20ABC, 0x9FFFF}, {0x10F000, 0x10FFFF}};
    int k;
    SETUP(NULL);
    for (k = 0; k < 2 * COUNT_OF(ranges); k++) {
        const uint32_t *range = ranges[k / 2];
        char text[80], bytes[4];
        ignis__grammar *g;
        uint32_t code;
        int wrong = 0, i;
        snprintf(text, sizeof text, "root ::= [%s\\U%08X-\\U%08X]", k % 2 ? "^" : "",
                 range[0] < 0xD800 ? range[0] : range[0], range[1]);
        g = ignis__grammar_make("test", text);
        CHECK(g != NULL);
        for (code = 0; g && code <= 0x10FFFF; code += code < 0x11000 ? 1 : 7) {
            bool inside = code >= range[0] && code <= range[1];
            if (code >= 0xD800 && code <= 0xDFFF)
                continue;
            i = ignis__utf8_write(bytes, code);
            wrong += matches(g, bytes, (size_t)i) != (inside != (k % 2 == 1));
        }
        CHECK_INT(wrong, 0);
        CHECK(g && !matches(g, "\xED\xA0\x80", 3) && !matches(g, "\xC0\x80", 2) && !matches(g, "\xF4\x90\x80\x80", 4));
        if (g)
            ignis__grammar_free(g);
    }
    CHECK(fits("root ::= . \"\\xE9\\u20AC\\t\"", "\xF0\x9F\x98\x80\xC3\xA9\xE2\x82\xAC\t"));
    CHECK(fits("# none\n\nroot ::=\n  ( \"a\"\n | # b\n [b] ) |\n  \"c\" \r\n\n", "b"));
}

static void check_wrong(const char *grammar, ignis_status status, const char *says)
{
    CHECK_INT(ignis_grammar_check(grammar), status);
    if (status != IGNIS_OK)
        CHECK_HAS(ignis_status_message(), says);
    ignis_status_clear();
}

TEST(grammars_that_are_none)
{
    char *many = (char *)calloc(400000, 1);
    int i;
    SETUP(NULL);
    CHECK_STATUS(ignis_grammar_check(NULL), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_NULL_ARGUMENT);
    check_wrong("", IGNIS_ERROR_ARGUMENT, "there is no rule 'root'");
    check_wrong("a ::= \"b\"", IGNIS_ERROR_ARGUMENT, "there is no rule 'root'");
    check_wrong("root ::= a", IGNIS_ERROR_ARGUMENT, "line 1, column 10: there is no rule 'a'");
    check_wrong("root = a", IGNIS_ERROR_ARGUMENT, "line 1, column 6: ::= is missing");
    check_wrong("root ::= \"a\"\nroot ::= \"b\"", IGNIS_ERROR_ARGUMENT, "line 2, column 1: this rule was there before");
    check_wrong("root ::= \"a", IGNIS_ERROR_ARGUMENT, "line 1, column 12: the text ends within quotes");
    check_wrong("root ::= [a", IGNIS_ERROR_ARGUMENT, "column 12");
    check_wrong("root ::= [b-a]", IGNIS_ERROR_ARGUMENT, "a range ends before it begins");
    check_wrong("root ::= (\"a\"", IGNIS_ERROR_ARGUMENT, "a ) is missing");
    check_wrong("root ::= \"a\")", IGNIS_ERROR_ARGUMENT, "column 13: this begins nothing");
    check_wrong("root ::= <think>", IGNIS_ERROR_ARGUMENT,
                "column 11: [ with the id of a control token is missing after <");
    check_wrong("root ::= <[think]>", IGNIS_ERROR_ARGUMENT, "column 12: a number is missing");
    check_wrong("root ::= <[7>", IGNIS_ERROR_ARGUMENT, "column 13: ]> is missing after the id of a control token");
    check_wrong("root ::= <[7]", IGNIS_ERROR_ARGUMENT, "column 14: ]> is missing after the id of a control token");
    check_wrong("root ::= (<[7]> <[99999999999999]>)+ \"a\"", IGNIS_OK, NULL);
    check_wrong("root ::= * \"a\"", IGNIS_ERROR_ARGUMENT, "there is nothing to repeat");
    check_wrong("root ::= \"a\"{3,2}", IGNIS_ERROR_ARGUMENT, "the second number is below the first");
    check_wrong("root ::= \"a\"{,2}", IGNIS_ERROR_ARGUMENT, "a number is missing");
    check_wrong("root ::= \"a\"{2", IGNIS_ERROR_ARGUMENT, "a } is missing");
    check_wrong("root ::= \"a\"{2000000000}", IGNIS_ERROR_UNSUPPORTED, "more than");
    check_wrong("root ::= \"a\"{0,99999999999999999999}", IGNIS_ERROR_UNSUPPORTED, "more than");
    check_wrong("root ::= ((((\"a\"{1000}){1000}){1000}){1000}){1000}", IGNIS_OK, NULL);
    check_wrong("root ::= \"\\q\"", IGNIS_ERROR_ARGUMENT, "column 11: a backslash is followed by an unknown escape");
    check_wrong("root ::= \"\\x4\"", IGNIS_ERROR_ARGUMENT, "an escape has too few digits");
    check_wrong("root ::= \"\\uD800\"", IGNIS_ERROR_ARGUMENT, "there is no such character");
    check_wrong("root ::= \"\\U00110000\"", IGNIS_ERROR_ARGUMENT, "there is no such character");
    check_wrong("root ::= \"\xC3\"", IGNIS_ERROR_ARGUMENT, "column 11: this is not UTF-8");
    check_wrong("root ::= root \"a\" | \"b\"", IGNIS_ERROR_ARGUMENT,
                "line 1, column 1: the rule 'root' begins with itself");
    check_wrong("root ::= a\na ::= \"\"? b\nb ::= [x]* a \"y\" | \"z\"", IGNIS_ERROR_ARGUMENT, "begins with itself");
    check_wrong("root ::= \"a\" root", IGNIS_ERROR_ARGUMENT, "no text of the rule 'root' ever ends");
    check_wrong("root ::= []", IGNIS_ERROR_ARGUMENT, "no text of the rule 'root' ever ends");
    check_wrong("root ::= \"a\" root | [^\\x00-\\U0010FFFF]", IGNIS_ERROR_ARGUMENT, "ever ends");
    if (!many)
        abort();
    strcpy(many, "root ::= ");
    memset(many + 9, '(', 300000);
    check_wrong(many, IGNIS_ERROR_ARGUMENT, "nested deeper than 100");
    for (i = 0, many[0] = 0; i < 12000; i++) /* a chain of rules, the last one first and the first one last */
        sprintf(many + strlen(many + (i ? 20 * (i - 1) : 0)) + (i ? 20 * (i - 1) : 0), "r%05d ::= r%05d\n   ", i,
                i + 1);
    strcat(many, "r12000 ::= \"a\"\nroot ::= r00000");
    check_wrong(many, IGNIS_OK, NULL);
    free(many);
}

/* schemas -------------------------------------------------------------------------------------------------------- */

TEST(schemas)
{
    static const char person[] =
        "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"minLength\": 1, \"maxLength\": 5}, "
        "\"a\\\"g\\u00e9\": "
        "{\"type\": \"integer\"}, \"tags\": {\"type\": \"array\", \"items\": {\"enum\": [\"x\", 1.5, null, {\"k\": [ "
        "1, \"\\n\" ]}]}, "
        "\"minItems\": 1, "
        "\"maxItems\": 2}}, \"required\": [\"name\", \"tags\"], \"additionalProperties\": false}";
    static const char tree[] =
        "{\"$ref\": \"#/$defs/node\", \"$defs\": {\"node\": {\"type\": [\"object\", \"null\"], \"properties\": {\"l\": "
        "{\"$ref\": "
        "\"#/$defs/node\"}, \"r\": {\"$ref\": \"#/$defs/node\"}}, \"required\": [\"l\", \"r\"]}}}";
    SETUP(NULL);
    CHECK(fits(person, "{\"name\":\"ab\",\"tags\":[\"x\"]}"));
    CHECK(fits(
        person,
        "{ \"name\": \"\\u00e9\xE2\x82\xAC\\\\bc\", \"a\\\"g\xC3\xA9\": -12, \"tags\": [1.5, {\"k\":[1,\"\\n\"]}] }"));
    CHECK(!fits(person, "{\"name\":\"\",\"tags\":[\"x\"]}"));
    CHECK(!fits(person, "{\"name\":\"abcdef\",\"tags\":[\"x\"]}"));
    CHECK(!fits(person, "{\"name\":\"ab\"}"));
    CHECK(!fits(person, "{\"name\":\"ab\",\"tags\":[]}"));
    CHECK(!fits(person, "{\"name\":\"ab\",\"tags\":[null,null,null]}"));
    CHECK(!fits(person, "{\"name\":\"ab\",\"tags\":[null],}"));
    CHECK(!fits(person, "{\"name\":\"ab\",\"a\\\"g\xC3\xA9\":01,\"tags\":[null]}"));
    CHECK(fits(tree, "{\"l\":null,\"r\":{\"l\":{\"l\":null,\"r\":null},\"r\":null}}"));
    CHECK(!fits(tree, "{\"l\":null}"));
    CHECK(fits("{\"type\": \"object\"}", "{\"a\": [1e5, -0.5, true, {}, [], \"\\ud83d\\ude00\"]}"));
    CHECK(!fits("{\"type\": \"object\"}", "{\"a\": \"\\ud83d\"}") &&
          !fits("{\"type\": \"object\"}", "{\"a\": \"\n\"}"));
    CHECK(!fits("{\"type\": \"object\"}", "[]") && fits("{}", "[]") && fits("{}", "3") &&
          fits("{\"title\": \"t\"}", "\"s\""));
    CHECK(fits("{\"type\": \"object\", \"properties\": {}, \"additionalProperties\": false}", "{}"));
    CHECK(!fits("{\"properties\": {}, \"additionalProperties\": false}", "{\"a\":1}"));
    CHECK(fits("{\"additionalProperties\": {\"type\": \"boolean\"}}", "{\"a\":true,\"b\":false}"));
    CHECK(!fits("{\"additionalProperties\": {\"type\": \"boolean\"}}", "{\"a\":1}"));
    CHECK(fits("{\"properties\": {\"a\": {\"const\": 1}, \"b\": true}}", "{\"b\":2}") &&
          fits("{\"properties\": {\"a\": {\"const\": 1}, \"b\": true}}", "{}") &&
          !fits("{\"properties\": {\"a\": {\"const\": 1}, \"b\": true}}", "{\"b\":2,\"a\":1}"));
    CHECK(fits("{\"anyOf\": [{\"type\": \"null\"}, {\"oneOf\": [{\"const\": \"q\"}, {\"type\": \"number\"}]}]}",
               "1.25e-3"));
    CHECK(fits("{\"items\": false}", "[]") && !fits("{\"items\": false}", "[1]") &&
          fits("{\"minItems\": 2}", "[1, 2, 3]") && !fits("{\"minItems\": 2}", "[1]") &&
          fits("{\"maxItems\": 0}", "[ ]"));

    check_wrong("{\"type\": \"strin\"}", IGNIS_ERROR_ARGUMENT, "at byte 9 of the schema, this is no type");
    check_wrong("{\"type\": []}", IGNIS_ERROR_ARGUMENT, "at byte 9 of the schema, this is no type");
    check_wrong("{\"type\": \"string\", \"not\": {}}", IGNIS_ERROR_UNSUPPORTED,
                "at byte 19 of the schema, the keyword 'not' is not supported (#/not)");
    check_wrong("{\"allOf\": []}", IGNIS_ERROR_ARGUMENT, "allOf has to be an array");
    check_wrong("{\"anyOf\": []}", IGNIS_ERROR_ARGUMENT, "anyOf has to be an array");
    check_wrong("{\"enum\": []}", IGNIS_ERROR_ARGUMENT, "at least one value");
    check_wrong("{\"enum\": 5}", IGNIS_ERROR_ARGUMENT, "at least one value");
    check_wrong("{\"type\": \"string\", \"enum\": [1, 2]}", IGNIS_ERROR_ARGUMENT, "ever ends");
    check_wrong("{\"$ref\": \"#/$defs/a\"}", IGNIS_ERROR_ARGUMENT, "nothing that $ref refers to");
    check_wrong("{\"$ref\": \"http://a/b\"}", IGNIS_ERROR_UNSUPPORTED, "$ref is supported as");
    check_wrong("{\"$ref\": \"#\"}", IGNIS_ERROR_ARGUMENT, "ever ends");
    check_wrong("{\"$ref\": 7}", IGNIS_ERROR_UNSUPPORTED, "$ref is supported as");
    check_wrong("{\"properties\": {\"a\": {\"$ref\": \"#\"}}, \"required\": [\"a\"]}", IGNIS_ERROR_ARGUMENT,
                "ever ends");
    check_wrong("{\"minItems\": 3, \"maxItems\": 1}", IGNIS_ERROR_ARGUMENT,
                "at byte 0 of the schema, no text fits: minItems is 3, and maxItems 1");
    check_wrong("{\"minItems\": 1, \"maxItems\": 0}", IGNIS_ERROR_ARGUMENT,
                "no text fits: minItems is 1, and maxItems 0");
    check_wrong("{\"minItems\": 2, \"items\": false}", IGNIS_ERROR_ARGUMENT,
                "no text fits: minItems is 2, and items false");
    check_wrong("{\"minLength\": 7, \"maxLength\": 5}", IGNIS_ERROR_ARGUMENT,
                "no text fits: minLength is 7, and maxLength 5");
    check_wrong("{\"minItems\": -1}", IGNIS_ERROR_ARGUMENT, "a whole number");
    check_wrong("{\"maxLength\": 1.5}", IGNIS_ERROR_ARGUMENT, "a whole number");
    check_wrong("{\"maxLength\": 200000}", IGNIS_ERROR_UNSUPPORTED, "of the grammar of the schema");
    check_wrong("{\"items\": {\"items\": 5}}", IGNIS_ERROR_ARGUMENT, "a schema is an object, or true");
    check_wrong("{\"items\": {\"properties\": 5}}", IGNIS_ERROR_ARGUMENT, "properties has to be an object");
    check_wrong("{\"type\": ", IGNIS_ERROR_ARGUMENT, "of the schema, a value is missing");
    check_wrong("{} x", IGNIS_ERROR_ARGUMENT, "something follows its end");
    check_wrong("{\"title\": \"\xFF\"}", IGNIS_ERROR_ARGUMENT, "UTF-8");
    check_wrong("{", IGNIS_ERROR_ARGUMENT, "of the schema");
}

/*  Texts beside schemas: those that begin with + fit, those with - do not. */
TEST(schemas_hold_exactly)
{
    static const char *const cases[] = {
        "{\"type\": \"string\", \"enum\": [\"a\", 2]}",
        "+\"a\"",
        "-2",
        "{\"anyOf\": [true, {\"maxItems\": 0}], \"minItems\": 1}",
        "+[3]",
        "-[]",
        "-1",
        "{\"required\": [\"a\"]}",
        "+{\"a\":1}",
        "-{}",
        "-{\"a\":1,\"b\":2}",
        "{\"properties\": {\"ab\": {\"type\": \"null\"}}, \"additionalProperties\": {\"type\": \"integer\"}}",
        "+{\"ab\":null,\"a\":1,\"abc\":2,\"\":3,\"b\":4}",
        "-{\"ab\":1}",
        "-{\"\\u0061b\":1}",
        "-{\"c\":null}",
        "+{\"\\\"\\n\\u0001\":3}",
        "-{\"\\u0041\":3}",
        "{\"allOf\": [{\"properties\": {\"a\": {\"minimum\": 2}}}, {\"properties\": {\"a\": {\"maximum\": 3}, "
        "\"b\": true}, \"additionalProperties\": false}], \"required\": [\"a\"]}",
        "+{\"a\":2}",
        "+{\"a\":3,\"b\":[]}",
        "+{\"a\":2.5}",
        "-{\"a\":1}",
        "-{\"a\":4}",
        "-{\"b\":1}",
        "{\"type\": \"integer\", \"minimum\": -3, \"exclusiveMaximum\": 120}",
        "+-3",
        "+0",
        "+119",
        "--4",
        "-120",
        "-1e1",
        "--0",
        "-1000",
        "+20",
        "-00",
        "{\"type\": \"integer\", \"minimum\": 10, \"exclusiveMinimum\": true}",
        "-10",
        "+11",
        "+9999999999999999",
        "{\"type\": \"number\", \"minimum\": 0.25, \"maximum\": 1e1}",
        "+0.25",
        "+10",
        "+10.000",
        "-10.001",
        "-0.2",
        "+0.250",
        "+3.14159",
        "-0.249",
        "-1e0",
        "{\"type\": \"integer\", \"multipleOf\": 7, \"maximum\": 0}",
        "+-14",
        "+0",
        "-7",
        "--1",
        "{\"type\": \"number\", \"multipleOf\": 0.25}",
        "+1.5",
        "+0.25",
        "+7",
        "-0.3",
        "-0.125",
        "+-0.5",
        "{\"allOf\": [{\"multipleOf\": 4}, {\"multipleOf\": 6}]}",
        "+12",
        "-4",
        "-6",
        "+-36",
        "{\"type\": \"integer\", \"maximum\": 9223372036854775807}",
        "+9999999999999999",
        "+-1",
        "{\"pattern\": \"^a|b$\"}",
        "+\"ax\"",
        "+\"xb\"",
        "-\"xa\"",
        "-\"bx\"",
        "-1",
        "{\"pattern\": \"\\\\d{2}\", \"maxLength\": 3}",
        "+\"12\"",
        "+\"x12\"",
        "-\"1x2\"",
        "-\"1234\"",
        "{\"pattern\": \"^[^a]$\"}",
        "+\"\\\"\"",
        "+\"\\\\\"",
        "+\"\\n\"",
        "+\"\\u0000\"",
        "-\"\\u000a\"",
        "+\"\xF0\x9F\x98\x80\"",
        "-\"a\"",
        "-\"\"",
        "-\"\\u0061\"",
        "{\"pattern\": \"^.$\"}",
        "-\"\\n\"",
        "-\"\xE2\x80\xA8\"",
        "+\"\\t\"",
        "{\"format\": \"date\"}",
        "+\"2024-02-29\"",
        "-\"2023-02-29\"",
        "-\"1900-02-29\"",
        "+\"2000-02-29\"",
        "-\"2024-04-31\"",
        "-\"0000-01-01\"",
        "{\"format\": \"ipv4\"}",
        "+\"255.0.10.1\"",
        "-\"256.0.0.1\"",
        "-\"01.2.3.4\"",
        "{\"format\": \"ipv6\"}",
        "+\"::\"",
        "+\"1:2:3:4:5:6:7:8\"",
        "-\"1:2:3:4:5:6:7::8\"",
        "-\"1::2::3\"",
        "{\"format\": \"uuid\"}",
        "+\"123e4567-e89b-12d3-a456-426614174000\"",
        "-\"123e4567e89b12d3a456426614174000\"",
        "{\"format\": \"email\"}",
        "+\"a.b@c.d\"",
        "-\"a..b@c\"",
        "-\"a@\"",
        "{\"format\": \"date-time\"}",
        "+\"2024-02-29T23:59:59.5Z\"",
        "-\"2024-02-29 23:59:59Z\"",
        "{\"format\": \"uri\"}",
        "+\"http://a/%20?b#c\"",
        "-\"/a\"",
        "-\"a:%2\"",
        "-\"a b:c\"",
        "{\"prefixItems\": [{\"const\": 1}, {\"const\": 2}], \"items\": {\"const\": 3}, \"maxItems\": 4}",
        "+[]",
        "+[1]",
        "+[1,2,3,3]",
        "-[2]",
        "-[1,2,3,3,3]",
        "-[1,2,2]",
        "{\"items\": [{\"const\": 1}], \"additionalItems\": false, \"minItems\": 1}",
        "+[1]",
        "-[]",
        "-[1,1]",
        "{\"items\": {\"enum\": [1, 2, 1.0]}, \"uniqueItems\": true}",
        "+[]",
        "+[2,1]",
        "-[1,1]",
        "-[1,1.0]",
        "{\"type\": \"object\", \"oneOf\": [{\"properties\": {\"k\": {\"const\": 0}}, \"required\": [\"k\"]}, "
        "{\"properties\": {\"k\": "
        "{\"const\": 1}, \"v\": true}, \"required\": [\"k\", \"v\"]}]}",
        "+{\"k\":0}",
        "+{\"k\":1,\"v\":0}",
        "-{\"k\":1}",
        "-{\"k\":0,\"v\":0}",
        "{\"id\": \"x\", \"x-order\": 1, \"nullable\": true, \"format\": \"int32\", \"type\": \"integer\"}",
        "+1",
        "-null",
        "{\"$ref\": \"#/$defs/a\", \"minLength\": 2, \"$defs\": {\"a\": {\"type\": \"string\", \"maxLength\": 3}}}",
        "+\"ab\"",
        "-\"a\"",
        "-\"abcd\"",
    };
    const char *schema = NULL;
    ignis__grammar *g = NULL;
    size_t i;
    SETUP(NULL);
    for (i = 0; i < sizeof cases / sizeof *cases; i++)
        if (cases[i][0] == '{') {
            if (g)
                ignis__grammar_free(g);
            g = ignis__grammar_make("test", schema = cases[i]);
            if (!g)
                test__fail(__FILE__, __LINE__, schema);
        } else if (g && matches(g, cases[i] + 1, strlen(cases[i] + 1)) != (cases[i][0] == '+')) {
            test__fail(__FILE__, __LINE__, schema);
            test__fail(__FILE__, __LINE__, cases[i]);
        }
    if (g)
        ignis__grammar_free(g);
}

/*  Random schemas and texts of schema_compare.py. */
TEST(schemas_of_the_comparison)
{
    ignis__grammar *g = NULL;
    size_t i;
    SETUP(NULL);
    for (i = 0; i < sizeof schema_cases / sizeof *schema_cases; i++) {
        const struct schema_case *now = &schema_cases[i];
        if (i == 0 || strcmp(now->schema, now[-1].schema) != 0) {
            if (g)
                ignis__grammar_free(g);
            g = ignis__grammar_make("test", now->schema);
        }
        if (!g || matches(g, now->text, strlen(now->text)) != now->fits) {
            test__fail(__FILE__, __LINE__, now->schema);
            test__fail(__FILE__, __LINE__, now->text);
        }
    }
    if (g)
        ignis__grammar_free(g);
}

/*  Schemas that rules cannot hold exactly are refused by name and place. */
TEST(schemas_that_are_refused)
{
    static const struct {
        const char *schema, *says;
    } refused[] = {
        {"{\"properties\": {\"a\": {\"not\": {}}}}", "the keyword 'not' is not supported (#/properties/a/not)"},
        {"{\"items\": {\"if\": true}}", "the keyword 'if' is not supported (#/items/if)"},
        {"{\"patternProperties\": {}}", "'patternProperties'"},
        {"{\"\\u006eot\": {}}", "the keyword 'not'"},
        {"{\"oneOf\": [{\"type\": \"string\"}, {\"minLength\": 3}]}", "numbers 0 and 1 may both fit (#/oneOf/1)"},
        {"{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"number\"}]}", "may both fit"},
        {"{\"oneOf\": [{\"maximum\": 3, \"type\": \"number\"}, {\"minimum\": 3, \"type\": \"number\"}]}",
         "may both fit"},
        {"{\"pattern\": \"a(?=b)\"}", "this regular expression is not supported: assertions"},
        {"{\"pattern\": \"(a)\\\\1\"}", "references to groups"},
        {"{\"pattern\": \"\\\\bx\"}", "the assertions \\b and \\B"},
        {"{\"pattern\": \"\\\\p{L}\"}", "classes \\p"},
        {"{\"pattern\": \"(\"}", "a ) is missing"},
        {"{\"pattern\": \"a)\"}", "a ) has no ("},
        {"{\"pattern\": \"*\"}", "there is nothing to repeat"},
        {"{\"pattern\": \"a{2,1}\"}", "a repetition {n,m} is malformed"},
        {"{\"pattern\": \"[b-a]\"}", "a range of a class ends before it begins"},
        {"{\"pattern\": \"[a\"}", "it ends too early"},
        {"{\"pattern\": \"\\\\uD800\"}", "half a surrogate pair"},
        {"{\"pattern\": \"a.{300}b\"}", "it is too large"},
        {"{\"pattern\": \"((((()){1000}){1000}){1000}){1000}\"}", "it is too large"},
        {"{\"pattern\": \"^a*$\", \"maxLength\": 5000}", "too large together with minLength and maxLength"},
        {"{\"format\": \"uri-template\"}", "the format 'uri-template' is not supported (#/format)"},
        {"{\"multipleOf\": 513}", "multipleOf is supported up to 512"},
        {"{\"allOf\": [{\"multipleOf\": 509}, {\"multipleOf\": 503}]}", "multipleOf is supported up to 512"},
        {"{\"minimum\": 1e-17}", "16 after it"},
        {"{\"maximum\": 1e99999}", "40 digits before the point"},
        {"{\"uniqueItems\": true}", "uniqueItems is supported for items that are one of up to 8 values"},
        {"{\"enum\": [{}], \"required\": [\"a\"]}", "a value of this type beside required is not supported (#/enum/0)"},
    };
    size_t i;
    SETUP(NULL);
    for (i = 0; i < sizeof refused / sizeof *refused; i++)
        check_wrong(refused[i].schema, IGNIS_ERROR_UNSUPPORTED, refused[i].says);
    check_wrong("{\"multipleOf\": 0}", IGNIS_ERROR_ARGUMENT, "multipleOf has to be a number above 0");
    check_wrong("{\"minimum\": \"1\"}", IGNIS_ERROR_ARGUMENT, "this has to be a number (#/minimum)");
    check_wrong("{\"uniqueItems\": 1}", IGNIS_ERROR_ARGUMENT, "uniqueItems has to be true or false");
    check_wrong("{\"prefixItems\": 1}", IGNIS_ERROR_ARGUMENT, "prefixItems has to be an array");
    check_wrong("{\"pattern\": 1}", IGNIS_ERROR_ARGUMENT, "pattern has to be a string");
    check_wrong("{\"allOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}", IGNIS_ERROR_ARGUMENT, "ever ends");
    CHECK(fits("{\"anyOf\": [{\"$ref\": \"#\"}, {\"type\": \"null\"}]}", "null") &&
          !fits("{\"anyOf\": [{\"$ref\": \"#\"}, {\"type\": \"null\"}]}", "1"));
    check_wrong("{\"allOf\": [{\"minItems\": 3}, {\"maxItems\": 2}]}", IGNIS_ERROR_ARGUMENT, "ever ends");
    check_wrong("{\"allOf\": [{\"$ref\": \"#\"}]}", IGNIS_ERROR_ARGUMENT, "$ref leads back to where it is");
    check_wrong("{\"minLength\": 1, \"anyOf\": [{\"$ref\": \"#\"}, true]}", IGNIS_ERROR_UNSUPPORTED,
                "from its own alternatives");
}

/*  Schemas in which $ref leads to an integer, or nowhere. */
TEST(references_are_json_pointers)
{
    static const char *const good[] = {
        "{\"$ref\": \"#/$defs/a\", \"$defs\": {\"b\": true, \"a\": {\"type\": \"integer\"}}}",
        "{\"$ref\": \"#/$defs/a~1b\", \"$defs\": {\"a/b\": {\"type\": \"integer\"}}}",
        "{\"$ref\": \"#/$defs/a~0b\", \"$defs\": {\"a~b\": {\"type\": \"integer\"}}}",
        "{\"$ref\": \"#/$defs/~01\", \"$defs\": {\"~1\": {\"type\": \"integer\"}}}",
        "{\"$ref\": \"#/$defs/a%20b\", \"$defs\": {\"a b\": {\"type\": \"integer\"}}}",
        /* a slash before the pointer is read */
        "{\"$ref\": \"#/$defs/a%2Fb\", \"$defs\": {\"a\": {\"b\": {\"type\": \"integer\"}}}}",
        "{\"$ref\": \"#/%24defs/%c3%A9\", \"$defs\": {\"\xC3\xA9\": {\"type\": \"integer\"}}}",
        "{\"$ref\": \"#/$defs/%25\", \"$defs\": {\"%\": {\"type\": \"integer\"}}}",
        "{\"$ref\": \"#\\/$defs\\/\\u0061\", \"$defs\": {\"a\": {\"type\": \"integer\"}}}",
        "{\"$ref\": \"#/$defs/\xC3\xA9\", \"$defs\": {\"\\u00e9\": {\"type\": \"integer\"}}}",
        "{\"$ref\": \"#/$defs/\", \"$defs\": {\"\": {\"type\": \"integer\"}}}",
        "{\"$ref\": \"#/$defs/a/anyOf/1\", \"$defs\": {\"a\": {\"anyOf\": [{\"type\": \"null\"}, {\"type\": "
        "\"integer\"}]}}}",
        "{\"$ref\": \"#/$defs/a/anyOf/0/items\", \"$defs\": {\"a\": {\"anyOf\": [{\"items\": {\"type\": "
        "\"integer\"}}]}}}",
        "{\"$ref\": \"#/$defs/10\", \"$defs\": {\"1\": true, \"10\": {\"type\": \"integer\"}}}",
        "{\"$ref\": \"#/examples/0/1/x\", \"examples\": [[1, {\"x\": {\"type\": \"integer\"}}]]}",
    };
    static const char *const nowhere[] = {"#/$defs/b",
                                          "#/$defs/a/anyOf/2",
                                          "#/$defs/a/anyOf/01",
                                          "#/$defs/a/anyOf/-",
                                          "#/$defs/a/anyOf/",
                                          "#/$defs/a/anyOf/0x",
                                          "#/$defs/a~2",
                                          "#/$defs/a~",
                                          "#/$defs/%4",
                                          "#/$defs/%g1",
                                          "#/$defs/%",
                                          "#/",
                                          "#/$defs/a/anyOf/99999999999999999999",
                                          "#/$defs/a/anyOf/0/type/0"};
    char schema[300], *many;
    size_t i, at;
    SETUP(NULL);
    for (i = 0; i < sizeof good / sizeof *good; i++)
        if (!fits(good[i], "7") || fits(good[i], "null"))
            test__fail(__FILE__, __LINE__, good[i]);
    for (i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        snprintf(schema, sizeof schema,
                 "{\"$ref\": \"%s\", \"$defs\": {\"a\": {\"anyOf\": [{\"type\": \"null\"}, true]}}}", nowhere[i]);
        check_wrong(schema, IGNIS_ERROR_ARGUMENT, "at byte 9 of the schema, there is nothing that $ref refers to");
    }
    check_wrong("{\"$ref\": \"#a\"}", IGNIS_ERROR_UNSUPPORTED, "a place in the schema itself");
    check_wrong("{\"$ref\": \"\"}", IGNIS_ERROR_UNSUPPORTED, "a place in the schema itself");
    CHECK(fits("{\"properties\": {\"\\u0061\": true}, \"required\": [\"a\"]}", "{\"a\":1}"));
    many = (char *)malloc(2000000); /* references, each of which is looked for behind all of them */
    REQUIRE(many);
    at = (size_t)sprintf(many, "{\"anyOf\": [");
    for (i = 0; i < 20000; i++)
        at += (size_t)sprintf(many + at, "{\"$ref\": \"#/$defs/a\"}, ");
    strcpy(many + at, "true], \"$defs\": {\"a\": true}}");
    check_wrong(many, IGNIS_ERROR_UNSUPPORTED, "the schema is too large");
    free(many);
}

/*  Names of rules that all come into the same place of the table of names. */
TEST(names_that_collide)
{
    char *many = (char *)malloc(40000000), name[16] = "", *out = many;
    int i, found = 0;
    SETUP(NULL);
    REQUIRE(many);
    out += sprintf(out, "root ::= \"a\"\n");
    for (i = 0; found < 15000; i++) {
        sprintf(name, "%07d", i);
        if (ignis__token_hash(name, 7) % 256 == 5) {
            out += sprintf(out, "%s ::= \"\"\n", name);
            found++;
        }
    }
    check_wrong(many, IGNIS_ERROR_UNSUPPORTED, "the grammar has too many names");
    free(many);
}

/* schemas within GBNF --------------------------------------------------------------------------------------------- */

static const struct {
    const char *grammar;
    const char *in[6], *out[8];
} mixed[] = {
    {"root ::= \"<\" %json {\"type\":\"integer\"} \"|\" %json {\"type\":\"boolean\"}? \">\"",
     {"<12|true>", "<-3|>"},
     {"<12>", "<a|>", "<12|true"}},
    {"root ::= (%json {\n\"enum\": [\"a}\\\"\", {\"b\": 1}]\n}\n) more # a comment with %json\nmore ::= [%{] | string "
     "| v0\n"
     "string ::= \"%json {}\"\nv0 ::= \"own\"",
     {"\"a}\\\"\"%", "{\"b\":1}{", "{\"b\":1}%json {}", "\"a}\\\"\"own"},
     {"\"x\"%", "{\"b\":1}"}},
    {"root ::= %text \"</a>\" {\"type\":\"string\"} \"</a>\"",
     {"</a>", "a\"\\\n<b></</a>", "\xC3\xA9<</</b></a>", "null</a>", "<</a>"},
     {"</a></a>", "a</a>b</a>", "<</a</a></a>", "a", "</a"}},
    {"root ::= %text \"abab\" {} \"|\"", {"aba|", "abaabb|"}, {"abab|", "ababab|", "xabaababy|"}},
    {"root ::= %text \"\\n</a>\" {\"minLength\":2,\"maxLength\":4} \"!\"",
     {"</!", "\n</a!", "\n\n\xE2\x82\xAC\xC3\xA9!"},
     {"a!", "abcde!", "\n</a>!"}},
    {"root ::= %text \"</a>\" {\"maxLength\":2000} \"!\"", {"!", "a<b/>\n!"}, {"a</b>!", "a"}},
    {"root ::= %text \"</a>\" {\"minLength\":1,\"maxLength\":20000} \"!\"", {"ab/>\n!"}, {"a<b!", "!"}},
    {"root ::= %text \"</a>\" {\"pattern\":\"^(<|/|a|>){5}$\"} \"!\"",
     {"<<//a!", "</</a!"},
     {"</a>>!", "<</a>!", "<a!"}},
    {"root ::= %text \"</a>\" {\"format\":\"date\"}", {"2024-02-29"}, {"2023-02-29", "\"2024-02-29\""}},
    {"root ::= %text \"</a>\" {\"enum\":[\"a\\n\\\"\\\\\",\"x</a>\",3,null,\"\\u00e9\"]}",
     {"a\n\"\\", "\xC3\xA9"},
     {"x</a>", "3", "null", "\"a\""}},
    {"root ::= %text \"|\" {\"anyOf\":[{\"type\":\"null\"},{\"const\":\"a\"},{\"$ref\":\"#/$defs/b\"}],"
     "\"$defs\":{\"b\":{\"enum\":[\"b\",1]}}}",
     {"a", "b"},
     {"null", "1", "\"a\""}},
    {"root ::= %text \"|\" {\"type\":[\"string\",\"integer\"],\"maxLength\":2} | %json {\"allOf\":[{\"type\":"
     "[\"string\",\"null\"]},{\"type\":\"null\"}]}",
     {"12", "null", "ab"},
     {"123", "a|", "\"null\""}},
    {"root ::= %json {\"type\":\"array\",\"items\":{\"$ref\":\"#\"}} \",\" %json {\"type\":\"object\",\"properties\":{"
     "\"n\":{\"type\":\"integer\",\"minimum\":2,\"maximum\":30},\"s\":{\"pattern\":\"^a*$\"}},\"required\":[\"n\"]} "
     "%json {"
     "\"minimum\":3,\"maximum\":4,\"type\":\"integer\"} %json {\"pattern\":\"^b$\"}",
     {"[[],[[]]],{\"n\":29,\"s\":\"aa\"}3\"b\"", "[],{\"n\":2}4\"b\""},
     {"[],{\"n\":31}3\"b\"", "[],{\"n\":2}5\"b\"", "[],{\"n\":2,\"s\":\"b\"}3\"b\"", "[1],{\"n\":2}3\"b\""}},
};

TEST(schemas_within_gbnf)
{
    int i, k;
    SETUP(NULL);
    for (i = 0; i < COUNT_OF(mixed); i++)
        for (k = 0; k < COUNT_OF(mixed[i].in) + COUNT_OF(mixed[i].out); k++) {
            bool is_out = k >= COUNT_OF(mixed[i].in);
            const char *text = is_out ? mixed[i].out[k - COUNT_OF(mixed[i].in)] : mixed[i].in[k];
            if (text && fits(mixed[i].grammar, text) == is_out)
                CHECK_TEXT(text, is_out ? "a text that does not fit" : "a text that fits");
        }
}

TEST(schemas_within_gbnf_that_are_refused)
{
    char *many = (char *)calloc(200000, 1), *at = many;
    int i;
    SETUP(NULL);
    check_wrong("root ::= %jsn {}", IGNIS_ERROR_ARGUMENT, "line 1, column 11: after % comes neither json nor text");
    check_wrong("root ::= %json", IGNIS_ERROR_ARGUMENT, "a schema in braces is missing");
    check_wrong("root ::= %json true", IGNIS_ERROR_ARGUMENT, "line 1, column 16: a schema in braces is missing");
    check_wrong("root ::= %json {\"a\": \"}\"", IGNIS_ERROR_ARGUMENT, "column 10: the text ends within this schema");
    check_wrong("root ::= \"a\" |\n %json {\"type\" 1}", IGNIS_ERROR_ARGUMENT, "line 2, column 2: ");
    check_wrong("root ::= \"a\" %json {\"properties\":{\"a\":{\"not\":{}}}}", IGNIS_ERROR_UNSUPPORTED,
                "line 1, column 14: at byte 20 of the schema, the keyword 'not' is not supported");
    check_wrong("root ::= %text {}", IGNIS_ERROR_ARGUMENT, "a marker in quotes is missing after");
    check_wrong("root ::= %text \"\" {}", IGNIS_ERROR_ARGUMENT, "a marker is empty");
    check_wrong("root ::= %text \"a\\x00\" {}", IGNIS_ERROR_ARGUMENT, "or the character 0");
    check_wrong("root ::= %text \"0123456789012345678901234567890123456789012345678901234567890123\" {}",
                IGNIS_ERROR_ARGUMENT, "more than 63 bytes");
    check_wrong("root ::= %text \"a\" {\"type\":\"integer\"}", IGNIS_ERROR_ARGUMENT,
                "no text of the rule 'root' ever ends");
    check_wrong("root ::= %text \"a\" {\"const\":\"cab\"}", IGNIS_ERROR_ARGUMENT,
                "no text of the rule 'root' ever ends");
    check_wrong("root ::= %json {\"type\":\"string\"} | string", IGNIS_ERROR_ARGUMENT, "there is no rule 'string'");
    check_wrong(
        "root ::= %json {\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},"
        "\"minItems\":1}}}",
        IGNIS_ERROR_ARGUMENT, "no text of the rule 'root' ever ends");
    if (!many)
        abort();
    at += sprintf(at, "root ::= \"\"");
    for (i = 0; i < 1000; i++) /* all share the rules that every schema needs */
        at += sprintf(at, " %%json {\"type\":\"object\",\"properties\":{\"a%d\":{\"type\":\"string\"}}}", i);
    check_wrong(many, IGNIS_OK, NULL);
    at = many + sprintf(many, "root ::= ");
    for (i = 1; i < 30; i++) /* classes of characters are there once */
        at += sprintf(at, "%%text \"</parameter>\" {\"minLength\":1,\"maxLength\":%d} \"</parameter>\"", 60 * i);
    check_wrong(many, IGNIS_OK, NULL);
    free(many);
}

int main(int argc, char **argv) { return test_run(argc, argv); }
