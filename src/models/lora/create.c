/*  models/lora/create.c - ignis_lora_create: names of products, adapters without values, their initial values

    New adapters are not set on their model.
    May use: lora.c, weights/weight_map.c (rows of the model's table), random numbers. Locks: none. */

#include "room.h"

/*  Writes the name of a product, without ".weight". */
IGNIS__PRIVATE ignis__model_name ignis__lora_product(const ignis__model *model, const ignis__model_row *row, int layer)
{
    ignis__model_name name = ignis__model_weight_name(NULL, model, row, layer, 0);
    *strrchr(name.text, '.') = 0;
    return name;
}

IGNIS__PRIVATE ignis__lora_name ignis__lora_name_write(const ignis__model *model, const ignis__model_row *row,
                                                       int layer, char which)
{
    ignis__lora_name name;
    snprintf(name.text, sizeof name.text, "base_model.model.%s.lora_%c.weight",
             ignis__lora_product(model, row, layer).text, which);
    return name;
}

/*  Tells whether a part of a model supports an adapter: matrices of layers do, except those of routers and experts. */
IGNIS__PRIVATE bool ignis__lora_supports(const ignis__model_part *part)
{
    return part->row->in_layer && part->row->columns && !ignis__model_is_sliced(part->row) &&
           !(part->row->how & (IGNIS__MODEL_EXPERTS | IGNIS__MODEL_DENSE));
}

/*  Tells whether the name of a product ends with these words. */
static bool ignis__lora_name_matches(const char *product, const char *target)
{
    size_t length = strlen(product), end = strlen(target);
    return end && end <= length && strcmp(product + length - end, target) == 0 &&
           (end == length || product[length - end - 1] == '.');
}

/*  Makes adapters, without values, for the chosen parts, with the settings of *read. It takes over the
    caller's hold of the model. NULL, and reported, without memory. */
IGNIS__COLD IGNIS__PRIVATE ignis__lora *ignis__lora_make(const char *call, ignis__model *model,
                                                         const ignis__model_part *parts, int count, const char *wanted,
                                                         const ignis__lora *read)
{
    ignis__tensor_thread *thread = ignis__tensor_thread_now();
    ignis__lora *lora = (ignis__lora *)ignis__pool_take(call, &ignis__loras);
    int scopes = thread->scope_count, i, layer = 0;
    ignis_array_desc array;
    bool ok;
    if (!lora) {
        ignis__model_drop(call, model);
        return NULL;
    }
    ignis__models_close_by(IGNIS__CLOSE_LORAS, ignis__loras_close);
    memcpy((char *)lora + sizeof lora->slot, (const char *)read + sizeof read->slot, sizeof *lora - sizeof lora->slot);
    lora->model = model;
    lora->count = lora->sequences = lora->merged = 0;
    lora->merging = false;
    lora->table = NULL;
    lora->adapters = (ignis__adapter *)ignis__alloc(((size_t)count + 1) * sizeof *lora->adapters);
    lora->layer_first = (int *)ignis__alloc(((size_t)model->layers + 1) * sizeof *lora->layer_first);
    ok = lora->adapters && lora->layer_first;
    if (!ok)
        ignis__fail_host_memory(call, ((size_t)count + 1) * sizeof *lora->adapters);
    memset(&array, 0, sizeof array);
    array.shape.ndim = 2;
    array.dtype = read->dtype;
    array.device = model->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(model->device - ignis__devices);
    array.tag = "LoRA";
    thread->scope_count = 0; /* created outside of every scope */
    for (i = 0; ok && i < count; i++) {
        ignis__adapter *adapter = &lora->adapters[lora->count];
        if (!wanted[i])
            continue;
        while (layer <= parts[i].layer)
            lora->layer_first[layer++] = lora->count;
        memset(adapter, 0, sizeof *adapter);
        adapter->row = parts[i].row;
        adapter->layer = parts[i].layer;
        adapter->first = parts[i].first;
        adapter->rows = array.shape.dim[0] = parts[i].rows;
        adapter->columns = parts[i].columns;
        array.shape.dim[1] = read->rank;
        adapter->b = ignis__tensor_adopt(call, ignis__array_create(call, &array), true);
        array.shape.dim[0] = read->rank;
        array.shape.dim[1] = parts[i].columns;
        adapter->a = ignis__tensor_adopt(call, ignis__array_create(call, &array), true);
        ok = adapter->a.id && adapter->b.id;
        lora->count++;
    }
    thread->scope_count = scopes;
    while (ok && layer <= model->layers)
        lora->layer_first[layer++] = lora->count;
    if (ok)
        return lora;
    ignis__lora_clear(call, lora);
    return NULL;
}

