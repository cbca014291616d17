// SPDX-License-Identifier: MIT
/*  chat.c - talk with a language model in the terminal

    The model is a folder as Hugging Face has it, of a model that was taught to talk, such as SmolLM2-135M-Instruct or Qwen3-0.6B. Every turn renders
    the whole talk by the model's own template; the sequence keeps what it has of it, so only what is new is computed. Ctrl-C stops an answer,
    an empty line ends the program.

        cc -I. examples/chat.c -o chat -lm -ldl -lpthread
        ./chat SmolLM2-135M-Instruct "You are a helpful assistant."
*/
#define IGNIS_IMPLEMENTATION
#define IGNIS_MODELS
#include "ignis.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { TURNS = 64, LONGEST = 16384 };

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
    return copy ? strcpy(copy, text) : NULL;
}

int main(int argc, char **argv)
{
    static char line[LONGEST];
    ignis_model_desc from = {.path = argc > 1 ? argv[1] : NULL};
    ignis_message talk[TURNS + 2] = {{0}};
    ignis_generate_info info;
    ignis_generate_desc how = {.sampling = {.temperature = 0.7, .top_p = 0.9}, .text_fn = show, .info = &info};
    int count = 0, system = 0;

    if (!from.path) {
        printf("give a folder with a model: %s SmolLM2-135M-Instruct [\"You are a pirate.\"]\n", argv[0]);
        return 2;
    }
    ignis_setup(NULL);
    ignis_model model = ignis_model_open(&from);
    ignis_sequence sequence = ignis_sequence_begin(model);
    if (argc > 2) {
        talk[count].role = "system";
        talk[count++].content = copy_of(argv[2]);
        system = 1;
    }
    signal(SIGINT, on_interrupt);
    while (ignis_status_last() == IGNIS_OK && printf("> ") && fflush(stdout) == 0 && fgets(line, sizeof line, stdin) && line[0] != '\n') {
        line[strcspn(line, "\n")] = 0;
        talk[count].role = "user";
        talk[count++].content = copy_of(line);
        answer[0] = 0;
        stopped = 0;
        how.sampling.seed++;
        if (ignis_sequence_chat(sequence, talk, count) != IGNIS_OK || ignis_generate(sequence, &how) != IGNIS_OK)
            break;
        printf("\n[%d tokens, %.1f a second, the first after %.2f s%s]\n", info.tokens, info.tokens / info.seconds, info.first,
               info.ending == IGNIS_ENDING_CONTEXT ? "; the context is full" : "");
        talk[count].role = "assistant";
        talk[count++].content = copy_of(answer);
        if (count >= TURNS || info.ending == IGNIS_ENDING_CONTEXT) { /* the first turn is forgotten */
            free((void *)talk[system].content);
            free((void *)talk[system + 1].content);
            memmove(talk + system, talk + system + 2, sizeof talk[0] * (size_t)(count - system - 2));
            count -= 2;
        }
    }
    if (ignis_status_last() != IGNIS_OK)
        printf("%s\n", ignis_status_message());
    while (count > 0)
        free((void *)talk[--count].content);
    ignis_sequence_free(sequence);
    ignis_model_free(model);
    return ignis_shutdown() != IGNIS_OK;
}
