/*  models/weights/checkpoint.c - the files of a model: config.json, safetensors shards or a GGUF file

    The headers alone are read, into a sorted list of tensors. On failure everything is closed.
    May use: config_json.c, >>gguf, >>safetensors. Locks: none. */

#include "room.h"

IGNIS__PRIVATE void ignis__model_files_close(ignis__model_files *files)
{
    int i;
    for (i = 0; i < files->path_count; i++) {
        if (files->shards)
            ignis__load_close(&files->shards[i]);
        ignis__free(files->paths[i]);
    }
    ignis__free(files->shards);
    ignis__free(files->paths);
    ignis__free(files->sources);
    ignis__free(files->packed);
    ignis__config_close(&files->config);
    ignis__config_close(&files->index);
    ignis__config_close(&files->generation);
    if (files->is_gguf)
        ignis__gguf_close(&files->gguf);
    for (i = 0; i < files->more_count; i++)
        ignis__gguf_close(&files->more_parts[i]);
    ignis__free(files->more_parts);
    memset(files, 0, sizeof *files);
}

/*  Returns folder/name, freed with ignis__free. NULL, and reported, without memory. */
IGNIS__PRIVATE char *ignis__model_path(const char *call, const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = (char *)ignis__alloc(size);
    if (path)
        snprintf(path, size, "%s%s%s", folder, *folder && folder[strlen(folder) - 1] != '/' ? "/" : "", name);
    else
        ignis__fail_host_memory(call, size);
    return path;
}

static int ignis__model_source_order(const void *a, const void *b)
{
    return strcmp(((const ignis__model_source *)a)->name, ((const ignis__model_source *)b)->name);
}

IGNIS__PRIVATE ignis__model_source *ignis__model_source_find(const ignis__model_files *files, const char *name)
{
    ignis__model_source key;
    memset(&key, 0, sizeof key);
    key.name = name;
    return files->source_count ? (ignis__model_source *)bsearch(&key, files->sources, (size_t)files->source_count,
                                                                sizeof key, ignis__model_source_order)
                               : NULL;
}

IGNIS__PRIVATE ignis__model_type ignis__model_type_write(const ignis__model_source *source)
{
    ignis__model_type type;
    if (source->type)
        snprintf(type.text, sizeof type.text, "%s", source->type);
    else
        snprintf(type.text, sizeof type.text, "number %u", (unsigned)source->id);
    return type;
}

/*  Allocates the list of tensors. */
static bool ignis__model_alloc_sources(ignis__model_files *files, int64_t count)
{
    size_t size = (size_t)(count + 1) * sizeof *files->sources;
    files->sources = (ignis__model_source *)ignis__alloc(size);
    if (!files->sources)
        ignis__fail_host_memory(files->call, size);
    return files->sources != NULL;
}

IGNIS__PRIVATE bool ignis__model_sort_sources(ignis__model_files *files)
{
    int64_t i;
    if (files->source_count > 1)
        qsort(files->sources, (size_t)files->source_count, sizeof *files->sources, ignis__model_source_order);
    for (i = 1; i < files->source_count; i++) {
        if (strcmp(files->sources[i - 1].name, files->sources[i].name) == 0) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "tensor %s is in '%s' and again in '%s'",
                        ignis__name_write(files->sources[i].name).text, files->paths[files->sources[i - 1].file],
                        files->paths[files->sources[i].file]);
            return false;
        }
    }
    return true;
}

