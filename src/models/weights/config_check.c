/*  models/weights/config_check.c - reads the numbers of a description by the family's table; refuses other entries

    An entry that no table has is refused by its name and value, never ignored.
    May use: family_keys.c, families.c, config_json.c, >>gguf. Locks: none. */

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
        snprintf(name, sizeof name, "%s.%s", ignis__family_of(files->family)->architecture, gguf);
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

/*  Reads a size: an integer from 1 to key->most. 0 if it is missing and not required. */
static bool ignis__model_read_size(ignis__model_files *files, const ignis__number_key *key, double *size)
{
    double value = key->otherwise;
    ignis__gguf_found found = ignis__model_read_number(files, key->json, key->gguf, &value);
    const char *name = files->is_gguf ? key->gguf : key->json;
    if (found == IGNIS__GGUF_BAD)
        return false;
    if (found == IGNIS__GGUF_NONE && key->kind == 'W') {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "the description of '%s' has no %s", files->path, name);
        return false;
    }
    if (found == IGNIS__GGUF_FOUND && (!(value >= 1 && value <= key->most) || value != (double)(int)value)) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' has %s %g; a whole number from 1 to %d is needed", files->path, name,
                    value, (int)key->most);
        return false;
    }
    *size = value;
    return true;
}

/*  Reads a number that is positive, or 0 for nothing. */
static bool ignis__model_read_or_zero(ignis__model_files *files, const ignis__number_key *key, double *number)
{
    double value = key->otherwise;
    int i;
    if (ignis__model_read_number(files, key->json, key->gguf, &value) == IGNIS__GGUF_BAD)
        return false;
    for (i = 0; i < files->config.count; i++)
        if (files->config.items[i].kind == '0' && key->json && strcmp(files->config.items[i].name, key->json) == 0)
            value = 0;
    if (!(value >= 0 && value < 1e12)) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "the description of '%s' has %s %g; a positive number, or 0, is needed", files->path,
                    files->is_gguf ? key->gguf : key->json, value);
        return false;
    }
    *number = value;
    return true;
}

/*  Returns the key of a number: the family's own, or the common one. NULL if such models do not have it. Of several
    names in config.json it returns the first one that is there. */
static const ignis__number_key *ignis__model_find_key(const ignis__family *family, const ignis__config *config,
                                                      int number)
{
    const ignis__number_key *found = NULL;
    int i;
    for (i = 0; i < family->key_count; i++) {
        const ignis__number_key *key = &family->keys[i];
        if ((int)key->number == number &&
            (!found || (!ignis__config_find(config, found->json) && ignis__config_find(config, key->json))))
            found = key;
    }
    for (i = 0; !found && i < ignis__common_key_count; i++)
        if ((int)ignis__common_keys[i].number == number)
            found = &ignis__common_keys[i];
    return found;
}

/*  Reads all numbers that the family's table has; 0 for the others. */
IGNIS__PRIVATE bool ignis__model_read_numbers(ignis__model_files *files, double numbers[IGNIS__NUMBERS])
{
    int i;
    for (i = 0; i < IGNIS__NUMBERS; i++) {
        const ignis__number_key *key = ignis__model_find_key(ignis__family_of(files->family), &files->config, i);
        numbers[i] = 0;
        if (!key)
            continue;
        if (key->kind == 'w' || key->kind == 'W') {
            if (!ignis__model_read_size(files, key, &numbers[i]))
                return false;
        } else if (key->kind == 'p') {
            if (!ignis__model_read_or_zero(files, key, &numbers[i]))
                return false;
        } else if (!ignis__model_read_real(files, key->json, key->gguf, key->otherwise, &numbers[i])) {
            return false;
        }
    }
    return true;
}

static bool ignis__model_lists(const char *const *names, const char *name, size_t size)
{
    for (; *names; names++)
        if (strlen(*names) == size && memcmp(*names, name, size) == 0)
            return true;
    return false;
}

/*  Returns the requirement for an entry of config.json: the family's own, or the common one; or NULL. */
static const ignis__json_must *ignis__model_find_must(const ignis__family *family, const char *name)
{
    const char *bare = strncmp(name, "rope_parameters.", 16) == 0 ? name + 16 : name;
    const ignis__json_must *must;
    int i;
    for (i = 0; i < family->key_count; i++)
        if (family->keys[i].json && strcmp(family->keys[i].json, bare) == 0)
            return NULL;
    for (must = family->musts; must->name; must++)
        if (strcmp(must->name, name) == 0)
            return must;
    for (must = ignis__common_musts; must->name; must++)
        if (strcmp(must->name, name) == 0)
            return must;
    return NULL;
}

