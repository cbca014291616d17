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

/* ===============================================================================================================
   >>text - tokenizers: text to ids, ids to text.
   =============================================================================================================== */

/*  From here on written by tools/unicode_tables.py. */
/* clang-format off */
/*  Where the kind of characters changes: the first one << 4 | 1 letter | 2 number | 4 of a word | 8 number to the pre-tokenizer Digits. */
static const uint32_t ignis__char_kinds[] = {
    0x30E, 0x3A0, 0x415, 0x5B0, 0x5F4, 0x600, 0x615, 0x7B0, 0xAA5, 0xAB0, 0xB2A, 0xB40, 0xB55, 0xB60, 0xB9A, 0xBA5, 0xBB0, 0xBCA, 0xBF0, 0xC05,
    0xD70, 0xD85, 0xF70, 0xF85, 0x2C20, 0x2C65, 0x2D20, 0x2E05, 0x2E50, 0x2EC5, 0x2ED0, 0x2EE5, 0x2EF0, 0x3004, 0x3705, 0x3750, 0x3765, 0x3780,
    0x37A5, 0x37E0, 0x37F5, 0x3800, 0x3865, 0x3870, 0x3885, 0x38B0, 0x38C5, 0x38D0, 0x38E5, 0x3A20, 0x3A35, 0x3F60, 0x3F75, 0x4820, 0x4834, 0x48A5,
    0x5300, 0x5315, 0x5570, 0x5595, 0x55A0, 0x5605, 0x5890, 0x5914, 0x5BE0, 0x5BF4, 0x5C00, 0x5C14, 0x5C30, 0x5C44, 0x5C60, 0x5C74, 0x5C80, 0x5D05,
    0x5EB0, 0x5EF5, 0x5F30, 0x6104, 0x61B0, 0x6205, 0x64B4, 0x660E, 0x66A0, 0x66E5, 0x6704, 0x6715, 0x6D40, 0x6D55, 0x6D64, 0x6DD0, 0x6DF4, 0x6E55,
    0x6E74, 0x6E90, 0x6EA4, 0x6EE5, 0x6F0E, 0x6FA5, 0x6FD0, 0x6FF5, 0x7000, 0x7105, 0x7114, 0x7125, 0x7304, 0x74B0, 0x74D5, 0x7A64, 0x7B15, 0x7B20,
    0x7C0E, 0x7CA5, 0x7EB4, 0x7F45, 0x7F60, 0x7FA5, 0x7FB0, 0x7FD4, 0x7FE0, 0x8005, 0x8164, 0x81A5, 0x81B4, 0x8245, 0x8254, 0x8285, 0x8294, 0x82E0,
    0x8405, 0x8594, 0x85C0, 0x8605, 0x86B0, 0x8705, 0x8880, 0x8895, 0x88F0, 0x8974, 0x8A05, 0x8CA4, 0x8E20, 0x8E34, 0x9045, 0x93A4, 0x93D5, 0x93E4,
    0x9505, 0x9514, 0x9585, 0x9624, 0x9640, 0x966E, 0x9700, 0x9715, 0x9814, 0x9840, 0x9855, 0x98D0, 0x98F5, 0x9910, 0x9935, 0x9A90, 0x9AA5, 0x9B10,
    0x9B25, 0x9B30, 0x9B65, 0x9BA0, 0x9BC4, 0x9BD5, 0x9BE4, 0x9C50, 0x9C74, 0x9C90, 0x9CB4, 0x9CE5, 0x9CF0, 0x9D74, 0x9D80, 0x9DC5, 0x9DE0, 0x9DF5,
    0x9E24, 0x9E40, 0x9E6E, 0x9F05, 0x9F20, 0x9F4A, 0x9FA0, 0x9FC5, 0x9FD0, 0x9FE4, 0x9FF0, 0xA014, 0xA040, 0xA055, 0xA0B0, 0xA0F5, 0xA110, 0xA135,
    0xA290, 0xA2A5, 0xA310, 0xA325, 0xA340, 0xA355, 0xA370, 0xA385, 0xA3A0, 0xA3C4, 0xA3D0, 0xA3E4, 0xA430, 0xA474, 0xA490, 0xA4B4, 0xA4E0, 0xA514,
    0xA520, 0xA595, 0xA5D0, 0xA5E5, 0xA5F0, 0xA66E, 0xA704, 0xA725, 0xA754, 0xA760, 0xA814, 0xA840, 0xA855, 0xA8E0, 0xA8F5, 0xA920, 0xA935, 0xAA90,
    0xAAA5, 0xAB10, 0xAB25, 0xAB40, 0xAB55, 0xABA0, 0xABC4, 0xABD5, 0xABE4, 0xAC60, 0xAC74, 0xACA0, 0xACB4, 0xACE0, 0xAD05, 0xAD10, 0xAE05, 0xAE24,
    0xAE40, 0xAE6E, 0xAF00, 0xAF95, 0xAFA4, 0xB000, 0xB014, 0xB040, 0xB055, 0xB0D0, 0xB0F5, 0xB110, 0xB135, 0xB290, 0xB2A5, 0xB310, 0xB325, 0xB340,
    0xB355, 0xB3A0, 0xB3C4, 0xB3D5, 0xB3E4, 0xB450, 0xB474, 0xB490, 0xB4B4, 0xB4E0, 0xB554, 0xB580, 0xB5C5, 0xB5E0, 0xB5F5, 0xB624, 0xB640, 0xB66E,
    0xB700, 0xB715, 0xB72A, 0xB780, 0xB824, 0xB835, 0xB840, 0xB855, 0xB8B0, 0xB8E5, 0xB910, 0xB925, 0xB960, 0xB995, 0xB9B0, 0xB9C5, 0xB9D0, 0xB9E5,
    0xBA00, 0xBA35, 0xBA50, 0xBA85, 0xBAB0, 0xBAE5, 0xBBA0, 0xBBE4, 0xBC30, 0xBC64, 0xBC90, 0xBCA4, 0xBCE0, 0xBD05, 0xBD10, 0xBD74, 0xBD80, 0xBE6E,
    0xBF0A, 0xBF30, 0xC004, 0xC055, 0xC0D0, 0xC0E5, 0xC110, 0xC125, 0xC290, 0xC2A5, 0xC3A0, 0xC3C4, 0xC3D5, 0xC3E4, 0xC450, 0xC464, 0xC490, 0xC4A4,
    0xC4E0, 0xC554, 0xC570, 0xC585, 0xC5B0, 0xC5D5, 0xC5E0, 0xC605, 0xC624, 0xC640, 0xC66E, 0xC700, 0xC78A, 0xC7F0, 0xC805, 0xC814, 0xC840, 0xC855,
    0xC8D0, 0xC8E5, 0xC910, 0xC925, 0xCA90, 0xCAA5, 0xCB40, 0xCB55, 0xCBA0, 0xCBC4, 0xCBD5, 0xCBE4, 0xCC50, 0xCC64, 0xCC90, 0xCCA4, 0xCCE0, 0xCD54,
    0xCD70, 0xCDD5, 0xCDF0, 0xCE05, 0xCE24, 0xCE40, 0xCE6E, 0xCF00, 0xCF15, 0xCF34, 0xCF40, 0xD004, 0xD045, 0xD0D0, 0xD0E5, 0xD110, 0xD125, 0xD3B4,
    0xD3D5, 0xD3E4, 0xD450, 0xD464, 0xD490, 0xD4A4, 0xD4E5, 0xD4F0, 0xD545, 0xD574, 0xD58A, 0xD5F5, 0xD624, 0xD640, 0xD66E, 0xD70A, 0xD790, 0xD7A5,
    0xD800, 0xD814, 0xD840, 0xD855, 0xD970, 0xD9A5, 0xDB20, 0xDB35, 0xDBC0, 0xDBD5, 0xDBE0, 0xDC05, 0xDC70, 0xDCA4, 0xDCB0, 0xDCF4, 0xDD50, 0xDD64,
    0xDD70, 0xDD84, 0xDE00, 0xDE6E, 0xDF00, 0xDF24, 0xDF40, 0xE015, 0xE314, 0xE325, 0xE344, 0xE3B0, 0xE405, 0xE474, 0xE4F0, 0xE50E, 0xE5A0, 0xE815,
    0xE830, 0xE845, 0xE850, 0xE865, 0xE8B0, 0xE8C5, 0xEA40, 0xEA55, 0xEA60, 0xEA75, 0xEB14, 0xEB25, 0xEB44, 0xEBD5, 0xEBE0, 0xEC05, 0xEC50, 0xEC65,
    0xEC70, 0xEC84, 0xECF0, 0xED0E, 0xEDA0, 0xEDC5, 0xEE00, 0xF005, 0xF010, 0xF184, 0xF1A0, 0xF20E, 0xF2AA, 0xF340, 0xF354, 0xF360, 0xF374, 0xF380,
    0xF394, 0xF3A0, 0xF3E4, 0xF405, 0xF480, 0xF495, 0xF6D0, 0xF714, 0xF850, 0xF864, 0xF885, 0xF8D4, 0xF980, 0xF994, 0xFBD0, 0xFC64, 0xFC70, 0x10005,
    0x102B4, 0x103F5, 0x1040E, 0x104A0, 0x10505, 0x10564, 0x105A5, 0x105E4, 0x10615, 0x10624, 0x10655, 0x10674, 0x106E5, 0x10714, 0x10755, 0x10824,
    0x108E5, 0x108F4, 0x1090E, 0x109A4, 0x109E0, 0x10A05, 0x10C60, 0x10C75, 0x10C80, 0x10CD5, 0x10CE0, 0x10D05, 0x10FB0, 0x10FC5, 0x12490, 0x124A5,
    0x124E0, 0x12505, 0x12570, 0x12585, 0x12590, 0x125A5, 0x125E0, 0x12605, 0x12890, 0x128A5, 0x128E0, 0x12905, 0x12B10, 0x12B25, 0x12B60, 0x12B85,
    0x12BF0, 0x12C05, 0x12C10, 0x12C25, 0x12C60, 0x12C85, 0x12D70, 0x12D85, 0x13110, 0x13125, 0x13160, 0x13185, 0x135B0, 0x135D4, 0x13600, 0x1369A,
    0x137D0, 0x13805, 0x13900, 0x13A05, 0x13F60, 0x13F85, 0x13FE0, 0x14015, 0x166D0, 0x166F5, 0x16800, 0x16815, 0x169B0, 0x16A05, 0x16EB0, 0x16EEE,
    0x16F15, 0x16F90, 0x17005, 0x17124, 0x17160, 0x171F5, 0x17324, 0x17350, 0x17405, 0x17524, 0x17540, 0x17605, 0x176D0, 0x176E5, 0x17710, 0x17724,
    0x17740, 0x17805, 0x17B44, 0x17D40, 0x17D75, 0x17D80, 0x17DC5, 0x17DD4, 0x17DE0, 0x17E0E, 0x17EA0, 0x17F0A, 0x17FA0, 0x180B4, 0x180E0, 0x180F4,
    0x1810E, 0x181A0, 0x18205, 0x18790, 0x18805, 0x18854, 0x18875, 0x18A94, 0x18AA5, 0x18AB0, 0x18B05, 0x18F60, 0x19005, 0x191F0, 0x19204, 0x192C0,
    0x19304, 0x193C0, 0x1946E, 0x19505, 0x196E0, 0x19705, 0x19750, 0x19805, 0x19AC0, 0x19B05, 0x19CA0, 0x19D0E, 0x19DAA, 0x19DB0, 0x1A005, 0x1A174,
    0x1A1C0, 0x1A205, 0x1A554, 0x1A5F0, 0x1A604, 0x1A7D0, 0x1A7F4, 0x1A80E, 0x1A8A0, 0x1A90E, 0x1A9A0, 0x1AA75, 0x1AA80, 0x1AB04, 0x1ACF0, 0x1B004,
    0x1B055, 0x1B344, 0x1B455, 0x1B4D0, 0x1B50E, 0x1B5A0, 0x1B6B4, 0x1B740, 0x1B804, 0x1B835, 0x1BA14, 0x1BAE5, 0x1BB0E, 0x1BBA5, 0x1BE64, 0x1BF40,
    0x1C005, 0x1C244, 0x1C380, 0x1C40E, 0x1C4A0, 0x1C4D5, 0x1C50E, 0x1C5A5, 0x1C7E0, 0x1C805, 0x1C8B0, 0x1C905, 0x1CBB0, 0x1CBD5, 0x1CC00, 0x1CD04,
    0x1CD30, 0x1CD44, 0x1CE95, 0x1CED4, 0x1CEE5, 0x1CF44, 0x1CF55, 0x1CF74, 0x1CFA5, 0x1CFB0, 0x1D005, 0x1DC04, 0x1E005, 0x1F160, 0x1F185, 0x1F1E0,
    0x1F205, 0x1F460, 0x1F485, 0x1F4E0, 0x1F505, 0x1F580, 0x1F595, 0x1F5A0, 0x1F5B5, 0x1F5C0, 0x1F5D5, 0x1F5E0, 0x1F5F5, 0x1F7E0, 0x1F805, 0x1FB50,
    0x1FB65, 0x1FBD0, 0x1FBE5, 0x1FBF0, 0x1FC25, 0x1FC50, 0x1FC65, 0x1FCD0, 0x1FD05, 0x1FD40, 0x1FD65, 0x1FDC0, 0x1FE05, 0x1FED0, 0x1FF25, 0x1FF50,
    0x1FF65, 0x1FFD0, 0x200C4, 0x200E0, 0x203F4, 0x20410, 0x20544, 0x20550, 0x2070A, 0x20715, 0x20720, 0x2074A, 0x207A0, 0x207F5, 0x2080A, 0x208A0,
    0x20905, 0x209D0, 0x20D04, 0x20F10, 0x21025, 0x21030, 0x21075, 0x21080, 0x210A5, 0x21140, 0x21155, 0x21160, 0x21195, 0x211E0, 0x21245, 0x21250,
    0x21265, 0x21270, 0x21285, 0x21290, 0x212A5, 0x212E0, 0x212F5, 0x213A0, 0x213C5, 0x21400, 0x21455, 0x214A0, 0x214E5, 0x214F0, 0x2150A, 0x2160E,
    0x21835, 0x2185E, 0x2189A, 0x218A0, 0x2460A, 0x249C0, 0x24B64, 0x24EAA, 0x25000, 0x2776A, 0x27940, 0x2C005, 0x2CE50, 0x2CEB5, 0x2CEF4, 0x2CF25,
    0x2CF40, 0x2CFDA, 0x2CFE0, 0x2D005, 0x2D260, 0x2D275, 0x2D280, 0x2D2D5, 0x2D2E0, 0x2D305, 0x2D680, 0x2D6F5, 0x2D700, 0x2D7F4, 0x2D805, 0x2D970,
    0x2DA05, 0x2DA70, 0x2DA85, 0x2DAF0, 0x2DB05, 0x2DB70, 0x2DB85, 0x2DBF0, 0x2DC05, 0x2DC70, 0x2DC85, 0x2DCF0, 0x2DD05, 0x2DD70, 0x2DD85, 0x2DDF0,
    0x2DE04, 0x2E000, 0x2E2F5, 0x2E300, 0x30055, 0x3007E, 0x30080, 0x3021E, 0x302A4, 0x30300, 0x30315, 0x30360, 0x3038E, 0x303B5, 0x303D0, 0x30415,
    0x30970, 0x30994, 0x309B0, 0x309D5, 0x30A00, 0x30A15, 0x30FB0, 0x30FC5, 0x31000, 0x31055, 0x31300, 0x31315, 0x318F0, 0x3192A, 0x31960, 0x31A05,
    0x31C00, 0x31F05, 0x32000, 0x3220A, 0x322A0, 0x3248A, 0x32500, 0x3251A, 0x32600, 0x3280A, 0x328A0, 0x32B1A, 0x32C00, 0x34005, 0x4DC00, 0x4E005,
    0xA48D0, 0xA4D05, 0xA4FE0, 0xA5005, 0xA60D0, 0xA6105, 0xA620E, 0xA62A5, 0xA62C0, 0xA6405, 0xA66F4, 0xA6730, 0xA6744, 0xA67E0, 0xA67F5, 0xA69E4,
    0xA6A05, 0xA6E6E, 0xA6F04, 0xA6F20, 0xA7175, 0xA7200, 0xA7225, 0xA7890, 0xA78B5, 0xA7CE0, 0xA7D05, 0xA7D20, 0xA7D35, 0xA7D40, 0xA7D55, 0xA7DD0,
    0xA7F25, 0xA8024, 0xA8035, 0xA8064, 0xA8075, 0xA80B4, 0xA80C5, 0xA8234, 0xA8280, 0xA82C4, 0xA82D0, 0xA830A, 0xA8360, 0xA8405, 0xA8740, 0xA8804,
    0xA8825, 0xA8B44, 0xA8C60, 0xA8D0E, 0xA8DA0, 0xA8E04, 0xA8F25, 0xA8F80, 0xA8FB5, 0xA8FC0, 0xA8FD5, 0xA8FF4, 0xA900E, 0xA90A5, 0xA9264, 0xA92E0,
    0xA9305, 0xA9474, 0xA9540, 0xA9605, 0xA97D0, 0xA9804, 0xA9845, 0xA9B34, 0xA9C10, 0xA9CF5, 0xA9D0E, 0xA9DA0, 0xA9E05, 0xA9E54, 0xA9E65, 0xA9F0E,
    0xA9FA5, 0xA9FF0, 0xAA005, 0xAA294, 0xAA370, 0xAA405, 0xAA434, 0xAA445, 0xAA4C4, 0xAA4E0, 0xAA50E, 0xAA5A0, 0xAA605, 0xAA770, 0xAA7A5, 0xAA7B4,
    0xAA7E5, 0xAAB04, 0xAAB15, 0xAAB24, 0xAAB55, 0xAAB74, 0xAAB95, 0xAABE4, 0xAAC05, 0xAAC14, 0xAAC25, 0xAAC30, 0xAADB5, 0xAADE0, 0xAAE05, 0xAAEB4,
    0xAAF00, 0xAAF25, 0xAAF54, 0xAAF70, 0xAB015, 0xAB070, 0xAB095, 0xAB0F0, 0xAB115, 0xAB170, 0xAB205, 0xAB270, 0xAB285, 0xAB2F0, 0xAB305, 0xAB5B0,
    0xAB5C5, 0xAB6A0, 0xAB705, 0xABE34, 0xABEB0, 0xABEC4, 0xABEE0, 0xABF0E, 0xABFA0, 0xAC005, 0xD7A40, 0xD7B05, 0xD7C70, 0xD7CB5, 0xD7FC0, 0xF9005,
    0xFA6E0, 0xFA705, 0xFADA0, 0xFB005, 0xFB070, 0xFB135, 0xFB180, 0xFB1D5, 0xFB1E4, 0xFB1F5, 0xFB290, 0xFB2A5, 0xFB370, 0xFB385, 0xFB3D0, 0xFB3E5,
    0xFB3F0, 0xFB405, 0xFB420, 0xFB435, 0xFB450, 0xFB465, 0xFBB20, 0xFBD35, 0xFD3E0, 0xFD505, 0xFD900, 0xFD925, 0xFDC80, 0xFDF05, 0xFDFC0, 0xFE004,
    0xFE100, 0xFE204, 0xFE300, 0xFE334, 0xFE350, 0xFE4D4, 0xFE500, 0xFE705, 0xFE750, 0xFE765, 0xFEFD0, 0xFF10E, 0xFF1A0, 0xFF215, 0xFF3B0, 0xFF3F4,
    0xFF400, 0xFF415, 0xFF5B0, 0xFF665, 0xFFBF0, 0xFFC25, 0xFFC80, 0xFFCA5, 0xFFD00, 0xFFD25, 0xFFD80, 0xFFDA5, 0xFFDD0, 0x100005, 0x1000C0,
    0x1000D5, 0x100270, 0x100285, 0x1003B0, 0x1003C5, 0x1003E0, 0x1003F5, 0x1004E0, 0x100505, 0x1005E0, 0x100805, 0x100FB0, 0x10107A, 0x101340,
    0x10140E, 0x10175A, 0x101790, 0x1018AA, 0x1018C0, 0x101FD4, 0x101FE0, 0x102805, 0x1029D0, 0x102A05, 0x102D10, 0x102E04, 0x102E1A, 0x102FC0,
    0x103005, 0x10320A, 0x103240, 0x1032D5, 0x10341E, 0x103425, 0x1034AE, 0x1034B0, 0x103505, 0x103764, 0x1037B0, 0x103805, 0x1039E0, 0x103A05,
    0x103C40, 0x103C85, 0x103D00, 0x103D1E, 0x103D60, 0x104005, 0x1049E0, 0x104A0E, 0x104AA0, 0x104B05, 0x104D40, 0x104D85, 0x104FC0, 0x105005,
    0x105280, 0x105305, 0x105640, 0x105705, 0x1057B0, 0x1057C5, 0x1058B0, 0x1058C5, 0x105930, 0x105945, 0x105960, 0x105975, 0x105A20, 0x105A35,
    0x105B20, 0x105B35, 0x105BA0, 0x105BB5, 0x105BD0, 0x105C05, 0x105F40, 0x106005, 0x107370, 0x107405, 0x107560, 0x107605, 0x107680, 0x107805,
    0x107860, 0x107875, 0x107B10, 0x107B25, 0x107BB0, 0x108005, 0x108060, 0x108085, 0x108090, 0x1080A5, 0x108360, 0x108375, 0x108390, 0x1083C5,
    0x1083D0, 0x1083F5, 0x108560, 0x10858A, 0x108605, 0x108770, 0x10879A, 0x108805, 0x1089F0, 0x108A7A, 0x108B00, 0x108E05, 0x108F30, 0x108F45,
    0x108F60, 0x108FBA, 0x109005, 0x10916A, 0x1091C0, 0x109205, 0x1093A0, 0x109805, 0x109B80, 0x109BCA, 0x109BE5, 0x109C0A, 0x109D00, 0x109D2A,
    0x10A005, 0x10A014, 0x10A040, 0x10A054, 0x10A070, 0x10A0C4, 0x10A105, 0x10A140, 0x10A155, 0x10A180, 0x10A195, 0x10A360, 0x10A384, 0x10A3B0,
    0x10A3F4, 0x10A40A, 0x10A490, 0x10A605, 0x10A7DA, 0x10A7F0, 0x10A805, 0x10A9DA, 0x10AA00, 0x10AC05, 0x10AC80, 0x10AC95, 0x10AE54, 0x10AE70,
    0x10AEBA, 0x10AF00, 0x10B005, 0x10B360, 0x10B405, 0x10B560, 0x10B58A, 0x10B605, 0x10B730, 0x10B78A, 0x10B805, 0x10B920, 0x10BA9A, 0x10BB00,
    0x10C005, 0x10C490, 0x10C805, 0x10CB30, 0x10CC05, 0x10CF30, 0x10CFAA, 0x10D005, 0x10D244, 0x10D280, 0x10D30E, 0x10D3A0, 0x10D40E, 0x10D4A5,
    0x10D660, 0x10D694, 0x10D6E0, 0x10D6F5, 0x10D860, 0x10E60A, 0x10E7F0, 0x10E805, 0x10EAA0, 0x10EAB4, 0x10EAD0, 0x10EB05, 0x10EB20, 0x10EC25,
    0x10EC50, 0x10EFC4, 0x10F005, 0x10F1DA, 0x10F275, 0x10F280, 0x10F305, 0x10F464, 0x10F51A, 0x10F550, 0x10F705, 0x10F824, 0x10F860, 0x10FB05,
    0x10FC5A, 0x10FCC0, 0x10FE05, 0x10FF70, 0x110004, 0x110035, 0x110384, 0x110470, 0x11052A, 0x11066E, 0x110704, 0x110715, 0x110734, 0x110755,
    0x110760, 0x1107F4, 0x110835, 0x110B04, 0x110BB0, 0x110C24, 0x110C30, 0x110D05, 0x110E90, 0x110F0E, 0x110FA0, 0x111004, 0x111035, 0x111274,
    0x111350, 0x11136E, 0x111400, 0x111445, 0x111454, 0x111475, 0x111480, 0x111505, 0x111734, 0x111740, 0x111765, 0x111770, 0x111804, 0x111835,
    0x111B34, 0x111C15, 0x111C50, 0x111C94, 0x111CD0, 0x111CE4, 0x111D0E, 0x111DA5, 0x111DB0, 0x111DC5, 0x111DD0, 0x111E1A, 0x111F50, 0x112005,
    0x112120, 0x112135, 0x1122C4, 0x112380, 0x1123E4, 0x1123F5, 0x112414, 0x112420, 0x112805, 0x112870, 0x112885, 0x112890, 0x1128A5, 0x1128E0,
    0x1128F5, 0x1129E0, 0x1129F5, 0x112A90, 0x112B05, 0x112DF4, 0x112EB0, 0x112F0E, 0x112FA0, 0x113004, 0x113040, 0x113055, 0x1130D0, 0x1130F5,
    0x113110, 0x113135, 0x113290, 0x1132A5, 0x113310, 0x113325, 0x113340, 0x113355, 0x1133A0, 0x1133B4, 0x1133D5, 0x1133E4, 0x113450, 0x113474,
    0x113490, 0x1134B4, 0x1134E0, 0x113505, 0x113510, 0x113574, 0x113580, 0x1135D5, 0x113624, 0x113640, 0x113664, 0x1136D0, 0x113704, 0x113750,
    0x113805, 0x1138A0, 0x1138B5, 0x1138C0, 0x1138E5, 0x1138F0, 0x113905, 0x113B60, 0x113B75, 0x113B84, 0x113C10, 0x113C24, 0x113C30, 0x113C54,
    0x113C60, 0x113C74, 0x113CB0, 0x113CC4, 0x113D15, 0x113D24, 0x113D35, 0x113D40, 0x113E14, 0x113E30, 0x114005, 0x114354, 0x114475, 0x1144B0,
    0x11450E, 0x1145A0, 0x1145E4, 0x1145F5, 0x114620, 0x114805, 0x114B04, 0x114C45, 0x114C60, 0x114C75, 0x114C80, 0x114D0E, 0x114DA0, 0x115805,
    0x115AF4, 0x115B60, 0x115B84, 0x115C10, 0x115D85, 0x115DC4, 0x115DE0, 0x116005, 0x116304, 0x116410, 0x116445, 0x116450, 0x11650E, 0x1165A0,
    0x116805, 0x116AB4, 0x116B85, 0x116B90, 0x116C0E, 0x116CA0, 0x116D0E, 0x116E40, 0x117005, 0x1171B0, 0x1171D4, 0x1172C0, 0x11730E, 0x1173AA,
    0x1173C0, 0x117405, 0x117470, 0x118005, 0x1182C4, 0x1183B0, 0x118A05, 0x118E0E, 0x118EAA, 0x118F30, 0x118FF5, 0x119070, 0x119095, 0x1190A0,
    0x1190C5, 0x119140, 0x119155, 0x119170, 0x119185, 0x119304, 0x119360, 0x119374, 0x119390, 0x1193B4, 0x1193F5, 0x119404, 0x119415, 0x119424,
    0x119440, 0x11950E, 0x1195A0, 0x119A05, 0x119A80, 0x119AA5, 0x119D14, 0x119D80, 0x119DA4, 0x119E15, 0x119E20, 0x119E35, 0x119E44, 0x119E50,
    0x11A005, 0x11A014, 0x11A0B5, 0x11A334, 0x11A3A5, 0x11A3B4, 0x11A3F0, 0x11A474, 0x11A480, 0x11A505, 0x11A514, 0x11A5C5, 0x11A8A4, 0x11A9A0,
    0x11A9D5, 0x11A9E0, 0x11AB05, 0x11AF90, 0x11BC05, 0x11BE10, 0x11BF0E, 0x11BFA0, 0x11C005, 0x11C090, 0x11C0A5, 0x11C2F4, 0x11C370, 0x11C384,
    0x11C405, 0x11C410, 0x11C50E, 0x11C5AA, 0x11C6D0, 0x11C725, 0x11C900, 0x11C924, 0x11CA80, 0x11CA94, 0x11CB70, 0x11D005, 0x11D070, 0x11D085,
    0x11D0A0, 0x11D0B5, 0x11D314, 0x11D370, 0x11D3A4, 0x11D3B0, 0x11D3C4, 0x11D3E0, 0x11D3F4, 0x11D465, 0x11D474, 0x11D480, 0x11D50E, 0x11D5A0,
    0x11D605, 0x11D660, 0x11D675, 0x11D690, 0x11D6A5, 0x11D8A4, 0x11D8F0, 0x11D904, 0x11D920, 0x11D934, 0x11D985, 0x11D990, 0x11DA0E, 0x11DAA0,
    0x11DE08, 0x11DEA0, 0x11EE05, 0x11EF34, 0x11EF70, 0x11F004, 0x11F025, 0x11F034, 0x11F045, 0x11F110, 0x11F125, 0x11F344, 0x11F3B0, 0x11F3E4,
    0x11F430, 0x11F50E, 0x11F5A4, 0x11F5B0, 0x11FB05, 0x11FB10, 0x11FC0A, 0x11FD50, 0x120005, 0x1239A0, 0x12400E, 0x1246F0, 0x124805, 0x125440,
    0x12F905, 0x12FF10, 0x130005, 0x134300, 0x134404, 0x134415, 0x134474, 0x134560, 0x134605, 0x143FB0, 0x144005, 0x146470, 0x161005, 0x1611E4,
    0x16130E, 0x1613A0, 0x168005, 0x16A390, 0x16A405, 0x16A5F0, 0x16A60E, 0x16A6A0, 0x16A705, 0x16ABF0, 0x16AC0E, 0x16ACA0, 0x16AD05, 0x16AEE0,
    0x16AF04, 0x16AF50, 0x16B005, 0x16B304, 0x16B370, 0x16B405, 0x16B440, 0x16B50E, 0x16B5A0, 0x16B5BA, 0x16B620, 0x16B635, 0x16B780, 0x16B7D5,
    0x16B900, 0x16D405, 0x16D6D0, 0x16D70E, 0x16D7A0, 0x16E405, 0x16E80A, 0x16E970, 0x16F005, 0x16F4B0, 0x16F4F4, 0x16F505, 0x16F514, 0x16F880,
    0x16F8F4, 0x16F935, 0x16FA00, 0x16FE05, 0x16FE20, 0x16FE35, 0x16FE44, 0x16FE50, 0x16FF04, 0x16FF20, 0x16FF48, 0x16FF70, 0x170005, 0x187F80,
    0x188005, 0x18CD60, 0x18CFF5, 0x18D090, 0x1AFF05, 0x1AFF40, 0x1AFF55, 0x1AFFC0, 0x1AFFD5, 0x1AFFF0, 0x1B0005, 0x1B1230, 0x1B1325, 0x1B1330,
    0x1B1505, 0x1B1530, 0x1B1555, 0x1B1560, 0x1B1645, 0x1B1680, 0x1B1705, 0x1B2FC0, 0x1BC005, 0x1BC6B0, 0x1BC705, 0x1BC7D0, 0x1BC805, 0x1BC890,
    0x1BC905, 0x1BC9A0, 0x1BC9D4, 0x1BC9F0, 0x1CCF0E, 0x1CCFA0, 0x1CF004, 0x1CF2E0, 0x1CF304, 0x1CF470, 0x1D1654, 0x1D16A0, 0x1D16D4, 0x1D1730,
    0x1D17B4, 0x1D1830, 0x1D1854, 0x1D18C0, 0x1D1AA4, 0x1D1AE0, 0x1D2424, 0x1D2450, 0x1D2C0A, 0x1D2D40, 0x1D2E0A, 0x1D2F40, 0x1D360A, 0x1D3790,
    0x1D4005, 0x1D4550, 0x1D4565, 0x1D49D0, 0x1D49E5, 0x1D4A00, 0x1D4A25, 0x1D4A30, 0x1D4A55, 0x1D4A70, 0x1D4A95, 0x1D4AD0, 0x1D4AE5, 0x1D4BA0,
    0x1D4BB5, 0x1D4BC0, 0x1D4BD5, 0x1D4C40, 0x1D4C55, 0x1D5060, 0x1D5075, 0x1D50B0, 0x1D50D5, 0x1D5150, 0x1D5165, 0x1D51D0, 0x1D51E5, 0x1D53A0,
    0x1D53B5, 0x1D53F0, 0x1D5405, 0x1D5450, 0x1D5465, 0x1D5470, 0x1D54A5, 0x1D5510, 0x1D5525, 0x1D6A60, 0x1D6A85, 0x1D6C10, 0x1D6C25, 0x1D6DB0,
    0x1D6DC5, 0x1D6FB0, 0x1D6FC5, 0x1D7150, 0x1D7165, 0x1D7350, 0x1D7365, 0x1D74F0, 0x1D7505, 0x1D76F0, 0x1D7705, 0x1D7890, 0x1D78A5, 0x1D7A90,
    0x1D7AA5, 0x1D7C30, 0x1D7C45, 0x1D7CC0, 0x1D7CEE, 0x1D8000, 0x1DA004, 0x1DA370, 0x1DA3B4, 0x1DA6D0, 0x1DA754, 0x1DA760, 0x1DA844, 0x1DA850,
    0x1DA9B4, 0x1DAA00, 0x1DAA14, 0x1DAB00, 0x1DF005, 0x1DF1F0, 0x1DF255, 0x1DF2B0, 0x1E0004, 0x1E0070, 0x1E0084, 0x1E0190, 0x1E01B4, 0x1E0220,
    0x1E0234, 0x1E0250, 0x1E0264, 0x1E02B0, 0x1E0305, 0x1E06E0, 0x1E08F4, 0x1E0900, 0x1E1005, 0x1E12D0, 0x1E1304, 0x1E1375, 0x1E13E0, 0x1E140E,
    0x1E14A0, 0x1E14E5, 0x1E14F0, 0x1E2905, 0x1E2AE4, 0x1E2AF0, 0x1E2C05, 0x1E2EC4, 0x1E2F0E, 0x1E2FA0, 0x1E4D05, 0x1E4EC4, 0x1E4F0E, 0x1E4FA0,
    0x1E5D05, 0x1E5EE4, 0x1E5F05, 0x1E5F1E, 0x1E5FB0, 0x1E7E05, 0x1E7E70, 0x1E7E85, 0x1E7EC0, 0x1E7ED5, 0x1E7EF0, 0x1E7F05, 0x1E7FF0, 0x1E8005,
    0x1E8C50, 0x1E8C7A, 0x1E8D04, 0x1E8D70, 0x1E9005, 0x1E9444, 0x1E94B5, 0x1E94C0, 0x1E950E, 0x1E95A0, 0x1EC71A, 0x1ECAC0, 0x1ECADA, 0x1ECB00,
    0x1ECB1A, 0x1ECB50, 0x1ED01A, 0x1ED2E0, 0x1ED2FA, 0x1ED3E0, 0x1EE005, 0x1EE040, 0x1EE055, 0x1EE200, 0x1EE215, 0x1EE230, 0x1EE245, 0x1EE250,
    0x1EE275, 0x1EE280, 0x1EE295, 0x1EE330, 0x1EE345, 0x1EE380, 0x1EE395, 0x1EE3A0, 0x1EE3B5, 0x1EE3C0, 0x1EE425, 0x1EE430, 0x1EE475, 0x1EE480,
    0x1EE495, 0x1EE4A0, 0x1EE4B5, 0x1EE4C0, 0x1EE4D5, 0x1EE500, 0x1EE515, 0x1EE530, 0x1EE545, 0x1EE550, 0x1EE575, 0x1EE580, 0x1EE595, 0x1EE5A0,
    0x1EE5B5, 0x1EE5C0, 0x1EE5D5, 0x1EE5E0, 0x1EE5F5, 0x1EE600, 0x1EE615, 0x1EE630, 0x1EE645, 0x1EE650, 0x1EE675, 0x1EE6B0, 0x1EE6C5, 0x1EE730,
    0x1EE745, 0x1EE780, 0x1EE795, 0x1EE7D0, 0x1EE7E5, 0x1EE7F0, 0x1EE805, 0x1EE8A0, 0x1EE8B5, 0x1EE9C0, 0x1EEA15, 0x1EEA40, 0x1EEA55, 0x1EEAA0,
    0x1EEAB5, 0x1EEBC0, 0x1F100A, 0x1F10D0, 0x1F1304, 0x1F14A0, 0x1F1504, 0x1F16A0, 0x1F1704, 0x1F18A0, 0x1FBF0E, 0x1FBFA0, 0x200005, 0x2A6E00,
    0x2A7005, 0x2B73A0, 0x2B7405, 0x2B81E0, 0x2B8205, 0x2CEA20, 0x2CEB05, 0x2EBE10, 0x2EBF05, 0x2EE5E0, 0x2F8005, 0x2FA1E0, 0x300005, 0x3134B0,
    0x313505, 0x323B00, 0xE01004, 0xE01F00,
};
/*  Where what NFC has to know changes: the first character << 9 | combining class << 1 | 1 where it may change with what is before it. */
static const uint32_t ignis__char_marks[] = {
    0x601CD, 0x62BD1, 0x62DB9, 0x635D1, 0x637B1, 0x639B9, 0x64395, 0x647B9, 0x64F95, 0x653B9, 0x66803, 0x673B9, 0x67BCD, 0x68001, 0x685CD, 0x68601,
    0x68BE1, 0x68DCD, 0x68FB9, 0x695CD, 0x69BB9, 0x69E00, 0x6A1CD, 0x6A7B9, 0x6AFCD, 0x6B1D1, 0x6B3B9, 0x6B7CD, 0x6B9D3, 0x6BBD5, 0x6BFD3, 0x6C1D5,
    0x6C5D3, 0x6C7CD, 0x6E000, 0x6E801, 0x6EA00, 0x6FC01, 0x6FE00, 0x70E01, 0x71000, 0x907CD, 0x91000, 0xB23B9, 0xB25CD, 0xB2DB9, 0xB2FCD, 0xB35BD,
    0xB37B9, 0xB39CD, 0xB45B9, 0xB51CD, 0xB55B9, 0xB57CD, 0xB5BBD, 0xB5DC9, 0xB5FCD, 0xB6015, 0xB6217, 0xB6419, 0xB661B, 0xB681D, 0xB6A1F, 0xB6C21,
    0xB6E23, 0xB7025, 0xB7227, 0xB7629, 0xB782B, 0xB7A2D, 0xB7C00, 0xB7E2F, 0xB8000, 0xB8231, 0xB8433, 0xB8600, 0xB89CD, 0xB8BB9, 0xB8C00, 0xB8E25,
    0xB9000, 0xC21CD, 0xC303D, 0xC323F, 0xC3441, 0xC3600, 0xC9637, 0xC9839, 0xC9A3B, 0xC9C3D, 0xC9E3F, 0xCA041, 0xCA243, 0xCA445, 0xCA7CD, 0xCABB9,
    0xCAFCD, 0xCB9B9, 0xCBBCD, 0xCBFB9, 0xCC000, 0xCE047, 0xCE200, 0xDADCD, 0xDBA00, 0xDBFCD, 0xDC7B9, 0xDC9CD, 0xDCA00, 0xDCFCD, 0xDD200, 0xDD5B9,
    0xDD7CD, 0xDDBB9, 0xDDC00, 0xE2249, 0xE2400, 0xE61CD, 0xE63B9, 0xE65CD, 0xE69B9, 0xE6BCD, 0xE6FB9, 0xE75CD, 0xE77B9, 0xE7BCD, 0xE7DB9, 0xE7FCD,
    0xE85B9, 0xE87CD, 0xE89B9, 0xE8BCD, 0xE8DB9, 0xE8FCD, 0xE91B9, 0xE93CD, 0xE9600, 0xFD7CD, 0xFE5B9, 0xFE7CD, 0xFE800, 0x102DCD, 0x103400,
    0x1037CD, 0x104800, 0x104BCD, 0x105000, 0x1053CD, 0x105C00, 0x10B3B9, 0x10B800, 0x11A9CD, 0x11C400, 0x11C7B9, 0x11C9CD, 0x11CDB9, 0x11CFCD,
    0x11D3B9, 0x11D5CD, 0x11DBB9, 0x11E037, 0x11E239, 0x11E43B, 0x11E7CD, 0x11EDB9, 0x11EFCD, 0x11F3B9, 0x11F7CD, 0x120000, 0x12780F, 0x127A00,
    0x129A13, 0x129C00, 0x12A3CD, 0x12A5B9, 0x12A7CD, 0x12AA00, 0x12B001, 0x12C000, 0x13780F, 0x137A00, 0x137C01, 0x137E00, 0x139A13, 0x139C00,
    0x13AE01, 0x13B000, 0x13B801, 0x13BC00, 0x13BE01, 0x13C000, 0x146601, 0x146800, 0x146C01, 0x146E00, 0x14780F, 0x147A00, 0x149A13, 0x149C00,
    0x14B201, 0x14B800, 0x14BC01, 0x14BE00, 0x15780F, 0x157A00, 0x159A13, 0x159C00, 0x16780F, 0x167A00, 0x167C01, 0x167E00, 0x169A13, 0x169C00,
    0x16AC01, 0x16B000, 0x16B801, 0x16BC00, 0x177C01, 0x177E00, 0x179A13, 0x179C00, 0x17AE01, 0x17B000, 0x189A13, 0x189C00, 0x18AAA9, 0x18ACB7,
    0x18AE00, 0x19780F, 0x197A00, 0x198401, 0x198600, 0x199A13, 0x199C00, 0x19AA01, 0x19AE00, 0x1A7C01, 0x1A7E00, 0x1A9A13, 0x1A9C00, 0x1AAE01,
    0x1AB000, 0x1B9413, 0x1B9600, 0x1B9E01, 0x1BA000, 0x1BBE01, 0x1BC000, 0x1C70CF, 0x1C7413, 0x1C7600, 0x1C90D7, 0x1C9800, 0x1D70ED, 0x1D7400,
    0x1D90F5, 0x1D9800, 0x1E31B9, 0x1E3400, 0x1E6BB9, 0x1E6C00, 0x1E6FB9, 0x1E7000, 0x1E73B1, 0x1E7400, 0x1E8601, 0x1E8800, 0x1E9A01, 0x1E9C00,
    0x1EA401, 0x1EA600, 0x1EAE01, 0x1EB000, 0x1EB801, 0x1EBA00, 0x1ED201, 0x1ED400, 0x1EE303, 0x1EE505, 0x1EE601, 0x1EE909, 0x1EEA01, 0x1EEE00,
    0x1EF001, 0x1EF200, 0x1EF505, 0x1EFC00, 0x1F0105, 0x1F0201, 0x1F05CD, 0x1F0813, 0x1F0A00, 0x1F0DCD, 0x1F1000, 0x1F2601, 0x1F2800, 0x1F3A01,
    0x1F3C00, 0x1F4401, 0x1F4600, 0x1F4E01, 0x1F5000, 0x1F5801, 0x1F5A00, 0x1F7201, 0x1F7400, 0x1F8DB9, 0x1F8E00, 0x205C01, 0x205E00, 0x206E0F,
    0x207000, 0x207213, 0x207600, 0x211BB9, 0x211C00, 0x22C201, 0x22EC00, 0x235001, 0x238600, 0x26BBCD, 0x26C000, 0x2E2813, 0x2E2A00, 0x2E6813,
    0x2E6A00, 0x2FA413, 0x2FA600, 0x2FBBCD, 0x2FBC00, 0x3153C9, 0x315400, 0x3273BD, 0x3275CD, 0x3277B9, 0x327800, 0x342FCD, 0x3431B9, 0x343200,
    0x34C013, 0x34C200, 0x34EBCD, 0x34FA00, 0x34FFB9, 0x350000, 0x3561CD, 0x356BB9, 0x3577CD, 0x357BB9, 0x357C00, 0x36680F, 0x366A01, 0x366C00,
    0x368813, 0x368A00, 0x36D7CD, 0x36D9B9, 0x36DBCD, 0x36E800, 0x375413, 0x375800, 0x37CC0F, 0x37CE00, 0x37E413, 0x37E800, 0x386E0F, 0x387000,
    0x39A1CD, 0x39A600, 0x39A803, 0x39ABB9, 0x39B5CD, 0x39B9B9, 0x39C1CD, 0x39C200, 0x39C403, 0x39D200, 0x39DBB9, 0x39DC00, 0x39E9CD, 0x39EA00,
    0x39F1CD, 0x39F400, 0x3B81CD, 0x3B85B9, 0x3B87CD, 0x3B95B9, 0x3B97CD, 0x3B9BD5, 0x3B9DAD, 0x3B9FB9, 0x3BA195, 0x3BA3CD, 0x3BEC00, 0x3BF7CD,
    0x3BF9D3, 0x3BFBB9, 0x3BFDCD, 0x3BFFB9, 0x3C0000, 0x3EE201, 0x3EE400, 0x3EE601, 0x3EE800, 0x3EEA01, 0x3EEC00, 0x3EEE01, 0x3EF000, 0x3EF201,
    0x3EF400, 0x3EF601, 0x3EF800, 0x3EFA01, 0x3EFC00, 0x3F7601, 0x3F7800, 0x3F7C01, 0x3F7E00, 0x3F9201, 0x3F9400, 0x3F9601, 0x3F9800, 0x3FA601,
    0x3FA800, 0x3FB601, 0x3FB800, 0x3FC601, 0x3FC800, 0x3FD601, 0x3FD800, 0x3FDC01, 0x3FE000, 0x3FF201, 0x3FF400, 0x3FF601, 0x3FF800, 0x3FFA01,
    0x3FFC00, 0x400001, 0x400400, 0x41A1CD, 0x41A403, 0x41A9CD, 0x41B003, 0x41B7CD, 0x41BA00, 0x41C3CD, 0x41C400, 0x41CA03, 0x41CFCD, 0x41D1B9,
    0x41D3CD, 0x41D403, 0x41D9B9, 0x41E1CD, 0x41E200, 0x424C01, 0x424E00, 0x425401, 0x425800, 0x465201, 0x465600, 0x55B801, 0x55BA00, 0x59DFCD,
    0x59E400, 0x5AFE13, 0x5B0000, 0x5BC1CD, 0x5C0000, 0x6055B5, 0x6057C9, 0x6059D1, 0x605BBD, 0x605DC1, 0x606000, 0x613211, 0x613600, 0x14CDFCD,
    0x14CE000, 0x14CE9CD, 0x14CFC00, 0x14D3DCD, 0x14D4000, 0x14DE1CD, 0x14DE400, 0x1500C13, 0x1500E00, 0x1518813, 0x1518A00, 0x151C1CD, 0x151E400,
    0x15257B9, 0x1525C00, 0x152A613, 0x152A800, 0x153660F, 0x1536800, 0x1538013, 0x1538200, 0x15561CD, 0x1556200, 0x15565CD, 0x15569B9, 0x1556A00,
    0x1556FCD, 0x1557200, 0x1557DCD, 0x1558000, 0x15583CD, 0x1558400, 0x155EC13, 0x155EE00, 0x157DA13, 0x157DC00, 0x1F20001, 0x1F41C00, 0x1F42001,
    0x1F42200, 0x1F42401, 0x1F42600, 0x1F42A01, 0x1F43E00, 0x1F44001, 0x1F44200, 0x1F44401, 0x1F44600, 0x1F44A01, 0x1F44E00, 0x1F45401, 0x1F4DC00,
    0x1F4E001, 0x1F5B400, 0x1F63A01, 0x1F63C35, 0x1F63E01, 0x1F64000, 0x1F65401, 0x1F66E00, 0x1F67001, 0x1F67A00, 0x1F67C01, 0x1F67E00, 0x1F68001,
    0x1F68400, 0x1F68601, 0x1F68A00, 0x1F68C01, 0x1F69E00, 0x1FC41CD, 0x1FC4FB9, 0x1FC5DCD, 0x1FC6000, 0x203FBB9, 0x203FC00, 0x205C1B9, 0x205C200,
    0x206EDCD, 0x206F600, 0x2141BB9, 0x2141C00, 0x2141FCD, 0x2142000, 0x21471CD, 0x2147203, 0x21475B9, 0x2147600, 0x2147E13, 0x2148000, 0x215CBCD,
    0x215CDB9, 0x215CE00, 0x2208C13, 0x2208E00, 0x220FE13, 0x2210000, 0x2217213, 0x221740F, 0x2217600, 0x22201CD, 0x2220600, 0x2224E01, 0x2225000,
    0x2226613, 0x2226A00, 0x222E60F, 0x222E800, 0x2238013, 0x2238200, 0x223940F, 0x2239600, 0x2246A13, 0x2246C0F, 0x2246E00, 0x225D20F, 0x225D413,
    0x225D600, 0x226780F, 0x2267A00, 0x2267C01, 0x2267E00, 0x2269A13, 0x2269C00, 0x226AE01, 0x226B000, 0x226CDCD, 0x226DA00, 0x226E1CD, 0x226EA00,
    0x2288413, 0x2288600, 0x2288C0F, 0x2288E00, 0x2296001, 0x2296200, 0x2297401, 0x2297600, 0x2297A01, 0x2297C00, 0x2298413, 0x229860F, 0x2298800,
    0x22B5E01, 0x22B6000, 0x22B7E13, 0x22B800F, 0x22B8200, 0x22C7E13, 0x22C8000, 0x22D6C13, 0x22D6E0F, 0x22D7000, 0x22E5613, 0x22E5800, 0x2387E13,
    0x2388000, 0x2D5E003, 0x2D5EA00, 0x2D661CD, 0x2D66E00, 0x3793C03, 0x3793E00, 0x3A2BC01, 0x3A2CBB1, 0x3A2CE03, 0x3A2D400, 0x3A2DBC5, 0x3A2DDB1,
    0x3A2E600, 0x3A2F7B9, 0x3A30600, 0x3A30BCD, 0x3A315B9, 0x3A31800, 0x3A355CD, 0x3A35C00, 0x3A37601, 0x3A38200, 0x3A485CD, 0x3A48A00, 0x3C001CD,
    0x3C00E00, 0x3C011CD, 0x3C03200, 0x3C037CD, 0x3C04400, 0x3C047CD, 0x3C04A00, 0x3C04DCD, 0x3C05600, 0x3D1A1B9, 0x3D1AE00, 0x3D289CD, 0x3D2940F,
    0x3D29600, 0x5F00001, 0x5F43C00,
};
/*  A character << 42 | what it is made of, for NFD: the first << 21 | the second or 0. */
static const uint64_t ignis__char_parts[] = {
    0x3000008200300, 0x3040008200301, 0x3080008200302, 0x30C0008200303, 0x3100008200308, 0x314000820030A, 0x31C0008600327, 0x3200008A00300,
    0x3240008A00301, 0x3280008A00302, 0x32C0008A00308, 0x3300009200300, 0x3340009200301, 0x3380009200302, 0x33C0009200308, 0x3440009C00303,
    0x3480009E00300, 0x34C0009E00301, 0x3500009E00302, 0x3540009E00303, 0x3580009E00308, 0x364000AA00300, 0x368000AA00301, 0x36C000AA00302,
    0x370000AA00308, 0x374000B200301, 0x380000C200300, 0x384000C200301, 0x388000C200302, 0x38C000C200303, 0x390000C200308, 0x394000C20030A,
    0x39C000C600327, 0x3A0000CA00300, 0x3A4000CA00301, 0x3A8000CA00302, 0x3AC000CA00308, 0x3B0000D200300, 0x3B4000D200301, 0x3B8000D200302,
    0x3BC000D200308, 0x3C4000DC00303, 0x3C8000DE00300, 0x3CC000DE00301, 0x3D0000DE00302, 0x3D4000DE00303, 0x3D8000DE00308, 0x3E4000EA00300,
    0x3E8000EA00301, 0x3EC000EA00302, 0x3F0000EA00308, 0x3F4000F200301, 0x3FC000F200308, 0x4000008200304, 0x404000C200304, 0x4080008200306,
    0x40C000C200306, 0x4100008200328, 0x414000C200328, 0x4180008600301, 0x41C000C600301, 0x4200008600302, 0x424000C600302, 0x4280008600307,
    0x42C000C600307, 0x430000860030C, 0x434000C60030C, 0x438000880030C, 0x43C000C80030C, 0x4480008A00304, 0x44C000CA00304, 0x4500008A00306,
    0x454000CA00306, 0x4580008A00307, 0x45C000CA00307, 0x4600008A00328, 0x464000CA00328, 0x4680008A0030C, 0x46C000CA0030C, 0x4700008E00302,
    0x474000CE00302, 0x4780008E00306, 0x47C000CE00306, 0x4800008E00307, 0x484000CE00307, 0x4880008E00327, 0x48C000CE00327, 0x4900009000302,
    0x494000D000302, 0x4A00009200303, 0x4A4000D200303, 0x4A80009200304, 0x4AC000D200304, 0x4B00009200306, 0x4B4000D200306, 0x4B80009200328,
    0x4BC000D200328, 0x4C00009200307, 0x4D00009400302, 0x4D4000D400302, 0x4D80009600327, 0x4DC000D600327, 0x4E40009800301, 0x4E8000D800301,
    0x4EC0009800327, 0x4F0000D800327, 0x4F4000980030C, 0x4F8000D80030C, 0x50C0009C00301, 0x510000DC00301, 0x5140009C00327, 0x518000DC00327,
    0x51C0009C0030C, 0x520000DC0030C, 0x5300009E00304, 0x534000DE00304, 0x5380009E00306, 0x53C000DE00306, 0x5400009E0030B, 0x544000DE0030B,
    0x550000A400301, 0x554000E400301, 0x558000A400327, 0x55C000E400327, 0x560000A40030C, 0x564000E40030C, 0x568000A600301, 0x56C000E600301,
    0x570000A600302, 0x574000E600302, 0x578000A600327, 0x57C000E600327, 0x580000A60030C, 0x584000E60030C, 0x588000A800327, 0x58C000E800327,
    0x590000A80030C, 0x594000E80030C, 0x5A0000AA00303, 0x5A4000EA00303, 0x5A8000AA00304, 0x5AC000EA00304, 0x5B0000AA00306, 0x5B4000EA00306,
    0x5B8000AA0030A, 0x5BC000EA0030A, 0x5C0000AA0030B, 0x5C4000EA0030B, 0x5C8000AA00328, 0x5CC000EA00328, 0x5D0000AE00302, 0x5D4000EE00302,
    0x5D8000B200302, 0x5DC000F200302, 0x5E0000B200308, 0x5E4000B400301, 0x5E8000F400301, 0x5EC000B400307, 0x5F0000F400307, 0x5F4000B40030C,
    0x5F8000F40030C, 0x6800009E0031B, 0x684000DE0031B, 0x6BC000AA0031B, 0x6C0000EA0031B, 0x734000820030C, 0x738000C20030C, 0x73C000920030C,
    0x740000D20030C, 0x7440009E0030C, 0x748000DE0030C, 0x74C000AA0030C, 0x750000EA0030C, 0x754001B800304, 0x758001F800304, 0x75C001B800301,
    0x760001F800301, 0x764001B80030C, 0x768001F80030C, 0x76C001B800300, 0x770001F800300, 0x7780018800304, 0x77C001C800304, 0x7800044C00304,
    0x7840044E00304, 0x7880018C00304, 0x78C001CC00304, 0x7980008E0030C, 0x79C000CE0030C, 0x7A0000960030C, 0x7A4000D60030C, 0x7A80009E00328,
    0x7AC000DE00328, 0x7B0003D400304, 0x7B4003D600304, 0x7B80036E0030C, 0x7BC005240030C, 0x7C0000D40030C, 0x7D00008E00301, 0x7D4000CE00301,
    0x7E00009C00300, 0x7E4000DC00300, 0x7E80018A00301, 0x7EC001CA00301, 0x7F00018C00301, 0x7F4001CC00301, 0x7F8001B000301, 0x7FC001F000301,
    0x800000820030F, 0x804000C20030F, 0x8080008200311, 0x80C000C200311, 0x8100008A0030F, 0x814000CA0030F, 0x8180008A00311, 0x81C000CA00311,
    0x820000920030F, 0x824000D20030F, 0x8280009200311, 0x82C000D200311, 0x8300009E0030F, 0x834000DE0030F, 0x8380009E00311, 0x83C000DE00311,
    0x840000A40030F, 0x844000E40030F, 0x848000A400311, 0x84C000E400311, 0x850000AA0030F, 0x854000EA0030F, 0x858000AA00311, 0x85C000EA00311,
    0x860000A600326, 0x864000E600326, 0x868000A800326, 0x86C000E800326, 0x878000900030C, 0x87C000D00030C, 0x8980008200307, 0x89C000C200307,
    0x8A00008A00327, 0x8A4000CA00327, 0x8A8001AC00304, 0x8AC001EC00304, 0x8B0001AA00304, 0x8B4001EA00304, 0x8B80009E00307, 0x8BC000DE00307,
    0x8C00045C00304, 0x8C40045E00304, 0x8C8000B200304, 0x8CC000F200304, 0xD000060000000, 0xD040060200000, 0xD0C0062600000, 0xD100061000301,
    0xDD00057200000, 0xDF80007600000, 0xE140015000301, 0xE180072200301, 0xE1C0016E00000, 0xE200072A00301, 0xE240072E00301, 0xE280073200301,
    0xE300073E00301, 0xE380074A00301, 0xE3C0075200301, 0xE400079400301, 0xEA80073200308, 0xEAC0074A00308, 0xEB00076200301, 0xEB40076A00301,
    0xEB80076E00301, 0xEBC0077200301, 0xEC00079600301, 0xF280077200308, 0xF2C0078A00308, 0xF300077E00301, 0xF340078A00301, 0xF380079200301,
    0xF4C007A400301, 0xF50007A400308, 0x10000082A00300, 0x10040082A00308, 0x100C0082600301, 0x101C0080C00308, 0x10300083400301, 0x10340083000300,
    0x10380084600306, 0x10640083000306, 0x10E40087000306, 0x11400086A00300, 0x11440086A00308, 0x114C0086600301, 0x115C008AC00308, 0x11700087400301,
    0x11740087000300, 0x11780088600306, 0x11D8008E80030F, 0x11DC008EA0030F, 0x13040082C00306, 0x13080086C00306, 0x13400082000306, 0x13440086000306,
    0x13480082000308, 0x134C0086000308, 0x13580082A00306, 0x135C0086A00306, 0x1368009B000308, 0x136C009B200308, 0x13700082C00308, 0x13740086C00308,
    0x13780082E00308, 0x137C0086E00308, 0x13880083000304, 0x138C0087000304, 0x13900083000308, 0x13940087000308, 0x13980083C00308, 0x139C0087C00308,
    0x13A8009D000308, 0x13AC009D200308, 0x13B00085A00308, 0x13B40089A00308, 0x13B80084600304, 0x13BC0088600304, 0x13C00084600308, 0x13C40088600308,
    0x13C8008460030B, 0x13CC008860030B, 0x13D00084E00308, 0x13D40088E00308, 0x13E00085600308, 0x13E40089600308, 0x188800C4E00653, 0x188C00C4E00654,
    0x189000C9000654, 0x189400C4E00655, 0x189800C9400654, 0x1B0000DAA00654, 0x1B0800D8200654, 0x1B4C00DA400654, 0x24A4012500093C, 0x24C4012600093C,
    0x24D0012660093C, 0x25600122A0093C, 0x25640122C0093C, 0x25680122E0093C, 0x256C012380093C, 0x2570012420093C, 0x2574012440093C, 0x2578012560093C,
    0x257C0125E0093C, 0x272C0138E009BE, 0x27300138E009D7, 0x277001342009BC, 0x277401344009BC, 0x277C0135E009BC, 0x28CC0146400A3C, 0x28D80147000A3C,
    0x29640142C00A3C, 0x29680142E00A3C, 0x296C0143800A3C, 0x29780145600A3C, 0x2D200168E00B56, 0x2D2C0168E00B3E, 0x2D300168E00B57, 0x2D700164200B3C,
    0x2D740164400B3C, 0x2E500172400BD7, 0x2F280178C00BBE, 0x2F2C0178E00BBE, 0x2F300178C00BD7, 0x31200188C00C56, 0x33000197E00CD5, 0x331C0198C00CD5,
    0x33200198C00CD6, 0x33280198C00CC2, 0x332C0199400CD5, 0x352801A8C00D3E, 0x352C01A8E00D3E, 0x353001A8C00D57, 0x376801BB200DCA, 0x377001BB200DCF,
    0x377401BB800DCA, 0x377801BB200DDF, 0x3D0C01E8400FB7, 0x3D3401E9800FB7, 0x3D4801EA200FB7, 0x3D5C01EAC00FB7, 0x3D7001EB600FB7, 0x3DA401E8000FB5,
    0x3DCC01EE200F72, 0x3DD401EE200F74, 0x3DD801F6400F80, 0x3DE001F6600F80, 0x3E0401EE200F80, 0x3E4C01F2400FB7, 0x3E7401F3800FB7, 0x3E8801F4200FB7,
    0x3E9C01F4C00FB7, 0x3EB001F5600FB7, 0x3EE401F2000FB5, 0x40980204A0102E, 0x6C180360A01B35, 0x6C200360E01B35, 0x6C280361201B35, 0x6C300361601B35,
    0x6C380361A01B35, 0x6C480362201B35, 0x6CEC0367401B35, 0x6CF40367801B35, 0x6D000367C01B35, 0x6D040367E01B35, 0x6D0C0368401B35, 0x78000008200325,
    0x7804000C200325, 0x78080008400307, 0x780C000C400307, 0x78100008400323, 0x7814000C400323, 0x78180008400331, 0x781C000C400331, 0x78200018E00301,
    0x7824001CE00301, 0x78280008800307, 0x782C000C800307, 0x78300008800323, 0x7834000C800323, 0x78380008800331, 0x783C000C800331, 0x78400008800327,
    0x7844000C800327, 0x7848000880032D, 0x784C000C80032D, 0x78500022400300, 0x78540022600300, 0x78580022400301, 0x785C0022600301, 0x78600008A0032D,
    0x7864000CA0032D, 0x78680008A00330, 0x786C000CA00330, 0x78700045000306, 0x78740045200306, 0x78780008C00307, 0x787C000CC00307, 0x78800008E00304,
    0x7884000CE00304, 0x78880009000307, 0x788C000D000307, 0x78900009000323, 0x7894000D000323, 0x78980009000308, 0x789C000D000308, 0x78A00009000327,
    0x78A4000D000327, 0x78A8000900032E, 0x78AC000D00032E, 0x78B00009200330, 0x78B4000D200330, 0x78B80019E00301, 0x78BC001DE00301, 0x78C00009600301,
    0x78C4000D600301, 0x78C80009600323, 0x78CC000D600323, 0x78D00009600331, 0x78D4000D600331, 0x78D80009800323, 0x78DC000D800323, 0x78E003C6C00304,
    0x78E403C6E00304, 0x78E80009800331, 0x78EC000D800331, 0x78F0000980032D, 0x78F4000D80032D, 0x78F80009A00301, 0x78FC000DA00301, 0x79000009A00307,
    0x7904000DA00307, 0x79080009A00323, 0x790C000DA00323, 0x79100009C00307, 0x7914000DC00307, 0x79180009C00323, 0x791C000DC00323, 0x79200009C00331,
    0x7924000DC00331, 0x79280009C0032D, 0x792C000DC0032D, 0x7930001AA00301, 0x7934001EA00301, 0x7938001AA00308, 0x793C001EA00308, 0x79400029800300,
    0x79440029A00300, 0x79480029800301, 0x794C0029A00301, 0x7950000A000301, 0x7954000E000301, 0x7958000A000307, 0x795C000E000307, 0x7960000A400307,
    0x7964000E400307, 0x7968000A400323, 0x796C000E400323, 0x797003CB400304, 0x797403CB600304, 0x7978000A400331, 0x797C000E400331, 0x7980000A600307,
    0x7984000E600307, 0x7988000A600323, 0x798C000E600323, 0x7990002B400307, 0x7994002B600307, 0x7998002C000307, 0x799C002C200307, 0x79A003CC400307,
    0x79A403CC600307, 0x79A8000A800307, 0x79AC000E800307, 0x79B0000A800323, 0x79B4000E800323, 0x79B8000A800331, 0x79BC000E800331, 0x79C0000A80032D,
    0x79C4000E80032D, 0x79C8000AA00324, 0x79CC000EA00324, 0x79D0000AA00330, 0x79D4000EA00330, 0x79D8000AA0032D, 0x79DC000EA0032D, 0x79E0002D000301,
    0x79E4002D200301, 0x79E8002D400308, 0x79EC002D600308, 0x79F0000AC00303, 0x79F4000EC00303, 0x79F8000AC00323, 0x79FC000EC00323, 0x7A00000AE00300,
    0x7A04000EE00300, 0x7A08000AE00301, 0x7A0C000EE00301, 0x7A10000AE00308, 0x7A14000EE00308, 0x7A18000AE00307, 0x7A1C000EE00307, 0x7A20000AE00323,
    0x7A24000EE00323, 0x7A28000B000307, 0x7A2C000F000307, 0x7A30000B000308, 0x7A34000F000308, 0x7A38000B200307, 0x7A3C000F200307, 0x7A40000B400302,
    0x7A44000F400302, 0x7A48000B400323, 0x7A4C000F400323, 0x7A50000B400331, 0x7A54000F400331, 0x7A58000D000331, 0x7A5C000E800308, 0x7A60000EE0030A,
    0x7A64000F20030A, 0x7A6C002FE00307, 0x7A800008200323, 0x7A84000C200323, 0x7A880008200309, 0x7A8C000C200309, 0x7A900018400301, 0x7A94001C400301,
    0x7A980018400300, 0x7A9C001C400300, 0x7AA00018400309, 0x7AA4001C400309, 0x7AA80018400303, 0x7AAC001C400303, 0x7AB003D4000302, 0x7AB403D4200302,
    0x7AB80020400301, 0x7ABC0020600301, 0x7AC00020400300, 0x7AC40020600300, 0x7AC80020400309, 0x7ACC0020600309, 0x7AD00020400303, 0x7AD40020600303,
    0x7AD803D4000306, 0x7ADC03D4200306, 0x7AE00008A00323, 0x7AE4000CA00323, 0x7AE80008A00309, 0x7AEC000CA00309, 0x7AF00008A00303, 0x7AF4000CA00303,
    0x7AF80019400301, 0x7AFC001D400301, 0x7B000019400300, 0x7B04001D400300, 0x7B080019400309, 0x7B0C001D400309, 0x7B100019400303, 0x7B14001D400303,
    0x7B1803D7000302, 0x7B1C03D7200302, 0x7B200009200309, 0x7B24000D200309, 0x7B280009200323, 0x7B2C000D200323, 0x7B300009E00323, 0x7B34000DE00323,
    0x7B380009E00309, 0x7B3C000DE00309, 0x7B40001A800301, 0x7B44001E800301, 0x7B48001A800300, 0x7B4C001E800300, 0x7B50001A800309, 0x7B54001E800309,
    0x7B58001A800303, 0x7B5C001E800303, 0x7B6003D9800302, 0x7B6403D9A00302, 0x7B680034000301, 0x7B6C0034200301, 0x7B700034000300, 0x7B740034200300,
    0x7B780034000309, 0x7B7C0034200309, 0x7B800034000303, 0x7B840034200303, 0x7B880034000323, 0x7B8C0034200323, 0x7B90000AA00323, 0x7B94000EA00323,
    0x7B98000AA00309, 0x7B9C000EA00309, 0x7BA00035E00301, 0x7BA40036000301, 0x7BA80035E00300, 0x7BAC0036000300, 0x7BB00035E00309, 0x7BB40036000309,
    0x7BB80035E00303, 0x7BBC0036000303, 0x7BC00035E00323, 0x7BC40036000323, 0x7BC8000B200300, 0x7BCC000F200300, 0x7BD0000B200323, 0x7BD4000F200323,
    0x7BD8000B200309, 0x7BDC000F200309, 0x7BE0000B200303, 0x7BE4000F200303, 0x7C000076200313, 0x7C040076200314, 0x7C0803E0000300, 0x7C0C03E0200300,
    0x7C1003E0000301, 0x7C1403E0200301, 0x7C1803E0000342, 0x7C1C03E0200342, 0x7C200072200313, 0x7C240072200314, 0x7C2803E1000300, 0x7C2C03E1200300,
    0x7C3003E1000301, 0x7C3403E1200301, 0x7C3803E1000342, 0x7C3C03E1200342, 0x7C400076A00313, 0x7C440076A00314, 0x7C4803E2000300, 0x7C4C03E2200300,
    0x7C5003E2000301, 0x7C5403E2200301, 0x7C600072A00313, 0x7C640072A00314, 0x7C6803E3000300, 0x7C6C03E3200300, 0x7C7003E3000301, 0x7C7403E3200301,
    0x7C800076E00313, 0x7C840076E00314, 0x7C8803E4000300, 0x7C8C03E4200300, 0x7C9003E4000301, 0x7C9403E4200301, 0x7C9803E4000342, 0x7C9C03E4200342,
    0x7CA00072E00313, 0x7CA40072E00314, 0x7CA803E5000300, 0x7CAC03E5200300, 0x7CB003E5000301, 0x7CB403E5200301, 0x7CB803E5000342, 0x7CBC03E5200342,
    0x7CC00077200313, 0x7CC40077200314, 0x7CC803E6000300, 0x7CCC03E6200300, 0x7CD003E6000301, 0x7CD403E6200301, 0x7CD803E6000342, 0x7CDC03E6200342,
    0x7CE00073200313, 0x7CE40073200314, 0x7CE803E7000300, 0x7CEC03E7200300, 0x7CF003E7000301, 0x7CF403E7200301, 0x7CF803E7000342, 0x7CFC03E7200342,
    0x7D000077E00313, 0x7D040077E00314, 0x7D0803E8000300, 0x7D0C03E8200300, 0x7D1003E8000301, 0x7D1403E8200301, 0x7D200073E00313, 0x7D240073E00314,
    0x7D2803E9000300, 0x7D2C03E9200300, 0x7D3003E9000301, 0x7D3403E9200301, 0x7D400078A00313, 0x7D440078A00314, 0x7D4803EA000300, 0x7D4C03EA200300,
    0x7D5003EA000301, 0x7D5403EA200301, 0x7D5803EA000342, 0x7D5C03EA200342, 0x7D640074A00314, 0x7D6C03EB200300, 0x7D7403EB200301, 0x7D7C03EB200342,
    0x7D800079200313, 0x7D840079200314, 0x7D8803EC000300, 0x7D8C03EC200300, 0x7D9003EC000301, 0x7D9403EC200301, 0x7D9803EC000342, 0x7D9C03EC200342,
    0x7DA00075200313, 0x7DA40075200314, 0x7DA803ED000300, 0x7DAC03ED200300, 0x7DB003ED000301, 0x7DB403ED200301, 0x7DB803ED000342, 0x7DBC03ED200342,
    0x7DC00076200300, 0x7DC40076200301, 0x7DC80076A00300, 0x7DCC0076A00301, 0x7DD00076E00300, 0x7DD40076E00301, 0x7DD80077200300, 0x7DDC0077200301,
    0x7DE00077E00300, 0x7DE40077E00301, 0x7DE80078A00300, 0x7DEC0078A00301, 0x7DF00079200300, 0x7DF40079200301, 0x7E0003E0000345, 0x7E0403E0200345,
    0x7E0803E0400345, 0x7E0C03E0600345, 0x7E1003E0800345, 0x7E1403E0A00345, 0x7E1803E0C00345, 0x7E1C03E0E00345, 0x7E2003E1000345, 0x7E2403E1200345,
    0x7E2803E1400345, 0x7E2C03E1600345, 0x7E3003E1800345, 0x7E3403E1A00345, 0x7E3803E1C00345, 0x7E3C03E1E00345, 0x7E4003E4000345, 0x7E4403E4200345,
    0x7E4803E4400345, 0x7E4C03E4600345, 0x7E5003E4800345, 0x7E5403E4A00345, 0x7E5803E4C00345, 0x7E5C03E4E00345, 0x7E6003E5000345, 0x7E6403E5200345,
    0x7E6803E5400345, 0x7E6C03E5600345, 0x7E7003E5800345, 0x7E7403E5A00345, 0x7E7803E5C00345, 0x7E7C03E5E00345, 0x7E8003EC000345, 0x7E8403EC200345,
    0x7E8803EC400345, 0x7E8C03EC600345, 0x7E9003EC800345, 0x7E9403ECA00345, 0x7E9803ECC00345, 0x7E9C03ECE00345, 0x7EA003ED000345, 0x7EA403ED200345,
    0x7EA803ED400345, 0x7EAC03ED600345, 0x7EB003ED800345, 0x7EB403EDA00345, 0x7EB803EDC00345, 0x7EBC03EDE00345, 0x7EC00076200306, 0x7EC40076200304,
    0x7EC803EE000345, 0x7ECC0076200345, 0x7ED00075800345, 0x7ED80076200342, 0x7EDC03F6C00345, 0x7EE00072200306, 0x7EE40072200304, 0x7EE80072200300,
    0x7EEC0072200301, 0x7EF00072200345, 0x7EF80077200000, 0x7F040015000342, 0x7F0803EE800345, 0x7F0C0076E00345, 0x7F100075C00345, 0x7F180076E00342,
    0x7F1C03F8C00345, 0x7F200072A00300, 0x7F240072A00301, 0x7F280072E00300, 0x7F2C0072E00301, 0x7F300072E00345, 0x7F3403F7E00300, 0x7F3803F7E00301,
    0x7F3C03F7E00342, 0x7F400077200306, 0x7F440077200304, 0x7F480079400300, 0x7F4C0079400301, 0x7F580077200342, 0x7F5C0079400342, 0x7F600073200306,
    0x7F640073200304, 0x7F680073200300, 0x7F6C0073200301, 0x7F7403FFC00300, 0x7F7803FFC00301, 0x7F7C03FFC00342, 0x7F800078A00306, 0x7F840078A00304,
    0x7F880079600300, 0x7F8C0079600301, 0x7F900078200313, 0x7F940078200314, 0x7F980078A00342, 0x7F9C0079600342, 0x7FA00074A00306, 0x7FA40074A00304,
    0x7FA80074A00300, 0x7FAC0074A00301, 0x7FB00074200314, 0x7FB40015000300, 0x7FB80015000301, 0x7FBC000C000000, 0x7FC803EF800345, 0x7FCC0079200345,
    0x7FD00079C00345, 0x7FD80079200342, 0x7FDC03FEC00345, 0x7FE00073E00300, 0x7FE40073E00301, 0x7FE80075200300, 0x7FEC0075200301, 0x7FF00075200345,
    0x7FF40016800000, 0x80000400400000, 0x80040400600000, 0x84980075200000, 0x84A80009600000, 0x84AC000820030A, 0x86680432000338, 0x866C0432400338,
    0x86B80432800338, 0x8734043A000338, 0x8738043A800338, 0x873C043A400338, 0x88100440600338, 0x88240441000338, 0x88300441600338, 0x88900444600338,
    0x88980444A00338, 0x89040447800338, 0x89100448600338, 0x891C0448A00338, 0x89240449000338, 0x89800007A00338, 0x8988044C200338, 0x89B40449A00338,
    0x89B80007800338, 0x89BC0007C00338, 0x89C0044C800338, 0x89C4044CA00338, 0x89D0044E400338, 0x89D4044E600338, 0x89E0044EC00338, 0x89E4044EE00338,
    0x8A00044F400338, 0x8A04044F600338, 0x8A100450400338, 0x8A140450600338, 0x8A200450C00338, 0x8A240450E00338, 0x8AB00454400338, 0x8AB40455000338,
    0x8AB80455200338, 0x8ABC0455600338, 0x8B80044F800338, 0x8B84044FA00338, 0x8B880452200338, 0x8B8C0452400338, 0x8BA80456400338, 0x8BAC0456600338,
    0x8BB00456800338, 0x8BB40456A00338, 0x8CA40601000000, 0x8CA80601200000, 0xAB70055BA00338, 0xC1300609603099, 0xC1380609A03099, 0xC1400609E03099,
    0xC148060A203099, 0xC150060A603099, 0xC158060AA03099, 0xC160060AE03099, 0xC168060B203099, 0xC170060B603099, 0xC178060BA03099, 0xC180060BE03099,
    0xC188060C203099, 0xC194060C803099, 0xC19C060CC03099, 0xC1A4060D003099, 0xC1C0060DE03099, 0xC1C4060DE0309A, 0xC1CC060E403099, 0xC1D0060E40309A,
    0xC1D8060EA03099, 0xC1DC060EA0309A, 0xC1E4060F003099, 0xC1E8060F00309A, 0xC1F0060F603099, 0xC1F4060F60309A, 0xC2500608C03099, 0xC2780613A03099,
    0xC2B00615603099, 0xC2B80615A03099, 0xC2C00615E03099, 0xC2C80616203099, 0xC2D00616603099, 0xC2D80616A03099, 0xC2E00616E03099, 0xC2E80617203099,
    0xC2F00617603099, 0xC2F80617A03099, 0xC3000617E03099, 0xC3080618203099, 0xC3140618803099, 0xC31C0618C03099, 0xC3240619003099, 0xC3400619E03099,
    0xC3440619E0309A, 0xC34C061A403099, 0xC350061A40309A, 0xC358061AA03099, 0xC35C061AA0309A, 0xC364061B003099, 0xC368061B00309A, 0xC370061B603099,
    0xC374061B60309A, 0xC3D00614C03099, 0xC3DC061DE03099, 0xC3E0061E003099, 0xC3E4061E203099, 0xC3E8061E403099, 0xC3F8061FA03099, 0x3E4001189000000,
    0x3E4040CDE800000, 0x3E40811D9400000, 0x3E40C1199000000, 0x3E4100DDA200000, 0x3E41409C6400000, 0x3E4180A7CA00000, 0x3E41C13F3800000,
    0x3E42013F3800000, 0x3E4240B2A200000, 0x3E428123A200000, 0x3E42C0AB0E00000, 0x3E4300B29000000, 0x3E4340C3EC00000, 0x3E4380ECD200000,
    0x3E43C0FF0A00000, 0x3E44010C7E00000, 0x3E44410F7400000, 0x3E448111F000000, 0x3E44C1211E00000, 0x3E4500D40400000, 0x3E4540DA3600000,
    0x3E4580E1B200000, 0x3E45C0E7BC00000, 0x3E4601087A00000, 0x3E464122D400000, 0x3E468133E200000, 0x3E46C09D0400000, 0x3E4700A6EA00000,
    0x3E4740D60800000, 0x3E4780E43600000, 0x3E47C10C5A00000, 0x3E48013C3C00000, 0x3E4840BAA000000, 0x3E4880DFD600000, 0x3E48C10B9A00000,
    0x3E490112C800000, 0x3E4940C59200000, 0x3E498103B000000, 0x3E49C1103E00000, 0x3E4A00BD9400000, 0x3E4A40CE2E00000, 0x3E4A80DAD400000,
    0x3E4AC0E5F800000, 0x3E4B01219C00000, 0x3E4B409F0C00000, 0x3E4B80A36E00000, 0x3E4BC0A5BC00000, 0x3E4C00C98800000, 0x3E4C40D5A600000,
    0x3E4C80E42000000, 0x3E4CC0EDCE00000, 0x3E4D01000200000, 0x3E4D410C0C00000, 0x3E4D810CB800000, 0x3E4DC11BDE00000, 0x3E4E012E6400000,
    0x3E4E4136DE00000, 0x3E4E813BF400000, 0x3E4EC0F11800000, 0x3E4F00F2FE00000, 0x3E4F40FB4000000, 0x3E4F81079200000, 0x3E4FC1260800000,
    0x3E50013CFE00000, 0x3E504115AC00000, 0x3E5080B1BE00000, 0x3E50C0BE0800000, 0x3E5100F8C000000, 0x3E514100FC00000, 0x3E5180E4C400000,
    0x3E51C0F19400000, 0x3E5201198400000, 0x3E52412DEE00000, 0x3E5280B1B000000, 0x3E52C0B8C400000, 0x3E5300D42600000, 0x3E5340DBB400000,
    0x3E5380DE1E00000, 0x3E53C0FA5E00000, 0x3E5400FC6E00000, 0x3E54412C9600000, 0x3E5480A5A400000, 0x3E54C1011600000, 0x3E5500A3B800000,
    0x3E5540A39800000, 0x3E5580F43800000, 0x3E55C0FB7C00000, 0x3E560107E200000, 0x3E56412CEA00000, 0x3E5681170000000, 0x3E56C0C59E00000,
    0x3E5700D40400000, 0x3E574115FC00000, 0x3E57809C7200000, 0x3E57C0B7CE00000, 0x3E5800C02400000, 0x3E5840E70E00000, 0x3E5880EAE000000,
    0x3E58C0A62E00000, 0x3E5900F1F600000, 0x3E59409F7E00000, 0x3E5980BF5200000, 0x3E59C09C1A00000, 0x3E5A00D99800000, 0x3E5A40CAF000000,
    0x3E5A80FA4400000, 0x3E5AC0A78600000, 0x3E5B00B0BC00000, 0x3E5B40EE0200000, 0x3E5B81089200000, 0x3E5BC1155400000, 0x3E5C00D77400000,
    0x3E5C411F6000000, 0x3E5C80D91000000, 0x3E5CC0C5FC00000, 0x3E5D0105CA00000, 0x3E5D40C74000000, 0x3E5D80EACA00000, 0x3E5DC09D5C00000,
    0x3E5E00A2D200000, 0x3E5E40A39200000, 0x3E5E80D10200000, 0x3E5EC0F9CE00000, 0x3E5F0104DE00000, 0x3E5F4115A400000, 0x3E5F81239E00000,
    0x3E5FC0A5EA00000, 0x3E6000A88400000, 0x3E6040B2E600000, 0x3E6080BDD800000, 0x3E60C0CB8A00000, 0x3E6100DFFC00000, 0x3E6140F25400000,
    0x3E61812B5A00000, 0x3E61C134D400000, 0x3E62013D2E00000, 0x3E62413D9C00000, 0x3E6280A53600000, 0x3E62C0CD8C00000, 0x3E6300D6EE00000,
    0x3E63411EC400000, 0x3E6380BCE800000, 0x3E63C0C32000000, 0x3E6400C40000000, 0x3E6440C93400000, 0x3E6480DE4600000, 0x3E64C0E29200000,
    0x3E6500E91200000, 0x3E6540F39400000, 0x3E6580FBE800000, 0x3E65C100DE00000, 0x3E66011E4C00000, 0x3E664109DC00000, 0x3E6681204600000,
    0x3E66C1269400000, 0x3E6700A42E00000, 0x3E6740A54600000, 0x3E6780A97A00000, 0x3E67C0E19000000, 0x3E6801118400000, 0x3E6841155400000,
    0x3E6880BD9200000, 0x3E68C0BFEA00000, 0x3E6900C6F600000, 0x3E6940D75C00000, 0x3E6980F87C00000, 0x3E69C0E6EA00000, 0x3E6A009DC800000,
    0x3E6A40ADF200000, 0x3E6A80B7CE00000, 0x3E6AC0BB7400000, 0x3E6B00C03800000, 0x3E6B40E76400000, 0x3E6B80E8D200000, 0x3E6BC0FF3400000,
    0x3E6C01008C00000, 0x3E6C41246800000, 0x3E6C812DEC00000, 0x3E6CC12E9000000, 0x3E6D01303000000, 0x3E6D409F1600000, 0x3E6D80F35C00000,
    0x3E6DC1236800000, 0x3E6E012D7000000, 0x3E6E40C1C200000, 0x3E6E809D0C00000, 0x3E6EC0A1B400000, 0x3E6F00B7DC00000, 0x3E6F40B87E00000,
    0x3E6F80CB3200000, 0x3E6FC0D40400000, 0x3E7000E39C00000, 0x3E7040EC8400000, 0x3E708109F800000, 0x3E70C120F800000, 0x3E71013F1A00000,
    0x3E7140CD1000000, 0x3E71812C5C00000, 0x3E71C0A51200000, 0x3E7200CEF600000, 0x3E7240CFE600000, 0x3E7280DA8200000, 0x3E72C0DD3800000,
    0x3E7300E81200000, 0x3E7340EAB200000, 0x3E7380F0D600000, 0x3E73C0FA2000000, 0x3E740130BC00000, 0x3E7440A2DA00000, 0x3E7480C45C00000,
    0x3E74C12CF000000, 0x3E7500A05600000, 0x3E7540BA3200000, 0x3E7580DBD400000, 0x3E75C11E5400000, 0x3E7600BF1600000, 0x3E7640C28800000,
    0x3E7680D02E00000, 0x3E76C0E70E00000, 0x3E77012D0C00000, 0x3E7740A45200000, 0x3E7780A81E00000, 0x3E77C0B8CA00000, 0x3E7800CC2600000,
    0x3E7840CE9C00000, 0x3E7880D15000000, 0x3E78C0D9CA00000, 0x3E7900E80C00000, 0x3E7940EBC400000, 0x3E7980FEF200000, 0x3E79C1119E00000,
    0x3E7A0111C200000, 0x3E7A41239800000, 0x3E7A812DC400000, 0x3E7AC0A67E00000, 0x3E7B00DD7400000, 0x3E7B40A83A00000, 0x3E7B80E3A000000,
    0x3E7BC0E93000000, 0x3E7C010BF400000, 0x3E7C412D4600000, 0x3E7C8138AE00000, 0x3E7CC13D3E00000, 0x3E7D00CF2E00000, 0x3E7D40DB9600000,
    0x3E7D8103D000000, 0x3E7DC0F59600000, 0x3E7E00F64000000, 0x3E7E40F92400000, 0x3E7E80E58000000, 0x3E7EC0E13200000, 0x3E7F0116B000000,
    0x3E7F409D8000000, 0x3E7F81066C00000, 0x3E7FC0A47400000, 0x3E8000A40E00000, 0x3E8040BD4C00000, 0x3E8080C5A600000, 0x3E80C0F9AC00000,
    0x3E8100B70A00000, 0x3E8140DA3C00000, 0x3E8180CD6800000, 0x3E81C11E7600000, 0x3E8201109800000, 0x3E82412C9A00000, 0x3E8281131600000,
    0x3E82C0BDA600000, 0x3E8300A28000000, 0x3E8340AB8000000, 0x3E8400B0B400000, 0x3E8480CCE800000, 0x3E8540A3BC00000, 0x3E8580E65400000,
    0x3E85C0ED9400000, 0x3E8600F27800000, 0x3E8640F2BC00000, 0x3E8680F2CA00000, 0x3E86C0F31E00000, 0x3E87012EAC00000, 0x3E8740F97C00000,
    0x3E8780FF7A00000, 0x3E88010C2400000, 0x3E888115F000000, 0x3E8941207000000, 0x3E898121FA00000, 0x3E8A8131DE00000, 0x3E8AC131F800000,
    0x3E8B01325000000, 0x3E8B413B6800000, 0x3E8B8121BC00000, 0x3E8BC12D6E00000, 0x3E8C009F5C00000, 0x3E8C40A1CE00000, 0x3E8C80A29A00000,
    0x3E8CC0A59200000, 0x3E8D00A5C800000, 0x3E8D40A6A200000, 0x3E8D80AB3A00000, 0x3E8DC0AC0C00000, 0x3E8E00ACD000000, 0x3E8E40B08000000,
    0x3E8E80B15000000, 0x3E8EC0B8C800000, 0x3E8F00B8DC00000, 0x3E8F40C12800000, 0x3E8F80C2D000000, 0x3E8FC0C31C00000, 0x3E9000C3E400000,
    0x3E9040CA9E00000, 0x3E9080CBC400000, 0x3E90C0CD2200000, 0x3E9100D10A00000, 0x3E9140DAEE00000, 0x3E9180DC3400000, 0x3E91C0DE4400000,
    0x3E9200E2DC00000, 0x3E9240E45600000, 0x3E9280E84400000, 0x3E92C0F12200000, 0x3E9300F27C00000, 0x3E9340F29200000, 0x3E9380F29000000,
    0x3E93C0F2A000000, 0x3E9400F2AC00000, 0x3E9440F2BA00000, 0x3E9480F31A00000, 0x3E94C0F31C00000, 0x3E9500F48000000, 0x3E9540F50200000,
    0x3E9580F78000000, 0x3E95C0FBE800000, 0x3E9600FC1200000, 0x3E9640FC8200000, 0x3E9680FEE400000, 0x3E96C1000A00000, 0x3E970103DA00000,
    0x3E974104F200000, 0x3E978104F200000, 0x3E97C108AE00000, 0x3E9801122000000, 0x3E9841132C00000, 0x3E9881160200000, 0x3E98C1167200000,
    0x3E990119A600000, 0x3E99411A1000000, 0x3E99811F6C00000, 0x3E99C1207000000, 0x3E9A012DC600000, 0x3E9A412FFE00000, 0x3E9A81307600000,
    0x3E9AC0C0EA00000, 0x3E9B0485DC00000, 0x3E9B41043000000, 0x3E9C009C4C00000, 0x3E9C40A36A00000, 0x3E9C80A2D000000, 0x3E9CC09F0000000,
    0x3E9D00A28A00000, 0x3E9D40A30000000, 0x3E9D80A58E00000, 0x3E9DC0A5F400000, 0x3E9E00AB3A00000, 0x3E9E40AAAA00000, 0x3E9E80AB3200000,
    0x3E9EC0ABC400000, 0x3E9F00B0B400000, 0x3E9F40B16600000, 0x3E9F80B28800000, 0x3E9FC0B2A800000, 0x3EA000B4C400000, 0x3EA040B65000000,
    0x3EA080BDA400000, 0x3EA0C0BDB200000, 0x3EA100BED200000, 0x3EA140BF5A00000, 0x3EA180C1B000000, 0x3EA1C0C29C00000, 0x3EA200C21000000,
    0x3EA240C31C00000, 0x3EA280C2C000000, 0x3EA2C0C3E400000, 0x3EA300C46800000, 0x3EA340C78800000, 0x3EA380C83800000, 0x3EA3C0C8A400000,
    0x3EA400CAAC00000, 0x3EA440CCE800000, 0x3EA480CE2E00000, 0x3EA4C0CE3600000, 0x3EA500CEAC00000, 0x3EA540D6F200000, 0x3EA580D77400000,
    0x3EA5C0DA8200000, 0x3EA600DDB600000, 0x3EA640DD9600000, 0x3EA680DE4400000, 0x3EA6C0E03C00000, 0x3EA700E2DC00000, 0x3EA740EF4E00000,
    0x3EA780E46A00000, 0x3EA7C0E55E00000, 0x3EA800E65400000, 0x3EA840E8E200000, 0x3EA880EA0C00000, 0x3EA8C0EA7600000, 0x3EA900EC3A00000,
    0x3EA940EC3E00000, 0x3EA980ED9400000, 0x3EA9C0EDB600000, 0x3EAA00EDE800000, 0x3EAA40EE9400000, 0x3EAA80EE8000000, 0x3EAAC0F19800000,
    0x3EAB00F56200000, 0x3EAB40F78000000, 0x3EAB80F8F600000, 0x3EABC0FAB600000, 0x3EAC00FBE800000, 0x3EAC40FE7C00000, 0x3EAC81000A00000,
    0x3EACC106A400000, 0x3EAD0107DE00000, 0x3EAD410EF200000, 0x3EAD81128200000, 0x3EADC1130C00000, 0x3EAE01132C00000, 0x3EAE41157E00000,
    0x3EAE8115F000000, 0x3EAEC1159600000, 0x3EAF01160200000, 0x3EAF4115FC00000, 0x3EAF8115DA00000, 0x3EAFC1167200000, 0x3EB001171400000,
    0x3EB0411A1000000, 0x3EB0811E7000000, 0x3EB0C120E400000, 0x3EB101233200000, 0x3EB14124EC00000, 0x3EB1812CF800000, 0x3EB1C12DC600000,
    0x3EB2012EAC00000, 0x3EB2412FB600000, 0x3EB2812FFE00000, 0x3EB2C1301600000, 0x3EB301307600000, 0x3EB341362400000, 0x3EB3813F3800000,
    0x3EB3C4509400000, 0x3EB404508800000, 0x3EB44467AA00000, 0x3EB480773A00000, 0x3EB4C0803000000, 0x3EB500807200000, 0x3EB544A49200000,
    0x3EB584B9A000000, 0x3EB5C4FDA600000, 0x3EB6013E8600000, 0x3EB6413F1C00000, 0x3EC7400BB2005B4, 0x3EC7C00BE4005B7, 0x3ECA800BD2005C1,
    0x3ECAC00BD2005C2, 0x3ECB01F692005C1, 0x3ECB41F692005C2, 0x3ECB800BA0005B7, 0x3ECBC00BA0005B8, 0x3ECC000BA0005BC, 0x3ECC400BA2005BC,
    0x3ECC800BA4005BC, 0x3ECCC00BA6005BC, 0x3ECD000BA8005BC, 0x3ECD400BAA005BC, 0x3ECD800BAC005BC, 0x3ECE000BB0005BC, 0x3ECE400BB2005BC,
    0x3ECE800BB4005BC, 0x3ECEC00BB6005BC, 0x3ECF000BB8005BC, 0x3ECF800BBC005BC, 0x3ED0000BC0005BC, 0x3ED0400BC2005BC, 0x3ED0C00BC6005BC,
    0x3ED1000BC8005BC, 0x3ED1800BCC005BC, 0x3ED1C00BCE005BC, 0x3ED2000BD0005BC, 0x3ED2400BD2005BC, 0x3ED2800BD4005BC, 0x3ED2C00BAA005B9,
    0x3ED3000BA2005BF, 0x3ED3400BB6005BF, 0x3ED3800BC8005BF, 0x4426822132110BA, 0x4427022136110BA, 0x442AC2214A110BA, 0x444B82226211127,
    0x444BC2226411127, 0x44D2C2268E1133E, 0x44D302268E11357, 0x452EC22972114BA, 0x452F022972114B0, 0x452F822972114BD, 0x456E822B70115AF,
    0x456EC22B72115AF, 0x745783A2AE1D165, 0x7457C3A2B01D165, 0x745803A2BE1D16E, 0x745843A2BE1D16F, 0x745883A2BE1D170, 0x7458C3A2BE1D171,
    0x745903A2BE1D172, 0x746EC3A3721D165, 0x746F03A3741D165, 0x746F43A3761D16E, 0x746F83A3781D16E, 0x746FC3A3761D16F, 0x747003A3781D16F,
    0xBE00009C7A00000, 0xBE00409C7000000, 0xBE00809C8200000, 0xBE00C4024400000, 0xBE01009EC000000, 0xBE01409F5C00000, 0xBE01809F7600000,
    0xBE01C0A00400000, 0xBE0200A0F400000, 0xBE0240A13200000, 0xBE0280A1CE00000, 0xBE02C0A19E00000, 0xBE0300693C00000, 0xBE03440C7400000,
    0xBE0380A29A00000, 0xBE03C0A2A800000, 0xBE0400A2C800000, 0xBE0440A2EE00000, 0xBE04840A3800000, 0xBE04C0697200000, 0xBE0500A2CE00000,
    0xBE0540A31A00000, 0xBE05840A9600000, 0xBE05C0A32E00000, 0xBE0600A34800000, 0xBE06409D9800000, 0xBE0680A35800000, 0xBE06C0A36A00000,
    0xBE070523BE00000, 0xBE0740A3EA00000, 0xBE0780A40600000, 0xBE07C069BE00000, 0xBE0800A47600000, 0xBE0840A48C00000, 0xBE0880A4E400000,
    0xBE08C0A4EE00000, 0xBE09006A2A00000, 0xBE0940A58E00000, 0xBE0980A59200000, 0xBE09C0A5C800000, 0xBE0A00A5F400000, 0xBE0A40A60A00000,
    0xBE0A80A60C00000, 0xBE0AC0A62E00000, 0xBE0B00A69200000, 0xBE0B40A6A200000, 0xBE0B80A6B400000, 0xBE0BC0A6E600000, 0xBE0C00A6FA00000,
    0xBE0C40A6FE00000, 0xBE0C80A6FE00000, 0xBE0CC0A6FE00000, 0xBE0D04145800000, 0xBE0D40E0E000000, 0xBE0D80A79400000, 0xBE0DC0A7BE00000,
    0xBE0E0416C600000, 0xBE0E40A7D600000, 0xBE0E80A7E200000, 0xBE0EC0A80C00000, 0xBE0F00A93C00000, 0xBE0F40A87000000, 0xBE0F80A89000000,
    0xBE0FC0A8D000000, 0xBE1000A94400000, 0xBE1040A9EC00000, 0xBE1080AA2000000, 0xBE10C0AAA600000, 0xBE1100AAC600000, 0xBE1140AB0800000,
    0xBE1180AB0800000, 0xBE11C0AB3200000, 0xBE1200AB5600000, 0xBE1240AB6600000, 0xBE1280AB8400000, 0xBE12C0AE2C00000, 0xBE1300AC0C00000,
    0xBE1340AE2E00000, 0xBE1380ACA200000, 0xBE13C0ACE800000, 0xBE1400A40E00000, 0xBE1440B1DC00000, 0xBE1480AF9C00000, 0xBE14C0AFE800000,
    0xBE1500B01A00000, 0xBE1540AF1600000, 0xBE1580B06400000, 0xBE15C0B06200000, 0xBE1600B15800000, 0xBE164429C800000, 0xBE1680B1E400000,
    0xBE16C0B1EE00000, 0xBE1700B20C00000, 0xBE1740B23400000, 0xBE1780B24400000, 0xBE17C0B2C400000, 0xBE18042D5000000, 0xBE18442DD400000,
    0xBE1880B3D800000, 0xBE18C0B43600000, 0xBE1900B44E00000, 0xBE1940B3B000000, 0xBE1980B4CC00000, 0xBE19C06DDC00000, 0xBE1A006DF800000,
    0xBE1A40B61000000, 0xBE1A80B67C00000, 0xBE1AC0B67C00000, 0xBE1B04339000000, 0xBE1B40B78600000, 0xBE1B80B7B000000, 0xBE1BC0B7CE00000,
    0xBE1C00B7E600000, 0xBE1C44363000000, 0xBE1C80B7FE00000, 0xBE1CC0B80C00000, 0xBE1D00BEA600000, 0xBE1D40B84400000, 0xBE1D806F0200000,
    0xBE1DC0B8C000000, 0xBE1E00B8DC00000, 0xBE1E40B98000000, 0xBE1E80B91A00000, 0xBE1EC43BC800000, 0xBE1F00BA8600000, 0xBE1F443BCC00000,
    0xBE1F80BADC00000, 0xBE1FC0BAD600000, 0xBE2000BAF800000, 0xBE2040BBC200000, 0xBE2080BBC400000, 0xBE20C0705E00000, 0xBE2100BBFA00000,
    0xBE2140BC5000000, 0xBE2180BC7A00000, 0xBE21C0BCD200000, 0xBE220070C400000, 0xBE2244430600000, 0xBE228070F800000, 0xBE22C0BD6000000,
    0xBE2300BD6600000, 0xBE2340BD6C00000, 0xBE2380BD9400000, 0xBE23C5472400000, 0xBE2400BDFC00000, 0xBE2444466200000, 0xBE2484466200000,
    0xBE24C1040200000, 0xBE2500BE4400000, 0xBE2540BE4400000, 0xBE2580718E00000, 0xBE25C4657000000, 0xBE2604C3B400000, 0xBE2640BEC400000,
    0xBE2680BED600000, 0xBE26C071C600000, 0xBE2700BF3400000, 0xBE2740BF9A00000, 0xBE2780BFAE00000, 0xBE27C0BFF200000, 0xBE2800C10200000,
    0xBE2840727400000, 0xBE2880723800000, 0xBE28C0C12800000, 0xBE29044DA800000, 0xBE2940C18E00000, 0xBE2980C29000000, 0xBE29C0C29800000,
    0xBE2A00C29C00000, 0xBE2A40C29800000, 0xBE2A80C2F400000, 0xBE2AC0C31C00000, 0xBE2B00C36400000, 0xBE2B40C34800000, 0xBE2B80C35E00000,
    0xBE2BC0C3BC00000, 0xBE2C00C3E400000, 0xBE2C40C3EC00000, 0xBE2C80C42000000, 0xBE2CC0C43600000, 0xBE2D00C4BA00000, 0xBE2D40C56200000,
    0xBE2D80C5A800000, 0xBE2DC0C6A000000, 0xBE2E04561800000, 0xBE2E40C67A00000, 0xBE2E80C5F800000, 0xBE2EC0C6D000000, 0xBE2F00C70600000,
    0xBE2F40C7C800000, 0xBE2F8457E200000, 0xBE2FC0C84400000, 0xBE3000C78A00000, 0xBE3040C75200000, 0xBE3080745C00000, 0xBE30C0C8D200000,
    0xBE3100C8FC00000, 0xBE3140C93A00000, 0xBE3180C8EE00000, 0xBE31C074D800000, 0xBE3200CA9E00000, 0xBE3240CAD800000, 0xBE3284601400000,
    0xBE32C0CBC600000, 0xBE3300CDF000000, 0xBE3340CC9200000, 0xBE3380763200000, 0xBE33C0CD2200000, 0xBE3400761000000, 0xBE344075C800000,
    0xBE3480A32400000, 0xBE34C0A32A00000, 0xBE3500CE0000000, 0xBE3540CD3800000, 0xBE3581015A00000, 0xBE35C087B200000, 0xBE3600CE2E00000,
    0xBE3640CE3600000, 0xBE3680CE4200000, 0xBE36C0CEBC00000, 0xBE3700CEA600000, 0xBE3744678600000, 0xBE3780769200000, 0xBE37C0CFF400000,
    0xBE3800CF0A00000, 0xBE3840D0A400000, 0xBE3880D10A00000, 0xBE38C468DA00000, 0xBE3900D11C00000, 0xBE3940D03E00000, 0xBE3980D22800000,
    0xBE39C0773A00000, 0xBE3A00D28400000, 0xBE3A40D34600000, 0xBE3A80D3D400000, 0xBE3AC0D55000000, 0xBE3B046D4600000, 0xBE3B40D5B600000,
    0xBE3B80783000000, 0xBE3BC0D64200000, 0xBE3C04714E00000, 0xBE3C40D6A800000, 0xBE3C80789C00000, 0xBE3CC0D6E400000, 0xBE3D00D73E00000,
    0xBE3D40D77400000, 0xBE3D80D77600000, 0xBE3DC4751A00000, 0xBE3E043A1600000, 0xBE3E4475F400000, 0xBE3E80D89C00000, 0xBE3EC4797800000,
    0xBE3F00D97E00000, 0xBE3F40D99A00000, 0xBE3F80D8CE00000, 0xBE3FC0DA2C00000, 0xBE4000DA7C00000, 0xBE4040DAEE00000, 0xBE4080DA8200000,
    0xBE40C0DAD200000, 0xBE4100DAF000000, 0xBE4140DB0A00000, 0xBE41847A3C00000, 0xBE41C0DA6800000, 0xBE4200DC5E00000, 0xBE4240DCDC00000,
    0xBE42807A6600000, 0xBE42C0DD9600000, 0xBE4300DD8E00000, 0xBE43447DA200000, 0xBE4380DBF200000, 0xBE43C0DEDC00000, 0xBE44047EBC00000,
    0xBE44447F1C00000, 0xBE4480DF8C00000, 0xBE44C0E07200000, 0xBE4500E03C00000, 0xBE4540E03600000, 0xBE45807B2C00000, 0xBE45C0E09400000,
    0xBE4600E0FA00000, 0xBE4640E0EE00000, 0xBE4680E15A00000, 0xBE46C40A4A00000, 0xBE4700E28A00000, 0xBE474484C600000, 0xBE4780E33800000,
    0xBE47C4875600000, 0xBE4800E45000000, 0xBE4840E46A00000, 0xBE4880E4A000000, 0xBE48C48C1000000, 0xBE4900E50000000, 0xBE4940E52A00000,
    0xBE49848E6A00000, 0xBE49C4902800000, 0xBE4A00E6F400000, 0xBE4A40E71600000, 0xBE4A807D5800000, 0xBE4AC0E74A00000, 0xBE4B007D7000000,
    0xBE4B407D7000000, 0xBE4B80E88E00000, 0xBE4BC0E8B800000, 0xBE4C00E8E200000, 0xBE4C40E90A00000, 0xBE4C80E99400000, 0xBE4CC07E3600000,
    0xBE4D00EA4800000, 0xBE4D44986C00000, 0xBE4D80EA7C00000, 0xBE4DC4992400000, 0xBE4E00EAE000000, 0xBE4E44433E00000, 0xBE4E80EC2000000,
    0xBE4EC49F4200000, 0xBE4F049F7000000, 0xBE4F44A08800000, 0xBE4F807FF800000, 0xBE4FC0801000000, 0xBE5000EDE800000, 0xBE5044A1E600000,
    0xBE5084A1E400000, 0xBE50C4A23200000, 0xBE5104A26600000, 0xBE5140EE3C00000, 0xBE5180EE3E00000, 0xBE51C0EE3E00000, 0xBE5200EE9400000,
    0xBE5240807200000, 0xBE5280EF1600000, 0xBE52C0808C00000, 0xBE5300812C00000, 0xBE5344A83A00000, 0xBE5380F09C00000, 0xBE53C0F11800000,
    0xBE5400F19800000, 0xBE544081C600000, 0xBE5484AC4C00000, 0xBE54C0F2AC00000, 0xBE5504AD3400000, 0xBE5544AD8A00000, 0xBE5580F31E00000,
    0xBE55C0F3D600000, 0xBE5600825E00000, 0xBE5640F48000000, 0xBE5680F49400000, 0xBE56C0F49E00000, 0xBE5704B2F800000, 0xBE5744B54E00000,
    0xBE5784B54E00000, 0xBE57C0F5DC00000, 0xBE5800840400000, 0xBE5844B75600000, 0xBE5880F78C00000, 0xBE58C0F79200000, 0xBE5900844E00000,
    0xBE5944B90000000, 0xBE5980F9A400000, 0xBE59C0854000000, 0xBE5A00F9D000000, 0xBE5A40F9C600000, 0xBE5A80FA0000000, 0xBE5AC4BF0C00000,
    0xBE5B00FAC600000, 0xBE5B40860200000, 0xBE5B80FB8E00000, 0xBE5BC0FC0400000, 0xBE5C00FC8A00000, 0xBE5C40866800000, 0xBE5C84C45000000,
    0xBE5CC4C48E00000, 0xBE5D0086B200000, 0xBE5D44C5B200000, 0xBE5D80FEF400000, 0xBE5DC4C67C00000, 0xBE5E00FF2A00000, 0xBE5E40FFF400000,
    0xBE5E81000A00000, 0xBE5EC4C9B400000, 0xBE5F04CA4600000, 0xBE5F4100C000000, 0xBE5F84CB5000000, 0xBE5FC100E000000, 0xBE600466BE00000,
    0xBE604087AA00000, 0xBE6081016400000, 0xBE60C1020600000, 0xBE6100881600000, 0xBE6141027C00000, 0xBE6180B56A00000, 0xBE61C4CF4E00000,
    0xBE6204CF6A00000, 0xBE6244672600000, 0xBE6284673800000, 0xBE62C1040200000, 0xBE6301040800000, 0xBE63411F3C00000, 0xBE638088D600000,
    0xBE63C1052200000, 0xBE6401051600000, 0xBE6441053A00000, 0xBE6480A56600000, 0xBE64C1056200000, 0xBE6501056600000, 0xBE6541057A00000,
    0xBE658105CC00000, 0xBE65C4D67800000, 0xBE660105CA00000, 0xBE6641063A00000, 0xBE668106C600000, 0xBE66C1075A00000, 0xBE6701064600000,
    0xBE6741077A00000, 0xBE678107CE00000, 0xBE67C108AE00000, 0xBE680106A600000, 0xBE6841079400000, 0xBE6881079800000, 0xBE68C107B800000,
    0xBE6904D86C00000, 0xBE6944DAD600000, 0xBE6984D9AA00000, 0xBE69C08A5600000, 0xBE6A0109E200000, 0xBE6A4109E600000, 0xBE6A810A2C00000,
    0xBE6AC4E79400000, 0xBE6B010AC800000, 0xBE6B44DE5800000, 0xBE6B808ABA00000, 0xBE6BC08AC200000, 0xBE6C04DF6200000, 0xBE6C44E1A400000,
    0xBE6C808AD600000, 0xBE6CC10CA000000, 0xBE6D010CB800000, 0xBE6D410CCE00000, 0xBE6D810CD200000, 0xBE6DC10D5200000, 0xBE6E010D1000000,
    0xBE6E410E1C00000, 0xBE6E810DC400000, 0xBE6EC10EF200000, 0xBE6F010E5000000, 0xBE6F410ED600000, 0xBE6F810F0C00000, 0xBE6FC08BAE00000,
    0xBE70010FC200000, 0xBE7041100200000, 0xBE70808BF200000, 0xBE70C110C000000, 0xBE710110C600000, 0xBE7144ECCE00000, 0xBE718111AE00000,
    0xBE71C111BC00000, 0xBE72008C6A00000, 0xBE724111F400000, 0xBE7280697600000, 0xBE72C4F15C00000, 0xBE7304F2CC00000, 0xBE73408D7C00000,
    0xBE73808D8E00000, 0xBE73C1154000000, 0xBE740115DA00000, 0xBE7441171400000, 0xBE748118AA00000, 0xBE74C4F95000000, 0xBE7501195600000,
    0xBE7541198200000, 0xBE75811A3600000, 0xBE75C11AEE00000, 0xBE7604FE5E00000, 0xBE7644100800000, 0xBE76811B9600000, 0xBE76C11B7800000,
    0xBE77011BE000000, 0xBE774411BC00000, 0xBE77811DA800000, 0xBE77C11E7000000, 0xBE78050BA400000, 0xBE78450BDA00000, 0xBE7881212800000,
    0xBE78C121E200000, 0xBE7901222200000, 0xBE79450E5C00000, 0xBE7981223600000, 0xBE79C1247000000, 0xBE7A0125AE00000, 0xBE7A4125B000000,
    0xBE7A8124F800000, 0xBE7AC127F200000, 0xBE7B01282A00000, 0xBE7B4517F400000, 0xBE7B812B1600000, 0xBE7BC0932A00000, 0xBE7C012B6E00000,
    0xBE7C451AEE00000, 0xBE7C8093CC00000, 0xBE7CC12D8600000, 0xBE7D00BB6400000, 0xBE7D412E4600000, 0xBE7D85228A00000, 0xBE7DC5243400000,
    0xBE7E0094DC00000, 0xBE7E4094EC00000, 0xBE7E812FC000000, 0xBE7EC5281400000, 0xBE7F00956400000, 0xBE7F45292C00000, 0xBE7F81301600000,
    0xBE7FC1301600000, 0xBE8001305200000, 0xBE80452B6C00000, 0xBE808131C400000, 0xBE80C0966600000, 0xBE8101325200000, 0xBE8141334E00000,
    0xBE8181338400000, 0xBE81C133FC00000, 0xBE8200979C00000, 0xBE8245366000000, 0xBE8281362400000, 0xBE82C1388000000, 0xBE830139FA00000,
    0xBE8340999C00000, 0xBE838099DA00000, 0xBE83C13ACE00000, 0xBE8405419C00000, 0xBE844099F000000, 0xBE8485420A00000, 0xBE84C5441C00000,
    0xBE8505452200000, 0xBE85413D7600000, 0xBE85809AAC00000, 0xBE85C13DF200000, 0xBE86013DFC00000, 0xBE86413E0A00000, 0xBE86813E1E00000,
    0xBE86C13E2C00000, 0xBE87013E7600000, 0xBE87454C0000000,
};
/*  Those of ignis__char_parts that NFC makes one character again, sorted by what they are made of. */
static const uint16_t ignis__char_pairs[] = {
    912, 909, 913, 0, 1, 2, 3, 53, 55, 238, 4, 572, 5, 165, 208, 210, 570, 415, 57, 417, 419, 421, 59, 61, 63, 65, 6, 425, 67, 427, 431, 433, 429,
    7, 8, 9, 598, 69, 71, 73, 10, 596, 77, 212, 214, 594, 240, 75, 439, 441, 445, 198, 79, 447, 81, 83, 187, 85, 87, 449, 453, 236, 451, 455, 457,
    11, 12, 13, 89, 91, 93, 97, 14, 610, 167, 216, 218, 612, 95, 459, 98, 463, 189, 465, 100, 467, 102, 106, 469, 104, 475, 473, 477, 479, 481, 200,
    108, 15, 483, 112, 485, 110, 489, 487, 16, 17, 18, 19, 114, 116, 246, 20, 616, 118, 169, 220, 222, 161, 614, 191, 499, 501, 120, 503, 124, 224,
    226, 505, 122, 509, 126, 128, 511, 132, 513, 232, 130, 521, 136, 523, 234, 134, 527, 525, 21, 22, 23, 138, 140, 142, 24, 640, 144, 146, 171,
    228, 230, 163, 638, 529, 148, 533, 531, 539, 541, 543, 545, 150, 549, 547, 551, 553, 555, 652, 25, 152, 658, 250, 557, 154, 656, 654, 155, 559,
    157, 159, 561, 563, 26, 27, 28, 29, 54, 56, 239, 30, 573, 31, 166, 209, 211, 571, 416, 58, 418, 420, 422, 60, 62, 64, 66, 32, 426, 68, 428, 432,
    434, 430, 33, 34, 35, 599, 70, 72, 74, 36, 597, 78, 213, 215, 595, 241, 76, 440, 442, 446, 199, 80, 448, 82, 84, 188, 86, 88, 450, 454, 237,
    452, 456, 458, 565, 37, 38, 39, 90, 92, 94, 40, 611, 168, 217, 219, 613, 96, 460, 99, 197, 464, 190, 466, 101, 468, 103, 107, 470, 105, 476,
    474, 478, 480, 482, 201, 109, 41, 484, 113, 486, 111, 490, 488, 42, 43, 44, 45, 115, 117, 247, 46, 617, 119, 170, 221, 223, 162, 615, 192, 500,
    502, 121, 504, 125, 225, 227, 506, 123, 510, 127, 129, 512, 133, 514, 233, 131, 522, 566, 137, 524, 235, 135, 528, 526, 47, 48, 49, 139, 141,
    143, 50, 641, 145, 147, 172, 229, 231, 164, 639, 530, 149, 534, 532, 540, 542, 544, 546, 151, 550, 548, 567, 552, 554, 556, 653, 51, 153, 659,
    251, 558, 52, 657, 568, 655, 156, 560, 158, 160, 562, 564, 875, 258, 835, 576, 574, 580, 578, 181, 202, 204, 185, 423, 602, 600, 606, 604, 461,
    620, 618, 624, 622, 491, 244, 493, 242, 206, 179, 175, 173, 177, 577, 575, 581, 579, 182, 203, 205, 186, 424, 603, 601, 607, 605, 462, 621, 619,
    625, 623, 492, 245, 494, 243, 207, 180, 176, 174, 178, 586, 584, 590, 588, 587, 585, 591, 589, 435, 437, 436, 438, 495, 497, 496, 498, 515, 516,
    517, 518, 535, 536, 537, 538, 569, 630, 628, 634, 632, 636, 631, 629, 635, 633, 637, 644, 642, 648, 646, 650, 645, 643, 649, 647, 651, 195, 193,
    194, 183, 184, 443, 444, 248, 249, 196, 831, 259, 830, 829, 668, 669, 833, 841, 261, 682, 683, 843, 262, 696, 697, 845, 857, 263, 856, 855, 268,
    712, 713, 883, 264, 726, 727, 874, 872, 265, 871, 870, 269, 740, 885, 266, 752, 753, 887, 826, 838, 760, 270, 823, 822, 660, 661, 827, 825, 762,
    271, 676, 677, 764, 272, 688, 689, 839, 837, 766, 273, 850, 849, 275, 704, 705, 853, 768, 277, 720, 721, 866, 867, 770, 278, 863, 862, 276, 732,
    733, 868, 772, 279, 744, 745, 881, 879, 851, 267, 854, 864, 274, 869, 880, 280, 281, 285, 302, 304, 284, 282, 306, 283, 300, 310, 312, 287, 314,
    289, 316, 286, 318, 324, 288, 326, 328, 330, 332, 322, 303, 305, 293, 291, 307, 292, 301, 311, 313, 296, 315, 290, 317, 295, 319, 325, 297, 327,
    329, 331, 333, 323, 294, 298, 299, 308, 309, 320, 321, 334, 335, 337, 336, 338, 340, 341, 339, 342, 343, 344, 353, 354, 365, 364, 366, 369, 370,
    372, 371, 373, 374, 377, 375, 376, 378, 379, 381, 380, 382, 383, 385, 384, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 471, 472,
    507, 508, 519, 520, 582, 592, 583, 593, 608, 609, 626, 627, 662, 664, 666, 774, 663, 665, 667, 775, 776, 777, 778, 779, 780, 781, 670, 672, 674,
    782, 671, 673, 675, 783, 784, 785, 786, 787, 788, 789, 678, 680, 679, 681, 684, 686, 685, 687, 690, 692, 694, 790, 691, 693, 695, 791, 792, 793,
    794, 795, 796, 797, 698, 700, 702, 798, 699, 701, 703, 799, 800, 801, 802, 803, 804, 805, 706, 708, 710, 707, 709, 711, 714, 716, 718, 715, 717,
    719, 722, 724, 723, 725, 728, 730, 729, 731, 734, 736, 738, 735, 737, 739, 741, 742, 743, 746, 748, 750, 806, 747, 749, 751, 807, 808, 809, 810,
    811, 812, 813, 754, 756, 758, 814, 755, 757, 759, 815, 816, 817, 818, 819, 820, 821, 824, 836, 878, 828, 846, 847, 848, 840, 882, 859, 860, 861,
    894, 895, 896, 897, 899, 898, 900, 901, 902, 903, 904, 905, 906, 907, 908, 911, 910, 914, 915, 916, 917, 918, 919, 920, 921, 930, 931, 922, 923,
    924, 925, 932, 933, 926, 927, 928, 929, 934, 935, 936, 937, 966, 941, 942, 943, 944, 945, 946, 947, 948, 949, 950, 951, 952, 953, 954, 955, 956,
    957, 958, 959, 960, 961, 962, 963, 964, 965, 967, 993, 968, 969, 970, 971, 972, 973, 974, 975, 976, 977, 978, 979, 980, 981, 982, 983, 984, 985,
    986, 987, 988, 989, 990, 991, 992, 994, 995, 996, 997, 998, 1493, 1494, 1495, 1496, 1497, 1498, 1499, 1501, 1500, 1502, 1503, 1504,
};
/* clang-format on */
/*  As far as here. */

