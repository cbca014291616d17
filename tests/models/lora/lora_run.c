// SPDX-License-Identifier: MIT
/*  lora_run.c - peft_compare.py runs it: a model in f32 with adapters, its scores, the adapters saved and the model
    with them merged

    lora_run MODEL ADAPTER|- OUT ID...     -: made here, with random numbers. OUT is a folder: logits.safetensors,
    adapter, merged */
#define IGNIS_IMPLEMENTATION
#include "ignis_models.h"

/*  Adapters of all products, whose B is not 0. */
static ignis_lora make(ignis_model model)
{
    ignis_lora_desc desc = {
        .rank = 3, .alpha = 5, .targets = (const char *[]){"all-linear"}, .target_count = 1, .rslora = true};
    ignis_lora lora = ignis_lora_create(model, &desc);
    ignis_tensor weights[256];
    int count = ignis_lora_weights(lora, weights, 256), i;
    for (i = 1; i < count && i < 256; i += 2) {
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor random = ignis_tensor_randn(ignis_tensor_shape(weights[i]), NULL);
        ignis_array_scale(ignis_tensor_data(weights[i]), ignis_tensor_data(random), 0.3);
        ignis_scope_end(scope);
    }
    return lora;
}

int main(int argc, char **argv)
{
    ignis_model_desc desc = {.dtype = IGNIS_F32};
    ignis_tensor_desc ids_desc = {.dtype = IGNIS_I32};
    const char *names[] = {"logits"};
    int32_t ids[64];
    char path[512];
    int count = argc - 4, i, failed;
    if (count < 1 || count > 64)
        return 2;
    for (i = 0; i < count; i++)
        ids[i] = (int32_t)strtol(argv[4 + i], NULL, 10);
    ignis_setup(NULL);
    desc.path = argv[1];
    ignis_model model = ignis_model_open(&desc);
    ignis_lora lora = argv[2][0] == '-' ? make(model) : ignis_lora_open(model, argv[2]);
    snprintf(path, sizeof path, "%s/adapter", argv[3]);
    ignis_lora_save(lora, path);
    ignis_model_set_lora(model, lora);
    ignis_scope scope = ignis_scope_begin();
    ignis_no_grad_begin();
    ignis_tensor logits = ignis_model_forward(model, ignis_tensor_from_host(ids, IGNIS_SHAPE(1, count), &ids_desc));
    ignis_no_grad_end();
    snprintf(path, sizeof path, "%s/logits.safetensors", argv[3]);
    ignis_save(path, names, &logits, 1);
    ignis_scope_end(scope);
    ignis_lora_merge(lora);
    snprintf(path, sizeof path, "%s/merged", argv[3]);
    ignis_model_save(model, path);
    failed = ignis_status_last() != IGNIS_OK;
    ignis_lora_free(lora);
    ignis_model_free(model);
    return ignis_shutdown() != IGNIS_OK || failed;
}
