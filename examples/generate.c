// SPDX-License-Identifier: MIT
/*  generate.c - a language model from its files answers one question

    The model is a folder as Hugging Face has it (config.json, model.safetensors, tokenizer.json) of GPT-2, Llama 2 or
    3, TinyLlama, SmolLM2, Qwen2 or Qwen3, such as SmolLM2-135M-Instruct. Whose tokenizer has no chat template goes on
    with the text instead, as does what train_gpt
    --export writes.

        cc -I. examples/generate.c -o generate -lm -ldl -lpthread
        ./generate SmolLM2-135M-Instruct "Why is the sky blue?"

    A third argument, f8, q8_0 or q4_0, stores keys and values in half or a quarter of the memory.

    Two GPUs share the model, each with half of its heads: examples/launch.sh 2 ./generate Llama-3.1-8B-Instruct "Why is
    the sky blue?"
*/
#define IGNIS_IMPLEMENTATION
#include "ignis_collective.h"
#include "ignis_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool show(const char *text, size_t size, void *user_data) /* false would stop */
{
    const ignis_comm_info *ranks = (const ignis_comm_info *)user_data; /* all have the same text */
    return ranks->rank > 0 || (fwrite(text, 1, size, stdout) == size && fflush(stdout) == 0);
}

static ignis_cache_type cache_type(const char *name)
{
    return strcmp(name, "f8") == 0     ? IGNIS_CACHE_F8
           : strcmp(name, "q8_0") == 0 ? IGNIS_CACHE_Q8_0
           : strcmp(name, "q4_0") == 0 ? IGNIS_CACHE_Q4_0
                                       : IGNIS_CACHE_DEFAULT;
}

int main(int argc, char **argv)
{
    ignis_model_desc from = {.path = argc > 1 ? argv[1] : NULL, .cache_type = cache_type(argc > 3 ? argv[3] : "")};
    ignis_message talk[] = {{"user", argc > 2 ? argv[2] : "Why is the sky blue?"}};
    ignis_generate_desc how = {
        .max_tokens = 200, .sampling = {.temperature = 0.7, .top_p = 0.9, .seed = 1}, .text_fn = show};
    ignis_tokenizer_info info = {0};
    ignis_comm_info ranks = {0};
    ignis_comm comm = {0};
    int failed;

    how.user_data = &ranks;
    if (!from.path) {
        printf("give a folder with a model, and a question: %s SmolLM2-135M-Instruct \"Why is the sky blue?\"\n",
               argv[0]);
        return 2;
    }
    ignis_setup(NULL);
    if (getenv("IGNIS_WORLD_SIZE")) {
        comm = ignis_comm_init(NULL);
        ignis_comm_query(comm, &ranks);
        ignis_device_use(ranks.device);
        from.parallel = ignis_comm_parallel(comm);
    }
    ignis_model model = ignis_model_open(&from);
    ignis_sequence sequence = ignis_sequence_begin(model);
    ignis_tokenizer_query(ignis_model_tokenizer(model), &info);
    if (info.has_template)
        ignis_sequence_chat(sequence, talk, 1);
    else if (show(talk[0].content, strlen(talk[0].content), &ranks))
        ignis_sequence_text(sequence, talk[0].content, (int64_t)strlen(talk[0].content));
    ignis_generate(sequence, &how);
    show("\n", 1, &ranks);
    failed = ignis_status_last() != IGNIS_OK; /* Ignis has written the reason to stderr */
    ignis_sequence_free(sequence);
    ignis_model_free(model);
    if (comm.id)
        ignis_comm_destroy(comm);
    return ignis_shutdown() != IGNIS_OK || failed;
}