/*  Fills A uniformly within 1 / sqrt(columns), and B with zeros. The thread's random state is restored. */
static bool ignis__lora_init_values(const char *call, const ignis__lora *lora, uint64_t seed)
{
    ignis__random_state *random = &ignis__thread_state()->random, before = *random;
    ignis_tensor_desc desc;
    ignis_array_inputs inputs;
    bool ok = true;
    int i;
    memset(&desc, 0, sizeof desc);
    memset(&inputs, 0, sizeof inputs);
    desc.dtype = ignis__wide_dtype(lora->dtype);
    desc.device = lora->model->device == ignis__devices ? IGNIS_DEVICE_0 : (int)(lora->model->device - ignis__devices);
    inputs.names = "u, most";
    inputs.count = 2;
    random->seed = seed;
    random->used = 0;
    for (i = 0; ok && i < lora->count; i++) {
        const ignis__adapter *adapter = &lora->adapters[i];
        ignis_scope scope = ignis_scope_begin();
        ignis_tensor uniform = ignis_tensor_rand(ignis_tensor_shape(adapter->a), &desc);
        inputs.array[0] = ignis_tensor_data(uniform);
        inputs.array[1] = ignis_array_value(1 / ignis__square_root((double)adapter->columns));
        ok = ignis_array_map(ignis_tensor_data(adapter->a), "most*(2*u - 1)", inputs) == IGNIS_OK &&
             ignis__array_set_zero(call, ignis_tensor_data(adapter->b)) == IGNIS_OK;
        (void)ignis_scope_end(scope);
    }
    *random = before;
    return ok;
}

IGNIS__PRIVATE double ignis__lora_scale(const ignis__lora *lora)
{
    return lora->alpha / (lora->rslora ? ignis__square_root((double)lora->rank) : (double)lora->rank);
}

/*  Checks a description and reads its settings. */
static bool ignis__lora_check_desc(const char *call, const ignis_lora_desc *desc, ignis__lora *read)
{
    int i;
    read->rank = desc->rank ? desc->rank : 8;
    read->alpha = desc->alpha != 0 ? desc->alpha : read->rank;
    read->dropout = desc->dropout;
    read->rslora = desc->rslora;
    if (read->rank < 0 || read->rank > IGNIS__LORA_RANK)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->rank is %d; 1 to %d is needed", read->rank,
                           IGNIS__LORA_RANK) == IGNIS_OK;
    if (!(read->alpha > 0 && read->alpha < 1e12))
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->alpha is %g; a positive number is needed",
                           read->alpha) == IGNIS_OK;
    if (!(read->dropout >= 0 && read->dropout < 1))
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->dropout is %g; 0 to below 1 is needed", read->dropout) ==
               IGNIS_OK;
    if (desc->dtype != IGNIS_DTYPE_DEFAULT && !ignis__dtype_is_float(desc->dtype))
        return ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "desc->dtype is %d, not a dtype that can be used there",
                           (int)desc->dtype) == IGNIS_OK;
    if (desc->target_count < 0)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->target_count is %d, below 0", desc->target_count) ==
               IGNIS_OK;
    if (desc->target_count && !desc->targets)
        return ignis__fail_null(call, "desc->targets") == IGNIS_OK;
    for (i = 0; i < desc->target_count; i++)
        if (!desc->targets[i])
            return ignis__fail(IGNIS_DIAG_NULL_ARGUMENT, call, "desc->targets[%d] of %d is null", i,
                               desc->target_count) == IGNIS_OK;
    read->scale = ignis__lora_scale(read);
    return true;
}

