// SPDX-License-Identifier: MIT
/*  fuzz_calls.c - damaged texts of all forms of calls go through the parser of calls.c

    A text gives the same pieces however it is cut. Each call has the name of a tool. Nothing is lost of a text
    without markers. `make check-serve` runs it under sanitizers: fuzz_calls COUNT [SEED]. */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define MAX_DEPTH 32
#define MAX_MEMBERS 512
#define MAX_VALUES 400000
#define COUNT(array) (sizeof(array) / sizeof *(array))

#include "../text.c"
#include "../json.c"
#include "../calls.c"

static const char tools_text[] =
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"}}}}},"
    "{\"function\":{\"name\":\"get_weather\"}}]";

/*  Of each form, in their order, a text with calls; and others. */
static const char *const samples[] = {
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f "
    "<|constrain|>json<|message|>{\"s\": \"1\"}<|call|>",
    "[TOOL_CALLS]f[ARGS]{\"s\": \"1\"}[TOOL_CALLS]get_weather[CALL_ID]abc[ARGS]{}",
    "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"1\"}, \"id\": \"x\"}, {\"name\": \"f\", \"arguments\": "
    "{}}]",
    "ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>"
    "{\"s\": \"1\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"s\": "
    "\"1\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_"
    "calls_section_end|>",
    "<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n{\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
    "\"parameters\": {\"s\": \"1\"}}\n]<|END_ACTION|>",
    "Action: ```json\n[{\"tool_name\": \"f\", \"parameters\": {\"s\": \"1\"}}]```",
    "<seed:think>hm</seed:think><seed:tool_call>\n<function=f>\n<parameter=s>1</parameter>\n<parameter=t>{\"a\": "
    "\"</parameter>\"}</parameter>\n</function>\n</seed:tool_call>",
    "a\n<tool_call>\n<function=f>\n<parameter=s>\n12\n</parameter>\n</function>\n</tool_call> b",
    "<function=f>{\"s\": \"1\"}</function><function=f>{}</function>",
    "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>s"
    "</arg_key:opensource>\n<arg_value:opensource>v1</arg_value:opensource>\n</tool_call:opensource>\n"
    "</tool_calls:opensource>",
    "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>s</arg_key>\n<arg_value>v1</arg_value>\n</tool_call>\n</"
    "tool_calls>",
    "<tool_call>f<arg_key>t</arg_key><arg_value>[\"</arg_value>\"]</arg_value></tool_call><tool_call>f</tool_call>",
    "<think></think>\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>v1</arg_value>\n</tool_call>",
    "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">v</parameter>\n</invoke>\n</minimax:tool_call>",
    "ok\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">v"
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"t\" string=\"false\">\"x\""
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "<function name=\"f\"><param name=\"s\">v1</param></function>",
    "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"s\": \"\\u00e9\\\"}\"}}]",
    "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"s\": [1, {}]}}]</TOOLCALL>\n",
    "<tool_calls>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_calls>",
    "<|function_call|>{\"name\": \"f\", \"arguments\": \"{\\\"s\\\": 1}\"}",
    "{\"name\": \"f\", \"parameters\": {\"s\": \"1\"}}; {\"parameters\": {}, \"name\": \"get_weather\"}",
    "<think>\nhm\n</think>\n\nSo: <tool_call>\n{\"name\": \"f\", \"arguments\": null}\n</tool_call>\nand more",
    "<|channel|>final<|message|>Hello < you",
    "<|START_RESPONSE|>Well.<|END_RESPONSE|>",
};