/*  Ids are those of Hugging Face's library tokenizers. Text goes through it so:
        added tokens that are matched in the raw text are cut out, the leftmost first, of these the longest
        what lies between is normalized, and added tokens cut out that are matched in normalized text
        the rest is split into pieces: by one of the patterns in ignis__text_splits, each of which has its own code instead of an engine for
        regular expressions; or by nothing
        pieces become bytes or characters that the vocabulary has, of which the pair of the lowest rank is joined, the leftmost first, until
        no pair has a rank
    Bytes: tokens of a byte-level vocabulary are written in 256 characters that stand for bytes. Here they are the bytes. */

#define IGNIS__TOKEN_LIMIT ((int64_t)1 << 22) /* ids are below it */
#define IGNIS__TEXT_LIMIT ((int64_t)1 << 29)  /* bytes of a text, and of tokenizer.json */
#define IGNIS__TEXT_STEPS 16                  /* of a normalizer, and of the other parts */
#define IGNIS__ADDED_LIMIT 256                /* bytes of an added token, which is looked for at each place */
#define IGNIS__PROBE_LIMIT 1000               /* places of a table that are looked at; more come of texts made to collide */
#define IGNIS__LOW_LINE "\xE2\x96\x81"        /* U+2581, which stands for a space in vocabularies made by SentencePiece */

