/* --- the header: read ---------------------------------------------------------------------------------------------- */

/*  What is in a file. */
typedef struct ignis__safetensors {
    char *header; /* a copy; the names are in it */
    ignis__stored *items;
    int count, capacity;
    int64_t data;    /* where the data begins in the file */
    char fault[400]; /* why it is no safetensors file */
} ignis__safetensors;

static void ignis__safetensors_close(ignis__safetensors *file)
{
    ignis__free(file->items);
    ignis__free(file->header);
    file->items = NULL;
    file->header = NULL;
    file->count = file->capacity = 0;
}

/*  Bytes of a tensor; -1: they do not fit 63 bits, even without zeros among the sizes, or end inside a byte. */
static int64_t ignis__stored_bytes(int type, const ignis_shape *shape)
{
    int bits = ignis__stored_types[type].bits, i;
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
    for (type = 0; type < IGNIS__COUNT(ignis__stored_types); type++)
        if (strlen(ignis__stored_types[type].name) == size && memcmp(ignis__stored_types[type].name, name, size) == 0)
            return type;
    ignis__json_fail(json, "there is no dtype %s", ignis__name_write(name).text);
    return 0;
}

/*  {"dtype": ..., "shape": ..., "data_offsets": ...} in any order. Other fields mean nothing to the reference, either. */
static void ignis__safetensors_item(ignis__json *json, ignis__stored *item)
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
    bytes = ignis__stored_bytes(item->type, &item->shape);
    if (bytes < 0)
        ignis__json_fail(json, "tensor %s, %s %s, is not a whole number of bytes that fits 63 bits", ignis__name_write(item->name).text,
                         ignis__stored_types[item->type].name, ignis__shape_write(&item->shape).text);
    else if (item->end < item->begin || item->end - item->begin != bytes)
        ignis__json_fail(json, "tensor %s, %s %s, has %lld bytes, but its data_offsets are %lld and %lld",
                         ignis__name_write(item->name).text, ignis__stored_types[item->type].name, ignis__shape_write(&item->shape).text,
                         (long long)bytes, (long long)item->begin, (long long)item->end);
}

/*  {"key": "text", ...}: checked, and of no other use to Ignis. */
static void ignis__safetensors_metadata(ignis__json *json)
{
    bool first = true;
    size_t size;
    ignis__json_expect(json, '{');
    while (ignis__json_more(json, '}', &first)) {
        ignis__json_string(json, &size);
        ignis__json_expect(json, ':');
        ignis__json_string(json, &size);
    }
}

/*  Room for one more tensor; null: no memory. */
static ignis__stored *ignis__safetensors_add(ignis__safetensors *file)
{
    if (file->count == file->capacity) {
        int capacity = file->capacity ? file->capacity * 2 : 64;
        ignis__stored *items = (ignis__stored *)ignis__alloc((size_t)capacity * sizeof *items);
        if (!items)
            return NULL;
        if (file->count)
            memcpy(items, file->items, (size_t)file->count * sizeof *items);
        ignis__free(file->items);
        file->items = items;
        file->capacity = capacity;
    }
    return &file->items[file->count++];
}

static int ignis__stored_by_name(const void *a, const void *b)
{
    return strcmp(((const ignis__stored *)a)->name, ((const ignis__stored *)b)->name);
}

static int ignis__stored_by_offset(const void *a, const void *b)
{
    const ignis__stored *one = (const ignis__stored *)a, *other = (const ignis__stored *)b;
    if (one->begin != other->begin)
        return one->begin < other->begin ? -1 : 1;
    if (one->end != other->end)
        return one->end < other->end ? -1 : 1;
    return strcmp(one->name, other->name);
}

static int ignis__stored_by_type(const void *a, const void *b)
{
    const ignis__stored *one = (const ignis__stored *)a, *other = (const ignis__stored *)b;
    return one->type != other->type ? other->type - one->type : strcmp(one->name, other->name);
}

static void ignis__stored_sort(ignis__stored *items, int count, int (*order)(const void *, const void *))
{
    if (count > 1)
        qsort(items, (size_t)count, sizeof *items, order);
}

/*  A name that two neighbours have; null for none. */
static const char *ignis__stored_twice(const ignis__stored *items, int count)
{
    int i;
    for (i = 1; i < count; i++)
        if (strcmp(items[i - 1].name, items[i].name) == 0)
            return items[i].name;
    return NULL;
}

/*  Every byte of the data belongs to one tensor. Sorts by offset. */
static bool ignis__safetensors_covered(ignis__safetensors *file, int64_t data_size)
{
    int64_t end = 0;
    int i;
    ignis__stored_sort(file->items, file->count, ignis__stored_by_offset);
    for (i = 0; i < file->count; i++) {
        const ignis__stored *item = &file->items[i];
        if (item->begin != end) {
            snprintf(file->fault, sizeof file->fault, "the data of tensor %s begins at %lld, %s the data before it ends, at %lld",
                     ignis__name_write(item->name).text, (long long)item->begin, item->begin < end ? "before" : "after", (long long)end);
            return false;
        }
        end = item->end;
    }
    if (end != data_size)
        snprintf(file->fault, sizeof file->fault, "its tensors have %lld bytes, but the file has %lld bytes behind its header",
                 (long long)end, (long long)data_size);
    return end == data_size;
}

/*  The whole header; false after a fault or when memory has run out. */
static bool ignis__safetensors_header(ignis__safetensors *file, ignis__json *json, bool *no_memory)
{
    bool first = true, metadata = false;
    size_t size;
    if (json->at == json->end || *json->at != '{')
        ignis__json_fail(json, "there is no { to begin with");
    else
        json->at++;
    while (ignis__json_more(json, '}', &first)) {
        const char *name = ignis__json_string(json, &size);
        ignis__json_expect(json, ':');
        if (strcmp(name, "__metadata__") == 0) {
            if (metadata)
                ignis__json_fail(json, "there is a second __metadata__");
            metadata = true;
            ignis__safetensors_metadata(json);
        } else {
            ignis__stored *item = ignis__safetensors_add(file);
            *no_memory = item == NULL;
            if (!item)
                return false;
            if (strlen(name) != size)
                ignis__json_fail(json, "the name %s goes on behind a character 0", ignis__name_write(name).text);
            item->name = name;
            ignis__safetensors_item(json, item);
        }
    }
    if (!json->fault[0] && (ignis__json_peek(json), json->at != json->end))
        ignis__json_fail(json, "something follows the end of the JSON text");
    return !json->fault[0];
}

/*  The length of the header, which the first 8 bytes of a file say. */
IGNIS__COLD static uint64_t ignis__safetensors_length(const unsigned char *bytes, int64_t size)
{
    uint64_t length = 0;
    int i;
    for (i = 0; i < 8 && i < size; i++)
        length |= (uint64_t)bytes[i] << 8 * i;
    return length;
}

/*  Reads a file of `size` bytes, and checks all but values, which `bytes` need not have. Items are sorted by offset, and ignis__safetensors_close
    frees them, whatever the result: NONE, HOST_MEMORY, or STORAGE_FORMAT with file->fault. */
