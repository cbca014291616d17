// SPDX-License-Identifier: MIT
/*  smollm_run.c - smollm_compare.py runs it: greedy answers of a model to questions

    smollm_run MODEL DTYPE TOKENS QUESTION...      DTYPE: bf16, f16 or f32; TOKENS: of an answer, at most

    For each question three lines: the ids of the talk, up to where the answer begins; the number of the answer's ending
    (ignis_ending), and its ids; its text, with \n where a line ends. */
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

enum { CONTEXT = 512 };

static char text[16 * CONTEXT];

static bool keep(const char *piece, size_t size, void *user_data)
{
    size_t at = strlen(text);
    (void)user_data;
    if (at + size >= sizeof text)
        return false;
    memcpy(text + at, piece, size);
    text[at + size] = 0;
    return true;
}

static void print_ids(const int32_t *ids, int count)
{
    int i;
    for (i = 0; i < count; i++)
        printf(i ? " %d" : "%d", (int)ids[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    ignis_model_desc desc = {0};
    ignis_generate_desc greedy = {.text_fn = keep};
    ignis_generate_info info = {0};
    int32_t ids[CONTEXT];
    const char *at;
    int i, before, count;
    if (argc < 5 || (greedy.max_tokens = atoi(argv[3])) < 1 || ignis_setup(NULL) != IGNIS_OK)
        return 2;
    desc.path = argv[1];
    desc.dtype = strcmp(argv[2], "f32") == 0 ? IGNIS_F32 : strcmp(argv[2], "f16") == 0 ? IGNIS_F16 : IGNIS_BF16;
    desc.context = CONTEXT;
    greedy.info = &info;
    ignis_model model = ignis_model_open(&desc);
    for (i = 4; i < argc && ignis_status_last() == IGNIS_OK; i++) {
        ignis_message question = {.role = "user", .content = argv[i]};
        ignis_sequence sequence = ignis_sequence_begin(model);
        ignis_sequence_chat(sequence, &question, 1);
        before = ignis_sequence_ids(sequence, ids, CONTEXT);
        print_ids(ids, before);
        text[0] = 0;
        ignis_generate(sequence, &greedy);
        count = ignis_sequence_ids(sequence, ids, CONTEXT);
        printf("%d ", (int)info.ending);
        print_ids(ids + before, count - before);
        for (at = text; *at; at++)
            printf(*at == '\n' ? "\\n" : "%c", *at);
        printf("\n");
        fflush(stdout);
        ignis_sequence_free(sequence);
    }
    count = ignis_status_last() != IGNIS_OK;
    ignis_model_free(model);
    return ignis_shutdown() != IGNIS_OK || count;
}
