/*  models/lora/peft_save.c - ignis_lora_save: adapters to a folder that PEFT opens

    Targets are written in the shortest form that PEFT reads without ambiguity.
    May use: create.c, weights/save.c, >>safetensors. Locks: none. */

#include "room.h"

/*  Tells whether every layer has an adapter for a row. */
static bool ignis__lora_in_all_layers(const ignis__lora *lora, const ignis__model_row *row)
{
    int i, found = 0;
    for (i = 0; i < lora->count; i++)
        found += lora->adapters[i].row == row;
    return found == lora->model->layers;
}

/*  Writes the products with an adapter, each once. If all layers have it, its last word is enough, or the
    last two words if "c_proj" would be ambiguous. */
static void ignis__lora_write_targets(const ignis__lora *lora, ignis__string_writer *text)
{
    bool first = true;
    int i;
    for (i = 0; i < lora->count; i++) {
        const ignis__adapter *adapter = &lora->adapters[i];
        ignis__model_name product = ignis__lora_product(lora->model, adapter->row, adapter->layer);
        bool everywhere = ignis__lora_in_all_layers(lora, adapter->row);
        char *word = product.text;
        if (everywhere && adapter->layer > 0)
            continue;
        if (everywhere) {
            word = strrchr(product.text, '.');
            while (word > product.text && (strcmp(word, ".c_proj") == 0 || *word != '.'))
                word--;
            word += *word == '.';
        }
        ignis__string_add(text, first ? "" : ", ");
        ignis__json_write_string(text, word);
        first = false;
    }
}

static void ignis__lora_write_config(const ignis__lora *lora, ignis__string_writer *text)
{
    ignis__string_add(text, "{\n  \"alpha_pattern\": {},\n  \"auto_mapping\": null,\n  \"base_model_name_or_path\": ");
    ignis__json_write_string(text, lora->model->path);
    ignis__string_add(text,
                      ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n  \"inference_mode\": true,\n  "
                      "\"init_lora_weights\": true",
                      lora->model->family == IGNIS_MODEL_GPT2 ? "true" : "false");
    ignis__string_add(text, ",\n  \"layers_pattern\": null,\n  \"layers_to_transform\": null");
    ignis__model_write_number(text, "lora_alpha", lora->alpha);
    ignis__model_write_number(text, "lora_dropout", lora->dropout);
    ignis__string_add(
        text, ",\n  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n  \"r\": %d,\n  \"rank_pattern\": {}",
        lora->rank);
    ignis__string_add(text, ",\n  \"revision\": null,\n  \"target_modules\": [");
    ignis__lora_write_targets(lora, text);
    ignis__string_add(text, "],\n  \"task_type\": \"CAUSAL_LM\",\n  \"use_dora\": false,\n  \"use_rslora\": %s\n}\n",
                      lora->rslora ? "true" : "false");
}

static bool ignis__lora_save_config(const char *call, const ignis__lora *lora, const char *path)
{
    ignis__string_writer text;
    size_t size;
    char *config;
    bool ok;
    ignis__string_begin(&text, NULL, 0);
    ignis__lora_write_config(lora, &text);
    size = text.length + 1;
    config = (char *)ignis__alloc(size);
    if (!config)
        return ignis__fail_host_memory(call, size) == IGNIS_OK;
    ignis__string_begin(&text, config, size);
    ignis__lora_write_config(lora, &text);
    ok = ignis__model_write(call, path, config, -1, (int64_t)text.length);
    ignis__free(config);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_lora_save(ignis_lora handle, const char *folder)
{
    static const char call[] = "ignis_lora_save";
    ignis__lora *lora = ignis__lora_hold(call, handle);
    ignis__lora_list list = IGNIS__ZERO;
    ignis_scope scope;
    char *config = NULL, *path = NULL;
    bool ok = false;
    if (!lora)
        return ignis__failed();
    scope = ignis_scope_begin();
    ignis_no_grad_begin();
    if (!folder)
        ignis__fail_null(call, "folder");
    else if (!ignis__capture_refuses(call))
        ok = (config = ignis__model_path(call, folder, "adapter_config.json")) != NULL &&
             (path = ignis__model_path(call, folder, "adapter_model.safetensors")) != NULL &&
             ignis__lora_list_make(call, lora, &list) && ignis__lora_order_for_folder(call, lora, &list);
    if (ok) {
        (void)ignis__folder_make_all(folder); /* a failure shows when files are written */
        ok = ignis__save(call, path, list.texts, list.tensors, 2 * lora->count, "{\"format\":\"pt\"}", NULL) ==
                 IGNIS_OK &&
             ignis__lora_save_config(call, lora, config);
    }
    ignis_no_grad_end();
    (void)ignis_scope_end(scope);
    ignis__lora_list_free(&list);
    ignis__free(config);
    ignis__free(path);
    ignis__lora_drop(call, lora);
    return ok ? IGNIS_OK : ignis__failed();
}
