// SPDX-License-Identifier: MIT
/*  talk.c - talk with a language model in the terminal

    The model is a folder as Hugging Face has it, or a GGUF file, of a model that was taught to talk, such as
    SmolLM2-135M-Instruct or Qwen3-0.6B.
    Every turn renders the whole talk by the model's own template; the sequence keeps what it has of it, so only what is
    new is computed. When the context becomes too small for the talk, its first turns are forgotten. Ctrl-C stops an
    answer, and takes back a line; Ctrl-D or an empty line ends the program. /help lists the commands.

        cc -I. apps/talk/talk.c -o talk -lm -ldl -lpthread
        ./talk SmolLM2-135M-Instruct "You are a helpful assistant."
*/
#if !defined(_GNU_SOURCE) && !defined(_WIN32)
#define _GNU_SOURCE /* for wcwidth */
#endif
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "line.c"

enum { TURNS = 64, LONGEST = 16384 };

static ignis_message talk[TURNS + 2];
static int count, first; /* messages; the first one that can be forgotten, behind the system's */

static volatile sig_atomic_t stopped;

static void on_interrupt(int signal_number)
{
    signal(signal_number, on_interrupt);
    stopped = 1;
}

static char answer[LONGEST]; /* the one under way */

static bool show(const char *text, size_t size, void *user_data)
{
    size_t at = strlen(answer);
    (void)user_data;
    if (at + size < sizeof answer) {
        memcpy(answer + at, text, size);
        answer[at + size] = 0;
    }
    return fwrite(text, 1, size, stdout) == size && fflush(stdout) == 0 && !stopped;
}

static char *copy_of(const char *text)
{
    char *copy = (char *)malloc(strlen(text) + 1);
    if (!copy)
        exit(1);
    return strcpy(copy, text);
}

static void add(const char *role, const char *text)
{
    talk[count].role = role;
    talk[count++].content = copy_of(text);
}

/*  Takes some messages out of the talk. */
static void forget(int from, int some)
{
    for (int i = from; i < from + some; i++)
        free((void *)talk[i].content);
    memmove(talk + from, talk + from + some, sizeof talk[0] * (size_t)(count - from - some));
    count -= some;
}

/*  Reads a line, and takes the end off it. False: there is none, or an empty one. */
static bool read_line(char *line)
{
    for (;;) {
        int c = 0, edited = line_edit("> ", line, LONGEST);
        if (edited == 0) {
            printf("[Ctrl-D ends the talk]\n");
            continue;
        }
        if (edited > -2)
            return edited == 1 && line[0];
        printf("> ");
        fflush(stdout);
        if (!fgets(line, LONGEST, stdin) || line[0] == '\n')
            return false;
        if (strchr(line, '\n') || feof(stdin)) {
            line[strcspn(line, "\n")] = 0;
            return true;
        }
        while (c != '\n' && c != EOF)
            c = getchar();
        printf("[a line has up to %d bytes; this one is left out]\n", LONGEST - 2);
    }
}

/*  The tokens of the talk, without what is between the system's message and message `from`; below 0: a failure. */
static int tokens_from(ignis_tokenizer tokenizer, int from)
{
    ignis_chat_desc desc = {.add_generation_prompt = true};
    ignis_message some[TURNS + 2];
    memcpy(some, talk, sizeof talk[0] * (size_t)first);
    memcpy(some + first, talk + from, sizeof talk[0] * (size_t)(count - from));
    return ignis_chat_encode(tokenizer, some, first + count - from, &desc, NULL, 0);
}

/*  Makes room for an answer, a quarter of the context: forgets the first turns, or leaves the last message out where it
    does not fit alone. False:
    there is nothing to answer. */
static bool fit(ignis_tokenizer tokenizer, int context)
{
    int tokens = tokens_from(tokenizer, count - 1), from = first;
    if (tokens < 0 || tokens >= context) {
        if (tokens > 0)
            printf("[this makes %d tokens, and the context has %d: the message is left out]\n", tokens, context);
        forget(count - 1, 1);
        return false;
    }
    while (from < count - 1 && tokens_from(tokenizer, from) > context - context / 4)
        from += 2;
    if (from > first)
        printf("[the talk is too long for the context: its first %d turns are forgotten]\n", (from - first) / 2);
    forget(first, from - first);
    return true;
}

/* --- commands ---------------------------------------------------------------------------------------------------- */

static void put_system(const char *text)
{
    if (first)
        forget(0, 1);
    first = 0;
    if (!*text)
        return;
    memmove(talk + 1, talk, sizeof talk[0] * (size_t)count);
    talk[0].role = "system";
    talk[0].content = copy_of(text);
    count++;
    first = 1;
}