typedef enum ignis__splitter { IGNIS__SPLIT_NONE, IGNIS__SPLIT_GPT2, IGNIS__SPLIT_LLAMA3, IGNIS__SPLIT_QWEN2 } ignis__splitter;

/*  The patterns that are known, letter by letter. */
static const struct {
    const char *pattern;
    ignis__splitter split;
} ignis__text_splits[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", IGNIS__SPLIT_GPT2},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     IGNIS__SPLIT_LLAMA3},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     IGNIS__SPLIT_QWEN2},
};

/*  Flags of ids. */
enum { IGNIS__TOKEN_THERE = 1, IGNIS__TOKEN_MODEL = 2, IGNIS__TOKEN_ODD = 4, IGNIS__TOKEN_CONTROL = 8 };

/*  A token that is cut out of text as it stands. */
typedef struct ignis__added {
    const char *text;
    size_t size;
    int32_t id;
    int order; /* in the file */
    bool special, normalized, lstrip, rstrip, single_word;
} ignis__added;

typedef struct ignis__added_set {
    ignis__added *items; /* sorted by their text, the shorter first */
    int count;
    bool first[256]; /* whether one begins with that byte */
} ignis__added_set;

typedef struct ignis__token_slot {
    uint32_t tag;
    int32_t id; /* + 1; 0: free */
} ignis__token_slot;

