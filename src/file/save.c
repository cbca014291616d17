/*  file/save.c - ignis_save

    Writes beside the target, flushes, and renames: the target has the old content or the new, never a part.
    May use: borrow.c, safetensors.c, base/file_io.c. Locks: none held while it writes. */

#include "room.h"

IGNIS__COLD IGNIS__PRIVATE bool ignis__file_fail(const char *call, const char *path, const char *what)
{
    return ignis__fail_file(IGNIS_DIAG_STORAGE_IO, call, path, what) == IGNIS_OK;
}

/*  Finds the dtype that a tensor has in a file: its own if `name` is NULL. False, and reported, if it cannot become
    that. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__file_dtype_choose(const char *call, const char *name, ignis_dtype dtype,
                                                         int *type)
{
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__file_dtypes); i++) {
        const struct ignis__file_dtypes_type *row = &ignis__file_dtypes[i];
        if (name ? strcmp(row->name, name) != 0 : row->dtype != dtype)
            continue;
        *type = i;
        if (row->loaded == dtype)
            return true;
        return ignis__fail_false(IGNIS_DIAG_DTYPE_DIFFERS, call, "a tensor of %s cannot be written as %s%s%s",
                                 ignis__dtypes[dtype].name, row->name, row->loaded ? "; expected " : "",
                                 row->loaded ? ignis__dtypes[row->loaded].name : ", which Ignis does not support");
    }
    return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call,
                             "the file's dtype is %s; expected BOOL, I8, I16, U16, U32, or null for the tensor's own",
                             ignis__name_write(name ? name : "").text);
}

/*  Returns the items for the tensors of a save, sorted by their place in the file. */
static bool ignis__save_items(const char *call, const char *const *names, const char *const *dtypes,
                              ignis__file_tensor *items, const ignis__borrowed_tensor *lent, int count)
{
    const char *twice;
    int i;
    for (i = 0; i < count; i++) {
        if (!ignis__utf8_valid(names[i]) || strcmp(names[i], "__metadata__") == 0)
            return ignis__fail_false(
                IGNIS_DIAG_STORAGE_NAME, call, "names[%d], %s, is %s", i, ignis__name_write(names[i]).text,
                *names[i] == '_' ? "no name for a tensor: it is the file's own" : "not well-formed UTF-8");
        items[i].name = names[i];
        items[i].index = i;
        items[i].shape = lent[i].array->shape;
        if (!ignis__file_dtype_choose(call, dtypes ? dtypes[i] : NULL, lent[i].array->dtype, &items[i].type))
            return false;
    }
    ignis__file_tensor_sort(items, count, ignis__file_tensor_by_name);
    twice = ignis__file_tensor_duplicate(items, count);
    if (twice)
        ignis__fail(IGNIS_DIAG_STORAGE_NAME, call, "two tensors have the name %s", ignis__name_write(twice).text);
    else if (!ignis__safetensors_arrange(items, count))
        ignis__fail(IGNIS_DIAG_SHAPE_OVERFLOW, call, "the %d tensors have more bytes than 63 bits can count", count);
    else
        return true;
    return false;
}

IGNIS__PRIVATE bool ignis__save_write(const char *call, const char *path, FILE *file, const void *data, int64_t size)
{
    return fwrite(data, 1, (size_t)size, file) == (size_t)size || ignis__file_fail(call, path, "written");
}