static void save(const char *path)
{
    FILE *file = fopen(path, "w");
    for (int i = 0; file && i < count; i++)
        fprintf(file, "%s: %s\n\n", talk[i].role, talk[i].content);
    if (!file || fclose(file) != 0)
        printf("[%s cannot be written]\n", path);
    else
        printf("[%d messages are in %s]\n", count, path);
}

static const char help[] =
    "/new             a new talk\n"
    "/again           another answer to the last message\n"
    "/undo            takes the last turn back\n"
    "/system TEXT     another message of the system; without a text: none\n"
    "/temperature X   0 and above (now %g)\n"
    "/tokens N        of an answer, at most; 0: up to the end of the context (now %d)\n"
    "/seed N          of the next answer (now %llu)\n"
    "/save FILE       writes the talk\n"
    "/quit            ends, as Ctrl-D does\n"
    "Arrows, Home, End, Ctrl-A E B F K U W edit a line; up and down show earlier ones. Ctrl-C stops "
    "an answer.\n";

typedef enum outcome { ANSWER, NO_ANSWER, QUIT } outcome;

/*  Does what a line that begins with / says. */
static outcome command(const char *line, ignis_generate_desc *how)
{
    size_t size = strcspn(line, " ");
    const char *rest = line + size + strspn(line + size, " ");
    char *end = NULL;
    double number = strtod(rest, &end);
    bool is_number = *rest && !*end && number >= 0 && number <= 1e9;
#define IS(name) (size == strlen(name) && strncmp(line, name, size) == 0)
    if (IS("/quit"))
        return QUIT;
    if (IS("/new"))
        forget(first, count - first), printf("[a new talk]\n");
    else if (IS("/again") && count - first >= 2)
        return forget(count - 1, 1), ANSWER;
    else if (IS("/undo") && count - first >= 2)
        forget(count - 2, 2), printf("[the last turn is taken back]\n");
    else if (IS("/again") || IS("/undo"))
        printf("[there is no turn]\n");
    else if (IS("/system"))
        put_system(rest), printf("[%s]\n", first ? "the system's message is set" : "there is no system's message");
    else if (IS("/temperature") && is_number)
        how->sampling.temperature = number;
    else if (IS("/tokens") && is_number)
        how->max_tokens = (int)number;
    else if (IS("/seed") && is_number)
        how->sampling.seed = (uint64_t)number;
    else if (IS("/save") && *rest)
        save(rest);
    else {
        if (!IS("/help"))
            printf("[%.*s: no such command, or without what it needs]\n", (int)size, line);
        printf(help, how->sampling.temperature, how->max_tokens, (unsigned long long)how->sampling.seed);
        printf("[%d messages]\n", count);
    }
    return NO_ANSWER;
}

int main(int argc, char **argv)
{
    static char line[LONGEST];
    ignis_model_desc from = {.path = argc > 1 ? argv[1] : NULL};
    ignis_sequence_info room = {0};
    ignis_generate_info info;
    ignis_generate_desc how = {
        .sampling = {.temperature = 0.7, .top_p = 0.9, .seed = 1}, .text_fn = show, .info = &info};

    if (!from.path) {
        printf("give a folder with a model: %s SmolLM2-135M-Instruct [\"You are a pirate.\"]\n", argv[0]);
        return 2;
    }
    setlocale(LC_CTYPE, "");
    ignis_setup(NULL);
    ignis_model model = ignis_model_open(&from);
    ignis_sequence sequence = ignis_sequence_begin(model);
    ignis_tokenizer tokenizer = ignis_model_tokenizer(model);
    ignis_sequence_query(sequence, &room);
    put_system(argc > 2 ? argv[2] : "");
    while (ignis_status_last() == IGNIS_OK && read_line(line)) {
        outcome next = line[0] == '/' ? command(line, &how) : ANSWER;
        if (next == QUIT)
            break;
        if (next == NO_ANSWER)
            continue;
        if (line[0] != '/')
            add("user", line);
        if (!fit(tokenizer, room.context))
            continue;
        answer[0] = 0;
        stopped = 0;
        signal(SIGINT, on_interrupt); /* else Ctrl-C ends the program */
        if (ignis_sequence_chat(sequence, talk, count) != IGNIS_OK || ignis_generate(sequence, &how) != IGNIS_OK)
            break;
        signal(SIGINT, SIG_DFL);
        how.sampling.seed++;
        printf("\n[%d tokens, %.1f a second, the first after %.2f s%s]\n", info.tokens, info.tokens / info.seconds,
               info.first, info.ending == IGNIS_ENDING_CONTEXT ? "; the context is full" : "");
        add("assistant", answer);
        if (count >= TURNS)
            forget(first, 2);
    }
    int failed = ignis_status_last() != IGNIS_OK; /* Ignis has written the reason to stderr */
    forget(0, count);
    ignis_sequence_free(sequence);
    ignis_model_free(model);
    return ignis_shutdown() != IGNIS_OK || failed;
}
