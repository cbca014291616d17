/*  models/weights/config_check.c - reads numbers of a description, and refuses entries that Ignis lacks

    A feature is refused by its name and value, never ignored.
    May use: config_json.c, >>gguf. Locks: none. */

#include "room.h"

/*  Reads a number of the description, by its name in config.json, or after "ARCHITECTURE." in a GGUF file.
    BAD has been reported. */
IGNIS__PRIVATE ignis__gguf_found ignis__model_read_number(ignis__model_files *files, const char *json, const char *gguf,
                                                          double *value)
{
    const ignis__config_item *item;
    char name[96];
    if (files->is_gguf) {
        if (!gguf)
            return IGNIS__GGUF_NONE;
        snprintf(name, sizeof name, "%s.%s", ignis__model_families[files->family], gguf);
        return ignis__gguf_find_real(&files->gguf, name, value);
    }
    item = json ? ignis__config_find(&files->config, json) : NULL;
    if (!item)
        return IGNIS__GGUF_NONE;
    if (item->kind != 'n') {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "config.json of '%s': %s is no number", files->path, json);
        return IGNIS__GGUF_BAD;
    }
    *value = item->number;
    return IGNIS__GGUF_FOUND;
}

/*  Reads a size: an integer from 1 to `most`. `otherwise` is its value if it is missing; 0 if it is required. */
IGNIS__PRIVATE bool ignis__model_read_size(ignis__model_files *files, const char *json, const char *gguf, int otherwise,
                                           int most, int *size)
{
    double value = otherwise;
    ignis__gguf_found found = ignis__model_read_number(files, json, gguf, &value);
    const char *name = files->is_gguf ? gguf : json;
    if (found == IGNIS__GGUF_BAD)
        return false;
    if (found == IGNIS__GGUF_NONE && otherwise == 0) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "the description of '%s' has no %s", files->path, name);
        return false;
    }
    if (!(value >= 1 && value <= most) || value != (double)(int)value) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' has %s %g; a whole number from 1 to %d is needed", files->path,
                    name ? name : json, value, most);
        return false;
    }
    *size = (int)value;
    return true;
}

/*  Reads a positive number. `otherwise` is its value if it is missing; 0 if it is required. */
IGNIS__PRIVATE bool ignis__model_read_real(ignis__model_files *files, const char *json, const char *gguf,
                                           double otherwise, double *real)
{
    double value = otherwise;
    ignis__gguf_found found = ignis__model_read_number(files, json, gguf, &value);
    if (found == IGNIS__GGUF_BAD)
        return false;
    if (found == IGNIS__GGUF_NONE && otherwise == 0)
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "the description of '%s' has no %s", files->path,
                    files->is_gguf ? gguf : json);
    else if (!(value > 0 && value < 1e12))
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' has %s %g; a positive number is needed", files->path,
                    files->is_gguf ? gguf : json, value);
    else
        *real = value;
    return value > 0 && value < 1e12;
}

/*  Entries of a description that change what a model computes, with the only value that Ignis supports. */
static const struct {
    unsigned families; /* bits, 1 << family */
    const char *name;
    char kind; /* the kind of the required value, as in ignis__config_item; '0': the entry must be missing */
    double number;
    const char *texts[3];
} ignis__model_required_values[] = {
    {1 << IGNIS_MODEL_GPT2, "activation_function", 't', 0, {"gelu_new", "gelu_pytorch_tanh", NULL}},
    {1 << IGNIS_MODEL_GPT2, "scale_attn_weights", 'b', 1, {NULL, NULL, NULL}},
    {1 << IGNIS_MODEL_GPT2, "scale_attn_by_inverse_layer_idx", 'b', 0, {NULL, NULL, NULL}},
    {1 << IGNIS_MODEL_GPT2, "add_cross_attention", 'b', 0, {NULL, NULL, NULL}},
    {~1u, "is_causal", 'b', 1, {NULL, NULL, NULL}},
    {~1u, "quantization_config", '0', 0, {NULL, NULL, NULL}},
    {~1u, "partial_rotary_factor", 'n', 1, {NULL, NULL, NULL}},
    {~1u, "rope_parameters.partial_rotary_factor", 'n', 1, {NULL, NULL, NULL}},
    {~1u, "num_experts", 'n', 0, {NULL, NULL, NULL}},
    {~1u, "num_local_experts", 'n', 0, {NULL, NULL, NULL}},
    {~(1u << IGNIS_MODEL_GPT2), "hidden_act", 't', 0, {"silu", "swish", NULL}},
    {~(1u << IGNIS_MODEL_GPT2), "use_sliding_window", 'b', 0, {NULL, NULL, NULL}},
    {1 << IGNIS_MODEL_LLAMA, "sliding_window", '0', 0, {NULL, NULL, NULL}},
    {~1u, "rope_interleaved", 'b', 0, {NULL, NULL, NULL}},
    {~1u, "rope_parameters.full_attention", '0', 0, {NULL, NULL, NULL}}, /* separate settings for each type of layer */
    {~1u, "rope_parameters.sliding_attention", '0', 0, {NULL, NULL, NULL}},
    {~1u, "layer_types[]", 't', 0, {"full_attention", NULL, NULL}},
    {~1u, "rope_scaling", '{', 0, {NULL, NULL, NULL}},
    {~1u, "rope_parameters", '{', 0, {NULL, NULL, NULL}},
    {~1u, "rope_scaling.mscale", '0', 0, {NULL, NULL, NULL}},
    {~1u, "rope_parameters.mscale", '0', 0, {NULL, NULL, NULL}},
    {~1u, "rope_scaling.mscale_all_dim", '0', 0, {NULL, NULL, NULL}},
    {~1u, "rope_parameters.mscale_all_dim", '0', 0, {NULL, NULL, NULL}},
    {~1u, "attn_logit_softcapping", '0', 0, {NULL, NULL, NULL}},
    {~1u, "final_logit_softcapping", '0', 0, {NULL, NULL, NULL}},
};