/*  Opens the files that `names` lists for the tensors, each file once. */
static bool ignis__model_open_shards(ignis__model_files *files, const char *const *names, int count)
{
    int64_t total = 0;
    int i, k;
    files->paths = (char **)ignis__alloc(((size_t)count + 1) * sizeof *files->paths);
    files->shards = (ignis__load *)ignis__alloc(((size_t)count + 1) * sizeof *files->shards);
    if (!files->paths || !files->shards) {
        ignis__fail_host_memory(files->call, ((size_t)count + 1) * sizeof *files->shards);
        return false;
    }
    for (i = 0; i < count; i++) {
        char *path = ignis__model_path(files->call, files->path, names[i]);
        if (!path || !ignis__load_open(files->call, path, &files->shards[i])) {
            ignis__free(path);
            return false;
        }
        files->paths[files->path_count++] = path;
        total += files->shards[i].file.count;
    }
    if (!ignis__model_alloc_sources(files, total))
        return false;
    for (i = 0; i < count; i++) {
        for (k = 0; k < files->shards[i].file.count; k++) {
            const ignis__file_tensor *item = &files->shards[i].file.items[k];
            ignis__model_source *source = &files->sources[files->source_count++];
            source->name = item->name;
            source->shape = item->shape;
            source->file = i;
            source->begin = files->shards[i].file.data + item->begin;
            source->end = files->shards[i].file.data + item->end;
            source->type = ignis__file_dtypes[item->type].name;
            source->dtype = ignis__file_dtypes[item->type].dtype;
            source->elements = 1;
            source->bytes = ignis__file_dtypes[item->type].bits / 8;
        }
    }
    return ignis__model_sort_sources(files);
}

static int ignis__model_file_order(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/*  Opens the shards that model.safetensors.index.json names. */
static bool ignis__model_open_index(ignis__model_files *files, const char *path)
{
    static const char prefix[] = "weight_map";
    const char **names;
    int count = 0, own = 0, i;
    bool inside = false, ok = true;
    if (!ignis__config_open(files->call, path, true, &files->index))
        return false;
    names = (const char **)ignis__alloc(((size_t)files->index.count + 1) * sizeof *names);
    if (!names) {
        ignis__fail_host_memory(files->call, ((size_t)files->index.count + 1) * sizeof *names);
        return false;
    }
    for (i = 0; ok && i < files->index.count; i++) {
        const ignis__config_item *item = &files->index.items[i];
        const char *name = item->text;
        inside = strncmp(item->name, prefix, sizeof prefix - 1) == 0 && item->name[sizeof prefix - 1] == '.';
        if (!inside)
            continue;
        if (item->kind != 't' || !*name || strchr(name, '/') || strchr(name, '\\') || strchr(name, ':') ||
            strstr(name, "..")) {
            ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                        "'%s' says that a tensor is in %s, which is not the plain name of a file", path,
                        ignis__name_write(item->kind == 't' ? name : "").text);
            ok = false;
        }
        names[count++] = name;
    }
    if (ok && count == 0) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "'%s' has no weight_map that names a file", path);
        ok = false;
    }
    if (ok)
        qsort(names, (size_t)count, sizeof *names, ignis__model_file_order);
    for (i = 0; ok && i < count; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            names[own++] = names[i];
    ok = ok && ignis__model_open_shards(files, names, own);
    ignis__free((void *)names);
    return ok;
}

/*  Writes the names of all families, or of the architectures of GGUF files, with commas between them. */
static void ignis__model_write_families(const ignis__model_files *files, char *out, size_t capacity)
{
    size_t length = 0;
    int i;
    for (i = 1; i < IGNIS_MODEL_FAMILY_COUNT; i++) {
        const char *name = files->is_gguf ? ignis__family_of((ignis_model_family)i)->architecture
                                          : ignis__family_of((ignis_model_family)i)->model_type;
        if (files->is_gguf && i == IGNIS_MODEL_MIXTRAL) /* its architecture is that of Llama */
            continue;
        if (name && length + strlen(name) + 3 < capacity)
            length += (size_t)snprintf(out + length, capacity - length, "%s%s", length ? ", " : "", name);
    }
}

/*  Finds the family by model_type, or by the architecture of a GGUF file: the first one that has it. */
static bool ignis__model_family_find(ignis__model_files *files, const char *key, const char *name)
{
    char known[600];
    int i;
    for (i = IGNIS_MODEL_FAMILY_COUNT - 1; name && i > 0; i--) {
        const char *own = files->is_gguf ? ignis__family_of((ignis_model_family)i)->architecture
                                         : ignis__family_of((ignis_model_family)i)->model_type;
        if (own && strcmp(name, own) == 0)
            files->family = (ignis_model_family)i;
    }
    if (files->family)
        return true;
    ignis__model_write_families(files, known, sizeof known);
    if (name)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, files->call, "'%s' has %s %s; known are %s", files->path, key,
                    ignis__name_write(name).text, known);
    else
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "'%s' has no text %s", files->path, key);
    return false;
}

