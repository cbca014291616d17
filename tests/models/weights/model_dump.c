// SPDX-License-Identifier: MIT
/*  model_dump.c - gguf_compare.py runs it: opens a model in f32, and writes the weights that are named as raw f32 to a
    file

    model_dump MODEL OUT NAME...
    model_dump MODEL FOLDER       writes the model as a folder instead */
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    ignis_model_desc desc = {.dtype = IGNIS_F32};
    ignis_model model;
    FILE *out;
    int i;
    if (argc < 3)
        return 2;
    ignis_setup(NULL);
    desc.path = argv[1];
    model = ignis_model_open(&desc);
    if (argc == 3) {
        ignis_model_save(model, argv[2]);
        ignis_model_free(model);
        return ignis_shutdown() != IGNIS_OK;
    }
    out = fopen(argv[2], "wb");
    for (i = 3; out && i < argc && ignis_status_last() == IGNIS_OK; i++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor tensor = ignis_model_tensor(model, argv[i]);
        int64_t count = ignis_tensor_numel(tensor);
        float *values = count > 0 ? (float *)malloc(sizeof *values * (size_t)count) : NULL;
        if (values) {
            ignis_tensor_to_host(tensor, values, IGNIS_F32, count);
            fwrite(values, sizeof *values, (size_t)count, out);
        }
        free(values);
        ignis_scope_end(scope);
    }
    if (!out || fclose(out) != 0)
        return 1;
    i = ignis_status_last() != IGNIS_OK;
    ignis_model_free(model);
    return ignis_shutdown() != IGNIS_OK || i;
}