/*  Two ids that become one. */
typedef struct ignis__join {
    uint64_t key; /* (left << 32 | right) + 1; 0: free */
    uint32_t rank;
    int32_t id;
} ignis__join;

typedef enum ignis__normal_kind { IGNIS__NORMAL_NFC, IGNIS__NORMAL_PREPEND, IGNIS__NORMAL_REPLACE } ignis__normal_kind;

typedef struct ignis__normal {
    ignis__normal_kind kind;
    const char *from, *to;
} ignis__normal;

typedef enum ignis__metaspace {
    IGNIS__METASPACE_NONE,
    IGNIS__METASPACE_ALWAYS,
    IGNIS__METASPACE_FIRST,
    IGNIS__METASPACE_NEVER
} ignis__metaspace;

/*  It does not change once it is open, but for what is known of its tokens, so any number of threads may use it. */
typedef struct ignis__tokenizer {
    ignis__slot slot;
    void *kept;                /* blocks of ignis__tokenizer_keep: all that is pointed to below */
    const char *chat_template; /* null: none */
    const char *bos_text, *eos_text;
    ignis_tokenizer_info info;

    char *bytes; /* of all tokens, those of an id from begin[id] to begin[id + 1] */
    uint32_t *begin;
    unsigned char *flags;
    size_t longest;             /* token of the model */
    ignis__token_slot *buckets; /* by the bytes of a token of the model */
    uint64_t slot_mask;
    ignis__join *joins;
    uint64_t join_mask;
    int32_t single[256];   /* the token of one byte, or of a character below 128; -1: none */
    int32_t fallback[256]; /* <0x00> to <0xFF>; -1: none */
    uint64_t *known;       /* a bit for each id: whether it is known what its own text becomes */
    uint64_t *whole;       /* and whether that is this id alone */

    ignis__added_set added[2]; /* matched in the raw text, and in normalized text */
    ignis__normal normals[IGNIS__TEXT_STEPS];
    int normal_count;
    ignis__splitter split;
    int digits; /* 1: single ones are pieces; 2: runs of them */
    bool byte_level, prefix_space, ignore_merges, byte_fallback, fuse_unknown;
    bool words; /* no token goes on behind a character before a U+2581, so text may be split there */
    ignis__metaspace metaspace, metaspace_decoder;
    bool metaspace_split;
    bool byte_decoder; /* <0x00> to <0xFF> are bytes in decoded text */
    int strip;         /* spaces that go from the front of decoded text */
    int32_t *front, *back;
    int front_count, back_count;
} ignis__tokenizer;