/*  Tells whether an entry has one of the values that Ignis supports. */
static bool ignis__model_fits(const ignis__json_must *must, const ignis__config_item *item)
{
    int k;
    if (item->kind == '0')
        return true;
    if (must->kind == '*')
        return true;
    if (item->kind != must->kind)
        return false;
    if (item->kind == 'n' || item->kind == 'b')
        return item->number == must->number;
    for (k = 0; item->kind == 't' && must->texts[k]; k++)
        if (strcmp(item->text, must->texts[k]) == 0)
            return true;
    return item->kind != 't';
}

/*  Tells whether a table knows an entry of config.json. Members of a known entry are known, except those of RoPE,
    which have a list. An entry that is null or false, or an inner name of transformers, sets nothing. */
static bool ignis__model_knows(const ignis__family *family, const ignis__config *config, const ignis__config_item *item)
{
    const char *name = item->name, *member = strchr(name, '.');
    size_t size = strcspn(name, ".[");
    int i;
    if (!*name || *name == '_' || item->kind == '0' || (item->kind == 'b' && item->number == 0))
        return true;
    if (member && (strncmp(name, "rope_scaling.", 13) == 0 || strncmp(name, "rope_parameters.", 16) == 0))
        return member[1] == '_' || (member = strrchr(name, '.'),
                                    ignis__model_lists(ignis__rope_keys, member + 1, strcspn(member + 1, "[")));
    if (ignis__model_lists(ignis__harmless_keys, name, strlen(name)) ||
        ignis__model_lists(ignis__harmless_keys, name, size) || ignis__model_lists(family->harmless, name, size))
        return true;
    for (i = 0; i < IGNIS__NUMBERS; i++) {
        const ignis__number_key *key = ignis__model_find_key(family, config, i);
        if (key && key->json && strlen(key->json) == size && strncmp(key->json, name, size) == 0)
            return true;
    }
    for (i = 0; i < family->key_count && !(family->keys[i].json && strcmp(family->keys[i].json, name) == 0); i++)
        continue;
    if (i < family->key_count) { /* another name of a number has to say the same */
        const char *first = ignis__model_find_key(family, config, (int)family->keys[i].number)->json;
        const ignis__config_item *read = ignis__config_find(config, first);
        return read && read->kind == item->kind && read->number == item->number;
    }
    return false;
}

/*  Refuses entries of config.json that would otherwise be ignored: those with other values than Ignis supports,
    and those that no table knows. */
IGNIS__PRIVATE bool ignis__model_refuse_unknown_keys(const ignis__model_files *files)
{
    const ignis__family *family = ignis__family_of(files->family);
    char found[80];
    int i;
    for (i = 0; i < files->config.count; i++) {
        const ignis__config_item *item = &files->config.items[i];
        const ignis__json_must *must = ignis__model_find_must(family, item->name);
        if (must ? ignis__model_fits(must, item) : ignis__model_knows(family, &files->config, item))
            continue;
        if (item->kind == 't')
            snprintf(found, sizeof found, "%s", ignis__name_write(item->text).text);
        else if (item->kind == 'n')
            snprintf(found, sizeof found, "%g", item->number);
        else
            snprintf(found, sizeof found, "%s", item->kind == 'b' ? (item->number != 0 ? "true" : "false") : "there");
        if (must)
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "config.json of '%s' has %s %s, which Ignis cannot do",
                        files->path, item->name, found);
        else
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call,
                        "config.json of '%s' has %s %s, an entry that the table of %s does not have", files->path,
                        ignis__name_write(item->name).text, found, family->model_type);
        return false;
    }
    return true;
}

