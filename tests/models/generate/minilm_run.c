// SPDX-License-Identifier: MIT
/*  minilm_run.c - minilm_compare.py runs it: vectors of texts

    minilm_run MODEL DTYPE TEXT...      DTYPE: bf16, f16 or f32

    For each text two lines: its ids; its vector. */
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

int main(int argc, char **argv)
{
    ignis_model_desc desc = {0};
    ignis_model_info info = {0};
    ignis_embed_desc cut = {.truncate = true};
    float *vectors = NULL;
    int32_t ids[512];
    int i, k, count;
    if (argc < 4 || ignis_setup(NULL) != IGNIS_OK)
        return 2;
    desc.path = argv[1];
    desc.dtype = strcmp(argv[2], "f32") == 0 ? IGNIS_F32 : strcmp(argv[2], "f16") == 0 ? IGNIS_F16 : IGNIS_BF16;
    ignis_model model = ignis_model_open(&desc);
    if (ignis_model_query(model, &info) == IGNIS_OK)
        vectors = (float *)calloc((size_t)(argc - 3) * (size_t)info.hidden, sizeof *vectors);
    if (vectors)
        ignis_model_embed(model, (const char *const *)argv + 3, argc - 3, &cut, vectors);
    for (i = 3; i < argc && ignis_status_last() == IGNIS_OK; i++) {
        count = ignis_tokenizer_encode(ignis_model_tokenizer(model), argv[i], (int64_t)strlen(argv[i]), NULL, ids, 512);
        for (k = 0; k < count && k < 512; k++)
            printf(k ? " %d" : "%d", (int)ids[k]);
        printf("\n");
        for (k = 0; k < info.hidden; k++)
            printf(k ? " %.9g" : "%.9g", (double)vectors[(i - 3) * info.hidden + k]);
        printf("\n");
    }
    if (ignis_status_last() != IGNIS_OK)
        fprintf(stderr, "%s\n", ignis_status_message());
    i = ignis_status_last() != IGNIS_OK;
    free(vectors);
    ignis_model_free(model);
    return ignis_shutdown() != IGNIS_OK || i;
}
