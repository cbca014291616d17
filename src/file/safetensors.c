/*  file/safetensors.c - the header of a safetensors file: parsed, checked, arranged, written

    Knows nothing of arrays or devices, so that tests and fuzzers run it alone.
    May use: base/json.c, base/utf8.c. Invariant: after a successful parse, every byte of the data belongs to
    exactly one tensor. */

#include "room.h"

IGNIS__PRIVATE void ignis__safetensors_close(ignis__safetensors *file)
{
    ignis__free(file->items);
    ignis__free(file->metadata);
    ignis__free(file->header);
    file->items = NULL;
    file->metadata = NULL;
    file->header = NULL;
    file->count = file->capacity = file->metadata_count = file->metadata_capacity = 0;
}

/*  Returns the bytes of a tensor. -1 if they do not fit 63 bits (counted without zeros among the sizes), or end
    inside a byte. */
IGNIS__PRIVATE int64_t ignis__file_tensor_bytes(int type, const ignis_shape *shape)
{
    int bits = ignis__file_dtypes[type].bits, i;
    int64_t product = bits >= 8 ? bits / 8 : bits;
    bool empty = false;
    for (i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] == 0)
            empty = true;
        else if (!ignis__multiply(product, shape->dim[i], &product))
            return -1;
    }
    if (empty)
        return 0;
    if (bits >= 8)
        return product;
    return product % 8 ? -1 : product / 8;
}

static void ignis__safetensors_shape(ignis__json *json, ignis_shape *shape)
{
    bool first = true;
    ignis__json_expect(json, '[');
    while (ignis__json_more(json, ']', &first)) {
        int64_t dim = ignis__json_count(json);
        if (shape->ndim < IGNIS_MAX_DIMS)
            shape->dim[shape->ndim++] = dim;
        else
            ignis__json_fail(json, "a shape has more than %d dimensions", IGNIS_MAX_DIMS);
    }
    if (shape->ndim == 0)
        shape->dim[shape->ndim++] = 1;
}

static int ignis__safetensors_type(ignis__json *json)
{
    size_t size;
    const char *name = ignis__json_string(json, &size);
    int type;
    for (type = 0; type < IGNIS__COUNT(ignis__file_dtypes); type++)
        if (strlen(ignis__file_dtypes[type].name) == size && memcmp(ignis__file_dtypes[type].name, name, size) == 0)
            return type;
    ignis__json_fail(json, "dtype is %s, which is unknown", ignis__name_write(name).text);
    return 0;
}

/*  Reads {"dtype": ..., "shape": ..., "data_offsets": ...} in any order. Other fields are ignored, as in the
    reference. */
static void ignis__safetensors_item(ignis__json *json, ignis__file_tensor *item)
{
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    bool seen[3] = {false, false, false}, first = true;
    int64_t bytes;
    size_t size;
    int field;
    ignis__json_expect(json, '{');
    while (ignis__json_more(json, '}', &first)) {
        const char *key = ignis__json_string(json, &size);
        for (field = 0; field < 3 && (strlen(fields[field]) != size || memcmp(fields[field], key, size) != 0); field++)
            ;
        if (field < 3 && seen[field])
            ignis__json_fail(json, "tensor %s has two fields %s", ignis__name_write(item->name).text, fields[field]);
        ignis__json_expect(json, ':');
        if (field == 3) {
            ignis__json_skip(json);
            continue;
        }
        seen[field] = true;
        if (field == 0) {
            item->type = ignis__safetensors_type(json);
        } else if (field == 1) {
            ignis__safetensors_shape(json, &item->shape);
        } else {
            ignis__json_expect(json, '[');
            item->begin = ignis__json_count(json);
            ignis__json_expect(json, ',');
            item->end = ignis__json_count(json);
            ignis__json_expect(json, ']');
        }
    }
    for (field = 0; field < 3; field++)
        if (!seen[field])
            ignis__json_fail(json, "tensor %s has no field %s", ignis__name_write(item->name).text, fields[field]);
    if (json->fault[0])
        return;
    bytes = ignis__file_tensor_bytes(item->type, &item->shape);
    if (bytes < 0)
        ignis__json_fail(json, "tensor %s, %s %s, is not a whole number of bytes that fits 63 bits",
                         ignis__name_write(item->name).text, ignis__file_dtypes[item->type].name,
                         ignis__shape_write(&item->shape).text);
    else if (item->end < item->begin || item->end - item->begin != bytes)
        ignis__json_fail(json, "tensor %s, %s %s, has %lld bytes, but its data_offsets are %lld and %lld",
                         ignis__name_write(item->name).text, ignis__file_dtypes[item->type].name,
                         ignis__shape_write(&item->shape).text, (long long)bytes, (long long)item->begin,
                         (long long)item->end);
}