/*  Numbers of a GGUF file that have to be 0 or their usual value. */
static const struct {
    const char *name;
    int wanted; /* -1: head_dim; -2: 1, softmax, or 2, sigmoid */
} ignis__gguf_musts[] = {{"expert_count", 0},
                         {"expert_used_count", 0},
                         {"expert_gating_func", -2},
                         {"attention.sliding_window", 0},
                         {"rope.dimension_count", -1},
                         {"attention.value_length", -1},
                         {"attention.logit_softcapping", 0},
                         {"attn_logit_softcapping", 0},
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

/*  Tells whether a key of a GGUF file is one of those that the model's table has, or that are read elsewhere. name:
    without the architecture. */
static bool ignis__model_knows_gguf(const ignis__model_files *files, const ignis__family *family, const char *name)
{
    static const char *const elsewhere[] = {"attention.causal",
                                            "attention.head_count_kv",
                                            "attention.key_length",
                                            "expert_weights_norm",
                                            "tensor_data_layout",
                                            "vocab_size",
                                            "use_parallel_residual",
                                            "rope.dimension_sections", /* positions of texts are all equal */
                                            "rope.freq_base",
                                            "rope.scale_linear",
                                            "rope.scaling.type",
                                            "rope.scaling.factor",
                                            "rope.scaling.attn_factor",
                                            "rope.scaling.finetuned",
                                            "rope.scaling.original_context_length",
                                            "rope.scaling.yarn_beta_fast",
                                            "rope.scaling.yarn_beta_slow",
                                            NULL};
    int i;
    if (ignis__model_lists(elsewhere, name, strlen(name)))
        return true;
    for (i = 0; i < IGNIS__COUNT(ignis__gguf_musts); i++)
        if (strcmp(ignis__gguf_musts[i].name, name) == 0)
            return true;
    for (i = 0; i < IGNIS__NUMBERS; i++) {
        const ignis__number_key *key = ignis__model_find_key(family, &files->config, i);
        if (key && key->gguf && strcmp(key->gguf, name) == 0)
            return true;
    }
    return false;
}

/*  Tells whether a family's own table has a key of GGUF files. */
static bool ignis__model_has_gguf_key(const ignis__family *family, const char *name)
{
    int i;
    for (i = 0; i < family->key_count; i++)
        if (family->keys[i].gguf && strcmp(family->keys[i].gguf, name) == 0)
            return true;
    return false;
}

/*  Checks that a GGUF file does not ask for blocks one after the other in a family whose blocks are parallel. */
static bool ignis__model_check_parallel(ignis__model_files *files, const ignis__family *family)
{
    bool parallel = true;
    char name[64];
    snprintf(name, sizeof name, "%s.use_parallel_residual", family->architecture);
    if (ignis__gguf_find_bool(&files->gguf, name, &parallel) == IGNIS__GGUF_BAD)
        return false;
    if (!parallel)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' has %s false, which Ignis cannot do", files->path, name);
    return parallel;
}

/*  Refuses keys of the architecture in a GGUF file that would otherwise be ignored. */
IGNIS__PRIVATE bool ignis__model_refuse_unknown_gguf_keys(ignis__model_files *files, const ignis__model *model)
{
    const ignis__family *family = ignis__family_of(files->family);
    const size_t prefix = strlen(family->architecture);
    double value, wanted;
    const bool encoder = (family->features & IGNIS__ENCODER) != 0;
    bool causal = !encoder;
    char name[64];
    int64_t k;
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__gguf_musts); i++) {
        if (ignis__model_has_gguf_key(family, ignis__gguf_musts[i].name))
            continue;
        wanted = ignis__gguf_musts[i].wanted;
        wanted = wanted == -1 ? model->head_dim : wanted == -2 ? (model->sigmoid ? 2 : 1) : wanted;
        value = wanted;
        if (ignis__model_read_number(files, NULL, ignis__gguf_musts[i].name, &value) == IGNIS__GGUF_BAD)
            return false;
        if (value != wanted) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' has %s.%s %g, not %g, which Ignis cannot do",
                        files->path, family->architecture, ignis__gguf_musts[i].name, value, wanted);
            return false;
        }
    }
    for (k = 0; k < files->gguf.key_count; k++) {
        const char *key = files->gguf.keys[k].name;
        if (strncmp(key, family->architecture, prefix) != 0 || key[prefix] != '.' ||
            ignis__model_knows_gguf(files, family, key + prefix + 1))
            continue;
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' has a key %s that the table of %s does not have",
                    files->path, ignis__name_write(key).text, family->model_type);
        return false;
    }
    if ((family->features & (IGNIS__PARALLEL_BLOCKS | IGNIS__PARALLEL_CHOICE)) == IGNIS__PARALLEL_BLOCKS &&
        !ignis__model_check_parallel(files, family))
        return false;
    snprintf(name, sizeof name, "%s.attention.causal", family->architecture);
    if (ignis__gguf_find_bool(&files->gguf, name, &causal) == IGNIS__GGUF_BAD)
        return false;
    if (causal == encoder)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' has %s %s, which Ignis cannot do", files->path, name,
                    causal ? "true" : "false");
    return causal != encoder;
}
