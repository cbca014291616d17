/*  file/metadata.c - ignis_save_with and ignis_file_metadata: texts in the header of a safetensors file

    Metadata is a JSON object of texts in the header of the file. The header was parsed by safetensors.c.
    May use: safetensors.c, save.c, load.c, base/json.c. Locks: none. */

#include "room.h"

/*  Checks the metadata of a call. */
IGNIS__COLD static bool ignis__metadata_check(const char *call, const ignis_metadata *metadata, int count)
{
    int i, k;
    if (count < 0)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc.metadata_count is %d, below 0", count);
    if (count > 0 && !ignis__check_not_null(call, "desc.metadata", metadata))
        return false;
    for (i = 0; i < count; i++) {
        const ignis_metadata *entry = &metadata[i];
        if (!entry->key || !entry->value)
            return ignis__fail_false(IGNIS_DIAG_NULL_ARGUMENT, call, "desc.metadata[%d].%s is null", i,
                                     entry->key ? "value" : "key");
        if (!ignis__utf8_valid(entry->key) || !ignis__utf8_valid(entry->value))
            return ignis__fail_false(IGNIS_DIAG_STORAGE_NAME, call, "desc.metadata[%d].%s is not well-formed UTF-8", i,
                                     ignis__utf8_valid(entry->key) ? "value" : "key");
        for (k = 0; k < i; k++)
            if (strcmp(metadata[k].key, entry->key) == 0)
                return ignis__fail_false(IGNIS_DIAG_STORAGE_NAME, call, "desc.metadata has the key %s twice",
                                         ignis__name_write(entry->key).text);
    }
    return true;
}

/*  Writes entries as a JSON object, and returns its length. A capacity of 0 only measures. */
IGNIS__COLD IGNIS__PRIVATE size_t ignis__metadata_write(const ignis_metadata *metadata, int count, char *out,
                                                        size_t capacity)
{
    ignis__string_writer text;
    char none[1];
    int i;
    ignis__string_begin(&text, out ? out : none, capacity);
    ignis__string_add(&text, "{");
    for (i = 0; i < count; i++) {
        if (i)
            ignis__string_add(&text, ",");
        ignis__json_write_string(&text, metadata[i].key);
        ignis__string_add(&text, ":");
        ignis__json_write_string(&text, metadata[i].value);
    }
    ignis__string_add(&text, "}");
    return text.length;
}

/*  Writes the text of a key. -1, and reported with keys that exist, if there is none. */
static int64_t ignis__metadata_find(const char *call, const ignis__load *load, const char *key, char *out,
                                    size_t capacity)
{
    const ignis__safetensors *file = &load->file;
    char known[512];
    ignis__string_writer text;
    int i;
    for (i = file->metadata_count - 1; i >= 0; i--)
        if (strcmp(file->metadata[i].key, key) == 0) {
            size_t length = strlen(file->metadata[i].value), kept = length;
            if (capacity) {
                if (length >= capacity)
                    kept = (size_t)ignis__utf8_cut(file->metadata[i].value, capacity - 1);
                memcpy(out, file->metadata[i].value, kept);
                out[kept] = 0;
            }
            return (int64_t)length;
        }
    ignis__string_begin(&text, known, sizeof known);
    for (i = 0; i < file->metadata_count && i < 5; i++)
        ignis__string_add(&text, "%s%s", i ? ", " : ": ", ignis__name_write(file->metadata[i].key).text);
    ignis__fail(IGNIS_DIAG_STORAGE_MISSING, call, "'%s' has no metadata %s; it has %d%s%s", load->path,
                ignis__name_write(key).text, file->metadata_count, known, file->metadata_count > 5 ? ", ..." : "");
    return -1;
}

IGNIS__COLD IGNIS_API int64_t ignis_file_metadata(const char *path, const char *key, char *out, size_t capacity)
{
    static const char call[] = "ignis_file_metadata";
    ignis__load load;
    int64_t length;
    if (!ignis__enter(call) || !ignis__check_not_null(call, "path", path) ||
        (capacity && !ignis__check_not_null(call, "out", out)) || !ignis__load_open(call, path, &load))
        return -1;
    length = key ? ignis__metadata_find(call, &load, key, out, capacity)
                 : (int64_t)ignis__metadata_write(load.file.metadata, load.file.metadata_count, out, capacity);
    ignis__load_close(&load);
    return length;
}

IGNIS__COLD IGNIS_API ignis_status ignis_save_with(const char *path, const char *const *names,
                                                   const ignis_tensor *tensors, int count, const ignis_save_desc *desc)
{
    static const char call[] = "ignis_save_with";
    ignis_save_desc options = IGNIS__ZERO;
    char *metadata = NULL;
    size_t size;
    ignis_status status;
    if (!ignis__enter(call))
        return ignis__failed();
    if (desc)
        options = *desc;
    if (!ignis__metadata_check(call, options.metadata, options.metadata_count))
        return ignis__failed();
    if (options.metadata_count) {
        size = ignis__metadata_write(options.metadata, options.metadata_count, NULL, 0) + 1;
        metadata = (char *)ignis__alloc_for(call, size);
        if (!metadata)
            return ignis__failed();
        ignis__metadata_write(options.metadata, options.metadata_count, metadata, size);
    }
    status = ignis__save(call, path, names, tensors, count, metadata, options.dtypes);
    ignis__free(metadata);
    return status;
}