/*  Makes room for one more element of a list that is full. False if out of memory. */
static bool ignis__safetensors_grow(void **list, int count, int *capacity, size_t size)
{
    int wanted = *capacity ? *capacity * 2 : 64;
    void *grown;
    if (count < *capacity)
        return true;
    grown = ignis__alloc((size_t)wanted * size);
    if (!grown)
        return false;
    if (count)
        memcpy(grown, *list, (size_t)count * size);
    ignis__free(*list);
    *list = grown;
    *capacity = wanted;
    return true;
}

/*  Reads {"key": "text", ...}. False if out of memory. */
static bool ignis__safetensors_metadata(ignis__safetensors *file, ignis__json *json)
{
    bool first = true;
    size_t size;
    ignis__json_expect(json, '{');
    while (ignis__json_more(json, '}', &first)) {
        void *list = file->metadata;
        ignis_metadata *entry;
        if (!ignis__safetensors_grow(&list, file->metadata_count, &file->metadata_capacity, sizeof *entry))
            return false;
        file->metadata = (ignis_metadata *)list;
        entry = &file->metadata[file->metadata_count++];
        entry->key = ignis__json_string(json, &size);
        ignis__json_expect(json, ':');
        entry->value = ignis__json_string(json, &size);
    }
    return true;
}

/*  Adds one more tensor. NULL if out of memory. */
static ignis__file_tensor *ignis__safetensors_add(ignis__safetensors *file)
{
    void *list = file->items;
    bool ok = ignis__safetensors_grow(&list, file->count, &file->capacity, sizeof *file->items);
    file->items = (ignis__file_tensor *)list;
    return ok ? &file->items[file->count++] : NULL;
}

IGNIS__PRIVATE int ignis__file_tensor_by_name(const void *a, const void *b)
{
    return strcmp(((const ignis__file_tensor *)a)->name, ((const ignis__file_tensor *)b)->name);
}

static int ignis__file_tensor_by_offset(const void *a, const void *b)
{
    const ignis__file_tensor *one = (const ignis__file_tensor *)a, *other = (const ignis__file_tensor *)b;
    if (one->begin != other->begin)
        return one->begin < other->begin ? -1 : 1;
    if (one->end != other->end)
        return one->end < other->end ? -1 : 1;
    return strcmp(one->name, other->name);
}

static int ignis__file_tensor_by_type(const void *a, const void *b)
{
    const ignis__file_tensor *one = (const ignis__file_tensor *)a, *other = (const ignis__file_tensor *)b;
    return one->type != other->type ? other->type - one->type : strcmp(one->name, other->name);
}

IGNIS__PRIVATE void ignis__file_tensor_sort(ignis__file_tensor *items, int count,
                                            int (*order)(const void *, const void *))
{
    if (count > 1)
        qsort(items, (size_t)count, sizeof *items, order);
}

/*  Returns a name that two neighbours have, NULL if there is none. */
IGNIS__PRIVATE const char *ignis__file_tensor_duplicate(const ignis__file_tensor *items, int count)
{
    int i;
    for (i = 1; i < count; i++)
        if (strcmp(items[i - 1].name, items[i].name) == 0)
            return items[i].name;
    return NULL;
}

