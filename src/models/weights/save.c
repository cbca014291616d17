/*  models/weights/save.c - ignis_model_save: config.json, model.safetensors, copies of tokenizer files

    Weights are written one tensor at a time, converted from quantised blocks if need be.
    May use: weight_map.c, model_tensor.c, >>safetensors. Locks: none. */

#include "room.h"

/*  Writes "name": number, with a decimal point in any locale, and with the digits that give the exact value. */
IGNIS__PRIVATE void ignis__model_write_number(ignis__string_writer *text, const char *name, double value)
{
    char number[40], *comma;
    int digits;
    for (digits = 6; digits <= 17; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, value);
        if ((comma = strchr(number, ',')) != NULL)
            *comma = '.';
        if (ignis__decimal(number, number + strlen(number)) == value)
            break;
    }
    ignis__string_add(text, ",\n  \"%s\": %s", name, number);
}

static void ignis__model_write_config(const ignis__model *model, ignis__string_writer *text)
{
    static const char *const stretches[] = {"", "linear", "llama3", "yarn"};
    static const char *const dtypes[] = {"", "float16", "bfloat16", "float32", "float64"};
    bool is_gpt2 = model->family == IGNIS_MODEL_GPT2;
    struct {
        const char *name;
        int value;
    } sizes[10];
    int count = 0, i;
#define IGNIS__SIZE(name_, value_) (sizes[count].name = (name_), sizes[count++].value = (value_))
    IGNIS__SIZE("vocab_size", model->vocab);
    IGNIS__SIZE(is_gpt2 ? "n_embd" : "hidden_size", model->hidden);
    IGNIS__SIZE(is_gpt2 ? "n_layer" : "num_hidden_layers", model->layers);
    IGNIS__SIZE(is_gpt2 ? "n_head" : "num_attention_heads", model->heads);
    IGNIS__SIZE(is_gpt2 ? "n_inner" : "intermediate_size", model->inner);
    IGNIS__SIZE(is_gpt2 ? "n_positions" : "max_position_embeddings", model->context);
    if (!is_gpt2) {
        IGNIS__SIZE("num_key_value_heads", model->kv_heads);
        IGNIS__SIZE("head_dim", model->head_dim);
    }
#undef IGNIS__SIZE
    ignis__string_add(text, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n  \"torch_dtype\": \"%s\"",
                      ignis__family_of(model->family)->class_name, ignis__family_of(model->family)->model_type,
                      dtypes[model->dtype]);
    for (i = 0; i < count; i++)
        ignis__string_add(text, ",\n  \"%s\": %d", sizes[i].name, sizes[i].value);
    ignis__string_add(text, ",\n  \"%s\": \"%s\",\n  \"tie_word_embeddings\": %s",
                      is_gpt2 ? "activation_function" : "hidden_act", is_gpt2 ? "gelu_new" : "silu",
                      model->tied ? "true" : "false");
    ignis__model_write_number(text, is_gpt2 ? "layer_norm_epsilon" : "rms_norm_eps", model->eps);
    if (!is_gpt2) {
        ignis__string_add(text, ",\n  \"attention_bias\": %s,\n  \"mlp_bias\": %s",
                          model->layer[0].qkv_bias.id ? "true" : "false",
                          model->layer[0].up_bias.id ? "true" : "false");
        ignis__model_write_number(text, "rope_theta", model->theta);
    }
    if (model->bos >= 0)
        ignis__string_add(text, ",\n  \"bos_token_id\": %d", (int)model->bos);
    if (model->stop_count)
        ignis__string_add(text, ",\n  \"eos_token_id\": %s%d", model->stop_count > 1 ? "[" : "", (int)model->stops[0]);
    for (i = 1; i < model->stop_count; i++)
        ignis__string_add(text, ", %d", (int)model->stops[i]);
    ignis__string_add(text, "%s", model->stop_count > 1 ? "]" : "");
    if (model->rope_scaling && model->rope_scaling <= IGNIS__ROPE_SCALING_YARN) {
        ignis__string_add(text, ",\n  \"rope_scaling\": {\"rope_type\": \"%s\"", stretches[model->rope_scaling]);
        ignis__model_write_number(text, "factor", model->factor);
        if (model->rope_scaling != IGNIS__ROPE_SCALING_LINEAR) {
            bool yarn = model->rope_scaling == IGNIS__ROPE_SCALING_YARN;
            ignis__model_write_number(text, yarn ? "beta_slow" : "low_freq_factor", model->low);
            ignis__model_write_number(text, yarn ? "beta_fast" : "high_freq_factor", model->high);
            ignis__string_add(text, ",\n  \"original_max_position_embeddings\": %lld", (long long)model->original);
            if (yarn)
                ignis__model_write_number(text, "attention_factor", model->attention_factor);
            if (yarn && model->uncut)
                ignis__string_add(text, ",\n  \"truncate\": false");
        }
        ignis__string_add(text, "}");
    }
    ignis__string_add(text, "\n}\n");
}

