/*  >>training.index - the names of files, and the index, which makes them one saved training

    The index is that of Hugging Face's sharded checkpoints, with two more numbers: which save the files are of, and
    how many ranks wrote them. Names of files have both, so files of two saves never have one name.
    Uses: the room file, base/json.c. The index is untrusted. */

#include "room.h"

IGNIS__PRIVATE ignis__training_name ignis__training_file_name(int kind, uint64_t id, int rank, int ranks)
{
    static const char *const kinds[] = {"model", "training"};
    ignis__training_name name;
    snprintf(name.text, sizeof name.text, "%s-%016llx-%05d-of-%05d.safetensors", kinds[kind], (unsigned long long)id,
             rank + 1, ranks);
    return name;
}

/*  Returns folder/name, freed with ignis__free. NULL, and reported, without memory. */
IGNIS__PRIVATE char *ignis__training_path(const char *call, const char *folder, const char *name)
{
    const size_t size = strlen(folder) + strlen(name) + 2;
    char *path = (char *)ignis__alloc_for(call, size);
    if (path)
        snprintf(path, size, "%s%s%s", folder, *folder && folder[strlen(folder) - 1] != '/' ? "/" : "", name);
    return path;
}

/* --- written --- */

/*  Writes the text of the index, and returns its length. A capacity of 0 only measures. */
static size_t ignis__training_index_print(const ignis__training *training, char *out, size_t capacity)
{
    const ignis__training_entries *entries = &training->save.entries;
    const char *comma = "";
    ignis__string_writer text;
    int64_t total = 0;
    int i;
    for (i = 0; i < entries->count; i++)
        if (entries->list[i].is_model)
            total += entries->list[i].numel * ignis__dtypes[entries->list[i].dtype].size;
    ignis__string_begin(&text, out, capacity);
    ignis__string_add(&text,
                      "{\n  \"metadata\": {\"total_size\": %lld, \"ignis_save\": \"%016llx\", \"ignis_ranks\": %d},\n"
                      "  \"weight_map\": {",
                      (long long)total, (unsigned long long)training->save.id, training->ranks.size);
    for (i = 0; i < entries->count; i++) {
        const ignis__training_entry *entry = &entries->list[i];
        if (!entry->is_model)
            continue;
        ignis__string_add(&text, "%s\n    ", comma);
        ignis__json_write_string(&text, entry->name);
        ignis__string_add(
            &text, ": \"%s\"",
            ignis__training_file_name(IGNIS__TRAINING_MODEL, training->save.id, entry->owner, training->ranks.size)
                .text);
        comma = ",";
    }
    ignis__string_add(&text, "\n  }\n}\n");
    return text.length;
}

/*  A folder that is cleaned: files of other saves than `id` are removed. */
typedef struct ignis__training_sweep {
    const char *folder;
    uint64_t id;
} ignis__training_sweep;

/*  Checks for a name of a file of a save, complete or not, and reads the number of the save. */
static bool ignis__training_name_read(const char *name, uint64_t *id)
{
    static const char form[] = "hhhhhhhhhhhhhhhh-ddddd-of-ddddd", tail[] = ".safetensors", part[] = ".ignis-part";
    const char *at = strncmp(name, "model-", 6) == 0 ? name + 6 : strncmp(name, "training-", 9) == 0 ? name + 9 : "";
    const size_t size = strlen(at);
    size_t i;
    *id = 0;
    for (i = 0; form[i]; i++) {
        const bool is_digit = at[i] >= '0' && at[i] <= '9', is_letter = at[i] >= 'a' && at[i] <= 'f';
        if (form[i] == 'h' ? !is_digit && !is_letter : form[i] == 'd' ? !is_digit : at[i] != form[i])
            return false;
        if (form[i] == 'h')
            *id = *id << 4 | (uint64_t)(is_digit ? at[i] - '0' : at[i] - 'a' + 10);
    }
    if (strncmp(at + i, tail, sizeof tail - 1) != 0)
        return false;
    i += sizeof tail - 1;
    return !at[i] || (at[i] == '.' && size > i + sizeof part && strcmp(at + size - (sizeof part - 1), part) == 0);
}

