// SPDX-License-Identifier: MIT
/*  lora.c - a language model learns from a text file, with adapters (LoRA)

    The model keeps its weights; some thousand to million numbers beside them learn (Hu et al. 2021, arXiv 2106.09685).
    They go to a folder that Python's PEFT opens, too. The model is a folder as for generate.c; the program shows how it
    goes on with the text before and after: sequences are computed with the adapters beside the weights. It may be a
    GGUF file: weights that are quantised stay so, and take as little memory.

        cc -I. examples/lora.c -o lora -lm -ldl -lpthread
        ./lora SmolLM2-135M book.txt                       # then: adapter folder (adapter), steps (200)
*/
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BATCH = 4, MOST_SEQ = 256, MOST_WEIGHTS = 4096, SHOWN = 80 };

static bool show(const char *text, size_t size, void *user_data)
{
    (void)user_data;
    return fwrite(text, 1, size, stdout) == size && fflush(stdout) == 0;
}

/*  The tokens of a text file, of which there are at least `least`. */
static int32_t *tokens_read(ignis_model model, const char *path, int least, int *count)
{
    ignis_tokenizer tokenizer = ignis_model_tokenizer(model);
    ignis_encode_desc plain = {.plain = true, .no_bos = true}; /* what looks like a control token is text */
    FILE *file = fopen(path, "rb");
    char *text = (char *)malloc(1 << 24); /* 16 MB are enough to learn from */
    int64_t size = file && text ? (int64_t)fread(text, 1, 1 << 24, file) : 0;
    int32_t *ids;
    *count = ignis_tokenizer_encode(tokenizer, text, size, &plain, NULL, 0);
    ids = *count < least ? NULL : (int32_t *)malloc(sizeof *ids * (size_t)*count);
    if (ids)
        ignis_tokenizer_encode(tokenizer, text, size, &plain, ids, *count);
    else if (*count >= 0)
        fprintf(stderr, "%s cannot be read, or has fewer than %d tokens\n", path, least);
    if (file)
        fclose(file);
    free(text);
    return ids;
}

/*  How the model goes on with the beginning of the text. */
static void sample(ignis_model model, const int32_t *ids, const char *when)
{
    ignis_generate_desc how = {
        .max_tokens = SHOWN / 2, .sampling = {.temperature = 0.7, .top_p = 0.9, .seed = 1}, .text_fn = show};
    ignis_sequence sequence = ignis_sequence_begin(model);
    printf("--- %s: ", when);
    ignis_sequence_feed(sequence, ids, SHOWN / 4);
    ignis_generate(sequence, &how);
    printf("\n");
    ignis_sequence_free(sequence);
}

/*  The loss of stretches of the text: at every place the model guesses the token that follows. */
static ignis_tensor loss_of(ignis_model model, const ignis_model_info *info, const int32_t *ids, int count, int seq)
{
    ignis_tensor_desc desc = {.dtype = IGNIS_I32};
    int32_t here[BATCH * MOST_SEQ], next[BATCH * MOST_SEQ];
    for (int i = 0; i < BATCH; i++) {
        int start = (int)((double)rand() / ((double)RAND_MAX + 1) * (count - seq));
        for (int k = 0; k < seq; k++)
            here[i * seq + k] = ids[start + k], next[i * seq + k] = ids[start + k + 1];
    }
    ignis_tensor scores = ignis_model_forward(model, ignis_tensor_from_host(here, IGNIS_SHAPE(BATCH, seq), &desc));
    return ignis_cross_entropy(ignis_reshape(scores, IGNIS_SHAPE(BATCH * seq, info->vocab)),
                               ignis_tensor_from_host(next, IGNIS_SHAPE(BATCH * seq), &desc), NULL);
}