/*  Writes a file: a text, or if that is NULL `size` bytes of the file `from`, which is closed in any case. */
IGNIS__PRIVATE bool ignis__model_write(const char *call, const char *path, const char *content, int from, int64_t size)
{
    char *chunk = content ? NULL : (char *)ignis__alloc_for(call, (size_t)IGNIS__CONVERT_CHUNK);
    ignis__replacement to;
    int64_t done, some;
    bool ok = (content || chunk) && ignis__replace_begin(&to, call, path), begun = ok;
    for (done = 0; ok && done < size; done += some) {
        some = content ? size : ignis__clamp(size - done, 0, IGNIS__CONVERT_CHUNK);
        if (!content && ignis__file_read_at(from, done, chunk, some) != some)
            ok = ignis__file_fail(call, path, "copied whole");
        ok = ok && ignis__save_write(call, path, to.file, content ? content : chunk, some);
    }
    if (from >= 0)
        ignis__file_close(from);
    ignis__free(chunk);
    return begun && ignis__replace_end(&to, ok);
}

/*  Writes config.json; that of the folder that the model was opened from, for families with more features than
    ignis__model_write_config knows. */
static bool ignis__model_save_config(const char *call, const ignis__model *model, const char *path)
{
    char config[4096], *from;
    ignis__string_writer text;
    int64_t size = 0;
    int file;
    bool ok;
    if (model->family > IGNIS_MODEL_QWEN3) {
        from = ignis__model_path(call, model->path, "config.json");
        file = from ? ignis__file_open(from, &size) : -1;
        ok = file >= 0 ? ignis__model_write(call, path, NULL, file, size)
                       : from && ignis__file_fail(call, from, "opened");
        ignis__free(from);
        return ok;
    }
    ignis__string_begin(&text, config, sizeof config);
    ignis__model_write_config(model, &text);
    return ignis__model_write(call, path, config, -1, (int64_t)text.length);
}

/*  Copies the other files of a model's folder. Missing ones are skipped. */
static bool ignis__model_copy_other_files(const char *call, const ignis__model *model, const char *folder)
{
    static const char *const names[] = {
        "tokenizer.json",      "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "chat_template.jinja", "chat_template.json",    "generation_config.json",  "vocab.json",
        "merges.txt",          "tokenizer.model"};
    int64_t size, time;
    bool ok = true;
    int i;
    if (!ignis__path_is_special(model->path)) /* a GGUF file, or the folder is gone */
        return true;
    for (i = 0; ok && i < IGNIS__COUNT(names); i++) {
        char *from = ignis__model_path(call, model->path, names[i]),
             *to = from ? ignis__model_path(call, folder, names[i]) : NULL;
        int file = -1;
        ok = to != NULL;
        if (ok && ignis__file_info(from, &size, &time)) {
            file = ignis__file_open(from, &size);
            ok = file >= 0 ? ignis__model_write(call, to, NULL, file, size) : ignis__file_fail(call, from, "opened");
        }
        ignis__free(from);
        ignis__free(to);
    }
    return ok;
}