/*  Removes a file of another save. One that cannot be removed stays. */
static void ignis__training_sweep_file(void *context, const char *name)
{
    const ignis__training_sweep *sweep = (const ignis__training_sweep *)context;
    static const char index[] = IGNIS__TRAINING_INDEX ".";
    char path[2048];
    uint64_t id;
    const bool is_index = sweep->id == 0 && strncmp(name, index, sizeof index - 1) == 0 && strstr(name, ".ignis-part");
    if (!is_index && (sweep->id == 0 || !ignis__training_name_read(name, &id) || id == sweep->id))
        return;
    if (snprintf(path, sizeof path, "%s/%s", sweep->folder, name) < (int)sizeof path)
        (void)ignis__file_remove(path);
}

/*  Removes the files of other saves than `id`; 0: indexes that were cut short, while no rank writes one. */
IGNIS__PRIVATE void ignis__training_sweep_folder(const char *folder, uint64_t id)
{
    ignis__training_sweep sweep;
    sweep.folder = folder;
    sweep.id = id;
    (void)ignis__folder_list(folder, ignis__training_sweep_file, &sweep);
}

/*  Writes the index, which makes the files of a save the training of the folder, and removes those of other saves.
    Several ranks may do it at once: they write the same. */
IGNIS__PRIVATE bool ignis__training_index_write(const char *call, const ignis__training *training)
{
    const size_t size = ignis__training_index_print(training, NULL, 0) + 1;
    char *path = ignis__training_path(call, training->save.folder, IGNIS__TRAINING_INDEX),
         *text = path ? (char *)ignis__alloc_for(call, size) : NULL;
    ignis__replacement to;
    bool ok = text && ignis__replace_begin(&to, call, path);
    if (ok) {
        ignis__training_index_print(training, text, size);
        ok = ignis__replace_end(&to, ignis__save_write(call, path, to.file, text, (int64_t)size - 1));
    }
    ignis__free(text);
    ignis__free(path);
    if (ok)
        ignis__training_sweep_folder(training->save.folder, training->save.id);
    return ok;
}

/* --- read --- */

IGNIS__PRIVATE void ignis__training_index_close(ignis__training_index *index)
{
    ignis__free(index->text);
    ignis__free(index->places);
    index->text = NULL;
    index->places = NULL;
    index->count = index->capacity = 0;
}

static int ignis__training_place_order(const void *a, const void *b)
{
    return strcmp(((const ignis__training_place *)a)->name, ((const ignis__training_place *)b)->name);
}

/*  Finds the place of a tensor of the model. NULL if there is none. */
IGNIS__PRIVATE const ignis__training_place *ignis__training_index_find(const ignis__training_index *index,
                                                                       const char *name)
{
    ignis__training_place key = IGNIS__ZERO;
    key.name = name;
    return index->count ? (const ignis__training_place *)bsearch(&key, index->places, (size_t)index->count, sizeof key,
                                                                 ignis__training_place_order)
                        : NULL;
}

/*  Adds a place. False if out of memory. */
static bool ignis__training_index_add(ignis__training_index *index, const char *name, const char *file)
{
    ignis__training_place *places;
    if (index->count == index->capacity) {
        const int capacity = index->capacity ? 2 * index->capacity : 64;
        places = (ignis__training_place *)ignis__alloc(sizeof *places * (size_t)capacity);
        if (!places)
            return false;
        if (index->count)
            memcpy(places, index->places, sizeof *places * (size_t)index->count);
        ignis__free(index->places);
        index->places = places;
        index->capacity = capacity;
    }
    index->places[index->count].name = name;
    index->places[index->count].file = file;
    index->places[index->count++].part = 0;
    return true;
}

/*  Reads a string without a character 0. "" after a fault. */
static const char *ignis__training_index_string(ignis__json *json)
{
    size_t size;
    const char *string = ignis__json_string(json, &size);
    if (!json->fault[0] && strlen(string) != size)
        ignis__json_fail(json, "the text %s contains a character 0", ignis__name_write(string).text);
    return string;
}

