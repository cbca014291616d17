// SPDX-License-Identifier: MIT
/*  own_forward.h - models beside a test's own forward pass in double: whole texts, tensors, sequences, adapters */
#ifndef OWN_FORWARD_H
#define OWN_FORWARD_H

#include "ignis_models.h"

#include "checkpoint.h"
#include "near.h"
#include "polls.h"

/*  The forward of a test for a row of its table of families, which writes logits [count, vocab] of a text. */
typedef struct own_forward {
    const char *name; /* of the family, for messages */
    const void *family;
    ck_model *model;
    void (*run)(const void *family, const ck_model *model, const int32_t *ids, int count, double *logits);
} own_forward;

/*  Makes tokens of a text. */
static inline void ids_of(int32_t *ids, int count, int vocab)
{
    int i;
    for (i = 0; i < count; i++)
        ids[i] = (int32_t)((i * 31 + i / 7) % vocab);
}

static inline void check_own(own_forward own, const char *what, const float *got, const double *wanted, int count,
                             double tolerance)
{
    check_of_largest(__LINE__, own.name, what, got, wanted, count, tolerance, 0.05);
}

/*  Compares ignis_model_forward for a text of `length` tokens, and for two texts of `pair` tokens if that is not 0. */
static inline void check_whole(own_forward own, ignis_model model, int length, int pair, double tolerance)
{
    const int most = length > 2 * pair ? length : 2 * pair, vocab = own.model->vocab;
    float *scores = (float *)calloc((size_t)(most * vocab), sizeof *scores);
    double *wanted = (double *)calloc((size_t)(most * vocab), sizeof *wanted);
    int32_t *ids = (int32_t *)calloc((size_t)most, sizeof *ids);
    ignis_tensor_desc desc = tensor_desc(IGNIS_I32, false);
    ignis_scope scope = ignis_scope_begin();
    ignis_tensor logits;
    ids_of(ids, most, vocab);
    own.run(own.family, own.model, ids, length, wanted);
    logits = ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(length), &desc));
    CHECK_OK(ignis_tensor_to_host(logits, scores, IGNIS_F32, length * vocab));
    check_own(own, "whole text", scores, wanted, length * vocab, tolerance);
    if (pair) {
        own.run(own.family, own.model, ids, pair, wanted);
        own.run(own.family, own.model, ids + pair, pair, wanted + pair * vocab);
        logits = ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(2, pair), &desc));
        CHECK_OK(ignis_tensor_to_host(logits, scores, IGNIS_F32, 2 * pair * vocab));
        check_own(own, "two texts", scores, wanted, 2 * pair * vocab, tolerance);
    }
    CHECK_OK(ignis_scope_end(scope));
    free(scores), free(wanted), free(ids);
}

/*  Checks that tensors have the values and the order of the files by their names, and that a saved model is the same
    model. It is in f32. */
static inline void check_tensors(own_forward own, ignis_model model, int length)
{
    ignis_model_desc desc;
    int i;
    for (i = 0; i < own.model->count; i++) {
        const ck_tensor *t = &own.model->tensors[i];
        int64_t count = (int64_t)t->rows * (t->columns ? t->columns : 1), k, wrong = 0;
        double *got = (double *)calloc((size_t)count, sizeof *got);
        ignis_scope scope = ignis_scope_begin();
        if (!strstr(t->name, "enorm")) { /* of a layer that Ignis does not use */
            CHECK_OK(ignis_tensor_to_host(ignis_model_tensor(model, t->name), got, IGNIS_F64, count));
            for (k = 0; k < count; k++)
                wrong += got[k] != t->v[k];
            if (wrong)
                printf("%s, %s: %lld of %lld values are wrong\n", own.name, t->name, (long long)wrong,
                       (long long)count);
            CHECK_INT(wrong, 0);
        }
        CHECK_OK(ignis_scope_end(scope));
        free(got);
    }
    test_remove_folder(test_path("saved"));
    CHECK_OK(ignis_model_save(model, test_path("saved")));
    memset(&desc, 0, sizeof desc);
    desc.path = test_path("saved");
    desc.dtype = IGNIS_F32;
    model = ignis_model_open(&desc);
    check_whole(own, model, length, 0, 1e-5); /* sums of f32 */
    CHECK_OK(ignis_model_free(model));
}

/*  Compares the logits after the last token of a sequence with their row of `wanted` [tokens, vocab]. They are in
    *logits then. */
static inline void check_last_logits(own_forward own, const char *what, ignis_sequence sequence, const double *wanted,
                                     double tolerance, float *logits)
{
    const int vocab = own.model->vocab;
    CHECK_OK(ignis_sequence_logits(sequence, logits, vocab));
    check_own(own, what, logits, wanted + (int64_t)(ignis_sequence_length(sequence) - 1) * vocab, vocab, tolerance);
}

/*  Checks tokens fed as steps, a prompt of `length` tokens that is a chunk, a step after it, a fork that goes on
    otherwise, and a step of two sequences. */
