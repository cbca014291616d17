// SPDX-License-Identifier: MIT
/*  chat.c - talk with a language model in the terminal

    The model is a folder as Hugging Face has it, or a GGUF file, of a model that was taught to talk, such as
    SmolLM2-135M-Instruct or Qwen3-0.6B.
    Every turn renders the whole talk by the model's own template; the sequence keeps what it has of it, so only what is
    new is computed. When the context becomes too small for the talk, its first turns are forgotten. Ctrl-C stops an
    answer; at the prompt it ends the program, as an empty line does.

        cc -I. examples/chat.c -o chat -lm -ldl -lpthread
        ./chat SmolLM2-135M-Instruct "You are a helpful assistant."
*/
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void add(const char *role, const char *text)
{
    char *copy = (char *)malloc(strlen(text) + 1);
    if (!copy)
        exit(1);
    talk[count].role = role;
    talk[count++].content = strcpy(copy, text);
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
        int c = 0;
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

/*  The tokens of the talk, without what lies between the system's message and message `from`; below 0: a failure. */
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

int main(int argc, char **argv)
{
    static char line[LONGEST];
    ignis_model_desc from = {.path = argc > 1 ? argv[1] : NULL};
    ignis_sequence_info room = {0};
    ignis_generate_info info;
    ignis_generate_desc how = {.sampling = {.temperature = 0.7, .top_p = 0.9}, .text_fn = show, .info = &info};

    if (!from.path) {
        printf("give a folder with a model: %s SmolLM2-135M-Instruct [\"You are a pirate.\"]\n", argv[0]);
        return 2;
    }
    ignis_setup(NULL);
    ignis_model model = ignis_model_open(&from);
    ignis_sequence sequence = ignis_sequence_begin(model);
    ignis_tokenizer tokenizer = ignis_model_tokenizer(model);
    ignis_sequence_query(sequence, &room);
    if (argc > 2) {
        add("system", argv[2]);
        first = 1;
    }
    while (ignis_status_last() == IGNIS_OK && read_line(line)) {
        add("user", line);
        if (!fit(tokenizer, room.context))
            continue;
        answer[0] = 0;
        stopped = 0;
        how.sampling.seed++;
        signal(SIGINT, on_interrupt); /* else Ctrl-C ends the program */
        if (ignis_sequence_chat(sequence, talk, count) != IGNIS_OK || ignis_generate(sequence, &how) != IGNIS_OK)
            break;
        signal(SIGINT, SIG_DFL);
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