IGNIS__COLD static ignis_diagnostic ignis__safetensors_parse(ignis__safetensors *file, const unsigned char *bytes, int64_t size)
{
    ignis__json json;
    uint64_t length = ignis__safetensors_length(bytes, size);
    const char *twice;
    bool no_memory = false;
    memset(file, 0, sizeof *file);
    if (size < 8) {
        snprintf(file->fault, sizeof file->fault, "it has %lld bytes, and the length of its header would be 8", (long long)size);
    } else if (length > IGNIS__HEADER_LIMIT) {
        snprintf(file->fault, sizeof file->fault, "its header would have %llu bytes, above %d", (unsigned long long)length,
                 IGNIS__HEADER_LIMIT);
    } else if ((int64_t)length > size - 8) {
        snprintf(file->fault, sizeof file->fault, "its header would have %llu bytes, but %lld are left of the file: it is truncated",
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
        ignis__stored_sort(file->items, file->count, ignis__stored_by_name);
        twice = ignis__stored_twice(file->items, file->count);
        if (twice)
            snprintf(file->fault, sizeof file->fault, "it has two tensors %s", ignis__name_write(twice).text);
        else if (ignis__safetensors_covered(file, size - file->data))
            return IGNIS_DIAG_NONE;
    }
    return IGNIS_DIAG_STORAGE_FORMAT;
}

/* --- the header: written --------------------------------------------------------------------------------------------- */

/*  A string of JSON. Bytes that are no UTF-8, as a path may have, become '?'. */
static void ignis__json_write_string(ignis__text *text, const char *string)
{
    static const char plain[] = "\"\\\b\f\n\r\t", escaped[] = "\"\\bfnrt";
    const char *known;
    size_t left = strlen(string);
    int length;
    ignis__text_add(text, "\"");
    for (; left > 0; string += length, left -= (size_t)length) {
        length = ignis__utf8_length(string, left);
        if ((known = strchr(plain, *string)) != NULL)
            ignis__text_add(text, "\\%c", escaped[known - plain]);
        else if ((unsigned char)*string < ' ')
            ignis__text_add(text, "\\u%04x", (unsigned)(unsigned char)*string);
        else
            ignis__text_add(text, "%.*s", length ? length : 1, length ? string : "?");
        length = length ? length : 1;
    }
    ignis__text_add(text, "\"");
}

/*  Gives every item its place, as the reference does: by alignment, then by name. False: they do not fit 63 bits together. */
static bool ignis__safetensors_arrange(ignis__stored *items, int count)
{
    int64_t end = 0, bytes;
    int i;
    ignis__stored_sort(items, count, ignis__stored_by_type);
    for (i = 0; i < count; i++) {
        bytes = ignis__stored_bytes(items[i].type, &items[i].shape);
        if (bytes > INT64_MAX - end)
            return false;
        items[i].begin = end;
        items[i].end = end += bytes;
    }
    return true;
}

/*  Writes the header of arranged items, letter by letter that of the reference, and returns its size: a multiple of 8, so the data is
    aligned. metadata: an object of JSON, or null. A capacity of 0 only measures. */
IGNIS__COLD static size_t ignis__safetensors_write(const ignis__stored *items, int count, const char *metadata, char *header,
                                                   size_t capacity)
{
    ignis__text text;
    int i, k;
    ignis__text_begin(&text, header, capacity);
    ignis__text_add(&text, metadata ? "{\"__metadata__\":%s" : "{", metadata);
    for (i = 0; i < count; i++) {
        if (i || metadata)
            ignis__text_add(&text, ",");
        ignis__json_write_string(&text, items[i].name);
        ignis__text_add(&text, ":{\"dtype\":\"%s\",\"shape\":[", ignis__stored_types[items[i].type].name);
        for (k = 0; k < items[i].shape.ndim; k++)
            ignis__text_add(&text, "%s%lld", k ? "," : "", (long long)items[i].shape.dim[k]);
        ignis__text_add(&text, "],\"data_offsets\":[%lld,%lld]}", (long long)items[i].begin, (long long)items[i].end);
    }
    ignis__text_add(&text, "}");
    while (text.length % 8)
        ignis__text_add(&text, " ");
    return text.length;
}

/* --- arrays that are lent to a call ---------------------------------------------------------------------------- */

/*  One tensor of a call that saves or loads. */
typedef struct ignis__lent {
    ignis__array *array; /* held */
    ignis_tensor made;   /* by this call, until it has succeeded */
    const ignis__stored *item;
} ignis__lent;

/*  Borrows every array; one may come twice. */
IGNIS__COLD static bool ignis__lent_acquire(const char *call, ignis__lent *lent, int count)
{
    int i;
    for (i = 0; i < count; i++)
        if (!ignis__contract_borrow(call, lent[i].array, IGNIS_OWNER_WNAIS, lent))
            return false;
    return true;
}

/*  Gives every array back; tensors that the call has made end unless it has succeeded. */
IGNIS__COLD static void ignis__lent_release(const char *call, ignis__lent *lent, int count, bool succeeded)
{
    int i;
    for (i = 0; i < count; i++) {
        if (lent[i].array) {
            ignis__contract_return(lent[i].array, lent);
            ignis__array_drop(call, lent[i].array);
        }
        if (lent[i].made.id && !succeeded)
            ignis__tensor_discard(call, lent[i].made);
    }
}

/*  The array of a tensor, held; null, and reported, when there is none. */
static ignis__array *ignis__lent_array(const char *call, ignis_tensor handle)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, handle);
    ignis__array *array;
    if (!tensor)
        return NULL;
    array = ignis__tensor_array(call, tensor);
    ignis__tensor_drop(call, tensor);
    return array;
}

/*  The arguments that saving and loading have in common. */
IGNIS__COLD static bool ignis__named_check(const char *call, const char *path, const char *const *names, const ignis_tensor *tensors,
                                           int count)
{
    int i;
    if (!ignis__enter(call) || ignis__capture_refuses(call))
        return false;
    if (count < 0)
        return ignis__refuse(IGNIS_DIAG_BAD_NUMBER, call, "count is %d, below 0", count);
    if (!ignis__given(call, "path", path) ||
        (count > 0 && (!ignis__given(call, "names", names) || !ignis__given(call, "tensors", tensors))))
        return false;
    for (i = 0; i < count; i++)
        if (!names[i])
            return ignis__refuse(IGNIS_DIAG_NULL_ARGUMENT, call, "names[%d] of %d is null", i, count);
    return true;
}

/* --- saving ----------------------------------------------------------------------------------------------------------- */

IGNIS__COLD static bool ignis__file_fail(const char *call, const char *path, const char *what)
{
    return ignis__fail_file(IGNIS_DIAG_STORAGE_IO, call, path, what) == IGNIS_OK;
}

/*  The items for the tensors of a save, sorted by their place in the file. */
static bool ignis__save_items(const char *call, const char *const *names, ignis__stored *items, const ignis__lent *lent, int count)
{
    const char *twice;
    int i;
    for (i = 0; i < count; i++) {
        if (!ignis__utf8_valid(names[i]) || strcmp(names[i], "__metadata__") == 0)
            return ignis__refuse(IGNIS_DIAG_STORAGE_NAME, call, "names[%d], %s, is %s", i, ignis__name_write(names[i]).text,
                                 *names[i] == '_' ? "no name for a tensor: it is the file's own" : "not well-formed UTF-8");
        items[i].name = names[i];
        items[i].index = i;
        items[i].shape = lent[i].array->shape;
        while (ignis__stored_types[items[i].type].dtype != lent[i].array->dtype)
            items[i].type++;
    }
    ignis__stored_sort(items, count, ignis__stored_by_name);
    twice = ignis__stored_twice(items, count);
    if (twice)
        ignis__fail(IGNIS_DIAG_STORAGE_NAME, call, "two tensors have the name %s", ignis__name_write(twice).text);
    else if (!ignis__safetensors_arrange(items, count))
        ignis__fail(IGNIS_DIAG_SHAPE_OVERFLOW, call, "the %d tensors have more bytes than 63 bits can count", count);
    else
        return true;
    return false;
}

static bool ignis__save_write(const char *call, const char *path, FILE *file, const void *data, int64_t size)
{
    return fwrite(data, 1, (size_t)size, file) == (size_t)size || ignis__file_fail(call, path, "written");
}