/*  The loss on average over the same stretches of the text each time. */
static double loss_now(ignis_model model, const int32_t *ids, int count, int seq)
{
    enum { TIMES = 4 };
    ignis_model_info info = {0};
    double sum = 0;
    ignis_model_query(model, &info);
    srand(1);
    ignis_no_grad_begin();
    for (int i = 0; i < TIMES && ignis_status_last() == IGNIS_OK; i++) {
        ignis_scope scope = ignis_scope_begin();
        sum += ignis_item(loss_of(model, &info, ids, count, seq));
        ignis_scope_end(scope);
    }
    ignis_no_grad_end();
    return sum / TIMES;
}

/*  Lets adapters learn. */
static void train(ignis_model model, ignis_lora lora, const int32_t *ids, int count, int seq, int steps)
{
    static ignis_tensor weights[MOST_WEIGHTS];
    ignis_adamw_desc adamw = {
        .lr = 1e-3, .drop_grad = true, .schedule = {IGNIS_SCHEDULE_COSINE, steps / 10, steps, 0.1}};
    ignis_optimizer optimizer = ignis_adamw(&adamw);
    int weight_count = ignis_lora_weights(lora, weights, MOST_WEIGHTS);
    ignis_model_info info = {0};
    ignis_model_query(model, &info);
    for (int i = 0; i < weight_count && i < MOST_WEIGHTS; i++)
        ignis_optimizer_add(optimizer, weights[i], false);
    struct timespec begin, now;
    timespec_get(&begin, TIME_UTC);
    for (int step = 1; step <= steps && ignis_status_last() == IGNIS_OK; step++) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor loss = loss_of(model, &info, ids, count, seq);
        ignis_backward(loss, IGNIS_NO_ARRAY);
        ignis_optimizer_step(optimizer);
        if (step % 10 == 0 || step == 1) {
            double value = ignis_item(loss); /* waits for the device */
            timespec_get(&now, TIME_UTC);
            double seconds = (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec);
            printf("step %4d  loss %.3f  %.0f tokens/s\n", step, value, step * BATCH * seq / seconds);
        }
        ignis_scope_end(scope);
    }
    ignis_optimizer_free(optimizer);
}

int main(int argc, char **argv)
{
    ignis_model_desc from = {.path = argc > 1 ? argv[1] : NULL};
    ignis_lora_desc desc = {
        .rank = 8, .alpha = 16, .targets = (const char *[]){"all-linear"}, .target_count = 1, .seed = 1};
    const char *folder = argc > 3 ? argv[3] : "adapter";
    ignis_model_info info = {0};
    ignis_lora_info numbers = {0};
    int count = 0;
    if (argc < 3) {
        printf("give a folder with a model, and a text file: %s SmolLM2-135M book.txt [adapter [200]]\n", argv[0]);
        return 2;
    }
    ignis_setup(NULL);
    ignis_model model = ignis_model_open(&from);
    ignis_model_query(model, &info);
    int seq = info.context < MOST_SEQ ? info.context : MOST_SEQ;
    int32_t *ids = tokens_read(model, argv[2], seq + 1 > SHOWN ? seq + 1 : SHOWN, &count);
    if (!ids)
        return 1;
    ignis_lora lora = ignis_lora_create(model, &desc);
    ignis_lora_query(lora, &numbers);
    printf("%lld numbers learn beside %lld, from %d tokens\n", (long long)numbers.parameters,
           (long long)info.parameters, count);
    sample(model, ids, "before");
    ignis_model_set_lora(model, lora);
    double before = loss_now(model, ids, count, seq); /* a new adapter changes nothing */
    train(model, lora, ids, count, seq, argc > 4 ? atoi(argv[4]) : 200);
    printf("the loss was %.3f, and is %.3f\n", before, loss_now(model, ids, count, seq));
    ignis_lora_save(lora, folder);
    sample(model, ids, "after");                  /* the sequence begins with the adapters that are set on the model */
    int failed = ignis_status_last() != IGNIS_OK; /* Ignis has written the reason to stderr */
    if (!failed)
        printf("the adapters are in %s\n", folder);
    free(ids);
    ignis_lora_free(lora);
    ignis_model_free(model);
    return ignis_shutdown() != IGNIS_OK || failed;
}
