// SPDX-License-Identifier: MIT
/*  nearest.c - which lines of a text file are nearest to a question in meaning

    The model makes texts to vectors: a folder as Hugging Face has it (config.json, model.safetensors, tokenizer.json)
    of BERT's kind, such as all-MiniLM-L6-v2, bge-small-en-v1.5 or nomic-embed-text-v1.5, or a GGUF file of one. A
    second model, a cross-encoder such as ms-marco-MiniLM-L6-v2, reads the question beside each of the lines that were
    found, and orders them again: slower, and better. Without a file the program has lines of its own.

        cc -I. examples/nearest.c -o nearest -lm -ldl -lpthread
        ./nearest all-MiniLM-L6-v2 "How do I cook rice?" notes.txt ms-marco-MiniLM-L6-v2
*/
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 4096, FOUND = 5 };

static const char *own_lines[] = {"Bring two cups of water to the boil, add a cup of rice and wait.",
                                  "The train to the coast leaves at nine.",
                                  "A cat sleeps sixteen hours a day.",
                                  "Rinse the grains until the water stays clear.",
                                  "Interest rates rose by a quarter of a percent.",
                                  "The museum is closed on Mondays."};

/*  Reads the lines of a file that are not empty. The text lives as long as the program. */
static int read_lines(const char *path, const char **lines)
{
    FILE *file = fopen(path, "rb");
    char *text = (char *)calloc(1, (1 << 20) + 1), *line;
    int count = 0;
    if (!file || !text)
        return printf("'%s' cannot be read\n", path), 0;
    if (fread(text, 1, 1 << 20, file) == 1 << 20)
        printf("only the first megabyte is read\n");
    fclose(file);
    for (line = strtok(text, "\r\n"); line && count < MOST_LINES; line = strtok(NULL, "\r\n"))
        lines[count++] = line;
    return count;
}

/*  Writes the numbers of the largest scores, the largest first. Returns how many there are. */
static int largest(const float *scores, int count, int *best)
{
    int found = 0, i, k;
    for (i = 0; i < count; i++) {
        for (k = found; k > 0 && scores[i] > scores[best[k - 1]]; k--)
            if (k < FOUND)
                best[k] = best[k - 1];
        if (k < FOUND)
            best[k] = i;
        found += found < FOUND;
    }
    return found;
}

int main(int argc, char **argv)
{
    ignis_model_desc from = {.path = argc > 1 ? argv[1] : NULL}, judge = {.path = argc > 4 ? argv[4] : NULL};
    const char *question = argc > 2 ? argv[2] : "How do I cook rice?", **lines = own_lines, *picked[FOUND];
    int count = (int)(sizeof own_lines / sizeof *own_lines), best[FOUND], order[FOUND], found, i, k;
    ignis_embed_desc cut = {.truncate = true};
    ignis_model_info info = {0};
    float scores[FOUND], *vectors, *similar;

    if (!from.path) {
        printf("give a folder with a model, and a question: %s all-MiniLM-L6-v2 \"How do I cook rice?\"\n", argv[0]);
        return 2;
    }
    if (argc > 3) {
        lines = (const char **)malloc(MOST_LINES * sizeof *lines);
        count = lines ? read_lines(argv[3], lines) : 0;
    }
    ignis_setup(NULL);
    ignis_model model = ignis_model_open(&from);
    ignis_model_query(model, &info);
    vectors = (float *)calloc((size_t)(count + 1) * (size_t)(info.hidden + 1), sizeof *vectors);
    similar = (float *)calloc((size_t)count + 1, sizeof *similar);
    ignis_model_embed(model, &question, 1, &cut, vectors);
    ignis_model_embed(model, lines, count, &cut, vectors + info.hidden);
    for (i = 0; i < count; i++)
        for (k = 0; k < info.hidden; k++)
            similar[i] += vectors[k] * vectors[(i + 1) * info.hidden + k];
    found = ignis_status_last() == IGNIS_OK ? largest(similar, count, best) : 0;
    for (i = 0; i < found; i++)
        printf("%6.3f  %s\n", (double)similar[best[i]], picked[i] = lines[best[i]]);
    ignis_model_free(model);

    if (judge.path && found > 0) {
        model = ignis_model_open(&judge);
        if (ignis_model_score(model, question, picked, found, &cut, scores) == IGNIS_OK) {
            printf("\n");
            (void)largest(scores, found, order);
            for (i = 0; i < found; i++)
                printf("%6.3f  %s\n", (double)scores[order[i]], picked[order[i]]);
        }
        ignis_model_free(model);
    }
    i = ignis_status_last() != IGNIS_OK; /* Ignis has written the reason to stderr */
    free(vectors);
    free(similar);
    return ignis_shutdown() != IGNIS_OK || i;
}