/*  Writes the header of arranged items. */
IGNIS__PRIVATE bool ignis__save_header(const char *call, const char *path, FILE *file, const ignis__file_tensor *items,
                                       int count, const char *metadata)
{
    size_t size = ignis__safetensors_write(items, count, metadata, NULL, 0);
    unsigned char length[8];
    char *header;
    bool ok;
    int i;
    if (size > IGNIS__HEADER_LIMIT)
        return ignis__fail_false(IGNIS_DIAG_STORAGE_NAME, call,
                                 "%d names and shapes take %lld bytes, above the %d of a header", count,
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

/*  Narrows integers of `from` bytes in place to the dtype of a file. False, and *at is the first value that it does not
    hold. */
static bool ignis__save_narrow(char *chunk, int64_t count, int from, const struct ignis__file_dtypes_type *dtype,
                               int64_t *at)
{
    int to = dtype->bits / 8, k;
    bool is_bool = dtype->name[0] == 'B', is_signed = dtype->name[0] == 'I';
    int64_t most = is_bool ? 1 : ((int64_t)1 << (dtype->bits - is_signed)) - 1, least = is_signed ? -most - 1 : 0, i;
    for (i = 0; i < count; i++) {
        int64_t value = 0;
        int32_t narrow = 0;
        if (from == 8)
            memcpy(&value, chunk + i * from, sizeof value);
        else if (from == 4)
            memcpy(&narrow, chunk + i * from, sizeof narrow);
        value = *at = from == 8 ? value : from == 4 ? narrow : (unsigned char)chunk[i];
        if (value < least || value > most)
            return false;
        for (k = 0; k < to; k++)
            chunk[i * to + k] = (char)(unsigned char)((uint64_t)value >> 8 * k & 0xFF);
    }
    return true;
}

/*  Writes an array in the dtype of its item, through IGNIS__CONVERT_CHUNK bytes of host memory. */
IGNIS__PRIVATE bool ignis__save_array(const char *call, const char *path, FILE *file, ignis__array *array,
                                      const ignis__file_tensor *item, void *chunk)
{
    const struct ignis__file_dtypes_type *dtype = &ignis__file_dtypes[item->type];
    ignis__work work;
    ignis__address address;
    int64_t size = ignis__array_bytes(array), done, part, bad = 0;
    int from = ignis__dtypes[array->dtype].size, to = dtype->bits / 8;
    bool ok;
    if (!ignis__work_begin(call, array->storage->device, &work))
        return false;
    ok = ignis__work_read(&work, array, &address);
    for (done = 0; ok && done < size; done += part) {
        part = size - done < IGNIS__CONVERT_CHUNK ? size - done : IGNIS__CONVERT_CHUNK;
        ok = ignis__copy_to_host(&work, chunk, address + (uint64_t)done, part);
        if (ok && !dtype->dtype && !ignis__save_narrow((char *)chunk, part / from, from, dtype, &bad))
            ok = ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "tensor %s has the value %lld, which %s does not hold",
                                   ignis__name_write(item->name).text, (long long)bad, dtype->name);
        ok = ok && ignis__save_write(call, path, file, chunk, part / from * to);
    }
    ignis__work_end(&work);
    return ok;
}

IGNIS__PRIVATE bool ignis__replace_begin(ignis__replacement *r, const char *call, const char *path)
{
    bool loop, replaces;
    int64_t size, time;
    memset(r, 0, sizeof *r);
    r->call = call;
    r->path = path;
    if (ignis__path_is_special(path))
        return ignis__fail_false(IGNIS_DIAG_STORAGE_IO, call,
                                 "'%s' exists, and is not a regular file: it is not replaced", path);
    r->target = ignis__file_target(path, &loop);
    r->part = r->target ? ignis__file_part_path(r->target) : NULL;
    replaces = r->target && ignis__file_info(r->target, &size, &time); /* which may be less open than a new one */
    if (!r->part && !loop)
        ignis__fail_host_memory(call, strlen(path) + 80);
    else if (!r->part ||
             (r->file = ignis__file_create(r->part, replaces ? IGNIS__FILE_PRIVATE : IGNIS__FILE_NEW)) == NULL)
        (void)ignis__file_fail(call, path, "created");
    else
        ignis__file_inherit(r->file, r->target);
    if (r->file)
        return true;
    ignis__free(r->target);
    ignis__free(r->part);
    return false;
}

/*  Moves the file to its place and flushes it to the disk, or removes it; `ok`: it is complete. */
IGNIS__PRIVATE bool ignis__replace_end(ignis__replacement *r, bool ok)
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

static bool ignis__save_file(const char *call, const char *path, const ignis__file_tensor *items,
                             const ignis__borrowed_tensor *lent, int count, const char *metadata)
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
        ok = ignis__save_array(call, path, to.file, lent[items[i].index].array, &items[i], chunk);
    ignis__free(chunk);
    return ignis__replace_end(&to, ok);
}

/*  Saves tensors. metadata: a JSON object for the header, or NULL. dtypes: as in ignis_save_desc. */
IGNIS__PRIVATE ignis_status ignis__save(const char *call, const char *path, const char *const *names,
                                        const ignis_tensor *tensors, int count, const char *metadata,
                                        const char *const *dtypes)
{
    ignis__borrowed_tensor *lent;
    ignis__file_tensor *items;
    bool ok;
    int i;
    if (!ignis__check_named_tensors(call, path, names, tensors, count))
        return ignis__failed();
    lent = (ignis__borrowed_tensor *)ignis__alloc(((size_t)count + 1) * sizeof *lent);
    items = (ignis__file_tensor *)ignis__alloc(((size_t)count + 1) * sizeof *items);
    ok = lent && items;
    if (!ok)
        ignis__fail_host_memory(call, ((size_t)count + 1) * (sizeof *lent + sizeof *items));
    for (i = 0; ok && i < count; i++)
        ok = (lent[i].array = ignis__borrow_array(call, tensors[i])) != NULL;
    ok = ok && ignis__save_items(call, names, dtypes, items, lent, count) && ignis__borrow_acquire(call, lent, count) &&
         ignis__save_file(call, path, items, lent, count, metadata);
    if (lent)
        ignis__borrow_release(call, lent, count, ok);
    ignis__free(lent);
    ignis__free(items);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__COLD IGNIS_API ignis_status ignis_save(const char *path, const char *const *names, const ignis_tensor *tensors,
                                              int count)
{
    return ignis__save("ignis_save", path, names, tensors, count, NULL, NULL);
}
