/* ===============================================================================================================
   >>training - trainings saved and continued, by any number of ranks

   The parts: training_entries (the tensors as files have them), training_index (names of files and the index), training
   (the handle, and how ranks agree), training_save, training_load.
   This part: tensors of the model have the caller's names. The others are "state.NAME", "random", and for optimizer n
   "optimizer.n", "optimizer.n.group.g" and "optimizer.n.PART.NAME" of a parameter. State of parameters, and random
   numbers, are written in pieces, one from each rank, whether ranks share them or not.
   Uses optimizers, tensors and the room file; ignis_ranks hides communicators. Locks: that of one optimizer at a time.
   =============================================================================================================== */

#include "room.h"

/*  Drops the arrays: names, places and sizes stay. */
IGNIS__PRIVATE void ignis__training_entries_release(const char *call, ignis__training_entries *entries)
{
    int i;
    for (i = 0; i < entries->count; i++) {
        if (entries->list[i].array)
            ignis__array_drop(call, entries->list[i].array);
        entries->list[i].array = NULL;
    }
}

IGNIS__PRIVATE void ignis__training_entries_free(const char *call, ignis__training_entries *entries)
{
    int i;
    ignis__training_entries_release(call, entries);
    for (i = 0; i < entries->count; i++) {
        ignis__free(entries->list[i].name);
        ignis__free(entries->list[i].written);
        ignis__free(entries->list[i].host);
    }
    ignis__free(entries->list);
    memset(entries, 0, sizeof *entries);
}

/*  Adds an entry whose name has three parts. NULL, and reported, if out of memory. */
static ignis__training_entry *ignis__training_entry_add(const char *call, ignis__training_entries *entries,
                                                        const char *prefix, const char *part, const char *name)
{
    const size_t size = strlen(prefix) + strlen(part) + strlen(name) + 1;
    ignis__training_entry *entry, *list;
    if (entries->count == entries->capacity) {
        const int capacity = entries->capacity ? 2 * entries->capacity : 64;
        list = (ignis__training_entry *)ignis__alloc_for(call, sizeof *list * (size_t)capacity);
        if (!list)
            return NULL;
        memset(list, 0, sizeof *list * (size_t)capacity);
        if (entries->count)
            memcpy(list, entries->list, sizeof *list * (size_t)entries->count);
        ignis__free(entries->list);
        entries->list = list;
        entries->capacity = capacity;
    }
    entry = &entries->list[entries->count];
    entry->name = (char *)ignis__alloc_for(call, size);
    if (!entry->name)
        return NULL;
    snprintf(entry->name, size, "%s%s%s", prefix, part, name);
    entries->count++;
    return entry;
}

/*  Fills an entry of a tensor that all ranks have whole. */
static void ignis__training_entry_whole(ignis__training_entry *entry, ignis__array *array, const ignis_shape *shape,
                                        int owner)
{
    entry->array = array;
    entry->dtype = array->dtype;
    entry->shape = *shape;
    entry->numel = entry->count = array->numel;
    entry->owner = owner;
}

static bool ignis__training_entry_tensor(const char *call, const ignis__training *training, int at,
                                         ignis__training_entries *entries)
{
    const bool is_model = at < training->model_count;
    ignis__training_entry *entry =
        ignis__training_entry_add(call, entries, is_model ? "" : "state.", "", training->names[at]);
    ignis__array *array = entry ? ignis__tensor_array(call, training->tensors[at]) : NULL;
    if (!array)
        return false;
    ignis__training_entry_whole(entry, array, &training->tensors[at]->shape, 0);
    entry->is_model = is_model;
    return true;
}

/*  Adds an array of an optimizer that is equal on all ranks. */
static bool ignis__training_entry_equal(const char *call, ignis__training_entries *entries, const char *prefix,
                                        const char *part, const char *name, const ignis__array *of)
{
    ignis__training_entry *entry = ignis__training_entry_add(call, entries, prefix, part, name);
    ignis_array handle;
    ignis__array *array;
    handle.id = of->slot.handle;
    array = entry ? ignis__array_hold(call, handle) : NULL;
    if (array)
        ignis__training_entry_whole(entry, array, &array->shape, 0);
    return array != NULL;
}