static ignis__pool ignis__tokenizers = IGNIS__POOL(ignis__tokenizer, IGNIS__KIND_TOKENIZER, "tokenizer", IGNIS_DIAG_TOKENIZER_FREED);

/*  Zeroed memory that lives as long as the tokenizer; null: there is none. */
static void *ignis__tokenizer_keep(ignis__tokenizer *tokenizer, size_t size)
{
    void **block = (void **)ignis__alloc(size + 16);
    if (!block)
        return NULL;
    block[0] = tokenizer->kept;
    tokenizer->kept = block;
    return block + 2;
}

static const char *ignis__tokenizer_keep_text(ignis__tokenizer *tokenizer, const char *text, size_t size)
{
    char *copy = (char *)ignis__tokenizer_keep(tokenizer, size + 1);
    if (copy)
        memcpy(copy, text, size);
    return copy;
}

static void ignis__tokenizer_destroy(ignis__tokenizer *tokenizer)
{
    while (tokenizer->kept) {
        void *next = *(void **)tokenizer->kept;
        ignis__free(tokenizer->kept);
        tokenizer->kept = next;
    }
    memset((char *)tokenizer + sizeof tokenizer->slot, 0, sizeof *tokenizer - sizeof tokenizer->slot);
    ignis__pool_give(&ignis__tokenizers, tokenizer);
}

static ignis__tokenizer *ignis__tokenizer_hold(const char *call, ignis_tokenizer handle)
{
    return (ignis__tokenizer *)ignis__handle_hold(call, &ignis__tokenizers, handle.id);
}

static void ignis__tokenizer_drop(ignis__tokenizer *tokenizer)
{
    if (ignis__pool_drop(tokenizer))
        ignis__tokenizer_destroy(tokenizer);
}

static void ignis__tokenizers_close(const char *call)
{
    ignis__tokenizer *tokenizer;
    uint64_t index = 0;
    while ((tokenizer = (ignis__tokenizer *)ignis__pool_next(&ignis__tokenizers, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "tokenizer of %d tokens, %s", tokenizer->info.tokens, tokenizer->info.family);
        ignis__handle_kill(tokenizer);
        ignis__tokenizer_drop(tokenizer);
    }
}

/* --- characters ------------------------------------------------------------------------------------------------------ */

enum {
    IGNIS__CHAR_LETTER = 1,
    IGNIS__CHAR_NUMBER = 2,
    IGNIS__CHAR_WORD = 4,
    IGNIS__CHAR_DIGIT = 8,
    IGNIS__CHAR_SPACE = 16,
    IGNIS__CHAR_LINE = 32,
    IGNIS__CHAR_END = 64
};

/*  The value of the run that a character lies in: the table has first << shift | value for each run. */
static uint32_t ignis__char_run(const uint32_t *table, int count, int shift, uint32_t code)
{
    int low = 0, high = count; /* the run is before high, and at low or behind it */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (table[middle] >> shift <= code)
            low = middle;
        else
            high = middle;
    }
    return table[low] >> shift <= code ? table[low] & ((1u << shift) - 1) : 0;
}

