/*  models/lora/peft_load.c - ignis_lora_open: adapters from a folder of PEFT

    Every key of adapter_config.json is known, empty, or refused by name.
    May use: create.c, weights/config_json.c, >>safetensors. Locks: none. */

#include "room.h"

/*  Known keys of adapter_config.json: those that are read, with the permitted kinds of values, and those that
    do not change what A and B compute. All other keys have to be empty. */
static const struct {
    const char *name, *kinds; /* kinds: NULL for any */
} ignis__lora_keys[] = {
    {"peft_type", "t"},
    {"r", "n0"},
    {"lora_alpha", "n0"},
    {"lora_dropout", "n0"},
    {"use_rslora", "b0"},
    {"bias", "t"},
    {"init_lora_weights", "bt0"},
    {"auto_mapping", NULL},
    {"base_model_name_or_path", NULL},
    {"revision", NULL},
    {"task_type", NULL},
    {"inference_mode", NULL},
    {"peft_version", NULL},
    {"target_modules", NULL},
    {"exclude_modules", NULL},
    {"layers_pattern", NULL},
    {"layers_to_transform", NULL},
    {"fan_in_fan_out", NULL},
    {"eva_config", NULL},
    {"megatron_core", NULL},
    {"runtime_config", NULL},
    {"qalora_group_size", NULL},
};

/*  Tells whether a value is null, false, 0 or empty. */
static bool ignis__config_is_empty(const ignis__config *config, const ignis__config_item *item)
{
    size_t length = strlen(item->name);
    int i;
    if (item->kind == 't')
        return !*item->text;
    if (item->kind != '{' && item->kind != '[')
        return item->kind == '0' || item->number == 0;
    for (i = (int)(item - config->items) + 1; i < config->count; i++)
        if (strncmp(config->items[i].name, item->name, length) == 0 &&
            (config->items[i].name[length] == '.' || config->items[i].name[length] == '['))
            return false;
    return true;
}

/*  Checks that a text is one of a NULL-ended list. False, and reported, if it is not. */
static bool ignis__lora_check_text(const char *call, const char *folder, const ignis__config_item *item,
                                   const char *const *texts)
{
    int k;
    for (k = 0; texts[k] && strcmp(item->text, texts[k]) != 0;)
        k++;
    if (!texts[k])
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "adapter_config.json of '%s' has %s %s, which Ignis cannot do",
                    folder, item->name, ignis__name_write(item->text).text);
    return texts[k] != NULL;
}

/*  Reads a number within limits. `otherwise` is its value if it is missing; outside of the limits if it is
    required. */
static bool ignis__lora_read_number(const char *call, const char *folder, const ignis__config *config, const char *name,
                                    double otherwise, double low, double high, double *value)
{
    const ignis__config_item *item = ignis__config_find(config, name);
    *value = item ? item->number : otherwise;
    if (*value >= low && *value <= high)
        return true;
    if (item)
        ignis__fail(IGNIS_DIAG_LORA_FORMAT, call,
                    "adapter_config.json of '%s' has %s %g; a number from %g to %g is needed", folder, name, *value,
                    low, high);
    else
        ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "adapter_config.json of '%s' has no %s", folder, name);
    return false;
}