static inline void check_sequences(own_forward own, ignis_model model, int length, double tolerance)
{
    const int vocab = own.model->vocab;
    const size_t bytes = sizeof(float) * (size_t)vocab;
    float *logits = (float *)calloc(2, bytes), *again = logits + vocab;
    double *wanted = (double *)calloc((size_t)((length + 3) * vocab), sizeof *wanted);
    int32_t *ids = (int32_t *)calloc((size_t)length + 3, sizeof *ids), drawn[2], next;
    ignis_sequence sequence = ignis_sequence_begin(model), fork, both[2];
    ids_of(ids, length + 3, vocab);
    own.run(own.family, own.model, ids, length + 1, wanted);
    CHECK_OK(ignis_sequence_feed(sequence, ids, 9));
    check_last_logits(own, "steps", sequence, wanted, tolerance, logits);
    CHECK_OK(ignis_sequence_logits(sequence, again, vocab)); /* the last token twice */
    CHECK_INT(memcmp(logits, again, bytes), 0);
    CHECK_OK(ignis_sequence_truncate(sequence, 0));
    CHECK_OK(ignis_sequence_feed(sequence, ids, length));
    check_last_logits(own, "chunk", sequence, wanted, tolerance, logits);
    fork = ignis_sequence_fork(sequence);
    CHECK_OK(ignis_sequence_feed(sequence, ids + length, 1));
    check_last_logits(own, "step after chunk", sequence, wanted, tolerance, logits);
    ids[length] = (ids[length] + 1) % vocab;
    own.run(own.family, own.model, ids, length + 3, wanted);
    CHECK_OK(ignis_sequence_feed(fork, ids + length, 3));
    check_last_logits(own, "fork", fork, wanted, tolerance, logits);
    next = ignis_sequence_next(sequence, NULL); /* a step of both has the bits of a step alone */
    CHECK_OK(ignis_sequence_logits(sequence, logits, vocab));
    CHECK_OK(ignis_sequence_truncate(sequence, length + 1));
    both[0] = fork, both[1] = sequence;
    CHECK_OK(ignis_sequence_next_all(both, 2, NULL, drawn));
    CHECK_INT(drawn[1], next);
    CHECK_OK(ignis_sequence_logits(sequence, again, vocab));
    CHECK_INT(memcmp(logits, again, bytes), 0);
    CHECK_OK(ignis_sequence_free(fork));
    CHECK_OK(ignis_sequence_free(sequence));
    free(logits), free(wanted), free(ids);
}

/*  Makes adapters of rank 2 whose B is not 0, and whose product is multiplied by 1.5. Checks that there are
    `products`. */
static inline ignis_lora make_adapters(ignis_model model, const char *const *targets, int count, int products)
{
    ignis_tensor tensors[128];
    ignis_lora_desc desc;
    ignis_lora lora;
    int k;
    memset(&desc, 0, sizeof desc);
    desc.rank = 2, desc.alpha = 3;
    desc.targets = targets, desc.target_count = count;
    lora = ignis_lora_create(model, &desc);
    CHECK_INT(ignis_lora_weights(lora, tensors, COUNT_OF(tensors)), 2 * products);
    CHECK(2 * products <= COUNT_OF(tensors));
    for (k = 1; k < 2 * products; k += 2) { /* B; A is random */
        const int64_t size = numel_of(tensors[k]);
        double *b = (double *)calloc((size_t)size, sizeof *b);
        int64_t n;
        for (n = 0; n < size; n++)
            b[n] = (double)(float)(0.3 * noise(700 + (uint64_t)k, n));
        CHECK_OK(ignis_array_from_host(ignis_tensor_data(tensors[k]), b, IGNIS_F64, size));
        free(b);
    }
    return lora;
}

/*  Adds B A of the adapters in a folder, of make_adapters, to the weights of the test. Returns how many there are. */
static inline int add_adapters(ck_model *m, const char *folder)
{
    char path[300];
    int i, r, c, k, count = 0;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    for (i = 0; i < m->count; i++) {
        ck_tensor *t = &m->tensors[i];
        ignis_scope scope = ignis_scope_begin();
        char names[2][160];
        const char *texts[2];
        ignis_tensor pair[2];
        memset(pair, 0, sizeof pair);
        for (k = 0; k < 2; k++) {
            snprintf(names[k], sizeof names[k], "base_model.model.%.*s.lora_%c.weight", (int)strlen(t->name) - 7,
                     t->name, k ? 'B' : 'A');
            texts[k] = names[k];
        }
        if (t->columns && ignis_load(path, texts, pair, 2) == IGNIS_OK) {
            double *a = tensor_values(pair[0]), *b = tensor_values(pair[1]);
            for (r = 0; r < t->rows; r++)
                for (c = 0; c < t->columns; c++)
                    for (k = 0; k < 2; k++)
                        t->v[r * t->columns + c] += 1.5 * b[r * 2 + k] * a[k * t->columns + c];
            free(a), free(b);
            count++;
        }
        ignis_status_clear();
        CHECK_OK(ignis_scope_end(scope));
    }
    return count;
}