/*  Adds an array of the state of a parameter, which files have in pieces. */
static bool ignis__training_entry_piece(const char *call, ignis__training_entries *entries, const char *prefix,
                                        const char *part, const char *name, const ignis__parameter *parameter,
                                        const ignis__array *of)
{
    ignis__training_entry *entry;
    ignis_array handle;
    ignis__array *array;
    if (!of)
        return true;
    entry = ignis__training_entry_add(call, entries, prefix, part, name);
    handle.id = of->slot.handle;
    array = entry ? ignis__array_hold(call, handle) : NULL;
    if (!array)
        return false;
    entry->array = array;
    entry->dtype = array->dtype;
    entry->numel = ignis__tensor_numel(parameter->tensor);
    entry->shape = IGNIS_SHAPE(entry->numel);
    entry->start = parameter->start;
    entry->count = array->numel;
    entry->is_piece = true;
    entry->owner = -1;
    entry->copy = parameter->copy;
    entry->copies = parameter->copies;
    entry->is_shared = parameter->group_of != NULL;
    return true;
}

/*  Finds the name of a parameter. Parameters are mostly in the order of tensors: looks from *at on. */
static const char *ignis__training_parameter_name(const ignis__training *training, const ignis__tensor *tensor, int *at)
{
    int i;
    for (i = 0; i < training->count; i++, *at = (*at + 1) % training->count)
        if (training->tensors[*at] == tensor)
            return training->names[*at];
    return NULL;
}

/*  Adds the state of a locked optimizer. */
static bool ignis__training_entries_optimizer(const char *call, const ignis__training *training, int number,
                                              const ignis__optimizer *optimizer, ignis__training_entries *entries)
{
    char prefix[40], group[24];
    bool ok;
    int i, at = 0;
    snprintf(prefix, sizeof prefix, "optimizer.%d", number);
    if (optimizer->is_swapped)
        return ignis__fail_false(IGNIS_DIAG_OPTIMIZER_STATE, call,
                                 "the averages of optimizers[%d] are in its parameters; ignis_optimizer_swap_ema first",
                                 number);
    ok = ignis__training_entry_equal(call, entries, prefix, "", "", optimizer->state);
    for (i = 0; ok && i < optimizer->group_count; i++) {
        snprintf(group, sizeof group, "%d", i + 1);
        ok = ignis__training_entry_equal(call, entries, prefix, ".group.", group, optimizer->groups[i]);
    }
    for (i = 0; ok && i < optimizer->count; i++) {
        const ignis__parameter *p = &optimizer->parameters[i];
        const ignis__array *second = optimizer->step == IGNIS__BUILTIN(MUON) ? NULL : p->second; /* of one step */
        const char *name = ignis__training_parameter_name(training, p->tensor, &at);
        if (!name)
            return ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call,
                                     "parameter %d of optimizers[%d], %s, is not among the tensors", i, number,
                                     ignis__shape_write(&p->tensor->shape).text);
        ok = ignis__training_entry_piece(call, entries, prefix, ".first.", name, p, p->first) &&
             ignis__training_entry_piece(call, entries, prefix, ".second.", name, p, second) &&
             ignis__training_entry_piece(call, entries, prefix, optimizer->split_master ? ".master_low." : ".master.",
                                         name, p, p->master) &&
             ignis__training_entry_piece(call, entries, prefix, ".ema.", name, p, p->average) &&
             (!p->missed || ignis__training_entry_equal(call, entries, prefix, ".missed.", name, p->missed));
    }
    return ok;
}

/*  Adds the place of each rank in its random numbers. */
static bool ignis__training_entries_random(const char *call, const ignis__training *training,
                                           ignis__training_entries *entries)
{
    ignis__training_entry *entry = ignis__training_entry_add(call, entries, "random", "", "");
    const ignis_random_state state = ignis_random_save();
    if (!entry)
        return false;
    entry->host = (int64_t *)ignis__alloc_for(call, 2 * sizeof *entry->host);
    if (!entry->host)
        return false;
    entry->host[0] = (int64_t)state.seed;
    entry->host[1] = (int64_t)state.position;
    entry->dtype = IGNIS_I64;
    entry->numel = 2 * (int64_t)training->ranks.size;
    entry->shape = IGNIS_SHAPE(entry->numel);
    entry->start = 2 * (int64_t)training->ranks.rank;
    entry->count = 2;
    entry->is_piece = true;
    entry->owner = -1;
    entry->copies = 1;
    return true;
}