static bool ignis__char_space(uint32_t code)
{
    return code < 0x80 ? (code >= 9 && code <= 13) || code == ' '
                       : code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
                             code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

/*  Line and column, in characters, of a place in a text; both begin with 1. */
IGNIS__COLD static void ignis__text_place(const char *text, const char *at, int *line, int *column)
{
    for (*line = *column = 1; text < at; text++) {
        *column = *text == '\n' ? 1 : *column + ((*text & 0xC0) != 0x80);
        *line += *text == '\n';
    }
}

/*  The first character of well-formed UTF-8, and its length. */
static uint32_t ignis__utf8_code(const char *text, int *length)
{
    const unsigned char *byte = (const unsigned char *)text;
    if (byte[0] < 0x80) {
        *length = 1;
        return byte[0];
    }
    if (byte[0] < 0xE0) {
        *length = 2;
        return (uint32_t)(byte[0] & 0x1F) << 6 | (byte[1] & 0x3F);
    }
    if (byte[0] < 0xF0) {
        *length = 3;
        return (uint32_t)(byte[0] & 0x0F) << 12 | (uint32_t)(byte[1] & 0x3F) << 6 | (byte[2] & 0x3F);
    }
    *length = 4;
    return (uint32_t)(byte[0] & 0x07) << 18 | (uint32_t)(byte[1] & 0x3F) << 12 | (uint32_t)(byte[2] & 0x3F) << 6 | (byte[3] & 0x3F);
}

/*  How many bytes at the beginning of a text, which are no character, become one U+FFFD: as many as a character could begin with (Unicode,
    3.9, maximal subparts). *open: the text ends with them, and more bytes could make them a character. */
static int ignis__utf8_broken(const char *text, size_t size, bool *open)
{
    static const unsigned char second[] = {0x80, 0x90, 0xA0}; /* one of them may follow each first byte */
    int length = 0, m, k;
    for (m = 1; m <= 3 && (size_t)m <= size; m++) {
        bool fits = false;
        for (k = 0; k < 3 && !fits; k++) {
            char trial[4];
            memset(trial, 0x80, sizeof trial);
            trial[m] = (char)second[k];
            memcpy(trial, text, (size_t)m);
            fits = ignis__utf8_length(trial, sizeof trial) > m;
        }
        if (!fits)
            break;
        length = m;
    }
    *open = length > 0 && (size_t)length == size;
    return length ? length : 1;
}

/*  What kind of character stands at a place, and its length. */
static unsigned ignis__char_at(const char *text, size_t size, size_t at, int *length)
{
    uint32_t code;
    *length = 0;
    if (at >= size)
        return IGNIS__CHAR_END;
    code = ignis__utf8_code(text + at, length);
    if (code < 0x80) {
        if ((code | 32) - 'a' < 26)
            return IGNIS__CHAR_LETTER | IGNIS__CHAR_WORD;
        if (code - '0' < 10)
            return IGNIS__CHAR_NUMBER | IGNIS__CHAR_WORD | IGNIS__CHAR_DIGIT;
        if (code == '\r' || code == '\n')
            return IGNIS__CHAR_SPACE | IGNIS__CHAR_LINE;
        return ignis__char_space(code) ? IGNIS__CHAR_SPACE : code == '_' ? IGNIS__CHAR_WORD : 0;
    }
    return ignis__char_space(code) ? (unsigned)IGNIS__CHAR_SPACE
                                   : ignis__char_run(ignis__char_kinds, IGNIS__COUNT(ignis__char_kinds), 4, code);
}

/*  Where the characters from a place on end that are of one of these kinds, or, with `other`, of none of them. */
static size_t ignis__char_skip(const char *text, size_t size, size_t at, unsigned kinds, bool other)
{
    int length;
    for (; at < size; at += (size_t)length)
        if (((ignis__char_at(text, size, at, &length) & kinds) != 0) == other)
            break;
    return at;
}

/* --- bytes that grow ------------------------------------------------------------------------------------------------- */

typedef struct ignis__bytes {
    char *data;
    size_t size, capacity;
} ignis__bytes;

/*  Room for so many more bytes; false: there is no memory. */
static bool ignis__bytes_room(ignis__bytes *bytes, size_t more)
{
    size_t capacity = bytes->capacity ? bytes->capacity : 256;
    char *data;
    if (more <= bytes->capacity - bytes->size)
        return true;
    while (capacity - bytes->size < more)
        capacity *= 2;
    data = (char *)ignis__alloc(capacity);
    if (!data)
        return false;
    if (bytes->size)
        memcpy(data, bytes->data, bytes->size);
    ignis__free(bytes->data);
    bytes->data = data;
    bytes->capacity = capacity;
    return true;
}

static bool ignis__bytes_add(ignis__bytes *bytes, const char *data, size_t size)
{
    if (!ignis__bytes_room(bytes, size))
        return false;
    if (size)
        memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    return true;
}

/*  Adds a text, with U+FFFD for what is no UTF-8. *broken: there was such. */
static bool ignis__bytes_add_fixed(ignis__bytes *bytes, const char *text, size_t size)
{
    size_t at = 0, begin = 0;
    bool open;
    while (at < size) {
        int length = ignis__utf8_length(text + at, size - at);
        if (length > 0) {
            at += (size_t)length;
            continue;
        }
        if (!ignis__bytes_add(bytes, text + begin, at - begin) || !ignis__bytes_add(bytes, "\xEF\xBF\xBD", 3))
            return false;
        begin = at += (size_t)ignis__utf8_broken(text + at, size - at, &open);
    }
    return ignis__bytes_add(bytes, text + begin, size - begin);
}

/* --- searching ------------------------------------------------------------------------------------------------------- */

/*  Looks for a text in another, from the front or from the back, in a time that grows with the sum of their lengths: the two-way algorithm
    (Crochemore and Perrin 1991). */
typedef struct ignis__needle {
    const char *text;
    size_t length;
    bool back;
    size_t border, period; /* where its two parts meet; by how much it goes on when both were there */
    bool periodic;         /* what has been compared before that need not be again */
} ignis__needle;

/*  A byte of a text, counted from its front or from its back. */
static char ignis__byte_at(const char *text, size_t size, bool back, size_t at) { return text[back ? size - 1 - at : at]; }

static char ignis__needle_at(const ignis__needle *needle, size_t at)
{
    return ignis__byte_at(needle->text, needle->length, needle->back, at);
}

/*  Where the greatest ending of the text begins, by the order of bytes or by the other one, and its period. */
static size_t ignis__needle_ending(const ignis__needle *needle, bool other, size_t *period)
{
    size_t begin = 0, at = 1, same = 0; /* an ending; another one, which is compared with it; bytes of both that are the same */
    *period = 1;
    while (at + same < needle->length) {
        char x = ignis__needle_at(needle, at + same), y = ignis__needle_at(needle, begin + same);
        if (x == y) {
            same++;
            if (same == *period)
                at += *period, same = 0;
        } else if ((x < y) != other) {
            at += same + 1;
            same = 0;
            *period = at - begin;
        } else {
            begin = at++;
            same = 0;
            *period = 1;
        }
    }
    return begin;
}

static ignis__needle ignis__needle_of(const char *text, size_t length, bool back)
{
    ignis__needle needle;
    size_t period, begin, i;
    needle.text = text;
    needle.length = length;
    needle.back = back;
    needle.border = ignis__needle_ending(&needle, false, &needle.period);
    begin = ignis__needle_ending(&needle, true, &period);
    if (begin > needle.border)
        needle.border = begin, needle.period = period;
    for (i = 0; i < needle.border && needle.border + needle.period <= needle.length; i++)
        if (ignis__needle_at(&needle, i) != ignis__needle_at(&needle, i + needle.period))
            break;
    needle.periodic = i == needle.border;
    if (!needle.periodic)
        needle.period = (needle.border > needle.length - needle.border ? needle.border : needle.length - needle.border) + 1;
    return needle;
}

/*  Where it is in a text, the first place from its front or from its back; null where it is not. */
static const char *ignis__needle_find(const ignis__needle *needle, const char *text, size_t size)
{
    size_t length = needle->length, at = 0, known = 0, i;
    while (at + length <= size) {
        i = needle->border > known ? needle->border : known;
        while (i < length && ignis__needle_at(needle, i) == ignis__byte_at(text, size, needle->back, at + i))
            i++;
        if (i < length) {
            at += i - needle->border + 1;
            known = 0;
            continue;
        }
        i = needle->border;
        while (i > known && ignis__needle_at(needle, i - 1) == ignis__byte_at(text, size, needle->back, at + i - 1))
            i--;
        if (i <= known)
            break;
        at += needle->period;
        known = needle->periodic ? length - needle->period : 0;
    }
    return at + length <= size ? needle->back ? text + size - at - length : text + at : NULL;
}

/* --- NFC ------------------------------------------------------------------------------------------------------------- */

/*  What NFC knows of a character: its combining class << 1 | 1 where it may change with what is before it. */
static uint32_t ignis__char_mark(uint32_t code)
{
    return code < 0x300 ? 0 : ignis__char_run(ignis__char_marks, IGNIS__COUNT(ignis__char_marks), 9, code);
}

/*  What a character is made of, as in ignis__char_parts; 0: of nothing else. */
static uint64_t ignis__char_parts_of(uint32_t code)
{
    int low = 0, high = IGNIS__COUNT(ignis__char_parts);
    if (code - 0xAC00 < 11172) { /* a syllable of Hangul: without its last letter, and that; or the first two */
        uint32_t at = code - 0xAC00;
        return at % 28 ? (uint64_t)(code - at % 28) << 21 | (0x11A7 + at % 28)
                       : (uint64_t)(0x1100 + at / 588) << 21 | (0x1161 + at / 28 % 21);
    }
    while (low < high) {
        int middle = (low + high) / 2;
        if (ignis__char_parts[middle] >> 42 < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < IGNIS__COUNT(ignis__char_parts) && ignis__char_parts[low] >> 42 == code
               ? ignis__char_parts[low] & (((uint64_t)1 << 42) - 1)
               : 0;
}

/*  The character that two become; 0: none. */
static uint32_t ignis__char_pair(uint32_t first, uint32_t second)
{
    const uint64_t wanted = (uint64_t)first << 21 | second, mask = ((uint64_t)1 << 42) - 1;
    int low = 0, high = IGNIS__COUNT(ignis__char_pairs);
    if (first - 0x1100 < 19 && second - 0x1161 < 21)
        return 0xAC00 + ((first - 0x1100) * 21 + (second - 0x1161)) * 28;
    if (first - 0xAC00 < 11172 && (first - 0xAC00) % 28 == 0 && second - 0x11A8 < 27)
        return first + (second - 0x11A7);
    while (low < high) {
        int middle = (low + high) / 2;
        if ((ignis__char_parts[ignis__char_pairs[middle]] & mask) < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == IGNIS__COUNT(ignis__char_pairs) || (ignis__char_parts[ignis__char_pairs[low]] & mask) != wanted)
        return 0;
    return (uint32_t)(ignis__char_parts[ignis__char_pairs[low]] >> 42);
}

static int ignis__u64_order(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

/*  Composes characters that were decomposed, each class << 53 | place << 21 | character; how many are left. */
static size_t ignis__nfc_compose(uint64_t *chars, size_t count)
{
    const uint64_t code_mask = ((uint64_t)1 << 21) - 1;
    size_t i, k, kept = 0, base = 0;
    uint32_t last = 0; /* the class of what is kept behind the base */
    bool has_base = false;
    for (i = 0; i < count; i = k) { /* marks in the order of their classes */
        for (k = i; k < count && chars[k] >> 53; k++)
            continue;
        if (k > i + 1)
            qsort(chars + i, k - i, sizeof *chars, ignis__u64_order);
        k += k == i;
    }
    for (i = 0; i < count; i++) {
        uint32_t code = (uint32_t)(chars[i] & code_mask), mark = (uint32_t)(chars[i] >> 53), made = 0;
        if (has_base && (kept == base + 1 || last < mark))
            made = ignis__char_pair((uint32_t)(chars[base] & code_mask), code);
        if (made) {
            chars[base] = made;
            continue;
        }
        if (!mark) {
            base = kept;
            has_base = true;
        }
        chars[kept++] = chars[i];
        last = mark;
    }
    return kept;
}

/*  Adds the NFC of a text of whole characters. */
static bool ignis__nfc_add(ignis__bytes *bytes, const char *text, size_t size)
{
    uint64_t *chars = NULL;
    size_t at = 0, base = 0, done = 0, capacity = 0, count, end, i;
    bool ok = true;
    int length, depth;
    while (ok && at < size) {
        uint32_t code = ignis__utf8_code(text + at, &length);
        if (!(ignis__char_mark(code) & 1)) {
            base = at;
            at += (size_t)length;
            continue;
        }
        /* from the character before on, as far as characters may change */
        for (end = at; end < size && (ignis__char_mark(ignis__utf8_code(text + end, &length)) & 1); end += (size_t)length)
            continue;
        if ((end - base) * 2 + 8 > capacity) { /* at most 4 characters of 2 bytes */
            capacity = (end - base) * 2 + 64;
            ignis__free(chars);
            chars = (uint64_t *)ignis__alloc(capacity * sizeof *chars);
            if (!chars)
                return false;
        }
        for (i = base, count = 0; i < end; i += (size_t)length) {
            uint32_t stack[8];
            code = ignis__utf8_code(text + i, &length);
            for (stack[0] = code, depth = 1; depth > 0;) {
                uint64_t parts = ignis__char_parts_of(code = stack[--depth]);
                if (!parts) {
                    chars[count] = (uint64_t)(ignis__char_mark(code) >> 1) << 53 | (uint64_t)count << 21 | code;
                    count++;
                    continue;
                }
                if (parts & 0x1FFFFF)
                    stack[depth++] = (uint32_t)(parts & 0x1FFFFF);
                stack[depth++] = (uint32_t)(parts >> 21);
            }
        }
        count = ignis__nfc_compose(chars, count);
        ok = ignis__bytes_add(bytes, text + done, base - done) && ignis__bytes_room(bytes, count * 4);
        for (i = 0; ok && i < count; i++)
            bytes->size += (size_t)ignis__utf8_write(bytes->data + bytes->size, (uint32_t)(chars[i] & 0x1FFFFF));
        done = base = at = end;
    }
    ignis__free(chars);
    return ok && ignis__bytes_add(bytes, text + done, size - done);
}

/* --- splitting ------------------------------------------------------------------------------------------------------- */

/*  Where a contraction at an apostrophe ends; 0: there is none. */
static size_t ignis__split_contraction(const char *text, size_t size, size_t at, bool any_case)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    int i, k;
    if (any_case && size - at >= 3 && memcmp(text + at + 1, "\xC5\xBF", 2) == 0) /* the long s is an s, if case does not matter */
        return at + 3;
    for (i = 0; i < IGNIS__COUNT(endings); i++) {
        for (k = 0; endings[i][k] && at + 1 + (size_t)k < size; k++) {
            char c = text[at + 1 + (size_t)k];
            if (c != endings[i][k] && !(any_case && (c | 32) == endings[i][k]))
                break;
        }
        if (!endings[i][k])
            return at + 1 + (size_t)k;
    }
    return 0;
}

/*  Where the piece ends that begins at a place. The alternatives stand in the order of the pattern. */
static size_t ignis__split_next(ignis__splitter split, const char *text, size_t size, size_t at)
{
    const unsigned none = IGNIS__CHAR_LETTER | IGNIS__CHAR_NUMBER | IGNIS__CHAR_SPACE;
    bool gpt2 = split == IGNIS__SPLIT_GPT2;
    int length, next_length;
    unsigned kind = ignis__char_at(text, size, at, &length), next;
    size_t end, last, line = 0, blank = at;
    if (split == IGNIS__SPLIT_NONE)
        return size;
    if (text[at] == '\'' && (end = ignis__split_contraction(text, size, at, !gpt2)) != 0)
        return end;
    if (kind & IGNIS__CHAR_LETTER)
        return ignis__char_skip(text, size, at, IGNIS__CHAR_LETTER, false);
    next = ignis__char_at(text, size, at + (size_t)length, &next_length);
    if (next & IGNIS__CHAR_LETTER && (gpt2 ? text[at] == ' ' : !(kind & (IGNIS__CHAR_LINE | IGNIS__CHAR_NUMBER))))
        return ignis__char_skip(text, size, at + (size_t)length, IGNIS__CHAR_LETTER, false);
    if (gpt2 && text[at] == ' ' && next & IGNIS__CHAR_NUMBER)
        return ignis__char_skip(text, size, at + 1, IGNIS__CHAR_NUMBER, false);
    if (kind & IGNIS__CHAR_NUMBER) {
        int left = split == IGNIS__SPLIT_LLAMA3 ? 3 : 1;
        if (gpt2)
            return ignis__char_skip(text, size, at, IGNIS__CHAR_NUMBER, false);
        for (end = at; left > 0 && ignis__char_at(text, size, end, &length) & IGNIS__CHAR_NUMBER; left--)
            end += (size_t)length;
        return end;
    }
    if (text[at] == ' ' && !(next & (none | IGNIS__CHAR_END))) {
        kind = next;
        blank = at + 1;
    }
    if (!(kind & none)) { /* signs */
        end = ignis__char_skip(text, size, blank, none, true);
        while (!gpt2 && end < size && (text[end] == '\r' || text[end] == '\n'))
            end++;
        return end;
    }
    for (end = last = at; end < size; end += (size_t)length) { /* white space */
        kind = ignis__char_at(text, size, end, &length);
        if (!(kind & IGNIS__CHAR_SPACE))
            break;
        last = end;
        if (kind & IGNIS__CHAR_LINE)
            line = end + (size_t)length;
    }
    if (!gpt2 && line)
        return line;
    return end < size && last > at ? last : end; /* the last one belongs to the word behind it */
}

/* --- joining --------------------------------------------------------------------------------------------------------- */

static uint64_t ignis__token_hash(const char *text, size_t size)
{
    uint64_t hash = size * 0x9E3779B97F4A7C15u, word;
    for (; size >= 8; text += 8, size -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    for (word = 0; size > 0; size--)
        word = word << 8 | (unsigned char)text[size - 1];
    hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
    return hash ^ hash >> 32;
}

/*  The id of the model's token of these bytes; -1: none. odd: of one whose text does not stand for bytes. */
static int32_t ignis__token_find(const ignis__tokenizer *tokenizer, const char *text, size_t size, bool odd)
{
    uint64_t hash = ignis__token_hash(text, size), at = hash & tokenizer->slot_mask;
    const ignis__token_slot *slot;
    if (size > tokenizer->longest)
        return -1;
    for (; (slot = &tokenizer->buckets[at])->id; at = (at + 1) & tokenizer->slot_mask) {
        int32_t id = slot->id - 1;
        if (slot->tag == (uint32_t)(hash >> 32) && tokenizer->begin[id + 1] - tokenizer->begin[id] == size &&
            memcmp(tokenizer->bytes + tokenizer->begin[id], text, size) == 0 && ((tokenizer->flags[id] & IGNIS__TOKEN_ODD) != 0) == odd)
            return id;
    }
    return -1;
}

static const ignis__join *ignis__join_find(const ignis__tokenizer *tokenizer, int32_t left, int32_t right)
{
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1, hash = key * 0x9E3779B97F4A7C15u, at;
    for (at = (hash ^ hash >> 32) & tokenizer->join_mask; tokenizer->joins[at].key; at = (at + 1) & tokenizer->join_mask)
        if (tokenizer->joins[at].key == key)
            return &tokenizer->joins[at];
    return NULL;
}

/*  One symbol of a piece that is being joined, among others. */
typedef struct ignis__text_symbol {
    int32_t id, before, after; /* places; -1: none. id -1: it was joined to the one before it */
} ignis__text_symbol;

/*  A pair that may be joined: rank << 32 | the place of its first. */
typedef struct ignis__queued {
    uint64_t order;
    int32_t id;
} ignis__queued;

/*  A part of a text in which control tokens are text like any other. */
typedef struct ignis__plain_span {
    size_t begin, end;
} ignis__plain_span;

/*  What a call that encodes has. */
typedef struct ignis__encoder {
    ignis__tokenizer *tokenizer;
    bool plain, failed;             /* all of the text is plain; there was no memory */
    const ignis__plain_span *spans; /* the parts that are, one behind the other, if not all are */
    int64_t span_count;
    size_t part;     /* where what is being encoded begins in the raw text */
    bool part_plain; /* one of them is in it */
    bool too_long;   /* normalized text is longer than a text may be */
    bool unclear;    /* a control token was found in its normalized text, of which it is not known what is plain */
    int32_t *ids;
    int64_t capacity, count;
    ignis__text_symbol *symbols;
    size_t symbol_capacity;
    ignis__queued *queue;
    size_t queued, queue_capacity;
    ignis__bytes fixed, normal[2], spaced;
    const char *front; /* of the normalized text that begins where the raw one does; null: none does */
} ignis__encoder;

static void ignis__encoder_close(ignis__encoder *encoder)
{
    ignis__free(encoder->symbols);
    ignis__free(encoder->queue);
    ignis__free(encoder->fixed.data);
    ignis__free(encoder->normal[0].data);
    ignis__free(encoder->normal[1].data);
    ignis__free(encoder->spaced.data);
}

static void ignis__encoder_put(ignis__encoder *encoder, int32_t id)
{
    if (encoder->count < encoder->capacity)
        encoder->ids[encoder->count] = id;
    encoder->count++;
}

/*  Room for so many items in an array that need not be kept; false: there is no memory. */
static bool ignis__encoder_room(ignis__encoder *encoder, void **items, size_t *capacity, size_t wanted, size_t size, size_t kept)
{
    size_t room = *capacity * 2 < wanted ? wanted + 64 : *capacity * 2;
    void *fresh;
    if (wanted <= *capacity)
        return true;
    fresh = ignis__alloc(room * size);
    if (!fresh) {
        encoder->failed = true;
        return false;
    }
    if (kept)
        memcpy(fresh, *items, kept * size);
    ignis__free(*items);
    *items = fresh;
    *capacity = room;
    return true;
}

static bool ignis__queue_add(ignis__encoder *encoder, int32_t place, int32_t left, int32_t right)
{
    const ignis__join *join = ignis__join_find(encoder->tokenizer, left, right);
    ignis__queued item, *queue;
    void *items = encoder->queue;
    size_t at;
    if (!join)
        return true;
    if (!ignis__encoder_room(encoder, &items, &encoder->queue_capacity, encoder->queued + 1, sizeof item, encoder->queued))
        return false;
    encoder->queue = queue = (ignis__queued *)items;
    item.order = (uint64_t)join->rank << 32 | (uint32_t)place;
    item.id = join->id;
    for (at = encoder->queued++; at > 0 && queue[(at - 1) / 2].order > item.order; at = (at - 1) / 2)
        queue[at] = queue[(at - 1) / 2];
    queue[at] = item;
    return true;
}

/*  Takes the first of the queue, which is not empty. */
static ignis__queued ignis__queue_take(ignis__encoder *encoder)
{
    ignis__queued *queue = encoder->queue, first = queue[0], item = queue[--encoder->queued];
    size_t at = 0, child;
    while ((child = at * 2 + 1) < encoder->queued) {
        if (child + 1 < encoder->queued && queue[child + 1].order < queue[child].order)
            child++;
        if (queue[child].order >= item.order)
            break;
        queue[at] = queue[child];
        at = child;
    }
    queue[at] = item;
    return first;
}

/*  Joins symbols of a long piece, by a queue: n log n. */
static bool ignis__join_many(ignis__encoder *encoder, int32_t count)
{
    ignis__text_symbol *symbols = encoder->symbols;
    int32_t i;
    encoder->queued = 0;
    for (i = 0; i < count; i++) {
        symbols[i].before = i - 1;
        symbols[i].after = i + 1 < count ? i + 1 : -1;
        if (i + 1 < count && !ignis__queue_add(encoder, i, symbols[i].id, symbols[i + 1].id))
            return false;
    }
    while (encoder->queued > 0) {
        ignis__queued first = ignis__queue_take(encoder);
        ignis__text_symbol *symbol = &symbols[(uint32_t)first.order], *right;
        const ignis__join *join;
        if (symbol->id < 0 || symbol->after < 0)
            continue;
        right = &symbols[symbol->after];
        join = ignis__join_find(encoder->tokenizer, symbol->id, right->id);
        if (!join || join->id != first.id)
            continue; /* one of the two has become something else since */
        symbol->id = first.id;
        right->id = -1;
        symbol->after = right->after;
        if (symbol->after >= 0)
            symbols[symbol->after].before = (int32_t)(symbol - symbols);
        if ((symbol->before >= 0 && !ignis__queue_add(encoder, symbol->before, symbols[symbol->before].id, symbol->id)) ||
            (symbol->after >= 0 && !ignis__queue_add(encoder, (int32_t)(symbol - symbols), symbol->id, symbols[symbol->after].id)))
            return false;
    }
    return true;
}

#define IGNIS__JOIN_FEW 32

/*  Joins symbols of a short piece, looking at all pairs each time; how many are left. */
static int32_t ignis__join_few(ignis__encoder *encoder, int32_t count)
{
    const ignis__join *joins[IGNIS__JOIN_FEW];
    ignis__text_symbol *symbols = encoder->symbols;
    int32_t i, best;
    for (i = 0; i + 1 < count; i++)
        joins[i] = ignis__join_find(encoder->tokenizer, symbols[i].id, symbols[i + 1].id);
    for (;;) {
        for (best = -1, i = 0; i + 1 < count; i++)
            if (joins[i] && (best < 0 || joins[i]->rank < joins[best]->rank))
                best = i;
        if (best < 0)
            return count;
        symbols[best].id = joins[best]->id;
        for (count--, i = best + 1; i < count; i++) {
            symbols[i].id = symbols[i + 1].id;
            joins[i - 1] = joins[i];
        }
        if (best + 1 < count)
            joins[best] = ignis__join_find(encoder->tokenizer, symbols[best].id, symbols[best + 1].id);
        if (best > 0)
            joins[best - 1] = ignis__join_find(encoder->tokenizer, symbols[best - 1].id, symbols[best].id);
    }
}

/*  What a piece is made of before anything is joined: a symbol for each byte or character that the vocabulary has. How many; there is room. */
static int32_t ignis__piece_symbols(const ignis__tokenizer *tokenizer, const char *text, size_t size, ignis__text_symbol *symbols)
{
    int32_t count = 0, id;
    int length = 1, i;
    bool unknown = false; /* one is still to be written */
    size_t at;
    for (at = 0; at < size; at += (size_t)length) {
        unsigned char byte = (unsigned char)text[at];
        if (!tokenizer->byte_level)
            (void)ignis__utf8_code(text + at, &length);
        id = length == 1 ? tokenizer->single[byte] : ignis__token_find(tokenizer, text + at, (size_t)length, false);
        if (id >= 0) {
            if (unknown)
                symbols[count++].id = tokenizer->info.unknown;
            unknown = false;
            symbols[count++].id = id;
            continue;
        }
        for (i = 0; tokenizer->byte_fallback && i < length && tokenizer->fallback[(unsigned char)text[at + (size_t)i]] >= 0; i++)
            continue;
        if (i == length) {
            for (i = 0; i < length; i++)
                symbols[count++].id = tokenizer->fallback[(unsigned char)text[at + (size_t)i]];
        } else if (tokenizer->info.unknown >= 0) {
            if (unknown && !tokenizer->fuse_unknown)
                symbols[count++].id = tokenizer->info.unknown;
            unknown = true;
        }
    }
    if (unknown)
        symbols[count++].id = tokenizer->info.unknown;
    return count;
}

static bool ignis__token_bit(const uint64_t *bits, int32_t at) { return ignis__atomic_load(&bits[at / 64]) >> (at % 64) & 1; }

static void ignis__token_bit_set(uint64_t *bits, int32_t at)
{
    uint64_t old = ignis__atomic_load(&bits[at / 64]), bit = (uint64_t)1 << (at % 64);
    while (!(old & bit) && !ignis__atomic_swap_if(&bits[at / 64], &old, old | bit))
        continue;
}

static bool ignis__encode_piece(ignis__encoder *encoder, const char *text, size_t size)
{
    ignis__tokenizer *tokenizer = encoder->tokenizer;
    int32_t id = ignis__token_find(tokenizer, text, size, false), count, i;
    int64_t before = encoder->count;
    void *items = encoder->symbols;
    if (id >= 0 && encoder->part_plain && tokenizer->flags[id] & IGNIS__TOKEN_CONTROL)
        id = -1; /* whatever the vocabulary says */
    if (id >= 0 && (tokenizer->ignore_merges || ignis__token_bit(tokenizer->whole, id))) {
        ignis__encoder_put(encoder, id);
        return true;
    }
    if (!ignis__encoder_room(encoder, &items, &encoder->symbol_capacity, size + 1, sizeof *encoder->symbols, 0))
        return false;
    encoder->symbols = (ignis__text_symbol *)items;
    count = ignis__piece_symbols(tokenizer, text, size, encoder->symbols);
    if (count <= IGNIS__JOIN_FEW)
        count = ignis__join_few(encoder, count);
    else if (!ignis__join_many(encoder, count))
        return false;
    for (i = 0; i < count; i++)
        if (encoder->symbols[i].id >= 0)
            ignis__encoder_put(encoder, encoder->symbols[i].id);
    if (id >= 0 && !ignis__token_bit(tokenizer->known, id)) {
        if (encoder->count == before + 1 && count > 0 && encoder->symbols[0].id == id)
            ignis__token_bit_set(tokenizer->whole, id); /* it need not be joined again */
        ignis__token_bit_set(tokenizer->known, id);
    }
    return true;
}

/* --- a text ---------------------------------------------------------------------------------------------------------- */

/*  Bytes of a vocabulary of bytes: split, with a space in front if that is asked for. */
static bool ignis__encode_run(ignis__encoder *encoder, const char *text, size_t size)
{
    const ignis__tokenizer *tokenizer = encoder->tokenizer;
    size_t at = 0, end;
    if (tokenizer->prefix_space && size > 0 && text[0] != ' ') {
        encoder->spaced.size = 0;
        if (!ignis__bytes_add(&encoder->spaced, " ", 1) || !ignis__bytes_add(&encoder->spaced, text, size))
            return false;
        text = encoder->spaced.data;
        size = encoder->spaced.size;
    }
    for (; at < size; at = end) {
        end = ignis__split_next(tokenizer->split, text, size, at);
        if (!ignis__encode_piece(encoder, text + at, end - at))
            return false;
    }
    return true;
}

/*  The same, where numbers are cut out before anything else. */
static bool ignis__encode_digits(ignis__encoder *encoder, const char *text, size_t size)
{
    size_t begin = 0, at = 0;
    int length, next_length;
    bool digit, next = (ignis__char_at(text, size, 0, &next_length) & IGNIS__CHAR_DIGIT) != 0;
    while (at < size) {
        digit = next;
        length = next_length;
        at += (size_t)length;
        next = (ignis__char_at(text, size, at, &next_length) & IGNIS__CHAR_DIGIT) != 0;
        if (at < size && digit == next && !(digit && encoder->tokenizer->digits == 1))
            continue;
        if (!ignis__encode_run(encoder, text + begin, at - begin))
            return false;
        begin = at;
    }
    return true;
}

/*  Characters of a vocabulary of pieces: with U+2581 for spaces, and cut where that changes nothing. */
static bool ignis__encode_characters(ignis__encoder *encoder, const char *text, size_t size)
{
    const ignis__tokenizer *tokenizer = encoder->tokenizer;
    bool first = text == encoder->front, split = tokenizer->metaspace != IGNIS__METASPACE_NONE && tokenizer->metaspace_split, low,
         before = false;
    size_t at, begin = 0;
    if (tokenizer->metaspace != IGNIS__METASPACE_NONE) {
        ignis__bytes *out = &encoder->spaced;
        out->size = 0;
        if ((tokenizer->metaspace == IGNIS__METASPACE_ALWAYS || (tokenizer->metaspace == IGNIS__METASPACE_FIRST && first)) &&
            text[0] != ' ' && !(size >= 3 && memcmp(text, IGNIS__LOW_LINE, 3) == 0) && !ignis__bytes_add(out, IGNIS__LOW_LINE, 3))
            return false;
        for (at = 0; at < size; at++)
            if (!(text[at] == ' ' ? ignis__bytes_add(out, IGNIS__LOW_LINE, 3) : ignis__bytes_add(out, text + at, 1)))
                return false;
        text = out->data;
        size = out->size;
    }
    for (at = 0; (split || tokenizer->words) && at < size; at += low ? 3 : 1, before = low) {
        low = size - at >= 3 && memcmp(text + at, IGNIS__LOW_LINE, 3) == 0;
        if (low && at > begin && (split || !before)) {
            if (!ignis__encode_piece(encoder, text + begin, at - begin))
                return false;
            begin = at;
        }
    }
    return size == begin || ignis__encode_piece(encoder, text + begin, size - begin);
}

/*  Normalized text without added tokens. */
static bool ignis__encode_words(ignis__encoder *encoder, const char *text, size_t size)
{
    if (!encoder->tokenizer->byte_level)
        return ignis__encode_characters(encoder, text, size);
    return encoder->tokenizer->digits ? ignis__encode_digits(encoder, text, size) : ignis__encode_run(encoder, text, size);
}

/*  Whether a character of a word stands right before a place, or at it. */
static bool ignis__word_at(const char *text, size_t size, size_t at, bool before)
{
    int length;
    if (before ? at == 0 : at == size)
        return false;
    if (before)
        while ((text[--at] & 0xC0) == 0x80)
            continue;
    return (ignis__char_at(text, size, at, &length) & IGNIS__CHAR_WORD) != 0;
}

/*  The longest added token that stands at a place, special ones as far as `room` goes; null: none. *hidden: a longer one goes further. */
static const ignis__added *ignis__added_at(const ignis__added_set *set, const char *text, size_t size, size_t at, size_t room, bool *hidden)
{
    const ignis__added *found = NULL;
    int low = 0, high = set->count, begin, end;
    size_t depth;
    *hidden = false;
    for (depth = 0; low < high; depth++) {
        unsigned char c;
        if (set->items[low].size == depth) {
            *hidden = set->items[low].special && depth > room;
            found = *hidden ? found : &set->items[low];
            low++;
        }
        if (at + depth == size)
            break;
        c = (unsigned char)text[at + depth];
        if (low < high && (unsigned char)set->items[low].text[depth] == c && (unsigned char)set->items[high - 1].text[depth] == c)
            continue;                                 /* all of them go on with it */
        for (begin = low, end = high; begin < end;) { /* the first with this byte, or one above it */
            int middle = (begin + end) / 2;
            if ((unsigned char)set->items[middle].text[depth] < c)
                begin = middle + 1;
            else
                end = middle;
        }
        low = begin;
        for (end = high; begin < end;) {
            int middle = (begin + end) / 2;
            if ((unsigned char)set->items[middle].text[depth] <= c)
                begin = middle + 1;
            else
                end = middle;
        }
        high = begin;
    }
    return found;
}

/*  A text between added tokens that were matched in the raw one, normalized. */
static bool ignis__encode_normal(ignis__encoder *encoder, const char **text, size_t *size)
{
    const ignis__tokenizer *tokenizer = encoder->tokenizer;
    int i;
    for (i = 0; i < tokenizer->normal_count; i++) {
        const ignis__normal *normal = &tokenizer->normals[i];
        ignis__bytes *out = &encoder->normal[i % 2];
        bool ok = true;
        out->size = 0;
        if (normal->kind == IGNIS__NORMAL_NFC) {
            ok = ignis__nfc_add(out, *text, *size);
        } else if (normal->kind == IGNIS__NORMAL_PREPEND) {
            ok = (*size == 0 || ignis__bytes_add(out, normal->to, strlen(normal->to))) && ignis__bytes_add(out, *text, *size);
        } else {
            const ignis__needle from = ignis__needle_of(normal->from, strlen(normal->from), false);
            const char *at = *text, *end = *text + *size, *found;
            size_t to = strlen(normal->to);
            while (ok && !encoder->too_long && (found = ignis__needle_find(&from, at, (size_t)(end - at))) != NULL) {
                ok = ignis__bytes_add(out, at, (size_t)(found - at)) && ignis__bytes_add(out, normal->to, to);
                at = found + from.length;
                encoder->too_long = out->size > IGNIS__TEXT_LIMIT;
            }
            ok = ok && ignis__bytes_add(out, at, (size_t)(end - at));
        }
        encoder->too_long = encoder->too_long || out->size > IGNIS__TEXT_LIMIT;
        if (!ok || encoder->too_long)
            return false;
        *text = out->data;
        *size = out->size;
    }
    return true;
}

/*  Where plain text begins, from a place of the raw text on: at the place itself, or SIZE_MAX for nowhere. */
static size_t ignis__encoder_plain(const ignis__encoder *encoder, size_t begin)
{
    int64_t low = 0, high = encoder->span_count;
    while (low < high) { /* the first that ends behind it */
        int64_t middle = (low + high) / 2;
        if (encoder->spans[middle].end <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    if (encoder->plain || (low < encoder->span_count && encoder->spans[low].begin <= begin))
        return begin;
    return low < encoder->span_count ? encoder->spans[low].begin : SIZE_MAX;
}

/*  How far a control token at a place may go before it is text like any other. */
static size_t ignis__encoder_reach(const ignis__encoder *encoder, int level, size_t at)
{
    if (level == 0 || encoder->tokenizer->normal_count == 0) {
        at += level == 0 ? 0 : encoder->part;
        return ignis__encoder_plain(encoder, at) - at;
    }
    return encoder->part_plain ? 0 : SIZE_MAX;
}

/*  A text, raw for level 0: added tokens are cut out, and what is between them goes to the next level. */
static bool ignis__encode_level(ignis__encoder *encoder, int level, const char *text, size_t size)
{
    const ignis__added_set *set = &encoder->tokenizer->added[level];
    size_t at = 0, done = 0, begin, end;
    const ignis__added *found = NULL;
    bool hidden;
    int length;
    for (;;) {
        for (found = NULL; at < size && !found; at += !found) {
            if (!set->first[(unsigned char)text[at]])
                continue;
            found = ignis__added_at(set, text, size, at, ignis__encoder_reach(encoder, level, at), &hidden);
            if (hidden && level == 1 && encoder->tokenizer->normal_count > 0 && !encoder->plain)
                encoder->unclear = true;
        }
        begin = end = at;
        if (found) {
            at = end += found->size;
            if (found->single_word && (ignis__word_at(text, size, begin, true) || ignis__word_at(text, size, end, false)))
                continue;
            while (found->lstrip && begin > done) {
                size_t last = begin - 1;
                while (last > 0 && (text[last] & 0xC0) == 0x80)
                    last--;
                if (!(ignis__char_at(text, size, last, &length) & IGNIS__CHAR_SPACE))
                    break;
                begin = last;
            }
            if (found->rstrip) /* what another one has taken with it is white space up to its end */
                end = ignis__char_skip(text, size, end < done ? done : end, IGNIS__CHAR_SPACE, false);
        }
        if (begin > done) {
            const char *part = text + done;
            size_t part_size = begin - done;
            bool ok;
            if (level == 1) {
                ok = ignis__encode_words(encoder, part, part_size);
            } else {
                encoder->part = done;
                encoder->part_plain = ignis__encoder_plain(encoder, done) < begin;
                ok = ignis__encode_normal(encoder, &part, &part_size);
                encoder->front = done == 0 ? part : NULL;
                ok = ok && ignis__encode_level(encoder, 1, part, part_size);
            }
            if (!ok) {
                encoder->failed = true;
                return false;
            }
        }
        if (!found)
            return true;
        ignis__encoder_put(encoder, found->id);
        done = end;
    }
}

/*  All of a text. Where there are spans, it is well-formed UTF-8, as they count its bytes. */
static bool ignis__encode(ignis__encoder *encoder, const char *text, size_t size, bool no_bos)
{
    const ignis__tokenizer *tokenizer = encoder->tokenizer;
    size_t at = 0;
    int i, length = 1;
    while (at < size && (length = ignis__utf8_length(text + at, size - at)) > 0)
        at += (size_t)length;
    if (at < size) {
        if (!ignis__bytes_add_fixed(&encoder->fixed, text, size)) {
            encoder->failed = true;
            return false;
        }
        text = encoder->fixed.data;
        size = encoder->fixed.size;
    }
    for (i = 0; !no_bos && i < tokenizer->front_count; i++)
        ignis__encoder_put(encoder, tokenizer->front[i]);
    if (!ignis__encode_level(encoder, 0, text, size))
        return false;
    for (i = 0; !no_bos && i < tokenizer->back_count; i++)
        ignis__encoder_put(encoder, tokenizer->back[i]);
    return true;
}

/* --- opening --------------------------------------------------------------------------------------------------------- */

/*  Items that grow in number. */
typedef struct ignis__list {
    char *items;
    size_t size; /* of an item */
    int64_t count, capacity;
} ignis__list;

/*  One more item, zeroed; null: there is no memory. */
static void *ignis__list_add(ignis__list *list)
{
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity ? list->capacity * 2 : 64;
        char *items = (char *)ignis__alloc((size_t)capacity * list->size);
        if (!items)
            return NULL;
        if (list->count)
            memcpy(items, list->items, (size_t)list->count * list->size);
        ignis__free(list->items);
        list->items = items;
        list->capacity = capacity;
    }
    return list->items + (size_t)list->count++ * list->size;
}

typedef struct ignis__token_entry {
    const char *text;
    size_t size;
    int64_t id;
    bool odd;   /* its text does not stand for bytes */
    bool apart; /* text never becomes it */
    float score;
    int type; /* in a GGUF file */
} ignis__token_entry;

typedef struct ignis__merge_entry {
    const char *left, *right;
    size_t left_size, right_size;
    uint32_t rank;
    int32_t ids[3]; /* left, right, joined */
} ignis__merge_entry;

/*  A step of a normalizer and of its like. Numbers and words that the file does not have are -1 and null. */
typedef struct ignis__text_part {
    const char *type, *prepend, *content, *behavior, *replacement, *scheme, *string, *regex;
    int64_t invert, individual, prefix, use_regex, split, start, stop;
} ignis__text_part;

enum { IGNIS__PART_NORMALIZER, IGNIS__PART_SPLITTER, IGNIS__PART_PROCESSOR, IGNIS__PART_DECODER, IGNIS__PART_KINDS };

static const char *const ignis__part_names[IGNIS__PART_KINDS] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};

#define IGNIS__TEMPLATE_TOKENS 16

/*  What opening a tokenizer has. Texts are in the file that is being read. */
typedef struct ignis__text_load {
    const char *call, *path;
    ignis__tokenizer *tokenizer;
    ignis__json json;
    ignis__list entries, merges, added;
    ignis__text_part parts[IGNIS__PART_KINDS][IGNIS__TEXT_STEPS];
    int part_count[IGNIS__PART_KINDS];
    const char *model, *unknown; /* null: none */
    bool has_vocabulary, has_merges, dropout, affix;
    const char *template_name[IGNIS__TEMPLATE_TOKENS]; /* around a text */
    bool template_behind[IGNIS__TEMPLATE_TOKENS];
    int template_count;
    bool template_text; /* the template has the text once */
    const char *special_name[IGNIS__TEMPLATE_TOKENS];
    int32_t special_ids[IGNIS__TEMPLATE_TOKENS][IGNIS__TEMPLATE_TOKENS];
    int special_id_count[IGNIS__TEMPLATE_TOKENS], special_count;
    ignis_diagnostic diagnostic; /* of what is wrong; NONE: nothing is */
    char fault[400];
} ignis__text_load;

static void ignis__text_load_begin(ignis__text_load *load, const char *call, ignis__tokenizer *tokenizer)
{
    memset(load, 0, sizeof *load);
    load->call = call;
    load->tokenizer = tokenizer;
    load->entries.size = sizeof(ignis__token_entry);
    load->merges.size = sizeof(ignis__merge_entry);
    load->added.size = sizeof(ignis__added);
    tokenizer->info.bos = tokenizer->info.eos = tokenizer->info.unknown = tokenizer->info.padding = -1;
}

static void ignis__text_load_end(ignis__text_load *load)
{
    ignis__free(load->entries.items);
    ignis__free(load->merges.items);
    ignis__free(load->added.items);
}

/*  The text that load->json is to read. */
static void ignis__text_load_json(ignis__text_load *load, char *text, size_t size)
{
    memset(&load->json, 0, sizeof load->json);
    load->json.what = "the file";
    load->json.start = load->json.at = text;
    load->json.end = text ? text + size : NULL;
}

IGNIS__PRINTF(3, 4)
IGNIS__COLD static bool ignis__text_fault(ignis__text_load *load, ignis_diagnostic diagnostic, const char *format, ...)
{
    va_list args;
    if (load->diagnostic == IGNIS_DIAG_NONE) {
        load->diagnostic = diagnostic;
        va_start(args, format);
        vsnprintf(load->fault, sizeof load->fault, format, args);
        va_end(args);
    }
    return false;
}

IGNIS__COLD static bool ignis__text_no_memory(ignis__text_load *load)
{
    return ignis__text_fault(load, IGNIS_DIAG_HOST_MEMORY, "out of host memory");
}

/*  Steps over a word, such as null, if it is next. */
static bool ignis__json_word(ignis__json *json, const char *word)
{
    size_t size = strlen(word);
    if (json->fault[0] || ignis__json_peek(json) != word[0] || (size_t)(json->end - json->at) < size || memcmp(json->at, word, size) != 0)
        return false;
    json->at += size;
    return true;
}

/*  True or false; false after a fault. */
static bool ignis__json_bool(ignis__json *json)
{
    bool value = ignis__json_word(json, "true");
    if (!value && !ignis__json_word(json, "false"))
        ignis__json_fail(json, "true or false is missing");
    return value;
}

/*  The name of the next field, and steps over its colon; null at the end of the object, or after a fault. */
static const char *ignis__json_field(ignis__json *json, bool *first)
{
    size_t size;
    const char *name;
    if (!ignis__json_more(json, '}', first))
        return NULL;
    name = ignis__json_string(json, &size);
    ignis__json_expect(json, ':');
    return json->fault[0] ? NULL : name;
}

/*  A text without a 0 in it; null for null. */
static const char *ignis__json_words(ignis__json *json)
{
    size_t size;
    const char *text;
    if (ignis__json_word(json, "null"))
        return NULL;
    text = ignis__json_string(json, &size);
    if (strlen(text) != size)
        ignis__json_fail(json, "the text %s goes on behind a character 0", ignis__name_write(text).text);
    return text;
}

/*  {"id": "<s>", "ids": [1], ...} for each name. */
IGNIS__COLD static void ignis__template_specials(ignis__text_load *load)
{
    ignis__json *json = &load->json;
    bool first = true;
    const char *name, *field;
    ignis__json_expect(json, '{');
    while ((name = ignis__json_field(json, &first)) != NULL) {
        bool first_field = true, first_id = true;
        int at = load->special_count++, *count = &load->special_id_count[at];
        if (at == IGNIS__TEMPLATE_TOKENS) {
            load->special_count--;
            ignis__json_fail(json, "a template has more than %d special tokens", IGNIS__TEMPLATE_TOKENS);
            return;
        }
        load->special_name[at] = name;
        ignis__json_expect(json, '{');
        while ((field = ignis__json_field(json, &first_field)) != NULL) {
            if (strcmp(field, "ids") != 0) {
                ignis__json_skip(json);
                continue;
            }
            ignis__json_expect(json, '[');
            for (*count = 0; ignis__json_more(json, ']', &first_id);) {
                int64_t id = ignis__json_count(json);
                if (id >= IGNIS__TOKEN_LIMIT || *count == IGNIS__TEMPLATE_TOKENS)
                    ignis__json_fail(json, "a special token of a template has an id of at least %lld, or more than %d ids",
                                     (long long)IGNIS__TOKEN_LIMIT, IGNIS__TEMPLATE_TOKENS);
                else
                    load->special_ids[at][(*count)++] = (int32_t)id;
            }
        }
    }
}

/*  [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}] */
IGNIS__COLD static void ignis__template_single(ignis__text_load *load)
{
    ignis__json *json = &load->json;
    bool first = true;
    const char *kind, *field;
    load->template_count = 0;
    ignis__json_expect(json, '[');
    while (ignis__json_more(json, ']', &first)) {
        bool first_kind = true;
        ignis__json_expect(json, '{');
        while ((kind = ignis__json_field(json, &first_kind)) != NULL) {
            bool special = strcmp(kind, "SpecialToken") == 0, first_field = true;
            const char *id = NULL;
            ignis__json_expect(json, '{');
            while ((field = ignis__json_field(json, &first_field)) != NULL) {
                if (strcmp(field, "id") == 0)
                    id = ignis__json_words(json);
                else
                    ignis__json_skip(json);
            }
            if (json->fault[0])
                return;
            if (!id || (!special && (strcmp(kind, "Sequence") != 0 || strcmp(id, "A") != 0 || load->template_text)))
                ignis__json_fail(json, "a template of one text is more than special tokens around the text A");
            else if (!special)
                load->template_text = true;
            else if (load->template_count == IGNIS__TEMPLATE_TOKENS)
                ignis__json_fail(json, "a template has more than %d special tokens", IGNIS__TEMPLATE_TOKENS);
            else {
                load->template_behind[load->template_count] = load->template_text;
                load->template_name[load->template_count++] = id;
            }
        }
    }
}

/*  A normalizer and its like: null, one step, or a sequence of steps, which come one after the other. */
IGNIS__COLD static void ignis__part_read(ignis__text_load *load, int kind, int depth)
{
    static const struct {
        const char *name;
        char type; /* a text, a number, true or false */
        size_t at;
    } fields[] = {{"type", 't', offsetof(ignis__text_part, type)},
                  {"prepend", 't', offsetof(ignis__text_part, prepend)},
                  {"content", 't', offsetof(ignis__text_part, content)},
                  {"behavior", 't', offsetof(ignis__text_part, behavior)},
                  {"replacement", 't', offsetof(ignis__text_part, replacement)},
                  {"prepend_scheme", 't', offsetof(ignis__text_part, scheme)},
                  {"invert", 'b', offsetof(ignis__text_part, invert)},
                  {"individual_digits", 'b', offsetof(ignis__text_part, individual)},
                  {"add_prefix_space", 'b', offsetof(ignis__text_part, prefix)},
                  {"use_regex", 'b', offsetof(ignis__text_part, use_regex)},
                  {"split", 'b', offsetof(ignis__text_part, split)},
                  {"start", 'n', offsetof(ignis__text_part, start)},
                  {"stop", 'n', offsetof(ignis__text_part, stop)}};
    static const char *const sequences[IGNIS__PART_KINDS] = {"normalizers", "pretokenizers", "processors", "decoders"};
    ignis__json *json = &load->json;
    ignis__text_part part;
    bool first = true, first_step = true, sequence = false;
    const char *name;
    int i;
    if (ignis__json_word(json, "null"))
        return;
    if (depth > 8) {
        ignis__json_fail(json, "a %s is nested deeper than 8", ignis__part_names[kind]);
        return;
    }
    memset(&part, 0, sizeof part);
    part.invert = part.individual = part.prefix = part.use_regex = part.split = part.start = part.stop = -1;
    ignis__json_expect(json, '{');
    while ((name = ignis__json_field(json, &first)) != NULL) {
        for (i = 0; i < IGNIS__COUNT(fields) && strcmp(name, fields[i].name) != 0; i++)
            continue;
        if (i < IGNIS__COUNT(fields)) {
            char *at = (char *)&part + fields[i].at;
            if (fields[i].type == 't')
                *(const char **)(void *)at = ignis__json_words(json);
            else if (!ignis__json_word(json, "null"))
                *(int64_t *)(void *)at = fields[i].type == 'n' ? ignis__json_count(json) : (int64_t)ignis__json_bool(json);
        } else if (strcmp(name, sequences[kind]) == 0) {
            sequence = true;
            ignis__json_expect(json, '[');
            while (ignis__json_more(json, ']', &first_step))
                ignis__part_read(load, kind, depth + 1);
        } else if (strcmp(name, "pattern") == 0) {
            bool first_pattern = true;
            ignis__json_expect(json, '{');
            while ((name = ignis__json_field(json, &first_pattern)) != NULL)
                *(strcmp(name, "Regex") == 0 ? &part.regex : &part.string) = ignis__json_words(json);
        } else if (kind == IGNIS__PART_PROCESSOR && strcmp(name, "single") == 0) {
            ignis__template_single(load);
        } else if (kind == IGNIS__PART_PROCESSOR && strcmp(name, "special_tokens") == 0) {
            ignis__template_specials(load);
        } else {
            ignis__json_skip(json);
        }
    }
    if (json->fault[0] || sequence)
        return;
    if (!part.type)
        ignis__json_fail(json, "a %s has no type", ignis__part_names[kind]);
    else if (load->part_count[kind] == IGNIS__TEXT_STEPS)
        ignis__json_fail(json, "a %s has more than %d steps", ignis__part_names[kind], IGNIS__TEXT_STEPS);
    else
        load->parts[kind][load->part_count[kind]++] = part;
}

/*  [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}] */
IGNIS__COLD static void ignis__added_read(ignis__text_load *load)
{
    ignis__json *json = &load->json;
    bool first = true;
    const char *name;
    if (ignis__json_word(json, "null"))
        return;
    ignis__json_expect(json, '[');
    while (ignis__json_more(json, ']', &first)) {
        bool first_field = true, has_id = false;
        ignis__added *added = (ignis__added *)ignis__list_add(&load->added);
        if (!added) {
            ignis__text_no_memory(load);
            return;
        }
        added->normalized = true;
        added->order = (int)load->added.count;
        ignis__json_expect(json, '{');
        while ((name = ignis__json_field(json, &first_field)) != NULL) {
            if (strcmp(name, "content") == 0) {
                added->text = ignis__json_string(json, &added->size);
            } else if (strcmp(name, "id") == 0) {
                int64_t id = ignis__json_count(json);
                has_id = true;
                if (id >= IGNIS__TOKEN_LIMIT)
                    ignis__json_fail(json, "an added token has the id %lld; ids are below %lld", (long long)id,
                                     (long long)IGNIS__TOKEN_LIMIT);
                added->id = (int32_t)id;
            } else if (strcmp(name, "single_word") == 0) {
                added->single_word = ignis__json_bool(json);
            } else if (strcmp(name, "lstrip") == 0) {
                added->lstrip = ignis__json_bool(json);
            } else if (strcmp(name, "rstrip") == 0) {
                added->rstrip = ignis__json_bool(json);
            } else if (strcmp(name, "normalized") == 0) {
                added->normalized = ignis__json_bool(json);
            } else if (strcmp(name, "special") == 0) {
                added->special = ignis__json_bool(json);
            } else {
                ignis__json_skip(json);
            }
        }
        if (!json->fault[0] && (!added->text || !has_id))
            ignis__json_fail(json, "an added token has no %s", added->text ? "id" : "content");
    }
}

/*  "a b" is the merge of a and b; false: it is none. */
static bool ignis__merge_split(ignis__merge_entry *merge, const char *both, size_t size)
{
    const char *space = (const char *)memchr(both, ' ', size);
    if (!space)
        return false;
    merge->left = both;
    merge->left_size = (size_t)(space - both);
    merge->right = space + 1;
    merge->right_size = size - merge->left_size - 1;
    return !memchr(merge->right, ' ', merge->right_size);
}

/*  "merges": ["a b", ...] or [["a", "b"], ...]: the pairs of the lowest rank first. */
IGNIS__COLD static void ignis__merges_read(ignis__text_load *load)
{
    ignis__json *json = &load->json;
    bool first = true;
    ignis__json_expect(json, '[');
    while (ignis__json_more(json, ']', &first)) {
        ignis__merge_entry *merge = (ignis__merge_entry *)ignis__list_add(&load->merges);
        if (!merge) {
            ignis__text_no_memory(load);
            return;
        }
        if (ignis__json_take(json, '[')) {
            merge->left = ignis__json_string(json, &merge->left_size);
            ignis__json_expect(json, ',');
            merge->right = ignis__json_string(json, &merge->right_size);
            ignis__json_expect(json, ']');
        } else {
            size_t size;
            const char *both = ignis__json_string(json, &size);
            if (!json->fault[0] && !ignis__merge_split(merge, both, size))
                ignis__json_fail(json, "the merge %s is not two tokens with a space between them", ignis__name_write(both).text);
        }
        merge->rank = (uint32_t)(load->merges.count - 1);
    }
}

IGNIS__COLD static void ignis__vocabulary_read(ignis__text_load *load)
{
    ignis__json *json = &load->json;
    bool first = true;
    size_t size;
    if (ignis__json_peek(json) != '{') { /* that of another kind of model */
        ignis__json_skip(json);
        return;
    }
    load->has_vocabulary = true;
    ignis__json_expect(json, '{');
    while (ignis__json_more(json, '}', &first)) {
        ignis__token_entry *entry;
        const char *text = ignis__json_string(json, &size);
        ignis__json_expect(json, ':');
        entry = (ignis__token_entry *)ignis__list_add(&load->entries);
        if (!entry) {
            ignis__text_no_memory(load);
            return;
        }
        entry->text = text;
        entry->size = size;
        entry->id = ignis__json_count(json);
        if (entry->id >= IGNIS__TOKEN_LIMIT)
            ignis__json_fail(json, "the token %s has the id %lld; ids are below %lld", ignis__name_write(text).text, (long long)entry->id,
                             (long long)IGNIS__TOKEN_LIMIT);
    }
}

IGNIS__COLD static void ignis__text_model_read(ignis__text_load *load)
{
    ignis__json *json = &load->json;
    ignis__tokenizer *tokenizer = load->tokenizer;
    bool first = true;
    const char *name, *text;
    ignis__json_expect(json, '{');
    while (load->diagnostic == IGNIS_DIAG_NONE && (name = ignis__json_field(json, &first)) != NULL) {
        if (strcmp(name, "type") == 0) {
            load->model = ignis__json_words(json);
        } else if (strcmp(name, "unk_token") == 0) {
            load->unknown = ignis__json_words(json);
        } else if (strcmp(name, "vocab") == 0) {
            ignis__vocabulary_read(load);
        } else if (strcmp(name, "merges") == 0) {
            load->has_merges = true;
            ignis__merges_read(load);
        } else if (strcmp(name, "ignore_merges") == 0) {
            tokenizer->ignore_merges = ignis__json_bool(json);
        } else if (strcmp(name, "byte_fallback") == 0) {
            tokenizer->byte_fallback = ignis__json_bool(json);
        } else if (strcmp(name, "fuse_unk") == 0) {
            tokenizer->fuse_unknown = ignis__json_bool(json);
        } else if (strcmp(name, "dropout") == 0) {
            load->dropout = !ignis__json_word(json, "null");
            if (load->dropout) {
                const char *digits = (ignis__json_peek(json), json->at);
                ignis__json_skip(json);
                load->dropout = !(json->at - digits > 0 && strspn(digits, "0.") >= (size_t)(json->at - digits));
            }
        } else if (strcmp(name, "continuing_subword_prefix") == 0 || strcmp(name, "end_of_word_suffix") == 0) {
            text = ignis__json_words(json);
            load->affix = load->affix || (text && *text);
        } else {
            ignis__json_skip(json);
        }
    }
}

/*  tokenizer.json, as it stands; what it means is looked at afterwards. */
IGNIS__COLD static bool ignis__text_json_read(ignis__text_load *load)
{
    ignis__json *json = &load->json;
    bool first = true;
    const char *name;
    int i;
    ignis__json_expect(json, '{');
    while (load->diagnostic == IGNIS_DIAG_NONE && (name = ignis__json_field(json, &first)) != NULL) {
        for (i = 0; i < IGNIS__PART_KINDS && strcmp(name, ignis__part_names[i]) != 0; i++)
            continue;
        if (i < IGNIS__PART_KINDS)
            ignis__part_read(load, i, 0);
        else if (strcmp(name, "added_tokens") == 0)
            ignis__added_read(load);
        else if (strcmp(name, "model") == 0)
            ignis__text_model_read(load);
        else
            ignis__json_skip(json);
    }
    if (load->diagnostic == IGNIS_DIAG_NONE && !json->fault[0] && (ignis__json_peek(json), json->at != json->end))
        ignis__json_fail(json, "something follows the end of the JSON text");
    if (json->fault[0])
        ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "%s", json->fault);
    return load->diagnostic == IGNIS_DIAG_NONE;
}

/*  Refuses a step of a part by its name. */
IGNIS__COLD static bool ignis__part_refuse(ignis__text_load *load, int kind, const ignis__text_part *part, const char *why)
{
    return ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED, "its %s %s is not supported%s%s", ignis__part_names[kind],
                             ignis__name_write(part->type).text, *why ? ": " : "", why);
}

static bool ignis__text_is(const char *text, const char *other) { return text && strcmp(text, other) == 0; }

IGNIS__COLD static bool ignis__normalizer_take(ignis__text_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    int i;
    for (i = 0; i < load->part_count[IGNIS__PART_NORMALIZER]; i++) {
        const ignis__text_part *part = &load->parts[IGNIS__PART_NORMALIZER][i];
        ignis__normal *normal = &tokenizer->normals[tokenizer->normal_count++];
        if (ignis__text_is(part->type, "NFC")) {
            normal->kind = IGNIS__NORMAL_NFC;
        } else if (ignis__text_is(part->type, "Prepend") && part->prepend) {
            normal->kind = IGNIS__NORMAL_PREPEND;
            normal->to = ignis__tokenizer_keep_text(tokenizer, part->prepend, strlen(part->prepend));
        } else if (ignis__text_is(part->type, "Replace") && part->string && *part->string && part->content) {
            normal->kind = IGNIS__NORMAL_REPLACE;
            normal->from = ignis__tokenizer_keep_text(tokenizer, part->string, strlen(part->string));
            normal->to = ignis__tokenizer_keep_text(tokenizer, part->content, strlen(part->content));
        } else {
            return ignis__part_refuse(load, IGNIS__PART_NORMALIZER, part, part->regex ? part->regex : "");
        }
        if (normal->kind != IGNIS__NORMAL_NFC && (!normal->to || (normal->kind == IGNIS__NORMAL_REPLACE && !normal->from)))
            return ignis__text_no_memory(load);
    }
    return true;
}

/*  How U+2581 takes the place of spaces; NONE, and reported: in a way that is not known. */
IGNIS__COLD static ignis__metaspace ignis__metaspace_take(ignis__text_load *load, int kind, const ignis__text_part *part)
{
    static const char *const schemes[] = {"", "always", "first", "never"};
    int i;
    const char *scheme = part->scheme ? part->scheme : part->prefix == 0 ? "never" : "always";
    if (!ignis__text_is(part->replacement, IGNIS__LOW_LINE)) {
        ignis__part_refuse(load, kind, part, "its replacement is not U+2581");
        return IGNIS__METASPACE_NONE;
    }
    for (i = 1; i < IGNIS__COUNT(schemes); i++)
        if (strcmp(scheme, schemes[i]) == 0)
            return (ignis__metaspace)i;
    ignis__part_refuse(load, kind, part, scheme);
    return IGNIS__METASPACE_NONE;
}

/*  Digits, Split and ByteLevel, in this order, each of which may be missing; or Metaspace alone; or nothing. */
IGNIS__COLD static bool ignis__splitter_take(ignis__text_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__text_part *part = load->parts[IGNIS__PART_SPLITTER];
    int i, k, count = load->part_count[IGNIS__PART_SPLITTER];
    for (i = 0; i < count; i++, part++) {
        bool last = i == count - 1;
        if (ignis__text_is(part->type, "Metaspace") && count == 1) {
            tokenizer->metaspace = ignis__metaspace_take(load, IGNIS__PART_SPLITTER, part);
            tokenizer->metaspace_split = part->split != 0;
            return tokenizer->metaspace != IGNIS__METASPACE_NONE;
        }
        if (ignis__text_is(part->type, "Digits") && i == 0 && !last) {
            tokenizer->digits = part->individual == 1 ? 1 : 2;
        } else if (ignis__text_is(part->type, "Split") && tokenizer->split == IGNIS__SPLIT_NONE && !last) {
            if (!part->regex)
                return ignis__part_refuse(load, IGNIS__PART_SPLITTER, part, "its pattern is no regular expression");
            if (!(ignis__text_is(part->behavior, "Isolated") && part->invert != 1) &&
                !(ignis__text_is(part->behavior, "Removed") && part->invert == 1))
                return ignis__part_refuse(load, IGNIS__PART_SPLITTER, part, "it does not keep what its pattern matches, and that alone");
            for (k = 0; k < IGNIS__COUNT(ignis__text_splits); k++)
                if (strcmp(part->regex, ignis__text_splits[k].pattern) == 0)
                    tokenizer->split = ignis__text_splits[k].split;
            if (tokenizer->split == IGNIS__SPLIT_NONE)
                return ignis__part_refuse(load, IGNIS__PART_SPLITTER, part, part->regex);
        } else if (ignis__text_is(part->type, "ByteLevel") && last) {
            tokenizer->byte_level = true;
            tokenizer->prefix_space = part->prefix == 1;
            if (tokenizer->split != IGNIS__SPLIT_NONE && (tokenizer->prefix_space || part->use_regex != 0))
                return ignis__part_refuse(load, IGNIS__PART_SPLITTER, part,
                                          "it splits again, or puts spaces between what is split already");
            if (part->use_regex != 0)
                tokenizer->split = IGNIS__SPLIT_GPT2;
        } else {
            return ignis__part_refuse(load, IGNIS__PART_SPLITTER, part, last && count > 1 ? "at the end of several" : "");
        }
    }
    return true;
}

/*  ByteLevel; or Metaspace; or Replace of U+2581 by spaces, ByteFallback, Fuse, Strip of spaces at the front. */
IGNIS__COLD static bool ignis__decoder_take(ignis__text_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__text_part *part = load->parts[IGNIS__PART_DECODER];
    int i, count = load->part_count[IGNIS__PART_DECODER];
    bool replaced = false, fused = false;
    if (count == 0)
        return ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED, "it has no decoder, and so only tokens with spaces between them");
    for (i = 0; i < count; i++, part++) {
        if (tokenizer->byte_level ? ignis__text_is(part->type, "ByteLevel") && count == 1
                                  : ignis__text_is(part->type, "Metaspace") && count == 1) {
            if (!tokenizer->byte_level)
                tokenizer->metaspace_decoder = ignis__metaspace_take(load, IGNIS__PART_DECODER, part);
            return load->diagnostic == IGNIS_DIAG_NONE;
        }
        if (tokenizer->byte_level)
            return ignis__part_refuse(load, IGNIS__PART_DECODER, part, "its pre_tokenizer is ByteLevel");
        if (ignis__text_is(part->type, "Replace") && ignis__text_is(part->string, IGNIS__LOW_LINE) && ignis__text_is(part->content, " ") &&
            i == 0)
            replaced = true;
        else if (ignis__text_is(part->type, "Fuse"))
            fused = true;
        else if (ignis__text_is(part->type, "Strip") && ignis__text_is(part->content, " ") && part->stop <= 0 && part->start < 100 &&
                 fused && i == count - 1)
            tokenizer->strip = part->start > 0 ? (int)part->start : 0;
        else if (!ignis__text_is(part->type, "ByteFallback") || fused)
            return ignis__part_refuse(load, IGNIS__PART_DECODER, part, "");
        else
            tokenizer->byte_decoder = true;
    }
    return replaced || ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED, "its decoder does not replace U+2581 by spaces");
}

/*  The text of a token of a byte-level vocabulary becomes the bytes that it stands for, where it is; *size is theirs. False: some of its
    characters stand for no byte, and nothing was changed. */
static bool ignis__token_bytes(char *text, size_t *size)
{
    size_t at, out = 0;
    int length, round;
    for (round = 0; round < 2; round++) {
        for (at = out = 0; at < *size; at += (size_t)length) {
            uint32_t code = ignis__utf8_code(text + at, &length), byte = 256;
            if ((code >= 33 && code <= 126) || (code >= 161 && code <= 172) || (code >= 174 && code <= 255))
                byte = code;
            else if (code >= 256 && code <= 288)
                byte = code - 256;
            else if (code >= 289 && code <= 322)
                byte = code - 289 + 127;
            else if (code == 323)
                byte = 173;
            if (byte == 256)
                return false;
            if (round == 1)
                text[out++] = (char)byte;
        }
    }
    *size = out;
    return true;
}

/*  The id of a text of the file, which is changed as above. */
static int32_t ignis__token_of(const ignis__tokenizer *tokenizer, const char *text, size_t *size)
{
    bool odd = tokenizer->byte_level && !ignis__token_bytes((char *)(uintptr_t)text, size);
    return ignis__token_find(tokenizer, text, *size, odd);
}

/*  Gives each id its bytes, and finds those of the model by them. extra: of entries behind those of the model. */
IGNIS__COLD static bool ignis__vocabulary_build(ignis__text_load *load, int64_t model_count, int64_t tokens, const int32_t *entry_of)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__token_entry *entries = (const ignis__token_entry *)(const void *)load->entries.items;
    uint64_t buckets = 16, words = ((uint64_t)tokens + 63) / 64;
    size_t bytes = 0;
    int64_t i;
    for (i = 0; i < load->entries.count; i++)
        bytes += entries[i].size;
    if (bytes >= UINT32_MAX)
        return ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED, "its tokens have %lld bytes, 2^32 or more", (long long)bytes);
    while (buckets < (uint64_t)model_count * 2)
        buckets *= 2;
    tokenizer->bytes = (char *)ignis__tokenizer_keep(tokenizer, bytes + 1);
    tokenizer->begin = (uint32_t *)ignis__tokenizer_keep(tokenizer, ((size_t)tokens + 1) * sizeof(uint32_t));
    tokenizer->flags = (unsigned char *)ignis__tokenizer_keep(tokenizer, (size_t)tokens + 1);
    tokenizer->buckets = (ignis__token_slot *)ignis__tokenizer_keep(tokenizer, (size_t)buckets * sizeof(ignis__token_slot));
    tokenizer->known = (uint64_t *)ignis__tokenizer_keep(tokenizer, (size_t)words * 8);
    tokenizer->whole = (uint64_t *)ignis__tokenizer_keep(tokenizer, (size_t)words * 8);
    if (!tokenizer->bytes || !tokenizer->begin || !tokenizer->flags || !tokenizer->buckets || !tokenizer->known || !tokenizer->whole)
        return ignis__text_no_memory(load);
    tokenizer->slot_mask = buckets - 1;
    tokenizer->info.tokens = (int)tokens;
    for (bytes = 0, i = 0; i < tokens; i++) {
        const ignis__token_entry *entry = &entries[entry_of[i] < 0 ? 0 : entry_of[i]];
        uint64_t hash, at;
        int probes = 0;
        tokenizer->begin[i + 1] = (uint32_t)bytes;
        if (entry_of[i] < 0)
            continue;
        if (entry->size)
            memcpy(tokenizer->bytes + bytes, entry->text, entry->size);
        bytes += entry->size;
        tokenizer->begin[i + 1] = (uint32_t)bytes;
        tokenizer->flags[i] = (unsigned char)(IGNIS__TOKEN_THERE | (entry->odd ? IGNIS__TOKEN_ODD : 0));
        if (entry_of[i] >= model_count || entry->apart)
            continue;
        tokenizer->flags[i] |= IGNIS__TOKEN_MODEL;
        tokenizer->longest = entry->size > tokenizer->longest ? entry->size : tokenizer->longest;
        if (ignis__token_find(tokenizer, entry->text, entry->size, entry->odd) >= 0)
            return ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "two ids, one of them %lld, have the same text %s", (long long)i,
                                     ignis__name_write(entry->text).text);
        hash = ignis__token_hash(entry->text, entry->size);
        for (at = hash & tokenizer->slot_mask; tokenizer->buckets[at].id; at = (at + 1) & tokenizer->slot_mask)
            if (++probes > IGNIS__PROBE_LIMIT)
                return ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED, "the texts of its tokens collide");
        tokenizer->buckets[at].tag = (uint32_t)(hash >> 32);
        tokenizer->buckets[at].id = (int32_t)i + 1;
    }
    return true;
}