/*  Checks that every byte of the data belongs to exactly one tensor. Sorts by offset. */
static bool ignis__safetensors_covered(ignis__safetensors *file, int64_t data_size)
{
    int64_t end = 0;
    int i;
    ignis__file_tensor_sort(file->items, file->count, ignis__file_tensor_by_offset);
    for (i = 0; i < file->count; i++) {
        const ignis__file_tensor *item = &file->items[i];
        if (item->begin != end) {
            snprintf(file->fault, sizeof file->fault,
                     "the data of tensor %s begins at %lld, %s the data before it ends, at %lld",
                     ignis__name_write(item->name).text, (long long)item->begin, item->begin < end ? "before" : "after",
                     (long long)end);
            return false;
        }
        end = item->end;
    }
    if (end != data_size)
        snprintf(file->fault, sizeof file->fault,
                 "its tensors have %lld bytes, but the file has %lld bytes after its header", (long long)end,
                 (long long)data_size);
    return end == data_size;
}

/*  Reads the whole header. False after a fault, or if out of memory. */
static bool ignis__safetensors_header(ignis__safetensors *file, ignis__json *json, bool *no_memory)
{
    bool first = true, metadata = false;
    size_t size;
    if (json->at == json->end || *json->at != '{')
        ignis__json_fail(json, "a { is missing at the beginning");
    else
        json->at++;
    while (ignis__json_more(json, '}', &first)) {
        const char *name = ignis__json_string(json, &size);
        ignis__json_expect(json, ':');
        if (strcmp(name, "__metadata__") == 0) {
            if (metadata)
                ignis__json_fail(json, "__metadata__ comes twice");
            metadata = true;
            *no_memory = !ignis__safetensors_metadata(file, json);
            if (*no_memory)
                return false;
        } else {
            ignis__file_tensor *item = ignis__safetensors_add(file);
            *no_memory = item == NULL;
            if (!item)
                return false;
            if (strlen(name) != size)
                ignis__json_fail(json, "the name %s contains a character 0", ignis__name_write(name).text);
            item->name = name;
            ignis__safetensors_item(json, item);
        }
    }
    if (!json->fault[0] && (ignis__json_peek(json), json->at != json->end))
        ignis__json_fail(json, "something follows the end of the JSON text");
    return !json->fault[0];
}

/*  Returns the length of the header, from the first 8 bytes of a file. */
IGNIS__COLD IGNIS__PRIVATE uint64_t ignis__safetensors_length(const unsigned char *bytes, int64_t size)
{
    uint64_t length = 0;
    int i;
    for (i = 0; i < 8 && i < size; i++)
        length |= (uint64_t)bytes[i] << 8 * i;
    return length;
}

/*  Reads the header of a file of `size` bytes, and checks everything except values: `bytes` need not have the data.
    Items are sorted by offset. ignis__safetensors_close frees them, whatever the result: NONE, HOST_MEMORY, or
    STORAGE_FORMAT with file->fault. */
IGNIS__COLD IGNIS__PRIVATE ignis_diagnostic ignis__safetensors_parse(ignis__safetensors *file,
                                                                     const unsigned char *bytes, int64_t size)
{
    ignis__json json;
    uint64_t length = ignis__safetensors_length(bytes, size);
    const char *twice;
    bool no_memory = false;
    memset(file, 0, sizeof *file);
    if (size < 8) {
        snprintf(file->fault, sizeof file->fault, "it has %lld bytes, and the length of its header would be 8",
                 (long long)size);
    } else if (length > IGNIS__HEADER_LIMIT) {
        snprintf(file->fault, sizeof file->fault, "its header would have %llu bytes, above %d",
                 (unsigned long long)length, IGNIS__HEADER_LIMIT);
    } else if ((int64_t)length > size - 8) {
        snprintf(file->fault, sizeof file->fault,
                 "its header would have %llu bytes, but %lld are left of the file: it is truncated",
                 (unsigned long long)length, (long long)(size - 8));
    } else {
        file->data = 8 + (int64_t)length;
        file->header = (char *)ignis__alloc(length ? (size_t)length : 1);
        if (!file->header)
            return IGNIS_DIAG_HOST_MEMORY;
        memcpy(file->header, bytes + 8, (size_t)length);
        memset(&json, 0, sizeof json);
        json.start = json.at = file->header;
        json.end = file->header + length;
        if (!ignis__safetensors_header(file, &json, &no_memory)) {
            memcpy(file->fault, json.fault, sizeof json.fault);
            return no_memory ? IGNIS_DIAG_HOST_MEMORY : IGNIS_DIAG_STORAGE_FORMAT;
        }
        ignis__file_tensor_sort(file->items, file->count, ignis__file_tensor_by_name);
        twice = ignis__file_tensor_duplicate(file->items, file->count);
        if (twice)
            snprintf(file->fault, sizeof file->fault, "it has two tensors %s", ignis__name_write(twice).text);
        else if (ignis__safetensors_covered(file, size - file->data))
            return IGNIS_DIAG_NONE;
    }
    return IGNIS_DIAG_STORAGE_FORMAT;
}