/*  Divides what several ranks have: whole tensors of the model by their bytes, copies of pieces by elements. */
static void ignis__training_entries_divide(const ignis__training *training, ignis__training_entries *entries)
{
    const int64_t ranks = training->ranks.size;
    int64_t total = 0, before = 0, bytes, copy, copies, rest;
    int i;
    for (i = 0; i < entries->count; i++)
        if (entries->list[i].is_model)
            total += entries->list[i].numel * ignis__dtypes[entries->list[i].dtype].size;
    for (i = 0; i < entries->count; i++) {
        ignis__training_entry *entry = &entries->list[i];
        entry->from = entry->start;
        entry->elements = entry->count;
        if (entry->is_model) {
            bytes = entry->numel * ignis__dtypes[entry->dtype].size;
            entry->owner = total ? (int)((double)before / (double)total * (double)ranks) : 0;
            entry->owner = entry->owner < ranks ? entry->owner : (int)ranks - 1;
            before += bytes;
        } else if (entry->is_piece) {
            copy = entry->copies ? entry->copy : training->ranks.rank;
            copies = entry->copies ? entry->copies : ranks;
            rest = entry->count % copies;
            entry->from += entry->count / copies * copy + (copy < rest ? copy : rest);
            entry->elements = entry->count / copies + (copy < rest);
        }
    }
}

/*  Lists all tensors. Their arrays are held until ignis__training_entries_release. After a failure, too, the caller
    frees the list. */
IGNIS__PRIVATE bool ignis__training_entries_make(const char *call, const ignis__training *training,
                                                 ignis__training_entries *entries)
{
    bool ok = true;
    int i;
    for (i = 0; ok && i < training->count; i++)
        ok = ignis__training_entry_tensor(call, training, i, entries);
    for (i = 0; ok && i < training->optimizer_count; i++) {
        ignis__optimizer *optimizer = training->optimizers[i];
        ignis__mutex_lock(&optimizer->slot.lock);
        ok = ignis__training_entries_optimizer(call, training, i, optimizer, entries);
        ignis__mutex_unlock(&optimizer->slot.lock);
    }
    ok = ok && ignis__training_entries_random(call, training, entries);
    if (ok)
        ignis__training_entries_divide(training, entries);
    return ok;
}

static int ignis__training_entry_order(const void *a, const void *b)
{
    return strcmp(((const ignis__training_entry *)a)->name, ((const ignis__training_entry *)b)->name);
}

/*  Sorts entries by name. False, and reported, if two have the same. */
IGNIS__PRIVATE bool ignis__training_entries_sort(const char *call, ignis__training_entries *entries)
{
    int i;
    qsort(entries->list, (size_t)entries->count, sizeof *entries->list, ignis__training_entry_order);
    for (i = 1; i < entries->count; i++)
        if (strcmp(entries->list[i - 1].name, entries->list[i].name) == 0)
            return ignis__fail_false(IGNIS_DIAG_STORAGE_NAME, call, "two tensors have the name %s",
                                     ignis__name_write(entries->list[i].name).text);
    return true;
}

/*  Finds the entry of a name of `length` bytes among sorted ones. NULL if there is none. */
IGNIS__PRIVATE ignis__training_entry *ignis__training_entries_find(const ignis__training_entries *entries,
                                                                   const char *name, size_t length)
{
    int first = 0, end = entries->count;
    while (first < end) {
        const int at = first + (end - first) / 2;
        ignis__training_entry *entry = &entries->list[at];
        const int order = strncmp(entry->name, name, length);
        if (order == 0 && !entry->name[length])
            return entry;
        if (order < 0)
            first = at + 1;
        else
            end = at;
    }
    return NULL;
}