static void ignis__training_index_metadata(ignis__json *json, ignis__training_index *index)
{
    bool first = true;
    int i;
    ignis__json_expect(json, '{');
    while (ignis__json_more(json, '}', &first)) {
        const char *key = ignis__training_index_string(json);
        ignis__json_expect(json, ':');
        if (strcmp(key, "ignis_ranks") == 0) {
            int64_t ranks = ignis__json_count(json);
            if (!json->fault[0] && (ranks < 1 || ranks > IGNIS__TRAINING_RANKS))
                ignis__json_fail(json, "ignis_ranks is %lld; expected 1 to %d", (long long)ranks,
                                 IGNIS__TRAINING_RANKS);
            index->ranks = (int)ranks;
        } else if (strcmp(key, "ignis_save") == 0) {
            const char *digits = ignis__training_index_string(json);
            index->id = 0;
            for (i = 0; digits[i] && strchr("0123456789abcdef", digits[i]) && i < 16; i++)
                index->id = index->id << 4 | (uint64_t)(strchr("0123456789abcdef", digits[i]) - "0123456789abcdef");
            if (!json->fault[0] && (i != 16 || digits[i]))
                ignis__json_fail(json, "ignis_save is %s; expected 16 digits", ignis__name_write(digits).text);
        } else if (!json->fault[0]) {
            ignis__json_skip(json);
        }
    }
}

/*  Checks that each tensor is named once, and is in a file of this save. */
static bool ignis__training_index_check(ignis__training_index *index)
{
    int i;
    if (!index->ranks) {
        snprintf(index->fault, sizeof index->fault, "its metadata has no ignis_ranks, so it is not a saved training");
        return false;
    }
    if (index->count > 1)
        qsort(index->places, (size_t)index->count, sizeof *index->places, ignis__training_place_order);
    for (i = 0; i < index->count; i++) {
        ignis__training_place *place = &index->places[i];
        const size_t before = sizeof "model-" - 1 + 16 + 1;
        if (i && strcmp(place->name, place[-1].name) == 0) {
            snprintf(index->fault, sizeof index->fault, "it has tensor %s twice, in '%s' and '%s'",
                     ignis__name_write(place->name).text, ignis__name_write(place[-1].file).text,
                     ignis__name_write(place->file).text);
            return false;
        }
        place->part = strlen(place->file) > before ? atoi(place->file + before) - 1 : -1;
        if (place->part < 0 || place->part >= index->ranks ||
            strcmp(place->file,
                   ignis__training_file_name(IGNIS__TRAINING_MODEL, index->id, place->part, index->ranks).text) != 0) {
            snprintf(index->fault, sizeof index->fault, "it has tensor %s in %s; expected a file '%s' to '%05d-of-...'",
                     ignis__name_write(place->name).text, ignis__name_write(place->file).text,
                     ignis__training_file_name(IGNIS__TRAINING_MODEL, index->id, 0, index->ranks).text, index->ranks);
            return false;
        }
    }
    return true;
}

/*  Reads the text of an index. On success and on failure the caller closes it. Other diagnostics than
    IGNIS_DIAG_HOST_MEMORY have their reason in index->fault. */
IGNIS__PRIVATE ignis_diagnostic ignis__training_index_parse(ignis__training_index *index, const char *text, size_t size)
{
    ignis__json json;
    bool first = true, inner;
    memset(index, 0, sizeof *index);
    memset(&json, 0, sizeof json);
    index->text = (char *)ignis__alloc(size + 1);
    if (!index->text)
        return IGNIS_DIAG_HOST_MEMORY;
    memcpy(index->text, text, size);
    json.what = "the file";
    json.start = json.at = index->text;
    json.end = index->text + size;
    ignis__json_expect(&json, '{');
    while (ignis__json_more(&json, '}', &first)) {
        const char *key = ignis__training_index_string(&json);
        ignis__json_expect(&json, ':');
        if (strcmp(key, "metadata") == 0) {
            ignis__training_index_metadata(&json, index);
        } else if (strcmp(key, "weight_map") == 0) {
            inner = true;
            ignis__json_expect(&json, '{');
            while (ignis__json_more(&json, '}', &inner)) {
                const char *name = ignis__training_index_string(&json);
                ignis__json_expect(&json, ':');
                if (!ignis__training_index_add(index, name, ignis__training_index_string(&json)))
                    return IGNIS_DIAG_HOST_MEMORY;
            }
        } else if (!json.fault[0]) {
            ignis__json_skip(&json);
        }
    }
    if (!json.fault[0] && (ignis__json_peek(&json), json.at != json.end))
        ignis__json_fail(&json, "something follows the end of the JSON text");
    if (json.fault[0])
        memcpy(index->fault, json.fault, sizeof json.fault);
    return !json.fault[0] && ignis__training_index_check(index) ? IGNIS_DIAG_NONE : IGNIS_DIAG_STORAGE_FORMAT;
}