/*  Reads the settings of adapter_config.json, and refuses keys that would be ignored. */
static bool ignis__lora_read_config(const char *call, const char *folder, const ignis__config *config,
                                    ignis__lora *read)
{
    static const char *const types[] = {"LORA", NULL}, *const biases[] = {"none", NULL},
                             *const inits[] = {"gaussian", "eva", "orthogonal",
                                               NULL}; /* other kinds change the base model, too */
    const ignis__config_item *type = ignis__config_find(config, "peft_type"),
                             *rslora = ignis__config_find(config, "use_rslora");
    double rank = 0;
    int i, k;
    if (!type)
        return ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "adapter_config.json of '%s' has no peft_type", folder) ==
               IGNIS_OK;
    for (i = 0; i < config->count; i++) {
        const ignis__config_item *item = &config->items[i];
        if (!*item->name || strpbrk(item->name, ".["))
            continue;
        if (item->kind == 't' &&
            ((strcmp(item->name, "peft_type") == 0 && !ignis__lora_check_text(call, folder, item, types)) ||
             (strcmp(item->name, "bias") == 0 && !ignis__lora_check_text(call, folder, item, biases)) ||
             (strcmp(item->name, "init_lora_weights") == 0 && !ignis__lora_check_text(call, folder, item, inits))))
            return false;
        for (k = 0; k < IGNIS__COUNT(ignis__lora_keys) && strcmp(item->name, ignis__lora_keys[k].name) != 0;)
            k++;
        if (k < IGNIS__COUNT(ignis__lora_keys) && ignis__lora_keys[k].kinds &&
            !strchr(ignis__lora_keys[k].kinds, item->kind))
            return ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "adapter_config.json of '%s': %s is %s", folder,
                               item->name,
                               *ignis__lora_keys[k].kinds == 'n'   ? "no number"
                               : *ignis__lora_keys[k].kinds == 't' ? "no text"
                                                                   : "neither true nor false") == IGNIS_OK;
        if (k < IGNIS__COUNT(ignis__lora_keys) || ignis__config_is_empty(config, item))
            continue;
        return ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "adapter_config.json of '%s' has %s %s, which Ignis cannot do",
                           folder, ignis__name_write(item->name).text,
                           item->kind == 't'   ? ignis__name_write(item->text).text
                           : item->kind == 'b' ? "true"
                                               : "there") == IGNIS_OK;
    }
    if (!ignis__lora_read_number(call, folder, config, "r", -1, 1, IGNIS__LORA_RANK, &rank) ||
        !ignis__lora_read_number(call, folder, config, "lora_alpha", -1, 1e-12, 1e12, &read->alpha) ||
        !ignis__lora_read_number(call, folder, config, "lora_dropout", 0, 0, 0.999999, &read->dropout))
        return false;
    if (rank != (double)(int)rank)
        return ignis__fail(IGNIS_DIAG_LORA_FORMAT, call,
                           "adapter_config.json of '%s' has r %g; a whole number is needed", folder, rank) == IGNIS_OK;
    read->rank = (int)rank;
    read->rslora = rslora && rslora->number != 0;
    read->scale = ignis__lora_scale(read);
    return true;
}

/*  Checks one of the two tensors of an adapter: its shape, and that its dtype is the one of the others. */
static bool ignis__lora_check_tensor(const char *call, const char *path, const ignis__file_tensor *item, int64_t rows,
                                     int64_t columns, ignis__lora *read)
{
    ignis_dtype dtype = ignis__file_dtypes[item->type].dtype;
    ignis_shape wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.ndim = 2;
    wanted.dim[0] = rows;
    wanted.dim[1] = columns;
    if (!ignis__dtype_is_float(dtype) || (read->dtype && read->dtype != dtype))
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "tensor %s of '%s' is of type %s; all are of one, F16, BF16, F32 or F64",
                    ignis__name_write(item->name).text, path, ignis__file_dtypes[item->type].name);
    else if (!ignis__shape_same(&item->shape, &wanted))
        ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "tensor %s of '%s' is %s; the model and a rank of %d make it %s",
                    ignis__name_write(item->name).text, path, ignis__shape_write(&item->shape).text, read->rank,
                    ignis__shape_write(&wanted).text);
    else {
        read->dtype = dtype;
        return true;
    }
    return false;
}