/*  Checks adapters of `products` products, in PEFT's files and in the model: set, opened, of a sequence, and merged.
    The weights of the test have them then. */
static inline void check_adapters(own_forward own, ignis_model model, const char *const *targets, int count,
                                  int products, int length)
{
    const double tolerance = 1e-5; /* sums of f32 */
    const int vocab = own.model->vocab;
    ignis_lora lora = make_adapters(model, targets, count, products), opened;
    ignis_sequence sequence;
    float *logits = (float *)calloc((size_t)vocab, sizeof *logits);
    double *wanted = (double *)calloc((size_t)(length * vocab), sizeof *wanted);
    int32_t *ids = (int32_t *)calloc((size_t)length, sizeof *ids);
    ids_of(ids, length, vocab);
    test_remove_folder(test_path("lora"));
    CHECK_OK(ignis_lora_save(lora, test_path("lora")));
    CHECK_INT(add_adapters(own.model, test_path("lora")), products);
    own.run(own.family, own.model, ids, length, wanted);
    CHECK_OK(ignis_model_set_lora(model, lora));
    check_whole(own, model, length, 0, tolerance);
    opened = ignis_lora_open(model, test_path("lora"));
    CHECK_OK(ignis_model_set_lora(model, opened));
    CHECK_OK(ignis_lora_free(lora));
    check_whole(own, model, length, 0, tolerance);
    sequence = ignis_sequence_begin(model);
    CHECK_OK(ignis_sequence_set_lora(sequence, opened));
    CHECK_OK(ignis_sequence_feed(sequence, ids, length));
    check_last_logits(own, "sequence with adapters", sequence, wanted, tolerance, logits);
    CHECK_OK(ignis_sequence_free(sequence));
    CHECK_OK(ignis_model_set_lora(model, (ignis_lora){0}));
    CHECK_OK(ignis_lora_merge(opened));
    check_whole(own, model, length, 0, tolerance);
    CHECK_OK(ignis_lora_free(opened));
    free(logits), free(wanted), free(ids);
}

/*  A sequence that is loaded from its file, after a chunk and after steps, has the tokens and bits of the one that was
    saved; and a text that is polled has those of ignis_generate. */
static inline void check_saved_and_polled(ignis_model model, const int32_t *ids, int length, int vocab)
{
    enum { TOKENS = 5 };
    const size_t bytes = sizeof(float) * (size_t)vocab;
    float *logits = (float *)calloc(2, bytes), *again = logits + vocab;
    int32_t texts[2][512];
    ignis_generate_info info;
    ignis_generate_desc desc;
    ignis_sequence sequence = ignis_sequence_begin(model), loaded;
    int polls;
    memset(&desc, 0, sizeof desc);
    desc.sampling.temperature = 0.7;
    desc.sampling.seed = 3;
    desc.max_tokens = TOKENS;
    desc.end_count = -1;
    CHECK_OK(ignis_sequence_feed(sequence, ids, length));
    CHECK_OK(ignis_sequence_save(sequence, test_path("a.sequence")));
    loaded = ignis_sequence_load(model, test_path("a.sequence"));
    CHECK_OK(ignis_generate(sequence, &desc));
    desc.info = &info;
    CHECK_OK(ignis_generate_begin(loaded, &desc));
    for (polls = 0; polls < PATIENCE && !info.ending; polls++)
        CHECK_OK(poll_and_wait(loaded, &info, 1 + polls % 3));
    CHECK_INT(info.tokens, TOKENS);
    CHECK_OK(ignis_sequence_save(loaded, test_path("a.sequence")));
    CHECK_OK(ignis_sequence_free(loaded));
    loaded = ignis_sequence_load(model, test_path("a.sequence"));
    CHECK_INT(ignis_sequence_next(sequence, NULL), ignis_sequence_next(loaded, NULL));
    CHECK_OK(ignis_sequence_logits(sequence, logits, vocab));
    CHECK_OK(ignis_sequence_logits(loaded, again, vocab));
    CHECK_INT(memcmp(logits, again, bytes), 0);
    CHECK_INT(ignis_sequence_ids(sequence, texts[0], 512), length + TOKENS + 1);
    CHECK_INT(ignis_sequence_ids(loaded, texts[1], 512), length + TOKENS + 1);
    CHECK_INT(memcmp(texts[0], texts[1], sizeof *ids * (size_t)(length + TOKENS + 1)), 0);
    CHECK_OK(ignis_sequence_truncate(sequence, length));
    CHECK_OK(ignis_sequence_truncate(loaded, length));
    CHECK_INT(ignis_sequence_next(sequence, NULL), ignis_sequence_next(loaded, NULL));
    CHECK_OK(ignis_sequence_free(loaded));
    CHECK_OK(ignis_sequence_free(sequence));
    free(logits);
}

#endif /* OWN_FORWARD_H */