/*  All tokens: those of the model, and those added to them. */
IGNIS__COLD static bool ignis__tokens_take(ignis__text_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    ignis__added *added = (ignis__added *)(void *)load->added.items;
    ignis__token_entry *entries = (ignis__token_entry *)(void *)load->entries.items, *entry;
    int64_t model_count = load->entries.count, tokens = 0, i;
    int32_t *entry_of;
    char name[8];
    bool ok = true;
    for (i = 0; i < model_count; i++)
        tokens = entries[i].id >= tokens ? entries[i].id + 1 : tokens;
    for (i = 0; i < load->added.count; i++)
        tokens = added[i].id >= tokens ? added[i].id + 1 : tokens;
    if (model_count == 0)
        return ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "its vocabulary is empty");
    entry_of = (int32_t *)ignis__alloc((size_t)tokens * sizeof *entry_of);
    if (!entry_of)
        return ignis__text_no_memory(load);
    for (i = 0; i < tokens; i++)
        entry_of[i] = -1;
    for (i = 0; ok && i < model_count; i++) {
        entry = &entries[i];
        if (entry_of[entry->id] >= 0)
            ok = ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "the tokens %s and %s have the same id, %lld",
                                   ignis__name_write(entries[entry_of[entry->id]].text).text, ignis__name_write(entry->text).text,
                                   (long long)entry->id);
        entry_of[entry->id] = (int32_t)i;
    }
    for (i = 0; ok && i < model_count && tokenizer->byte_level; i++)
        entries[i].odd = !ignis__token_bytes((char *)(uintptr_t)entries[i].text, &entries[i].size);
    for (i = 0; ok && i < load->added.count; i++) {
        char *text = (char *)(uintptr_t)added[i].text;
        size_t size = added[i].size;
        bool odd;
        added[i].text = ignis__tokenizer_keep_text(tokenizer, text, size);
        if (!added[i].text) {
            ok = ignis__text_no_memory(load);
            break;
        }
        odd = tokenizer->byte_level && !ignis__token_bytes(text, &size);
        if (entry_of[added[i].id] < 0) {
            entry = (ignis__token_entry *)ignis__list_add(&load->entries);
            if (!entry) {
                ok = ignis__text_no_memory(load);
                break;
            }
            entries = (ignis__token_entry *)(void *)load->entries.items;
            entry->text = text;
            entry->size = size;
            entry->odd = odd;
            entry->id = added[i].id;
            entry_of[added[i].id] = (int32_t)(load->entries.count - 1);
            continue;
        }
        entry = &entries[entry_of[added[i].id]];
        if (entry->size != size || entry->odd != odd || memcmp(entry->text, text, size) != 0)
            ok = ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "the added token %s has the id %d, which is that of another token",
                                   ignis__name_write(added[i].text).text, (int)added[i].id);
    }
    ok = ok && ignis__vocabulary_build(load, model_count, tokens, entry_of);
    for (i = 0; ok && i < load->added.count; i++) {
        int32_t id = added[i].id,
                model = ignis__token_find(tokenizer, tokenizer->bytes + tokenizer->begin[id],
                                          tokenizer->begin[id + 1] - tokenizer->begin[id], (tokenizer->flags[id] & IGNIS__TOKEN_ODD) != 0);
        if (model >= 0 && model != id)
            ok = ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "the added token %s has the id %d, but in the vocabulary %d",
                                   ignis__name_write(added[i].text).text, (int)id, (int)model);
        if (added[i].special)
            tokenizer->flags[id] |= IGNIS__TOKEN_CONTROL;
    }
    for (i = 0; ok && i < 256; i++) {
        name[0] = (char)i;
        tokenizer->single[i] = tokenizer->byte_level || i < 128 ? ignis__token_find(tokenizer, name, 1, false) : -1;
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        tokenizer->fallback[i] = ignis__token_find(tokenizer, name, 6, false);
    }
    ignis__free(entry_of);
    return ok;
}

