// SPDX-License-Identifier: MIT
/*  generate_logits.c - transformers_compare.py runs it: the logits of a sequence behind a prompt, and behind each of
    the ids after it

    generate_logits MODEL DTYPE OUT PROMPT TOKENS ID...      DTYPE: bf16, f16 or f32; PROMPT: how many of the ids are
    fed at once

    OUT is a folder: logits, as raw f32; greedy, the ids of all of the sequence and of the TOKENS likeliest ones behind
    it, as raw i32; model, in bf16 alone, the model saved as a folder */
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

int main(int argc, char **argv)
{
    ignis_model_desc desc = {0};
    ignis_generate_desc greedy = {.end_count = -1};
    ignis_model_info info;
    char path[512];
    int count = argc - 6, i, some, prompt, failed = 1;
    if (argc < 7 || (prompt = atoi(argv[4])) < 1 || prompt > count || (greedy.max_tokens = atoi(argv[5])) < 1 ||
        ignis_setup(NULL) != IGNIS_OK)
        return 2;
    desc.path = argv[1];
    desc.dtype = strcmp(argv[2], "f32") == 0 ? IGNIS_F32 : strcmp(argv[2], "f16") == 0 ? IGNIS_F16 : IGNIS_BF16;
    desc.context = count + greedy.max_tokens + 1;
    ignis_model model = ignis_model_open(&desc);
    ignis_sequence sequence = ignis_sequence_begin(model);
    if (!sequence.id || ignis_model_query(model, &info) != IGNIS_OK)
        return 1;
    int32_t *ids = (int32_t *)malloc(sizeof *ids * (size_t)desc.context);
    float *logits = (float *)malloc(sizeof *logits * (size_t)info.vocab);
    snprintf(path, sizeof path, "%s/logits", argv[3]);
    FILE *out = fopen(path, "wb");
    if (!ids || !logits || !out)
        return 1;
    for (i = 0; i < count; i++)
        ids[i] = atoi(argv[6 + i]);
    for (i = 0; i < count && ignis_status_last() == IGNIS_OK; i += some) {
        some = i == 0 ? prompt : 1;
        if (ignis_sequence_feed(sequence, ids + i, some) == IGNIS_OK &&
            ignis_sequence_logits(sequence, logits, info.vocab) == IGNIS_OK)
            fwrite(logits, sizeof *logits, (size_t)info.vocab, out);
    }
    failed = fclose(out) != 0;
    ignis_generate(sequence, &greedy);
    count = ignis_sequence_ids(sequence, ids, desc.context);
    snprintf(path, sizeof path, "%s/greedy", argv[3]);
    if (!(out = fopen(path, "wb")))
        return 1;
    fwrite(ids, sizeof *ids, (size_t)(count > 0 ? count : 0), out);
    failed = fclose(out) != 0 || failed;
    snprintf(path, sizeof path, "%s/model", argv[3]);
    if (desc.dtype == IGNIS_BF16)
        ignis_model_save(model, path);
    failed = ignis_status_last() != IGNIS_OK || failed;
    free(ids);
    free(logits);
    ignis_sequence_free(sequence);
    ignis_model_free(model);
    return ignis_shutdown() != IGNIS_OK || failed;
}
