// SPDX-License-Identifier: MIT
/*  generate_logits.c - transformers_compare.py runs it: the logits of texts behind a prompt, and behind each of the ids
    after it

    Reads jobs from standard input, until it ends, and answers each with a line: done, or failed.

    MODEL DTYPE OUT SAVED CONTEXT TEXTS, then for each text: PROMPT TOKENS COUNT ID...
        DTYPE    bf16, f16 or f32
        SAVED    1: the model is saved as the folder OUT/model
        CONTEXT  the most tokens of a text
        PROMPT   how many of its COUNT ids are fed at once; the others follow one by one
        TOKENS   0: the model is an encoder, and the hidden states of all ids are written instead of logits

    OUT is a folder. It gets, for text 0, 1, ...: logits0, as raw f32; greedy0, the ids of all of the text and of the
    TOKENS likeliest ones behind it, as raw i32. */
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

typedef struct text {
    int prompt, tokens, count;
    int32_t *ids; /* as many as the context */
} text;

static FILE *out_file(const char *folder, const char *name, int number)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s%d", folder, name, number);
    return fopen(path, "wb");
}

static bool read_text(text *t, int context)
{
    int i, id;
    if (scanf("%d %d %d", &t->prompt, &t->tokens, &t->count) != 3 || t->prompt < 1 || t->prompt > t->count ||
        t->count > context)
        return false;
    for (i = 0; i < t->count; i++) {
        if (scanf("%d", &id) != 1)
            return false;
        t->ids[i] = id;
    }
    return true;
}

/*  Writes the logits behind the prompt, and behind each of the ids after it. */
static bool write_logits(ignis_sequence sequence, FILE *out, const text *t, float *logits, int vocab)
{
    int i, some;
    for (i = 0; i < t->count; i += some) {
        some = i == 0 ? t->prompt : 1;
        if (ignis_sequence_feed(sequence, t->ids + i, some) != IGNIS_OK ||
            ignis_sequence_logits(sequence, logits, vocab) != IGNIS_OK ||
            fwrite(logits, sizeof *logits, (size_t)vocab, out) != (size_t)vocab)
            return false;
    }
    return true;
}

static bool compute(ignis_sequence sequence, const char *folder, int number, text *t, float *logits, int vocab)
{
    ignis_generate_desc greedy = {.end_count = -1, .max_tokens = t->tokens};
    const int most = t->count + t->tokens;
    FILE *out = out_file(folder, "logits", number);
    bool good = out && write_logits(sequence, out, t, logits, vocab);
    if (!out || fclose(out) != 0 || !good)
        return false;
    ignis_generate(sequence, &greedy);
    good = ignis_sequence_ids(sequence, t->ids, most) == most && ignis_status_last() == IGNIS_OK;
    if (!good || !(out = out_file(folder, "greedy", number)))
        return false;
    good = fwrite(t->ids, sizeof *t->ids, (size_t)most, out) == (size_t)most;
    return fclose(out) == 0 && good;
}

static bool write_hidden_states(ignis_model model, const char *folder, int number, const text *t, int hidden)
{
    const int64_t count = (int64_t)t->count * hidden;
    float *states = (float *)malloc(sizeof *states * (size_t)count);
    FILE *out = out_file(folder, "logits", number);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor_desc desc = {.dtype = IGNIS_I32};
    ignis_tensor ids = ignis_tensor_from_host(t->ids, IGNIS_SHAPE(t->count), &desc);
    bool good = states && out &&
                ignis_tensor_to_host(ignis_model_hidden(model, ids, NULL), states, IGNIS_F32, count) == IGNIS_OK &&
                fwrite(states, sizeof *states, (size_t)count, out) == (size_t)count;
    good = ignis_scope_end(scope) == IGNIS_OK && good;
    free(states);
    return out && fclose(out) == 0 && good;
}

/*  Does one job. False if something failed: Ignis has said what. */
static bool work(const char *path, const char *dtype, const char *folder, int saved, int context, int texts)
{
    ignis_model_desc desc = {.path = path, .context = context};
    ignis_model_info info;
    text t = {.ids = (int32_t *)calloc((size_t)context, sizeof(int32_t))};
    float *logits = NULL;
    char to[600];
    bool good;
    int i;
    desc.dtype = strcmp(dtype, "f32") == 0 ? IGNIS_F32 : strcmp(dtype, "f16") == 0 ? IGNIS_F16 : IGNIS_BF16;
    ignis_model model = ignis_model_open(&desc);
    good = t.ids && model.id && ignis_model_query(model, &info) == IGNIS_OK &&
           (logits = (float *)malloc(sizeof *logits * (size_t)info.vocab)) != NULL;
    for (i = 0; t.ids && i < texts && read_text(&t, context); i++) { /* so that the next job begins where it has to */
        ignis_sequence sequence = good && t.tokens > 0 ? ignis_sequence_begin(model) : (ignis_sequence){0};
        if (good && t.tokens == 0)
            good = write_hidden_states(model, folder, i, &t, info.hidden);
        else
            good = good && sequence.id && compute(sequence, folder, i, &t, logits, info.vocab);
        if (sequence.id)
            good = ignis_sequence_free(sequence) == IGNIS_OK && good;
    }
    good = good && i == texts;
    snprintf(to, sizeof to, "%s/model", folder);
    good = good && (!saved || ignis_model_save(model, to) == IGNIS_OK);
    free(t.ids);
    free(logits);
    return (!model.id || ignis_model_free(model) == IGNIS_OK) && good;
}

int main(void)
{
    char path[512], dtype[8], folder[512];
    int saved, context, texts;
    if (ignis_setup(NULL) != IGNIS_OK)
        return 2;
    while (scanf("%511s %7s %511s %d %d %d", path, dtype, folder, &saved, &context, &texts) == 6) {
        if (context < 1 || context > 1 << 20)
            return 2;
        puts(work(path, dtype, folder, saved, context, texts) ? "done" : "failed");
        fflush(stdout);
        ignis_status_clear();
    }
    return ignis_shutdown() != IGNIS_OK;
}