/* --- the header: written ------------------------------------------------------------- */

/*  Writes a JSON string. Bytes that are not UTF-8, as a path may have, become '?'. */
IGNIS__PRIVATE void ignis__json_write_string(ignis__string_writer *text, const char *string)
{
    static const char plain[] = "\"\\\b\f\n\r\t", escaped[] = "\"\\bfnrt";
    const char *known;
    size_t left = strlen(string);
    int length;
    ignis__string_add(text, "\"");
    for (; left > 0; string += length, left -= (size_t)length) {
        length = ignis__utf8_length(string, left);
        if ((known = strchr(plain, *string)) != NULL)
            ignis__string_add(text, "\\%c", escaped[known - plain]);
        else if ((unsigned char)*string < ' ')
            ignis__string_add(text, "\\u%04x", (unsigned)(unsigned char)*string);
        else
            ignis__string_add(text, "%.*s", length ? length : 1, length ? string : "?");
        length = length ? length : 1;
    }
    ignis__string_add(text, "\"");
}

/*  Assigns every item its place, as the reference does: by alignment, then by name. False if the total does not fit
    63 bits. */
IGNIS__PRIVATE bool ignis__safetensors_arrange(ignis__file_tensor *items, int count)
{
    int64_t end = 0, bytes;
    int i;
    ignis__file_tensor_sort(items, count, ignis__file_tensor_by_type);
    for (i = 0; i < count; i++) {
        bytes = ignis__file_tensor_bytes(items[i].type, &items[i].shape);
        if (bytes > INT64_MAX - end)
            return false;
        items[i].begin = end;
        items[i].end = end += bytes;
    }
    return true;
}

/*  Writes the header of arranged items, byte for byte that of the reference, and returns its size: a multiple of 8,
    so the data is aligned. metadata: a JSON object, or NULL. A capacity of 0 only measures. */
IGNIS__COLD IGNIS__PRIVATE size_t ignis__safetensors_write(const ignis__file_tensor *items, int count,
                                                           const char *metadata, char *header, size_t capacity)
{
    ignis__string_writer text;
    int i, k;
    ignis__string_begin(&text, header, capacity);
    ignis__string_add(&text, metadata ? "{\"__metadata__\":%s" : "{", metadata);
    for (i = 0; i < count; i++) {
        if (i || metadata)
            ignis__string_add(&text, ",");
        ignis__json_write_string(&text, items[i].name);
        ignis__string_add(&text, ":{\"dtype\":\"%s\",\"shape\":[", ignis__file_dtypes[items[i].type].name);
        for (k = 0; k < items[i].shape.ndim; k++)
            ignis__string_add(&text, "%s%lld", k ? "," : "", (long long)items[i].shape.dim[k]);
        ignis__string_add(&text, "],\"data_offsets\":[%lld,%lld]}", (long long)items[i].begin, (long long)items[i].end);
    }
    ignis__string_add(&text, "}");
    while (text.length % 8)
        ignis__string_add(&text, " ");
    return text.length;
}