/*  Marks the parts for which the file has an adapter. Fails if the file has any other tensor. */
static bool ignis__lora_match_file(const char *call, const char *path, ignis__safetensors *file,
                                   const ignis__model *model, const ignis__model_part *parts, int count, char *wanted,
                                   ignis__lora *read)
{
    int i, used = 0;
    ignis__file_tensor_sort(file->items, file->count, ignis__file_tensor_by_name);
    for (i = 0; i < file->count; i++)
        file->items[i].index = 0;
    for (i = 0; i < count; i++) {
        ignis__file_tensor *a, *b;
        if (!ignis__lora_supports(&parts[i]))
            continue;
        a = ignis__file_tensor_find(file, ignis__lora_name_write(model, parts[i].row, parts[i].layer, 'A').text);
        b = ignis__file_tensor_find(file, ignis__lora_name_write(model, parts[i].row, parts[i].layer, 'B').text);
        if (!a && !b)
            continue;
        if (!a || !b)
            return ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "'%s' has no tensor %s", path,
                               ignis__lora_name_write(model, parts[i].row, parts[i].layer, a ? 'B' : 'A').text) ==
                   IGNIS_OK;
        if (!ignis__lora_check_tensor(call, path, a, read->rank, parts[i].columns, read) ||
            !ignis__lora_check_tensor(call, path, b, parts[i].rows, read->rank, read))
            return false;
        a->index = b->index = 1;
        wanted[i] = 1;
        used++;
    }
    for (i = 0; i < file->count && file->items[i].index;)
        i++;
    if (i < file->count)
        ignis__fail(IGNIS_DIAG_LORA_FORMAT, call,
                    "'%s' has a tensor %s, which has no place beside a product of the model, %s of %d layers", path,
                    ignis__name_write(file->items[i].name).text, ignis__family_of(model->family)->model_type,
                    model->layers);
    else if (!used)
        ignis__fail(IGNIS_DIAG_LORA_FORMAT, call, "'%s' has no tensors", path);
    else
        return true;
    return false;
}

IGNIS__PRIVATE bool ignis__lora_list_make(const char *call, const ignis__lora *lora, ignis__lora_list *list)
{
    size_t count = 2 * (size_t)lora->count + 1;
    int i;
    list->names = (ignis__lora_name *)ignis__alloc(count * sizeof *list->names);
    list->texts = (const char **)ignis__alloc(count * sizeof *list->texts);
    list->tensors = (ignis_tensor *)ignis__alloc(count * sizeof *list->tensors);
    if (!list->names || !list->texts || !list->tensors)
        return ignis__fail_host_memory(call, count * sizeof *list->names) == IGNIS_OK;
    for (i = 0; i < 2 * lora->count; i++) {
        const ignis__adapter *adapter = &lora->adapters[i / 2];
        list->names[i] = ignis__lora_name_write(lora->model, adapter->row, adapter->layer, i % 2 ? 'B' : 'A');
        list->texts[i] = list->names[i].text;
        list->tensors[i] = i % 2 ? adapter->b : adapter->a;
    }
    return true;
}

IGNIS__PRIVATE void ignis__lora_list_free(ignis__lora_list *list)
{
    ignis__free(list->names);
    ignis__free((void *)list->texts);
    ignis__free(list->tensors);
}

/*  Finds the part of the model that an adapter is for. */
static const ignis__model_part *ignis__lora_part(const ignis__model_part *parts, int count,
                                                 const ignis__adapter *adapter)
{
    int i;
    for (i = 0; i < count - 1 && (parts[i].row != adapter->row || parts[i].layer != adapter->layer);)
        i++;
    return &parts[i];
}

/*  Replaces each A and B of a list by one whose columns or rows have the order of a folder, where that is another one.
    Copies belong to the current scope. */
IGNIS__PRIVATE bool ignis__lora_order_for_folder(const char *call, const ignis__lora *lora, ignis__lora_list *list)
{
    int count = 0, i;
    ignis__model_part *parts = ignis__model_parts_make(call, NULL, lora->model, &count);
    bool ok = parts != NULL;
    for (i = 0; ok && i < lora->count; i++) {
        const ignis__model_part *part = ignis__lora_part(parts, count, &lora->adapters[i]);
        ignis_tensor *a = &list->tensors[2 * i], *b = a + 1;
        *a = ignis__model_reorder_columns(call, lora->model, part, *a, true);
        *b = ignis__model_reorder_rows(call, lora->model, part, *b, true);
        ok = a->id && b->id;
    }
    ignis__free(parts);
    return ok;
}

