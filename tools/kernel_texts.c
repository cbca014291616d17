// SPDX-License-Identifier: MIT
/*  kernel_texts.c - writes the texts of ignis_kernels.h and ignis_models.h as files, as programs have them:
    kernel_texts FOLDER */
#define IGNIS_IMPLEMENTATION
#include "ignis_kernels.h"

#include "build/model_kernels.c"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: kernel_texts FOLDER\n", stderr);
        return 1;
    }
    for (int i = 0; i < IGNIS__SOURCE_MODELS_END; i++) {
        const ignis__source *source =
            i < IGNIS__SOURCE_COUNT ? ignis__sources[i] : ignis__model_kernel_sources[i - IGNIS__SOURCE_COUNT];
        char path[1024];
        int failed = 0;
        FILE *file;
        snprintf(path, sizeof path, "%s/%s", argv[1], source->name);
        file = fopen(path, "wb");
        for (int piece = 0; file && piece < source->piece_count; piece++)
            failed |= fputs(source->pieces[piece], file) < 0;
        if (!file || fclose(file) != 0 || failed) {
            fprintf(stderr, "kernel_texts: cannot write %s\n", path);
            return 1;
        }
    }
    return 0;
}