static bool ignis__save_header(const char *call, const char *path, FILE *file, const ignis__stored *items, int count, const char *metadata)
{
    size_t size = ignis__safetensors_write(items, count, metadata, NULL, 0);
    unsigned char length[8];
    char *header;
    bool ok;
    int i;
    if (size > IGNIS__HEADER_LIMIT)
        return ignis__refuse(IGNIS_DIAG_STORAGE_NAME, call, "%d names and shapes take %lld bytes, of which a header holds %d", count,
                             (long long)size, IGNIS__HEADER_LIMIT);
    header = (char *)ignis__alloc_for(call, size + 1);
    if (!header)
        return false;
    for (i = 0; i < 8; i++)
        length[i] = (unsigned char)(size >> 8 * i);
    ignis__safetensors_write(items, count, metadata, header, size + 1);
    ok = ignis__save_write(call, path, file, length, 8) && ignis__save_write(call, path, file, header, (int64_t)size);
    ignis__free(header);
    return ok;
}

/*  Writes an array, through IGNIS__CONVERT_CHUNK bytes of host memory. */
static bool ignis__save_array(const char *call, const char *path, FILE *file, ignis__array *array, void *chunk)
{
    ignis__work work;
    ignis__address address;
    int64_t size = ignis__array_bytes(array), done, part;
    bool ok;
    if (!ignis__work_begin(call, array->storage->device, &work))
        return false;
    ok = ignis__work_read(&work, array, &address);
    for (done = 0; ok && done < size; done += part) {
        part = size - done < IGNIS__CONVERT_CHUNK ? size - done : IGNIS__CONVERT_CHUNK;
        ok = ignis__copy_to_host(&work, chunk, address + (uint64_t)done, part) && ignis__save_write(call, path, file, chunk, part);
    }
    ignis__work_end(&work);
    return ok;
}

/*  A file that is written beside the one whose place it takes when it is whole, and which keeps that one's mode and owner. Links are followed: what
    they lead to is replaced. */
typedef struct ignis__replacement {
    const char *call, *path;
    char *target, *part;
    FILE *file;
} ignis__replacement;

static bool ignis__replace_begin(ignis__replacement *r, const char *call, const char *path)
{
    bool loop, replaces;
    int64_t size, time;
    memset(r, 0, sizeof *r);
    r->call = call;
    r->path = path;
    if (ignis__path_is_special(path))
        return ignis__refuse(IGNIS_DIAG_STORAGE_IO, call, "'%s' is there already, and no regular file: it is not replaced", path);
    r->target = ignis__file_target(path, &loop);
    r->part = r->target ? ignis__file_part_path(r->target) : NULL;
    replaces = r->target && ignis__file_info(r->target, &size, &time); /* which may be less open than a new one */
    if (!r->part && !loop)
        ignis__fail_host_memory(call, strlen(path) + 80);
    else if (!r->part || (r->file = ignis__file_create(r->part, replaces ? IGNIS__FILE_PRIVATE : IGNIS__FILE_NEW)) == NULL)
        (void)ignis__file_fail(call, path, "created");
    else
        ignis__file_inherit(r->file, r->target);
    if (r->file)
        return true;
    ignis__free(r->target);
    ignis__free(r->part);
    return false;
}

/*  Puts it into its place, down to the disk, or takes it away; `ok`: it is whole. */
static bool ignis__replace_end(ignis__replacement *r, bool ok)
{
    ok = ok && (ignis__file_flush(r->file) || ignis__file_fail(r->call, r->path, "written to the disk"));
    if (fclose(r->file) != 0 && ok)
        ok = ignis__file_fail(r->call, r->path, "closed");
    ok = ok && (ignis__file_rename(r->part, r->target) || ignis__file_fail(r->call, r->path, "replaced"));
    if (ok)
        ignis__folder_flush(r->target);
    else
        (void)ignis__file_remove(r->part);
    ignis__free(r->target);
    ignis__free(r->part);
    return ok;
}

static bool ignis__save_file(const char *call, const char *path, const ignis__stored *items, const ignis__lent *lent, int count,
                             const char *metadata)
{
    ignis__replacement to;
    void *chunk;
    bool ok;
    int i;
    if (!ignis__replace_begin(&to, call, path))
        return false;
    chunk = ignis__alloc_for(call, (size_t)IGNIS__CONVERT_CHUNK);
    ok = chunk && ignis__save_header(call, path, to.file, items, count, metadata);
    for (i = 0; ok && i < count; i++)
        ok = ignis__save_array(call, path, to.file, lent[items[i].index].array, chunk);
    ignis__free(chunk);
    return ignis__replace_end(&to, ok);
}

/*  metadata: an object of JSON for the header, or null. */
static ignis_status ignis__save(const char *call, const char *path, const char *const *names, const ignis_tensor *tensors, int count,
                                const char *metadata)
{
    ignis__lent *lent;
    ignis__stored *items;
    bool ok;
    int i;
    if (!ignis__named_check(call, path, names, tensors, count))
        return ignis__failed();
    lent = (ignis__lent *)ignis__alloc(((size_t)count + 1) * sizeof *lent);
    items = (ignis__stored *)ignis__alloc(((size_t)count + 1) * sizeof *items);
    ok = lent && items;
    if (!ok)
        ignis__fail_host_memory(call, ((size_t)count + 1) * (sizeof *lent + sizeof *items));
    for (i = 0; ok && i < count; i++)
        ok = (lent[i].array = ignis__lent_array(call, tensors[i])) != NULL;
    ok = ok && ignis__save_items(call, names, items, lent, count) && ignis__lent_acquire(call, lent, count) &&
         ignis__save_file(call, path, items, lent, count, metadata);
    if (lent)
        ignis__lent_release(call, lent, count, ok);
    ignis__free(lent);
    ignis__free(items);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_save(const char *path, const char *const *names, const ignis_tensor *tensors, int count)
{
    return ignis__save("ignis_save", path, names, tensors, count, NULL);
}

/* --- loading ---------------------------------------------------------------------------------------------------------- */

/*  An open file, and what is in it. ignis__load_close ends both. */
typedef struct ignis__load {
    const char *path;
    int descriptor;
    int64_t size;
    ignis__safetensors file;
    char *staging; /* pinned memory for the parts of tensors that are on their way */
    int64_t part;  /* bytes: it has room for two */
} ignis__load;

static void ignis__load_close(ignis__load *load)
{
    ignis__safetensors_close(&load->file);
    ignis__file_close(load->descriptor);
}

static bool ignis__load_read(const char *call, const ignis__load *load, int64_t at, void *out, int64_t size)
{
    int64_t got = ignis__file_read_at(load->descriptor, at, out, size);
    if (got < 0)
        return ignis__file_fail(call, load->path, "read");
    if (got < size)
        ignis__fail(IGNIS_DIAG_STORAGE_IO, call, "'%s' had %lld bytes when it was opened, and now ends before byte %lld", load->path,
                    (long long)load->size, (long long)(at + size));
    return got == size;
}

IGNIS__COLD static bool ignis__load_open(const char *call, const char *path, ignis__load *load)
{
    unsigned char first[8], *head;
    int64_t size;
    uint64_t length;
    ignis_diagnostic result = IGNIS_DIAG_STORAGE_IO;
    memset(load, 0, sizeof *load);
    load->path = path;
    load->descriptor = ignis__file_open(path, &load->size);
    if (load->descriptor < 0) {
        if (!ignis__path_is_special(path))
            return ignis__file_fail(call, path, "opened");
        return ignis__refuse(IGNIS_DIAG_STORAGE_IO, call, "'%s' is no regular file", path);
    }
    size = load->size < 8 ? load->size : 8;
    if (ignis__load_read(call, load, 0, first, size)) {
        length = ignis__safetensors_length(first, size);
        if (length <= IGNIS__HEADER_LIMIT && (int64_t)length <= load->size - size)
            size += (int64_t)length;
        head = (unsigned char *)ignis__alloc((size_t)size + 1);
        if (!head)
            result = IGNIS_DIAG_HOST_MEMORY;
        else if (ignis__load_read(call, load, 0, head, size))
            result = ignis__safetensors_parse(&load->file, head, load->size);
        ignis__free(head);
    }
    if (result == IGNIS_DIAG_NONE)
        return true;
    if (result == IGNIS_DIAG_HOST_MEMORY)
        ignis__fail(result, call, "out of host memory for the header of '%s', a file of %lld bytes", path, (long long)load->size);
    else if (result == IGNIS_DIAG_STORAGE_FORMAT)
        ignis__fail(result, call, "'%s' is not a sound safetensors file: %s", path, load->file.fault);
    ignis__load_close(load);
    return false;
}

/*  The item of a name; null: there is none. The items are sorted by name. */
static ignis__stored *ignis__stored_find(const ignis__safetensors *file, const char *name)
{
    ignis__stored key = IGNIS__ZERO;
    key.name = name;
    return file->count ? (ignis__stored *)bsearch(&key, file->items, (size_t)file->count, sizeof key, ignis__stored_by_name) : NULL;
}

/*  The same; null is reported with names that are there. */
static const ignis__stored *ignis__load_find(const char *call, const char *path, const ignis__safetensors *file, const char *name)
{
    const ignis__stored *item = ignis__stored_find(file, name);
    char known[512];
    ignis__text text;
    int i;
    if (item)
        return item;
    ignis__text_begin(&text, known, sizeof known);
    for (i = 0; i < file->count && i < 5; i++)
        ignis__text_add(&text, "%s%s", i ? ", " : ": ", ignis__name_write(file->items[i].name).text);
    ignis__fail(IGNIS_DIAG_STORAGE_MISSING, call, "'%s' has no tensor %s; it has %d%s%s", path, ignis__name_write(name).text, file->count,
                known, file->count > 5 ? ", ..." : "");
    return NULL;
}

/*  Whether a tensor of a file can go into an array, or into a new one where that is null. */
static bool ignis__load_fits(const char *call, const ignis__stored *item, const ignis__array *array)
{
    ignis_dtype dtype = ignis__stored_types[item->type].loaded;
    if (!dtype)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "tensor %s is %s in the file, a dtype that Ignis has not",
                    ignis__name_write(item->name).text, ignis__stored_types[item->type].name);
    else if (array && array->dtype != dtype)
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "tensor %s is %s in the file, but the tensor to load it into is %s",
                    ignis__name_write(item->name).text, ignis__dtypes[dtype].name, ignis__dtypes[array->dtype].name);
    else if (array && !ignis__shape_same(&array->shape, &item->shape))
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "tensor %s is %s in the file, but the tensor to load it into is %s",
                    ignis__name_write(item->name).text, ignis__shape_write(&item->shape).text, ignis__shape_write(&array->shape).text);
    else
        return true;
    return false;
}