/*  Marks the parts that targets name. */
static bool ignis__lora_choose_targets(const char *call, const ignis__model *model, const ignis_lora_desc *desc,
                                       const ignis__model_part *parts, int count, char *wanted)
{
    static const char *const gpt2[] = {"c_attn"}, *const others[] = {"q_proj", "v_proj"};
    const char *const *targets = desc->target_count ? desc->targets : model->family == IGNIS_MODEL_GPT2 ? gpt2 : others;
    int target_count = desc->target_count ? desc->target_count : model->family == IGNIS_MODEL_GPT2 ? 1 : 2, i, k;
    char known[256];
    ignis__string_writer text;
    bool found;
    for (k = 0; k < target_count; k++) {
        found = false;
        for (i = 0; i < count; i++) {
            if (!ignis__lora_supports(&parts[i]) ||
                !(strcmp(targets[k], "all-linear") == 0 ||
                  ignis__lora_name_matches(ignis__lora_product(model, parts[i].row, parts[i].layer).text, targets[k])))
                continue;
            wanted[i] = 1;
            found = true;
        }
        if (found)
            continue;
        ignis__string_begin(&text, known, sizeof known);
        for (i = 0; i < count && parts[i].layer < 1; i++)
            if (ignis__lora_supports(&parts[i])) {
                ignis__model_name product = ignis__lora_product(model, parts[i].row, 0);
                ignis__string_add(&text, "%s%s", text.length ? ", " : "", strstr(product.text, ".0.") + 3);
            }
        ignis__fail(IGNIS_DIAG_STORAGE_MISSING, call,
                    "desc->targets[%d] is %s, which is no product of the model, %s of %d layers; they have %s", k,
                    ignis__name_write(targets[k]).text, ignis__family_of(model->family)->model_type, model->layers,
                    known);
        return false;
    }
    return true;
}

IGNIS__COLD IGNIS_API ignis_lora ignis_lora_create(ignis_model handle, const ignis_lora_desc *desc)
{
    static const char call[] = "ignis_lora_create";
    static const ignis_lora_desc defaults = IGNIS__ZERO;
    ignis_lora none = IGNIS__ZERO;
    ignis__model *model = ignis__model_hold(call, handle);
    ignis__model_part *parts = NULL;
    ignis__lora read, *lora = NULL;
    char *wanted = NULL;
    int count = 0;
    if (!model)
        return none;
    memset(&read, 0, sizeof read);
    desc = desc ? desc : &defaults;
    read.dtype = desc->dtype ? desc->dtype : model->dtype;
    if (ignis__model_check_not_shared(call, model) && !ignis__capture_refuses(call) &&
        ignis__lora_check_desc(call, desc, &read))
        parts = ignis__model_parts_make(call, NULL, model, &count);
    if (parts && (wanted = (char *)ignis__alloc((size_t)count + 1)) == NULL)
        ignis__fail_host_memory(call, (size_t)count + 1);
    if (!wanted || !ignis__lora_choose_targets(call, model, desc, parts, count, wanted))
        ignis__model_drop(call, model);
    else
        lora = ignis__lora_make(call, model, parts, count, wanted, &read);
    ignis__free(parts);
    ignis__free(wanted);
    if (lora && !ignis__lora_init_values(call, lora, desc->seed)) {
        ignis__lora_clear(call, lora);
        lora = NULL;
    }
    if (lora)
        none.id = ignis__pool_publish(&ignis__loras, lora);
    return none;
}