static uint64_t state;
static unsigned draw(unsigned below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

static void put(void *to, piece_kind kind, const char *data, size_t size)
{
    text *t = (text *)to;
    static const char marks[] = "TRCA";
    char last = t->size ? t->data[0] : 0; /* the kind of the last piece */
    if (!t->size)
        text_add(t, "-", 1);
    if (last != marks[kind] || kind == PIECE_CALL)
        text_print(t, "\n%c:", marks[kind]);
    t->data[0] = marks[kind];
    text_add(t, data, size);
    if (kind == PIECE_CALL && (size != 1 || data[0] != 'f') && (size != 11 || memcmp(data, "get_weather", 11) != 0))
        fprintf(stderr, "fuzz_calls: a call of %.*s\n", (int)size, data), abort();
}

/*  The pieces of a text that comes in parts of up to `most` bytes. */
static text parse(const call_form *way, const json *tools, int open, const text *in, unsigned most)
{
    parser p;
    text out = {0};
    size_t at, size;
    memset(&p, 0, sizeof p);
    p.form = way;
    p.tools = tools;
    p.put = put;
    p.to = &out;
    parser_begin(&p, open);
    for (at = 0; at < in->size; at += size) {
        size = 1 + draw(most);
        size = size < in->size - at ? size : in->size - at;
        parser_add(&p, in->data + at, size, false);
    }
    parser_add(&p, "", 0, true);
    if (p.held.size && p.state != IN_HEADER)
        fprintf(stderr, "fuzz_calls: %zu bytes are left\n", p.held.size), abort();
    text_add(&out, "", 0);
    text_free(&p.held);
    return out;
}

static void damage(text *t)
{
    static const char *const bits[] = {"<",  "{",  "}",           "\"", "\\", "[", "]", "<|",
                                       "|>", "\n", "<tool_call>", "</", "f",  ">", ":", ","};
    unsigned times = draw(5), at, size;
    const char *other;
    while (times--) {
        at = t->size ? draw((unsigned)t->size) : 0;
        size = 1 + draw(8);
        size = at + size < t->size ? size : (unsigned)t->size - at;
        switch (draw(5)) {
        case 0: /* taken out */
            memmove(t->data + at, t->data + at + size, t->size - at - size + 1);
            t->size -= size;
            break;
        case 1:
            if (t->size)
                t->data[at] = (char)(1 + draw(255));
            break;
        case 2: /* cut */ t->size = at, t->data[at] = 0; break;
        default: /* something put in */
            other = draw(4) ? bits[draw(COUNT(bits))] : samples[draw(COUNT(samples))];
            size = (unsigned)strlen(other);
            text_add(t, NULL, size);
            memmove(t->data + at + size, t->data + at, t->size - size - at);
            memcpy(t->data + at, other, size);
            break;
        }
    }
}

int main(int argc, char **argv)
{
    long count = argc > 1 ? atol(argv[1]) : 100000, i, calls = 0;
    json_reader r;
    text source = {0};
    state = argc > 2 ? (uint64_t)atoll(argv[2]) : 1;
    text_add(&source, tools_text, strlen(tools_text));
    if (!json_read(&r, &source))
        return 1;
    for (i = 0; i < count; i++) {
        const call_form *way = draw(20) ? &forms[draw(COUNT(forms))] : NULL;
        const json *tools = way && draw(8) ? r.values : NULL;
        int open = draw(8) ? 0 : 1 + (int)draw(COUNT(thoughts));
        text in = {0}, once, again;
        text_print(&in, "%s",
                   samples[way && draw(4) ? (unsigned)(way - forms) % COUNT(samples) : draw(COUNT(samples))]);
        damage(&in);
        once = parse(way, tools, open, &in, 1);
        again = parse(way, tools, open, &in, 40);
        if (once.size != again.size || memcmp(once.data, again.data, once.size) != 0) {
            fprintf(stderr, "fuzz_calls: %s, input %ld\n%s\n--- byte by byte\n%s\n--- in parts\n%s\n",
                    way ? way->name : "", i, in.data, once.data, again.data);
            return 1;
        }
        calls += strstr(once.data, "\nC:") != NULL;
        text_free(&in), text_free(&once), text_free(&again);
    }
    free(r.values);
    text_free(&source);
    printf("ok   serve: %ld damaged texts of %d forms, %ld with calls\n", count, (int)COUNT(forms), calls);
    return calls > count / 8 ? 0 : 1;
}