/*  A new tensor like one of the file, and its array; false when it cannot be. */
static bool ignis__load_make(const char *call, ignis__lent *lent)
{
    ignis_array_desc desc = IGNIS__ZERO;
    desc.shape = lent->item->shape;
    desc.dtype = ignis__stored_types[lent->item->type].loaded;
    desc.tag = lent->item->name;
    lent->made = ignis__tensor_adopt(call, ignis__array_create(call, &desc), false);
    return lent->made.id && (lent->array = ignis__lent_array(call, lent->made)) != NULL;
}

/*  Makes whole numbers wider, from the end of a part of memory to all of it. */
static void ignis__load_widen(char *part, int64_t size, int from, int to, bool is_signed)
{
    const unsigned char *in = (const unsigned char *)part + size - size / to * from;
    int64_t count = size / to, i, wide;
    for (i = 0; i < count; i++, in += from) {
        int32_t narrow;
        wide = from == 1   ? in[0]
               : from == 2 ? in[0] | in[1] << 8
                           : (int64_t)((uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24);
        if (is_signed && wide >> (8 * from - 1))
            wide -= (int64_t)1 << 8 * from;
        narrow = (int32_t)wide;
        memcpy(part + i * to, to == 4 ? (const void *)&narrow : (const void *)&wide, (size_t)to);
    }
}

/*  Copies from the file, and waits. While one part is copied to the device the next is read. */
static bool ignis__load_array(const char *call, const ignis__load *load, ignis__array *array, const ignis__stored *item)
{
    ignis__spare_event *copied[2] = {NULL, NULL}; /* behind the copies from both halves of the staging memory */
    ignis__work work;
    ignis__address address;
    int64_t size = ignis__array_bytes(array), begin = load->file.data + item->begin, done, part;
    int piece = 0, to = ignis__dtypes[array->dtype].size, from = ignis__stored_types[item->type].bits / 8;
    bool ok;
    if (!ignis__work_begin(call, array->storage->device, &work))
        return false;
    ok = ignis__work_write(&work, array, &address);
    for (done = 0; ok && done < size; done += part, piece = !piece) {
        char *staging = load->staging + piece * load->part;
        part = size - done < load->part ? size - done : load->part;
        if (copied[piece]) {
            ok = !IGNIS__CUDA_FAILED(call, work.device, cuEventSynchronize, (copied[piece]->event));
            ignis__event_give(work.device, copied[piece]);
        }
        copied[piece] = NULL;
        ok = ok && ignis__load_read(call, load, begin + done / to * from, staging + part - part / to * from, part / to * from);
        if (ok && from < to)
            ignis__load_widen(staging, part, from, to, ignis__stored_types[item->type].name[0] == 'I');
        ok = ok && ignis__copy_up(&work, address + (uint64_t)done, staging, part) &&
             (copied[piece] = ignis__event_record(call, work.device, work.stream)) != NULL;
    }
    for (piece = 0; piece < 2; piece++)
        if (copied[piece])
            ignis__event_give(work.device, copied[piece]);
    ok = !IGNIS__CUDA_FAILED(call, work.device, cuStreamSynchronize, (work.stream)) && ok;
    ignis__work_end(&work);
    return ok;
}

/*  Copies all, through pinned memory of the current device, which serves every device. */
static bool ignis__load_arrays(const char *call, ignis__load *load, const ignis__lent *lent, int count)
{
    ignis__binding binding;
    ignis__device *device;
    ignis__pinned *piece;
    int64_t largest = 0;
    bool ok = true;
    int i;
    for (i = 0; i < count; i++)
        if (largest < ignis__array_bytes(lent[i].array))
            largest = ignis__array_bytes(lent[i].array);
    if (largest == 0)
        return true;
    device = ignis__device_current_enter(call, &binding);
    if (!device)
        return false;
    load->part = largest < IGNIS__CONVERT_CHUNK ? largest : IGNIS__CONVERT_CHUNK;
    piece = ignis__piece_take(call, device, 2 * load->part);
    ignis__device_leave(&binding);
    if (!piece)
        return false;
    load->staging = (char *)piece->memory;
    for (i = 0; ok && i < count; i++)
        ok = ignis__load_array(call, load, lent[i].array, lent[i].item);
    if (ignis__piece_give(call, device, piece) != IGNIS_OK)
        ok = false;
    return ok;
}

/*  Everything that can be known to fail is tried before an array is written to. */
static bool ignis__load_tensors(const char *call, const char *path, ignis__load *load, const char *const *names,
                                const ignis_tensor *tensors, ignis__lent *lent, int count)
{
    int i;
    ignis__stored_sort(load->file.items, load->file.count, ignis__stored_by_name);
    for (i = 0; i < count; i++) {
        lent[i].item = ignis__load_find(call, path, &load->file, names[i]);
        if (!lent[i].item || (tensors[i].id && (lent[i].array = ignis__lent_array(call, tensors[i])) == NULL) ||
            !ignis__load_fits(call, lent[i].item, lent[i].array))
            return false;
    }
    for (i = 0; i < count; i++)
        if (!lent[i].array && !ignis__load_make(call, &lent[i]))
            return false;
    return ignis__lent_acquire(call, lent, count) && ignis__load_arrays(call, load, lent, count);
}

IGNIS__COLD static ignis_status ignis__load_named(const char *call, const char *path, const char *const *names, ignis_tensor *tensors,
                                                  int count)
{
    ignis__load load;
    ignis__lent *lent;
    bool ok = false;
    int i;
    if (!ignis__named_check(call, path, names, tensors, count) || !ignis__load_open(call, path, &load))
        return ignis__failed();
    lent = (ignis__lent *)ignis__alloc_for(call, ((size_t)count + 1) * sizeof *lent);
    if (lent) {
        ok = ignis__load_tensors(call, path, &load, names, tensors, lent, count);
        for (i = 0; ok && i < count; i++)
            if (lent[i].made.id)
                tensors[i] = lent[i].made;
        ignis__lent_release(call, lent, count, ok);
        ignis__free(lent);
    }
    ignis__load_close(&load);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_load(const char *path, const char *const *names, ignis_tensor *tensors, int count)
{
    return ignis__load_named("ignis_load", path, names, tensors, count);
}

IGNIS__COLD IGNIS_API int ignis_storage_list(const char *path, ignis_storage_entry *entries, int capacity)
{
    static const char call[] = "ignis_storage_list";
    ignis__load load;
    int i, count;
    if (!ignis__enter(call) || !ignis__given(call, "path", path) || !ignis__room_given(call, "entries", entries, capacity) ||
        !ignis__load_open(call, path, &load))
        return -1;
    count = load.file.count;
    for (i = 0; i < count && i < capacity; i++) {
        const ignis__stored *item = &load.file.items[i];
        memset(&entries[i], 0, sizeof entries[i]);
        memcpy(entries[i].name, item->name, ignis__utf8_cut(item->name, sizeof entries[i].name - 1));
        entries[i].dtype = ignis__stored_types[item->type].loaded;
        entries[i].shape = item->shape;
        entries[i].bytes = item->end - item->begin;
    }
    ignis__load_close(&load);
    return count;
}

#ifdef IGNIS_MODELS

/* ===============================================================================================================
   >>gguf - GGUF files: keys and tensors.
   =============================================================================================================== */

/*  Little-endian, packed:
        "GGUF", u32 version, u64 tensors, u64 keys
        a key: string (u64 length, bytes), u32 type, value; an array: u32 type of its items, u64 count, items
        a tensor: string, u32 dimensions, u64 for each (the fastest first), u32 type, u64 offset from the data
        padding up to a multiple of general.alignment, or 32; the data
    The head is read into host memory as far as it goes. Each text in it moves down by a byte, over the last byte of its length, which nobody
    needs any more, and so gets a 0 at its end: names and vocabularies are used where they are. */

#define IGNIS__GGUF_HEAD_LIMIT ((int64_t)1 << 30) /* bytes; those of 2026 have up to 20 million */
#define IGNIS__GGUF_NAME_LIMIT 65535

typedef enum ignis__gguf_kind { /* the numbers of the format */
                                IGNIS__GGUF_U8,
                                IGNIS__GGUF_I8,
                                IGNIS__GGUF_U16,
                                IGNIS__GGUF_I16,
                                IGNIS__GGUF_U32,
                                IGNIS__GGUF_I32,
                                IGNIS__GGUF_F32,
                                IGNIS__GGUF_BOOL,
                                IGNIS__GGUF_STRING,
                                IGNIS__GGUF_ARRAY,
                                IGNIS__GGUF_U64,
                                IGNIS__GGUF_I64,
                                IGNIS__GGUF_F64,
                                IGNIS__GGUF_KINDS
} ignis__gguf_kind;

static const struct {
    const char *name;
    int size; /* of a value; of a text or an array its length alone */
} ignis__gguf_kinds[IGNIS__GGUF_KINDS] = {{"u8", 1},   {"i8", 1},   {"u16", 2},    {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
                                          {"bool", 1}, {"text", 8}, {"array", 12}, {"u64", 8}, {"i64", 8}, {"f64", 8}};

typedef enum ignis__gguf_type {
    IGNIS__GGUF_Q4_0 = 2,
    IGNIS__GGUF_Q4_1 = 3,
    IGNIS__GGUF_Q8_0 = 8,
    IGNIS__GGUF_Q4_K = 12,
    IGNIS__GGUF_Q5_K = 13,
    IGNIS__GGUF_Q6_K = 14
} ignis__gguf_type;

/*  The types of tensors: so many elements take so many bytes. Those of one element are as Ignis has them, if it does. */
static const struct {
    const char *name;
    uint32_t id;
    int elements, bytes;
    ignis_dtype dtype;
    bool readable;
} ignis__gguf_types[] = {
    {"F32", 0, 1, 4, IGNIS_F32, true},
    {"F16", 1, 1, 2, IGNIS_F16, true},
    {"Q4_0", IGNIS__GGUF_Q4_0, 32, 18, IGNIS_DTYPE_DEFAULT, true},
    {"Q4_1", IGNIS__GGUF_Q4_1, 32, 20, IGNIS_DTYPE_DEFAULT, true},
    {"Q5_0", 6, 32, 22, IGNIS_DTYPE_DEFAULT, false},
    {"Q5_1", 7, 32, 24, IGNIS_DTYPE_DEFAULT, false},
    {"Q8_0", IGNIS__GGUF_Q8_0, 32, 34, IGNIS_DTYPE_DEFAULT, true},
    {"Q2_K", 10, 256, 84, IGNIS_DTYPE_DEFAULT, false},
    {"Q3_K", 11, 256, 110, IGNIS_DTYPE_DEFAULT, false},
    {"Q4_K", IGNIS__GGUF_Q4_K, 256, 144, IGNIS_DTYPE_DEFAULT, true},
    {"Q5_K", IGNIS__GGUF_Q5_K, 256, 176, IGNIS_DTYPE_DEFAULT, true},
    {"Q6_K", IGNIS__GGUF_Q6_K, 256, 210, IGNIS_DTYPE_DEFAULT, true},
    {"I8", 24, 1, 1, IGNIS_DTYPE_DEFAULT, false},
    {"I16", 25, 1, 2, IGNIS_DTYPE_DEFAULT, false},
    {"I32", 26, 1, 4, IGNIS_I32, false},
    {"I64", 27, 1, 8, IGNIS_I64, false},
    {"F64", 28, 1, 8, IGNIS_F64, true},
    {"BF16", 30, 1, 2, IGNIS_BF16, true},
};

typedef struct ignis__gguf_key {
    const char *name;
    int64_t at;    /* of its value in the head: of the first item, if it is an array */
    uint32_t kind; /* of the value; of the items, if it is an array */
    int64_t count; /* of items; -1: no array */
    int64_t name_at;
} ignis__gguf_key;

typedef struct ignis__gguf_tensor {
    const char *name;
    int type;           /* in ignis__gguf_types; -1: another one */
    uint32_t id;        /* the file's number for it */
    ignis_shape shape;  /* as Ignis has them: the fastest last */
    int64_t begin, end; /* of its bytes in the file; the same place, if the type is another one */
    int64_t name_at;
} ignis__gguf_tensor;

/*  An open file. ignis__gguf_close ends it. */
typedef struct ignis__gguf {
    const char *path, *call;
    int descriptor;
    int64_t size;        /* of the file */
    unsigned char *head; /* its first bytes */
    int64_t have, at;    /* so many; the reader's place among them */
    ignis__gguf_key *keys;
    int64_t key_count; /* sorted by name, as the tensors are */
    ignis__gguf_tensor *tensors;
    int64_t tensor_count;
    bool failed;
} ignis__gguf;

IGNIS__MAYBE_UNUSED static void ignis__gguf_close(ignis__gguf *file)
{
    ignis__free(file->keys);
    ignis__free(file->tensors);
    ignis__free(file->head);
    if (file->descriptor >= 0)
        ignis__file_close(file->descriptor);
    memset(file, 0, sizeof *file);
    file->descriptor = -1;
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD static bool ignis__gguf_fail(ignis__gguf *file, int64_t at, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (!file->failed)
        ignis__fail(IGNIS_DIAG_GGUF_FORMAT, file->call, "'%s' is not a sound GGUF file: at byte %lld, %s", file->path, (long long)at, line);
    file->failed = true;
    return false;
}

/*  Sees to it that so many bytes from the reader's place on are there. `what` they are goes into the message. */
static bool ignis__gguf_need(ignis__gguf *file, int64_t bytes, const char *what)
{
    int64_t wanted;
    unsigned char *head;
    if (file->failed)
        return false;
    if (bytes <= file->have - file->at)
        return true;
    if (bytes > file->size - file->at)
        return ignis__gguf_fail(file, file->at, "%s would take %lld bytes, but %lld are left of the file", what, (long long)bytes,
                                (long long)(file->size - file->at));
    if (file->at + bytes > IGNIS__GGUF_HEAD_LIMIT)
        return ignis__gguf_fail(file, file->at, "%s would end %lld bytes behind the beginning of the file, above %lld", what,
                                (long long)(file->at + bytes), (long long)IGNIS__GGUF_HEAD_LIMIT);
    wanted = file->have * 2 < 65536 ? 65536 : file->have * 2;
    wanted = wanted < file->at + bytes ? file->at + bytes : wanted;
    wanted = wanted > file->size ? file->size : wanted;
    head = (unsigned char *)ignis__alloc((size_t)wanted);
    if (!head) {
        ignis__fail_host_memory(file->call, (size_t)wanted);
        file->failed = true;
        return false;
    }
    if (file->have)
        memcpy(head, file->head, (size_t)file->have);
    ignis__free(file->head);
    file->head = head;
    if (ignis__file_read_at(file->descriptor, file->have, head + file->have, wanted - file->have) != wanted - file->have) {
        file->failed = true;
        return ignis__file_fail(file->call, file->path, "read");
    }
    file->have = wanted;
    return true;
}

static uint64_t ignis__gguf_bytes(const unsigned char *from, int size)
{
    uint64_t value = 0;
    int i;
    for (i = 0; i < size; i++)
        value |= (uint64_t)from[i] << 8 * i;
    return value;
}

/*  A number of so many bytes; 0 after a failure. */
static uint64_t ignis__gguf_take(ignis__gguf *file, int size, const char *what)
{
    uint64_t value;
    if (!ignis__gguf_need(file, size, what))
        return 0;
    value = ignis__gguf_bytes(file->head + file->at, size);
    file->at += size;
    return value;
}

/*  A count of things that take so many bytes at least: they have to be in the file. */
static int64_t ignis__gguf_count(ignis__gguf *file, int64_t least, const char *what)
{
    int64_t at = file->at;
    uint64_t count = ignis__gguf_take(file, 8, what);
    if (!file->failed && count > (uint64_t)((file->size - file->at) / least))
        ignis__gguf_fail(file, at, "%s is %llu, but %lld bytes are left of the file", what, (unsigned long long)count,
                         (long long)(file->size - file->at));
    return file->failed ? 0 : (int64_t)count;
}

/*  A text, which gets its 0: the place of its first byte now. */
static int64_t ignis__gguf_text(ignis__gguf *file, const char *what)
{
    int64_t size = ignis__gguf_count(file, 1, what), at = file->at;
    if (!ignis__gguf_need(file, size, what))
        return 0;
    memmove(file->head + at - 1, file->head + at, (size_t)size);
    file->head[at - 1 + size] = 0;
    file->at += size;
    return at - 1;
}

static int64_t ignis__gguf_name(ignis__gguf *file, const char *what)
{
    int64_t before = file->at, at = ignis__gguf_text(file, what), size = file->at - at - 1;
    if (!file->failed && (size > IGNIS__GGUF_NAME_LIMIT || (int64_t)strlen((const char *)file->head + at) != size))
        ignis__gguf_fail(file, before, "%s is longer than %d bytes, or holds a 0", what, IGNIS__GGUF_NAME_LIMIT);
    return at;
}

/*  One key; its value is stepped over. */
static void ignis__gguf_read_key(ignis__gguf *file, ignis__gguf_key *key)
{
    int64_t at, i;
    key->name_at = ignis__gguf_name(file, "the name of a key");
    at = file->at;
    key->kind = (uint32_t)ignis__gguf_take(file, 4, "the type of a key");
    key->count = -1;
    if (key->kind == IGNIS__GGUF_ARRAY) {
        key->kind = (uint32_t)ignis__gguf_take(file, 4, "the type of an array");
        if (!file->failed && key->kind < IGNIS__GGUF_KINDS && key->kind != IGNIS__GGUF_ARRAY)
            key->count = ignis__gguf_count(file, ignis__gguf_kinds[key->kind].size, "the length of an array");
    }
    if (!file->failed && (key->kind >= IGNIS__GGUF_KINDS || key->kind == IGNIS__GGUF_ARRAY))
        ignis__gguf_fail(file, at, "key %s has the unknown type %u, or is an array of arrays",
                         ignis__name_write((const char *)file->head + key->name_at).text, (unsigned)key->kind);
    key->at = file->at;
    if (key->kind == IGNIS__GGUF_STRING) {
        for (i = 0; i < (key->count < 0 ? 1 : key->count) && !file->failed; i++)
            (void)ignis__gguf_text(file, "a text");
    } else if (!file->failed) {
        int64_t bytes = (key->count < 0 ? 1 : key->count) * ignis__gguf_kinds[key->kind].size; /* the count is bounded by the file */
        if (ignis__gguf_need(file, bytes, "the value of a key"))
            file->at += bytes;
    }
}

static void ignis__gguf_read_tensor(ignis__gguf *file, ignis__gguf_tensor *tensor)
{
    int64_t at, bytes = 0;
    uint32_t ndim, i;
    bool fits = true;
    const char *name;
    tensor->name_at = ignis__gguf_name(file, "the name of a tensor");
    at = file->at;
    ndim = (uint32_t)ignis__gguf_take(file, 4, "the number of dimensions of a tensor");
    if (!file->failed && ndim > IGNIS_MAX_DIMS)
        ignis__gguf_fail(file, at, "tensor %s has %u dimensions, above %d",
                         ignis__name_write((const char *)file->head + tensor->name_at).text, (unsigned)ndim, IGNIS_MAX_DIMS);
    if (file->failed)
        return;
    tensor->shape.ndim = ndim ? (int)ndim : 1;
    tensor->shape.dim[0] = 1;
    for (i = 0; i < ndim; i++) {
        uint64_t dim = ignis__gguf_take(file, 8, "a dimension of a tensor");
        fits = fits && dim <= INT64_MAX;
        tensor->shape.dim[ndim - 1 - i] = (int64_t)(dim & INT64_MAX);
    }
    tensor->id = (uint32_t)ignis__gguf_take(file, 4, "the type of a tensor");
    tensor->begin = (int64_t)ignis__gguf_take(file, 8, "the offset of a tensor"); /* one that does not fit is below 0 */
    if (file->failed)
        return;
    name = (const char *)file->head + tensor->name_at;
    for (tensor->type = IGNIS__COUNT(ignis__gguf_types) - 1; tensor->type >= 0 && ignis__gguf_types[tensor->type].id != tensor->id;
         tensor->type--)
        continue;
    if (tensor->type >= 0) {
        int elements = ignis__gguf_types[tensor->type].elements;
        ignis_shape blocks = tensor->shape;
        if (fits && blocks.dim[blocks.ndim - 1] % elements != 0) {
            ignis__gguf_fail(file, at, "tensor %s is %s %s: its rows are no multiples of %d elements", ignis__name_write(name).text,
                             ignis__gguf_types[tensor->type].name, ignis__shape_write(&tensor->shape).text, elements);
            return;
        }
        blocks.dim[blocks.ndim - 1] /= elements;
        for (bytes = ignis__gguf_types[tensor->type].bytes, i = 0; i < (uint32_t)blocks.ndim; i++)
            fits = fits && ignis__multiply(bytes, blocks.dim[i], &bytes);
    }
    if (!fits || tensor->begin < 0 || bytes > INT64_MAX - tensor->begin)
        ignis__gguf_fail(file, at, "tensor %s, %s, has more bytes than 63 bits can count", ignis__name_write(name).text,
                         ignis__shape_write(&tensor->shape).text);
    else
        tensor->end = tensor->begin + bytes;
}

static int ignis__gguf_key_order(const void *a, const void *b)
{
    return strcmp(((const ignis__gguf_key *)a)->name, ((const ignis__gguf_key *)b)->name);
}

static int ignis__gguf_tensor_order(const void *a, const void *b)
{
    return strcmp(((const ignis__gguf_tensor *)a)->name, ((const ignis__gguf_tensor *)b)->name);
}

static int ignis__gguf_place_order(const void *a, const void *b)
{
    const ignis__gguf_tensor *one = (const ignis__gguf_tensor *)a, *other = (const ignis__gguf_tensor *)b;
    return one->begin != other->begin ? (one->begin < other->begin ? -1 : 1)
           : one->end != other->end   ? (one->end < other->end ? -1 : 1)
                                      : 0;
}

/*  The key of a name, null if there is none. */
static const ignis__gguf_key *ignis__gguf_find(const ignis__gguf *file, const char *name)
{
    ignis__gguf_key key = IGNIS__ZERO;
    key.name = name;
    return file->key_count ? (const ignis__gguf_key *)bsearch(&key, file->keys, (size_t)file->key_count, sizeof key, ignis__gguf_key_order)
                           : NULL;
}

IGNIS__MAYBE_UNUSED static const ignis__gguf_tensor *ignis__gguf_find_tensor(const ignis__gguf *file, const char *name)
{
    ignis__gguf_tensor key = IGNIS__ZERO;
    key.name = name;
    return file->tensor_count
               ? (const ignis__gguf_tensor *)bsearch(&key, file->tensors, (size_t)file->tensor_count, sizeof key, ignis__gguf_tensor_order)
               : NULL;
}

/*  What a lookup finds. BAD has been reported: the key is there, but is of another type. */
typedef enum ignis__gguf_found { IGNIS__GGUF_BAD = -1, IGNIS__GGUF_NONE = 0, IGNIS__GGUF_FOUND = 1 } ignis__gguf_found;

static ignis__gguf_found ignis__gguf_wrong(ignis__gguf *file, const ignis__gguf_key *key, const char *wanted)
{
    file->failed = false; /* each lookup reports for itself */
    ignis__gguf_fail(file, key->at, "key %s is %s%s, not %s", ignis__name_write(key->name).text, key->count < 0 ? "" : "an array of ",
                     ignis__gguf_kinds[key->kind].name, wanted);
    return IGNIS__GGUF_BAD;
}

/*  Any number at a place. Unsigned ones of 64 bits become doubles, or lose their highest bit. */
static double ignis__gguf_real_at(const unsigned char *at, uint32_t kind)
{
    uint64_t bits = ignis__gguf_bytes(at, ignis__gguf_kinds[kind].size);
    uint32_t low = (uint32_t)bits;
    float single;
    double value;
    switch (kind) {
    case IGNIS__GGUF_I8: return (int8_t)bits;
    case IGNIS__GGUF_I16: return (int16_t)bits;
    case IGNIS__GGUF_I32: return (int32_t)low;
    case IGNIS__GGUF_I64: return (double)(int64_t)bits;
    case IGNIS__GGUF_F32: memcpy(&single, &low, sizeof single); return (double)single;
    case IGNIS__GGUF_F64: memcpy(&value, &bits, sizeof value); return value;
    default: return (double)bits;
    }
}

static int64_t ignis__gguf_int_at(const unsigned char *at, uint32_t kind)
{
    uint64_t bits = ignis__gguf_bytes(at, ignis__gguf_kinds[kind].size);
    return kind == IGNIS__GGUF_I8    ? (int8_t)bits
           : kind == IGNIS__GGUF_I16 ? (int16_t)bits
           : kind == IGNIS__GGUF_I32 ? (int32_t)bits
                                     : (int64_t)bits;
}

static bool ignis__gguf_is_int(uint32_t kind) { return kind <= IGNIS__GGUF_I32 || kind == IGNIS__GGUF_U64 || kind == IGNIS__GGUF_I64; }

static bool ignis__gguf_is_real(uint32_t kind) { return kind == IGNIS__GGUF_F32 || kind == IGNIS__GGUF_F64; }

/*  The value of a key: a whole number (an unsigned one of 64 bits has to fit 63), any number, true or false, a text. */
IGNIS__MAYBE_UNUSED static ignis__gguf_found ignis__gguf_int(ignis__gguf *file, const char *name, int64_t *value)
{
    const ignis__gguf_key *key = ignis__gguf_find(file, name);
    if (!key)
        return IGNIS__GGUF_NONE;
    if (key->count >= 0 || !ignis__gguf_is_int(key->kind))
        return ignis__gguf_wrong(file, key, "a whole number");
    *value = ignis__gguf_int_at(file->head + key->at, key->kind);
    return key->kind == IGNIS__GGUF_U64 && *value < 0 ? ignis__gguf_wrong(file, key, "a number that fits 63 bits") : IGNIS__GGUF_FOUND;
}

IGNIS__MAYBE_UNUSED static ignis__gguf_found ignis__gguf_real(ignis__gguf *file, const char *name, double *value)
{
    const ignis__gguf_key *key = ignis__gguf_find(file, name);
    if (!key)
        return IGNIS__GGUF_NONE;
    if (key->count >= 0 || !(ignis__gguf_is_int(key->kind) || ignis__gguf_is_real(key->kind)))
        return ignis__gguf_wrong(file, key, "a number");
    *value = ignis__gguf_real_at(file->head + key->at, key->kind);
    return IGNIS__GGUF_FOUND;
}

IGNIS__MAYBE_UNUSED static ignis__gguf_found ignis__gguf_bool(ignis__gguf *file, const char *name, bool *value)
{
    const ignis__gguf_key *key = ignis__gguf_find(file, name);
    if (!key)
        return IGNIS__GGUF_NONE;
    if (key->count >= 0 || key->kind != IGNIS__GGUF_BOOL)
        return ignis__gguf_wrong(file, key, "true or false");
    *value = file->head[key->at] != 0;
    return IGNIS__GGUF_FOUND;
}

/*  The items of an array, one after the other: those of texts in the order of the file, of *size bytes and a 0. They live as the file does. */
typedef struct ignis__gguf_items {
    const unsigned char *at;
    uint32_t kind;
    int64_t left;
} ignis__gguf_items;

/*  A text's length has lost its highest byte, which was 0: the head is not that large. */
IGNIS__MAYBE_UNUSED static const char *ignis__gguf_next_text(ignis__gguf_items *items, size_t *size)
{
    const char *text = (const char *)items->at + 7;
    *size = (size_t)ignis__gguf_bytes(items->at, 7);
    items->at += 8 + *size;
    items->left--;
    return text;
}

IGNIS__MAYBE_UNUSED static int64_t ignis__gguf_next_int(ignis__gguf_items *items)
{
    int64_t value = ignis__gguf_int_at(items->at, items->kind);
    items->at += ignis__gguf_kinds[items->kind].size;
    items->left--;
    return value;
}

IGNIS__MAYBE_UNUSED static double ignis__gguf_next_real(ignis__gguf_items *items)
{
    double value = ignis__gguf_real_at(items->at, items->kind);
    items->at += ignis__gguf_kinds[items->kind].size;
    items->left--;
    return value;
}

/*  The text of a key, with a 0 behind its *size bytes. */
IGNIS__MAYBE_UNUSED static ignis__gguf_found ignis__gguf_string(ignis__gguf *file, const char *name, const char **text, size_t *size)
{
    const ignis__gguf_key *key = ignis__gguf_find(file, name);
    ignis__gguf_items one;
    if (!key)
        return IGNIS__GGUF_NONE;
    if (key->count >= 0 || key->kind != IGNIS__GGUF_STRING)
        return ignis__gguf_wrong(file, key, "a text");
    one.at = file->head + key->at;
    one.kind = key->kind;
    one.left = 1;
    *text = ignis__gguf_next_text(&one, size);
    return IGNIS__GGUF_FOUND;
}

/*  The array of a key. `like` is what its items have to be: STRING, I64 for any whole numbers, F64 for any numbers, BOOL. */
IGNIS__MAYBE_UNUSED static ignis__gguf_found ignis__gguf_array(ignis__gguf *file, const char *name, ignis__gguf_kind like,
                                                               ignis__gguf_items *items)
{
    const ignis__gguf_key *key = ignis__gguf_find(file, name);
    bool fits;
    if (!key)
        return IGNIS__GGUF_NONE;
    fits = like == IGNIS__GGUF_F64   ? ignis__gguf_is_int(key->kind) || ignis__gguf_is_real(key->kind)
           : like == IGNIS__GGUF_I64 ? ignis__gguf_is_int(key->kind)
                                     : key->kind == (uint32_t)like;
    if (key->count < 0 || !fits)
        return ignis__gguf_wrong(file, key,
                                 like == IGNIS__GGUF_STRING ? "an array of texts"
                                 : like == IGNIS__GGUF_I64  ? "an array of whole numbers"
                                                            : "an array of such values");
    items->at = file->head + key->at;
    items->kind = key->kind;
    items->left = key->count;
    return IGNIS__GGUF_FOUND;
}

/*  Places of the tensors: in the data, at multiples of the alignment, none over another. */
static bool ignis__gguf_places(ignis__gguf *file)
{
    int64_t alignment = 32, data, i;
    if (ignis__gguf_int(file, "general.alignment", &alignment) == IGNIS__GGUF_BAD)
        return false;
    if (alignment < 1 || alignment > 1 << 30 || (alignment & (alignment - 1)) != 0)
        return ignis__gguf_fail(file, ignis__gguf_find(file, "general.alignment")->at,
                                "general.alignment is %lld, not a power of two up to 2^30", (long long)alignment);
    data = (file->at + alignment - 1) / alignment * alignment;
    for (i = 0; i < file->tensor_count; i++) {
        ignis__gguf_tensor *tensor = &file->tensors[i];
        if (tensor->begin % alignment != 0)
            return ignis__gguf_fail(file, tensor->name_at, "tensor %s begins at %lld of the data, not a multiple of %lld",
                                    ignis__name_write(tensor->name).text, (long long)tensor->begin, (long long)alignment);
        if (tensor->end > tensor->begin && (file->size < data || tensor->end > file->size - data))
            return ignis__gguf_fail(file, tensor->name_at, "tensor %s lies at %lld to %lld of the data, which has %lld bytes",
                                    ignis__name_write(tensor->name).text, (long long)tensor->begin, (long long)tensor->end,
                                    (long long)(file->size < data ? 0 : file->size - data));
        if (tensor->end == tensor->begin)
            tensor->begin = tensor->end = 0; /* nothing, or a type that is not known */
        tensor->begin += data;
        tensor->end += data;
    }
    if (file->tensor_count > 1)
        qsort(file->tensors, (size_t)file->tensor_count, sizeof *file->tensors, ignis__gguf_place_order);
    for (i = 1; i < file->tensor_count; i++)
        if (file->tensors[i].begin < file->tensors[i - 1].end)
            return ignis__gguf_fail(file, file->tensors[i].name_at, "tensor %s begins inside of tensor %s",
                                    ignis__name_write(file->tensors[i].name).text, ignis__name_write(file->tensors[i - 1].name).text);
    if (file->tensor_count > 1)
        qsort(file->tensors, (size_t)file->tensor_count, sizeof *file->tensors, ignis__gguf_tensor_order);
    for (i = 1; i < file->tensor_count; i++)
        if (strcmp(file->tensors[i - 1].name, file->tensors[i].name) == 0)
            return ignis__gguf_fail(file, file->tensors[i].name_at, "there is a second tensor %s",
                                    ignis__name_write(file->tensors[i].name).text);
    return true;
}

/*  Room for so many keys or tensors, which the file has bytes for. */
static void *ignis__gguf_room(ignis__gguf *file, int64_t count, size_t size)
{
    void *room = file->failed || count > IGNIS__GGUF_HEAD_LIMIT / (int64_t)size ? NULL : ignis__alloc((size_t)(count + 1) * size);
    if (!room && !file->failed)
        ignis__fail_host_memory(file->call, (size_t)(count + 1) * size);
    file->failed = room == NULL;
    return room;
}

/*  Opens a file, and checks all of it but the values of its tensors. On failure it is reported, and closed. */
IGNIS__MAYBE_UNUSED IGNIS__COLD static bool ignis__gguf_open(const char *call, const char *path, ignis__gguf *file)
{
    int64_t tensors = 0, keys = 0, i;
    uint32_t version;
    memset(file, 0, sizeof *file);
    file->path = path;
    file->call = call;
    file->descriptor = ignis__file_open(path, &file->size);
    if (file->descriptor < 0)
        return ignis__file_fail(call, path, "opened");
    if (file->size < 4 || !ignis__gguf_need(file, 4, "the first bytes") || memcmp(file->head, "GGUF", 4) != 0)
        ignis__gguf_fail(file, 0, "it does not begin with \"GGUF\"");
    file->at = 4;
    version = (uint32_t)ignis__gguf_take(file, 4, "the version");
    if (!file->failed && version != 2 && version != 3)
        ignis__gguf_fail(file, 4, "the version is %u%s; 2 and 3 are known", (unsigned)version,
                         version == 2u << 24 || version == 3u << 24 ? ", as in a big-endian file" : "");
    tensors = ignis__gguf_count(file, 24, "the number of tensors");
    keys = ignis__gguf_count(file, 13, "the number of keys");
    file->keys = (ignis__gguf_key *)ignis__gguf_room(file, keys, sizeof *file->keys);
    file->tensors = (ignis__gguf_tensor *)ignis__gguf_room(file, tensors, sizeof *file->tensors);
    for (i = 0; i < keys && !file->failed; i++, file->key_count++)
        ignis__gguf_read_key(file, &file->keys[i]);
    for (i = 0; i < tensors && !file->failed; i++, file->tensor_count++)
        ignis__gguf_read_tensor(file, &file->tensors[i]);
    for (i = 0; i < keys && !file->failed; i++) /* the head stays where it is now */
        file->keys[i].name = (const char *)file->head + file->keys[i].name_at;
    for (i = 0; i < tensors && !file->failed; i++)
        file->tensors[i].name = (const char *)file->head + file->tensors[i].name_at;
    if (!file->failed && keys > 1)
        qsort(file->keys, (size_t)keys, sizeof *file->keys, ignis__gguf_key_order);
    for (i = 1; i < keys && !file->failed; i++)
        if (strcmp(file->keys[i - 1].name, file->keys[i].name) == 0)
            ignis__gguf_fail(file, file->keys[i].name_at, "there is a second key %s", ignis__name_write(file->keys[i].name).text);
    if (!file->failed && ignis__gguf_places(file))
        return true;
    ignis__gguf_close(file);
    return false;
}