/*  Refuses entries of config.json that would otherwise be ignored. */
IGNIS__PRIVATE bool ignis__model_refuse_unknown_keys(const ignis__model_files *files)
{
    char found[80];
    int i, d, k;
    for (i = 0; i < files->config.count; i++) {
        const ignis__config_item *item = &files->config.items[i];
        for (d = 0; d < IGNIS__COUNT(ignis__model_required_values); d++) {
            bool fits = item->kind == '0' || item->kind == ignis__model_required_values[d].kind;
            if (!(ignis__model_required_values[d].families >> files->family & 1) ||
                strcmp(item->name, ignis__model_required_values[d].name) != 0)
                continue;
            if (item->kind == 't')
                snprintf(found, sizeof found, "%s", ignis__name_write(item->text).text);
            else if (item->kind == 'n')
                snprintf(found, sizeof found, "%g", item->number);
            else
                snprintf(found, sizeof found, "%s",
                         item->kind == 'b' ? (item->number != 0 ? "true" : "false") : "there");
            if (fits && (item->kind == 'n' || item->kind == 'b'))
                fits = item->number == ignis__model_required_values[d].number;
            if (fits && item->kind == 't') {
                for (k = 0; ignis__model_required_values[d].texts[k] &&
                            strcmp(item->text, ignis__model_required_values[d].texts[k]) != 0;
                     k++)
                    continue;
                fits = ignis__model_required_values[d].texts[k] != NULL;
            }
            if (fits)
                continue;
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "config.json of '%s' has %s %s, which Ignis cannot do",
                        files->path, item->name, found);
            return false;
        }
    }
    return true;
}

/*  Refuses entries of a GGUF file that would otherwise be ignored: numbers that have to be 0 or their usual
    value. */
IGNIS__PRIVATE bool ignis__model_refuse_unknown_gguf_keys(ignis__model_files *files, const ignis__model *model)
{
    static const struct {
        const char *name;
        int wanted; /* below 0: head_dim */
    } rows[] = {{"expert_count", 0},
                {"attention.sliding_window", 0},
                {"rope.dimension_count", -1},
                {"attention.value_length", -1},
                {"attention.logit_softcapping", 0},
                {"final_logit_softcapping", 0},
                {"attention.clamp_kqv", 0},
                {"attention.max_alibi_bias", 0},
                {"attention.scale", 0},
                {"embedding_scale", 1},
                {"residual_scale", 1},
                {"logit_scale", 1},
                {"rope.scaling.yarn_log_multiplier", 0},
                {"rope.scaling.yarn_attn_factor", 1},
                {"rope.scaling.yarn_ext_factor", 1}};
    double value, wanted;
    bool causal = true;
    char name[64];
    int i;
    for (i = 0; i < IGNIS__COUNT(rows); i++) {
        wanted = rows[i].wanted < 0 ? model->head_dim : rows[i].wanted;
        value = wanted;
        if (ignis__model_read_number(files, NULL, rows[i].name, &value) == IGNIS__GGUF_BAD)
            return false;
        if (value != wanted) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' has %s.%s %g, not %g, which Ignis cannot do",
                        files->path, ignis__model_families[files->family], rows[i].name, value, wanted);
            return false;
        }
    }
    snprintf(name, sizeof name, "%s.attention.causal", ignis__model_families[files->family]);
    if (ignis__gguf_find_bool(&files->gguf, name, &causal) == IGNIS__GGUF_BAD)
        return false;
    if (!causal)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' has %s false, which Ignis cannot do", files->path, name);
    return causal;
}