IGNIS__PRIVATE bool ignis__model_open_folder(ignis__model_files *files)
{
    char *config = ignis__model_path(files->call, files->path, "config.json");
    char *index = ignis__model_path(files->call, files->path, "model.safetensors.index.json");
    char *generation = ignis__model_path(files->call, files->path, "generation_config.json");
    const ignis__config_item *type;
    static const char *const whole[] = {"model.safetensors"};
    int64_t size, time;
    bool ok = config && index && generation && ignis__config_open(files->call, config, true, &files->config) &&
              ignis__config_open(files->call, generation, false, &files->generation);
    if (ok) {
        type = ignis__config_find(&files->config, "model_type");
        ok = ignis__model_family_find(files, "model_type", type && type->kind == 't' ? type->text : NULL);
    }
    if (ok)
        ok = ignis__file_info(index, &size, &time) ? ignis__model_open_index(files, index)
                                                   : ignis__model_open_shards(files, whole, 1);
    ignis__free(config);
    ignis__free(index);
    ignis__free(generation);
    return ok;
}

#define IGNIS__PART_NAME "-00001-of-00002.gguf"

/*  Checks that the names and keys of a GGUF model in several files make this its first one. */
static bool ignis__model_check_first_part(ignis__model_files *files, int64_t number, int64_t count)
{
    char end[64];
    size_t size = strlen(files->path), length = sizeof IGNIS__PART_NAME - 1;
    if (count > 99999 || number < 0 || number >= count) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "'%s' has split.no %lld and split.count %lld; expected a number below the count, of at most 99999",
                    files->path, (long long)number, (long long)count);
        return false;
    }
    snprintf(end, sizeof end, "-%05d-of-%05d.gguf", (int)number + 1, (int)count);
    if (size < length || strcmp(files->path + size - length, end) != 0) {
        ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                    "'%s' is part %d of %d: its name has to end in %s, as the other parts are found by it", files->path,
                    (int)number + 1, (int)count, end);
        return false;
    }
    if (number == 0)
        return true;
    ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call,
                "'%s' is part %d of %d: a model is opened by its first part, whose name ends in -00001-of-%05d.gguf",
                files->path, (int)number + 1, (int)count, (int)count);
    return false;
}

/*  Opens one more part of a model in several GGUF files, and checks that it says so. Its descriptor is closed again. */
static bool ignis__model_open_part(ignis__model_files *files, int part, int count)
{
    ignis__gguf *file = &files->more_parts[part - 1];
    char *path = ignis__copy_string(files->path);
    int64_t number = 0, all = 1, size, time;
    char end[64];
    if (!path) {
        ignis__fail_host_memory(files->call, strlen(files->path) + 1);
        return false;
    }
    snprintf(end, sizeof end, "-%05d-of-%05d.gguf", part + 1, count);
    memcpy(path + strlen(path) - (sizeof IGNIS__PART_NAME - 1), end, sizeof IGNIS__PART_NAME - 1);
    files->paths[files->path_count++] = path;
    if (!ignis__file_info(path, &size, &time)) {
        ignis__fail(IGNIS_DIAG_STORAGE_IO, files->call, "'%s' is part 1 of %d, but part %d is missing: '%s'",
                    files->path, count, part + 1, path);
        return false;
    }
    if (!ignis__gguf_open(files->call, path, file))
        return false;
    files->more_count++;
    ignis__file_close(file->descriptor);
    file->descriptor = -1;
    if (ignis__gguf_find_int(file, "split.no", &number) == IGNIS__GGUF_BAD ||
        ignis__gguf_find_int(file, "split.count", &all) == IGNIS__GGUF_BAD)
        return false;
    if (number == part && all == count)
        return true;
    ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "'%s' says that it is part %lld of %lld; expected part %d of %d",
                path, (long long)number + 1, (long long)all, part + 1, count);
    return false;
}