/*  Writes `ordered` to a tensor, unless it is that tensor. */
static bool ignis__lora_take_order(ignis_tensor tensor, ignis_tensor ordered)
{
    return ordered.id && (ordered.id == tensor.id ||
                          ignis_array_write_rows(ignis_tensor_data(tensor), ignis_tensor_data(ordered), 0) == IGNIS_OK);
}

/*  Gives the columns of each A and the rows of each B, which have a folder's order, that of the model. */
static bool ignis__lora_order_for_model(const char *call, const ignis__lora *lora, const ignis__model_part *parts,
                                        int count)
{
    bool ok = true;
    int i;
    for (i = 0; ok && i < lora->count; i++) {
        const ignis_scope scope = ignis_scope_begin();
        const ignis__model_part *part = ignis__lora_part(parts, count, &lora->adapters[i]);
        const ignis_tensor a = lora->adapters[i].a, b = lora->adapters[i].b;
        ok = ignis__lora_take_order(a, ignis__model_reorder_columns(call, lora->model, part, a, false)) &&
             ignis__lora_take_order(b, ignis__model_reorder_rows(call, lora->model, part, b, false));
        (void)ignis_scope_end(scope);
    }
    return ok;
}

/*  Reads a folder's adapters for a held model, and takes over the caller's hold. NULL, and reported, if they
    do not fit. */
IGNIS__COLD static ignis__lora *ignis__lora_read(const char *call, ignis__model *model, const char *folder,
                                                 const char *config_path, const char *path)
{
    ignis__lora read, *lora = NULL;
    ignis__lora_list list = IGNIS__ZERO;
    ignis__model_part *parts = NULL;
    ignis__config config;
    ignis__load load;
    char *wanted = NULL;
    int count = 0;
    bool ok;
    memset(&read, 0, sizeof read);
    ok = ignis__config_open(call, config_path, true, &config);
    if (ok) {
        ok = ignis__lora_read_config(call, folder, &config, &read);
        ignis__config_close(&config);
    }
    ok = ok && (parts = ignis__model_parts_make(call, NULL, model, &count)) != NULL;
    if (ok && (wanted = (char *)ignis__alloc((size_t)count + 1)) == NULL)
        ok = ignis__fail_host_memory(call, (size_t)count + 1) == IGNIS_OK;
    if (ok && (ok = ignis__load_open(call, path, &load)) != false) {
        ok = ignis__lora_match_file(call, path, &load.file, model, parts, count, wanted, &read);
        ignis__load_close(&load);
    }
    if (ok)
        lora = ignis__lora_make(call, model, parts, count, wanted, &read);
    else
        ignis__model_drop(call, model);
    ignis_no_grad_begin();
    if (lora && !(ignis__lora_list_make(call, lora, &list) &&
                  ignis__load_named(call, path, list.texts, list.tensors, 2 * lora->count, false) == IGNIS_OK &&
                  ignis__lora_order_for_model(call, lora, parts, count))) {
        ignis__lora_clear(call, lora);
        lora = NULL;
    }
    ignis_no_grad_end();
    ignis__free(parts);
    ignis__free(wanted);
    ignis__lora_list_free(&list);
    return lora;
}

IGNIS__COLD IGNIS_API ignis_lora ignis_lora_open(ignis_model handle, const char *folder)
{
    static const char call[] = "ignis_lora_open";
    ignis_lora none = IGNIS__ZERO;
    ignis__model *model = ignis__model_hold(call, handle);
    char *config = NULL, *path = NULL;
    ignis__lora *lora = NULL;
    if (!model)
        return none;
    if (!folder)
        ignis__fail_null(call, "folder");
    else if (ignis__model_check_not_shared(call, model) && !ignis__capture_refuses(call) &&
             (config = ignis__model_path(call, folder, "adapter_config.json")) != NULL)
        path = ignis__model_path(call, folder, "adapter_model.safetensors");
    if (path)
        lora = ignis__lora_read(call, model, folder, config, path);
    else
        ignis__model_drop(call, model);
    ignis__free(config);
    ignis__free(path);
    if (lora)
        none.id = ignis__pool_publish(&ignis__loras, lora);
    return none;
}