/*  The table of pairs, from the ids and ranks of the merges. */
IGNIS__COLD static bool ignis__joins_build(ignis__text_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    const ignis__merge_entry *merges = (const ignis__merge_entry *)(const void *)load->merges.items;
    uint64_t size = 16, at;
    int64_t i;
    while (size < (uint64_t)load->merges.count * 3 / 2)
        size *= 2;
    tokenizer->joins = (ignis__join *)ignis__tokenizer_keep(tokenizer, (size_t)size * sizeof(ignis__join));
    if (!tokenizer->joins)
        return ignis__text_no_memory(load);
    tokenizer->join_mask = size - 1;
    tokenizer->words = !tokenizer->byte_level && ignis__token_find(tokenizer, IGNIS__LOW_LINE, 3, false) >= 0 && !tokenizer->ignore_merges;
    for (i = 0; i < load->merges.count; i++) {
        const ignis__merge_entry *merge = &merges[i];
        uint64_t key = ((uint64_t)(uint32_t)merge->ids[0] << 32 | (uint32_t)merge->ids[1]) + 1, hash = key * 0x9E3779B97F4A7C15u;
        const char *text = tokenizer->bytes + tokenizer->begin[merge->ids[2]];
        uint32_t length = tokenizer->begin[merge->ids[2] + 1] - tokenizer->begin[merge->ids[2]], k;
        int probes = 0;
        for (at = (hash ^ hash >> 32) & tokenizer->join_mask; tokenizer->joins[at].key && tokenizer->joins[at].key != key;) {
            at = (at + 1) & tokenizer->join_mask;
            if (++probes > IGNIS__PROBE_LIMIT)
                return ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED, "its merges collide");
        }
        tokenizer->joins[at].key = key;
        tokenizer->joins[at].rank = merge->rank;
        tokenizer->joins[at].id = merge->ids[2];
        for (k = 1; tokenizer->words && k + 3 <= length; k++)
            if (memcmp(text + k, IGNIS__LOW_LINE, 3) == 0 && (k < 3 || memcmp(text + k - 3, IGNIS__LOW_LINE, 3) != 0))
                tokenizer->words = false;
    }
    return true;
}

IGNIS__COLD static bool ignis__merges_take(ignis__text_load *load)
{
    const ignis__tokenizer *tokenizer = load->tokenizer;
    ignis__merge_entry *merges = (ignis__merge_entry *)(void *)load->merges.items;
    ignis__bytes both = IGNIS__ZERO;
    bool ok = true;
    int64_t i;
    int k;
    for (i = 0; ok && i < load->merges.count; i++) {
        ignis__merge_entry *merge = &merges[i];
        size_t size;
        both.size = 0;
        ok = ignis__bytes_add(&both, merge->left, merge->left_size) && ignis__bytes_add(&both, merge->right, merge->right_size) &&
             ignis__bytes_add(&both, "", 1);
        if (!ok) {
            ignis__text_no_memory(load);
            break;
        }
        size = both.size - 1;
        merge->ids[2] = ignis__token_of(tokenizer, both.data, &size);
        merge->ids[0] = ignis__token_of(tokenizer, merge->left, &merge->left_size);
        merge->ids[1] = ignis__token_of(tokenizer, merge->right, &merge->right_size);
        for (k = 0; k < 3; k++)
            if (merge->ids[k] < 0)
                ok = ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "merge %lld %s a token that is not in its vocabulary",
                                       (long long)i, k == 2 ? "makes" : "joins");
    }
    ignis__free(both.data);
    return ok;
}

static int ignis__added_order(const void *a, const void *b)
{
    const ignis__added *one = (const ignis__added *)a, *other = (const ignis__added *)b;
    size_t size = one->size < other->size ? one->size : other->size;
    int order = size ? memcmp(one->text, other->text, size) : 0;
    if (order)
        return order;
    if (one->size != other->size)
        return one->size < other->size ? -1 : 1;
    if (one->special != other->special)
        return one->special ? -1 : 1; /* as in the library, these are looked at first */
    return one->order - other->order;
}

/*  What is cut out of text. What is matched in normalized text is normalized itself. */
IGNIS__COLD static bool ignis__added_take(ignis__text_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    ignis__added *added = (ignis__added *)(void *)load->added.items;
    ignis__encoder encoder = IGNIS__ZERO;
    int level, k, kept;
    int64_t i;
    bool ok = true;
    encoder.tokenizer = tokenizer;
    for (level = 0; ok && level < 2; level++) {
        ignis__added_set *set = &tokenizer->added[level];
        set->items = (ignis__added *)ignis__tokenizer_keep(tokenizer, (size_t)(load->added.count + 1) * sizeof *set->items);
        ok = set->items != NULL;
        for (i = 0; ok && i < load->added.count; i++) {
            ignis__added *item = &set->items[set->count];
            const char *text = added[i].text;
            if (added[i].normalized != (level == 1) || added[i].size == 0)
                continue;
            *item = added[i];
            if (item->size > IGNIS__ADDED_LIMIT) {
                ignis__encoder_close(&encoder);
                return ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED, "the added token %s has %lld bytes; at most %d are supported",
                                         ignis__name_write(item->text).text, (long long)item->size, IGNIS__ADDED_LIMIT);
            }
            if (level == 1) {
                ok = ignis__encode_normal(&encoder, &text, &item->size) &&
                     (item->text = ignis__tokenizer_keep_text(tokenizer, text, item->size)) != NULL;
                if (item->size == 0)
                    continue;
            }
            set->count++;
        }
        if (!ok)
            break;
        if (set->count > 1)
            qsort(set->items, (size_t)set->count, sizeof *set->items, ignis__added_order);
        for (kept = 0, k = 0; k < set->count; k++)
            if (kept == 0 || set->items[kept - 1].size != set->items[k].size ||
                memcmp(set->items[kept - 1].text, set->items[k].text, set->items[k].size) != 0)
                set->items[kept++] = set->items[k];
        set->count = kept;
        for (k = 0; k < kept; k++)
            set->first[(unsigned char)set->items[k].text[0]] = true;
    }
    ignis__encoder_close(&encoder);
    return ok || ignis__text_no_memory(load);
}

/*  The ids around each text. */
IGNIS__COLD static bool ignis__template_take(ignis__text_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    int i, k;
    size_t room = (size_t)(IGNIS__TEMPLATE_TOKENS + 1) * IGNIS__TEMPLATE_TOKENS * sizeof(int32_t);
    for (i = 0; i < load->part_count[IGNIS__PART_PROCESSOR]; i++) {
        const ignis__text_part *part = &load->parts[IGNIS__PART_PROCESSOR][i];
        if (!ignis__text_is(part->type, "ByteLevel") && !ignis__text_is(part->type, "TemplateProcessing"))
            return ignis__part_refuse(load, IGNIS__PART_PROCESSOR, part, "");
        if (ignis__text_is(part->type, "TemplateProcessing") && !load->template_text)
            return ignis__part_refuse(load, IGNIS__PART_PROCESSOR, part, "its template has no place for the text");
    }
    tokenizer->front = (int32_t *)ignis__tokenizer_keep(tokenizer, room);
    tokenizer->back = (int32_t *)ignis__tokenizer_keep(tokenizer, room);
    if (!tokenizer->front || !tokenizer->back)
        return ignis__text_no_memory(load);
    for (i = 0; i < load->template_count; i++) {
        bool behind = load->template_behind[i];
        int32_t *ids = behind ? tokenizer->back : tokenizer->front;
        int *count = behind ? &tokenizer->back_count : &tokenizer->front_count, at;
        for (at = 0; at < load->special_count && strcmp(load->special_name[at], load->template_name[i]) != 0; at++)
            continue;
        if (at == load->special_count)
            return ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "its template names the special token %s, which it does not have",
                                     ignis__name_write(load->template_name[i]).text);
        for (k = 0; k < load->special_id_count[at]; k++) {
            if (load->special_ids[at][k] >= tokenizer->info.tokens)
                return ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "its template has the id %d, and it has %d tokens",
                                         (int)load->special_ids[at][k], tokenizer->info.tokens);
            ids[(*count)++] = load->special_ids[at][k];
        }
    }
    tokenizer->info.bos = tokenizer->front_count ? tokenizer->front[0] : -1;
    return true;
}

/*  What was read becomes a tokenizer, if all of it is known. */
IGNIS__COLD static bool ignis__text_json_take(ignis__text_load *load)
{
    ignis__tokenizer *tokenizer = load->tokenizer;
    size_t size;
    if (load->model ? strcmp(load->model, "BPE") != 0 : !load->has_merges)
        return ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED, "its model is of type %s, and BPE alone is supported",
                                 load->model ? ignis__name_write(load->model).text : "none");
    if (!load->has_vocabulary || !load->has_merges)
        return ignis__text_fault(load, IGNIS_DIAG_TOKENIZER_FORMAT, "its model has no %s", load->has_vocabulary ? "merges" : "vocab");
    if (load->dropout || load->affix)
        return ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED, "its model has %s, which is not supported",
                                 load->dropout ? "a dropout" : "a continuing_subword_prefix or an end_of_word_suffix");
    if (!ignis__normalizer_take(load) || !ignis__splitter_take(load) || !ignis__decoder_take(load))
        return false;
    if (tokenizer->byte_level && tokenizer->byte_fallback)
        return ignis__text_fault(load, IGNIS_DIAG_UNSUPPORTED, "it has a byte_fallback beside ByteLevel, which is not supported");
    if (!ignis__tokens_take(load) || !ignis__merges_take(load) || !ignis__joins_build(load) || !ignis__added_take(load) ||
        !ignis__template_take(load))
        return false;
    size = load->unknown ? strlen(load->unknown) : 0;
    tokenizer->info.unknown = load->unknown ? ignis__token_of(tokenizer, load->unknown, &size) : -1;
    return true;
}