/*  Opens the other files of a GGUF model, if it has several. *tensors: the number of tensors of all. */
static bool ignis__model_open_parts(ignis__model_files *files, int64_t *tensors)
{
    int64_t number = 0, count = 1, wanted;
    size_t size;
    int i;
    *tensors = files->gguf.tensor_count;
    if (ignis__gguf_find_int(&files->gguf, "split.no", &number) == IGNIS__GGUF_BAD ||
        ignis__gguf_find_int(&files->gguf, "split.count", &count) == IGNIS__GGUF_BAD)
        return false;
    if (count > 1 && !ignis__model_check_first_part(files, number, count))
        return false;
    count = count < 1 ? 1 : count;
    size = (size_t)count * (sizeof *files->paths + sizeof *files->more_parts);
    files->paths = (char **)ignis__alloc((size_t)count * sizeof *files->paths);
    files->more_parts = (ignis__gguf *)ignis__alloc((size_t)count * sizeof *files->more_parts);
    if (files->paths && files->more_parts && (files->paths[0] = ignis__copy_string(files->path)) != NULL)
        files->path_count = 1;
    if (!files->path_count) {
        ignis__fail_host_memory(files->call, size + strlen(files->path));
        return false;
    }
    for (i = 1; i < count; i++) {
        if (!ignis__model_open_part(files, i, (int)count))
            return false;
        *tensors += files->more_parts[i - 1].tensor_count;
    }
    wanted = *tensors;
    if (ignis__gguf_find_int(&files->gguf, "split.tensors.count", &wanted) == IGNIS__GGUF_BAD)
        return false;
    if (wanted == *tensors)
        return true;
    ignis__fail(IGNIS_DIAG_MODEL_CONFIG, files->call, "'%s' has split.tensors.count %lld; %d parts have %lld tensors",
                files->path, (long long)wanted, (int)count, (long long)*tensors);
    return false;
}

/*  Lists the tensors of one GGUF file. */
static void ignis__model_list_gguf(ignis__model_files *files, const ignis__gguf *file, int part)
{
    int64_t i;
    for (i = 0; i < file->tensor_count; i++) {
        const ignis__gguf_tensor *tensor = &file->tensors[i];
        ignis__model_source *source = &files->sources[files->source_count++];
        source->name = tensor->name;
        source->shape = tensor->shape;
        source->file = part;
        source->begin = tensor->begin;
        source->end = tensor->end;
        source->id = tensor->id;
        if (tensor->type < 0)
            continue;
        source->type = ignis__gguf_types[tensor->type].name;
        source->dtype = ignis__gguf_types[tensor->type].dtype;
        source->elements = ignis__gguf_types[tensor->type].elements;
        source->bytes = ignis__gguf_types[tensor->type].bytes;
        if (ignis__gguf_types[tensor->type].readable && !source->dtype)
            source->quant = ignis__gguf_types[tensor->type].id;
    }
}

IGNIS__PRIVATE bool ignis__model_open_gguf(ignis__model_files *files)
{
    const char *architecture = NULL;
    int64_t tensors;
    size_t size;
    int i;
    files->is_gguf = true;
    if (!ignis__gguf_open(files->call, files->path, &files->gguf)) {
        files->is_gguf = false;
        return false;
    }
    if (!ignis__model_open_parts(files, &tensors) ||
        ignis__gguf_find_string(&files->gguf, "general.architecture", &architecture, &size) == IGNIS__GGUF_BAD ||
        !ignis__model_family_find(files, "general.architecture", architecture) ||
        !ignis__model_alloc_sources(files, tensors))
        return false;
    ignis__model_list_gguf(files, &files->gguf, 0);
    for (i = 0; i < files->more_count; i++)
        ignis__model_list_gguf(files, &files->more_parts[i], i + 1);
    return ignis__model_sort_sources(files);
}

/*  Reads the bytes of a tensor of any of the files. */
IGNIS__PRIVATE bool ignis__model_read_source(const ignis__model_files *files, const ignis__model_source *source,
                                             void *out, int64_t size)
{
    const char *path = files->paths[source->file];
    int64_t length, got;
    int descriptor = ignis__file_open(path, &length);
    if (descriptor < 0)
        return ignis__file_fail(files->call, path, "opened");
    got = ignis__file_read_at(descriptor, source->begin, out, size);
    ignis__file_close(descriptor);
    return got == size || ignis__file_fail(files->call, path, "read");
}