/*  Writes the weights in the layout of a folder: parts apart, and GPT-2's transposed, in the current scope. */
static bool ignis__model_save_weights(const char *call, ignis__model *model, const char *path,
                                      const ignis__model_part *parts, int count)
{
    ignis__model_name *names = (ignis__model_name *)ignis__alloc(((size_t)count + 1) * sizeof *names);
    const char **texts = (const char **)ignis__alloc(((size_t)count + 1) * sizeof *texts);
    ignis_tensor *tensors = (ignis_tensor *)ignis__alloc(((size_t)count + 1) * sizeof *tensors);
    bool ok = names && texts && tensors;
    int saved = 0, i;
    if (!ok)
        ignis__fail_host_memory(call, ((size_t)count + 1) * sizeof *names);
    for (i = 0; ok && i < count; i++) {
        if (parts[i].row->how & IGNIS__MODEL_SECOND_HALF) /* saved with the first one */
            continue;
        names[saved] = ignis__model_weight_name(NULL, model, parts[i].row, parts[i].layer, parts[i].expert);
        texts[saved] = names[saved].text;
        tensors[saved] = ignis__model_part_tensor(call, model, &parts[i]);
        if (parts[i].row->how & IGNIS__MODEL_IN_OUT)
            tensors[saved] = ignis_transpose(tensors[saved], 0, 1);
        if (parts[i].row->how & IGNIS__MODEL_HEAD_NORM && parts[i].row->rows != 'D')
            tensors[saved] =
                ignis_reshape(tensors[saved], IGNIS_SHAPE(parts[i].rows / model->head_dim, model->head_dim));
        ok = tensors[saved++].id != 0;
    }
    ok = ok && ignis__save(call, path, texts, tensors, saved, "{\"format\":\"pt\"}", NULL) == IGNIS_OK;
    ignis__free(names);
    ignis__free((void *)texts);
    ignis__free(tensors);
    return ok;
}

IGNIS__COLD IGNIS_API ignis_status ignis_model_save(ignis_model handle, const char *folder)
{
    static const char call[] = "ignis_model_save";
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__model_part *parts = NULL;
    char *weights = NULL, *config = NULL;
    ignis_scope scope;
    bool ok = false;
    int count = 0;
    if (!model)
        return ignis__failed();
    if (!folder)
        ignis__fail_null(call, "folder");
    else if (model->family > IGNIS_MODEL_QWEN3 && !ignis__path_is_special(model->path))
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "a %s model that was opened from a GGUF file has no config.json to be written with",
                    ignis__family_of(model->family)->model_type);
    else if (model->family == IGNIS_MODEL_GPT_OSS)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "the experts of a gpt_oss model cannot be written");
    else if (model->recurrent_layers > 0)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "the projections of a %s model cannot be written",
                    ignis__family_of(model->family)->model_type);
    else if (model->rope_scaling == IGNIS__ROPE_SCALING_TABLE)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "the frequencies of the model are a GGUF file's own, which config.json has no words for");
    else if (ignis__model_check_not_shared(call, model) && !ignis__capture_refuses(call))
        ok = (weights = ignis__model_path(call, folder, "model.safetensors")) != NULL &&
             (config = ignis__model_path(call, folder, "config.json")) != NULL &&
             (parts = ignis__model_parts_make(call, NULL, model, &count)) != NULL;
    if (ok) {
        (void)ignis__folder_make_all(folder); /* a failure shows when files are written */
        scope = ignis_scope_begin();
        (void)ignis_no_grad_begin();
        ok = ignis__model_save_weights(call, model, weights, parts, count) &&
             ignis__model_save_config(call, model, config) && ignis__model_copy_other_files(call, model, folder);
        (void)ignis_no_grad_end();
        (void)ignis_scope_end(scope);
    }
    ignis__free(weights);
    ignis__free(config);
    ignis__free(parts);
    ignis__model_drop(call, model);
    return ok ? IGNIS_OK : ignis__failed();
}
